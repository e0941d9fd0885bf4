/* Trainers on the cuda target, on the fake driver: their state lives on the device, steps and evaluations copy none of it; reading, replacing,
 * saving and loading do, and may fail. */
#include "test/cuda/host.h"

#include <dlc/train.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUT = 32, BATCH = ROWS * COLUMNS * 4 };

#define SHAPE(...) ((int64_t[]){__VA_ARGS__})

/* mean (x w + b - 1)^2, b frozen; the running mean of the columns of x is carried, x w + b is an output */
static dlc_status build_model(void *user, dlc_training *t, dlc_value *loss) {
    dlc_parameter_options uniform = DLC_PARAMETER_OPTIONS_INIT, ones = DLC_PARAMETER_OPTIONS_INIT;
    uniform.initial = DLC_INITIAL_UNIFORM, uniform.scale = 0.5;
    ones.scale = 1, ones.frozen = true;
    dlc_value x = dlc_training_input(t, "x", DLC_F32, DIMS({0, "n"}, {COLUMNS, NULL}));
    dlc_value w = dlc_training_parameter(t, "w", DLC_F32, 2, SHAPE(COLUMNS, OUT), &uniform);
    dlc_value b = dlc_training_parameter(t, "b", DLC_F32, 1, SHAPE(OUT), &ones);
    dlc_value mean = dlc_training_carried(t, "mean", DLC_F32, 1, SHAPE(COLUMNS), NULL), y = dlc_linear(x, w, b);
    dlc_value half = dlc_scalar(dlc_training_graph(t), DLC_F32, 0.5);
    dlc_training_carry(t, "mean", dlc_mul(dlc_add(mean, dlc_mean(x, 1, SHAPE(0))), half));
    dlc_training_output(t, "y", y);
    dlc_value error = dlc_sub(y, dlc_scalar(dlc_training_graph(t), DLC_F32, 2));
    *loss = dlc_mean(dlc_mul(error, error), 0, NULL);
    return user ? DLC_INVALID_ARGUMENT : DLC_OK;
}

static dlc_status create_trainer(dlc_context *context, dlc_trainer **trainer) {
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    options.rate = "0.02/step";
    options.clip_norm = 0.5;
    options.average_decay = 0.75;
    options.on_not_finite = DLC_NOT_FINITE_SKIP;
    options.dynamic_loss_scale = true;
    return dlc_trainer_create(context, build_model, NULL, &options, trainer);
}

typedef struct trained {
    dlc_context *context;
    dlc_trainer *trainer;
} trained;

static trained begin(const char *target) {
    trained t;
    fakes_reset(f);
    assert_int_equal(create(target, &t.context), DLC_OK);
    if (create_trainer(t.context, &t.trainer) != DLC_OK) fail_msg("%s", dlc_error_message(t.context));
    return t;
}

static void end(const trained *t) {
    dlc_trainer_destroy(t->trainer);
    dlc_context_destroy(t->context);
    assert_true(fakes_are_empty(f));
}

static dlc_status step(const trained *t, dlc_training_report *report) {
    matrix x;
    fill(&x, COLUMNS);
    return dlc_trainer_step(t->trainer, NULL, (const DLTensor *[]){&x.tensor}, 1, report, NULL, 0);
}

static void read_state(const trained *t, const char *name, float *out, size_t count) {
    DLManagedTensorVersioned *copy;
    if (dlc_trainer_tensor(t->trainer, name, &copy) != DLC_OK) fail_msg("%s", dlc_error_message(t->context));
    assert_int_equal(copy->dl_tensor.device.device_type, kDLCPU);
    memcpy(out, copy->dl_tensor.data, count * sizeof *out);
    copy->deleter(copy);
}

