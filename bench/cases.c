/* Cases: a table of builders. A builder reads the parameters of its line, declares operands, builds the graph with the public API
 * and states the arithmetic that the operation takes by definition (an algorithm with less may exceed the roof). */
#include "bench/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- operands ------------------------------------------------------------------------------------------------------------- */

static int64_t product(int rank, const int64_t *dims) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    return n;
}

void bench_operand_fill(bench_operand *o) {
    const double low = o->low, high = o->high;
    uint64_t state = 88172645463325252u + o->bytes;
    int64_t n = product(o->rank, o->dims);
    for (int64_t i = 0; i < n; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17; /* xorshift64, Marsaglia 2003 */
        bench_set_element(o, (size_t)i, low + (high - low) * (double)(state >> 11) * 0x1p-53);
    }
}

static void describe(bench_operand *operand, dlc_dtype dtype, int rank, const int64_t *dims, double low, double high) {
    *operand = (bench_operand){.dtype = dtype, .rank = rank, .low = low, .high = high};
    if (rank) memcpy(operand->dims, dims, (size_t)rank * sizeof *dims);
    operand->bytes = bench_bytes_of(dtype, product(rank, dims));
}

void bench_operand_create(bench_operand *operand, dlc_dtype dtype, int rank, const int64_t *dims, double low,
                          double high) {
    describe(operand, dtype, rank, dims, low, high);
    size_t room = (operand->bytes + 4095) / 4096 * 4096;
    operand->data = aligned_alloc(4096, room ? room : 4096);
    if (!operand->data) abort();
    bench_operand_fill(operand);
}

static dlc_value operand(bench_builder *b, bool constant, dlc_dtype dtype, int rank, const int64_t *dims, double low,
                         double high) {
    bench_problem *p = &b->problem;
    if (p->operand_count == BENCH_MAX_OPERANDS) abort();
    bench_operand *o = &p->operands[p->operand_count++];
    if (b->described)
        describe(o, dtype, rank, dims, low, high);
    else
        bench_operand_create(o, dtype, rank, dims, low, high);
    o->constant = constant && (!b->described || b->bytes);
    const char *described = b->bytes; /* no two begin alike: equal constants would be one */
    if (described) described += BENCH_BYTES_APART * (b->problem.operand_count - 1);
    if (o->constant) return dlc_constant_borrow(b->graph, dtype, rank, dims, b->described ? described : o->data);
    char name[16];
    snprintf(name, sizeof name, "x%d", p->operand_count - 1);
    dlc_dim sizes[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = (dlc_dim){.value = dims[i]};
    if (b->training && p->operand_count <= BENCH_BATCH)
        return dlc_training_input(b->training, name, dtype, rank, sizes);
    if (!b->training) return dlc_input(b->graph, name, dtype, rank, sizes);
    dlc_parameter_options options = DLC_PARAMETER_OPTIONS_INIT;
    DLTensor *initial = &b->initial[p->operand_count - 1];
    *initial =
        (DLTensor){.data = o->data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = o->dims};
    options.tensor = initial;
    return dlc_training_parameter(b->training, name, dtype, rank, dims, &options);
}

dlc_value bench_case_operand(bench_builder *b, bool constant, dlc_dtype dtype, int rank, const int64_t *dims,
                             double low, double high) {
    return operand(b, constant, dtype, rank, dims, low, high);
}

#define DIMS(...)                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { \
        __VA_ARGS__                                                          \
    }

/* The element type of operands unless the builder says otherwise: the line's dtype, but f32 instead of u8. */
static dlc_dtype float_of(const bench_builder *b) {
    bench_types t = {.x = DLC_F32};
    bench_types_of(&t, b->problem.shape);
    return t.x == DLC_U8 ? DLC_F32 : t.x;
}

static dlc_value input(bench_builder *b, int rank, const int64_t *dims) {
    return operand(b, false, float_of(b), rank, dims, -1, 1);
}

static dlc_value weights(bench_builder *b, int rank, const int64_t *dims, double limit) {
    return operand(b, true, float_of(b), rank, dims, -limit, limit);
}

static dlc_value number(bench_builder *b, double value) {
    return dlc_scalar(b->graph, float_of(b), value);
}

static void result(bench_builder *b, dlc_value value) {
    char name[16];
    snprintf(name, sizeof name, "y%d", b->problem.result_count);
    dlc_output(b->graph, name, value);
    b->results[b->problem.result_count++] = value;
}

void bench_case_result(bench_builder *b, dlc_value value) {
    result(b, value);
}

