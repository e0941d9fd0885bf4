/* Derivatives of every operator row, in f64, on the row's samples:
 *   tangents against differences of the row's f64 reference, which shares no code with them (Richardson extrapolation of central
 *   differences; elements whose one-sided differences disagree are left out: at most one of ten);
 *   <v, J u> = <J^T v, u>: cotangents against tangents;
 *   the tangent of the cotangent against differences of cotangents: second order;
 *   the tangent of the cotangent = the cotangent of the cotangent = the cotangent of the tangent: orders of derivation;
 *   where sizes are symbols, and in f32, f16 or bf16 (in turn): against those of numbers, of f64.
 * Programs run on the cpu target, or on DLC_TEST_TARGET. With names of rows as arguments: only those. */
#include "graph/gradient.h"
#include "graph/build.h"
#include "test/asked.h"
#include "test/conformance/gradient_graphs.h"
#include "test/share.h"

#include "conformance/sample.h"

#include <dlc/dlc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
/* after the above */
#include <cmocka.h>

enum { RESULTS = 16, VALUES = 3 * SAMPLE_OPERANDS + RESULTS };

/* Dense tensors of f64 (or another type, for operands that are held). */
typedef graph_reference_tensor tensor;

typedef struct test_case {
    sample s;
    lib_arena *arena;
    /* derivatives are of and by what has this type */
    dlc_dtype dtype;
    tensor operand[SAMPLE_OPERANDS], direction[SAMPLE_OPERANDS], seed[RESULTS];
    tensor result[RESULTS];
    int results;
    bool moves[SAMPLE_OPERANDS], counts[RESULTS];
    /* some operand and result has the type; results of the row at the operands are NaN */
    bool differs, fails;
    /* elements; lines */
    int64_t compared, left_out, lines, varied, narrowed;
    char *failure;
    size_t room;
} test_case;

static tensor like(lib_arena *arena, const tensor *t) {
    tensor out = *t;
    out.data = LIB_NEW_ARRAY(arena, double, (size_t)sample_count(t));
    return out;
}

/* ---- the row's reference --------------------------------------------------------------------------------------------- */

static void run_reference(test_case *c, graph *g, const tensor *operand, tensor *result) {
    sample_reference(&c->s, c->arena, g->pool, operand, c->results, c->result, result);
}

/* The operands moved by `by` times the direction. */
static void move(test_case *c, double by, const tensor *direction, tensor *out) {
    for (int i = 0; i < SAMPLE_OPERANDS; i++) {
        out[i] = c->operand[i];
        if (i >= c->s.operands || !c->moves[i]) continue;
        out[i] = like(c->arena, &c->operand[i]);
        for (int64_t k = 0; k < sample_count(&out[i]); k++)
            out[i].data[k] = c->operand[i].data[k] + by * direction[i].data[k];
    }
}

/* ---- programs of graphs ------------------------------------------------------------------------------------------------ */

/* Rows take them in turn. Where tests are short, two in three are on interp: a derivative is a graph, whose kernels conformance.c tests by the
 * samples of its rows. */
enum { CONTEXTS = 3 };
static dlc_context *contexts[CONTEXTS], *context;

static DLTensor described(const tensor *t, void *data) {
    DLTensor out = {.data = data, .device = {kDLCPU, 0}, .ndim = t->rank, .shape = (int64_t *)t->dim};
    out.dtype = lib_dtype_to_dlpack(t->dtype);
    return out;
}

static void fail_with(test_case *c, const char *what, const char *message) {
    lib_raise(c->arena->scope, DLC_INTERNAL, "%s: %s", what, message);
}

/* Compiles the graph for the context and runs it: in[] are its inputs in order, out[] its outputs. */
static void run_program(test_case *c, const graph *g, int inputs, const tensor *const *in, int outputs, tensor *out) {
    lib_text text;
    lib_text_init(&text, c->arena);
    graph_print(&text, g);
    dlc_graph *host = NULL;
    dlc_program *program = NULL;
    DLTensor x[VALUES], y[VALUES];
    const DLTensor *px[VALUES];
    dlc_output_slot py[VALUES];
    for (int i = 0; i < inputs; i++) {
        const size_t size = lib_dtype_size(in[i]->dtype);
        char *bytes = lib_arena_take(c->arena, (size_t)sample_count(in[i]) * size + 1);
        for (int64_t k = 0; k < sample_count(in[i]); k++)
            lib_element_set_f64(in[i]->dtype, bytes + (size_t)k * size, in[i]->data[k]);
        x[i] = described(in[i], bytes);
        px[i] = &x[i];
    }
    for (int i = 0; i < outputs; i++) {
        y[i] = described(&out[i],
                         lib_arena_take(c->arena, (size_t)sample_count(&out[i]) * lib_dtype_size(out[i].dtype) + 1));
        py[i] = (dlc_output_slot){.tensor = &y[i]};
    }
    dlc_status status = dlc_graph_parse(context, text.data, text.length, &host);
    if (status == DLC_OK) status = dlc_compile(context, host, NULL, &program);
    if (status == DLC_OK) status = dlc_run(program, NULL, px, inputs, py, outputs);
    if (status != DLC_OK) {
        const char *message = lib_arena_format(c->arena, "%s\n%s", dlc_error_message(context), text.data);
        dlc_program_destroy(program);
        dlc_graph_destroy(host);
        fail_with(c, "program", message);
    }
    for (int i = 0; i < outputs; i++)
        for (int64_t k = 0; k < sample_count(&out[i]); k++)
            out[i].data[k] =
                lib_element_get_f64(out[i].dtype, (char *)y[i].data + (size_t)k * lib_dtype_size(out[i].dtype));
    dlc_program_destroy(program);
    dlc_graph_destroy(host);
}

