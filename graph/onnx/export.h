/* Exporting: a graph's nodes become nodes of an ONNX model, each by a row of the tables in export_rows*.c, by the scalar expression of a
 * map, or by the expansion of a composite. Shared by the files of this folder.
 *
 * The exporter writes no file: it makes the model's structs in an arena, and write.h encodes them. A node that cannot be exported is noted with
 * its value's name (onnx_refuse), and export continues, so that all such nodes are reported at once. */
#ifndef GRAPH_ONNX_EXPORT_H
#define GRAPH_ONNX_EXPORT_H

#include "graph/internal.h"
#include "graph/onnx/write.h"

/* Where the exported model finds a symbol: it is (size of dimension `axis` of `value` - constant) / coefficient. */
typedef struct onnx_symbol_source {
    onnx_label *value;
    int axis;
    int64_t coefficient, constant;
    /* The symbol as i64[1]; NULL: not made yet. */
    onnx_label *size;
} onnx_symbol_source;

typedef struct onnx_export {
    lib_arena *arena;
    const struct onnx_export_row *row;
    /* The current graph, which may be a sub-graph. By value of it: its name, and in `narrow` the name of a tensor of which it is a broadcast,
     * whose dimensions are equal or 1; a value may have a name in `narrow` only. */
    const graph *g;
    onnx_label **value, **narrow;
    /* By value of g: number of reads, outputs included. */
    const uint32_t *reads;
    const graph_node *node;
    /* The current node is computed in f32, in place of a narrower float: operands are converted, and results back. */
    bool widened;
    onnx_out_graph *main, *out;
    /* The node added last. */
    onnx_out_node *last;
    /* opset: the version of the operator set that is written; needed: the lowest version that has all operators used. */
    int opset, needed;
    /* symbol: by variable of the pool. sizes: by expression of the pool, the index of its i64[1] in size_labels, made in `main`. */
    onnx_symbol_source *symbol;
    uint32_t symbols;
    lib_map sizes;
    lib_vec(onnx_label *) size_labels;
    /* Names in use, and initializers of a few elements, by content. */
    lib_map names;
    lib_vec(const char *) name_texts;
    lib_map small;
    uint32_t next;
    lib_text refused;
    int refusals;
} onnx_export;

/* A row: how the row of the operator table with that name is exported. Composites and maps without a row here are exported by
 * expansion. */
typedef struct onnx_export_row {
    const char *row;
    /* The ONNX operator, of the same operands and results; `attributes` translates attributes: "slope:alpha axis". */
    const char *op;
    int since;
    const char *attributes;
    /* Element types of the first operand that the operator takes; 0: those of the function. */
    uint32_t types;
    /* Exports the node, in place of `op`. */
    void (*export)(onnx_export *ex);
    /* Can the node be exported by this row? False: it is exported by expansion. NULL: always true. */
    bool (*fits)(const graph *g, const graph_node *node);
    /* Not NULL: why it is not exported. */
    const char *why;
} onnx_export_row;
extern const onnx_export_row *const onnx_export_tables[];
extern const onnx_export_row onnx_export_rows[], onnx_export_rows_structure[], onnx_export_rows_reduce[],
    onnx_export_rows_contract[], onnx_export_rows_control[], onnx_export_rows_none[];

typedef enum onnx_export_class { ONNX_EXPORT_NATIVE, ONNX_EXPORT_EXPANSION, ONNX_EXPORT_NONE } onnx_export_class;
/* How a row of the operator table is exported; *why: the reason, or NULL. */
onnx_export_class onnx_export_class_of(const graph_op *op, const char **why);
const onnx_export_row *onnx_export_row_of(const graph_op *op);
/* Names the node for messages, by its value's name or origins. */
const char *onnx_export_describe(lib_arena *arena, const graph *g, const graph_node *node);

typedef struct onnx_export_options {
    /* 0: the lowest version that has all operators used. */
    int opset;
    const char *producer;
} onnx_export_options;
/* The model, in `arena`. Raises DLC_UNSUPPORTED with all nodes that cannot be exported. */
onnx_out_model *onnx_export_graph(lib_arena *arena, const graph *g, const onnx_export_options *options);

/* ---- element types ----------------------------------------------------------------------------------------------------- */

