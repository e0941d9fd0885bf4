/* The benchmark: reads cases, lets libdlc, its peers and the machine's own peak run each in turns, prints a table and writes JSON
 * lines. See README.md for how to read the result. */
#include "bench/cases.h"
#include "bench/figures.h"
#include "bench/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    const char *filter, *json_directory;
    bool list, figures;
    int thread_counts[BENCH_MAX_THREADS], thread_count_count;
    bench_settings settings;
    bench_shape *shapes;
    int shape_count;
} options;

typedef struct session {
    const options *options;
    const bench_peer *peers[BENCH_MAX_PEERS];
    int peer_count, threads;
    dlc_context *context;
    bench_roofs roofs;
    FILE *json;
    bench_outcome *outcomes;
    int outcome_count, failures;
} session;

/* ---- libdlc as a contestant -------------------------------------------------------------------------------------------- */

typedef struct stage {
    bench_builder builder;
    dlc_program *program;
    DLTensor tensors[BENCH_MAX_OPERANDS + BENCH_MAX_RESULTS];
    const DLTensor *inputs[BENCH_MAX_OPERANDS];
    dlc_output_slot outputs[BENCH_MAX_RESULTS];
    int input_count;
    double first_seconds; /* dlc_compile and the first run */
} stage;

/* One program, or several where the first result of each is the first operand of the next. */
typedef struct programs {
    stage stages[BENCH_MAX_STAGES];
    int count;
    dlc_status status;
} programs;

static DLTensor tensor_of(bench_operand *o) {
    static const DLDataType types[] = {
#define X(code, text, bits, dlpack, class_, usable) [code] = {(uint8_t)dlpack, bits, 1},
        DLC_DTYPE_TABLE(X)
#undef X
    };
    return (DLTensor){
        .data = o->data, .device = {kDLCPU, 0}, .ndim = o->rank, .dtype = types[o->dtype], .shape = o->dims};
}

static dlc_status prepare_stage(dlc_context *context, stage *s, bench_build_function *build, const bench_shape *shape) {
    dlc_graph *graph = NULL;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status) return status;
    bench_case_build(&s->builder, build, shape, graph);
    double start = bench_now();
    status = dlc_compile(context, graph, NULL, &s->program);
    s->first_seconds = bench_now() - start;
    dlc_graph_destroy(graph);
    bench_problem *p = &s->builder.problem;
    for (int i = 0; i < p->operand_count; i++) {
        s->tensors[i] = tensor_of(&p->operands[i]);
        if (!p->operands[i].constant) s->inputs[s->input_count++] = &s->tensors[i];
    }
    for (int i = 0; i < p->result_count; i++) {
        s->tensors[p->operand_count + i] = tensor_of(&p->results[i]);
        s->outputs[i].tensor = &s->tensors[p->operand_count + i];
    }
    return status;
}

static void run_programs(void *state) {
    programs *p = state;
    for (int i = 0; i < p->count; i++) {
        stage *s = &p->stages[i];
        dlc_status status =
            dlc_run(s->program, NULL, s->inputs, s->input_count, s->outputs, s->builder.problem.result_count);
        if (status) p->status = status;
    }
}

static void release_programs(programs *p) {
    for (int i = 0; i < p->count; i++) {
        dlc_program_destroy(p->stages[i].program);
        bench_case_release(&p->stages[i].builder);
    }
    free(p);
}

/* Builds, compiles and runs once. NULL with the reason when that fails. */
static programs *prepare_programs(dlc_context *context, bench_build_function *const *builds, int count,
                                  const bench_shape *shape, char *reason, size_t size) {
    programs *p = calloc(1, sizeof *p);
    if (!p) abort();
    for (; p->count < count && !p->status; p->count++)
        p->status = prepare_stage(context, &p->stages[p->count], builds[p->count], shape);
    for (int i = 1; i < p->count && !p->status; i++)
        p->stages[i].tensors[0].data = p->stages[i - 1].builder.problem.results[0].data;
    double start = bench_now();
    if (!p->status) run_programs(p);
    p->stages[0].first_seconds += bench_now() - start;
    if (!p->status) return p;
    snprintf(reason, size, "%s: %s", dlc_status_text(p->status), dlc_error_message(context));
    release_programs(p);
    return NULL;
}

