/* Cliffs: random graphs (random_graphs.h), each as one program against the sum of its operators as programs of their own, against the
 * roof, with kernels for a varying size against kernels for the exact one, and with the rules' schedules against the best of some that make
 * other choices at random. A case beyond a limit is measured again, then listed. */
#include "bench/bench.h"
#include "bench/choice_list.h"
#include "bench/random_graphs.h"

#include <dlc/dlc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE, VARYING, PARTS, RANDOM, SIDES, VALUES = BENCH_GRAPH_VALUES, SCHEDULE_TEXT = 4096 };

/* Seconds added to the roof for a call and for cold caches and branch predictors, which belong to no kernel. */
#define CALL_SECONDS 1e-6
#define TOLERANCE 1e-3 /* of the greatest magnitude: sums in another order */
#define LEAST_MAGNITUDE 0.1

/* ---- programs ------------------------------------------------------------------------------------------------------------------ */

typedef struct side {
    int count;
    dlc_program *programs[VALUES];
    dlc_call *calls[VALUES];
    /* memory of the values that this side computes; owned */
    void *data[VALUES];
    dlc_status status;
} side;

typedef struct measured {
    int number;
    /* least of all samples; 0: not measured */
    double seconds[SIDES], roof;
    /* the rules' time while the fastest random schedule was measured, and its choices; owned */
    double beside_random;
    char *schedule;
} measured;

static void *filled(const bench_graph_value *v, int number) {
    const size_t bytes = (size_t)bench_value_bytes(v);
    float *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!data) abort();
    for (size_t i = 0; i < bytes / sizeof *data; i++) data[i] = (float)((i * 7 + (size_t)number) % 23) * 0.08f - 0.8f;
    return data;
}

static DLTensor tensor_of(const bench_graph_value *v, void *data) {
    return (DLTensor){.data = data,
                      .device = {kDLCPU, 0},
                      .ndim = v->rank,
                      .dtype = {v->integer ? kDLInt : kDLFloat, v->integer ? 64 : 32, 1},
                      .shape = (int64_t *)(uintptr_t)v->dims};
}

static dlc_status add_program(dlc_context *context, const bench_random_graph *g, int part, bool varies,
                              const char *schedule, void *const *inputs, side *s) {
    char text[BENCH_GRAPH_TEXT];
    int in[VALUES], out[VALUES];
    const int in_count = bench_graph_inputs(g, part, in), out_count = bench_graph_outputs(g, part, out);
    DLTensor tensors[2 * VALUES], *outputs[VALUES];
    const DLTensor *operands[VALUES];
    for (int i = 0; i < in_count; i++) {
        tensors[i] = tensor_of(&g->values[in[i]], s->data[in[i]] ? s->data[in[i]] : inputs[in[i]]);
        operands[i] = &tensors[i];
    }
    for (int i = 0; i < out_count; i++) {
        if (!s->data[out[i]]) s->data[out[i]] = filled(&g->values[out[i]], 0);
        tensors[VALUES + i] = tensor_of(&g->values[out[i]], s->data[out[i]]);
        outputs[i] = &tensors[VALUES + i];
    }
    dlc_graph *graph;
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.schedule = schedule;
    bench_graph_text(g, part, varies, text);
    dlc_status status = dlc_graph_parse(context, text, strlen(text), &graph);
    if (status) return status;
    const int at = s->count++;
    status = dlc_compile(context, graph, &options, &s->programs[at]);
    dlc_graph_destroy(graph);
    return status ? status : dlc_call_create(s->programs[at], operands, in_count, outputs, out_count, &s->calls[at]);
}

static dlc_status make_side(dlc_context *context, const bench_random_graph *g, int which, void *const *inputs,
                            side *s) {
    if (which != PARTS) return add_program(context, g, BENCH_WHOLE, which == VARYING, NULL, inputs, s);
    dlc_status status = DLC_OK;
    for (int v = 0; v < g->count && !status; v++)
        if (g->values[v].step[0]) status = add_program(context, g, v, false, NULL, inputs, s);
    return status;
}

static void run_side(void *state) {
    side *s = state;
    for (int i = 0; i < s->count; i++) {
        dlc_status status = dlc_call_run(s->calls[i], NULL);
        if (status) s->status = status;
    }
}

