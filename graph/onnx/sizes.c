/* Arithmetic on known values: shapes, and values that models compute from them. Elements are index expressions over the graph's
 * symbols, fractions of index expressions, or numbers. Index expressions neither wrap nor round: that the elements do not either, in their type,
 * is proved, or assumed of the sizes that arrive (onnx_assume). Results that are not known so are computed by kernels. */
#include "graph/onnx/structure.h"

#include <math.h>

typedef onnx_number number;

/* ---- known values -------------------------------------------------------------------------------------------------- */

int64_t onnx_count(size_t rank, const int64_t *dims, int64_t most) {
    int64_t count = 1;
    for (size_t d = 0; d < rank; d++)
        if (dims[d] < 0 || __builtin_mul_overflow(count, dims[d], &count)) return -1;
    return count <= most ? count : -1;
}

onnx_known *onnx_known_new(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims) {
    onnx_known *known = LIB_NEW(im->g->arena, onnx_known);
    known->dtype = dtype, known->rank = rank, known->count = onnx_count((size_t)rank, dims, INT64_MAX);
    if (known->count < 0) onnx_fail(im, DLC_PARSE_ERROR, "a result that no tensor can have");
    for (int d = 0; d < rank; d++) known->dims[d] = dims[d];
    known->element = LIB_NEW_ARRAY(im->g->arena, onnx_number, (size_t)known->count + 1);
    return known;
}

onnx_known *onnx_known_of_dims(onnx_import *im, int count, const tir_expr *dims) {
    onnx_known *known = onnx_known_new(im, DLC_I64, 1, (int64_t[]){count});
    for (int i = 0; i < count; i++) known->element[i] = (number){dims[i], 1, 0};
    return known;
}

static int64_t known_max(const onnx_import *im) {
    return im->known_max ? im->known_max : ONNX_KNOWN_MAX;
}

bool onnx_is_followed(dlc_dtype dtype) {
    return dtype == DLC_F32 || dtype == DLC_F64 || dtype == DLC_BOOL ||
           (lib_dtype_is_integer(dtype) && lib_dtypes[dtype].bits >= 8);
}

static number whole(onnx_import *im, int64_t value) {
    return (number){tir_index(im->g->pool, value), 1, 0};
}

static number real(double value) {
    return (number){0, 1, value};
}

/* The element of that dtype at `bytes`. */
static number element_of(onnx_import *im, dlc_dtype dtype, const void *bytes) {
    if (lib_dtype_is_float(dtype)) return real(lib_element_get_f64(dtype, bytes));
    return whole(im, lib_element_get_i64(dtype, bytes));
}

const onnx_known *onnx_known_of_tensor(onnx_import *im, const onnx_tensor *tensor) {
    const onnx_element *element = onnx_element_of(tensor->data_type);
    if (tensor->data_type == ONNX_STRING || element->dtype < 0 || !onnx_is_followed((dlc_dtype)element->dtype) ||
        onnx_is_external(tensor) || tensor->dims.count > DLC_MAX_RANK ||
        onnx_count(tensor->dims.count, tensor->dims.data, ONNX_KNOWN_MAX) < 0)
        return NULL;
    const onnx_data data = onnx_tensor_data(im->g->arena, tensor);
    const dlc_dtype dtype = (dlc_dtype)element->dtype;
    onnx_known *known = onnx_known_new(im, dtype, (int)tensor->dims.count, tensor->dims.data);
    for (int64_t i = 0; i < known->count; i++) {
        uint64_t bytes = 0; /* raw data have any alignment */
        memcpy(&bytes, data.bytes.data + (size_t)i * lib_dtype_size(dtype), lib_dtype_size(dtype));
        known->element[i] = element_of(im, dtype, &bytes);
        if (dtype == DLC_U64 && (int64_t)bytes < 0) return NULL;
    }
    return known;
}

const onnx_known *onnx_known_of_view(onnx_import *im, const DLTensor *view, graph_id *made) {
    dlc_dtype dtype = DLC_F32;
    lib_dtype_from_dlpack(view->dtype, &dtype);
    const char *data = lib_tensor_data(view);
    if (onnx_count((size_t)view->ndim, view->shape, known_max(im)) < 0 || !onnx_is_followed(dtype)) {
        *made = graph_literal(im->g, dtype, view->ndim, view->shape, data);
        return NULL;
    }
    return onnx_known_of_elements(im, dtype, view->ndim, view->shape, data);
}

onnx_known *onnx_known_of_elements(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims,
                                   const void *elements) {
    onnx_known *known = onnx_known_new(im, dtype, rank, dims);
    for (int64_t i = 0; i < known->count; i++)
        known->element[i] = element_of(im, dtype, (const char *)elements + (size_t)i * lib_dtype_size(dtype));
    return known;
}

bool onnx_known_is_constant(const onnx_import *im, const onnx_known *known) {
    int64_t ignored;
    for (int64_t i = 0; i < known->count; i++)
        if (known->element[i].index && !tir_is_const(im->g->pool, known->element[i].index, &ignored)) return false;
    return true;
}

static bool constant_index(onnx_import *im, number n, int64_t *value) {
    return n.index && n.over == 1 && tir_is_const(im->g->pool, n.index, value);
}

/* Sets *value to n as a double; false: n depends on symbols. */
static bool constant_real(onnx_import *im, number n, double *value) {
    int64_t integer;
    if (!n.index)
        *value = n.number;
    else if (tir_is_const(im->g->pool, n.index, &integer))
        *value = (double)integer / (double)n.over;
    else
        return false;
    return true;
}

