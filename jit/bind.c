/* Binding: shapes -> plan. The graph is re-emitted with the concrete sizes, simplified and cut into regions; each region's kernel
 * comes from the cache or is compiled; values get storage. The result is a list of steps that a run executes without decisions. */
#include "graph/inference.h"
#include "graph/recompute.h"
#include "jit/internal.h"

bool jit_is_constant(void *user, graph_id value) {
    const jit_build *build = user;
    return build->constant[value] || build->steady[value];
}

int64_t jit_dimension(jit_build *build, tir_expr dimension) {
    int64_t value;
    if (tir_is_const(build->bound->pool, dimension, &value)) return value;
    tir_evaluator evaluator = {.variables = build->variables};
    return (int64_t)tir_evaluate(build->bound->pool, dimension, &evaluator);
}

size_t jit_value_bytes(jit_build *build, graph_id value) {
    const graph_shape *shape = graph_shape_of(build->bound, value);
    const tir_layout *layout = build->regions.layouts ? build->regions.layouts[value] : NULL;
    size_t bytes = lib_dtype_size(shape->dtype), count = 1;
    for (int d = 0; d < shape->rank; d++, count = bytes / lib_dtype_size(shape->dtype)) {
        int64_t n = jit_dimension(build, shape->dim[d]);
        if (layout && n >= 0) n = tir_layout_padded_size(layout, d, n);
        if (n < 0 || !lib_size_multiply(bytes, (size_t)n, &bytes) || bytes > (size_t)1 << 46)
            lib_raise(build->work->scope, DLC_INVALID_ARGUMENT,
                      "a value of operator %s%s is larger than 2^46 bytes at these shapes",
                      graph_node_of(build->bound, value)->op->name,
                      graph_origins_of_nodes(build->work, build->bound, &build->bound->values.data[value].node, 1));
    }
    return lib_dtype_bytes(shape->dtype, count);
}

/* ---- 1. symbols from shapes */

uint64_t *jit_variables(lib_arena *arena, const graph *g, const int64_t *values) {
    uint64_t *variables = LIB_NEW_ARRAY(arena, uint64_t, g->pool->variables.count + 1);
    for (uint32_t s = 0; s < g->symbols.count; s++)
        variables[tir_var_id(g->pool, g->symbols.data[s].var)] = (uint64_t)values[s];
    return variables;
}

static void bind_symbol(lib_scope *scope, const graph *g, uint32_t s, const char *input, int dimension, int64_t size,
                        int64_t *value) {
    const graph_symbol *symbol = &g->symbols.data[s];
    const tir_variable *promised = tir_variable_of(g->pool, symbol->var);
    if (*value != INT64_MIN && *value != size)
        lib_raise(scope, DLC_INVALID_ARGUMENT,
                  "input %s: dimension %d is %lld, but symbol %s is already bound to %lld by an earlier dimension",
                  input, dimension, (long long)size, symbol->name, (long long)*value);
    if (size < promised->low || size > promised->high || size % promised->multiple)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "input %s: dimension %d is %lld; symbol %s is between %lld and %lld%s",
                  input, dimension, (long long)size, symbol->name, (long long)promised->low, (long long)promised->high,
                  graph_multiple_text(promised->multiple).text);
    *value = size;
}

void jit_bind_symbols(lib_arena *work, const graph *g, int ordinary_inputs, const int64_t *shapes, int64_t *values) {
    for (uint32_t s = 0; s < g->symbols.count; s++) values[s] = INT64_MIN;
    const int64_t *at = shapes;
    const uint32_t *symbols = graph_symbols_by_variable(work, g);
    for (int i = 0; i < ordinary_inputs; i++) {
        const graph_value *input = &g->values.data[g->inputs.data[i]];
        for (int d = 0; d < input->shape.rank; d++, at++) {
            tir_expr dim = input->shape.dim[d];
            uint32_t s = tir_op_of(g->pool, dim) == TIR_VAR ? symbols[tir_var_id(g->pool, dim)] : 0;
            if (s) bind_symbol(work->scope, g, s - 1, input->name, d, *at, &values[s - 1]);
        }
    }
    for (uint32_t s = 0; s < g->symbols.count; s++) { /* symbols that only hints use: any legal value */
        const tir_variable *promised = tir_variable_of(g->pool, g->symbols.data[s].var);
        int64_t multiple = promised->multiple;
        if (values[s] == INT64_MIN) values[s] = (promised->low + multiple - 1) / multiple * multiple;
    }
    at = shapes; /* second pass: dimensions that are numbers or expressions of symbols */
    tir_evaluator evaluator = {.variables = jit_variables(work, g, values)};
    for (int i = 0; i < ordinary_inputs; i++) {
        const graph_value *input = &g->values.data[g->inputs.data[i]];
        for (int d = 0; d < input->shape.rank; d++, at++) {
            int64_t expected = (int64_t)tir_evaluate(g->pool, input->shape.dim[d], &evaluator);
            if (expected != *at)
                lib_raise(work->scope, DLC_INVALID_ARGUMENT, "input %s: dimension %d is %lld, expected %lld",
                          input->name, d, (long long)*at, (long long)expected);
        }
    }
}

/* Kernels size their scratch and their blocks by the largest value of a parameter. So the range is a step of 1024, 16 Ki, 256 Ki ...
 * instead of the host's declared maximum: few kernels, and no scratch for sizes that never occur. With has_short, sizes of up to a
 * vector's length have a range of their own, whose kernels have no blocks of several vectors. */