/* The sample in a graph of its own: inputs x0, x1, ... */
typedef struct built {
    graph *g;
    graph_id input[SAMPLE_OPERANDS], first;
} built;

/* The sizes of operands that are symbols. Equal sizes have one symbol, so that sizes that the row requires to be equal are. Size 1 is always a
 * number: the row may broadcast such an axis. */
typedef enum symbols { NUMBERS, FIRST_AXES, ALL_AXES } symbols;

static tir_expr size_of(const test_case *c, graph *g, symbols which, int axis, int64_t size) {
    if (which == NUMBERS || (which == FIRST_AXES && axis > 0) || size == 1) return tir_index(g->pool, size);
    return graph_symbol_named(g, lib_arena_format(c->arena, "n%lld", (long long)size));
}

static built build(test_case *c, symbols which) {
    built b = {.g = graph_new(c->arena, NULL)};
    sample_parse(&c->s, b.g, c->s.op, c->s.line);
    for (int i = 0; i < c->s.operands; i++) {
        const sample_operand *operand = &c->s.operand[i];
        graph_shape shape = {.dtype = operand->dtype, .rank = operand->rank};
        for (int d = 0; d < operand->rank; d++) shape.dim[d] = size_of(c, b.g, which, d, operand->dim[d]);
        b.input[i] = operand->left_out ? 0 : graph_new_input(b.g, lib_arena_format(c->arena, "x%d", i), &shape);
    }
    b.first = graph_emit(b.g, c->s.op, c->s.operands, b.input, c->s.attribute);
    return b;
}

/* Further inputs, derivatives of some values. */
static int inputs_like(built *b, const char *name, int count, const graph_id *values, const bool *which,
                       graph_id *out) {
    int added = 0;
    for (int i = 0; i < count; i++) {
        if (!which[i]) continue;
        graph_shape shape = *graph_shape_of(b->g, values[i]);
        shape.dtype = graph_tangent_dtype(shape.dtype);
        out[added++] = graph_new_input(b->g, lib_arena_format(b->g->arena, "%s%d", name, i), &shape);
    }
    return added;
}

static int chosen(int count, const graph_id *values, const bool *which, graph_id *out) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (which[i]) out[kept++] = values[i];
    return kept;
}

/* Zeros like a derivative of the value. */
static graph_id no_derivative(graph *g, graph_id value) {
    const graph_shape *shape = graph_shape_of(g, value);
    return graph_full(g, graph_tangent_dtype(shape->dtype), shape->rank, shape->dim, 0);
}

/* Outputs: derivatives of the values; 0: there are none, which is 0. */
static void add_outputs(built *b, const char *name, int count, graph_id *derivative, const graph_id *values) {
    for (int i = 0; i < count; i++) {
        if (!derivative[i]) derivative[i] = no_derivative(b->g, values[i]);
        graph_new_output(b->g, lib_arena_format(b->g->arena, "%s%d", name, i), derivative[i]);
    }
}

typedef struct arguments {
    const tensor *in[VALUES];
    int count;
} arguments;

static arguments given(const test_case *c, const tensor *operand) {
    arguments a = {.count = 0};
    for (int i = 0; i < c->s.operands; i++)
        if (!c->s.operand[i].left_out) a.in[a.count++] = &operand[i];
    return a;
}

static void append(arguments *a, int count, const tensor *values, const bool *which) {
    for (int i = 0; i < count; i++)
        if (which[i]) a->in[a->count++] = &values[i];
}

static graph_id results_of(const test_case *c, const built *b, graph_id *y) {
    for (int r = 0; r < c->results; r++) y[r] = b->first + (graph_id)r;
    return b->first;
}

/* out[i], list[]: new tensors for derivatives of the values that are wanted; returns how many. */
static int tensors_like(test_case *c, int count, const tensor *values, const bool *which, tensor *out, tensor *list) {
    int n = 0;
    for (int i = 0; i < count; i++) {
        if (!which[i]) continue;
        out[i] = like(c->arena, &values[i]);
        out[i].dtype = graph_tangent_dtype(out[i].dtype);
        list[n++] = out[i];
    }
    return n;
}

/* out[i]: the cotangents of the operands for the seeds. */
static void run_cotangents(test_case *c, const tensor *operand, tensor *out) {
    built b = build(c, NUMBERS);
    graph_id x[SAMPLE_OPERANDS], v[RESULTS], all[RESULTS] = {0}, y[RESULTS], back[SAMPLE_OPERANDS];
    results_of(c, &b, all);
    const int count = chosen(c->s.operands, b.input, c->moves, x), results = chosen(c->results, all, c->counts, y);
    inputs_like(&b, "v", c->results, all, c->counts, v);
    graph_vjp(b.g, "vjp", results, y, v, count, x, back);
    add_outputs(&b, "c", count, back, x);
    arguments a = given(c, operand);
    append(&a, c->results, c->seed, c->counts);
    tensor z[SAMPLE_OPERANDS];
    const int n = tensors_like(c, c->s.operands, c->operand, c->moves, out, z);
    run_program(c, b.g, a.count, a.in, n, z);
}

