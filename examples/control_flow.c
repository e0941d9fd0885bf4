/* Decisions and loops inside a graph: dlc_if, dlc_while and dlc_scan. Their branches and bodies are sub-graphs (dlc_subgraph): parameters
 * are their inputs in order, results their outputs in order, and values of the surrounding graph may be used directly.
 *
 *   if      |sum(x)|, by one branch or the other
 *   while   a square root by Newton's steps, until one changes little
 *   scan    a running mean with weight 1/2 for the newest element, all of its values */
#include <dlc/dlc.h>

#include <stdio.h>

static dlc_value branch_if(dlc_graph *graph, dlc_value x) {
    dlc_value sum = dlc_reduce_sum(x, 0, NULL), result;
    dlc_graph *then = dlc_subgraph(graph), *otherwise = dlc_subgraph(graph);
    dlc_output(then, "r", dlc_neg(dlc_input(then, "sum", DLC_F32, 0, NULL)));
    dlc_output(otherwise, "r", dlc_input(otherwise, "sum", DLC_F32, 0, NULL));
    dlc_if(dlc_lt(sum, dlc_scalar(graph, DLC_F32, 0)), 1, &sum, then, otherwise, 1, &result);
    return result;
}

/* root and change are the loop's state; `square` is a value of the outer graph. */
static dlc_value repeat_while(dlc_graph *graph, dlc_value square) {
    dlc_value start[2] = {square, square}, end[2];
    dlc_graph *condition = dlc_subgraph(graph), *body = dlc_subgraph(graph);
    dlc_input(condition, "root", DLC_F32, 0, NULL);
    dlc_value change = dlc_input(condition, "change", DLC_F32, 0, NULL);
    dlc_output(condition, "go on", dlc_gt(change, dlc_scalar(condition, DLC_F32, 1e-6)));

    dlc_value root = dlc_input(body, "root", DLC_F32, 0, NULL);
    dlc_input(body, "change", DLC_F32, 0, NULL);
    dlc_value next = dlc_mul(dlc_add(root, dlc_div(square, root)), dlc_scalar(body, DLC_F32, 0.5));
    dlc_output(body, "root", next);
    dlc_output(body, "change", dlc_abs(dlc_sub(next, root)));
    dlc_while(2, start, condition, body, 2, end);
    return end[0];
}

/* One carry (the mean so far), one sequence (x); the body's second output is stacked. */
static dlc_value scan_sequence(dlc_graph *graph, dlc_value x) {
    dlc_value operands[2] = {dlc_scalar(graph, DLC_F32, 0), x}, results[2];
    dlc_graph *body = dlc_subgraph(graph);
    dlc_value mean = dlc_input(body, "mean", DLC_F32, 0, NULL), element = dlc_input(body, "x", DLC_F32, 0, NULL);
    dlc_value next = dlc_mul(dlc_add(mean, element), dlc_scalar(body, DLC_F32, 0.5));
    dlc_output(body, "mean", next);
    dlc_output(body, "all", next);
    dlc_scan(graph, 2, operands, body, 1, 1, 2, results);
    return results[1];
}

static dlc_status build(dlc_context *context, dlc_program **program) {
    dlc_graph *graph;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status != DLC_OK) return status;
    dlc_value x = dlc_input(graph, "x", DLC_F32, 1, (dlc_dim[]){{0, "n"}});
    dlc_value size = branch_if(graph, x);
    dlc_output(graph, "size", size);
    dlc_output(graph, "root", repeat_while(graph, size));
    dlc_output(graph, "means", scan_sequence(graph, x));
    status = dlc_compile(context, graph, NULL, program); /* reports the first mistake above */
    dlc_graph_destroy(graph);
    return status;
}

int main(void) {
    float data[4] = {-1, -4, 2, -6};
    DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){4}};
    dlc_output_slot y[3] = {{NULL, NULL}};
    dlc_context *context = NULL;
    dlc_program *program = NULL;
    if (dlc_context_create(NULL, &context) || build(context, &program) ||
        dlc_run(program, NULL, (const DLTensor *[]){&x}, 1, y, 3))
        return fprintf(stderr, "%s\n", dlc_error_message(context)), 1;
    const float *size = y[0].managed->dl_tensor.data, *root = y[1].managed->dl_tensor.data;
    const float *means = y[2].managed->dl_tensor.data;
    printf("|sum| %g, its root %g\nrunning means", (double)*size, (double)*root);
    for (int i = 0; i < 4; i++) printf(" %g", (double)means[i]);
    printf("\n");
    for (int i = 0; i < 3; i++) y[i].managed->deleter(y[i].managed);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return 0;
}
