/* The rewrite section of a schedule: compute -> compute, on the region itself. Exact rewrites (inline, layout, copy) keep every
 * bit; rfactor, tree, block, online and sweep of inexact reducers change the order of combines and are named for it. */
#include "tir/arith.h"
#include "tir/schedule_internal.h"

static tir_stage *stage_at(tir_schedule_state *state, int s) {
    return &state->region->stages.data[s];
}

/* Inserts an empty stage at position `at`: later stage numbers increase by one. */
tir_stage *tir_insert_stage(tir_schedule_state *state, int at) {
    tir_region *region = state->region;
    tir_stage empty = {.fold = -1};
    lib_vec_push(region->arena, &region->stages, empty);
    memmove(&region->stages.data[at + 1], &region->stages.data[at],
            (region->stages.count - 1 - (uint32_t)at) * sizeof(tir_stage));
    for (uint32_t t = 0; t < region->tensors.count; t++)
        if (region->tensors.data[t].stage >= at) region->tensors.data[t].stage++;
    for (uint32_t s = 0; s < region->stages.count; s++)
        if ((int)s != at && region->stages.data[s].fold >= at) region->stages.data[s].fold++;
    region->stages.data[at] = empty;
    return &region->stages.data[at];
}

/* Moves stage i to position[i]. */
void tir_permute_stages(tir_schedule_state *state, const int *position) {
    tir_region *region = state->region;
    tir_stage *old = lib_arena_copy(region->arena, region->stages.data, region->stages.count * sizeof *old);
    for (uint32_t s = 0; s < region->stages.count; s++) region->stages.data[position[s]] = old[s];
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (region->stages.data[s].fold >= 0) region->stages.data[s].fold = position[region->stages.data[s].fold];
    for (uint32_t t = 0; t < region->tensors.count; t++)
        if (region->tensors.data[t].stage >= 0) region->tensors.data[t].stage = position[region->tensors.data[t].stage];
}

/* Does stage s read a result of stage p, or is one of the two a fold and the other a step of it? */
static bool needs(tir_schedule_state *state, int s, int p) {
    const tir_stage *stage = stage_at(state, s), *producer = stage_at(state, p);
    if (stage->removed || producer->removed) return false;
    if (stage->fold == p || producer->fold == s) return true;
    for (int c = 0; c < producer->count; c++)
        if (tir_stage_reads(state->region, s, producer->tensor[c])) return true;
    return false;
}

int tir_part_stages(tir_schedule_state *state, bool *later, int *position) {
    const int count = (int)state->region->stages.count;
    int before = 0;
    for (bool changed = true; changed;) { /* a fold precedes its steps, but moves with them */
        changed = false;
        for (int s = 0; s < count; s++)
            for (int p = 0; p < count && !later[s]; p++)
                if (later[p] && needs(state, s, p)) later[s] = changed = true;
    }
    for (int s = 0; s < count; s++) before += !later[s];
    for (int s = 0, early = 0, late = before; s < count; s++) position[s] = later[s] ? late++ : early++;
    tir_permute_stages(state, position);
    return before;
}

const char *tir_unique_name(tir_schedule_state *state, const char *name) {
    for (uint32_t t = 0; t < state->region->tensors.count; t++)
        if (strcmp(state->region->tensors.data[t].name, name) == 0)
            tir_schedule_raise(state, "the name %s is taken", name);
    return lib_arena_string(state->region->arena, name);
}

const char *tir_derived_name(tir_schedule_state *state, const char *base, const char *suffix) {
    return tir_region_fresh_name(state->region->arena, state->region, base, suffix);
}

tir_axis tir_axis_like(tir_schedule_state *state, const tir_axis *axis, tir_expr extent) {
    int64_t high = tir_range(state->region->pool, extent).high;
    if (high < TIR_UNBOUNDED_HIGH) high = high > 0 ? high - 1 : 0;
    tir_axis like = *axis;
    like.var = tir_var(state->region->pool, axis->name, TIR_VAR_AXIS, TIR_INDEX, 0, high);
    like.extent = extent;
    return like;
}