/* All derivatives of one program. second: along `direction`, the tangent of the cotangents, the cotangents of the cotangents, the cotangents
 * of the tangents. */
enum { ORDERS = 3 };
typedef struct derivatives {
    tensor tangent[RESULTS], cotangent[SAMPLE_OPERANDS], second[ORDERS][SAMPLE_OPERANDS];
} derivatives;

static void run_all(test_case *c, symbols which, bool twice, derivatives *d) {
    built b = build(c, which);
    graph_id x[SAMPLE_OPERANDS], u[SAMPLE_OPERANDS], v[RESULTS], all[RESULTS] = {0}, y[RESULTS], moved[RESULTS];
    graph_id back[SAMPLE_OPERANDS], second[ORDERS][SAMPLE_OPERANDS];
    results_of(c, &b, all);
    const int count = chosen(c->s.operands, b.input, c->moves, x), results = chosen(c->results, all, c->counts, y);
    inputs_like(&b, "v", c->results, all, c->counts, v);
    inputs_like(&b, "u", c->s.operands, b.input, c->moves, u);
    graph_jvp(b.g, "jvp", count, x, u, results, y, moved);
    graph_vjp(b.g, "vjp", results, y, v, count, x, back);
    add_outputs(&b, "t", results, moved, y);
    add_outputs(&b, "c", count, back, x);
    if (twice) {
        graph_jvp(b.g, "jvp", count, x, u, count, back, second[0]);
        graph_vjp(b.g, "vjp", count, back, u, count, x, second[1]);
        graph_vjp(b.g, "vjp", results, moved, v, count, x, second[2]);
        for (int order = 0; order < ORDERS; order++)
            add_outputs(&b, lib_arena_format(c->arena, "s%d.", order), count, second[order], x);
    }
    arguments a = given(c, c->operand);
    append(&a, c->results, c->seed, c->counts);
    append(&a, c->s.operands, c->direction, c->moves);
    tensor z[RESULTS + (1 + ORDERS) * SAMPLE_OPERANDS];
    int n = tensors_like(c, c->results, c->result, c->counts, d->tangent, z);
    n += tensors_like(c, c->s.operands, c->operand, c->moves, d->cotangent, z + n);
    for (int order = 0; twice && order < ORDERS; order++)
        n += tensors_like(c, c->s.operands, c->operand, c->moves, d->second[order], z + n);
    run_program(c, b.g, a.count, a.in, n, z);
}

/* ---- comparing --------------------------------------------------------------------------------------------------------- */

static const double STEP = 1e-4;

/* Compares derivatives with differences of f at four points around: at[0..3] are f(x + h), f(x - h), f(x + h/2), f(x - h/2), middle is
 * f(x). `scale`: the size of the largest derivative. */
static bool compare(test_case *c, const char *what, int number, const tensor *got, const tensor *middle,
                    tensor *const at, double tolerance) {
    double scale = 0;
    bool failed =
        false; /* NaN among the results: a factorisation that does not exist, say, so that all derivatives may be NaN */
    const int64_t count = sample_count(got);
    for (int64_t k = 0; k < count; k++) {
        const double wide = (at[0].data[k] - at[1].data[k]) / (2 * STEP);
        if (isfinite(wide)) scale = fmax(scale, fabs(wide));
        failed = failed || isnan(middle->data[k]);
    }
    for (int64_t k = 0; k < count; k++) {
        const double wide = (at[0].data[k] - at[1].data[k]) / (2 * STEP),
                     narrow = (at[2].data[k] - at[3].data[k]) / STEP;
        const double up = (at[2].data[k] - middle->data[k]) / (STEP / 2),
                     down = (middle->data[k] - at[3].data[k]) / (STEP / 2);
        const double expected = narrow + (narrow - wide) / 3,
                     slack = tolerance * (fabs(expected) + scale + fabs(middle->data[k]));
        if (!isfinite(expected) || !isfinite(middle->data[k])) continue; /* outside of the domain */
        c->compared++;
        if (fabs(got->data[k] - expected) <= slack + 1e-9) continue;
        /* no derivative here: a step, a kink, or outside of the domain */
        if ((failed && isnan(got->data[k])) || fabs(up - down) > 0.02 * (fabs(up) + fabs(down)) ||
            fabs(narrow - wide) > 1e-4 * (fabs(wide) + fabs(narrow))) {
            c->left_out++;
            continue;
        }
        snprintf(c->failure, c->room, "%s: %s %d, element %lld is %.12g, expected %.12g (one-sided %.6g, %.6g)",
                 c->s.line, what, number, (long long)k, got->data[k], expected, down, up);
        return false;
    }
    return true;
}

static bool check_tangents(test_case *c, const tensor *tangent) {
    static const double steps[] = {1, -1, 0.5, -0.5};
    tensor at[4][RESULTS], middle[RESULTS], moved[SAMPLE_OPERANDS];
    graph *g = build(c, NUMBERS).g;
    for (int s = 0; s < 4; s++) {
        move(c, steps[s] * STEP, c->direction, moved);
        run_reference(c, g, moved, at[s]);
    }
    run_reference(c, g, c->operand, middle);
    for (int r = 0; r < c->results; r++)
        for (int64_t k = 0; c->counts[r] && k < sample_count(&middle[r]); k++)
            c->fails = c->fails || isnan(middle[r].data[k]);
    for (int r = 0; r < c->results; r++) {
        tensor points[] = {at[0][r], at[1][r], at[2][r], at[3][r]};
        if (c->counts[r] && !compare(c, "tangent of result", r, &tangent[r], &middle[r], points, 1e-6)) return false;
    }
    return true;
}

