/* Sweeps: contractions make matrices that several other contractions sum, some along rows and one along columns (in the derivatives of
 * attention, the matrices are weights and their derivatives, of queries times keys). The directive `sweep` (tir/schedule_sweep.c) makes one
 * fold of them: blocks of columns are processed one after the other, through all contractions, and matrices are stored for one block only. A
 * task is a point of the fold's free axes (a head). */
#include "targets/cpu/rules_tile.h"

enum {
    L2_SHARE = 2, /* the matrices of one block, with all their rows, take at most 1/L2_SHARE of L2 */
    POINTS_LEAST =
        32, /* least points of a block, even if its matrices exceed L2: the state is loaded and stored for each block */
    VECTORS_MOST = 8 /* most vectors of a block */
};

static const tir_stage *stage_of(const rules *r, int s) {
    return &r->region->stages.data[s];
}

static bool is_step(const rules *r, int s, int fold) {
    return !stage_of(r, s)->removed && stage_of(r, s)->fold == fold;
}

static bool is_contraction_step(const rules *r, int s, int fold) {
    return is_step(r, s, fold) && rules_is_contraction(r, s);
}

/* ---- tiles: a map and the contractions that it reads, in registers */

typedef struct sweep_tile {
    int map;
    /* axes of the map: of its rows (-1: none) and its vectors */
    int rows, wide;
    /* contractions that only it reads, point by point */
    int sums[TIR_MAX_AXES], count;
} sweep_tile;

/* The axis of contraction `sum` that the map's axis indexes where it reads it; -1: none. */
static int axis_in_sum(rules *r, int map, int sum, int axis) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, map, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        for (int d = 0; d < stage_of(r, sum)->space; d++)
            if (access[i].tensor == stage_of(r, sum)->tensor[0] &&
                tir_operand(r->region->pool, access[i].load, d) == stage_of(r, map)->axis[axis].var)
                return d;
    return -1;
}

static bool reads_point_by_point(rules *r, int map, int sum) {
    for (int a = 0; a < stage_of(r, map)->space; a++)
        if (rules_extent(r, &stage_of(r, map)->axis[a]) != 1 && axis_in_sum(r, map, sum, a) < 0) return false;
    return true;
}

/* May vectors of the contraction run along this axis: do its operands stay the same along it or lie side by side? */
static bool runs_along(rules *r, int sum, int axis) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, sum, access, RULES_ACCESSES);
    bool some = false;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[axis] != 0 && access[i].stride[axis] != 1) return false;
        some = some || access[i].stride[axis] == 1;
    }
    return some;
}

/* Finds the contractions in whose sums map `map`, a step, is computed, and the axes of their common tile. False: there is no such tile;
 * *t has none of them if the map reads none. */
static bool find_tile(rules *r, int map, int fold, sweep_tile *t) {
    const tir_stage *stage = stage_of(r, map);
    *t = (sweep_tile){.map = map, .rows = -1, .wide = -1};
    for (int s = 0; s < map; s++) {
        if (!is_contraction_step(r, s, fold) || !tir_reads(r->region, map, s)) continue;
        if (t->count == TIR_MAX_AXES || !reads_point_by_point(r, map, s)) return false;
        t->sums[t->count++] = s;
    }
    for (int a = stage->space - 1; a > stage_of(r, fold)->space && t->wide < 0 && t->count; a--) {
        bool all = rules_store_stride(r, map, a) == 1;
        for (int i = 0; i < t->count; i++) all = all && runs_along(r, t->sums[i], axis_in_sum(r, map, t->sums[i], a));
        if (all) t->wide = a;
    }
    for (int a = stage_of(r, fold)->space + 1; a < stage->space; a++)
        if (a != t->wide && rules_extent(r, &stage->axis[a]) != 1) t->rows = a; /* the last one */
    return !t->count || t->wide >= 0;
}

