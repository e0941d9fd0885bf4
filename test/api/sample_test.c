/* roi_align whose samples are as many as the data says (samples=0): regions of any size and place against a plain definition in doubles;
 * what is no region gives zeros, and what is larger than any image takes no longer than the image. */
#include "api/support.h"

#include <math.h>

enum { IMAGES = 2, HEIGHT = 5, WIDTH = 7, ROWS = 2, COLUMNS = 3, CHANNELS_MOST = 17 };

static const double regions[][4] = {{0, 0, 6.5, 4.3},
                                    {1.2, 0.7, 1.9, 1.1},
                                    {-3, -2, 9.7, 8.1},
                                    {-1000.3, -7, 1003, 11},
                                    {-3.7e5, -12, 4.1e5, 1e4},
                                    {20, 1, 30, 3},
                                    {-9, 1, -2, 3},
                                    {3, 1, 3, 4},
                                    {6, 4, 1, 1},
                                    {6, 1, 1, 4},
                                    {2.5, 2.5, 2.5, 2.5}};
enum { REGIONS = sizeof regions / sizeof *regions };

typedef struct setting {
    bool greatest, half;
    double scale;
    int64_t channels;
} setting;

/* Places of a cell's samples that are near the image; *all: of samples, near or not. */
static int places(const setting *s, double low, double high, int64_t cell, int64_t cells, int64_t size, double *at,
                  int64_t *all) {
    double shift = s->half ? 0.5 : 0, start = low * s->scale - shift, extent = high * s->scale - shift - start;
    int near = 0;
    if (!s->half && extent < 1) extent = 1;
    double bin = extent / (double)cells;
    *all = bin > 0 ? (int64_t)ceil(bin) : 0;
    for (int64_t i = 0; i < *all; i++) {
        double place = start + (double)cell * bin + ((double)i + 0.5) * (bin / (double)*all);
        if (place < -1 || place > (double)size) continue;
        assert_true(near < size + 2);
        at[near++] = fmin(fmax(place, 0), (double)(size - 1));
    }
    return near;
}

/* The sum of elements times their weights; with greatest the largest of the four products, of which those without weight are 0. */
static double element(const double *plane, double y, double x, bool greatest) {
    double sum = 0, most = -INFINITY;
    int weighted = 0;
    for (int64_t h = 0; h < HEIGHT; h++)
        for (int64_t w = 0; w < WIDTH; w++) {
            double far_y = fabs(y - (double)h), far_x = fabs(x - (double)w);
            if (far_y >= 1 || far_x >= 1) continue;
            const double product = (1 - far_y) * (1 - far_x) * plane[h * WIDTH + w];
            sum += product;
            most = fmax(most, product);
            weighted++;
        }
    return !greatest ? sum : weighted < 4 ? fmax(most, 0) : most;
}

static double expected_cell(const setting *s, const double *plane, const double *region, int64_t row, int64_t column) {
    double y[HEIGHT + 2], x[WIDTH + 2], sum = 0, most = -INFINITY;
    int64_t rows, columns;
    int near_rows = places(s, region[1], region[3], row, ROWS, HEIGHT, y, &rows);
    int near_columns = places(s, region[0], region[2], column, COLUMNS, WIDTH, x, &columns);
    double all = (double)rows * (double)columns;
    for (int i = 0; i < near_rows; i++)
        for (int j = 0; j < near_columns; j++) {
            double value = element(plane, y[i], x[j], s->greatest);
            sum += value;
            most = fmax(most, value);
        }
    if (all == 0) return 0;
    if (s->greatest) return near_rows < rows || near_columns < columns ? fmax(most, 0) : most;
    return sum / all;
}

static dlc_program *make(dlc_context *context, const setting *s) {
    dlc_graph *graph;
    OK(context, dlc_graph_create(context, &graph));
    dlc_value x = dlc_input(graph, "x", DLC_F64, 4, DIMS(SIZE(IMAGES), SIZE(s->channels), SIZE(HEIGHT), SIZE(WIDTH)));
    dlc_value rois = dlc_input(graph, "rois", DLC_F64, 2, DIMS(SYMBOL("n"), SIZE(4)));
    dlc_value images = dlc_input(graph, "images", DLC_I64, 1, DIMS(SYMBOL("n")));
    dlc_roi_align_options options = DLC_ROI_ALIGN_OPTIONS_INIT;
    options.samples = 0;
    options.spatial_scale = s->scale;
    options.mode = s->greatest ? DLC_ROI_ALIGN_MODE_MAX : DLC_ROI_ALIGN_MODE_AVERAGE;
    options.coordinates = s->half ? DLC_ROI_ALIGN_COORDINATES_HALF_PIXEL : DLC_ROI_ALIGN_COORDINATES_OUTPUT_HALF_PIXEL;
    OK(context,
       dlc_output(graph, "y", dlc_roi_align_with(x, rois, images, 2, DIMS(SIZE(ROWS), SIZE(COLUMNS)), &options)));
    return compile(context, graph);
}