tir_axis tir_new_axis(tir_schedule_state *state, const char *name, tir_axis_role role, tir_expr extent) {
    const tir_axis axis = {
        .name = lib_arena_string(state->region->arena, name), .id = state->region->axis_ids++, .role = role};
    return tir_axis_like(state, &axis, extent);
}

/* Makes the tensors of an inserted stage, one per component of `like`. */
void tir_new_tensors(tir_schedule_state *state, int stage, const tir_stage *like, const char *name) {
    tir_region *region = state->region;
    for (int c = 0; c < like->count; c++) {
        tir_stage *s = stage_at(state, stage);
        tir_tensor tensor = {.name = like->count == 1 ? name : lib_arena_format(region->arena, "%s_%d", name, c),
                             .dtype = region->tensors.data[like->tensor[c]].dtype,
                             .rank = s->space,
                             .layout = tir_layout_identity(s->space),
                             .stage = stage,
                             .component = c,
                             .argument = -1};
        if (s->space > DLC_MAX_RANK) tir_schedule_raise(state, "stage %s would have too many axes", name);
        for (int d = 0; d < s->space; d++) tensor.extent[d] = s->axis[d].extent;
        lib_vec_push(region->arena, &region->tensors, tensor);
        stage_at(state, stage)->tensor[c] = region->tensors.count - 1;
    }
    stage_at(state, stage)->count = like->count;
}

/* ---- replacing loads */

typedef struct load_replacement {
    tir_schedule_state *state;
    uint32_t tensor;
    /* copy: the same indices of this tensor */
    uint32_t by_tensor;
    /* inline: the value at these indices */
    const tir_stage *by_stage;
    /* inline: number of distinct loads replaced */
    int maps;
} load_replacement;

static tir_expr inline_load(load_replacement *r, tir_pool *pool, tir_expr load) {
    const tir_node node = *tir_get(pool, load);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < r->by_stage->space; a++) {
        from[a] = r->by_stage->axis[a].var;
        to[a] = tir_operand(pool, load, a);
    }
    tir_expr value = tir_substitute(pool, r->by_stage->value[0], r->by_stage->space, from, to);
    r->maps++;
    if (!node.guarded) return value;
    int rank = node.count - 2;
    return tir_select(pool, tir_operand(pool, load, rank), value, tir_operand(pool, load, rank + 1));
}

static tir_expr replace_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    load_replacement *r = user;
    (void)e;
    const tir_node node = *tir_get(pool, rebuilt);
    if (node.op != TIR_LOAD || node.bits != r->tensor) return rebuilt;
    if (r->by_stage) return inline_load(r, pool, rebuilt);
    tir_expr index[DLC_MAX_RANK];
    int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, rebuilt, d);
    return tir_load(pool, r->by_tensor, node.dtype, rank, index, node.guarded ? tir_operand(pool, rebuilt, rank) : 0,
                    node.guarded ? tir_operand(pool, rebuilt, rank + 1) : 0);
}

void tir_rewrite_stage(tir_pool *pool, tir_stage *stage, tir_visit visit, void *user) {
    for (int c = 0; c < stage->count; c++) {
        stage->value[c] = tir_rewrite(pool, stage->value[c], visit, user);
        if (stage->initial[c]) stage->initial[c] = tir_rewrite(pool, stage->initial[c], visit, user);
    }
    if (stage->predicate) stage->predicate = tir_rewrite(pool, stage->predicate, visit, user);
    if (stage->kind == TIR_SCATTER)
        for (int d = 0; d < stage->space; d++) stage->index[d] = tir_rewrite(pool, stage->index[d], visit, user);
}

static void replace_in_stage(load_replacement *r, tir_stage *stage) {
    r->maps = 0;
    tir_rewrite_stage(r->state->region->pool, stage, replace_load, r);
}

/* ---- inline P */

