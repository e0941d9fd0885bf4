/* The programs of a trainer. A step: the host's function builds the loss; gradients of all trained parameters; their limits; the optimiser's update
 * of each parameter; outputs: loss, rate, norm, the host's, the state's next values, each donated its tensor. With micro-batches the loss and its
 * gradients are built in the body of a scan over the parts of the batch, whose carries are the sums of gradients. */
#include "jit/train.h"

#include <string.h>

enum { GOOD_STEPS = 2000 };
static const double first_scale = 65536; /* Micikevicius et al. 2018 */

/* What the loss and its gradients give to the update, in the graph of the step. */
typedef struct found {
    /* rank 0; by state: gradients of trained parameters, next carried values */
    dlc_value loss, *gradient, *next, *output;
} found;

/* The step as it is built. */
typedef struct builder {
    dlc_trainer *trainer;
    dlc_training training;
    dlc_graph *graph;
    /* by state: its value now, and in the next step */
    dlc_value *now, *next;
    /* number of inputs and outputs of the graph */
    int inputs, outputs;
} builder;

static const dlc_value none = {NULL, 0, 0};

static bool is_trained(const train_state *state) {
    return state->kind == TRAIN_PARAMETER && !state->frozen;
}

/* ---- small graphs ---------------------------------------------------------------------------------------------------------------- */

static dlc_value f64(dlc_graph *handle, double number) {
    return dlc_scalar(handle, DLC_F64, number);
}
static dlc_value i64(dlc_graph *handle, int64_t number) {
    return dlc_scalar_i64(handle, DLC_I64, number);
}

/* The value times a number of rank 0, in the value's type. */
static dlc_value scaled(dlc_value value, dlc_value number) {
    return dlc_mul(value, dlc_cast(number, dlc_value_dtype(value)));
}

/* Different for all steps and parts, whether steps were skipped or not. */
static dlc_value key_of(dlc_graph *handle, dlc_value seed, dlc_value steps, dlc_value skipped, int parts) {
    const dlc_value tried = dlc_mul(dlc_add(steps, skipped), i64(handle, parts));
    return dlc_add(dlc_mul(seed, i64(handle, (int64_t)0x9E3779B97F4A7C15)), tried);
}

/* ---- loss and gradients ---------------------------------------------------------------------------------------------------------- */

/* Computes the loss, if there is one, the host's outputs and the next carried values in options.precision. */
static dlc_value in_precision(dlc_training *training, dlc_value loss) {
    dlc_trainer *trainer = training->trainer;
    lib_vec(dlc_value *) places = {0};
    if (!trainer->options.precision) return loss;
    lib_vec_push(&trainer->arena, &places, &loss);
    for (uint32_t o = 0; o < training->outputs.count; o++)
        lib_vec_push(&trainer->arena, &places, &training->outputs.data[o]);
    for (uint32_t s = 0; s < training->next.count; s++) lib_vec_push(&trainer->arena, &places, &training->next.data[s]);
    dlc_value *wide = LIB_NEW_ARRAY(&trainer->arena, dlc_value, places.count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < places.count; i++) {
        if (!dlc_value_ok(*places.data[i]) || places.data[i]->graph != training->graph) continue;
        places.data[count] = places.data[i];
        wide[count++] = *places.data[i];
    }
    dlc_mixed_precision((int)count, wide, trainer->options.precision, wide);
    for (uint32_t i = 0; i < count; i++) *places.data[i] = wide[i];
    return loss;
}

