/* Random numbers of other distributions, derived from rng_uniform: pure functions of key and stream. Also normal_quantile, the
 * inverse of the normal distribution function, which rng_truncated_normal uses. */
#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

/* The first attributes of generators, as in rng_uniform. */
enum { SHAPE, DTYPE, SEED, STREAM, PARAMETER };

static void infer_key(const graph_infer *infer, int operand) {
    if (operand >= infer->inputs || infer->operand[operand].rank < 0) return;
    graph_infer_dtype(infer, operand, DLC_I64);
    graph_infer_rank(infer, operand, 0);
}

static void infer_numbers(graph_infer *infer) {
    const graph_attribute *shape = &infer->attribute[SHAPE];
    dlc_dtype dtype = (dlc_dtype)infer->attribute[DTYPE].integer;
    if (!lib_dtype_is_float(dtype)) graph_infer_fail(infer, "dtype is %s, expected a float", lib_dtypes[dtype].name);
    if (shape->count > DLC_MAX_RANK)
        graph_infer_fail(infer, "rank %d is above the highest, %d", shape->count, DLC_MAX_RANK);
    infer_key(infer, 0);
    infer->result[0] = (graph_shape){.dtype = dtype, .rank = shape->count};
    for (int i = 0; i < shape->count; i++) {
        graph_infer_at_most(infer, tir_index(infer->g->pool, 0), shape->dims[i], "a dimension is negative");
        infer->result[0].dim[i] = shape->dims[i];
    }
}

/* Uniform numbers of [0, 1). seed: attributes seed and stream. */
static graph_id uniform(graph *g, graph_id key, const graph_shape *shape, const graph_attribute *seed) {
    graph_setting setting[] = {graph_set_dims("shape", shape->rank, shape->dim),
                               graph_set_integer("dtype", shape->dtype), graph_set_integer("seed", seed[0].integer),
                               graph_set_integer("stream", seed[1].integer)};
    return graph_emit_with(g, "rng_uniform", 1, &key, 4, setting);
}

static graph_id numbers(graph_expand *e) {
    graph_shape shape = {.dtype = graph_sum_dtype((dlc_dtype)e->attribute[DTYPE].integer),
                         .rank = e->attribute[SHAPE].count};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = e->attribute[SHAPE].dims[i];
    return uniform(e->g, e->inputs > 0 ? e->input[0] : 0, &shape, e->attribute + SEED);
}

/* -log(1 - u)/rate: never infinite */
static void expand_rng_exponential(graph_expand *e) {
    graph *g = e->g;
    graph_id y = graph_neg(g, graph_log1p(g, graph_neg(g, numbers(e))));
    y = graph_mul_number(g, y, 1 / e->attribute[PARAMETER].number);
    e->result[0] = graph_cast(g, y, (dlc_dtype)e->attribute[DTYPE].integer);
}

/* -log(-log(u)): -inf for u = 0 */
static graph_id gumbel(graph *g, graph_id u) {
    return graph_neg(g, graph_log(g, graph_neg(g, graph_log(g, u))));
}

static void expand_rng_gumbel(graph_expand *e) {
    e->result[0] = graph_cast(e->g, gumbel(e->g, numbers(e)), (dlc_dtype)e->attribute[DTYPE].integer);
}

/* ---- normal_quantile: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988 */

/* Numerator and denominator, by falling powers: within 0.425 of 1/2, tails, far tails. */
static const double quantile_terms[3][2][8] = {
    {{2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
      1971.5909503065514427, 133.14166789178437745, 3.3871328727963666080},
     {5226.4952788528545610, 28729.085735721942674, 39307.895800092710610, 21213.794301586595867, 5394.1960214247511077,
      687.18700749205790830, 42.313330701600911252, 1}},
    {{7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258,
      3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734},
     {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1}},
    {{2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
      2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990, 6.65790464350110377720},
     {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
      1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1}}};

static graph_id quantile_ratio(graph *g, graph_id r, int region) {
    graph_id part[2];
    for (int k = 0; k < 2; k++) {
        const double *term = quantile_terms[region][k];
        part[k] = graph_add_number(g, graph_mul_number(g, r, term[0]), term[1]);
        for (int i = 2; i < 8; i++) part[k] = graph_add_number(g, graph_mul(g, part[k], r), term[i]);
    }
    return graph_div(g, part[0], part[1]);
}

