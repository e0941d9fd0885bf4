/* Walks of ONNX models: each run imports the model anew, to graphs whose values can have tensors (parts.h), so that the importer can ask
 * for the elements of any value. All operators between two such questions are compiled and run as one part, whose program later runs
 * reuse. */
#include "jit/onnx.h"

#ifdef DLC_ONNX
#include "jit/parts.h"

enum { PROGRAMS_KEPT = 256, ROOM_AT_FIRST = 16 };

static const char call_name[] = "dlc_onnx_run";

/* A graph of a walk: the model's, or that of an iteration. */
typedef struct walk_graph {
    struct walk_graph *next;
    lib_arena arena;
    lib_allowance allowance;
    /* NULL: not in use */
    graph *g;
    jit_values values;
} walk_graph;

/* The scan outputs of a loop: elements of equal shape, one for each iteration, contiguous in host memory. */
struct onnx_stack {
    onnx_stack *next;
    /* [room, dims...]; NULL: no element yet */
    DLManagedTensorVersioned *elements;
    dlc_dtype dtype;
    /* Rank and shape of an element; bytes: of an element. */
    int rank;
    int64_t dims[DLC_MAX_RANK];
    size_t bytes;
    int64_t count, room;
};

struct jit_onnx_walk {
    /* The functions that the importer calls, with a pointer to this member, which must be the first, so that walk_of can convert it. */
    onnx_walk functions;
    dlc_onnx_model *model;
    dlc_context *context;
    jit_parts parts;
    onnx_store store;
    lib_arena store_arena;
    walk_graph *graphs;
    onnx_stack *stacks;
    /* Of the run in progress; and its deadline, binds included (0: none). */
    jit_how how;
    uint64_t deadline_ns;
    /* Seed of the keys of random numbers, and how many keys have been drawn, in all runs. */
    uint64_t seed, drawn;
    const DLTensor *const *inputs;
};

static jit_onnx_walk *walk_of(onnx_walk *functions) {
    return (jit_onnx_walk *)(void *)functions;
}

static walk_graph *graph_at(const jit_onnx_walk *walk, const graph *g) {
    walk_graph *at = walk->graphs;
    while (at->g != g) at = at->next;
    return at;
}

static _Noreturn void refuse_memory(const graph *g) {
    lib_raise(g->arena->scope, DLC_OUT_OF_MEMORY, "%s: memory was refused", call_name);
}

/* ---- time ---------------------------------------------------------------------------------------------------------------- */

static void begin_time(jit_onnx_walk *walk, const dlc_run_options *options) {
    walk->how = jit_how_of(walk->context, call_name, options);
    walk->deadline_ns = walk->how.deadline_ns;
}

