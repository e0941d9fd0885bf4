/* The digits example's network against scores computed by ONNX Runtime, on every target of the build; and that the
 * accuracy it reports depends on the weights. */
#include "../../examples/digits/network.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER "examples/data"

static digits *data;
static float scores[DIGITS_HELD_OUT][DIGITS_CLASSES];
static int64_t predicted[DIGITS_HELD_OUT];

static int load(void **state) {
    (void)state;
    data = digits_load(FOLDER);
    return data == NULL;
}
static int unload(void **state) {
    (void)state;
    digits_free(data);
    return 0;
}

static void run(dlc_program *program, int first, int batch) {
    const DLDevice cpu = {kDLCPU, 0};
    DLTensor x = {.data = data->pixels[first],
                  .device = cpu,
                  .dtype = {kDLFloat, 32, 1},
                  .ndim = 4,
                  .shape = (int64_t[]){batch, 1, 8, 8}};
    DLTensor c = {.data = predicted, .device = cpu, .dtype = {kDLInt, 64, 1}, .ndim = 1, .shape = (int64_t[]){batch}};
    DLTensor s = {.data = scores,
                  .device = cpu,
                  .dtype = {kDLFloat, 32, 1},
                  .ndim = 2,
                  .shape = (int64_t[]){batch, DIGITS_CLASSES}};
    assert_int_equal(
        dlc_run(program, NULL, (const DLTensor *const[]){&x}, 1, (dlc_output_slot[]){{&c, NULL}, {&s, NULL}}, 2),
        DLC_OK);
}

/* NULL where the build has no such target. */
static dlc_context *open_target(const char *target) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.target = target;
    return dlc_context_create(&options, &context) == DLC_OK ? context : NULL;
}

static void close_weights(void) { /* before their context goes */
    dlc_file_destroy(data->weights);
    data->weights = NULL;
}

static void compare_with_expected(const char *target) {
    dlc_context *context = open_target(target);
    if (!context) skip();
    dlc_program *program;
    assert_int_equal(digits_open(context, data, FOLDER), DLC_OK);
    assert_int_equal(digits_compile(context, data, &program), DLC_OK);
    FILE *file = fopen(FOLDER "/classify_expected.txt", "r");
    assert_non_null(file);
    char line[512];
    int rows = 0;
    while (fgets(line, sizeof line, file)) {
        int row, label, at;
        assert_int_equal(sscanf(line, "%d %d%n", &row, &label, &at), 2);
        assert_int_equal(data->label[row], label);
        run(program, row, 1);
        int greatest = 0;
        for (int i = 0, used; i < DIGITS_CLASSES; i++, at += used) {
            double expected;
            assert_int_equal(sscanf(line + at, "%lf%n", &expected, &used), 1);
            if (!(fabs((double)scores[0][i] - expected) <= 1e-4))
                fail_msg("row %d, class %d: %.6f, expected %.6f", row, i, (double)scores[0][i], expected);
            if (scores[0][i] > scores[0][greatest]) greatest = i;
        }
        assert_int_equal(predicted[0], greatest);
        rows++;
    }
    fclose(file);
    assert_int_equal(rows, 8);
    dlc_program_destroy(program);
    close_weights();
    dlc_context_destroy(context);
}

static void test_expected_scores_interp(void **state) {
    (void)state;
    compare_with_expected("interp");
}
static void test_expected_scores_cpu(void **state) {
    (void)state;
    compare_with_expected("cpu");
}

/* Of the first held-out rows: the interpreter takes its time. */
static int rows_to_classify(void) {
    dlc_context *cpu = open_target("cpu");
    dlc_context_destroy(cpu);
    return cpu ? DIGITS_HELD_OUT : 60;
}

static int held_out_right(dlc_context *context, int rows) {
    dlc_program *program;
    int right = 0;
    assert_int_equal(digits_compile(context, data, &program), DLC_OK);
    run(program, DIGITS_ROWS - DIGITS_HELD_OUT, rows);
    for (int i = 0; i < rows; i++) right += predicted[i] == data->label[DIGITS_ROWS - DIGITS_HELD_OUT + i];
    dlc_program_destroy(program);
    return right;
}

/* Another file of the weights, with the elements of one of them from the last to the first; data->weights is the file then. */
static void reverse(dlc_context *context, const char *name, const char *folder) {
    enum { MOST = 16 };
    const char *names[MOST];
    const DLTensor *tensors[MOST];
    DLManagedTensorVersioned *whole[MOST];
    char path[256];
    float *turned = NULL;
    DLTensor other;
    assert_int_equal(digits_open(context, data, FOLDER), DLC_OK);
    const int count = dlc_file_count(data->weights);
    assert_in_range(count, 1, MOST);
    for (int i = 0; i < count; i++) {
        names[i] = dlc_file_name(data->weights, i);
        assert_int_equal(dlc_file_tensor(data->weights, names[i], &whole[i]), DLC_OK);
        tensors[i] = &whole[i]->dl_tensor;
        if (strcmp(names[i], name) != 0) continue;
        int64_t elements = 1;
        for (int d = 0; d < tensors[i]->ndim; d++) elements *= tensors[i]->shape[d];
        turned = malloc((size_t)elements * sizeof *turned);
        assert_non_null(turned);
        for (int64_t k = 0; k < elements; k++) turned[k] = ((const float *)tensors[i]->data)[elements - 1 - k];
        other = *tensors[i];
        other.data = turned;
        tensors[i] = &other;
    }
    assert_non_null(turned);
    snprintf(path, sizeof path, "%s/digits_weights.safetensors", folder);
    assert_int_equal(dlc_file_write_safetensors(context, path, count, names, tensors, 0, NULL, NULL), DLC_OK);
    for (int i = 0; i < count; i++) whole[i]->deleter(whole[i]);
    free(turned);
    assert_int_equal(digits_open(context, data, folder), DLC_OK);
    unlink(path); /* it stays as long as it is open */
}

/* Accuracy comes from the weights: with those of one layer in another order it falls, restored it is back. */
static void test_perturbed_weights_lower_the_accuracy(void **state) {
    (void)state;
    static const char *const layers[] = {"conv1.weight", "conv3.weight", "dense2.weight"};
    dlc_context *context = open_target(NULL);
    assert_non_null(context);
    char folder[] = "/tmp/dlc-digits-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(digits_open(context, data, FOLDER), DLC_OK);
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    int rows = rows_to_classify(), right = held_out_right(context, rows);
    dlc_context_statistics(context, &statistics);
    assert_int_equal(statistics.interpreted_regions, 0);
    assert_true(right >= rows * 97 / 100);
    for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
        reverse(context, layers[k], folder);
        int perturbed = held_out_right(context, rows);
        if (perturbed > right * 8 / 10) fail_msg("%s reversed: still %d of %d right", layers[k], perturbed, right);
    }
    rmdir(folder);
    assert_int_equal(digits_open(context, data, FOLDER), DLC_OK);
    assert_int_equal(held_out_right(context, rows), right);
    close_weights();
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected_scores_interp),
        cmocka_unit_test(test_expected_scores_cpu),
        cmocka_unit_test(test_perturbed_weights_lower_the_accuracy),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
