/* The loops around a register tile: their order, which of them are tasks of the threads, and blocks of rows that stay in cache; the loops of its
 * reduction, and parts of long sums. */
#include "targets/cpu/rules_tile.h"

#include <math.h>

enum {
    TASKS = 4, /* for each thread, at least */
    SHARED =
        5 /* least ratio of a reduction's time to the time of starting threads for which several threads compute it */
};

/* The reduction among the stages in the tile that determines its shape; -1: none. */
static int main_reduction(const rules *r, int owner, const bool *inside) {
    int main = -1;
    for (int s = 0; s < owner; s++)
        if (inside[s] && r->region->stages.data[s].kind == TIR_REDUCE && (main < 0 || rules_is_contraction(r, s)))
            main = s;
    return main;
}

const char *rules_tail_of_tasks(const rules *r, int64_t n, int64_t width) {
    return r->machine->masked || n % width == 0 ? "mask" : "peel";
}

double rules_rows_but(const rules *r, const tir_stage *stage, int v) {
    double rows = 1;
    for (int a = 0; a < stage->space; a++)
        if (a != v) rows *= (double)rules_known_extent(r, &stage->axis[a]);
    return rows;
}

double rules_slice_bytes(rules *r, int main, const rules_tile_shape *t, bool vectors, int along) {
    const tir_stage *stage = &r->region->stages.data[main];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, main, access, RULES_ACCESSES);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        if (rules_depends(&access[i], t->v) != vectors) continue;
        double bytes = (double)lib_dtype_size(r->region->tensors.data[access[i].tensor].dtype);
        for (int a = 0; a < stage->space + stage->reduce; a++)
            if (rules_depends(&access[i], a) && (a == along || a >= stage->space))
                bytes *= (double)rules_known_extent(r, &stage->axis[a]);
        sum += bytes;
    }
    return sum;
}

/* Does a predicate (padding) depend on the row? That makes versions of the loop over rows, and a loop of tasks has no versions. */
static bool has_row_versions(const rules *r, int main, const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[main];
    return stage->predicate && t->u >= 0 && tir_uses(r->region->pool, stage->predicate, stage->axis[t->u].var);
}

/* May the loop over separate rows be outside of the loop over their vectors? Consecutive rows are contiguous in memory, although they share
 * no vectors. The loops around both must be tasks enough for all threads: a loop over rows with versions (padding) has to be inside of a
 * task. */
static bool separate_first(const rules *r, const tir_stage *owner, int v, int u) {
    double tasks = 1;
    for (int a = 0; a < owner->space; a++)
        if (a != v && a != u) tasks *= (double)rules_known_extent(r, &owner->axis[a]);
    return r->threads == 1 || tasks >= (double)(TASKS * r->threads);
}

/* Do all vector operands depend on the owner's axis, too (a batch of both operands)? */
static bool is_outside_panels(rules *r, int main, const rules_tile_shape *t, int v, int axis) {
    rules_access access[RULES_ACCESSES];
    int accesses = rules_accesses(r, main, access, RULES_ACCESSES), mine = rules_axis_labelled(r, main, axis);
    if (!rules_is_contraction(r, main)) return axis < v;
    bool outside = mine >= 0;
    for (int i = 0; i < accesses && mine >= 0; i++)
        outside = outside && (!rules_depends(&access[i], t->v) || rules_depends(&access[i], mine));
    return outside;
}

/* With the loop over panels inside, the broadcast operand is streamed from beyond L2 once, and the panels once per row if they exceed L2. With it
 * outside, the panels are streamed once, and the broadcast operand once per panel if it exceeds L2. */
bool rules_panels_inside(rules *r, const tir_stage *owner, int main, const rules_tile_shape *t, int v, int u,
                         int64_t panels, double pieces) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, main, access, RULES_ACCESSES);
    double along = 0, broadcast = 0, rows = 1, l2 = (double)r->machine->l2;
    for (int i = 0; i < count; i++) {
        double bytes = rules_tensor_bytes(r, &r->region->tensors.data[access[i].tensor]);
        if (rules_depends(&access[i], t->v))
            along += bytes;
        else
            broadcast += bytes;
    }
    for (int a = 0; a < owner->space; a++)
        if (a != v && a != u && !is_outside_panels(r, main, t, v, a))
            rows *= (double)rules_known_extent(r, &owner->axis[a]);
    double inside = broadcast + (along > r->machine->rates.kept * l2 ? along * rows : along);
    double outside = along + (broadcast > l2 ? broadcast * pieces * (double)panels : broadcast);
    return rows > 1 && inside < outside;
}

/* Do axes inside of the panels' loop have rows of their own? */
static bool has_rows_of_inner_axes(rules *r, int main, const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[main];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, main, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        for (int a = 0; a < stage->space; a++)
            if (a != t->u && a != t->v && rules_depends(&access[i], t->v) && !rules_depends(&access[i], a)) return true;
    return false;
}

/* The largest divisor of m in the upper half of the numbers up to `most`; 0: there is none. */
static int64_t large_divisor(int64_t m, int64_t most) {
    int64_t block = most, half = most / 2;
    while (block > half && m % block) block--;
    return block > half ? block : 0;
}

/* Rows that exceed L2 stream from L3, which the rules take to be hidden by arithmetic; where L3 is slow, it is not (Emerald Rapids: 768x768x768
 * 6.09 ms, in blocks of 384 rows 5.51). Doubts that all rows are one block, and names whole tiles that L2 holds. */
