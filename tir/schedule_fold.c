/* Rewrites of folds: `block` splits the sequential axis of an associative fold into blocks that run in parallel, `scan` computes
 * such blocks by pairwise sums, `hoist` moves a step that does not need the state out of the fold. */
#include "tir/schedule_internal.h"

static tir_stage *stage_at(tir_schedule_state *state, int s) {
    return &state->region->stages.data[s];
}
static tir_pool *pool_of(const tir_schedule_state *state) {
    return state->region->pool;
}

static int find_fold(tir_schedule_state *state, const char *name) {
    int fold = tir_find_stage(state, name);
    if (stage_at(state, fold)->kind != TIR_FOLD) tir_schedule_raise(state, "%s is not a fold", name);
    return fold;
}

/* ---- hoist S F : S becomes an ordinary stage before the fold */

typedef struct step_search {
    tir_schedule_state *state;
    int fold, step;
} step_search;

static void refuse_fold_values(void *user, tir_expr load) {
    step_search *search = user;
    const tir_tensor *tensor = &search->state->region->tensors.data[tir_get(pool_of(search->state), load)->bits];
    if (tensor->stage == search->fold) tir_schedule_raise(search->state, "it reads the state %s", tensor->name);
    if (tensor->stage >= 0 && stage_at(search->state, tensor->stage)->fold == search->fold)
        tir_schedule_raise(search->state, "it reads %s, which stays in the fold", tensor->name);
}

static void refuse_next(void *user, tir_expr load) {
    step_search *search = user;
    if (search->state->region->tensors.data[tir_get(pool_of(search->state), load)->bits].stage == search->step)
        tir_schedule_raise(search->state, "it is the next state");
}

static void apply_hoist(tir_schedule_state *state, lib_lexer *lexer) {
    int s = tir_find_stage(state, lib_lexer_name(lexer)), fold = find_fold(state, lib_lexer_name(lexer));
    if (stage_at(state, s)->fold != fold) tir_schedule_raise(state, "it is not a step of that fold");
    step_search search = {state, fold, s};
    tir_stage_loads(state->region, s, refuse_fold_values, &search);
    tir_stage_loads(state->region, fold, refuse_next, &search);
    stage_at(state, s)->fold = -1;
    int *position = LIB_NEW_ARRAY(state->arena, int, state->region->stages.count);
    for (int q = 0; q < (int)state->region->stages.count; q++)
        position[q] = q == s ? fold : q >= fold && q < s ? q + 1 : q;
    tir_permute_stages(state, position);
}

/* ---- block c.t B -> totals prefixes b i : with op associative and c' = c op e(t),
 *   totals[b]    = reduce over i of e(b*B + i)
 *   prefixes     = fold over b of prefixes op totals[b]; its last state is the last state of the old fold c
 *   c            = fold over i, free along b, from the state of prefixes before block b
 * c's old step at t is the new step at (t / B, t % B). c is removed if only its last state is read. */

typedef struct blocking {
    tir_schedule_state *state;
    /* before the rewrite */
    tir_stage fold, step;
    int fold_at, step_at;
    /* the step's value is state op rest */
    tir_op op;
    /* the load of the state in the step's value */
    tir_expr state_load;
    /* the step's value contains several loads of the state */
    bool several;
    /* step axis of each axis of the fold, t last */
    int axis_of[TIR_MAX_AXES];
    int64_t size;
    /* number of blocks */
    tir_expr blocks;
    /* templates of the axes of blocks and of positions in one */
    tir_axis block, inner;
    /* the last block may be shorter */
    bool ragged;
    /* followers, steps that only read the step's values, are allowed */
    bool followers;
} blocking;

