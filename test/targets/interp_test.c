/* The interp and null targets through targets/target.h: compile, load, run phases, errors, every allocation refused in
 * turn. */
#include "targets/target.h"
#include "test/counting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const char *const texts[] = {
    "kernel add(x: f32[n] arg, y: f32[n] arg, t: f32[n] workspace, l: f32[2] local) params(n: 0..64)"
    "phase tasks=n task=p { l[1] = x[p] t[p] = l[1] + l[1] }"
    "phase tasks=n task=p { y[p] = t[n - 1 - p] }",
    "kernel wrong(x: f32[n] arg, y: f32[n] arg) params(n: 0..64)"
    "phase tasks=n task=p { y[p] = x[p + 1] }",
};

/* Compiles both kernels, runs every task of both phases of the first one by itself, then the wrong one. */
static dlc_status run_kernels(const target *t, const target_options *options, const tir_kernel *const *kernels,
                              lib_error *error) {
    target_device *device = NULL;
    target_module *module = NULL;
    target_object object = {0};
    tir_machine machine;
    dlc_status status = t->open(options, &device, &machine, error);
    if (status != DLC_OK) return status;
    assert_string_equal(machine.target, t->name);
    status = t->compile(device, NULL, 2, kernels, &object, error);
    if (status == DLC_OK) status = t->load(device, &object, 2, NULL, &module, error);
    t->release_object(device, &object);
    if (status == DLC_OK) {
        float x[3] = {1, 2, 3}, y[3] = {0}, workspace[16], local[2];
        int64_t n = 3;
        void *buffers[] = {x, y};
        error->status = DLC_OK;
        target_arguments arguments = {.buffers = buffers,
                                      .params = &n,
                                      .workspace = (char *)workspace,
                                      .local = (char *)local,
                                      .local_stride = 64,
                                      .error = error};
        for (int p = 0; p < 2; p++)
            for (int64_t i = 3; i-- > 0;) {
                target_phase phase = t->phase(module, 0, p);
                phase.run(&arguments, 0, i, i + 1, 0, phase.closure);
            }
        status = error->status;
        if (status == DLC_OK) {
            assert_true(y[0] == 6 && y[1] == 4 && y[2] == 2);
            target_phase phase = t->phase(module, 1, 0);
            phase.run(&arguments, 0, 0, 3, 0, phase.closure);
            assert_true(error->status == DLC_INTERNAL || error->status == DLC_OUT_OF_MEMORY);
            if (error->status == DLC_INTERNAL) assert_non_null(strstr(error->message, "out of bounds: load of x[3]"));
            if (error->status == DLC_OUT_OF_MEMORY) status = error->status;
        }
        assert_true(t->module_bytes(module) > sizeof(void *));
        t->unload(device, module);
    }
    t->close(device);
    return status;
}

typedef void (*with_kernels)(const target *t, const tir_kernel *const *kernels);

static void parse_kernels(const target *t, with_kernels then) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        const tir_kernel *kernels[2];
        for (int i = 0; i < 2; i++) {
            lib_lexer lexer;
            lib_lexer_init(&lexer, &arena, "<text>", texts[i], strlen(texts[i]));
            kernels[i] = tir_kernel_parse(&arena, &lexer, NULL);
        }
        then(t, kernels);
    } else {
        fail_msg("%s", scope.error.message);
    }
    lib_arena_free(&arena);
}

static void run_refusing(const target *t, const tir_kernel *const *kernels) {
    for (int64_t refuse = 1;; refuse++) {
        counting c = {.refuse = refuse};
        const dlc_allocator allocator = {counting_allocate, counting_release, &c};
        const lib_log log = {0};
        const target_options options = {.allocator = &allocator, .log = &log};
        lib_error error = {0};
        dlc_status status = run_kernels(t, &options, kernels, &error);
        assert_int_equal(c.outstanding, 0);
        if (c.seen < refuse) {
            assert_int_equal(status, DLC_OK);
            return;
        }
        assert_int_equal(status, DLC_OUT_OF_MEMORY);
    }
}

static void test_interp(void **state) {
    (void)state;
    parse_kernels(&target_interp, run_refusing);
}

#ifdef DLC_TARGET_null
static void run_null(const target *t, const tir_kernel *const *kernels) {
    const lib_log log = {0};
    const target_options options = {.allocator = &lib_libc_allocator, .log = &log};
    lib_error error = {0};
    assert_int_equal(run_kernels(t, &options, kernels, &error), DLC_UNSUPPORTED);
    assert_non_null(strstr(error.message, "null target"));
}

static void test_null(void **state) {
    (void)state;
    parse_kernels(&target_null, run_null);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interp),
#ifdef DLC_TARGET_null
        cmocka_unit_test(test_null),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
