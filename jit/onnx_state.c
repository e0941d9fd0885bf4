/* States of runners: outputs that come back as inputs, without copies. The next run reads the tensor that the last one has made; or, if the
 * output is the input with elements appended (a cache), both are in one buffer with room (dlc_program_alias), so that a run writes only the
 * new elements. */
#include "jit/jit.h"

#ifdef DLC_ONNX
#include "jit/onnx_run.h"

#include <string.h>

static int inputs_of(const dlc_onnx_runner *runner) {
    return runner->input_count;
}
static int outputs_of(const dlc_onnx_runner *runner) {
    return runner->model->port_count[DLC_ONNX_OUTPUT];
}

/* ---- which there are -------------------------------------------------------------------------------------------------- */

static int port_named(const dlc_onnx_runner *runner, dlc_onnx_side side, const char *name) {
    for (int i = 0; i < runner->model->port_count[side]; i++)
        if (strcmp(runner->model->ports[side][i].name, name) == 0) return i;
    lib_raise(runner->arena.scope, DLC_NOT_FOUND, "dlc_onnx_runner_create: the model has no %s called %s",
              side == DLC_ONNX_INPUT ? "input" : "output", name);
}

static void add_state(dlc_onnx_runner *runner, int input, int output) {
    jit_onnx_state *state = &runner->states[runner->state_count++];
    state->input = input, state->output = output;
    runner->state_in[input] = runner->state_out[output] = state;
}

void jit_onnx_list_states(dlc_onnx_runner *runner, const dlc_onnx_runner_options *options) {
    runner->states = LIB_NEW_ARRAY(&runner->arena, jit_onnx_state, (size_t)inputs_of(runner) + 1);
    runner->state_in = LIB_NEW_ARRAY(&runner->arena, jit_onnx_state *, (size_t)inputs_of(runner) + 1);
    runner->state_out = LIB_NEW_ARRAY(&runner->arena, jit_onnx_state *, (size_t)outputs_of(runner) + 1);
    for (int s = 0; s < options->state_count; s++) {
        const dlc_onnx_state *state = &options->states[s];
        if (!state->input || !state->output)
            lib_raise(runner->arena.scope, DLC_INVALID_ARGUMENT,
                      "dlc_onnx_runner_create: a state without the name of its input or output");
        const int in = port_named(runner, DLC_ONNX_INPUT, state->input),
                  out = port_named(runner, DLC_ONNX_OUTPUT, state->output);
        if (runner->state_in[in] || runner->state_out[out])
            lib_raise(runner->arena.scope, DLC_INVALID_ARGUMENT, "dlc_onnx_runner_create: %s or %s is in two states",
                      state->input, state->output);
        add_state(runner, in, out);
    }
    for (int i = 0; options->find_states && i < inputs_of(runner); i++) {
        const int out = runner->model->ports[DLC_ONNX_INPUT][i].state;
        if (out >= 0 && !runner->state_in[i] && !runner->state_out[out]) add_state(runner, i, out);
    }
    if (runner->state_count && jit_onnx_structured_port(runner->model))
        lib_raise(runner->arena.scope, DLC_UNSUPPORTED,
                  "dlc_onnx_runner_create: states of a model whose inputs and outputs are not all tensors");
}

/* ---- imports ------------------------------------------------------------------------------------------------------------ */

/* The input's number among the inputs of the import's program; -1: the import fixes its elements. */
static int program_input(const imported *import, int input) {
    int number = 0;
    for (int i = 0; i < input; i++) number += !import->guard[i].content;
    return import->guard[input].content ? -1 : number;
}

static dlc_status vary(dlc_graph *made, const graph *g, uint32_t symbol) {
    return g->symbols.data[symbol].varies ? DLC_OK : dlc_symbol_varies(made, g->symbols.data[symbol].name, 0, 0, 0);
}

/* Index of the symbol, if the size is exactly one; UINT32_MAX: it is another expression. */
static uint32_t symbol_of(const graph *g, tir_expr size) {
    for (uint32_t s = 0; s < g->symbols.count; s++)
        if (g->symbols.data[s].var == size) return s;
    return UINT32_MAX;
}

static bool uses_varying(const graph *g, tir_expr size) {
    for (uint32_t s = 0; s < g->symbols.count; s++)
        if (g->symbols.data[s].varies && tir_uses(g->pool, size, g->symbols.data[s].var)) return true;
    return false;
}

