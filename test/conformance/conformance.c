/* Conformance of every operator row: each sample x accepted dtype is run on random and special numbers by every leg (legs.h) and
 * compared with the row's independent f64 reference within its tolerance. One test per row. Inputs and outputs end at an
 * inaccessible page, then begin at one; outputs and the library's memory are filled with NaN patterns before a run. */
#include "graph/build.h"
#include "test/asked.h"
#include "test/share.h"

#include "conformance/guarded.h"
#include "conformance/legs.h"
#include "conformance/sample.h"
#include "conformance/sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

/* ---- comparing ------------------------------------------------------------------------------------------------- */

/* dtype, digits of the significand, lowest exponent of a normal number, greatest number, are there infinities? */
static const struct {
    dlc_dtype dtype;
    int digits, lowest;
    double greatest;
    bool finite;
} formats[] = {{DLC_F8E4M3FN, 4, -6, 448, true},           {DLC_F8E4M3FNUZ, 4, -7, 240, true},
               {DLC_F8E5M2, 3, -14, 57344, false},         {DLC_F8E5M2FNUZ, 3, -15, 57344, true},
               {DLC_F16, 11, -14, 65504, false},           {DLC_BF16, 8, -126, 0x1.fep127, false},
               {DLC_F32, 24, -126, 0x1.fffffep127, false}, {DLC_F64, 53, -1022, 0x1.fffffffffffffp1023, false}};

static int format_of(dlc_dtype dtype) {
    for (int i = 0; i < (int)(sizeof formats / sizeof *formats); i++)
        if (formats[i].dtype == dtype) return i;
    return -1;
}

/* Distance of neighbouring numbers of the dtype around x. */
static double ulp_at(dlc_dtype dtype, double x) {
    int f = format_of(dtype), exponent = x == 0 || !isfinite(x) ? formats[f].lowest : ilogb(x);
    if (exponent < formats[f].lowest) exponent = formats[f].lowest;
    return ldexp(1.0, exponent - formats[f].digits + 1);
}

/* A difference in units in the last place of x, as numbers of the dtype; of integers: itself. */
static double in_units(dlc_dtype dtype, double difference, double x) {
    return fabs(difference) / (format_of(dtype) < 0 ? 1 : ulp_at(dtype, x));
}

/* slack: absolute error beside `tolerance` ulp of the expected number. */
static bool agrees(dlc_dtype dtype, double got, double expected, double tolerance, double slack) {
    int f = format_of(dtype);
    if (f < 0) return got == expected;
    double allowed = isnan(expected) ? 0 : (tolerance + 0.001) * ulp_at(dtype, expected) + slack;
    if (formats[f].finite && isnan(got) && fabs(expected) > formats[f].greatest - allowed) return true;
    if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got);
    if (got == expected) return true;
    if (isinf(got)) /* right where rounding overflows */
        return got > 0 ? expected > formats[f].greatest - allowed : expected < -formats[f].greatest + allowed;
    return fabs(got - expected) <= allowed;
}

/* ---- one case -------------------------------------------------------------------------------------------------- */

#define RESULTS_MAX 16

typedef struct test_case {
    sample s;
    lib_arena *arena;
    /* as emitted */
    graph *g;
    /* composites expanded */
    graph *primitive;
    graph_reference_tensor operand[SAMPLE_OPERANDS], result[RESULTS_MAX], scale[RESULTS_MAX];
    /* by result: the largest finite magnitude in it; elements of the largest operand */
    double largest[RESULTS_MAX];
    int64_t terms;
    int results;
    /* by leg */
    void *prepared[TEST_LEGS_MAX];
    sample_fill fill;
    uint64_t seed;
    char failure[2 * LIB_MESSAGE_MAX];
    int64_t ran;
} test_case;

static void emit_sample(test_case *c) {
    graph *g = c->g = graph_new(c->arena, NULL);
    sample_parse(&c->s, g, c->s.op, c->s.line);
    graph_id input[SAMPLE_OPERANDS];
    for (int i = 0; i < c->s.operands; i++) {
        const sample_operand *operand = &c->s.operand[i];
        graph_shape shape = {.dtype = operand->dtype, .rank = operand->rank};
        for (int d = 0; d < operand->rank; d++) shape.dim[d] = tir_index(g->pool, operand->dim[d]);
        input[i] = operand->left_out ? 0 : graph_new_input(g, lib_arena_format(c->arena, "x%d", i), &shape);
    }
    graph_id first = graph_emit(g, c->s.op, c->s.operands, input, c->s.attribute);
    c->results = c->s.op->results >= 0 ? c->s.op->results : graph_node_of(g, first)->results;
    for (int i = 0; i < c->results; i++) {
        graph_new_output(g, lib_arena_format(c->arena, "y%d", i), first + (graph_id)i);
        const graph_shape *shape = graph_shape_of(g, first + (graph_id)i);
        c->result[i].dtype = shape->dtype;
        c->result[i].rank = shape->rank;
        for (int d = 0; d < shape->rank; d++) c->result[i].dim[d] = sample_extent(g->pool, shape->dim[d]);
    }
    c->primitive = graph_decompose(c->arena, g);
}

