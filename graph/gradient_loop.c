/* Derivatives of control flow. Forward mode: the same row, with a tangent beside each operand and result. Reverse mode: of `if`, an `if` of
 * the same condition on the cotangents; of `scan`, a scan from the last iteration to the first, which reads the values that the forward
 * iterations stacked for it. All operands of a sub-graph are its inputs, so captures have cotangents like other operands, summed over the
 * iterations. Where an iteration's part of such a sum is a contraction of values that change (the gradient of a layer's weights), the loop only
 * stacks the contraction's operands, and one contraction behind the loop adds over all iterations. */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/internal.h"
#include "graph/ops_common.h"

typedef lib_vec(graph_id) id_list;

static bool is_number(dlc_dtype dtype) {
    return lib_dtype_is_float(dtype) || dtype == DLC_C64;
}

static bool is_number_value(const graph *g, graph_id value) {
    return value && is_number(graph_shape_of(g, value)->dtype);
}

static graph_shape tangent_shape(const graph *g, graph_id value) {
    graph_shape shape = *graph_shape_of(g, value);
    shape.dtype = graph_tangent_dtype(shape.dtype);
    return shape;
}

static graph_id zeros(graph *g, const graph_shape *shape) {
    return graph_full(g, shape->dtype, shape->rank, shape->dim, 0);
}

static graph_id new_input(graph *g, const graph_shape *shape) {
    return graph_new_input(g, NULL, shape);
}

static graph *subgraph_of(const graph_rule *rule, int attribute) {
    return rule->g->subgraphs.data[rule->attribute[attribute].integer];
}

/* ---- if ------------------------------------------------------------------------------------------------------------------ */

/* A branch with further inputs, of the shapes of `given` after the operands, and as outputs what `derive` makes of it. */
typedef struct branch {
    graph *g;
    graph_id *input, *output, *further;
} branch;

static branch open_branch(const graph_rule *rule, int which, const id_list *given, int64_t *number) {
    const graph *body = subgraph_of(rule, which);
    graph *outer = rule->g;
    branch b = {.g = graph_new_subgraph(outer, number)};
    b.input = LIB_NEW_ARRAY(outer->arena, graph_id, body->inputs.count);
    b.output = LIB_NEW_ARRAY(outer->arena, graph_id, body->outputs.count);
    b.further = LIB_NEW_ARRAY(outer->arena, graph_id, given->count);
    for (uint32_t i = 0; i < body->inputs.count; i++)
        b.input[i] = new_input(b.g, graph_shape_of(body, body->inputs.data[i]));
    for (uint32_t i = 0; i < given->count; i++) b.further[i] = new_input(b.g, graph_shape_of(outer, given->data[i]));
    graph_inline(body, b.g, b.input, b.output);
    return b;
}

static graph_id emit_if(const graph_rule *rule, const id_list *given, const int64_t branches[2]) {
    id_list input = {0};
    for (int i = 0; i < rule->inputs; i++) lib_vec_push(rule->g->arena, &input, rule->input[i]);
    for (uint32_t i = 0; i < given->count; i++) lib_vec_push(rule->g->arena, &input, given->data[i]);
    return graph_emit_with(
        rule->g, "if", (int)input.count, input.data, 2,
        (graph_setting[]){graph_set_integer("then", branches[0]), graph_set_integer("otherwise", branches[1])});
}

static void add_output(graph *g, graph_id value, const graph_shape *shape) {
    graph_new_output(g, NULL, value ? value : zeros(g, shape));
}

void graph_tangent_if(graph_rule *rule) {
    graph *g = rule->g;
    id_list given = {0}, results = {0};
    int64_t branches[2];
    for (int i = 1; i < rule->inputs; i++)
        if (rule->tangent[i]) lib_vec_push(g->arena, &given, rule->tangent[i]);
    for (int r = 0; r < rule->results; r++)
        if (is_number_value(g, rule->first + (graph_id)r)) lib_vec_push(g->arena, &results, (graph_id)r);
    for (int b = 0; b < 2; b++) {
        branch own = open_branch(rule, b, &given, &branches[b]);
        id_list x = {0}, y = {0};
        graph_id *moved = LIB_NEW_ARRAY(g->arena, graph_id, results.count);
        for (int i = 1; i < rule->inputs; i++)
            if (rule->tangent[i]) lib_vec_push(g->arena, &x, own.input[i - 1]);
        for (uint32_t r = 0; r < results.count; r++) lib_vec_push(g->arena, &y, own.output[results.data[r]]);
        graph_jvp(own.g, rule->op->name, (int)x.count, x.data, own.further, (int)y.count, y.data, moved);
        for (uint32_t r = 0; r < results.count; r++) {
            const graph_shape shape = tangent_shape(own.g, y.data[r]);
            add_output(own.g, moved[r], &shape);
        }
    }
    if (!results.count) return;
    const graph_id first = emit_if(rule, &given, branches);
    for (uint32_t r = 0; r < results.count; r++) rule->out[results.data[r]] = first + r;
}

void graph_cotangent_if(graph_rule *rule) {
    graph *g = rule->g;
    id_list given = {0}, results = {0}, wanted = {0};
    int64_t branches[2];
    for (int r = 0; r < rule->results; r++) {
        if (!rule->cotangent[r]) continue;
        lib_vec_push(g->arena, &given, rule->cotangent[r]);
        lib_vec_push(g->arena, &results, (graph_id)r);
    }
    for (int i = 1; i < rule->inputs; i++)
        if (rule->wanted[i]) lib_vec_push(g->arena, &wanted, (graph_id)i);
    for (int b = 0; b < 2; b++) {
        branch own = open_branch(rule, b, &given, &branches[b]);
        id_list x = {0}, y = {0};
        graph_id *back = LIB_NEW_ARRAY(g->arena, graph_id, wanted.count);
        for (uint32_t i = 0; i < wanted.count; i++) lib_vec_push(g->arena, &x, own.input[wanted.data[i] - 1]);
        for (uint32_t r = 0; r < results.count; r++) lib_vec_push(g->arena, &y, own.output[results.data[r]]);
        graph_vjp(own.g, rule->op->name, (int)y.count, y.data, own.further, (int)x.count, x.data, back);
        for (uint32_t i = 0; i < wanted.count; i++) {
            const graph_shape shape = tangent_shape(own.g, x.data[i]);
            add_output(own.g, back[i], &shape);
        }
    }
    const graph_id first = emit_if(rule, &given, branches);
    for (uint32_t i = 0; i < wanted.count; i++) rule->out[wanted.data[i]] = first + i;
}

