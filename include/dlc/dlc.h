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
 *             (operator, operands, what was expected) and its result is a poisoned value that flows on; check once with
 *             dlc_graph_status or at dlc_compile: these, dlc_output and every builder call that fails later give its status and message.
 *             A call that was given NULL for what an earlier call failed to make (dlc_run without a program) adds that call's message to
 *             its own. Objects stay usable after any error. Nothing aborts, prints or exits.
 * Ownership   create/destroy pairs, in any order and on any threads: every object keeps what it needs. A program needs no graph; a call
 *             and an event keep their program, graphs and programs the files that their constants lie in and the natives that they call,
 *             tensors given out what they show, and everything its context, whose threads, caches, registrations, allocator and log are in
 *             use until the last of these is gone. An object is destroyed once, and not used afterwards, also not while another thread is
 *             in a call with it. What belongs to the host is the host's to keep as long as something may use it: bytes that were
 *             borrowed (dlc_constant_borrow, dlc_file_parse, dlc_eager_borrow), functions with their `user`, flags.
 *             NULL is accepted by every destroy.
 * Threads     A context and a program may be used by many threads at once; a graph by one at a time.
 * Stack       A call that finds less stack than it takes is DLC_OUT_OF_MEMORY, never a signal, and may be tried on another thread:
 *             32 KiB for building, parsing, compiling and for runs, 64 KiB for binding without code generation, and some 200 bytes
 *             for each operation in a row that one kernel computes; all and 6 KiB for each level of sub-graphs inside of each
 *             other; 176 KiB for generating code for the target cpu in this process,
 *             with gathers of gathers up to 1.5 MiB. Of stacks that a host switches to see dlc_context_options.coroutine_stack.
 * Fork        In a child of a process that forks, a context and what belongs to it can be used as before if no other thread was in a
 *             call with them, other than a run of shapes that are bound, when the process forked (the library's own thread of
 *             background_compile counts as one while it builds). Else calls that make, bind or change something are
 *             DLC_UNSUPPORTED there, destroying does nothing, and dlc_run and dlc_call_run of shapes that are bound go on. Contexts that
 *             the child makes work; if another thread of the parent was generating code, the child's generate code with isolate_compiler
 *             only (DLC_UNSUPPORTED). Threads of `threads`, `compile_threads` and background_compile are not there for contexts from
 *             before: the caller does their work. A host's allocator, parallel_for and callbacks must know of forks themselves. Device
 *             targets cannot be used after a fork.
 * pthread_cancel takes effect after a call, not in it, nor in functions of the host's that it calls; the thread's cancellation state is
 *             afterwards as it was. As in almost all functions, a thread must not be in a call while its cancellation is asynchronous.
 * Limits      Texts, files and graphs are limited in depth, memory and time: dlc_limits, in <dlc/types.h>.
 * Options     Structs begin with struct_size; set them up with their _INIT macro; zero means default.
 * Shapes      Dimensions are in elements, outermost first; tensors are DLPack tensors; NULL strides mean compact row-major.
 * Strings     UTF-8, copied.
 * Extension   Operators, rewrite rules, passes and schedules of the host's own: <dlc/extend.h>.
 * Eager       The same operators on tensors that are there, and graphs by tracing a function: <dlc/eager.h>. */
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

