/* Trainers as hosts see them: <dlc/train.h>; and the host's function, whose calls are answered here. Steps and evaluations are
 * runs of two programs (train_step.c builds them) on the tensors of the state. */
#include "jit/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what is known of the state ------------------------------------------------------------------------------------------------- */

int jit_train_find_state(const dlc_trainer *trainer, const char *name) {
    for (uint32_t i = 0; i < trainer->states.count; i++)
        if (strcmp(trainer->states.data[i].name, name) == 0) return (int)i;
    return -1;
}

train_state *jit_train_add_state(dlc_trainer *trainer, train_kind kind, const char *name, dlc_dtype dtype, int rank,
                                 const int64_t *shape) {
    if (jit_train_find_state(trainer, name) >= 0)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "dlc_trainer_create: the name %s is taken", name);
    if (strcmp(name, "__metadata__") == 0 || !lib_is_utf8(name))
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create: the state could not be saved: \"%s\" is no name of a tensor in a file", name);
    train_state state = {.name = lib_arena_string(&trainer->arena, name),
                         .kind = kind,
                         .dtype = dtype,
                         .rank = rank,
                         .parameter = -1,
                         .input = -1,
                         .output = -1,
                         .evaluated = -1};
    if (rank) memcpy(state.shape, shape, (size_t)rank * sizeof *shape);
    lib_vec_push(&trainer->arena, &trainer->states, state);
    return &trainer->states.data[trainer->states.count - 1];
}

void jit_train_check_graph(dlc_trainer *trainer, dlc_graph *handle, const char *what) {
    const dlc_status status = dlc_graph_status(handle);
    if (status != DLC_OK)
        lib_raise(trainer->arena.scope, status, "dlc_trainer_create: %s: %s", what, dlc_graph_message(handle));
}

/* ---- calls of the host's function --------------------------------------------------------------------------------------------- */

typedef struct request {
    dlc_value (*work)(dlc_training *training, const void *arguments);
    const void *arguments;
    dlc_value result;
} request;

static void perform(dlc_training *training, request *r) {
    lib_scope scope;
    training->trainer->arena.scope = &scope;
    if (LIB_ENTER(&scope))
        r->result = r->work(training, r->arguments);
    else
        training->error = scope.error;
}

/* Runs `work` in a scope of its own: the frames of the host's function lie between the trainer's and this one. */
static dlc_value in_scope(dlc_training *training, dlc_value (*work)(dlc_training *training, const void *arguments),
                          const void *arguments) {
    request r = {.work = work, .arguments = arguments};
    if (training->error.status != DLC_OK) return r.result;
    lib_scope *const outer = training->trainer->arena.scope;
    perform(training, &r);
    training->trainer->arena.scope = outer;
    return r.result;
}

static void check_shape(dlc_training *training, const char *call, const char *name, int rank, const void *shape) {
    if (!name || !name[0] || rank < 0 || rank > DLC_MAX_RANK || (rank && !shape))
        lib_raise(training->trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "%s: %s: a name, a rank of 0 to %d and as many dimensions are expected", call,
                  name && name[0] ? name : "(no name)", DLC_MAX_RANK);
}

typedef struct input_request {
    const char *name;
    dlc_dtype dtype;
    int rank;
    const dlc_dim *dim;
} input_request;

static bool same_dim(dlc_dim a, dlc_dim b) {
    return a.name && b.name ? strcmp(a.name, b.name) == 0 : !a.name && !b.name && a.value == b.value;
}

