/* Schedule rules of the cuda target: region -> schedule text, by analysis of accesses alone; no rule depends on operators. In order:
 *   inline   cheap maps go into their readers
 *   collapse axes that all accesses run straight through become one
 *   sort     merges of runs, those of up to 1,024 elements on chip
 *   chain    contraction, rows, contraction: a fold over blocks of keys
 *   tile     contractions: tiles of a block in shared memory, of a thread in registers
 *   window   short sums of overlapping neighbours: a thread has all that it reads in registers
 *   rows     a root with reductions of its rows: a warp or a block works on each row, which stays on chip
 *   points   the rest: a thread for each point, or for a vector of neighbours */
#include "targets/cuda/rules.h"
#include "targets/cuda/cuda.h"

#include <stdio.h>

void cuda_rewrite(cuda_rules *r, const char *format, ...) {
    lib_text line;
    va_list arguments;
    lib_text_init(&line, r->arena);
    va_start(arguments, format);
    lib_text_format_v(&line, format, arguments);
    va_end(arguments);
    tir_schedule one;
    tir_schedule_init(&one, r->arena);
    tir_schedule_add(&one, "%s", line.data);
    tir_schedule_rewrite(r->region, &one, NULL);
    tir_schedule_add(r->schedule, "%s", line.data);
}

int cuda_stage_named(const cuda_rules *r, const char *name) {
    return tir_region_find_stage(r->region, name);
}

int cuda_axis_of(const tir_stage *stage, int32_t id) {
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (stage->axis[a].id == id) return a;
    return -1;
}

int cuda_tile_axis_of(const cuda_tile *tile, int32_t id) {
    for (int a = 0; a < tile->count; a++)
        if (tile->axis[a].id == id) return a;
    return -1;
}

int64_t cuda_extent(const cuda_rules *r, const tir_axis *axis) {
    int64_t extent;
    return tir_is_const(r->region->pool, axis->extent, &extent) ? extent : -1;
}

const char *cuda_fresh_name(const cuda_rules *r, const char *base, const char *suffix) {
    return tir_region_fresh_name(r->arena, r->region, base, lib_arena_format(r->arena, "_%s", suffix));
}

bool cuda_is_done(const cuda_rules *r, const char *name) {
    const int stage = cuda_stage_named(r, name);
    for (uint32_t i = 0; i < r->done.count; i++)
        if (cuda_is_stage(r, stage, r->done.data[i])) return true;
    return stage < 0;
}

void cuda_mark_done(cuda_rules *r, const char *stage) {
    lib_vec_push(r->arena, &r->done, stage);
}

const char *cuda_tensor_name(const cuda_rules *r, const char *stage) {
    return r->region->tensors.data[r->region->stages.data[cuda_stage_named(r, stage)].tensor[0]].name;
}

const char *cuda_copy_root(cuda_rules *r, const char *root) {
    const tir_stage *stage = cuda_stage_of(r, root);
    const tir_tensor *needed = NULL;
    int count = 0;
    if (stage->kind != TIR_REDUCE) return root;
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *tensor = &r->region->tensors.data[stage->tensor[c]];
        bool used = tensor->output;
        for (int q = 0; q < (int)r->region->stages.count && !used; q++) {
            tir_access access[CUDA_ACCESSES];
            int loads = r->region->stages.data[q].removed ? 0 : tir_accesses(r->region, q, access, CUDA_ACCESSES);
            used = loads == CUDA_ACCESSES;
            for (int i = 0; i < loads; i++) used = used || access[i].tensor == stage->tensor[c];
        }
        count += used;
        if (used) needed = tensor;
    }
    if (count != 1) return root;
    const char *name = cuda_fresh_name(r, needed->name, "out");
    cuda_mark_done(r, root);
    cuda_rewrite(r, "copy %s -> %s", needed->name, name);
    return name;
}