static bool associative(const blocking *b, tir_expr value) {
    static const tir_op ops[] = {TIR_ADD, TIR_MUL, TIR_MAX, TIR_MIN, TIR_AND, TIR_OR, TIR_XOR};
    tir_pool *pool = pool_of(b->state);
    tir_op op = tir_op_of(pool, value);
    bool known = op == TIR_MULADD;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) known = known || ops[i] == op;
    if (!known) return false;
    int count = tir_get(pool, value)->count, states = 0;
    for (int i = 0; i < count; i++) {
        tir_expr operand = tir_operand(pool, value, i);
        if (operand == b->state_load && (op != TIR_MULADD || i == 2)) {
            states++;
            continue;
        }
        if (tir_uses(pool, operand, b->state_load)) return false;
    }
    return states == 1;
}

static void find_state_load(void *user, tir_expr load) {
    blocking *b = user;
    if (tir_get(pool_of(b->state), load)->bits != b->fold.tensor[0]) return;
    b->several = b->several || (b->state_load && b->state_load != load);
    b->state_load = load;
}

static bool other_steps(const blocking *b) {
    tir_schedule_state *state = b->state;
    for (int q = 0; q < (int)state->region->stages.count; q++)
        if (q != b->step_at && !stage_at(state, q)->removed && stage_at(state, q)->fold == b->fold_at &&
            (!b->followers || !tir_is_follower(state, q) || tir_stage_reads(state->region, q, b->fold.tensor[0])))
            return true;
    return false;
}

/* Is the step a map over the axes of the fold, in some order? Sets axis_of. */
static bool is_map_over_axes(blocking *b) {
    bool is_map = b->step.kind == TIR_MAP && b->step.count == 1 && b->step.space == b->fold.space + 1;
    for (int a = 0; a <= b->fold.space && is_map; a++) {
        b->axis_of[a] = -1;
        for (int d = 0; d < b->step.space; d++)
            if (tir_operand(pool_of(b->state), b->fold.value[0], d) == b->fold.axis[a].var) b->axis_of[a] = d;
        is_map = b->axis_of[a] >= 0;
    }
    return is_map;
}

/* NULL: the fold has the form  next = step[axes of the fold in some order], step = state[free axes] op rest;  else the reason why not. Sets
 * step, step_at, axis_of, state_load and op. */
static const char *flaw_of(blocking *b) {
    tir_schedule_state *state = b->state;
    tir_pool *pool = pool_of(state);
    lib_arena *arena = state->arena;
    const char *name = b->fold.name;
    if (b->fold.count != 1 || state->region->tensors.data[b->fold.tensor[0]].rank != b->fold.space)
        return lib_arena_format(arena, "the state of %s is not one number per point", name);
    if (b->fold.predicate) return lib_arena_format(arena, "%s leaves out iterations", name);
    b->step_at = state->region->tensors.data[tir_get(pool, b->fold.value[0])->bits].stage;
    b->step = *stage_at(state, b->step_at);
    if (other_steps(b)) return lib_arena_format(arena, "%s has several steps", name);
    if (!is_map_over_axes(b)) return lib_arena_format(arena, "the step of %s is not a map over its axes", name);
    tir_stage_loads(state->region, b->step_at, find_state_load, b);
    if (b->several) return "its step reads the state at several points";
    bool same_point = b->state_load != 0;
    for (int a = 0; same_point && a < b->fold.space; a++)
        same_point = tir_operand(pool, b->state_load, a) == b->step.axis[b->axis_of[a]].var;
    if (!same_point || !associative(b, b->step.value[0]))
        return lib_arena_format(
            arena, "the step of %s is not its state combined by an associative operator with something else", name);
    b->op = tir_op_of(pool, b->step.value[0]);
    if (b->op == TIR_MULADD) b->op = TIR_ADD;
    return NULL;
}

int tir_cumulative_step(tir_region *region, int fold, int *time) {
    tir_schedule_state state = {.region = region, .arena = region->arena};
    blocking b = {.state = &state, .fold_at = fold, .fold = region->stages.data[fold]};
    if (b.fold.kind != TIR_FOLD || flaw_of(&b)) return -1;
    *time = b.axis_of[b.fold.space];
    return b.step_at;
}

