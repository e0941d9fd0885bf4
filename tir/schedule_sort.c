/* Sorts as stages of other kinds.
 *
 * rank S -> K R: by counting, for short lines. K are its keys, R[i] the number of elements that precede i, n comparisons each; S then
 * stores the value of i at position R[i], or nowhere if only the first ones are needed.
 *
 * merge S -> M: by merging, for machines that compute many points at once. M_0 are runs of one element, M_p those of 2^p: each position of
 * a run looks up its element in the two runs of M_(p-1) that are merged, by binary search along a diagonal of their grid (Odeh,
 * Green, Mwassi, Shmueli, Birk: Merge Path, 2012), so that no point waits for another one. Elements are pairs of key and number; of equal
 * keys that of the first run comes first: the sort is stable. Runs hold only as many elements as are needed. Each pass takes
 * log2(run) + 1 comparisons per position. */
#include "tir/schedule_internal.h"

static tir_stage *stage_at(tir_schedule_state *state, int s) {
    return &state->region->stages.data[s];
}

/* A name for another point along an axis, different from the names of the stage's first axes. */
static const char *other_name(tir_schedule_state *state, const tir_stage *stage, int axes, const char *name) {
    bool taken;
    do {
        name = lib_arena_format(state->region->arena, "%s_o", name);
        taken = false;
        for (int a = 0; a < axes; a++) taken = taken || strcmp(stage->axis[a].name, name) == 0;
    } while (taken);
    return name;
}

/* Inserts before sort s a stage without values, with new axes: the sort's free axes, one over the elements of a line, and `reduce` reduction
 * axes over the elements. */
static void insert_lines(tir_schedule_state *state, int s, const char *name, tir_stage_kind kind, int reduce) {
    const tir_stage sort = *stage_at(state, s);
    tir_stage stage = {.name = name, .kind = kind, .exact = true, .space = sort.space, .reduce = reduce, .fold = -1};
    for (int a = 0; a < sort.space + reduce; a++) {
        const tir_axis *like = &sort.axis[a + 1 < sort.space ? a : sort.space];
        stage.axis[a] = a < sort.space ? tir_axis_like(state, like, like->extent)
                                       : tir_new_axis(state, other_name(state, &stage, a, like->name), TIR_AXIS_PLAIN,
                                                      like->extent);
    }
    *tir_insert_stage(state, s) = stage;
}

/* Adds the tensor of value number `count` of the stage, and counts it; returns its id. */
static uint32_t add_tensor(tir_schedule_state *state, int s, const char *name, tir_dtype dtype) {
    tir_stage *stage = stage_at(state, s);
    tir_tensor tensor = {.name = name,
                         .dtype = (dlc_dtype)dtype,
                         .rank = stage->space,
                         .layout = tir_layout_identity(stage->space),
                         .stage = s,
                         .argument = -1};
    for (int d = 0; d < stage->space; d++) tensor.extent[d] = stage->axis[d].extent;
    tensor.component = stage->count;
    lib_vec_push(state->region->arena, &state->region->tensors, tensor);
    return stage->tensor[stage->count++] = state->region->tensors.count - 1;
}

static tir_expr load_line(tir_schedule_state *state, uint32_t tensor, const tir_stage *stage, tir_expr element) {
    tir_expr index[DLC_MAX_RANK];
    for (int a = 0; a + 1 < stage->space; a++) index[a] = stage->axis[a].var;
    index[stage->space - 1] = element;
    const tir_tensor *t = &state->region->tensors.data[tensor];
    return tir_load(state->region->pool, tensor, (tir_dtype)t->dtype, t->rank, index, 0, 0);
}

/* The keys as signed numbers of the same order. */
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
    last->exact = true; /* no two elements have the same position */
    last->bits = 0;
    for (int a = 0; a + 1 < last->space; a++) last->index[a] = last->axis[a].var;
    tir_expr place = load_line(state, rank_tensor, last, last->axis[last->space].var);
    last->index[last->space - 1] = tir_cast(pool, TIR_INDEX, place);
    last->initial[0] = tir_int(pool, tir_dtype_of(pool, last->value[0]), 0);
}

/* ---- merge S -> M */

typedef struct merging {
    tir_schedule_state *state;
    tir_pool *pool;
    const char *name;
    /* current position of the sort */
    int s;
    /* before the rewrite */
    tir_stage sort;
    /* number of lines, over all free axes; elements of a line */
    tir_expr lines, elements;
    /* dtypes of an element: of its key and of its number in the line */
    tir_dtype key, number;
    /* elements merged into a run */
    int64_t span;
    /* elements kept of a run: no more than are needed */
    tir_expr capacity;
    /* tensors [run, line, position] */
    uint32_t keys, numbers;
} merging;

enum { RUN, LINE, PLACE, STEP };

/* Inserts before the sort a stage over runs, lines and positions, without values; a reduction over `steps` if these are not 0, else a map.
 * Returns its stage number. */
