/* Convolutions by Winograd's algorithm: only when the host allows it, only where the cost model says so, and within the bound that
 * dlc.h states, against sums in double precision. */
#include "api/support.h"
#include "test/share.h"

typedef struct image {
    /* h: 0: signals, which have windows of 3 */
    int64_t n, ci, co, h, w, low, high, dilation;
    /* with vectors */
    bool may_pay;
} image;

static const image images[] = {
    {1, 64, 64, 16, 16, 1, 1, 1, true},    {2, 48, 80, 9, 23, 1, 1, 1, true},   {1, 96, 33, 13, 10, 0, 2, 1, true},
    {1, 130, 64, 7, 7, 1, 1, 1, true},     {1, 3, 64, 32, 32, 1, 1, 1, false},  {1, 4, 8, 20, 20, 1, 1, 1, false},
    {1, 96, 96, 0, 203, 1, 1, 1, true},    {2, 80, 70, 0, 133, 4, 4, 4, true},  {1, 128, 64, 0, 130, 0, 66, 33, true},
    {1, 64, 64, 0, 50, 20, 20, 20, false}, {1, 64, 64, 12, 12, 2, 2, 2, false},
};

static int rank_of(const image *s) {
    return s->h ? 4 : 3;
}

/* Rows of a window; its columns are 3. */
static int64_t window_rows(const image *s) {
    return s->h ? 3 : 1;
}

/* Of results. */
static int64_t rows_of(const image *s) {
    return s->h ? s->h + s->low + s->high - 2 * s->dilation : 1;
}

static int64_t columns_of(const image *s) {
    return s->w + s->low + s->high - 2 * s->dilation;
}

/* [a, b, rows, columns], of signals [a, b, columns]. */
static void shape_of(const image *s, int64_t a, int64_t b, int64_t rows, int64_t columns, int64_t *shape) {
    shape[0] = a, shape[1] = b, shape[2] = rows;
    shape[rank_of(s) - 1] = columns;
}

static DLTensor tensor_of(const image *s, float *data, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = rank_of(s), .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* relu(conv(x, w) + b), and the greatest sum. */
static void direct(const image *s, const float *x, const float *w, const float *b, double *y) {
    const int64_t rows = rows_of(s), columns = columns_of(s), h = s->h ? s->h : 1, taps = 3 * window_rows(s);
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t co = 0; co < s->co; co++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++) {
                    double sum = b[co];
                    for (int64_t c = 0; c < s->ci; c++)
                        for (int64_t k = 0; k < taps; k++) {
                            int64_t row = s->h ? i + k / 3 * s->dilation - s->low : 0,
                                    column = j + k % 3 * s->dilation - s->low;
                            if (row < 0 || row >= h || column < 0 || column >= s->w) continue;
                            sum += (double)x[((n * s->ci + c) * h + row) * s->w + column] *
                                   (double)w[(co * s->ci + c) * taps + k];
                        }
                    y[((n * s->co + co) * rows + i) * columns + j] = sum > 0 ? sum : 0;
                }
}

static dlc_program *make(dlc_context *context, const image *s, const float *w, const float *b, bool winograd) {
    dlc_graph *graph;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &graph));
    dlc_convolution_options window = DLC_CONVOLUTION_OPTIONS_INIT;
    const int rank = rank_of(s);
    int64_t low[2] = {s->low, s->low}, high[2] = {s->high, s->high}, dilation[2] = {s->dilation, s->dilation};
    int64_t shape[4];
    dlc_dim dims[4];
    window.low = low, window.high = high, window.dilation = dilation;
    window.low_count = window.high_count = window.dilation_count = (size_t)rank - 2;
    shape_of(s, s->n, s->ci, s->h, s->w, shape);
    for (int d = 0; d < rank; d++) dims[d] = (dlc_dim){shape[d], NULL};
    dlc_value x = dlc_input(graph, "x", DLC_F32, rank, dims);
    shape_of(s, s->co, s->ci, 3, 3, shape);
    dlc_value k = dlc_constant(graph, DLC_F32, rank, shape, w);
    shape_of(s, 1, s->co, 1, 1, shape);
    dlc_value bias = dlc_constant(graph, DLC_F32, rank, shape, b);
    OK(context, dlc_output(graph, "y", dlc_relu(dlc_add(dlc_convolution_with(x, k, &window), bias))));
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.winograd = winograd;
    OK(context, dlc_compile(context, graph, &options, &program));
    dlc_graph_destroy(graph);
    return program;
}