static void analyse(blocking *b) {
    const char *flaw = flaw_of(b);
    if (flaw) tir_schedule_raise(b->state, "%s", flaw);
}

static tir_expr identity_of(tir_pool *pool, tir_op op, tir_dtype dtype) {
    if (op == TIR_MAX) return tir_lowest(pool, dtype);
    if (op == TIR_MIN) return tir_highest(pool, dtype);
    if (op == TIR_AND) return tir_bits(pool, dtype, UINT64_MAX);
    return tir_int(pool, dtype, op == TIR_MUL);
}

typedef struct load_guard {
    tir_expr guard;
} load_guard;

static tir_expr guard_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const load_guard *g = user;
    (void)e;
    const tir_node node = *tir_get(pool, rebuilt);
    if (node.op != TIR_LOAD) return rebuilt;
    tir_expr index[DLC_MAX_RANK], guard = g->guard, other = tir_int(pool, node.dtype, 0);
    int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, rebuilt, d);
    if (node.guarded) {
        guard = tir_and(pool, guard, tir_operand(pool, rebuilt, rank));
        other = tir_operand(pool, rebuilt, rank + 1);
    }
    return tir_load(pool, (uint32_t)node.bits, node.dtype, rank, index, guard, other);
}

/* The step's value with `by` in place of the state's load, over the axes `at`: the fold's free axes, the block, the position in the block.
 * `guarded`: if the last block is partial, loads beyond the end are guarded. */
static tir_expr step_value(blocking *b, const tir_axis *at, tir_expr by, bool guarded) {
    tir_pool *pool = pool_of(b->state);
    int space = b->fold.space;
    tir_expr time = tir_add(pool, tir_mul(pool, at[space].var, tir_index(pool, b->size)), at[space + 1].var);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], hole = tir_other(pool, tir_dtype_of(pool, by), 0);
    for (int a = 0; a <= space; a++) {
        from[a] = b->step.axis[b->axis_of[a]].var;
        to[a] = a == space ? time : at[a].var;
    }
    tir_expr value = tir_substitute(pool, b->step.value[0], 1, &b->state_load, &hole);
    value = tir_substitute(pool, value, space + 1, from, to);
    load_guard guard = {tir_lt(pool, time, b->fold.axis[space].extent)};
    if (guarded && b->ragged) value = tir_rewrite(pool, value, guard_load, &guard);
    return tir_substitute(pool, value, 1, &hole, &by);
}

/* New axes for a stage: the fold's free axes, the block, the position in the block. */
static void block_axes(blocking *b, tir_axis *axis) {
    for (int a = 0; a < b->fold.space; a++) axis[a] = tir_axis_like(b->state, &b->fold.axis[a], b->fold.axis[a].extent);
    axis[b->fold.space] = tir_axis_like(b->state, &b->block, b->blocks);
    axis[b->fold.space + 1] = tir_axis_like(b->state, &b->inner, tir_index(pool_of(b->state), b->size));
}

static tir_expr load_at(blocking *b, uint32_t tensor, int rank, const tir_axis *axis) {
    tir_expr index[DLC_MAX_RANK];
    for (int d = 0; d < rank; d++) index[d] = axis[d].var;
    tir_pool *pool = pool_of(b->state);
    return tir_load(pool, tensor, (tir_dtype)b->state->region->tensors.data[tensor].dtype, rank, index, 0, 0);
}

static tir_stage *add_stage(blocking *b, int at, tir_stage_kind kind, const char *name, const tir_axis *axis, int space,
                            int reduce) {
    tir_stage *stage = tir_insert_stage(b->state, at);
    stage->kind = kind;
    stage->name = name;
    stage->space = space;
    stage->reduce = reduce;
    memcpy(stage->axis, axis, (size_t)(space + reduce) * sizeof *axis);
    tir_stage like = {.count = 1, .tensor = {b->fold.tensor[0]}};
    tir_new_tensors(b->state, at, &like, name);
    return stage_at(b->state, at);
}

