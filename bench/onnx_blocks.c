/* Blocks (blocks.h) as ONNX graphs, in three ways that differ in attention, and in a few operators that ONNX Runtime has beside ONNX'. */
#include "bench/blocks.h"
#include "bench/onnx_model.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef enum spelled_way { OPERATOR, NODES, MULTI_HEAD } spelled_way;

typedef struct writer {
    onnx_model *m;
    const bench_block *block;
    spelled_way way;
    /* values whose heads stand side by side, because an operator takes or gives them so: the step that splits or merges them is not
     * written */
    bool split[BENCH_BLOCK_VALUES];
    char name[BENCH_BLOCK_VALUES][16];
    /* how many names of intermediate values have been made */
    int names;
} writer;

/* ---- nodes ------------------------------------------------------------------------------------------------------------------- */

/* Makes a name that no value has; it is valid until 64 more are made. */
static const char *fresh(writer *w) {
    static char names[64][16];
    char *name = names[w->names % 64];
    snprintf(name, sizeof names[0], "t%d", w->names++);
    return name;
}

/* `format` and what follows: the names of inputs, with spaces between them. */
static void node(writer *w, const char *type, const char *output, const char *attributes, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static void node(writer *w, const char *type, const char *output, const char *attributes, const char *format, ...) {
    char inputs[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(inputs, sizeof inputs, format, arguments);
    va_end(arguments);
    onnx_node(w->m, type, inputs, output, attributes);
}

static const char *integers(writer *w, int count, const int64_t *values) {
    const char *name = fresh(w);
    onnx_integers(w->m, name, count, values);
    return name;
}

static const char *in(const writer *w, const bench_block_value *v, int i) {
    return w->name[v->input[i]];
}

static const char *perm(const char *order) {
    static char text[32];
    snprintf(text, sizeof text, "perm=[%s]", order);
    return text;
}

/* ---- steps ------------------------------------------------------------------------------------------------------------------- */

static void write_linear(writer *w, const bench_block_value *v, const char *y) {
    const bool bias = v->input[2] >= 0;
    if (w->way == NODES && v->rank == 2) {
        node(w, "Gemm", y, v->number[0] ? "transB=1" : NULL, "%s %s%s%s", in(w, v, 0), in(w, v, 1), bias ? " " : "",
             bias ? in(w, v, 2) : "");
        return;
    }
    const char *weights = in(w, v, 1), *sums = bias ? fresh(w) : y;
    if (v->number[0]) {
        weights = fresh(w);
        node(w, "Transpose", weights, perm("1,0"), "%s", in(w, v, 1));
    }
    node(w, "MatMul", sums, NULL, "%s %s", in(w, v, 0), weights);
    if (bias) node(w, "Add", y, NULL, "%s %s", sums, in(w, v, 2));
}

static void write_silu(writer *w, const bench_block_value *v, const char *y) {
    const char *gate = fresh(w);
    if (w->way == NODES) {
        node(w, "@QuickGelu", y, "alpha=1.0", "%s", in(w, v, 0));
        return;
    }
    node(w, "Sigmoid", gate, NULL, "%s", in(w, v, 0));
    node(w, "Mul", y, NULL, "%s %s", in(w, v, 0), gate);
}

static void write_rms_norm(writer *w, const bench_block_value *v, const char *y) {
    node(w, w->way == OPERATOR ? "RMSNormalization" : "SimplifiedLayerNormalization", y, "axis=-1 epsilon=0.00001",
         "%s %s", in(w, v, 0), in(w, v, 1));
}

static void write_rotary(writer *w, const bench_block_value *v, const char *y) {
    const char *first = integers(w, 1, (const int64_t[]){0});
    node(w, "@RotaryEmbedding", y, "interleaved=0", "%s %s %s %s", in(w, v, 0), first, in(w, v, 1), in(w, v, 2));
}

static void write_heads(writer *w, const bench_block_value *v, const char *y) {
    const int64_t *d = v->dims;
    const char *apart = fresh(w), *shape = integers(w, 4, (const int64_t[]){d[0], d[2], d[1], d[3]});
    node(w, "Reshape", apart, NULL, "%s %s", in(w, v, 0), shape);
    node(w, "Transpose", y, perm("0,2,1,3"), "%s", apart);
}

static void write_merge(writer *w, const bench_block_value *v, const char *y) {
    const char *apart = fresh(w), *shape = integers(w, 3, v->dims);
    node(w, "Transpose", apart, perm("0,2,1,3"), "%s", in(w, v, 0));
    node(w, "Reshape", y, NULL, "%s %s", apart, shape);
}

/* Keys or values for as many heads as queries have. */
static const char *for_heads(writer *w, int value, int64_t heads) {
    const int64_t *d = w->block->values[value].dims;
    if (d[1] == heads) return w->name[value];
    const char *apart = fresh(w), *repeated = fresh(w), *all = fresh(w);
    const char *one = integers(w, 5, (const int64_t[]){d[0], d[1], 1, d[2], d[3]});
    const char *several = integers(w, 5, (const int64_t[]){d[0], d[1], heads / d[1], d[2], d[3]});
    const char *shape = integers(w, 4, (const int64_t[]){d[0], heads, d[2], d[3]});
    node(w, "Reshape", apart, NULL, "%s %s", w->name[value], one);
    node(w, "Expand", repeated, NULL, "%s %s", apart, several);
    node(w, "Reshape", all, NULL, "%s %s", repeated, shape);
    return all;
}

static void write_attention_nodes(writer *w, const bench_block_value *v, const char *y) {
    const int64_t heads = v->dims[1], n = v->dims[2], keys = w->block->values[v->input[1]].dims[2];
    const char *k = for_heads(w, v->input[1], heads), *values = for_heads(w, v->input[2], heads);
    const char *turned = fresh(w), *sums = fresh(w), *scores = fresh(w), *seen = fresh(w), *weights = fresh(w);
    const char *scale = fresh(w), *mask = fresh(w);
    onnx_scalar(w->m, scale, 1 / sqrt((double)v->dims[3]));
    node(w, "Transpose", turned, perm("0,1,3,2"), "%s", k);
    node(w, "MatMul", sums, NULL, "%s %s", in(w, v, 0), turned);
    node(w, "Mul", scores, NULL, "%s %s", sums, scale);
    if (v->number[0]) {
        float *hidden = malloc((size_t)(n * keys) * sizeof *hidden);
        for (int64_t i = 0; hidden && i < n * keys; i++) hidden[i] = i % keys <= i / keys + keys - n ? 0 : -INFINITY;
        if (hidden)
            onnx_floats(w->m, mask, 2, (const int64_t[]){n, keys}, hidden);
        else
            w->m->failed = true;
        free(hidden);
        node(w, "Add", seen, NULL, "%s %s", scores, mask);
    }
    node(w, "Softmax", weights, "axis=-1", "%s", v->number[0] ? seen : scores);
    node(w, "MatMul", y, NULL, "%s %s", weights, values);
}

/* Writes attention: in the way NODES as nodes, otherwise as one operator that takes and gives values whose heads stand side by side. */
static void write_attend(writer *w, const bench_block_value *v, const char *y) {
    const char *q = in(w, v, 0), *k = in(w, v, 1), *values = in(w, v, 2);
    const int heads = (int)v->dims[1], shared = (int)w->block->values[v->input[1]].dims[1];
    char attributes[96];
    if (w->way == NODES) {
        write_attention_nodes(w, v, y);
        return;
    }
    if (w->way == OPERATOR) {
        snprintf(attributes, sizeof attributes, "q_num_heads=%d kv_num_heads=%d is_causal=%d", heads, shared,
                 (int)v->number[0]);
        node(w, "Attention", y, attributes, "%s %s %s", q, k, values);
        return;
    }
    if (heads != shared) w->m->failed = true;
    snprintf(attributes, sizeof attributes, "num_heads=%d unidirectional=%d", heads, (int)v->number[0]);
    node(w, "@MultiHeadAttention", y, attributes, "%s %s %s", q, k, values);
}

static void write_conv(writer *w, const bench_block_value *v, const char *y) {
    char attributes[160];
    const int stride = (int)v->number[0], side = (int)v->number[1], k = 2 * side + 1;
    snprintf(attributes, sizeof attributes, "kernel_shape=[%d,%d] strides=[%d,%d] pads=[%d,%d,%d,%d] group=%d", k, k,
             stride, stride, side, side, side, side, (int)v->number[2]);
    node(w, "Conv", y, attributes, "%s %s %s", in(w, v, 0), in(w, v, 1), in(w, v, 2));
}

static void write_scan(writer *w, const bench_block_value *v, const char *y) {
    const int64_t *d = v->dims, states = w->block->values[v->input[2]].dims[1];
    const int64_t state[3] = {d[1], d[2], states}, row[2] = {d[1], d[2]}, few[2] = {d[1], states};
    const char *shape = integers(w, 3, state), *axis1 = integers(w, 1, (const int64_t[]){1});
    const char *axis2 = integers(w, 1, (const int64_t[]){2});
    char outputs[48], inputs[96];
    node(w, "ConstantOfShape", "h_first", NULL, "%s", shape);
    snprintf(inputs, sizeof inputs, "h_first %s %s %s %s", in(w, v, 0), in(w, v, 1), in(w, v, 3), in(w, v, 4));
    snprintf(outputs, sizeof outputs, "h_last %s", y);
    onnx_begin_body(w->m, "Scan", inputs, outputs, "num_scan_inputs=4");
    onnx_body_value(w->m, true, "h", 3, state);
    onnx_body_value(w->m, true, "xt", 2, row);
    onnx_body_value(w->m, true, "dt", 2, row);
    onnx_body_value(w->m, true, "pt", 2, few);
    onnx_body_value(w->m, true, "qt", 2, few);
    onnx_body_value(w->m, false, "h_next", 3, state);
    onnx_body_value(w->m, false, "yt", 2, row);
    node(w, "Unsqueeze", "dc", NULL, "dt %s", axis2);
    node(w, "Mul", "da", NULL, "dc %s", in(w, v, 2));
    node(w, "Exp", "decay", NULL, "da");
    node(w, "Mul", "kept", NULL, "decay h");
    node(w, "Mul", "dx", NULL, "dt xt");
    node(w, "Unsqueeze", "dxc", NULL, "dx %s", axis2);
    node(w, "Unsqueeze", "pr", NULL, "pt %s", axis1);
    node(w, "Mul", "new", NULL, "dxc pr");
    node(w, "Add", "h_next", NULL, "kept new");
    node(w, "Unsqueeze", "qr", NULL, "qt %s", axis1);
    node(w, "Mul", "hq", NULL, "h_next qr");
    node(w, "ReduceSum", "yt", "keepdims=0", "hq %s", axis2);
    onnx_end_body(w->m);
}

static void write_dequantise(writer *w, const bench_block_value *v, const char *y) {
    char attributes[48] = "axis=1";
    if (v->number[0]) snprintf(attributes, sizeof attributes, "axis=0 block_size=%d", (int)v->number[0]);
    node(w, "DequantizeLinear", y, attributes, "%s %s", in(w, v, 0), in(w, v, 1));
}

/* How a step is written: as an operator of the same operands; type NULL: by a function. */
typedef struct spelling {
    const char *type, *attributes;
    void (*write)(writer *w, const bench_block_value *v, const char *y);
} spelling;

static const spelling spellings[BENCH_STEP_KINDS] = {
    [BENCH_STEP_LINEAR] = {NULL, NULL, write_linear},
    [BENCH_STEP_ADD] = {"Add", NULL, NULL},
    [BENCH_STEP_MUL] = {"Mul", NULL, NULL},
    [BENCH_STEP_GELU] = {"Gelu", NULL, NULL},
    [BENCH_STEP_RELU] = {"Relu", NULL, NULL},
    [BENCH_STEP_SILU] = {NULL, NULL, write_silu},
    [BENCH_STEP_SOFTPLUS] = {"Softplus", NULL, NULL},
    [BENCH_STEP_LAYER_NORM] = {"LayerNormalization", "axis=-1 epsilon=0.00001", NULL},
    [BENCH_STEP_RMS_NORM] = {NULL, NULL, write_rms_norm},
    [BENCH_STEP_ROTARY] = {NULL, NULL, write_rotary},
    [BENCH_STEP_HEADS] = {NULL, NULL, write_heads},
    [BENCH_STEP_MERGE] = {NULL, NULL, write_merge},
    [BENCH_STEP_ATTEND] = {NULL, NULL, write_attend},
    [BENCH_STEP_CONV] = {NULL, NULL, write_conv},
    [BENCH_STEP_CONV_UP] = {"ConvTranspose", "kernel_shape=[2,2] strides=[2,2]", NULL},
    [BENCH_STEP_MAX_POOL] = {"MaxPool", "kernel_shape=[2,2] strides=[2,2]", NULL},
    [BENCH_STEP_CONCAT] = {"Concat", "axis=1", NULL},
    [BENCH_STEP_LAST] = {"Transpose", "perm=[0,2,3,1]", NULL},
    [BENCH_STEP_FIRST] = {"Transpose", "perm=[0,3,1,2]", NULL},
    [BENCH_STEP_SCAN] = {NULL, NULL, write_scan},
    [BENCH_STEP_DEQUANTISE] = {NULL, NULL, write_dequantise},
};

/* ---- blocks ------------------------------------------------------------------------------------------------------------------ */

/* Names the values: operands are x0, x1..., results y0, y1... Where operators split and merge heads themselves, the result of such a step
 * has the name of its operand. */
static void name_values(writer *w) {
    int operands = 0, results[BENCH_BLOCK_VALUES], count = bench_block_results(w->block, results);
    for (int v = 0; v < w->block->count; v++) {
        const bool operand = w->block->values[v].operand;
        snprintf(w->name[v], sizeof w->name[v], "%c%d", operand ? 'x' : 'v', operand ? operands++ : v);
    }
    for (int r = 0; r < count; r++) snprintf(w->name[results[r]], sizeof w->name[0], "y%d", r);
    for (int v = 0; v < w->block->count && w->way != NODES; v++) {
        const bench_block_value *value = &w->block->values[v];
        if (value->operand || (value->kind != BENCH_STEP_HEADS && value->kind != BENCH_STEP_MERGE)) continue;
        w->split[v] = true;
        if (value->kind == BENCH_STEP_HEADS)
            memcpy(w->name[v], w->name[value->input[0]], sizeof w->name[v]);
        else
            memcpy(w->name[value->input[0]], w->name[v], sizeof w->name[v]);
    }
}

static void write_block(onnx_model *m, const bench_problem *p, spelled_way way) {
    bench_block *block = malloc(sizeof *block);
    writer *w = calloc(1, sizeof *w);
    if (!block || !w || !bench_block_of(block, p->shape)) {
        m->failed = true;
        free(block), free(w);
        return;
    }
    *w = (writer){.m = m, .block = block, .way = way};
    name_values(w);
    onnx_operands(m, p);
    onnx_results(m, p);
    for (int n = 0; n < block->count; n++) {
        const bench_block_value *v = &block->values[n];
        const spelling *s = &spellings[v->kind];
        char inputs[128] = "";
        if (v->operand || w->split[n]) continue;
        for (int i = 0; i < v->inputs && !s->write; i++)
            snprintf(inputs + strlen(inputs), sizeof inputs - strlen(inputs), i ? " %s" : "%s", in(w, v, i));
        if (s->write)
            s->write(w, v, w->name[n]);
        else
            onnx_node(m, s->type, inputs, w->name[n], s->attributes);
    }
    free(w);
    free(block);
}

void onnx_block_operator(onnx_model *m, const bench_problem *p) {
    write_block(m, p, OPERATOR);
}
void onnx_block_nodes(onnx_model *m, const bench_problem *p) {
    write_block(m, p, NODES);
}
void onnx_block_multi_head(onnx_model *m, const bench_problem *p) {
    write_block(m, p, MULTI_HEAD);
}
