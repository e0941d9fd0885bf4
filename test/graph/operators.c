/* Operator rows with symbolic dimensions and on wrong uses. With symbols: the stages built from [n, ...] and run with n
 * = 3 give the bits of the graph bound to n = 3 (whose values the conformance test checks). Wrong uses: the message
 * says what was expected. */
#include "graph/rows.h"

/* ---- symbols --------------------------------------------------------------------------------------------------- */

/* graph, shape of its output as text */
static const struct {
    const char *text, *shape;
} symbolic[] = {
    {"graph { input x: f32[n, 64] y = reshape(x, shape=[n, 8, 8]) output y }", "f32[n, 8, 8]"},
    {"graph { input x: f32[n, 64] y = reshape(x, shape=[n*8, 8]) output y }", "f32[n*8, 8]"},
    {"graph { input x: f32[n, 64] y = reshape(x, shape=[-1]) output y }", "f32[n*64]"},
    {"graph { input x: f32[n, 8, m] y = reshape(x, shape=[n, 2, 4, m]) output y }", "f32[n, 2, 4, m]"},
    {"graph { input x: f32[n, m, 6] y = reshape(x, shape=[n*m, 6]) output y }", NULL},
    {"graph { input x: f32[n, m, 6] y = reshape(x, shape=[n, m*2, 3]) output y }", "f32[n, m*2, 3]"},
    {"graph { input x: f32[n, 6] y = reshape(x, shape=[1, n, 1, 3, 2]) output y }", "f32[1, n, 1, 3, 2]"},
    {"graph { input x: f32[n, m] y = transpose(x, permutation=[1, 0]) output y }", "f32[m, n]"},
    {"graph { input x: f32[n] y = broadcast(x, shape=[m, n, 2], axes=[1]) output y }", "f32[m, n, 2]"},
    {"graph { input x: f32[n, m] y = reverse(x, axes=[0, 1]) output y }", "f32[n, m]"},
    {"graph { input x: f32[n + 2, 5] y = slice(x, start=[1, 0], stop=[-1, 5], step=[1, 2]) output y }", "f32[n, 3]"},
    {"graph { input x: f32[16, m] y = slice(x, start=[n, 0], stop=[n + 4, m]) output y }", "f32[4, m]"},
    {"graph { input x: f32[n, m] y = slice(x, start=[-1, 0], stop=[n, m]) output y }", "f32[1, m]"},
    {"graph { input x: f32[n, m] v = constant f32[] {7} y = pad(x, v, low=[1, 0], high=[0, 2]) output y }",
     "f32[n + 1, m + 2]"},
    {"graph { input x: f32[n] v = constant f32[] {7} y = pad(x, v, low=[-1], high=[3], interior=[2]) output y }", NULL},
    {"graph { input x: f32[n, 3] input z: f32[m, 3] y = concat(x, z, x, axis=0) output y }", "f32[n*2 + m, 3]"},
    {"graph { y = iota(dtype=i32, shape=[n, m], axis=0) output y }", "i32[n, m]"},
    {"graph { input x: f32[n, m] input i: i32[5] y = gather(x, i, axis=0) output y }", "f32[5, m]"},
    {"graph { input x: f32[n, m] input i: i32[5] input u: f32[5, m] y = scatter(x, i, u, axis=0, combine=add) "
     "output y }",
     "f32[n, m]"},
    {"graph { input x: f32[n, m] input i: i32[5, m] y = gather_elements(x, i, axis=0) output y }", "f32[5, m]"},
    {"graph { input x: f32[n + 1, m, 3] input i: i32[m, n, 2] y = gather_nd(x, i) output y }", "f32[m, n, 3]"},
    {"graph { input x: f32[n, m, 3] input i: i32[n, 4, 1] y = gather_nd(x, i, batch=1) output y }", "f32[n, 4, 3]"},
    {"graph { input x: f32[n + 2, m] input i: i32[n, m] input u: f32[n, m] "
     "y = scatter_elements(x, i, u, axis=1, combine=add) output y }",
     "f32[n + 2, m]"},
    {"graph { input x: f32[n, m] input i: i32[m, 1] input u: f32[m, m] y = scatter_nd(x, i, u, combine=max) output y }",
     "f32[n, m]"},
    {"graph { input x: f32[n, m] input i: i32[1] y = dynamic_slice(x, i, size=[1], axes=[0]) output y }", "f32[1, m]"},
    {"graph { input x: f32[n, m] input u: f32[1, m] input i: i32[] y = dynamic_update_slice(x, u, i, axes=[0]) "
     "output y }",
     "f32[n, m]"},
    {"graph { input x: f32[n, m] y = reduce_sum(x, axes=[1]) output y }", "f32[n]"},
    {"graph { input x: bf16[n, m] y = reduce_max(x, keep=true) output y }", "bf16[1, 1]"},
    {"graph { input x: f32[n, m] y = arg_max(x, axis=0) output y }", "i64[m]"},
    {"graph { input x: f32[n, m] y = cumulative_sum(x, axis=1, exclusive=true, reverse=true) output y }", "f32[n, m]"},
    {"graph { input x: f32[n, m] z = exp(x) y = add(x, z) output y }", "f32[n, m]"},
};