static void apply_inline(tir_schedule_state *state, lib_lexer *lexer) {
    int s = tir_find_stage(state, lib_lexer_name(lexer));
    tir_stage stage = *stage_at(state, s);
    const tir_tensor *tensor = &state->region->tensors.data[stage.tensor[0]];
    if (stage.kind != TIR_MAP || stage.count != 1) tir_schedule_raise(state, "only maps with one value can be inlined");
    if (tensor->output) tir_schedule_raise(state, "%s is an output of the region", stage.name);
    if (stage.fold >= 0) tir_schedule_raise(state, "%s is a step of a fold", stage.name);
    for (uint32_t q = 0; q < state->region->stages.count; q++) {
        if (state->region->stages.data[q].removed || (int)q == s) continue;
        tir_stage changed = *stage_at(state, (int)q);
        load_replacement r = {state, stage.tensor[0], 0, &stage, 0};
        if (changed.kind == TIR_FOLD) {
            tir_stage probe = changed;
            replace_in_stage(&r, &probe);
            if (r.maps) tir_schedule_raise(state, "%s is read by fold %s", stage.name, changed.name);
            continue;
        }
        replace_in_stage(&r, &changed);
        if (r.maps > 2)
            tir_schedule_raise(state,
                               "%s is read through %d index maps by %s; more than two would double the code per level",
                               stage.name, r.maps, changed.name);
        *stage_at(state, (int)q) = changed;
    }
    stage_at(state, s)->removed = true;
}

/* ---- layout T (j/48, k, j%48) */

typedef struct axis_search {
    tir_schedule_state *state;
    const tir_stage *stage;
    uint32_t tensor;
    const tir_axis **axes;
} axis_search;

static bool is_found(const tir_axis *const *axes, int rank, const tir_axis *axis) {
    for (int d = 0; d < rank; d++)
        if (axes[d] && axes[d]->id == axis->id) return true;
    return false;
}

static void find_indices(void *user, tir_expr load) {
    axis_search *search = user;
    tir_pool *pool = search->state->region->pool;
    if (tir_get(pool, load)->bits != search->tensor) return;
    const int rank = search->state->region->tensors.data[search->tensor].rank;
    for (int d = 0; d < rank; d++)
        for (int a = 0; a < search->stage->space + search->stage->reduce; a++) {
            const tir_axis *axis = &search->stage->axis[a];
            if (search->axes[d] || axis->var != tir_operand(pool, load, d)) continue;
            if (!is_found(search->axes, rank, axis)) search->axes[d] = axis;
        }
}

/* The axis after which each dimension of a tensor is named: of its stage; for an input, of the first reader that indexes it by an
 * axis; NULL: none. */
static void dimension_axes(tir_schedule_state *state, uint32_t t, const tir_axis **axes) {
    const tir_region *region = state->region;
    const tir_tensor *tensor = &region->tensors.data[t];
    for (int d = 0; d < tensor->rank; d++)
        axes[d] =
            tensor->stage >= 0 && d < stage_at(state, tensor->stage)->space /* a state has dimensions of its own */
                ? &stage_at(state, tensor->stage)->axis[d]
                : NULL;
    for (uint32_t q = 0; q < region->stages.count && tensor->stage < 0; q++) {
        axis_search search = {state, stage_at(state, (int)q), t, axes};
        if (!search.stage->removed) tir_stage_loads(state->region, (int)q, find_indices, &search);
    }
}

static bool is_taken(const char *const *names, int rank, const char *name) {
    for (int d = 0; d < rank; d++)
        if (names[d] && strcmp(names[d], name) == 0) return true;
    return false;
}

void tir_dimension_names(lib_arena *arena, tir_region *region, uint32_t t, const char **names) {
    tir_schedule_state state = {.region = region, .arena = arena};
    const tir_axis *axes[DLC_MAX_RANK];
    const int rank = region->tensors.data[t].rank;
    dimension_axes(&state, t, axes);
    for (int d = 0; d < rank; d++) names[d] = NULL;
    for (int d = 0; d < rank; d++) /* axes of several stages may share a name */
        if (axes[d] && !is_taken(names, rank, axes[d]->name)) names[d] = axes[d]->name;
    for (int d = 0; d < rank; d++)
        for (int n = d; !names[d]; n += rank) {
            const char *name = lib_arena_format(arena, "d%d", n);
            if (!is_taken(names, rank, name)) names[d] = name;
        }
}

