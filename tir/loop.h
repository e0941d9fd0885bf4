/* Loop IR: what lowering produces and targets emit. A kernel is a list of phases; a phase is a task loop around statements;
 * statements load and store buffers through physical multi-dimensional indices. Scalars are tir expressions in which
 * TIR_LOAD names a buffer. All arithmetic is legal for loop IR: no f16/bf16 arithmetic (casts only), no MULADD, no
 * transcendentals but f64 ones (tir/math.h).
 *
 * Loop kinds state how a loop is *executed*, never what it computes:
 *   serial   in order.
 *   unroll   constant extent; the emitter repeats the body with the variable constant.
 *   vec      constant extent; all iterations are independent except through exact reductions into a location that does not
 *            depend on the variable. The emitter binds the variable to the lanes of vectors (in chunks of the machine's
 *            width, a masked or narrower last chunk), for everything inside, inner loops included. Loop bounds inside must
 *            not depend on the variable; conditions may (they become masks).
 *   lanes    a part of a vec loop, made of it by tir/vectorise.h: constant extent, at most `width`; the iterations are the lanes of one vector
 *            of `width` elements, of which those beyond the extent access nothing. Width 1: a scalar.
 *   rows     one or two iterations, made by tir/vectorise.h: the body is one lanes loop. Both rows are one vector of twice its width, the
 *            first row's lanes in its lower half (`half` 0; a single row may be in the upper half, `half` 1).
 *   thread   constant extent; on a GPU, where a task is a block of threads: each iteration is executed by threads of its own. Nested
 *            thread loops number the threads of the block, the innermost fastest (tir_thread_stride). Statements
 *            around them (serial and unrolled loops, lets, ifs) are executed by all threads of the group alike: values and reg
 *            buffers there are uniform; a store to memory is executed by the group's first thread, with its loads. Threads see other
 *            threads' writes to shared or global memory after a barrier; a reg buffer is indexed by the variables of the threads that own
 *            its elements, and another lane's element of the same warp may be read in a later loop (a warp shuffle).
 * Two statements say how others are executed, both made by tir/vectorise.h: the lanes loops in an `interleave` are independent of each other,
 * and are executed side by side, an instruction of each in turn; in a `spill` a reg buffer is in memory, and may be indexed by variables of
 * serial loops. Stores of lanes that are a distance apart in memory say how they are made (tir/strided.h): `transpose.8`: eight neighbours are
 * transposed at once; `lanes.unroll`: lane by lane; `lanes.loop`: by a loop over the lanes.
 * Collective statements are units (tir/unit.h) of a warp or a core. They are allowed only where groups of as many threads execute as the
 * unit has lanes, for a warp outside of thread loops whose iterations are single threads, and count as so many threads. A place in registers
 * names elements of all lanes: the statement's variables stand where other accesses have the thread variables.
 * Reg buffers: after unrolling and vectorising every index is constant (+ lane); elements are SSA values carried through
 * loops, never memory.
 *
 * A kernel is executed as  for each phase: for each task (any order, concurrently): body.  Arguments are buffers of scope
 * ARG in order of `argument`; kernel parameters (varying dimensions) are int64 values. */
#ifndef TIR_LOOP_H
#define TIR_LOOP_H

#include "tir/machine.h"
#include "tir/unit.h"

typedef enum tir_scope {
    TIR_SCOPE_ARG,       /* region input or output, the caller's memory */
    TIR_SCOPE_WORKSPACE, /* scratch shared by all tasks and phases of a kernel, from the plan's arena */
    TIR_SCOPE_LOCAL,     /* scratch per slot, from the plan's arena */
    TIR_SCOPE_STACK,     /* small scratch per task, constant extents */
    TIR_SCOPE_REG,       /* SSA values, constant extents */
    TIR_SCOPE_SHARED     /* GPU: per block, constant extents */
} tir_scope;
extern const char *const tir_scope_names[];

enum {
    TIR_MAX_LANES = 64,      /* of a vector */
    TIR_WARP = 32,           /* threads that run in lockstep and may read each other's registers */
    TIR_BLOCK_THREADS = 1024 /* of a block, at most */
};

#define TIR_BUFFER_ALIGNMENT 64 /* bytes, for everything that libdlc allocates. Arguments: see tir_buffer.alignment */

typedef struct tir_buffer {
    const char *name;
    dlc_dtype dtype;
    tir_scope scope;
    /* physical */
    int rank;
    /* physical; index expressions over parameters; constant for REG, STACK */
    tir_expr extent[16];
    /* in elements; row-major compact unless the caller gave an argument strides */
    tir_expr stride[16];
    /* ARG: position; else -1 */
    int32_t argument;
    /* ARG: bytes the address is known to be a multiple of */
    int32_t alignment;
    /* by the kernel */
    bool written, read;
    /* REG, STACK, LOCAL: contents at entry are zero; else don't-care */
    bool zero_initialised;
    /* SHARED: bytes of a row, 32, 64 or 128, whose 16-byte chunks are permuted (tir_swizzled); 0: none */
    int32_t swizzle;
    /* WORKSPACE, LOCAL: bytes from the start, over parameters, assigned by lowering; SHARED: a number; 0: none */
    tir_expr offset;
} tir_buffer;

