/* Rows on chip: a root whose producers need whole rows of it (softmax, norms, row reductions with an epilogue). Producers run at
 * the innermost loop that all share; reductions along contiguous rows go by lanes and a tree; short rows live in registers. */
#include "targets/cpu/rules.h"

enum { REGISTER_VECTORS = 10 }; /* rows of at most so many vectors are unrolled into registers */

/* The reduction axis whose points lie next to each other, when no space axis offers vectors; -1: none. */
static int lane_axis(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), axis = -1;
    if (stage->kind != TIR_REDUCE || !stage->merge[0] || !stage->reduce || stage->fold >= 0) return -1;
    for (int i = 0; i < count; i++) {
        for (int a = 0; a < stage->space; a++)
            if (access[i].stride[a] == 1 && rules_extent(r, &stage->axis[a]) != 1) return -1;
        for (int a = stage->space; a < stage->space + stage->reduce; a++)
            if (access[i].stride[a] == 1) axis = a;
    }
    if (axis >= 0 && rules_extent(r, &stage->axis[axis]) >= 0 && rules_extent(r, &stage->axis[axis]) < 4) return -1;
    return axis;
}

static bool taken(const rules *r, const char *name) {
    for (uint32_t t = 0; t < r->region->tensors.count; t++)
        if (strcmp(r->region->tensors.data[t].name, name) == 0) return true;
    return false;
}

void rules_prepare_rows(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int axis = rules_tileable(r, s) ? -1 : lane_axis(r, s);
    if (axis < 0) return;
    int64_t extent = rules_extent(r, &stage->axis[axis]), lanes = rules_lanes(r, s), count = lanes;
    while (count < 4 * lanes && (extent < 0 || count * 2 <= extent)) count *= 2;
    if (extent > 0 && extent < lanes) {
        count = 4;
        while (count < extent) count *= 2;
    }
    const char *name = stage->name;
    const char *part = lib_arena_format(r->arena, "%s_p", name);
    if (taken(r, part)) return;
    rules_rewrite(r, "rfactor %s.%s %lld lanes -> %s lane step", name, stage->axis[axis].name, (long long)count, part);
    rules_rewrite(r, "tree %s.lane", name);
}

/* ---- loops */

static int label_axis(const rules *r, int s, int label) {
    for (int a = 0; a < r->region->stages.data[s].space; a++)
        if (r->group[s].label[a] == label) return a;
    return -1;
}

typedef struct row_plan {
    rules *r;
    int root;
    const char *root_name, *loop;  /* where producers are attached */
    int v;                         /* the root's vector axis */
    bool across;                   /* v is shared: vectors run across rows */
    bool small;                    /* rows fit registers */
    int64_t lanes;
} row_plan;

static void vectorise_own_axis(const row_plan *p, int s, int axis) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    int64_t extent = rules_extent(p->r, &stage->axis[axis]);
    tir_schedule *out = p->r->schedule;
    const char *name = stage->name, *loop = stage->axis[axis].name;
    int64_t block = p->small ? p->lanes : 4 * p->lanes;
    if (extent < 0 || extent > block) {
        bool exact = extent > 0 && extent % block == 0;
        tir_schedule_add(out, "split %s.%s %lld -> b_o b_i %s", name, loop, (long long)block,
                         p->small || exact || extent < 0 ? "mask" : "peel");
        if (p->small) tir_schedule_add(out, "unroll %s.b_o", name);
        loop = "b_i";
    }
    tir_schedule_add(out, "vec %s.%s", name, loop);
}

static void attach_row_member(const row_plan *p, int s) {
    rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[s];
    tir_schedule_add(r->schedule, "at %s %s.%s", stage->name, p->root_name, p->loop);
    int along = p->across ? label_axis(r, s, p->v) : -1; /* the axis that vectors run along */
    int own = -1;                                        /* innermost axis of its own with several points */
    for (int a = 0; a < stage->space; a++)
        if (rules_extent(r, &stage->axis[a]) != 1 && a != along && (r->group[s].label[a] < 0 || r->group[s].label[a] == p->v)) own = a;
    lib_text order;
    lib_text_init(&order, r->arena);
    int inner = p->across ? along : own;
    for (int a = 0; a < stage->space; a++)
        if (a != inner) lib_text_format(&order, " %s", stage->axis[a].name);
    for (int a = stage->space; a < stage->space + stage->reduce; a++) lib_text_format(&order, " %s", stage->axis[a].name);
    if (inner >= 0) lib_text_format(&order, " %s", stage->axis[inner].name);
    if (stage->space + stage->reduce) tir_schedule_add(r->schedule, "order %s:%s", stage->name, order.data);
    bool lanes_only = own >= 0 && rules_extent(r, &stage->axis[own]) > 0 && rules_extent(r, &stage->axis[own]) <= 4 * p->lanes;
    if (p->across) {
        if (along >= 0) tir_schedule_add(r->schedule, "vec %s.%s", stage->name, stage->axis[along].name);
        if (own < 0) tir_schedule_add(r->schedule, "store %s reg", stage->name);
        return;
    }
    if (own < 0 || (lanes_only && stage->reduce) || p->small) tir_schedule_add(r->schedule, "store %s reg", stage->name);
    else if (lanes_only && rules_extent(r, &r->region->stages.data[p->root].axis[p->v]) > 4 * p->lanes)
        tir_schedule_add(r->schedule, "store %s reg", stage->name); /* levels of a tree */
    if (own < 0) return;
    if (stage->reduce && p->small)
        for (int a = stage->space; a < stage->space + stage->reduce; a++)
            tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
    if (lanes_only && (stage->reduce || !p->small || rules_extent(r, &stage->axis[own]) <= p->lanes))
        tir_schedule_add(r->schedule, "vec %s.%s", stage->name, stage->axis[own].name);
    else
        vectorise_own_axis(p, s, own);
}

