/* Programs: a compiled graph and its plans by bound shapes.
 *
 * The table of plans is read by runs without a lock and changed under the program's mutex. A plan that is taken out of the table is
 * freed only when no run can still hold it: runs register in one of two reader counters, chosen by the epoch's parity; a retired
 * plan waits until the epoch has moved on and the counter of its own epoch is zero. */
#include "jit/jit.h"

enum { FIRST_TABLE = 16 };

/* ---- compile */

static void compile_in_scope(dlc_program *program, const graph *source, const dlc_compile_options *options) {
    lib_arena *arena = &program->arena;
    graph_verify(arena->scope, source);
    graph *g = graph_decompose(arena, graph_copy(arena, source)); /* the host may destroy its graph: passes share constants */
    if (!lib_environment_lists(LIB_ENV_DISABLE, "simplify")) g = graph_simplify(arena, g);
    graph_verify(arena->scope, g);
    program->ordinary_inputs = (int)g->inputs.count;
    graph_split_init(arena, g, &program->init, &program->graph);
    program->symbols = lib_arena_array(arena, program->graph->symbols.count + 1, sizeof *program->symbols);
    program->alias = LIB_NEW_ARRAY(arena, int, program->graph->outputs.count + 1);
    for (uint32_t o = 0; o < program->graph->outputs.count; o++) program->alias[o] = -1;
    if (options->schedule) {
        program->schedule = lib_arena_string(arena, options->schedule);
        program->schedule_hash = lib_hash_bytes(options->schedule, strlen(options->schedule), (lib_hash128){7, 7});
    }
}

static dlc_status check_compile(dlc_context *context, dlc_graph *handle, const dlc_compile_options *options, lib_error *error) {
    if (!graph_handle_live(handle)) return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_compile: the graph was destroyed");
    if (graph_handle_context(handle) != context)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_compile: the graph belongs to another context");
    if (options && options->struct_size != sizeof *options)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_compile: options.struct_size is %zu, expected %zu (use DLC_COMPILE_OPTIONS_INIT)",
                        options->struct_size, sizeof *options);
    if (dlc_graph_status(handle) != DLC_OK) return lib_fail(error, dlc_graph_status(handle), "%s", dlc_graph_message(handle));
    if (graph_of_handle(handle)->outputs.count == 0)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_compile: the graph has no output; call dlc_output first");
    return DLC_OK;
}

dlc_status dlc_compile(dlc_context *context, dlc_graph *handle, const dlc_compile_options *options, dlc_program **out) {
    lib_error error;
    if (out) *out = NULL;
    if (!context || !handle || !out) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_compile: context, graph and program must not be NULL");
        return jit_fail(context, &error);
    }
    static const dlc_compile_options defaults = DLC_COMPILE_OPTIONS_INIT;
    if (check_compile(context, handle, options, &error) != DLC_OK) return jit_fail(context, &error);
    dlc_program *program = lib_allocate_zeroed(&context->allocator, sizeof *program, 64);
    if (!program) {
        lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_compile: %zu bytes were refused", sizeof *program);
        return jit_fail(context, &error);
    }
    program->context = context;
    program->options = options ? *options : defaults;
    lib_mutex_init(&program->mutex);
    lib_arena_init(&program->arena, &context->allocator, &program->scope);
    program->table_size = FIRST_TABLE;
    program->table = lib_allocate_zeroed(&context->allocator, FIRST_TABLE * sizeof *program->table, 64);
    if (!program->table) {
        lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_compile: the plan table was refused");
    } else if (LIB_ENTER(&program->scope)) {
        compile_in_scope(program, graph_of_handle(handle), &program->options);
        *out = program;
        return DLC_OK;
    } else {
        error = program->scope.error;
    }
    dlc_program_destroy(program);
    return jit_fail(context, &error);
}

/* ---- plans: look-up, retirement */

static void free_plan_list(jit_plan *plan) {
    while (plan) {
        jit_plan *next = plan->next;
        jit_plan_free(plan);
        plan = next;
    }
}

