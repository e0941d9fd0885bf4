/* Reductions that are roots of their own. Few long rows take two phases: chunks in many blocks, then the chunks' results, both in fixed
 * order. If contiguous elements belong to different results, threads run along these: each has a vector of columns, and several rows of
 * threads share the reduction's points. */
#include "targets/cuda/rules.h"

/* ---- chunks */

/* The reduction axis that chunks are cut from: the first with at least `chunks` points, else the longest. */
static int chunked_axis(cuda_rules *r, const tir_stage *stage, int64_t chunks) {
    int best = -1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        int64_t extent = cuda_extent(r, &stage->axis[a]);
        if (extent >= chunks) return a;
        if (best < 0 || extent > cuda_extent(r, &stage->axis[best])) best = a;
    }
    return best;
}

/* `wished` chunks, or a few more, so that the length of a chunk is a multiple of a vector; `extent`: of the axis. */
static int64_t fitting_chunks(int64_t extent, int64_t wished) {
    enum { VECTOR = 16 };
    if (wished > extent) wished = extent;
    for (int64_t chunks = wished; chunks < 2 * wished && chunks <= extent; chunks++)
        if ((extent + chunks - 1) / chunks % VECTOR == 0) return chunks;
    return wished;
}

/* Stores the stage with its last axis outermost, so that columns stay contiguous in memory. */
static void layout_last_first(cuda_rules *r, const char *name) {
    const tir_stage *stage = cuda_stage_of(r, name);
    lib_text layout;
    lib_text_init(&layout, r->arena);
    lib_text_add(&layout, stage->axis[stage->space - 1].name);
    for (int a = 0; a + 1 < stage->space; a++) lib_text_format(&layout, ", %s", stage->axis[a].name);
    cuda_rewrite(r, "layout %s (%s)", cuda_tensor_name(r, name), layout.data);
}

/* Cuts reduction S into chunks, stage S_chunk, whose results S combines. Returns the name of S_chunk; NULL: S is not cut. */
static const char *cut_chunks(cuda_rules *r, const char *name, int64_t wished, bool columns) {
    const tir_stage *stage = cuda_stage_of(r, name);
    if (wished < 2) return NULL;
    const int axis = chunked_axis(r, stage, wished);
    const int64_t chunks = fitting_chunks(cuda_extent(r, &stage->axis[axis]), wished);
    const char *chunk = cuda_fresh_name(r, name, "chunk");
    if (chunks < 2 || stage->space == DLC_MAX_RANK) return NULL;
    cuda_rewrite(r, "rfactor %s.%s %lld chunks -> %s chunk within", name, stage->axis[axis].name, (long long)chunks,
                 chunk);
    if (columns) layout_last_first(r, chunk);
    return chunk;
}

/* ---- columns */

/* The axis of results along which the reduction's source is contiguous; -1: none. */
static int column_axis(cuda_rules *r, int s, cuda_vector *vector) {
    const tir_stage *stage = &r->region->stages.data[s];
    tir_access access[CUDA_ACCESSES], store;
    int64_t most = 0;
    int count = tir_accesses(r->region, s, access, CUDA_ACCESSES), best = -1;
    for (int a = 0; a < stage->space && count < CUDA_ACCESSES; a++) {
        int64_t contiguous = 0;
        for (int i = 0; i < count; i++)
            if (access[i].stride[a] == 1)
                contiguous += (int64_t)lib_dtype_size(r->region->tensors.data[access[i].tensor].dtype);
        if (contiguous <= most) continue;
        most = contiguous;
        best = a;
    }
    if (best < 0) return -1;
    *vector = CUDA_NO_VECTOR;
    for (int i = 0; i < count; i++) cuda_note_vector(r, &access[i], best, vector);
    tir_store_access(r->region, s, &store);
    cuda_note_vector(r, &store, best, vector);
    return best;
}

/* Layout of registers that neighbouring threads along the columns own, each a vector. */
static void layout_columns(cuda_rules *r, const cuda_column_group *g, const char *name) {
    const tir_stage *stage = cuda_stage_of(r, name);
    lib_text layout;
    lib_text_init(&layout, r->arena);
    if (g->vector == 1) return;
    for (int a = 0; a < stage->space; a++) {
        const char *axis = stage->axis[a].name, *comma = a ? ", " : "";
        if (a == g->axis)
            lib_text_format(&layout, "%s%s/%lld, %s%%%lld", comma, axis, (long long)g->vector, axis,
                            (long long)g->vector);
        else
            lib_text_format(&layout, "%s%s", comma, axis);
    }
    cuda_rewrite(r, "layout %s (%s)", cuda_tensor_name(r, name), layout.data);
}

