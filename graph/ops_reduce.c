/* Reductions over axes, arg_max and arg_min, cumulative_<op>. Sums and products of f16 and bf16 are accumulated in f32 and
 * rounded once at the end; integers keep their own dtype and wrap. Order of a reduction: the axes ascending, the last one
 * fastest. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- shared ---------------------------------------------------------------------------------------------------- */

/* Sets *out to x's shape without the axes, or, if `keep`, with 1 in their place. */
static void reduced_shape(const graph_infer *infer, uint32_t axes, bool keep, graph_shape *out) {
    const graph_shape *x = &infer->operand[0];
    graph_shape shape = {.dtype = x->dtype};
    for (int i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1))
            shape.dim[shape.rank++] = x->dim[i];
        else if (keep)
            shape.dim[shape.rank++] = tir_index(infer->g->pool, 1);
    }
    *out = shape;
}

/* A reduce stage over the axes of operand 0; sets index[] to that of the operand at a point of the stage. */
static tir_stage *reduce_stage(graph_compute *c, uint32_t axes, bool keep, tir_expr *index) {
    const graph_shape *x = &c->operand_shape[0], *y = &c->result_shape[0];
    tir_expr extent[DLC_MAX_RANK];
    int reduced = 0, space = 0;
    for (int i = 0; i < x->rank; i++)
        if (axes >> i & 1) extent[reduced++] = x->dim[i];
    tir_stage *stage = tir_region_stage(c->region, TIR_REDUCE, c->name, y->rank, NULL, y->dim, reduced, NULL, extent);
    reduced = 0;
    for (int i = 0; i < x->rank; i++) {
        bool over = axes >> i & 1;
        index[i] = over ? stage->axis[y->rank + reduced++].var : stage->axis[space].var;
        space += !over || keep;
    }
    return stage;
}

/* ---- reduce_<op> ----------------------------------------------------------------------------------------------- */

enum { REDUCE_AXES, REDUCE_KEEP };

static void infer_reduce(graph_infer *infer) {
    int rank = infer->operand[0].rank;
    graph_infer_axes(infer, &infer->attribute[REDUCE_AXES], rank, "axis");
    uint32_t axes = graph_axes_of(&infer->attribute[REDUCE_AXES], rank, true);
    reduced_shape(infer, axes, infer->attribute[REDUCE_KEEP].integer, &infer->result[0]);
}

static void compute_reduce(graph_compute *c) {
    const tir_op op = c->op->operation;
    const graph_shape *x = &c->operand_shape[0];
    uint32_t axes = graph_axes_of(&c->attribute[REDUCE_AXES], x->rank, true);
    tir_expr index[DLC_MAX_RANK];
    tir_stage *stage = reduce_stage(c, axes, c->attribute[REDUCE_KEEP].integer, index);
    tir_expr element = graph_operand_load(c, 0, index);
    if (op == TIR_ADD || op == TIR_MUL) element = tir_cast(c->pool, (tir_dtype)graph_sum_dtype(x->dtype), element);
    c->result[0] =
        graph_compute_cast(c, tir_stage_reduce(c->region, stage, op, element), c->result_shape[0].dtype, NULL);
}

/* ---- arg_max --------------------------------------------------------------------------------------------------- */

enum { ARG_AXIS, ARG_KEEP, ARG_DTYPE, ARG_LAST };

static void infer_arg(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    dlc_dtype dtype = (dlc_dtype)infer->attribute[ARG_DTYPE].integer;
    int axis = graph_infer_axis(infer, infer->attribute[ARG_AXIS].integer, x->rank, "axis");
    if (dtype != DLC_I32 && dtype != DLC_I64)
        graph_infer_fail(infer, "dtype is %s, expected i32 or i64", lib_dtypes[dtype].name);
    graph_infer_at_most(infer, tir_index(infer->g->pool, 1), x->dim[axis],
                        "an axis of size 0 has no element to choose");
    reduced_shape(infer, 1u << axis, infer->attribute[ARG_KEEP].integer, &infer->result[0]);
    infer->result[0].dtype = dtype;
}

/* Does (b, j) win over (a, i)? NaN wins over numbers; among equals the lower index wins (`last`: the higher), so that any order
 * gives the same bits. */
static tir_expr wins(tir_pool *pool, bool least, bool last, tir_expr b, tir_expr j, tir_expr a, tir_expr i) {
    tir_expr low = least ? b : a, high = least ? a : b, better = tir_lt(pool, low, high), same = tir_eq(pool, a, b);
    if (lib_dtype_is_float((dlc_dtype)tir_dtype_of(pool, a))) {
        tir_expr a_nan = tir_binary(pool, TIR_NE, a, a), b_nan = tir_binary(pool, TIR_NE, b, b);
        tir_expr beyond = tir_unary(pool, TIR_NOT, tir_le(pool, high, low)); /* true also if either is NaN */
        better = tir_and(pool, beyond, tir_eq(pool, a, a));
        same = tir_or(pool, same, tir_and(pool, a_nan, b_nan));
    }
    return tir_or(pool, better, tir_and(pool, same, last ? tir_lt(pool, i, j) : tir_lt(pool, j, i)));
}

