/* The public builder: emission, hash-consing, folding, broadcasting, errors of every kind, stale and foreign values,
 * sub-graphs with captures, and running out of memory at every single allocation. */
#include "context.h"

static dlc_value input2(dlc_graph *g, const char *name, dlc_dtype dtype, int64_t a, int64_t b) {
    return dlc_input(g, name, dtype, 2, (dlc_dim[]){{a, NULL}, {b, NULL}});
}

static void assert_message(const char *message, const char *part) {
    if (!strstr(message, part)) fail_msg("message \"%s\" does not contain \"%s\"", message, part);
}

/* ---- values */

static void test_values(void **state) {
    (void)state;
    dlc_context context;
    dlc_graph *g;
    context_open(&context);
    assert_int_equal(dlc_graph_create(&context, &g), DLC_OK);
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {64, NULL}});
    dlc_value b = dlc_input(g, "b", DLC_F32, 1, (dlc_dim[]){{64, NULL}});
    dlc_value y = dlc_add(x, b);
    assert_true(dlc_value_ok(y));
    assert_int_equal(dlc_value_dtype(y), DLC_F32);
    assert_int_equal(dlc_value_rank(y), 2);
    assert_string_equal(dlc_value_dim(y, 0).name, "n");
    assert_int_equal(dlc_value_dim(y, 0).value, -1);
    assert_int_equal(dlc_value_dim(y, 1).value, 64);
    assert_null(dlc_value_dim(y, -1).name);
    assert_int_equal(dlc_value_dim(y, 2).value, -1);
    assert_int_equal(dlc_add(x, b).id, y.id); /* hash-consed */
    assert_int_not_equal(dlc_sub(x, b).id, y.id);
    dlc_value twice = dlc_concat(2, (dlc_value[]){y, y}, 0);
    dlc_dim rows = dlc_value_dim(twice, 0);
    assert_non_null(rows.name);
    /* an expression of symbols goes back in as it came out */
    dlc_value flat = dlc_reshape(twice, 3, (dlc_dim[]){rows, {8, NULL}, {8, NULL}});
    assert_true(dlc_value_ok(flat));
    assert_int_equal(dlc_output(g, "y", flat), DLC_OK);
    assert_int_equal(dlc_graph_status(g), DLC_OK);
    dlc_graph_destroy(g);
    context_close(&context);
}

/* Equal bytes are kept once, also of large constants that are borrowed; bytes that differ between equal ends are not equal. */
static void test_equal_constants(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    static float bytes[3][COUNT];
    dlc_context context;
    dlc_graph *g;
    dlc_value value[3], copy;
    context_open(&context);
    assert_int_equal(dlc_graph_create(&context, &g), DLC_OK);
    for (int i = 0; i < COUNT; i++) bytes[0][i] = bytes[1][i] = bytes[2][i] = (float)i;
    bytes[2][COUNT / 2] = 0;
    for (int i = 0; i < 3; i++) value[i] = dlc_constant_borrow(g, DLC_F32, 1, (int64_t[]){COUNT}, bytes[i]);
    copy = dlc_constant(g, DLC_F32, 1, (int64_t[]){COUNT}, bytes[2]);
    assert_int_equal(value[0].id, value[1].id);
    assert_int_not_equal(value[0].id, value[2].id);
    assert_int_equal(dlc_constant(g, DLC_F32, 1, (int64_t[]){COUNT}, bytes[2]).id, copy.id);
    assert_int_not_equal(dlc_constant_borrow(g, DLC_F32, 1, (int64_t[]){COUNT - 1}, bytes[1]).id, value[0].id);
    dlc_graph_destroy(g);
    context_close(&context);
}

