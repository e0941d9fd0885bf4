/* Numbers that rules of bounds share (graph/bound.h), and the rule of maps, which is derived from their references. */
#include "graph/bound.h"

#include "graph/ops_common.h"

#include <math.h>
#include <stdlib.h>

double graph_bound_magnitude(const graph_bound *b) {
    return fmax(fabs(b->low), fabs(b->high));
}

graph_bound graph_bound_within(double magnitude) {
    return (graph_bound){.low = -magnitude, .high = magnitude};
}

double graph_bound_largest(dlc_dtype dtype) {
    if (dtype == DLC_BOOL) return 1;
    if (lib_dtype_is_float(dtype))
        return dtype == DLC_F64                        ? 0x1p1023
               : dtype == DLC_F32 || dtype == DLC_BF16 ? 0x1p127
                                                       : lib_float_of(dtype).greatest;
    if (dtype == DLC_C64) return 0x1p127;
    return ldexp(1, lib_dtypes[dtype].bits - (lib_dtypes[dtype].class_ == 'i'));
}

/* Integers: high is the greatest double below 2^bits (2^(bits-1) if signed). */
graph_bound graph_bound_of_dtype(dlc_dtype dtype) {
    const double most = graph_bound_largest(dtype);
    const bool floats = lib_dtype_is_float(dtype) || dtype == DLC_C64;
    if (floats) return (graph_bound){.low = -most, .high = most, .special = true};
    const double high = dtype == DLC_BOOL ? 1 : most > 0x1p53 ? nextafter(most, 0) : most - 1;
    return (graph_bound){.low = lib_dtypes[dtype].class_ == 'i' ? -most : 0, .high = high, .integral = most <= 256};
}

double graph_bound_epsilon(dlc_dtype dtype, bool sums) {
    if (dtype == DLC_F64) return 0x1p-52;
    if (dtype == DLC_F32 || sums) return 0x1p-23;
    if (dtype == DLC_F8E4M3FN || dtype == DLC_F8E4M3FNUZ) return 0x1p-3;
    if (dtype == DLC_F8E5M2 || dtype == DLC_F8E5M2FNUZ) return 0x1p-2;
    return dtype == DLC_F16 ? 0x1p-10 : 0x1p-7;
}

double graph_bound_least(dlc_dtype dtype) {
    switch (dtype) {
    case DLC_F16: return 0x1p-24;
    case DLC_F8E4M3FN: return 0x1p-9;
    case DLC_F8E4M3FNUZ: return 0x1p-10;
    case DLC_F8E5M2: return 0x1p-16;
    case DLC_F8E5M2FNUZ: return 0x1p-17;
    default: return 1e-40;
    }
}

int64_t graph_bound_dim(const graph *g, const graph_shape *shape, int axis) {
    int64_t extent = GRAPH_BOUND_COUNTED;
    if (axis < 0) axis += shape->rank;
    if (axis < 0 || axis >= shape->rank) return 1;
    return tir_is_const(g->pool, shape->dim[axis], &extent) ? extent : GRAPH_BOUND_COUNTED;
}

double graph_bound_count(const graph *g, const graph_shape *shape) {
    double count = 1;
    for (int i = 0; i < shape->rank; i++) count *= (double)graph_bound_dim(g, shape, i);
    return count;
}

const graph_attribute *graph_bound_attribute(const graph_bound_node *b, const char *name) {
    int at = graph_op_attribute(b->op, name);
    return at < 0 ? NULL : &b->node->attribute[at];
}

const graph_shape *graph_bound_shape(const graph_bound_node *b, int operand) {
    return graph_shape_of(b->g, b->node->input[operand]);
}

bool graph_bound_given(const graph_bound_node *b, int operand) {
    return operand < b->inputs && b->node->input[operand];
}

