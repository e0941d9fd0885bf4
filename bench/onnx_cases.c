/* Cases as ONNX graphs, in up to ONNX_WAYS ways each: as an exporter would write them, and with the fused operators that ONNX Runtime
 * has for them. Constants are those of cases.c; the comparison of results tells when they differ. */
#include "bench/onnx_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void build(onnx_model *m, const bench_problem *p);

static void activation(onnx_model *m, const bench_shape *s, const char *from) {
    const char *act = bench_text(s, "act");
    if (act) onnx_node(m, strcmp(act, "relu") == 0 ? "Relu" : "Gelu", from, "y0", NULL);
}

/* ---- contraction, convolution ---------------------------------------------------------------------------------------------------- */

static void einsum(onnx_model *m, const bench_problem *p) {
    char attributes[96];
    snprintf(attributes, sizeof attributes, "equation=%s", bench_text(p->shape, "equation"));
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "Einsum", "x0 x1", "y0", attributes);
}

/* Fails unless operands and result have one type that is also that of the sums, or nothing follows the sums that would show the
 * difference. */
static void only_floats(onnx_model *m, const bench_problem *p) {
    bench_types t = {0};
    bench_types_of(&t, p->shape);
    bool more = bench_flag(p->shape, "bias") || bench_flag(p->shape, "act");
    if (t.x != t.out || t.sum == DLC_I32 || (t.sum != t.x && more)) m->failed = true;
}

static void matmul(onnx_model *m, const bench_problem *p) {
    bool bias = bench_flag(p->shape, "bias"), act = bench_flag(p->shape, "act");
    only_floats(m, p);
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "MatMul", "x0 x1", bias ? "product" : act ? "sum" : "y0", NULL);
    if (bias) onnx_node(m, "Add", "product x2", act ? "sum" : "y0", NULL);
    activation(m, p->shape, "sum");
}

static void gemm(onnx_model *m, const bench_problem *p) {
    if (p->operands[0].rank != 2) m->failed = true;
    only_floats(m, p);
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "Gemm", bench_flag(p->shape, "bias") ? "x0 x1 x2" : "x0 x1",
              bench_flag(p->shape, "act") ? "sum" : "y0", NULL);
    activation(m, p->shape, "sum");
}

/* A quantised product, of bytes and signed bytes. Its sums are the result, or are multiplied by a factor for each channel to give floats or
 * bytes; then ReLU is the same as saturation at zero. Zero points are zero; the factors of x and of the result are one. */
typedef struct quantised {
    bench_types types;
    bool bias;
    /* names of operands */
    char bias_name[8], factors[8];
    int64_t channels;
} quantised;

static quantised quantised_of(onnx_model *m, const bench_problem *p, int64_t channels) {
    quantised q = {.bias = bench_flag(p->shape, "bias"), .channels = channels};
    bench_types_of(&q.types, p->shape);
    bool scaled = q.types.out == DLC_F32 || q.types.out == DLC_U8;
    const char *act = bench_text(p->shape, "act");
    if (q.types.sum != DLC_I32 || (act && (strcmp(act, "relu") != 0 || !scaled)) || (q.bias && !scaled))
        m->failed = true;
    if (q.types.out != DLC_I32 && !scaled) m->failed = true;
    snprintf(q.bias_name, sizeof q.bias_name, "x2");
    snprintf(q.factors, sizeof q.factors, q.bias ? "x3" : "x2");
    for (int i = 0; i < 2; i++) onnx_operand(m, p, i);
    for (int i = 2; i < p->operand_count; i++) onnx_operand_as(m, p, i, 1, &channels);
    onnx_results(m, p);
    onnx_scalar(m, "one", 1);
    onnx_zeros(m, "zero", DLC_U8, 0);
    onnx_zeros(m, "zeros", DLC_I8, channels);
    return q;
}

static void quantised_matmul(onnx_model *m, const bench_problem *p) {
    quantised q = quantised_of(m, p, bench_number(p->shape, "n", 1));
    bool bytes = q.types.out == DLC_U8, relu = !bytes && bench_flag(p->shape, "act");
    char inputs[96];
    if (q.types.out == DLC_I32) {
        onnx_node(m, "MatMulInteger", "x0 x1", "y0", NULL);
        return;
    }
    if (q.bias) {
        snprintf(inputs, sizeof inputs, "x0 one zero x1 %s zeros %s%s", q.factors, q.bias_name,
                 bytes ? " one zero" : "");
        onnx_node(m, "@QGemm", inputs, relu ? "sum" : "y0", "alpha=1.0");
    } else if (bytes) {
        snprintf(inputs, sizeof inputs, "x0 one zero x1 %s zeros one zero", q.factors);
        onnx_node(m, "QLinearMatMul", inputs, "y0", NULL);
    } else {
        snprintf(inputs, sizeof inputs, "x0 x1 one %s", q.factors);
        onnx_node(m, "@MatMulIntegerToFloat", inputs, relu ? "sum" : "y0", NULL);
    }
    if (relu) onnx_node(m, "Relu", "sum", "y0", NULL);
}