bool cuda_reads_along(cuda_rules *r, int consumer, int producer, int axes, bool *reads) {
    const tir_stage *stage = &r->region->stages.data[consumer];
    tir_access access[CUDA_ACCESSES];
    int count = tir_accesses(r->region, consumer, access, CUDA_ACCESSES);
    *reads = false;
    if (count == CUDA_ACCESSES || stage->space < axes) return false;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (tensor->stage != producer) continue;
        *reads = true;
        if (tensor->rank < axes) return false;
        for (int d = 0; d < axes; d++)
            if (tir_operand(r->region->pool, access[i].load, d) != stage->axis[d].var) return false;
    }
    return true;
}

/* ---- inline */

typedef struct cost_count {
    int operations, heavy;
} cost_count;

static tir_expr count_cost(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    cost_count *count = user;
    const tir_node *node = tir_get(pool, e);
    if (node->dtype == TIR_INDEX || node->op == TIR_LOAD) return rebuilt;
    count->operations += node->count > 0;
    count->heavy += (tir_ops[node->op].flags & TIR_MATH) != 0 || node->op == TIR_DIV || node->op == TIR_SQRT;
    return rebuilt;
}

/* Points of a stage, those of its reduction included; -1: unknown. */
static int64_t points_of(const cuda_rules *r, const tir_stage *stage) {
    int64_t points = 1;
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        int64_t extent = cuda_extent(r, &stage->axis[a]);
        if (extent < 0 || __builtin_mul_overflow(points, extent, &points)) return -1;
    }
    return points;
}

/* The stages that load a map's tensor: what the decision to inline the map depends on. */
typedef struct readers {
    /* loads of all readers, of one reader */
    int loads, most;
    /* a reader has more points than the map; one is a fold or scatter, or a step of one */
    bool more, fold;
} readers;

static readers find_readers(cuda_rules *r, const tir_stage *stage) {
    readers found = {0};
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *reader = &r->region->stages.data[q];
        const int here = reader->removed ? 0 : tir_loads_of(r->region, q, stage->tensor[0]);
        if (!here) continue;
        found.loads += here;
        if (here > found.most) found.most = here;
        found.more = found.more || points_of(r, reader) < 0 || points_of(r, reader) > points_of(r, stage);
        found.fold = found.fold || reader->kind == TIR_FOLD || reader->kind == TIR_SCATTER || reader->fold >= 0;
    }
    return found;
}

/* Is stage s a map that could be inlined? */
static bool may_inline(cuda_rules *r, int s, readers *found) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->removed || stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0) return false;
    if (r->region->tensors.data[stage->tensor[0]].output) return false;
    *found = find_readers(r, stage);
    return !found->fold && found->loads > 0;
}

/* Is it to be inlined: is it read once by a stage that has no more points, or is it a few cheap operations? */
static bool worth_inlining(cuda_rules *r, int s, const readers *found) {
    enum { CHEAP = 4 };
    cost_count cost = {0};
    tir_rewrite(r->region->pool, r->region->stages.data[s].value[0], count_cost, &cost);
    if (found->most > 2) return false;
    return (!cost.heavy && cost.operations <= CHEAP && found->loads <= 4) || (found->loads == 1 && !found->more);
}

static void inline_maps(cuda_rules *r) {
    for (int s = (int)r->region->stages.count - 1; s >= 0; s--) {
        const char *name = r->region->stages.data[s].name;
        readers found;
        if (may_inline(r, s, &found) && tir_choose_yes(r->schedule, name, "inline", worth_inlining(r, s, &found)))
            cuda_rewrite(r, "inline %s", name);
    }
}

/* ---- all */

/* If the stage adds up pieces: records that it is computed inside the map that reads it. */
static bool goes_inside(cuda_rules *r, const char *name) {
    const int stage = cuda_stage_named(r, name);
    bool sum = false;
    for (uint32_t i = 0; i < r->sums.count; i++) sum = sum || cuda_is_stage(r, stage, r->sums.data[i]);
    const int reader = sum ? cuda_reader_of(r, stage) : -1;
    if (reader < 0) return false;
    cuda_inside inside = {name, r->region->stages.data[reader].name};
    lib_vec_push(r->arena, &r->inside, inside);
    return true;
}

