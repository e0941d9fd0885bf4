/* libdlc: a deep-learning compiler inside your own process.
 *
 *   dlc_context *ctx;   dlc_context_create(NULL, &ctx);
 *   dlc_graph *g;       dlc_graph_create(ctx, &g);
 *   dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {64, NULL}});
 *   dlc_value y = dlc_relu(dlc_linear(x, w, b));
 *   dlc_output(g, "y", y);
 *   dlc_program *p;     dlc_compile(ctx, g, NULL, &p);       checks the graph; no shapes needed
 *   dlc_run(p, NULL, inputs, 1, outputs, 1);                 compiles for the shapes that arrive, caches, runs
 *
 * Conventions, stated once
 * Errors      Every call that can fail returns a dlc_status; its message is in dlc_error_message(ctx) of the calling thread until
 *             that thread's next call on the context. Builder calls return values: the first mistake is recorded in the graph
 *             (operator, operands, what was expected), and its result is a poisoned value that propagates. Check once with
 *             dlc_graph_status or at dlc_compile: these, dlc_output and every later builder call that fails report that first status and
 *             message. If an earlier call failed and its result is NULL, a call that is given this NULL (dlc_run without a program) appends
 *             the earlier message to its own. Objects stay usable after any error. The library never aborts, prints or exits.
 * Ownership   Create/destroy pairs, in any order and on any threads: every object keeps alive what it needs. A program needs no graph. A
 *             call and an event keep their program alive; graphs and programs keep the files that hold their constants and the natives that
 *             they call; tensors keep the memory that they show; and every object keeps its context, whose threads, caches, registrations,
 *             allocator and log stay in use until the last of these objects is destroyed. An object is destroyed once and not used
 *             afterwards, nor destroyed while another thread is in a call with it. What belongs to the host must be kept by the host as
 *             long as something may use it: borrowed bytes (dlc_constant_borrow, dlc_file_parse, dlc_eager_borrow), functions with their
 *             `user`, flags.
 *             NULL is accepted by every destroy.
 * Threads     A context and a program may be used by many threads at once; a graph by one at a time.
 * Stack       A call that finds less stack than it needs returns DLC_OUT_OF_MEMORY, never a signal, and may be retried on another thread:
 *             32 KiB for building, parsing, compiling and runs; 64 KiB for binding without code generation, plus some 200 bytes
 *             for each operation in a chain that one kernel computes; in all cases 6 KiB more for each level of nested sub-graphs;
 *             176 KiB for generating code for the target cpu in this process,
 *             with gathers of gathers up to 1.5 MiB. For stacks that a host switches to, see dlc_context_options.coroutine_stack.
 * Fork        In a forked child, a context and its objects can be used as before if at the fork no other thread was in a call with them,
 *             other than a run, by dlc_run or dlc_call_run, of shapes that are already bound (the library's own background_compile
 *             thread counts as in a call while it builds; a run of a runner of <dlc/onnx.h> is a call like others). Otherwise calls that make, bind or change something return
 *             DLC_UNSUPPORTED in the child, destroying does nothing, and dlc_run and dlc_call_run of bound shapes still work. Contexts
 *             created in the child work; if another thread of the parent was generating code, they generate code with isolate_compiler
 *             only (else DLC_UNSUPPORTED). For contexts from before the fork the threads of `threads`, `compile_threads` and
 *             background_compile do not exist: the caller does their work. A host's allocator, parallel_for and callbacks must handle forks
 *             themselves. Device targets cannot be used after a fork.
 * pthread_cancel takes effect after a call, not in it, nor in host functions that the call runs; the thread's cancellation state is
 *             restored afterwards. As in almost all functions, a thread must not be in a call while its cancellation is asynchronous.
 * Limits      Texts, files and graphs are limited in depth, memory and time: dlc_limits, in <dlc/types.h>.
 * Options     Structs begin with struct_size; set them up with their _INIT macro; zero means default.
 * Shapes      Dimensions are in elements, outermost first; tensors are DLPack tensors; NULL strides mean compact row-major.
 * Strings     UTF-8, copied.
 * Extension   The host's own operators, rewrite rules, passes and schedules: <dlc/extend.h>.
 * Eager       The same operators on existing tensors, and graphs by tracing a function: <dlc/eager.h>. */
#ifndef DLC_DLC_H
#define DLC_DLC_H

#include <dlc/types.h>

#define DLC_VERSION_MAJOR 0
#define DLC_VERSION_MINOR 1
#define DLC_VERSION_PATCH 0

/* What the _INIT macros of options structs expand to. */
#ifdef __cplusplus
template <typename type> type dlc_options_init() {
    type options = type();
    options.struct_size = sizeof options;
    return options;
}
#define DLC_OPTIONS_INIT(type) dlc_options_init<type>()
#else
#define DLC_OPTIONS_INIT(type) \
    { .struct_size = sizeof(type) }
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_context dlc_context; /* allocator, threads, kernel cache, target */
typedef struct dlc_graph dlc_graph;     /* being built */
typedef struct dlc_program dlc_program; /* compiled; immutable */

