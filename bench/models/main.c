/* Runs a network as a host would: opens a target, builds and compiles, calls once, then again and again. Prints one JSON line of times.
 * Or writes it as an ONNX model and runs that file, too, whose results must have the same bits. */
#include "bench/models/models.h"

#include <dlc/onnx.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SIZES = 8 };

typedef struct options {
    /* file: NULL: no ONNX model */
    const char *name, *target, *file;
    dlc_dtype dtype;
    /* Of symbols, instead of the usual ones. */
    dlc_dim sizes[MOST_SIZES];
    int size_count;
    int threads;
    /* tolerance: 0: no check */
    double seconds, tolerance;
} options;

/* tensors of one run */
typedef struct call {
    int64_t shape[3][DLC_MAX_RANK];
    /* inputs, then the result */
    DLTensor tensor[3];
    int inputs;
} call;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void describe(call *c, int number, DLDataType type, int rank, const int64_t *shape) {
    size_t bytes = type.bits / 8;
    for (int d = 0; d < rank; d++) bytes *= (size_t)(c->shape[number][d] = shape[d]);
    c->tensor[number] = (DLTensor){.data = aligned_alloc(64, (bytes + 63) / 64 * 64),
                                   .device = {kDLCPU, 0},
                                   .ndim = rank,
                                   .dtype = type,
                                   .shape = c->shape[number]};
    if (!c->tensor[number].data) abort();
}

static int64_t count_of(const DLTensor *t) {
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++) count *= t->shape[d];
    return count;
}

static void release_call(call *c) {
    for (int i = 0; i < 3; i++) free(c->tensor[i].data);
}

static int64_t size_of(const options *o, const dlc_dim *dim) {
    for (int i = 0; dim->name && i < o->size_count; i++)
        if (strcmp(o->sizes[i].name, dim->name) == 0) return o->sizes[i].value;
    return dim->value;
}