/* Inputs hold 0, 1, 2, ... */
static uint64_t *evaluate(lib_arena *arena, const graph *g, const int64_t *sizes, int64_t *count) {
    double *numbers = LIB_NEW_ARRAY(arena, double, 4096);
    for (int i = 0; i < 4096; i++) numbers[i] = i;
    const double **inputs = LIB_NEW_ARRAY(arena, const double *, g->inputs.count + 1);
    for (uint32_t i = 0; i < g->inputs.count; i++) inputs[i] = numbers;
    dlc_dtype dtype;
    return rows_evaluate(arena, g, sizes, inputs, count, &dtype);
}

static void compare_bound(lib_arena *arena, const char *graph_text, const char *shape, const int64_t *sizes) {
    graph *g = rows_parse(arena, graph_text);
    lib_text text;
    lib_text_init(&text, arena);
    graph_print_shape(&text, g, graph_shape_of(g, g->outputs.data[0]));
    if (shape) assert_string_equal(text.data, shape);
    int64_t of_symbols, of_numbers;
    uint64_t *free = evaluate(arena, g, sizes, &of_symbols);
    uint64_t *bound = evaluate(arena, graph_bind(arena, g, sizes), sizes, &of_numbers);
    assert_int_equal(of_symbols, of_numbers);
    if (of_numbers) assert_memory_equal(free, bound, (size_t)of_numbers * sizeof *bound);
}

static void run_symbolic(const char *graph_text, const char *shape, const int64_t *sizes) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) compare_bound(&arena, graph_text, shape, sizes);
    lib_arena_free(&arena);
    if (scope.error.status != DLC_OK) fail_msg("%s: %s", graph_text, scope.error.message);
}

static void test_symbolic(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {7, 2}, {12, 4}};
    for (size_t t = 0; t < sizeof symbolic / sizeof *symbolic; t++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            run_symbolic(symbolic[t].text, symbolic[t].shape, sizes[k]);
}

/* ---- wrong uses ------------------------------------------------------------------------------------------------ */

