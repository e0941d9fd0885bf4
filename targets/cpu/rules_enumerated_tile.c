/* Groups of maps with values of their own at each position in a small tile (TIR_PICK: the linear transforms of Winograd's convolutions): the
 * positions of a tile are unrolled (axes of positions, or axes split by the tile), so that of each pick one value is left. Vectors run along
 * the axis that is contiguous in most operands; an operand that is not contiguous there is first copied with that axis last, because it is
 * read several times. */
#include "targets/cpu/rules.h"

enum { MOST_POSITIONS = 8, SPARE_REGISTERS = 8, TASK_POINTS = 4096 };

typedef struct positions {
    /* by axis: positions in a tile; 0: no such axis */
    int64_t period[TIR_MAX_AXES];
    /* the position picks a value */
    bool picks[TIR_MAX_AXES];
    /* some axis picks */
    bool any;
} positions;

typedef struct position_search {
    const tir_stage *stage;
    positions *found;
} position_search;

/* The axis that `e` is, or whose remainder by *divisor it is (*divisor 0: no remainder); -1: neither. */
static int axis_of(const tir_pool *pool, const tir_stage *stage, tir_expr e, int64_t *divisor) {
    const tir_node *node = tir_get(pool, e);
    *divisor = 0;
    if (node->op == TIR_REM && tir_is_const(pool, tir_operand(pool, e, 1), divisor)) e = tir_operand(pool, e, 0);
    for (int a = 0; a < stage->space; a++)
        if (stage->axis[a].var == e) return a;
    return -1;
}

static tir_expr meet_position(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    position_search *search = user;
    const tir_op op = tir_op_of(pool, e);
    int64_t divisor = 0, extent;
    if (op != TIR_PICK && op != TIR_REM) return rebuilt;
    const int axis = axis_of(pool, search->stage, op == TIR_PICK ? tir_operand(pool, e, 0) : e, &divisor);
    if (axis < 0 || !tir_is_const(pool, search->stage->axis[axis].extent, &extent)) return rebuilt;
    const int64_t period = divisor ? divisor : extent;
    if (period > MOST_POSITIONS) return rebuilt;
    search->found->period[axis] = period;
    search->found->picks[axis] = search->found->picks[axis] || op == TIR_PICK;
    search->found->any = search->found->any || op == TIR_PICK;
    return rebuilt;
}

static positions find_positions(const rules *r, int s) {
    positions found = {0};
    const tir_stage copy = r->region->stages.data[s];
    position_search search = {&copy, &found};
    for (int c = 0; c < copy.count; c++) tir_rewrite(r->region->pool, copy.value[c], meet_position, &search);
    return found;
}

/* ---- the group */

typedef struct tile_group {
    rules *r;
    /* root: number of the root; count: of members; v: the root's axis along which vectors run */
    int root, count, v;
    int *members;
    positions of_root;
} tile_group;

/* Suitability of the root's axis for vectors: number of accesses of the group that are contiguous along it. -1: a member lacks the axis, or
 * depends on positions along it; 0: most vectors would be gathered. */
static int count_contiguous(tile_group *g, int axis) {
    int score = rules_stores_vectors(g->r, g->root, axis) ? 1 : 0, all = 1;
    rules_access access[RULES_ACCESSES];
    for (int i = -1; i < g->count; i++) {
        int s = i < 0 ? g->root : g->members[i], mine = i < 0 ? axis : rules_axis_labelled(g->r, s, axis);
        if (mine < 0 || rules_positions(g->r, s) >> mine & 1) return -1;
        if (i >= 0) score += rules_stores_vectors(g->r, s, mine);
        all += i >= 0;
        int accesses = rules_accesses(g->r, s, access, RULES_ACCESSES);
        for (int k = 0; k < accesses; k++) score += access[k].stride[mine] == 1;
        for (int k = 0; k < accesses; k++) all += access[k].stride[mine] != 0;
    }
    return 2 * score < all ? 0 : score;
}

/* Can member s run once for each tile of the root? Only if s is no output, or has all of the root's axes outside of the tile: otherwise its
 * points would be stored repeatedly. */
