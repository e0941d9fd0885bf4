/* Norms, activations and attention as exporters spell them out of small nodes: as few kernels as the rows of the operator table that compute
 * the same, and the same numbers. Kernels are counted on the interp target, which joins whatever one kernel may compute: elsewhere the machine's
 * cost model decides about joins in doubt, and the two forms may differ by its ties. */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>

typedef struct form {
    const char *name;
    int opset;
    /* "name dims; ...": f32 */
    const char *inputs;
    /* "result = Operator operand ... attribute=integer ...; ..."; the last result is y. Operands: names; numbers; {1,2} vectors of f32,
     * [1,2] of i64, which are initializers. Attributes: a list is [1,2], a float has a point. */
    const char *nodes;
    /* The same by rows, in the text form: statements after the inputs. */
    const char *rows;
} form;

#define HEADS                                                                             \
    "q4 = Reshape q [0,-1,4,64]; k4 = Reshape k [0,-1,4,64]; v4 = Reshape v [0,-1,4,64];" \
    "qt = Transpose q4 perm=[0,2,1,3]; kt = Transpose k4 perm=[0,2,3,1]; vt = Transpose v4 perm=[0,2,1,3];"
#define JOINED "; ot = Transpose o perm=[0,2,1,3]; y = Reshape ot [0,-1,256]"
#define ATTENTION(b)                                                                            \
    "q4 = reshape(q, shape=[" b ", 128, 4, 64]) k4 = reshape(k, shape=[" b ", 128, 4, 64])"     \
    "v4 = reshape(v, shape=[" b ", 128, 4, 64]) qt = transpose(q4, permutation=[0, 2, 1, 3])"   \
    "kt = transpose(k4, permutation=[0, 2, 1, 3]) vt = transpose(v4, permutation=[0, 2, 1, 3])" \
    "o = attention(qt, kt, vt, m) ot = transpose(o, permutation=[0, 2, 1, 3])"                  \
    "y = reshape(ot, shape=[" b ", 128, 256]) output y"
#define QKV(b) "q " b " 128 256; k " b " 128 256; v " b " 128 256; m " b " 1 1 128"
#define ROW "x 1 64 256; w 256; b 256"
#define LAYER_NORM "y = layer_norm(x, w, b, axis=-1) output y"
#define NORM(statistics, scaled) \
    "a = ReduceMean x axes=[-1] keepdims=1; d = Sub x a;" statistics "; n = " scaled "; s = Mul n w; y = Add s b"

