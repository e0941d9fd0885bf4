/* Where loaded numbers end what is reduced: attention over caches with room for more, however it is written, and sums of padded rows. What
 * lies behind the end is huge, or NaN, so that a result shows whether it took part; the numbers are whatever a host may give. Against sums
 * in double precision. */
#include "support.h"
#include "test/share.h"

#include <math.h>

enum { BATCH = 2, HEADS = 4, SHARED = 2, WIDTH = 16, ROOM_MOST = 601, STEPS_MOST = 20 };

typedef enum spelling {
    ROW,     /* cached_attention, which holds the position to the room */
    CLOSED,  /* j <= position, whichever query */
    AHEAD,   /* j - i <= position */
    SUM,     /* j <= i + position, which wraps */
    INVERSE, /* position < j is what is not seen */
    WINDOW,  /* and position - 9 < j */
    EACH     /* a position for each of the batch */
} spelling;

static const char *const names[] = {"row", "closed", "ahead", "sum", "inverse", "window", "each"};

static dlc_value positions(dlc_graph *g, dlc_dtype dtype, int64_t steps, int64_t room, int64_t axis) {
    return dlc_iota(g, dtype, 2, DIMS({steps, NULL}, {room, NULL}), axis);
}

static dlc_value mask(dlc_graph *g, spelling spelled, dlc_value position, dlc_dtype dtype, int64_t steps,
                      int64_t room) {
    dlc_value i = positions(g, dtype, steps, room, 0), j = positions(g, dtype, steps, room, 1);
    const int64_t nine[] = {9};
    switch (spelled) {
    case AHEAD: return dlc_le(dlc_sub(j, i), position);
    case SUM: return dlc_le(j, dlc_add(i, position));
    case INVERSE: return dlc_not(dlc_lt(position, j));
    case WINDOW:
        return dlc_and(dlc_le(j, position),
                       dlc_lt(dlc_sub(position, dlc_cast(dlc_constant(g, DLC_I64, 0, NULL, nine), dtype)), j));
    case EACH:
        return dlc_le(dlc_reshape(j, 4, DIMS({1, NULL}, {1, NULL}, {steps, NULL}, {room, NULL})),
                      dlc_reshape(position, 4, DIMS({BATCH, NULL}, {1, NULL}, {1, NULL}, {1, NULL})));
    default: return dlc_le(j, position);
    }
}

static dlc_program *attention_program(dlc_context *context, spelling spelled, dlc_dtype dtype, int64_t steps,
                                      int64_t room) {
    dlc_graph *g;
    dlc_value result[3];
    OK(context, dlc_graph_create(context, &g));
    const int kv = spelled == ROW ? 5 : 3;
    dlc_value in[5];
    static const char *const input[] = {"q", "k", "v", "k_cache", "v_cache"};
    for (int i = 0; i < kv; i++) {
        const int64_t rows = i == 0 || (spelled == ROW && i < 3) ? steps : room;
        in[i] = dlc_input(g, input[i], DLC_F32, 4,
                          DIMS({BATCH, NULL}, {i ? SHARED : HEADS, NULL}, {rows, NULL}, {WIDTH, NULL}));
    }
    dlc_value position = dlc_input(g, "position", dtype, spelled == EACH, DIMS({BATCH, NULL}));
    if (spelled == ROW) {
        dlc_cached_attention(in[0], in[1], in[2], in[3], in[4], position, 3, result);
        for (int i = 0; i < 3; i++) dlc_output(g, i ? input[i + 2] : "y", result[i]);
    } else {
        dlc_output(g, "y", dlc_attention(in[0], in[1], in[2], mask(g, spelled, position, dtype, steps, room)));
    }
    dlc_program *program = compile(context, g);
    for (int i = 1; i < 3 && spelled == ROW; i++) OK(context, dlc_program_alias(program, i, i + 2));
    return program;
}

/* Does query i see key j? As the masks say, in the arithmetic of 64 bits. */
static bool sees(spelling spelled, int64_t position, int64_t steps, int64_t room, int64_t i, int64_t j) {
    const int64_t last = room - steps;
    switch (spelled) {
    case ROW: return j <= i + (position < 0 ? 0 : position > last ? last : position);
    case AHEAD: return j - i <= position;
    case SUM: return j <= (int64_t)((uint64_t)i + (uint64_t)position);
    case WINDOW: return j <= position && (int64_t)((uint64_t)position - 9) < j;
    default: return j <= position;
    }
}

static float q[BATCH * HEADS * STEPS_MOST * WIDTH], y[BATCH * HEADS * STEPS_MOST * WIDTH];
static float fresh[2][BATCH * SHARED * STEPS_MOST * WIDTH];
static _Alignas(64) float kept[2][BATCH * SHARED * ROOM_MOST * WIDTH]; /* k, v */