/* Attributes of a convolution over `rank` spatial axes. */
static void window(const bench_shape *s, int rank, char *to, size_t size) {
    int64_t kernel[2] = {bench_number(s, "kh", 1), bench_number(s, "kw", 1)}, repeated[4][4];
    static const char *const keys[4] = {"strides", "dilations", "pads", "kernel_shape"};
    char list[64];
    for (int i = 0; i < 4; i++) {
        repeated[0][i] = bench_number(s, "stride", 1);
        repeated[1][i] = bench_number(s, "dilation", 1);
        repeated[2][i] = bench_number(s, "pad", 0);
        repeated[3][i] = kernel[i < rank ? 2 - rank + i : 0];
    }
    int used = snprintf(to, size, "group=%d", (int)bench_number(s, "groups", 1));
    for (int i = 0; i < 4; i++)
        used += snprintf(to + used, size - (size_t)used, " %s=%s", keys[i],
                         onnx_list(list, sizeof list, i == 2 ? 2 * rank : rank, repeated[i]));
}

/* Declares operands and result with `rank` spatial axes (1: images of one row), biases as vectors. */
static void declare_images(onnx_model *m, const bench_problem *p, int rank) {
    for (int i = 0; i < p->operand_count; i++) {
        const bench_operand *o = &p->operands[i];
        bool bias = o->dims[0] == 1 && i > 0 && i % 2 == 0 && bench_flag(p->shape, "bias");
        int64_t dims[4] = {o->dims[0], o->dims[1], o->dims[2], o->dims[3]};
        if (rank == 1) dims[2] = dims[3];
        if (bias)
            onnx_operand_as(m, p, i, 1, &o->dims[1]);
        else
            onnx_operand_as(m, p, i, 2 + rank, dims);
    }
    const int64_t *y = p->results[0].dims;
    onnx_result_as(m, p, 0, 2 + rank, rank == 2 ? y : (const int64_t[]){y[0], y[1], y[3]});
}

/* Fails for other layouts: ONNX has channels in front. */
static void given_plain(onnx_model *m, const bench_shape *s) {
    if (bench_flag(s, "blocked") || bench_flag(s, "last")) m->failed = true;
}

static void quantised_convolution(onnx_model *m, const bench_problem *p) {
    char attributes[256], inputs[96];
    given_plain(m, p->shape);
    window(p->shape, 2, attributes, sizeof attributes);
    quantised q = quantised_of(m, p, bench_number(p->shape, "co", 1));
    if (q.types.out == DLC_F32 || bench_number(p->shape, "chain", 1) != 1) m->failed = true;
    if (q.types.out == DLC_I32) {
        onnx_node(m, "ConvInteger", "x0 x1", "y0", attributes);
        return;
    }
    snprintf(inputs, sizeof inputs, "x0 one zero x1 %s zeros one zero %s", q.factors, q.bias ? q.bias_name : "_");
    onnx_node(m, "QLinearConv", inputs, "y0", attributes);
}

static void convolve(onnx_model *m, const bench_problem *p, int rank) {
    const bench_shape *s = p->shape;
    const char *act = bench_text(s, "act"), *type = bench_flag(s, "transposed") ? "ConvTranspose" : "Conv";
    char attributes[256], from[16] = "x0", to[16], inputs[64];
    int chain = (int)bench_number(s, "chain", 1), operand = 1;
    window(s, rank, attributes, sizeof attributes);
    only_floats(m, p);
    given_plain(m, s);
    declare_images(m, p, rank);
    for (int i = 0; i < chain; i++) {
        int used = snprintf(inputs, sizeof inputs, "%s x%d", from, operand++);
        if (bench_flag(s, "bias")) snprintf(inputs + used, sizeof inputs - (size_t)used, " x%d", operand++);
        snprintf(to, sizeof to, i + 1 == chain && !act ? "y0" : "c%d", i);
        onnx_node(m, type, inputs, to, attributes);
        snprintf(from, sizeof from, "%s", to);
        if (!act) continue;
        snprintf(to, sizeof to, i + 1 == chain ? "y0" : "a%d", i);
        onnx_node(m, strcmp(act, "relu") == 0 ? "Relu" : "Gelu", from, to, NULL);
        snprintf(from, sizeof from, "%s", to);
    }
}

static void convolve_images(onnx_model *m, const bench_problem *p) {
    convolve(m, p, 2);
}

static void convolve_rows(onnx_model *m, const bench_problem *p) {
    const bench_shape *s = p->shape;
    if (bench_number(s, "h", 1) != 1 || bench_number(s, "kh", 1) != 1 || bench_number(s, "pad", 0) != 0)
        m->failed = true;
    else
        convolve(m, p, 1);
}

/* ---- networks ------------------------------------------------------------------------------------------------------------------------ */

/* As cases.c builds them: weights and biases are the operands from x1 on, in order. */
typedef struct network {
    onnx_model *m;
    const bench_problem *p;
    /* the number of the next weight or bias */
    int operand;
} network;