/* Words, or numbers that look like an image or sound; the last quarter of all sentences but the first is padding. */
static void make_inputs(call *c, const options *o, const model_sizes *s) {
    int64_t shape[DLC_MAX_RANK];
    uint32_t state = 1;
    for (int d = 0; d < s->rank; d++) shape[d] = size_of(o, &s->dims[d]);
    const bool words = s->dtype == DLC_I64;
    describe(c, 0, words ? (DLDataType){kDLInt, 64, 1} : (DLDataType){kDLFloat, 32, 1}, s->rank, shape);
    for (int64_t i = 0; i < count_of(&c->tensor[0]); i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes */
        if (words)
            ((int64_t *)c->tensor[0].data)[i] = (int64_t)(state >> 8) % s->vocabulary;
        else
            ((float *)c->tensor[0].data)[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
    c->inputs = 1;
    if (!s->masked) return;
    describe(c, c->inputs++, (DLDataType){kDLBool, 8, 1}, s->rank, shape);
    for (int64_t i = 0; i < count_of(&c->tensor[1]); i++)
        ((bool *)c->tensor[1].data)[i] = i < shape[1] || i % shape[1] < (3 * shape[1] + 3) / 4;
}

static bool report(const dlc_context *context, dlc_status status) {
    if (status != DLC_OK) fprintf(stderr, "%s: %s\n", dlc_status_text(status), dlc_error_message(context));
    return status == DLC_OK;
}

typedef struct times {
    double build, compile, first, median;
    int runs;
    dlc_statistics statistics;
} times;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Makes the tensor of the result, if there is none yet. */
static bool make_result(dlc_program *program, dlc_context *context, call *c) {
    const int64_t *shapes[] = {c->shape[0], c->shape[1]};
    const int ranks[] = {c->tensor[0].ndim, c->tensor[1].ndim};
    int64_t shape[DLC_MAX_RANK];
    int rank;
    if (c->tensor[c->inputs].data) return true;
    if (!report(context, dlc_output_shape(program, shapes, ranks, c->inputs, 0, DLC_MAX_RANK, shape, &rank)))
        return false;
    describe(c, c->inputs, (DLDataType){kDLFloat, 32, 1}, rank, shape);
    return true;
}

static bool run(dlc_program *program, dlc_context *context, call *c, double seconds, times *t) {
    enum { MOST = 10000 };
    static double took[MOST];
    const DLTensor *inputs[] = {&c->tensor[0], &c->tensor[1]};
    if (!make_result(program, context, c)) return false;
    dlc_output_slot slot = {.tensor = &c->tensor[c->inputs]};
    double start = now(), end = start;
    if (!report(context, dlc_run(program, NULL, inputs, c->inputs, &slot, 1))) return false;
    t->first = now() - start;
    for (end = now() + seconds; t->runs < MOST && now() < end; t->runs++) {
        start = now();
        if (!report(context, dlc_run(program, NULL, inputs, c->inputs, &slot, 1))) return false;
        took[t->runs] = now() - start;
    }
    qsort(took, (size_t)t->runs, sizeof *took, by_size);
    t->median = t->runs ? took[t->runs / 2] : 0;
    return true;
}

static dlc_graph *graph_of_file(dlc_context *context, const char *path) {
    dlc_onnx_model *file = NULL;
    dlc_graph *graph = NULL;
    if (report(context, dlc_onnx_open(context, path, NULL, &file))) report(context, dlc_onnx_graph(file, NULL, &graph));
    dlc_onnx_destroy(file);
    return graph;
}

/* From nothing to a result. `file`: an ONNX model instead of the network as it is built; NULL: none. */
static bool live(const options *o, model *m, const char *target, const char *file, call *c, times *t) {
    dlc_context_options settings = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_program *program = NULL;
    settings.target = target;
    settings.threads = o->threads;
    if (!report(NULL, dlc_context_create(&settings, &context))) return false;
    double start = now();
    dlc_graph *graph = file ? graph_of_file(context, file) : model_graph(m, context, o->dtype);
    t->build = now() - start;
    start = now();
    bool good = graph && report(context, dlc_compile(context, graph, NULL, &program));
    t->compile = now() - start;
    dlc_graph_destroy(graph);
    good = good && run(program, context, c, o->seconds, t);
    t->statistics.struct_size = sizeof t->statistics;
    dlc_context_statistics(context, &t->statistics);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return good;
}

/* Greatest difference over greatest number; infinite where one of them is no number. */
static double difference(const DLTensor *a, const DLTensor *b) {
    const float *x = a->data, *y = b->data;
    double most = 0, apart = 0;
    for (int64_t i = 0; i < count_of(a); i++) {
        if (!isfinite(x[i]) || !isfinite(y[i])) return INFINITY;
        most = fmax(most, fabs((double)y[i]));
        apart = fmax(apart, fabs((double)x[i] - (double)y[i]));
    }
    return apart / most;
}

static void print_times(const options *o, const model_sizes *s, const call *c, const times *t) {
    printf("{\"model\":\"%s\",\"target\":\"%s\",\"dtype\":\"%s\",\"batch\":%lld,\"tokens\":%lld,\"threads\":%d,"
           "\"build_ms\":%.3f,\"compile_ms\":%.3f,\"first_ms\":%.3f,\"median_ms\":%.4f,\"runs\":%d,\"kernels\":%llu,"
           "\"interpreted\":%llu}\n",
           o->name, o->target ? o->target : "", dlc_dtype_name(o->dtype), (long long)c->shape[0][0],
           (long long)(s->vocabulary ? c->shape[0][1] : 0), o->threads, 1e3 * t->build, 1e3 * t->compile,
           1e3 * t->first, 1e3 * t->median, t->runs, (unsigned long long)t->statistics.kernel_builds,
           (unsigned long long)t->statistics.interpreted_regions);
}

static bool check(const options *o, model *m, const call *c) {
    options once = *o;
    call wanted = {0};
    times ignored = {0};
    once.seconds = 0;
    make_inputs(&wanted, o, model_sizes_of(m));
    bool good = live(&once, m, "interp", NULL, &wanted, &ignored);
    double apart = good ? difference(&c->tensor[c->inputs], &wanted.tensor[c->inputs]) : 0;
    if (good) printf("{\"model\":\"%s\",\"difference\":%.3g}\n", o->name, apart);
    release_call(&wanted);
    return good && apart <= o->tolerance;
}

static bool write_file(const options *o, model *m) {
    dlc_context *context = NULL;
    if (!report(NULL, dlc_context_create(NULL, &context))) return false;
    dlc_graph *graph = model_graph(m, context, o->dtype);
    bool good = graph && report(context, dlc_onnx_write(context, o->file, graph, NULL));
    dlc_graph_destroy(graph);
    dlc_context_destroy(context);
    return good;
}

/* The file's result has the bits of the network's. */
static bool compare_file(const options *o, model *m, const call *c) {
    options once = *o;
    call from_file = {0};
    times ignored = {0};
    once.seconds = 0;
    make_inputs(&from_file, o, model_sizes_of(m));
    bool good = live(&once, m, o->target, o->file, &from_file, &ignored);
    const DLTensor *a = &c->tensor[c->inputs], *b = &from_file.tensor[c->inputs];
    const size_t count = (size_t)count_of(a);
    if (good) {
        const bool same = count == (size_t)count_of(b) && memcmp(a->data, b->data, 4 * count) == 0;
        printf("{\"model\":\"%s\",\"file\":\"%s\",\"equal_bits\":%s,\"difference\":%.3g}\n", o->name, o->file,
               same ? "true" : "false", same ? 0 : difference(a, b));
        good = same;
    }
    release_call(&from_file);
    return good;
}

static int run_all(const options *o) {
    model *m = model_open(o->name);
    call c = {0};
    times t = {0};
    if (!m) return fprintf(stderr, "unknown model %s\n", o->name), 2;
    if (o->file) model_spell_attention(m);
    make_inputs(&c, o, model_sizes_of(m));
    bool good = live(o, m, o->target, NULL, &c, &t);
    if (good) print_times(o, model_sizes_of(m), &c, &t);
    if (good && o->tolerance > 0) good = check(o, m, &c);
    if (good && o->file) good = write_file(o, m) && compare_file(o, m, &c);
    release_call(&c);
    model_close(m);
    return !good;
}

static void print_usage(FILE *to) {
    fputs(
        "models NAME [option]...\n"
        "  --target T       default: the first that the build has\n"
        "  --dtype T        f32 (default) or bf16\n"
        "  --batch N, --tokens N, --height N, --width N, --frames N   sizes, where the network has them\n"
        "  --threads N      default: the calling thread\n"
        "  --time SECONDS   run again and again\n"
        "  --check X        compare with the interp target; X: greatest difference over greatest number\n"
        "  --onnx FILE      write the network as an ONNX model, with attention spelled out; its results must have the same\n"
        "                   bits\n"
        "NAME:",
        to);
    for (int i = 0; model_name(i); i++) fprintf(to, " %s", model_name(i));
    fputs("\n", to);
}

/* An option that is a size. */
static bool take_size(options *o, const char *word, const char *value) {
    static const char *const words[][2] = {
        {"--batch", "n"}, {"--tokens", "tokens"}, {"--height", "height"}, {"--width", "width"}, {"--frames", "frames"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i][0]) != 0 || o->size_count == MOST_SIZES) continue;
        o->sizes[o->size_count] = (dlc_dim){atoi(value), words[i][1]};
        return o->sizes[o->size_count++].value > 0;
    }
    return false;
}

static bool take_option(options *o, const char *word, const char *value) {
    if (strcmp(word, "--target") == 0)
        o->target = value;
    else if (strcmp(word, "--dtype") == 0 && strcmp(value, "bf16") == 0)
        o->dtype = DLC_BF16;
    else if (strcmp(word, "--dtype") == 0 && strcmp(value, "f32") == 0)
        o->dtype = DLC_F32;
    else if (strcmp(word, "--threads") == 0)
        o->threads = atoi(value);
    else if (strcmp(word, "--time") == 0)
        o->seconds = atof(value);
    else if (strcmp(word, "--check") == 0)
        o->tolerance = atof(value);
    else if (strcmp(word, "--onnx") == 0)
        o->file = value;
    else
        return take_size(o, word, value);
    return true;
}

int main(int argc, char **argv) {
    options o = {.dtype = DLC_F32};
    bool good = true;
    for (int i = 1; i < argc && good; i++) {
        if (argv[i][0] != '-')
            o.name = argv[i];
        else if ((good = i + 1 < argc && take_option(&o, argv[i], argv[i + 1])))
            i++;
    }
    if (!good || !o.name) return print_usage(stderr), 2;
    return run_all(&o);
}
