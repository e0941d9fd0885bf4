/* Short rows: a root whose producers need whole rows of at most eight points (softmax of [26880, 5]). Lanes along such a row would be mostly
 * empty. So vectors run across rows, all points of which are unrolled and stay in registers; what is contiguous in memory along the row
 * is taken apart by strided loads, and put together by transposing stores. */
#include "targets/cpu/rules.h"

enum { POINTS_MOST = 8, UNROLLED_MOST = 16 };

/* Most points of a short row: of a reduction whose axes differ from its owner's; of one with the same axes; of one to several values. */
enum { SHORT = 7, SHORT_ALONE = 4, SHORT_OF_SEVERAL = 8 };

bool rules_is_short_row(const rules *r, int s, int64_t points) {
    int64_t most = rules_pointwise(r, s) ? SHORT_ALONE : SHORT;
    if (r->region->stages.data[s].count > 1 && r->machine->vector_bytes >= 32) most = SHORT_OF_SEVERAL;
    return points >= 0 && points <= most;
}

typedef struct plan {
    rules *r;
    int root, count;
    int *members;
    /* the root's axis across rows */
    int v;
    /* bit a: all members run point by point along the root's axis a */
    uint32_t shared;
} plan;

/* Does axis a of a stage have several points for each row? */
static bool is_own(const plan *p, int s, int a) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    const int label = a < stage->space ? p->r->group[s].label[a] : -1;
    return rules_extent(p->r, &stage->axis[a]) != 1 && !(label >= 0 && p->shared >> label & 1);
}

/* Points of stage s for each row, along its axes `first` to `end` - 1; -1: varying. */
static int64_t own_points(const plan *p, int s, int first, int end) {
    int64_t points = 1;
    for (int a = first; a < end && points >= 0; a++) {
        const int64_t extent = rules_extent(p->r, &p->r->region->stages.data[s].axis[a]);
        if (is_own(p, s, a) && (extent < 0 || __builtin_mul_overflow(points, extent, &points))) points = -1;
    }
    return points;
}

static bool suits(const plan *p, int s) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    if ((stage->kind != TIR_MAP && stage->kind != TIR_REDUCE) || stage->fold >= 0) return false;
    if (rules_is_contraction(p->r, s) || rules_axis_of(stage, TIR_AXIS_LANE) >= 0) return false;
    if (rules_axis_labelled(p->r, s, p->v) < 0 || (s != p->root && rules_is_chosen_by_data(p->r, s))) return false;
    const int64_t kept = own_points(p, s, 0, stage->space), all = own_points(p, s, 0, stage->space + stage->reduce);
    return kept >= 1 && kept <= POINTS_MOST && all >= 1 && all <= UNROLLED_MOST;
}

/* Finds the root's axes that all members share, and the last one of several points, p->v; -1: none. */
static void find_axes(plan *p) {
    const tir_stage *top = &p->r->region->stages.data[p->root];
    for (int a = 0; a < top->space; a++) {
        bool all = true;
        for (int i = 0; i < p->count; i++) all = all && rules_axis_labelled(p->r, p->members[i], a) >= 0;
        p->shared |= (uint32_t)all << a;
        if (all && rules_extent(p->r, &top->axis[a]) != 1) p->v = a;
    }
}

static bool find_plan(rules *r, int root, plan *p) {
    const tir_stage *top = &r->region->stages.data[root];
    *p = (plan){.r = r, .root = root, .v = -1};
    p->count = rules_members(r, root, &p->members);
    if (top->kind != TIR_MAP || p->count == 0 || rules_ends_by_data(r)) return false;
    find_axes(p);
    if (p->v < 0) return false;
    for (int a = 0; a < p->v; a++)
        if (is_own(p, root, a)) return false; /* the row's own axes must lie inside v */
    const int64_t rows = rules_extent(r, &top->axis[p->v]);
    bool good = (rows < 0 || rows >= rules_lanes(r, root)) && suits(p, root);
    /* Does a stage have several points for each row? */
    bool keeps = own_points(p, root, 0, top->space) > 1, reduces = false;
    for (int i = 0; i < p->count && good; i++) {
        const tir_stage *stage = &r->region->stages.data[p->members[i]];
        good = suits(p, p->members[i]);
        keeps = keeps || own_points(p, p->members[i], 0, stage->space) > 1;
        reduces = reduces || stage->kind == TIR_REDUCE;
    }
    return good && keeps && reduces;
}