static int64_t range_limit(int64_t value, int64_t promised, bool has_short) {
    int64_t limit = has_short ? JIT_RANGE_SHORT : JIT_RANGE_FIRST;
    if (limit < value) limit = JIT_RANGE_FIRST;
    while (limit < value) limit *= JIT_RANGE_STEP;
    return limit < promised ? limit : promised;
}

/* Is it the size or the room of a cache, which grows through all sizes from one run to the next? */
static bool grows(const dlc_program *program, const graph *g, uint32_t symbol) {
    bool found = false;
    for (int k = 0; k < program->growth_count && g == program->graph; k++) {
        const graph_growth *growth = &program->growths[k];
        const tir_expr size = graph_shape_of(g, g->inputs.data[growth->input])->dim[growth->axis];
        found = found || growth->room == symbol || tir_uses(g->pool, size, g->symbols.data[symbol].var);
    }
    return found;
}

/* Symbols that the host declared to vary. Others have no short range, so that a stream of sizes never seen takes few builds: their short
 * sizes become exact if they recur. A cache's size would pass through the short range and cost a build in the middle of decoding. */
static bool has_short_range(const dlc_program *program, const graph *g, uint32_t symbol) {
    return g->symbols.data[symbol].varies && !grows(program, g, symbol);
}

/* The least value of a parameter's range: at least 1 unless `value` is 0, so that kernels can rely on it. */
static int64_t range_low(int64_t value, int64_t promised) {
    return value >= 1 && promised < 1 ? 1 : promised;
}

/* g with narrower ranges of symbols. Binding only reads g, so its pool may be a copy in which only the ranges differ. */
static const graph *narrowed(lib_arena *work, const dlc_program *program, const graph *g, const int64_t *values) {
    graph *narrow = lib_arena_copy(work, g, sizeof *g);
    narrow->pool = lib_arena_copy(work, g->pool, sizeof *g->pool);
    tir_variable *variables =
        lib_arena_copy(work, g->pool->variables.data, g->pool->variables.count * sizeof *variables);
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        tir_variable *variable = &variables[tir_var_id(g->pool, g->symbols.data[s].var)];
        if (values[s] == INT64_MIN) continue;
        variable->low = range_low(values[s], variable->low);
        variable->high = range_limit(values[s], variable->high, has_short_range(program, g, s));
    }
    narrow->pool->variables.data = variables;
    return narrow;
}

static graph *simplified(const dlc_program *program, lib_arena *arena, const graph *g, const int64_t *bound_to) {
    bool verify = lib_environment_verify() > 0;
    graph *bound = graph_bind(arena, g, bound_to);
    if (verify) graph_verify(arena->scope, bound);
    if (lib_environment_lists(LIB_ENV_DISABLE, "simplify")) return bound;
    if (!jit_is_as_written(program)) bound = graph_scatter_onto_sums(arena, bound);
    bound = graph_simplify(arena, graph_join_spread(arena, bound));
    if (verify) graph_verify(arena->scope, bound);
    return bound;
}

/* Takes the program's front for these ranges of sizes, if some size stays a parameter (then other sizes will follow) and the graph has no
 * branches. */
static void take_front(jit_build *build, const graph *g, const int64_t *values, const int64_t *bound_to) {
    size_t count = 3 * (size_t)g->symbols.count;
    int64_t *key = LIB_NEW_ARRAY(build->work, int64_t, count + 1);
    bool varies = false;
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        varies = varies || bound_to[s] == INT64_MIN;
        const tir_variable *promised = tir_variable_of(g->pool, g->symbols.data[s].var);
        key[3 * s] = bound_to[s];
        key[3 * s + 1] = range_low(values[s], promised->low);
        key[3 * s + 2] = range_limit(values[s], promised->high, has_short_range(build->program, g, s));
    }
    if (varies && !g->subgraphs.count) jit_front_take(build, key, count);
}

/* Takes the graph that keeps the fewest bytes for the backward sweep, if its greatest number of bytes live at once is at least an eighth smaller. The
 * margin is for what this number leaves out (kernels' scratch, updates in place); a long chain of maps, all of which are computed again, gains less. */
static void keep_least(jit_build *build) {
    jit_build with = *build, without = *build;
    graph *kept = graph_keep_least(build->front ? &build->front->arena : build->work, build->bound);
    with.bound = kept;
    with.variables = jit_variables(build->work, kept, build->param_values);
    for (int k = 0; k < 2; k++) {
        jit_build *tried = k ? &with : &without;
        tried->root = tried;
        tried->front = NULL;
        jit_place_sources(tried);
        jit_fuse(tried);
    }
    const int64_t before = jit_most_live(&without);
    if (jit_most_live(&with) > before - before / 8) return;
    build->bound = kept;
    build->variables = with.variables;
}

/* Sets the values of the symbols that stay parameters: variables of the bound graph's pool, and kernel parameters in symbol order. */
static void set_param_values(jit_build *build, const graph *g, const int64_t *values) {
    const graph *bound = build->bound;
    build->param_values = LIB_NEW_ARRAY(&build->plan->arena, int64_t, bound->symbols.count + 1);
    for (uint32_t s = 0; s < bound->symbols.count; s++) {
        uint32_t own = graph_find_symbol(g, bound->symbols.data[s].name);
        if (own != UINT32_MAX) build->param_values[s] = values[own];
    }
}

