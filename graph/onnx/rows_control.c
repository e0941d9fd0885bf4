/* Rows of control flow: If, Loop, Scan. A branch or body is a sub-graph of the current graph; values of enclosing graphs that it
 * uses are operands of the row and inputs of the sub-graph. Known values and stored tensors need no operand: they are emitted in
 * the sub-graph. In a walk the branch of an If that is taken is imported in its place, and loops that one row cannot express are
 * imported iteration by iteration (walk.c). */
#include "graph/onnx/structure.h"

/* ---- captures of bodies --------------------------------------------------------------------------------------- */

static bool is_own(const onnx_graph *part, onnx_bytes name) {
    for (size_t i = 0; i < part->inputs.count; i++)
        if (onnx_same(part->inputs.data[i].name, name)) return true;
    for (size_t i = 0; i < part->initializers.count; i++)
        if (onnx_same(part->initializers.data[i].name, name)) return true;
    for (size_t i = 0; i < part->sparse_initializers.count; i++)
        if (onnx_same(part->sparse_initializers.data[i].dense->name, name)) return true;
    for (size_t n = 0; n < part->nodes.count; n++)
        for (size_t i = 0; i < part->nodes.data[n].outputs.count; i++)
            if (onnx_same(part->nodes.data[n].outputs.data[i], name)) return true;
    return false;
}

static void take(onnx_import *im, onnx_captures *all, const onnx_graph *body, onnx_bytes name) {
    onnx_value *value = name.size ? onnx_find_value(im, name) : NULL;
    if (!value || is_own(body, name)) return;
    for (uint32_t i = 0; i < all->count; i++)
        if (all->data[i] == value) return;
    lib_vec_push(im->g->arena, all, value);
}

/* Recurses over graphs, which are nested at most ONNX_GRAPH_NESTING deep. */
void onnx_find_captures(onnx_import *im, onnx_captures *all, const onnx_graph *body, const onnx_graph *part) {
    for (size_t n = 0; n < part->nodes.count; n++) {
        const onnx_node *node = &part->nodes.data[n];
        for (size_t i = 0; i < node->inputs.count; i++) take(im, all, body, node->inputs.data[i]);
        for (size_t a = 0; a < node->attributes.count; a++)
            if (node->attributes.data[a].g) onnx_find_captures(im, all, body, node->attributes.data[a].g);
    }
    for (size_t i = 0; i < part->outputs.count; i++) take(im, all, body, part->outputs.data[i].name);
}

/* Is it a value of the enclosing graph, which the body takes as an input? Others are emitted in the body. */
static bool is_made(const onnx_value *value) {
    return value->known ? value->known->varies : value->id && !value->stored;
}

/* Sets ids[] (may be NULL) to the graph's values in a captured value: a tensor, or the parts of a structure. Returns their number. */
static int made_in(onnx_import *im, onnx_value *value, graph_id *ids) {
    int count = 0;
    if (is_made(value)) {
        if (ids) ids[0] = onnx_id_of(im, value);
        return 1;
    }
    for (size_t i = 0; value->structure && i < value->structure->count; i++)
        count += made_in(im, &value->structure->part[i], ids ? ids + count : NULL);
    return count;
}

/* Sets ids[] (may be NULL) to the graph's values in all captured values. Returns their number. */
static int captured_ids(onnx_import *im, const onnx_captures *all, graph_id *ids) {
    int count = 0;
    for (uint32_t i = 0; i < all->count; i++) count += made_in(im, all->data[i], ids ? ids + count : NULL);
    return count;
}

/* Sets *to to the captured value as it is inside a body, with the next of `inputs` for each value of the outer graph. Returns the inputs that
 * are left. Known elements that vary are not known inside, since the body must not depend on them. */
static const graph_id *take_inside(onnx_import *im, onnx_value *to, const onnx_value *outer, const graph_id *inputs) {
    const bool made = is_made(outer);
    onnx_take_value(to, outer);
    to->id = made ? *inputs++ : 0;
    if (made) to->known = NULL;
    if (!outer->structure) return inputs;
    onnx_structure *inner = lib_arena_copy(im->g->arena, outer->structure, sizeof *inner);
    inner->part = LIB_NEW_ARRAY(im->g->arena, onnx_value, inner->count + 1);
    for (size_t i = 0; i < inner->count; i++)
        inputs = take_inside(im, &inner->part[i], &outer->structure->part[i], inputs);
    to->structure = inner;
    return inputs;
}

