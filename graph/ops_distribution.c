/* Random numbers of other distributions, made of rng_uniform: pure functions of key and stream. */
#include "graph/build.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* Attributes of those that make numbers: as of rng_uniform. */
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

/* Numbers of [0, 1). */
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

/* The greatest of logits + Gumbel numbers: index along the last axis */
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
    uint64_t block = (uint64_t)(wide ? i / 2 : i / 4);
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)seed[1].integer, 0};
    uint32_t k[2] = {(uint32_t)k64, (uint32_t)(k64 >> 32)};
    for (int round = 0; round < 10; round++) { /* Philox4x32 */
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
    }
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

#define FORM(name_, least_, most_, operands_, infer_)                                                   \
    .name = #name_, .class_ = GRAPH_COMPOSITE, .min_inputs = least_, .max_inputs = most_, .results = 1, \
    .operands = operands_, .infer = infer_, .expand = expand_##name_, .reference = GRAPH_REFERENCE(reference_##name_)
#define KEYED                                                                                 \
    {"seed", GRAPH_ATTR_INTEGER, NULL, "0", "key, where the operand is left out"}, {          \
        "stream", GRAPH_ATTR_INTEGER, NULL, "auto", "tells calls with one key apart; 32 bits" \
    }
#define NUMBERS                                                         \
    {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result"}, \
        {"dtype", GRAPH_ATTR_DTYPE, NULL, "f32", "element type of the result"}, KEYED

static const graph_op row_rng_exponential = {
    FORM(rng_exponential, 0, 1, "[key]", infer_numbers),
    .dtypes = "float",
    GRAPH_NO_GRADIENT,
    .attribute = {NUMBERS, {"rate", GRAPH_ATTR_FLOAT, NULL, "1.0", "1 over the mean"}},
    .tolerance = 16,
    .samples =
        "rng_exponential(shape=[5, 7], stream=0)\nrng_exponential(shape=[67], dtype=f64, stream=1, seed=3, rate=2.5)\n"
        "rng_exponential(i64[], shape=[13], dtype=f16, stream=2)\nrng_exponential(shape=[3, 0], stream=2)",
    .doc = "-log(1 - u)/rate with u of [0, 1) as rng_uniform gives it for key and stream (f32, f64 for f64).",
};
static const graph_op row_rng_gumbel = {
    FORM(rng_gumbel, 0, 1, "[key]", infer_numbers),
    .dtypes = "float",
    GRAPH_NO_GRADIENT,
    .attribute = {NUMBERS},
    .tolerance = 64,
    .samples = "rng_gumbel(shape=[5, 7], stream=0)\nrng_gumbel(shape=[67], dtype=f64, stream=1, seed=3)\n"
               "rng_gumbel(i64[], shape=[13], dtype=bf16, stream=2)\nrng_gumbel(shape=[], stream=2)",
    .doc =
        "-log(-log(u)) with u of [0, 1) as rng_uniform gives it for key and stream (f32, f64 for f64); -inf where u is 0.",
};
static const graph_op row_rng_bernoulli = {
    FORM(rng_bernoulli, 1, 2, "p [key]", infer_rng_bernoulli),
    GRAPH_NO_GRADIENT,
    .dtypes = "float",
    .attribute = {KEYED},
    .samples = "rng_bernoulli(T[67] in 0..1, i64[], stream=1)\nrng_bernoulli(T[5, 7] in 0..1, stream=0)\n"
               "rng_bernoulli(T[] in 0..1, stream=3, seed=12)\nrng_bernoulli(T[0, 2] in 0..1, stream=3)",
    .doc =
        "true with probability p: u < p with u of [0, 1) as rng_uniform gives it for key and stream (f32, f64 for f64). ONNX "
        "Bernoulli.",
};
static const graph_op row_rng_categorical = {
    FORM(rng_categorical, 1, 2, "logits [key]", infer_rng_categorical),
    GRAPH_NO_GRADIENT,
    .dtypes = "float",
    .attribute = {{"samples", GRAPH_ATTR_INTEGER, NULL, NULL, "drawn from each distribution, with replacement"}, KEYED},
    .samples =
        "rng_categorical(T[2, 3, 4], i64[], samples=2, stream=1)\nrng_categorical(T[3, 7], samples=5, stream=0)\n"
        "rng_categorical(T[9], samples=1, stream=7, seed=5)\nrng_categorical(T[2, 3], samples=0, stream=7)",
    .doc =
        "Classes drawn from the distributions softmax(logits) along the last axis: logits [..., classes], result i64 [..., "
        "samples]: the class whose logit plus a Gumbel number (rng_gumbel of shape [..., samples, classes]) is greatest. "
        "ONNX Multinomial; Gumbel 1954.",
};

const graph_op *const graph_ops_distribution[] = {&row_rng_exponential, &row_rng_gumbel, &row_rng_bernoulli,
                                                  &row_rng_categorical, NULL};