static void widen(graph_bound *all, const graph_bound *b, bool first) {
    all->error = fmax(all->error, b->error);
    all->low = first ? b->low : fmin(all->low, b->low);
    all->high = first ? b->high : fmax(all->high, b->high);
    all->special |= b->special;
    all->integral &= b->integral;
}

graph_bound graph_bound_join(const graph_bound_node *b) {
    graph_bound all = {.integral = b->inputs > 0};
    bool first = true;
    for (int i = 0; i < b->inputs; i++) {
        if (!b->node->input[i]) continue;
        widen(&all, &b->in[i], first);
        first = false;
    }
    return all;
}

double graph_bound_terms(const graph_bound_node *b) {
    const graph_attribute *axes = graph_bound_attribute(b, "axes"), *window = graph_bound_attribute(b, "window");
    const graph_attribute *axis = graph_bound_attribute(b, "axis");
    double terms = 1;
    if (window) {
        for (int i = 0; i < window->count; i++) terms *= (double)window->list[i];
        return terms;
    }
    if (!axes && axis) return (double)graph_bound_dim(b->g, b->x, (int)axis->integer);
    if (!axes || axes->count == 0) return graph_bound_count(b->g, b->x);
    for (int i = 0; i < axes->count; i++) terms *= (double)graph_bound_dim(b->g, b->x, (int)axes->list[i]);
    return terms;
}

/* Is the operand the result of arithmetic, not only moved elements of an input or a constant? */
static bool is_computed(const graph_bound_node *b, int operand) {
    graph_id value = b->node->input[operand];
    while (value) {
        const graph_node *node = &b->g->nodes.data[b->g->values.data[value].node];
        if (node->op->class_ != GRAPH_INJECTIVE) return node->op->class_ != GRAPH_SOURCE;
        value = node->input[0];
    }
    return false;
}

/* May a sum leave out products with zeros that a choice by positions made, although infinities or NaN are multiplied by them
 * (no_excess_precision of dlc_compile_options)? */
static bool may_skip_special(const graph_bound_node *b, bool special) {
    bool computed = false;
    for (int i = 0; i < b->inputs; i++) computed = computed || is_computed(b, i);
    return b->excess && special && computed;
}

/* May the sum overflow, or differ by infinities or NaN, so that no bound of its error is known? */
static bool has_unbounded_error(const graph_bound_node *b, double most, double error, bool special) {
    return most > graph_bound_largest(b->y->dtype) / 4 || isnan(most) || (error > 0 && special) ||
           may_skip_special(b, special);
}

/* Roundings of partial sums add up like about sqrt(terms) of them, each relative to at most terms * magnitude. */
graph_bound graph_bound_summed(const graph_bound_node *b, double terms, double magnitude, double error, bool special,
                               bool integral) {
    const dlc_dtype dtype = b->y->dtype;
    graph_bound y = graph_bound_within(terms * magnitude);
    const double most = terms * magnitude, exact = dtype == DLC_F64 ? 0x1p53 : 0x1p24;
    y.special = special || most > graph_bound_largest(dtype);
    if (!lib_dtype_is_float(dtype)) {
        y = graph_bound_of_dtype(dtype);
        y.error = error > 0 ? INFINITY : 0;
        return y;
    }
    const bool narrow = lib_dtype_is_narrow_float(dtype);
    y.integral = integral && most <= exact && (!narrow || most <= 2 / graph_bound_epsilon(dtype, false));
    if (error == 0 && (terms <= 1 || (integral && most <= exact))) return y;
    if (has_unbounded_error(b, most, error, special)) {
        y.error = INFINITY;
        return y;
    }
    y.error = terms * error + graph_bound_epsilon(dtype, true) * 4 * (sqrt(terms) + 4) * most + 1e-40;
    if (narrow) y.error += graph_bound_epsilon(dtype, false) * most + graph_bound_least(dtype);
    return y;
}

bool graph_bound_is_apart(void) {
#if defined(__x86_64__)
    return strcmp(lib_environment_get(LIB_ENV_FEATURES), "sse2") == 0 || !__builtin_cpu_supports("fma");
#else
    return false;
#endif
}

