/* Packs tensors to kernels' layouts and unpacks them: a layout has a position for every element, so packing is reversible. */
#include "jit/internal.h"

/* Extents and strides of the physical dimensions; returns the number of elements. */
static size_t physical(const tir_layout *layout, const int64_t *shape, int64_t *stride) {
    size_t count = 1;
    for (int p = layout->count - 1; p >= 0; p--) {
        const tir_layout_part *part = &layout->part[p];
        stride[p] = (int64_t)count;
        count *= (size_t)(part->modulus ? part->modulus : (shape[part->dim] + part->divisor - 1) / part->divisor);
    }
    return count;
}

/* place[i]: the offset, in elements, that coordinate i of the dimension adds to a position in the packed copy. */
static void place_dimension(const tir_layout *layout, const int64_t *stride, int dim, int64_t count, int64_t *place) {
    for (int64_t i = 0; i < count; i++) {
        place[i] = 0;
        for (int p = 0; p < layout->count; p++) {
            const tir_layout_part *part = &layout->part[p];
            int64_t value = i / part->divisor;
            if (part->dim == dim) place[i] += (part->modulus ? value % part->modulus : value) * stride[p];
        }
    }
}

/* The length of the runs of a row that are contiguous in the copy, too: that of the first run, if the copy breaks only at its multiples;
 * else 1. */
static int64_t run_of(const int64_t *place, int64_t count) {
    int64_t run = 1;
    while (run < count && place[run] == place[run - 1] + 1) run++;
    for (int64_t i = 1; i < count; i++)
        if (i % run && place[i] != place[i - 1] + 1) return 1;
    return run;
}

/* copy_row for runs of more than one element. */
static void copy_runs(const jit_packing *packing, int64_t count, const int64_t *place, bool back, char *row,
                      char *packed) {
    const size_t size = packing->element;
    const int64_t run = packing->run;
    for (int64_t i = 0; i < count; i += run) {
        char *a = row + (size_t)i * size, *b = packed + (size_t)place[i] * size;
        memcpy(back ? a : b, back ? b : a, (size_t)(run < count - i ? run : count - i) * size);
    }
}

/* Copies `count` elements from a contiguous row to their places in the packed copy (back: the reverse). If packing->run > 1, `count` is the
 * whole row. */
static void copy_row(const jit_packing *packing, int64_t count, const int64_t *place, bool back, char *row,
                     char *packed) {
    const size_t size = packing->element;
    if (packing->run > 1) {
        copy_runs(packing, count, place, back, row, packed);
        return;
    }
    switch (size) { /* memcpy of a constant size becomes a move */
    case 1:
        for (int64_t i = 0; i < count; i++)
            *(back ? row + i : packed + place[i]) = *(back ? packed + place[i] : row + i);
        break;
    case 2:
        for (int64_t i = 0; i < count; i++)
            memcpy(back ? row + 2 * i : packed + 2 * place[i], back ? packed + 2 * place[i] : row + 2 * i, 2);
        break;
    case 4:
        for (int64_t i = 0; i < count; i++)
            memcpy(back ? row + 4 * i : packed + 4 * place[i], back ? packed + 4 * place[i] : row + 4 * i, 4);
        break;
    default:
        for (int64_t i = 0; i < count; i++) {
            char *a = row + (size_t)i * size, *b = packed + (size_t)place[i] * size;
            memcpy(back ? a : b, back ? b : a, size);
        }
        break;
    }
}

jit_packing jit_packing_outline(const tir_layout *layout, size_t element, const int64_t *shape) {
    int64_t stride[TIR_MAX_PHYSICAL];
    jit_packing packing = {.layout = *layout, .element = element, .run = 1};
    const size_t count = physical(layout, shape, stride);
    size_t own = 1;
    packing.bytes = count * element;
    for (int d = 0; d < layout->rank; d++) own *= (size_t)shape[d];
    packing.padded = count != own;
    for (int d = 0; d < layout->rank; d++) packing.shape[d] = shape[d];
    return packing;
}

/* A row is the last dimension, or several trailing ones together while they have fewer than ROW_LEAST elements, up to ROW_MOST. */
enum { ROW_LEAST = 256, ROW_MOST = 1 << 14 };

/* The first of the dimensions that form a row, which depends on the shape only; *length: elements of a row. */
static int first_of_rows(int rank, const int64_t *shape, int64_t *length) {
    int first = rank;
    for (*length = 1; first > 0; first--) {
        const int64_t extent = shape[first - 1];
        if (first < rank && (*length >= ROW_LEAST || *length * extent > ROW_MOST || !extent)) break;
        *length *= extent;
    }
    return first;
}

