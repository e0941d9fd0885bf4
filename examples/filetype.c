/* Says what files are, by the bytes at their beginning and end, with Magika's network.
 *
 *   filetype FILE...               a line for each file
 *   filetype --numbers FILE...     the class and its probability alone */
#include "data.h"

#include <dlc/onnx.h>
#include <stdint.h>
#include <string.h>

enum { CLASSES = 512, BLOCK = 4096, CONFIG = 1 << 16, REPEATED = 20 };

/* From config.min.json: which bytes of a file the network takes, and its classes. */
typedef struct config {
    /* bytes from either end of a file: the first and last `size` bytes of a block, without white space at the ends */
    int size, block;
    /* In place of bytes that a short file lacks. */
    int padding;
    /* Shorter files are not for the network. */
    int least;
    int classes;
    const char *class_[CLASSES]; /* in `text` */
    char text[CONFIG];
} config;

/* ---- config.min.json ------------------------------------------------------------------------------------------------ */

static int setting(const config *c, const char *name) {
    const char *at = strstr(c->text, name);
    int value = -1;
    return at && sscanf(at + strlen(name), ":%d", &value) == 1 ? value : -1;
}

static void split_classes(config *c) {
    static const char name[] = "\"target_labels_space\":[";
    char *list = strstr(c->text, name), *rest = NULL;
    if (!list) return;
    list += strlen(name);
    list[strcspn(list, "]")] = 0;
    for (char *word = strtok_r(list, "\",", &rest); word && c->classes < CLASSES; word = strtok_r(NULL, "\",", &rest))
        c->class_[c->classes++] = word;
}

static bool read_config(config *c, const char *path) {
    FILE *file = fopen(path, "rb");
    if (file) c->text[fread(c->text, 1, CONFIG - 1, file)] = 0, fclose(file);
    c->size = setting(c, "\"beg_size\""), c->block = setting(c, "\"block_size\"");
    c->padding = setting(c, "\"padding_token\""), c->least = setting(c, "\"min_file_size_for_dl\"");
    const bool ends = setting(c, "\"end_size\"") == c->size && setting(c, "\"mid_size\"") == 0;
    split_classes(c);
    const bool lengths = c->least > 0 && c->least <= c->size && c->size <= c->block && c->block <= BLOCK;
    if (ends && lengths && c->classes > 0) return true;
    fprintf(stderr, "filetype: %s: not the settings of a network that reads the ends of files\n", path);
    return false;
}

/* ---- a file --------------------------------------------------------------------------------------------------------- */

static bool is_white(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* taken[2 * size]: the first bytes, padded at the end, and the last bytes, padded at the beginning. False: the file is too short, or cannot
 * be read. */
static bool take_bytes(const config *c, const char *path, int32_t *taken) {
    unsigned char block[BLOCK];
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    const size_t all = (size_t)c->block;
    size_t count = fread(block, 1, all, file), from = 0;
    while (from < count && is_white(block[from])) from++;
    for (size_t i = 0; i < (size_t)c->size; i++) taken[i] = from + i < count ? block[from + i] : c->padding;
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) > (long)count && fseek(file, -(long)all, SEEK_END) == 0)
        count = fread(block, 1, all, file);
    fclose(file);
    while (count > 0 && is_white(block[count - 1])) count--;
    int32_t *end = taken + 2 * c->size;
    for (size_t i = 1; i <= (size_t)c->size; i++) end[-(ptrdiff_t)i] = i <= count ? block[count - i] : c->padding;
    return taken[c->least - 1] != c->padding;
}

/* ---- the network ---------------------------------------------------------------------------------------------------- */

static dlc_status score(dlc_onnx_runner *runner, const config *c, int32_t *taken, float *probability) {
    const DLDevice cpu = {kDLCPU, 0};
    DLTensor bytes = {
        .data = taken, .device = cpu, .ndim = 2, .dtype = {kDLInt, 32, 1}, .shape = (int64_t[]){1, 2 * c->size}};
    DLTensor label = {
        .data = probability, .device = cpu, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){1, c->classes}};
    return dlc_onnx_run(runner, NULL, (const DLTensor *const[]){&bytes}, 1, (dlc_output_slot[]){{&label, NULL}}, 1);
}

static int greatest(const float *numbers, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (numbers[i] > numbers[best]) best = i;
    return best;
}

static bool classify(dlc_onnx_runner *runner, const config *c, char **paths, int count, bool numbers) {
    float probability[CLASSES];
    int32_t taken[2 * BLOCK];
    double first = 0, each = 0;
    int calls = 0;
    for (int i = 0; i < count; i++) {
        if (!take_bytes(c, paths[i], taken)) {
            printf("%s%s\n", numbers ? "none " : paths[i], numbers ? "0" : ": too short, or not to be read");
            continue;
        }
        /* The first call compiles: the first file is run again, for the time. */
        for (int turns = numbers || calls ? 1 : REPEATED; turns > 0; turns--, calls++) {
            const double begin = milliseconds();
            if (score(runner, c, taken, probability) != DLC_OK) return false;
            if (calls == 0)
                first = milliseconds() - begin;
            else
                each += milliseconds() - begin;
        }
        const int best = greatest(probability, c->classes);
        if (numbers)
            printf("%s %.6f\n", c->class_[best], (double)probability[best]);
        else
            printf("%s: %s (%.1f %%)\n", paths[i], c->class_[best], 100 * (double)probability[best]);
    }
    if (!numbers && calls > 1) printf("\nfirst call %.1f ms, then %.3f ms per call\n", first, each / (calls - 1));
    return true;
}

int main(int argc, char **argv) {
    static config c;
    const bool numbers = argc > 1 && strcmp(argv[1], "--numbers") == 0;
    char path[DATA_PATH], settings[DATA_PATH];
    if (argc < 2 + numbers) return fprintf(stderr, "usage: filetype [--numbers] FILE...\n"), 1;
    if (!data_find(path, "magika/models/standard_v3_3/model.onnx") ||
        !data_find(settings, "magika/models/standard_v3_3/config.min.json"))
        return DATA_MISSING;
    if (!read_config(&c, settings)) return 1;
    dlc_context *context = NULL;
    dlc_onnx_model *model = NULL;
    dlc_onnx_runner *runner = NULL;
    const bool good = dlc_context_create(NULL, &context) == DLC_OK &&
                      dlc_onnx_open(context, path, NULL, &model) == DLC_OK &&
                      dlc_onnx_runner_create(model, NULL, &runner) == DLC_OK &&
                      classify(runner, &c, argv + 1 + numbers, argc - 1 - numbers, numbers);
    if (!good) fprintf(stderr, "filetype: %s\n", dlc_error_message(context));
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    dlc_context_destroy(context);
    return !good;
}