static void prepare(cuda_rules *r, const char *root) {
    const int stage = cuda_stage_named(r, root);
    for (uint32_t i = 0; i < r->sums.count; i++)
        if (cuda_is_stage(r, stage, r->sums.data[i])) return;
    if (cuda_is_done(r, root) || cuda_prepare_reduction(r, root) || cuda_prepare_rows(r, root)) return;
    if (!cuda_prepare_scan(r, root) && !cuda_prepare_state(r, root) && !cuda_prepare_scatter(r, root) &&
        !cuda_prepare_transposition(r, root))
        cuda_prepare_points(r, root);
}

static bool has_empty_axis(const cuda_rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++)
        for (int a = 0; a < r->region->stages.data[s].space + r->region->stages.data[s].reduce; a++)
            if (cuda_extent(r, &r->region->stages.data[s].axis[a]) == 0) return true;
    return false;
}

/* The schedule of a region with an empty stage: a thread for each point of every other stage, since tiles and rows of size 0 are
 * undefined. */
static void schedule_plainly(cuda_rules *r) {
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        bool points = !stage->removed && stage->fold < 0 && stage->kind != TIR_SORT;
        for (int a = 0; a < stage->space; a++) points = points && cuda_extent(r, &stage->axis[a]) != 0;
        if (points) cuda_schedule_points(r, (int)s);
    }
}

void cuda_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    (void)threads;
    cuda_rules r = {.machine = machine, .region = region, .schedule = schedule, .arena = schedule->arena};
    if (has_empty_axis(&r)) {
        schedule_plainly(&r);
        return;
    }
    inline_maps(&r);
    cuda_rewrite(&r, "collapse");
    cuda_prepare_sorts(&r);
    for (uint32_t s = r.region->stages.count; s-- > 0;)
        if (s < r.region->stages.count && !cuda_is_done(&r, r.region->stages.data[s].name))
            cuda_prepare_chain(&r, (int)s);
    region = r.region;
    /* all rewrites precede all loops: roots choose their kind first, from the last one backward */
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed && region->stages.data[s].fold < 0)
            lib_vec_push(r.arena, &r.roots, region->stages.data[s].name);
    for (uint32_t n = r.roots.count; n-- > 0;)
        if (!cuda_is_done(&r, r.roots.data[n])) cuda_prepare_tile(&r, cuda_stage_named(&r, r.roots.data[n]));
    for (uint32_t n = r.roots.count; n-- > 0;)
        if (!cuda_is_done(&r, r.roots.data[n])) cuda_prepare_window(&r, r.roots.data[n]);
    for (uint32_t n = r.roots.count; n-- > 0;) prepare(&r, r.roots.data[n]);
    for (uint32_t n = 0; n < r.sorts.count; n++) cuda_schedule_sort(&r, &r.sorts.data[n]);
    for (uint32_t n = 0; n < r.chains.count; n++) cuda_schedule_chain(&r, &r.chains.data[n]);
    for (uint32_t t = 0; t < r.tiles.count; t++) cuda_schedule_tile(&r, &r.tiles.data[t]);
    for (uint32_t w = 0; w < r.windows.count; w++) cuda_schedule_window(&r, &r.windows.data[w]);
    for (uint32_t g = 0; g < r.rows.count; g++) cuda_schedule_rows(&r, &r.rows.data[g]);
    for (uint32_t g = 0; g < r.columns.count; g++) cuda_schedule_columns(&r, &r.columns.data[g]);
    for (uint32_t n = 0; n < r.scans.count; n++) cuda_schedule_scan(&r, &r.scans.data[n]);
    for (uint32_t n = 0; n < r.states.count; n++) cuda_schedule_state(&r, r.states.data[n]);
    for (uint32_t n = 0; n < r.scatters.count; n++) cuda_schedule_scatter(&r, &r.scatters.data[n]);
    for (uint32_t t = 0; t < r.transpositions.count; t++) cuda_schedule_transposition(&r, &r.transpositions.data[t]);
    for (uint32_t n = 0; n < r.roots.count; n++)
        if (!cuda_is_done(&r, r.roots.data[n]) && !goes_inside(&r, r.roots.data[n]))
            cuda_schedule_points(&r, cuda_stage_named(&r, r.roots.data[n]));
}