/* A tensor value of a graph, passed by value so that expressions nest. `serial` detects values of destroyed graphs. A value whose
 * graph is NULL is poison. */
typedef struct dlc_value {
    dlc_graph *graph;
    uint32_t id;
    uint32_t serial;
} dlc_value;

DLC_API const char *dlc_version(void);
DLC_API const char *dlc_status_text(dlc_status status);
DLC_API const char *dlc_dtype_name(dlc_dtype dtype);

/* ---- context ------------------------------------------------------------------------------------------------------- */

typedef void (*dlc_parallel_for_function)(void *user, int64_t count, void (*body)(void *argument, int64_t index),
                                          void *argument);

typedef struct dlc_context_options {
    size_t struct_size;
    /* "cpu" (default when built in), "cuda", "interp", "null"; "cuda:1": the second device */
    const char *target;
    /* Default: libc */
    const dlc_allocator *allocator;
    /* 0: the calling thread only; N: a pool of N threads including the caller, clamped to the CPUs this process may use.
     * On a device target they run what the device cannot */
    int threads;
    /* The same for code generation; 0: the calling thread only */
    int compile_threads;
    /* The host's threads instead of a pool (`threads` is then 0): calls body(argument, i) for all i < count in any
     * order on any threads and returns when all have returned */
    dlc_parallel_for_function parallel_for;
    void *parallel_user;
    /* How many bodies parallel_for may run at once: at least 1 with it, 0 without */
    int parallel_width;
    /* Receives the output of DLC_DEBUG, and warnings to the host, such as an environment variable with an unknown value; default:
     * dropped */
    void (*log)(void *user, const char *line);
    void *log_user;
    /* For statistics and budgets; default: monotonic clock */
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
    /* Receives what was done when, by clock_ns, on the thread that did it, at its end: "compile", a module of kernels, by the name of its first
     * one; "run", what a thread did of a kernel in a run on target cpu or interp. `values` are the names
     * of the values that the kernel computes (" of a, b"), or "". Both live during the call only. It must not call the library. Default: none */
    void (*trace)(void *user, const char *what, const char *name, const char *values, uint64_t begin_ns,
                  uint64_t end_ns);
    void *trace_user;
    /* Kernel cache budget; 0: 64 MiB */
    size_t cache_bytes;
    /* Bound shapes kept per program; 0: 256 */
    size_t plan_cache_entries;
    /* Kernels and fusion decisions are also stored in files of this folder, which any number of processes may share:
     * another process, or a later run of this one, loads a kernel in less than a tenth of a millisecond and
     * repeats no prediction. The folder is created if missing (its parents are not). A file is used only if it is a regular file, is
     * owned by this user or root and writable by its owner only, was written by this very build of the library for this very
     * machine, and is complete; else the kernel is compiled. An unusable folder is no error: the log reports it
     * once. A path over 4,000 bytes, with the current folder if it is relative, is
     * DLC_INVALID_ARGUMENT. NULL, "": none */
    const char *cache_directory;
    /* Approximate limit on the bytes stored there, in blocks of 4 KiB; the least recently used files are evicted. 0: 256 MiB */
    size_t cache_directory_bytes;
    /* Target cpu: another process generates the code, the program libdlc-compiler, which is started on
     * demand and stays until the context is destroyed (one for each thread that compiles). If that process ends - by a fatal
     * error of LLVM, a crash, lack of memory, a timeout - the call returns DLC_COMPILE_FAILED, DLC_BUDGET_EXCEEDED or
     * DLC_OUT_OF_MEMORY with its message, and the host, in which no LLVM code runs, is unaffected. The first
     * compilation takes some ten milliseconds more. If neither pidfds nor /proc can be used, compiling returns
     * DLC_UNSUPPORTED */
    bool isolate_compiler;
    /* That program: an absolute path (else DLC_INVALID_ARGUMENT). NULL: libdlc-compiler in the folder of the
     * library's file (of the executable if linked statically), as the kernel names it: the current
     * folder, argv, PATH and a relative path given to dlopen have no influence, and it is fixed when the context is created. It must be of
     * the same build. DLC_NOT_FOUND if it is missing, /proc is not mounted, or the library's file was replaced or
     * deleted since it was loaded: then the path must be given */
    const char *compiler_path;
    /* A thread of the library compiles in the background: a program runs unseen shapes
     * with kernels that take every symbol as a parameter, which sizes of a range share, and switches to
     * kernels for exactly these sizes, where there are to be any (see dlc_symbol_varies), once they are compiled. If an operator is
     * exact, both give the same bits.
     * dlc_prepare and dlc_call_create still wait for the exact kernels. The host's clock and log are also called on that thread,
     * progress is not; `cancel` and `budget_ms` apply to its builds, so `cancel` must live as long as the
     * program. A build that fails there changes nothing and is reported to the log, once for each program. At most 256 builds wait; if
     * shapes come faster than they are built, those beyond are asked for again after 32 runs */
    bool background_compile;
    /* The host promises that its threads call runs with the floating-point modes of process start (round to nearest,
     * denormals kept, exceptions masked). Otherwise each run checks them, which takes 10 ns, and sets them for its
     * duration */
    bool default_float_modes;
    /* Limits on texts, files and graphs; zeros: the defaults. */
    dlc_limits limits;
    /* Bytes of stack that are available to a call made on a stack that is not the thread's own and that the library cannot
     * measure: coroutines, fibers, green threads. 0: 64 KiB. */
    size_t coroutine_stack;
    /* Device targets: launch every kernel separately. Otherwise consecutive kernels are submitted, from their second run on,
     * as one piece of work (a CUDA graph), which takes the host less time */
    bool no_batches;
} dlc_context_options;
#define DLC_CONTEXT_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_context_options)

