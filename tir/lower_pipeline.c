/* Pipelines: `pipeline C.ko stages=S groups=a|b`. The copies attached at a loop have S buffers each; iteration ko reads number ko % S while
 * the copies of the next S - 1 iterations are in progress. With G groups and T iterations:
 *
 *     for p in 0..S-1 { if (p < T) copies of p, group by group; a commit after each group }
 *     for ko in 0..T {
 *       wait G*(S-1) - g; barrier              the first g groups of ko are complete, and no thread reads ko - 1 any more
 *       if (ko + S-1 < T) copies of ko + S-1   a commit after each group, even an empty one: waits count groups
 *       statements that read only these groups
 *       wait G*S - h; barrier                  the first h groups are complete
 *       statements that read those
 *     }
 *     wait 0
 *
 * Versioning later splits the loop into consecutive loops: the pipeline spans them. */
#include "tir/lower.h"

enum { STAGES_MOST = 8, GROUPS_MOST = 8 };

/* ---- the directive */

void tir_apply_pipeline(tir_schedule_state *state, int node, int stage, lib_lexer *lexer) {
    tir_axis_node *loop = &state->plan[stage].nodes.data[node];
    lib_lexer_expect(lexer, "stages");
    lib_lexer_expect(lexer, "=");
    int64_t stages = lib_lexer_integer(lexer);
    if (stages < 2 || stages > STAGES_MOST) tir_schedule_raise(state, "a pipeline has 2 to %d stages", STAGES_MOST);
    if (loop->stages) tir_schedule_raise(state, "loop %s has a pipeline already", loop->name);
    loop->stages = (int)stages;
    loop->groups = 1;
    if (!lib_lexer_accept(lexer, "groups")) return;
    lib_lexer_expect(lexer, "=");
    for (;;) {
        tir_stage_plan *copy = &state->plan[tir_find_stage(state, lib_lexer_name(lexer))];
        if (copy->group) tir_schedule_raise(state, "a copy is named twice");
        copy->group = loop->groups;
        if (lib_lexer_accept(lexer, ",")) continue;
        if (!lib_lexer_accept(lexer, "|")) return;
        if (++loop->groups > GROUPS_MOST) tir_schedule_raise(state, "more than %d groups", GROUPS_MOST);
    }
}

static void check_copy(tir_schedule_state *state, int q) {
    const tir_stage *stage = &state->region->stages.data[q];
    const tir_stage_plan *plan = &state->plan[q];
    if (!plan->has_scope || plan->scope != TIR_SCOPE_SHARED)
        tir_schedule_raise(state, "pipeline: %s is not in shared memory: `store %s shared`", stage->name, stage->name);
    if (stage->kind != TIR_MAP || stage->count != 1 || !tir_is_copy(state->region->pool, stage->value[0]))
        tir_schedule_raise(state, "pipeline: %s computes something: only copies are asynchronous", stage->name);
    if (state->region->tensors.data[stage->tensor[0]].output)
        tir_schedule_raise(state, "pipeline: %s is an output, not a copy", stage->name);
    for (uint32_t k = 0; k < state->region->stages.count; k++)
        if (!state->region->stages.data[k].removed && state->plan[k].at_stage == q)
            tir_schedule_raise(state, "pipeline: %s is attached inside copy %s", state->region->stages.data[k].name,
                               stage->name);
}

static bool is_attached(const tir_schedule_state *state, uint32_t q, int stage, int node) {
    const tir_stage_plan *plan = &state->plan[q];
    return !state->region->stages.data[q].removed && plan->at_stage == stage && plan->at_node == node;
}

/* Checks and counts the copies of the pipeline at loop `node`: stages attached there that have a group. If none has, those in shared memory
 * get group 1. */
static int find_copies(tir_schedule_state *state, int stage, int node) {
    const uint32_t stages = state->region->stages.count;
    bool named = false;
    int count = 0;
    for (uint32_t q = 0; q < stages; q++) named = named || (state->plan[q].group && is_attached(state, q, stage, node));
    for (uint32_t q = 0; q < stages; q++) {
        tir_stage_plan *copy = &state->plan[q];
        if (!is_attached(state, q, stage, node)) continue;
        if (!named && copy->has_scope && copy->scope == TIR_SCOPE_SHARED) copy->group = 1;
        if (!copy->group) continue;
        check_copy(state, (int)q);
        count++;
    }
    return count;
}