static dlc_value request_input(dlc_training *training, const void *arguments) {
    const input_request *r = arguments;
    dlc_trainer *trainer = training->trainer;
    train_program *program = training->program;
    check_shape(training, "dlc_training_input", r->name, r->rank, r->dim);
    for (uint32_t i = 0; i < program->inputs.count; i++) {
        const train_input *known = &program->inputs.data[i];
        if (strcmp(known->name, r->name) != 0) continue;
        bool same = known->dtype == r->dtype && known->rank == r->rank;
        for (int d = 0; same && d < r->rank; d++) same = same_dim(known->dim[d], r->dim[d]);
        if (!same)
            lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                      "dlc_training_input: %s was declared with another type or shape", r->name);
        return training->inputs.data[i];
    }
    if (training->pass == TRAIN_STEP)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_training_input: %s was not declared when the function was called before", r->name);
    train_input input = {.name = lib_arena_string(&trainer->arena, r->name),
                         .dtype = r->dtype,
                         .rank = r->rank,
                         .dim = LIB_NEW_ARRAY(&trainer->arena, dlc_dim, (size_t)r->rank)};
    for (int d = 0; d < r->rank; d++)
        input.dim[d] = (dlc_dim){r->dim[d].value, lib_arena_string(&trainer->arena, r->dim[d].name)};
    lib_vec_push(&trainer->arena, &program->inputs, input);
    lib_vec_push(&trainer->arena, &program->place, training->input_count++);
    const dlc_value value = dlc_input(training->graph, r->name, r->dtype, r->rank, input.dim);
    lib_vec_push(&trainer->arena, &training->inputs, value);
    return value;
}

dlc_graph *dlc_training_graph(dlc_training *training) {
    return training ? training->graph : NULL;
}

bool dlc_training_is_step(const dlc_training *training) {
    return training && training->pass != TRAIN_EVALUATE;
}

dlc_value dlc_training_input(dlc_training *training, const char *name, dlc_dtype dtype, int rank, const dlc_dim *dims) {
    if (!training) return (dlc_value){NULL, 0, 0};
    return in_scope(training, request_input, &(input_request){name, dtype, rank, dims});
}

typedef struct state_request {
    const char *call;
    train_kind kind;
    const char *name;
    dlc_dtype dtype;
    int rank;
    const int64_t *shape;
    const dlc_parameter_options *options;
} state_request;

bool jit_train_fits(const DLTensor *tensor, dlc_dtype dtype, int rank, const int64_t *shape) {
    const DLDataType type = lib_dtype_to_dlpack(dtype);
    bool same =
        tensor->ndim == rank && tensor->device.device_type == kDLCPU && memcmp(&tensor->dtype, &type, sizeof type) == 0;
    for (int d = 0; same && d < rank; d++) same = tensor->shape && tensor->shape[d] == shape[d];
    return same && lib_tensor_is_addressable(tensor) && (tensor->data || !lib_tensor_bytes(tensor));
}

train_wanted jit_train_wanted(dlc_dtype dtype, int rank, const int64_t *shape) {
    train_wanted w;
    int at = snprintf(w.text, sizeof w.text, "%s[", dlc_dtype_name(dtype));
    for (int d = 0; d < rank; d++)
        at += snprintf(w.text + at, sizeof w.text - (size_t)at, "%s%lld", d ? ", " : "", (long long)shape[d]);
    snprintf(w.text + at, sizeof w.text - (size_t)at, "] in host memory, with data and strides of whole bytes");
    return w;
}

static void check_initial(dlc_trainer *trainer, const state_request *r, const dlc_parameter_options *options) {
    const bool is_float = lib_dtype_is_float(r->dtype);
    const DLTensor *tensor = options->tensor;
    if (options->struct_size != sizeof *options)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "%s: options.struct_size is wrong (use DLC_PARAMETER_OPTIONS_INIT)", r->call);
    if ((unsigned)options->initial > DLC_INITIAL_UNIFORM || !isfinite(options->scale))
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "%s: %s: options.initial is %d, options.scale %g",
                  r->call, r->name, (int)options->initial, options->scale);
    if (!is_float && (options->initial != DLC_INITIAL_CONSTANT || options->scale != 0))
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "%s: %s is %s and begins with zeros or with options.tensor", r->call, r->name,
                  dlc_dtype_name(r->dtype));
    if (r->dtype == DLC_F8E8M0 && options->initial != DLC_INITIAL_CONSTANT)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "%s: %s: f8e8m0 has no negative random numbers", r->call,
                  r->name);
    const bool same = !tensor || jit_train_fits(tensor, r->dtype, r->rank, r->shape);
    if (!same)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "%s: %s: options.tensor is not %s", r->call, r->name,
                  jit_train_wanted(r->dtype, r->rank, r->shape).text);
}

