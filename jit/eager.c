/* Eager graphs (<dlc/eager.h>): tensors attached to the values of a graph, and programs of the evaluated parts. */
#include "graph/backward_slice.h"
#include "graph/sizes.h"
#include "jit/jit.h"

#include <dlc/eager.h>
#include <stdatomic.h>

enum { PROGRAMS_KEPT = 64, SIZES_SEEN = 4 };

/* A tensor, with references from its values and from the tensors given to the host. */
typedef struct kept_tensor {
    atomic_int references;
    dlc_allocator allocator;
    /* NULL: the data belong to the host */
    DLManagedTensorVersioned *managed;
    DLTensor dl;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
} kept_tensor;

/* A program for parts that differ only in sizes, of which some are symbols; or for one part, if it is the first of its kind or no
 * symbols can be found. */
typedef struct kept_program {
    /* hash of the part without its sizes; of the whole part if some sizes are not numbers */
    lib_hash128 hash;
    dlc_program *program;
    uint64_t used;
    /* owns the following fields */
    lib_arena arena;
    /* the part with symbols, used for its sizes only: its constants may have been freed. NULL: a program for one part */
    const graph *general;
    /* [size_count] sizes of parts from which `general` follows */
    const int64_t *seen[SIZES_SEEN];
    int seen_count;
    uint32_t size_count;
    /* is not generalised further */
    bool fixed;
} kept_program;

typedef struct eager {
    dlc_context *context;
    dlc_graph *graph;
    dlc_compile_options options;
    /* [capacity] by value id; NULL: not computed */
    kept_tensor **tensors;
    uint32_t capacity;
    /* effects of the nodes before this one have been executed */
    uint32_t effects_done;
    kept_program *programs;
    int program_count, program_limit;
    uint64_t clock;
    /* an evaluation is in progress, which may call functions of the host */
    bool at_work;
} eager;

static dlc_status out_of_memory(const char *call, lib_error *error) {
    return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: memory was refused", call);
}

/* ---- tensors -------------------------------------------------------------------------------------------------------- */

static void drop(kept_tensor *tensor) {
    if (!tensor || atomic_fetch_sub(&tensor->references, 1) != 1) return;
    if (tensor->managed) tensor->managed->deleter(tensor->managed);
    dlc_allocator allocator = tensor->allocator;
    lib_release(&allocator, tensor, sizeof *tensor, _Alignof(kept_tensor));
}

static kept_tensor *new_tensor(const dlc_allocator *allocator) {
    kept_tensor *tensor = lib_allocate_zeroed(allocator, sizeof *tensor, _Alignof(kept_tensor));
    if (!tensor) return NULL;
    atomic_init(&tensor->references, 1);
    tensor->allocator = *allocator;
    return tensor;
}

static void describe(kept_tensor *tensor, const DLTensor *dl) {
    const size_t size = (size_t)dl->ndim * sizeof *dl->shape;
    tensor->dl = *dl;
    if (size) memcpy(tensor->shape, dl->shape, size);
    tensor->dl.shape = tensor->shape;
    if (dl->strides && size)
        memcpy(tensor->strides, dl->strides, size);
    else
        lib_strides_compact(dl->ndim, tensor->shape, tensor->strides);
    tensor->dl.strides = tensor->strides;
}

/* Grows the table for values up to `last`. */
static dlc_status make_room(eager *e, uint32_t last, const char *call, lib_error *error) {
    if (last < e->capacity) return DLC_OK;
    const dlc_allocator *allocator = &e->context->allocator;
    uint32_t capacity = last < 32 ? 64 : 2 * last;
    kept_tensor **tensors = lib_allocate_zeroed(allocator, capacity * sizeof(void *), _Alignof(void *));
    if (!tensors) return out_of_memory(call, error);
    if (e->capacity) memcpy(tensors, e->tensors, e->capacity * sizeof(void *));
    lib_release(allocator, e->tensors, e->capacity * sizeof(void *), _Alignof(void *));
    e->tensors = tensors;
    e->capacity = capacity;
    return DLC_OK;
}

static kept_tensor *tensor_of(const eager *e, graph_id id) {
    return id < e->capacity ? e->tensors[id] : NULL;
}

