/* Internal to the interpreter: a kernel prepared for running. Every expression node that the kernel uses has a slot
 * (its value as bits); nodes that do not depend on memory are computed once per value of the innermost variable they
 * use, all others in the statement that needs them. A program is immutable: any number of threads may run it at once.
 */
#ifndef TIR_INTERPRET_PROGRAM_H
#define TIR_INTERPRET_PROGRAM_H

#include "tir/interpret.h"

/* Operators that run without a call of tir_arith: class, operator, value of operands x, y, z. The classes
 * are described where they are executed (interpret.c) and chosen (interpret_program.c). All agree with tir/arith.h. */
#define TIR_FAST_TABLE(X)             \
    X(WORD, ADD, x + y)               \
    X(WORD, SUB, x - y)               \
    X(WORD, MUL, x *y)                \
    X(I32, ADD, x + y)                \
    X(I32, SUB, x - y)                \
    X(I32, MUL, x *y)                 \
    X(INDEX, DIV, floor_divide(x, y)) \
    X(INDEX, REM, floor_modulo(x, y)) \
    X(SIGNED, MIN, x < y ? x : y)     \
    X(SIGNED, MAX, x > y ? x : y)     \
    X(SIGNED, EQ, x == y)             \
    X(SIGNED, NE, x != y)             \
    X(SIGNED, LT, x < y)              \
    X(SIGNED, LE, x <= y)             \
    X(WORD, AND, x &y)                \
    X(WORD, OR, x | y)                \
    X(WORD, XOR, x ^ y)               \
    X(WORD, SELECT, x ? y : z)        \
    X(F32, ADD, x + y)                \
    X(F32, SUB, x - y)                \
    X(F32, MUL, x *y)                 \
    X(F32, DIV, x / y)                \
    X(F32, FMA, fmaf(x, y, z))        \
    X(F32_TRUTH, EQ, x == y)          \
    X(F32_TRUTH, NE, x != y)          \
    X(F32_TRUTH, LT, x < y)           \
    X(F32_TRUTH, LE, x <= y)          \
    X(F64, ADD, x + y)                \
    X(F64, SUB, x - y)                \
    X(F64, MUL, x *y)                 \
    X(F64, DIV, x / y)                \
    X(F64, FMA, fma(x, y, z))         \
    X(F64_TRUTH, EQ, x == y)          \
    X(F64_TRUTH, NE, x != y)          \
    X(F64_TRUTH, LT, x < y)           \
    X(F64_TRUTH, LE, x <= y)

typedef enum tir_code {
#define X(class_, op, value) TIR_FAST_##class_##_##op,
    TIR_FAST_TABLE(X)
#undef X
        TIR_CODE_CAST, /* tir_arith_cast */
    TIR_CODE_GENERAL,  /* tir_arith */
    TIR_CODE_LOAD
} tir_code;

#define TIR_OPERANDS_MAX 24 /* indices, guard and else of a load */

typedef struct tir_instruction {
    /* from: dtype of the first value operand */
    uint8_t code, op, dtype, from;
    uint8_t count;
    bool guarded;
    /* an operand or the loaded memory may be poison: the result's taint must be computed */
    bool taints;
    /* a load whose statement stores an exact reduction of it */
    bool reduction;
    uint32_t target, buffer;
    /* slots of the first three operands, 0 if there are fewer */
    uint32_t x, y, z;
    /* slots of all operands */
    const uint32_t *operands;
} tir_instruction;

typedef struct tir_code_list {
    tir_instruction *data;
    uint32_t count, capacity;
} tir_code_list;

typedef struct tir_step tir_step; /* a statement; prefetches and comments are left out */
struct tir_step {
    const tir_stmt *stmt;
    tir_step *next, *body, *otherwise;
    /* loads of the statement's own expressions and the nodes that depend on them */
    tir_code_list before;
    /* for, let: nodes that depend on the variable; run whenever it is set */
    tir_code_list bound;
    /* slots: the for's or let's variable */
    uint32_t variable;
    /* for: lower, extent; let, if, store: value or condition in `first` */
    uint32_t first, second;
    /* let, store: the value may be poison */
    bool taints;
    /* store of an exact reduction */
    bool reduction;
    /* store to memory: outside of thread loops one thread executes it, with its loads */
    bool single_thread;
    /* for: iterations between cancellation checks; 0: none */
    int64_t poll;
    /* thread loop: threads of one iteration; else 0 */
    int32_t threads;
    /* thread loop: not the whole body of the enclosing one */
    bool nest;
    /* store */
    const uint32_t *index;
    const struct tir_collective_step *collective;
};

/* A collective statement: the interpreter iterates over its variables, each with the code that depends on it. */
typedef struct tir_collective_step {
    tir_code_list bound[TIR_UNIT_VARS];
    uint32_t variable[TIR_UNIT_VARS];
    /* slots */
    uint32_t index[TIR_UNIT_PLACES][16];
} tir_collective_step;

typedef struct tir_program_phase {
    /* nodes that depend on the repeat's counter alone */
    tir_code_list iteration_bound;
    tir_code_list task_bound;
    /* per block */
    int64_t threads;
    /* tasks between cancellation checks; 0: none */
    int64_t poll;
    tir_step *body;
    /* slots; repeat, iteration: 0 when there is none */
    uint32_t tasks, repeat, task, iteration;
} tir_program_phase;

/* typedef in interpret.h */
struct tir_program {
    const tir_kernel *kernel;
    /* slot 0 is unused */
    uint32_t slots;
    /* slots ... */
    lib_vec(uint32_t) constants;
    /* ... and their values */
    lib_vec(uint64_t) constant_bits;
    /* nodes that depend on parameters only */
    tir_code_list entry;
    /* slots */
    const uint32_t *params;
    /* slots by buffer */
    uint32_t (*extents)[16], (*strides)[16];
    /* slots by buffer; 0: none */
    uint32_t *offsets;
    /* slots of the sizes; 0: none */
    uint32_t workspace, local;
    tir_program_phase *phases;
};

#endif
