/* Reads the list of cases, and makes their inputs. */
#include "bench/models/cases.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ------------------------------------------------------------------------------------------------------------ */

static model_case *add_case(model_cases *cases) {
    model_case *more = realloc(cases->list, (size_t)(cases->count + 1) * sizeof *more);
    if (!more) return NULL;
    cases->list = more;
    cases->list[cases->count] = (model_case){.first = true};
    return &cases->list[cases->count++];
}

/* False: no case. */
static bool parse_line(model_cases *cases, const char *line) {
    model_case *it = add_case(cases);
    int at = 0;
    if (!it) return false;
    if (line[0] == '-') {
        if (cases->count < 2) return false;
        *it = it[-1];
        it->first = false;
        at = 1 + (int)strspn(line + 1, " ");
    } else if (line[0] == '@') {
        if (sscanf(line + 1, "%15s %39s %n", it->measure, it->model, &at) < 2) return false;
        return snprintf(it->text, sizeof it->text, "%.*s", (int)strcspn(line + 1 + at, "\r\n"), line + 1 + at) <
               (int)sizeof it->text;
    } else if (sscanf(line, "%39s %15s %n", it->model, it->family, &at) < 2)
        return false;
    const int length = (int)strcspn(line + at, "\r\n");
    return length && snprintf(it->text, sizeof it->text, "%.*s", length, line + at) < (int)sizeof it->text;
}

bool model_cases_read(model_cases *cases, const char *path) {
    char line[512];
    FILE *file = fopen(path, "r");
    *cases = (model_cases){0};
    if (!file) return perror(path), false;
    bool good = true;
    for (int number = 1; good && fgets(line, sizeof line, file); number++) {
        if (line[strspn(line, " \t\r\n")] == 0 || line[0] == '#') continue;
        good = parse_line(cases, line);
        if (!good)
            fprintf(stderr, "%s:%d: expected MODEL FAMILY INPUT..., - INPUT... or @MEASURE MODEL [INPUT...]\n", path,
                    number);
    }
    fclose(file);
    if (!good) model_cases_free(cases);
    return good;
}

void model_cases_free(model_cases *cases) {
    free(cases->list);
    *cases = (model_cases){0};
}

/* ---- inputs --------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    DLDataType type;
} element_types[] = {
    {"f32", {kDLFloat, 32, 1}}, {"i64", {kDLInt, 64, 1}}, {"i32", {kDLInt, 32, 1}}, {"bool", {kDLBool, 8, 1}}};

static bool parse_type(const char *text, DLDataType *type) {
    for (size_t i = 0; i < sizeof element_types / sizeof *element_types; i++)
        if (strcmp(element_types[i].name, text) == 0) return *type = element_types[i].type, true;
    return false;
}

static bool parse_sizes(const char *text, int64_t step, engine_input *in) {
    while (*text && in->tensor.ndim < DLC_MAX_RANK) {
        char *end;
        int64_t size = strtoll(text, &end, 10);
        if (end == text) return false;
        if (strncmp(end, "..", 2) == 0) {
            const int64_t last = strtoll(end + 2, &end, 10);
            size = size + step < last ? size + step : last;
        }
        in->shape[in->tensor.ndim++] = size;
        if (*end && *end != 'x') return false;
        text = end + (*end == 'x');
    }
    return !*text;
}

static void set_element(DLTensor *t, int64_t i, double number) {
    if (t->dtype.code == kDLFloat)
        ((float *)t->data)[i] = (float)number;
    else if (t->dtype.bits == 64)
        ((int64_t *)t->data)[i] = (int64_t)number;
    else if (t->dtype.bits == 32)
        ((int32_t *)t->data)[i] = (int32_t)number;
    else
        ((uint8_t *)t->data)[i] = number != 0;
}

/* `content` NULL: numbers in [-1, 1). */
static bool fill(engine_input *in, const char *content) {
    int64_t count = 1;
    uint32_t state = 1;
    for (int d = 0; d < in->tensor.ndim; d++) count *= in->shape[d];
    const size_t bytes = (size_t)count * in->tensor.dtype.bits / 8;
    in->tensor.data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!in->tensor.data) return false;
    const bool whole = content && *content == '<';
    const double number = content ? strtod(content + whole, NULL) : 0;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes */
        const double random = (double)(state >> 8) * 0x1p-24;
        set_element(&in->tensor, i, !content ? 2 * random - 1 : whole ? random * number : number);
    }
    return true;
}

/* `text` is taken apart. */
static bool make_input(char *text, int64_t step, engine_input *in) {
    char *value = strchr(text, '='), *part[3] = {NULL};
    int count = 0;
    *in = (engine_input){.tensor = {.device = {kDLCPU, 0}, .dtype = {kDLFloat, 32, 1}}};
    if (!value || value - text >= (int)sizeof in->name) return false;
    *value++ = 0;
    strcpy(in->name, text);
    for (char *p = value; p && count < 3; count++) {
        part[count] = p;
        p = strchr(p, ':');
        if (p) *p++ = 0;
    }
    if (count > 1 && !parse_type(part[0], &in->tensor.dtype)) return false;
    return parse_sizes(part[count > 1], step, in) && fill(in, part[2]);
}

/* Addresses within an input hold as long as it is not moved. */
int model_inputs_make(const char *text, int64_t step, engine_input inputs[ENGINE_MOST_INPUTS]) {
    char copy[512], *rest = copy;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strtok_r(rest, " \t", &rest)) != NULL; count++) {
        if (count == ENGINE_MOST_INPUTS) break;
        if (!make_input(word, step, &inputs[count])) return model_inputs_free(inputs, count), -1;
        inputs[count].tensor.shape = inputs[count].shape;
    }
    return count;
}

int64_t model_inputs_steps(const char *text) {
    int64_t most = 1;
    for (const char *at = text; (at = strstr(at, "..")) != NULL; at += 2) {
        const char *begin = at;
        while (begin > text && begin[-1] >= '0' && begin[-1] <= '9') begin--;
        const int64_t steps = strtoll(at + 2, NULL, 10) - strtoll(begin, NULL, 10) + 1;
        if (steps > most) most = steps;
    }
    return most;
}

void model_inputs_free(engine_input *inputs, int count) {
    for (int i = 0; i < count; i++) free(inputs[i].tensor.data);
}