/* Reduces to the best element so far and its index, of 32 bits if these suffice. The initial value is the worst number with index 0: if no
 * element is better, all equal it, and the first one, at 0, is right. */
static void compute_arg(graph_compute *c, bool least) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    int axis = graph_axis_of(c->attribute[ARG_AXIS].integer, x->rank);
    tir_dtype dtype = (tir_dtype)x->dtype, number = (tir_dtype)c->result_shape[0].dtype;
    if (tir_range(pool, x->dim[axis]).high <= INT32_MAX) number = DLC_I32;
    tir_expr index[DLC_MAX_RANK];
    tir_stage *stage = reduce_stage(c, 1u << axis, c->attribute[ARG_KEEP].integer, index);
    tir_expr best = tir_acc(pool, dtype, 0), at = tir_acc(pool, number, 1);
    tir_expr element = graph_operand_load(c, 0, index), here = tir_cast(pool, number, index[axis]);
    tir_expr rival = tir_other(pool, dtype, 0), there = tir_other(pool, number, 1);
    const bool last = c->attribute[ARG_LAST].integer;
    tir_expr update = wins(pool, least, last, element, here, best, at),
             merge = wins(pool, least, last, rival, there, best, at);
    stage->exact = true;
    tir_stage_value(c->region, stage, tir_select(pool, update, element, best),
                    least ? tir_highest(pool, dtype) : tir_lowest(pool, dtype), tir_select(pool, merge, rival, best));
    const uint32_t found = tir_stage_value(c->region, stage, tir_select(pool, update, here, at),
                                           tir_int(pool, number, 0), tir_select(pool, merge, there, at));
    c->result[0] = graph_compute_cast(c, found, c->result_shape[0].dtype, NULL);
}

static void compute_arg_max(graph_compute *c) {
    compute_arg(c, false);
}
static void compute_arg_min(graph_compute *c) {
    compute_arg(c, true);
}

/* ---- cumulative_<op> -------------------------------------------------------------------------------------------- */

enum { CUMULATIVE_AXIS, CUMULATIVE_EXCLUSIVE, CUMULATIVE_REVERSE };

static void infer_cumulative(graph_infer *infer) {
    graph_infer_axis(infer, infer->attribute[CUMULATIVE_AXIS].integer, infer->operand[0].rank, "axis");
    infer->result[0] = infer->operand[0];
}

static tir_dtype running_dtype(dlc_dtype dtype, tir_op op) {
    return (tir_dtype)(op == TIR_ADD || op == TIR_MUL ? graph_sum_dtype(dtype) : dtype);
}

static tir_expr running_start(tir_pool *pool, tir_dtype dtype, tir_op op) {
    if (op == TIR_MAX) return tir_lowest(pool, dtype);
    if (op == TIR_MIN) return tir_highest(pool, dtype);
    return tir_int(pool, dtype, op == TIR_MUL);
}

/* A fold over t with state s: its step computes c[.., t, ..] = s op x[.., t, ..], and s becomes c. Returns the step's tensor c, the inclusive
 * results, in the order of the steps. reverse: x is read from its end. */
static uint32_t running(graph_compute *c, tir_op op, int along, bool reverse) {
    tir_pool *pool = c->pool;
    const graph_shape *x = &c->operand_shape[0];
    tir_dtype dtype = running_dtype(x->dtype, op);
    tir_expr extent[DLC_MAX_RANK] = {0}, index[DLC_MAX_RANK], free[DLC_MAX_RANK];
    int count = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != along) extent[count++] = x->dim[i];
    tir_stage *fold =
        tir_region_stage(c->region, TIR_FOLD, c->name, count, NULL, extent, 1, (const char *[]){"t"}, &x->dim[along]);
    tir_expr start = running_start(pool, dtype, op);
    uint32_t state = tir_stage_value(c->region, fold, start, start, 0);
    uint32_t fold_number = c->region->stages.count - 1;

    tir_stage *step = graph_map_stage(c, x, index);
    step->fold = (int32_t)fold_number;
    count = 0;
    for (int i = 0; i < x->rank; i++)
        if (i != along) free[count++] = index[i];
    if (reverse) index[along] = tir_sub(pool, tir_sub(pool, x->dim[along], tir_index(pool, 1)), index[along]);
    tir_expr element = tir_cast(pool, dtype, graph_operand_load(c, 0, index));
    tir_expr so_far = tir_region_load(c->region, state, free);
    uint32_t results = tir_stage_value(c->region, step, tir_binary(pool, op, so_far, element), 0, 0);

    fold = &c->region->stages.data[fold_number];
    count = 0;
    for (int i = 0; i < x->rank; i++) index[i] = fold->axis[i == along ? x->rank - 1 : count++].var;
    fold->value[0] = tir_region_load(c->region, results, index);
    return results;
}

