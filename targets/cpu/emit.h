/* Inside the emitter (loop IR -> LLVM IR): its state and the calls between its files.
 *
 * emit.c        functions, tasks, statements, branches and masks
 * emit_loop.c   serial, unrolled and vec loops
 * emit_poll.c   cancellation checks in loops
 * emit_core.c   levels and insertion points, value numbering, splats, intrinsics
 * emit_index.c  index expressions as linear forms, conditions on them, addresses
 * emit_value.c  value expressions
 * emit_math.c   instruction sequences with the exact meaning of tir/arith.h: min, max, rounding, division
 * emit_cast.c   conversions
 * emit_memory.c loads and stores of buffers in memory
 * emit_transpose.c  stores of lanes that are a distance apart, when they are made
 * emit_reg.c    REG buffers: elements as SSA values
 * emit_pair.c   rows of a register tile that share their last vectors
 * emit_roll.c   reg buffers in memory, constants of innermost loops
 * emit_weave.c  interleaved lanes loops
 *
 * The ideas. Loop IR is scalar; a lanes loop (tir/vectorise.h) binds its variable to base + lane, and an expression
 * becomes a vector exactly when it depends on the lane. Everything pure is value-numbered and inserted at the *level*
 * (loop body, branch) of its deepest operand, so that invariant code leaves loops and nothing is computed twice,
 * without any IR pass. */
#ifndef TARGETS_CPU_EMIT_H
#define TARGETS_CPU_EMIT_H

#include "targets/cpu/cpu.h"
#include "tir/polls.h"
#include "tir/strided.h"

#define EMIT_MAX_LEVELS 64
#define EMIT_MAX_LANES TIR_MAX_LANES
#define EMIT_MAX_TERMS 12

/* lanes 0: a scalar, the same in all lanes; else a vector of that many lanes. `level` is the nesting depth at which the
 * value is available. Booleans are i1; f16 and bf16 are their bits, i16. */
typedef struct emit_value {
    LLVMValueRef llvm;
    int16_t lanes, level;
} emit_value;

/* An index in lane l of the vec loop: constant + lane*l + sum of term[i].coefficient*term[i].value + vector[l]. Terms are i64 scalars with
 * known range and divisor, ordered by level. */
typedef struct emit_term {
    int64_t coefficient;
    LLVMValueRef value;
    int64_t low, high, multiple;
    int level;
} emit_term;
typedef struct emit_form {
    int64_t constant, lane;
    /* addend with a value for each lane, as i64, that is not `lane` times the lane; its llvm is NULL if there is none */
    emit_value vector;
    /* if vector[l] is step*l: the i64 scalar `step`; llvm NULL: it is not */
    emit_value step;
    int count;
    emit_term term[EMIT_MAX_TERMS];
} emit_form;

/* Result of emit_offset_known, which classifies an offset without making its form: forms are large, and most indices of unrolled bodies are
 * known. */
typedef enum emit_known {
    EMIT_UNKNOWN,     /* a variable in it is not constant under the current bindings */
    EMIT_KNOWN,       /* constant + lane*l */
    EMIT_KNOWN_LANES, /* known for each lane, but without a common stride */
} emit_known;

/* A loop body, a branch or the function itself. Code at level d < top goes before the terminator of level[d].block, the
 * block in which the next level was entered. */
typedef struct emit_level {
    LLVMBasicBlockRef block;
    /* unique; values cached under another id are dead, since their level was left */
    uint32_t id;
    /* may not run when the level outside runs */
    bool conditional;
    /* the body is a single loop */
    bool lone;
} emit_level;

typedef struct emit_binding {
    bool bound;
    /* of an index variable */
    emit_form *form;
    /* of any other variable */
    emit_value value;
} emit_binding;

enum { EMIT_UNSET = -2 };
/* An element of a REG buffer: lane `lane` of the vector `value`, or `value` itself if lane is -1, or if it is EMIT_UNSET: not stored so
 * far. */
typedef struct emit_element {
    emit_value value;
    int lane;
} emit_element;

/* Elements of a REG buffer that one store writes: first, first + stride, ... */
typedef struct emit_group {
    uint32_t buffer;
    int64_t first, stride;
    /* lanes 0: one scalar element */
    int lanes, active;
    /* [active]: the element of each lane, if the elements follow no stride; -1: the lane writes none. NULL: they follow the stride */
    const int64_t *each;
    emit_value value;
    LLVMValueRef phi;
} emit_group;
typedef lib_vec(emit_group) emit_groups;