static void release_side(side *s) {
    for (int i = 0; i < s->count; i++) dlc_call_destroy(s->calls[i]), dlc_program_destroy(s->programs[i]);
    for (int v = 0; v < VALUES; v++) free(s->data[v]);
}

/* ---- one graph ------------------------------------------------------------------------------------------------------------------ */

static int steps_of(const bench_random_graph *g) {
    int steps = 0;
    for (int v = 0; v < g->count; v++) steps += g->values[v].step[0] != 0;
    return steps;
}

static double roof_of(const bench_roofs *roofs, const bench_random_graph *g) {
    static bench_problem p;
    int in[VALUES], out[VALUES];
    double fma = 0;
    p = (bench_problem){.flops = g->flops};
    p.operand_count = bench_graph_inputs(g, BENCH_WHOLE, in), p.result_count = bench_graph_outputs(g, BENCH_WHOLE, out);
    for (int i = 0; i < p.operand_count; i++)
        p.operands[i] = (bench_operand){.dtype = DLC_F32, .bytes = (size_t)bench_value_bytes(&g->values[in[i]])};
    for (int i = 0; i < p.result_count; i++) p.results[i].bytes = (size_t)bench_value_bytes(&g->values[out[i]]);
    for (int i = 0; i < 3; i++) fma = roofs->fma[i] > fma ? roofs->fma[i] : fma;
    return bench_roof_seconds(roofs, fma, &p) + CALL_SECONDS;
}

/* Ratio of the time to the one it is compared with; below 1: not measured. */
static double over(const measured *m, int which) {
    const double whole = m->seconds[WHOLE];
    if (which == WHOLE) return whole / m->roof;
    if (m->seconds[which] == 0) return 0;
    if (which == RANDOM) return (m->beside_random + CALL_SECONDS / 4) / (m->seconds[RANDOM] + CALL_SECONDS / 4);
    return which == PARTS ? (whole + CALL_SECONDS / 4) / (m->seconds[PARTS] + CALL_SECONDS / 4)
                          : (m->seconds[VARYING] + CALL_SECONDS / 2) / (whole + CALL_SECONDS / 2);
}

static bool beyond(const measured *m, const double limits[SIDES]) {
    bool any = false;
    for (int i = 0; i < RANDOM; i++) any = any || over(m, i) > limits[i];
    return any;
}

static void measure(side sides[RANDOM], const bool taken[RANDOM], const double limits[SIDES], measured *m) {
    bench_contestant contestants[RANDOM];
    int of[RANDOM], count = 0;
    for (int i = 0; i < RANDOM; i++)
        if (taken[i]) of[count] = i, contestants[count++] = (bench_contestant){.run = run_side, .state = &sides[i]};
    for (int attempt = 0; attempt < 4 && (attempt == 0 || beyond(m, limits)); attempt++) {
        bench_contest(contestants, count, 1, &(bench_settings){attempt ? 21 : 7, attempt ? 1e-3 : 2e-4});
        for (int c = 0; c < count; c++)
            for (int s = 0; s < contestants[c].times.samples; s++)
                if (attempt + s == 0 || contestants[c].samples[s] < m->seconds[of[c]])
                    m->seconds[of[c]] = contestants[c].samples[s];
        bench_contest_release(contestants);
    }
}

/* The greatest difference between the outputs of two sides, divided by the greatest magnitude of any output: small outputs may be
 * differences of large values (a sum of deviations). Outputs that are positions may differ where values are equal but for rounding. */
static double difference(const bench_random_graph *g, const side *a, const side *b) {
    double worst = 0;
    for (int v = 0; v < g->count; v++) {
        const float *x = a->data[v], *y = b->data[v];
        double most = 0, scale = LEAST_MAGNITUDE;
        if (!x || !y || !g->values[v].output || g->values[v].integer) continue;
        for (size_t i = 0; i < (size_t)bench_value_bytes(&g->values[v]) / sizeof *x; i++) {
            const double d = isnan(x[i]) && isnan(y[i]) ? 0 : fabs((double)x[i] - (double)y[i]);
            if (!(d <= most) && x[i] != y[i]) most = isnan(d) ? INFINITY : d;
            if (fabs((double)y[i]) > scale) scale = fabs((double)y[i]);
        }
        if (most / scale > worst) worst = most / scale;
    }
    return worst;
}

