/* Operators that order elements: top_k, sort. top_k combines an element and its index into one integer key, ordered like the result:
 * all keys differ, so that any order of comparisons gives the same bits. A sort is a stage kind of its own. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

enum { TOP_K, TOP_AXIS, TOP_DTYPE, TOP_LEAST };

static void infer_top_k(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    dlc_dtype dtype = (dlc_dtype)infer->attribute[TOP_DTYPE].integer;
    int axis = graph_infer_axis(infer, infer->attribute[TOP_AXIS].integer, x->rank, "axis");
    int64_t k = infer->attribute[TOP_K].integer;
    if (dtype != DLC_I32 && dtype != DLC_I64)
        graph_infer_fail(infer, "dtype is %s, expected i32 or i64", lib_dtypes[dtype].name);
    if (k < 0) graph_infer_fail(infer, "k is %lld, expected at least 0", (long long)k);
    tir_expr count = tir_index(infer->g->pool, k);
    graph_infer_at_most(infer, count, x->dim[axis], "the axis has less than k elements");
    infer->result[0] = *x;
    infer->result[0].dim[axis] = count;
    infer->result[1] = infer->result[0];
    infer->result[1].dtype = dtype;
}

static bool is_unsigned(dlc_dtype dtype) {
    return lib_dtypes[dtype].class_ == 'u';
}

/* A signed integer that is ordered as x is, with NaN last, and equal for both zeros. */
static tir_expr ascending_rank(tir_pool *pool, tir_expr x) {
    tir_dtype dtype = tir_dtype_of(pool, x);
    bool is_float = lib_dtype_is_float((dlc_dtype)dtype), wide = lib_dtypes[dtype].bytes == 8;
    tir_dtype number = is_float && wide ? DLC_F64 : DLC_F32, key = wide ? DLC_I64 : DLC_I32;
    tir_expr rank;
    if (is_float) {
        x = tir_cast(pool, number, x);
        tir_expr bits = tir_bitcast(pool, key, tir_add(pool, x, tir_float(pool, number, 0)));
        tir_expr sign = tir_binary(pool, TIR_SHR, bits, tir_int(pool, key, wide ? 63 : 31));
        tir_expr magnitude = tir_bits(pool, key, wide ? UINT64_C(0x7fffffffffffffff) : 0x7fffffffu);
        rank = tir_binary(pool, TIR_XOR, bits, tir_and(pool, sign, magnitude));
        rank = tir_select(pool, tir_eq(pool, x, x), rank, magnitude);
    } else {
        rank = tir_cast(pool, key, x);
        if (dtype == DLC_U32 || dtype == DLC_U64) /* wrapped: ordered as the integer minus 2^31, or 2^63 */
            rank = tir_binary(pool, TIR_XOR, rank, tir_lowest(pool, key));
    }
    return rank;
}

/* ascending_rank of x, complemented if the least elements are selected: the greatest rank is selected first. */
static tir_expr rank_of(const graph_compute *c, tir_expr x) {
    tir_expr rank = ascending_rank(c->pool, x);
    return c->attribute[TOP_LEAST].integer ? tir_unary(c->pool, TIR_NOT, rank) : rank;
}

/* The stages of top_k: step t of the fold finds the greatest key below that of step t - 1. */
typedef struct selection {
    graph_compute *c;
    int along, rank;
    /* number of the stage */
    uint32_t fold;
    /* tensor of the elements' ranks, or keys of rank and index: of x's shape */
    uint32_t ranks;
    /* tensor of the selected elements: of the result's shape, an i64 index, or a key with the index in its low half */
    uint32_t index;
} selection;

static void element_ranks(selection *s, bool with_index) {
    graph_compute *c = s->c;
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_expr index[DLC_MAX_RANK];
    tir_stage *stage = graph_map_stage(c, x, index);
    tir_expr rank = rank_of(c, graph_operand_load(c, 0, index));
    if (with_index) { /* the low half is positive: no key is the lowest or the highest integer */
        tir_expr at = tir_sub(pool, tir_int(pool, DLC_I64, 0xfffffffe), tir_cast(pool, DLC_I64, index[s->along]));
        tir_expr high = tir_binary(pool, TIR_SHL, tir_cast(pool, DLC_I64, rank), tir_int(pool, DLC_I64, 32));
        rank = tir_or(pool, high, at);
    }
    s->ranks = tir_stage_value(c->region, stage, rank, 0, 0);
}

/* Adds the fold, with states of these initial values, and its step, still without values. Sets state[] to the states' tensors, element[] to
 * the index of x at a point of the step, and free[] to that of the states. */
static tir_stage *open_selection(selection *s, int components, const tir_expr *initial, uint32_t *state,
                                 tir_expr *element, tir_expr *free) {
    graph_compute *c = s->c;
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    tir_expr extent[DLC_MAX_RANK];
    int count = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != s->along) extent[count++] = x->dim[i];
    tir_stage *fold = tir_region_stage(c->region, TIR_FOLD, c->name, count, NULL, extent, 1, (const char *[]){"t"},
                                       &y->dim[s->along]);
    for (int i = 0; i < components; i++) state[i] = tir_stage_value(c->region, fold, initial[i], initial[i], 0);
    s->fold = c->region->stages.count - 1;
    tir_stage *step =
        tir_region_stage(c->region, TIR_REDUCE, c->name, x->rank, NULL, y->dim, 1, NULL, &x->dim[s->along]);
    step->fold = (int32_t)s->fold;
    step->exact = true;
    for (int i = 0, n = 0; i < x->rank; i++) {
        element[i] = step->axis[i == s->along ? x->rank : i].var;
        if (i != s->along) free[n++] = step->axis[i].var;
    }
    return step;
}

static void close_selection(selection *s, int components, const uint32_t *values) {
    tir_stage *fold = &s->c->region->stages.data[s->fold];
    tir_expr index[DLC_MAX_RANK];
    for (int i = 0, n = 0; i < s->rank; i++) index[i] = fold->axis[i == s->along ? s->rank - 1 : n++].var;
    for (int i = 0; i < components; i++) fold->value[i] = tir_region_load(s->c->region, values[i], index);
}

