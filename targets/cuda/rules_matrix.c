/* Contractions on matrix units: tiles as in rules_tile.c, with warps in place of threads. A warp keeps the sums of several instructions in
 * registers; operands go from shared memory to the registers of the lanes from which the instruction takes them (tir/unit.h), by
 * ldmatrix if lowering recognises the copy. One axis of m, one of n and one of the sum run through the instruction. Along an axis a tile is
 * thread x hi x lo  points: warps, instructions of a warp, and points of one instruction: 16 of m, 8 of n, 1 if the axis does not run
 * through it. */
#include "targets/cuda/rules.h"

enum { ROWS = 16, COLUMNS = 8, DEPTH = 16, WARP = TIR_WARP, ROW_BYTES = 128, STAGES = 4 };

/* ---- which axes, and how much of them */

/* The axis of the side that fills an instruction of `points` points best; of equals the last one; -1: the side has no axis. */
static int best_axis(const cuda_tile *t, cuda_side side, int64_t points) {
    int best = -1;
    for (int a = 0; a < t->count; a++) {
        const int64_t extent = t->axis[a].extent, whole = cuda_ceil_div(extent, points) * points;
        if (t->axis[a].side != side) continue;
        if (best >= 0) {
            const int64_t other = t->axis[best].extent;
            if (extent * (cuda_ceil_div(other, points) * points) < other * whole) continue;
        }
        best = a;
    }
    return best;
}

bool cuda_matrix_fits(cuda_rules *r, int s, cuda_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    t->unit = tir_unit_for(r->machine, TIR_BY_WARP, r->region->pool, stage);
    if (!t->unit) return false;
    if (!tir_choose_yes(r->schedule, stage->name, "unit", true)) return t->unit = NULL, false;
    t->unit_axis[0] = best_axis(t, CUDA_SIDE_M, ROWS);
    t->unit_axis[1] = best_axis(t, CUDA_SIDE_N, COLUMNS);
    t->unit_axis[2] = best_axis(t, CUDA_SIDE_SUM, DEPTH);
    return true;
}

void cuda_matrix_steps(cuda_tile *t) {
    enum { STEPS = 32 };
    cuda_tile_axis *x = &t->axis[t->unit_axis[2]];
    for (int a = t->space; a < t->count; a++) t->axis[a].lo = 1;
    x->lo = x->extent > DEPTH ? STEPS : DEPTH;
    t->stepped = t->unit_axis[2];
    t->steps = x->lo;
}

/* Distributes `warps` warps and `own` instructions of each among the axes of a side, beginning with the axis that runs through the
 * instruction. */
static void spread(cuda_tile *t, cuda_side side, int64_t warps, int64_t own, int64_t points) {
    cuda_tile_axis *first = &t->axis[t->unit_axis[side]];
    for (int n = t->space; n >= 0; n--) {
        cuda_tile_axis *x = n == t->space ? first : &t->axis[n];
        if (x->side != side || (n < t->space && x == first)) continue;
        x->lo = x == first ? points : 1;
        int64_t room = cuda_power_above(cuda_ceil_div(x->extent, x->lo));
        x->hi = cuda_least(own, room), own /= x->hi, room /= x->hi;
        x->thread = cuda_least(warps, room), warps /= x->thread;
    }
    first->hi *= own, first->thread *= warps;
}

typedef struct warp_tile {
    /* by side, m and n: warps, instructions of a warp */
    int64_t warps[2], own[2];
} warp_tile;

static void apply_size(cuda_tile *t, const warp_tile *size) {
    spread(t, CUDA_SIDE_M, size->warps[0], size->own[0], ROWS);
    spread(t, CUDA_SIDE_N, size->warps[1], size->own[1], COLUMNS);
    t->threads = size->warps[0] * size->warps[1] * WARP;
}

/* The model: cycles until a multiprocessor has done its part of the contraction, as in rules_tile.c; -1: the size does not fit. An
 * instruction takes the matrix units 2 cycles, shared memory delivers 128 bytes a cycle. */
