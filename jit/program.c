/* Programs: a compiled graph, before any shape is known. */
#include "jit/internal.h"

#include "graph/inference.h"
#include "graph/rewrite.h"
#include "graph/winograd.h"

/* ---- compile */

static bool any_uses(const tir_pool *pool, const tir_expr *dims, int count, tir_expr symbol) {
    for (int d = 0; d < count; d++)
        if (tir_uses(pool, dims[d], symbol)) return true;
    return false;
}

/* Does any size or check depend on the symbol? Uses in hints do not count. */
static bool is_used(const graph *g, tir_expr symbol) {
    for (uint32_t v = 1; v < g->values.count; v++)
        if (any_uses(g->pool, g->values.data[v].shape.dim, g->values.data[v].shape.rank, symbol)) return true;
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        for (int i = 0; node->op->attribute[i].name; i++)
            if (node->op->attribute[i].kind == GRAPH_ATTR_DIMS &&
                any_uses(g->pool, node->attribute[i].dims, node->attribute[i].count, symbol))
                return true;
    }
    for (uint32_t c = 0; c < g->constraints.count; c++)
        if (tir_uses(g->pool, g->constraints.data[c].left, symbol) ||
            tir_uses(g->pool, g->constraints.data[c].right, symbol))
            return true;
    for (uint32_t i = 0; i < g->subgraphs.count; i++)
        if (is_used(g->subgraphs.data[i], symbol)) return true;
    return false;
}

static bool is_counted_inside(const graph *g, tir_expr symbol) {
    for (uint32_t i = 0; i < g->subgraphs.count; i++)
        if (graph_is_counted(g->subgraphs.data[i], symbol) || is_counted_inside(g->subgraphs.data[i], symbol))
            return true;
    return false;
}

/* Raises if a used symbol cannot get a value: no dimension of an input is exactly this symbol, and no counted size defines it. */
static void check_symbols(lib_arena *work, const graph *g) {
    bool *told = LIB_NEW_ARRAY(work, bool, (size_t)g->pool->variables.count + 1); /* determined by an input */
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        const graph_shape *shape = graph_shape_of(g, g->inputs.data[i]);
        for (int d = 0; d < shape->rank; d++)
            if (tir_op_of(g->pool, shape->dim[d]) == TIR_VAR) told[tir_var_id(g->pool, shape->dim[d])] = true;
    }
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        const tir_expr symbol = g->symbols.data[s].var;
        if (told[tir_var_id(g->pool, symbol)] || !is_used(g, symbol) || graph_is_counted(g, symbol)) continue;
        lib_nearest nearest = lib_nearest_to(g->symbols.data[s].name);
        for (uint32_t i = 0; i < g->symbols.count; i++)
            if (told[tir_var_id(g->pool, g->symbols.data[i].var)])
                lib_nearest_try(&nearest, g->symbols.data[i].name, strlen(g->symbols.data[i].name));
        lib_raise(work->scope, DLC_INVALID_ARGUMENT,
                  "dlc_compile: symbol %s is no dimension of any input by itself, and %s: its size cannot be known%s",
                  g->symbols.data[s].name,
                  is_counted_inside(g, symbol)
                      ? "data decide it inside of a sub-graph, which only the outermost graph may have"
                      : "nothing in the outermost graph counts it",
                  lib_nearest_hint(&nearest));
    }
}

static jit_argument *describe_arguments(lib_arena *arena, const graph *g, uint32_t count, const graph_id *values,
                                        const char *const *names) {
    jit_argument *arguments = LIB_NEW_ARRAY(arena, jit_argument, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        const graph_value *value = &g->values.data[values[i]];
        const char *name = names ? names[i] : value->name;
        arguments[i] = (jit_argument){.dtype = lib_dtype_to_dlpack(value->shape.dtype),
                                      .rank = value->shape.rank,
                                      .name = name ? name : lib_arena_format(arena, "%u", i),
                                      .shape = &value->shape};
    }
    return arguments;
}

