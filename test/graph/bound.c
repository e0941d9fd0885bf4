/* Bounds of errors (graph/bound.h): maps are derived from their references, for every row; what jumps to no number or integer has none; sums and expansions; the ranges of all rows. */
#include "graph/bound.h"

#include "graph/rows.h"
#include "test/share.h"

enum { SIZE = 4, OPERANDS = 3 };

typedef struct bench {
    lib_scope scope;
    lib_arena arena;
} bench;

static bool begin(bench *b) {
    lib_arena_init(&b->arena, &lib_libc_allocator, &b->scope);
    return LIB_ENTER(&b->scope);
}

/* The first result of a row of inputs with this bound and defaults for attributes; error -1 if the row does not take them. */
static graph_bound bound_of(const char *name, const dlc_dtype *dtypes, const graph_bound *inputs) {
    bench b;
    graph_bound y = {.error = -1};
    if (begin(&b)) {
        graph *g = graph_new(&b.arena, NULL);
        const graph_op *op = graph_op_find(name);
        graph_id input[OPERANDS];
        for (int i = 0; i < op->min_inputs; i++) {
            graph_shape shape = {.dtype = dtypes[i], .rank = 1, .dim = {tir_index(g->pool, SIZE)}};
            input[i] = graph_new_input(g, lib_arena_format(&b.arena, "x%d", i), &shape);
        }
        graph_id result = graph_emit_with(g, name, op->min_inputs, input, 0, NULL);
        graph_bound *values = LIB_NEW_ARRAY(&b.arena, graph_bound, g->values.count + 1);
        graph_bound_values(&b.arena, g, inputs, false, values);
        y = values[result];
    }
    if (b.scope.error.status != DLC_OK) print_error("%s: %s\n", name, b.scope.error.message);
    lib_arena_free(&b.arena);
    return y;
}

static graph_bound range(double low, double high, double error) {
    return (graph_bound){.low = low, .high = high, .error = error};
}

static graph_bound unary(const char *name, double low, double high, double error) {
    const dlc_dtype f32 = DLC_F32;
    const graph_bound in = range(low, high, error);
    return bound_of(name, &f32, &in);
}

static double uniform(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

static double value_of(const graph_op *op, double *const x) {
    double y = 0;
    graph_reference_tensor operand[OPERANDS], result = {.dtype = DLC_F32, .rank = 1, .dim = {1}, .data = &y};
    for (int i = 0; i < op->min_inputs; i++)
        operand[i] = (graph_reference_tensor){.dtype = DLC_F32, .rank = 1, .dim = {1}, .data = &x[i]};
    op->reference(&(graph_reference){.inputs = op->min_inputs, .results = 1, .operand = operand, .result = &result});
    return y;
}

static bool has_defaults(const graph_op *op) {
    for (int i = 0; op->attribute[i].name; i++)
        if (!op->attribute[i].initial) return false;
    return true;
}

/* Between 0.3 and 0.4 nothing jumps: every map of floats is compared, and moves by no more than its bound says. */
static void every_map_has_a_bound(void **state) {
    (void)state;
    const double e = 1e-6;
    int rows = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            const graph_op *op = *row;
            if (op->class_ != GRAPH_MAP || !graph_op_accepts(op, DLC_F32) || !op->reference || !has_defaults(op))
                continue;
            if (op->bound || op->infer != graph_infer_map || op->attribute[0].name) continue;
            const graph_bound in[OPERANDS] = {range(0.3, 0.4, e), range(0.3, 0.4, e), range(0.3, 0.4, e)};
            const graph_bound y = bound_of(op->name, (const dlc_dtype[]){DLC_F32, DLC_F32, DLC_F32}, in);
            if (strcmp(op->name, "rem") == 0 || strcmp(op->name, "mod") == 0)
                continue;                                 /* of equal operands: these jump */
            if (strcmp(op->name, "acosh") == 0) continue; /* NaN below 1 */
            if (!(y.error >= 0 && y.error < 1e-3)) fail_msg("%s: bound %g", op->name, y.error);
            uint64_t seed = 1;
            for (int trial = 0; trial < test_some(2000); trial++) {
                double a[OPERANDS], b[OPERANDS];
                for (int i = 0; i < OPERANDS; i++) {
                    a[i] = 0.3 + 0.1 * uniform(&seed);
                    b[i] = a[i] + e * (2 * uniform(&seed) - 1);
                }
                const double moved = fabs(value_of(op, a) - value_of(op, b));
                if (!(moved <= y.error)) fail_msg("%s moves by %g, its bound is %g", op->name, moved, y.error);
            }
            rows++;
        }
    assert_true(rows > 50);
}

