/* Data-dependent shapes. A row `cut` gives values a leading size that only a run can know: a symbol of its own. A graph with cuts
 * becomes a chain of segments, ordinary graphs without cuts: what stands behind a cut takes the cut values as inputs, whose sizes
 * are known by then. Any operator whose number of results depends on data expands to one that fills as many places as there can
 * be, and a cut; see non_zero. */
#ifndef GRAPH_SEGMENT_H
#define GRAPH_SEGMENT_H

#include "graph/graph.h"

typedef enum graph_segment_source {
    GRAPH_FROM_INPUT,  /* an input of the whole graph */
    GRAPH_FROM_BORDER, /* a value that an earlier segment leaves */
    GRAPH_FROM_SYMBOLS /* an empty tensor, bool[0, symbols...], by which sizes come that no other input tells */
} graph_segment_source;

typedef struct graph_segment_input {
    graph_segment_source source;
    /* of the input or of the border value */
    int number;
    /* whose value takes the place of the leading size; -1: none */
    int symbol;
    /* FROM_SYMBOLS: how many, and which, as numbers in the whole graph's list */
    int count;
    int symbols[DLC_MAX_RANK];
} graph_segment_input;

typedef enum graph_segment_target {
    GRAPH_TO_OUTPUT, /* an output of the whole graph */
    GRAPH_TO_BORDER, /* a value for later segments */
    GRAPH_TO_SYMBOL  /* an i64 of rank 0: what a cut counts */
} graph_segment_target;

typedef struct graph_segment_output {
    graph_segment_target target;
    /* of the output, of the border value, of the symbol in the whole graph's list */
    int number;
} graph_segment_output;

typedef struct graph_segment {
    graph *g;
    lib_vec(graph_segment_input) inputs;
    lib_vec(graph_segment_output) outputs;
} graph_segment;

typedef struct graph_segments {
    lib_vec(graph_segment) list;
    /* values that go from segment to segment */
    int borders;
    /* [borders] the last segment that takes it */
    int *border_end;
} graph_segments;

bool graph_has_cuts(const graph *g);
/* Is the symbol what a cut counts? */
bool graph_is_counted(const graph *g, tir_expr symbol);
/* Does the expression depend on what a cut counts? */
bool graph_depends_on_data(const graph *g, tir_expr e);
/* Marks cuts that only sizes of live nodes speak of; false: there is none more. */
bool graph_revive_cuts(const graph *g, bool *live);
/* Raises where the graph cannot be split: a symbol counts two things or is a size of an input, a cut stands in a sub-graph. The
 * segments' constants are those of g. */
graph_segments graph_split_segments(lib_arena *arena, const graph *g);

#endif