/* Positions of the elements of rows that consist of the dimensions from `first` on. */
static int64_t *place_rows(lib_arena *arena, const jit_packing *packing, const int64_t *stride, int first) {
    int64_t *row = LIB_NEW_ARRAY(arena, int64_t, 1), length = 1;
    for (int d = first; d < packing->layout.rank; d++) {
        const int64_t extent = packing->shape[d], *const outer = row;
        int64_t *place = LIB_NEW_ARRAY(arena, int64_t, (size_t)extent);
        place_dimension(&packing->layout, stride, d, extent, place);
        row = LIB_NEW_ARRAY(arena, int64_t, (size_t)(length * extent));
        for (int64_t i = 0; i < length * extent; i++) row[i] = outer[i / extent] + place[i % extent];
        length *= extent;
    }
    return row;
}

jit_packing jit_packing_of(lib_arena *arena, const tir_layout *layout, size_t element, const int64_t *shape) {
    int64_t stride[TIR_MAX_PHYSICAL], length;
    jit_packing packing = jit_packing_outline(layout, element, shape);
    physical(layout, shape, stride);
    packing.outer = first_of_rows(layout->rank, shape, &length);
    packing.row = length;
    for (int d = 0; d < packing.outer; d++) {
        packing.places[d] = LIB_NEW_ARRAY(arena, int64_t, (size_t)shape[d]);
        place_dimension(layout, stride, d, shape[d], packing.places[d]);
    }
    packing.row_places = place_rows(arena, &packing, stride, packing.outer);
    packing.run = run_of(packing.row_places, length);
    return packing;
}

/* iterates over the rows of a tensor in order */
typedef struct row_walk {
    int64_t rows, index[DLC_MAX_RANK];
} row_walk;

static row_walk row_at(const jit_packing *packing, int64_t row) {
    row_walk walk = {.rows = packing->row != 0};
    for (int d = packing->outer; d-- > 0; row /= packing->shape[d]) {
        walk.rows *= packing->shape[d];
        if (!walk.rows) break;
        walk.index[d] = row % packing->shape[d];
    }
    return walk;
}

static void next_row(row_walk *walk, const jit_packing *packing) {
    for (int d = packing->outer - 1; d >= 0 && ++walk->index[d] == packing->shape[d]; d--) walk->index[d] = 0;
}

/* Offset in bytes of the current row's first element in the packed copy. */
static size_t row_place(const jit_packing *packing, const row_walk *walk) {
    int64_t at = 0;
    for (int d = 0; d < packing->outer; d++) at += packing->places[d][walk->index[d]];
    return (size_t)at * packing->element;
}

/* Packs or unpacks the current row. */
static void copy_one(const jit_packing *packing, const row_walk *walk, bool back, char *row, char *packed) {
    copy_row(packing, packing->row, packing->row_places, back, row, packed + row_place(packing, walk));
}

static size_t row_bytes(const jit_packing *packing) {
    return (size_t)packing->row * packing->element;
}

