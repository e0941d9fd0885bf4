/* ONNX models. Included in addition to <dlc/dlc.h>, whose conventions hold.
 *
 *   dlc_onnx_model *model;
 *   dlc_graph *g;
 *   if (dlc_onnx_open(ctx, "model.onnx", NULL, &model) || dlc_onnx_graph(model, NULL, &g)) fprintf(stderr, "%s\n", dlc_error_message(ctx));
 *   dlc_compile(ctx, g, NULL, &program);       inputs and outputs are those of the file, in its order
 *   dlc_onnx_write(ctx, "copy.onnx", g, NULL); any graph as a model
 *
 * or, where shapes depend on inputs' elements or on computed data, or outputs come back as inputs, by a runner:
 *
 *   dlc_onnx_runner_create(model, NULL, &runner);   dlc_onnx_run(runner, NULL, inputs, n, outputs, m);
 *
 * or, with sequences, optionals, strings and maps as inputs or outputs, by dlc_onnx_run_values.
 *
 * Operator sets 1 to 27 of the standard domain, 1 to 5 of ai.onnx.ml, 1 of ai.onnx.preview (FlexAttention) and
 * ai.onnx.preview.training (without Gradient); IR versions 3 to 13. dlc_onnx_check lists the operators of a model that are not imported.
 * Sizes that the file names are symbols of that name; unnamed ones, and 0, are symbols made of the input's name and the axis, x_0. A
 * model's arithmetic on sizes is evaluated at import: one graph serves all sizes. If is inlined when its condition is known at import.
 * Sequences, optionals, strings and maps are structure that is known at import: inside of a model everywhere, as its inputs and outputs
 * by dlc_onnx_run_values. Case mapping of strings is that of ASCII. libdlc has no regular expressions and no decoders of images: the host
 * gives RegexFullMatch and ImageDecoder, and operators of its own, by dlc_onnx_register.
 * A graph, unlike a runner, needs sizes, axes, positions in sequences and the like to be known at import, except the sizes of the
 * results of NonZero, Unique, Compress and NonMaxSuppression. In it, values that a Loop carries keep their shape; a Loop with stacked
 * results needs a trip count that is known, and one that carries sequences, optionals or strings such a count and condition and at most
 * 64 iterations; the branches of an If whose condition is not known have tensors of equal shapes as results.
 *
 * Dropout, batch norms, QuantizeLinear and DequantizeLinear of a model for inference cost little: see no_excess_precision of
 * dlc_compile_options, which keeps them as the file has them.
 *
 * Random numbers (RandomNormal, RandomUniform, their Like forms, Bernoulli, Multinomial, Dropout in training mode) are libdlc's own. With
 * attribute seed they are a function of the seed and the position, so that a node gives the same numbers at every run, in each iteration
 * of a loop, and as other nodes of that operator with that seed. Without the attribute dlc_onnx_graph refuses the node; a runner walks
 * the model, and each of its runs draws new numbers (dlc_onnx_runner_options.seed). OneHotEncoder gives zeros for what is no category also with
 * zeros=0, for which ONNX has the run fail. */
#ifndef DLC_ONNX_H
#define DLC_ONNX_H

#include <dlc/dlc.h>
#include <dlc/extend.h>

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
    /* Folder beneath which external data are, the weights in files of their own; NULL: the file's own, or, for bytes in memory, none. */
    const char *folder;
    /* Gives external data in place of files: all bytes of what the model calls `location`, a relative path. Another status than DLC_OK becomes
     * that of the call. Called while a model is opened, once for each location. The bytes must stay unchanged as long as the model, and the graphs and
     * programs made from it. NULL: files. */
    dlc_status (*external)(void *user, const char *location, const void **bytes, size_t *size);
    void *external_user;
} dlc_onnx_options;
#define DLC_ONNX_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_options)