void tir_check_pipelines(tir_schedule_state *state, int stage) {
    const tir_stage_plan *plan = &state->plan[stage];
    for (uint32_t n = 0; n < plan->nodes.count; n++) {
        const tir_axis_node *loop = &plan->nodes.data[n];
        if (!loop->stages) continue;
        if (loop->outer >= 0 || loop->fused >= 0)
            tir_schedule_raise(state, "pipeline: loop %s is %s", loop->name,
                               loop->fused >= 0 ? "fused into another" : "split: name one of its parts");
        if (loop->kind != TIR_SERIAL || loop->parallel)
            tir_schedule_raise(state, "pipeline: loop %s is %s, not run in order", loop->name,
                               loop->parallel ? "par" : tir_loop_kind_names[loop->kind]);
        if (!find_copies(state, stage, (int)n))
            tir_schedule_raise(state, "pipeline: no copy in shared memory is attached at loop %s", loop->name);
    }
    if (!plan->group) return;
    const tir_axis_node *at = plan->at_stage < 0 ? NULL : &state->plan[plan->at_stage].nodes.data[plan->at_node];
    if (!at || !at->stages)
        tir_schedule_raise(state, "pipeline: copy %s is not attached at the pipeline's loop",
                           state->region->stages.data[stage].name);
}

/* ---- lowering */

static bool is_copy_at(tir_lowering *l, int q, int s, int leaf) {
    const tir_stage_plan *plan = tir_plan_of(l, q);
    return !tir_stage_of(l, q)->removed && plan->group && plan->at_stage == s && plan->at_node == leaf;
}

/* The name of an enclosing loop that is not serial (whose threads or lanes would each run the pipeline); NULL: none. */
static const char *loop_of_lanes(tir_lowering *l) {
    for (uint32_t s = 0; s < l->region->stages.count; s++)
        for (uint32_t n = 0; n < tir_plan_of(l, (int)s)->nodes.count; n++) {
            const tir_axis_node *node = &tir_plan_of(l, (int)s)->nodes.data[n];
            if (node->value && node->kind != TIR_SERIAL && tir_op_of(l->pool, node->value) == TIR_VAR)
                return node->name;
        }
    return NULL;
}

/* Appends the copies of one group, into the buffers of iteration `value` of the loop. */
static void copy_group(tir_lowering *l, int s, int leaf, tir_expr value, int group) {
    tir_axis_node *loop = &tir_plan_of(l, s)->nodes.data[leaf];
    const tir_expr saved = loop->value;
    for (int q = 0; q < (int)l->region->stages.count; q++) {
        tir_stage_plan *plan = tir_plan_of(l, q);
        if (!is_copy_at(l, q, s, leaf) || plan->group != group) continue;
        tir_plan_of(l, s)->nodes.data[leaf].value = value;
        plan->slot = tir_rem(l->pool, value, tir_index(l->pool, plan->stages));
        tir_lower_nest(l, q);
    }
    tir_plan_of(l, s)->nodes.data[leaf].value = saved;
}

/* Appends the copies of iteration `next`, inside an `if` that it exists unless that is certain, and a commit after each group. */
static void copy_iteration(tir_lowering *l, int s, int leaf, tir_expr var, tir_span bounds, tir_expr next) {
    const tir_axis_node *loop = &tir_plan_of(l, s)->nodes.data[leaf];
    const tir_interval range = tir_range(l->pool, var);
    tir_expr inside = tir_lt(l->pool, next, tir_add(l->pool, bounds.low, bounds.extent));
    const bool always = tir_prove(l->pool, inside) == TIR_YES;
    for (int g = 1; g <= loop->groups; g++) {
        const uint32_t scalars = l->scalars.count;
        tir_stmt **after = NULL;
        tir_expr value = next;
        if (!always) {
            tir_stmt *branch = tir_lower_append(l, TIR_IF);
            after = l->cursor;
            branch->if_.condition = inside;
            l->cursor = &branch->if_.body;
            tir_stmt *let = tir_lower_append(l, TIR_LET); /* implied by the branch; ranges need the explicit bound */
            value = let->let.var = tir_var(l->pool, lib_arena_format(l->arena, "%s_next", loop->name), TIR_VAR_LET,
                                           TIR_INDEX, range.low, range.high);
            let->let.value = tir_min(l->pool, next, tir_index(l->pool, range.high));
            l->cursor = &let->let.body;
        }
        copy_group(l, s, leaf, value, g);
        if (after) {
            l->cursor = after;
            l->scalars.count = scalars;
        }
        tir_lower_append(l, TIR_COMMIT);
    }
}

static void append_wait(tir_lowering *l, int groups, bool barrier) {
    tir_lower_append(l, TIR_WAIT)->wait.groups = groups;
    if (barrier) tir_lower_append(l, TIR_BARRIER);
}

/* Opens the pipeline's copies for iteration `value` of the loop: sets their regions, allocates their scratch the first time, and selects
 * the buffers that this iteration reads. */