static graph_id make_element(onnx_import *im, dlc_dtype dtype, number n) {
    int64_t integer;
    double value;
    if (constant_index(im, n, &integer)) return graph_scalar_i64(im->g, dtype, integer);
    if (constant_real(im, n, &value)) return graph_scalar(im->g, dtype, value);
    graph_id id = graph_cast(im->g, graph_dimension(im->g, DLC_I64, n.index), dtype);
    return n.over == 1 ? id : graph_div(im->g, id, graph_scalar(im->g, dtype, (double)n.over));
}

static graph_id hold_known(onnx_import *im, const onnx_known *known, const void *elements) {
    graph_shape shape = {.dtype = known->dtype, .rank = known->rank};
    for (int d = 0; d < known->rank; d++) shape.dim[d] = tir_index(im->g->pool, known->dims[d]);
    return im->options->walk->hold(im->options->walk, im->g, &shape, elements);
}

graph_id onnx_make_known(onnx_import *im, const onnx_known *known) {
    graph *g = im->g;
    const size_t size = lib_dtype_size(known->dtype);
    char *bytes = lib_arena_array(g->arena, (size_t)known->count + 1, size);
    bool constant = true;
    for (int64_t i = 0; i < known->count; i++) {
        int64_t integer;
        double value;
        if (constant_index(im, known->element[i], &integer))
            lib_element_set_i64(known->dtype, bytes + (size_t)i * size, integer);
        else if (constant_real(im, known->element[i], &value))
            lib_element_set_f64(known->dtype, bytes + (size_t)i * size, value);
        else
            constant = false;
    }
    if (constant && known->varies && onnx_walks(im)) return hold_known(im, known, bytes);
    if (constant) return graph_literal(g, known->dtype, known->rank, known->dims, bytes);
    if (known->rank == 0) return make_element(im, known->dtype, known->element[0]);
    graph_id *parts = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)known->count + 1);
    tir_expr dims[DLC_MAX_RANK], one = tir_index(g->pool, 1);
    for (int64_t i = 0; i < known->count; i++)
        parts[i] = graph_reshape(g, make_element(im, known->dtype, known->element[i]), 1, &one);
    for (int d = 0; d < known->rank; d++) dims[d] = tir_index(g->pool, known->dims[d]);
    const graph_id list = known->count == 1 ? parts[0] : graph_concat(g, (int)known->count, parts, 0);
    return known->rank == 1 ? list : graph_reshape(g, list, known->rank, dims);
}

/* ---- arithmetic on elements: false if the result is not known for all sizes --------------------------------------- */

/* Sets *numerator and *over, a power of two of at most 2^20, so that value is exactly their quotient; false: there are none. */
static bool as_fraction(double value, int64_t *numerator, int64_t *over) {
    for (*over = 1; *over <= 1 << 20; *over *= 2) {
        const double scaled = value * (double)*over;
        if (fabs(scaled) > 0x1p40) return false;
        if (scaled == nearbyint(scaled)) {
            *numerator = (int64_t)scaled;
            return true;
        }
    }
    return false;
}

static bool to_fraction(onnx_import *im, number *n) {
    int64_t numerator, over;
    if (n->index) return true;
    if (!isfinite(n->number) || !as_fraction(n->number, &numerator, &over)) return false;
    *n = (number){tir_index(im->g->pool, numerator), over, 0};
    return true;
}

static bool is_natural(onnx_import *im, tir_expr index) {
    return tir_range(im->g->pool, index).low >= 0;
}

bool onnx_assume(onnx_import *im, tir_expr index, int64_t low, int64_t high) {
    tir_pool *p = im->g->pool;
    const tir_interval range = tir_range(p, index);
    tir_expr within = index;
    if (range.low < low) within = tir_max(p, within, tir_index(p, low));
    if (range.high > high) within = tir_min(p, within, tir_index(p, high));
    if (within == index) return true;
    if (tir_equal(p, within, index) == TIR_NO) return false;
    lib_text text;
    lib_text_init(&text, im->g->arena);
    tir_describe_expr(&text, p, index);
    if (range.low < low) lib_text_format(&text, " >= %lld", (long long)low);
    if (range.high > high) lib_text_format(&text, "%s <= %lld", range.low < low ? " and" : "", (long long)high);
    graph_require_equal(im->g, within, index, "node %zu (%s) is imported for sizes where %s", im->node_index,
                        onnx_shown(im->g->arena, im->node->operator), text.data);
    return true;
}

/* Do the elements of the integer dtype hold the index expression without wrapping? Assumed except that a difference that may be negative does
 * not become an unsigned number. */
static bool fits(onnx_import *im, dlc_dtype dtype, tir_expr index) {
    const int bits = lib_dtypes[dtype].bits;
    const bool natural = lib_dtypes[dtype].class_ == 'u';
    if (natural && !is_natural(im, index)) return false;
    if (bits == 64) return true;
    const int64_t high = natural ? (INT64_C(1) << bits) - 1 : (INT64_C(1) << (bits - 1)) - 1;
    return onnx_assume(im, index, natural ? 0 : -high - 1, high);
}

/* Is the element, of a float type, exactly index / over, no rounded quotient? */
static bool is_exact(onnx_import *im, dlc_dtype dtype, number n) {
    const int64_t most = INT64_C(1) << lib_float_of(dtype).digits;
    return (n.over & (n.over - 1)) == 0 && onnx_assume(im, n.index, -most, most);
}

/* Lies the element, a float, between the same integers as index / over, or is it the same integer? Quotients whose numerator and denominator have a bit
 * less than the type has digits are not rounded to integers that they are not. */