static dlc_value reshape(dlc_value x, int rank, const int64_t *dims) {
    dlc_dim sizes[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = (dlc_dim){.value = dims[i]};
    return dlc_reshape(x, rank, sizes);
}

static dlc_value activate(bench_builder *b, dlc_value x) {
    const char *name = bench_text(b->problem.shape, "act");
    if (!name) return x;
    return strcmp(name, "gelu") == 0 ? dlc_gelu(x) : dlc_relu(x);
}

/* ---- contraction, convolution ------------------------------------------------------------------------------------------------ */

/* Quantised weights are at most this large: then the sum of two products of a weight and a byte always fits 16 bits, and no processor's
 * instructions saturate. */
enum { QUANTISED = 63 };

static dlc_value input_as(bench_builder *b, dlc_dtype dtype, int rank, const int64_t *dims) {
    return operand(b, false, dtype, rank, dims, dtype == DLC_U8 ? 0 : -1, dtype == DLC_U8 ? 256 : 1);
}

static dlc_value weights_as(bench_builder *b, bool constant, dlc_dtype dtype, int rank, const int64_t *dims,
                            double limit) {
    if (dtype == DLC_I8) limit = QUANTISED;
    return operand(b, constant, dtype, rank, dims, -limit, limit);
}

/* Adds what follows sums of `terms` products: the bias and, for quantised sums, a factor for each channel, both of shape `dims`; the
 * activation; the conversion to the type that the line wants. */
static dlc_value finished(bench_builder *b, dlc_value y, const bench_types *t, double terms, int rank,
                          const int64_t *dims) {
    bool quantised = t->sum == DLC_I32, wide = t->sum == DLC_F64;
    double spread = sqrt(terms) * 64 * (double)QUANTISED;
    if (bench_flag(b->problem.shape, "bias")) {
        double limit = quantised ? spread : rank > 1 ? 0.1 : 1;
        y = dlc_add(y, operand(b, true, t->sum, rank, dims, -limit, limit));
    }
    if (quantised && t->out != DLC_I32)
        y = dlc_mul(dlc_cast(y, DLC_F32), operand(b, true, DLC_F32, rank, dims, 40 / spread, 80 / spread));
    if (!quantised || t->out != DLC_I32) y = activate(b, y);
    if (t->out == DLC_U8 || t->out == DLC_I8) {
        bool sign = t->out == DLC_I8;
        y = dlc_clamp(number(b, sign ? -128 : 0), dlc_round(y), number(b, sign ? 127 : 255));
    }
    return t->out == (wide ? DLC_F64 : quantised ? DLC_I32 : DLC_F32) ? y : dlc_cast(y, t->out);
}

/* x [b, m, k] or [m, k] times w of [b, k, n] or [k, n]; w is constant unless the line says const=0. Flag bias, act=relu|gelu, dtype,
 * out (elements.c). */
static void build_contraction(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    int64_t batch = bench_number(s, "b", 1), m = bench_number(s, "m", 1), n = bench_number(s, "n", 1),
            k = bench_number(s, "k", 1);
    int skip = batch == 1;
    bench_types t = {0};
    bench_types_of(&t, s);
    dlc_value x = input_as(b, t.x, 3 - skip, (int64_t[]){batch, m, k} + skip);
    dlc_value w = weights_as(b, bench_number(s, "const", 1) != 0, t.w, 3 - skip, (int64_t[]){batch, k, n} + skip,
                             sqrt(3.0 / (double)k));
    dlc_matmul_result sums = t.sum == t.x       ? DLC_MATMUL_RESULT_SAME
                             : t.sum == DLC_I32 ? DLC_MATMUL_RESULT_I32
                                                : DLC_MATMUL_RESULT_F32;
    result(b, finished(b, dlc_matmul_with(x, w, &(dlc_matmul_options){sizeof(dlc_matmul_options), .result = sums}), &t,
                       (double)k, 1, &n));
    b->problem.flops = 2.0 * (double)batch * (double)m * (double)n * (double)k;
}

/* A transposed convolution; w is [ci, co/groups, kh, kw] as in ONNX. */
static dlc_value transposed(dlc_value x, dlc_value w, const int64_t *strides, const int64_t *pads) {
    dlc_convolution_transposed_options options = DLC_CONVOLUTION_TRANSPOSED_OPTIONS_INIT;
    options.stride_count = options.low_count = options.high_count = 2;
    options.stride = strides, options.low = options.high = pads;
    return dlc_convolution_transposed_with(x, w, &options);
}

/* The image with channels in front, whatever the layout of x. */
static dlc_value channels_first(dlc_value x, bench_layout layout, const int64_t dims[4]) {
    if (layout == BENCH_LAST) return dlc_transpose(x, 4, (int64_t[]){0, 3, 1, 2});
    return layout == BENCH_PLAIN ? x : reshape(dlc_transpose(x, 5, (int64_t[]){0, 1, 4, 2, 3}), 4, dims);
}

static dlc_value channels_placed(dlc_value y, bench_layout layout) {
    if (layout == BENCH_LAST) return dlc_transpose(y, 4, (int64_t[]){0, 2, 3, 1});
    if (layout == BENCH_PLAIN) return y;
    int64_t d[4];
    for (int i = 0; i < 4; i++) d[i] = dlc_value_dim(y, i).value;
    return dlc_transpose(reshape(y, DIMS(d[0], d[1] / 16, 16, d[2], d[3])), 5, (int64_t[]){0, 1, 3, 4, 2});
}

static dlc_value image(bench_builder *b, dlc_dtype dtype, const int64_t d[4]) {
    bench_layout layout = bench_layout_of(b->problem.shape, d[1]);
    dlc_value x = layout == BENCH_LAST      ? input_as(b, dtype, DIMS(d[0], d[2], d[3], d[1]))
                  : layout == BENCH_BLOCKED ? input_as(b, dtype, DIMS(d[0], d[1] / 16, d[2], d[3], 16))
                                            : input_as(b, dtype, 4, d);
    return channels_first(x, layout, d);
}

/* NCHW in and out, or with the flag blocked or last in the layouts of bench.h. chain=N convolutions of the same shape one after another,
 * each with its own weights; flag bias; act; dtype; out. */
static void build_convolution(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    int64_t n = bench_number(s, "n", 1), ci = bench_number(s, "ci", 1), co = bench_number(s, "co", 1);
    int64_t h = bench_number(s, "h", 1), w = bench_number(s, "w", 1), groups = bench_number(s, "groups", 1);
    int64_t kernel[2] = {bench_number(s, "kh", 1), bench_number(s, "kw", 1)};
    int64_t strides[2] = {bench_number(s, "stride", 1), bench_number(s, "stride", 1)};
    int64_t pads[2] = {bench_number(s, "pad", 0), bench_number(s, "pad", 0)};
    int64_t dilations[2] = {bench_number(s, "dilation", 1), bench_number(s, "dilation", 1)};
    bool is_transposed = bench_flag(s, "transposed");
    bench_types t = {0};
    bench_types_of(&t, s);
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    options.stride_count = options.low_count = options.high_count = options.dilation_count = 2;
    options.stride = strides, options.low = options.high = pads, options.dilation = dilations, options.groups = groups;
    if (t.sum != t.x) options.result = t.sum == DLC_I32 ? DLC_CONVOLUTION_RESULT_I32 : DLC_CONVOLUTION_RESULT_F32;
    int64_t taps = kernel[0] * kernel[1],
            fan_in = (is_transposed ? ci / (strides[0] * strides[1]) : ci / groups) * taps;
    double limit = sqrt(6.0 / (double)(fan_in ? fan_in : 1));
    dlc_value y = image(b, t.x, (int64_t[]){n, ci, h, w});
    for (int64_t i = 0; i < bench_number(s, "chain", 1); i++) {
        dlc_value f = is_transposed ? weights(b, DIMS(ci, co, kernel[0], kernel[1]), limit)
                                    : weights_as(b, true, t.w, DIMS(co, ci / groups, kernel[0], kernel[1]), limit);
        y = is_transposed ? transposed(y, f, strides, pads) : dlc_convolution_with(y, f, &options);
        y = finished(b, y, &t, (double)fan_in, DIMS(1, co, 1, 1));
        int64_t points = is_transposed ? h * w : dlc_value_dim(y, 2).value * dlc_value_dim(y, 3).value;
        b->problem.flops += 2.0 * (double)(n * co * points) * (double)(ci / groups * taps);
    }
    result(b, channels_placed(y, bench_layout_of(s, co)));
}

/* ---- networks: values that cross many kernels, where layouts matter (DLC_DISABLE=layout shows how much) ------------------------ */

/* A square convolution that keeps the image's size but for the stride, and its bias. */
static dlc_value layer(bench_builder *b, dlc_value x, int64_t co, int64_t kernel, int64_t stride, int64_t groups) {
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    int64_t strides[2] = {stride, stride}, pads[2] = {kernel / 2, kernel / 2}, ci = dlc_value_dim(x, 1).value / groups;
    options.stride_count = options.low_count = options.high_count = 2;
    options.stride = strides, options.low = options.high = pads, options.groups = groups;
    dlc_value w = weights(b, DIMS(co, ci, kernel, kernel), sqrt(6.0 / (double)(ci * kernel * kernel)));
    dlc_value y = dlc_add(dlc_convolution_with(x, w, &options), weights(b, DIMS(1, co, 1, 1), 0.1));
    double points = (double)(dlc_value_dim(y, 2).value * dlc_value_dim(y, 3).value);
    b->problem.flops += 2 * points * (double)(co * ci * kernel * kernel);
    return y;
}

/* Inverted bottlenecks (MobileNetV2): six times the channels, each filtered by itself, back, and the residual. */
static void build_inverted(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    int64_t c = bench_number(s, "c", 32), h = bench_number(s, "h", 28), kernel = bench_number(s, "k", 3);
    dlc_value y = input(b, DIMS(1, c, h, h));
    for (int64_t i = 0; i < bench_number(s, "blocks", 2); i++) {
        dlc_value wide = dlc_relu(layer(b, y, 6 * c, 1, 1, 1));
        wide = dlc_relu(layer(b, wide, 6 * c, kernel, 1, 6 * c));
        y = dlc_add(layer(b, wide, c, 1, 1, 1), y);
    }
    result(b, y);
}

/* A small residual network (ResNet): stem, pool, four stages of one basic block, mean, classes. */
static void build_residual(bench_builder *b) {
    int64_t h = bench_number(b->problem.shape, "h", 112), c = bench_number(b->problem.shape, "c", 32);
    dlc_max_pool_options pool = DLC_MAX_POOL_OPTIONS_INIT;
    int64_t two[2] = {2, 2}, one[2] = {1, 1};
    pool.stride_count = pool.low_count = pool.high_count = 2;
    pool.stride = two, pool.low = pool.high = one;
    dlc_value y = dlc_relu(layer(b, input(b, DIMS(1, 3, h, h)), c, 7, 2, 1));
    y = dlc_max_pool_with(y, 2, (int64_t[]){3, 3}, &pool);
    for (int64_t stage = 0; stage < 4; stage++, c *= 2) {
        int64_t stride = stage ? 2 : 1;
        dlc_value shortcut = stage ? layer(b, y, c, 1, stride, 1) : y;
        y = layer(b, dlc_relu(layer(b, y, c, 3, stride, 1)), c, 3, 1, 1);
        y = dlc_relu(dlc_add(y, shortcut));
    }
    y = dlc_mean(y, 2, (int64_t[]){2, 3});
    result(b, dlc_matmul(y, weights(b, DIMS(c / 2, 10), 0.1)));
}

/* ---- attention ----------------------------------------------------------------------------------------------------------------- */

typedef struct attention_sizes {
    int64_t b, heads, kv_heads, queries, keys, dim;
    bool causal, masked;
} attention_sizes;

static attention_sizes attention_of(const bench_shape *s) {
    int64_t heads = bench_number(s, "heads", 1);
    return (attention_sizes){.b = bench_number(s, "b", 1),
                             .heads = heads,
                             .kv_heads = bench_number(s, "kv_heads", heads),
                             .queries = bench_number(s, "queries", 1),
                             .keys = bench_number(s, "keys", 1),
                             .dim = bench_number(s, "dim", 1),
                             .causal = bench_flag(s, "causal"),
                             .masked = bench_flag(s, "masked")};
}

/* Keys or values [b, kv_heads, keys, dim], each head of them serving heads/kv_heads heads of queries. */
static dlc_value shared_heads(dlc_value x, const attention_sizes *a) {
    if (a->heads == a->kv_heads) return x;
    dlc_value wide = reshape(x, DIMS(a->b, a->kv_heads, 1, a->keys, a->dim));
    dlc_dim dims[5] = {
        {a->b, NULL}, {a->kv_heads, NULL}, {a->heads / a->kv_heads, NULL}, {a->keys, NULL}, {a->dim, NULL}};
    return reshape(dlc_broadcast(wide, 5, dims, 5, (int64_t[]){0, 1, 2, 3, 4}), DIMS(a->b, a->heads, a->keys, a->dim));
}

static void build_attention(bench_builder *b) {
    attention_sizes a = attention_of(b->problem.shape);
    dlc_value q = input(b, DIMS(a.b, a.heads, a.queries, a.dim)), k = input(b, DIMS(a.b, a.kv_heads, a.keys, a.dim));
    dlc_value v = input(b, DIMS(a.b, a.kv_heads, a.keys, a.dim)), mask = DLC_NONE;
    if (a.masked) mask = operand(b, false, DLC_BOOL, DIMS(a.b, 1, 1, a.keys), 0.3, 2);
    result(b, dlc_attention_with(q, shared_heads(k, &a), shared_heads(v, &a), mask,
                                 &(dlc_attention_options){sizeof(dlc_attention_options), .causal = a.causal}));
    double pairs = (double)(a.b * a.heads) * (double)a.queries * (double)a.keys;
    b->problem.flops = 4.0 * pairs * (double)a.dim * (a.causal ? 0.5 : 1.0);
}

/* One query over a cache with room for more keys than are filled: room=4096 filled=64. It costs by what is filled. */
static void build_decode(bench_builder *b) {
    attention_sizes a = attention_of(b->problem.shape);
    const int64_t filled = bench_number(b->problem.shape, "filled", 1);
    a.keys = bench_number(b->problem.shape, "room", filled);
    dlc_value q = input(b, DIMS(a.b, a.heads, a.queries, a.dim)), k = input(b, DIMS(a.b, a.kv_heads, a.keys, a.dim));
    dlc_value v = input(b, DIMS(a.b, a.kv_heads, a.keys, a.dim));
    dlc_value count = operand(b, false, DLC_I64, 0, NULL, (double)filled, (double)filled + 1);
    dlc_value key = dlc_iota(b->graph, DLC_I64, 1, (dlc_dim[]){{a.keys, NULL}}, 0);
    result(b, dlc_attention(q, shared_heads(k, &a), shared_heads(v, &a), dlc_lt(key, count)));
    b->problem.flops = 4.0 * (double)(a.b * a.heads * a.queries * filled * a.dim);
}

static void build_attention_scores(bench_builder *b) {
    attention_sizes a = attention_of(b->problem.shape);
    dlc_value q = input(b, DIMS(a.b, a.heads, a.queries, a.dim)), k = input(b, DIMS(a.b, a.heads, a.keys, a.dim));
    result(b, dlc_mul(dlc_einsum(2, (dlc_value[]){q, k}, "bhqd,bhkd->bhqk"), number(b, 1 / sqrt((double)a.dim))));
}

static void build_attention_softmax(bench_builder *b) {
    attention_sizes a = attention_of(b->problem.shape);
    result(b, dlc_softmax(input(b, DIMS(a.b, a.heads, a.queries, a.keys)), -1));
}

static void build_attention_values(bench_builder *b) {
    attention_sizes a = attention_of(b->problem.shape);
    dlc_value p = input(b, DIMS(a.b, a.heads, a.queries, a.keys)), v = input(b, DIMS(a.b, a.heads, a.keys, a.dim));
    result(b, dlc_matmul(p, v));
}

/* ---- recurrent layers: steps=100 b=1 input=256 hidden=256 [bidirectional] [linear]; weights are constants ---------------------- */

static void build_recurrent(bench_builder *b, int64_t gates, bool has_cell) {
    const bench_shape *s = b->problem.shape;
    const int64_t steps = bench_number(s, "steps", 1), batch = bench_number(s, "b", 1);
    const int64_t width = bench_number(s, "input", 1), hidden = bench_number(s, "hidden", 1);
    const int64_t directions = bench_flag(s, "bidirectional") ? 2 : 1;
    const double limit = 1 / sqrt((double)hidden);
    dlc_value x = input(b, DIMS(steps, batch, width)), results[3];
    dlc_value w = weights(b, DIMS(directions, gates * hidden, width), limit);
    dlc_value r = weights(b, DIMS(directions, gates * hidden, hidden), limit);
    dlc_value bias = weights(b, DIMS(directions, 2 * gates * hidden), limit);
    if (has_cell) {
        dlc_lstm_options options = DLC_LSTM_OPTIONS_INIT;
        if (directions == 2) options.direction = DLC_LSTM_DIRECTION_BIDIRECTIONAL;
        dlc_lstm_with(x, w, r, bias, DLC_NONE, DLC_NONE, DLC_NONE, DLC_NONE, &options, 3, results);
    } else {
        dlc_gru_options options = DLC_GRU_OPTIONS_INIT;
        if (directions == 2) options.direction = DLC_GRU_DIRECTION_BIDIRECTIONAL;
        options.linear_before_reset = bench_flag(s, "linear");
        dlc_gru_with(x, w, r, bias, DLC_NONE, DLC_NONE, &options, 2, results);
    }
    for (int i = 0; i < 2 + has_cell; i++) result(b, results[i]);
    b->problem.flops = 2.0 * (double)(steps * batch * directions * gates * hidden) * (double)(width + hidden);
}

static void build_lstm(bench_builder *b) {
    build_recurrent(b, 4, true);
}
static void build_gru(bench_builder *b) {
    build_recurrent(b, 3, false);
}

/* ---- rows: reductions and what is built of them ---------------------------------------------------------------------------------- */

typedef struct extent {
    int rank, axis_count;
    int64_t dims[DLC_MAX_RANK], axes[DLC_MAX_RANK];
} extent;

/* Reads the parameters shape and axis (the last axis where the line has none). */
static extent extent_of(const bench_builder *b) {
    extent e = {0};
    e.rank = bench_numbers(bench_text(b->problem.shape, "shape"), e.dims);
    e.axis_count = bench_numbers(bench_text(b->problem.shape, "axis"), e.axes);
    if (e.axis_count == 0) e.axis_count = 1, e.axes[0] = e.rank - 1;
    return e;
}

/* Operands are declared in an order that does not depend on the compiler. */
static dlc_value normalised(bench_builder *b, dlc_value x, const extent *e) {
    dlc_value scale = weights(b, 1, &e->dims[1], 1), bias = weights(b, 1, &e->dims[1], 1);
    return dlc_layer_norm(x, scale, bias, -1);
}

static dlc_value scaled(bench_builder *b, dlc_value x, const extent *e) {
    dlc_value scale = weights(b, DIMS(1, e->dims[1], 1, 1), 1), shift = weights(b, DIMS(1, e->dims[1], 1, 1), 1);
    return dlc_add(dlc_mul(x, scale), shift);
}

/* One row per operator of one operand: name, expression of x and e. */
#define ROW_TABLE(X)                                       \
    X(softmax, dlc_softmax(x, e.axes[0]))                  \
    X(log_softmax, dlc_log_softmax(x, e.axes[0]))          \
    X(logsumexp, dlc_logsumexp(x, e.axis_count, e.axes))   \
    X(argmax, dlc_arg_max(x, e.axes[0]))                   \
    X(reduce_sum, dlc_reduce_sum(x, e.axis_count, e.axes)) \
    X(reduce_max, dlc_reduce_max(x, e.axis_count, e.axes)) \
    X(cumsum, dlc_cumulative_sum(x, e.axes[0]))            \
    X(layer_norm, normalised(b, x, &e))                    \
    X(rms_norm, dlc_rms_norm(x, weights(b, 1, &e.dims[1], 1), -1))
#define X(name, expression)                      \
    static void build_##name(bench_builder *b) { \
        extent e = extent_of(b);                 \
        dlc_value x = input(b, e.rank, e.dims);  \
        result(b, expression);                   \
    }
