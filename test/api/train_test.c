/* <dlc/train.h>: steps and evaluations, parts of a batch, checkpoints, precision, what a host may do wrong. Optimisers: train_optimizers_test.c. */
#include "api/trainers.h"
#include "test/share.h"

#include <dlc/files.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- parts of a batch ---------------------------------------------------------------------------------------------------------------- */

static void test_micro_batches(void **state) {
    (void)state;
    const model m = {.dtype = DLC_F64, .predicts = true, .carries = true};
    make_data();
    for (int k = 0; k < 2; k++) {
        dlc_context *context = open_context(all_targets[k], NULL);
        if (!context) continue;
        double whole[W], parts[W], mean[IN], expected[IN] = {0};
        double y[ROWS * OUT], y_parts[ROWS * OUT];
        tensor x, wanted, out;
        make_tensor(&x, DLC_F64, data_x, 2, SHAPE(ROWS, IN));
        make_tensor(&wanted, DLC_F64, data_y, 2, SHAPE(ROWS, OUT));
        for (int micro = 0; micro < 2; micro++) {
            dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
            dlc_training_report report = DLC_TRAINING_REPORT_INIT;
            options.micro_batches = micro ? 3 : 1;
            options.rate = "0.05";
            options.clip_norm = 0.1;
            dlc_trainer *trainer = create(context, &m, &options);
            for (int t = 0; t < 6; t++) {
                double g[W + OUT], w[W + OUT];
                read_state(context, trainer, "w", w);
                read_state(context, trainer, "b", w + W);
                if (micro)
                    make_tensor(&out, DLC_F64, y_parts, 3, SHAPE(3, ROWS / 3, OUT));
                else
                    make_tensor(&out, DLC_F64, y, 2, SHAPE(ROWS, OUT));
                dlc_output_slot slot = {&out.dl, NULL};
                OK(context,
                   dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x.dl, &wanted.dl}, 2, &report, &slot, 1));
                CHECK(fabs(report.loss - reference_loss(w, g)) < 1e-12);
                for (int part = 0; micro && part < 3; part++)
                    for (int i = 0; i < IN; i++) {
                        double sum = 0;
                        for (int r = 0; r < ROWS / 3; r++) sum += data_x[(part * (ROWS / 3) + r) * IN + i];
                        expected[i] = (expected[i] + sum / (double)(ROWS / 3)) / 2;
                    }
            }
            read_state(context, trainer, "w", micro ? parts : whole);
            if (micro) read_state(context, trainer, "mean", mean);
            /* 7 rows are not a multiple of 3 */
            if (micro) CHECK(step64(trainer, 7, NULL) == DLC_INVALID_ARGUMENT);
            if (micro) CHECK(strstr(dlc_error_message(context), "given are rank 2 and dimension 0 7"));
            char *text;
            OK(context, dlc_program_dump(dlc_trainer_program(trainer, true), "graph", NULL, NULL, 0, &text));
            CHECK(strstr(text, micro ? "\n    backward:\n" : "\n  backward:\n") && strstr(text, "\n  update:\n"));
            CHECK(!micro == !strstr(text, "\n  forward and backward:\n"));
            dlc_text_free(context, text);
            dlc_trainer_destroy(trainer);
        }
        for (int i = 0; i < W; i++) CHECK(fabs(whole[i] - parts[i]) < 1e-12);
        for (int i = 0; i < ROWS * OUT; i++) CHECK(fabs(y[i] - y_parts[i]) < 1e-12);
        for (int i = 0; i < IN; i++) CHECK(fabs(mean[i] - expected[i]) < 1e-12);
        dlc_context_destroy(context);
    }
}

/* Parts of a batch with equal rows: with dropout each part draws numbers of its own, the same on all targets and by another trainer of the seed,
 * others in another step. */
static void test_dropout_in_parts(void **state) {
    (void)state;
    enum { PARTS = 3, SIZE_OF_PART = ROWS / PARTS, PART = SIZE_OF_PART * OUT };
    double first[2][2][PARTS * PART], y[PARTS * PART];
    for (int k = 0; k < TARGETS; k++)
        for (int dropout = 0; dropout < 2; dropout++) {
            const model m = {.dtype = DLC_F64, .predicts = true, .dropout = dropout};
            dlc_context *context = open_context(all_targets[k], NULL);
            if (!context) continue;
            make_data();
            for (int i = 0; i < ROWS * IN; i++) data_x[i] = data_x[i % (SIZE_OF_PART * IN)];
            tensor x, wanted, out;
            make_tensor(&x, DLC_F64, data_x, 2, SHAPE(ROWS, IN));
            make_tensor(&wanted, DLC_F64, data_y, 2, SHAPE(ROWS, OUT));
            make_tensor(&out, DLC_F64, y, 3, SHAPE(PARTS, SIZE_OF_PART, OUT));
            for (int again = 0; again < 2; again++) {
                dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
                dlc_output_slot slot = {&out.dl, NULL};
                options.micro_batches = PARTS;
                options.seed = 3;
                options.rate =
                    "0*step"; /* parameters stay, so that only the elements that dropout zeroes differ between steps */
                dlc_trainer *trainer = create(context, &m, &options);
                for (int step = 0; step < 2; step++) {
                    OK(context,
                       dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x.dl, &wanted.dl}, 2, NULL, &slot, 1));
                    for (int a = 0; a < PARTS; a++)
                        for (int b = 0; b < a; b++)
                            CHECK(!memcmp(y + a * PART, y + b * PART, PART * sizeof *y) == !dropout);
                    if (k == 0 && !again) memcpy(first[dropout][step], y, sizeof y);
                    for (int i = 0; i < PARTS * PART; i++) CHECK(fabs(y[i] - first[dropout][step][i]) < 1e-12);
                }
                if (k == 0) CHECK(!memcmp(first[dropout][0], first[dropout][1], sizeof y) == !dropout);
                dlc_trainer_destroy(trainer);
            }
            dlc_context_destroy(context);
            make_data();
        }
}

