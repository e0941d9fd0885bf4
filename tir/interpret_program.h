/* Internal to the interpreter: a kernel prepared for running. Every expression node that the kernel uses has a slot
 * (its value as bits); nodes that do not depend on memory are computed once per value of the innermost variable they
 * use, all others in the statement that needs them. A program is immutable: any number of threads may run it at once.
 */
#ifndef TIR_INTERPRET_PROGRAM_H
#define TIR_INTERPRET_PROGRAM_H

#include "tir/interpret.h"

/* Operators that run without the detour through tir_arith: class, operator, value of operands x, y, z. What the classes
 * are is said where they are executed (interpret.c) and chosen (interpret_program.c). All agree with tir/arith.h. */
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
    uint8_t code, op, dtype, from; /* from: dtype of the first value operand */
    uint8_t count;
    bool guarded;
    bool taints;    /* an operand or the memory read may be poison: the result's taint must be computed */
    bool reduction; /* a load whose statement stores the exact reduction of it and something */
    uint32_t target, buffer;
    uint32_t x, y, z;         /* slots of the first three operands, 0 where there are fewer */
    const uint32_t *operands; /* slots of all */
} tir_instruction;

typedef struct tir_code_list {
    tir_instruction *data;
    uint32_t count, capacity;
} tir_code_list;

typedef struct tir_step tir_step; /* a statement; prefetches and comments are left out */
struct tir_step {
    const tir_stmt *stmt;
    tir_step *next, *body, *otherwise;
    tir_code_list before;   /* what the statement's own expressions load and what depends on it */
    tir_code_list bound;    /* for, let: what depends on the variable; run whenever it gets a value */
    uint32_t variable;      /* slots: of the for's or let's variable */
    uint32_t first, second; /* for: lower, extent; let, if, store: value or condition in `first` */
    bool taints;            /* let, store: the value may be poison */
    bool reduction;         /* store of an exact reduction */
    bool alone;             /* store to memory: outside of thread loops one thread does it, its loads too */
    int64_t poll;           /* for: iterations after which it asks; 0: it does not */
    int32_t threads;        /* thread loop: of one iteration; else 0 */
    bool nest;              /* thread loop: not the whole body of one around it */
    const uint32_t *index;  /* store */
    const struct tir_collective_step *collective;
};

/* A collective statement: its variables are run through by the interpreter, each with the code that depends on it. */
typedef struct tir_collective_step {
    tir_code_list bound[TIR_COLLECTIVE_VARS];
    uint32_t variable[TIR_COLLECTIVE_VARS];
    uint32_t index[TIR_COLLECTIVE_PLACES][16]; /* slots */
} tir_collective_step;

typedef struct tir_program_phase {
    tir_code_list iteration_bound; /* what depends on the repeat's counter and no more */
    tir_code_list task_bound;
    int64_t threads; /* of a block */
    int64_t poll;    /* tasks after which it asks; 0: it does not */
    tir_step *body;
    uint32_t tasks, repeat, task, iteration; /* slots; repeat, iteration: 0 when there is none */
} tir_program_phase;

struct tir_program { /* typedef in interpret.h */
    const tir_kernel *kernel;
    uint32_t slots;                          /* slot 0 is unused */
    lib_vec(uint32_t) constants;             /* slots, ... */
    lib_vec(uint64_t) constant_bits;         /* ... and what they hold */
    tir_code_list entry;                     /* what depends on parameters only */
    const uint32_t *params;                  /* slots */
    uint32_t (*extents)[16], (*strides)[16]; /* slots by buffer */
    uint32_t *offsets;                       /* slots by buffer; 0: none */
    uint32_t workspace, local;               /* slots of the sizes; 0: none */
    tir_program_phase *phases;
};

#endif