/* The state's value in the graph of this pass. */
static dlc_value value_of(dlc_training *training, int number) {
    dlc_trainer *trainer = training->trainer;
    while (training->states.count < trainer->states.count)
        lib_vec_push(&trainer->arena, &training->states, ((dlc_value){NULL, 0, 0}));
    dlc_value *value = &training->states.data[number];
    train_state *state = &trainer->states.data[number];
    if (!value->graph) {
        dlc_dim dim[DLC_MAX_RANK];
        for (int d = 0; d < state->rank; d++) dim[d] = (dlc_dim){state->shape[d], NULL};
        *value = dlc_input(training->graph, state->name, state->dtype, state->rank, dim);
        if (training->pass == TRAIN_EVALUATE) state->evaluated = training->input_count;
        training->input_count++;
    }
    return *value;
}

static void check_dtype(const dlc_trainer *trainer, const state_request *r) {
    if ((unsigned)r->dtype >= DLC_DTYPE_COUNT || !lib_dtypes[r->dtype].usable)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "%s: %s: %d is no element type", r->call, r->name,
                  (int)r->dtype);
    if (r->kind == TRAIN_PARAMETER && r->dtype != DLC_F32 && r->dtype != DLC_F64)
        lib_raise(trainer->arena.scope, DLC_UNSUPPORTED,
                  "%s: %s is %s: parameters are f32 or f64 (options.precision narrows what is computed with them)",
                  r->call, r->name, dlc_dtype_name(r->dtype));
}

static dlc_value request_state(dlc_training *training, const void *arguments) {
    static const dlc_parameter_options defaults = DLC_PARAMETER_OPTIONS_INIT;
    const state_request *r = arguments;
    dlc_trainer *trainer = training->trainer;
    const dlc_parameter_options *options = r->options ? r->options : &defaults;
    check_shape(training, r->call, r->name, r->rank, r->shape);
    check_dtype(trainer, r);
    for (int d = 0; d < r->rank; d++)
        if (r->shape[d] < 0)
            lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "%s: %s: dimension %d is %lld", r->call, r->name, d,
                      (long long)r->shape[d]);
    int number = jit_train_find_state(trainer, r->name);
    if (number >= 0) {
        const train_state *known = &trainer->states.data[number];
        if (known->kind != r->kind || known->dtype != r->dtype || known->rank != r->rank ||
            (r->rank && memcmp(known->shape, r->shape, (size_t)r->rank * sizeof *r->shape) != 0))
            lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                      "%s: %s was declared with another type, shape or purpose", r->call, r->name);
        return value_of(training, number);
    }
    if (training->pass != TRAIN_LIST)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "%s: %s was not declared when the function was called for the step", r->call, r->name);
    check_initial(trainer, r, options);
    train_state *state = jit_train_add_state(trainer, r->kind, r->name, r->dtype, r->rank, r->shape);
    state->initial = *options;
    state->initial.tensor = NULL; /* the host's, copied now */
    if (options->tensor) {
        jit_train_new_tensor(trainer, state);
        lib_tensor_copy(&state->tensor->dl_tensor, options->tensor);
    }
    state->frozen = options->frozen;
    state->decays = options->decay ? options->decay > 0 : r->rank >= 2;
    return value_of(training, jit_train_find_state(trainer, r->name));
}

dlc_value dlc_training_parameter(dlc_training *training, const char *name, dlc_dtype dtype, int rank,
                                 const int64_t *shape, const dlc_parameter_options *options) {
    if (!training) return (dlc_value){NULL, 0, 0};
    return in_scope(training, request_state,
                    &(state_request){"dlc_training_parameter", TRAIN_PARAMETER, name, dtype, rank, shape, options});
}

dlc_value dlc_training_carried(dlc_training *training, const char *name, dlc_dtype dtype, int rank,
                               const int64_t *shape, const dlc_parameter_options *options) {
    if (!training) return (dlc_value){NULL, 0, 0};
    return in_scope(training, request_state,
                    &(state_request){"dlc_training_carried", TRAIN_CARRIED, name, dtype, rank, shape, options});
}