/* Raises if the run is cancelled or its time is over. */
static void check_time(jit_onnx_walk *walk, const graph *g) {
    lib_error error;
    walk->how.deadline_ns = walk->deadline_ns; /* a bind of a part has postponed it */
    if (!jit_is_over(&walk->how)) return;
    jit_how_it_ended(&walk->how, &error);
    lib_raise(g->arena->scope, error.status, "%s: %s", call_name, error.message);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

/* A new value of like's element type and shape, without a tensor yet. */
static graph_id new_value(walk_graph *at, const DLTensor *like) {
    graph *g = at->g;
    graph_shape shape = {.rank = like->ndim};
    lib_error error;
    lib_dtype_from_dlpack(like->dtype, &shape.dtype);
    for (int d = 0; d < like->ndim; d++) shape.dim[d] = tir_index(g->pool, like->shape[d]);
    const graph_id id = graph_new_input(g, NULL, &shape);
    if (jit_values_reserve(&at->values, id, call_name, &error) != DLC_OK) lib_raise_error(g->arena->scope, &error);
    return id;
}

static void evaluate(onnx_walk *functions, graph *g, int count, const graph_id *ids) {
    jit_onnx_walk *walk = walk_of(functions);
    walk_graph *at = graph_at(walk, g);
    lib_error error;
    bool done = true;
    for (int i = 0; i < count; i++) done &= jit_values_at(&at->values, ids[i]) != NULL;
    if (done) return;
    check_time(walk, g);
    if (jit_values_evaluate(&at->values, g, count, ids, call_name, &error) != DLC_OK)
        lib_raise_error(g->arena->scope, &error);
}

/* Copies a known value to compact host memory. */
static void copy_elements(walk_graph *at, graph_id id, void *elements) {
    const jit_kept_tensor *tensor = jit_values_at(&at->values, id);
    lib_error error;
    DLTensor into = tensor->dl;
    into.data = elements, into.byte_offset = 0, into.strides = NULL, into.device = (DLDevice){kDLCPU, 0};
    if (jit_values_read(&at->values, id, &into, call_name, &error) != DLC_OK)
        lib_raise_error(at->g->arena->scope, &error);
}

static void read_value(onnx_walk *functions, graph *g, graph_id id, void *elements) {
    evaluate(functions, g, 1, &id);
    copy_elements(graph_at(walk_of(functions), g), id, elements);
}

static graph_id share_value(onnx_walk *functions, graph *from, graph_id id, graph *to) {
    walk_graph *at = graph_at(walk_of(functions), to);
    evaluate(functions, from, 1, &id);
    jit_kept_tensor *tensor = jit_values_at(&graph_at(walk_of(functions), from)->values, id);
    const graph_id shared = new_value(at, &tensor->dl);
    at->values.tensors[shared] = jit_tensor_keep(tensor);
    return shared;
}

/* Gives a new value its tensor: the first `count` rows of `managed`, memory that the library made; -1: all rows. */
static void own_tensor(walk_graph *at, graph_id id, DLManagedTensorVersioned *managed, int64_t count) {
    jit_kept_tensor *tensor = jit_tensor_new(&at->values.parts->context->allocator);
    if (!tensor) {
        managed->deleter(managed);
        refuse_memory(at->g);
    }
    tensor->managed = managed;
    jit_tensor_describe(tensor, &managed->dl_tensor);
    if (count >= 0) tensor->shape[0] = count;
    at->values.tensors[id] = tensor;
}

static const DLTensor *view_value(onnx_walk *functions, graph *g, graph_id id) {
    walk_graph *at = graph_at(walk_of(functions), g);
    evaluate(functions, g, 1, &id);
    const jit_kept_tensor *tensor = jit_values_at(&at->values, id);
    DLTensor *view = lib_arena_copy(&at->arena, &tensor->dl, sizeof *view);
    view->strides = NULL, view->byte_offset = 0, view->device = (DLDevice){kDLCPU, 0};
    if (tensor->dl.device.device_type == kDLCPU && lib_tensor_is_compact(&tensor->dl)) {
        view->data = (char *)tensor->dl.data + tensor->dl.byte_offset;
    } else {
        view->data = lib_arena_take_aligned(&at->arena, lib_tensor_bytes(view) + 1, TIR_BUFFER_ALIGNMENT);
        copy_elements(at, id, view->data);
    }
    return view;
}

static graph_id make_value(onnx_walk *functions, graph *g, const graph_shape *shape, DLTensor **tensor) {
    walk_graph *at = graph_at(walk_of(functions), g);
    int64_t dims[DLC_MAX_RANK];
    for (int d = 0; d < shape->rank; d++) tir_is_const(g->pool, shape->dim[d], &dims[d]);
    const DLTensor like = {.ndim = shape->rank, .dtype = lib_dtype_to_dlpack(shape->dtype), .shape = dims};
    const graph_id id = new_value(at, &like);
    DLManagedTensorVersioned *managed =
        lib_tensor_new(&at->values.parts->context->allocator, shape->dtype, shape->rank, dims, TIR_BUFFER_ALIGNMENT);
    if (!managed) refuse_memory(g);
    own_tensor(at, id, managed, -1);
    *tensor = &managed->dl_tensor;
    return id;
}

static graph_id hold_value(onnx_walk *functions, graph *g, const graph_shape *shape, const void *elements) {
    DLTensor *tensor;
    const graph_id id = make_value(functions, g, shape, &tensor);
    const size_t bytes = lib_tensor_bytes(tensor);
    if (bytes) memcpy(tensor->data, elements, bytes);
    return id;
}

static int64_t draw_key(onnx_walk *functions) {
    jit_onnx_walk *walk = walk_of(functions);
    return (int64_t)lib_hash_mix(walk->seed, ++walk->drawn);
}

/* ---- inputs -------------------------------------------------------------------------------------------------------------- */

/* Raises unless input i's tensor has the type and shape of the imported value, which has the tensor's size where the file declares none. */
static void check_input(const jit_onnx_walk *walk, graph *g, size_t i, graph_id id) {
    const DLTensor *tensor = walk->inputs[i];
    const graph_shape *shape = graph_shape_of(g, id);
    const char *name = g->values.data[id].name;
    dlc_dtype dtype;
    if (!lib_dtype_from_dlpack(tensor->dtype, &dtype) || dtype != shape->dtype)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s: input %s is not of element type %s, as the model's is",
                  call_name, name, lib_dtypes[shape->dtype].name);
    if (tensor->ndim != shape->rank)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s: input %s has rank %d, expected %d", call_name, name,
                  tensor->ndim, shape->rank);
    for (int d = 0; d < shape->rank; d++) {
        int64_t size;
        if (!tir_is_const(g->pool, shape->dim[d], &size) || size != tensor->shape[d])
            lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT,
                      "%s: dimension %d of input %s is %lld, which the model does not allow", call_name, d, name,
                      (long long)tensor->shape[d]);
    }
}