/* Defines captured values under their names. */
static void define_inside(onnx_import *im, const onnx_captures *all, const graph_id *inputs) {
    for (uint32_t i = 0; i < all->count; i++)
        inputs = take_inside(im, onnx_define(im, all->data[i]->name), all->data[i], inputs);
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

void onnx_end_part(onnx_import *im, const onnx_import *saved) {
    const uint32_t inputs = im->inputs.count;
    *im = *saved;
    im->inputs.count = inputs;
}

static void end(onnx_import *im, const body *b) {
    onnx_end_part(im, &b->saved);
}

onnx_place *onnx_place_of(onnx_import *im, int64_t iteration) {
    onnx_place *place = LIB_NEW(im->g->arena, onnx_place);
    *place = (onnx_place){im->within, im->node, im->node_index, iteration};
    return place;
}

/* Makes an input for each captured value of the graph, and defines them under their names. The captured values are operands of the row
 * already. */
static void define_captures(onnx_import *im, const body *b, const onnx_captures *all) {
    graph_id *ids = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)captured_ids(im, all, NULL) + 1);
    const int count = captured_ids(im, all, ids);
    for (int i = 0; i < count; i++) ids[i] = graph_new_input(im->g, NULL, graph_shape_of(b->saved.g, ids[i]));
    define_inside(im, all, ids);
}

void onnx_import_body(onnx_import *im, const onnx_graph *part) {
    onnx_define_initializers(im, part);
    onnx_import_nodes(im, part->nodes.data, part->nodes.count);
}

onnx_value *onnx_body_output(onnx_import *im, const onnx_graph *part, size_t i) {
    if (i >= part->outputs.count)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu outputs, of which output %zu is wanted", part->outputs.count, i);
    onnx_value *value = onnx_find_value(im, part->outputs.data[i].name);
    if (!value)
        onnx_fail(im, DLC_PARSE_ERROR, "output %s of a body is defined nowhere",
                  onnx_shown(im->g->arena, part->outputs.data[i].name));
    return value;
}

const onnx_graph *onnx_graph_attribute(onnx_import *im, const char *name) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_GRAPH);
    if (!a) onnx_fail(im, DLC_PARSE_ERROR, "attribute %s is missing", name);
    return a->g;
}

/* ---- If ------------------------------------------------------------------------------------------------------------------ */

void onnx_import_inline(onnx_import *im, const onnx_graph *part, const onnx_value *inputs, size_t wanted,
                        onnx_value *outputs) {
    const onnx_import saved = *im;
    onnx_names_scope scope = {.outer = im->scope};
    im->scope = &scope;
    im->within = onnx_place_of(im, -1);
    for (size_t i = 0; i < part->inputs.count; i++)
        onnx_take_value(onnx_define(im, part->inputs.data[i].name), &inputs[i]);
    onnx_import_body(im, part);
    for (size_t i = 0; i < wanted; i++) outputs[i] = *onnx_body_output(im, part, i);
    const size_t unrolled = im->unrolled;
    onnx_end_part(im, &saved);
    im->unrolled = unrolled;
}

/* Imports, in place of the node, a branch that is known to be taken. */
static void import_inline(onnx_import *im, const onnx_graph *part) {
    const size_t count = im->node->outputs.count;
    onnx_value *outputs = LIB_NEW_ARRAY(im->g->arena, onnx_value, count + 1);
    if (part->inputs.count) onnx_fail(im, DLC_PARSE_ERROR, "a branch with %zu inputs", part->inputs.count);
    onnx_import_inline(im, part, NULL, count, outputs);
    for (size_t i = 0; i < count; i++) onnx_give_value(im, i, &outputs[i]);
}