/* A convolution that keeps the image's size but for the stride, with its bias. */
static void layer(network *n, const char *from, const char *to, int stride, int groups) {
    int kernel = (int)n->p->operands[n->operand].dims[2], side = kernel / 2;
    char inputs[64], attributes[128];
    snprintf(inputs, sizeof inputs, "%s x%d x%d", from, n->operand, n->operand + 1);
    snprintf(attributes, sizeof attributes, "kernel_shape=[%d,%d] strides=[%d,%d] pads=[%d,%d,%d,%d] group=%d", kernel,
             kernel, stride, stride, side, side, side, side, groups);
    n->operand += 2;
    onnx_node(n->m, "Conv", inputs, to, attributes);
}

/* The image is x0; biases are vectors. */
static network begin_network(onnx_model *m, const bench_problem *p) {
    for (int i = 0; i < p->operand_count; i++) {
        const bench_operand *o = &p->operands[i];
        if (i > 0 && o->rank == 4 && i % 2 == 0)
            onnx_operand_as(m, p, i, 1, &o->dims[1]);
        else
            onnx_operand(m, p, i);
    }
    onnx_results(m, p);
    return (network){m, p, 1};
}

static void inverted(onnx_model *m, const bench_problem *p) {
    network n = begin_network(m, p);
    int64_t blocks = bench_number(p->shape, "blocks", 2);
    int wide = 6 * (int)bench_number(p->shape, "c", 32);
    char from[16] = "x0", to[16], inputs[40];
    for (int i = 0; i < blocks; i++) {
        char names[5][16];
        for (int k = 0; k < 5; k++) snprintf(names[k], sizeof names[k], "%c%d", 'a' + k, i);
        layer(&n, from, names[0], 1, 1);
        onnx_node(m, "Relu", names[0], names[1], NULL);
        layer(&n, names[1], names[2], 1, wide);
        onnx_node(m, "Relu", names[2], names[3], NULL);
        layer(&n, names[3], names[4], 1, 1);
        snprintf(inputs, sizeof inputs, "%s %s", names[4], from);
        snprintf(to, sizeof to, i + 1 == blocks ? "y0" : "sum%d", i);
        onnx_node(m, "Add", inputs, to, NULL);
        snprintf(from, sizeof from, "%s", to);
    }
}

/* The weights of a shortcut are declared before those of its block. */
static void residual(onnx_model *m, const bench_problem *p) {
    network n = begin_network(m, p);
    layer(&n, "x0", "stem", 2, 1);
    onnx_node(m, "Relu", "stem", "stem_relu", NULL);
    onnx_node(m, "MaxPool", "stem_relu", "out0", "kernel_shape=[3,3] strides=[2,2] pads=[1,1,1,1]");
    for (int stage = 0; stage < 4; stage++) {
        char from[16], shortcut[16], names[3][16], inputs[40], to[16];
        snprintf(from, sizeof from, "out%d", stage);
        snprintf(shortcut, sizeof shortcut, stage ? "short%d" : "out%d", stage);
        for (int k = 0; k < 3; k++) snprintf(names[k], sizeof names[k], "%c%d", 'a' + k, stage);
        if (stage) layer(&n, from, shortcut, 2, 1);
        layer(&n, from, names[0], stage ? 2 : 1, 1);
        onnx_node(m, "Relu", names[0], names[1], NULL);
        layer(&n, names[1], names[2], 1, 1);
        snprintf(inputs, sizeof inputs, "%s %s", names[2], shortcut);
        snprintf(to, sizeof to, "sum%d", stage);
        onnx_node(m, "Add", inputs, to, NULL);
        snprintf(from, sizeof from, "out%d", stage + 1);
        onnx_node(m, "Relu", to, from, NULL);
    }
    char inputs[40];
    onnx_integers(m, "spatial", 2, (const int64_t[]){2, 3});
    onnx_node(m, "ReduceMean", "out4 spatial", "features", "keepdims=0");
    snprintf(inputs, sizeof inputs, "features x%d", n.operand);
    onnx_node(m, "MatMul", inputs, "y0", NULL);
}

/* ---- attention --------------------------------------------------------------------------------------------------------------------- */

/* The operator of opset 23. Its mask has a row for each query. */
static void attention(onnx_model *m, const bench_problem *p) {
    const bench_operand *q = &p->operands[0], *k = &p->operands[1];
    bool masked = bench_flag(p->shape, "masked");
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "scores", 4, (const int64_t[]){q->dims[0], 1, q->dims[2], k->dims[2]});
    if (masked) onnx_node(m, "Expand", "x3 scores", "seen", NULL);
    onnx_node(m, "Attention", masked ? "x0 x1 x2 seen" : "x0 x1 x2", "y0",
              bench_flag(p->shape, "causal") ? "is_causal=1" : NULL);
}