static void test_fold(void **state) {
    (void)state;
    dlc_context context;
    dlc_graph *g;
    context_open(&context);
    assert_int_equal(dlc_graph_create(&context, &g), DLC_OK);
    dlc_value a = dlc_constant(g, DLC_F32, 1, (int64_t[]){3}, (float[]){1, 2, 3});
    dlc_value b = dlc_scalar(g, DLC_F32, 0.5);
    dlc_value sum = dlc_add(a, dlc_constant(g, DLC_F32, 1, (int64_t[]){3}, (float[]){10, 20, 30}));
    const graph_constant *constant = graph_constant_of(graph_of_handle(g), sum.id);
    assert_non_null(constant);
    assert_memory_equal(constant->bytes, ((float[]){11, 22, 33}), 12);
    dlc_value same = dlc_constant(g, DLC_F32, 1, (int64_t[]){3}, (float[]){11, 22, 33});
    assert_int_equal(same.id, sum.id);
    dlc_value most = dlc_reduce_max(a, 0, NULL);
    constant = graph_constant_of(graph_of_handle(g), most.id);
    assert_non_null(constant);
    assert_memory_equal(constant->bytes, ((float[]){3}), 4);
    /* machines and programs differ: order of sums, a library, products and sums of one rounding */
    float numbers[64];
    for (int i = 0; i < 64; i++) numbers[i] = (float)i / 7;
    dlc_value several = dlc_constant(g, DLC_F32, 1, (int64_t[]){64}, numbers);
    const dlc_value open[] = {dlc_reduce_sum(a, 0, NULL), dlc_exp(dlc_scalar(g, DLC_F64, 0.3)), dlc_tanh(several)};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        assert_null(graph_constant_of(graph_of_handle(g), open[i].id));
    constant = graph_constant_of(graph_of_handle(g), dlc_neg(dlc_scalar_i64(g, DLC_I8, -128)).id);
    assert_non_null(constant);
    assert_int_equal(*(const int8_t *)constant->bytes, -128);
    constant = graph_constant_of(graph_of_handle(g),
                                 dlc_rsqrt(dlc_scalar(g, DLC_F8E5M2, 2)).id); /* rounded once, in kernels too */
    assert_non_null(constant);
    assert_true(lib_element_get_f64(DLC_F8E5M2, constant->bytes) == 0.75);
    /* a broadcast would only make it larger */
    assert_null(graph_constant_of(graph_of_handle(g), dlc_broadcast(b, 1, (dlc_dim[]){{100, NULL}}, 0, NULL).id));
    /* too much work: stays */
    static float many[5000];
    dlc_value large = dlc_constant(g, DLC_F32, 1, (int64_t[]){5000}, many);
    assert_null(graph_constant_of(graph_of_handle(g), dlc_neg(large).id));
    dlc_value borrowed = dlc_constant_borrow(g, DLC_F32, 1, (int64_t[]){5000}, many);
    assert_ptr_equal(graph_constant_of(graph_of_handle(g), large.id)->bytes != (const void *)many, 1);
    assert_true(dlc_value_ok(borrowed));
    assert_int_equal(dlc_graph_status(g), DLC_OK);
    dlc_graph_destroy(g);
    context_close(&context);
}

/* ---- errors: a builder, what the message must hold */

typedef dlc_value (*mistake)(dlc_graph *g);