static bool has_same_floor(onnx_import *im, dlc_dtype dtype, number n) {
    const int64_t most = INT64_C(1) << (lib_float_of(dtype).digits - 1);
    if ((n.over & (n.over - 1)) == 0) return is_exact(im, dtype, n);
    return n.over <= most && onnx_assume(im, n.index, -most, most);
}

static number reduced(onnx_import *im, tir_expr index, int64_t over) {
    while (over > 1 && over % 2 == 0 && tir_multiple_of(im->g->pool, index) % 2 == 0) {
        index = tir_div(im->g->pool, index, tir_index(im->g->pool, 2));
        over /= 2;
    }
    return (number){index, over, 0};
}

typedef enum operation { ADD, SUB, MUL, DIV, MOD, MIN, MAX } operation;

static bool real_operation(dlc_dtype dtype, operation op, double a, double b, number *y) {
    double r;
    switch (op) {
    case ADD: r = a + b; break;
    case SUB: r = a - b; break;
    case MUL: r = a * b; break;
    case DIV: r = a / b; break;
    case MIN: r = isnan(a) || a < b || (a == b && signbit(a)) ? a : b; break; /* -0 lies below 0 */
    case MAX: r = isnan(a) || a > b || (a == b && signbit(b)) ? a : b; break;
    default: return false;
    }
    *y = real(dtype == DLC_F32 ? (double)(float)r : r);
    return true;
}

/* Sets *y to the value wrapped to the integer dtype; false: a u64 beyond i64. */
static bool wrapped(onnx_import *im, dlc_dtype dtype, int64_t value, number *y) {
    uint64_t element = 0;
    lib_element_set_i64(dtype, &element, value);
    *y = whole(im, lib_element_get_i64(dtype, &element));
    return dtype != DLC_U64 || value >= 0;
}

static bool integer_operation(operation op, int64_t a, int64_t b, int64_t *y) {
    switch (op) {
    case ADD: return !__builtin_add_overflow(a, b, y);
    case SUB: return !__builtin_sub_overflow(a, b, y);
    case MUL: return !__builtin_mul_overflow(a, b, y);
    case DIV: return b != 0 && !(b == -1 && a == INT64_MIN) && (*y = a / b, true);
    case MOD: return b != 0 && b != -1 && (*y = a % b + ((a % b != 0) && ((a % b < 0) != (b < 0)) ? b : 0), true);
    case MIN: return *y = a < b ? a : b, true;
    case MAX: return *y = a > b ? a : b, true;
    }
    return false;
}

static bool fraction_operation(onnx_import *im, operation op, number a, number b, number *y) {
    tir_pool *p = im->g->pool;
    int64_t factor;
    switch (op) {
    case ADD:
    case SUB:
        if (a.over != b.over) {
            a.index = tir_mul(p, a.index, tir_index(p, b.over)), b.index = tir_mul(p, b.index, tir_index(p, a.over));
            a.over *= b.over;
        }
        *y = reduced(im, op == ADD ? tir_add(p, a.index, b.index) : tir_sub(p, a.index, b.index), a.over);
        return y->over < INT64_C(1) << 30;
    case MUL:
        *y = reduced(im, tir_mul(p, a.index, b.index), a.over * b.over);
        return a.over * b.over < INT64_C(1) << 30;
    case DIV: /* of floats, by a number above 0 */
        if (!tir_is_const(p, b.index, &factor) || factor <= 0 || factor > 1 << 20) return false;
        *y = reduced(im, tir_mul(p, a.index, tir_index(p, b.over)), a.over * factor);
        return a.over * factor < INT64_C(1) << 30;
    case MIN:
    case MAX:
        if (a.over != 1 || b.over != 1) return false;
        *y = (number){op == MIN ? tir_min(p, a.index, b.index) : tir_max(p, a.index, b.index), 1, 0};
        return true;
    default: return false;
    }
}

/* DIV or MOD of an index expression by a number. */
static bool division(onnx_import *im, operation op, number a, number b, number *y) {
    tir_pool *p = im->g->pool;
    int64_t z;
    if (!constant_index(im, b, &z) || z <= 0) return false;
    /* ONNX truncates quotients, index expressions round down: both agree if the dividend is not negative, or a multiple of the divisor. */
    if (op == DIV && !is_natural(im, a.index) && tir_multiple_of(p, a.index) % z != 0) return false;
    *y = (number){op == DIV ? tir_div(p, a.index, b.index) : tir_rem(p, a.index, b.index), 1, 0};
    return true;
}

static bool operate(onnx_import *im, dlc_dtype dtype, operation op, number a, number b, number *y) {
    const bool is_float = lib_dtype_is_float(dtype);
    int64_t x, z, r;
    double u, v;
    if (is_float && constant_real(im, a, &u) && constant_real(im, b, &v)) return real_operation(dtype, op, u, v, y);
    if (!is_float && constant_index(im, a, &x) && constant_index(im, b, &z))
        return integer_operation(op, x, z, &r) && wrapped(im, dtype, r, y);
    if (!to_fraction(im, &a) || !to_fraction(im, &b)) return false;
    if (is_float) return is_exact(im, dtype, a) && is_exact(im, dtype, b) && fraction_operation(im, op, a, b, y);
    if (op == DIV || op == MOD) return division(im, op, a, b, y);
    return fraction_operation(im, op, a, b, y) && (op == MIN || op == MAX || fits(im, dtype, y->index));
}

typedef enum comparison { EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL } comparison;

