/* Reading a page: images and boxes of ocr. */
#ifndef OCR_H
#define OCR_H

#include <stdbool.h>

typedef struct image {
    int width, height;
    unsigned char *pixels; /* [height][width][3] */
} image;

/* Of lines of text: the pixels left..right-1, top..bottom-1. */
typedef struct box {
    int left, top, right, bottom;
    /* How sure the detector is. */
    float score;
} box;

/* Of .png files. False, and a line on stderr, on failure. */
bool image_read(image *im, const char *path);
bool image_write(const image *im, const char *path);
/* The box of the image scaled to `height` x `width`, turned by 180 degrees or not, as the networks take it: planes[3][height][row] in -1..1. */
void image_scale(const image *im, box b, bool turned, int height, int width, int row, float *planes);
void image_frame(image *im, box b); /* in red */

/* Lines of text, from top to bottom, in the detector's map [height][width] of probabilities that a pixel is inside of a line; as boxes
 * of `im`, which the map shows as a whole. Returns how many, at most `most`; -1: no memory. */
int boxes_find(const float *map, int height, int width, const image *im, int most, box *boxes);

#endif