static dlc_value wrong_shapes(dlc_graph *g) {
    return dlc_add(input2(g, "x", DLC_F32, 2, 3), input2(g, "y", DLC_F32, 2, 4));
}
static dlc_value wrong_ranks(dlc_graph *g) {
    return dlc_select(input2(g, "c", DLC_F32, 2, 3), input2(g, "x", DLC_F32, 2, 3), input2(g, "y", DLC_F32, 2, 3));
}
static dlc_value wrong_dtypes(dlc_graph *g) {
    return dlc_mul(input2(g, "x", DLC_F32, 2, 3), input2(g, "y", DLC_I32, 2, 3));
}
static dlc_value not_a_float(dlc_graph *g) {
    return dlc_exp(input2(g, "x", DLC_I32, 2, 3));
}
static dlc_value no_dtype(dlc_graph *g) {
    return dlc_input(g, "x", (dlc_dtype)99, 0, NULL);
}
static dlc_value absurd_rank(dlc_graph *g) {
    dlc_dim dims[40] = {{0, NULL}};
    return dlc_input(g, "x", DLC_F32, 40, dims);
}
static dlc_value negative_dim(dlc_graph *g) {
    return dlc_input(g, "x", DLC_F32, 1, (dlc_dim[]){{-3, NULL}});
}
static dlc_value too_large(dlc_graph *g) {
    return dlc_input(g, "x", DLC_F32, 3, (dlc_dim[]){{INT64_C(1) << 40, NULL}, {INT64_C(1) << 40, NULL}, {7, NULL}});
}
static dlc_value bad_symbol(dlc_graph *g) {
    return dlc_input(g, "x", DLC_F32, 1, (dlc_dim[]){{0, "a b"}});
}
static dlc_value twice_input(dlc_graph *g) {
    input2(g, "x", DLC_F32, 1, 1);
    return input2(g, "x", DLC_F32, 1, 1);
}
static dlc_value bad_axis(dlc_graph *g) {
    return dlc_reduce_sum(input2(g, "x", DLC_F32, 2, 3), 1, (int64_t[]){2});
}
static dlc_value double_axis(dlc_graph *g) {
    return dlc_reduce_sum(input2(g, "x", DLC_F32, 2, 3), 2, (int64_t[]){1, -1});
}
static dlc_value left_out(dlc_graph *g) {
    return dlc_add(input2(g, "x", DLC_F32, 2, 3), DLC_NONE);
}
static dlc_value null_bytes(dlc_graph *g) {
    return dlc_constant(g, DLC_F32, 1, (int64_t[]){3}, NULL);
}
static dlc_value null_shape(dlc_graph *g) {
    return dlc_constant(g, DLC_F32, 1, NULL, "0123456789");
}
static dlc_value bad_reshape(dlc_graph *g) {
    return dlc_reshape(input2(g, "x", DLC_F32, 2, 3), 1, (dlc_dim[]){{7, NULL}});
}
static dlc_value output_twice(dlc_graph *g) {
    dlc_value x = input2(g, "x", DLC_F32, 2, 3);
    dlc_output(g, "y", x);
    dlc_output(g, "y", x);
    return DLC_NONE;
}
static dlc_value bad_range(dlc_graph *g) {
    dlc_symbol_varies(g, "n", 5, 2, 1);
    return DLC_NONE;
}
static dlc_value range_of_expression(dlc_graph *g) {
    dlc_symbol_varies(g, "n*2", 0, 8, 1);
    return DLC_NONE;
}
static dlc_value range_of_nothing(dlc_graph *g) {
    dlc_symbol_varies(g, NULL, 0, 8, 1);
    return DLC_NONE;
}
static dlc_value null_string(dlc_graph *g) {
    dlc_value y;
    dlc_custom_call(g, 0, NULL, NULL, 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){0}, 0, NULL, 1, &y);
    return y;
}
static dlc_value many_dims(dlc_graph *g) {
    dlc_dim dims[40] = {{0, NULL}};
    return dlc_reshape(input2(g, "x", DLC_F32, 2, 3), 40, dims);
}
static dlc_value null_operands(dlc_graph *g) {
    dlc_value x = input2(g, "x", DLC_F32, 2, 3), y;
    dlc_if(x, 2, NULL, dlc_subgraph(g), dlc_subgraph(g), 1, &y);
    return y;
}
static dlc_value room_for_one(dlc_graph *g) {
    dlc_value sorted = DLC_NONE;
    dlc_sort(input2(g, "x", DLC_F32, 2, 3), 0, 1, &sorted);
    return sorted;
}
static dlc_value no_room(dlc_graph *g) {
    dlc_value x = input2(g, "x", DLC_F32, 2, 3);
    dlc_custom_call(g, 1, &x, "f", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){0}, 0, NULL, 0, NULL);
    return DLC_NONE;
}
static dlc_value constant_of_rank_40(dlc_graph *g) {
    int64_t shape[40] = {0};
    return dlc_constant(g, DLC_F32, 40, shape, "");
}
static dlc_value constant_of_no_dtype(dlc_graph *g) {
    return dlc_constant(g, (dlc_dtype)DLC_DTYPE_COUNT, 0, NULL, "0123");
}
static dlc_value constant_of_negative(dlc_graph *g) {
    return dlc_constant(g, DLC_F32, 1, (int64_t[]){-2}, "0123");
}
static dlc_value nameless_function(dlc_graph *g) {
    dlc_custom_register(g, "", NULL, NULL);
    return DLC_NONE;
}