static void jumps_have_none(void **state) {
    (void)state;
    const double jump = unary("floor", 0.5, 1.5, 1e-6).error;
    assert_true(jump >= 1 && jump < 4);
    assert_true(unary("floor", 0.2, 0.3, 1e-6).error < 1e-4);
    assert_true(unary("floor", 0.5, 1.5, 0).error == 0);
    assert_true(unary("log", 0, 1, 1e-6).error == INFINITY);
    assert_true(unary("log", 0.5, 1, 1e-6).error < 1e-4);
    assert_true(unary("tan", 1, 2, 1e-6).error == INFINITY);
    assert_true(unary("is_nan", -1, 1, 1e-6).error == 0);
    const dlc_dtype dtypes[] = {DLC_F32, DLC_F32};
    assert_true(bound_of("lt", dtypes, (const graph_bound[]){range(0, 1, 1e-6), range(0.5, 2, 0)}).error == INFINITY);
    assert_true(bound_of("lt", dtypes, (const graph_bound[]){range(0, 1, 1e-6), range(1.5, 2, 0)}).error == 0);
}

static void ranges_are_intervals(void **state) {
    (void)state;
    graph_bound y = unary("exp", -2, 1, 0);
    assert_true(y.low > 0 && y.low <= exp(-2) && y.high >= exp(1) && y.high < 3);
    y = unary("abs", -2, 1, 0);
    assert_true(y.low == 0 && y.high == 2);
    y = unary("sin", -100, 100, 0);
    assert_true(y.low <= -1 && y.high >= 1 && y.high < 1.5);
    y = unary("log_sigmoid", -30, 30, 1e-6);
    assert_true(y.error > 0 && y.error < 1e-3);
    y = unary("softplus", -30, 30, 1e-6);
    assert_true(y.error > 0 && y.error < 1e-3);
    const dlc_dtype f32[] = {DLC_F32, DLC_F32};
    y = bound_of("atan2", f32, (const graph_bound[]){range(-0.0, 0, 0), range(-2, 2, 0)});
    assert_true(y.low < -3.14 && y.high > 3.14);
    const dlc_dtype i32[] = {DLC_I32, DLC_I32};
    const graph_bound few = range(-4, 3, 0), many = range(-1e9, 1e9, 0);
    y = bound_of("and", i32, (const graph_bound[]){few, few});
    assert_true(y.low == -4 && y.high == 3);
    y = bound_of("mul", i32, (const graph_bound[]){many, many}); /* wraps */
    assert_true(y.low == -0x1p31 && y.high == 0x1p31 - 1);
    const graph_bound off = range(1, 9, 1e-6); /* an error moves 1 to below it, whose whole part is 0 */
    assert_true(bound_of("div", i32, (const graph_bound[]){few, off}).error != 0);
    assert_true(bound_of("rem", i32, (const graph_bound[]){few, off}).error != 0);
    y = bound_of("add", i32, (const graph_bound[]){many, few});
    assert_true(y.low <= -1e9 - 4 && y.low > -2e9 && y.high < 2e9);
}

/* Results between the last point where a function is finite and the first where it is infinite, which are far apart. */
static void ranges_reach_infinity(void **state) {
    (void)state;
    const double largest = graph_bound_largest(DLC_F32);
    assert_true(unary("exp10", 0, 0x1p64, 0).high == largest);
    assert_true(unary("exp", -1, 3e38, 0).high == largest);
    graph_bound y = unary("log1p", -1, 1e6, 0);
    assert_true(y.low < -36 && y.low > -50 && y.high < 15);
    y = unary("atanh", -2, 2, 0);
    assert_true(y.low < -18 && y.low > -30 && y.high > 18 && y.high < 30);
    const dlc_dtype dtypes[] = {DLC_F32, DLC_F32};
    assert_true(bound_of("pow", dtypes, (const graph_bound[]){range(8, 12, 0), range(0, 1e15, 0)}).high == largest);
    assert_true(unary("log", 0, 1, 0).low > -100); /* a pole at 0 is left out */
}

static void sums_add_errors(void **state) {
    (void)state;
    assert_true(unary("reduce_sum", -1, 1, 1e-6).error >= SIZE * 1e-6);
    graph_bound whole = range(-4, 4, 0);
    const dlc_dtype f32 = DLC_F32;
    whole.integral = true;
    assert_true(bound_of("reduce_sum", &f32, &whole).error == 0);
    assert_true(unary("reduce_max", -1, 1, 1e-6).error == 1e-6);
    assert_true(unary("softmax", -1, 1, 1e-6).high == 1);
}