static int64_t import_branch(onnx_import *im, const onnx_graph *part, const onnx_captures *all, size_t outputs) {
    body b;
    begin(im, &b);
    define_captures(im, &b, all);
    onnx_import_body(im, part);
    for (size_t i = 0; i < outputs; i++) {
        onnx_value *value = onnx_body_output(im, part, i);
        if (onnx_form_of(value) != ONNX_NUMBERS)
            onnx_fail(im, DLC_UNSUPPORTED, "a branch gives a sequence, an optional or strings, and data decide which");
        graph_new_output(im->g, NULL, onnx_id_of(im, value));
    }
    end(im, &b);
    return b.number;
}

static void import_if(onnx_import *im) {
    const onnx_graph *then = onnx_graph_attribute(im, "then_branch"),
                     *otherwise = onnx_graph_attribute(im, "else_branch");
    if (onnx_walks(im) || onnx_operand_is_constant(im, 0)) {
        import_inline(im, onnx_operand_float(im, 0, 0) != 0 ? then : otherwise);
        return;
    }
    onnx_captures all = {0};
    graph_id *in;
    onnx_find_captures(im, &all, then, then);
    onnx_find_captures(im, &all, otherwise, otherwise);
    in = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)captured_ids(im, &all, NULL) + 1);
    in[0] = graph_reshape(im->g, onnx_operand(im, 0), 0, NULL);
    const int count = 1 + captured_ids(im, &all, in + 1);
    const graph_setting s[] = {
        graph_set_integer("then", import_branch(im, then, &all, im->node->outputs.count)),
        graph_set_integer("otherwise", import_branch(im, otherwise, &all, im->node->outputs.count))};
    const graph_id y = onnx_emit(im, "if", count, in, 2, s);
    for (size_t i = 0; i < im->node->outputs.count; i++) onnx_give(im, i, y + (graph_id)i);
}

/* ---- Loop ---------------------------------------------------------------------------------------------------------------- */

typedef struct loop {
    const onnx_graph *graph;
    onnx_captures all;
    /* Operands of the row: number of the iteration, condition, carried values, the trip count (if `limited`), captures. */
    graph_id *in;
    int count, carried;
    bool limited;
} loop;

static graph_id as_scalar(onnx_import *im, graph_id x) {
    return graph_shape_of(im->g, x)->rank ? graph_reshape(im->g, x, 0, NULL) : x;
}

/* Does the file declare rank 1? Numbers of iterations and conditions may be [1] instead of rank 0. */
bool onnx_is_list(const onnx_value_info *info) {
    const onnx_type *type = info->type;
    return type && type->which == ONNX_TYPE_TENSOR && type->tensor->shape && type->tensor->shape->dims.count == 1;
}

static void define_formal(onnx_import *im, const onnx_value_info *info, graph_id id) {
    const tir_expr one = tir_index(im->g->pool, 1);
    onnx_define(im, info->name)->id = onnx_is_list(info) ? graph_reshape(im->g, id, 1, &one) : id;
}

/* Makes the inputs of a sub-graph of the loop, in the order and with the shapes of the row's operands, and defines captures. */
static void define_inputs(onnx_import *im, const body *b, const loop *l, graph_id *inputs) {
    for (int i = 0; i < l->count; i++) inputs[i] = graph_new_input(im->g, NULL, graph_shape_of(b->saved.g, l->in[i]));
    define_inside(im, &l->all, inputs + 2 + l->carried + l->limited);
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

/* Imports the body as a sub-graph; returns its number. stacks: how many outputs, after the carried values, are elements of stacks. Sets *always:
 * the condition is always true. */
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
    onnx_import_body(im, l->graph);
    const graph_id condition = as_scalar(im, onnx_id_of(im, onnx_body_output(im, l->graph, 0)));
    double number;
    *always = condition == inputs[1] || (graph_is_number(im->g, condition, &number) && number != 0);
    graph_new_output(im->g, NULL, graph_add(im->g, inputs[0], graph_scalar_i64(im->g, DLC_I64, 1)));
    graph_new_output(im->g, NULL, condition);
    for (size_t i = 0; i < (size_t)l->carried + stacks; i++)
        graph_new_output(im->g, NULL, onnx_id_of(im, onnx_body_output(im, l->graph, i + 1)));
    end(im, &b);
    return b.number;
}