/* dtype: of both. */
static bool compare(onnx_import *im, dlc_dtype dtype, comparison op, number a, number b, number *y) {
    tir_pool *p = im->g->pool;
    double u, v;
    tir_truth truth;
    if (constant_real(im, a, &u) && constant_real(im, b, &v)) {
        *y = whole(im, op == EQUAL        ? u == v
                       : op == LESS       ? u < v
                       : op == LESS_EQUAL ? u <= v
                       : op == GREATER    ? u > v
                                          : u >= v);
        return true;
    }
    if (!to_fraction(im, &a) || !to_fraction(im, &b)) return false;
    if (lib_dtype_is_float(dtype) && !(is_exact(im, dtype, a) && is_exact(im, dtype, b))) return false;
    if (a.over != b.over)
        a.index = tir_mul(p, a.index, tir_index(p, b.over)), b.index = tir_mul(p, b.index, tir_index(p, a.over));
    if (op == EQUAL)
        truth = tir_equal(p, a.index, b.index);
    else if (op == LESS || op == LESS_EQUAL)
        truth = tir_prove(p, op == LESS ? tir_lt(p, a.index, b.index) : tir_le(p, a.index, b.index));
    else
        truth = tir_prove(p, op == GREATER ? tir_lt(p, b.index, a.index) : tir_le(p, b.index, a.index));
    if (truth == TIR_UNKNOWN) return false;
    *y = whole(im, truth == TIR_YES);
    return true;
}

static bool cast(onnx_import *im, dlc_dtype from, dlc_dtype to, number a, number *y) {
    int64_t integer;
    double value;
    if (to == DLC_BOOL) {
        if (!compare(im, from, EQUAL, a, whole(im, 0), y)) return false;
        return constant_index(im, *y, &integer) && (*y = whole(im, !integer), true);
    }
    if (lib_dtype_is_float(to)) {
        if (!a.index)
            a.number = to == DLC_F32 ? (double)(float)a.number : a.number;
        else if (constant_real(im, a, &value))
            a = real(to == DLC_F32 ? (double)(float)value : value);
        else if (lib_dtype_is_float(from) && from != to && !is_exact(im, from, a))
            return false;
        *y = a;
        return true;
    }
    if (constant_real(im, a, &value)) {
        uint64_t element = 0;
        if (a.index && a.over == 1 && tir_is_const(im->g->pool, a.index, &integer))
            lib_element_set_i64(to, &element, integer);
        else
            lib_element_set_f64(to, &element, value);
        *y = whole(im, lib_element_get_i64(to, &element));
        return true;
    }
    if (lib_dtype_is_float(from) && !has_same_floor(im, from, a)) return false;
    if (a.over != 1 && !is_natural(im, a.index)) return false;
    *y = (number){a.over == 1 ? a.index : tir_div(im->g->pool, a.index, tir_index(im->g->pool, a.over)), 1, 0};
    return fits(im, to, y->index);
}

/* ---- operators ------------------------------------------------------------------------------------------------------ */

/* The row-major position in the operand, which is broadcast to the result, of the element for the result's element `at`. */
static int64_t place_of(const onnx_known *operand, const onnx_known *result, int64_t at) {
    int64_t place = 0, stride = 1;
    for (int d = result->rank - 1, k = operand->rank - 1; k >= 0; d--, k--) {
        const int64_t index = at % result->dims[d];
        at /= result->dims[d];
        if (operand->dims[k] != 1) place += index * stride;
        stride *= operand->dims[k];
    }
    return place;
}

/* A new known value, still without elements, of the shape to which the operands broadcast. NULL: they do not broadcast, or it would have
 * too many elements. */
static onnx_known *broadcast_of(onnx_import *im, dlc_dtype dtype, int count, const onnx_known *const *operand) {
    int64_t dims[DLC_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < count; i++) rank = operand[i]->rank > rank ? operand[i]->rank : rank;
    for (int d = 0; d < rank; d++) {
        dims[d] = 1;
        for (int i = 0; i < count; i++) {
            const int k = d - (rank - operand[i]->rank);
            const int64_t extent = k < 0 ? 1 : operand[i]->dims[k];
            if (extent != 1 && dims[d] != 1 && extent != dims[d]) return NULL;
            if (extent != 1) dims[d] = extent;
        }
    }
    if (onnx_count((size_t)rank, dims, known_max(im)) < 0) return NULL;
    return onnx_known_new(im, dtype, rank, dims);
}

static const onnx_known *elementwise(onnx_import *im, int op, bool compares) {
    const onnx_known *operand[2] = {onnx_operand_known(im, 0), onnx_operand_known(im, 1)};
    if (!operand[0] || !operand[1] || operand[0]->dtype != operand[1]->dtype) return NULL;
    onnx_known *y = broadcast_of(im, compares ? DLC_BOOL : operand[0]->dtype, 2, operand);
    for (int64_t i = 0; y && i < y->count; i++) {
        const number a = operand[0]->element[place_of(operand[0], y, i)],
                     b = operand[1]->element[place_of(operand[1], y, i)];
        if (!(compares ? compare(im, operand[0]->dtype, (comparison)op, a, b, &y->element[i])
                       : operate(im, y->dtype, (operation)op, a, b, &y->element[i])))
            return NULL;
    }
    return y;
}

static const onnx_known *reshaped(onnx_import *im, const onnx_known *x, int rank, const int64_t *dims) {
    onnx_known *y = onnx_known_new(im, x->dtype, rank, dims);
    if (y->count != x->count) return NULL;
    y->element = x->element;
    return y;
}

static bool fold_shape(onnx_import *im) {
    const graph_shape shape = onnx_operand_shape(im, 0);
    int64_t start = onnx_int(im, "start", 0), end = onnx_int(im, "end", shape.rank);
    start += start < 0 ? shape.rank : 0, end += end < 0 ? shape.rank : 0;
    start = start < 0            ? 0
            : start > shape.rank ? shape.rank
                                 : start,
    end = end < start        ? start
          : end > shape.rank ? shape.rank
                             : end;
    onnx_give_known(im, 0, onnx_known_of_dims(im, (int)(end - start), shape.dim + start));
    return true;
}