/* ONNX Runtime's own operator: queries and result are [b, position, head * dim]. */
static void multi_head_attention(onnx_model *m, const bench_problem *p) {
    const bench_operand *q = &p->operands[0], *k = &p->operands[1];
    bool masked = bench_flag(p->shape, "masked");
    int64_t b = q->dims[0], heads = q->dims[1], queries = q->dims[2], dim = q->dims[3];
    if (heads != k->dims[1]) m->failed = true;
    for (int i = 0; i < 3; i++) onnx_operand(m, p, i);
    if (masked) onnx_operand_as(m, p, 3, 2, (const int64_t[]){b, k->dims[2]});
    onnx_results(m, p);
    onnx_integers(m, "merged", 3, (const int64_t[]){b, queries, heads * dim});
    onnx_integers(m, "split", 4, (const int64_t[]){b, queries, heads, dim});
    onnx_node(m, "Transpose", "x0", "q4", "perm=[0,2,1,3]");
    onnx_node(m, "Reshape", "q4 merged", "q", NULL);
    if (masked) onnx_node(m, "Cast", "x3", "seen", "to=6");
    char attributes[64];
    snprintf(attributes, sizeof attributes, "num_heads=%d unidirectional=%d", (int)heads,
             bench_flag(p->shape, "causal"));
    onnx_node(m, "@MultiHeadAttention", masked ? "q x1 x2 _ seen" : "q x1 x2", "y", attributes);
    onnx_node(m, "Reshape", "y split", "y4", NULL);
    onnx_node(m, "Transpose", "y4", "y0", "perm=[0,2,1,3]");
}

/* Attention as exporters write it. Where several heads of queries share one of keys, and no mask tells their rows apart, those are rows of
 * one product. */
static void attention_nodes(onnx_model *m, const bench_problem *p) {
    const bench_operand *q = &p->operands[0], *k = &p->operands[1];
    bool causal = bench_flag(p->shape, "causal"), masked = bench_flag(p->shape, "masked");
    int64_t heads = k->dims[1], dims[4] = {q->dims[0], heads, q->dims[1] / heads * q->dims[2], q->dims[3]};
    int64_t keys = k->dims[2];
    if (heads != q->dims[1] && (causal || q->dims[1] % heads)) m->failed = true;
    onnx_operand_as(m, p, 0, 4, dims);
    for (int i = 1; i < p->operand_count; i++) onnx_operand(m, p, i);
    onnx_result_as(m, p, 0, 4, dims);
    onnx_scalar(m, "scale", 1 / sqrt((double)q->dims[3]));
    onnx_node(m, "Transpose", "x1", "kt", "perm=[0,1,3,2]");
    onnx_node(m, "MatMul", "x0 kt", "product", NULL);
    onnx_node(m, "Mul", "product scale", "scores", NULL);
    if (causal) {
        float *mask = malloc((size_t)(dims[2] * keys) * sizeof *mask);
        for (int64_t i = 0; mask && i < dims[2]; i++)
            for (int64_t j = 0; j < keys; j++) mask[i * keys + j] = j <= i + keys - dims[2] ? 0 : -INFINITY;
        if (mask)
            onnx_floats(m, "mask", 2, (const int64_t[]){dims[2], keys}, mask);
        else
            m->failed = true;
        free(mask);
        onnx_node(m, "Add", "scores mask", "seen", NULL);
    } else if (masked) {
        onnx_scalar(m, "none", -INFINITY);
        onnx_node(m, "Where", "x3 scores none", "seen", NULL);
    }
    onnx_node(m, "Softmax", causal || masked ? "seen" : "scores", "weights", "axis=-1");
    onnx_node(m, "MatMul", "weights x2", "y0", NULL);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------------------- */

/* One operator over the axes of the line, or over the last one. */
static void over_axes(onnx_model *m, const bench_problem *p, const char *type) {
    int64_t axes[DLC_MAX_RANK];
    int count = bench_numbers(bench_text(p->shape, "axis"), axes);
    if (!count) axes[count++] = p->operands[0].rank - 1;
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "axes", count, axes);
    onnx_node(m, type, "x0 axes", "y0", strcmp(type, "CumSum") ? "keepdims=0" : NULL);
}

/* One operator with the axis as an attribute. */
static void over_axis(onnx_model *m, const bench_problem *p, const char *type, const char *more) {
    char attributes[64];
    snprintf(attributes, sizeof attributes, "axis=%d %s", (int)bench_number(p->shape, "axis", p->operands[0].rank - 1),
             more);
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, type, "x0", "y0", attributes);
}

static void softmax(onnx_model *m, const bench_problem *p) {
    over_axis(m, p, "Softmax", "");
}
static void log_softmax(onnx_model *m, const bench_problem *p) {
    over_axis(m, p, "LogSoftmax", "");
}
static void argmax(onnx_model *m, const bench_problem *p) {
    over_axis(m, p, "ArgMax", "keepdims=0");
}
static void logsumexp(onnx_model *m, const bench_problem *p) {
    over_axes(m, p, "ReduceLogSumExp");
}
static void reduce_sum(onnx_model *m, const bench_problem *p) {
    over_axes(m, p, "ReduceSum");
}
static void reduce_max(onnx_model *m, const bench_problem *p) {
    over_axes(m, p, "ReduceMax");
}
static void cumsum(onnx_model *m, const bench_problem *p) {
    over_axes(m, p, "CumSum");
}

static void layer_norm(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "LayerNormalization", "x0 x1 x2", "y0", "axis=-1 epsilon=0.00001");
}

static void rms_norm(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "RMSNormalization", "x0 x1", "y0", "axis=-1 epsilon=0.00001");
}

static void simplified_layer_norm(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "SimplifiedLayerNormalization", "x0 x1", "y0", "axis=-1 epsilon=0.00001");
}

