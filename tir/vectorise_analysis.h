/* Internal to tir_vectorise: the variables in scope, and analyses of loops' bodies. */
#ifndef TIR_VECTORISE_ANALYSIS_H
#define TIR_VECTORISE_ANALYSIS_H

#include "tir/loop.h"

/* A variable in scope whose value is known: of a let, or of a copy of an unrolled loop. value 0: of another let. */
typedef struct tir_known_variable {
    tir_expr var, value;
    bool copy;
    /* of a copy: a decision depended on its value */
    bool asked;
} tir_known_variable;

typedef struct tir_vectoriser {
    lib_arena *arena;
    tir_kernel *kernel;
    tir_pool *pool;
    const tir_machine *machine;
    /* the enclosing vec loop's variable, width of its vectors, iterations; in_vec: its width is more than 1 */
    bool in_vec;
    tir_expr lane;
    int width;
    int64_t extent;
    /* by buffer: a reg buffer that is in memory; whose elements were last stored as vectors, few stores for many elements */
    bool *spilled, *stored_whole;
    /* by variable: is it in scope? Does it depend on the variable of the vec loop being analysed? */
    bool *bound, *dependent;
    uint32_t variables;
    /* outermost first */
    lib_vec(tir_known_variable) known;
    lib_vec(const tir_stmt *) loops;
    /* by expression: does it depend on the lane? Number of the last analysis that visited it */
    bool *varies;
    uint32_t *seen, now;
    /* the expressions that visit() found in its last call, operands first; its stack */
    lib_vec(tir_expr) order, stack;
} tir_vectoriser;

/* How a vec loop becomes vectors. */
typedef struct tir_vec_plan {
    /* lanes; 1: the iterations run one by one */
    int width;
    /* vectors that are interleaved; 1: none */
    int ways;
    /* the vectors are copies of a long body: a loop over them is as fast, if tir_vec_may_roll */
    bool roll;
} tir_vec_plan;
tir_vec_plan tir_vec_plan_of(tir_vectoriser *v, const tir_stmt *loop);
/* Do the body's indices of reg buffers depend on nothing inside of the loop, so that it may be a serial loop? */
bool tir_vec_may_roll(tir_vectoriser *v, const tir_stmt *list);
/* Do addresses or conditions divide the variable by a constant that is no multiple of the width, so that the lanes' distances are constants in each
 * copy of the vectors, but not in a loop over them? */
bool tir_vec_copies_differ(tir_vectoriser *v, const tir_stmt *list, tir_expr var, int width);
/* Number of vectors of so many iterations. */
int64_t tir_vec_count(const tir_vectoriser *v, int width, int64_t extent);

/* Iterations of a serial loop around a register tile that are copies, each with the tile's accumulators, because with few registers the tile is
 * small and the loop's own instructions are a large part; 1: none. */
int tir_vec_steps(tir_vectoriser *v, const tir_stmt *loop);

/* Rows of a tile, in an unrolled loop around a vec loop, of which two share the last vector. */
typedef struct tir_pair_plan {
    /* lanes of whole vectors */
    int width;
    /* the first row is the second one of a pair: its number in the reg buffer is odd */
    bool odd;
} tir_pair_plan;
bool tir_vec_rows_pair(tir_vectoriser *v, const tir_stmt *loop, tir_pair_plan *plan);

/* Should the unrolled loop become a serial one? NULL: no. Else by buffer: must be in memory meanwhile. */
const bool *tir_vec_rows_roll(tir_vectoriser *v, const tir_stmt *loop, int64_t rows);

/* ---- conditions in a vec loop that was planned last */
bool tir_vec_varies(tir_vectoriser *v, tir_expr condition); /* between lanes? */
/* Can the statements be executed under a mask without a branch around them: is each access masked lane by lane, or within its buffer? */
bool tir_vec_flattens(tir_vectoriser *v, const tir_stmt *list);

/* ---- scope. Each enter has its leave. */
void tir_vec_enter_loop(tir_vectoriser *v, const tir_stmt *loop);
void tir_vec_leave_loop(tir_vectoriser *v, const tir_stmt *loop);
void tir_vec_enter(tir_vectoriser *v, const tir_stmt *loop, int width, int64_t extent);
void tir_vec_leave(tir_vectoriser *v, const tir_stmt *loop);
void tir_vec_enter_copy(tir_vectoriser *v, const tir_stmt *loop, tir_expr value);
bool tir_vec_leave_copy(tir_vectoriser *v); /* did a decision depend on the value? */
void tir_vec_enter_let(tir_vectoriser *v, const tir_stmt *let);
void tir_vec_leave_lets(tir_vectoriser *v, uint32_t count); /* all but `count` known variables */
void tir_vec_enter_spill(tir_vectoriser *v, const bool *buffers);
void tir_vec_leave_spill(tir_vectoriser *v, const bool *buffers);
void tir_vec_note_store(tir_vectoriser *v, const tir_stmt *store);

#endif
