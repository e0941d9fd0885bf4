/* Rows: a root whose producers reduce along its rows, or that does so itself. `threads` threads work together on a row, each on vectors
 * of contiguous elements; partial results are combined in registers by shuffles, between warps through shared memory. Short rows: several
 * per warp. Values of a row that stages of the group read, or that the root needs, stay in registers if they fit. */
#include "targets/cuda/rules.h"

typedef cuda_row_group row_group;

/* Bytes of the elements that the access reads, each counted once. */
static double moved_by(const cuda_rules *r, const tir_stage *stage, const tir_access *access) {
    double bytes = (double)lib_dtype_size(r->region->tensors.data[access->tensor].dtype);
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        const int64_t extent = cuda_extent(r, &stage->axis[a]);
        if (access->stride[a] != 0 && extent > 1) bytes *= (double)extent;
    }
    return bytes;
}

int cuda_lane_axis(cuda_rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    tir_access access[CUDA_ACCESSES];
    int count = tir_accesses(r->region, s, access, CUDA_ACCESSES), best = -1;
    double most = -1;
    if (stage->kind != TIR_REDUCE || !stage->merge[0] || count == CUDA_ACCESSES) return -1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        double contiguous = 0, strided = 0;
        for (int i = 0; i < count; i++) {
            const double bytes = moved_by(r, stage, &access[i]);
            if (access[i].stride[a] == 1)
                contiguous += bytes;
            else if (access[i].stride[a] != 0)
                strided += bytes;
        }
        if (contiguous < strided || contiguous <= most || cuda_extent(r, &stage->axis[a]) < 2) continue;
        most = contiguous;
        best = a;
    }
    return most > 0 ? best : -1;
}

/* The axis of stage s along the row; -1: it has one point per row. */
static int row_axis(cuda_rules *r, const row_group *g, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->kind == TIR_REDUCE) return cuda_lane_axis(r, s);
    return stage->space > g->rows ? g->rows : -1;
}

/* Number of leading axes that number the rows, if the root reads reductions or is one; -1: it has no rows. */
static int row_axes(cuda_rules *r, int root) {
    const tir_stage *stage = &r->region->stages.data[root];
    tir_access access[CUDA_ACCESSES];
    if (cuda_lane_axis(r, root) >= 0) return stage->space;
    int count = tir_accesses(r->region, root, access, CUDA_ACCESSES), rows = -1;
    if (stage->kind != TIR_MAP || count == CUDA_ACCESSES) return -1;
    for (int i = 0; i < count; i++) {
        int producer = r->region->tensors.data[access[i].tensor].stage;
        if (producer < 0 || cuda_is_done(r, r->region->stages.data[producer].name)) continue;
        int space = r->region->stages.data[producer].space;
        if (space < rows || rows < 0) rows = space;
    }
    return rows;
}

static bool in_group(const cuda_rules *r, const row_group *g, int s) {
    bool found = cuda_is_stage(r, s, g->root);
    for (int m = 0; m < g->members && !found; m++) found = cuda_is_stage(r, s, g->member[m].name);
    return found;
}

/* ---- members of the group */

/* Does the reader load stage s only at the reader's own position along the row? */
static bool reads_own_place(cuda_rules *r, const row_group *g, int reader, int s) {
    tir_access access[CUDA_ACCESSES];
    int count = tir_accesses(r->region, reader, access, CUDA_ACCESSES), axis = row_axis(r, g, reader);
    for (int i = 0; i < count; i++) {
        if (r->region->tensors.data[access[i].tensor].stage != s) continue;
        if (axis < 0 ||
            tir_operand(r->region->pool, access[i].load, g->rows) != r->region->stages.data[reader].axis[axis].var)
            return false;
    }
    return true;
}

/* Is stage s a reduction along a row, or a map of one value? */
static bool is_of_row(cuda_rules *r, const row_group *g, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->kind == TIR_REDUCE) return stage->space == g->rows && cuda_lane_axis(r, s) >= 0;
    return stage->kind == TIR_MAP && stage->count == 1;
}

