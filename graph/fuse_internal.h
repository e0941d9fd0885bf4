/* Shared by the files of fusion: nodes with roles, edges between them, clusters. fuse.c forms clusters, fuse_sweep.c joins contractions of
 * common matrices, fuse_columns.c sums along columns to rows, fuse_cost.c reconsiders joins in doubt by the target's cost model, fuse_regions.c turns clusters
 * into regions. */
#ifndef GRAPH_FUSE_INTERNAL_H
#define GRAPH_FUSE_INTERNAL_H

#include "graph/build.h"
#include "graph/fuse.h"
#include "graph/host_layout.h"
#include "graph/internal.h"

#include <assert.h>

typedef enum fuse_role { FUSE_NONE, FUSE_SOURCE, FUSE_CHEAP, FUSE_CORE } fuse_role;

/* The kind of a cluster, determined by its heaviest node. */
typedef enum fuse_kind {
    CLUSTER_MOVES, /* injective nodes only: no arithmetic */
    CLUSTER_MAPS,  /* maps and injectives */
    CLUSTER_ROWS,  /* reductions over the same axes of one domain, and maps over the domain and over its rows */
    CLUSTER_HEAVY, /* one contraction, convolution, window, scan or scatter with an epilogue of maps; layers of contractions; several
                          contractions of common matrices (fuse_sweep.c) */
    CLUSTER_ATTENTION, /* contraction, rows, contraction */
    CLUSTER_ALONE      /* views, opaque, control */
} fuse_kind;

enum { CLUSTER_NODES_MAX = 48, DOUBTS_MAX = 8 /* joins of a cluster that are questioned; further ones are kept */ };

/* Core node `user` reads `value` of core node `producer`, perhaps through cheap nodes (fuse.c). */
typedef struct fuse_edge {
    uint32_t producer, user;
    graph_id value;
    /* the operand of `user`; -1: only an order between impure nodes */
    int operand;
    /* no cheap node on the path changes the shape */
    bool direct;
    /* a broadcast on the path repeats elements */
    bool expands;
} fuse_edge;

/* Two clusters were merged because `user` of one reads `producer` of the other. The joins of a cluster are a tree over its nodes:
 * removing one splits it into two parts. */
typedef struct fuse_join {
    uint32_t producer, user;
    /* the kinds of the two clusters before they were joined */
    fuse_kind of_producer, of_user;
    /* 1: the value is rows of one contraction that another one sums over; a whole word, because joins are hashed as bytes */
    uint32_t layers;
    /* 1: `user` does not read `producer`, a sum of columns that runs beside its rows */
    uint32_t beside;
} fuse_join;
static_assert(sizeof(fuse_join) == 2 * sizeof(uint32_t) + 2 * sizeof(fuse_kind) + 2 * sizeof(uint32_t), "no padding");

typedef lib_vec(uint32_t) fuse_nodes;

typedef struct fuse_cluster {
    fuse_kind kind;
    /* empty: the cluster was merged into another one */
    fuse_nodes nodes;
    /* MAPS, MOVES, HEAVY, ATTENTION: the shape that maps joining the cluster have; ROWS: shape of the operands of its reductions */
    graph_shape domain;
    /* ATTENTION: the domain of the joined ROWS cluster without the reduced axes */
    graph_shape rows;
    /* ROWS: bit set of the reduced axes */
    uint32_t axes;
    /* number of the last search that visited it */
    uint32_t stamp;
    /* HEAVY: its contraction, window, scan or scatter; ATTENTION: its last contraction */
    uint32_t heavy;
} fuse_cluster;

typedef struct fuser {
    lib_arena *arena;
    const graph *g;
    const tir_machine *machine;
    /* NULL: joins are not in doubt */
    const graph_fuse_costs *costs;
    /* by node: fuse_role */
    uint8_t *role;
    /* by node: graph_index_costs */
    uint8_t *index_cost;
    /* by node: graph_mask_costs */
    uint8_t *mask_cost;
    /* machine NULL: none */
    graph_given given;
    /* core nodes: index into clusters */
    uint32_t *cluster_of;
    lib_vec(fuse_cluster) clusters;
    /* by user, ascending */
    lib_vec(fuse_edge) edges;
    /* by node, one more than nodes */
    uint32_t *edges_begin;
    /* by node: edges that read it */
    fuse_nodes *users;
    lib_vec(fuse_join) joins;
    /* by value: it is an output of the graph */
    bool *output;
    /* by value: stays row-major although the host's moves give it a blocked layout */
    bool *refused;
    /* stack of the current search */
    fuse_nodes stack;
    /* stamp of the current search */
    uint32_t search;
    /* by node: `mark` of the last region that had the node */
    uint32_t *inside;
    /* by value: `mark` of the last region that had it as an input */
    uint32_t *read;
    /* number of the region that is being made */
    uint32_t mark;
} fuser;

/* fuse.c */
int64_t graph_fuse_extent(const graph *g, tir_expr dim);               /* -1: not a number */
int64_t graph_fuse_elements(const graph *g, const graph_shape *shape); /* -1: a dimension varies */
bool graph_fuse_same_dims(const graph_shape *a, const graph_shape *b);
bool graph_fuse_is_view(const fuser *f, const graph_node *node); /* the result's bytes are part of the operand's */
/* The cluster for a node, of its kind and domain, but still without the node. */
fuse_cluster graph_fuse_new_cluster(const fuser *f, uint32_t node);
bool graph_fuse_is_impure(const fuser *f, uint32_t node);
/* Merges the cluster of `producer` into that of `user`, which reads it. The kind becomes that of the heavier of the two. */
void graph_fuse_join(fuser *f, uint32_t producer, uint32_t user);

/* Merges the cluster of node `sum`, which sums along columns, into the cluster of node `row`, which computes the same rows. The merged cluster has
 * the kind, domain and axes of the latter. */
void graph_fuse_join_beside(fuser *f, uint32_t sum, uint32_t row);

/* fuse_columns.c: does the cluster sum over the leading axes of its domain, all but some at the end? */
bool graph_fuse_sums_columns(const fuse_cluster *c);
/* Joins sums along columns to the clusters that go through the same rows; these joins are in doubt. */
void graph_fuse_join_columns(fuser *f);

/* fuse_sweep.c: joins contractions of matrices that others contract along either axis; these joins are in doubt. */
void graph_fuse_join_sweeps(fuser *f);

/* fuse_cost.c: undoes the joins in doubt that make kernels slower by the cost model. */
void graph_fuse_question_joins(fuser *f);
/* Marks as refused the values that are faster written row-major and then moved than written in the host's blocks. True: a value was
 * marked, and fusion must be repeated. */
bool graph_fuse_question_blocks(fuser *f);

/* fuse_regions.c: the region of the core nodes `core`, with copies of the cheap nodes that they read, its inputs and its outputs. Its
 * name may be that of another region. */
graph_region graph_fuse_region_of(fuser *f, const fuse_nodes *core);
graph_regions graph_fuse_list_regions(fuser *f);
void graph_fuse_sort(fuse_nodes *nodes); /* ascending */

#endif
