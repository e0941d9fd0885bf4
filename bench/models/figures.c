/* The table at the end: what is promised of models, each figure a row: those over all contests (sets, extremes), first calls, other
 * measurements. */
#include "bench/models/suite.h"
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A line of the table. NaN in `required`: nothing is required; in `measured`: not measured. */
typedef struct row {
    const char *name;
    /* 0: the figure does not depend on the number of threads */
    int threads;
    /* how many numbers the line has, one or two; `less`: the required ones are upper limits, not lower ones */
    int count;
    bool less;
    double required[2], measured[2];
    /* the case that decides */
    char where[80];
} row;

/* ---- printing --------------------------------------------------------------------------------------------------------------- */

static void write_numbers(char *text, size_t size, const double *numbers, int count, const char *otherwise) {
    char part[2][24];
    for (int i = 0; i < count; i++) {
        const bool small = numbers[i] != 0 && fabs(numbers[i]) < 0.1;
        if (isnan(numbers[i]))
            snprintf(part[i], sizeof part[i], "%s", otherwise);
        else if (numbers[i] >= 1000)
            snprintf(part[i], sizeof part[i], "%.0f", numbers[i]);
        else
            snprintf(part[i], sizeof part[i], small ? "%.2g" : "%.2f", numbers[i]);
    }
    snprintf(text, size, "%s%s%s", part[0], count > 1 ? " / " : "", count > 1 ? part[1] : "");
}

static void json_numbers(FILE *to, const char *key, const double *numbers, int count) {
    fprintf(to, ",\"%s\":[", key);
    for (int i = 0; i < count; i++) {
        if (isfinite(numbers[i]))
            fprintf(to, "%s%.6g", i ? "," : "", numbers[i]);
        else
            fprintf(to, "%snull", i ? "," : "");
    }
    fputc(']', to);
}

static const char *verdict_of(const row *it) {
    bool any = false, reached = true;
    for (int i = 0; i < it->count; i++) {
        if (isnan(it->measured[i])) return "not measured";
        if (isnan(it->required[i])) continue;
        any = true;
        reached &= it->less ? it->measured[i] <= it->required[i] : it->measured[i] >= it->required[i];
    }
    return !any ? "" : reached ? "ok" : "MISSED";
}

static void print_row(const suite_report *r, const row *it) {
    char name[96], required[64], measured[64];
    const char *verdict = verdict_of(it);
    const bool there = strcmp(verdict, "not measured") != 0;
    snprintf(name, sizeof name, it->threads ? "%s, %d thread%s" : "%s", it->name, it->threads,
             it->threads > 1 ? "s" : "");
    write_numbers(required, sizeof required, it->required, it->count, "-");
    write_numbers(measured, sizeof measured, it->measured, it->count, "-");
    printf("%-66s %13s %15s  %-6s %s\n", name, required, there ? measured : verdict, there ? verdict : "", it->where);
    if (!r->json) return;
    fprintf(r->json, "{\"kind\":\"figure\",\"threads\":%d", it->threads);
    suite_json_text(r->json, "figure", it->name);
    json_numbers(r->json, "required", it->required, it->count);
    json_numbers(r->json, "measured", it->measured, it->count);
    suite_json_text(r->json, "verdict", verdict), suite_json_text(r->json, "where", it->where);
    fprintf(r->json, "}\n");
}

static void tell_where(row *it, const model_case *of) {
    char label[48];
    suite_label(of, label, sizeof label);
    snprintf(it->where, sizeof it->where, "%.30s %s", of->model, label);
}

/* Keeps the number if it is worse than what the row has. */
static void take_worst(row *it, int index, double number, const model_case *of) {
    const double now = it->measured[index];
    if (isnan(number) || (!isnan(now) && (it->less ? number <= now : number >= now))) return;
    it->measured[index] = number;
    tell_where(it, of);
}

/* ---- sets: ratios of contests ----------------------------------------------------------------------------------------------- */

enum { BEST_PEER = SUITE_ENGINES, ONE_THREAD };

typedef struct set {
    const char *name;
    int opponent;
    /* only models for which our time is below this, in seconds */
    double below;
    /* only models with at least so many operations in a run */
    double operations;
    /* only models of this family; NULL: all but quantised ones */
    const char *family;
    /* geometric mean and least ratio required; NaN: nothing is required */
    double mean, least;
} set;

