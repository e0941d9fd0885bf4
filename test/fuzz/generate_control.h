/* Statements with sub-graphs, which grow as graphs do, and those whose sizes a run counts. */
#ifndef TEST_FUZZ_GENERATE_CONTROL_H
#define TEST_FUZZ_GENERATE_CONTROL_H

#include "fuzz/generate.h"

/* ---- control flow: sub-graphs grow as graphs do */

/* An empty sub-graph whose inputs are like these values. */
static inline gen *gen_body(gen *g, int count, const gen_value *like) {
    gen *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->random = (uint64_t)gen_below(g, INT64_MAX);
    b->setting = g->setting;
    memcpy(b->head, g->head, sizeof b->head);
    memcpy(b->size, g->size, sizeof b->size);
    memcpy(b->symbol, g->symbol, sizeof b->symbol);
    b->largest = 600;
    b->depth = g->depth + 1;
    b->bodies = g->bodies;
    b->body = ++*g->bodies;
    for (int i = 0; i < count; i++)
        if (gen_declare(b, &like[i]) < 0) {
            gen_free(b);
            return NULL;
        }
    return b;
}

/* The inputs of a sub-graph, in order. */
static inline int gen_inputs(const gen *b, int *input) {
    int count = 0;
    for (int i = 0; i < b->values; i++)
        if (b->value[i].input && b->value[i].name[strcspn(b->value[i].name, "xc")] == 'x') input[count++] = i;
    return count;
}

/* A value of this shape, if possible one that was computed; -1: there is none. */
static inline int gen_find(gen *b, const gen_value *like) {
    int found = -1, weight = 0;
    for (int i = 0; i < b->values; i++) {
        const gen_value *v = &b->value[i];
        int w = v->input ? 1 : 20;
        if (v->apart || v->dtype != like->dtype || !gen_same_shape(v, like)) continue;
        weight += w;
        if (gen_below(b, weight) < w) found = i;
    }
    return found;
}

/* Adds operands for the inputs of the sub-graph from number `from` on to the list; false: one cannot be had. */
static inline bool gen_captures(gen *g, const gen *b, int from, char *list, size_t size) {
    int input[GEN_LINES], count = gen_inputs(b, input);
    for (int i = from; i < count; i++) {
        int value = gen_operand(g, &b->value[input[i]]);
        if (value < 0) return false;
        size_t length = strlen(list);
        snprintf(list + length, size - length, "%s%s", length ? ", " : "", NAME(value));
    }
    return true;
}

/* A line to itself for each statement of a sub-graph, so that what makes texts smaller sees them. */
static inline void gen_print_body(const gen *b, FILE *file, int count, const int *output) {
    fprintf(file, "graph {\n");
    for (int i = 0; i < b->lines; i++) fprintf(file, "    %s\n", b->line[i]);
    for (int i = 0; i < count; i++) fprintf(file, "    output %s\n", b->value[output[i]].name);
    fprintf(file, "  }");
}

static inline bool gen_pairs(const gen_value *a, const gen_value *b, bool differ) {
    if (a->apart || b->apart || a->dtype != b->dtype || a->rank != b->rank) return false;
    for (int d = 0; d < a->rank && differ; d++) /* a symbol may become the number that it differs from */
        if (strcmp(a->text[d], b->text[d]) != 0 &&
            !(isdigit((unsigned char)a->text[d][0]) && isdigit((unsigned char)b->text[d][0])))
            return false;
    return gen_same_shape(a, b) != differ;
}

/* A pair of values of two sub-graphs that an `if` may give: of one shape, or of one rank. */
static inline bool gen_match(gen *a, gen *b, bool differ, int *first, int *second) {
    int weight = 0;
    for (int i = 0; i < a->values; i++)
        for (int k = 0; k < b->values; k++) {
            if (!gen_pairs(&a->value[i], &b->value[k], differ)) continue;
            int w = (a->value[i].input ? 1 : 8) * (b->value[k].input ? 1 : 8);
            weight += w;
            if (gen_below(a, weight) < w) *first = i, *second = k;
        }
    return weight > 0;
}

