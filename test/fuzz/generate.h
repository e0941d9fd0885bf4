/* Random valid graphs as text. A graph grows statement by statement; each candidate is parsed together with the statements before it, which
 * gives its shape and its bound, so that this file knows the operators' operands but none of their shape rules. If the library refuses a
 * candidate that was meant to be valid, that is a failure, too. */
#ifndef TEST_FUZZ_GENERATE_H
#define TEST_FUZZ_GENERATE_H

#include "fuzz/case.h"

#include <ctype.h>

enum { GEN_LINES = 96, GEN_LINE = 1 << 16, GEN_NODES = 14, GEN_RESULTS = 12, GEN_DEPTH = 2 };

/* How a statement is added. */
enum {
    GEN_SOURCE = 1,    /* an input or a constant */
    GEN_DOUBTFUL = 2,  /* may be refused, which is no failure */
    GEN_UNBOUNDED = 4, /* may have no bound: its results are outputs, and operands of nothing */
    GEN_APART = 8      /* its results are outputs and operands of nothing, whatever their bound */
};

typedef struct gen_value {
    char name[16];
    dlc_dtype dtype;
    int rank;
    int64_t dim[DLC_MAX_RANK];
    /* dimensions in the text form */
    char text[DLC_MAX_RANK][32];
    double error;
    /* is it an input or constant? */
    bool input;
    /* further nodes do not use it as an operand, except those made for it */
    bool apart;
    int uses;
} gen_value;

typedef struct gen {
    uint64_t random;
    case_setting setting;
    char head[256];
    char *line[GEN_LINES];
    int lines;
    gen_value value[GEN_LINES];
    int values, inputs, nodes;
    /* the graph's sizes; size[0] may be that of symbol n */
    int64_t size[4];
    bool symbol[4];
    /* most elements of a value */
    int64_t largest;
    /* nesting depth of sub-graphs */
    int depth;
    /* number of sub-graphs in the whole graph so far, for names */
    int *bodies;
    /* number of this sub-graph; 0: the outermost graph */
    int body;
    /* number of sizes that depend on data */
    int counted;
    char refused[CASE_MESSAGE];
} gen;

/* ---- dice */

static inline int64_t gen_below(gen *g, int64_t n) {
    return case_below(&g->random, n);
}
static inline bool gen_one_in(gen *g, int64_t n) {
    return gen_below(g, n) == 0;
}
static inline int64_t gen_between(gen *g, int64_t low, int64_t high) {
    return low + gen_below(g, high - low + 1);
}

/* A word of a list. */
static inline const char *gen_word(gen *g, const char *list, char word[32]) {
    int count = 1;
    for (const char *c = list; *c; c++) count += *c == ' ';
    int64_t which = gen_below(g, count);
    while (which--) list = strchr(list, ' ') + 1;
    size_t length = strcspn(list, " ");
    memcpy(word, list, length);
    word[length] = 0;
    return word;
}

/* ---- text */

static inline char *gen_text(const gen *g, const char *candidate) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file) return NULL;
    fprintf(file, "%s\ngraph {\n", g->head);
    if (g->body && g->symbol[0]) fprintf(file, "  input size_of_n: bool[n]\n"); /* the outer graph knows it */
    for (int i = 0; i < g->lines; i++) fprintf(file, "  %s\n", g->line[i]);
    if (candidate) {
        fprintf(file, "  %s\n", candidate);
        for (int i = 0; i < g->values; i++) fprintf(file, "  output \"%s\" = %s\n", g->value[i].name, g->value[i].name);
    }
    fprintf(file, "}\n");
    fclose(file);
    return text;
}

/* Dimensions of the last `count` outputs as text, before symbols have values. */
static inline bool gen_read_symbols(const char *text, gen_value *v, int count) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "generated", text, strlen(text));
        graph *g = graph_parse(&arena, &lexer);
        for (int i = 0; i < count; i++) {
            const graph_shape *shape = graph_shape_of(g, g->outputs.data[(int)g->outputs.count - count + i]);
            for (int d = 0; d < shape->rank; d++) {
                lib_text dimension;
                lib_text_init(&dimension, &arena);
                tir_print_expr(&dimension, g->pool, shape->dim[d], NULL);
                if (dimension.length >= sizeof v->text[d]) lib_raise(&scope, DLC_INVALID_ARGUMENT, "long");
                memcpy(v[i].text[d], dimension.data, dimension.length + 1);
            }
        }
    }
    lib_arena_free(&arena);
    return scope.error.status == DLC_OK;
}