bool jit_is_as_written(const dlc_program *program) {
    return program->options.no_excess_precision || lib_environment_lists(LIB_ENV_DISABLE, "simplify");
}

static graph *decompose(const dlc_program *program, lib_arena *work, const graph *g) {
    if (!jit_is_as_written(program)) g = graph_compute_on_integers(work, g, &program->context->machine);
    graph *expanded = graph_decompose(work, g);
    check_symbols(work, expanded); /* composites may contain counted sizes */
    return lib_environment_lists(LIB_ENV_DISABLE, "simplify") ? expanded : graph_simplify(work, expanded);
}

/* Early passes of the host (DLC_PASS_FIRST), then its rules, run on the unexpanded graph; its rules again, then late passes
 * (DLC_PASS_SIMPLIFIED), on the expanded one. A graph that these change may contain composites again: it is expanded again. */
static graph *expand(const dlc_program *program, lib_arena *work, const graph *source) {
    const graph *first = graph_apply_rules(work, graph_apply_passes(work, source, false), NULL);
    graph *simple = decompose(program, work, first), *g = simple;
    const graph *rewritten = graph_apply_rules(work, g, NULL);
    if (rewritten != g) g = decompose(program, work, rewritten);
    const graph *passed = graph_apply_passes(work, g, true);
    if (passed != g) g = decompose(program, work, passed);
    if (first != source || g != simple) jit_check_customs(work, g);
    if (!jit_is_as_written(program)) g = graph_fold_factors(work, graph_factor_products(work, g));
    return lib_environment_lists(LIB_ENV_DISABLE, "simplify") ? g : graph_hoist(work, graph_merge_scans(work, g));
}

/* Passes allocate in `work` and share the constants of the host's graph; the program keeps copies, since the host may destroy its
 * graph. */
static void compile_in_scope(dlc_program *program, lib_arena *work, const graph *source, const char *schedule) {
    lib_arena *arena = &program->arena;
    graph *init = NULL, *rest = NULL;
    bool verify = lib_environment_verify() > 0;
    if (verify) graph_verify(work->scope, source);
    jit_check_customs(work, source);
    graph *g = expand(program, work, source);
    if (program->options.winograd) g = graph_winograd(work, g, &program->context->machine);
    if (verify) graph_verify(work->scope, g);
    program->ordinary_inputs = (int)g->inputs.count;
    const bool segments = graph_has_cuts(g);
    if (segments)
        rest = g;
    else
        graph_split_init(work, g, &init, &rest);
    g = program->graph = graph_copy_to(arena, rest, jit_adopt_constant, &(jit_adoption){program, false});
    if (init) program->init = graph_copy_to(arena, init, jit_adopt_constant, &(jit_adoption){program, true});
    if (init) jit_find_transposed(program);
    jit_collect_constants(program);
    program->inputs = describe_arguments(arena, g, (uint32_t)program->ordinary_inputs, g->inputs.data, NULL);
    program->outputs = describe_arguments(arena, g, g->outputs.count, g->outputs.data, g->output_names.data);
    program->output_count = (int)g->outputs.count;
    for (int i = 0; i < program->ordinary_inputs; i++) program->dimensions += (size_t)program->inputs[i].rank;
    program->sizes =
        lib_arena_array(arena, g->symbols.count + g->outputs.count + 1, sizeof *program->sizes); /* also of rooms */
    program->alias = LIB_NEW_ARRAY(arena, int, g->outputs.count + 1);
    for (uint32_t o = 0; o < g->outputs.count; o++) program->alias[o] = -1;
    if (segments)
        jit_segments_compile(program, work, schedule);
    else if (schedule)
        jit_parse_schedules(program, schedule);
}

