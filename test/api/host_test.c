/* Life inside a host: contexts, memory that runs out, threads, the host's own threads, cancellation, budgets, floating-point state,
 * fork, a small cache. */
#include "api/support.h"
#include "test/share.h"

#include <fenv.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW = 20 };
#else
enum { SLOW = 1 };
#endif

/* ---- contexts */

static void test_two_contexts(void **state) {
    (void)state;
    dlc_context *a = open_context("interp", NULL), *b = open_context("cpu", NULL);
    if (!b) b = open_context("interp", NULL);
    dlc_program *pa = dense_program(a, "n"), *pb = dense_program(b, "n");
    for (int64_t n = 1; n < 4; n++) {
        run_dense(a, pa, n, NULL);
        run_dense(b, pb, n, NULL);
    }
    dlc_program_destroy(pa);
    dlc_context_destroy(a);
    run_dense(b, pb, 5, NULL);
    dlc_program_destroy(pb);
    dlc_context_destroy(b);
    dlc_context_destroy(NULL);
    dlc_program_destroy(NULL);
}

static long resident_pages(void) {
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    fclose(file);
    return pages;
}

static void test_create_destroy(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        counter count;
        dlc_allocator allocator = counting(&count);
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.allocator = &allocator;
        long before = 0;
        for (int i = 0; i < 1000 / SLOW; i++) {
            if (i == 100 / SLOW) before = resident_pages();
            dlc_context *context = open_context(all_targets[t], &options);
            if (!context) break;
            if (i % 10 == 0) {
                dlc_program *program = dense_program(context, "n");
                run_dense(context, program, 3, NULL);
                dlc_program_destroy(program);
            }
            dlc_context_destroy(context);
            assert_int_equal(count.blocks, 0);
            assert_int_equal(count.bytes, 0);
        }
        if (SLOW == 1 && before) assert_true((resident_pages() - before) * sysconf(_SC_PAGESIZE) < 4 << 20);
    }
}

/* A thousand shapes, each with kernels of its own, in a cache that holds some of them. */
/* Hands out one block for all contexts, one after the other. */
typedef struct one_place {
    void *block;
    size_t size;
    bool taken;
} one_place;

static void *allocate_there(void *user, size_t size, size_t alignment) {
    one_place *p = user;
    if (!p->size) p->size = size;
    if (size == p->size && !p->taken) {
        p->taken = true;
        return p->block;
    }
    void *memory = NULL;
    return posix_memalign(&memory, alignment < 8 ? 8 : alignment, size) == 0 ? memory : NULL;
}

static void release_there(void *user, void *memory, size_t size, size_t alignment) {
    one_place *p = user;
    (void)size, (void)alignment;
    if (memory == p->block)
        p->taken = false;
    else
        free(memory);
}

static void destroy_there(void *context) {
    dlc_context_destroy(context);
}

/* A context's messages end with it, also for one that comes to be at its address. */
static void test_stale_messages(void **state) {
    (void)state;
    one_place place = {.size = 0};
    dlc_allocator allocator = {allocate_there, release_there, &place};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    assert_int_equal(posix_memalign(&place.block, 64, 1 << 16), 0);
    for (int way = 0; way < 4;
         way++) { /* a failure, or one of which it is the cause; destroyed here or on another thread */
        dlc_context *context = open_context("interp", &options), *const before = context;
        dlc_graph *g;
        dlc_program *program;
        OK(context, dlc_graph_create(context, &g));
        assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_INVALID_ARGUMENT);
        if (way & 1) assert_int_equal(dlc_run(program, NULL, NULL, 0, NULL, 0), DLC_INVALID_ARGUMENT);
        dlc_graph_destroy(g);
        assert_non_null(strstr(dlc_error_message(context), "no output"));
        thread other;
        if (way & 2) {
            start_thread(&other, destroy_there, context);
            join_threads(&other, 1);
        } else {
            dlc_context_destroy(context);
            if (!way) assert_string_equal(dlc_error_message(NULL), "");
        }
        context = open_context("interp", &options);
        assert_ptr_equal(context, before);
        assert_string_equal(dlc_error_message(context), "");
        dlc_context_destroy(context);
    }
    free(place.block);
}