/* May stage s join the group: do all its readers run in the group, row by row, and read it at their own positions along the row? */
static bool joins(cuda_rules *r, const row_group *g, int s) {
    const tir_stage *stage = &r->region->stages.data[s], *root = cuda_stage_of(r, g->root);
    bool wanted = false;
    if (stage->space < g->rows || stage->space > g->rows + 1 || stage->fold >= 0) return false;
    if (!is_of_row(r, g, s)) return false;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        if (!tir_reads(r->region, q, s)) continue;
        if (!tir_reads_along(r->region, q, s, g->rows) || !in_group(r, g, q)) return false;
        if (stage->space > g->rows && !reads_own_place(r, g, q, s)) return false;
        wanted = true;
    }
    for (int a = 0; a < g->rows; a++)
        if (stage->axis[a].extent != root->axis[a].extent) return false;
    return wanted && !tir_has_output(r->region, s);
}

/* Adds stage s to the group. False: there is no room, or the length of its rows is unknown. */
static bool add_member(cuda_rules *r, row_group *g, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int axis = row_axis(r, g, s);
    int64_t length = axis < 0 ? 1 : cuda_extent(r, &stage->axis[axis]);
    if (length < 0 || g->members == CUDA_ROW_MEMBERS) return false;
    if (length > 1 && g->length > 1 && length != g->length) g->ragged = true;
    if (length > g->length) g->length = length;
    g->member[g->members++] = (cuda_row_member){
        .name = stage->name, .reduces = stage->kind == TIR_REDUCE, .along = stage->kind == TIR_MAP && axis >= 0};
    return true;
}

static bool find_group(cuda_rules *r, int root, row_group *g) {
    const tir_stage *stage = &r->region->stages.data[root];
    *g = (row_group){.root = stage->name, .rows = row_axes(r, root)};
    if (g->rows < 1 || cuda_is_done(r, stage->name) || stage->space > g->rows + 1) return false;
    g->count = tir_points(r->region, stage, 0, g->rows);
    if (g->count < 0) return false;
    if (stage->space > g->rows) g->length = cuda_extent(r, &stage->axis[g->rows]);
    if (g->length < 0) return false;
    bool any = false;
    for (int s = root; s >= 0; s--) {
        const tir_stage *member = &r->region->stages.data[s];
        if (s == root ? stage->kind != TIR_REDUCE : member->removed || !joins(r, g, s)) continue;
        if (cuda_is_done(r, member->name)) continue; /* it was scheduled already, as a phase of its own */
        if (!add_member(r, g, s)) return false;
        any = any || member->kind == TIR_REDUCE;
    }
    return any;
}

/* ---- vectors, and inputs of rows */

/* Adds the stage's accesses to memory along `axis` to *vector. */
static void note_vector(cuda_rules *r, const row_group *g, int s, int axis, bool stores, cuda_vector *vector) {
    const tir_stage *stage = &r->region->stages.data[s];
    tir_access access[CUDA_ACCESSES], store;
    int count = tir_accesses(r->region, s, access, CUDA_ACCESSES);
    for (int i = 0; i < count; i++) {
        int producer = r->region->tensors.data[access[i].tensor].stage;
        if (producer < 0 || !in_group(r, g, producer)) cuda_note_vector(r, &access[i], axis, vector);
    }
    tir_store_access(r->region, s, &store);
    for (int c = 0; c < stage->count && stores; c++) {
        store.tensor = stage->tensor[c];
        cuda_note_vector(r, &store, axis, vector);
    }
}

/* Sets the number of contiguous elements per thread, so that memory is accessed by vectors, and the widest element's size. */
static void find_vector(cuda_rules *r, row_group *g) {
    cuda_vector vector = CUDA_NO_VECTOR;
    for (int m = -1; m < g->members; m++) {
        const int s = cuda_stage_named(r, m < 0 ? g->root : g->member[m].name), axis = row_axis(r, g, s);
        if (axis < 0) continue;
        note_vector(r, g, s, axis, m < 0 && r->region->stages.data[s].kind == TIR_MAP, &vector);
    }
    g->vector = g->ragged ? 1 : cuda_vector_of(&vector, g->length);
    g->size = vector.widest ? vector.widest : 4;
}