/* ---- recompute ------------------------------------------------------------------------------------------------------------- */

/* The graph is computed again, on operands that are not merged with those of the forward pass: so of what is between the operands and the
 * results nothing is kept. Constants are the same values. */
void graph_cotangent_recompute(graph_rule *rule) {
    graph *g = rule->g;
    const graph *body = subgraph_of(rule, 0);
    graph_id *x = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)rule->inputs + 1);
    graph_id *y = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)rule->results + 1);
    id_list results = {0}, given = {0}, wanted = {0};
    for (int i = 0; i < rule->inputs; i++)
        x[i] = graph_is_constant(graph_node_of(g, rule->input[i]))
                   ? rule->input[i]
                   : graph_emit_with(g, "again", 1, &rule->input[i], 0, NULL);
    graph_inline(body, g, x, y);
    for (int r = 0; r < rule->results; r++) {
        if (!rule->cotangent[r]) continue;
        lib_vec_push(g->arena, &results, y[r]);
        lib_vec_push(g->arena, &given, rule->cotangent[r]);
    }
    for (int i = 0; i < rule->inputs; i++)
        if (rule->wanted[i]) lib_vec_push(g->arena, &wanted, x[i]);
    graph_id *back = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)wanted.count + 1);
    graph_vjp(g, rule->op->name, (int)results.count, results.data, given.data, (int)wanted.count, wanted.data, back);
    for (int i = 0, at = 0; i < rule->inputs; i++)
        if (rule->wanted[i]) rule->out[i] = back[at++];
}

/* ---- loops: values that depend on the variables ------------------------------------------------------------------------------------------------- */

/* By value of a loop's body: does it move, that is, depend through numbers, in some iteration, on an input that moves in the first one? first:
 * by input, does it move in the first iteration? */
static bool *find_moving(const graph *body, int carries, const bool *first) {
    bool *moves = LIB_NEW_ARRAY(body->arena, bool, body->values.count);
    for (uint32_t i = 0; i < body->inputs.count; i++) moves[body->inputs.data[i]] = first[i];
    for (bool again = true; again;) {
        again = false;
        for (uint32_t n = 0; n < body->nodes.count; n++) {
            const graph_node *node = &body->nodes.data[n];
            bool any = false;
            for (int k = 0; k < node->inputs && !node->op->flat; k++) any = any || moves[node->input[k]];
            for (int r = 0; any && r < node->results; r++)
                if (is_number_value(body, node->first + (graph_id)r)) moves[node->first + (graph_id)r] = true;
        }
        for (int i = 0; i < carries; i++) {
            if (!moves[body->outputs.data[i]] || moves[body->inputs.data[i]]) continue;
            moves[body->inputs.data[i]] = again = true;
        }
    }
    return moves;
}

/* By input of the body: does it move if the operands that have tangents do? */
static bool *find_moving_inputs(const graph_rule *rule, const graph *body, int carries) {
    bool *along = LIB_NEW_ARRAY(rule->g->arena, bool, body->inputs.count);
    for (uint32_t i = 0; i < body->inputs.count; i++) along[i] = rule->tangent[i] != 0;
    const bool *moves = find_moving(body, carries, along);
    for (uint32_t i = 0; i < body->inputs.count; i++) along[i] = moves[body->inputs.data[i]];
    return along;
}

/* ---- while, forwards ------------------------------------------------------------------------------------------------------- */

/* A graph of which each input that moves (`along`) is followed, at the end of its group, by its tangent. */
static graph *doubled(graph *parent, const graph *body, int carries, const bool *along, int64_t *number, graph_id **x,
                      graph_id **d) {
    graph *g = graph_new_subgraph(parent, number);
    const int inputs = (int)body->inputs.count, ends[] = {carries, inputs};
    *x = LIB_NEW_ARRAY(parent->arena, graph_id, (size_t)inputs);
    *d = LIB_NEW_ARRAY(parent->arena, graph_id, (size_t)inputs);
    for (int part = 0, from = 0; part < 2; from = ends[part++]) {
        for (int i = from; i < ends[part]; i++) (*x)[i] = new_input(g, graph_shape_of(body, body->inputs.data[i]));
        for (int i = from; i < ends[part]; i++) {
            if (!along[i]) continue;
            const graph_shape shape = tangent_shape(body, body->inputs.data[i]);
            (*d)[i] = new_input(g, &shape);
        }
    }
    return g;
}

/* The tangents of y[] in a graph of `doubled`. */
static void tangents_in(graph *g, const char *call, int inputs, const graph_id *x, const graph_id *d, int count,
                        const graph_id *y, graph_id *moved) {
    id_list from = {0}, along = {0};
    for (int i = 0; i < inputs; i++) {
        if (!d[i]) continue;
        lib_vec_push(g->arena, &from, x[i]);
        lib_vec_push(g->arena, &along, d[i]);
    }
    graph_jvp(g, call, (int)from.count, from.data, along.data, count, y, moved);
}

static graph_id tangent_or_zero(const graph_rule *rule, int operand) {
    if (rule->tangent[operand]) return rule->tangent[operand];
    const graph_shape shape = tangent_shape(rule->g, rule->input[operand]);
    return zeros(rule->g, &shape);
}

/* Operands first..end - 1, then the tangents of those that move. */
static void push_doubled(const graph_rule *rule, int first, int end, const bool *along, id_list *input) {
    for (int i = first; i < end; i++) lib_vec_push(rule->g->arena, input, rule->input[i]);
    for (int i = first; i < end; i++)
        if (along[i]) lib_vec_push(rule->g->arena, input, tangent_or_zero(rule, i));
}

