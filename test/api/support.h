/* Shared by the tests of the public API; includes the public header only. Tests that hold for every target run on all targets of this
 * build. */
#ifndef TEST_API_SUPPORT_H
#define TEST_API_SUPPORT_H

#include <dlc/dlc.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- an allocator that counts, and refuses on demand */

typedef struct counter {
    _Atomic int64_t blocks, bytes, calls;
    /* calls until refusal; negative: never refuses */
    _Atomic int64_t left;
} counter;

static inline void *counted_allocate(void *user, size_t size, size_t alignment) {
    counter *c = user;
    atomic_fetch_add(&c->calls, 1);
    if (atomic_load(&c->left) >= 0 && atomic_fetch_sub(&c->left, 1) <= 0) {
        atomic_store(&c->left, 0);
        return NULL;
    }
    void *pointer = NULL;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, size ? size : 1) != 0)
        return NULL;
    memset(pointer, 0xA5, size);
    atomic_fetch_add(&c->blocks, 1);
    atomic_fetch_add(&c->bytes, (int64_t)size);
    return pointer;
}

static inline void counted_release(void *user, void *pointer, size_t size, size_t alignment) {
    counter *c = user;
    (void)alignment;
    if (!pointer) return;
    memset(pointer, 0x5A, size);
    atomic_fetch_sub(&c->blocks, 1);
    atomic_fetch_sub(&c->bytes, (int64_t)size);
    free(pointer);
}

static inline dlc_allocator counting(counter *c) {
    *c = (counter){.left = -1};
    return (dlc_allocator){counted_allocate, counted_release, c};
}

/* ---- checks
 * cmocka's own (assert_true, ...) jump out of the test, which is right only on cmocka's thread and with no function of the library on the
 * stack. A failing CHECK also ends what start_thread or run_checked began, on any thread and in callbacks; report then fails the test. */

typedef struct checks {
    jmp_buf end;
    /* the first failure; empty: none */
    char failure[512];
} checks;
static _Thread_local checks *current_checks; /* NULL: failures jump out of the test */

__attribute__((format(printf, 1, 2))) _Noreturn static inline void failed(const char *format, ...) {
    char message[sizeof current_checks->failure];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!current_checks) {
        fail_msg("%s", message);
        abort(); /* fail_msg does not return */
    }
    if (!current_checks->failure[0]) memcpy(current_checks->failure, message, sizeof message);
    longjmp(current_checks->end, 1);
}
#define CHECK(condition) ((condition) ? (void)0 : failed("%s:%d: %s", __FILE__, __LINE__, #condition))

static inline void run_checked(checks *c, void (*body)(void *argument), void *argument) {
    checks *const outer = current_checks;
    current_checks = c;
    if (setjmp(c->end) == 0) body(argument);
    current_checks = outer;
}
static inline void report(const checks *c) {
    if (c->failure[0]) failed("%s", c->failure);
}

typedef struct thread {
    pthread_t id;
    checks checks;
    void (*body)(void *argument);
    void *argument;
} thread;

static inline void *run_thread(void *argument) {
    thread *t = argument;
    run_checked(&t->checks, t->body, t->argument);
    return NULL;
}
/* Starts body(argument) on a thread. *t must stay at its address until join_threads. */
static inline void start_thread(thread *t, void (*body)(void *argument), void *argument) {
    t->body = body;
    t->argument = argument;
    t->checks.failure[0] = 0;
    CHECK(pthread_create(&t->id, NULL, run_thread, t) == 0);
}
/* Joins all threads before a failure of one ends the test. */
static inline void join_threads(thread *threads, int count) {
    for (int i = 0; i < count; i++) CHECK(pthread_join(threads[i].id, NULL) == 0);
    for (int i = 0; i < count; i++) report(&threads[i].checks);
}

static inline void check(dlc_status status, const dlc_context *context, const char *what, int line) {
    if (status != DLC_OK)
        failed("line %d: %s: %s: %s", line, what, dlc_status_text(status), dlc_error_message(context));
}
#define OK(context, expression) check((expression), (context), #expression, __LINE__)

static inline void check_close(const float *got, const double *expected, size_t count, double tolerance, int line) {
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            failed("line %d: element %zu is %.9g, expected %.9g", line, i, got[i], expected[i]);
}
#define CLOSE(got, expected, count, tolerance) check_close((got), (expected), (count), (tolerance), __LINE__)

/* ---- contexts */

static const char *const all_targets[] = {"interp", "cpu", "cuda"};
enum { TARGETS = sizeof all_targets / sizeof *all_targets };

/* Do the target's kernels read the host's memory? */
static inline bool has_host_memory(const char *target) {
    return strcmp(target, "cuda") != 0;
}

/* A context for the target; NULL: the target is not in this build, or has no device. test/cuda/api_test.sh runs these programs with a fake
 * device. */
