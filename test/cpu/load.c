/* The life of compiled code: modules of several kernels, loading the same object twice, real unmapping, many threads
 * compiling at once, a forced CPU name that LLVM does not know, dumps, and kernels that must be refused with a message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "targets/target.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KERNEL                                                                     \
    "kernel k(x: f32[100] arg, y: f32[100] arg)\n"                                 \
    "phase tasks=1 task=p { for i in 0..100 vec { y[i] = x[i]*2:f32 + 1:f32 } }\n" \
    "phase tasks=1 task=q { for i in 0..100 vec { y[i] = y[i] - x[i] } }\n"

typedef struct fixture {
    target_device *device;
    tir_machine machine;
    lib_scope scope;
    lib_arena arena;
    tir_kernel *kernel;
    lib_error error;
} fixture;

static tir_kernel *parse(fixture *f, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, &f->arena, "test", text, strlen(text));
    return tir_kernel_parse(&f->arena, &lexer);
}

static void open_fixture(fixture *f, const char *text) {
    target_options options = {.allocator = &lib_libc_allocator};
    memset(f, 0, sizeof *f);
    assert_int_equal(target_cpu.open(&options, &f->device, &f->machine, &f->error), DLC_OK);
    lib_arena_init(&f->arena, &lib_libc_allocator, &f->scope);
    if (LIB_ENTER(&f->scope))
        f->kernel = parse(f, text);
    else
        fail_msg("%s", f->scope.error.message);
}

static void close_fixture(fixture *f) {
    target_cpu.close(f->device);
    lib_arena_free(&f->arena);
}

static bool runs(const target_module *module, int kernel) {
    float x[100], y[100];
    void *buffers[] = {x, y};
    target_arguments arguments = {.buffers = buffers};
    for (int i = 0; i < 100; i++) x[i] = (float)i;
    for (int p = 0; p < 2; p++) target_cpu.phase(module, kernel, p).run(&arguments, 0, 0, 1, 0, NULL);
    for (int i = 0; i < 100; i++)
        if (y[i] != (float)i + 1) return false;
    return true;
}

static int mappings(void) {
    int lines = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    for (int c; (c = fgetc(file)) != EOF;) lines += c == '\n';
    fclose(file);
    return lines;
}

static void test_modules(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel, f.kernel, f.kernel};
    target_object object;
    target_module *one, *two;
    assert_int_equal(target_cpu.compile(f.device, NULL, 3, kernels, &object, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 3, NULL, &one, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 3, NULL, &two, &f.error), DLC_OK);
    target_cpu.release_object(f.device, &object);
    assert_true(target_cpu.phase(one, 0, 0).run != target_cpu.phase(two, 0, 0).run);
    assert_true(target_cpu.module_bytes(one) >= 4096);
    for (int k = 0; k < 3; k++) assert_true(runs(one, k) && runs(two, k));
    target_cpu.unload(f.device, one);
    assert_true(runs(two, 2));
    target_cpu.unload(f.device, two);
    close_fixture(&f);
}

/* Nothing stays mapped, and no page is writable and executable. */
static void test_unmapping(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    target_module *modules[20];
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_OK);
    int before = 0, after = 0;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 20; i++)
            assert_int_equal(target_cpu.load(f.device, &object, 1, NULL, &modules[i], &f.error), DLC_OK);
        char line[512];
        FILE *file = fopen("/proc/self/maps", "re");
        while (fgets(line, sizeof line, file)) assert_null(strstr(line, "rwx"));
        fclose(file);
        for (int i = 0; i < 20; i++) target_cpu.unload(f.device, modules[i]);
        if (round == 1) before = mappings();
        after = mappings();
    }
    assert_true(after <= before + 2);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

/* The table of names is LLVM's: an object with a foreign symbol does not load. A truncated one neither. */
static void test_bad_objects(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel, f.kernel};
    target_object object, cut;
    target_module *module;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 2, NULL, &module, &f.error), DLC_COMPILE_FAILED);
    assert_null(module);
    cut = object;
    cut.size = 100;
    assert_int_equal(target_cpu.load(f.device, &cut, 1, NULL, &module, &f.error), DLC_COMPILE_FAILED);
    assert_int_equal(target_cpu.load(f.device, &object, 1, NULL, &module, &f.error), DLC_OK);
    assert_true(runs(module, 0));
    target_cpu.unload(f.device, module);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

