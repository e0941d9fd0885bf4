/* From a graph to an ONNX file and back: the digits network (digits/network.c) is written as a model, which any runtime of ONNX takes, and
 * run from the file as a model of others would be.
 *
 *   classify [MODEL.onnx [FOLDER]]               writes MODEL.onnx (default digits.onnx) and shows held-out digits with their scores;
 *                                                FOLDER holds the data (default examples/data)
 *   classify --numbers [MODEL.onnx [FOLDER]]     prints row, label and scores of 8 held-out digits, as classify_expected.txt has them */
#include "data.h"
#include "digits/network.h"

#include <dlc/onnx.h>
#include <math.h>
#include <string.h>

enum { FIRST = DIGITS_ROWS - DIGITS_HELD_OUT, REPEATED = 200 };

/* ---- the model ------------------------------------------------------------------------------------------------------ */

static dlc_status write_model(dlc_context *context, digits *d, const char *folder, const char *path) {
    dlc_status status = digits_open(context, d, folder);
    if (status != DLC_OK) return status;
    dlc_graph *graph = digits_graph(context, d);
    status = dlc_onnx_write(context, path, graph, NULL);
    dlc_graph_destroy(graph);
    return status;
}

static dlc_status open_model(dlc_context *context, const char *path, dlc_onnx_runner **runner) {
    dlc_onnx_model *model;
    dlc_status status = dlc_onnx_open(context, path, NULL, &model);
    if (status != DLC_OK) return status;
    status = dlc_onnx_runner_create(model, NULL, runner);
    dlc_onnx_destroy(model); /* the runner keeps what it uses */
    return status;
}

/* Classes and scores of `count` rows from `first` on; the model takes any number of rows. */
static dlc_status run(dlc_onnx_runner *runner, digits *d, int first, int count, int64_t *class_,
                      float (*scores)[DIGITS_CLASSES]) {
    const DLDevice cpu = {kDLCPU, 0};
    DLTensor x = {.data = d->pixels[first],
                  .device = cpu,
                  .ndim = 4,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = (int64_t[]){count, 1, 8, 8}};
    DLTensor y = {.data = class_, .device = cpu, .ndim = 1, .dtype = {kDLInt, 64, 1}, .shape = (int64_t[]){count}};
    DLTensor s = {.data = scores,
                  .device = cpu,
                  .ndim = 2,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = (int64_t[]){count, DIGITS_CLASSES}};
    return dlc_onnx_run(runner, NULL, (const DLTensor *const[]){&x}, 1, (dlc_output_slot[]){{&y, NULL}, {&s, NULL}}, 2);
}

/* ---- what it says --------------------------------------------------------------------------------------------------- */

/* The digit, two characters to a pixel, and beside it the probability of each class as a bar. */
static void draw(const digits *d, int row, const float *scores) {
    static const char shade[] = " .:-=+*#%@";
    double probability[DIGITS_CLASSES], sum = 0;
    for (int i = 0; i < DIGITS_CLASSES; i++) sum += probability[i] = exp((double)scores[i]);
    for (int y = 0; y < DIGITS_CLASSES; y++) {
        printf("  ");
        for (int x = 0; x < 8; x++) {
            const char c = y < 8 ? shade[(int)(d->pixels[row][8 * y + x] * 9 / 16)] : ' ';
            printf("%c%c", c, c);
        }
        printf("   %d %5.1f %% ", y, 100 * probability[y] / sum);
        for (int i = (int)(40 * probability[y] / sum + 0.5); i > 0; i--) putchar('#');
        printf("%s\n", y == d->label[row] ? "  <- labelled" : "");
    }
    printf("\n");
}

static dlc_status print_numbers(dlc_onnx_runner *runner, digits *d) {
    for (int row = FIRST; row < DIGITS_ROWS; row += 60) {
        int64_t class_;
        float scores[1][DIGITS_CLASSES];
        dlc_status status = run(runner, d, row, 1, &class_, scores);
        if (status != DLC_OK) return status;
        printf("%d %d", row, d->label[row]);
        for (int i = 0; i < DIGITS_CLASSES; i++) printf(" %.6f", (double)scores[0][i]);
        printf("\n");
    }
    return DLC_OK;
}

static dlc_status show(dlc_onnx_runner *runner, digits *d) {
    static int64_t class_[DIGITS_HELD_OUT];
    static float scores[DIGITS_HELD_OUT][DIGITS_CLASSES];
    double begin = milliseconds();
    dlc_status status = run(runner, d, FIRST, 1, class_, scores);
    const double first = milliseconds() - begin;
    begin = milliseconds();
    for (int i = 0; i < REPEATED && status == DLC_OK; i++) status = run(runner, d, FIRST + i, 1, class_, scores);
    const double each = (milliseconds() - begin) / (double)REPEATED;
    if (status == DLC_OK) status = run(runner, d, FIRST, DIGITS_HELD_OUT, class_, scores);
    if (status != DLC_OK) return status;
    int right = 0;
    for (int i = 0; i < DIGITS_HELD_OUT; i++) right += class_[i] == d->label[FIRST + i];
    for (int i = 0; i < DIGITS_HELD_OUT; i += 180) draw(d, FIRST + i, scores[i]);
    printf("%d of %d held-out digits are right; first call %.1f ms, then %.4f ms per call\n", right, DIGITS_HELD_OUT,
           first, each);
    return DLC_OK;
}

int main(int argc, char **argv) {
    const bool numbers = argc > 1 && strcmp(argv[1], "--numbers") == 0;
    const char *path = argc > 1 + numbers ? argv[1 + numbers] : "digits.onnx";
    const char *folder = argc > 2 + numbers ? argv[2 + numbers] : "examples/data";
    if (path[0] == '-') return fprintf(stderr, "usage: classify [--numbers] [MODEL.onnx [FOLDER]]\n"), 1;
    dlc_context *context = NULL;
    dlc_onnx_runner *runner = NULL;
    digits *d = digits_load(folder);
    if (!d) return 1;
    dlc_status status = dlc_context_create(NULL, &context);
    if (status == DLC_OK) status = write_model(context, d, folder, path);
    if (status == DLC_OK) status = open_model(context, path, &runner);
    if (status == DLC_OK) status = numbers ? print_numbers(runner, d) : show(runner, d);
    if (status != DLC_OK) fprintf(stderr, "classify: %s\n", dlc_error_message(context));
    dlc_onnx_runner_destroy(runner);
    digits_free(d);
    dlc_context_destroy(context);
    return status != DLC_OK;
}
