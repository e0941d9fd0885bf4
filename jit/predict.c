/* Fusion's queries about doubtful joins (graph/fuse.h), answered by the target's rules, lowering and cost model. Answers depend
 * only on the computation and the machine, never on the context's threads, nor on sizes that are parameters: otherwise results
 * would depend on them, since a joined kernel may round differently from separate ones. Decisions are kept in the context and,
 * with `cache_directory`, in files (disk.c), so that a process that starts with a warm cache predicts nothing. */
#include "jit/disk.h"

#include <math.h>

enum { SEVERAL = 8 }; /* thread count, in addition to 1, on which a joined kernel must not be slower than its parts */

/* ---- predictions */

/* The assumed size of a symbol that stays a parameter: the logarithmic middle of its range, whose steps are 1 Ki, 16 Ki, ... (bind.c). */
static int64_t usual_size(const tir_variable *variable) {
    enum { FIRST = 1024, USUAL = 32, STEP_ROOT = 4 };
    int64_t size = variable->high <= FIRST ? USUAL : variable->high / STEP_ROOT;
    if (size > variable->high) size = variable->high;
    if (size < variable->low) size = variable->low;
    size -= size % variable->multiple;
    return size > 0 ? size : variable->multiple;
}

static int64_t *usual_sizes(lib_arena *arena, const tir_region *region) {
    int64_t *sizes = LIB_NEW_ARRAY(arena, int64_t, region->params.count + 1);
    for (uint32_t p = 0; p < region->params.count; p++)
        sizes[p] = usual_size(tir_variable_of(region->pool, region->params.data[p]));
    return sizes;
}

/* Bytes of a value at the assumed sizes of its graph's symbols. */
static double usual_bytes(jit_build *build, graph_id value) {
    const graph *g = build->bound;
    const graph_shape *shape = graph_shape_of(g, value);
    uint64_t *sizes = LIB_NEW_ARRAY(build->work, uint64_t, g->pool->variables.count + 1);
    const tir_evaluator evaluator = {.variables = sizes};
    for (uint32_t v = 0; v < g->pool->variables.count; v++)
        if (g->pool->variables.data[v].kind == TIR_VAR_PARAM)
            sizes[v] = (uint64_t)usual_size(&g->pool->variables.data[v]);
    double bytes = (double)lib_dtype_size(shape->dtype);
    for (int d = 0; d < shape->rank; d++) bytes *= (double)(int64_t)tir_evaluate(g->pool, shape->dim[d], &evaluator);
    return bytes;
}

static bool holds(const graph_id *values, uint32_t count, graph_id value) {
    for (uint32_t i = 0; i < count; i++)
        if (values[i] == value) return true;
    return false;
}

/* Bytes of those of the values that `region` neither reads nor writes. */
static double bytes_outside(jit_build *build, const graph_id *values, uint32_t count, const graph_region *region) {
    double bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!holds(region->inputs, region->input_count, values[i]) &&
            !holds(region->outputs, region->output_count, values[i]))
            bytes += usual_bytes(build, values[i]);
    return bytes;
}

/* The region's computation, in build->passing if there is one, which the next call resets. */
static tir_region *build_region(jit_build *build, const graph_region *region, lib_arena **arena) {
    *arena = build->passing ? build->passing : build->work;
    if (build->passing) lib_arena_reset(build->passing);
    tir_region *out = graph_region_build(*arena, build->bound, region, jit_is_constant, build);
    out->excess_precision = !build->program->options.no_excess_precision;
    return out;
}

/* Predicted time on `threads` threads of the kernel that the rules schedule for that many; INFINITY: the rules' schedule cannot
 * be lowered. */
