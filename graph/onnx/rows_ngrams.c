/* TfIdfVectorizer: counts of n-grams. In the graph, each n-gram of the pool is compared with all windows of a row and the matches are added up.
 * For strings known at import the counts are computed at import. */
#include "graph/onnx/structure.h"

enum { TF, IDF, TFIDF };

typedef struct ngrams {
    int64_t least, longest, skips;
    int mode;
    /* The items of all n-grams in a row, strings as numbers. grams[n]: the first item of the n-grams of n + 1 items. */
    const int64_t *pool;
    int64_t items;
    const int64_t *grams;
    int lengths;
    /* The number of n-grams; the column and the weight of each (NULL: all weights are 1). */
    int64_t total;
    const int64_t *column;
    const float *weight;
    /* The number of columns of the result. */
    int64_t width;
} ngrams;

/* The strings of the pool as numbers, equal for equal strings. Sets *items to those of operand 0; -1: not in the pool. */
static const int64_t *pool_of_strings(onnx_import *im, onnx_names pool, onnx_value *items) {
    const onnx_structure *x = onnx_operand_strings(im, 0);
    int64_t *number = LIB_NEW_ARRAY(im->g->arena, int64_t, pool.count + 1);
    onnx_table_of(im, pool.count, pool.data, number);
    int64_t *of_word = onnx_find_words(im, x, pool.count, pool.data);
    for (size_t w = 0; w < x->words; w++) of_word[w] = of_word[w] == (int64_t)pool.count ? -1 : number[of_word[w]];
    *items = onnx_look_up(im, x->part, DLC_I64, (int64_t)x->words, of_word);
    return number;
}

/* The number of items in the pool's part for n-grams of n + 1 items; raises if it is no multiple of n + 1. */
static int64_t part_items(onnx_import *im, const ngrams *a, int n) {
    const int64_t from = a->grams[n], to = n + 1 < a->lengths ? a->grams[n + 1] : a->items;
    if (from < 0 || to < from || to > a->items || (to - from) % (n + 1))
        onnx_fail(im, DLC_PARSE_ERROR, "ngram_counts: n-grams of %d items from %lld to %lld of a pool of %lld", n + 1,
                  (long long)from, (long long)to, (long long)a->items);
    return to - from;
}

/* The number of columns of the result: one more than the greatest column of an n-gram. */
static int64_t width_of(onnx_import *im, const int64_t *column, int columns) {
    int64_t width = 0;
    for (int i = 0; i < columns; i++) {
        if (column[i] < 0 || column[i] >= 1 << 24)
            onnx_fail(im, DLC_PARSE_ERROR, "column %lld of an n-gram", (long long)column[i]);
        width = column[i] >= width ? column[i] + 1 : width;
    }
    return width;
}

/* Reads the attributes. Sets *items to operand 0, its strings as integers. */
static ngrams ngrams_of(onnx_import *im, onnx_value *items) {
    const onnx_attribute *integers = onnx_attribute_find(im, "pool_int64s", ONNX_ATTRIBUTE_INTS);
    const onnx_names strings = onnx_strings_attribute(im, "pool_strings");
    ngrams a = {.least = onnx_int(im, "min_gram_length", 1),
                .longest = onnx_int(im, "max_gram_length", 1),
                .skips = onnx_int(im, "max_skip_count", 0),
                .mode = onnx_choice(im, "mode", "TF IDF TFIDF", "")};
    int columns, weights;
    a.grams = onnx_ints(im, "ngram_counts", &a.lengths);
    a.column = onnx_ints(im, "ngram_indexes", &columns);
    a.weight = onnx_floats(im, "weights", &weights);
    if (!!integers == !!strings.count)
        onnx_fail(im, DLC_PARSE_ERROR, "both or none of pool_int64s and pool_strings are given");
    if (a.least < 1 || a.longest < a.least || a.longest > a.lengths || a.skips < 0 || a.skips > 1 << 16)
        onnx_fail(im, DLC_PARSE_ERROR, "n-grams of %lld to %lld items, %lld skips, and starts for %d lengths",
                  (long long)a.least, (long long)a.longest, (long long)a.skips, a.lengths);
    a.items = integers ? (int64_t)integers->ints.count : (int64_t)strings.count;
    for (int n = 0; n < a.lengths; n++) a.total += part_items(im, &a, n) / (n + 1);
    if (a.total != columns || (a.weight && weights != columns))
        onnx_fail(im, DLC_PARSE_ERROR, "%d ngram_indexes and %d weights for %lld n-grams", columns, weights,
                  (long long)a.total);
    a.width = width_of(im, a.column, columns);
    if (!onnx_has(im, 0)) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is missing");
    if (integers) {
        a.pool = integers->ints.data;
        onnx_take_value(items, im->operand[0]);
    } else {
        a.pool = pool_of_strings(im, strings, items);
    }
    return a;
}

