/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011). A number is a pure function of key (the seed), stream and position, so that there is no state, and results depend neither on
 * threads nor on tiling. Each call gets a stream of its own from the graph, so that two equal calls are not merged. */
#include "graph/build.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* The attributes that all rows begin with (RANDOM_ATTRIBUTES); the default of `dtype` differs. */
enum { RANDOM_SHAPE, RANDOM_DTYPE, RANDOM_SEED, RANDOM_STREAM, RANDOM_FIRST };
enum { BITS_PART = RANDOM_FIRST };
enum { UNIFORM_LOW = RANDOM_FIRST, UNIFORM_HIGH };
enum { NORMAL_MEAN = RANDOM_FIRST, NORMAL_DEVIATION };

static void infer_random(graph_infer *infer) {
    const graph_attribute *shape = &infer->attribute[RANDOM_SHAPE];
    if (infer->operand[0].rank >= 0) {
        graph_infer_dtype(infer, 0, DLC_I64);
        graph_infer_rank(infer, 0, 0);
    }
    if (infer->attribute[RANDOM_STREAM].integer < 0 || infer->attribute[RANDOM_STREAM].integer > UINT32_MAX)
        graph_infer_fail(infer, "stream %lld, expected 0 to %lld", (long long)infer->attribute[RANDOM_STREAM].integer,
                         (long long)UINT32_MAX);
    graph_infer_product(infer, shape->count, shape->dims);
    infer->result[0] = (graph_shape){.dtype = (dlc_dtype)infer->attribute[RANDOM_DTYPE].integer, .rank = shape->count};
    for (int i = 0; i < shape->count; i++) infer->result[0].dim[i] = shape->dims[i];
}

/* ---- rng_bits --------------------------------------------------------------------------------------------------- */

#define PHILOX_ROUNDS 10
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

static void infer_bits(graph_infer *infer) {
    dlc_dtype dtype = (dlc_dtype)infer->attribute[RANDOM_DTYPE].integer;
    int64_t part = infer->attribute[BITS_PART].integer;
    if (dtype != DLC_I32 && dtype != DLC_I64)
        graph_infer_fail(infer, "dtype is %s, expected i32 or i64", lib_dtypes[dtype].name);
    if (part < 0 || part > UINT32_MAX)
        graph_infer_fail(infer, "part %lld, expected 0 to %lld", (long long)part, (long long)UINT32_MAX);
    infer_random(infer);
}

static tir_expr word_of(tir_pool *pool, uint32_t word) {
    return tir_bits(pool, DLC_U32, word);
}

static void philox(tir_pool *pool, tir_expr counter[4], tir_expr key[2]) {
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        tir_expr m0 = word_of(pool, PHILOX_M0), m1 = word_of(pool, PHILOX_M1);
        tir_expr high0 = tir_binary(pool, TIR_MULHI, m0, counter[0]), low0 = tir_mul(pool, m0, counter[0]);
        tir_expr high1 = tir_binary(pool, TIR_MULHI, m1, counter[2]), low1 = tir_mul(pool, m1, counter[2]);
        counter[0] = tir_binary(pool, TIR_XOR, tir_binary(pool, TIR_XOR, high1, counter[1]), key[0]);
        counter[1] = low1;
        counter[2] = tir_binary(pool, TIR_XOR, tir_binary(pool, TIR_XOR, high0, counter[3]), key[1]);
        counter[3] = low0;
        key[0] = tir_add(pool, key[0], word_of(pool, PHILOX_W0));
        key[1] = tir_add(pool, key[1], word_of(pool, PHILOX_W1));
    }
}

/* Sets words[] to the low and the high 32 bits of a u64. */
static void split_words(tir_pool *pool, tir_expr number, tir_expr words[2]) {
    words[0] = tir_cast(pool, DLC_U32, number);
    words[1] = tir_cast(pool, DLC_U32, tir_binary(pool, TIR_SHR, number, tir_int(pool, DLC_U64, 32)));
}

/* Element e, in row-major order, is word e mod 4 of block e div 4; an i64 is two words, 2(e mod 2) and the next, of block e div 2. A
 * block is the function's value at counter {block, stream, part} with the seed as key. */