static void doubt_all_rows(rules *r, int main, const rules_tile_shape *t, int64_t m) {
    enum { LEAST = 8 /* tiles in a block */ };
    const double all = rules_slice_bytes(r, main, t, false, t->u), l2 = (double)r->machine->l2;
    if (all <= l2) return;
    for (int64_t block = (int64_t)(r->machine->rates.kept * l2 / all * (double)m) / t->mr * t->mr;
         block >= LEAST * t->mr; block -= t->mr) {
        if (m % block) continue;
        tir_doubt(r->schedule, r->region->stages.data[main].name, "block",
                  lib_arena_format(r->arena, "%lld", (long long)block));
        return;
    }
}

/* Of a contraction without predicate: number of rows in a block, over which all panels run before the next block; 0: all rows. The rows are
 * read again for each panel, the panels again for each block: their sizes, or rows in short, distant pieces, decide the block's cache level. */
static int64_t block_rows(rules *r, int main, const rules_tile_shape *t, int64_t n, int64_t m) {
    enum { L3_COST = 1, MEMORY_COST = 4 }; /* per byte of a panel: the first tile that reads it stalls */
    const double hidden = 1. / 32;         /* of L3_COST, for rows from L3: a tile's arithmetic hides the rest */
    enum { LEAST = 8, FEW = 4 };           /* tiles in a block, which share the start of a panel */
    if (has_rows_of_inner_axes(r, main, t)) return 0;
    double l2 = (double)r->machine->l2, l3 = (double)r->machine->l3;
    double rows = rules_slice_bytes(r, main, t, false, t->u), all = rules_slice_bytes(r, main, t, true, t->v);
    double panels = (double)n / (double)t->nr, row = rows / (double)m;
    if (rules_rows_are_scattered(r, main, t->v, t->u)) { /* misses of L2 would not be hidden */
        const int64_t block = large_divisor(m, (int64_t)(l2 / 4 / row));
        if (block && block >= FEW * t->mr && block < m) return block;
    }
    if (rows <= l2 || rows + all <= l3) return 0; /* streaming from L3 is hidden */
    double best = panels * rows * (double)MEMORY_COST;
    int64_t chosen = 0;
    for (int level = 2; level <= 3; level++) {
        /* a remainder would double the versions of the tile */
        const int64_t block = large_divisor(m, (int64_t)((level == 2 ? l2 : l3 / 2) / row));
        if (!block || block < LEAST * t->mr || block >= m) continue;
        double cost = (double)m / (double)block * all * (all <= l3 ? L3_COST : MEMORY_COST);
        if (level == 3) cost += panels * rows * (double)L3_COST * hidden;
        if (cost >= 0.9 * best) continue;
        best = cost;
        chosen = block;
    }
    return chosen;
}

/* The owner's results and the operands that it loads at their positions along axis v (a residual, or the weights of an update; not the sums,
 * which are in registers). */
typedef struct tile_results {
    /* of all of them; of those at one position that move, a result being read, as a part of its line, and written */
    double bytes, moved;
} tile_results;

static tile_results results_of(rules *r, int owner, int main, int v) {
    const tir_stage *stage = &r->region->stages.data[owner];
    const tir_tensor *sums = &r->region->tensors.data[r->region->stages.data[main].tensor[0]];
    const int64_t stride = rules_store_stride(r, owner, v);
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, owner, access, RULES_ACCESSES);
    tile_results found = {0};
    for (int i = 0; i < stage->count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[stage->tensor[i]];
        found.bytes += rules_tensor_bytes(r, tensor);
        found.moved += 2 * (double)lib_dtype_size(tensor->dtype);
    }
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (tensor == sums || access[i].stride[v] != stride) continue;
        found.bytes += rules_tensor_bytes(r, tensor);
        found.moved += (double)lib_dtype_size(tensor->dtype);
    }
    return found;
}

/* Should the loop over rows be outside of the loop over panels, so that results are written in memory order? Only if the whole vector operand,
 * which is read again for each tile of rows, takes at most half of L2. */
static bool rows_first(rules *r, int main, const rules_tile_shape *t) {
    return rules_slice_bytes(r, main, t, true, t->v) <= (double)r->machine->l2 / 2;
}

/* May the order of rows_first pay although a part of the vector operand comes from L3? It does if the results go to main memory and reading
 * the panel again costs less than writing results by lines that are far apart, as it is with short sums. */
static bool streams_results(rules *r, int owner, int main, const rules_tile_shape *t, int v) {
    const tir_rates *rates = &r->machine->rates;
    const double operand = rules_slice_bytes(r, main, t, true, t->v), near = (double)r->machine->l2 / 2;
    const double panel = rules_slice_bytes(r, main, t, true, -1) * (double)t->nr * (1 - near / operand);
    const tile_results results = results_of(r, owner, main, v);
    const double moved = results.moved * (double)t->nr * (double)t->mr;
    return results.bytes > (double)r->machine->l3 && operand <= (double)r->machine->l3 / 2 &&
           panel / rates->bandwidth[2] < moved / rates->distant[3] - moved / rates->bandwidth[3];
}

/* Are rows of the owner's results whole pages apart, so that the lines of a column are in few sets of the caches? */
static bool rows_share_sets(rules *r, int owner, int u) {
    const tir_tensor *results = &r->region->tensors.data[r->region->stages.data[owner].tensor[0]];
    const int64_t stride = rules_store_stride(r, owner, u);
    return stride > 0 && stride * (int64_t)lib_dtype_size(results->dtype) % r->machine->page == 0;
}