/* Evaluation: outputs, the loss where there is one, the number of steps, what is carried. */
static void test_evaluation(void **state) {
    (void)state;
    const model m = {.dtype = DLC_F64, .predicts = true, .counts = true, .carries = true};
    make_data();
    dlc_context *context = open_context("interp", NULL);
    dlc_trainer *trainer = create(context, &m, NULL);
    double w[W + OUT], g[W + OUT], y[ROWS * OUT], loss;
    int64_t steps = -1;
    tensor x, wanted, ty, ts;
    for (int i = 0; i < 3; i++) OK(context, step64(trainer, ROWS, NULL));
    read_state(context, trainer, "w", w);
    read_state(context, trainer, "b", w + W);
    make_tensor(&x, DLC_F64, data_x, 2, SHAPE(ROWS, IN));
    make_tensor(&wanted, DLC_F64, data_y, 2, SHAPE(ROWS, OUT));
    make_tensor(&ty, DLC_F64, y, 2, SHAPE(ROWS, OUT));
    make_tensor(&ts, DLC_I64, &steps, 0, NULL);
    const DLTensor *batch[] = {&x.dl, &wanted.dl};
    dlc_output_slot out[] = {{&ty.dl, NULL}, {&ts.dl, NULL}};
    OK(context, dlc_trainer_evaluate(trainer, NULL, batch, 2, &loss, out, 2));
    CHECK(steps == 3 && fabs(loss - reference_loss(w, g)) < 1e-12);
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            double sum = w[W + o];
            for (int i = 0; i < IN; i++) sum += data_x[r * IN + i] * w[i * OUT + o];
            CHECK(fabs(sum - y[r * OUT + o]) < 1e-12);
        }
    /* empty slots: the library makes the tensors */
    out[0].tensor = out[1].tensor = NULL;
    OK(context, dlc_trainer_evaluate(trainer, NULL, batch, 2, NULL, out, 2));
    CHECK(((const double *)out[0].managed->dl_tensor.data)[5] == y[5]);
    for (int i = 0; i < 2; i++) out[i].managed->deleter(out[i].managed);
    CHECK(dlc_trainer_evaluate(trainer, NULL, batch, 2, NULL, out, 1) == DLC_INVALID_ARGUMENT);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
}

/* ---- steps that are not finite -------------------------------------------------------------------------------------------------------- */

static void test_not_finite(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    const model m = {.dtype = DLC_F32, .factor = true};
    make_data();
    dlc_context *context = open_context("interp", NULL);
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    double before[W], after[W], m_before[W], m_after[W];
    options.on_not_finite = DLC_NOT_FINITE_SKIP;
    options.dynamic_loss_scale = true;
    options.loss_scale = 1024;
    dlc_trainer *trainer = create(context, &m, &options);
    OK(context, step32(trainer, NULL, 1, &report));
    CHECK(report.step == 1 && report.skipped == 0 && report.loss_scale == 1024);
    read_state(context, trainer, "w", before);
    read_state(context, trainer, "m.w", m_before);
    OK(context, step32(trainer, NULL, NAN, &report));
    CHECK(report.step == 1 && report.skipped == 1 && report.loss_scale == 512 && isnan(report.loss));
    /* the loss is finite, its square times the scale is not: the gradients overflow */
    OK(context, step32(trainer, NULL, 1e19f, &report));
    CHECK(report.step == 1 && report.skipped == 2 && report.loss_scale == 256);
    read_state(context, trainer, "w", after);
    read_state(context, trainer, "m.w", m_after);
    CHECK(memcmp(before, after, sizeof before) == 0 && memcmp(m_before, m_after, sizeof m_before) == 0);
    /* after 2,000 good steps in a row the scale doubles */
    for (int i = 0; i < 2000; i++) OK(context, step32(trainer, NULL, 1, &report));
    CHECK(report.loss_scale == 512 && report.step == 2001);
    dlc_trainer_destroy(trainer);

    options = (dlc_trainer_options)DLC_TRAINER_OPTIONS_INIT;
    trainer = create(context, &m, &options);
    OK(context, step32(trainer, NULL, 1, &report));
    OK(context, step32(trainer, NULL, NAN, &report));
    CHECK(report.step == 2 && report.skipped == 1);
    read_state(context, trainer, "w", after);
    CHECK(isnan(after[0]));
    dlc_trainer_destroy(trainer);

    /* a static scale changes nothing but roundings */
    double scaled[W];
    for (int s = 0; s < 2; s++) {
        options.loss_scale = s ? 4096 : 0;
        trainer = create(context, &m, &options);
        for (int i = 0; i < 5; i++) OK(context, step32(trainer, NULL, 1, &report));
        CHECK(report.loss_scale == (s ? 4096 : 1));
        read_state(context, trainer, "w", s ? scaled : after);
        dlc_trainer_destroy(trainer);
    }
    for (int i = 0; i < W; i++) CHECK(fabs(scaled[i] - after[i]) < 1e-5);
    dlc_context_destroy(context);
}

/* ---- precision ----------------------------------------------------------------------------------------------------------------------------- */

/* Products in bf16 and f16: the parameters stay f32 and the losses near those of f32; the program has products of narrow values. */
static int count_words(const char *text, const char *word) {
    int count = 0;
    for (; (text = strstr(text, word)); text++) count++;
    return count;
}