static void check_constraints(jit_build *build) {
    const graph *bound = build->bound;
    for (uint32_t c = 0; c < bound->constraints.count; c++)
        if (jit_dimension(build, bound->constraints.data[c].left) !=
            jit_dimension(build, bound->constraints.data[c].right))
            lib_raise(build->work->scope, DLC_INVALID_ARGUMENT, "%s", bound->constraints.data[c].message);
}

void jit_bind_graph(jit_build *build, const graph *g, const int64_t *shapes, bool learn) {
    dlc_program *program = build->program;
    lib_arena *work = build->work;
    int64_t *values = LIB_NEW_ARRAY(work, int64_t, g->symbols.count + 1);
    int64_t *bound_to = LIB_NEW_ARRAY(work, int64_t, g->symbols.count + 1);
    jit_bind_symbols(work, g, build->ordinary_inputs, shapes, values);
    if (g == program->graph) jit_bind_rooms(build, shapes, values);
    jit_sizes_choose(build, g, values, learn && g == program->graph, bound_to);
    if (learn && g == program->graph && !(build->tier & JIT_TIER_BACKGROUND) && !program->options.memory_bytes)
        take_front(build, g, values, bound_to);
    const graph *bound = build->bound = build->front ? build->front->bound : NULL;
    bool recomputes = false;
    if (!bound) {
        const graph *narrow = narrowed(work, program, g, values);
        if (g == program->graph && program->growth_count)
            narrow = graph_give_room(work, narrow, program->growth_count, program->growths);
        bound = build->bound = simplified(program, build->front ? &build->front->arena : work, narrow, bound_to);
        recomputes = program->options.recompute && g == program->graph;
    }
    set_param_values(build, g, values);
    build->variables = jit_variables(work, bound, build->param_values);
    if (recomputes) keep_least(build);
    if (build->front) build->front->bound = build->bound;
    check_constraints(build);
}

/* ---- 2. regions and kernels */

void jit_place_sources(jit_build *build) {
    const graph *g = build->bound;
    build->constant = LIB_NEW_ARRAY(build->work, bool, g->values.count + 1);
    build->steady = LIB_NEW_ARRAY(build->work, bool, g->values.count + 1);
    build->produced = LIB_NEW_ARRAY(build->work, bool, g->values.count + 1);
    build->place = LIB_NEW_ARRAY(build->work, jit_place, g->values.count + 1);
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        jit_place *place = &build->place[g->inputs.data[i]];
        if (build->given && build->given[i].kind == JIT_PLACE_CONSTANT) {
            *place = build->given[i];
            build->constant[g->inputs.data[i]] = true;
        } else if ((int)i < build->ordinary_inputs) {
            *place = (jit_place){.kind = JIT_PLACE_INPUT, .number = (int32_t)i};
            build->steady[g->inputs.data[i]] = build->steady_from >= 0 && (int)i >= build->steady_from;
        } else {
            const graph_constant *values = build->init_values; /* NULL: in a dump before they are computed */
            *place = (jit_place){.kind = JIT_PLACE_CONSTANT};
            if (values) *place = jit_constant_place(build, &values[(int)i - build->ordinary_inputs]);
            build->constant[g->inputs.data[i]] = true;
        }
    }
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (!graph_is_constant(node)) continue;
        int which = graph_op_attribute(node->op, "value");
        build->place[node->first] = jit_constant_place(build, &g->constants.data[node->attribute[which].integer]);
        build->constant[node->first] = true;
    }
}

static bool region_is_empty(jit_build *build, const graph_region *region) {
    for (uint32_t o = 0; o < region->output_count; o++)
        if (jit_value_bytes(build, region->outputs[o]) > 0) return false;
    return true;
}

static void assign_layouts(jit_build *build, graph_regions *regions, const graph_fuse_costs *costs) {
    graph_layout_options options = {.machine = &build->program->context->machine,
                                    .is_constant = jit_is_constant,
                                    .user = build,
                                    .costs = costs,
                                    .all = lib_environment_lists(LIB_ENV_LAYOUT, "all")};
    graph_assign_layouts(build->work, build->bound, regions, &options);
    if (lib_environment_verify() > 0) graph_verify_layouts(build->work->scope, build->bound, regions);
}

graph_regions jit_fuse(jit_build *build) {
    const tir_machine *machine = &build->program->context->machine;
    bool off = lib_environment_lists(LIB_ENV_DISABLE, "fuse");
    graph_fuse_costs costs = jit_fuse_costs(build);
    const graph_fuse_costs *known = costs.predict ? &costs : NULL;
    graph_regions regions = graph_fuse(build->work, build->bound, off ? NULL : machine, known);
    if (!off && !lib_environment_lists(LIB_ENV_DISABLE, "layout")) assign_layouts(build, &regions, known);
    jit_share_numbers(build, &regions, known);
    build->regions = regions;
    if (!off && !lib_environment_lists(LIB_ENV_DISABLE, "order")) jit_order_regions(build, false);
    return build->regions;
}

static graph_regions fused(jit_build *build) {
    jit_front *front = build->front;
    if (!front) return jit_fuse(build);
    if (!front->fused) {
        lib_arena *work = build->work;
        build->work = &front->arena;
        front->regions = jit_fuse(build);
        front->fused = true;
        build->work = work;
    }
    return front->regions;
}

