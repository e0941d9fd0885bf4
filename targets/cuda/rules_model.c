/* The model: how much a thread, a block and the device process at once. Kernels of these rules are memory-bound, so every access should
 * move whole sectors in few instructions, and enough bytes should be in flight on each multiprocessor; arithmetic, shuffles and barriers
 * only decide between alternatives that are equal in these. All from facts of the machine (tir/machine.h).
 *
 *   bytes on their way   latency times bandwidth of a multiprocessor: some 32 KiB, that is 16 bytes of 2,048 threads, or 32 of half of them
 *   vector               16 bytes of the widest that moves: of narrower elements fewer bytes, but no sector twice
 *   threads of a row     neighbours take a line of memory at least, and a thread holds at most HELD elements of its row; more where there
 *                        are too few rows to fill the device
 *   occupancy            blocks of about 256 threads: of 64 registers each, four of them fill a multiprocessor */
#include "targets/cuda/rules.h"

enum {
    ACCESS = 16,      /* bytes that a thread moves with one instruction, at most */
    HELD = 32,        /* most elements of a row that a thread holds in registers */
    BLOCK = 256,      /* threads of a block unless a rule needs more */
    ROW_BLOCK = 1024, /* threads that hold one row, at most */
    LONG_BLOCK = 512, /* threads of a row that is not held in registers */
    FILLING = 1024    /* threads that keep a multiprocessor busy, with a vector each */
};

static const double LAUNCH_BYTES = 8 << 20; /* bytes that memory could move during the launch of one more phase */

/* ---- vectors */

static int64_t power_of_two_in(int64_t n, int64_t most) {
    int64_t power = 1;
    while (power < most && n % (2 * power) == 0) power *= 2;
    return power;
}

void cuda_note_vector(cuda_rules *r, const tir_access *access, int axis, cuda_vector *v) {
    const tir_tensor *t = &r->region->tensors.data[access->tensor];
    const int64_t size = (int64_t)lib_dtype_size(t->dtype);
    const int64_t aligned = t->argument < 0 ? ACCESS : t->alignment > 0 ? t->alignment : size;
    if (access->stride[axis] != 1) return;
    if (size > v->widest) v->widest = size;
    v->most = cuda_least(v->most, aligned > size ? aligned / size : 1);
    if (access->multiple[axis]) v->most = power_of_two_in(access->multiple[axis], v->most);
}

int64_t cuda_vector_of(const cuda_vector *vector, int64_t extent) {
    if (!vector->widest) return 1;
    int64_t most = cuda_least(ACCESS / vector->widest, vector->most);
    return most < 2 || extent < 0 ? 1 : power_of_two_in(extent, most);
}

/* ---- rows */

static int64_t elements_of(const cuda_row_group *g) {
    return cuda_ceil_div(g->length, g->threads * g->vector) * g->vector;
}

/* Cost of moving `bytes` by `threads` threads, in bytes: fewer threads than fill the device take longer. */
static double work(const tir_machine *machine, double bytes, int64_t threads) {
    const double filling = (double)FILLING * machine->multiprocessors;
    return (double)threads < filling ? bytes * filling / (double)threads : bytes;
}

void cuda_set_row_threads(const tir_machine *machine, cuda_row_group *g) {
    g->held = !g->ragged && elements_of(g) <= HELD;
    if (!g->held) g->threads = cuda_least(g->threads, cuda_least(LONG_BLOCK, machine->block_threads));
    g->block_rows = g->threads > TIR_WARP ? 1 : BLOCK / g->threads;
}

bool cuda_model_rows(const tir_machine *machine, cuda_row_group *g) {
    const int64_t filling = FILLING * (int64_t)machine->multiprocessors;
    const int64_t most = cuda_least(ROW_BLOCK, machine->block_threads), line = machine->line / g->size;
    g->threads = 1;
    while (g->threads < TIR_WARP && g->threads * g->vector < g->length &&
           (g->threads * g->vector < line || g->count * g->threads < filling || elements_of(g) > HELD))
        g->threads *= 2;
    while (g->threads < most && g->threads >= TIR_WARP &&
           (elements_of(g) > HELD || (elements_of(g) > 2 * g->vector && g->count * g->threads < filling)))
        g->threads *= 2;
    cuda_set_row_threads(machine, g);
    /* compares one phase for the rows, in which each element is loaded once, with a phase for each stage */
    const double bytes = (double)g->count * (double)g->length * (double)g->size;
    const double apart = bytes * (g->members + 1) + LAUNCH_BYTES * g->members;
    return work(machine, 2 * bytes, g->count * g->threads) <= apart;
}