static double cost_of(const cuda_rules *r, const cuda_tile *t, const warp_tile *size) {
    enum { EACH = 2, REGISTERS = 65536, L2_BYTES = 24, THREADS = 2048 };
    const int64_t warps = t->threads / WARP, bm = size->warps[0] * size->own[0] * ROWS,
                  bn = size->warps[1] * size->own[1] * COLUMNS;
    const int64_t registers = 48 + size->own[0] * size->own[1] * 4 + size->own[0] * 4 + size->own[1] * 2;
    const int64_t shared = STAGES * t->steps * (bm + bn) * 2;
    int64_t blocks = t->points[CUDA_SIDE_BATCH];
    for (int a = 0; a < t->space; a++)
        if (t->axis[a].side != CUDA_SIDE_BATCH)
            blocks *= cuda_ceil_div(t->axis[a].extent, cuda_tile_points(&t->axis[a]));
    if (registers > cuda_least(r->machine->thread_registers, REGISTERS / t->threads) ||
        shared > r->machine->shared_memory)
        return -1;
    int64_t together = cuda_least(REGISTERS / (registers * t->threads), THREADS / t->threads);
    together = cuda_least(together, r->machine->shared_memory / shared);
    together = cuda_least(together, cuda_ceil_div(blocks, r->machine->multiprocessors));
    const double sub = (double)(t->steps / DEPTH);
    const double arithmetic = sub * (double)(warps * size->own[0] * size->own[1] * EACH);
    const double reads = sub * (double)(warps * (size->own[0] * ROWS + size->own[1] * COLUMNS) * DEPTH * 2) / 128;
    const double memory = (double)((bm + bn) * t->steps * 2) / (double)L2_BYTES;
    const double overlapped = reads > memory ? reads : memory;
    const double step = arithmetic > overlapped ? arithmetic + overlapped / 4 : overlapped + arithmetic / 4;
    const double rounds = (double)t->points[CUDA_SIDE_SUM] / (double)t->axis[t->stepped].extent *
                          (double)cuda_ceil_div(t->axis[t->stepped].extent, t->steps);
    return cuda_tile_cycles(r, blocks, together, rounds, step);
}

/* The words of the choices "block" and "warps". */
static cuda_size_words size_words(const cuda_rules *r, const warp_tile *size) {
    return (cuda_size_words){
        {cuda_size_word(r, size->warps[0] * size->own[0] * ROWS, size->warps[1] * size->own[1] * COLUMNS),
         cuda_size_word(r, size->warps[0], size->warps[1])}};
}

/* Sets *chosen to the warps and their tiles of least cost, of those that the search admits, and returns the cost; -1: none fits. */
static double search_sizes(cuda_rules *r, cuda_tile *t, tir_search *search, warp_tile *chosen) {
    double best = -1;
    for (int64_t down = 1; down <= 4; down *= 2)
        for (int64_t across = 1; across <= 4; across *= 2)
            for (int64_t m = 1; m <= 4; m *= 2)
                for (int64_t n = 1; n <= 8; n *= 2) {
                    const warp_tile size = {{down, across}, {m, n}};
                    if (down * across < 2 || down * across > 8) continue;
                    apply_size(t, &size);
                    double cost = cost_of(r, t, &size);
                    if (cost < 0 || (search->asked && !tir_search_admits(search, size_words(r, &size).word))) continue;
                    if (best >= 0 && cost >= best) continue;
                    best = cost, *chosen = size;
                }
    return best;
}

double cuda_matrix_size(cuda_rules *r, cuda_tile *t, bool record) {
    tir_search search = tir_search_for(r->schedule, t->sums, 2, (const char *const[]){"block", "warps"});
    warp_tile chosen = {{0}, {0}};
    double best = search_sizes(r, t, &search, &chosen);
    if (best < 0 && search.asked) {
        search.unpinned = true;
        best = search_sizes(r, t, &search, &chosen);
    }
    if (best < 0) return best;
    apply_size(t, &chosen);
    if (search.asked && record) tir_search_record(&search, size_words(r, &chosen).word);
    return best;
}

/* ---- rewrites: layouts */

static const char *part(cuda_rules *r, const char *name, int64_t divisor, int64_t modulus) {
    if (divisor > 1 && modulus) return lib_arena_format(r->arena, "%s/%d%%%d", name, (int)divisor, (int)modulus);
    if (divisor > 1) return lib_arena_format(r->arena, "%s/%d", name, (int)divisor);
    if (modulus) return lib_arena_format(r->arena, "%s%%%d", name, (int)modulus);
    return name;
}

static void add_part(lib_text *layout, const char *text) {
    lib_text_format(layout, "%s%s", layout->length ? ", " : "", text);
}

