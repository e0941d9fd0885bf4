/* Folds whose state is a small table for each point of the fold's free axes (factorisations and solves of small matrices, non-maximum
 * suppression): each lane of a vector works on one table. The state and the steps' results are stored with the lanes innermost. */
#include "targets/cpu/rules.h"

enum { L2_SHARE = 2 };

static bool is_step(const rules *r, uint32_t q, int fold) {
    return !r->region->stages.data[q].removed && r->region->stages.data[q].fold == fold;
}

/* Is the tensor the fold's state or the result of one of its steps? */
static bool is_own(const rules *r, const rules_access *access, int fold) {
    const int32_t from = r->region->tensors.data[access->tensor].stage;
    return from >= 0 && (from == fold || r->region->stages.data[from].fold == fold);
}

/* Are the fold's free axes the first axes of this step, and the first indices of its every load from the fold's state or from results of
 * the fold's steps? */
static bool leads_everywhere(rules *r, int step, const tir_stage *fold) {
    const tir_stage *s = &r->region->stages.data[step];
    if (s->space <= fold->space) return false;
    for (int a = 0; a < fold->space; a++)
        if (rules_extent(r, &s->axis[a]) != rules_extent(r, &fold->axis[a])) return false;
    for (uint32_t q = 0; q < r->region->stages.count; q++)
        if (((int)q == s->fold || is_step(r, q, s->fold)) && !tir_reads_along(r->region, step, (int)q, fold->space))
            return false;
    return true;
}

/* Do the state and the results of all steps, for `lanes` tables at a time, take at most half of L2? *points: elements of all these results
 * for one table. False also if a size varies. */
static bool tables_fit(rules *r, int s, int64_t lanes, int64_t *points) {
    const tir_stage *fold = &r->region->stages.data[s];
    int64_t bytes = 0;
    *points = 0;
    for (uint32_t q = 0; q < r->region->stages.count; q++) {
        if (!is_step(r, q, s) && q != (uint32_t)s) continue;
        const tir_stage *stage = &r->region->stages.data[q];
        for (int c = 0; c < stage->count; c++) {
            const tir_tensor *tensor = &r->region->tensors.data[stage->tensor[c]];
            int64_t table = tir_elements(r->region, tensor, q == (uint32_t)s ? fold->space : fold->space + 1);
            if (table < 0 || table > r->machine->l2) return false;
            bytes += table * (int64_t)lib_dtype_size(tensor->dtype);
            *points += table;
        }
    }
    return bytes * lanes <= r->machine->l2 / L2_SHARE;
}

/* Does data select which elements a step loads from operands outside of the fold, along `axis`? Such loads are contiguous along a table,
 * but would be gathers across tables. */
static bool is_gathered(rules *r, int step, int axis) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, step, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        if (access[i].stride[axis] == RULES_IRREGULAR && !is_own(r, &access[i], r->region->stages.data[step].fold))
            return true;
    return false;
}

/* The longest of the fold's free axes of at least `least` points; -1: there is none. */
static int longest_axis(const rules *r, const tir_stage *fold, int64_t least) {
    int best = -1;
    for (int a = 0; a < fold->space; a++)
        if (rules_extent(r, &fold->axis[a]) >= least &&
            (best < 0 || rules_extent(r, &fold->axis[a]) > rules_extent(r, &fold->axis[best])))
            best = a;
    return best;
}

/* The fold's free axis along which lanes run; -1: the fold is no such batch. Sets *lanes, and *points as tables_fit. */
static int batch_axis(rules *r, int s, int64_t *lanes, int64_t *points) {
    const tir_stage *fold = &r->region->stages.data[s];
    bool table = false;
    for (int c = 0; c < fold->count; c++) table = table || r->region->tensors.data[fold->tensor[c]].rank > fold->space;
    if (!table) return -1;
    for (uint32_t q = 0; q < r->region->stages.count; q++)
        if (is_step(r, q, s) && !leads_everywhere(r, (int)q, fold)) return -1;
    *lanes = rules_lanes(r, s);
    const int best = longest_axis(r, fold, *lanes);
    for (uint32_t q = 0; q < r->region->stages.count && best >= 0; q++)
        if (is_step(r, q, s) && is_gathered(r, (int)q, best)) return -1;
    return best >= 0 && *lanes > 1 && tables_fit(r, s, *lanes, points) ? best : -1;
}

