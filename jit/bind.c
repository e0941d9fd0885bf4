/* Binding: shapes -> plan. The graph is re-emitted with the sizes at hand, simplified and cut into regions; each region's kernel
 * comes from the cache or is compiled; values get places; the result is a list of steps that a run follows without thinking. */
#include "jit/internal.h"

bool jit_is_constant(void *user, graph_id value) {
    const jit_build *build = user;
    return build->constant[value];
}

int64_t jit_dimension(jit_build *build, tir_expr dimension) {
    int64_t value;
    if (tir_is_const(build->bound->pool, dimension, &value)) return value;
    tir_evaluator evaluator = {.variables = build->variables};
    return (int64_t)tir_evaluate(build->bound->pool, dimension, &evaluator);
}

size_t jit_value_bytes(jit_build *build, graph_id value) {
    const graph_shape *shape = graph_shape_of(build->bound, value);
    size_t bytes = lib_dtype_size(shape->dtype);
    for (int d = 0; d < shape->rank; d++) {
        int64_t n = jit_dimension(build, shape->dim[d]);
        if (n < 0 || !lib_size_multiply(bytes, (size_t)n, &bytes) || bytes > (size_t)1 << 46)
            lib_raise(build->work->scope, DLC_INVALID_ARGUMENT, "a value of operator %s is larger than 2^46 bytes at these shapes",
                      graph_node_of(build->bound, value)->op->name);
    }
    return bytes;
}

/* ---- 1. symbols from shapes */

static void bind_symbols(jit_build *build, const graph *g, const int64_t *shapes, int64_t *values) {
    lib_scope *scope = build->work->scope;
    for (uint32_t s = 0; s < g->symbols.count; s++) values[s] = INT64_MIN;
    const int64_t *at = shapes;
    for (int i = 0; i < build->ordinary_inputs; i++) {
        const graph_value *input = &g->values.data[g->inputs.data[i]];
        for (int d = 0; d < input->shape.rank; d++, at++) {
            int64_t fixed;
            if (tir_is_const(g->pool, input->shape.dim[d], &fixed)) {
                if (fixed != *at)
                    lib_raise(scope, DLC_INVALID_ARGUMENT, "input %s: dimension %d is %lld, expected %lld", input->name, d,
                              (long long)*at, (long long)fixed);
                continue;
            }
            for (uint32_t s = 0; s < g->symbols.count; s++) {
                if (g->symbols.data[s].var != input->shape.dim[d]) continue;
                const tir_variable *symbol = tir_variable_of(g->pool, g->symbols.data[s].var);
                if (values[s] != INT64_MIN && values[s] != *at)
                    lib_raise(scope, DLC_INVALID_ARGUMENT,
                              "input %s: dimension %d is %lld, but symbol %s is already bound to %lld by an earlier dimension",
                              input->name, d, (long long)*at, g->symbols.data[s].name, (long long)values[s]);
                if (*at < symbol->low || *at > symbol->high || *at % symbol->multiple)
                    lib_raise(scope, DLC_INVALID_ARGUMENT,
                              "input %s: dimension %d is %lld, but symbol %s was promised to be %lld..%lld and a multiple of %lld",
                              input->name, d, (long long)*at, g->symbols.data[s].name, (long long)symbol->low,
                              (long long)symbol->high, (long long)symbol->multiple);
                values[s] = *at;
            }
        }
    }
    for (uint32_t s = 0; s < g->symbols.count; s++)
        if (values[s] == INT64_MIN)
            lib_raise(scope, DLC_INVALID_ARGUMENT, "symbol %s is no dimension of any input: its size cannot be known",
                      g->symbols.data[s].name);
}

/* A symbol that has shown more than four values, or that the host said varies, stays a parameter of the kernels. The caller holds
 * the program's mutex. */
static void keep_varying(dlc_program *program, const graph *g, const int64_t *values, int64_t *bound_to) {
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        bound_to[s] = values[s];
        bool known = false;
        for (int i = 0; i < program->symbols[s].count; i++) known = known || program->symbols[s].value[i] == values[s];
        if (!known && program->symbols[s].count < 4) program->symbols[s].value[program->symbols[s].count++] = values[s];
        else if (!known) program->symbols[s].varying = true;
        if (program->symbols[s].varying || g->symbols.data[s].varies) bound_to[s] = INT64_MIN;
    }
}

