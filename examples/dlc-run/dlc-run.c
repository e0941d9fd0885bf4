/* dlc-run: runs an ONNX model and tells what it gives and how long it takes. See print_usage (options.c). */
#include "dlc-run.h"

#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

/* ---- --list, --check ---------------------------------------------------------------------------------------------------- */

static void say_port(const report *r, const char *side, const dlc_onnx_port *port) {
    say(r, "%s %s: %s", side, port->name, port->dtype < 0 ? port->type : dlc_dtype_name((dlc_dtype)port->dtype));
    say(r, port->rank >= 0 ? "[" : port->kind == DLC_ONNX_TENSOR ? ", of any rank" : "");
    for (int d = 0; d < port->rank; d++) {
        const dlc_dim *dim = &port->dims[d];
        if (d) say(r, ", ");
        if (dim->name)
            say(r, "%s", dim->name);
        else if (dim->value >= 0)
            say(r, "%" PRId64, dim->value);
        else
            say(r, "?");
    }
    say(r, port->rank < 0 ? "\n" : "]\n");
}

/* Adds a port to the JSON object: sizes are numbers, names, or null. */
static void add_port(report *r, const dlc_onnx_port *port) {
    json_open(r, NULL, "{");
    json_string(r, "name", port->name);
    if (port->dtype >= 0) json_string(r, "type", dlc_dtype_name((dlc_dtype)port->dtype));
    if (port->rank >= 0) {
        json_open(r, "shape", "[");
        for (int d = 0; d < port->rank; d++) {
            const dlc_dim *dim = &port->dims[d];
            if (dim->name)
                json_string(r, NULL, dim->name);
            else
                json_size(r, NULL, dim->value);
        }
        json_close(r, "]");
    }
    json_close(r, "}");
}

static void list_ports(const session *s, report *r) {
    static const char *const side_text[] = {"input", "output"}, *const key[] = {"inputs", "outputs"};
    for (int side = DLC_ONNX_INPUT; side <= DLC_ONNX_OUTPUT; side++) {
        json_open(r, key[side], "[");
        for (int i = 0; i < dlc_onnx_port_count(s->model, (dlc_onnx_side)side); i++) {
            const dlc_onnx_port port = port_of(s, (dlc_onnx_side)side, i);
            say_port(r, side_text[side], &port);
            add_port(r, &port);
        }
        json_close(r, "]");
    }
}

/* Prints operators that are not supported. *all: there are none. */
static bool check_operators(const session *s, report *r, bool *all) {
    char *text = NULL;
    if (dlc_onnx_check(s->model, &text) != DLC_OK) return fail_by_context(s, "");
    *all = !*text;
    say(r, "%s", *all ? "all operators are imported\n" : text);
    json_string(r, "not_imported", text);
    dlc_text_free(s->context, text);
    return true;
}

static int inspect(const session *s, report *r) {
    bool all = true, good = true;
    if (s->o->list) list_ports(s, r);
    if (s->o->check) good = check_operators(s, r, &all);
    report_end(r, good);
    return good && all ? GOOD : FAILED;
}

/* ---- a run -------------------------------------------------------------------------------------------------------------- */

/* Prints the error of an import, with the option that gives a state's sizes: only the runner knows whether they are needed. */
static bool fail_by_import(const session *s, const inputs *in) {
    for (int i = 0; i < in->count; i++)
        if (!in->given[i])
            return fail(s, "%s (by --shape %s=SIZES)", dlc_error_message(s->context),
                        port_of(s, DLC_ONNX_INPUT, i).name);
    return fail_by_context(s, "");
}

/* Imports the model, then runs it once, which generates code; both are timed. If no one program serves the model, the run walks it node by
 * node. */
static bool first_run(const session *s, report *r, const inputs *in, outputs *out) {
    dlc_program *program;
    const double begin = now();
    const dlc_status status = dlc_onnx_runner_program(s->runner, in->given, in->count, &program);
    if (status != DLC_OK && status != DLC_UNSUPPORTED) return fail_by_import(s, in);
    const double imported = now();
    if (!run_once(s, in, out)) return false;
    const double end = now();
    say(r, "import: %.3f ms, first run: %.3f ms\n", 1e3 * (imported - begin), 1e3 * (end - imported));
    json_number(r, "import_ms", 1e3 * (imported - begin)), json_number(r, "first_run_ms", 1e3 * (end - imported));
    return true;
}