static void test_precision(void **state) {
    (void)state;
    const model m = {.dtype = DLC_F32, .factor = true, .predicts = true};
    make_data();
    for (int k = 0; k < 2; k++) {
        dlc_context *context = open_context(all_targets[k], NULL);
        if (!context) continue;
        double losses[3][8];
        int products[2];
        for (int p = 0; p < 3; p++)
            for (int micro = 1; micro <= 2; micro++) {
                dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
                dlc_training_report report = DLC_TRAINING_REPORT_INIT;
                options.precision = p == 0 ? DLC_BOOL : p == 1 ? DLC_BF16 : DLC_F16;
                options.on_not_finite = DLC_NOT_FINITE_SKIP;
                options.dynamic_loss_scale = p == 2;
                options.rate = "0.05";
                options.micro_batches = micro;
                dlc_trainer *trainer = create(context, &m, &options);
                for (int i = 0; i < 8; i++) {
                    OK(context, step32(trainer, NULL, 1, &report));
                    losses[p][i] = report.loss;
                    CHECK(fabs(losses[p][i] - losses[0][i]) < (p == 1 ? 0.02 : 0.003) * (1 + losses[0][i]));
                }
                CHECK(losses[p][7] < losses[p][0]);
                char *text;
                OK(context, dlc_program_dump(dlc_trainer_program(trainer, true), "graph", NULL, NULL, 0, &text));
                CHECK(!strstr(text, "bf16") == (p != 1));
                if (!p) products[micro - 1] = count_words(text, "= dot_general(");
                CHECK(count_words(text, "= dot_general(") ==
                      products[micro - 1]); /* outputs read those that the loss reads */
                dlc_text_free(context, text);
                dlc_trainer_destroy(trainer);
            }
        dlc_context_destroy(context);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------------------------------ */

/* All of the state as bytes. */
static size_t state_bytes(dlc_context *context, dlc_trainer *trainer, char *out, size_t room) {
    size_t used = 0;
    for (int i = 0; i < dlc_trainer_count(trainer); i++) {
        DLManagedTensorVersioned *copy;
        size_t size;
        OK(context, dlc_trainer_tensor(trainer, dlc_trainer_name(trainer, i), &copy));
        size = copy->dl_tensor.dtype.bits / 8u;
        for (int d = 0; d < copy->dl_tensor.ndim; d++) size *= (size_t)copy->dl_tensor.shape[d];
        CHECK(used + size <= room);
        memcpy(out + used, copy->dl_tensor.data, size);
        used += size;
        copy->deleter(copy);
    }
    return used;
}

static void check_same_state(dlc_context *context, dlc_trainer *a, dlc_trainer *b) {
    char one[4096], two[4096];
    const size_t size = state_bytes(context, a, one, sizeof one);
    CHECK(state_bytes(context, b, two, sizeof two) == size && memcmp(one, two, size) == 0);
}

static const model resumed = {.dtype = DLC_F32, .factor = true, .dropout = true, .carries = true};

static dlc_trainer_options resumed_options(uint64_t seed) {
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    options.seed = seed;
    options.average_decay = 0.9;
    options.on_not_finite = DLC_NOT_FINITE_SKIP;
    options.dynamic_loss_scale = true;
    options.rate = "0.01/step";
    return options;
}

/* Save, load into another trainer (of another seed), go on: the same bits, random numbers among them. */
static void test_resume(void **state) {
    (void)state;
    for (int k = 0; k < TARGETS; k++) {
        dlc_context *context = open_context(all_targets[k], NULL);
        if (!context) continue;
        dlc_trainer_options options = resumed_options(11), other = resumed_options(12);
        dlc_trainer *a = create(context, &resumed, &options), *b = create(context, &resumed, &other);
        for (int i = 0; i < 7; i++) OK(context, step32(a, NULL, i == 3 ? NAN : 1, NULL));
        for (int i = 0; i < 3; i++) OK(context, step32(b, NULL, 1, NULL));
        OK(context, dlc_trainer_save(a, in_folder("a.safetensors")));
        OK(context, dlc_trainer_load(b, in_folder("a.safetensors")));
        check_same_state(context, a, b);
        for (int i = 0; i < 5; i++) OK(context, step32(a, NULL, 1, NULL));
        for (int i = 0; i < 5; i++) OK(context, step32(b, NULL, 1, NULL));
        check_same_state(context, a, b);
        dlc_trainer_destroy(a);
        dlc_trainer_destroy(b);
        dlc_context_destroy(context);
    }
}

/* A process is killed while it trains and saves after each step: the file is that of some step, complete. */
static void test_killed(void **state) {
    (void)state;
    const dlc_trainer_options options = resumed_options(5);
    for (int round = 0; round < 4; round++) {
        unlink(in_folder("b.safetensors"));
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            dlc_context *context = open_context("interp", NULL);
            dlc_trainer *trainer = create(context, &resumed, &options);
            for (;;)
                if (step32(trainer, NULL, 1, NULL) != DLC_OK ||
                    dlc_trainer_save(trainer, in_folder("b.safetensors")) != DLC_OK)
                    _exit(3);
        }
        while (access(in_folder("b.safetensors"), R_OK) != 0) usleep(1000);
        usleep(1000u * (unsigned)(round * 7));
        int status;
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));

        dlc_context *context = open_context("interp", NULL);
        dlc_trainer *a = create(context, &resumed, &options), *b = create(context, &resumed, &options);
        double steps;
        OK(context, dlc_trainer_load(a, in_folder("b.safetensors")));
        read_state(context, a, "trainer.step", &steps);
        CHECK(steps >= 1);
        for (int i = 0; i < (int)steps; i++) OK(context, step32(b, NULL, 1, NULL));
        check_same_state(context, a, b);
        dlc_trainer_destroy(a);
        dlc_trainer_destroy(b);
        dlc_context_destroy(context);
    }
}

static void refused_load(dlc_context *context, dlc_trainer *trainer, const char *path, dlc_status status,
                         const char *words) {
    char before[4096], after[4096];
    const size_t size = state_bytes(context, trainer, before, sizeof before);
    const dlc_status got = dlc_trainer_load(trainer, path);
    if (got != status || !strstr(dlc_error_message(context), words))
        failed("status %d, message \"%s\", expected %d and \"%s\"", (int)got, dlc_error_message(context), (int)status,
               words);
    CHECK(state_bytes(context, trainer, after, sizeof after) == size && memcmp(before, after, size) == 0);
}

/* The file of weights has averages where there are averages, parameters, carried values; nothing else. */
static void check_weights(dlc_context *context, dlc_trainer *trainer) {
    dlc_file *file;
    int expected = 0;
    OK(context, dlc_trainer_save_weights(trainer, in_folder("w.safetensors")));
    OK(context, dlc_file_open(context, in_folder("w.safetensors"), NULL, &file));
    for (int i = 0; i < dlc_trainer_count(trainer); i++) {
        const char *name = dlc_trainer_name(trainer, i);
        char average[64];
        DLManagedTensorVersioned *wanted, *got;
        if (strchr(name, '.')) continue;
        expected++;
        snprintf(average, sizeof average, "average.%s", name);
        if (dlc_trainer_tensor(trainer, average, &wanted) != DLC_OK)
            OK(context, dlc_trainer_tensor(trainer, name, &wanted));
        OK(context, dlc_file_tensor(file, name, &got));
        const DLTensor *a = &wanted->dl_tensor, *b = &got->dl_tensor;
        size_t size = a->dtype.bits / 8;
        CHECK(a->ndim == b->ndim && a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits);
        for (int d = 0; d < a->ndim; d++) {
            CHECK(a->shape[d] == b->shape[d]);
            size *= (size_t)a->shape[d];
        }
        CHECK(memcmp(a->data, b->data, size) == 0);
        wanted->deleter(wanted);
        got->deleter(got);
    }
    CHECK(expected >= 3 && dlc_file_count(file) == expected);
    dlc_file_destroy(file);
}