typedef struct emit_buffer {
    /* the buffer's address; llvm NULL: a REG buffer whose elements are SSA values */
    emit_value base;
    /* REG, STACK */
    int64_t elements;
    /* REG */
    emit_element *element;
    /* REG, by element: number of the last scan that put it into a group (emit_reg_scan) */
    uint32_t *owner;
    /* in memory: changed wherever a store may have changed an element; loads of the same version and index are equal */
    uint32_t version;
    /* ARG: its address is known to be a multiple of TIR_BUFFER_ALIGNMENT */
    bool aligned;
} emit_buffer;

/* A store that waits. */
typedef struct emit_strided {
    tir_strided s;
    LLVMValueRef pointer, value;
    /* bytes from lane to lane; llvm NULL: s.stride */
    emit_value step;
    /* of every lane's address */
    uint32_t alignment;
    bool non_temporal, lane_loop;
} emit_strided;

typedef struct emit_cached {
    /* room for the longest key of all callers */
    uint64_t word[7];
    emit_value value;
    uint32_t level_id;
} emit_cached;

typedef struct emit_intrinsic {
    const char *name;
    LLVMTypeRef type[2];
    LLVMValueRef function;
    LLVMTypeRef function_type;
} emit_intrinsic;

enum { EMIT_WOVEN_MAX = 8 };

/* The lanes loops to be interleaved, straight-line code in one block (emit_weave.c). Starts zeroed. */
typedef struct emit_weave {
    LLVMBasicBlockRef block;
    /* last instruction before the first of them, and of each; NULL: the block was empty */
    LLVMValueRef last[EMIT_WOVEN_MAX + 1];
    int count;
    /* they cannot be interleaved: they branch, or leave stores that wait */
    bool broken;
} emit_weave;

/* Position of the lanes loop being emitted: in lane i, `var` is start + i. */
typedef struct emit_vec_position {
    /* 0: none */
    tir_expr var;
    emit_form start;
} emit_vec_position;

/* A vector of two rows, see emit_pair.c: lanes of the lower half are columns of the first row, those of the upper half of the next. */
typedef struct emit_pair {
    bool on;
    /* variables */
    tir_expr row, column;
    /* values of `row` in the first row and of `column` in lane 0 */
    emit_form first, start;
    /* lanes of one row; how many of these are columns */
    int half, active;
    /* is the row within the tile, and its condition true? */
    bool used[2];
} emit_pair;

/* Cancellation checks of a loop (emit_poll.c): one each time that its counter has grown by `every`; 0: none. `end`: bound of the counter;
 * `stop`: the counter at the next check. */
typedef struct emit_poll {
    int64_t every;
    LLVMValueRef end, stop;
} emit_poll;

typedef struct emitter {
    const target_device *device;
    cpu_features features;
    lib_arena *arena;
    const tir_kernel *kernel;
    tir_pool *pool;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMValueRef function;
    /* an i64 parameter of the function, for emit_unknown */
    LLVMValueRef unknown;
    const tir_polls *polls;
    /* block that leaves the function; NULL: not needed so far */
    LLVMBasicBlockRef give_up;
    LLVMTypeRef i1, i8, i16, i32, i64, f16, f32, f64, pointer;

    emit_level level[EMIT_MAX_LEVELS];
    int top;
    uint32_t next_id, next_version, next_scan;
    bool has_reg;

    /* nesting depth of address computations */
    int addressing;
    /* lanes of the vectors of the vec loop being emitted; 0: none. Lanes >= active are don't-care */
    int lanes, active;
    /* lanes of whole vectors of this loop, of which the last one may have fewer; 0: the loop is emitted whole vector by whole vector */
    int whole;
    emit_vec_position vec_position;
    emit_pair pair;
    /* lanes in which statements take effect; llvm NULL: all */
    emit_value mask;

    emit_buffer *buffer;
    /* by variable id */
    emit_binding *binding;
    tir_strided_list waiting;
    /* a non-temporal store was emitted in this phase */
    bool non_temporal;
    /* lanes loops are straight-line code and will be interleaved */
    bool weaves;
    /* the innermost loop has interleaved lanes loops */
    bool woven;
    /* number of serial loops emitted so far */
    uint32_t serials;
    /* the innermost serial loop that is being emitted */
    const tir_stmt *serial;
    /* number of masked statements that were emitted without a branch since the block began */
    int flattened;

    /* by expression: its value in the current statement, valid if memo_epoch[expr] == epoch */
    emit_value *memo;
    uint32_t *memo_epoch, epoch;
    /* by expression: does it vary between lanes? Valid if varies_epoch[expr] == epoch */
    uint32_t *varies_epoch;
    bool *varies;
    lib_map map;
    lib_vec(emit_cached) cached;
    lib_vec(emit_intrinsic) intrinsics;
} emitter;

