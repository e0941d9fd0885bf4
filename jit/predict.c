/* Fusion's queries about doubtful joins (graph/fuse.h), answered by the target's rules, lowering and cost model. Answers depend
 * only on the computation and the machine, never on the context's threads, nor on sizes that are parameters: otherwise results
 * would depend on them, since a joined kernel may round differently from separate ones. Decisions are kept in the context and,
 * with `cache_directory`, in files (disk.c), so that a process that starts with a warm cache predicts nothing. */
#include "jit/disk.h"

#include <math.h>

enum { SEVERAL = 8 }; /* thread count, in addition to 1, on which a joined kernel must not be slower than its parts */

/* ---- predictions */

/* The assumed size of a symbol that stays a parameter: about the logarithmic middle of its range (bind.c). */
static int64_t usual_size(const tir_variable *variable) {
    enum { USUAL_SHORT = 8, USUAL = 32, STEP_ROOT = 4 };
    int64_t size = variable->high <= JIT_RANGE_SHORT   ? USUAL_SHORT
                   : variable->high <= JIT_RANGE_FIRST ? USUAL
                                                       : variable->high / STEP_ROOT;
    if (size > variable->high) size = variable->high;
    if (size < variable->low) size = variable->low;
    size -= size % variable->multiple;
    return size > 0 ? size : variable->multiple;
}

int64_t *jit_usual_sizes(lib_arena *arena, const tir_region *region) {
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

/* An empty arena for work on one region; the next call frees its contents. */
static lib_arena *empty_arena(jit_build *build) {
    if (build->passing) lib_arena_reset(build->passing);
    return build->passing ? build->passing : build->work;
}

/* Hash of the region's form. */
static lib_hash128 hash_of(jit_build *build, const graph_region *region) {
    tir_region *form = graph_region_form(empty_arena(build), build->bound, region, jit_is_constant, build);
    form->excess_precision = !build->program->options.no_excess_precision;
    return tir_region_hash(form);
}

/* A kernel by the target's rules; NULL: lowering rejects their schedule. */
typedef struct lowered {
    tir_schedule schedule;
    tir_kernel *kernel;
} lowered;

static bool same_schedule(const lowered *a, const lowered *b) {
    const lib_text *x = &a->schedule.text, *y = &b->schedule.text;
    return x->length == y->length && (x->length == 0 || memcmp(x->data, y->data, x->length) == 0);
}

/* The kernel for `threads` threads of a region with canonical names. `other`: for another number of threads, whose kernel is taken if
 * the rules write the same schedule; NULL: none. */
static void lower_for(const dlc_context *context, lib_arena *arena, const tir_region *region, int threads,
                      const lowered *other, lowered *out) {
    const tir_lower_options options = {.machine = &context->machine};
    const jit_rules rules = {context->target, context->device, threads};
    lib_scope *outer = arena->scope, scope;
    out->kernel = NULL;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        jit_schedule_by_rules(&rules, arena, region, NULL, &out->schedule, &options);
        bool same = other && same_schedule(other, out);
        out->kernel = same ? other->kernel : tir_lower(arena, region, &out->schedule, &options);
    }
    arena->scope = outer;
    if (lib_is_circumstance(scope.error.status)) lib_raise_error(outer, &scope.error);
}

enum { WIDTHS = GRAPH_FUSE_WIDTHS };
static const int widths[WIDTHS] = {1, SEVERAL}; /* numbers of threads */

/* Predicted times of the kernels that the rules schedule for these numbers of threads; INFINITY: none. */
static void predict_region(const dlc_context *context, lib_arena *arena, const tir_region *region,
                           const target_work *work, double cycles[WIDTHS]) {
    lowered by[WIDTHS];
    target_cost cost[WIDTHS];
    for (int w = 0; w < WIDTHS; w++) {
        cost[w] = (target_cost){.threads = widths[w], .cycles = INFINITY};
        lower_for(context, arena, region, widths[w], w > 0 ? &by[w - 1] : NULL, &by[w]);
    }
    for (int w = 0, count; w < WIDTHS; w += count) {
        for (count = 1; w + count < WIDTHS && by[w + count].kernel == by[w].kernel;) count++;
        if (by[w].kernel) context->target->cost(context->device, arena, by[w].kernel, work, count, &cost[w]);
    }
    for (int w = 0; w < WIDTHS; w++) cycles[w] = cost[w].cycles;
}