static void topk(onnx_model *m, const bench_problem *p) {
    if (p->result_count != 2) m->failed = true;
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "k", 1, (const int64_t[]){bench_number(p->shape, "k", 1)});
    onnx_node(m, "TopK", "x0 k", "y0 y1", "axis=-1");
}

/* Writes the mean to y0; returns the number of elements that a sum is divided by. */
static double mean(onnx_model *m, const bench_problem *p) {
    int64_t axes[DLC_MAX_RANK];
    int count = bench_numbers(bench_text(p->shape, "axis"), axes);
    double n = 1;
    for (int i = 0; i < count; i++) n *= (double)p->operands[0].dims[axes[i]];
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "axes", count, axes);
    onnx_node(m, "ReduceMean", "x0 axes", "y0", "keepdims=0");
    return n;
}

static void variance_two_passes(onnx_model *m, const bench_problem *p) {
    mean(m, p);
    onnx_node(m, "ReduceMean", "x0 axes", "kept", "keepdims=1");
    onnx_node(m, "Sub", "x0 kept", "centred", NULL);
    onnx_node(m, "Mul", "centred centred", "squares", NULL);
    onnx_node(m, "ReduceMean", "squares axes", "y1", "keepdims=0");
}

static void variance_of_squares(onnx_model *m, const bench_problem *p) {
    onnx_scalar(m, "count", mean(m, p));
    onnx_node(m, "ReduceSumSquare", "x0 axes", "sum", "keepdims=0");
    onnx_node(m, "Div", "sum count", "mean_square", NULL);
    onnx_node(m, "Mul", "y0 y0", "square_mean", NULL);
    onnx_node(m, "Sub", "mean_square square_mean", "y1", NULL);
}

/* Group normalisation as PyTorch's exporter writes it. */
static void group_norm(onnx_model *m, const bench_problem *p) {
    const bench_operand *x = &p->operands[0];
    int64_t groups = bench_number(p->shape, "groups", 1);
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "grouped", 3, (const int64_t[]){x->dims[0], groups, -1});
    onnx_integers(m, "shape", x->rank, x->dims);
    float *one = malloc((size_t)groups * sizeof *one), *zero = calloc((size_t)groups, sizeof *zero);
    for (int64_t i = 0; one && i < groups; i++) one[i] = 1;
    if (one && zero)
        onnx_floats(m, "one", 1, &groups, one), onnx_floats(m, "zero", 1, &groups, zero);
    else
        m->failed = true;
    free(one);
    free(zero);
    onnx_node(m, "Reshape", "x0 grouped", "rows", NULL);
    onnx_node(m, "InstanceNormalization", "rows one zero", "normal", "epsilon=0.00001");
    onnx_node(m, "Reshape", "normal shape", "back", NULL);
    onnx_node(m, "Mul", "back x1", "scaled", NULL);
    onnx_node(m, "Add", "scaled x2", "y0", NULL);
}

static void instance_norm(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "InstanceNormalization", "x0 x1 x2", "y0", "epsilon=0.00001");
}

static void local_response_norm(onnx_model *m, const bench_problem *p) {
    char attributes[64];
    snprintf(attributes, sizeof attributes, "size=%d", (int)bench_number(p->shape, "size", 5));
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "LRN", "x0", "y0", attributes);
}

static void cross_entropy(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "SoftmaxCrossEntropyLoss", "x0 x1", "y0", "reduction=none");
}

/* ---- windows ----------------------------------------------------------------------------------------------------------------------- */

static void pool(onnx_model *m, const bench_problem *p, const char *type) {
    int k = (int)bench_number(p->shape, "k", 2), stride = (int)bench_number(p->shape, "stride", 1),
        side = (int)bench_number(p->shape, "pad", 0);
    char attributes[128];
    snprintf(attributes, sizeof attributes, "kernel_shape=[%d,%d] strides=[%d,%d] pads=[%d,%d,%d,%d]", k, k, stride,
             stride, side, side, side, side);
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, type, "x0", "y0", attributes);
}
static void max_pool(onnx_model *m, const bench_problem *p) {
    pool(m, p, "MaxPool");
}
static void average_pool(onnx_model *m, const bench_problem *p) {
    pool(m, p, "AveragePool");
}

static void grid_sample(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "GridSample", "x0 x1", "y0", "mode=linear");
}

static void roi_align(onnx_model *m, const bench_problem *p) {
    const int64_t *y = p->results[0].dims;
    char attributes[128];
    onnx_release(m);
    onnx_begin_as(m, 16);
    snprintf(attributes, sizeof attributes, "output_height=%d output_width=%d sampling_ratio=2 mode=avg", (int)y[2],
             (int)y[3]);
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "Concat", "x1 x2", "rois", "axis=1");
    onnx_node(m, "RoiAlign", "x0 rois x3", "y0", attributes);
}

/* ---- maps ---------------------------------------------------------------------------------------------------------------------------- */

/* A map is written as operands, results and numbers, then its lines, which are nodes. */
typedef struct line {
    const char *type, *inputs, *outputs, *attributes;
} line;
typedef struct numbered {
    const char *name;
    double value;
} numbered;