static uint64_t plain_loops(const dlc_context *context) {
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &statistics);
    return statistics.interpreted_regions;
}

/* ---- conditioning --------------------------------------------------------------------------------------------------------------- */

/* How much the outputs of the whole graph change if the inputs do in their last bits, as `difference` says. Signs, positions and exponentials of
 * large sums may change entirely; then another order of sums proves nothing. */
static double sensitivity(dlc_context *context, const bench_random_graph *g, void *const *inputs, const side *whole) {
    void *moved[VALUES] = {NULL};
    side other = {.count = 0};
    double changed = INFINITY;
    for (int v = 0; v < g->count; v++) {
        if (!inputs[v]) continue;
        moved[v] = filled(&g->values[v], v);
        float *data = moved[v];
        for (size_t i = 0; i < (size_t)bench_value_bytes(&g->values[v]) / sizeof *data; i++)
            data[i] *= i % 3 ? 1 + 3e-7f : 1 - 3e-7f;
    }
    if (!add_program(context, g, BENCH_WHOLE, false, NULL, moved, &other)) {
        run_side(&other);
        changed = difference(g, whole, &other);
    }
    release_side(&other);
    for (int v = 0; v < VALUES; v++) free(moved[v]);
    return changed;
}

/* ---- random schedules ------------------------------------------------------------------------------------------------------------ */

typedef struct search {
    dlc_context *context;
    const bench_random_graph *g;
    void *const *inputs;
    /* the rules' program */
    side *rules;
    uint64_t seed;
    int schedules;
    /* greatest difference of right results */
    double tolerance;
} search;

/* Compiles the graph with a schedule's choices. False: nothing to release, the choices contradict each other. *wrong: the results differ
 * from those of the rules' schedule. */
static bool make_scheduled(const search *s, const char *schedule, side *other, bool *wrong) {
    *other = (side){.count = 0};
    dlc_status status = add_program(s->context, s->g, BENCH_WHOLE, false, schedule, s->inputs, other);
    if (!status) run_side(other), status = other->status;
    if (status) return release_side(other), false;
    *wrong = difference(s->g, s->rules, other) > s->tolerance;
    return true;
}

/* Least seconds of the rules' program and of the other one, in turns. */
static void measure_both(side *rules, side *other, const bench_settings *settings, double seconds[2]) {
    bench_contestant both[2] = {{.run = run_side, .state = rules}, {.run = run_side, .state = other}};
    bench_contest(both, 2, 1, settings);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < both[c].times.samples; i++)
            if (i == 0 || both[c].samples[i] < seconds[c]) seconds[c] = both[c].samples[i];
    bench_contest_release(both);
}

/* Measures one schedule; if it is the fastest so far when measured afresh, keeps it in `m`. False: its results are wrong. */
static bool try_schedule(const search *s, const char *schedule, measured *m) {
    side other;
    bool wrong;
    double seconds[2];
    if (!make_scheduled(s, schedule, &other, &wrong)) return true;
    if (wrong) printf("WRONG results with the schedule\n%s", schedule);
    const double best = m->seconds[RANDOM] > 0 ? over(m, RANDOM) : 0;
    measured now = {.number = m->number};
    for (int again = 0; again < 2 && !wrong; again++) {
        measure_both(s->rules, &other, again ? &(bench_settings){15, 5e-4} : &(bench_settings){3, 1e-4}, seconds);
        now.beside_random = seconds[0], now.seconds[RANDOM] = seconds[1];
        if (over(&now, RANDOM) <= best) break;
        if (!again) continue;
        m->beside_random = seconds[0], m->seconds[RANDOM] = seconds[1];
        free(m->schedule);
        m->schedule = strdup(schedule);
    }
    release_side(&other);
    return !wrong;
}

/* The program's dump "choices"; NULL: it failed. */
static char *dump_choices(const search *s) {
    const int64_t *shapes[VALUES];
    int in[VALUES], ranks[VALUES];
    const int count = bench_graph_inputs(s->g, BENCH_WHOLE, in);
    for (int i = 0; i < count; i++) shapes[i] = s->g->values[in[i]].dims, ranks[i] = s->g->values[in[i]].rank;
    char *text;
    return dlc_program_dump(s->rules->programs[0], "choices", shapes, ranks, count, &text) ? NULL : text;
}