static void request_kernels(jit_build *build) {
    dlc_context *context = build->program->context;
    jit_find_sharing(build);
    build->requests = LIB_NEW_ARRAY(build->work, jit_request, build->regions.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        for (uint32_t o = 0; o < region->output_count && region->kind != GRAPH_REGION_VIEW; o++)
            build->produced[region->outputs[o]] = true;
        if (region->kind != GRAPH_REGION_KERNEL || build->parts[r] || region_is_empty(build, region)) continue;
        jit_request *request = &build->requests[build->request_count];
        const tir_work *work;
        tir_region *computation = jit_front_region(build, region, &request->key, &request->own, &work);
        request->region = region;
        request->origins = jit_region_origins(build, region);
        tir_region_work(build->work, computation, work, build->param_values, &request->operations, &request->bytes);
        request->kernel = jit_cache_claim(context, &request->key, &request->claimed);
        if (!request->kernel) lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "the kernel cache could not grow");
        build->request_count++;
        if (lib_environment_lists(LIB_ENV_DEBUG, "cache"))
            lib_log_write(&context->log, "dlc: kernel %s (%016llx)%s: %s", region->name,
                          (unsigned long long)request->key.computation.low, request->origins,
                          request->claimed ? "to be built" : "found");
    }
}

/* ---- 3. steps */

/* Evaluates an index expression over a kernel's parameters. */
static int64_t kernel_size(jit_build *build, const jit_kernel *kernel, tir_expr e) {
    int64_t value;
    if (!e) return 0;
    if (tir_is_const(kernel->pool, e, &value)) return value;
    uint64_t *variables = LIB_NEW_ARRAY(build->work, uint64_t, kernel->pool->variables.count + 1);
    for (int p = 0; p < kernel->param_count; p++)
        variables[tir_var_id(kernel->pool, kernel->params[p])] = (uint64_t)build->param_values[p];
    tir_evaluator evaluator = {.variables = variables};
    return (int64_t)tir_evaluate(kernel->pool, e, &evaluator);
}

/* bytes * slots; raises above 2^46, so that sums of a few such sizes cannot overflow at run time. */
static int64_t checked_scratch(const jit_build *build, uint32_t region, int64_t bytes, int64_t slots) {
    if (bytes < 0 || __builtin_mul_overflow(bytes, slots, &bytes) || bytes > INT64_C(1) << 46)
        lib_raise(build->work->scope, DLC_INVALID_ARGUMENT,
                  "region %s needs more than 2^46 bytes of scratch at these shapes", build->regions.data[region].name);
    return bytes;
}

static void add_scratch(jit_build *build, uint32_t region, int64_t bytes, int64_t slots, int64_t *offset) {
    bytes = checked_scratch(build, region, bytes, slots);
    if (bytes) build->scratch[build->scratch_count++] = (jit_scratch){region, bytes, offset};
}

/* Number of slots of local scratch: on a device, which has many, at most the number of tasks. */
static int64_t scratch_slots(jit_build *build, const jit_kernel *kernel) {
    const dlc_context *context = build->program->context;
    int64_t most = 1;
    for (int p = 0; p < kernel->phase_count; p++) {
        int64_t tasks = kernel_size(build, kernel, kernel->phases[p].tasks);
        if (tasks > most) most = tasks;
    }
    return context->target->runtime && most < context->width ? most : context->width;
}