/* Frees what was retired two epochs ago, if its readers have gone. Caller holds the mutex. */
static void advance_epoch(dlc_program *program) {
    uint64_t epoch = atomic_load(&program->epoch);
    unsigned old = (unsigned)(epoch + 1) & 1;
    if (atomic_load(&program->readers[old]) != 0) return;
    free_plan_list(program->retired[old]);
    program->retired[old] = NULL;
    atomic_store(&program->epoch, epoch + 1); /* new readers count there; what is retired now waits in the other list */
}

static void retire_oldest(dlc_program *program) {
    _Atomic(jit_plan *) *oldest = NULL;
    for (uint32_t i = 0; i < program->table_size; i++) {
        jit_plan *plan = atomic_load_explicit(&program->table[i], memory_order_relaxed);
        if (plan && (!oldest || atomic_load_explicit(&plan->last_use, memory_order_relaxed) <
                                    atomic_load_explicit(&atomic_load_explicit(oldest, memory_order_relaxed)->last_use,
                                                         memory_order_relaxed)))
            oldest = &program->table[i];
    }
    if (!oldest) return;
    unsigned now = (unsigned)atomic_load(&program->epoch) & 1;
    jit_plan *plan = atomic_exchange(oldest, NULL);
    plan->next = program->retired[now];
    program->retired[now] = plan;
    program->plan_count--;
    atomic_fetch_add_explicit(&program->context->plan_evictions, 1, memory_order_relaxed);
}

/* Runs register before they look into the table and leave when they are done with the plan. */
static unsigned reader_enter(dlc_program *program) {
    for (;;) {
        uint64_t epoch = atomic_load(&program->epoch);
        unsigned side = (unsigned)epoch & 1;
        atomic_fetch_add(&program->readers[side], 1);
        if (atomic_load(&program->epoch) == epoch) return side;
        atomic_fetch_sub(&program->readers[side], 1);
    }
}

static void reader_leave(dlc_program *program, unsigned side) { atomic_fetch_sub(&program->readers[side], 1); }

/* The table is direct-mapped with a short probe; a full neighbourhood loses its oldest plan. */
enum { PROBES = 8 };

static jit_plan *find_plan(dlc_program *program, uint64_t hash, const int64_t *shapes, int count) {
    for (uint32_t i = 0; i < PROBES; i++) {
        jit_plan *plan = atomic_load_explicit(&program->table[(hash + i) & (program->table_size - 1)], memory_order_acquire);
        if (plan && plan->hash == hash && plan->shape_count == count &&
            memcmp(plan->shapes, shapes, (size_t)count * sizeof *shapes) == 0)
            return plan;
    }
    return NULL;
}

static void insert_plan(dlc_program *program, jit_plan *plan) {
    while (program->plan_count >= program->context->plan_entries) retire_oldest(program);
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < PROBES && best == UINT32_MAX; i++) {
        uint32_t at = (uint32_t)(plan->hash + i) & (program->table_size - 1);
        if (!atomic_load(&program->table[at])) best = at;
    }
    if (best == UINT32_MAX) {
        best = (uint32_t)plan->hash & (program->table_size - 1);
        unsigned now = (unsigned)atomic_load(&program->epoch) & 1;
        jit_plan *old = atomic_exchange(&program->table[best], NULL);
        old->next = program->retired[now];
        program->retired[now] = old;
        program->plan_count--;
        atomic_fetch_add_explicit(&program->context->plan_evictions, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&program->table[best], plan, memory_order_release);
    program->plan_count++;
    advance_epoch(program);
}

