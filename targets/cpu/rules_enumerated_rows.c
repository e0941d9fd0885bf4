/* Passes over rows (butterflies of a Fourier transform): maps with axes whose points have values of their own (TIR_PICK), and each of which
 * reads whole rows of the map before it along other axes. The passes run one after the other on each row, in scratch of a task. Each pass
 * has vectors along its own most contiguous axis; its positions are unrolled, so that of each pick one value is left. The emitter
 * transposes stores across a pass' vectors in registers. */
#include "targets/cpu/rules.h"

enum { POSITIONS_MOST = 32, VECTORS_NEAR = 2, TASK_POINTS = 4096 };

/* ---- positions */

typedef struct enumeration {
    const tir_stage *stage;
    /* bit mask of the axes whose position picks a value */
    uint32_t axes;
} enumeration;

static tir_expr meet_pick(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    enumeration *found = user;
    for (int a = 0; a < found->stage->space && tir_op_of(pool, e) == TIR_PICK; a++)
        if (tir_operand(pool, e, 0) == found->stage->axis[a].var) found->axes |= 1u << a;
    return rebuilt;
}

uint32_t rules_positions(const rules *r, int s) {
    const tir_stage copy = r->region->stages.data[s];
    enumeration found = {.stage = &copy};
    uint32_t set = 0;
    if (copy.kind != TIR_MAP) return 0;
    for (int c = 0; c < copy.count; c++) tir_rewrite(r->region->pool, copy.value[c], meet_pick, &found);
    for (int a = 0; a < copy.space; a++) {
        const int64_t extent = rules_extent(r, &copy.axis[a]);
        if (found.axes >> a & 1 && extent >= 2 && extent <= POSITIONS_MOST) set |= 1u << a;
    }
    return set;
}

/* ---- the loops of one pass */

typedef struct pass {
    rules *r;
    /* the stage */
    int s;
    /* bit mask of the stage's axes that are loops outside of the pass */
    uint32_t outer;
    /* bit mask of its axes whose points are unrolled */
    uint32_t positions;
    /* its axis along which vectors run; -1: none */
    int v;
    /* name of the loop along v, if v was split; NULL: v itself */
    const char *along;
} pass;

/* Suitability of the axis for vectors: the number of accesses that are contiguous along it, or nearly so, times the number of lanes
 * used. */
static int64_t vector_score(rules *r, int s, int axis) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    int64_t score = 1, lanes = rules_lanes(r, s), extent = rules_extent(r, &r->region->stages.data[s].axis[axis]);
    int64_t stored = rules_store_stride(r, s, axis);
    for (int i = 0; i < count; i++) score += access[i].stride[axis] > 0 && access[i].stride[axis] <= VECTORS_NEAR;
    score += stored > 0 && stored <= VECTORS_NEAR ? count : 0;
    return score * (extent < 0 || extent > lanes ? lanes : extent);
}

static bool plan_pass(pass *p) {
    const tir_stage *stage = &p->r->region->stages.data[p->s];
    int64_t best = 0;
    p->positions = rules_positions(p->r, p->s) & ~p->outer;
    p->v = -1;
    for (int a = 0; a < stage->space; a++) {
        if ((p->outer | p->positions) >> a & 1 || rules_extent(p->r, &stage->axis[a]) == 1) continue;
        int64_t score = vector_score(p->r, p->s, a);
        if (score > best) p->v = a;
        if (score > best) best = score;
    }
    return p->v >= 0;
}

/* Writes the pass' order, of which *order holds the outer loops: plain axes, vectors, positions (the longest axis first: short ones share
 * the most). */
static void pass_loops(const pass *p, lib_text *order) {
    rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[p->s];
    const char *name = stage->name;
    int64_t extent = rules_extent(r, &stage->axis[p->v]), lanes = rules_lanes(r, p->s);
    for (int a = 0; a < stage->space; a++)
        if (a != p->v && !((p->outer | p->positions) >> a & 1)) lib_text_format(order, " %s", stage->axis[a].name);
    const char *vector = p->along ? p->along : stage->axis[p->v].name;
    if (extent < 0 || extent > lanes) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i mask", name, vector, (long long)lanes);
        lib_text_add(order, " v_o");
        vector = "v_i";
    }
    for (int64_t period = POSITIONS_MOST; period > 1; period--)
        for (int a = 0; a < stage->space; a++)
            if (p->positions >> a & 1 && rules_extent(r, &stage->axis[a]) == period)
                lib_text_format(order, " %s", stage->axis[a].name);
    lib_text_format(order, " %s", vector);
    tir_schedule_add(r->schedule, "order %s:%s", name, order->data);
    tir_schedule_add(r->schedule, "vec %s.%s", name, vector);
    for (int a = 0; a < stage->space; a++)
        if (p->positions >> a & 1) tir_schedule_add(r->schedule, "unroll %s.%s", name, stage->axis[a].name);
}

/* ---- the group */

/* Bit mask of the root's axes that all members have, and on whose position no stage depends. */
static uint32_t common_axes(rules *r, int root, const int *members, int count) {
    const tir_stage *top = &r->region->stages.data[root];
    uint32_t set = ((1u << top->space) - 1) & ~rules_positions(r, root);
    for (int i = 0; i < count; i++)
        for (int a = 0; a < top->space; a++) {
            int own = rules_axis_labelled(r, members[i], a);
            if (own < 0 || rules_positions(r, members[i]) >> own & 1) set &= ~(1u << a);
        }
    return set;
}

