/* Parts of graphs: tensors of values, programs of parts, evaluation. */
#include "jit/parts.h"

#include "graph/backward_slice.h"
#include "graph/sizes.h"

enum { SIZES_SEEN = 4 };

/* A program for parts that differ only in sizes, of which some are symbols; or for one part, if it is the first of its kind or no
 * symbols can be found. */
typedef struct jit_kept_program {
    /* hash of the part without its sizes; of the whole part if some sizes are not numbers */
    lib_hash128 hash;
    dlc_program *program;
    uint64_t used;
    /* owns the following fields */
    lib_arena arena;
    /* the part with symbols, used for its sizes only: its constants may have been freed. Without a graph: a program for one part */
    graph_general general;
    /* [size_count] sizes of parts from which `general` follows */
    const int64_t *seen[SIZES_SEEN];
    int seen_count;
    uint32_t size_count;
    /* is not generalised further */
    bool fixed;
} kept_program;

static dlc_status out_of_memory(const char *call, lib_error *error) {
    return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: memory was refused", call);
}

/* ---- tensors -------------------------------------------------------------------------------------------------------- */

void jit_tensor_drop(jit_kept_tensor *tensor) {
    if (!tensor || atomic_fetch_sub(&tensor->references, 1) != 1) return;
    if (tensor->managed) tensor->managed->deleter(tensor->managed);
    dlc_allocator allocator = tensor->allocator;
    lib_release(&allocator, tensor, sizeof *tensor, _Alignof(jit_kept_tensor));
}

jit_kept_tensor *jit_tensor_new(const dlc_allocator *allocator) {
    jit_kept_tensor *tensor = lib_allocate_zeroed(allocator, sizeof *tensor, _Alignof(jit_kept_tensor));
    if (!tensor) return NULL;
    atomic_init(&tensor->references, 1);
    tensor->allocator = *allocator;
    return tensor;
}

void jit_tensor_describe(jit_kept_tensor *tensor, const DLTensor *dl) {
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

dlc_status jit_values_reserve(jit_values *values, uint32_t last, const char *call, lib_error *error) {
    if (last < values->capacity) return DLC_OK;
    const dlc_allocator *allocator = &values->parts->context->allocator;
    uint32_t capacity = last < 32 ? 64 : 2 * last;
    jit_kept_tensor **tensors = lib_allocate_zeroed(allocator, capacity * sizeof(void *), _Alignof(void *));
    if (!tensors) return out_of_memory(call, error);
    if (values->capacity) memcpy(tensors, values->tensors, values->capacity * sizeof(void *));
    lib_release(allocator, values->tensors, values->capacity * sizeof(void *), _Alignof(void *));
    values->tensors = tensors;
    values->capacity = capacity;
    return DLC_OK;
}

void jit_values_forget(jit_values *values) {
    for (uint32_t i = 0; i < values->capacity; i++) {
        jit_tensor_drop(values->tensors[i]);
        values->tensors[i] = NULL;
    }
    values->effects_done = 0;
}

void jit_values_free(jit_values *values) {
    jit_values_forget(values);
    lib_release(&values->parts->context->allocator, values->tensors, values->capacity * sizeof(void *),
                _Alignof(void *));
    values->tensors = NULL;
    values->capacity = 0;
}

/* ---- tensors of the host ---------------------------------------------------------------------------------------------- */

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
    if (!lib_tensor_is_addressable(dl))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: a tensor of %s has strides, expected a compact one", call,
                        lib_dtypes[dtype].name);
    if (dl->device.device_type != kDLCPU && !jit_is_on_device(context, dl))
        return lib_fail(
            error, DLC_INVALID_ARGUMENT,
            "%s: the tensor is on device type %d, number %d; expected host memory (%d) or the context's device", call,
            (int)dl->device.device_type, (int)dl->device.device_id, (int)kDLCPU);
    return DLC_OK;
}

