/* Winograd's algorithm for convolutions (winograd.c): faster, and less exact. */
#ifndef GRAPH_WINOGRAD_H
#define GRAPH_WINOGRAD_H

#include "graph/graph.h"
#include "tir/machine.h"

/* Replaces convolutions of fixed windows of 3 x 3 where that pays on the machine, before constants are split off. Only f32. */
graph *graph_winograd(lib_arena *arena, const graph *g, const tir_machine *machine);

/* Rows and columns of the tiles that are cheapest for an image of that many results; 0: the convolution as it is. */
int graph_winograd_tile(const tir_machine *machine, double batch, double ci, double co, double rows, double columns);

#endif
