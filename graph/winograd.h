/* Winograd's algorithm for convolutions (winograd.c): faster and less accurate. */
#ifndef GRAPH_WINOGRAD_H
#define GRAPH_WINOGRAD_H

#include "graph/graph.h"
#include "tir/machine.h"

enum { GRAPH_WINOGRAD_DILATION = 1 << 20 /* the greatest of a signal's windows */ };

/* Replaces convolutions with constant windows of 3 or 3 x 3 where it is faster on the machine; runs before graph_split_init. Only f32. */
graph *graph_winograd(lib_arena *arena, const graph *g, const tir_machine *machine);

#endif