static const struct {
    mistake make;
    dlc_status status;
    const char *part[3];
} mistakes[] = {
    {wrong_shapes, DLC_INVALID_ARGUMENT, {"add(x: f32[2, 3], y: f32[2, 4])", "dimension 1", "3 and 4"}},
    {wrong_ranks, DLC_INVALID_ARGUMENT, {"select", "expected bool", "f32"}},
    {wrong_dtypes, DLC_INVALID_ARGUMENT, {"mul(x: f32[2, 3], y: i32[2, 3])", "f32 and i32", "cast"}},
    {not_a_float, DLC_INVALID_ARGUMENT, {"exp", "i32[2, 3]", "float"}},
    {no_dtype, DLC_INVALID_ARGUMENT, {"99", "not an element type", ""}},
    {absurd_rank, DLC_INVALID_ARGUMENT, {"rank is 40", "0 to 12", ""}},
    {negative_dim, DLC_INVALID_ARGUMENT, {"dimension 0 is -3", "", ""}},
    {too_large, DLC_INVALID_ARGUMENT, {"larger than 2^60", "", ""}},
    {bad_symbol, DLC_PARSE_ERROR, {"symbol", "", ""}},
    {twice_input, DLC_INVALID_ARGUMENT, {"input x", "already", ""}},
    {bad_axis, DLC_INVALID_ARGUMENT, {"reduce_sum(x: f32[2, 3])", "2 is out of range", "-2 to 1"}},
    {double_axis, DLC_INVALID_ARGUMENT, {"reduce_sum", "given twice", ""}},
    {left_out, DLC_INVALID_ARGUMENT, {"add", "is required", ""}},
    {null_bytes, DLC_INVALID_ARGUMENT, {"bytes is NULL", "12 bytes", ""}},
    {null_shape, DLC_INVALID_ARGUMENT, {"shape is NULL", "", ""}},
    {bad_reshape, DLC_INVALID_ARGUMENT, {"reshape(x: f32[2, 3])", "", ""}},
    {output_twice, DLC_INVALID_ARGUMENT, {"output y", "name already", ""}},
    {bad_range, DLC_INVALID_ARGUMENT, {"symbol n", "5..2", "0 <= low <= high"}},
    {range_of_expression, DLC_INVALID_ARGUMENT, {"symbol n*2", "expected one name", ""}},
    {range_of_nothing, DLC_INVALID_ARGUMENT, {"dlc_symbol_varies", "NULL", ""}},
    {null_string, DLC_INVALID_ARGUMENT, {"custom_call", "`target` is required", ""}},
    {many_dims, DLC_INVALID_ARGUMENT, {"reshape: shape", "40 dimensions", "0 to 12"}},
    {null_operands, DLC_INVALID_ARGUMENT, {"if: 2 operands at NULL", "", ""}},
    {no_room, DLC_INVALID_ARGUMENT, {"custom_call", "room for 0 results", "expected 1"}},
    {room_for_one, DLC_INVALID_ARGUMENT, {"sort", "room for 1 results", "expected 2"}},
    {constant_of_rank_40, DLC_INVALID_ARGUMENT, {"constant: rank", "40", "0 to 12"}},
    {constant_of_no_dtype, DLC_INVALID_ARGUMENT, {"constant", "none", "not supported"}},
    {constant_of_negative, DLC_INVALID_ARGUMENT, {"constant", "dimension 0 is -2", ""}},
    {nameless_function, DLC_INVALID_ARGUMENT, {"host function needs a name", "", ""}},
};

static void test_mistakes(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        dlc_context context;
        dlc_graph *g;
        context_open(&context);
        assert_int_equal(dlc_graph_create(&context, &g), DLC_OK);
        dlc_value poison = mistakes[i].make(g);
        assert_false(dlc_value_ok(poison));
        assert_int_equal(dlc_value_rank(poison), -1);
        for (int k = 0; k < 3; k++) assert_message(dlc_graph_message(g), mistakes[i].part[k]);
        assert_int_equal(dlc_graph_status(g), mistakes[i].status);
        /* poison flows on; the first message stays; the graph goes on working */
        assert_false(dlc_value_ok(dlc_neg(dlc_add(poison, poison))));
        assert_message(dlc_graph_message(g), mistakes[i].part[0]);
        assert_true(dlc_value_ok(input2(g, "later", DLC_F32, 1, 2)));
        assert_int_equal(dlc_output(g, "z", poison), mistakes[i].status);
        assert_message(context.last.message, mistakes[i].part[0]);
        assert_message(dlc_graph_message(g), mistakes[i].part[0]);
        dlc_graph_destroy(g);
        context_close(&context);
    }
}