static double predict_on(jit_build *build, const graph_region *asked, const graph_region *whole, int threads) {
    const dlc_context *context = build->program->context;
    const tir_lower_options options = {.machine = &context->machine};
    lib_arena *arena;
    lib_error error;
    tir_region *region = build_region(build, asked, &arena), *rewritten;
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    tir_kernel *kernel =
        jit_lower_by_rules(context->target, threads, arena, region, &rewritten, &schedule, &options, &error);
    if (!kernel && lib_is_circumstance(error.status)) lib_raise_error(arena->scope, &error);
    if (!kernel) return INFINITY;
    target_cost cost = {.threads = threads};
    target_work work = {.params = usual_sizes(arena, region)};
    if (whole) {
        work.beside = bytes_outside(build, whole->inputs, whole->input_count, asked) +
                      bytes_outside(build, whole->outputs, whole->output_count, asked);
        work.handed = bytes_outside(build, asked->inputs, asked->input_count, whole);
    }
    context->target->cost(context->device, arena, kernel, &work, 1, &cost);
    return cost.cycles;
}

static bool predict(void *user, const graph_region *asked, const graph_region *whole,
                    double cycles[GRAPH_FUSE_WIDTHS]) {
    const int threads[GRAPH_FUSE_WIDTHS] = {1, SEVERAL};
    jit_build *build = user;
    atomic_fetch_add_explicit(&build->program->context->predictions, 1, memory_order_relaxed);
    for (int w = 0; w < GRAPH_FUSE_WIDTHS; w++) cycles[w] = predict_on(build, asked, whole, threads[w]);
    if (lib_environment_lists(LIB_ENV_DEBUG, "fuse"))
        lib_log_write(&build->program->context->log, "dlc: fusion: %s: %.0f cycles, %.0f on %d threads", asked->name,
                      cycles[0], cycles[1], SEVERAL);
    return true;
}

/* ---- decisions */

static lib_hash128 identify(void *user, const graph_region *region, lib_hash128 joins) {
    jit_build *build = user;
    const dlc_context *context = build->program->context;
    lib_arena *arena;
    const struct {
        lib_hash128 computation, machine;
        uint64_t options;
    } asked = {tir_region_hash(build_region(build, region, &arena)), context->machine_hash,
               !build->program->options.no_excess_precision};
    return lib_hash_bytes(&asked, sizeof asked, joins);
}

/* If memory is refused, the decision is recomputed next time. */
static void keep(dlc_context *context, const lib_hash128 *question, uint32_t undone) {
    jit_decisions *decisions = &context->decisions;
    lib_mutex_lock(&decisions->mutex);
    if (!decisions->table)
        decisions->table = lib_allocate_zeroed(&context->allocator, JIT_DECISIONS * sizeof *decisions->table, 64);
    if (decisions->table) decisions->table[question->low % JIT_DECISIONS] = (jit_decision){*question, undone};
    lib_mutex_unlock(&decisions->mutex);
}

static bool recall(void *user, const lib_hash128 *question, uint32_t *undone) {
    dlc_context *context = ((jit_build *)user)->program->context;
    jit_decisions *decisions = &context->decisions;
    bool found = false;
    lib_mutex_lock(&decisions->mutex);
    if (decisions->table) {
        const jit_decision *decision = &decisions->table[question->low % JIT_DECISIONS];
        found = memcmp(&decision->question, question, sizeof *question) == 0;
        *undone = decision->undone;
    }
    lib_mutex_unlock(&decisions->mutex);
    if (found || !jit_disk_is_on(context) || !jit_disk_recall(context, question, undone)) return found;
    keep(context, question, *undone);
    return true;
}

static void record(void *user, const lib_hash128 *question, uint32_t undone) {
    dlc_context *context = ((jit_build *)user)->program->context;
    keep(context, question, undone);
    if (jit_disk_is_on(context)) jit_disk_record(context, question, undone);
}

graph_fuse_costs jit_fuse_costs(jit_build *build) {
    const target *by = build->program->context->target;
    if (!by->cost || !by->schedule || lib_environment_lists(LIB_ENV_DISABLE, "rules"))
        return (graph_fuse_costs){.predict = NULL};
    return (graph_fuse_costs){
        .predict = predict, .identify = identify, .recall = recall, .record = record, .user = build};
}

void jit_decisions_open(dlc_context *context) {
    lib_mutex_init(&context->decisions.mutex);
}

void jit_decisions_close(dlc_context *context) {
    jit_decisions *decisions = &context->decisions;
    if (decisions->table)
        lib_release(&context->allocator, decisions->table, JIT_DECISIONS * sizeof *decisions->table, 64);
    lib_mutex_destroy(&decisions->mutex);
}