/* Elements of up to 32 bits: rank and index in one key. */
static void select_keys(selection *s) {
    graph_compute *c = s->c;
    tir_pool *pool = c->pool;
    element_ranks(s, true);
    tir_expr first = tir_highest(pool, DLC_I64), element[DLC_MAX_RANK], free[DLC_MAX_RANK];
    uint32_t state;
    tir_stage *step = open_selection(s, 1, &first, &state, element, free);
    tir_expr key = tir_region_load(c->region, s->ranks, element), last = tir_region_load(c->region, state, free);
    tir_expr best = tir_acc(pool, DLC_I64, 0), rival = tir_other(pool, DLC_I64, 0);
    tir_expr update = tir_select(pool, tir_lt(pool, key, last), tir_max(pool, best, key), best);
    s->index = tir_stage_value(c->region, step, update, tir_lowest(pool, DLC_I64), tir_max(pool, best, rival));
    close_selection(s, 1, &s->index);
}

/* ---- selection by blocks: a step reads the best rank of each block, and the elements of the block that it selects from */

typedef struct blocks {
    selection *s;
    int64_t size;
    /* elements of a line; blocks */
    tir_expr n, count;
    /* best rank of each block: [free axes, blocks] */
    uint32_t best;
    /* tensors of the fold and its steps */
    uint32_t last, bounds, top, taken, next, state;
} blocks;

/* The block size for lines along the axis: about the root of their length, since a step is cheapest if there are as many blocks as elements
 * in a block. 0: the lines are too short for blocks. */
static int64_t block_size(const graph_compute *c, int along) {
    enum { SHORT = 256, UNKNOWN = 1024 };
    int64_t n, size = 16;
    if (!tir_is_const(c->pool, c->operand_shape[0].dim[along], &n)) return UNKNOWN;
    if (n < SHORT) return 0;
    while (size * size < n) size *= 2;
    return size;
}

/* The rank of element `at` of the line at index free[] of the other axes. Sets *inside: the element exists. Elsewhere a predicate masks the
 * load if `predicate`; else the rank is that of 0. */
static tir_expr block_rank(blocks *b, const tir_expr *free, tir_expr at, bool predicate, tir_expr *inside) {
    graph_compute *c = b->s->c;
    tir_pool *pool = c->pool;
    tir_expr index[DLC_MAX_RANK];
    for (int i = 0, k = 0; i < b->s->rank; i++) index[i] = i == b->s->along ? at : free[k++];
    *inside = tir_lt(pool, at, b->n);
    tir_expr nothing = tir_int(pool, (tir_dtype)c->operand_shape[0].dtype, 0);
    return rank_of(c, predicate ? graph_operand_load(c, 0, index)
                                : tir_region_load_guarded(c->region, c->operand[0], index, *inside, nothing));
}

static tir_expr packed_key(tir_pool *pool, tir_expr rank, tir_expr at) {
    tir_expr low = tir_sub(pool, tir_int(pool, DLC_I64, 0xfffffffe), tir_cast(pool, DLC_I64, at));
    return tir_or(pool, tir_binary(pool, TIR_SHL, tir_cast(pool, DLC_I64, rank), tir_int(pool, DLC_I64, 32)), low);
}

static tir_expr packed_index(tir_pool *pool, tir_expr key) {
    tir_expr low = tir_and(pool, key, tir_int(pool, DLC_I64, 0xffffffff));
    return tir_cast(pool, TIR_INDEX, tir_sub(pool, tir_int(pool, DLC_I64, 0xfffffffe), low));
}

static void best_of_blocks(blocks *b, int count, const tir_expr *extent) {
    graph_compute *c = b->s->c;
    tir_pool *pool = c->pool;
    tir_expr size = tir_index(pool, b->size), free[DLC_MAX_RANK], space[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) space[i] = extent[i];
    space[count] = b->count;
    tir_stage *stage = tir_region_stage(c->region, TIR_REDUCE, c->name, count + 1, NULL, space, 1, NULL, &size);
    for (int i = 0; i < count; i++) free[i] = stage->axis[i].var;
    tir_expr at = tir_add(pool, tir_mul(pool, stage->axis[count].var, size), stage->axis[count + 1].var);
    tir_expr key = block_rank(b, free, at, true, &stage->predicate);
    if (tir_is_true(pool, stage->predicate)) stage->predicate = 0;
    b->best = tir_stage_reduce(c->region, stage, TIR_MAX, key);
}

/* A stage of the fold's step over `count` free axes, the step axis t, and an axis of extent *more if more is not NULL; a reduction over *over if
 * over is not NULL. Sets free[] to the variables of the axes that are not reduced. */
static tir_stage *block_step(blocks *b, tir_stage_kind kind, int count, const tir_expr *extent, const tir_expr *more,
                             const tir_expr *over, tir_expr *free) {
    graph_compute *c = b->s->c;
    tir_expr space[DLC_MAX_RANK];
    int axes = count + 1;
    for (int i = 0; i < count; i++) space[i] = extent[i];
    space[count] = c->result_shape[0].dim[b->s->along];
    if (more) space[axes++] = *more;
    tir_stage *stage = tir_region_stage(c->region, kind, c->name, axes, NULL, space, over != NULL, NULL, over);
    stage->fold = (int32_t)b->s->fold;
    stage->exact = over != NULL;
    for (int i = 0; i < axes; i++) free[i] = stage->axis[i].var;
    return stage;
}

/* An upper bound of a block's remaining keys: in the first step a key of its best rank and its first index, later the fold's state. */
static tir_expr bound_of(blocks *b, int count, const tir_expr *free, tir_expr block) {
    graph_compute *c = b->s->c;
    tir_pool *pool = c->pool;
    tir_expr index[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) index[i] = free[i];
    index[count] = block;
    tir_expr best = tir_region_load(c->region, b->best, index), kept = tir_region_load(c->region, b->bounds, index);
    tir_expr first = packed_key(pool, best, tir_mul(pool, block, tir_index(pool, b->size)));
    return tir_select(pool, tir_eq(pool, free[count], tir_index(pool, 0)), first, kept);
}

