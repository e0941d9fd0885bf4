/* Descriptions of kernels as a file holds them: what was written is read, and nothing that stands in the bytes does harm: the checksum of
 * the file is not there to protect against. */
#include "jit/disk.h"

#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MUTATIONS = 20000 };

static void make_kernel(jit_kernel *kernel) {
    lib_arena *arena = &kernel->arena;
    tir_pool *pool = kernel->pool = LIB_NEW(arena, tir_pool);
    tir_pool_init(pool, arena);
    tir_expr n = tir_var(pool, "n", TIR_VAR_PARAM, TIR_INDEX, 1, 1024);
    tir_expr eight = tir_index(pool, 8), tasks = tir_binary(pool, TIR_DIV, tir_binary(pool, TIR_ADD, n, eight), eight);
    kernel->name = "a kernel";
    kernel->params = LIB_NEW_ARRAY(arena, tir_expr, 1);
    kernel->params[0] = n;
    kernel->param_count = 1;
    kernel->phase_count = 2;
    kernel->phases = LIB_NEW_ARRAY(arena, jit_kernel_phase, 2);
    kernel->phases[0].tasks = tasks;
    kernel->phases[1] = (jit_kernel_phase){.tasks = eight, .repeat = n, .repeat_phases = 1};
    kernel->workspace_size = tir_binary(pool, TIR_MUL, tasks, eight);
    kernel->inputs = 2;
    kernel->input_layouts = LIB_NEW_ARRAY(arena, tir_layout, 2);
    kernel->input_layouts[0] = tir_layout_identity(2);
    kernel->input_layouts[1] =
        (tir_layout){.rank = 2, .count = 3, .part = {{.dim = 1, .divisor = 16}, {0, 1, 0}, {1, 1, 16}}};
    kernel->outputs = 1;
    kernel->shares = LIB_NEW_ARRAY(arena, uint64_t, 1);
    kernel->shares[0] = 3;
}

static int64_t value(const jit_kernel *kernel, tir_expr e, uint64_t n) {
    uint64_t variables[1] = {n};
    tir_evaluator evaluator = {.variables = variables};
    return (int64_t)tir_evaluate(kernel->pool, e, &evaluator);
}

static bool read_back(jit_kernel *kernel, const char *bytes, size_t size) {
    lib_arena_init(&kernel->arena, &lib_libc_allocator, &kernel->scope);
    if (LIB_ENTER(&kernel->scope)) jit_read_description(kernel, bytes, size);
    return kernel->scope.error.status == DLC_OK;
}

static void write_kernel(jit_kernel *kernel, lib_text *text) {
    lib_arena_init(&kernel->arena, &lib_libc_allocator, &kernel->scope);
    if (LIB_ENTER(&kernel->scope)) {
        make_kernel(kernel);
        lib_text_init(text, &kernel->arena);
        jit_describe_stored(text, kernel);
    }
    assert_int_equal(kernel->scope.error.status, DLC_OK);
}

static void test_round_trip(void **state) {
    (void)state;
    static jit_kernel from, to;
    lib_text text;
    write_kernel(&from, &text);
    assert_true(read_back(&to, text.data, text.length));
    assert_string_equal(to.name, from.name);
    assert_true(to.phase_count == 2 && to.param_count == 1 && to.inputs == 2 && to.outputs == 1 && to.shares[0] == 3);
    for (uint64_t n = 1; n < 100; n += 7) {
        assert_int_equal(value(&to, to.phases[0].tasks, n), value(&from, from.phases[0].tasks, n));
        assert_int_equal(value(&to, to.phases[1].repeat, n), (int64_t)n);
        assert_int_equal(value(&to, to.workspace_size, n), value(&from, from.workspace_size, n));
    }
    assert_true(tir_layout_equal(&to.input_layouts[1], &from.input_layouts[1]));
    assert_int_equal(to.local_size, 0);
    lib_arena_free(&to.arena);
    lib_arena_free(&from.arena);
}

static void test_cut(void **state) {
    (void)state;
    static jit_kernel from, to;
    lib_text text;
    write_kernel(&from, &text);
    for (size_t size = 0; size < text.length; size++) {
        char *bytes = malloc(size + 1); /* of just this length, for the sanitizer */
        memcpy(bytes, text.data, size);
        assert_false(read_back(&to, bytes, size));
        lib_arena_free(&to.arena);
        free(bytes);
    }
    lib_arena_free(&from.arena);
}

static void test_mutations(void **state) {
    (void)state;
    static jit_kernel from, to;
    lib_text text;
    uint64_t seed = 1;
    write_kernel(&from, &text);
    char *bytes = malloc(text.length);
    for (int i = 0; i < MUTATIONS; i++) {
        memcpy(bytes, text.data, text.length);
        for (int k = 0; k < 1 + i % 4; k++) {
            seed = lib_hash_mix(seed, (uint64_t)i);
            size_t at = (size_t)(seed % text.length);
            bytes[at] = i % 3 ? (char)(seed >> 32) : (char)(bytes[at] ^ 1 << (seed >> 40) % 8);
        }
        if (read_back(&to, bytes, text.length) && to.param_count == 1 && to.pool->variables.count == 1)
            for (int p = 0; p < to.phase_count; p++) value(&to, to.phases[p].tasks, 5);
        lib_arena_free(&to.arena);
    }
    free(bytes);
    lib_arena_free(&from.arena);
}

/* Its workspace is op(x). */
static void write_operator(jit_kernel *kernel, lib_text *text, tir_op op, tir_dtype dtype) {
    write_kernel(kernel, text);
    if (LIB_ENTER(&kernel->scope)) {
        tir_dtype of = op == TIR_CAST ? TIR_INDEX : dtype;
        tir_expr x = tir_var(kernel->pool, "x", TIR_VAR_PARAM, of, -8, 8);
        kernel->workspace_size = tir_make(kernel->pool, op, dtype, 1, &x);
        lib_text_init(text, &kernel->arena);
        jit_describe_stored(text, kernel);
    }
    assert_int_equal(kernel->scope.error.status, DLC_OK);
}

/* Sizes are made of few operators; others, of other types, are nobody's. */
static void test_operators(void **state) {
    (void)state;
    static jit_kernel from, to;
    static const struct {
        tir_op op;
        tir_dtype dtype;
    } made[] = {{TIR_SQRT, DLC_F32}, {TIR_CAST, DLC_I64}, {TIR_ABS, TIR_INDEX}, {TIR_LOGISTIC, DLC_F64}};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        lib_text text;
        write_operator(&from, &text, made[i].op, made[i].dtype);
        if (read_back(&to, text.data, text.length)) fail_msg("%s was read", tir_ops[made[i].op].text);
        assert_non_null(strstr(to.scope.error.message, "an operator of sizes"));
        lib_arena_free(&to.arena);
        lib_arena_free(&from.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_operators),
    };
    return cmocka_run_group_tests_name("stored kernels", tests, NULL, NULL);
}