static inline dlc_context *open_context(const char *target, const dlc_context_options *given) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    if (given) options = *given;
    options.target = target;
    dlc_status status = dlc_context_create(&options, &context);
    if (status == DLC_NOT_FOUND || (status == DLC_UNSUPPORTED && strcmp(target, "cuda") == 0)) return NULL;
    if (status != DLC_OK) failed("%s", dlc_error_message(NULL));
    return context;
}

/* Contexts opened from now on have caches of these sizes (DLC_CPU_CACHES), and, where the processor has AVX2, the rates of Zen 3, which prefetches
 * few streams. */
static inline void use_rates_of_zen3(const char *caches) {
    setenv("DLC_CPU_CACHES", caches, 1);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        setenv("DLC_CPU", "znver3", 1);
        setenv("DLC_CPU_FEATURES", "avx2", 1);
    }
#endif
}

/* A context whose memory is counted. */
static inline dlc_context *open_counted(const char *target, counter *c) {
    dlc_allocator allocator = counting(c);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    return open_context(target, &options);
}

static inline dlc_statistics statistics(const dlc_context *context) {
    dlc_statistics s = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &s);
    return s;
}

/* ---- tensors; the arrays must live as long as the tensor is used */

typedef struct tensor {
    DLTensor dl;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
} tensor;

static inline tensor *make_tensor(tensor *t, dlc_dtype dtype, void *data, int rank, const int64_t *shape) {
    static const DLDataType types[DLC_DTYPE_COUNT] = {
#define X(code, text, bits, dlpack, class_, usable) {dlpack, bits, 1},
        DLC_DTYPE_TABLE(X)
#undef X
    };
    *t = (tensor){.dl = {.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = types[dtype]}};
    for (int d = 0; d < rank; d++) t->shape[d] = shape[d];
    t->dl.shape = t->shape;
    return t;
}
#define SHAPE(...)      \
    (const int64_t[]) { \
        __VA_ARGS__     \
    }
#define RANK(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define F32(t, data, ...) (&make_tensor((t), DLC_F32, (data), RANK(__VA_ARGS__), SHAPE(__VA_ARGS__))->dl)

/* A reproducible number in -1..1. */
static inline float noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

static inline void fill(float *data, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) data[i] = noise(&seed);
}

/* ---- programs */

static inline dlc_program *compile(dlc_context *context, dlc_graph *graph) {
    dlc_program *program;
    if (dlc_graph_status(graph) != DLC_OK) failed("%s", dlc_graph_message(graph));
    OK(context, dlc_compile(context, graph, NULL, &program));
    dlc_graph_destroy(graph);
    return program;
}

#define SYMBOL(name_) ((dlc_dim){0, (name_)})
#define SIZE(n) ((dlc_dim){(n), NULL})
#define DIMS(...)       \
    (const dlc_dim[]) { \
        __VA_ARGS__     \
    }

/* relu(x[n, 8] w[8, 4] + b[4]) */
static inline dlc_program *dense_program(dlc_context *context, const char *symbol) {
    float w[32], b[4];
    dlc_graph *g;
    fill(w, 32, 1);
    fill(b, 4, 2);
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL(symbol), SIZE(8)));
    dlc_value wv = dlc_constant(g, DLC_F32, 2, SHAPE(8, 4), w), bv = dlc_constant(g, DLC_F32, 1, SHAPE(4), b);
    dlc_output(g, "y", dlc_relu(dlc_add(dlc_matmul(x, wv), bv)));
    return compile(context, g);
}

static inline void dense_reference(const float *x, int64_t n, double *y) {
    float w[32], b[4];
    fill(w, 32, 1);
    fill(b, 4, 2);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < 4; j++) {
            double sum = b[j];
            for (int k = 0; k < 8; k++) sum += (double)x[i * 8 + k] * w[k * 4 + j];
            y[i * 4 + j] = sum > 0 ? sum : 0;
        }
}

/* Runs the program on n rows and checks the results; `out` gets the n * 4 numbers, unless it is NULL. */
static inline void run_dense(dlc_context *context, dlc_program *program, int64_t n, float *out) {
    const size_t rows = (size_t)n;
    float *x = malloc((rows * 12 + 1) * sizeof *x), *y = out ? out : x + rows * 8;
    double *expected = malloc((rows * 4 + 1) * sizeof *expected);
    tensor tx, ty;
    CHECK(x && expected);
    fill(x, rows * 8, (uint32_t)n + 100);
    dense_reference(x, n, expected);
    dlc_output_slot slot = {F32(&ty, y, n, 4), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, 8)}, 1, &slot, 1));
    CLOSE(y, expected, rows * 4, 1e-6);
    free(x);
    free(expected);
}

/* A file of these bytes. */
static inline void make_file(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

#endif