/* Can all steps be scheduled here: is each contraction read by one map, in whose tile it fits, and is each other step a map? */
static bool has_tiles(rules *r, int fold) {
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        sweep_tile t;
        int readers = 0;
        if (!is_step(r, s, fold)) continue;
        if (stage_of(r, s)->kind == TIR_MAP) {
            if (!find_tile(r, s, fold, &t)) return false;
            continue;
        }
        if (!rules_is_contraction(r, s)) return false;
        for (int q = s + 1; q < (int)r->region->stages.count; q++) {
            if (stage_of(r, q)->removed || !tir_reads(r->region, q, s)) continue;
            if (!is_step(r, q, fold) || stage_of(r, q)->kind != TIR_MAP) return false;
            readers++;
        }
        if (readers != 1) return false;
    }
    return true;
}

/* ---- blocks */

/* Bytes that one point of a block takes in the maps that contractions of other maps read, for all rows. */
static int64_t bytes_of_point(rules *r, int fold, int64_t block) {
    int64_t bytes = 0;
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        const tir_stage *stage = stage_of(r, s);
        sweep_tile t;
        if (!is_step(r, s, fold) || stage->kind != TIR_MAP || !find_tile(r, s, fold, &t) || !t.count) continue;
        int64_t points = (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
        for (int a = stage_of(r, fold)->space + 1; a < stage->space; a++)
            points *= rules_known_extent(r, &stage->axis[a]);
        bool read = false;
        for (int q = s + 1; q < (int)r->region->stages.count; q++)
            read = read || (is_contraction_step(r, q, fold) && tir_reads(r->region, q, s));
        if (read) bytes += points / block;
    }
    return bytes;
}

/* Points of a block: as many as L2 holds, in blocks of about equal lengths, of an even number of vectors (tiles have two, about). */
static int64_t points_of_block(rules *r, const char *sum, int64_t extent, int64_t lanes, int64_t bytes) {
    const tir_numbers from = {lanes, VECTORS_MOST * lanes, lanes};
    const int64_t pair = 2 * lanes;
    int64_t block = r->machine->l2 / L2_SHARE / (bytes > 0 ? bytes : 1);
    if (block < POINTS_LEAST) block = POINTS_LEAST;
    if (block > VECTORS_MOST * lanes) block = VECTORS_MOST * lanes;
    if (extent > 0) {
        const int64_t count = (extent + block - 1) / block;
        block = (extent + count - 1) / count;
    }
    return tir_choose_number(r->schedule, sum, "keys", from, (block + pair - 1) / pair * pair);
}

/* The line that sweeps the contraction's sum by blocks of `block` points. */
static const char *sweep_line(const rules *r, int sum, int64_t block, const char *fold) {
    const tir_stage *stage = stage_of(r, sum);
    return lib_arena_format(r->arena, "sweep %s.%s %lld -> %s block", stage->name, stage->axis[stage->space].name,
                            (long long)block, fold);
}

/* Is the contraction swept by blocks of that size, with others that are computed for it, in tiles? *bytes: of a point of a block. */
static bool suits(const rules *r, const char *sum, int64_t block, int64_t *bytes) {
    rules trial = *r;
    tir_schedule unused;
    tir_schedule_init(&unused, r->arena);
    trial.schedule = &unused;
    trial.region = tir_region_copy(r->arena, r->region);
    rules_give_maps(&trial, sum);
    const char *name = rules_fresh_name(&trial, sum, "_fold");
    trial.region =
        tir_try_line(NULL, trial.region, "%s", sweep_line(&trial, rules_stage_named(&trial, sum), block, name));
    const int fold = trial.region ? rules_stage_named(&trial, name) : -1;
    if (fold < 0 || !has_tiles(&trial, fold)) return false;
    *bytes = bytes_of_point(&trial, fold, block);
    return *bytes > 0;
}

/* Number of stages that become steps if the contraction's sum is swept; 0: it cannot be. */
static int stages_swept(const rules *r, int sum) {
    const char *name = rules_fresh_name(r, stage_of(r, sum)->name, "_fold");
    rules trial = *r;
    int steps = 0;
    trial.region = tir_try_line(NULL, r->region, "%s", sweep_line(r, sum, 8, name));
    for (int s = 0; trial.region && s < (int)trial.region->stages.count; s++)
        steps += is_step(&trial, s, rules_stage_named(&trial, name));
    return steps;
}

/* Have contractions a matrix in common: does a map read two of them, or do two read the same map? (Else they are layers, one behind the
 * other.) */