static graph_id quantile(graph *g, graph_id p) {
    graph_id half = graph_scalar_like(g, p, 0.5), zero = graph_scalar_like(g, p, 0), one = graph_scalar_like(g, p, 1);
    graph_id q = graph_sub(g, p, half);
    graph_id middle =
        graph_mul(g, q, quantile_ratio(g, graph_add_number(g, graph_neg(g, graph_mul(g, q, q)), 0.180625), 0));
    graph_id below = graph_lt(g, q, zero), tail = graph_select(g, below, p, graph_sub(g, one, p));
    graph_id r = graph_sqrt(g, graph_neg(g, graph_log(g, tail)));
    graph_id near = quantile_ratio(g, graph_add_number(g, r, -1.6), 1),
             far = quantile_ratio(g, graph_add_number(g, r, -5), 2);
    graph_id y = graph_select(g, graph_le(g, r, graph_scalar_like(g, r, 5)), near, far);
    y = graph_select(g, graph_eq(g, tail, zero), graph_scalar_like(g, y, INFINITY), y);
    y = graph_select(g, below, graph_neg(g, y), y);
    return graph_select(g, graph_le(g, graph_abs(g, q), graph_scalar_like(g, q, 0.425)), middle, y);
}

static void expand_normal_quantile(graph_expand *e) {
    e->result[0] =
        graph_cast(e->g, quantile(e->g, graph_widen(e->g, e->input[0])), graph_shape_of(e->g, e->input[0])->dtype);
}

/* ---- rng_truncated_normal */

enum { TRUNCATED_MEAN = PARAMETER, TRUNCATED_DEVIATION, TRUNCATED_LOW, TRUNCATED_HIGH };

static void infer_rng_truncated_normal(graph_infer *infer) {
    const double low = infer->attribute[TRUNCATED_LOW].number, high = infer->attribute[TRUNCATED_HIGH].number;
    if (!(low < high)) graph_infer_fail(infer, "low and high are %g and %g, expected low < high", low, high);
    infer_numbers(infer);
}

/* The normal quantile of a uniform number between the probabilities of low and high. If both are above 0, it is computed for the mirrored
 * range, in the tail where probabilities are small and exact. */
static void expand_rng_truncated_normal(graph_expand *e) {
    graph *g = e->g;
    double low = e->attribute[TRUNCATED_LOW].number, high = e->attribute[TRUNCATED_HIGH].number;
    const bool turned = low > 0;
    if (turned) {
        double swap = -low;
        low = -high, high = swap;
    }
    const double from = 0.5 * erfc(-low * M_SQRT1_2), to = 0.5 * erfc(-high * M_SQRT1_2);
    graph_id y = quantile(g, graph_add_number(g, graph_mul_number(g, numbers(e), to - from), from));
    y = graph_clamp(g, graph_scalar_like(g, y, low), y, graph_scalar_like(g, y, high));
    y = graph_mul_number(g, y, e->attribute[TRUNCATED_DEVIATION].number * (turned ? -1 : 1));
    y = graph_add_number(g, y, e->attribute[TRUNCATED_MEAN].number);
    e->result[0] = graph_cast(g, y, (dlc_dtype)e->attribute[DTYPE].integer);
}

/* ---- rng_gamma: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000 */

enum { GAMMA_SEED, GAMMA_STREAM };
enum { GAMMA_TRIES = 8 }; /* each is accepted with a probability above 0.95 */

static void infer_rng_gamma(graph_infer *infer) {
    infer_key(infer, 1);
    if (infer->operand[0].rank == DLC_MAX_RANK)
        graph_infer_fail(infer, "alpha has rank %d, expected less", infer->operand[0].rank);
    infer->result[0] = infer->operand[0];
}

static graph_id tries_of(graph *g, graph_id u, int first, int count) {
    return graph_slice_axis(g, u, 0, tir_index(g->pool, first), tir_index(g->pool, first + count));
}