/* <a, b> over the tensors that are finite in both; adds magnitudes. */
static double inner(int count, const tensor *a, const tensor *b, const bool *which, double *magnitude, bool *finite) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; which[i] && k < sample_count(&a[i]); k++) {
            const double product = a[i].data[k] * b[i].data[k];
            *finite = *finite && isfinite(product);
            sum += product;
            *magnitude += fabs(product);
        }
    return sum;
}

static bool check_transpose(test_case *c, const tensor *tangent, const tensor *cotangent) {
    double magnitude = 0;
    bool finite = true;
    const double forwards = inner(c->results, c->seed, tangent, c->counts, &magnitude, &finite);
    const double backwards = inner(c->s.operands, cotangent, c->direction, c->moves, &magnitude, &finite);
    if (!finite || fabs(forwards - backwards) <= 1e-10 * magnitude + 1e-12) return true;
    snprintf(c->failure, c->room, "%s: <v, J u> is %.15g, <J^T v, u> %.15g", c->s.line, forwards, backwards);
    return false;
}

static bool check_second(test_case *c, const derivatives *d) {
    static const double steps[] = {1, -1, 0.5, -0.5};
    tensor at[4][SAMPLE_OPERANDS], moved[SAMPLE_OPERANDS];
    for (int s = 0; s < 4; s++) {
        move(c, steps[s] * STEP, c->direction, moved);
        run_cotangents(c, moved, at[s]);
    }
    for (int i = 0; i < c->s.operands; i++) {
        if (!c->moves[i]) continue;
        tensor points[] = {at[0][i], at[1][i], at[2][i], at[3][i]};
        if (!compare(c, "second derivative of operand", i, &d->second[0][i], &d->cotangent[i], points, 1e-5))
            return false;
    }
    return true;
}

static double largest(const tensor *t) {
    double most = 0;
    for (int64_t k = 0; k < sample_count(t); k++)
        if (isfinite(t->data[k])) most = fmax(most, fabs(t->data[k]));
    return most;
}

/* Elements differ by at most tolerance times the largest of the tensor; any may be NaN if results of the row are. */
static bool is_like(test_case *c, const char *what, int number, const tensor *got, const tensor *expected,
                    double tolerance) {
    const double scale = fmax(largest(expected), 1);
    for (int64_t k = 0; k < sample_count(got); k++) {
        if (!isfinite(expected->data[k]) && !isfinite(got->data[k])) continue;
        if (c->fails && (isnan(expected->data[k]) || isnan(got->data[k]))) continue;
        if (fabs(got->data[k] - expected->data[k]) <= tolerance * scale) continue;
        snprintf(c->failure, c->room, "%s: %s %d, element %lld is %.12g, expected %.12g", c->s.line, what, number,
                 (long long)k, got->data[k], expected->data[k]);
        return false;
    }
    return true;
}

/* The second derivative does not depend on the order of the modes. */
static bool check_orders(test_case *c, const derivatives *d) {
    static const char *const what[] = {NULL, "the cotangent of the cotangent", "the cotangent of the tangent"};
    for (int order = 1; order < ORDERS; order++)
        for (int i = 0; i < c->s.operands; i++)
            if (c->moves[i] && !is_like(c, what[order], i, &d->second[order][i], &d->second[0][i], 1e-9)) return false;
    return true;
}

/* The row alone, without derivatives. */
static void run_row(test_case *c, symbols which) {
    built b = build(c, which);
    graph_id all[RESULTS] = {0}, y[RESULTS];
    tensor unused[RESULTS], z[RESULTS];
    results_of(c, &b, all);
    const int results = chosen(c->results, all, c->counts, y);
    add_outputs(&b, "y", results, y, y);
    arguments a = given(c, c->operand);
    run_program(c, b.g, a.count, a.in, tensors_like(c, c->results, c->result, c->counts, unused, z), z);
}

/* Derivatives, or (d: NULL) the row alone, with symbols; false: *error says why not. */
static bool try_symbols(test_case *c, symbols which, derivatives *d, lib_error *error) {
    lib_scope scope, *const outer = c->arena->scope;
    volatile bool done = false;
    c->arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        if (d)
            run_all(c, which, false, d);
        else
            run_row(c, which);
        done = true;
    }
    c->arena->scope = outer;
    *error = scope.error;
    return done;
}

/* All sizes are symbols, or, if the row wants numbers, those of first axes. False: the row wants numbers there, too. Whatever the row takes
 * its derivatives must take. */
static bool run_symbols(test_case *c, derivatives *d) {
    for (symbols which = ALL_AXES; which > NUMBERS; which--) {
        lib_error error, unused;
        if (try_symbols(c, which, d, &error)) return true;
        if (try_symbols(c, which, NULL, &unused)) lib_raise(c->arena->scope, DLC_INTERNAL, "%s", error.message);
    }
    return false;
}

