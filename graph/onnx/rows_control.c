/* Rows of control flow: If, Loop, Scan. A branch or body is a sub-graph of the current graph; values of enclosing graphs that it
 * uses are operands of the row and inputs of the sub-graph. Known values and stored tensors need no operand: they are emitted in
 * the sub-graph. */
#include "graph/onnx/control.h"

/* ---- captures of bodies --------------------------------------------------------------------------------------- */

typedef struct capture {
    onnx_value *outer;
} capture;

typedef lib_vec(capture) captures;

static bool is_own(const onnx_graph *part, onnx_bytes name) {
    for (size_t i = 0; i < part->inputs.count; i++)
        if (onnx_same(part->inputs.data[i].name, name)) return true;
    for (size_t i = 0; i < part->initializers.count; i++)
        if (onnx_same(part->initializers.data[i].name, name)) return true;
    for (size_t n = 0; n < part->nodes.count; n++)
        for (size_t i = 0; i < part->nodes.data[n].outputs.count; i++)
            if (onnx_same(part->nodes.data[n].outputs.data[i], name)) return true;
    return false;
}

static void take(onnx_import *im, captures *all, const onnx_graph *body, onnx_bytes name) {
    onnx_value *value = name.size ? onnx_find_value(im, name) : NULL;
    if (!value || is_own(body, name)) return;
    for (uint32_t i = 0; i < all->count; i++)
        if (all->data[i].outer == value) return;
    lib_vec_push(im->g->arena, all, ((capture){value}));
}

/* Names that the body, or a graph nested in it, reads and that enclosing graphs define. Graphs are at most ONNX_GRAPH_NESTING deep. */
static void find_captures(onnx_import *im, captures *all, const onnx_graph *body, const onnx_graph *part) {
    for (size_t n = 0; n < part->nodes.count; n++) {
        const onnx_node *node = &part->nodes.data[n];
        for (size_t i = 0; i < node->inputs.count; i++) take(im, all, body, node->inputs.data[i]);
        for (size_t a = 0; a < node->attributes.count; a++)
            if (node->attributes.data[a].g) find_captures(im, all, body, node->attributes.data[a].g);
    }
    for (size_t i = 0; i < part->outputs.count; i++) take(im, all, body, part->outputs.data[i].name);
}

static bool is_made(const capture *c) {
    return c->outer->id && !c->outer->known && !c->outer->stored;
}

static int captured_ids(const captures *all, graph_id *ids) {
    int count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        if (is_made(&all->data[i])) ids[count++] = all->data[i].outer->id;
    return count;
}

/* ---- bodies -------------------------------------------------------------------------------------------------------------- */

/* A sub-graph under construction. */
typedef struct body {
    onnx_import saved;
    onnx_names_scope scope;
    graph *inside;
    int64_t number;
} body;

static void begin(onnx_import *im, body *b) {
    b->saved = *im;
    b->scope = (onnx_names_scope){.outer = NULL};
    b->inside = graph_new_subgraph(im->g, &b->number);
    im->g = b->inside;
    im->scope = &b->scope;
}

static void end(onnx_import *im, const body *b) {
    const uint32_t inputs = im->inputs.count;
    *im = b->saved;
    im->inputs.count = inputs;
}

/* Defines inputs for captured values, under their names. */
static void define_captures(onnx_import *im, const body *b, const captures *all) {
    for (uint32_t i = 0; i < all->count; i++) {
        const onnx_value *outer = all->data[i].outer;
        onnx_value *value = onnx_define(im, outer->name);
        value->stored = outer->stored, value->known = outer->known;
        if (is_made(&all->data[i])) value->id = graph_new_input(im->g, NULL, graph_shape_of(b->saved.g, outer->id));
    }
}

static void import_body(onnx_import *im, const onnx_graph *part) {
    for (size_t i = 0; i < part->initializers.count; i++)
        onnx_define(im, part->initializers.data[i].name)->stored = &part->initializers.data[i];
    onnx_import_nodes(im, part->nodes.data, part->nodes.count);
}

/* An output of the body as a value of its graph. */
static onnx_value *output_of(onnx_import *im, const onnx_graph *part, size_t i) {
    if (i >= part->outputs.count)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu outputs, of which output %zu is wanted", part->outputs.count, i);
    onnx_value *value = onnx_find_value(im, part->outputs.data[i].name);
    if (!value)
        onnx_fail(im, DLC_PARSE_ERROR, "output %s of a body is defined nowhere",
                  onnx_shown(im->g->arena, part->outputs.data[i].name));
    return value;
}