/* ---- one case ---------------------------------------------------------------------------------------------------------------- */

static double element(const bench_operand *o, size_t index) {
    union {
        uint32_t bits;
        float value;
    } wide;
    switch (o->dtype) {
    case DLC_F32: return ((const float *)o->data)[index];
    case DLC_I64: return (double)((const int64_t *)o->data)[index];
    case DLC_I32: return ((const int32_t *)o->data)[index];
    case DLC_BF16: wide.bits = (uint32_t)((const uint16_t *)o->data)[index] << 16; return wide.value;
    default: return ((const uint8_t *)o->data)[index];
    }
}

/* Greatest difference over greatest magnitude. */
static double difference(const bench_operand *a, const bench_operand *b) {
    size_t count = 1;
    for (int i = 0; i < a->rank; i++) count *= (size_t)a->dims[i];
    double most = 0, scale = 0;
    for (size_t i = 0; i < count; i++) {
        double x = element(a, i), y = element(b, i), d = fabs(x - y);
        if (isnan(d) || d > most) most = isnan(d) ? INFINITY : d;
        if (fabs(y) > scale) scale = fabs(y);
    }
    return scale > 0 ? most / scale : most;
}

typedef struct peer_side {
    const bench_peer *peer;
    void *state;
    bench_problem problem; /* our operands, results of its own */
    char note[96];
} peer_side;

static peer_side prepare_peer(const bench_peer *peer, const bench_problem *ours, int threads) {
    peer_side side = {.peer = peer, .problem = *ours};
    for (int i = 0; i < ours->result_count; i++)
        bench_operand_create(&side.problem.results[i], ours->results[i].dtype, ours->results[i].rank,
                             ours->results[i].dims, 0, 0);
    peer->set_threads(threads);
    side.state = peer->prepare(&side.problem, side.note, sizeof side.note);
    return side;
}

static void release_peer(peer_side *side) {
    if (side->state) side->peer->release(side->state);
    for (int i = 0; i < side->problem.result_count; i++) free(side->problem.results[i].data);
}

static void write_json(FILE *json, const bench_outcome *o, const bench_contestant *c, const char *note) {
    double best = c->times.median;
    fprintf(
        json,
        "{\"case\":\"%s\",\"kind\":\"%s\",\"threads\":%d,\"contestant\":\"%s\",\"note\":\"%s\",\"seconds\":%.9g,\"low\":%.9g,"
        "\"high\":%.9g,\"samples\":%d,\"calls\":%lld,\"gflops\":%.4g,\"gbps\":%.4g,\"roof_share\":%.4g,\"first_seconds\":%.6g}\n",
        o->shape->text, o->shape->kind, o->threads, c->name, note, best, c->times.low, c->times.high, c->times.samples,
        (long long)c->times.calls, o->flops / best * 1e-9, o->bytes / best * 1e-9, o->roof / best,
        strcmp(c->name, "dlc") == 0 ? o->first : 0.0);
    fflush(json);
}

static int peer_width(const bench_peer *peer) {
    int length = (int)strlen(peer->name);
    return length > 6 ? length : 6;
}

static void print_header(const session *s) {
    printf("\n%-72s thr %10s %6s %8s %8s %6s %8s", "case", "dlc us", "spread", "GFLOP/s", "GB/s", "roof", "first ms");
    if (s->peer_count) printf(" %10s %6s", "best us", "ratio");
    for (int i = 0; i < s->peer_count; i++) printf(" %*s", peer_width(s->peers[i]), s->peers[i]->name);
    printf("\n");
}