static void apply_layout(tir_schedule_state *state, lib_lexer *lexer) {
    uint32_t t = tir_find_tensor(state, lib_lexer_name(lexer));
    tir_tensor *tensor = &state->region->tensors.data[t];
    const char *names[DLC_MAX_RANK] = {NULL};
    tir_dimension_names(state->arena, state->region, t, names);
    tir_layout layout = tir_layout_parse(lexer, tensor->rank, names);
    tir_layout_verify(state->arena->scope, &layout, state->line);
    if (tensor->stage < 0 && !tensor->constant)
        tir_schedule_raise(state, "%s comes from outside in the caller's layout: `copy` it first", tensor->name);
    int count = tensor->stage >= 0 ? stage_at(state, tensor->stage)->count : 1; /* values of one stage share a layout */
    for (int c = 0; c < count; c++) {
        tir_tensor *value =
            tensor->stage >= 0 ? &state->region->tensors.data[stage_at(state, tensor->stage)->tensor[c]] : tensor;
        if (value->output) tir_schedule_raise(state, "%s is an output: its layout is the caller's", value->name);
        if (value->rank != tensor->rank)
            tir_schedule_raise(state, "%s and %s have different ranks", value->name, tensor->name);
        value->layout = layout;
    }
}

/* ---- copy x -> xs, copy x -> xs as f32 */

/* Makes `to` the region's output instead of `from`, which becomes internal. */
void tir_take_output(tir_region *region, uint32_t from_id, uint32_t to_id) {
    tir_tensor *from = &region->tensors.data[from_id], *to = &region->tensors.data[to_id];
    to->output = true;
    to->argument = from->argument;
    to->alignment = from->alignment;
    to->layout = from->layout;
    to->has_strides = from->has_strides;
    memcpy(to->stride, from->stride, sizeof to->stride);
    from->output = from->has_strides = false;
    if (from->stage >= 0) region->stages.data[from->stage].in_place = false; /* its buffer changes */
    from->argument = -1;
    from->layout = tir_layout_identity(from->rank);
}

/* The fold to whose state or steps the stage belongs; -1: none. */
static int fold_of(tir_schedule_state *state, int s) {
    return s < 0 ? -1 : stage_at(state, s)->kind == TIR_FOLD ? s : stage_at(state, s)->fold;
}

/* Casts of loads of the tensor become casts of loads of the widened copy, or these loads alone. */
static tir_expr replace_widened(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const load_replacement *r = user;
    const tir_dtype copied = (tir_dtype)r->state->region->tensors.data[r->by_tensor].dtype;
    const tir_expr load = tir_op_of(pool, rebuilt) == TIR_CAST ? tir_operand(pool, rebuilt, 0) : 0;
    (void)e;
    if (!load) return rebuilt;
    const tir_node node = *tir_get(pool, load);
    if (node.op != TIR_LOAD || node.bits != r->tensor) return rebuilt;
    tir_expr index[DLC_MAX_RANK];
    const int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, load, d);
    const tir_expr wide =
        tir_load(pool, r->by_tensor, copied, rank, index, node.guarded ? tir_operand(pool, load, rank) : 0,
                 node.guarded ? tir_cast(pool, copied, tir_operand(pool, load, rank + 1)) : 0);
    return tir_cast(pool, tir_dtype_of(pool, rebuilt), wide);
}

