/* dlc-opt: reads a graph's text or an ONNX model, runs passes, prints any stage, runs it and checks it. See usage below. */
#include "dlc-opt.h"

#include <dlc/onnx.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char all_stages[] = "graph,bound,regions,stages,schedule,steps,loops,vectors,llvm,asm,plan";

static void usage(void) {
    printf("usage: dlc-opt GRAPH.txt|MODEL.onnx [option ...]      (- reads standard input)\n"
           "  --dims n=7,m=3      values of the symbols that inputs have\n"
           "  --passes LIST       graph passes, one after the other; prints the graph after each:\n");
    list_passes();
    printf(
        "  --print LIST        stages: graph, bound, regions, stages, schedule, steps (the state after each line of it),\n"
        "                      choices (of the rules, with the predicted cycles by level of memory, and times and bounds of\n"
        "                      the other candidates), loops, vectors, llvm, asm (with spills), source, plan, kept,\n"
        "                      profile (of --run or --time), dot; without any other option graph; all: %s\n"
        "  --steps             the same as --print steps\n"
        "  --schedule FILE     regions' own schedules, or choices for the rules, in the form in which `--print schedule` and\n"
        "                      `--print choices` show them\n"
        "  --strict            operators as they are written, each result rounded to its type (no_excess_precision)\n"
        "  --recompute         keep fewer bytes for derivatives (dlc_compile_options)\n"
        "  --winograd          allow Winograd's algorithm for convolutions (dlc_compile_options)\n"
        "  --target NAME       cpu, interp, cuda or null; default: the first the build has\n"
        "  --threads N         run on N threads\n"
        "  --run               run once on random inputs; --values prints results\n"
        "  --input NAME=FILE   bytes of an input instead of random ones (compact, row-major)\n"
        "  --seed N            of random inputs (default 1)\n"
        "  --check             run, and compare with the interp target; --tolerance 1e-5 is relative; f16 and bf16 agree with\n"
        "                      --strict\n"
        "  --compare TARGET    run on TARGET, too, and tell the first value that differs by more than the tolerance, absolute and\n"
        "                      relative; values inside of kernels are computed by kernels of their own (dlc_program_tap)\n"
        "  --save FILE         with --compare: the inputs where values differ, as .npz or .safetensors\n"
        "  --time SECONDS      run again and again\n"
        "  --measure SECONDS   run with each candidate of each choice (`--print choices`) for so long, in turn with the rules' own\n",
        all_stages);
}

char *read_file(const char *path, size_t *size) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *bytes = NULL;
    size_t length = 0, capacity = 0, got = 1;
    while (file && got) {
        if (length + 1 >= capacity) {
            char *larger = realloc(bytes, capacity = 2 * capacity + 4096);
            if (!larger) break;
            bytes = larger;
        }
        got = fread(bytes + length, 1, capacity - length - 1, file);
        length += got;
    }
    bool good = bytes && !ferror(file) && !got;
    if (!good) fprintf(stderr, "dlc-opt: %s: %s\n", path, strerror(errno));
    if (file && file != stdin) fclose(file);
    if (!good) return free(bytes), NULL;
    bytes[length] = 0;
    *size = length;
    return bytes;
}

const char *part_value(const char *const *parts, int count, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < count; i++)
        if (strncmp(parts[i], name, length) == 0 && parts[i][length] == '=') return parts[i] + length + 1;
    return NULL;
}

/* ---- command line -------------------------------------------------------------------------------------------------- */

/* Is the text a number of at least `low`, and nothing else? */
static bool is_number(const char *text, double low, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= low;
}