static void bind_graph(jit_build *build, const graph *g, const int64_t *shapes) {
    dlc_program *program = build->program;
    int64_t *values = LIB_NEW_ARRAY(build->work, int64_t, g->symbols.count + 1);
    int64_t *bound_to = LIB_NEW_ARRAY(build->work, int64_t, g->symbols.count + 1);
    bind_symbols(build, g, shapes, values);
    keep_varying(program, g, values, bound_to);
    graph *bound = graph_bind(build->work, g, bound_to);
    if (!lib_environment_lists(LIB_ENV_DISABLE, "simplify")) bound = graph_simplify(&build->plan->arena, bound);
    build->bound = build->plan->bound = bound;
    /* the kept symbols' values: variables of the bound graph's pool, and kernel parameters in symbol order */
    build->variables = LIB_NEW_ARRAY(build->work, uint64_t, bound->pool->variables.count + 1);
    build->param_values = LIB_NEW_ARRAY(&build->plan->arena, int64_t, bound->symbols.count + 1);
    for (uint32_t s = 0; s < bound->symbols.count; s++)
        for (uint32_t o = 0; o < g->symbols.count; o++)
            if (strcmp(g->symbols.data[o].name, bound->symbols.data[s].name) == 0) {
                build->param_values[s] = values[o];
                build->variables[tir_var_id(bound->pool, bound->symbols.data[s].var)] = (uint64_t)values[o];
            }
    for (uint32_t c = 0; c < bound->constraints.count; c++)
        if (jit_dimension(build, bound->constraints.data[c].left) != jit_dimension(build, bound->constraints.data[c].right))
            lib_raise(build->work->scope, DLC_INVALID_ARGUMENT, "%s", bound->constraints.data[c].message);
}

/* ---- 2. regions and kernels */

static void place_sources(jit_build *build) {
    const graph *g = build->bound;
    build->constant = LIB_NEW_ARRAY(build->work, bool, g->values.count + 1);
    build->produced = LIB_NEW_ARRAY(build->work, bool, g->values.count + 1);
    build->place = LIB_NEW_ARRAY(build->work, jit_place, g->values.count + 1);
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        jit_place *place = &build->place[g->inputs.data[i]];
        if ((int)i < build->ordinary_inputs) {
            *place = (jit_place){.kind = JIT_PLACE_INPUT, .number = (int32_t)i};
        } else {
            *place = (jit_place){.kind = JIT_PLACE_CONSTANT,
                                 .pointer = (void *)(uintptr_t)build->init_values[(int)i - build->ordinary_inputs].bytes};
            build->constant[g->inputs.data[i]] = true;
        }
    }
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (strcmp(node->op->name, "constant") != 0) continue;
        int which = graph_op_attribute(node->op, "value");
        const graph_constant *constant = &g->constants.data[node->attribute[which].integer];
        build->place[node->first] = (jit_place){.kind = JIT_PLACE_CONSTANT, .pointer = (void *)(uintptr_t)constant->bytes};
        build->constant[node->first] = true;
    }
}

static bool region_is_empty(jit_build *build, const graph_region *region) {
    for (uint32_t o = 0; o < region->output_count; o++)
        if (jit_value_bytes(build, region->outputs[o]) > 0) return false;
    return true;
}

static void request_kernels(jit_build *build) {
    dlc_context *context = build->program->context;
    const tir_machine *machine = lib_environment_lists(LIB_ENV_DISABLE, "fuse") ? NULL : &context->machine;
    build->regions = build->plan->regions = graph_fuse(&build->plan->arena, build->bound, machine);
    build->requests = LIB_NEW_ARRAY(build->work, jit_request, build->regions.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        for (uint32_t o = 0; o < region->output_count && region->kind != GRAPH_REGION_VIEW; o++)
            build->produced[region->outputs[o]] = true;
        if (region->kind != GRAPH_REGION_KERNEL || region_is_empty(build, region)) continue;
        tir_region *computation = graph_region_build(build->work, build->bound, region, jit_is_constant, build);
        jit_key key = jit_region_key(build->program, computation);
        jit_request *request = &build->requests[build->request_count];
        request->region = region;
        request->kernel = jit_cache_claim(context, &key, &request->claimed);
        if (!request->kernel) lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "the kernel cache could not grow");
        build->request_count++;
    }
}