typedef struct result_request {
    const char *name;
    dlc_value value;
} result_request;

static dlc_value request_carry(dlc_training *training, const void *arguments) {
    const result_request *r = arguments;
    dlc_trainer *trainer = training->trainer;
    const int number = r->name ? jit_train_find_state(trainer, r->name) : -1;
    const train_state *state = number < 0 ? NULL : &trainer->states.data[number];
    if (!state || state->kind != TRAIN_CARRIED)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "dlc_training_carry: there is no carried value called %s",
                  r->name ? r->name : "NULL");
    bool same = !dlc_value_ok(r->value) ||
                (dlc_value_dtype(r->value) == state->dtype && dlc_value_rank(r->value) == state->rank);
    for (int d = 0; same && dlc_value_ok(r->value) && d < state->rank; d++)
        same = dlc_value_dim(r->value, d).value == state->shape[d];
    if (!same)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_training_carry: %s: the next value has another type or shape", r->name);
    while (training->next.count < trainer->states.count)
        lib_vec_push(&trainer->arena, &training->next, ((dlc_value){NULL, 0, 0}));
    training->next.data[number] = r->value;
    return r->value;
}

void dlc_training_carry(dlc_training *training, const char *name, dlc_value next) {
    if (dlc_training_is_step(training)) in_scope(training, request_carry, &(result_request){name, next});
}

static dlc_value request_output(dlc_training *training, const void *arguments) {
    const result_request *r = arguments;
    lib_arena *arena = &training->trainer->arena;
    if (training->pass != TRAIN_LIST)
        lib_vec_push(arena, &training->program->outputs, lib_arena_string(arena, r->name));
    lib_vec_push(arena, &training->outputs, r->value);
    return r->value;
}

void dlc_training_output(dlc_training *training, const char *name, dlc_value value) {
    if (training) in_scope(training, request_output, &(result_request){name, value});
}

dlc_value dlc_training_key(dlc_training *training) {
    return training ? training->key : (dlc_value){NULL, 0, 0};
}

static dlc_value request_steps(dlc_training *training, const void *arguments) {
    (void)arguments;
    return value_of(training, training->trainer->numbers.step);
}

dlc_value dlc_training_steps(dlc_training *training) {
    if (!training) return (dlc_value){NULL, 0, 0};
    return training->pass == TRAIN_EVALUATE ? in_scope(training, request_steps, NULL) : training->steps;
}

/* Not in a scope: the host's function may do anything. */
static dlc_status call_build(dlc_training *training, dlc_training_function *build, void *user, dlc_value *loss) {
    *loss = (dlc_value){NULL, 0, 0};
    const dlc_status status = build(user, training, loss);
    if (training->error.status != DLC_OK) return training->error.status;
    const dlc_status built = dlc_graph_status(training->graph);
    if (built != DLC_OK) return lib_fail(&training->error, built, "%s", dlc_graph_message(training->graph));
    if (status != DLC_OK) {
        const char *message = dlc_error_message(training->trainer->context);
        return lib_fail(&training->error, status, "the function failed%s%s", message[0] ? ": " : "", message);
    }
    return DLC_OK;
}

dlc_value jit_train_build(dlc_training *training, dlc_training_function *build, void *user) {
    static const char *const purpose[] = {"for the step", "for the step", "for evaluation"};
    lib_scope *scope = training->trainer->arena.scope;
    dlc_value loss;
    const dlc_status status = call_build(training, build, user, &loss);
    if (status != DLC_OK)
        lib_raise(scope, status, "dlc_trainer_create, %s: %s", purpose[training->pass], training->error.message);
    if (!loss.graph && training->pass == TRAIN_EVALUATE) return loss;
    if (!loss.graph)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "dlc_trainer_create: the function gives no loss for the step");
    if (dlc_value_ok(loss) && loss.graph != training->graph)
        lib_raise(scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create, %s: the loss is a value of another graph than dlc_training_graph",
                  purpose[training->pass]);
    bool one = dlc_value_ok(loss) && lib_dtype_is_float(dlc_value_dtype(loss));
    for (int d = 0; one && d < dlc_value_rank(loss); d++) {
        const dlc_dim dim = dlc_value_dim(loss, d);
        one = !dim.name && dim.value == 1;
    }
    if (!one)
        lib_raise(scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create, %s: the loss is %s of rank %d, expected one element of a float type",
                  purpose[training->pass], dlc_value_ok(loss) ? dlc_dtype_name(dlc_value_dtype(loss)) : "no value",
                  dlc_value_rank(loss));
    return dlc_value_rank(loss) ? dlc_reshape(loss, 0, NULL) : loss;
}