static void compute_cumulative(graph_compute *c, tir_op op) {
    tir_pool *pool = c->pool;
    const graph_shape *y = &c->result_shape[0];
    int along = graph_axis_of(c->attribute[CUMULATIVE_AXIS].integer, y->rank);
    bool exclusive = c->attribute[CUMULATIVE_EXCLUSIVE].integer, reverse = c->attribute[CUMULATIVE_REVERSE].integer;
    uint32_t results = running(c, op, along, reverse);
    if (!exclusive && !reverse) {
        c->result[0] = graph_compute_cast(c, results, y->dtype, NULL);
        return;
    }
    tir_expr index[DLC_MAX_RANK];
    tir_stage *stage = graph_map_stage(c, y, index);
    tir_expr one = tir_index(pool, 1), guard = 0;
    if (reverse) index[along] = tir_sub(pool, tir_sub(pool, y->dim[along], one), index[along]);
    if (exclusive) {
        guard = tir_le(pool, one, index[along]);
        index[along] = tir_sub(pool, index[along], one);
    }
    tir_expr start = running_start(pool, running_dtype(y->dtype, op), op);
    tir_expr value = tir_region_load_guarded(c->region, results, index, guard, start);
    c->result[0] = tir_stage_value(c->region, stage, tir_cast(pool, (tir_dtype)y->dtype, value), 0, 0);
}

/* ---- rules of differentiation -------------------------------------------------------------------------------------- */

/* A value of the result's shape, repeated over the axes that were reduced. */
static graph_id over_axes(const graph_rule *rule, graph_id value) {
    graph *g = rule->g;
    const graph_shape x = *graph_shape_of(g, rule->input[0]);
    const uint32_t axes = graph_axes_of(&rule->attribute[0], x.rank, true);
    int64_t place[DLC_MAX_RANK];
    tir_expr kept[DLC_MAX_RANK];
    int count = 0;
    for (int i = 0; i < x.rank; i++) {
        if (axes >> i & 1) continue;
        kept[count] = x.dim[i];
        place[count++] = i;
    }
    if (rule->attribute[1].integer) value = graph_reshape(g, value, count, kept);
    return graph_broadcast(g, value, x.rank, x.dim, place);
}

static graph_id reduced(const graph_rule *rule, graph_id value) {
    return graph_reduce_sum(rule->g, value, rule->attribute[0].count, rule->attribute[0].list,
                            rule->attribute[1].integer != 0);
}

static void transpose_sum(graph_rule *rule) {
    rule->out[0] = over_axes(rule, rule->cotangent[0]);
}

/* The elements that equal the extreme share evenly. */
static void tangent_extreme(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0), y = graph_rule_result(rule, 0), d = rule->tangent[0];
    const graph_id equal = graph_eq(g, x, over_axes(rule, y));
    const graph_id count = reduced(rule, graph_cast(g, equal, graph_shape_of(g, d)->dtype));
    const graph_id sum = reduced(rule, graph_select(g, equal, d, graph_scalar_like(g, d, 0)));
    rule->out[0] = graph_div(g, sum, count);
}

static graph_id cumulative(graph *g, const char *name, graph_id x, int axis, bool exclusive, bool reverse) {
    return graph_emit_with(g, name, 1, &x, 3,
                           (graph_setting[]){graph_set_integer("axis", axis), graph_set_bool("exclusive", exclusive),
                                             graph_set_bool("reverse", reverse)});
}

/* Each element's tangent times the product of the others, from both sides: right at zeros, and its derivatives are, too. */
static void tangent_prod(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0);
    const graph_shape shape = *graph_shape_of(g, x);
    const uint32_t axes = graph_axes_of(&rule->attribute[0], shape.rank, true);
    int64_t order[DLC_MAX_RANK], last;
    tir_expr dim[DLC_MAX_RANK], count = tir_index(g->pool, 1);
    int kept = 0, next;
    for (int i = 0; i < shape.rank; i++)
        if (!(axes >> i & 1)) {
            dim[kept] = shape.dim[i];
            order[kept++] = i;
        }
    next = kept;
    for (int i = 0; i < shape.rank; i++)
        if (axes >> i & 1) {
            count = tir_mul(g->pool, count, shape.dim[i]);
            order[next++] = i;
        }
    dim[kept] = count;
    last = kept;
    const graph_id flat = graph_reshape(g, graph_transpose(g, x, order), kept + 1, dim);
    const graph_id d = graph_reshape(g, graph_transpose(g, rule->tangent[0], order), kept + 1, dim);
    const graph_id before = cumulative(g, "cumulative_prod", flat, kept, true, false);
    const graph_id after = cumulative(g, "cumulative_prod", flat, kept, true, true);
    const graph_id sum = graph_reduce_sum(g, graph_mul(g, d, graph_mul(g, before, after)), 1, &last, false);
    const graph_shape y = *graph_shape_of(g, rule->first);
    rule->out[0] = graph_reshape(g, sum, y.rank, y.dim);
}