static const onnx_graph *graph_attribute_of(onnx_import *im, const char *name) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_GRAPH);
    if (!a) onnx_fail(im, DLC_PARSE_ERROR, "attribute %s is missing", name);
    return a->g;
}

/* ---- If ------------------------------------------------------------------------------------------------------------------ */

/* Imports a branch that is known to be taken in place of the node. */
static void import_inline(onnx_import *im, const onnx_graph *part) {
    const onnx_import saved = *im;
    onnx_names_scope scope = {.outer = im->scope};
    onnx_value *outputs[64];
    if (saved.node->outputs.count > 64) onnx_fail(im, DLC_UNSUPPORTED, "%zu results", saved.node->outputs.count);
    im->scope = &scope;
    import_body(im, part);
    for (size_t i = 0; i < saved.node->outputs.count; i++) outputs[i] = output_of(im, part, i);
    const uint32_t inputs = im->inputs.count;
    *im = saved;
    im->inputs.count = inputs;
    for (size_t i = 0; i < im->node->outputs.count; i++)
        if (im->result[i])
            im->result[i]->id = outputs[i]->id, im->result[i]->stored = outputs[i]->stored,
            im->result[i]->known = outputs[i]->known;
}

static int64_t import_branch(onnx_import *im, const onnx_graph *part, const captures *all, size_t outputs) {
    body b;
    begin(im, &b);
    define_captures(im, &b, all);
    import_body(im, part);
    for (size_t i = 0; i < outputs; i++) graph_new_output(im->g, NULL, onnx_id_of(im, output_of(im, part, i)));
    end(im, &b);
    return b.number;
}

static void import_if(onnx_import *im) {
    const onnx_graph *then = graph_attribute_of(im, "then_branch"), *otherwise = graph_attribute_of(im, "else_branch");
    if (onnx_operand_is_constant(im, 0)) {
        import_inline(im, onnx_operand_float(im, 0, 0) != 0 ? then : otherwise);
        return;
    }
    captures all = {0};
    graph_id *in;
    find_captures(im, &all, then, then);
    find_captures(im, &all, otherwise, otherwise);
    in = LIB_NEW_ARRAY(im->g->arena, graph_id, all.count + 1);
    in[0] = graph_reshape(im->g, onnx_operand(im, 0), 0, NULL);
    const int count = 1 + captured_ids(&all, in + 1);
    const graph_setting s[] = {
        graph_set_integer("then", import_branch(im, then, &all, im->node->outputs.count)),
        graph_set_integer("otherwise", import_branch(im, otherwise, &all, im->node->outputs.count))};
    const graph_id y = onnx_emit(im, "if", count, in, 2, s);
    for (size_t i = 0; i < im->node->outputs.count; i++) onnx_give(im, i, y + (graph_id)i);
}

/* ---- Loop ---------------------------------------------------------------------------------------------------------------- */

typedef struct loop {
    const onnx_graph *graph;
    captures all;
    /* Operands of the row: number of the iteration, condition, carried values, the trip count (if it is a value), captures. */
    graph_id *in;
    int count, carried;
    bool limited;
} loop;

static graph_id as_scalar(onnx_import *im, graph_id x) {
    return graph_shape_of(im->g, x)->rank ? graph_reshape(im->g, x, 0, NULL) : x;
}

/* An input of the body in the rank that the file declares for it: numbers and conditions may be [1]. */
static void define_formal(onnx_import *im, const onnx_value_info *info, graph_id id) {
    const onnx_type *type = info->type;
    const bool list =
        type && type->which == ONNX_TYPE_TENSOR && type->tensor->shape && type->tensor->shape->dims.count == 1;
    const tir_expr one = tir_index(im->g->pool, 1);
    onnx_define(im, info->name)->id = list ? graph_reshape(im->g, id, 1, &one) : id;
}

/* Inputs of a sub-graph of the loop, in the order and with the shapes of the row's operands. */
static void define_inputs(onnx_import *im, const body *b, const loop *l, graph_id *inputs) {
    for (int i = 0; i < l->count; i++) inputs[i] = graph_new_input(im->g, NULL, graph_shape_of(b->saved.g, l->in[i]));
    int at = 2 + l->carried + l->limited;
    for (uint32_t i = 0; i < l->all.count; i++) {
        onnx_value *value = onnx_define(im, l->all.data[i].outer->name);
        value->stored = l->all.data[i].outer->stored, value->known = l->all.data[i].outer->known;
        if (is_made(&l->all.data[i])) value->id = inputs[at++];
    }
}

