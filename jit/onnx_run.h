/* Internal to onnx_run.c and onnx_values.c: runners and their imports. */
#ifndef JIT_ONNX_RUN_H
#define JIT_ONNX_RUN_H

#include "graph/onnx/structure.h"
#include "jit/onnx.h"

/* Greatest number of tensors in all inputs, and in all outputs. */
enum { JIT_ONNX_TENSORS = 1024 };

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
    /* Runs in progress; all runs; the runner's clock at the last one. */
    int users;
    uint64_t runs, used;
    /* A walk served tensors that it failed for, though they pass the guards: it is not used any more. */
    bool failed;
} imported;

struct dlc_onnx_runner {
    lib_arena arena;
    lib_scope scope;
    dlc_onnx_model *model;
    /* The tensors that arrive: the model's inputs; of a lane, those in inputs of its structure, one after the other. */
    const jit_onnx_port *input;
    int input_count;
    onnx_options import;
    dlc_compile_options compile;
    /* Of the inputs: the output that feeds it; of the outputs: the input that it feeds. -1: no state. */
    int *fed_by, *feeds;
    int state_count;
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
    /* Held during runs if there are states. By input; NULL: no run has left one. */
    lib_mutex state_mutex;
    DLManagedTensorVersioned **state;
    /* Runners of values other than tensors: one for each structure that has arrived (onnx_values.c), with a runner's imports but no states. */
    dlc_onnx_runner *lanes;
    /* Of a lane: its runner; that one's next lane; what arrived, by input of the main graph, without the tensors' elements; runs in progress and the
     * runner's clock at the last one. */
    dlc_onnx_runner *owner, *next;
    const dlc_onnx_value *const *given;
    int users;
    uint64_t used;
};

/* Of a zeroed struct; does not retain the model. */
void jit_onnx_runner_init(dlc_onnx_runner *runner, dlc_onnx_model *model, const jit_onnx_port *input, int count);
void jit_onnx_runner_free(dlc_onnx_runner *runner);
/* A run without states. *import: what served it, which the caller leaves; NULL: nothing, or a walk, which describes the outputs of a lane in
 * *results (NULL: of no lane). */
dlc_status jit_onnx_run_taking(dlc_onnx_runner *runner, const dlc_run_options *options, const DLTensor *const *inputs,
                               dlc_output_slot *outputs, onnx_results *results, imported **import);
/* failed: a walk serves in its place. */
void jit_onnx_leave_import(dlc_onnx_runner *runner, imported *import, bool failed);

#endif