static void attach(onnx_walk *functions, graph *g, size_t i, graph_id id) {
    jit_onnx_walk *walk = walk_of(functions);
    walk_graph *at = graph_at(walk, g);
    jit_kept_tensor *tensor = NULL;
    lib_error error;
    check_input(walk, g, i, id);
    dlc_status status = jit_values_reserve(&at->values, id, call_name, &error);
    if (status == DLC_OK) status = jit_tensor_hold(walk->context, walk->inputs[i], false, call_name, &tensor, &error);
    if (status != DLC_OK) lib_raise_error(g->arena->scope, &error);
    at->values.tensors[id] = tensor;
}

/* ---- graphs -------------------------------------------------------------------------------------------------------------- */

static walk_graph *unused_graph(jit_onnx_walk *walk, lib_scope *scope) {
    for (walk_graph *at = walk->graphs; at; at = at->next)
        if (!at->g) return at;
    const dlc_allocator *allocator = &walk->context->allocator;
    walk_graph *at = lib_allocate_zeroed(allocator, sizeof *at, _Alignof(walk_graph));
    if (!at) lib_raise(scope, DLC_OUT_OF_MEMORY, "%s: memory was refused", call_name);
    lib_arena_init(&at->arena, allocator, NULL);
    at->values = (jit_values){.parts = &walk->parts, .how = &walk->how};
    at->next = walk->graphs;
    walk->graphs = at;
    return at;
}

/* An empty graph, which raises in `scope`. */
static graph *open_graph(jit_onnx_walk *walk, lib_scope *scope) {
    walk_graph *at = unused_graph(walk, scope);
    at->arena.scope = scope;
    lib_allowance_begin(&at->allowance, &at->arena, &walk->context->limits, walk->model->size);
    at->g = graph_new(&at->arena, NULL);
    at->g->registry = &walk->context->handles.registry;
    at->g->keeps_dimensions = true;
    return at->g;
}

static void close_graph(walk_graph *at) {
    jit_values_forget(&at->values);
    lib_allowance_end(&at->allowance, &at->arena);
    lib_arena_reset(&at->arena);
    at->g = NULL;
}

static graph *open_inner(onnx_walk *functions, const graph *outer) {
    check_time(walk_of(functions), outer);
    return open_graph(walk_of(functions), outer->arena->scope);
}

static void close_inner(onnx_walk *functions, graph *g) {
    close_graph(graph_at(walk_of(functions), g));
}

/* ---- stacks -------------------------------------------------------------------------------------------------------------- */

