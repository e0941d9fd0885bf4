/* Maps: a thread for each point of a result, or for a vector of neighbours; if a map reads across the axis that it writes along, tiles
 * that go through shared memory. */
#include "targets/cuda/rules.h"

/* ---- points */

/* Number of elements along the last axis that a thread of the map processes at once: loads and stores are contiguous there, or do not
 * depend on the axis. */
static int64_t vector_of(cuda_rules *r, int s) {
    enum { ANY = 1 << 10 }; /* the emitter guards the end of a single axis */
    const tir_stage *stage = &r->region->stages.data[s];
    const int last = stage->space - 1;
    const int64_t extent = cuda_extent(r, &stage->axis[last]);
    cuda_vector vector = CUDA_NO_VECTOR;
    tir_access access[CUDA_ACCESSES], store;
    int count = tir_accesses(r->region, s, access, CUDA_ACCESSES);
    if (stage->kind != TIR_MAP || stage->count != 1 || count == CUDA_ACCESSES || extent < 0) return 1;
    for (uint32_t i = 0; i < r->inside.count; i++)
        if (cuda_is_stage(r, s, r->inside.data[i].root)) return 1;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[last] != 0 && access[i].stride[last] != 1) return 1;
        cuda_note_vector(r, &access[i], last, &vector);
    }
    tir_store_access(r->region, s, &store);
    if (store.stride[last] != 1) return 1;
    cuda_note_vector(r, &store, last, &vector);
    const int64_t most = cuda_vector_of(&vector, last == 0 && extent >= ANY ? ANY : extent);
    return tir_choose_power(r->schedule, stage->name, "vector", 1, most, most);
}

static void schedule_inside(cuda_rules *r, const char *root) {
    enum { UNROLLED = 64 };
    for (uint32_t i = 0; i < r->inside.count; i++) {
        const char *inside = r->inside.data[i].stage;
        if (!cuda_is_stage(r, cuda_stage_named(r, root), r->inside.data[i].root)) continue;
        tir_schedule_add(r->schedule, "at %s %s.lane", inside, root);
        tir_schedule_add(r->schedule, "store %s reg", inside);
        const tir_stage *sum = cuda_stage_of(r, inside);
        const tir_axis *axis = &sum->axis[sum->space];
        const int64_t extent = sum->reduce > 0 ? cuda_extent(r, axis) : -1;
        if (extent >= 0 && extent <= UNROLLED) tir_schedule_add(r->schedule, "unroll %s.%s", inside, axis->name);
    }
}

void cuda_schedule_points(cuda_rules *r, int s) {
    enum { BLOCK = 256 };
    const tir_stage *stage = &r->region->stages.data[s];
    const char *axis[TIR_MAX_AXES], *name = stage->name, *vector_loop = "";
    int count = 0;
    bool constant = true, whole = true;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++) {
        if (!tir_is_parallel(stage, a)) {
            whole = false; /* fused axes must be contiguous */
            continue;
        }
        constant = constant && cuda_extent(r, &stage->axis[a]) >= 0;
        axis[count++] = stage->axis[a].name;
    }
    cuda_mark_done(r, name);
    if (count == 0) return;
    const char *last = axis[count - 1];
    const int64_t vector = whole ? vector_of(r, s) : 1;
    if (constant && whole) {
        last = tir_fuse_axes(r->schedule, stage, 0, stage->space - 1);
        count = 1;
    }
    if (vector > 1) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> run v mask", name, last, (long long)vector);
        last = "run";
        vector_loop = " v";
    }
    tir_schedule_add(r->schedule, "split %s.%s %d -> block lane mask", name, last, BLOCK);
    if (!whole) {
        for (int a = 0; a + 1 < count; a++) lib_text_format(&order, " %s", axis[a]);
        lib_text_format(&order, " block lane%s", vector_loop);
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (a >= stage->space || !tir_is_parallel(stage, a)) lib_text_format(&order, " %s", stage->axis[a].name);
        tir_schedule_add(r->schedule, "order %s:%s", name, order.data);
    }
    for (int a = 0; a + 1 < count; a++) tir_schedule_add(r->schedule, "par %s.%s", name, axis[a]);
    tir_schedule_add(r->schedule, "par %s.block", name);
    tir_schedule_add(r->schedule, "thread %s.lane", name);
    if (vector > 1) tir_schedule_add(r->schedule, "vec %s.v", name);
    schedule_inside(r, name);
}

/* Prepares a reduction that no other rule handles: a thread for each result, which is stored once. */
void cuda_prepare_points(cuda_rules *r, const char *name) {
    const tir_stage *stage = cuda_stage_of(r, name);
    if (stage->kind != TIR_REDUCE || stage->space == 0) return;
    const char *root = cuda_copy_root(r, name), *whole = name;
    if (cuda_is_stage(r, cuda_stage_named(r, name), root)) {
        if (!stage->merge[0]) return;
        whole = cuda_fresh_name(r, name, "total");
        cuda_rewrite(r, "rfactor %s.%s 1 chunks -> %s one w", name, stage->axis[stage->space].name, whole);
    } else {
        lib_vec_push(r->arena, &r->roots, root);
    }
    cuda_inside inside = {whole, root};
    lib_vec_push(r->arena, &r->inside, inside);
}

/* ---- transpositions */

