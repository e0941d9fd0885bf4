/* Data-dependent shapes. A node of the row `cut` shortens the leading dimension of its operands to a count that is known only
 * during a run; in shapes the count is a symbol of its own. A graph with cuts is split into a chain of segments, ordinary graphs
 * without cuts: nodes that use a cut's results are in a later segment, whose inputs those results are, of sizes known by then. */
#ifndef GRAPH_SEGMENT_H
#define GRAPH_SEGMENT_H

#include "graph/graph.h"

typedef enum graph_segment_source {
    GRAPH_FROM_INPUT,  /* an input of the whole graph */
    GRAPH_FROM_BORDER, /* a value passed on by an earlier segment */
    GRAPH_FROM_SYMBOLS /* an empty tensor, bool[0, symbols...], that passes sizes which no other input determines */
} graph_segment_source;

typedef struct graph_segment_input {
    graph_segment_source source;
    /* number of the input or border value */
    int number;
    /* symbol whose value replaces the leading size (the input is a result of a cut); -1: none */
    int symbol;
    /* FROM_SYMBOLS: number of symbols, and their indices in the whole graph's list */
    int count;
    int symbols[DLC_MAX_RANK];
} graph_segment_input;

typedef enum graph_segment_target {
    GRAPH_TO_OUTPUT, /* an output of the whole graph */
    GRAPH_TO_BORDER, /* a value passed to later segments */
    GRAPH_TO_SYMBOL  /* an i64 of rank 0: a cut's count */
} graph_segment_target;

typedef struct graph_segment_output {
    graph_segment_target target;
    /* number of the output or border value, or of the symbol in the whole graph's list */
    int number;
} graph_segment_output;

typedef struct graph_segment {
    graph *g;
    lib_vec(graph_segment_input) inputs;
    lib_vec(graph_segment_output) outputs;
} graph_segment;

typedef struct graph_segments {
    lib_vec(graph_segment) list;
    /* number of values passed between segments */
    int borders;
    /* [borders] the last segment that reads the value */
    int *border_end;
} graph_segments;

bool graph_has_cuts(const graph *g);
/* Is the symbol counted by a cut? */
bool graph_is_counted(const graph *g, tir_expr symbol);
/* Does the expression depend on a counted symbol? */
bool graph_depends_on_data(const graph *g, tir_expr e);
/* Marks as live the cuts, and composites that become cuts, whose symbols occur in shapes or attributes of live nodes; false: no new ones. */
bool graph_revive_cuts(const graph *g, bool *live);
/* Raises if the graph cannot be split: two cuts count one symbol, it is also a size of an input, or a cut is in a sub-graph. The
 * segments share the constants of g. */
graph_segments graph_split_segments(lib_arena *arena, const graph *g);

#endif
