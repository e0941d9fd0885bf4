/* What it costs not to know a size: kernels for a dimension n that varies against kernels for the very n, on the same tensors, by turns. */
#include "bench/varying.h"

#include "bench/bench.h"
#include "bench/stats.h"

#include <dlc/dlc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS = 3, SAMPLES = 21, SIZES = 2 };

static const int64_t sizes[SIZES] = {300, 1000};

/* All inputs are f32. */
static const char *const graphs[] = {
    "input x: f32[n, 256] input w: f32[256, 256] y = matmul(x, w)",
    "input x: f32[64, 256] input w: f32[256, n] y = matmul(x, w)",
    "input x: f32[64, n] input w: f32[n, 64] y = matmul(x, w)",
    "input x: f32[n, 16, 32] input w: f32[n, 32, 16] y = matmul(x, w)",
    "input x: f32[n, 256] input w: f32[256, 256] input b: f32[256] c = matmul(x, w) d = add(c, b) y = relu(d)",
    "input x: f32[65, n] input b: f32[n] y = add(x, b)",
    "input x: f32[n, 65] y = tanh(x)",
    "input x: f32[n, 768] y = reduce_sum(x, axes=[1])",
    "input x: f32[n, 64] y = reduce_sum(x, axes=[0])",
    "input x: f32[n, 64] y = reduce_max(x, axes=[0, 1])",
    "input x: f32[16, n] y = arg_max(x, axis=1)",
    "input x: f32[n, 256] y = softmax(x, axis=1)",
    "input x: f32[64, n] y = softmax(x, axis=1)",
    "input x: f32[n, 256] input g: f32[256] input b: f32[256] y = layer_norm(x, g, b, axis=1)",
    "input x: f32[64, n] input g: f32[n] y = rms_norm(x, g, axis=1)",
    "input x: f32[n, 65] y = transpose(x, permutation=[1, 0])",
    "input x: f32[65, n] y = transpose(x, permutation=[1, 0])",
    "input x: f32[n, 8, 64] y = transpose(x, permutation=[1, 0, 2])",
    "input x: f32[n, 64] input z: f32[13, 64] y = concat(x, z, axis=0)",
    "input x: f32[64, n] input z: f32[] y = pad(x, z, low=[1, 1], high=[1, 1])",
    "input x: f32[64, n] y = cumulative_sum(x, axis=1)",
    "input x: f32[1, 16, 14, n] input w: f32[16, 16, 3, 3] y = convolution(x, w, low=[1, 1], high=[1, 1])",
    "input x: f32[1, 64, n, 14] input w: f32[64, 64, 1, 1] y = convolution(x, w)",
    "input x: f32[1, 16, n, 14] input w: f32[16, 1, 3, 3] y = convolution(x, w, low=[1, 1], high=[1, 1], groups=16)",
    "input x: f32[n, 16, 28, 28] input w: f32[16, 1, 3, 3] y = convolution(x, w, low=[1, 1], high=[1, 1], groups=16)",
    "input x: f32[n, 16, 14, 14] input w: f32[32, 16, 1, 1] y = convolution(x, w)",
    "input x: f32[1, 16, n] input w: f32[16, 16, 5] y = convolution(x, w, low=[2], high=[2])",
    "input x: f32[1, 64, n] input w: f32[3, 64, 7] y = convolution(x, w, low=[3], high=[3])",
    "input x: f32[1, 16, 28, n] input w: f32[16, 1, 3, 3] y = convolution(x, w, low=[1, 1], high=[1, 1], groups=16)",
    "input x: f32[2, 16, 30, n] y = max_pool(x, window=[3, 3], stride=[2, 2])",
    "input x: f32[100, 12, n] input w: f32[100, n, 2] y = matmul(x, w)",
    "input x: f32[1, 16, n, 16] y = max_pool(x, window=[2, 2], stride=[2, 2])",
    "input q: f32[1, 4, n, 64] input k: f32[1, 4, n, 64] input v: f32[1, 4, n, 64] y = attention(q, k, v)",
    "input q: f32[1, 8, 1, 64] input k: f32[1, 8, n, 64] input v: f32[1, 8, n, 64] y = attention(q, k, v)",
};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