/* The init graph runs once per program; its outputs are constants of the main graph. Caller holds the mutex. */
static dlc_status run_init(dlc_program *program, lib_error *error) {
    if (program->init_done || !program->init) return DLC_OK;
    const dlc_allocator *allocator = &program->context->allocator;
    if (!program->init_plan)
        LIB_TRY(jit_plan_build(program, program->init, 0, NULL, NULL, 0, &program->init_plan, error));
    uint32_t count = program->init->outputs.count;
    if (!program->init_values) program->init_values = lib_allocate_zeroed(allocator, (count + 1) * sizeof(graph_constant), 16);
    char **outputs = lib_allocate_zeroed(allocator, (count + 1) * sizeof *outputs, 16);
    bool complete = program->init_values && outputs;
    for (uint32_t o = 0; o < count && complete; o++) {
        graph_constant *value = &program->init_values[o];
        const int64_t *shape = &program->init_plan->output_shapes[o * DLC_MAX_RANK];
        size_t bytes = lib_dtype_size(graph_shape_of(program->init, program->init->outputs.data[o])->dtype);
        for (int d = 0; d < program->init_plan->output_ranks[o]; d++) bytes *= (size_t)shape[d];
        value->size = bytes ? bytes : 1;
        if (!value->bytes) value->bytes = lib_allocate(allocator, value->size, TIR_BUFFER_ALIGNMENT);
        outputs[o] = (char *)(uintptr_t)value->bytes;
        complete = outputs[o] != NULL;
    }
    dlc_status status = complete ? jit_plan_run(program, program->init_plan, NULL, outputs, NULL, error)
                                 : lib_fail(error, DLC_OUT_OF_MEMORY, "the precomputed constants were refused");
    lib_release(allocator, outputs, (count + 1) * sizeof *outputs, 16);
    program->init_done = status == DLC_OK;
    return status;
}

/* Finds or builds. The caller is a registered reader and stays one while it uses the plan. */
static dlc_status plan_for(dlc_program *program, const int64_t *shapes, int count, jit_plan **plan, lib_error *error) {
    uint64_t hash = 0x51ab7e;
    for (int i = 0; i < count; i++) hash = lib_hash_mix(hash, (uint64_t)shapes[i]);
    dlc_context *context = program->context;
    *plan = find_plan(program, hash, shapes, count);
    if (*plan) {
        atomic_fetch_add_explicit(&context->plan_hits, 1, memory_order_relaxed);
        return DLC_OK;
    }
    lib_mutex_lock(&program->mutex);
    *plan = find_plan(program, hash, shapes, count);
    dlc_status status = DLC_OK;
    if (!*plan) {
        status = run_init(program, error);
        if (status == DLC_OK)
            status = jit_plan_build(program, program->graph, program->ordinary_inputs, program->init_values, shapes, count, plan,
                                    error);
        if (status == DLC_OK) {
            (*plan)->hash = hash;
            insert_plan(program, *plan);
            while (jit_cache_over_budget(context) && program->plan_count > 1) retire_oldest(program);
        }
    }
    lib_mutex_unlock(&program->mutex);
    return status;
}

void dlc_program_destroy(dlc_program *program) {
    if (!program) return;
    const dlc_allocator allocator = program->context->allocator;
    for (uint32_t i = 0; i < program->table_size && program->table; i++) jit_plan_free(atomic_load(&program->table[i]));
    free_plan_list(program->retired[0]);
    free_plan_list(program->retired[1]);
    jit_plan_free(program->init_plan);
    if (program->init_values) {
        for (uint32_t o = 0; o < program->init->outputs.count; o++)
            lib_release(&allocator, (void *)(uintptr_t)program->init_values[o].bytes, program->init_values[o].size,
                        TIR_BUFFER_ALIGNMENT);
        lib_release(&allocator, program->init_values, (program->init->outputs.count + 1) * sizeof(graph_constant), 16);
    }
    for (jit_packed *packed = program->packed, *next; packed; packed = next) {
        next = packed->next;
        lib_release(&allocator, packed->bytes, packed->size, TIR_BUFFER_ALIGNMENT);
        lib_release(&allocator, packed, sizeof *packed, 16);
    }
    lib_release(&allocator, program->table, program->table_size * sizeof *program->table, 64);
    lib_arena_free(&program->arena);
    lib_mutex_destroy(&program->mutex);
    lib_release(&allocator, program, sizeof *program, 64);
}

