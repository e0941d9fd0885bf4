/* Rewrite rules and the simplify pass.
 *
 * Contract of every rule, tested one by one on random operands:
 *   - it keeps dtype and shape (emit checks that) and the value, bit for bit with NaN as a class, unless its contract
 * says `inexact`: then the result is at least as close to the mathematical one;
 *   - it is directional: it returns an existing value, or one emitted with fewer or cheaper nodes, so that rewriting
 * ends;
 *   - it looks at its operands' nodes only, never at users (rules that need use counts are passes).
 * A rule is selected by the operator and the operator of its first input, and applies in all phases but building. Emit calls
 * graph_rewrite, so every pass that re-emits a graph simplifies it; hash-consing removes common sub-expressions, and
 * dead code disappears because only live nodes are visited. */
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/ops_common.h"

#include <math.h>

/* nothing is rewritten during building, so that the host sees its own graph */
enum { LATER = GRAPH_SIMPLIFY | GRAPH_BOUND };

typedef struct match {
    graph *g;
    const graph_op *op;
    int inputs;
    const graph_id *input;
    const graph_attribute *attribute;
    const graph_shape *result;
} match;

typedef struct rule {
    /* "*": any row of class MAP or with algebra bits */
    const char *op;
    /* operator of the first input; NULL: any */
    const char *first;
    /* returns 0 if the rule does not apply after all */
    graph_id (*apply)(const match *m);
} rule;

/* ---- queries of rules -------------------------------------------------------------------------------------------- */

static const graph_node *first_node(const match *m) {
    return graph_node_of(m->g, m->input[0]);
}
static graph_id inner(const match *m, int i) {
    return first_node(m)->input[i];
}
static dlc_dtype dtype_of(const graph *g, graph_id value) {
    return graph_shape_of(g, value)->dtype;
}

/* Are dtype and dimensions equal for all values of the symbols? */
static bool same_shape(const match *m, const graph_shape *a, const graph_shape *b) {
    if (a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i] && tir_equal(m->g->pool, a->dim[i], b->dim[i]) != TIR_YES) return false;
    return true;
}

/* Is operand 1 this number? */
static bool is_by(const match *m, double wanted) {
    double number;
    return graph_is_number(m->g, m->input[1], &number) && number == wanted && signbit(number) == signbit(wanted);
}

static bool is_integral(dlc_dtype dtype) {
    return !lib_dtype_is_float(dtype);
}

/* ---- algebra bits ---------------------------------------------------------------------------------------------- */

static bool same_attributes(const graph_op *op, const graph_attribute *a, const graph_attribute *b) {
    for (int i = 0; op->attribute[i].name; i++)
        if (!graph_attribute_equal(&op->attribute[i], &a[i], &b[i])) return false;
    return true;
}

static graph_id apply_involution(const match *m) {
    const graph_node *node = first_node(m);
    bool same = node->op == m->op && same_attributes(m->op, m->attribute, node->attribute);
    return same && (m->op->algebra & GRAPH_INVOLUTION) ? node->input[0] : 0;
}

static graph_id apply_idempotent(const match *m) {
    if (!(m->op->algebra & GRAPH_IDEMPOTENT) || m->op->class_ != GRAPH_MAP) return 0;
    if (m->inputs == 2) return m->input[0] == m->input[1] ? m->input[0] : 0;
    return m->inputs == 1 && first_node(m)->op == m->op ? m->input[0] : 0;
}

static graph_id apply_number_right(const match *m) {
    double number;
    if (m->inputs != 2 || !(m->op->algebra & GRAPH_COMMUTES)) return 0;
    if (!graph_is_number(m->g, m->input[0], &number) || graph_is_number(m->g, m->input[1], &number)) return 0;
    return graph_emit(m->g, m->op, 2, (graph_id[]){m->input[1], m->input[0]}, m->attribute);
}

