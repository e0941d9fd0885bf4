/* How far two legal computations of one graph may lie apart. Kernels may add up in another order, and with excess
 * precision leave out roundings; everything else is the same arithmetic everywhere. For each value of a bound graph: the
 * greatest absolute difference that order can cause, 0 where the bits must be the same. A value that hangs on an inexact
 * one by a jump (floor, comparison, index) has no bound and is not compared. */
#ifndef TEST_FUZZ_BOUNDS_H
#define TEST_FUZZ_BOUNDS_H

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/op.h"

#include <math.h>
#include <stdlib.h>

typedef struct bound {
    double error;     /* INFINITY: not compared */
    double magnitude; /* of the finite elements; INFINITY: unknown */
    bool special;     /* may hold NaN or infinities */
    bool integral;    /* integers so small that sums of them are exact in any order */
} bound;

typedef struct bound_row {
    const graph *g;
    const graph_node *node;
    const char *name;
    const bound *in; /* [inputs] */
    int inputs;
    const graph_shape *x, *y; /* first operand (NULL: none) and first result */
    bool excess;
} bound_row;

/* ---- helpers */

static inline double bound_largest(dlc_dtype dtype) {
    switch (dtype) {
    case DLC_BOOL: return 1;
    case DLC_I8: return 128;
    case DLC_U8: return 255;
    case DLC_I32: return 0x1p31;
    case DLC_I64: return 0x1p63;
    case DLC_I16: return 0x1p15;
    case DLC_U16: return 65535;
    case DLC_U32: return 0x1p32;
    case DLC_U64: return 0x1p64;
    case DLC_I4: return 8;
    case DLC_U4: return 15;
    case DLC_F8E4M3FN: return 448;
    case DLC_F8E4M3FNUZ: return 240;
    case DLC_F8E5M2:
    case DLC_F8E5M2FNUZ: return 57344;
    case DLC_F16: return 65504;
    case DLC_F64: return 0x1p1023;
    default: return 0x1p127;
    }
}

/* Relative distance of neighbouring numbers; of what 16-bit types are summed in, with `sums`. */
static inline double bound_epsilon(dlc_dtype dtype, bool sums) {
    if (dtype == DLC_F64) return 0x1p-52;
    if (dtype == DLC_F32 || sums) return 0x1p-23;
    if (dtype == DLC_F8E4M3FN || dtype == DLC_F8E4M3FNUZ) return 0x1p-3;
    if (dtype == DLC_F8E5M2 || dtype == DLC_F8E5M2FNUZ) return 0x1p-2;
    return dtype == DLC_F16 ? 0x1p-10 : 0x1p-7;
}

/* Distance of neighbouring numbers around zero. */
static inline double bound_least(dlc_dtype dtype) {
    switch (dtype) {
    case DLC_F16: return 0x1p-24;
    case DLC_F8E4M3FN: return 0x1p-9;
    case DLC_F8E4M3FNUZ: return 0x1p-10;
    case DLC_F8E5M2: return 0x1p-16;
    case DLC_F8E5M2FNUZ: return 0x1p-17;
    default: return 1e-40;
    }
}

static inline bool bound_is_narrow(dlc_dtype dtype) {
    return lib_dtype_is_float(dtype) && lib_dtypes[dtype].bits < 32;
}

enum { BOUND_COUNTED = 1000 }; /* at most, of a size that a run counts */

static inline int64_t bound_dim(const graph *g, const graph_shape *shape, int axis) {
    int64_t extent = BOUND_COUNTED;
    if (axis < 0) axis += shape->rank;
    if (axis < 0 || axis >= shape->rank) return 1;
    return tir_is_const(g->pool, shape->dim[axis], &extent) ? extent : BOUND_COUNTED;
}

static inline double bound_count(const graph *g, const graph_shape *shape) {
    double count = 1;
    for (int i = 0; i < shape->rank; i++) count *= (double)bound_dim(g, shape, i);
    return count;
}

static inline const graph_attribute *bound_attribute(const bound_row *r, const char *name) {
    int at = graph_op_attribute(r->node->op, name);
    return at < 0 ? NULL : &r->node->attribute[at];
}

