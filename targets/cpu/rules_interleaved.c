/* Interleaved rows: point k of a few rows v at k*V + v in memory (softmax along the middle axis of [1000, 512, 2]). Vectors along v would be
 * mostly empty, vectors along k or across all rows would be gathered. So lanes run along points and rows at once, which is contiguous: each
 * reduction has partial results [lane, v], halved lane by lane, and maps over the rows use the fused axis of k and v. Values of which
 * there is one for each row are in registers, and are spread over the lanes by permutations that are constant. */
#include "targets/cpu/rules.h"

enum {
    VECTORS = 4,     /* partial results of a row of steps, at least: they hide the latency of each other */
    STEPS_LEAST = 16 /* shorter rows end before the halving pays */
};

/* ---- reductions */

/* The reduction axis k for which the accesses that move with the reduction all have the points of v's rows interleaved: a stride of 1 along
 * v, and of v's extent along k. -1: there is none. */
static int interleaved_with(rules *r, const tir_stage *stage, int s, int v) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    const int64_t rows = rules_extent(r, &stage->axis[v]);
    int k = -1;
    if (count == RULES_ACCESSES) return -1;
    for (int i = 0; i < count; i++) {
        bool walked = false;
        int here = -1;
        for (int a = stage->space; a < stage->space + stage->reduce; a++) {
            walked = walked || access[i].stride[a] != 0;
            if (access[i].stride[a] == rows && rules_extent(r, &stage->axis[a]) != 1) here = a;
        }
        if (!walked) continue;
        if (here < 0 || access[i].stride[v] != 1 || (k >= 0 && k != here)) return -1;
        k = here;
    }
    return k;
}

/* Finds interleaved rows that the stage reduces: returns the axis of the rows and sets *k to the reduction axis of their points. -1: the
 * stage does not reduce such rows. */
static int find_rows(rules *r, int s, int *k) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->kind != TIR_REDUCE || !stage->merge[0] || !stage->reduce || stage->fold >= 0) return -1;
    if (rules_is_contraction(r, s) || rules_ends_by_data(r) || stage->space + 1 > DLC_MAX_RANK) return -1;
    for (int v = 0; v < stage->space; v++) {
        const int64_t rows = rules_extent(r, &stage->axis[v]);
        if (rows < 2 || rows >= rules_lanes(r, s) || (*k = interleaved_with(r, stage, s, v)) < 0) continue;
        if (stage->predicate && tir_uses(r->region->pool, stage->predicate, stage->axis[v].var)) return -1;
        const int64_t points = rules_extent(r, &stage->axis[*k]);
        return points < 0 || points >= STEPS_LEAST ? v : -1;
    }
    return -1;
}

bool rules_may_interleave(rules *r, int s) {
    int k;
    return find_rows(r, s, &k) >= 0;
}

bool rules_is_interleaved(rules *r, int s) {
    return rules_may_interleave(r, s) &&
           tir_choose_yes(r->schedule, r->region->stages.data[s].name, "interleaved", true);
}

/* The partial results, and the values of each level of the tree, are stored with axis v, of the rows, innermost. */
static void lay_out(rules *r, const char *name, int v) {
    const tir_stage *stage = &r->region->stages.data[rules_stage_named(r, name)];
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++)
        if (a != v && stage->axis[a].role != TIR_AXIS_LANE) lib_text_format(&order, "%s, ", stage->axis[a].name);
    const char *outer = order.length ? order.data : "", *row = stage->axis[v].name, *tensors[TIR_MAX_STATE];
    const int count = stage->count;
    for (int c = 0; c < count; c++) tensors[c] = r->region->tensors.data[stage->tensor[c]].name;
    for (int c = 0; c < count; c++) rules_rewrite(r, "layout %s (%slane, %s)", tensors[c], outer, row);
}