/* 0 for functions that round once (tolerance up to 0.5 ulp), which are identical everywhere. */
double graph_bound_apart(const graph_bound_node *b, double magnitude) {
    const double tolerance = graph_op_tolerance(b->op, b->y->dtype);
    if (tolerance <= 0.5 || !graph_bound_is_apart()) return 0;
    return (2 * tolerance + 2) * graph_bound_epsilon(b->y->dtype, false) * magnitude + 1e-40;
}

/* ---- maps: the reference at points of the operands' ranges */

enum { OPERANDS = 3, POINTS = 256 };
static const int points_by_operands[OPERANDS + 1] = {1, POINTS, 48, 16};

typedef struct points {
    double x[POINTS];
    int count, most;
} points;

/* Adds the point, unless it is out of range or known, or there are p->most points. */
static void add_point(points *p, const graph_bound *range, bool floats, double x) {
    if (!floats) x = floor(x) + 0.0; /* not -0 */
    if (!(x >= range->low && x <= range->high) || p->count == p->most) return;
    for (int i = 0; i < p->count; i++)
        if (p->x[i] == x && signbit(p->x[i]) == signbit(x)) return; /* angles of -0 and 0 differ */
    p->x[p->count++] = x;
}

static bool is_special(const graph_bound_node *b, int operand) {
    return b->in[operand].special && lib_dtype_is_float(graph_bound_shape(b, operand)->dtype);
}

/* A finite range for an operand: an unknown range becomes that of the dtype. */
static graph_bound finite_range(const graph_bound_node *b, int operand) {
    const dlc_dtype dtype = graph_bound_shape(b, operand)->dtype;
    const graph_bound all = graph_bound_of_dtype(dtype);
    graph_bound range = b->in[operand];
    range.low = fmax(range.low, all.low);
    range.high = fmin(range.high, all.high);
    if (!(range.low <= range.high)) range.low = all.low, range.high = all.high;
    return range;
}

/* Sample points of the operand: the ends of all operands' ranges, points where functions jump or bend, points spread evenly and by
 * magnitude; for special operands also infinities and NaN. */
static void make_points(const graph_bound_node *b, int operand, points *p) {
    static const double bends[] = {0,   -0.0, 1, -1, 0.5, -0.5, 2, -2, 3,       -3,
                                   1.5, -1.5, 4, -4, 2.5, -2.5, 5, -5, 0x1p-12, -0x1p-12};
    const graph_bound range = finite_range(b, operand);
    const bool floats = lib_dtype_is_float(graph_bound_shape(b, operand)->dtype);
    p->count = 0;
    p->most = points_by_operands[b->inputs] - 3;
    add_point(p, &range, floats, range.low);
    add_point(p, &range, floats, range.high);
    for (int i = 0; i < b->inputs; i++) {
        const graph_bound other = finite_range(b, i);
        add_point(p, &range, floats, other.low);
        add_point(p, &range, floats, other.high);
    }
    const int fixed = p->most - p->most / 4;
    for (size_t i = 0; i < sizeof bends / sizeof *bends && p->count < fixed; i++)
        add_point(p, &range, floats, bends[i]);
    const int even = (p->most - p->count) / 2, rest = p->most - p->count - even;
    for (int i = 1; i <= even; i++) add_point(p, &range, floats, range.low + (range.high - range.low) * i / (even + 1));
    for (int i = 1; i <= rest; i++) {
        const double end = i & 1 ? range.high : range.low;
        add_point(p, &range, floats, end * exp2(-0.25 * i));
    }
    if (!is_special(b, operand)) return;
    p->x[p->count++] = INFINITY;
    p->x[p->count++] = -INFINITY;
    p->x[p->count++] = NAN;
}