static bool check_symbols(test_case *c, const derivatives *expected) {
    derivatives d;
    if (!run_symbols(c, &d)) return true;
    c->varied++;
    for (int r = 0; r < c->results; r++)
        if (c->counts[r] &&
            !is_like(c, "with symbols, the tangent of result", r, &d.tangent[r], &expected->tangent[r], 1e-9))
            return false;
    for (int i = 0; i < c->s.operands; i++)
        if (c->moves[i] &&
            !is_like(c, "with symbols, the cotangent of operand", i, &d.cotangent[i], &expected->cotangent[i], 1e-9))
            return false;
    return true;
}

/* ---- cases ------------------------------------------------------------------------------------------------------------- */

/* Numbers of magnitude 0.3 to 1, times `size`. */
static tensor random_like(test_case *c, const tensor *t, double size, uint64_t seed) {
    tensor out = like(c->arena, t);
    for (int64_t k = 0; k < sample_count(t); k++)
        out.data[k] = size * sample_uniform(&seed, 0.3, 1) * (sample_random(&seed) & 1 ? 1 : -1);
    return out;
}

static bool can_move(const test_case *c, const sample_operand *x) {
    return !x->left_out && x->dtype == c->dtype && !(x->limited && x->low == x->high);
}

/* Operands in which a row has no derivative, and says so. */
static bool is_held(const graph_op *op, int operand) {
    return operand == 0 && (strcmp(op->name, "gammainc") == 0 || strcmp(op->name, "gammaincc") == 0);
}

/* a := a a^T + n, matrix by matrix: positive definite, as a factorisation needs it. */
static void make_definite(lib_arena *arena, tensor *a) {
    const int64_t n = a->rank ? a->dim[a->rank - 1] : 0;
    const tensor from = *a;
    *a = like(arena, a);
    for (int64_t k = 0; n && k < sample_count(a); k++) {
        const int64_t i = k / n % n, j = k % n, matrix = k / n / n * n * n;
        a->data[k] = i == j ? (double)n : 0;
        for (int64_t t = 0; t < n; t++) a->data[k] += from.data[matrix + i * n + t] * from.data[matrix + j * n + t];
    }
}

static void make_data(test_case *c) {
    const uint64_t seed = lib_hash64(c->s.line, strlen(c->s.line), (uint64_t)lib_environment_integer(LIB_ENV_SEED, 1));
    for (int i = c->s.operands; i < SAMPLE_OPERANDS; i++) c->operand[i].rank = -1;
    for (int i = 0; i < c->s.operands; i++) {
        const sample_operand *from = &c->s.operand[i];
        tensor *to = &c->operand[i];
        *to = (tensor){.dtype = from->dtype, .rank = from->left_out ? -1 : from->rank};
        memcpy(to->dim, from->dim, sizeof to->dim);
        c->moves[i] = can_move(c, from) && !is_held(c->s.op, i);
        if (from->left_out) continue;
        to->data = LIB_NEW_ARRAY(c->arena, double, (size_t)sample_count(to));
        void *elements = lib_arena_take(c->arena, (size_t)sample_count(to) * lib_dtype_size(from->dtype) + 1);
        sample_data(from, i, SAMPLE_TAME, seed + (uint64_t)i, sample_count(to), elements, to->data);
        /* away from the ends of the range, so that steps stay in it */
        for (int64_t k = 0; c->moves[i] && from->limited && k < sample_count(to); k++)
            to->data[k] = 0.01 * (from->low + from->high) / 2 + 0.99 * to->data[k];
        if (strcmp(c->s.op->name, "cholesky") == 0) make_definite(c->arena, to);
        if (!c->moves[i]) continue;
        const double size =
            from->limited ? fmin(1, (from->high - from->low) / 2) : 1; /* steps are small beside the range */
        c->direction[i] = random_like(c, to, size, seed + 100 + (uint64_t)i);
    }
    for (int r = 0; r < c->results; r++)
        if (c->counts[r]) c->seed[r] = random_like(c, &c->result[r], 1, seed + 300 + (uint64_t)r);
}

/* False: the case says nothing, because no operand or no result has the type. */
static bool describe(test_case *c) {
    built b = build(c, NUMBERS);
    bool any = false, results = false;
    c->results = graph_node_of(b.g, b.first)->results;
    for (int r = 0; r < c->results; r++) {
        const graph_shape *shape = graph_shape_of(b.g, b.first + (graph_id)r);
        c->result[r] = (tensor){.dtype = shape->dtype, .rank = shape->rank};
        for (int d = 0; d < shape->rank; d++) c->result[r].dim[d] = sample_extent(b.g->pool, shape->dim[d]);
        c->counts[r] = shape->dtype == c->dtype;
        results = results || c->counts[r];
    }
    for (int i = 0; i < c->s.operands; i++) any = any || can_move(c, &c->s.operand[i]);
    return any && results;
}

/* Rows whose derivatives are steps, so close together near a divisor of 0 that their differences look smooth. */
static bool is_stepped(const graph_op *op) {
    return strcmp(op->name, "rem") == 0 || strcmp(op->name, "mod") == 0;
}

static bool run_checks(test_case *c) {
    derivatives d;
    if (!describe(c)) return true;
    make_data(c);
    c->differs = true;
    run_all(c, NUMBERS, true, &d);
    return check_tangents(c, d.tangent) && check_transpose(c, d.tangent, d.cotangent) &&
           (is_stepped(c->s.op) || check_second(c, &d)) && check_orders(c, &d) && check_symbols(c, &d);
}

/* ---- narrower types ------------------------------------------------------------------------------------------------------- */