/* A stage with the greatest key below the value of tensor `limit`, in the block of the element whose key is b->top. */
static uint32_t best_below(blocks *b, int count, const tir_expr *extent, uint32_t limit) {
    graph_compute *c = b->s->c;
    tir_pool *pool = c->pool;
    tir_expr size = tir_index(pool, b->size), one = tir_index(pool, 1), zero = tir_index(pool, 0), free[DLC_MAX_RANK];
    tir_stage *stage = block_step(b, TIR_REDUCE, count, extent, NULL, &size, free);
    tir_expr block = tir_div(pool, packed_index(pool, tir_region_load(c->region, b->top, free)), size), guard;
    block = tir_max(pool, tir_min(pool, block, tir_sub(pool, b->count, one)), zero);
    tir_expr at = tir_add(pool, tir_mul(pool, block, size), stage->axis[count + 1].var);
    tir_expr key = packed_key(pool, block_rank(b, free, at, false, &guard), at), best = tir_acc(pool, DLC_I64, 0);
    tir_expr below = tir_and(pool, guard, tir_lt(pool, key, tir_region_load(c->region, limit, free)));
    return tir_stage_value(c->region, stage, tir_select(pool, below, tir_max(pool, best, key), best),
                           tir_lowest(pool, DLC_I64), tir_max(pool, best, tir_other(pool, DLC_I64, 0)));
}

static void select_blocks(selection *s, int64_t size) {
    graph_compute *c = s->c;
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    blocks b = {.s = s, .size = size, .n = x->dim[s->along]};
    tir_expr extent[DLC_MAX_RANK], free[DLC_MAX_RANK];
    int count = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != s->along) extent[count++] = x->dim[i];
    b.count = tir_ceil_div(pool, b.n, tir_index(pool, size));
    best_of_blocks(&b, count, extent);

    tir_stage *fold = tir_region_stage(c->region, TIR_FOLD, c->name, count, NULL, extent, 1, (const char *[]){"t"},
                                       &y->dim[s->along]);
    tir_expr highest = tir_highest(pool, DLC_I64);
    b.last = tir_stage_value(c->region, fold, highest, highest, 0);
    b.bounds = tir_stage_value(c->region, fold, highest, highest, 0);
    tir_tensor *bounds = &c->region->tensors.data[b.bounds];
    bounds->extent[bounds->rank++] = b.count;
    bounds->layout = tir_layout_identity(bounds->rank);
    s->fold = c->region->stages.count - 1;

    tir_stage *stage = block_step(&b, TIR_REDUCE, count, extent, NULL, &b.count, free);
    b.top = tir_stage_reduce(c->region, stage, TIR_MAX, bound_of(&b, count, free, stage->axis[count + 1].var));
    b.taken = best_below(&b, count, extent, b.last);
    b.next = best_below(&b, count, extent, b.taken);
    stage = block_step(&b, TIR_MAP, count, extent, &b.count, NULL, free);
    tir_expr block = tir_div(pool, packed_index(pool, tir_region_load(c->region, b.top, free)), tir_index(pool, size));
    tir_expr here = tir_eq(pool, block, free[count + 1]);
    b.state = tir_stage_value(
        c->region, stage,
        tir_select(pool, here, tir_region_load(c->region, b.next, free), bound_of(&b, count, free, free[count + 1])), 0,
        0);

    fold = &c->region->stages.data[s->fold];
    for (int i = 0; i <= count; i++) free[i] = fold->axis[i].var;
    free[count + 1] = tir_index(pool, 0);
    fold->value[0] = tir_region_load(c->region, b.taken, free);
    fold->value[1] = tir_region_load(c->region, b.state, free);
    s->index = b.taken;
}

/* ---- selection by blocks for 64-bit elements, whose rank leaves no space for an index: separate reductions for ranks and positions */

typedef struct wide_blocks {
    /* b.bounds is here the best remaining rank of each block, [free axes, blocks] */
    blocks b;
    int count;
    tir_expr extent[DLC_MAX_RANK];
    /* position of the element selected by the previous step, whose rank is b.last */
    uint32_t last_at;
    /* number of remaining elements of each block: [free axes, blocks] */
    uint32_t left;
    /* steps: the best rank of all, and its block */
    uint32_t rank, block;
} wide_blocks;

/* The value of the state for the block: `first` in step 0, later the fold's state. */
static tir_expr block_state(const wide_blocks *w, uint32_t state, const tir_expr *free, tir_expr block,
                            tir_expr first) {
    graph_compute *c = w->b.s->c;
    tir_expr index[DLC_MAX_RANK];
    for (int i = 0; i < w->count; i++) index[i] = free[i];
    index[w->count] = block;
    tir_expr is_first = tir_eq(c->pool, free[w->count], tir_index(c->pool, 0));
    return tir_select(c->pool, is_first, first, tir_region_load(c->region, state, index));
}

static tir_expr rank_left(const wide_blocks *w, const tir_expr *free, tir_expr block) {
    graph_compute *c = w->b.s->c;
    tir_expr index[DLC_MAX_RANK];
    for (int i = 0; i < w->count; i++) index[i] = free[i];
    index[w->count] = block;
    return block_state(w, w->b.bounds, free, block, tir_region_load(c->region, w->b.best, index));
}

static tir_expr count_left(const wide_blocks *w, const tir_expr *free, tir_expr block) {
    tir_pool *pool = w->b.s->c->pool;
    tir_expr size = tir_index(pool, w->b.size), rest = tir_sub(pool, w->b.n, tir_mul(pool, block, size));
    return block_state(w, w->left, free, block, tir_cast(pool, DLC_I64, tir_min(pool, size, rest)));
}

/* Completes the stage as a reduction of the values for which the condition holds: to the least, or, with `op` TIR_MAX, to the greatest. */
static uint32_t reduce_where(graph_compute *c, tir_stage *stage, tir_op op, tir_expr condition, tir_expr value) {
    tir_pool *pool = c->pool;
    tir_expr none = op == TIR_MAX ? tir_lowest(pool, DLC_I64) : tir_highest(pool, DLC_I64);
    return tir_stage_reduce(c->region, stage, op, tir_select(pool, condition, value, none));
}

