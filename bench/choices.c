/* Choices of the schedule rules: of each case, every choice is changed alone, to each of some of its other candidates, and the program is
 * measured in turn with the rules' own. Tells how often the candidate that the cost model predicts to be the cheapest is the fastest one, what
 * is lost where it is not, and where the rules themselves lose. */
#include "bench/choice_list.h"
#include "bench/ours.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512, EACH = 8, LINE = 512 };

/* A candidate; [0] is the rules' own schedule. Times are multiples of that one's. */
typedef struct candidate {
    /* the region's header in a schedule, "STAGE.CHOICE VALUE" */
    char region[160], choice[160];
    double predicted, measured;
} candidate;

typedef struct outcome {
    char label[100];
    candidate list[MOST];
    int count, refused;
    double seconds;
} outcome;

/* What an earlier run measured: its lines of single candidates. */
typedef struct earlier {
    char label[100], choice[160];
    double measured;
} earlier;

typedef struct options {
    const char *filter;
    /* of a run: longer ones are left out */
    double longest;
    bool all;
    /* NULL: measure */
    earlier *from;
    int from_count;
} options;

/* ---- candidates */

static void add_candidate(outcome *o, const bench_choice *choice, const char *value, double predicted) {
    if (o->count == MOST) return;
    candidate *new = &o->list[o->count++];
    *new = (candidate){.predicted = predicted};
    memcpy(new->region, choice->region, sizeof new->region);
    snprintf(new->choice, sizeof new->choice, "%s %s", choice->name, value);
}

/* Appends at most `most` candidates of a choice: the cheapest half, and an even sample of the others. */
static void add_candidates(outcome *o, const bench_choice *choice, int most) {
    bool taken[BENCH_CANDIDATES] = {false};
    const int count = choice->count;
    for (int n = 0; n < most && n < count; n++) {
        int best = -1;
        for (int i = 0; i < count; i++)
            if (!taken[i] && (best < 0 || choice->predicted[i] < choice->predicted[best])) best = i;
        if (n >= most / 2 && count > most) best = (n - most / 2) * (count - 1) / (most - most / 2 - 1);
        if (taken[best]) continue;
        taken[best] = true;
        add_candidate(o, choice, choice->value[best], choice->predicted[best]);
    }
}

static void list_candidates(outcome *o, const char *text, int most) {
    static bench_choice choices[BENCH_CHOICES];
    const int count = bench_choices_read(text, choices);
    o->count = 1;
    o->list[0] = (candidate){.choice = "by rule", .predicted = 1, .measured = 1};
    if (count) add_candidate(o, &choices[0], choices[0].taken, 1); /* the same kernel: how much is chance? */
    for (int i = 0; i < count; i++) add_candidates(o, &choices[i], most);
}

/* ---- one case */

/* Seconds of the rules' program and of the other one: the least of all samples. */
static void measure(bench_programs *rules, bench_programs *other, int samples, double seconds[2]) {
    bench_contestant both[2] = {{.run = bench_programs_run, .state = rules},
                                {.run = bench_programs_run, .state = other}};
    bench_contest(both, 2, 1, &(bench_settings){samples, 2e-4});
    for (int c = 0; c < 2; c++) {
        seconds[c] = both[c].samples[0];
        for (int s = 1; s < both[c].times.samples; s++)
            if (both[c].samples[s] < seconds[c]) seconds[c] = both[c].samples[s];
    }
    bench_contest_release(both);
}

/* The candidate's time over that of the rules' program; 0: it cannot be built. */
static double time_candidate(dlc_context *context, bench_build_function *const *build, const bench_shape *shape,
                             bench_programs *rules, const candidate *c, int samples, double *rules_seconds) {
    char schedule[LINE], reason[LINE];
    dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
    snprintf(schedule, sizeof schedule, "%s\nchoose %s\n", c->region, c->choice);
    compile.schedule = schedule;
    bench_programs *other = bench_programs_prepare(context, &compile, build, 1, shape, reason, sizeof reason);
    double seconds[2];
    if (!other) return 0;
    measure(rules, other, samples, seconds);
    bench_programs_release(other);
    *rules_seconds = seconds[0];
    return seconds[1] / seconds[0];
}

static int fastest(const outcome *o) {
    int best = 0;
    for (int i = 1; i < o->count; i++)
        if (o->list[i].measured < o->list[best].measured) best = i;
    return best;
}

static int cheapest(const outcome *o) {
    int best = 0;
    for (int i = 1; i < o->count; i++)
        if (o->list[i].predicted < o->list[best].predicted) best = i;
    return best;
}

/* Takes times from an earlier run; candidates that it has not are left out. */
static void take_times(const options *opt, outcome *o) {
    int kept = 1;
    for (int i = 1; i < o->count; i++)
        for (int e = 0; e < opt->from_count; e++)
            if (strcmp(opt->from[e].label, o->label) == 0 && strcmp(opt->from[e].choice, o->list[i].choice) == 0) {
                o->list[kept] = o->list[i];
                o->list[kept++].measured = opt->from[e].measured;
                break;
            }
    o->count = kept;
}

/* Reads the output of a run with --all: for each case a line that ends in its label, then one for each candidate. */
static bool read_earlier(options *opt, const char *path) {
    enum { ROOM = 1 << 16 };
    char line[LINE], label[100] = "";
    FILE *file = fopen(path, "r");
    earlier now;
    if (!file || !(opt->from = malloc(ROOM * sizeof *opt->from))) return false;
    while (fgets(line, sizeof line, file) && opt->from_count < ROOM) {
        const char *end = strstr(line, " us ");
        if (strncmp(line, "      ", 6) != 0) {
            snprintf(label, sizeof label, "%.*s", end ? (int)strcspn(end + 4, "\n") : 0, end ? end + 4 : "");
        } else if (sscanf(line, " %lf predicted %*f %159[^\n]", &now.measured, now.choice) == 2) {
            memcpy(now.label, label, sizeof label);
            opt->from[opt->from_count++] = now;
        }
    }
    return fclose(file) == 0;
}