DLC_API dlc_status dlc_context_create(const dlc_context_options *options, dlc_context **context);
DLC_API void dlc_context_destroy(dlc_context *context);
/* Message of the calling thread's last failed call on this context ("" if none), including a call that was given no object because the
 * call that makes it had failed; NULL context: of its last failed call without a context. Valid until the thread's next call. */
DLC_API const char *dlc_error_message(const dlc_context *context);

/* ---- graphs ---------------------------------------------------------------------------------------------------------- */

DLC_API dlc_status dlc_graph_create(dlc_context *context, dlc_graph **graph);
/* Programs need no graph. A live graph keeps the bytes of its constants in addition to the packed copies of programs (README, "Memory"). */
DLC_API void dlc_graph_destroy(dlc_graph *graph);
/* The first error of the graph's builder calls, DLC_OK if none. The message, also in dlc_error_message afterwards, names the operator, the
 * operands as the caller wrote them, what was expected, and what was probably meant; it belongs to the graph, "" if
 * there is none. */
DLC_API dlc_status dlc_graph_status(const dlc_graph *graph);
DLC_API const char *dlc_graph_message(const dlc_graph *graph);

/* A run-time input. dims[rank]; one symbol name is one size throughout the graph. name NULL: none; dlc_program_input_name gives its number. */
DLC_API dlc_value dlc_input(dlc_graph *graph, const char *name, dlc_dtype dtype, int rank, const dlc_dim *dims);
/* How the library may treat a symbol: its values vary so much that kernels should take it as a parameter (range and multiple are
 * promises, checked at run; 0: unknown). Sizes 0 and 1 (a step at a time) always have kernels of their own. Without a hint, so
 * has a symbol's first value, and all others share kernels that take the size as a parameter: one build up to 1,024, one up to
 * 16,384, and so on by factors of 16. A declared symbol has the same builds, and one for sizes up to 16. A value that recurs (32
 * runs of the same shapes, or 32 binds of the value in different shapes) becomes exact: it gets kernels of its own, up to four
 * values of a symbol. The 32nd run compiles them after its outputs are written, or has it done in the background
 * (background_compile); runs with budget_ms, and those while a profile is taken, do not. dlc_prepare and dlc_call_create make
 * the sizes that they bind exact at once. Both kinds of kernels give the same bits if an operator is exact; sums may be added in
 * another order. A size keeps its bits from the first run on if it is declared, or bound by these calls before it runs, and
 * without background_compile also if it is 1 or the first. A hint about a symbol that no shape names has no effect; dlc_compile
 * reports it to the log, as it does a symbol that is named once and resembles another one. */
DLC_API dlc_status dlc_symbol_varies(dlc_graph *graph, const char *name, int64_t low, int64_t high, int64_t multiple);
/* A constant tensor; bytes are compact row-major and copied, those of 64 KiB and more once: the graph and its programs share the copy. */
DLC_API dlc_value dlc_constant(dlc_graph *graph, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes);
/* The same without a copy: bytes must stay unchanged as long as the graph and its programs live. */
DLC_API dlc_value dlc_constant_borrow(dlc_graph *graph, dlc_dtype dtype, int rank, const int64_t *shape,
                                      const void *bytes);
/* A rank-0 constant of any dtype from a number, rounded to the dtype once: to nearest, ties to even. Integers saturate
 * and take 0 for NaN; bool is whether the number is not 0; c64 takes it as its real
 * part. dlc_scalar_i64 is exact for 64 bits, and takes the low bits for narrower integers. */
DLC_API dlc_value dlc_scalar(dlc_graph *graph, dlc_dtype dtype, double number);
DLC_API dlc_value dlc_scalar_i64(dlc_graph *graph, dlc_dtype dtype, int64_t number);
/* A result of programs; no two have one name. name NULL: none, as of inputs. */
DLC_API dlc_status dlc_output(dlc_graph *graph, const char *name, dlc_value value);

DLC_API dlc_dtype dlc_value_dtype(dlc_value value); /* DLC_DTYPE_COUNT: poison */
DLC_API int dlc_value_rank(dlc_value value);        /* -1: poison */
/* Negative axes count from the end. A symbol, or an expression of symbols, reads as {-1, "text"}, where the text belongs to the graph; without
 * such an axis, and of poison: {-1, NULL}. */