static bool have_common_matrix(const rules *r) {
    for (int m = 0; m < (int)r->region->stages.count; m++) {
        int makers = 0, readers = 0;
        if (stage_of(r, m)->removed || stage_of(r, m)->kind != TIR_MAP) continue;
        for (int s = 0; s < (int)r->region->stages.count; s++) {
            if (stage_of(r, s)->removed || stage_of(r, s)->fold >= 0 || !rules_is_contraction(r, s)) continue;
            makers += tir_reads(r->region, m, s);
            readers += tir_reads(r->region, s, m);
        }
        if (makers > 1 || readers > 1) return true;
    }
    return false;
}

/* The contraction over whose sum most stages are swept; -1: there is none, or too few contractions (two are a chain). */
static int find_sum(const rules *r) {
    int contractions = 0, sum = -1, most = 0;
    for (int s = 0; s < (int)r->region->stages.count; s++)
        contractions += !stage_of(r, s)->removed && stage_of(r, s)->fold < 0 && rules_is_contraction(r, s);
    if (contractions < 3 || !have_common_matrix(r)) return -1;
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        const tir_stage *stage = stage_of(r, s);
        if (stage->removed || stage->fold >= 0 || stage->reduce != 1 || !rules_is_contraction(r, s)) continue;
        const int steps = stages_swept(r, s);
        if (steps > most) most = steps, sum = s;
    }
    return sum;
}

void rules_prepare_sweeps(rules *r) {
    int sum = r->chain ? -1 : find_sum(r);
    if (sum < 0) return;
    const char *name = stage_of(r, sum)->name;
    if (!tir_choose_yes(r->schedule, name, "sweep", true)) return;
    const int64_t lanes = rules_lanes(r, sum);
    int64_t bytes;
    if (!suits(r, name, lanes, &bytes)) return;
    rules_give_maps(r, name);
    sum = rules_stage_named(r, name);
    const int64_t extent = rules_extent(r, &stage_of(r, sum)->axis[stage_of(r, sum)->space]);
    const int64_t block = points_of_block(r, name, extent, lanes, bytes);
    r->sweep = rules_fresh_name(r, name, "_fold");
    rules_rewrite(r, "%s", sweep_line(r, sum, block, r->sweep));
}

bool rules_in_sweep(const rules *r, int s) {
    const int fold = r->sweep ? rules_stage_named(r, r->sweep) : -1;
    return fold >= 0 && (s == fold || stage_of(r, s)->fold == fold);
}

/* ---- loops */

/* Sums of many terms are cut into parts, as all long sums in register tiles are. */
static void cut_long_sum(rules *r, const tir_stage *stage) {
    const tir_axis *axis = &stage->axis[stage->space];
    const int64_t extent = rules_extent(r, axis);
    if (stage->exact || stage->reduce != 1 || (extent >= 0 && extent < 2 * RULES_SUM_PART)) return;
    tir_schedule_add(r->schedule, "partial %s.%s %d", stage->name, axis->name, RULES_SUM_PART);
}

static void attach_sum(rules *r, const sweep_tile *t, int sum, const char *loop) {
    const tir_stage *stage = stage_of(r, sum);
    const int rows = t->rows < 0 ? -1 : axis_in_sum(r, t->map, sum, t->rows);
    rules_attach_contraction(r, sum, stage_of(r, t->map)->name, loop, rows, axis_in_sum(r, t->map, sum, t->wide));
    cut_long_sum(r, stage);
    if (stage->predicate) return;
    const uint32_t axes = rules_skipped_axes(r, sum);
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (axes >> a & 1) tir_schedule_add(r->schedule, "skip %s.%s", stage->name, stage->axis[a].name);
}

/* Do stages behind the fold read it? Then its values are in memory. */
static bool is_kept(const rules *r, int s, int fold) {
    for (int q = s + 1; q < (int)r->region->stages.count; q++)
        if (!stage_of(r, q)->removed && !is_step(r, q, fold) && tir_reads(r->region, q, s)) return true;
    return tir_has_output(r->region, s);
}

static bool is_next(const rules *r, int s, int fold) {
    return tir_get(r->region->pool, stage_of(r, fold)->value[0])->bits == stage_of(r, s)->tensor[0];
}