/* Adds stages of the best remaining rank of all blocks (w->rank), and of the first block that has it (w->block). */
static void best_block(wide_blocks *w) {
    graph_compute *c = w->b.s->c;
    tir_pool *pool = c->pool;
    for (int which = 0; which < 2; which++) {
        tir_expr free[DLC_MAX_RANK];
        tir_stage *stage = block_step(&w->b, TIR_REDUCE, w->count, w->extent, NULL, &w->b.count, free);
        tir_expr block = stage->axis[w->count + 1].var, rank = rank_left(w, free, block);
        tir_expr some = tir_lt(pool, tir_int(pool, DLC_I64, 0), count_left(w, free, block));
        if (which == 0) {
            w->rank = reduce_where(c, stage, TIR_MAX, some, rank);
        } else {
            tir_expr here = tir_and(pool, some, tir_eq(pool, rank, tir_region_load(c->region, w->rank, free)));
            w->block = reduce_where(c, stage, TIR_MIN, here, tir_cast(pool, DLC_I64, block));
        }
    }
}

/* Adds stages for block w->block: the first element of rank w->rank after the last selected one (b.taken), then the best rank that remains
 * after that element. */
static void take_from_block(wide_blocks *w) {
    blocks *b = &w->b;
    graph_compute *c = b->s->c;
    tir_pool *pool = c->pool;
    for (int which = 0; which < 2; which++) {
        tir_expr size = tir_index(pool, b->size), one = tir_index(pool, 1), free[DLC_MAX_RANK], inside;
        tir_stage *stage = block_step(b, TIR_REDUCE, w->count, w->extent, NULL, &size, free);
        tir_expr block = tir_cast(pool, TIR_INDEX, tir_region_load(c->region, w->block, free));
        block = tir_max(pool, tir_min(pool, block, tir_sub(pool, b->count, one)), tir_index(pool, 0));
        tir_expr at = tir_add(pool, tir_mul(pool, block, size), stage->axis[w->count + 1].var);
        tir_expr rank = block_rank(b, free, at, false, &inside), best = tir_region_load(c->region, w->rank, free);
        at = tir_cast(pool, DLC_I64, at);
        if (which == 0) {
            tir_expr last = tir_region_load(c->region, b->last, free);
            tir_expr behind =
                tir_or(pool, tir_lt(pool, best, last), tir_lt(pool, tir_region_load(c->region, w->last_at, free), at));
            tir_expr here = tir_and(pool, tir_eq(pool, rank, best), behind);
            b->taken = reduce_where(c, stage, TIR_MIN, tir_and(pool, inside, here), at);
        } else {
            tir_expr taken = tir_region_load(c->region, b->taken, free);
            tir_expr equal = tir_and(pool, tir_eq(pool, rank, best), tir_lt(pool, taken, at));
            tir_expr behind = tir_or(pool, tir_lt(pool, rank, best), equal);
            b->next = reduce_where(c, stage, TIR_MAX, tir_and(pool, inside, behind), rank);
        }
    }
}