static bool is_exclusive(const graph_rule *rule) {
    return rule->attribute[1].integer != 0;
}
static bool is_reverse(const graph_rule *rule) {
    return rule->attribute[2].integer != 0;
}
static int running_axis(const graph_rule *rule) {
    return graph_axis_of(rule->attribute[0].integer, graph_shape_of(rule->g, rule->input[0])->rank);
}

static void transpose_cumulative_sum(graph_rule *rule) {
    rule->out[0] = cumulative(rule->g, "cumulative_sum", rule->cotangent[0], running_axis(rule), is_exclusive(rule),
                              !is_reverse(rule));
}

/* Of an exclusive scan: the inclusive result, one element later. */
static graph_id shifted(const graph_rule *rule, graph_id value) {
    graph *g = rule->g;
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0};
    const int axis = running_axis(rule);
    if (!is_exclusive(rule)) return value;
    low[axis] = is_reverse(rule) ? -1 : 1;
    high[axis] = -low[axis];
    return graph_pad(g, value, graph_scalar_like(g, value, 0), low, high);
}

/* The tangent at the latest record: the last element on the way that equals the running extreme. */
static void tangent_record(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id x = graph_rule_operand(rule, 0);
    const graph_shape shape = *graph_shape_of(g, x);
    const int axis = running_axis(rule);
    const bool back = is_reverse(rule);
    const graph_id extreme = cumulative(g, rule->op->name, x, axis, false, back);
    const graph_id one = graph_scalar_i64(g, DLC_I64, 1),
                   last = graph_sub(g, graph_dimension(g, DLC_I64, shape.dim[axis]), one);
    graph_id place = graph_iota(g, DLC_I64, shape.rank, shape.dim, axis);
    if (back) place = graph_sub(g, last, place); /* counted on the way, too */
    place = graph_select(g, graph_eq(g, x, extreme), place, graph_scalar_i64(g, DLC_I64, 0));
    place = cumulative(g, "cumulative_max", place, axis, false, back);
    if (back) place = graph_sub(g, last, place);
    rule->out[0] = shifted(rule, graph_gather_elements(g, rule->tangent[0], place, axis));
}

/* A loop along the axis over the products p and their tangents s: s = s x + p dx, p = p x. Right at zeros, and its derivatives are, too. */
static void tangent_cumulative_prod(graph_rule *rule) {
    graph *g = rule->g;
    const int axis = running_axis(rule);
    const graph_shape shape = *graph_shape_of(g, graph_rule_operand(rule, 0));
    graph_shape rest = {.dtype = shape.dtype, .rank = shape.rank - 1};
    int64_t first[DLC_MAX_RANK] = {axis}, back[DLC_MAX_RANK], number, reverse[3];
    for (int i = 0, k = 0; i < shape.rank; i++) {
        if (i != axis) rest.dim[k++] = shape.dim[i], first[k] = i;
        back[i] = i < axis ? i + 1 : i == axis ? 0 : i;
    }
    for (int i = 0; i < 3; i++) reverse[i] = is_reverse(rule);
    graph *body = graph_new_subgraph(g, &number);
    graph_id in[4];
    for (int i = 0; i < 4; i++) in[i] = graph_new_input(body, NULL, &rest);
    const graph_id next = graph_add(body, graph_mul(body, in[1], in[2]), graph_mul(body, in[0], in[3]));
    graph_new_output(body, NULL, graph_mul(body, in[0], in[2]));
    graph_new_output(body, NULL, next);
    graph_new_output(body, NULL, is_exclusive(rule) ? in[1] : next);
    const graph_id operands[] = {
        graph_full(g, rest.dtype, rest.rank, rest.dim, 1), graph_full(g, rest.dtype, rest.rank, rest.dim, 0),
        graph_transpose(g, graph_rule_operand(rule, 0), first), graph_transpose(g, rule->tangent[0], first)};
    const graph_id scan =
        graph_emit_with(g, "scan", 4, operands, 4,
                        (graph_setting[]){graph_set_integer("body", number), graph_set_integer("carries", 2),
                                          graph_set_integer("sequences", 2), graph_set_list("reverse", 3, reverse)});
    rule->out[0] = graph_transpose(g, scan + 2, back);
}