/* ---- create, destroy ---------------------------------------------------------------------------------------------- */

static void forget_tensors(eager *e) {
    for (uint32_t i = 0; i < e->capacity; i++) {
        drop(e->tensors[i]);
        e->tensors[i] = NULL;
    }
}

static void forget_program(kept_program *kept) {
    if (!kept->program) return;
    dlc_program_destroy(kept->program);
    lib_arena_free(&kept->arena);
    kept->program = NULL;
}

static void release_eager(void *data) {
    eager *e = data;
    const dlc_allocator *allocator = &e->context->allocator;
    forget_tensors(e);
    for (int i = 0; i < e->program_count; i++) forget_program(&e->programs[i]);
    lib_release(allocator, e->programs, (size_t)e->program_limit * sizeof *e->programs, _Alignof(kept_program));
    lib_release(allocator, e->tensors, e->capacity * sizeof(void *), _Alignof(void *));
    lib_release(allocator, e, sizeof *e, _Alignof(eager));
}

static dlc_status check_options(const dlc_eager_options *options, lib_error *error) {
    if (!options) return DLC_OK;
    if (options->struct_size != sizeof *options || options->programs < 0)
        return lib_fail(
            error, DLC_INVALID_ARGUMENT,
            "dlc_eager_create: options.struct_size is %zu, expected %zu (use DLC_EAGER_OPTIONS_INIT); programs is %d",
            options->struct_size, sizeof *options, options->programs);
    if (options->compile && options->compile->struct_size != sizeof *options->compile)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_eager_create: compile.struct_size is %zu, expected %zu (use DLC_COMPILE_OPTIONS_INIT)",
                        options->compile->struct_size, sizeof *options->compile);
    return DLC_OK;
}

dlc_status dlc_eager_create(dlc_context *context, const dlc_eager_options *options, dlc_graph **handle) {
    static const dlc_compile_options defaults = DLC_COMPILE_OPTIONS_INIT;
    lib_error error;
    if (handle) *handle = NULL;
    if (!context || !handle) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_eager_create: context or the place for the graph is NULL");
        return jit_fail(context, &error);
    }
    if (check_options(options, &error) != DLC_OK) return jit_fail(context, &error);
    GRAPH_CALL(context, LIB_STACK_CALL);
    eager *e = lib_allocate_zeroed(&context->allocator, sizeof *e, _Alignof(eager));
    if (!e) {
        out_of_memory("dlc_eager_create", &error);
        return jit_fail(context, &error);
    }
    e->context = context;
    e->options = options && options->compile ? *options->compile : defaults;
    e->program_limit = options && options->programs ? options->programs : PROGRAMS_KEPT;
    e->programs = lib_allocate_zeroed(&context->allocator, (size_t)e->program_limit * sizeof *e->programs,
                                      _Alignof(kept_program));
    dlc_status status = e->programs ? dlc_graph_create(context, &e->graph) : DLC_OUT_OF_MEMORY;
    if (status != DLC_OK) {
        release_eager(e);
        out_of_memory("dlc_eager_create", &error);
        return jit_fail(context, &error);
    }
    graph_handle_attach(e->graph, (graph_attachment){e, release_eager});
    *handle = e->graph;
    return DLC_OK;
}

/* NULL: the graph is not eager. The error is recorded in the graph, so that traced functions fail, too. */
static eager *eager_of(dlc_graph *handle, const char *call, dlc_status *status) {
    lib_error error;
    *status = DLC_INVALID_ARGUMENT;
    if (!graph_handle_live(handle)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: the graph is NULL or destroyed", call);
        jit_fail(NULL, &error);
        return NULL;
    }
    eager *e = graph_handle_attached(handle);
    if (!e) {
        lib_fail(
            &error, DLC_INVALID_ARGUMENT,
            "%s: this graph is being traced, or built to be compiled: its values have no tensors; expected a graph of "
            "dlc_eager_create (dlc_if, dlc_while and dlc_scan decide by values that are not known yet)",
            call);
        graph_handle_record(handle, &error);
    }
    return e;
}

/* ---- known values ----------------------------------------------------------------------------------------------------- */

