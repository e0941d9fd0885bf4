/* Decoding of tokens by a model in an ONNX file. The runner keeps the caches of keys and values (outputs present*, which come back as inputs past*)
 * in memory that grows by itself, so that a step writes its own token only. The prompt is one step of several tokens.
 *
 *   generate MODEL.onnx [TOKENS [THREADS]]    inputs input_ids i64[batch, sequence] and caches; outputs logits and caches
 *   generate --make MODEL.onnx [small|gpt2]   writes such a model, with random weights */
#include "decoder.h"

#include <dlc/onnx.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORTS = 256, PROMPT = 8, MOST_TOKENS = 1 << 20 };

static int fail(const dlc_context *context) {
    fprintf(stderr, "%s\n", dlc_error_message(context));
    return 1;
}

static int make_model(const char *path, const char *size) {
    static const decoder_sizes small = {2, 4, 16, 500, 1024}, gpt2 = {12, 12, 64, 50257, 1024};
    dlc_context *context = NULL;
    dlc_graph *graph = NULL;
    decoder d;
    if (!decoder_make(&d, strcmp(size, "gpt2") == 0 ? gpt2 : small)) return fprintf(stderr, "no memory\n"), 1;
    dlc_status status = dlc_context_create(NULL, &context);
    if (status == DLC_OK) status = decoder_graph(context, &d, &graph);
    if (status == DLC_OK) status = dlc_onnx_write(context, path, graph, NULL);
    const int result = status == DLC_OK ? 0 : fail(context);
    dlc_graph_destroy(graph), dlc_context_destroy(context);
    decoder_free(&d);
    return result;
}

/* ---- decoding */

typedef struct session {
    dlc_context *context;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    int input_count, output_count, ids, logits;
} session;

static int port_named(const dlc_onnx_model *model, dlc_onnx_side side, const char *name) {
    dlc_onnx_port port;
    for (int i = 0; dlc_onnx_port_at(model, side, i, &port) == DLC_OK; i++)
        if (strcmp(port.name, name) == 0) return i;
    return -1;
}

static dlc_status open_model(session *s, const char *path, int threads) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_onnx_runner_options how = DLC_ONNX_RUNNER_OPTIONS_INIT;
    options.threads = threads;
    how.find_states = true;
    dlc_status status = dlc_context_create(&options, &s->context);
    if (status == DLC_OK) status = dlc_onnx_open(s->context, path, NULL, &s->model);
    if (status == DLC_OK) status = dlc_onnx_runner_create(s->model, &how, &s->runner);
    if (status != DLC_OK) return status;
    s->input_count = dlc_onnx_port_count(s->model, DLC_ONNX_INPUT);
    s->output_count = dlc_onnx_port_count(s->model, DLC_ONNX_OUTPUT);
    s->ids = port_named(s->model, DLC_ONNX_INPUT, "input_ids");
    s->logits = port_named(s->model, DLC_ONNX_OUTPUT, "logits");
    return status;
}

static int64_t greatest(const float *numbers, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (numbers[i] > numbers[best]) best = i;
    return best;
}

/* *next: the most probable token after the given ones; -1: the model's logits are no f32 [1, count, vocabulary]. Inputs that are not given are
 * the runner's states. */
static dlc_status next_token(session *s, const int64_t *tokens, int64_t count, int64_t *next) {
    const DLTensor ids = {.data = (void *)(uintptr_t)tokens,
                          .device = {kDLCPU, 0},
                          .ndim = 2,
                          .dtype = {kDLInt, 64, 1},
                          .shape = (int64_t[]){1, count}};
    const DLTensor *inputs[PORTS] = {NULL};
    dlc_output_slot outputs[PORTS] = {{NULL, NULL}};
    inputs[s->ids] = &ids;
    dlc_status status = dlc_onnx_run(s->runner, NULL, inputs, s->input_count, outputs, s->output_count);
    if (status != DLC_OK) return status;
    const DLTensor *logits = &outputs[s->logits].managed->dl_tensor;
    const bool good = logits->dtype.code == kDLFloat && logits->dtype.bits == 32 && logits->ndim == 3 &&
                      logits->shape[0] == 1 && logits->shape[1] == count && logits->shape[2] > 0;
    const int64_t vocabulary = good ? logits->shape[2] : 0;
    *next = good ? greatest((const float *)logits->data + (count - 1) * vocabulary, vocabulary) : -1;
    for (int i = 0; i < s->output_count; i++)
        if (outputs[i].managed) outputs[i].managed->deleter(outputs[i].managed);
    return DLC_OK;
}