static onnx_stack *new_stack(onnx_walk *functions, graph *g) {
    jit_onnx_walk *walk = walk_of(functions);
    onnx_stack *stack = lib_allocate_zeroed(&walk->context->allocator, sizeof *stack, _Alignof(onnx_stack));
    if (!stack) refuse_memory(g);
    stack->next = walk->stacks;
    walk->stacks = stack;
    return stack;
}

static void free_stacks(jit_onnx_walk *walk) {
    for (onnx_stack *stack = walk->stacks, *next; stack; stack = next) {
        next = stack->next;
        if (stack->elements) stack->elements->deleter(stack->elements);
        lib_release(&walk->context->allocator, stack, sizeof *stack, _Alignof(onnx_stack));
    }
    walk->stacks = NULL;
}

/* The shape of the stack as one tensor of `count` elements; returns its rank. */
static int stack_shape(const onnx_stack *stack, int64_t count, int64_t *shape) {
    shape[0] = count;
    for (int d = 0; d < stack->rank; d++) shape[d + 1] = stack->dims[d];
    return stack->rank + 1;
}

static void describe_element(onnx_stack *stack, const graph *g, const DLTensor *element) {
    lib_dtype_from_dlpack(element->dtype, &stack->dtype);
    stack->rank = element->ndim;
    for (int d = 0; d < element->ndim; d++) stack->dims[d] = element->shape[d];
    stack->bytes = lib_tensor_bytes(element);
    if (element->ndim == DLC_MAX_RANK || lib_dtype_is_packed(stack->dtype))
        lib_raise(g->arena->scope, DLC_UNSUPPORTED, "a stack of elements of rank %d of type %s", element->ndim,
                  lib_dtypes[stack->dtype].name);
}

static void check_element(const onnx_stack *stack, const graph *g, const DLTensor *element) {
    bool same = element->ndim == stack->rank;
    for (int d = 0; same && d < stack->rank; d++) same = element->shape[d] == stack->dims[d];
    if (!same)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT,
                  "an element of a stack that has another shape than those of the iterations before");
}

static void grow_stack(const jit_onnx_walk *walk, onnx_stack *stack, const graph *g) {
    int64_t shape[DLC_MAX_RANK];
    const int64_t room = stack->room ? 2 * stack->room : ROOM_AT_FIRST;
    DLManagedTensorVersioned *larger = lib_tensor_new(&walk->context->allocator, stack->dtype,
                                                      stack_shape(stack, room, shape), shape, TIR_BUFFER_ALIGNMENT);
    if (!larger) refuse_memory(g);
    const size_t bytes = (size_t)stack->count * stack->bytes;
    if (bytes) memcpy(larger->dl_tensor.data, stack->elements->dl_tensor.data, bytes);
    if (stack->elements) stack->elements->deleter(stack->elements);
    stack->elements = larger, stack->room = room;
}

static void push_element(onnx_walk *functions, onnx_stack *stack, graph *g, graph_id id) {
    jit_onnx_walk *walk = walk_of(functions);
    walk_graph *at = graph_at(walk, g);
    evaluate(functions, g, 1, &id);
    const DLTensor *element = &jit_values_at(&at->values, id)->dl;
    if (!stack->elements) describe_element(stack, g, element);
    check_element(stack, g, element);
    if (stack->count == stack->room) grow_stack(walk, stack, g);
    copy_elements(at, id, (char *)stack->elements->dl_tensor.data + (size_t)stack->count * stack->bytes);
    stack->count++;
}

static graph_id finish_stack(onnx_walk *functions, onnx_stack *stack, graph *g, const graph_shape *none) {
    walk_graph *at = graph_at(walk_of(functions), g);
    int64_t shape[DLC_MAX_RANK];
    if (!stack->elements) {
        stack->dtype = none->dtype, stack->rank = none->rank;
        for (int d = 0; d < none->rank; d++) tir_is_const(g->pool, none->dim[d], &stack->dims[d]);
        grow_stack(walk_of(functions), stack, g);
    }
    const DLTensor like = {
        .ndim = stack_shape(stack, stack->count, shape), .dtype = lib_dtype_to_dlpack(stack->dtype), .shape = shape};
    const graph_id id = new_value(at, &like);
    DLManagedTensorVersioned *elements = stack->elements;
    stack->elements = NULL;
    own_tensor(at, id, elements, stack->count);
    return id;
}