/* Do all operands of the reduction depend on the owner's axis (a batch), or is it none of its own? */
static bool is_of_batch(rules *r, int main, int axis) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, main, access, RULES_ACCESSES), mine = rules_axis_labelled(r, main, axis);
    bool batch = true;
    for (int i = 0; i < count && mine >= 0; i++) batch = batch && rules_depends(&access[i], mine);
    return batch;
}

/* Do results along the owner's axis share cache lines, which results along the tile's columns and rows do not, and operands (the taps of a
 * gradient of weights)? If its loop is outside of the loops over tiles, each of its iterations moves the same lines, from beyond L2 if they
 * exceed it. */
static bool is_between_columns(rules *r, int owner, int main, int v, int u, int axis) {
    const tir_stage *stage = &r->region->stages.data[owner];
    const int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    const int64_t columns = rules_store_stride(r, owner, v), rows = u < 0 ? columns : rules_store_stride(r, owner, u);
    const int64_t stride = rules_store_stride(r, owner, axis);
    if (axis == v || axis == u || columns == RULES_IRREGULAR || rows == RULES_IRREGULAR) return false;
    if (stride <= 0 || stride >= r->machine->line / size || stride >= columns || stride >= rows) return false;
    return rules_known_extent(r, &stage->axis[axis]) > 1 && !is_of_batch(r, main, axis);
}

static bool has_between_columns(rules *r, int owner, int main, int v, int u) {
    bool found = false;
    for (int a = 0; a < r->region->stages.data[owner].space; a++)
        found = found || is_between_columns(r, owner, main, v, u, a);
    return found;
}

/* The order of the loops over panels and over rows. Between last: loops over axes whose results are between a tile's columns are inside of
 * both. */
typedef enum walk { WALK_PANELS_FIRST, WALK_PANELS_INSIDE, WALK_ROWS_FIRST, WALK_BETWEEN_LAST, WALKS } walk;

static const char *const walk_words[WALKS] = {"panels_first", "panels_inside", "rows_first", "between_last"};

typedef struct tile_loops {
    rules *r;
    /* the loops around the tile; NULL: the owner is a root */
    const rules_tile_place *place;
    /* the stage whose loops these are, and its number */
    const tir_stage *owner;
    int number;
    /* by stage: does it run in the tile? The reduction for which the tile was chosen */
    const bool *inside;
    int main;
    rules_tile_shape tile;
    /* axes of the owner along the tile's columns and rows, and their extents (-1: varying); u -1: none */
    int v, u;
    int64_t n, m;
    /* loops over panels and over tiles of rows (NULL: none), and over the columns and rows of a tile (ui NULL: none) */
    const char *vo, *uo, *vi, *ui;
    /* loop over groups of panels that are copied together; NULL: panels are copied one by one. Columns of a group */
    const char *vg;
    int64_t group;
    /* the loop vg was added: loops added from then on are inside of it, and so no tasks */
    bool in_group;
    walk walk;
    /* rows of a block, 0: all rows */
    int64_t block;
    /* the copy that is made panel by panel; NULL: none */
    const char *panels;
    /* the owner's order of loops, its tasks */
    lib_text order, parallel;
    /* innermost loop so far, at which members are attached; NULL: none */
    const char *last;
} tile_loops;

/* May the loop over tiles of rows be outside of that over panels? */
static bool may_have_rows_first(const tile_loops *l) {
    const rules_tile_shape *t = &l->tile;
    const bool many = l->u >= 0 && (l->m < 0 || l->m > t->mr);
    return many && (t->separate ? separate_first(l->r, l->owner, l->v, l->u) : !has_row_versions(l->r, l->main, t));
}

/* Should it be outside, if results are then written in memory order? `streamed`: streams_results. */
static bool is_rows_first(const tile_loops *l, bool streamed) {
    return l->tile.separate || rows_first(l->r, l->main, &l->tile) ||
           (streamed && rows_share_sets(l->r, l->number, l->u));
}

/* Chooses among the orders that are possible, `best` unless another one is pinned (tir/choice.h): rows first if `rows`,
 * between last if `between`. */
static walk choose_possible_walk(const tile_loops *l, walk best, bool rows, bool between) {
    const char *words[WALKS];
    walk walks[WALKS];
    int count = 0, chosen = 0;
    for (int w = 0; w < WALKS; w++) {
        if ((w == WALK_ROWS_FIRST && !rows) || (w == WALK_BETWEEN_LAST && !between)) continue;
        if (w == (int)best) chosen = count;
        words[count] = walk_words[w];
        walks[count++] = (walk)w;
    }
    const char *name = l->r->region->stages.data[l->main].name;
    return walks[tir_choose_word(l->r->schedule, name, "walk", count, words, chosen)];
}

static walk choose_walk(const tile_loops *l) {
    rules *r = l->r;
    const rules_tile_shape *t = &l->tile;
    const int owner = l->number, main = l->main, v = l->v, u = l->u;
    const bool contraction = rules_is_contraction(r, main), may = may_have_rows_first(l);
    walk best = WALK_PANELS_FIRST;
    const bool ordered = may && rules_store_stride(r, owner, v) == 1;
    const bool streamed = ordered && !t->separate && contraction && streams_results(r, owner, main, t, v);
    if (ordered && is_rows_first(l, streamed))
        best = WALK_ROWS_FIRST;
    else if (contraction && rules_panels_inside(r, l->owner, main, t, v, u, (l->n + t->nr - 1) / t->nr, 1))
        best = WALK_PANELS_INSIDE;
    if (!contraction) return best;
    const char *name = r->region->stages.data[main].name;
    const bool between = has_between_columns(r, owner, main, v, u);
    if (streamed && best != WALK_ROWS_FIRST) tir_doubt(r->schedule, name, "walk", walk_words[WALK_ROWS_FIRST]);
    if (between && results_of(r, owner, main, v).bytes > (double)r->machine->l2) best = WALK_BETWEEN_LAST;
    return choose_possible_walk(l, best, may, between);
}