/* Calls the host's function in the training's graph. scale: of rank 0; poison: none. */
static found differentiate(builder *b, dlc_training_function *build, void *user, dlc_value scale) {
    dlc_trainer *trainer = b->trainer;
    dlc_training *training = &b->training;
    const uint32_t count = trainer->states.count;
    lib_arena *arena = &trainer->arena;
    dlc_value *wrt = LIB_NEW_ARRAY(arena, dlc_value, count), *gradients = LIB_NEW_ARRAY(arena, dlc_value, count);
    found f = {.gradient = LIB_NEW_ARRAY(arena, dlc_value, count), .next = LIB_NEW_ARRAY(arena, dlc_value, count)};
    int trained = 0, at = 0;
    f.loss = in_precision(training, jit_train_build(training, build, user));
    f.output = training->outputs.data;
    for (uint32_t s = 0; s < count; s++)
        if (is_trained(&trainer->states.data[s])) wrt[trained++] = training->states.data[s];
    dlc_gradient(scale.graph ? scaled(f.loss, scale) : f.loss, trained, wrt, gradients);
    for (uint32_t s = 0; s < count; s++) {
        const train_state *state = &trainer->states.data[s];
        if (is_trained(state)) {
            const dlc_value g = gradients[at++];
            if (graph_handle_is_zero(g))
                lib_raise(
                    arena->scope, DLC_INVALID_ARGUMENT,
                    "dlc_trainer_create: the loss does not depend on parameter %s, or not through numbers (integers, "
                    "rounding and dlc_stop_gradient have no derivative): set `frozen`, or use it",
                    state->name);
            f.gradient[s] = scale.graph ? dlc_div(g, dlc_cast(scale, state->dtype)) : g;
        } else if (state->kind == TRAIN_CARRIED) {
            if (s >= training->next.count || !training->next.data[s].graph)
                lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                          "dlc_trainer_create: dlc_training_carry gives no next value of %s", state->name);
            f.next[s] = training->next.data[s];
        }
    }
    jit_train_check_graph(trainer, training->graph, "gradients");
    return f;
}

static dlc_value number_now(const builder *b, int number) {
    return b->now[number];
}

static dlc_value scale_now(const builder *b) {
    const dlc_trainer *trainer = b->trainer;
    if (trainer->numbers.scale >= 0) return number_now(b, trainer->numbers.scale);
    return trainer->options.loss_scale > 0 ? dlc_scalar(b->graph, DLC_F32, trainer->options.loss_scale) : none;
}

/* The whole batch at once. */
static found whole_batch(builder *b, dlc_training_function *build, void *user) {
    dlc_trainer *trainer = b->trainer;
    const train_numbers *numbers = &trainer->numbers;
    train_program *step = &trainer->step;
    b->training.graph = b->graph;
    for (uint32_t i = 0; i < step->inputs.count; i++) {
        const train_input *input = &step->inputs.data[i];
        step->place.data[i] = b->inputs++;
        lib_vec_push(&trainer->arena, &b->training.inputs,
                     dlc_input(b->graph, input->name, input->dtype, input->rank, input->dim));
    }
    for (uint32_t s = 0; s < trainer->states.count; s++) lib_vec_push(&trainer->arena, &b->training.states, b->now[s]);
    b->training.steps = number_now(b, numbers->step);
    b->training.key =
        key_of(b->graph, number_now(b, numbers->seed), b->training.steps, number_now(b, numbers->skipped), 1);
    return differentiate(b, build, user, scale_now(b));
}

/* ---- a batch in parts ----------------------------------------------------------------------------------------------------------- */

/* Operands of the scan over the parts of a batch, in its order: carries, sequences, then values that are the same in all iterations. */
typedef lib_vec(dlc_value) operands;

static dlc_value zeros(dlc_graph *handle, const train_state *state) {
    dlc_dim dim[DLC_MAX_RANK];
    for (int d = 0; d < state->rank; d++) dim[d] = (dlc_dim){state->shape[d], NULL};
    return dlc_broadcast(dlc_scalar(handle, state->dtype, 0), state->rank, dim, 0, NULL);
}

/* Declares the body's input like `outer`, an operand of the scan. */
static dlc_value add_operand(builder *b, operands *to, dlc_value outer, const char *name) {
    dlc_dim dim[DLC_MAX_RANK];
    for (int d = 0; d < dlc_value_rank(outer); d++) dim[d] = dlc_value_dim(outer, d);
    lib_vec_push(&b->trainer->arena, to, outer);
    return dlc_input(b->training.graph, name, dlc_value_dtype(outer), dlc_value_rank(outer), dim);
}

static void add_batch(builder *b, operands *to, bool sequences) {
    dlc_trainer *trainer = b->trainer;
    train_program *step = &trainer->step;
    for (uint32_t i = 0; i < step->inputs.count; i++) {
        const train_input *input = &step->inputs.data[i];
        if ((input->rank > 0) != sequences) continue;
        dlc_dim dim[DLC_MAX_RANK + 1] = {{trainer->options.micro_batches, NULL}};
        if (input->rank) memcpy(dim + 1, input->dim, (size_t)input->rank * sizeof *dim);
        step->place.data[i] = b->inputs++;
        lib_vec_push(&trainer->arena, to, dlc_input(b->graph, input->name, input->dtype, input->rank + sequences, dim));
        b->training.inputs.data[i] = dlc_input(b->training.graph, input->name, input->dtype, input->rank, input->dim);
    }
}

