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

/* Positions of a row's elements in the packed copy relative to the first one: the offsets that the coordinates of the last
 * dimension add. */
static void place_row(const tir_layout *layout, const int64_t *stride, int dim, int64_t count, int64_t *place) {
    for (int64_t i = 0; i < count; i++) {
        place[i] = 0;
        for (int p = 0; p < layout->count; p++) {
            const tir_layout_part *part = &layout->part[p];
            int64_t value = i / part->divisor;
            if (part->dim == dim) place[i] += (part->modulus ? value % part->modulus : value) * stride[p];
        }
    }
}

/* The longest run length for which all runs of a row are contiguous in the copy, too. */
static int64_t run_of(const int64_t *place, int64_t count) {
    int64_t run = 1;
    while (run < count && place[run] == place[run - 1] + 1) run++;
    for (int64_t i = 1; i < count; i++)
        if (i % run && place[i] != place[i - 1] + 1) return 1;
    return run;
}

/* Copies between a contiguous row and its elements in the packed copy. */
static void copy_row(const jit_packing *packing, int64_t count, const int64_t *place, bool back, char *row,
                     char *packed) {
    const size_t size = packing->element;
    const int64_t run = packing->run;
    if (run > 1) {
        for (int64_t i = 0; i < count; i += run) {
            char *a = row + (size_t)i * size, *b = packed + (size_t)place[i] * size;
            memcpy(back ? a : b, back ? b : a, (size_t)(run < count - i ? run : count - i) * size);
        }
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

jit_packing jit_packing_of(lib_arena *arena, const tir_layout *layout, size_t element, const int64_t *shape) {
    int64_t stride[TIR_MAX_PHYSICAL];
    jit_packing packing = jit_packing_outline(layout, element, shape);
    physical(layout, shape, stride);
    for (int d = 0; d < layout->rank; d++) {
        packing.places[d] = LIB_NEW_ARRAY(arena, int64_t, (size_t)shape[d]);
        place_row(layout, stride, d, shape[d], packing.places[d]);
        if (d == layout->rank - 1) packing.run = run_of(packing.places[d], shape[d]);
    }
    return packing;
}

/* iterates over the rows of a tensor in order */
typedef struct row_walk {
    int64_t rows, index[DLC_MAX_RANK];
} row_walk;

static row_walk first_row(const jit_packing *packing) {
    row_walk walk = {.rows = 1};
    for (int d = 0; d < packing->layout.rank; d++)
        walk.rows *= d < packing->layout.rank - 1 ? packing->shape[d] : packing->shape[d] != 0;
    return walk;
}

static void next_row(row_walk *walk, const jit_packing *packing) {
    for (int d = packing->layout.rank - 2; d >= 0 && ++walk->index[d] == packing->shape[d]; d--) walk->index[d] = 0;
}

/* Packs or unpacks the current row. */
static void copy_one(const jit_packing *packing, const row_walk *walk, bool back, char *row, char *packed) {
    static const int64_t first = 0; /* position of a scalar */
    const int last = packing->layout.rank - 1;
    int64_t at = 0;
    for (int d = 0; d < last; d++) at += packing->places[d][walk->index[d]];
    copy_row(packing, last < 0 ? 1 : packing->shape[last], last < 0 ? &first : packing->places[last], back, row,
             packed + (size_t)at * packing->element);
}

static size_t row_bytes(const jit_packing *packing) {
    const int rank = packing->layout.rank;
    return rank ? (size_t)packing->shape[rank - 1] * packing->element : packing->element;
}

static void copy_rows(const jit_packing *packing, bool back, char *whole, char *packed) {
    row_walk walk = first_row(packing);
    const size_t step = row_bytes(packing);
    for (int64_t row = 0; row < walk.rows; row++, whole += step, next_row(&walk, packing))
        copy_one(packing, &walk, back, whole, packed);
}

void jit_pack(const jit_packing *packing, const char *from, char *to) {
    copy_rows(packing, false, (char *)(uintptr_t)from, to);
}

void jit_unpack(const jit_packing *packing, const char *from, char *to) {
    copy_rows(packing, true, to, (char *)(uintptr_t)from);
}

void jit_repack(lib_arena *work, const jit_packing *there, const char *from, const jit_packing *packing, char *to) {
    row_walk walk = first_row(packing);
    char *one = lib_arena_take(work, row_bytes(packing));
    for (int64_t row = 0; row < walk.rows; row++, next_row(&walk, packing)) {
        copy_one(there, &walk, true, one, (char *)(uintptr_t)from);
        copy_one(packing, &walk, false, one, to);
    }
}