static const form forms[] = {
    {"layer norm: Pow, Sqrt, Div", 11, ROW,
     NORM("p = Pow d 2; v = ReduceMean p axes=[-1] keepdims=1; e = Add v 1e-5; r = Sqrt e", "Div d r"), LAYER_NORM},
    {"layer norm: Pow, Sqrt, Div", 17, ROW,
     NORM("p = Pow d 2; v = ReduceMean p axes=[-1] keepdims=1; e = Add v 1e-5; r = Sqrt e", "Div d r"), LAYER_NORM},
    {"layer norm: the difference twice, Mul, Reciprocal", 13, ROW,
     NORM(
         "f = Sub x a; p = Mul f f; v = ReduceMean p axes=[-1] keepdims=1; e = Add v 1e-5; q = Sqrt e; r = Reciprocal q",
         "Mul d r"),
     LAYER_NORM},
    {"layer norm of TensorFlow: x * (scale / deviation) + (b - mean * that)", 13, ROW,
     "a = ReduceMean x axes=[-1] keepdims=1; d = Sub x a; p = Mul d d; v = ReduceMean p axes=[-1] keepdims=1;"
     "e = Add v 1e-5; q = Sqrt e; r = Reciprocal q; g = Mul r w; h = Mul x g; i = Mul a g; j = Sub b i; y = Add h j",
     LAYER_NORM},
    {"layer norm: axes as an operand", 18, ROW,
     "a = ReduceMean x [-1] keepdims=1; d = Sub x a; p = Pow d 2; v = ReduceMean p [-1] keepdims=1; e = Add v 1e-5;"
     "r = Sqrt e; n = Div d r; s = Mul n w; y = Add s b",
     LAYER_NORM},
    {"RMS norm", 13, "x 1 64 256; w 256",
     "p = Pow x 2; v = ReduceMean p axes=[-1] keepdims=1; e = Add v 1e-5; r = Sqrt e; i = Div 1 r; n = Mul x i; y = Mul w n",
     "y = rms_norm(x, w, axis=-1) output y"},
    {"GELU: Erf", 13, "x 64 256", "d = Div x 1.4142135; e = Erf d; f = Add e 1; g = Mul x f; y = Mul g 0.5",
     "y = gelu(x) output y"},
    {"GELU: Erf, half of x first", 11, "x 64 256",
     "h = Mul x 0.5; d = Mul x 0.70710678; e = Erf d; f = Add 1 e; y = Mul h f", "y = gelu(x) output y"},
    {"GELU: Tanh", 13, "x 64 256",
     "p = Pow x 3; q = Mul p 0.044715; r = Add x q; s = Mul r 0.7978846; t = Tanh s; u = Add t 1; h = Mul x 0.5; y = Mul h u",
     "y = gelu(x, approximate=tanh) output y"},
    {"SiLU", 13, "x 64 256", "s = Sigmoid x; y = Mul x s", "y = silu(x) output y"},
    {"HardSwish: HardSigmoid", 13, "x 64 256", "s = HardSigmoid x alpha=0.16666667 beta=0.5; y = Mul x s",
     "y = hard_swish(x) output y"},
    {"HardSwish: Clip, Div", 11, "x 64 256", "a = Add x 3; c = Clip a 0 6; p = Mul x c; y = Div p 6",
     "y = hard_swish(x) output y"},
    {"batch norm behind a convolution", 13, "x 1 3 16 16; w 4 3 3 3",
     "c = Conv x w; d = Sub c {1,2,3,4}:3; f = Div d {2,3,4,5}:3; g = Mul f {3,1,2,1}:3; h = Add g {1,2,1,2}:3; y = Relu h",
     "s = constant f32[4] {3, 1, 2, 1} t = constant f32[4] {1, 2, 1, 2} a = constant f32[4] {1, 2, 3, 4}"
     "e = constant f32[4] {4, 9, 16, 25} c = convolution(x, w) n = batch_norm(c, s, t, a, e, epsilon=0) y = relu(n) output y"},
    {"attention, batch 1", 11, QKV("1"),
     HEADS "s = MatMul qt kt; d = Div s 8; e = Add d m; p = Softmax e axis=3; o = MatMul p vt" JOINED, ATTENTION("1")},
    {"attention, batch 1", 17, QKV("1"),
     HEADS "s = MatMul qt kt; d = Mul s 0.125; e = Add d m; p = Softmax e axis=-1; o = MatMul p vt" JOINED,
     ATTENTION("1")},
    {"attention, batch 2", 13, QKV("2"),
     HEADS "s = MatMul qt kt; d = Div s 8; e = Add d m; p = Softmax e axis=-1; o = MatMul p vt" JOINED, ATTENTION("2")},
    {"attention: both operands scaled", 17, QKV("1"),
     HEADS "qs = Mul qt 0.35355339; ks = Mul kt 0.35355339; s = MatMul qs ks; e = Add s m; p = Softmax e axis=-1;"
           "o = MatMul p vt" JOINED,
     ATTENTION("1")},
    {"attention: softmax spelled out, too", 13, QKV("2"),
     HEADS
     "s = MatMul qt kt; d = Mul s 0.125; e = Add d m; g = ReduceMax e axes=[-1] keepdims=1; h = Sub e g; i = Exp h;"
     "j = ReduceSum i [-1] keepdims=1; p = Div i j; o = MatMul p vt" JOINED,
     ATTENTION("2")},
};

/* ---- models ---------------------------------------------------------------------------------------------------------- */

