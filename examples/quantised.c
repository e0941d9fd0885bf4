/* Quantised weights: a matrix is stored as integers of 4 bits with a scale for every 32 of them, 0.16 of the bytes of f32, and the
 * product reads it in that form: the graph contains dlc_dequantize_linear. Quantising is a graph, too, run once. */
#include <dlc/dlc.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { IN = 256, OUT = 64, BLOCK = 32, BLOCKS = IN / BLOCK };

typedef struct weights {
    /* i4 [IN, OUT], two to a byte */
    unsigned char packed[IN * OUT / 2];
    /* [BLOCKS, OUT]: blocks along the first axis */
    float scale[BLOCKS * OUT];
} weights;

static DLTensor tensor_of(void *data, uint8_t code, uint8_t bits, int64_t *shape) {
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {code, bits, 1}, .shape = shape};
}

/* In -1..1. */
static float noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

/* scale = greatest magnitude of a block / 7; packed = round(w / scale). */
static dlc_status quantise(dlc_context *context, float *w, weights *q) {
    dlc_graph *graph;
    dlc_program *program = NULL;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status != DLC_OK) return status;
    dlc_value x = dlc_input(graph, "w", DLC_F32, 2, (dlc_dim[]){{IN, NULL}, {OUT, NULL}});
    dlc_value blocks = dlc_reshape(dlc_abs(x), 3, (dlc_dim[]){{BLOCKS, NULL}, {BLOCK, NULL}, {OUT, NULL}});
    dlc_value greatest = dlc_reduce_max(blocks, 1, (int64_t[]){1});
    dlc_value scale = dlc_div(greatest, dlc_scalar(graph, DLC_F32, 7));
    dlc_quantize_linear_options options = DLC_QUANTIZE_LINEAR_OPTIONS_INIT;
    options.block = BLOCK;
    options.dtype = DLC_I4;
    dlc_output(graph, "packed", dlc_quantize_linear_with(x, scale, DLC_NONE, 0, &options));
    dlc_output(graph, "scale", scale);
    status = dlc_compile(context, graph, NULL, &program);
    dlc_graph_destroy(graph);
    DLTensor from = tensor_of(w, kDLFloat, 32, (int64_t[]){IN, OUT});
    DLTensor packed = tensor_of(q->packed, kDLInt, 4, (int64_t[]){IN, OUT});
    DLTensor scales = tensor_of(q->scale, kDLFloat, 32, (int64_t[]){BLOCKS, OUT});
    dlc_output_slot outputs[2] = {{&packed, NULL}, {&scales, NULL}};
    if (status == DLC_OK) status = dlc_run(program, NULL, (const DLTensor *[]){&from}, 1, outputs, 2);
    dlc_program_destroy(program);
    return status;
}

static dlc_status build(dlc_context *context, const weights *q, dlc_program **program) {
    dlc_graph *graph;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status != DLC_OK) return status;
    dlc_value x = dlc_input(graph, "x", DLC_F32, 2, (dlc_dim[]){{0, "rows"}, {IN, NULL}});
    dlc_value packed = dlc_constant_borrow(graph, DLC_I4, 2, (int64_t[]){IN, OUT}, q->packed);
    dlc_value scale = dlc_constant_borrow(graph, DLC_F32, 2, (int64_t[]){BLOCKS, OUT}, q->scale);
    dlc_dequantize_linear_options options = DLC_DEQUANTIZE_LINEAR_OPTIONS_INIT;
    options.block = BLOCK;
    dlc_output(graph, "y", dlc_matmul(x, dlc_dequantize_linear_with(packed, scale, DLC_NONE, 0, &options)));
    status = dlc_compile(context, graph, NULL, program);
    dlc_graph_destroy(graph);
    return status;
}

int main(void) {
    static float w[IN][OUT], x[IN], y[OUT];
    static weights q;
    uint32_t state = 1;
    for (int i = 0; i < IN * OUT; i++) (&w[0][0])[i] = noise(&state);
    for (int i = 0; i < IN; i++) x[i] = noise(&state);
    dlc_context *context = NULL;
    dlc_program *program = NULL;
    DLTensor in = tensor_of(x, kDLFloat, 32, (int64_t[]){1, IN}), out = tensor_of(y, kDLFloat, 32, (int64_t[]){1, OUT});
    if (dlc_context_create(NULL, &context) || quantise(context, &w[0][0], &q) || build(context, &q, &program) ||
        dlc_run(program, NULL, (const DLTensor *[]){&in}, 1, &(dlc_output_slot){&out, NULL}, 1))
        return fprintf(stderr, "%s\n", dlc_error_message(context)), 1;

    double error = 0, size = 0;
    for (int j = 0; j < OUT; j++) {
        double exact = 0;
        for (int i = 0; i < IN; i++) exact += (double)x[i] * (double)w[i][j];
        error += (exact - (double)y[j]) * (exact - (double)y[j]);
        size += exact * exact;
    }
    error = sqrt(error / size);
    printf("weights: %zu bytes, %zu as f32\n", sizeof q, sizeof w);
    printf("relative error of the product %s 10 %%\n", error < 0.1 ? "below" : "NOT below");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return error >= 0.1;
}