ROW_TABLE(X)
#undef X

static void build_mean_var(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value x = input(b, e.rank, e.dims);
    result(b, dlc_mean(x, e.axis_count, e.axes));
    result(b, dlc_variance(x, e.axis_count, e.axes));
}

/* An operand to be sorted: floats or, with dtype=i64 or i32, integers that hardly repeat. */
static dlc_value ordered(bench_builder *b, const extent *e) {
    dlc_dtype dtype = float_of(b);
    double limit = dtype == DLC_I64 || dtype == DLC_I32 ? 1e9 : 1;
    return operand(b, false, dtype, e->rank, e->dims, -limit, limit);
}

static void build_topk(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value results[2];
    dlc_top_k(ordered(b, &e), bench_number(b->problem.shape, "k", 1), e.axes[0], 2, results);
    result(b, results[0]);
    result(b, results[1]);
}

static void build_group_norm(bench_builder *b) {
    extent e = extent_of(b);
    int64_t groups = bench_number(b->problem.shape, "groups", 1), inner = product(e.rank - 2, e.dims + 2);
    dlc_value x = reshape(input(b, e.rank, e.dims), DIMS(e.dims[0], groups, e.dims[1] / groups * inner));
    dlc_value y = reshape(dlc_layer_norm(x, DLC_NONE, DLC_NONE, -1), e.rank, e.dims);
    result(b, scaled(b, y, &e));
}