/* A number, or {1,2}; with ":3" behind, of rank 3, the other dimensions being 1. */
static message floats_of(const char *name, const char *text) {
    enum { MOST = 16 };
    const bool vector = *text == '{';
    float number[MOST];
    int64_t dims[DLC_MAX_RANK] = {0};
    int rank = vector;
    char *end = (char *)(uintptr_t)text;
    do {
        number[dims[0]] = strtof(end + (*end == '{' || *end == ','), &end);
        dims[0]++;
    } while (*end == ',' && dims[0] < MOST);
    const char *wanted = strchr(text, ':');
    const int64_t count = dims[0];
    while (wanted && rank < atoi(wanted + 1)) dims[rank++] = 1;
    message t = tensor_of(name, 1, rank, dims);
    for (int64_t i = 0; i < count; i++) add_float(&t, 4, number[i]);
    return t;
}

static void add_integers(message *m, unsigned field, const char *text) {
    for (char *end = NULL; *text && *text != ']'; text = end + (*end == ',')) {
        add_int(m, field, strtoll(text, &end, 10));
        if (end == text) break;
    }
}

static message integers_of(const char *name, const char *text) {
    int64_t count = 1;
    for (const char *at = text; *at; at++) count += *at == ',';
    message t = tensor_of(name, 7, 1, &count);
    add_integers(&t, 7, text + 1);
    return t;
}

static message attribute_of(const char *word) {
    message a = {0};
    const char *value = strchr(word, '=') + 1;
    add_data(&a, 1, word, (size_t)(value - word - 1));
    if (*value == '[')
        add_integers(&a, 8, value + 1);
    else if (strchr(value, '.'))
        add_float(&a, 2, strtof(value, NULL));
    else
        add_int(&a, 3, strtoll(value, NULL, 10));
    add_int(&a, 20, *value == '[' ? 7 : strchr(value, '.') ? 1 : 2);
    return a;
}

/* A node; its constants become initializers of the graph. */
static void add_node(message *graph, const char *text) {
    char copy[256], name[64], *rest;
    message n = {0};
    int constants = 0;
    snprintf(copy, sizeof copy, "%s", text);
    const char *result = strtok_r(copy, " ", &rest);
    add_text(&n, 2, result);
    strtok_r(NULL, " ", &rest); /* = */
    const char *operator= strtok_r(NULL, " ", &rest);
    for (const char *word; (word = strtok_r(NULL, " ", &rest));) {
        if (strchr(word, '=')) {
            add_message(&n, 5, attribute_of(word));
            continue;
        }
        const bool constant = *word < 'a' || *word == '{';
        snprintf(name, sizeof name, "%s.%d", result, constants);
        constants += constant;
        add_text(&n, 1, constant ? name : word);
        if (constant) add_message(graph, 5, *word == '[' ? integers_of(name, word) : floats_of(name, word));
    }
    add_text(&n, 4, operator);
    add_message(graph, 1, n);
}

static message model_of_form(const form *f) {
    char copy[1024], *rest;
    message g = {0}, m = {0}, opset = {0};
    snprintf(copy, sizeof copy, "%s", f->nodes);
    rest = copy;
    for (char *text; (text = strtok_r(rest, ";", &rest));) add_node(&g, text);
    add_text(&g, 2, f->name);
    snprintf(copy, sizeof copy, "%s", f->inputs);
    rest = copy;
    for (char *text; (text = strtok_r(rest, ";", &rest));) {
        text += *text == ' ';
        char *dims = strchr(text, ' ');
        *dims = 0;
        add_message(&g, 11, port_of(text, 1, dims + 1));
    }
    add_message(&g, 12, port_of("y", 1, "-"));
    add_int(&m, 1, 8);
    add_message(&m, 7, g);
    add_int(&opset, 2, f->opset);
    add_message(&m, 8, opset);
    return m;
}

/* ---- programs -------------------------------------------------------------------------------------------------------- */

enum { INPUTS = 4, ELEMENTS = 1 << 17 };

typedef struct ports {
    int count, rank[INPUTS];
    int64_t shape[INPUTS][DLC_MAX_RANK];
    char name[INPUTS];
} ports;

static ports ports_of(const form *f) {
    ports p = {0};
    for (const char *at = f->inputs; *at; p.count++) {
        at += *at == ' ';
        p.name[p.count] = *at++;
        for (char *end; *at == ' '; at = end) p.shape[p.count][p.rank[p.count]++] = strtoll(at, &end, 10);
        at += *at == ';';
    }
    return p;
}

