/* Kernels that NVRTC refuses run on the CPU: visibly, with the results of the cpu target, beside kernels of the device. */
#include "test/cuda/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct log_lines {
    int lines;
    char last[1024];
} log_lines;

static void write_line(void *user, const char *line) {
    log_lines *log = user;
    if (!strstr(line, "runs on the host")) return;
    log->lines++;
    snprintf(log->last, sizeof log->last, "%s", line);
}

typedef struct outcome {
    float z[ROWS * ROWS];
    dlc_statistics statistics;
    log_lines log;
    dlc_status status;
    char message[1024];
    long launches;
} outcome;

static outcome run_three(const char *target, int runs) {
    outcome o;
    memset(&o, 0, sizeof o);
    dlc_context *context;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = target;
    options.log = write_line;
    options.log_user = &o.log;
    o.status = dlc_context_create(&options, &context);
    if (o.status != DLC_OK) return o;
    dlc_graph *g = three(context);
    dlc_program *program = NULL;
    o.status = dlc_compile(context, g, NULL, &program);
    dlc_graph_destroy(g);
    matrix x, z;
    fill(&x, COLUMNS), describe(&z, ROWS);
    for (int i = 0; i < runs && o.status == DLC_OK; i++) {
        memset(z.data, 0, sizeof z.data);
        o.status = run(program, &x, &z);
    }
    memcpy(o.z, z.data, sizeof o.z);
    snprintf(o.message, sizeof o.message, "%s", dlc_error_message(context));
    o.statistics.struct_size = sizeof o.statistics;
    dlc_context_statistics(context, &o.statistics);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    o.launches = f->driver->launches;
    return o;
}

static void expect_clean(void) {
    assert_string_equal(f->driver->message, "");
    assert_true(fakes_are_empty(f));
}

#ifdef DLC_TARGET_cpu
/* A part of the source of the kernel that was told of last. */
static const char *name_last(const outcome *o) {
    static char part[128];
    char name[64] = "";
    if (sscanf(o->log.last, "dlc: region %63s", name) != 1) fail_msg("%s", o->log.last);
    snprintf(part, sizeof part, "kernel %s(", name);
    return part;
}

/* All, some, none: what is refused is counted and told once, the rest is launched. */
static void test_refused(void **state) {
    (void)state;
    fakes_reset(f);
    const outcome wanted = run_three("cpu", 1), device = run_three("cuda", 1);
    expect_clean();
    if (wanted.status != DLC_OK || device.status != DLC_OK) fail_msg("%s %s", wanted.message, device.message);
    assert_int_equal(device.statistics.host_regions, 0);
    assert_int_equal(device.log.lines, 0);
    f->nvrtc->refuses = "kernel ";
    const outcome all = run_three("cuda", 2);
    if (all.status != DLC_OK) fail_msg("%s; %s", all.message, f->driver->message);
    assert_memory_equal(all.z, wanted.z, sizeof wanted.z);
    assert_true(all.statistics.host_regions > 1);
    assert_int_equal(all.log.lines, all.statistics.host_regions);
    assert_int_equal(all.launches, device.launches);
    assert_non_null(strstr(all.log.last, "NVRTC 13.0 refused the source"));
    expect_clean();
    fakes_reset(f);
    f->nvrtc->refuses = name_last(&all);
    const outcome some = run_three("cuda", 1);
    if (some.status != DLC_OK) fail_msg("%s; %s", some.message, f->driver->message);
    assert_int_equal(some.statistics.host_regions, 1);
    assert_int_equal(some.log.lines, 1);
    assert_string_equal(some.log.last, all.log.last);
    assert_true(some.launches > 0 && some.launches < device.launches);
    for (int i = 0; i < ROWS * ROWS; i++) assert_float_equal(some.z[i], wanted.z[i], 1e-5);
    expect_clean();
}