static void test_small_cache(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        counter count;
        dlc_allocator allocator = counting(&count);
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.allocator = &allocator;
        options.cache_bytes = (size_t)1 << 20;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_dim dims[4];
        const char *const names[4] = {"a", "b", "c", "d"};
        for (int d = 0; d < 4; d++) dims[d] = SYMBOL(names[d]);
        dlc_value x = dlc_input(g, "x", DLC_F32, 4, dims);
        dlc_output(g, "y", dlc_add(dlc_exp(x), x));
        dlc_program *program = compile(context, g);
        int64_t shape[4];
        int64_t peak = 0, settled = 0;
        int runs = 256 / (SLOW > 1 ? 4 : 1), at = 0;
        /* four values of each symbol: 256 shapes, all exact */
        for (int round = 0; round < 2; round++)
            for (int i = 0; i < runs; i++, at++) {
                for (int d = 0, left = i; d < 4; d++, left /= 4) shape[d] = 1 + left % 4;
                float in[256], out[256];
                double expected[256];
                size_t elements = (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
                fill(in, elements, (uint32_t)i);
                for (size_t k = 0; k < elements; k++) expected[k] = exp(in[k]) + in[k];
                tensor tx, ty;
                const DLTensor *input = &make_tensor(&tx, DLC_F32, in, 4, shape)->dl;
                dlc_output_slot slot = {&make_tensor(&ty, DLC_F32, out, 4, shape)->dl, NULL};
                OK(context, dlc_prepare(program, (const int64_t *[]){shape}, (const int[]){4}, 1));
                OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
                CLOSE(out, expected, elements, 1e-6);
                dlc_statistics s = statistics(context);
                assert_true(s.cache_bytes <= options.cache_bytes);
                if (count.bytes > peak) peak = count.bytes;
                if (at == runs - 1) settled = peak;
            }
        assert_true(peak <= settled + (settled >> 3));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        assert_int_equal(count.blocks, 0);
    }
}

/* Sizes of one range (up to 16, up to 1,024) share what was bound for the first: more of them take no more. */
static void test_sizes_of_a_range(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.plan_cache_entries = 4;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        uint64_t before = 0;
        for (int64_t n = 1; n <= 1000 / SLOW; n++) {
            run_dense(context, program, n, NULL);
            if (n == 32) before = statistics(context).cache_bytes;
        }
        assert_in_range(statistics(context).cache_bytes, 1, before);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Large intermediate values for many shapes: plans share arenas, so that memory follows the largest shape, not their number. */
static void test_large_arenas(void **state) {
    (void)state;
    counter count;
    dlc_context *context = open_counted("cpu", &count);
    if (!context) return;
    enum { INSIDE = 2048, MOST = 160 }; /* up to 1.3 MB inside */
    static float w[INSIDE], x[MOST], out[MOST];
    static double expected[MOST];
    fill(w, INSIDE, 1);
    fill(x, MOST, 2);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value vx = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(1)));
    dlc_value y = dlc_matmul(vx, dlc_constant(g, DLC_F32, 2, SHAPE(1, INSIDE), w));
    dlc_output(g, "y", dlc_matmul(y, dlc_constant(g, DLC_F32, 2, SHAPE(INSIDE, 1), w)));
    dlc_program *program = compile(context, g);
    double square = 0;
    for (int i = 0; i < INSIDE; i++) square += (double)w[i] * w[i];
    for (int i = 0; i < MOST; i++) expected[i] = square * x[i];
    for (int round = 0; round < 2; round++)
        for (int64_t n = MOST; n > 32; n -= 8) {
            tensor tx, ty;
            dlc_output_slot slot = {F32(&ty, out, n, 1), NULL};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, 1)}, 1, &slot, 1));
            CLOSE(out, expected, (size_t)n, 1e-4);
        }
    assert_true(statistics(context).arena_bytes < 2 * MOST * INSIDE * sizeof(float));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(count.blocks, 0);
}