static dlc_status compile_guarded(dlc_program *program, lib_arena *work, const graph *source, const char *schedule,
                                  lib_error *error) {
    lib_scope scope;
    work->scope = program->arena.scope = &scope;
    if (LIB_ENTER(&scope)) {
        lib_stack_require(&scope, graph_stack(source));
        compile_in_scope(program, work, source, schedule);
        program->arena.scope = &program->scope;
        return DLC_OK;
    }
    *error = scope.error;
    return error->status;
}

static dlc_status check_compile(dlc_context *context, dlc_graph *handle, const dlc_compile_options *options,
                                lib_error *error) {
    if (!graph_handle_live(handle))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_compile: the graph was destroyed");
    if (graph_handle_context(handle) != context)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_compile: the graph belongs to another context");
    if (graph_handle_status(handle) != DLC_OK)
        return lib_fail(error, graph_handle_status(handle), "%s", dlc_graph_message(handle));
    if (options && options->struct_size != sizeof *options)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_compile: options.struct_size is %zu, expected %zu (use DLC_COMPILE_OPTIONS_INIT)",
                        options->struct_size, sizeof *options);
    if (options && options->budget_ms < 0)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_compile: budget_ms is %lld, expected 0 or more",
                        (long long)options->budget_ms);
    if (graph_of_handle(handle)->outputs.count == 0)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_compile: the graph has no output; call dlc_output first");
    return DLC_OK;
}

/* Do two names differ only in numbers, as h1 and h2? */
static bool is_numbered_alike(const char *a, const char *b) {
    static const char digits[] = "0123456789";
    while (*a && *b) {
        size_t m = strspn(a, digits), n = strspn(b, digits);
        if ((m > 0) != (n > 0) || (!m && *a != *b)) return false;
        a += m ? m : 1;
        b += n ? n : 1;
    }
    return !*a && !*b;
}

/* Logs symbols that look like mistakes: named by dlc_symbol_varies alone; or used once, with a name similar to another symbol's. */
static void report_symbols(const dlc_context *context, const graph *g) {
    enum { MOST = 1000 }; /* symbols; the comparison is quadratic */
    if (!context->log.write || g->symbols.count > MOST) return;
    for (uint32_t s = 0; s < g->symbols.count; s++) {
        const graph_symbol *symbol = &g->symbols.data[s];
        if (symbol->mentions > 1 || (!symbol->mentions && !symbol->varies)) continue;
        lib_nearest nearest = lib_nearest_to(symbol->name);
        for (uint32_t i = 0; i < g->symbols.count; i++)
            if (i != s && g->symbols.data[i].mentions && !is_numbered_alike(symbol->name, g->symbols.data[i].name))
                lib_nearest_try(&nearest, g->symbols.data[i].name, strlen(g->symbols.data[i].name));
        const char *hint = lib_nearest_hint(&nearest);
        if (!symbol->mentions)
            lib_log_write(&context->log, "dlc: dlc_symbol_varies: no shape of the graph names %s%s", symbol->name,
                          hint);
        else if (*hint)
            lib_log_write(&context->log, "dlc: dlc_compile: the symbol %s stands in one dimension only%s", symbol->name,
                          hint);
    }
}

static void add_to_context(dlc_program *program) {
    dlc_context *context = program->context;
    lib_mutex_lock(&context->mutex);
    program->next = context->programs;
    if (program->next) program->next->previous = program;
    context->programs = program;
    lib_mutex_unlock(&context->mutex);
}

static void remove_from_context(dlc_program *program) {
    dlc_context *context = program->context;
    lib_mutex_lock(&context->mutex);
    if (program->previous)
        program->previous->next = program->next;
    else if (context->programs == program)
        context->programs = program->next;
    if (program->next) program->next->previous = program->previous;
    context->runs += jit_plans_runs(program);
    context->plan_misses += program->misses;
    lib_mutex_unlock(&context->mutex);
}