DLC_API dlc_dim dlc_value_dim(dlc_value value, int axis);
DLC_API bool dlc_value_ok(dlc_value value);

/* Names of values, for people: dumps, profiles, plans, errors and logs name the values that kernels compute. Names may hold any bytes
 * (escaped when printed) and there may be any number; they change no kernel, no key, no result. A value may have several, and two values
 * may share one. Passes that make several values of one, or one of several, hand names on: a kernel lists those of all values that it
 * computes, up to eight. dlc_file_constant names its value as the file does.
 *
 * dlc_name names a value within the open scopes of its graph ("encoder.layer0" and "scores": encoder.layer0.scores), and
 * returns it, so that calls nest. dlc_scope_push opens a scope inside the innermost open one: values made in it without a name are shown
 * under the scope's name, also in error messages; dlc_scope_pop closes the innermost one. Sub-graphs share the scopes of their parent
 * graph. Errors, recorded in the graph: a name that is NULL or empty, a stale value, no open scope. */
DLC_API dlc_value dlc_name(dlc_value value, const char *name);
DLC_API dlc_status dlc_scope_push(dlc_graph *graph, const char *name);
DLC_API dlc_status dlc_scope_pop(dlc_graph *graph);

/* Sub-graphs for dlc_if, dlc_while, dlc_scan and dlc_with_gradient. The new graph shares symbols with its parent and may use its parent's values (captures);
 * the parent owns it. Declare parameters in order with dlc_input, results in order with dlc_output. */
DLC_API dlc_graph *dlc_subgraph(dlc_graph *parent);

/* A host function, named by dlc_custom_call and dlc_custom_effect. It gets compact tensors in host memory, fills the outputs, and
 * is called on the threads that run the graph's programs, concurrently if the host runs them concurrently; `user` must live as long as
 * these programs. Registering it again is no error; another function under the same name is. For a function that many graphs use, with a
 * shape rule, attributes and errors, see dlc_operator_register in <dlc/extend.h>. */
typedef void dlc_custom_function(void *user, int inputs, const DLTensor *const *input, int outputs,
                                 DLTensor *const *output);
DLC_API dlc_status dlc_custom_register(dlc_graph *graph, const char *name, dlc_custom_function *function, void *user);

/* The same for a function of any C signature without a result: pass dlc_native_call as the custom function and the dlc_native as
 * its `user`. `signature` lists the source of each parameter, separated by commas:
 *     in K, out K    pointer to the elements of input or output K
 *     i32 V, i64 V, f32 V, f64 V    V is a number, `dim K A` (the size of axis A of input K) or `count K` (its elements)
 *     user           the pointer given here
 * for example "in 0, out 0, i64 count 0, f32 0.5". If a tensor or axis that the signature names does not exist, a size
 * does not fit its i32, or the dlc_native is missing, the call is skipped and its outputs are zeros. */
typedef struct dlc_native dlc_native;
DLC_API dlc_status dlc_native_create(dlc_context *context, void (*function)(void), void *user, const char *signature,
                                     dlc_native **native);
DLC_API void dlc_native_destroy(dlc_native *native);
DLC_API void dlc_native_call(void *native, int inputs, const DLTensor *const *input, int outputs,
                             DLTensor *const *output);

typedef struct dlc_print_options {
    size_t struct_size;
    /* Of large constants (above 32 bytes, and not printed as up to 16 numbers) print the first 16 bytes, then "...". dlc_graph_parse
     * refuses such a text. */
    bool elide_constants;
} dlc_print_options;
#define DLC_PRINT_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_print_options)

/* Text form; parse makes a new graph. The printed text is allocated with the context's allocator: dlc_text_free, also after the context
 * is destroyed (`context` may be NULL). dlc_graph_print is dlc_graph_print_with options NULL. */
DLC_API dlc_status dlc_graph_print(const dlc_graph *graph, char **text);
DLC_API dlc_status dlc_graph_print_with(const dlc_graph *graph, const dlc_print_options *options, char **text);
DLC_API dlc_status dlc_graph_parse(dlc_context *context, const char *text, size_t size, dlc_graph **graph);
DLC_API void dlc_text_free(dlc_context *context, char *text);

/* ---- programs --------------------------------------------------------------------------------------------------------- */

