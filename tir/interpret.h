/* The interpreter: the definition of loop IR. Slow, exact, suspicious. It checks while it runs:
 *   - every access is within the buffer's physical extents (guarded loads: only where the guard holds);
 *   - scratch is poison until written; storing a poison value to an ARG buffer, branching on one, or using one as an index
 *     is an error (poison flows through arithmetic: don't-care values are allowed to exist);
 *   - races: within a phase no task writes what another task of the phase reads or writes (ARG and WORKSPACE);
 *   - vec loops: iterations are independent except through equal-bits reductions: no iteration touches what another one
 *     writes, but for stores of the form b[i] = exact-operator(b[i], ...);
 *   - reg and stack buffers have constant extents.
 * Errors are DLC_INTERNAL with the statement's text, buffer, index and extents. */
#ifndef TIR_INTERPRET_H
#define TIR_INTERPRET_H

#include "tir/loop.h"

/* Accesses of warps to shared memory, and how many more turns than one each their parts took (interpret_banks.c): bank conflicts; `chosen`:
 * of these, where values that were loaded are part of the place, of which no schedule can know the banks. To the
 * device's memory: how many, sectors of 32 bytes that they touched, and how many of these their bytes would not have needed. */
typedef struct tir_bank_report {
    int64_t accesses, conflicts, chosen, worst_conflicts;
    int64_t requests, sectors, excess;
    /* the statement with most of them, of those that are not chosen if there are any */
    char worst[256];
} tir_bank_report;

/* What lay between two polls. */
typedef struct tir_poll_report {
    int64_t polls;
    /* instructions and stores: in all; most between two polls, the last task's end counting as one */
    int64_t work, longest;
} tir_poll_report;

typedef struct tir_interpret_options {
    /* poison and race checks (bounds are always checked) */
    bool check;
    /* run tasks last to first */
    bool reverse_tasks;
    /* run the iterations of vec loops last to first */
    bool reverse_lanes;
    /* with check: an element of an ARG buffer that is not read is stored once, no more and no less */
    bool stored_once;
    /* counted where not NULL, which is slow */
    tir_bank_report *banks;
    const volatile int *cancel;
    /* asked by long loops (polls.h): not zero ends with DLC_CANCELLED; NULL: nobody is asked */
    int (*is_over)(void *user);
    void *user;
    /* of tir_polls_new, for tests; 0: TIR_POLL_WORK_INTERPRETED */
    int64_t poll_work;
    /* counted where not NULL, of tir_interpret */
    tir_poll_report *polling;
} tir_interpret_options;

/* arguments[i]: address of element 0 of ARG buffer i. params in order of kernel->params. Scratch comes from `allocator`. */
dlc_status tir_interpret(const tir_kernel *kernel, void *const *arguments, const int64_t *params,
                         const tir_interpret_options *options, const dlc_allocator *allocator, lib_error *error);

/* A kernel prepared for running, in `arena`; immutable, so that any number of threads may run it at once. The kernel must
 * outlive it and its pool must not change meanwhile. Raises DLC_INTERNAL for what no run could execute: unbound variables, unknown buffers, wrong ranks. */
typedef struct tir_program tir_program;
tir_program *tir_program_new(lib_arena *arena, const tir_kernel *kernel);
tir_program *tir_program_new_polling(lib_arena *arena, const tir_kernel *kernel, int64_t poll_work);
/* Tasks begin..end-1 of one phase only, for drivers that schedule tasks themselves (bounds and poison of its own scratch are checked,
 * races are not). workspace and local are the kernel's scratch, of the sizes the kernel states. */
dlc_status tir_program_run_tasks(const tir_program *program, int phase, int64_t iteration, int64_t begin, int64_t end,
                                 void *const *arguments, const int64_t *params, char *workspace, char *local,
                                 const tir_interpret_options *options, const dlc_allocator *allocator,
                                 lib_error *error);

#endif
