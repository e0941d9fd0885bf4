/* Short sums over windows (pooling, depthwise convolutions): the windows of neighbouring results overlap. A thread computes several results
 * along one axis in registers, with all steps of the window unrolled, and loads the elements that these results share once, into registers;
 * neighbouring threads are neighbours along the last axis, whose loads overlap in L1. */
#include "targets/cuda/rules.h"

/* Bit a: windows slide along axis a of the result. */
static uint32_t find_windows(cuda_rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    tir_access access[CUDA_ACCESSES];
    const int count = tir_accesses(r->region, s, access, CUDA_ACCESSES);
    uint32_t windows = 0;
    for (int i = 0; i < count; i++)
        for (int a = 0; a < stage->space; a++)
            for (int k = stage->space; k < stage->space + stage->reduce; k++)
                if (tir_shares_dimension(r->region, stage, &access[i], a, k)) windows |= 1u << a;
    return windows;
}

/* Sets the threads of a block along each axis, the last axes first, and a thread's results: along the last window axis but one. */
static void choose_lanes(cuda_rules *r, const tir_stage *stage, uint32_t windows, cuda_window *w) {
    enum { THREADS = 256, ROWS = 4 };
    int64_t left = THREADS;
    w->rows_axis = -1;
    for (int a = stage->space - 2; a >= 0 && w->rows_axis < 0; a--)
        if (windows >> a & 1) w->rows_axis = a;
    for (int a = stage->space - 1; a >= 0; a--) {
        int64_t extent = cuda_extent(r, &stage->axis[a]);
        if (a == w->rows_axis) {
            w->rows = ROWS;
            while (w->rows > 1 && cuda_round_up(extent, w->rows) - extent >= w->rows / 2 && extent < 4 * ROWS)
                w->rows /= 2;
            w->rows = tir_choose_power(r->schedule, stage->name, "rows", 1, 2 * ROWS, w->rows);
            extent = cuda_ceil_div(extent, w->rows);
        }
        w->lanes[a] = cuda_least(cuda_power_above(extent), left);
        left /= w->lanes[a];
    }
}

/* Number of elements in the bounding box of what a thread reads by the load; -1: unknown. */
static int64_t box_of(cuda_rules *r, const tir_stage *stage, const cuda_window *w, tir_expr load) {
    enum { TERMS = 16 };
    const tir_pool *pool = r->region->pool;
    const tir_node node = *tir_get(pool, load);
    int64_t elements = 1;
    if (node.guarded) return -1;
    for (int d = 0; d < node.count; d++) {
        tir_term terms[TERMS];
        int64_t constant, points = 1;
        const int count = tir_terms(pool, tir_operand(pool, load, d), terms, TERMS, &constant);
        if (count < 0) return -1;
        for (int i = 0; i < count; i++) {
            int a = 0;
            while (a < stage->space + stage->reduce && stage->axis[a].var != terms[i].atom) a++;
            if (a == stage->space + stage->reduce) return -1;
            const int64_t step = terms[i].coefficient < 0 ? -terms[i].coefficient : terms[i].coefficient;
            const int64_t trips = a >= stage->space ? cuda_extent(r, &stage->axis[a]) : a == w->rows_axis ? w->rows : 1;
            points += step * (trips - 1);
        }
        if (points > INT32_MAX || (elements *= points) > INT32_MAX) return -1;
    }
    return elements;
}

/* Copies operands that only this sum reads to the registers of a thread. */
static void copy_operands(cuda_rules *r, cuda_window *w) {
    enum { REGISTERS = 96 };
    tir_access access[CUDA_ACCESSES];
    const int count = tir_accesses(r->region, cuda_stage_named(r, w->sums), access, CUDA_ACCESSES);
    int64_t left = REGISTERS;
    if (count > CUDA_WINDOW_COPIES) return;
    for (int i = 0; i < count; i++) {
        const int s = cuda_stage_named(r, w->sums);
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        const int64_t elements = box_of(r, &r->region->stages.data[s], w, access[i].load);
        const bool again = tir_loads_of(r->region, s, access[i].tensor) > 1;
        if (elements < 0 || elements > left || again || tir_is_read_by_others(r->region, s, access[i].tensor)) continue;
        if (tensor->output) continue; /* the copy would become the output */
        left -= elements;
        w->copy[w->copies] = cuda_fresh_name(r, w->sums, "part");
        cuda_rewrite(r, "copy %s -> %s", tensor->name, w->copy[w->copies]);
        cuda_mark_done(r, w->copy[w->copies++]);
    }
}

