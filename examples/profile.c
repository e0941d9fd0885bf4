/* Time per kernel, and the source of a NaN: the profile of a program, intermediate values (dlc_program_tap), and a run that stops at the
 * first NaN. The model: softmax(log(x) w). */
#include <dlc/dlc.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, WIDTH = 128 };

typedef struct model {
    dlc_context *context;
    dlc_program *program;
    DLTensor x, y;
} model;

static void show_tap(void *user, int tap, const char *name, const DLTensor *tensor) {
    const float *data = tensor->data;
    (void)user, (void)tap;
    printf("%s: [%lld, %lld], first element %.4f\n", name, (long long)tensor->shape[0], (long long)tensor->shape[1],
           (double)data[0]);
}

/* The graph is destroyed when this returns; taps stay valid. */
static dlc_status build(model *m, const float *weights) {
    dlc_graph *graph;
    dlc_status status = dlc_graph_create(m->context, &graph);
    if (status != DLC_OK) return status;
    dlc_value x = dlc_input(graph, "x", DLC_F32, 2, (dlc_dim[]){{0, "rows"}, {WIDTH, NULL}});
    dlc_value logs = dlc_name(dlc_log(x), "logs"); /* name in profiles, taps and messages */
    dlc_value w = dlc_constant(graph, DLC_F32, 2, (int64_t[]){WIDTH, WIDTH}, weights);
    dlc_value scores = dlc_name(dlc_matmul(logs, w), "scores");
    dlc_output(graph, "y", dlc_softmax(scores, -1));
    status = dlc_compile(m->context, graph, NULL, &m->program);
    if (status == DLC_OK) status = dlc_program_tap(m->program, 2, (const dlc_value[]){logs, scores}, show_tap, NULL);
    dlc_graph_destroy(graph);
    return status;
}

static dlc_status run(model *m, const dlc_run_options *options) {
    return dlc_run(m->program, options, (const DLTensor *[]){&m->x}, 1, &(dlc_output_slot){&m->y, NULL}, 1);
}

static dlc_status show_profile(model *m) {
    char *text;
    dlc_program_profile(m->program, 1);
    dlc_status status = DLC_OK;
    for (int i = 0; i < 100 && status == DLC_OK; i++) status = run(m, NULL);
    dlc_program_profile(m->program, 0);
    if (status == DLC_OK)
        status = dlc_program_dump(m->program, "profile", (const int64_t *[]){m->x.shape}, (const int[]){2}, 1, &text);
    if (status != DLC_OK) return status;
    printf("%s", text);
    dlc_text_free(m->context, text);
    return DLC_OK;
}

int main(void) {
    static float x[ROWS][WIDTH], y[ROWS][WIDTH], weights[WIDTH][WIDTH];
    int64_t shape[2] = {ROWS, WIDTH};
    model m = {NULL, NULL, {.ndim = 2, .shape = shape}, {.ndim = 2, .shape = shape}};
    m.x.device = m.y.device = (DLDevice){kDLCPU, 0};
    m.x.dtype = m.y.dtype = (DLDataType){kDLFloat, 32, 1};
    m.x.data = x, m.y.data = y;
    for (int i = 0; i < ROWS * WIDTH; i++) (&x[0][0])[i] = 1.5f + (float)sin(i);
    for (int i = 0; i < WIDTH * WIDTH; i++) (&weights[0][0])[i] = (float)cos(i);
    dlc_status status = dlc_context_create(NULL, &m.context);
    if (status == DLC_OK) status = build(&m, &weights[0][0]);
    if (status == DLC_OK) status = run(&m, NULL);                                   /* tapped */
    if (status == DLC_OK) status = dlc_program_tap(m.program, 0, NULL, NULL, NULL); /* no longer tapped */
    if (status == DLC_OK) status = show_profile(&m);
    if (status != DLC_OK) return fprintf(stderr, "%s\n", dlc_error_message(m.context)), 1;

    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.stop_at = DLC_STOP_AT_NAN;
    x[3][7] = -1; /* its logarithm is NaN */
    status = run(&m, &options);
    printf("%s: %s\n", dlc_status_text(status), dlc_error_message(m.context));
    dlc_program_destroy(m.program);
    dlc_context_destroy(m.context);
    return status != DLC_NOT_FINITE;
}
