/* The public header alone, as C11 and, from the same source, as C++17: what a host writes compiles in both and links. */
#include <dlc/eager.h>
#include <dlc/extend.h>
#include <dlc/files.h>
#include <dlc/gradient.h>
#include <dlc/onnx.h>
#include <dlc/train.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" { /* older ones do not say so themselves */
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

static void test_versions_agree(void **state) {
    (void)state;
    char expected[32];
    (void)snprintf(expected, sizeof expected, "%d.%d.%d", DLC_VERSION_MAJOR, DLC_VERSION_MINOR, DLC_VERSION_PATCH);
    assert_string_equal(dlc_version(), expected);
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(dlc_status_text(DLC_OK), "ok");
    assert_string_equal(dlc_dtype_name(DLC_BF16), "bf16");
    assert_non_null(dlc_dtype_name(DLC_DTYPE_COUNT));
}

static void test_options_start_with_their_size(void **state) {
    (void)state;
    dlc_context_options context = DLC_CONTEXT_OPTIONS_INIT;
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    dlc_run_options run = DLC_RUN_OPTIONS_INIT;
    dlc_convolution_options convolution = DLC_CONVOLUTION_OPTIONS_INIT;
    assert_int_equal(context.struct_size, sizeof context);
    assert_int_equal(compile.struct_size, sizeof compile);
    assert_int_equal(run.struct_size, sizeof run);
    assert_int_equal(convolution.struct_size, sizeof convolution);
    assert_null(context.allocator);
    assert_int_equal(offsetof(dlc_context_options, struct_size), 0);
}

static dlc_status give_input(void *user, dlc_callback *callback, int count, dlc_value *results) {
    (void)user;
    (void)count;
    results[0] = dlc_callback_input(callback, 0);
    return DLC_OK;
}

static void test_extensions(void **state) {
    (void)state;
    dlc_context *context = NULL;
    dlc_graph *graph = NULL;
    dlc_operator_options options = DLC_OPERATOR_OPTIONS_INIT;
    dlc_rule_options rule = DLC_RULE_OPTIONS_INIT;
    dlc_pass_options pass = DLC_PASS_OPTIONS_INIT;
    dlc_schedule_options schedule = DLC_SCHEDULE_OPTIONS_INIT;
    assert_int_equal(rule.struct_size + pass.struct_size + schedule.struct_size,
                     sizeof rule + sizeof pass + sizeof schedule);
    options.name = "itself";
    options.operands = "x";
    options.shape = "T[n] -> T[n]";
    options.expand = give_input;
    assert_int_equal(dlc_context_create(NULL, &context), DLC_OK);
    assert_int_equal(dlc_operator_register(context, &options), DLC_OK);
    assert_int_equal(dlc_graph_create(context, &graph), DLC_OK);
    dlc_dim shape[1] = {{0, "n"}};
    dlc_value x = dlc_input(graph, "x", DLC_F32, 1, shape);
    dlc_setting axis = dlc_set_integer("axis", 0);
    assert_true(dlc_value_ok(dlc_apply(graph, "itself", 1, &x, 0, NULL)));
    assert_true(dlc_value_ok(dlc_apply(graph, "softmax", 1, &x, 1, &axis)));
    dlc_graph_destroy(graph);
    dlc_context_destroy(context);
}

static void test_value_is_small(void **state) {
    (void)state;
    assert_int_equal(sizeof(dlc_value), 16);
    assert_false(dlc_value_ok(DLC_NONE));
    assert_int_equal(dlc_value_rank(DLC_NONE), -1);
}

static void test_null_is_accepted_by_destroy(void **state) {
    (void)state;
    dlc_context_destroy(NULL);
    dlc_graph_destroy(NULL);
    dlc_program_destroy(NULL);
}

static void test_a_small_program(void **state) {
    (void)state;
    dlc_context *context = NULL;
    dlc_graph *graph = NULL;
    dlc_program *program = NULL;
    assert_int_equal(dlc_context_create(NULL, &context), DLC_OK);
    assert_int_equal(dlc_graph_create(context, &graph), DLC_OK);
    dlc_dim shape[1] = {{0, "n"}};
    dlc_value x = dlc_input(graph, "x", DLC_F32, 1, shape);
    assert_int_equal(dlc_output(graph, "y", dlc_relu(dlc_add(x, dlc_scalar(graph, DLC_F32, -2)))), DLC_OK);
    assert_int_equal(dlc_compile(context, graph, NULL, &program), DLC_OK);
    dlc_graph_destroy(graph);

    float data[3] = {1, 2, 5};
    int64_t size = 3;
    DLTensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = data;
    tensor.device.device_type = kDLCPU;
    tensor.ndim = 1;
    tensor.dtype.code = kDLFloat;
    tensor.dtype.bits = 32;
    tensor.dtype.lanes = 1;
    tensor.shape = &size;
    const DLTensor *inputs[1] = {&tensor};
    dlc_output_slot output = {NULL, NULL};
    assert_int_equal(dlc_run(program, NULL, inputs, 1, &output, 1), DLC_OK);
    assert_non_null(output.managed);
    const float *y = (const float *)output.managed->dl_tensor.data;
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 3);
    output.managed->deleter(output.managed);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_agree),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_options_start_with_their_size),
        cmocka_unit_test(test_extensions),
        cmocka_unit_test(test_value_is_small),
        cmocka_unit_test(test_null_is_accepted_by_destroy),
        cmocka_unit_test(test_a_small_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