/* Computes all tries at once and takes the first accepted one; if there is none, d. */
static void expand_rng_gamma(graph_expand *e) {
    graph *g = e->g;
    graph_id alpha = graph_widen(g, e->input[0]), zero = graph_scalar_like(g, alpha, 0),
             one = graph_scalar_like(g, alpha, 1);
    graph_shape shape = *graph_shape_of(g, alpha);
    memmove(shape.dim + 1, shape.dim, (size_t)shape.rank++ * sizeof *shape.dim);
    shape.dim[0] = tir_index(g->pool, 3 * GAMMA_TRIES + 1);
    graph_id u = uniform(g, e->inputs > 1 ? e->input[1] : 0, &shape, e->attribute + GAMMA_SEED);
    graph_id small = graph_lt(g, alpha, one);
    graph_id d = graph_add_number(g, graph_select(g, small, graph_add(g, alpha, one), alpha), -1.0 / 3);
    graph_id c = graph_rsqrt(g, graph_mul_number(g, d, 9));
    graph_id radius =
        graph_sqrt(g, graph_mul_number(g, graph_log1p(g, graph_neg(g, tries_of(g, u, 0, GAMMA_TRIES))), -2));
    graph_id turn = graph_cos(g, graph_mul_number(g, tries_of(g, u, GAMMA_TRIES, GAMMA_TRIES), 6.283185307179586477));
    graph_id x = graph_mul(g, radius, turn), w = graph_add(g, graph_mul(g, c, x), one);
    graph_id v = graph_mul(g, graph_mul(g, w, w), w);
    graph_id bound = graph_add(g, graph_sub(g, one, v), graph_log(g, v)); /* for negative v NaN, which rejects */
    bound = graph_add(g, graph_mul_number(g, graph_mul(g, x, x), 0.5), graph_mul(g, d, bound));
    graph_id good = graph_lt(g, graph_log(g, tries_of(g, u, 2 * GAMMA_TRIES, GAMMA_TRIES)), bound);
    const graph_shape tries = *graph_shape_of(g, good);
    graph_id number = graph_iota(g, DLC_I32, tries.rank, tries.dim, 0), never = graph_full_like(g, number, GAMMA_TRIES);
    const int64_t axis = 0;
    graph_id first = graph_reduce_min(g, graph_select(g, good, number, never), 1, &axis, true);
    graph_id chosen = graph_eq(g, number, graph_broadcast_to(g, first, tries.rank, tries.dim));
    v = graph_reduce_sum(g, graph_select(g, chosen, v, zero), 1, &axis, false);
    first = graph_squeeze(g, first, 0);
    v = graph_select(g, graph_lt(g, first, graph_full_like(g, first, GAMMA_TRIES)), v, one);
    graph_id last = graph_squeeze(g, tries_of(g, u, 3 * GAMMA_TRIES, 1), 0);
    graph_id lift = graph_pow(g, graph_sub(g, one, last), graph_div(g, one, alpha)); /* from alpha + 1 to alpha */
    graph_id y = graph_mul(g, graph_mul(g, d, v), graph_select(g, small, lift, one));
    y = graph_select(g, graph_ge(g, alpha, zero), y, graph_scalar_like(g, y, NAN));
    e->result[0] = graph_cast(g, y, graph_shape_of(g, e->input[0])->dtype);
}

/* ---- of probabilities */

enum { BERNOULLI_SEED, BERNOULLI_STREAM };
enum { CATEGORICAL_SAMPLES, CATEGORICAL_SEED, CATEGORICAL_STREAM };

static void infer_rng_bernoulli(graph_infer *infer) {
    infer_key(infer, 1);
    infer->result[0] = infer->operand[0];
    infer->result[0].dtype = DLC_BOOL;
}

static void expand_rng_bernoulli(graph_expand *e) {
    graph *g = e->g;
    graph_id p = graph_widen(g, e->input[0]);
    const graph_shape shape = *graph_shape_of(g, p);
    e->result[0] = graph_lt(g, uniform(g, e->inputs > 1 ? e->input[1] : 0, &shape, e->attribute + BERNOULLI_SEED), p);
}

static void infer_rng_categorical(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    infer_key(infer, 1);
    if (x->rank < 1) graph_infer_fail(infer, "logits have rank 0, expected at least 1");
    if (x->rank == DLC_MAX_RANK) graph_infer_fail(infer, "logits have rank %d, expected less", x->rank);
    if (infer->attribute[CATEGORICAL_SAMPLES].integer < 0) graph_infer_fail(infer, "samples is negative");
    graph_infer_at_most(infer, tir_index(infer->g->pool, 1), x->dim[x->rank - 1], "there is no class to choose");
    infer->result[0] = *x;
    infer->result[0].dtype = DLC_I64;
    infer->result[0].dim[x->rank - 1] = tir_index(infer->g->pool, infer->attribute[CATEGORICAL_SAMPLES].integer);
}

