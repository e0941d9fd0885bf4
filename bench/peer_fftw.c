/* FFTW as a peer, for Fourier transforms: plans by patient measuring. One thread. */
#include "bench/peer.h"

#include <fftw3.h>
#include <stdlib.h>
#include <string.h>

enum { PLANNING_SECONDS = 10 };

typedef struct transform {
    fftwf_plan narrow;
    fftw_plan wide;
} transform;

static void describe(char *text, size_t size) {
    snprintf(text, size, "%s; one thread", fftwf_version);
}

static void set_threads(int count) {
    (void)count;
}

static void release(void *state) {
    transform *t = state;
    if (t->narrow) fftwf_destroy_plan(t->narrow);
    if (t->wide) fftw_destroy_plan(t->wide);
    free(t);
}

static void run(void *state) {
    const transform *t = state;
    if (t->narrow)
        fftwf_execute(t->narrow);
    else
        fftw_execute(t->wide);
}

/* Of [batch, points, parts] to [batch, bins, 2]. */
static transform make_plan(const bench_operand *x, const bench_operand *y) {
    const int points = (int)x->dims[1], bins = (int)y->dims[1], batch = (int)x->dims[0];
    transform t = {0};
    if (x->dtype == DLC_F32) {
        fftwf_set_timelimit(PLANNING_SECONDS);
        t.narrow = x->dims[2] == 2 ? fftwf_plan_many_dft(1, &points, batch, x->data, NULL, 1, points, y->data, NULL, 1,
                                                         bins, FFTW_FORWARD, FFTW_PATIENT)
                                   : fftwf_plan_many_dft_r2c(1, &points, batch, x->data, NULL, 1, points, y->data, NULL,
                                                             1, bins, FFTW_PATIENT);
    } else {
        fftw_set_timelimit(PLANNING_SECONDS);
        t.wide = x->dims[2] == 2 ? fftw_plan_many_dft(1, &points, batch, x->data, NULL, 1, points, y->data, NULL, 1,
                                                      bins, FFTW_FORWARD, FFTW_PATIENT)
                                 : fftw_plan_many_dft_r2c(1, &points, batch, x->data, NULL, 1, points, y->data, NULL, 1,
                                                          bins, FFTW_PATIENT);
    }
    return t;
}

/* Planning overwrites the operand, whose contents are restored. */
static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    const bench_operand *x = &problem->operands[0], *y = &problem->results[0];
    if (strcmp(problem->shape->kind, "transform") != 0 || (x->dtype != DLC_F32 && x->dtype != DLC_F64)) return NULL;
    void *kept = malloc(x->bytes);
    transform *state = malloc(sizeof *state);
    if (kept && state) {
        memcpy(kept, x->data, x->bytes);
        *state = make_plan(x, y);
        memcpy(x->data, kept, x->bytes);
    }
    bool planned = kept && state && (state->narrow || state->wide);
    free(kept);
    if (!planned) free(state);
    snprintf(note, note_size, "patient");
    return planned ? state : NULL;
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {"fftw", describe, set_threads, prepare, run, release, NULL, NULL, NULL, NULL};
    return &peer;
}