/* Number of elements of a value if its symbols have the largest size that a kernel for a varying size supports: its scratch is of that
 * size. */
static inline double gen_provided(const gen_value *v) {
    double count = 1;
    for (int d = 0; d < v->rank; d++)
        count *= strchr(v->text[d], 'n') ? fmax(1024, (double)v->dim[d]) : (double)v->dim[d];
    return count;
}

/* Sets *v from the parsed candidate's result *t. True: it is small and has a bound, or needs none. */
static inline bool gen_take(const gen *g, gen_value *v, const case_tensor *t, unsigned how, bool counted) {
    v->dtype = t->dtype;
    v->rank = t->rank;
    memcpy(v->dim, t->dim, sizeof v->dim);
    v->error = t->bound.error;
    double scale = fmax(1, fmin(graph_bound_magnitude(&t->bound), 1e6));
    bool bounded = v->error == 0 || v->error < 0.02 * scale;
    v->apart = !bounded || (how & GEN_APART) || lib_dtype_is_stored_otherwise(v->dtype);
    return (counted || t->count <= g->largest) && gen_provided(v) <= 0x1p24 && (bounded || (how & GEN_UNBOUNDED));
}

/* Adds a statement whose results have these names, if it is valid and its results are small and have bounds. Returns the number of the
 * first result; -1: it was not added. */
static inline int gen_add_results(gen *g, int count, char name[][16], const char *line, unsigned how) {
    if (g->lines == GEN_LINES || g->values + count > CASE_TENSORS - 8) return -1;
    gen_value *v = &g->value[g->values];
    for (int i = 0; i < count; i++) {
        v[i] = (gen_value){.input = how & GEN_SOURCE};
        snprintf(v[i].name, sizeof v[i].name, "%s", name[i]);
    }
    g->values += count;
    char *text = gen_text(g, line);
    case_shapes *shapes = calloc(1, sizeof *shapes);
    lib_error error = {0};
    bool good = text && shapes && case_shapes_of(text, &g->setting, 0, shapes, &error);
    if (!good && !(how & GEN_DOUBTFUL) && !g->refused[0])
        snprintf(g->refused, sizeof g->refused, "refused %s: %s", line, error.message);
    good = good && gen_read_symbols(text, v, count);
    for (int i = 0; i < count && good; i++)
        good = gen_take(g, &v[i], &shapes->output[shapes->outputs - count + i], how, shapes->counted);
    free(text);
    free(shapes);
    if (!good) {
        g->values -= count;
        return -1;
    }
    g->line[g->lines++] = strdup(line);
    return g->values - count;
}

static inline int gen_add(gen *g, const char *name, const char *line, bool input) {
    char names[1][16];
    snprintf(names[0], sizeof names[0], "%s", name);
    return gen_add_results(g, 1, names, line, input ? GEN_SOURCE : 0);
}

/* The name of a future value, t3; in sub-graphs with their number: b2t3. */
static inline void gen_name(const gen *g, char letter, int ahead, char name[16]) {
    if (g->body)
        snprintf(name, 16, "b%d%c%d", g->body, letter, g->values + ahead);
    else
        snprintf(name, 16, "%c%d", letter, g->values + ahead);
}

/* A node of `count` results; `node` is what stands after `names = `. */
static inline int gen_nodes(gen *g, int count, const char *node, unsigned how) {
    char *line = malloc(GEN_LINE), names[GEN_RESULTS][16];
    int length = 0;
    for (int i = 0; i < count; i++) {
        gen_name(g, 't', i, names[i]);
        length += snprintf(line + length, GEN_LINE - (size_t)length, "%s%s", i ? ", " : "", names[i]);
    }
    length += snprintf(line + length, GEN_LINE - (size_t)length, " = %s", node);
    int value = length < GEN_LINE ? gen_add_results(g, count, names, line, how) : -1;
    free(line);
    if (value >= 0) g->nodes++;
    return value;
}