/* Makes room for the inputs of a part. Those of the batch have one axis more: raises if one has the
 * highest rank already. */
static void reserve_inputs(builder *b) {
    const train_program *step = &b->trainer->step;
    lib_arena *arena = &b->trainer->arena;
    for (uint32_t i = 0; i < step->inputs.count; i++) {
        if (step->inputs.data[i].rank == DLC_MAX_RANK)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                      "dlc_trainer_create: micro_batches: %s has the highest rank already", step->inputs.data[i].name);
        lib_vec_push(arena, &b->training.inputs, none);
    }
}

/* The mean of the parts' losses and gradients; carried values pass through the parts in order. */
static found batch_in_parts(builder *b, dlc_training_function *build, void *user) {
    dlc_trainer *trainer = b->trainer;
    lib_arena *arena = &trainer->arena;
    dlc_training *training = &b->training;
    const train_numbers *numbers = &trainer->numbers;
    const int parts = trainer->options.micro_batches;
    const uint32_t count = trainer->states.count;
    operands x = {0};
    dlc_value *sum = LIB_NEW_ARRAY(arena, dlc_value, count);
    reserve_inputs(b);
    for (uint32_t s = 0; s < count; s++) lib_vec_push(arena, &training->states, none);

    training->graph = dlc_subgraph(b->graph);
    const dlc_value index = add_operand(b, &x, i64(b->graph, 0), "trainer.part"),
                    loss = add_operand(b, &x, f64(b->graph, 0), "trainer.loss");
    for (uint32_t s = 0; s < count; s++) {
        const train_state *state = &trainer->states.data[s];
        if (is_trained(state))
            sum[s] = add_operand(b, &x, zeros(b->graph, state), lib_arena_format(arena, "gradient.%s", state->name));
        if (state->kind == TRAIN_CARRIED) training->states.data[s] = add_operand(b, &x, b->now[s], state->name);
    }
    const uint32_t carries = x.count;
    add_batch(b, &x, true);
    const uint32_t sequences = x.count - carries;
    add_batch(b, &x, false);
    for (uint32_t s = 0; s < count; s++)
        if (trainer->states.data[s].kind == TRAIN_PARAMETER)
            training->states.data[s] = add_operand(b, &x, b->now[s], trainer->states.data[s].name);
    training->steps = add_operand(b, &x, number_now(b, numbers->step), "trainer.steps");
    const dlc_value key = key_of(b->graph, number_now(b, numbers->seed), number_now(b, numbers->step),
                                 number_now(b, numbers->skipped), parts);
    training->key = dlc_add(add_operand(b, &x, key, "trainer.key"), index);
    dlc_value scale = scale_now(b);
    if (scale.graph) scale = add_operand(b, &x, scale, "trainer.scale");

    const found part = differentiate(b, build, user, scale);
    dlc_graph *body = training->graph;
    const dlc_value share = f64(body, 1.0 / parts);
    dlc_output(body, NULL, dlc_add(index, i64(body, 1)));
    dlc_output(body, NULL, dlc_add(loss, dlc_mul(dlc_cast(part.loss, DLC_F64), share)));
    for (uint32_t s = 0; s < count; s++) {
        if (sum[s].graph) dlc_output(body, NULL, dlc_add(sum[s], scaled(part.gradient[s], share)));
        if (part.next[s].graph) dlc_output(body, NULL, part.next[s]);
    }
    for (uint32_t o = 0; o < training->outputs.count; o++) dlc_output(body, NULL, part.output[o]);

    const uint32_t results = carries + training->outputs.count;
    dlc_value *result = LIB_NEW_ARRAY(arena, dlc_value, results);
    dlc_scan_options options = DLC_SCAN_OPTIONS_INIT;
    const dlc_dim length = {parts, NULL};
    options.length_count = sequences ? 0 : 1;
    options.length = &length;
    dlc_scan_with(b->graph, (int)x.count, x.data, body, carries, sequences, &options, (int)results, result);
    jit_train_check_graph(trainer, b->graph, "the loop over micro_batches");

    found f = {.loss = result[1],
               .gradient = LIB_NEW_ARRAY(arena, dlc_value, count),
               .next = LIB_NEW_ARRAY(arena, dlc_value, count),
               .output = result + carries};
    uint32_t at = 2;
    for (uint32_t s = 0; s < count; s++) {
        if (sum[s].graph) f.gradient[s] = result[at++];
        if (part.next[s].graph) f.next[s] = result[at++];
    }
    return f;
}