/* Shares the points of the reduction among rows of threads: S_part has the sum of each row of threads, S_all is all these sums in shared
 * memory. */
static void share_points(cuda_rules *r, cuda_column_group *g, const char *name) {
    const tir_stage *stage = cuda_stage_of(r, name);
    const char *axis = stage->axis[chunked_axis(r, stage, g->groups)].name;
    g->part = cuda_fresh_name(r, name, "part");
    cuda_rewrite(r, "rfactor %s.%s %lld lanes -> %s share step", name, axis, (long long)g->groups, g->part);
    g->all = cuda_fresh_name(r, name, "all");
    if (stage->count == 1)
        cuda_rewrite(r, "copy %s -> %s", g->part, g->all);
    else
        cuda_rewrite(r, "rfactor %s.share %lld chunks -> %s share u", name, (long long)g->groups, g->all);
    layout_columns(r, g, g->part);
    layout_last_first(r, g->all);
}

static bool prepare_columns(cuda_rules *r, const char *name, bool cut, bool is_chunk) {
    cuda_column_group g = {.whole = name};
    cuda_vector vector;
    g.axis = column_axis(r, cuda_stage_named(r, name), &vector);
    if (g.axis < 0) return false;
    const tir_stage *stage = cuda_stage_of(r, name);
    g.columns = cuda_extent(r, &stage->axis[g.axis]);
    g.points = tir_points(r->region, stage, stage->space, stage->space + stage->reduce);
    g.rest = tir_points(r->region, stage, 0, stage->space);
    if (g.columns < 1 || g.rest < 1 || g.points < 1) return false;
    g.rest /= g.columns;
    g.size = vector.widest ? vector.widest : 4;
    g.vector = cuda_vector_of(&vector, g.columns);
    cuda_model_columns(r->machine, &g);
    if (cut) g.chunks = tir_choose_number(r->schedule, name, "chunks", (tir_numbers){1, g.points / 2, 1}, g.chunks);
    const char *chunk = cut ? cut_chunks(r, name, g.chunks, true) : NULL;
    if (chunk) return prepare_columns(r, name, false, false) && prepare_columns(r, chunk, false, true);
    g.root = cuda_copy_root(r, name);
    if (is_chunk && !cuda_is_stage(r, cuda_stage_named(r, name), g.root)) layout_last_first(r, g.root);
    cuda_mark_done(r, g.root);
    cuda_mark_done(r, name);
    if (g.groups > 1) share_points(r, &g, name);
    if (cuda_is_stage(r, cuda_stage_named(r, name),
                      g.root)) { /* a reduction of several values: each is stored once, at the end */
        stage = cuda_stage_of(r, name);
        g.whole = cuda_fresh_name(r, name, "total");
        cuda_rewrite(r, "rfactor %s.%s 1 chunks -> %s one w", name, stage->axis[stage->space].name, g.whole);
    }
    layout_columns(r, &g, g.whole);
    lib_vec_push(r->arena, &r->columns, g);
    return true;
}

bool cuda_prepare_columns(cuda_rules *r, const char *name, bool part) {
    return prepare_columns(r, name, false, part);
}

/* The loops of a stage: its other axes, `outer`, its columns, then its reduction axes, the last one in blocks of loads in flight, vectors last. */
static void order_columns(cuda_rules *r, const cuda_column_group *g, const char *name, const char *outer) {
    enum { FLIGHT = 4 };
    const tir_stage *stage = cuda_stage_of(r, name);
    const char *columns = stage->axis[g->axis].name;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != g->axis) lib_text_format(&order, " %s", stage->axis[a].name);
    lib_text_format(&order, "%s %s", outer, g->vector > 1 ? "lane" : columns);
    if (g->vector > 1) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> lane v mask", name, columns, (long long)g->vector);
        tir_schedule_add(r->schedule, "vec %s.v", name);
    }
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        const char *axis = stage->axis[a].name;
        const int64_t extent = cuda_extent(r, &stage->axis[a]);
        const bool last = a + 1 == stage->space + stage->reduce;
        if (last && extent > FLIGHT) { /* several loads in flight at once */
            tir_schedule_add(r->schedule, "split %s.%s %d -> turn some mask", name, axis, FLIGHT);
            tir_schedule_add(r->schedule, "unroll %s.some", name);
            tir_schedule_add(r->schedule, "clip %s.turn", name); /* guards at the end only */
            axis = "turn some";
        } else if (last) {
            tir_schedule_add(r->schedule, "unroll %s.%s", name, axis);
        }
        lib_text_format(&order, " %s", axis);
    }
    tir_schedule_add(r->schedule, "order %s:%s%s", name, order.data, g->vector > 1 ? " v" : "");
    tir_schedule_add(r->schedule, "thread %s.%s", name, g->vector > 1 ? "lane" : columns);
}