typedef enum tir_stmt_kind {
    TIR_FOR,        /* for var in lower, lower + step, ... below lower + extent: body */
    TIR_LET,        /* variable = value; in scope in the body. Value is evaluated once, here */
    TIR_IF,         /* condition ? body : otherwise */
    TIR_STORE,      /* buffer[index] = value */
    TIR_INTERLEAVE, /* body: lanes loops, executed side by side */
    TIR_SPILL,      /* body, in which a reg buffer is in memory */
    TIR_PREFETCH,   /* hint: address of buffer[index], into cache level `level`; the address may be out of bounds */
    TIR_COLLECTIVE, /* a unit on places, executed by its lanes together (tir/unit.h) */
    TIR_BARRIER,    /* the threads of the block, or inside a thread loop those of the warp, wait for each other */
    TIR_COMMIT, /* outside of thread loops: each thread's asynchronous stores since the last commit become a group, possibly empty */
    TIR_WAIT,   /* outside of thread loops: until at most this many of each thread's latest groups are incomplete */
    TIR_COMMENT /* text for people; no meaning */
} tir_stmt_kind;

typedef enum tir_loop_kind { TIR_SERIAL, TIR_UNROLL, TIR_VEC, TIR_THREAD, TIR_LANES, TIR_ROWS } tir_loop_kind;
extern const char *const tir_loop_kind_names[];

typedef struct tir_place {
    uint32_t buffer;
    int rank;
    /* physical */
    const tir_expr *index;
} tir_place;

typedef struct tir_stmt tir_stmt;
struct tir_stmt {
    tir_stmt_kind kind;
    /* next statement of the list, NULL at the end */
    tir_stmt *next;
    union {
        struct {
            /* TIR_VAR_LOOP */
            tir_expr var;
            /* index; evaluated once at entry; extent <= 0: no iteration */
            tir_expr lower, extent;
            tir_loop_kind loop;
            /* 1 unless the loop is serial and its extent is a known multiple of it (tir_multiple_of) */
            int64_t step;
            /* lanes: of the vector, a power of two; of the vec loop's whole vectors, of which its last vectors may have fewer */
            int width, whole;
            /* rows: half of the vector in which the first row is, 0 or 1 */
            int half;
            /* set by lowering: becomes tasks; never set in a finished kernel */
            bool parallel;
            /* set by lowering for versioning, not printed: split into ranges in which the guards inside are decided; in a task that is one of the
             * tiles of such a loop: the same for the guards that the versions of the task do not decide */
            bool clip, clip_in_task;
            tir_stmt *body;
        } for_;
        struct {
            /* TIR_VAR_LET of the value's dtype */
            tir_expr var, value;
            tir_stmt *body;
        } let;
        struct {
            /* bool */
            tir_expr condition;
            /* set by lowering for versioning, not printed: split into ranges in which it is decided */
            bool clip;
            /* set by tir/vectorise.h where lanes differ in the condition. masked: the body (otherwise_masked: the other side) is executed
             * under the mask even if no lane takes part, without a branch around it. split: if all lanes take part, a copy of the body
             * without masks is executed instead */
            bool masked, otherwise_masked, split;
            tir_stmt *body, *otherwise;
        } if_;
        struct {
            uint32_t buffer;
            int rank;
            /* physical */
            const tir_expr *index;
            /* of the buffer's dtype */
            tir_expr value;
            bool non_temporal;
            /* a copy from memory to SHARED: the element is undefined until the thread waits for its group; then the
             * thread sees the value, other threads after a barrier. Machines may copy at once */
            bool async;
            /* set by tir/strided.h where lanes are a distance apart in memory. rows > 0: the store waits for its neighbours in memory, of which
             * so many, or as many as a vector has lanes, are transposed at once (1: it has none). lane_loop: those without neighbours are
             * made by a loop over the lanes */
            int rows;
            bool lane_loop;
        } store;
        struct {
            tir_stmt *body;
        } interleave;
        struct {
            uint32_t buffer;
            tir_stmt *body;
        } spill;
        struct {
            int groups;
        } wait;
        struct {
            uint32_t buffer;
            int rank;
            const tir_expr *index;
            /* 1, 2, 3 */
            int level;
            /* for a store */
            bool write;
        } prefetch;
        struct {
            const tir_unit *unit;
            /* TIR_VAR_LOOP: bound in the places' indices, starting at 0 */
            tir_expr var[TIR_UNIT_VARS];
            tir_place place[TIR_UNIT_PLACES];
        } collective;
        const char *comment;
    };
};

