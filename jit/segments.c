/* Programs whose shapes depend on data: a chain of separate programs, the segments (graph/segment.h). A run executes one segment,
 * reads the sizes that its cuts have counted, and finds or builds the next segment's plan for these sizes. Tensors between
 * segments belong to the run; a cut needs no copy, its result is viewed through a shape whose leading size is the count. */
#include "jit/internal.h"

/* ---- compiling */

static void compile_segment(dlc_program *program, lib_arena *work, const graph_segment *from, const char *schedule,
                            jit_segment *to) {
    lib_error error;
    dlc_compile_options options = program->options;
    options.schedule = schedule;
    to->inputs = lib_arena_copy(&program->arena, from->inputs.data, from->inputs.count * sizeof *to->inputs);
    to->outputs = lib_arena_copy(&program->arena, from->outputs.data, from->outputs.count * sizeof *to->outputs);
    if (jit_program_new(program->context, from->g, &options, &to->program, &error) != DLC_OK)
        lib_raise_error(work->scope, &error);
}

void jit_segments_compile(dlc_program *program, lib_arena *work, const char *schedule) {
    graph *g = program->graph;
    for (uint32_t c = 0; c < g->constants.count; c++)
        g->constants.data[c].borrowed = true; /* the segments share these bytes */
    graph_segments split = graph_split_segments(work, g);
    program->borders = split.borders;
    program->border_end =
        lib_arena_copy(&program->arena, split.border_end, ((size_t)split.borders + 1) * sizeof *split.border_end);
    program->segments = LIB_NEW_ARRAY(&program->arena, jit_segment, split.list.count + 1);
    for (uint32_t i = 0; i < split.list.count; i++) {
        compile_segment(program, work, &split.list.data[i], schedule, &program->segments[i]);
        program->segment_count++;
    }
    jit_weights_free(program); /* the segments retain them; this graph's constants are not read again */
}

/* ---- running */

typedef struct segment_run {
    dlc_program *program;
    jit_how *how;
    lib_arena *work;
    /* the host's tensors */
    jit_boundary boundary;
    /* [symbols] values of the whole graph's symbols; counted ones are added as they become known */
    int64_t *values;
    /* [borders] */
    DLManagedTensorVersioned **border;
    /* the host's output slots are empty, or hold tensors that this run made */
    bool checked;
    /* some input is on the device: outputs for empty slots are made there, too */
    bool on_device;
} segment_run;

__attribute__((format(printf, 3, 4))) _Noreturn static void fail(segment_run *r, dlc_status status, const char *format,
                                                                 ...) {
    va_list list;
    va_start(list, format);
    lib_raise_v(r->work->scope, status, format, list);
    va_end(list);
}

/* Sizes of a segment's output: symbols have the same order in all segments. */
static int64_t *output_sizes(segment_run *r, const dlc_program *inner, int output) {
    const graph *g = inner->graph;
    const graph_shape *shape = inner->outputs[output].shape;
    tir_evaluator evaluator = {.variables = jit_variables(r->work, g, r->values)};
    int64_t *sizes = LIB_NEW_ARRAY(r->work, int64_t, DLC_MAX_RANK);
    for (int d = 0; d < shape->rank; d++) sizes[d] = (int64_t)tir_evaluate(g->pool, shape->dim[d], &evaluator);
    return sizes;
}

static DLManagedTensorVersioned *new_tensor(segment_run *r, const jit_argument *argument, const int64_t *sizes,
                                            bool on_device) {
    dlc_context *context = r->program->context;
    DLManagedTensorVersioned *tensor = NULL;
    lib_error error;
    if (on_device) {
        if (jit_device_tensor(context, argument->name, argument->shape->dtype, argument->rank, sizes, &tensor,
                              &error) != DLC_OK)
            lib_raise_error(r->work->scope, &error);
        return tensor;
    }
    tensor = jit_result_new(context, argument->shape->dtype, argument->rank, sizes);
    if (!tensor) fail(r, DLC_OUT_OF_MEMORY, "%s: out of memory: %s", r->how->caller, argument->name);
    return tensor;
}

/* A view of the tensor with fewer elements along its leading dimension. */
static const DLTensor *cut_tensor(segment_run *r, const DLTensor *whole, int symbol) {
    DLTensor *part = lib_arena_copy(r->work, whole, sizeof *whole);
    part->shape = lib_arena_copy(r->work, whole->shape, (size_t)whole->ndim * sizeof *whole->shape);
    if (r->values[symbol] < 0 || r->values[symbol] > whole->shape[0])
        fail(r, DLC_INVALID_ARGUMENT, "%s: the count for symbol %s is %lld, expected 0 to %lld", r->how->caller,
             r->program->graph->symbols.data[symbol].name, (long long)r->values[symbol], (long long)whole->shape[0]);
    part->shape[0] = r->values[symbol];
    return part;
}