static void test_weights(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    for (int averaged = 0; averaged < 2; averaged++) {
        dlc_trainer_options options = resumed_options(11);
        if (!averaged) options.average_decay = 0;
        dlc_trainer *trainer = create(context, &resumed, &options);
        for (int i = 0; i < 3; i++) OK(context, step32(trainer, NULL, 1, NULL));
        check_weights(context, trainer);
        refused_load(context, trainer, in_folder("w.safetensors"), DLC_INVALID_ARGUMENT,
                     "not a file of dlc_trainer_save");
        CHECK(dlc_trainer_save_weights(trainer, NULL) == DLC_INVALID_ARGUMENT);
        dlc_trainer_destroy(trainer);
    }
    CHECK(dlc_trainer_save_weights(NULL, in_folder("w.safetensors")) == DLC_INVALID_ARGUMENT);
    dlc_context_destroy(context);
}

/* w of *user elements, and one carried value of as many. */
static dlc_status build_product(void *user, dlc_training *t, dlc_value *loss) {
    const int64_t size = *(const int64_t *)user;
    dlc_value x = dlc_training_input(t, "x", DLC_F32, 1, DIMS(SIZE(size)));
    dlc_value w = dlc_training_parameter(t, "w", DLC_F32, 1, SHAPE(size), NULL);
    dlc_value last = dlc_training_carried(t, "last", DLC_F32, 1, SHAPE(size), NULL);
    dlc_training_carry(t, "last", x);
    *loss = dlc_mean(dlc_mul(dlc_sub(x, last), w), 0, NULL);
    return DLC_OK;
}

static void test_checkpoints_of_other_shapes(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    for (int64_t size = 3; size <= 4; size++) {
        int64_t other_size = 7 - size;
        dlc_trainer *trainer, *other;
        float numbers[4] = {1, 2, 3, 4};
        tensor x;
        OK(context, dlc_trainer_create(context, build_product, &size, NULL, &trainer));
        OK(context, dlc_trainer_create(context, build_product, &other_size, NULL, &other));
        OK(context, dlc_trainer_save(trainer, in_folder("s.safetensors")));
        refused_load(context, other, in_folder("s.safetensors"), DLC_INVALID_ARGUMENT,
                     size == 3 ? "w is f32[3], expected f32[4]" : "w is f32[4], expected f32[3]");
        make_tensor(&x, DLC_F32, numbers, 1, SHAPE(other_size));
        OK(context, dlc_trainer_step(other, NULL, (const DLTensor *[]){&x.dl}, 1, NULL, NULL, 0));
        dlc_trainer_destroy(other);
        dlc_trainer_destroy(trainer);
    }
    dlc_context_destroy(context);
}

static void test_damaged_checkpoints(void **state) {
    (void)state;
    static char bytes[1 << 16];
    dlc_context *context = open_context("interp", NULL);
    const dlc_trainer_options options = resumed_options(1);
    dlc_trainer_options plain = DLC_TRAINER_OPTIONS_INIT, sgd = DLC_TRAINER_OPTIONS_INIT;
    const model small = {.dtype = DLC_F32, .factor = true}, wide = {.dtype = DLC_F64, .factor = true};
    sgd.optimizer = "sgd";
    dlc_trainer *trainer = create(context, &resumed, &options), *other;
    OK(context, dlc_trainer_save(trainer, in_folder("a.safetensors")));
    FILE *file = fopen(in_folder("a.safetensors"), "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t length = 0; length < size; length += size / 37 + 1) {
        make_file(in_folder("c.safetensors"), bytes, length);
        refused_load(context, trainer, in_folder("c.safetensors"), DLC_PARSE_ERROR, "c.safetensors");
    }
    refused_load(context, trainer, in_folder("missing"), DLC_NOT_FOUND, "missing");
    other = create(context, &small, &plain);
    OK(context, dlc_trainer_save(other, in_folder("c.safetensors")));
    refused_load(context, trainer, in_folder("c.safetensors"), DLC_INVALID_ARGUMENT, "mean");
    refused_load(context, other, in_folder("a.safetensors"), DLC_INVALID_ARGUMENT, "which the trainer has not");
    dlc_trainer_destroy(other);
    other = create(context, &small, &sgd);
    refused_load(context, other, in_folder("c.safetensors"), DLC_INVALID_ARGUMENT, "optimiser adamw");
    dlc_trainer_destroy(other);
    other = create(context, &wide, &plain);
    refused_load(context, other, in_folder("c.safetensors"), DLC_INVALID_ARGUMENT, "w is f32[5,3], expected f64[5,3]");
    OK(context, dlc_file_write_safetensors(context, in_folder("c.safetensors"), 0, NULL, NULL, 0, NULL, NULL));
    refused_load(context, other, in_folder("c.safetensors"), DLC_INVALID_ARGUMENT, "is not a file of dlc_trainer_save");
    CHECK(dlc_trainer_save(other, in_folder("no/such/folder")) == DLC_NOT_FOUND);
    dlc_trainer_destroy(other);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
}

/* ---- the same bits ---------------------------------------------------------------------------------------------------------------------- */

static void test_threads(void **state) {
    (void)state;
    char first[4096], bytes[4096];
    for (int threads = 1; threads <= 4; threads++) {
        dlc_context_options how = DLC_CONTEXT_OPTIONS_INIT;
        how.threads = threads;
        dlc_context *context = open_context("cpu", &how);
        if (!context) skip();
        const dlc_trainer_options options = resumed_options(2);
        dlc_trainer *trainer = create(context, &resumed, &options);
        for (int i = 0; i < 6; i++) OK(context, step32(trainer, NULL, 1, NULL));
        const size_t size = state_bytes(context, trainer, threads == 1 ? first : bytes, sizeof bytes);
        CHECK(threads == 1 || memcmp(first, bytes, size) == 0);
        dlc_trainer_destroy(trainer);
        dlc_context_destroy(context);
    }
}

/* ---- memory ----------------------------------------------------------------------------------------------------------------------------- */