/* ---- 3. constants in the layouts that kernels want */

static void pack(const jit_build *build, const tir_layout *layout, dlc_dtype dtype, const int64_t *shape, const char *from,
                 char *to) {
    (void)build;
    size_t size = lib_dtype_size(dtype);
    int64_t extent[TIR_MAX_PHYSICAL], stride[TIR_MAX_PHYSICAL], index[DLC_MAX_RANK] = {0}, count = 1;
    for (int p = 0; p < layout->count; p++) {
        const tir_layout_part *part = &layout->part[p];
        int64_t outer = (shape[part->dim] + part->divisor - 1) / part->divisor;
        extent[p] = part->modulus ? part->modulus : outer;
    }
    int64_t step = 1;
    for (int p = layout->count - 1; p >= 0; p--) {
        stride[p] = step;
        step *= extent[p];
    }
    for (int d = 0; d < layout->rank; d++) count *= shape[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int p = 0; p < layout->count; p++) {
            int64_t value = index[layout->part[p].dim] / layout->part[p].divisor;
            at += (layout->part[p].modulus ? value % layout->part[p].modulus : value) * stride[p];
        }
        memcpy(to + (size_t)at * size, from + (size_t)i * size, size);
        for (int d = layout->rank - 1; d >= 0 && ++index[d] == shape[d]; d--) index[d] = 0;
    }
}

static size_t packed_bytes(const tir_layout *layout, dlc_dtype dtype, const int64_t *shape) {
    size_t bytes = lib_dtype_size(dtype);
    for (int p = 0; p < layout->count; p++) {
        const tir_layout_part *part = &layout->part[p];
        bytes *= (size_t)(part->modulus ? part->modulus : (shape[part->dim] + part->divisor - 1) / part->divisor);
    }
    return bytes;
}

static void *packed_constant(jit_build *build, graph_id value, const tir_layout *layout) {
    dlc_program *program = build->program;
    char *from = build->place[value].pointer;
    if (tir_layout_is_identity(layout)) return from;
    uint64_t identity = (uint64_t)(uintptr_t)from;
    for (jit_packed *p = program->packed; p; p = p->next)
        if (p->identity == identity && tir_layout_equal(&p->layout, layout)) return p->bytes;
    const graph_shape *shape = graph_shape_of(build->bound, value);
    int64_t dims[DLC_MAX_RANK];
    for (int d = 0; d < shape->rank; d++) dims[d] = jit_dimension(build, shape->dim[d]);
    jit_packed *packed = lib_allocate_zeroed(&program->context->allocator, sizeof *packed, 16);
    if (!packed) lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "a packed constant was refused");
    packed->size = packed_bytes(layout, shape->dtype, dims);
    packed->bytes = lib_allocate_zeroed(&program->context->allocator, packed->size, TIR_BUFFER_ALIGNMENT);
    if (!packed->bytes) {
        lib_release(&program->context->allocator, packed, sizeof *packed, 16);
        lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "a packed constant of %zu bytes was refused", packed->size);
    }
    packed->identity = identity;
    packed->layout = *layout;
    pack(build, layout, shape->dtype, dims, from, packed->bytes);
    packed->next = program->packed;
    program->packed = packed;
    return packed->bytes;
}

/* ---- 4. steps */