/* Is the text an integer, in any base of C, and nothing else? */
static bool is_whole(const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

/* Splits "n=7,m=3" into its parts, each name at most once; the text is cut in place. */
static bool split(char *list, const char **parts, int *count) {
    const int before = *count;
    for (char *part = strtok(list, ","); part; part = strtok(NULL, ",")) {
        char *equals = strchr(part, '=');
        if (*count == OPTIONS_MAX || !equals) return false;
        *equals = 0;
        bool again = part_value(parts, *count, part) != NULL;
        *equals = '=';
        if (again) return false;
        parts[(*count)++] = part;
    }
    return *count > before;
}

/* Do the options need the graph only, without shapes? */
static bool only_graph(const options *o) {
    return !o->run && (!*o->stages || strcmp(o->stages, "graph") == 0);
}

static bool parse_dims(char *list, options *o) {
    bool good = split(list, o->dims, &o->dim_count);
    for (int i = 0; good && i < o->dim_count; i++) {
        uint64_t value;
        good = is_whole(strchr(o->dims[i], '=') + 1, &value) && value <= INT64_MAX;
    }
    return good;
}

static bool add_stages(options *o, const char *list) {
    size_t length = strlen(o->stages);
    if (strcmp(list, "all") == 0) list = all_stages;
    int more = snprintf(o->stages + length, sizeof o->stages - length, "%s%s", length ? "," : "", list);
    return *list && (size_t)more < sizeof o->stages - length;
}

static bool parse_threads(const char *value, options *o) {
    uint64_t number;
    bool good = is_whole(value, &number) && number < 1000000;
    o->threads = good ? (int)number : 0;
    return good;
}

static const char unknown[] = "";

/* Parses an option's value, "" if it has none; may change the text. NULL: success; else the expected form, or `unknown`. */
static const char *parse_option(options *o, const char *name, char *value) {
    const char *expected = unknown;
    bool good = false;
    if (strcmp(name, "--dims") == 0)
        expected = "name=number parts with commas between them, each name once", good = parse_dims(value, o);
    else if (strcmp(name, "--input") == 0)
        expected = "name=file parts with commas between them, each name once",
        good = split(value, o->inputs, &o->input_count);
    else if (strcmp(name, "--passes") == 0)
        expected = "passes with commas between them, which --help lists", good = *(o->passes = value) != 0;
    else if (strcmp(name, "--print") == 0)
        expected = "stages with commas between them, which --help lists", good = add_stages(o, value);
    else if (strcmp(name, "--schedule") == 0)
        expected = "a file", good = *(o->schedule_path = value) != 0;
    else if (strcmp(name, "--target") == 0)
        expected = "a target's name", good = *(o->target = value) != 0;
    else if (strcmp(name, "--compare") == 0)
        expected = "a target's name", good = o->run = *(o->compared = value) != 0;
    else if (strcmp(name, "--save") == 0)
        expected = "a file", good = *(o->save_path = value) != 0;
    else if (strcmp(name, "--threads") == 0)
        expected = "a number of threads", good = parse_threads(value, o);
    else if (strcmp(name, "--seed") == 0)
        expected = "a whole number", good = is_whole(value, &o->seed);
    else if (strcmp(name, "--tolerance") == 0)
        expected = "a number", good = o->tolerates = is_number(value, 0, &o->tolerance);
    else if (strcmp(name, "--time") == 0)
        expected = "a number of seconds above 0", good = o->run = is_number(value, 0, &o->seconds) && o->seconds > 0;
    else if (strcmp(name, "--measure") == 0)
        expected = "a number of seconds above 0", good = o->run = is_number(value, 0, &o->measured) && o->measured > 0;
    return good ? NULL : expected;
}

static bool parse_switch(options *o, const char *name) {
    if (strcmp(name, "--run") == 0) return o->run = true;
    if (strcmp(name, "--steps") == 0) return add_stages(o, "steps");
    if (strcmp(name, "--check") == 0) return o->run = o->check = true;
    if (strcmp(name, "--recompute") == 0) return o->recompute = true;
    if (strcmp(name, "--winograd") == 0) return o->winograd = true;
    if (strcmp(name, "--strict") == 0) return o->strict = true;
    if (strcmp(name, "--values") == 0) return o->run = o->values = true;
    return false;
}

/* Rejects options that would have no effect. */
static bool is_of_use(const options *o) {
    const char *idle = NULL, *with = "--run, --check, --values or --time";
    if (o->input_count && !o->run) idle = "--input";
    if (o->schedule_path && only_graph(o)) idle = "--schedule", with = "--run, --check, --time or --print of a stage";
    if (o->tolerates && !o->check && !o->compared) idle = "--tolerance", with = "--check or --compare";
    if (o->save_path && !o->compared) idle = "--save", with = "--compare";
    if (o->measured > 0 && o->schedule_path) idle = "--measure", with = "the rules' schedules, without --schedule";
    if (idle) fprintf(stderr, "dlc-opt: %s: only with %s\n", idle, with);
    return !idle;
}

static bool parse_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (parse_switch(o, name)) continue;
        if (name[0] != '-' || !name[1]) {
            if (o->graph_path) fprintf(stderr, "dlc-opt: %s: the graph is %s already\n", name, o->graph_path);
            if (o->graph_path) return false;
            o->graph_path = name;
            continue;
        }
        char none[1] = "", shown[64] = "nothing", *value = i + 1 < argc ? argv[i + 1] : none;
        if (*value) snprintf(shown, sizeof shown, "%s", value);
        const char *expected = parse_option(o, name, value);
        if (expected == unknown)
            fprintf(stderr, "dlc-opt: %s: there is no such option (see --help)\n", name);
        else if (expected)
            fprintf(stderr, "dlc-opt: %s %s: expected %s\n", name, shown, expected);
        if (expected) return false;
        i++;
    }
    if (!o->run && !o->passes && !*o->stages) add_stages(o, "graph");
    if (!o->graph_path) fprintf(stderr, "dlc-opt: which graph? (see --help)\n");
    return o->graph_path && is_of_use(o);
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