bool rules_prepare_interleaved(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int k = -1;
    const int v = find_rows(r, s, &k);
    if (v < 0 || !rules_is_interleaved(r, s)) return false;
    const char *name = stage->name, *part = rules_fresh_name(r, name, "_p");
    const int64_t rows = rules_extent(r, &stage->axis[v]), points = rules_extent(r, &stage->axis[k]);
    const int64_t registers = r->machine->vector_registers;
    const int64_t fit = registers / (VECTORS * stage->count), vectors = fit < VECTORS ? fit : VECTORS;
    int64_t lanes = 2;
    while (lanes * rows < vectors * rules_lanes(r, s) && (points < 0 || 2 * lanes <= points)) lanes *= 2;
    lib_vec_push(r->arena, &r->interleaved, ((rules_prepared){part, v}));
    rules_rewrite(r, "rfactor %s.%s %lld lanes -> %s lane step", name, stage->axis[k].name, (long long)lanes, part);
    rules_rewrite(r, "tree %s.lane", name);
    const char **levels = LIB_NEW_ARRAY(r->arena, const char *, r->region->stages.count + 1);
    int count = 0;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *level = &r->region->stages.data[q];
        if (level->removed || rules_axis_of(level, TIR_AXIS_LANE) < 0) continue;
        if (rules_end_of_tree(r, q) == rules_stage_named(r, name)) levels[count++] = level->name;
    }
    for (int i = 0; i < count; i++) lay_out(r, levels[i], v);
    return true;
}

/* ---- loops */

typedef struct plan {
    rules *r;
    int root;
    /* the root's axis of the rows; `shared`, bit a: all members run point by point along the root's axis a */
    int v;
    uint32_t shared;
} plan;

/* The axes of a stage that are not shared with the root: `row` of the rows, `other` of the points or lanes that lie outside it; -1:
 * none. */
typedef struct own_axes {
    int row, other;
} own_axes;

/* False: the stage cannot be part of the plan, as it has further axes that are not shared or does not store these two in this order, or is
 * of another kind. */
static bool find_own(const plan *p, int s, own_axes *own) {
    rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[s];
    const bool lanes = rules_axis_of(stage, TIR_AXIS_LANE) >= 0;
    *own = (own_axes){rules_axis_labelled(r, s, p->v), -1};
    if (stage->kind == TIR_SORT || stage->kind == TIR_SCATTER || stage->fold >= 0 || (stage->reduce && !lanes))
        return false;
    for (int a = 0; a < stage->space; a++) {
        const int label = r->group[s].label[a];
        if (a == own->row || rules_extent(r, &stage->axis[a]) == 1 || (label >= 0 && p->shared >> label & 1)) continue;
        if (own->other >= 0 || own->row < 0) return false;
        own->other = a;
    }
    if (own->other < 0) return true;
    const int64_t rows = rules_extent(r, &stage->axis[own->row]);
    return rules_store_stride(r, s, own->row) == 1 && rules_store_stride(r, s, own->other) == rows;
}

static bool find_plan(rules *r, int root, const int *members, int count, plan *p) {
    const tir_stage *top = &r->region->stages.data[root];
    own_axes own;
    *p = (plan){.r = r, .root = root, .v = -1};
    for (int i = 0; i < count; i++)
        for (uint32_t k = 0; k < r->interleaved.count; k++)
            if (rules_stage_named(r, r->interleaved.data[k].stage) == members[i])
                p->v = r->group[members[i]].label[r->interleaved.data[k].axis];
    if (p->v < 0) return false;
    for (int a = 0; a < top->space; a++) {
        bool all = a != p->v;
        for (int i = 0; i < count; i++) all = all && rules_axis_labelled(r, members[i], a) >= 0;
        p->shared |= (uint32_t)all << a;
    }
    bool good = find_own(p, root, &own);
    for (int i = 0; i < count; i++) good = good && find_own(p, members[i], &own);
    return good;
}

/* The innermost loop of a stage, over its own axes; name NULL: the stage has none of them. */
typedef struct own_loop {
    const char *name;
    /* -1: varying */
    int64_t extent;
} own_loop;

static own_loop order_loops(const plan *p, int s) {
    rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[s];
    own_axes own;
    lib_text order;
    lib_text_init(&order, r->arena);
    find_own(p, s, &own);
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (a != own.row && a != own.other) lib_text_format(&order, " %s", stage->axis[a].name);
    if (own.other >= 0) lib_text_format(&order, " %s", stage->axis[own.other].name);
    if (own.row >= 0) lib_text_format(&order, " %s", stage->axis[own.row].name);
    if (order.length) tir_schedule_add(r->schedule, "order %s:%s", stage->name, order.data);
    if (own.row < 0) return (own_loop){NULL, 1};
    const char *row = stage->axis[own.row].name;
    const int64_t rows = rules_extent(r, &stage->axis[own.row]);
    if (own.other < 0) return (own_loop){row, rows};
    const int64_t points = rules_extent(r, &stage->axis[own.other]);
    tir_schedule_add(r->schedule, "fuse %s.%s %s.%s -> f", stage->name, stage->axis[own.other].name, stage->name, row);
    return (own_loop){"f", points < 0 ? -1 : points * rows};
}