typedef struct dlc_compile_options {
    size_t struct_size;
    /* Time limit of dlc_compile and of each bind (compilation for one set of shapes; the first one also computes what depends
     * on constants alone, with a limit of its own), checked throughout; during a module's code generation
     * only with isolate_compiler. 0: none; negative: refused. Beyond it DLC_BUDGET_EXCEEDED */
    int64_t budget_ms;
    /* Limit on the working memory of dlc_compile or a bind, and another of the same size for each of a bind's modules of
     * kernels; includes the code generator's memory with isolate_compiler only; excludes constants that are computed
     * and kept. 0: none */
    size_t budget_bytes;
    /* Raise to non-zero from any thread: compilation ends with DLC_CANCELLED */
    const volatile int *cancel;
    /* Called while a bind compiles kernels: `done` of the `total` missing kernels are compiled; first with 0, last with total; a module
     * of several kernels is one step. `stage` is "compile". Called on the binding thread with no lock held: it may run shapes that are
     * already bound. It must not wait for another thread that binds, since that may wait for these kernels. */
    void (*progress)(void *user, const char *stage, int done, int total);
    void *progress_user;
    /* Compute operators as they are written: round every operator's result to its dtype, even inside fused kernels, and no inference
     * form. That form, otherwise, is for values that depend on constants alone, and changes results by roundings. Products of
     * dequantised values (dlc_dequantize_linear) by dequantised constants are sums of integers, if the machine has an instruction for them, and
     * dlc_quantize_linear multiplies by 1/scale: at most one step from the result of floats (NaN aside). Factors and shifts for each channel behind a
     * contraction or convolution, as of a batch norm, become one factor and one shift, or part of the weights; factors of a contraction's
     * operands (numbers, sums by which rows are divided) are applied to its result: numbers may then overflow elsewhere. Products with
     * a factor that a choice by positions makes 0 (triangular matrices, attention weights of keys that a query does not see), and
     * products of a sum that is multiplied by such a 0, may be left out, even if the other factor is infinite or NaN */
    bool no_excess_precision;
    /* The host's schedules for regions, in the form of the dump "schedule": sections headed by lines `region NAME:`
     * (regions of that name), `region #HASH:` or `region NAME #HASH:` (the region that computes exactly that, in any
     * program; if several do, the one of that name first). NULL, and for regions not listed: the target's
     * rules. A section may instead consist of lines `choose STAGE.CHOICE VALUE`, in the form of the dump "choices": the target's rules
     * run, but for these choices. A malformed text is an error of dlc_compile, a schedule that does not fit its region, or a choice that
     * the rules do not have, an error of binding. The regions depend on shapes: a section that no region has used is reported to the log,
     * once */
    const char *schedule;
    /* f32 convolutions with constant windows of 3x3 neighbours or of 3 elements and stride 1, of images and signals whose
     * sizes are numbers, may use Winograd's algorithm (Lavin & Gray 2015) if it is faster. Results then differ from the exact
     * ones by at most 2^-24 * (ci + 40) * 2304 * ci * max|x| * max|w| for ci channels: in practice about 2^-24 * 32 times the
     * largest result, some ten times the error of a direct sum; and an infinity or NaN in x spreads to the results of its
     * tile, 16 at most, and to adjacent tiles */
    bool winograd;
    /* Limit on the bytes that a run needs between its kernels: the arena of a plan (the dump "plan" tells its size), without inputs, outputs
     * and constants, and without the arenas of branches and of loops' bodies. Within it, values that are kept for long, as by a training
     * step for its backward pass, are dropped and computed again, those first that take the least time for each byte; never loops, scatters,
     * sorts, random state and functions of the host. Copies run the same kernels; results keep their bits, unless a
     * contraction is computed again without what else its kernel computes: its sums may then have another order. A smaller limit never makes
     * a larger arena. If no recomputation suffices, binding fails with DLC_BUDGET_EXCEEDED, and the message has the least limit that
     * does. 0: none */
    size_t memory_bytes;
    /* For the backward part of a training step, maps and moves are computed again from the values with the fewest bytes that suffice, and these
     * alone are kept: of gelu, its operand in place of its result and its derivative. No contraction and no sum is computed twice. It is done
     * where clearly less is live at once, before memory_bytes, and not inside of loops and branches. Derivatives are those that dlc_gradient and
     * the like have made. Values of maps keep their bits; sums of other kernels may have another order */
    bool recompute;
} dlc_compile_options;
#define DLC_COMPILE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_compile_options)

DLC_API dlc_status dlc_compile(dlc_context *context, dlc_graph *graph, const dlc_compile_options *options,
                               dlc_program **program);
DLC_API void dlc_program_destroy(dlc_program *program);
DLC_API int dlc_program_input_count(const dlc_program *program);
DLC_API int dlc_program_output_count(const dlc_program *program);
/* They belong to the program. NULL: there is no such input or output. */
DLC_API const char *dlc_program_input_name(const dlc_program *program, int input);
DLC_API const char *dlc_program_output_name(const dlc_program *program, int output);
/* Output `output` may be written over input `input` (a KV cache, optimiser state): the host passes the same buffer as both, or two.
 * Call it before shapes are bound, that is, before the first run, dlc_prepare and dlc_call_create; an input is donated to one output.
 * Shapes and dtypes must agree; symbolic sizes are compared when shapes are bound. If the program allows it nothing is copied: an update
 * of a slice of the input (dlc_dynamic_update_slice, dlc_scatter) then costs the elements written, not the buffer's size, and elementwise
 * results overwrite their operand; dlc_program_dump "plan" reports the outcome for each pair. A run that is cancelled or fails
 * while it computes leaves a shared buffer undefined.
 *
 * Or the output is the input and more along one axis, concat(input, ...): a cache that grows. Then the host passes both as the first elements of
 * one buffer with room for more: one address, and for both the strides of a compact tensor that has that larger size along the axis. A run
 * writes the new elements only; the input's stay as they are, also if it fails. The room is a parameter of kernels: no size of it, and none
 * of the input if its symbol varies (dlc_symbol_varies), needs others. A buffer that is full is replaced by passing a larger one as the
 * output: the input's elements are copied there. So they are if the two have nothing in common, and where outputs that grow alike
 * are given buffers of unequal room. What lies in the room beyond the output is undefined after a run. Not for
 * elements of less than a byte, f8e8m0 and c64, nor on device targets (DLC_UNSUPPORTED). */
