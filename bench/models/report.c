/* Tables of what the suite has measured, and its JSON lines. */
#include "bench/models/suite.h"
#include "bench/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ------------------------------------------------------------------------------------------------------------------- */

/* With the comma before it. */
static void json_text(FILE *to, const char *key, const char *text) {
    fprintf(to, ",\"%s\":\"", key);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(to, "\\%c", *c);
        else if ((unsigned char)*c < 32)
            fprintf(to, "\\u%04x", (unsigned)*c);
        else
            fputc(*c, to);
    }
    fputc('"', to);
}

/* null: not measured. */
static void json_number(FILE *to, const char *key, double number) {
    if (isfinite(number) && number > 0)
        fprintf(to, ",\"%s\":%.6g", key, number);
    else
        fprintf(to, ",\"%s\":null", key);
}

static void json_case(FILE *to, const char *kind, const model_case *it) {
    fprintf(to, "{\"kind\":\"%s\"", kind);
    json_text(to, "model", it->model), json_text(to, "family", it->family), json_text(to, "inputs", it->text);
}

static void json_outcome(FILE *to, const suite_outcome *o) {
    json_case(to, "contest", o->it);
    fprintf(to, ",\"threads\":%d,\"turns\":%d", o->threads, o->turns);
    json_number(to, "seconds", o->seconds), json_number(to, "low", o->low), json_number(to, "high", o->high);
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++) json_number(to, suite_engines[e], o->ratio[e]);
    json_number(to, "one_thread", o->alone);
    if (o->error >= 0) fprintf(to, ",\"error\":%.3g", isfinite(o->error) ? o->error : 1e300);
    for (int e = 0; e < SUITE_ENGINES; e++) {
        char key[40];
        snprintf(key, sizeof key, "%s_problem", suite_engines[e]);
        if (*o->problem[e]) json_text(to, key, o->problem[e]);
    }
    fprintf(to, "}\n");
    fflush(to);
}

/* ---- contests ---------------------------------------------------------------------------------------------------------------- */

void suite_label(const model_case *it, char *text, size_t size) {
    const char *begin = strchr(it->text, '=');
    const char *colon = begin ? strchr(begin, ':') : NULL, *blank = begin ? strchr(begin, ' ') : NULL;
    if (colon && (!blank || colon < blank)) begin = colon;
    snprintf(text, size, "%.*s", begin ? (int)strcspn(begin + 1, ": ") : 0, begin ? begin + 1 : "");
}

void suite_print_engine(suite_report *r, int number, const char *text, bool there) {
    printf("%s: %s%s\n", suite_engines[number], there ? "" : "not measured: ", text);
    if (!r->json) return;
    fprintf(r->json, "{\"kind\":\"engine\"");
    json_text(r->json, "engine", suite_engines[number]), json_text(r->json, there ? "version" : "problem", text);
    fprintf(r->json, "}\n");
}

void suite_print_head(int threads) {
    printf("\n%d thread%s; peers and one thread: their time over ours\n%-18s %-14s %10s %7s %5s %12s %9s %10s %9s\n",
           threads, threads > 1 ? "s" : "", "model", "sizes", "dlc ms", "spread", "turns", "onnxruntime", "openvino",
           "one thread", "error");
}

static void print_ratio(int width, double ratio) {
    if (ratio > 0)
        printf(" %*.2f", width, ratio);
    else
        printf(" %*s", width, "-");
}

/* On one line, not too long. */
static void print_problem(const char *who, const char *text) {
    printf("    %s: ", who);
    for (int i = 0; text[i] && i < 200; i++) putchar(text[i] == '\n' ? ' ' : text[i]);
    putchar('\n');
}

static void print_outcome(const suite_outcome *o) {
    char label[64];
    suite_label(o->it, label, sizeof label);
    printf("%-18s %-14s", o->it->model, label);
    if (*o->problem[SUITE_DLC]) {
        printf(" FAILED: %s\n", o->problem[SUITE_DLC]);
        return;
    }
    printf(" %10.3f %6.0f%% %5d", 1e3 * o->seconds, 100 * (o->high - o->low) / o->seconds, o->turns);
    print_ratio(12, o->ratio[SUITE_ONNXRUNTIME]), print_ratio(9, o->ratio[SUITE_OPENVINO]), print_ratio(10, o->alone);
    if (o->error < 0)
        printf(" %9s\n", "-");
    else
        printf(" %9.1e%s\n", o->error, o->error > SUITE_WRONG ? " WRONG" : "");
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++)
        if (*o->problem[e]) print_problem(suite_engines[e], o->problem[e]);
}

void suite_add(suite_report *r, const suite_outcome *o) {
    suite_outcome *more = realloc(r->list, (size_t)(r->count + 1) * sizeof *more);
    if (!more) abort();
    r->list = more;
    r->list[r->count++] = *o;
    r->failed += *o->problem[SUITE_DLC] || !(o->error <= SUITE_WRONG);
    print_outcome(o);
    fflush(stdout);
    if (r->json) json_outcome(r->json, o);
}

void suite_print_skipped(suite_report *r, const model_case *it, const char *why) {
    printf("%-18s not measured: %s\n", it->model, why);
    if (!r->json) return;
    json_case(r->json, "skipped", it);
    json_text(r->json, "problem", why);
    fprintf(r->json, "}\n");
}

/* ---- first calls ----------------------------------------------------------------------------------------------------------------- */

