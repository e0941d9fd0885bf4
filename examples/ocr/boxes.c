/* From the detector's map to boxes. The network is trained to mark the core of each line (DB: Liao et al., "Real-time scene text detection
 * with differentiable binarization", 2020): pixels above a threshold that touch each other are a line, which is grown by as much as the core
 * is smaller than its line. */
#include "ocr.h"

#include <math.h>
#include <stdlib.h>

#define MARKED 0.3F /* probability from which a pixel belongs to a core */
#define SURE 0.5F   /* mean probability from which a core is a line */
#define GROWTH 1.6F /* distance: area * GROWTH / circumference */

typedef struct core {
    int left, top, right, bottom; /* as in box */
    int area;
    float sum; /* of probabilities */
} core;

/* The marked pixels that touch `start`. They are unmarked, so that each core is found once; `stack` has room for all pixels. */
static core take_core(const float *map, bool *marked, int height, int width, int start, int *stack) {
    core c = {.left = width, .top = height};
    int depth = 0;
    stack[depth++] = start, marked[start] = false;
    while (depth > 0) {
        const int at = stack[--depth], x = at % width, y = at / width;
        c.left = x < c.left ? x : c.left, c.right = x + 1 > c.right ? x + 1 : c.right;
        c.top = y < c.top ? y : c.top, c.bottom = y + 1 > c.bottom ? y + 1 : c.bottom;
        c.area++, c.sum += map[at];
        for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < height; v++)
            for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < width; u++)
                if (marked[v * width + u]) stack[depth++] = v * width + u, marked[v * width + u] = false;
    }
    return c;
}

static int clipped(float x, int most) {
    return x < 0 ? 0 : x > (float)most ? most : (int)(x + 0.5F);
}

/* The core seen as a band of its area, so that the growth of a bent line is not that of the box around it. */
static box grown(core c, float scale_x, float scale_y, const image *im) {
    const float length = (float)(c.right - c.left), thickness = (float)c.area / length;
    const float by = (float)c.area * GROWTH / (2 * (length + thickness));
    return (box){clipped(((float)c.left - by) * scale_x, im->width), clipped(((float)c.top - by) * scale_y, im->height),
                 clipped(((float)c.right + by) * scale_x, im->width),
                 clipped(((float)c.bottom + by) * scale_y, im->height), c.sum / (float)c.area};
}

static int compare(const void *a, const void *b) {
    const box *p = a, *q = b;
    return p->top != q->top ? p->top - q->top : p->left - q->left;
}

int boxes_find(const float *map, int height, int width, const image *im, int most, box *boxes) {
    const size_t pixels = (size_t)height * (size_t)width;
    bool *marked = malloc(pixels * sizeof *marked);
    int *stack = malloc(pixels * sizeof *stack), count = marked && stack ? 0 : -1;
    for (size_t i = 0; count >= 0 && i < pixels; i++) marked[i] = map[i] > MARKED;
    for (int i = 0; count >= 0 && i < (int)pixels && count < most; i++) {
        if (!marked[i]) continue;
        const core c = take_core(map, marked, height, width, i, stack);
        const int smaller = c.right - c.left < c.bottom - c.top ? c.right - c.left : c.bottom - c.top;
        if (smaller < 3 || c.sum < SURE * (float)c.area) continue;
        const box b = grown(c, (float)im->width / (float)width, (float)im->height / (float)height, im);
        if (b.left < b.right && b.top < b.bottom) boxes[count++] = b;
    }
    free(stack);
    free(marked);
    if (count > 0) qsort(boxes, (size_t)count, sizeof *boxes, compare);
    return count;
}