static void select_wide_blocks(selection *s, int64_t size) {
    graph_compute *c = s->c;
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    wide_blocks w = {.b = {.s = s, .size = size, .n = x->dim[s->along]}};
    tir_expr free[DLC_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        if (i != s->along) w.extent[w.count++] = x->dim[i];
    w.b.count = tir_ceil_div(pool, w.b.n, tir_index(pool, size));
    best_of_blocks(&w.b, w.count, w.extent);

    tir_stage *fold = tir_region_stage(c->region, TIR_FOLD, c->name, w.count, NULL, w.extent, 1, (const char *[]){"t"},
                                       &y->dim[s->along]);
    tir_expr highest = tir_highest(pool, DLC_I64), before = tir_int(pool, DLC_I64, -1);
    w.b.last = tir_stage_value(c->region, fold, highest, highest, 0);
    w.last_at = tir_stage_value(c->region, fold, before, before, 0);
    for (int i = 0; i < 2; i++) {
        uint32_t made = tir_stage_value(c->region, fold, before, before, 0);
        tir_tensor *tensor = &c->region->tensors.data[made];
        tensor->extent[tensor->rank++] = w.b.count;
        tensor->layout = tir_layout_identity(tensor->rank);
        *(i ? &w.left : &w.b.bounds) = made;
    }
    s->fold = c->region->stages.count - 1;

    best_block(&w);
    take_from_block(&w);
    tir_stage *stage = block_step(&w.b, TIR_MAP, w.count, w.extent, &w.b.count, NULL, free);
    tir_expr block = free[w.count + 1];
    tir_expr here = tir_eq(pool, tir_region_load(c->region, w.block, free), tir_cast(pool, DLC_I64, block));
    tir_expr next = tir_region_load(c->region, w.b.next, free), left = count_left(&w, free, block);
    tir_expr fewer = tir_sub(pool, left, tir_int(pool, DLC_I64, 1));
    w.b.state = tir_stage_value(c->region, stage, tir_select(pool, here, next, rank_left(&w, free, block)), 0, 0);
    uint32_t left_now = tir_stage_value(c->region, stage, tir_select(pool, here, fewer, left), 0, 0);

    fold = &c->region->stages.data[s->fold];
    for (int i = 0; i <= w.count; i++) free[i] = fold->axis[i].var;
    free[w.count + 1] = tir_index(pool, 0);
    const uint32_t values[4] = {w.rank, w.b.taken, w.b.state, left_now};
    for (int i = 0; i < 4; i++) fold->value[i] = tir_region_load(c->region, values[i], free);
    s->index = w.b.taken;
}

/* Does the element of rank a and index i come before that of rank b and index j? */
static tir_expr before(tir_pool *pool, tir_expr a, tir_expr i, tir_expr b, tir_expr j) {
    return tir_or(pool, tir_lt(pool, b, a), tir_and(pool, tir_eq(pool, a, b), tir_lt(pool, i, j)));
}

/* Selection of elements of 64 bits: the fold's state is a rank and an index. */
static void select_pairs(selection *s) {
    graph_compute *c = s->c;
    tir_pool *pool = c->pool;
    element_ranks(s, false);
    tir_expr first[2] = {tir_highest(pool, DLC_I64), tir_int(pool, DLC_I64, -1)}, element[DLC_MAX_RANK],
             free[DLC_MAX_RANK];
    uint32_t state[2], values[2];
    tir_stage *step = open_selection(s, 2, first, state, element, free);
    tir_expr key = tir_region_load(c->region, s->ranks, element), at = tir_cast(pool, DLC_I64, element[s->along]);
    tir_expr last = tir_region_load(c->region, state[0], free), last_at = tir_region_load(c->region, state[1], free);
    tir_expr best = tir_acc(pool, DLC_I64, 0), best_at = tir_acc(pool, DLC_I64, 1);
    tir_expr rival = tir_other(pool, DLC_I64, 0), rival_at = tir_other(pool, DLC_I64, 1);
    tir_expr takes = tir_and(pool, before(pool, last, last_at, key, at), before(pool, key, at, best, best_at));
    tir_expr merges = before(pool, rival, rival_at, best, best_at);
    values[0] = tir_stage_value(c->region, step, tir_select(pool, takes, key, best), tir_lowest(pool, DLC_I64),
                                tir_select(pool, merges, rival, best));
    values[1] = tir_stage_value(c->region, step, tir_select(pool, takes, at, best_at), tir_highest(pool, DLC_I64),
                                tir_select(pool, merges, rival_at, best_at));
    s->index = values[1];
    close_selection(s, 2, values);
}

/* ---- whole lines in order */

/* The rank as an unsigned number of *bits bits, as few as distinguish elements of the dtype. */
static tir_expr sort_key(tir_pool *pool, dlc_dtype dtype, tir_expr rank, int *bits) {
    tir_dtype key = tir_dtype_of(pool, rank);
    int whole = 8 * (int)lib_dtype_size((dlc_dtype)key), below = 0; /* low bits without information */
    *bits = whole;
    if (dtype == DLC_BF16) below = 16;
    if (dtype == DLC_F16) below = 13;
    if (!lib_dtype_is_float(dtype) && lib_dtypes[dtype].bits < whole) *bits = lib_dtypes[dtype].bits;
    *bits -= below;
    if (below) rank = tir_binary(pool, TIR_SHR, rank, tir_int(pool, key, below));
    if (*bits == whole) return tir_binary(pool, TIR_XOR, rank, tir_lowest(pool, key));
    if (!is_unsigned(dtype)) rank = tir_add(pool, rank, tir_int(pool, key, INT64_C(1) << (*bits - 1)));
    return tir_and(pool, rank, tir_int(pool, key, (INT64_C(1) << *bits) - 1));
}

/* A sort stage: the indices of the elements in ascending order of their `rank`, as many as the result has, [free axes, axis]. */
static uint32_t order_of(graph_compute *c, int along, tir_expr (*rank)(const graph_compute *c, tir_expr x)) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_expr extent[DLC_MAX_RANK], element[DLC_MAX_RANK];
    int last = x->rank - 1;
    for (int i = 0, n = 0; i < x->rank; i++)
        if (i != along) extent[n++] = x->dim[i];
    extent[last] = c->result_shape[0].dim[along];
    const tir_expr elements = x->dim[along];
    tir_stage *stage = tir_region_stage(c->region, TIR_SORT, c->name, x->rank, NULL, extent, 1, NULL, &elements);
    for (int i = 0, n = 0; i < x->rank; i++) element[i] = stage->axis[i == along ? x->rank : n++].var;
    tir_dtype number = tir_range(pool, elements).high < INT32_MAX ? DLC_I32 : DLC_I64;
    int bits;
    tir_expr key = sort_key(pool, x->dtype, rank(c, graph_operand_load(c, 0, element)), &bits);
    stage->bits = bits;
    stage->exact = true;
    return tir_stage_value(c->region, stage, tir_cast(pool, number, stage->axis[x->rank].var), key, 0);
}

/* Sets both results from tensor `order` of their elements' indices, which has the result's axes, with axis `along` at the end if `moved`;
 * packed: it has keys, with the index in the low half. */
static void take_results(graph_compute *c, int along, uint32_t order, bool moved, bool packed) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    for (int result = 1; result >= 0; result--) {
        tir_expr index[DLC_MAX_RANK], place[DLC_MAX_RANK];
        tir_stage *stage = graph_map_stage(c, y, index);
        const tir_expr zero = tir_index(pool, 0);
        for (int i = 0, n = 0; i < y->rank; i++) place[!moved ? i : i == along ? y->rank - 1 : n++] = index[i];
        tir_expr at = tir_region_load(c->region, order, place);
        if (packed) {
            at = tir_and(pool, at, tir_int(pool, DLC_I64, 0xffffffff));
            at = tir_sub(pool, tir_int(pool, DLC_I64, 0xfffffffe), at);
        }
        tir_expr value = tir_cast(pool, (tir_dtype)c->result_shape[1].dtype, at);
        if (result == 0) {
            tir_expr last = tir_sub(pool, x->dim[along], tir_index(pool, 1));
            index[along] = tir_max(pool, tir_min(pool, tir_cast(pool, TIR_INDEX, at), last), zero);
            value = graph_operand_load(c, 0, index);
        }
        c->result[result] = tir_stage_value(c->region, stage, value, 0, 0);
    }
}

/* Is a sort cheaper than a selection, which takes k passes over the line? Always on targets with blocks of threads: there dependent steps
 * leave threads idle, and a sort stores only the first elements. */
static bool worth_sorting(const graph_compute *c, int along) {
    enum { MOST = 64, SHARE = 4 };
    if (c->machine && c->machine->block_threads > 0) return true;
    int64_t n, k = c->attribute[TOP_K].integer;
    return k > MOST || (tir_is_const(c->pool, c->operand_shape[0].dim[along], &n) && SHARE * k > n);
}

/* The complement of rank_of, since a sort is ascending. */
static tir_expr top_rank(const graph_compute *c, tir_expr x) {
    return tir_unary(c->pool, TIR_NOT, rank_of(c, x));
}

