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
    /* `softmax(t0, axis=1)`; "": an input */
    char step[224];
    /* values, in order; of a step */
    int operands[BENCH_GRAPH_OPERANDS], operand_count;
    double flops;
    /* i64, else f32 */
    bool integer;
    bool output;
} bench_graph_value;

typedef struct bench_random_graph {
    /* value i is called t<i>; operands before the steps that use them */
    bench_graph_value values[BENCH_GRAPH_VALUES];
    int count;
    /* its axis of size n; 0: it has none */
    int64_t n;
    double flops;
} bench_random_graph;

/* The same graph for the same seed and number: one to eight steps, one to three outputs. */
void bench_random_graph_make(bench_random_graph *graph, uint64_t seed, int number);
double bench_value_bytes(const bench_graph_value *value);

/* A part, or the whole graph, is a list of its steps. */
enum { BENCH_WHOLE = -1 };
/* Numbers of the values that are inputs, or outputs, of the step that makes value `part`, or of the whole graph; their count. */
int bench_graph_inputs(const bench_random_graph *graph, int part, int values[BENCH_GRAPH_VALUES]);
int bench_graph_outputs(const bench_random_graph *graph, int part, int values[BENCH_GRAPH_VALUES]);
/* For dlc_graph_parse. With `varies`, kernels take n as a parameter. */
void bench_graph_text(const bench_random_graph *graph, int part, bool varies, char text[BENCH_GRAPH_TEXT]);

#endif