/* Value-numbering tags beyond tir_op; key words start with one of them. */
enum emit_tag {
    EMIT_SPLAT = TIR_OP_COUNT,
    EMIT_FORM,
    EMIT_WIDE,
    EMIT_POINTER,
    EMIT_COMPARE,
    EMIT_BOUND,
    EMIT_MEMORY,
    EMIT_EXTRACT,
    EMIT_REDUCE,
    EMIT_INDEX_DIV,
    EMIT_GROUP,
    EMIT_PACK,
    EMIT_ROUND_CAST,
    EMIT_POSITIVE_CAST,
    EMIT_WIDENED,
    EMIT_PICK,
    EMIT_PAIR,
    EMIT_OPAQUE
};

typedef void (*emit_visit)(emitter *e, const tir_stmt *body, void *user); /* of a loop's body */

/* ---- emit_poll.c */

/* The first is called before the loop is entered, the second after its header's other phis, the third at its latch, where the builder is
 * and `next` is the counter's next value. The third returns the block from which the header is reached after a check (NULL: no checks), and
 * sets *latch to the block that leaves the loop. */
void emit_poll_before(emitter *e, emit_poll *poll, LLVMValueRef begin, LLVMValueRef end);
void emit_poll_head(emitter *e, emit_poll *poll, LLVMBasicBlockRef before);
LLVMBasicBlockRef emit_poll_latch(emitter *e, const emit_poll *poll, LLVMValueRef next, LLVMBasicBlockRef head,
                                  LLVMBasicBlockRef after, LLVMBasicBlockRef *latch);
/* emit.c: loads the member of the launch's target_arguments at byte `offset`. */
LLVMValueRef emit_argument(emitter *e, LLVMTypeRef type, size_t offset);

/* ---- emit_core.c */
_Noreturn void emit_raise(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void emit_push(emitter *e, LLVMBasicBlockRef block, bool conditional);
void emit_pop(emitter *e, LLVMBasicBlockRef next);
LLVMBasicBlockRef emit_block(emitter *e, const char *name);
void emit_at(emitter *e, int level); /* positions the builder at the end of the level's code */
bool emit_find(emitter *e, int count, const uint64_t *words, emit_value *value);
emit_value emit_remember(emitter *e, int count, const uint64_t *words, emit_value value);
LLVMTypeRef emit_type(emitter *e, tir_dtype dtype, int lanes);
LLVMTypeRef emit_vector_type(LLVMTypeRef element, int lanes);
emit_value emit_constant(LLVMValueRef constant);
LLVMValueRef emit_i64(emitter *e, int64_t value);
emit_value emit_splat(emitter *e, emit_value value, int lanes);
/* At the builder's position; lanes 0: the scalar itself. */
LLVMValueRef emit_splat_of(emitter *e, LLVMValueRef scalar, int lanes);
LLVMValueRef emit_fill(emitter *e, LLVMTypeRef element, int lanes, int64_t integer); /* constant splat */
LLVMValueRef emit_real(LLVMTypeRef element, int lanes, double value);
LLVMValueRef emit_iota(emitter *e, LLVMTypeRef element, int lanes, int64_t start, int64_t step);
LLVMValueRef emit_shuffle(emitter *e, LLVMValueRef a, LLVMValueRef b, int lanes, const int *index);
/* set[i]: is lane i in the mask (NULL: all are)? False: the mask is not constant. */
bool emit_mask_lanes(emit_value mask, int lanes, bool *set);
/* The mask; where machines have mask registers, a constant one as a value that LLVM does not know. LLVM would make a select by constant lanes
 * a blend after the operation, which takes another instruction and another register, instead of masking the operation. */
emit_value emit_opaque_mask(emitter *e, emit_value mask);
/* Calls an intrinsic or library function; type1 may be NULL (overloaded by fewer types). */
LLVMValueRef emit_call(emitter *e, const char *name, LLVMTypeRef type0, LLVMTypeRef type1, int count,
                       LLVMValueRef *arguments);
bool emit_is_constant(emit_value value, int64_t *constant); /* integer constants, splats included */
int emit_level_of(int count, const emit_value *values);
/* Of a value of LLVM; 0: a scalar. */
static inline int emit_lanes_of(LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x);
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(type) : 0;
}
/* As lib_dtypes[dtype].class_; that of an index is i. */
static inline char emit_class_of(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT ? lib_dtypes[dtype].class_ : 'i';
}