/* Packs four rows of elements of 4 bytes, `step` bytes apart, where the four elements of a column are adjacent in the packed copy. */
static void interleave(int64_t count, const int64_t *place, const char *row, size_t step, char *packed) {
    typedef uint32_t four __attribute__((vector_size(16)));
    enum { SIZE = sizeof(uint32_t), ROWS = 4 };
    int64_t i = 0;
    for (; i + ROWS <= count; i += ROWS) {
        four r[ROWS], column[ROWS];
        for (int k = 0; k < ROWS; k++) memcpy(&r[k], row + (size_t)k * step + (size_t)i * SIZE, sizeof r[k]);
        const four a = __builtin_shufflevector(r[0], r[2], 0, 4, 1, 5);
        const four b = __builtin_shufflevector(r[1], r[3], 0, 4, 1, 5);
        const four c = __builtin_shufflevector(r[0], r[2], 2, 6, 3, 7);
        const four d = __builtin_shufflevector(r[1], r[3], 2, 6, 3, 7);
        column[0] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        column[1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        column[2] = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        column[3] = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        for (int k = 0; k < ROWS; k++) memcpy(packed + place[i + k] * SIZE, &column[k], sizeof column[k]);
    }
    for (; i < count; i++)
        for (int k = 0; k < ROWS; k++)
            memcpy(packed + (place[i] + k) * SIZE, row + (size_t)k * step + (size_t)i * SIZE, SIZE);
}

/* Rows without runs are copied by groups of rows, and of each row a part at a time: rows of a group often share cache lines of the packed
 * copy. */
enum { GROUP = 16 /* rows */, PART = 256 /* elements */ };

/* May `interleave` pack the rows of the group from the first of these on? */
static bool is_side_by_side(const jit_packing *packing, int64_t count, char *const *row) {
    bool good = packing->element == sizeof(uint32_t) && count >= 4;
    for (int k = 1; good && k < 4; k++) good = row[k] == row[0] + (size_t)k * packing->element;
    return good;
}

/* Packs or unpacks `count` rows from the current one on; `whole`: the first element of the current row. */
static void copy_group(const jit_packing *packing, row_walk *walk, int64_t count, bool back, char *whole,
                       char *packed) {
    const int64_t *place = packing->row_places;
    const size_t step = row_bytes(packing);
    char *row[GROUP];
    for (int64_t r = 0; r < count; r++, next_row(walk, packing)) row[r] = packed + row_place(packing, walk);
    for (int64_t at = 0; at < packing->row; at += PART) {
        const int64_t part = packing->row - at < PART ? packing->row - at : PART;
        char *from = whole + (size_t)at * packing->element;
        for (int64_t r = 0, rows; r < count; r += rows, from += (size_t)rows * step) {
            rows = !back && is_side_by_side(packing, count - r, row + r) ? 4 : 1;
            if (rows == 4)
                interleave(part, place + at, from, step, row[r]);
            else
                copy_row(packing, part, place + at, back, from, row[r]);
        }
    }
}

/* Packs or unpacks rows begin .. end - 1; `whole`: the first element of row 0. */
static void copy_rows(const jit_packing *packing, int64_t begin, int64_t end, bool back, char *whole, char *packed) {
    row_walk walk = row_at(packing, begin);
    const size_t step = row_bytes(packing);
    const bool scattered = packing->run == 1;
    for (int64_t row = begin, count; row < end; row += count) {
        char *first = whole + (size_t)row * step;
        count = !scattered ? 1 : end - row < GROUP ? end - row : GROUP;
        if (scattered) {
            copy_group(packing, &walk, count, back, first, packed);
        } else {
            copy_one(packing, &walk, back, first, packed);
            next_row(&walk, packing);
        }
    }
}

static int64_t row_count(const jit_packing *packing) {
    return row_at(packing, 0).rows;
}

void jit_pack(const jit_packing *packing, const char *from, char *to) {
    copy_rows(packing, 0, row_count(packing), false, (char *)(uintptr_t)from, to);
}

void jit_unpack(const jit_packing *packing, const char *from, char *to) {
    copy_rows(packing, 0, row_count(packing), true, to, (char *)(uintptr_t)from);
}

/* ---- on all threads */

enum { TASK = 1 << 19 /* bytes, about */, LARGE = 16 << 20 /* bytes that are given back while they are packed */ };

typedef struct shared_packing {
    const jit_packing *packing;
    char *from, *to;
    /* to be told what has been read; NULL: nobody */
    graph_holder *holder;
    /* by a task */
    int64_t rows;
} shared_packing;

static void pack_task(const shared_packing *s, int64_t task) {
    const size_t step = row_bytes(s->packing);
    const int64_t first = task * s->rows, rest = row_count(s->packing) - first, count = rest < s->rows ? rest : s->rows;
    copy_rows(s->packing, first, first + count, false, s->from, s->to);
    if (s->holder) s->holder->idle(s->holder, s->from + (size_t)first * step, (size_t)count * step);
}

static void pack_tasks(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    (void)phase, (void)slot;
    for (int64_t task = begin; task < end; task++) pack_task(user, task);
}

enum { PIECE = 2 << 20 /* bytes: a huge page */ };

static void clear_pieces(void *user, int64_t phase, int64_t begin, int64_t end, int slot) {
    const shared_packing *s = user;
    const size_t first = (size_t)begin * PIECE, rest = s->packing->bytes - first, most = (size_t)(end - begin) * PIECE;
    (void)phase, (void)slot;
    memset(s->to + first, 0, rest < most ? rest : most);
}

static void clear(const dlc_context *context, const jit_packing *packing, char *to) {
    const lib_phase phase = {.tasks = (int64_t)((packing->bytes + PIECE - 1) / PIECE), .grain = 1};
    shared_packing s = {.packing = packing, .to = to};
    lib_run_phases(context->pool, NULL, NULL, context->threads, 1, &phase, clear_pieces, &s, NULL);
}

void jit_pack_shared(const dlc_context *context, const jit_packing *packing, const char *from, graph_holder *holder,
                     char *to) {
    const int64_t all = row_count(packing), step = (int64_t)row_bytes(packing);
    if (packing->padded) clear(context, packing, to);
    if (!all) return;
    const int64_t rows = step * GROUP < TASK ? TASK / (step * GROUP) * GROUP : GROUP;
    const lib_phase phase = {.tasks = (all + rows - 1) / rows, .grain = 1};
    shared_packing s = {.packing = packing, .from = (char *)(uintptr_t)from, .to = to, .rows = rows};
    if (holder && holder->idle && all * step >= LARGE) s.holder = holder;
    lib_run_phases(context->pool, NULL, NULL, context->threads, 1, &phase, pack_tasks, &s, NULL);
}

void jit_repack(lib_arena *work, const jit_packing *there, const char *from, const jit_packing *packing, char *to) {
    row_walk walk = row_at(packing, 0);
    char *one = lib_arena_take(work, row_bytes(packing));
    for (int64_t row = 0; row < walk.rows; row++, next_row(&walk, packing)) {
        copy_one(there, &walk, true, one, (char *)(uintptr_t)from);
        copy_one(packing, &walk, false, one, to);
    }
}