/* Layout of the sums: warps, instructions, then the lanes and registers of the instruction's accumulator. */
static void lay_out_sums(cuda_rules *r, const cuda_tile *t) {
    lib_text layout, inner;
    lib_text_init(&layout, r->arena);
    lib_text_init(&inner, r->arena);
    for (int a = 0; a < t->space; a++) {
        const cuda_tile_axis *x = &t->axis[a];
        add_part(&layout, part(r, x->name, cuda_tile_points(x), 0));
        if (x->thread > 1) add_part(&layout, part(r, x->name, x->hi * x->lo, x->thread));
        if (x->hi > 1) add_part(&layout, part(r, x->name, x->lo, x->hi));
    }
    const char *row = t->axis[t->unit_axis[0]].name, *column = t->axis[t->unit_axis[1]].name;
    lib_text_format(&inner, "%s%%8, %s/2%%4, %s/8%%2, %s%%2", row, column, row, column);
    cuda_rewrite(r, "layout %s (%s, %s)", t->sums, layout.data, inner.data);
}

/* Layout of an operand's copy in registers: the other axes, whole instructions, then the lanes and registers of the instruction's
 * operand. */
static void lay_out_fragment(cuda_rules *r, const cuda_tile *t, int side) {
    const tir_stage *stage = cuda_stage_of(r, t->fragment[side]);
    const char *own = NULL, *deep = NULL;
    lib_text layout;
    lib_text_init(&layout, r->arena);
    for (int a = 0; a < stage->space; a++) {
        const char *name = stage->axis[a].name;
        const int axis = cuda_tile_axis_of(t, stage->axis[a].id);
        if (axis == t->unit_axis[side]) own = name;
        if (axis == t->unit_axis[2]) deep = name;
        const bool unit = axis == t->unit_axis[side] || axis == t->unit_axis[2];
        add_part(&layout, unit ? part(r, name, axis == t->unit_axis[1] && side ? COLUMNS : ROWS, 0) : name);
    }
    lib_text_format(&layout, ", %s%%8, %s/2%%4, %s/8%%2", own, deep, deep);
    if (side == 0) lib_text_format(&layout, ", %s/8%%2", own);
    cuda_rewrite(r, "layout %s (%s, %s%%2)", t->fragment[side], layout.data, deep);
}

/* The axis along which a copy is contiguous in shared memory: that of its source, if it runs through the instruction (*vectors: true), else
 * the axis of the sum. */
static int fast_axis(cuda_rules *r, const cuda_tile *t, int side, bool *vectors) {
    const int s = cuda_stage_named(r, t->copy[side]);
    const tir_stage *stage = &r->region->stages.data[s];
    int64_t bytes;
    int along = cuda_contiguous_axis(r, s, &bytes), deep = 0;
    for (int a = 0; a < stage->space; a++) {
        const int axis = cuda_tile_axis_of(t, stage->axis[a].id);
        if (axis == t->unit_axis[2]) deep = a;
        if (a == along && (axis == t->unit_axis[side] || axis == t->unit_axis[2])) {
            *vectors = true;
            return a;
        }
    }
    *vectors = false;
    return deep;
}

static int64_t copied(const cuda_tile *t, const tir_axis *axis) {
    cuda_side side;
    return cuda_copied_points(t, axis, &side);
}

/* order[]: the axes of a copy as in shared memory, the contiguous one last and before it the other axis of the instruction: an instruction
 * reads consecutive rows, which swizzles keep in different banks. Returns the number of axes. */
static int memory_order(cuda_rules *r, const cuda_tile *t, int side, int *order, bool *vectors) {
    const tir_stage *stage = cuda_stage_of(r, t->copy[side]);
    const int fast = fast_axis(r, t, side, vectors);
    int count = 0, rows = -1;
    for (int a = 0; a < stage->space; a++) {
        const int axis = cuda_tile_axis_of(t, stage->axis[a].id);
        if (a == fast) continue;
        if (axis == t->unit_axis[side] || axis == t->unit_axis[2])
            rows = a;
        else
            order[count++] = a;
    }
    if (rows >= 0) order[count++] = rows;
    order[count++] = fast;
    return count;
}

/* Layout of a copy in shared memory, with rows of at most 128 bytes. */
static void lay_out_copy(cuda_rules *r, const cuda_tile *t, int side) {
    enum { ROW = ROW_BYTES / 2 };
    const tir_stage *stage = cuda_stage_of(r, t->copy[side]);
    int order[TIR_MAX_AXES];
    bool vectors;
    const int count = memory_order(r, t, side, order, &vectors);
    const tir_axis *last = &stage->axis[order[count - 1]];
    const char *name = last->name;
    const bool panels = copied(t, last) > ROW;
    lib_text layout;
    lib_text_init(&layout, r->arena);
    if (panels) add_part(&layout, part(r, name, ROW, 0));
    for (int n = 0; n < count - 1; n++) add_part(&layout, stage->axis[order[n]].name);
    add_part(&layout, part(r, name, 1, panels ? ROW : 0));
    cuda_rewrite(r, "layout %s (%s)", t->copy[side], layout.data);
}