/* scale and bias of channels [c], as vectors. */
static void build_instance_norm(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value x = input(b, e.rank, e.dims), scale = weights(b, 1, &e.dims[1], 1), bias = weights(b, 1, &e.dims[1], 1);
    result(b, dlc_instance_norm(x, scale, bias));
}

static void build_lrn(bench_builder *b) {
    extent e = extent_of(b);
    result(b, dlc_local_response_norm(input(b, e.rank, e.dims), bench_number(b->problem.shape, "size", 5)));
}

/* Logits [rows, classes], labels [rows]: a loss for each row. */
static void build_cross_entropy(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value x = input(b, e.rank, e.dims);
    result(b, dlc_cross_entropy(x, operand(b, false, DLC_I64, DIMS(e.dims[0]), 0, (double)e.dims[1]), 1));
}

/* ---- windows: shape [n, c, h, w], k, stride, pad */

static void build_pool(bench_builder *b, bool greatest) {
    const bench_shape *s = b->problem.shape;
    extent e = extent_of(b);
    int64_t k = bench_number(s, "k", 2), stride = bench_number(s, "stride", 1), pad = bench_number(s, "pad", 0);
    int64_t window[2] = {k, k}, strides[2] = {stride, stride}, pads[2] = {pad, pad};
    dlc_value x = input(b, e.rank, e.dims);
    if (greatest) {
        dlc_max_pool_options o = DLC_MAX_POOL_OPTIONS_INIT;
        o.stride_count = o.low_count = o.high_count = 2;
        o.stride = strides, o.low = o.high = pads;
        result(b, dlc_max_pool_with(x, 2, window, &o));
    } else {
        dlc_average_pool_options o = DLC_AVERAGE_POOL_OPTIONS_INIT;
        o.stride_count = o.low_count = o.high_count = 2;
        o.stride = strides, o.low = o.high = pads;
        result(b, dlc_average_pool_with(x, 2, window, &o));
    }
}

