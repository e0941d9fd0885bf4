/* Which sizes have kernels of their own. A value of a symbol is exact (kernels are compiled for it) or a parameter of kernels that serve a
 * range of values.
 *
 *   0 and 1         are exact: 1 is common (one decoding step) and removes the dimension, and kernels of other sizes know that these are
 *                   not empty
 *   declared        (dlc_symbol_varies) all other values are parameters
 *   the first       value of a symbol is exact: most programs see no other
 *   explicit binds  make their values exact
 *   recurring       values become exact: a plan with a parameter has run RECURS times, or as many plans of other shapes were bound
 *   others          are parameters: a stream of sizes never seen takes three builds
 *
 * A symbol has at most JIT_EXACT_SIZES exact values besides 0 and 1, which stay exact while the program lives: exact kernels may add in another
 * order than those of a range, and the bits of a size change once at most. */
#include "jit/internal.h"

/* Runs, or binds, after which a size pays for kernels of its own: those of a range take a tenth longer, and as long as some tens of runs of
 * a network take, so long takes its compilation. It is a number, not a time, so that runs are repeatable. */
enum { RECURS = 32 };

static bool holds(const jit_sizes *sizes, int64_t value) {
    for (int i = 0; i < sizes->exact_count; i++)
        if (sizes->exact[i] == value) return true;
    return false;
}

/* Counts a bind of a value that is a parameter, in constant memory: a value that is more than one in JIT_EXACT_SIZES + 1 of all is among
 * the candidates, and its count at least its binds beyond that share (Misra & Gries, "Finding repeated elements", 1982). */
static bool is_bound_often(jit_sizes *sizes, int64_t value) {
    int unused = -1;
    for (int i = 0; i < JIT_EXACT_SIZES; i++) {
        if (sizes->binds[i] && sizes->candidate[i] == value) return ++sizes->binds[i] > RECURS;
        if (!sizes->binds[i]) unused = i;
    }
    if (unused >= 0) {
        sizes->candidate[unused] = value;
        sizes->binds[unused] = 1;
    }
    for (int i = 0; i < JIT_EXACT_SIZES && unused < 0; i++) sizes->binds[i]--;
    return false;
}

/* The rule for a value that is neither 0 nor 1 nor of a declared symbol. */
static bool is_exact(jit_build *build, uint32_t s, int64_t value, bool learn) {
    jit_sizes *sizes = &build->program->sizes[s];
    if (holds(sizes, value)) return true;
    if (sizes->exact_count == JIT_EXACT_SIZES) return false;
    bool exact = !sizes->exact_count || build->tier & JIT_TIER_EXACT;
    if (!exact && learn && !(build->tier & JIT_TIER_BACKGROUND)) exact = is_bound_often(sizes, value);
    if (exact && learn) {
        sizes->exact[sizes->exact_count++] = value;
        build->added[s] = true;
    }
    build->may_recur = build->may_recur || !exact;
    return exact;
}

void jit_sizes_choose(jit_build *build, const graph *g, int64_t *values, bool learn, int64_t *bound_to) {
    dlc_program *program = build->program;
    bool *added = LIB_NEW_ARRAY(build->work, bool, g->symbols.count + 1);
    if (learn) {
        build->added = added;
        build->sizes = values;
    }
    lib_mutex_lock(&program->mutex);
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        bool exact = values[s] <= 1 || (!g->symbols.data[s].varies && is_exact(build, s, values[s], learn));
        bound_to[s] = exact && !(build->tier & JIT_TIER_GENERIC) ? values[s] : INT64_MIN;
        build->differs = build->differs || (exact && build->tier & JIT_TIER_GENERIC);
    }
    lib_mutex_unlock(&program->mutex);
}

void jit_sizes_undo(const jit_build *build) {
    dlc_program *program = build->program;
    if (!build->added) return;
    lib_mutex_lock(&program->mutex);
    for (uint32_t s = 0; s < program->graph->symbols.count; s++) {
        jit_sizes *sizes = &program->sizes[s];
        int at = 0;
        if (!build->added[s]) continue;
        while (sizes->exact[at] != build->sizes[s]) at++;
        sizes->exact[at] = sizes->exact[--sizes->exact_count];
    }
    lib_mutex_unlock(&program->mutex);
}

int jit_sizes_interim(const jit_build *build) {
    return build->differs ? JIT_ASKED : build->may_recur ? JIT_ASKED + RECURS : 0;
}