/* Labels that are only in one operand are summed, too. */
static void einsum_sums_every_label(void **state) {
    (void)state;
    static const char text[] = "graph {\n  input c: f32[1, 1]\n  input x: f32[6, 1]\n"
                               "  y = einsum(c, x, equation=\"ij,kl->jl\")\n  output y\n}\n";
    const graph_bound inputs[] = {range(-1, 1, 0), range(-1, 1, 0)};
    bench b;
    double error = -1;
    if (begin(&b)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &b.arena, "text", text, strlen(text));
        const graph *g = graph_parse(&b.arena, &lexer);
        graph_bound *values = LIB_NEW_ARRAY(&b.arena, graph_bound, g->values.count + 1);
        graph_bound_values(&b.arena, g, inputs, false, values);
        error = values[g->outputs.data[0]].error;
    }
    lib_arena_free(&b.arena);
    assert_true(error > 0 && error < 1e-4);
}

/* ---- ranges of all rows, by the references --------------------------------------------------------------------------- */

static graph_bound range_of(const graph_reference_tensor *t) {
    graph_bound b = {.low = INFINITY, .high = -INFINITY};
    for (int64_t i = 0; i < sample_count(t); i++) b.low = fmin(b.low, t->data[i]), b.high = fmax(b.high, t->data[i]);
    return b.low > b.high ? range(0, 0, 0) : b;
}

/* Sets all elements of the operands to the ends of their ranges. */
static void move_to_ends(const rows_trial *t, const graph_bound *in, bool high) {
    for (int i = 0, next = 0; i < t->s.operands; i++) {
        if (t->operand[i].rank < 0) continue;
        const graph_bound *b = &in[next++];
        for (int64_t k = 0; k < sample_count(&t->operand[i]); k++) t->operand[i].data[k] = high ? b->high : b->low;
    }
}

/* The results of the reference, which does not round, lie in the ranges of the row's bounds, and are special only where these say so. */
static bool results_are_within(const rows_trial *t, const graph_bound *value) {
    graph_reference_tensor result[ROWS_RESULTS];
    rows_run(t, 0, t->operand[0].data, result);
    for (int r = 0; r < t->results; r++) {
        const graph_bound *b = &value[t->first + (graph_id)r];
        const double slack = 1e-5 * fmax(1e-3, graph_bound_magnitude(b));
        for (int64_t i = 0; i < sample_count(&result[r]); i++) {
            const double x = result[r].data[i];
            const bool finite = fabs(x) <= graph_bound_largest(result[r].dtype);
            if (finite ? x >= b->low - slack && x <= b->high + slack : b->special) continue;
            print_error("%s: element %lld of result %d is %g, its bound %g..%g%s\n", t->s.line, (long long)i, r, x,
                        b->low, b->high, b->special ? " or special" : "");
            return false;
        }
    }
    return true;
}

static bool is_within(const rows_trial *t) {
    graph_bound in[SAMPLE_OPERANDS], *value = LIB_NEW_ARRAY(t->arena, graph_bound, t->g->values.count + 1);
    int inputs = 0;
    for (int i = 0; i < t->s.operands; i++)
        if (t->operand[i].rank >= 0) in[inputs++] = range_of(&t->operand[i]);
    graph_bound_values(t->arena, t->g, in, false, value);
    bool within = results_are_within(t, value);
    for (int high = 0; within && high < 2; high++) {
        move_to_ends(t, in, high);
        within = results_are_within(t, value);
    }
    return within;
}

static bool sample_is_within(const graph_op *op, const char *line, size_t length, dlc_dtype dtype) {
    lib_scope scope;
    lib_arena arena;
    volatile bool within = true; /* a sample may be refused for an element type */
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        bool varies;
        rows_trial *t = LIB_NEW(&arena, rows_trial);
        t->arena = &arena;
        rows_prepare(t, op, sample_line(&arena, line, length, dtype, &varies));
        within = is_within(t);
    }
    lib_arena_free(&arena);
    return within;
}

static void ranges_hold_results(void **state) {
    static const dlc_dtype dtypes[] = {DLC_F32, DLC_I32, DLC_BOOL};
    int outside = 0;
    (void)state;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            for (const char *line = (*row)->reference ? (*row)->samples : NULL; line && *line;) {
                const size_t length = strcspn(line, "\n");
                for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
                    if (graph_op_accepts(*row, dtypes[d])) outside += !sample_is_within(*row, line, length, dtypes[d]);
                line += length + (line[length] == '\n');
            }
    assert_int_equal(outside, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_map_has_a_bound), cmocka_unit_test(jumps_have_none),
        cmocka_unit_test(ranges_are_intervals),  cmocka_unit_test(ranges_reach_infinity),
        cmocka_unit_test(sums_add_errors),       cmocka_unit_test(einsum_sums_every_label),
        cmocka_unit_test(ranges_hold_results)};
    return cmocka_run_group_tests_name("graph/bound", tests, NULL, NULL);
}