/* Is the first condition, operand 1 as a value of the graph, known to be true? */
static bool begins_true(onnx_import *im, graph_id condition) {
    double first = 0;
    if (graph_is_number(im->g, condition, &first)) return first != 0;
    const onnx_known *known = onnx_operand_asked(im, 1);
    return known && known->count == 1 && onnx_operand_float(im, 1, 0) != 0;
}

/* Lists the operands of the row; captures are found already. */
static void list_operands(onnx_import *im, loop *l, size_t given, size_t stacks) {
    l->in = LIB_NEW_ARRAY(im->g->arena, graph_id, given + (size_t)captured_ids(im, &l->all, NULL) + 4);
    l->in[l->count++] = graph_scalar_i64(im->g, DLC_I64, 0);
    l->in[l->count++] = onnx_has(im, 1) ? as_scalar(im, onnx_operand(im, 1)) : graph_scalar_i64(im->g, DLC_BOOL, 1);
    for (int i = 0; i < l->carried; i++) l->in[l->count++] = onnx_operand(im, (size_t)i + 2);
    l->limited = onnx_has(im, 0) && !stacks;
    if (l->limited) l->in[l->count++] = as_scalar(im, onnx_operand(im, 0));
    l->count += captured_ids(im, &l->all, l->in + l->count);
}

/* Imports the Loop as one row: `while`, or, with stacks, `scan`. */
static void import_loop_row(onnx_import *im) {
    loop l = {.graph = onnx_graph_attribute(im, "body")};
    const size_t given = onnx_operands(im);
    bool always;
    l.carried = given > 2 ? (int)given - 2 : 0;
    if (l.graph->outputs.count < (size_t)l.carried + 1)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu outputs for %d carried values", l.graph->outputs.count,
                  l.carried);
    const size_t stacks = l.graph->outputs.count - 1 - (size_t)l.carried;
    const size_t results = im->node->outputs.count;
    if (results > (size_t)l.carried + stacks)
        onnx_fail(im, DLC_PARSE_ERROR, "%zu results of a loop that has %zu", results, (size_t)l.carried + stacks);
    const onnx_known *trips = stacks ? onnx_operand_asked(im, 0) : NULL;
    onnx_find_captures(im, &l.all, l.graph, l.graph);
    list_operands(im, &l, given, stacks);
    graph_id y;
    if (!stacks) {
        const int64_t condition = loop_condition(im, &l), inside = loop_body(im, &l, 0, &always);
        y = onnx_emit(im, "while", l.count, l.in, 2,
                      (graph_setting[]){graph_set_integer("condition", condition), graph_set_integer("body", inside)});
    } else {
        const bool begins = !onnx_has(im, 1) || begins_true(im, l.in[1]);
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
    for (size_t i = 0; i < results; i++) onnx_give(im, i, y + 2 + (graph_id)i);
}

/* Imports and computes the Loop iteration by iteration. */
static void walk_loop(onnx_import *im) {
    const size_t given = onnx_operands(im);
    onnx_walked_loop w = onnx_begin_walk(im, true, 2, given > 2 ? given - 2 : 0, 0);
    const int64_t most = onnx_operand_integer(im, 0, INT64_MAX);
    bool more = !onnx_has(im, 1) || onnx_is_true(im, im->operand[1]);
    if ((more && most > 0) || w.stacks) onnx_evaluate_taken(im, &w);
    for (int64_t i = 0; more && i < most; i++) more = onnx_walk_iteration(im, &w, i);
    onnx_give_walked(im, &w);
}

static void import_loop(onnx_import *im) {
    if (!onnx_carries_structures(im))
        onnx_import_or_walk(im, import_loop_row, walk_loop);
    else if (onnx_walks(im))
        walk_loop(im);
    else
        onnx_unroll_loop(im);
}

/* ---- Scan ---------------------------------------------------------------------------------------------------------------- */

/* x with the axis moved to the front; back: with the first axis moved to position `axis`. */
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

/* The list attribute, which has `count` entries; NULL: it is absent, which stands for zeros. */
static const int64_t *list_of(onnx_import *im, const char *name, int count) {
    int own;
    const int64_t *list = onnx_ints(im, name, &own);
    if (list && own != count) onnx_fail(im, DLC_PARSE_ERROR, "%s has %d entries, expected %d", name, own, count);
    return list;
}