#define ONNX_TYPE(dtype) (UINT32_C(1) << (dtype))
#define ONNX_FLOATS (ONNX_TYPE(DLC_F16) | ONNX_TYPE(DLC_F32) | ONNX_TYPE(DLC_F64))
#define ONNX_FLOATS_B (ONNX_FLOATS | ONNX_TYPE(DLC_BF16))
#define ONNX_UNSIGNED (ONNX_TYPE(DLC_U8) | ONNX_TYPE(DLC_U16) | ONNX_TYPE(DLC_U32) | ONNX_TYPE(DLC_U64))
#define ONNX_SIGNED (ONNX_TYPE(DLC_I8) | ONNX_TYPE(DLC_I16) | ONNX_TYPE(DLC_I32) | ONNX_TYPE(DLC_I64))
#define ONNX_WHOLES (ONNX_UNSIGNED | ONNX_SIGNED)
#define ONNX_NUMBERS (ONNX_WHOLES | ONNX_FLOATS_B)
#define ONNX_BOOL ONNX_TYPE(DLC_BOOL)
#define ONNX_ALL (ONNX_NUMBERS | ONNX_BOOL)
static inline bool onnx_takes(uint32_t types, dlc_dtype dtype) {
    return types >> dtype & 1;
}
/* The element type in the file; 0: there is none. */
int32_t onnx_element_for(dlc_dtype dtype);

/* ---- making nodes ------------------------------------------------------------------------------------------------------- */

