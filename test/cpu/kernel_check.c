/* See kernel_check.h. */
#include "test/cpu/kernel_check.h"

#include "random.h"
#include "targets/target.h"
#include "test/share.h"
#include "tir/arith.h"
#include "tir/interpret.h"
#include "tir/vectorise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEVELS = 3, MAX_BUFFERS = 16, SLOTS = 2 };
static const char *const levels[LEVELS] = {"sse2", "avx2", "avx512"};

typedef struct level_device {
    target_device *device;
    tir_machine machine;
} level_device;
static level_device devices[LEVELS];

int kernel_check_open(void **state) {
    (void)state;
    for (int i = 0; i < LEVELS; i++) {
        lib_error error;
        target_options options = {.allocator = &lib_libc_allocator};
        setenv("DLC_CPU_FEATURES", levels[i], 1);
        setenv("DLC_VERIFY", "1", 1);
        if (target_cpu.open(&options, &devices[i].device, &devices[i].machine, &error) != DLC_OK) {
            print_error("%s: %s\n", levels[i], error.message);
            return -1;
        }
    }
    return 0;
}

int kernel_check_close(void **state) {
    (void)state;
    for (int i = 0; i < LEVELS; i++) target_cpu.close(devices[i].device);
    return 0;
}

/* ---- buffers against inaccessible pages */

typedef struct guarded {
    char *map;
    size_t mapped;
    char *data;
    size_t size;
} guarded;

static guarded guarded_new(size_t size, bool at_start) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (size + page - 1) / page * page;
    guarded g = {.mapped = inner + 2 * page, .size = size};
    g.map = mmap(NULL, g.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    if (inner) assert_int_equal(mprotect(g.map + page, inner, PROT_READ | PROT_WRITE), 0);
    g.data = at_start ? g.map + page : g.map + page + inner - size;
    return g;
}

static void guarded_free(guarded *g) {
    munmap(g->map, g->mapped);
}

/* ---- contents */

static void fill_element(dlc_dtype dtype, char *at, fill how, uint64_t *state) {
    static const double specials[] = {0.0,
                                      -0.0,
                                      1.0,
                                      -1.0,
                                      1.5,
                                      -2.5,
                                      1e30,
                                      -1e30,
                                      1e-40,
                                      -1e-40,
                                      2147483647.0,
                                      2147483648.0,
                                      -2147483648.0,
                                      -2147483904.0,
                                      9.3e18,
                                      -9.3e18,
                                      127.5,
                                      -128.5,
                                      255.5,
                                      65504.0,
                                      65519.9,
                                      65520.0,
                                      6e-8,
                                      2.9e-8,
                                      3e-8,
                                      5e-324,
                                      1e300,
                                      3.4028235e38,
                                      0.5,
                                      8388607.5,
                                      4503599627370495.5,
                                      INFINITY,
                                      -INFINITY,
                                      NAN};
    uint64_t random = test_random(state);
    size_t size = lib_dtype_size(dtype);
    char class_ = lib_dtypes[dtype].class_;
    if (class_ == 'b') {
        *at = random & 1;
    } else if (class_ == 'f' && how == FILL_SMALL) {
        lib_element_set_f64(dtype, at, ((double)(random >> 11) * 0x1p-53 - 0.5) * 4);
    } else if (class_ == 'f') {
        if (random % 3 == 0)
            memcpy(at, &(uint64_t){test_random(state)}, size); /* any bits */
        else
            lib_element_set_f64(dtype, at, specials[(random >> 8) % (sizeof specials / sizeof *specials)]);
    } else if (how == FILL_SMALL) {
        lib_element_set_i64(dtype, at, (int64_t)(random % 7));
    } else {
        static const int64_t edges[] = {0,   1,    -1, 2,  INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX,
                                        127, -128, 31, 32, 33,        63,        64};
        int64_t value =
            random % 2 ? edges[(random >> 8) % (sizeof edges / sizeof *edges)] : (int64_t)test_random(state);
        lib_element_set_i64(dtype, at, value);
    }
}

static bool same_element(dlc_dtype dtype, const char *a, const char *b) {
    if (memcmp(a, b, lib_dtype_size(dtype)) == 0) return true;
    if (lib_dtypes[dtype].class_ != 'f') return false;
    double x = lib_element_get_f64(dtype, a), y = lib_element_get_f64(dtype, b);
    return x != x && y != y;
}

/* ---- kernels */

typedef struct checked {
    lib_scope scope;
    lib_arena arena;
    tir_pool pool;
    tir_kernel *kernel;
    uint64_t *variables;
} checked;

static int64_t number(checked *c, tir_expr e) {
    if (!e) return 0;
    tir_evaluator evaluator = {.variables = c->variables};
    return (int64_t)tir_evaluate(c->kernel->pool, e, &evaluator);
}

