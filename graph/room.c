/* An output concat(input, ...) shares a buffer with that input: the buffer is the tensor that the plan gets, and has room for more
 * elements along the concat's axis than input and output have. So only the appended elements are written. */
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/ops_common.h"

#include <string.h>

bool graph_grows(const graph *g, int output, int input, int *axis) {
    const graph_id value = g->outputs.data[output];
    const graph_node *node = graph_node_of(g, value);
    const graph_shape *shape = graph_shape_of(g, value);
    if (node->op->structure != GRAPH_JOINS || node->inputs < 2 || node->input[0] != g->inputs.data[input]) return false;
    *axis = graph_axis_of(node->attribute[0].integer, shape->rank);
    return !lib_dtype_is_packed(shape->dtype) && !lib_dtype_is_encoded(shape->dtype) && shape->dtype != DLC_C64;
}

typedef struct rooms {
    int count;
    const graph_growth *growth;
    /* [count] the buffer with the output's elements, in the new graph; 0: not made yet */
    graph_id *buffer;
} rooms;

/* The index of the pair whose output (if `output`), else input, is this value of the old graph; -1: none. */
static int pair_of(const graph_walk *walk, graph_id value, bool output) {
    const rooms *r = walk->user;
    for (int k = 0; k < r->count; k++)
        if (value ==
            (output ? walk->from->outputs.data[r->growth[k].output] : walk->from->inputs.data[r->growth[k].input]))
            return k;
    return -1;
}

/* The slice of the buffer from 0 on along the pair's axis, as long as `value` of the old graph. */
static graph_id part_for(graph_walk *walk, int pair, graph_id buffer, graph_id value) {
    const int axis = ((const rooms *)walk->user)->growth[pair].axis;
    const tir_expr size = graph_walk_dim(walk, graph_shape_of(walk->from, value)->dim[axis]);
    return graph_slice_axis(walk->to, buffer, axis, tir_index(walk->to->pool, 0), size);
}

/* Replaces the pair's input by an input of the buffer's size, and its readers' operand by a slice of that. */
static void make_buffer(graph_walk *walk, const graph_node *node, int pair) {
    const rooms *r = walk->user;
    const graph_value *value = &walk->from->values.data[node->first];
    graph_shape shape = value->shape;
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = graph_walk_dim(walk, shape.dim[d]);
    shape.dim[r->growth[pair].axis] = graph_walk_dim(walk, walk->from->symbols.data[r->growth[pair].room].var);
    const graph_id buffer = graph_new_input(walk->to, value->name, &shape),
                   part = part_for(walk, pair, buffer, node->first);
    r->buffer[pair] = buffer;
    graph_walk_record(walk, node, &part);
}

/* Replaces the pair's concat by an update of the buffer behind the input's elements. Later readers of the input read the updated
 * buffer too: so the old one has no reader after the update, which can work in place. */
static void append(graph_walk *walk, const graph_node *node, int pair) {
    const rooms *r = walk->user;
    const int64_t axis = r->growth[pair].axis;
    graph *to = walk->to;
    const graph_id *input = graph_walk_inputs(walk, node), past = node->input[0];
    const graph_id more = node->inputs == 2 ? input[1] : graph_concat(to, node->inputs - 1, input + 1, (int)axis);
    const graph_id start =
        graph_dimension(to, DLC_I64, graph_walk_dim(walk, graph_shape_of(walk->from, past)->dim[axis]));
    const graph_setting axes = graph_set_list("axes", 1, &axis);
    r->buffer[pair] =
        graph_emit_with(to, "dynamic_update_slice", 3, (graph_id[]){r->buffer[pair], more, start}, 1, &axes);
    const graph_id all = part_for(walk, pair, r->buffer[pair], node->first);
    graph_walk_record(walk, node, &all);
    walk->map[past] = part_for(walk, pair, r->buffer[pair], past);
}

static void make_outputs(graph_walk *walk) {
    const graph *from = walk->from;
    const rooms *r = walk->user;
    for (uint32_t o = 0; o < from->outputs.count; o++) {
        graph_id value = walk->map[from->outputs.data[o]];
        for (int k = 0; k < r->count; k++)
            if (r->growth[k].output == (int)o) value = r->buffer[k];
        graph_new_output(walk->to, from->output_names.data[o], value);
    }
    walk->own_outputs = true;
}

static void pass_room(graph_walk *walk) {
    const graph *from = walk->from;
    if (from->parent) {
        graph_walk_live(walk);
        return;
    }
    const bool *live = graph_live_nodes(walk->to->arena, from);
    for (uint32_t i = 0; i < from->nodes.count; i++) {
        const graph_node *node = &from->nodes.data[i];
        if (!live[i]) continue;
        const int in = node->results ? pair_of(walk, node->first, false) : -1,
                  out = node->results ? pair_of(walk, node->first, true) : -1;
        if (in >= 0)
            make_buffer(walk, node, in);
        else if (out >= 0)
            append(walk, node, out);
        else
            graph_walk_node(walk, i);
    }
    make_outputs(walk);
}

graph *graph_give_room(lib_arena *arena, const graph *g, int count, const graph_growth *growth) {
    rooms r = {count, growth, LIB_NEW_ARRAY(arena, graph_id, (size_t)count + 1)};
    return graph_walk_run(arena, g, g->phase, NULL, pass_room, &r);
}