/* (x op c) op d -> x op (c op d) if that is exact */
static graph_id apply_associate(const match *m) {
    uint32_t wanted = GRAPH_COMMUTES | GRAPH_ASSOCIATIVE;
    double number;
    if (m->inputs != 2 || (m->op->algebra & wanted) != wanted || first_node(m)->op != m->op) return 0;
    if (!is_integral(m->result->dtype)) return 0;
    if (!graph_is_number(m->g, inner(m, 1), &number) || !graph_is_number(m->g, m->input[1], &number)) return 0;
    graph_id right = graph_emit(m->g, m->op, 2, (graph_id[]){inner(m, 1), m->input[1]}, m->attribute);
    return graph_emit(m->g, m->op, 2, (graph_id[]){inner(m, 0), right}, m->attribute);
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------ */

/* x + 0 -> x. For floats only x + -0 is x, since -0 + +0 is +0. */
static graph_id apply_add_zero(const match *m) {
    bool zero = is_integral(m->result->dtype) ? is_by(m, 0.0) : is_by(m, -0.0);
    return zero ? m->input[0] : 0;
}
static graph_id apply_sub_zero(const match *m) {
    return is_by(m, 0.0) ? m->input[0] : 0;
}
static graph_id apply_mul_one(const match *m) {
    return is_by(m, 1.0) ? m->input[0] : 0;
}
static graph_id apply_mul_zero(const match *m) {
    return is_integral(m->result->dtype) && is_by(m, 0.0) ? m->input[1] : 0;
}
static graph_id apply_mul_minus_one(const match *m) {
    return is_by(m, -1.0) ? graph_neg(m->g, m->input[0]) : 0;
}

/* x / 2^k -> x * 2^-k: the same rounding, as long as 2^-k is a normal number of the dtype. */
static graph_id apply_div_power(const match *m) {
    double number;
    int exponent;
    if (is_integral(m->result->dtype) || !graph_is_number(m->g, m->input[1], &number)) return 0;
    if (number == 1.0) return m->input[0];
    const lib_float_info info = lib_float_of(m->result->dtype);
    if (fabs(frexp(number, &exponent)) != 0.5 || 1 - exponent < info.lowest || 1 - exponent > info.highest) return 0;
    return graph_mul(m->g, m->input[0], graph_scalar_like(m->g, m->input[0], 1.0 / number));
}

static graph_id apply_pow_small(const match *m) {
    if (is_by(m, 1.0)) return m->input[0];
    return is_by(m, 2.0) ? graph_mul(m->g, m->input[0], m->input[0]) : 0;
}

/* Are the numbers equal up to a rounding to f32? */
static bool is_about(double number, double wanted) {
    return fabs(number - wanted) <= 1e-6 * wanted;
}

/* Returns x if `value` is erf(x/sqrt(2)) + 1; else 0. */
static graph_id twice_normal_cdf(const match *m, graph_id value) {
    double number;
    if (!graph_is(m->g, value, "add")) return 0;
    const graph_node *sum = graph_node_of(m->g, value);
    if (!graph_is(m->g, sum->input[0], "erf") || !graph_is_number(m->g, sum->input[1], &number) || number != 1.0)
        return 0;
    graph_id scaled = graph_node_of(m->g, sum->input[0])->input[0];
    const graph_node *node = graph_node_of(m->g, scaled);
    bool multiplied = graph_is(m->g, scaled, "mul"), divided = graph_is(m->g, scaled, "div");
    if ((!multiplied && !divided) || !graph_is_number(m->g, node->input[1], &number)) return 0;
    return is_about(multiplied ? number : 1.0 / number, 0.70710678118654752440) ? node->input[0] : 0;
}

/* a * (erf(x / sqrt 2) + 1) * 0.5, with the factors in any order and grouping, -> a * normal_cdf(x). */
static graph_id apply_normal_cdf(const match *m) {
    graph_id factor[4];
    int count = 0;
    for (int i = 0; i < 2; i++) {
        const graph_node *node = graph_node_of(m->g, m->input[i]);
        bool product = graph_is(m->g, m->input[i], "mul");
        for (int k = 0; k < (product ? 2 : 1); k++) factor[count++] = product ? node->input[k] : m->input[i];
    }
    if (count != 3) return 0;
    for (int c = 0; c < 3; c++) {
        graph_id x = twice_normal_cdf(m, factor[c]), a = factor[(c + 1) % 3], b = factor[(c + 2) % 3];
        double number;
        if (!x) continue;
        bool first = graph_is_number(m->g, a, &number) && number == 0.5;
        if (!first && (!graph_is_number(m->g, b, &number) || number != 0.5)) return 0;
        return graph_mul(m->g, first ? b : a, graph_normal_cdf(m->g, x));
    }
    return 0;
}

/* abs(neg x) -> abs x; not for unsigned integers, whose negation wraps. */
static graph_id apply_abs_of_neg(const match *m) {
    if (lib_dtypes[m->result->dtype].class_ == 'u') return 0;
    return graph_abs(m->g, inner(m, 0));
}

static graph_id apply_only_operand(const match *m) {
    return m->input[0];
}

static graph_id apply_multiply_no_nan(const match *m) {
    double number;
    if (graph_is_number(m->g, m->input[0], &number))
        return number == 0 ? m->input[0] : graph_mul(m->g, m->input[1], m->input[0]);
    if (!graph_is_number(m->g, m->input[1], &number) || !isfinite(number)) return 0;
    return graph_mul(m->g, m->input[0], m->input[1]);
}

static graph_id apply_select(const match *m) {
    double condition;
    if (m->input[1] == m->input[2]) return m->input[1];
    if (!graph_is_number(m->g, m->input[0], &condition)) return 0;
    return condition != 0 ? m->input[1] : m->input[2];
}

/* ---- casts ----------------------------------------------------------------------------------------------------- */

/* Does casting to `to` and back keep every value of `from`? */
static bool is_lossless(dlc_dtype from, dlc_dtype to) {
    const lib_dtype_info *a = &lib_dtypes[from], *b = &lib_dtypes[to];
    if (to == DLC_F8E8M0) return from == to; /* without 0 */
    if (from == to || a->class_ == 'b') return true;
    if (b->class_ == 'b') return false;
    lib_float_info wide = lib_float_of(to);
    if (a->class_ == 'f') {
        lib_float_info x = lib_float_of(from);
        return b->class_ == 'f' && x.digits <= wide.digits && x.highest <= wide.highest &&
               x.lowest - x.digits >= wide.lowest - wide.digits && x.infinite <= wide.infinite &&
               x.signed_zero <= wide.signed_zero;
    }
    int value_bits = a->bits - (a->class_ == 'i');
    if (b->class_ == 'f') return value_bits <= wide.digits && value_bits <= wide.highest;
    return value_bits <= b->bits - (b->class_ == 'i') && (a->class_ == 'u' || b->class_ == 'i');
}

static graph_id apply_cast_same(const match *m) {
    return dtype_of(m->g, m->input[0]) == m->result->dtype ? m->input[0] : 0;
}

/* cast(cast(x, middle), to) -> cast(x, to) if middle holds every value of x. If x is integer or bool and middle float, or the reverse, `to`
 * must hold every value too, because the two casts saturate and wrap differently. */
static graph_id apply_cast_cast(const match *m) {
    if (m->attribute[1].integer || m->attribute[2].integer) return 0; /* saturates, or rounds in another way */
    dlc_dtype from = dtype_of(m->g, inner(m, 0)), middle = dtype_of(m->g, m->input[0]);
    if (!is_lossless(from, middle)) return 0;
    bool changes_kind = lib_dtype_is_float(from) != lib_dtype_is_float(middle);
    if (changes_kind && !is_lossless(from, m->result->dtype)) return 0;
    return graph_cast(m->g, inner(m, 0), m->result->dtype);
}

/* ---- structure ------------------------------------------------------------------------------------------------- */

static graph_id apply_same_shape(const match *m) {
    return same_shape(m, graph_shape_of(m->g, m->input[0]), m->result) ? m->input[0] : 0;
}

static graph_id apply_transpose_identity(const match *m) {
    for (int i = 0; i < m->result->rank; i++)
        if (graph_axis_of(m->attribute[0].list[i], m->result->rank) != i) return 0;
    return m->input[0];
}

static graph_id apply_transpose_transpose(const match *m) {
    int64_t permutation[DLC_MAX_RANK];
    int rank = m->result->rank;
    const int64_t *before = first_node(m)->attribute[0].list;
    for (int i = 0; i < rank; i++)
        permutation[i] = graph_axis_of(before[graph_axis_of(m->attribute[0].list[i], rank)], rank);
    return graph_transpose(m->g, inner(m, 0), permutation);
}

static graph_id apply_reshape_reshape(const match *m) {
    return graph_reshape(m->g, inner(m, 0), m->result->rank, m->result->dim);
}

static graph_id apply_broadcast_identity(const match *m) {
    for (int i = 0; i < m->attribute[1].count; i++)
        if (graph_axis_of(m->attribute[1].list[i], m->result->rank) != i) return 0;
    return apply_same_shape(m);
}

static graph_id apply_broadcast_broadcast(const match *m) {
    int64_t axes[DLC_MAX_RANK];
    const graph_attribute *before = &first_node(m)->attribute[1];
    int middle = graph_shape_of(m->g, m->input[0])->rank;
    for (int i = 0; i < before->count; i++)
        axes[i] = graph_axis_of(m->attribute[1].list[graph_axis_of(before->list[i], middle)], m->result->rank);
    return graph_broadcast(m->g, inner(m, 0), m->result->rank, m->result->dim, axes);
}

/* broadcast(constant whose elements are all one number) -> broadcast(that scalar) */
static graph_id apply_broadcast_splat(const match *m) {
    const graph_constant *constant = graph_constant_of(m->g, m->input[0]);
    double number;
    if (graph_shape_of(m->g, m->input[0])->rank == 0 || !graph_is_number(m->g, m->input[0], &number)) return 0;
    const void *first = constant->described ? constant->head : graph_constant_bytes(m->g->arena->scope, constant);
    graph_id scalar = graph_literal(m->g, m->result->dtype, 0, NULL, first);
    return graph_broadcast_to(m->g, scalar, m->result->rank, m->result->dim);
}

/* f(broadcast(a), broadcast(b)) -> broadcast(f(a, b)): fewer elements to compute. */
static graph_id apply_map_of_broadcasts(const match *m) {
    if (m->op->class_ != GRAPH_MAP || m->inputs > 3) return 0;
    graph_id source[3];
    const graph_node *first = first_node(m);
    for (int i = 0; i < m->inputs; i++) {
        if (!m->input[i] || !graph_is(m->g, m->input[i], "broadcast")) return 0;
        const graph_node *node = graph_node_of(m->g, m->input[i]);
        if (!same_attributes(node->op, node->attribute, first->attribute)) return 0;
        source[i] = node->input[0];
        if (graph_shape_of(m->g, source[i])->rank != graph_shape_of(m->g, source[0])->rank) return 0;
        for (int k = 0; k < graph_shape_of(m->g, source[0])->rank; k++)
            if (graph_shape_of(m->g, source[i])->dim[k] != graph_shape_of(m->g, source[0])->dim[k]) return 0;
    }
    const int64_t *axes = first->attribute[1].list;
    graph_id result = graph_emit(m->g, m->op, m->inputs, source, m->attribute);
    return graph_broadcast(m->g, result, m->result->rank, m->result->dim, axes);
}

static bool all_zero(const graph_attribute *list) {
    for (int i = 0; i < list->count; i++)
        if (list->list[i] != 0) return false;
    return true;
}

static graph_id apply_pad_nothing(const match *m) {
    return all_zero(&m->attribute[0]) && all_zero(&m->attribute[1]) && all_zero(&m->attribute[2]) ? m->input[0] : 0;
}

static graph_id apply_slice_all(const match *m) {
    for (int i = 0; i < m->attribute[2].count; i++)
        if (m->attribute[2].list[i] != 1) return 0;
    return apply_same_shape(m);
}

/* ---- views of constants: the same bytes, so that kernels may pack them --------------------------------- */

static bool numbers_of(const match *m, int count, const tir_expr *dims, int64_t *out) {
    for (int i = 0; i < count; i++)
        if (!tir_is_const(m->g->pool, dims[i], &out[i])) return false;
    return true;
}

/* The constant operand's elements from `first` on, in the result's shape; 0: the shape is symbolic, or the first of packed elements is
 * inside of a byte. */
static graph_id constant_from(const match *m, size_t first) {
    graph *g = m->g;
    const dlc_dtype dtype = m->result->dtype;
    graph_constant part = *graph_constant_of(g, m->input[0]);
    int64_t shape[DLC_MAX_RANK];
    size_t count = 1;
    if (!numbers_of(m, m->result->rank, m->result->dim, shape)) return 0;
    if (lib_dtype_is_packed(dtype) && first % (8 / lib_dtypes[dtype].bits)) return 0;
    for (int i = 0; i < m->result->rank; i++) count *= (size_t)shape[i];
    const size_t offset = lib_dtype_bytes(dtype, first), size = lib_dtype_bytes(dtype, count);
    if (size != part.size) {
        part.identity = lib_hash_mix(lib_hash_mix(part.identity, offset), size);
        part.described = false;
    }
    part.bytes = (const char *)part.bytes + offset;
    part.size = size;
    return graph_emit_with(g, "constant", 0, NULL, 3,
                           (graph_setting[]){graph_set_integer("value", graph_add_constant_as(g, part)),
                                             graph_set_integer("dtype", dtype),
                                             graph_set_dims("shape", m->result->rank, m->result->dim)});
}

static graph_id apply_reshape_constant(const match *m) {
    return constant_from(m, 0);
}

/* A contiguous slice: leading axes with one element, one partial axis, full trailing axes. */
static graph_id apply_slice_constant(const match *m) {
    const graph_shape *x = graph_shape_of(m->g, m->input[0]);
    int64_t size[DLC_MAX_RANK], taken[DLC_MAX_RANK], start[DLC_MAX_RANK];
    if (!numbers_of(m, x->rank, x->dim, size) || !numbers_of(m, x->rank, m->result->dim, taken)) return 0;
    if (!numbers_of(m, m->attribute[0].count, m->attribute[0].dims, start)) return 0;
    size_t first = 0;
    bool whole = true; /* all axes from here on are full */
    for (int i = x->rank; i-- > 0; whole = whole && taken[i] == size[i]) {
        if ((m->attribute[2].count && m->attribute[2].list[i] != 1) || !taken[i]) return 0;
        if (!whole && taken[i] != 1) return 0;
    }
    for (int i = 0; i < x->rank; i++)
        first = first * (size_t)size[i] + (size_t)(start[i] < 0 ? start[i] + size[i] : start[i]);
    return constant_from(m, first);
}

static graph_id apply_concat_one(const match *m) {
    return m->inputs == 1 ? m->input[0] : 0;
}

/* Splits a concat of more than GRAPH_CONCAT_WIDEST operands: a kernel with many parts takes longer to compile than separate kernels and,
 * for short parts, checks for each element which part it is in. */
static graph_id apply_concat_many(const match *m) {
    const int pieces = (m->inputs + GRAPH_CONCAT_WIDEST - 1) / GRAPH_CONCAT_WIDEST;
    if (pieces < 2) return 0;
    graph_id *piece = LIB_NEW_ARRAY(m->g->arena, graph_id, (size_t)pieces);
    const int axis = (int)m->attribute[0].integer;
    for (int i = 0; i < pieces; i++) {
        const int first = (int)((int64_t)m->inputs * i / pieces), end = (int)((int64_t)m->inputs * (i + 1) / pieces);
        piece[i] = graph_concat(m->g, end - first, m->input + first, axis);
    }
    return graph_concat(m->g, pieces, piece, axis);
}

/* gather(x, cast of floats to i64) -> gather(x, cast to i32): both casts saturate, and gather clamps its indices, which fit i32. Indices
 * computed in floats (resize) then need vectors no wider than those of elements. */
static graph_id apply_gather_narrow(const match *m) {
    const graph_shape *x = graph_shape_of(m->g, m->input[0]);
    const int64_t axis = graph_axis_of(m->attribute[0].integer, x->rank);
    if (dtype_of(m->g, m->input[1]) != DLC_I64 || !graph_is(m->g, m->input[1], "cast")) return 0;
    const graph_id floats = graph_node_of(m->g, m->input[1])->input[0];
    if (is_integral(dtype_of(m->g, floats)) || tir_range(m->g->pool, x->dim[axis]).high > INT32_MAX) return 0;
    return graph_gather(m->g, m->input[0], graph_cast(m->g, floats, DLC_I32), (int)axis);
}

/* A reduction over dimensions of 1 -> a reshape. Not for float sums, which start from 0: 0 + -0 is +0. */
static graph_id apply_reduce_nothing(const match *m) {
    const graph_shape *x = graph_shape_of(m->g, m->input[0]);
    bool over[DLC_MAX_RANK] = {false};
    for (int i = 0; i < m->attribute[0].count; i++) over[graph_axis_of(m->attribute[0].list[i], x->rank)] = true;
    for (int i = 0; i < x->rank; i++) {
        if (m->attribute[0].count && !over[i]) continue;
        if (!tir_is_number(m->g->pool, x->dim[i], 1)) return 0;
    }
    if (m->op->operation == TIR_ADD && !is_integral(x->dtype)) return 0;
    return graph_reshape(m->g, m->input[0], m->result->rank, m->result->dim);
}

/* Are there windows along several axes, and do those along one axis after the other take at most half of the work? in,
 * out: sizes of the operand and of the result. */
static bool halves_work(const int64_t *windows, int rank, const int64_t *in, const int64_t *out) {
    double at_once = 1, apart = 0;
    int count = 0;
    for (int i = 0; i < rank; i++) {
        const int64_t window = windows[i];
        double points = (double)window;
        for (int k = 0; k < rank; k++) points *= (double)(k <= i ? out[k] : in[k]);
        at_once *= (double)window * (double)out[i];
        if (window > 1) apart += points, count++;
    }
    return count >= 2 && at_once != 0 && !(2 * apart > at_once);
}

/* The maximum or minimum over a window -> that along one axis after the other, the first axis first, if this halves the work. */
static graph_id apply_window_by_axes(const match *m) {
    enum { OP, WINDOW, STRIDE, LOW, HIGH, DILATION, SETTINGS };
    static const char *const names[SETTINGS] = {"op", "window", "stride", "low", "high", "dilation"};
    static const int64_t plain[SETTINGS] = {[WINDOW] = 1, [STRIDE] = 1, [DILATION] = 1};
    const int64_t op = m->attribute[OP].integer; /* 0: a sum, which would round differently */
    const graph_shape *x = graph_shape_of(m->g, m->input[0]);
    int64_t in[DLC_MAX_RANK], out[DLC_MAX_RANK];
    if (op == 0 || !numbers_of(m, x->rank, x->dim, in) || !numbers_of(m, x->rank, m->result->dim, out)) return 0;
    if (!halves_work(m->attribute[WINDOW].list, x->rank, in, out)) return 0;
    graph_id y = m->input[0];
    for (int i = 0; i < x->rank; i++) { /* axes with windows of 1 belong to the first window */
        int64_t list[SETTINGS][DLC_MAX_RANK];
        graph_setting setting[SETTINGS] = {graph_set_integer(names[OP], op)};
        if (m->attribute[WINDOW].list[i] == 1) continue;
        for (int k = WINDOW; k < SETTINGS; k++) {
            for (int a = 0; a < x->rank; a++) {
                bool now = a == i || (y == m->input[0] && m->attribute[WINDOW].list[a] == 1);
                list[k][a] = now ? graph_list_entry(&m->attribute[k], a, plain[k]) : plain[k];
            }
            setting[k] = graph_set_list(names[k], x->rank, list[k]);
        }
        y = graph_emit_with(m->g, "reduce_window", 1, &y, SETTINGS, setting);
    }
    return y;
}

/* ---- the rules ------------------------------------------------------------------------------------------------- */

/* contract: for readers */
#define RULE(op, first, apply, contract) \
    { op, first, apply }
static const rule rules[] = {
    RULE("*", NULL, apply_involution, "f(f(x)) -> x for rows with INVOLUTION and equal attributes"),
    RULE("*", NULL, apply_idempotent, "f(f(x)) -> f(x), f(x, x) -> x for maps with IDEMPOTENT"),
    RULE("*", NULL, apply_number_right, "f(c, x) -> f(x, c) for numbers c, rows with COMMUTES"),
    RULE("*", NULL, apply_associate, "f(f(x, c), d) -> f(x, f(c, d)) for integers and numbers c, d"),
    RULE("*", "broadcast", apply_map_of_broadcasts, "f(broadcast a, broadcast b) -> broadcast f(a, b)"),
    RULE("add", NULL, apply_add_zero, "x + 0 -> x (floats: -0)"),
    RULE("sub", NULL, apply_sub_zero, "x - 0 -> x"),
    RULE("mul", NULL, apply_mul_one, "x * 1 -> x"),
    RULE("mul", NULL, apply_mul_zero, "x * 0 -> 0 for integers"),
    RULE("mul", NULL, apply_mul_minus_one, "x * -1 -> neg x"),
    RULE("mul", NULL, apply_normal_cdf, "inexact: a * (erf(x/sqrt 2) + 1) * 0.5 -> a * normal_cdf(x)"),
    RULE("div", NULL, apply_div_power, "x / 2^k -> x * 2^-k for floats"),
    RULE("pow", NULL, apply_pow_small, "inexact: x ^ 1 -> x, x ^ 2 -> x * x"),
    RULE("abs", "neg", apply_abs_of_neg, "abs(neg x) -> abs x (not unsigned)"),
    RULE("select", NULL, apply_select, "select(c, a, a) -> a; select of a known condition"),
    RULE("stop_gradient", NULL, apply_only_operand, "stop_gradient x -> x: derivatives were taken before"),
    RULE("multiply_no_nan", NULL, apply_multiply_no_nan,
         "inexact: multiply_no_nan by a finite number, or of one -> mul"),
    RULE("cast", NULL, apply_cast_same, "cast to the operand's dtype -> x"),
    RULE("cast", "cast", apply_cast_cast, "cast(cast(x, wider), t) -> cast(x, t)"),
    RULE("reshape", NULL, apply_same_shape, "reshape to the operand's shape -> x"),
    RULE("reshape", "reshape", apply_reshape_reshape, "reshape(reshape x) -> reshape x"),
    RULE("reshape", "constant", apply_reshape_constant, "reshape of a constant -> a constant of its bytes"),
    RULE("transpose", NULL, apply_transpose_identity, "transpose that keeps the order -> x"),
    RULE("transpose", "transpose", apply_transpose_transpose, "transpose(transpose x) -> transpose x"),
    RULE("broadcast", NULL, apply_broadcast_identity, "broadcast to the operand's own shape and axes -> x"),
    RULE("broadcast", "broadcast", apply_broadcast_broadcast, "broadcast(broadcast x) -> broadcast x"),
    RULE("broadcast", "constant", apply_broadcast_splat, "broadcast of equal elements -> broadcast of a scalar"),
    RULE("pad", NULL, apply_pad_nothing, "pad by nothing -> x"),
    RULE("slice", NULL, apply_slice_all, "slice of everything -> x"),
    RULE("slice", "constant", apply_slice_constant, "slice of a constant that is one run -> a constant"),
    RULE("concat", NULL, apply_concat_one, "concat of one operand -> it"),
    RULE("concat", NULL, apply_concat_many, "concat of many operands -> concat of concats"),
    RULE("gather", NULL, apply_gather_narrow,
         "gather(x, cast of floats to i64) -> gather(x, cast to i32), where x is not longer than that"),
    RULE("reduce_sum", NULL, apply_reduce_nothing, "reduction over dimensions of 1 -> reshape (not float sums)"),
    RULE("reduce_prod", NULL, apply_reduce_nothing, "reduction over dimensions of 1 -> reshape"),
    RULE("reduce_max", NULL, apply_reduce_nothing, "reduction over dimensions of 1 -> reshape"),
    RULE("reduce_min", NULL, apply_reduce_nothing, "reduction over dimensions of 1 -> reshape"),
    RULE("reduce_and", NULL, apply_reduce_nothing, "reduction over dimensions of 1 -> reshape"),
    RULE("reduce_or", NULL, apply_reduce_nothing, "reduction over dimensions of 1 -> reshape"),
    RULE("reduce_window", NULL, apply_window_by_axes,
         "a greatest or least element over several axes -> over one after the other, where that halves the work"),
};

graph_id graph_rewrite(graph *g, const graph_op *op, int inputs, const graph_id *input,
                       const graph_attribute *attributes, const graph_shape *result) {
    if (inputs == 0 || !input[0] || !(g->phase & LATER)) return 0;
    match m = {g, op, inputs, input, attributes, result};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        if (*r->op != '*' && (*r->op != *op->name || strcmp(r->op, op->name) != 0)) continue;
        if (r->first && !graph_is(g, input[0], r->first)) continue;
        graph_id value = r->apply(&m);
        if (value) return value;
    }
    return 0;
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

enum { ROUNDS_MAX = 8 };

static bool are_equal(const graph *a, const graph *b) {
    if (a->nodes.count != b->nodes.count) return false;
    lib_hash128 x = graph_hash(a), y = graph_hash(b);
    return x.low == y.low && x.high == y.high;
}

graph *graph_simplify(lib_arena *arena, const graph *g) {
    uint32_t phase = g->phase == GRAPH_BOUND ? GRAPH_BOUND : GRAPH_SIMPLIFY;
    graph *now = graph_walk_run(arena, g, phase, NULL, graph_walk_live, NULL);
    for (int round = 1; round < ROUNDS_MAX && now->rewrites; round++) { /* if no rule applied, none will */
        graph *next = graph_walk_run(arena, now, phase, NULL, graph_walk_live, NULL);
        bool stable = next->rewrites && are_equal(now, next);
        now = next;
        if (stable) break;
    }
    return now;
}