static void ask_for_scratch(jit_build *build) {
    dlc_context *context = build->program->context;
    build->scratch = LIB_NEW_ARRAY(build->work, jit_scratch, 2 * build->request_count + 1);
    build->plan->calls = LIB_NEW_ARRAY(&build->plan->arena, jit_call, build->request_count + 1);
    for (uint32_t i = 0; i < build->request_count; i++) {
        const jit_kernel *kernel = build->requests[i].kernel;
        jit_call *call = &build->plan->calls[i];
        uint32_t region = (uint32_t)(build->requests[i].region - build->regions.data);
        call->kernel = build->requests[i].kernel;
        call->workspace = call->local = -1;
        call->local_stride = (kernel->local_bytes + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
        if (kernel->workspace_bytes)
            build->scratch[build->scratch_count++] = (jit_scratch){region, kernel->workspace_bytes, &call->workspace};
        if (kernel->local_bytes)
            build->scratch[build->scratch_count++] = (jit_scratch){region, call->local_stride * context->width, &call->local};
    }
}

static jit_tensor describe_tensor(jit_build *build, graph_id value) {
    const graph_shape *shape = graph_shape_of(build->bound, value);
    jit_tensor tensor = {.place = build->place[value], .dtype = shape->dtype, .rank = shape->rank,
                         .bytes = jit_value_bytes(build, value)};
    for (int d = 0; d < shape->rank; d++) tensor.shape[d] = jit_dimension(build, shape->dim[d]);
    lib_strides_compact(tensor.rank, tensor.shape, tensor.strides);
    return tensor;
}

static int64_t phase_tasks(jit_build *build, const jit_kernel *kernel, const jit_kernel_phase *phase) {
    if (phase->constant_tasks >= 0) return phase->constant_tasks;
    uint64_t *variables = LIB_NEW_ARRAY(build->work, uint64_t, kernel->pool->variables.count + 1);
    for (int p = 0; p < kernel->param_count; p++)
        variables[tir_var_id(kernel->pool, kernel->params[p])] = (uint64_t)build->param_values[p];
    tir_evaluator evaluator = {.variables = variables};
    return (int64_t)tir_evaluate(kernel->pool, phase->tasks, &evaluator);
}

static int add_slot(jit_build *build, jit_place place) {
    jit_plan *plan = build->plan;
    plan->slots[plan->slot_count] = place;
    if (place.kind == JIT_PLACE_INPUT || place.kind == JIT_PLACE_OUTPUT)
        plan->run_slots[plan->run_slot_count++] = plan->slot_count;
    return plan->slot_count++;
}

static void add_call(jit_build *build, uint32_t number, jit_step *step, lib_phase *phases, int32_t *phase_call,
                     int32_t *phase_index) {
    jit_call *call = &build->plan->calls[number];
    const jit_request *request = &build->requests[number];
    const graph_region *region = request->region;
    jit_kernel *kernel = request->kernel;
    call->arguments = (int)(region->input_count + region->output_count);
    call->first_slot = (uint32_t)build->plan->slot_count;
    call->params = build->param_values;
    call->name = kernel->name;
    for (uint32_t i = 0; i < region->input_count; i++) {
        jit_place place = build->place[region->inputs[i]];
        if (build->constant[region->inputs[i]])
            place.pointer = packed_constant(build, region->inputs[i], &kernel->input_layouts[i]);
        add_slot(build, place);
    }
    for (uint32_t o = 0; o < region->output_count; o++) add_slot(build, build->place[region->outputs[o]]);
    for (int p = 0; p < kernel->phase_count; p++) {
        int64_t tasks = phase_tasks(build, kernel, &kernel->phases[p]);
        if (tasks <= 0) continue;
        phases[step->phases] = (lib_phase){.tasks = tasks, .grain = 1};
        phase_call[step->phases] = (int32_t)number;
        phase_index[step->phases++] = p;
    }
}

static void graph_tensors(jit_build *build, const graph_region *region, jit_step *step) {
    lib_arena *arena = &build->plan->arena;
    step->node = &build->bound->nodes.data[region->nodes[0]];
    step->inputs = LIB_NEW_ARRAY(arena, jit_tensor, (size_t)step->node->inputs + 1);
    step->outputs = LIB_NEW_ARRAY(arena, jit_tensor, (size_t)step->node->results + 1);
    step->input_count = step->node->inputs;
    step->output_count = step->node->results;
    for (int i = 0; i < step->node->inputs; i++)
        if (step->node->input[i]) step->inputs[i] = describe_tensor(build, step->node->input[i]);
    for (int o = 0; o < step->node->results; o++)
        step->outputs[o] = describe_tensor(build, step->node->first + (graph_id)o);
}

static void make_steps(jit_build *build) {
    jit_plan *plan = build->plan;
    lib_arena *arena = &plan->arena;
    uint32_t slots = 0, phases = 0;
    for (uint32_t i = 0; i < build->request_count; i++) {
        slots += build->requests[i].region->input_count + build->requests[i].region->output_count;
        phases += (uint32_t)build->requests[i].kernel->phase_count;
    }
    plan->slots = LIB_NEW_ARRAY(arena, jit_place, slots + 1);
    plan->run_slots = LIB_NEW_ARRAY(arena, int, slots + 1);
    plan->steps = LIB_NEW_ARRAY(arena, jit_step, build->regions.count + build->bound->outputs.count + 1);
    lib_phase *phase = LIB_NEW_ARRAY(arena, lib_phase, phases + 1);
    int32_t *phase_call = LIB_NEW_ARRAY(arena, int32_t, phases + 1), *phase_index = LIB_NEW_ARRAY(arena, int32_t, phases + 1);
    jit_step *open = NULL; /* kernels in a row are one step: one run of phases */
    uint32_t request = 0;
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        if (region->kind == GRAPH_REGION_VIEW) continue;
        if (region->kind == GRAPH_REGION_KERNEL) {
            if (request == build->request_count || build->requests[request].region != region) continue; /* empty */
            if (!open) {
                open = &plan->steps[plan->step_count++];
                *open = (jit_step){.kind = JIT_STEP_KERNELS, .phase = phase, .phase_call = phase_call, .phase_index = phase_index};
            }
            int64_t before = open->phases;
            add_call(build, request++, open, (lib_phase *)(uintptr_t)open->phase, (int32_t *)(uintptr_t)open->phase_call,
                     (int32_t *)(uintptr_t)open->phase_index);
            phase += open->phases - before;
            phase_call += open->phases - before;
            phase_index += open->phases - before;
            continue;
        }
        open = NULL;
        jit_step *step = &plan->steps[plan->step_count++];
        step->kind = region->kind == GRAPH_REGION_OPAQUE ? JIT_STEP_CUSTOM
                     : strcmp(build->bound->nodes.data[region->nodes[0]].op->name, "if") == 0 ? JIT_STEP_IF
                                                                                              : JIT_STEP_WHILE;
        graph_tensors(build, region, step);
        if (step->kind != JIT_STEP_CUSTOM) jit_bind_control(build, step);
    }
    plan->call_count = (int)build->request_count;
}