/* By default nothing but the caller works: not to compile, not to run. */
static int threads_of_process(void) {
    int count = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Threads: %d", &count) == 1) break;
    if (file) fclose(file);
    return count;
}

static void test_no_threads(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        int before = threads_of_process();
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        for (int64_t n = 1; n < 2000; n = n * 7 + 1) run_dense(context, program, n, NULL);
        assert_int_equal(threads_of_process(), before);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- memory that runs out: the N-th allocation fails, for every N, over everything a host does */

/* A little of everything: constants, fusion, a reduction, a sub-graph, staging, an output slot. NULL or the status of the first
 * call that failed. */
static dlc_status whole_life(const char *target, const dlc_allocator *allocator, counter *count, int64_t fail_at) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = allocator;
    options.target = target;
    dlc_context *context = NULL;
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    dlc_output_slot slots[4];
    memset(slots, 0, sizeof slots);
    count->left = fail_at;
    dlc_status status = dlc_context_create(&options, &context);
    if (status == DLC_OK) status = dlc_graph_create(context, &g);
    if (status == DLC_OK) {
        float w[32];
        fill(w, 32, 1);
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(8)));
        dlc_value c = dlc_input(g, "c", DLC_BOOL, 0, NULL);
        dlc_value wv = dlc_constant(g, DLC_F32, 2, SHAPE(8, 4), w), y = dlc_matmul(x, wv), r = {0};
        dlc_graph *then = dlc_subgraph(g), *otherwise = dlc_subgraph(g);
        dlc_output(then, "r", dlc_exp(y));
        dlc_output(otherwise, "r", dlc_neg(y));
        dlc_if(c, 0, NULL, then, otherwise, 1, &r);
        dlc_output(g, "r", dlc_reduce_sum(r, 1, SHAPE(1)));
        dlc_output(g, "y", y);
        dlc_value cache =
            dlc_input(g, "cache", DLC_F32, 2, DIMS(SIZE(6), SIZE(4))); /* changed in place, and read again */
        dlc_value row = dlc_slice(dlc_exp(cache), 2, DIMS(SIZE(1), SIZE(0)), 2, DIMS(SIZE(2), SIZE(4)));
        dlc_value next = dlc_dynamic_update_slice(cache, row, dlc_scalar_i64(g, DLC_I64, 3), 1, SHAPE(0));
        dlc_output(g, "cache", next);
        dlc_output(g, "joined", dlc_concat(2, (dlc_value[]){dlc_neg(next), dlc_matmul(x, wv)}, 0));
        status = dlc_graph_status(g);
    }
    if (status == DLC_OK) status = dlc_compile(context, g, NULL, &program);
    if (status == DLC_OK) status = dlc_program_alias(program, 2, 2);
    const int64_t *shapes[3] = {SHAPE(4, 8), SHAPE(0), SHAPE(6, 4)};
    const int ranks[3] = {2, 0, 2};
    int rank;
    int64_t shape[DLC_MAX_RANK];
    char *text = NULL;
    if (status == DLC_OK) status = dlc_output_shape(program, shapes, ranks, 3, 0, DLC_MAX_RANK, shape, &rank);
    if (status == DLC_OK) status = dlc_prepare(program, shapes, ranks, 3);
    for (int s = 0; s < 3 && status == DLC_OK; s++) {
        status = dlc_program_dump(program, s == 0 ? "dot" : s == 1 ? "plan" : "schedule", shapes, ranks, 3, &text);
        if (status == DLC_OK) dlc_text_free(context, text);
    }
    if (status == DLC_OK) {
        float in[24];
        unsigned char truth = 1;
        fill(in, 24, 2);
        float state[24] = {0};
        tensor tx, tc, ts, to;
        const DLTensor *inputs[] = {F32(&tx, in, 3, 8), &make_tensor(&tc, DLC_BOOL, &truth, 0, NULL)->dl,
                                    F32(&ts, state, 6, 4)};
        slots[2].tensor = F32(&to, state, 6, 4);
        tx.strides[0] = 1, tx.strides[1] = 3, tx.dl.strides = tx.strides;
        status = dlc_run(program, NULL, inputs, 3, slots, 4);
        if (status == DLC_OUT_OF_MEMORY) {
            assert_true(strlen(dlc_error_message(context)) > 0);
            assert_null(slots[0].managed);
            assert_null(slots[1].managed);
            assert_null(slots[3].managed);
            count->left = -1; /* the same objects work when there is memory again */
            OK(context, dlc_run(program, NULL, inputs, 3, slots, 4));
        }
    } else if (program == NULL && g && dlc_graph_status(g) == DLC_OK) {
        count->left = -1;
        OK(context, dlc_compile(context, g, NULL, &program));
    }
    count->left = -1;
    for (int o = 0; o < 4; o++)
        if (slots[o].managed) slots[o].managed->deleter(slots[o].managed);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    return status;
}

