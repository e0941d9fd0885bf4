/* Internal to onnx_run.c, onnx_state.c and onnx_values.c: runners, their imports and states. */
#ifndef JIT_ONNX_RUN_H
#define JIT_ONNX_RUN_H

#include "graph/onnx/structure.h"
#include "jit/onnx.h"

/* Most inputs, and outputs, of a model; greatest number of tensors in all inputs, and in all outputs. */
enum { JIT_ONNX_PORTS = 256, JIT_ONNX_TENSORS = 1024 };

/* What must hold of an input that an import is used for. */
typedef struct input_guard {
    /* Its elements are these, of that dtype and shape. NULL: any */
    char *content;
    dlc_dtype dtype;
    /* -1: any */
    int rank;
    int64_t dim[DLC_MAX_RANK];
} input_guard;

typedef struct imported {
    struct imported *next;
    /* Owner of this struct and of the guards. */
    lib_arena arena;
    lib_scope scope;
    /* NULL: all outputs are constants. */
    dlc_program *program;
    /* Outputs of the program. Of a lane: the model's outputs. */
    int outputs;
    onnx_result *results;
    /* [inputs] */
    input_guard *guard;
    /* [states] the axis along which the output grows in one buffer with the input; -1: the output has a buffer of its own */
    int *grows;
    /* Runs in progress; all runs; the runner's clock at the last one. */
    int users;
    uint64_t runs, used;
    /* A walk served tensors that it failed for, though they pass the guards: it is not used any more. */
    bool failed;
} imported;

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
    /* The tensors that arrive: the model's inputs; of a lane, those in inputs of its structure, one after the other. */
    const jit_onnx_port *input;
    int input_count;
    onnx_options import;
    dlc_compile_options compile;
    /* Guards the imports and what later ones begin with (by input, its elements; all sizes), and the lanes. */
    lib_mutex mutex;
    imported *imports;
    int import_count;
    uint64_t clock;
    bool *content, sizes;
    /* A walk has served what imports did not, and how often. */
    bool walks;
    uint64_t walked;
    /* Held during a run by the walk, which is made by the first one, and which lanes share; told: the log has said so. */
    lib_mutex walk_mutex;
    jit_onnx_walk *walk;
    int64_t seed;
    bool told;
    /* Held during runs if there are states. By state; by input and by output, NULL: it is none. */
    lib_mutex state_mutex;
    jit_onnx_state *states, **state_in, **state_out;
    int state_count;
    /* Runners of values other than tensors: one for each structure that has arrived (onnx_values.c), with a runner's imports but no states. */
    dlc_onnx_runner *lanes;
    /* Of a lane: its runner; that one's next lane; what arrived, by input of the main graph, without the tensors' elements; runs in progress and the
     * runner's clock at the last one. */
    dlc_onnx_runner *owner, *next;
    const dlc_onnx_value *const *given;
    int users;
    uint64_t used;
};

dlc_status jit_onnx_run_fail(const dlc_onnx_runner *runner, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A call's lists are as long as the model's. */
dlc_status jit_onnx_check_lists(const dlc_onnx_runner *runner, const char *call, const void *inputs, int input_count,
                                const void *outputs, int output_count);

/* Of a zeroed struct; does not retain the model. */
void jit_onnx_runner_init(dlc_onnx_runner *runner, dlc_onnx_model *model, const jit_onnx_port *input, int count);
void jit_onnx_runner_free(dlc_onnx_runner *runner);
/* A run without states. *import: what served it, which the caller leaves; NULL: nothing, or a walk, which describes the outputs of a lane in
 * *results (NULL: of no lane). */
dlc_status jit_onnx_run_taking(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                               dlc_output_slot *outputs, onnx_results *results, imported **import);
void jit_onnx_leave_import(dlc_onnx_runner *runner, imported *import);

/* ---- states (onnx_state.c) */

/* Those of the options, and those that are found; raises in the scope of the runner's arena. */
void jit_onnx_list_states(dlc_onnx_runner *runner, const dlc_onnx_runner_options *options);
/* Sizes that grow with states, and those that follow them, are parameters of kernels from the first run on. */
dlc_status jit_onnx_vary_states(const dlc_onnx_runner *runner, const imported *import, dlc_graph *made);
/* Donates the inputs of states that grow to their outputs: sets import->grows. */
void jit_onnx_join_states(const dlc_onnx_runner *runner, imported *import);
/* All inputs: those that have arrived, and the states. */
dlc_status jit_onnx_add_states(dlc_onnx_runner *runner, const DLTensor *const *inputs, const DLTensor **given);
/* Places of the new states, for a run of the import's program on its `count` inputs `given`. */
dlc_status jit_onnx_aim_states(dlc_onnx_runner *runner, const imported *import, const DLTensor *const *inputs,
                               const DLTensor *const *given, int count, dlc_output_slot *slots);
/* Takes such places back: the slots of states become empty, so that the run makes new tensors. For a walk, and after an import that could
 * not serve: places may be in the memory of the states that the run reads. */
void jit_onnx_drop_aims(dlc_onnx_runner *runner, dlc_output_slot *slots);
/* After a run into `slots`: new states take the place of the old ones, and the host gets the other outputs, and copies. */
dlc_status jit_onnx_commit_states(dlc_onnx_runner *runner, dlc_output_slot *slots, dlc_output_slot *outputs);
/* After a run that failed: states stay as they were. */
void jit_onnx_drop_results(dlc_onnx_runner *runner, dlc_output_slot *slots, const dlc_output_slot *outputs);
void jit_onnx_release_states(dlc_onnx_runner *runner);

#endif