/* Outputs that no region writes (inputs, constants, a value that is already another output) are copied last. */
static void copy_outputs(jit_build *build) {
    jit_plan *plan = build->plan;
    const graph *g = build->bound;
    plan->output_shapes = LIB_NEW_ARRAY(&plan->arena, int64_t, (size_t)g->outputs.count * DLC_MAX_RANK + 1);
    plan->output_ranks = LIB_NEW_ARRAY(&plan->arena, int, g->outputs.count + 1);
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        jit_tensor source = describe_tensor(build, g->outputs.data[o]);
        plan->output_ranks[o] = source.rank;
        memcpy(&plan->output_shapes[o * DLC_MAX_RANK], source.shape, sizeof source.shape);
        if ((source.place.kind == JIT_PLACE_OUTPUT && source.place.number == (int32_t)o) || !source.bytes) continue;
        jit_step *step = &plan->steps[plan->step_count++];
        *step = (jit_step){.kind = JIT_STEP_COPY, .input_count = 1, .output_count = 1};
        step->inputs = LIB_NEW(&plan->arena, jit_tensor);
        step->outputs = LIB_NEW(&plan->arena, jit_tensor);
        *step->inputs = *step->outputs = source;
        step->outputs->place = (jit_place){.kind = JIT_PLACE_OUTPUT, .number = (int32_t)o};
    }
}

