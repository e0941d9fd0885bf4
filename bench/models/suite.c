/* Measures models from their files, libdlc against ONNX Runtime and OpenVINO, by turns in one process. See usage. */
#include "bench/models/suite.h"
#include "bench/bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const suite_engines[SUITE_ENGINES] = {"dlc", "onnxruntime", "openvino"};

typedef struct options {
    const char *list, *filter, *json, *cache;
    /* folders of models; a file is taken from the first that has it */
    const char *folders[4];
    int folder_count;
    int threads[4], thread_count;
    int samples;
    /* about how long a contest takes */
    double seconds;
    bool contests, first_calls, others;
    /* libdlc may use Winograd's algorithm, and knows the sizes */
    bool winograd;
    bool wanted[SUITE_ENGINES];
} options;

/* ---- engines ------------------------------------------------------------------------------------------------------------ */

const engine *suite_engine(int number, char *message, size_t size) {
    char path[4400];
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    if (number < 0 || number >= SUITE_ENGINES || length < 0) return NULL;
    path[length] = 0;
    sprintf(strrchr(path, '/'), "/engine_%s.so", suite_engines[number]);
    if (access(path, R_OK) != 0) return snprintf(message, size, "not there when this was built"), NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = handle ? dlsym(handle, "engine_get") : NULL;
    if (!symbol) return snprintf(message, size, "%s", dlerror()), NULL;
    engine_get_function *get;
    memcpy(&get, &symbol, sizeof get);
    return get();
}

/* Loads the engines that are asked for. False if libdlc is not among those that load. */
static bool load_engines(const options *o, suite_report *r, const engine *engines[SUITE_ENGINES]) {
    for (int e = 0; e < SUITE_ENGINES; e++) {
        char text[512] = "not asked for";
        engines[e] = o->wanted[e] ? suite_engine(e, text, sizeof text) : NULL;
        if (engines[e]) engines[e]->describe(text, sizeof text);
        if (e == SUITE_DLC && o->winograd) strcat(text, "; Winograd's algorithm allowed, sizes known");
        suite_print_engine(r, e, text, engines[e] != NULL);
    }
    return engines[SUITE_DLC] != NULL;
}

/* ---- results -------------------------------------------------------------------------------------------------------------- */

static double element(const DLTensor *t, int64_t i) {
    const bool is_signed = t->dtype.code == kDLInt;
    if (t->dtype.code == kDLFloat) return t->dtype.bits == 64 ? ((double *)t->data)[i] : (double)((float *)t->data)[i];
    if (t->dtype.bits == 64) return is_signed ? (double)((int64_t *)t->data)[i] : (double)((uint64_t *)t->data)[i];
    if (t->dtype.bits == 32) return is_signed ? (double)((int32_t *)t->data)[i] : (double)((uint32_t *)t->data)[i];
    if (t->dtype.bits == 16) return is_signed ? ((int16_t *)t->data)[i] : ((uint16_t *)t->data)[i];
    return is_signed ? ((int8_t *)t->data)[i] : ((uint8_t *)t->data)[i];
}

static bool is_comparable(const DLTensor *a, const DLTensor *b) {
    bool same = a->ndim == b->ndim && a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits &&
                a->dtype.code != kDLBfloat && !(a->dtype.code == kDLFloat && a->dtype.bits < 32);
    for (int d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
    return same;
}

static int64_t count_of(const DLTensor *t) {
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++) count *= t->shape[d];
    return count;
}

static bool is_bytes(const DLTensor *t) {
    return t->dtype.code == kDLUInt && t->dtype.bits == 8;
}

/* Greatest difference over b's greatest number, of bytes, which are quantised, in steps; infinite where only one of them is no number. */
static double tensor_error(const DLTensor *a, const DLTensor *b) {
    double most = 0, apart = 0;
    if (!is_comparable(a, b)) return INFINITY;
    const int64_t count = count_of(a);
    for (int64_t i = 0; i < count; i++) {
        const double x = element(a, i), y = element(b, i);
        if (x == y || (isnan(x) && isnan(y))) {
            most = isfinite(y) ? fmax(most, fabs(y)) : most;
            continue;
        }
        if (!isfinite(x) || !isfinite(y)) return INFINITY;
        most = fmax(most, fabs(y)), apart = fmax(apart, fabs(x - y));
    }
    return is_bytes(a) ? apart : apart > 0 ? apart / most : 0;
}

static int64_t greatest(const DLTensor *t, int64_t from, int64_t count) {
    int64_t best = from;
    for (int64_t i = from; i < from + count; i++)
        if (element(t, i) > element(t, best)) best = i;
    return best;
}