/* ---- create and destroy ---------------------------------------------------------------------------------------------------------- */

void jit_train_compile(dlc_trainer *trainer, train_program *program) {
    const dlc_status status = dlc_compile(trainer->context, trainer->graph, &trainer->compile, &program->program);
    if (status != DLC_OK)
        lib_raise(trainer->arena.scope, status, "dlc_trainer_create: %s", dlc_error_message(trainer->context));
    lib_arena *arena = &trainer->arena;
    program->in = LIB_NEW_ARRAY(arena, const DLTensor *, (size_t)dlc_program_input_count(program->program));
    program->out = LIB_NEW_ARRAY(arena, dlc_output_slot, (size_t)dlc_program_output_count(program->program));
}

static void check_options(dlc_trainer *trainer) {
    const dlc_trainer_options *options = &trainer->options;
    const struct {
        bool wrong;
        const char *what;
    } rules[] = {
        {options->setting_count < 0 || (options->setting_count && !options->settings),
         "setting_count is negative, or settings is NULL"},
        {!(options->clip_norm >= 0) || isinf(options->clip_norm), "clip_norm is negative or not finite"},
        {!(options->clip_value >= 0) || isinf(options->clip_value), "clip_value is negative or not finite"},
        {!(options->loss_scale >= 0) || isinf(options->loss_scale), "loss_scale is negative or not finite"},
        {!(options->average_decay >= 0 && options->average_decay < 1), "average_decay is not in [0, 1)"},
        {options->micro_batches < 0, "micro_batches is negative"},
        {options->precision && options->precision != DLC_BF16 && options->precision != DLC_F16,
         "precision is neither DLC_BF16 nor DLC_F16, nor 0"},
        {(unsigned)options->on_not_finite > DLC_NOT_FINITE_SKIP, "on_not_finite is no dlc_not_finite"},
        {options->dynamic_loss_scale && options->on_not_finite != DLC_NOT_FINITE_SKIP,
         "dynamic_loss_scale needs on_not_finite = DLC_NOT_FINITE_SKIP: a step that overflows must be skipped"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wrong)
            lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT, "dlc_trainer_create: options.%s", rules[i].what);
}

static void release(dlc_trainer *trainer) {
    for (uint32_t i = 0; i < trainer->states.count; i++) {
        DLManagedTensorVersioned *tensor = trainer->states.data[i].tensor;
        if (tensor) tensor->deleter(tensor);
    }
    dlc_graph_destroy(trainer->graph);
    dlc_program_destroy(trainer->step.program);
    dlc_program_destroy(trainer->evaluation.program);
    dlc_context *context = trainer->context;
    lib_arena_free(&trainer->arena);
    lib_release(&context->allocator, trainer, sizeof *trainer, _Alignof(dlc_trainer));
    jit_context_release(context);
}

void dlc_trainer_destroy(dlc_trainer *trainer) {
    lib_call call;
    if (!trainer) return;
    dlc_context *context = trainer->context;
    if (!graph_call_to_destroy(context, &call)) return;
    release(trainer);
    graph_call_destroyed(context, &call);
}

static dlc_status fail(dlc_context *context, dlc_status status, const char *message) {
    lib_error error;
    lib_fail(&error, status, "%s", message);
    return jit_fail(context, &error);
}

static void make(dlc_trainer *trainer, dlc_training_function *build, void *user) {
    check_options(trainer);
    jit_train_read_optimizer(trainer);
    jit_train_build_step(trainer, build, user);
    jit_train_build_evaluation(trainer, build, user);
    jit_train_begin_state(trainer);
    dlc_graph_destroy(trainer->graph);
    trainer->graph = NULL;
}