/* Vectorises the loop in blocks of whole vectors, so long that each lane belongs to the same row in every block. */
static void vectorise(const plan *p, int s, own_loop loop) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    const int64_t rows = rules_extent(p->r, &p->r->region->stages.data[p->root].axis[p->v]),
                  lanes = rules_lanes(p->r, s);
    int64_t block = lanes;
    while (block % rows != 0) block += lanes;
    while (block < VECTORS * lanes) block *= 2;
    rules_vectorise(p->r, stage->name, loop.name, loop.extent, block, "f_o", "f_i");
}

/* Are the stage's values kept in registers? Yes if there is one for each row, or for each row and lane. */
static bool in_registers(const plan *p, int s) {
    own_axes own;
    find_own(p, s, &own);
    return own.other < 0 || rules_axis_of(&p->r->region->stages.data[s], TIR_AXIS_LANE) == own.other;
}

static void attach(const plan *p, int s, const char *loop) {
    tir_schedule *out = p->r->schedule;
    const tir_stage *stage = &p->r->region->stages.data[s];
    const int step = rules_axis_of(stage, TIR_AXIS_STEP);
    tir_schedule_add(out, "at %s %s.%s", stage->name, p->r->region->stages.data[p->root].name, loop);
    const own_loop own = order_loops(p, s);
    if (in_registers(p, s)) tir_schedule_add(out, "store %s reg", stage->name);
    if (stage->predicate && step >= stage->space) /* only the last step has inactive lanes */
        tir_schedule_add(out, "clip %s.%s", stage->name, stage->axis[step].name);
    if (own.name && in_registers(p, s))
        tir_schedule_add(out, "vec %s.%s", stage->name, own.name);
    else if (own.name)
        vectorise(p, s, own);
}

/* Points that a stage computes in one iteration of the root's loop, at most; -1: varying. */
static int64_t points_of(const plan *p, const int *members, int count) {
    int64_t most = 1;
    for (int i = -1; i < count; i++) {
        const int s = i < 0 ? p->root : members[i];
        const tir_stage *stage = &p->r->region->stages.data[s];
        int64_t points = 1;
        for (int a = 0; a < stage->space + stage->reduce; a++) {
            const int label = a < stage->space ? p->r->group[s].label[a] : -1;
            const int64_t extent = label >= 0 && p->shared >> label & 1 ? 1 : rules_extent(p->r, &stage->axis[a]);
            if (extent < 0 || __builtin_mul_overflow(points, extent, &points)) return -1;
        }
        most = points > most ? points : most;
    }
    return most;
}

bool rules_interleaved_rows(rules *r, int root) {
    const tir_stage *top = &r->region->stages.data[root];
    int *members, count = rules_members(r, root, &members);
    plan p;
    own_axes own;
    if (top->kind != TIR_MAP || !r->interleaved.count || !find_plan(r, root, members, count, &p)) return false;
    find_own(&p, root, &own);
    if (!p.shared && own.other >= 0 && rules_extent(r, &top->axis[own.other]) < 0) return false;
    rules_nest nest = {.r = r, .stage = top};
    own_loop loop = order_loops(&p, root);
    for (int a = 0; a < top->space; a++)
        if (p.shared >> a & 1) rules_add_loop(&nest, top->axis[a].name, rules_extent(r, &top->axis[a]), false);
    if (!p.shared) { /* a loop of one iteration, to attach the members at */
        tir_schedule_add(r->schedule, "split %s.%s %lld -> row in_row mask", top->name, loop.name,
                         (long long)loop.extent);
        rules_add_loop(&nest, "row", 1, true);
        loop.name = "in_row";
    }
    rules_form_tasks(&nest, points_of(&p, members, count), RULES_TASK_POINTS);
    vectorise(&p, root, loop);
    if (own.other >= 0) rules_store_past_caches(r, top);
    for (int i = 0; i < count; i++) attach(&p, members[i], nest.loop[nest.count - 1].name);
    return true;
}