/* ---- update ---------------------------------------------------------------------------------------------------------------------- */

/* Whether the loss, and with DLC_NOT_FINITE_SKIP each gradient, is finite. */
static dlc_value all_finite(const builder *b, const found *f) {
    dlc_value good = dlc_is_finite(f->loss);
    for (uint32_t s = 0; b->trainer->options.on_not_finite == DLC_NOT_FINITE_SKIP && s < b->trainer->states.count; s++)
        if (f->gradient[s].graph) good = dlc_and(good, dlc_reduce_and(dlc_is_finite(f->gradient[s]), 0, NULL));
    return good;
}

/* Limits the gradients; returns the norm of all together, or poison if it is not limited. */
static dlc_value clip(builder *b, found *f) {
    const dlc_trainer_options *options = &b->trainer->options;
    const uint32_t count = b->trainer->states.count;
    dlc_value squares = none;
    for (uint32_t s = 0; s < count; s++) {
        dlc_value *g = &f->gradient[s];
        if (!g->graph) continue;
        const dlc_dtype dtype = b->trainer->states.data[s].dtype;
        if (options->clip_value > 0)
            *g = dlc_clamp(dlc_scalar(b->graph, dtype, -options->clip_value), *g,
                           dlc_scalar(b->graph, dtype, options->clip_value));
        if (options->clip_norm > 0) {
            const dlc_value sum = dlc_cast(dlc_reduce_sum(dlc_mul(*g, *g), 0, NULL), DLC_F64);
            squares = squares.graph ? dlc_add(squares, sum) : sum;
        }
    }
    if (!squares.graph) return options->clip_norm > 0 ? f64(b->graph, 0) : none;
    const dlc_value norm = dlc_sqrt(squares), limit = f64(b->graph, options->clip_norm);
    const dlc_value factor = dlc_div(limit, dlc_max(norm, limit));
    for (uint32_t s = 0; s < count; s++)
        if (f->gradient[s].graph) f->gradient[s] = scaled(f->gradient[s], factor);
    return norm;
}

/* Steps, skipped steps and the scale of the loss. */
static void update_numbers(builder *b, dlc_value good) {
    const train_numbers *numbers = &b->trainer->numbers;
    dlc_graph *g = b->graph;
    const bool skips = b->trainer->options.on_not_finite == DLC_NOT_FINITE_SKIP;
    const dlc_value one = i64(g, 1), steps = number_now(b, numbers->step), skipped = number_now(b, numbers->skipped);
    b->next[numbers->step] = skips ? dlc_add(steps, dlc_cast(good, DLC_I64)) : dlc_add(steps, one);
    b->next[numbers->skipped] = dlc_add(skipped, dlc_sub(one, dlc_cast(good, DLC_I64)));
    if (numbers->scale < 0) return;
    const dlc_value scale = number_now(b, numbers->scale), row = dlc_add(number_now(b, numbers->good), one);
    const dlc_value due = dlc_ge(row, i64(g, GOOD_STEPS)), two = dlc_scalar(g, DLC_F32, 2);
    const dlc_value least = dlc_scalar(g, DLC_F32, 1), most = dlc_scalar(g, DLC_F32, 0x1p100);
    const dlc_value grown = dlc_select(due, dlc_min(dlc_mul(scale, two), most), scale);
    b->next[numbers->scale] = dlc_select(good, grown, dlc_max(dlc_div(scale, two), least));
    b->next[numbers->good] = dlc_select(dlc_and(good, dlc_lt(row, i64(g, GOOD_STEPS))), row, i64(g, 0));
}

/* The parameter, its slots and its average. */
static void update_parameter(builder *b, uint32_t p, dlc_value gradient, dlc_value rate, dlc_value step) {
    dlc_trainer *trainer = b->trainer;
    const uint32_t slots = trainer->slots.count;
    dlc_value *value = LIB_NEW_ARRAY(&trainer->arena, dlc_value, 1 + slots),
              *next = LIB_NEW_ARRAY(&trainer->arena, dlc_value, 1 + slots);
    uint32_t slot = 0, average = 0;
    value[0] = b->now[p];
    for (uint32_t s = 0; s < trainer->states.count; s++) {
        if (trainer->states.data[s].parameter != (int)p) continue;
        if (trainer->states.data[s].kind == TRAIN_SLOT) value[1 + slot++] = b->now[s];
        if (trainer->states.data[s].kind == TRAIN_AVERAGE) average = s;
    }
    jit_train_update(trainer, b->graph, &trainer->states.data[p], value, gradient, rate, step, next);
    b->next[p] = next[0];
    slot = 0;
    for (uint32_t s = 0; s < trainer->states.count; s++)
        if (trainer->states.data[s].parameter == (int)p && trainer->states.data[s].kind == TRAIN_SLOT)
            b->next[s] = next[1 + slot++];
    if (!average) return;
    const double decay = trainer->options.average_decay;
    b->next[average] =
        dlc_add(scaled(b->now[average], f64(b->graph, decay)), scaled(next[0], f64(b->graph, 1 - decay)));
}