static int64_t entry(const int64_t *list, int i) {
    return list ? list[i] : 0;
}

typedef struct scan {
    const onnx_graph *part;
    int states, sequences, stacks;
    /* [sequences + stacks] 1: from the last element to the first */
    int64_t *reverse;
    /* The number of iterations, i64 of rank 0: afterwards states stay, and elements of stacks are 0. 0: one for each element. */
    graph_id limit;
} scan;

/* The Scan's body and counts; reverse is all 0. given: the number of operands for states and sequences. */
static scan scan_of(onnx_import *im, int given) {
    const int64_t sequences = onnx_int(im, "num_scan_inputs", 1);
    if (sequences < 1 || sequences > given)
        onnx_fail(im, DLC_PARSE_ERROR, "num_scan_inputs is %lld, of %d operands", (long long)sequences, given);
    scan s = {.part = onnx_graph_attribute(im, "body"), .sequences = (int)sequences};
    s.states = given - s.sequences;
    s.stacks = (int)s.part->outputs.count - s.states;
    if (s.stacks < 0 || s.part->inputs.count != (size_t)given)
        onnx_fail(im, DLC_PARSE_ERROR, "%d operands, %d of them sequences, for a body of %zu inputs and %zu outputs",
                  given, s.sequences, s.part->inputs.count, s.part->outputs.count);
    s.reverse = LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)(s.sequences + s.stacks) + 1);
    return s;
}

static graph_shape element_of(const graph_shape *sequence) {
    graph_shape element = *sequence;
    for (int d = 0; d + 1 < element.rank; d++) element.dim[d] = element.dim[d + 1];
    element.rank--;
    return element;
}

/* Imports the body as a sub-graph; returns its number. in[count]: the row's operands for its inputs, which are: with a limit the number of the
 * iteration; states; elements of sequences; captures; with a limit the limit. */
static int64_t scan_body(onnx_import *im, const scan *s, const onnx_captures *all, const graph_id *in, int count) {
    const int first = s->limit ? 1 : 0, given = s->states + s->sequences;
    graph_id *formal = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)given + 1), index = 0, counts = 0;
    body b;
    begin(im, &b);
    if (s->limit) index = graph_new_input(im->g, NULL, graph_shape_of(b.saved.g, in[0]));
    for (int i = 0; i < given; i++) {
        const graph_shape whole = *graph_shape_of(b.saved.g, in[first + i]),
                          shape = i < s->states ? whole : element_of(&whole);
        formal[i] = graph_new_input(im->g, NULL, &shape);
        onnx_define(im, s->part->inputs.data[i].name)->id = formal[i];
    }
    define_captures(im, &b, all);
    if (s->limit)
        counts = graph_lt(im->g, index, graph_new_input(im->g, NULL, graph_shape_of(b.saved.g, in[count - 1])));
    onnx_import_body(im, s->part);
    if (s->limit) graph_new_output(im->g, NULL, graph_add(im->g, index, graph_scalar_i64(im->g, DLC_I64, 1)));
    for (int i = 0; i < s->states + s->stacks; i++) {
        graph_id y = onnx_id_of(im, onnx_body_output(im, s->part, (size_t)i));
        if (counts) y = graph_select(im->g, counts, y, i < s->states ? formal[i] : graph_scalar_like(im->g, y, 0));
        graph_new_output(im->g, NULL, y);
    }
    end(im, &b);
    return b.number;
}

/* The scan of states and sequences, along their first axes, in the current graph. The first result: states, then stacks. */
static graph_id emit_scan(onnx_import *im, const scan *s, const graph_id *operand) {
    const int given = s->states + s->sequences, counter = s->limit ? 1 : 0;
    onnx_captures all = {0};
    int count = 0;
    onnx_find_captures(im, &all, s->part, s->part);
    graph_id *in = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)(given + captured_ids(im, &all, NULL)) + 3);
    if (s->limit) in[count++] = graph_scalar_i64(im->g, DLC_I64, 0);
    for (int i = 0; i < given; i++) {
        if (i >= s->states && !graph_shape_of(im->g, operand[i])->rank)
            onnx_fail(im, DLC_PARSE_ERROR, "sequence %d is a single number", i - s->states);
        in[count++] = operand[i];
    }
    count += captured_ids(im, &all, in + count);
    if (s->limit) in[count++] = s->limit;
    const graph_setting settings[] = {
        graph_set_integer("body", scan_body(im, s, &all, in, count)), graph_set_integer("carries", s->states + counter),
        graph_set_integer("sequences", s->sequences), graph_set_list("reverse", s->sequences + s->stacks, s->reverse)};
    return onnx_emit(im, "scan", count, in, 4, settings) + (graph_id)counter;
}