static tir_expr element_bits(graph_compute *c, const tir_expr *axis) {
    tir_pool *pool = c->pool;
    const graph_shape *shape = &c->result_shape[0];
    tir_expr element = tir_index(pool, 0);
    for (int i = 0; i < shape->rank; i++) element = tir_add(pool, tir_mul(pool, element, shape->dim[i]), axis[i]);
    bool wide = shape->dtype == DLC_I64;
    tir_expr per_block = tir_index(pool, wide ? 2 : 4), block = tir_div(pool, element, per_block);
    tir_expr counter[4], key[2];
    split_words(pool, tir_cast(pool, DLC_U64, block), counter);
    if (tir_range(pool, block).high <= UINT32_MAX) counter[1] = word_of(pool, 0);
    counter[2] = word_of(pool, (uint32_t)c->attribute[RANDOM_STREAM].integer);
    counter[3] = word_of(pool, (uint32_t)c->attribute[BITS_PART].integer);
    tir_expr seed = c->operand[0] == GRAPH_NONE ? tir_int(pool, DLC_I64, c->attribute[RANDOM_SEED].integer)
                                                : graph_operand_load(c, 0, NULL);
    split_words(pool, tir_bitcast(pool, DLC_U64, seed), key);
    philox(pool, counter, key);
    tir_expr place = tir_rem(pool, element, per_block), word[4];
    for (int i = 0; i < 4; i++) word[i] = counter[i];
    if (wide)
        for (int i = 0; i < 2; i++)
            word[i] = tir_or(
                pool, tir_cast(pool, DLC_U64, counter[2 * i]),
                tir_binary(pool, TIR_SHL, tir_cast(pool, DLC_U64, counter[2 * i + 1]), tir_int(pool, DLC_U64, 32)));
    return tir_bitcast(pool, (tir_dtype)shape->dtype, tir_pick(pool, place, wide ? 2 : 4, word));
}

static void compute_bits(graph_compute *c) {
    graph_compute_elements(c, element_bits);
}

/* ---- rng_uniform, rng_normal ------------------------------------------------------------------------------------ */

/* The number of random bits in a number of [0, 1): as many as the dtype has digits, so that all multiples of 2^-digits occur and none
 * is rounded. */
static int digits_of(dlc_dtype dtype) {
    return lib_float_of(dtype).digits;
}

/* (bits + offset) * 2^-digits */
static graph_id emit_fraction(const graph_expand *e, dlc_dtype dtype, int part, int offset) {
    graph *g = e->g;
    const graph_attribute *a = e->attribute;
    dlc_dtype integer = dtype == DLC_F64 ? DLC_I64 : DLC_I32;
    graph_id bits = graph_emit_with(
        g, "rng_bits", 1, e->input, 5,
        (graph_setting[]){graph_set_dims("shape", a[RANDOM_SHAPE].count, a[RANDOM_SHAPE].dims),
                          graph_set_integer("dtype", integer), graph_set_integer("seed", a[RANDOM_SEED].integer),
                          graph_set_integer("stream", a[RANDOM_STREAM].integer), graph_set_integer("part", part)});
    int digits = digits_of(dtype);
    graph_id number = graph_and(g, bits, graph_scalar_i64(g, integer, (INT64_C(1) << digits) - 1));
    if (offset) number = graph_add(g, number, graph_scalar_i64(g, integer, offset));
    number = graph_cast(g, number, dtype);
    return graph_mul(g, number, graph_scalar_like(g, number, 1 / (double)(INT64_C(1) << digits)));
}

static void infer_real(graph_infer *infer) {
    dlc_dtype dtype = (dlc_dtype)infer->attribute[RANDOM_DTYPE].integer;
    if (!lib_dtype_is_float(dtype)) graph_infer_fail(infer, "dtype is %s, expected a float", lib_dtypes[dtype].name);
    infer_random(infer);
}

static graph_id scaled(graph *g, graph_id x, double factor, double offset) {
    if (factor != 1) x = graph_mul(g, x, graph_scalar_like(g, x, factor));
    if (offset != 0) x = graph_add(g, x, graph_scalar_like(g, x, offset));
    return x;
}

