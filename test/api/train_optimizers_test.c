/* <dlc/train.h>: the updates of each optimiser against its definition in double precision; what they copy. */
#include "api/trainers.h"

/* ---- optimisers ------------------------------------------------------------------------------------------------------------------- */

/* One element: w, its slots a and b, gradient g, rate r, decay d, step t from 1. Written from the papers and PyTorch's documentation. */
typedef void element_update(double *w, double *a, double *b, double g, double r, double d, double t);

static void by_sgd(double *w, double *a, double *b, double g, double r, double d, double t) {
    (void)a, (void)b, (void)t;
    *w -= r * (g + d * *w);
}
static void by_momentum(double *w, double *a, double *b, double g, double r, double d, double t) {
    (void)b, (void)t;
    *a = 0.9 * *a + g + d * *w;
    *w -= r * *a;
}
static void by_nesterov(double *w, double *a, double *b, double g, double r, double d, double t) {
    (void)b, (void)t;
    const double decayed = g + d * *w;
    *a = 0.9 * *a + decayed;
    *w -= r * (decayed + 0.9 * *a);
}
static void adam(double *w, double *a, double *b, double g, double r, double t) {
    *a += 0.1 * (g - *a);
    *b += 0.001 * (g * g - *b);
    const double first = *a / (1 - pow(0.9, t)), second = *b / (1 - pow(0.999, t));
    *w -= r * first / (sqrt(second) + 1e-8);
}
static void by_adam(double *w, double *a, double *b, double g, double r, double d, double t) {
    adam(w, a, b, g + d * *w, r, t);
}
static void by_adamw(double *w, double *a, double *b, double g, double r, double d, double t) {
    *w *= 1 - r * d;
    adam(w, a, b, g, r, t);
}
static void by_adagrad(double *w, double *a, double *b, double g, double r, double d, double t) {
    (void)b, (void)t;
    g += d * *w;
    *a += g * g;
    *w -= r * g / (sqrt(*a) + 1e-10);
}
static void by_rmsprop(double *w, double *a, double *b, double g, double r, double d, double t) {
    (void)b, (void)t;
    g += d * *w;
    *a = 0.99 * *a + 0.01 * g * g;
    *w -= r * g / (sqrt(*a) + 1e-8);
}
static void by_lion(double *w, double *a, double *b, double g, double r, double d, double t) {
    (void)b, (void)t;
    const double c = 0.9 * *a + 0.1 * g;
    *w -= r * ((c > 0) - (c < 0) + d * *w);
    *a = 0.99 * *a + 0.01 * g;
}
static const struct {
    const char *name;
    element_update *update;
} optimizers[] = {{"sgd", by_sgd},     {"momentum", by_momentum}, {"nesterov", by_nesterov}, {"adam", by_adam},
                  {"adamw", by_adamw}, {"adagrad", by_adagrad},   {"rmsprop", by_rmsprop},   {"lion", by_lion}};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

typedef struct options_case {
    double decay, clip_norm, clip_value, average;
} options_case;

static double rate_at(int step) {
    return 0.05 * fmin(1, step / 4.0) * (1 + cos(0.2 * step));
}