dlc_status dlc_trainer_create(dlc_context *context, dlc_training_function *build, void *user,
                              const dlc_trainer_options *options, dlc_trainer **out) {
    static const dlc_trainer_options default_options = DLC_TRAINER_OPTIONS_INIT;
    static const dlc_compile_options default_compile = DLC_COMPILE_OPTIONS_INIT;
    if (out) *out = NULL;
    if (!context || !build || !out)
        return fail(context, DLC_INVALID_ARGUMENT,
                    "dlc_trainer_create: the context, the function or the place for the trainer is NULL");
    if (options && options->struct_size != sizeof *options)
        return fail(context, DLC_INVALID_ARGUMENT,
                    "dlc_trainer_create: options.struct_size is wrong (use DLC_TRAINER_OPTIONS_INIT)");
    GRAPH_CALL(context, LIB_STACK_CALL);
    dlc_trainer *trainer = lib_allocate_zeroed(&context->allocator, sizeof *trainer, _Alignof(dlc_trainer));
    if (!trainer) return fail(context, DLC_OUT_OF_MEMORY, "dlc_trainer_create: memory was refused");
    trainer->context = context;
    jit_context_keep(context);
    trainer->options = options ? *options : default_options;
    trainer->compile = options && options->compile ? *options->compile : default_compile;
    trainer->options.compile = NULL;
    if (!trainer->options.micro_batches) trainer->options.micro_batches = 1;
    lib_arena_init(&trainer->arena, &context->allocator, &trainer->scope);
    if (LIB_ENTER(&trainer->scope)) {
        make(trainer, build, user);
        *out = trainer;
        return DLC_OK;
    }
    const lib_error error = trainer->scope.error;
    release(trainer);
    return jit_fail(context, &error);
}

/* ---- steps and evaluations ------------------------------------------------------------------------------------------------------ */

static dlc_status refuse(dlc_trainer *trainer, const char *call, const char *what) {
    lib_error error;
    lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: %s", call, what);
    return jit_fail(trainer ? trainer->context : NULL, &error);
}

dlc_status jit_train_check_idle(dlc_trainer *trainer, const char *call) {
    if (!trainer->at_work) return DLC_OK;
    return refuse(trainer, call, "called by a function that a step or an evaluation of this trainer calls");
}

static dlc_status check_run(dlc_trainer *trainer, const char *call, const train_program *program,
                            const dlc_run_options *options, const DLTensor *const *batch, int count,
                            const dlc_output_slot *outputs, int output_count) {
    lib_error error;
    LIB_TRY(jit_train_check_idle(trainer, call));
    if (trainer->lost)
        return refuse(
            trainer, call,
            "the state was lost in a call that failed after it had begun to write it: dlc_trainer_load a checkpoint");
    if (options && options->struct_size != sizeof *options)
        return refuse(trainer, call, "options.struct_size is wrong (use DLC_RUN_OPTIONS_INIT)");
    if (options && options->event) return refuse(trainer, call, "options.event must be NULL");
    if (count != (int)program->inputs.count || (count && !batch)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: %d tensors were given, the batch has %u", call, batch ? count : 0,
                 program->inputs.count);
        return jit_fail(trainer->context, &error);
    }
    if (output_count != 0 && (output_count != (int)program->outputs.count || !outputs)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: %d slots for outputs were given, there are %u outputs", call,
                 outputs ? output_count : 0, program->outputs.count);
        return jit_fail(trainer->context, &error);
    }
    return DLC_OK;
}