static int64_t choose_block(rules *r, int main, const rules_tile_shape *t, int64_t n, int64_t m) {
    const tir_stage *stage = &r->region->stages.data[main];
    if (!rules_is_contraction(r, main) || stage->predicate || t->u < 0 || m < 0 || n < 0) return 0;
    const int64_t best = block_rows(r, main, t, n, m);
    if (!best) doubt_all_rows(r, main, t, m);
    return tir_choose_number(r->schedule, stage->name, "block", (tir_numbers){0, m, t->mr}, best);
}

/* ---- the stages in the tile */

/* Is a short loop of the reduction unrolled, because masks by its predicate then become compile-time facts? Those of a vector's steps do
 * where a row is one tile; if masks are expensive, it pays for other tiles, too. */
static bool is_unrolled(const rules *r, const tir_stage *stage, int a, const rules_tile_shape *t) {
    const int64_t extent = rules_extent(r, &stage->axis[a]);
    if (!stage->predicate || !tir_uses(r->region->pool, stage->predicate, stage->axis[a].var)) return false;
    if (rules_meets(r, stage, a, stage->axis[t->v].var)) {
        const int64_t columns = rules_extent(r, &stage->axis[t->v]);
        return extent > 0 && extent <= 8 && (!r->machine->masked || (t->u < 0 && columns >= 0 && columns <= t->nr));
    }
    return rules_unrolls_step(r, stage, a, t) && a != t->shared;
}

/* Clips loops of the reduction to the points that its predicate allows (of a padded image, those inside), and unrolls the short ones. */
static void clip_reduction(rules *r, int s, const rules_tile_shape *t, bool unrolled) {
    const tir_stage *stage = &r->region->stages.data[s];
    for (int a = stage->space; a < stage->space + stage->reduce && stage->predicate; a++) {
        if (!tir_uses(r->region->pool, stage->predicate, stage->axis[a].var)) continue;
        if (!rules_meets(r, stage, a, stage->axis[t->v].var) || rules_edges_cost(r, stage, t))
            tir_schedule_add(r->schedule, "clip %s.%s", stage->name, stage->axis[a].name);
        if (is_unrolled(r, stage, a, t) && !unrolled)
            tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
    }
}

/* The axes of the reduction, as bits, whose loops run inside of the loop over the tile's rows. */
static uint32_t inside_axes(const rules *r, const tir_stage *stage, const rules_tile_shape *t) {
    uint32_t axes = 0;
    for (int a = stage->space; a < stage->space + stage->reduce && t->steps_inside; a++)
        if (rules_unrolls_step(r, stage, a, t)) axes |= 1u << a;
    return axes;
}

/* A loop of the reduction, and its largest number of iterations, at most MANY. */
typedef struct step_loop {
    const char *name;
    int64_t trips;
    bool serial;
    /* whose points it goes through; -1: those of one block of an axis */
    int axis;
} step_loop;

typedef lib_vec(step_loop) step_loops;

static void add_step_loop(rules *r, step_loops *loops, const char *name, int64_t trips, bool serial, int axis) {
    enum { MANY = 1 << 24 };
    if (trips > MANY) trips = MANY;
    lib_vec_push(r->arena, loops, ((step_loop){name, trips, serial, axis}));
}

/* Adds the loops of those axes of the reduction that are in `axes`; an axis that is cut stands for its parts outside of the tile. */
static void add_step_loops(rules *r, step_loops *loops, const tir_stage *stage, const rules_tile_shape *t,
                           uint32_t axes) {
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        const int64_t trips = rules_extent_limit(r, &stage->axis[a]);
        if (!(axes >> a & 1)) continue;
        if (t->unit && a == t->unit_axis) {
            add_step_loop(r, loops, "s_o", (trips + tir_unit_width(t->unit) - 1) / tir_unit_width(t->unit), true, a);
        } else if (t->blocks_axis > 0 && a == t->blocks_axis) {
            add_step_loop(r, loops, "s_o", (trips + t->block - 1) / t->block, true, a);
            add_step_loop(r, loops, "s_i", t->block, true, -1);
        } else {
            add_step_loop(r, loops, stage->axis[a].name, trips, a != t->shared && !is_unrolled(r, stage, a, t), a);
        }
    }
}

static void order_steps(lib_text *order, const step_loops *loops, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) lib_text_format(order, " %s", loops->data[i].name);
}

/* The error of a sum in one accumulator grows with the number of its terms. So a long one is made of sums of parts: of the iterations of one of
 * its loops, as many as have about RULES_SUM_PART terms. What a part costs, a load, an addition and a store of each accumulator, is about one per cent of
 * its products. */
static void cut_long_sum(rules *r, const tir_stage *stage, const rules_tile_shape *t, const step_loops *loops) {
    const int64_t width = t->unit ? tir_unit_width(t->unit) : 1;
    int64_t all = width, inside = width;
    if (stage->exact || !stage->merge[0]) return;
    for (uint32_t i = 0; i < loops->count && all < 2 * RULES_SUM_PART; i++) all *= loops->data[i].trips;
    for (uint32_t i = loops->count; all >= 2 * RULES_SUM_PART && i-- > 0; inside *= loops->data[i].trips) {
        const step_loop *loop = &loops->data[i];
        int64_t steps = 1; /* a power of two: blocks in which an operand is stored are parts, or parts of these */
        while (3 * steps * inside <= 2 * RULES_SUM_PART) steps *= 2;
        if (!loop->serial || loop->trips <= steps) continue;
        tir_schedule_add(r->schedule, "partial %s.%s %lld", stage->name, loop->name, (long long)steps);
        return;
    }
}