/* False: a schedule gave wrong results, or the choices could not be listed; a message was printed. */
static bool search_schedules(const search *s, measured *m) {
    static bench_choice choices[BENCH_CHOICES];
    char schedule[SCHEDULE_TEXT];
    char *dump = dump_choices(s);
    bench_draw random = {s->seed * 1000003 + (uint64_t)m->number};
    if (!dump) {
        printf("FAILED: %s\n", dlc_error_message(s->context));
        return false;
    }
    const int count = bench_choices_read(dump, choices);
    bool right = true;
    dlc_text_free(s->context, dump);
    for (int i = 0; i < s->schedules && count && right; i++) {
        bench_schedule_draw(choices, count, 4, &random, schedule, sizeof schedule);
        right = try_schedule(s, schedule, m);
    }
    return right;
}

/* ---- one graph, measured ---------------------------------------------------------------------------------------------------------- */

/* How graphs are drawn and measured. */
typedef struct options {
    uint64_t seed;
    int count, first, schedules;
    const char *filter;
    double limits[SIDES];
    bool only_list;
} options;

/* Measures one graph. False: something failed, and a message was printed. */
static bool run_graph(const bench_roofs *roofs, const bench_random_graph *g, const options *o, measured *m) {
    const bool taken[RANDOM] = {true, g->n > 0, steps_of(g) > 1};
    side sides[RANDOM] = {{.count = 0}};
    void *inputs[VALUES] = {NULL};
    dlc_context_options wanted = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    dlc_status status = dlc_context_create(&wanted, &context);
    if (status) return false;
    for (int v = 0; v < g->count; v++)
        if (!g->values[v].step[0]) inputs[v] = filled(&g->values[v], v);
    for (int i = 0; i < RANDOM && !status; i++) {
        if (!taken[i]) continue;
        status = make_side(context, g, i, inputs, &sides[i]);
        if (!status) run_side(&sides[i]), status = sides[i].status;
    }
    bool good = !status && plain_loops(context) == 0;
    if (status) printf("FAILED: %s\n", dlc_error_message(context));
    if (plain_loops(context)) printf("FAILED: a schedule was refused: plain loops\n");
    search s = {context, g, inputs, &sides[WHOLE], o->seed, o->schedules, TOLERANCE};
    if (good && sensitivity(context, g, inputs, &sides[WHOLE]) > TOLERANCE / 10) s.tolerance = INFINITY;
    for (int i = VARYING; i < RANDOM && good; i++) {
        const double d = taken[i] ? difference(g, &sides[WHOLE], &sides[i]) : 0;
        good = d <= s.tolerance;
        if (!good) printf("WRONG by %.3g of the greatest magnitude: %s\n", d, i == PARTS ? "parts" : "varying");
    }
    m->roof = roof_of(roofs, g);
    if (good) measure(sides, taken, o->limits, m);
    good = good && (o->schedules == 0 || search_schedules(&s, m));
    for (int i = 0; i < RANDOM; i++) release_side(&sides[i]);
    for (int v = 0; v < VALUES; v++) free(inputs[v]);
    dlc_context_destroy(context);
    return good;
}

/* ---- all -------------------------------------------------------------------------------------------------------------------------- */

static int sorted_by;

static int by_ratio(const void *a, const void *b) {
    const double x = over(a, sorted_by), y = over(b, sorted_by);
    return (x < y) - (x > y);
}

static void print_graph(uint64_t seed, int number) {
    bench_random_graph g;
    char text[BENCH_GRAPH_TEXT];
    bench_random_graph_make(&g, seed, number);
    bench_graph_text(&g, BENCH_WHOLE, false, text);
    if (g.n) printf("n=%lld ", (long long)g.n);
    printf("%s\n", text);
    fflush(stdout);
}

/* The choices on one line. */
static void print_schedule(const char *text) {
    printf("       ");
    for (const char *at = text; *at; at++) putchar(*at == '\n' ? ';' : *at);
    printf("\n");
}