/* The index, along the last axis, of the maximum of logits + Gumbel numbers: a sample of the classes. */
static void expand_rng_categorical(graph_expand *e) {
    graph *g = e->g;
    graph_id logits = graph_widen(g, e->input[0]);
    graph_shape shape = *graph_shape_of(g, logits);
    shape.dim[shape.rank] = shape.dim[shape.rank - 1];
    shape.dim[shape.rank - 1] = tir_index(g->pool, e->attribute[CATEGORICAL_SAMPLES].integer);
    logits = graph_expand_dims(g, logits, shape.rank - 1);
    shape.rank++;
    graph_id u = uniform(g, e->inputs > 1 ? e->input[1] : 0, &shape, e->attribute + CATEGORICAL_SEED);
    graph_id score = graph_add(g, gumbel(g, u), logits);
    graph_setting setting[] = {graph_set_integer("axis", -1), graph_set_integer("dtype", DLC_I64)};
    e->result[0] = graph_emit_with(g, "arg_max", 1, &score, 2, setting);
}

/* ---- references */

#ifdef DLC_REFERENCE

static double reference_uniform_number(const graph_reference *r, int key, const graph_attribute *seed, bool wide,
                                       int64_t i) {
    uint64_t k64 = (uint64_t)(graph_reference_given(r, key) ? (int64_t)r->operand[key].data[0] : seed[0].integer);
    uint32_t c[4];
    graph_reference_philox(k64, (uint64_t)(wide ? i / 2 : i / 4), (uint64_t)seed[1].integer, 0, c);
    if (!wide) return ldexp((double)(c[i % 4] & 0xffffff), -24);
    return ldexp((double)((c[i % 2 * 2] | (uint64_t)c[i % 2 * 2 + 1] << 32) & ((UINT64_C(1) << 53) - 1)), -53);
}

static double reference_number(const graph_reference *r, int64_t i) {
    return reference_uniform_number(r, 0, r->attribute + SEED, r->result[0].dtype == DLC_F64, i);
}

static void reference_rng_exponential(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] = -log1p(-reference_number(r, i)) / r->attribute[PARAMETER].number;
}

static void reference_rng_gumbel(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] = -log(-log(reference_number(r, i)));
}

/* The normal quantile of p by bisection. */
static double reference_quantile(double p) {
    if (!(p >= 0 && p <= 1)) return NAN;
    if (p == 0 || p == 1) return p == 0 ? -INFINITY : INFINITY;
    double low = -40, high = 40;
    for (int i = 0; i < 200; i++) {
        double middle = (low + high) / 2;
        bool below = middle < 0 ? erfc(-middle / sqrt(2)) / 2 < p : 1 - p < erfc(middle / sqrt(2)) / 2;
        *(below ? &low : &high) = middle;
    }
    return low;
}

static void reference_normal_quantile(const graph_reference *r) {
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] = reference_quantile(r->operand[0].data[i]);
}

static void reference_rng_truncated_normal(const graph_reference *r) {
    const double low = r->attribute[TRUNCATED_LOW].number, high = r->attribute[TRUNCATED_HIGH].number;
    const double sign = low > 0 ? -1 : 1, a = sign > 0 ? low : -high, b = sign > 0 ? high : -low;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        double p = erfc(-a / sqrt(2)) / 2, share = erfc(-b / sqrt(2)) / 2 - p;
        double z = sign * reference_quantile(p + share * reference_number(r, i));
        r->result[0].data[i] = r->attribute[TRUNCATED_MEAN].number + r->attribute[TRUNCATED_DEVIATION].number * z;
    }
}

static void reference_rng_gamma(const graph_reference *r) {
    const int64_t count = graph_reference_count(&r->result[0]);
    const bool wide = r->operand[0].dtype == DLC_F64;
#define NUMBER(k) reference_uniform_number(r, 1, r->attribute + GAMMA_SEED, wide, (k)*count + i)
    for (int64_t i = 0; i < count; i++) {
        const double alpha = r->operand[0].data[i], d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
        double v = 1, found;
        for (int k = 0; k < 8; k++) {
            double x = sqrt(-2 * log(1 - NUMBER(k))) * cos(2 * M_PI * NUMBER(8 + k));
            found = pow(1 + x / sqrt(9 * d), 3);
            if (!(found > 0 && log(NUMBER(16 + k)) < x * x / 2 + d - d * found + d * log(found))) continue;
            v = found;
            break;
        }
        r->result[0].data[i] = alpha >= 0 ? d * v * (alpha < 1 ? pow(1 - NUMBER(24), 1 / alpha) : 1) : NAN;
    }
#undef NUMBER
}