/* Constants that kernels of the host want in layouts of their own, and as they are: of small integers, exact in f32. */
static void test_constants(void **state) {
    (void)state;
    enum { M = 20, K = 96, N = 80 };
    static float x[M * K], w[K * N], b[N], y[M * N];
    int64_t xs[2] = {M, K}, ys[2] = {M, N};
    for (int i = 0; i < M * K; i++) x[i] = (float)(i * 5 % 9 - 4);
    for (int i = 0; i < K * N; i++) w[i] = (float)(i * 7 % 11 - 5);
    for (int i = 0; i < N; i++) b[i] = (float)(i % 13);
    fakes_reset(f);
    f->nvrtc->refuses = "kernel ";
    dlc_context *context;
    dlc_graph *g;
    dlc_program *program;
    assert_int_equal(create("cuda", &context), DLC_OK);
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_value vx = dlc_input(g, "x", DLC_F32, DIMS({M, NULL}, {K, NULL}));
    dlc_value vw = dlc_constant(g, DLC_F32, 2, (int64_t[]){K, N}, w),
              vb = dlc_constant(g, DLC_F32, 1, (int64_t[]){N}, b);
    dlc_output(g, "y", dlc_add(dlc_matmul(vx, vw), vb));
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    dlc_graph_destroy(g);
    DLTensor tx = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = xs}, ty = tx;
    ty.data = y, ty.shape = ys;
    for (int run = 0; run < 2; run++) {
        dlc_output_slot slot = {&ty, NULL};
        memset(y, 0xff, sizeof y);
        if (dlc_run(program, NULL, (const DLTensor *[]){&tx}, 1, &slot, 1) != DLC_OK)
            fail_msg("%s", dlc_error_message(context));
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                int sum = j % 13;
                for (int k = 0; k < K; k++) sum += ((i * K + k) * 5 % 9 - 4) * ((k * N + j) * 7 % 11 - 5);
                if (y[i * N + j] != (float)sum) fail_msg("%d, %d: %g, expected %d", i, j, y[i * N + j], sum);
            }
    }
    dlc_statistics s = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &s);
    assert_true(s.host_regions > 0);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    expect_clean();
}

#endif

/* On request the log has the source, and what NVRTC said of it. */
static void write_all(void *user, const char *line) {
    bool *seen = user;
    seen[0] = seen[0] || strstr(line, "NVRTC refused this source");
    seen[1] = seen[1] || strstr(line, "__global__");
    seen[2] = seen[2] || strstr(line, "was told to refuse this");
}

static void test_source(void **state) {
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        bool seen[3] = {false, false, false};
        dlc_context *context;
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.target = "cuda";
        options.log = write_all;
        options.log_user = seen;
        fakes_reset(f);
        f->nvrtc->refuses = "kernel ";
        setenv("DLC_DISABLE", "host", 1);
        if (asked) setenv("DLC_DEBUG", "source", 1);
        assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
        dlc_graph *g = three(context);
        dlc_program *program = NULL;
        matrix x, z;
        fill(&x, COLUMNS), describe(&z, ROWS);
        assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
        assert_int_equal(run(program, &x, &z), DLC_COMPILE_FAILED);
        unsetenv("DLC_DEBUG");
        unsetenv("DLC_DISABLE");
        for (int i = 0; i < 3; i++) assert_int_equal(seen[i], asked);
        dlc_graph_destroy(g);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        expect_clean();
    }
}

/* Not wanted: an error that says why. */
static void test_switched_off(void **state) {
    (void)state;
    fakes_reset(f);
    f->nvrtc->refuses = "kernel ";
    setenv("DLC_DISABLE", "host", 1);
    const outcome o = run_three("cuda", 1);
    unsetenv("DLC_DISABLE");
    assert_int_equal(o.status, DLC_COMPILE_FAILED);
    assert_non_null(strstr(o.message, "was told to refuse this"));
    expect_clean();
}

#ifdef DLC_TARGET_cpu
/* Kernels of the host run on the context's threads, its own or the host's; while these run, the device is not theirs. */
enum { MANY = 2048, BESIDE = 64, TOGETHER = 4 };

typedef struct helper {
    /* with work to share; bodies of one call */
    int64_t calls, most;
    /* was current in a body */
    bool device;
} helper;

static void one_after_another(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    helper *h = user;
    h->calls++;
    if (count > h->most) h->most = count;
    for (int64_t i = count; i-- > 0;) {
        h->device = h->device || f->current_context();
        body(argument, i);
    }
}