static inline void add_if(gen *g) {
    if (g->depth == GEN_DEPTH) return;
    TRY(gen_any(g, "bif", 0), x);
    TRY(gen_scalar(g, DLC_BOOL), condition);
    gen_value inputs[GEN_LINES] = {g->value[x]};
    gen *branch[2] = {gen_body(g, 1, inputs), NULL};
    if (!branch[0]) return;
    gen_grow(branch[0], (int)gen_between(g, 0, 4), 10);
    int number[GEN_LINES], count = gen_inputs(branch[0], number), results = (int)gen_between(g, 1, 3), from[2][3];
    for (int i = 0; i < count; i++) inputs[i] = branch[0]->value[number[i]];
    branch[1] = gen_body(g, count, inputs);
    if (branch[1]) gen_grow(branch[1], (int)gen_between(g, 0, 4), 10);
    bool good = branch[1] != NULL, differ = good && g->depth == 0 && gen_one_in(g, 3);
    int more = good ? gen_inputs(branch[1], number) : 0; /* what only the second one takes, the first one takes too */
    for (int i = count; i < more && good; i++) good = gen_declare(branch[0], &branch[1]->value[number[i]]) >= 0;
    char sizes[128] = "", operands[2048] = "";
    for (int i = 0; i < results && good; i++) {
        bool other = differ && i == 0;
        good = gen_match(branch[0], branch[1], other, &from[0][i], &from[1][i]);
        for (int d = 0; good && other && d < branch[0]->value[from[0][i]].rank; d++) {
            size_t length = strlen(sizes);
            if (strcmp(branch[0]->value[from[0][i]].text[d], branch[1]->value[from[1][i]].text[d]) != 0)
                snprintf(sizes + length, sizeof sizes - length, "%sc%d", length ? ", " : ", sizes=[", g->counted++);
        }
    }
    snprintf(operands, sizeof operands, "%s, %s", NAME(condition), NAME(x));
    if (good && gen_captures(g, branch[1], 1, operands, sizeof operands)) {
        char *text = NULL;
        size_t size;
        FILE *file = open_memstream(&text, &size);
        fprintf(file, "if(%s, then=", operands);
        gen_print_body(branch[0], file, results, from[0]);
        fprintf(file, ", otherwise=");
        gen_print_body(branch[1], file, results, from[1]);
        fprintf(file, "%s%s)", sizes, sizes[0] ? "]" : "");
        fclose(file);
        gen_nodes(g, results, text, GEN_UNBOUNDED | (sizes[0] ? GEN_APART : 0));
        free(text);
    }
    gen_free(branch[0]);
    gen_free(branch[1]);
}

/* A counter in front, which tells when to go on: i32 of rank 0, begins at a number from -2 to 3. */
static inline int gen_counter(gen *g) {
    case_bits start = {{0}};
    lib_element_set_i64(DLC_I32, start.bytes, gen_between(g, -2, 3));
    gen_value like = {.dtype = DLC_I32};
    return gen_constant_of(g, &like, &start);
}

/* i + 1 in a body whose first input is the counter. */
static inline int gen_count_up(gen *b) {
    case_bits one = {{0}};
    lib_element_set_i64(DLC_I32, one.bytes, 1);
    gen_value like = {.dtype = DLC_I32};
    int k = gen_constant_of(b, &like, &one);
    return k < 0 ? k : gen_node(b, "add(%s, %s)", b->value[0].name, b->value[k].name);
}

static inline void add_while(gen *g) {
    if (g->depth == GEN_DEPTH) return;
    int carries = (int)gen_between(g, 1, 3), next[4], start[4] = {gen_counter(g)};
    gen_value inputs[4] = {{.dtype = DLC_I32}};
    char operands[2048] = "", condition[16];
    if (start[0] < 0) return;
    for (int i = 1; i <= carries; i++) {
        if ((start[i] = gen_any(g, "bif", 0)) < 0) return;
        inputs[i] = g->value[start[i]];
    }
    gen *b = gen_body(g, carries + 1, inputs);
    if (!b) return;
    gen_grow(b, (int)gen_between(g, 1, 5), 10);
    bool good = (next[0] = gen_count_up(b)) >= 0;
    for (int i = 1; i <= carries && good; i++) good = (next[i] = gen_find(b, &inputs[i])) >= 0;
    for (int i = 0; i <= carries; i++)
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), "%s%s", i ? ", " : "",
                 NAME(start[i]));
    if (good && gen_captures(g, b, carries + 1, operands, sizeof operands)) {
        int number[GEN_LINES], count = gen_inputs(b, number);
        char *text = NULL;
        size_t size;
        FILE *file = open_memstream(&text, &size);
        snprintf(condition, sizeof condition, "b%d", ++*g->bodies);
        fprintf(file, "while(%s, condition=graph {\n", operands);
        for (int i = 0; i < count; i++)
            fprintf(file, "    input %sx%d: %s%s\n", condition, i, lib_dtypes[b->value[number[i]].dtype].name,
                    gen_dims(&b->value[number[i]], 0, b->value[number[i]].rank).text);
        fprintf(file, "    %sk = constant i32[] {3}\n    %sgo = lt(%sx0, %sk)\n    output %sgo\n  }, body=", condition,
                condition, condition, condition, condition);
        gen_print_body(b, file, carries + 1, next);
        fprintf(file, ")");
        fclose(file);
        gen_nodes(g, carries + 1, text, GEN_UNBOUNDED);
        free(text);
    }
    gen_free(b);
}

