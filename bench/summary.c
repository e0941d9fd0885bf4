/* Ratios over the peers, by kind and family. A peer without a case does not count there. */
#include "bench/summary.h"

#include <stdlib.h>
#include <string.h>

enum { WORST = 10, NAME_SIZE = sizeof(((bench_shape *)0)->kind) + sizeof(((bench_shape *)0)->name) + 1 };

typedef struct ratios {
    int count;
    /* `values` has room for all cases */
    double least, *values;
} ratios;

static void add(ratios *r, double ratio) {
    r->least = r->count && r->least < ratio ? r->least : ratio;
    r->values[r->count++] = ratio;
}

static double mean(const ratios *r) {
    return bench_geometric_mean(r->values, r->count);
}

/* The best peer's time over ours; the case must have a peer. */
static double ratio_of(const bench_outcome *o) {
    return o->others[bench_best_peer(o)].ratio;
}

static void family_of(const bench_outcome *o, char name[NAME_SIZE]) {
    snprintf(name, NAME_SIZE, "%s%s%s", o->shape->kind, o->shape->name[0] ? " " : "", o->shape->name);
}

/* Prints a line over the cases of one kind, or of one family of it, with one number of threads. */
static void print_line(const bench_outcome *outcomes, int count, int threads, const char *kind, const char *family,
                       const bench_peer *const *peers, int peer_count, FILE *json) {
    ratios best = {0}, each[BENCH_MAX_PEERS] = {0};
    double *values = calloc((size_t)count * (BENCH_MAX_PEERS + 1), sizeof *values);
    if (!values) abort();
    best.values = values;
    for (int p = 0; p < peer_count; p++) each[p].values = values + (p + 1) * count;
    int cases = 0;
    char name[NAME_SIZE];
    for (int i = 0; i < count; i++) {
        const bench_outcome *o = &outcomes[i];
        family_of(o, name);
        if (o->threads != threads || strcmp(family ? name : o->shape->kind, family ? family : kind) != 0) continue;
        cases++;
        if (bench_best_peer(o) >= 0) add(&best, ratio_of(o));
        for (int p = 0; p < peer_count; p++)
            if (o->others[p].seconds > 0) add(&each[p], o->others[p].ratio);
    }
    printf("%s%-*s %5d", family ? "  " : "", family ? 38 : 40, family ? family : kind, cases);
    if (best.count)
        printf("  %5.2f %5.2f", mean(&best), best.least);
    else
        printf("  not measured");
    fprintf(json, "{\"summary\":\"%s\",\"threads\":%d,\"cases\":%d", family ? family : kind, threads, cases);
    if (best.count)
        fprintf(json, ",\"measured\":%d,\"best_mean\":%.4g,\"best_least\":%.4g", best.count, mean(&best), best.least);
    for (int p = 0; p < peer_count; p++) {
        int width = (int)strlen(peers[p]->name) > 11 ? (int)strlen(peers[p]->name) : 11;
        if (each[p].count) {
            printf("  %*.2f %5.2f", width - 6, mean(&each[p]), each[p].least);
            fprintf(json, ",\"%s_mean\":%.4g,\"%s_least\":%.4g", peers[p]->name, mean(&each[p]), peers[p]->name,
                    each[p].least);
        } else {
            printf("  %*s", width, "-");
        }
    }
    printf("\n");
    fprintf(json, "}\n");
    free(values);
}

static void print_families(const bench_outcome *outcomes, int count, int threads, const bench_peer *const *peers,
                           int peer_count, FILE *json) {
    printf("%-40s %5s  %11s", "time over ours: mean, least", "cases", "best peer");
    for (int p = 0; p < peer_count; p++) printf("  %11s", peers[p]->name);
    printf("\n");
    for (int i = 0; i < count; i++) {
        const char *kind = outcomes[i].shape->kind;
        bool seen = outcomes[i].threads != threads;
        for (int j = 0; j < i && !seen; j++)
            seen = outcomes[j].threads == threads && strcmp(outcomes[j].shape->kind, kind) == 0;
        if (seen) continue;
        print_line(outcomes, count, threads, kind, NULL, peers, peer_count, json);
        for (int f = i; f < count; f++) {
            char family[NAME_SIZE], other[NAME_SIZE];
            family_of(&outcomes[f], family);
            bool done = outcomes[f].threads != threads || strcmp(outcomes[f].shape->kind, kind) != 0 ||
                        strcmp(family, kind) == 0;
            for (int j = i; j < f && !done; j++) {
                family_of(&outcomes[j], other);
                done = outcomes[j].threads == threads && strcmp(other, family) == 0;
            }
            if (!done) print_line(outcomes, count, threads, kind, family, peers, peer_count, json);
        }
    }
}

