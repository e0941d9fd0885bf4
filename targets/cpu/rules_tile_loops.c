/* The loops around a register tile: their order, which of them are tasks of the threads, and blocks of rows that stay in cache. */
#include "targets/cpu/rules_tile.h"

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

typedef struct tile_loops {
    rules *r;
    const tir_stage *owner;
    lib_text order, parallel;
    /* loop that members are attached at */
    const char *last;
} tile_loops;

static void add_loop(tile_loops *loops, const char *loop, bool parallel) {
    lib_text_format(&loops->order, " %s", loop);
    if (parallel) lib_text_format(&loops->parallel, " %s.%s", loops->owner->name, loop);
    loops->last = loop;
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

/* Should the loop over rows be outside of the loop over panels, so that results are written in memory order? Only if the whole vector operand
 * takes at most half of L2. */
static bool rows_first(rules *r, int main, const rules_tile_shape *t) {
    return rules_slice_bytes(r, main, t, true, t->v) <= (double)r->machine->l2 / 2;
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

double rules_tensor_bytes(const rules *r, const tir_tensor *tensor) {
    double bytes = (double)lib_dtype_size(tensor->dtype);
    for (int d = 0; d < tensor->rank; d++) {
        int64_t extent = 0;
        bytes *= tir_is_const(r->region->pool, tensor->extent[d], &extent) ? (double)extent : 4096;
    }
    return bytes;
}

/* Of a contraction: should the loop over panels be inside the loops over rows? Inside, the broadcast operand is streamed from beyond L2 once,
 * and the panels once per row if they exceed L2. Outside, the panels are streamed once, and the broadcast operand once per panel if it
 * exceeds L2. */
static bool panels_inside(rules *r, const tir_stage *owner, int main, const rules_tile_shape *t, int v, int u,
                          int64_t panels) {
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
    double outside = along + (broadcast > l2 ? broadcast * (double)panels : broadcast);
    return rows > 1 && inside < outside;
}

/* Of a contraction without predicate: number of rows in a block, over which all panels run before the next block; 0: all rows. The rows are
 * read again for each panel, the panels again for each block: their sizes, or rows in short, distant pieces, decide the block's cache level. */
static int64_t block_rows(rules *r, int main, const rules_tile_shape *t, int64_t n, int64_t m) {
    enum { L3_COST = 1, MEMORY_COST = 4 }; /* per byte of a panel: the first tile that reads it stalls */
    const double hidden = 1. / 32;         /* of L3_COST, for rows from L3: a tile's arithmetic hides the rest */
    enum { LEAST = 8, FEW = 4 };           /* tiles in a block, which share the start of a panel */
    const tir_stage *stage = &r->region->stages.data[main];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, main, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++) /* axes inside of the panels' loop have rows of their own */
        for (int a = 0; a < stage->space; a++)
            if (a != t->u && a != t->v && rules_depends(&access[i], t->v) && !rules_depends(&access[i], a)) return 0;
    double l2 = (double)r->machine->l2, l3 = (double)r->machine->l3;
    double rows = rules_slice_bytes(r, main, t, false, t->u), all = rules_slice_bytes(r, main, t, true, t->v);
    double panels = (double)n / (double)t->nr, row = rows / (double)m;
    if (rules_rows_are_scattered(r, main, t->v, t->u)) { /* misses of L2 would not be hidden */
        int64_t block = (int64_t)(l2 / 4 / row), half = block / 2;
        while (block > half && m % block) block--;
        if (block > half && block >= FEW * t->mr && block < m) return block;
    }
    if (rows <= l2 || rows + all <= l3) return 0; /* streaming from L3 is hidden */
    double best = panels * rows * (double)MEMORY_COST;
    int64_t chosen = 0;
    for (int level = 2; level <= 3; level++) {
        int64_t block = (int64_t)((level == 2 ? l2 : l3 / 2) / row), half = block / 2;
        while (block > half && m % block) block--; /* a remainder would double the versions of the tile */
        if (block <= half || block < LEAST * t->mr || block >= m) continue;
        double cost = (double)m / (double)block * all * (all <= l3 ? L3_COST : MEMORY_COST);
        if (level == 3) cost += panels * rows * (double)L3_COST * hidden;
        if (cost >= 0.9 * best) continue;
        best = cost;
        chosen = block;
    }
    return chosen;
}

/* The order of the loops over panels and over rows. */
typedef enum walk { WALK_PANELS_FIRST, WALK_PANELS_INSIDE, WALK_ROWS_FIRST } walk;

static walk choose_walk(rules *r, int owner, int main, const rules_tile_shape *t, int v, int u, int64_t n, int64_t m) {
    static const char *const orders[] = {"panels_first", "panels_inside", "rows_first"};
    const tir_stage *top = &r->region->stages.data[owner];
    const bool contraction = rules_is_contraction(r, main), many = u >= 0 && (m < 0 || m > t->mr);
    const bool may = many && (t->separate ? separate_first(r, top, v, u) : !has_row_versions(r, main, t));
    walk best = WALK_PANELS_FIRST;
    if (may && rules_store_stride(r, owner, v) == 1 && (t->separate || rows_first(r, main, t)))
        best = WALK_ROWS_FIRST;
    else if (contraction && panels_inside(r, top, main, t, v, u, (n + t->nr - 1) / t->nr))
        best = WALK_PANELS_INSIDE;
    if (!contraction) return best;
    return (walk)tir_choose_word(r->schedule, r->region->stages.data[main].name, "walk", may ? 3 : 2, orders,
                                 (int)best);
}

static int64_t choose_block(rules *r, int main, const rules_tile_shape *t, int64_t n, int64_t m) {
    const tir_stage *stage = &r->region->stages.data[main];
    if (!rules_is_contraction(r, main) || stage->predicate || t->u < 0 || m < 0 || n < 0) return 0;
    return tir_choose_number(r->schedule, stage->name, "block", (tir_numbers){0, m, t->mr},
                             block_rows(r, main, t, n, m));
}

/* Adds the owner's outer loops, outermost first: axes on which all vector operands depend, blocks of rows, panels, then the other axes,
 * during which a panel stays in cache. `inside`: the loop over panels is the last one instead. */
static void outer_axes(tile_loops *loops, const rules_tile_place *place, int main, const rules_tile_shape *t, int v,
                       int u, const char *block, const char *vo, bool inside) {
    for (int round = 0; round < 2; round++) {
        for (int a = 0; a < loops->owner->space; a++) {
            if (a == v || a == u || (place && (place->prefix_axes >> a & 1))) continue;
            const char *loop = place && a == place->block_axis ? place->block_loop : loops->owner->axis[a].name;
            if (is_outside_panels(loops->r, main, t, v, a) == (round == 0)) add_loop(loops, loop, !place);
        }
        if (round == 0 && block) add_loop(loops, block, !place);
        if (round == (inside ? 1 : 0) && vo) add_loop(loops, vo, !place);
    }
}

bool rules_tile_in(rules *r, int owner, const rules_tile_place *place) {
    const tir_stage *top = &r->region->stages.data[owner];
    const bool *inside = rules_in_tile(r, owner);
    int main = main_reduction(r, owner, inside);
    rules_tile_shape t;
    if (top->kind != TIR_MAP || main < 0 || !rules_choose_tile(r, main, &t)) return false;
    int v = r->group[main].label[t.v], u = t.u < 0 ? -1 : r->group[main].label[t.u];
    if (v < 0 || (t.u >= 0 && u < 0)) return false;
    int64_t n = rules_stored_extent(r, owner, v), m = u < 0 ? 1 : rules_stored_extent(r, owner, u);
    const char *name = top->name, *vo = NULL, *uo = NULL, *vi = top->axis[v].name,
               *ui = u < 0 ? NULL : top->axis[u].name;
    if (place && place->block_axis >= 0 && place->block_axis == u) {
        ui = place->block_loop;
        m = place->block_extent;
    } else if (place && u >= 0 && (place->prefix_axes >> u & 1)) {
        u = -1; /* nothing of it remains inside */
        ui = NULL;
    }
    if (place && (place->prefix_axes >> v & 1)) return false;
    if (place && place->block_axis == v) {
        vi = place->block_loop;
        n = place->block_extent;
    }
    if (n < 0 || n > t.nr) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i %s", name, vi, (long long)t.nr,
                         t.peel && (n < 0 ? !rules_ends_by_data(r) : n % t.nr != 0) ? "peel" : "mask");
        vo = "v_o";
        vi = "v_i";
    }
    const char *panels = place ? NULL : rules_panels_of(r, r->region->stages.data[main].name);
    const walk order = place || panels || !vo ? WALK_PANELS_FIRST : choose_walk(r, owner, main, &t, v, u, n, m);
    const bool first = order == WALK_ROWS_FIRST, last = order == WALK_PANELS_INSIDE;
    const int64_t rows = place || panels || first || !vo ? 0 : choose_block(r, main, &t, n, m);
    if (rows) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> u_b u_r mask", name, ui, (long long)rows);
        ui = "u_r";
    }
    if (u >= 0 && (m < 0 || m > t.mr)) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> u_o u_i %s", name, ui, (long long)t.mr,
                         m < 0 ? "peel" : "balanced");
        uo = "u_o";
        ui = "u_i";
    }
    tile_loops loops = {.r = r, .owner = top};
    lib_text_init(&loops.order, r->arena);
    lib_text_init(&loops.parallel, r->arena);
    if (place) lib_text_add(&loops.order, place->prefix);
    if (place) loops.last = place->prefix_last;
    outer_axes(&loops, place, main, &t, v, u, rows ? "u_b" : NULL, first ? NULL : vo, last);
    if (uo) add_loop(&loops, uo, !place && ((first && !t.separate) || !loops.parallel.length));
    if (first) add_loop(&loops, vo, !t.separate && r->threads > 1 && m / t.mr < TASKS * r->threads);
    if (panels) rules_attach_panels(r, panels, name, vo);
    if (!loops.last) { /* the tile covers everything: a loop of one iteration to attach at */
        tir_schedule_add(r->schedule, "split %s.%s %lld -> w_o w_i mask", name, u >= 0 ? ui : vi,
                         (long long)(u >= 0 ? m : n));
        if (u >= 0)
            ui = "w_i";
        else
            vi = "w_i";
        add_loop(&loops, "w_o", false);
    }
    const int transposed = rules_transposed_copy(r, owner);
    if (transposed >= 0)
        lib_text_format(&loops.order, " %s %s", vi, ui);
    else
        lib_text_format(&loops.order, ui ? " %s %s" : "%s %s", ui ? ui : "", vi);
    tir_schedule_add(r->schedule, "order %s:%s", name, loops.order.data);
    if (loops.parallel.length && t.cycles >= (double)SHARED * r->machine->rates.join)
        tir_schedule_add(r->schedule, "par%s", loops.parallel.data);
    tir_schedule_add(r->schedule, "vec %s.%s", name, transposed >= 0 ? ui : vi);
    if (ui && transposed < 0) tir_schedule_add(r->schedule, "unroll %s.%s", name, ui);
    int64_t block = rows ? rows : m, tiles = (block + t.mr - 1) / t.mr;
    bool alike = block > 0 && block % tiles == 0 &&
                 m % block == 0; /* all tiles have one height, so that each step prefetches a part of the same length */
    if (!place && alike) rules_fetch_next_block(r, main, &t);
    for (int s = 0; s < owner; s++) {
        if (!inside[s]) continue;
        if (transposed >= 0 && s >= transposed)
            rules_attach_transposed(r, s, name, loops.last, vi, v, u);
        else
            rules_attach_to_tile(r, s, name, loops.last, v, u, &t, s == main);
    }
    if (!place && vo && !first && !last && !panels) rules_fetch_panels(r, main, &t, name, vo);
    if (!place) rules_fetch_tile(r, main, owner, inside, &t, loops.last);
    return true;
}

bool rules_tile(rules *r, int root) {
    int *members = LIB_NEW_ARRAY(r->arena, int, r->region->stages.count + 1);
    int count = rules_members(r, root, members);
    for (int i = 0; i < count; i++)
        if (!rules_pointwise(r, members[i]) || rules_role_of(r, members[i]) == RULES_CUT_SUMS) return false;
    return r->region->stages.data[root].space > 0 && rules_tile_in(r, root, NULL);
}