/* Bytes from a disk may be anything. Loaded or refused, never a crash; what is loaded is not run, here. */
static void test_hostile_objects(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    target_module *module;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_OK);
    for (size_t size = 0; size < object.size; size += size < 64 ? 1 : 7) {
        char *cut = malloc(size + 1); /* of just this length, for the sanitizer */
        memcpy(cut, object.bytes, size);
        assert_int_equal(
            target_cpu.load(f.device, &(target_object){.bytes = cut, .size = size}, 1, NULL, &module, &f.error),
            DLC_COMPILE_FAILED);
        free(cut);
    }
    uint64_t seed = 1;
    char *bytes = malloc(object.size);
    for (int i = 0; i < 20000; i++) {
        memcpy(bytes, object.bytes, object.size);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = lib_hash_mix(seed, (uint64_t)i);
            bytes[seed % object.size] = i % 2 ? (char)(seed >> 32) : (char)0xff;
        }
        const target_object hostile = {.bytes = bytes, .size = object.size};
        if (target_cpu.load(f.device, &hostile, 1, NULL, &module, &f.error) == DLC_OK)
            target_cpu.unload(f.device, module);
    }
    free(bytes);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

static void *compile_and_run(void *user) {
    fixture *f = user;
    const tir_kernel *kernels[] = {f->kernel};
    for (int i = 0; i < 10; i++) {
        target_object object;
        target_module *module;
        lib_error error;
        if (target_cpu.compile(f->device, NULL, 1, kernels, &object, &error) != DLC_OK) return "compile";
        if (target_cpu.load(f->device, &object, 1, NULL, &module, &error) != DLC_OK) return "load";
        target_cpu.release_object(f->device, &object);
        if (!runs(module, 0)) return "run";
        target_cpu.unload(f->device, module);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    fixture f;
    pthread_t threads[4];
    open_fixture(&f, KERNEL);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, compile_and_run, &f), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    close_fixture(&f);
}

static void test_forced_cpu(void **state) {
    (void)state;
    fixture f;
    setenv("DLC_CPU", "no-such-processor", 1);
    open_fixture(&f, KERNEL);
    unsetenv("DLC_CPU");
    assert_null(strstr(f.machine.name, "no-such"));
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    target_module *module;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 1, NULL, &module, &f.error), DLC_OK);
    assert_true(runs(module, 0));
    target_cpu.unload(f.device, module);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

static void test_levels(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int bytes;
    } levels[] = {{"sse2", 16}, {"avx2", 32}, {"avx512", 64}};
    fixture best;
    open_fixture(&best, KERNEL);
    for (int i = 0; i < 3; i++) {
        fixture f;
        setenv("DLC_CPU_FEATURES", levels[i].name, 1);
        open_fixture(&f, KERNEL);
        unsetenv("DLC_CPU_FEATURES");
        int want = levels[i].bytes < best.machine.vector_bytes ? levels[i].bytes : best.machine.vector_bytes;
        assert_int_equal(f.machine.vector_bytes, want);
        assert_true(f.machine.l1 >= 4096 && f.machine.l2 >= f.machine.l1 && f.machine.l3 > 0 && f.machine.cores >= 1);
        close_fixture(&f);
    }
    close_fixture(&best);
}

static void test_dumps(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    lib_text text;
    lib_text_init(&text, &f.arena);
    assert_int_equal(target_cpu.dump(f.device, f.kernel, TARGET_DUMP_LLVM, &text, &f.error), DLC_OK);
    assert_non_null(strstr(text.data, "define void @dlc_k0_p1"));
    lib_text_init(&text, &f.arena);
    assert_int_equal(target_cpu.dump(f.device, f.kernel, TARGET_DUMP_ASSEMBLY, &text, &f.error), DLC_OK);
    assert_non_null(strstr(text.data, "# k: 0 spills, 0 reloads"));
    assert_int_equal(target_cpu.dump(f.device, f.kernel, TARGET_DUMP_SOURCE, &text, &f.error), DLC_UNSUPPORTED);
    close_fixture(&f);
}

static void test_refusals(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, "kernel k(x: f32[100] arg, r: f32[4] reg)\n"
                     "phase tasks=1 task=p { for i in 0..4 { r[i] = x[i] } for i in 0..4 { x[i] = r[i] } }\n");
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_INTERNAL);
    assert_non_null(strstr(f.error.message, "r"));
    assert_null(object.bytes);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modules),         cmocka_unit_test(test_unmapping),  cmocka_unit_test(test_bad_objects),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_forced_cpu), cmocka_unit_test(test_levels),
        cmocka_unit_test(test_hostile_objects), cmocka_unit_test(test_dumps),      cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("cpu loading", tests, NULL, NULL);
}