dlc_status jit_tensor_hold(dlc_context *context, const DLTensor *dl, bool copy, const char *call, jit_kept_tensor **out,
                           lib_error *error) {
    const dlc_allocator *allocator = &context->allocator;
    LIB_TRY(check_tensor(context, dl, call, error));
    jit_kept_tensor *tensor = *out = jit_tensor_new(allocator);
    if (!tensor) return out_of_memory(call, error);
    if (copy && !jit_is_on_device(context, dl)) {
        dlc_dtype dtype;
        lib_dtype_from_dlpack(dl->dtype, &dtype);
        tensor->managed = lib_tensor_new(allocator, dtype, dl->ndim, dl->shape, TIR_BUFFER_ALIGNMENT);
        if (!tensor->managed) return out_of_memory(call, error);
        lib_tensor_copy(&tensor->managed->dl_tensor, dl);
        dl = &tensor->managed->dl_tensor;
    }
    jit_tensor_describe(tensor, dl);
    return DLC_OK;
}

/* ---- programs of parts ------------------------------------------------------------------------------------------------ */

static void forget_program(kept_program *kept) {
    if (!kept->program) return;
    dlc_program_destroy(kept->program);
    lib_arena_free(&kept->arena);
    kept->program = NULL;
}

bool jit_parts_init(jit_parts *parts, int limit) {
    parts->program_limit = limit;
    parts->programs = lib_allocate_zeroed(&parts->context->allocator, (size_t)limit * sizeof *parts->programs,
                                          _Alignof(kept_program));
    return parts->programs != NULL;
}

void jit_parts_free(jit_parts *parts) {
    for (int i = 0; i < parts->program_count; i++) forget_program(&parts->programs[i]);
    lib_release(&parts->context->allocator, parts->programs, (size_t)parts->program_limit * sizeof *parts->programs,
                _Alignof(kept_program));
    parts->programs = NULL;
}

/* ---- evaluation ------------------------------------------------------------------------------------------------------- */

typedef struct evaluation {
    jit_parts *parts;
    jit_values *values;
    const char *call;
    lib_arena arena;
    graph_part part;
    /* as in kept_program */
    lib_hash128 hash;
    /* [size_count]; NULL: some are not numbers */
    int64_t *sizes;
    uint32_t size_count;
    kept_program *kept;
    const DLTensor **inputs;
    dlc_output_slot *slots;
    /* for the output slots, allocated before the run */
    jit_kept_tensor **results;
    /* of the graph when the part was cut out: functions of the host that the run calls may add nodes */
    uint32_t nodes;
} evaluation;

static void know_part(evaluation *v) {
    v->sizes = graph_sizes(&v->arena, v->part.graph, &v->size_count);
    v->hash = v->sizes ? graph_hash_but_sizes(v->part.graph) : graph_hash(v->part.graph);
}

/* Collects the requested values that are not computed yet, without duplicates, and the part of the graph that computes them. */
static void cut_in_scope(evaluation *v, const graph *g, int count, const graph_id *ids) {
    const jit_values *values = v->values;
    lib_arena *arena = &v->arena;
    bool *known = LIB_NEW_ARRAY(arena, bool, g->values.count), *listed = LIB_NEW_ARRAY(arena, bool, g->values.count);
    graph_id *wanted = LIB_NEW_ARRAY(arena, graph_id, (size_t)count + 1);
    for (graph_id i = 1; i < g->values.count; i++) known[i] = jit_values_at(values, i);
    for (int i = 0; i < count; i++) {
        const graph_id id = ids[i];
        if (!known[id] && !listed[id]) wanted[v->part.count++] = id;
        listed[id] = true;
    }
    v->part.values = wanted;
    v->part.known = known;
    v->part.effects_done = values->effects_done;
    v->nodes = g->nodes.count;
    graph_cut_part(arena, g, &v->part);
    know_part(v);
    v->inputs = LIB_NEW_ARRAY(arena, const DLTensor *, (size_t)v->part.input_count + GRAPH_FREE_MAX);
    v->slots = LIB_NEW_ARRAY(arena, dlc_output_slot, (size_t)v->part.count + 1);
    v->results = LIB_NEW_ARRAY(arena, jit_kept_tensor *, (size_t)v->part.count + 1);
    for (int i = 0; i < v->part.input_count; i++) v->inputs[i] = &jit_values_at(values, v->part.inputs[i])->dl;
}