uint32_t rules_skipped_axes(rules *r, int s) {
    const double LEAST = 8; /* iterations, of which some can be worth leaving out */
    const tir_stage *stage = &r->region->stages.data[s];
    const uint32_t all = ((1u << stage->reduce) - 1) << stage->space;
    const tir_expr counts = tir_skip_condition(r->region, s);
    uint32_t axes = 0;
    double steps = 1;
    for (int a = stage->space; a < stage->space + stage->reduce && counts; a++) {
        axes |= (uint32_t)tir_uses(r->region->pool, counts, stage->axis[a].var) << a;
        steps *= (double)rules_known_extent(r, &stage->axis[a]);
    }
    if (!counts || steps < LEAST || !tir_choose_yes(r->schedule, stage->name, "skip", true)) return 0;
    return axes ? axes : all;
}

/* Leaves out iterations in which no point of a tile counts. */
static void skip_steps(rules *r, int s, const step_loops *loops) {
    const tir_stage *stage = &r->region->stages.data[s];
    uint32_t axes = stage->predicate ? 0 : rules_skipped_axes(r, s);
    for (uint32_t i = 0; i < loops->count; i++) {
        const step_loop *loop = &loops->data[i];
        if (loop->serial && loop->axis >= 0 && axes >> loop->axis & 1)
            tir_schedule_add(r->schedule, "skip %s.%s", stage->name, loop->name);
    }
}

static void start_order(lib_text *order, lib_arena *arena, const tir_stage *stage, int v, int u) {
    lib_text_init(order, arena);
    for (int a = 0; a < stage->space; a++)
        if (a != v && a != u) lib_text_format(order, " %s", stage->axis[a].name);
}

/* The order of the reduction's loops: steps that share masks, other steps, the axis whose steps share loads, rows, steps inside of the rows,
 * vectors; and its parts. */
static void order_tile(rules *r, int s, int v, int u, const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    const uint32_t masking = rules_masking_axes(r, s, t), inside = inside_axes(r, stage, t);
    const uint32_t shared = t->shared < 0 ? 0 : 1u << t->shared, outside = ~inside & ~shared;
    step_loops loops = {0};
    lib_text order;
    start_order(&order, r->arena, stage, v, u);
    add_step_loops(r, &loops, stage, t, masking & outside);
    add_step_loops(r, &loops, stage, t, ~masking & outside);
    add_step_loops(r, &loops, stage, t, shared);
    const uint32_t around = loops.count;
    add_step_loops(r, &loops, stage, t, inside);
    order_steps(&order, &loops, 0, around);
    if (u >= 0) lib_text_format(&order, " %s", stage->axis[u].name);
    order_steps(&order, &loops, around, loops.count);
    lib_text_format(&order, " %s", stage->axis[v].name);
    if (t->unit) lib_text_add(&order, " s_i");
    tir_schedule_add(r->schedule, "order %s:%s", stage->name, order.data);
    cut_long_sum(r, stage, t, &loops);
    skip_steps(r, s, &loops);
}

void rules_attach_reduction(rules *r, int s, const char *owner, const char *loop, int v_label, int u_label,
                            const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int v = rules_axis_labelled(r, s, v_label), u = u_label < 0 ? -1 : rules_axis_labelled(r, s, u_label);
    const char *name = stage->name;
    tir_schedule *out = r->schedule;
    tir_schedule_add(out, "at %s %s.%s", name, owner, loop);
    if (rules_fits_registers(r, stage, v)) tir_schedule_add(out, "store %s reg", name);
    if (t->unit)
        tir_schedule_add(out, "split %s.%s %d -> s_o s_i mask", name, stage->axis[t->unit_axis].name,
                         tir_unit_width(t->unit));
    if (t->blocks_axis > 0)
        tir_schedule_add(out, "split %s.%s %lld -> s_o s_i mask", name, stage->axis[t->blocks_axis].name,
                         (long long)t->block);
    order_tile(r, s, v, u, t);
    if (t->unit)
        tir_schedule_add(out, "unit %s.s_i %s%s%s", name, t->unit->name, t->unit->deviations[0] ? " deviates " : "",
                         t->unit->deviations);
    tir_schedule_add(out, "vec %s.%s", name, stage->axis[v].name);
    if (u >= 0) tir_schedule_add(out, "unroll %s.%s", name, stage->axis[u].name);
    if (t->shared >= 0) tir_schedule_add(out, "unroll %s.%s", name, stage->axis[t->shared].name);
    const bool unrolled = rules_unroll_window(r, stage, t);
    if (stage->predicate) clip_reduction(r, s, t, unrolled);
    if (t->blocks_axis > 0)
        tir_schedule_add(out, "prefetch %s at %s.s_i %s.s_o+1 L1 shared", r->region->tensors.data[t->blocks].name, name,
                         name);
}

