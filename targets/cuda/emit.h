/* Declarations shared by the files that emit CUDA C from loop IR. One function per phase, a block per task. Nothing is decided here: loops,
 * threads, vectors and barriers are given by the loop IR, and the printed code has the same structure.
 *
 *   emit.c         kernels, functions, statements, threads
 *   emit_value.c   expressions and the helpers that they need
 *   emit_paths.c   vec loops with guards: whole vectors, or lane by lane
 *   emit_copy.c    asynchronous copies to shared memory
 *   emit_memory.c  accesses, registers that threads own, shuffles, vectors of neighbouring elements
 *   tile.c         collective statements: matrix instructions of a warp */
#ifndef CUDA_EMIT_H
#define CUDA_EMIT_H

#include "tir/names.h"
#include "tir/registers.h"

typedef struct emitter {
    const tir_kernel *kernel;
    tir_pool *pool;
    lib_arena *arena;
    lib_text *text;
    int indent;
    /* some index, offset or task number exceeds 32 bits */
    bool wide;
    /* names by buffer */
    const char **buffer;
    /* names by variable id */
    const char **variable;
    /* names in use */
    tir_name_list names;
    /* by buffer */
    tir_registers *registers;
    /* open thread loops */
    tir_thread_loops threads;
    const char *relative;
    /* condition for threads that have an iteration of the open thread loop: the others compute, too, but store nothing; NULL: all threads
     * have one */
    const char *inside;
    /* threads of the phase */
    int64_t block;
    /* the following members are about the statement being printed */
    /* by node: its text, NULL: none yet */
    const char **value;
    /* by node: binding strength of the text (emit_value.c) */
    uint8_t *level;
    /* binding strength of the operator just printed */
    uint8_t made;
    /* by node: number of its uses in the statement */
    uint32_t *uses;
    lib_vec(tir_expr) valued;
    /* number of nodes that the arrays above have room for */
    uint32_t node_limit;
    uint32_t temporaries;
} emitter;

_Noreturn void print_unsupported(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void print_line(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *print_name(emitter *e, const char *name); /* a name that is not used yet */

/* emit_value.c */
const char *print_type(const emitter *e, tir_dtype dtype);
/* Prints the code that an expression needs and returns the text of its value, without parentheses around it. Values stay known until
 * print_forget. */
const char *print_value(emitter *e, tir_expr root);
void print_know(emitter *e, tir_expr node, const char *text); /* sets the text of a node's value */
const char *print_atom(emitter *e, tir_expr root); /* print_value, in parentheses if the text is not an atom */
void print_forget(emitter *e);

/* emit_memory.c */
void print_find_registers(emitter *e, const tir_phase *phase);
tir_expr print_offset(emitter *e, uint32_t id, int rank,
                      const tir_expr *index); /* offset in elements of a location in memory */
const char *print_element(emitter *e, uint32_t id, const char *offset);
const char *print_load(emitter *e, tir_expr load); /* text of a load whose operands' values are known */
void print_store(emitter *e, const tir_stmt *stmt);
/* The same with the value's text; one thread of a group stores. */
void print_store_of(emitter *e, const tir_stmt *stmt, const char *value);
bool print_only_registers(emitter *e, tir_expr value); /* does the value load from registers only? */
/* Prints a vec loop around one store by vectors of contiguous elements; false: that is not possible, and nothing was printed. */
bool print_vector_loop(emitter *e, const tir_stmt *loop);
bool print_shuffles(emitter *e, const tir_stmt *list); /* does some statement read registers of other threads? */
/* The index of an element in its thread's array. */
tir_expr print_register_place(emitter *e, uint32_t buffer, const tir_expr *index);

/* tile.c */
void print_collective(emitter *e, const tir_stmt *stmt);
void print_tile_prelude(lib_text *text); /* functions that are one instruction each */

/* emit_paths.c: a copy of the vec loop without the guards of its lanes, valid if *whole, the condition that all of them hold, is true.
 * NULL: there are no guards, or the loop is too large. */
tir_stmt *print_whole_loop(emitter *e, const tir_stmt *loop, tir_expr *whole);

/* emit_copy.c: print asynchronous stores; false: nothing was printed, an ordinary store is needed. */
bool print_copy_loop(emitter *e, const tir_stmt *loop);
bool print_copy(emitter *e, const tir_stmt *stmt);

#endif
