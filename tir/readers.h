/* Which stages load which values: what rewrites, lowering and schedule rules ask about a stage and its readers. */
#ifndef TIR_READERS_H
#define TIR_READERS_H

#include "tir/region.h"

typedef void (*tir_load_visit)(void *user, tir_expr load);
/* Visits the loads of the stage's values, initial values or key, predicate and indices; one that occurs in several of these, for each. */
void tir_stage_loads(const tir_region *region, int stage, tir_load_visit visit, void *user);
bool tir_stage_reads(const tir_region *region, int stage, uint32_t tensor);
/* Does the stage `reader` load a value of a stage of the set? */
bool tir_reads_any(const tir_region *region, int reader, const bool *set);
/* Number of distinct loads of the tensor in the stage; TIR_LOADS_MAX: so many or more. */
enum { TIR_LOADS_MAX = 8 };
int tir_loads_of(const tir_region *region, int stage, uint32_t tensor);
/* Does the expression (0: no) load? var not 0: at indices, or under a guard, that depend on it. */
bool tir_has_load(tir_pool *pool, tir_expr e, tir_expr var);

/* Does the stage `reader` load a value of stage `producer`? False for a stage that was removed, as in all functions below. */
bool tir_reads(const tir_region *region, int reader, int producer);
/* Are the first `axes` indices of all of the reader's loads of `producer` the reader's own first axes? True if there are no such loads. */
bool tir_reads_along(const tir_region *region, int reader, int producer, int axes);
/* Does a stage other than `stage` load the tensor? */
bool tir_is_read_by_others(const tir_region *region, int stage, uint32_t tensor);
/* Is a value of the stage an output of the region? */
bool tir_has_output(const tir_region *region, int stage);

#endif
