#include "onnx/registered.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int calls;

int registered_calls(void) {
    return calls;
}

/* ---- RegexFullMatch ------------------------------------------------------------------------------------------------------- */

enum { PATTERN = 4096 };

typedef struct translation {
    char text[PATTERN];
    size_t length;
    bool fits;
} translation;

static void add(translation *to, const char *text) {
    const size_t size = strlen(text);
    to->fits = to->fits && to->length + size < PATTERN;
    if (to->fits) memcpy(to->text + to->length, text, size + 1), to->length += size;
}

/* What RE2's class of that letter is inside of brackets; NULL: it is none. */
static const char *class_of(char letter) {
    switch (letter) {
    case 'w': return "[:alnum:]_";
    case 'd': return "[:digit:]";
    case 's': return "[:space:]";
    default: return NULL;
    }
}

/* After a backslash outside of brackets: a class, its complement, or the same. */
static void add_escaped(translation *to, char letter) {
    const char *inside = class_of((char)(letter | 32));
    if (inside)
        add(to, letter & 32 ? "[" : "[^"), add(to, inside), add(to, "]");
    else
        add(to, (char[]){'\\', letter, 0});
}

/* From the bracket on; returns the place after its end. POSIX has no escapes there, but places: ] stands first, - last. */
static const char *add_bracket(translation *to, const char *at) {
    bool dash = false;
    add(to, "[");
    if (*++at == '^') add(to, "^"), at++;
    for (bool first = true; *at && (*at != ']' || first); first = false, at++) {
        const char *inside = *at == '\\' && at[1] ? class_of(*++at) : NULL;
        if (inside)
            add(to, inside);
        else if (*at == '-' && at[-1] == '\\')
            dash = true;
        else if (*at == ']' && !first)
            to->fits = false;
        else
            add(to, (char[]){*at, 0});
    }
    add(to, dash ? "-]" : "]");
    return *at ? at + 1 : at;
}

/* RE2's syntax as POSIX has it, for a match of the whole. Greediness makes no difference to that. */
static void translate(translation *to, const char *pattern) {
    bool repeats = false; /* a ? after what repeats is about greediness */
    *to = (translation){.fits = true};
    add(to, "^(");
    for (const char *at = pattern; *at;) {
        const bool repeated = repeats;
        repeats = strchr("*+?}", *at) && !(*at == '?' && repeated);
        if (*at == '[') {
            at = add_bracket(to, at);
            continue;
        }
        if (*at == '\\' && at[1])
            add_escaped(to, *++at);
        else if (strncmp(at, "(?:", 3) == 0)
            add(to, "("), at += 2;
        else if (*at != '?' || !repeated)
            add(to, (char[]){*at, 0});
        at++;
    }
    add(to, ")$");
}

static bool matches(const regex_t *compiled, const dlc_onnx_string *s) {
    char *text = malloc(s->size + 1);
    if (!text) abort();
    if (s->size) memcpy(text, s->data, s->size);
    text[s->size] = 0;
    const bool is = strlen(text) == s->size && regexec(compiled, text, 0, NULL, 0) == 0;
    free(text);
    return is;
}

static dlc_status match_all(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                            int results) {
    const char *pattern = NULL;
    translation posix;
    regex_t compiled;
    size_t strings = 1;
    (void)user, (void)results, calls++;
    if (count != 1 || !inputs[0] || inputs[0]->kind != DLC_ONNX_STRINGS)
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "expected strings");
    if (!dlc_callback_string(callback, "pattern", &pattern, NULL))
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "there is no pattern");
    translate(&posix, pattern);
    if (!posix.fits || regcomp(&compiled, posix.text, REG_EXTENDED | REG_NOSUB) != 0)
        return dlc_callback_fail(callback, DLC_UNSUPPORTED, "the pattern is none that libc's regular expressions have");
    DLTensor *y = dlc_callback_tensor(callback, 0, DLC_BOOL, inputs[0]->rank, inputs[0]->dims);
    for (int d = 0; d < inputs[0]->rank; d++) strings *= (size_t)inputs[0]->dims[d];
    for (size_t i = 0; y && i < strings; i++) ((bool *)y->data)[i] = matches(&compiled, &inputs[0]->strings[i]);
    regfree(&compiled);
    return DLC_OK;
}

/* ---- ImageDecoder ----------------------------------------------------------------------------------------------------------- */

typedef struct stream {
    const uint8_t *data;
    size_t size;
} stream;

/* Where an image's pixels are in the stream. */
typedef struct image {
    int64_t height, width, channels;
    /* Of the first row; from a row to the next one. */
    int64_t start, pitch;
    /* Order of the channels. */
    bool blue_first;
} image;

/* A little-endian number; 0 past the end. */
static int64_t number_at(const stream *s, int64_t at, int bytes) {
    int64_t number = 0;
    for (int i = 0; i < bytes && at >= 0 && (size_t)at + (size_t)i < s->size; i++)
        number |= (int64_t)s->data[at + i] << 8 * i;
    return number;
}

