/* Rows of control flow: sub-graphs become graph attributes. A nested ONNX graph can use values of enclosing graphs by name, so that captures
 * are not passed as operands. */
#include "graph/onnx/export.h"

static const graph *subgraph(const onnx_export *ex, const char *name) {
    return ex->g->subgraphs.data[onnx_row_int(ex, name)];
}

/* The labels of the operands from `first` on. */
static onnx_label **operands_from(onnx_export *ex, int first) {
    onnx_label **x = LIB_NEW_ARRAY(ex->arena, onnx_label *, (size_t)ex->node->inputs + 1);
    for (int i = first; i < ex->node->inputs; i++) x[i - first] = onnx_in(ex, i);
    return x;
}

static onnx_label **labels(onnx_export *ex, size_t count) {
    return LIB_NEW_ARRAY(ex->arena, onnx_label *, count + 1);
}

/* Gives the current node as its results those of the node added last, from result `first` on. */
static void give_all(onnx_export *ex, uint32_t first) {
    while (ex->last->outputs.count < first + (uint32_t)ex->node->results) onnx_add_result(ex);
    onnx_out_node *made = ex->last;
    for (int i = 0; i < ex->node->results; i++) onnx_export_give_label(ex, i, made->outputs.data[first + (uint32_t)i]);
}

static const onnx_out_graph *branch(onnx_export *ex, const char *name) {
    const graph *sub = subgraph(ex, name);
    onnx_out_graph *made = onnx_begin_graph(ex, name), *outer = ex->out;
    onnx_label **result = labels(ex, sub->outputs.count), **x = operands_from(ex, 1);
    ex->out = made;
    onnx_inline(ex, sub, x, result);
    for (uint32_t i = 0; i < sub->outputs.count; i++)
        onnx_add_graph_output(ex, result[i], graph_shape_of(sub, sub->outputs.data[i]));
    ex->out = outer;
    return made;
}

static void export_if(onnx_export *ex) {
    onnx_label *condition = onnx_in(ex, 0);
    const onnx_out_graph *then = branch(ex, "then"), *otherwise = branch(ex, "otherwise");
    if (ex->node->results == 0) return;
    ONNX_ADD(ex, "If", condition);
    onnx_set_graph(ex, "then_branch", then);
    onnx_set_graph(ex, "else_branch", otherwise);
    give_all(ex, 0);
}

/* The body of a Loop for a `while`. The condition is computed before the loop, and at the end of each iteration for the next one. */
static onnx_out_graph *while_body(onnx_export *ex, onnx_label *const *x) {
    static const graph_shape counter = {.dtype = DLC_I64}, truth = {.dtype = DLC_BOOL};
    const graph *condition = subgraph(ex, "condition"), *body = subgraph(ex, "body");
    const uint32_t carried = body->outputs.count;
    onnx_out_graph *made = onnx_begin_graph(ex, "body"), *outer = ex->out;
    onnx_label **in = labels(ex, (size_t)ex->node->inputs), **next = labels(ex, (size_t)ex->node->inputs), *go;
    ex->out = made;
    onnx_add_graph_input(ex, "iteration", &counter);
    onnx_add_graph_input(ex, "go", &truth);
    for (int i = 0; i < ex->node->inputs; i++)
        in[i] = next[i] = (uint32_t)i < carried ? onnx_add_graph_input(ex, "carried", onnx_in_shape(ex, i)) : x[i];
    onnx_inline(ex, body, in, next);
    onnx_inline(ex, condition, next, &go);
    onnx_add_graph_output(ex, go, &truth);
    for (uint32_t i = 0; i < carried; i++) onnx_add_graph_output(ex, next[i], onnx_in_shape(ex, (int)i));
    ex->out = outer;
    return made;
}

static void export_while(onnx_export *ex) {
    onnx_label **x = operands_from(ex, 0), *go;
    const int carried = (int)subgraph(ex, "body")->outputs.count;
    if (carried == 0) return;
    onnx_inline(ex, subgraph(ex, "condition"), x, &go);
    const onnx_out_graph *body = while_body(ex, x);
    onnx_label **in = labels(ex, (size_t)carried + 2);
    in[1] = go;
    for (int i = 0; i < carried; i++) in[i + 2] = x[i];
    onnx_add(ex, "Loop", carried + 2, in);
    onnx_set_graph(ex, "body", body);
    give_all(ex, 0);
}

/* ---- scan --------------------------------------------------------------------------------------------------------------------------- */

typedef struct scan {
    const graph *body;
    int carries, sequences, stacks;
    /* There is no sequence: one of numbers is made, because ONNX's Scan needs one. */
    bool counted;
    onnx_label **x;
} scan;

static graph_shape element_of(const graph_shape *sequence) {
    graph_shape element = *sequence;
    element.rank--;
    for (int d = 0; d < element.rank; d++) element.dim[d] = sequence->dim[d + 1];
    return element;
}

static onnx_out_graph *scan_body(onnx_export *ex, const scan *s) {
    static const graph_shape counter = {.dtype = DLC_I64};
    onnx_out_graph *made = onnx_begin_graph(ex, "body"), *outer = ex->out;
    onnx_label **in = labels(ex, (size_t)ex->node->inputs), **result = labels(ex, s->body->outputs.count);
    ex->out = made;
    for (int i = 0; i < ex->node->inputs; i++) {
        const bool element = i >= s->carries && i < s->carries + s->sequences;
        const graph_shape shape = element ? element_of(onnx_in_shape(ex, i)) : *onnx_in_shape(ex, i);
        in[i] = i < s->carries ? onnx_add_graph_input(ex, "carried", &shape)
                : element      ? onnx_add_graph_input(ex, "element", &shape)
                               : s->x[i];
    }
    if (s->counted) onnx_add_graph_input(ex, "number", &counter);
    onnx_inline(ex, s->body, in, result);
    for (uint32_t i = 0; i < s->body->outputs.count; i++)
        onnx_add_graph_output(ex, result[i], graph_shape_of(s->body, s->body->outputs.data[i]));
    ex->out = outer;
    return made;
}

static void export_scan(onnx_export *ex) {
    const graph_attribute *reverse = onnx_row_attribute(ex, "reverse"), *length = onnx_row_attribute(ex, "length");
    scan s = {.body = subgraph(ex, "body"),
              .carries = (int)onnx_row_int(ex, "carries"),
              .sequences = (int)onnx_row_int(ex, "sequences"),
              .x = operands_from(ex, 0)};
    s.stacks = (int)s.body->outputs.count - s.carries;
    s.counted = s.sequences == 0;
    if (onnx_row_int(ex, "conditional")) {
        onnx_refuse(ex, "a scan that its body may end");
        return;
    }
    if (ex->node->results == 0) return;
    const onnx_out_graph *body = scan_body(ex, &s);
    onnx_label *numbers = s.counted ? onnx_export_counted(ex, length->dims[0]) : NULL;
    onnx_add(ex, "Scan", s.carries + s.sequences, s.x);
    if (s.counted) onnx_add_input(ex, numbers);
    onnx_set_graph(ex, "body", body);
    onnx_set(ex, "num_scan_inputs", s.sequences + s.counted);
    if (reverse->count && s.sequences) onnx_set_list(ex, "scan_input_directions", s.sequences, reverse->list);
    if (reverse->count && s.stacks) onnx_set_list(ex, "scan_output_directions", s.stacks, reverse->list + s.sequences);
    give_all(ex, 0);
}

const onnx_export_row onnx_export_rows_control[] = {
    {.row = "if", .export = export_if},
    {.row = "while", .export = export_while},
    {.row = "scan", .export = export_scan},
    {0},
};
