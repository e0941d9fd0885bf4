/* Reads the lines that describe cases: `kind name... key=value... flag...`. The name of a map may itself hold any character but
 * '=' ("gelu(a*x+b)", "cast f32->bf16"); it ends at the first parameter. Linked into the peers' plug-ins too. */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

static void append(char *text, size_t size, const char *word) {
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used ? " " : "", word);
}

static void parse_parameter(bench_shape *shape, const char *word) {
    if (shape->count == BENCH_MAX_PARAMETERS) return;
    const char *equals = strchr(word, '=');
    int length = equals ? (int)(equals - word) : (int)strlen(word);
    snprintf(shape->parameters[shape->count].key, sizeof shape->parameters[0].key, "%.*s", length, word);
    snprintf(shape->parameters[shape->count].value, sizeof shape->parameters[0].value, "%s", equals ? equals + 1 : "");
    shape->count++;
}

static bool goes_without_saying(const bench_shape *shape, const char *word) {
    static const char *const defaults[][2] = {{"", "groups=1"}, {"", "dilation=1"}, {"", "stride=1"},
                                              {"", "pad=0"},    {"", "b=1"},        {"convolution", "n=1"}};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if ((!defaults[i][0][0] || strcmp(shape->kind, defaults[i][0]) == 0) && strcmp(word, defaults[i][1]) == 0)
            return true;
    return false;
}

bool bench_shape_parse(bench_shape *shape, const char *line) {
    *shape = (bench_shape){0};
    char copy[sizeof shape->text];
    if (line[0] == '#' || strlen(line) >= sizeof copy) return false;
    strcpy(copy, line);
    char *rest = copy;
    for (char *word; (word = strtok_r(rest, " \t\r\n", &rest)) != NULL;) {
        append(shape->text, sizeof shape->text, word);
        if (!goes_without_saying(shape, word)) append(shape->label, sizeof shape->label, word);
        if (!shape->kind[0])
            snprintf(shape->kind, sizeof shape->kind, "%s", word);
        else if (shape->count || strchr(word, '='))
            parse_parameter(shape, word);
        else
            append(shape->name, sizeof shape->name, word);
    }
    return shape->kind[0] != 0;
}

const char *bench_text(const bench_shape *shape, const char *key) {
    for (int i = 0; i < shape->count; i++)
        if (strcmp(shape->parameters[i].key, key) == 0) return shape->parameters[i].value;
    return NULL;
}

int64_t bench_number(const bench_shape *shape, const char *key, int64_t otherwise) {
    const char *text = bench_text(shape, key);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

bool bench_flag(const bench_shape *shape, const char *key) {
    return bench_text(shape, key) != NULL;
}

bench_layout bench_layout_of(const bench_shape *shape, int64_t channels) {
    if (bench_flag(shape, "last")) return BENCH_LAST;
    return bench_flag(shape, "blocked") && channels % 16 == 0 ? BENCH_BLOCKED : BENCH_PLAIN;
}

int bench_numbers(const char *text, int64_t numbers[DLC_MAX_RANK]) {
    int count = 0;
    while (text && *text && count < DLC_MAX_RANK) {
        if (*text < '0' || *text > '9') {
            text++;
            continue;
        }
        char *end;
        numbers[count++] = strtoll(text, &end, 10);
        text = end;
    }
    return count;
}