/* `algorithm`: what a peer did that is not the definition's arithmetic. */
static void print_row(const session *s, const bench_outcome *o, const bench_times *ours, const char *algorithm) {
    printf("%-72.72s %3d %10.2f %5.1f%% %8.1f %8.1f %5.1f%% %8.2f", o->shape->text, o->threads, o->seconds * 1e6,
           (ours->high - ours->low) / ours->median * 100, o->flops / o->seconds * 1e-9, o->bytes / o->seconds * 1e-9,
           o->roof / o->seconds * 100, o->first * 1e3);
    double best = bench_best_peer(o, NULL);
    if (best > 0)
        printf(" %10.2f %5.2fx", best * 1e6, best / o->seconds);
    else if (s->peer_count)
        printf(" %10s %6s", "-", "-");
    for (int i = 0; i < s->peer_count; i++) {
        int width = peer_width(s->peers[i]);
        if (o->peers[i] > 0)
            printf(" %*.2fx", width - 1, o->peers[i] / o->seconds);
        else
            printf(" %*s", width, "-");
    }
    if (o->stages > 0) printf("  three programs %.2f us %.2fx", o->stages * 1e6, o->stages / o->seconds);
    printf("%s\n", algorithm);
    fflush(stdout);
}

static double data_bytes(const bench_problem *p) {
    double sum = 0;
    for (int i = 0; i < p->operand_count; i++) sum += (double)p->operands[i].bytes;
    for (int i = 0; i < p->result_count; i++) sum += (double)p->results[i].bytes;
    return p->bytes > 0 ? p->bytes : sum;
}

/* Results that differ from a peer's are worth no time. */
static void check_results(session *s, const bench_problem *ours, const peer_side *sides, int count) {
    for (int i = 0; i < count; i++) {
        for (int r = 0; sides[i].state && r < ours->result_count; r++) {
            double d = difference(&ours->results[r], &sides[i].problem.results[r]);
            double allowed = ours->results[r].dtype == DLC_BF16 ? 1e-2 : 1e-3;
            if (d <= allowed) continue;
            printf("    WRONG: result %d differs from %s's by %.3g of its greatest magnitude\n", r, sides[i].peer->name,
                   d);
            s->failures++;
        }
    }
}

static void contest(session *s, bench_outcome *o, programs *ours, programs *stages) {
    enum { MAX_CONTESTANTS = BENCH_MAX_PEERS + 3 };
    bench_contestant contestants[MAX_CONTESTANTS] = {{.name = "dlc", .run = run_programs, .state = ours},
                                                     {.name = "fma", .run = bench_fma_burst}};
    const char *notes[MAX_CONTESTANTS] = {"", ""};
    int count = 2, separate = 0, places[BENCH_MAX_PEERS] = {0};
    bench_problem *problem = &ours->stages[0].builder.problem;
    peer_side sides[BENCH_MAX_PEERS];
    for (int i = 0; i < s->peer_count; i++) {
        sides[i] = prepare_peer(s->peers[i], problem, s->threads);
        if (!sides[i].state) continue;
        places[i] = count;
        notes[count] = sides[i].note;
        contestants[count++] =
            (bench_contestant){.name = sides[i].peer->name, .run = sides[i].peer->run, .state = sides[i].state};
    }
    if (stages)
        separate = count, notes[count] = "",
        contestants[count++] = (bench_contestant){.name = "dlc separate", .run = run_programs, .state = stages};
    bench_contest(contestants, count, s->threads, &s->options->settings);
    o->seconds = contestants[0].times.median;
    o->fma = bench_fma_flops(s->threads) / contestants[1].times.median;
    o->flops = problem->flops, o->bytes = data_bytes(problem);
    o->roof = bench_roof_seconds(&s->roofs, o->fma, problem);
    for (int i = 0; i < s->peer_count; i++) o->peers[i] = places[i] ? contestants[places[i]].times.median : 0;
    o->stages = separate ? contestants[separate].times.median : 0;
    for (int i = 0; i < count; i++)
        if (i != 1) write_json(s->json, o, &contestants[i], notes[i]);
    const char *algorithm = "";
    for (int i = 2; i < count; i++)
        if (strstr(notes[i], "wino")) algorithm = "  (Winograd)";
    print_row(s, o, &contestants[0].times, algorithm);
    check_results(s, problem, sides, s->peer_count);
    for (int i = 0; i < s->peer_count; i++) release_peer(&sides[i]);
}