/* The text form reads back as the same graph. */
static void check_text(test_case *c) {
    lib_text text, again;
    lib_lexer lexer;
    lib_text_init(&text, c->arena);
    lib_text_init(&again, c->arena);
    graph_print(&text, c->g);
    lib_lexer_init(&lexer, c->arena, "printed", text.data, text.length);
    graph_print(&again, graph_parse(c->arena, &lexer));
    if (strcmp(text.data, again.data) != 0)
        lib_raise(c->arena->scope, DLC_INTERNAL, "the text form reads back as another graph:\n%s\n%s", text.data,
                  again.data);
}

static void run_reference(test_case *c, const graph_reference_tensor *operand, graph_reference_tensor *result) {
    sample_reference(&c->s, c->arena, c->g->pool, operand, c->results, c->result, result);
}

/* Sums are compared relative to the sum of the terms' magnitudes: the reference on absolute values. */
static void run_scale(test_case *c) {
    graph_reference_tensor magnitude[SAMPLE_OPERANDS];
    memcpy(magnitude, c->operand, sizeof magnitude);
    for (int i = 0; i < c->s.operands; i++) {
        if (magnitude[i].rank < 0 || !lib_dtype_is_float(magnitude[i].dtype)) continue;
        int64_t count = sample_count(&magnitude[i]);
        magnitude[i].data = LIB_NEW_ARRAY(c->arena, double, (size_t)count);
        for (int64_t k = 0; k < count; k++) magnitude[i].data[k] = fabs(c->operand[i].data[k]);
    }
    run_reference(c, magnitude, c->scale);
    c->terms = 1;
    for (int k = 0; k < c->s.operands; k++)
        if (c->operand[k].rank >= 0 && sample_count(&c->operand[k]) > c->terms) c->terms = sample_count(&c->operand[k]);
    for (int r = 0; r < c->results; r++) {
        const graph_reference_tensor *y = &c->result[r];
        c->largest[r] = 0;
        for (int64_t k = 0; k < sample_count(y); k++)
            if (isfinite(y->data[k])) c->largest[r] = fmax(c->largest[r], fabs(y->data[k]));
    }
}

/* The type in whose ulp result r is compared. A composite with a result of a wider type rounds to its operands' type in between, unless it is
 * linear in them, so that it only multiplies and adds them up. */
static dlc_dtype unit_of(const test_case *c, int r) {
    const dlc_dtype own = c->result[r].dtype, x = c->operand[0].dtype;
    const bool between = c->s.op->class_ == GRAPH_COMPOSITE && !(c->s.op->linear & 1) && lib_dtype_is_narrow_float(x);
    return between && own == DLC_F32 ? x : own;
}

/* Error that the order of operations may cause in element i of result r. */
static double slack_of(const test_case *c, int r, int64_t i) {
    const graph_reference_tensor *y = &c->result[r];
    const double tolerance = graph_op_tolerance(c->s.op, y->dtype), least = c->s.op->accuracy.least;
    if (format_of(y->dtype) < 0 || tolerance == 0) return 0;
    graph_class class_ = c->s.op->class_;
    if (class_ == GRAPH_MAP) return least > fabs(y->data[i]) ? tolerance * ulp_at(y->dtype, least) : 0;
    bool composite = class_ == GRAPH_COMPOSITE;
    if (!composite && class_ != GRAPH_REDUCE && class_ != GRAPH_CONTRACT && class_ != GRAPH_SCATTER) return 0;
    bool in_f32 = class_ != GRAPH_SCATTER && y->dtype != DLC_F64; /* f16 and bf16 accumulate in f32 */
    double slack = (double)c->terms * ulp_at(in_f32 ? DLC_F32 : y->dtype, 1.0) * fabs(c->scale[r].data[i]);
    if (!isfinite(slack)) slack = 0;
    /* what cancels is as large as the largest result */
    return composite ? slack + tolerance * ulp_at(unit_of(c, r), c->largest[r]) : slack;
}