/* Reads the model's structure; weights stay in place, also those in other files. The paths of those are relative to the folder, without ".."
 * and through no symbolic link beneath it. Errors: DLC_NOT_FOUND with the system's reason, DLC_PARSE_ERROR with byte offset and path of
 * names, DLC_UNSUPPORTED (a newer version of the format), DLC_BUDGET_EXCEEDED (dlc_limits; more than 32 nested graphs,
 * 4 Mi nodes, names of 64 KiB), DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_onnx_open(dlc_context *context, const char *path, const dlc_onnx_options *options,
                                 dlc_onnx_model **model);
/* The same for a file's bytes in memory. Without options.folder and options.external it has no external data: dlc_onnx_graph refuses a model
 * whose weights are in other files, with DLC_UNSUPPORTED. The bytes are not copied: they must stay unchanged as long as the model, and the
 * graphs and programs made from it. */
DLC_API dlc_status dlc_onnx_parse(dlc_context *context, const void *bytes, size_t size, const dlc_onnx_options *options,
                                  dlc_onnx_model **model);
/* Graphs and programs made from it keep what they use. */
DLC_API void dlc_onnx_destroy(dlc_onnx_model *model);

/* A list of the operators that libdlc does not import, with operator set, number of occurrences in the model, and first occurrence; "" if
 * all are imported. The caller frees it with dlc_text_free. */
DLC_API dlc_status dlc_onnx_check(dlc_onnx_model *model, char **text);
/* A string of the file's metadata_props (class names, for example), which belongs to the model; NULL: no such key. */
DLC_API const char *dlc_onnx_note(const dlc_onnx_model *model, const char *key);

typedef struct dlc_onnx_graph_options {
    size_t struct_size;
    /* Values for sizes of inputs by the file's names, or, of those without, by the symbol's: {640, "height"}, {8, "x_0"}. Names that no
     * input has are of no effect. [dim_count]; NULL: none */
    const dlc_dim *dims;
    int dim_count;
    /* Values for inputs, by name: such an input becomes a constant of the graph. DLC_NOT_FOUND: there is no such input. Operands that
     * decide shapes - axes, sizes, k - must be known when a model is imported; give them here if the file leaves them to a run. Compact
     * tensors in host memory, copied. [value_count]; NULL: none */
    const char *const *value_names;
    const DLTensor *const *values;
    int value_count;
    /* Import operators of an operator set newer than 27 as those of 27. Otherwise such a model is refused, since an operator that changed
     * would give wrong numbers. */
    bool newer_opset;
    /* Names of the outputs that the graph has, in the file's order. [output_count]; NULL: all */
    const char *const *outputs;
    int output_count;
} dlc_onnx_graph_options;
#define DLC_ONNX_GRAPH_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_graph_options)

/* The model's main graph as a libdlc graph: inputs (those that are no initializers) and outputs in the file's order, by the file's
 * names. Raw data are borrowed from the file at whatever address they have (below 64 KiB only if they are aligned to their elements), other
 * weights are copied. Errors: DLC_UNSUPPORTED with all operators that are not imported, or with node and reason, before anything is made;
 * DLC_PARSE_ERROR (a model that contradicts itself), DLC_NOT_FOUND (the name of an output or of a value),
 * DLC_INVALID_ARGUMENT, DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_onnx_graph(dlc_onnx_model *model, const dlc_onnx_graph_options *options, dlc_graph **graph);

/* ---- inputs and outputs of a model --------------------------------------------------------------------------------------- */

typedef enum dlc_onnx_side { DLC_ONNX_INPUT, DLC_ONNX_OUTPUT } dlc_onnx_side;

/* An input that is no initializer, or an output, as the file declares it. */
typedef struct dlc_onnx_port {
    /* Belongs to the model. */
    const char *name;
    /* Of an optional: that of its value. */
    dlc_onnx_kind kind;
    bool optional;
    /* In ONNX's notation, as seq(tensor(float)). Belongs to the model. */
    const char *type;
    /* -1: no tensor, or of an element type that libdlc does not have. */
    int dtype;
    /* -1: not declared. */
    int rank;
    /* A number, or a name (also an expression, as exporters write it), which belongs to the model; {-1, NULL}: not declared. */
    dlc_dim dims[DLC_MAX_RANK];
    /* Of an input that seems to be a state, the output that feeds it; of that output, the input; -1: none. By names, as exporters write them:
     * present* and past* (or past_key_values*), *N and * (stateN, state), *n and *0 or * (hn, h0), *_out and *_in or *; and
     * if element types and ranks agree, and sizes along all axes but one, as far as they are declared. */
    int state;
} dlc_onnx_port;