/* A tensor value of a graph, by value so that expressions nest. `serial` catches values of destroyed graphs. A value with
 * graph NULL is poison. */
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
    /* 0: the calling thread only; N: a pool of our own of N threads in all, clamped to the CPUs this process may use.
     * With a device they run what the device cannot */
    int threads;
    /* Likewise for code generation; 0: the calling thread only */
    int compile_threads;
    /* The host's threads instead of a pool (`threads` is then 0): calls body(argument, i) for all i < count in any
     * order on any threads and returns when all have returned */
    dlc_parallel_for_function parallel_for;
    void *parallel_user;
    /* How many bodies parallel_for may run at once: at least 1 with it, 0 without */
    int parallel_width;
    /* What DLC_DEBUG asks for, and what a host should know, such as a setting that nothing understands; default:
     * dropped */
    void (*log)(void *user, const char *line);
    void *log_user;
    /* For statistics and budgets; default: monotonic clock */
    uint64_t (*clock_ns)(void *user);
    void *clock_user;
    /* Kernel cache budget; 0: 64 MiB */
    size_t cache_bytes;
    /* Bound shapes kept per program; 0: 256 */
    size_t plan_cache_entries;
    /* Kernels and decisions of fusion are also kept in files of this folder, which any number of processes share:
     * another process, or this one when it comes again, loads a kernel in less than a tenth of a millisecond and
     * predicts nothing. It is made when it is missing (not what it lies in). A file counts if it is plain, owned by
     * this user or root and writable by its owner only, was made by this very build of the library for this very
     * machine, and is whole; else the kernel is compiled. A folder that cannot be used is no error: the log says so,
     * once; a path over 4,000 bytes is DLC_INVALID_ARGUMENT. NULL, "": none */
    const char *cache_directory;
    /* About how many bytes stay there, in blocks of 4 KiB; what was used longest ago goes. 0: 256 MiB */
    size_t cache_directory_bytes;
    /* Of the cpu target: code is generated by another process, the program libdlc-compiler, which is started when it is
     * needed and stays until the context is gone (one for each thread that compiles). What ends that process - a fatal
     * error of LLVM, a crash, no memory, no end of it - is then DLC_COMPILE_FAILED, DLC_BUDGET_EXCEEDED or
     * DLC_OUT_OF_MEMORY with its message, and nothing happens to the host, in which nothing of LLVM runs. The first
     * compilation takes some ten milliseconds more. Where neither pidfds nor /proc can be used compiling is
     * DLC_UNSUPPORTED */
    bool isolate_compiler;
    /* That program: an absolute path (DLC_INVALID_ARGUMENT if it is not). NULL: libdlc-compiler in the folder of the
     * library's file (of the program's file where it is linked statically), as the kernel names it: neither the current
     * folder nor argv, PATH or a relative path given to dlopen have a say, and it is fixed with the context. It is of
     * the same build. DLC_NOT_FOUND where it is missing, /proc is not mounted, or the library's file was replaced or
     * deleted since it was loaded: then it must be named */
    const char *compiler_path;
    /* a thread of the library's own compiles in the background: runs of shapes that a program has not seen are answered
     * by kernels that take every symbol as a parameter, which sizes of a range share (see dlc_symbol_varies), and by
     * those for just these sizes as soon as they are there. Where an operator is exact both give the same bits.
     * dlc_prepare and dlc_call_create still wait for the latter. The host's clock and log are called on that thread
     * too, progress is not; `cancel` and `budget_ms` hold for its builds, so that `cancel` must live as long as the
     * program. A build that fails there leaves things as they are, and says so in the log, once for each program */
    bool background_compile;
    /* The host's promise that its threads call runs with floating-point modes as a process starts (to nearest,
     * denormals as they are, exceptions masked). Otherwise each run looks, which takes 10 ns, and sets them for its
     * duration */
    bool default_float_modes;
    /* Limits on texts, files and graphs; zeros: the defaults. */
    dlc_limits limits;
    /* Bytes of stack that a call finds at least when it is made on a stack that is not the thread's own, which the library cannot
     * measure: those of coroutines, fibers, green threads. 0: 64 KiB. */
    size_t coroutine_stack;
    /* Of device targets: every kernel is launched by itself. Otherwise kernels in a row are, from their second run on,
     * one piece of work for the device (a CUDA graph), which takes the host less time */
    bool no_batches;
} dlc_context_options;
#define DLC_CONTEXT_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_context_options)