static void ask_for_scratch(jit_build *build) {
    jit_ask_for_packings(build);
    size_t most = 2 * (size_t)build->request_count + build->regions.count + (size_t)build->plan->packing_count;
    build->scratch = LIB_NEW_ARRAY(build->work, jit_scratch, most + 1);
    for (int i = 0; i < build->plan->packing_count; i++) {
        jit_packing *packing = &build->plan->packings[i];
        build->scratch[build->scratch_count++] = (jit_scratch){GRAPH_NONE, (int64_t)packing->bytes, &packing->offset};
    }
    build->plan->calls = LIB_NEW_ARRAY(&build->plan->arena, jit_call, build->request_count + 1);
    for (uint32_t i = 0; i < build->request_count; i++) {
        const jit_kernel *kernel = build->requests[i].kernel;
        jit_call *call = &build->plan->calls[i];
        uint32_t region = (uint32_t)(build->requests[i].region - build->regions.data);
        int64_t local = kernel_size(build, kernel, kernel->local_size);
        call->kernel = build->requests[i].kernel;
        call->workspace = call->local = -1;
        call->local_stride = (local + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
        if (kernel->host) { /* the CPU target allocates its own scratch */
            call->host_workspace =
                checked_scratch(build, region, kernel_size(build, kernel, kernel->workspace_size), 1);
            checked_scratch(build, region, call->local_stride, build->program->context->threads);
            continue;
        }
        add_scratch(build, region, kernel_size(build, kernel, kernel->workspace_size), 1, &call->workspace);
        add_scratch(build, region, call->local_stride, scratch_slots(build, kernel), &call->local);
    }
    build->step_scratch = LIB_NEW_ARRAY(build->work, int64_t, build->regions.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        if (region->kind != GRAPH_REGION_CONTROL) continue;
        add_scratch(build, r, jit_control_scratch(build, &build->bound->nodes.data[region->nodes[0]]), 1,
                    &build->step_scratch[r]);
    }
}

/* Describes the tensor; its place is not set. */
static jit_tensor describe_value(jit_build *build, graph_id value) {
    const graph_shape *shape = graph_shape_of(build->bound, value);
    jit_tensor tensor = {.dtype = shape->dtype, .rank = shape->rank, .bytes = jit_value_bytes(build, value)};
    for (int d = 0; d < shape->rank; d++) tensor.shape[d] = jit_dimension(build, shape->dim[d]);
    lib_strides_compact(tensor.rank, tensor.shape, tensor.strides);
    return tensor;
}

static jit_tensor describe_tensor(jit_build *build, graph_id value) {
    jit_tensor tensor = describe_value(build, value);
    tensor.place = build->place[value];
    if (tensor.place.kind == JIT_PLACE_CONSTANT)
        tensor.place = (jit_place){.kind = JIT_PLACE_CONSTANT, .pointer = jit_resident_constant(build, value)};
    return tensor;
}

/* Describes an operand of a control step, or of a function of the host. A constant that the branches capture gets no address here: each branch has its own place for it.
 * Other constants get the address of an aligned copy. */
static jit_tensor describe_operand(jit_build *build, const graph_node *node, int operand) {
    const graph_id value = node->input[operand];
    if (!value) return (jit_tensor){.place.kind = JIT_PLACE_NONE}; /* left out: no bytes */
    if (build->place[value].kind != JIT_PLACE_CONSTANT) return describe_tensor(build, value);
    jit_tensor tensor = describe_value(build, value);
    tensor.place.kind = JIT_PLACE_CONSTANT;
    if (!jit_is_captured(node, operand)) tensor.place.pointer = jit_aligned_constant(build, value);
    return tensor;
}

static int add_slot(jit_build *build, jit_place place) {
    jit_plan *plan = build->plan;
    plan->slots[plan->slot_count] = place;
    if (place.kind == JIT_PLACE_INPUT || place.kind == JIT_PLACE_OUTPUT)
        plan->run_slots[plan->run_slot_count++] = (jit_run_slot){
            plan->slot_count, place.kind == JIT_PLACE_INPUT ? place.number : -1 - place.number, place.offset};
    return plan->slot_count++;
}

/* Collects the phases of consecutive kernels. */
typedef struct phase_list {
    /* some phases of `turned` run in reverse */
    bool turns;
    lib_vec(lib_phase) phases;
    lib_vec(jit_phase) targets;
    lib_vec(lib_phase) turned;
} phase_list;

/* Should odd iterations run the kernel's tasks in reverse? Yes if its working set exceeds half of L2: data read in every iteration would
 * be evicted before the next iteration reads them again, unless that iteration begins with the data read last. */
static bool turns(const jit_build *build, const jit_request *request) {
    const int64_t l2 = build->program->context->machine.l2;
    return build->repeated && l2 > 0 && request->bytes > (double)l2 / 2;
}

static void add_phases(jit_build *build, const jit_request *request, int32_t call, phase_list *list) {
    const dlc_context *context = build->program->context;
    const jit_kernel *kernel = request->kernel;
    const int width = kernel->host ? context->threads : context->width;
    const bool turned = turns(build, request);
    for (int p = 0, count; p < kernel->phase_count; p += count) {
        const jit_kernel_phase *phase = &kernel->phases[p];
        int64_t repeat = phase->repeat ? kernel_size(build, kernel, phase->repeat) : 1;
        count = phase->repeat ? phase->repeat_phases : 1;
        for (int64_t iteration = 0; iteration < repeat; iteration++)
            for (int i = p; i < p + count; i++) {
                int64_t tasks = kernel_size(build, kernel, kernel->phases[i].tasks);
                if (tasks <= 0) continue;
                /* fine enough for load balance, with little scheduling overhead */
                int64_t shares = tasks / (8 * (int64_t)width);
                lib_phase made = {.tasks = tasks, .grain = shares > 1 ? shares : 1};
                lib_vec_push(&build->plan->arena, &list->phases, made);
                made.backwards = turned && !kernel->phases[i].fetches;
                list->turns = list->turns || made.backwards;
                lib_vec_push(&build->plan->arena, &list->turned, made);
                lib_vec_push(&build->plan->arena, &list->targets,
                             ((jit_phase){kernel->phases[i].function, iteration, call}));
            }
    }
}

/* The donation with room of an output that is this value, whose elements are then a part of a larger buffer; NULL: there is none. */
static const jit_donation *room_of(const jit_build *build, graph_id value) {
    const graph *g = build->bound;
    for (uint32_t o = 0; o < g->outputs.count; o++)
        if (g->outputs.data[o] == value && build->plan->donations[o].axis >= 0) return &build->plan->donations[o];
    return NULL;
}

/* Describes the kernel's results for runs that stop at the first NaN or infinity (stop_at). */
static void describe_results(jit_build *build, const graph_region *region, jit_call *call) {
    lib_arena *arena = &build->plan->arena;
    jit_watched *results = LIB_NEW_ARRAY(arena, jit_watched, region->output_count + 1);
    for (uint32_t o = 0; o < region->output_count; o++) {
        const graph_value *value = &build->bound->values.data[region->outputs[o]];
        const char *name = graph_shown_name(build->bound, region->outputs[o]);
        const tir_layout *layout = build->regions.layouts ? build->regions.layouts[region->outputs[o]] : NULL;
        int64_t *shape = LIB_NEW_ARRAY(arena, int64_t, (size_t)value->shape.rank + 1);
        for (int d = 0; d < value->shape.rank; d++) shape[d] = jit_dimension(build, value->shape.dim[d]);
        const jit_donation *room = room_of(build, region->outputs[o]);
        if (room) shape[room->axis] = room->size;
        results[o] = (jit_watched){.room = room,
                                   .name = lib_arena_string(arena, name),
                                   .layout = layout ? lib_arena_copy(arena, layout, sizeof *layout) : NULL,
                                   .shape = shape,
                                   .rank = value->shape.rank,
                                   .dtype = value->shape.dtype};
    }
    call->results = results;
    call->result_count = (int)region->output_count;
}

static void add_call(jit_build *build, uint32_t number, phase_list *list) {
    jit_call *call = &build->plan->calls[number];
    const jit_request *request = &build->requests[number];
    const graph_region *region = request->region;
    const tir_layout *layouts = request->kernel->input_layouts;
    call->arguments = (int)(region->input_count + region->output_count);
    call->first_slot = (uint32_t)build->plan->slot_count;
    call->params = build->param_values;
    call->operations = request->operations;
    call->bytes = request->bytes;
    call->name = lib_arena_string(&build->plan->arena, region->name);
    call->sweeps = jit_region_sweeps(build, region);
    call->origins = graph_origins_of_nodes(&build->plan->arena, build->bound, region->nodes, region->node_count);
    for (uint32_t i = 0; i < region->input_count; i++) {
        jit_place place = build->place[region->inputs[i]];
        place.weight = NULL; /* the pointer is an address from here on */
        if (build->constant[region->inputs[i]])
            place.pointer = request->kernel->host ? jit_pack_host_constant(build, region->inputs[i], &layouts[i])
                                                  : jit_pack_constant(build, region->inputs[i], &layouts[i]);
        else if (place.kind == JIT_PLACE_CONSTANT) /* a view of a constant */
            place.pointer = request->kernel->host ? jit_host_constant(build, region->inputs[i])
                                                  : jit_resident_constant(build, region->inputs[i]);
        if (build->steady[region->inputs[i]]) place = jit_steady_place(build, region->inputs[i], &layouts[i]);
        add_slot(build, place);
    }
    for (uint32_t o = 0; o < region->output_count; o++) add_slot(build, build->place[region->outputs[o]]);
    describe_results(build, region, call);
    add_phases(build, request, (int32_t)number, list);
}

static void add_control(jit_build *build, uint32_t r, jit_step *step) {
    lib_arena *arena = &build->plan->arena;
    const graph_node *node = &build->bound->nodes.data[build->regions.data[r].nodes[0]];
    const jit_control *control = &build->controls[r];
    step->name = node->op->name;
    step->origins = graph_origins_of_nodes(arena, build->bound, build->regions.data[r].nodes, 1);
    step->inputs = LIB_NEW_ARRAY(arena, jit_tensor, (size_t)node->inputs + control->lifted.count + 1);
    step->outputs = LIB_NEW_ARRAY(arena, jit_tensor, (size_t)node->results + 1);
    step->input_count = node->inputs + (int)control->lifted.count;
    step->output_count = node->results;
    step->scratch = build->step_scratch[r];
    for (int i = 0; i < node->inputs; i++) step->inputs[i] = describe_operand(build, node, i);
    for (uint32_t i = 0; i < control->lifted.count; i++) {
        const jit_lifted *lifted = &control->lifted.data[i];
        jit_tensor *tensor = &step->inputs[(uint32_t)node->inputs + i];
        *tensor = step->inputs[lifted->input];
        tensor->place = jit_steady_place(build, node->input[lifted->input], &lifted->layout);
    }
    for (int o = 0; o < node->results; o++) step->outputs[o] = describe_tensor(build, node->first + (graph_id)o);
    int limit = step->input_count + step->output_count;
    if (limit > build->plan->control_limit) build->plan->control_limit = limit;
    jit_bind_control(build, step, r);
}

static void close_kernels(const jit_build *build, jit_step **open, const phase_list *list) {
    if (!*open) return;
    (*open)->alone =
        build->program->context->width <= 1 || !lib_is_worth_sharing(list->phases.count, list->phases.data);
    (*open)->phase = list->phases.data;
    (*open)->turned = list->turns ? list->turned.data : list->phases.data;
    (*open)->target = list->targets.data;
    (*open)->phases = list->phases.count;
    *open = NULL;
}

/* Fills the step of a kernel that the device's target refused and the CPU target runs. */
static void add_host_kernel(jit_build *build, uint32_t number, jit_step *step) {
    const graph_region *region = build->requests[number].region;
    uint32_t inputs = region->input_count, count = inputs + region->output_count;
    size_t *bytes = LIB_NEW_ARRAY(&build->plan->arena, size_t, count + 1);
    phase_list list = {0};
    for (uint32_t a = 0; a < count; a++)
        bytes[a] = jit_value_bytes(build, a < inputs ? region->inputs[a] : region->outputs[a - inputs]);
    add_call(build, number, &list);
    *step = (jit_step){.kind = JIT_STEP_HOST,
                       .phases = list.phases.count,
                       .phase = list.phases.data,
                       .turned = list.phases.data,
                       .target = list.targets.data,
                       .bytes = bytes,
                       .input_count = (int)inputs};
}

static void add_copy(jit_build *build, const jit_tensor *source, jit_place to) {
    lib_arena *arena = &build->plan->arena;
    jit_step *step = &build->plan->steps[build->plan->step_count++];
    *step = (jit_step){.kind = JIT_STEP_COPY, .input_count = 1, .output_count = 1};
    step->inputs = lib_arena_copy(arena, source, sizeof *source);
    step->outputs = lib_arena_copy(arena, source, sizeof *source);
    step->outputs->place = to;
}

static const graph_node *concat_of(const jit_build *build, uint32_t r) {
    return &build->bound->nodes.data[build->regions.data[r].nodes[0]];
}

/* Are there operands of concat r that were not written in place? With `make`, appends steps that copy them. */
static bool copy_parts(jit_build *build, uint32_t r, bool make) {
    const graph_node *node = concat_of(build, r);
    jit_place to = build->place[node->first];
    bool any = false;
    for (int k = 0; k < node->inputs; k++) {
        jit_tensor part = describe_tensor(build, node->input[k]);
        bool there = part.place.kind == to.kind && part.place.number == to.number && part.place.offset == to.offset;
        any = any || (!there && part.bytes);
        if (make && !there && part.bytes) add_copy(build, &part, to);
        to.offset += (int64_t)part.bytes;
    }
    return any;
}

static uint32_t most_steps(const jit_build *build) {
    uint32_t most = build->regions.count + build->bound->outputs.count + 1;
    for (uint32_t r = 0; r < build->regions.count; r++)
        if (build->parts[r]) most += (uint32_t)concat_of(build, r)->inputs;
    return most;
}

static void make_steps(jit_build *build) {
    jit_keep_weights(build);
    jit_plan *plan = build->plan;
    lib_arena *arena = &plan->arena;
    uint32_t slots = 0, request = 0;
    for (uint32_t i = 0; i < build->request_count; i++)
        slots += build->requests[i].region->input_count + build->requests[i].region->output_count;
    plan->slots = LIB_NEW_ARRAY(arena, jit_place, slots + 1);
    plan->run_slots = LIB_NEW_ARRAY(arena, jit_run_slot, slots + 1);
    plan->steps = LIB_NEW_ARRAY(arena, jit_step, most_steps(build));
    jit_step *open = NULL; /* consecutive kernels form one step */
    phase_list list = {0};
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        if (region->kind == GRAPH_REGION_VIEW) continue;
        if (region->kind == GRAPH_REGION_KERNEL && !build->parts[r]) {
            if (request == build->request_count || build->requests[request].region != region) continue; /* empty */
            if (build->requests[request].kernel->host) {
                close_kernels(build, &open, &list);
                add_host_kernel(build, request++, &plan->steps[plan->step_count++]);
                continue;
            }
            if (!open) {
                open = &plan->steps[plan->step_count++];
                open->kind = JIT_STEP_KERNELS;
                list = (phase_list){0};
            }
            add_call(build, request++, &list);
            continue;
        }
        if (build->parts[r] && !copy_parts(build, r, false)) continue;
        close_kernels(build, &open, &list);
        if (build->parts[r])
            copy_parts(build, r, true);
        else
            add_control(build, r, &plan->steps[plan->step_count++]);
    }
    close_kernels(build, &open, &list);
    plan->call_count = (int)build->request_count;
}

