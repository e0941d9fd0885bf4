/* The blocks, one function each. */
#include "bench/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

#define DIMS(...)                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { \
        __VA_ARGS__                                                          \
    }

static int new_value(bench_block *b, dlc_dtype dtype, int rank, const int64_t *dims) {
    if (b->count == BENCH_BLOCK_VALUES) abort();
    bench_block_value *v = &b->values[b->count];
    *v = (bench_block_value){.dtype = dtype, .rank = rank};
    memcpy(v->dims, dims, (size_t)rank * sizeof *dims);
    return b->count++;
}

/* No two operands have the same numbers, so that a result shows when they are confused. */
static int operand(bench_block *b, bool constant, dlc_dtype dtype, int rank, const int64_t *dims, double low,
                   double high) {
    int number = new_value(b, dtype, rank, dims);
    bench_block_value *v = &b->values[number];
    v->operand = true, v->constant = constant;
    v->low = low, v->high = high - 0.002 * (high - low) * number;
    return number;
}

static int input(bench_block *b, int rank, const int64_t *dims) {
    return operand(b, false, DLC_F32, rank, dims, -1, 1);
}

/* Constant weights, scaled so that sums of `terms` products are about as large as the factors. */
static int weights(bench_block *b, int64_t terms, int rank, const int64_t *dims) {
    double limit = sqrt(3.0 / (double)terms);
    return operand(b, true, DLC_F32, rank, dims, -limit, limit);
}

static int vector(bench_block *b, int64_t n, double low, double high) {
    return operand(b, true, DLC_F32, 1, &n, low, high);
}

static const int64_t *dims_of(const bench_block *b, int value) {
    return b->values[value].dims;
}

static int64_t last_of(const bench_block *b, int value) {
    return b->values[value].dims[b->values[value].rank - 1];
}

static double points_of(const bench_block *b, int value) {
    double points = 1;
    for (int d = 0; d < b->values[value].rank; d++) points *= (double)b->values[value].dims[d];
    return points;
}

#define INPUTS(...)                                                    \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) { \
        __VA_ARGS__                                                    \
    }

/* A value of the given shape; NULL: of the first input's. */
static int step(bench_block *b, bench_step_kind kind, int inputs, const int *input_list, int rank,
                const int64_t *dims) {
    const bench_block_value *like = &b->values[input_list[0]];
    int64_t copied[DLC_MAX_RANK];
    memcpy(copied, dims ? dims : like->dims, sizeof *copied * (size_t)(dims ? rank : like->rank));
    int number = new_value(b, DLC_F32, dims ? rank : like->rank, copied);
    bench_block_value *v = &b->values[number];
    v->kind = kind, v->inputs = inputs, v->part = b->parts;
    memcpy(v->input, input_list, (size_t)inputs * sizeof *input_list);
    return number;
}

static void next_part(bench_block *b) {
    b->parts++;
}