static int insert_pass(merging *m, const char *name, tir_expr capacity, int64_t span, int64_t steps) {
    const tir_expr runs = tir_ceil_div(m->pool, m->elements, tir_index(m->pool, span));
    tir_stage stage = {.name = tir_unique_name(m->state, name),
                       .kind = steps ? TIR_REDUCE : TIR_MAP,
                       .exact = !steps,
                       .space = STEP,
                       .reduce = steps > 0,
                       .fold = -1};
    stage.axis[RUN] = tir_new_axis(m->state, "run", TIR_AXIS_PLAIN, runs);
    stage.axis[LINE] = tir_new_axis(m->state, "line", TIR_AXIS_PLAIN, m->lines);
    stage.axis[PLACE] = tir_new_axis(m->state, "place", TIR_AXIS_PLAIN, capacity);
    if (steps) stage.axis[STEP] = tir_new_axis(m->state, "step", TIR_AXIS_PLAIN, tir_index(m->pool, steps));
    *tir_insert_stage(m->state, m->s) = stage;
    return m->s++;
}

/* index[a] of each free axis a of the sort, for line number `line`; the inverse of line_of. */
static void free_indices(const merging *m, tir_expr line, tir_expr *index) {
    for (int a = m->sort.space - 2; a >= 0; a--) {
        const tir_expr extent = tir_max(m->pool, m->sort.axis[a].extent, tir_index(m->pool, 1));
        index[a] = a ? tir_rem(m->pool, line, extent) : line;
        line = tir_div(m->pool, line, extent);
    }
}

static tir_expr line_of(const merging *m) {
    tir_expr line = tir_index(m->pool, 0);
    for (int a = 0; a + 1 < m->sort.space; a++)
        line = tir_add(m->pool, tir_mul(m->pool, line, m->sort.axis[a].extent), m->sort.axis[a].var);
    return line;
}

static void single_elements(merging *m) {
    tir_expr from[DLC_MAX_RANK], to[DLC_MAX_RANK];
    const tir_expr capacity = tir_min(m->pool, m->sort.axis[m->sort.space - 1].extent, tir_index(m->pool, 1));
    const int at = insert_pass(m, lib_arena_format(m->state->arena, "%s_0", m->name), capacity, 1, 0);
    tir_stage *stage = stage_at(m->state, at);
    free_indices(m, stage->axis[LINE].var, to);
    for (int a = 0; a + 1 < m->sort.space; a++) from[a] = m->sort.axis[a].var;
    from[m->sort.space - 1] = m->sort.axis[m->sort.space].var;
    to[m->sort.space - 1] = stage->axis[RUN].var;
    const tir_expr key = tir_substitute(m->pool, signed_key(m->pool, &m->sort), m->sort.space, from, to);
    stage->value[0] = key;
    stage->value[1] = tir_cast(m->pool, m->number, stage->axis[RUN].var);
    m->keys = add_tensor(m->state, at, lib_arena_format(m->state->arena, "%s_key", stage->name), m->key);
    m->numbers = add_tensor(m->state, at, lib_arena_format(m->state->arena, "%s_number", stage->name), m->number);
    m->span = 1;
    m->capacity = capacity;
}

static tir_expr load_run(const merging *m, uint32_t tensor, tir_expr run, tir_expr line, tir_expr place,
                         tir_expr guard) {
    const tir_dtype dtype = (tir_dtype)m->state->region->tensors.data[tensor].dtype;
    return tir_load(m->pool, tensor, dtype, STEP, (tir_expr[]){run, line, place}, guard, tir_int(m->pool, dtype, 0));
}

/* The number of elements of a run. */
static tir_expr run_length(const merging *m, tir_expr run) {
    const tir_expr first = tir_mul(m->pool, run, tir_index(m->pool, m->span));
    const tir_expr left = tir_max(m->pool, tir_sub(m->pool, m->elements, first), tir_index(m->pool, 0));
    return tir_min(m->pool, left, m->capacity);
}

/* The two runs of the previous pass that are merged at a position, and their lengths. */
typedef struct pair {
    tir_expr line, place, run[2], length[2];
} pair;

static pair pair_at(const merging *m, const tir_stage *stage) {
    pair p = {.line = stage->axis[LINE].var, .place = stage->axis[PLACE].var};
    p.run[0] = tir_mul(m->pool, stage->axis[RUN].var, tir_index(m->pool, 2));
    p.run[1] = tir_add(m->pool, p.run[0], tir_index(m->pool, 1));
    for (int i = 0; i < 2; i++) p.length[i] = run_length(m, p.run[i]);
    return p;
}

/* Adds a reduction that computes, for each position of a merged run, how many elements of the first run precede it: the largest count such
 * that element count - 1 of the first run is not greater than element position - count of the second, found bit by bit from the highest. */
