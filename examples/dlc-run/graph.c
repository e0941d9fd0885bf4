/* The model as one graph: exported, drawn, and compared value by value with the interpreter. */
#include "dlc-run.h"

#include <dlc/extend.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- import --------------------------------------------------------------------------------------------------------------- */

typedef struct imported {
    dlc_graph *graph;
    /* By input of the model: its elements are a constant of the graph. */
    bool constant[PORTS_MAX];
    /* All sizes are those of the run. */
    bool sized;
} imported;

/* Elements of integers and of floats that may be constants. */
enum { INTEGERS = 64, FLOATS = 8 };

static bool is_small(const DLTensor *tensor) {
    const bool whole = tensor->dtype.code == kDLInt || tensor->dtype.code == kDLUInt || tensor->dtype.code == kDLBool;
    return element_count(tensor) <= (whole ? INTEGERS : FLOATS);
}

/* The sizes of inputs in this run, and what the library calls those without a name. */
typedef struct sizes {
    int count;
    dlc_dim *dims;
    char (*names)[80];
} sizes;

static bool list_sizes(const session *s, const inputs *in, sizes *to) {
    size_t axes = 1;
    for (int i = 0; i < in->count; i++) axes += in->given[i] ? (size_t)in->given[i]->ndim : 0;
    *to = (sizes){.dims = malloc(axes * sizeof *to->dims), .names = malloc(axes * sizeof *to->names)};
    if (!to->dims || !to->names) return fail(s, "no memory");
    for (int i = 0; i < in->count; i++) {
        const dlc_onnx_port port = port_of(s, DLC_ONNX_INPUT, i);
        for (int d = 0; in->given[i] && d < in->given[i]->ndim; d++) {
            char *own = to->names[to->count];
            snprintf(own, sizeof *to->names, "%.64s_%d", port.name, d);
            to->dims[to->count++] =
                (dlc_dim){in->given[i]->shape[d], d < port.rank && port.dims[d].name ? port.dims[d].name : own};
        }
    }
    return true;
}

static bool import_sized(const session *s, const inputs *in, dlc_onnx_graph_options *how, imported *made) {
    sizes all;
    bool good = list_sizes(s, in, &all);
    how->dims = all.dims, how->dim_count = all.count;
    if (good) good = dlc_onnx_graph(s->model, how, &made->graph) == DLC_OK || fail_by_context(s, "");
    free(all.dims), free(all.names);
    return made->sized = good;
}

/* Imports the model as one graph, with the sizes of --dim; if that is refused, with small inputs as constants; then with all sizes as
 * numbers, as a runner would do. */
static bool import_graph(const session *s, const inputs *in, imported *made) {
    dlc_onnx_graph_options how = DLC_ONNX_GRAPH_OPTIONS_INIT;
    const DLTensor *values[PORTS_MAX];
    const char *names[PORTS_MAX];
    dlc_dim dims[PORTS_MAX];
    *made = (imported){.graph = NULL};
    how.dims = dims, how.dim_count = given_dims(s, dims);
    if (dlc_onnx_graph(s->model, &how, &made->graph) == DLC_OK) return true;
    for (int i = 0; i < in->count; i++) {
        made->constant[i] = in->tensor[i] && is_small(&in->tensor[i]->dl_tensor);
        if (!made->constant[i]) continue;
        names[how.value_count] = port_of(s, DLC_ONNX_INPUT, i).name;
        values[how.value_count++] = &in->tensor[i]->dl_tensor;
    }
    how.value_names = names, how.values = values;
    return dlc_onnx_graph(s->model, &how, &made->graph) == DLC_OK || import_sized(s, in, &how, made);
}

/* ---- export --------------------------------------------------------------------------------------------------------------- */

bool export_model(const session *s, report *r, const inputs *in) {
    const char *path = s->o->exported;
    imported model;
    if (!import_graph(s, in, &model)) return false;
    const bool good = dlc_onnx_write(s->context, path, model.graph, NULL) == DLC_OK || fail_by_context(s, path);
    dlc_graph_destroy(model.graph);
    if (!good) return false;
    say(r, "exported: %s", path);
    json_string(r, "exported", path);
    json_open(r, "fixed", "[");
    for (int i = 0, count = 0; i < in->count; i++) {
        if (!model.constant[i]) continue;
        const char *name = port_of(s, DLC_ONNX_INPUT, i).name;
        say(r, "%s%s", count++ ? ", " : ", with these elements for ", name);
        json_string(r, NULL, name);
    }
    json_close(r, "]");
    say(r, "%s\n", model.sized ? ", for inputs of these sizes alone" : "");
    return true;
}

/* ---- picture -------------------------------------------------------------------------------------------------------------- */

/* The path's ending, without the dot; "": none. */
static const char *ending_of(const char *path) {
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    return dot && (!slash || dot > slash) ? dot + 1 : "";
}

static bool write_text(const session *s, const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    const bool written = file && fputs(text, file) >= 0;
    const bool good = file && fclose(file) == 0 && written;
    return good || fail(s, "%s: %s", path, strerror(errno));
}