static const DLTensor *tensor_of_symbols(segment_run *r, const graph_segment_input *input) {
    DLTensor *tensor = LIB_NEW_ARRAY(r->work, DLTensor, 1);
    tensor->device = (DLDevice){kDLCPU, 0};
    tensor->dtype = lib_dtype_to_dlpack(DLC_BOOL);
    tensor->ndim = input->count + 1;
    tensor->shape = LIB_NEW_ARRAY(r->work, int64_t, DLC_MAX_RANK);
    for (int i = 0; i < input->count; i++) tensor->shape[i + 1] = r->values[input->symbols[i]];
    return tensor;
}

static const DLTensor *input_tensor(segment_run *r, const graph_segment_input *input) {
    if (input->source == GRAPH_FROM_SYMBOLS) return tensor_of_symbols(r, input);
    const DLTensor *whole =
        input->source == GRAPH_FROM_INPUT ? r->boundary.inputs[input->number] : &r->border[input->number]->dl_tensor;
    return input->symbol < 0 ? whole : cut_tensor(r, whole, input->symbol);
}

static DLTensor *count_tensor(segment_run *r, int symbol) {
    DLTensor *tensor = LIB_NEW_ARRAY(r->work, DLTensor, 1);
    *tensor = (DLTensor){.data = &r->values[symbol], .device = {kDLCPU, 0}, .dtype = lib_dtype_to_dlpack(DLC_I64)};
    return tensor;
}

static DLTensor *output_tensor(segment_run *r, const jit_segment *segment, int o) {
    const graph_segment_output *output = &segment->outputs[o];
    const jit_argument *argument = &segment->program->outputs[o];
    if (output->target == GRAPH_TO_SYMBOL) return count_tensor(r, output->number);
    const bool border = output->target == GRAPH_TO_BORDER;
    dlc_output_slot *slot = border ? NULL : &r->boundary.outputs[output->number];
    if (slot && slot->tensor) return slot->tensor;
    DLManagedTensorVersioned **made = border ? &r->border[output->number] : &slot->managed;
    bool on_device = r->program->context->target->runtime && (border || r->on_device);
    *made = new_tensor(r, argument, output_sizes(r, segment->program, o), on_device);
    return &(*made)->dl_tensor;
}

static void drop_borders(segment_run *r, int end) {
    for (int b = 0; r->border && b < r->program->borders; b++) {
        if (!r->border[b] || r->program->border_end[b] > end) continue;
        r->border[b]->deleter(r->border[b]);
        r->border[b] = NULL;
    }
}

static void run_segment(segment_run *r, int number) {
    const jit_segment *segment = &r->program->segments[number];
    dlc_program *inner = segment->program;
    lib_error error;
    const DLTensor **inputs = LIB_NEW_ARRAY(r->work, const DLTensor *, (size_t)inner->ordinary_inputs + 1);
    dlc_output_slot *outputs = LIB_NEW_ARRAY(r->work, dlc_output_slot, (size_t)inner->output_count + 1);
    for (int i = 0; i < inner->ordinary_inputs; i++) inputs[i] = input_tensor(r, &segment->inputs[i]);
    for (int o = 0; o < inner->output_count; o++) outputs[o].tensor = output_tensor(r, segment, o);
    if (jit_run(inner, r->how, inputs, inner->ordinary_inputs, outputs, inner->output_count, &error) != DLC_OK)
        lib_raise_error(r->work->scope, &error);
    drop_borders(r, number);
}

/* Checks the host's tensors as far as possible before anything runs. */
static void check(segment_run *r) {
    jit_boundary *c = &r->boundary;
    const dlc_program *program = r->program;
    const graph *g = program->graph;
    lib_error error;
    size_t tensors = (size_t)(program->ordinary_inputs + program->output_count);
    c->input_data = LIB_NEW_ARRAY(r->work, char *, tensors + 1);
    c->output_data = c->input_data + program->ordinary_inputs;
    c->extents = LIB_NEW_ARRAY(r->work, jit_extent, tensors + 1);
    c->direct = LIB_NEW_ARRAY(r->work, bool, tensors + 1);
    c->shapes = LIB_NEW_ARRAY(r->work, int64_t, program->dimensions + 1);
    if (jit_check_inputs(c, &error) != DLC_OK) lib_raise_error(r->work->scope, &error);
    r->checked = true;
    for (int i = 0; i < c->input_count; i++)
        r->on_device = r->on_device || jit_is_on_device(program->context, c->inputs[i]);
    jit_bind_symbols(r->work, g, program->ordinary_inputs, c->shapes, r->values);
    for (int o = 0; o < c->output_count; o++) {
        const graph_shape *shape = program->outputs[o].shape;
        if (!c->outputs[o].tensor) continue;
        for (int d = 0; d < shape->rank; d++)
            if (graph_depends_on_data(g, shape->dim[d]))
                fail(r, DLC_INVALID_ARGUMENT,
                     "%s: dimension %d of output %s depends on data: leave its slot empty, the library makes the "
                     "tensor",
                     r->how->caller, d, program->outputs[o].name);
        if (jit_check_output(c, o, output_sizes(r, program, o), &error) != DLC_OK)
            lib_raise_error(r->work->scope, &error);
    }
}