static bool fold_size(onnx_import *im) {
    const graph_shape shape = onnx_operand_shape(im, 0);
    onnx_known *y = onnx_known_new(im, DLC_I64, 0, NULL);
    y->element[0] = whole(im, 1);
    for (int d = 0; d < shape.rank; d++) y->element[0].index = tir_mul(im->g->pool, y->element[0].index, shape.dim[d]);
    onnx_give_known(im, 0, y);
    return true;
}

static bool fold_constant(onnx_import *im) {
    const onnx_attribute *a = onnx_attribute_find(im, "value", ONNX_ATTRIBUTE_TENSOR);
    int count;
    const onnx_attribute *sparse = onnx_attribute_find(im, "sparse_value", ONNX_ATTRIBUTE_SPARSE);
    if (a || sparse) {
        if (onnx_wants(im, 0)) im->result[0]->stored = a ? a->t : sparse->sparse->dense;
        return true;
    }
    onnx_known *y = NULL;
    const onnx_attribute *scalar = onnx_attribute_find(im, "value_int", ONNX_ATTRIBUTE_INT);
    if (scalar) y = onnx_known_new(im, DLC_I64, 0, NULL), y->element[0] = whole(im, scalar->i);
    scalar = onnx_attribute_find(im, "value_float", ONNX_ATTRIBUTE_FLOAT);
    if (scalar) y = onnx_known_new(im, DLC_F32, 0, NULL), y->element[0] = real((double)scalar->f);
    const int64_t *integers = onnx_ints(im, "value_ints", &count);
    if (integers) y = onnx_known_new(im, DLC_I64, 1, (int64_t[]){count});
    for (int i = 0; integers && i < count; i++) y->element[i] = whole(im, integers[i]);
    const float *floats = onnx_floats(im, "value_floats", &count);
    if (floats) y = onnx_known_new(im, DLC_F32, 1, (int64_t[]){count});
    for (int i = 0; floats && i < count; i++) y->element[i] = real((double)floats[i]);
    if (!y && onnx_give_text(im)) return true;
    if (!y) onnx_fail(im, DLC_PARSE_ERROR, "a constant without a value");
    onnx_give_known(im, 0, y);
    return true;
}

static const onnx_known *fold_cast(onnx_import *im) {
    const onnx_known *x = onnx_operand_known(im, 0);
    if (im->opset < 6 || onnx_casts_text(im, (int32_t)onnx_int(im, "to", 1))) return NULL;
    const dlc_dtype to = onnx_dtype_attribute(im, "to", DLC_F32);
    onnx_ignore(im, "saturate"), onnx_ignore(im, "round_mode");
    if (!x || !onnx_is_followed(to)) return NULL;
    onnx_known *y = onnx_known_new(im, to, x->rank, x->dims);
    for (int64_t i = 0; i < x->count; i++)
        if (!cast(im, x->dtype, to, x->element[i], &y->element[i])) return NULL;
    return y;
}

/* The absolute value, of an element that is no float of known value. */
static bool absolute(onnx_import *im, dlc_dtype dtype, number a, number *y) {
    int64_t integer;
    if (constant_index(im, a, &integer) && integer < 0) return operate(im, dtype, SUB, whole(im, 0), a, y);
    if (!a.index || !is_natural(im, a.index)) return false;
    *y = a;
    return true;
}

/* op: 'n' Neg, '!' Not, 'a' Abs, 'f' Floor, 'c' Ceil. */
static bool unary(onnx_import *im, dlc_dtype dtype, int op, number a, number *y) {
    double value;
    int64_t integer;
    if (op == 'n') /* -0 - 0 is -0 */
        return operate(im, dtype, SUB, lib_dtype_is_float(dtype) ? real(-0.0) : whole(im, 0), a, y);
    if (op == '!') {
        if (!constant_index(im, a, &integer)) return false;
        *y = whole(im, !integer);
    } else if (lib_dtype_is_float(dtype) && constant_real(im, a, &value)) {
        *y = real(op == 'f' ? floor(value) : op == 'c' ? ceil(value) : fabs(value));
    } else if (op == 'a') {
        return absolute(im, dtype, a, y);
    } else {
        const tir_expr over = tir_index(im->g->pool, a.over);
        if (!has_same_floor(im, dtype, a)) return false;
        *y = (number){op == 'f' ? tir_div(im->g->pool, a.index, over) : tir_ceil_div(im->g->pool, a.index, over), 1, 0};
    }
    return true;
}

static const onnx_known *fold_unary(onnx_import *im, int op) {
    const onnx_known *x = onnx_operand_known(im, 0);
    if (!x) return NULL;
    onnx_known *y = onnx_known_new(im, x->dtype, x->rank, x->dims);
    for (int64_t i = 0; i < x->count; i++)
        if (!unary(im, x->dtype, op, x->element[i], &y->element[i])) return NULL;
    return y;
}

static const onnx_known *fold_gather(onnx_import *im) {
    const onnx_known *x = onnx_operand_known(im, 0), *at = onnx_operand_known(im, 1);
    if (!x || !at || x->rank != 1 || at->count > known_max(im)) return NULL;
    onnx_axis(im, onnx_int(im, "axis", 0), 1, false);
    onnx_known *y = onnx_known_new(im, x->dtype, at->rank, at->dims);
    for (int64_t i = 0; i < at->count; i++) {
        int64_t index;
        if (!constant_index(im, at->element[i], &index)) return NULL;
        index += index < 0 ? x->count : 0;
        if (index < 0 || index >= x->count)
            onnx_fail(im, DLC_PARSE_ERROR, "index %lld of a list of %lld", (long long)index, (long long)x->count);
        y->element[i] = x->element[index];
    }
    return y;
}

