/* Stores of vectors whose lanes are a distance apart in memory. If neighbours in memory come from neighbouring copies of an unrolled loop,
 * not from neighbouring lanes (a convolution in lanes of output channels that stores rows of pixels, the packing of panels), such stores
 * wait until their neighbours exist; then a block of them is transposed in registers and stored as vectors. Stores without neighbours are
 * made lane by lane, many of them by a loop over the lanes.
 *
 * tir_strided_plan decides which stores wait and how they are made (`rows` and `lane_loop` in tir/loop.h), tir_strided_flaw verifies it, a
 * target carries it out. All three keep the stores that wait in a tir_strided_list, whose rules are: stores that wait never overlap; they are
 * made before anything that could observe them, which is a load or another store of the buffer, a loop, a branch, and the end of a loop's
 * body or of a branch. */
#ifndef TIR_STRIDED_H
#define TIR_STRIDED_H

#include "tir/loop.h"

enum { TIR_STRIDED_ROWS = 16 /* most rows of a transposition */, TIR_STRIDED_MAX = 256 /* most stores that wait */ };

/* A store that waits. Lane l is at byte base + displacement + l*stride, or + l*step if there is a step. Numbers other than 0 stand for values of
 * which the target knows whether they are equal. */
typedef struct tir_strided {
    uint32_t buffer;
    uint64_t base, step;
    int64_t displacement, stride;
    /* bytes of an element */
    int64_t size;
    int lanes, active;
    /* number of the value's type */
    uint64_t type;
    /* with a step: the dimension whose index differs between lanes: it is first + along + l */
    int dimension;
    int64_t first;
    uint64_t along;
    /* most of these that are transposed at once */
    int rows;
} tir_strided;

typedef struct tir_strided_list {
    tir_strided *store[TIR_STRIDED_MAX];
    int count;
    /* transpositions of any number of rows, not only of 2^n */
    bool masked;
    void *user;
    /* Make stores: neighbours, transposed; others, lane by lane, or (`looped`) by a loop over the lanes of all of them. */
    void (*transpose)(void *user, tir_strided *const *store, int count);
    void (*separate)(void *user, tir_strided *const *store, int count, bool looped);
} tir_strided_list;

/* Adds a store; makes those before it if one of them overlaps it, and those that are a whole block with it. The store must stay where it is. */
void tir_strided_wait(tir_strided_list *list, tir_strided *store);
/* Makes all stores that wait. */
void tir_strided_flush(tir_strided_list *list);
/* Does a store to this buffer wait? */
bool tir_strided_waits(const tir_strided_list *list, uint32_t buffer);

/* Sets the way of each store of a vectorised kernel. */
void tir_strided_plan(lib_arena *arena, tir_kernel *kernel, const tir_machine *machine);
/* A store whose way cannot be carried out, and why; NULL: there is none. */
const tir_stmt *tir_strided_flaw(lib_arena *arena, tir_kernel *kernel, const char **why);

#endif