/* ---- references ------------------------------------------------------------------------------------------------ */

#ifdef DLC_REFERENCE

/* JOIN: how two elements are joined, a and b of a float dtype, x and y of an integer dtype modulo 2^64. COMPARE: comparisons, for which
 * integers are compared as numbers. */
#define JOIN(name, number, integer)                          \
    static double number_##name(double a, double b) {        \
        return number;                                       \
    }                                                        \
    static uint64_t integer_##name(uint64_t x, uint64_t y) { \
        return integer;                                      \
    }
#define COMPARE(name, number)                         \
    static double number_##name(double a, double b) { \
        return number;                                \
    }                                                 \
    static uint64_t (*const integer_##name)(uint64_t x, uint64_t y) = NULL;
JOIN(sum, a + b, x + y)
JOIN(prod, a *b, x *y)
COMPARE(max, isnan(a) || isnan(b) ? NAN : a > b ? a : b)
COMPARE(min, isnan(a) || isnan(b) ? NAN : a < b ? a : b)
JOIN(and, (a != 0) & (b != 0), x &y)
JOIN(or, (a != 0) | (b != 0), x | y)
JOIN(xor, (a != 0) != (b != 0), x ^ y)

static double lowest(dlc_dtype t) {
    return lib_dtypes[t].class_ == 'i' ? -ldexp(1, lib_dtypes[t].bits - 1) : 0;
}
static double highest(dlc_dtype t) { /* as converted back to double */
    double limit = ldexp(1, lib_dtypes[t].bits - (lib_dtypes[t].class_ == 'i'));
    return lib_dtypes[t].bits == 64 ? limit : limit - 1;
}

typedef struct reduction {
    double number_first, integer_first;
    double (*number)(double a, double b);
    /* for integer dtypes; NULL: `number` serves them, too */
    uint64_t (*integer)(uint64_t x, uint64_t y);
} reduction;

static bool in_words(const reduction *f, dlc_dtype t) {
    return graph_reference_integral(t) && f->integer;
}
static double first_number(const reduction *f, dlc_dtype t) {
    if (graph_reference_integral(t)) return f->integer_first;
    const lib_float_info info = lib_float_of(t);
    return isinf(f->number_first) && !info.infinite ? copysign(info.greatest, f->number_first) : f->number_first;
}

/* Joins, for every result element, all elements that reduce to it. */
static void reference_reduce(const graph_reference *r, const reduction *f) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    const graph_attribute *axes = &r->attribute[REDUCE_AXES];
    bool over[DLC_MAX_RANK];
    for (int i = 0; i < x->rank; i++) over[i] = axes->count == 0;
    for (int k = 0; k < axes->count; k++) over[graph_axis_of(axes->list[k], x->rank)] = true;
    for (int64_t result = 0; result < graph_reference_count(y); result++) {
        double number = first_number(f, x->dtype);
        uint64_t integer = graph_reference_word(f->integer_first);
        int64_t from[DLC_MAX_RANK] = {0};
        GRAPH_REFERENCE_EACH(x, from) {
            int64_t at = 0;
            for (int i = 0; i < x->rank; i++)
                if (!over[i]) at = at * x->dim[i] + from[i];
            double element = x->data[graph_reference_at(x, from)];
            if (at != result) continue;
            if (in_words(f, x->dtype))
                integer = f->integer(integer, graph_reference_word(element));
            else
                number = f->number(number, element);
        }
        y->data[result] = in_words(f, x->dtype) ? graph_reference_wrap(x->dtype, integer) : number;
    }
}

static void reference_arg(const graph_reference *r, double sign) {
    const graph_reference_tensor *x = &r->operand[0];
    const graph_reference_rows k = graph_reference_rows_along(x, r->attribute[ARG_AXIS].integer);
    for (int64_t o = 0; o < k.outer; o++)
        for (int64_t i = 0; i < k.inner; i++) {
            const double *row = x->data + o * k.size * k.inner + i;
            int64_t best = 0;
            for (int64_t j = 1; j < k.size; j++) {
                double a = row[best * k.inner], b = row[j * k.inner];
                bool better = isnan(a) ? false : isnan(b) || sign * b > sign * a, same = isnan(a) ? isnan(b) : a == b;
                if (better || (same && r->attribute[ARG_LAST].integer)) best = j;
            }
            r->result[0].data[o * k.inner + i] = (double)best;
        }
}
static void reference_arg_max(const graph_reference *r) {
    reference_arg(r, 1);
}
static void reference_arg_min(const graph_reference *r) {
    reference_arg(r, -1);
}