static void test_out_of_memory(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    for (int t = 0; t < TARGETS; t++) {
        counter count;
        dlc_allocator allocator = counting(&count);
        dlc_context *probe = open_context(all_targets[t], NULL);
        if (!probe) continue;
        dlc_context_destroy(probe);
        int64_t n = 0;
        for (;; n += test_is_shortest() ? 8 : test_is_short() ? 3 : 1) {
            dlc_status status = whole_life(all_targets[t], &allocator, &count, n);
            if (count.blocks || count.bytes)
                fail_msg("%s: allocation %d refused: %d blocks leaked", all_targets[t], (int)n, (int)count.blocks);
            if (status == DLC_OK) break;
            if (status != DLC_OUT_OF_MEMORY)
                fail_msg("%s: allocation %d refused: %s", all_targets[t], (int)n, dlc_status_text(status));
        }
        assert_true(n > 30);
    }
}

/* ---- threads */

typedef struct worker {
    dlc_context *context;
    dlc_program *program;
    int number, rounds;
} worker;

static void many_shapes(void *argument) {
    const worker *w = argument;
    for (int i = 0; i < w->rounds; i++) run_dense(w->context, w->program, 1 + (i * 7 + w->number * 3) % 40, NULL);
}

static void run_threads(dlc_context *context, int threads, int rounds) {
    thread handles[16];
    worker workers[16];
    dlc_program *program = dense_program(context, "n");
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker){context, program, i, rounds};
        start_thread(&handles[i], many_shapes, &workers[i]);
    }
    join_threads(handles, threads);
    assert_int_equal(statistics(context).runs, threads * rounds);
    dlc_program_destroy(program);
}

static void test_threads(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++)
        for (int variant = 0; variant < 3; variant++) {
            dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
            if (variant == 1) options.threads = options.compile_threads = 2; /* a pool of our own as well */
            if (variant == 2) options.plan_cache_entries = 5;                /* plans come and go */
            dlc_context *context = open_context(all_targets[t], &options);
            if (!context) continue;
            run_threads(context, 8, variant == 2 ? 60 : 200);
            dlc_context_destroy(context);
        }
}

/* Host functions that run the bodies their own way. */
static void sequential(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    (void)user;
    for (int64_t i = 0; i < count; i++) body(argument, i);
}
static void reversed(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    (void)user;
    for (int64_t i = count; i-- > 0;) body(argument, i);
}
typedef struct body_of {
    void (*body)(void *argument, int64_t index);
    void *argument;
    int64_t index;
} body_of;
static void *call_body(void *argument) {
    body_of *b = argument;
    b->body(b->argument, b->index);
    return NULL;
}
/* Every body on a thread of its own, started one after another: the first may do all the work. */
static void one_each(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    (void)user;
    pthread_t handles[64];
    body_of bodies[64];
    for (int64_t i = 0; i < count; i++) {
        bodies[i] = (body_of){body, argument, i};
        if (pthread_create(&handles[i], NULL, call_body, &bodies[i]) != 0) abort();
    }
    for (int64_t i = 0; i < count; i++) pthread_join(handles[i], NULL);
}

