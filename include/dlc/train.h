/* Training: a trainer owns parameters and the state of an optimiser, and makes steps: loss, gradients and update are one program, which writes
 * the state where it is. Included in addition to <dlc/dlc.h> and <dlc/gradient.h>, whose conventions hold.
 *
 *   static dlc_status build(void *user, dlc_training *t, dlc_value *loss) {
 *       dlc_parameter_options random = DLC_PARAMETER_OPTIONS_INIT;
 *       random.initial = DLC_INITIAL_UNIFORM, random.scale = 0.1;
 *       dlc_value x = dlc_training_input(t, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {64, NULL}});
 *       dlc_value w = dlc_training_parameter(t, "w", DLC_F32, 2, (int64_t[]){64, 10}, &random);
 *       dlc_value b = dlc_training_parameter(t, "b", DLC_F32, 1, (int64_t[]){10}, NULL);
 *       dlc_value labels = dlc_training_input(t, "labels", DLC_I32, 1, (dlc_dim[]){{0, "n"}}), scores = dlc_linear(x, w, b);
 *       *loss = dlc_mean(dlc_cross_entropy(scores, labels, 1), 0, NULL);
 *       return DLC_OK;
 *   }
 *   dlc_trainer_create(context, build, NULL, NULL, &trainer);
 *   dlc_trainer_step(trainer, NULL, (const DLTensor *[]){&x, &labels}, 2, &report, NULL, 0);
 *
 * State       Tensors with names, all of them saved and loaded: parameters "w"; for each slot of the optimiser "SLOT.w"; with an average
 *             "average.w"; carried values; and the trainer's numbers "trainer.step", "trainer.skipped", "trainer.seed", "trainer.scale",
 *             "trainer.good". On a device target they live on the device, but for the numbers, and are copied only by
 *             dlc_trainer_tensor, _set, _save and _load.
 * Optimisers  DLC_OPTIMIZERS below, or the host's own, as text.
 * Order       The numbers of a step depend on the state, the batch, the options and the machine: not on the number of threads, nor on whether the
 *             state was saved and loaded in between. Random keys are functions of the seed and the number of the step.
 * Failures    A step that is refused (a wrong batch, memory, a limit while shapes are bound) leaves the state as it was. A step that is cancelled,
 *             or fails, after it has begun to compute loses it: the state is partly that of the next step. Then steps, evaluations and
 *             dlc_trainer_save* return DLC_INVALID_ARGUMENT with a message that says so, until dlc_trainer_load succeeds.
 * Threads     A trainer is used by one thread at a time. Functions of the host that a step or an evaluation calls cannot use it
 *             (DLC_INVALID_ARGUMENT). */
#ifndef DLC_TRAIN_H
#define DLC_TRAIN_H

#include <dlc/gradient.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_trainer dlc_trainer;

/* ---- what is trained ------------------------------------------------------------------------------------------------------------- */

/* One call of the host's function; valid until it returns. */
typedef struct dlc_training dlc_training;

/* Builds the loss, one element of a float type, by the public builder in dlc_training_graph. It is called by dlc_trainer_create only: for the
 * step, twice, and for evaluation, and must build the same each time, but for what depends on dlc_training_is_step. For evaluation *loss may
 * stay unset, for batches without labels. A status other than DLC_OK ends dlc_trainer_create with it. */
typedef dlc_status dlc_training_function(void *user, dlc_training *training, dlc_value *loss);

/* With micro_batches a sub-graph. */
DLC_API dlc_graph *dlc_training_graph(dlc_training *training);
/* Whether a step is built (dropout, statistics of the batch), or else evaluation. */
DLC_API bool dlc_training_is_step(const dlc_training *training);
/* A tensor of the batch. Steps and evaluations take these tensors in the order of the first calls. dims[rank], as in dlc_input. */
DLC_API dlc_value dlc_training_input(dlc_training *training, const char *name, dlc_dtype dtype, int rank,
                                     const dlc_dim *dims);

typedef enum dlc_initial {
    DLC_INITIAL_CONSTANT, /* `scale` everywhere */
    DLC_INITIAL_NORMAL,   /* mean 0, standard deviation `scale` */
    DLC_INITIAL_UNIFORM   /* from -scale to scale */
} dlc_initial;