static void add_totals(blocking *b, const char *name) {
    tir_pool *pool = pool_of(b->state);
    tir_axis axis[TIR_MAX_AXES];
    int space = b->fold.space;
    block_axes(b, axis);
    tir_dtype dtype = tir_dtype_of(pool, b->step.value[0]);
    tir_stage *stage = add_stage(b, b->fold_at, TIR_REDUCE, name, axis, space + 1, 1);
    tir_expr acc = tir_acc(pool, dtype, 0);
    stage->initial[0] = identity_of(pool, b->op, dtype);
    stage->value[0] = step_value(b, axis, acc, false);
    stage->merge[0] = tir_binary(pool, b->op, acc, tir_other(pool, dtype, 0));
    stage->exact = (b->op != TIR_ADD && b->op != TIR_MUL) || !lib_dtype_is_float((dlc_dtype)dtype);
    tir_expr time = tir_add(pool, tir_mul(pool, axis[space].var, tir_index(pool, b->size)), axis[space + 1].var);
    if (b->ragged) stage->predicate = tir_lt(pool, time, b->fold.axis[space].extent);
}

/* Adds the fold over blocks, whose state is the combination of their totals, and its step; returns the step's tensor: the state after each
 * block. */
static uint32_t add_prefixes(blocking *b, const char *name, const char *step_name, uint32_t totals) {
    tir_pool *pool = pool_of(b->state);
    tir_axis axis[TIR_MAX_AXES], step_axis[TIR_MAX_AXES];
    int space = b->fold.space;
    block_axes(b, axis);
    block_axes(b, step_axis);
    tir_stage *fold = add_stage(b, b->fold_at + 1, TIR_FOLD, name, axis, space, 1);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < space; a++) {
        from[a] = b->fold.axis[a].var;
        to[a] = axis[a].var;
    }
    fold->initial[0] = tir_substitute(pool, b->fold.initial[0], space, from, to);
    uint32_t prefixes = fold->tensor[0];
    tir_stage *step = add_stage(b, b->fold_at + 2, TIR_MAP, step_name, step_axis, space + 1, 0);
    step->fold = b->fold_at + 1;
    step->value[0] =
        tir_binary(pool, b->op, load_at(b, prefixes, space, step_axis), load_at(b, totals, space + 1, step_axis));
    uint32_t after = step->tensor[0];
    stage_at(b->state, b->fold_at + 1)->value[0] = load_at(b, after, space + 1, axis);
    return after;
}

typedef struct tensor_replacement {
    uint32_t from, to;
} tensor_replacement;

static tir_expr replace_tensor(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const tensor_replacement *r = user;
    (void)e;
    const tir_node node = *tir_get(pool, rebuilt);
    if (node.op != TIR_LOAD || node.bits != r->from) return rebuilt;
    tir_expr index[DLC_MAX_RANK];
    int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, rebuilt, d);
    return tir_load(pool, r->to, node.dtype, rank, index, node.guarded ? tir_operand(pool, rebuilt, rank) : 0,
                    node.guarded ? tir_operand(pool, rebuilt, rank + 1) : 0);
}

/* Makes the fold at stage `at` the fold over the positions in a block, with the block as a free axis, from the state `after` the previous
 * block; adds its step. The old step becomes a map that reads the new step's values at (t / B, t % B). */