static void compute_top_k(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0];
    selection s = {.c = c, .rank = x->rank, .along = graph_axis_of(c->attribute[TOP_AXIS].integer, x->rank)};
    bool keys = lib_dtypes[x->dtype].bytes < 8;
    if (worth_sorting(c, s.along)) {
        take_results(c, s.along, order_of(c, s.along, top_rank), true, false);
        return;
    }
    int64_t size = block_size(c, s.along);
    if (size && keys)
        select_blocks(&s, size);
    else if (size)
        select_wide_blocks(&s, size);
    else if (keys)
        select_keys(&s);
    else
        select_pairs(&s);
    take_results(c, s.along, s.index, size > 0, keys);
}

/* ---- sort */

enum { SORT_AXIS, SORT_DESCENDING, SORT_DTYPE };

static void infer_sort(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    dlc_dtype dtype = (dlc_dtype)infer->attribute[SORT_DTYPE].integer;
    graph_infer_axis(infer, infer->attribute[SORT_AXIS].integer, x->rank, "axis");
    if (dtype != DLC_I32 && dtype != DLC_I64)
        graph_infer_fail(infer, "dtype is %s, expected i32 or i64", lib_dtypes[dtype].name);
    infer->result[0] = infer->result[1] = *x;
    infer->result[1].dtype = dtype;
}

static tir_expr sort_rank(const graph_compute *c, tir_expr x) {
    tir_expr rank = ascending_rank(c->pool, x);
    return c->attribute[SORT_DESCENDING].integer ? tir_unary(c->pool, TIR_NOT, rank) : rank;
}

static void compute_sort(graph_compute *c) {
    int along = graph_axis_of(c->attribute[SORT_AXIS].integer, c->operand_shape[0].rank);
    take_results(c, along, order_of(c, along, sort_rank), true, false);
}

/* ---- suppress */

enum { SUPPRESS_MOST, SUPPRESS_OVERLAP, SUPPRESS_SCORE, SUPPRESS_CENTER };

static void infer_suppress(graph_infer *infer) {
    const graph_shape *boxes = &infer->operand[0], *scores = &infer->operand[1], *order = &infer->operand[2];
    graph_infer_same_dtype(infer, 0, 2);
    graph_infer_rank(infer, 0, 3);
    graph_infer_rank(infer, 1, 3);
    graph_infer_rank(infer, 2, 3);
    graph_infer_indices(infer, 2);
    graph_infer_equal(infer, boxes->dim[0], scores->dim[0], "batches of boxes and scores");
    graph_infer_equal(infer, boxes->dim[1], scores->dim[2], "numbers of boxes and of their scores");
    graph_infer_equal(infer, boxes->dim[2], tir_index(infer->g->pool, 4), "numbers of a box, expected 4");
    for (int d = 0; d < 3; d++) graph_infer_equal(infer, order->dim[d], scores->dim[d], "sizes of scores and order");
    infer->result[0] = *scores;
    infer->result[0].dtype = DLC_BOOL;
}

/* Sets *low and *high to the edges, along y (0) or x (1), of the box at position `at` of the order. */
static void box_edges(graph_compute *c, const tir_expr *at, int along, tir_expr *low, tir_expr *high) {
    tir_pool *pool = c->pool;
    tir_expr last = tir_sub(pool, c->operand_shape[0].dim[1], tir_index(pool, 1)), zero = tir_index(pool, 0);
    tir_expr box = graph_limited_index(pool, graph_operand_load(c, 2, at), zero, last);
    bool center = c->attribute[SUPPRESS_CENTER].integer;
    int first = center ? 1 - along : along;
    tir_expr a = graph_operand_load(c, 0, (tir_expr[]){at[0], box, tir_index(pool, first)});
    tir_expr b = graph_operand_load(c, 0, (tir_expr[]){at[0], box, tir_index(pool, first + 2)});
    if (center) {
        tir_expr half = tir_mul(pool, b, tir_float(pool, tir_dtype_of(pool, b), 0.5));
        *low = tir_sub(pool, a, half);
        *high = tir_add(pool, a, half);
    } else {
        *low = tir_min(pool, a, b);
        *high = tir_max(pool, a, b);
    }
}

/* Is the intersection larger than the given share of the union? False for boxes without area. */
static tir_expr overlap_too_much(graph_compute *c, const tir_expr *one, const tir_expr *other) {
    tir_pool *pool = c->pool;
    tir_expr common = 0, areas[2] = {0, 0};
    for (int along = 0; along < 2; along++) {
        tir_expr low[2], high[2];
        box_edges(c, one, along, &low[0], &high[0]);
        box_edges(c, other, along, &low[1], &high[1]);
        tir_expr side = tir_sub(pool, tir_min(pool, high[0], high[1]), tir_max(pool, low[0], low[1]));
        side = tir_max(pool, side, tir_float(pool, tir_dtype_of(pool, side), 0));
        common = common ? tir_mul(pool, common, side) : side;
        for (int k = 0; k < 2; k++) {
            tir_expr length = tir_sub(pool, high[k], low[k]);
            areas[k] = areas[k] ? tir_mul(pool, areas[k], length) : length;
        }
    }
    tir_dtype dtype = tir_dtype_of(pool, common);
    tir_expr both = tir_sub(pool, tir_add(pool, areas[0], areas[1]), common), zero = tir_float(pool, dtype, 0);
    tir_expr share = tir_binary(pool, TIR_DIV, common, both);
    tir_expr more = tir_lt(pool, tir_float(pool, dtype, c->attribute[SUPPRESS_OVERLAP].number), share);
    return tir_and(pool, tir_and(pool, tir_lt(pool, zero, areas[0]), tir_lt(pool, zero, areas[1])),
                   tir_and(pool, tir_lt(pool, zero, both), more));
}