/* A chain with contraction, reduction and softmax; its outputs must be the same bits whoever computes them. */
enum { ROWS = 61, INNER = 37, COLUMNS = 45 };
static float chain_w[INNER * COLUMNS], chain_x[ROWS * INNER]; /* filled by main, where the host rounds to nearest */
static void run_chain(const char *target, const dlc_context_options *options, int runs, float *out) {
    dlc_context *context = open_context(target, options);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value vx = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(INNER)));
    dlc_value y = dlc_matmul(vx, dlc_constant(g, DLC_F32, 2, SHAPE(INNER, COLUMNS), chain_w));
    y = dlc_matmul(dlc_exp(y),
                   dlc_transpose(dlc_constant(g, DLC_F32, 2, SHAPE(INNER, COLUMNS), chain_w), 2, SHAPE(1, 0)));
    dlc_output(
        g, "y",
        dlc_add(y, dlc_reduce_sum_with(y, 1, SHAPE(1),
                                       &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true})));
    dlc_program *program = compile(context, g);
    for (int i = 0; i < runs; i++) {
        memset(out, 0xFF, ROWS * INNER * sizeof *out);
        tensor tx, ty;
        dlc_output_slot slot = {F32(&ty, out, ROWS, INNER), NULL};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, chain_x, ROWS, INNER)}, 1, &slot, 1));
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void test_same_bits(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *probe = open_context(all_targets[t], NULL);
        if (!probe) continue;
        dlc_context_destroy(probe);
        static float expected[ROWS * INNER], got[ROWS * INNER];
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        run_chain(all_targets[t], &options, 1, expected);
        run_chain(all_targets[t], &options, 3, got); /* from the cache */
        assert_memory_equal(expected, got, sizeof got);
        static const int threads[] = {2, 3, 7};
        for (int i = 0; i < 3; i++) {
            options = (dlc_context_options)DLC_CONTEXT_OPTIONS_INIT;
            options.threads = threads[i];
            run_chain(all_targets[t], &options, 2, got);
            assert_memory_equal(expected, got, sizeof got);
            options.threads = 0;
            options.parallel_width = threads[i]; /* as many participants, whatever the machine has */
            options.parallel_for = one_each;
            run_chain(all_targets[t], &options, 2, got);
            assert_memory_equal(expected, got, sizeof got);
        }
        const dlc_parallel_for_function ways[] = {sequential, reversed, one_each};
        for (int i = 0; i < 3; i++) {
            options = (dlc_context_options)DLC_CONTEXT_OPTIONS_INIT;
            options.parallel_for = ways[i];
            options.parallel_width = 8;
            run_chain(all_targets[t], &options, 2, got);
            assert_memory_equal(expected, got, sizeof got);
        }
    }
}

/* ---- floating-point state of the caller: ours is the same whatever the host's, and the host's stays */

static void test_floating_point_state(void **state) {
    (void)state;
#if defined(__x86_64__)
    for (int t = 0; t < TARGETS; t++) {
        static float expected[ROWS * INNER], got[ROWS * INNER];
        dlc_context *probe = open_context(all_targets[t], NULL);
        if (!probe) continue;
        dlc_context_destroy(probe);
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        run_chain(all_targets[t], &options, 1, expected);
        unsigned before = _mm_getcsr(),
                 hostile = (before & ~0x3fu) | 0x8040u | 0x4000u; /* flush, denormals are zero, upwards */
        fesetround(FE_UPWARD);
        _mm_setcsr(hostile);
        run_chain(all_targets[t], &options, 2, got);
        unsigned after = _mm_getcsr();
        fesetround(FE_TONEAREST);
        _mm_setcsr(before);
        assert_int_equal(after & ~0x3fu, hostile & ~0x3fu);
        assert_memory_equal(expected, got, sizeof got);
    }
#endif
}