static void report(measured *all, int count, uint64_t seed, const double limits[SIDES]) {
    static const char *const against[SIDES] = {"the roof", "kernels for the exact size", "the sum of the parts",
                                               "the best of the random schedules"};
    for (int i = SIDES - 1; i >= 0; i--) {
        int of = 0, found = 0;
        double logs = 0;
        sorted_by = i;
        qsort(all, (size_t)count, sizeof *all, by_ratio);
        for (; of < count && over(&all[of], i) > 0; of++)
            logs += log(over(&all[of], i)), found += over(&all[of], i) > limits[i];
        printf("\n%s over %s: %d graphs, mean %.2f; %d beyond %.2f\n", i == VARYING ? "varying size" : "time",
               against[i], of, of ? exp(logs / of) : 0, found, limits[i]);
        for (int k = 0; k < found; k++) {
            const measured *m = &all[k];
            const double against_seconds[SIDES] = {m->roof, m->seconds[WHOLE], m->seconds[PARTS], m->seconds[RANDOM]};
            const double seconds = i == RANDOM ? m->beside_random : m->seconds[i == VARYING ? VARYING : WHOLE];
            printf("%6.2f %9.4f ms, against %9.4f ms: make cliffs SEED=%llu CASE=%d: ", over(m, i), 1e3 * seconds,
                   1e3 * against_seconds[i], (unsigned long long)seed, m->number);
            print_graph(seed, m->number);
            if (i == RANDOM) print_schedule(m->schedule);
        }
    }
}

static const char usage[] =
    "usage: cliffs [--seed 1] [--count 2000] [--first 0] [--filter TEXT] [--parts 1.1] [--roof 4] [--varying 2]\n"
    "              [--random 1.25] [--schedules 50] [--list]\n"
    "Measures random graphs and lists those beyond the limits; --list only prints all.\n";

static bool read_option(options *o, const char *name, const char *value) {
    if (strcmp(name, "--seed") == 0)
        o->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--count") == 0)
        o->count = atoi(value);
    else if (strcmp(name, "--first") == 0)
        o->first = atoi(value);
    else if (strcmp(name, "--filter") == 0)
        o->filter = value;
    else if (strcmp(name, "--parts") == 0)
        o->limits[PARTS] = atof(value);
    else if (strcmp(name, "--roof") == 0)
        o->limits[WHOLE] = atof(value);
    else if (strcmp(name, "--varying") == 0)
        o->limits[VARYING] = atof(value);
    else if (strcmp(name, "--random") == 0)
        o->limits[RANDOM] = atof(value);
    else if (strcmp(name, "--schedules") == 0)
        o->schedules = atoi(value);
    else
        return false;
    return true;
}

static bool read_options(options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0)
            o->only_list = true;
        else if (i + 1 == argc || !read_option(o, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    return o->count > 0 && o->first >= 0;
}

/* The number of failures. */
static int measure_all(const options *o) {
    bench_roofs roofs;
    int done = 0, failures = 0;
    measured *all = calloc((size_t)o->count, sizeof *all);
    if (!all) abort();
    bench_roofs_measure(&roofs, 1);
    for (int i = o->first; i < o->first + o->count; i++) {
        bench_random_graph g;
        char text[BENCH_GRAPH_TEXT];
        bench_random_graph_make(&g, o->seed, i);
        bench_graph_text(&g, BENCH_WHOLE, false, text);
        if (!strstr(text, o->filter)) continue;
        all[done].number = i;
        if (run_graph(&roofs, &g, o, &all[done])) {
            done++;
            continue;
        }
        printf("  make cliffs SEED=%llu CASE=%d: ", (unsigned long long)o->seed, i);
        print_graph(o->seed, i);
        failures++;
    }
    report(all, done, o->seed, o->limits);
    for (int i = 0; i < o->count; i++) free(all[i].schedule);
    free(all);
    return failures;
}

int main(int argc, char **argv) {
    options o = {.seed = 1,
                 .count = 2000,
                 .schedules = 50,
                 .filter = "",
                 .limits = {[WHOLE] = 4, [VARYING] = 2, [PARTS] = 1.1, [RANDOM] = 1.25}};
    if (!read_options(&o, argc, argv)) return fputs(usage, stderr), 2;
    for (int i = o.first; o.only_list && i < o.first + o.count; i++) print_graph(o.seed, i);
    return o.only_list ? 0 : measure_all(&o) != 0;
}