static void parse(checked *c, const char *text, const int64_t *params, bool verify) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, &c->arena, "test", text, strlen(text));
    c->kernel = tir_kernel_parse(&c->arena, &lexer, NULL);
    if (verify) tir_kernel_verify(&c->scope, c->kernel, NULL, NULL);
    c->variables = LIB_NEW_ARRAY(&c->arena, uint64_t, c->kernel->pool->variables.count);
    for (uint32_t i = 0; i < c->kernel->params.count; i++)
        c->variables[tir_var_id(c->kernel->pool, c->kernel->params.data[i])] = (uint64_t)params[i];
}

static size_t argument_bytes(checked *c, const tir_buffer *b) {
    int64_t elements = 1;
    for (int i = 0; i < b->rank; i++) {
        int64_t extent = number(c, b->extent[i]);
        if (extent <= 0) return 0;
        elements += (extent - 1) * number(c, b->stride[i]);
    }
    return (size_t)elements * lib_dtype_size(b->dtype);
}

static void run_phase(checked *c, target_module *module, uint32_t p, int64_t iteration,
                      const target_arguments *arguments) {
    target_phase phase = target_cpu.phase(module, 0, (int)p);
    int64_t tasks = number(c, c->kernel->phases.data[p].tasks), middle = tasks / 2;
    if (middle < tasks) phase.run(arguments, iteration, middle, tasks, 1, phase.closure);
    if (middle > 0) phase.run(arguments, iteration, 0, middle, 0, phase.closure);
}

static void run_module(checked *c, target_module *module, const target_arguments *arguments) {
    for (uint32_t p = 0; p < c->kernel->phases.count;) {
        const tir_phase *phase = &c->kernel->phases.data[p];
        int64_t repeat = phase->repeat ? number(c, phase->repeat) : 1;
        uint32_t group = phase->repeat ? (uint32_t)phase->repeat_phases : 1;
        for (int64_t t = 0; t < repeat; t++)
            for (uint32_t i = 0; i < group; i++) run_phase(c, module, p + i, t, arguments);
        p += group;
    }
}

static void compare(checked *c, const char *level, bool at_start, guarded *got, guarded *want) {
    for (int i = 0; i < c->kernel->arguments; i++) {
        const tir_buffer *b = &c->kernel->buffers.data[i];
        size_t size = lib_dtype_size(b->dtype);
        for (size_t at = 0; at < got[i].size; at += size) {
            if (same_element(b->dtype, got[i].data + at, want[i].data + at)) continue;
            fail_msg("%s: %s %s, element %zu of %s: got %.17g (%016llx), interpreter %.17g (%016llx)", c->kernel->name,
                     level, at_start ? "at start" : "at end", at / size, b->name,
                     lib_element_get_f64(b->dtype, got[i].data + at),
                     (unsigned long long)tir_bits_load((tir_dtype)b->dtype, got[i].data + at),
                     lib_element_get_f64(b->dtype, want[i].data + at),
                     (unsigned long long)tir_bits_load((tir_dtype)b->dtype, want[i].data + at));
        }
    }
}

/* Buffers begin or end at an inaccessible page. */
static void run_buffers(checked *c, int level, target_module *module, const int64_t *params, guarded *inputs,
                        guarded *want, bool at_start) {
    lib_error error = {0};
    guarded got[MAX_BUFFERS];
    void *buffers[MAX_BUFFERS];
    for (int i = 0; i < c->kernel->arguments; i++) {
        got[i] = guarded_new(inputs[i].size, at_start);
        memcpy(got[i].data, inputs[i].data, inputs[i].size);
        buffers[i] = got[i].data;
    }
    size_t local = ((size_t)number(c, c->kernel->local_size) + 63) / 64 * 64;
    size_t workspace = (size_t)c->kernel->workspace_bytes;
    if (c->kernel->workspace_size) workspace = (size_t)number(c, c->kernel->workspace_size);
    char *scratch = aligned_alloc(64, (workspace + 64) / 64 * 64), *locals = aligned_alloc(64, local * SLOTS + 64);
    memset(scratch, 0xff, workspace);
    memset(locals, 0xff, local * SLOTS);
    target_arguments arguments = {.buffers = buffers,
                                  .params = params,
                                  .workspace = scratch,
                                  .local = locals,
                                  .local_stride = (int64_t)local,
                                  .error = &error};
    run_module(c, module, &arguments);
    compare(c, levels[level], at_start, got, want);
    for (int i = 0; i < c->kernel->arguments; i++) guarded_free(&got[i]);
    free(scratch);
    free(locals);
}