typedef struct dlc_parameter_options {
    size_t struct_size;
    /* Values at the start, a function of the trainer's seed and the name. Of a layer followed by a ReLU, with k products in each sum:
     * deviation sqrt(2/k), or uniform with scale sqrt(6/k) (He et al. 2015) */
    dlc_initial initial;
    double scale;
    /* Not NULL: these values instead, of the parameter's type and shape, in host memory; copied by the call */
    const DLTensor *tensor;
    /* Is not trained: no gradient, no slots */
    bool frozen;
    /* Weight decay. 0: parameters of rank 2 and more have it; positive: this one has it; negative: it has not */
    int decay;
} dlc_parameter_options;
#define DLC_PARAMETER_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_parameter_options)

/* A parameter, f32 or f64. options NULL: zeros at the start. Called again with the same name it returns the same value: a shared parameter. */
DLC_API dlc_value dlc_training_parameter(dlc_training *training, const char *name, dlc_dtype dtype, int rank,
                                         const int64_t *shape, const dlc_parameter_options *options);
/* A value that one step leaves to the next and to evaluations: statistics of batch norm, the state of a recurrent network. Of any type that
 * computes; zeros at the start, or by options->tensor, or (floats) by `initial`. A step must say what comes next. */
DLC_API dlc_value dlc_training_carried(dlc_training *training, const char *name, dlc_dtype dtype, int rank,
                                       const int64_t *shape, const dlc_parameter_options *options);
/* The carried value's next one, of its type and shape: in a step a symbol as its size does not fit. For evaluation the call does nothing. */
DLC_API void dlc_training_carry(dlc_training *training, const char *name, dlc_value next);
/* The key of this step for random operators, i64 of rank 0: dlc_dropout(x, dlc_training_key(t), 0.1). Several operators may have the same
 * key: each draws a stream of its own. For evaluation a constant. */
DLC_API dlc_value dlc_training_key(dlc_training *training);
/* How many steps have updated the state so far, i64 of rank 0. */
DLC_API dlc_value dlc_training_steps(dlc_training *training);
/* A result that steps or evaluations give in addition to the loss. */
DLC_API void dlc_training_output(dlc_training *training, const char *name, dlc_value value);

/* ---- optimisers -------------------------------------------------------------------------------------------------------------------- */

/* Statements `name = expression`, separated by semicolons, for each parameter: w, the parameter, and the slots are replaced by what they are
 * assigned; other names are intermediate. There are g, the gradient; the settings; rate; step, 1 in the first one; decay, the setting where the
 * parameter has weight decay, else 0. Expressions: numbers, names, + - * /, parentheses, comparisons (select(c, a, b)), elementwise
 * operators of the library by name: sqrt(x), pow(x, y), min(a, b), sign(x), exp(x), ... Numbers are folded: a product with a setting that is 0 is 0. */
typedef struct dlc_optimizer {
    const char *name;
    /* Names of the slots, separated by blanks: tensors of the parameter's type and shape, zeros at the start. NULL, "": none */
    const char *slots;
    /* Settings with their defaults, "beta1=0.9 epsilon=1e-8"; NULL, "": none. Without `decay` there is no weight decay. */
    const char *settings;
    const char *update;
} dlc_optimizer;

