/* The facts that rows state about themselves, which passes rely on: structures with their attributes, operations, linearity, precision. */
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

/* ---- what joins two elements, by the references ---------------------------------------------------------------------- */

/* GRAPH_FOLDS: of two elements a and b the reference is operation(a, b), which joins the elements themselves, not functions of them. */
static void check_operation(lib_arena *arena, const graph_op *op, dlc_dtype dtype) {
    static const double pairs[][2] = {{6, 3}, {-5, 2}, {0, 7}, {-4, -4}, {1, 1}};
    rows_trial *t = LIB_NEW(arena, rows_trial);
    graph_reference_tensor result[ROWS_RESULTS];
    t->arena = arena;
    rows_prepare(t, op, lib_arena_format(arena, "%s(%s[2])", op->name, lib_dtypes[dtype].name));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        double x[] = {pairs[i][0], pairs[i][1]};
        const tir_dtype type = (tir_dtype)dtype;
        const tir_expr joined =
            tir_binary(t->g->pool, op->operation, tir_float(t->g->pool, type, x[0]), tir_float(t->g->pool, type, x[1]));
        const double expected = lib_element_get_f64(dtype, &tir_get(t->g->pool, joined)->bits);
        rows_run(t, 0, x, result);
        if (result[0].data[0] != expected)
            fail_msg("%s: the reference of %s %g and %g gives %g, its operation %s %g", op->name,
                     lib_dtypes[dtype].name, x[0], x[1], result[0].data[0], tir_ops[op->operation].text, expected);
    }
}

static void check_operations(const graph_op *op) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        if (graph_op_accepts(op, DLC_F32)) check_operation(&arena, op, DLC_F32);
        if (graph_op_accepts(op, DLC_I32)) check_operation(&arena, op, DLC_I32);
    } else
        fail_msg("%s: %s", op->name, scope.error.message);
    lib_arena_free(&arena);
}

static void test_operations(void **state) {
    (void)state;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            if ((*row)->structure == GRAPH_FOLDS) check_operations(*row);
}

/* ---- linearity, by the references ----------------------------------------------------------------------------------- */

/* Bits of the operands in which the sample's results are linear, and of those in which they are not. Neither: integer operands, and
 * where all results are 0, empty or integers. */
typedef struct verdict {
    uint32_t linear, other;
} verdict;

static verdict judge(rows_trial *t) {
    const double s = 2, u = -3;
    verdict v = {0, 0};
    for (int k = 0; k < t->s.operands && k < 32; k++) {
        const graph_reference_tensor *x = &t->operand[k];
        const int64_t count = x->rank < 0 ? 0 : sample_count(x);
        if (!count || !lib_dtype_is_float(x->dtype)) continue;
        graph_reference_tensor a[ROWS_RESULTS], b[ROWS_RESULTS], both[ROWS_RESULTS];
        double *elements[3], largest = 0;
        bool apart = false;
        uint64_t seed = 99;
        for (int i = 0; i < 3; i++) elements[i] = LIB_NEW_ARRAY(t->arena, double, (size_t)count);
        for (int64_t i = 0; i < count; i++) {
            for (int e = 0; e < 2; e++) elements[e][i] = (double)(float)sample_uniform(&seed, -2, 2);
            elements[2][i] = s * elements[0][i] + u * elements[1][i];
        }
        rows_run(t, k, elements[0], a);
        rows_run(t, k, elements[1], b);
        rows_run(t, k, elements[2], both);
        for (int r = 0; r < t->results; r++) {
            if (!lib_dtype_is_float(a[r].dtype)) continue;
            const double rounding = fmax(1e-9, 8 * exp2(-lib_float_of(a[r].dtype).digits));
            double most = 0;
            for (int64_t i = 0; i < sample_count(&a[r]); i++)
                if (!isinf(a[r].data[i])) most = fmax(most, fabs(a[r].data[i]));
            for (int64_t i = 0; i < sample_count(&a[r]); i++) {
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
    volatile verdict v = {0, 0};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        bool varies;
        rows_trial *t = LIB_NEW(&arena, rows_trial);
        t->arena = &arena;
        rows_prepare(t, op, sample_line(&arena, line, length, dtype, &varies));
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
    for (int64_t i = 0; lib_dtype_is_float(t->dtype) && i < sample_count(t); i++) t->data[i] = rounded(t->data[i]);
}

/* Runs on rounded operands what was computed on others, whose results are then rounded: are the results the same? */
static bool commutes_with_rounding(rows_trial *t) {
    graph_reference_tensor before[ROWS_RESULTS], after[ROWS_RESULTS];
    bool same = true;
    rows_run(t, 0, t->operand[0].data, before);
    for (int k = 0; k < t->s.operands; k++)
        if (t->operand[k].rank >= 0) round_all(&t->operand[k]);
    rows_run(t, 0, t->operand[0].data, after);
    for (int r = 0; r < t->results; r++) {
        round_all(&before[r]);
        for (int64_t i = 0; i < sample_count(&after[r]); i++)
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
static bool precision_holds(rows_trial *t, const graph_op *op) {
    if (op->precision == GRAPH_FOLLOWS) return commutes_with_rounding(t);
    if (op->precision == GRAPH_NARROW || op->class_ != GRAPH_COMPOSITE || is_accurate(op)) return true;
    if (graph_shape_of(t->g, t->first)->dtype != DLC_F32) return true;
    graph_new_output(t->g, "y", t->first);
    return !has_products(graph_decompose(t->arena, t->g));
}

static bool sample_holds(const graph_op *op, const char *line, size_t length) {
    lib_scope scope;
    lib_arena arena;
    volatile bool holds = true; /* a sample may be refused for f32 */
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        bool varies;
        rows_trial *t = LIB_NEW(&arena, rows_trial);
        t->arena = &arena;
        rows_prepare(t, op, sample_line(&arena, line, length, DLC_F32, &varies));
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_structures), cmocka_unit_test(test_operations),
                                       cmocka_unit_test(test_linear), cmocka_unit_test(test_precision)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