/* Declares varying the symbols that constraints make equal to varying sizes, such as the length of a mask. */
static dlc_status vary_followers(dlc_graph *made, const graph *g) {
    for (uint32_t c = 0; c < g->constraints.count; c++)
        for (int side = 0; side < 2; side++) {
            const graph_constraint *is = &g->constraints.data[c];
            const uint32_t symbol = symbol_of(g, side ? is->left : is->right);
            if (symbol != UINT32_MAX && uses_varying(g, side ? is->right : is->left)) LIB_TRY(vary(made, g, symbol));
        }
    return DLC_OK;
}

dlc_status jit_onnx_vary_states(const dlc_onnx_runner *runner, const imported *import, dlc_graph *made) {
    const graph *g = graph_of_handle(made);
    for (int s = 0; s < runner->state_count; s++) {
        const jit_onnx_state *state = &runner->states[s];
        const int input = program_input(import, state->input);
        if (input < 0) continue;
        const graph_shape *in = graph_shape_of(g, g->inputs.data[input]),
                          *out = graph_shape_of(g, g->outputs.data[state->output]);
        for (int d = 0; d < in->rank && in->rank == out->rank; d++) {
            const uint32_t symbol = in->dim[d] == out->dim[d] ? UINT32_MAX : symbol_of(g, in->dim[d]);
            if (symbol != UINT32_MAX) LIB_TRY(vary(made, g, symbol));
        }
    }
    return vary_followers(made, g);
}

void jit_onnx_join_states(const dlc_onnx_runner *runner, imported *import) {
    dlc_program *program = import->program;
    for (int s = 0; s < runner->state_count; s++) {
        const jit_onnx_state *state = &runner->states[s];
        const int input = program_input(import, state->input);
        int axis;
        const bool grows = input >= 0 && !program->segment_count && !program->context->target->runtime &&
                           graph_grows(program->graph, state->output, input, &axis) &&
                           dlc_program_alias(program, state->output, input) == DLC_OK;
        import->grows[s] = grows ? axis : -1;
    }
}

/* ---- first states --------------------------------------------------------------------------------------------------------- */

/* Is the name an identifier? Some exporters give all unknown sizes one name such as "?", which tells nothing. */
static bool is_identifier(const char *name) {
    for (const char *c = name; *c; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        if (!letter && !(*c >= '0' && *c <= '9' && c > name)) return false;
    }
    return *name != 0;
}

/* The size of that name, by options.dims or by the inputs that the host has given; -1: unknown. */
static int64_t size_by_name(const dlc_onnx_runner *runner, const char *name, const DLTensor *const *inputs) {
    for (int i = 0; i < runner->import.dim_count; i++)
        if (strcmp(runner->import.dims[i].name, name) == 0) return runner->import.dims[i].value;
    if (!is_identifier(name)) return -1;
    for (int i = 0; i < inputs_of(runner); i++)
        for (int d = 0; inputs[i] && d < inputs[i]->ndim && d < DLC_MAX_RANK; d++) {
            const char *known = runner->model->ports[DLC_ONNX_INPUT][i].parameter[d];
            if (known && strcmp(known, name) == 0) return inputs[i]->shape[d];
        }
    return -1;
}

static bool is_same_dim(const dlc_dim *a, const dlc_dim *b) {
    return a->name && b->name ? strcmp(a->name, b->name) == 0 : a->value >= 0 && a->value == b->value;
}

/* The only axis along which the file declares different sizes of output and input; -1: there is none, or several. */
static int growing_axis(const dlc_onnx_port *in, const dlc_onnx_port *out) {
    int axis = -1, count = 0;
    for (int d = 0; d < in->rank && in->rank == out->rank; d++)
        if (!is_same_dim(&in->dims[d], &out->dims[d])) axis = d, count++;
    return count == 1 ? axis : -1;
}

static dlc_status first_shape(const dlc_onnx_runner *runner, const jit_onnx_state *state, const DLTensor *const *inputs,
                              dlc_onnx_port *port, int64_t *shape) {
    dlc_onnx_port out;
    LIB_TRY(dlc_onnx_port_at(runner->model, DLC_ONNX_INPUT, state->input, port));
    LIB_TRY(dlc_onnx_port_at(runner->model, DLC_ONNX_OUTPUT, state->output, &out));
    if (port->dtype < 0 || port->rank < 0)
        return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT,
                                 "state %s has no type or rank in the file: give it at the first run", port->name);
    const int grows = growing_axis(port, &out);
    for (int d = 0; d < port->rank; d++) {
        const dlc_dim *dim = &port->dims[d];
        shape[d] = dim->value >= 0 ? dim->value : dim->name ? size_by_name(runner, dim->name, inputs) : -1;
        if (shape[d] < 0 && d == grows) shape[d] = 0;
        if (shape[d] < 0)
            return jit_onnx_run_fail(
                runner, DLC_INVALID_ARGUMENT,
                "dimension %d of state %s is neither a number in the file nor a name that the other inputs have: "
                "give the state at the first run",
                d, port->name);
    }
    return DLC_OK;
}