void cuda_schedule_columns(cuda_rules *r, const cuda_column_group *g) {
    const tir_stage *root = cuda_stage_of(r, g->root);
    const char *lane = "lane";
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < root->space; a++)
        if (a != g->axis) lib_text_format(&order, " %s", root->axis[a].name);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> tile %s mask", g->root, root->axis[g->axis].name,
                     (long long)(g->lanes * g->vector), g->vector > 1 ? "within" : "lane");
    if (g->vector > 1) {
        tir_schedule_add(r->schedule, "split %s.within %lld -> lane v mask", g->root, (long long)g->vector);
        tir_schedule_add(r->schedule, "vec %s.v", g->root);
        lane = "lane v";
    }
    lib_text_format(&order, " tile %s", lane);
    for (int a = root->space; a < root->space + root->reduce; a++) lib_text_format(&order, " %s", root->axis[a].name);
    tir_schedule_add(r->schedule, "order %s:%s", g->root, order.data);
    for (int a = 0; a < root->space; a++)
        if (a != g->axis) tir_schedule_add(r->schedule, "par %s.%s", g->root, root->axis[a].name);
    tir_schedule_add(r->schedule, "par %s.tile", g->root);
    tir_schedule_add(r->schedule, "thread %s.lane", g->root);
    tir_schedule_add(r->schedule, "at %s %s.tile", g->whole, g->root);
    tir_schedule_add(r->schedule, "store %s reg", g->whole);
    order_columns(r, g, g->whole, "");
    if (g->groups == 1) return;
    tir_schedule_add(r->schedule, "at %s %s.tile", g->all, g->root);
    tir_schedule_add(r->schedule, "store %s shared", g->all);
    order_columns(r, g, g->all, "");
    tir_schedule_add(r->schedule, "thread %s.share", g->all);
    tir_schedule_add(r->schedule, "at %s %s.tile", g->part, g->root);
    tir_schedule_add(r->schedule, "store %s reg", g->part);
    order_columns(r, g, g->part, "");
    tir_schedule_add(r->schedule, "thread %s.share", g->part);
}

/* ---- whole roots */

/* Gives a reduction to one number an axis of one point, that is, a single row. */
static const char *make_row(cuda_rules *r, const char *name) {
    const tir_stage *stage = cuda_stage_of(r, name);
    const char *row = cuda_fresh_name(r, name, "row");
    if (stage->space > 0) return name;
    cuda_rewrite(r, "rfactor %s.%s 1 chunks -> %s whole within", name, stage->axis[0].name, row);
    return row;
}

bool cuda_prepare_reduction(cuda_rules *r, const char *name) {
    const int s = cuda_stage_named(r, name), lane = cuda_lane_axis(r, s);
    const tir_stage *stage = &r->region->stages.data[s];
    cuda_vector vector;
    if (stage->kind != TIR_REDUCE || !stage->merge[0]) return false;
    const int64_t rows = tir_points(r->region, stage, 0, stage->space),
                  points = tir_points(r->region, stage, stage->space, stage->space + stage->reduce);
    if (rows < 1 || points < 2) return false;
    if (lane < 0 && column_axis(r, s, &vector) >= 0) return prepare_columns(r, name, true, false);
    if (lane < 0) return false;
    const int64_t by_rule = cuda_model_chunks(r->machine, rows, points, cuda_extent(r, &stage->axis[lane]));
    const int64_t wished = tir_choose_number(r->schedule, name, "chunks", (tir_numbers){1, points / 2, 1}, by_rule);
    const char *chunk = cut_chunks(r, name, wished, false);
    if (chunk && !cuda_prepare_rows(r, chunk)) lib_vec_push(r->arena, &r->roots, chunk);
    return cuda_prepare_rows(r, make_row(r, name));
}