static void run_case(session *s, const bench_shape *shape) {
    const bench_case_kind *kind = bench_case_find(shape);
    if (!kind) {
        printf("%-72.72s %3d not covered: no operator for it yet\n", shape->text, s->threads);
        return;
    }
    char reason[512] = "";
    bench_outcome *o = &s->outcomes[s->outcome_count];
    *o = (bench_outcome){.shape = shape, .threads = s->threads};
    programs *ours = prepare_programs(s->context, &kind->build, 1, shape, reason, sizeof reason), *stages = NULL;
    if (!ours) {
        printf("%-72.72s %3d FAILED: %s\n", shape->text, s->threads, reason);
        s->failures++;
        return;
    }
    o->first = ours->stages[0].first_seconds;
    int count = 0;
    while (count < BENCH_MAX_STAGES && kind->stages[count]) count++;
    bool plain = !bench_flag(shape, "causal") && !bench_flag(shape, "masked") && !bench_flag(shape, "kv_heads");
    if (count && plain) stages = prepare_programs(s->context, kind->stages, count, shape, reason, sizeof reason);
    if (count && plain && !stages) printf("    separate programs FAILED: %s\n", reason);
    contest(s, o, ours, stages);
    s->outcome_count++;
    if (ours->status) {
        printf("    FAILED while timed: %s\n", dlc_status_text(ours->status));
        s->failures++;
    }
    release_programs(ours);
    if (stages) release_programs(stages);
}

/* ---- the session ------------------------------------------------------------------------------------------------------------- */