dlc_status jit_program_new(dlc_context *context, const graph *source, const dlc_compile_options *options,
                           dlc_program **out, lib_error *error) {
    lib_call call __attribute__((cleanup(lib_call_leave)));
    LIB_TRY(graph_context_enter(context, &call, LIB_STACK_CALL, error));
    dlc_program *program = lib_allocate_zeroed(&context->allocator, sizeof *program, 64);
    if (!program) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_compile: out of memory: a program");
    program->context = context;
    jit_context_keep(context);
    atomic_init(&program->references, 1);
    program->options = *options;
    program->options.schedule = NULL; /* its contents have been copied */
    lib_mutex_init(&program->mutex);
    lib_condition_init(&program->bound);
    lib_arena_init(&program->arena, &context->allocator, &program->scope);
    add_to_context(program);
    lib_arena work;
    jit_limits limits;
    lib_arena_init(&work, &context->allocator, NULL);
    jit_limits_begin(&limits, program);
    work.limit = options->budget_bytes;
    work.watch = &limits.watch;
    lib_fp_state state = lib_fp_enter(); /* constant folding must not depend on the host's rounding mode */
    dlc_status status = jit_plans_init(program, error);
    if (status == DLC_OK) status = compile_guarded(program, &work, source, options->schedule, error);
    lib_fp_restore(state);
    lib_arena_free(&work);
    if (status == DLC_OK)
        *out = program;
    else
        dlc_program_destroy(program);
    return status;
}

dlc_status dlc_compile(dlc_context *context, dlc_graph *handle, const dlc_compile_options *options, dlc_program **out) {
    static const dlc_compile_options defaults = DLC_COMPILE_OPTIONS_INIT;
    lib_error error;
    if (out) *out = NULL;
    if (!context || !handle || !out) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_compile: context, graph and program must not be NULL");
        if (!handle) graph_context_add_cause(&error);
        return jit_fail(context, &error);
    }
    dlc_status status = check_compile(context, handle, options, &error);
    if (status == DLC_OK) report_symbols(context, graph_of_handle(handle));
    if (status == DLC_OK)
        status = jit_program_new(context, graph_of_handle(handle), options ? options : &defaults, out, &error);
    if (status == DLC_OK) {
        (*out)->source = handle;
        (*out)->source_serial = graph_handle_serial(handle);
    }
    return status == DLC_OK ? DLC_OK : jit_fail(context, &error);
}

static void end_program(dlc_program *program) {
    dlc_context *context = program->context;
    jit_tap_free(program);
    for (int i = 0; i < program->segment_count; i++) dlc_program_destroy(program->segments[i].program);
    jit_background_forget(program);
    remove_from_context(program);
    jit_plans_free(program);
    jit_front_free(program);
    jit_weights_free(program);
    for (size_t i = 0; i < program->holder_count; i++) program->holders[i]->release(program->holders[i]);
    lib_arena_free(&program->arena);
    lib_condition_destroy(&program->bound);
    lib_mutex_destroy(&program->mutex);
    lib_release(&context->allocator, program, sizeof *program, 64);
    jit_context_release(context);
}

void jit_program_keep(dlc_program *program) {
    atomic_fetch_add_explicit(&program->references, 1, memory_order_relaxed);
}

void jit_program_release(dlc_program *program) {
    if (atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) == 1) end_program(program);
}

void dlc_program_destroy(dlc_program *program) {
    lib_call call;
    if (!program) return;
    dlc_context *context = program->context;
    if (!graph_call_to_destroy(context, &call)) return;
    jit_program_release(program);
    graph_call_destroyed(context, &call);
}

/* ---- questions */

int dlc_program_input_count(const dlc_program *program) {
    return !program ? 0 : program->ordinary_inputs;
}
int dlc_program_output_count(const dlc_program *program) {
    return !program ? 0 : program->output_count;
}
const char *dlc_program_input_name(const dlc_program *program, int input) {
    if (!program || input < 0 || input >= program->ordinary_inputs) return NULL;
    return program->inputs[input].name;
}
const char *dlc_program_output_name(const dlc_program *program, int output) {
    if (!program || output < 0 || output >= program->output_count) return NULL;
    return program->outputs[output].name;
}
void dlc_program_profile(dlc_program *program, int on) {
    if (!program) return;
    atomic_store(&program->profile, on);
    for (int i = 0; i < program->segment_count; i++) dlc_program_profile(program->segments[i].program, on);
}