static int by_ratio(const void *a, const void *b) {
    double x = ratio_of(*(const bench_outcome *const *)a), y = ratio_of(*(const bench_outcome *const *)b);
    return (x > y) - (x < y);
}

static void print_worst(const bench_outcome *outcomes, int count, const bench_peer *const *peers, FILE *json) {
    const bench_outcome **sorted = calloc((size_t)count + 1, sizeof *sorted);
    if (!sorted) abort();
    int measured = 0;
    for (int i = 0; i < count; i++)
        if (bench_best_peer(&outcomes[i]) >= 0) sorted[measured++] = &outcomes[i];
    qsort(sorted, (size_t)measured, sizeof *sorted, by_ratio);
    printf("\nthe worst against the best peer:\n");
    for (int i = 0; i < measured && i < WORST; i++) {
        const bench_outcome *o = sorted[i];
        int which = bench_best_peer(o);
        printf("  %5.2fx  %-96s %d thread%s  %s\n", ratio_of(o), o->shape->label, o->threads,
               o->threads > 1 ? "s" : " ", peers[which]->name);
        fprintf(json, "{\"worst\":\"%s\",\"threads\":%d,\"peer\":\"%s\",\"ratio\":%.4g}\n", o->shape->text, o->threads,
                peers[which]->name, ratio_of(o));
    }
    printf("\n");
    free(sorted);
}

/* Compares predicted with measured times, of the cases of one kind or (NULL) of all. */
static void print_prediction(const bench_outcome *outcomes, int count, int threads, const char *kind, FILE *json) {
    double *predicted = calloc(3 * (size_t)count + 1, sizeof *predicted), *measured = predicted + count;
    if (!predicted) abort();
    double *ratio = measured + count;
    int n = 0;
    for (int i = 0; i < count; i++) {
        const bench_outcome *o = &outcomes[i];
        if (o->threads != threads || o->predicted <= 0 || (kind && strcmp(kind, o->shape->kind) != 0)) continue;
        predicted[n] = o->predicted, measured[n] = o->seconds, ratio[n] = o->predicted / o->seconds;
        n++;
    }
    if (n) {
        double mean_ratio = bench_geometric_mean(ratio, n), rank = bench_rank_correlation(predicted, measured, n);
        char text[16] = "-";
        if (n > 2) snprintf(text, sizeof text, "%.3f", rank);
        printf("%-40s %5d  %8s  %8.2f\n", kind ? kind : "all", n, text, mean_ratio);
        fprintf(json,
                "{\"prediction\":\"%s\",\"threads\":%d,\"cases\":%d,\"rank_correlation\":%.4g,"
                "\"predicted_over_measured\":%.4g}\n",
                kind ? kind : "all", threads, n, rank, mean_ratio);
    }
    free(predicted);
}

void bench_predictions(const bench_outcome *outcomes, int count, int threads, FILE *json) {
    bool any = false;
    for (int i = 0; i < count; i++) any |= outcomes[i].threads == threads && outcomes[i].predicted > 0;
    if (!any) {
        printf("the cost model's prediction: -\n");
        return;
    }
    printf("%-40s %5s  %8s  %8s\n", "the cost model beside the measurement", "cases", "rank", "ratio");
    for (int i = 0; i < count; i++) {
        bool seen = outcomes[i].threads != threads;
        for (int j = 0; j < i && !seen; j++)
            seen = outcomes[j].threads == threads && strcmp(outcomes[j].shape->kind, outcomes[i].shape->kind) == 0;
        if (!seen) print_prediction(outcomes, count, threads, outcomes[i].shape->kind, json);
    }
    print_prediction(outcomes, count, threads, NULL, json);
}

void bench_summary(const bench_outcome *outcomes, int count, const bench_peer *const *peers, int peer_count,
                   FILE *json) {
    if (!peer_count || !count) return;
    for (int i = 0; i < count; i++) {
        bool seen = false;
        for (int j = 0; j < i && !seen; j++) seen = outcomes[j].threads == outcomes[i].threads;
        if (seen) continue;
        printf("%d thread%s\n", outcomes[i].threads, outcomes[i].threads > 1 ? "s" : "");
        print_families(outcomes, count, outcomes[i].threads, peers, peer_count, json);
    }
    print_worst(outcomes, count, peers, json);
}