/* ---- questions */

static bool no_program(const dlc_program *program) { return !program || !program->graph; }

int dlc_program_input_count(const dlc_program *program) { return no_program(program) ? 0 : program->ordinary_inputs; }
int dlc_program_output_count(const dlc_program *program) {
    return no_program(program) ? 0 : (int)program->graph->outputs.count;
}
const char *dlc_program_input_name(const dlc_program *program, int input) {
    if (no_program(program) || input < 0 || input >= program->ordinary_inputs) return NULL;
    return program->graph->values.data[program->graph->inputs.data[input]].name;
}
const char *dlc_program_output_name(const dlc_program *program, int output) {
    if (no_program(program) || output < 0 || output >= (int)program->graph->outputs.count) return NULL;
    return program->graph->output_names.data[output];
}
void dlc_program_profile(dlc_program *program, int on) {
    if (program) atomic_store(&program->profile, on);
}

dlc_status dlc_program_alias(dlc_program *program, int output, int input) {
    lib_error error;
    if (no_program(program)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_program_alias: the program is NULL");
        return jit_fail(NULL, &error);
    }
    const graph *g = program->graph;
    if (output < 0 || output >= (int)g->outputs.count || input < 0 || input >= program->ordinary_inputs) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_program_alias: output %d of %d, input %d of %d do not exist", output,
                 (int)g->outputs.count, input, program->ordinary_inputs);
        return jit_fail(program->context, &error);
    }
    const graph_shape *out = graph_shape_of(g, g->outputs.data[output]), *in = graph_shape_of(g, g->inputs.data[input]);
    bool same = out->dtype == in->dtype && out->rank == in->rank;
    for (int d = 0; d < in->rank && same; d++) same = tir_equal(g->pool, out->dim[d], in->dim[d]) != TIR_NO;
    if (!same) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_program_alias: output %d and input %d differ in dtype or shape", output, input);
        return jit_fail(program->context, &error);
    }
    program->alias[output] = input;
    return DLC_OK;
}

/* ---- run: everything is checked before anything is touched */

enum { FAST_TENSORS = 24, FAST_DIMENSIONS = 128 };

typedef struct call {
    dlc_program *program;
    const DLTensor *const *inputs;
    dlc_output_slot *outputs;
    int input_count, output_count;
    char **input_data, **output_data;
    DLManagedTensorVersioned **staged; /* [inputs + outputs] compact copies of strided tensors; or NULL */
    int64_t *shapes;
    int shape_count;
} call;

static dlc_status check_tensor(const DLTensor *tensor, const char *what, const char *name, const graph_shape *wanted,
                               lib_error *error) {
    dlc_dtype dtype;
    if (!tensor) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s %s is NULL", what, name);
    if (tensor->device.device_type != kDLCPU && tensor->device.device_type != kDLCUDAHost)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s %s is on device type %d; this target takes host memory", what, name,
                        (int)tensor->device.device_type);
    if (!lib_dtype_from_dlpack(tensor->dtype, &dtype) || dtype != wanted->dtype)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s %s has DLPack dtype (code %d, %d bits, %d lanes), expected %s", what, name,
                        tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes, lib_dtypes[wanted->dtype].name);
    if (tensor->ndim != wanted->rank)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s %s has rank %d, expected %d", what, name, (int)tensor->ndim, wanted->rank);
    if (tensor->ndim && !tensor->shape) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s %s has no shape array", what, name);
    int64_t count;
    if (!lib_tensor_count(tensor, &count))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s %s has a negative dimension or its size overflows", what, name);
    if (count && !tensor->data) return lib_fail(error, DLC_INVALID_ARGUMENT, "%s %s has no data", what, name);
    return DLC_OK;
}