static const struct {
    dlc_dtype dtype;
    double epsilon, largest;
} narrow_types[] = {{DLC_F32, 0x1p-23, 0x1p100}, {DLC_F16, 0x1p-10, 0x1p13}, {DLC_BF16, 0x1p-7, 0x1p100}};

static tensor rounded(test_case *c, const tensor *t, dlc_dtype dtype, dlc_dtype by) {
    tensor out = like(c->arena, t);
    out.dtype = dtype;
    for (int64_t k = 0; k < sample_count(t); k++) {
        uint64_t element;
        lib_element_set_f64(by, &element, t->data[k]);
        out.data[k] = lib_element_get_f64(by, &element);
    }
    return out;
}

/* The case on operands, directions and seeds that have been rounded to what `low` has, on tensors of `dtype`. */
static test_case on_rounded(test_case *c, const test_case *low, dlc_dtype dtype) {
    test_case out = *c;
    out.s = dtype == low->dtype ? low->s : c->s;
    out.dtype = dtype;
    for (int i = 0; i < c->s.operands; i++) {
        if (c->s.operand[i].dtype != c->dtype || low->s.operand[i].dtype != low->dtype) continue;
        out.operand[i] = rounded(c, &c->operand[i], dtype, low->dtype);
        if (c->moves[i]) out.direction[i] = rounded(c, &c->direction[i], graph_tangent_dtype(dtype), low->dtype);
    }
    for (int r = 0; r < c->results; r++) {
        if (!c->counts[r]) continue;
        out.result[r].dtype = dtype;
        out.seed[r] = rounded(c, &c->seed[r], graph_tangent_dtype(dtype), low->dtype);
    }
    return out;
}

enum { MOVED = 2 };

/* Does each element of the derivative in the narrow type differ from that in f64 by no more than roundings of operands and of the result explain?
 * Operands' roundings change it by as much as operands moved by an epsilon do (`moved`). */
static bool is_rounded(test_case *c, int type, const char *what, int number, const tensor *got, const tensor *wide,
                       const tensor *const *moved) {
    double spread = 0;
    for (int m = 0; m < MOVED; m++)
        for (int64_t k = 0; k < sample_count(wide); k++) {
            const double change = fabs(moved[m]->data[k] - wide->data[k]);
            if (isfinite(change)) spread = fmax(spread, change);
        }
    const double most = largest(wide), slack = 16 * spread + 64 * narrow_types[type].epsilon * (most + 1);
    if (most > narrow_types[type].largest) return true;
    for (int64_t k = 0; k < sample_count(wide); k++) {
        if (!isfinite(wide->data[k]) || fabs(got->data[k] - wide->data[k]) <= slack) continue;
        snprintf(c->failure, c->room, "%s in %s: %s %d, element %lld is %.12g, in f64 %.12g (slack %g)", c->s.line,
                 lib_dtypes[narrow_types[type].dtype].name, what, number, (long long)k, got->data[k], wide->data[k],
                 slack);
        return false;
    }
    return true;
}

/* Rows whose numbers are others for another type. */
static bool is_random(const graph_op *op) {
    return strncmp(op->name, "rng_", 4) == 0 || strcmp(op->name, "dropout") == 0;
}

static bool check_narrow(test_case *c, const char *line, size_t length, int type) {
    const dlc_dtype t = narrow_types[type].dtype;
    bool varies;
    test_case low = *c;
    low.dtype = t;
    low.s.line = sample_line(c->arena, line, length, t, &varies);
    if (!varies || c->fails || is_random(c->s.op) || !graph_op_accepts(c->s.op, t) || !describe(&low)) return true;
    derivatives got, expected, moved[MOVED];
    for (int i = 0; i < c->s.operands; i++)
        if (c->moves[i] && !can_move(&low, &low.s.operand[i])) return true;
    for (int r = 0; r < c->results; r++)
        if (low.counts[r] != c->counts[r]) return true;
    test_case wide = on_rounded(c, &low, DLC_F64);
    low = on_rounded(c, &low, t);
    run_all(&low, NUMBERS, false, &got);
    run_all(&wide, NUMBERS, false, &expected);
    for (int m = 0; m < MOVED; m++) {
        test_case shifted = wide;
        for (int i = 0; i < c->s.operands; i++) {
            if (!c->moves[i]) continue;
            uint64_t seed = (uint64_t)(100 * m + i + 1);
            shifted.operand[i] = like(c->arena, &wide.operand[i]);
            for (int64_t k = 0; k < sample_count(&wide.operand[i]); k++)
                shifted.operand[i].data[k] =
                    wide.operand[i].data[k] * (1 + narrow_types[type].epsilon * sample_uniform(&seed, -1, 1));
        }
        run_all(&shifted, NUMBERS, false, &moved[m]);
    }
    c->narrowed++;
    for (int r = 0; r < c->results; r++) {
        const tensor *const at[MOVED] = {&moved[0].tangent[r], &moved[1].tangent[r]};
        if (c->counts[r] && !is_rounded(c, type, "tangent of result", r, &got.tangent[r], &expected.tangent[r], at))
            return false;
    }
    for (int i = 0; i < c->s.operands; i++) {
        const tensor *const at[MOVED] = {&moved[0].cotangent[i], &moved[1].cotangent[i]};
        if (c->moves[i] &&
            !is_rounded(c, type, "cotangent of operand", i, &got.cotangent[i], &expected.cotangent[i], at))
            return false;
    }
    return true;
}