/* Attaches another stage at the tile's loop: in registers, if it has the axis of vectors. */
static void attach_other(rules *r, int s, const char *owner, const char *loop, int v_label, int u_label) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int v = rules_axis_labelled(r, s, v_label), u = u_label < 0 ? -1 : rules_axis_labelled(r, s, u_label);
    lib_text order;
    tir_schedule_add(r->schedule, "at %s %s.%s", stage->name, owner, loop);
    if (rules_fits_registers(r, stage, v)) tir_schedule_add(r->schedule, "store %s reg", stage->name);
    start_order(&order, r->arena, stage, v, u);
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        lib_text_format(&order, " %s", stage->axis[a].name);
    if (u >= 0) lib_text_format(&order, " %s", stage->axis[u].name);
    if (v >= 0) lib_text_format(&order, " %s", stage->axis[v].name);
    tir_schedule_add(r->schedule, "order %s:%s", stage->name, order.data ? order.data : "");
    if (v >= 0) tir_schedule_add(r->schedule, "vec %s.%s", stage->name, stage->axis[v].name);
    if (u >= 0) tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[u].name);
}

/* ---- the tile */

/* Finds the tile and the owner's loops that it covers; false: there is no tile. */
static bool find_tile(tile_loops *l, rules *r, int owner, const rules_tile_place *place) {
    *l = (tile_loops){.r = r, .place = place, .owner = &r->region->stages.data[owner], .number = owner};
    l->inside = rules_in_tile(r, owner);
    l->main = main_reduction(r, owner, l->inside);
    const rules_tile_shape *t = &l->tile;
    if (l->owner->kind != TIR_MAP || l->main < 0 || !rules_choose_tile(r, l->main, &l->tile)) return false;
    l->v = r->group[l->main].label[t->v];
    l->u = t->u < 0 ? -1 : r->group[l->main].label[t->u];
    if (l->v < 0 || (t->u >= 0 && l->u < 0)) return false;
    l->n = rules_stored_extent(r, owner, l->v);
    l->m = l->u < 0 ? 1 : rules_stored_extent(r, owner, l->u);
    l->vi = l->owner->axis[l->v].name;
    l->ui = l->u < 0 ? NULL : l->owner->axis[l->u].name;
    lib_text_init(&l->order, r->arena);
    lib_text_init(&l->parallel, r->arena);
    return true;
}

/* The tile is inside of other loops: sets the loops and extents of the owner's axes that remain for it. False: the loop along its vectors is
 * one of those outside. */
static bool enter_place(tile_loops *l) {
    const rules_tile_place *place = l->place;
    if (place->block_axis >= 0 && place->block_axis == l->u) {
        l->ui = place->block_loop;
        l->m = place->block_extent;
    } else if (l->u >= 0 && (place->prefix_axes >> l->u & 1)) {
        l->u = -1; /* nothing of it remains inside */
        l->ui = NULL;
    }
    if (place->block_axis == l->v) {
        l->vi = place->block_loop;
        l->n = place->block_extent;
    }
    lib_text_add(&l->order, place->prefix);
    l->last = place->prefix_last;
    return !(place->prefix_axes >> l->v & 1);
}

/* Does the copy of panels read an operand beyond L2 in pieces that the hardware does not prefetch, and convert nothing? */
static bool copies_far_pieces(const tile_loops *l) {
    enum { FLOAT = 4 /* bytes: narrower elements are converted, which takes longer than to read them */ };
    rules *r = l->r;
    rules_access access[RULES_ACCESSES];
    if (!tir_prefetches_few(r->machine)) return false;
    if (rules_accesses(r, rules_stage_named(r, l->panels), access, RULES_ACCESSES) != 1) return false;
    const tir_tensor *source = &r->region->tensors.data[access[0].tensor];
    return lib_dtype_size(source->dtype) >= FLOAT && rules_tensor_bytes(r, source) > (double)r->machine->l2;
}

/* Columns whose panels are copied together, so that the copy reads longer pieces of rows: 256 bytes (Zen 3: 128x1024x1024 6.7 -> 5.3 ms,
 * 100x3001x700 10.1 -> 8.1). L2 holds them while all rows are multiplied. */
static int64_t choose_group(const tile_loops *l) {
    enum { PIECE = 256, MOST = 8 };
    rules *r = l->r;
    const tir_stage *main = &r->region->stages.data[l->main];
    const double panel = rules_slice_bytes(r, l->main, &l->tile, true, -1) * (double)l->tile.nr;
    const int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[main->tensor[0]].dtype), nr = l->tile.nr;
    const bool longer = copies_far_pieces(l);
    int64_t panels = 1;
    while (longer && 2 * panels <= MOST && 2 * panels * nr * size <= PIECE &&
           (double)(2 * panels) * panel <= r->machine->rates.kept * (double)r->machine->l2 &&
           2 * panels * nr * TASKS * r->threads <= l->n)
        panels *= 2;
    return nr * tir_choose_power(r->schedule, main->name, "together", 1, MOST, panels);
}

/* Does one tile cover all columns? */
static bool is_one_wide(const tile_loops *l) {
    return l->n >= 0 && l->n <= l->tile.nr;
}

static void split_columns(tile_loops *l) {
    const rules_tile_shape *t = &l->tile;
    if (is_one_wide(l) && !t->full) return;
    if (l->panels && l->n >= 0) l->group = choose_group(l);
    if (l->group > t->nr) {
        tir_schedule_add(l->r->schedule, "split %s.%s %lld -> v_g v_t %s", l->owner->name, l->vi, (long long)l->group,
                         rules_tail_of_tasks(l->r, l->n, l->group));
        l->vg = "v_g";
        l->vi = "v_t";
    }
    const bool peel = t->peel && (l->n < 0 ? !rules_ends_by_data(l->r) : l->n % t->nr != 0);
    tir_schedule_add(l->r->schedule, "split %s.%s %lld -> v_o v_i %s", l->owner->name, l->vi, (long long)t->nr,
                     peel      ? "peel"
                     : t->full ? "mask full"
                               : "mask");
    l->vo = "v_o";
    l->vi = "v_i";
}