DLC_API dlc_status dlc_context_create(const dlc_context_options *options, dlc_context **context);
DLC_API void dlc_context_destroy(dlc_context *context);
/* Message of the calling thread's last failed call on this context ("" if none), also of a call that was given no object because that
 * one had failed; NULL context: of its last failed call that had no context. Valid until the thread's next call. */
DLC_API const char *dlc_error_message(const dlc_context *context);

/* ---- graphs ---------------------------------------------------------------------------------------------------------- */

DLC_API dlc_status dlc_graph_create(dlc_context *context, dlc_graph **graph);
/* Programs need no graph. One that lives keeps the bytes of its constants beside the packed copies of programs (README, "Memory"). */
DLC_API void dlc_graph_destroy(dlc_graph *graph);
/* The first error of the graph's builder calls, DLC_OK if none; the message, which dlc_error_message then has, too, names operator,
 * operands as they were written and what was expected, and what was probably meant. */
DLC_API dlc_status dlc_graph_status(const dlc_graph *graph);
DLC_API const char *dlc_graph_message(const dlc_graph *graph);

/* A run-time input. dims[rank]; a symbol of one name is one size throughout the graph. */
DLC_API dlc_value dlc_input(dlc_graph *graph, const char *name, dlc_dtype dtype, int rank, const dlc_dim *dims);
/* How the library may treat a symbol: its values vary so much that kernels should take it as a parameter (range and multiple
 * are promises, checked at run; 0: unknown). Without a hint a symbol becomes varying with its 5th distinct value: up to four
 * builds for exact sizes, then one for all others up to 1,024, one up to 16,384, and so on by factors of 16, which is also
 * what a declared one costs. A size of 1 (a step at a time) has kernels of its own in any case. A hint about a symbol that
 * no shape names has no effect; dlc_compile tells so to the log, as it does of a symbol that is named once and looks like another one. */
DLC_API dlc_status dlc_symbol_varies(dlc_graph *graph, const char *name, int64_t low, int64_t high, int64_t multiple);
/* A constant tensor; bytes are compact row-major and are copied, those of 64 KiB and more once: the graph and its programs share the copy. */
DLC_API dlc_value dlc_constant(dlc_graph *graph, dlc_dtype dtype, int rank, const int64_t *shape, const void *bytes);
/* The same without a copy: bytes must stay as they are as long as the graph and its programs live. */
DLC_API dlc_value dlc_constant_borrow(dlc_graph *graph, dlc_dtype dtype, int rank, const int64_t *shape,
                                      const void *bytes);
/* A rank-0 constant of any dtype from a number, rounded to the dtype once: to the nearest value, ties to even. Integers take the least or
 * greatest value that they have where the number is beyond it, and 0 for NaN; bool is whether the number is not 0; c64 has it as its real
 * part. dlc_scalar_i64 is exact for 64 bits, and takes the low bits for integers of fewer. */
DLC_API dlc_value dlc_scalar(dlc_graph *graph, dlc_dtype dtype, double number);
DLC_API dlc_value dlc_scalar_i64(dlc_graph *graph, dlc_dtype dtype, int64_t number);
DLC_API dlc_status dlc_output(dlc_graph *graph, const char *name, dlc_value value);

DLC_API dlc_dtype dlc_value_dtype(dlc_value value);
DLC_API int dlc_value_rank(dlc_value value);              /* -1: poison */
DLC_API dlc_dim dlc_value_dim(dlc_value value, int axis); /* an expression of symbols reads as {-1, "text"} */
DLC_API bool dlc_value_ok(dlc_value value);

/* Names of values, for people: dumps, profiles, plans, errors and logs name what kernels compute by them. Names of any bytes (escaped where
 * they are printed) and any number; they change no kernel, no key, no result. A value may have several, and two values may have one.
 * Passes that make several values of one, or one of several, hand names on: a kernel lists those of all values that it computes for, up
 * to eight. dlc_file_constant names its value as the file does.
 *
 * dlc_name names a value, inside of the scopes that are open in its graph ("encoder.layer0" and "scores": encoder.layer0.scores), and
 * returns it, so that calls nest. dlc_scope_push opens a scope, inside of those that are open: what is made in it and has no name is known by
 * that of the scope, also in messages of mistakes; dlc_scope_pop closes the innermost one. Sub-graphs share the scopes of the graph around
 * them. Errors, recorded in the graph: a name that is NULL or empty, a stale value, no open scope. */