static void change_fold(blocking *b, int at, uint32_t after, const char *step_name) {
    tir_pool *pool = pool_of(b->state);
    tir_region *region = b->state->region;
    tir_axis axis[TIR_MAX_AXES], step_axis[TIR_MAX_AXES];
    int space = b->fold.space;
    block_axes(b, axis);
    block_axes(b, step_axis);
    tir_stage *fold = stage_at(b->state, at);
    uint32_t c = fold->tensor[0];
    memcpy(fold->axis, axis, (size_t)(space + 2) * sizeof *axis);
    fold->space = space + 1;
    region->tensors.data[c].rank = space + 1;
    region->tensors.data[c].extent[space] = b->blocks;
    region->tensors.data[c].layout = tir_layout_identity(space + 1);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], index[DLC_MAX_RANK], one = tir_index(pool, 1);
    for (int a = 0; a < space; a++) {
        from[a] = b->fold.axis[a].var;
        index[a] = to[a] = axis[a].var;
    }
    index[space] = tir_sub(pool, axis[space].var, one);
    tir_dtype dtype = tir_dtype_of(pool, b->step.value[0]);
    fold->initial[0] = tir_load(pool, after, dtype, space + 1, index, tir_le(pool, one, axis[space].var),
                                tir_substitute(pool, b->fold.initial[0], space, from, to));
    tir_stage *step = add_stage(b, at + 1, TIR_MAP, step_name, step_axis, space + 2, 0);
    step->fold = at;
    step->value[0] = step_value(b, step_axis, load_at(b, c, space + 1, step_axis), true);
    uint32_t inner = step->tensor[0];
    stage_at(b->state, at)->value[0] = load_at(b, inner, space + 2, axis);
    tir_stage *all = stage_at(b->state, region->tensors.data[b->step.tensor[0]].stage);
    tir_expr time = all->axis[b->axis_of[space]].var, size = tir_index(pool, b->size);
    for (int a = 0; a < space; a++) index[a] = all->axis[b->axis_of[a]].var;
    index[space] = tir_div(pool, time, size);
    index[space + 1] = tir_rem(pool, time, size);
    all->value[0] = tir_load(pool, inner, dtype, space + 2, index, 0, 0);
}

/* Parses "F.t B ->". */
static blocking parse_blocks(tir_schedule_state *state, lib_lexer *lexer) {
    char *name = lib_lexer_name(lexer), *dot = strrchr(name, '.');
    if (!dot) tir_schedule_raise(state, "%s: expected fold.axis", name);
    *dot = 0;
    blocking b = {.state = state, .fold_at = find_fold(state, name)};
    b.fold = *stage_at(state, b.fold_at);
    if (strcmp(b.fold.axis[b.fold.space].name, dot + 1) != 0)
        tir_schedule_raise(state, "the axis of fold %s is called %s", name, b.fold.axis[b.fold.space].name);
    b.size = lib_lexer_integer(lexer);
    if (b.size < 1) tir_schedule_raise(state, "a block has at least one point");
    lib_lexer_expect(lexer, "->");
    return b;
}

static void cut_blocks(blocking *b) {
    tir_pool *pool = pool_of(b->state);
    tir_expr extent = b->fold.axis[b->fold.space].extent, size = tir_index(pool, b->size);
    b->blocks = tir_ceil_div(pool, extent, size);
    b->ragged = tir_rem(pool, extent, size) != tir_index(pool, 0);
    if (b->fold.space + 2 > DLC_MAX_RANK) tir_schedule_raise(b->state, "%s would have too many axes", b->step.name);
}

static void name_axes(blocking *b, lib_lexer *lexer, tir_axis_role block, tir_axis_role inner) {
    tir_region *region = b->state->region;
    b->block = (tir_axis){
        .name = lib_arena_string(region->arena, lib_lexer_name(lexer)), .id = region->axis_ids++, .role = block};
    b->inner = (tir_axis){
        .name = lib_arena_string(region->arena, lib_lexer_name(lexer)), .id = region->axis_ids++, .role = inner};
}

