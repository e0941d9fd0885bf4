/* Internal to onnx_run.c, onnx_state.c and onnx_values.c: runners, their imports and states. */
#ifndef JIT_ONNX_RUN_H
#define JIT_ONNX_RUN_H

#include "graph/onnx/structure.h"
#include "jit/onnx.h"

/* PORTS: most inputs, and most outputs, of a model. TENSORS: most tensors in all inputs together, and in all outputs together. */
enum { JIT_ONNX_PORTS = 256, JIT_ONNX_TENSORS = 1024 };

/* Condition on one input: an import serves a run only if all inputs pass its guards. */
typedef struct input_guard {
    /* The elements must equal these, of `dtype` and of the shape `dim`. NULL: any elements */
    char *content;
    dlc_dtype dtype;
    /* -1: any rank or, in `dim`, any size */
    int rank;
    int64_t dim[DLC_MAX_RANK];
} input_guard;

typedef struct imported {
    struct imported *next;
    /* Owner of this struct and of the guards. */
    lib_arena arena;
    lib_scope scope;
    /* NULL: all outputs are constants, and nothing is run. */
    dlc_program *program;
    /* Number of the program's outputs; results (of a lane's import, else NULL): how the model's outputs are made of them. */
    int outputs;
    onnx_result *results;
    /* [inputs] */
    input_guard *guard;
    /* [states] the axis along which the output grows in one buffer with the input; -1: the output has a buffer of its own */
    int *grows;
    /* users: runs in progress; runs: all so far; used: the runner's clock at the last one. */
    int users;
    uint64_t runs, used;
    /* The import failed for tensors that pass its guards, and a walk served them: the import is not used any more. */
    bool failed;
} imported;

/* A tensor at the start of `memory`, which may have room for more elements. */
typedef struct jit_onnx_kept {
    DLTensor tensor;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
    /* NULL: there is none */
    DLManagedTensorVersioned *memory;
} jit_onnx_kept;

/* An output that comes back as an input. */
typedef struct jit_onnx_state {
    int input, output;
    /* now: the output of the last run; next: that of the run in progress, in the same memory (with room) or in other memory. */
    jit_onnx_kept now, next;
} jit_onnx_state;

struct dlc_onnx_runner {
    lib_arena arena;
    lib_scope scope;
    dlc_onnx_model *model;
    /* The tensors that a run gets: the model's inputs; of a lane, all tensors inside the model's inputs, in order. */
    const jit_onnx_port *input;
    int input_count;
    onnx_options import;
    dlc_compile_options compile;
    /* Guards `imports` to `sizes`, `walks`, `walked` and the lanes. content[input], sizes: new imports assume from the start that the
     * input's elements, or all sizes, are fixed. */
    lib_mutex mutex;
    imported *imports;
    int import_count;
    uint64_t clock;
    bool *content, sizes;
    /* walks: a walk has served a run for which there was no import; walked: how often. */
    bool walks;
    uint64_t walked;
    /* Held during a run by `walk`, which the first such run makes, and which the lanes use too. told: the log says that the model is
     * walked. */
    lib_mutex walk_mutex;
    jit_onnx_walk *walk;
    int64_t seed;
    bool told;
    /* state_mutex: held during runs if there are states. state_in, state_out: the state of each input and output; NULL: it has none. */
    lib_mutex state_mutex;
    jit_onnx_state *states, **state_in, **state_out;
    int state_count;
    /* For models with inputs or outputs other than tensors (onnx_values.c): a runner for each structure of inputs that has arrived, with
     * imports but without states. */
    dlc_onnx_runner *lanes;
    /* Of a lane. owner: the runner that it belongs to; next: the owner's next lane; given: the structure, by input of the main graph
     * (values without the tensors' elements); users: runs in progress; used: the owner's clock at the last one. */
    dlc_onnx_runner *owner, *next;
    const dlc_onnx_value *const *given;
    int users;
    uint64_t used;
};

/* For runs of which dlc_run does not check the host's output tensors: walks, and runs with states. Refuses tensors without data or shape, with
 * invalid strides, and those that overlap an input or another output. Element types and shapes are checked when they are known, at the end of
 * the run. inputs[i] is NULL for a state that the host does not give. */
dlc_status jit_onnx_check_outputs(const dlc_onnx_runner *runner, const DLTensor *const *inputs,
                                  const dlc_output_slot *outputs);

dlc_status jit_onnx_run_fail(const dlc_onnx_runner *runner, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Checks that a call's lists of inputs and outputs are not NULL and as long as the model's. */
dlc_status jit_onnx_check_lists(const dlc_onnx_runner *runner, const char *call, const void *inputs, int input_count,
                                const void *outputs, int output_count);

/* Initialises a zeroed runner; does not retain the model. */
void jit_onnx_runner_init(dlc_onnx_runner *runner, dlc_onnx_model *model, const jit_onnx_port *input, int count);
void jit_onnx_runner_free(dlc_onnx_runner *runner);
/* A run without states. *import: the import that has served it, which the caller must leave; NULL: none has, or a walk has. For a lane, a
 * walk describes the outputs in *results (NULL: not a lane). */
dlc_status jit_onnx_run_taking(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                               dlc_output_slot *outputs, onnx_results *results, imported **import);
void jit_onnx_leave_import(dlc_onnx_runner *runner, imported *import);

/* ---- states (onnx_state.c) */

/* Fills the runner's states: those of the options and, with find_states, pairs found by names and types. Raises in the scope of the
 * runner's arena. */
void jit_onnx_list_states(dlc_onnx_runner *runner, const dlc_onnx_runner_options *options);
/* Declares varying (dlc_symbol_varies) the symbols of sizes that grow with states, and of sizes that constraints make equal to them. */
dlc_status jit_onnx_vary_states(const dlc_onnx_runner *runner, const imported *import, dlc_graph *made);
/* Donates the inputs of states that grow to their outputs: sets import->grows. */
void jit_onnx_join_states(const dlc_onnx_runner *runner, imported *import);
/* given[input]: the host's tensor or, where it is NULL, the state, which is made if it is the first run. */
dlc_status jit_onnx_add_states(dlc_onnx_runner *runner, const DLTensor *const *inputs, const DLTensor **given);
/* Sets the slots of states that grow to memory for their new values, for a run of the import's program on its `count` inputs `given`. */
dlc_status jit_onnx_aim_states(dlc_onnx_runner *runner, const imported *import, const DLTensor *const *inputs,
                               const DLTensor *const *given, int count, dlc_output_slot *slots);
/* Undoes jit_onnx_aim_states: the slots of states become empty, so that the run allocates new tensors. For a walk, and after an import that
 * failed: the memory of new states may be that of the old ones, which the run reads. */
void jit_onnx_drop_aims(dlc_onnx_runner *runner, dlc_output_slot *slots);
/* After a run into `slots`: new states replace the old ones; the host gets the other outputs and, in tensors that it has given for states,
 * copies of these. */
dlc_status jit_onnx_commit_states(dlc_onnx_runner *runner, dlc_output_slot *slots, dlc_output_slot *outputs);
/* After a run that failed: states stay as they were. */
void jit_onnx_drop_results(dlc_onnx_runner *runner, dlc_output_slot *slots, const dlc_output_slot *outputs);
void jit_onnx_release_states(dlc_onnx_runner *runner);

#endif