DLC_API dlc_status dlc_program_alias(dlc_program *program, int output, int input);

typedef enum dlc_stop_at { DLC_STOP_AT_NAN = 1, DLC_STOP_AT_INFINITY = 2 } dlc_stop_at;

typedef struct dlc_event dlc_event; /* a run that was started, and its completion */

typedef struct dlc_run_options {
    size_t struct_size;
    /* Set to non-zero by any thread: the run ends with DLC_CANCELLED, on target cpu within some milliseconds, whatever it computes
     * at that time; a running host function is not interrupted. Outputs are then undefined. */
    const volatile int *cancel;
    /* The same after this many milliseconds, with DLC_BUDGET_EXCEEDED; binding of unseen shapes has a budget of its own (see
     * dlc_compile_options). 0: none. DLC_UNSUPPORTED on device targets. */
    int64_t budget_ms;
    /* Device targets: a stream of the host (a CUstream of the device's primary context). The run is ordered after the work submitted
     * to it before, and tensors on the device are accessed in its order. DLPack's numbers 1 (the
     * default stream) and 2 (the thread's) are streams, too. NULL, or DLPack's -1: one of the library's, which is ordered after
     * nothing: pending work on the tensors on the device must be complete */
    void *stream;
    /* Not NULL: the run returns when its work is submitted, and *event reports its completion; see below. NULL after a
     * failure: then nothing was submitted */
    dlc_event **event;
    /* Bits of dlc_stop_at: the run ends with DLC_NOT_FINITE at the first such element of an input, of a kernel's result or of a host
     * function's, in execution order, and the message names it. Outputs are then undefined. Kernels run
     * one by one, and every result is read once more. Values inside a fused kernel are not checked: dlc_program_tap shows those,
     * DLC_DISABLE=fuse makes each operator a kernel. Constants are not checked. For targets that run in host memory; DLC_UNSUPPORTED
     * on others */
    unsigned stop_at;
    /* Not NULL: set to whether the run has begun to compute when it returns. If not, because it was refused, all tensors are as they were;
     * if so and it failed, outputs are undefined, and with them the inputs that were donated to outputs */
    bool *begun;
} dlc_run_options;
#define DLC_RUN_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_run_options)

/* An output slot: set `tensor` to the caller's buffer (shape and dtype are checked; any strides without overlap), or leave it
 * NULL: the library then fills `managed` with a new compact tensor; call managed->deleter(managed) when done. It is allocated
 * with the inputs: on the device if any input is there. */
typedef struct dlc_output_slot {
    DLTensor *tensor;
    DLManagedTensorVersioned *managed;
} dlc_output_slot;

/* Binds (compiles and caches) unseen shapes of the inputs, then runs. Inputs may have any strides. Inputs and
 * outputs must not overlap unless donated by dlc_program_alias. Blocks until the outputs are written, unless options.event is set.
 * Programs of a device target take tensors in host memory, which are copied there and back, and tensors on the context's own device,
 * which are used in place.
 * Shapes that depend on data (dlc_cut, dlc_non_zero and other operators with a counted dimension): the slot of an output with such a
 * dimension must be empty (else DLC_INVALID_ARGUMENT); the tensor that the library makes has the size. Such a program runs in segments,
 * each bound when its sizes are known: dlc_run waits, also with options.event, whose event is then done; dlc_prepare binds the
 * first segment; dlc_output_shape, dlc_call_create and dlc_program_alias return DLC_UNSUPPORTED if sizes are not known; dumps that need
 * shapes show the first segment. A run that fails leaves the host's output tensors undefined. */
DLC_API dlc_status dlc_run(dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs,
                           int input_count, dlc_output_slot *outputs, int output_count);
/* Runs that return early, by options.event. Until query or wait reports that the event is done, the data of all tensors must stay
 * in place and inputs keep their contents (tensor descriptions, shapes and strides may be freed); outputs are undefined.
 * Destroying an event waits for its run. A failure after dlc_run has returned is reported
 * by wait, with its message, and by query. On host targets, and for programs that need the host to continue (host functions,
 * branches, profiles), part or all of the run is done when dlc_run returns. Runs on streams of the library are unordered:
 * a run that reads what another one writes must be given the same stream of the host, or wait. Cancelling does not affect submitted
 * work. Any number of events may exist at once; each is used by one thread at a time. */
DLC_API dlc_status dlc_event_query(dlc_event *event, bool *done); /* does not wait */
DLC_API dlc_status dlc_event_wait(dlc_event *event);
/* Work that the host submits to its stream (as in options.stream) from now on waits for the run; the host does not. For tensors on the
 * device: tensors in host memory are complete when query or wait reports it. */