static void build_max_pool(bench_builder *b) {
    build_pool(b, true);
}
static void build_average_pool(bench_builder *b) {
    build_pool(b, false);
}

/* shape [n, c, h, w] sampled at to=HxW positions of a grid, linear, zeros outside. */
static void build_grid_sample(bench_builder *b) {
    extent e = extent_of(b);
    int64_t to[DLC_MAX_RANK];
    if (bench_numbers(bench_text(b->problem.shape, "to"), to) != 2) abort();
    dlc_value x = input(b, e.rank, e.dims);
    result(b, dlc_grid_sample(x, input(b, DIMS(e.dims[0], to[0], to[1], 2))));
}

/* rois=N regions of shape [1, c, h, w], cells to=HxW, two samples each way. */
static void build_roi_align(bench_builder *b) {
    extent e = extent_of(b);
    int64_t to[DLC_MAX_RANK], rois = bench_number(b->problem.shape, "rois", 1);
    if (bench_numbers(bench_text(b->problem.shape, "to"), to) != 2) abort();
    dlc_value x = input(b, e.rank, e.dims), corners[2];
    for (int i = 0; i < 2; i++) /* upper left, lower right */
        corners[i] = operand(b, true, DLC_F32, DIMS(rois, 2), i ? 0.5 * (double)e.dims[2] : 0,
                             (i ? 1 : 0.5) * (double)e.dims[2]);
    dlc_value images = operand(b, true, DLC_I64, DIMS(rois), 0, 1);
    dlc_dim shape[2] = {{to[0], NULL}, {to[1], NULL}};
    result(b, dlc_roi_align(x, dlc_concat(2, corners, 1), images, 2, shape));
}