void graph_tangent_while(graph_rule *rule) {
    enum { CONDITION, BODY };
    graph *g = rule->g;
    const graph *condition = subgraph_of(rule, CONDITION), *body = subgraph_of(rule, BODY);
    const int carries = (int)body->outputs.count;
    const bool *along = find_moving_inputs(rule, body, carries);
    int64_t numbers[2];
    graph_id *x, *d, test;
    graph *own = doubled(g, condition, carries, along, &numbers[0], &x, &d);
    graph_inline(condition, own, x, &test);
    graph_new_output(own, NULL, test);
    own = doubled(g, body, carries, along, &numbers[1], &x, &d);
    graph_id *y = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)carries),
             *moved = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)carries);
    graph_inline(body, own, x, y);
    tangents_in(own, rule->op->name, (int)body->inputs.count, x, d, carries, y, moved);
    for (int i = 0; i < carries; i++) graph_new_output(own, NULL, y[i]);
    for (int i = 0; i < carries; i++) {
        if (!d[i]) continue;
        const graph_shape shape = tangent_shape(own, y[i]);
        add_output(own, moved[i], &shape);
    }
    id_list input = {0};
    push_doubled(rule, 0, carries, along, &input);
    push_doubled(rule, carries, rule->inputs, along, &input);
    graph_id next = graph_emit_with(g, "while", (int)input.count, input.data, 2,
                                    (graph_setting[]){graph_set_integer("condition", numbers[0]),
                                                      graph_set_integer("body", numbers[1])}) +
                    (graph_id)carries;
    for (int i = 0; i < carries; i++)
        if (d[i]) rule->out[i] = next++;
}

/* ---- scan -------------------------------------------------------------------------------------------------------------- */

/* The parts of a scan. Operands: carries, sequences, captures; results: carries, stacks, and of a conditional one the number of
 * iterations that ran; outputs of the body: carries, of a conditional one whether to go on, elements of stacks. */
typedef struct scan_form {
    const graph *body;
    int carries, sequences, stacks, conditional;
    tir_expr length;
    const graph_attribute *reverse;
} scan_form;

static scan_form form_of(const graph_rule *rule) {
    const graph_attribute *a = rule->attribute;
    scan_form f = {.body = subgraph_of(rule, GRAPH_SCAN_BODY),
                   .carries = (int)a[GRAPH_SCAN_CARRIES].integer,
                   .sequences = (int)a[GRAPH_SCAN_SEQUENCES].integer,
                   .conditional = a[GRAPH_SCAN_CONDITIONAL].integer != 0,
                   .reverse = &a[GRAPH_SCAN_REVERSE]};
    f.stacks = (int)f.body->outputs.count - f.carries - f.conditional;
    f.length = a[GRAPH_SCAN_LENGTH].count ? a[GRAPH_SCAN_LENGTH].dims[0]
                                          : graph_shape_of(rule->g, rule->input[f.carries])->dim[0];
    return f;
}

/* Is sequence (or, after the sequences, stack) number i passed through from its last element? */
static int64_t is_reverse(const scan_form *f, int i) {
    return f->reverse->count ? f->reverse->list[i] : 0;
}

static int sequences_end(const scan_form *f) {
    return f->carries + f->sequences;
}

/* A scan that is being put together. */
typedef struct scan_builder {
    graph *g, *body;
    int64_t number;
    id_list carry, sequence, capture;
    /* flags of sequences and of stacks */
    lib_vec(int64_t) forward, backward;
    /* outputs of the body */
    id_list next, element;
    graph_id go_on;
} scan_builder;

/* length: the attribute of that name. */
static graph_id emit_scan(scan_builder *s, const graph_attribute *length) {
    graph *g = s->g;
    id_list input = {0};
    lib_vec(int64_t) reverse = {0};
    for (uint32_t i = 0; i < s->carry.count; i++) lib_vec_push(g->arena, &input, s->carry.data[i]);
    for (uint32_t i = 0; i < s->sequence.count; i++) lib_vec_push(g->arena, &input, s->sequence.data[i]);
    for (uint32_t i = 0; i < s->capture.count; i++) lib_vec_push(g->arena, &input, s->capture.data[i]);
    for (uint32_t i = 0; i < s->next.count; i++) graph_new_output(s->body, NULL, s->next.data[i]);
    if (s->go_on) graph_new_output(s->body, NULL, s->go_on);
    for (uint32_t i = 0; i < s->element.count; i++) graph_new_output(s->body, NULL, s->element.data[i]);
    for (uint32_t i = 0; i < s->forward.count; i++) lib_vec_push(g->arena, &reverse, s->forward.data[i]);
    for (uint32_t i = 0; i < s->backward.count; i++) lib_vec_push(g->arena, &reverse, s->backward.data[i]);
    return graph_emit_with(g, "scan", (int)input.count, input.data, 6,
                           (graph_setting[]){graph_set_integer("body", s->number),
                                             graph_set_integer("carries", s->carry.count),
                                             graph_set_integer("sequences", s->sequence.count),
                                             {"length", *length},
                                             graph_set_list("reverse", (int)reverse.count, reverse.data),
                                             graph_set_bool("conditional", s->go_on != 0)});
}

/* Adds the body's outputs: of the carries, y, and the tangents `moved` of those with an input d for it; of the stacks,
 * the tangents. */
static void add_outputs_with_tangents(scan_builder *s, const scan_form *f, const graph_id *d, const graph_id *y,
                                      const graph_id *moved) {
    graph *g = s->g;
    for (int i = 0; i < f->carries; i++) lib_vec_push(g->arena, &s->next, y[i]);
    for (int i = 0; i < f->carries; i++) {
        const graph_shape shape = tangent_shape(s->body, y[i]);
        if (d[i]) lib_vec_push(g->arena, &s->next, moved[i] ? moved[i] : zeros(s->body, &shape));
    }
    if (f->conditional) s->go_on = y[f->carries];
    for (int i = f->carries + f->conditional; i < (int)f->body->outputs.count; i++) {
        if (!moved[i]) continue;
        lib_vec_push(g->arena, &s->element, moved[i]);
        lib_vec_push(g->arena, &s->backward, is_reverse(f, f->sequences + i - f->carries - f->conditional));
    }
}