/* v without its first dimension. */
static inline gen_value gen_element(const gen_value *v) {
    gen_value element = *v;
    element.rank--;
    memmove(element.dim, element.dim + 1, sizeof element.dim - sizeof *element.dim);
    memmove(element.text, element.text + 1, sizeof element.text - sizeof *element.text);
    return element;
}

/* Either way through sequences and stacks, which may be any value of the body; to the end, or not. */
static inline void add_scan(gen *g) {
    enum { COUNTER, CARRY, SEQUENCE, SECOND, MOST };
    if (g->depth == GEN_DEPTH) return;
    int start[MOST] = {gen_counter(g), gen_any(g, "bif", 0), gen_any(g, "bif", 1), -1};
    int sequences = 1, stacks = (int)gen_between(g, 0, 2), output[MOST + 4], outputs = 0;
    for (int i = 0; i < SECOND; i++)
        if (start[i] < 0) return;
    gen_value second = g->value[start[SEQUENCE]], inputs[MOST] = {{.dtype = DLC_I32}};
    inputs[CARRY] = g->value[start[CARRY]];
    inputs[SEQUENCE] = gen_element(&second);
    if (gen_one_in(g, 3)) {
        second.dtype = gen_dtype(g, "bif");
        if ((start[SECOND] = gen_operand(g, &second)) < 0) return;
        inputs[sequences + SEQUENCE] = gen_element(&second);
        sequences++;
    }
    gen *b = gen_body(g, SEQUENCE + sequences, inputs);
    if (!b) return;
    gen_grow(b, (int)gen_between(g, 1, 5), 12);
    const bool conditional = gen_one_in(g, 3);
    bool good = (output[outputs++] = gen_count_up(b)) >= 0 && (output[outputs++] = gen_find(b, &inputs[CARRY])) >= 0;
    if (conditional && good) {
        int k = gen_counter(b);
        good =
            k >= 0 && (output[outputs++] = gen_node(b, "lt(%s, %s)", b->value[output[0]].name, b->value[k].name)) >= 0;
    }
    for (int i = 0; i < stacks && good; i++) {
        output[outputs] = (int)gen_below(b, b->values);
        if (!b->value[output[outputs]].apart && b->value[output[outputs]].rank < 6) outputs++;
    }
    stacks = outputs - 2 - conditional;
    char operands[2048] = "";
    for (int i = 0; i < SEQUENCE + sequences; i++)
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), "%s%s", i ? ", " : "",
                 NAME(start[i]));
    if (good && gen_captures(g, b, SEQUENCE + sequences, operands, sizeof operands)) {
        int64_t reverse[4];
        for (int i = 0; i < 4; i++) reverse[i] = gen_one_in(g, 2);
        char *text = NULL;
        size_t size;
        FILE *file = open_memstream(&text, &size);
        fprintf(file, "scan(%s, carries=2, sequences=%d, reverse=%s, conditional=%s, body=", operands, sequences,
                gen_integers(sequences + stacks, reverse).text, conditional ? "true" : "false");
        gen_print_body(b, file, outputs, output);
        fprintf(file, ")");
        fclose(file);
        gen_nodes(g, 2 + stacks + conditional, text, GEN_UNBOUNDED);
        free(text);
    }
    gen_free(b);
}

/* ---- sizes that a run counts */