static void expand_uniform(graph_expand *e) {
    double low = e->attribute[UNIFORM_LOW].number, high = e->attribute[UNIFORM_HIGH].number;
    e->result[0] = scaled(e->g, emit_fraction(e, (dlc_dtype)e->attribute[RANDOM_DTYPE].integer, 0, 0), high - low, low);
}

/* Box and Muller 1958: sqrt(-2 log u) cos(2 pi v), u in (0, 1]. */
static void expand_normal(graph_expand *e) {
    graph *g = e->g;
    dlc_dtype dtype = (dlc_dtype)e->attribute[RANDOM_DTYPE].integer, wide = graph_sum_dtype(dtype);
    graph_id u = emit_fraction(e, wide, 0, 1), v = emit_fraction(e, wide, 1, 0);
    graph_id radius = graph_sqrt(g, graph_mul(g, graph_log(g, u), graph_scalar_like(g, u, -2)));
    graph_id y = graph_mul(g, radius, graph_cos(g, graph_mul(g, v, graph_scalar_like(g, v, 6.283185307179586477))));
    e->result[0] =
        graph_cast(g, scaled(g, y, e->attribute[NORMAL_DEVIATION].number, e->attribute[NORMAL_MEAN].number), dtype);
}

/* ---- dropout ---------------------------------------------------------------------------------------------------- */

enum { DROPOUT_RATE, DROPOUT_SEED, DROPOUT_STREAM };

static void infer_dropout(graph_infer *infer) {
    const double rate = infer->attribute[DROPOUT_RATE].number;
    if (!(rate >= 0 && rate < 1)) graph_infer_fail(infer, "rate is %g, expected at least 0 and below 1", rate);
    if (infer->inputs > 1 && infer->operand[1].rank >= 0) {
        graph_infer_dtype(infer, 1, DLC_I64);
        graph_infer_rank(infer, 1, 0);
    }
    infer->result[0] = infer->operand[0];
}

static void expand_dropout(graph_expand *e) {
    graph *g = e->g;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    const double rate = e->attribute[DROPOUT_RATE].number;
    graph_id key = e->inputs > 1 ? e->input[1] : 0;
    graph_id number = graph_emit_with(
        g, "rng_uniform", 1, &key, 4,
        (graph_setting[]){graph_set_dims("shape", shape.rank, shape.dim), graph_set_integer("dtype", DLC_F32),
                          graph_set_integer("seed", e->attribute[DROPOUT_SEED].integer),
                          graph_set_integer("stream", e->attribute[DROPOUT_STREAM].integer)});
    graph_id x = graph_cast(g, e->input[0], graph_sum_dtype(shape.dtype)),
             dropped = graph_lt(g, number, graph_scalar_like(g, number, rate));
    graph_id y = graph_select(g, dropped, graph_full_like(g, x, 0), scaled(g, x, 1 / (1 - rate), 0));
    e->result[0] = graph_cast(g, y, shape.dtype);
}

/* ---- references ------------------------------------------------------------------------------------------------- */

#ifdef DLC_REFERENCE

static uint64_t reference_word(const graph_reference *r, bool wide, int64_t i, int64_t part) {
    bool given = graph_reference_given(r, 0);
    uint64_t seed = (uint64_t)(given ? (int64_t)r->operand[0].data[0] : r->attribute[RANDOM_SEED].integer);
    uint32_t words[4];
    graph_reference_philox(seed, (uint64_t)(wide ? i / 2 : i / 4), (uint64_t)r->attribute[RANDOM_STREAM].integer,
                           (uint64_t)part, words);
    return wide ? words[i % 2 * 2] | (uint64_t)words[i % 2 * 2 + 1] << 32 : words[i % 4];
}

/* A double does not hold 64 bits: the reference is the double nearest to the result, as which the test reads the result. */
static void reference_bits(const graph_reference *r) {
    bool wide = r->result[0].dtype == DLC_I64;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        uint64_t word = reference_word(r, wide, i, r->attribute[BITS_PART].integer);
        r->result[0].data[i] = wide ? (double)(int64_t)word : (double)(int32_t)word;
    }
}