/* Inputs of a new body in the order carries, sequences, captures, and tangents after each group. */
void graph_tangent_scan(graph_rule *rule) {
    graph *g = rule->g;
    const scan_form f = form_of(rule);
    const int inputs = (int)f.body->inputs.count, outputs = (int)f.body->outputs.count,
              ends[] = {f.carries, sequences_end(&f), inputs};
    const bool *along = find_moving_inputs(rule, f.body, f.carries);
    scan_builder s = {.g = g};
    id_list *const operands[] = {&s.carry, &s.sequence, &s.capture};
    s.body = graph_new_subgraph(g, &s.number);
    graph_id *x = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)inputs),
             *d = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)inputs);
    graph_id *y = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)outputs),
             *moved = LIB_NEW_ARRAY(g->arena, graph_id, (size_t)outputs);
    for (int part = 0, from = 0; part < 3; from = ends[part++]) {
        push_doubled(rule, from, ends[part], along, operands[part]);
        for (int i = from; i < ends[part]; i++)
            x[i] = new_input(s.body, graph_shape_of(f.body, f.body->inputs.data[i]));
        for (int twice = 0; part == 1 && twice < 2; twice++)
            for (int i = from; i < ends[part]; i++)
                if (!twice || along[i]) lib_vec_push(g->arena, &s.forward, is_reverse(&f, i - from));
        for (int i = from; i < ends[part]; i++) {
            if (!along[i]) continue;
            const graph_shape shape = tangent_shape(f.body, f.body->inputs.data[i]);
            d[i] = new_input(s.body, &shape);
        }
    }
    graph_inline(f.body, s.body, x, y);
    tangents_in(s.body, rule->op->name, inputs, x, d, outputs, y, moved);
    add_outputs_with_tangents(&s, &f, d, y, moved);
    graph_id next = emit_scan(&s, &rule->attribute[GRAPH_SCAN_LENGTH]) + (graph_id)f.carries;
    for (int i = 0; i < f.carries; i++)
        if (d[i]) rule->out[i] = next++;
    for (int i = 0; i < f.stacks; i++)
        if (moved[f.carries + f.conditional + i]) rule->out[f.carries + i] = next++;
}

/* ---- scan, backwards: what the iterations keep ------------------------------------------------------------------------------- */

/* One iteration and its reverse in one graph, which is then divided. */
typedef struct iteration {
    graph *g;
    /* by input and output of the body */
    graph_id *x, *y;
    /* by output: the input for its cotangent; 0: none. By input: its cotangent; 0: it is 0 or not wanted */
    graph_id *given, *back;
    /* by value: it depends on a cotangent; by node: the reverse part needs it */
    bool *late, *needed;
    /* by value: it is kept by the forward iteration; the reverse part reads it */
    bool *kept, *read;
    /* How the cotangents of captures, back[], are summed over the iterations. By value: it changes with them; its sum is carried by the
     * loop; its stack is read after the loop. By node: emitted after the loop, on sums and stacks */
    bool *varies, *carried, *stacked, *after;
} iteration;

/* Marks the values that move and that reached ones are computed from, in one iteration. */
static void reach_back(const graph *body, const bool *moves, bool *reached) {
    for (uint32_t n = body->nodes.count; n-- > 0;) {
        const graph_node *node = &body->nodes.data[n];
        bool any = false;
        for (int r = 0; r < node->results && !node->op->flat; r++) any = any || reached[node->first + (graph_id)r];
        for (int k = 0; any && k < node->inputs; k++)
            if (moves[node->input[k]]) reached[node->input[k]] = true;
    }
}

/* By carry: does it move, if the wanted operands do, and is a result with a cotangent computed from it, in this iteration or a later one? */
static bool *find_carries_between(const graph_rule *rule, const scan_form *f) {
    const graph *body = f->body;
    const graph_id *input = body->inputs.data, *output = body->outputs.data;
    const bool *moves = find_moving(body, f->carries, rule->wanted);
    bool *reached = LIB_NEW_ARRAY(rule->g->arena, bool, body->values.count),
         *between = LIB_NEW_ARRAY(rule->g->arena, bool, (size_t)f->carries);
    for (int i = 0; i < f->carries + f->stacks; i++)
        if (rule->cotangent[i]) reached[output[i < f->carries ? i : i + f->conditional]] = true;
    for (bool again = true; again;) {
        again = false;
        reach_back(body, moves, reached);
        for (int i = 0; i < f->carries; i++)
            if (reached[input[i]] && !reached[output[i]]) reached[output[i]] = again = true;
    }
    for (int i = 0; i < f->carries; i++) between[i] = moves[input[i]] && reached[output[i]];
    return between;
}

static iteration open_iteration(graph_rule *rule, const scan_form *f) {
    graph *g = rule->g;
    lib_arena *arena = g->arena;
    const int inputs = (int)f->body->inputs.count, outputs = (int)f->body->outputs.count;
    iteration it = {.g = graph_new_inside(g),
                    .x = LIB_NEW_ARRAY(arena, graph_id, (size_t)inputs),
                    .y = LIB_NEW_ARRAY(arena, graph_id, (size_t)outputs),
                    .given = LIB_NEW_ARRAY(arena, graph_id, (size_t)outputs),
                    .back = LIB_NEW_ARRAY(arena, graph_id, (size_t)inputs)};
    for (int i = 0; i < inputs; i++) it.x[i] = new_input(it.g, graph_shape_of(f->body, f->body->inputs.data[i]));
    graph_inline(f->body, it.g, it.x, it.y);
    const bool *between = find_carries_between(rule, f);
    id_list y = {0}, c = {0}, x = {0}, from = {0};
    for (int i = 0; i < outputs; i++) {
        const int stack = i - f->carries - f->conditional;
        const bool reached = i < f->carries ? between[i] : stack >= 0 && rule->cotangent[f->carries + stack];
        if (!reached) continue;
        const graph_shape shape = tangent_shape(it.g, it.y[i]);
        it.given[i] = new_input(it.g, &shape);
        lib_vec_push(arena, &y, it.y[i]);
        lib_vec_push(arena, &c, it.given[i]);
    }
    for (int i = 0; i < inputs; i++) {
        if (i < f->carries ? !between[i] : !rule->wanted[i]) continue;
        lib_vec_push(arena, &x, it.x[i]);
        lib_vec_push(arena, &from, (graph_id)i);
    }
    graph_id *back = LIB_NEW_ARRAY(arena, graph_id, x.count);
    graph_vjp(it.g, rule->op->name, (int)y.count, y.data, c.data, (int)x.count, x.data, back);
    for (uint32_t i = 0; i < x.count; i++) it.back[from.data[i]] = back[i];
    return it;
}

/* ---- scan, backwards: sums over the iterations ------------------------------------------------------------------------------------- */

/* Sets `varies`. */
static void find_varying(iteration *it, const scan_form *f) {
    const graph *g = it->g;
    it->varies = LIB_NEW_ARRAY(g->arena, bool, g->values.count);
    for (int i = 0; i < sequences_end(f); i++) it->varies[it->x[i]] = true;
    for (int i = 0; i < (int)f->body->outputs.count; i++) it->varies[it->given[i]] = it->given[i] != 0;
    for (int i = sequences_end(f); i < (int)f->body->inputs.count; i++) it->varies[it->back[i]] = it->back[i] != 0;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        bool varies = node->impure && !graph_is_source(node->op);
        for (int k = 0; k < node->inputs; k++) varies = varies || (node->input[k] && it->varies[node->input[k]]);
        for (int r = 0; varies && r < node->results; r++) it->varies[node->first + (graph_id)r] = true;
    }
}