static bool read_pnm(const stream *s, image *to) {
    char head[64];
    int kind, most, length = 0;
    long long width, height;
    snprintf(head, sizeof head, "%.*s", (int)(s->size < 60 ? s->size : 60), (const char *)s->data);
    if (sscanf(head, "P%d %lld %lld %d%n", &kind, &width, &height, &most, &length) != 4 || most != 255) return false;
    *to = (image){.height = height, .width = width, .channels = kind == 6 ? 3 : 1, .start = length + 1};
    to->pitch = width * to->channels;
    return kind == 5 || kind == 6;
}

/* Rows from the bottom upwards, padded to 4 bytes. */
static bool read_bmp(const stream *s, image *to) {
    if (memcmp(s->data, "BM", 2) != 0 || number_at(s, 28, 2) != 24 || number_at(s, 30, 4) != 0) return false;
    *to = (image){.height = number_at(s, 22, 4), .width = number_at(s, 18, 4), .channels = 3, .blue_first = true};
    const int64_t pitch = (3 * to->width + 3) / 4 * 4;
    to->start = number_at(s, 10, 4) + (to->height - 1) * pitch, to->pitch = -pitch;
    return true;
}

/* One strip, not compressed, of a file that begins with the byte order of Intel. */
static bool read_tiff(const stream *s, image *to) {
    enum { WIDTH = 256, HEIGHT, COMPRESSION = 259, STRIPS = 273, SAMPLES = 277 };
    const int64_t directory = number_at(s, 4, 4), entries = number_at(s, directory, 2);
    bool plain = memcmp(s->data, "II*", 4) == 0;
    *to = (image){.channels = 1};
    for (int64_t i = 0; i < entries && plain; i++) {
        const int64_t at = directory + 2 + 12 * i, value = number_at(s, at + 8, number_at(s, at + 2, 2) == 3 ? 2 : 4);
        switch (number_at(s, at, 2)) {
        case WIDTH: to->width = value; break;
        case HEIGHT: to->height = value; break;
        case COMPRESSION: plain = value == 1; break;
        case STRIPS: to->start = value, plain = number_at(s, at + 4, 4) == 1; break;
        case SAMPLES: to->channels = value; break;
        }
    }
    to->pitch = to->width * to->channels;
    return plain;
}

/* Are all pixels in the stream? */
static bool holds(const stream *s, const image *i) {
    if (i->height < 1 || i->width < 1 || i->height > 1 << 15 || i->width > 1 << 15 ||
        (i->channels != 1 && i->channels != 3))
        return false;
    const int64_t last = i->start + (i->height - 1) * i->pitch, row = i->width * i->channels;
    const int64_t low = i->start < last ? i->start : last, high = (i->start < last ? last : i->start) + row;
    return low >= 0 && (size_t)high <= s->size;
}

/* A pixel of the kind that is wanted; greys are weighted as ITU-R BT.601 has them. */
static void convert(const image *from, const uint8_t *pixel, const char *format, uint8_t *to) {
    const bool grey = from->channels == 1;
    const int red = pixel[from->blue_first ? 2 : 0], green = grey ? red : pixel[1],
              blue = grey ? red : pixel[from->blue_first ? 0 : 2];
    if (strcmp(format, "Grayscale") == 0) {
        *to = (uint8_t)((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16);
        return;
    }
    const bool reversed = strcmp(format, "BGR") == 0;
    to[0] = (uint8_t)(reversed ? blue : red), to[1] = (uint8_t)green, to[2] = (uint8_t)(reversed ? red : blue);
}

static dlc_status decode(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                         int results) {
    const char *format = "RGB";
    image i;
    (void)user, (void)results, calls++;
    if (count != 1 || !inputs[0] || inputs[0]->kind != DLC_ONNX_TENSOR || inputs[0]->tensor->ndim != 1 ||
        inputs[0]->tensor->dtype.bits != 8)
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "expected bytes");
    const stream s = {inputs[0]->tensor->data, (size_t)inputs[0]->tensor->shape[0]};
    dlc_callback_string(callback, "pixel_format", &format, NULL);
    const bool known = s.size > 8 && (read_pnm(&s, &i) || read_bmp(&s, &i) || read_tiff(&s, &i));
    if (!known || !holds(&s, &i))
        return dlc_callback_fail(callback, DLC_UNSUPPORTED, "this test decodes uncompressed PNM, BMP and TIFF only");
    const int64_t channels = strcmp(format, "Grayscale") == 0 ? 1 : 3;
    DLTensor *y = dlc_callback_tensor(callback, 0, DLC_U8, 3, (int64_t[]){i.height, i.width, channels});
    uint8_t *to = y ? y->data : NULL;
    for (int64_t row = 0; y && row < i.height; row++)
        for (int64_t x = 0; x < i.width; x++, to += channels)
            convert(&i, s.data + i.start + row * i.pitch + x * i.channels, format, to);
    return DLC_OK;
}

dlc_status registered_all(dlc_context *context) {
    const dlc_onnx_operator_options operators[] = {
        {.struct_size = sizeof *operators, .name = "RegexFullMatch", .attributes = "pattern", .call = match_all},
        {.struct_size = sizeof *operators, .name = "ImageDecoder", .attributes = "pixel_format", .call = decode}};
    dlc_status status = DLC_OK;
    for (int i = 0; i < 2 && status == DLC_OK; i++) status = dlc_onnx_register(context, &operators[i]);
    return status;
}