static void expect(spelling spelled, const int64_t *position, int64_t steps, int64_t room, double *out) {
    for (int64_t row = 0; row < BATCH * HEADS * steps; row++, out += WIDTH) {
        const int64_t b = row / steps / HEADS, i = row % steps, head = row / steps % HEADS / (HEADS / SHARED);
        const float *k = kept[0] + (b * SHARED + head) * room * WIDTH,
                    *v = kept[1] + (b * SHARED + head) * room * WIDTH;
        double sum = 0;
        for (int c = 0; c < WIDTH; c++) out[c] = 0;
        for (int64_t j = 0; j < room; j++) {
            double score = 0;
            if (!sees(spelled, position[spelled == EACH ? b : 0], steps, room, i, j)) continue;
            for (int c = 0; c < WIDTH; c++) score += (double)q[row * WIDTH + c] * (double)k[j * WIDTH + c];
            sum += score = exp(score / sqrt(WIDTH));
            for (int c = 0; c < WIDTH; c++) out[c] += score * (double)v[j * WIDTH + c];
        }
        for (int c = 0; c < WIDTH && sum > 0; c++) out[c] /= sum;
    }
}

/* Keys that no query sees are huge; of the row's, the fresh ones are put where they belong. */
static void fill_keys(spelling spelled, const int64_t *position, int64_t steps, int64_t room) {
    for (int part = 0; part < 2; part++) {
        fill(kept[part], (size_t)(BATCH * SHARED * room * WIDTH), (uint32_t)(2 + part));
        fill(fresh[part], (size_t)(BATCH * SHARED * steps * WIDTH), (uint32_t)(4 + part));
        for (int64_t at = 0; at < BATCH * SHARED * room; at++) {
            bool seen = false;
            for (int64_t i = 0; i < steps; i++)
                seen = seen ||
                       sees(spelled, position[spelled == EACH ? at / room / SHARED : 0], steps, room, i, at % room);
            for (int c = 0; c < WIDTH && !seen; c++) kept[part][at * WIDTH + c] = 1e30F;
        }
    }
}

/* What the row stores, for `expect`, which comes behind the run. */
static void put_fresh(int64_t position, int64_t steps, int64_t room) {
    const int64_t last = room - steps, start = position < 0 ? 0 : position > last ? last : position;
    for (int part = 0; part < 2; part++)
        for (int64_t at = 0; at < BATCH * SHARED * steps * WIDTH; at++) {
            const int64_t row = at / WIDTH, to = row / steps * room + start + row % steps;
            assert_true(kept[part][to * WIDTH + at % WIDTH] == fresh[part][at]);
        }
}

static void run_at(dlc_context *context, dlc_program *program, spelling spelled, dlc_dtype dtype,
                   const int64_t *position, int64_t steps, int64_t room) {
    static double expected[BATCH * HEADS * STEPS_MOST * WIDTH];
    int32_t narrow[BATCH] = {(int32_t)position[0], (int32_t)position[1]};
    int64_t wide[BATCH] = {position[0], position[1]}, batch = BATCH;
    tensor t[8];
    DLTensor start = {.data = dtype == DLC_I64 ? (void *)wide : narrow,
                      .device = {kDLCPU, 0},
                      .dtype = {kDLInt, dtype == DLC_I64 ? 64 : 32, 1},
                      .ndim = spelled == EACH,
                      .shape = &batch};
    fill(q, (size_t)(BATCH * HEADS * steps * WIDTH), 1);
    fill_keys(spelled, position, steps, room);
    DLTensor *k = F32(&t[1], kept[0], BATCH, SHARED, room, WIDTH), *v = F32(&t[2], kept[1], BATCH, SHARED, room, WIDTH);
    const DLTensor *queries = F32(&t[0], q, BATCH, HEADS, steps, WIDTH);
    const DLTensor *inputs[] = {queries, k, v, &start};
    const DLTensor *all[] = {queries,
                             F32(&t[3], fresh[0], BATCH, SHARED, steps, WIDTH),
                             F32(&t[4], fresh[1], BATCH, SHARED, steps, WIDTH),
                             k,
                             v,
                             &start};
    dlc_output_slot slots[] = {{F32(&t[5], y, BATCH, HEADS, steps, WIDTH), NULL}, {k, NULL}, {v, NULL}};
    if (spelled == ROW)
        OK(context, dlc_run(program, NULL, all, 6, slots, 3));
    else
        OK(context, dlc_run(program, NULL, inputs, 4, slots, 1));
    if (spelled == ROW) put_fresh(position[0], steps, room);
    expect(spelled, position, steps, room, expected);
    CLOSE(y, expected, (size_t)(BATCH * HEADS * steps * WIDTH), 1e-5);
}