DLC_API int dlc_onnx_port_count(const dlc_onnx_model *model, dlc_onnx_side side);
/* In the file's order. DLC_INVALID_ARGUMENT: there is no such port. */
DLC_API dlc_status dlc_onnx_port_at(const dlc_onnx_model *model, dlc_onnx_side side, int index, dlc_onnx_port *port);

/* ---- runners ------------------------------------------------------------------------------------------------------------- */

/* Runs a model for whatever tensors arrive. Where one graph does not serve all of them, the runner imports the model for those that
 * arrived and notes on what that import depends, its guards: the elements of small inputs (at most 64 integers or 8 floats) that decide
 * axes, sizes, counts or branches; ranks that the file leaves open; sizes of 1, which broadcast; or, if the model's arithmetic on sizes
 * has no closed form, all sizes. It keeps up to 16 imports; equal kernels are shared. For any number of threads, which run at once unless
 * the runner has states or walks. Weights are shared by all runners of a model.
 *
 * Walks. Where a node is refused nevertheless, since computed data decide a size, an axis, a position, a string, a branch or how often a
 * loop runs, the model is walked: each run imports it node by node, and computes what lies between two such decisions in parts, whose
 * programs later runs find again (up to 256 per runner; sizes that change become parameters of kernels). Then an If takes its branch,
 * whatever the results of the other one are, and a Loop or Scan that is no one loop of a program runs iteration by iteration: carried values
 * may change their shapes, and the lengths and contents of sequences and strings; results are stacked as long as the condition holds, and
 * the memory of an iteration is freed after the next one. The first walk that succeeds is told in the log, and decides: later runs that no
 * import serves (of dlc_onnx_run_values: with inputs of that structure) are walks, too. Walks of one runner wait for each other. */
typedef struct dlc_onnx_runner dlc_onnx_runner;

/* An output that comes back as an input: the runner keeps it between runs. */
typedef struct dlc_onnx_state {
    const char *input, *output;
} dlc_onnx_state;

typedef struct dlc_onnx_runner_options {
    size_t struct_size;
    /* As in dlc_onnx_graph_options. [dim_count]; NULL: none */
    const dlc_dim *dims;
    int dim_count;
    /* [state_count]; NULL: none. Names are the file's. */
    const dlc_onnx_state *states;
    int state_count;
    /* Further states are those that dlc_onnx_port_at finds by names. Not by default, since the runner keeps what it has found: the host does not
     * get such an output, unless it gives a tensor for it. */
    bool find_states;
    /* See dlc_onnx_graph_options. */
    bool newer_opset;
    /* Of all programs; a schedule and strings in it must outlive the runner. NULL: the defaults. */
    const dlc_compile_options *compile;
    /* Of the random numbers of nodes without a seed. They are others at each run and in each iteration; runners with one seed
     * draw the same ones in the same order, in runs that failed, too. */
    int64_t seed;
} dlc_onnx_runner_options;
#define DLC_ONNX_RUNNER_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_runner_options)

/* Nothing is imported yet. Errors: DLC_NOT_FOUND (a state's name), DLC_INVALID_ARGUMENT, DLC_OUT_OF_MEMORY. Retains the model. */
DLC_API dlc_status dlc_onnx_runner_create(dlc_onnx_model *model, const dlc_onnx_runner_options *options,
                                          dlc_onnx_runner **runner);
DLC_API void dlc_onnx_runner_destroy(dlc_onnx_runner *runner);

