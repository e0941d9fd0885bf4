/* The facts that rows state about themselves, which passes rely on: structures with their attributes, linearity, precision. */
#include "graph/rows.h"

#include <math.h>

/* ---- structures: class, operands, and first attributes, as op.h lists them ------------------------------------------ */

static const struct {
    graph_class class_;
    int least_inputs;
    const char *attributes;
} structures[] = {
    [GRAPH_ARRIVES] = {GRAPH_SOURCE, 0, "index dtype shape"},
    [GRAPH_STORED] = {GRAPH_SOURCE, 0, "value dtype shape"},
    [GRAPH_POSITIONS] = {GRAPH_SOURCE, 0, ""},
    [GRAPH_SAME] = {GRAPH_MAP, 1, ""},
    [GRAPH_REPEATS] = {GRAPH_INJECTIVE, 1, "shape axes"},
    [GRAPH_SELECTS] = {GRAPH_INJECTIVE, 1, "start stop step"},
    [GRAPH_REGROUPS] = {GRAPH_INJECTIVE, 1, "shape"},
    [GRAPH_PERMUTES] = {GRAPH_INJECTIVE, 1, "permutation"},
    [GRAPH_LOOKS_UP] = {GRAPH_INJECTIVE, 2, "axis"},
    [GRAPH_PICKS] = {GRAPH_INJECTIVE, 1, ""},
    [GRAPH_JOINS] = {GRAPH_INJECTIVE, 1, "axis"},
    [GRAPH_PADS] = {GRAPH_INJECTIVE, 2, "low high interior"},
    [GRAPH_FOLDS] = {GRAPH_REDUCE, 1, "axes"},
    [GRAPH_FOLDS_WINDOWS] = {GRAPH_REDUCE, 1, "op window stride low high dilation"},
    [GRAPH_CONTRACTS] = {GRAPH_CONTRACT, 2, "batch_x batch_w contract_x contract_w result"},
    [GRAPH_CONVOLVES] = {GRAPH_CONTRACT, 2, "stride low high dilation groups result"},
    [GRAPH_BRANCHES] = {GRAPH_CONTROL, 1, "then otherwise"},
    [GRAPH_LOOPS] = {GRAPH_CONTROL, 1, "condition body"},
    [GRAPH_SCANS] = {GRAPH_CONTROL, 0, "body carries sequences length reverse"},
    [GRAPH_CUTS] = {GRAPH_CONTROL, 2, "size"},
};

static void check_structure(const graph_op *op) {
    if (op->structure) {
        assert_int_equal(op->class_, structures[op->structure].class_);
        assert_true(op->min_inputs >= structures[op->structure].least_inputs);
        const char *word = structures[op->structure].attributes;
        for (int i = 0; *word; i++) {
            const size_t length = strcspn(word, " ");
            if (!op->attribute[i].name || strlen(op->attribute[i].name) != length ||
                memcmp(op->attribute[i].name, word, length) != 0)
                fail_msg("%s: attribute %d is not %.*s", op->name, i, (int)length, word);
            word += length + strspn(word + length, " ");
        }
    }
    if (op->structure == GRAPH_FOLDS) assert_int_not_equal(op->operation, 0);
    if (op->class_ == GRAPH_MAP && op->operation) assert_int_equal(tir_ops[op->operation].arity, op->max_inputs);
    if (op->class_ != GRAPH_MAP && op->structure != GRAPH_FOLDS) assert_int_equal(op->operation, 0);
}

static void test_structures(void **state) {
    (void)state;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) check_structure(*row);
}

/* ---- linearity, by the references ----------------------------------------------------------------------------------- */

enum { RESULTS_MAX = 16 };

typedef struct trial {
    lib_arena *arena;
    sample s;
    graph_attribute attribute[sizeof((sample *)0)->attribute / sizeof *((sample *)0)->attribute];
    graph_reference_tensor operand[SAMPLE_OPERANDS], result[RESULTS_MAX];
    int results;
} trial;

static int64_t elements_of(const graph_reference_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dim[i];
    return count;
}

static int64_t number_of(const graph *g, tir_expr dim) {
    int64_t value = -1;
    tir_is_const(g->pool, dim, &value);
    return value;
}