/* A fold over the positions t of the order; its states are which positions are dropped, and the number of boxes kept. */
static void compute_suppress(graph_compute *c) {
    tir_pool *pool = c->pool;
    const graph_shape *y = &c->result_shape[0];
    tir_expr n = y->dim[2], no = tir_int(pool, DLC_I32, 0), yes = tir_int(pool, DLC_I32, 1);
    tir_stage *fold = tir_region_stage(c->region, TIR_FOLD, c->name, 2, NULL, y->dim, 1, (const char *[]){"t"}, &n);
    uint32_t kept = tir_stage_value(c->region, fold, tir_int(pool, DLC_I64, 0), tir_int(pool, DLC_I64, 0), 0);
    uint32_t dropped = tir_stage_value(c->region, fold, no, no, 0), number = c->region->stages.count - 1;
    tir_tensor *own = &c->region->tensors.data[dropped];
    own->extent[own->rank++] = n;
    own->layout = tir_layout_identity(own->rank);

    tir_stage *step = tir_region_stage(c->region, TIR_MAP, c->name, 3, NULL, y->dim, 0, NULL, NULL);
    step->fold = (int32_t)number;
    tir_expr at[3] = {step->axis[0].var, step->axis[1].var, step->axis[2].var};
    tir_expr limit = tir_float(pool, (tir_dtype)c->operand_shape[1].dtype, c->attribute[SUPPRESS_SCORE].number);
    tir_expr good = tir_lt(pool, limit, graph_operand_load(c, 1, at));
    tir_expr room =
        tir_lt(pool, tir_region_load(c->region, kept, at), tir_int(pool, DLC_I64, c->attribute[SUPPRESS_MOST].integer));
    good = tir_and(pool, tir_and(pool, good, room), tir_eq(pool, tir_region_load(c->region, dropped, at), no));
    uint32_t keep = tir_stage_value(c->region, step, good, 0, 0);

    step = tir_region_stage(c->region, TIR_MAP, c->name, 3, NULL, y->dim, 0, NULL, NULL);
    step->fold = (int32_t)number;
    for (int i = 0; i < 3; i++) at[i] = step->axis[i].var;
    tir_expr more = tir_cast(pool, DLC_I64, tir_region_load(c->region, keep, at));
    uint32_t count = tir_stage_value(c->region, step, tir_add(pool, tir_region_load(c->region, kept, at), more), 0, 0);

    tir_expr extent[4] = {y->dim[0], y->dim[1], n, n};
    step = tir_region_stage(c->region, TIR_MAP, c->name, 4, NULL, extent, 0, NULL, NULL);
    step->fold = (int32_t)number;
    for (int i = 0; i < 3; i++) at[i] = step->axis[i].var;
    tir_expr other[3] = {at[0], at[1], step->axis[3].var};
    tir_expr drops = tir_and(pool, tir_region_load(c->region, keep, at), overlap_too_much(c, at, other));
    drops = tir_select(pool, drops, yes, tir_region_load(c->region, dropped, other));
    uint32_t next = tir_stage_value(c->region, step, drops, 0, 0);

    fold = &c->region->stages.data[number];
    tir_expr index[4] = {fold->axis[0].var, fold->axis[1].var, fold->axis[2].var, tir_index(pool, 0)};
    fold->value[0] = tir_region_load(c->region, count, index);
    fold->value[1] = tir_region_load(c->region, next, index);
    c->result[0] = keep;
}

#ifdef DLC_REFERENCE

static void reference_edges(const graph_reference *r, int64_t batch, int64_t box, double *edge) {
    const double *b = r->operand[0].data + (batch * r->operand[0].dim[1] + box) * 4;
    for (int along = 0; along < 2; along++) {
        bool center = r->attribute[SUPPRESS_CENTER].integer;
        double p = center ? b[1 - along] - b[3 - along] / 2 : b[along];
        double q = center ? b[1 - along] + b[3 - along] / 2 : b[along + 2];
        edge[2 * along] = p < q || center ? p : q;
        edge[2 * along + 1] = p < q || center ? q : p;
    }
}

static bool reference_overlap(const graph_reference *r, const double *a, const double *b) {
    double side[2];
    for (int k = 0; k < 2; k++) {
        double low = a[2 * k] > b[2 * k] ? a[2 * k] : b[2 * k],
               high = a[2 * k + 1] < b[2 * k + 1] ? a[2 * k + 1] : b[2 * k + 1];
        side[k] = high > low ? high - low : 0;
    }
    double one = (a[1] - a[0]) * (a[3] - a[2]), other = (b[1] - b[0]) * (b[3] - b[2]), common = side[0] * side[1];
    return one > 0 && other > 0 && common / (one + other - common) > r->attribute[SUPPRESS_OVERLAP].number;
}

static void reference_suppress(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    int64_t n = y->dim[2];
    for (int64_t line = 0; line < y->dim[0] * y->dim[1]; line++) {
        int64_t kept = 0;
        for (int64_t t = 0; t < n; t++) {
            const double *order = r->operand[2].data + line * n;
            bool keep = r->operand[1].data[line * n + t] > r->attribute[SUPPRESS_SCORE].number &&
                        kept < r->attribute[SUPPRESS_MOST].integer;
            for (int64_t k = 0; k < t && keep; k++) {
                double a[4], b[4];
                if (y->data[line * n + k] == 0) continue;
                reference_edges(r, line / y->dim[1], (int64_t)order[k], a);
                reference_edges(r, line / y->dim[1], (int64_t)order[t], b);
                keep = !reference_overlap(r, a, b);
            }
            y->data[line * n + t] = keep;
            kept += keep;
        }
    }
}

/* Does b come before a in the results, apart from their indices, which decide between equals? */
static bool reference_before(double b, double a, bool least) {
    if (isnan(a) || isnan(b)) return least ? !isnan(b) : !isnan(a);
    return least ? b < a : b > a;
}

static void reference_order(const graph_reference *r, int64_t axis, int64_t k, bool least) {
    const graph_reference_tensor *x = &r->operand[0];
    const graph_reference_rows rows = graph_reference_rows_along(x, axis);
    const int64_t n = rows.size, inner = rows.inner;
    for (int64_t line = 0; line < rows.outer * inner; line++) {
        const int64_t column = line % inner, first = line / inner * k * inner + column;
        const double *row = x->data + line / inner * n * inner + column;
        for (int64_t j = 0; j < n; j++) {
            int64_t ahead = 0; /* elements before j in the result */
            for (int64_t i = 0; i < n; i++) {
                bool either = reference_before(row[i * inner], row[j * inner], least),
                     other = reference_before(row[j * inner], row[i * inner], least);
                ahead += either && !other ? 1 : either == other && i < j;
            }
            if (ahead >= k) continue;
            r->result[0].data[first + ahead * inner] = row[j * inner];
            r->result[1].data[first + ahead * inner] = (double)j;
        }
    }
}