static void spell(onnx_model *m, const bench_problem *p, const numbered *numbers, const line *lines) {
    onnx_operands(m, p);
    onnx_results(m, p);
    for (; numbers && numbers->name; numbers++) onnx_scalar(m, numbers->name, numbers->value);
    for (; lines->type; lines++) onnx_node(m, lines->type, lines->inputs, lines->outputs, lines->attributes);
}

static const numbered gelu_numbers[] = {{"a", BENCH_MAP_A}, {"b", BENCH_MAP_B}, {0}};
static const line gelu_lines[] = {
    {"Mul", "x0 a", "ax", NULL}, {"Add", "ax b", "axb", NULL}, {"Gelu", "axb", "y0", NULL}, {0}};
static const line add_lines[] = {{"Add", "x0 x1", "y0", NULL}, {0}};
static const line silu_lines[] = {
    {"Sigmoid", "x0", "s", NULL}, {"Mul", "x0 s", "silu", NULL}, {"Mul", "silu x1", "y0", NULL}, {0}};
static const line quick_gelu_lines[] = {{"@QuickGelu", "x0", "silu", "alpha=1.0"}, {"Mul", "silu x1", "y0", NULL}, {0}};
static const line bias_relu_lines[] = {{"Add", "x0 x1", "sum", NULL}, {"Relu", "sum", "y0", NULL}, {0}};
static const line scale_shift_lines[] = {
    {"Mul", "x0 x1", "scaled", NULL}, {"Add", "scaled x2", "shifted", NULL}, {"HardSwish", "shifted", "y0", NULL}, {0}};
static const line cast_lines[] = {{"Cast", "x0", "y0", "to=16"}, {0}};
static const line dequantise_lines[] = {
    {"Cast", "x0", "x", "to=1"}, {"Sub", "x x1", "centred", NULL}, {"Mul", "centred x2", "y0", NULL}, {0}};
static const numbered where_numbers[] = {{"limit", 0.25}, {"low", 0}, {"high", 0.75}, {"else", -1}, {0}};
static const line where_lines[] = {{"Greater", "x0 limit", "above", NULL},
                                   {"Clip", "x0 low high", "clipped", NULL},
                                   {"Where", "above clipped else", "y0", NULL},
                                   {0}};
static const numbered adam_numbers[] = {{"b1", 0.9},    {"c1", 0.1}, {"b2", 0.999}, {"c2", 0.001}, {"e", 1e-8},
                                        {"rate", 1e-3}, {0}};
static const line adam_lines[] = {{"Mul", "x2 b1", "m_old", NULL},
                                  {"Mul", "x1 c1", "m_new", NULL},
                                  {"Add", "m_old m_new", "y1", NULL},
                                  {"Mul", "x3 b2", "v_old", NULL},
                                  {"Mul", "x1 x1", "g2", NULL},
                                  {"Mul", "g2 c2", "v_new", NULL},
                                  {"Add", "v_old v_new", "y2", NULL},
                                  {"Sqrt", "y2", "root", NULL},
                                  {"Add", "root e", "below", NULL},
                                  {"Div", "y1 below", "step", NULL},
                                  {"Mul", "step rate", "change", NULL},
                                  {"Sub", "x0 change", "y0", NULL},
                                  {0}};
/* x [b, heads, positions, dim]: halves turned against one another. */
static const line rope_lines[] = {{"Split", "x0", "l h", "axis=3 num_outputs=2"},
                                  {"Mul", "l x1", "lc", NULL},
                                  {"Mul", "h x2", "hs", NULL},
                                  {"Sub", "lc hs", "first", NULL},
                                  {"Mul", "h x1", "hc", NULL},
                                  {"Mul", "l x2", "ls", NULL},
                                  {"Add", "hc ls", "second", NULL},
                                  {"Concat", "first second", "y0", "axis=3"},
                                  {0}};

#define SPELLED(X)                             \
    X(gelu_map, gelu_numbers, gelu_lines)      \
    X(add_map, NULL, add_lines)                \
    X(silu_gate, NULL, silu_lines)             \
    X(quick_gelu_gate, NULL, quick_gelu_lines) \
    X(bias_relu, NULL, bias_relu_lines)        \
    X(scale_shift, NULL, scale_shift_lines)    \
    X(cast, NULL, cast_lines)                  \
    X(dequantise, NULL, dequantise_lines)      \
    X(where_clip, where_numbers, where_lines)  \
    X(adam, adam_numbers, adam_lines)          \
    X(rope_nodes, NULL, rope_lines)
#define X(name, numbers, lines)                               \
    static void name(onnx_model *m, const bench_problem *p) { \
        spell(m, p, numbers, lines);                          \
    }
SPELLED(X)
#undef X

static void quantise(onnx_model *m, const bench_problem *p) {
    bool one = bench_flag(p->shape, "tensor");
    onnx_operand(m, p, 0);
    for (int i = 1; i < 3; i++) onnx_operand_as(m, p, i, one ? 0 : 1, p->operands[i].dims);
    onnx_results(m, p);
    onnx_node(m, "QuantizeLinear", "x0 x1 x2", "y0", "axis=0");
}