static void reference_rng_bernoulli(const graph_reference *r) {
    bool wide = r->operand[0].dtype == DLC_F64;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] =
            reference_uniform_number(r, 1, r->attribute + BERNOULLI_SEED, wide, i) < r->operand[0].data[i];
}

static void reference_rng_categorical(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0];
    const int64_t classes = x->dim[x->rank - 1], samples = r->attribute[CATEGORICAL_SAMPLES].integer;
    bool wide = x->dtype == DLC_F64;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        double most = -INFINITY;
        for (int64_t c = 0; c < classes; c++) {
            double u = reference_uniform_number(r, 1, r->attribute + CATEGORICAL_SEED, wide, i * classes + c);
            double score = x->data[i / samples * classes + c] - log(-log(u));
            if (score <= most) continue;
            most = score;
            r->result[0].data[i] = (double)c;
        }
    }
}

#endif

/* ---- rows */

#define FORM(name_, least_, most_, operands_, dtypes_, infer_) \
    COMPOSITE_ROW(name_, least_, most_, 1, operands_, dtypes_), .infer = infer_
#define KEYED                                                                                 \
    {"seed", GRAPH_ATTR_INTEGER, NULL, "0", "key, where the operand is left out"}, {          \
        "stream", GRAPH_ATTR_INTEGER, NULL, "auto", "tells calls with one key apart; 32 bits" \
    }