static void expect_like(const trained *a, const trained *b, double tolerance) {
    for (int s = 0; s < dlc_trainer_count(a->trainer); s++) {
        const char *name = dlc_trainer_name(a->trainer, s);
        const size_t count = strcmp(name, "mean") == 0 ? COLUMNS : strchr(name, 'w') ? COLUMNS * OUT : OUT;
        float x[COLUMNS * OUT], y[COLUMNS * OUT];
        if (strncmp(name, "trainer", 7) == 0) continue;
        read_state(a, name, x, count), read_state(b, name, y, count);
        for (size_t i = 0; i < count; i++)
            if (!(fabs((double)x[i] - (double)y[i]) <= tolerance))
                fail_msg("%s[%zu] is %g, expected %g", name, i, (double)x[i], (double)y[i]);
    }
}

/* Only the batch goes to the device, and only numbers come back. */
static void test_no_copies(void **state) {
    (void)state;
    enum {
        IN_STATE = 8 + 8 + 8 + 4 + 8,
        OUT_STATE = 8 + 8 + 4 + 8,
        REPORTED = 3 * 8
    }; /* step, skipped, seed, scale, good */
    const trained wanted = begin("interp"), t = begin("cuda");
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    double loss, first = 0;
    matrix x;
    fill(&x, COLUMNS);
    for (int i = 0; i < 6; i++) {
        fakes_reset(f);
        if (step(&t, &report) != DLC_OK) fail_msg("%s; %s", dlc_error_message(t.context), f->driver->message);
        assert_int_equal(step(&wanted, NULL), DLC_OK);
        first = i ? first : report.loss;
        assert_int_equal(report.step, i + 1);
        assert_true(f->driver->to_device >= BATCH + IN_STATE && f->driver->launches);
        if (!i) continue; /* constants come with the first run */
        assert_int_equal(f->driver->to_device, BATCH + IN_STATE);
        assert_int_equal(f->driver->to_host, REPORTED + OUT_STATE);
        assert_int_equal(f->driver->on_device, 0);
    }
    assert_true(report.loss < first && report.loss_scale == 65536 && report.norm > 0);
    expect_like(&t, &wanted, 1e-5);
    for (int i = 0; i < 2; i++) {
        fakes_reset(f);
        assert_int_equal(dlc_trainer_evaluate(t.trainer, NULL, (const DLTensor *[]){&x.tensor}, 1, &loss, NULL, 0),
                         DLC_OK);
    }
    assert_int_equal(f->driver->to_device, BATCH);
    assert_int_equal(f->driver->to_host, 8);
    assert_int_equal(f->driver->on_device, 0);
    assert_string_equal(f->driver->message, "");
    dlc_trainer_destroy(wanted.trainer);
    dlc_context_destroy(wanted.context);
    end(&t);
}

/* Outputs that the library allocates are where the batch is. */
static void test_outputs(void **state) {
    (void)state;
    const trained t = begin("cuda");
    cuda_host h = host_begin();
    float here[ROWS * OUT], there[ROWS * OUT];
    matrix x;
    fill(&x, COLUMNS);
    host_write(&h, h.x, x.data, BATCH);
    for (int on_device = 0; on_device < 2; on_device++) {
        dlc_output_slot slot = {0};
        if (on_device) put_on_device(&x, h.x);
        if (dlc_trainer_evaluate(t.trainer, NULL, (const DLTensor *[]){&x.tensor}, 1, NULL, &slot, 1) != DLC_OK)
            fail_msg("%s; %s", dlc_error_message(t.context), f->driver->message);
        const DLTensor *y = &slot.managed->dl_tensor;
        assert_int_equal(y->device.device_type, on_device ? kDLCUDA : kDLCPU);
        if (on_device)
            host_read(&h, there, (uintptr_t)y->data, sizeof there);
        else
            memcpy(here, y->data, sizeof here);
        slot.managed->deleter(slot.managed);
    }
    assert_memory_equal(here, there, sizeof here);
    host_end(&h);
    end(&t);
}