static void run_level(checked *c, int level, const int64_t *params, guarded *inputs, guarded *want) {
    lib_error error = {0};
    target_object object;
    target_module *module;
    const tir_kernel *kernels[] = {c->kernel};
    target_device *device = devices[level].device;
    dlc_status status = target_cpu.compile(device, NULL, 1, kernels, &object, &error);
    if (status != DLC_OK) fail_msg("%s: %s: %s", c->kernel->name, levels[level], error.message);
    status = target_cpu.load(device, &object, 1, NULL, &module, &error);
    if (status != DLC_OK) fail_msg("%s: %s: %s", c->kernel->name, levels[level], error.message);
    target_cpu.release_object(device, &object);
    for (int at_start = 0; at_start < 2; at_start++) run_buffers(c, level, module, params, inputs, want, at_start);
    target_cpu.unload(device, module);
}

static const char *print(checked *c, const tir_kernel *kernel) {
    lib_text text;
    lib_text_init(&text, &c->arena);
    tir_kernel_print(&text, kernel);
    return text.data;
}

/* The words of all stores that say how they are made. */
static const char *ways_of(checked *c, const char *text) {
    lib_text ways;
    lib_text_init(&ways, &c->arena);
    lib_text_add(&ways, "");
    for (const char *at = text; (at = strchr(at, ' ')) != NULL; at++)
        if (strncmp(at, " transpose.", 11) == 0 || strncmp(at, " lanes.", 7) == 0)
            lib_text_format(&ways, "%.*s", (int)strcspn(at + 1, " ") + 1, at);
    return ways.data;
}

/* The text of what tir_vectorise makes of the kernel, if it is legal, parses back to something that is right and says the same of stores; a
 * mistake is a mistake even of a kernel that may be refused. */
static void check_text(const char *text, int level) {
    static const int64_t none[MAX_BUFFERS];
    checked c;
    volatile bool made = false;
    memset(&c, 0, sizeof c);
    lib_arena_init(&c.arena, &lib_libc_allocator, &c.scope);
    if (LIB_ENTER(&c.scope)) {
        parse(&c, text, none, true);
        tir_kernel *vectors = tir_vectorise(&c.arena, c.kernel, &devices[level].machine);
        made = true;
        tir_kernel_verify(&c.scope, vectors, NULL, NULL);
        const char *printed = print(&c, vectors);
        parse(&c, printed, none, true);
        assert_string_equal(ways_of(&c, printed), ways_of(&c, print(&c, c.kernel)));
    } else if (made) {
        fail_msg("%s", c.scope.error.message);
    }
    lib_arena_free(&c.arena);
}

/* What tir_vectorise makes of the kernel: verified, and interpreted with the last lanes first. */
static void run_vectors(checked *c, int level, const int64_t *params, guarded *inputs, guarded *want) {
    guarded got[MAX_BUFFERS];
    void *buffers[MAX_BUFFERS];
    lib_error error = {0};
    const tir_interpret_options options = {.check = true, .reverse_lanes = true};
    tir_kernel *vectors = tir_vectorise(&c->arena, c->kernel, &devices[level].machine);
    tir_kernel_verify(&c->scope, vectors, NULL, NULL);
    for (int i = 0; i < c->kernel->arguments; i++) {
        got[i] = guarded_new(inputs[i].size, false);
        memcpy(got[i].data, inputs[i].data, inputs[i].size);
        buffers[i] = got[i].data;
    }
    if (tir_interpret(vectors, buffers, params, &options, &lib_libc_allocator, &error) != DLC_OK)
        lib_raise(&c->scope, error.status, "%s: vectors, %s: %s", c->kernel->name, levels[level], error.message);
    compare(c, levels[level], false, got, want);
    for (int i = 0; i < c->kernel->arguments; i++) guarded_free(&got[i]);
}

/* Where tests are shortest, kernels take levels in turn. */
static bool takes_level(int level) {
    static int calls;
    return !test_is_shortest() || calls++ / LEVELS % LEVELS == level;
}

/* Leaves by lib_raise when the interpreter refuses the kernel. */
static void check(checked *c, const char *text, const int64_t *params, fill how, bool verify) {
    guarded inputs[MAX_BUFFERS], want[MAX_BUFFERS];
    void *buffers[MAX_BUFFERS];
    uint64_t state = 12345;
    parse(c, text, params, verify);
    assert_true(c->kernel->arguments <= MAX_BUFFERS);
    for (int i = 0; i < c->kernel->arguments; i++) {
        const tir_buffer *b = &c->kernel->buffers.data[i];
        inputs[i] = guarded_new(argument_bytes(c, b), false);
        want[i] = guarded_new(inputs[i].size, false);
        for (size_t at = 0; at < inputs[i].size; at += lib_dtype_size(b->dtype))
            fill_element(b->dtype, inputs[i].data + at, how, &state);
        memcpy(want[i].data, inputs[i].data, inputs[i].size);
        buffers[i] = want[i].data;
    }
    lib_error error = {0};
    tir_interpret_options options = {.check = true};
    if (tir_interpret(c->kernel, buffers, params, &options, &lib_libc_allocator, &error) != DLC_OK)
        lib_raise(&c->scope, error.status, "%s: interpreter: %s", c->kernel->name, error.message);
    for (int level = 0; level < LEVELS; level++) {
        if (!takes_level(level)) continue;
        if (verify) check_text(text, level);
        if (verify) run_vectors(c, level, params, inputs, want);
        run_level(c, level, params, inputs, want);
    }
    for (int i = 0; i < c->kernel->arguments; i++) {
        guarded_free(&inputs[i]);
        guarded_free(&want[i]);
    }
}