static void add_output(builder *b, const char *name, dlc_value value) {
    dlc_output(b->graph, name, value);
    b->outputs++;
}

static void update(builder *b, found *f) {
    dlc_trainer *trainer = b->trainer;
    const uint32_t count = trainer->states.count;
    const dlc_value step = dlc_cast(dlc_add(number_now(b, trainer->numbers.step), i64(b->graph, 1)), DLC_F64);
    const dlc_value rate = jit_train_rate(trainer, b->graph, step), good = all_finite(b, f), norm = clip(b, f);
    for (uint32_t s = 0; s < count; s++) {
        if (f->gradient[s].graph) update_parameter(b, s, f->gradient[s], rate, step);
        if (f->next[s].graph) b->next[s] = f->next[s];
    }
    if (trainer->options.on_not_finite == DLC_NOT_FINITE_SKIP)
        for (uint32_t s = 0; s < count; s++)
            if (b->next[s].graph) b->next[s] = dlc_select(good, b->next[s], b->now[s]);
    update_numbers(b, good);

    add_output(b, "loss", dlc_cast(f->loss, DLC_F64));
    add_output(b, "rate", rate);
    if (norm.graph) add_output(b, "norm", norm);
    trainer->step.first_output = b->outputs;
    for (uint32_t o = 0; o < trainer->step.outputs.count; o++)
        add_output(b, trainer->step.outputs.data[o], f->output[o]);
    for (uint32_t s = 0; s < count; s++)
        if (b->next[s].graph) {
            trainer->states.data[s].output = b->outputs;
            add_output(b, NULL, b->next[s]);
        }
}

/* ---- the programs ----------------------------------------------------------------------------------------------------------------- */

/* What there is, by a call of the function in a graph that is thrown away. */
static void list(dlc_trainer *trainer, dlc_graph *handle, dlc_training_function *build, void *user) {
    dlc_training training = {.trainer = trainer,
                             .pass = TRAIN_LIST,
                             .graph = handle,
                             .program = &trainer->step,
                             .steps = i64(handle, 0),
                             .key = i64(handle, 0)};
    jit_train_build(&training, build, user);
}

static int add_number(dlc_trainer *trainer, const char *name, dlc_dtype dtype) {
    jit_train_add_state(trainer, TRAIN_NUMBER, name, dtype, 0, NULL);
    return (int)trainer->states.count - 1;
}

static void add_companion(dlc_trainer *trainer, train_kind kind, const char *prefix, uint32_t p) {
    const train_state of = trainer->states.data[p]; /* a copy: the list grows */
    const char *name = lib_arena_format(&trainer->arena, "%s.%s", prefix, of.name);
    jit_train_add_state(trainer, kind, name, of.dtype, of.rank, of.shape)->parameter = (int)p;
}

/* Adds to the parameters and carried values what the trainer itself keeps. */
static void add_states(dlc_trainer *trainer) {
    const uint32_t listed = trainer->states.count;
    for (uint32_t k = 0; k < trainer->slots.count; k++)
        for (uint32_t p = 0; p < listed; p++)
            if (is_trained(&trainer->states.data[p])) add_companion(trainer, TRAIN_SLOT, trainer->slots.data[k], p);
    for (uint32_t p = 0; trainer->options.average_decay > 0 && p < listed; p++)
        if (is_trained(&trainer->states.data[p])) add_companion(trainer, TRAIN_AVERAGE, "average", p);
    trainer->numbers = (train_numbers){.step = add_number(trainer, "trainer.step", DLC_I64),
                                       .skipped = add_number(trainer, "trainer.skipped", DLC_I64),
                                       .seed = add_number(trainer, "trainer.seed", DLC_I64),
                                       .scale = -1,
                                       .good = -1};
    if (!trainer->options.dynamic_loss_scale) return;
    trainer->numbers.scale = add_number(trainer, "trainer.scale", DLC_F32);
    trainer->numbers.good = add_number(trainer, "trainer.good", DLC_I64);
    const double first = trainer->options.loss_scale;
    trainer->states.data[trainer->numbers.scale].initial.scale = first > 0 ? first : first_scale;
}