void suite_print_first_head(void) {
    printf("\nfirst call: from the start of a process to the first results, ms, and the process's greatest memory, MB\n"
           "%-18s %-14s %8s %8s %8s %12s %9s %8s %12s %9s\n",
           "model", "sizes", "dlc", "import", "on disk", "onnxruntime", "openvino", "dlc MB", "onnxruntime",
           "openvino");
}

static void print_number(int width, double number) {
    if (number > 0)
        printf(" %*.1f", width, number);
    else
        printf(" %*s", width, "-");
}

void suite_print_first(suite_report *r, const model_case *it, const suite_first *cold, const suite_first *warm) {
    static const int width[] = {8, 12, 9};
    char label[64];
    suite_label(it, label, sizeof label);
    printf("%-18s %-14s", it->model, label);
    print_number(8, 1e3 * cold[SUITE_DLC].seconds), print_number(8, 1e3 * cold[SUITE_DLC].import);
    print_number(8, 1e3 * warm->seconds);
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++) print_number(width[e], 1e3 * cold[e].seconds);
    for (int e = 0; e < SUITE_ENGINES; e++) print_number(width[e], 1e-6 * cold[e].bytes);
    printf("\n");
    for (int e = 0; e < SUITE_ENGINES; e++)
        if (*cold[e].problem) print_problem(suite_engines[e], cold[e].problem);
    if (*warm->problem) print_problem("on disk", warm->problem);
    r->failed += *cold[SUITE_DLC].problem || *warm->problem;
    fflush(stdout);
    if (!r->json) return;
    json_case(r->json, "first", it);
    json_number(r->json, "import", cold[SUITE_DLC].import), json_number(r->json, "on_disk", warm->seconds);
    for (int e = 0; e < SUITE_ENGINES; e++) {
        char key[40];
        json_number(r->json, suite_engines[e], cold[e].seconds);
        snprintf(key, sizeof key, "%s_bytes", suite_engines[e]);
        json_number(r->json, key, cold[e].bytes);
        snprintf(key, sizeof key, "%s_problem", suite_engines[e]);
        if (*cold[e].problem) json_text(r->json, key, cold[e].problem);
    }
    fprintf(r->json, "}\n");
    fflush(r->json);
}

/* ---- sets ------------------------------------------------------------------------------------------------------------------------- */

enum { BEST_PEER = SUITE_ENGINES, ONE_THREAD };

typedef struct set {
    const char *name;
    int opponent;
    /* Of ours, in seconds. */
    double above, below;
    /* NULL: all */
    const char *family;
    /* Required; 0: nothing is. */
    double mean, least;
} set;

static const set sets[] = {
    {"all, onnxruntime", SUITE_ONNXRUNTIME, 0, HUGE_VAL, NULL, 1.3, 1.0},
    {"below 5 ms, onnxruntime", SUITE_ONNXRUNTIME, 0, 5e-3, NULL, 2, 1.2},
    {"all, openvino", SUITE_OPENVINO, 0, HUGE_VAL, NULL, 0, 0},
    {"all, best peer", BEST_PEER, 0, HUGE_VAL, NULL, 1.1, 0.9},
    {"non-standard, best peer", BEST_PEER, 0, HUGE_VAL, "odd", 1.5, 1.0},
    {"one thread over these", ONE_THREAD, 5e-3, HUGE_VAL, NULL, 0, 1.8},
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
    return o->threads == threads && o->seconds > to->above && o->seconds < to->below &&
           (!to->family || strcmp(to->family, o->it->family) == 0) && opponent_ratio(o, to->opponent) > 0;
}

static void print_set(const suite_report *r, const set *s, int threads, double *ratios) {
    int count = 0;
    const suite_outcome *worst = NULL;
    for (int i = 0; i < r->count; i++) {
        if (!belongs(s, &r->list[i], threads)) continue;
        ratios[count++] = opponent_ratio(&r->list[i], s->opponent);
        if (!worst || ratios[count - 1] < opponent_ratio(worst, s->opponent)) worst = &r->list[i];
    }
    if (count == 0) {
        if (s->opponent != ONE_THREAD) printf("%-26s %7d  not measured\n", s->name, threads);
        return;
    }
    const double mean = bench_geometric_mean(ratios, count), least = opponent_ratio(worst, s->opponent);
    char label[64];
    suite_label(worst->it, label, sizeof label);
    printf("%-26s %7d %5d %6.2f %6.2f", s->name, threads, count, mean, least);
    if (s->mean > 0 || s->least > 0)
        printf("   %.2f / %.2f%s", s->mean, s->least, mean < s->mean || least < s->least ? " MISSED" : "");
    printf("   least: %s %s\n", worst->it->model, label);
    if (!r->json) return;
    fprintf(r->json, "{\"kind\":\"set\",\"threads\":%d,\"cases\":%d,\"mean\":%.4g,\"least\":%.4g", threads, count, mean,
            least);
    json_text(r->json, "set", s->name), json_text(r->json, "worst", worst->it->model);
    fprintf(r->json, "}\n");
}

void suite_print_sets(const suite_report *r) {
    double *ratios = calloc((size_t)r->count + 1, sizeof *ratios);
    if (!ratios) abort();
    printf("\n%-26s %7s %5s %6s %6s   required\n", "set", "threads", "cases", "mean", "least");
    int printed = 0; /* cases come by numbers of threads, which grow */
    for (int i = 0; i < r->count; i++) {
        if (r->list[i].threads == printed) continue;
        printed = r->list[i].threads;
        for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) print_set(r, &sets[s], printed, ratios);
    }
    free(ratios);
}