static bool moves_elements(const graph_op *op) {
    return op->structure == GRAPH_REPEATS || op->structure == GRAPH_REGROUPS || op->structure == GRAPH_PERMUTES;
}

/* Is the sum over the iterations of the node's result the node on such sums, which are no larger? Of what it reads, all that is numbers
 * changes, if it is linear in these together, else one operand. */
static bool sums_first(const iteration *it, const graph_node *node) {
    const graph_op *op = node->op;
    const tir_op operation = graph_map_operation(op);
    const bool jointly = op->structure == GRAPH_JOINS || operation == TIR_ADD || operation == TIR_SUB;
    int varying = 0, numbers = 0;
    bool linear = true;
    if (op->class_ != GRAPH_MAP && !moves_elements(op) && !jointly && op->structure != GRAPH_CONTRACTS) return false;
    for (int k = 0; k < node->inputs; k++) {
        const bool number = is_number_value(it->g, node->input[k]);
        numbers += number;
        if (!node->input[k] || !it->varies[node->input[k]]) continue;
        varying++;
        linear = linear && number && (jointly || op->linear >> k & 1);
    }
    return linear && is_number_value(it->g, node->first) && varying == (jointly ? numbers : 1);
}

/* A contraction of operands that both change is one over the iterations, too. */
static bool contracts_over_time(const iteration *it, const graph_node *node) {
    if (node->op->structure != GRAPH_CONTRACTS) return false;
    for (int k = 0; k < 2; k++)
        if (!it->varies[node->input[k]] || graph_shape_of(it->g, node->input[k])->rank == DLC_MAX_RANK) return false;
    return true;
}

/* So is a sum whose operand has a stack anyway. */
static bool folds_over_time(const iteration *it, const graph_node *node) {
    return node->op->structure == GRAPH_FOLDS && node->op->operation == TIR_ADD && it->stacked[node->input[0]] &&
           graph_shape_of(it->g, node->input[0])->rank < DLC_MAX_RANK;
}

/* Decides how value v is summed: by operands' sums, by a stack, or in the loop. summed: by value, its sum is needed; computed: by node, its
 * results, which do not change, are read after the loop. */
static void sum_value(iteration *it, graph_id v, bool *summed, bool *computed) {
    const uint32_t index = it->g->values.data[v].node;
    const graph_node *node = &it->g->nodes.data[index];
    const bool contracts = contracts_over_time(it, node);
    it->after[index] = contracts || sums_first(it, node);
    it->carried[v] = !it->after[index];
    for (int k = 0; it->after[index] && k < node->inputs; k++) {
        const graph_id operand = node->input[k];
        if (!operand) continue;
        if (contracts)
            it->stacked[operand] = true;
        else if (it->varies[operand])
            summed[operand] = true;
        else
            computed[it->g->values.data[operand].node] = true;
    }
}

/* Sets `carried`, `stacked` and `after`. */
static void plan_sums(iteration *it, const scan_form *f) {
    const graph *g = it->g;
    const int inputs = (int)f->body->inputs.count;
    find_varying(it, f);
    it->carried = LIB_NEW_ARRAY(g->arena, bool, g->values.count);
    it->stacked = LIB_NEW_ARRAY(g->arena, bool, g->values.count);
    it->after = LIB_NEW_ARRAY(g->arena, bool, g->nodes.count);
    bool *summed = LIB_NEW_ARRAY(g->arena, bool, g->values.count),
         *computed = LIB_NEW_ARRAY(g->arena, bool, g->nodes.count);
    for (int i = sequences_end(f); i < inputs; i++) summed[it->back[i]] = it->back[i] != 0;
    for (graph_id v = g->values.count; v-- > 1;) /* users before operands */
        if (summed[v]) sum_value(it, v, summed, computed);
    for (uint32_t i = g->nodes.count; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        if (!computed[i] || node->op->structure == GRAPH_ARRIVES) continue;
        it->after[i] = true;
        for (int k = 0; k < node->inputs; k++)
            if (node->input[k]) computed[g->values.data[node->input[k]].node] = true;
    }
    for (int i = f->carries; i < sequences_end(f); i++) it->stacked[it->back[i]] = it->back[i] != 0;
    for (graph_id v = 1; v < g->values.count; v++) {
        const uint32_t index = g->values.data[v].node;
        if (!it->carried[v] || !folds_over_time(it, &g->nodes.data[index])) continue;
        it->carried[v] = false;
        it->after[index] = true;
    }
}

/* Is the node computed again by the reverse part rather than kept: a move, or a map of few instructions? */
static bool is_again(const graph_op *op) {
    const tir_op operation = graph_map_operation(op);
    const bool slow =
        tir_ops[operation].flags & TIR_MATH || operation == TIR_DIV || operation == TIR_REM || operation == TIR_SQRT;
    const bool converts = op->class_ == GRAPH_MAP && op->max_inputs == 1 && op->linear; /* cast, again */
    return converts || (operation && !slow) || graph_is_repeatable(op) || op->structure == GRAPH_PERMUTES;
}

/* The sequence whose element value v is; -1: none. */
static int sequence_of(const iteration *it, const scan_form *f, graph_id v) {
    for (int i = f->carries; i < sequences_end(f); i++)
        if (it->x[i] == v) return i;
    return -1;
}

/* Does the forward scan stack value v, or is it an element of a sequence, so that no stack is made by the reverse one? Of a conditional scan,
 * elements of iterations that did not run may be any numbers. */
static bool has_stack(const iteration *it, const scan_form *f, graph_id v) {
    const graph_node *node = graph_node_of(it->g, v);
    return !f->conditional && !it->late[v] &&
           (sequence_of(it, f, v) >= 0 || node->op->structure == GRAPH_ARRIVES || !is_again(node->op));
}

/* Sets `late`. */
static void find_late(iteration *it, const scan_form *f) {
    const graph *g = it->g;
    for (uint32_t i = 0; i < f->body->outputs.count; i++) it->late[it->given[i]] = it->given[i] != 0;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        bool late = false;
        for (int k = 0; k < node->inputs; k++) late = late || (node->input[k] && it->late[node->input[k]]);
        for (int r = 0; late && r < node->results; r++) it->late[node->first + (graph_id)r] = true;
    }
}

