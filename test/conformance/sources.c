/* Sources of the cuda target; see sources.h. Within DLC_NVRTC_SECONDS (20, with DLC_TEST_LONG 60) a sample of them, spread evenly, is compiled for two
 * architectures; what does not compile, or spills registers, fails. */
#ifdef DLC_TARGET_cuda
#include "conformance/sources.h"
#include "targets/cuda/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* after the above */
#include <cmocka.h>

enum { BATCH = 16, HASHES = 1 << 15 };

typedef struct source {
    /* functions k<number>_p0, ... */
    char *text;
    int phases;
    /* bytes of shared memory, the most of a phase; a launch asks for them, the assembler does not know */
    int64_t shared;
} source;

static source *sources;
static int count, capacity;
static uint64_t seen[HASHES]; /* open addressing; 0: free */

static bool is_new(const char *text) {
    lib_hash128 hash = lib_hash_bytes(text, strlen(text), (lib_hash128){1, 2});
    uint64_t key = hash.low | 1;
    for (size_t at = key % HASHES;; at = (at + 1) % HASHES) {
        if (seen[at] == key) return false;
        if (seen[at]) continue;
        seen[at] = key;
        return true;
    }
}

/* All lanes of a warp take part in a shuffle: one that is an operand of `||` or `?:` would be skipped by some. */
static void expect_shuffles_alone(lib_arena *arena, const char *text) {
    static const char call[] = "shuffle(", before[] = " = ";
    const size_t length = sizeof before - 1;
    for (const char *at = strstr(text, call); at; at = strstr(at + 1, call))
        if ((size_t)(at - text) < length || strncmp(at - length, before, length) != 0)
            lib_raise(arena->scope, DLC_INTERNAL, "a shuffle inside an expression: %.80s", at);
}

void sources_add(lib_arena *arena, const tir_kernel *kernel) {
    lib_text text;
    lib_text_init(&text, arena);
    cuda_emit(kernel, 0, &text);
    if (text.length == 0) return;
    expect_shuffles_alone(arena, text.data);
    if (count == HASHES / 2 || !is_new(text.data)) return;
    if (count == capacity) sources = realloc(sources, (size_t)(capacity = 2 * capacity + 64) * sizeof *sources);
    lib_text_init(&text, arena);
    cuda_emit(kernel, count, &text);
    source *added = &sources[count++];
    *added = (source){.text = strdup(text.data), .phases = (int)kernel->phases.count};
    for (int p = 0; p < added->phases; p++)
        if (cuda_phase_shared(kernel, p) > added->shared) added->shared = cuda_phase_shared(kernel, p);
}

typedef struct compilation {
    const cuda_compiler *compiler;
    int kernels, functions, spills, failures, registers;
    int64_t shared;
} compilation;

/* ptxas leaves a few bytes in memory though the block may have many more registers: its own taste, no kernel that is too large. */
static bool is_short_of_registers(const char *text, const char *name, const cuda_usage *usage) {
    enum { FILE_OF_REGISTERS = 65536, MOST = 255, FEW_BYTES = 32, STEP = 8 };
    static const char bounds[] = "__launch_bounds__(";
    char head[64];
    int threads = 1;
    snprintf(head, sizeof head, ") %s(", name);
    const char *at = strstr(text, head);
    while (at && at > text && strncmp(at, bounds, sizeof bounds - 1) != 0) at--;
    if (at) sscanf(at, "__launch_bounds__(%d", &threads);
    int allowed = threads > 0 && FILE_OF_REGISTERS / threads < MOST ? FILE_OF_REGISTERS / threads : MOST;
    return usage->spill_stores > FEW_BYTES || usage->registers + STEP > allowed;
}

static void read_usage(compilation *c, const cuda_code *code, int number) {
    for (int p = 0; p < sources[number].phases; p++) {
        char name[40];
        cuda_usage usage;
        snprintf(name, sizeof name, "k%d_p%d", number, p);
        if (!cuda_find_usage(code->log, name, &usage)) continue;
        c->functions++;
        if (usage.registers > c->registers) c->registers = usage.registers;
        if (sources[number].shared > c->shared) c->shared = sources[number].shared;
        /* mathematical functions of doubles are calls, which save registers */
        if (usage.spill_stores == 0 || strstr(sources[number].text, "double")) continue;
        if (!is_short_of_registers(sources[number].text, name, &usage)) continue;
        c->spills++;
        print_error("%s spills %lld bytes:\n%s\n", name, (long long)usage.spill_stores, sources[number].text);
    }
}

static void compile_some(compilation *c, const int *number, int some) {
    lib_scope scope;
    lib_arena arena;
    lib_error error;
    cuda_code code = {0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_text text;
        lib_text_init(&text, &arena);
        cuda_emit_prelude(&text);
        for (int i = 0; i < some; i++) lib_text_add(&text, sources[number[i]].text);
        if (cuda_compile_source(c->compiler, text.data, true, &code, &error) != DLC_OK) {
            c->failures++;
            print_error("%s\n", error.message);
        }
        for (int i = 0; i < some && code.log; i++) read_usage(c, &code, number[i]);
        c->kernels += some;
    } else {
        c->failures++;
    }
    cuda_code_release(c->compiler, &code);
    lib_arena_free(&arena);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* In a scattered order, so that any part of it is a sample of all. */
static void compile_until(compilation *c, double end) {
    int batch[BATCH], step = 7919;
    while (count % step == 0) step += 2;
    for (int i = 0; i < count && now() < end; i += BATCH) {
        int some = 0;
        for (; some < BATCH && i + some < count; some++) batch[some] = (int)((int64_t)(i + some) * step % count);
        compile_some(c, batch, some);
    }
}

void test_sources(void **state) {
    static const int architectures[] = {80, 90};
    const char *seconds = getenv("DLC_NVRTC_SECONDS");
    const double limit = seconds ? atof(seconds) : getenv("DLC_TEST_LONG") ? 60 : 20;
    (void)state;
    for (int a = 0; a < 2; a++) {
        cuda_compiler compiler;
        lib_error error;
        const lib_log log = {0};
        if (cuda_compiler_open(&compiler, &lib_libc_allocator, &log, 0, architectures[a], &error) != DLC_OK) {
            print_message("%d sources of kernels were not compiled: %s\n", count, error.message);
            if (getenv("DLC_TEST_ALL")) fail_msg("%s", error.message);
            skip();
        }
        compilation c = {.compiler = &compiler};
        compile_until(&c, now() + limit / 2);
        print_message(
            "sm_%d: %d of %d kernels compiled, %d functions, %d registers at most, %lld bytes of shared memory, %d spill\n",
            architectures[a], c.kernels, count, c.functions, c.registers, (long long)c.shared, c.spills);
        assert_int_equal(c.failures, 0);
        assert_int_equal(c.spills, 0);
        assert_true(c.functions > 0 || count == 0);
    }
}
#else
typedef int sources_are_of_the_cuda_target;
#endif