#define NUMBERS                                                         \
    {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result"}, \
        {"dtype", GRAPH_ATTR_DTYPE, NULL, "f32", "element type of the result"}, KEYED

static const graph_op row_rng_exponential = {
    FORM(rng_exponential, 0, 1, "[key]", "float", infer_numbers),
    GRAPH_NO_GRADIENT,
    .attribute = {NUMBERS, {"rate", GRAPH_ATTR_FLOAT, NULL, "1.0", "1 over the mean"}},
    .tolerance = 16,
    .samples =
        "rng_exponential(shape=[5, 7], stream=0)\nrng_exponential(shape=[67], dtype=f64, stream=1, seed=3, rate=2.5)\n"
        "rng_exponential(i64[], shape=[13], dtype=f16, stream=2)\nrng_exponential(shape=[3, 0], stream=2)",
    .doc = "-log(1 - u)/rate with u of [0, 1) as rng_uniform gives it for key and stream (f32, f64 for f64).",
};
static const graph_op row_rng_gumbel = {
    FORM(rng_gumbel, 0, 1, "[key]", "float", infer_numbers),
    GRAPH_NO_GRADIENT,
    .attribute = {NUMBERS},
    .tolerance = 64,
    .samples = "rng_gumbel(shape=[5, 7], stream=0)\nrng_gumbel(shape=[67], dtype=f64, stream=1, seed=3)\n"
               "rng_gumbel(i64[], shape=[13], dtype=bf16, stream=2)\nrng_gumbel(shape=[], stream=2)",
    .doc =
        "-log(-log(u)) with u of [0, 1) as rng_uniform gives it for key and stream (f32, f64 for f64); -inf where u is 0.",
};
static const graph_op row_normal_quantile = {
    .aliases = "ndtri",
    FORM(normal_quantile, 1, 1, "p", "float", graph_infer_map),
    .tolerance = 16,
    .samples =
        "normal_quantile(T[17, 23] in 0..1)\nnormal_quantile(T[67] in 0..0.1)\nnormal_quantile(T[29] in 0..0.00001)\n"
        "normal_quantile(T[] in 0..1)\nnormal_quantile(T[3, 0, 2])\nnormal_quantile(T[5] in -1..0)",
    .doc =
        "The x with normal_cdf(x) = p: -inf at 0, inf at 1, NaN beyond. Wichura 1988 (AS 241); JAX scipy.special.ndtri. The inverse of "
        "erf is normal_quantile((x + 1)/2)/sqrt(2).",
};
static const graph_op row_rng_truncated_normal = {
    FORM(rng_truncated_normal, 0, 1, "[key]", "float", infer_rng_truncated_normal),
    GRAPH_NO_GRADIENT,
    .attribute = {NUMBERS,
                  {"mean", GRAPH_ATTR_FLOAT, NULL, "0.0", "mean of the whole distribution"},
                  {"deviation", GRAPH_ATTR_FLOAT, NULL, "1.0", "its standard deviation"},
                  {"low", GRAPH_ATTR_FLOAT, NULL, "-2.0", "lower end, in deviations from the mean"},
                  {"high", GRAPH_ATTR_FLOAT, NULL, "2.0", "upper end"}},
    .tolerance = 256,
    .samples =
        "rng_truncated_normal(shape=[5, 7], stream=0)\nrng_truncated_normal(shape=[67], dtype=f64, stream=1, seed=3)\n"
        "rng_truncated_normal(i64[], shape=[13], dtype=f16, stream=2)\n"
        "rng_truncated_normal(shape=[29], stream=2, mean=-1.5, deviation=4.0, low=-0.5, high=3.0)\n"
        "rng_truncated_normal(shape=[29], stream=3, low=5.0, high=6.0)\n"
        "rng_truncated_normal(shape=[3, 0], stream=2)\nrng_truncated_normal(shape=[], dtype=bf16, stream=2)",
    .doc =
        "Normal numbers between two ends: mean + deviation*z with z the normal_quantile of cdf(low) + (cdf(high) - cdf(low))*u, u of "
        "[0, 1) as rng_uniform gives it for key and stream (f32, f64 for f64); with low above 0 the same mirrored, from -high to "
        "-low. PyTorch trunc_normal_; JAX random.truncated_normal.",
};
static const graph_op row_rng_gamma = {
    FORM(rng_gamma, 1, 2, "alpha [key]", "float", infer_rng_gamma),
    .attribute = {KEYED},
    .tolerance = 256,
    .samples =
        "rng_gamma(T[67] in 1..9, i64[], stream=1)\nrng_gamma(T[5, 7] in 0.1..1, stream=0)\n"
        "rng_gamma(T[] in 2..3, stream=3, seed=12)\nrng_gamma(T[0, 2], stream=3)\nrng_gamma(T[31] in 20..99, stream=9)",
    .doc =
        "Gamma numbers of shape alpha and scale 1, for each element of alpha: d*v for the first of 8 tries of Marsaglia and Tsang that "
        "is good (d where none is: once in some 10^10), d = alpha - 1/3; for alpha below 1 those of alpha + 1 times u^(1/alpha). "
        "Tries take the numbers of rng_uniform of shape [25, ...]: u1 and u2 (8 each) for the normal number sqrt(-2 log(1 - u1)) "
        "cos(2 pi u2), u3 (8) for the choice, one for u. NaN where alpha is negative. f32, f64 for f64. Marsaglia and Tsang "
        "2000. Dirichlet, beta and chi-squared numbers are made of them.",
};
static const graph_op row_rng_bernoulli = {
    FORM(rng_bernoulli, 1, 2, "p [key]", "float", infer_rng_bernoulli),
    GRAPH_NO_GRADIENT,
    .attribute = {KEYED},
    .samples = "rng_bernoulli(T[67] in 0..1, i64[], stream=1)\nrng_bernoulli(T[5, 7] in 0..1, stream=0)\n"
               "rng_bernoulli(T[] in 0..1, stream=3, seed=12)\nrng_bernoulli(T[0, 2] in 0..1, stream=3)",
    .doc =
        "true with probability p: u < p with u of [0, 1) as rng_uniform gives it for key and stream (f32, f64 for f64). ONNX "
        "Bernoulli.",
};
static const graph_op row_rng_categorical = {
    FORM(rng_categorical, 1, 2, "logits [key]", "float", infer_rng_categorical),
    GRAPH_NO_GRADIENT,
    .attribute = {{"samples", GRAPH_ATTR_INTEGER, NULL, NULL, "drawn from each distribution, with replacement"}, KEYED},
    .samples =
        "rng_categorical(T[2, 3, 4], i64[], samples=2, stream=1)\nrng_categorical(T[3, 7], samples=5, stream=0)\n"
        "rng_categorical(T[9], samples=1, stream=7, seed=5)\nrng_categorical(T[2, 3], samples=0, stream=7)",
    .doc =
        "Classes drawn from the distributions softmax(logits) along the last axis: logits [..., classes], result i64 [..., "
        "samples]: the class whose logit plus a Gumbel number (rng_gumbel of shape [..., samples, classes]) is greatest. "
        "ONNX Multinomial; Gumbel 1954.",
};

const graph_op *const graph_ops_distribution[] = {
    &row_normal_quantile, &row_rng_truncated_normal, &row_rng_gamma,       &row_rng_exponential,
    &row_rng_gumbel,      &row_rng_bernoulli,        &row_rng_categorical, NULL};
