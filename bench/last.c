/* A file of text: facts about the machine, then a line for each case. */
#include "bench/last.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_SPEED 0.95  /* least ratio of old to new time that is no regression */
#define ALIKE_PEAKS 0.10 /* largest relative difference of the peaks of two runs that are compared */

void bench_machine_name(char *name, size_t size) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(name, size, "unknown");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            snprintf(name, size, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"), strchr(line, ':') + 2);
    if (file) fclose(file);
}

/* ---- the run as JSON lines ------------------------------------------------------------------------------------------------------ */

/* The text after "key": in a line that this program wrote, whose strings have no escapes. */
static const char *value_of(const char *line, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *found = strstr(line, quoted);
    return found ? found + strlen(quoted) : NULL;
}

static bool string_of(const char *line, const char *key, char *text, size_t size) {
    const char *value = value_of(line, key);
    if (!value || *value != '"' || strcspn(value + 1, "\"") >= size) return false;
    snprintf(text, size, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
    return true;
}

static double number_of(const char *line, const char *key) {
    const char *value = value_of(line, key);
    return value ? strtod(value, NULL) : 0;
}

static int threads_of(const char *line) {
    double threads = number_of(line, "threads");
    return threads >= 1 && threads <= (double)BENCH_MAX_THREADS ? (int)threads : 0;
}

/* Adds a case; of one that was measured several times, the best counts. */
static void add_case(bench_last *last, const bench_last_case *one) {
    for (int i = 0; i < last->count; i++) {
        bench_last_case *known = &last->cases[i];
        if (known->threads != one->threads || strcmp(known->text, one->text) != 0) continue;
        if (one->seconds < known->seconds) *known = *one;
        return;
    }
    last->cases = realloc(last->cases, ((size_t)last->count + 1) * sizeof *last->cases);
    if (!last->cases) abort();
    last->cases[last->count++] = *one;
}

static int by_text(const void *a, const void *b) {
    const bench_last_case *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : x->threads - y->threads;
}

bool bench_last_from_json(bench_last *last, FILE *json, const char *date) {
    char line[2048], who[32];
    *last = (bench_last){0};
    snprintf(last->date, sizeof last->date, "%s", date);
    while (fgets(line, sizeof line, json)) {
        bench_last_case one = {.threads = threads_of(line)};
        if (strncmp(line, "{\"machine\"", 10) == 0) string_of(line, "machine", last->machine, sizeof last->machine);
        if (one.threads == 0) continue;
        char unit[16];
        if (string_of(line, "roof", unit, sizeof unit) && strncmp(unit, "fma", 3) == 0 &&
            number_of(line, "gflops") > 0 && !last->peaks[one.threads].unit[0]) {
            memcpy(last->peaks[one.threads].unit, unit, sizeof unit); /* the widest comes first */
            last->peaks[one.threads].gflops = number_of(line, "gflops");
        }
        if (!string_of(line, "contestant", who, sizeof who) || strcmp(who, "dlc") != 0) continue;
        one.seconds = number_of(line, "seconds"), one.share = number_of(line, "roof_share");
        /* random shapes differ from run to run */
        if (string_of(line, "case", one.text, sizeof one.text) && !strstr(one.text, " random ") && one.seconds > 0)
            add_case(last, &one);
    }
    if (last->count) qsort(last->cases, (size_t)last->count, sizeof *last->cases, by_text);
    return last->machine[0] && last->count;
}

/* ---- the same as text ------------------------------------------------------------------------------------------------------------ */

void bench_last_write(const bench_last *last, FILE *text) {
    fprintf(
        text,
        "# Our times of the last run that was kept: `make bench-keep` writes this, `make bench` compares with it.\n");
    fprintf(text, "machine %s\ndate %s\n", last->machine, last->date);
    for (int t = 1; t <= BENCH_MAX_THREADS; t++)
        if (last->peaks[t].unit[0])
            fprintf(text, "peak %d %s %.2f GFLOP/s\n", t, last->peaks[t].unit, last->peaks[t].gflops);
    fprintf(text, "# threads, median us, share of the roof in %%, case\n");
    for (int i = 0; i < last->count; i++)
        fprintf(text, "%d %.5g %.4g %s\n", last->cases[i].threads, last->cases[i].seconds * 1e6,
                last->cases[i].share * 100, last->cases[i].text);
}

static bool read_line(bench_last *last, const char *line) {
    bench_last_case one;
    int threads, start = 0;
    char unit[16];
    double gflops;
    if (line[0] == '#' || line[0] == 0) return true;
    if (sscanf(line, "machine %159[^\n]", last->machine) == 1) return true;
    if (sscanf(line, "date %15s", last->date) == 1) return true;
    if (sscanf(line, "peak %d %15s %lf", &threads, unit, &gflops) == 3) {
        if (threads < 1 || threads > BENCH_MAX_THREADS) return false;
        memcpy(last->peaks[threads].unit, unit, sizeof unit);
        last->peaks[threads].gflops = gflops;
        return true;
    }
    if (sscanf(line, "%d %lf %lf %n", &one.threads, &one.seconds, &one.share, &start) != 3 || start == 0 ||
        one.seconds <= 0 || !line[start] || strlen(line + start) >= sizeof one.text)
        return false;
    one.seconds *= 1e-6, one.share /= 100;
    snprintf(one.text, sizeof one.text, "%s", line + start);
    add_case(last, &one);
    return true;
}

bool bench_last_read(bench_last *last, FILE *text) {
    char line[512];
    *last = (bench_last){0};
    while (fgets(line, sizeof line, text)) {
        line[strcspn(line, "\n")] = 0;
        if (!read_line(last, line)) return false;
    }
    return true;
}

void bench_last_release(bench_last *last) {
    free(last->cases);
    *last = (bench_last){0};
}

/* ---- then and now ----------------------------------------------------------------------------------------------------------------- */

bool bench_last_comparable(const bench_last *last, const char *machine, const bench_roofs *roofs, char *why,
                           size_t size) {
    static const char *const units[] = {"fma512", "fma256", "fma128"};
    int widest = 0;
    while (widest < 2 && roofs->fma[widest] <= 0) widest++;
    const char *unit = last->peaks[roofs->threads].unit;
    double then = last->peaks[roofs->threads].gflops, now = roofs->fma[widest] * 1e-9;
    if (strcmp(last->machine, machine) != 0)
        snprintf(why, size, "that machine was %s, this one is %s", last->machine, machine);
    else if (!unit[0])
        snprintf(why, size, "it did not measure %d threads", roofs->threads);
    else if (strcmp(unit, units[widest]) != 0)
        snprintf(why, size, "its widest vectors were %s, these are %s", unit, units[widest]);
    else if (fabs(now - then) > ALIKE_PEAKS * then)
        snprintf(why, size, "its peak was %.1f GFLOP/s, this one is %.1f", then, now);
    else
        return true;
    return false;
}

static const bench_last_case *find(const bench_last *last, const bench_outcome *now) {
    for (int i = 0; i < last->count; i++)
        if (last->cases[i].threads == now->threads && strcmp(last->cases[i].text, now->shape->text) == 0)
            return &last->cases[i];
    return NULL;
}

const bench_last_case *bench_last_fallen(const bench_last *last, const bench_outcome *now) {
    const bench_last_case *then = find(last, now);
    if (!then) return NULL;
    bool slower = then->seconds < KEPT_SPEED * now->seconds;
    bool lower = then->share <= 0 || now->roof / now->seconds < KEPT_SPEED * then->share;
    return slower && lower ? then : NULL;
}

int bench_last_print(const bench_last *last, const bench_outcome *outcomes, int count, FILE *json) {
    int fell = 0, known = 0;
    for (int i = 0; i < count; i++) {
        const bench_outcome *now = &outcomes[i];
        const bench_last_case *then = bench_last_fallen(last, now);
        known += find(last, now) != NULL;
        if (!then) continue;
        if (fell++ == 0)
            printf("%-96s thr %10s %10s %6s %7s %7s\n", "fell by more than 5 % since the last run", "then us", "now us",
                   "ratio", "roof", "roof");
        printf("%-96s %3d %10.2f %10.2f %5.2fx %6.1f%% %6.1f%%\n", now->shape->label, now->threads, then->seconds * 1e6,
               now->seconds * 1e6, then->seconds / now->seconds, then->share * 100, now->roof / now->seconds * 100);
        fprintf(json, "{\"fell\":\"%s\",\"threads\":%d,\"then_seconds\":%.9g,\"now_seconds\":%.9g,\"since\":\"%s\"}\n",
                now->shape->text, now->threads, then->seconds, now->seconds, last->date);
    }
    printf("%d of %d cases fell by more than 5 %% since the run of %s\n\n", fell, known, last->date);
    return fell;
}