static const set sets[] = {
    {"ONNX Runtime over ours, mean / least", SUITE_ONNXRUNTIME, HUGE_VAL, 0, NULL, 1.3, 1.0},
    {"the same, models below 5 ms", SUITE_ONNXRUNTIME, 5e-3, 0, NULL, 2, 1.2},
    {"OpenVINO over ours", SUITE_OPENVINO, HUGE_VAL, 0, NULL, NAN, NAN},
    {"the best peer over ours", BEST_PEER, HUGE_VAL, 0, NULL, 1.1, 0.9},
    {"the same, non-standard networks", BEST_PEER, HUGE_VAL, 0, "odd", 1.5, 1.0},
    {"quantised models, ONNX Runtime over ours", SUITE_ONNXRUNTIME, HUGE_VAL, 0, "quantised", 1.0, 0.9},
    {"quantised models, OpenVINO over ours", SUITE_OPENVINO, HUGE_VAL, 0, "quantised", NAN, NAN},
    {"one thread over these, models above 1 GFLOP", ONE_THREAD, HUGE_VAL, 1e9, NULL, NAN, 1.8},
};

static double opponent_ratio(const suite_outcome *o, int opponent) {
    if (opponent == ONE_THREAD) return o->alone;
    if (opponent != BEST_PEER) return o->ratio[opponent];
    double best = 0;
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++)
        if (o->ratio[e] > 0 && (best == 0 || o->ratio[e] < best)) best = o->ratio[e];
    return best;
}

static bool belongs(const set *to, const suite_outcome *o, int threads) {
    const bool family = to->family ? strcmp(to->family, o->it->family) == 0 : !suite_is_quantised(o->it);
    return family && o->threads == threads && o->seconds < to->below && o->facts.operations >= to->operations &&
           opponent_ratio(o, to->opponent) > 0;
}

static void print_set(const suite_report *r, const set *s, int threads, double *ratios) {
    row it = {.name = s->name, .threads = threads, .count = 2};
    it.required[0] = s->mean, it.required[1] = s->least;
    it.measured[0] = it.measured[1] = NAN;
    int count = 0;
    for (int i = 0; i < r->count; i++) {
        if (!belongs(s, &r->list[i], threads)) continue;
        ratios[count++] = opponent_ratio(&r->list[i], s->opponent);
        take_worst(&it, 1, ratios[count - 1], r->list[i].it);
    }
    if (count) it.measured[0] = bench_geometric_mean(ratios, count);
    if (count || s->opponent != ONE_THREAD || threads > 1) print_row(r, &it);
}

static void print_sets(const suite_report *r) {
    double *ratios = calloc((size_t)r->count + 1, sizeof *ratios);
    if (!ratios) abort();
    int printed = 0; /* outcomes are ordered by their number of threads */
    for (int i = 0; i < r->count; i++) {
        if (r->list[i].threads == printed) continue;
        printed = r->list[i].threads;
        for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) print_set(r, &sets[s], printed, ratios);
    }
    free(ratios);
}

/* ---- extremes: the worst of all contests ---------------------------------------------------------------------------------------- */

static double error_of(const suite_outcome *o) {
    return suite_is_quantised(o->it) || o->error < 0 ? NAN : o->error;
}

static double steps_of(const suite_outcome *o) {
    return !suite_is_quantised(o->it) || o->error < 0 ? NAN : o->error;
}

static double own_steps_of(const suite_outcome *o) {
    return o->own_error < 0 ? NAN : o->own_error;
}

static double classes_of(const suite_outcome *o) {
    return !suite_is_quantised(o->it) || o->error < 0 ? NAN : (double)o->other_class;
}

static double arena_of(const suite_outcome *o) {
    return o->facts.live > 0 ? o->facts.arena / o->facts.live : NAN;
}

static double profiled_of(const suite_outcome *o) {
    return o->facts.profiled > 0 ? 100 * o->facts.profiled : NAN;
}

static const struct {
    const char *name;
    double (*of)(const suite_outcome *o);
    bool less;
    double required;
} extremes[] = {
    {"largest error, of the largest result", error_of, true, SUITE_WRONG},
    {"quantised models: largest error, steps of the result", steps_of, true, 1},
    {"the same, ONNX Runtime's own from the nodes as they are written", own_steps_of, true, NAN},
    {"quantised models: results of another first class", classes_of, true, 0},
    {"arena over what is live in it at once", arena_of, true, 1.05},
    {"kernels' lines of the profile add up to, % of the run", profiled_of, false, 95},
};

static void print_extremes(const suite_report *r) {
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        row it = {.name = extremes[i].name, .count = 1, .less = extremes[i].less};
        it.required[0] = extremes[i].required, it.measured[0] = NAN;
        for (int k = 0; k < r->count; k++) take_worst(&it, 0, extremes[i].of(&r->list[k]), r->list[k].it);
        print_row(r, &it);
    }
}

/* ---- first calls ----------------------------------------------------------------------------------------------------------------- */

static bool is_promised(const suite_firsts *f) {
    return strcmp(f->it->model, "resnet50") == 0 || strcmp(f->it->model, "bert-base") == 0;
}