static const onnx_known *fold_concat(onnx_import *im) {
    int64_t count = 0;
    const onnx_known *first = onnx_operand_known(im, 0);
    for (size_t i = 0; i < onnx_operands(im); i++) {
        const onnx_known *x = onnx_operand_known(im, i);
        if (!x || x->rank != 1 || x->dtype != first->dtype) return NULL;
        count += x->count;
    }
    if (!first || count > known_max(im)) return NULL;
    onnx_axis(im, onnx_int(im, "axis", 0), 1, false);
    onnx_known *y = onnx_known_new(im, first->dtype, 1, &count);
    int64_t at = 0;
    for (size_t i = 0; i < onnx_operands(im); i++) {
        const onnx_known *x = onnx_operand_known(im, i);
        for (int64_t k = 0; k < x->count; k++) y->element[at++] = x->element[k];
    }
    return y;
}

static const onnx_known *fold_where(onnx_import *im) {
    const onnx_known *operand[3] = {onnx_operand_known(im, 0), onnx_operand_known(im, 1), onnx_operand_known(im, 2)};
    if (!operand[0] || !operand[1] || !operand[2] || operand[1]->dtype != operand[2]->dtype) return NULL;
    onnx_known *y = broadcast_of(im, operand[1]->dtype, 3, operand);
    for (int64_t i = 0; y && i < y->count; i++) {
        int64_t condition;
        if (!constant_index(im, operand[0]->element[place_of(operand[0], y, i)], &condition)) return NULL;
        const onnx_known *from = operand[condition ? 1 : 2];
        y->element[i] = from->element[place_of(from, y, i)];
    }
    return y;
}

/* A start or end of Slice as a position in low..high of an axis of n elements. */
static int64_t clamp_index(int64_t index, int64_t n, int64_t low, int64_t high) {
    index += index < 0 ? n : 0;
    return index > high ? high : index < low ? low : index;
}

/* Sets list[] and count[] to the starts, ends, axes and steps of Slice; false: they are not known as numbers. */
static bool slice_numbers(onnx_import *im, const int64_t **list, int *count) {
    if (im->opset < 10) {
        list[0] = onnx_ints(im, "starts", &count[0]), list[1] = onnx_ints(im, "ends", &count[1]),
        list[2] = onnx_ints(im, "axes", &count[2]);
        return true;
    }
    for (size_t i = 1; i < onnx_operands(im); i++)
        if (onnx_has(im, i) && !onnx_operand_is_constant(im, i)) return false;
    for (size_t i = 1; i <= 4; i++)
        if (onnx_has(im, i)) list[i - 1] = onnx_operand_integers(im, i, &count[i - 1]);
    return true;
}

/* The known value of shape dims[rank] whose element at an index is x's element number first + sum of index[d] * stride[d]. */
static const onnx_known *strided(onnx_import *im, const onnx_known *x, int rank, const int64_t *dims, int64_t first,
                                 const int64_t *stride) {
    onnx_known *y = onnx_known_new(im, x->dtype, rank, dims);
    for (int64_t i = 0; i < y->count; i++) {
        int64_t at = i, place = first;
        for (int d = rank - 1; d >= 0; d--) place += at % dims[d] * stride[d], at /= dims[d];
        y->element[i] = x->element[place];
    }
    return y;
}

static const onnx_known *fold_slice(onnx_import *im) {
    const onnx_known *x = onnx_operand_known(im, 0);
    const int64_t *list[4] = {NULL};
    int64_t dims[DLC_MAX_RANK], stride[DLC_MAX_RANK], first = 0, size = 1;
    int count[4] = {0};
    if (!x || !slice_numbers(im, list, count) || count[0] != count[1] || (list[2] && count[2] != count[0]) ||
        (list[3] && count[3] != count[0]))
        return NULL;
    for (int d = x->rank - 1; d >= 0; d--) dims[d] = x->dims[d], stride[d] = size, size *= x->dims[d];
    const int64_t *axes = onnx_axis_list(im, list[2], count[0], x->rank);
    for (int i = 0; i < count[0]; i++) {
        const int64_t axis = axes[i];
        const int64_t step = list[3] ? list[3][i] : 1;
        if (step == 0 || step <= INT32_MIN || step > INT32_MAX)
            onnx_fail(im, DLC_PARSE_ERROR, "a step of %lld", (long long)step);
        const int64_t n = x->dims[axis], high = step < 0 ? n - 1 : n;
        const int64_t start = clamp_index(list[0][i], n, n ? 0 : high, high),
                      stop = clamp_index(list[1][i], n, step < 0 ? -1 : 0, high);
        const int64_t taken = step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
        dims[axis] = taken < 0 ? 0 : taken;
        first += start * stride[axis];
        stride[axis] *= step;
    }
    return strided(im, x, x->rank, dims, first, stride);
}

static const onnx_known *fold_transpose(onnx_import *im) {
    const onnx_known *x = onnx_operand_known(im, 0);
    int64_t dims[DLC_MAX_RANK], stride[DLC_MAX_RANK], own[DLC_MAX_RANK], size = 1;
    int count;
    const int64_t *permutation = onnx_ints(im, "perm", &count);
    if (!x || (permutation && count != x->rank)) return NULL;
    for (int d = x->rank - 1; d >= 0; d--) own[d] = size, size *= x->dims[d];
    if (permutation) permutation = onnx_axis_list(im, permutation, count, x->rank);
    for (int d = 0; d < x->rank; d++) {
        const int64_t from = permutation ? permutation[d] : x->rank - 1 - d;
        dims[d] = x->dims[from], stride[d] = own[from];
    }
    return strided(im, x, x->rank, dims, 0, stride);
}