/* The reference's results for all combinations of points, and for points shifted by the operands' errors. */
typedef struct sampling {
    points point[OPERANDS];
    int64_t count;
    double *x[OPERANDS], *moved[OPERANDS], *y, *other;
} sampling;

static void make_sampling(const graph_bound_node *b, sampling *s) {
    s->count = 1;
    for (int i = 0; i < b->inputs; i++) {
        make_points(b, i, &s->point[i]);
        s->count *= s->point[i].count;
    }
    for (int i = 0; i < b->inputs; i++) {
        s->x[i] = LIB_NEW_ARRAY(b->arena, double, (size_t)s->count);
        s->moved[i] = LIB_NEW_ARRAY(b->arena, double, (size_t)s->count);
    }
    s->y = LIB_NEW_ARRAY(b->arena, double, (size_t)s->count);
    s->other = LIB_NEW_ARRAY(b->arena, double, (size_t)s->count);
    for (int64_t k = 0; k < s->count; k++) {
        int64_t at = k;
        for (int i = b->inputs - 1; i >= 0; at /= s->point[i].count, i--)
            s->x[i][k] = s->point[i].x[at % s->point[i].count];
    }
}

/* With `as_numbers`, evaluates integers as numbers, without wrapping. */
static void evaluate(const graph_bound_node *b, const sampling *s, double *const *x, double *y, bool as_numbers) {
    graph_reference_tensor operand[OPERANDS], result = {.rank = 1, .dim = {s->count}, .data = y};
    for (int i = 0; i < b->inputs; i++)
        operand[i] = (graph_reference_tensor){
            .dtype = as_numbers ? DLC_F64 : graph_bound_shape(b, i)->dtype, .rank = 1, .dim = {s->count}, .data = x[i]};
    result.dtype = as_numbers ? DLC_F64 : b->y->dtype;
    b->op->reference(&(graph_reference){
        .inputs = b->inputs, .results = 1, .operand = operand, .attribute = b->node->attribute, .result = &result});
}

/* Largest difference; INFINITY if only one of two results is a number, or integers differ. */
static double difference_of(const sampling *s, dlc_dtype dtype) {
    double most = 0;
    for (int64_t k = 0; k < s->count; k++) {
        const double a = s->y[k], c = s->other[k];
        if (a == c || (isnan(a) && isnan(c))) continue;
        if (!isfinite(a) || !isfinite(c) || !lib_dtype_is_float(dtype)) return INFINITY;
        most = fmax(most, fabs(a - c));
    }
    return most;
}

static double moved_error(const graph_bound_node *b, sampling *s) {
    double most = 0;
    for (int i = 0; i < b->inputs; i++)
        if (b->in[i].error == INFINITY) return INFINITY;
    for (int signs = 0; signs < 1 << b->inputs; signs++) {
        for (int i = 0; i < b->inputs; i++)
            for (int64_t k = 0; k < s->count; k++)
                s->moved[i][k] = s->x[i][k] + (signs >> i & 1 ? b->in[i].error : -b->in[i].error);
        evaluate(b, s, s->moved, s->other, false);
        most = fmax(most, difference_of(s, b->y->dtype));
    }
    return 2 * most; /* margin for values between points */
}

/* Doubles in their order, as integers. */
static int64_t place_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