/* The dtype of the copy: `as f32` widens floats, `as i16` bytes. */
static tir_dtype copied_dtype(tir_schedule_state *state, lib_lexer *lexer, const tir_tensor *source) {
    dlc_dtype to;
    if (!lib_lexer_accept(lexer, "as")) return (tir_dtype)source->dtype;
    const bool known = lib_dtype_parse(lib_lexer_name(lexer), &to);
    if (!known || source->output || !tir_embeds((tir_dtype)source->dtype, (tir_dtype)to) ||
        lib_dtype_size(to) <= lib_dtype_size(source->dtype) ||
        lib_dtype_is_float(to) != lib_dtype_is_float(source->dtype))
        tir_schedule_raise(
            state, "a copy `as` another dtype has a wider one with all values of the tensor, which is no output");
    return (tir_dtype)to;
}

static void apply_copy(tir_schedule_state *state, lib_lexer *lexer) {
    uint32_t t = tir_find_tensor(state, lib_lexer_name(lexer));
    lib_lexer_expect(lexer, "->");
    const char *name = tir_unique_name(state, lib_lexer_name(lexer));
    tir_tensor source = state->region->tensors.data[t];
    const tir_dtype dtype = copied_dtype(state, lexer, &source);
    const bool widens = dtype != (tir_dtype)source.dtype;
    const char *names[DLC_MAX_RANK];
    const tir_axis *like[DLC_MAX_RANK];
    tir_axis axes[DLC_MAX_RANK];
    tir_dimension_names(state->arena, state->region, t, names);
    dimension_axes(state, t, like);
    for (int d = 0; d < source.rank; d++) { /* copied: inserting a stage invalidates pointers */
        axes[d] = like[d] ? tir_axis_like(state, like[d], source.extent[d])
                          : tir_new_axis(state, names[d], TIR_AXIS_PLAIN, source.extent[d]);
        axes[d].name = lib_arena_string(state->region->arena, names[d]);
    }
    int at = source.stage + 1;
    tir_stage *stage = tir_insert_stage(state, at);
    stage->name = name;
    stage->kind = TIR_MAP;
    stage->space = source.rank;
    tir_expr index[DLC_MAX_RANK];
    for (int d = 0; d < source.rank; d++) {
        stage->axis[d] = axes[d];
        index[d] = axes[d].var;
    }
    tir_stage values = {.count = 1, .tensor = {t}};
    tir_new_tensors(state, at, &values, name);
    uint32_t copy = stage_at(state, at)->tensor[0];
    state->region->tensors.data[copy].dtype = (dlc_dtype)dtype;
    for (uint32_t q = 0; q < state->region->stages.count; q++) {
        load_replacement r = {state, t, copy, NULL, 0};
        if (stage_at(state, (int)q)->removed || (int)q == at) continue;
        if (source.stage >= 0 && fold_of(state, source.stage) >= 0 &&
            fold_of(state, (int)q) == fold_of(state, source.stage))
            continue; /* a fold and its steps use each other's values of the same time step */
        tir_rewrite_stage(state->region->pool, stage_at(state, (int)q), widens ? replace_widened : replace_load, &r);
    }
    if (source.output) tir_take_output(state->region, t, copy);
    tir_pool *pool = state->region->pool;
    stage_at(state, at)->value[0] =
        tir_cast(pool, dtype, tir_load(pool, t, (tir_dtype)source.dtype, source.rank, index, 0, 0));
}

/* ---- rfactor S.j n chunks|lanes -> S_p jr jt; rfactor S.j n chunks of m -> S_p jr jt */

static int reduce_axis(tir_schedule_state *state, lib_lexer *lexer, int *stage) {
    const char *name;
    *stage = tir_read_dotted(state, lexer, &name);
    const tir_stage *s = stage_at(state, *stage);
    for (int a = s->space; a < s->space + s->reduce; a++)
        if (strcmp(s->axis[a].name, name) == 0) return a;
    tir_schedule_raise(state, "stage %s has no reduction axis %s", s->name, name);
}

/* Gives a partial stage, not yet inserted, axes of its own: its variables are renamed, except those of the parts, its last space axis,
 * and of `rest`, which are new. */