/* The tensor [k*n, ...] as [k, n, ...]. */
static dlc_status cut(dlc_trainer *trainer, int input, const DLTensor *whole) {
    train_program *program = &trainer->step;
    const int64_t parts = trainer->options.micro_batches;
    DLTensor *part = &program->parts[input];
    int64_t *shape = program->part_shape[input], *strides = shape + DLC_MAX_RANK;
    lib_error error;
    if (!whole || whole->ndim != program->inputs.data[input].rank || !whole->shape || whole->shape[0] % parts != 0) {
        lib_fail(&error, DLC_INVALID_ARGUMENT,
                 "dlc_trainer_step: %s: rank %d and a dimension 0 that is a multiple of %lld (micro_batches) are "
                 "expected, given are rank %d and dimension 0 %lld",
                 program->inputs.data[input].name, program->inputs.data[input].rank, (long long)parts,
                 whole ? whole->ndim : 0, (long long)(whole && whole->ndim > 0 && whole->shape ? whole->shape[0] : 0));
        return jit_fail(trainer->context, &error);
    }
    *part = *whole;
    part->ndim = whole->ndim + 1;
    part->shape = shape;
    shape[0] = parts;
    shape[1] = whole->shape[0] / parts;
    for (int d = 1; d < whole->ndim; d++) shape[d + 1] = whole->shape[d];
    if (whole->strides) {
        part->strides = strides;
        strides[0] = whole->strides[0] * shape[1];
        for (int d = 0; d < whole->ndim; d++) strides[d + 1] = whole->strides[d];
    }
    program->in[program->place.data[input]] = part;
    return DLC_OK;
}

static void drop(DLManagedTensorVersioned **tensor) {
    if (*tensor) (*tensor)->deleter(*tensor);
    *tensor = NULL;
}

/* Of what the library allocated, in host memory: a run allocates where its inputs are, and the state may be on the device though no tensor of
 * the batch is there. */
static dlc_status bring_outputs(dlc_trainer *trainer, const char *call, train_program *program,
                                const DLTensor *const *batch, int count) {
    for (int i = 0; i < count; i++)
        if (jit_is_on_device(trainer->context, batch[i])) return DLC_OK;
    for (uint32_t o = 0; o < program->outputs.count; o++) {
        dlc_output_slot *slot = &program->out[program->first_output + (int)o];
        DLManagedTensorVersioned *there = slot->managed;
        if (!there || !jit_is_on_device(trainer->context, &there->dl_tensor)) continue;
        const dlc_status status = jit_train_read(trainer, call, &there->dl_tensor, &slot->managed);
        drop(&there);
        if (status != DLC_OK) return status;
    }
    return DLC_OK;
}

/* Runs the program; its inputs and the slots of its own outputs are set. */
static dlc_status run(dlc_trainer *trainer, const char *call, train_program *program, const dlc_run_options *options,
                      const DLTensor *const *batch, int count, dlc_output_slot *outputs, int output_count) {
    for (int o = 0; o < (int)program->outputs.count; o++)
        program->out[program->first_output + o].tensor = output_count ? outputs[o].tensor : NULL;
    trainer->at_work = true;
    dlc_status status = dlc_run(program->program, options, program->in, dlc_program_input_count(program->program),
                                program->out, dlc_program_output_count(program->program));
    trainer->at_work = false;
    if (status == DLC_OK && output_count) status = bring_outputs(trainer, call, program, batch, count);
    for (int o = 0; o < (int)program->outputs.count; o++) {
        dlc_output_slot *slot = &program->out[program->first_output + o];
        if (status != DLC_OK || !output_count) drop(&slot->managed);
        if (output_count) outputs[o].managed = slot->managed;
        slot->managed = NULL;
    }
    return status;
}

/* A tensor of rank 0 for a number. */
static DLTensor number_tensor(double *number) {
    return (DLTensor){.data = number, .device = {kDLCPU, 0}, .dtype = {kDLFloat, 64, 1}};
}

static int64_t integer_of(const dlc_trainer *trainer, int state) {
    return *(const int64_t *)trainer->states.data[state].tensor->dl_tensor.data;
}

static void fill_report(const dlc_trainer *trainer, const double *numbers, dlc_training_report *report) {
    report->loss = numbers[0];
    report->rate = numbers[1];
    report->norm = trainer->options.clip_norm > 0 ? numbers[2] : 0;
    report->loss_scale = trainer->numbers.scale < 0
                             ? (trainer->options.loss_scale > 0 ? trainer->options.loss_scale : 1)
                             : *(const float *)trainer->states.data[trainer->numbers.scale].tensor->dl_tensor.data;
    report->step = integer_of(trainer, trainer->numbers.step);
    report->skipped = integer_of(trainer, trainer->numbers.skipped);
}