DLC_API dlc_value dlc_name(dlc_value value, const char *name);
DLC_API dlc_status dlc_scope_push(dlc_graph *graph, const char *name);
DLC_API dlc_status dlc_scope_pop(dlc_graph *graph);

/* Sub-graphs for dlc_if, dlc_while and dlc_scan. The new graph shares symbols with its parent and may use its parent's values (captures);
 * it is owned by the parent. Parameters in order with dlc_input, results in order with dlc_output. */
DLC_API dlc_graph *dlc_subgraph(dlc_graph *parent);

/* A host function for dlc_custom_call and dlc_custom_effect to name. It gets compact tensors in host memory, fills the outputs, and
 * is called on the threads that run the graph's programs, several at once if the host does so; `user` must live as long as
 * they do. Registering it again is no mistake; another function under the same name is. For a function that many graphs use, with a shape
 * rule, attributes and errors, see dlc_operator_register in <dlc/extend.h>. */
typedef void dlc_custom_function(void *user, int inputs, const DLTensor *const *input, int outputs,
                                 DLTensor *const *output);
DLC_API dlc_status dlc_custom_register(dlc_graph *graph, const char *name, dlc_custom_function *function, void *user);

/* The same for a function of any C signature without a result: pass dlc_native_call as the custom function and the dlc_native as
 * its `user`. `signature` lists where each parameter comes from, separated by commas:
 *     in K, out K    pointer to the elements of input or output K
 *     i32 V, i64 V, f32 V, f64 V    V is a number, `dim K A` (the size of axis A of input K) or `count K` (its elements)
 *     user           the pointer given here
 * for example "in 0, out 0, i64 count 0, f32 0.5". A call without a tensor or axis that the signature speaks of, or without
 * a dlc_native, is left out and its outputs are zeros. */
typedef struct dlc_native dlc_native;
DLC_API dlc_status dlc_native_create(dlc_context *context, void (*function)(void), void *user, const char *signature,
                                     dlc_native **native);
DLC_API void dlc_native_destroy(dlc_native *native);
DLC_API void dlc_native_call(void *native, int inputs, const DLTensor *const *input, int outputs,
                             DLTensor *const *output);

typedef struct dlc_print_options {
    size_t struct_size;
    /* Of large constants (above 32 bytes, and not printed as up to 16 numbers) the first 16 bytes, and "...". dlc_graph_parse
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
    /* Limit of dlc_compile and of each bind (compilation of one set of shapes; the first one also computes what depends
     * on constants alone, with a limit of its own), looked at all along; in the midst of a module's code generation
     * only with isolate_compiler. 0: none; below it: refused. Beyond it DLC_BUDGET_EXCEEDED */
    int64_t budget_ms;
    /* Likewise of the memory that dlc_compile or a bind takes to work in, and one for each of a bind's modules of
     * kernels; and of the code generator's with isolate_compiler, else not of that; not of constants that it computes
     * and keeps. 0: none */
    size_t budget_bytes;
    /* Raise to non-zero from any thread: compilation ends with DLC_CANCELLED */
    const volatile int *cancel;
    /* Called while a bind compiles kernels: `done` of `total` kernels that it lacks are there; first with 0, last with total; a module
     * of several kernels is one step. `stage` is "compile". On the thread that binds, no lock held: it may run shapes that are
     * bound already. */
    void (*progress)(void *user, const char *stage, int done, int total);
    void *progress_user;
    /* Round every operator's result to its dtype, even inside fused kernels */
    bool no_excess_precision;
    /* regions' own schedules, in the form in which the dump "schedule" shows them: sections behind lines `region NAME:`
     * (regions of that name), `region #HASH:` or `region NAME #HASH:` (the region that computes just that, in whatever
     * program; of several such regions first the one of the name). NULL, and for regions not listed: the target's
     * rules. A malformed text is an error of dlc_compile, a schedule that does not fit its region one of binding. What
     * regions there are depends on shapes: a section that none has asked for is told to the log, once */
    const char *schedule;
    /* f32 convolutions of constant 3x3 windows and stride 1 may go by Winograd's algorithm (Lavin & Gray 2015) where
     * that is faster. Results then differ from the exact ones by at most 2^-24 * (ci + 40) * 2304 * ci * max|x| *
     * max|w| for ci channels: in practice about 2^-24 * 32 times the largest result, some ten times what a direct sum
     * loses; and an infinity or NaN in x spreads to the 16 results of its tile and to those beside it */
    bool winograd;
} dlc_compile_options;
#define DLC_COMPILE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_compile_options)

