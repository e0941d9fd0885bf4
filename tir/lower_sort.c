/* A sort as loops: keys and values move between two halves of the scratch, one digit of the keys after the other, the least significant
 * first (Knuth, TAOCP 3, 5.2.5: distribution by counting): stable, and no step compares keys. Digits that are
 * equal in all keys are skipped. Clearing and summing the counters of digits takes longer than short lines: where the length is known at run
 * time only, a short line is sorted by comparison counting instead (ibid., 5.2), n^2 comparisons, also stable. */
#include "tir/lower.h"

enum { WIDEST = 11, BLOCK = 16 };

typedef struct sorting {
    tir_lowering *l;
    int s;
    const tir_stage *stage;
    /* elements of a line */
    tir_expr n;
    tir_dtype key, value;
    /* scratch [2, n] */
    uint32_t keys, values;
    /* scratch [passes, digits] */
    uint32_t counts;
    /* the half that holds the elements sorted so far; a running sum */
    uint32_t current, total;
    int passes, width;
    /* the digit that is sorted by */
    int pass;
} sorting;

/* The digit width that minimises the time of passes over elements and counters: an element costs some six times a counter. */
static int digit_width(tir_lowering *l, tir_expr n, int bits) {
    int64_t elements, best = INT64_MAX;
    int width = WIDEST;
    if (!tir_is_const(l->pool, n, &elements) || elements > INT32_MAX) elements = INT32_MAX;
    for (int w = 4; w <= WIDEST; w++) {
        int64_t passes = (bits + w - 1) / w, cost = passes * (6 * elements + (INT64_C(2) << w));
        if (cost >= best) continue;
        best = cost;
        width = w;
    }
    return width;
}

/* The longest line whose n^2 comparisons take no more time than the counters: a comparison costs some two counters. */
static int64_t longest_compared(const sorting *q) {
    const int64_t counters = (int64_t)q->passes << q->width;
    int64_t n = 0;
    while (2 * (n + 1) * (n + 1) <= counters) n++;
    return n;
}

static uint32_t scratch(sorting *q, const char *what, tir_dtype dtype, tir_scope scope, int rank,
                        const tir_expr *extent) {
    const char *name = lib_arena_format(q->l->arena, "%s_%s", q->stage->name, what);
    return tir_kernel_buffer(q->l->kernel, name, (dlc_dtype)dtype, scope, rank, extent);
}

static tir_expr load(sorting *q, uint32_t buffer, int rank, const tir_expr *index) {
    return tir_load(q->l->pool, buffer, (tir_dtype)q->l->kernel->buffers.data[buffer].dtype, rank, index, 0, 0);
}

static void store(sorting *q, uint32_t buffer, int rank, const tir_expr *index, tir_expr value) {
    tir_stmt *stmt = tir_lower_append(q->l, TIR_STORE);
    stmt->store.buffer = buffer;
    stmt->store.rank = rank;
    stmt->store.index = tir_lower_copy_indices(q->l, index, rank);
    stmt->store.value = value;
}

/* Opens a loop around the next statements, until the cursor is reset to the returned one. */
static tir_stmt **open_loop(sorting *q, const char *name, tir_expr lower, tir_expr extent, tir_loop_kind kind,
                            tir_expr *var) {
    tir_stmt *loop = tir_lower_append(q->l, TIR_FOR);
    tir_stmt **after = q->l->cursor;
    *var = tir_loop_variable(q->l->pool, name, lower, extent);
    loop->for_.var = *var;
    loop->for_.lower = lower;
    loop->for_.extent = extent;
    loop->for_.loop = kind;
    q->l->cursor = &loop->for_.body;
    return after;
}

static tir_expr let(sorting *q, const char *name, tir_expr value) {
    tir_stmt *stmt = tir_lower_append(q->l, TIR_LET);
    stmt->let.var = tir_let_variable(q->l->pool, name, value);
    stmt->let.value = value;
    q->l->cursor = &stmt->let.body;
    return stmt->let.var;
}

/* body(i) for the first n of the line, in vectors as far as whole vectors go. */
static void each(sorting *q, tir_expr n, void (*body)(sorting *q, tir_expr i)) {
    tir_pool *pool = q->l->pool;
    tir_expr zero = tir_index(pool, 0), block = tir_index(pool, BLOCK), whole = tir_div(pool, n, block), o, i;
    tir_stmt **after = open_loop(q, "block", zero, whole, TIR_SERIAL, &o);
    open_loop(q, "lane", zero, block, TIR_VEC, &i);
    body(q, tir_add(pool, tir_mul(pool, o, block), i));
    q->l->cursor = after;
    tir_expr first = tir_mul(pool, whole, block);
    after = open_loop(q, "rest", first, tir_sub(pool, n, first), TIR_SERIAL, &i);
    body(q, i);
    q->l->cursor = after;
}

static int leaf_of(const tir_stage_plan *plan, int axis) {
    for (uint32_t k = 0; k < plan->order.count; k++)
        if (plan->nodes.data[plan->order.data[k]].axis == axis) return plan->order.data[k];
    return -1;
}