/* Writes where a map with contractions is stored: in the fold's state, or in scratch if no stage behind the fold reads it. */
static void store_map(rules *r, int s, int fold) {
    const char *name = stage_of(r, s)->name;
    if (is_next(r, s, fold))
        tir_schedule_add(r->schedule, "store %s state", name);
    else if (!is_kept(r, s, fold))
        tir_schedule_add(r->schedule, "store %s local", name);
}

/* The map is computed in tiles of mr rows and some vectors, in which its contractions are summed in registers. */
static void tile_loops(rules *r, const sweep_tile *t, int fold) {
    const tir_stage *map = stage_of(r, t->map);
    tir_schedule *out = r->schedule;
    const int64_t lanes = rules_lanes(r, t->sums[0]), wide = rules_extent(r, &map->axis[t->wide]);
    const int64_t height = t->rows < 0 ? 1 : rules_extent(r, &map->axis[t->rows]);
    int64_t mr = 1, nv = 1;
    rules_fit_tile(r, height, wide < 0 ? -1 : (wide + lanes - 1) / lanes, t->count, &mr, &nv);
    const bool split_rows = t->rows >= 0, split = wide < 0 || wide > nv * lanes;
    const char *vectors = map->axis[t->wide].name, *loop = split ? "v_o" : "u_o";
    if (!split && !split_rows) loop = stage_of(r, fold)->axis[stage_of(r, fold)->space].name;
    store_map(r, t->map, fold);
    if (split_rows)
        tir_schedule_add(out, "split %s.%s %lld -> u_o u_i mask", map->name, map->axis[t->rows].name, (long long)mr);
    if (split) tir_schedule_add(out, "split %s.%s %lld -> v_o v_i mask", map->name, vectors, (long long)(nv * lanes));
    tir_schedule_add(out, "order %s:%s%s%s%s %s", map->name,
                     tir_loops_but(r->arena, map, tir_axis_bit(t->rows) | tir_axis_bit(t->wide)),
                     split_rows ? " u_o" : "", split ? " v_o" : "", split_rows ? " u_i" : "", split ? "v_i" : vectors);
    if (split_rows) tir_schedule_add(out, "unroll %s.u_i", map->name);
    tir_schedule_add(out, "vec %s.%s", map->name, split ? "v_i" : vectors);
    for (int i = 0; i < t->count; i++) attach_sum(r, t, t->sums[i], loop);
}

/* A map without contractions; a copy of an operand whose elements lie side by side along another axis than its own last one is transposed
 * in tiles of registers. */
static void map_loops(rules *r, int s, int fold) {
    const tir_stage *stage = stage_of(r, s);
    tir_schedule *out = r->schedule;
    const int last = stage->space - 1;
    const int64_t lanes = rules_lanes(r, s);
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    int along = -1;
    for (int a = 0; a < last && count == 1; a++)
        if (access[0].stride[a] == 1 && rules_extent(r, &stage->axis[a]) >= lanes) along = a;
    if (!is_kept(r, s, fold)) tir_schedule_add(out, "store %s local", stage->name);
    if (along < 0 || lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype) != 4) {
        if (last >= 0) tir_schedule_add(out, "vec %s.%s", stage->name, stage->axis[last].name);
        return;
    }
    rules_transposed_loops(r, s, last, along);
}

bool rules_swept(rules *r, int root) {
    if (!r->sweep || rules_stage_named(r, r->sweep) != root) return false;
    const tir_stage *fold = stage_of(r, root);
    lib_text parallel;
    lib_text_init(&parallel, r->arena);
    for (int a = 0; a < fold->space; a++) lib_text_format(&parallel, " %s.%s", fold->name, fold->axis[a].name);
    if (fold->space) tir_schedule_add(r->schedule, "par%s", parallel.data);
    for (int s = root + 1; s < (int)r->region->stages.count; s++) {
        sweep_tile t;
        if (!is_step(r, s, root) || stage_of(r, s)->kind != TIR_MAP || !find_tile(r, s, root, &t)) continue;
        if (t.count)
            tile_loops(r, &t, root);
        else
            map_loops(r, s, root);
    }
    return true;
}