void cuda_matrix_lay_out(cuda_rules *r, cuda_tile *t) {
    for (int side = 0; side < 2; side++) {
        t->fragment[side] = cuda_fresh_name(r, t->copy[side], "fragment");
        cuda_rewrite(r, "copy %s -> %s", t->copy[side], t->fragment[side]);
        cuda_mark_done(r, t->fragment[side]);
    }
    lay_out_sums(r, t);
    for (int side = 0; side < 2; side++) {
        lay_out_copy(r, t, side);
        lay_out_fragment(r, t, side);
    }
}

/* ---- loops */

typedef struct axis_loops {
    /* NULL: none */
    const char *block, *warp, *turn;
    /* parts of the instruction, NULL: none: of m the half and the row, of n the column and the pair */
    const char *high, *low;
} axis_loops;

static const char *split(cuda_rules *r, const char *stage, const char *axis, int64_t factor, const char *outer,
                         const char *inner, const char *mode) {
    tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s mask%s", stage, axis, (long long)factor, outer, inner,
                     mode);
    return inner;
}

/* Splits an axis of the result into the loops above; `blocks`: the loop over blocks is in the same loop nest. */
static axis_loops split_axis(cuda_rules *r, const cuda_tile *t, const char *stage, const char *rest, int a,
                             bool blocks) {
    const cuda_tile_axis *x = &t->axis[a];
    axis_loops loops = {NULL, NULL, NULL, NULL, NULL};
    const bool unit = a == t->unit_axis[0] || a == t->unit_axis[1];
    if (blocks && cuda_tile_points(x) == 1) {
        loops.block = rest;
        return loops;
    }
    if (blocks) {
        loops.block = cuda_loop_name(r, "block", a);
        rest = split(r, stage, rest, cuda_tile_points(x), loops.block, cuda_loop_name(r, "rest", a), " full");
    }
    loops.warp = cuda_loop_name(r, "warp", a);
    rest = split(r, stage, rest, x->hi * x->lo, loops.warp, cuda_loop_name(r, "part", a), "");
    if (!unit) {
        loops.turn = rest;
        return loops;
    }
    loops.turn = cuda_loop_name(r, "turn", a);
    rest = split(r, stage, rest, x->lo, loops.turn, cuda_loop_name(r, "one", a), "");
    loops.high = cuda_loop_name(r, "high", a);
    loops.low = cuda_loop_name(r, "low", a);
    split(r, stage, rest, a == t->unit_axis[0] ? 8 : 2, loops.high, loops.low, "");
    return loops;
}

/* Loops over lanes (a row of m, a column of n), and loops over what a lane owns (halves of m, pairs of n). */
static void add_lanes(lib_text *order, const cuda_tile *t, const axis_loops *loops) {
    cuda_add_loop(order, loops[t->unit_axis[0]].low);
    cuda_add_loop(order, loops[t->unit_axis[1]].high);
}
static void add_own(lib_text *order, const cuda_tile *t, const axis_loops *loops) {
    for (int a = 0; a < t->space; a++) cuda_add_loop(order, loops[a].turn);
    cuda_add_loop(order, loops[t->unit_axis[0]].high);
    cuda_add_loop(order, loops[t->unit_axis[1]].low);
}

static void mark_lanes(cuda_rules *r, const cuda_tile *t, const char *stage, const axis_loops *loops) {
    for (int a = 0; a < t->space; a++) {
        cuda_mark_loop(r, "thread", stage, loops[a].warp);
        cuda_mark_loop(r, "unroll", stage, loops[a].turn);
    }
    cuda_mark_loop(r, "thread", stage, loops[t->unit_axis[0]].low);
    cuda_mark_loop(r, "thread", stage, loops[t->unit_axis[1]].high);
    cuda_mark_loop(r, "unroll", stage, loops[t->unit_axis[0]].high);
}