static dlc_graph *new_graph(dlc_trainer *trainer) {
    dlc_graph_destroy(trainer->graph);
    const dlc_status status = dlc_graph_create(trainer->context, &trainer->graph);
    if (status != DLC_OK)
        lib_raise(trainer->arena.scope, status, "dlc_trainer_create: %s", dlc_error_message(trainer->context));
    return trainer->graph;
}

static void alias_state(dlc_trainer *trainer) {
    for (uint32_t s = 0; s < trainer->states.count; s++) {
        const train_state *state = &trainer->states.data[s];
        if (state->output < 0) continue;
        const dlc_status status = dlc_program_alias(trainer->step.program, state->output, state->input);
        if (status != DLC_OK)
            lib_raise(trainer->arena.scope, status, "dlc_trainer_create: %s", dlc_error_message(trainer->context));
    }
}

/* Inputs and outputs that the host declared on the graph itself are not those that runs give. */
static void check_ports(dlc_trainer *trainer, const train_program *program, int inputs, int outputs) {
    if (dlc_program_input_count(program->program) != inputs || dlc_program_output_count(program->program) != outputs)
        lib_raise(trainer->arena.scope, DLC_INVALID_ARGUMENT,
                  "dlc_trainer_create: the function declares an input by dlc_input or an output by dlc_output: use "
                  "dlc_training_input and dlc_training_output");
}

void jit_train_build_step(dlc_trainer *trainer, dlc_training_function *build, void *user) {
    list(trainer, new_graph(trainer), build, user);
    add_states(trainer);
    lib_arena *arena = &trainer->arena;
    const uint32_t count = trainer->states.count;
    builder b = {.trainer = trainer,
                 .training = {.trainer = trainer, .pass = TRAIN_STEP, .program = &trainer->step},
                 .graph = new_graph(trainer),
                 .now = LIB_NEW_ARRAY(arena, dlc_value, count),
                 .next = LIB_NEW_ARRAY(arena, dlc_value, count)};
    for (uint32_t s = 0; s < count; s++) {
        train_state *state = &trainer->states.data[s];
        dlc_dim dim[DLC_MAX_RANK];
        for (int d = 0; d < state->rank; d++) dim[d] = (dlc_dim){state->shape[d], NULL};
        state->input = b.inputs++;
        b.now[s] = dlc_input(b.graph, state->name, state->dtype, state->rank, dim);
    }
    found f = trainer->options.micro_batches > 1 ? batch_in_parts(&b, build, user) : whole_batch(&b, build, user);
    update(&b, &f);
    jit_train_compile(trainer, &trainer->step);
    check_ports(trainer, &trainer->step, b.inputs, b.outputs);
    trainer->step.parts = LIB_NEW_ARRAY(arena, DLTensor, trainer->step.inputs.count);
    trainer->step.part_shape = lib_arena_array(arena, trainer->step.inputs.count, sizeof *trainer->step.part_shape);
    alias_state(trainer);
}

void jit_train_build_evaluation(dlc_trainer *trainer, dlc_training_function *build, void *user) {
    train_program *program = &trainer->evaluation;
    dlc_graph *handle = new_graph(trainer);
    dlc_training training = {
        .trainer = trainer, .pass = TRAIN_EVALUATE, .graph = handle, .program = program, .key = i64(handle, 0)};
    dlc_value loss = jit_train_build(&training, build, user);
    if (!loss.graph && !training.outputs.count) return;
    loss = in_precision(&training, loss);
    if (loss.graph) dlc_output(handle, "loss", dlc_cast(loss, DLC_F64));
    program->first_output = loss.graph ? 1 : 0;
    for (uint32_t o = 0; o < training.outputs.count; o++)
        dlc_output(handle, program->outputs.data[o], training.outputs.data[o]);
    jit_train_compile(trainer, program);
    check_ports(trainer, program, training.input_count, program->first_output + (int)training.outputs.count);
    /* Evaluation reads averages in place of parameters. */
    for (uint32_t s = 0; s < trainer->states.count; s++) {
        train_state *state = &trainer->states.data[s];
        if (state->kind != TRAIN_AVERAGE) continue;
        state->evaluated = trainer->states.data[state->parameter].evaluated;
        trainer->states.data[state->parameter].evaluated = -1;
    }
}
