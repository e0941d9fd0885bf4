/* Eager mode and tracing: one host function, called on tensors and on symbols, gives the same bits.
 *
 * The function is a step of gradient descent for logistic regression; the host's own loop decides by a number of the eager graph
 * when to stop. A program compiled from the traced function repeats the same steps bit for bit. */
#include <dlc/eager.h>

#include <stdio.h>
#include <string.h>

enum { ROWS = 64, FEATURES = 5, STEPS = 200 };

static float x[ROWS][FEATURES], y[ROWS];

/* Points at reproducible positions, on two sides of a plane. */
static void make_data(void) {
    uint32_t state = 7;
    for (int i = 0; i < ROWS; i++) {
        float side = 0.25f;
        for (int k = 0; k < FEATURES; k++) {
            state = state * 1664525u + 1013904223u;
            x[i][k] = (float)(int32_t)state / 2147483648.0f;
            side += x[i][k] * (float)(k - 2);
        }
        y[i] = side > 0 ? 1 : 0;
    }
}

/* Inputs x[n, f], y[n], w[f]; outputs: w after a step, the mean loss before it. Independent of the mode. */
static dlc_status step(void *user, dlc_graph *graph, int input_count, const dlc_value *inputs, int output_count,
                       dlc_value *outputs) {
    const double rate = *(const double *)user;
    if (input_count != 3 || output_count != 2) return DLC_INVALID_ARGUMENT;
    dlc_value points = inputs[0], truth = inputs[1], w = inputs[2];
    dlc_value p = dlc_logistic(dlc_matmul(points, w)), one = dlc_scalar(graph, DLC_F32, 1);
    dlc_value error = dlc_sub(p, truth);
    dlc_value gradient = dlc_matmul(error, points);
    outputs[0] = dlc_sub(w, dlc_mul(gradient, dlc_scalar(graph, DLC_F32, rate / (double)ROWS)));
    dlc_value likely = dlc_add(dlc_mul(truth, dlc_log(p)), dlc_mul(dlc_sub(one, truth), dlc_log(dlc_sub(one, p))));
    outputs[1] = dlc_neg(dlc_mean(likely, 0, NULL));
    return DLC_OK;
}

static DLTensor tensor(void *data, int rank, int64_t *shape) {
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static int64_t matrix[] = {ROWS, FEATURES}, column[] = {ROWS}, row[] = {FEATURES};

/* Steps until the loss hardly decreases; returns their number, or -1. */
static int run_eagerly(dlc_context *context, double *rate, float *w, float *loss) {
    dlc_graph *graph;
    if (dlc_eager_create(context, NULL, &graph) != DLC_OK) return -1;
    DLTensor tx = tensor(x, 2, matrix), ty = tensor(y, 1, column), tw = tensor(w, 1, row);
    /* x and y are borrowed, w is copied. */
    dlc_value values[] = {dlc_eager_borrow(graph, &tx), dlc_eager_borrow(graph, &ty), dlc_eager_tensor(graph, &tw)};
    double now, last = 1e30;
    int steps = 0;
    dlc_status status = DLC_OK;
    while (status == DLC_OK && steps < STEPS) {
        dlc_value results[2];
        status = step(rate, graph, 3, values, 2, results);
        if (status == DLC_OK) status = dlc_eager_evaluate(graph, 2, results); /* both in one run */
        if (status == DLC_OK) status = dlc_eager_number(graph, results[1], &now);
        if (status != DLC_OK) break;
        loss[steps++] = (float)now;
        values[2] = results[0];
        status = dlc_eager_step(graph, 3, values); /* all other values are released */
        if (last - now < 1e-4) break;
        last = now;
    }
    if (status == DLC_OK) status = dlc_eager_read(graph, values[2], &tw);
    if (status != DLC_OK) fprintf(stderr, "%s\n", dlc_error_message(context));
    dlc_graph_destroy(graph);
    return status == DLC_OK ? steps : -1;
}

static int run_compiled(dlc_context *context, double *rate, float *w, float *loss, int steps) {
    const dlc_dim rows = {0, "n"}, features = {0, "f"};
    const dlc_trace_input inputs[] = {
        {"x", DLC_F32, 2, (dlc_dim[]){rows, features}}, {"y", DLC_F32, 1, &rows}, {"w", DLC_F32, 1, &features}};
    dlc_graph *graph;
    dlc_program *program = NULL;
    dlc_status status = dlc_trace(context, step, rate, 3, inputs, 2, (const char *[]){"w", "loss"}, &graph);
    if (status == DLC_OK) {
        status = dlc_compile(context, graph, NULL, &program);
        dlc_graph_destroy(graph);
    }
    float next[FEATURES];
    DLTensor tx = tensor(x, 2, matrix), ty = tensor(y, 1, column), tw = tensor(w, 1, row), tn = tensor(next, 1, row);
    for (int i = 0; i < steps && status == DLC_OK; i++) {
        DLTensor tl = tensor(&loss[i], 0, NULL);
        const DLTensor *in[] = {&tx, &ty, &tw};
        dlc_output_slot out[] = {{&tn, NULL}, {&tl, NULL}};
        status = dlc_run(program, NULL, in, 3, out, 2);
        memcpy(w, next, sizeof next);
    }
    if (status != DLC_OK) fprintf(stderr, "%s\n", dlc_error_message(context));
    dlc_program_destroy(program);
    return status == DLC_OK ? 0 : 1;
}

int main(void) {
    static float w_eager[FEATURES], w_compiled[FEATURES], loss_eager[STEPS], loss_compiled[STEPS];
    double rate = 8;
    dlc_context *context;
    make_data();
    if (dlc_context_create(NULL, &context) != DLC_OK) {
        fprintf(stderr, "%s\n", dlc_error_message(NULL));
        return 1;
    }
    int steps = run_eagerly(context, &rate, w_eager, loss_eager);
    dlc_statistics before = DLC_STATISTICS_INIT, after = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &before);
    int failed = steps < 0 || run_compiled(context, &rate, w_compiled, loss_compiled, steps);
    dlc_context_statistics(context, &after);
    if (!failed) {
        bool same = memcmp(w_eager, w_compiled, sizeof w_eager) == 0 &&
                    memcmp(loss_eager, loss_compiled, (size_t)steps * sizeof *loss_eager) == 0;
        printf("%d steps, loss %.4f to %.4f; kernels: %llu built for the eager run, %llu more for the compiled one\n",
               steps, (double)loss_eager[0], (double)loss_eager[steps - 1], (unsigned long long)before.kernel_builds,
               (unsigned long long)(after.kernel_builds - before.kernel_builds));
        printf("eager and compiled: %s\n", same ? "the same bits" : "DIFFERENT");
        failed = !same;
    }
    dlc_context_destroy(context);
    return failed;
}