/* Exception flags are the host's: kernels round, overflow and divide by zero, and nobody sees it. */
static void test_exception_flags(void **state) {
    (void)state;
#if defined(__x86_64__)
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, (dlc_dim[]){{64, NULL}});
        dlc_output(g, "y", dlc_div(dlc_exp(x), x));
        dlc_program *program = compile(context, g);
        float in[64] = {0}, out[64];
        for (int i = 1; i < 64; i++) in[i] = 3.3f * (float)i;
        tensor tx, ty;
        const DLTensor *input = &make_tensor(&tx, DLC_F32, in, 1, SHAPE(64))->dl;
        dlc_output_slot slot = {&make_tensor(&ty, DLC_F32, out, 1, SHAPE(64))->dl, NULL};
        for (int run = 0; run < 2; run++) {
            _mm_setcsr(_mm_getcsr() & ~0x3fu);
            OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
            if (run) assert_int_equal(_mm_getcsr() & 0x3fu, 0); /* the first one compiles */
        }
        assert_true(isinf(out[0]) && isinf(out[40]));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
#endif
}

/* ---- cancellation, budgets */

static volatile int cancel_flag;
static void raise_cancel(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)outputs;
    *(int32_t *)output[0]->data = *(const int32_t *)input[0]->data + 1;
    if (*(int32_t *)output[0]->data == 5) cancel_flag = 1;
}

/* A loop without end, which a function inside it cancels. */
static void test_cancel_run(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        OK(context, dlc_custom_register(g, "count", raise_cancel, NULL));
        dlc_value start = dlc_input(g, "start", DLC_I32, 0, NULL), result, next;
        dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
        dlc_value ci = dlc_input(condition, "i", DLC_I32, 0, NULL), bi = dlc_input(body, "i", DLC_I32, 0, NULL);
        dlc_output(condition, "go", dlc_ge(ci, dlc_scalar_i64(condition, DLC_I32, 0)));
        dlc_custom_call(body, 1, &bi, "count", 1, SHAPE(DLC_I32), 1, SHAPE(0), 0, NULL, 1, &next);
        dlc_output(body, "i", next);
        dlc_while(1, &start, condition, body, 1, &result);
        dlc_output(g, "result", result);
        dlc_program *program = compile(context, g);
        int32_t zero = 0, minus = -7, out;
        tensor ts, tr;
        const DLTensor *input = &make_tensor(&ts, DLC_I32, &zero, 0, NULL)->dl;
        dlc_output_slot slot = {&make_tensor(&tr, DLC_I32, &out, 0, NULL)->dl, NULL};
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.cancel = &cancel_flag;
        cancel_flag = 0;
        assert_int_equal(dlc_run(program, &options, &input, 1, &slot, 1), DLC_CANCELLED);
        assert_non_null(strstr(dlc_error_message(context), "cancelled"));
        cancel_flag = 0;
        ts.dl.data = &minus; /* the program is as good as new */
        OK(context, dlc_run(program, &options, &input, 1, &slot, 1));
        assert_int_equal(out, -7);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static uint64_t fake_time(void *user) {
    return *(uint64_t *)user += 100000000;
} /* each look is 100 ms later */

static int progressed;
static void progress(void *user, const char *stage, int done, int total) {
    (void)user;
    assert_non_null(stage);
    assert_true(done >= 0 && done <= total);
    progressed++;
}

static void test_cancel_compile_and_budget(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        uint64_t now = 1000;
        volatile int cancel = 1;
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.clock_ns = fake_time;
        options.clock_user = &now;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        for (int variant = 0; variant < 2; variant++) {
            dlc_graph *g;
            OK(context, dlc_graph_create(context, &g));
            dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
            dlc_output(g, "y", variant ? dlc_exp(x) : dlc_neg(x));
            dlc_compile_options compile_options = DLC_COMPILE_OPTIONS_INIT;
            compile_options.progress = progress;
            if (variant)
                compile_options.budget_ms = 10;
            else
                compile_options.cancel = &cancel;
            dlc_program *program;
            OK(context, dlc_compile(context, g, &compile_options, &program));
            float in[2] = {1, 2}, out[2];
            tensor tx, ty;
            const DLTensor *input = F32(&tx, in, 2);
            dlc_output_slot slot = {F32(&ty, out, 2), NULL};
            for (int i = 0; i < 2; i++)
                assert_int_equal(dlc_run(program, NULL, &input, 1, &slot, 1),
                                 variant ? DLC_BUDGET_EXCEEDED : DLC_CANCELLED);
            if (!variant) {
                cancel = 0; /* the key was not poisoned */
                OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
                assert_true(out[0] == -1 && out[1] == -2);
            } else { /* another program compiles what this one could not */
                dlc_program *patient = compile(context, g);
                g = NULL;
                OK(context, dlc_run(patient, NULL, &input, 1, &slot, 1));
                assert_true(fabs(out[1] - exp(2)) < 1e-5);
                OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
                dlc_program_destroy(patient);
            }
            assert_true(progressed > 0);
            dlc_program_destroy(program);
            if (g) dlc_graph_destroy(g);
        }
        dlc_context_destroy(context);
    }
}

