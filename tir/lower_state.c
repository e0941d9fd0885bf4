/* `store o_n state`: a step of a fold without scratch. It is the next value of one component of the state, and only the step itself reads
 * the old value, each element when it makes the new one: so it overwrites the state, and nothing is copied at the end of the step. The
 * step's loops also initialise the state: they determine which threads hold it. */
#include "tir/lower.h"

/* For the step that makes the component: dim[a] is the dimension of its tensor for axis a of the fold, time last; -1: none. */
static void find_dimensions(tir_lowering *l, const tir_stage *fold, int component, int *dim) {
    for (int a = 0; a <= fold->space; a++) {
        dim[a] = -1;
        for (int d = 0; d < tir_get(l->pool, fold->value[component])->count; d++)
            if (tir_operand(l->pool, fold->value[component], d) == fold->axis[a].var) dim[a] = d;
    }
}

/* The component of its fold's state whose next value stage s is; -1: none. */
static int component_of(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s), *fold = stage->fold < 0 ? NULL : tir_stage_of(l, stage->fold);
    for (int c = 0; fold && c < fold->count; c++)
        if (tir_get(l->pool, fold->value[c])->bits == stage->tensor[0]) return c;
    return -1;
}

int tir_lower_state_step(tir_lowering *l, int fold, int component) {
    const int s = l->region->tensors.data[tir_get(l->pool, tir_stage_of(l, fold)->value[component])->bits].stage;
    return tir_plan_of(l, s)->in_state ? s : -1;
}

static int time_dimension(tir_lowering *l, int s) {
    int dim[TIR_MAX_AXES];
    const tir_stage *fold = tir_stage_of(l, tir_stage_of(l, s)->fold);
    find_dimensions(l, fold, component_of(l, s), dim);
    return dim[fold->space];
}

/* ---- conditions */

typedef struct load_check {
    tir_lowering *l;
    int step;
    uint32_t state;
    bool found, elsewhere;
} load_check;

static void check_load(void *user, tir_expr load) {
    load_check *check = user;
    const tir_stage *stage = tir_stage_of(check->l, check->step);
    const tir_node *node = tir_get(check->l->pool, load);
    if (node->bits != check->state) return;
    check->found = true;
    const int time = time_dimension(check->l, check->step);
    for (int d = 0, a = 0; a < stage->space; a++) {
        if (a == time) continue;
        if (node->guarded || tir_operand(check->l->pool, load, d++) != stage->axis[a].var) check->elsewhere = true;
    }
}

/* Why the result of stage s, a step of a fold, cannot be stored in the fold's state, the tensor `state`: stage q still reads one of them. NULL: what q
 * reads allows it. */
static const char *reader_flaw(tir_lowering *l, int s, int q, uint32_t state) {
    const int fold = tir_stage_of(l, s)->fold;
    if (tir_stage_of(l, q)->removed || q == fold) return NULL;
    load_check check = {l, s, state, false, false};
    tir_stage_loads(l->state.region, q, check_load, &check);
    if (check.found && q != s && tir_stage_of(l, q)->fold == fold) return "another step reads the old state";
    if (q == s && check.elsewhere) return "it reads the old state at other points";
    if (q != s && tir_lower_reads(l, q, s)) return "something but the fold reads it";
    return NULL;
}

static const char *state_flaw(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    const int component = component_of(l, s);
    int dim[TIR_MAX_AXES];
    if (component < 0 || stage->count != 1) return "it is no next value of a fold's state";
    const tir_stage *fold = tir_stage_of(l, stage->fold);
    const tir_tensor *state = &l->region->tensors.data[fold->tensor[component]];
    find_dimensions(l, fold, component, dim);
    for (int a = 0; a < fold->space; a++)
        if (dim[a] != a) return "its axes are not those of the state";
    if (dim[fold->space] != fold->space || stage->space != state->rank + 1)
        return "its axes are not those of the state";
    for (int c = 0; c < fold->count; c++)
        if (c != component && tir_get(l->pool, fold->value[c])->bits == stage->tensor[0])
            return "it is the next value of several components";
    for (int q = 0; q < (int)l->region->stages.count; q++) {
        const char *flaw = reader_flaw(l, s, q, fold->tensor[component]);
        if (flaw) return flaw;
    }
    if (tir_plan_of(l, s)->at_stage != stage->fold) return "it is not attached at its fold's own loop";
    return NULL;
}

void tir_lower_check_states(tir_lowering *l) {
    for (int s = 0; s < (int)l->region->stages.count; s++) {
        if (!tir_plan_of(l, s)->in_state || tir_stage_of(l, s)->removed) continue;
        const char *flaw = state_flaw(l, s);
        if (flaw)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT, "schedule of region %s: `store %s state`: %s",
                      l->region->name, tir_stage_of(l, s)->name, flaw);
    }
}

/* ---- location */

void tir_lower_open_in_state(tir_lowering *l, int s) {
    const int fold = tir_stage_of(l, s)->fold, component = component_of(l, s), time = time_dimension(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s), *whole = tir_plan_of(l, fold);
    const uint32_t state = tir_stage_of(l, fold)->tensor[component];
    plan->scratch[0] = whole->open ? whole->scratch[component] : l->home[state];
    for (int a = 0, d = 0; a < tir_stage_of(l, s)->space; a++) {
        plan->scratch_low[a] = tir_index(l->pool, 0);
        plan->scratch_extent[a] = tir_stage_of(l, s)->axis[a].extent;
        if (a == time) continue;
        if (whole->open) {
            plan->scratch_low[a] = whole->scratch_low[d];
            plan->scratch_extent[a] = whole->scratch_extent[d];
        }
        d++;
    }
    plan->open = true;
}

uint32_t tir_lower_state_place(tir_lowering *l, uint32_t tensor, const tir_expr *logical, tir_expr *out) {
    const int s = l->region->tensors.data[tensor].stage;
    if (s < 0 || !tir_plan_of(l, s)->in_state) return tensor;
    const int time = time_dimension(l, s);
    for (int a = 0, d = 0; a < tir_stage_of(l, s)->space; a++)
        if (a != time) out[d++] = logical[a];
    return tir_stage_of(l, tir_stage_of(l, s)->fold)->tensor[component_of(l, s)];
}

tir_expr tir_lower_state_initial(tir_lowering *l, int s) {
    const tir_stage *fold = tir_stage_of(l, tir_stage_of(l, s)->fold);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < fold->space; a++) {
        from[a] = fold->axis[a].var;
        to[a] = tir_stage_of(l, s)->axis[a].var;
    }
    return tir_substitute(l->pool, fold->initial[component_of(l, s)], fold->space, from, to);
}

void tir_lower_begin_state(tir_lowering *l, int s) {
    tir_stage_plan *plan = tir_plan_of(l, s);
    const int time = time_dimension(l, s);
    tir_stage_region(&l->state, s);
    plan->low[time] = tir_index(l->pool, 0); /* before the first step */
    plan->extent[time] = tir_index(l->pool, 1);
    tir_lower_open_in_state(l, s);
}
