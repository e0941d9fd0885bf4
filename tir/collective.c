/* The table of collective statements and arithmetic on its bit maps. */
#include "tir/collective.h"

#include <string.h>

enum { L0, L1, L2, L3, L4, R0 = TIR_REGISTER_BIT, R1, R2 };

/* clang-format off */
#define ACCUMULATOR {.dtype = DLC_F32, .uses = 3, .bit = {{L2, L3, L4, R1}, {R0, L0, L1}}}
#define LEFT(type)  {.dtype = type, .uses = 5, .bit = {{L2, L3, L4, R1}, {0}, {R0, L0, L1, R2}}}
#define RIGHT(type) {.dtype = type, .uses = 6, .bit = {{0}, {L2, L3, L4}, {R0, L0, L1, R1}}}
#define MMA(name, type) \
    {name, TIR_MMA, 80, 3, {4, 3, 4}, {"i", "j", "k"}, {ACCUMULATOR, LEFT(type), RIGHT(type)}}

#define ROWS    {.dtype = TIR_INDEX, .uses = 7, .bit = {{R1, R2}, {L2, L3, L4}, {R0, L0, L1}}}
#define COLUMNS {.dtype = TIR_INDEX, .uses = 7, .bit = {{R1, R2}, {R0, L0, L1}, {L2, L3, L4}}}
#define SHARED  {.dtype = TIR_INDEX, .memory = true, .uses = 7}
#define LDMATRIX(name, matrices, map) {name, TIR_LDMATRIX, 75, 2, {matrices, 3, 3}, {"q", "r", "c"}, {map, SHARED}}

static const tir_collective rows[] = {
    MMA("mma.m16n8k16.bf16", DLC_BF16),
    MMA("mma.m16n8k16.f16", DLC_F16),
    LDMATRIX("ldmatrix.x1", 0, ROWS),
    LDMATRIX("ldmatrix.x2", 1, ROWS),
    LDMATRIX("ldmatrix.x4", 2, ROWS),
    LDMATRIX("ldmatrix.x1.trans", 0, COLUMNS),
    LDMATRIX("ldmatrix.x2.trans", 1, COLUMNS),
    LDMATRIX("ldmatrix.x4.trans", 2, COLUMNS),
};
/* clang-format on */
enum { ROW_COUNT = sizeof rows / sizeof *rows };

const tir_collective *tir_collective_row(int i) {
    return i < ROW_COUNT ? &rows[i] : NULL;
}

const tir_collective *tir_collective_find(const char *name) {
    for (int i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* Bits of the point that map to lane bits (first 0) or register bits (first TIR_REGISTER_BIT). */
static int gather(const tir_collective *row, int place, const int *point, int first) {
    const tir_fragment *fragment = &row->place[place];
    int result = 0;
    for (int v = 0; v < TIR_COLLECTIVE_VARS; v++)
        for (int b = 0; b < row->bits[v] && fragment->uses >> v & 1; b++) {
            int to = fragment->bit[v][b];
            if ((to >= TIR_REGISTER_BIT) == (first > 0)) result |= (point[v] >> b & 1) << (to - first);
        }
    return result;
}

int tir_fragment_lane(const tir_collective *row, int place, const int *point) {
    return gather(row, place, point, 0);
}

int tir_fragment_register(const tir_collective *row, int place, const int *point) {
    return gather(row, place, point, TIR_REGISTER_BIT);
}

void tir_fragment_point(const tir_collective *row, int place, int lane, int number, int *point) {
    const tir_fragment *fragment = &row->place[place];
    for (int v = 0; v < TIR_COLLECTIVE_VARS; v++) {
        point[v] = 0;
        for (int b = 0; b < row->bits[v] && fragment->uses >> v & 1; b++) {
            int from = fragment->bit[v][b];
            int bit = from >= TIR_REGISTER_BIT ? number >> (from - TIR_REGISTER_BIT) : lane >> from;
            point[v] |= (bit & 1) << b;
        }
    }
}

int tir_fragment_registers(const tir_collective *row, int place) {
    int elements = 1;
    for (int v = 0; v < TIR_COLLECTIVE_VARS; v++)
        if (row->place[place].uses >> v & 1) elements <<= row->bits[v];
    return elements / 32;
}