static bool follows_root(const tile_group *g, int s) {
    const tir_stage *top = &g->r->region->stages.data[g->root];
    for (int a = 0; a < top->space && tir_has_output(g->r->region, s); a++) {
        int64_t extent = rules_extent(g->r, &top->axis[a]);
        if (extent != 1 && extent != g->of_root.period[a] && rules_axis_labelled(g->r, s, a) < 0) return false;
    }
    return true;
}

/* The root's axis outside of the tile that suits vectors best (count_contiguous); -1: none does. */
static int vector_axis(tile_group *g) {
    const tir_stage *top = &g->r->region->stages.data[g->root];
    int best = 0, v = -1;
    for (int a = 0; a < top->space; a++) {
        if (g->of_root.period[a] || rules_extent(g->r, &top->axis[a]) < 2) continue;
        int score = count_contiguous(g, a);
        if (score > best) v = a;
        if (score > best) best = score;
    }
    return v;
}

static bool find_group(rules *r, int root, tile_group *g) {
    const tir_stage *top = &r->region->stages.data[root];
    *g = (tile_group){.r = r, .root = root, .v = -1};
    g->count = rules_members(r, root, &g->members);
    if (top->kind != TIR_MAP || g->count == 0) return false;
    g->of_root = find_positions(r, root);
    bool told = g->of_root.any;
    for (int i = 0; i < g->count; i++) {
        const tir_stage *member = &r->region->stages.data[g->members[i]];
        const positions own = find_positions(r, g->members[i]);
        if (member->kind != TIR_MAP) return false;
        told = told || own.any;
        for (int a = 0; a < member->space; a++) { /* the root's axis has the same positions */
            int label = r->group[g->members[i]].label[a];
            if (label >= 0 && own.picks[a]) g->of_root.period[label] = own.period[a];
        }
    }
    for (int i = 0; i < g->count; i++) told = told && follows_root(g, g->members[i]);
    if (!told) return false;
    g->v = vector_axis(g);
    return g->v >= 0;
}

/* ---- operands that vectors would have to gather */

/* Is the tensor stored in blocks along the dimension already? */
static bool has_blocks(const tir_tensor *tensor, int dim) {
    const tir_layout_part *inner = tensor->layout.count ? &tensor->layout.part[tensor->layout.count - 1] : NULL;
    return inner && inner->dim == dim && inner->divisor == 1;
}

static bool copy_gathered(tile_group *g) {
    rules *r = g->r;
    rules_access access[RULES_ACCESSES];
    for (int i = 0; i < g->count; i++) {
        int s = g->members[i], v = rules_axis_labelled(r, s, g->v),
            count = rules_accesses(r, s, access, RULES_ACCESSES);
        tir_expr var = r->region->stages.data[s].axis[v].var;
        for (int k = 0; k < count; k++) {
            const tir_tensor *tensor = &r->region->tensors.data[access[k].tensor];
            const int dim = tir_sole_dimension(r->region, &access[k], var);
            if (tensor->stage >= 0 || tensor->output || dim < 0 || access[k].stride[v] == 1 || has_blocks(tensor, dim))
                continue;
            const char *name = rules_fresh_name(r, tensor->name, "_vectors");
            rules_rewrite(r, "copy %s -> %s", tensor->name, name);
            rules_lay_out_last(r, name, dim);
            return true;
        }
    }
    return false;
}

void rules_prepare_enumerated_tile(rules *r, int stage) {
    tile_group g;
    const char *name = r->region->stages.data[stage].name;
    while (r->group[stage].root == stage && find_group(r, stage, &g) && copy_gathered(&g))
        stage = rules_stage_named(r, name);
}

/* ---- loops */

/* Number of vectors of the member's values for one tile. */
static int64_t held_vectors(const tile_group *g, int s) {
    const tir_stage *stage = &g->r->region->stages.data[s];
    int64_t vectors = 1;
    for (int a = 0; a < stage->space; a++) {
        int label = g->r->group[s].label[a];
        bool outer = label >= 0 && !g->of_root.period[label];
        if (!outer) vectors *= rules_extent(g->r, &stage->axis[a]);
    }
    return vectors;
}