/* The axes and directions of a Scan: [sequences], then [stacks]. */
typedef struct scan_axes {
    const int64_t *in, *out, *in_direction, *out_direction;
} scan_axes;

static scan_axes scan_axes_of(onnx_import *im, const scan *s) {
    return (scan_axes){.in = list_of(im, "scan_input_axes", s->sequences),
                       .out = list_of(im, "scan_output_axes", s->stacks),
                       .in_direction = list_of(im, "scan_input_directions", s->sequences),
                       .out_direction = list_of(im, "scan_output_directions", s->stacks)};
}

static void give_stack(onnx_import *im, const scan_axes *a, int states, int i, graph_id stack) {
    const int rank = graph_shape_of(im->g, stack)->rank;
    onnx_give(im, (size_t)(states + i), move_axis(im, stack, onnx_axis(im, entry(a->out, i), rank, false), true));
}

static void import_scan_row(onnx_import *im) {
    const int given = (int)onnx_operands(im);
    const scan s = scan_of(im, given);
    const scan_axes a = scan_axes_of(im, &s);
    graph_id *in = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)given + 1);
    for (int i = 0; i < given; i++) {
        const int sequence = i - s.states;
        in[i] = onnx_operand(im, (size_t)i);
        if (!in[i]) onnx_fail(im, DLC_PARSE_ERROR, "operand %d is missing", i);
        if (sequence < 0) continue;
        const int rank = graph_shape_of(im->g, in[i])->rank;
        in[i] = move_axis(im, in[i], onnx_axis(im, entry(a.in, sequence), rank, false), false);
        s.reverse[sequence] = entry(a.in_direction, sequence);
    }
    for (int i = 0; i < s.stacks; i++) s.reverse[s.sequences + i] = entry(a.out_direction, i);
    const graph_id y = emit_scan(im, &s, in);
    for (int i = 0; i < s.states; i++) onnx_give(im, (size_t)i, y + (graph_id)i);
    for (int i = 0; i < s.stacks; i++) give_stack(im, &a, s.states, i, y + (graph_id)(s.states + i));
}

/* The operands of a Scan that is walked; *length: how many elements they have. */
static onnx_walked_sequence *walked_sequences(onnx_import *im, const scan *s, const scan_axes *a, int64_t *length) {
    onnx_walked_sequence *all = LIB_NEW_ARRAY(im->g->arena, onnx_walked_sequence, (size_t)s->sequences + 1);
    for (int i = 0; i < s->sequences; i++) {
        const size_t operand = (size_t)(s->states + i);
        const graph_shape shape = onnx_operand_shape(im, operand);
        int64_t size = 0;
        all[i].value = im->operand[operand];
        all[i].axis = onnx_axis(im, entry(a->in, i), shape.rank, false);
        all[i].backwards = entry(a->in_direction, i) != 0;
        tir_is_const(im->g->pool, shape.dim[all[i].axis], &size);
        if (i && size != *length)
            onnx_fail(im, DLC_PARSE_ERROR, "sequence %d has %lld elements, those before %lld", i, (long long)size,
                      (long long)*length);
        *length = size;
    }
    return all;
}