static const char *schedule_root(cuda_rules *r, const cuda_tile *t) {
    const tir_stage *root = cuda_stage_of(r, t->root);
    axis_loops loops[TIR_MAX_AXES];
    const char *last = NULL;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < t->space; a++) loops[a] = split_axis(r, t, t->root, root->axis[a].name, a, true);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, last = loops[a].block);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].warp);
    add_lanes(&order, t, loops);
    add_own(&order, t, loops);
    tir_schedule_add(r->schedule, "order %s:%s", t->root, order.data);
    for (int a = 0; a < t->space; a++) cuda_mark_loop(r, "par", t->root, loops[a].block);
    mark_lanes(r, t, t->root, loops);
    cuda_mark_loop(r, "vec", t->root, loops[t->unit_axis[1]].low);
    return last;
}

/* Schedules the sums. *copies, *fragments: the loops at which the copies in shared memory and in registers are attached. */
static void schedule_sums(cuda_rules *r, const cuda_tile *t, const char **copies, const char **fragments) {
    const tir_stage *stage = cuda_stage_of(r, t->sums);
    const cuda_tile_axis *deep = &t->axis[t->unit_axis[2]];
    axis_loops loops[TIR_MAX_AXES];
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < t->space; a++) {
        if (t->axis[a].side == CUDA_SIDE_BATCH)
            loops[a] = (axis_loops){stage->axis[a].name, NULL, NULL, NULL, NULL};
        else
            loops[a] = split_axis(r, t, t->sums, stage->axis[a].name, a, false);
    }
    const int k = t->unit_axis[2];
    const char *step = cuda_loop_name(r, "step", k), *sub = cuda_loop_name(r, "sub", k),
               *point = cuda_loop_name(r, "point", k);
    *copies = cuda_loop_name(r, "block", k);
    split(r, t->sums, stage->axis[k].name, deep->lo, *copies, step, " full");
    split(r, t->sums, step, DEPTH, sub, point, "");
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].block);
    for (int a = t->space; a < t->count; a++)
        if (a != k) cuda_add_loop(&order, stage->axis[a].name);
    cuda_add_loop(&order, *copies);
    for (int a = 0; a < t->space; a++) cuda_add_loop(&order, loops[a].warp);
    cuda_add_loop(&order, *fragments = sub);
    add_lanes(&order, t, loops);
    add_own(&order, t, loops);
    tir_schedule_add(r->schedule, "order %s:%s %s", t->sums, order.data, point);
    mark_lanes(r, t, t->sums, loops);
    cuda_mark_loop(r, "unroll", t->sums, loops[t->unit_axis[1]].low);
    cuda_mark_loop(r, "unroll", t->sums, sub);
    const axis_loops *m = &loops[t->unit_axis[0]], *n = &loops[t->unit_axis[1]];
    tir_schedule_add(r->schedule, "unit %s.%s,%s,%s,%s,%s %s deviates assoc", t->sums, m->high, m->low, n->high, n->low,
                     point, t->unit->name);
}

/* Schedules an operand's copy in registers: lanes hold rows of the operand's own axis, and pairs along the sum. */
static void schedule_fragment(cuda_rules *r, const cuda_tile *t, int side, const char *at) {
    const char *stage = t->fragment[side], *own_half = NULL;
    const tir_stage *s = cuda_stage_of(r, stage);
    lib_text turns;
    lib_text_init(&turns, r->arena);
    for (int a = 0; a < s->space; a++) {
        const char *name = s->axis[a].name;
        const int axis = cuda_tile_axis_of(t, s->axis[a].id);
        if (axis == t->unit_axis[2]) {
            split(r, stage, name, 8, "half", "eight", "");
            split(r, stage, "eight", 2, "two", "pair", "");
        } else if (axis == t->unit_axis[side] && side == 0) {
            split(r, stage, name, ROWS, "turn", "rows", "");
            split(r, stage, "rows", 8, own_half = "upper", "row", "");
            cuda_add_loop(&turns, "turn");
        } else if (axis == t->unit_axis[side]) {
            split(r, stage, name, COLUMNS, "turn", "row", "");
            cuda_add_loop(&turns, "turn");
        } else {
            cuda_add_loop(&turns, name);
        }
    }
    tir_schedule_add(r->schedule, "order %s: row two%s half %s pair", stage, turns.data ? turns.data : "",
                     own_half ? own_half : "");
    tir_schedule_add(r->schedule, "thread %s.row %s.two", stage, stage);
    tir_schedule_add(r->schedule, "unroll %s.turn %s.half", stage, stage);
    if (own_half) cuda_mark_loop(r, "unroll", stage, own_half);
    cuda_mark_loop(r, "vec", stage, "pair");
    tir_schedule_add(r->schedule, "at %s %s.%s", stage, t->sums, at);
    tir_schedule_add(r->schedule, "store %s reg", stage);
}