/* False: the case was left out. */
static bool run_case(dlc_context *context, const options *opt, const bench_shape *shape, outcome *o) {
    enum { FIRST = 5, AGAIN = 15 };
    const bench_case_kind *kind = bench_case_find(shape);
    char reason[LINE];
    if (!kind) return false;
    bench_programs *rules = bench_programs_prepare(context, NULL, &kind->build, 1, shape, reason, sizeof reason);
    char *text = rules ? bench_programs_dump(rules, "choices") : NULL;
    if (!text) return bench_programs_release(rules), false;
    snprintf(o->label, sizeof o->label, "%s", shape->label);
    list_candidates(o, text, opt->from ? MOST : EACH);
    dlc_text_free(context, text);
    if (opt->from) return take_times(opt, o), bench_programs_release(rules), o->count > 1;
    const double start = bench_now();
    bench_programs_run(rules);
    o->seconds = bench_now() - start;
    int kept = 1;
    for (int i = 1; i < o->count && o->seconds <= opt->longest; i++) {
        o->list[i].measured = time_candidate(context, &kind->build, shape, rules, &o->list[i], FIRST, &o->seconds);
        if (o->list[i].measured > 0)
            o->list[kept++] = o->list[i];
        else
            o->refused++;
    }
    const bool done = o->seconds <= opt->longest;
    o->count = kept;
    for (int again = 0; again < 3; again++) { /* a win counts if it is one when measured afresh */
        candidate *best = &o->list[fastest(o)];
        if (best == o->list) break;
        best->measured = time_candidate(context, &kind->build, shape, rules, best, AGAIN, &o->seconds);
    }
    bench_programs_release(rules);
    return done && o->count > 1;
}

/* ---- all */

typedef struct summary {
    int cases, right, candidates, refused;
    double loss_cheapest, loss_rules, ranks;
} summary;

static void report(const outcome *o, bool all, summary *s) {
    double predicted[MOST], measured[MOST];
    const candidate *best = &o->list[fastest(o)], *first = &o->list[cheapest(o)];
    for (int i = 0; i < o->count; i++) predicted[i] = o->list[i].predicted, measured[i] = o->list[i].measured;
    const double rank = bench_rank_correlation(predicted, measured, o->count);
    printf(
        "%5.2f %-48s predicted %.2f | cheapest predicted %.2f takes %.2f: %-40s | %3d candidates, rank %5.2f | %9.2f us %s\n",
        best->measured, best->choice, best->predicted, first->predicted, first->measured, first->choice, o->count, rank,
        1e6 * o->seconds, o->label);
    for (int i = 0; i < o->count && all; i++)
        printf("      %5.2f predicted %.2f %s\n", o->list[i].measured, o->list[i].predicted, o->list[i].choice);
    fflush(stdout);
    s->cases++;
    s->right += first->measured <= 1.02 * best->measured;
    s->loss_cheapest += log(first->measured / best->measured);
    s->loss_rules += log(1 / best->measured);
    s->ranks += rank;
    s->candidates += o->count;
    s->refused += o->refused;
}

static bool read_options(options *o, int argc, char **argv, int *files) {
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--filter") == 0)
            o->filter = argv[i + 1];
        else if (strcmp(argv[i], "--longest") == 0)
            o->longest = 1e-3 * atof(argv[i + 1]);
        else if (strcmp(argv[i], "--all") == 0)
            o->all = atoi(argv[i + 1]) != 0;
        else if (strcmp(argv[i], "--from") != 0)
            return false;
        else if (!read_earlier(o, argv[i + 1]))
            return perror(argv[i + 1]), false;
    }
    *files = i;
    return i < argc;
}

int main(int argc, char **argv) {
    options opt = {.filter = "", .longest = 3e-3};
    summary s = {.cases = 0};
    int files;
    if (!read_options(&opt, argc, argv, &files))
        return fputs(
                   "usage: choices [--filter TEXT] [--longest 3 (ms)] [--all 1] [--from FILE (of an earlier run with --all)] FILE ...\n",
                   stderr),
               2;
    dlc_context_options wanted = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    if (dlc_context_create(&wanted, &context)) return 1;
    outcome *o = malloc(sizeof *o);
    if (!o) abort();
    for (int f = files; f < argc; f++) {
        FILE *file = fopen(argv[f], "r");
        char line[LINE];
        if (!file) return perror(argv[f]), 1;
        while (fgets(line, sizeof line, file)) {
            bench_shape shape;
            if (!bench_shape_parse(&shape, line) || !strstr(shape.text, opt.filter)) continue;
            *o = (outcome){.count = 0};
            if (run_case(context, &opt, &shape, o)) report(o, opt.all, &s);
        }
        fclose(file);
    }
    free(o);
    free(opt.from);
    dlc_context_destroy(context);
    const double n = s.cases > 0 ? s.cases : 1;
    printf(
        "\n%d cases, %d candidates measured, %d refused\n"
        "the cheapest predicted is the fastest, or within 2 %%: %.1f %% of the cases; it takes %.3f of the fastest's time, mean\n"
        "the rules' own takes %.3f of the fastest's time, mean; rank correlation within a case, mean: %.3f\n",
        s.cases, s.candidates, s.refused, 100 * s.right / n, exp(s.loss_cheapest / n), exp(s.loss_rules / n),
        s.ranks / n);
    return s.cases == 0;
}