static int64_t loop_condition(onnx_import *im, const loop *l) {
    body b;
    graph_id *inputs = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)l->count + 1);
    begin(im, &b);
    for (int i = 0; i < l->count; i++) inputs[i] = graph_new_input(im->g, NULL, graph_shape_of(b.saved.g, l->in[i]));
    graph_id go = inputs[1];
    if (l->limited) go = graph_and(im->g, go, graph_lt(im->g, inputs[0], inputs[2 + l->carried]));
    graph_new_output(im->g, NULL, go);
    end(im, &b);
    return b.number;
}

/* `stacks`: the body of a scan, whose outputs are carried values and stack elements; *always: the condition is always true. */
static int64_t loop_body(onnx_import *im, const loop *l, size_t stacks, bool *always) {
    body b;
    graph_id *inputs = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)l->count + 1);
    if (l->graph->inputs.count != (size_t)l->carried + 2)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu inputs for %d carried values", l->graph->inputs.count,
                  l->carried);
    begin(im, &b);
    define_inputs(im, &b, l, inputs);
    define_formal(im, &l->graph->inputs.data[0], inputs[0]);
    define_formal(im, &l->graph->inputs.data[1], inputs[1]);
    for (int i = 0; i < l->carried; i++) onnx_define(im, l->graph->inputs.data[i + 2].name)->id = inputs[i + 2];
    import_body(im, l->graph);
    const graph_id condition = as_scalar(im, onnx_id_of(im, output_of(im, l->graph, 0)));
    double number;
    *always = condition == inputs[1] || (graph_is_number(im->g, condition, &number) && number != 0);
    graph_new_output(im->g, NULL, graph_add(im->g, inputs[0], graph_scalar_i64(im->g, DLC_I64, 1)));
    graph_new_output(im->g, NULL, condition);
    for (size_t i = 0; i < (size_t)l->carried + stacks; i++)
        graph_new_output(im->g, NULL, onnx_id_of(im, output_of(im, l->graph, i + 1)));
    end(im, &b);
    return b.number;
}

static void import_loop(onnx_import *im) {
    loop l = {.graph = graph_attribute_of(im, "body")};
    const size_t given = onnx_operands(im);
    bool always;
    l.carried = given > 2 ? (int)given - 2 : 0;
    if (l.graph->outputs.count < (size_t)l.carried + 1)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu outputs for %d carried values", l.graph->outputs.count,
                  l.carried);
    const size_t stacks = l.graph->outputs.count - 1 - (size_t)l.carried;
    const onnx_known *trips = onnx_operand_known(im, 0);
    find_captures(im, &l.all, l.graph, l.graph);
    l.in = LIB_NEW_ARRAY(im->g->arena, graph_id, given + l.all.count + 4);
    l.in[l.count++] = graph_scalar_i64(im->g, DLC_I64, 0);
    l.in[l.count++] = onnx_has(im, 1) ? as_scalar(im, onnx_operand(im, 1)) : graph_scalar_i64(im->g, DLC_BOOL, 1);
    for (int i = 0; i < l.carried; i++) l.in[l.count++] = onnx_operand(im, (size_t)i + 2);
    l.limited = onnx_has(im, 0) && !stacks;
    if (l.limited) l.in[l.count++] = as_scalar(im, onnx_operand(im, 0));
    l.count += captured_ids(&l.all, l.in + l.count);
    graph_id y;
    if (!stacks) {
        const int64_t condition = loop_condition(im, &l), inside = loop_body(im, &l, 0, &always);
        y = onnx_emit(im, "while", l.count, l.in, 2,
                      (graph_setting[]){graph_set_integer("condition", condition), graph_set_integer("body", inside)});
    } else {
        double first = 1;
        const bool begins = !onnx_has(im, 1) || (graph_is_number(im->g, l.in[1], &first) && first != 0);
        if (!trips || trips->count != 1 || !trips->element[0].index)
            onnx_fail(im, DLC_UNSUPPORTED, "results that are stacked, of a number of iterations that depends on data");
        const int64_t inside = loop_body(im, &l, stacks, &always);
        if (!always || !begins)
            onnx_fail(im, DLC_UNSUPPORTED, "results that are stacked, in a loop that its condition may end");
        const graph_setting s[] = {graph_set_integer("body", inside), graph_set_integer("carries", 2 + l.carried),
                                   graph_set_integer("sequences", 0),
                                   graph_set_dims("length", 1, &trips->element[0].index)};
        y = onnx_emit(im, "scan", l.count, l.in, 4, s);
    }
    for (size_t i = 0; i < im->node->outputs.count; i++) onnx_give(im, i, y + 2 + (graph_id)i);
}