static void reference_cumulative(const graph_reference *r, const reduction *f) {
    const graph_reference_tensor *x = &r->operand[0];
    const graph_reference_rows k = graph_reference_rows_along(x, r->attribute[CUMULATIVE_AXIS].integer);
    for (int64_t line = 0; line < k.outer * k.inner; line++) {
        int64_t base = line / k.inner * k.size * k.inner + line % k.inner;
        bool integral = in_words(f, x->dtype), exclusive = r->attribute[CUMULATIVE_EXCLUSIVE].integer;
        double number = first_number(f, x->dtype);
        uint64_t integer = graph_reference_word(f->integer_first);
        for (int64_t t = 0; t < k.size; t++) {
            int64_t at = base + (r->attribute[CUMULATIVE_REVERSE].integer ? k.size - 1 - t : t) * k.inner;
            double *result = &r->result[0].data[at];
            if (exclusive) *result = integral ? graph_reference_wrap(x->dtype, integer) : number;
            if (integral)
                integer = f->integer(integer, graph_reference_word(x->data[at]));
            else
                number = f->number(number, x->data[at]);
            if (!exclusive) *result = integral ? graph_reference_wrap(x->dtype, integer) : number;
        }
    }
}

#endif

/* ---- rows -------------------------------------------------------------------------------------------------------- */

#define SAMPLES(name)                                                                                              \
    name "(T[5, 7], axes=[1])\n" name "(T[5, 7], axes=[0])\n" name "(T[5, 7])\n" name "(T[])\n" name               \
         "(T[1], axes=[0])\n" name "(T[4, 1, 7], axes=[0, 2])\n" name "(T[4, 1, 7], axes=[-1], keep=true)\n" name  \
         "(T[3, 0, 2], axes=[1])\n" name "(T[3, 0, 2], axes=[0], keep=true)\n" name "(T[3, 131], axes=[1])\n" name \
         "(T[2, 3, 1, 2, 5, 3], axes=[4, 1, 0])\n" name "(T[2, 3, 1, 2, 5, 3], axes=[2, 5], keep=true)"

/* name behind reduce_, aliases, tir operator, dtypes, float and integer where nothing is joined, tolerance beside the error of the order of
 * summing, doc */
#define REDUCE_TABLE(X)                                                                                            \
    X(sum, "sum", TIR_ADD, "number c64", 0, 0, 0.5,                                                                \
      "Sum over the axes; 0 where there is nothing. f16 and bf16 are summed in f32 and rounded once; integers "    \
      "wrap in their own dtype. StableHLO reduce with add.")                                                       \
    X(prod, "prod", TIR_MUL, "number", 1, 1, 0.5,                                                                  \
      "Product over the axes; 1 where there is nothing. f16 and bf16 are multiplied in f32 and rounded once; "     \
      "integers wrap in their own dtype. StableHLO reduce with multiply.")                                         \
    X(max, "amax", TIR_MAX, "number", -INFINITY, lowest(r->operand[0].dtype), 0,                                   \
      "Greatest element over the axes; NaN if there is one; where there is nothing the lowest of its "             \
      "type: -inf, or the lowest number where there is no infinity. "                                              \
      "StableHLO reduce with maximum.")                                                                            \
    X(min, "amin", TIR_MIN, "number", INFINITY, highest(r->operand[0].dtype), 0,                                   \
      "Least element over the axes; NaN if there is one; where there is nothing the highest of its "               \
      "type: inf, or the highest number where there is no infinity. "                                              \
      "StableHLO reduce with minimum.")                                                                            \
    X(and, "all", TIR_AND, "bool int", 1, -1, 0,                                                                   \
      "Logical (bool) or bitwise and over the axes; true or all ones where there is nothing. StableHLO reduce "    \
      "with and.")                                                                                                 \
    X(or, "any", TIR_OR, "bool int", 0, 0, 0,                                                                      \
      "Logical (bool) or bitwise or over the axes; false or 0 where there is nothing. StableHLO reduce with or.")  \
    X(xor, NULL, TIR_XOR, "bool int", 0, 0, 0,                                                                     \
      "Logical (bool) or bitwise exclusive or over the axes; false or 0 where there is nothing. StableHLO reduce " \
      "with xor.")