/* ---- all of it */

void jit_plan_bound(jit_build *build) {
    place_sources(build);
    request_kernels(build);
    lib_error error;
    bool failed = jit_build_kernels(build, build->work, &error) != DLC_OK;
    build->built = true;
    if (failed) lib_raise_error(build->work->scope, &error);
    ask_for_scratch(build);
    jit_plan_memory(build);
    make_steps(build);
    copy_outputs(build);
}

/* A failed build gives back what it claimed or pinned. */
static void abandon(jit_build *build, const lib_error *error) {
    dlc_context *context = build->program->context;
    lib_error ignored;
    for (uint32_t i = 0; i < build->request_count; i++) {
        jit_request *request = &build->requests[i];
        if (!build->built) {
            if (request->claimed) jit_cache_fail(context, request->kernel, error);
            request->pinned = jit_cache_pin(context, request->kernel, &ignored) == DLC_OK;
        }
        if (request->pinned) jit_cache_unpin(context, request->kernel);
    }
}

jit_plan *jit_plan_new(dlc_context *context) {
    jit_plan *plan = lib_allocate_zeroed(&context->allocator, sizeof *plan, 64);
    if (!plan) return NULL;
    plan->context = context;
    lib_arena_init(&plan->arena, &context->allocator, &plan->scope);
    return plan;
}

static void build_in_scope(jit_build *build, const graph *g, const int64_t *shapes, int shape_count) {
    jit_plan *plan = build->plan;
    plan->shapes = lib_arena_copy(&plan->arena, shapes, (size_t)shape_count * sizeof *shapes);
    plan->shape_count = shape_count;
    bind_graph(build, g, shapes);
    jit_plan_bound(build);
}

dlc_status jit_plan_build(dlc_program *program, const graph *g, int ordinary_inputs, const graph_constant *init_values,
                          const int64_t *shapes, int shape_count, jit_plan **out, lib_error *error) {
    dlc_context *context = program->context;
    uint64_t start = context->clock_ns(context->clock_user);
    *out = NULL;
    jit_plan *plan = jit_plan_new(context);
    if (!plan) return lib_fail(error, DLC_OUT_OF_MEMORY, "a plan of %zu bytes was refused", sizeof *plan);
    lib_scope scope;
    lib_arena work;
    lib_arena_init(&work, &context->allocator, &scope);
    plan->arena.scope = &scope; /* one scope for everything until the plan is done */
    jit_build build = {.program = program, .plan = plan, .work = &work, .init_values = init_values,
                       .ordinary_inputs = ordinary_inputs};
    if (program->options.budget_ms > 0) build.deadline_ns = start + (uint64_t)program->options.budget_ms * 1000000u;
    dlc_status status = DLC_OK;
    if (LIB_ENTER(&scope)) {
        build_in_scope(&build, g, shapes, shape_count);
    } else {
        *error = scope.error;
        status = scope.error.status;
        abandon(&build, error);
        plan->call_count = 0;
    }
    plan->arena.scope = &plan->scope;
    lib_arena_free(&work);
    if (status == DLC_OK)
        *out = plan;
    else
        jit_plan_free(plan);
    atomic_fetch_add_explicit(&context->compile_ns, context->clock_ns(context->clock_user) - start, memory_order_relaxed);
    atomic_fetch_add_explicit(&context->plan_builds, 1, memory_order_relaxed);
    return status;
}

void jit_plan_free(jit_plan *plan) {
    if (!plan) return;
    dlc_context *context = plan->context;
    for (int i = 0; i < JIT_FRAMES_KEPT; i++) jit_frame_free(plan, atomic_load(&plan->frames[i]));
    for (int i = 0; i < plan->call_count; i++) jit_cache_unpin(context, plan->calls[i].kernel);
    for (int i = 0; i < plan->step_count; i++)
        for (int b = 0; b < 2; b++) jit_plan_free(plan->steps[i].branch[b]);
    lib_arena_free(&plan->arena);
    lib_release(&context->allocator, plan, sizeof *plan, 64);
}