/* Folds Reshape of a known value. NULL: an operand is not known, or this form of the operator is not folded. */
static const onnx_known *fold_reshape(onnx_import *im, const onnx_known *x) {
    int rank = 0;
    int64_t dims[DLC_MAX_RANK] = {0};
    if (im->opset < 5 || !onnx_operand_is_constant(im, 1)) return NULL;
    const int64_t *to = onnx_operand_integers(im, 1, &rank);
    int64_t left = x->count;
    int open = -1;
    if (rank > DLC_MAX_RANK || onnx_int(im, "allowzero", 0)) return NULL;
    for (int d = 0; d < rank; d++) {
        dims[d] = to[d] == 0 && d < x->rank ? x->dims[d] : to[d];
        if (to[d] == -1 && open < 0)
            open = d;
        else if (dims[d] > 0 && left % dims[d] == 0)
            left /= dims[d];
        else
            return NULL;
    }
    if (open >= 0) dims[open] = left;
    return reshaped(im, x, rank, dims);
}

/* The axes of Squeeze or Unsqueeze, since opset 13 an operand. NULL: none are given. */
static const int64_t *axes_of(onnx_import *im, int *count) {
    if (im->opset < 13) return onnx_ints(im, "axes", count);
    return onnx_has(im, 1) ? onnx_operand_integers(im, 1, count) : NULL;
}

/* Folds Squeeze or Unsqueeze of a known value. NULL: as for Reshape. */
static const onnx_known *fold_squeeze(onnx_import *im, const onnx_known *x) {
    int count = 0, rank = 0;
    int64_t dims[DLC_MAX_RANK] = {0};
    const bool squeeze = onnx_is(im->node->operator, "Squeeze");
    if (im->opset >= 13 && onnx_has(im, 1) && !onnx_operand_is_constant(im, 1)) return NULL;
    const int64_t *axes = axes_of(im, &count);
    const int out = squeeze ? x->rank : x->rank + count;
    uint32_t named = 0;
    int from = 0;
    if (out > DLC_MAX_RANK) return NULL;
    if (axes) axes = onnx_axis_list(im, axes, count, out);
    for (int i = 0; i < count; i++) named |= 1u << axes[i];
    for (int d = 0; d < out; d++) {
        if (squeeze) {
            const bool goes = count ? named >> d & 1 : x->dims[d] == 1;
            if (goes && x->dims[d] != 1) return NULL;
            if (!goes) dims[rank++] = x->dims[d];
        } else
            dims[rank++] = named >> d & 1 ? 1 : x->dims[from++];
    }
    return reshaped(im, x, rank, dims);
}

/* Folds Identity, Reshape, Squeeze or Unsqueeze (callers pass no other operator) of a known value: the same elements, other dimensions.
 * NULL: an operand is not known, or this form of the operator is not folded. */
static const onnx_known *fold_structure(onnx_import *im) {
    const onnx_known *x = onnx_operand_known(im, 0);
    if (!x) return NULL;
    if (onnx_is(im->node->operator, "Identity")) return x;
    return onnx_is(im->node->operator, "Reshape") ? fold_reshape(im, x) : fold_squeeze(im, x);
}

static const onnx_known *fold_reduce(onnx_import *im, int op) {
    const onnx_known *x = onnx_operand_known(im, 0);
    if (!x || x->rank > 1 || x->count == 0 || (onnx_has(im, 1) && !onnx_operand_is_constant(im, 1))) return NULL;
    const bool keep = onnx_int(im, "keepdims", 1);
    int ignored;
    if (onnx_int(im, "noop_with_empty_axes", 0)) return NULL;
    onnx_axes(im, onnx_is(im->node->operator, "ReduceSum") ? 13 : 18, 1, x->rank, &ignored);
    onnx_known *y = onnx_known_new(im, x->dtype, keep ? x->rank : 0, (int64_t[]){1});
    const bool is_float_sum = op == ADD && lib_dtype_is_float(x->dtype); /* which begins with 0: that of -0 is 0 */
    y->element[0] = is_float_sum ? real(0) : x->element[0];
    for (int64_t i = is_float_sum ? 0 : 1; i < x->count; i++)
        if (!operate(im, x->dtype, (operation)op, y->element[0], x->element[i], &y->element[0])) return NULL;
    return y;
}

static bool is_small(int64_t value) {
    return value <= 1 << 20 && value >= -(1 << 20);
}

static const onnx_known *fold_range(onnx_import *im) {
    int64_t start, limit, step;
    const onnx_known *a = onnx_operand_known(im, 0), *b = onnx_operand_known(im, 1), *c = onnx_operand_known(im, 2);
    if (!a || !b || !c || lib_dtype_is_float(a->dtype) || !constant_index(im, a->element[0], &start) ||
        !constant_index(im, b->element[0], &limit) || !constant_index(im, c->element[0], &step) || step == 0)
        return NULL;
    if (!is_small(limit) || !is_small(start)) return NULL;
    const int64_t span = limit - start, toward = step > 0 ? 1 : -1;
    const int64_t count = span * toward > 0 ? (span - toward) / step + 1 : 0;
    if (count > known_max(im)) return NULL;
    onnx_known *y = onnx_known_new(im, a->dtype, 1, &count);
    for (int64_t i = 0; i < count; i++) y->element[i] = whole(im, start + i * step);
    return y;
}

