/* Clients: threads that each ask for results again and again. Ours: a runner each, of one model; ONNX Runtime: one session, with as many threads
 * of its own as serve them best. By turns. */
#include "bench/bench.h"
#include "bench/models/suite.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 4, TURNS = 4, MOST_SAMPLES = 1 << 16 };
#define TURN_SECONDS 2.0
#define TURN_SECONDS_SHORT 0.1 /* of models whose runs take less than a millisecond */

typedef struct client {
    const engine *it;
    void *state;
    pthread_t thread;
    double until;
    /* seconds of runs, [MOST_SAMPLES] */
    double *samples;
    int count;
} client;

/* Those of one session. */
typedef struct group {
    client clients[CLIENTS];
    int count;
} group;

static void close_group(group *g) {
    for (int i = g->count; i-- > 0;) {
        g->clients[i].it->close(g->clients[i].state);
        free(g->clients[i].samples);
    }
    g->count = 0;
}

static bool open_group(group *g, const engine *it, const engine_task *task, char *message, size_t size) {
    *g = (group){0};
    for (int i = 0; it && it->share && i < CLIENTS; i++) {
        double *samples = malloc(MOST_SAMPLES * sizeof *samples);
        void *state = !samples ? NULL
                      : i      ? it->share(g->clients[0].state, message, size)
                               : it->open(task, message, size);
        if (!state) return free(samples), close_group(g), false;
        g->clients[g->count++] = (client){.it = it, .state = state, .samples = samples};
    }
    return g->count == CLIENTS;
}

static void *run_client(void *argument) {
    client *c = argument;
    for (double begin = bench_now(); begin < c->until && c->count < MOST_SAMPLES;) {
        c->it->run(c->state);
        const double end = bench_now();
        c->samples[c->count++] = end - begin;
        begin = end;
    }
    return NULL;
}

static bool take_turn(group *g, double seconds) {
    int started = 0;
    const double until = bench_now() + seconds;
    for (; started < g->count; started++) {
        g->clients[started].until = until;
        if (pthread_create(&g->clients[started].thread, NULL, run_client, &g->clients[started]) != 0) break;
    }
    for (int i = 0; i < started; i++) pthread_join(g->clients[i].thread, NULL);
    return started == g->count;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds that half of the runs, and 99 % of them, do not exceed. False: no memory. */
static bool quantiles(const group *g, double *half, double *high) {
    int count = 0, at = 0;
    for (int i = 0; i < g->count; i++) count += g->clients[i].count;
    double *all = malloc((size_t)(count + 1) * sizeof *all);
    if (!all) return false;
    for (int i = 0; i < g->count; at += g->clients[i++].count)
        memcpy(all + at, g->clients[i].samples, (size_t)g->clients[i].count * sizeof *all);
    qsort(all, (size_t)count, sizeof *all, by_value);
    *half = 1e3 * all[(int)ceil(0.5 * count) - 1], *high = 1e3 * all[(int)ceil(0.99 * count) - 1];
    free(all);
    return true;
}

/* Ours; ONNX Runtime with one thread for each run, and with two. */
enum { OURS, THEIRS, THEIRS_WIDE, GROUPS };

/* Milliseconds of ours, p50 and p99; theirs over ours, each with the settings that are best for it. */
static bool compare(group groups[GROUPS], double *numbers) {
    double half[GROUPS], high[GROUPS];
    const double begin = bench_now();
    groups[OURS].clients[0].it->run(groups[OURS].clients[0].state);
    const double seconds = bench_now() - begin < 1e-3 ? TURN_SECONDS_SHORT : TURN_SECONDS;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < GROUPS; i++)
            if (!take_turn(&groups[i], seconds)) return false;
    for (int i = 0; i < GROUPS; i++)
        if (groups[i].count && !quantiles(&groups[i], &half[i], &high[i])) return false;
    numbers[0] = half[OURS], numbers[1] = high[OURS];
    for (int i = THEIRS; i < GROUPS; i++) {
        if (!groups[i].count) continue;
        numbers[2] = fmin(numbers[2], half[i] / half[OURS]); /* of a number and NaN, the number */
        numbers[3] = fmin(numbers[3], high[i] / high[OURS]);
    }
    return true;
}

int suite_clients(const engine *const engines[SUITE_ENGINES], const engine_task *task, double *numbers, char *message,
                  size_t size) {
    group groups[GROUPS];
    engine_task alone = *task, wide = *task;
    alone.threads = 1, wide.threads = 2;
    alone.exact = wide.exact = true;
    const bool good = open_group(&groups[OURS], engines[SUITE_DLC], &alone, message, size);
    open_group(&groups[THEIRS], good ? engines[SUITE_ONNXRUNTIME] : NULL, &alone, message, size);
    open_group(&groups[THEIRS_WIDE], good ? engines[SUITE_ONNXRUNTIME] : NULL, &wide, message, size);
    const bool done = good && compare(groups, numbers);
    if (good && !done) snprintf(message, size, "no memory, or a thread could not be started");
    for (int i = 0; i < GROUPS; i++) close_group(&groups[i]);
    return done ? 4 : -1;
}