static double number_at(int64_t place) {
    const int64_t bits = place < 0 ? INT64_MIN - place : place;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double between(double x, double y, bool floats) {
    const int64_t a = place_of(x), c = place_of(y);
    const double middle = number_at((a & c) + ((a ^ c) >> 1));
    return floats ? middle : floor(middle);
}

/* Extends the range *y of a function's results to the largest (`up`) or smallest finite result near the points where the function is infinite:
 * bisects from point `from`, which has the largest or smallest result, to each of these points. Points of which an operand is 0 are left out:
 * a pole at 0 would make every range unbounded, and tests have no operands so close to 0. */
static void reach_infinity(const graph_bound_node *b, const sampling *s, int64_t from, bool up, graph_bound *y) {
    enum { STEPS = 64 };
    sampling way = *s;
    double *infinite[OPERANDS], limit = up ? INFINITY : -INFINITY;
    way.count = 0;
    for (int i = 0; i < b->inputs; i++) {
        way.x[i] = LIB_NEW_ARRAY(b->arena, double, (size_t)s->count);
        way.moved[i] = LIB_NEW_ARRAY(b->arena, double, (size_t)s->count);
        infinite[i] = LIB_NEW_ARRAY(b->arena, double, (size_t)s->count);
    }
    for (int64_t k = 0; k < s->count; k++) {
        bool regular = s->y[k] == limit;
        for (int i = 0; i < b->inputs; i++) regular &= isfinite(s->x[i][k]) && s->x[i][k] != 0;
        for (int i = 0; i < b->inputs && regular; i++) {
            way.x[i][way.count] = s->x[i][from];
            infinite[i][way.count] = s->x[i][k];
        }
        way.count += regular;
    }
    way.y = LIB_NEW_ARRAY(b->arena, double, (size_t)way.count + 1);
    for (int step = 0; step < STEPS && way.count > 0; step++) {
        for (int i = 0; i < b->inputs; i++) {
            const bool floats = lib_dtype_is_float(graph_bound_shape(b, i)->dtype);
            for (int64_t k = 0; k < way.count; k++) way.moved[i][k] = between(way.x[i][k], infinite[i][k], floats);
        }
        evaluate(b, &way, way.moved, way.y, false);
        for (int64_t k = 0; k < way.count; k++) {
            const bool finite = isfinite(way.y[k]);
            if (finite) y->low = fmin(y->low, way.y[k]), y->high = fmax(y->high, way.y[k]);
            for (int i = 0; i < b->inputs; i++) *(finite ? &way.x[i][k] : &infinite[i][k]) = way.moved[i][k];
        }
    }
}

static bool is_at_end(double x, const graph_bound *range) {
    return x == range->low || x == range->high || !isfinite(x);
}

/* If the minimum or maximum is not at an end of the ranges, there may be a more extreme value between points. */
static void set_range(const graph_bound_node *b, const sampling *s, graph_bound *y) {
    int64_t low = -1, high = -1;
    for (int64_t k = 0; k < s->count; k++) {
        if (!isfinite(s->y[k])) continue;
        if (low < 0 || s->y[k] < s->y[low]) low = k;
        if (high < 0 || s->y[k] > s->y[high]) high = k;
    }
    y->low = low < 0 ? 0 : s->y[low];
    y->high = high < 0 ? 0 : s->y[high];
    const double step = 0.1 * (y->high - y->low);
    bool low_at_end = true, high_at_end = true;
    for (int i = 0; i < b->inputs && low >= 0; i++) {
        const graph_bound range = finite_range(b, i);
        low_at_end &= is_at_end(s->x[i][low], &range);
        high_at_end &= is_at_end(s->x[i][high], &range);
    }
    if (!low_at_end) y->low = y->low >= 0 ? fmax(0, y->low - step) : y->low - step;
    if (!high_at_end) y->high = y->high <= 0 ? fmin(0, y->high + step) : y->high + step;
    if (low >= 0) reach_infinity(b, s, low, false, y), reach_infinity(b, s, high, true, y);
}

/* Are all values of all operands among the sampled points? Beyond 2^53 the ends of a range are rounded, and it has more values. */
static bool is_enumerated(const graph_bound_node *b, const sampling *s) {
    for (int i = 0; i < b->inputs; i++) {
        const graph_bound range = finite_range(b, i);
        if (lib_dtype_is_float(graph_bound_shape(b, i)->dtype) || graph_bound_magnitude(&range) > 0x1p53 ||
            s->point[i].count != range.high - range.low + 1)
            return false;
    }
    return true;
}

/* Integers wrap: the range is known only if all operand values were sampled, if the arithmetic without wrapping stays within the dtype, or
 * of conversions of floats. */
static void set_integer_range(const graph_bound_node *b, const sampling *s, graph_bound *y) {
    const graph_bound all = graph_bound_of_dtype(b->y->dtype);
    const bool converts = b->y->dtype != DLC_BOOL && lib_dtype_is_float(b->x->dtype);
    if (converts || is_enumerated(b, s)) {
        set_range(b, s, y);
        return;
    }
    *y = (graph_bound){.error = y->error, .low = all.low, .high = all.high};
    if (!graph_op_accepts(b->op, DLC_F64) || b->y->dtype == DLC_BOOL) return;
    evaluate(b, s, s->x, s->other, true);
    for (int64_t k = 0; k < s->count; k++)
        if (!(s->other[k] >= all.low && s->other[k] <= all.high)) return;
    sampling numbers = *s;
    numbers.y = s->other;
    set_range(b, &numbers, y);
}

/* Are the operands integral, and the results at all sampled points of integers? */
static bool is_integral(const graph_bound_node *b, const sampling *s) {
    for (int i = 0; i < b->inputs; i++)
        if (!b->in[i].integral) return false;
    for (int64_t k = 0; k < s->count; k++) {
        bool whole = true;
        for (int i = 0; i < b->inputs; i++) whole &= s->x[i][k] == floor(s->x[i][k]);
        if (whole && s->y[k] != floor(s->y[k])) return false;
    }
    return true;
}

/* Adds the function's own rounding to the error of results of this magnitude. moved: the operands have errors. */
static void add_rounding(const graph_bound_node *b, graph_bound *y, double magnitude, bool moved) {
    const dlc_dtype dtype = b->y->dtype;
    const bool floats = lib_dtype_is_float(dtype);
    const double tolerance = graph_op_tolerance(b->op, dtype);
    const bool rounds = lib_dtype_is_narrow_float(dtype) && tolerance > 0 && !y->integral;
    if (floats && y->error < INFINITY && (moved || (b->excess && rounds)))
        y->error +=
            2 * fmax(tolerance + 1, 2) * graph_bound_epsilon(dtype, false) * magnitude + graph_bound_least(dtype);
    if (floats) y->error += graph_bound_apart(b, magnitude);
    if (b->excess && (dtype == DLC_F8E4M3FNUZ || dtype == DLC_F8E5M2FNUZ))
        y->error = fmax(y->error, 0x1p-1000); /* so that a later rounding of -0 to 0 is covered */
}

graph_bound graph_bound_map(const graph_bound_node *b) {
    const dlc_dtype dtype = b->y->dtype;
    const bool floats = lib_dtype_is_float(dtype);
    const double moved = graph_bound_join(b).error, largest = graph_bound_largest(dtype);
    if (!b->op->reference || b->inputs > OPERANDS || b->inputs == 0) return graph_bound_same_steps(b);
    sampling *s = LIB_NEW(b->arena, sampling);
    graph_bound y = {0};
    make_sampling(b, s);
    evaluate(b, s, s->x, s->y, false);
    if (moved > 0) y.error = moved_error(b, s);
    y.integral = is_integral(b, s);
    if (floats) {
        for (int64_t k = 0; k < s->count; k++) y.special |= !isfinite(s->y[k]) || fabs(s->y[k]) > largest;
        set_range(b, s, &y);
    } else {
        set_integer_range(b, s, &y);
    }
    const double magnitude = graph_bound_magnitude(&y);
    y.integral &= magnitude <= (floats ? 1 / graph_bound_epsilon(dtype, false) : 0x1p24);
    add_rounding(b, &y, magnitude, moved > 0);
    if (isnan(y.error) || (floats && y.error > 0 && magnitude > largest / 4)) y.error = INFINITY;
    y.low = fmax(y.low, -largest);
    y.high = fmin(y.high, largest);
    return y;
}