typedef struct operands {
    int count;
    DLTensor tensor[INPUTS];
    const DLTensor *list[INPUTS];
    int64_t shape[INPUTS][8];
} operands;

/* Makes the inputs that the text declares, with a number for n. */
static void make_operands(const char *text, int64_t n, operands *o) {
    o->count = 0;
    for (const char *at = text; (at = strstr(at, "f32[")) && o->count < INPUTS; o->count++) {
        DLTensor *t = &o->tensor[o->count];
        int64_t *shape = o->shape[o->count], elements = 1;
        *t = (DLTensor){.device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}, .shape = shape};
        for (at += strlen("f32["); *at != ']'; at += strspn(at, ", ")) {
            char *end;
            shape[t->ndim] = *at == 'n' ? n : strtoll(at, &end, 10);
            at = *at == 'n' ? at + 1 : end;
            elements *= shape[t->ndim++];
        }
        float *data = aligned_alloc(64, ((size_t)elements * sizeof(float) + 63) / 64 * 64);
        for (int64_t i = 0; data && i < elements; i++) data[i] = (float)(i % 13) * 0.1f - 0.5f;
        t->data = data;
        o->list[o->count] = t;
    }
}

static void free_operands(operands *o) {
    for (int i = 0; i < o->count; i++) free(o->tensor[i].data);
}

static dlc_program *compile(dlc_context *context, const char *text, const char *how) {
    char whole[512];
    dlc_graph *graph;
    dlc_program *program = NULL;
    snprintf(whole, sizeof whole, "graph { symbol n in 1..4096 %s %s output y }", how, text);
    if (dlc_graph_parse(context, whole, strlen(whole), &graph)) return NULL;
    dlc_compile(context, graph, NULL, &program);
    dlc_graph_destroy(graph);
    return program;
}

/* Seconds of a run with `times` repetitions; -1: it failed. */
static double seconds(dlc_program *program, const operands *o, int times) {
    dlc_output_slot output = {0};
    const double start = bench_now();
    for (int i = 0; i < times; i++) {
        if (dlc_run(program, NULL, o->list, o->count, &output, 1)) return -1;
        output.managed->deleter(output.managed);
        output = (dlc_output_slot){0};
    }
    return (bench_now() - start) / times;
}

/* Time of the kernels that do not know n over that of those that do; -1: it could not be measured. */
static double cost_of(const char *text, int64_t n) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    if (dlc_context_create(&options, &context)) return -1;
    operands o;
    make_operands(text, n, &o);
    dlc_program *program[2] = {compile(context, text, ""), compile(context, text, "varies")};
    double times[2][SAMPLES], ratio = -1;
    if (program[0] && program[1] && seconds(program[0], &o, 1) >= 0 && seconds(program[1], &o, 1) >= 0) {
        const double once = seconds(program[0], &o, 3);
        const int repeat = once > 2e-4 ? 1 : (int)(2e-4 / (once + 1e-9)) + 1;
        bool good = true;
        for (int s = 0; s < SAMPLES; s++)
            for (int p = 0; p < 2; p++) good = good && (times[p][s] = seconds(program[p], &o, repeat)) >= 0;
        if (good) ratio = bench_median(times[1], SAMPLES) / bench_median(times[0], SAMPLES);
    }
    if (ratio < 0) fprintf(stderr, "%s: %s\n", text, dlc_error_message(context));
    for (int p = 0; p < 2; p++) dlc_program_destroy(program[p]);
    free_operands(&o);
    dlc_context_destroy(context);
    return ratio;
}

static double cost_of_varying(bool worst) {
    double logs = 0, most = 0;
    for (int g = 0; g < GRAPHS; g++)
        for (int s = 0; s < SIZES; s++) {
            const double ratio = cost_of(graphs[g], sizes[s]);
            if (ratio < 0) return -1;
            if (getenv("BENCH_TELL")) fprintf(stderr, "%5.2f n = %d: %s\n", ratio, (int)sizes[s], graphs[g]);
            logs += log(ratio);
            if (ratio > most) most = ratio;
        }
    return worst ? most : exp(logs / (GRAPHS * SIZES));
}

double bench_varying_mean(void) {
    return cost_of_varying(false);
}

double bench_varying_worst(void) {
    return cost_of_varying(true);
}
