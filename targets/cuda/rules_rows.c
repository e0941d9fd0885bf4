/* Rows: a root whose producers reduce along its rows. Threads work side by side on a row, a warp or a whole block; partial results are
 * combined in registers by shuffles, and between warps through shared memory. What the root needs of the row stays on chip. */
#include "targets/cuda/rules.h"

enum { HELD = 32 /* elements of a row that a thread holds in registers */ };

typedef cuda_row_group row_group;

static const tir_stage *stage_named(const cuda_rules *r, const char *name) {
    return &r->region->stages.data[cuda_stage_named(r, name)];
}

/* May the stage's reduction go by lanes, side by side in memory? */
static bool reduces_row(cuda_rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    tir_access access[CUDA_ACCESSES];
    if (stage->kind != TIR_REDUCE || stage->reduce != 1 || !stage->merge[0]) return false;
    if (cuda_extent(r, &stage->axis[stage->space]) < TIR_WARP) return false;
    int count = tir_accesses(r->region, s, access, CUDA_ACCESSES), near = 0, far = 0;
    for (int i = 0; i < count; i++) {
        int64_t stride = access[i].stride[stage->space];
        near += stride == 1;
        far += stride != 0 && stride != 1;
    }
    return near >= far;
}

/* Axes of the result that make up the row's number, for a root that reads reductions or is one; -1: it has no rows. */
static int row_axes(cuda_rules *r, int root) {
    const tir_stage *stage = &r->region->stages.data[root];
    tir_access access[CUDA_ACCESSES];
    if (reduces_row(r, root)) return stage->space;
    int count = tir_accesses(r->region, root, access, CUDA_ACCESSES), rows = -1;
    if (stage->kind != TIR_MAP || count == CUDA_ACCESSES) return -1;
    for (int i = 0; i < count; i++) {
        int producer = r->region->tensors.data[access[i].tensor].stage;
        if (producer < 0) continue;
        int space = r->region->stages.data[producer].space;
        if (space < rows || rows < 0) rows = space;
    }
    return rows;
}

static bool is_member(const row_group *g, const char *name) {
    for (int m = 0; m < g->members; m++)
        if (strcmp(g->name[m], name) == 0) return true;
    return false;
}

/* A producer joins where all that read it run in the group, row by row. 0: it is none of the group's; -1: it stands in the way. */
static int joins(cuda_rules *r, const row_group *g, int s) {
    const tir_stage *stage = &r->region->stages.data[s], *root = stage_named(r, g->root);
    bool wanted = false, outside = false, along = true;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        bool reads;
        if (r->region->stages.data[q].removed) continue;
        bool row_by_row = cuda_reads_along(r, q, s, g->rows, &reads);
        if (!reads) continue;
        const char *reader = r->region->stages.data[q].name;
        bool inside = strcmp(reader, g->root) == 0 || is_member(g, reader);
        wanted = wanted || inside;
        outside = outside || !inside;
        along = along && row_by_row;
    }
    if (!wanted) return 0;
    if (outside || !along || stage->space < g->rows || stage->fold >= 0) return -1;
    for (int c = 0; c < stage->count; c++)
        if (r->region->tensors.data[stage->tensor[c]].output) return -1;
    for (int a = 0; a < g->rows; a++)
        if (stage->axis[a].extent != root->axis[a].extent) return -1;
    if (stage->kind == TIR_REDUCE) return stage->space == g->rows && reduces_row(r, s) ? 1 : -1;
    return stage->kind == TIR_MAP && stage->count == 1 && stage->space <= g->rows + 1 ? 1 : -1;
}