static void give_own_axes(tir_schedule_state *state, tir_stage *partial, tir_expr rest) {
    tir_pool *pool = state->region->pool;
    const int parts = partial->space - 1;
    for (int a = 0; a < partial->space + partial->reduce; a++) {
        if (a == parts || (a > parts && partial->axis[a].var == rest)) continue;
        tir_axis fresh = tir_axis_like(state, &partial->axis[a], partial->axis[a].extent);
        for (int c = 0; c < partial->count; c++)
            partial->value[c] = tir_substitute(pool, partial->value[c], 1, &partial->axis[a].var, &fresh.var);
        if (partial->predicate)
            partial->predicate = tir_substitute(pool, partial->predicate, 1, &partial->axis[a].var, &fresh.var);
        partial->axis[a] = fresh;
    }
}

/* Makes the original stage, which follows the partial stage s, combine the parts in ascending order. */
static void combine_parts(tir_schedule_state *state, int s, const tir_stage *whole, const tir_axis *part) {
    tir_pool *pool = state->region->pool;
    tir_stage *combined = stage_at(state, s + 1);
    tir_axis over = tir_axis_like(state, part, part->extent);
    tir_expr index[DLC_MAX_RANK], others[TIR_MAX_STATE], placeholders[TIR_MAX_STATE];
    for (int a = 0; a < whole->space; a++) index[a] = whole->axis[a].var;
    index[whole->space] = over.var;
    for (int c = 0; c < whole->count; c++) {
        tir_dtype dtype = tir_dtype_of(pool, whole->value[c]);
        placeholders[c] = tir_other(pool, dtype, c);
        others[c] = tir_load(pool, stage_at(state, s)->tensor[c], dtype, whole->space + 1, index, 0, 0);
    }
    for (int c = 0; c < whole->count; c++)
        combined->value[c] = tir_substitute(pool, whole->merge[c], whole->count, placeholders, others);
    combined->reduce = 1;
    combined->axis[whole->space] = over;
    combined->predicate = 0;
}

static void apply_rfactor(tir_schedule_state *state, lib_lexer *lexer) {
    tir_pool *pool = state->region->pool;
    int s, split = reduce_axis(state, lexer, &s);
    int64_t n = lib_lexer_integer(lexer);
    bool lanes = lib_lexer_accept(lexer, "lanes");
    if (!lanes) lib_lexer_expect(lexer, "chunks");
    const int64_t together = !lanes && lib_lexer_accept(lexer, "of") ? lib_lexer_integer(lexer) : 1;
    lib_lexer_expect(lexer, "->");
    const char *name = tir_unique_name(state, lib_lexer_name(lexer));
    const char *part_name = lib_lexer_name(lexer), *rest_name = lib_lexer_name(lexer);
    tir_stage whole = *stage_at(state, s);
    if (whole.kind != TIR_REDUCE || !whole.merge[0])
        tir_schedule_raise(state, "%s cannot be combined from parts", whole.name);
    if (n < 1 || together < 1 || n > INT32_MAX || together > INT32_MAX)
        tir_schedule_raise(state, "a factor of at least 1 was expected");
    tir_expr count = tir_index(pool, n), extent = whole.axis[split].extent, steps = tir_ceil_div(pool, extent, count),
             group = tir_index(pool, together);
    if (together > 1) steps = tir_mul(pool, tir_ceil_div(pool, steps, group), group);
    tir_axis part = tir_new_axis(state, part_name, lanes ? TIR_AXIS_LANE : TIR_AXIS_CHUNK, count);
    tir_axis rest = tir_new_axis(state, rest_name, lanes ? TIR_AXIS_STEP : TIR_AXIS_WITHIN, steps);
    tir_expr point = lanes ? tir_add(pool, tir_mul(pool, rest.var, count), part.var)
                           : tir_add(pool, tir_mul(pool, part.var, steps), rest.var);
    tir_stage partial = whole;
    partial.name = name;
    partial.space = whole.space + 1;
    partial.axis[whole.space] = part;
    for (int a = whole.space; a < whole.space + whole.reduce; a++)
        partial.axis[a + 1] = a == split ? rest : whole.axis[a];
    tir_expr from = whole.axis[split].var;
    for (int c = 0; c < whole.count; c++) partial.value[c] = tir_substitute(pool, whole.value[c], 1, &from, &point);
    tir_expr valid = tir_lt(pool, point, extent);
    partial.predicate = whole.predicate ? tir_substitute(pool, whole.predicate, 1, &from, &point) : 0;
    if (!tir_is_true(pool, valid) && tir_prove(pool, valid) != TIR_YES &&
        tir_multiple_of(pool, extent) % (n * together) != 0)
        partial.predicate = partial.predicate ? tir_and(pool, valid, partial.predicate) : valid;
    give_own_axes(state, &partial, rest.var);
    tir_stage *inserted = tir_insert_stage(state, s);
    *inserted = partial;
    tir_new_tensors(state, s, &whole, name);
    combine_parts(state, s, &whole, &part);
}