static dlc_status check_tensor(const dlc_context *context, const DLTensor *dl, const char *call, lib_error *error) {
    dlc_dtype dtype;
    int64_t count;
    if (!dl) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the tensor is NULL", call);
    if (dl->ndim < 0 || dl->ndim > DLC_MAX_RANK || (dl->ndim && !dl->shape))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the tensor has rank %d, expected 0 to %d and a shape", call,
                        dl->ndim, DLC_MAX_RANK);
    if (!lib_dtype_from_dlpack(dl->dtype, &dtype))
        return lib_fail(error, DLC_UNSUPPORTED, "%s: DLPack dtype (code %d, %d bits, %d lanes) is none of libdlc's",
                        call, dl->dtype.code, dl->dtype.bits, dl->dtype.lanes);
    if (!lib_tensor_count(dl, &count))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: a dimension is negative, or the size in bytes overflows",
                        call);
    if (count && !dl->data) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the tensor has no data", call);
    if (lib_dtype_is_packed(dtype) && !lib_tensor_is_compact(dl))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: a tensor of %s has strides, expected a compact one", call,
                        lib_dtypes[dtype].name);
    if (dl->device.device_type != kDLCPU && !jit_is_on_device(context, dl))
        return lib_fail(
            error, DLC_INVALID_ARGUMENT,
            "%s: the tensor is on device type %d, number %d; expected host memory (%d) or the context's device", call,
            (int)dl->device.device_type, (int)dl->device.device_id, (int)kDLCPU);
    return DLC_OK;
}

static dlc_status hold(const eager *e, const DLTensor *dl, bool copy, const char *call, kept_tensor **out,
                       lib_error *error) {
    const dlc_allocator *allocator = &e->context->allocator;
    LIB_TRY(check_tensor(e->context, dl, call, error));
    kept_tensor *tensor = *out = new_tensor(allocator);
    if (!tensor) return out_of_memory(call, error);
    if (copy && !jit_is_on_device(e->context, dl)) {
        dlc_dtype dtype;
        lib_dtype_from_dlpack(dl->dtype, &dtype);
        tensor->managed = lib_tensor_new(allocator, dtype, dl->ndim, dl->shape, TIR_BUFFER_ALIGNMENT);
        if (!tensor->managed) return out_of_memory(call, error);
        lib_tensor_copy(&tensor->managed->dl_tensor, dl);
        dl = &tensor->managed->dl_tensor;
    }
    describe(tensor, dl);
    return DLC_OK;
}

static dlc_value new_known(dlc_graph *handle, const DLTensor *dl, bool copy, const char *call) {
    dlc_status status;
    lib_error error = {.status = DLC_OK};
    kept_tensor *tensor = NULL;
    eager *e = eager_of(handle, call, &status);
    if (!e) return graph_poison();
    GRAPH_CALL_OR(e->context, LIB_STACK_CALL, graph_poison());
    status = hold(e, dl, copy, call, &tensor, &error);
    if (status == DLC_OK) status = make_room(e, graph_of_handle(handle)->values.count, call, &error);
    graph_id id;
    if (status == DLC_OK && graph_handle_inputs(handle, 1, &(const DLTensor *){&tensor->dl}, &id) == DLC_OK) {
        e->tensors[id] = tensor;
        return graph_handle_value(handle, id);
    }
    drop(tensor);
    if (status != DLC_OK) graph_handle_record(handle, &error);
    return graph_poison();
}

dlc_value dlc_eager_tensor(dlc_graph *handle, const DLTensor *tensor) {
    return new_known(handle, tensor, true, "dlc_eager_tensor");
}

dlc_value dlc_eager_borrow(dlc_graph *handle, const DLTensor *tensor) {
    return new_known(handle, tensor, false, "dlc_eager_borrow");
}

bool dlc_eager_known(dlc_value value) {
    if (!dlc_value_ok(value)) return false;
    const eager *e = graph_handle_attached(value.graph);
    return e && tensor_of(e, value.id);
}

/* ---- evaluation ------------------------------------------------------------------------------------------------------- */

typedef struct evaluation {
    eager *e;
    const char *call;
    lib_arena arena;
    graph_part part;
    /* as in kept_program */
    lib_hash128 hash;
    /* [size_count]; NULL: some are not numbers */
    int64_t *sizes;
    uint32_t size_count;
    /* owns `program` */
    kept_program *kept;
    const DLTensor **inputs;
    dlc_output_slot *slots;
    /* for the output slots, allocated before the run */
    kept_tensor **results;
    dlc_program *program;
} evaluation;