#ifdef DLC_REFERENCE
#define X(name_, aliases_, op_, dtypes_, first_, first_integer_, tolerance_, doc_)                  \
    static void reference_reduce_##name_(const graph_reference *r) {                                \
        reference_reduce(r, &(reduction){first_, first_integer_, number_##name_, integer_##name_}); \
    }
REDUCE_TABLE(X)
#undef X
#endif

/* Error propagation: graph/bound.h. */
#define BOUND_OF_TIR_ADD graph_bound_sum
#define BOUND_OF_TIR_MUL graph_bound_product
#define BOUND_OF_TIR_MAX graph_bound_extreme
#define BOUND_OF_TIR_MIN graph_bound_extreme
#define BOUND_OF_TIR_AND graph_bound_bits
#define BOUND_OF_TIR_OR graph_bound_bits
#define BOUND_OF_TIR_XOR graph_bound_bits

#define RULES_OF_TIR_ADD GRAPH_LINEAR(1, transpose_sum)
#define RULES_OF_TIR_MUL .jvp = tangent_prod
#define RULES_OF_TIR_MAX .jvp = tangent_extreme
#define RULES_OF_TIR_MIN .jvp = tangent_extreme
#define RULES_OF_TIR_AND GRAPH_NO_GRADIENT
#define RULES_OF_TIR_OR GRAPH_NO_GRADIENT
#define RULES_OF_TIR_XOR GRAPH_NO_GRADIENT

#define X(name_, aliases_, op_, dtypes_, first_, first_integer_, tolerance_, doc_)                       \
    static const graph_op row_##name_ = {                                                                \
        .name = "reduce_" #name_,                                                                        \
        .aliases = aliases_,                                                                             \
        .class_ = GRAPH_REDUCE,                                                                          \
        .structure = GRAPH_FOLDS,                                                                        \
        .operation = op_,                                                                                \
        .min_inputs = 1,                                                                                 \
        .max_inputs = 1,                                                                                 \
        .results = 1,                                                                                    \
        .operands = "x",                                                                                 \
        .dtypes = dtypes_,                                                                               \
        .attribute = {{"axes", GRAPH_ATTR_INTEGERS, NULL, "[]", "axes to reduce over; empty: all"},      \
                      {"keep", GRAPH_ATTR_BOOL, NULL, "false", "leave dimensions of 1 in their place"}}, \
        .infer = infer_reduce,                                                                           \
        .compute = compute_reduce,                                                                       \
        .reference = GRAPH_REFERENCE(reference_reduce_##name_),                                          \
        .bound = GRAPH_REFERENCE(BOUND_OF_##op_),                                                        \
        .tolerance = tolerance_,                                                                         \
        RULES_OF_##op_,                                                                                  \
        .samples = SAMPLES("reduce_" #name_),                                                            \
        .doc = doc_,                                                                                     \
    };
REDUCE_TABLE(X)
#undef X

/* name, which of the two wins */
#define ARG_TABLE(X)                                                                                                                      \
    X(arg_max,                                                                                                                            \
      "Index of the greatest element along axis, of at least one; the first one of equals, or the last; NaN counts as greatest. NumPy "   \
      "argmax; ONNX ArgMax, whose select_last_index is last.")                                                                            \
    X(arg_min,                                                                                                                            \
      "Index of the least element along axis, of at least one; the first one of equals, or the last; NaN counts as least. NumPy argmin; " \
      "ONNX ArgMin.")

#define X(name_, doc_)                                                                                            \
    static const graph_op row_##name_ = {                                                                         \
        .name = #name_,                                                                                           \
        .class_ = GRAPH_REDUCE,                                                                                   \
        .min_inputs = 1,                                                                                          \
        .max_inputs = 1,                                                                                          \
        .results = 1,                                                                                             \
        .operands = "x",                                                                                          \
        .dtypes = "number",                                                                                       \
        .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis to search along"},                           \
                      {"keep", GRAPH_ATTR_BOOL, NULL, "false", "leave a dimension of 1 in its place"},            \
                      {"dtype", GRAPH_ATTR_DTYPE, NULL, "i64", "of the result: i32 or i64"},                      \
                      {"last", GRAPH_ATTR_BOOL, NULL, "false", "the last one of equals, not the first"}},         \
        .infer = infer_arg,                                                                                       \
        .compute = compute_##name_,                                                                               \
        GRAPH_NO_GRADIENT,                                                                                        \
        .reference = GRAPH_REFERENCE(reference_##name_),                                                          \
        .bound = GRAPH_REFERENCE(graph_bound_same_steps),                                                         \
        .samples =                                                                                                \
            #name_ "(T[5, 7], axis=1)\n" #name_ "(T[5, 7], axis=0, dtype=i32)\n" #name_ "(T[1], axis=0)\n" #name_ \
                   "(T[3, 131], axis=-1, keep=true)\n" #name_ "(T[0, 3], axis=1)\n" #name_                        \
                   "(T[40, 9] in 0..3, axis=1)\n" #name_ "(T[2, 3, 1, 2, 5, 3], axis=4, dtype=i32)\n" #name_      \
                   "(T[40, 9] in 0..3, axis=1, last=true)\n" #name_ "(T[13], axis=0, last=true, keep=true)",      \
        .doc = doc_,                                                                                              \
    };
ARG_TABLE(X)
#undef X

/* name behind cumulative_, aliases, tir operator, float and integer before the first element, tolerance, what the result is, doc */
#define CUMULATIVE_TABLE(X)                                                                                         \
    X(sum, "cumsum", TIR_ADD, 0, 0, 0.5,                                                                            \
      "y[..., t, ...] = sum of x[..., j, ...] for j <= t along axis. f16 and bf16 are summed in f32, each sum "     \
      "rounded once; integers wrap. ONNX CumSum.")                                                                  \
    X(prod, "cumprod", TIR_MUL, 1, 1, 0.5,                                                                          \
      "y[..., t, ...] = product of x[..., j, ...] for j <= t along axis. f16 and bf16 are multiplied in f32, each " \
      "product rounded once; integers wrap. NumPy cumprod.")                                                        \
    X(max, "cummax", TIR_MAX, -INFINITY, lowest(r->operand[0].dtype), 0,                                            \
      "y[..., t, ...] = greatest x[..., j, ...] for j <= t along axis, NaN once there was one. JAX cummax.")        \
    X(min, "cummin", TIR_MIN, INFINITY, highest(r->operand[0].dtype), 0,                                            \
      "y[..., t, ...] = least x[..., j, ...] for j <= t along axis, NaN once there was one. JAX cummin.")

#define X(name_, aliases_, op_, first_, first_integer_, tolerance_, doc_) \
    static void compute_cumulative_##name_(graph_compute *c) {            \
        compute_cumulative(c, op_);                                       \
    }
CUMULATIVE_TABLE(X)
#undef X

#ifdef DLC_REFERENCE
#define X(name_, aliases_, op_, first_, first_integer_, tolerance_, doc_)                               \
    static void reference_cumulative_##name_(const graph_reference *r) {                                \
        reference_cumulative(r, &(reduction){first_, first_integer_, number_##name_, integer_##name_}); \
    }
CUMULATIVE_TABLE(X)
#undef X
#endif

#define CUMULATIVE_SAMPLES(name)                                                                           \
    name "(T[5, 7], axis=1)\n" name "(T[5, 7], axis=0)\n" name "(T[13], axis=0, exclusive=true)\n" name    \
         "(T[13], axis=0, reverse=true)\n" name "(T[3, 11], axis=-1, exclusive=true, reverse=true)\n" name \
         "(T[1], axis=0)\n" name "(T[0], axis=0)\n" name "(T[3, 0], axis=0, exclusive=true)\n" name        \
         "(T[131, 2], axis=0)\n" name "(T[2, 3, 1, 2, 5, 3], axis=4)"

#define RUNNING_RULES_OF_TIR_ADD GRAPH_LINEAR(1, transpose_cumulative_sum)
#define RUNNING_RULES_OF_TIR_MUL .jvp = tangent_cumulative_prod
#define RUNNING_RULES_OF_TIR_MAX .jvp = tangent_record
#define RUNNING_RULES_OF_TIR_MIN .jvp = tangent_record

#define X(name_, aliases_, op_, first_, first_integer_, tolerance_, doc_)                           \
    static const graph_op row_cumulative_##name_ = {                                                \
        .name = "cumulative_" #name_,                                                               \
        .aliases = aliases_,                                                                        \
        .class_ = GRAPH_REDUCE,                                                                     \
        .min_inputs = 1,                                                                            \
        .max_inputs = 1,                                                                            \
        .results = 1,                                                                               \
        .operands = "x",                                                                            \
        .dtypes = "number",                                                                         \
        .attribute = {{"axis", GRAPH_ATTR_INTEGER, NULL, NULL, "axis to run along"},                \
                      {"exclusive", GRAPH_ATTR_BOOL, NULL, "false",                                 \
                       "leave the element itself out: the first result is that of nothing"},        \
                      {"reverse", GRAPH_ATTR_BOOL, NULL, "false", "run from the end of the axis"}}, \
        .infer = infer_cumulative,                                                                  \
        RUNNING_RULES_OF_##op_,                                                                     \
        .compute = compute_cumulative_##name_,                                                      \
        .reference = GRAPH_REFERENCE(reference_cumulative_##name_),                                 \
        .bound = GRAPH_REFERENCE(BOUND_OF_##op_),                                                   \
        .tolerance = tolerance_,                                                                    \
        .samples = CUMULATIVE_SAMPLES("cumulative_" #name_),                                        \
        .doc = doc_,                                                                                \
    };
CUMULATIVE_TABLE(X)
#undef X

#define REDUCE_ROW(name_, aliases_, op_, dtypes_, first_, first_integer_, tolerance_, doc_) &row_##name_,
#define ARG_ROW(name_, doc_) &row_##name_,
#define CUMULATIVE_ROW(name_, aliases_, op_, first_, first_integer_, tolerance_, doc_) &row_cumulative_##name_,
const graph_op *const graph_ops_reduce[] = {
    REDUCE_TABLE(REDUCE_ROW) ARG_TABLE(ARG_ROW) CUMULATIVE_TABLE(CUMULATIVE_ROW) NULL,
};
