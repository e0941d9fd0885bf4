/* Donation with room: an output that is an input and more along one axis, concat(input, ...), in one buffer larger than both
 * (dlc_program_alias), so that a run writes only the new elements. In plans both are that whole buffer (graph/room.c). The buffer's size
 * along the axis, the *room*, is a symbol; kernels use it only in strides. A run computes the room from the strides of the output's tensor
 * and looks up the plan by the rooms and the shapes of the inputs; room 0 stands for a compact output. */
#include "jit/internal.h"

/* ---- pairs */

const graph_growth *jit_growth_of(const dlc_program *program, int output) {
    for (int k = 0; k < program->growth_count; k++)
        if (program->growths[k].output == output) return &program->growths[k];
    return NULL;
}

static tir_expr size_of(const graph *g, graph_id value, const graph_growth *growth) {
    return graph_shape_of(g, value)->dim[growth->axis];
}

static bool has_same_sizes(const graph *g, const graph_growth *a, const graph_growth *b) {
    const graph_id *in = g->inputs.data, *out = g->outputs.data;
    return tir_equal(g->pool, size_of(g, in[a->input], a), size_of(g, in[b->input], b)) == TIR_YES &&
           tir_equal(g->pool, size_of(g, out[a->output], a), size_of(g, out[b->output], b)) == TIR_YES;
}

/* Adds a symbol for the room of a new pair; returns its index. Pairs of equal sizes share one, so that equal computations on them are one
 * kernel. */
static uint32_t add_room(dlc_program *program) {
    graph *g = program->graph;
    const char *name = "room";
    for (int i = 1; graph_find_symbol(g, name) != UINT32_MAX; i++)
        name = lib_arena_format(&program->arena, "room%d", i);
    graph_symbol_named(g, name);
    g->symbols.data[g->symbols.count - 1].varies = true;
    program->room_count++;
    program->dimensions++;
    return g->symbols.count - 1;
}

bool jit_add_growth(dlc_program *program, int output, int input) {
    graph_growth growth = {.output = output, .input = input};
    if (!graph_grows(program->graph, output, input, &growth.axis)) return false;
    if (jit_growth_of(program, output)) return true;
    if (!program->growths)
        program->growths = LIB_NEW_ARRAY(&program->arena, graph_growth, (size_t)program->output_count + 1);
    int same = 0;
    while (same < program->growth_count && !has_same_sizes(program->graph, &program->growths[same], &growth)) same++;
    growth.room = same < program->growth_count ? program->growths[same].room : add_room(program);
    program->growths[program->growth_count++] = growth;
    return true;
}

/* Number of the pair's room among the program's. */
static uint32_t room_number(const dlc_program *program, const graph_growth *growth) {
    return growth->room - (program->graph->symbols.count - (uint32_t)program->room_count);
}

/* ---- binding */

void jit_bind_rooms(jit_build *build, const int64_t *shapes, int64_t *values) {
    const dlc_program *program = build->program;
    const graph *g = program->graph;
    const int64_t *rooms = shapes + program->dimensions - program->room_count;
    const tir_evaluator evaluator = {.variables = jit_variables(build->work, g, values)};
    build->grown = LIB_NEW_ARRAY(build->work, int64_t, (size_t)program->growth_count + 1);
    for (int k = 0; k < program->growth_count; k++) {
        const graph_growth *growth = &program->growths[k];
        const int64_t room = rooms[room_number(program, growth)];
        build->grown[k] =
            (int64_t)tir_evaluate(g->pool, size_of(g, g->outputs.data[growth->output], growth), &evaluator);
        values[growth->room] = room ? room : build->grown[k];
    }
}

void jit_describe_room(jit_build *build, const graph_growth *growth, jit_donation *donation) {
    const graph *g = build->bound;
    donation->axis = growth->axis;
    donation->size = build->grown[growth - build->program->growths];
    donation->room = jit_dimension(build, size_of(g, g->outputs.data[growth->output], growth));
}

/* ---- tensors */

static bool is_empty(const DLTensor *tensor) {
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] == 0) return true;
    return false;
}

bool jit_fits_room(const DLTensor *tensor, int axis, int64_t room) {
    int64_t wanted = 1, compact = 1;
    if (is_empty(tensor)) return true;
    if (tensor->shape[axis] > room) return false;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        const int64_t stride = tensor->strides ? tensor->strides[d] : compact;
        if (tensor->shape[d] != 1 && stride != wanted) return false;
        if (__builtin_mul_overflow(wanted, d == axis ? room : tensor->shape[d], &wanted)) return false;
        compact *= tensor->shape[d]; /* at most `wanted` */
    }
    return true;
}

/* If the tensor lies as the first elements of a larger compact one: the larger one's size along the axis, from the stride of a dimension
 * before it. 0: the tensor is compact, or lies otherwise. The tensor may be invalid: it has not been checked yet. */
static int64_t room_of(const DLTensor *tensor, int axis, int rank) {
    if (!tensor || tensor->ndim != rank || !tensor->shape || !tensor->strides) return 0;
    for (int d = 0; d < rank; d++)
        if (tensor->shape[d] < 1) return 0;
    int64_t below = 1;
    for (int d = axis + 1; d < rank; d++)
        if (__builtin_mul_overflow(below, tensor->shape[d], &below)) return 0;
    int before = axis - 1;
    while (before >= 0 && tensor->shape[before] == 1) before--;
    if (before < 0) return 0;
    const int64_t room = tensor->strides[before] / below;
    const bool larger = room > tensor->shape[axis] && room <= GRAPH_SYMBOL_MAX;
    return larger && jit_fits_room(tensor, axis, room) ? room : 0;
}

void jit_add_rooms(jit_boundary *c) {
    const dlc_program *program = c->program;
    int64_t *rooms = c->shapes + c->shape_count;
    for (int r = 0; r < program->room_count; r++) rooms[r] = 0;
    for (int k = 0; k < program->growth_count; k++) {
        const graph_growth *growth = &program->growths[k];
        int64_t *room = &rooms[room_number(program, growth)];
        if (!*room)
            *room = room_of(c->outputs[growth->output].tensor, growth->axis, program->outputs[growth->output].rank);
    }
    c->shape_count += program->room_count;
}

/* Strides in elements, also of tensors that have none. */
static void strides_of(const DLTensor *tensor, int64_t *strides) {
    lib_strides_compact(tensor->ndim, tensor->shape, strides);
    for (int d = 0; tensor->strides && d < tensor->ndim; d++) strides[d] = tensor->strides[d];
}

bool jit_begins(const DLTensor *part, const DLTensor *whole) {
    int64_t own[DLC_MAX_RANK], other[DLC_MAX_RANK];
    bool same = true;
    strides_of(part, own);
    strides_of(whole, other);
    for (int d = 0; d < part->ndim; d++) same = same && (part->shape[d] == 1 || own[d] == other[d]);
    return same || is_empty(part);
}

DLTensor jit_view_in_room(const DLTensor *tensor, const jit_donation *donation, char *buffer, int64_t *strides) {
    int64_t shape[DLC_MAX_RANK];
    DLTensor view = *tensor;
    for (int d = 0; d < tensor->ndim; d++) shape[d] = d == donation->axis ? donation->room : tensor->shape[d];
    lib_strides_compact(tensor->ndim, shape, strides);
    view.data = buffer, view.byte_offset = 0, view.strides = strides;
    return view;
}