/* A prediction; `key`: the form of the computation and what surrounds it. */
typedef struct prediction {
    lib_hash128 key;
    double cycles[WIDTHS];
} prediction;

/* Of one graph, in build->work: networks repeat their blocks, whose parts are predicted once. */
typedef struct predictor {
    jit_build *build;
    /* by key: indices into `known` */
    lib_map map;
    lib_vec(prediction) known;
} predictor;

static const prediction *find_prediction(const predictor *p, const lib_hash128 *key) {
    for (uint32_t at = lib_map_first(&p->map, key->low); at != LIB_MAP_END; at = lib_map_next(&p->map, key->low, at)) {
        const prediction *known = &p->known.data[p->map.slots[at].value];
        if (memcmp(&known->key, key, sizeof *key) == 0) return known;
    }
    return NULL;
}

/* For `asked` as a part of `whole` (NULL: alone): `beside`, bytes that only whole's other parts read and write outside of `whole`;
 * `handed`, bytes that other parts compute for `asked`. */
static target_work work_within(jit_build *build, const graph_region *asked, const graph_region *whole) {
    target_work work = {.params = NULL};
    if (!whole) return work;
    work.beside = bytes_outside(build, whole->inputs, whole->input_count, asked) +
                  bytes_outside(build, whole->outputs, whole->output_count, asked);
    work.handed = bytes_outside(build, asked->inputs, asked->input_count, whole);
    return work;
}

static const prediction *make_prediction(predictor *p, const lib_hash128 *key, const graph_region *asked,
                                         target_work *work) {
    jit_build *build = p->build;
    dlc_context *context = build->program->context;
    lib_arena *arena = empty_arena(build);
    tir_region *region = graph_region_build(arena, build->bound, asked, jit_is_constant, build);
    prediction new = {.key = *key};
    region->excess_precision = !build->program->options.no_excess_precision;
    work->params = jit_usual_sizes(arena, region);
    atomic_fetch_add_explicit(&context->predictions, 1, memory_order_relaxed);
    predict_region(context, arena, tir_region_canonical(arena, region), work, new.cycles);
    lib_map_insert(build->work, &p->map, key->low, p->known.count);
    lib_vec_push(build->work, &p->known, new);
    return &p->known.data[p->known.count - 1];
}

static bool predict(void *user, const graph_region *asked, const graph_region *whole, double cycles[WIDTHS]) {
    predictor *p = user;
    jit_build *build = p->build;
    target_work work = work_within(build, asked, whole);
    const double around[] = {work.beside, work.handed};
    const lib_hash128 key = lib_hash_bytes(around, sizeof around, hash_of(build, asked));
    const prediction *known = find_prediction(p, &key);
    if (!known) known = make_prediction(p, &key, asked, &work);
    memcpy(cycles, known->cycles, sizeof known->cycles);
    if (lib_environment_lists(LIB_ENV_DEBUG, "fuse"))
        lib_log_write(&build->program->context->log, "dlc: fusion: %s: %.0f cycles, %.0f on %d threads", asked->name,
                      cycles[0], cycles[1], SEVERAL);
    return true;
}

/* ---- decisions */

static lib_hash128 identify(void *user, const graph_region *region, lib_hash128 joins) {
    jit_build *build = ((predictor *)user)->build;
    const dlc_context *context = build->program->context;
    const struct {
        lib_hash128 form, machine;
        uint64_t options;
    } asked = {hash_of(build, region), context->machine_hash, !build->program->options.no_excess_precision};
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
    dlc_context *context = ((predictor *)user)->build->program->context;
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
    dlc_context *context = ((predictor *)user)->build->program->context;
    keep(context, question, undone);
    if (jit_disk_is_on(context)) jit_disk_record(context, question, undone);
}

graph_fuse_costs jit_fuse_costs(jit_build *build) {
    const target *by = build->program->context->target;
    if (!by->cost || !by->schedule || lib_environment_lists(LIB_ENV_DISABLE, "rules"))
        return (graph_fuse_costs){.predict = NULL};
    predictor *p = LIB_NEW(build->work, predictor);
    p->build = build;
    return (graph_fuse_costs){.predict = predict, .identify = identify, .recall = recall, .record = record, .user = p};
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