static void run(dlc_context *context, dlc_program *program, const setting *s, int64_t n, double *x, double *rois,
                int64_t *images, double *y) {
    tensor tx, tr, ti, ty;
    const DLTensor *inputs[] = {&make_tensor(&tx, DLC_F64, x, 4, SHAPE(IMAGES, s->channels, HEIGHT, WIDTH))->dl,
                                &make_tensor(&tr, DLC_F64, rois, 2, SHAPE(n, 4))->dl,
                                &make_tensor(&ti, DLC_I64, images, 1, SHAPE(n))->dl};
    dlc_output_slot slot = {.tensor = &make_tensor(&ty, DLC_F64, y, 4, SHAPE(n, s->channels, ROWS, COLUMNS))->dl};
    OK(context, dlc_run(program, NULL, inputs, 3, &slot, 1));
}

static void check_regions(dlc_context *context, const setting *s) {
    enum { CELLS = ROWS * COLUMNS };
    double x[IMAGES * CHANNELS_MOST * HEIGHT * WIDTH], rois[REGIONS][4], y[REGIONS * CHANNELS_MOST * CELLS];
    int64_t images[REGIONS];
    uint32_t seed = 3;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (double)noise(&seed);
    memcpy(rois, regions, sizeof rois);
    for (int i = 0; i < REGIONS; i++) images[i] = i % IMAGES;
    dlc_program *program = make(context, s);
    for (int64_t n = REGIONS; n >= 0; n -= 4) {
        run(context, program, s, n, x, rois[0], images, y);
        for (int64_t i = 0; i < n * s->channels * CELLS; i++) {
            int64_t region = i / (s->channels * CELLS), channel = i / CELLS % s->channels;
            const double *plane = x + (images[region] * s->channels + channel) * HEIGHT * WIDTH;
            double e = expected_cell(s, plane, rois[region], i % CELLS / COLUMNS, i % COLUMNS);
            if (!(fabs(y[i] - e) < 1e-8))
                fail_msg("region %d, channel %d, element %d: %.17g, expected %.17g (greatest %d, half %d)", (int)region,
                         (int)channel, (int)(i % CELLS), y[i], e, s->greatest, s->half);
        }
    }
    dlc_program_destroy(program);
}

/* No numbers: zeros. Larger than any count: within the elements' bounds, 0 and 1 here. */
static void check_no_regions(dlc_context *context, const setting *s) {
    double rois[][4] = {
        {NAN, 0, 3, 3},       {0, 0, 3, NAN},   {NAN, NAN, NAN, NAN},       {-INFINITY, 0, INFINITY, 3},
        {0, INFINITY, 3, 4},  {0, 0, 1e9, 1e9}, {-1e18, -1e18, 1e18, 1e18}, {-1e308, -1e300, 1e308, 1e300},
        {-1e15, 1, 1e15, 2.5}};
    enum { COUNT = sizeof rois / sizeof *rois, NUMBERS = 5, CELLS = ROWS * COLUMNS };
    double x[IMAGES * CHANNELS_MOST * HEIGHT * WIDTH], y[COUNT * CHANNELS_MOST * CELLS];
    int64_t images[COUNT] = {0, 1, -5, 7, INT64_MIN, INT64_MAX, 0, 1, 0};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = 1;
    dlc_program *program = make(context, s);
    run(context, program, s, COUNT, x, rois[0], images, y);
    for (int64_t i = 0; i < COUNT * s->channels * CELLS; i++) {
        if (i / (s->channels * CELLS) < NUMBERS && s->half) assert_true(y[i] == 0);
        if (!(y[i] >= 0 && y[i] <= 1)) fail_msg("region %d: %.17g", (int)(i / (s->channels * CELLS)), y[i]);
    }
    dlc_program_destroy(program);
}

static void each_setting(void (*check_one)(dlc_context *context, const setting *s)) {
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (int k = 0; k < 8; k++)
            check_one(context, &(setting){k & 1, k & 2, k & 4 ? 1 : 0.75, k & 4 ? 2 : CHANNELS_MOST});
        dlc_context_destroy(context);
    }
}

static void test_regions(void **state) {
    (void)state;
    each_setting(check_regions);
}

static void test_no_regions(void **state) {
    (void)state;
    each_setting(check_no_regions);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_regions), cmocka_unit_test(test_no_regions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