static void one_hot(onnx_model *m, const bench_problem *p) {
    const float values[2] = {0, 1};
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "depth", 1, (const int64_t[]){bench_number(p->shape, "depth", 1)});
    onnx_floats(m, "values", 1, (const int64_t[]){2}, values);
    onnx_node(m, "OneHot", "x0 depth values", "y0", "axis=-1");
}

static void muladds(onnx_model *m, const bench_problem *p) {
    char a[8], b[8], inputs[32], to[16], from[16] = "x0";
    onnx_operands(m, p);
    onnx_results(m, p);
    for (int i = 0; i < 20; i++) {
        snprintf(a, sizeof a, "a%d", i), snprintf(b, sizeof b, "b%d", i);
        onnx_scalar(m, a, 0.9 + 0.01 * i), onnx_scalar(m, b, 0.05 * i - 0.4);
        snprintf(inputs, sizeof inputs, "%s %s", from, a);
        snprintf(to, sizeof to, "p%d", i);
        onnx_node(m, "Mul", inputs, to, NULL);
        snprintf(inputs, sizeof inputs, "%s %s", to, b);
        snprintf(from, sizeof from, i == 19 ? "y0" : "s%d", i);
        onnx_node(m, "Add", inputs, from, NULL);
    }
}

static void rope(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "first", 1, (const int64_t[]){0});
    onnx_node(m, "@RotaryEmbedding", "x0 first x1 x2", "y0", "interleaved=0");
}

/* ---- moves ---------------------------------------------------------------------------------------------------------------------------- */

static void transpose(onnx_model *m, const bench_problem *p) {
    int64_t permutation[DLC_MAX_RANK];
    char list[64], attributes[80];
    int count = bench_numbers(bench_text(p->shape, "perm"), permutation);
    snprintf(attributes, sizeof attributes, "perm=%s", onnx_list(list, sizeof list, count, permutation));
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "Transpose", "x0", "y0", attributes);
}

static void concat(onnx_model *m, const bench_problem *p) {
    char attributes[32], inputs[BENCH_MAX_OPERANDS * 4 + 1] = "";
    for (int i = 0; i < p->operand_count; i++)
        snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), i ? " x%d" : "x%d", i);
    snprintf(attributes, sizeof attributes, "axis=%d", (int)bench_number(p->shape, "axis", 0));
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "Concat", inputs, "y0", attributes);
}

static void pad(onnx_model *m, const bench_problem *p) {
    int rank = p->operands[0].rank;
    int64_t sides[2 * DLC_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) sides[i] = sides[rank + i] = (p->results[0].dims[i] - p->operands[0].dims[i]) / 2;
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "sides", 2 * rank, sides);
    onnx_node(m, "Pad", "x0 sides", "y0", NULL);
}

static void gather(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, "Gather", "x0 x1", "y0", "axis=0");
}

static void resize(onnx_model *m, const bench_problem *p) {
    const char *mode = bench_text(p->shape, "mode");
    char attributes[96];
    snprintf(attributes, sizeof attributes, "mode=%s coordinate_transformation_mode=%s", mode ? mode : "nearest",
             bench_flag(p->shape, "align") ? "align_corners" : "half_pixel");
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "sizes", p->results[0].rank, p->results[0].dims);
    onnx_node(m, "Resize", "x0 _ _ sizes", "y0", attributes);
}

static void scatter_add(onnx_model *m, const bench_problem *p) {
    onnx_operand(m, p, 0);
    onnx_operand_as(m, p, 1, 2, (const int64_t[]){p->operands[1].dims[0], 1});
    onnx_operand(m, p, 2);
    onnx_results(m, p);
    onnx_node(m, "ScatterND", "x0 x1 x2", "y0", "reduction=add");
}

static void slice(onnx_model *m, const bench_problem *p) {
    const bench_operand *x = &p->operands[0];
    int64_t start[DLC_MAX_RANK] = {0}, axes[DLC_MAX_RANK], steps[DLC_MAX_RANK];
    for (int i = 0; i < x->rank; i++) axes[i] = i, steps[i] = bench_number(p->shape, "step", 1);
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "start", x->rank, start);
    onnx_integers(m, "stop", x->rank, x->dims);
    onnx_integers(m, "axes", x->rank, axes);
    onnx_integers(m, "steps", x->rank, steps);
    onnx_node(m, "Slice", "x0 start stop axes steps", "y0", NULL);
}

static void broadcast(onnx_model *m, const bench_problem *p) {
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_integers(m, "shape", p->results[0].rank, p->results[0].dims);
    onnx_node(m, "Expand", "x0 shape", "y0", NULL);
}

