/* Runs a network as a host would: opens a target, builds and compiles, calls once, then again and again. Prints one JSON line of times.
 * Or writes it as an ONNX model and runs that file, too, whose results must have the same bits. */
#include "bench/models/models.h"

#include <dlc/onnx.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SIZES = 8, MOST_RESULTS = 32 };

typedef struct options {
    /* file: NULL: no ONNX model */
    const char *name, *target, *file;
    dlc_dtype dtype;
    /* values of symbols, instead of the usual ones */
    dlc_dim sizes[MOST_SIZES];
    int size_count;
    int threads;
    /* tolerance: 0: no check */
    double seconds, tolerance;
} options;

/* Tensors of one run: inputs are made once, results by the first run. */
typedef struct call {
    int64_t shape[MODEL_MOST_INPUTS][DLC_MAX_RANK];
    DLTensor tensor[MODEL_MOST_INPUTS];
    int inputs, results;
    DLManagedTensorVersioned *result[MOST_RESULTS];
} call;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static DLDataType type_of(dlc_dtype dtype) {
    return dtype == DLC_I64    ? (DLDataType){kDLInt, 64, 1}
           : dtype == DLC_BOOL ? (DLDataType){kDLBool, 8, 1}
                               : (DLDataType){kDLFloat, 32, 1};
}

static void make_tensor(call *c, int number, dlc_dtype dtype, int rank) {
    const DLDataType type = type_of(dtype);
    size_t bytes = type.bits / 8;
    for (int d = 0; d < rank; d++) bytes *= (size_t)c->shape[number][d];
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
    for (int i = 0; i < c->inputs; i++) free(c->tensor[i].data);
    for (int i = 0; i < c->results; i++)
        if (c->result[i]) c->result[i]->deleter(c->result[i]);
}

static int64_t size_of(const options *o, const dlc_dim *dim) {
    for (int i = 0; dim->name && i < o->size_count; i++)
        if (strcmp(o->sizes[i].name, dim->name) == 0) return o->sizes[i].value;
    return dim->value;
}

/* Fills an input with words, with numbers like those of an image or sound, or with a mask, in which the last quarter of all sentences but
 * the first is padding. */
static void fill(DLTensor *t, const model_sizes *s, uint32_t *state) {
    const int64_t count = count_of(t), row = t->ndim > 1 ? t->shape[1] : 1;
    for (int64_t i = 0; i < count; i++) {
        *state = *state * 1664525 + 1013904223; /* Numerical Recipes */
        if (t->dtype.code == kDLInt)
            ((int64_t *)t->data)[i] = (int64_t)(*state >> 8) % s->vocabulary;
        else if (t->dtype.code == kDLBool)
            ((bool *)t->data)[i] = i < row || i % row < (3 * row + 3) / 4;
        else
            ((float *)t->data)[i] = (float)(*state >> 8) * 0x1p-23f - 1;
    }
}