/* Counts the rows of scores [n, classes] whose greatest is another class. */
static int count_other_classes(const DLTensor *a, const DLTensor *b) {
    int others = 0;
    if (!is_comparable(a, b) || a->ndim != 2 || a->shape[1] == 0) return 0;
    for (int64_t r = 0; r < a->shape[0]; r++)
        others += greatest(a, r * a->shape[1], a->shape[1]) != greatest(b, r * a->shape[1], a->shape[1]);
    return others;
}

static double error_of(const engine *ours, void *our_state, const engine *theirs, void *their_state, int *other_class) {
    const DLTensor *a[ENGINE_MOST_RESULTS], *b[ENGINE_MOST_RESULTS];
    const int count = ours->results(our_state, a);
    double most = 0;
    if (count < 0 || theirs->results(their_state, b) != count) return INFINITY;
    for (int i = 0; i < count; i++) most = fmax(most, tensor_error(a[i], b[i]));
    *other_class = count == 1 ? count_other_classes(a[0], b[0]) : 0;
    return most;
}

/* ---- contests -------------------------------------------------------------------------------------------------------------- */

enum { ALONE = SUITE_ENGINES, CONTESTANTS };

/* A contest under preparation: sessions by engine, then ours on one thread. */
typedef struct contest {
    const engine *engines[CONTESTANTS];
    void *states[CONTESTANTS];
    bench_contestant list[CONTESTANTS];
    /* engines of `list` */
    int who[CONTESTANTS];
    int count;
} contest;

static void open_engine(contest *c, int who, engine_task task, char *problem, size_t size) {
    if (who == ALONE) task.threads = 1;
    c->states[who] = c->engines[who] ? c->engines[who]->open(&task, problem, size) : NULL;
    if (!c->states[who]) return;
    c->who[c->count] = who;
    c->list[c->count++] = (bench_contestant){.run = c->engines[who]->run, .state = c->states[who]};
}

/* As many turns as fit into the time, but at least five. */
static int turns_for(const contest *c, const options *o) {
    double seconds = 0;
    for (int i = 0; i < c->count; i++) {
        const double begin = bench_now();
        c->list[i].run(c->list[i].state);
        seconds += bench_now() - begin;
    }
    const double turns = o->seconds / seconds;
    return turns > o->samples ? o->samples : turns < 5 ? (o->samples < 5 ? o->samples : 5) : (int)turns;
}

static void compare_times(const contest *c, suite_outcome *o) {
    const bench_contestant *ours = &c->list[0];
    double *ratios = calloc((size_t)ours->times.samples + 1, sizeof *ratios);
    if (!ratios) abort();
    o->seconds = ours->times.median, o->low = ours->times.low, o->high = ours->times.high;
    o->turns = ours->times.samples;
    for (int i = 1; i < c->count; i++) {
        for (int s = 0; s < ours->times.samples; s++) ratios[s] = c->list[i].samples[s] / ours->samples[s];
        const double ratio = bench_median(ratios, ours->times.samples);
        if (c->who[i] == ALONE)
            o->alone = ratio;
        else
            o->ratio[c->who[i]] = ratio;
    }
    free(ratios);
}

/* Compares our results with those of the first peer that runs. */
static void compare_results(const contest *c, suite_outcome *o) {
    const DLTensor *ignored[ENGINE_MOST_RESULTS];
    o->error = -1;
    if (c->engines[SUITE_DLC]->results(c->states[SUITE_DLC], ignored) < 0) {
        snprintf(o->problem[SUITE_DLC], sizeof o->problem[SUITE_DLC], "a later run failed");
        return;
    }
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES && o->error < 0; e++)
        if (c->states[e])
            o->error =
                error_of(c->engines[SUITE_DLC], c->states[SUITE_DLC], c->engines[e], c->states[e], &o->other_class);
}

/* Compares ONNX Runtime's results with those that it computes from the nodes as the file has them. */
static void compare_plain(const contest *c, engine_task task, suite_outcome *o) {
    const engine *theirs = c->engines[SUITE_ONNXRUNTIME];
    char ignored[256];
    int classes;
    if (!suite_is_quantised(o->it) || !c->states[SUITE_ONNXRUNTIME]) return;
    task.plain = true;
    void *plain = theirs->open(&task, ignored, sizeof ignored);
    if (!plain) return;
    o->own_error = error_of(theirs, c->states[SUITE_ONNXRUNTIME], theirs, plain, &classes);
    theirs->close(plain);
}

static void tell(const char *model, const char *what) {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K%s%s%s\r", model, *what ? ": " : "", what);
}