static void check_optimizer(dlc_context *context, int which, options_case c) {
    const model m = {.dtype = DLC_F64};
    const dlc_optimizer_setting decay = {"decay", c.decay};
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    dlc_training_report report = DLC_TRAINING_REPORT_INIT;
    double w[W + OUT], a[W + OUT] = {0}, b[W + OUT] = {0}, average[W + OUT], g[W + OUT], got[W];
    options.optimizer = optimizers[which].name;
    options.rate = "0.05*min(1, step/4)*(1 + cos(0.2*step))";
    options.settings = &decay, options.setting_count = 1;
    options.clip_norm = c.clip_norm, options.clip_value = c.clip_value, options.average_decay = c.average;
    options.seed = 3;
    dlc_trainer *trainer = create(context, &m, &options);
    read_state(context, trainer, "w", w);
    read_state(context, trainer, "b", w + W);
    memcpy(average, w, sizeof w);
    for (int t = 1; t <= 12; t++) {
        const double loss = reference_loss(w, g);
        double norm = 0;
        for (int i = 0; i < W + OUT; i++) {
            if (c.clip_value > 0) g[i] = fmax(-c.clip_value, fmin(g[i], c.clip_value));
            norm += g[i] * g[i];
        }
        norm = sqrt(norm);
        for (int i = 0; i < W + OUT; i++) {
            if (c.clip_norm > 0 && norm > c.clip_norm) g[i] *= c.clip_norm / norm;
            optimizers[which].update(&w[i], &a[i], &b[i], g[i], rate_at(t), i < W ? c.decay : 0, t);
            average[i] = c.average * average[i] + (1 - c.average) * w[i];
        }
        OK(context, step64(trainer, ROWS, &report));
        CHECK(fabs(report.loss - loss) < 1e-12 && fabs(report.rate - rate_at(t)) < 1e-15);
        CHECK(fabs(report.norm - (c.clip_norm > 0 ? norm : 0)) < 1e-12 && report.step == t && report.skipped == 0);
        read_state(context, trainer, "w", got);
        for (int i = 0; i < W; i++)
            if (!(fabs(got[i] - w[i]) < 1e-11))
                failed("%s, step %d: w[%d] is %.17g, expected %.17g", options.optimizer, t, i, got[i], w[i]);
        read_state(context, trainer, "b", got);
        for (int i = 0; i < OUT; i++) CHECK(fabs(got[i] - w[W + i]) < 1e-11);
    }
    if (c.average > 0) {
        read_state(context, trainer, "average.w", got);
        for (int i = 0; i < W; i++) CHECK(fabs(got[i] - average[i]) < 1e-11);
        /* evaluation reads the averages */
        double loss, ignored[W + OUT];
        tensor x, y;
        make_tensor(&x, DLC_F64, data_x, 2, SHAPE(ROWS, IN));
        make_tensor(&y, DLC_F64, data_y, 2, SHAPE(ROWS, OUT));
        OK(context, dlc_trainer_evaluate(trainer, NULL, (const DLTensor *[]){&x.dl, &y.dl}, 2, &loss, NULL, 0));
        CHECK(fabs(loss - reference_loss(average, ignored)) < 1e-12);
    }
    dlc_trainer_destroy(trainer);
}

static void test_optimizers(void **state) {
    (void)state;
    static const options_case cases[] = {{0, 0, 0, 0},    {0.1, 0, 0, 0},          {0.1, 0.05, 0, 0.9},
                                         {0, 0, 0.02, 0}, {0.01, 0.03, 0.02, 0.5}, {0, 1e6, 0, 0}};
    make_data();
    for (int k = 0; k < TARGETS; k++) {
        dlc_context *context = open_context(all_targets[k], NULL);
        if (!context) continue;
        for (int i = 0; i < OPTIMIZERS; i++)
            for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
                if (k == 0 || (int)c == i % 6) check_optimizer(context, i, cases[c]);
        dlc_context_destroy(context);
    }
}

static void test_own_optimizer(void **state) {
    (void)state;
    const dlc_optimizer own = {.name = "own",
                               .slots = "s",
                               .settings = "power=2 floor=0.5",
                               .update = "s = max(s, pow(abs(g), power)); big = s > floor; "
                                         "w = w - rate*select(big, g/sqrt(s), -(-g))/step;"};
    const model m = {.dtype = DLC_F64};
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    double w[W + OUT], s[W + OUT] = {0}, g[W + OUT], got[W];
    make_data();
    dlc_context *context = open_context("interp", NULL);
    options.own = &own;
    options.rate = "0.1";
    dlc_trainer *trainer = create(context, &m, &options);
    read_state(context, trainer, "w", w);
    read_state(context, trainer, "b", w + W);
    for (int t = 1; t <= 5; t++) {
        reference_loss(w, g);
        for (int i = 0; i < W + OUT; i++) {
            s[i] = fmax(s[i], g[i] * g[i]);
            w[i] -= 0.1 * (s[i] > 0.5 ? g[i] / sqrt(s[i]) : g[i]) / t;
        }
        OK(context, step64(trainer, ROWS, NULL));
    }
    read_state(context, trainer, "w", got);
    for (int i = 0; i < W; i++) CHECK(fabs(got[i] - w[i]) < 1e-12);
    read_state(context, trainer, "s.w", got);
    for (int i = 0; i < W; i++) CHECK(fabs(got[i] - s[i]) < 1e-12);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
}