static void print_machine(FILE *json) {
    char line[256], model[160] = "unknown";
    double load = 0;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            snprintf(model, sizeof model, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"), strchr(line, ':') + 2);
    if (file) fclose(file);
    if (getloadavg(&load, 1) != 1) load = 0;
    printf("%s, %ld processors, load %.2f%s; libdlc %s\n", model, sysconf(_SC_NPROCESSORS_ONLN), load,
           load > 0.5 ? " (busy: expect spread)" : "", dlc_version());
    fprintf(json, "{\"machine\":\"%s\",\"processors\":%ld,\"load\":%.2f,\"libdlc\":\"%s\"}\n", model,
            sysconf(_SC_NPROCESSORS_ONLN), load, dlc_version());
}

static bool selected(const options *o, const bench_shape *shape) {
    return !o->filter || strstr(shape->text, o->filter);
}

static void run_threads(session *s, int threads) {
    s->threads = threads;
    bench_roofs_measure(&s->roofs, threads);
    bench_roofs_print(&s->roofs, s->json);
    dlc_context_options context_options = DLC_CONTEXT_OPTIONS_INIT;
    context_options.threads = threads > 1 ? threads : 0;
    dlc_status status = dlc_context_create(&context_options, &s->context);
    if (status) {
        printf("no context: %s: %s\n", dlc_status_text(status), dlc_error_message(NULL));
        s->failures++;
        return;
    }
    print_header(s);
    for (int i = 0; i < s->options->shape_count; i++)
        if (selected(s->options, &s->options->shapes[i])) run_case(s, &s->options->shapes[i]);
    dlc_context_destroy(s->context);
    printf("\n");
}

static FILE *open_json(const options *o, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.json", o->json_directory ? o->json_directory : "/dev", name);
    FILE *file = fopen(o->json_directory ? path : "/dev/null", "w");
    if (file) return file;
    fprintf(stderr, "cannot write %s\n", path);
    exit(2);
}

static int run_all(const options *o) {
    session s = {.options = o};
    s.outcomes = calloc((size_t)(o->shape_count * o->thread_count_count + 1), sizeof *s.outcomes);
    if (!s.outcomes) abort();
    s.json = open_json(o, "cases");
    print_machine(s.json);
    s.peer_count = bench_peers_load(s.peers, s.json);
    for (int i = 0; i < o->thread_count_count && o->shape_count; i++) run_threads(&s, o->thread_counts[i]);
    bench_summary(s.outcomes, s.outcome_count, s.peers, s.peer_count, s.json);
    fclose(s.json);
    bool reached = true;
    if (o->figures) {
        FILE *json = open_json(o, "figures");
        reached = bench_figures(s.outcomes, s.outcome_count, json);
        fclose(json);
    }
    if (s.failures) printf("%d failed\n", s.failures);
    free(s.outcomes);
    return s.failures || !reached;
}

static void read_cases(options *o, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    char line[512];
    while (fgets(line, sizeof line, file)) {
        o->shapes = realloc(o->shapes, ((size_t)o->shape_count + 1) * sizeof *o->shapes);
        if (!o->shapes) abort();
        bench_shape *shape = &o->shapes[o->shape_count];
        if (!bench_shape_parse(shape, line)) continue;
        bool seen = false;
        for (int i = 0; i < o->shape_count && !seen; i++) seen = strcmp(o->shapes[i].text, shape->text) == 0;
        o->shape_count += !seen;
    }
    fclose(file);
}

static const char usage[] = "bench [options] [FILE of cases]...\n"
                            "  --list            print the cases and stop\n"
                            "  --filter TEXT     only cases whose line contains TEXT\n"
                            "  --threads 1,2     thread counts, one table each (default 1)\n"
                            "  --samples N       samples of each contestant (default 15)\n"
                            "  --json DIRECTORY  write cases.json and figures.json there\n"
                            "  --figures         measure the promised figures too, and fail when one is missed\n"
                            "PEERS=onednn,openblas,onnxruntime,libxsmm,onednn2,openblas_system names the peers, "
                            "PEERS=none leaves them out.\n";

static void read_threads(options *o, const char *text) {
    int64_t numbers[DLC_MAX_RANK];
    int count = bench_numbers(text, numbers);
    o->thread_count_count = 0;
    for (int i = 0; i < count && i < BENCH_MAX_THREADS; i++)
        if (numbers[i] > 0 && numbers[i] <= BENCH_MAX_THREADS)
            o->thread_counts[o->thread_count_count++] = (int)numbers[i];
}

int main(int argc, char **argv) {
    options o = {.thread_counts = {1}, .thread_count_count = 1, .settings = {15, 2e-3}};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(word, "--list") == 0)
            o.list = true;
        else if (strcmp(word, "--figures") == 0)
            o.figures = true;
        else if (strcmp(word, "--filter") == 0 && next)
            o.filter = next, i++;
        else if (strcmp(word, "--threads") == 0 && next)
            read_threads(&o, next), i++;
        else if (strcmp(word, "--samples") == 0 && next && atoi(next) > 0)
            o.settings.samples = atoi(next), i++;
        else if (strcmp(word, "--json") == 0 && next)
            o.json_directory = next, i++;
        else if (strcmp(word, "--child") == 0 && next)
            return bench_child(next);
        else if (word[0] != '-')
            read_cases(&o, word);
        else
            return fputs(usage, stderr), 2;
    }
    for (int i = 0; o.list && i < o.shape_count; i++)
        if (selected(&o, &o.shapes[i])) printf("%s\n", o.shapes[i].text);
    int status = o.list ? 0 : run_all(&o);
    free(o.shapes);
    return status;
}