static void run_many(const dlc_context_options *options, float *y) {
    static float x[MANY * BESIDE];
    int64_t shape[2] = {MANY, BESIDE};
    DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape}, out = in;
    dlc_context *context;
    dlc_graph *g;
    dlc_program *program;
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    for (int i = 0; i < MANY * BESIDE; i++) x[i] = (float)(i % 101) / 8;
    out.data = y;
    assert_int_equal(dlc_context_create(options, &context), DLC_OK);
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_value v = dlc_input(g, "x", DLC_F32, DIMS({MANY, NULL}, {BESIDE, NULL}));
    dlc_output(g, "y", dlc_softmax(v, 1));
    if (dlc_compile(context, g, NULL, &program) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    const DLTensor *inputs[] = {&in};
    dlc_output_slot slot = {.tensor = &out};
    if (dlc_run(program, NULL, inputs, 1, &slot, 1) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    dlc_context_statistics(context, &statistics);
    assert_true(!options->target || statistics.host_regions > 0);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

static void test_threads(void **state) {
    (void)state;
    static float wanted[MANY * BESIDE], got[MANY * BESIDE];
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    run_many(&options, wanted);
    fakes_reset(f);
    f->nvrtc->refuses = "kernel ";
    options.target = "cuda";
    options.threads = 3;
    run_many(&options, got);
    assert_memory_equal(got, wanted, sizeof wanted);
    expect_clean();
    fakes_reset(f);
    f->nvrtc->refuses = "kernel ";
    helper h = {0};
    memset(got, 0, sizeof got);
    options.threads = 0;
    options.parallel_for = one_after_another;
    options.parallel_user = &h;
    options.parallel_width = TOGETHER;
    run_many(&options, got);
    assert_memory_equal(got, wanted, sizeof wanted);
    assert_true(h.calls > 0);
    assert_int_equal(h.most, TOGETHER);
    assert_false(h.device);
    expect_clean();
}

/* Each call failing in turn around kernels of the host. */
static void test_failures(void **state) {
    (void)state;
    static const char *const names[] = {
#define X(need, type, name, parameters) #name,
        CUDA_DRIVER_TABLE(X)
#undef X
    };
    int failures = 0;
    fakes_reset(f);
    f->nvrtc->refuses = "kernel ";
    const outcome all = run_three("cuda", 1);
    const char *refused = name_last(&all);
    f->nvrtc->refuses = refused;
    const outcome wanted = run_three("cuda", 1);
    assert_int_equal(wanted.statistics.host_regions, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (long nth = 1;; nth++) {
            if (strstr(names[i], "PushCurrent")) break;
            fakes_reset(f);
            f->nvrtc->refuses = refused;
            f->driver->fail = names[i], f->driver->fail_at = nth, f->driver->fail_with = CUDA_ERROR_UNKNOWN;
            const outcome o = run_three("cuda", 2);
            if (f->driver->seen < nth) break;
            if (!fakes_are_empty(f)) fail_msg("after call %ld of %s failed", nth, names[i]);
            if (o.status == DLC_OK) assert_memory_equal(o.z, wanted.z, sizeof o.z);
            failures += o.status != DLC_OK;
        }
    fakes_reset(f);
    assert_true(failures > 30);
}

#endif

#ifndef DLC_TARGET_cpu
static void test_no_cpu(void **state) {
    (void)state;
    fakes_reset(f);
    f->nvrtc->refuses = "kernel ";
    const outcome o = run_three("cuda", 1);
    assert_int_equal(o.status, DLC_COMPILE_FAILED);
    assert_non_null(strstr(o.message, "this build has no cpu target"));
    expect_clean();
}
#define TESTS cmocka_unit_test(test_no_cpu), cmocka_unit_test(test_switched_off), cmocka_unit_test(test_source)
#else
#define TESTS                                                                                              \
    cmocka_unit_test(test_refused), cmocka_unit_test(test_constants), cmocka_unit_test(test_switched_off), \
        cmocka_unit_test(test_source), cmocka_unit_test(test_failures), cmocka_unit_test(test_threads)
#endif

int main(void) {
    host_open();
    const struct CMUnitTest tests[] = {
        TESTS,
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
