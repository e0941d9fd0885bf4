/* Statements of any row of the operator table, from its samples; which rows have none, and why. */
#ifndef TEST_FUZZ_GENERATE_SAMPLES_H
#define TEST_FUZZ_GENERATE_SAMPLES_H

#include "fuzz/generate.h"

/* ---- any row, as its samples have it */

/* Rows that statements cannot be made of by their samples; why. */
static const struct {
    const char *row, *why;
} gen_no_samples[] = {
    {"input", "gen_declare"},
    {"constant", "gen_constant"},
    {"if", "add_if"},
    {"while", "add_while"},
    {"scan", "add_scan"},
    {"cut", "add_counted"},
    {"non_zero", "add_counted"},
    {"unique", "add_counted"},
    {"unique_along", "add_counted"},
    {"non_max_suppression", "add_counted"},
    {"custom_call", "calls a function of the host: test/api"},
    {"custom_effect", "calls a function of the host: test/api"},
};

/* NULL: by its samples. */
static inline const char *gen_why_not(const graph_op *op) {
    for (size_t i = 0; i < sizeof gen_no_samples / sizeof *gen_no_samples; i++)
        if (strcmp(op->name, gen_no_samples[i].row) == 0) return gen_no_samples[i].why;
    return op->samples ? NULL : "has no samples";
}

static inline const graph_op *gen_row(gen *g) {
    const graph_op *found = NULL;
    int64_t seen = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *op = *family; *op; op++)
            if (!gen_why_not(*op) && gen_one_in(g, ++seen)) found = *op;
    return found;
}

static inline dlc_dtype gen_row_dtype(gen *g, const graph_op *op) {
    dlc_dtype found = DLC_F32;
    int64_t seen = 0;
    for (int d = 0; d < DLC_DTYPE_COUNT; d++) {
        int64_t weight = d == DLC_F32 ? 4 : 1;
        if (!graph_op_accepts(op, (dlc_dtype)d)) continue;
        seen += weight;
        if (gen_below(g, seen) < weight) found = (dlc_dtype)d;
    }
    return found;
}

/* A value of this shape: one that is there, one made of another by taking its first elements, or a new one. */
static inline int gen_shaped(gen *g, const gen_value *like) {
    const double count = gen_count(like);
    int found = -1, seen = 0;
    bool symbolic = !gen_is_fixed(like);
    for (int i = 0; i < g->values; i++) {
        const gen_value *v = &g->value[i];
        if (v->dtype == like->dtype && !v->apart && gen_is_fixed(v) && gen_count(v) >= count && gen_one_in(g, ++seen))
            found = i;
    }
    if (found < 0 || symbolic || gen_one_in(g, 2)) return gen_operand(g, like);
    int64_t all = (int64_t)gen_count(&g->value[found]), some = (int64_t)count;
    g->value[found].uses++;
    TRY_ELSE(gen_node(g, "reshape(%s, shape=[%lld])", NAME(found), (long long)all), flat, -1);
    TRY_ELSE(gen_node(g, "slice(%s, start=[%lld], stop=[%lld])", NAME(flat), (long long)(all - some), (long long)all),
             part, -1);
    g->value[flat].uses++, g->value[part].uses++;
    return gen_node(g, "reshape(%s, shape=%s)", NAME(part), gen_dims(like, 0, like->rank).text);
}

/* The same between two numbers. */
static inline int gen_limited(gen *g, int value, double low, double high) {
    const gen_value scalar = {.dtype = g->value[value].dtype};
    case_bits from = {{0}}, to = {{0}};
    if (scalar.dtype == DLC_BOOL || lib_dtype_is_stored_otherwise(scalar.dtype)) return value;
    lib_element_set_f64(scalar.dtype, from.bytes, low);
    lib_element_set_f64(scalar.dtype, to.bytes, lib_dtype_is_float(scalar.dtype) ? high : high - 1);
    TRY_ELSE(gen_constant_of(g, &scalar, &from), a, -1);
    TRY_ELSE(gen_constant_of(g, &scalar, &to), b, -1);
    g->value[value].uses++;
    return gen_node(g, "clamp(%s, %s, %s)", NAME(a), NAME(value), NAME(b));
}