DLC_API dlc_status dlc_compile(dlc_context *context, dlc_graph *graph, const dlc_compile_options *options,
                               dlc_program **program);
DLC_API void dlc_program_destroy(dlc_program *program);
DLC_API int dlc_program_input_count(const dlc_program *program);
DLC_API int dlc_program_output_count(const dlc_program *program);
DLC_API const char *dlc_program_input_name(const dlc_program *program, int input);
DLC_API const char *dlc_program_output_name(const dlc_program *program, int output);
/* Output `output` may be written over input `input` (a KV cache, optimiser state): the host passes the same buffer as both, or two.
 * Before shapes are bound, that is before the first run, dlc_prepare and dlc_call_create; an input is donated to one output. Shapes and
 * dtypes must agree: sizes that are symbols are compared when shapes are bound. Where the program allows it nothing is copied: an update of a slice of
 * the input (dlc_dynamic_update_slice, dlc_scatter) then costs what it writes, not what the buffer holds, and elementwise
 * results go where they were read; dlc_program_dump "plan" says what became of each pair. A run that is cancelled or fails
 * while it computes leaves a shared buffer undefined. */
DLC_API dlc_status dlc_program_alias(dlc_program *program, int output, int input);

typedef enum dlc_stop_at { DLC_STOP_AT_NAN = 1, DLC_STOP_AT_INFINITY = 2 } dlc_stop_at;

typedef struct dlc_event dlc_event; /* a run that was started, and its end */

typedef struct dlc_run_options {
    size_t struct_size;
    /* Raised to non-zero by any thread: the run ends with DLC_CANCELLED, on target cpu within some milliseconds, whatever it computes
     * at that time; a function of the host's is not left. Outputs are then undefined. */
    const volatile int *cancel;
    /* Likewise after so many milliseconds, with DLC_BUDGET_EXCEEDED; binding on first sight has a budget of its own (see
     * dlc_compile_options). 0: none. DLC_UNSUPPORTED on device targets. */
    int64_t budget_ms;
    /* Of device targets: the host's own (a CUstream of the device's primary context), on which the run then works
     * behind what it was given before, and the tensors on the device are used in its order; DLPack's numbers 1 (the
     * default stream) and 2 (that of the thread) are streams, too. NULL, or DLPack's -1: one of the library's, behind
     * nothing: what tensors on the device were given is done */
    void *stream;
    /* not NULL: the run returns when its work is on its way, and *event says when that is done; see below. NULL after a
     * failure: then nothing is on its way */
    dlc_event **event;
    /* Bits of dlc_stop_at: the run ends with DLC_NOT_FINITE at the first such element of an input, of a kernel's result or of a host
     * function's, in the order that they are computed in, and the message names it. Outputs are then undefined. Kernels run
     * one by one, and every result is read once more. Values inside of a fused kernel are not seen: dlc_program_tap shows those,
     * DLC_DISABLE=fuse makes each operator a kernel. Constants are not looked at. Of targets that run in host memory; DLC_UNSUPPORTED
     * on others */
    unsigned stop_at;
} dlc_run_options;
#define DLC_RUN_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_run_options)

