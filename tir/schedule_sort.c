/* rank S -> K R: the sort S as counting, for lines that are short or machines that compute much at once. K are its keys, R[i] how many
 * elements stand before i, n comparisons each; S then puts the value of i at place R[i]. */
#include "tir/schedule_internal.h"

static tir_stage *stage_at(tir_schedule_state *state, int s) {
    return &state->region->stages.data[s];
}

/* A stage with the sort's free axes, the elements' and `reduce` more of these, before stage s. Substitutes its own axes. */
static void insert_lines(tir_schedule_state *state, int s, const char *name, tir_stage_kind kind, int reduce) {
    const tir_stage sort = *stage_at(state, s);
    tir_stage stage = {.name = name, .kind = kind, .exact = true, .space = sort.space, .reduce = reduce, .fold = -1};
    for (int a = 0; a < sort.space + reduce; a++) {
        const tir_axis *like = &sort.axis[a + 1 < sort.space ? a : sort.space];
        stage.axis[a] = tir_new_axis(
            state, a < sort.space ? like->name : lib_arena_format(state->arena, "%s_o", like->name), like->extent);
    }
    *tir_insert_stage(state, s) = stage;
}

/* The tensor of an inserted stage. */
static uint32_t add_tensor(tir_schedule_state *state, int s, const char *name, tir_dtype dtype) {
    tir_stage *stage = stage_at(state, s);
    tir_tensor tensor = {.name = name,
                         .dtype = (dlc_dtype)dtype,
                         .rank = stage->space,
                         .layout = tir_layout_identity(stage->space),
                         .stage = s,
                         .argument = -1};
    for (int d = 0; d < stage->space; d++) tensor.extent[d] = stage->axis[d].extent;
    lib_vec_push(state->region->arena, &state->region->tensors, tensor);
    stage->count = 1;
    return stage->tensor[0] = state->region->tensors.count - 1;
}

static tir_expr load_line(tir_schedule_state *state, uint32_t tensor, const tir_stage *stage, tir_expr element) {
    tir_expr index[DLC_MAX_RANK];
    for (int a = 0; a + 1 < stage->space; a++) index[a] = stage->axis[a].var;
    index[stage->space - 1] = element;
    const tir_tensor *t = &state->region->tensors.data[tensor];
    return tir_load(state->region->pool, tensor, (tir_dtype)t->dtype, t->rank, index, 0, 0);
}

/* Keys that order as signed numbers. */
static tir_expr signed_key(tir_pool *pool, const tir_stage *sort) {
    tir_dtype dtype = tir_dtype_of(pool, sort->initial[0]);
    if (sort->bits != 8 * (int)lib_dtype_size((dlc_dtype)dtype)) return sort->initial[0];
    return tir_binary(pool, TIR_XOR, sort->initial[0], tir_lowest(pool, dtype));
}

void tir_apply_rank(tir_schedule_state *state, lib_lexer *lexer) {
    tir_pool *pool = state->region->pool;
    int s = tir_find_stage(state, lib_lexer_name(lexer));
    const tir_stage sort = *stage_at(state, s);
    if (sort.kind != TIR_SORT) tir_schedule_raise(state, "%s is no sort", sort.name);
    lib_lexer_expect(lexer, "->");
    const char *key_name = tir_unique_name(state, lib_lexer_name(lexer));
    const char *rank_name = tir_unique_name(state, lib_lexer_name(lexer));
    tir_dtype number = tir_range(pool, sort.axis[sort.space].extent).high < INT32_MAX ? DLC_I32 : DLC_I64;

    insert_lines(state, s, key_name, TIR_MAP, 0);
    tir_stage *keys = stage_at(state, s);
    tir_expr from[DLC_MAX_RANK], to[DLC_MAX_RANK], key = signed_key(pool, &sort);
    for (int a = 0; a < sort.space; a++) {
        from[a] = sort.axis[a + 1 < sort.space ? a : sort.space].var;
        to[a] = keys->axis[a].var;
    }
    keys->value[0] = tir_substitute(pool, key, sort.space, from, to);
    uint32_t key_tensor = add_tensor(state, s, key_name, tir_dtype_of(pool, key));

    insert_lines(state, s + 1, rank_name, TIR_REDUCE, 1);
    tir_stage *ranks = stage_at(state, s + 1);
    tir_expr i = ranks->axis[sort.space - 1].var, j = ranks->axis[sort.space].var;
    tir_expr own = load_line(state, key_tensor, ranks, i), other = load_line(state, key_tensor, ranks, j);
    tir_expr before = tir_select(pool, tir_lt(pool, j, i), tir_le(pool, other, own), tir_lt(pool, other, own));
    tir_expr so_far = tir_acc(pool, number, 0), one = tir_int(pool, number, 1), none = tir_int(pool, number, 0);
    ranks->value[0] = tir_add(pool, so_far, tir_select(pool, before, one, none));
    ranks->initial[0] = none;
    ranks->merge[0] = tir_add(pool, so_far, tir_other(pool, number, 0));
    uint32_t rank_tensor = add_tensor(state, s + 1, rank_name, number);

    tir_stage *last = stage_at(state, s + 2);
    last->kind = TIR_SCATTER;
    last->exact = true; /* no two elements have one place */
    last->bits = 0;
    for (int a = 0; a + 1 < last->space; a++) last->index[a] = last->axis[a].var;
    tir_expr place = load_line(state, rank_tensor, last, last->axis[last->space].var);
    last->index[last->space - 1] = tir_cast(pool, TIR_INDEX, place);
    last->initial[0] = tir_int(pool, tir_dtype_of(pool, last->value[0]), 0);
}
