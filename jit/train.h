/* Internal to train.c, train_step.c, train_state.c and optimizers.c: trainers. They are written over the public headers; of the library's inside
 * they use lib/, and from jit/jit.h what begins, ends and fails a public call. */
#ifndef JIT_TRAIN_H
#define JIT_TRAIN_H

#include "jit/formula.h"
#include "jit/jit.h"

#include <dlc/files.h>
#include <dlc/train.h>

/* A tensor of the batch, as the function declared it; `dim` is a copy. */
typedef struct train_input {
    const char *name;
    dlc_dtype dtype;
    int rank;
    dlc_dim *dim;
} train_input;

typedef enum train_kind { TRAIN_PARAMETER, TRAIN_SLOT, TRAIN_AVERAGE, TRAIN_CARRIED, TRAIN_NUMBER } train_kind;

/* A tensor of the state. */
typedef struct train_state {
    const char *name;
    train_kind kind;
    dlc_dtype dtype;
    int rank;
    int64_t shape[DLC_MAX_RANK];
    /* SLOT, AVERAGE: index of the parameter; else -1 */
    int parameter;
    /* PARAMETER */
    bool frozen, decays;
    /* how it begins, unless it has a tensor already; initial.tensor is NULL */
    dlc_parameter_options initial;
    /* number among the inputs, and outputs, of the step, and among the inputs of evaluation; -1: none */
    int input, output, evaluated;
    /* owned; NUMBER: in host memory; others on the context's device, if it has one */
    DLManagedTensorVersioned *tensor;
} train_state;

/* Which of the trainer's numbers is where in the state; -1: there is none. */
typedef struct train_numbers {
    int step, skipped, seed, scale, good;
} train_numbers;

/* A program, and how its inputs and outputs are laid out. */
typedef struct train_program {
    dlc_program *program;
    /* tensors of the batch, in the order of the first calls, and which inputs they are */
    lib_vec(train_input) inputs;
    lib_vec(int) place;
    /* names of the host's outputs, which begin at first_output */
    lib_vec(const char *) outputs;
    int first_output;
    /* scratch of a run: [inputs], [outputs] of the program; tensors of a batch that is cut */
    const DLTensor **in;
    dlc_output_slot *out;
    DLTensor *parts;
    int64_t (*part_shape)[2 * DLC_MAX_RANK];
} train_program;

struct dlc_trainer {
    lib_arena arena;
    lib_scope scope;
    dlc_context *context;
    /* strings are copies in the arena */
    dlc_trainer_options options;
    dlc_compile_options compile;
    dlc_optimizer optimizer;
    /* slots and settings of the optimiser */
    lib_vec(const char *) slots;
    lib_vec(dlc_optimizer_setting) settings;
    lib_vec(train_state) states;
    train_numbers numbers;
    train_program step, evaluation;
    /* that is being built; NULL: none */
    dlc_graph *graph;
    /* a call that writes the state began and failed: it is partly that from before */
    bool lost;
    /* a step or an evaluation is in progress, which may call functions of the host */
    bool at_work;
};

/* Which call of the host's function this is. LIST finds out what there is; its graph is thrown away. */
typedef enum train_pass { TRAIN_LIST, TRAIN_STEP, TRAIN_EVALUATE } train_pass;

struct dlc_training {
    dlc_trainer *trainer;
    train_pass pass;
    dlc_graph *graph;
    /* of this pass */
    train_program *program;
    /* values of the inputs and states in this pass's graph, by number; next: of carried values. A graph of NULL: none so far */
    lib_vec(dlc_value) inputs, states, next, outputs;
    /* steps: not for evaluation */
    dlc_value key, steps;
    int input_count;
    /* the first mistake in a call of dlc_training_*; DLC_OK: none */
    lib_error error;
};

/* train.c */
int jit_train_find_state(const dlc_trainer *trainer, const char *name); /* -1: none */
/* Raises if the name is taken, or none for a tensor of a file. */
train_state *jit_train_add_state(dlc_trainer *trainer, train_kind kind, const char *name, dlc_dtype dtype, int rank,
                                 const int64_t *shape);
/* Can a state of this type and shape be copied from the tensor: is it in host memory, with data? */
bool jit_train_fits(const DLTensor *tensor, dlc_dtype dtype, int rank, const int64_t *shape);
/* Text for messages: the device, element type and shape that jit_train_fits requires of a tensor. */
typedef struct train_wanted {
    char text[512];
} train_wanted;
train_wanted jit_train_wanted(dlc_dtype dtype, int rank, const int64_t *shape);
/* Fails, with a record, if a function of the host that a step or an evaluation calls has made the call. */
dlc_status jit_train_check_idle(dlc_trainer *trainer, const char *call);
/* Calls the host's function; raises its mistakes and its status. The loss is a rank-0 value, or poison where it may be left out. */
dlc_value jit_train_build(dlc_training *training, dlc_training_function *build, void *user);
/* Raises the graph's first mistake, if there is one. */
void jit_train_check_graph(dlc_trainer *trainer, dlc_graph *handle, const char *what);
/* Compiles the graph that is being built; raises. */
void jit_train_compile(dlc_trainer *trainer, train_program *program);

/* train_step.c: builds and compiles the step, and evaluation. Raise. */
void jit_train_build_step(dlc_trainer *trainer, dlc_training_function *build, void *user);
void jit_train_build_evaluation(dlc_trainer *trainer, dlc_training_function *build, void *user);

/* train_state.c: memory for the state; the tensors as they begin, but for those that have memory already. Raise. */
void jit_train_new_tensor(dlc_trainer *trainer, train_state *state);
void jit_train_begin_state(dlc_trainer *trainer);
/* A copy in host memory of a compact tensor there or on the device; *copy is NULL after a failure, which is recorded for `call`. */
dlc_status jit_train_read(dlc_trainer *trainer, const char *call, const DLTensor *from,
                          DLManagedTensorVersioned **copy);

/* optimizers.c */
/* Finds the optimiser and its settings, checks the rate. Raises. */
void jit_train_read_optimizer(dlc_trainer *trainer);
/* The rate, f64 of rank 0; step: f64 of rank 0, 1 in the first step. */
dlc_value jit_train_rate(dlc_trainer *trainer, dlc_graph *handle, dlc_value step);
/* What becomes of parameter `parameter` and its slots: next[0] and next[1 + slot]. value: the parameter, then its slots. */
void jit_train_update(dlc_trainer *trainer, dlc_graph *handle, const train_state *parameter, const dlc_value *value,
                      dlc_value gradient, dlc_value rate, dlc_value step, dlc_value *next);

#endif