/* ---- maps ---------------------------------------------------------------------------------------------------------------------------- */

static dlc_value chain_of_muladds(bench_builder *b, dlc_value x) {
    b->problem.flops = 40 * (double)product(b->problem.operands[0].rank, b->problem.operands[0].dims);
    for (int i = 0; i < 20; i++) x = dlc_add(dlc_mul(x, number(b, 0.9 + 0.01 * i)), number(b, 0.05 * i - 0.4));
    return x;
}

static dlc_value channels(bench_builder *b, const extent *e) {
    return weights(b, DIMS(1, e->dims[1], 1, 1), 1);
}

/* One row per map: identifier, name, expression of x, b and e. */
#define MAP_TABLE(X)                                                                                          \
    X(gelu_map, "gelu(a*x+b)", dlc_gelu(dlc_add(dlc_mul(x, number(b, BENCH_MAP_A)), number(b, BENCH_MAP_B)))) \
    X(add, "add", dlc_add(x, input(b, e.rank, e.dims)))                                                       \
    X(gate, "silu*gate", dlc_mul(dlc_silu(x), input(b, e.rank, e.dims)))                                      \
    X(bias_relu, "bias+relu", dlc_relu(dlc_add(x, channels(b, &e))))                                          \
    X(scale_shift, "scale+shift+hswish", dlc_hard_swish(scaled(b, x, &e)))                                    \
    X(muladds, "20xmuladd", chain_of_muladds(b, x))                                                           \
    X(cast, "cast f32->bf16", dlc_cast(x, DLC_BF16))                                                          \
    X(where_clip, "where+clip",                                                                               \
      dlc_select(dlc_gt(x, number(b, 0.25)), dlc_clamp(number(b, 0), x, number(b, 0.75)), number(b, -1)))
#define X(identifier, name, expression)                \
    static void build_##identifier(bench_builder *b) { \
        extent e = extent_of(b);                       \
        dlc_value x = input(b, e.rank, e.dims);        \
        result(b, expression);                         \
    }
MAP_TABLE(X)
#undef X

/* Rotary position embedding, halves rotated (Su et al. 2021): x [b, heads, positions, dim], tables [positions, dim/2]. */
static void build_rope(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value x = input(b, e.rank, e.dims), half[2];
    for (int i = 0; i < 2; i++) {
        dlc_dim start[4] = {{0, NULL}, {0, NULL}, {0, NULL}, {i * e.dims[3] / 2, NULL}}, stop[4];
        for (int d = 0; d < 4; d++) stop[d] = (dlc_dim){.value = d == 3 ? (i + 1) * e.dims[3] / 2 : e.dims[d]};
        half[i] = dlc_slice(x, 4, start, 4, stop);
    }
    dlc_value c = weights(b, DIMS(e.dims[2], e.dims[3] / 2), 1), s = weights(b, DIMS(e.dims[2], e.dims[3] / 2), 1);
    dlc_value turned[2] = {dlc_sub(dlc_mul(half[0], c), dlc_mul(half[1], s)),
                           dlc_add(dlc_mul(half[1], c), dlc_mul(half[0], s))};
    result(b, dlc_concat(2, turned, 3));
}

/* (x - zero) * scale with a zero and a scale for each row. */
static void build_dequantise(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value x = dlc_cast(operand(b, false, DLC_U8, e.rank, e.dims, 0, 256), DLC_F32);
    dlc_value zero = operand(b, true, DLC_F32, DIMS(e.dims[0], 1), 100, 140),
              scale = weights(b, DIMS(e.dims[0], 1), 0.01);
    result(b, dlc_mul(dlc_sub(x, zero), scale));
}

/* A scale for each row, or one for all (flag tensor). */
static void build_quantise(bench_builder *b) {
    extent e = extent_of(b);
    bool one = bench_flag(b->problem.shape, "tensor");
    dlc_value x = input(b, e.rank, e.dims);
    int64_t scales = one ? 1 : e.dims[0];
    dlc_value scale = operand(b, true, DLC_F32, 1, &scales, 0.005, 0.01),
              zero = operand(b, true, DLC_U8, 1, &scales, 100, 140);
    if (one) scale = reshape(scale, 0, NULL), zero = reshape(zero, 0, NULL);
    result(b, dlc_quantize_linear(x, scale, zero, 0));
}

static void build_one_hot(bench_builder *b) {
    extent e = extent_of(b);
    int64_t depth = bench_number(b->problem.shape, "depth", 1);
    dlc_dim classes = {depth, NULL};
    result(b, dlc_one_hot(operand(b, false, DLC_I64, e.rank, e.dims, 0, (double)depth), 1, &classes, -1));
}