/* Number of vector registers of a stage's points of `rows` rows. */
static int64_t row_registers(const plan *p, int s, int64_t rows) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    const int v = rules_axis_labelled(p->r, s, p->v);
    int64_t points[TIR_MAX_AXES];
    for (int a = 0; a < stage->space; a++) points[a] = is_own(p, s, a) ? rules_extent(p->r, &stage->axis[a]) : 1;
    const int64_t extent = rules_extent(p->r, &stage->axis[v]);
    points[v] = extent >= 0 && extent < rows ? extent : rows;
    return rules_registers(p->r, s, points, v);
}

/* Rows computed together: as many, of up to four vectors, as leave all values in registers; 0: one vector does not. */
static int64_t rows_together(const plan *p) {
    rules *r = p->r;
    const int64_t registers = r->machine->vector_registers;
    int *stages = LIB_NEW_ARRAY(r->arena, int, (size_t)p->count + 1);
    int64_t *vectors = LIB_NEW_ARRAY(r->arena, int64_t, (size_t)p->count + 1);
    memcpy(stages, p->members, (size_t)p->count * sizeof *stages);
    stages[p->count] = p->root; /* the root takes no registers: it is stored to memory */
    for (int64_t block = 4 * rules_lanes(r, p->root); block >= rules_lanes(r, p->root); block /= 2) {
        for (int i = 0; i < p->count; i++) vectors[i] = row_registers(p, p->members[i], block);
        if (rules_live(r, stages, vectors, p->count + 1) <= registers - 2) return block;
    }
    return 0;
}

/* Orders the loops of a stage: those in `outer` (the root's axes up to `v`), the others, `v`. */
static void order_loops(const plan *p, int s, const char *outer, const char *v) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    const int along = rules_axis_labelled(p->r, s, p->v);
    lib_text order;
    lib_text_init(&order, p->r->arena);
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        const bool open = s == p->root && a <= p->v;
        if (a != along && !open) lib_text_format(&order, " %s", stage->axis[a].name);
    }
    tir_schedule_add(p->r->schedule, "order %s:%s%s %s", stage->name, outer, order.length ? order.data : "", v);
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (is_own(p, s, a)) tir_schedule_add(p->r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
    tir_schedule_add(p->r->schedule, "vec %s.%s", stage->name, v);
}

bool rules_short_rows(rules *r, int root) {
    const tir_stage *top = &r->region->stages.data[root];
    plan p;
    if (!find_plan(r, root, &p)) return false;
    const int64_t together = rows_together(&p), block = together ? together : rules_lanes(r, root);
    lib_text outer, parallel;
    lib_text_init(&outer, r->arena);
    lib_text_init(&parallel, r->arena);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i peel", top->name, top->axis[p.v].name, (long long)block);
    for (int a = 0; a <= p.v; a++) {
        const char *loop = a == p.v ? "v_o" : top->axis[a].name;
        lib_text_format(&outer, " %s", loop);
        lib_text_format(&parallel, " %s.%s", top->name, loop);
    }
    tir_schedule_add(r->schedule, "par%s", parallel.data);
    order_loops(&p, root, outer.data, "v_i");
    for (int i = 0; i < p.count; i++) {
        const tir_stage *stage = &r->region->stages.data[p.members[i]];
        tir_schedule_add(r->schedule, "at %s %s.v_o", stage->name, top->name);
        if (together || own_points(&p, p.members[i], 0, stage->space) == 1)
            tir_schedule_add(r->schedule, "store %s reg", stage->name);
        order_loops(&p, p.members[i], "", stage->axis[rules_axis_labelled(r, p.members[i], p.v)].name);
    }
    return true;
}