static void recurrent(onnx_model *m, const bench_problem *p, const char *type, const char *results) {
    const bench_shape *s = p->shape;
    char attributes[128];
    snprintf(attributes, sizeof attributes, "hidden_size=%d direction=%s%s", (int)bench_number(s, "hidden", 1),
             bench_flag(s, "bidirectional") ? "bidirectional" : "forward",
             bench_flag(s, "linear") ? " linear_before_reset=1" : "");
    onnx_operands(m, p);
    onnx_results(m, p);
    onnx_node(m, type, "x0 x1 x2 x3", results, attributes);
}
static void lstm(onnx_model *m, const bench_problem *p) {
    recurrent(m, p, "LSTM", "y0 y1 y2");
}
static void gru(onnx_model *m, const bench_problem *p) {
    recurrent(m, p, "GRU", "y0 y1");
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------------- */

static const struct {
    /* name NULL: all cases of the kind */
    const char *kind, *name;
    struct {
        build *write;
        const char *note;
    } ways[ONNX_WAYS];
} table[] = {
    {"einsum", NULL, {{einsum, "Einsum"}}},
    {"contraction", NULL, {{matmul, "MatMul"}, {gemm, "Gemm"}, {quantised_matmul, "quantised"}}},
    {"convolution",
     NULL,
     {{convolve_images, "Conv"}, {convolve_rows, "Conv 1-D"}, {quantised_convolution, "QLinearConv"}}},
    {"network", "inverted", {{inverted, "nodes"}}},
    {"network", "residual", {{residual, "nodes"}}},
    {"recurrent", "lstm", {{lstm, "LSTM"}}},
    {"recurrent", "gru", {{gru, "GRU"}}},
    {"attention",
     NULL,
     {{attention, "Attention"}, {multi_head_attention, "MultiHeadAttention"}, {attention_nodes, "nodes"}}},
    {"row", "softmax", {{softmax, "Softmax"}}},
    {"row", "log_softmax", {{log_softmax, "LogSoftmax"}}},
    {"row", "logsumexp", {{logsumexp, "ReduceLogSumExp"}}},
    {"row", "argmax", {{argmax, "ArgMax"}}},
    {"row", "topk", {{topk, "TopK"}}},
    {"row", "reduce_sum", {{reduce_sum, "ReduceSum"}}},
    {"row", "reduce_max", {{reduce_max, "ReduceMax"}}},
    {"row", "cumsum", {{cumsum, "CumSum"}}},
    {"row", "layer_norm", {{layer_norm, "LayerNormalization"}}},
    {"row", "rms_norm", {{rms_norm, "RMSNormalization"}, {simplified_layer_norm, "SimplifiedLayerNormalization"}}},
    {"row", "mean_var", {{variance_two_passes, "nodes"}, {variance_of_squares, "nodes, one pass"}}},
    {"row", "group_norm", {{group_norm, "InstanceNormalization"}}},
    {"row", "instance_norm", {{instance_norm, "InstanceNormalization"}}},
    {"row", "local_response_norm", {{local_response_norm, "LRN"}}},
    {"row", "cross_entropy", {{cross_entropy, "SoftmaxCrossEntropyLoss"}}},
    {"window", "max_pool", {{max_pool, "MaxPool"}}},
    {"window", "average_pool", {{average_pool, "AveragePool"}}},
    {"window", "grid_sample", {{grid_sample, "GridSample"}}},
    {"window", "roi_align", {{roi_align, "RoiAlign"}}},
    {"map", "gelu(a*x+b)", {{gelu_map, "Gelu"}}},
    {"map", "add", {{add_map, "Add"}}},
    {"map", "silu*gate", {{silu_gate, "Sigmoid"}, {quick_gelu_gate, "QuickGelu"}}},
    {"map", "bias+relu", {{bias_relu, "nodes"}}},
    {"map", "scale+shift+hswish", {{scale_shift, "HardSwish"}}},
    {"map", "20xmuladd", {{muladds, "nodes"}}},
    {"map", "rope", {{rope, "RotaryEmbedding"}, {rope_nodes, "nodes"}}},
    {"map", "cast f32->bf16", {{cast, "Cast"}}},
    {"map", "dequantise u8", {{dequantise, "nodes"}}},
    {"map", "quantise u8", {{quantise, "QuantizeLinear"}}},
    {"map", "one_hot", {{one_hot, "OneHot"}}},
    {"map", "where+clip", {{where_clip, "nodes"}}},
    {"map", "adam", {{adam, "nodes"}}},
    {"move", "transpose", {{transpose, "Transpose"}}},
    {"move", "concat", {{concat, "Concat"}}},
    {"move", "pad", {{pad, "Pad"}}},
    {"move", "gather", {{gather, "Gather"}}},
    {"move", "resize", {{resize, "Resize"}}},
    {"move", "scatter_add", {{scatter_add, "ScatterND"}}},
    {"move", "slice", {{slice, "Slice"}}},
    {"move", "broadcast", {{broadcast, "Expand"}}},
    {"block",
     NULL,
     {{onnx_block_operator, "Attention"}, {onnx_block_nodes, "nodes"}, {onnx_block_multi_head, "MultiHeadAttention"}}},
};

bool onnx_write_case(onnx_model *m, const bench_problem *problem, int way, char *note, size_t note_size) {
    for (size_t row = 0; row < sizeof table / sizeof *table; row++) {
        const char *name = table[row].name;
        if (strcmp(table[row].kind, problem->shape->kind) != 0 || (name && strcmp(name, problem->shape->name) != 0))
            continue;
        if (way >= ONNX_WAYS || !table[row].ways[way].write) return false;
        onnx_begin(m);
        table[row].ways[way].write(m, problem);
        onnx_end(m);
        snprintf(note, note_size, "%s", table[row].ways[way].note);
        if (!m->failed) return true;
        onnx_release(m);
        return false;
    }
    return false;
}