/* ---- of known items ---------------------------------------------------------------------------------------------------- */

/* Adds to sum[k] how often n-gram k occurs in a row, its n items `step` apart. */
static void count_row(lib_arena *arena, int n, int64_t step, const int64_t *row, int64_t size, const int64_t *gram,
                      int64_t grams, float *sum) {
    for (int64_t at = 0; at + step * (n - 1) < size; at++) {
        lib_arena_ask(arena); /* of a watch, since this may take long */
        for (int64_t k = 0; k < grams; k++) {
            int i = 0;
            while (i < n && row[at + i * step] == gram[k * n + i]) i++;
            if (i == n) sum[k]++;
        }
    }
}

static float weighed(const ngrams *a, float count, int64_t gram) {
    const float weight = a->weight && a->mode != TF ? a->weight[gram] : 1;
    return (a->mode == IDF ? (count > 0 ? 1.0f : 0.0f) : count) * weight;
}

static void count_known(onnx_import *im, const ngrams *a, const onnx_known *x, const int64_t *items) {
    const int64_t rows = x->rank == 2 ? x->dims[0] : 1, size = x->dims[x->rank - 1];
    if (rows > (INT64_C(1) << 28) / (a->width + 1)) onnx_fail(im, DLC_BUDGET_EXCEEDED, "a result of too many columns");
    float *y = LIB_NEW_ARRAY(im->g->arena, float, (size_t)(rows * a->width) + 1),
          *sum = LIB_NEW_ARRAY(im->g->arena, float, (size_t)a->total + 1);
    for (int64_t r = 0; r < rows; r++) {
        memset(sum, 0, (size_t)a->total * sizeof *sum);
        for (int64_t n = 1, first = 0; n <= a->lengths; n++) {
            const int64_t grams = part_items(im, a, (int)n - 1) / n;
            for (int64_t step = 1; n >= a->least && n <= a->longest && step <= (n > 1 ? a->skips + 1 : 1); step++)
                count_row(im->g->arena, (int)n, step, items + r * size, size, a->pool + a->grams[n - 1], grams,
                          sum + first);
            first += grams;
        }
        for (int64_t k = 0; k < a->total; k++) y[r * a->width + a->column[k]] += weighed(a, sum[k], k);
    }
    const int64_t dims[] = {rows, a->width};
    const onnx_value value = onnx_value_of(im, DLC_F32, x->rank, x->rank == 2 ? dims : dims + 1, y);
    onnx_give_value(im, 0, &value);
}

/* ---- of items in the graph ---------------------------------------------------------------------------------------------- */

/* x[rows, from .. from + windows] of [rows, items]: item i of all windows, before axis 2. */
static graph_id window_items(onnx_import *im, graph_id x, tir_expr windows, int64_t from) {
    tir_pool *pool = im->g->pool;
    const tir_expr size = graph_shape_of(im->g, x)->dim[1], start = tir_min(pool, tir_index(pool, from), size);
    return graph_expand_dims(im->g, graph_slice_axis(im->g, x, 1, start, tir_add(pool, start, windows)), 2);
}