/* Sets `needed`, and adds to `kept` and `read`: a node whose result is read is computed by the reverse part, which then reads
 * its operands, or its result is kept. */
static void find_needed(iteration *it) {
    const graph *g = it->g;
    for (uint32_t i = g->nodes.count; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        bool late = false, wanted = false;
        for (int r = 0; r < node->results; r++) {
            late = late || it->late[node->first + (graph_id)r];
            wanted = wanted || it->read[node->first + (graph_id)r];
        }
        it->needed[i] = wanted && (late || is_again(node->op));
        for (int r = 0; wanted && !it->needed[i] && r < node->results; r++)
            if (it->read[node->first + (graph_id)r]) it->kept[node->first + (graph_id)r] = true;
        for (int k = 0; it->needed[i] && k < node->inputs; k++) it->read[node->input[k]] = node->input[k] != 0;
    }
}

/* Sets `late`, `needed`, `kept` and `read`. */
static void divide(iteration *it, const scan_form *f) {
    const graph *g = it->g;
    it->late = LIB_NEW_ARRAY(g->arena, bool, g->values.count);
    it->needed = LIB_NEW_ARRAY(g->arena, bool, g->nodes.count);
    it->kept = LIB_NEW_ARRAY(g->arena, bool, g->values.count);
    it->read = LIB_NEW_ARRAY(g->arena, bool, g->values.count);
    find_late(it, f);
    for (int i = 0; i < sequences_end(f); i++) it->read[it->back[i]] = it->back[i] != 0;
    for (graph_id v = 1; v < g->values.count; v++) {
        const bool has = it->stacked[v] && has_stack(it, f, v);
        it->read[v] = it->read[v] || it->carried[v] || (it->stacked[v] && !has);
        it->kept[v] = has && sequence_of(it, f, v) < 0;
    }
    find_needed(it);
}

/* The forward scan again, with the kept values stacked behind its own stacks: kept[i] is the stack of values[i]. Where nothing more is kept
 * than the body has anyway, it is the same scan. */
static void keep(const graph_rule *rule, const scan_form *f, const iteration *it, const id_list *values,
                 graph_id *kept) {
    graph *g = rule->g;
    scan_builder s = {.g = g};
    const int inputs = (int)f->body->inputs.count;
    s.body = graph_new_subgraph(g, &s.number);
    graph_walk walk = graph_walk_between(it->g, s.body);
    for (int i = 0; i < inputs; i++) {
        walk.map[it->x[i]] = new_input(s.body, graph_shape_of(it->g, it->x[i]));
        lib_vec_push(g->arena,
                     i < f->carries         ? &s.carry
                     : i < sequences_end(f) ? &s.sequence
                                            : &s.capture,
                     rule->input[i]);
    }
    for (uint32_t i = 0; i < it->g->nodes.count; i++) {
        const graph_node *node = &it->g->nodes.data[i];
        if (node->results && !it->late[node->first] && !walk.map[node->first]) graph_walk_node(&walk, i);
    }
    for (int i = 0; i < f->carries; i++) lib_vec_push(g->arena, &s.next, walk.map[it->y[i]]);
    if (f->conditional) s.go_on = walk.map[it->y[f->carries]];
    for (int i = 0; i < f->stacks; i++)
        lib_vec_push(g->arena, &s.element, walk.map[it->y[f->carries + f->conditional + i]]);
    for (int i = 0; i < f->sequences; i++) lib_vec_push(g->arena, &s.forward, is_reverse(f, i));
    for (int i = 0; i < f->stacks; i++) lib_vec_push(g->arena, &s.backward, is_reverse(f, f->sequences + i));
    for (uint32_t i = 0; i < values->count; i++) {
        lib_vec_push(g->arena, &s.element, walk.map[values->data[i]]);
        lib_vec_push(g->arena, &s.backward, 0);
    }
    const graph_id first = values->count ? emit_scan(&s, &rule->attribute[GRAPH_SCAN_LENGTH]) : 0;
    for (uint32_t i = 0; i < values->count; i++) kept[i] = first + (graph_id)(f->carries + f->stacks) + i;
}

/* ---- scan, backwards ------------------------------------------------------------------------------------------------------ */

typedef struct reversal {
    graph_rule *rule;
    const scan_form *f;
    iteration *it;
    scan_builder s;
    graph_walk walk;
    /* of a conditional scan: did this iteration run? */
    graph_id ran;
    /* values that the forward scan kept, and their stacks; values of which this scan makes stacks, after those for the sequences */
    id_list values, further;
    graph_id *kept;
    /* by value that is carried: its sum so far */
    graph_id *sum;
} reversal;

/* Adds an operand and the body's input for it. */
static graph_id add_operand(reversal *r, id_list *group, graph_id operand, const graph_shape *shape) {
    lib_vec_push(r->s.g->arena, group, operand);
    return new_input(r->s.body, shape);
}

/* Of a conditional scan: the value where the iteration ran, else the other one. */
static graph_id if_ran(reversal *r, graph_id value, graph_id otherwise) {
    return r->ran ? graph_select(r->s.body, r->ran, value, otherwise) : value;
}

/* Carries: cotangents of the scan's carries, then sums, then, if conditional, the number of the iteration. */
static void add_carries(reversal *r, graph_id *count) {
    graph *g = r->s.g;
    for (int i = 0; i < r->f->carries; i++) {
        if (!r->it->given[i]) continue;
        const graph_shape shape = *graph_shape_of(r->it->g, r->it->given[i]);
        const graph_id c = r->rule->cotangent[i] ? r->rule->cotangent[i] : zeros(g, &shape);
        r->walk.map[r->it->given[i]] = add_operand(r, &r->s.carry, c, &shape);
    }
    for (graph_id v = 1; v < r->it->g->values.count; v++) {
        if (!r->it->carried[v]) continue;
        const graph_shape shape = *graph_shape_of(r->it->g, v);
        r->sum[v] = add_operand(r, &r->s.carry, zeros(g, &shape), &shape);
    }
    if (!r->f->conditional) return;
    const graph_shape number = {.dtype = DLC_I64};
    const graph_id last = graph_sub(g, graph_dimension(g, DLC_I64, r->f->length), graph_scalar_i64(g, DLC_I64, 1));
    *count = add_operand(r, &r->s.carry, last, &number);
}