static bool have_one_rank(const rules *r, const tir_stage *stage) {
    for (int c = 1; c < stage->count; c++)
        if (r->region->tensors.data[stage->tensor[c]].rank != r->region->tensors.data[stage->tensor[0]].rank)
            return false;
    return true;
}

/* Lays out the stage's result: a step's with `axis` innermost, the state in blocks of `lanes` along `axis`. Outputs keep their layout. */
static void lay_out(rules *r, int stage, int axis, int64_t lanes, bool state) {
    const tir_stage *s = &r->region->stages.data[stage];
    const tir_tensor *tensor = &r->region->tensors.data[s->tensor[0]];
    lib_text layout;
    if (tir_has_output(r->region, stage) || !have_one_rank(r, s) || tensor->rank + state > TIR_MAX_PHYSICAL) return;
    lib_text_init(&layout, r->arena);
    for (int d = 0; d < tensor->rank; d++) {
        const char *name = d < s->space ? s->axis[d].name : lib_arena_format(r->arena, "d%d", d);
        if (d == axis && state) lib_text_format(&layout, "%s/%lld, ", name, (long long)lanes);
        if (d != axis) lib_text_format(&layout, "%s, ", name);
    }
    const char *last = s->axis[axis].name;
    if (state)
        rules_rewrite(r, "layout %s (%s%s%%%lld)", s->name, layout.data, last, (long long)lanes);
    else
        rules_rewrite(r, "layout %s (%s%s)", s->name, layout.data, last);
}

bool rules_prepare_batch(rules *r, int s) {
    int64_t lanes, points;
    if (r->region->stages.data[s].kind != TIR_FOLD || rules_role_of(r, s) != RULES_NO_PART) return false;
    const int axis = batch_axis(r, s, &lanes, &points);
    if (axis < 0) return false;
    for (uint32_t q = 0; q < r->region->stages.count; q++) {
        if (!is_step(r, q, s) && q != (uint32_t)s) continue;
        rules_set_role(r, r->region->stages.data[q].name, RULES_BATCH);
        lay_out(r, (int)q, axis, lanes, q == (uint32_t)s);
    }
    return true;
}

void rules_batch(rules *r, int s) {
    const tir_stage *fold = &r->region->stages.data[s];
    int64_t lanes, points;
    const int axis = batch_axis(r, s, &lanes, &points);
    const char *name = fold->name, *column = fold->axis[axis].name;
    int64_t trips = rules_extent(r, &fold->axis[fold->space]), tables = 1;
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < fold->space; a++) {
        if (a == axis) continue;
        lib_text_format(&order, " %s", fold->axis[a].name);
        tir_schedule_add(r->schedule, "par %s.%s", name, fold->axis[a].name);
    }
    while (tables * lanes * points * (trips > 0 ? trips : 1) < RULES_TASK_POINTS) tables *= 2;
    if (tables > 1 && tables * lanes < rules_extent(r, &fold->axis[axis])) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> v_p v_t peel", name, column, (long long)(tables * lanes));
        tir_schedule_add(r->schedule, "par %s.v_p", name);
        lib_text_add(&order, " v_p");
        column = "v_t";
    }
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_b v_l peel", name, column, (long long)lanes);
    if (tables == 1) tir_schedule_add(r->schedule, "par %s.v_b", name);
    tir_schedule_add(r->schedule, "order %s:%s v_b %s v_l", name, order.data ? order.data : "",
                     fold->axis[fold->space].name);
    tir_schedule_add(r->schedule, "vec %s.v_l", name);
    for (uint32_t q = 0; q < r->region->stages.count; q++) {
        if (!is_step(r, q, s)) continue;
        const tir_stage *step = &r->region->stages.data[q];
        tir_schedule_add(r->schedule, "order %s:%s %s", step->name, tir_loops_but(r->arena, step, tir_axis_bit(axis)),
                         step->axis[axis].name);
        tir_schedule_add(r->schedule, "vec %s.%s", step->name, step->axis[axis].name);
    }
}