static bool find_group(cuda_rules *r, int root, row_group *g) {
    const tir_stage *stage = &r->region->stages.data[root];
    *g = (row_group){.root = stage->name, .rows = row_axes(r, root), .count = 1};
    if (g->rows < 1 || cuda_is_done(r, stage->name) || stage->space > g->rows + 1) return false;
    for (int a = 0; a < g->rows; a++) {
        int64_t extent = cuda_extent(r, &stage->axis[a]);
        if (extent < 0 || __builtin_mul_overflow(g->count, extent, &g->count)) return false;
    }
    if (stage->space > g->rows) g->length = cuda_extent(r, &stage->axis[g->rows]);
    if (g->length < 0) return false;
    bool any = false;
    for (int s = root; s >= 0; s--) {
        const tir_stage *member = &r->region->stages.data[s];
        bool apart = member->removed || cuda_is_done(r, member->name); /* a phase of its own */
        int verdict = s == root ? stage->kind == TIR_REDUCE : apart ? 0 : joins(r, g, s);
        if (verdict < 0 || g->members == CUDA_ROW_MEMBERS) return false;
        if (verdict == 0) continue;
        g->reduces[g->members] = member->kind == TIR_REDUCE;
        g->along[g->members] = member->kind == TIR_MAP && member->space > g->rows;
        int64_t own = member->kind == TIR_REDUCE ? cuda_extent(r, &member->axis[member->space])
                      : member->space > g->rows  ? cuda_extent(r, &member->axis[g->rows])
                                                 : 1;
        if (own < 0) return false;
        if (own > g->length) g->length = own;
        any = any || member->kind == TIR_REDUCE;
        g->name[g->members++] = member->name;
    }
    return any;
}

/* ---- rewrites */

/* R = tree of its parts: R_part by lanes, through shared memory where warps combine, then R_128, R_64, ... */
static void rewrite_reduction(cuda_rules *r, const row_group *g, const char *name) {
    const tir_stage *stage = stage_named(r, name);
    const char *part = cuda_fresh_name(r, name, "part"), *axis = stage->axis[stage->space].name;
    cuda_rewrite(r, "rfactor %s.%s %lld lanes -> %s lane step", name, axis, (long long)g->threads, part);
    if (g->threads > TIR_WARP) cuda_rewrite(r, "copy %s -> %s", part, cuda_fresh_name(r, part, "all"));
    cuda_rewrite(r, "tree %s.lane", name);
}

static bool is_held(const row_group *g, int64_t extent) {
    return extent <= HELD * g->threads;
}

static void rewrite_group(cuda_rules *r, const row_group *g) {
    for (int m = 0; m < g->members; m++) {
        const tir_stage *stage = stage_named(r, g->name[m]);
        if (g->reduces[m]) rewrite_reduction(r, g, g->name[m]);
        if (!g->along[m] || !is_held(g, cuda_extent(r, &stage->axis[g->rows]))) continue;
        lib_text layout;
        lib_text_init(&layout, r->arena);
        for (int a = 0; a < g->rows; a++) lib_text_format(&layout, "%s, ", stage->axis[a].name);
        const char *axis = stage->axis[g->rows].name;
        cuda_rewrite(r, "layout %s (%s%s/%lld, %s%%%lld)", g->name[m], layout.data ? layout.data : "", axis,
                     (long long)g->threads, axis, (long long)g->threads);
    }
}

/* ---- loops */

/* Threads along the row of a stage with points all along it. */
static void along_row(cuda_rules *r, const row_group *g, const tir_stage *stage, bool unroll) {
    const char *axis = stage->axis[g->rows].name;
    tir_schedule_add(r->schedule, "split %s.%s %lld -> turn lane mask", stage->name, axis, (long long)g->threads);
    tir_schedule_add(r->schedule, "thread %s.lane", stage->name);
    if (unroll) tir_schedule_add(r->schedule, "unroll %s.turn", stage->name);
}

static void attach(cuda_rules *r, const char *stage, const char *root, const char *loop, const char *scope) {
    tir_schedule_add(r->schedule, "at %s %s.%s", stage, root, loop);
    tir_schedule_add(r->schedule, "store %s %s", stage, scope);
}