bool rules_rows(rules *r, int root) {
    const tir_stage *top = &r->region->stages.data[root];
    int *members = LIB_NEW_ARRAY(r->arena, int, r->region->stages.count + 1);
    int count = rules_members(r, root, members), last = -1;
    if (top->kind != TIR_MAP || count == 0) return false;
    bool shared[TIR_MAX_AXES];
    row_plan p = {.r = r, .root = root, .root_name = top->name, .lanes = rules_lanes(r, root), .v = -1};
    for (int a = 0; a < top->space; a++) {
        shared[a] = true;
        for (int i = 0; i < count; i++) shared[a] = shared[a] && (label_axis(r, members[i], a) >= 0 || rules_extent(r, &top->axis[a]) == 1);
        if (rules_extent(r, &top->axis[a]) != 1) p.v = a;
    }
    if (p.v < 0) p.v = top->space - 1;
    if (p.v < 0 || top->space == 0) return false;
    p.across = shared[p.v] && rules_extent(r, &top->axis[p.v]) != 1;
    for (int i = 0; i < count && p.across; i++) /* vectors across rows only if producers do not use lanes of their own */
        for (int a = 0; a < r->region->stages.data[members[i]].space; a++)
            if (strcmp(r->region->stages.data[members[i]].axis[a].name, "lane") == 0) p.across = false;
    bool vector = !shared[p.v] || p.across;
    int64_t extent = rules_extent(r, &top->axis[p.v]);
    int64_t widest = vector && !p.across ? extent : 1; /* the longest row that would live in registers */
    for (int i = 0; i < count && !p.across; i++) {
        const tir_stage *m = &r->region->stages.data[members[i]];
        int64_t points = 1, n;
        for (int a = 0; a < m->space; a++)
            if (r->group[members[i]].label[a] < 0) points = (n = rules_extent(r, &m->axis[a])) < 0 || points < 0 ? -1 : points * n;
        for (int a = m->space; a < m->space + m->reduce; a++)
            points = (n = rules_extent(r, &m->axis[a])) < 0 || points < 0 ? -1 : points * n;
        if (points < 0 || widest < 0) widest = -1;
        else if (points > widest) widest = points;
    }
    p.small = !p.across && widest >= 0 && widest <= REGISTER_VECTORS * p.lanes;
    lib_text order, parallel;
    lib_text_init(&order, r->arena);
    lib_text_init(&parallel, r->arena);
    const char *v_loop = top->axis[p.v].name;
    if (p.across && (extent < 0 || extent > 4 * p.lanes)) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i %s", top->name, v_loop, (long long)(4 * p.lanes), extent < 0 ? "mask" : "peel");
        v_loop = "v_i";
    }
    for (int a = 0; a < top->space; a++) {
        if (!shared[a] || (p.across && a == p.v)) continue;
        lib_text_format(&order, " %s", p.loop = top->axis[a].name);
        lib_text_format(&parallel, " %s.%s", top->name, p.loop);
        last = a;
    }
    if (p.across && strcmp(v_loop, "v_i") == 0) {
        lib_text_format(&order, " %s", p.loop = "v_o");
        lib_text_format(&parallel, " %s.v_o", top->name);
        last = p.v;
    }
    if (!p.loop || last < 0) return false;
    for (int a = 0; a < top->space; a++)
        if (!shared[a]) lib_text_format(&order, " %s", top->axis[a].name);
    if (p.across) lib_text_format(&order, " %s", v_loop);
    tir_schedule_add(r->schedule, "order %s:%s", top->name, order.data);
    tir_schedule_add(r->schedule, "par%s", parallel.data);
    if (p.across)
        tir_schedule_add(r->schedule, "vec %s.%s", top->name, v_loop);
    else if (vector && rules_store_stride(r, root, p.v) == 1)
        vectorise_own_axis(&p, root, p.v);
    for (int i = 0; i < count; i++) attach_row_member(&p, members[i]);
    return true;
}
