/* dlc-opt: reads a graph's text, runs passes, prints any stage, runs it and checks it. See usage below. */
#include "dlc-opt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char all_stages[] = "graph,bound,regions,stages,schedule,steps,loops,llvm,asm,plan";

static void usage(void) {
    printf("usage: dlc-opt GRAPH.txt [option ...]      (- reads standard input)\n"
           "  --dims n=7,m=3      values of the symbols that inputs have\n"
           "  --passes LIST       graph passes, one after the other; prints the graph after each:\n");
    list_passes();
    printf(
        "  --print LIST        stages: graph, bound, regions, stages, schedule, steps (the state after each line of it),\n"
        "                      loops, llvm, asm (with spills), source, plan, profile (of --run or --time), dot; without any\n"
        "                      other option graph; all: %s\n"
        "  --steps             the same as --print steps\n"
        "  --schedule FILE     regions' own schedules, in the form in which `--print schedule` shows them\n"
        "  --strict            round every operator's result to its type (no_excess_precision)\n"
        "  --winograd          allow Winograd's algorithm for convolutions (dlc_compile_options)\n"
        "  --target NAME       cpu, interp, cuda or null; default: the first the build has\n"
        "  --threads N         run on N threads\n"
        "  --run               run once on random inputs; --values prints results\n"
        "  --input NAME=FILE   bytes of an input instead of random ones (compact, row-major)\n"
        "  --seed N            of random inputs (default 1)\n"
        "  --check             run, and compare with the interp target; --tolerance 1e-5 is relative\n"
        "  --time SECONDS      run again and again\n",
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
    if (file && file != stdin) fclose(file);
    if (!bytes) {
        fprintf(stderr, "dlc-opt: %s: %s\n", path, strerror(errno));
        return NULL;
    }
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

/* A number and nothing behind it; of `low` at least. */
static bool is_number(const char *text, double low, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= low;
}

/* "n=7,m=3" into its parts; the text is cut in place. */
static bool split(char *list, const char **parts, int *count) {
    for (char *part = strtok(list, ","); part; part = strtok(NULL, ",")) {
        if (*count == OPTIONS_MAX || !strchr(part, '=')) return false;
        parts[(*count)++] = part;
    }
    return true;
}

static bool parse_option(options *o, const char *name, char *value) {
    double number = 0;
    if (strcmp(name, "--dims") == 0) return split(value, o->dims, &o->dim_count);
    if (strcmp(name, "--input") == 0) return split(value, o->inputs, &o->input_count);
    if (strcmp(name, "--passes") == 0) return (o->passes = value) != NULL;
    if (strcmp(name, "--print") == 0) return (o->stages = strcmp(value, "all") == 0 ? all_stages : value) != NULL;
    if (strcmp(name, "--schedule") == 0) return (o->schedule_path = value) != NULL;
    if (strcmp(name, "--target") == 0) return (o->target = value) != NULL;
    if (strcmp(name, "--threads") == 0)
        return is_number(value, 0, &number) && number < 1e6 && (o->threads = (int)number) == number;
    if (strcmp(name, "--seed") == 0) {
        char *end;
        o->seed = strtoull(value, &end, 0);
        return *value && !*end;
    }
    if (strcmp(name, "--tolerance") == 0) return is_number(value, 0, &o->tolerance);
    if (strcmp(name, "--time") == 0) return (o->run = is_number(value, 0, &o->seconds) && o->seconds > 0);
    return false;
}

static bool parse_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--run") == 0)
            o->run = true;
        else if (strcmp(argv[i], "--steps") == 0)
            o->stages = "steps";
        else if (strcmp(argv[i], "--check") == 0)
            o->run = o->check = true;
        else if (strcmp(argv[i], "--winograd") == 0)
            o->winograd = true;
        else if (strcmp(argv[i], "--strict") == 0)
            o->strict = true;
        else if (strcmp(argv[i], "--values") == 0)
            o->run = o->values = true;
        else if (strncmp(argv[i], "--", 2) != 0 && !o->graph_path)
            o->graph_path = argv[i];
        else if (i + 1 == argc || !parse_option(o, argv[i], argv[i + 1])) {
            fprintf(stderr, "dlc-opt: %s%s%s: not understood (see --help)\n", argv[i], i + 1 < argc ? " " : "",
                    i + 1 < argc ? argv[i + 1] : "");
            return false;
        } else {
            i++;
        }
    }
    if (!o->run && !o->passes && !o->stages) o->stages = "graph";
    if (!o->graph_path) fprintf(stderr, "dlc-opt: which graph? (see --help)\n");
    return o->graph_path != NULL;
}

/* ---- work ---------------------------------------------------------------------------------------------------------- */

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
    for (const char *at = o->stages; at && *at; at += strspn(at, ",")) {
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

/* A section that no region has would be a schedule that nobody follows. */
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

static bool work(const options *o, dlc_context *context, dlc_graph *graph, const char *text, const char *schedule) {
    dlc_program *program = NULL;
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    shapes s = {0};
    bool only_graph = !o->run && (!o->stages || strcmp(o->stages, "graph") == 0);
    compile.schedule = schedule;
    compile.winograd = o->winograd;
    compile.no_excess_precision = o->strict;
    if (o->passes && !print_passes(graph, o)) return false;
    if (!o->run && !o->stages) return true;
    if (!only_graph && !input_shapes(graph, o, &s)) return false;
    if (dlc_compile(context, graph, &compile, &program) != DLC_OK) {
        fprintf(stderr, "dlc-opt: %s\n", dlc_error_message(context));
        return false;
    }
    if (o->stages && strstr(o->stages, "profile")) dlc_program_profile(program, 1);
    bool good = !schedule || only_graph || sections_exist(context, program, schedule, &s);
    good = good && (!o->run || run_program(o, context, program, text, &s));
    good = print_stages(context, program, o, &s) && good;
    dlc_program_destroy(program);
    return good;
}

int main(int argc, char **argv) {
    options o = {.tolerance = 1e-5, .seed = 1};
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || !parse_options(argc, argv, &o)) {
        if (argc < 2 || strcmp(argv[1], "--help") == 0) usage();
        return argc >= 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    size_t size = 0, schedule_size;
    char *text = read_file(o.graph_path, &size), *schedule = NULL;
    if (!text || (o.schedule_path && !(schedule = read_file(o.schedule_path, &schedule_size)))) return 2;
    if (schedule && strncmp(schedule, "---- ", 5) == 0) schedule[0] = '#'; /* as --print heads it: a comment */

    dlc_context_options wanted = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_graph *graph = NULL;
    wanted.target = o.target;
    wanted.threads = o.threads;
    wanted.log = print_log;
    bool good =
        dlc_context_create(&wanted, &context) == DLC_OK && dlc_graph_parse(context, text, size, &graph) == DLC_OK;
    if (!good) fprintf(stderr, "dlc-opt: %s: %s\n", o.graph_path, dlc_error_message(context));
    good = good && work(&o, context, graph, text, schedule);
    dlc_graph_destroy(graph);
    dlc_context_destroy(context);
    free(text);
    free(schedule);
    return !good;
}