static void reference_top_k(const graph_reference *r) {
    reference_order(r, r->attribute[TOP_AXIS].integer, r->attribute[TOP_K].integer, r->attribute[TOP_LEAST].integer);
}

static void reference_sort(const graph_reference *r) {
    const int axis = graph_axis_of(r->attribute[SORT_AXIS].integer, r->operand[0].rank);
    reference_order(r, axis, r->operand[0].dim[axis], !r->attribute[SORT_DESCENDING].integer);
}

#endif

/* The operand's tangents where the chosen elements come from. */
static void tangent_chosen(graph_rule *rule) {
    const int axis = graph_axis_of(rule->attribute[graph_op_attribute(rule->op, "axis")].integer,
                                   graph_shape_of(rule->g, rule->input[0])->rank);
    rule->out[0] = graph_gather_elements(rule->g, rule->tangent[0], rule->first + 1, axis);
}

static const graph_op row_top_k = {
    PRIMITIVE_ROW(top_k, GRAPH_REDUCE, 1, 1, 2, "x", "number"),
    .aliases = "topk",
    .attribute = {{"k", GRAPH_ATTR_INTEGER, NULL, NULL, "how many; at most the size of the axis"},
                  {"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis to search along"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "i64", "of the indices: i32 or i64"},
                  {"least", GRAPH_ATTR_BOOL, NULL, "false", "the least instead of the greatest"}},
    .jvp = tangent_chosen,
    .infer = infer_top_k,
    .bound = GRAPH_REFERENCE(graph_bound_picked),
    .samples = "top_k(T[5, 7], k=3, axis=1)\ntop_k(T[5, 7], k=2, axis=0, dtype=i32)\ntop_k(T[1], k=1, axis=0)\n"
               "top_k(T[3, 131], k=10, axis=-1, least=true)\ntop_k(T[0, 3], k=2, axis=1)\n"
               "top_k(T[12, 40] in 0..3, k=9, axis=1)\ntop_k(T[40, 9] in 0..3, k=40, axis=0, least=true)\n"
               "top_k(T[2, 3, 1, 2, 5, 3], k=4, axis=4, dtype=i32)\ntop_k(T[4, 3], k=0, axis=1)\n"
               "top_k(T[3, 270] in 0..9, k=12, axis=1)\ntop_k(T[300, 2], k=3, axis=0, least=true)\n"
               "top_k(T[9, 257], k=64, axis=1)\ntop_k(T[2, 257] in 0..0, k=64, axis=1)",
    .doc = "The k greatest elements along axis in descending order, and their indices; the first one of equals comes "
           "first, NaN counts as greatest, zeros of either sign are equal. least: the k least in ascending order. "
           "(ONNX TopK without sorted leaves the order open: this one.) StableHLO chlo.top_k, ONNX TopK.",
};

static const graph_op row_sort = {
    PRIMITIVE_ROW(sort, GRAPH_REDUCE, 1, 1, 2, "x", "number"),
    .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, "-1", "axis to sort along"},
                  {"descending", GRAPH_ATTR_BOOL, NULL, "false", "the greatest first"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "i64", "of the indices: i32 or i64"}},
    .jvp = tangent_chosen,
    .infer = infer_sort,
    .bound = GRAPH_REFERENCE(graph_bound_picked),
    .samples = "sort(T[5, 7])\nsort(T[7, 5], axis=0, descending=true, dtype=i32)\nsort(T[1])\nsort(T[0, 3], axis=0)\n"
               "sort(T[3, 0])\nsort(T[2, 210] in 0..9)\nsort(T[200], descending=true)\n"
               "sort(T[190, 2] in 0..40, axis=0)\nsort(T[2, 3, 1, 2, 5, 3], axis=4)",
    .doc =
        "The elements along axis in ascending order, and their indices. Stable: equal elements keep their order, in either "
        "direction. NaN counts as greatest, so it comes last, and first where descending; zeros of either sign are equal. "
        "StableHLO sort; NumPy sort, argsort.",
};

static const graph_op row_suppress = {
    PRIMITIVE_ROW(suppress, GRAPH_REDUCE, 3, 3, 1, "boxes scores order", "f32 f64"),
    .attribute = {{"most", GRAPH_ATTR_INTEGER, NULL, NULL, "boxes of one line that are kept, at most"},
                  {"overlap", GRAPH_ATTR_FLOAT, NULL, "0", "a box that overlaps one that is kept by more is dropped"},
                  {"score", GRAPH_ATTR_FLOAT, NULL, "-1.7976931348623157e308",
                   "boxes of no more than this are dropped"},
                  {"center", GRAPH_ATTR_BOOL, NULL, "false",
                   "boxes are x and y of the centre, width, height; else y and x of two opposite corners"}},
    .infer = infer_suppress,
    GRAPH_NO_GRADIENT,
    .bound = GRAPH_REFERENCE(graph_bound_same_steps),
    .samples = "suppress(T[2, 9, 4] in 0..6, T[2, 3, 9], i32[2, 3, 9] in 0..9, most=9, overlap=0.25)\n"
               "suppress(T[1, 21, 4] in 1..5, T[1, 2, 21], i64[1, 2, 21] in 0..21, most=4, overlap=0.125, score=-0.5, "
               "center=true)\nsuppress(T[1, 0, 4], T[1, 2, 0], i64[1, 2, 0], most=4)",
    .doc =
        "Of boxes in the order that they are tried in, those that are kept, bool [batch, lines, boxes]: not where an earlier "
        "one that is kept has more than `overlap` of the area of both in common with it. boxes [batch, boxes, 4], in any "
        "order; scores as they are tried, and which box each is [batch, lines, boxes]. What non_max_suppression is made of.",
};

const graph_op *const graph_ops_order[] = {&row_top_k, &row_sort, &row_suppress, NULL};