/* Appends copies for outputs that no region writes (inputs, constants, a value that is already another output). These are the
 * last steps. */
static void copy_outputs(jit_build *build) {
    jit_plan *plan = build->plan;
    const graph *g = build->bound;
    plan->output_shapes = LIB_NEW_ARRAY(&plan->arena, int64_t, (size_t)g->outputs.count * DLC_MAX_RANK + 1);
    plan->output_ranks = LIB_NEW_ARRAY(&plan->arena, int, g->outputs.count + 1);
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        jit_tensor source = describe_tensor(build, g->outputs.data[o]);
        plan->output_ranks[o] = source.rank;
        memcpy(&plan->output_shapes[o * DLC_MAX_RANK], source.shape, sizeof source.shape);
        if (plan->donations[o].axis >= 0)
            plan->output_shapes[(int)o * DLC_MAX_RANK + plan->donations[o].axis] = plan->donations[o].size;
        bool there = source.place.kind == JIT_PLACE_OUTPUT && source.place.number == (int32_t)o;
        if (there || plan->donations[o].must || !source.bytes) continue;
        add_copy(build, &source, (jit_place){.kind = JIT_PLACE_OUTPUT, .number = (int32_t)o});
    }
    bool alone = plan->step_count == 1 && plan->steps->kind == JIT_STEP_KERNELS && plan->steps->alone;
    plan->alone = alone ? plan->steps : NULL;
}