/* An output slot: set `tensor` to the caller's buffer (shape and dtype are checked; any strides without overlap), or leave it
 * NULL: the library then fills `managed` with a new compact tensor; call managed->deleter(managed) when done. It lies where
 * the inputs are: on the device if any of them is. */
typedef struct dlc_output_slot {
    DLTensor *tensor;
    DLManagedTensorVersioned *managed;
} dlc_output_slot;

/* Binds (compiles and caches) for the shapes of the inputs on first sight, then runs. Inputs may have any strides. Inputs and
 * outputs must not overlap unless donated by dlc_program_alias. Blocks until the outputs are written, unless options.event is set.
 * Programs of a device target take tensors in host memory, which are copied there and back, and tensors on the context's own device,
 * which are used where they are.
 * Shapes that depend on data (dlc_cut, dlc_non_zero and what else names a counted dimension): the slot of an output with such a
 * dimension is left empty, the tensor that the library makes tells it (DLC_INVALID_ARGUMENT else). Such a program runs in segments,
 * each bound when its sizes are known: dlc_run waits, also with options.event, whose event is then done; dlc_prepare binds the
 * first segment; dlc_output_shape, dlc_call_create and dlc_program_alias answer DLC_UNSUPPORTED where they cannot know; dumps that need
 * shapes show the first segment. A run that fails leaves the host's output tensors undefined. */
DLC_API dlc_status dlc_run(dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs,
                           int input_count, dlc_output_slot *outputs, int output_count);
/* Runs that return early, by options.event. Until the event is done, which query or wait tell, the data of all tensors stay
 * where they are and inputs keep their contents (descriptions of tensors, shapes and strides, may go); outputs are undefined.
 * Destroying an event waits for its run. A run that fails behind dlc_run's back tells so
 * by wait, with its message, and by query. On host targets, and for programs that need the host to go on (host functions,
 * branches, profiles), part of the run or all of it is done when dlc_run returns. Runs on streams of the library are in no order:
 * a run that reads what another one writes is given the same stream of the host's, or waits. Cancelling has no effect on what is on
 * its way. Any number of events may be there at once; each is used by one thread at a time. */
DLC_API dlc_status dlc_event_query(dlc_event *event, bool *done); /* does not wait */
DLC_API dlc_status dlc_event_wait(dlc_event *event);
/* What the host gives its stream (as in options.stream) from now on waits for the run, the host does not; for tensors on the device:
 * those of the host are there when query or wait say so. */
DLC_API dlc_status dlc_event_order(dlc_event *event, void *stream);
DLC_API void dlc_event_destroy(dlc_event *event);
/* A run with its tensors given beforehand, for small shapes that run often: what dlc_run checks and looks up is checked and looked
 * up once, and memory for the run is kept. Binds on first sight of the shapes. The tensors are described once (their shapes and
 * strides are copied); their data stay the host's, must stay where they are while the call may run, and may be given other places
 * in between. Output tensors are the host's: none is NULL. Any number of calls of one program may run at once, but a call
 * runs on one thread at a time. */
typedef struct dlc_call dlc_call;
DLC_API dlc_status dlc_call_create(dlc_program *program, const DLTensor *const *inputs, int input_count,
                                   DLTensor *const *outputs, int output_count, dlc_call **call);
