/* The benchmark: reads cases, has each measured, prints tables and writes JSON lines. See README.md for how to read the result. */
#include "bench/figures.h"
#include "bench/graphs.h"
#include "bench/last.h"
#include "bench/random.h"
#include "bench/random_lines.h"
#include "bench/summary.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct options {
    /* last: the file of the last run; NULL: bench/last.txt when it is there */
    const char *filter, *json_directory, *last;
    bool list, graphs, figures, sets, random;
    uint64_t seed;
    int thread_counts[BENCH_MAX_THREADS], thread_count_count;
    bench_settings settings;
    bench_shape *shapes;
    int shape_count;
} options;

typedef struct session {
    const options *options;
    bench_arena arena;
    bench_outcome *outcomes;
    int outcome_count;
    bench_shape random[BENCH_RANDOM_SHAPES];
    /* did all checks pass so far? */
    bool kept;
    char machine[160];
    /* the last run; without cases there is nothing to compare with */
    bench_last last;
} session;

/* ---- the session ------------------------------------------------------------------------------------------------------------- */

static void print_machine(const char *model, FILE *json) {
    double load = 0;
    if (getloadavg(&load, 1) != 1) load = 0;
    printf("%s, %ld processors, load %.2f%s; libdlc %s\n", model, sysconf(_SC_NPROCESSORS_ONLN), load,
           load > 0.5 ? " (busy: expect spread)" : "", dlc_version());
    fprintf(json, "{\"machine\":\"%s\",\"processors\":%ld,\"load\":%.2f,\"libdlc\":\"%s\"}\n", model,
            sysconf(_SC_NPROCESSORS_ONLN), load, dlc_version());
}

static bool selected(const options *o, const bench_shape *shape) {
    return !o->filter || strstr(shape->text, o->filter);
}

static dlc_context *open_context(session *s, int threads) {
    dlc_context *context = NULL;
    dlc_context_options wanted = DLC_CONTEXT_OPTIONS_INIT;
    wanted.default_float_modes = true; /* peers do not look at the modes */
    wanted.threads = threads > 1 ? threads : 0;
    dlc_status status = dlc_context_create(&wanted, &context);
    if (!status) return context;
    printf("no context: %s: %s\n", dlc_status_text(status), dlc_error_message(NULL));
    s->arena.failures++;
    return NULL;
}

/* Measures the random shapes, without peers: they are compared with the library's own fixed cases. */
static void run_random(session *s, const bench_outcome *fixed, int fixed_count) {
    bench_outcome *random = calloc(BENCH_RANDOM_SHAPES, sizeof *random);
    if (!random) abort();
    int count = 0;
    printf("random shapes, seed %llu\n", (unsigned long long)s->options->seed);
    for (int i = 0; i < BENCH_RANDOM_SHAPES; i++)
        count += bench_random_comparable(&s->random[i], fixed, fixed_count) &&
                 bench_case_run(&s->arena, &s->random[i], (bench_rivals){0}, &random[count]);
    /* Suspicious shapes are measured three times, not at once one after the other, since a disturbance lasts for seconds. */
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < count; i++) {
            bench_outcome other;
            if (bench_random_below(&random[i], fixed, fixed_count) &&
                bench_case_run(&s->arena, random[i].shape, (bench_rivals){0}, &other) &&
                other.seconds / other.roof < random[i].seconds / random[i].roof)
                random[i] = other;
        }
    s->kept &= bench_random_judge(&s->arena, s->options->seed, random, count, fixed, fixed_count);
    for (int i = 0; i < count; i++) bench_outcome_release(&random[i]);
    free(random);
}

/* Processor time of this process, in seconds. */
static double processor_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Prints the process' share of the processors: competing processes are what spoils a run, and the load alone does not show them, since a
 * process of another session may get half of a processor whatever its priority (autogroups). */
static void tell_share(double wall, double used, FILE *json) {
    double share = 100 * used / wall;
    printf("this process had %.0f%% of a processor%s\n", share < 100 ? share : 100,
           share < 90 ? ": others ran on it, times are not to be relied on" : "");
    fprintf(json, "{\"processor_share\":%.4g}\n", share);
}

/* Reports regressions since the last run, which fail no run. A case that seems slower is measured twice more, since a disturbance will not
 * occur three times. */