static void walk_scan(onnx_import *im) {
    const scan s = scan_of(im, (int)onnx_operands(im));
    const scan_axes a = scan_axes_of(im, &s);
    onnx_walked_loop w = onnx_begin_walk(im, false, 0, (size_t)s.states, (size_t)s.sequences);
    w.sequence = walked_sequences(im, &s, &a, &w.length);
    onnx_evaluate_taken(im, &w);
    for (int64_t i = 0; i < w.length; i++) onnx_walk_iteration(im, &w, i);
    onnx_give_walked(im, &w);
    for (int i = 0; i < s.stacks; i++) {
        const size_t result = (size_t)(s.states + i);
        if (!onnx_wants(im, result)) continue;
        graph_id stack = im->result[result]->id;
        if (entry(a.out_direction, i)) stack = graph_reverse(im->g, stack, 1, (int64_t[]){0});
        give_stack(im, &a, s.states, i, stack);
    }
}

static void import_scan(onnx_import *im) {
    onnx_import_or_walk(im, import_scan_row, walk_scan);
}

/* The first `limit` elements of a sequence in reverse order, then the others. */
static graph_id reversed_start(onnx_import *im, graph_id x, graph_id limit) {
    graph *g = im->g;
    const graph_id place = graph_iota(g, DLC_I64, 1, &graph_shape_of(g, x)->dim[0], 0);
    const graph_id back = graph_sub(g, graph_sub(g, limit, place), graph_scalar_i64(g, DLC_I64, 1));
    return graph_gather(g, x, graph_select(g, graph_lt(g, place, limit), back, place), 0);
}

/* A scan of each sample, in a scan of the samples. in: the samples' states and sequences, then their lengths, if they are given. */
static int64_t sample_body(onnx_import *im, scan s, const onnx_captures *all, const graph_id *in, int count) {
    const int given = s.states + s.sequences;
    graph_id *element = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)count + 1);
    body b;
    begin(im, &b);
    for (int i = 0; i < count; i++) {
        const graph_shape shape = element_of(graph_shape_of(b.saved.g, in[i]));
        element[i] = graph_new_input(im->g, NULL, &shape);
    }
    define_captures(im, &b, all);
    if (count > given) s.limit = graph_cast(im->g, element[given], DLC_I64);
    for (int i = 0; s.limit && i < s.sequences; i++) {
        if (s.reverse[i]) element[s.states + i] = reversed_start(im, element[s.states + i], s.limit);
        s.reverse[i] = 0;
    }
    const graph_id y = emit_scan(im, &s, element);
    for (int i = 0; i < s.states + s.stacks; i++) graph_new_output(im->g, NULL, y + (graph_id)i);
    end(im, &b);
    return b.number;
}

/* Version 8: the first axis of all operands is that of the samples, the second one of sequences is scanned. */
static void import_scan_of_samples(onnx_import *im) {
    const int given = (int)onnx_operands(im) - 1;
    const scan s = scan_of(im, given);
    int count = 0;
    const int64_t *direction = list_of(im, "directions", s.sequences);
    onnx_captures all = {0};
    onnx_find_captures(im, &all, s.part, s.part);
    graph_id *in = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)(given + captured_ids(im, &all, NULL)) + 2);
    for (int i = 0; i < s.sequences; i++) s.reverse[i] = entry(direction, i);
    for (int i = 0; i <= given; i++) {
        in[count] = onnx_operand(im, (size_t)(i < given ? i + 1 : 0)); /* the lengths last */
        if (!in[count] && i < given) onnx_fail(im, DLC_PARSE_ERROR, "operand %d is missing", i + 1);
        if (!in[count]) continue;
        if (!graph_shape_of(im->g, in[count++])->rank)
            onnx_fail(im, DLC_PARSE_ERROR, "operand %d is a single number", i < given ? i + 1 : 0);
    }
    const int sequences = count;
    count += captured_ids(im, &all, in + count);
    const graph_setting settings[] = {graph_set_integer("body", sample_body(im, s, &all, in, sequences)),
                                      graph_set_integer("carries", 0), graph_set_integer("sequences", sequences)};
    const graph_id y = onnx_emit(im, "scan", count, in, 3, settings);
    for (int i = 0; i < s.states + s.stacks; i++) onnx_give(im, (size_t)i, y + (graph_id)i);
}

const onnx_row onnx_rows_control[] = {
    {"If", 1, 0, import_if, NULL},
    {"Loop", 1, 0, import_loop, NULL},
    {"Scan", 8, 8, import_scan_of_samples, NULL},
    {"Scan", 9, 0, import_scan, NULL},
    {0},
};