/* ---- commands */

static bool print_stage(dlc_context *context, dlc_program *program, const char *stage, const shapes *s) {
    char *text = NULL;
    bool unbound = strcmp(stage, "graph") == 0;
    dlc_status status = dlc_program_dump(program, stage, unbound ? NULL : s->pointer, unbound ? NULL : s->rank,
                                         unbound ? 0 : s->count, &text);
    if (status == DLC_OK)
        printf("---- %s\n%s\n", stage, text);
    else
        fprintf(stderr, "dlc-opt: %s: %s\n", stage, dlc_error_message(context));
    if (text) dlc_text_free(context, text);
    return status == DLC_OK;
}

static bool print_stages(dlc_context *context, dlc_program *program, const options *o, const shapes *s) {
    bool good = true;
    for (const char *at = o->stages; *at; at += strspn(at, ",")) {
        char stage[32];
        size_t length = strcspn(at, ",");
        snprintf(stage, sizeof stage, "%.*s", (int)(length < 31 ? length : 31), at);
        good = print_stage(context, program, stage, s) && good;
        at += length;
    }
    return good;
}

static void print_log(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

/* A section for a region that does not exist would be ignored, so it is an error. */
static bool sections_exist(dlc_context *context, dlc_program *program, const char *schedule, const shapes *s) {
    char *regions = NULL, wanted[256], header[256];
    bool good = dlc_program_dump(program, "schedule", s->pointer, s->rank, s->count, &regions) == DLC_OK;
    if (!good) fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
    for (const char *at = schedule; good && at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (sscanf(at, " region %199[^:\n]:", header) != 1) continue;
        const char *hash = strchr(header, '#');
        if (hash)
            snprintf(wanted, sizeof wanted, " %.30s:", hash);
        else
            snprintf(wanted, sizeof wanted, "region %.*s #", (int)strcspn(header, " \t"), header);
        if (strstr(regions, wanted)) continue;
        fprintf(stderr, "dlc-opt: no region is called %s; --print schedule shows names and hashes\n", header);
        good = false;
    }
    if (regions) dlc_text_free(context, regions);
    return good;
}

/* Stages show a schedule even if it does not fit its region: binding reports that. Other errors come from targets that only print. */
static bool schedules_fit(dlc_context *context, dlc_program *program, const shapes *s) {
    const dlc_status status = dlc_prepare(program, s->pointer, s->rank, s->count);
    const bool good = status != DLC_INVALID_ARGUMENT && status != DLC_PARSE_ERROR;
    if (!good) fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
    return good;
}

static bool work(const options *o, dlc_context *context, dlc_graph *graph, const char *text, const char *schedule) {
    dlc_program *program = NULL;
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    shapes s = {0};
    set_compile_options(o, &compile);
    compile.schedule = schedule;
    if (o->passes && !print_passes(text, o)) return false;
    if (!o->run && !*o->stages) return true;
    if (!only_graph(o) && !input_shapes(text, o, &s)) return false;
    if (dlc_compile(context, graph, &compile, &program) != DLC_OK) {
        fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
        return false;
    }
    if (strstr(o->stages, "profile")) dlc_program_profile(program, 1);
    bool good = !schedule || sections_exist(context, program, schedule, &s);
    good = good && (!o->run || run_program(o, context, graph, program, text, &s));
    good = print_stages(context, program, o, &s) && good;
    if (good && schedule && !o->run) good = schedules_fit(context, program, &s);
    dlc_program_destroy(program);
    return good;
}

/* A model begins with its version of the format, a field that no text begins with. */
static bool is_onnx(const char *bytes) {
    return bytes[0] == 0x08;
}

/* Imports an ONNX model as a graph. *text: the graph as text. The graph may borrow the bytes. */
static dlc_status import_model(dlc_context *context, const char *path, const char *bytes, size_t size, char **text,
                               dlc_graph **graph) {
    const bool from_input = strcmp(path, "-") == 0;
    dlc_onnx_model *model = NULL;
    dlc_status status =
        from_input ? dlc_onnx_parse(context, bytes, size, NULL, &model) : dlc_onnx_open(context, path, NULL, &model);
    if (status == DLC_OK) status = dlc_onnx_graph(model, NULL, graph);
    if (status == DLC_OK) status = dlc_graph_print(*graph, text);
    dlc_onnx_destroy(model);
    return status;
}

int main(int argc, char **argv) {
    options o = {.tolerance = 1e-5, .seed = 1};
    bool help = asks_for_help(argc, argv);
    if (help || argc < 2) usage();
    if (help) return 0;
    if (argc < 2 || !parse_options(argc, argv, &o)) return 2;
    size_t size = 0, schedule_size;
    char *bytes = read_file(o.graph_path, &size), *schedule = NULL, *printed = NULL;
    if (!bytes || (o.schedule_path && !(schedule = read_file(o.schedule_path, &schedule_size)))) return 2;
    if (schedule && strncmp(schedule, "---- ", 5) == 0)
        schedule[0] = '#'; /* the heading of --print becomes a comment */

    dlc_context_options wanted = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_graph *graph = NULL;
    wanted.target = o.target;
    wanted.threads = o.threads;
    wanted.log = print_log;
    bool opened = dlc_context_create(&wanted, &context) == DLC_OK;
    bool good = opened && (is_onnx(bytes) ? import_model(context, o.graph_path, bytes, size, &printed, &graph)
                                          : dlc_graph_parse(context, bytes, size, &graph)) == DLC_OK;
    if (!good)
        fprintf(stderr, "dlc-opt: %s%s%s\n", opened ? o.graph_path : "", opened ? ": " : "",
                dlc_error_message(context));
    good = good && work(&o, context, graph, printed ? printed : bytes, schedule);
    dlc_graph_destroy(graph);
    if (printed) dlc_text_free(context, printed);
    dlc_context_destroy(context);
    free(bytes);
    free(schedule);
    return !good;
}