/* ---- tensors --------------------------------------------------------------------------------------------------------------- */

/* Makes *kept the tensor of this shape at the start of `memory`, with the strides of the whole memory. */
static void keep(jit_onnx_kept *kept, DLManagedTensorVersioned *memory, const int64_t *shape) {
    const DLTensor *whole = &memory->dl_tensor;
    kept->tensor = *whole;
    for (int d = 0; d < whole->ndim; d++) {
        kept->shape[d] = shape[d];
        kept->strides[d] = whole->strides[d];
    }
    kept->tensor.shape = kept->shape, kept->tensor.strides = kept->strides;
    kept->memory = memory;
}

static void drop(DLManagedTensorVersioned **memory) {
    if (*memory) (*memory)->deleter(*memory);
    *memory = NULL;
}

/* Drops the state of the run in progress, but not memory that the last run's state is in. */
static void drop_next(jit_onnx_state *state) {
    if (state->next.memory != state->now.memory) drop(&state->next.memory);
    state->next.memory = NULL;
}

void jit_onnx_release_states(dlc_onnx_runner *runner) {
    for (int s = 0; s < runner->state_count; s++) drop(&runner->states[s].now.memory);
}

/* Makes the state before the first run: zeros in the shape that the file declares, with no elements along an axis that grows. */
static dlc_status first_state(dlc_onnx_runner *runner, jit_onnx_state *state, const DLTensor *const *inputs) {
    dlc_onnx_port port;
    int64_t shape[DLC_MAX_RANK];
    LIB_TRY(first_shape(runner, state, inputs, &port, shape));
    DLManagedTensorVersioned *zeros = lib_tensor_new(&runner->model->context->allocator, (dlc_dtype)port.dtype,
                                                     port.rank, shape, TIR_BUFFER_ALIGNMENT);
    if (!zeros) return jit_onnx_run_fail(runner, DLC_OUT_OF_MEMORY, "memory for state %s was refused", port.name);
    memset(zeros->dl_tensor.data, 0, lib_tensor_bytes(&zeros->dl_tensor));
    keep(&state->now, zeros, shape);
    return DLC_OK;
}

dlc_status jit_onnx_add_states(dlc_onnx_runner *runner, const DLTensor *const *inputs, const DLTensor **given) {
    for (int i = 0; i < inputs_of(runner); i++) {
        jit_onnx_state *state = runner->state_in[i];
        if (!inputs[i] && !state->now.memory) LIB_TRY(first_state(runner, state, inputs));
        given[i] = inputs[i] ? inputs[i] : &state->now.tensor;
    }
    return DLC_OK;
}

/* Is the input the runner's own state, with room in its memory for the shape, which grows along `axis`? */
static bool has_room(const jit_onnx_state *state, const DLTensor *input, const int64_t *shape, int axis) {
    if (input != &state->now.tensor) return false;
    const DLTensor *memory = &state->now.memory->dl_tensor;
    for (int d = 0; d < memory->ndim; d++)
        if (d == axis ? memory->shape[d] < shape[d] : memory->shape[d] != shape[d]) return false;
    return true;
}

/* Memory for the shape, with room for half as many elements more along `axis` (at least 16). */
static DLManagedTensorVersioned *new_memory(dlc_context *context, const DLTensor *like, const int64_t *shape,
                                            int axis) {
    enum { LEAST = 16 };
    dlc_dtype dtype;
    int64_t room[DLC_MAX_RANK];
    if (!lib_dtype_from_dlpack(like->dtype, &dtype)) return NULL;
    for (int d = 0; d < like->ndim; d++) room[d] = shape[d];
    room[axis] += shape[axis] / 2 > LEAST ? shape[axis] / 2 : LEAST;
    return lib_tensor_new(&context->allocator, dtype, like->ndim, room, TIR_BUFFER_ALIGNMENT);
}

static dlc_status make_room(const dlc_onnx_runner *runner, jit_onnx_state *state, const DLTensor *input,
                            const int64_t *shape, int axis) {
    DLManagedTensorVersioned *memory = has_room(state, input, shape, axis)
                                           ? state->now.memory
                                           : new_memory(runner->model->context, input, shape, axis);
    if (!memory)
        return jit_onnx_run_fail(runner, DLC_OUT_OF_MEMORY, "memory for state %s was refused",
                                 runner->model->ports[DLC_ONNX_INPUT][state->input].name);
    keep(&state->next, memory, shape);
    return DLC_OK;
}

