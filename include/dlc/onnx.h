/* ONNX models. Included in addition to <dlc/dlc.h>, whose conventions hold.
 *
 *   dlc_onnx_model *model;
 *   dlc_graph *g;
 *   if (dlc_onnx_open(ctx, "model.onnx", NULL, &model) || dlc_onnx_graph(model, NULL, &g)) fprintf(stderr, "%s\n", dlc_error_message(ctx));
 *   dlc_compile(ctx, g, NULL, &program);       inputs and outputs are those of the file, in its order
 *   dlc_onnx_write(ctx, "copy.onnx", g, NULL); any graph as a model
 *
 * Operator sets 1 to 27 of the standard domain, IR versions 3 to 13. dlc_onnx_check lists the operators of a model that are not imported.
 * Sizes that the file names are symbols of that name; unnamed ones are symbols made of the input's name and the axis, x_0. A
 * model's arithmetic on sizes is evaluated at import: one graph serves all sizes. If is inlined
 * when its condition is known at import; Loop with stacked results needs a trip count that is known then. Not supported: sequences,
 * optionals, strings, sparse initializers, shapes that depend on data (except the results of NonZero, Unique, Compress and
 * NonMaxSuppression). */
#ifndef DLC_ONNX_H
#define DLC_ONNX_H

#include <dlc/dlc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open model: immutable, used by any number of threads. */
typedef struct dlc_onnx_model dlc_onnx_model;

typedef struct dlc_onnx_options {
    size_t struct_size;
    /* Read all files into memory. Otherwise they are mapped: nothing is read before it is used, and no file may be truncated or
     * changed while the model, or a graph or program made from it, exists. */
    bool read;
    /* Folder beneath which external data are, the weights in files of their own; NULL: the file's own. */
    const char *folder;
} dlc_onnx_options;
#define DLC_ONNX_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_options)

/* Reads the model's structure; weights stay in place, also those in other files. The paths of those are relative to the folder, without ".."
 * and through no symbolic link beneath it. Errors: DLC_NOT_FOUND with the system's reason, DLC_PARSE_ERROR with byte offset and path of
 * names, DLC_UNSUPPORTED (a newer version of the format), DLC_BUDGET_EXCEEDED (dlc_limits; more than 32 nested graphs,
 * 4 Mi nodes, names of 64 KiB), DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_onnx_open(dlc_context *context, const char *path, const dlc_onnx_options *options,
                                 dlc_onnx_model **model);
/* The same for a file's bytes in memory, without external data: dlc_onnx_graph refuses a model whose weights are in other files, with
 * DLC_UNSUPPORTED. The bytes are not copied: they must stay unchanged as long as the model, and the graphs and programs
 * made from it. */
DLC_API dlc_status dlc_onnx_parse(dlc_context *context, const void *bytes, size_t size, dlc_onnx_model **model);
/* Graphs and programs made from it keep what they use. */
DLC_API void dlc_onnx_destroy(dlc_onnx_model *model);

/* A list of the operators that libdlc does not import, with operator set, number of occurrences in the model, and first occurrence; "" if
 * all are imported. The caller frees it with dlc_text_free. */
DLC_API dlc_status dlc_onnx_check(dlc_onnx_model *model, char **text);

typedef struct dlc_onnx_graph_options {
    size_t struct_size;
    /* Values for the file's dimension names: {640, "height"}. [dim_count]; NULL: none */
    const dlc_dim *dims;
    int dim_count;
    /* Values for inputs, by name: such an input becomes a constant of the graph. Operands that decide shapes - axes, sizes, k - must be
     * known when a model is imported; give them here if the file leaves them to a run. Compact tensors in host memory, copied.
     * [value_count]; NULL: none */
    const char *const *value_names;
    const DLTensor *const *values;
    int value_count;
    /* Import operators of an operator set newer than 27 as those of 27. Otherwise such a model is refused, since an operator that changed
     * would give wrong numbers. */
    bool newer_opset;
} dlc_onnx_graph_options;
#define DLC_ONNX_GRAPH_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_graph_options)

/* The model's main graph as a libdlc graph: inputs (those that are no initializers) and outputs in the file's order, by the file's
 * names. Weights that are aligned in the file are borrowed from it, others are copied. Errors: DLC_UNSUPPORTED with all operators that are
 * not imported, or with node and reason, before anything is made; DLC_PARSE_ERROR (a model that contradicts itself), DLC_INVALID_ARGUMENT,
 * DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_onnx_graph(dlc_onnx_model *model, const dlc_onnx_graph_options *options, dlc_graph **graph);

typedef struct dlc_onnx_write_options {
    size_t struct_size;
    /* Version of the operator set: 17, 20, 21 or 23; 0: the lowest of these that holds the graph. */
    int opset;
    /* Constants of more bytes than this are written to a file of their own, PATH.data, beside the model's; 0: all are in the model, whose
     * size is limited to 2 GiB. Both files belong together: the model names the other one without its folder. */
    size_t external_bytes;
    /* Name of the program that writes the model, for people; NULL: libdlc. */
    const char *producer;
} dlc_onnx_write_options;
#define DLC_ONNX_WRITE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_write_options)

/* Writes the graph, as it was built, as an ONNX model. The graph is only read, and nothing is kept. options NULL: defaults.
 *
 * Names. Inputs and outputs have the graph's, unnamed ones input_0, output_1, ...; an input and an output of one name are an error, since ONNX
 * has one space of names. Values named by dlc_name keep the name if it is free. Symbols are dim_param; sizes that are expressions of symbols are
 * computed by Shape and arithmetic when the model runs.
 * Operators. Composites that ONNX has stay one node, all other operators become several. Of what ONNX leaves open (indices outside of a tensor,
 * shifts beyond the width) libdlc's rule is written out; what it orders differently is rounded differently: see the operators. Random numbers
 * are libdlc's own, computed in the model. The sign of NaN is not kept, silu of -infinity is NaN, and casts of floats beyond a type of 32 or
 * 64 bits are those of the implementation.
 * c64 has no operators in ONNX: inputs, outputs and constants of it are f32 with a last dimension of 2.
 * Not exported: functions of the host, factorisations (lu, qr, cholesky, eigh, svd and what is computed by them, triangular_solve),
 * combinations of the bits of integers by reductions and scatters, convolutions of integers of more than 16 bits, a conditional scan.
 * Ranges of symbols (dlc_symbol_varies) are not kept.
 *
 * Files are written under other names in the same folder and renamed at the end: after an error an older file at `path` is unchanged, and there
 * is no new one. Errors: DLC_UNSUPPORTED with the operators that cannot be exported, by names of values, each with its reason, or an operator
 * set that is too low; DLC_BUDGET_EXCEEDED (a model of more than 2 GiB); DLC_NOT_FOUND and DLC_INVALID_ARGUMENT with the system's reason (the
 * file cannot be created or written), DLC_INVALID_ARGUMENT (options; names; a graph without outputs); the graph's own first error;
 * DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_onnx_write(dlc_context *context, const char *path, const dlc_graph *graph,
                                  const dlc_onnx_write_options *options);

#ifdef __cplusplus
}
#endif
#endif