/* A slot that a setting of 0 makes 0: zeros of the parameter's shape. */
static void test_zero_setting(void **state) {
    (void)state;
    const dlc_optimizer own = {
        .name = "own", .slots = "s", .settings = "keep=0.5", .update = "s = -(s + 1)*keep; w = w - rate*(g + s)"};
    const dlc_optimizer_setting none = {"keep", 0};
    const model m = {.dtype = DLC_F64};
    dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
    double w[W + OUT], g[W + OUT], got[W], slot[W];
    make_data();
    dlc_context *context = open_context("interp", NULL);
    options.own = &own, options.rate = "0.1";
    options.settings = &none, options.setting_count = 1;
    dlc_trainer *trainer = create(context, &m, &options);
    read_state(context, trainer, "w", w);
    read_state(context, trainer, "b", w + W);
    reference_loss(w, g);
    OK(context, step64(trainer, ROWS, NULL));
    read_state(context, trainer, "w", got);
    read_state(context, trainer, "s.w", slot);
    for (int i = 0; i < W; i++) CHECK(fabs(got[i] - (w[i] - 0.1 * g[i])) < 1e-12 && slot[i] == 0);
    dlc_trainer_destroy(trainer);
    dlc_context_destroy(context);
}

/* A step whose shapes are bound allocates nothing and copies no parameter, whatever the optimiser: lion's slot, which is read for two outputs that do
 * not depend on each other, is written in a phase of its own where it is large. */
static dlc_status build_wide(void *user, dlc_training *t, dlc_value *loss) {
    (void)user;
    dlc_value x = dlc_training_input(t, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(96)));
    dlc_value y = dlc_matmul(x, dlc_training_parameter(t, "w", DLC_F32, 2, SHAPE(96, 1024), NULL));
    *loss = dlc_mean(dlc_mul(y, dlc_sub(y, dlc_scalar(dlc_training_graph(t), DLC_F32, 1))), 0, NULL);
    return DLC_OK;
}

/* After two steps, the state is that of the interpreter, whose plans share other buffers. */
static void check_like_interpreter(dlc_trainer *trainer, dlc_context *context, const dlc_trainer_options *options,
                                   const DLTensor *const *batch) {
    static double one[96 * 1024], two[96 * 1024];
    dlc_context *other = open_context("interp", NULL);
    dlc_trainer *slow;
    OK(other, dlc_trainer_create(other, build_wide, NULL, options, &slow));
    for (int s = 0; s < 2; s++) OK(other, dlc_trainer_step(slow, NULL, batch, 1, NULL, NULL, 0));
    for (int i = 0; i < dlc_trainer_count(slow); i++) {
        memset(one, 0, sizeof one), memset(two, 0, sizeof two);
        read_state(context, trainer, dlc_trainer_name(slow, i), one);
        read_state(other, slow, dlc_trainer_name(slow, i), two);
        for (int k = 0; k < 96 * 1024; k++)
            if (!(fabs(one[k] - two[k]) <= 1e-6 + 1e-4 * fabs(two[k])))
                failed("%s: %s[%d] is %g, expected %g", options->optimizer, dlc_trainer_name(slow, i), k, one[k],
                       two[k]);
    }
    dlc_trainer_destroy(slow);
    dlc_context_destroy(other);
}

static void test_in_place(void **state) {
    (void)state;
    static float data[4 * 96];
    tensor x;
    fill(data, 4 * 96, 3);
    for (int i = 0; i < OPTIMIZERS; i++) {
        counter c;
        dlc_context *context = open_counted("cpu", &c);
        if (!context) skip();
        const dlc_optimizer_setting decay = {"decay", 0.1};
        dlc_trainer_options options = DLC_TRAINER_OPTIONS_INIT;
        options.optimizer = optimizers[i].name;
        options.rate = "0.01/step";
        options.settings = &decay, options.setting_count = 1;
        dlc_trainer *trainer;
        OK(context, dlc_trainer_create(context, build_wide, NULL, &options, &trainer));
        const DLTensor *batch[] = {F32(&x, data, 4, 96)};
        for (int s = 0; s < 2; s++) OK(context, dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0));
        check_like_interpreter(trainer, context, &options, batch);
        for (int s = 0; s < 40; s++) OK(context, dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0));
        const int64_t calls = atomic_load(&c.calls);
        const uint64_t copied = statistics(context).copied_bytes;
        for (int s = 0; s < 40; s++) OK(context, dlc_trainer_step(trainer, NULL, batch, 1, NULL, NULL, 0));
        if (atomic_load(&c.calls) != calls || statistics(context).copied_bytes != copied)
            failed("%s: %ld allocations and %ld bytes copied in 40 steps", options.optimizer,
                   (long)(atomic_load(&c.calls) - calls), (long)(statistics(context).copied_bytes - copied));
        dlc_trainer_destroy(trainer);
        dlc_context_destroy(context);
        CHECK(atomic_load(&c.blocks) == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_own_optimizer),
        cmocka_unit_test(test_zero_setting),
        cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests_name("optimisers of trainers", tests, NULL, NULL);
}