/* Prepares the fast path of dlc_run. Plans with donated or empty tensors have none. */
static void describe_extents(jit_build *build) {
    jit_plan *plan = build->plan;
    const graph *g = build->bound;
    int inputs = build->ordinary_inputs, count = inputs + (int)g->outputs.count;
    jit_known *known = LIB_NEW_ARRAY(&plan->arena, jit_known, (size_t)count + 1);
    bool usual = build->donated != NULL && build == build->root && /* neither a branch nor the init graph */
                 !build->program->context->target->runtime;
    for (int i = 0; i < count; i++) {
        bool output = i >= inputs;
        jit_tensor tensor = describe_value(build, output ? g->outputs.data[i - inputs] : g->inputs.data[i]);
        known[i] = (jit_known){.bytes = tensor.bytes, .misaligned = lib_dtype_size(tensor.dtype) - 1};
        known[i].shape = lib_arena_copy(&plan->arena, tensor.shape, sizeof tensor.shape);
        known[i].strides = lib_arena_copy(&plan->arena, tensor.strides, sizeof tensor.strides);
        usual = usual && tensor.bytes > 0 && (!output || build->donated[i - inputs] < 0);
    }
    if (usual) plan->known = known;
}

/* ---- all of it */

/* Kernels of the regions, and places of their values. */
static void plan_regions(jit_build *build) {
    request_kernels(build);
    lib_error error;
    if (jit_build_kernels(build, build->work, &error) != DLC_OK) lib_raise_error(build->work->scope, &error);
    jit_bind_branches(build);
    ask_for_scratch(build);
    jit_share_maps(build);
    jit_plan_memory(build);
}