static bool check_in_scope(const char *text, const int64_t *params, fill how, bool verify, bool must) {
    checked c;
    volatile bool legal = false;
    memset(&c, 0, sizeof c);
    lib_arena_init(&c.arena, &lib_libc_allocator, &c.scope);
    if (LIB_ENTER(&c.scope)) {
        check(&c, text, params, how, verify);
        legal = true;
    } else if (must) {
        fail_msg("%s", c.scope.error.message);
    }
    lib_arena_free(&c.arena);
    return legal;
}

bool kernel_check_if_legal(const char *text, const int64_t *params, fill how) {
    return check_in_scope(text, params, how, true, false);
}

void kernel_check_fill(const char *text, const int64_t *params, fill how) {
    check_in_scope(text, params, how, true, true);
}

void kernel_check_unverified(const char *text, const int64_t *params) {
    check_in_scope(text, params, FILL_SMALL, false, true);
    check_in_scope(text, params, FILL_SPECIAL, false, true);
}

void kernel_check(const char *text, const int64_t *params) {
    kernel_check_fill(text, params, FILL_SMALL);
    kernel_check_fill(text, params, FILL_SPECIAL);
}

static const char *dump_of(checked *c, const char *text, int level, target_dump what) {
    lib_error error = {0};
    lib_text out;
    parse(c, text, NULL, true);
    lib_text_init(&out, &c->arena);
    if (target_cpu.dump(devices[level].device, c->kernel, what, &out, &error) != DLC_OK) fail_msg("%s", error.message);
    return out.data;
}

static int count_spills(checked *c, const char *text, int level) {
    int spills = 0, reloads = 0;
    const char *first = strchr(dump_of(c, text, level, TARGET_DUMP_ASSEMBLY), ':');
    assert_int_equal(sscanf(first, ": %d spills, %d reloads", &spills, &reloads), 2);
    return spills + reloads;
}

/* Copies from one register to another: a code generator that overwrites the wrong operand makes many. */
static int count_copies(checked *c, const char *text, int level) {
    int copies = 0;
    const char *copy = "movaps\t%xmm";
    for (const char *at = dump_of(c, text, level, TARGET_DUMP_ASSEMBLY); (at = strstr(at, copy)) != NULL;) {
        at += strlen(copy);
        at += strspn(at, "0123456789");
        copies += strncmp(at, ", %xmm", 6) == 0;
    }
    return copies;
}

static int count_non_temporal(checked *c, const char *text, int level) {
    int stores = 0;
    for (const char *at = dump_of(c, text, level, TARGET_DUMP_LLVM); (at = strstr(at, "!nontemporal")) != NULL; at++)
        stores++;
    return stores;
}

static int count_lines(checked *c, const char *text, int level) {
    int lines = 0;
    for (const char *at = dump_of(c, text, level, TARGET_DUMP_LLVM); (at = strchr(at, '\n')) != NULL; at++) lines++;
    return lines;
}

static int measure(const char *text, int level, int (*count)(checked *c, const char *text, int level)) {
    checked c;
    volatile int result = -1;
    memset(&c, 0, sizeof c);
    lib_arena_init(&c.arena, &lib_libc_allocator, &c.scope);
    if (LIB_ENTER(&c.scope))
        result = count(&c, text, level);
    else
        fail_msg("%s", c.scope.error.message);
    lib_arena_free(&c.arena);
    return result;
}

int kernel_spills(const char *text, int vector_bytes) {
    if (devices[LEVELS - 1].machine.vector_bytes < vector_bytes) return -1;
    return measure(text, LEVELS - 1, count_spills);
}

bool kernel_pairs_rows(void) {
    return devices[LEVELS - 1].machine.row_pairs;
}

int kernel_copies(const char *text) {
    return measure(text, 0, count_copies);
}

int kernel_non_temporal(const char *text, int vector_bytes) {
    if (devices[LEVELS - 1].machine.vector_bytes < vector_bytes) return -1;
    return measure(text, LEVELS - 1, count_non_temporal);
}

int kernel_length(const char *text) {
    return measure(text, LEVELS - 1, count_lines);
}