static void describe_pair(lib_arena *arena, const dlc_program *program, int output, int input) {
    const jit_argument *out = &program->outputs[output], *in = &program->inputs[input];
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_format(&text, "dlc_program_alias: output %s ", out->name);
    graph_describe_shape(&text, program->graph, out->shape);
    lib_text_format(&text, " and input %s ", in->name);
    graph_describe_shape(&text, program->graph, in->shape);
    lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
              "%s differ, expected one dtype and one shape, or an output that is concat(input, ...)", text.data);
}

static dlc_status refuse_alias(dlc_program *program, int output, int input) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &program->context->allocator, &scope);
    if (LIB_ENTER(&scope)) describe_pair(&arena, program, output, input);
    lib_arena_free(&arena);
    return jit_fail(program->context, &scope.error);
}

/* May the output have the input's shape? */
static bool has_same_shape(const dlc_program *program, int output, int input) {
    const graph_shape *out = program->outputs[output].shape, *in = program->inputs[input].shape;
    bool same = out->dtype == in->dtype && out->rank == in->rank;
    for (int d = 0; d < in->rank && same; d++)
        same = tir_equal(program->graph->pool, out->dim[d], in->dim[d]) != TIR_NO;
    return same;
}

static dlc_status check_alias(dlc_program *program, int output, int input, bool grows, lib_error *error) {
    for (int o = 0; o < program->output_count; o++)
        if (o != output && program->alias[o] == input)
            return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_program_alias: input %s is donated to output %s already",
                            program->inputs[input].name, program->outputs[o].name);
    if (program->segment_count)
        return lib_fail(
            error, DLC_UNSUPPORTED,
            "dlc_program_alias: shapes of the program depend on data: output %s cannot be written over input %s",
            program->outputs[output].name, program->inputs[input].name);
    if (!grows && jit_growth_of(program, output))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_program_alias: output %s has another input already",
                        program->outputs[output].name);
    if (grows && program->context->target->runtime)
        return lib_fail(
            error, DLC_UNSUPPORTED,
            "dlc_program_alias: output %s is input %s and more: on target %s they have buffers of their own",
            program->outputs[output].name, program->inputs[input].name, program->context->target->name);
    return DLC_OK;
}

/* The mutex is held. */
static dlc_status set_alias(dlc_program *program, int output, int input, lib_error *error) {
    if (program->bindings || atomic_load(&program->tick))
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_program_alias: shapes are bound already, by a run, dlc_prepare or dlc_call_create; "
                        "expected before those");
    if (!LIB_ENTER(&program->scope)) {
        *error = program->scope.error;
        return error->status;
    }
    jit_add_growth(program, output, input);
    program->alias[output] = input;
    return DLC_OK;
}

dlc_status dlc_program_alias(dlc_program *program, int output, int input) {
    lib_error error;
    int axis;
    if (!program) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_program_alias: the program is NULL");
        return jit_fail(NULL, &error);
    }
    if (output < 0 || output >= program->output_count || input < 0 || input >= program->ordinary_inputs) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_program_alias: output %d of %d, input %d of %d do not exist",
                 output, program->output_count, input, program->ordinary_inputs);
        return jit_fail(program->context, &error);
    }
    const bool grows = graph_grows(program->graph, output, input, &axis);
    if (!grows && !has_same_shape(program, output, input)) return refuse_alias(program, output, input);
    dlc_status status = check_alias(program, output, input, grows, &error);
    if (status == DLC_OK) {
        lib_mutex_lock(&program->mutex);
        status = set_alias(program, output, input, &error);
        lib_mutex_unlock(&program->mutex);
    }
    return status == DLC_OK ? DLC_OK : jit_fail(program->context, &error);
}