/* Makes the inputs of the graph that the model has built last, unless they are made. */
static void make_inputs(call *c, const options *o, const model *m) {
    uint32_t state = 1;
    if (c->inputs) return;
    c->inputs = model_input_count(m);
    for (int i = 0; i < c->inputs; i++) {
        const model_input *in = model_input_at(m, i);
        for (int d = 0; d < in->rank; d++) c->shape[i][d] = size_of(o, &in->dims[d]);
        make_tensor(c, i, in->dtype, in->rank);
        fill(&c->tensor[i], model_sizes_of(m), &state);
    }
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

static dlc_status run_once(dlc_program *program, call *c) {
    const DLTensor *inputs[MODEL_MOST_INPUTS];
    dlc_output_slot slots[MOST_RESULTS] = {{NULL, NULL}};
    for (int i = 0; i < c->inputs; i++) inputs[i] = &c->tensor[i];
    for (int i = 0; i < c->results; i++) slots[i].tensor = &c->result[i]->dl_tensor;
    const int results = dlc_program_output_count(program);
    if (results > MOST_RESULTS) return DLC_INVALID_ARGUMENT;
    const dlc_status status = dlc_run(program, NULL, inputs, c->inputs, slots, results);
    for (int i = c->results; status == DLC_OK && i < results; i++) c->result[c->results++] = slots[i].managed;
    return status;
}

static bool run(dlc_program *program, dlc_context *context, call *c, double seconds, times *t) {
    enum { MOST = 10000 };
    static double took[MOST];
    double start = now(), end = start;
    if (!report(context, run_once(program, c))) return false;
    t->first = now() - start;
    for (end = now() + seconds; t->runs < MOST && now() < end; t->runs++) {
        start = now();
        if (!report(context, run_once(program, c))) return false;
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

/* Runs a model as a host would, from nothing to results. `file`: an ONNX model instead of the network as it is built; NULL: none. */
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
    if (good) make_inputs(c, o, m);
    good = good && run(program, context, c, o->seconds, t);
    t->statistics.struct_size = sizeof t->statistics;
    dlc_context_statistics(context, &t->statistics);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return good;
}

static double element(const DLTensor *t, int64_t i) {
    return t->dtype.code == kDLFloat ? (double)((const float *)t->data)[i] : ((const uint8_t *)t->data)[i];
}

/* Greatest difference over b's greatest number; infinite if an element of either is no finite number. */
static double tensor_difference(const DLTensor *a, const DLTensor *b) {
    double most = 0, apart = 0;
    for (int64_t i = 0; i < count_of(a); i++) {
        const double x = element(a, i), y = element(b, i);
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        most = fmax(most, fabs(y));
        apart = fmax(apart, fabs(x - y));
    }
    return apart > 0 ? apart / most : 0;
}

static double difference(const call *a, const call *b) {
    double most = 0;
    for (int i = 0; i < a->results; i++)
        most = fmax(most, tensor_difference(&a->result[i]->dl_tensor, &b->result[i]->dl_tensor));
    return most;
}

static bool has_bits_of(const call *a, const call *b) {
    bool same = a->results == b->results;
    for (int i = 0; same && i < a->results; i++) {
        const DLTensor *x = &a->result[i]->dl_tensor, *y = &b->result[i]->dl_tensor;
        same = count_of(x) == count_of(y) && memcmp(x->data, y->data, (size_t)count_of(x) * (x->dtype.bits / 8)) == 0;
    }
    return same;
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
    bool good = live(&once, m, "interp", NULL, &wanted, &ignored);
    double apart = good ? difference(c, &wanted) : 0;
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

/* Runs the file, too. True if its results have the same bits as the network's. */
static bool compare_file(const options *o, model *m, const call *c) {
    options once = *o;
    call from_file = {0};
    times ignored = {0};
    once.seconds = 0;
    bool good = live(&once, m, o->target, o->file, &from_file, &ignored);
    if (good) {
        const bool same = has_bits_of(c, &from_file);
        printf("{\"model\":\"%s\",\"file\":\"%s\",\"equal_bits\":%s,\"difference\":%.3g}\n", o->name, o->file,
               same ? "true" : "false", same ? 0 : difference(c, &from_file));
        good = same;
    }
    release_call(&from_file);
    return good;
}

/* Quantises the model, by the ranges that a run of floats shows. */
static bool quantise(const options *o, model *m) {
    options once = *o;
    call floats = {0};
    times ignored = {0};
    if (!model_sizes_of(m)->quantised) return true;
    once.seconds = 0;
    model_set_form(m, MODEL_OBSERVED);
    bool good = live(&once, m, o->target, NULL, &floats, &ignored) && floats.results == 2;
    if (good) {
        const DLTensor *ranges = &floats.result[1]->dl_tensor;
        good = model_set_ranges(m, (int)count_of(ranges) / 2, ranges->data);
    }
    model_set_form(m, MODEL_QUANTISED);
    release_call(&floats);
    return good;
}

static int run_all(const options *o) {
    model *m = model_open(o->name);
    call c = {0};
    times t = {0};
    if (!m) return fprintf(stderr, "unknown model %s\n", o->name), 2;
    if (o->file) model_spell_attention(m);
    bool good = quantise(o, m) && live(o, m, o->target, NULL, &c, &t);
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

/* Takes an option that sets a size; false: it is another option. */
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