static dlc_status check_values(const eager *e, int count, const dlc_value *values, const char *call, lib_error *error) {
    if (count < 0 || (count && !values))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: values is NULL or their number is %d", call, count);
    for (int i = 0; i < count; i++) {
        if (dlc_value_ok(values[i]) && values[i].graph == e->graph) continue;
        const char *message = dlc_graph_message(e->graph);
        if (dlc_value_ok(values[i]))
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "%s: value %d is one of another graph, or of a sub-graph; expected values of this graph",
                            call, i);
        if (values[i].graph)
            return lib_fail(
                error, DLC_INVALID_ARGUMENT,
                "%s: value %d is none of this graph any more: dlc_eager_step did not keep it, or its graph is gone",
                call, i);
        return lib_fail(error, message[0] ? graph_handle_status(e->graph) : DLC_INVALID_ARGUMENT,
                        "%s: value %d is none%s%s", call, i, message[0] ? ", by a mistake: " : "", message);
    }
    return DLC_OK;
}

static void know_part(evaluation *v) {
    v->sizes = graph_sizes(&v->arena, v->part.graph, &v->size_count);
    v->hash = v->sizes ? graph_hash_but_sizes(v->part.graph) : graph_hash(v->part.graph);
}

/* Collects the requested values that are not computed yet, without duplicates, and the part of the graph that computes them. */
static void cut_in_scope(evaluation *v, int count, const dlc_value *values) {
    const graph *g = graph_of_handle(v->e->graph);
    lib_arena *arena = &v->arena;
    bool *known = LIB_NEW_ARRAY(arena, bool, g->values.count), *listed = LIB_NEW_ARRAY(arena, bool, g->values.count);
    graph_id *wanted = LIB_NEW_ARRAY(arena, graph_id, (size_t)count + 1);
    for (graph_id i = 1; i < g->values.count; i++) known[i] = tensor_of(v->e, i);
    for (int i = 0; i < count; i++) {
        graph_id id = values[i].id;
        if (!known[id] && !listed[id]) wanted[v->part.count++] = id;
        listed[id] = true;
    }
    v->part.values = wanted;
    v->part.known = known;
    v->part.effects_done = v->e->effects_done;
    graph_cut_part(arena, g, &v->part);
    know_part(v);
    v->inputs = LIB_NEW_ARRAY(arena, const DLTensor *, (size_t)v->part.input_count + 1);
    v->slots = LIB_NEW_ARRAY(arena, dlc_output_slot, (size_t)v->part.count + 1);
    v->results = LIB_NEW_ARRAY(arena, kept_tensor *, (size_t)v->part.count + 1);
    for (int i = 0; i < v->part.input_count; i++) v->inputs[i] = &tensor_of(v->e, v->part.inputs[i])->dl;
}

static dlc_status cut(evaluation *v, int count, const dlc_value *values, lib_error *error) {
    lib_scope scope;
    v->arena.scope = &scope;
    lib_fp_state state = lib_fp_enter();
    if (LIB_ENTER(&scope)) cut_in_scope(v, count, values);
    lib_fp_restore(state);
    v->arena.scope = NULL;
    if (scope.error.status != DLC_OK) *error = scope.error;
    return scope.error.status;
}

/* ---- programs of parts */

static bool is_alike(const kept_program *kept, const evaluation *v) {
    return kept->program && kept->hash.low == v->hash.low && kept->hash.high == v->hash.high;
}

static bool serves(const kept_program *kept, evaluation *v) {
    if (!is_alike(kept, v)) return false;
    if (kept->general) return graph_is_case_of(&v->arena, v->part.graph, kept->general);
    return kept->size_count == v->size_count &&
           (!v->size_count || memcmp(kept->seen[0], v->sizes, v->size_count * sizeof *v->sizes) == 0);
}

/* Does the part have effects visible to the host? Such a part is never run a second time. */
static bool has_effects(const graph *part) {
    for (uint32_t n = 0; n < part->nodes.count; n++)
        if (part->nodes.data[n].impure) return true;
    return false;
}

