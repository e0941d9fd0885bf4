/* The command line of dlc-run. */
#include "dlc-run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void print_usage(void) {
    printf(
        "usage: dlc-run MODEL.onnx [option ...]\n"
        "  --list              inputs and outputs, as the file declares them\n"
        "  --check             operators that cannot be imported; status 1 if there are any\n"
        "  --input NAME=WHAT   FILE.npy, FILE.pb, random:SEED, zeros, range (0, 1, 2, ...), or a number for all elements;\n"
        "                      without it random:1: floats in -1..1, integers in 0..9\n"
        "  --shape NAME=1,3,8  sizes of an input; \"NAME=\" is one without axes\n"
        "  --dim n=8           a size that the file names; NAME_AXIS for an axis that has neither size nor name\n"
        "  --state IN=OUT      the runner keeps output OUT for the next run's input IN, which begins with zeros\n"
        "  --target NAME       cpu, interp, cuda or null; default: the first the build has\n"
        "  --threads N         run on N threads\n"
        "  --compile-threads N generate code on N threads\n"
        "  --cache FOLDER      keep compiled kernels there\n"
        "  --time SECONDS      run again and again: least time, median, 99th percentile\n"
        "  --profile           kernels with their times, of as long as --time or 10 runs\n"
        "  --save FOLDER       write outputs as NAME.npy\n"
        "  --expect FOLDER     compare outputs with NAME.npy, NAME.pb or output_0.pb, ...; status 2 if they differ\n"
        "  --compare TARGET    run there, too, and compare; status 2 if outputs differ\n"
        "  --verify            compare each value with the interpreter's; status 2, verify.txt and verify.npz if one differs\n"
        "  --tolerance R       of these, absolute and relative (default 1e-4)\n"
        "  --show              outputs that are images, in the terminal\n"
        "  --export F.onnx     write the model as libdlc imports it\n"
        "  --graph F.dot       the kernels and their values, for Graphviz; F.svg, F.png: drawn by it\n"
        "  --trace F.json      compilation and kernels by thread, for Chrome's trace viewer (chrome://tracing)\n"
        "  --sweep n=1:200     for each size: builds, first and second answer\n"
        "  --clients N         N threads that share one runner, for --time or a second: median, 99th percentile\n"
        "  --json              one JSON object on standard output\n"
        "status: 0 good, 1 error, 2 outputs differ, 3 wrong arguments\n");
}

const char *pair_value(const pairs *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->name[i], name) == 0) return list->value[i];
    return NULL;
}

/* ---- values: they may be cut in place ------------------------------------------------------------------------------- */