typedef struct tir_phase {
    /* number of tasks: index expression over parameters */
    tir_expr tasks;
    /* TIR_VAR_LOOP: the task's number in the body */
    tir_expr task;
    tir_stmt *body;
    /* 0, or how often this and the following `repeat_phases - 1` phases are repeated as a sequence */
    tir_expr repeat;
    /* the repeat's counter variable, with `repeat` */
    tir_expr iteration;
    int repeat_phases;
    /* SHARED memory of one block */
    int64_t shared_bytes;
    const char *name;
} tir_phase;

typedef struct tir_kernel {
    const char *name;
    tir_pool *pool;
    lib_arena *arena;
    /* ARG buffers first, in order of `argument` */
    lib_vec(tir_buffer) buffers;
    /* TIR_VAR_PARAM variables in the order of the kernel's parameter array */
    lib_vec(tir_expr) params;
    lib_vec(tir_phase) phases;
    /* ARG buffers */
    int arguments;
    /* total size of WORKSPACE: index expression over parameters, bytes; 0: none */
    tir_expr workspace_size;
    /* its largest value */
    int64_t workspace_bytes;
    /* the same for LOCAL, per slot */
    tir_expr local_size;
    /* counted by the cost model; for profiles */
    double flops, bytes;
} tir_kernel;

/* ---- building (loop.c) */
tir_kernel *tir_kernel_new(lib_arena *arena, tir_pool *pool, const char *name);
uint32_t tir_kernel_buffer(tir_kernel *kernel, const char *name, dlc_dtype dtype, tir_scope scope, int rank,
                           const tir_expr *extent); /* compact strides */
tir_stmt *tir_stmt_new(lib_arena *arena, tir_stmt_kind kind);
tir_stmt *tir_collective_new(tir_kernel *kernel, const tir_unit *unit); /* with fresh variables and no places yet */
/* Variables whose range and multiple follow from their bounds or value; the parser makes the same ones. */
tir_interval tir_loop_range(tir_pool *pool, tir_expr lower, tir_expr extent); /* of the variable; empty loop: any */
tir_expr tir_loop_variable(tir_pool *pool, const char *name, tir_expr lower, tir_expr extent);
tir_expr tir_stepped_variable(tir_pool *pool, const char *name, tir_expr lower, tir_expr extent, int64_t step);
tir_expr tir_let_variable(tir_pool *pool, const char *name, tir_expr value);
/* Sets `read` and `written` of every buffer from the statements. */
void tir_kernel_mark_access(tir_kernel *kernel);
/* Gives the buffers of WORKSPACE or LOCAL consecutive offsets, sized by their extents at the parameters' actual values, and sets
 * the kernel's size of that scope. Returns the largest value of that size. */
int64_t tir_kernel_place(tir_kernel *kernel, tir_scope scope);
/* The same for WORKSPACE, once all phases exist: buffers that are not in use at the same time share memory (workspace.c). */
int64_t tir_kernel_place_workspace(tir_kernel *kernel);
/* Helpers of both: a buffer's bytes, rounded up to TIR_BUFFER_ALIGNMENT; end + size, raising if that overflows. */
tir_expr tir_buffer_size(tir_kernel *kernel, const tir_buffer *buffer);
tir_expr tir_kernel_extend(tir_kernel *kernel, tir_scope scope, tir_expr end, tir_expr size);

/* ---- shared memory (shared_memory.c) */

/* The swizzled offset of a byte from the start of a buffer: chunks of 16 bytes are permuted within 128 bytes, by the number of their
 * 128-byte line, so that the rows of a column of chunks are in different banks. */
static inline int64_t tir_swizzled(int32_t row_bytes, int64_t at) {
    return row_bytes ? at ^ ((at >> 7 & (row_bytes / 16 - 1)) << 4) : at;
}
int64_t tir_buffer_bytes(const tir_kernel *kernel,
                         const tir_buffer *buffer); /* of constant extents; strides may leave gaps */
/* Gives each SHARED buffer without an offset one, and phases their shared_bytes. `reuse` false (the parser): disjoint from all other
 * buffers. true (lowering): only from buffers in use at the same time; a buffer used inside a loop alone must not carry values from one
 * iteration to the next. */
void tir_kernel_place_shared(tir_kernel *kernel, bool reuse);
bool tir_shared_overlap(const tir_kernel *kernel, uint32_t a, uint32_t b); /* do they have a byte in common? */

/* Inserts barriers where threads of a block access what others wrote, or write what others read (synchronise.c). */
void tir_kernel_synchronise(tir_kernel *kernel);