/* Is the tensor read only by stages of the group, each at its own position of its own row? *readers: how many do. */
static bool is_read_by_rows(cuda_rules *r, const row_group *g, uint32_t tensor, int *readers) {
    const tir_pool *pool = r->region->pool;
    const int rank = r->region->tensors.data[tensor].rank;
    *readers = 0;
    if (rank != g->rows + 1) return false;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *stage = &r->region->stages.data[q];
        tir_access access[CUDA_ACCESSES];
        if (stage->removed) continue;
        int count = tir_accesses(r->region, q, access, CUDA_ACCESSES), axis = row_axis(r, g, q), found = 0;
        for (int i = 0; i < count; i++) {
            if (access[i].tensor != tensor) continue;
            found++;
            if (!in_group(r, g, q) || axis < 0 || tir_get(pool, access[i].load)->guarded) return false;
            for (int d = 0; d < rank; d++)
                if (tir_operand(pool, access[i].load, d) != stage->axis[d < g->rows ? d : axis].var) return false;
        }
        if (count == CUDA_ACCESSES || found > 1) return false;
        *readers += found;
    }
    return true;
}

/* Copies tensors that several stages read into registers, row by row, so that they are loaded once. */
static void copy_inputs(cuda_rules *r, row_group *g) {
    for (uint32_t t = 0; t < r->region->tensors.count; t++) {
        const tir_tensor *tensor = &r->region->tensors.data[t];
        int readers;
        if (tensor->output) continue; /* the copy would become the output */
        if (tensor->stage >= 0 && in_group(r, g, tensor->stage)) continue;
        if (tensor->stage >= 0 && r->region->stages.data[tensor->stage].removed) continue;
        if (!is_read_by_rows(r, g, t, &readers) || readers < 2 || g->members == CUDA_ROW_MEMBERS) continue;
        const char *name = cuda_fresh_name(r, tensor->name, "row");
        cuda_rewrite(r, "copy %s -> %s", tensor->name, name);
        g->member[g->members++] = (cuda_row_member){.name = name, .along = true};
    }
}

/* ---- rewrites */

/* Makes of reduction R: R_part, by each place of the threads' vectors; R_own, by each thread; the levels R_16, R_8, .. of a tree by halves
 * over up to 32 threads. With more threads the tree is within warps, R_all has the warps' results, and R combines these. */
static void rewrite_reduction(cuda_rules *r, const row_group *g, cuda_row_member *member) {
    const char *name = member->name;
    const tir_stage *stage = cuda_stage_of(r, name);
    const char *axis = stage->axis[cuda_lane_axis(r, cuda_stage_named(r, name))].name;
    member->part = cuda_fresh_name(r, name, "part");
    cuda_rewrite(r, "rfactor %s.%s %lld lanes -> %s place step", name, axis, (long long)(g->threads * g->vector),
                 member->part);
    if (g->vector > 1) {
        const tir_stage *part = cuda_stage_of(r, member->part);
        const char *others = tir_dimensions_but(r->arena, part, tir_axis_bit(part->space - 1));
        cuda_rewrite(r, "layout %s (%splace/%lld, place%%%lld)", cuda_tensor_name(r, member->part), others,
                     (long long)g->vector, (long long)g->vector);
    }
    member->own = cuda_fresh_name(r, name, "own");
    cuda_rewrite(r, "rfactor %s.place %lld chunks -> %s lane v", name, (long long)g->threads, member->own);
    axis = "lane";
    member->tree = name;
    if (g->threads > TIR_WARP) {
        member->warp = member->tree = cuda_fresh_name(r, name, "warp");
        member->all = cuda_fresh_name(r, name, "all");
        cuda_rewrite(r, "rfactor %s.lane %lld chunks -> %s warp l", name, (long long)(g->threads / TIR_WARP),
                     member->warp);
        if (cuda_stage_of(r, name)->count == 1)
            cuda_rewrite(r, "copy %s -> %s", member->warp, member->all);
        else /* one stage with all values of the reduction */
            cuda_rewrite(r, "rfactor %s.warp %lld chunks -> %s warp u", name, (long long)(g->threads / TIR_WARP),
                         member->all);
        axis = "warp";
    }
    if (cuda_is_stage(r, cuda_stage_named(r, name),
                      g->root)) { /* a reduction of several values: each is stored once, at the end */
        member->total = cuda_fresh_name(r, name, "total");
        cuda_rewrite(r, "rfactor %s.%s 1 chunks -> %s one w", name, axis, member->total);
        if (!member->warp) member->tree = member->total;
    }
    if (g->threads > 1) cuda_rewrite(r, "tree %s.%s", member->tree, member->warp ? "l" : member->total ? "w" : "lane");
}

