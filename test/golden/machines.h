/* Fixed machines, so that schedules and predictions of the cpu target in tests do not depend on the processor that runs them. */
#ifndef TEST_GOLDEN_MACHINES_H
#define TEST_GOLDEN_MACHINES_H

#include "tir/machine.h"

typedef struct golden_machine {
    /* Z, Y, X: 512, 256, 128 bits with large caches; z, y, x: with small ones; T: Z on four threads */
    char letter;
    int threads;
    tir_machine facts;
} golden_machine;

enum { GOLDEN_MACHINES = 7 };
extern const golden_machine golden_machines[GOLDEN_MACHINES];

#endif