static char *dumped(dlc_context *context, dlc_program *program, const image *s, const char *stage) {
    char *text;
    int64_t shape[4];
    shape_of(s, s->n, s->ci, s->h, s->w, shape);
    OK(context, dlc_program_dump(program, stage, (const int64_t *[]){shape}, (const int[]){rank_of(s)}, 1, &text));
    return text;
}

static bool uses_winograd(dlc_context *context, dlc_program *program, const image *s) {
    char *text = dumped(context, program, s, "regions");
    bool found = strstr(text, "winograd_output") != NULL;
    dlc_text_free(context, text);
    return found;
}

/* Transforms of an image's tile stay in registers or on the stack: in memory they would cost more than the products they save. */
static void expect_tiles_at_hand(dlc_context *context, dlc_program *program, const image *s) {
    char *text = dumped(context, program, s, "schedule");
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

static int taken, signals; /* how often it was chosen; of these, of signals */

static void run_image(dlc_context *context, const char *target, const image *s) {
    const int64_t h = s->h ? s->h : 1;
    size_t in = (size_t)(s->n * s->ci * h * s->w), windows = (size_t)(s->co * s->ci * 3 * window_rows(s));
    size_t out = (size_t)(s->n * s->co * rows_of(s) * columns_of(s));
    int64_t from[4], to[4];
    float *x = malloc(in * sizeof *x), *w = malloc(windows * sizeof *w), *b = malloc((size_t)s->co * sizeof *b);
    float *y = malloc(out * sizeof *y);
    double *expected = malloc(out * sizeof *expected), greatest = 0, most = 0;
    const bool has_vectors = strcmp(target, "cpu") == 0;
    assert_true(x && w && b && y && expected);
    fill(x, in, 1);
    fill(w, windows, 2);
    fill(b, (size_t)s->co, 3);
    direct(s, x, w, b, expected);
    const double bound = 0x1p-24 * (double)(s->ci + 40) * 2304 * (double)s->ci; /* |x|, |w| <= 1 */
    for (size_t i = 0; i < out; i++) greatest = fmax(greatest, fabs(expected[i]));
    for (int allowed = 0; allowed < 2; allowed++) {
        dlc_program *program = make(context, s, w, b, allowed);
        shape_of(s, s->n, s->ci, s->h, s->w, from);
        shape_of(s, s->n, s->co, rows_of(s), columns_of(s), to);
        DLTensor image_in = tensor_of(s, x, from), image_out = tensor_of(s, y, to);
        dlc_output_slot slot = {.tensor = &image_out};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){&image_in}, 1, &slot, 1));
        most = 0;
        for (size_t i = 0; i < out; i++) most = fmax(most, fabs((double)y[i] - expected[i]));
        if (!(most <= (allowed ? bound : 0x1p-24 * 64 * greatest)))
            fail_msg("off by %g where the greatest is %g", most, greatest);
        if (!(most <= 0x1p-24 * 256 * greatest)) fail_msg("usually off by less than %g", most / greatest);
        bool used = uses_winograd(context, program, s);
        if (!allowed) assert_false(used);
        if (has_vectors && !s->may_pay) assert_false(used);
        taken += used;
        signals += used && !s->h;
        if (used && s->h && has_vectors) expect_tiles_at_hand(context, program, s);
        dlc_program_destroy(program);
    }
    free(x), free(w), free(b), free(y), free(expected);
}

static void test_error_bound(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        taken = signals = 0;
        for (size_t i = 0; i < sizeof images / sizeof *images; i++)
            if (strcmp(all_targets[t], "cpu") == 0 || test_takes((int)i + t, 2))
                run_image(context, all_targets[t], &images[i]);
        if (strcmp(all_targets[t], "cpu") == 0) assert_true(taken > signals && signals > 0);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_error_bound)};
    return cmocka_run_group_tests_name("api/winograd", tests, NULL, NULL);
}