static inline int gen_node(gen *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline int gen_node(gen *g, const char *format, ...) {
    char *node = malloc(GEN_LINE);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(node, GEN_LINE, format, arguments);
    va_end(arguments);
    int value = gen_nodes(g, 1, node, 0);
    free(node);
    return value;
}

/* [1, n, 3] */
typedef struct gen_list {
    char text[512];
} gen_list;

static inline gen_list gen_dims(const gen_value *v, int from, int to) {
    gen_list list = {"["};
    for (int i = from; i < to; i++) {
        size_t length = strlen(list.text);
        snprintf(list.text + length, sizeof list.text - length, "%s%s", i > from ? ", " : "", v->text[i]);
    }
    strcat(list.text, "]");
    return list;
}

static inline gen_list gen_integers(int count, const int64_t *number) {
    gen_list list = {"["};
    for (int i = 0; i < count; i++) {
        size_t length = strlen(list.text);
        snprintf(list.text + length, sizeof list.text - length, "%s%lld", i ? ", " : "", (long long)number[i]);
    }
    strcat(list.text, "]");
    return list;
}

/* ---- operands */

static inline dlc_dtype gen_dtype(gen *g, const char *kinds) { /* letters of classes: b i f */
    static const dlc_dtype all[] = {DLC_F32, DLC_F32,      DLC_F32,    DLC_F32,        DLC_F32,       DLC_F64,
                                    DLC_F16, DLC_BF16,     DLC_BF16,   DLC_I32,        DLC_I32,       DLC_I64,
                                    DLC_I8,  DLC_U8,       DLC_BOOL,   DLC_I16,        DLC_U16,       DLC_U32,
                                    DLC_U64, DLC_F8E4M3FN, DLC_F8E5M2, DLC_F8E4M3FNUZ, DLC_F8E5M2FNUZ};
    for (;;) {
        dlc_dtype dtype = all[gen_below(g, (int64_t)(sizeof all / sizeof *all))];
        char class_ = lib_dtypes[dtype].class_;
        if (strchr(kinds, class_ == 'u' ? 'i' : class_)) return dtype;
    }
}

static inline bool gen_is(const gen_value *v, const char *kinds) {
    char class_ = lib_dtypes[v->dtype].class_;
    return strchr(kinds, class_ == 'u' ? 'i' : class_) != NULL;
}

static inline void gen_set_dim(gen_value *v, int at, int64_t number) {
    v->dim[at] = number;
    snprintf(v->text[at], sizeof v->text[at], "%lld", (long long)number);
}

/* One of the graph's sizes. */
static inline void gen_pick_dim(gen *g, gen_value *v, int at) {
    int64_t which = gen_below(g, 5);
    if (which == 4) {
        gen_set_dim(v, at, gen_between(g, 1, 3));
    } else {
        gen_set_dim(v, at, g->size[which]);
        if (g->symbol[which]) snprintf(v->text[at], sizeof v->text[at], "n");
    }
}

static inline double gen_count(const gen_value *v) {
    double count = 1;
    for (int i = 0; i < v->rank; i++) count *= (double)v->dim[i];
    return count;
}

static inline bool gen_is_fixed(const gen_value *v) { /* no symbols */
    for (int i = 0; i < v->rank; i++)
        if (strspn(v->text[i], "0123456789") != strlen(v->text[i])) return false;
    return true;
}

static inline int gen_constant_of(gen *g, const gen_value *like, const case_bits *only) {
    char *line = malloc(GEN_LINE), name[16];
    gen_list dims = gen_dims(like, 0, like->rank);
    gen_name(g, 'c', 0, name);
    int at = snprintf(line, GEN_LINE, "%s = constant %s%s {\"", name, lib_dtypes[like->dtype].name, dims.text);
    case_fill fill = g->setting.fill == FILL_SPECIAL ? FILL_TAME : g->setting.fill;
    for (int64_t i = 0; i < (int64_t)gen_count(like); i++) {
        case_bits element = only ? *only : case_number(like->dtype, fill, &g->random);
        for (size_t b = 0; b < lib_dtype_size(like->dtype); b++)
            at += snprintf(line + at, GEN_LINE - (size_t)at, "%02x", (unsigned char)element.bytes[b]);
    }
    snprintf(line + at, GEN_LINE - (size_t)at, "\"}");
    int value = gen_add(g, name, line, true);
    free(line);
    return value;
}

static inline int gen_constant(gen *g, const gen_value *like) {
    return gen_constant_of(g, like, NULL);
}

/* A new input. */
static inline int gen_declare(gen *g, const gen_value *like) {
    char line[1024], name[16];
    gen_list dims = gen_dims(like, 0, like->rank);
    gen_name(g, 'x', 0, name);
    snprintf(line, sizeof line, "input %s: %s%s", name, lib_dtypes[like->dtype].name, dims.text);
    int value = gen_add(g, name, line, true);
    if (value >= 0) g->inputs++;
    return value;
}

/* A new input or constant. */
static inline int gen_source(gen *g, const gen_value *like) {
    for (int i = 0; i < like->rank; i++)
        if (strchr(like->text[i], 'c')) return -1; /* no input has a size that is counted */
    if (gen_one_in(g, 4) && gen_is_fixed(like) && !lib_dtype_is_stored_otherwise(like->dtype) &&
        gen_count(like) * (double)lib_dtype_size(like->dtype) < (g->body ? 256 : GEN_LINE / 2 - 512))
        return gen_constant(g, like);
    return gen_declare(g, like);
}

static inline bool gen_same_shape(const gen_value *a, const gen_value *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (strcmp(a->text[i], b->text[i]) != 0) return false;
    return true;
}

/* A value of this dtype and shape, existing or new. */
static inline int gen_operand(gen *g, const gen_value *like) {
    int found = -1, seen = 0;
    for (int i = 0; i < g->values; i++)
        if (g->value[i].dtype == like->dtype &&
            (!g->value[i].apart || (g->value[i].error == 0 && lib_dtype_is_stored_otherwise(like->dtype))) &&
            gen_same_shape(&g->value[i], like) && gen_one_in(g, ++seen))
            found = i;
    int value = found >= 0 && !gen_one_in(g, 3) ? found : gen_source(g, like);
    if (value >= 0) g->value[value].uses++;
    return value;
}

/* Any value of a class; mostly a recent one. */
static inline int gen_any(gen *g, const char *kinds, int min_rank) {
    int found = -1, weight = 0;
    for (int i = 0; i < g->values; i++) {
        const gen_value *v = &g->value[i];
        if (!gen_is(v, kinds) || v->rank < min_rank || v->apart) continue;
        int w = v->uses ? 1 : v->input ? 2 : 5;
        weight += w;
        if (gen_below(g, weight) < w) found = i;
    }
    if (found < 0 || gen_one_in(g, 8)) {
        gen_value v = {.dtype = gen_dtype(g, kinds),
                       .rank = (int)gen_between(g, min_rank, min_rank > 3 ? min_rank : 3)};
        if (gen_one_in(g, 12) && v.rank < 5) v.rank += 2;
        for (int d = 0; d < v.rank; d++) gen_pick_dim(g, &v, d);
        while (gen_count(&v) > (double)g->largest) gen_set_dim(&v, (int)gen_below(g, v.rank), gen_between(g, 1, 3));
        int made = gen_source(g, &v);
        if (made >= 0) found = made;
    }
    if (found >= 0) g->value[found].uses++;
    return found;
}

/* A copy of a value as a pattern to change. */
static inline gen_value gen_like(const gen *g, int value) {
    return g->value[value];
}

static inline int gen_scalar(gen *g, dlc_dtype dtype) {
    gen_value v = {.dtype = dtype};
    return gen_source(g, &v);
}

/* Same shape, or one that broadcasts to it. */
static inline int gen_broadcastable(gen *g, const gen_value *x) {
    gen_value v = *x;
    if (gen_one_in(g, 3)) {
        int drop = (int)gen_between(g, 0, v.rank);
        for (int i = drop; i < v.rank; i++) {
            memcpy(v.text[i - drop], x->text[i], sizeof v.text[0]);
            v.dim[i - drop] = x->dim[i];
        }
        v.rank -= drop;
        for (int i = 0; i < v.rank; i++)
            if (gen_one_in(g, 4)) gen_set_dim(&v, i, 1);
    }
    return gen_operand(g, &v);
}

static inline int gen_axis(gen *g, const gen_value *v) {
    return (int)gen_below(g, v->rank);
}

static inline void gen_grow(gen *g, int nodes, int room);
static inline void gen_free(gen *g);

#define NAME(number) (g->value[number].name)
#define TRY_ELSE(expression, value, ...) \
    int value = (expression);            \
    if (value < 0) return __VA_ARGS__
#define TRY(expression, value) TRY_ELSE(expression, value, )

#include "fuzz/generate_ops.h"

/* ---- the whole */

static inline void gen_sizes(gen *g) {
    static const int64_t small[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 19, 31, 32, 33, 48, 61, 64, 67};
    static const int64_t large[] = {100, 127, 128, 131, 256, 257, 509, 1000};
    const bool tiny = gen_one_in(g, 4); /* axes of one point, rows of one vector: rules decide by them */
    for (int i = 0; i < 4; i++) {
        bool big = !tiny && gen_one_in(g, 6);
        g->size[i] = big ? large[gen_below(g, 8)] : small[gen_below(g, tiny ? 3 : 19)];
        if (gen_one_in(g, 60)) g->size[i] = 0;
        g->symbol[i] = false;
    }
    g->largest = gen_one_in(g, 20) ? 60000 : 6000;
}

/* Chooses the setting. Ways to compile that cost much of LLVM's time take turns. */
static inline void gen_head(gen *g) {
    case_setting *s = &g->setting;
    *s = (case_setting){.seed = (uint64_t)gen_below(g, 1000),
                        .runs = 1,
                        .fill = (case_fill)gen_below(g, FILL_COUNT),
                        .strict = gen_one_in(g, 2),
                        .layout = gen_one_in(g, 2),
                        .plain = gen_one_in(g, 3),
                        .threads = gen_one_in(g, 3)};
    if (gen_one_in(g, 4)) {
        g->symbol[0] = true;
        s->symbols = 1;
        strcpy(s->symbol[0], "n");
        s->runs = gen_one_in(g, 2) ? 1 : (int)gen_between(g, 2, 6);
        while (s->sizes[0] < s->runs) {
            int i = s->sizes[0]++;
            s->size[0][i] = i == 0 ? g->size[0] : gen_one_in(g, 12) ? 0 : gen_between(g, 1, 40);
        }
    }
    case_print_setting(s, g->head, sizeof g->head);
    if (!g->symbol[0]) return;
    gen_value n = {.dtype = gen_dtype(g, "if"),
                   .rank = (int)gen_between(g, 1, 2)}; /* the symbol's size is known from an input */
    gen_pick_dim(g, &n, 1);
    gen_set_dim(&n, 0, g->size[0]);
    strcpy(n.text[0], "n");
    g->symbol[0] = gen_declare(g, &n) >= 0;
    if (g->symbol[0] && gen_one_in(g, 2)) g->line[g->lines++] = strdup("symbol n in 0..4096 varies");
}

/* Makes values that nothing uses outputs, and some others. */
static inline void gen_outputs(gen *g) {
    int outputs = 0;
    for (int i = g->values - 1; i >= 0; i--) {
        const gen_value *v = &g->value[i];
        bool sink = !v->uses && !v->input;
        if (g->lines == GEN_LINES || !(sink || gen_one_in(g, v->input ? 60 : 6))) continue;
        char line[64];
        snprintf(line, sizeof line, "output \"o_%s\" = %s", v->name, v->name);
        g->line[g->lines++] = strdup(line);
        outputs++;
    }
    if (outputs || !g->values) return;
    char line[64];
    snprintf(line, sizeof line, "output \"o\" = %s", g->value[g->values - 1].name);
    g->line[g->lines++] = strdup(line);
}

/* Adds nodes until there are `nodes`, and leaves room for `room` lines. */
static inline void gen_grow(gen *g, int nodes, int room) {
    for (int tries = 0; g->nodes < nodes && tries < 3 * GEN_NODES && g->lines < GEN_LINES - room; tries++) {
        int64_t weights = 0;
        for (size_t i = 0; i < sizeof gen_rules / sizeof *gen_rules; i++) weights += gen_rules[i].weight;
        int64_t at = gen_below(g, weights);
        size_t rule = 0;
        while (at >= gen_rules[rule].weight) at -= gen_rules[rule++].weight;
        gen_rules[rule].add(g);
    }
}

static inline void gen_free(gen *g) {
    for (int i = 0; g && i < g->lines; i++) free(g->line[i]);
    free(g);
}

/* The text of graph `number` of a seed; `refused` is a message or empty. Caller frees. */
static inline char *gen_graph(uint64_t seed, uint64_t number, char refused[CASE_MESSAGE]) {
    int bodies = 0;
    gen *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->random = seed * 0x9e3779b97f4a7c15u + number;
    g->bodies = &bodies;
    test_random(&g->random);
    gen_sizes(g);
    gen_head(g);
    g->setting.small = number / 50 % 2; /* rarely another: contexts are made anew */
    g->setting.choices = number % 4 == 3 ? number : 0;
    gen_grow(g, (int)gen_between(g, 1, GEN_NODES), 20);
    gen_outputs(g);
    char *text = gen_text(g, NULL);
    snprintf(refused, CASE_MESSAGE, "%s", g->refused);
    gen_free(g);
    return text;
}

#endif