/* The stages that rewrite_reduction made. */
static void schedule_reduction(cuda_rules *r, const row_group *g, const char *name, const char *root,
                               const char *loop) {
    const char *part = NULL;
    lib_text order;
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        size_t length = strlen(name);
        if (stage->removed || strncmp(stage->name, name, length) != 0 || stage->name[length] != '_') continue;
        if (stage->kind == TIR_REDUCE && strncmp(stage->name + length, "_part", 5) == 0) part = stage->name;
    }
    const tir_stage *parts = stage_named(r, part);
    lib_text_init(&order, r->arena);
    for (int a = 0; a + 1 < parts->space; a++) lib_text_format(&order, " %s", parts->axis[a].name);
    tir_schedule_add(r->schedule, "order %s:%s step lane", part, order.data ? order.data : "");
    tir_schedule_add(r->schedule, "thread %s.lane", part);
    attach(r, part, root, loop, "reg");
    if (g->threads > TIR_WARP) {
        const char *all = lib_arena_format(r->arena, "%s_all", part);
        tir_schedule_add(r->schedule, "thread %s.lane", all);
        attach(r, all, root, loop, "shared");
    }
    for (int64_t half = g->threads / 2; half >= 2; half /= 2) {
        const char *level = lib_arena_format(r->arena, "%s_%lld", name, (long long)half);
        bool all_warps = g->threads > TIR_WARP && (half >= TIR_WARP || half == 2);
        tir_schedule_add(r->schedule, "thread %s.lane", level);
        attach(r, level, root, loop, all_warps ? "shared" : "reg");
    }
}

bool cuda_prepare_rows(cuda_rules *r, int root) {
    row_group g;
    if (!find_group(r, root, &g)) return false;
    /* enough threads to fill the machine, and not too many elements for each */
    const int64_t all = 1024 * (int64_t)r->machine->multiprocessors;
    g.threads = TIR_WARP;
    while (g.threads < 512 && g.length > 16 * g.threads && (g.length > 64 * g.threads || g.count * g.threads < all))
        g.threads *= 2;
    rewrite_group(r, &g);
    for (int m = 0; m < g.members; m++) cuda_mark_done(r, g.name[m]);
    cuda_mark_done(r, g.root);
    lib_vec_push(r->arena, &r->rows, g);
    return true;
}

void cuda_schedule_rows(cuda_rules *r, const row_group *g) {
    enum { ROWS = 4 /* of a block, where a warp works on each */ };
    const tir_stage *root = stage_named(r, g->root);
    const char *row = root->axis[0].name, *loop;
    for (int a = 1; a < g->rows; a++) {
        const char *fused = lib_arena_format(r->arena, "row%d", a);
        tir_schedule_add(r->schedule, "fuse %s.%s %s.%s -> %s", g->root, row, g->root, root->axis[a].name, fused);
        row = fused;
    }
    if (g->threads == TIR_WARP) {
        tir_schedule_add(r->schedule, "split %s.%s %d -> block warp mask", g->root, row, ROWS);
        tir_schedule_add(r->schedule, "par %s.block", g->root);
        tir_schedule_add(r->schedule, "thread %s.warp", g->root);
        loop = "warp";
    } else {
        tir_schedule_add(r->schedule, "par %s.%s", g->root, row);
        loop = row;
    }
    if (root->space > g->rows) along_row(r, g, root, false);
    for (int m = 0; m < g->members; m++) {
        const tir_stage *stage = stage_named(r, g->name[m]);
        bool held = !g->along[m] || is_held(g, cuda_extent(r, &stage->axis[g->rows]));
        if (g->reduces[m]) schedule_reduction(r, g, g->name[m], g->root, loop);
        if (g->along[m]) along_row(r, g, stage, held);
        if (strcmp(g->name[m], g->root) != 0) attach(r, g->name[m], g->root, loop, held ? "reg" : "shared");
    }
}