static bool compare_results(test_case *c, const char *leg_name, const guarded *outputs) {
    for (int r = 0; r < c->results; r++) {
        const graph_reference_tensor *y = &c->result[r];
        const double tolerance = graph_op_tolerance(c->s.op, y->dtype);
        for (int64_t i = 0; i < sample_count(y); i++) {
            const char *element = (const char *)outputs[r].data + (size_t)i * lib_dtype_size(y->dtype);
            double got = lib_element_get_f64(y->dtype, element);
            bool legal = y->dtype != DLC_BOOL || (unsigned char)*element <= 1;
            if (legal && agrees(unit_of(c, r), got, y->data[i], tolerance, slack_of(c, r, i))) continue;
            snprintf(
                c->failure, sizeof c->failure,
                "%s, fill %d, leg %s: result %d element %lld is %.17g (%a), expected %.17g (%a): %.2f ulp, allowed %.2f",
                c->s.line, (int)c->fill, leg_name, r, (long long)i, got, got, y->data[i], y->data[i],
                in_units(unit_of(c, r), got - y->data[i], y->data[i]),
                tolerance + in_units(unit_of(c, r), slack_of(c, r, i), y->data[i]));
            return false;
        }
    }
    return true;
}

/* Memory of one run. */
typedef struct run_memory {
    guarded inputs[SAMPLE_OPERANDS], outputs[RESULTS_MAX];
    void *input[SAMPLE_OPERANDS], *output[RESULTS_MAX], *copy[SAMPLE_OPERANDS];
    int given;
} run_memory;

static bool take_memory(test_case *c, run_memory *m, bool at_end) {
    for (int i = 0; i < c->s.operands; i++) {
        if (c->s.operand[i].left_out) continue;
        const graph_reference_tensor *x = &c->operand[i];
        size_t size = lib_dtype_size(x->dtype), bytes = size * (size_t)sample_count(x);
        guarded *memory = &m->inputs[m->given];
        if (!guarded_new(memory, bytes, at_end)) return false;
        for (int64_t k = 0; k < sample_count(x); k++)
            lib_element_set_f64(x->dtype, (char *)memory->data + (size_t)k * size, x->data[k]);
        m->copy[m->given] = lib_arena_copy(c->arena, bytes ? memory->data : "", bytes);
        m->input[m->given++] = memory->data;
    }
    for (int r = 0; r < c->results; r++) {
        size_t bytes = lib_dtype_size(c->result[r].dtype) * (size_t)sample_count(&c->result[r]);
        if (!guarded_new(&m->outputs[r], bytes, at_end)) return false;
        if (bytes) memset(m->outputs[r].data, 0xff, bytes);
        m->output[r] = m->outputs[r].data;
    }
    return true;
}

static bool inputs_unchanged(test_case *c, const run_memory *m) {
    for (int i = 0; i < m->given; i++)
        if (m->inputs[i].size && memcmp(m->copy[i], m->inputs[i].data, m->inputs[i].size) != 0) {
            snprintf(c->failure, sizeof c->failure, "%s: input %d was written", c->s.line, i);
            return false;
        }
    return true;
}

/* Each run has an arena of its own. */
static bool run_protected(const test_leg *leg, void *prepared, const run_memory *m, lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) leg->run(prepared, &arena, m->input, m->output);
    lib_arena_free(&arena);
    *error = scope.error;
    return error->status == DLC_OK;
}

/* Runs a leg with every tensor at the end, or the beginning, of its memory. */
static bool run_leg(test_case *c, const test_leg *leg, bool at_end) {
    run_memory m = {.given = 0};
    lib_error error = {.status = DLC_OK};
    bool good = take_memory(c, &m, at_end);
    if (!good) {
        snprintf(c->failure, sizeof c->failure, "%s: no memory", c->s.line);
    } else if (run_protected(leg, c->prepared[leg - test_legs], &m, &error)) {
        good = compare_results(c, leg->name, m.outputs) && inputs_unchanged(c, &m);
        c->ran++;
    } else {
        snprintf(c->failure, sizeof c->failure, "%s, fill %d, leg %s: %s", c->s.line, (int)c->fill, leg->name,
                 error.message);
        good = false;
    }
    for (int i = 0; i < c->s.operands; i++) guarded_free(&m.inputs[i]);
    for (int r = 0; r < c->results; r++) guarded_free(&m.outputs[r]);
    return good;
}