/* Reads the sample and sets shapes, numbers of all operands, and attributes as references read them. */
static void prepare(trial *t, const graph_op *op, const char *line) {
    graph *g = graph_new(t->arena, NULL);
    graph_id input[SAMPLE_OPERANDS] = {0};
    sample_parse(&t->s, g, op, line);
    for (int i = 0; i < SAMPLE_OPERANDS; i++) t->operand[i].rank = -1;
    for (int i = 0; i < t->s.operands; i++) {
        const sample_operand *from = &t->s.operand[i];
        if (from->left_out) continue;
        graph_shape shape = {.dtype = from->dtype, .rank = from->rank};
        graph_reference_tensor *to = &t->operand[i];
        *to = (graph_reference_tensor){.dtype = from->dtype, .rank = from->rank};
        for (int d = 0; d < from->rank; d++) shape.dim[d] = tir_index(g->pool, to->dim[d] = from->dim[d]);
        input[i] = graph_new_input(g, "x", &shape);
        const int64_t count = elements_of(to);
        to->data = LIB_NEW_ARRAY(t->arena, double, (size_t)count + 1);
        sample_data(from, i, SAMPLE_TAME, 7 + (uint64_t)i, count,
                    LIB_NEW_ARRAY(t->arena, char, (size_t)count *lib_dtype_size(from->dtype) + 1), to->data);
    }
    const graph_id first = graph_emit(g, op, t->s.operands, input, t->s.attribute);
    t->results = graph_node_of(g, first)->results;
    for (int r = 0; r < t->results; r++) {
        const graph_shape *shape = graph_shape_of(g, first + (graph_id)r);
        t->result[r] = (graph_reference_tensor){.dtype = shape->dtype, .rank = shape->rank};
        for (int d = 0; d < shape->rank; d++) t->result[r].dim[d] = number_of(g, shape->dim[d]);
    }
    memcpy(t->attribute, t->s.attribute, sizeof t->attribute);
    for (int i = 0; op->attribute[i].name; i++) {
        if (op->attribute[i].kind != GRAPH_ATTR_DIMS) continue;
        int64_t *list = LIB_NEW_ARRAY(t->arena, int64_t, (size_t)t->attribute[i].count + 1);
        for (int k = 0; k < t->attribute[i].count; k++) list[k] = number_of(g, t->attribute[i].dims[k]);
        t->attribute[i].list = list;
    }
}

/* The results for these elements of operand k. */
static void run(trial *t, int k, double *elements, graph_reference_tensor *out) {
    graph_reference_tensor operand[SAMPLE_OPERANDS];
    memcpy(operand, t->operand, sizeof operand);
    operand[k].data = elements;
    for (int r = 0; r < t->results; r++) {
        out[r] = t->result[r];
        out[r].data = LIB_NEW_ARRAY(t->arena, double, (size_t)elements_of(&out[r]) + 1);
    }
    const int inputs = t->s.op->max_inputs > t->s.operands ? t->s.op->max_inputs : t->s.operands;
    t->s.op->reference(&(graph_reference){
        .inputs = inputs, .results = t->results, .operand = operand, .attribute = t->attribute, .result = out});
}

/* Bits of the operands in which the sample's results are linear, and of those in which they are not. Neither: integer operands, and
 * where all results are 0, empty or integers. */
typedef struct verdict {
    uint32_t linear, other;
} verdict;

static verdict judge(trial *t) {
    const double s = 2, u = -3;
    verdict v = {0, 0};
    for (int k = 0; k < t->s.operands && k < 32; k++) {
        const graph_reference_tensor *x = &t->operand[k];
        const int64_t count = x->rank < 0 ? 0 : elements_of(x);
        if (!count || !lib_dtype_is_float(x->dtype)) continue;
        graph_reference_tensor a[RESULTS_MAX], b[RESULTS_MAX], both[RESULTS_MAX];
        double *elements[3], largest = 0;
        bool apart = false;
        uint64_t seed = 99;
        for (int i = 0; i < 3; i++) elements[i] = LIB_NEW_ARRAY(t->arena, double, (size_t)count);
        for (int64_t i = 0; i < count; i++) {
            for (int e = 0; e < 2; e++) elements[e][i] = (double)(float)sample_uniform(&seed, -2, 2);
            elements[2][i] = s * elements[0][i] + u * elements[1][i];
        }
        run(t, k, elements[0], a);
        run(t, k, elements[1], b);
        run(t, k, elements[2], both);
        for (int r = 0; r < t->results; r++) {
            if (!lib_dtype_is_float(a[r].dtype)) continue;
            const double rounding = fmax(1e-9, 8 * exp2(-lib_float_of(a[r].dtype).digits));
            double most = 0;
            for (int64_t i = 0; i < elements_of(&a[r]); i++)
                if (!isinf(a[r].data[i])) most = fmax(most, fabs(a[r].data[i]));
            for (int64_t i = 0; i < elements_of(&a[r]); i++) {
                const double expected = s * a[r].data[i] + u * b[r].data[i];
                if (isinf(a[r].data[i]) || isinf(b[r].data[i])) continue; /* overflow */
                apart |= !(fabs(both[r].data[i] - expected) <= rounding * (1 + most));
            }
            largest = fmax(largest, most);
        }
        v.other |= (uint32_t)apart << k;
        v.linear |= (uint32_t)(!apart && largest > 0) << k;
    }
    return v;
}

static verdict judge_sample(const graph_op *op, const char *line, size_t length, dlc_dtype dtype) {
    lib_scope scope;
    lib_arena arena;
    verdict v = {0, 0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        bool varies;
        trial *t = LIB_NEW(&arena, trial);
        t->arena = &arena;
        prepare(t, op, sample_line(&arena, line, length, dtype, &varies));
        v = judge(t);
    }
    lib_arena_free(&arena);
    return v; /* a sample may be refused for an element type: not of this test */
}

