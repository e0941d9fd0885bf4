/* Winograd's algorithm for convolutions (winograd.c): faster and less accurate. */
#ifndef GRAPH_WINOGRAD_H
#define GRAPH_WINOGRAD_H

#include "graph/graph.h"
#include "tir/machine.h"

/* Replaces convolutions with constant 3 x 3 windows where it is faster on the machine; runs before graph_split_init. Only f32. */
graph *graph_winograd(lib_arena *arena, const graph *g, const tir_machine *machine);

/* Side of the cheapest tiles for an image with that many results; 0: direct convolution. */
int graph_winograd_tile(const tir_machine *machine, double batch, double ci, double co, double rows, double columns);

#endif
