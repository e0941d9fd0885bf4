/* <dlc/gradient.h>: derivatives and mixed precision for hosts. */
#include "graph/api_internal.h"
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/origin.h"
#include "graph/precision.h"

#include <dlc/gradient.h>

/* The arguments of all calls. y: results, or the loss; x: with respect to which; vectors: cotangents of y or tangents of x. */
typedef struct request {
    const char *call;
    int results, count, vectors, outputs;
    const dlc_value *y, *x, *vector;
    dlc_value *out;
    /* dlc_mixed_precision */
    bool any_type;
    dlc_dtype narrow;
    const lib_log *log;
    void (*derive)(graph *g, const struct request *r, const graph_id *y, const graph_id *x, const graph_id *vector,
                   graph_id *out);
} request;

/* ---- arguments --------------------------------------------------------------------------------------------------------- */

static bool is_number(dlc_dtype dtype) {
    return lib_dtype_is_float(dtype) || dtype == DLC_C64;
}

static const char *shape_text(graph *g, graph_id value) {
    lib_text text;
    lib_text_init(&text, g->arena);
    graph_describe_shape(&text, g, graph_shape_of(g, value));
    return text.data;
}

static const char *described(const graph *g, graph_id value) {
    const graph_value *v = &g->values.data[value];
    return v->called ? v->called : v->name ? v->name : graph_node_of(g, value)->op->name;
}

/* The ids of values that must belong to the handle's graph itself and, unless there are no derivatives, be of a float type or c64. */
static graph_id *resolve(dlc_graph *handle, const request *r, int count, const dlc_value *values, const char *what) {
    lib_scope *scope = handle->arena->scope;
    if (count < 0) lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: the number of %ss is %d", r->call, what, count);
    if (count && !values)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: there are no %ss, expected %d", r->call, what, count);
    graph_id *ids = LIB_NEW_ARRAY(handle->arena, graph_id, (size_t)count);
    for (int i = 0; i < count; i++) {
        ids[i] = graph_handle_resolve(handle, values[i], r->call);
        if (values[i].graph != handle)
            lib_raise(scope, DLC_INVALID_ARGUMENT,
                      "%s: %s %d is a value of a graph around the sub-graph, expected one of the graph itself", r->call,
                      what, i);
        if (!r->any_type && !is_number(graph_shape_of(handle->g, ids[i])->dtype))
            lib_raise(scope, DLC_INVALID_ARGUMENT, "%s: %s %d (%s) is %s, expected a float type or c64", r->call, what,
                      i, described(handle->g, ids[i]), shape_text(handle->g, ids[i]));
    }
    return ids;
}

/* Vectors have the shapes and types of the values that they belong to. */
static void check_vectors(graph *g, const request *r, const graph_id *vector, const graph_id *of, const char *what) {
    for (int i = 0; i < r->vectors; i++) {
        const graph_shape *a = graph_shape_of(g, vector[i]), *b = graph_shape_of(g, of[i]);
        bool same = a->dtype == b->dtype && a->rank == b->rank;
        for (int d = 0; same && d < a->rank; d++) {
            same = tir_equal(g->pool, a->dim[d], b->dim[d]) != TIR_NO;
            if (same) graph_require_equal(g, a->dim[d], b->dim[d], "%s: %s %d, dimension %d", r->call, what, i, d);
        }
        if (!same)
            lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s: %s %d is %s, expected %s", r->call, what, i,
                      shape_text(g, vector[i]), shape_text(g, of[i]));
    }
}

static void work(dlc_graph *handle, void *arguments) {
    const request *r = arguments;
    graph *g = handle->g;
    const graph_id *y =
        resolve(handle, r, r->results, r->y, r->outputs == r->count && r->results == 1 ? "loss" : "result");
    const graph_id *x = resolve(handle, r, r->count, r->x, "variable");
    const graph_id *vector = resolve(handle, r, r->vectors, r->vector, "vector");
    graph_id *out = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)r->outputs);
    if (r->outputs && !r->out) lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s: results are NULL", r->call);
    r->derive(g, r, y, x, vector, out);
    for (int i = 0; i < r->outputs; i++) r->out[i] = graph_handle_value(handle, out[i]);
}

static void poison(const request *r) {
    for (int i = 0; r->out && i < r->outputs; i++) r->out[i] = graph_poison();
}

/* The graph of the first value; all others must be of it. Sets *handle, NULL if there is none; false: an argument is poisoned. */
static bool find_graph(const request *r, dlc_graph **handle) {
    const dlc_value *lists[] = {r->y, r->x, r->vector};
    const int counts[] = {r->results, r->count, r->vectors};
    *handle = NULL;
    for (int l = 0; l < 3; l++)
        for (int i = 0; lists[l] && i < counts[l]; i++) {
            if (!lists[l][i].graph && lists[l][i].id) return false;
            if (!*handle && dlc_value_ok(lists[l][i])) *handle = lists[l][i].graph;
        }
    return true;
}

/* Poisoned arguments give poisoned results: their mistake is recorded. Results may lie where arguments do. */
static void perform(request *r) {
    dlc_graph *handle;
    const bool good = find_graph(r, &handle);
    if (good && !handle) {
        lib_error error;
        lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: no argument belongs to a living graph", r->call);
        graph_context_fail(NULL, &error);
    }
    if (good && handle && graph_handle_usable(handle, r->call, false)) {
        r->log = graph_context_log(graph_handle_context(handle));
        if (graph_handle_work(handle, work, r) == DLC_OK) return;
    }
    poison(r);
}

/* ---- calls --------------------------------------------------------------------------------------------------------------- */