static char *first_element(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

static dlc_status stage(call *c, int slot, const DLTensor *like, lib_error *error) {
    dlc_context *context = c->program->context;
    if (!c->staged) {
        size_t size = (size_t)(c->input_count + c->output_count) * sizeof *c->staged;
        c->staged = lib_allocate_zeroed(&context->allocator, size, 16);
        if (!c->staged) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_run: staging of strided tensors was refused");
    }
    dlc_dtype dtype;
    lib_dtype_from_dlpack(like->dtype, &dtype);
    c->staged[slot] = lib_tensor_new(&context->allocator, dtype, like->ndim, like->shape, TIR_BUFFER_ALIGNMENT);
    if (!c->staged[slot]) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_run: a compact copy of a strided tensor was refused");
    return DLC_OK;
}

static dlc_status check_inputs(call *c, lib_error *error) {
    const graph *g = c->program->graph;
    if (c->input_count != c->program->ordinary_inputs || (c->input_count && !c->inputs))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_run: %d inputs were given, the program takes %d", c->input_count,
                        c->program->ordinary_inputs);
    if (c->output_count != (int)g->outputs.count || (c->output_count && !c->outputs))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_run: %d outputs were given, the program has %d", c->output_count,
                        (int)g->outputs.count);
    for (int i = 0; i < c->input_count; i++) {
        const graph_value *wanted = &g->values.data[g->inputs.data[i]];
        const DLTensor *tensor = c->inputs[i];
        LIB_TRY(check_tensor(tensor, "input", wanted->name, &wanted->shape, error));
        for (int d = 0; d < tensor->ndim; d++) c->shapes[c->shape_count++] = tensor->shape[d];
        c->input_data[i] = first_element(tensor);
        if (lib_tensor_is_compact(tensor)) continue;
        LIB_TRY(stage(c, i, tensor, error));
        lib_tensor_copy(&c->staged[i]->dl_tensor, tensor);
        c->input_data[i] = c->staged[i]->dl_tensor.data;
    }
    return DLC_OK;
}

static dlc_status check_overlap(const call *c, int output, const DLTensor *tensor, lib_error *error) {
    const char *low, *high, *other_low, *other_high;
    const graph *g = c->program->graph;
    lib_tensor_extent(tensor, &low, &high);
    for (int i = 0; i < c->input_count; i++) {
        if (c->program->alias[output] == i && first_element(c->inputs[i]) == first_element(tensor)) continue;
        lib_tensor_extent(c->inputs[i], &other_low, &other_high);
        if (low < other_high && other_low < high)
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "output %s overlaps input %s; donate the input with dlc_program_alias to allow it",
                            g->output_names.data[output], g->values.data[g->inputs.data[i]].name);
    }
    for (int o = 0; o < output; o++) {
        if (!c->outputs[o].tensor) continue;
        lib_tensor_extent(c->outputs[o].tensor, &other_low, &other_high);
        if (low < other_high && other_low < high)
            return lib_fail(error, DLC_INVALID_ARGUMENT, "outputs %s and %s overlap", g->output_names.data[output],
                            g->output_names.data[o]);
    }
    return DLC_OK;
}