static dlc_statistics statistics(const session *s) {
    dlc_statistics now = DLC_STATISTICS_INIT;
    dlc_context_statistics(s->context, &now);
    return now;
}

static double seconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Kernels are compiled for the prompt and for the first single tokens, and then for no other length. Returns the program's exit status. */
static int decode(session *s, int64_t *tokens, int64_t count) {
    enum { WARM = PROMPT + 8 };
    uint64_t builds = 0;
    double start = seconds(), first = 0, warm = 0;
    for (int64_t done = 0, at = PROMPT; at < count; done = at++) {
        dlc_status status = next_token(s, tokens + done, at - done, &tokens[at]);
        if (status != DLC_OK) return fail(s->context);
        if (tokens[at] < 0) return fprintf(stderr, "logits are no f32 [1, tokens, vocabulary]\n"), 1;
        if (at == PROMPT) first = seconds() - start;
        if (at == WARM) builds = statistics(s).kernel_builds, warm = seconds();
    }
    const double end = seconds();
    printf("tokens:");
    for (int64_t i = PROMPT; i < count && i < WARM; i++) printf(" %lld", (long long)tokens[i]);
    printf("%s\n%lld tokens in %.2f s, of which the first one %.2f s\n", count > WARM ? " ..." : "",
           (long long)(count - PROMPT), end - start, first);
    if (count > WARM + 1)
        printf("after the 8th: %.1f tokens/s, %llu kernels built\n", (double)(count - WARM - 1) / (end - warm),
               (unsigned long long)(statistics(s).kernel_builds - builds));
    return 0;
}

int main(int argc, char **argv) {
    const bool make = argc > 2 && strcmp(argv[1], "--make") == 0;
    const char *size = make && argc > 3 ? argv[3] : "small";
    const int64_t wanted = argc > 2 && !make ? atoll(argv[2]) : 384;
    const bool known = strcmp(size, "small") == 0 || strcmp(size, "gpt2") == 0;
    if (argc < 2 || (argv[1][0] == '-' && !make) || !known || wanted < 1 || wanted > MOST_TOKENS)
        return fprintf(stderr,
                       "usage: generate MODEL.onnx [TOKENS [THREADS]]     TOKENS: 1 to %d\n"
                       "       generate --make MODEL.onnx [small|gpt2]\n",
                       MOST_TOKENS),
               2;
    if (make) return make_model(argv[2], size);
    session s = {0};
    const int64_t count = PROMPT + wanted;
    int64_t *tokens = calloc((size_t)count, sizeof *tokens);
    for (int i = 0; tokens && i < PROMPT; i++) tokens[i] = 10 + i;
    if (!tokens) return fprintf(stderr, "no memory\n"), 1;
    const dlc_status status = open_model(&s, argv[1], argc > 3 ? atoi(argv[3]) : 0);
    const bool fits = s.ids >= 0 && s.logits >= 0 && s.input_count <= PORTS && s.output_count <= PORTS;
    if (status == DLC_OK && !fits) fprintf(stderr, "%s: no input_ids or no logits\n", argv[1]);
    const int result = status != DLC_OK ? fail(s.context) : !fits || decode(&s, tokens, count) != 0;
    dlc_onnx_runner_destroy(s.runner), dlc_onnx_destroy(s.model), dlc_context_destroy(s.context);
    free(tokens);
    return result;
}