/* As dlc_run with the call's tensors. */
DLC_API dlc_status dlc_call_run(dlc_call *call, const dlc_run_options *options);
/* The first element's new place. A failure (NULL, overlap) leaves the place as it was. */
DLC_API dlc_status dlc_call_set_input(dlc_call *call, int input, const void *data);
DLC_API dlc_status dlc_call_set_output(dlc_call *call, int output, void *data);
DLC_API void dlc_call_destroy(dlc_call *call);
/* Does the binding on purpose. shapes[i] are the dimensions of input i. */
DLC_API dlc_status dlc_prepare(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count);
/* The rank of output `output` for given input shapes, and its dimensions into shape[room], without compiling. Room for fewer
 * than its rank is DLC_INVALID_ARGUMENT, with *rank written; DLC_MAX_RANK is always enough; 0 asks for the rank alone. */
DLC_API dlc_status dlc_output_shape(dlc_program *program, const int64_t *const *shapes, const int *ranks,
                                    int input_count, int output, int room, int64_t *shape, int *rank);

/* ---- looking inside ------------------------------------------------------------------------------------------------------ */

typedef struct dlc_statistics {
    size_t struct_size;
    uint64_t runs, plan_hits, plan_builds, plan_evictions;
    uint64_t kernel_hits, kernel_builds, kernel_evictions;
    /* Kernels that no schedule rule or code generator covered: right but slow plain loops; the log names each (0 unless
     * libdlc has a fault) */
    uint64_t interpreted_regions;
    /* Code and plans held now */
    uint64_t cache_bytes;
    /* run-time memory held now */
    uint64_t arena_bytes;
    /* By runs, beside what kernels do: strided, unaligned and donated tensors, outputs that are inputs or parts of
     * other values, operands of concatenations */
    uint64_t copied_bytes;
    /* Total time in bind, in runs (runs only while profiling) */
    uint64_t compile_ns, run_ns;
    /* By runs between the memory of the host and that of a device */
    uint64_t transferred_bytes;
    /* Kernels that a device's target refused: they run on the CPU, between copies to the host and back; the log names
     * each, with the reason. Without the cpu target they are an error of binding */
    uint64_t host_regions;
    /* background_compile: plans for all sizes of a range that were to be replaced, and were replaced, by such for just
     * the sizes at hand */
    uint64_t tier_generic, tier_specialised;
    /* Builds there that failed */
    uint64_t tier_failures;
    /* Kernels that were, and were not, in cache_directory; misses are among kernel_builds */
    uint64_t disk_hits, disk_misses;
    uint64_t disk_writes, disk_errors;
    uint64_t disk_read_bytes, disk_written_bytes;
    /* Part of compile_ns: looking for kernels and decisions there, checking and loading them */
    uint64_t disk_read_ns;
    /* Constants of 64 KiB and more that programs hold now, in the library's own memory: copied, computed once, packed. */
    uint64_t constant_bytes;
    /* Kernels whose time was predicted, in order to decide which operators become one kernel. */
    uint64_t predictions;
    /* Such decisions that were found in cache_directory, where nothing had to be predicted. Their bytes count in disk_read_bytes and
     * disk_written_bytes. */
    uint64_t disk_decisions;
} dlc_statistics;
#define DLC_STATISTICS_INIT DLC_OPTIONS_INIT(dlc_statistics)
/* Fills as much as struct_size says there is; nothing where it is 0. */
DLC_API void dlc_context_statistics(const dlc_context *context, dlc_statistics *statistics);
/* Per-kernel times of the following runs of the program; 0 switches off. */
DLC_API void dlc_program_profile(dlc_program *program, int on);
/* Stages as text: "graph", "bound", "regions", "stages", "schedule", "steps" (what each of its lines does, up to one that is
 * refused), "loops", "llvm", "asm", "source" (CUDA C), "plan", "profile", "dot" (Graphviz of the fused graph), for given input
 * shapes (NULL for "graph"). "graph" and "bound" parse back (dlc_graph_parse) unless their first line says that large constants
 * are shortened, or that a graph for precomputed constants comes first. Kernels whose values have names (dlc_name) are
 * followed by `of` and these. "profile" lists, for each kernel since
 * dlc_program_profile, its share of the time; the least, median (of the last 1,023 runs) and mean time of a run; the number of runs;
 * arithmetic operations and bytes of inputs and outputs per second; where the target has a cost model also the time per run that the model predicts (for kernels that have not run
 * yet, too), and the share of the roof: the least time that operations and bytes take on this machine, over the measured one.
 * Free with dlc_text_free. */