static void compare_with_last(session *s, bench_outcome *outcomes, int count) {
    bench_arena *arena = &s->arena;
    char why[400];
    if (s->last.count == 0 || count == 0) return;
    if (!bench_last_comparable(&s->last, s->machine, &arena->roofs, why, sizeof why)) {
        printf("not compared with the run of %s: %s\n", s->last.date, why);
        return;
    }
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < count; i++) {
            bench_outcome other;
            if (!bench_last_fallen(&s->last, &outcomes[i]) ||
                !bench_case_run(arena, outcomes[i].shape, (bench_rivals){0}, &other))
                continue;
            if (other.seconds < outcomes[i].seconds)
                outcomes[i].seconds = other.seconds, outcomes[i].roof = other.roof, outcomes[i].fma = other.fma;
            bench_outcome_release(&other);
        }
    bench_last_print(&s->last, outcomes, count, arena->json);
}

static void run_threads(session *s, int threads) {
    bench_arena *arena = &s->arena;
    double start = bench_now(), used = processor_seconds();
    arena->threads = threads;
    bench_roofs_measure(&arena->roofs, threads);
    bench_roofs_print(&arena->roofs, arena->json);
    arena->context = open_context(s, threads);
    arena->alone = open_context(s, 1);
    bench_outcome *first = s->outcomes + s->outcome_count;
    int begin = s->outcome_count;
    bench_print_header(arena);
    for (int i = 0; i < s->options->shape_count && arena->context && arena->alone; i++)
        if (selected(s->options, &s->options->shapes[i]))
            s->outcome_count +=
                bench_case_run(arena, &s->options->shapes[i], BENCH_EVERYBODY, &s->outcomes[s->outcome_count]);
    printf("\n");
    bench_predictions(first, s->outcome_count - begin, threads, arena->json);
    if (s->options->random) run_random(s, first, s->outcome_count - begin);
    if (s->options->sets) {
        bench_sets_repeat_worst(arena, first, s->outcome_count - begin);
        s->kept &= bench_sets_print(arena, first, s->outcome_count - begin);
        printf("\n");
    }
    compare_with_last(s, first, s->outcome_count - begin);
    if (threads == 1) tell_share(bench_now() - start, processor_seconds() - used, arena->json);
    dlc_context_destroy(arena->context);
    dlc_context_destroy(arena->alone);
}

static FILE *open_json(const options *o, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.json", o->json_directory ? o->json_directory : "/dev", name);
    FILE *file = fopen(o->json_directory ? path : "/dev/null", "w");
    if (file) return file;
    fprintf(stderr, "cannot write %s\n", path);
    exit(2);
}

static void open_last(session *s) {
    const char *path = s->options->last ? s->options->last : "bench/last.txt";
    FILE *file = fopen(path, "r");
    if (!file && !s->options->last) return;
    if (!file || !bench_last_read(&s->last, file)) {
        fprintf(stderr, "cannot read %s: expected what --keep writes\n", path);
        exit(2);
    }
    fclose(file);
}

/* Writes the run of this cases.json to last.txt, with which later runs are compared. */
static int keep_run(const char *path) {
    bench_last last = {0};
    struct stat facts;
    char date[16] = "unknown";
    FILE *file = fopen(path, "r");
    if (file && fstat(fileno(file), &facts) == 0) strftime(date, sizeof date, "%Y-%m-%d", gmtime(&facts.st_mtime));
    bool good = file && bench_last_from_json(&last, file, date);
    if (good)
        bench_last_write(&last, stdout);
    else
        fprintf(stderr, "cannot read %s: expected the cases.json of a run\n", path);
    if (file) fclose(file);
    bench_last_release(&last);
    return good ? 0 : 2;
}

static int run_all(const options *o) {
    session s = {.options = o, .arena.settings = &o->settings, .kept = true};
    bench_random_shapes(o->seed, s.random);
    bench_arena *arena = &s.arena;
    s.outcomes = calloc((size_t)(o->shape_count * o->thread_count_count + 1), sizeof *s.outcomes);
    if (!s.outcomes) abort();
    arena->json = open_json(o, "cases");
    bench_machine_name(s.machine, sizeof s.machine);
    print_machine(s.machine, arena->json);
    open_last(&s);
    arena->peer_count = bench_peers_load(arena->peers, arena->json);
    for (int i = 0; i < o->thread_count_count && o->shape_count; i++) run_threads(&s, o->thread_counts[i]);
    bench_summary(s.outcomes, s.outcome_count, arena->peers, arena->peer_count, arena->json);
    fclose(arena->json);
    bool reached = true;
    if (o->figures) {
        FILE *json = open_json(o, "figures");
        reached = bench_figures(s.outcomes, s.outcome_count, json);
        fclose(json);
    }
    if (arena->failures) printf("%d failed\n", arena->failures);
    int failures = arena->failures;
    for (int i = 0; i < s.outcome_count; i++) bench_outcome_release(&s.outcomes[i]);
    free(s.outcomes);
    bench_last_release(&s.last);
    return failures || !reached || !s.kept;
}

