/* Windows that slide over dimensions, of convolutions, reduce_window and pools: their geometry (ops_window.c). */
#ifndef DLC_GRAPH_WINDOW_H
#define DLC_GRAPH_WINDOW_H

#include "graph/ops_common.h"

/* The four lists of an operator, attributes in this order; an empty list means 1 (stride, dilation) or 0 (low, high). */
enum { WINDOW_STRIDE, WINDOW_LOW, WINDOW_HIGH, WINDOW_DILATION, WINDOW_LISTS };
/* With dimensions below 2^40, also of symbols without hints, index arithmetic stays within 62 bits. */
#define WINDOW_LIMIT (INT64_C(1) << 31)
#define DILATION_LIMIT (INT64_C(1) << 20)

/* A list's name, what an empty one means, and the range of its entries. */
typedef struct graph_window_list {
    const char *name;
    int64_t initial, least, most;
} graph_window_list;

extern const graph_window_list graph_window_lists[WINDOW_LISTS];

/* The choices of reduce_window's op. */
enum { REDUCE_WINDOW_SUM, REDUCE_WINDOW_MAX, REDUCE_WINDOW_MIN };

/* The entries of one dimension. */
typedef struct graph_window {
    int64_t number[WINDOW_LISTS];
} graph_window;

graph_window graph_window_of(const graph_attribute *lists, int dimension);

/* Raise if a list or the sizes do not fit the number of windowed dimensions, or an entry is out of range. */
void graph_window_check_lists(const graph_infer *infer, const graph_attribute *lists, int dimensions);
void graph_window_check_sizes(const graph_infer *infer, const graph_attribute *sizes, int dimensions);

/* Number of outputs along a dimension of `size` elements. */
tir_expr graph_window_outputs(tir_pool *pool, tir_expr size, tir_expr extent, graph_window w);

/* Attributes of a row. */
#define GRAPH_WINDOW_ATTRIBUTES(stride_doc_)                                                                       \
    {"stride", GRAPH_ATTR_INTEGERS, NULL, "[]", stride_doc_},                                                      \
        {"low", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding before the first element; empty: 0; negative removes"},  \
        {"high", GRAPH_ATTR_INTEGERS, NULL, "[]", "padding after the last element; empty: 0; negative removes"}, { \
        "dilation", GRAPH_ATTR_INTEGERS, NULL, "[]", "distance of the elements of a window; empty: 1"              \
    }

#ifdef DLC_REFERENCE

enum { GRAPH_REFERENCE_WINDOW_MOST = 1 << 12 };

int64_t graph_reference_entry(const graph_attribute *list, int64_t i, int64_t empty);

/* The input index of output o and window position k along dimension i; -1: on padding. */
int64_t graph_reference_window_position(const graph_attribute *lists, int64_t i, int64_t stride, int64_t o, int64_t k,
                                        int64_t size);

/* Sets out[] to the elements of the window at result index `to`, of dimensions from `first` on, without padding; returns their number. */
int64_t graph_reference_window(const graph_reference *r, int first, const int64_t *size, const graph_attribute *lists,
                               bool stride_is_size, const int64_t *to, double *out);

#endif

#endif