/* ---- emit_index.c */
emit_form emit_index(emitter *e, tir_expr index);
emit_form emit_form_constant(int64_t constant);
emit_form emit_form_of(emitter *e, emit_value value, int64_t low, int64_t high, int64_t multiple);
/* What a loop's variable is bound to while the loop's body is scanned before it is emitted: a number that LLVM does not know. It cannot be
 * LLVM's undefined value, whose quotients LLVM folds to constants, which the scan would take for the number of iterations. */
emit_form emit_unknown(emitter *e);
emit_value emit_index_times(emitter *e, emit_value value, int64_t factor); /* i64, scalar or lanes */
void emit_form_add(emitter *e, emit_form *sum, const emit_form *other, int64_t scale);
emit_value emit_form_value(emitter *e, const emit_form *form);            /* i64, scalar or lanes */
emit_value emit_form_narrow(emitter *e, const emit_form *form, int bits); /* modulo 2^bits, 32 or 64 */
bool emit_form_is_constant(const emit_form *form, int64_t *constant);
tir_interval emit_form_range(const emitter *e, const emit_form *form);
emit_value emit_index_compare(emitter *e, tir_op op, tir_expr a, tir_expr b);
/* Byte offset of buffer[index] from the buffer's first element. */
emit_form emit_offset(emitter *e, uint32_t buffer, int rank, const tir_expr *index);
/* The same offset as *constant + *lane*l, if it is known without a form (see emit_known). */
emit_known emit_offset_known(emitter *e, uint32_t buffer, int rank, const tir_expr *index, int64_t *constant,
                             int64_t *lane);
/* The buffer's address plus the terms of the offset; its lane and vector are left out. *displacement: the offset's constant, also left
 * out. */
emit_value emit_pointer(emitter *e, uint32_t buffer, const emit_form *offset, int64_t *displacement);
uint32_t emit_alignment(const emitter *e, uint32_t buffer, const emit_form *offset);
bool emit_varies(emitter *e, tir_expr expr); /* depends on the lane */

/* ---- emit_value.c */
emit_value emit_expr(emitter *e, tir_expr expr);
LLVMValueRef emit_operation(emitter *e, tir_op op, tir_dtype dtype, tir_dtype operand, int lanes,
                            LLVMValueRef *operands);
emit_value emit_select(emitter *e, emit_value condition, emit_value yes, emit_value no);
emit_value emit_both(emitter *e, emit_value a, emit_value b); /* logical and */
emit_value emit_identity(emitter *e, tir_op op, tir_dtype dtype);

