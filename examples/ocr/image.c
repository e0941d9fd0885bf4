/* Images: .png files by libpng, scaling, frames. */
#include "ocr.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool image_read(image *im, const char *path) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    *im = (image){0};
    bool good = png_image_begin_read_from_file(&png, path) != 0;
    png.format = PNG_FORMAT_RGB;
    if (good) im->pixels = malloc(PNG_IMAGE_SIZE(png));
    good = im->pixels && png_image_finish_read(&png, &(png_color){255, 255, 255}, im->pixels, 0, NULL) != 0;
    im->width = (int)png.width, im->height = (int)png.height;
    if (!good) fprintf(stderr, "ocr: %s: %s\n", path, png.message[0] ? png.message : "no memory");
    png_image_free(&png);
    return good;
}

bool image_write(const image *im, const char *path) {
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)im->width,
                     .height = (png_uint_32)im->height,
                     .format = PNG_FORMAT_RGB};
    const bool good = png_image_write_to_file(&png, path, 0, im->pixels, 0, NULL) != 0;
    if (!good) fprintf(stderr, "ocr: %s: %s\n", path, png.message);
    return good;
}

static int clamped(int i, int count) {
    return i < 0 ? 0 : i >= count ? count - 1 : i;
}

/* Channel c between the pixels around (x, y), by their distances; the centre of the first pixel is (0, 0). */
static float between(const image *im, float x, float y, int c) {
    const int left = (int)(x < 0 ? 0 : x), top = (int)(y < 0 ? 0 : y);
    const float right = x < 0 ? 0 : x - (float)left, low = y < 0 ? 0 : y - (float)top;
    float corner[2][2];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            const size_t row = (size_t)clamped(top + i, im->height), column = (size_t)clamped(left + j, im->width);
            corner[i][j] = im->pixels[(row * (size_t)im->width + column) * 3 + (size_t)c];
        }
    const float above = corner[0][0] + right * (corner[0][1] - corner[0][0]);
    return above + low * (corner[1][0] + right * (corner[1][1] - corner[1][0]) - above);
}

void image_scale(const image *im, box b, bool turned, int height, int width, int row, float *planes) {
    const float stretch_x = (float)(b.right - b.left) / (float)width,
                stretch_y = (float)(b.bottom - b.top) / (float)height;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < height; i++)
            for (int j = 0; j < width; j++) {
                const int k = turned ? height - 1 - i : i, l = turned ? width - 1 - j : j;
                const float x = (float)b.left + ((float)l + 0.5F) * stretch_x - 0.5F;
                const float y = (float)b.top + ((float)k + 0.5F) * stretch_y - 0.5F;
                planes[((size_t)c * (size_t)height + (size_t)i) * (size_t)row + (size_t)j] =
                    between(im, x, y, c) / 127.5F - 1;
            }
}

void image_frame(image *im, box b) {
    for (int y = b.top; y < b.bottom; y++)
        for (int x = b.left; x < b.right; x++)
            if (y == b.top || y == b.bottom - 1 || x == b.left || x == b.right - 1)
                memcpy(im->pixels + ((size_t)y * (size_t)im->width + (size_t)x) * 3, (unsigned char[]){220, 30, 30}, 3);
}