/* ---- Scan ---------------------------------------------------------------------------------------------------------------- */

/* x with that axis first, or, `back`, the first axis there. */
static graph_id move_axis(onnx_import *im, graph_id x, int axis, bool back) {
    const int rank = graph_shape_of(im->g, x)->rank;
    int64_t permutation[DLC_MAX_RANK];
    if (axis == 0) return x;
    for (int d = 0; d < rank; d++) {
        if (back)
            permutation[d] = d < axis ? d + 1 : d == axis ? 0 : d;
        else
            permutation[d] = d == 0 ? axis : d <= axis ? d - 1 : d;
    }
    return graph_transpose(im->g, x, permutation);
}

static int64_t entry(const int64_t *list, int count, int i) {
    return list && i < count ? list[i] : 0;
}

static void import_scan(onnx_import *im) {
    const onnx_graph *part = graph_attribute_of(im, "body");
    const int given = (int)onnx_operands(im), sequences = (int)onnx_int(im, "num_scan_inputs", 1),
              states = given - sequences;
    int in_axes, in_directions, out_axes, out_directions, count = 0;
    const int64_t *in_axis = onnx_ints(im, "scan_input_axes", &in_axes),
                  *in_direction = onnx_ints(im, "scan_input_directions", &in_directions);
    const int64_t *out_axis = onnx_ints(im, "scan_output_axes", &out_axes),
                  *out_direction = onnx_ints(im, "scan_output_directions", &out_directions);
    const int stacks = (int)part->outputs.count - states;
    captures all = {0};
    body b;
    if (sequences < 1 || states < 0 || stacks < 0 || part->inputs.count != (size_t)given)
        onnx_fail(im, DLC_PARSE_ERROR, "%d operands, %d of them sequences, for a body of %zu inputs and %zu outputs",
                  given, sequences, part->inputs.count, part->outputs.count);
    find_captures(im, &all, part, part);
    graph_id *in = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)given + all.count + 1);
    int64_t *reverse = LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)(sequences + stacks) + 1);
    for (; count < given; count++) {
        const int s = count - states;
        in[count] = onnx_operand(im, (size_t)count);
        if (!in[count]) onnx_fail(im, DLC_PARSE_ERROR, "operand %d is missing", count);
        if (s >= 0)
            in[count] = move_axis(
                im, in[count], onnx_axis(im, entry(in_axis, in_axes, s), graph_shape_of(im->g, in[count])->rank, false),
                false);
        if (s >= 0) reverse[s] = entry(in_direction, in_directions, s);
    }
    for (int i = 0; i < stacks; i++) reverse[sequences + i] = entry(out_direction, out_directions, i);
    count += captured_ids(&all, in + count);
    begin(im, &b);
    for (int i = 0; i < given; i++) {
        graph_shape shape = *graph_shape_of(b.saved.g, in[i]);
        if (i >= states) { /* an element of a sequence */
            for (int d = 0; d + 1 < shape.rank; d++) shape.dim[d] = shape.dim[d + 1];
            shape.rank--;
        }
        onnx_define(im, part->inputs.data[i].name)->id = graph_new_input(im->g, NULL, &shape);
    }
    define_captures(im, &b, &all);
    import_body(im, part);
    for (size_t i = 0; i < part->outputs.count; i++)
        graph_new_output(im->g, NULL, onnx_id_of(im, output_of(im, part, i)));
    end(im, &b);
    const graph_setting s[] = {graph_set_integer("body", b.number), graph_set_integer("carries", states),
                               graph_set_integer("sequences", sequences),
                               graph_set_list("reverse", sequences + stacks, reverse)};
    const graph_id y = onnx_emit(im, "scan", count, in, 4, s);
    for (int i = 0; i < states + stacks; i++) {
        graph_id result = y + (graph_id)i;
        if (i >= states)
            result = move_axis(
                im, result,
                onnx_axis(im, entry(out_axis, out_axes, i - states), graph_shape_of(im->g, result)->rank, false), true);
        onnx_give(im, (size_t)i, result);
    }
}

const onnx_row onnx_rows_control[] = {
    {"If", 1, 0, import_if, NULL},
    {"Loop", 1, 0, import_loop, NULL},
    {"Scan", 9, 0, import_scan, NULL},
    {0},
};