/* One step of Adam (Kingma, Ba 2015), bias corrections folded into the rate. */
static void build_adam(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value p = input(b, e.rank, e.dims), g = input(b, e.rank, e.dims), m = input(b, e.rank, e.dims);
    dlc_value v = operand(b, false, float_of(b), e.rank, e.dims, 0, 1);
    dlc_value m1 = dlc_add(dlc_mul(m, number(b, 0.9)), dlc_mul(g, number(b, 0.1)));
    dlc_value v1 = dlc_add(dlc_mul(v, number(b, 0.999)), dlc_mul(dlc_mul(g, g), number(b, 0.001)));
    dlc_value step = dlc_div(m1, dlc_add(dlc_sqrt(v1), number(b, 1e-8)));
    result(b, dlc_sub(p, dlc_mul(step, number(b, 1e-3))));
    result(b, m1);
    result(b, v1);
}

/* ---- moves --------------------------------------------------------------------------------------------------------------------------- */

static void build_transpose(bench_builder *b) {
    extent e = extent_of(b);
    int64_t permutation[DLC_MAX_RANK];
    int count = bench_numbers(bench_text(b->problem.shape, "perm"), permutation);
    result(b, dlc_transpose(input(b, e.rank, e.dims), count, permutation));
}

/* shape=4x(8x64x56x56): four operands. */
static void build_concat(bench_builder *b) {
    extent e = extent_of(b);
    dlc_value parts[8];
    int count = (int)e.dims[0];
    for (int i = 0; i < count && i < 8; i++) parts[i] = input(b, e.rank - 1, e.dims + 1);
    result(b, dlc_concat(count, parts, e.axes[0]));
}

/* One element each side of the last two axes. */
static void build_pad(bench_builder *b) {
    extent e = extent_of(b);
    int64_t sides[DLC_MAX_RANK] = {0};
    sides[e.rank - 1] = sides[e.rank - 2] = 1;
    result(b, dlc_pad(input(b, e.rank, e.dims), number(b, 0), e.rank, sides, e.rank, sides));
}

static void build_gather(bench_builder *b) {
    extent e = extent_of(b);
    int64_t rows = bench_number(b->problem.shape, "rows", 1);
    dlc_value table = weights(b, e.rank, e.dims, 1);
    result(b, dlc_gather(table, operand(b, false, DLC_I64, DIMS(rows), 0, (double)e.dims[0]), 0));
    b->problem.bytes = (double)rows * (8 + 2 * 4 * (double)e.dims[1]);
}

/* shape=1x64x56x56 to=112x112 mode=nearest|linear|cubic, flag align: the last two axes, as ONNX Resize. */
static void build_resize(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    extent e = extent_of(b);
    const char *mode = bench_text(s, "mode");
    int64_t to[DLC_MAX_RANK], axes[2] = {e.rank - 2, e.rank - 1};
    if (bench_numbers(bench_text(s, "to"), to) != 2) abort();
    dlc_dim sizes[2] = {{.value = to[0]}, {.value = to[1]}};
    dlc_resize_options options = DLC_RESIZE_OPTIONS_INIT;
    if (bench_flag(s, "align")) options.coordinates = DLC_RESIZE_COORDINATES_ALIGN_CORNERS;
    dlc_resize_mode how = mode && strcmp(mode, "linear") == 0  ? DLC_RESIZE_MODE_LINEAR
                          : mode && strcmp(mode, "cubic") == 0 ? DLC_RESIZE_MODE_CUBIC
                                                               : DLC_RESIZE_MODE_NEAREST;
    result(b, dlc_resize_with(input(b, e.rank, e.dims), DLC_NONE, DLC_NONE, 2, sizes, how, 2, axes, &options));
}

static void build_scatter_add(bench_builder *b) {
    extent e = extent_of(b);
    int64_t rows = bench_number(b->problem.shape, "rows", 1);
    dlc_value table = input(b, e.rank, e.dims), ids = operand(b, false, DLC_I64, DIMS(rows), 0, (double)e.dims[0]);
    result(b,
           dlc_scatter_with(table, ids, input(b, DIMS(rows, e.dims[1])), 0,
                            &(dlc_scatter_options){sizeof(dlc_scatter_options), .combine = DLC_SCATTER_COMBINE_ADD}));
}

static void build_slice(bench_builder *b) {
    extent e = extent_of(b);
    dlc_dim start[DLC_MAX_RANK] = {0}, stop[DLC_MAX_RANK];
    int64_t step[DLC_MAX_RANK];
    for (int i = 0; i < e.rank; i++)
        stop[i] = (dlc_dim){.value = e.dims[i]}, step[i] = bench_number(b->problem.shape, "step", 1);
    result(b, dlc_slice_with(input(b, e.rank, e.dims), e.rank, start, e.rank, stop,
                             &(dlc_slice_options){sizeof(dlc_slice_options), .step_count = e.rank, .step = step}));
    /* Rows that are not taken need not be read; of those that are, every cache line is. */
    double all = 4 * (double)product(e.rank, e.dims), rows = 1, taken = 1;
    for (int i = 0; i < e.rank; i++) taken /= (double)step[i], rows /= i + 1 < e.rank ? (double)step[i] : 1;
    b->problem.bytes = all * rows + all * taken;
}

/* shape=1x4096->4096x4096. */
static void build_broadcast(bench_builder *b) {
    extent e = extent_of(b);
    int rank = e.rank / 2;
    dlc_dim to[DLC_MAX_RANK];
    int64_t axes[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) to[i] = (dlc_dim){.value = e.dims[rank + i]}, axes[i] = i;
    result(b, dlc_broadcast(input(b, rank, e.dims), rank, to, rank, axes));
}

/* ---- the table --------------------------------------------------------------------------------------------------------------------------- */