static dlc_status run_step(dlc_trainer *trainer, const dlc_run_options *options, const DLTensor *const *batch,
                           int count, dlc_output_slot *outputs, int output_count, double numbers[3]) {
    static const dlc_run_options defaults = DLC_RUN_OPTIONS_INIT;
    train_program *program = &trainer->step;
    DLTensor number[3];
    dlc_run_options how = options ? *options : defaults;
    bool begun = false;
    how.begun = &begun;
    for (int i = 0; i < count; i++) {
        if (trainer->options.micro_batches > 1 && program->inputs.data[i].rank)
            LIB_TRY(cut(trainer, i, batch[i]));
        else
            program->in[program->place.data[i]] = batch[i];
    }
    for (int i = 0; i < program->first_output; i++) {
        number[i] = number_tensor(&numbers[i]);
        program->out[i].tensor = &number[i];
    }
    for (uint32_t s = 0; s < trainer->states.count; s++) {
        train_state *state = &trainer->states.data[s];
        if (state->input >= 0) program->in[state->input] = &state->tensor->dl_tensor;
        if (state->output >= 0) program->out[state->output].tensor = &state->tensor->dl_tensor;
    }
    const dlc_status status = run(trainer, "dlc_trainer_step", program, &how, batch, count, outputs, output_count);
    trainer->lost = status != DLC_OK && begun;
    if (options && options->begun) *options->begun = begun;
    return status;
}

dlc_status dlc_trainer_step(dlc_trainer *trainer, const dlc_run_options *options, const DLTensor *const *batch,
                            int count, dlc_training_report *report, dlc_output_slot *outputs, int output_count) {
    double numbers[3] = {0};
    jit_not_begun(options);
    if (!trainer) return refuse(NULL, "dlc_trainer_step", "the trainer is NULL");
    if (report && report->struct_size != sizeof *report)
        return refuse(trainer, "dlc_trainer_step", "report->struct_size is wrong (use DLC_TRAINING_REPORT_INIT)");
    LIB_TRY(check_run(trainer, "dlc_trainer_step", &trainer->step, options, batch, count, outputs, output_count));
    const dlc_status status = run_step(trainer, options, batch, count, outputs, output_count, numbers);
    if (status != DLC_OK && trainer->lost) {
        lib_error error;
        lib_fail(&error, status, "dlc_trainer_step: the state is lost, dlc_trainer_load a checkpoint: %s",
                 dlc_error_message(trainer->context));
        return jit_fail(trainer->context, &error);
    }
    if (status == DLC_OK && report) fill_report(trainer, numbers, report);
    return status;
}

dlc_status dlc_trainer_evaluate(dlc_trainer *trainer, const dlc_run_options *options, const DLTensor *const *batch,
                                int count, double *loss, dlc_output_slot *outputs, int output_count) {
    double number = NAN;
    jit_not_begun(options);
    if (!trainer) return refuse(NULL, "dlc_trainer_evaluate", "the trainer is NULL");
    train_program *program = &trainer->evaluation;
    if (!program->program)
        return refuse(trainer, "dlc_trainer_evaluate", "the function gives neither a loss nor outputs for evaluation");
    LIB_TRY(check_run(trainer, "dlc_trainer_evaluate", program, options, batch, count, outputs, output_count));
    DLTensor tensor = number_tensor(&number);
    for (int i = 0; i < count; i++) program->in[program->place.data[i]] = batch[i];
    if (program->first_output) program->out[0].tensor = &tensor;
    for (uint32_t s = 0; s < trainer->states.count; s++) {
        const train_state *state = &trainer->states.data[s];
        if (state->evaluated >= 0) program->in[state->evaluated] = &state->tensor->dl_tensor;
    }
    const dlc_status status =
        run(trainer, "dlc_trainer_evaluate", program, options, batch, count, outputs, output_count);
    if (status == DLC_OK && loss) *loss = number;
    return status;
}

dlc_program *dlc_trainer_program(dlc_trainer *trainer, bool step) {
    return !trainer ? NULL : step ? trainer->step.program : trainer->evaluation.program;
}