static void make_data(test_case *c) {
    for (int i = c->s.operands; i < SAMPLE_OPERANDS; i++) c->operand[i].rank = -1;
    for (int i = 0; i < c->s.operands; i++) {
        const sample_operand *from = &c->s.operand[i];
        graph_reference_tensor *to = &c->operand[i];
        *to = (graph_reference_tensor){.dtype = from->dtype, .rank = from->left_out ? -1 : from->rank};
        memcpy(to->dim, from->dim, sizeof to->dim);
        if (from->left_out) continue;
        int64_t count = sample_count(to);
        to->data = LIB_NEW_ARRAY(c->arena, double, (size_t)count);
        void *elements = lib_arena_take(c->arena, (size_t)count * lib_dtype_size(from->dtype));
        sample_data(from, i, c->fill, c->seed + (uint64_t)i, count, elements, to->data);
    }
    run_reference(c, c->operand, c->result);
    run_scale(c);
}

/* What numbers a class is tried on, bits of sample_fill: sums of the largest ones depend on their order. */
static unsigned fills_of(graph_class class_) {
    switch (class_) {
    case GRAPH_MAP:
    case GRAPH_INJECTIVE: return SAMPLE_TAME | SAMPLE_WIDE | SAMPLE_EXTREME;
    case GRAPH_REDUCE:
    case GRAPH_SCATTER: return SAMPLE_TAME | SAMPLE_SPECIAL;
    default: return SAMPLE_TAME;
    }
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static bool run_fills(test_case *c) {
    uint64_t seed = (uint64_t)lib_environment_integer(LIB_ENV_SEED, 1);
    for (unsigned fill = SAMPLE_TAME; fill <= SAMPLE_EXTREME; fill *= 2) {
        if (!(fills_of(c->s.op->class_) & fill)) continue;
        c->fill = (sample_fill)fill;
        c->seed = lib_hash64(c->s.line, strlen(c->s.line), seed + fill);
        make_data(c);
        for (const test_leg *leg = test_legs; leg->name; leg++)
            if (c->prepared[leg - test_legs] && !(run_leg(c, leg, true) && (leg->once || run_leg(c, leg, false))))
                return false;
    }
    return true;
}

static bool run_legs(test_case *c) {
    const test_graphs graphs = {c->g, c->primitive};
    for (const test_leg *leg = test_legs; leg->name; leg++)
        if (test_leg_wanted(leg)) c->prepared[leg - test_legs] = leg->prepare(leg, c->arena, &graphs);
    bool good = run_fills(c);
    for (const test_leg *leg = test_legs; leg->name; leg++)
        if (leg->finish && c->prepared[leg - test_legs]) leg->finish(c->prepared[leg - test_legs]);
    return good;
}

/* One line of the samples with one dtype; false with the reason in `failure`. */
static bool run_sample(const graph_op *op, const char *line, size_t length, dlc_dtype t, bool *varies, char *failure,
                       size_t room, int64_t *ran) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    volatile bool good = true;
    if (LIB_ENTER(&scope)) {
        test_case *c = LIB_NEW(&arena, test_case);
        c->arena = &arena;
        c->s.op = op;
        c->s.line = sample_line(&arena, line, length, t, varies);
        emit_sample(c);
        check_text(c);
        good = run_legs(c);
        snprintf(failure, room, "%s", c->failure);
        *ran += c->ran;
    } else {
        snprintf(failure, room, "%.*s with T = %s: %s", (int)length, line, lib_dtypes[t].name, scope.error.message);
        good = false;
    }
    lib_arena_free(&arena);
    return good;
}

/* Rows times dtypes are many: f32 takes all lines; each other dtype the first line that varies in dtype and of the rest every
 * third, all with DLC_TEST_LONG; those that differ from others in little but their width every fourth. */
static bool is_taken(dlc_dtype t, int line) {
    const bool rare = lib_dtype_is_f8(t) || (lib_dtypes[t].class_ == 'u' ? t != DLC_U8 : t == DLC_I16);
    const int every = rare ? 4 : t == DLC_F32 || getenv("DLC_TEST_LONG") ? 1 : 3;
    return line == 0 || line % every == (int)t % every;
}