/* Appends the line's case, if it is one and new. */
static void add_case(options *o, const char *line) {
    o->shapes = realloc(o->shapes, ((size_t)o->shape_count + 1) * sizeof *o->shapes);
    if (!o->shapes) abort();
    bench_shape *shape = &o->shapes[o->shape_count];
    if (!bench_shape_parse(shape, line)) return;
    bool seen = false;
    for (int i = 0; i < o->shape_count && !seen; i++) seen = strcmp(o->shapes[i].text, shape->text) == 0;
    o->shape_count += !seen;
}

static void draw_cases(options *o, int count) {
    bench_draw s = {o->seed};
    char line[BENCH_RANDOM_LINE];
    printf("%d random cases, seed %llu\n", count, (unsigned long long)o->seed);
    for (int i = 0; i < count; i++) {
        bench_random_line(&s, line);
        add_case(o, line);
    }
}

static void read_cases(options *o, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    char line[512];
    while (fgets(line, sizeof line, file)) add_case(o, line);
    fclose(file);
}

static const char usage[] =
    "bench [options] [FILE of cases]...\n"
    "  --list            print the cases and stop\n"
    "  --graphs          print them as JSON lines, each with the text of its graph, and stop\n"
    "  --filter TEXT     only cases whose line contains TEXT\n"
    "  --threads 1,2     thread counts, one table each (default 1)\n"
    "  --draw N          N random cases, beside those of files; --seed N\n"
    "  --samples N       samples of each contestant (default 15)\n"
    "  --json DIRECTORY  write cases.json and figures.json there\n"
    "  --figures         measure the promised figures too, and fail when one is missed\n"
    "  --sets            tell how far the promised ratios are kept, and fail when one is missed\n"
    "  --last FILE       the run to compare with (default bench/last.txt, when it is there)\n"
    "  --keep FILE       print the run that wrote this cases.json as such a file, and stop\n"
    "PEERS=onednn,openblas,onnxruntime,jax,torch,torch_compile,libxsmm,fftw,onednn2,openblas_system,torch_system names the "
    "peers, PEERS=none leaves them out.\n";

static void read_threads(options *o, const char *text) {
    int64_t numbers[DLC_MAX_RANK];
    int count = bench_numbers(text, numbers);
    o->thread_count_count = 0;
    for (int i = 0; i < count && i < BENCH_MAX_THREADS; i++)
        if (numbers[i] > 0 && numbers[i] <= BENCH_MAX_THREADS)
            o->thread_counts[o->thread_count_count++] = (int)numbers[i];
}

int main(int argc, char **argv) {
    options o = {.thread_counts = {1}, .thread_count_count = 1, .settings = {15, 2e-3}, .seed = (uint64_t)time(NULL)};
    int draw = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(word, "--list") == 0)
            o.list = true;
        else if (strcmp(word, "--graphs") == 0)
            o.graphs = true;
        else if (strcmp(word, "--figures") == 0)
            o.figures = true;
        else if (strcmp(word, "--random") == 0)
            o.random = true;
        else if (strcmp(word, "--seed") == 0 && next)
            o.seed = strtoull(next, NULL, 10), i++;
        else if (strcmp(word, "--sets") == 0)
            o.sets = true;
        else if (strcmp(word, "--filter") == 0 && next)
            o.filter = next, i++;
        else if (strcmp(word, "--threads") == 0 && next)
            read_threads(&o, next), i++;
        else if (strcmp(word, "--samples") == 0 && next && atoi(next) > 0)
            o.settings.samples = atoi(next), i++;
        else if (strcmp(word, "--json") == 0 && next)
            o.json_directory = next, i++;
        else if (strcmp(word, "--last") == 0 && next)
            o.last = next, i++;
        else if (strcmp(word, "--draw") == 0 && next)
            draw = atoi(next), i++;
        else if (strcmp(word, "--keep") == 0 && next)
            return keep_run(next);
        else if (strcmp(word, "--child") == 0 && next)
            return bench_child(next);
        else if (word[0] != '-')
            read_cases(&o, word);
        else
            return fputs(usage, stderr), 2;
    }
    if (draw > 0) draw_cases(&o, draw);
    for (int i = 0; o.list && i < o.shape_count; i++)
        if (selected(&o, &o.shapes[i])) printf("%s\n", o.shapes[i].text);
    int status = o.list ? 0 : o.graphs ? bench_graphs_print(o.shapes, o.shape_count, stdout) != 0 : run_all(&o);
    free(o.shapes);
    return status;
}
