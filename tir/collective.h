/* Collective statements: instructions that the 32 threads of a warp execute together. A row states which thread holds which element,
 * bit by bit, since every such map is a permutation of bits. Semantics of the rows:
 *   mma       for all i, j: C(i, j) = f32(C(i, j) + sum over k, ascending, of A(i, k) * B(k, j)), the sum in f64, rounded once.
 *             Hardware sums in its own order and width: a schedule must name the deviation.
 *   ldmatrix  for all q, r, c: F(q, r, c) = S(q, r, c): moves matrices q of 8 rows of 16 bytes from shared memory.
 * PTX ISA, "Warp-level matrix instructions": fragments of mma.m16n8k16 and ldmatrix. */
#ifndef TIR_COLLECTIVE_H
#define TIR_COLLECTIVE_H

#include "tir/expr.h"

enum { TIR_COLLECTIVE_VARS = 3, TIR_COLLECTIVE_PLACES = 3, TIR_COLLECTIVE_SIDE = 16 };

typedef enum tir_collective_kind { TIR_MMA, TIR_LDMATRIX } tir_collective_kind;

/* A place, an operand or result of the warp: element (v0, v1, v2). Bit b of variable v is bit `bit[v][b]` of the number of the lane that
 * holds it, or, from TIR_REGISTER_BIT up, of the element's number within its lane. */
enum { TIR_REGISTER_BIT = 8 };
typedef struct tir_fragment {
    /* TIR_INDEX: any dtype of two bytes, the same in all places */
    tir_dtype dtype;
    /* in shared memory: rows along the last variable, 16 bytes each, aligned; `bit` is not read */
    bool memory;
    /* bit v: the element depends on variable v */
    uint8_t uses;
    uint8_t bit[TIR_COLLECTIVE_VARS][4];
} tir_fragment;

typedef struct tir_collective {
    const char *name;
    tir_collective_kind kind;
    /* compute capability that has it, 10 * major + minor */
    int32_t capability;
    /* number of operands ("places"); place 0 is written, and by mma also read */
    int places;
    /* of each variable: it runs over 0 .. 2^bits - 1 */
    int8_t bits[TIR_COLLECTIVE_VARS];
    /* usual names */
    const char *var[TIR_COLLECTIVE_VARS];
    tir_fragment place[TIR_COLLECTIVE_PLACES];
} tir_collective;

const tir_collective *tir_collective_find(const char *name); /* NULL: none */
const tir_collective *tir_collective_row(int i);             /* NULL: past the last */

/* _lane: the lane that holds an element; _register: the element's number within that lane. `point`: values of the variables. */
int tir_fragment_lane(const tir_collective *row, int place, const int *point);
int tir_fragment_register(const tir_collective *row, int place, const int *point);
/* The point of element `number` of a lane; the inverse of both. */
void tir_fragment_point(const tir_collective *row, int place, int lane, int number, int *point);
int tir_fragment_registers(const tir_collective *row, int place); /* elements that a lane holds */

#endif
