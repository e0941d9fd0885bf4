/* Convolutions by Winograd's algorithm: only when the host allows it, only where the cost model says so, and within the bound that
 * dlc.h states, against sums in double precision. */
#include "api/support.h"

typedef struct image {
    int64_t n, ci, co, h, w, low, high;
    bool may_pay;
} image;

static const image images[] = {
    {1, 64, 64, 16, 16, 1, 1, true}, {2, 48, 80, 9, 23, 1, 1, true},  {1, 96, 33, 13, 10, 0, 2, true},
    {1, 130, 64, 7, 7, 1, 1, true},  {1, 3, 64, 32, 32, 1, 1, false}, {1, 16, 8, 20, 20, 1, 1, false},
};

static int64_t rows_of(const image *s, int64_t size) {
    return size + s->low + s->high - 2;
}

/* relu(conv(x, w) + b), and the greatest sum. */
static void direct(const image *s, const float *x, const float *w, const float *b, double *y) {
    int64_t h = rows_of(s, s->h), v = rows_of(s, s->w);
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t co = 0; co < s->co; co++)
            for (int64_t i = 0; i < h; i++)
                for (int64_t j = 0; j < v; j++) {
                    double sum = b[co];
                    for (int64_t c = 0; c < s->ci; c++)
                        for (int64_t k = 0; k < 9; k++) {
                            int64_t row = i + k / 3 - s->low, column = j + k % 3 - s->low;
                            if (row < 0 || row >= s->h || column < 0 || column >= s->w) continue;
                            sum += (double)x[((n * s->ci + c) * s->h + row) * s->w + column] *
                                   (double)w[(co * s->ci + c) * 9 + k];
                        }
                    y[((n * s->co + co) * h + i) * v + j] = sum > 0 ? sum : 0;
                }
}

static dlc_program *make(dlc_context *context, const image *s, const float *w, const float *b, bool winograd) {
    dlc_graph *graph;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &graph));
    dlc_convolution_options window = DLC_CONVOLUTION_OPTIONS_INIT;
    int64_t low[2] = {s->low, s->low}, high[2] = {s->high, s->high};
    window.low = low, window.high = high, window.low_count = window.high_count = 2;
    dlc_value x = dlc_input(graph, "x", DLC_F32, 4, DIMS(SIZE(s->n), SIZE(s->ci), SIZE(s->h), SIZE(s->w)));
    dlc_value k = dlc_constant(graph, DLC_F32, 4, SHAPE(s->co, s->ci, 3, 3), w);
    dlc_value bias = dlc_constant(graph, DLC_F32, 4, SHAPE(1, s->co, 1, 1), b);
    OK(context, dlc_output(graph, "y", dlc_relu(dlc_add(dlc_convolution_with(x, k, &window), bias))));
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.winograd = winograd;
    OK(context, dlc_compile(context, graph, &options, &program));
    dlc_graph_destroy(graph);
    return program;
}

static bool uses_winograd(dlc_context *context, dlc_program *program, const image *s) {
    char *text;
    const int64_t *shape = SHAPE(s->n, s->ci, s->h, s->w);
    OK(context, dlc_program_dump(program, "regions", &shape, (const int[]){4}, 1, &text));
    bool found = strstr(text, "winograd_output") != NULL;
    dlc_text_free(context, text);
    return found;
}

/* Transforms of a tile stay in registers or on the stack: in memory they would cost more than the products they save. */
static void expect_tiles_at_hand(dlc_context *context, dlc_program *program, const image *s) {
    char *text;
    const int64_t *shape = SHAPE(s->n, s->ci, s->h, s->w);
    OK(context, dlc_program_dump(program, "schedule", &shape, (const int[]){4}, 1, &text));
    int kept = 0;
    for (const char *line = strstr(text, "store winograd_"); line; line = strstr(line + 1, "store winograd_")) {
        const char *where = strchr(line + strlen("store "), ' ');
        bool at_hand = where && (strncmp(where, " reg", 4) == 0 || strncmp(where, " stack", 6) == 0);
        if (!at_hand) fail_msg("%.60s", line);
        kept += at_hand;
    }
    assert_true(kept >= 2); /* of the input and of the output */
    dlc_text_free(context, text);
}

static int taken; /* how often it was chosen */

static void run_image(dlc_context *context, const image *s) {
    size_t in = (size_t)(s->n * s->ci * s->h * s->w), windows = (size_t)(s->co * s->ci * 9);
    int64_t h = rows_of(s, s->h), v = rows_of(s, s->w);
    size_t out = (size_t)(s->n * s->co * h * v);
    float *x = malloc(in * sizeof *x), *w = malloc(windows * sizeof *w), *b = malloc((size_t)s->co * sizeof *b);
    float *y = malloc(out * sizeof *y);
    double *expected = malloc(out * sizeof *expected), greatest = 0, most = 0;
    assert_true(x && w && b && y && expected);
    fill(x, in, 1);
    fill(w, windows, 2);
    fill(b, (size_t)s->co, 3);
    direct(s, x, w, b, expected);
    const double bound = 0x1p-24 * (double)(s->ci + 40) * 2304 * (double)s->ci; /* |x|, |w| <= 1 */
    for (size_t i = 0; i < out; i++) greatest = fmax(greatest, fabs(expected[i]));
    for (int allowed = 0; allowed < 2; allowed++) {
        dlc_program *program = make(context, s, w, b, allowed);
        tensor tx, ty;
        dlc_output_slot slot = {.tensor = F32(&ty, y, s->n, s->co, h, v)};
        const DLTensor *inputs[] = {F32(&tx, x, s->n, s->ci, s->h, s->w)};
        OK(context, dlc_run(program, NULL, inputs, 1, &slot, 1));
        most = 0;
        for (size_t i = 0; i < out; i++) most = fmax(most, fabs((double)y[i] - expected[i]));
        if (!(most <= (allowed ? bound : 0x1p-24 * 64 * greatest)))
            fail_msg("off by %g where the greatest is %g", most, greatest);
        if (!(most <= 0x1p-24 * 256 * greatest)) fail_msg("usually off by less than %g", most / greatest);
        bool used = uses_winograd(context, program, s);
        if (!allowed) assert_false(used);
        if (allowed && !s->may_pay) assert_false(used);
        taken += used;
        if (used) expect_tiles_at_hand(context, program, s);
        dlc_program_destroy(program);
    }
    free(x), free(w), free(b), free(y), free(expected);
}

static void test_error_bound(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        taken = 0;
        for (size_t i = 0; i < sizeof images / sizeof *images; i++) run_image(context, &images[i]);
        if (strcmp(all_targets[t], "cpu") == 0) assert_true(taken > 0);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_error_bound)};
    return cmocka_run_group_tests_name("api/winograd", tests, NULL, NULL);
}
