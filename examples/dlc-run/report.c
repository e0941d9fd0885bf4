/* What dlc-run tells: lines of text, or one JSON object (RFC 8259), which is written when all of it is known. */
#include "dlc-run.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

bool report_begin(report *r, bool json) {
    *r = (report){.first = true};
    if (!json) return true;
    r->json = open_memstream(&r->bytes, &r->size);
    if (!r->json) return fprintf(stderr, "dlc-run: no memory for the JSON object\n"), false;
    fputc('{', r->json);
    return true;
}

void report_end(report *r, bool good) {
    if (!r->json) return;
    fputs("}\n", r->json);
    if (fclose(r->json) == 0 && good) fwrite(r->bytes, 1, r->size, stdout);
    free(r->bytes);
}

bool report_take(report *r, char **bytes, size_t *size) {
    fputs("}\n", r->json);
    const bool good = fclose(r->json) == 0;
    *bytes = r->bytes, *size = r->size;
    return good;
}

void say(const report *r, const char *format, ...) {
    if (r->json) return;
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
}

/* Bytes of the character at `text` in UTF-8; 0: it is none (RFC 3629). */
static int character_size(const unsigned char *text) {
    const unsigned char c = text[0];
    const int size = c < 0x80                ? 1
                     : c >= 0xc2 && c < 0xe0 ? 2
                     : c >= 0xe0 && c < 0xf0 ? 3
                     : c >= 0xf0 && c < 0xf5 ? 4
                                             : 0;
    for (int i = 1; i < size; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    const bool too_long = (c == 0xe0 && text[1] < 0xa0) || (c == 0xf0 && text[1] < 0x90);
    const bool no_character = (c == 0xed && text[1] >= 0xa0) || (c == 0xf4 && text[1] >= 0x90);
    return too_long || no_character ? 0 : size;
}

/* Bytes that are no UTF-8 become U+FFFD. */
static void write_string(FILE *to, const char *text) {
    fputc('"', to);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        const int size = character_size(at);
        if (size == 0)
            fputs("\\ufffd", to);
        else if (*at < 0x20)
            fprintf(to, "\\u%04x", (unsigned)*at);
        else if (*at == '"' || *at == '\\')
            fprintf(to, "\\%c", *at);
        else
            fwrite(at, 1, (size_t)size, to);
        at += size ? size : 1;
    }
    fputc('"', to);
}

static bool member(report *r, const char *key) {
    if (!r->json) return false;
    if (!r->first) fputs(", ", r->json);
    r->first = false;
    if (key) write_string(r->json, key), fputs(": ", r->json);
    return true;
}

void json_open(report *r, const char *key, const char *bracket) {
    if (!member(r, key)) return;
    fputs(bracket, r->json);
    r->first = true;
}

void json_close(report *r, const char *bracket) {
    if (!r->json) return;
    fputs(bracket, r->json);
    r->first = false;
}

void json_string(report *r, const char *key, const char *text) {
    if (member(r, key)) write_string(r->json, text);
}

void json_number(report *r, const char *key, double number) {
    if (!member(r, key)) return;
    if (isfinite(number))
        fprintf(r->json, "%.9g", number);
    else
        fputs("null", r->json);
}

void json_whole(report *r, const char *key, int64_t number) {
    if (member(r, key)) fprintf(r->json, "%" PRId64, number);
}

void json_time(report *r, const char *key, uint64_t ns) {
    if (member(r, key)) fprintf(r->json, "%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

void json_size(report *r, const char *key, int64_t size) {
    if (size >= 0)
        json_whole(r, key, size);
    else if (member(r, key))
        fputs("null", r->json);
}

void json_bool(report *r, const char *key, bool value) {
    if (member(r, key)) fputs(value ? "true" : "false", r->json);
}

void json_shape(report *r, const char *key, int rank, const int64_t *shape) {
    json_open(r, key, "[");
    for (int d = 0; d < rank; d++) json_whole(r, NULL, shape[d]);
    json_close(r, "]");
}