static void apply_block(tir_schedule_state *state, lib_lexer *lexer) {
    blocking b = parse_blocks(state, lexer);
    const char *totals_name = tir_unique_name(state, lib_lexer_name(lexer));
    const char *prefixes_name = tir_unique_name(state, lib_lexer_name(lexer));
    name_axes(&b, lexer, TIR_AXIS_PLAIN, TIR_AXIS_PLAIN);
    analyse(&b);
    cut_blocks(&b);
    tir_pool *pool = pool_of(state);
    const char *after_name = tir_derived_name(state, prefixes_name, lib_arena_format(state->arena, "_%s", b.step.name));
    const char *step_name = tir_derived_name(state, b.step.name, lib_arena_format(state->arena, "_%s", b.inner.name));
    uint32_t last = b.fold.tensor[0], all = b.step.tensor[0];
    bool all_used = state->region->tensors.data[all].output;
    for (int q = 0; q < (int)state->region->stages.count; q++)
        if (q != b.fold_at && !stage_at(state, q)->removed)
            all_used = all_used || tir_stage_reads(state->region, q, all);
    add_totals(&b, totals_name);
    uint32_t totals = stage_at(state, b.fold_at)->tensor[0];
    uint32_t after = add_prefixes(&b, prefixes_name, after_name, totals);
    uint32_t prefixes = stage_at(state, b.fold_at + 1)->tensor[0];
    int fold_at = b.fold_at + 3, step_at = state->region->tensors.data[all].stage;
    tensor_replacement r = {last, prefixes};
    for (int q = 0; q < (int)state->region->stages.count; q++)
        if (q != fold_at && q != step_at && !stage_at(state, q)->removed)
            tir_rewrite_stage(pool, stage_at(state, q), replace_tensor, &r);
    if (state->region->tensors.data[last].output) tir_take_output(state->region, last, prefixes);
    if (all_used)
        change_fold(&b, fold_at, after, step_name);
    else
        stage_at(state, fold_at)->removed = stage_at(state, step_at)->removed = true;
}

/* ---- scan c.t B -> L b i : with op associative, c' = c op e(t), B a power of two,
 *   L[b, i]      = e(b*B + i), beyond the end the identity
 *   L_1, L_2, .. = L[b, i - 1] op L[b, i], L_1[b, i - 2] op L_1[b, i], ..: the last of these levels has all sums within blocks
 *                  (Hillis, Steele 1986)
 *   c            = fold over b of c op the last sum of block b; c's old step becomes c op the sum at (t / B, t % B). */

/* A level's value: the level `before` at this point combined with `before` at the point `distance` earlier in the block (the identity if
 * there is none). */
static tir_expr pair_sum(blocking *b, uint32_t before, const tir_axis *axis, int64_t distance) {
    tir_pool *pool = pool_of(b->state);
    int lane = b->fold.space + 1;
    tir_dtype dtype = tir_dtype_of(pool, b->step.value[0]);
    tir_expr index[DLC_MAX_RANK], offset = tir_index(pool, distance);
    for (int d = 0; d <= lane; d++) index[d] = axis[d].var;
    tir_expr here = tir_load(pool, before, dtype, lane + 1, index, 0, 0);
    index[lane] = tir_sub(pool, axis[lane].var, offset);
    tir_expr earlier = tir_load(pool, before, dtype, lane + 1, index, tir_le(pool, offset, axis[lane].var),
                                identity_of(pool, b->op, dtype));
    return tir_binary(pool, b->op, earlier, here);
}

/* Adds the levels as steps of the fold; returns the last one's tensor, the sums within blocks. */
static uint32_t add_levels(blocking *b, const char *name) {
    tir_schedule_state *state = b->state;
    tir_pool *pool = pool_of(state);
    tir_axis axis[TIR_MAX_AXES];
    int at = b->fold_at + 1, space = b->fold.space;
    tir_dtype dtype = tir_dtype_of(pool, b->step.value[0]);
    block_axes(b, axis);
    tir_stage *stage = add_stage(b, at, TIR_MAP, name, axis, space + 2, 0);
    tir_expr identity = identity_of(pool, b->op, dtype), value = step_value(b, axis, identity, true);
    tir_expr time = tir_add(pool, tir_mul(pool, axis[space].var, tir_index(pool, b->size)), axis[space + 1].var);
    if (b->ragged) value = tir_select(pool, tir_lt(pool, time, b->fold.axis[space].extent), value, identity);
    stage->value[0] = value;
    stage->fold = b->fold_at;
    for (int64_t distance = 1; distance < b->size; distance *= 2) {
        uint32_t before = stage->tensor[0];
        const char *level = tir_derived_name(state, name, lib_arena_format(state->arena, "_%lld", (long long)distance));
        block_axes(b, axis);
        stage = add_stage(b, ++at, TIR_MAP, level, axis, space + 2, 0);
        stage->value[0] = pair_sum(b, before, axis, distance);
        stage->fold = b->fold_at;
    }
    return stage->tensor[0];
}