/* sample, part of the message */
static const rows_wrong wrong[] = {
    {"add(f32[2], f64[2])", "one dtype"},
    {"add(f32[2], f32[3])", "dimension 0"},
    {"add(bool[2], bool[2])", "expected one of these element types"},
    {"exp(i32[2])", "expected one of these element types"},
    {"select(i32[2], f32[2], f32[2])", "expected bool"},
    {"select(bool[2], f32[2], i32[2])", "one dtype"},
    {"iota(dtype=c64, shape=[2], axis=0)", "no values of c64"},
    {"reshape(f32[2, 3], shape=[7])", "numbers of elements"},
    {"reshape(f32[2, 3], shape=[-1, -1])", "only one dimension"},
    {"reshape(f32[2, 3], shape=[-1, 4])", "numbers of elements"},
    {"reshape(f32[2, 0], shape=[-1, 0])", "no definite size"},
    {"reshape(f32[2, 3], shape=[-2, -3])", "is -2"},
    {"transpose(f32[2, 3], permutation=[0])", "1 entries, expected 2"},
    {"transpose(f32[2, 3], permutation=[0, 0])", "given twice"},
    {"transpose(f32[2, 3], permutation=[0, 2])", "out of range"},
    {"broadcast(f32[2], shape=[3, 4], axes=[0])", "must be equal"},
    {"broadcast(f32[2], shape=[3, 2], axes=[])", "one for each"},
    {"broadcast(f32[2], shape=[3, 2], axes=[2])", "out of range"},
    {"reverse(f32[2], axes=[1])", "out of range"},
    {"slice(f32[5], start=[0], stop=[6])", "after the operand's last element"},
    {"slice(f32[5], start=[3], stop=[2])", "start lies after stop"},
    {"slice(f32[5], start=[-6], stop=[2])", "before the operand's first"},
    {"slice(f32[5], start=[0], stop=[5], step=[0])", "at least 1"},
    {"slice(f32[5, 2], start=[0], stop=[5])", "one for each of the 2"},
    {"slice(f32[5], start=[0], stop=[5], step=[1, 1])", "step has 2 entries"},
    {"pad(f32[5], f32[1], low=[0], high=[0])", "rank 1, expected 0"},
    {"pad(f32[5], i32[], low=[0], high=[0])", "one dtype"},
    {"pad(f32[5], f32[], low=[-3], high=[-3])", "removes more than there is"},
    {"pad(f32[5], f32[], low=[0], high=[0], interior=[-1])", "interior padding -1"},
    {"pad(f32[5], f32[], low=[9223372036854775807], high=[0])", "too large"},
    {"concat(f32[2], i32[2], axis=0)", "one dtype"},
    {"concat(f32[2, 3], f32[2, 4], axis=0)", "beside the axis"},
    {"concat(f32[2, 3], f32[2], axis=0)", "expected 2"},
    {"concat(f32[], f32[], axis=0)", "rank 0"},
    {"iota(dtype=bool, shape=[2], axis=0)", "numbers to count with"},
    {"iota(dtype=i32, shape=[], axis=0)", "out of range"},
    {"gather(f32[2], f32[2], axis=0)", "integer dtype"},
    {"gather(f32[0], i32[2], axis=0)", "axis of size 0"},
    {"gather(f32[2], i32[2], axis=1)", "out of range"},
    {"gather_elements(f32[2, 3], i32[2], axis=0)", "expected 2"},
    {"gather_elements(f32[2, 3], i32[2, 4], axis=0)", "larger than x along a dimension beside axis"},
    {"gather_elements(f32[0, 3], i32[2, 3], axis=0)", "axis of size 0"},
    {"gather_elements(f32[2, 3], f32[2, 3], axis=0)", "integer dtype"},
    {"gather_nd(f32[2, 3], i32[])", "rank 0, expected at least 1"},
    {"gather_nd(f32[2, 3], i32[4, 3])", "is 3, expected 1 to 2"},
    {"gather_nd(f32[2, 3], i32[2, 2], batch=1)", "is 2, expected 1 to 1"},
    {"gather_nd(f32[2, 3], i32[3, 1], batch=1)", "batch dimensions"},
    {"gather_nd(f32[2, 3], i32[3, 1], batch=2)", "batch is 2"},
    {"gather_nd(f32[0, 3], i32[3, 1])", "axis of size 0"},
    {"scatter_elements(f32[4, 2], i32[3, 2], f32[4, 2], axis=0)", "dimensions of indices and of updates"},
    {"scatter_elements(f32[4, 2], i32[3, 3], f32[3, 3], axis=0)", "larger than x"},
    {"scatter_elements(f32[4], i32[2], f64[2], axis=0)", "expected f32"},
    {"scatter_nd(f32[4, 2], i32[3, 1], f32[3, 3])", "behind the addressed axes"},
    {"scatter_nd(f32[4, 2], i32[3, 3], f32[3])", "a number of 1 to 2"},
    {"scatter_nd(bool[4], i32[3, 1], bool[3], combine=mul)", "only be set"},
    {"scatter(f32[4], i32[2], f32[3], axis=0)", "must be equal"},
    {"scatter(f32[4], i32[2], f64[2], axis=0)", "expected f32"},
    {"scatter(bool[4], i32[2], bool[2], axis=0, combine=add)", "only be set"},
    {"dynamic_slice(f32[4], i32[1], size=[5])", "larger than the operand's"},
    {"dynamic_slice(f32[4, 4], i32[1], size=[1, 1])", "size of start"},
    {"dynamic_slice(f32[4, 4], i32[], size=[1, 1])", "one number for each axis"},
    {"dynamic_slice(f32[4], i32[1], size=[1, 1])", "size has 2 entries"},
    {"dynamic_slice(f32[4], f32[1], size=[1])", "integer dtype"},
    {"dynamic_update_slice(f32[4], f32[5], i32[1])", "larger than x"},
    {"dynamic_update_slice(f32[4, 2], f32[4, 1], i32[], axes=[0])", "beside the axes"},
    {"dynamic_update_slice(f32[4], i32[1], i32[1])", "expected f32"},
    {"reduce_sum(f32[2, 3], axes=[2])", "out of range"},
    {"reduce_sum(f32[2, 3], axes=[1, -1])", "given twice"},
    {"reduce_and(f32[2])", "expected one of these element types"},
    {"arg_max(f32[2, 0], axis=1)", "no element to choose"},
    {"arg_max(f32[2], axis=0, dtype=f32)", "expected i32 or i64"},
    {"cumulative_sum(f32[], axis=0)", "out of range"},
    {"cumulative_max(bool[3], axis=0)", "expected one of these element types"},
    {"bit_cast(f32[2], dtype=i64)", "as many bits"},
    {"bit_cast(u8[2], dtype=bool)", "neither of them bool"},
    {"popcount(f32[2])", "expected one of these element types"},
    {"add(f32[2], f32[2, 1])", "ranks 1 and 2"},
    {"gather(f32[1, 1, 1, 1, 1, 1, 1], i32[1, 1, 1, 1, 1, 1, 1], axis=0)", "too high together"},
    {"pad(f32[5, 2], f32[], low=[0], high=[0, 0])", "low and high have 1 and 2 entries"},
    {"dimension(size=[1, 2], dtype=i64)", "size has 2 dimensions, expected 1"},
    {"rng_bits(shape=[2], stream=0, part=-1)", "part -1"},
};

