/* Eager mode and tracing: the same operator functions on tensors that are there, and on symbols. Included beside <dlc/dlc.h>, whose
 * conventions hold.
 *
 *   dlc_graph *g;      dlc_eager_create(ctx, NULL, &g);
 *   dlc_value x = dlc_eager_tensor(g, &tensor);             a value that is known
 *   dlc_value y = dlc_relu(dlc_matmul(x, w));               nothing is computed yet
 *   dlc_eager_read(g, y, &result);                          now it is: y and what it needs, in fused kernels
 *
 *   dlc_trace(ctx, function, user, 1, inputs, 1, NULL, &graph);   the same calls on symbols: a graph to compile
 *
 * A graph of dlc_eager_create is built like any other, by the operators and with dlc_constant, dlc_scalar and dlc_subgraph. What
 * makes it eager is that some of its values are known: they have a tensor. Evaluating a value cuts out the part of the graph
 * between it and known values, compiles that part, runs it, and keeps the result as the value's tensor.
 *
 * Compiling   Parts that are the same but for the tensors' contents are compiled once: the graph keeps the programs of the parts that it met
 *             last, and kernels are those of the context, shared with all its programs and found in cache_directory.
 *             Where parts differ in sizes alone, those that change become symbols, as those of dlc_input are: exact for a few values, then
 *             parameters of kernels that serve all of them (dlc_symbol_varies). Sizes that the host gives to operators may be
 *             multiples of such dimensions, or of those of the operands, products, sums with a number. Exact for each size remain
 *             parts with constants of a size that changes, with numbers computed of it, with effects, and Fourier
 *             transforms of what changes.
 * Results     A part gives the bits that a program of the same operators and sizes, or with symbols for them, gives. Where a graph is cut
 *             decides what is fused: between a cut graph and a whole one f16, bf16 and floats of 8 bits agree with no_excess_precision
 *             only, and sums may be added in another order. Random operators count their streams
 *             from the graph's creation, or the last dlc_eager_step, on.
 * Memory      Values have no destructors: everything lives until dlc_eager_step, which keeps what it is told to and forgets the
 *             rest, or dlc_graph_destroy. Values that were asked for, or given, have tensors; what lies between has not, and is
 *             computed again if something else needs it: ask for both at once, or for what is used again first.
 * Mistakes    of builder calls are recorded in the graph (dlc_graph_message) and give poisoned values; other values stay usable, and
 *             dlc_eager_step forgets the mistake.
 * Control     A host's own `if` and loops work on what dlc_eager_number says. A graph that is traced, or built otherwise, has no
 *             numbers: there they are an error that says so; dlc_if, dlc_while and dlc_scan work in both.
 * Effects     Host functions with effects (dlc_custom_effect) are called once, with the next evaluation of whatever value.
 * Threads     One at a time for a graph. */
#ifndef DLC_EAGER_H
#define DLC_EAGER_H

#include <dlc/dlc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_eager_options {
    size_t struct_size;
    /* NULL: defaults; the strings, flags and functions in it must live as long as the graph */
    const dlc_compile_options *compile;
    /* Of parts that were met last, to be kept; 0: 64 */
    int programs;
} dlc_eager_options;
#define DLC_EAGER_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_eager_options)

/* An eager graph, destroyed by dlc_graph_destroy. dlc_input and dlc_output are no use there. Errors: DLC_INVALID_ARGUMENT,
 * DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_eager_create(dlc_context *context, const dlc_eager_options *options, dlc_graph **graph);

/* A known value, of the tensor's element type and shape. Tensors are in host memory or on the context's own device, of any strides;
 * results lie on the device where anything that they are computed of does. `tensor` copies host memory (what lies on a device is
 * borrowed all the same); `borrow` does not: the data stay where and as they are until dlc_eager_step has forgotten the value, or the
 * graph's end; the description (shape, strides) is copied in both. Mistakes are recorded in the graph: a graph that is not
 * eager, element type, rank, no data, memory. */
DLC_API dlc_value dlc_eager_tensor(dlc_graph *graph, const DLTensor *tensor);
DLC_API dlc_value dlc_eager_borrow(dlc_graph *graph, const DLTensor *tensor);

/* Computes what is not known yet of values[count], together. Afterwards all of them are known, or, after an error, none more than
 * before: the call may be repeated (effects then happen again as far as they had come). Errors: those of dlc_compile and
 * dlc_run; DLC_INVALID_ARGUMENT for poisoned values (with the graph's first mistake), values of sub-graphs or other graphs, and graphs that
 * are not eager: there the mistake is recorded too, so that tracing fails even if the function goes on. */
DLC_API dlc_status dlc_eager_evaluate(dlc_graph *graph, int count, const dlc_value *values);
/* Is it known? False for poison. Computes nothing. */
DLC_API bool dlc_eager_known(dlc_value value);
/* The value's tensor, evaluated if need be; read-only, not copied: later operations read it, too. It outlives the graph; call
 * (*tensor)->deleter(*tensor) when done. Of a borrowed tensor: the host's data. Errors as evaluate, *tensor is then NULL. */
DLC_API dlc_status dlc_eager_get(dlc_graph *graph, dlc_value value, DLManagedTensorVersioned **tensor);
/* The same into memory of the host's: element type and shape are the value's; any strides, in host memory or on the device. The
 * value is then known, too. */
DLC_API dlc_status dlc_eager_read(dlc_graph *graph, dlc_value value, DLTensor *into);
/* A value of one element, of any rank, as a number (i64 and u64 beyond 2^53 rounded; DLC_UNSUPPORTED for c64): for a host's own
 * branches. Errors as evaluate; *number is then 0. */
DLC_API dlc_status dlc_eager_number(dlc_graph *graph, dlc_value value, double *number);
/* The end of a step: evaluates values[count], makes them values of a graph that holds nothing else, and frees everything else:
 * nodes, constants, tensors, sub-graphs. The array gets the new values; all older ones, in other variables too, are from now on
 * refused as those of a destroyed graph; texts of dlc_value_dim go, too. Programs stay, and functions of dlc_custom_register. After an
 * error all is as after dlc_eager_evaluate. */
DLC_API dlc_status dlc_eager_step(dlc_graph *graph, int count, dlc_value *values);

/* ---- tracing --------------------------------------------------------------------------------------------------------- */

/* Builds outputs[output_count] of inputs[input_count] with operators: of tensors in an eager graph, of symbols while it is traced.
 * Another status than DLC_OK ends tracing with it. */
typedef dlc_status dlc_traced_function(void *user, dlc_graph *graph, int input_count, const dlc_value *inputs,
                                       int output_count, dlc_value *outputs);

typedef struct dlc_trace_input {
    /* NULL: none */
    const char *name;
    dlc_dtype dtype;
    int rank;
    const dlc_dim *dims;
} dlc_trace_input;

/* Calls the function once, on inputs as dlc_input makes them, and yields its graph with outputs in order, named output_names[i], or "0",
 * "1" ... where that is NULL. The graph is the caller's: dlc_compile, dlc_graph_print, dlc_graph_destroy. Errors: what the
 * function returned, the graph's first mistake, outputs that it did not set or that are not of this graph; no graph is left
 * then. */
DLC_API dlc_status dlc_trace(dlc_context *context, dlc_traced_function *function, void *user, int input_count,
                             const dlc_trace_input *inputs, int output_count, const char *const *output_names,
                             dlc_graph **graph);

#ifdef __cplusplus
}
#endif
#endif