void onnx_refuse(onnx_export *ex, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The operator set must be at least that version. */
void onnx_need(onnx_export *ex, int opset);

/* Adds a node with one result, which it returns. A NULL operand is omitted. */
onnx_label *onnx_add(onnx_export *ex, const char *op, int inputs, onnx_label *const *input);
#define ONNX_ADD(ex, op, ...)                                                                 \
    onnx_add((ex), (op), (int)(sizeof((onnx_label *[]){__VA_ARGS__}) / sizeof(onnx_label *)), \
             (onnx_label *[]){__VA_ARGS__})
/* Add an operand, a result, or an attribute to the node that was added last. */
void onnx_add_input(onnx_export *ex, onnx_label *input);
onnx_label *onnx_add_result(onnx_export *ex);
void onnx_set(onnx_export *ex, const char *name, int64_t integer);
void onnx_set_number(onnx_export *ex, const char *name, double number);
void onnx_set_text(onnx_export *ex, const char *name, const char *text);
void onnx_set_list(onnx_export *ex, const char *name, int count, const int64_t *list);
void onnx_set_graph(onnx_export *ex, const char *name, const onnx_out_graph *inner);

/* Initializers. */
onnx_label *onnx_export_constant(onnx_export *ex, dlc_dtype dtype, int rank, const int64_t *dims, const void *bytes);
onnx_label *onnx_number(onnx_export *ex, dlc_dtype dtype, double number); /* rank 0 */
onnx_label *onnx_whole(onnx_export *ex, dlc_dtype dtype, int64_t number); /* rank 0 */
onnx_label *onnx_list(onnx_export *ex, int count, const int64_t *list);   /* i64[count] */

onnx_label *onnx_to(onnx_export *ex, onnx_label *x, dlc_dtype dtype); /* Cast */
/* Adds a node of an operator that takes the element types `types`; if a narrow float is not among them, it is computed in f32. Other types
 * are refused (onnx_refuse). compares: the result is bool. */
onnx_label *onnx_typed(onnx_export *ex, const char *op, uint32_t types, dlc_dtype dtype, bool compares, int inputs,
                       onnx_label *const *input);
/* f32 for f16, bf16 and floats of 8 bits; other types unchanged. */
dlc_dtype onnx_wide_dtype(dlc_dtype dtype);
onnx_label *onnx_shaped(onnx_export *ex, onnx_label *x, int rank, const tir_expr *dims);    /* Reshape */
onnx_label *onnx_stretched(onnx_export *ex, onnx_label *x, int rank, const tir_expr *dims); /* Expand */
onnx_label *onnx_transposed(onnx_export *ex, onnx_label *x, int rank, const int64_t *permutation);
onnx_label *onnx_unsqueezed(onnx_export *ex, onnx_label *x, int count, const int64_t *axes);
onnx_label *onnx_squeezed(onnx_export *ex, onnx_label *x, int count, const int64_t *axes);
/* onnx_cropped: x without the elements that negative entries of low and high remove, along `rank` axes from `first` on; empty where they
 * remove more than there is. onnx_sliced: x[from:to] along the axis, from and to i64[1]. */
onnx_label *onnx_cropped(onnx_export *ex, onnx_label *x, int first, int rank, const graph_attribute *low,
                         const graph_attribute *high);
onnx_label *onnx_sliced(onnx_export *ex, onnx_label *x, int axis, onnx_label *from, onnx_label *to);
onnx_label *onnx_clamped(onnx_export *ex, onnx_label *x, onnx_label *low, onnx_label *high);
/* 0, 1, ... as i64[size]. */
onnx_label *onnx_export_counted(onnx_export *ex, tir_expr size);

/* Index expressions of the graph's pool as values: one as i64[1], and `count` as i64[count]. */
onnx_label *onnx_size(onnx_export *ex, tir_expr size);
onnx_label *onnx_sizes(onnx_export *ex, int count, const tir_expr *dims);

/* ---- the current node --------------------------------------------------------------------------------------------------- */

onnx_label *onnx_in(onnx_export *ex, int i); /* operand i; NULL: left out */
/* Sets input[] to the operands of the current node, a map: in their narrow forms where the result has the full shape nevertheless. */
void onnx_in_maps(onnx_export *ex, onnx_label **input);
static inline const graph_shape *onnx_in_shape(const onnx_export *ex, int i) {
    return graph_shape_of(ex->g, ex->node->input[i]);
}
static inline const graph_shape *onnx_result_shape(const onnx_export *ex, int i) {
    return graph_shape_of(ex->g, ex->node->first + (graph_id)i);
}
/* The element type of the value that onnx_in returns. */
dlc_dtype onnx_in_dtype(const onnx_export *ex, int i);
void onnx_export_give_label(onnx_export *ex, int i, onnx_label *label);
/* Records that result i is a broadcast of `label`, aligned at the last dimension. */
void onnx_give_narrow(onnx_export *ex, int i, onnx_label *label);
const graph_attribute *onnx_attribute_named(const graph_node *node, const char *name);
static inline const graph_attribute *onnx_row_attribute(const onnx_export *ex, const char *name) {
    return onnx_attribute_named(ex->node, name);
}
static inline int64_t onnx_row_int(const onnx_export *ex, const char *name) {
    return onnx_row_attribute(ex, name)->integer;
}
int onnx_row_axis(const onnx_export *ex, const char *name, int rank); /* in 0..rank-1 */

/* ---- maps (export_map.c), sub-graphs (export.c) ------------------------------------------------------------------------- */

void onnx_export_scalar(onnx_export *ex);
void onnx_export_bits(onnx_export *ex); /* export_random.c */
/* export_bits.c: the bits of a float `from` as an integer `to` of as many bits, and back. */
onnx_label *onnx_bits_of(onnx_export *ex, dlc_dtype from, dlc_dtype to, onnx_label *x);
onnx_label *onnx_from_bits(onnx_export *ex, dlc_dtype from, dlc_dtype to, onnx_label *x);
/* tir operators on names; `dtype` is that of the operands (of select: of the last two). TIR_INDEX: i64. */
onnx_label *onnx_export_apply(onnx_export *ex, tir_op op, tir_dtype dtype, onnx_label *const *x);
/* Div or Mod of integers: 0 where the divisor is 0, which ONNX leaves open. */
onnx_label *onnx_divided(onnx_export *ex, const char *op, dlc_dtype dtype, onnx_label *const *x, bool fmod);
/* Is it an initializer without zeros? */
bool onnx_is_nonzero(const onnx_export *ex, const onnx_label *x);
/* onnx_expression: the value of expression e, where leaf() gives the values of variables. Values of TIR_INDEX are i64[1]. */
typedef onnx_label *onnx_leaf(onnx_export *ex, void *user, const tir_pool *pool, tir_expr variable);
onnx_label *onnx_expression(onnx_export *ex, const tir_pool *pool, tir_expr e, onnx_leaf *leaf, void *user);

/* Exports the nodes of `g` into the current ONNX graph; inputs[i]: the value of its input i; sets result[i] to its output i. */
void onnx_inline(onnx_export *ex, const graph *g, onnx_label *const *inputs, onnx_label **result);
onnx_out_graph *onnx_begin_graph(onnx_export *ex, const char *name);
onnx_label *onnx_add_graph_input(onnx_export *ex, const char *base, const graph_shape *shape);
void onnx_add_graph_output(onnx_export *ex, onnx_label *value, const graph_shape *shape);

#endif