/* X(name, slots, settings, update, source of the definition) */
#define DLC_OPTIMIZERS(X)                                                                                            \
    X("sgd", "", "decay=0", "g = g + decay*w; w = w - rate*g", "Robbins and Monro 1951")                             \
    X("momentum", "v", "momentum=0.9 decay=0", "g = g + decay*w; v = momentum*v + g; w = w - rate*v",                \
      "Polyak 1964, as PyTorch's SGD")                                                                               \
    X("nesterov", "v", "momentum=0.9 decay=0", "g = g + decay*w; v = momentum*v + g; w = w - rate*(g + momentum*v)", \
      "Nesterov 1983, as PyTorch's SGD")                                                                             \
    X("adam", "m v", "beta1=0.9 beta2=0.999 epsilon=1e-8 decay=0",                                                   \
      "g = g + decay*w; m = beta1*m + (1 - beta1)*g; v = beta2*v + (1 - beta2)*g*g; "                                \
      "w = w - rate/(1 - pow(beta1, step))*m/(sqrt(v/(1 - pow(beta2, step))) + epsilon)",                            \
      "Kingma and Ba 2015")                                                                                          \
    X("adamw", "m v", "beta1=0.9 beta2=0.999 epsilon=1e-8 decay=0.01",                                               \
      "m = beta1*m + (1 - beta1)*g; v = beta2*v + (1 - beta2)*g*g; w = w - rate*decay*w; "                           \
      "w = w - rate/(1 - pow(beta1, step))*m/(sqrt(v/(1 - pow(beta2, step))) + epsilon)",                            \
      "Loshchilov and Hutter 2019")                                                                                  \
    X("adagrad", "s", "epsilon=1e-10 decay=0", "g = g + decay*w; s = s + g*g; w = w - rate*g/(sqrt(s) + epsilon)",   \
      "Duchi et al. 2011")                                                                                           \
    X("rmsprop", "v", "alpha=0.99 epsilon=1e-8 decay=0",                                                             \
      "g = g + decay*w; v = alpha*v + (1 - alpha)*g*g; w = w - rate*g/(sqrt(v) + epsilon)", "Hinton 2012")           \
    X("lion", "m", "beta1=0.9 beta2=0.99 decay=0",                                                                   \
      "w = w - rate*(sign(beta1*m + (1 - beta1)*g) + decay*w); m = beta2*m + (1 - beta2)*g", "Chen et al. 2023")

typedef struct dlc_optimizer_setting {
    const char *name;
    double number;
} dlc_optimizer_setting;

/* ---- trainers ----------------------------------------------------------------------------------------------------------------------- */

typedef enum dlc_not_finite {
    DLC_NOT_FINITE_KEEP, /* a step is made whatever the loss is; "trainer.skipped" counts those whose loss is not finite */
    DLC_NOT_FINITE_SKIP /* a step whose loss or one of whose gradients is not finite changes nothing but this count */
} dlc_not_finite;

typedef struct dlc_trainer_options {
    size_t struct_size;
    /* Of the programs of steps and evaluations; NULL: defaults */
    const dlc_compile_options *compile;
    /* A name of DLC_OPTIMIZERS; NULL: "adamw", or `own` */
    const char *optimizer;
    /* The host's own */
    const dlc_optimizer *own;
    /* Settings of the optimiser other than their defaults */
    const dlc_optimizer_setting *settings;
    int setting_count;
    /* The rate as an expression of step, 1 in the first step, in the form of an optimiser's; NULL: "0.001". For example
     *     warm-up       0.001*min(1, step/500)
     *     half cosine   0.0005*(1 + cos(3.14159265*min(1, step/10000)))
     *     exponential   0.001*pow(0.95, step/1000)
     *     steps         0.001*select(step <= 3000, 1, select(step <= 6000, 0.1, 0.01)) */
    const char *rate;
    /* Gradients are scaled so that the norm of all of them together is at most this (Pascanu et al. 2013); 0: they are not */
    double clip_norm;
    /* Each element of a gradient is limited to this, before clip_norm; 0: it is not */
    double clip_value;
    /* DLC_BF16, DLC_F16: the loss is computed with dlc_mixed_precision; 0: as the function builds it */
    dlc_dtype precision;
    /* The loss is multiplied by this before gradients are taken, and these divided; 0: 1. For gradients that f16 cannot hold */
    double loss_scale;
    /* loss_scale (0: 65536) is the first one: doubled after 2,000 good steps, halved by each step that is skipped (Micikevicius et al.
     * 2018). With DLC_NOT_FINITE_SKIP only */
    bool dynamic_loss_scale;
    dlc_not_finite on_not_finite;
    /* Averages of the parameters, average = average_decay*average + (1 - average_decay)*w after each step, which evaluations use instead of
     * the parameters; 0: none */
    double average_decay;
    /* The batch is cut along dimension 0 into this many parts of equal size, whose gradients are averaged before the update: the memory of a step
     * is that of one part. Outputs are stacked along a new dimension 0. Tensors of rank 0 go to each part. 0: 1 */
    int micro_batches;
    /* Of initial values and random keys */
    uint64_t seed;
} dlc_trainer_options;
#define DLC_TRAINER_OPTIONS_INIT DLC_OPTIONS_INIT(dlc_trainer_options)