static const onnx_known *fold_constant_of_shape(onnx_import *im) {
    int rank = 0;
    const onnx_attribute *a = onnx_attribute_find(im, "value", ONNX_ATTRIBUTE_TENSOR);
    const onnx_known *value = a ? onnx_known_of_tensor(im, a->t) : NULL;
    if (!onnx_operand_is_constant(im, 0) || (a && (!value || value->count != 1))) return NULL;
    const int64_t *dims = onnx_operand_integers(im, 0, &rank);
    if (rank > DLC_MAX_RANK || onnx_count((size_t)rank, dims, known_max(im)) < 0) return NULL;
    onnx_known *y = onnx_known_new(im, value ? value->dtype : DLC_F32, rank, dims);
    for (int64_t i = 0; i < y->count; i++) y->element[i] = value ? value->element[0] : real(0);
    return y;
}

static const onnx_known *fold_expand(onnx_import *im) {
    const onnx_known *x = onnx_operand_known(im, 0);
    int rank = 0;
    if (!x || !onnx_operand_is_constant(im, 1)) return NULL;
    const int64_t *dims = onnx_operand_integers(im, 1, &rank);
    if (rank > DLC_MAX_RANK) return NULL;
    onnx_known shape = {.rank = rank};
    for (int d = 0; d < rank; d++) {
        if (dims[d] < 0) return NULL;
        shape.dims[d] = dims[d];
    }
    onnx_known *y = broadcast_of(im, x->dtype, 2, (const onnx_known *[]){x, &shape});
    for (int64_t i = 0; y && i < y->count; i++) y->element[i] = x->element[place_of(x, y, i)];
    return y;
}

static const onnx_known *fold_arithmetic(onnx_import *im, int op) {
    return onnx_operands(im) == 2 && im->opset >= 7 ? elementwise(im, op, false) : NULL;
}

static const onnx_known *fold_mod(onnx_import *im) {
    return onnx_int(im, "fmod", 0) ? NULL : elementwise(im, MOD, false);
}

static const onnx_known *fold_comparison(onnx_import *im, int op) {
    return onnx_operands(im) == 2 && im->opset >= 7 ? elementwise(im, op, true) : NULL;
}

/* An operator that is folded, by plain(im) or by of(im, op). */
static const struct folding {
    const char *name;
    const onnx_known *(*plain)(onnx_import *im);
    const onnx_known *(*of)(onnx_import *im, int op);
    int op;
} foldings[] = {
    {"Abs", NULL, fold_unary, 'a'},
    {"Add", NULL, fold_arithmetic, ADD},
    {"And", NULL, fold_arithmetic, MIN}, /* of bools */
    {"Cast", fold_cast, NULL, 0},
    {"Ceil", NULL, fold_unary, 'c'},
    {"Concat", fold_concat, NULL, 0},
    {"ConstantOfShape", fold_constant_of_shape, NULL, 0},
    {"Div", NULL, fold_arithmetic, DIV},
    {"Equal", NULL, fold_comparison, EQUAL},
    {"Expand", fold_expand, NULL, 0},
    {"Floor", NULL, fold_unary, 'f'},
    {"Gather", fold_gather, NULL, 0},
    {"Greater", NULL, fold_comparison, GREATER},
    {"GreaterOrEqual", NULL, fold_comparison, GREATER_EQUAL},
    {"Identity", fold_structure, NULL, 0},
    {"Less", NULL, fold_comparison, LESS},
    {"LessOrEqual", NULL, fold_comparison, LESS_EQUAL},
    {"Max", NULL, fold_arithmetic, MAX},
    {"Min", NULL, fold_arithmetic, MIN},
    {"Mod", fold_mod, NULL, 0},
    {"Mul", NULL, fold_arithmetic, MUL},
    {"Neg", NULL, fold_unary, 'n'},
    {"Not", NULL, fold_unary, '!'},
    {"Or", NULL, fold_arithmetic, MAX},
    {"Range", fold_range, NULL, 0},
    {"ReduceMax", NULL, fold_reduce, MAX},
    {"ReduceMin", NULL, fold_reduce, MIN},
    {"ReduceProd", NULL, fold_reduce, MUL},
    {"ReduceSum", NULL, fold_reduce, ADD},
    {"Reshape", fold_structure, NULL, 0},
    {"Slice", fold_slice, NULL, 0},
    {"Squeeze", fold_structure, NULL, 0},
    {"Sub", NULL, fold_arithmetic, SUB},
    {"Transpose", fold_transpose, NULL, 0},
    {"Unsqueeze", fold_structure, NULL, 0},
    {"Where", fold_where, NULL, 0},
};

static bool fold(onnx_import *im) {
    if (im->node->domain.size && !onnx_is(im->node->domain, "ai.onnx")) return false;
    if (onnx_is(im->node->operator, "Shape")) return fold_shape(im);
    if (onnx_is(im->node->operator, "Size")) return fold_size(im);
    if (onnx_is(im->node->operator, "Constant")) return fold_constant(im);
    for (size_t i = 0; i < sizeof foldings / sizeof foldings[0]; i++) {
        const struct folding *by = &foldings[i];
        if (!onnx_is(im->node->operator, by->name)) continue;
        const uint64_t asked = im->asked;
        const onnx_known *y = !onnx_has(im, 0) ? NULL : by->plain ? by->plain(im) : by->of(im, by->op);
        im->asked = y ? im->asked : asked;
        if (y) onnx_give_known(im, 0, y);
        return y != NULL;
    }
    return false;
}

bool onnx_fold(onnx_import *im) {
    const bool folded = fold(im);
    if (folded && onnx_walks(im) && onnx_wants(im, 0)) onnx_vary_result(im);
    return folded;
}