/* ---- Fourier transforms of n rows: complex numbers, or real ones to half of the spectrum */

static void build_transform(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    const int64_t rows = bench_number(s, "n", 1), points = bench_number(s, "points", 1024);
    bool real = strcmp(s->name, "real") == 0;
    dlc_value x = input(b, DIMS(rows, points, real ? 1 : 2));
    result(b, dlc_dft_with(x, 1, &(dlc_dft_options){sizeof(dlc_dft_options), .onesided = real}));
    b->problem.flops = (real ? 2.5 : 5) * (double)(rows * points) * log2((double)points);
}

/* equation=bhqd,bhkd->bhqk x=1x12x128x64 w=1x12x128x64 */
static void build_einsum(bench_builder *b) {
    const bench_shape *s = b->problem.shape;
    int64_t x[DLC_MAX_RANK], w[DLC_MAX_RANK];
    int x_rank = bench_numbers(bench_text(s, "x"), x), w_rank = bench_numbers(bench_text(s, "w"), w);
    dlc_value left = input(b, x_rank, x), right = input(b, w_rank, w);
    result(b, dlc_einsum(2, (dlc_value[]){left, right}, bench_text(s, "equation")));
}

static const bench_case_kind kinds[] = {
    {"einsum", NULL, build_einsum, {0}},
    {"contraction", NULL, build_contraction, {0}},
    {"convolution", NULL, build_convolution, {0}},
    {"network", "inverted", build_inverted, {0}},
    {"network", "residual", build_residual, {0}},
    {"recurrent", "lstm", build_lstm, {0}},
    {"recurrent", "gru", build_gru, {0}},
    {"decode", NULL, build_decode, {0}},
    {"attention", NULL, build_attention, {build_attention_scores, build_attention_softmax, build_attention_values}},
#define X(name, expression) {"row", #name, build_##name, {0}},
    ROW_TABLE(X)
#undef X
        {"row", "mean_var", build_mean_var, {0}},
    {"row", "topk", build_topk, {0}},
    {"row", "instance_norm", build_instance_norm, {0}},
    {"row", "local_response_norm", build_lrn, {0}},
    {"row", "cross_entropy", build_cross_entropy, {0}},
    {"window", "max_pool", build_max_pool, {0}},
    {"window", "average_pool", build_average_pool, {0}},
    {"window", "grid_sample", build_grid_sample, {0}},
    {"window", "roi_align", build_roi_align, {0}},
    {"row", "group_norm", build_group_norm, {0}},
#define X(identifier, name, expression) {"map", name, build_##identifier, {0}},
    MAP_TABLE(X)
#undef X
        {"map", "rope", build_rope, {0}},
    {"map", "dequantise u8", build_dequantise, {0}},
    {"map", "quantise u8", build_quantise, {0}},
    {"map", "one_hot", build_one_hot, {0}},
    {"map", "adam", build_adam, {0}},
    {"transform", NULL, build_transform, {0}},
    {"move", "transpose", build_transpose, {0}},
    {"move", "concat", build_concat, {0}},
    {"move", "pad", build_pad, {0}},
    {"move", "gather", build_gather, {0}},
    {"move", "resize", build_resize, {0}},
    {"move", "scatter_add", build_scatter_add, {0}},
    {"move", "slice", build_slice, {0}},
    {"move", "broadcast", build_broadcast, {0}},
    {"block", NULL, bench_build_block, {0}},
    {"train", NULL, bench_build_train, {0}},
    {"backward", NULL, bench_build_backward, {0}},
    {"update", NULL, bench_build_update, {0}},
    {"second", NULL, bench_build_second, {0}},
};

static bool is_of_training(bench_build_function *build) {
    return build == bench_build_train || build == bench_build_backward || build == bench_build_update ||
           build == bench_build_second;
}

const bench_case_kind *bench_case_find(const bench_shape *shape) {
    bench_types types;
    if (!bench_types_of(&types, shape)) return NULL;
    size_t i = 0;
    for (; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, shape->kind) == 0 && (!kinds[i].name || strcmp(kinds[i].name, shape->name) == 0))
            break;
    if (i == sizeof kinds / sizeof *kinds || (kinds[i].build == bench_build_block && !bench_block_parts(shape)) ||
        (is_of_training(kinds[i].build) && !bench_trains(shape)))
        return NULL;
    return &kinds[i];
}

static void build_case(bench_builder *b, bench_build_function *build, const bench_shape *shape, dlc_graph *graph,
                       const bench_steps *steps, bool described, const void *bytes) {
    *b =
        (bench_builder){.graph = graph, .problem.shape = shape, .steps = steps, .described = described, .bytes = bytes};
    build(b);
    if (dlc_graph_status(graph)) return;
    for (int i = 0; i < b->problem.result_count; i++) {
        int64_t dims[DLC_MAX_RANK];
        int rank = dlc_value_rank(b->results[i]);
        for (int d = 0; d < rank; d++) dims[d] = dlc_value_dim(b->results[i], d).value;
        (described ? describe : bench_operand_create)(&b->problem.results[i], dlc_value_dtype(b->results[i]), rank,
                                                      dims, 0, 0);
    }
}

void bench_case_build(bench_builder *b, bench_build_function *build, const bench_shape *shape, dlc_graph *graph,
                      const bench_steps *steps) {
    build_case(b, build, shape, graph, steps, false, NULL);
}

void bench_case_describe(bench_builder *b, bench_build_function *build, const bench_shape *shape, dlc_graph *graph,
                         const bench_steps *steps, const void *bytes) {
    build_case(b, build, shape, graph, steps, true, bytes);
}

void bench_case_release(bench_builder *b) {
    for (int i = 0; i < b->problem.operand_count; i++) free(b->problem.operands[i].data);
    for (int i = 0; i < b->problem.result_count; i++) free(b->problem.results[i].data);
}