/* Prints the memory in use after the first run. getrusage gives the process' peak in KiB. */
static void show_memory(const session *s, report *r) {
    dlc_statistics held = DLC_STATISTICS_INIT;
    struct rusage usage = {0};
    dlc_context_statistics(s->context, &held);
    getrusage(RUSAGE_SELF, &usage);
    const double mib = 1.0 / (1 << 20), peak = (double)usage.ru_maxrss / 1024;
    const double arena = mib * (double)held.arena_bytes, constants = mib * (double)held.constant_bytes;
    say(r, "memory: intermediate values %.1f MiB, constants %.1f MiB, the process at its peak %.1f MiB\n", arena,
        constants, peak);
    json_number(r, "arena_mib", arena), json_number(r, "constants_mib", constants), json_number(r, "peak_mib", peak);
}

static bool show_guards(const session *s, report *r) {
    char *text = NULL;
    if (dlc_onnx_runner_describe(s->runner, &text) != DLC_OK) return fail_by_context(s, "");
    say(r, "imports:\n%s", text);
    json_string(r, "imports", text);
    dlc_text_free(s->context, text);
    return true;
}

/* Runs the same inputs on another target and compares the outputs. */
static int compare_with_target(const session *s, report *r, const inputs *in, const outputs *out) {
    session other;
    outputs there = {0};
    int result = FAILED;
    if (session_open(&other, s->o, s->o->compare) && run_once(&other, in, &there))
        result = compare_with_outputs(s, r, out, &there);
    free_outputs(&there);
    session_close(&other);
    return result;
}

/* Does what the options ask for, comparisons first: they are about the first run, before states change. */
static int work_with(const session *s, report *r, inputs *in, outputs *out) {
    const options *o = s->o;
    if (!first_run(s, r, in, out) || !show_guards(s, r)) return FAILED;
    show_memory(s, r);
    if (!show_outputs(s, r, out)) return FAILED;
    if (o->save && !save_outputs(s, out)) return FAILED;
    int result = o->expect ? compare_with_files(s, r, out) : GOOD;
    if (o->compare && result != FAILED) {
        const int there = compare_with_target(s, r, in, out);
        if (there != GOOD) result = there;
    }
    if (o->verify && result != FAILED) {
        const int values = verify_values(s, r, in);
        if (values != GOOD) result = values;
    }
    if (result == FAILED || (o->exported && !export_model(s, r, in)) || (o->drawn && !draw_graph(s, r, in)))
        return FAILED;
    release_states(s, in);
    if (o->seconds > 0 && !measure_time(s, r, in)) return FAILED;
    if (o->profile && !measure_profile(s, r, in)) return FAILED;
    if (o->clients && !measure_clients(s, r, in)) return FAILED;
    return result;
}

static int run_model(const session *s, report *r) {
    inputs in;
    outputs out = {0};
    int result = FAILED;
    if (s->o->swept)
        result = measure_sweep(s, r) ? GOOD : FAILED;
    else if (make_inputs(s, -1, &in)) {
        result = work_with(s, r, &in, &out);
        free_outputs(&out);
        free_inputs(&in);
    }
    if (result != FAILED && s->trace && !trace_write(s, s->trace, s->o->traced)) result = FAILED;
    report_end(r, result != FAILED);
    return result;
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    static options o;
    session s;
    report r;
    if (asks_for_help(argc, argv)) return print_usage(), GOOD;
    if (!parse_options(argc, argv, &o)) return USAGE;
    if (!report_begin(&r, o.json)) return FAILED;
    json_string(&r, "model", o.model);
    int result = FAILED;
    if (session_open(&s, &o, o.target))
        result = o.list || o.check ? inspect(&s, &r) : run_model(&s, &r);
    else
        report_end(&r, false);
    session_close(&s);
    if (fflush(stdout) != 0) return fprintf(stderr, "dlc-run: standard output cannot be written\n"), FAILED;
    return result;
}