/* ---- tree S.jr : S combines n = 2^m parts of one tensor per component; instead of in ascending order, halves are added pairwise:
 * S_8[jr] = P[jr] + P[jr + 8], S_4[jr] = S_8[jr] + S_8[jr + 4], ..., S = S_1's sum. A butterfly's lanes 2i compute the same bits. */

typedef struct part_search {
    tir_schedule_state *state;
    tir_expr var;
    /* stage of the parts; -1: none found, -2: several */
    int producer;
    tir_expr load[TIR_MAX_STATE];
} part_search;

static void find_parts(void *user, tir_expr load) {
    part_search *search = user;
    tir_pool *pool = search->state->region->pool;
    if (!tir_uses(pool, load, search->var)) return;
    const tir_tensor *tensor = &search->state->region->tensors.data[tir_get(pool, load)->bits];
    if (search->producer == -1) search->producer = tensor->stage;
    if (tensor->stage < 0 || search->producer != tensor->stage)
        search->producer = -2;
    else
        search->load[tensor->component] = load;
}

static tir_expr merge_of(tir_pool *pool, const tir_stage *stage, int component, const tir_expr *left,
                         const tir_expr *right) {
    tir_expr from[2 * TIR_MAX_STATE], to[2 * TIR_MAX_STATE];
    for (int c = 0; c < stage->count; c++) {
        tir_dtype dtype = tir_dtype_of(pool, stage->value[c]);
        from[2 * c] = tir_acc(pool, dtype, c);
        to[2 * c] = left[c];
        from[2 * c + 1] = tir_other(pool, dtype, c);
        to[2 * c + 1] = right[c];
    }
    return tir_substitute(pool, stage->merge[component], 2 * stage->count, from, to);
}

static void become_map(tir_stage *stage, const tir_expr *values) {
    stage->kind = TIR_MAP;
    stage->reduce = 0;
    for (int c = 0; c < stage->count; c++) {
        stage->value[c] = values[c];
        stage->initial[c] = stage->merge[c] = 0;
    }
}

/* Inserts the map that computes `half` sums as stage s. `values`: these, over the axes of the whole. */
static void add_level(tir_schedule_state *state, int s, const tir_stage *whole, int64_t half, tir_expr *values) {
    tir_pool *pool = state->region->pool;
    const char *name = tir_derived_name(state, whole->name, lib_arena_format(state->arena, "_%lld", (long long)half));
    tir_stage *level = tir_insert_stage(state, s);
    *level = *whole;
    level->kind = TIR_MAP;
    level->name = name;
    level->reduce = 0;
    level->space = whole->space + 1;
    for (int a = 0; a <= whole->space; a++) {
        tir_axis fresh =
            tir_axis_like(state, &whole->axis[a], a == whole->space ? tir_index(pool, half) : whole->axis[a].extent);
        for (int c = 0; c < whole->count; c++)
            values[c] = tir_substitute(pool, values[c], 1, &whole->axis[a].var, &fresh.var);
        stage_at(state, s)->axis[a] = fresh;
    }
    tir_new_tensors(state, s, whole, name);
    for (int c = 0; c < whole->count; c++) {
        stage_at(state, s)->value[c] = values[c];
        stage_at(state, s)->initial[c] = stage_at(state, s)->merge[c] = 0;
    }
}