static dlc_status cut(evaluation *v, const graph *g, int count, const graph_id *ids, lib_error *error) {
    lib_scope scope;
    v->arena.scope = &scope;
    lib_fp_state state = lib_fp_enter();
    if (LIB_ENTER(&scope)) cut_in_scope(v, g, count, ids);
    lib_fp_restore(state);
    v->arena.scope = NULL;
    if (scope.error.status != DLC_OK) *error = scope.error;
    return scope.error.status;
}

static bool is_alike(const kept_program *kept, const evaluation *v) {
    return kept->program && kept->hash.low == v->hash.low && kept->hash.high == v->hash.high;
}

static bool serves(const kept_program *kept, evaluation *v) {
    if (!is_alike(kept, v)) return false;
    if (kept->general.g) return graph_is_case_of(&v->arena, v->part.graph, v->sizes, &kept->general);
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
static dlc_status generalise(jit_parts *parts, kept_program *kept, evaluation *v, lib_error *error) {
    lib_scope scope;
    kept_program now = {.hash = v->hash, .used = kept->used};
    kept->fixed = true;
    if (kept->seen_count == SIZES_SEEN || has_effects(v->part.graph)) return DLC_OK;
    lib_arena_init(&now.arena, &parts->context->allocator, &scope);
    lib_fp_state state = lib_fp_enter();
    if (LIB_ENTER(&scope)) generalise_in_scope(&now, kept, v);
    lib_fp_restore(state);
    now.arena.scope = NULL;
    dlc_status status = scope.error.status;
    *error = scope.error;
    if (status == DLC_OK && now.general.g)
        status = jit_program_new(parts->context, now.general.g, &parts->options, &now.program, error);
    if (status != DLC_OK || !now.general.g) {
        lib_arena_free(&now.arena);
        kept->fixed = status != DLC_OUT_OF_MEMORY && status != DLC_CANCELLED;
        return status == DLC_OUT_OF_MEMORY || status == DLC_CANCELLED ? status : DLC_OK;
    }
    forget_program(kept);
    *kept = now;
    return DLC_OK;
}

/* Compiles a program of the part without symbols. */
static dlc_status make_program(jit_parts *parts, const evaluation *v, bool fixed, kept_program *now, lib_error *error) {
    lib_scope scope;
    *now = (kept_program){.hash = v->hash, .fixed = fixed || !v->sizes};
    lib_arena_init(&now->arena, &parts->context->allocator, &scope);
    if (LIB_ENTER(&scope)) remember_sizes(now, NULL, v);
    now->arena.scope = NULL;
    *error = scope.error;
    dlc_status status = error->status;
    if (status == DLC_OK)
        status = jit_program_new(parts->context, v->part.graph, &parts->options, &now->program, error);
    if (status != DLC_OK) lib_arena_free(&now->arena);
    return status;
}

static kept_program *oldest_program(const jit_parts *parts) {
    kept_program *oldest = parts->programs;
    for (int i = 0; i < parts->program_count; i++)
        if (parts->programs[i].used < oldest->used) oldest = &parts->programs[i];
    return oldest;
}

static void use_program(jit_parts *parts, evaluation *v, kept_program *kept) {
    kept->used = ++parts->clock;
    v->kept = kept;
}

static bool look_up(jit_parts *parts, evaluation *v) {
    for (int i = 0; i < parts->program_count; i++) {
        if (!serves(&parts->programs[i], v)) continue;
        use_program(parts, v, &parts->programs[i]);
        return true;
    }
    return false;
}

static dlc_status look_up_guarded(jit_parts *parts, evaluation *v, bool *found, lib_error *error) {
    lib_scope scope;
    v->arena.scope = &scope;
    if (LIB_ENTER(&scope)) *found = look_up(parts, v);
    v->arena.scope = NULL;
    *error = scope.error;
    return error->status;
}

/* Finds or makes the program of the part. Parts that differ only in sizes share one, or have one each if no symbols fit; if there are too
 * many, the least recently used program is destroyed. */
static dlc_status find_program(jit_parts *parts, evaluation *v, lib_error *error) {
    bool found = false, fixed = false;
    LIB_TRY(look_up_guarded(parts, v, &found, error));
    for (int i = 0; i < parts->program_count && !found; i++) {
        kept_program *kept = &parts->programs[i];
        if (!is_alike(kept, v)) continue;
        if (!kept->fixed) LIB_TRY(generalise(parts, kept, v, error));
        fixed = fixed || kept->fixed;
        LIB_TRY(look_up_guarded(parts, v, &found, error));
    }
    if (found) return DLC_OK;
    kept_program now;
    LIB_TRY(make_program(parts, v, fixed, &now, error));
    kept_program *place =
        parts->program_count < parts->program_limit ? &parts->programs[parts->program_count++] : oldest_program(parts);
    forget_program(place);
    *place = now;
    use_program(parts, v, place);
    return DLC_OK;
}

/* Runs a program of the part, with symbols or without. */
static dlc_status run_once(evaluation *v, const kept_program *kept, int outputs, dlc_output_slot *slots,
                           lib_error *error) {
    DLTensor told[GRAPH_FREE_MAX];
    int64_t shape[GRAPH_FREE_MAX][2];
    const int count = v->part.input_count, more = kept->general.free_count;
    for (int i = 0; i < more; i++) {
        shape[i][0] = v->sizes[kept->general.free[i]], shape[i][1] = 0;
        told[i] = (DLTensor){.device = {kDLCPU, 0}, .ndim = 2, .dtype = lib_dtype_to_dlpack(DLC_U8), .shape = shape[i]};
        v->inputs[count + i] = &told[i];
    }
    jit_how plain = {.caller = v->call}, *how = v->values && v->values->how ? v->values->how : &plain;
    LIB_TRY(jit_check_stack(v->parts->context, error));
    return jit_run_program(kept->program, how, v->inputs, count + more, slots, outputs, error);
}

/* If a program with symbols cannot be bound, runs one without them, or reports its error. */
static dlc_status run_program(jit_parts *parts, evaluation *v, int outputs, dlc_output_slot *slots, lib_error *error) {
    LIB_TRY(find_program(parts, v, error));
    dlc_status status = run_once(v, v->kept, outputs, slots, error);
    const bool over = status == DLC_BUDGET_EXCEEDED && v->values && v->values->how && v->values->how->deadline_ns;
    if (status == DLC_OK || status == DLC_OUT_OF_MEMORY || status == DLC_CANCELLED || over || !v->kept->general.g)
        return status;
    kept_program now;
    LIB_TRY(make_program(parts, v, true, &now, error));
    status = run_once(v, &now, outputs, slots, error);
    if (status != DLC_OK) { /* an error of the caller: keep the program with symbols */
        forget_program(&now);
        return status;
    }
    forget_program(v->kept);
    *v->kept = now;
    use_program(parts, v, v->kept);
    return DLC_OK;
}

static dlc_status make_results(evaluation *v, lib_error *error) {
    for (int i = 0; i < v->part.count; i++) {
        v->results[i] = jit_tensor_new(&v->parts->context->allocator);
        if (!v->results[i]) return out_of_memory(v->call, error);
    }
    return DLC_OK;
}

/* State changes only after the run has succeeded, and nothing can fail afterwards. */
static dlc_status compute(evaluation *v, const graph *g, lib_error *error) {
    jit_values *values = v->values;
    LIB_TRY(jit_values_reserve(values, g->values.count, v->call, error));
    LIB_TRY(make_results(v, error));
    LIB_TRY(run_program(v->parts, v, v->part.count, v->slots, error));
    for (int i = 0; i < v->part.count; i++) {
        jit_kept_tensor *result = v->results[i];
        result->managed = v->slots[i].managed;
        jit_tensor_describe(result, &result->managed->dl_tensor);
        values->tensors[v->part.values[i]] = result;
        v->results[i] = NULL;
    }
    values->effects_done = v->nodes;
    return DLC_OK;
}

static bool is_done(const jit_values *values, const graph *g, int count, const graph_id *ids) {
    for (int i = 0; i < count; i++)
        if (!jit_values_at(values, ids[i])) return false;
    for (uint32_t n = values->effects_done; n < g->nodes.count; n++)
        if (g->nodes.data[n].impure) return false;
    return true;
}

dlc_status jit_values_evaluate(jit_values *values, const graph *g, int count, const graph_id *ids, const char *call,
                               lib_error *error) {
    if (values->at_work)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: called by a function that this graph's evaluation calls",
                        call);
    if (is_done(values, g, count, ids)) return DLC_OK;
    evaluation v = {.parts = values->parts, .values = values, .call = call};
    lib_arena_init(&v.arena, &values->parts->context->allocator, NULL);
    dlc_status status = cut(&v, g, count, ids, error);
    values->at_work = true;
    if (status == DLC_OK) status = compute(&v, g, error);
    values->at_work = false;
    for (int i = 0; v.results && i < v.part.count; i++) jit_tensor_drop(v.results[i]);
    lib_arena_free(&v.arena);
    return status;
}