/* ---- threads (loop.c): threads that execute one iteration of the loop, from the loops inside; threads that execute a list of
 * statements (1: it has neither thread loops nor collective statements). */
int64_t tir_thread_stride(const tir_pool *pool, const tir_stmt *loop);
int64_t tir_threads(const tir_pool *pool, const tir_stmt *list);

/* ---- text (loop_text.c): prints and parses back, structurally equal:
 *   kernel gemm(x: f32[45, 9] arg, w: f32[3, 9, 8] arg, D: f32[45, 20] arg, C: f32[7, 8] reg) params(n: 1..4096 x8)
 *   phase tasks=3 task=p {
 *     let b = p*8
 *     for i in 0..7 unroll {
 *       for j in 0..8 vec { C[i, j] = 0:f32 }
 *     }
 *     if (b + 7 < n) { ... } else { ... }
 *     if (x[j] < 0) masked { ... } else masked { ... }
 *     if (x[j] < 0) split { ... }
 *     for i in 0..96 by 48 {
 *       interleave {
 *         for j in i .. +16 lanes 16 { ... }      a whole vector
 *         for j in i + 16 .. +5 lanes 8 of 16 { ... }   the vec loop's last five iterations
 *       }
 *     }
 *     for r in 0..2 rows { for j in 16 .. +5 lanes 8 { ... } }    .. rows upper: a single row in the upper half
 *     spill C { ... }
 *     for i in 0..8 unroll { for j in 0..16 lanes 16 { transpose.8 y[j, i] = x[i, j] } }     also lanes.unroll, lanes.loop y[..] = ..
 *     prefetch.2 w[1, 0, 0]
 *     prefetch.w D[b, 0]                 for a store
 *     product (i, j, k) C[i%8, j/2, i/8, j%2] += A[i%8, k%8/2, k/8, i/8, k%2] * B[j, k%8/2, k/8, k%2]
 *     matrix (q, r, c) F[r, c/2, c%2] = S[r, c]     collective statements, by the names of the target's units
 *   }
 * units: rows that collective statements may name, up to one without a name; NULL: none. */
void tir_kernel_print(lib_text *text, const tir_kernel *kernel);
tir_kernel *tir_kernel_parse(lib_arena *arena, lib_lexer *lexer, const tir_unit *units);
void tir_stmt_print(lib_text *text, const tir_kernel *kernel, const tir_stmt *stmt, int indent);

/* ---- verifier (loop_verify.c): numbered invariants, cited in messages; raises DLC_INTERNAL with the statement's text.
 * `machine` (may be NULL): checks that the live vectors of reg buffers fit its registers; if they do not, sets *overfull (may be NULL). */
void tir_kernel_verify(lib_scope *scope, tir_kernel *kernel, const tir_machine *machine, bool *overfull);
/* Number of vector registers that a reg buffer of these extents takes, as the verifier counts them. Bit d of `lanes`: vectors run along
 * dimension d. */
int64_t tir_vectors_of(const tir_machine *machine, dlc_dtype dtype, int rank, const int64_t *extent, uint32_t lanes);

/* ---- statement utilities (loop.c) */
/* Nesting depth of statements, 1 for a list of simple ones. Passes recurse to this depth, and take less than
 * TIR_STACK_NESTED bytes of stack for each level: lowering, which makes the statements, checks that this much is left. */
enum { TIR_STACK_NESTED = 192 };
int tir_stmt_nesting(lib_arena *scratch, const tir_stmt *list);
typedef void (*tir_stmt_visit)(void *user, const tir_stmt *stmt);
void tir_stmt_walk(const tir_stmt *stmt, tir_stmt_visit visit, void *user); /* pre-order, the whole list */
/* Expressions of this statement alone: bounds, value, condition, indices (bound variables and nested statements excluded). */
void tir_stmt_exprs(const tir_stmt *stmt, void (*visit)(void *user, tir_expr e), void *user);
/* Copy of the whole list. A bound variable is renamed if its `to` is a variable; else it stays. */
tir_stmt *tir_stmt_substitute(tir_kernel *kernel, const tir_stmt *stmt, int count, const tir_expr *from,
                              const tir_expr *to);

/* Whether a store has the form b[i] = exact-operator(b[i], anything else), possibly under selects: any order of such updates gives
 * equal bits. tir_loads_stored: whether e itself is an unguarded load of the element that the statement stores. */
bool tir_is_exact_reduction(lib_arena *scratch, const tir_kernel *kernel, const tir_stmt *stmt);
bool tir_loads_stored(const tir_kernel *kernel, const tir_stmt *stmt, tir_expr e);
/* x, if the statement has the form b[i] = exact-operator(b[i], x), so that lanes may be combined before; else 0. */
tir_expr tir_reduced_operand(const tir_kernel *kernel, const tir_stmt *stmt);

#endif