static uint32_t search_diagonal(merging *m, const char *name, tir_expr capacity) {
    tir_pool *pool = m->pool;
    const int64_t most = tir_range(pool, m->capacity).high;
    int64_t steps = 1, highest = 1;
    while (2 * highest <= most) highest *= 2, steps++;
    const int at = insert_pass(m, name, capacity, 2 * m->span, steps);
    tir_stage *stage = stage_at(m->state, at);
    const pair p = pair_at(m, stage);
    const tir_expr one = tir_index(pool, 1), so_far = tir_acc(pool, m->number, 0);
    const tir_expr bit =
        tir_binary(pool, TIR_SHR, tir_int(pool, m->number, highest), tir_cast(pool, m->number, stage->axis[STEP].var));
    const tir_expr more = tir_add(pool, so_far, bit), count = tir_cast(pool, TIR_INDEX, more);
    const tir_expr least = tir_max(pool, tir_sub(pool, p.place, p.length[1]), tir_index(pool, 0));
    const tir_expr fits = tir_le(pool, more, tir_cast(pool, m->number, tir_min(pool, p.place, p.length[0])));
    const tir_expr last = load_run(m, m->keys, p.run[0], p.line, tir_sub(pool, count, one), fits);
    const tir_expr next = load_run(m, m->keys, p.run[1], p.line, tir_sub(pool, p.place, count), fits);
    stage->value[0] = tir_select(pool, tir_and(pool, fits, tir_le(pool, last, next)), more, so_far);
    stage->initial[0] = tir_cast(pool, m->number, least);
    return add_tensor(m->state, at, stage->name, m->number);
}

static void merge_runs(merging *m, int pass, bool last) {
    tir_pool *pool = m->pool;
    const char *name = lib_arena_format(m->state->arena, "%s_%d", m->name, pass);
    const tir_expr wanted = m->sort.axis[m->sort.space - 1].extent;
    const tir_expr capacity = tir_min(pool, wanted, tir_index(pool, 2 * m->span));
    const uint32_t search = search_diagonal(m, lib_arena_format(m->state->arena, "%s_first", name), capacity);
    const int at = insert_pass(m, name, capacity, 2 * m->span, 0);
    tir_stage *stage = stage_at(m->state, at);
    const pair p = pair_at(m, stage);
    const tir_expr index[STEP] = {stage->axis[RUN].var, p.line, p.place};
    tir_expr place[2], inside[2], key[2], number[2];
    place[0] = tir_cast(pool, TIR_INDEX, tir_load(pool, search, m->number, STEP, index, 0, 0));
    place[1] = tir_sub(pool, p.place, place[0]);
    for (int i = 0; i < 2; i++) {
        inside[i] = tir_lt(pool, place[i], p.length[i]);
        key[i] = load_run(m, m->keys, p.run[i], p.line, place[i], inside[i]);
        number[i] = load_run(m, m->numbers, p.run[i], p.line, place[i], inside[i]);
    }
    const tir_expr before = tir_or(pool, tir_unary(pool, TIR_NOT, inside[1]), tir_le(pool, key[0], key[1]));
    const tir_expr first = tir_and(pool, inside[0], before);
    stage->value[0] = tir_select(pool, first, number[0], number[1]);
    if (!last) stage->value[1] = tir_select(pool, first, key[0], key[1]);
    m->numbers = add_tensor(m->state, at, lib_arena_format(m->state->arena, "%s_number", name), m->number);
    if (!last) m->keys = add_tensor(m->state, at, lib_arena_format(m->state->arena, "%s_key", name), m->key);
    m->span *= 2;
    m->capacity = capacity;
}

/* The sort becomes a map that reads the last pass. */
static void take_sorted(merging *m) {
    tir_stage *stage = stage_at(m->state, m->s);
    const tir_expr place = stage->axis[stage->space - 1].var, zero = tir_index(m->pool, 0);
    const tir_expr index[STEP] = {zero, line_of(m), place};
    const tir_expr number = tir_load(m->pool, m->numbers, m->number, STEP, index, 0, 0);
    const tir_expr element = tir_cast(m->pool, TIR_INDEX, number);
    stage->value[0] = tir_substitute(m->pool, stage->value[0], 1, &stage->axis[stage->space].var, &element);
    stage->kind = TIR_MAP;
    stage->reduce = stage->bits = 0;
    stage->initial[0] = 0;
}

void tir_apply_merge(tir_schedule_state *state, lib_lexer *lexer) {
    const int64_t longest = INT64_C(1) << 40;
    tir_pool *pool = state->region->pool;
    merging m = {.state = state, .pool = pool, .s = tir_find_stage(state, lib_lexer_name(lexer))};
    m.sort = *stage_at(state, m.s);
    if (m.sort.kind != TIR_SORT) tir_schedule_raise(state, "%s is no sort", m.sort.name);
    lib_lexer_expect(lexer, "->");
    m.name = lib_lexer_name(lexer);
    m.elements = m.sort.axis[m.sort.space].extent;
    m.lines = tir_index(pool, 1);
    for (int a = 0; a + 1 < m.sort.space; a++) m.lines = tir_mul(pool, m.lines, m.sort.axis[a].extent);
    m.key = tir_dtype_of(pool, m.sort.initial[0]);
    const int64_t most = tir_range(pool, m.elements).high;
    if (most > longest) tir_schedule_raise(state, "lines of %s have no bounded length", m.sort.name);
    m.number = most < INT32_MAX / 2 ? DLC_I32 : DLC_I64; /* a search may overshoot by the same amount */
    single_elements(&m);
    for (int pass = 1; m.span < most; pass++) merge_runs(&m, pass, 2 * m.span >= most);
    take_sorted(&m);
}
