/* Reads a scanned page with the three networks of PP-OCR, each of which takes images of any size: one finds the lines of text, one says
 * which are upside down, one reads them.
 *
 *   ocr [PAGE.png [FRAMED.png]]     prints the lines; FRAMED.png: the page with their boxes (default ocr.png)
 *   ocr --numbers [PAGE.png]        prints boxes, probabilities and lines, and writes nothing */
#include "ocr.h"

#include "../data.h"

#include <dlc/onnx.h>
#include <math.h>
#include <string.h>

enum {
    LINES = 256,
    SIDE = 736 /* least side of the detector's image */,
    MOST_PIXELS = 1 << 26 /* of the detector's image */,
    TALL = 48,
    TURN_WIDTH = 192,
    READ_WIDTH = 320,
    TURNS = 5
};

typedef struct network {
    dlc_context *context;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    /* Milliseconds. */
    double first, each;
} network;

typedef struct line {
    box box;
    bool turned;
    /* Of the classifier and of the reader; text: UTF-8. */
    float upside_down, sure;
    char text[1024];
} line;

/* ---- networks ------------------------------------------------------------------------------------------------------- */

static bool network_open(network *n, dlc_context *context, const char *path) {
    *n = (network){.context = context};
    if (dlc_onnx_open(context, path, NULL, &n->model) == DLC_OK &&
        dlc_onnx_runner_create(n->model, NULL, &n->runner) == DLC_OK)
        return true;
    fprintf(stderr, "ocr: %s\n", dlc_error_message(context));
    return false;
}

static void network_close(network *n) {
    dlc_onnx_runner_destroy(n->runner);
    dlc_onnx_destroy(n->model);
}

/* The result for images [count][3][height][width], which the library allocates: the caller calls its deleter. NULL: failure, reported on
 * stderr. With `turns`, as often again, for the time. */
static DLManagedTensorVersioned *network_run(network *n, float *images, int count, int height, int width, int turns) {
    DLTensor x = {.data = images,
                  .device = {kDLCPU, 0},
                  .ndim = 4,
                  .dtype = {kDLFloat, 32, 1},
                  .shape = (int64_t[]){count, 3, height, width}};
    dlc_output_slot y = {NULL, NULL};
    double total = 0;
    for (int i = 0; i <= turns; i++) {
        if (y.managed) y.managed->deleter(y.managed);
        y = (dlc_output_slot){NULL, NULL};
        const double begin = milliseconds();
        if (dlc_onnx_run(n->runner, NULL, (const DLTensor *const[]){&x}, 1, &y, 1) != DLC_OK) {
            fprintf(stderr, "ocr: %s\n", dlc_error_message(n->context));
            return NULL;
        }
        if (i == 0)
            n->first = milliseconds() - begin;
        else
            total += milliseconds() - begin;
    }
    if (turns) n->each = total / turns;
    return y.managed;
}

/* ---- lines are found, turned and read ------------------------------------------------------------------------------- */

/* The detector takes sides that are multiples of 32. Returns how many lines; -1: failure. */
static int find_lines(network *detector, const image *page, int turns, line *lines) {
    static box boxes[LINES];
    const int least = page->width < page->height ? page->width : page->height;
    const float scale = least < SIDE ? (float)SIDE / (float)least : 1;
    if ((double)page->height * (double)page->width * (double)scale * (double)scale > (double)MOST_PIXELS)
        return fprintf(stderr, "ocr: the page is too large, or too narrow\n"), -1;
    const int height = 32 * (int)lroundf((float)page->height * scale / 32);
    const int width = 32 * (int)lroundf((float)page->width * scale / 32);
    float *planes = malloc((size_t)height * (size_t)width * 3 * sizeof *planes);
    int count = -1;
    if (!planes) return fprintf(stderr, "ocr: no memory\n"), -1;
    image_scale(page, (box){0, 0, page->width, page->height, 0}, false, height, width, width, planes);
    DLManagedTensorVersioned *map = network_run(detector, planes, 1, height, width, turns);
    if (map) {
        count = boxes_find(map->dl_tensor.data, height, width, page, LINES, boxes);
        map->deleter(map);
    }
    free(planes);
    for (int i = 0; i < count; i++) lines[i].box = boxes[i];
    return count;
}

/* The width of a line of height TALL. */
static int line_width(box b) {
    return (int)ceilf((float)(TALL * (b.right - b.left)) / (float)(b.bottom - b.top));
}

/* All lines as images of one width, those of less padded by zeros; NULL: no memory, reported on stderr. */
static float *line_images(const image *page, const line *lines, int count, int width) {
    const size_t size = (size_t)3 * TALL * (size_t)width;
    float *images = calloc((size_t)count * size, sizeof *images);
    for (int i = 0; images && i < count; i++) {
        const int own = line_width(lines[i].box);
        image_scale(page, lines[i].box, lines[i].turned, TALL, own < width ? own : width, width,
                    images + (size_t)i * size);
    }
    if (!images) fprintf(stderr, "ocr: no memory\n");
    return images;
}

/* The classifier's result is [count][2]: upright, upside down. */
static bool turn_lines(network *classifier, const image *page, int turns, line *lines, int count) {
    float *images = line_images(page, lines, count, TURN_WIDTH);
    DLManagedTensorVersioned *y = images ? network_run(classifier, images, count, TALL, TURN_WIDTH, turns) : NULL;
    free(images);
    if (!y) return false;
    for (int i = 0; i < count; i++) {
        lines[i].upside_down = ((const float *)y->dl_tensor.data)[2 * i + 1];
        lines[i].turned = lines[i].upside_down > 0.9F;
    }
    y->deleter(y);
    return true;
}