DLC_API dlc_status dlc_event_order(dlc_event *event, void *stream);
DLC_API void dlc_event_destroy(dlc_event *event);
/* A run with its tensors given beforehand, for small shapes that run often: the checks and look-ups of dlc_run are done
 * once, and memory for the run is kept. Binds unseen shapes. The tensors are described once (their shapes and
 * strides are copied); their data belong to the host, must stay in place while the call may run, and may be given other addresses
 * in between. Output tensors are the host's: none is NULL. Any number of calls of one program may run at once, but a call
 * runs on one thread at a time. */
typedef struct dlc_call dlc_call;
DLC_API dlc_status dlc_call_create(dlc_program *program, const DLTensor *const *inputs, int input_count,
                                   DLTensor *const *outputs, int output_count, dlc_call **call);
/* As dlc_run with the call's tensors. */
DLC_API dlc_status dlc_call_run(dlc_call *call, const dlc_run_options *options);
/* The first element's new address. A failure (NULL, overlap) leaves the address unchanged. */
DLC_API dlc_status dlc_call_set_input(dlc_call *call, int input, const void *data);
DLC_API dlc_status dlc_call_set_output(dlc_call *call, int output, void *data);
DLC_API void dlc_call_destroy(dlc_call *call);
/* Binds ahead of the first run. shapes[i] are the dimensions of input i. */
DLC_API dlc_status dlc_prepare(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count);
/* The rank of output `output` for given input shapes, and its dimensions into shape[room], without compiling. A room smaller
 * than the rank is DLC_INVALID_ARGUMENT, with *rank written; DLC_MAX_RANK is always enough; 0 queries the rank alone. */
DLC_API dlc_status dlc_output_shape(dlc_program *program, const int64_t *const *shapes, const int *ranks,
                                    int input_count, int output, int room, int64_t *shape, int *rank);

/* ---- looking inside ------------------------------------------------------------------------------------------------------ */

typedef struct dlc_statistics {
    size_t struct_size;
    uint64_t runs, plan_hits, plan_builds, plan_evictions;
    uint64_t kernel_hits, kernel_builds, kernel_evictions;
    /* Kernels that no schedule rule or code generator covered: right but slow plain loops; the log names each (0 unless
     * libdlc has a bug) */
    uint64_t interpreted_regions;
    /* Code and plans held now */
    uint64_t cache_bytes;
    /* Run-time memory held now: of intermediate values, and of deleted results, up to 64 MiB, for the next ones */
    uint64_t arena_bytes;
    /* By runs, in addition to kernels: strided, unaligned and donated tensors, outputs that are inputs or parts of
     * other values, operands of concatenations */
    uint64_t copied_bytes;
    /* Total time in bind, in runs (runs only while profiling) */
    uint64_t compile_ns, run_ns;
    /* By runs between the memory of the host and that of a device */
    uint64_t transferred_bytes;
    /* Kernels that a device target refused: they run on the CPU, between copies to the host and back; the log names
     * each, with the reason. Without the cpu target they are an error of binding */
    uint64_t host_regions;
    /* Plans for all sizes of a range that were to be replaced by plans for exact sizes (background_compile, sizes that recur), and plans
     * that were replaced */
    uint64_t tier_generic, tier_specialised;
    /* Such builds that failed: the plans for all sizes stay */
    uint64_t tier_failures;
    /* Kernels found, and not found, in cache_directory; misses are among kernel_builds */
    uint64_t disk_hits, disk_misses;
    uint64_t disk_writes, disk_errors;
    uint64_t disk_read_bytes, disk_written_bytes;
    /* Part of compile_ns: looking for kernels and decisions in cache_directory, checking and loading them */
    uint64_t disk_read_ns;
    /* Constants of 64 KiB and more that programs hold now, in the library's own memory: copied, computed once, packed. */
    uint64_t constant_bytes;
    /* Kernels whose time was predicted in order to decide which operators become one kernel. */
    uint64_t predictions;
    /* Fusion decisions found in cache_directory, which needed no prediction. Their bytes count in disk_read_bytes and
     * disk_written_bytes. */
    uint64_t disk_decisions;
    /* Kernels whose schedule by the rules was refused, so that it has another candidate of one choice (0 unless libdlc has a bug); the log
     * names each */
    uint64_t refused_schedules;
} dlc_statistics;
#define DLC_STATISTICS_INIT DLC_OPTIONS_INIT(dlc_statistics)
/* Fills struct_size bytes; nothing if it is 0. */
DLC_API void dlc_context_statistics(const dlc_context *context, dlc_statistics *statistics);
/* Enables per-kernel times for the following runs of the program; 0 disables them. */
DLC_API void dlc_program_profile(dlc_program *program, int on);
/* Stages as text: "graph", "bound", "regions", "stages", "schedule", "choices" (of the target's rules, with the other candidates and the
 * cost model's predictions for them; takes as long as scheduling each kernel some hundred times), "steps" (the effect of each schedule line,
 * up to one that is refused), "loops", "vectors" (loops as the cpu target executes them), "llvm", "asm", "source" (CUDA C), "plan", "kept", "profile", "dot" (Graphviz of the fused graph), for given input
 * shapes (NULL for "graph"). "graph" and "bound" parse back (dlc_graph_parse) unless their first line says that large constants
 * are shortened, or that a graph for precomputed constants comes first. Kernels whose values have names (dlc_name) are
 * followed by `of` and these names. "kept": values in the arena that live across the kernel at which most bytes are live, with the kernels that
 * compute them and read them last, and why they are not computed again (memory_bytes); and the kernels that are. "profile" lists, for each kernel since
 * dlc_program_profile: its share of the time; the minimum, median (of the last 1,023 runs) and mean time of a run; the number of runs;
 * arithmetic operations and bytes of inputs and outputs per second; if the target has a cost model, also the predicted time per run
 * (for kernels that have not run yet, too), and the share of the roofline: the minimum time for operations and bytes on this machine,
 * divided by the measured time. In programs with derivatives (dlc_gradient), "graph" and "bound" have labels `forward:`, `backward:` and `update:`
 * before the nodes of each part; "regions" and "profile" name the part or parts that each kernel computes, and "profile" ends with each part's share of the
 * time. "regions" lists the values that a kernel keeps for the backward part, and "dot" frames the parts and draws these values in red. Free with
 * dlc_text_free. */