/* What may follow on values with such a size, in between others: no operator that would have to know it. */
static inline int gen_behind(gen *g, int value) {
    static const struct {
        const char *kinds, *node;
    } nodes[] = {{"if", "neg(%s)"},
                 {"if", "mul(%s, %s)"},
                 {"if", "abs(%s)"},
                 {"bif", "cast(%s, dtype=f32)"},
                 {"bif", "cast(%s, dtype=i32)"},
                 {"if", "reduce_sum(%s, axes=[0])"},
                 {"if", "reduce_max(%s, axes=[-1], keep=true)"},
                 {"f", "softmax(%s, axis=-1)"},
                 {"bif", "concat(%s, %s, axis=0)"},
                 {"bif", "reverse(%s, axes=[0])"},
                 {"if", "cumulative_sum(%s, axis=-1)"},
                 {"if", "sign(%s)"},
                 {"bif", "reshape(%s, shape=[-1])"},
                 {"f", "relu(%s)"},
                 {"if", "max(%s, %s)"}};
    for (int tries = 0; tries < 9; tries++) {
        char text[128];
        const gen_value *v = &g->value[value];
        const int which = (int)gen_below(g, (int64_t)(sizeof nodes / sizeof *nodes));
        if (!gen_is(v, nodes[which].kinds) || v->rank == 0) continue;
        snprintf(text, sizeof text, nodes[which].node, v->name, v->name);
        return gen_nodes(g, 1, text, GEN_UNBOUNDED | GEN_APART | GEN_DOUBTFUL);
    }
    return -1;
}

static inline void add_counted(gen *g) {
    if (g->depth) return; /* for the outermost graph */
    char text[256];
    TRY(gen_any(g, "bif", 0), x);
    const gen_value v = g->value[x];
    int results = 1, made = -1;
    unsigned how = GEN_UNBOUNDED | GEN_APART;
    const int64_t which = gen_below(g, 4);
    if (gen_count(&v) > GRAPH_BOUND_COUNTED) return;
    if (which < 2 && v.error != 0) return; /* how many there are depends on every bit */
    switch (which) {
    case 0: snprintf(text, sizeof text, "non_zero(%s, size=[c%d])", v.name, g->counted); break;
    case 1:
        if (gen_is(&v, "b")) return;
        if (v.rank && gen_one_in(g, 2))
            snprintf(text, sizeof text, "unique_along(%s, size=[c%d], axis=%d, sorted=%s)", v.name, g->counted,
                     gen_axis(g, &v), gen_one_in(g, 2) ? "true" : "false");
        else
            snprintf(text, sizeof text, "unique(%s, size=[c%d], sorted=%s)", v.name, g->counted,
                     gen_one_in(g, 2) ? "true" : "false");
        results = 4;
        break;
    case 2: {
        if (v.rank == 0) return;
        gen_value condition = {.dtype = DLC_BOOL, .rank = 1};
        condition.dim[0] = v.dim[0];
        memcpy(condition.text[0], v.text[0], sizeof condition.text[0]);
        TRY(gen_operand(g, &condition), flags);
        int numbers = gen_node(g, "cast(%s, dtype=i32)", NAME(flags));
        if (numbers < 0) return;
        TRY(gen_node(g, "reduce_sum(%s, axes=[0])", NAME(numbers)), count);
        snprintf(text, sizeof text, "cut(%s, %s, size=[c%d])", NAME(count), v.name, g->counted);
        break;
    }
    default: {
        gen_value boxes = {.dtype = gen_one_in(g, 3) ? DLC_F64 : DLC_F32, .rank = 3}, scores;
        gen_set_dim(&boxes, 0, gen_between(g, 1, 2));
        gen_set_dim(&boxes, 1, gen_between(g, 0, 20));
        gen_set_dim(&boxes, 2, 4);
        scores = boxes;
        gen_set_dim(&scores, 1, gen_between(g, 1, 3));
        gen_set_dim(&scores, 2, boxes.dim[1]);
        TRY(gen_operand(g, &boxes), b);
        TRY(gen_operand(g, &scores), s);
        snprintf(text, sizeof text, "non_max_suppression(%s, %s, size=[c%d], most=%d, overlap=0.25, center=%s)",
                 NAME(b), NAME(s), g->counted, (int)gen_between(g, 0, 6), gen_one_in(g, 2) ? "true" : "false");
    }
    }
    g->counted++;
    made = gen_nodes(g, results, text, how);
    for (int steps = (int)gen_below(g, 4); steps > 0 && made >= 0; steps--) {
        int value = made + (int)gen_below(g, results);
        g->value[value].uses++;
        made = gen_behind(g, value);
        results = 1;
    }
}

#endif