/* The layout of a row in registers: each thread has its own vectors. */
static void rewrite_held(cuda_rules *r, const row_group *g, const char *name) {
    const tir_stage *stage = cuda_stage_of(r, name);
    const char *axis = stage->axis[g->rows].name, *rows = tir_dimensions_but(r->arena, stage, tir_axis_bit(g->rows));
    const long long threads = (long long)g->threads, vector = (long long)g->vector;
    if (threads > 1 && vector > 1)
        cuda_rewrite(r, "layout %s (%s%s/%lld, %s/%lld%%%lld, %s%%%lld)", name, rows, axis, threads * vector, axis,
                     vector, threads, axis, vector);
    else if (threads > 1)
        cuda_rewrite(r, "layout %s (%s%s/%lld, %s%%%lld)", name, rows, axis, threads, axis, threads);
}

static void rewrite_group(cuda_rules *r, row_group *g) {
    g->root = cuda_copy_root(r, g->root);
    for (int m = 0; m < g->members; m++) {
        cuda_row_member *member = &g->member[m];
        if (member->reduces) rewrite_reduction(r, g, member);
        if (!member->along) continue;
        if (g->held)
            rewrite_held(r, g, member->name);
        else
            cuda_rewrite(r, "inline %s", member->name); /* computed again where it is needed */
    }
}

bool cuda_prepare_rows(cuda_rules *r, const char *root) {
    row_group g;
    if (!find_group(r, cuda_stage_named(r, root), &g)) return false;
    find_vector(r, &g);
    /* A reduction was cut into chunks before, if that pays. */
    const bool alone = cuda_stage_of(r, root)->kind == TIR_REDUCE, pays = cuda_model_rows(r->machine, &g);
    if (!alone && !tir_choose_yes(r->schedule, root, "rows", pays)) return false;
    g.threads = tir_choose_power(r->schedule, root, "threads", 1, r->machine->block_threads, g.threads);
    cuda_set_row_threads(r->machine, &g);
    if (g.held) copy_inputs(r, &g);
    rewrite_group(r, &g);
    for (int m = 0; m < g.members; m++) cuda_mark_done(r, g.member[m].name);
    cuda_mark_done(r, g.root);
    lib_vec_push(r->arena, &r->rows, g);
    return true;
}

/* ---- loops */

/* Loops of a stage with points along the whole row: threads along the row, each with vectors. */
static void along_row(cuda_rules *r, const row_group *g, const tir_stage *stage) {
    enum { UNROLLED = 8 };
    const char *name = stage->name, *axis = stage->axis[g->rows].name;
    const int64_t turn = g->threads * g->vector;
    const bool turns = g->length > turn;
    if (turns) tir_schedule_add(r->schedule, "split %s.%s %lld -> turn rest mask", name, axis, (long long)turn);
    if (turns && (g->held || g->length <= UNROLLED * turn)) tir_schedule_add(r->schedule, "unroll %s.turn", name);
    if (turns) axis = "rest";
    if (g->vector > 1) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> lane v mask", name, axis, (long long)g->vector);
        tir_schedule_add(r->schedule, "vec %s.v", name);
        axis = "lane";
    }
    if (g->threads > 1) tir_schedule_add(r->schedule, "thread %s.%s", name, axis);
}

static void attach(cuda_rules *r, const char *stage, const char *root, const char *loop, const char *scope) {
    tir_schedule_add(r->schedule, "at %s %s.%s", stage, root, loop);
    tir_schedule_add(r->schedule, "store %s %s", stage, scope);
}