/* Starts Graphviz, which reads the text from a pipe and writes the picture. */
static bool run_graphviz(const session *s, const char *path, const char *format, const char *text) {
    char type[16];
    int ends[2], status = -1;
    snprintf(type, sizeof type, "-T%.8s", format);
    if (pipe(ends) != 0) return fail(s, "--graph: %s", strerror(errno));
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], STDIN_FILENO);
        close(ends[0]), close(ends[1]);
        execlp("dot", "dot", type, "-o", path, (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN); /* Graphviz may end before it has read the whole text */
    FILE *to = fdopen(ends[1], "w");
    if (to) fputs(text, to), fclose(to);
    if (child < 0 || waitpid(child, &status, 0) < 0) return fail(s, "--graph: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return fail(s, "--graph %s: Graphviz's program dot is not installed; a .dot file needs none", path);
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) || fail(s, "--graph %s: dot failed", path);
}

bool draw_graph(const session *s, report *r, const inputs *in) {
    const char *path = s->o->drawn, *ending = ending_of(path);
    dlc_program *program;
    char *text = NULL;
    if (dlc_onnx_runner_program(s->runner, in->given, in->count, &program) != DLC_OK)
        return fail_by_context(s, "--graph");
    if (dump_stage(s, in, program, "dot", &text) != DLC_OK) return fail_by_context(s, "--graph");
    const bool good = strcmp(ending, "dot") == 0 ? write_text(s, path, text) : run_graphviz(s, path, ending, text);
    dlc_text_free(s->context, text);
    if (good) say(r, "graph: %s\n", path), json_string(r, "graph", path);
    return good;
}

/* ---- comparison value by value --------------------------------------------------------------------------------------------- */

/* Its nodes' results in topological order. */
static bool tap_all(const session *s, dlc_graph *graph, dlc_program *program) {
    const int nodes = dlc_graph_node_count(graph);
    int count = 0, room = 0;
    for (int i = 0; i < nodes; i++) room += dlc_node_result_count(dlc_graph_node(graph, i));
    dlc_value *values = malloc(((size_t)room + 1) * sizeof *values);
    if (!values) return fail(s, "--verify: no memory");
    for (int i = 0; i < nodes; i++) {
        const dlc_node node = dlc_graph_node(graph, i);
        for (int k = 0; k < dlc_node_result_count(node); k++) values[count++] = dlc_node_result(node, k);
    }
    const bool good = dlc_program_tap(program, count, values, NULL, NULL) == DLC_OK || fail_by_context(s, "--verify");
    free(values);
    return good;
}

static bool compile_tapped(const session *s, const inputs *in, imported *model, dlc_program **program) {
    *program = NULL;
    if (!import_graph(s, in, model)) return false;
    if (dlc_compile(s->context, model->graph, NULL, program) != DLC_OK) return fail_by_context(s, "--verify");
    return tap_all(s, model->graph, *program);
}

/* The graph of a difference beside its inputs. */
static bool keep_graph(const session *s, const dlc_graph *graph, const char *path) {
    char *text = NULL;
    if (dlc_graph_print(graph, &text) != DLC_OK) return fail_by_context(s, "--verify");
    const bool good = write_text(s, path, text);
    dlc_text_free(s->context, text);
    return good;
}

static int tell_difference(const session *s, report *r, const dlc_difference *d, const dlc_graph *graph) {
    json_open(r, "verify", "{");
    json_bool(r, "equal", !d->found);
    if (!d->found)
        say(r, "verify: all values agree with the interpreter\n");
    else {
        say(r,
            "verify: %s %s DIFFERS first: %lld of %lld elements, the first at %lld: %.9g, interp %.9g; greatest difference "
            "%.3g; graph and inputs: verify.txt, verify.npz\n",
            d->tapped ? "value" : "output", d->name, (long long)d->count, (long long)d->total, (long long)d->index,
            d->first, d->second, d->greatest);
        json_string(r, "value", d->name), json_whole(r, "differing", d->count), json_number(r, "greatest", d->greatest);
    }
    json_close(r, "}");
    if (!d->found) return GOOD;
    return keep_graph(s, graph, "verify.txt") ? DIFFERS : FAILED;
}

static int compare_values(const session *s, report *r, const inputs *in, const imported *model, dlc_program *first,
                          dlc_program *second) {
    dlc_difference difference = DLC_DIFFERENCE_INIT;
    dlc_compare_options how = DLC_COMPARE_OPTIONS_INIT;
    const DLTensor *given[PORTS_MAX];
    int count = 0;
    for (int i = 0; i < in->count; i++) {
        if (!in->tensor[i]) return fail(s, "--verify needs all inputs: say --shape of states"), FAILED;
        if (!model->constant[i]) given[count++] = &in->tensor[i]->dl_tensor;
    }
    how.absolute = how.relative = s->o->tolerance;
    how.save = "verify.npz";
    if (dlc_program_compare(first, second, &how, given, count, &difference) != DLC_OK)
        return fail_by_context(s, "--verify"), FAILED;
    return tell_difference(s, r, &difference, model->graph);
}

int verify_values(const session *s, report *r, const inputs *in) {
    session other;
    imported model = {.graph = NULL}, again = {.graph = NULL};
    dlc_program *first = NULL, *second = NULL;
    int result = FAILED;
    if (session_open(&other, s->o, "interp") && compile_tapped(s, in, &model, &first) &&
        compile_tapped(&other, in, &again, &second))
        result = compare_values(s, r, in, &model, first, second);
    dlc_program_destroy(first), dlc_program_destroy(second);
    dlc_graph_destroy(model.graph), dlc_graph_destroy(again.graph);
    session_close(&other);
    return result;
}
