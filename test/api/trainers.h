/* Shared by the tests of trainers: a linear model, its gradients in double precision, steps, a folder. */
#ifndef TEST_API_TRAINERS_H
#define TEST_API_TRAINERS_H

#include "api/support.h"

#include <dlc/extend.h>
#include <dlc/train.h>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

enum { ROWS = 12, IN = 5, OUT = 3, W = IN * OUT };

/* ---- a linear model: mean over all elements of (x w + b - y)^2 -------------------------------------------------------------- */

typedef struct model {
    dlc_dtype dtype;
    /* multiplies x by dropout, and by a number that the host may make infinite */
    bool dropout, factor;
    /* a running mean of the rows of x is carried; the prediction is an output */
    bool carries, predicts;
    /* the number of steps is an output */
    bool counts;
} model;

static inline dlc_status build_model(void *user, dlc_training *t, dlc_value *loss) {
    const model *m = user;
    dlc_parameter_options uniform = DLC_PARAMETER_OPTIONS_INIT;
    uniform.initial = DLC_INITIAL_UNIFORM;
    uniform.scale = 0.5;
    dlc_value x = dlc_training_input(t, "x", m->dtype, 2, DIMS(SYMBOL("n"), SIZE(IN)));
    dlc_value w = dlc_training_parameter(t, "w", m->dtype, 2, SHAPE(IN, OUT), &uniform);
    dlc_value b = dlc_training_parameter(t, "b", m->dtype, 1, SHAPE(OUT), NULL);
    if (m->factor) x = dlc_mul(x, dlc_training_input(t, "factor", m->dtype, 0, NULL));
    if (m->carries) {
        dlc_value mean = dlc_training_carried(t, "mean", m->dtype, 1, SHAPE(IN), NULL);
        dlc_value now = dlc_mean(x, 1, (int64_t[]){0}), half = dlc_scalar(dlc_training_graph(t), m->dtype, 0.5);
        dlc_training_carry(t, "mean", dlc_mul(dlc_add(mean, now), half));
    }
    if (m->dropout && dlc_training_is_step(t)) x = dlc_dropout(x, dlc_training_key(t), 0.25);
    dlc_value y = dlc_linear(x, w, b);
    if (m->predicts) dlc_training_output(t, "y", y);
    if (m->counts) dlc_training_output(t, "steps", dlc_training_steps(t));
    dlc_value wanted = dlc_training_input(t, "wanted", m->dtype, 2, DIMS(SYMBOL("n"), SIZE(OUT)));
    dlc_value error = dlc_sub(y, wanted);
    *loss = dlc_mean(dlc_mul(error, error), 0, NULL);
    return DLC_OK;
}

/* A batch of the model in double precision. */
static double data_x[ROWS * IN], data_y[ROWS * OUT];

static inline void make_data(void) {
    uint32_t seed = 7;
    for (int i = 0; i < ROWS * IN; i++) data_x[i] = noise(&seed);
    for (int i = 0; i < ROWS * OUT; i++) data_y[i] = noise(&seed);
}

/* The loss; g: gradients of w, then of b. */
static inline double reference_loss(const double *w, double *g) {
    double loss = 0;
    memset(g, 0, (W + OUT) * sizeof *g);
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            double e = w[W + o] - data_y[r * OUT + o];
            for (int i = 0; i < IN; i++) e += data_x[r * IN + i] * w[i * OUT + o];
            loss += e * e / (ROWS * OUT);
            for (int i = 0; i < IN; i++) g[i * OUT + o] += 2 * e * data_x[r * IN + i] / (ROWS * OUT);
            g[W + o] += 2 * e / (ROWS * OUT);
        }
    return loss;
}

static inline dlc_trainer *create(dlc_context *context, const model *m, const dlc_trainer_options *options) {
    dlc_trainer *trainer;
    OK(context, dlc_trainer_create(context, build_model, (void *)m, options, &trainer));
    return trainer;
}

static inline void read_state(dlc_context *context, dlc_trainer *trainer, const char *name, double *out) {
    DLManagedTensorVersioned *copy;
    OK(context, dlc_trainer_tensor(trainer, name, &copy));
    int64_t count = 1;
    for (int d = 0; d < copy->dl_tensor.ndim; d++) count *= copy->dl_tensor.shape[d];
    const void *data = copy->dl_tensor.data;
    for (int64_t i = 0; i < count; i++)
        out[i] = copy->dl_tensor.dtype.code == kDLInt ? (double)((const int64_t *)data)[i]
                 : copy->dl_tensor.dtype.bits == 64   ? ((const double *)data)[i]
                                                      : ((const float *)data)[i];
    copy->deleter(copy);
}

static inline dlc_status step64(dlc_trainer *trainer, int64_t rows, dlc_training_report *report) {
    tensor x, y;
    make_tensor(&x, DLC_F64, data_x, 2, SHAPE(rows, IN));
    make_tensor(&y, DLC_F64, data_y, 2, SHAPE(rows, OUT));
    return dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x.dl, &y.dl}, 2, report, NULL, 0);
}

static inline dlc_status step32(dlc_trainer *trainer, const dlc_run_options *how, float factor,
                                dlc_training_report *report) {
    float x[ROWS * IN], y[ROWS * OUT];
    tensor tx, ty, tf;
    for (int i = 0; i < ROWS * IN; i++) x[i] = (float)data_x[i];
    for (int i = 0; i < ROWS * OUT; i++) y[i] = (float)data_y[i];
    make_tensor(&tf, DLC_F32, &factor, 0, NULL);
    return dlc_trainer_step(trainer, how, (const DLTensor *[]){F32(&tx, x, ROWS, IN), &tf.dl, F32(&ty, y, ROWS, OUT)},
                            3, report, NULL, 0);
}

/* ---- a folder for the files of the tests ------------------------------------------------------------------------------------------ */

static char trainer_folder[] = "/tmp/dlc-train-XXXXXX";

static inline const char *in_folder(const char *name) {
    static char path[4][128];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", trainer_folder, name);
    return path[next];
}

static inline int make_folder(void **state) {
    (void)state;
    make_data();
    return mkdtemp(trainer_folder) ? 0 : 1;
}

/* Removes the folder with all files in it, temporary files of killed processes included. */
static inline int remove_folder(void **state) {
    (void)state;
    DIR *all = opendir(trainer_folder);
    assert_non_null(all);
    for (const struct dirent *entry; (entry = readdir(all));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            assert_int_equal(unlinkat(dirfd(all), entry->d_name, 0), 0);
    closedir(all);
    return rmdir(trainer_folder);
}

#endif