/* Runs a model whose inputs and outputs are all tensors of numbers: inputs and outputs in the file's order (dlc_onnx_port_at), all of them,
 * by the rules of dlc_run. NULL for an input that is a state: what the run before left. At the first run a state is given, or, if the file
 * declares its sizes as numbers or by names that the other inputs have, begins with zeros; if it grows, that is, if output and input
 * have the same size along all axes but one by what the file declares, it begins without elements along that axis. An output that is a state is kept by the
 * runner; its slot may have a tensor in host memory, which then gets a copy, or else stays empty. Between runs states are not copied:
 * what a run makes is the next one's input. If the output is the input and more along one axis (a cache), both are in one buffer with room for
 * half more, and a run writes the new elements only (dlc_program_alias), unless it is a walk; lengths are parameters of kernels from the first
 * run on. Runs of a runner with states wait for each other. After a run that failed, states are as before. Of a walk, options.cancel and
 * options.budget_ms hold for the whole run, also between iterations; an event is refused with DLC_UNSUPPORTED, as it is with states.
 * Errors: those of dlc_onnx_graph, dlc_compile and dlc_run, with the model's names; DLC_INVALID_ARGUMENT also for a model with other inputs
 * or outputs, and for a state whose output has not the element type or rank of its input; those of a walk name the nodes that enclose the one that failed, and the iteration. */
DLC_API dlc_status dlc_onnx_run(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                                int input_count, dlc_output_slot *outputs, int output_count);
/* ---- values of all kinds: dlc_onnx_value of <dlc/types.h> ----------------------------------------------------------------- */

/* Runs a model of any inputs and outputs. Lengths of sequences, presence of optionals, contents of strings and keys of maps are guards:
 * the model is imported for them, and what has been imported for 16 of them is kept. A model that computes with strings only needs no
 * kernels. Inputs stay the host's, and are not kept. outputs[i] is made; the host releases it with dlc_onnx_value_destroy, after an
 * error there are none. Tensors of results are compact. An input that is a state has kind NONE, to take what the run before left, and the output that
 * feeds it is NONE. For any number of threads, like dlc_onnx_run. options.event is DLC_UNSUPPORTED; so are results that are made of strings where
 * tensors are on a device.
 * Errors: those of dlc_onnx_run; DLC_INVALID_ARGUMENT (a value of another kind or element type than the file's, by its place, as x.2 of
 * a sequence x; a position outside of a sequence; the element of an empty optional), DLC_BUDGET_EXCEEDED (more than 1,024 tensors,
 * 4 Mi strings, 1 GiB of them), DLC_UNSUPPORTED (SequenceMap with more than 20,000 nodes in all elements; strings as sequences of a
 * Scan or stacked results; states of a model with other values than tensors). */
DLC_API dlc_status dlc_onnx_run_values(dlc_onnx_runner *runner, const dlc_run_options *options,
                                       const dlc_onnx_value *const *inputs, int input_count, dlc_onnx_value **outputs,
                                       int output_count);
/* Releases a result with all in it. NULL: nothing. */
DLC_API void dlc_onnx_value_destroy(dlc_onnx_value *value);

/* States are as before the first run. */
DLC_API void dlc_onnx_runner_reset(dlc_onnx_runner *runner);
/* The program that serves these inputs, which are given as for dlc_onnx_run; the model is imported for them if none does, but not run. For
 * dlc_program_profile, dlc_program_dump and others that look inside. Its inputs are those of the model by name, without those whose
 * elements the import has as guards. It belongs to the runner, and is valid until the runner's next run, by any thread, or its end. Errors:
 * those of dlc_onnx_graph and dlc_compile; DLC_UNSUPPORTED if no one program serves the inputs, with the reason: dlc_onnx_run tries a walk. */
DLC_API dlc_status dlc_onnx_runner_program(dlc_onnx_runner *runner, const DLTensor *const *inputs, int input_count,
                                           dlc_program **program);
/* The imports that the runner holds, a line for each, with guards and number of runs; last, if the model is walked, the number of walks. The
 * caller frees it with dlc_text_free. */