static void open_copies(tir_lowering *l, int s, int leaf, tir_expr value) {
    tir_plan_of(l, s)->nodes.data[leaf].value = value;
    for (int q = 0; q < (int)l->region->stages.count; q++) {
        tir_stage_plan *plan = tir_plan_of(l, q);
        if (!is_copy_at(l, q, s, leaf)) continue;
        plan->stages = tir_plan_of(l, s)->nodes.data[leaf].stages;
        plan->slot = tir_rem(l->pool, value, tir_index(l->pool, plan->stages));
        tir_stage_region(&l->state, q);
        tir_lower_open_scratch(l, q);
    }
}

bool tir_lower_pipeline_open(tir_lowering *l, int s, int leaf, tir_expr var, tir_span bounds) {
    const tir_axis_node *loop = &tir_plan_of(l, s)->nodes.data[leaf];
    const char *lanes = loop->stages ? loop_of_lanes(l) : NULL;
    if (!loop->stages) return false;
    if (lanes || l->waited)
        tir_schedule_raise(&l->state, "pipeline %s runs inside %s %s: all threads of a block wait together", loop->name,
                           lanes ? "loop" : "another pipeline,", lanes ? lanes : "which waits for its own copies");
    open_copies(l, s, leaf, var);
    tir_plan_of(l, s)->nodes.data[leaf].value = 0;
    tir_expr number = tir_index(l->pool, 0);
    tir_stmt **after = NULL;
    if (loop->stages > 2) {
        tir_stmt *prologue = tir_lower_append(l, TIR_FOR);
        after = l->cursor;
        prologue->for_.lower = number;
        prologue->for_.extent = tir_index(l->pool, loop->stages - 1);
        number = prologue->for_.var = tir_loop_variable(l->pool, loop->name, number, prologue->for_.extent);
        l->cursor = &prologue->for_.body;
    }
    const uint32_t scalars = l->scalars.count;
    copy_iteration(l, s, leaf, var, bounds, tir_add(l->pool, bounds.low, number));
    if (after) {
        l->cursor = after;
        l->scalars.count = scalars;
    }
    return true;
}

typedef struct need_search {
    tir_lowering *l;
    int stage, leaf, most;
} need_search;

static void find_need(void *user, tir_expr load) {
    need_search *search = user;
    const int producer = search->l->region->tensors.data[tir_get(search->l->pool, load)->bits].stage;
    if (producer < 0 || !is_copy_at(search->l, producer, search->stage, search->leaf)) return;
    const int group = tir_plan_of(search->l, producer)->group;
    if (group > search->most) search->most = group;
}

/* search->most: the last group that stage q, or a stage attached in it, reads. */
static void find_needs(need_search *search, int q) {
    tir_stage_loads(search->l->state.region, q, find_need, search);
    for (int k = 0; k < (int)search->l->region->stages.count; k++)
        if (!tir_stage_of(search->l, k)->removed && tir_plan_of(search->l, k)->at_stage == q) find_needs(search, k);
}

/* The number of groups that must be complete before the first stage in the loop's body that reads any of them; all groups if no attached
 * stage does. */
static int first_need(tir_lowering *l, int s, int leaf) {
    for (int q = 0; q < (int)l->region->stages.count; q++) {
        need_search search = {l, s, leaf, 0};
        if (tir_stage_of(l, q)->removed || tir_plan_of(l, q)->at_stage != s || tir_plan_of(l, q)->at_node != leaf)
            continue;
        if (!is_copy_at(l, q, s, leaf)) find_needs(&search, q);
        if (search.most) return search.most;
    }
    return tir_plan_of(l, s)->nodes.data[leaf].groups;
}

void tir_lower_pipeline_step(tir_lowering *l, int s, int leaf, tir_expr var, tir_span bounds) {
    const tir_axis_node *loop = &tir_plan_of(l, s)->nodes.data[leaf];
    const int ahead = loop->stages - 1;
    const int first = first_need(l, s, leaf);
    append_wait(l, loop->groups * ahead - first, true);
    copy_iteration(l, s, leaf, var, bounds, tir_add(l->pool, var, tir_index(l->pool, ahead)));
    open_copies(l, s, leaf, var);
    l->waited = first;
}

void tir_lower_pipeline_need(tir_lowering *l, int s, int leaf, int reader) {
    const tir_axis_node *loop = &tir_plan_of(l, s)->nodes.data[leaf];
    need_search search = {l, s, leaf, 0};
    if (!loop->stages || l->waited == loop->groups) return;
    if (reader >= 0)
        find_needs(&search, reader);
    else
        search.most = loop->groups;
    if (search.most <= l->waited) return;
    append_wait(l, loop->groups * loop->stages - search.most, true);
    l->waited = search.most;
}

void tir_lower_pipeline_close(tir_lowering *l, int s, int leaf) {
    append_wait(l, 0, false);
    l->waited = 0;
    for (int q = 0; q < (int)l->region->stages.count; q++) {
        tir_stage_plan *plan = tir_plan_of(l, q);
        if (!is_copy_at(l, q, s, leaf)) continue;
        plan->stages = 0;
        plan->placed = false;
    }
}