static void check_end(segment_run *r) {
    lib_error error;
    if (!jit_is_over(r->how)) return;
    jit_how_it_ended(r->how, &error);
    lib_raise_error(r->work->scope, &error);
}

static void run_all(segment_run *r) {
    const dlc_program *program = r->program;
    r->values = LIB_NEW_ARRAY(r->work, int64_t, program->graph->symbols.count + 1);
    check(r);
    r->border = LIB_NEW_ARRAY(r->work, DLManagedTensorVersioned *, (size_t)program->borders + 1);
    for (int s = 0; s < program->segment_count; s++) {
        check_end(r);
        run_segment(r, s);
    }
}

static void undo(segment_run *r) {
    drop_borders(r, INT32_MAX);
    for (int o = 0; r->checked && o < r->boundary.output_count; o++) {
        dlc_output_slot *slot = &r->boundary.outputs[o];
        if (slot->tensor || !slot->managed) continue;
        slot->managed->deleter(slot->managed);
        slot->managed = NULL;
    }
}

dlc_status jit_segments_run(dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                            dlc_output_slot *outputs, int output_count, lib_error *error) {
    lib_scope scope;
    lib_arena work;
    dlc_event *event;
    LIB_TRY(jit_event_new(program, how, &event, error));
    dlc_event **const place = how->event;
    how->event = NULL; /* of segments */
    lib_arena_init(&work, &program->context->allocator, &scope);
    segment_run r = {.program = program,
                     .how = how,
                     .work = &work,
                     .boundary = {.caller = how->caller,
                                  .program = program,
                                  .inputs = inputs,
                                  .outputs = outputs,
                                  .input_count = input_count,
                                  .output_count = output_count}};
    if (LIB_ENTER(&scope)) {
        run_all(&r);
    } else {
        *error = scope.error;
        undo(&r);
    }
    lib_arena_free(&work);
    how->event = place;
    jit_event_give(event, how, scope.error.status); /* the event is already complete */
    return scope.error.status;
}

/* ---- sizes of the first segment */

static void gather_first(const dlc_program *program, lib_arena *work, const int64_t *shapes, int64_t *sizes,
                         int *count) {
    const jit_segment *first = program->segments;
    int64_t *values = LIB_NEW_ARRAY(work, int64_t, program->graph->symbols.count + 1);
    jit_bind_symbols(work, program->graph, program->ordinary_inputs, shapes, values);
    for (int i = 0; i < first->program->ordinary_inputs; i++) {
        const graph_segment_input *input = &first->inputs[i];
        if (input->source == GRAPH_FROM_SYMBOLS) {
            sizes[(*count)++] = 0;
            for (int k = 0; k < input->count; k++) sizes[(*count)++] = values[input->symbols[k]];
            continue;
        }
        const int64_t *from = shapes;
        for (int k = 0; k < input->number; k++) from += program->inputs[k].rank;
        for (int d = 0; d < program->inputs[input->number].rank; d++) sizes[(*count)++] = from[d];
    }
}

dlc_status jit_segments_first(const dlc_program *program, const int64_t *shapes, int64_t **sizes, int *count,
                              lib_error *error) {
    lib_scope scope;
    lib_arena work;
    size_t bytes = (program->segments->program->dimensions + 1) * sizeof **sizes;
    *count = 0;
    *sizes = lib_allocate(&program->context->allocator, bytes, 16);
    if (!*sizes) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a list of sizes");
    lib_arena_init(&work, &program->context->allocator, &scope);
    if (LIB_ENTER(&scope)) gather_first(program, &work, shapes, *sizes, count);
    lib_arena_free(&work);
    if (scope.error.status == DLC_OK) return DLC_OK;
    *error = scope.error;
    lib_release(&program->context->allocator, *sizes, bytes, 16);
    *sizes = NULL;
    return error->status;
}