void jit_onnx_drop_aims(dlc_onnx_runner *runner, dlc_output_slot *slots) {
    for (int s = 0; s < runner->state_count; s++) {
        drop_next(&runner->states[s]);
        slots[runner->states[s].output] = (dlc_output_slot){NULL, NULL};
    }
}

dlc_status jit_onnx_aim_states(dlc_onnx_runner *runner, const imported *import, const DLTensor *const *inputs,
                               const DLTensor *const *given, int count, dlc_output_slot *slots) {
    int outputs[JIT_ONNX_PORTS], growing = 0;
    int64_t shapes[JIT_ONNX_PORTS][DLC_MAX_RANK];
    jit_onnx_drop_aims(runner, slots); /* of an import that could not serve */
    for (int s = 0; s < runner->state_count; s++)
        if (import->grows[s] >= 0) outputs[growing++] = runner->states[s].output;
    if (!growing) return DLC_OK;
    LIB_TRY(jit_output_shapes(import->program, given, count, growing, outputs, shapes));
    growing = 0;
    for (int s = 0; s < runner->state_count; s++) {
        jit_onnx_state *state = &runner->states[s];
        if (import->grows[s] < 0) continue;
        LIB_TRY(make_room(runner, state, inputs[state->input], shapes[growing++], import->grows[s]));
        slots[state->output].tensor = &state->next.tensor;
    }
    return DLC_OK;
}

/* Can the new state be copied to the host's tensor: have both one type and shape, in host memory? */
static bool fits(const DLTensor *to, const DLTensor *from) {
    bool same = to->device.device_type == kDLCPU && from->device.device_type == kDLCPU && to->ndim == from->ndim &&
                memcmp(&to->dtype, &from->dtype, sizeof to->dtype) == 0;
    for (int d = 0; same && d < to->ndim; d++) same = to->shape[d] == from->shape[d];
    return same;
}

/* Fails unless the next run can take the new state: it must have the element type and rank that the file declares for the input. */
static dlc_status check_next(const dlc_onnx_runner *runner, const jit_onnx_state *state) {
    dlc_onnx_port in;
    dlc_dtype dtype = DLC_DTYPE_COUNT;
    const DLTensor *next = &state->next.tensor;
    LIB_TRY(dlc_onnx_port_at(runner->model, DLC_ONNX_INPUT, state->input, &in));
    if (lib_dtype_from_dlpack(next->dtype, &dtype) && (in.dtype < 0 || in.dtype == (int)dtype) &&
        (in.rank < 0 || in.rank == next->ndim))
        return DLC_OK;
    return jit_onnx_run_fail(
        runner, DLC_INVALID_ARGUMENT, "output %s is %s of rank %d, which cannot come back as input %s, %s of rank %d",
        runner->model->ports[DLC_ONNX_OUTPUT][state->output].name, dlc_dtype_name(dtype), next->ndim, in.name,
        in.dtype < 0 ? "any type" : dlc_dtype_name((dlc_dtype)in.dtype), in.rank);
}

dlc_status jit_onnx_commit_states(dlc_onnx_runner *runner, dlc_output_slot *slots, dlc_output_slot *outputs) {
    for (int s = 0; s < runner->state_count; s++) {
        jit_onnx_state *state = &runner->states[s];
        dlc_output_slot *slot = &slots[state->output];
        const DLTensor *wanted = outputs[state->output].tensor;
        if (slot->managed) keep(&state->next, slot->managed, slot->managed->dl_tensor.shape);
        slot->managed = NULL;
        LIB_TRY(check_next(runner, state));
        if (wanted && !fits(wanted, &state->next.tensor))
            return jit_onnx_run_fail(runner, DLC_INVALID_ARGUMENT,
                                     "the tensor for output %s has another type or shape, or is not in host memory",
                                     runner->model->ports[DLC_ONNX_OUTPUT][state->output].name);
    }
    for (int o = 0; o < outputs_of(runner); o++) {
        jit_onnx_state *state = runner->state_out[o];
        if (!state) {
            outputs[o] = slots[o];
            continue;
        }
        if (outputs[o].tensor) lib_tensor_copy(outputs[o].tensor, &state->next.tensor);
        if (state->next.memory != state->now.memory) drop(&state->now.memory);
        keep(&state->now, state->next.memory, state->next.shape);
        state->next.memory = NULL;
    }
    return DLC_OK;
}

void jit_onnx_drop_results(dlc_onnx_runner *runner, dlc_output_slot *slots, const dlc_output_slot *outputs) {
    for (int o = 0; o < outputs_of(runner); o++)
        if (runner->state_out[o] || !outputs[o].tensor) drop(&slots[o].managed);
    for (int s = 0; s < runner->state_count; s++) drop_next(&runner->states[s]);
}
#endif