static void set_axis(sorting *q, int axis, tir_expr value) {
    tir_stage_plan *plan = tir_plan_of(q->l, q->s);
    plan->nodes.data[leaf_of(plan, axis)].value = value;
}

/* ---- the steps */

static void take_element(sorting *q, tir_expr i) {
    tir_expr at[2] = {tir_index(q->l->pool, 0), i};
    set_axis(q, q->stage->space, i);
    tir_expr key = tir_lower_value(q->l, q->s, q->stage->initial[0]);
    tir_expr value = tir_lower_value(q->l, q->s, q->stage->value[0]);
    set_axis(q, q->stage->space, 0);
    store(q, q->keys, 2, at, key);
    store(q, q->values, 2, at, value);
}

static void give_element(sorting *q, tir_expr t) {
    tir_expr logical[DLC_MAX_RANK], physical[TIR_MAX_PHYSICAL_RANK], zero = tir_index(q->l->pool, 0);
    const uint32_t tensor = q->stage->tensor[0];
    set_axis(q, q->stage->space - 1, t);
    for (int a = 0; a < q->stage->space; a++) logical[a] = tir_axis_value(&q->l->state, q->s, a);
    set_axis(q, q->stage->space - 1, 0);
    int rank = tir_lower_physical(q->l, tensor, logical, physical);
    tir_expr half = q->passes ? tir_cast(q->l->pool, TIR_INDEX, load(q, q->current, 1, &zero)) : zero;
    half = tir_min(q->l->pool, tir_max(q->l->pool, half, zero), tir_index(q->l->pool, 1));
    store(q, q->l->home[tensor], rank, physical, load(q, q->values, 2, (tir_expr[]){half, t}));
}

static tir_expr digit(sorting *q, int pass, tir_expr key) {
    tir_pool *pool = q->l->pool;
    int shift = pass * q->width, left = q->stage->bits - shift, width = left < q->width ? left : q->width;
    if (shift) key = tir_binary(pool, TIR_SHR, key, tir_int(pool, q->key, shift));
    key = tir_and(pool, key, tir_int(pool, q->key, (INT64_C(1) << width) - 1));
    return tir_cast(pool, TIR_INDEX, key);
}

static void count_digits(sorting *q) {
    tir_pool *pool = q->l->pool;
    tir_expr zero = tir_index(pool, 0), p, d, i, one = tir_int(pool, q->value, 1);
    tir_expr digits = tir_index(pool, INT64_C(1) << q->width);
    tir_stmt **after = open_loop(q, "pass", zero, tir_index(pool, q->passes), TIR_SERIAL, &p);
    open_loop(q, "digit", zero, digits, TIR_VEC, &d);
    store(q, q->counts, 2, (tir_expr[]){p, d}, tir_int(pool, q->value, 0));
    q->l->cursor = after;
    after = open_loop(q, "i", zero, q->n, TIR_SERIAL, &i);
    tir_expr key = let(q, "key", load(q, q->keys, 2, (tir_expr[]){zero, i}));
    for (int pass = 0; pass < q->passes; pass++) {
        tir_expr at[2] = {tir_index(pool, pass), digit(q, pass, key)};
        store(q, q->counts, 2, at, tir_add(pool, load(q, q->counts, 2, at), one));
    }
    q->l->cursor = after;
}

/* Turns counters into positions: how many elements have a lower digit. */
static void sum_counts(sorting *q, tir_expr pass) {
    tir_pool *pool = q->l->pool;
    tir_expr zero = tir_index(pool, 0), d;
    store(q, q->total, 1, &zero, tir_int(pool, q->value, 0));
    tir_stmt **after = open_loop(q, "digit", zero, tir_index(pool, INT64_C(1) << q->width), TIR_SERIAL, &d);
    tir_expr at[2] = {pass, d};
    tir_expr count = let(q, "count", load(q, q->counts, 2, at));
    tir_expr total = load(q, q->total, 1, &zero);
    store(q, q->counts, 2, at, total);
    store(q, q->total, 1, &zero, tir_add(pool, total, count));
    q->l->cursor = after;
}

static void move_elements(sorting *q) {
    const int pass = q->pass;
    tir_pool *pool = q->l->pool;
    tir_expr zero = tir_index(pool, 0), one = tir_index(pool, 1), number = tir_index(pool, pass), i;
    tir_expr half = tir_cast(pool, TIR_INDEX, load(q, q->current, 1, &zero));
    half = let(q, "half", tir_min(pool, tir_max(pool, half, zero), one));
    tir_expr other = tir_sub(pool, one, half), first = load(q, q->keys, 2, (tir_expr[]){half, zero});
    tir_expr same = load(q, q->counts, 2, (tir_expr[]){number, digit(q, pass, first)});
    tir_stmt *worth = tir_lower_append(q->l, TIR_IF);
    worth->if_.condition = tir_unary(pool, TIR_NOT, tir_eq(pool, same, tir_cast(pool, q->value, q->n)));
    q->l->cursor = &worth->if_.body;
    sum_counts(q, number);
    tir_stmt **after = open_loop(q, "i", zero, q->n, TIR_SERIAL, &i);
    tir_expr key = let(q, "key", load(q, q->keys, 2, (tir_expr[]){half, i}));
    tir_expr at[2] = {number, let(q, "digit", digit(q, pass, key))};
    tir_expr place = let(q, "place", load(q, q->counts, 2, at));
    store(q, q->counts, 2, at, tir_add(pool, place, tir_int(pool, q->value, 1)));
    tir_expr to[2] = {other, tir_cast(pool, TIR_INDEX, place)};
    store(q, q->keys, 2, to, key);
    store(q, q->values, 2, to, load(q, q->values, 2, (tir_expr[]){half, i}));
    q->l->cursor = after;
    store(q, q->current, 1, &zero, tir_cast(pool, DLC_I32, other));
}