/* Does the loop over the axis belong inside of the loops over tiles? */
static bool is_last(const tile_loops *l, int axis) {
    return l->walk == WALK_BETWEEN_LAST && is_between_columns(l->r, l->number, l->main, l->v, l->u, axis);
}

/* Tasks of the loops outside of those over tiles of rows. */
static double count_tasks(const tile_loops *l) {
    double tasks = l->block ? (double)l->m / (double)l->block : 1;
    if (l->vo && l->walk != WALK_ROWS_FIRST) tasks *= ceil((double)l->n / (double)(l->vg ? l->group : l->tile.nr));
    for (int a = 0; a < l->owner->space; a++)
        if (a != l->v && a != l->u && !is_last(l, a)) tasks *= (double)rules_known_extent(l->r, &l->owner->axis[a]);
    return tasks;
}

/* Rows of a block if panels, which are copied in the loop over them, are too few tasks for the threads: so many that a panel's copy, made anew
 * for each block, costs little. 0: all rows. */
static int64_t shared_rows(const tile_loops *l) {
    enum { LEAST = 16 }; /* tiles */
    const int threads = l->r->threads;
    const double wanted = (double)(TASKS * threads) / count_tasks(l);
    if (threads == 1 || wanted <= 1 || l->u < 0 || l->m < 2 * LEAST * l->tile.mr) return 0;
    const int64_t least = LEAST * l->tile.mr, share = (int64_t)((double)l->m / wanted);
    const int64_t block = large_divisor(l->m, share < least ? least : share);
    return block >= least / 2 && block < l->m ? block : 0;
}

/* Chooses the order of the loops over panels and rows, and blocks of rows. */
static void choose_order(tile_loops *l) {
    rules *r = l->r;
    const rules_tile_shape *t = &l->tile;
    l->walk = l->vo && is_one_wide(l) && !l->panels ? WALK_ROWS_FIRST : WALK_PANELS_FIRST;
    if (l->place) return;
    if (l->panels) l->block = shared_rows(l);
    if (l->panels || !l->vo || is_one_wide(l)) return;
    l->walk = choose_walk(l);
    if (l->walk < WALK_ROWS_FIRST) l->block = choose_block(r, l->main, t, l->n, l->m);
}

static void split_rows(tile_loops *l) {
    const rules_tile_shape *t = &l->tile;
    tir_schedule *out = l->r->schedule;
    if (l->block) {
        tir_schedule_add(out, "split %s.%s %lld -> u_b u_r mask", l->owner->name, l->ui, (long long)l->block);
        l->ui = "u_r";
    }
    if (l->u < 0 || (l->m >= 0 && l->m <= t->mr)) return;
    tir_schedule_add(out, "split %s.%s %lld -> u_o u_i %s", l->owner->name, l->ui, (long long)t->mr,
                     l->m < 0 ? "peel" : "balanced");
    l->uo = "u_o";
    l->ui = "u_i";
}

static void add_loop(tile_loops *l, const char *loop, bool parallel) {
    lib_text_format(&l->order, " %s", loop);
    if (parallel && !l->in_group) lib_text_format(&l->parallel, " %s.%s", l->owner->name, loop);
    l->in_group = l->in_group || loop == l->vg;
    l->last = loop;
}

/* Is the loop over tiles of separate rows outside of that over another axis, in the order of the axes in memory? Rows that are distant
 * then are as many streams, which the tiles follow. */
static bool has_distant_rows(const tile_loops *l) {
    bool inside = false;
    for (int a = l->u + 1; a < l->owner->space; a++)
        inside = inside || (a != l->v && rules_known_extent(l->r, &l->owner->axis[a]) > 1);
    return l->uo && l->tile.separate && !l->place && inside;
}

/* Adds the loops over the owner's axes on which all vector operands depend (`outside` of panels), or over the others. */
static void add_other_axes(tile_loops *l, bool outside) {
    const rules_tile_place *place = l->place;
    for (int a = 0; a < l->owner->space; a++) {
        if (outside && a == l->u && has_distant_rows(l)) add_loop(l, l->uo, true);
        if (a == l->v || a == l->u || is_last(l, a) || (place && (place->prefix_axes >> a & 1))) continue;
        const char *loop = place && a == place->block_axis ? place->block_loop : l->owner->axis[a].name;
        if (is_outside_panels(l->r, l->main, &l->tile, l->v, a) == outside) add_loop(l, loop, !place);
    }
}

/* Adds the owner's outer loops, outermost first: axes on which all vector operands depend, blocks of rows, panels (unless rows are first, or
 * panels inside), then the other axes, during which a panel stays in cache. Those of a root are tasks. */
static void add_outer_loops(tile_loops *l) {
    const rules_tile_place *place = l->place;
    for (int round = 0; round < 2; round++) {
        add_other_axes(l, round == 0);
        if (round == 0 && l->block) add_loop(l, "u_b", !place);
        const bool first = l->walk == WALK_PANELS_FIRST || l->walk == WALK_BETWEEN_LAST;
        const bool here = round == 0 ? first : l->walk == WALK_PANELS_INSIDE;
        if (here && l->vg) add_loop(l, l->vg, !place);
        if (here && l->vo) add_loop(l, l->vo, !place);
    }
}