/* Calls `build`, compiles a step and evaluation for any sizes of the batch, and makes the state. options NULL: defaults.
 * Errors: that of `build` or of a builder call in it, DLC_INVALID_ARGUMENT: no loss; a parameter that the loss does not depend on (freeze it);
 * names that are taken twice; settings that the optimiser does not have; DLC_NOT_FOUND: no optimiser of that name; DLC_PARSE_ERROR: malformed
 * text, with the position. */
DLC_API dlc_status dlc_trainer_create(dlc_context *context, dlc_training_function *build, void *user,
                                      const dlc_trainer_options *options, dlc_trainer **trainer);
DLC_API void dlc_trainer_destroy(dlc_trainer *trainer);

typedef struct dlc_training_report {
    size_t struct_size;
    double loss;
    /* Norm of all gradients together before clip_norm; 0 without clip_norm */
    double norm;
    double rate;
    double loss_scale;
    /* After this step: steps that updated the state; steps whose loss (or gradients) were not finite */
    int64_t step, skipped;
} dlc_training_report;
#define DLC_TRAINING_REPORT_INIT DLC_OPTIONS_INIT(dlc_training_report)

/* One step. batch[count]: the tensors of dlc_training_input. outputs[output_count]: slots as in dlc_run for the outputs of a step (the library
 * allocates them on the device if any tensor of the batch is there); output_count 0: they are dropped. report, options may be NULL; options->event must be. The first step of a batch's shapes binds them. */
DLC_API dlc_status dlc_trainer_step(dlc_trainer *trainer, const dlc_run_options *options, const DLTensor *const *batch,
                                    int count, dlc_training_report *report, dlc_output_slot *outputs, int output_count);
/* Loss and outputs of evaluation; *loss (may be NULL): NaN if the function has none for evaluation. */
DLC_API dlc_status dlc_trainer_evaluate(dlc_trainer *trainer, const dlc_run_options *options,
                                        const DLTensor *const *batch, int count, double *loss, dlc_output_slot *outputs,
                                        int output_count);
/* The programs, to look inside; owned by the trainer. Running one does not change the state. */
DLC_API dlc_program *dlc_trainer_program(dlc_trainer *trainer, bool step);

/* The state's tensors: parameters in the order of their first calls, then slots, averages, carried values, numbers. */
DLC_API int dlc_trainer_count(const dlc_trainer *trainer);
DLC_API const char *dlc_trainer_name(const dlc_trainer *trainer, int index); /* NULL: no such index */
/* A copy of a tensor of the state; call (*tensor)->deleter(*tensor) when done. DLC_NOT_FOUND: no such name. */
DLC_API dlc_status dlc_trainer_tensor(dlc_trainer *trainer, const char *name, DLManagedTensorVersioned **tensor);
/* Replaces it by a tensor of the same type and shape in host memory, with any strides. */
DLC_API dlc_status dlc_trainer_set(dlc_trainer *trainer, const char *name, const DLTensor *tensor);

/* The state as a .safetensors file, which appears under its name when it is complete (dlc_file_write_safetensors). Carried values of
 * types that the format lacks are u8: the bytes of their elements. */
DLC_API dlc_status dlc_trainer_save(dlc_trainer *trainer, const char *path);
/* What a program without a trainer needs, as a .safetensors file: parameters, or under their names their averages where there are averages, and carried
 * values. dlc_trainer_load refuses it. */
DLC_API dlc_status dlc_trainer_save_weights(dlc_trainer *trainer, const char *path);
/* The state of a file of dlc_trainer_save by a trainer with the same parameters, carried values, optimiser and kinds of options. The file is
 * checked before anything is changed. DLC_PARSE_ERROR: damaged; DLC_INVALID_ARGUMENT: of another optimiser, or tensors that are missing, left over,
 * or of other shapes or types. */
DLC_API dlc_status dlc_trainer_load(dlc_trainer *trainer, const char *path);

/* A permutation of 0 ... count - 1 that depends on the seed and the epoch alone: the order in which an epoch takes rows of data. */
DLC_API void dlc_training_order(uint64_t seed, int64_t epoch, int64_t count, int64_t *order);

#ifdef __cplusplus
}
#endif

#endif