static void when(sorting *q, tir_expr condition, void (*body)(sorting *q)) {
    tir_stmt *branch = tir_lower_append(q->l, TIR_IF);
    tir_stmt **after = q->l->cursor;
    branch->if_.condition = condition;
    q->l->cursor = &branch->if_.body;
    body(q);
    q->l->cursor = after;
}

static void distribute(sorting *q) {
    count_digits(q);
    /* an empty line has no first key */
    for (q->pass = 0; q->pass < q->passes; q->pass++)
        when(q, tir_lt(q->l->pool, tir_index(q->l->pool, 0), q->n), move_elements);
}

/* The key as a signed number of the same order. */
static tir_expr comparable(sorting *q, tir_expr key) {
    if (q->stage->bits != 8 * (int)lib_dtype_size((dlc_dtype)q->key)) return key;
    return tir_binary(q->l->pool, TIR_XOR, key, tir_lowest(q->l->pool, q->key));
}

/* The position of an element is the number of elements that precede it. */
static void compare_all(sorting *q) {
    tir_pool *pool = q->l->pool;
    tir_expr zero = tir_index(pool, 0), one = tir_index(pool, 1), i, j;
    tir_stmt **after = open_loop(q, "i", zero, q->n, TIR_SERIAL, &i);
    tir_expr own = let(q, "own", comparable(q, load(q, q->keys, 2, (tir_expr[]){zero, i})));
    store(q, q->total, 1, &zero, tir_int(pool, q->value, 0));
    tir_stmt **element = open_loop(q, "j", zero, q->n, TIR_SERIAL, &j);
    tir_expr other = let(q, "other", comparable(q, load(q, q->keys, 2, (tir_expr[]){zero, j})));
    tir_expr before = tir_select(pool, tir_lt(pool, j, i), tir_le(pool, other, own), tir_lt(pool, other, own));
    tir_expr more = tir_select(pool, before, tir_int(pool, q->value, 1), tir_int(pool, q->value, 0));
    store(q, q->total, 1, &zero, tir_add(pool, load(q, q->total, 1, &zero), more));
    q->l->cursor = element;
    tir_expr place = tir_cast(pool, TIR_INDEX, load(q, q->total, 1, &zero));
    store(q, q->values, 2, (tir_expr[]){one, place}, load(q, q->values, 2, (tir_expr[]){zero, i}));
    q->l->cursor = after;
    store(q, q->current, 1, &zero, tir_int(pool, DLC_I32, 1));
}

void tir_lower_sort(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    tir_pool *pool = l->pool;
    tir_expr zero = tir_index(pool, 0), one = tir_index(pool, 1), two = tir_index(pool, 2);
    sorting q = {.l = l, .s = s, .stage = stage, .n = stage->axis[stage->space].extent};
    q.key = tir_dtype_of(pool, stage->initial[0]);
    q.value = tir_dtype_of(pool, stage->value[0]);
    q.width = digit_width(l, q.n, stage->bits);
    q.passes = (stage->bits + q.width - 1) / q.width;
    tir_expr line[2] = {two, tir_max(pool, q.n, one)};
    tir_expr counters[2] = {tir_index(pool, q.passes), tir_index(pool, INT64_C(1) << q.width)};
    q.keys = scratch(&q, "keys", q.key, TIR_SCOPE_LOCAL, 2, line);
    q.values = scratch(&q, "values", q.value, TIR_SCOPE_LOCAL, 2, line);
    q.counts = scratch(&q, "counts", q.value, TIR_SCOPE_LOCAL, 2, counters);
    q.current = scratch(&q, "half", DLC_I32, TIR_SCOPE_STACK, 1, &one);
    q.total = scratch(&q, "total", q.value, TIR_SCOPE_REG, 1, &one);
    each(&q, q.n, take_element);
    store(&q, q.current, 1, &zero, tir_int(pool, DLC_I32, 0));
    int64_t length;
    if (tir_is_const(pool, q.n, &length)) {
        distribute(&q);
    } else {
        tir_expr most = tir_index(pool, longest_compared(&q));
        when(&q, tir_le(pool, q.n, most), compare_all);
        when(&q, tir_lt(pool, most, q.n), distribute);
    }
    each(&q, stage->axis[stage->space - 1].extent, give_element);
}