/* A chain of maps between two products, of which much is kept for the backward part. */
static dlc_status build_chain(void *user, dlc_training *t, dlc_value *loss) {
    (void)user;
    dlc_parameter_options uniform = DLC_PARAMETER_OPTIONS_INIT;
    uniform.initial = DLC_INITIAL_UNIFORM;
    uniform.scale = 0.5;
    dlc_value x = dlc_training_input(t, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(IN)));
    dlc_value h = dlc_matmul(x, dlc_training_parameter(t, "w", DLC_F32, 2, SHAPE(IN, 64), &uniform));
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        h = dlc_tanh(dlc_matmul(dlc_mul(dlc_sin(h), dlc_exp(dlc_cos(h))),
                                dlc_training_parameter(t, name, DLC_F32, 2, SHAPE(64, 64), &uniform)));
    }
    *loss = dlc_mean(dlc_mul(h, h), 0, NULL);
    return DLC_OK;
}

/* compile->memory_bytes limits the arena of a step. A limit that is too small: the step is refused, the message has the least limit that suffices,
 * and the state stays as it was. With that limit, steps give the same loss and parameters as without one, but for the order of sums. */
static void test_memory(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    enum { MANY = 48 };
    static float x[MANY * IN];
    for (int i = 0; i < MANY * IN; i++) x[i] = (float)data_x[i % (ROWS * IN)];
    for (int k = 0; k < TARGETS; k++) {
        dlc_context *context = open_context(all_targets[k], NULL);
        if (!context) continue;
        double w[2][IN * 64], loss[2];
        long long least = 1;
        for (int limited = 0; limited < 2; limited++) {
            dlc_compile_options compile_options = DLC_COMPILE_OPTIONS_INIT;
            dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
            dlc_training_report report = DLC_TRAINING_REPORT_INIT;
            dlc_trainer *trainer;
            tensor tx;
            const DLTensor *batch[] = {F32(&tx, x, MANY, IN)};
            options.compile = &compile_options;
            for (int tries = limited ? 2 : 1; tries > 0; tries--) {
                compile_options.memory_bytes = limited ? (size_t)least : 0;
                OK(context, dlc_trainer_create(context, build_chain, NULL, &options, &trainer));
                if (tries == 1) break;
                CHECK(dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0) == DLC_BUDGET_EXCEEDED);
                double steps;
                read_state(context, trainer, "trainer.step", &steps); /* the state is not lost */
                CHECK(steps == 0);
                const char *message = dlc_error_message(context), *at = strstr(message, "memory_bytes");
                if (!at) failed("%s", message);
                for (least = 0; *message && least < 1000; message++) { /* its largest number */
                    const long long number = strtoll(message, NULL, 10);
                    least = number > least ? number : least;
                }
                dlc_trainer_destroy(trainer);
            }
            for (int i = 0; i < 3; i++) OK(context, dlc_trainer_step(trainer, NULL, batch, 1, &report, NULL, 0));
            loss[limited] = report.loss;
            read_state(context, trainer, "w", w[limited]);
            dlc_trainer_destroy(trainer);
        }
        CHECK(fabs(loss[0] - loss[1]) <= 1e-5 * fabs(loss[0]));
        for (int i = 0; i < IN * 64; i++) CHECK(fabs(w[0][i] - w[1][i]) <= 1e-4);
        dlc_context_destroy(context);
    }
}

/* Steps that threads share: the same bits for 1 to 8 threads of a pool, as far as there are processors, and of the host, whatever order its loop has. */
static void backwards(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    (void)user;
    for (int64_t i = count - 1; i >= 0; i--) body(argument, i);
}

static void test_bits_of_large_steps(void **state) {
    (void)state;
    enum { MANY = 1024, STEPS = 3, ROOM = 1 << 20 };
    static float x[MANY * IN];
    static char first[ROOM], bytes[ROOM];
    size_t size = 0;
    for (int i = 0; i < MANY * IN; i++) x[i] = (float)data_x[i % (ROWS * IN)] * (1 + (float)(i % 101) / 100);
    for (int host = 0; host < 2; host++)
        for (int threads = 1; threads <= 8; threads++) {
            if (!test_takes(threads - 1, 3)) continue;
            dlc_context_options how = DLC_CONTEXT_OPTIONS_INIT;
            if (host)
                how.parallel_for = backwards, how.parallel_width = threads;
            else
                how.threads = threads;
            dlc_context *context = open_context("cpu", &how);
            if (!context) skip();
            dlc_trainer *trainer;
            tensor tx;
            OK(context, dlc_trainer_create(context, build_chain, NULL, NULL, &trainer));
            for (int i = 0; i < STEPS; i++)
                OK(context,
                   dlc_trainer_step(trainer, NULL, (const DLTensor *[]){F32(&tx, x, MANY, IN)}, 1, NULL, NULL, 0));
            const bool is_first = !size;
            const size_t here = state_bytes(context, trainer, is_first ? first : bytes, ROOM);
            if (is_first) size = here;
            CHECK(here == size && (is_first || memcmp(first, bytes, size) == 0));
            dlc_trainer_destroy(trainer);
            dlc_context_destroy(context);
        }
}

/* ---- a state that is lost ---------------------------------------------------------------------------------------------------------------- */

static void raise_flag(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)inputs, (void)outputs;
    memcpy(output[0]->data, input[0]->data, sizeof(float));
    *(volatile int *)user = 1;
}

/* The loss is a host function's, which raises the flag of the run that calls it. */
static dlc_status build_cancelling(void *user, dlc_training *t, dlc_value *loss) {
    dlc_value w = dlc_training_parameter(t, "w", DLC_F32, 0, NULL, NULL);
    dlc_value x = dlc_training_input(t, "x", DLC_F32, 0, NULL), seen;
    dlc_graph *g = dlc_training_graph(t);
    dlc_custom_register(g, "raise", raise_flag, user);
    dlc_custom_effect(g, 1, &x, "raise", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){0}, 0, NULL, 1, &seen);
    *loss = dlc_mul(w, dlc_stop_gradient(seen));
    return DLC_OK;
}