static bool plan_group(rules *r, int root, pass *plans, const int *members, int count) {
    const tir_stage *top = &r->region->stages.data[root];
    bool enumerated = rules_positions(r, root) != 0, own_axes = count == 0;
    for (int i = 0; i < count; i++) {
        const tir_stage *member = &r->region->stages.data[members[i]];
        if (member->kind != TIR_MAP) return false;
        uint32_t positions = rules_positions(r, members[i]);
        enumerated = enumerated || positions;
        for (int a = 0; a < member->space; a++) /* a member enumerates positions along the root's vector axis */
            own_axes = own_axes || (positions >> a & 1 && r->group[members[i]].label[a] >= 0);
    }
    if (!enumerated || !own_axes) return false;
    uint32_t common = count ? common_axes(r, root, members, count) : 0;
    plans[count] = (pass){.r = r, .s = root, .outer = common};
    for (int i = 0; i < count; i++) {
        plans[i] = (pass){.r = r, .s = members[i]};
        for (int a = 0; a < top->space; a++)
            if (common >> a & 1) plans[i].outer |= 1u << rules_axis_labelled(r, members[i], a);
    }
    for (int i = 0; i <= count; i++)
        if (!plan_pass(&plans[i])) return false;
    return true;
}

/* Schedules a single pass, of which the first loop is divided among tasks. */
static void single_pass(const pass *p) {
    const tir_stage *stage = &p->r->region->stages.data[p->s];
    lib_text order;
    lib_text_init(&order, p->r->arena);
    pass_loops(p, &order);
    for (int a = 0; a < stage->space; a++)
        if (a != p->v && !(p->positions >> a & 1)) {
            tir_schedule_add(p->r->schedule, "par %s.%s", stage->name, stage->axis[a].name);
            return;
        }
}

static void attach_pass(const pass *p, const char *root, const char *loop) {
    const tir_stage *stage = &p->r->region->stages.data[p->s];
    lib_text order;
    lib_text_init(&order, p->r->arena);
    for (int a = 0; a < stage->space; a++)
        if (p->outer >> a & 1) lib_text_format(&order, " %s", stage->axis[a].name);
    tir_schedule_add(p->r->schedule, "at %s %s.%s", stage->name, root, loop);
    tir_schedule_add(p->r->schedule, "store %s local", stage->name);
    pass_loops(p, &order);
}

bool rules_enumerated_rows(rules *r, int root) {
    const tir_stage *top = &r->region->stages.data[root];
    if (top->kind != TIR_MAP) return false;
    int *members, count = rules_members(r, root, &members);
    pass *plans = LIB_NEW_ARRAY(r->arena, pass, (size_t)count + 1), *last = &plans[count];
    if (!plan_group(r, root, plans, members, count)) return false;
    rules_nest nest = {.r = r, .stage = top};
    int64_t points = 1, length = rules_extent(r, &top->axis[last->v]);
    lib_text order;
    lib_text_init(&order, r->arena);
    if (!last->outer && count == 0) {
        single_pass(last);
        return true;
    }
    for (int a = 0; a < top->space; a++) {
        int64_t extent = rules_extent(r, &top->axis[a]);
        bool outside = last->outer >> a & 1;
        if (outside) rules_add_loop(&nest, top->axis[a].name, extent, false);
        if (outside) lib_text_format(&order, " %s", top->axis[a].name);
        if (!outside && points > 0) points = extent < 0 || extent > INT32_MAX ? -1 : points * extent;
    }
    if (!last->outer) { /* there is a single row */
        if (length < 1) return false;
        tir_schedule_add(r->schedule, "split %s.%s %lld -> row in_row mask", top->name, top->axis[last->v].name,
                         (long long)length);
        rules_add_loop(&nest, "row", 1, true);
        lib_text_add(&order, " row");
        last->along = "in_row";
    }
    pass_loops(last, &order);
    rules_form_tasks(&nest, points, TASK_POINTS);
    for (int i = 0; i < count; i++) attach_pass(&plans[i], top->name, nest.loop[nest.count - 1].name);
    return true;
}

/* ---- maps that must not be inlined */

/* Does a reader load map s at positions that are no axis of the reader? If s were inlined there, the positions could not be unrolled. */
bool rules_loses_positions(rules *r, int s) {
    uint32_t positions = rules_positions(r, s);
    rules_access access[RULES_ACCESSES];
    if (!positions) return false;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        const tir_stage *reader = &r->region->stages.data[q];
        int count = reader->removed ? 0 : rules_accesses(r, q, access, RULES_ACCESSES);
        for (int i = 0; i < count; i++) {
            if (r->region->tensors.data[access[i].tensor].stage != s) continue;
            for (int d = 0; d < r->region->stages.data[s].space; d++) {
                bool axis = false;
                for (int a = 0; a < reader->space + reader->reduce; a++)
                    axis = axis || tir_operand(r->region->pool, access[i].load, d) == reader->axis[a].var;
                if (positions >> d & 1 && !axis) return true;
            }
        }
    }
    return false;
}