/* Attaches the member at the tile's loop: loops that are no positions first, then the positions, vectors innermost. */
static void attach_member(tile_group *g, int s, const char *loop) {
    rules *r = g->r;
    const tir_stage *stage = &r->region->stages.data[s];
    const positions own = find_positions(r, s);
    int v = rules_axis_labelled(r, s, g->v);
    bool fits = held_vectors(g, s) <= r->machine->vector_registers - SPARE_REGISTERS && !rules_is_chosen_by_data(r, s);
    tir_schedule_add(r->schedule, "at %s %s.%s", stage->name, r->region->stages.data[g->root].name, loop);
    tir_schedule_add(r->schedule, "store %s %s", stage->name, fits ? "reg" : "stack");
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int round = 0; round < 2; round++)
        for (int a = 0; a < stage->space; a++)
            if (a != v && own.picks[a] == (round == 1)) lib_text_format(&order, " %s", stage->axis[a].name);
    tir_schedule_add(r->schedule, "order %s:%s %s", stage->name, order.data ? order.data : "", stage->axis[v].name);
    tir_schedule_add(r->schedule, "vec %s.%s", stage->name, stage->axis[v].name);
    for (int a = 0; a < stage->space; a++) {
        int label = r->group[s].label[a];
        if (a != v && (label < 0 || g->of_root.period[label]) && rules_extent(r, &stage->axis[a]) <= MOST_POSITIONS)
            tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
    }
}

/* Has the root's axis a loop over tiles: is it neither that of vectors, nor one whose points are a tile's positions? */
static bool has_tile_loop(const tile_group *g, int axis) {
    const tir_stage *top = &g->r->region->stages.data[g->root];
    const int64_t period = g->of_root.period[axis];
    return axis != g->v && (!period || rules_extent(g->r, &top->axis[axis]) != period);
}

bool rules_enumerated_tile(rules *r, int root) {
    tile_group g;
    if (!find_group(r, root, &g)) return false;
    const tir_stage *top = &r->region->stages.data[root];
    const char *name = top->name, *inner[TIR_MAX_AXES];
    rules_nest nest = {.r = r, .stage = top};
    int64_t lanes = rules_lanes(r, root), extent = rules_extent(r, &top->axis[g.v]), points = extent;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < top->space; a++) {
        inner[a] = g.of_root.period[a] ? top->axis[a].name : NULL;
        if (has_tile_loop(&g, a) && rules_extent(r, &top->axis[a]) < 0) return false;
    }
    for (int a = 0; a < top->space; a++) {
        int64_t size = rules_extent(r, &top->axis[a]), period = g.of_root.period[a];
        if (period) points *= period;
        if (!has_tile_loop(&g, a)) continue;
        const char *loop = top->axis[a].name;
        if (period) {
            tir_schedule_add(r->schedule, "split %s.%s %lld -> p%d_o p%d_i mask", name, loop, (long long)period, a, a);
            loop = lib_arena_format(r->arena, "p%d_o", a);
            inner[a] = lib_arena_format(r->arena, "p%d_i", a);
            size = (size + period - 1) / period;
        }
        rules_add_loop(&nest, loop, size, period != 0);
        lib_text_format(&order, " %s", loop);
    }
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i mask", name, top->axis[g.v].name, (long long)lanes);
    lib_text_add(&order, " v_o"); /* the loop at which members are attached, possibly of one iteration */
    for (int a = 0; a < top->space; a++)
        if (inner[a]) lib_text_format(&order, " %s", inner[a]);
    tir_schedule_add(r->schedule, "order %s:%s v_i", name, order.data);
    rules_form_tasks(&nest, points, TASK_POINTS);
    tir_schedule_add(r->schedule, "vec %s.v_i", name);
    for (int a = 0; a < top->space; a++)
        if (inner[a]) tir_schedule_add(r->schedule, "unroll %s.%s", name, inner[a]);
    for (int i = 0; i < g.count; i++) attach_member(&g, g.members[i], "v_o");
    return true;
}