/* ---- emit_math.c; operands and results at the builder's position */
LLVMValueRef emit_min_max(emitter *e, bool max, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_round(emitter *e, tir_op op, LLVMValueRef x);
LLVMValueRef emit_int_divide(emitter *e, bool remainder, tir_dtype dtype, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_shift(emitter *e, tir_op op, tir_dtype dtype, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_mulhi(emitter *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_library(emitter *e, const char *name, int count, LLVMValueRef *operands); /* per lane, f64 */
LLVMValueRef emit_dot(emitter *e, tir_op op, int lanes, LLVMValueRef *operands);
LLVMValueRef emit_ldexp(emitter *e, LLVMValueRef x, LLVMValueRef n);
LLVMValueRef emit_dot_unit(emitter *e, tir_op op, int lanes, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_widened_bytes(emitter *e, LLVMValueRef x, bool is_signed);
LLVMValueRef emit_dot_words(emitter *e, int lanes, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b);

/* ---- emit_cast.c */
LLVMValueRef emit_cast(emitter *e, tir_dtype to, tir_dtype from, LLVMValueRef value);
LLVMValueRef emit_round_cast(emitter *e, tir_dtype to, LLVMValueRef x); /* of f32, rounded to nearest first */
LLVMValueRef emit_positive_bf16(emitter *e, LLVMValueRef x);            /* max(x, 0) of lanes of f32 */

/* ---- emit_memory.c */
emit_value emit_load(emitter *e, const tir_node *node, const tir_expr *operands);
/* Loads operands[0], [2], [4], ..., `count` of them of `bytes` bytes each, 2 or 4 bytes together, as one integer per lane, if they are
 * neighbours in memory and neighbouring lanes are contiguous. llvm NULL: they are not. */
emit_value emit_load_group(emitter *e, int count, int bytes, const tir_expr *operands);
void emit_store(emitter *e, const tir_stmt *stmt);
void emit_mark_non_temporal(emitter *e, LLVMValueRef store);
void emit_prefetch(emitter *e, const tir_stmt *stmt);

/* ---- emit_transpose.c */
/* Callbacks of the list of waiting stores. */
void emit_transposed(void *user, tir_strided *const *store, int count);
void emit_separate(void *user, tir_strided *const *store, int count, bool looped);
/* Makes the stores that wait; called before the level's block ends. */
static inline void emit_flush(emitter *e) {
    tir_strided_flush(&e->waiting);
}
static inline void emit_flush_buffer(emitter *e, uint32_t buffer) {
    if (tir_strided_waits(&e->waiting, buffer)) emit_flush(e);
}

/* ---- emit_reg.c */
void emit_reg_init(emitter *e);
/* False: the elements of all lanes are outside of the buffer. */
bool emit_reg_load(emitter *e, uint32_t buffer, int rank, const tir_expr *index, emit_value *value);
void emit_reg_store(emitter *e, uint32_t buffer, int rank, const tir_expr *index, emit_value value);
/* Appends to *groups the REG elements that the statements write under the current bindings. `list`: body of one loop iteration or of a
 * branch. */
void emit_reg_scan(emitter *e, const tir_stmt *list, emit_groups *groups);
emit_value emit_reg_gather(emitter *e, const emit_group *group);
LLVMValueRef emit_reg_value(emitter *e, const emit_group *group); /* the same, a vector if the group has lanes */
void emit_reg_set(emitter *e, const emit_group *group, emit_value value);

/* Are the buffer's elements currently SSA values? */
static inline bool emit_in_registers(const emitter *e, uint32_t buffer) {
    return e->kernel->buffers.data[buffer].scope == TIR_SCOPE_REG && !e->buffer[buffer].base.llvm;
}

/* ---- emit_pair.c */
/* Visits the one store in the lanes loop of a rows loop, for a vector of both rows. */
void emit_visit_rows(emitter *e, const tir_stmt *loop, emit_visit visit, void *user);
/* While a pair of rows is emitted: the factor of both rows, in the lanes of one vector. */
emit_value emit_pair_factor(emitter *e, tir_expr factor);
/* Switches the emitter to one row (0 or 1) of the pair. The result is passed to emit_row_leave. */
emit_pair emit_row_enter(emitter *e, int row);
void emit_row_leave(emitter *e, const emit_pair *pair);

/* ---- emit_weave.c */
void emit_interleave(emitter *e, const tir_stmt *stmt);

/* ---- emit_roll.c */
void emit_spill(emitter *e, const tir_stmt *stmt);
bool emit_only_loop(const tir_stmt *list);
/* Called after the body of an innermost loop was emitted: its vector constants are loaded before the loop instead, while registers are
 * left. `carried`: number of values in registers across the loop. */
void emit_constants_outside(emitter *e, LLVMBasicBlockRef head, LLVMBasicBlockRef after, uint32_t carried);

/* ---- emit_loop.c */
void emit_for(emitter *e, const tir_stmt *loop);
void emit_scan_for(emitter *e, const tir_stmt *loop, emit_visit visit,
                   void *user); /* visits the body as emit_for would, without emitting the loop */
void emit_bind(emitter *e, tir_expr var, const emit_form *form);
void emit_bind_value(emitter *e, tir_expr var, emit_value value);
void emit_unbind(emitter *e, tir_expr var);

/* ---- emit.c */
void emit_statements(emitter *e, const tir_stmt *list);

#endif
