/* Layouts of values that cross regions. A value stays row-major unless another layout makes the regions that write and read it
 * cheaper together, by a model of their accesses: then one of its dimensions is cut into blocks of a vector, and the position in
 * the block comes last, (n, c/16, h, w, c%16). What the host or anything but a kernel sees stays row-major, always. */
#ifndef GRAPH_LAYOUT_H
#define GRAPH_LAYOUT_H

#include "graph/fuse.h"

/* Sets the layouts of `regions`. `is_constant` as for graph_region_build. */
void graph_assign_layouts(lib_arena *arena, const graph *bound, graph_regions *regions, const tir_machine *machine,
                          bool (*is_constant)(void *user, graph_id value), void *user);

/* Raises DLC_INTERNAL unless every layout is a bijection of its value's rank, and belongs to a value that one kernel writes and
 * that kernels alone read. */
void graph_verify_layouts(lib_scope *scope, const graph *bound, const graph_regions *regions);

#endif
