/* Ways to run a sample, from the definition of its stages to the public API. A leg prepares once per sample (lowering, compilation)
 * and then runs on several sets of numbers. */
#ifndef TEST_CONFORMANCE_LEGS_H
#define TEST_CONFORMANCE_LEGS_H

#include "graph/internal.h"

/* A sample as the host would write it, and with its composites expanded. */
typedef struct test_graphs {
    const graph *whole, *primitive;
} test_graphs;

/* A leg. Failures raise in the arena's scope. inputs[i] and outputs[i] are compact tensors. */
typedef struct test_leg {
    const char *name;
    /* Prepares a sample for `run`; NULL: this leg cannot run such operators. */
    void *(*prepare)(const struct test_leg *leg, lib_arena *arena, const test_graphs *graphs);
    void (*run)(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs);
    /* NULL: nothing is left */
    void (*finish)(void *prepared);
    bool fma, strided;
    /* memory is guarded at one end only, because the leg is slow */
    bool once;
    /* the target on whose device the leg runs, if DLC_TEST_TARGET names it (all other legs are then skipped); NULL: none */
    const char *target;
} test_leg;

enum { TEST_LEGS_MAX = 12 };
extern const test_leg test_legs[TEST_LEGS_MAX]; /* ends at name NULL */

bool test_leg_wanted(const test_leg *leg);
/* Prints what ran on a device, at the end. */
void test_legs_close(void);

#endif