static dlc_status check_outputs(call *c, const jit_plan *plan, lib_error *error) {
    const graph *g = c->program->graph;
    for (int o = 0; o < c->output_count; o++) {
        const graph_shape *wanted = graph_shape_of(g, g->outputs.data[o]);
        const int64_t *shape = &plan->output_shapes[o * DLC_MAX_RANK];
        dlc_output_slot *slot = &c->outputs[o];
        const char *name = g->output_names.data[o];
        if (!slot->tensor) {
            slot->managed = lib_tensor_new(&c->program->context->allocator, wanted->dtype, wanted->rank, shape, TIR_BUFFER_ALIGNMENT);
            if (!slot->managed) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_run: output %s was refused", name);
            c->output_data[o] = slot->managed->dl_tensor.data;
            continue;
        }
        LIB_TRY(check_tensor(slot->tensor, "output", name, wanted, error));
        for (int d = 0; d < wanted->rank; d++)
            if (slot->tensor->shape[d] != shape[d])
                return lib_fail(error, DLC_INVALID_ARGUMENT, "output %s: dimension %d is %lld, expected %lld", name, d,
                                (long long)slot->tensor->shape[d], (long long)shape[d]);
        LIB_TRY(check_overlap(c, o, slot->tensor, error));
        int donated = c->program->alias[o];
        bool in_place = donated >= 0 && first_element(c->inputs[donated]) == first_element(slot->tensor);
        c->output_data[o] = first_element(slot->tensor);
        if (lib_tensor_is_compact(slot->tensor) && !in_place) continue;
        LIB_TRY(stage(c, c->input_count + o, slot->tensor, error));
        c->output_data[o] = c->staged[c->input_count + o]->dl_tensor.data;
    }
    return DLC_OK;
}

static void finish(call *c, dlc_status status) {
    for (int o = 0; o < c->output_count && c->outputs; o++) {
        DLManagedTensorVersioned *copy = c->staged ? c->staged[c->input_count + o] : NULL;
        if (copy && status == DLC_OK) lib_tensor_copy(c->outputs[o].tensor, &copy->dl_tensor);
        if (status != DLC_OK && !c->outputs[o].tensor && c->outputs[o].managed) {
            c->outputs[o].managed->deleter(c->outputs[o].managed);
            c->outputs[o].managed = NULL;
        }
    }
    if (!c->staged) return;
    int total = c->input_count + c->output_count;
    for (int i = 0; i < total; i++)
        if (c->staged[i]) c->staged[i]->deleter(c->staged[i]);
    lib_release(&c->program->context->allocator, c->staged, (size_t)total * sizeof *c->staged, 16);
}

static dlc_status run_checked(call *c, const dlc_run_options *options, lib_error *error) {
    dlc_program *program = c->program;
    dlc_status status = check_inputs(c, error);
    if (status != DLC_OK) return status;
    unsigned side = reader_enter(program);
    jit_plan *plan;
    status = plan_for(program, c->shapes, c->shape_count, &plan, error);
    if (status == DLC_OK) {
        uint64_t tick = atomic_fetch_add_explicit(&program->context->runs, 1, memory_order_relaxed);
        atomic_store_explicit(&plan->last_use, tick, memory_order_relaxed);
        status = check_outputs(c, plan, error);
        if (status == DLC_OK)
            status = jit_plan_run(program, plan, c->input_data, c->output_data, options ? options->cancel : NULL, error);
    }
    reader_leave(program, side);
    return status;
}

dlc_status dlc_run(dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs, int input_count,
                   dlc_output_slot *outputs, int output_count) {
    lib_error error;
    char *data[FAST_TENSORS];
    int64_t shapes[FAST_DIMENSIONS];
    if (no_program(program) || (options && options->struct_size != sizeof *options)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_run: %s",
                 no_program(program) ? "the program is NULL" : "options.struct_size is wrong (use DLC_RUN_OPTIONS_INIT)");
        return jit_fail(program ? program->context : NULL, &error);
    }
    call c = {.program = program, .inputs = inputs, .outputs = outputs, .input_count = input_count, .output_count = output_count};
    for (int o = 0; o < output_count && outputs; o++) outputs[o].managed = NULL;
    size_t tensors = (size_t)program->ordinary_inputs + program->graph->outputs.count;
    size_t dimensions = (size_t)program->ordinary_inputs * DLC_MAX_RANK;
    const dlc_allocator *allocator = &program->context->allocator;
    bool fast = tensors <= FAST_TENSORS && dimensions <= FAST_DIMENSIONS;
    size_t heap = tensors * sizeof(char *) + dimensions * sizeof(int64_t);
    char **many = fast ? data : lib_allocate(allocator, heap, 16);
    dlc_status status;
    if (!many) {
        status = lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_run: %zu bytes were refused", heap);
    } else {
        c.input_data = many;
        c.output_data = many + program->ordinary_inputs;
        c.shapes = fast ? shapes : (int64_t *)(void *)(many + tensors);
        status = run_checked(&c, options, &error);
        finish(&c, status);
        if (!fast) lib_release(allocator, many, heap, 16);
    }
    return status == DLC_OK ? DLC_OK : jit_fail(program->context, &error);
}