static void remember_sizes(kept_program *to, const kept_program *from, const evaluation *v) {
    const size_t bytes = v->size_count * sizeof *v->sizes;
    to->seen[0] = v->sizes ? lib_arena_copy(&to->arena, v->sizes, bytes) : NULL;
    for (int o = 0; from && o < from->seen_count; o++)
        to->seen[o + 1] = lib_arena_copy(&to->arena, from->seen[o], bytes);
    to->seen_count = from ? from->seen_count + 1 : 1;
    to->size_count = v->size_count;
}

static void generalise_in_scope(kept_program *now, const kept_program *kept, const evaluation *v) {
    remember_sizes(now, kept, v);
    now->general = graph_with_symbols(&now->arena, v->part.graph, now->seen_count, now->seen);
}

/* Generalises the program of a part that differs from this one in sizes, so that it serves both. Left unchanged if no symbols fit
 * or operators require numbers. */
static dlc_status generalise(eager *e, kept_program *kept, evaluation *v, lib_error *error) {
    lib_scope scope;
    kept_program now = {.hash = v->hash, .used = kept->used};
    kept->fixed = true;
    if (kept->seen_count == SIZES_SEEN || has_effects(v->part.graph)) return DLC_OK;
    lib_arena_init(&now.arena, &e->context->allocator, &scope);
    lib_fp_state state = lib_fp_enter();
    if (LIB_ENTER(&scope)) generalise_in_scope(&now, kept, v);
    lib_fp_restore(state);
    now.arena.scope = NULL;
    dlc_status status = scope.error.status;
    *error = scope.error;
    if (status == DLC_OK && now.general)
        status = jit_program_new(e->context, now.general, &e->options, &now.program, error);
    if (status != DLC_OK || !now.general) {
        lib_arena_free(&now.arena);
        kept->fixed = status != DLC_OUT_OF_MEMORY && status != DLC_CANCELLED;
        return status == DLC_OUT_OF_MEMORY || status == DLC_CANCELLED ? status : DLC_OK;
    }
    forget_program(kept);
    *kept = now;
    return DLC_OK;
}

/* Compiles a program of the part without symbols. */
static dlc_status make_program(eager *e, const evaluation *v, bool fixed, kept_program *now, lib_error *error) {
    lib_scope scope;
    *now = (kept_program){.hash = v->hash, .fixed = fixed || !v->sizes};
    lib_arena_init(&now->arena, &e->context->allocator, &scope);
    if (LIB_ENTER(&scope)) remember_sizes(now, NULL, v);
    now->arena.scope = NULL;
    *error = scope.error;
    dlc_status status = error->status;
    if (status == DLC_OK) status = jit_program_new(e->context, v->part.graph, &e->options, &now->program, error);
    if (status != DLC_OK) lib_arena_free(&now->arena);
    return status;
}

static kept_program *oldest_program(const eager *e) {
    kept_program *oldest = e->programs;
    for (int i = 0; i < e->program_count; i++)
        if (e->programs[i].used < oldest->used) oldest = &e->programs[i];
    return oldest;
}

static void use_program(eager *e, evaluation *v, kept_program *kept) {
    kept->used = ++e->clock;
    v->kept = kept;
    v->program = kept->program;
}

static bool look_up(eager *e, evaluation *v) {
    for (int i = 0; i < e->program_count; i++) {
        if (!serves(&e->programs[i], v)) continue;
        use_program(e, v, &e->programs[i]);
        return true;
    }
    return false;
}

static dlc_status look_up_guarded(eager *e, evaluation *v, bool *found, lib_error *error) {
    lib_scope scope;
    v->arena.scope = &scope;
    if (LIB_ENTER(&scope)) *found = look_up(e, v);
    v->arena.scope = NULL;
    *error = scope.error;
    return error->status;
}