DLC_API dlc_status dlc_onnx_runner_describe(dlc_onnx_runner *runner, char **text);

/* ---- operators of the host --------------------------------------------------------------------------------------------- */

/* The operator of a domain, in a range of versions of its operator set, as the host defines it: `expand` builds the results from the operands by
 * the public builder, or `call` computes them in C. Models that are imported later have it at any place: in functions, in the bodies of If, Loop and
 * Scan, in graphs and in runners. examples/onnx_operator.c shows both. Ownership, threads and errors are those of <dlc/extend.h>; messages name
 * the node. Functions are called by any call that imports or runs a model, and must not use the runner that is in that call.
 *
 * Operands and attributes. dlc_callback_input_count, dlc_callback_input (not ok: an operand that the node leaves out), dlc_callback_integer,
 * dlc_callback_number, dlc_callback_string (one without zeros; terminated), dlc_callback_list, and for all kinds dlc_callback_attribute.
 *
 * expand. As in <dlc/extend.h>: operators that `call` C functions are applied in it by dlc_apply. Operands are tensors of numbers. Numbers that decide
 * shapes are read by dlc_callback_elements. Results that the node does not use may be left out; dlc_callback_result_count is the length
 * of the list.
 *
 * call. Depends on its inputs and attributes alone, unless has_effects is set, and may be called more than once, or not at all. With shape_function it
 * is a step of graphs and programs, called in runs on tensors of numbers; shapes are found without elements, by dlc_callback_set_shape, as in
 * <dlc/extend.h>. Without one, what it makes decides sizes: then, and where operands are strings, it is called while the model is imported, if the
 * operands are known (constants, strings that have arrived), and else by walks of dlc_onnx_run and dlc_onnx_run_values alone; dlc_onnx_graph
 * answers DLC_UNSUPPORTED. */

/* inputs[input_count]: TENSOR, compact, in host memory, or STRINGS; NULL: an operand that the node leaves out. Sequences, maps and empty optionals are
 * refused. Gives each result that the node uses, with a shape_function all, by dlc_callback_tensor or dlc_callback_strings. */
typedef dlc_status dlc_onnx_call(void *user, dlc_callback *callback, int input_count,
                                 const dlc_onnx_value *const *inputs, int result_count);

typedef struct dlc_onnx_operator_options {
    size_t struct_size;
    /* NULL: the standard's */
    const char *domain;
    const char *name;
    /* First and last version; 0: the oldest, the newest */
    int since, until;
    /* Names of the attributes that the functions read, separated by blanks; a node with another one is refused, since it would be ignored. NULL:
     * all are read */
    const char *attributes;
    /* One of these two */
    dlc_operator_expand *expand;
    dlc_onnx_call *call;
    /* Of `call`, see above; NULL: none */
    dlc_operator_shape *shape_function;
    /* Of `call`: it is called once per run, in the order of the graph, or, by a walk, of the file; without shape_function by walks alone */
    bool has_effects;
    void *user;
    void (*release)(void *user);
} dlc_onnx_operator_options;
#define DLC_ONNX_OPERATOR_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_operator_options)

/* A model's own function of that name comes first. DLC_INVALID_ARGUMENT: libdlc imports this operator itself in one of the versions, or another
 * one is registered for it; options that contradict each other. */
DLC_API dlc_status dlc_onnx_register(dlc_context *context, const dlc_onnx_operator_options *options);

/* For functions of such operators, on any thread, while they run. */

/* The version of the operator set that the node was written for; 0: the file does not say. */
DLC_API int dlc_callback_opset(const dlc_callback *callback);
/* Results that the node lists. */
DLC_API int dlc_callback_result_count(const dlc_callback *callback);
/* An attribute, in memory of the library, until the function returns: a number as a tensor of rank 0 (i64, f32), a string as STRINGS of rank 0,
 * lists of them with rank 1; a tensor; a list of tensors as a SEQUENCE. NULL: the node has none of that name. */