static void test_foreign_and_stale(void **state) {
    (void)state;
    dlc_context context;
    dlc_graph *a, *b;
    context_open(&context);
    assert_int_equal(dlc_graph_create(&context, &a), DLC_OK);
    assert_int_equal(dlc_graph_create(&context, &b), DLC_OK);
    dlc_value x = input2(a, "x", DLC_F32, 2, 3), y = input2(b, "y", DLC_F32, 2, 3);
    assert_false(dlc_value_ok(dlc_add(x, y)));
    assert_message(dlc_graph_message(a), "another graph");
    dlc_graph_destroy(b);
    assert_false(dlc_value_ok(y));
    dlc_graph *again;
    assert_int_equal(dlc_graph_create(&context, &again), DLC_OK);
    assert_ptr_equal(again, b); /* the handle is used again: the serial tells */
    dlc_value z = input2(again, "z", DLC_F32, 2, 3);
    assert_int_equal(z.id, y.id);
    assert_true(dlc_value_ok(z));
    assert_false(dlc_value_ok(y));
    assert_false(dlc_value_ok(dlc_add(z, y)));
    assert_message(dlc_graph_message(again), "destroyed");
    assert_false(dlc_value_ok(dlc_neg(y)));
    assert_message(error_without_context.message, "no argument belongs to a living graph");
    assert_false(dlc_value_ok(dlc_neg(DLC_NONE)));
    assert_false(dlc_value_ok(dlc_input(NULL, "x", DLC_F32, 0, NULL)));
    assert_message(error_without_context.message, "dlc_input");
    assert_int_equal(dlc_graph_create(NULL, &b), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_output(NULL, "x", z), DLC_INVALID_ARGUMENT);
    assert_int_not_equal(dlc_graph_status(NULL), DLC_OK);
    assert_null(dlc_subgraph(NULL));
    dlc_graph_destroy(NULL);
    context_close(&context); /* destroys what is left */
}

static void test_options(void **state) {
    (void)state;
    dlc_context context;
    dlc_graph *g;
    context_open(&context);
    assert_int_equal(dlc_graph_create(&context, &g), DLC_OK);
    dlc_value x = input2(g, "x", DLC_F32, 2, 3), w = input2(g, "w", DLC_F32, 3, 4);
    dlc_dot_general_options options = DLC_DOT_GENERAL_OPTIONS_INIT;
    int64_t one = 1, zero = 0;
    dlc_value with = dlc_dot_general_with(x, w, 1, &one, 1, &zero, &options);
    assert_true(dlc_value_ok(with));
    assert_int_equal(with.id, dlc_dot_general(x, w, 1, &one, 1, &zero).id);
    options.struct_size = 0;
    assert_false(dlc_value_ok(dlc_dot_general_with(x, w, 1, &one, 1, &zero, &options)));
    assert_message(dlc_graph_message(g), "_INIT");
    context_close(&context);
}

/* ---- out of memory: every allocation of this build refused once */

static dlc_status build_something(dlc_context *context, dlc_graph **out) {
    *out = NULL;
    dlc_status status = dlc_graph_create(context, out);
    if (status != DLC_OK) return status;
    dlc_graph *g = *out;
    static float weights[64 * 10];
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {64, NULL}});
    dlc_value w = dlc_constant(g, DLC_F32, 2, (int64_t[]){64, 10}, weights);
    int64_t one = 1, zero = 0;
    dlc_value y = dlc_dot_general(x, w, 1, &one, 1, &zero);
    y = dlc_max(dlc_add(y, dlc_scalar(g, DLC_F32, 1)), dlc_neg(dlc_scalar(g, DLC_F32, 2)));
    dlc_output(
        g, "y",
        dlc_reduce_sum_with(y, 1, &one, &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true}));
    char *text = NULL;
    status = dlc_graph_print(g, &text);
    dlc_text_free(context, text);
    return dlc_graph_status(g) != DLC_OK ? dlc_graph_status(g) : status;
}

static void test_out_of_memory(void **state) {
    (void)state;
    int failures = 0;
    for (int64_t limit = 0;; limit++) {
        dlc_context context;
        dlc_graph *g;
        context_open(&context);
        context.allocations_left = limit;
        dlc_status status = build_something(&context, &g);
        if (status != DLC_OK) {
            assert_int_equal(status, DLC_OUT_OF_MEMORY);
            failures++;
            if (g) { /* usable afterwards */
                context.allocations_left = -1;
                assert_true(dlc_value_ok(input2(g, "later", DLC_F32, 1, 2)));
            }
        }
        dlc_graph_destroy(g);
        context_close(&context);
        if (status == DLC_OK) break;
    }
    assert_true(failures > 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_equal_constants),   cmocka_unit_test(test_fold),
        cmocka_unit_test(test_mistakes),      cmocka_unit_test(test_foreign_and_stale), cmocka_unit_test(test_options),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("graph/build", tests, NULL, NULL);
}