bool cuda_prepare_window(cuda_rules *r, const char *name) {
    enum { MOST_STEPS = 64 };
    const int s = cuda_stage_named(r, name);
    const tir_stage stage = r->region->stages.data[s];
    cuda_window w = {.sums = stage.name, .rows = 1};
    int64_t steps = 1;
    if (stage.kind != TIR_REDUCE || stage.count != 1 || stage.fold >= 0 || stage.space == 0) return false;
    for (int a = 0; a < stage.space + stage.reduce; a++) {
        const int64_t extent = cuda_extent(r, &stage.axis[a]);
        if (extent < 1) return false;
        if (a >= stage.space && (steps *= extent) > MOST_STEPS) return false;
    }
    const uint32_t windows = find_windows(r, s);
    if (!windows || !tir_choose_yes(r->schedule, stage.name, "window", true)) return false;
    choose_lanes(r, &stage, windows, &w);
    copy_operands(r, &w);
    const int reader = cuda_reader_of(r, cuda_stage_named(r, w.sums));
    w.root = reader >= 0 ? r->region->stages.data[reader].name : cuda_fresh_name(r, name, "out");
    if (reader < 0) cuda_rewrite(r, "copy %s -> %s", name, w.root);
    cuda_mark_done(r, w.sums);
    cuda_mark_done(r, w.root);
    lib_vec_push(r->arena, &r->windows, w);
    return true;
}

/* Schedules the sums inside loop `last` of the root. several: a thread has several results. */
static void schedule_sums(cuda_rules *r, const cuda_window *w, const char *last, bool several) {
    const tir_stage *sums = cuda_stage_of(r, w->sums);
    lib_text order;
    tir_schedule_add(r->schedule, "at %s %s.%s", w->sums, w->root, last);
    tir_schedule_add(r->schedule, "store %s reg", w->sums);
    lib_text_init(&order, r->arena);
    for (int i = 0; i < sums->space + sums->reduce; i++) /* the steps are loops around the results */
        lib_text_format(&order, " %s", sums->axis[(i + sums->space) % (sums->space + sums->reduce)].name);
    tir_schedule_add(r->schedule, "order %s:%s", w->sums, order.data);
    for (int a = sums->space; a < sums->space + sums->reduce; a++)
        tir_schedule_add(r->schedule, "unroll %s.%s", w->sums, sums->axis[a].name);
    if (several) tir_schedule_add(r->schedule, "unroll %s.%s", w->sums, sums->axis[w->rows_axis].name);
}

/* Schedules the copies inside loop `last` of the root. */
static void schedule_copies(cuda_rules *r, const cuda_window *w, const char *last) {
    for (int i = 0; i < w->copies; i++) {
        const tir_stage *copy = cuda_stage_of(r, w->copy[i]);
        for (int a = 0; a < copy->space; a++)
            tir_schedule_add(r->schedule, "unroll %s.%s", w->copy[i], copy->axis[a].name);
        tir_schedule_add(r->schedule, "at %s %s.%s", w->copy[i], w->root, last);
        tir_schedule_add(r->schedule, "store %s reg", w->copy[i]);
    }
}

void cuda_schedule_window(cuda_rules *r, const cuda_window *w) {
    const tir_stage *root = cuda_stage_of(r, w->root);
    const char *block[TIR_MAX_AXES], *lane[TIR_MAX_AXES] = {NULL}, *inside = NULL, *rows = NULL;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < root->space; a++) {
        const char *rest = root->axis[a].name;
        if (a == w->rows_axis && w->rows > 1) {
            rows = cuda_loop_name(r, "row", a);
            tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask", w->root, rest, (long long)w->rows,
                             cuda_loop_name(r, "rows", a), rows);
            rest = cuda_loop_name(r, "rows", a);
        }
        block[a] = rest;
        if (w->lanes[a] == 1) continue;
        block[a] = cuda_loop_name(r, "block", a);
        inside = lane[a] = cuda_loop_name(r, "lane", a);
        tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask", w->root, rest, (long long)w->lanes[a], block[a],
                         lane[a]);
    }
    for (int a = 0; a < root->space; a++) lib_text_format(&order, " %s", block[a]);
    for (int a = 0; a < root->space; a++)
        if (lane[a]) lib_text_format(&order, " %s", lane[a]);
    tir_schedule_add(r->schedule, "order %s:%s %s", w->root, order.data, rows ? rows : "");
    for (int a = 0; a < root->space; a++) tir_schedule_add(r->schedule, "par %s.%s", w->root, block[a]);
    for (int a = 0; a < root->space; a++)
        if (lane[a]) tir_schedule_add(r->schedule, "thread %s.%s", w->root, lane[a]);
    if (rows) tir_schedule_add(r->schedule, "unroll %s.%s", w->root, rows);
    const char *last = inside ? inside : block[root->space - 1];
    schedule_sums(r, w, last, rows != NULL);
    schedule_copies(r, w, last);
}
