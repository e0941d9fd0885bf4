/* The interpreter: the definition of loop IR. Slow, exact, with all checks. It checks while it runs:
 *   - every access is within the buffer's physical extents (guarded loads: only if the guard is true);
 *   - scratch is poison until written; storing a poison value to an ARG buffer, branching on one, or using one as an index
 *     is an error (poison flows through arithmetic: don't-care values are allowed to exist);
 *   - races: within a phase no task writes what another task of the phase reads or writes (ARG and WORKSPACE);
 *   - vec loops: iterations are independent except through equal-bits reductions: no iteration accesses what another one
 *     writes, but for stores of the form b[i] = exact-operator(b[i], ...);
 *   - reg and stack buffers have constant extents.
 * Errors are DLC_INTERNAL with the statement's text, buffer, index and extents. */
#ifndef TIR_INTERPRET_H
#define TIR_INTERPRET_H

#include "tir/loop.h"

/* Shared memory: accesses of warps and their bank conflicts (cycles beyond one per access, interpret_banks.c); `chosen`: conflicts of
 * accesses whose address depends on loaded values, so that no schedule can know the banks. Device memory: accesses (`requests`), 32-byte
 * sectors that they touch, and sectors in excess of the number that the accessed bytes would fill. */
typedef struct tir_bank_report {
    int64_t accesses, conflicts, chosen;
    int64_t requests, sectors, excess;
    /* the statement with most conflicts, preferably not a `chosen` one */
    char worst[256];
} tir_bank_report;

/* Work between two cancellation checks. */
typedef struct tir_poll_report {
    int64_t polls;
    /* instructions and stores: total; maximum between two checks (the end of a task counts as a check) */
    int64_t work, longest;
} tir_poll_report;

typedef struct tir_interpret_options {
    /* poison and race checks (bounds are always checked) */
    bool check;
    /* run tasks last to first */
    bool reverse_tasks;
    /* run the iterations of vec loops last to first */
    bool reverse_lanes;
    /* with check: an element of a write-only ARG buffer is stored exactly once */
    bool stored_once;
    /* counted if not NULL, which is slow */
    tir_bank_report *banks;
    const volatile int *cancel;
    /* cancellation check of long loops (polls.h): non-zero ends with DLC_CANCELLED; NULL: no checks */
    int (*is_over)(void *user);
    void *user;
    /* for tir_polls_new, for tests; 0: TIR_POLL_WORK_INTERPRETED */
    int64_t poll_work;
    /* tir_interpret: counted if not NULL */
    tir_poll_report *polling;
} tir_interpret_options;

/* arguments[i]: address of element 0 of ARG buffer i. params in order of kernel->params. Scratch comes from `allocator`. */
dlc_status tir_interpret(const tir_kernel *kernel, void *const *arguments, const int64_t *params,
                         const tir_interpret_options *options, const dlc_allocator *allocator, lib_error *error);

/* A kernel prepared for running, in `arena`; immutable, so that any number of threads may run it at once. It must not outlive the
 * kernel, whose pool must not change meanwhile. Raises DLC_INTERNAL for what no run could execute: unbound variables, unknown buffers,
 * wrong ranks. */
typedef struct tir_program tir_program;
tir_program *tir_program_new(lib_arena *arena, const tir_kernel *kernel);
tir_program *tir_program_new_polling(lib_arena *arena, const tir_kernel *kernel, int64_t poll_work);
/* Runs tasks begin..end-1 of one phase only, for callers that schedule tasks themselves. Checks bounds and the poison of per-task scratch,
 * not races. workspace and local are the kernel's scratch, of the kernel's stated sizes. */
dlc_status tir_program_run_tasks(const tir_program *program, int phase, int64_t iteration, int64_t begin, int64_t end,
                                 void *const *arguments, const int64_t *params, char *workspace, char *local,
                                 const tir_interpret_options *options, const dlc_allocator *allocator,
                                 lib_error *error);

#endif
