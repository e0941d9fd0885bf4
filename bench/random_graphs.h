/* Random graphs of f32 values, as text (graph/text.c), and their parts: each operator as a graph of its own. */
#ifndef BENCH_RANDOM_GRAPHS_H
#define BENCH_RANDOM_GRAPHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_GRAPH_VALUES = 32, BENCH_GRAPH_OPERANDS = 3, BENCH_GRAPH_RANK = 6, BENCH_GRAPH_TEXT = 8192 };

typedef struct bench_graph_value {
    int rank;
    int64_t dims[BENCH_GRAPH_RANK];
    /* the axis whose size is the graph's symbol n, which stands for dims[symbol]; -1: none */
    int symbol;
    /* what computes the value, such as `softmax(t0, axis=1)`; "": it is an input */
    char step[224];
    /* the numbers of the values that the step reads, in order */
    int operands[BENCH_GRAPH_OPERANDS], operand_count;
    double flops;
    /* i64 instead of f32 */
    bool integer;
    bool output;
} bench_graph_value;

typedef struct bench_random_graph {
    /* value i is called t<i>; operands before the steps that use them */
    bench_graph_value values[BENCH_GRAPH_VALUES];
    int count;
    /* the value of the symbol n; 0: no axis is symbolic */
    int64_t n;
    double flops;
} bench_random_graph;

/* Makes a graph of one to eight steps, and more of inputs, with one to three outputs; the same one for the same seed and number. */
void bench_random_graph_make(bench_random_graph *graph, uint64_t seed, int number);
double bench_value_bytes(const bench_graph_value *value);

/* A part is named by the number of the value that its step makes; BENCH_WHOLE is the whole graph. */
enum { BENCH_WHOLE = -1 };
/* Fills in the numbers of the values that are inputs, or outputs, of a part; returns their count. */
int bench_graph_inputs(const bench_random_graph *graph, int part, int values[BENCH_GRAPH_VALUES]);
int bench_graph_outputs(const bench_random_graph *graph, int part, int values[BENCH_GRAPH_VALUES]);
/* Writes a part as text for dlc_graph_parse. With `varies`, kernels take n as a parameter. */
void bench_graph_text(const bench_random_graph *graph, int part, bool varies, char text[BENCH_GRAPH_TEXT]);

#endif