static void lose(const char *target) {
    volatile int flag = 0;
    float number = 2;
    tensor x, set;
    double got;
    dlc_context *context = open_context(target, NULL);
    dlc_trainer *trainer;
    if (!context) return;
    dlc_run_options how = DLC_RUN_OPTIONS_INIT;
    OK(context, dlc_trainer_create(context, build_cancelling, (void *)&flag, NULL, &trainer));
    make_tensor(&x, DLC_F32, &number, 0, NULL);
    const DLTensor *batch[] = {&x.dl};
    OK(context, dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0));
    OK(context, dlc_trainer_save(trainer, in_folder("a.safetensors")));
    how.cancel = &flag;
    /* raised beforehand: refused, and nothing is lost */
    flag = 1;
    CHECK(dlc_trainer_step(trainer, &how, batch, 1, NULL, NULL, 0) == DLC_CANCELLED);
    OK(context, dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0));
    /* raised on the way */
    flag = 0;
    CHECK(dlc_trainer_step(trainer, &how, batch, 1, NULL, NULL, 0) == DLC_CANCELLED);
    CHECK(strstr(dlc_error_message(context), "the state is lost"));
    CHECK(dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0) == DLC_INVALID_ARGUMENT);
    CHECK(strstr(dlc_error_message(context), "the state was lost"));
    CHECK(dlc_trainer_save(trainer, in_folder("b.safetensors")) == DLC_INVALID_ARGUMENT);
    CHECK(dlc_trainer_save_weights(trainer, in_folder("b.safetensors")) == DLC_INVALID_ARGUMENT);
    CHECK(dlc_trainer_evaluate(trainer, NULL, batch, 1, NULL, NULL, 0) == DLC_INVALID_ARGUMENT);
    OK(context, dlc_trainer_load(trainer, in_folder("a.safetensors")));
    OK(context, dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0));
    read_state(context, trainer, "trainer.step", &got);
    CHECK(got == 2);
    number = 0.25f;
    OK(context, dlc_trainer_set(trainer, "w", make_tensor(&set, DLC_F32, &number, 0, NULL) ? &set.dl : NULL));
    read_state(context, trainer, "w", &got);
    CHECK(got == 0.25);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
}

static void test_lost(void **state) {
    (void)state;
    for (int k = 0; k < TARGETS; k++) lose(all_targets[k]);
}

/* ---- values at the beginning ----------------------------------------------------------------------------------------------------------- */

static dlc_status build_initial(void *user, dlc_training *t, dlc_value *loss) {
    const DLTensor *given = user;
    dlc_parameter_options o = DLC_PARAMETER_OPTIONS_INIT;
    o.initial = DLC_INITIAL_NORMAL, o.scale = 2;
    dlc_value normal = dlc_training_parameter(t, "normal", DLC_F32, 2, SHAPE(64, 64), &o);
    o.initial = DLC_INITIAL_UNIFORM;
    dlc_value uniform = dlc_training_parameter(t, "uniform", DLC_F32, 2, SHAPE(64, 64), &o);
    o.initial = DLC_INITIAL_CONSTANT, o.scale = -1.5;
    dlc_value constant = dlc_training_parameter(t, "constant", DLC_F32, 1, SHAPE(64), &o);
    o.tensor = given;
    o.frozen = true;
    dlc_value tensor_ = dlc_training_parameter(t, "tensor", DLC_F32, 2, SHAPE(2, 3), &o);
    dlc_value again = dlc_training_parameter(t, "tensor", DLC_F32, 2, SHAPE(2, 3), &o);
    dlc_value sum = dlc_add(dlc_reduce_sum(normal, 0, NULL), dlc_reduce_sum(uniform, 0, NULL));
    sum = dlc_add(sum, dlc_reduce_sum(constant, 0, NULL));
    *loss = dlc_add(sum, dlc_reduce_sum(dlc_mul(tensor_, again), 0, NULL));
    return DLC_OK;
}

static void test_initial(void **state) {
    (void)state;
    static double n[4096], u[4096];
    double c[64], got[6];
    float given[6] = {1, 2, 3, 4, 5, 6};
    tensor transposed;
    make_tensor(&transposed, DLC_F32, given, 2, SHAPE(2, 3));
    transposed.strides[0] = 1, transposed.strides[1] = 2;
    transposed.dl.strides = transposed.strides;
    dlc_context *context = open_context("interp", NULL);
    dlc_trainer *trainer;
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    options.average_decay = 0.5;
    OK(context, dlc_trainer_create(context, build_initial, &transposed.dl, &options, &trainer));
    read_state(context, trainer, "normal", n);
    read_state(context, trainer, "uniform", u);
    read_state(context, trainer, "constant", c);
    read_state(context, trainer, "tensor", got);
    double mean = 0, square = 0, least = 0, most = 0;
    for (int i = 0; i < 4096; i++) {
        mean += n[i] / 4096, square += n[i] * n[i] / 4096;
        least = fmin(least, u[i]), most = fmax(most, u[i]);
    }
    CHECK(fabs(mean) < 0.15 && fabs(square - 4) < 0.4 && least < -1.9 && least >= -2 && most > 1.9 && most <= 2);
    for (int i = 0; i < 64; i++) CHECK(c[i] == -1.5);
    for (int i = 0; i < 6; i++) CHECK(got[i] == given[i % 3 * 2 + i / 3]);
    /* a frozen one stays, and has neither slots nor an average */
    OK(context, dlc_trainer_step(trainer, NULL, NULL, 0, NULL, NULL, 0));
    read_state(context, trainer, "tensor", got);
    for (int i = 0; i < 6; i++) CHECK(got[i] == given[i % 3 * 2 + i / 3]);
    DLManagedTensorVersioned *none;
    CHECK(dlc_trainer_tensor(trainer, "m.tensor", &none) == DLC_NOT_FOUND);
    CHECK(dlc_trainer_tensor(trainer, "average.tensor", &none) == DLC_NOT_FOUND);
    check_weights(context, trainer);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
}

static void test_order(void **state) {
    (void)state;
    int64_t a[100], b[100], c[100];
    bool seen[100] = {false};
    int moved = 0, differ = 0;
    dlc_training_order(4, 9, 100, a);
    dlc_training_order(4, 9, 100, b);
    dlc_training_order(4, 10, 100, c);
    for (int i = 0; i < 100; i++) {
        CHECK(a[i] >= 0 && a[i] < 100 && !seen[a[i]] && a[i] == b[i]);
        seen[a[i]] = true;
        moved += a[i] != i;
        differ += a[i] != c[i];
    }
    CHECK(moved > 80 && differ > 80);
}

/* ---- mistakes ----------------------------------------------------------------------------------------------------------------------------- */

/* A value of another graph, of more nodes than that of the training. */
static dlc_value foreign;