/* Schedules a copy to shared memory: threads run over the axes, fastest along the contiguous one, each with a vector. */
static void schedule_copy(cuda_rules *r, const cuda_tile *t, int side, const char *at) {
    enum { VECTOR = 8 };
    const char *copy = t->copy[side], *turn[TIR_MAX_AXES] = {NULL}, *lane[TIR_MAX_AXES] = {NULL}, *run = NULL;
    const tir_stage *stage = cuda_stage_of(r, copy);
    int in_memory[TIR_MAX_AXES];
    bool vectors;
    const int count = memory_order(r, t, side, in_memory, &vectors), fast = in_memory[count - 1];
    int64_t left = t->threads;
    for (int n = count - 1; n >= 0; n--) {
        const int a = in_memory[n];
        const char *rest = stage->axis[a].name;
        int64_t extent = copied(t, &stage->axis[a]);
        if (a == fast && vectors) {
            run = cuda_loop_name(r, "run", a);
            const char *whole = rest;
            rest = cuda_loop_name(r, "rest", a);
            split(r, copy, whole, VECTOR, rest, run, "");
            extent /= VECTOR;
        }
        const int64_t lanes = cuda_least(cuda_power_above(extent), left);
        if (extent > lanes && lanes > 1) {
            turn[a] = cuda_loop_name(r, "turn", a), lane[a] = cuda_loop_name(r, "lane", a);
            split(r, copy, rest, lanes, turn[a], lane[a], "");
        } else if (lanes > 1) {
            lane[a] = rest;
        } else {
            turn[a] = rest;
        }
        left /= lanes;
    }
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int n = 0; n < count; n++) cuda_add_loop(&order, lane[in_memory[n]]);
    for (int a = 0; a < stage->space; a++) cuda_add_loop(&order, turn[a]);
    cuda_add_loop(&order, run);
    tir_schedule_add(r->schedule, "order %s:%s", copy, order.data);
    for (int a = 0; a < stage->space; a++) {
        cuda_mark_loop(r, "thread", copy, lane[a]);
        if (turn[a] && copied(t, &stage->axis[a]) > 1) cuda_mark_loop(r, "unroll", copy, turn[a]);
    }
    cuda_mark_loop(r, "vec", copy, run);
    tir_schedule_add(r->schedule, "at %s %s.%s", copy, t->sums, at);
    const int64_t row = cuda_least(ROW_BYTES, 2 * copied(t, &stage->axis[fast]));
    if (row >= 32)
        tir_schedule_add(r->schedule, "store %s shared swizzle %d", copy, (int)row);
    else
        tir_schedule_add(r->schedule, "store %s shared", copy);
}

/* Pipelines the copies, so that copies for the next steps are in flight while one step is computed. */
static void pipeline(cuda_rules *r, const cuda_tile *t, const char *at) {
    int64_t points[2] = {1, 1}, rounds = cuda_ceil_div(t->axis[t->stepped].extent, t->steps), stages = STAGES;
    for (int a = 0; a < t->space; a++)
        if (t->axis[a].side <= CUDA_SIDE_N) points[t->axis[a].side] *= cuda_tile_points(&t->axis[a]);
    const int64_t stage = t->steps * (points[0] + points[1]) * 2;
    if (!cuda_is_copy(r, t->copy[0]) || !cuda_is_copy(r, t->copy[1])) return;
    while (stages > 2 && (stages > rounds || stages * stage > r->machine->shared_memory / 2)) stages--;
    if (rounds > 1 && stages * stage <= r->machine->shared_memory)
        tir_schedule_add(r->schedule, "pipeline %s.%s stages=%d", t->sums, at, (int)stages);
}

void cuda_schedule_matrix(cuda_rules *r, const cuda_tile *t) {
    const char *block = schedule_root(r, t), *copies, *fragments;
    schedule_sums(r, t, &copies, &fragments);
    tir_schedule_add(r->schedule, "at %s %s.%s", t->sums, t->root, block);
    tir_schedule_add(r->schedule, "store %s reg", t->sums);
    for (int side = 0; side < 2; side++) {
        schedule_copy(r, t, side, copies);
        schedule_fragment(r, t, side, fragments);
    }
    pipeline(r, t, copies);
}