/* Parts that differ only in sizes share one program, or have one each if no symbols fit; the least recently used program is evicted. */
static dlc_status find_program(eager *e, evaluation *v, lib_error *error) {
    bool found = false, fixed = false;
    LIB_TRY(look_up_guarded(e, v, &found, error));
    for (int i = 0; i < e->program_count && !found; i++) {
        kept_program *kept = &e->programs[i];
        if (!is_alike(kept, v)) continue;
        if (!kept->fixed) LIB_TRY(generalise(e, kept, v, error));
        fixed = fixed || kept->fixed;
        LIB_TRY(look_up_guarded(e, v, &found, error));
    }
    if (found) return DLC_OK;
    kept_program now;
    LIB_TRY(make_program(e, v, fixed, &now, error));
    kept_program *place = e->program_count < e->program_limit ? &e->programs[e->program_count++] : oldest_program(e);
    forget_program(place);
    *place = now;
    use_program(e, v, place);
    return DLC_OK;
}

static dlc_status run_once(evaluation *v, int outputs, dlc_output_slot *slots, lib_error *error) {
    dlc_status status = dlc_run(v->program, NULL, v->inputs, v->part.input_count, slots, outputs);
    return status == DLC_OK ? DLC_OK : lib_fail(error, status, "%s", dlc_error_message(v->e->context));
}

/* If a program with symbols cannot be bound, runs one without them, or reports its error. */
static dlc_status run_program(eager *e, evaluation *v, int outputs, dlc_output_slot *slots, lib_error *error) {
    LIB_TRY(find_program(e, v, error));
    dlc_status status = run_once(v, outputs, slots, error);
    if (status == DLC_OK || status == DLC_OUT_OF_MEMORY || status == DLC_CANCELLED || !v->kept->general) return status;
    kept_program now;
    LIB_TRY(make_program(e, v, true, &now, error));
    v->program = now.program;
    status = run_once(v, outputs, slots, error);
    if (status != DLC_OK) { /* an error of the caller: keep the program with symbols */
        forget_program(&now);
        v->program = v->kept->program;
        return status;
    }
    forget_program(v->kept);
    *v->kept = now;
    use_program(e, v, v->kept);
    return DLC_OK;
}

static dlc_status make_results(evaluation *v, lib_error *error) {
    for (int i = 0; i < v->part.count; i++) {
        v->results[i] = new_tensor(&v->e->context->allocator);
        if (!v->results[i]) return out_of_memory(v->call, error);
    }
    return DLC_OK;
}

/* State changes only after the run has succeeded, and nothing can fail afterwards. */
static dlc_status compute(evaluation *v, lib_error *error) {
    eager *e = v->e;
    const graph *g = graph_of_handle(e->graph);
    LIB_TRY(make_room(e, g->values.count, v->call, error));
    LIB_TRY(make_results(v, error));
    LIB_TRY(run_program(e, v, v->part.count, v->slots, error));
    for (int i = 0; i < v->part.count; i++) {
        kept_tensor *result = v->results[i];
        result->managed = v->slots[i].managed;
        describe(result, &result->managed->dl_tensor);
        e->tensors[v->part.values[i]] = result;
        v->results[i] = NULL;
    }
    e->effects_done = g->nodes.count;
    return DLC_OK;
}

static bool is_done(const eager *e, int count, const dlc_value *values) {
    const graph *g = graph_of_handle(e->graph);
    for (int i = 0; i < count; i++)
        if (!tensor_of(e, values[i].id)) return false;
    for (uint32_t n = e->effects_done; n < g->nodes.count; n++)
        if (g->nodes.data[n].impure) return false;
    return true;
}

static dlc_status evaluate(eager *e, int count, const dlc_value *values, const char *call, lib_error *error) {
    LIB_TRY(check_values(e, count, values, call, error));
    if (e->at_work)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: called by a function that this graph's evaluation calls",
                        call);
    if (is_done(e, count, values)) return DLC_OK;
    evaluation v = {.e = e, .call = call};
    lib_arena_init(&v.arena, &e->context->allocator, NULL);
    dlc_status status = cut(&v, count, values, error);
    e->at_work = true;
    if (status == DLC_OK) status = compute(&v, error);
    e->at_work = false;
    for (int i = 0; v.results && i < v.part.count; i++) drop(v.results[i]);
    lib_arena_free(&v.arena);
    return status;
}