/* "w.gradient" */
static void name_after(graph *g, graph_id value, graph_id of, const char *what) {
    const char *name = g->values.data[of].called ? g->values.data[of].called : g->values.data[of].name;
    if (name) graph_name_value(g, value, lib_arena_format(g->arena, "%s.%s", name, what));
}

/* Derivatives in the types of the values that they belong to; zeros where there is none. */
static void finish(graph *g, int count, const graph_id *of, const char *what, graph_id *out) {
    for (int i = 0; i < count; i++) {
        out[i] = out[i] ? graph_cast(g, out[i], graph_shape_of(g, of[i])->dtype) : graph_full_like(g, of[i], 0);
        name_after(g, out[i], of[i], what);
    }
}

/* Vectors in the types of derivatives. */
static graph_id *widened(graph *g, int count, const graph_id *vector) {
    graph_id *wide = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)count);
    for (int i = 0; i < count; i++) wide[i] = graph_widen(g, vector[i]);
    return wide;
}

bool graph_handle_is_zero(dlc_value value) {
    double number;
    return dlc_value_ok(value) && graph_is_number(value.graph->g, (graph_id)value.id, &number) && number == 0;
}

static void derive_gradient(graph *g, const request *r, const graph_id *y, const graph_id *x, const graph_id *vector,
                            graph_id *out) {
    (void)vector;
    graph_gradient(g, r->call, y[0], r->count, x, out);
    for (int i = 0; i < r->count; i++) {
        double number;
        if (graph_is_number(g, out[i], &number) && number == 0)
            lib_log_write(r->log, "%s: no way from %s to the loss, %s: its gradient is 0", r->call, described(g, x[i]),
                          described(g, y[0]));
        name_after(g, out[i], x[i], "gradient");
    }
}

static void derive_vjp(graph *g, const request *r, const graph_id *y, const graph_id *x, const graph_id *vector,
                       graph_id *out) {
    check_vectors(g, r, vector, y, "cotangent");
    graph_vjp(g, r->call, r->results, y, widened(g, r->results, vector), r->count, x, out);
    finish(g, r->count, x, "cotangent", out);
}

static void derive_jvp(graph *g, const request *r, const graph_id *y, const graph_id *x, const graph_id *vector,
                       graph_id *out) {
    check_vectors(g, r, vector, x, "tangent");
    graph_jvp(g, r->call, r->count, x, widened(g, r->count, vector), r->results, y, out);
    finish(g, r->results, y, "tangent", out);
}

static void derive_hvp(graph *g, const request *r, const graph_id *y, const graph_id *x, const graph_id *vector,
                       graph_id *out) {
    graph_id *gradient = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)r->count);
    check_vectors(g, r, vector, x, "direction");
    graph_gradient(g, r->call, y[0], r->count, x, gradient);
    graph_jvp(g, r->call, r->count, x, widened(g, r->count, vector), r->count, gradient, out);
    finish(g, r->count, x, "hvp", out);
}

void dlc_gradient(dlc_value loss, int count, const dlc_value *wrt, dlc_value *gradients) {
    request r = {.call = "dlc_gradient",
                 .results = 1,
                 .y = &loss,
                 .count = count,
                 .x = wrt,
                 .outputs = count,
                 .out = gradients,
                 .derive = derive_gradient};
    perform(&r);
}

void dlc_vjp(int results, const dlc_value *y, const dlc_value *cotangents, int count, const dlc_value *wrt,
             dlc_value *out) {
    request r = {.call = "dlc_vjp",
                 .results = results,
                 .y = y,
                 .count = count,
                 .x = wrt,
                 .vectors = results,
                 .vector = cotangents,
                 .outputs = count,
                 .out = out,
                 .derive = derive_vjp};
    perform(&r);
}

void dlc_jvp(int count, const dlc_value *x, const dlc_value *tangents, int results, const dlc_value *y,
             dlc_value *out) {
    request r = {.call = "dlc_jvp",
                 .results = results,
                 .y = y,
                 .count = count,
                 .x = x,
                 .vectors = count,
                 .vector = tangents,
                 .outputs = results,
                 .out = out,
                 .derive = derive_jvp};
    perform(&r);
}

void dlc_hvp(dlc_value loss, int count, const dlc_value *x, const dlc_value *direction, dlc_value *out) {
    request r = {.call = "dlc_hvp",
                 .results = 1,
                 .y = &loss,
                 .count = count,
                 .x = x,
                 .vectors = count,
                 .vector = direction,
                 .outputs = count,
                 .out = out,
                 .derive = derive_hvp};
    perform(&r);
}

static void mix(graph *g, const request *r, const graph_id *y, const graph_id *x, const graph_id *vector,
                graph_id *out) {
    (void)x, (void)vector;
    if (r->narrow != DLC_F16 && r->narrow != DLC_BF16)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s: narrow is %s, expected f16 or bf16", r->call,
                  (unsigned)r->narrow < DLC_DTYPE_COUNT ? lib_dtypes[r->narrow].name : "no element type");
    graph_mix_precision(g, r->narrow, r->results, y, out);
    for (int i = 0; i < r->results; i++)
        if (out[i] != y[i]) name_after(g, out[i], y[i], lib_dtypes[r->narrow].name);
}

void dlc_mixed_precision(int count, const dlc_value *y, dlc_dtype narrow, dlc_value *out) {
    request r = {.call = "dlc_mixed_precision",
                 .results = count,
                 .y = y,
                 .outputs = count,
                 .out = out,
                 .any_type = true,
                 .narrow = narrow,
                 .derive = mix};
    perform(&r);
}