static int result(bench_block *b, int value) {
    b->values[value].result = true;
    return value;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------- */

static int map(bench_block *b, bench_step_kind kind, int x) {
    return step(b, kind, INPUTS(x), 0, NULL);
}
static int add(bench_block *b, int x, int y) {
    return step(b, BENCH_STEP_ADD, INPUTS(x, y), 0, NULL);
}
static int multiply(bench_block *b, int x, int y) {
    return step(b, BENCH_STEP_MUL, INPUTS(x, y), 0, NULL);
}

static int linear_by(bench_block *b, int x, int w, int bias, int64_t n, bool transposed) {
    int64_t dims[DLC_MAX_RANK], k = last_of(b, x);
    int rank = b->values[x].rank;
    memcpy(dims, dims_of(b, x), sizeof dims);
    dims[rank - 1] = n;
    b->flops += 2 * points_of(b, x) / (double)k * (double)(k * n);
    int y = step(b, BENCH_STEP_LINEAR, INPUTS(x, w, bias), rank, dims);
    b->values[y].number[0] = transposed;
    return y;
}

/* A linear layer with new weights. */
static int linear(bench_block *b, int x, int64_t n, bool bias, bool transposed) {
    int64_t k = last_of(b, x);
    int w = transposed ? weights(b, k, DIMS(n, k)) : weights(b, k, DIMS(k, n));
    int shift = bias ? vector(b, n, -0.1, 0.1) : -1;
    return linear_by(b, x, w, shift, n, transposed);
}

static int layer_norm(bench_block *b, int x) {
    int64_t n = last_of(b, x);
    int scale = vector(b, n, 0.5, 1.5), bias = vector(b, n, -0.1, 0.1);
    return step(b, BENCH_STEP_LAYER_NORM, INPUTS(x, scale, bias), 0, NULL);
}

static int rms_norm(bench_block *b, int x) {
    int scale = vector(b, last_of(b, x), 0.5, 1.5);
    return step(b, BENCH_STEP_RMS_NORM, INPUTS(x, scale), 0, NULL);
}

static int rotary(bench_block *b, int x, int64_t heads, int cosine, int sine) {
    int y = step(b, BENCH_STEP_ROTARY, INPUTS(x, cosine, sine), 0, NULL);
    b->values[y].number[0] = heads;
    return y;
}

static int split_heads(bench_block *b, int x, int64_t heads) {
    const int64_t *d = dims_of(b, x);
    int y = step(b, BENCH_STEP_HEADS, INPUTS(x), DIMS(d[0], heads, d[1], d[2] / heads));
    b->values[y].number[0] = heads;
    return y;
}

static int merge_heads(bench_block *b, int x) {
    const int64_t *d = dims_of(b, x);
    return step(b, BENCH_STEP_MERGE, INPUTS(x), DIMS(d[0], d[2], d[1] * d[3]));
}

static int attend(bench_block *b, int q, int k, int v, bool causal) {
    int y = step(b, BENCH_STEP_ATTEND, INPUTS(q, k, v), 0, NULL);
    b->values[y].number[0] = causal;
    b->flops += 4 * points_of(b, q) * (double)dims_of(b, k)[2] * (causal ? 0.5 : 1);
    return y;
}

/* Attention of q, k, v [b, n, heads * d]. */
static int attention(bench_block *b, int q, int k, int v, int64_t heads, int64_t shared, bool causal) {
    int qs = split_heads(b, q, heads), ks = split_heads(b, k, shared), vs = split_heads(b, v, shared);
    return merge_heads(b, attend(b, qs, ks, vs, causal));
}

/* A convolution that keeps the image's size, except for the stride. */
static int convolution(bench_block *b, int x, int64_t co, int64_t side, int64_t stride, int64_t groups) {
    const int64_t *d = dims_of(b, x);
    int64_t ci = d[1] / groups, n = d[0], h = (d[2] - 1) / stride + 1, w = (d[3] - 1) / stride + 1;
    int f = weights(b, ci * side * side, DIMS(co, ci, side, side)), bias = vector(b, co, -0.1, 0.1);
    int y = step(b, BENCH_STEP_CONV, INPUTS(x, f, bias), DIMS(n, co, h, w));
    b->values[y].number[0] = stride, b->values[y].number[1] = side / 2, b->values[y].number[2] = groups;
    b->flops += 2 * points_of(b, y) * (double)(ci * side * side);
    return y;
}

static int convolution_up(bench_block *b, int x, int64_t co) {
    const int64_t *d = dims_of(b, x);
    int64_t ci = d[1], dims[4] = {d[0], co, 2 * d[2], 2 * d[3]};
    int f = weights(b, ci, DIMS(ci, co, 2, 2)), bias = vector(b, co, -0.1, 0.1);
    int y = step(b, BENCH_STEP_CONV_UP, INPUTS(x, f, bias), 4, dims);
    b->flops += 2 * points_of(b, y) * (double)ci;
    return y;
}

/* ---- blocks of networks ------------------------------------------------------------------------------------------------------ */

/* An encoder layer: attention, then two layers with GELU, each with its residual and norm (Devlin et al. 2019). */
static void bert(bench_block *b, const bench_shape *s) {
    int64_t d = bench_number(s, "d", 768), heads = bench_number(s, "heads", 12);
    int x = input(b, DIMS(bench_number(s, "b", 1), bench_number(s, "n", 128), d));
    int q = linear(b, x, d, true, false), k = linear(b, x, d, true, false), v = linear(b, x, d, true, false);
    next_part(b);
    int a = attention(b, q, k, v, heads, heads, false);
    next_part(b);
    int r = add(b, linear(b, a, d, true, false), x);
    next_part(b);
    int h = layer_norm(b, r);
    next_part(b);
    int up = map(b, BENCH_STEP_GELU, linear(b, h, 4 * d, true, false));
    next_part(b);
    int down = add(b, linear(b, up, d, true, false), h);
    next_part(b);
    result(b, layer_norm(b, down));
}

/* A decoder layer: RMS norms before, rotary positions, heads of queries that share keys, SwiGLU (Touvron et al. 2023). */
static void llama(bench_block *b, const bench_shape *s) {
    int64_t d = bench_number(s, "d", 1024), heads = bench_number(s, "heads", 16),
            shared = bench_number(s, "kv_heads", 4);
    int64_t n = bench_number(s, "n", 64), wide = bench_number(s, "hidden", 2816), each = d / heads;
    int x = input(b, DIMS(bench_number(s, "b", 1), n, d));
    int cosine = operand(b, true, DLC_F32, DIMS(n, each / 2), -1, 1);
    int sine = operand(b, true, DLC_F32, DIMS(n, each / 2), -1, 1);
    int y = rms_norm(b, x);
    next_part(b);
    int q = linear(b, y, d, false, false), k = linear(b, y, shared * each, false, false);
    int v = linear(b, y, shared * each, false, false);
    next_part(b);
    q = rotary(b, q, heads, cosine, sine), k = rotary(b, k, shared, cosine, sine);
    next_part(b);
    int a = attention(b, q, k, v, heads, shared, true);
    next_part(b);
    int r = add(b, linear(b, a, d, false, false), x);
    next_part(b);
    int h = rms_norm(b, r);
    next_part(b);
    int gate = map(b, BENCH_STEP_SILU, linear(b, h, wide, false, false));
    int up = linear(b, h, wide, false, false);
    int gated = multiply(b, gate, up);
    next_part(b);
    result(b, add(b, linear(b, gated, d, false, false), r));
}

/* Each channel filtered by itself, a norm of channels, two layers with GELU, a scale, the residual (Liu et al. 2022). */
static void convnext(bench_block *b, const bench_shape *s) {
    int64_t c = bench_number(s, "c", 96), h = bench_number(s, "h", 56);
    int x = input(b, DIMS(bench_number(s, "b", 1), c, h, h));
    int y = convolution(b, x, c, 7, 1, c);
    next_part(b);
    const int64_t *d = dims_of(b, y);
    y = step(b, BENCH_STEP_LAST, INPUTS(y), DIMS(d[0], d[2], d[3], d[1]));
    y = layer_norm(b, y);
    next_part(b);
    y = map(b, BENCH_STEP_GELU, linear(b, y, 4 * c, true, false));
    next_part(b);
    y = linear(b, y, c, true, false);
    y = multiply(b, y, vector(b, c, 0.5, 1.5));
    next_part(b);
    y = step(b, BENCH_STEP_FIRST, INPUTS(y), DIMS(dims_of(b, x)[0], c, h, h));
    result(b, add(b, y, x));
}

/* 1 x 1, 3 x 3, 1 x 1, the residual (He et al. 2016). */
static void bottleneck(bench_block *b, const bench_shape *s) {
    int64_t c = bench_number(s, "c", 256), h = bench_number(s, "h", 56), mid = c / 4;
    int x = input(b, DIMS(bench_number(s, "b", 1), c, h, h));
    int y = map(b, BENCH_STEP_RELU, convolution(b, x, mid, 1, 1, 1));
    next_part(b);
    y = map(b, BENCH_STEP_RELU, convolution(b, y, mid, 3, 1, 1));
    next_part(b);
    y = add(b, convolution(b, y, c, 1, 1, 1), x);
    result(b, map(b, BENCH_STEP_RELU, y));
}

/* A level of a U-Net and the level below: down, up again, concatenated with the skip connection (Ronneberger et al. 2015). */
static void unet(bench_block *b, const bench_shape *s) {
    int64_t c = bench_number(s, "c", 64), h = bench_number(s, "h", 64);
    int x = input(b, DIMS(bench_number(s, "b", 1), c, h, h));
    int y = map(b, BENCH_STEP_RELU, convolution(b, x, c, 3, 1, 1));
    next_part(b);
    int past = map(b, BENCH_STEP_RELU, convolution(b, y, c, 3, 1, 1));
    next_part(b);
    y = step(b, BENCH_STEP_MAX_POOL, INPUTS(past), DIMS(dims_of(b, x)[0], c, h / 2, h / 2));
    next_part(b);
    y = map(b, BENCH_STEP_RELU, convolution(b, y, 2 * c, 3, 1, 1));
    next_part(b);
    y = map(b, BENCH_STEP_RELU, convolution(b, y, 2 * c, 3, 1, 1));
    next_part(b);
    y = convolution_up(b, y, c);
    next_part(b);
    y = step(b, BENCH_STEP_CONCAT, INPUTS(past, y), DIMS(dims_of(b, x)[0], 2 * c, h, h));
    next_part(b);
    result(b, map(b, BENCH_STEP_RELU, convolution(b, y, c, 3, 1, 1)));
}

/* Norm, two projections, step sizes and matrices of each position, the scan, a gate, the projection back and the residual; without the
 * short convolution (Gu, Dao 2023). Time in front. */
static void mamba(bench_block *b, const bench_shape *s) {
    int64_t n = bench_number(s, "n", 64), batch = bench_number(s, "b", 1), d = bench_number(s, "d", 256);
    int64_t wide = 2 * d, states = bench_number(s, "states", 16);
    int x = input(b, DIMS(n, batch, d));
    int h = rms_norm(b, x);
    next_part(b);
    int u = map(b, BENCH_STEP_SILU, linear(b, h, wide, false, false));
    int gate = map(b, BENCH_STEP_SILU, linear(b, h, wide, false, false));
    next_part(b);
    int delta = map(b, BENCH_STEP_SOFTPLUS, linear(b, u, wide, true, false));
    int p = linear(b, u, states, false, false), q = linear(b, u, states, false, false);
    next_part(b);
    int a = operand(b, true, DLC_F32, DIMS(wide, states), -2, -0.1);
    int y = step(b, BENCH_STEP_SCAN, INPUTS(u, delta, a, p, q), 0, NULL);
    b->flops += 7 * points_of(b, y) * (double)states;
    next_part(b);
    y = multiply(b, add(b, y, multiply(b, u, vector(b, wide, 0.5, 1.5))), gate);
    next_part(b);
    result(b, add(b, linear(b, y, d, false, false), x));
}

/* The last norm and the logits of all words. */
static void head(bench_block *b, const bench_shape *s) {
    int x = input(b, DIMS(bench_number(s, "b", 1), bench_number(s, "d", 768)));
    int y = rms_norm(b, x);
    next_part(b);
    result(b, linear(b, y, bench_number(s, "words", 32000), false, bench_flag(s, "transposed")));
}

/* ---- pieces of them that fusion has to decide about --------------------------------------------------------------------------------- */

/* rows=, d=; flag two: the norm is a result, too. */
static void norm_between(bench_block *b, const bench_shape *s) {
    int64_t d = bench_number(s, "d", 768);
    bool transposed = bench_flag(s, "transposed");
    int x = input(b, DIMS(bench_number(s, "rows", 1), d));
    int y = linear(b, x, d, true, transposed);
    next_part(b);
    y = layer_norm(b, y);
    if (bench_flag(s, "two")) result(b, y);
    next_part(b);
    result(b, linear(b, y, d, true, transposed));
}

/* A linear layer and its activation, both results. */
static void two_outputs(bench_block *b, const bench_shape *s) {
    int x = input(b, DIMS(bench_number(s, "rows", 1), bench_number(s, "d", 768)));
    int z = result(b, linear(b, x, bench_number(s, "n", 768), true, bench_flag(s, "transposed")));
    next_part(b);
    result(b, map(b, BENCH_STEP_RELU, z));
}

/* Flag two: the residual sum is a result, too. */
static void residual_norm(bench_block *b, const bench_shape *s) {
    int64_t d = bench_number(s, "d", 768), rows = bench_number(s, "rows", 1);
    int a = input(b, DIMS(rows, d)), x = input(b, DIMS(rows, d));
    int r = add(b, linear(b, a, d, false, bench_flag(s, "transposed")), x);
    if (bench_flag(s, "two")) result(b, r);
    next_part(b);
    result(b, rms_norm(b, r));
}

/* A convolution plus its residual, and the relu of that sum, both results. */
static void residual_relu(bench_block *b, const bench_shape *s) {
    int64_t c = bench_number(s, "c", 64), h = bench_number(s, "h", 56);
    int x = input(b, DIMS(bench_number(s, "b", 1), c, h, h)), past = input(b, DIMS(dims_of(b, x)[0], c, h, h));
    int y = result(b, add(b, convolution(b, x, c, 3, 1, 1), past));
    next_part(b);
    result(b, map(b, BENCH_STEP_RELU, y));
}

/* Attention of values with interleaved heads, [b, n, heads * d]; parts: each transposition, attention. */
static void heads(bench_block *b, const bench_shape *s) {
    int64_t n = bench_number(s, "n", 128), count = bench_number(s, "heads", 12), batch = bench_number(s, "b", 1);
    int64_t shared = bench_number(s, "kv_heads", count), d = bench_number(s, "dim", 64);
    int q = input(b, DIMS(batch, n, count * d)), k = input(b, DIMS(batch, n, shared * d));
    int v = input(b, DIMS(batch, n, shared * d));
    q = split_heads(b, q, count);
    next_part(b);
    k = split_heads(b, k, shared);
    next_part(b);
    v = split_heads(b, v, shared);
    next_part(b);
    int y = attend(b, q, k, v, bench_flag(s, "causal"));
    next_part(b);
    result(b, merge_heads(b, y));
}

/* Constant weights of bits=8, with a scale for each column, or bits=4, with one for each 32 steps of a column. */
static void dequantise(bench_block *b, const bench_shape *s) {
    enum { BLOCK = 32 };
    int64_t k = bench_number(s, "d", 768), n = bench_number(s, "n", 768);
    bool nibbles = bench_number(s, "bits", 8) == 4;
    int x = input(b, DIMS(bench_number(s, "rows", 1), k));
    int packed = operand(b, true, nibbles ? DLC_I4 : DLC_I8, DIMS(k, n), nibbles ? -8 : -127, nibbles ? 8 : 127);
    double scale = sqrt(3.0 / (double)k) / (nibbles ? 8 : 127);
    int scales =
        nibbles ? operand(b, true, DLC_F32, DIMS(k / BLOCK, n), scale / 2, scale) : vector(b, n, scale / 2, scale);
    int w = step(b, BENCH_STEP_DEQUANTISE, INPUTS(packed, scales), 0, NULL);
    b->values[w].number[0] = nibbles ? BLOCK : 0;
    next_part(b);
    result(b, linear_by(b, x, w, -1, n, false));
}

/* ---- the table ----------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*build)(bench_block *b, const bench_shape *s);
} table[] = {
    {"bert", bert},
    {"llama", llama},
    {"convnext", convnext},
    {"bottleneck", bottleneck},
    {"unet", unet},
    {"mamba", mamba},
    {"lm-head", head},
    {"linear-norm-linear", norm_between},
    {"linear-two-outputs", two_outputs},
    {"linear-residual-norm", residual_norm},
    {"convolution-residual-relu", residual_relu},
    {"heads", heads},
    {"dequantised-linear", dequantise},
};

/* With the flag `all`: is the value a result? Not if it only moves elements or is a dequantised weight. */
static bool is_wanted(const bench_block_value *v) {
    switch (v->kind) {
    case BENCH_STEP_HEADS:
    case BENCH_STEP_ATTEND: /* as MERGE gives it */
    case BENCH_STEP_LAST:
    case BENCH_STEP_FIRST:
    case BENCH_STEP_DEQUANTISE: return false;
    default: return true;
    }
}

bool bench_block_of(bench_block *b, const bench_shape *shape) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, shape->name) != 0) continue;
        *b = (bench_block){.count = 0};
        table[i].build(b, shape);
        b->parts++;
        for (int v = 0; v < b->count && bench_flag(shape, "all"); v++)
            b->values[v].result = b->values[v].result || (!b->values[v].operand && is_wanted(&b->values[v]));
        return true;
    }
    return false;
}

int bench_block_results(const bench_block *b, int results[BENCH_BLOCK_VALUES]) {
    int count = 0;
    for (int v = 0; v < b->count; v++)
        if (b->values[v].result) results[count++] = v;
    return count;
}