static double positive(double number) {
    return number > 0 ? number : NAN;
}

static double first_promised(const suite_firsts *f) {
    return is_promised(f) ? positive(f->cold[SUITE_DLC].seconds) : NAN;
}

static double first_other(const suite_firsts *f) {
    return is_promised(f) ? NAN : positive(f->cold[SUITE_DLC].seconds);
}

static double first_warm(const suite_firsts *f) {
    return positive(f->warm.seconds);
}

static double memory_ratio(const suite_firsts *f) {
    return positive(f->cold[SUITE_DLC].bytes) / positive(f->cold[SUITE_ONNXRUNTIME].bytes);
}

static const struct {
    const char *name;
    double (*of)(const suite_firsts *f);
    double required;
    /* does the line show the mean, too, before the worst? */
    bool mean;
} calls[] = {
    {"first call, ResNet-50 and BERT-base, s", first_promised, 1.0, false},
    {"first call, other models, s", first_other, 1.5, false},
    {"first call with kernels on disk, s", first_warm, 0.25, false},
    {"greatest memory over ONNX Runtime's, mean / greatest", memory_ratio, 1.0, true},
};

static void print_firsts(const suite_report *r) {
    double *numbers = calloc((size_t)r->first_count + 1, sizeof *numbers);
    if (!numbers) abort();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        row it = {.name = calls[i].name, .count = calls[i].mean ? 2 : 1, .less = true};
        const int worst = it.count - 1;
        int count = 0;
        it.required[0] = it.measured[0] = it.measured[1] = NAN;
        it.required[worst] = calls[i].required;
        for (int k = 0; k < r->first_count; k++) {
            const double number = calls[i].of(&r->firsts[k]);
            if (!isnan(number)) numbers[count++] = number;
            take_worst(&it, worst, number, r->firsts[k].it);
        }
        if (calls[i].mean && count) it.measured[0] = bench_geometric_mean(numbers, count);
        print_row(r, &it);
    }
    free(numbers);
}

/* ---- other measurements ----------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    /* the measurement, and which of its numbers */
    const char *measure;
    int number;
    bool less;
    double required;
} measured[] = {
    {"decoding from the first token on, tokens/s", "decoding", 0, false, NAN},
    {"the same, ONNX Runtime's time over ours", "decoding", 1, false, 1.2},
    {"the same, the second sequence", "decoding", 2, false, NAN},
    {"decoding: kernels built after the 8th token", "decoding", 3, true, 0},
    {"decoding: bytes copied in a step, median (GPT-2: new tokens' 73,728)", "decoding", 4, true, 73728},
    {"decoding: bytes copied in a step, mean", "decoding", 5, true, NAN},
    {"four clients on two cores, p50, ms", "clients", 0, true, NAN},
    {"four clients on two cores, p99, ms", "clients", 1, true, NAN},
    {"the same, ONNX Runtime over ours, p50", "clients", 2, false, NAN},
    {"the same, ONNX Runtime over ours, p99", "clients", 3, false, 1.0},
    {"sizes never seen: kernels built over the most for one size", "sizes", 0, true, 3},
    {"sizes never seen: first answer over 2 x steady + 1 ms", "sizes", 1, true, 1},
    {"a second runner of a model, ms", "second", 0, true, 30},
    {"a second runner of a model: constants packed for it, MB", "second", 1, true, 0},
    {"a second runner of a model: kernels built for it", "second", 2, true, 0},
    {"import, ms", "import", 0, true, 10},
    {"import of 10^5 nodes, s", "nodes", 0, true, 0.5},
    {"import of 2N nodes over N", "nodes", 1, true, 2.2},
    {"an iteration of a walked loop with a growing carry, us", "loop", 0, true, 100},
};

static void print_measured(const suite_report *r) {
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        row it = {.name = measured[i].name, .count = 1, .less = measured[i].less};
        bool asked = false;
        it.required[0] = measured[i].required, it.measured[0] = NAN;
        for (int k = 0; k < r->measured_count; k++) {
            const suite_measured *m = &r->measured[k];
            if (strcmp(m->it->measure, measured[i].measure) != 0) continue;
            if (!*m->problem) take_worst(&it, 0, m->numbers[measured[i].number], m->it);
            asked = true;
        }
        if (asked) print_row(r, &it);
    }
}

/* ---- all ---------------------------------------------------------------------------------------------------------------------------- */

void suite_print_figures(const suite_report *r) {
    printf("\n%-66s %13s %15s\n", "figure", "required", "measured");
    print_sets(r);
    if (r->count) print_extremes(r);
    if (r->first_count) print_firsts(r);
    if (r->measured_count) print_measured(r);
}