/* Sequences: of the scan, as far as they are read, kept values, and cotangents of stacks. */
static void add_sequences(reversal *r) {
    graph *g = r->s.g;
    const scan_form *f = r->f;
    iteration *it = r->it;
    for (int i = f->carries; i < sequences_end(f); i++) {
        if (!it->kept[it->x[i]]) continue;
        r->walk.map[it->x[i]] = add_operand(r, &r->s.sequence, r->rule->input[i], graph_shape_of(it->g, it->x[i]));
        lib_vec_push(g->arena, &r->s.forward, !is_reverse(f, i - f->carries));
    }
    for (uint32_t i = 0; i < r->values.count; i++) {
        const graph_id v = r->values.data[i];
        if (!it->read[v]) continue;
        r->walk.map[v] = add_operand(r, &r->s.sequence, r->kept[i], graph_shape_of(it->g, v));
        lib_vec_push(g->arena, &r->s.forward, 1);
    }
    for (int i = 0; i < f->stacks; i++) {
        const graph_id given = it->given[f->carries + f->conditional + i];
        if (!given) continue;
        r->walk.map[given] =
            add_operand(r, &r->s.sequence, r->rule->cotangent[f->carries + i], graph_shape_of(it->g, given));
        lib_vec_push(g->arena, &r->s.forward, !is_reverse(f, f->sequences + i));
    }
}

static void add_captures(reversal *r, graph_id count) {
    const scan_form *f = r->f;
    iteration *it = r->it;
    const graph_shape number = {.dtype = DLC_I64};
    for (int i = sequences_end(f); i < (int)f->body->inputs.count; i++)
        if (it->kept[it->x[i]])
            r->walk.map[it->x[i]] = add_operand(r, &r->s.capture, r->rule->input[i], graph_shape_of(it->g, it->x[i]));
    if (!f->conditional) return;
    const graph_id ran = add_operand(r, &r->s.capture, r->rule->first + (graph_id)(f->carries + f->stacks), &number);
    r->ran = graph_lt(r->s.body, count, ran);
}

/* An element of a stack of the reverse scan: 0 where the iteration did not run. */
static void add_element(reversal *r, graph_id v, int64_t backward) {
    const graph_id element = r->walk.map[v];
    lib_vec_push(r->s.g->arena, &r->s.element, if_ran(r, element, graph_scalar_like(r->s.body, element, 0)));
    lib_vec_push(r->s.g->arena, &r->s.backward, backward);
}

/* The sequence whose elements' cotangent is value v; -1: none. */
static int sequence_with(const reversal *r, graph_id v) {
    for (int i = r->f->carries; i < sequences_end(r->f); i++)
        if (r->it->back[i] == v) return i;
    return -1;
}

/* Outputs of the body, in the order of add_carries, then the cotangents of elements of sequences, then further stacks. */
static void add_results(reversal *r, graph_id count) {
    graph *body = r->s.body;
    const scan_form *f = r->f;
    const iteration *it = r->it;
    for (int i = 0; i < f->carries; i++) {
        if (!it->given[i]) continue;
        const graph_shape shape = *graph_shape_of(it->g, it->given[i]);
        const graph_id back = it->back[i] ? r->walk.map[it->back[i]] : zeros(body, &shape);
        lib_vec_push(body->arena, &r->s.next, if_ran(r, back, r->walk.map[it->given[i]]));
    }
    for (graph_id v = 1; v < it->g->values.count; v++)
        if (it->carried[v])
            lib_vec_push(body->arena, &r->s.next, if_ran(r, graph_add(body, r->sum[v], r->walk.map[v]), r->sum[v]));
    if (f->conditional)
        lib_vec_push(body->arena, &r->s.next, graph_sub(body, count, graph_scalar_i64(body, DLC_I64, 1)));
    for (int i = f->carries; i < sequences_end(f); i++)
        if (it->back[i]) add_element(r, it->back[i], !is_reverse(f, i - f->carries));
    for (graph_id v = 1; v < it->g->values.count; v++) {
        if (!it->stacked[v] || has_stack(it, f, v) || sequence_with(r, v) >= 0) continue;
        lib_vec_push(body->arena, &r->further, v);
        add_element(r, v, 1);
    }
}

/* The stack of value v, from the first iteration to the last. */
static graph_id stack_of(const reversal *r, graph_id elements, graph_id v) {
    const scan_form *f = r->f;
    const int own = has_stack(r->it, f, v) ? sequence_of(r->it, f, v) : sequence_with(r, v);
    const int64_t time = 0;
    if (own < 0) {
        for (uint32_t i = 0; i < r->values.count && has_stack(r->it, f, v); i++)
            if (r->values.data[i] == v) return r->kept[i];
        for (int i = f->carries; i < sequences_end(f); i++) elements += r->it->back[i] != 0;
        for (uint32_t i = 0; r->further.data[i] != v; i++) elements++;
        return elements;
    }
    const graph_id stack = r->it->back[own] == v ? r->rule->out[own] : r->rule->input[own];
    return is_reverse(f, own - f->carries) ? graph_reverse(r->s.g, stack, 1, &time) : stack;
}

/* The axes of a list, one further on behind that of the iterations, which is first if it is one of them. */
static graph_setting behind_time(graph *g, const char *name, const graph_attribute *axes, int rank, bool time) {
    int64_t *out = LIB_NEW_ARRAY(g->arena, int64_t, (size_t)axes->count + 1);
    for (int i = 0; i < axes->count; i++) out[time + i] = graph_axis_of(axes->list[i], rank) + 1;
    return graph_set_list(name, axes->count + time, out);
}