static dlc_status build_wrongly(void *user, dlc_training *t, dlc_value *loss) {
    const int mistake = *(const int *)user;
    dlc_graph *g = dlc_training_graph(t);
    dlc_parameter_options frozen = DLC_PARAMETER_OPTIONS_INIT, wrong = DLC_PARAMETER_OPTIONS_INIT;
    float given[4] = {0};
    tensor of_four;
    frozen.frozen = mistake == 1;
    wrong.tensor = &make_tensor(&of_four, DLC_F32, given, 1, SHAPE(4))->dl;
    dlc_value x = dlc_training_input(t, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_value w = dlc_training_parameter(t, "w", DLC_F32, 0, NULL, mistake == 6 ? &wrong : NULL);
    dlc_value unused = dlc_training_parameter(t, "unused", DLC_F32, 1, SHAPE(2), &frozen);
    if (mistake != 2)
        w = dlc_add(w, dlc_mul(dlc_reduce_sum(unused, 0, NULL), dlc_scalar(g, DLC_F32, mistake == 1 ? 0 : 1)));
    if (mistake == 3) dlc_training_input(t, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(2)));
    if (mistake == 4) dlc_training_parameter(t, "w", DLC_F64, 0, NULL, NULL);
    if (mistake == 5) dlc_training_parameter(t, "v.w", DLC_F16, 0, NULL, NULL);
    if (mistake == 7) dlc_training_carried(t, "c", DLC_I32, 1, SHAPE(2), NULL);
    if (mistake == 8) dlc_training_carry(t, "w", w);
    if (mistake == 9) dlc_input(g, "y", DLC_F32, 0, NULL);
    if (mistake == 10) return DLC_UNSUPPORTED;
    if (mistake == 11) dlc_matmul(x, dlc_transpose(x, 2, (int64_t[]){0, 1}));
    if (mistake == 12) return DLC_OK;
    if (mistake == 15) dlc_training_parameter(t, "m.w", DLC_F32, 0, NULL, &frozen);
    if (mistake == 16) dlc_training_parameter(t, NULL, DLC_F32, 0, NULL, NULL);
    if (mistake == 17) dlc_training_parameter(t, "trainer.step", DLC_F32, 1, SHAPE(-1), NULL);
    if (mistake == 18 && !dlc_training_is_step(t)) dlc_training_parameter(t, "late", DLC_F32, 0, NULL, NULL);
    if (mistake == 19) return *loss = foreign, DLC_OK;
    if (mistake == 20) dlc_training_carried(t, "c", (dlc_dtype)1000, 1, SHAPE(2), NULL);
    if (mistake == 21) {
        dlc_value v = dlc_training_parameter(t, "v", DLC_F32, 0, NULL, NULL);
        w = dlc_add(w, dlc_add(dlc_stop_gradient(v), dlc_round(v)));
    }
    if (mistake == 22) dlc_training_carried(t, "__metadata__", DLC_F32, 0, NULL, NULL);
    if (mistake == 23) dlc_training_carried(t, "v\xff", DLC_F32, 0, NULL, NULL);
    *loss = mistake == 13 ? dlc_mul(x, w) : mistake == 14 ? dlc_cast(w, DLC_I32) : dlc_mean(dlc_mul(x, w), 0, NULL);
    return DLC_OK;
}

static void refused(dlc_context *context, int mistake, const dlc_trainer_options *options, dlc_status status,
                    const char *words) {
    dlc_trainer *trainer;
    const dlc_status got = dlc_trainer_create(context, build_wrongly, &mistake, options, &trainer);
    if (got != status || trainer || !strstr(dlc_error_message(context), words))
        failed("mistake %d: status %d (%s), expected %d (%s)", mistake, (int)got, dlc_error_message(context),
               (int)status, words);
}