/* Adds the loops over tiles of rows, over panels if rows are first, and those inside of both. */
static void add_tile_loops(tile_loops *l) {
    const rules_tile_shape *t = &l->tile;
    const bool first = l->walk == WALK_ROWS_FIRST;
    const bool last = l->walk == WALK_BETWEEN_LAST && !has_row_versions(l->r, l->main, t);
    const int threads = l->r->threads;
    const bool few = threads > 1 && !has_row_versions(l->r, l->main, t) && count_tasks(l) < TASKS * threads;
    if (l->uo && !has_distant_rows(l))
        add_loop(l, l->uo, !l->place && (((first || last) && !t->separate) || few || !l->parallel.length));
    for (int a = 0; a < l->owner->space; a++)
        if (is_last(l, a)) add_loop(l, l->owner->axis[a].name, false);
    if (first) add_loop(l, l->vo, !t->separate && threads > 1 && !is_one_wide(l) && l->m / t->mr < TASKS * threads);
}

/* If the tile covers everything: adds a loop of one iteration to attach members at. */
static void add_single_loop(tile_loops *l) {
    const bool rows = l->u >= 0;
    if (l->last) return;
    tir_schedule_add(l->r->schedule, "split %s.%s %lld -> w_o w_i mask", l->owner->name, rows ? l->ui : l->vi,
                     (long long)(rows ? l->m : l->n));
    *(rows ? &l->ui : &l->vi) = "w_i";
    add_loop(l, "w_o", false);
}

/* Writes the owner's order, its tasks and its vectors. `across`: vectors run along the rows. */
static void order_owner(tile_loops *l, bool across) {
    const char *name = l->owner->name;
    tir_schedule *out = l->r->schedule;
    if (l->ui && !across) lib_text_format(&l->order, " %s", l->ui);
    lib_text_format(&l->order, " %s", l->vi);
    if (across) lib_text_format(&l->order, " %s", l->ui);
    tir_schedule_add(out, "order %s:%s", name, l->order.data);
    if (l->parallel.length && l->tile.cycles >= (double)SHARED * l->r->machine->rates.join)
        tir_schedule_add(out, "par%s", l->parallel.data);
    if (l->vo && !l->vg && l->tile.apart && !l->tile.peel) tir_schedule_add(out, "clip %s.%s", name, l->vo);
    tir_schedule_add(out, "vec %s.%s", name, across ? l->ui : l->vi);
    if (l->ui && !across) tir_schedule_add(out, "unroll %s.%s", name, l->ui);
}

/* Have all tiles the same height, so that each step can prefetch a part of the same length? */
static bool are_alike(const tile_loops *l) {
    const int64_t mr = l->tile.mr, block = l->block ? l->block : l->m, tiles = (block + mr - 1) / mr;
    return block > 0 && block % tiles == 0 && l->m % block == 0;
}

static void attach_members(tile_loops *l, int transposed) {
    rules *r = l->r;
    const char *name = l->owner->name;
    for (int s = 0; s < l->number; s++) {
        if (!l->inside[s]) continue;
        if (transposed >= 0 && s >= transposed)
            rules_attach_transposed(r, s, name, l->last, l->vi, l->v, l->u);
        else if (s == l->main)
            rules_attach_reduction(r, s, name, l->last, l->v, l->u, &l->tile);
        else
            attach_other(r, s, name, l->last, l->v, l->u);
    }
}

bool rules_tile_in(rules *r, int owner, const rules_tile_place *place) {
    tile_loops l;
    if (!find_tile(&l, r, owner, place) || (place && !enter_place(&l))) return false;
    const int transposed = rules_transposed_copy(r, owner);
    if (!place) l.panels = rules_panels_of(r, r->region->stages.data[l.main].name);
    split_columns(&l);
    choose_order(&l);
    split_rows(&l);
    add_outer_loops(&l);
    add_tile_loops(&l);
    if (l.panels) rules_attach_panels(r, l.panels, l.owner->name, l.vg ? l.vg : l.vo);
    add_single_loop(&l);
    order_owner(&l, transposed >= 0);
    if (!place && are_alike(&l)) rules_fetch_next_block(r, l.main, &l.tile);
    attach_members(&l, transposed);
    if (!place && l.vo && !l.panels && !is_one_wide(&l))
        rules_fetch_columns(r, l.main, &l.tile, l.owner->name, l.vo, l.walk == WALK_PANELS_FIRST);
    if (!place && l.uo) rules_fetch_rows(r, l.main, &l.tile, l.owner->name, l.uo);
    if (!place && l.uo && (l.walk == WALK_ROWS_FIRST || !l.vo))
        rules_fetch_next_rows(r, l.main, &l.tile, l.owner->name, l.uo);
    if (place && (l.u < 0 || l.m >= 0)) rules_fetch_next_rows(r, l.main, &l.tile, place->rows_stage, place->rows_loop);
    if (!place) rules_fetch_tile(r, l.main, owner, l.inside, &l.tile, l.last);
    return true;
}

int64_t rules_columns_along(rules *r, int owner, int axis) {
    const int main = main_reduction(r, owner, rules_in_tile(r, owner));
    rules_tile_shape t;
    if (main < 0 || !rules_choose_tile(r, main, &t)) return 0;
    return r->group[main].label[t.v] == axis ? t.nr : 0;
}

bool rules_tile(rules *r, int root) {
    int *members;
    const int count = rules_members(r, root, &members);
    if (rules_is_in_blocks(r, root)) return false;
    for (int i = 0; i < count; i++)
        if (!rules_pointwise(r, members[i]) || rules_role_of(r, members[i]) == RULES_CUT_SUMS) return false;
    return r->region->stages.data[root].space > 0 && rules_tile_in(r, root, NULL);
}