/* ---- what a progress callback may do */

typedef struct nested {
    dlc_context *context;
    dlc_program *program;
    int calls;
    /* of shapes that nobody has bound */
    dlc_status refused;
    checks checks;
} nested;

static void run_another_shape(void *argument) {
    const nested *n = argument;
    /* for kernels of its own: it does not wait for those that are being compiled */
    OK(n->context, dlc_prepare(n->program, (const int64_t *[]){SHAPE(29, 8)}, (const int[]){2}, 1));
    run_dense(n->context, n->program, 29, NULL);
}

static void use_in_progress(void *user) {
    nested *n = user;
    run_dense(n->context, n->program, 3, NULL); /* bound */
    const int64_t *shapes[1] = {SHAPE(17, 8)}, *same[1] = {SHAPE(5, 8)};
    n->refused = dlc_prepare(n->program, shapes, (const int[]){2}, 1);
    CHECK(strstr(dlc_error_message(n->context), "callback"));
    CHECK(dlc_prepare(n->program, same, (const int[]){2}, 1) == DLC_INVALID_ARGUMENT);
    char *text;
    OK(n->context, dlc_program_dump(n->program, "plan", (const int64_t *[]){SHAPE(3, 8)}, (const int[]){2}, 1, &text));
    dlc_text_free(n->context, text);
    thread other; /* another thread binds meanwhile */
    start_thread(&other, run_another_shape, n);
    join_threads(&other, 1);
}

static void run_in_progress(void *user, const char *stage, int done, int total) {
    nested *n = user;
    (void)stage, (void)done, (void)total;
    if (n->calls++ == 0) run_checked(&n->checks, use_in_progress, n);
}

static void test_runs_in_progress(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        nested n = {.context = open_context(all_targets[t], NULL)};
        if (!n.context) continue;
        float w[32], b[4];
        fill(w, 32, 1);
        fill(b, 4, 2);
        dlc_graph *g;
        OK(n.context, dlc_graph_create(n.context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(8)));
        dlc_value y = dlc_matmul(x, dlc_constant(g, DLC_F32, 2, SHAPE(8, 4), w));
        dlc_output(g, "y", dlc_relu(dlc_add(y, dlc_constant(g, DLC_F32, 1, SHAPE(4), b))));
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.progress = run_in_progress;
        options.progress_user = &n;
        n.calls = 1; /* not yet */
        OK(n.context, dlc_compile(n.context, g, &options, &n.program));
        run_dense(n.context, n.program, 3, NULL);
        n.calls = 0;
        run_dense(n.context, n.program, 5, NULL);
        report(&n.checks);
        assert_true(n.calls > 1);
        assert_int_equal(n.refused, DLC_INVALID_ARGUMENT);
        run_dense(n.context, n.program, 17, NULL);
        dlc_program_destroy(n.program);
        dlc_graph_destroy(g);
        dlc_context_destroy(n.context);
    }
}

