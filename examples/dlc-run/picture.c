/* Outputs that are images, in the terminal: each character is a part of the image, dark or bright. */
#include "dlc-run.h"

#include <math.h>

enum { COLUMNS_MAX = 72, LEAST = 8 };

/* The planes of an image among the last axes of a tensor, its first ones at 0: [h, w], [c, h, w] or [h, w, c] with c = 1, 3 or 4. */
typedef struct image {
    int64_t height, width, channels;
    int64_t row_step, column_step, channel_step;
} image;

static bool is_channels(int64_t size) {
    return size == 1 || size == 3 || size == 4;
}

/* False: it is none. */
static bool find_image(const DLTensor *tensor, image *of) {
    const int rank = tensor->ndim;
    const int64_t *size = tensor->shape + rank;
    if (rank >= 3 && is_channels(size[-1]))
        *of = (image){size[-3], size[-2], size[-1], size[-2] * size[-1], size[-1], 1};
    else if (rank >= 3 && is_channels(size[-3]))
        *of = (image){size[-2], size[-1], size[-3], size[-1], 1, size[-2] * size[-1]};
    else if (rank >= 2)
        *of = (image){size[-2], size[-1], 1, size[-1], 1, 0};
    else
        return false;
    return of->height >= LEAST && of->width >= LEAST;
}

/* The mean of a part, of all channels. */
static double mean_of(const image *of, const double *number, int64_t top, int64_t bottom, int64_t left, int64_t right) {
    double sum = 0;
    for (int64_t y = top; y < bottom; y++)
        for (int64_t x = left; x < right; x++)
            for (int64_t c = 0; c < of->channels; c++)
                sum += number[y * of->row_step + x * of->column_step + c * of->channel_step];
    return sum / (double)((bottom - top) * (right - left) * of->channels);
}

/* Characters are about twice as high as wide. `range`: least and greatest number. */
static void print_image(const report *r, const image *of, const double *number, const double *range) {
    static const char shades[] = " .:-=+*#%@";
    const int64_t columns = of->width < COLUMNS_MAX ? of->width : COLUMNS_MAX,
                  rows = (of->height * columns + 2 * of->width - 1) / (2 * of->width);
    for (int64_t y = 0; y < rows; y++) {
        char line[COLUMNS_MAX + 1];
        for (int64_t x = 0; x < columns; x++) {
            const int64_t top = y * of->height / rows, left = x * of->width / columns;
            const int64_t bottom = (y + 1) * of->height / rows, right = (x + 1) * of->width / columns;
            const double mean = mean_of(of, number, top, bottom > top ? bottom : top + 1, left, right);
            const double part = range[1] > range[0] ? (mean - range[0]) / (range[1] - range[0]) : 0;
            line[x] = isfinite(part) ? shades[(int)fmin(9, fmax(0, 10 * part))] : '?';
        }
        line[columns] = 0;
        say(r, "  |%s|\n", line);
    }
}

void show_image(const report *r, const DLTensor *tensor, const double *number, double least, double greatest) {
    const double range[] = {least, greatest};
    image of;
    if (find_image(tensor, &of)) print_image(r, &of, number, range);
}