static void test_mistakes(void **state) {
    (void)state;
    static const struct {
        dlc_status status;
        const char *words;
    } of_function[] = {
        {DLC_INVALID_ARGUMENT, "does not depend on parameter unused"},
        {DLC_INVALID_ARGUMENT, "x was declared with another type or shape"},
        {DLC_INVALID_ARGUMENT, "w was declared with another type"},
        {DLC_UNSUPPORTED, "v.w is f16"},
        {DLC_INVALID_ARGUMENT, "w: options.tensor"},
        {DLC_INVALID_ARGUMENT, "no next value of c"},
        {DLC_INVALID_ARGUMENT, "no carried value called w"},
        {DLC_INVALID_ARGUMENT, "use dlc_training_input"},
        {DLC_UNSUPPORTED, "the function failed"},
        {DLC_INVALID_ARGUMENT, "transpose"},
        {DLC_INVALID_ARGUMENT, "gives no loss"},
        {DLC_INVALID_ARGUMENT, "the loss is f32 of rank 1"},
        {DLC_INVALID_ARGUMENT, "the loss is i32"},
        {DLC_INVALID_ARGUMENT, "m.w"},
        {DLC_INVALID_ARGUMENT, "(no name)"},
        {DLC_INVALID_ARGUMENT, "dimension 0 is -1"},
        {DLC_INVALID_ARGUMENT, "late was not declared"},
        {DLC_INVALID_ARGUMENT, "the loss is a value of another graph"},
        {DLC_INVALID_ARGUMENT, "c: 1000 is no element type"},
        {DLC_INVALID_ARGUMENT, "does not depend on parameter v, or not through numbers"},
        {DLC_INVALID_ARGUMENT, "\"__metadata__\" is no name of a tensor in a file"},
        {DLC_INVALID_ARGUMENT, "\"v\xff\" is no name of a tensor in a file"},
    };
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *other;
    OK(context, dlc_graph_create(context, &other));
    foreign = dlc_input(other, "z", DLC_F32, 0, NULL);
    for (int i = 0; i < 5000; i++) foreign = dlc_exp(foreign);
    for (int i = 0; i < (int)(sizeof of_function / sizeof *of_function); i++)
        refused(context, i + 2, NULL, of_function[i].status, of_function[i].words);
    dlc_graph_destroy(other);

    const dlc_optimizer_setting bogus = {"betal", 0.5};
    static const struct {
        const char *optimizer, *rate, *update;
        dlc_status status;
        const char *words;
    } of_text[] = {
        {"adan", NULL, NULL, DLC_NOT_FOUND, "did you mean \"adam\""},
        {NULL, "0.1*(step", NULL, DLC_PARSE_ERROR, "options.rate"},
        {NULL, "0.1*stop", NULL, DLC_PARSE_ERROR, "did you mean \"step\""},
        {NULL, "step < 3", NULL, DLC_INVALID_ARGUMENT, "is not a number"},
        {NULL, "nothing(step)", NULL, DLC_NOT_FOUND, "nothing"},
        {NULL, NULL, "w = w - ", DLC_PARSE_ERROR, "update"},
        {NULL, NULL, "w = 0", DLC_INVALID_ARGUMENT, "w has not the parameter's type"},
        {NULL, NULL, "w = w - rate*q", DLC_PARSE_ERROR, "nothing called q"},
        {NULL, NULL, "w w", DLC_PARSE_ERROR, "update"},
    };
    for (size_t i = 0; i < sizeof of_text / sizeof *of_text; i++) {
        const dlc_optimizer own = {.name = "own", .update = of_text[i].update};
        dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
        options.optimizer = of_text[i].optimizer, options.rate = of_text[i].rate;
        if (of_text[i].update) options.own = &own;
        refused(context, 0, &options, of_text[i].status, of_text[i].words);
    }
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    options.settings = &bogus, options.setting_count = 1;
    refused(context, 0, &options, DLC_INVALID_ARGUMENT, "did you mean \"beta1\"");
    options = (dlc_trainer_options)DLC_TRAINER_OPTIONS_INIT;
    options.dynamic_loss_scale = true;
    refused(context, 0, &options, DLC_INVALID_ARGUMENT, "DLC_NOT_FINITE_SKIP");
    options = (dlc_trainer_options)DLC_TRAINER_OPTIONS_INIT;
    options.clip_norm = -1;
    refused(context, 0, &options, DLC_INVALID_ARGUMENT, "clip_norm");
    options.struct_size = 3;
    refused(context, 0, &options, DLC_INVALID_ARGUMENT, "DLC_TRAINER_OPTIONS_INIT");

    /* Of steps: the state stays as it was. */
    const model m = {.dtype = DLC_F64};
    dlc_trainer *trainer = create(context, &m, NULL);
    char before[4096], after[4096];
    tensor x, y, short_y;
    OK(context, step64(trainer, ROWS, NULL));
    const size_t size = state_bytes(context, trainer, before, sizeof before);
    make_tensor(&x, DLC_F64, data_x, 2, SHAPE(ROWS, IN));
    make_tensor(&y, DLC_F32, data_y, 2, SHAPE(ROWS, OUT));
    make_tensor(&short_y, DLC_F64, data_y, 2, SHAPE(ROWS - 1, OUT));
    CHECK(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x.dl}, 1, NULL, NULL, 0) == DLC_INVALID_ARGUMENT);
    CHECK(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x.dl, &y.dl}, 2, NULL, NULL, 0) ==
          DLC_INVALID_ARGUMENT);
    CHECK(strstr(dlc_error_message(context), "wanted"));
    CHECK(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x.dl, &short_y.dl}, 2, NULL, NULL, 0) ==
          DLC_INVALID_ARGUMENT);
    CHECK(dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x.dl, NULL}, 2, NULL, NULL, 0) == DLC_INVALID_ARGUMENT);
    bool begun = true;
    dlc_event *event = (dlc_event *)(void *)&x;
    dlc_run_options how = DLC_RUN_OPTIONS_INIT;
    how.begun = &begun;
    CHECK(dlc_trainer_step(NULL, &how, NULL, 0, NULL, NULL, 0) == DLC_INVALID_ARGUMENT && !begun);
    begun = true;
    CHECK(dlc_trainer_step(trainer, &how, NULL, 0, NULL, NULL, 0) == DLC_INVALID_ARGUMENT && !begun);
    begun = true;
    CHECK(dlc_trainer_evaluate(trainer, &how, NULL, 0, NULL, NULL, 0) == DLC_INVALID_ARGUMENT && !begun);
    how.event = &event;
    CHECK(dlc_trainer_step(trainer, &how, NULL, 0, NULL, NULL, 0) == DLC_INVALID_ARGUMENT && !event);
    CHECK(dlc_trainer_set(trainer, "w", &y.dl) == DLC_INVALID_ARGUMENT &&
          dlc_trainer_set(trainer, "ww", &y.dl) == DLC_NOT_FOUND);
    CHECK(state_bytes(context, trainer, after, sizeof after) == size && memcmp(before, after, size) == 0);
    OK(context, step64(trainer, ROWS, NULL));
    dlc_trainer_destroy(trainer);
    dlc_trainer_destroy(NULL);
    dlc_context_destroy(context);
}

/* Memory is refused at each site in turn: of creation, of the first step, of saving and loading. */
static void test_refused_memory(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_counted("interp", &c);
    const model m = {.dtype = DLC_F64};
    dlc_trainer *trainer = NULL;
    for (int64_t left = 0; !trainer; left += 1 + left / 16) {
        atomic_store(&c.left, left);
        const dlc_status status = dlc_trainer_create(context, build_model, (void *)&m, NULL, &trainer);
        atomic_store(&c.left, -1);
        CHECK(status == (trainer ? DLC_OK : DLC_OUT_OF_MEMORY));
    }
    bool done = false;
    for (int64_t left = 0; !done; left += 1 + left / 16) {
        char before[4096], after[4096];
        const size_t size = state_bytes(context, trainer, before, sizeof before);
        atomic_store(&c.left, left);
        const dlc_status status = step64(trainer, ROWS, NULL);
        atomic_store(&c.left, -1);
        done = status == DLC_OK;
        CHECK(done || status == DLC_OUT_OF_MEMORY);
        CHECK(done || (state_bytes(context, trainer, after, sizeof after) == size && memcmp(before, after, size) == 0));
    }
    done = false;
    for (int64_t left = 0; !done; left++) {
        atomic_store(&c.left, left);
        dlc_status status = dlc_trainer_save(trainer, in_folder("a.safetensors"));
        if (status == DLC_OK) status = dlc_trainer_load(trainer, in_folder("a.safetensors"));
        if (status == DLC_OK) status = dlc_trainer_save_weights(trainer, in_folder("w.safetensors"));
        atomic_store(&c.left, -1);
        done = status == DLC_OK;
        if (!done && status != DLC_OUT_OF_MEMORY) failed("%d: %s", (int)status, dlc_error_message(context));
    }
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
    CHECK(atomic_load(&c.blocks) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_dropout_in_parts),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bits_of_large_steps),
        cmocka_unit_test(test_checkpoints_of_other_shapes),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_damaged_checkpoints),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_initial),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_refused_memory),
    };
    return cmocka_run_group_tests_name("trainers", tests, make_folder, remove_folder);
}
