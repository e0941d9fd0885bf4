/* Inside the schedule rules of the cuda target (rules*.c). */
#ifndef CUDA_RULES_H
#define CUDA_RULES_H

#include "tir/machine.h"
#include "tir/schedule.h"

typedef struct rules {
    const tir_machine *machine;
    tir_region *region;     /* after the rewrites so far */
    tir_schedule *schedule; /* what is being written */
    lib_arena *arena;
    bool *done; /* by stage: it is scheduled. By name after rewrites, which renumber stages: see rules_mark */
} rules;

#endif