DLC_API const dlc_onnx_value *dlc_callback_attribute(const dlc_callback *callback, const char *name);
/* expand: the elements of an operand of integers, as numbers: sizes, axes, pads. Where data or open sizes decide them, false, and the
 * function fails: a runner then calls it again with the elements that have arrived, or in a walk. The list belongs to the library. */
DLC_API bool dlc_callback_elements(dlc_callback *callback, int input, const int64_t **list, int *count);
/* call: the tensor of a result, compact, in host memory, whose elements the function writes; asked for once. By a shape_function it has this element
 * type and shape already. NULL: not so, or memory is refused; the function fails with the message. */
DLC_API DLTensor *dlc_callback_tensor(dlc_callback *callback, int result, dlc_dtype dtype, int rank,
                                      const int64_t *shape);
/* call: a result that is strings, which are copied. */
DLC_API dlc_status dlc_callback_strings(dlc_callback *callback, int result, int rank, const int64_t *shape,
                                        const dlc_onnx_string *strings);

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

typedef struct dlc_onnx_write_options {
    size_t struct_size;
    /* Version of the operator set: 17, 20, 21 or 23; 0: the lowest of these that holds the graph. */
    int opset;
    /* Constants of more bytes than this are written to a file of their own, PATH.data, beside the model's; 0: all are in the model, whose
     * size is limited to 2 GiB. Both files belong together: the model names the other one without its folder, which must be a name that
     * dlc_onnx_open takes: without a backslash, or a colon after its first character. */
    size_t external_bytes;
    /* Name of the program that writes the model, for people; NULL: libdlc. */
    const char *producer;
} dlc_onnx_write_options;
#define DLC_ONNX_WRITE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_onnx_write_options)

/* Writes the graph, as it was built, as an ONNX model. The graph is only read, and nothing is kept. options NULL: defaults. The elements of
 * constants of 4 KiB and more begin at multiples of 64 bytes of the file.
 *
 * Names. Inputs and outputs have the graph's, unnamed ones input_0, output_1, ...; an input and an output of one name are an error, since ONNX
 * has one space of names. Values named by dlc_name keep the name if it is free. Symbols are dim_param; sizes that are expressions of symbols are
 * computed by Shape and arithmetic when the model runs.
 * Operators. Composites that ONNX has stay one node, all other operators become several. Of what ONNX leaves open (indices outside of a tensor,
 * shifts beyond the width) libdlc's rule is written out; what it orders differently is rounded differently: see the operators. Random numbers
 * are libdlc's own, computed in the model. The sign of NaN is not kept, silu of -infinity is NaN, and casts of floats beyond a type of 32 or
 * 64 bits are those of the implementation.
 * c64 has no operators in ONNX: inputs, outputs and constants of it are f32 with a last dimension of 2.
 * Not exported: functions of the host, factorisations of matrices (lu, qr, cholesky, eigh, svd, triangular_solve, and operators composed of these),
 * combinations of the bits of integers by reductions and scatters, convolutions of integers of more than 16 bits, a conditional scan.
 * Ranges of symbols (dlc_symbol_varies) are not kept.
 *
 * Files are written under other names in the same folder and renamed at the end: after an error an older file at `path` is unchanged, and there
 * is no new one. They take the place of regular files and of symbolic links to such, of nothing else. Errors: DLC_UNSUPPORTED with the operators
 * that cannot be exported, by names of values, each with its reason, or an operator set that is too low; DLC_BUDGET_EXCEEDED (a model of more
 * than 2 GiB); DLC_NOT_FOUND and DLC_INVALID_ARGUMENT with the system's reason (the file cannot be created or written), DLC_INVALID_ARGUMENT
 * (options; names; a graph without outputs; a device, pipe or folder at `path`); the graph's own first error; DLC_OUT_OF_MEMORY. */
DLC_API dlc_status dlc_onnx_write(dlc_context *context, const char *path, const dlc_graph *graph,
                                  const dlc_onnx_write_options *options);

#ifdef __cplusplus
}
#endif
#endif