void jit_plan_again(jit_build *build) {
    const lib_error none = {.status = DLC_OK};
    for (jit_build *branch = build->next; branch; branch = branch->next) {
        jit_leave_kernels(branch, &none);
        branch->plan->call_count = 0;
    }
    jit_leave_kernels(build, &none);
    for (jit_plan *branch = build->plan->branches, *sibling; branch; branch = sibling) {
        sibling = branch->sibling;
        jit_plan_free(branch);
    }
    build->next = NULL;
    build->plan->branches = NULL;
    build->plan->packing_count = 0;
    build->request_count = build->scratch_count = 0;
    jit_place_sources(build);
    plan_regions(build);
}

void jit_plan_bound(jit_build *build) {
    jit_place_sources(build);
    build->regions = fused(build);
    plan_regions(build);
    if (build == build->root && build->donated && build->program->options.memory_bytes) jit_fit_memory(build);
    if (build == build->root && build->donated) jit_note_kept(build);
    jit_plan_donation(build);
    make_steps(build);
    copy_outputs(build);
    describe_extents(build);
}

/* Releases the claims and pins of a failed build and its branches. */
static void abandon(jit_build *root, const lib_error *error) {
    for (jit_build *build = root; build; build = build->next) {
        jit_leave_kernels(build, error);
        build->plan->call_count = 0;
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
    jit_bind_graph(build, g, shapes, true);
    jit_plan_bound(build);
    atomic_init(&plan->interim, jit_sizes_interim(build));
    if (g == build->program->graph && !build->differs) jit_report_schedules(build->program);
}

static dlc_status build_guarded(jit_build *build, const graph *g, const int64_t *shapes, int shape_count,
                                lib_error *error) {
    lib_scope scope;
    build->work->scope = build->passing->scope = &scope;
    build->plan->arena.scope = &scope; /* one error scope for the whole build */
    if (LIB_ENTER(&scope)) {
        lib_stack_require(&scope, graph_stack(g) + JIT_STACK_BIND);
        build_in_scope(build, g, shapes, shape_count);
        build->plan->arena.scope = &build->plan->scope;
        return DLC_OK;
    }
    *error = scope.error;
    abandon(build, error);
    return error->status;
}

/* Counts the plan's memory besides its kernels. */
static void count_plan(jit_plan *plan) {
    plan->counted_bytes = sizeof *plan + plan->arena.total;
    for (jit_plan *branch = plan->branches; branch; branch = branch->sibling) count_plan(branch);
    atomic_fetch_add_explicit(&plan->context->plan_bytes, plan->counted_bytes, memory_order_relaxed);
}

dlc_status jit_plan_build(dlc_program *program, const graph *g, int ordinary_inputs, const graph_constant *init_values,
                          const int64_t *shapes, int shape_count, jit_tier tier, jit_plan **out, lib_error *error) {
    dlc_context *context = program->context;
    uint64_t start = context->clock_ns(context->clock_user);
    *out = NULL;
    jit_plan *plan = jit_plan_new(context);
    if (!plan) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a plan");
    lib_arena work, passing;
    jit_limits limits;
    lib_arena_init(&work, &context->allocator, NULL);
    lib_arena_init(&passing, &context->allocator, NULL);
    jit_limits_begin(&limits, program);
    work.limit = passing.limit = program->options.budget_bytes;
    work.watch = passing.watch = &limits.watch;
    jit_build build = {.program = program,
                       .steady_from = -1,
                       .plan = plan,
                       .work = &work,
                       .passing = &passing,
                       .limits = &limits,
                       .tier = tier,
                       .init_values = init_values,
                       .ordinary_inputs = ordinary_inputs,
                       .donated = g == program->graph ? program->alias : NULL};
    build.root = &build;
    lib_fp_state state = lib_fp_enter(); /* constant folding must not depend on the host's rounding mode */
    dlc_status status = build_guarded(&build, g, shapes, shape_count, error);
    lib_fp_restore(state);
    jit_front_give(&build, status == DLC_OK);
    if (status != DLC_OK) jit_sizes_undo(&build);
    lib_arena_free(&passing);
    lib_arena_free(&work);
    if (status == DLC_OK) {
        count_plan(plan);
        *out = plan;
    } else {
        jit_plan_free(plan);
    }
    atomic_fetch_add_explicit(&context->compile_ns, context->clock_ns(context->clock_user) - start,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&context->plan_builds, 1, memory_order_relaxed);
    return status;
}

void jit_plan_free(jit_plan *plan) {
    if (!plan) return;
    dlc_context *context = plan->context;
    for (int i = 0; i < JIT_FRAMES_KEPT; i++) jit_frame_free(plan, plan->frames[i].frame);
    for (int i = 0; i < plan->call_count; i++) {
        jit_cache_unpin(context, plan->calls[i].kernel);
        lib_release(&context->allocator, atomic_load(&plan->calls[i].samples), sizeof(jit_samples), 64);
    }
    for (jit_plan *branch = plan->branches, *sibling; branch; branch = sibling) {
        sibling = branch->sibling;
        jit_plan_free(branch);
    }
    jit_device_release(context, plan->residents);
    jit_weights_leave(plan);
    atomic_fetch_sub_explicit(&context->plan_bytes, plan->counted_bytes, memory_order_relaxed);
    lib_arena_free(&plan->arena);
    lib_release(&context->allocator, plan, sizeof *plan, 64);
}