/* ---- results for the host ------------------------------------------------------------------------------------------- */

typedef struct given_tensor {
    DLManagedTensorVersioned managed;
    jit_kept_tensor *tensor;
} given_tensor;

static void delete_given(DLManagedTensorVersioned *self) {
    given_tensor *given = self->manager_ctx;
    const dlc_allocator allocator = given->tensor->allocator;
    jit_tensor_drop(given->tensor);
    lib_release(&allocator, given, sizeof *given, _Alignof(given_tensor));
}

dlc_status jit_tensor_give(jit_kept_tensor *tensor, const char *call, DLManagedTensorVersioned **out,
                           lib_error *error) {
    given_tensor *given = lib_allocate_zeroed(&tensor->allocator, sizeof *given, _Alignof(given_tensor));
    if (!given) return out_of_memory(call, error);
    given->tensor = jit_tensor_keep(tensor);
    given->managed = (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                                .manager_ctx = given,
                                                .deleter = delete_given,
                                                .flags = DLPACK_FLAG_BITMASK_READ_ONLY,
                                                .dl_tensor = given->tensor->dl};
    *out = &given->managed;
    return DLC_OK;
}

/* Can the tensor be copied by memcpy: are both compact, in host memory, without overlap? */
static bool can_copy_plainly(const jit_kept_tensor *from, const DLTensor *into) {
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

static void identity_in_scope(lib_arena *arena, const jit_kept_tensor *tensor, evaluation *v) {
    v->part.graph = graph_identity(arena, &tensor->dl);
    v->part.input_count = 1;
    v->inputs = LIB_NEW_ARRAY(arena, const DLTensor *, 1 + GRAPH_FREE_MAX);
    *v->inputs = &tensor->dl;
    know_part(v);
}

/* Copies by a program, whose run checks `into` and handles devices. */
static dlc_status copy_by_program(jit_parts *parts, const jit_kept_tensor *tensor, DLTensor *into, const char *call,
                                  lib_error *error) {
    evaluation v = {.parts = parts, .call = call};
    lib_scope scope;
    if (!into) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: the tensor is NULL", call);
    lib_arena_init(&v.arena, &parts->context->allocator, &scope);
    if (LIB_ENTER(&scope)) identity_in_scope(&v.arena, tensor, &v);
    v.arena.scope = NULL;
    dlc_status status = scope.error.status;
    *error = scope.error;
    dlc_output_slot slot = {into, NULL};
    if (status == DLC_OK) {
        status = run_program(parts, &v, 1, &slot, error);
        const bool told = strncmp(error->message, call, strlen(call)) == 0;
        if (status != DLC_OK && !told) lib_fail(error, status, "%s: %s", call, error->message);
    }
    lib_arena_free(&v.arena);
    return status;
}

dlc_status jit_values_read(jit_values *values, graph_id id, DLTensor *into, const char *call, lib_error *error) {
    const jit_kept_tensor *tensor = jit_values_at(values, id);
    if (!can_copy_plainly(tensor, into)) return copy_by_program(values->parts, tensor, into, call, error);
    lib_tensor_copy(into, &tensor->dl);
    return DLC_OK;
}