/* Adds the step c op (last sum of the block), and makes the fold run over blocks with this step as its next state. */
static void add_carry(blocking *b, int at, const char *name, uint32_t sums) {
    tir_schedule_state *state = b->state;
    tir_pool *pool = pool_of(state);
    tir_axis axis[TIR_MAX_AXES], step_axis[TIR_MAX_AXES];
    int space = b->fold.space;
    tir_dtype dtype = tir_dtype_of(pool, b->step.value[0]);
    block_axes(b, axis);
    block_axes(b, step_axis);
    tir_stage *step = add_stage(b, at, TIR_MAP, name, step_axis, space + 1, 0);
    tir_expr index[DLC_MAX_RANK], from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int d = 0; d <= space; d++) index[d] = step_axis[d].var;
    index[space + 1] = tir_index(pool, b->size - 1);
    step->fold = b->fold_at;
    step->value[0] = tir_binary(pool, b->op, load_at(b, b->fold.tensor[0], space, step_axis),
                                tir_load(pool, sums, dtype, space + 2, index, 0, 0));
    uint32_t after = step->tensor[0];
    tir_stage *fold = stage_at(state, b->fold_at);
    for (int a = 0; a < space; a++) {
        from[a] = b->fold.axis[a].var;
        to[a] = axis[a].var;
    }
    fold->initial[0] = tir_substitute(pool, b->fold.initial[0], space, from, to);
    memcpy(fold->axis, axis, (size_t)(space + 1) * sizeof *axis);
    fold->value[0] = load_at(b, after, space + 1, axis);
}

static void apply_scan(tir_schedule_state *state, lib_lexer *lexer) {
    blocking b = parse_blocks(state, lexer);
    const char *name = tir_unique_name(state, lib_lexer_name(lexer));
    name_axes(&b, lexer, TIR_AXIS_BLOCK, TIR_AXIS_LANE);
    b.followers = true;
    if (b.size < 2 || (b.size & (b.size - 1))) tir_schedule_raise(state, "a block must have a power of two of points");
    analyse(&b);
    cut_blocks(&b);
    tir_pool *pool = pool_of(state);
    int space = b.fold.space;
    uint32_t sums = add_levels(&b, name), all = b.step.tensor[0];
    int levels = state->region->tensors.data[sums].stage - b.fold_at;
    add_carry(&b, b.fold_at + levels + 1, tir_derived_name(state, name, "_carry"), sums);
    tir_stage *step = stage_at(state, state->region->tensors.data[all].stage);
    tir_expr index[DLC_MAX_RANK], size = tir_index(pool, b.size), time = step->axis[b.axis_of[space]].var;
    tir_axis free[TIR_MAX_AXES];
    for (int a = 0; a < space; a++) {
        free[a] = step->axis[b.axis_of[a]];
        index[a] = free[a].var;
    }
    index[space] = tir_div(pool, time, size);
    index[space + 1] = tir_rem(pool, time, size);
    tir_expr sum = tir_load(pool, sums, tir_dtype_of(pool, b.step.value[0]), space + 2, index, 0, 0);
    step->value[0] = tir_binary(pool, b.op, load_at(&b, b.fold.tensor[0], space, free), sum);
}

void tir_apply_fold_rewrite(tir_schedule_state *state, tir_directive_kind kind, lib_lexer *lexer) {
    if (kind == TIR_D_HOIST)
        apply_hoist(state, lexer);
    else if (kind == TIR_D_BLOCK)
        apply_block(state, lexer);
    else if (kind == TIR_D_SCAN)
        apply_scan(state, lexer);
    else
        tir_apply_online(state, lexer);
}