/* Loads of the sums of level s, over the axes of the whole. */
static void load_level(tir_schedule_state *state, int s, const tir_stage *whole, tir_expr *loads) {
    tir_pool *pool = state->region->pool;
    tir_expr index[DLC_MAX_RANK];
    for (int a = 0; a <= whole->space; a++) index[a] = whole->axis[a].var;
    for (int c = 0; c < whole->count; c++)
        loads[c] = tir_load(pool, stage_at(state, s)->tensor[c], tir_dtype_of(pool, whole->value[c]), whole->space + 1,
                            index, 0, 0);
}

static void apply_tree(tir_schedule_state *state, lib_lexer *lexer) {
    tir_pool *pool = state->region->pool;
    int s, axis = reduce_axis(state, lexer, &s);
    tir_stage whole = *stage_at(state, s);
    int64_t n;
    if (!tir_is_const(pool, whole.axis[axis].extent, &n) || n < 2 || (n & (n - 1)))
        tir_schedule_raise(state, "axis %s must have a constant power of two of parts", whole.axis[axis].name);
    part_search parts = {.state = state, .var = whole.axis[axis].var, .producer = -1};
    tir_stage_loads(state->region, s, find_parts, &parts);
    if (whole.kind != TIR_REDUCE || !whole.merge[0] || whole.reduce != 1 || whole.predicate || parts.producer < 0)
        tir_schedule_raise(state, "%s does not combine the parts of one rfactored stage", whole.name);
    tir_expr current[TIR_MAX_STATE], var = whole.axis[axis].var;
    memcpy(current, parts.load, sizeof current);
    for (int64_t half = n / 2; half >= 1; half /= 2) {
        tir_expr right[TIR_MAX_STATE], values[TIR_MAX_STATE];
        tir_expr moved = tir_add(pool, var, tir_index(pool, half)), zero = tir_index(pool, 0), one = tir_index(pool, 1);
        for (int c = 0; c < whole.count; c++)
            right[c] = tir_substitute(pool, current[c], 1, &var, half == 1 ? &one : &moved);
        for (int c = 0; c < whole.count && half == 1; c++)
            current[c] = tir_substitute(pool, current[c], 1, &var, &zero);
        for (int c = 0; c < whole.count; c++) values[c] = merge_of(pool, &whole, c, current, right);
        if (half == 1) {
            become_map(stage_at(state, s), values);
            return;
        }
        add_level(state, s, &whole, half, values);
        load_level(state, s, &whole, current);
        s++;
    }
}

void tir_apply_rewrite(tir_schedule_state *state, tir_directive_kind kind, lib_lexer *lexer) {
    switch (kind) {
    case TIR_D_INLINE: apply_inline(state, lexer); return;
    case TIR_D_COLLAPSE: tir_apply_collapse(state); return;
    case TIR_D_EXPAND: tir_apply_expand(state, lexer); return;
    case TIR_D_LAYOUT: apply_layout(state, lexer); return;
    case TIR_D_COPY: apply_copy(state, lexer); return;
    case TIR_D_OPERAND: tir_apply_operand(state, lexer); return;
    case TIR_D_RFACTOR: apply_rfactor(state, lexer); return;
    case TIR_D_TREE: apply_tree(state, lexer); return;
    case TIR_D_RANK: tir_apply_rank(state, lexer); return;
    case TIR_D_MERGE: tir_apply_merge(state, lexer); return;
    case TIR_D_WHERE: tir_apply_where(state, lexer); return;
    case TIR_D_SEED: tir_apply_seed(state, lexer); return;
    case TIR_D_SWEEP: tir_apply_sweep(state, lexer); return;
    default: tir_apply_fold_rewrite(state, kind, lexer); return;
    }
}