/* The reader's characters, one to a line of the model's note; 0 is none, the one after the last a blank. */
static const char *character(const char *characters, int number, int *length) {
    for (; number > 1 && *characters; number--)
        characters += strcspn(characters, "\n"), characters += *characters == '\n';
    *length = *characters ? (int)strcspn(characters, "\n") : 1;
    return *characters ? characters : " ";
}

/* Greedy decoding of a connectionist temporal classification: in each of the steps the likeliest class, equal neighbours once, without 0. */
static void decode(const float *scores, int64_t steps, int64_t classes, const char *characters, line *l) {
    int64_t before = 0;
    int count = 0;
    for (int64_t t = 0; t < steps; t++, scores += classes) {
        int64_t best = 0;
        for (int64_t k = 1; k < classes; k++)
            if (scores[k] > scores[best]) best = k;
        if (best != 0 && best != before) {
            int length;
            const char *text = character(characters, (int)best, &length);
            const size_t used = strlen(l->text);
            snprintf(l->text + used, sizeof l->text - used, "%.*s", length, text);
            l->sure += scores[best], count++;
        }
        before = best;
    }
    if (count) l->sure /= (float)count;
}

/* The reader's result is [count][steps][classes]. */
static bool read_lines(network *reader, const image *page, int turns, line *lines, int count) {
    const char *characters = dlc_onnx_note(reader->model, "character");
    int width = READ_WIDTH;
    for (int i = 0; i < count; i++) width = line_width(lines[i].box) > width ? line_width(lines[i].box) : width;
    float *images = line_images(page, lines, count, width);
    DLManagedTensorVersioned *y = images ? network_run(reader, images, count, TALL, width, turns) : NULL;
    free(images);
    if (y && !characters) fprintf(stderr, "ocr: the reader has no note `character`\n"), y->deleter(y), y = NULL;
    if (!y) return false;
    const int64_t steps = y->dl_tensor.shape[1], classes = y->dl_tensor.shape[2];
    for (int i = 0; i < count; i++)
        decode((const float *)y->dl_tensor.data + i * steps * classes, steps, classes, characters, &lines[i]);
    y->deleter(y);
    return true;
}

/* ---- the page ------------------------------------------------------------------------------------------------------- */

static void print_numbers(const line *lines, int count) {
    for (int i = 0; i < count; i++) {
        const box b = lines[i].box;
        printf("box %d %d %d %d\nscores %.6f %.6f %.6f\nline %s\n", b.left, b.top, b.right, b.bottom, (double)b.score,
               (double)lines[i].upside_down, (double)lines[i].sure, lines[i].text);
    }
}

static void print_page(const network *networks, const line *lines, int count) {
    static const char *const what[] = {"lines found", "lines turned", "lines read"};
    for (int i = 0; i < count; i++)
        printf("%4d,%-4d %5.1f %% %s%s\n", lines[i].box.left, lines[i].box.top, 100 * (double)lines[i].sure,
               lines[i].text, lines[i].turned ? "  (upside down)" : "");
    printf(count ? "\n" : "no text\n\n");
    for (int i = 0; i < (count ? 3 : 1); i++)
        printf("%-12s first call %7.1f ms, then %6.2f ms per call\n", what[i], networks[i].first, networks[i].each);
}

static bool read_page(dlc_context *context, char paths[3][DATA_PATH], image *page, bool numbers, const char *framed) {
    static line lines[LINES];
    const int turns = numbers ? 0 : TURNS;
    network networks[3] = {0};
    int count = -1;
    bool good = true;
    for (int i = 0; i < 3; i++) good = good && network_open(&networks[i], context, paths[i]);
    if (good) count = find_lines(&networks[0], page, turns, lines);
    good = count >= 0 && (count == 0 || (turn_lines(&networks[1], page, turns, lines, count) &&
                                         read_lines(&networks[2], page, turns, lines, count)));
    if (good && numbers) print_numbers(lines, count);
    if (good && !numbers) {
        print_page(networks, lines, count);
        for (int i = 0; i < count; i++) image_frame(page, lines[i].box);
        good = image_write(page, framed);
    }
    for (int i = 0; i < 3; i++) network_close(&networks[i]);
    return good;
}

int main(int argc, char **argv) {
    static const char *const models[] = {"ch_PP-OCRv4_det_infer.onnx", "ch_ppocr_mobile_v2.0_cls_infer.onnx",
                                         "ch_PP-OCRv4_rec_infer.onnx"};
    const bool numbers = argc > 1 && strcmp(argv[1], "--numbers") == 0;
    char paths[3][DATA_PATH], scan[DATA_PATH];
    for (int i = 0; i < 3; i++) {
        char name[128];
        snprintf(name, sizeof name, "rapidocr_onnxruntime/models/%s", models[i]);
        if (!data_find(paths[i], name)) return DATA_MISSING;
    }
    if (argc > 1 + numbers)
        snprintf(scan, sizeof scan, "%s", argv[1 + numbers]);
    else if (!data_find(scan, "page.png"))
        return DATA_MISSING;
    image page = {0};
    dlc_context *context = NULL;
    bool good = image_read(&page, scan);
    if (good && dlc_context_create(NULL, &context) != DLC_OK)
        good = false, fprintf(stderr, "ocr: %s\n", dlc_error_message(NULL));
    good = good && read_page(context, paths, &page, numbers, argc > 2 ? argv[2] : "ocr.png");
    dlc_context_destroy(context);
    free(page.pixels);
    return !good;
}