DLC_API dlc_status dlc_program_dump(dlc_program *program, const char *stage, const int64_t *const *shapes,
                                    const int *ranks, int input_count, char **text);

/* Calls `function`, on the thread that calls dlc_run, with values of the run that need not be outputs: values[count] of the graph that the
 * program was compiled from, which must be alive during this call only. `tap` is the value's number, `name` its name, else its
 * operator's; the tensor is gone when the function returns. function NULL: nothing is called, the values are there for
 * dlc_program_compare. count 0: no taps any more. Not while a run of the program is under way.
 *
 * The values are computed by a program of their own, compiled here, of what they need of the graph; it runs in front of the
 * program itself. So outputs keep their bits, whatever is tapped; what fusion keeps inside of kernels can be seen; and a run costs about as much
 * again as the tapped part of the graph, a first run of some shapes the compilation of its kernels. Its bits are those of a
 * program with these outputs: sums may be added in another order than inside of a larger kernel, and f16, bf16 and floats of 8 bits agree with
 * those inside for certain with no_excess_precision only. Host functions without effects are called once more, those with effects are
 * not. A tap that fails fails the run. Calls of dlc_call_create are not tapped. Statistics count both programs.
 * Errors: values of another graph, of a destroyed one or of a sub-graph, and those of dlc_compile; the taps are then as before. */
typedef void dlc_tap_function(void *user, int tap, const char *name, const DLTensor *tensor);
DLC_API dlc_status dlc_program_tap(dlc_program *program, int count, const dlc_value *values, dlc_tap_function *function,
                                   void *user);

typedef struct dlc_compare_options {
    size_t struct_size;
    /* Elements a of the first and b of the second program agree if |a - b| <= absolute + relative * |b|, or if both are NaN. */
    double absolute, relative;
    /* Where they differ, the inputs are written to this file under the names of the first program: .safetensors if the path ends so,
     * else .npz. NULL: not written. */
    const char *save;
} dlc_compare_options;
#define DLC_COMPARE_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_compare_options)

typedef struct dlc_difference {
    size_t struct_size;
    /* Is there any? The members below tell of the first value that differs; else they are 0. */
    bool found;
    /* Is it a tapped value (dlc_program_tap), or an output; its number among these, and its name, which lives as long as the taps and the
     * first program. */
    bool tapped;
    int number;
    const char *name;
    /* Its first element that differs (row-major), and that element in the first and in the second program. */
    int64_t index;
    double first, second;
    /* How many of how many elements differ, and the greatest |a - b|. */
    int64_t count, total;
    double greatest;
} dlc_difference;
#define DLC_DIFFERENCE_INIT DLC_OPTIONS_INIT(dlc_difference)

/* Runs two programs, of one context or of two (for example of two targets), on the same inputs in host memory and compares tapped values, then
 * outputs, in their order; both have as many, of the same element types and shapes. Taps in topological order find where results
 * begin to differ. Taps' functions are not called. Outputs are those that dlc_run gives, tapped values as dlc_program_tap says. Errors, recorded
 * for the first program's context: what does not fit, those of dlc_run and of the writers of <dlc/files.h>; when only the file cannot be
 * written *difference tells all the same. */
DLC_API dlc_status dlc_program_compare(dlc_program *first, dlc_program *second, const dlc_compare_options *options,
                                       const DLTensor *const *inputs, int input_count, dlc_difference *difference);

/* The program libdlc-compiler is this function and nothing else. */
DLC_API int dlc_compiler_main(int count, char **words);

#include <dlc/ops.h> /* the operators; generated from the operator table */

#ifdef __cplusplus
}
#endif
#endif