/* f32[2, n] in 0..10, up to `end`, becomes a value's name. */
static inline bool gen_sample_operand(gen *g, const char *at, const char *end, FILE *out) {
    gen_value like = {0};
    char name[32] = "";
    size_t length = strcspn(at, "[");
    if (*at == '_') {
        fputc('_', out);
        return true;
    }
    if (length > 31) return false;
    memcpy(name, at, length);
    if (!lib_dtype_parse(name, &like.dtype)) return false;
    for (at += length + 1; *at != ']'; at += strspn(at, ", ")) {
        length = strcspn(at, ",]");
        if (like.rank == DLC_MAX_RANK || length > 15) return false;
        memcpy(like.text[like.rank], at, length);
        like.dim[like.rank++] = *at == 'n' ? g->size[0] : strtoll(at, NULL, 10);
        at += length;
    }
    if (gen_count(&like) > (double)g->largest) return false;
    int value = gen_shaped(g, &like);
    const char *limits = at + 1 < end ? strstr(at, " in ") : NULL;
    if (value >= 0 && limits && limits < end && !gen_one_in(g, 6)) {
        char *after;
        double low = strtod(limits + 4, &after);
        const char *dots = strstr(limits, "..");
        value = gen_limited(g, value, low, strtod(dots + 2, &after));
    }
    if (value < 0) return false;
    g->value[value].uses++;
    fputs(NAME(value), out);
    return true;
}

/* The sample with T replaced by the dtype and, now and then, one of its sizes by another one, wherever it stands. */
static inline char *gen_sample_text(gen *g, const char *line, size_t length, dlc_dtype dtype, bool *changed) {
    char *text = NULL, from[24] = "", to[24];
    size_t size;
    int64_t numbers = 0;
    FILE *out = open_memstream(&text, &size);
    *changed = gen_one_in(g, 2);
    for (size_t i = 1; i < length && *changed; i++) /* a number after a bracket or a comma is a size, mostly */
        if (isdigit((unsigned char)line[i]) && strchr("[ ", line[i - 1]) && gen_one_in(g, ++numbers))
            snprintf(from, sizeof from, "%.*s", (int)strspn(line + i, "0123456789"), line + i);
    *changed = from[0] != 0;
    snprintf(to, sizeof to, "%lld",
             (long long)(gen_one_in(g, 2) ? gen_between(g, 1, 9) : g->size[1 + gen_below(g, 3)]));
    if (g->symbol[0] && gen_one_in(g, 3)) strcpy(to, "n");
    for (size_t i = 0; i < length;) {
        size_t word = 0;
        while (i + word < length && (isalnum((unsigned char)line[i + word]) || line[i + word] == '_')) word++;
        bool limit = i && (line[i - 1] == '.' || line[i - 1] == '-' || (i > 3 && memcmp(line + i - 4, " in ", 4) == 0));
        bool repeats = i > 6 && memcmp(line + i - 7, "sweeps=", 7) == 0; /* as often as it is large: minutes */
        if (word == 1 && line[i] == 'T')
            fputs(lib_dtypes[dtype].name, out);
        else if (word && !limit && !repeats && *changed && word == strlen(from) && memcmp(line + i, from, word) == 0)
            fputs(to, out);
        else
            fwrite(line + i, 1, word ? word : 1, out);
        i += word ? word : 1;
    }
    fclose(out);
    return text;
}

/* Where the argument that begins here ends: at a comma or the last parenthesis. */
static inline const char *gen_argument_end(const char *at) {
    int depth = 0;
    bool quoted = false;
    for (; *at; at++) {
        quoted ^= *at == '"';
        if (quoted) continue;
        if (depth == 0 && (*at == ',' || *at == ')')) return at;
        depth += *at == '[' || *at == '(' || *at == '{';
        depth -= *at == ']' || *at == ')' || *at == '}';
    }
    return NULL;
}

/* How many results the row has under these attributes: as many as it is declared with, or those of its kind. */
static inline int gen_result_count(const graph_op *op) {
    return op->results > 0 ? op->results : 1;
}

static inline void add_sample(gen *g) {
    const graph_op *op = gen_row(g);
    const char *line = op->samples;
    int64_t seen = 0;
    for (const char *at = op->samples; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (*at && gen_one_in(g, ++seen)) line = at;
    bool changed, good = true;
    char *text = gen_sample_text(g, line, strcspn(line, "\n"), gen_row_dtype(g, op), &changed), *node = NULL;
    size_t size;
    FILE *out = open_memstream(&node, &size);
    const char *at = text + strcspn(text, "(") + 1, *end;
    fwrite(text, 1, (size_t)(at - text), out);
    for (; *at != ')' && good && (end = gen_argument_end(at)); at = end + strspn(end, ", ")) {
        size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        if (at != text + strcspn(text, "(") + 1) fputs(", ", out);
        if (name && at[name] == '=')
            fwrite(at, 1, (size_t)(end - at), out);
        else
            good = gen_sample_operand(g, at, end, out);
        if (*end == ')') break;
    }
    fputc(')', out);
    fclose(out);
    if (good) gen_nodes(g, gen_result_count(op), node, GEN_UNBOUNDED | GEN_DOUBTFUL);
    free(text);
    free(node);
}

#endif
