/* Random bits: Philox4x32-10 (Salmon et al. 2011) as arithmetic on i64 that hold words of 32 bits, since few implementations of ONNX have
 * products of unsigned integers. */
#include "graph/onnx/export.h"

static onnx_label *whole(onnx_export *ex, int64_t number) {
    return onnx_whole(ex, DLC_I64, number);
}

#define WORD (INT64_C(1) << 32)
#define HALF (INT64_C(1) << 16)

static onnx_label *modulo(onnx_export *ex, onnx_label *x, int64_t by) {
    return ONNX_ADD(ex, "Mod", x, whole(ex, by));
}
static onnx_label *over(onnx_export *ex, onnx_label *x, int64_t by) {
    return ONNX_ADD(ex, "Div", x, whole(ex, by));
}
static onnx_label *times(onnx_export *ex, onnx_label *x, int64_t by) {
    return ONNX_ADD(ex, "Mul", x, whole(ex, by));
}
static onnx_label *sum(onnx_export *ex, onnx_label *a, onnx_label *b) {
    return ONNX_ADD(ex, "Add", a, b);
}
static onnx_label *xor3(onnx_export *ex, onnx_label *a, onnx_label *b, onnx_label *c) {
    return ONNX_ADD(ex, "BitwiseXor", ONNX_ADD(ex, "BitwiseXor", a, b), c);
}

/* Sets *high and *low to the two words of the product of x and `by`, computed from halves of x: no partial product exceeds 2^49. */
static void product(onnx_export *ex, onnx_label *x, int64_t by, onnx_label **high, onnx_label **low) {
    onnx_label *first = times(ex, modulo(ex, x, HALF), by), *second = times(ex, over(ex, x, HALF), by);
    second = sum(ex, second, over(ex, first, HALF));
    *high = over(ex, second, HALF);
    *low = sum(ex, times(ex, modulo(ex, second, HALF), HALF), modulo(ex, first, HALF));
}

static void rounds(onnx_export *ex, onnx_label *counter[4], onnx_label *key[2]) {
    static const int64_t factor[2] = {0xD2511F53, 0xCD9E8D57}, step[2] = {0x9E3779B9, 0xBB67AE85};
    enum { ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        onnx_label *high[2], *low[2];
        for (int i = 0; i < 2; i++) product(ex, counter[2 * i], factor[i], &high[i], &low[i]);
        counter[0] = xor3(ex, high[1], counter[1], key[0]);
        counter[2] = xor3(ex, high[0], counter[3], key[1]);
        counter[1] = low[1], counter[3] = low[0];
        for (int i = 0; i < 2; i++) key[i] = modulo(ex, sum(ex, key[i], whole(ex, step[i])), WORD);
    }
}

/* Sets word[] to the low and the high word of a number of 64 bits; ONNX's Mod has the sign of the divisor. */
static void split(onnx_export *ex, onnx_label *x, onnx_label *word[2]) {
    word[0] = modulo(ex, x, WORD);
    word[1] = modulo(ex, over(ex, ONNX_ADD(ex, "Sub", x, word[0]), WORD), WORD);
}

/* The i64 of a low and a high word, the high one taken as signed. */
static onnx_label *joined(onnx_export *ex, onnx_label *low, onnx_label *high) {
    onnx_label *is_low = ONNX_ADD(ex, "Less", high, whole(ex, WORD / 2));
    high = ONNX_ADD(ex, "Where", is_low, high, ONNX_ADD(ex, "Sub", high, whole(ex, WORD)));
    return sum(ex, times(ex, high, WORD), low);
}

/* `count` words of each block, each word a list [blocks], as one list, block after block, cut to its first `total` elements. */
static onnx_label *interleaved(onnx_export *ex, int count, onnx_label *const *word, tir_expr total) {
    onnx_label *part[4];
    for (int i = 0; i < count; i++) part[i] = onnx_unsqueezed(ex, word[i], 1, (int64_t[]){1});
    onnx_label *all = onnx_add(ex, "Concat", count, part);
    onnx_set(ex, "axis", 1);
    all = ONNX_ADD(ex, "Reshape", all, onnx_list(ex, 1, (int64_t[]){-1}));
    return onnx_sliced(ex, all, 0, onnx_list(ex, 1, (int64_t[]){0}), onnx_size(ex, total));
}

void onnx_export_bits(onnx_export *ex) {
    const graph_shape *y = onnx_result_shape(ex, 0);
    tir_pool *pool = ex->g->pool;
    const int each = y->dtype == DLC_I64 ? 2 : 4; /* results of a block */
    tir_expr total = tir_index(pool, 1);
    onnx_label *counter[4], *key[2], *given = onnx_in(ex, 0);
    onnx_need(ex, 18);
    for (int d = 0; d < y->rank; d++) total = tir_mul(pool, total, y->dim[d]);
    onnx_label *blocks = onnx_export_counted(ex, tir_ceil_div(pool, total, tir_index(pool, each)));
    split(ex, given ? given : whole(ex, onnx_row_int(ex, "seed")), key);
    split(ex, blocks, counter);
    counter[2] = whole(ex, onnx_row_int(ex, "stream"));
    counter[3] = whole(ex, onnx_row_int(ex, "part"));
    rounds(ex, counter, key);
    onnx_label *word[2] = {NULL};
    for (int i = 0; i < 2 && each == 2; i++) word[i] = joined(ex, counter[2 * i], counter[2 * i + 1]);
    onnx_label *list = interleaved(ex, each, each == 2 ? word : counter, total);
    if (y->dtype != DLC_I64) list = onnx_to(ex, list, y->dtype);
    onnx_export_give_label(ex, 0, onnx_shaped(ex, list, y->rank, y->dim));
}