DLC_API dlc_status dlc_program_dump(dlc_program *program, const char *stage, const int64_t *const *shapes,
                                    const int *ranks, int input_count, char **text);

/* Calls `function`, on the thread that calls dlc_run, with values of the run that need not be outputs: values[count] of the graph that the
 * program was compiled from, which must be alive during this call only. `tap` is the value's number, `name` its name, else its
 * operator's; the tensor is valid until the function returns. function NULL: nothing is called, the values are available to
 * dlc_program_compare. count 0: removes all taps. Not while a run of the program is in progress.
 *
 * The values are computed by a separate program, compiled here from the part of the graph that they need; it runs before the
 * program itself. So outputs keep their bits, whatever is tapped; values that fusion keeps inside kernels can be seen; and a run costs
 * about the tapped part of the graph more, a first run of some shapes also the compilation of its kernels. Its bits are those of a
 * program with these outputs: sums may be added in another order than inside a larger kernel, and f16, bf16 and floats of 8 bits agree with
 * those inside for certain with no_excess_precision only. Host functions without effects are called once more, those with effects are
 * not. A tap that fails fails the run. Calls of dlc_call_create are not tapped. Statistics count both programs.
 * Errors: values of another graph, of a destroyed one or of a sub-graph, and those of dlc_compile; the taps then stay unchanged. */
typedef void dlc_tap_function(void *user, int tap, const char *name, const DLTensor *tensor);
DLC_API dlc_status dlc_program_tap(dlc_program *program, int count, const dlc_value *values, dlc_tap_function *function,
                                   void *user);

typedef struct dlc_compare_options {
    size_t struct_size;
    /* Elements a of the first and b of the second program agree if they are equal, if both are NaN, or if b is finite and
     * |a - b| <= absolute + relative * |b|. */
    double absolute, relative;
    /* If they differ, the inputs are written to this file under the names of the first program: .safetensors if the path ends so,
     * else .npz. NULL: not written. */
    const char *save;
} dlc_compare_options;
#define DLC_COMPARE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_compare_options)

typedef struct dlc_difference {
    size_t struct_size;
    /* Whether a value differs. The members below describe the first such value; else they are 0. */
    bool found;
    /* Whether it is a tapped value (dlc_program_tap) or an output; its number among these, and its name, which lives as long as the taps
     * and the first program. */
    bool tapped;
    int number;
    const char *name;
    /* Its first element that differs (row-major), and that element in the first and in the second program. */
    int64_t index;
    double first, second;
    /* How many of how many elements differ, and the largest |a - b|. */
    int64_t count, total;
    double greatest;
} dlc_difference;
#define DLC_DIFFERENCE_INIT DLC_OPTIONS_INIT(dlc_difference)

/* Runs two programs, of one context or of two (for example of two targets), on the same inputs in host memory and compares tapped values,
 * then outputs, in order; both programs must have equally many, of the same element types and shapes. Taps in topological order locate the
 * first difference. Tap functions are not called. Outputs are those of dlc_run, tapped values those of dlc_program_tap. Errors, recorded
 * for the first program's context: programs that do not match, those of dlc_run and of the writers of <dlc/files.h>; if only the file
 * cannot be written, *difference is filled all the same. */
DLC_API dlc_status dlc_program_compare(dlc_program *first, dlc_program *second, const dlc_compare_options *options,
                                       const DLTensor *const *inputs, int input_count, dlc_difference *difference);

/* The program libdlc-compiler is this function and nothing else. */
DLC_API int dlc_compiler_main(int count, char **words);

#include <dlc/ops.h> /* the operators; generated from the operator table */

#ifdef __cplusplus
}
#endif
#endif