/* Many threads ask for shapes that nobody has bound: each is built once. */
static void test_bind_once(void **state) {
    (void)state;
    enum { THREADS = 6, SHAPES = 4 };
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        thread handles[THREADS];
        worker workers[THREADS];
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){context, program, 0, SHAPES};
            start_thread(&handles[i], many_shapes, &workers[i]);
        }
        join_threads(handles, THREADS);
        assert_int_equal(statistics(context).plan_builds, SHAPES);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- fork */

static void test_fork(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        if (!has_host_memory(all_targets[t])) continue; /* CUDA does not work in a child: test/cuda/open.c */
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.threads = options.compile_threads = 2;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        run_dense(context, program, 30, NULL);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            float x[8 * 8], out[8 * 4];
            double expected[8 * 4];
            fill(x, 64, 1);
            dense_reference(x, 8, expected);
            int bad = 0;
            for (int64_t n = 7; n <= 8; n++) { /* new shapes are compiled in the child */
                tensor tx, ty;
                dlc_output_slot slot = {F32(&ty, out, n, 4), NULL};
                bad |= dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, 8)}, 1, &slot, 1) != DLC_OK;
                for (int64_t i = 0; i < n * 4; i++) bad |= !(fabs(out[i] - expected[i]) < 1e-4);
            }
            dlc_program_destroy(program);
            dlc_context_destroy(context);
            _exit(bad);
        }
        assert_true(child > 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        run_dense(context, program, 31, NULL);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A thread whose stack does not suffice. */
typedef struct small_stack {
    dlc_program *program;
    dlc_status status;
} small_stack;
static void *prepare_there(void *argument) {
    small_stack *s = argument;
    s->status = dlc_prepare(s->program, (const int64_t *[]){SHAPE(64), SHAPE(64)}, (int[]){1, 1}, 2);
    return NULL;
}

/* Code generation tells what it has no room for, and another thread can do it: gathers of gathers are deep expressions. */
static void test_small_stacks(void **state) {
    (void)state;
    if (SLOW > 1) skip(); /* frames are larger under sanitizers */
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    for (int deep = 0; deep < 2; deep++) {
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(64))), i = dlc_input(g, "i", DLC_I32, 1, DIMS(SIZE(64)));
        for (int k = 0; k < (deep ? 60 : 1); k++) x = dlc_gather(x, i, 0);
        dlc_output(g, "y", x);
        small_stack s = {compile(context, g), DLC_OK};
        pthread_t id;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)(deep ? 512 : 160) << 10), 0);
        assert_int_equal(pthread_create(&id, &attributes, prepare_there, &s), 0);
        pthread_join(id, NULL);
        pthread_attr_destroy(&attributes);
        assert_int_equal(s.status, DLC_OUT_OF_MEMORY);
        OK(context, dlc_prepare(s.program, (const int64_t *[]){SHAPE(64), SHAPE(64)}, (int[]){1, 1}, 2));
        dlc_program_destroy(s.program);
    }
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_contexts),
        cmocka_unit_test(test_no_threads),
        cmocka_unit_test(test_create_destroy),
        cmocka_unit_test(test_stale_messages),
        cmocka_unit_test(test_small_cache),
        cmocka_unit_test(test_sizes_of_a_range),
        cmocka_unit_test(test_large_arenas),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_floating_point_state),
        cmocka_unit_test(test_exception_flags),
        cmocka_unit_test(test_cancel_run),
        cmocka_unit_test(test_cancel_compile_and_budget),
        cmocka_unit_test(test_runs_in_progress),
        cmocka_unit_test(test_bind_once),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_small_stacks),

    };
    fill(chain_w, sizeof chain_w / sizeof *chain_w, 1);
    fill(chain_x, sizeof chain_x / sizeof *chain_x, 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