/* number: of the line, which selects the narrow type */
static bool run_sample(const graph_op *op, int number, const char *line, size_t length, test_case *totals,
                       char *failure, size_t room) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    volatile bool good = false;
    if (LIB_ENTER(&scope)) {
        bool varies;
        test_case *c = LIB_NEW(&arena, test_case);
        c->arena = &arena;
        c->failure = failure;
        c->room = room;
        c->s.op = op;
        c->dtype = DLC_F64;
        c->s.line = sample_line(&arena, line, length, DLC_F64, &varies);
        good = run_checks(c) && (!c->differs || check_narrow(c, line, length, number % 3));
        totals->compared += c->compared;
        totals->left_out += c->left_out;
        totals->lines += c->differs;
        totals->varied += c->varied;
        totals->narrowed += c->narrowed;
    } else {
        /* roi_align with samples=0 contains a loop of unknown length, through which no cotangents pass */
        good = scope.error.status == DLC_UNSUPPORTED && strstr(scope.error.message, "vjp: while (node");
        snprintf(failure, room, "%.*s: %s", (int)length, line, scope.error.message);
    }
    lib_arena_free(&arena);
    return good;
}

static int64_t lines_compared, lines_varied, lines_narrowed;

/* Checks that ask first whether they apply do apply to most lines. */
static void test_applied(void **state) {
    (void)state;
    assert_true(2 * lines_varied > lines_compared);
    assert_true(2 * lines_narrowed > lines_compared);
}

static void test_row(void **state) {
    const graph_op *op = *state;
    static char failure[1 << 16];
    static int rows;
    test_case totals = {.compared = 0};
    int failures = 0, number = 0;
    context = contexts[rows++ % CONTEXTS];
    for (const char *line = op->samples; line;) {
        const size_t length = strcspn(line, "\n");
        if (number++ % test_every() == 0 && !run_sample(op, number, line, length, &totals, failure, sizeof failure)) {
            print_error("%s\n", failure);
            failures++;
        }
        line = line[length] ? line + length + 1 : NULL;
    }
    assert_int_equal(failures, 0);
    lines_compared += totals.lines;
    lines_varied += totals.varied;
    lines_narrowed += totals.narrowed;
    if (!totals.compared) skip();
    assert_true(totals.left_out * 10 <= totals.compared);
}

/* Rows whose derivatives in f64 have something to differ in. */
static const char *refusal(const graph_op *op) {
    const bool compared = op->samples && op->reference && graph_op_accepts(op, DLC_F64);
    return op->flat || op->refused ? " has no derivative in reverse mode"
           : !compared             ? " has no samples, no reference or no f64"
                                   : NULL;
}

/* ---- graphs with control flow: gradients of the first output, and of the sum of squares of these, against differences of the programs ------ */

enum { GRAPH_INPUTS = 3 };

static const graph *read_graph(lib_arena *arena, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "graph", text, strlen(text));
    return graph_parse(arena, &lexer);
}

/* The graph whose first output is the sum of the squares of its gradients. */
static const graph *squared(lib_arena *arena, const graph *g) {
    graph *out = graph_add_gradients(arena, g);
    graph_id sum = 0;
    for (uint32_t i = 1; i < out->outputs.count; i++) {
        const graph_id d = out->outputs.data[i], square = graph_reduce_sum(out, graph_mul(out, d, d), 0, NULL, false);
        sum = sum ? graph_add(out, sum, square) : square;
    }
    out->outputs.data[0] = sum;
    out->outputs.count = out->output_names.count = 1;
    return out;
}

/* The first output at x + by * direction. */
static double value_at(test_case *c, const graph *g, double by) {
    tensor moved[SAMPLE_OPERANDS], y = {.dtype = DLC_F64, .data = &(double){0}};
    const tensor *in[GRAPH_INPUTS];
    move(c, by, c->direction, moved);
    for (int i = 0; i < GRAPH_INPUTS; i++) in[i] = &moved[i];
    run_program(c, g, GRAPH_INPUTS, in, 1, &y);
    return y.data[0];
}

static double difference_along(test_case *c, const graph *g) {
    const double wide = (value_at(c, g, STEP) - value_at(c, g, -STEP)) / (2 * STEP);
    const double narrow = (value_at(c, g, STEP / 2) - value_at(c, g, -STEP / 2)) / STEP;
    return narrow + (narrow - wide) / 3;
}

static bool is_near(const char *what, double along, double expected) {
    if (fabs(along - expected) <= 1e-7 * (1 + fabs(expected))) return true;
    print_error("%s along a direction is %.12g, expected %.12g\n", what, along, expected);
    return false;
}

/* The tangent of the first output along the direction against differences. */
static bool check_forwards(test_case *c, const graph *g) {
    const graph *whole = graph_add_tangents(c->arena, g);
    tensor out[2] = {{.dtype = DLC_F64, .data = &(double){0}}, {.dtype = DLC_F64, .data = &(double){0}}};
    const tensor *in[2 * GRAPH_INPUTS];
    for (int i = 0; i < GRAPH_INPUTS; i++) {
        in[i] = &c->operand[i];
        in[GRAPH_INPUTS + i] = &c->direction[i];
    }
    run_program(c, whole, 2 * GRAPH_INPUTS, in, 2, out);
    return is_near("the tangent", out[1].data[0], difference_along(c, g));
}