dlc_status dlc_eager_evaluate(dlc_graph *handle, int count, const dlc_value *values) {
    dlc_status status;
    lib_error error;
    eager *e = eager_of(handle, "dlc_eager_evaluate", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = evaluate(e, count, values, "dlc_eager_evaluate", &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

/* ---- results -------------------------------------------------------------------------------------------------------- */

typedef struct given_tensor {
    DLManagedTensorVersioned managed;
    kept_tensor *tensor;
} given_tensor;

static void delete_given(DLManagedTensorVersioned *self) {
    given_tensor *given = self->manager_ctx;
    const dlc_allocator allocator = given->tensor->allocator;
    drop(given->tensor);
    lib_release(&allocator, given, sizeof *given, _Alignof(given_tensor));
}

static dlc_status give(const eager *e, dlc_value value, DLManagedTensorVersioned **out, lib_error *error) {
    given_tensor *given = lib_allocate_zeroed(&e->context->allocator, sizeof *given, _Alignof(given_tensor));
    if (!given) return out_of_memory("dlc_eager_get", error);
    given->tensor = tensor_of(e, value.id);
    atomic_fetch_add(&given->tensor->references, 1);
    given->managed = (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                                .manager_ctx = given,
                                                .deleter = delete_given,
                                                .flags = DLPACK_FLAG_BITMASK_READ_ONLY,
                                                .dl_tensor = given->tensor->dl};
    *out = &given->managed;
    return DLC_OK;
}

dlc_status dlc_eager_get(dlc_graph *handle, dlc_value value, DLManagedTensorVersioned **tensor) {
    dlc_status status;
    lib_error error;
    if (tensor) *tensor = NULL;
    eager *e = eager_of(handle, "dlc_eager_get", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    if (!tensor)
        status = lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_eager_get: the place for the tensor is NULL");
    else
        status = evaluate(e, 1, &value, "dlc_eager_get", &error);
    if (status == DLC_OK) status = give(e, value, tensor, &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

/* Can the tensor be copied by memcpy: are both compact, in host memory, without overlap? */
static bool can_copy_plainly(const kept_tensor *from, const DLTensor *into) {
    const DLTensor *dl = &from->dl;
    const char *low, *high, *into_low, *into_high;
    int64_t count;
    if (!into || dl->device.device_type != kDLCPU || into->device.device_type != kDLCPU) return false;
    if (memcmp(&dl->dtype, &into->dtype, sizeof dl->dtype) != 0 || dl->ndim != into->ndim) return false;
    for (int d = 0; d < dl->ndim; d++)
        if (!into->shape || into->shape[d] != dl->shape[d]) return false;
    if (!lib_tensor_count(into, &count) || !lib_tensor_is_compact(into) || (count && !into->data)) return false;
    lib_tensor_extent(dl, &low, &high);
    lib_tensor_extent(into, &into_low, &into_high);
    return high <= into_low || into_high <= low;
}

static void identity_in_scope(lib_arena *arena, const kept_tensor *tensor, evaluation *v) {
    v->part.graph = graph_identity(arena, &tensor->dl);
    v->part.input_count = 1;
    v->inputs = LIB_NEW(arena, const DLTensor *);
    *v->inputs = &tensor->dl;
    know_part(v);
}

/* Copies by a program, whose run checks `into` and handles devices. */
static dlc_status copy_by_program(eager *e, const kept_tensor *tensor, DLTensor *into, const char *call,
                                  lib_error *error) {
    evaluation v = {.e = e, .call = call};
    lib_scope scope;
    if (!into) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the tensor is NULL", call);
    lib_arena_init(&v.arena, &e->context->allocator, &scope);
    if (LIB_ENTER(&scope)) identity_in_scope(&v.arena, tensor, &v);
    v.arena.scope = NULL;
    dlc_status status = scope.error.status;
    *error = scope.error;
    dlc_output_slot slot = {into, NULL};
    if (status == DLC_OK) {
        status = run_program(e, &v, 1, &slot, error);
        if (status != DLC_OK) lib_fail(error, status, "%s: %s", call, error->message);
    }
    lib_arena_free(&v.arena);
    return status;
}

static dlc_status read_value(eager *e, dlc_value value, DLTensor *into, const char *call, lib_error *error) {
    LIB_TRY(evaluate(e, 1, &value, call, error));
    const kept_tensor *tensor = tensor_of(e, value.id);
    if (!can_copy_plainly(tensor, into)) return copy_by_program(e, tensor, into, call, error);
    lib_tensor_copy(into, &tensor->dl);
    return DLC_OK;
}

dlc_status dlc_eager_read(dlc_graph *handle, dlc_value value, DLTensor *into) {
    dlc_status status;
    lib_error error;
    eager *e = eager_of(handle, "dlc_eager_read", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = read_value(e, value, into, "dlc_eager_read", &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

static dlc_status read_number(eager *e, dlc_value value, double *number, lib_error *error) {
    static const char call[] = "dlc_eager_number";
    if (!number) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the place for the number is NULL", call);
    LIB_TRY(evaluate(e, 1, &value, call, error));
    const kept_tensor *tensor = tensor_of(e, value.id);
    const dlc_dtype dtype = dlc_value_dtype(value);
    int64_t count;
    if (!lib_tensor_count(&tensor->dl, &count) || count != 1)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the value has %lld elements, expected one", call,
                        (long long)count);
    if (lib_dtypes[dtype].class_ == 'c')
        return lib_fail(error, DLC_UNSUPPORTED, "%s: the value is %s: take its parts first, dlc_real, dlc_imag", call,
                        lib_dtypes[dtype].name);
    uint64_t element = 0;
    DLTensor into = {.data = &element,
                     .device = {kDLCPU, 0},
                     .ndim = tensor->dl.ndim,
                     .dtype = tensor->dl.dtype,
                     .shape = tensor->dl.shape};
    LIB_TRY(read_value(e, value, &into, call, error));
    *number = lib_element_get_f64(dtype, &element);
    return DLC_OK;
}

dlc_status dlc_eager_number(dlc_graph *handle, dlc_value value, double *number) {
    dlc_status status;
    lib_error error;
    if (number) *number = 0;
    eager *e = eager_of(handle, "dlc_eager_number", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = read_number(e, value, number, &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}

/* ---- steps ---------------------------------------------------------------------------------------------------------- */

/* Allocates the state that is kept, in one block: a table for the values of the new graph, descriptions, ids. */
static dlc_status renew(eager *e, int count, dlc_value *values, lib_error *error) {
    const dlc_allocator *allocator = &e->context->allocator;
    uint32_t capacity = (uint32_t)count + 64;
    size_t bytes = (size_t)(count + 1) * (sizeof(DLTensor *) + sizeof(graph_id));
    kept_tensor **tensors = lib_allocate_zeroed(allocator, capacity * sizeof(void *), _Alignof(void *));
    const DLTensor **like = lib_allocate_zeroed(allocator, bytes, _Alignof(void *));
    dlc_status status = tensors && like ? DLC_OK : out_of_memory("dlc_eager_step", error);
    if (status == DLC_OK) {
        graph_id *ids = (graph_id *)(void *)(like + count + 1);
        for (int i = 0; i < count; i++) like[i] = &tensor_of(e, values[i].id)->dl;
        status = graph_handle_renew(e->graph, count, like, ids, error);
        for (int i = 0; status == DLC_OK && i < count; i++) {
            tensors[ids[i]] = tensor_of(e, values[i].id);
            atomic_fetch_add(&tensors[ids[i]]->references, 1);
            values[i] = graph_handle_value(e->graph, ids[i]);
        }
    }
    lib_release(allocator, like, like ? bytes : 0, _Alignof(void *));
    if (status != DLC_OK) {
        lib_release(allocator, tensors, tensors ? capacity * sizeof(void *) : 0, _Alignof(void *));
        return status;
    }
    forget_tensors(e);
    lib_release(allocator, e->tensors, e->capacity * sizeof(void *), _Alignof(void *));
    e->tensors = tensors;
    e->capacity = capacity;
    e->effects_done = 0;
    return DLC_OK;
}

dlc_status dlc_eager_step(dlc_graph *handle, int count, dlc_value *values) {
    dlc_status status;
    lib_error error;
    eager *e = eager_of(handle, "dlc_eager_step", &status);
    if (!e) return status;
    GRAPH_CALL(e->context, LIB_STACK_CALL);
    status = evaluate(e, count, values, "dlc_eager_step", &error);
    if (status == DLC_OK) status = renew(e, count, values, &error);
    return status == DLC_OK ? DLC_OK : jit_fail(e->context, &error);
}