static void measure(const options *o, const engine *const engines[SUITE_ENGINES], engine_task task, suite_outcome *to) {
    contest c = {0};
    char ignored[256];
    memcpy(c.engines, engines, sizeof *engines * SUITE_ENGINES);
    c.engines[ALONE] = to->threads > 1 ? engines[SUITE_DLC] : NULL;
    for (int who = 0; who < CONTESTANTS; who++) {
        tell(to->it->model, who == ALONE ? "one thread" : suite_engines[who]);
        char *problem = who == ALONE ? ignored : to->problem[who];
        open_engine(&c, who, task, problem, sizeof to->problem[0]);
        if (!c.states[SUITE_DLC]) break; /* nothing to compare with */
    }
    if (c.states[SUITE_DLC]) {
        const bench_settings settings = {.samples = turns_for(&c, o), .sample_seconds = 2e-3};
        tell(to->it->model, "contest");
        bench_contest(c.list, c.count, to->threads, &settings);
        compare_times(&c, to);
        bench_contest_release(c.list);
        compare_results(&c, to);
        compare_plain(&c, task, to);
        engines[SUITE_DLC]->look(c.states[SUITE_DLC], &to->facts);
    } else if (!*to->problem[SUITE_DLC])
        snprintf(to->problem[SUITE_DLC], sizeof to->problem[SUITE_DLC], "unknown error");
    for (int who = 0; who < CONTESTANTS; who++)
        if (c.states[who]) c.engines[who]->close(c.states[who]);
    tell("", "");
}

/* ---- all models -------------------------------------------------------------------------------------------------------------- */

static bool find_file(const options *o, const model_case *it, char *path, size_t size) {
    for (int i = 0; i < o->folder_count; i++) {
        snprintf(path, size, "%s/%s.onnx", o->folders[i], it->model);
        if (access(path, R_OK) == 0) return true;
    }
    return false;
}

/* Is the case asked for, as a contest or (`other`) as another measurement? */
static bool is_wanted(const options *o, const model_case *it, bool other) {
    if (other != (*it->measure != 0)) return false;
    return !o->filter || strstr(it->model, o->filter) || strcmp(other ? it->measure : it->family, o->filter) == 0;
}

static void measure_case(const options *o, suite_report *r, const engine *const engines[SUITE_ENGINES],
                         const model_case *it, int threads) {
    char path[4096];
    engine_input inputs[ENGINE_MOST_INPUTS];
    suite_outcome outcome = {.it = it, .threads = threads, .error = -1, .own_error = -1};
    if (!find_file(o, it, path, sizeof path)) {
        suite_print_skipped(r, it, "there is no such file ('make model-files' fetches those that are not built)");
        return;
    }
    const int count = model_inputs_make(it->text, 0, inputs);
    if (count < 0)
        snprintf(outcome.problem[SUITE_DLC], sizeof outcome.problem[SUITE_DLC], "malformed inputs: %s", it->text);
    else {
        const engine_task task = {.path = path,
                                  .threads = threads,
                                  .input_count = count,
                                  .inputs = inputs,
                                  .exact = true,
                                  .winograd = o->winograd};
        measure(o, engines, task, &outcome);
        model_inputs_free(inputs, count);
    }
    suite_add(r, &outcome);
}

/* Measures first calls. The cache of kernels is filled by one process, and used by the next. */
static void measure_first(const options *o, suite_report *r, const engine *const engines[SUITE_ENGINES],
                          const model_case *it) {
    char path[4096], cache[4200];
    suite_firsts firsts = {.it = it};
    const int threads = o->threads[o->thread_count - 1];
    if (!find_file(o, it, path, sizeof path)) return;
    tell(it->model, "first calls");
    for (int e = 0; e < SUITE_ENGINES; e++)
        if (engines[e]) suite_first_measure(e, path, it, threads, NULL, &firsts.cold[e]);
    if (o->cache) {
        snprintf(cache, sizeof cache, "%s/%s", o->cache, it->model);
        for (int i = 0; i < 2; i++) suite_first_measure(SUITE_DLC, path, it, threads, cache, &firsts.warm);
    }
    tell("", "");
    suite_add_first(r, &firsts);
}

/* Takes another measurement, which needs no model or one whose file is there. */
static void measure_other(const options *o, suite_report *r, const engine *const engines[SUITE_ENGINES],
                          const model_case *it) {
    char path[4096] = "", peers[64] = "";
    suite_measured measured;
    if (strcmp(it->model, "-") != 0 && !find_file(o, it, path, sizeof path)) {
        suite_print_skipped(r, it, "there is no such file");
        suite_keep_measured(r, it);
        return;
    }
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++)
        if (engines[e]) strcat(strcat(peers, suite_engines[e]), " ");
    tell(it->model, it->measure);
    suite_measure(path, it, o->threads[o->thread_count - 1], peers, &measured);
    tell("", "");
    suite_add_measured(r, &measured);
}