/* How often each n-gram of n items occurs in each row, f32 [rows, grams]. */
static graph_id count_in(onnx_import *im, graph_id x, int n, int64_t step, const int64_t *gram, int64_t grams) {
    graph *g = im->g;
    tir_pool *pool = g->pool;
    const tir_expr size = graph_shape_of(g, x)->dim[1],
                   windows = tir_max(pool, tir_sub(pool, size, tir_index(pool, step * (n - 1))), tir_index(pool, 0));
    const int64_t over_windows = 1;
    graph_id same = 0;
    for (int i = 0; i < n; i++) {
        int64_t *item = LIB_NEW_ARRAY(g->arena, int64_t, (size_t)grams + 1);
        for (int64_t k = 0; k < grams; k++) item[k] = gram[k * n + i];
        const graph_id equal =
            graph_eq(g, window_items(im, x, windows, i * step), graph_literal(g, DLC_I64, 1, &grams, item));
        same = same ? graph_and(g, same, equal) : equal;
    }
    return graph_reduce_sum(g, graph_cast(g, same, DLC_F32), 1, &over_windows, false);
}

/* x [rows, grams] with its columns at their columns of the result; those for the same column are added. */
static graph_id in_columns(onnx_import *im, const ngrams *a, graph_id x) {
    graph *g = im->g;
    const int64_t grams = a->total;
    const tir_expr dims[] = {graph_shape_of(g, x)->dim[0], tir_index(g->pool, a->width)};
    const graph_id zeros = graph_full(g, DLC_F32, 2, dims, 0), index = graph_literal(g, DLC_I64, 1, &grams, a->column);
    const graph_setting s[] = {graph_set_integer("axis", 1), graph_set_integer("combine", 1)};
    return onnx_emit(im, "scatter_elements", 3, (graph_id[]){zeros, graph_broadcast_like(g, index, x), x}, 2, s);
}

static void count_in_graph(onnx_import *im, const ngrams *a, onnx_value *items) {
    graph *g = im->g;
    graph_id x = onnx_id_of(im, items), *part = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)a->lengths + 1);
    const int rank = graph_shape_of(g, x)->rank;
    int parts = 0;
    if (rank == 1) x = graph_expand_dims(g, x, 0);
    x = graph_cast(g, x, DLC_I64);
    for (int n = 0; n < a->lengths; n++) {
        const int64_t grams = part_items(im, a, n) / (n + 1);
        const bool counts = n + 1 >= a->least && n + 1 <= a->longest;
        const tir_expr dims[] = {graph_shape_of(g, x)->dim[0], tir_index(g->pool, grams)};
        if (!grams) continue;
        graph_id sum = counts ? 0 : graph_full(g, DLC_F32, 2, dims, 0);
        for (int64_t step = 1; counts && step <= (n ? a->skips + 1 : 1); step++) {
            const graph_id one = count_in(im, x, n + 1, step, a->pool + a->grams[n], grams);
            sum = sum ? graph_add(g, sum, one) : one;
        }
        part[parts++] = sum;
    }
    if (!parts) onnx_fail(im, DLC_PARSE_ERROR, "its pool is empty");
    graph_id y = parts == 1 ? part[0] : graph_concat(g, parts, part, 1);
    if (a->mode == IDF) y = graph_cast(g, graph_gt(g, y, graph_scalar_like(g, y, 0)), DLC_F32);
    if (a->mode != TF && a->weight) y = graph_mul(g, y, graph_literal(g, DLC_F32, 1, &a->total, a->weight));
    y = in_columns(im, a, y);
    onnx_give(im, 0, rank == 1 ? graph_squeeze(g, y, 0) : y);
}

static void import_tf_idf(onnx_import *im) {
    onnx_value items = {.id = 0};
    const ngrams a = ngrams_of(im, &items);
    const graph_shape shape = onnx_shape_of(im, &items);
    const onnx_known *known = onnx_known_of(im, &items);
    const int64_t *list = onnx_constant_integers(im, known);
    if (shape.rank != 1 && shape.rank != 2)
        onnx_fail(im, DLC_INVALID_ARGUMENT, "items of rank %d; expected [n] or [rows, n]", shape.rank);
    if (!lib_dtype_is_integer(shape.dtype))
        onnx_fail(im, DLC_PARSE_ERROR, "items of type %s; expected integers", lib_dtypes[shape.dtype].name);
    if (list)
        count_known(im, &a, known, list);
    else
        count_in_graph(im, &a, &items);
}

const onnx_row onnx_rows_ngrams[] = {
    {"TfIdfVectorizer", 9, 0, import_tf_idf, NULL},
    {0},
};