static double reference_fraction(const graph_reference *r, dlc_dtype dtype, int64_t i, int64_t part, int offset) {
    int digits = lib_float_of(dtype).digits;
    uint64_t word = reference_word(r, dtype == DLC_F64, i, part) & ((UINT64_C(1) << digits) - 1);
    return ldexp((double)(word + (uint64_t)offset), -digits);
}

static void reference_uniform(const graph_reference *r) {
    double low = r->attribute[UNIFORM_LOW].number, high = r->attribute[UNIFORM_HIGH].number;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++)
        r->result[0].data[i] = low + (high - low) * reference_fraction(r, r->result[0].dtype, i, 0, 0);
}

static void reference_normal(const graph_reference *r) {
    dlc_dtype dtype = r->result[0].dtype == DLC_F64 ? DLC_F64 : DLC_F32;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        double u = reference_fraction(r, dtype, i, 0, 1), v = reference_fraction(r, dtype, i, 1, 0);
        r->result[0].data[i] = r->attribute[NORMAL_MEAN].number +
                               r->attribute[NORMAL_DEVIATION].number * sqrt(-2 * log(u)) * cos(2 * M_PI * v);
    }
}

static void reference_dropout(const graph_reference *r) {
    const double rate = r->attribute[DROPOUT_RATE].number;
    for (int64_t i = 0; i < graph_reference_count(&r->result[0]); i++) {
        graph_attribute random[4] = {{0}};
        random[RANDOM_SEED] = r->attribute[DROPOUT_SEED];
        random[RANDOM_STREAM] = r->attribute[DROPOUT_STREAM];
        graph_reference uniform = *r;
        uniform.attribute = random;
        uniform.inputs = r->inputs - 1;
        uniform.operand = r->operand + 1;
        double number = reference_fraction(&uniform, DLC_F32, i, 0, 0);
        r->result[0].data[i] = number < rate ? 0 : r->operand[0].data[i] / (1 - rate);
    }
}

#endif

/* ---- rows ------------------------------------------------------------------------------------------------------- */

#define RANDOM_ATTRIBUTES(dtype_)                                                             \
    {"shape", GRAPH_ATTR_DIMS, NULL, NULL, "dimensions of the result"},                       \
        {"dtype", GRAPH_ATTR_DTYPE, NULL, dtype_, "element type of the result"},              \
        {"seed", GRAPH_ATTR_INTEGER, NULL, "0", "key, where the operand is left out"}, {      \
        "stream", GRAPH_ATTR_INTEGER, NULL, "auto", "tells calls with one key apart; 32 bits" \
    }

static const graph_op row_bits = {
    .name = "rng_bits",
    .class_ = GRAPH_SOURCE,
    .min_inputs = 0,
    .max_inputs = 1,
    .results = 1,
    .operands = "[key]",
    .dtypes = "i32 i64",
    .attribute = {RANDOM_ATTRIBUTES("i32"),
                  {"part", GRAPH_ATTR_INTEGER, NULL, "0", "further numbers of the same stream; 32 bits"}},
    .infer = infer_bits,
    .compute = compute_bits,
    GRAPH_NO_GRADIENT,
    .reference = GRAPH_REFERENCE(reference_bits),
    .samples = "rng_bits(shape=[5, 7], stream=0)\nrng_bits(shape=[67], stream=3, seed=12345678901234)\n"
               "rng_bits(shape=[], stream=1)\n"
               "rng_bits(shape=[3, 0, 2], stream=1)\nrng_bits(i64[], shape=[13], stream=2)\n"
               "rng_bits(shape=[5, 3], dtype=i64, stream=4294967295, seed=-7, part=3)\n"
               "rng_bits(i64[], shape=[2, 1, 3], dtype=i64, stream=9)",
    .doc = "Random bits: element e in row-major order is word e mod 4 of Philox4x32-10 with counter {e div 4 (64 "
           "bits), stream, part} and key, 64 bits; of dtype i64, words 2(e mod 2) (low half) and 2(e mod 2) + 1 at "
           "counter e div 2. key: i64 of rank 0. Salmon et al. 2011.",
};