/* ---- results ------------------------------------------------------------------------------------------------------------- */

static bool has_shape(const DLTensor *a, const DLTensor *b) {
    bool same = a->ndim == b->ndim && memcmp(&a->dtype, &b->dtype, sizeof a->dtype) == 0;
    for (int d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
    return same;
}

/* Checks the host's tensors for outputs, before any is written. */
static void check_outputs(const jit_onnx_walk *walk, const walk_graph *at, const dlc_output_slot *outputs) {
    for (uint32_t o = 0; o < at->g->outputs.count; o++) {
        const DLTensor *made = &jit_values_at(&at->values, at->g->outputs.data[o])->dl;
        if (!outputs[o].tensor || has_shape(outputs[o].tensor, made)) continue;
        lib_text text;
        lib_text_init(&text, at->g->arena);
        lib_tensor_describe(&text, made);
        lib_raise(at->g->arena->scope, DLC_INVALID_ARGUMENT, "%s: the tensor for output %s is not %s", call_name,
                  walk->model->ports[DLC_ONNX_OUTPUT][o].name, text.data);
    }
}

/* A tensor for the host: the result's own memory if nothing else uses it (the result then has none), else a copy. */
static DLManagedTensorVersioned *hand_over(walk_graph *at, graph_id id) {
    jit_kept_tensor *tensor = jit_values_at(&at->values, id);
    DLManagedTensorVersioned *managed = tensor->managed;
    lib_error error;
    if (managed && atomic_load(&tensor->references) == 1 && has_shape(&managed->dl_tensor, &tensor->dl)) {
        tensor->managed = NULL; /* other outputs of this value copy it */
        return managed;
    }
    if (tensor->dl.device.device_type != kDLCPU) {
        if (jit_tensor_give(tensor, call_name, &managed, &error) != DLC_OK)
            lib_raise_error(at->g->arena->scope, &error);
        return managed;
    }
    dlc_dtype dtype;
    lib_dtype_from_dlpack(tensor->dl.dtype, &dtype);
    managed = lib_tensor_new(&tensor->allocator, dtype, tensor->dl.ndim, tensor->dl.shape, TIR_BUFFER_ALIGNMENT);
    if (!managed) refuse_memory(at->g);
    lib_tensor_copy(&managed->dl_tensor, &tensor->dl);
    return managed;
}

static void give_outputs(const jit_onnx_walk *walk, walk_graph *at, dlc_output_slot *outputs) {
    const graph_id *ids = at->g->outputs.data;
    lib_error error;
    check_outputs(walk, at, outputs);
    for (uint32_t o = 0; o < at->g->outputs.count; o++)
        if (!outputs[o].tensor) outputs[o].managed = hand_over(at, ids[o]);
    for (uint32_t o = 0; o < at->g->outputs.count; o++)
        if (outputs[o].tensor && jit_values_read(&at->values, ids[o], outputs[o].tensor, call_name, &error) != DLC_OK)
            lib_raise_error(at->g->arena->scope, &error);
}

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

static const onnx_arrived *arrived_of(const jit_onnx_walk_call *call, lib_arena *arena) {
    onnx_arrived *arrived = LIB_NEW_ARRAY(arena, onnx_arrived, (size_t)call->input_count + 1);
    for (int i = 0; i < call->input_count; i++) {
        arrived[i].rank = call->inputs[i]->ndim;
        for (int d = 0; d < DLC_MAX_RANK; d++) arrived[i].dim[d] = d < arrived[i].rank ? call->inputs[i]->shape[d] : -1;
    }
    return arrived;
}

static void run_in_scope(jit_onnx_walk *walk, const jit_onnx_walk_call *call, lib_scope *scope) {
    onnx_options options = *call->import;
    graph *g = open_graph(walk, scope);
    lib_arena_ask(g->arena);
    options.walk = &walk->functions, options.store = &walk->store;
    options.arrived = arrived_of(call, g->arena);
    walk->inputs = call->inputs;
    onnx_import im = {.g = g, .model = walk->model->model, .options = &options, .holder = &walk->model->holder};
    onnx_import_graph(&im);
    if (g->outputs.count > (uint32_t)call->output_count)
        lib_raise(scope, DLC_BUDGET_EXCEEDED, "%s: results of %u tensors; at most %d", call_name, g->outputs.count,
                  call->output_count);
    evaluate(&walk->functions, g, (int)g->outputs.count, g->outputs.data);
    give_outputs(walk, graph_at(walk, g), call->outputs);
}

dlc_status jit_onnx_walk_run(jit_onnx_walk *walk, const jit_onnx_walk_call *call) {
    lib_scope scope;
    GRAPH_CALL(walk->context, LIB_STACK_CALL);
    dlc_output_slot *outputs = call->outputs;
    for (int o = 0; o < call->output_count; o++) outputs[o].managed = NULL;
    begin_time(walk, call->run);
    lib_fp_state state = lib_fp_enter();
    if (LIB_ENTER(&scope)) run_in_scope(walk, call, &scope);
    lib_fp_restore(state);
    for (walk_graph *at = walk->graphs; at; at = at->next)
        if (at->g) close_graph(at);
    free_stacks(walk);
    if (scope.error.status == DLC_OK) return DLC_OK;
    for (int o = 0; o < call->output_count; o++) {
        if (outputs[o].managed) outputs[o].managed->deleter(outputs[o].managed);
        outputs[o].managed = NULL;
    }
    return jit_fail(walk->context, &scope.error);
}

/* ---- walks --------------------------------------------------------------------------------------------------------------- */

static dlc_status make_store(jit_onnx_walk *walk, lib_error *error) {
    lib_scope scope;
    walk->store_arena.scope = &scope;
    if (LIB_ENTER(&scope)) walk->store.g = graph_new(&walk->store_arena, NULL);
    *error = scope.error;
    return scope.error.status;
}

dlc_status jit_onnx_walk_new(dlc_onnx_model *model, const dlc_compile_options *compile, int64_t seed,
                             jit_onnx_walk **made) {
    dlc_context *context = model->context;
    lib_error error;
    jit_onnx_walk *walk = lib_allocate_zeroed(&context->allocator, sizeof *walk, _Alignof(jit_onnx_walk));
    if (!walk) return jit_onnx_fail(context, DLC_OUT_OF_MEMORY, call_name, "memory was refused");
    walk->functions = (onnx_walk){.attach = attach,
                                  .evaluate = evaluate,
                                  .read = read_value,
                                  .share = share_value,
                                  .view = view_value,
                                  .make = make_value,
                                  .hold = hold_value,
                                  .draw = draw_key,
                                  .open = open_inner,
                                  .close = close_inner,
                                  .stack = new_stack,
                                  .push = push_element,
                                  .finish = finish_stack};
    walk->model = model, walk->context = context, walk->seed = (uint64_t)seed;
    walk->parts = (jit_parts){.context = context, .options = *compile};
    lib_arena_init(&walk->store_arena, &context->allocator, NULL);
    lib_fail(&error, DLC_OUT_OF_MEMORY, "%s: memory was refused", call_name);
    if (jit_parts_init(&walk->parts, PROGRAMS_KEPT) && make_store(walk, &error) == DLC_OK) {
        *made = walk;
        return DLC_OK;
    }
    jit_onnx_walk_free(walk);
    return jit_fail(context, &error);
}

void jit_onnx_walk_free(jit_onnx_walk *walk) {
    if (!walk) return;
    const dlc_allocator *allocator = &walk->context->allocator;
    for (walk_graph *at = walk->graphs, *next; at; at = next) {
        next = at->next;
        jit_values_free(&at->values);
        lib_arena_free(&at->arena);
        lib_release(allocator, at, sizeof *at, _Alignof(walk_graph));
    }
    jit_parts_free(&walk->parts);
    lib_arena_free(&walk->store_arena);
    lib_release(allocator, walk, sizeof *walk, _Alignof(jit_onnx_walk));
}

#endif