/* Sets *t if the source is contiguous along an axis of the map other than the last. False: it is not, or an axis is too short for tiles. What
 * the region has computed itself is near: a tile of it pays if warps fill its rows, since those that span two rows meet in banks. */
static bool find_transposition(cuda_rules *r, int s, const tir_access *access, cuda_transposition *t) {
    enum { LEAST = 8 /* least number of points along both axes for which a tile of an input pays */ };
    const tir_stage *stage = &r->region->stages.data[s];
    const tir_tensor *tensor = &r->region->tensors.data[access->tensor];
    const int last = stage->space - 1;
    const int64_t least = tensor->stage < 0 ? LEAST : TIR_WARP;
    t->across = tir_contiguous_axis(r->region, stage, access, last);
    if (access->stride[last] <= 1 || access->stride[last] == TIR_IRREGULAR || t->across < 0) return false;
    if (cuda_extent(r, &stage->axis[last]) < least || cuda_extent(r, &stage->axis[t->across]) < least) return false;
    if (tensor->output || tir_get(r->region->pool, access->load)->guarded ||
        tir_loads_of(r->region, s, access->tensor) > 1 || tir_is_read_by_others(r->region, s, access->tensor))
        return false;
    t->row = tir_sole_dimension(r->region, access, stage->axis[last].var);
    t->column = tir_sole_dimension(r->region, access, stage->axis[t->across].var);
    t->size = (int64_t)lib_dtype_size(tensor->dtype);
    return t->row >= 0 && t->column == tensor->rank - 1;
}

bool cuda_prepare_transposition(cuda_rules *r, const char *name) {
    const int s = cuda_stage_named(r, name);
    const tir_stage *stage = &r->region->stages.data[s];
    cuda_transposition t = {.root = name};
    tir_access access[CUDA_ACCESSES], store;
    int count = tir_accesses(r->region, s, access, CUDA_ACCESSES);
    if (stage->kind != TIR_MAP || stage->count != 1 || stage->space < 2 || count == CUDA_ACCESSES) return false;
    tir_store_access(r->region, s, &store);
    for (int a = 0; a < stage->space; a++)
        if (cuda_extent(r, &stage->axis[a]) < 0) return false;
    if (store.stride[stage->space - 1] != 1) return false;
    for (int i = 0; i < count; i++) {
        if (!find_transposition(r, s, &access[i], &t)) continue;
        if (!tir_choose_yes(r->schedule, name, "transposed", true)) return false;
        const char *source = r->region->tensors.data[access[i].tensor].name;
        t.vector = t.size < 4 ? 4 / t.size : 1;
        t.tile = cuda_fresh_name(r, source, "tile");
        cuda_rewrite(r, "copy %s -> %s", source, t.tile);
        cuda_mark_done(r, name);
        lib_vec_push(r->arena, &r->transpositions, t);
        return true;
    }
    return false;
}

/* Loops of one side of a tile: rows of threads along `slow`, neighbouring threads along `fast`; `outer`: loops around. */
static void threads_of_tile(cuda_rules *r, const cuda_transposition *t, const char *name, const char *slow,
                            const char *fast, const char *outer) {
    enum { ROWS = 8 };
    tir_schedule_add(r->schedule, "split %s.%s %d -> turn row mask", name, slow, ROWS);
    if (t->vector > 1) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> lane v mask", name, fast, (long long)t->vector);
        tir_schedule_add(r->schedule, "vec %s.v", name);
    }
    tir_schedule_add(r->schedule, "order %s:%s row %s turn%s", name, outer, t->vector > 1 ? "lane" : fast,
                     t->vector > 1 ? " v" : "");
    tir_schedule_add(r->schedule, "unroll %s.turn", name);
    tir_schedule_add(r->schedule, "thread %s.row %s.%s", name, name, t->vector > 1 ? "lane" : fast);
}

/* Schedules the tile and the root: both access whole lines of memory; the tile's rows are padded, so that a column is spread over all
 * banks. */
void cuda_schedule_transposition(cuda_rules *r, const cuda_transposition *t) {
    const tir_stage *root = cuda_stage_of(r, t->root), *tile = cuda_stage_of(r, t->tile);
    const int last = root->space - 1;
    const long long edge = TIR_WARP * (long long)t->vector;
    const char *outer = tir_loops_but(r->arena, root, tir_axis_bit(t->across) | tir_axis_bit(last));
    tir_schedule_add(r->schedule, "split %s.%s %lld -> down within mask", t->root, root->axis[t->across].name, edge);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> right along mask", t->root, root->axis[last].name, edge);
    threads_of_tile(r, t, t->root, "within", "along", lib_arena_format(r->arena, "%s down right", outer));
    for (int a = 0; a < last; a++)
        if (a != t->across) tir_schedule_add(r->schedule, "par %s.%s", t->root, root->axis[a].name);
    tir_schedule_add(r->schedule, "par %s.down %s.right", t->root, t->root);
    tir_schedule_add(r->schedule, "at %s %s.right", t->tile, t->root);
    tir_schedule_add(r->schedule, "store %s shared pad %lld", t->tile, (long long)t->size);
    threads_of_tile(r, t, t->tile, tile->axis[t->row].name, tile->axis[t->column].name,
                    tir_loops_but(r->arena, tile, tir_axis_bit(t->row) | tir_axis_bit(t->column)));
}
