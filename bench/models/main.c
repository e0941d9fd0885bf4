/* Runs a model as a host would: opens a target, builds and compiles, calls once, then again and again. Prints one JSON line of times. */
#include "bench/models/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    const char *name, *target;
    dlc_dtype dtype;
    int64_t batch, tokens;
    int threads;
    /* tolerance: 0: no check */
    double seconds, tolerance;
} options;

/* tensors of one run */
typedef struct call {
    int64_t shape[3][4];
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

/* Numbers that look like an image, or sentences whose last quarter is padding in all but the first. */
static void make_call(call *c, const options *o, const model_sizes *s) {
    const DLDataType f32 = {kDLFloat, 32, 1};
    uint32_t state = 1;
    if (s->layers) {
        const int64_t ids[] = {o->batch, o->tokens}, result[] = {o->batch, o->tokens, s->hidden};
        describe(c, 0, (DLDataType){kDLInt, 64, 1}, 2, ids);
        describe(c, 1, (DLDataType){kDLBool, 8, 1}, 2, ids);
        for (int64_t i = 0; i < o->batch * o->tokens; i++) {
            state = state * 1664525 + 1013904223; /* Numerical Recipes */
            ((int64_t *)c->tensor[0].data)[i] = (int64_t)(state >> 8) % s->vocabulary;
            ((bool *)c->tensor[1].data)[i] = i < o->tokens || i % o->tokens < (3 * o->tokens + 3) / 4;
        }
        describe(c, c->inputs = 2, f32, 3, result);
    } else {
        describe(c, 0, f32, 4, (int64_t[]){o->batch, 3, s->image, s->image});
        for (int64_t i = 0; i < count_of(&c->tensor[0]); i++) {
            state = state * 1664525 + 1013904223;
            ((float *)c->tensor[0].data)[i] = (float)(state >> 8) * 0x1p-23f - 1;
        }
        describe(c, c->inputs = 1, f32, 2, (int64_t[]){o->batch, s->classes});
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

static bool run(dlc_program *program, dlc_context *context, call *c, double seconds, times *t) {
    enum { MOST = 10000 };
    static double took[MOST];
    const DLTensor *inputs[] = {&c->tensor[0], &c->tensor[1]};
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

/* From nothing to a result. */
static bool live(const options *o, model *m, const char *target, call *c, times *t) {
    dlc_context_options settings = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_program *program = NULL;
    settings.target = target;
    settings.threads = o->threads;
    if (!report(NULL, dlc_context_create(&settings, &context))) return false;
    double start = now();
    dlc_graph *graph = model_graph(m, context, o->dtype);
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

static int run_all(const options *o) {
    model *m = model_open(o->name);
    call c = {0}, wanted = {0};
    times t = {0}, ignored = {0};
    if (!m) return fprintf(stderr, "unknown model %s\n", o->name), 2;
    make_call(&c, o, model_sizes_of(m));
    bool good = live(o, m, o->target, &c, &t);
    if (good)
        printf(
            "{\"model\":\"%s\",\"target\":\"%s\",\"dtype\":\"%s\",\"batch\":%lld,\"tokens\":%lld,\"threads\":%d,"
            "\"build_ms\":%.3f,\"compile_ms\":%.3f,\"first_ms\":%.3f,\"median_ms\":%.4f,\"runs\":%d,\"kernels\":%llu,"
            "\"interpreted\":%llu}\n",
            o->name, o->target ? o->target : "", dlc_dtype_name(o->dtype), (long long)o->batch,
            (long long)(model_sizes_of(m)->layers ? o->tokens : 0), o->threads, 1e3 * t.build, 1e3 * t.compile,
            1e3 * t.first, 1e3 * t.median, t.runs, (unsigned long long)t.statistics.kernel_builds,
            (unsigned long long)t.statistics.interpreted_regions);
    if (good && o->tolerance > 0) {
        options once = *o;
        once.seconds = 0;
        make_call(&wanted, o, model_sizes_of(m));
        good = live(&once, m, "interp", &wanted, &ignored);
        double apart = good ? difference(&c.tensor[c.inputs], &wanted.tensor[c.inputs]) : 0;
        if (good) printf("{\"model\":\"%s\",\"difference\":%.3g}\n", o->name, apart);
        good = good && apart <= o->tolerance;
    }
    for (int i = 0; i < 3; i++) free(c.tensor[i].data), free(wanted.tensor[i].data);
    model_close(m);
    return !good;
}

static const char usage[] =
    "models NAME [option]...    NAME: resnet50, bert-base, resnet-small, bert-small\n"
    "  --target T       default: the first that the build has\n"
    "  --dtype T        f32 (default) or bf16\n"
    "  --batch N        default 1\n"
    "  --tokens N       of BERT; default 128, or as many as a small one has\n"
    "  --threads N      default: the calling thread\n"
    "  --time SECONDS   run again and again\n"
    "  --check X        compare with the interp target; X: greatest difference over greatest number\n";

int main(int argc, char **argv) {
    options o = {.dtype = DLC_F32, .batch = 1, .tokens = 0};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (word[0] != '-') {
            o.name = word;
            continue;
        }
        if (!next) return fputs(usage, stderr), 2;
        i++;
        if (strcmp(word, "--target") == 0)
            o.target = next;
        else if (strcmp(word, "--dtype") == 0 && strcmp(next, "bf16") == 0)
            o.dtype = DLC_BF16;
        else if (strcmp(word, "--dtype") == 0 && strcmp(next, "f32") == 0)
            o.dtype = DLC_F32;
        else if (strcmp(word, "--batch") == 0)
            o.batch = atoi(next);
        else if (strcmp(word, "--tokens") == 0)
            o.tokens = atoi(next);
        else if (strcmp(word, "--threads") == 0)
            o.threads = atoi(next);
        else if (strcmp(word, "--time") == 0)
            o.seconds = atof(next);
        else if (strcmp(word, "--check") == 0)
            o.tolerance = atof(next);
        else
            return fputs(usage, stderr), 2;
    }
    if (!o.name || o.batch < 1 || o.tokens < 0) return fputs(usage, stderr), 2;
    if (!o.tokens) o.tokens = strstr(o.name, "small") ? 17 : 128;
    return run_all(&o);
}