static void test_attention(void **state) {
    (void)state;
    static const int64_t steps[] = {1, 3, STEPS_MOST}, rooms[] = {24, 64, ROOM_MOST};
    for (int spelled = ROW; spelled <= EACH; spelled++)
        for (int s = 0; s < 9; s++) {
            const int64_t n = steps[s / 3], room = rooms[s % 3];
            const dlc_dtype dtype = s % 2 ? DLC_I32 : DLC_I64;
            const int64_t low = dtype == DLC_I64 ? INT64_MIN : INT32_MIN,
                          high = dtype == DLC_I64 ? INT64_MAX : INT32_MAX;
            const int64_t at[] = {0,  room / 3, room - 1, room - n, room, 10 * room,
                                  -1, -n,       low,      low + 5,  high, high - 2};
            if (!test_takes(s + spelled, 2)) continue;
            if (dtype == DLC_I32 && (spelled == SUM || spelled == WINDOW)) continue; /* `sees` wraps by 64 bits */
            dlc_context *context = open_context("cpu", NULL);
            if (!context) return;
            dlc_program *program = attention_program(context, (spelling)spelled, dtype, n, room);
            const int count = (int)(sizeof at / sizeof *at);
            for (int i = 0; i < count; i++) {
                const int64_t position[BATCH] = {at[i], at[(i + 5) % count]};
                print_message("%s, %d queries, room for %d, position %lld\n", names[spelled], (int)n, (int)room,
                              (long long)at[i]);
                run_at(context, program, (spelling)spelled, dtype, position, n, room);
            }
            const dlc_statistics done = statistics(context);
            assert_int_equal(done.interpreted_regions, 0);
            assert_int_equal(done.copied_bytes, 0);
            dlc_program_destroy(program);
            dlc_context_destroy(context);
        }
}

/* ---- rows of a batch, each as long as it says */

enum { ROWS = 21, LENGTH = 130, COLUMNS = 5 };

static void test_padded(void **state) {
    (void)state;
    static float x[ROWS * LENGTH * COLUMNS], out[ROWS * COLUMNS];
    static double expected[ROWS * COLUMNS];
    for (int along = 0; along < 2; along++) { /* rows of numbers; rows of points with columns */
        const int64_t columns = along ? 1 : COLUMNS;
        dlc_context *context = open_context("cpu", NULL);
        if (!context) return;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value in = dlc_input(g, "x", DLC_F32, 3, DIMS({ROWS, NULL}, {LENGTH, NULL}, {columns, NULL}));
        dlc_value length = dlc_input(g, "length", DLC_I64, 1, DIMS({ROWS, NULL}));
        dlc_value at = dlc_iota(g, DLC_I64, 3, DIMS({ROWS, NULL}, {LENGTH, NULL}, {1, NULL}), 1);
        dlc_value there = dlc_lt(at, dlc_reshape(length, 3, DIMS({ROWS, NULL}, {1, NULL}, {1, NULL})));
        const int64_t axis = 1;
        dlc_output(g, "y", dlc_reduce_sum(dlc_select(there, in, dlc_scalar(g, DLC_F32, 0)), 1, &axis));
        dlc_program *program = compile(context, g);
        int64_t lengths[ROWS], rows = ROWS;
        fill(x, (size_t)(ROWS * LENGTH * columns), 7);
        for (int64_t r = 0; r < ROWS; r++) {
            const int64_t hostile[] = {0, LENGTH, LENGTH + 1, -1, INT64_MAX, INT64_MIN};
            lengths[r] = r < 6 ? hostile[r] : r * 6 % LENGTH;
            for (int64_t c = 0; c < columns; c++) expected[r * columns + c] = 0;
            for (int64_t i = 0; i < LENGTH * columns; i++)
                if (i / columns < lengths[r])
                    expected[r * columns + i % columns] += (double)x[r * LENGTH * columns + i];
                else
                    x[r * LENGTH * columns + i] = NAN;
        }
        tensor t[2];
        DLTensor ends = {.data = lengths, .device = {kDLCPU, 0}, .dtype = {kDLInt, 64, 1}, .ndim = 1, .shape = &rows};
        const DLTensor *inputs[] = {F32(&t[0], x, ROWS, LENGTH, columns), &ends};
        dlc_output_slot slot = {F32(&t[1], out, ROWS, columns), NULL};
        OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
        CLOSE(out, expected, (size_t)(ROWS * columns), 1e-5);
        assert_int_equal(statistics(context).interpreted_regions, 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_padded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