bool parse_size(const char *text, int64_t *size) {
    char *end;
    errno = 0;
    *size = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

/* Threads: as many as the messages say. */
static bool parse_count(const char *text, int least, int *count) {
    int64_t value;
    const bool good = parse_size(text, &value) && value >= least && value <= 4096;
    if (good) *count = (int)value;
    return good;
}

/* Each name at most once. */
static bool parse_pair(char *text, pairs *list) {
    char *equals = strchr(text, '=');
    if (!equals || equals == text || list->count == PORTS_MAX) return false;
    *equals = 0;
    if (pair_value(list, text)) return *equals = '=', false;
    list->name[list->count] = text;
    list->value[list->count++] = equals + 1;
    return true;
}

static bool parse_input(char *text, pairs *list) {
    return parse_pair(text, list) && *list->value[list->count - 1];
}

static bool parse_shape(char *text, pairs *list) {
    char part[32];
    int rank = 0;
    if (!parse_pair(text, list)) return false;
    for (const char *at = list->value[list->count - 1]; *at;) {
        const size_t length = strcspn(at, ",");
        int64_t size;
        if (length >= sizeof part || rank++ == DLC_MAX_RANK) return false;
        memcpy(part, at, length), part[length] = 0;
        if (!parse_size(part, &size)) return false;
        at += length;
        if (*at && !*++at) return false;
    }
    return true;
}

static bool parse_dim(char *text, pairs *list) {
    int64_t size;
    return parse_pair(text, list) && parse_size(list->value[list->count - 1], &size);
}

static bool parse_sweep(char *text, options *o) {
    char *equals = strrchr(text, '='), *colon = equals ? strchr(equals, ':') : NULL;
    if (!colon || equals == text || o->swept) return false;
    *colon = 0;
    const bool good =
        parse_size(equals + 1, &o->sweep_from) && parse_size(colon + 1, &o->sweep_to) && o->sweep_from <= o->sweep_to;
    *colon = ':';
    if (good) *equals = 0, o->swept = text;
    return good;
}

static bool parse_real(const char *text, double low, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= low && *value <= 1e9;
}

static bool parse_text(const char *text, const char **value) {
    const bool good = *text && !*value;
    *value = text;
    return good;
}

static bool is_picture(const char *path) {
    return has_ending(path, ".dot") || has_ending(path, ".svg") || has_ending(path, ".png");
}

/* ---- options --------------------------------------------------------------------------------------------------------- */

static const char unknown[] = "";

/* NULL: success; else the expected form, or `unknown`. */
static const char *parse_option(options *o, const char *name, char *value) {
    const char *expected = unknown;
    bool good = false;
    if (strcmp(name, "--input") == 0)
        expected = "NAME=FILE.npy, NAME=FILE.pb, NAME=random:SEED, zeros, range or a number, each name once",
        good = parse_input(value, &o->inputs);
    else if (strcmp(name, "--shape") == 0)
        expected = "NAME=sizes with commas between them, each name once", good = parse_shape(value, &o->shapes);
    else if (strcmp(name, "--dim") == 0)
        expected = "NAME=size, each name once", good = parse_dim(value, &o->dims);
    else if (strcmp(name, "--state") == 0)
        expected = "INPUT=OUTPUT, each input once", good = parse_input(value, &o->states);
    else if (strcmp(name, "--target") == 0)
        expected = "a target's name, once", good = parse_text(value, &o->target);
    else if (strcmp(name, "--threads") == 0)
        expected = "a number of threads, at most 4096", good = parse_count(value, 0, &o->threads);
    else if (strcmp(name, "--compile-threads") == 0)
        expected = "a number of threads, at most 4096", good = parse_count(value, 0, &o->compile_threads);
    else if (strcmp(name, "--cache") == 0)
        expected = "a folder, once", good = parse_text(value, &o->cache);
    else if (strcmp(name, "--time") == 0)
        expected = "a number of seconds above 0", good = parse_real(value, 0, &o->seconds) && o->seconds > 0;
    else if (strcmp(name, "--save") == 0)
        expected = "a folder, once", good = parse_text(value, &o->save);
    else if (strcmp(name, "--expect") == 0)
        expected = "a folder, once", good = parse_text(value, &o->expect);
    else if (strcmp(name, "--compare") == 0)
        expected = "a target's name, once", good = parse_text(value, &o->compare);
    else if (strcmp(name, "--export") == 0)
        expected = "a file, once", good = parse_text(value, &o->exported);
    else if (strcmp(name, "--trace") == 0)
        expected = "a file, once", good = parse_text(value, &o->traced);
    else if (strcmp(name, "--graph") == 0)
        expected = "a file that ends in .dot, .svg or .png, once",
        good = is_picture(value) && parse_text(value, &o->drawn);
    else if (strcmp(name, "--tolerance") == 0)
        expected = "a number, at least 0", good = o->tolerates = parse_real(value, 0, &o->tolerance);
    else if (strcmp(name, "--sweep") == 0)
        expected = "NAME=FIRST:LAST, once", good = parse_sweep(value, o);
    else if (strcmp(name, "--clients") == 0)
        expected = "a number of threads from 1 to 4096", good = parse_count(value, 1, &o->clients);
    return good ? NULL : expected;
}

static bool parse_switch(options *o, const char *name) {
    if (strcmp(name, "--list") == 0) return o->list = true;
    if (strcmp(name, "--check") == 0) return o->check = true;
    if (strcmp(name, "--profile") == 0) return o->profile = true;
    if (strcmp(name, "--json") == 0) return o->json = true;
    if (strcmp(name, "--verify") == 0) return o->verify = true;
    if (strcmp(name, "--show") == 0) return o->show = true;
    return false;
}

/* Rejects options that would have no effect. */
static bool is_of_use(const options *o) {
    const char *ran = o->seconds > 0 ? "--time" : o->profile ? "--profile" : o->save ? "--save" : NULL;
    if (!ran) ran = o->expect ? "--expect" : o->compare ? "--compare" : o->clients ? "--clients" : NULL;
    if (!ran)
        ran = o->verify ? "--verify" : o->show ? "--show" : o->exported ? "--export" : o->drawn ? "--graph" : NULL;
    const char *idle = o->swept ? ran : NULL, *because = "not with --sweep";
    if (o->traced && (o->list || o->check)) ran = "--trace";
    const char *given = o->inputs.count ? "--input" : o->shapes.count ? "--shape" : o->dims.count ? "--dim" : NULL;
    if (o->swept) given = "--sweep";
    if (!given) given = o->states.count ? "--state" : ran;
    if ((o->list || o->check) && given) idle = given, because = "not with --list or --check, which run nothing";
    if (o->swept && pair_value(&o->dims, o->swept)) idle = "--dim", because = "that size is swept";
    if (o->swept && o->states.count) idle = "--state", because = "not with --sweep";
    if (o->tolerates && !o->expect && !o->compare && !o->verify)
        idle = "--tolerance", because = "only with --expect, --compare or --verify";
    if (idle) fprintf(stderr, "dlc-run: %s: %s\n", idle, because);
    return !idle;
}

/* argv[*i], and its value if it has one. */
static bool parse_word(int argc, char **argv, int *i, options *o) {
    char none[1] = "", shown[256] = "nothing", *value = *i + 1 < argc ? argv[*i + 1] : none;
    const char *name = argv[*i];
    if (parse_switch(o, name)) return true;
    if (name[0] != '-') {
        if (o->model) return fprintf(stderr, "dlc-run: %s: the model is %s already\n", name, o->model), false;
        o->model = name;
        return true;
    }
    if (*value) snprintf(shown, sizeof shown, "%s", value);
    const char *expected = parse_option(o, name, value);
    if (expected == unknown)
        fprintf(stderr, "dlc-run: %s: there is no such option (see --help)\n", name);
    else if (expected)
        fprintf(stderr, "dlc-run: %s %s: expected %s\n", name, shown, expected);
    ++*i;
    return !expected;
}

bool parse_options(int argc, char **argv, options *o) {
    *o = (options){.tolerance = 1e-4};
    for (int i = 1; i < argc; i++)
        if (!parse_word(argc, argv, &i, o)) return false;
    if (!o->model) fprintf(stderr, "dlc-run: which model? (see --help)\n");
    return o->model && is_of_use(o);
}
