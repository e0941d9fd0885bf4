/* Eager mode and tracing: the same operator functions on existing tensors, and on symbols. Included in addition to <dlc/dlc.h>, whose
 * conventions hold.
 *
 *   dlc_graph *g;      dlc_eager_create(ctx, NULL, &g);
 *   dlc_value x = dlc_eager_tensor(g, &tensor);             a known value
 *   dlc_value y = dlc_relu(dlc_matmul(x, w));               nothing is computed yet
 *   dlc_eager_read(g, y, &result);                          computes y and its operands, in fused kernels
 *
 *   dlc_trace(ctx, function, user, 1, inputs, 1, NULL, &graph);   the same calls on symbols: a graph to compile
 *
 * A graph of dlc_eager_create is built like any other, by the operators and with dlc_constant, dlc_scalar and dlc_subgraph. It is
 * eager because some of its values are known: they have a tensor. Evaluating a value cuts out the part of the graph
 * between it and known values, compiles that part, runs it, and keeps the result as the value's tensor.
 *
 * Compiling   Parts that differ only in the tensors' contents are compiled once: the graph keeps the programs of the most recently
 *             used parts, and kernels belong to the context, shared with all its programs and found in cache_directory.
 *             If parts differ in sizes alone, the sizes that change become symbols, like those of dlc_input: parameters of
 *             kernels that serve all of them, but for those that recur (dlc_symbol_varies). Sizes that the host gives to operators, such as
 *             where a slice begins, follow from these dimensions where they are multiples of them, or of the operands' dimensions,
 *             products, sums with a number; else they are parameters, too. Compiled for each exact size
 *             are parts with constants of a size that changes, with effects, and with Fourier
 *             transforms along it.
 * Results     A part gives the bits of a program of the same operators and sizes, or with symbols for the sizes. The cuts of a graph
 *             decide what is fused: a cut graph and a whole one agree for f16, bf16 and floats of 8 bits with no_excess_precision
 *             only, and may add sums in another order. Random operators count their streams
 *             from the graph's creation, or from the last dlc_eager_step.
 * Memory      Values have no destructors: everything lives until dlc_eager_step, which keeps the values passed to it and frees the
 *             rest, or dlc_graph_destroy. Evaluated and given values have tensors; intermediate values have none and are
 *             recomputed if something else needs them: evaluate both at once, or the shared value first.
 * Mistakes    Mistakes of builder calls are recorded in the graph (dlc_graph_message) and give poisoned values; other values stay usable,
 *             and dlc_eager_step clears the mistake.
 * Control     A host's own `if` and loops use dlc_eager_number. A graph that is traced, or built otherwise, has no
 *             numbers: there it fails with a message that explains this; dlc_if, dlc_while and dlc_scan work in both.
 * Effects     Host functions with effects (dlc_custom_effect) are called once, by the next evaluation of any value.
 * Threads     One at a time for a graph. */
#ifndef DLC_EAGER_H
#define DLC_EAGER_H

#include <dlc/dlc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_eager_options {
    size_t struct_size;
    /* NULL: defaults; its strings, flags and functions must live as long as the graph */
    const dlc_compile_options *compile;
    /* How many programs of recently used parts to keep; 0: 64 */
    int programs;
} dlc_eager_options;
#define DLC_EAGER_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_eager_options)

/* An eager graph, destroyed by dlc_graph_destroy. dlc_input and dlc_output are not useful there. Errors: DLC_INVALID_ARGUMENT,
 * DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_eager_create(dlc_context *context, const dlc_eager_options *options, dlc_graph **graph);

/* A known value, of the tensor's element type and shape. Tensors are in host memory or on the context's own device, with any strides;
 * results are on the device if any of their operands is. `tensor` copies host memory (device memory is
 * borrowed all the same); `borrow` does not: the data must stay in place and unchanged until dlc_eager_step has dropped the value, or the
 * graph is destroyed; both copy the description (shape, strides). Mistakes are recorded in the graph: a graph that is not
 * eager, element type, rank, no data, memory. */
DLC_API dlc_value dlc_eager_tensor(dlc_graph *graph, const DLTensor *tensor);
DLC_API dlc_value dlc_eager_borrow(dlc_graph *graph, const DLTensor *tensor);

/* Computes the unknown values of values[count], together. Afterwards all of them are known, or, after an error, no more than
 * before: the call may be repeated (effects that already happened are then repeated). Errors: those of dlc_compile and
 * dlc_run; DLC_INVALID_ARGUMENT for poisoned values (with the graph's first mistake), values of sub-graphs or other graphs, and graphs that
 * are not eager: there the mistake is recorded too, so that tracing fails even if the function continues. */
DLC_API dlc_status dlc_eager_evaluate(dlc_graph *graph, int count, const dlc_value *values);
/* Whether the value is known. False for poison. Computes nothing. */
DLC_API bool dlc_eager_known(dlc_value value);
/* The value's tensor, evaluated if need be; read-only, not copied: later operations also read it. It outlives the graph; call
 * (*tensor)->deleter(*tensor) when done. For a borrowed tensor: the host's data. Errors as dlc_eager_evaluate, *tensor is then NULL. */
DLC_API dlc_status dlc_eager_get(dlc_graph *graph, dlc_value value, DLManagedTensorVersioned **tensor);
/* The same into the host's memory: element type and shape must be the value's; any strides, in host memory or on the device. The
 * value is known afterwards. */
DLC_API dlc_status dlc_eager_read(dlc_graph *graph, dlc_value value, DLTensor *into);
/* A value of one element, of any rank, as a number (i64 and u64 beyond 2^53 rounded; DLC_UNSUPPORTED for c64): for a host's own
 * branches. Errors as dlc_eager_evaluate; *number is then 0. */
DLC_API dlc_status dlc_eager_number(dlc_graph *graph, dlc_value value, double *number);
/* The end of a step: evaluates values[count], makes them the only values of the graph, and frees everything else:
 * nodes, constants, tensors, sub-graphs. The array gets the new values; all older ones, also in other variables, are from now on
 * refused as values of a destroyed graph; texts of dlc_value_dim are freed, too. Programs and functions of dlc_custom_register stay.
 * After an error the state is that after dlc_eager_evaluate. */
DLC_API dlc_status dlc_eager_step(dlc_graph *graph, int count, dlc_value *values);

/* ---- tracing --------------------------------------------------------------------------------------------------------- */

/* Builds outputs[output_count] from inputs[input_count] with operators: on tensors in an eager graph, on symbols while it is traced.
 * A status other than DLC_OK ends tracing with it. */
typedef dlc_status dlc_traced_function(void *user, dlc_graph *graph, int input_count, const dlc_value *inputs,
                                       int output_count, dlc_value *outputs);

typedef struct dlc_trace_input {
    /* NULL: none */
    const char *name;
    dlc_dtype dtype;
    int rank;
    const dlc_dim *dims;
} dlc_trace_input;

/* Calls the function once, on inputs made as by dlc_input, and returns its graph with outputs in order, named output_names[i], or "0",
 * "1" ... if that is NULL. The graph is the caller's: dlc_compile, dlc_graph_print, dlc_graph_destroy. Errors: what the
 * function returned, the graph's first mistake, outputs that it did not set or that are not of this graph; then no graph
 * is returned. */
DLC_API dlc_status dlc_trace(dlc_context *context, dlc_traced_function *function, void *user, int input_count,
                             const dlc_trace_input *inputs, int output_count, const char *const *output_names,
                             dlc_graph **graph);

#ifdef __cplusplus
}
#endif
#endif
