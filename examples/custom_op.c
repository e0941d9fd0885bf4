/* The host's own functions inside a graph: one with the signature in which the library passes tensors, and one with an arbitrary
 * signature, called through libffi. The operators in between are compiled as usual. */
#include <dlc/dlc.h>

#include <math.h>
#include <stdio.h>

enum { ROWS = 3, COLUMNS = 8 };

/* An existing function of the host: each element moved towards the mean of its neighbours in the row. */
static void smooth(const float *x, float *y, int rows, int columns, double amount) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) {
            const float *row = x + r * columns;
            float left = row[c > 0 ? c - 1 : c], right = row[c + 1 < columns ? c + 1 : c];
            y[r * columns + c] = (float)((1 - amount) * (double)row[c] + amount * 0.5 * (double)(left + right));
        }
}

/* A function written for libdlc: the indices of the row's greatest and least element. Tensors come with their shapes. */
static void extremes(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)inputs, (void)outputs;
    const float *x = input[0]->data;
    int64_t *place = output[0]->data, columns = input[0]->shape[1];
    for (int64_t r = 0; r < input[0]->shape[0]; r++, x += columns, place += 2) {
        place[0] = place[1] = 0;
        for (int64_t c = 1; c < columns; c++) {
            if (x[c] > x[place[0]]) place[0] = c;
            if (x[c] < x[place[1]]) place[1] = c;
        }
    }
    ++*(int *)user; /* one thread runs here; with more this would have to be atomic */
}

/* smoothed = smooth(x^2) + 1, places = extremes(smoothed) */
static dlc_program *build(dlc_context *context, dlc_native *native, int *calls) {
    dlc_graph *graph;
    dlc_program *program = NULL;
    if (dlc_graph_create(context, &graph) != DLC_OK) return NULL;
    dlc_custom_register(graph, "smooth", dlc_native_call, native);
    dlc_custom_register(graph, "extremes", extremes, calls);

    dlc_dim rows = {0, "rows"}, columns = {COLUMNS, NULL};
    dlc_value x = dlc_input(graph, "x", DLC_F32, 2, (dlc_dim[]){rows, columns}), smoothed, places;
    x = dlc_mul(x, x);
    /* A custom call states dtype, rank and dimensions of each of its results; dimensions may be symbols. */
    dlc_custom_call(graph, 1, &x, "smooth", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){2}, 2, (dlc_dim[]){rows, columns},
                    1, &smoothed);
    smoothed = dlc_add(smoothed, dlc_scalar(graph, DLC_F32, 1));
    dlc_custom_call(graph, 1, &smoothed, "extremes", 1, (int64_t[]){DLC_I64}, 1, (int64_t[]){2}, 2,
                    (dlc_dim[]){rows, {2, NULL}}, 1, &places);
    dlc_output(graph, "smoothed", smoothed);
    dlc_output(graph, "places", places);
    if (dlc_compile(context, graph, NULL, &program) != DLC_OK) fprintf(stderr, "%s\n", dlc_error_message(context));
    dlc_graph_destroy(graph);
    return program;
}

/* The same in plain C; returns the number of differing elements. */
static int check(const float *x, const float *smoothed, const int64_t *places) {
    float squared[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    int wrong = 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) squared[i] = x[i] * x[i];
    smooth(squared, expected, ROWS, COLUMNS, 0.5);
    for (int i = 0; i < ROWS * COLUMNS; i++) wrong += fabsf(expected[i] + 1 - smoothed[i]) > 1e-5f;
    for (int r = 0; r < ROWS; r++) {
        const float *row = expected + r * COLUMNS;
        int64_t greatest = places[2 * r], least = places[2 * r + 1];
        printf("row %d: greatest at %d, least at %d\n", r, (int)greatest, (int)least);
        for (int c = 0; c < COLUMNS; c++) wrong += row[c] > row[greatest] || row[c] < row[least];
    }
    return wrong;
}

int main(void) {
    float x[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = sinf((float)(i * i) / 7);

    dlc_context *context;
    dlc_native *native = NULL;
    dlc_program *program = NULL;
    int calls = 0, wrong = 1;
    if (dlc_context_create(NULL, &context) != DLC_OK) return 1;
    /* void smooth(const float *, float *, int, int, double): the source of each parameter */
    if (dlc_native_create(context, (void (*)(void))smooth, NULL, "in 0, out 0, i32 dim 0 0, i32 dim 0 1, f64 0.5",
                          &native) != DLC_OK)
        fprintf(stderr, "%s\n", dlc_error_message(context));
    else
        program = build(context, native, &calls);

    DLTensor tensor = {
        .data = x, .device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}, .ndim = 2, .shape = (int64_t[]){ROWS, COLUMNS}};
    dlc_output_slot output[2] = {0};
    if (program && dlc_run(program, NULL, (const DLTensor *const[]){&tensor}, 1, output, 2) == DLC_OK) {
        wrong = check(x, output[0].managed->dl_tensor.data, output[1].managed->dl_tensor.data);
        printf("extremes was called %d time(s); %d element(s) differ from plain C\n", calls, wrong);
        for (int i = 0; i < 2; i++) output[i].managed->deleter(output[i].managed);
    } else if (program) {
        fprintf(stderr, "%s\n", dlc_error_message(context));
    }
    dlc_program_destroy(program);
    dlc_native_destroy(native);
    dlc_context_destroy(context);
    return wrong != 0;
}
