/* Internal to onnx_run.c and onnx_state.c: runners of ONNX models. */
#ifndef JIT_ONNX_RUN_H
#define JIT_ONNX_RUN_H

#include "jit/onnx.h"

enum { JIT_ONNX_PORTS = 256 }; /* most inputs, and outputs, of a runner */

/* What must hold of an input that an import is used for. */
typedef struct jit_onnx_guard {
    /* Its elements are these, of that dtype and shape. NULL: any */
    char *content;
    dlc_dtype dtype;
    /* -1: any */
    int rank;
    int64_t dim[DLC_MAX_RANK];
} jit_onnx_guard;

typedef struct jit_onnx_imported {
    struct jit_onnx_imported *next;
    /* Owner of this struct and of the guards. */
    lib_arena arena;
    lib_scope scope;
    dlc_program *program;
    /* [inputs] */
    jit_onnx_guard *guard;
    /* [states] the axis along which the output grows in one buffer with the input; -1: it has its own */
    int *grows;
    /* Runs in progress; all runs; the runner's clock at the last one. */
    int users;
    uint64_t runs, used;
} jit_onnx_imported;

/* A tensor in memory that may have room for more. */
typedef struct jit_onnx_kept {
    DLTensor tensor;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
    /* NULL: there is none */
    DLManagedTensorVersioned *memory;
} jit_onnx_kept;

/* An output that comes back as an input. */
typedef struct jit_onnx_state {
    int input, output;
    /* What the last run has left; what the run in progress makes, in the same memory or in another one. */
    jit_onnx_kept now, next;
} jit_onnx_state;

struct dlc_onnx_runner {
    lib_arena arena;
    lib_scope scope;
    dlc_onnx_model *model;
    onnx_options import;
    dlc_compile_options compile;
    /* Guards the imports and what later ones begin with: by input, its elements; all sizes. */
    lib_mutex mutex;
    jit_onnx_imported *imports;
    int import_count;
    uint64_t clock;
    bool *content, sizes;
    /* Held during runs if there are states. By state; by input and by output, NULL: it is none. */
    lib_mutex state_mutex;
    jit_onnx_state *states, **state_in, **state_out;
    int state_count;
};

dlc_status jit_onnx_run_fail(const dlc_onnx_runner *runner, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- states (onnx_state.c) */

/* Those of the options, and those that are found; raises in the scope of the runner's arena. */
void jit_onnx_list_states(dlc_onnx_runner *runner, const dlc_onnx_runner_options *options);
/* Sizes that grow with states, and those that follow them, are parameters of kernels from the first run on. */
dlc_status jit_onnx_vary_states(const dlc_onnx_runner *runner, const jit_onnx_imported *import, dlc_graph *made);
/* Donates the inputs of states that grow to their outputs: sets import->grows. */
void jit_onnx_join_states(const dlc_onnx_runner *runner, jit_onnx_imported *import);
/* All inputs: those that have arrived, and the states. */
dlc_status jit_onnx_add_states(dlc_onnx_runner *runner, const DLTensor *const *inputs, const DLTensor **given);
/* Places of the new states, for a run of the import's program on its `count` inputs `given`. */
dlc_status jit_onnx_aim_states(dlc_onnx_runner *runner, const jit_onnx_imported *import, const DLTensor *const *inputs,
                               const DLTensor *const *given, int count, dlc_output_slot *slots);
/* After a run into `slots`: new states take the place of the old ones, and the host gets the other outputs, and copies. */
dlc_status jit_onnx_commit_states(dlc_onnx_runner *runner, dlc_output_slot *slots, dlc_output_slot *outputs);
/* After a run that failed: states stay as they were. */
void jit_onnx_drop_results(dlc_onnx_runner *runner, dlc_output_slot *slots, const dlc_output_slot *outputs);
void jit_onnx_release_states(dlc_onnx_runner *runner);

#endif