/* The gradient times the direction against differences of the first output. */
static bool check_graph(test_case *c, const graph *g) {
    const graph *whole = graph_add_gradients(c->arena, g);
    tensor out[1 + GRAPH_INPUTS] = {{.dtype = DLC_F64, .data = &(double){0}}};
    const tensor *in[GRAPH_INPUTS];
    double along = 0;
    for (int i = 0; i < GRAPH_INPUTS; i++) {
        in[i] = &c->operand[i];
        out[1 + i] = like(c->arena, in[i]);
    }
    run_program(c, whole, GRAPH_INPUTS, in, 1 + GRAPH_INPUTS, out);
    for (int i = 0; i < GRAPH_INPUTS; i++)
        for (int64_t k = 0; k < sample_count(in[i]); k++) along += out[1 + i].data[k] * c->direction[i].data[k];
    return is_near("the gradient", along, difference_along(c, g));
}

/* backwards: also in reverse mode, and the gradient of the squares of the gradients */
static bool run_graph(const char *text, uint64_t seed, bool backwards) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    volatile bool good = false;
    if (LIB_ENTER(&scope)) {
        test_case *c = LIB_NEW(&arena, test_case);
        c->arena = &arena;
        c->s.operands = GRAPH_INPUTS;
        const graph *g = read_graph(&arena, text);
        for (int k = 0; k < GRAPH_INPUTS; k++) {
            const graph_shape *shape = graph_shape_of(g, g->inputs.data[k]);
            tensor t = {.dtype = DLC_F64, .rank = shape->rank};
            for (int d = 0; d < t.rank; d++) t.dim[d] = sample_extent(g->pool, shape->dim[d]);
            c->operand[k] = random_like(c, &t, 1, seed * 100 + (uint64_t)k);
            c->direction[k] = random_like(c, &t, 1, seed * 200 + (uint64_t)k);
            c->moves[k] = true;
        }
        good = check_forwards(c, g) && (!backwards || (check_graph(c, g) && check_graph(c, squared(&arena, g))));
    } else {
        print_error("%s\n", scope.error.message);
    }
    lib_arena_free(&arena);
    return good;
}

static void test_control(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            if (!run_graph(graphs[i], seed, true)) fail_msg("graph %zu, seed %d:\n%s", i, (int)seed, graphs[i]);
    for (uint64_t seed = 1; seed <= 3; seed++)
        if (!run_graph(loop, seed, false)) fail_msg("seed %d:\n%s", (int)seed, loop);
}

/* The reverse loop of a recurrence carries nothing but the cotangents of the state: the sums for the weights are contractions after it. */
static void test_sums(void **state) {
    static const char text[] =
        "graph {" INPUTS " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
        "  input h: f64[2, 3]\n  input x: f64[2, 3]\n  input v: f64[2, 3]\n"
        "  m = dot_general(h, v, contract_x=[1], contract_w=[1])\n  d = dot_general(m, x, contract_x=[1], contract_w=[0])\n"
        "  y = tanh(d)\n  output y\n })\n q = mul(r, r)\n" LOSS;
    (void)state;
    lib_scope scope;
    lib_arena arena;
    volatile int64_t carries = -1;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        const graph *g = graph_add_gradients(&arena, read_graph(&arena, text));
        for (uint32_t i = 0; i < g->nodes.count; i++) /* the reverse one is the last */
            if (g->nodes.data[i].op->structure == GRAPH_SCANS)
                carries = g->nodes.data[i].attribute[GRAPH_SCAN_CARRIES].integer;
    }
    lib_arena_free(&arena);
    assert_int_equal(carries, 1);
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[512];
    size_t count = 0;
    const char *base = strrchr(argv[0], '/');
    int part = 1, parts = 1, number = 0;
    if (sscanf(base ? base + 1 : argv[0], "gradient%dof%d", &part, &parts) != 2) part = parts = 1;
    if (parts == 1 && test_is_shortest()) part = parts = 2;
    int unknown = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "control") != 0) unknown += asked_unknown("gradient", 1, &argv[i], refusal);
    if (unknown) return 2;
    for (int i = 0; i < CONTEXTS; i++) {
        const char *target = getenv("DLC_TEST_TARGET");
        const dlc_context_options options = {.struct_size = sizeof options,
                                             .target = !target && i && test_is_short() ? "interp" : target};
        if (dlc_context_create(&options, &contexts[i]) != DLC_OK) {
            fprintf(stderr, "gradient: %s\n", dlc_error_message(NULL));
            return 1;
        }
    }
    context = contexts[0];
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            bool wanted = argc < 2 && number++ % parts == part - 1;
            for (int i = 1; i < argc; i++) wanted = wanted || strcmp(argv[i], (*row)->name) == 0;
            if (wanted && !refusal(*row))
                tests[count++] =
                    (struct CMUnitTest){.name = (*row)->name, .test_func = test_row, .initial_state = (void *)*row};
        }
    if (argc < 2 && count) tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_applied);
    bool control = argc < 2 && part == parts;
    for (int i = 1; i < argc; i++) control = control || strcmp(argv[i], "control") == 0;
    if (control) tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_control);
    if (control) tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_sums);
    const int failed = _cmocka_run_group_tests("gradients", tests, count, NULL, NULL);
    for (int i = 0; i < CONTEXTS; i++) dlc_context_destroy(contexts[i]);
    return failed;
}