int64_t cuda_model_chunks(const tir_machine *machine, int64_t rows, int64_t points, int64_t length) {
    enum { POINTS = 8 /* least points of a thread */ };
    const int64_t filling = FILLING * (int64_t)machine->multiprocessors;
    const double bytes = 4 * (double)rows * (double)points;
    int64_t threads = 1; /* of a row */
    while (threads < BLOCK && 2 * threads < length) threads *= 2;
    if (work(machine, bytes, rows * threads) < bytes + (double)LAUNCH_BYTES) return 1;
    return cuda_least(2 * filling / (rows * threads), points / (POINTS * threads)) + 1;
}

/* ---- columns */

void cuda_model_columns(const tir_machine *machine, cuda_column_group *g) {
    const int64_t filling = FILLING * (int64_t)machine->multiprocessors;
    const int64_t width = cuda_ceil_div(g->columns, g->vector); /* threads along the columns */
    const int64_t widest = g->rest * width >= filling ? BLOCK : TIR_WARP;
    g->lanes = g->groups = g->chunks = 1;
    while (g->lanes < widest && g->lanes < width) g->lanes *= 2;
    if (g->rest * width >= filling) return;
    const int64_t blocks = g->rest * cuda_ceil_div(width, g->lanes);
    while (g->groups < BLOCK / g->lanes && 4 * g->groups < g->points) g->groups *= 2;
    const int64_t threads = blocks * g->lanes * g->groups;
    const double bytes = (double)g->size * (double)g->rest * (double)g->columns * (double)g->points;
    if (work(machine, bytes, threads) < bytes + (double)LAUNCH_BYTES) return;
    g->chunks = cuda_least(2 * filling / threads, g->points / (8 * g->groups)) + 1;
}

/* ---- cumulative folds */

int64_t cuda_model_piece(const tir_machine *machine, int64_t points, int64_t length, bool along) {
    enum { LEAST = 512, LEAST_ACROSS = 32 /* points of a piece */ };
    const int64_t filling = FILLING * (int64_t)machine->multiprocessors, threads = along ? points * TIR_WARP : points;
    const int64_t least = along ? LEAST : LEAST_ACROSS;
    if (threads >= filling || length < 2 * least) return length;
    const int64_t pieces = cuda_least(cuda_ceil_div(filling, threads), length / least);
    return cuda_round_up(cuda_ceil_div(length, pieces), TIR_WARP);
}

/* ---- scatters */

bool cuda_model_scatter(const tir_machine *machine, cuda_scatter *s) {
    enum { TILE = 16 << 10 };
    const double WAIT = 600, PASS = 20; /* cycles of an update in memory; of an update that a thread reads and skips */
    const double filling = (double)FILLING * machine->multiprocessors, updates = (double)s->updates;
    if (s->lane < 0) { /* each thread reads all updates; else one thread makes them */
        const double waves = (double)s->places * (double)s->other_places / filling;
        s->tile = 1;
        return updates * (double)PASS * (waves > 1 ? waves : 1) < updates * (double)WAIT;
    }
    const int64_t widest = s->lanes;
    for (s->lanes = 1; s->lanes < widest && s->lanes < BLOCK;) s->lanes *= 2;
    s->tile = cuda_least(TILE / (s->lanes * s->other_places * s->size), s->places);
    if (s->tile < 1) return false;
    const double blocks = (double)s->places / (double)s->tile * (double)s->along / (double)s->lanes;
    const double waves = blocks * (double)s->lanes / filling, alone = (double)s->along / filling;
    /* These elements have initial values to load, too. */
    const double places = (double)s->places * (double)s->other_places;
    return updates * (double)PASS * (waves > 1 ? waves : 1) <
           (updates * (double)WAIT + places * (double)PASS) * (alone > 1 ? alone : 1);
}