static void test_linear(void **state) {
    (void)state;
    int wrong = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            const graph_op *op = *row;
            const dlc_dtype dtype = graph_op_accepts(op, DLC_F64) ? DLC_F64 : DLC_F32;
            verdict all = {0, 0};
            for (const char *line = op->reference ? op->samples : NULL; line && *line;) {
                const size_t length = strcspn(line, "\n");
                const verdict v = judge_sample(op, line, length, dtype);
                all.linear |= v.linear, all.other |= v.other;
                line += length + (line[length] == '\n');
            }
            const uint32_t linear = all.linear & ~all.other;
            if (linear == (op->linear & (all.linear | all.other))) continue;
            if (strcmp(op->name, "next_after") == 0 || strcmp(op->name, "bit_cast") == 0) continue; /* x, nearly */
            print_error("%s: linear is %#x, its references show %#x\n", op->name, op->linear, linear);
            wrong++;
        }
    assert_int_equal(wrong, 0);
}

/* ---- precision -------------------------------------------------------------------------------------------------------- */

/* The nearest number of 8 digits, ties to even: bf16 without its limits. */
static double rounded(double x) {
    int exponent;
    const double digits = frexp(x, &exponent);
    return isfinite(x) ? ldexp(nearbyint(ldexp(digits, 8)), exponent - 8) : x;
}

static void round_all(graph_reference_tensor *t) {
    for (int64_t i = 0; lib_dtype_is_float(t->dtype) && i < elements_of(t); i++) t->data[i] = rounded(t->data[i]);
}

/* Runs on rounded operands what was computed on others, whose results are then rounded: are the results the same? */
static bool commutes_with_rounding(trial *t) {
    graph_reference_tensor before[RESULTS_MAX], after[RESULTS_MAX];
    bool same = true;
    run(t, 0, t->operand[0].data, before);
    for (int k = 0; k < t->s.operands; k++)
        if (t->operand[k].rank >= 0) round_all(&t->operand[k]);
    run(t, 0, t->operand[0].data, after);
    for (int r = 0; r < t->results; r++) {
        round_all(&before[r]);
        for (int64_t i = 0; i < elements_of(&after[r]); i++)
            same = same && (before[r].data[i] == after[r].data[i] || isnan(after[r].data[i]));
    }
    return same;
}

/* Does the graph, or a sub-graph, have sums of products of f32? */
static bool has_products(const graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (node->op->precision == GRAPH_NARROW && graph_shape_of(g, node->first)->dtype == DLC_F32) return true;
    }
    for (uint32_t i = 0; i < g->subgraphs.count; i++)
        if (has_products(g->subgraphs.data[i])) return true;
    return false;
}

/* Transforms and solutions of equations, which are to be accurate although they are sums of products. */
static bool is_accurate(const graph_op *op) {
    static const char *const names[] = {"dft", "stft", "istft", "expm", "svd", "pinv", "lstsq"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op->name, names[i]) == 0) return true;
    return false;
}

/* A fact of the row on the f32 sample: rows that follow commute with rounding, wide ones hold no products. */
static bool precision_holds(trial *t, const graph_op *op) {
    if (op->precision == GRAPH_FOLLOWS) return commutes_with_rounding(t);
    if (op->precision == GRAPH_NARROW || op->class_ != GRAPH_COMPOSITE || is_accurate(op)) return true;
    graph *g = graph_new(t->arena, NULL);
    graph_id input[SAMPLE_OPERANDS] = {0};
    for (int i = 0; i < t->s.operands; i++) {
        const graph_reference_tensor *x = &t->operand[i];
        graph_shape shape = {.dtype = x->dtype, .rank = x->rank};
        for (int d = 0; d < x->rank; d++) shape.dim[d] = tir_index(g->pool, x->dim[d]);
        if (x->rank >= 0) input[i] = graph_new_input(g, "x", &shape);
    }
    const graph_id first = graph_emit(g, op, t->s.operands, input, t->s.attribute);
    if (graph_shape_of(g, first)->dtype != DLC_F32) return true;
    graph_new_output(g, "y", first);
    return !has_products(graph_decompose(t->arena, g));
}

static bool sample_holds(const graph_op *op, const char *line, size_t length) {
    lib_scope scope;
    lib_arena arena;
    volatile bool holds = true; /* a sample may be refused for f32 */
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        bool varies;
        trial *t = LIB_NEW(&arena, trial);
        t->arena = &arena;
        prepare(t, op, sample_line(&arena, line, length, DLC_F32, &varies));
        holds = precision_holds(t, op);
    }
    lib_arena_free(&arena);
    return holds;
}

static void test_precision(void **state) {
    (void)state;
    int wrong = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            const graph_op *op = *row;
            bool holds = true;
            if (!graph_op_accepts(op, DLC_F32) || !op->reference) continue;
            for (const char *line = op->samples; holds && line && *line;) {
                const size_t length = strcspn(line, "\n");
                holds = sample_holds(op, line, length);
                line += length + (line[length] == '\n');
            }
            if (holds) continue;
            print_error("%s: precision is not what its samples show\n", op->name);
            wrong++;
        }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_structures), cmocka_unit_test(test_linear),
                                       cmocka_unit_test(test_precision)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