static void test_wrong_uses(void **state) {
    (void)state;
    rows_check_refusals(wrong, sizeof wrong / sizeof *wrong);
}

/* ---- gradients: none where no number can lead to a number, and where a number only takes steps or lends its bits */

static bool is_real(const graph *g, graph_id value) {
    dlc_dtype dtype = graph_shape_of(g, value)->dtype;
    return lib_dtype_is_float(dtype) || dtype == DLC_C64;
}

/* Does the sample's line have a number among its operands, and one among its results? */
static bool leads_to_numbers(const graph_op *op, const char *line, size_t length, dlc_dtype t) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    volatile bool from = false, to = false;
    if (LIB_ENTER(&scope)) {
        bool varies;
        graph *g = graph_new(&arena, NULL);
        sample *s = LIB_NEW(&arena, sample);
        sample_parse(s, g, op, sample_line(&arena, line, length, t, &varies));
        graph_id input[SAMPLE_OPERANDS] = {0};
        for (int i = 0; i < s->operands; i++) {
            graph_shape shape = {.dtype = s->operand[i].dtype, .rank = s->operand[i].rank};
            for (int d = 0; d < shape.rank; d++) shape.dim[d] = tir_index(g->pool, s->operand[i].dim[d]);
            if (!s->operand[i].left_out) input[i] = graph_new_input(g, "x", &shape);
            if (input[i] && is_real(g, input[i])) from = true;
        }
        graph_id first = graph_emit(g, op, s->operands, input, s->attribute);
        for (int i = 0; i < graph_node_of(g, first)->results; i++)
            if (is_real(g, first + (graph_id)i)) to = true;
    }
    lib_arena_free(&arena);
    return from && to; /* a sample may be refused for an element type: not of this test */
}

static void test_gradients(void **state) {
    static const char *const steps[] = {"next_after", "bit_cast", "quantize_linear", "hardmax", "stop_gradient"};
    (void)state;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            const graph_op *op = *row;
            bool none = op->flat, leads = false, step = false;
            for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) step |= strcmp(op->name, steps[i]) == 0;
            for (int t = 0; t < DLC_DTYPE_COUNT; t++)
                for (const char *line = op->samples; line && graph_op_accepts(op, (dlc_dtype)t);) {
                    size_t length = strcspn(line, "\n");
                    if (length) leads |= leads_to_numbers(op, line, length, (dlc_dtype)t);
                    line = line[length] ? line + length + 1 : NULL;
                }
            if (op->samples && none != (!leads || step))
                fail_msg("%s: its gradients are %s", op->name, none ? "none" : "not none");
        }
}

/* ---- other names ----------------------------------------------------------------------------------------------- */

static void test_aliases(void **state) {
    static const struct {
        const char *name, *row;
    } names[] = {{"sigmoid", "logistic"},
                 {"Sigmoid", "logistic"},
                 {"HardSwish", "hard_swish"},
                 {"MatMul", "matmul"},
                 {"LayerNormalization", "layer_norm"},
                 {"ReduceSum", "reduce_sum"},
                 {"cumsum", "cumulative_sum"},
                 {"argmax", "arg_max"},
                 {"arctan2", "atan2"},
                 {"Where", "select"},
                 {"clip", "clamp"},
                 {"logistic", "logistic"}};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const graph_op *op = graph_op_find_alias(names[i].name);
        if (!op || strcmp(op->name, names[i].row) != 0)
            fail_msg("%s finds %s, expected %s", names[i].name, op ? op->name : "nothing", names[i].row);
    }
    assert_null(graph_op_find_alias("sigmoi"));
    assert_null(graph_op_find_alias("_"));
    lib_scope scope;
    lib_arena arena;
    lib_text text;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) { /* the text form reads them, and prints the row's own name */
        graph *g = rows_parse(&arena, "graph { input x: f32[3] y = Sigmoid(x) output y }");
        lib_text_init(&text, &arena);
        graph_print(&text, g);
        assert_non_null(strstr(text.data, "y = logistic(x)"));
    }
    assert_int_equal(scope.error.status, DLC_OK);
    if (LIB_ENTER(&scope)) rows_parse(&arena, "graph { input x: f32[3] y = sigmod(x) output y }");
    assert_int_not_equal(scope.error.status, DLC_OK);
    assert_non_null(strstr(scope.error.message, "sigmoid"));
    lib_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_symbolic), cmocka_unit_test(test_wrong_uses),
                                       cmocka_unit_test(test_gradients), cmocka_unit_test(test_aliases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