static inline bool bound_is(const bound_row *r, const char *names) { /* a word of the list */
    size_t length = strlen(r->name);
    for (const char *at = strstr(names, r->name); at; at = strstr(at + 1, r->name))
        if ((at == names || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
    return false;
}

static inline const graph_shape *bound_operand(const bound_row *r, int i) {
    return graph_shape_of(r->g, r->node->input[i]);
}

/* Elements of operand 0 that make one element of the result of a reduction over `axes` (an empty list: all). */
static inline double bound_terms(const bound_row *r) {
    const graph_attribute *axes = bound_attribute(r, "axes");
    if (!axes || axes->count == 0) return bound_count(r->g, r->x);
    double terms = 1;
    for (int i = 0; i < axes->count; i++) terms *= (double)bound_dim(r->g, r->x, (int)axes->list[i]);
    return terms;
}

/* The widest of all operands. */
static inline bound bound_join(const bound_row *r) {
    bound all = {.integral = r->inputs > 0};
    for (int i = 0; i < r->inputs; i++) {
        if (!r->node->input[i]) continue;
        all.error = fmax(all.error, r->in[i].error);
        all.magnitude = fmax(all.magnitude, r->in[i].magnitude);
        all.special |= r->in[i].special;
        all.integral &= r->in[i].integral;
    }
    return all;
}

/* Sum of K products of magnitude m, each wrong by e, in any order: about sqrt(K) roundings of partial sums below K*m. */
static inline bound bound_sum(const bound_row *r, double terms, double m, double e, bool special, bool integral) {
    dlc_dtype dtype = r->y->dtype;
    bound y = {.magnitude = terms * m, .special = special};
    if (!lib_dtype_is_float(dtype)) {
        y.error = e > 0 ? INFINITY : 0;
        y.magnitude = bound_largest(dtype);
        return y;
    }
    double exact = dtype == DLC_F64 ? 0x1p53 : 0x1p24;
    y.integral =
        integral && y.magnitude <= exact && (!bound_is_narrow(dtype) || y.magnitude <= 2 / bound_epsilon(dtype, false));
    if (e == 0 && (terms <= 1 || (integral && y.magnitude <= exact))) return y;
    if (y.magnitude > bound_largest(dtype) / 4 || isnan(y.magnitude) || (e > 0 && special)) {
        y.error = INFINITY;
        return y;
    }
    y.error = terms * e + bound_epsilon(dtype, true) * 4 * (sqrt(terms) + 4) * y.magnitude + 1e-40;
    if (bound_is_narrow(dtype)) y.error += bound_epsilon(dtype, false) * y.magnitude + bound_least(dtype);
    return y;
}

/* ---- rows of class MAP, and activations */

static inline double bound_map_magnitude(const bound_row *r) {
    double a = r->in[0].magnitude, b = r->inputs > 1 ? r->in[1].magnitude : 0;
    if (bound_is(r, "eq ne lt le gt ge sign logistic tanh erf sin cos hard_sigmoid is_nan is_inf is_finite")) return 1;
    if (bound_is(r, "neg abs relu relu6 leaky_relu silu gelu hard_swish rem asinh normal_cdf")) return a;
    if (bound_is(r, "floor ceil round trunc elu softplus cbrt acosh")) return a + 1;
    if (bound_is(r, "asin acos atan atan2")) return 4;
    if (bound_is(r, "sinh cosh")) return exp(a);
    if (bound_is(r, "popcount")) return 64;
    if (bound_is(r, "add sub")) return a + b;
    if (bound_is(r, "mul")) return a * b;
    if (bound_is(r, "min max")) return fmax(a, b);
    if (bound_is(r, "clamp")) return fmax(fmax(a, b), r->in[2].magnitude);
    if (bound_is(r, "select")) return fmax(b, r->in[2].magnitude);
    if (bound_is(r, "exp expm1")) return exp(a);
    if (bound_is(r, "log log1p")) return fmax(a, 800);
    if (bound_is(r, "sqrt")) return fmax(sqrt(a), 1);
    if (bound_is(r, "cast")) return r->y->dtype == DLC_BOOL ? 1 : a;
    return INFINITY;
}

/* How far the result moves when operands do. */
static inline double bound_map_error(const bound_row *r) {
    double a = r->in[0].magnitude, e = r->in[0].error, b = 0, f = 0;
    if (r->inputs > 1) b = r->in[1].magnitude, f = r->in[1].error;
    if (bound_is(r, "neg abs sin cos tanh logistic relu relu6 leaky_relu hard_sigmoid softplus atan asinh")) return e;
    if (bound_is(r, "silu gelu")) return 1.2 * e;
    if (bound_is(r, "hard_swish")) return (1 + a / 3) * e;
    if (bound_is(r, "erf elu")) return 2 * e;
    if (bound_is(r, "add sub")) return e + f;
    if (bound_is(r, "mul")) return r->in[0].special || r->in[1].special ? INFINITY : a * f + b * e + e * f;
    if (bound_is(r, "min max")) return fmax(e, f);
    if (bound_is(r, "clamp")) return fmax(fmax(e, f), r->in[2].error);
    if (bound_is(r, "select")) return e > 0 ? INFINITY : fmax(f, r->in[2].error);
    if (bound_is(r, "exp expm1")) return e < 1 ? 2 * exp(a) * e : INFINITY;
    if (bound_is(r, "cast")) return lib_dtype_is_float(r->y->dtype) ? e : INFINITY;
    return INFINITY;
}

/* Functions are polynomials of fused multiply-adds; the interp target has those always. */
static inline bool bound_without_fma(void) {
#if defined(__x86_64__)
    return strcmp(lib_environment_get(LIB_ENV_FEATURES), "sse2") == 0 || !__builtin_cpu_supports("fma");
#else
    return false;
#endif
}

/* What a function of exact operands may differ by: each side lies within the row's tolerance; composites by their names. */
static inline double bound_function_error(const bound_row *r, double magnitude) {
    const graph_op *op = r->node->op;
    bool function = op->class_ == GRAPH_MAP && op->tolerance > 0.5 && !bound_is(r, "rsqrt");
    if (!bound_without_fma() || !(function || bound_is(r, "gelu elu softplus rng_normal"))) return 0;
    return (2 * op->tolerance + 2) * bound_epsilon(r->y->dtype, false) * magnitude + 1e-40;
}

static inline bound bound_map(const bound_row *r) {
    dlc_dtype dtype = r->y->dtype;
    bool is_float = lib_dtype_is_float(dtype);
    bound y = bound_join(r);
    double e = y.error, largest = bound_largest(dtype);
    y.magnitude = bound_map_magnitude(r);
    y.special |=
        bound_is(r, "div rem mod pow sqrt rsqrt log log1p asin acos acosh atanh tan") || !(y.magnitude < largest);
    y.special &= is_float;
    y.integral &= bound_is(r, "neg abs add sub mul min max clamp select relu floor ceil round trunc sign cast");
    y.integral &= y.magnitude <= (is_float ? 1 / bound_epsilon(dtype, false) : 0x1p24);
    bool rounds =
        bound_is_narrow(dtype) && !bound_is(r, "neg abs relu min max clamp select floor ceil round trunc sign");
    if (e > 0) y.error = bound_map_error(r);
    if (is_float && y.error < INFINITY && (e > 0 || (r->excess && rounds && !y.integral)))
        y.error += 4 * bound_epsilon(dtype, false) * y.magnitude + bound_least(dtype);
    if (is_float) y.error += bound_function_error(r, y.magnitude);
    if (r->excess && (dtype == DLC_F8E4M3FNUZ || dtype == DLC_F8E5M2FNUZ)) /* rounding makes -0 0 */
        y.error = fmax(y.error, 0x1p-1000);
    if (isnan(y.error) || (y.error > 0 && y.magnitude > largest / 4)) y.error = INFINITY;
    y.magnitude = fmin(y.magnitude, largest);
    return y;
}

/* ---- contractions and windows */

static inline double bound_list_product(const graph_attribute *list) {
    double product = 1;
    for (int i = 0; i < list->count; i++) product *= (double)list->list[i];
    return product;
}

/* On cuda tiles multiply the zeros of an image's borders (targets/cuda/README.md): weights that are no numbers make NaN. */
static inline bool bound_multiplies_borders(void) {
    const char *target = getenv("DLC_TEST_TARGET");
    return target && strcmp(target, "cuda") == 0;
}

/* Products that are summed for one element, at most. */
static inline double bound_products(const bound_row *r) {
    bool transposed = strcmp(r->name, "convolution_transposed") == 0;
    if (transposed || strcmp(r->name, "convolution") == 0) {
        const graph_shape *w = bound_operand(r, 1);
        int channels = transposed ? 1 : 0; /* the axis of the result's channels, along which nothing is summed */
        double terms = 1;
        for (int i = 0; i < w->rank; i++)
            if (i != channels) terms *= (double)bound_dim(r->g, w, i);
        return terms;
    }
    if (strcmp(r->name, "einsum") == 0) return bound_count(r->g, r->x);
    const graph_attribute *contract = bound_attribute(r, "contract_x");
    if (!contract) return (double)bound_dim(r->g, r->x, -1); /* dot, matmul, linear */
    double terms = 1;
    for (int i = 0; i < contract->count; i++) terms *= (double)bound_dim(r->g, r->x, (int)contract->list[i]);
    return terms;
}

static inline bound bound_contract(const bound_row *r) {
    if (strcmp(r->name, "einsum") == 0 && r->inputs < 2)
        return bound_sum(r, bound_count(r->g, r->x), r->in[0].magnitude, r->in[0].error, r->in[0].special,
                         r->in[0].integral);
    const bound *a = &r->in[0], *b = &r->in[1];
    double e =
        a->error > 0 || b->error > 0 ? a->magnitude * b->error + b->magnitude * a->error + a->error * b->error : 0;
    if (isnan(e)) e = INFINITY; /* one without a bound, times one without an error */
    bool special = a->special || b->special;
    double terms = bound_products(r);
    if (b->special && bound_is(r, "convolution convolution_transposed") && bound_multiplies_borders())
        return (bound){.error = INFINITY, .magnitude = INFINITY, .special = true};
    if (strcmp(r->name, "einsum") == 0) terms *= fmax(1, bound_count(r->g, bound_operand(r, 1)) / 8);
    bound y = bound_sum(r, terms, a->magnitude * b->magnitude, e, special, a->integral && b->integral);
    if (bound_is_narrow(r->y->dtype) && bound_is(r, "einsum matmul dot linear") && r->excess)
        y.error += bound_epsilon(r->y->dtype, false) * y.magnitude;
    if (strcmp(r->name, "linear") == 0 && r->inputs > 2 && r->node->input[2]) {
        y.error += r->in[2].error + (y.error > 0 ? r->in[2].magnitude * bound_epsilon(r->y->dtype, false) : 0);
        y.magnitude += r->in[2].magnitude;
        y.special |= r->in[2].special;
        y.integral = false;
        if (y.error > 0 && y.special && (a->error > 0 || b->error > 0)) y.error = INFINITY;
    }
    return y;
}

/* The same arithmetic everywhere that products are fused; errors of x may meet in one result, factors as large as these turn them. */
static inline bound bound_fft(const bound_row *r) {
    const bound *a = &r->in[0], *b = &r->in[1];
    double turns = pow(fmax(1, 2 * b->magnitude), bound_attribute(r, "radices")->count);
    double terms = 2 * (double)bound_dim(r->g, r->x, 1) * turns;
    bound y = {.magnitude = terms * a->magnitude, .special = a->special || b->special};
    if (a->error > 0 || bound_without_fma())
        y.error = terms * a->error + 64 * bound_epsilon(r->y->dtype, false) * y.magnitude;
    if (b->error > 0 || (a->error > 0 && y.special)) y.error = INFINITY;
    return y;
}

/* A contraction, passes, or a convolution of twice as many points: sums of all points times numbers up to 1. */
static inline bound bound_dft(const bound_row *r) {
    double points = fmax((double)bound_dim(r->g, r->x, (int)bound_attribute(r, "axis")->integer),
                         (double)bound_attribute(r, "length")->integer);
    return bound_sum(r, 64 * fmax(points, 1), r->in[0].magnitude, r->in[0].error, r->in[0].special, false);
}

/* Steps are the same arithmetic everywhere, but for the sums of qr; what they make of an error is not known. */
static inline bound bound_matrix(const bound_row *r) {
    bound y = {.magnitude = INFINITY, .special = true};
    for (int i = 0; i < r->inputs; i++)
        if (r->in[i].error > 0) y.error = INFINITY;
    if (bound_is(r, "qr") || bound_without_fma()) y.error = INFINITY; /* products are subtracted by fused operations */
    return y;
}

static inline bound bound_window(const bound_row *r) {
    const graph_attribute *op = bound_attribute(r, "op");
    bound x = r->in[0];
    double terms = bound_list_product(bound_attribute(r, "window"));
    bool is_float = lib_dtype_is_float(r->y->dtype);
    if (strcmp(r->name, "average_pool") == 0) {
        bound y = bound_sum(r, terms, x.magnitude, x.error, x.special, false);
        if (!y.error && r->excess && bound_is_narrow(r->y->dtype))
            y.error = bound_epsilon(r->y->dtype, false) * terms * x.magnitude;
        y.special = true; /* windows of padding alone: 0/0 */
        y.magnitude = x.magnitude;
        y.integral = false;
        return y;
    }
    if (op && op->integer == 0) return bound_sum(r, terms, x.magnitude, x.error, x.special, x.integral);
    x.special = is_float;
    if (!is_float) x.magnitude = bound_largest(r->y->dtype);
    return x;
}

/* ---- reductions */

/* The same arithmetic everywhere; what it makes of an error is not known. */
static inline bound bound_exact(const bound_row *r) {
    bound y = {.magnitude = bound_largest(r->y->dtype), .special = lib_dtype_is_float(r->y->dtype)};
    for (int i = 0; i < r->inputs; i++)
        if (r->in[i].error > 0) y.error = INFINITY;
    if (r->excess && bound_is_narrow(r->y->dtype)) y.error = INFINITY;
    return y;
}

static inline bound bound_reduce(const bound_row *r) {
    bound x = r->in[0];
    double terms = bound_terms(r);
    if (bound_is(r, "cumulative_max cumulative_min sort top_k")) return x; /* their indices: bound_graph */
    if (bound_is(r, "cumulative_prod")) terms = (double)bound_dim(r->g, r->x, (int)bound_attribute(r, "axis")->integer);
    if (bound_is(r, "winograd_input winograd_output")) /* twice a sum with weights that add up to 20 at most */
        return bound_sum(r, 400, x.magnitude, x.error, x.special, false);
    if (bound_is(r, "suppress")) return bound_exact(r);
    if (bound_is(r, "reduce_and reduce_or reduce_xor reduce_max reduce_min")) {
        x.special |= terms == 0 && lib_dtype_is_float(r->y->dtype);
        if (terms == 0) x.magnitude = bound_largest(r->y->dtype);
        return x;
    }
    if (bound_is(r, "arg_max arg_min")) return (bound){.error = x.error > 0 ? INFINITY : 0, .magnitude = 0x1p31};
    if (bound_is(r, "cumulative_sum")) {
        const graph_attribute *axis = bound_attribute(r, "axis");
        return bound_sum(r, (double)bound_dim(r->g, r->x, (int)axis->integer), x.magnitude, x.error, x.special,
                         x.integral);
    }
    if (bound_is(r, "reduce_prod cumulative_prod") && lib_dtype_is_float(r->y->dtype)) {
        double most = pow(fmax(x.magnitude, 1), fmax(terms, 1));
        bound y = {.magnitude = most, .special = x.special};
        y.integral = x.integral && most <= 256;
        if (terms <= 1) return x;
        if (x.integral && x.error == 0 && most <= 0x1p24) return y;
        y.error = most * terms * (bound_epsilon(r->y->dtype, true) * 2 + x.error);
        if (bound_is_narrow(r->y->dtype)) y.error += most * bound_epsilon(r->y->dtype, false);
        if (!(most < 1e4) || (x.special && (terms > 10 || x.error > 0))) y.error = INFINITY;
        return y;
    }
    bound y = bound_sum(r, terms, x.magnitude, x.error, x.special, x.integral);
    if (bound_is(r, "mean")) {
        if (!y.error && r->excess && bound_is_narrow(r->y->dtype))
            y.error = bound_epsilon(r->y->dtype, false) * y.magnitude;
        y.error /= fmax(terms, 1);
        y.magnitude = x.magnitude;
        y.special |= terms == 0;
        y.integral = false;
    }
    return y;
}

/* ---- rows along an axis: see the composites' definitions */

static inline double bound_axis_size(const bound_row *r) {
    const graph_attribute *axis = bound_attribute(r, "axis");
    if (bound_attribute(r, "axes")) return bound_terms(r);
    if (!bound_is(r, "layer_norm rms_norm")) return (double)bound_dim(r->g, r->x, (int)axis->integer);
    int first = (int)axis->integer;
    double size = 1;
    for (int i = first < 0 ? first + r->x->rank : first; i < r->x->rank; i++) size *= (double)bound_dim(r->g, r->x, i);
    return size;
}

static inline double bound_softmax_error(const bound_row *r, double n, double m, double e) {
    /* terms that are alike, as those of small integers, are rounded alike: n/16 */
    double eps = bound_epsilon(r->y->dtype, true), y = eps * (4 * sqrt(n) + n / 16 + 32) + 2 * e;
    return bound_is(r, "softmax") ? y : y + eps * 8 * m;
}

static inline double bound_norm_error(const bound_row *r, double n, double m, double e, double *magnitude) {
    double eps = bound_epsilon(r->y->dtype, true), epsilon = bound_attribute(r, "epsilon")->number;
    double amplify = 1 / sqrt(epsilon), d = 2 * e + eps * (4 * sqrt(n) + 4) * m;
    double y = amplify * d * (1 + sqrt(n)) + sqrt(n) * amplify * d * amplify * d / 2 + eps * 8 * sqrt(n);
    *magnitude = sqrt(n) + y;
    for (int i = 1; i < r->inputs; i++) {
        if (!r->node->input[i]) continue;
        if (i == 1) y = y * r->in[1].magnitude + r->in[1].error * *magnitude, *magnitude *= fmax(1, r->in[1].magnitude);
        if (i == 2) y += r->in[2].error, *magnitude += r->in[2].magnitude;
    }
    return m < 1e9 ? y : INFINITY;
}

static inline bound bound_rows(const bound_row *r) {
    bound all = bound_join(r), y = {.special = all.special};
    double n = bound_axis_size(r), m = r->in[0].magnitude, e = r->in[0].error;
    if (bound_is(r, "softmax")) {
        y.magnitude = 1;
        y.error = bound_softmax_error(r, n, m, e);
    } else if (bound_is(r, "log_softmax logsumexp cross_entropy")) {
        y.magnitude = 2 * m + log(n + 1);
        y.error = m < bound_largest(r->y->dtype) / 4 ? bound_softmax_error(r, n, m, e) : INFINITY;
        y.special |= n == 0;
    } else if (bound_is(r, "variance")) {
        double left = n - (double)bound_attribute(r, "correction")->integer,
               d = 2 * e + bound_epsilon(r->y->dtype, true) * 4 * (sqrt(n) + 4) * m;
        y.magnitude = 4 * m * m * n / fmax(left, 1);
        y.error = (4 * m * d + bound_epsilon(r->y->dtype, true) * 4 * (sqrt(n) + 4) * 4 * m * m) * n / fmax(left, 1);
        y.special |= left <= 0;
        if (!(m < 1e9) || (left <= 0 && (e > 0 || n > 1))) y.error = INFINITY;
    } else {
        y.error = bound_norm_error(r, n, m, e, &y.magnitude);
        if (r->inputs > 1 && r->node->input[1] && r->in[1].special) y.error = INFINITY; /* infinity times about zero */
    }
    if (bound_is_narrow(r->y->dtype)) y.error += 2 * bound_epsilon(r->y->dtype, false) * y.magnitude + 0x1p-24;
    if (isnan(y.error) || y.magnitude > bound_largest(r->y->dtype) / 4 || (all.special && all.error > 0))
        y.error = INFINITY;
    return y;
}

static inline bound bound_attention(const bound_row *r) {
    const bound *q = &r->in[0], *k = &r->in[1], *v = &r->in[2];
    bound mask = r->inputs > 3 && r->node->input[3] ? r->in[3] : (bound){0};
    double eps = bound_epsilon(r->y->dtype, true), d = (double)bound_dim(r->g, r->x, 3);
    double t = (double)bound_dim(r->g, bound_operand(r, 1), 2), scale = bound_attribute(r, "scale")->number;
    if (scale == 0) scale = 1 / sqrt(fmax(d, 1));
    double scores = fabs(scale) * d * q->magnitude * k->magnitude + mask.magnitude;
    double wrong =
        fabs(scale) * d * (q->magnitude * k->error + k->magnitude * q->error + q->error * k->error) + mask.error;
    wrong += eps * 4 * (sqrt(d) + 8) * scores;
    bound y = {.magnitude = v->magnitude, .special = true};
    y.error = v->magnitude * (4 * wrong + eps * (8 * sqrt(t) + 32)) + v->error;
    if (bound_is_narrow(r->y->dtype)) y.error += 4 * bound_epsilon(r->y->dtype, false) * v->magnitude + 0x1p-24;
    bool inexact = q->error > 0 || k->error > 0 || v->error > 0 || mask.error > 0;
    bool special = q->special || k->special || v->special || mask.special;
    if (!(wrong < 0.1) || v->special || (inexact && special)) y.error = INFINITY;
    return y;
}

/* rnn, gru, lstm with the usual activations: slopes are at most 1, states grow by at most 1 a step. An error in the state passes through
 * `hidden` products and, in gru and lstm, through products of gates and states. */
static inline bound bound_recurrent(const bound_row *r) {
    const graph_shape *x = r->x, *w = bound_operand(r, 2);
    const bound *in = r->in;
    int64_t steps = 0, other = 0, width = 0, hidden = 0;
    bound all = bound_join(r), y = {.special = all.special};
    bool given = tir_is_const(r->g->pool, x->dim[0], &steps) && tir_is_const(r->g->pool, x->dim[1], &other) &&
                 tir_is_const(r->g->pool, x->dim[2], &width) && tir_is_const(r->g->pool, w->dim[2], &hidden);
    if (!given || all.special) return (bound){.error = INFINITY, .magnitude = INFINITY, .special = true};
    double largest = 1, start = 0, n = (double)hidden, eps = bound_epsilon(r->y->dtype, true), grown;
    for (int i = 5; i < r->inputs; i++) largest = fmax(largest, in[i].magnitude), start = fmax(start, in[i].error);
    steps = steps > other ? steps : other; /* either may come first */
    grown = largest + (double)steps;
    double own = (double)width * (in[0].magnitude * in[1].error + in[1].magnitude * in[0].error) +
                 n * grown * in[2].error + 2 * (r->inputs > 3 ? in[3].error : 0);
    double size = (double)width * in[0].magnitude * in[1].magnitude + n * grown * in[2].magnitude +
                  2 * (r->inputs > 3 ? in[3].magnitude : 0) + grown * largest;
    double state = start, rounding = eps * 4 * ((double)width + n + 8) * (size + grown);
    for (int64_t t = 0; t < steps; t++) {
        double gate = own + rounding + (n * in[2].magnitude + largest) * state;
        state += 4 * grown * (gate + n * in[2].magnitude * grown * gate) + rounding;
    }
    y.magnitude = grown;
    y.error = state + 2 * bound_epsilon(r->y->dtype, false) * grown;
    return y;
}

/* ---- everything */

/* Composites that are one expression of an element. */
static const char bound_activations[] = "relu relu6 leaky_relu elu gelu hard_sigmoid hard_swish softplus";

static inline void bound_graph(lib_arena *arena, const graph *g, const bound *inputs, bool excess, bound *values);

/* Branches and bodies: exact ones stay exact. */
static inline bound bound_control(lib_arena *arena, const bound_row *r) {
    static const char *const bodies[] = {"then", "otherwise", "condition", "body"};
    bound y = bound_join(r), *in = LIB_NEW_ARRAY(arena, bound, (size_t)r->inputs + 1);
    bool loop = strcmp(r->name, "if") != 0;
    for (int i = 0; i < r->inputs; i++) {
        in[i] = r->in[i];
        if (loop) in[i].magnitude = INFINITY, in[i].special = true, in[i].integral = false;
    }
    for (int s = 0; s < 4; s++) {
        const graph_attribute *which = bound_attribute(r, bodies[s]);
        if (!which) continue;
        const graph *sub = r->g->subgraphs.data[which->integer];
        bound *value = LIB_NEW_ARRAY(arena, bound, sub->values.count + 1);
        bound_graph(arena, sub, loop ? in : in + 1, r->excess, value);
        for (uint32_t o = 0; o < sub->outputs.count; o++) y.error = fmax(y.error, value[sub->outputs.data[o]].error);
    }
    y.magnitude = INFINITY;
    y.special = true;
    y.integral = false;
    if (loop && y.error > 0) y.error = INFINITY;
    return y;
}

static inline bound bound_constant_of(const graph_constant *constant, const graph_shape *shape) {
    bound y = {.integral = true};
    if (lib_dtype_is_packed(shape->dtype)) return (bound){.magnitude = 15, .integral = true};
    const dlc_dtype dtype = shape->dtype == DLC_C64 ? DLC_F32 : shape->dtype;
    size_t size = lib_dtype_size(dtype);
    for (size_t at = 0; at + size <= constant->size; at += size) {
        double x = lib_element_get_f64(dtype, (const char *)constant->bytes + at);
        y.special |= !isfinite(x);
        if (isfinite(x)) y.magnitude = fmax(y.magnitude, fabs(x));
        y.integral &= isfinite(x) && x == floor(x) && fabs(x) <= 256;
    }
    return y;
}

static inline bound bound_scatter(const bound_row *r) {
    bound y = bound_join(r), index = r->in[1];
    const graph_attribute *combine = bound_attribute(r, "combine");
    if (strcmp(r->name, "dynamic_update_slice") == 0) {
        index = r->in[2];
    } else if (combine && (combine->integer == 1 || combine->integer == 2)) { /* in a fixed order: exact stays exact */
        bound x = y;
        y.magnitude = combine->integer == 1 ? x.magnitude * (1 + bound_count(r->g, bound_operand(r, 2))) : INFINITY;
        y.special |= y.magnitude > bound_largest(r->y->dtype);
        y.integral &= y.magnitude <= 256;
        if (y.error > 0 || (r->excess && bound_is_narrow(r->y->dtype))) y.error = INFINITY;
    }
    if (index.error > 0) y.error = INFINITY;
    return y;
}

static inline bound bound_source(const bound_row *r) {
    bound y = {.magnitude = bound_largest(r->y->dtype)};
    if (bound_is(r, "dimension")) y.magnitude = fmin(y.magnitude, 0x1p20);
    if (bound_is(r, "iota")) /* twice: small floats round up */
        y.magnitude = fmin(y.magnitude, 2 * (double)bound_dim(r->g, r->y, (int)bound_attribute(r, "axis")->integer));
    if (bound_is(r, "rng_uniform rng_normal")) {
        y.magnitude = 16;
        if (bound_is_narrow(r->y->dtype) && r->excess) y.error = 16 * bound_epsilon(r->y->dtype, false);
        y.error += bound_function_error(r, y.magnitude);
    }
    if (bound_is(r, "rng_bits") && lib_dtype_is_float(r->y->dtype)) y.special = true;
    return y;
}

static inline bound bound_injective(const bound_row *r) {
    bound y = bound_join(r);
    int index = bound_is(r, "gather gather_elements gather_nd dynamic_slice embedding") ? 1 : -1;
    if (index < 0) return y;
    y = r->in[0];
    if (r->in[index].error > 0) y.error = INFINITY;
    return y;
}

/* Sums of elements times weights made of positions, which add up to 1 but for their signs. */
static inline bound bound_sampled(const bound_row *r) {
    enum { TERMS = 64 };
    const graph_attribute *mode = bound_attribute(r, "mode");
    return mode->integer ? bound_sum(r, TERMS, r->in[0].magnitude, r->in[0].error, r->in[0].special, false) : r->in[0];
}

static inline bound bound_node(lib_arena *arena, const bound_row *r) {
    graph_class class_ = r->node->op->class_;
    if (bound_is(r, "input constant")) return (bound){0};
    if (bound_is(r, "iota dimension rng_bits rng_uniform rng_normal")) return bound_source(r);
    if (class_ == GRAPH_CONTROL) return bound_control(arena, r);
    if (class_ == GRAPH_SCATTER) return bound_scatter(r);
    if (bound_is(r, "embedding") || class_ == GRAPH_INJECTIVE) return bound_injective(r);
    if (bound_is(r, "reduce_window average_pool max_pool")) return bound_window(r);
    if (class_ == GRAPH_REDUCE || bound_is(r, "mean")) return bound_reduce(r);
    if (bound_is(r, "fft")) return bound_fft(r);
    if (bound_is(r, "dft")) return bound_dft(r);
    if (bound_is(r, "triangular_solve cholesky qr jacobi det")) return bound_matrix(r);
    if (class_ == GRAPH_CONTRACT || bound_is(r, "dot matmul linear einsum convolution_transposed"))
        return bound_contract(r);
    if (bound_is(r, "softmax log_softmax logsumexp cross_entropy variance layer_norm rms_norm")) return bound_rows(r);
    if (bound_is(r, "attention")) return bound_attention(r);
    if (bound_is(r, "rnn gru lstm")) return bound_recurrent(r);
    if (bound_is(r, "roll trilu tile")) return bound_injective(r);
    if (bound_is(r, "resize")) return bound_sampled(r);
    if (bound_is(r, "one_hot")) return (bound){.error = r->in[0].error > 0 ? INFINITY : 0, .magnitude = 1};
    if (class_ == GRAPH_MAP || bound_is(r, bound_activations)) return bound_map(r);
    return bound_exact(r);
}

/* Composites that are known by name: all that have a rule above. */
static inline bool bound_has_rule(const bound_row *r) {
    if (bound_is(r, "einsum")) return r->inputs <= 2;
    return bound_is(r,
                    "rng_uniform rng_normal embedding average_pool max_pool mean dft dot matmul linear "
                    "convolution_transposed softmax log_softmax logsumexp cross_entropy variance layer_norm rms_norm "
                    "attention rnn gru lstm roll trilu tile resize one_hot") ||
           bound_is(r, bound_activations);
}

/* Any other composite, and rows on elements that are stored in parts: what they expand to says it. */
static inline void bound_expansion(lib_arena *arena, const bound_row *r, bound *results) {
    const graph_node *node = r->node;
    graph *g = graph_new(arena, r->g->pool);
    graph_id *input = LIB_NEW_ARRAY(arena, graph_id, (size_t)r->inputs + 1);
    bound *in = LIB_NEW_ARRAY(arena, bound, (size_t)r->inputs + 1);
    int inputs = 0;
    for (int i = 0; i < r->inputs; i++) {
        if (!node->input[i]) continue;
        input[i] = graph_new_input(g, lib_arena_format(arena, "x%d", i), bound_operand(r, i));
        in[inputs++] = r->in[i];
    }
    graph_expand expand = {.g = g,
                           .op = node->op,
                           .inputs = r->inputs,
                           .input = input,
                           .attribute = node->attribute,
                           .result = LIB_NEW_ARRAY(arena, graph_id, (size_t)node->results)};
    if (graph_is_on_stored(r->g, node))
        graph_expand_stored(&expand, node->results);
    else
        node->op->expand(&expand);
    bound *values = LIB_NEW_ARRAY(arena, bound, g->values.count + 1);
    bound_graph(arena, g, in, r->excess, values);
    for (int i = 0; i < node->results; i++) results[i] = values[expand.result[i]];
}

/* values: [g->values.count]; of a bound graph, or of one without symbols. */
static inline void bound_graph(lib_arena *arena, const graph *g, const bound *inputs, bool excess, bound *values) {
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        bound *in = LIB_NEW_ARRAY(arena, bound, (size_t)node->inputs + 1);
        for (int i = 0; i < node->inputs; i++) in[i] = node->input[i] ? values[node->input[i]] : (bound){0};
        bound_row row = {
            .g = g, .node = node, .name = node->op->name, .in = in, .inputs = node->inputs, .excess = excess};
        if (node->results == 0) continue;
        row.y = graph_shape_of(g, node->first);
        row.x = node->inputs && node->input[0] ? graph_shape_of(g, node->input[0]) : NULL;
        const graph_constant *constant = graph_constant_of(g, node->first);
        if (graph_is_on_stored(g, node) || (node->op->class_ == GRAPH_COMPOSITE && !bound_has_rule(&row))) {
            bound_expansion(arena, &row, &values[node->first]);
            continue;
        }
        bound y = constant ? bound_constant_of(constant, row.y) : bound_node(arena, &row);
        if (strcmp(row.name, "input") == 0) y = inputs[node->attribute[0].integer];
        if (isnan(y.error)) y.error = INFINITY;
        for (int i = 0; i < node->results; i++) {
            const bool index = i && bound_is(&row, "sort top_k");
            values[node->first + (graph_id)i] =
                index ? (bound){.error = y.error > 0 ? INFINITY : 0, .magnitude = 0x1p31} : y;
        }
    }
}

#endif