static const graph_op row_uniform = {
    .name = "rng_uniform",
    .class_ = GRAPH_COMPOSITE,
    .min_inputs = 0,
    .max_inputs = 1,
    .results = 1,
    .operands = "[key]",
    .dtypes = "float",
    .attribute = {RANDOM_ATTRIBUTES("f32"),
                  {"low", GRAPH_ATTR_FLOAT, NULL, "0.0", "lowest number"},
                  {"high", GRAPH_ATTR_FLOAT, NULL, "1.0", "end of the range"}},
    .infer = infer_real,
    .expand = expand_uniform,
    GRAPH_NO_GRADIENT,
    .reference = GRAPH_REFERENCE(reference_uniform),
    .tolerance = 2,
    .bound = GRAPH_REFERENCE(graph_bound_random),
    .samples = "rng_uniform(shape=[5, 7], stream=0)\nrng_uniform(shape=[67], dtype=f64, stream=1, seed=3)\n"
               "rng_uniform(i64[], shape=[13], dtype=f16, stream=2)\nrng_uniform(shape=[13], dtype=bf16, stream=2)\n"
               "rng_uniform(shape=[13], stream=2, low=-1.5, high=4.0)\nrng_uniform(shape=[3, 0], stream=2)\n"
               "rng_uniform(shape=[], stream=2)",
    .doc = "low + (high - low)*u with u evenly distributed over the multiples of 2^-d of [0, 1), d the digits of "
           "dtype (f64 53, f32 24, f16 11, bf16 8): the low d bits of rng_bits. Rounding may reach high where low "
           "is not 0.",
};

static const graph_op row_normal = {
    .name = "rng_normal",
    .class_ = GRAPH_COMPOSITE,
    .min_inputs = 0,
    .max_inputs = 1,
    .results = 1,
    .operands = "[key]",
    .dtypes = "float",
    .attribute = {RANDOM_ATTRIBUTES("f32"),
                  {"mean", GRAPH_ATTR_FLOAT, NULL, "0.0", "mean"},
                  {"deviation", GRAPH_ATTR_FLOAT, NULL, "1.0", "standard deviation"}},
    .infer = infer_real,
    .expand = expand_normal,
    GRAPH_NO_GRADIENT,
    .reference = GRAPH_REFERENCE(reference_normal),
    .tolerance = 8,
    .bound = GRAPH_REFERENCE(graph_bound_random),
    .samples = "rng_normal(shape=[5, 7], stream=0)\nrng_normal(shape=[67], dtype=f64, stream=1, seed=3)\n"
               "rng_normal(i64[], shape=[13], dtype=f16, stream=2)\nrng_normal(shape=[13], dtype=bf16, stream=2)\n"
               "rng_normal(shape=[13], stream=2, mean=-1.5, deviation=4.0)\nrng_normal(shape=[3, 0], stream=2)",
    .doc = "mean + deviation * sqrt(-2 log u) * cos(2 pi v), u of (0, 1] from rng_bits with part 0, v of [0, 1) "
           "with part 1, in f32 (f64 for f64). Box and Muller 1958.",
};

static const graph_op row_dropout = {
    COMPOSITE_ROW(dropout, 1, 2, 1, "x [key]", "float"),
    .linear = 1,
    .attribute = {{"rate", GRAPH_ATTR_FLOAT, NULL, NULL, "probability that an element becomes 0; below 1"},
                  {"seed", GRAPH_ATTR_INTEGER, NULL, "0", "key, where the operand is left out"},
                  {"stream", GRAPH_ATTR_INTEGER, NULL, "auto", "tells calls with one key apart; 32 bits"}},
    .infer = infer_dropout,
    .tolerance = 1,
    .samples =
        "dropout(T[67], i64[], rate=0.5, stream=2)\ndropout(T[17, 23], rate=0.25, stream=1)\n"
        "dropout(T[5], rate=0.0, stream=0)\ndropout(T[], rate=0.9, stream=7, seed=3)\ndropout(T[3, 0], rate=0.5, stream=1)",
    .doc =
        "0 where the number that rng_uniform (f32, in row-major order) gives for the element is below rate, else x/(1 - rate). For "
        "training: leave it out for inference. Srivastava et al. 2014.",
};

const graph_op *const graph_ops_random[] = {&row_bits, &row_uniform, &row_normal, &row_dropout, NULL};