/* A contraction or a sum of one iteration, over all of them. */
static graph_id over_time(const reversal *r, graph_id elements, const graph_node *node) {
    graph *g = r->s.g;
    const graph *from = r->it->g;
    const graph_attribute *a = node->attribute;
    graph_id stack[2];
    int rank[2] = {0};
    for (int k = 0; k < node->inputs; k++) {
        stack[k] = stack_of(r, elements, node->input[k]);
        rank[k] = graph_shape_of(from, node->input[k])->rank;
    }
    if (node->op->structure == GRAPH_FOLDS) {
        int64_t axes[DLC_MAX_RANK] = {0};
        const uint32_t set = graph_axes_of(&a[0], rank[0], true);
        int count = 1;
        for (int d = 0; d < rank[0]; d++)
            if (set >> d & 1) axes[count++] = d + 1;
        const graph_shape *shape = graph_shape_of(from, node->first);
        return graph_reshape(g, graph_reduce_sum(g, stack[0], count, axes, false), shape->rank, shape->dim);
    }
    return graph_emit_with(g, node->op->name, 2, stack, 5,
                           (graph_setting[]){behind_time(g, "batch_x", &a[0], rank[0], false),
                                             behind_time(g, "batch_w", &a[1], rank[1], false),
                                             behind_time(g, "contract_x", &a[2], rank[0], true),
                                             behind_time(g, "contract_w", &a[3], rank[1], true),
                                             {"result", a[4]}});
}

/* The results of the reverse scan are cotangents of the operands, sums and stacks. */
static void read_results(reversal *r, graph_id next) {
    const scan_form *f = r->f;
    const iteration *it = r->it;
    graph_walk walk = graph_walk_between(it->g, r->s.g);
    for (int i = 0; i < f->carries; i++)
        if (it->given[i]) r->rule->out[i] = next++;
    for (graph_id v = 1; v < it->g->values.count; v++)
        if (it->carried[v]) walk.map[v] = next++;
    next += (graph_id)f->conditional;
    const graph_id elements = next;
    for (int i = f->carries; i < sequences_end(f); i++)
        if (it->back[i]) r->rule->out[i] = next++;
    for (int i = sequences_end(f); i < (int)f->body->inputs.count; i++) walk.map[it->x[i]] = r->rule->input[i];
    for (uint32_t i = 0; i < it->g->nodes.count; i++) {
        const graph_node *node = &it->g->nodes.data[i];
        if (!it->after[i]) continue;
        if (contracts_over_time(it, node) || (node->op->structure == GRAPH_FOLDS && it->varies[node->first]))
            walk.map[node->first] = over_time(r, elements, node);
        else
            graph_walk_node(&walk, i);
    }
    for (int i = sequences_end(f); i < (int)f->body->inputs.count; i++)
        if (it->back[i]) r->rule->out[i] = walk.map[it->back[i]];
}

void graph_cotangent_scan(graph_rule *rule) {
    graph *g = rule->g;
    const scan_form f = form_of(rule);
    const int inputs = (int)f.body->inputs.count;
    iteration it = open_iteration(rule, &f);
    plan_sums(&it, &f);
    divide(&it, &f);
    reversal r = {.rule = rule, .f = &f, .it = &it, .s = {.g = g}};
    for (graph_id v = 1; v < it.g->values.count; v++) {
        bool own = false; /* sequences and captures are operands of the reverse scan themselves */
        for (int i = f.carries; i < inputs; i++) own = own || it.x[i] == v;
        if (it.kept[v] && !own) lib_vec_push(g->arena, &r.values, v);
    }
    r.kept = LIB_NEW_ARRAY(g->arena, graph_id, r.values.count);
    r.sum = LIB_NEW_ARRAY(g->arena, graph_id, it.g->values.count);
    graph_id count = 0;
    keep(rule, &f, &it, &r.values, r.kept);
    r.s.body = graph_new_subgraph(g, &r.s.number);
    r.walk = graph_walk_between(it.g, r.s.body);
    add_carries(&r, &count);
    add_sequences(&r);
    add_captures(&r, count);
    for (uint32_t i = 0; i < it.g->nodes.count; i++) {
        const graph_node *node = &it.g->nodes.data[i];
        if (it.needed[i] && !r.walk.map[node->first]) graph_walk_node(&r.walk, i);
    }
    add_results(&r, count);
    if (r.s.carry.count + r.s.element.count == 0) return;
    const graph_setting length = graph_set_dims("length", 1, &f.length); /* there may be no sequence */
    read_results(&r, emit_scan(&r.s, &length.value));
}

/* ---- cut ------------------------------------------------------------------------------------------------------------------ */

/* The elements that the size, which the cut of the operands has bound, leaves. */
void graph_tangent_cut(graph_rule *rule) {
    graph *g = rule->g;
    for (int k = 1; k < rule->inputs; k++) {
        tir_expr start[DLC_MAX_RANK], stop[DLC_MAX_RANK];
        int64_t step[DLC_MAX_RANK];
        const graph_shape left = *graph_shape_of(g, rule->first + (graph_id)k - 1);
        for (int d = 0; d < left.rank; d++) start[d] = tir_index(g->pool, 0), stop[d] = left.dim[d], step[d] = 1;
        if (rule->tangent[k]) rule->out[k - 1] = graph_slice(g, rule->tangent[k], start, stop, step);
    }
}

/* Zeros behind the elements that were left. */
void graph_cotangent_cut(graph_rule *rule) {
    graph *g = rule->g;
    for (int k = 1; k < rule->inputs; k++) {
        const graph_id c = rule->cotangent[k - 1];
        if (!c || !rule->wanted[k]) continue;
        graph_shape rest = *graph_shape_of(g, rule->input[k]);
        rest.dtype = graph_shape_of(g, c)->dtype;
        rest.dim[0] = tir_sub(g->pool, rest.dim[0], graph_shape_of(g, c)->dim[0]);
        rule->out[k] = graph_concat(g, 2, (graph_id[]){c, zeros(g, &rest)}, 0);
    }
}

/* ---- with_gradient -------------------------------------------------------------------------------------------------------- */

void graph_cotangent_with_gradient(graph_rule *rule) {
    graph *g = rule->g;
    const graph *backward = subgraph_of(rule, GRAPH_BACKWARD);
    id_list input = {0};
    graph_id *output = LIB_NEW_ARRAY(g->arena, graph_id, backward->outputs.count);
    for (int k = 0; k < rule->inputs; k++) lib_vec_push(g->arena, &input, rule->input[k]);
    for (int r = 0; r < rule->results; r++) lib_vec_push(g->arena, &input, rule->first + (graph_id)r);
    for (int r = 0; r < rule->results; r++) {
        const graph_shape shape = tangent_shape(g, rule->first + (graph_id)r);
        lib_vec_push(g->arena, &input, rule->cotangent[r] ? rule->cotangent[r] : zeros(g, &shape));
    }
    graph_inline(backward, g, input.data, output);
    for (int k = 0; k < rule->inputs; k++)
        if (rule->wanted[k]) rule->out[k] = graph_widen(g, output[k]);
}