static void measure_all(const options *o, suite_report *r, const engine *const engines[SUITE_ENGINES],
                        const model_cases *cases) {
    for (int t = 0; o->contests && t < o->thread_count; t++) {
        suite_print_head(o->threads[t]);
        for (int i = 0; i < cases->count; i++)
            if (is_wanted(o, &cases->list[i], false)) measure_case(o, r, engines, &cases->list[i], o->threads[t]);
    }
    if (o->first_calls) suite_print_first_head();
    for (int i = 0; o->first_calls && i < cases->count; i++)
        if (cases->list[i].first && is_wanted(o, &cases->list[i], false)) measure_first(o, r, engines, &cases->list[i]);
    for (int i = 0; o->others && i < cases->count; i++)
        if (is_wanted(o, &cases->list[i], true)) measure_other(o, r, engines, &cases->list[i]);
    suite_print_figures(r);
}

/* ---- the command line -------------------------------------------------------------------------------------------------------- */

static const char usage[] =
    "suite [option]... LIST     LIST: a file of cases (bench/models/cases.h)\n"
    "  --models FOLDER  where files are; may be repeated\n"
    "  --filter TEXT    models whose name contains it, or of that family; measurements of that name\n"
    "  --threads 1,2    default: 1\n"
    "  --peers A,B      default: onnxruntime,openvino; none\n"
    "  --samples N      turns of a contest, default 15; fewer, but at least 5, if they take longer than\n"
    "  --seconds N      default 10\n"
    "  --cache FOLDER   for first calls with kernels on disk\n"
    "  --only contests|first|others\n"
    "  --winograd       contests: libdlc may take Winograd's algorithm\n"
    "  --json FILE      JSON lines\n";

static bool parse_threads(options *o, const char *text) {
    for (o->thread_count = 0; o->thread_count < 4; o->thread_count++) {
        char *end;
        const long threads = strtol(text, &end, 10);
        if (end == text || threads < 1 || threads > BENCH_MAX_THREADS) return false;
        o->threads[o->thread_count] = (int)threads;
        if (!*end) return ++o->thread_count;
        text = end + 1;
    }
    return false;
}

static bool parse_option(options *o, const char *word, const char *value) {
    if (strcmp(word, "--models") == 0 && o->folder_count < 4)
        o->folders[o->folder_count++] = value;
    else if (strcmp(word, "--filter") == 0)
        o->filter = value;
    else if (strcmp(word, "--threads") == 0)
        return parse_threads(o, value);
    else if (strcmp(word, "--peers") == 0)
        for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++) o->wanted[e] = strstr(value, suite_engines[e]) != NULL;
    else if (strcmp(word, "--samples") == 0)
        return (o->samples = atoi(value)) > 0;
    else if (strcmp(word, "--seconds") == 0)
        return (o->seconds = atof(value)) > 0;
    else if (strcmp(word, "--cache") == 0)
        o->cache = value;
    else if (strcmp(word, "--only") == 0)
        o->first_calls = strcmp(value, "first") == 0, o->contests = strcmp(value, "contests") == 0,
        o->others = strcmp(value, "others") == 0;
    else if (strcmp(word, "--json") == 0)
        o->json = value;
    else
        return false;
    return true;
}

static bool parse_options(options *o, int argc, char **argv) {
    *o = (options){.samples = 15,
                   .seconds = 10,
                   .contests = true,
                   .first_calls = true,
                   .others = true,
                   .threads = {1},
                   .thread_count = 1};
    for (int e = 0; e < SUITE_ENGINES; e++) o->wanted[e] = true;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-')
            o->list = argv[i];
        else if (strcmp(argv[i], "--winograd") == 0)
            o->winograd = true;
        else if (i + 1 == argc || !parse_option(o, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    return o->list != NULL;
}

int main(int argc, char **argv) {
    options o;
    model_cases cases;
    suite_report report = {0};
    const engine *engines[SUITE_ENGINES];
    bench_prepare_environment();
    if (argc > 1 && strcmp(argv[1], "--child") == 0) return suite_child(argc - 2, argv + 2);
    if (!parse_options(&o, argc, argv)) return fputs(usage, stderr), 2;
    if (!model_cases_read(&cases, o.list)) return 2;
    report.json = o.json ? fopen(o.json, "w") : NULL;
    if (o.json && !report.json) return perror(o.json), 2;
    bool good = load_engines(&o, &report, engines);
    if (good) measure_all(&o, &report, engines, &cases);
    if (report.failed) printf("%d cases or first calls failed or are wrong\n", report.failed);
    if (report.json) good = fclose(report.json) == 0 && good;
    free(report.list), free(report.firsts), free(report.measured);
    model_cases_free(&cases);
    return !good || report.failed;
}