/* Files and tensors of a trainer on the device are those of one in host memory. */
static void test_files(void **state) {
    (void)state;
    char path[64];
    float row[2 * OUT], got[OUT];
    snprintf(path, sizeof path, "/tmp/dlc-train-%ld.safetensors", (long)getpid());
    const trained t = begin("cuda"), other = begin("interp");
    for (int i = 0; i < 3; i++) assert_int_equal(step(&t, NULL), DLC_OK);
    assert_int_equal(dlc_trainer_save(t.trainer, path), DLC_OK);
    if (dlc_trainer_load(other.trainer, path) != DLC_OK) fail_msg("%s", dlc_error_message(other.context));
    expect_like(&t, &other, 0);
    assert_int_equal(step(&other, NULL), DLC_OK);
    assert_int_equal(dlc_trainer_save(other.trainer, path), DLC_OK);
    assert_int_equal(dlc_trainer_load(t.trainer, path), DLC_OK);
    expect_like(&t, &other, 0);
    /* every other element of a row */
    for (int i = 0; i < 2 * OUT; i++) row[i] = (float)i;
    const DLTensor strided = {.data = row,
                              .device = {kDLCPU, 0},
                              .ndim = 1,
                              .dtype = {kDLFloat, 32, 1},
                              .shape = SHAPE(OUT),
                              .strides = SHAPE(2)};
    assert_int_equal(dlc_trainer_set(t.trainer, "b", &strided), DLC_OK);
    read_state(&t, "b", got, OUT);
    for (int i = 0; i < OUT; i++) assert_true(got[i] == (float)(2 * i));
    unlink(path);
    dlc_trainer_destroy(other.trainer);
    dlc_context_destroy(other.context);
    end(&t);
}

static void fail_next(const char *name, long at) {
    fakes_reset(f);
    f->driver->fail = name, f->driver->fail_at = at, f->driver->fail_with = CUDA_ERROR_INVALID_VALUE;
}

/* Copies that fail: what was being written is lost, and said to be; what was being read is not. */
static void test_failures(void **state) {
    (void)state;
    char path[64];
    float values[OUT] = {0};
    DLManagedTensorVersioned *copy;
    dlc_trainer *refused;
    const DLTensor tensor = {
        .data = values, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = SHAPE(OUT)};
    snprintf(path, sizeof path, "/tmp/dlc-train-%ld.safetensors", (long)getpid());
    const trained t = begin("cuda");
    assert_int_equal(step(&t, NULL), DLC_OK);
    assert_int_equal(dlc_trainer_save(t.trainer, path), DLC_OK);
    for (long at = 1; at < 4; at++) {
        fail_next("cuMemcpyDtoHAsync_v2", at);
        assert_true(dlc_trainer_save(t.trainer, path) != DLC_OK);
        assert_non_null(strstr(dlc_error_message(t.context), "cuMemcpyDtoH"));
    }
    fail_next("cuMemcpyDtoHAsync_v2", 1);
    assert_true(dlc_trainer_tensor(t.trainer, "w", &copy) != DLC_OK && !copy);
    fakes_reset(f);
    assert_int_equal(step(&t, NULL), DLC_OK);
    for (int set = 0; set < 2; set++) {
        fail_next("cuMemcpyHtoDAsync_v2", set ? 1 : 3);
        assert_true((set ? dlc_trainer_set(t.trainer, "b", &tensor) : dlc_trainer_load(t.trainer, path)) != DLC_OK);
        fakes_reset(f);
        assert_int_equal(step(&t, NULL), DLC_INVALID_ARGUMENT);
        assert_non_null(strstr(dlc_error_message(t.context), "the state was lost"));
        assert_int_equal(dlc_trainer_load(t.trainer, path), DLC_OK);
        assert_int_equal(step(&t, NULL), DLC_OK);
    }
    unlink(path);
    int failures = 0;
    for (long at = 1;; at++) {
        fail_next("cuMemcpyHtoDAsync_v2", at);
        const dlc_status status = create_trainer(t.context, &refused);
        if (status == DLC_OK) break;
        assert_null(refused);
        failures++;
    }
    assert_true(failures >= 4); /* w, b, their slots and averages, mean */
    dlc_trainer_destroy(refused);
    end(&t);
}

int main(void) {
    host_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_copies),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