static void test_row(void **state) {
    const graph_op *op = *state;
    char failure[2 * LIB_MESSAGE_MAX];
    int failures = 0;
    int64_t ran = 0;
    int number = 0, varying = 0;
    for (const char *line = op->samples; line;) {
        size_t length = strcspn(line, "\n");
        bool varies = true;
        for (int t = 0; t < DLC_DTYPE_COUNT && varies; t++) {
            if (lib_dtype_is_stored_otherwise((dlc_dtype)t)) continue; /* test/api/stored_test.c */
            if (!graph_op_accepts(op, (dlc_dtype)t) || !is_taken((dlc_dtype)t, varying)) continue;
            if (number++ % test_every()) continue;
            if (run_sample(op, line, length, (dlc_dtype)t, &varies, failure, sizeof failure, &ran)) continue;
            print_error("%s\n", failure);
            failures++;
        }
        varying += varies;
        line = line[length] ? line + length + 1 : NULL;
    }
    assert_int_equal(failures, 0);
    if (!ran) skip();
}

/* Rows whose elements are no array of numbers: test/api/stored_test.c. */
static bool is_tested_elsewhere(const graph_op *op) {
    static const char *const names[] = {"complex",    "real",        "imag",      "conj", "as_pairs",
                                        "as_complex", "unpack_bits", "pack_bits", "angle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op->name, names[i]) == 0) return true;
    return false;
}

/* What every row must hold. */
static void test_rows_are_complete(void **state) {
    (void)state;
    int missing = 0;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            const graph_op *op = *row;
            const bool has_graph = op->attribute[0].name && op->attribute[0].kind == GRAPH_ATTR_SUBGRAPH;
            bool runs = op->class_ != GRAPH_OPAQUE && op->class_ != GRAPH_CONTROL && !graph_is_source(op) &&
                        !has_graph &&                  /* test/api/training_memory_test.c */
                        !(op->algebra & GRAPH_COUNTS); /* test/api/segments_test.c */
            const char *lacks = !op->infer && !op->expand                                         ? "a shape rule"
                                : !op->doc                                                        ? "documentation"
                                : runs && !op->compute && !graph_op_has_scalar(op) && !op->expand ? "a definition"
                                : runs && !op->samples                                            ? "samples"
                                : runs && !op->reference && !is_tested_elsewhere(op)              ? "a reference"
                                : graph_op_find(op->name) != op                                   ? "a name of its own"
                                                                                                  : NULL;
            if (!lacks) continue;
            print_error("operator %s has no %s\n", op->name, lacks + (lacks[1] == ' ' ? 2 : 0));
            missing++;
        }
    assert_int_equal(missing, 0);
}

static int list_rows(void) {
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            if ((*row)->samples && (*row)->reference) printf("%s\n", (*row)->name);
    return 0;
}

/* Which rows a program takes: those that its arguments name; without any, all, or, called partIofN, every N-th. */
typedef struct selection {
    int names;
    char **name;
    int part, parts, number;
} selection;

static void read_part(selection *s, const char *program) {
    const char *base = strrchr(program, '/');
    s->part = s->parts = 1;
    if (sscanf(base ? base + 1 : program, "part%dof%d", &s->part, &s->parts) != 2) s->part = s->parts = 1;
}

static bool is_selected(selection *s, const graph_op *op) {
    bool named = false;
    for (int i = 0; i < s->names; i++) named = named || strcmp(s->name[i], op->name) == 0;
    return s->names ? named : s->number++ % s->parts == s->part - 1;
}

static const char *refusal(const graph_op *op) {
    return op->samples && op->reference ? NULL : " has no samples or no reference";
}

/* Arguments: names of operators to test; none: all, or a part of them. --list: what there is. DLC_TEST_TARGET=cuda: on its device
 * (legs.h). */
int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) return list_rows();
    struct CMUnitTest tests[512] = {cmocka_unit_test(test_rows_are_complete)};
    size_t count = 1;
    if (asked_unknown("conformance", argc - 1, argv + 1, refusal)) return 2;
    selection s = {.names = argc - 1, .name = argv + 1};
    read_part(&s, argv[0]);
    if (test_is_shortest() && argc < 2 && s.part % 2 == 0 && s.part < s.parts) return 77; /* every second row */
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row && count < sizeof tests / sizeof *tests; row++) {
            if (refusal(*row) || !is_selected(&s, *row)) continue;
            tests[count++] =
                (struct CMUnitTest){.name = (*row)->name, .test_func = test_row, .initial_state = (void *)*row};
        }
    const bool sources = s.part == s.parts;
#ifdef DLC_TARGET_cuda
    if (sources && (argc < 2 || getenv("DLC_NVRTC_SECONDS")) && !test_is_shortest() && !getenv("DLC_TEST_TARGET") &&
        count < sizeof tests / sizeof *tests)
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_sources);
#endif
    (void)sources;
    int failed = _cmocka_run_group_tests("conformance", tests, count, NULL, NULL);
    test_legs_close();
    return failed;
}
