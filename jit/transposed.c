/* Outputs of an init graph that are transpositions of weights, as of the weights of linear layers that frameworks store transposed. They are
 * not computed: a copy in a layout is packed from the original weight, of which it is a copy in another layout. */
#include "graph/build.h"
#include "jit/internal.h"

tir_layout jit_row_major(int rank) {
    tir_layout layout = {.rank = (int16_t)rank, .count = (int16_t)rank};
    for (int d = 0; d < rank; d++) layout.part[d] = (tir_layout_part){.dim = (int16_t)d, .divisor = 1};
    return layout;
}

jit_packing jit_transposed_packing(const jit_transposition *t, const tir_layout *layout) {
    tir_layout transposed = *layout;
    for (int p = 0; p < transposed.count; p++) transposed.part[p].dim = (int16_t)t->axis[layout->part[p].dim];
    return jit_packing_outline(&transposed, t->element, t->shape);
}

bool jit_transposed_fits(const jit_transposition *t, const jit_packing *outline) {
    bool fits = outline->element == t->element && outline->layout.rank == t->rank;
    for (int d = 0; fits && d < t->rank; d++) fits = outline->shape[d] == t->shape[t->axis[d]];
    return fits;
}

/* Bytes of an element; 0: several share a byte. */
static size_t whole_element(const graph_shape *shape) {
    const size_t size = lib_dtype_size(shape->dtype);
    return lib_dtype_bytes(shape->dtype, 8) == 8 * size ? size : 0;
}

/* The constant that the value is a transposition of; NULL: it is something else. */
static const graph_constant *transposed_constant(const graph *g, graph_id value, jit_transposition *t) {
    const graph_node *node = graph_node_of(g, value);
    if (node->op->structure != GRAPH_PERMUTES) return NULL;
    const graph_shape *from = graph_shape_of(g, node->input[0]);
    const graph_attribute *permutation = &node->attribute[0];
    *t = (jit_transposition){.rank = from->rank, .element = whole_element(from)};
    for (int d = 0; d < from->rank; d++) {
        t->axis[d] = (int)permutation->list[d];
        tir_is_const(g->pool, from->dim[d], &t->shape[d]);
    }
    graph_id operand = node->input[0];
    while (graph_node_of(g, operand)->op->structure == GRAPH_REGROUPS) operand = graph_node_of(g, operand)->input[0];
    return t->element ? graph_constant_of(g, operand) : NULL;
}

static jit_weight *transposed_output(dlc_program *program, uint32_t output) {
    jit_transposition t;
    const graph *init = program->init;
    const graph_constant *constant = transposed_constant(init, init->outputs.data[output], &t);
    const jit_weight *base = constant ? jit_weight_of(constant) : NULL;
    if (!base || base->name != constant->bytes || base->size != constant->size) return NULL;
    jit_weight *weight = jit_weight_transpose(program, constant, &t);
    if (!weight)
        lib_raise(program->arena.scope, DLC_OUT_OF_MEMORY, "out of memory: a constant of %zu bytes", constant->size);
    return weight;
}

void jit_find_transposed(dlc_program *program) {
    lib_arena *arena = &program->arena;
    const graph *init = program->init;
    graph *rest = lib_arena_copy(arena, init, sizeof *init);
    program->transposed = LIB_NEW_ARRAY(arena, jit_weight *, init->outputs.count + 1);
    rest->outputs.data = LIB_NEW_ARRAY(arena, graph_id, init->outputs.count + 1);
    rest->output_names.data = LIB_NEW_ARRAY(arena, const char *, init->outputs.count + 1);
    rest->outputs.count = rest->output_names.count = 0;
    for (uint32_t o = 0; o < init->outputs.count; o++) {
        /* a device transposes its own copies */
        if (!program->context->target->runtime) program->transposed[o] = transposed_output(program, o);
        if (program->transposed[o]) continue;
        rest->outputs.data[rest->outputs.count++] = init->outputs.data[o];
        rest->output_names.data[rest->output_names.count++] = init->output_names.data[o];
    }
    program->init_rest = rest;
}
