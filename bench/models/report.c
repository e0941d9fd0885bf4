/* Tables of what the suite has measured, and its JSON lines. */
#include "bench/models/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ------------------------------------------------------------------------------------------------------------------- */

/* Writes a key and its text, with a comma before them. */
void suite_json_text(FILE *to, const char *key, const char *text) {
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
void suite_json_number(FILE *to, const char *key, double number) {
    if (isfinite(number) && number > 0)
        fprintf(to, ",\"%s\":%.6g", key, number);
    else
        fprintf(to, ",\"%s\":null", key);
}

static void json_case(FILE *to, const char *kind, const model_case *it) {
    fprintf(to, "{\"kind\":\"%s\"", kind);
    suite_json_text(to, "model", it->model), suite_json_text(to, "family", it->family),
        suite_json_text(to, "inputs", it->text);
}

static void json_outcome(FILE *to, const suite_outcome *o) {
    json_case(to, "contest", o->it);
    fprintf(to, ",\"threads\":%d,\"turns\":%d", o->threads, o->turns);
    suite_json_number(to, "seconds", o->seconds), suite_json_number(to, "low", o->low),
        suite_json_number(to, "high", o->high);
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++) suite_json_number(to, suite_engines[e], o->ratio[e]);
    suite_json_number(to, "one_thread", o->alone);
    if (o->error >= 0) fprintf(to, ",\"error\":%.3g", isfinite(o->error) ? o->error : 1e300);
    if (o->own_error >= 0) fprintf(to, ",\"own_error\":%.3g", o->own_error);
    fprintf(to, ",\"other_class\":%d", o->other_class);
    suite_json_number(to, "operations", o->facts.operations), suite_json_number(to, "profiled", o->facts.profiled);
    suite_json_number(to, "arena", o->facts.arena), suite_json_number(to, "live", o->facts.live);
    for (int e = 0; e < SUITE_ENGINES; e++) {
        char key[40];
        snprintf(key, sizeof key, "%s_problem", suite_engines[e]);
        if (*o->problem[e]) suite_json_text(to, key, o->problem[e]);
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
    suite_json_text(r->json, "engine", suite_engines[number]),
        suite_json_text(r->json, there ? "version" : "problem", text);
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

/* Prints a problem on one line, cut if it is long. */
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
        printf(suite_is_quantised(o->it) ? " %3.0f steps%s\n" : " %9.1e%s\n", o->error,
               suite_is_wrong(o) ? " WRONG" : "");
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++)
        if (*o->problem[e]) print_problem(suite_engines[e], o->problem[e]);
}

bool suite_is_quantised(const model_case *it) {
    return strcmp(it->family, "quantised") == 0;
}

bool suite_is_wrong(const suite_outcome *o) {
    if (!suite_is_quantised(o->it)) return !(o->error <= SUITE_WRONG);
    return o->own_error >= 0 && !(o->error <= fmax(1, 2 * o->own_error));
}

/* Reallocates a list of `count` elements with room for one more. */
static void *longer(void *list, int count, size_t size) {
    void *more = realloc(list, (size_t)(count + 1) * size);
    if (!more) abort();
    return more;
}

void suite_add(suite_report *r, const suite_outcome *o) {
    r->list = longer(r->list, r->count, sizeof *r->list);
    r->list[r->count++] = *o;
    r->failed += *o->problem[SUITE_DLC] || suite_is_wrong(o);
    print_outcome(o);
    fflush(stdout);
    if (r->json) json_outcome(r->json, o);
}

void suite_print_skipped(suite_report *r, const model_case *it, const char *why) {
    printf("%-18s not measured: %s\n", it->model, why);
    if (!r->json) return;
    json_case(r->json, "skipped", it);
    suite_json_text(r->json, "problem", why);
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

static void json_first(FILE *to, const suite_firsts *f) {
    json_case(to, "first", f->it);
    suite_json_number(to, "import", f->cold[SUITE_DLC].import), suite_json_number(to, "on_disk", f->warm.seconds);
    for (int e = 0; e < SUITE_ENGINES; e++) {
        char key[40];
        suite_json_number(to, suite_engines[e], f->cold[e].seconds);
        snprintf(key, sizeof key, "%s_bytes", suite_engines[e]);
        suite_json_number(to, key, f->cold[e].bytes);
        snprintf(key, sizeof key, "%s_problem", suite_engines[e]);
        if (*f->cold[e].problem) suite_json_text(to, key, f->cold[e].problem);
    }
    fprintf(to, "}\n");
    fflush(to);
}

static void print_first(const suite_firsts *f) {
    static const int width[] = {8, 12, 9};
    const suite_first *cold = f->cold;
    char label[64];
    suite_label(f->it, label, sizeof label);
    printf("%-18s %-14s", f->it->model, label);
    print_number(8, 1e3 * cold[SUITE_DLC].seconds), print_number(8, 1e3 * cold[SUITE_DLC].import);
    print_number(8, 1e3 * f->warm.seconds);
    for (int e = SUITE_DLC + 1; e < SUITE_ENGINES; e++) print_number(width[e], 1e3 * cold[e].seconds);
    for (int e = 0; e < SUITE_ENGINES; e++) print_number(width[e], 1e-6 * cold[e].bytes);
    printf("\n");
    for (int e = 0; e < SUITE_ENGINES; e++)
        if (*cold[e].problem) print_problem(suite_engines[e], cold[e].problem);
    if (*f->warm.problem) print_problem("on disk", f->warm.problem);
}

void suite_add_first(suite_report *r, const suite_firsts *f) {
    r->firsts = longer(r->firsts, r->first_count, sizeof *r->firsts);
    r->firsts[r->first_count++] = *f;
    r->failed += *f->cold[SUITE_DLC].problem || *f->warm.problem;
    print_first(f);
    fflush(stdout);
    if (r->json) json_first(r->json, f);
}

/* ---- other measurements ----------------------------------------------------------------------------------------------------------- */

static suite_measured *next_measured(suite_report *r) {
    r->measured = longer(r->measured, r->measured_count, sizeof *r->measured);
    return &r->measured[r->measured_count++];
}

void suite_keep_measured(suite_report *r, const model_case *it) {
    suite_measured *m = next_measured(r);
    *m = (suite_measured){.it = it};
    for (int i = 0; i < ENGINE_MOST_NUMBERS; i++) m->numbers[i] = NAN;
}

void suite_add_measured(suite_report *r, const suite_measured *m) {
    *next_measured(r) = *m;
    r->failed += *m->problem != 0;
    if (*m->problem) printf("%s, %s:\n", m->it->measure, m->it->model), print_problem("dlc", m->problem);
    fflush(stdout);
    if (!r->json) return;
    json_case(r->json, "measured", m->it);
    suite_json_text(r->json, "measure", m->it->measure);
    if (*m->problem) suite_json_text(r->json, "problem", m->problem);
    for (int i = 0; i < ENGINE_MOST_NUMBERS && !*m->problem; i++)
        if (isfinite(m->numbers[i])) fprintf(r->json, "%s%.6g", i ? "," : ",\"numbers\":[", m->numbers[i]);
    fprintf(r->json, "%s}\n", *m->problem ? "" : "]");
    fflush(r->json);
}
