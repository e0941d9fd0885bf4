/* Inside the schedule rules of the cuda target (rules*.c). */
#ifndef CUDA_RULES_H
#define CUDA_RULES_H

#include "tir/access.h"
#include "tir/machine.h"
#include "tir/schedule.h"

typedef struct cuda_rules {
    const tir_machine *machine;
    tir_region *region;     /* after the rewrites so far */
    tir_schedule *schedule; /* what is being written */
    lib_arena *arena;
    lib_vec(const char *) done; /* stages that are scheduled, by name: rewrites renumber them */
} cuda_rules;

enum { CUDA_ACCESSES = 16 };

/* Appends a rewrite line and applies it to r->region. */
void cuda_rewrite(cuda_rules *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cuda_stage_named(const cuda_rules *r, const char *name);                            /* -1: none */
int64_t cuda_extent(const cuda_rules *r, const tir_axis *axis);                         /* -1: varying */
const char *cuda_fresh_name(const cuda_rules *r, const char *base, const char *suffix); /* no tensor has it */
bool cuda_is_done(const cuda_rules *r, const char *stage);
void cuda_mark_done(cuda_rules *r, const char *stage);
/* Does a load of the consumer take the producer's points one by one along its first `axes` axes, and those of the consumer alike? Loads of
 * other tensors do not count. *reads: is there one? */
bool cuda_reads_along(cuda_rules *r, int consumer, int producer, int axes, bool *reads);

/* Each says no (false), and has changed nothing, when the stage is not of its kind. Roots that are scheduled are marked done with
 * what runs inside. */
bool cuda_schedule_rows(cuda_rules *r, int root);
bool cuda_schedule_tile(cuda_rules *r, int root);
void cuda_schedule_points(cuda_rules *r, int root);

#endif