/* Loops of R_part: each thread reads vectors one after the other, with several loads in flight. */
static void schedule_part(cuda_rules *r, const row_group *g, const char *name) {
    enum { FLIGHT = 4 };
    const tir_stage *stage = cuda_stage_of(r, name);
    int64_t steps = 1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (stage->axis[a].role == TIR_AXIS_STEP) steps = cuda_extent(r, &stage->axis[a]);
    const char *lane = "place", *step = "step";
    lib_text order;
    if (g->vector > 1) {
        tir_schedule_add(r->schedule, "split %s.place %lld -> lane v mask", name, (long long)g->vector);
        tir_schedule_add(r->schedule, "vec %s.v", name);
        lane = "lane";
    }
    if (g->held || steps <= FLIGHT) {
        tir_schedule_add(r->schedule, "unroll %s.step", name);
    } else {
        tir_schedule_add(r->schedule, "split %s.step %d -> turn some mask", name, FLIGHT);
        tir_schedule_add(r->schedule, "unroll %s.some", name);
        tir_schedule_add(r->schedule, "clip %s.turn", name); /* only the last iteration has guards */
        step = "turn some";
    }
    lib_text_init(&order, r->arena);
    for (int a = 0; a + 1 < stage->space; a++) lib_text_format(&order, " %s", stage->axis[a].name);
    lib_text_format(&order, " %s", lane);
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        lib_text_format(&order, " %s", stage->axis[a].role == TIR_AXIS_STEP ? step : stage->axis[a].name);
    tir_schedule_add(r->schedule, "order %s:%s%s", name, order.data, g->vector > 1 ? " v" : "");
    if (g->threads > 1) tir_schedule_add(r->schedule, "thread %s.%s", name, lane);
}

/* Schedules the stages that rewrite_reduction made. */
static void schedule_reduction(cuda_rules *r, const row_group *g, const cuda_row_member *member, const char *root,
                               const char *loop) {
    const bool warps = g->threads > TIR_WARP;
    schedule_part(r, g, member->part);
    if (member->total) attach(r, member->total, root, loop, "reg");
    if (warps) { /* inside of a loop over warps */
        attach(r, member->all, root, loop, "shared");
        tir_schedule_add(r->schedule, "thread %s.warp", member->all);
        root = member->all, loop = "warp";
        attach(r, member->warp, root, loop, "reg");
    }
    attach(r, member->part, root, loop, "reg");
    attach(r, member->own, root, loop, "reg");
    tir_schedule_add(r->schedule, "unroll %s.v", member->own);
    if (g->threads > 1) tir_schedule_add(r->schedule, "thread %s.lane", member->own);
    const char *axis = member->warp ? "l" : member->total ? "w" : "lane";
    for (int64_t half = (warps ? TIR_WARP : g->threads) / 2; half >= 2; half /= 2) {
        const char *level = lib_arena_format(r->arena, "%s_%lld", member->tree, (long long)half);
        tir_schedule_add(r->schedule, "thread %s.%s", level, axis);
        attach(r, level, root, loop, "reg");
    }
}

void cuda_schedule_rows(cuda_rules *r, const row_group *g) {
    const tir_stage *root = cuda_stage_of(r, g->root);
    const char *row = g->rows ? root->axis[0].name : NULL, *loop;
    for (int a = 1; a < g->rows; a++) {
        const char *fused = lib_arena_format(r->arena, "row%d", a);
        tir_schedule_add(r->schedule, "fuse %s.%s %s.%s -> %s", g->root, row, g->root, root->axis[a].name, fused);
        row = fused;
    }
    if (g->block_rows > 1) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> block group mask", g->root, row, (long long)g->block_rows);
        tir_schedule_add(r->schedule, "par %s.block", g->root);
        tir_schedule_add(r->schedule, "thread %s.group", g->root);
        loop = "group";
    } else {
        tir_schedule_add(r->schedule, "par %s.%s", g->root, row);
        loop = row;
    }
    if (root->space > g->rows) along_row(r, g, root);
    for (int m = 0; m < g->members; m++) {
        const cuda_row_member *member = &g->member[m];
        if (member->reduces) schedule_reduction(r, g, member, g->root, loop);
        if (member->along && !g->held) continue;
        if (member->along) along_row(r, g, cuda_stage_of(r, member->name));
        if (!cuda_is_stage(r, cuda_stage_named(r, member->name), g->root))
            attach(r, member->name, g->root, loop, "reg");
    }
}