static dlc_graph *rows_of(dlc_context *context, const form *f, const ports *p) {
    char text[2048] = "graph {";
    dlc_graph *g;
    for (int i = 0; i < p->count; i++) {
        size_t length = strlen(text);
        length += (size_t)snprintf(text + length, sizeof text - length, " input %c: f32[", p->name[i]);
        for (int d = 0; d < p->rank[i]; d++)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%lld", d ? ", " : "",
                                       (long long)p->shape[i][d]);
        snprintf(text + length, sizeof text - length, "]");
    }
    const size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, " %s }", f->rows);
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    return g;
}

static dlc_graph *imported(dlc_context *context, const form *f) {
    const message m = model_of_form(f);
    dlc_onnx_model *model;
    dlc_graph *g;
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &model));
    OK(context, dlc_onnx_graph(model, NULL, &g));
    dlc_onnx_destroy(model);
    free(m.data); /* what the graph needs was copied, being small */
    return g;
}

/* The number of the graph's kernels; the graph ends. */
static int count_kernels(dlc_context *context, dlc_graph *g, const ports *p) {
    dlc_program *program = compile(context, g);
    const int64_t *shapes[INPUTS];
    char *text;
    int kernels = 0;
    for (int i = 0; i < p->count; i++) shapes[i] = p->shape[i];
    OK(context, dlc_program_dump(program, "regions", shapes, p->rank, p->count, &text));
    for (const char *at = text; (at = strstr(at, "\nkernel ")); at++) kernels++;
    kernels += strncmp(text, "kernel ", 7) == 0;
    dlc_text_free(context, text);
    dlc_program_destroy(program);
    return kernels;
}

/* Runs the graph, which ends; returns the number of elements of y. */
static int64_t run_graph(dlc_context *context, dlc_graph *g, const ports *p, float *y) {
    dlc_program *program = compile(context, g);
    const DLTensor *inputs[INPUTS];
    tensor t[INPUTS];
    dlc_output_slot slot = {0};
    int64_t count = 1;
    for (int i = 0; i < p->count; i++) {
        size_t elements = 1;
        for (int d = 0; d < p->rank[i]; d++) elements *= (size_t)p->shape[i][d];
        float *data = malloc(elements * sizeof *data);
        assert_non_null(data);
        fill(data, elements, (uint32_t)i + 7);
        inputs[i] = &make_tensor(&t[i], DLC_F32, data, p->rank[i], p->shape[i])->dl;
    }
    OK(context, dlc_run(program, NULL, inputs, p->count, &slot, 1));
    const DLTensor *out = &slot.managed->dl_tensor;
    for (int d = 0; d < out->ndim; d++) count *= out->shape[d];
    assert_true(count <= ELEMENTS);
    memcpy(y, out->data, (size_t)count * sizeof *y);
    slot.managed->deleter(slot.managed);
    dlc_program_destroy(program);
    for (int i = 0; i < p->count; i++) free(t[i].dl.data);
    return count;
}

static void test_kernels(void **state) {
    (void)state;
    dlc_context *interp = open_context("interp", NULL);
    assert_non_null(interp);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        const ports p = ports_of(f);
        const int spelled = count_kernels(interp, imported(interp, f), &p);
        const int rows = count_kernels(interp, rows_of(interp, f, &p), &p);
        if (spelled != rows || rows == 0)
            fail_msg("%s, opset %d: %d kernels, %d by rows", f->name, f->opset, spelled, rows);
    }
    dlc_context_destroy(interp);
}

static void test_numbers(void **state) {
    (void)state;
    static float y[2][ELEMENTS];
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        const ports p = ports_of(f);
        const int64_t count = run_graph(context, imported(context, f), &p, y[0]);
        assert_int_equal(run_graph(context, rows_of(context, f, &p), &p, y[1]), count);
        for (int64_t k = 0; k < count; k++)
            if (!(fabsf(y[0][k] - y[1][k]) <= 2e-5f * (1 + fabsf(y[1][k]))))
                fail_msg("%s: element %lld is %g, expected %g", f->name, (long long)k, (double)y[0][k],
                         (double)y[1][k]);
    }
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels), cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests_name("onnx/spelled", tests, NULL, NULL);
}