/* ---- shapes without tensors */

static dlc_status gather_shapes(const dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count,
                                int64_t *out, int limit, int *count, lib_error *error) {
    const graph *g = program->graph;
    *count = 0;
    if (input_count != program->ordinary_inputs || (input_count && (!shapes || !ranks)))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%d input shapes were given, the program takes %d inputs", input_count,
                        program->ordinary_inputs);
    for (int i = 0; i < input_count; i++) {
        const graph_value *wanted = &g->values.data[g->inputs.data[i]];
        if (ranks[i] != wanted->shape.rank)
            return lib_fail(error, DLC_INVALID_ARGUMENT, "input %s has rank %d, expected %d", wanted->name, ranks[i],
                            wanted->shape.rank);
        for (int d = 0; d < ranks[i]; d++) {
            if (!shapes[i] || shapes[i][d] < 0)
                return lib_fail(error, DLC_INVALID_ARGUMENT, "input %s: dimension %d is missing or negative", wanted->name, d);
            if (*count < limit) out[(*count)++] = shapes[i][d];
        }
    }
    return DLC_OK;
}

/* A plan for shapes, held by the returned reader side. */
static dlc_status plan_of_shapes(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count,
                                 jit_plan **plan, unsigned *side, lib_error *error) {
    size_t limit = (size_t)program->ordinary_inputs * DLC_MAX_RANK + 1;
    int64_t *all = lib_allocate(&program->context->allocator, limit * sizeof *all, 16);
    int count;
    *side = reader_enter(program);
    dlc_status status = all ? gather_shapes(program, shapes, ranks, input_count, all, (int)limit, &count, error)
                            : lib_fail(error, DLC_OUT_OF_MEMORY, "%zu bytes were refused", limit * sizeof *all);
    if (status == DLC_OK) status = plan_for(program, all, count, plan, error);
    lib_release(&program->context->allocator, all, limit * sizeof *all, 16);
    return status;
}

dlc_status dlc_prepare(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count) {
    lib_error error;
    if (no_program(program)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_prepare: the program is NULL");
        return jit_fail(NULL, &error);
    }
    jit_plan *plan;
    unsigned side;
    dlc_status status = plan_of_shapes(program, shapes, ranks, input_count, &plan, &side, &error);
    reader_leave(program, side);
    return status == DLC_OK ? DLC_OK : jit_fail(program->context, &error);
}

dlc_status dlc_output_shape(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count, int output,
                            int *rank, int64_t *shape) {
    lib_error error;
    if (no_program(program) || !rank || !shape || output < 0 || output >= dlc_program_output_count(program)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_output_shape: a NULL argument, or output %d does not exist", output);
        return jit_fail(program ? program->context : NULL, &error);
    }
    jit_plan *plan;
    unsigned side;
    dlc_status status = plan_of_shapes(program, shapes, ranks, input_count, &plan, &side, &error);
    if (status == DLC_OK) {
        *rank = plan->output_ranks[output];
        memcpy(shape, &plan->output_shapes[output * DLC_MAX_RANK], (size_t)*rank * sizeof *shape);
    }
    reader_leave(program, side);
    return status == DLC_OK ? DLC_OK : jit_fail(program->context, &error);
}

dlc_status jit_hold_plan(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count, jit_plan **plan,
                         unsigned *side, lib_error *error) {
    return plan_of_shapes(program, shapes, ranks, input_count, plan, side, error);
}

void jit_release_plan(dlc_program *program, unsigned side) { reader_leave(program, side); }
