/* Fusion: partitions the nodes of a bound graph into regions.
 *
 * Nodes are *sources* (inputs, constants), *cheap* (recomputing their value costs no more than reading it: broadcasts, iotas and
 * values computed from positions, or from positions and values broadcast along them (masks by lengths), widening casts, slices,
 * dimensions of 1), or *core*. Cheap nodes belong to no region: each region that reads one gets a copy. Every core node starts as
 * a cluster of its own; in topological order the clusters of each node's operands may join the node's. Contractions join into attention, and,
 * where what is between them leaves the cache, into layers; sums along columns into what goes through the same rows. `may_join` decides
 * which kinds of clusters one kernel can compute without computing elements several times; no join closes a cycle. Maps at the end of a cluster
 * move to the cluster that reads them if fewer bytes are then stored between the two (`give_maps`). Joins in doubt are undone if the
 * parts are faster by the target's cost model (fuse_cost.c). */
#include "graph/fuse_internal.h"
#include "graph/ops_common.h"

#include <math.h>

enum { RUN_BYTES_LEAST = 1024 };        /* least size of a contiguous run of a row that is stored in several runs */
enum { ROW_BYTES_DEFAULT = 256 << 10 }; /* limit for a row to stay on chip, if the machine does not define it */

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

/* -1: not a number. */
int64_t graph_fuse_extent(const graph *g, tir_expr dim) {
    int64_t extent;
    return tir_is_const(g->pool, dim, &extent) ? extent : -1;
}

/* Number of elements; -1 when a dimension varies. */
int64_t graph_fuse_elements(const graph *g, const graph_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t extent = graph_fuse_extent(g, shape->dim[i]);
        if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return -1;
    }
    return count;
}

bool graph_fuse_same_dims(const graph_shape *a, const graph_shape *b) {
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

/* Equal dimensions, ignoring those of 1. */
static bool same_but_ones(const graph *g, const graph_shape *a, const graph_shape *b) {
    int i = 0, k = 0;
    for (;;) {
        while (i < a->rank && graph_fuse_extent(g, a->dim[i]) == 1) i++;
        while (k < b->rank && graph_fuse_extent(g, b->dim[k]) == 1) k++;
        if (i == a->rank || k == b->rank) return i == a->rank && k == b->rank;
        if (a->dim[i++] != b->dim[k++]) return false;
    }
}

/* ---- roles ----------------------------------------------------------------------------------------------------- */

static bool widens(const graph *g, const graph_node *node) {
    return lib_dtype_size(graph_shape_of(g, node->first)->dtype) >=
           lib_dtype_size(graph_shape_of(g, node->input[0])->dtype);
}

/* Is the node cheap, provided that its value is not needed in memory? */
static bool could_be_cheap(const fuser *f, const graph_node *node) {
    const graph *g = f->g;
    if (f->given.view[node - g->nodes.data]) return false;
    if (f->mask_cost[node - g->nodes.data]) return true;
    if (graph_map_operation(node->op) == TIR_CAST) return widens(g, node);
    if (node->op->structure == GRAPH_SAME) return f->role[g->values.data[node->input[0]].node] == FUSE_CHEAP;
    if (node->op->structure != GRAPH_REGROUPS)
        return node->op->structure == GRAPH_POSITIONS || graph_is_index_change(node->op);
    uint8_t operand = f->role[g->values.data[node->input[0]].node];
    return operand == FUSE_CHEAP || same_but_ones(g, graph_shape_of(g, node->input[0]), graph_shape_of(g, node->first));
}

/* By node: a value of it is an output, or an operand of one of the host's views or of a node that is no kernel (opaque, control). */
static bool *needed_in_memory(fuser *f, const bool *live) {
    const graph *g = f->g;
    bool *needed = LIB_NEW_ARRAY(f->arena, bool, g->nodes.count);
    for (uint32_t i = 0; i < g->outputs.count; i++) needed[g->values.data[g->outputs.data[i]].node] = true;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        bool view = f->machine && f->given.view[i];
        if (!live[i] || (node->op->class_ != GRAPH_OPAQUE && node->op->class_ != GRAPH_CONTROL && !view)) continue;
        for (int k = 0; k < node->inputs; k++)
            if (node->input[k]) needed[g->values.data[node->input[k]].node] = true;
    }
    return needed;
}

static void assign_roles(fuser *f) {
    const graph *g = f->g;
    const bool *live = graph_live_nodes(f->arena, g);
    f->index_cost = graph_index_costs(f->arena, g);
    f->mask_cost = graph_mask_costs(f->arena, g, f->index_cost);
    if (f->machine) f->given = graph_find_given(f->arena, g, live, f->refused);
    const bool *needed = needed_in_memory(f, live);
    f->role = LIB_NEW_ARRAY(f->arena, uint8_t, g->nodes.count);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (!live[i]) continue;
        if (graph_is_source(node->op))
            f->role[i] = FUSE_SOURCE;
        else
            f->role[i] = f->machine && !needed[i] && could_be_cheap(f, node) ? FUSE_CHEAP : FUSE_CORE;
    }
}

/* ---- edges between core nodes ---------------------------------------------------------------------------------- */

/* Adds an edge like e from each core node that `value` depends on through cheap nodes only. */
static void follow_edge(fuser *f, fuse_edge e, graph_id value) {
    const graph *g = f->g;
    while (f->role[g->values.data[value].node] == FUSE_CHEAP) {
        const graph_node *node = graph_node_of(g, value);
        if (node->inputs == 0) return;
        /* of masks and of indices, which have few nodes, also of an iota that is an output */
        for (int k = 1; k < node->inputs; k++) follow_edge(f, e, node->input[k]);
        graph_id below = node->input[0];
        bool expands = node->op->structure == GRAPH_REPEATS &&
                       !same_but_ones(g, graph_shape_of(g, below), graph_shape_of(g, value));
        e.expands |= expands;
        e.direct &= graph_fuse_same_dims(graph_shape_of(g, below), graph_shape_of(g, value));
        value = below;
    }
    if (f->role[g->values.data[value].node] != FUSE_CORE) return;
    e.value = value;
    e.producer = g->values.data[value].node;
    lib_vec_push(f->arena, &f->edges, e);
}

static void add_edge(fuser *f, uint32_t user, int operand, graph_id value) {
    follow_edge(f, (fuse_edge){.user = user, .operand = operand, .direct = true}, value);
}

bool graph_fuse_is_impure(const fuser *f, uint32_t node) {
    return f->role[node] == FUSE_CORE && f->g->nodes.data[node].impure;
}

/* Adds a dependence of each impure node on the previous one, so that no join contradicts their order. Only searches use these edges. */
static void order_impure(fuser *f) {
    uint32_t previous = UINT32_MAX;
    for (uint32_t i = 0; i < f->g->nodes.count; i++) {
        if (!graph_fuse_is_impure(f, i)) continue;
        fuse_edge e = {.producer = previous, .user = i, .operand = -1};
        if (previous != UINT32_MAX) lib_vec_push(f->arena, &f->edges, e);
        previous = i;
    }
}

static void collect_edges(fuser *f) {
    const graph *g = f->g;
    f->edges_begin = LIB_NEW_ARRAY(f->arena, uint32_t, g->nodes.count + 1);
    f->users = lib_arena_array(f->arena, g->nodes.count, sizeof *f->users);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        f->edges_begin[i] = f->edges.count;
        for (int k = 0; f->role[i] == FUSE_CORE && k < node->inputs; k++)
            if (node->input[k]) add_edge(f, i, k, node->input[k]);
    }
    f->edges_begin[g->nodes.count] = f->edges.count;
    order_impure(f);
    for (uint32_t i = 0; i < f->edges.count; i++) lib_vec_push(f->arena, &f->users[f->edges.data[i].producer], i);
}

/* ---- clusters -------------------------------------------------------------------------------------------------- */

static uint32_t reduced_axes(const graph *g, const graph_node *node) {
    return graph_axes_of(&node->attribute[0], graph_shape_of(g, node->input[0])->rank, true);
}

/* Are the elements of a row contiguous in memory, or in runs of at least RUN_BYTES_LEAST, of which rows share few cache lines? */
static bool runs_in_memory(const graph *g, const graph_shape *domain, uint32_t axes) {
    uint32_t leading = ((1u << domain->rank) - 1) & ~axes;
    if ((leading & (leading + 1)) == 0) return true; /* the kept axes are 0..k-1 */
    int64_t bytes = (int64_t)lib_dtype_size(domain->dtype);
    for (int i = domain->rank - 1; i >= 0 && axes >> i & 1 && bytes < RUN_BYTES_LEAST; i--) {
        int64_t extent = graph_fuse_extent(g, domain->dim[i]);
        if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) break;
    }
    return bytes >= RUN_BYTES_LEAST;
}

/* Are rows short enough to stay in L2 between several passes over them? */
static bool rows_fit(const fuser *f, const graph_shape *domain, uint32_t axes) {
    int64_t bytes = (int64_t)lib_dtype_size(domain->dtype);
    int64_t limit = f->machine->l2 > 0 ? f->machine->l2 / 2 : ROW_BYTES_DEFAULT;
    for (int i = 0; i < domain->rank; i++) {
        if (!(axes >> i & 1)) continue;
        int64_t extent = graph_fuse_extent(f->g, domain->dim[i]);
        if (extent < 0) continue; /* varying: assume that it fits */
        if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > limit) return false;
    }
    return true;
}

/* Is the slice contiguous in its operand: whole inner axes, a part of one axis, single indices of the outer axes? */
static bool is_contiguous_slice(const fuser *f, const graph_node *node) {
    if (node->op->structure != GRAPH_SELECTS) return false;
    const graph_shape *x = graph_shape_of(f->g, node->input[0]), *y = graph_shape_of(f->g, node->first);
    const graph_attribute *step = &node->attribute[2];
    for (int i = 0; i < step->count; i++)
        if (step->list[i] != 1) return false;
    int axis = y->rank - 1;
    while (axis >= 0 && x->dim[axis] == y->dim[axis]) axis--;
    while (--axis >= 0)
        if (graph_fuse_extent(f->g, y->dim[axis]) != 1) return false;
    return true;
}

/* Are the result's bytes a contiguous part of the operand's? */
bool graph_fuse_is_view(const fuser *f, const graph_node *node) {
    if (f->machine && f->given.view[node - f->g->nodes.data]) return true;
    const bool whole = node->op->structure == GRAPH_REGROUPS || node->op->structure == GRAPH_SAME;
    if (!whole && !is_contiguous_slice(f, node)) return false;
    return f->role[f->g->values.data[node->input[0]].node] != FUSE_CHEAP;
}

fuse_cluster graph_fuse_new_cluster(const fuser *f, uint32_t index) {
    const graph_node *node = &f->g->nodes.data[index];
    fuse_cluster c = {.kind = CLUSTER_ALONE, .heavy = index};
    if (node->results > 0) c.domain = *graph_shape_of(f->g, node->first);
    if (!f->machine || graph_fuse_is_view(f, node)) return c;
    switch (node->op->class_) {
    case GRAPH_SOURCE:
    case GRAPH_MAP: c.kind = CLUSTER_MAPS; break;
    case GRAPH_INJECTIVE: c.kind = CLUSTER_MOVES; break;
    case GRAPH_CONTRACT:
    case GRAPH_SCATTER: c.kind = CLUSTER_HEAVY; break;
    case GRAPH_REDUCE:
        c.kind = CLUSTER_HEAVY;
        if (node->op->structure != GRAPH_FOLDS) break;
        c.axes = reduced_axes(f->g, node);
        c.domain = *graph_shape_of(f->g, node->input[0]);
        c.kind = CLUSTER_ROWS;
        break;
    case GRAPH_OPAQUE:
    case GRAPH_CONTROL:
    case GRAPH_COMPOSITE: break;
    }
    return c;
}

/* ---- cycles ---------------------------------------------------------------------------------------------------- */

static uint32_t last_node(const fuser *f, uint32_t c) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < f->clusters.data[c].nodes.count; i++)
        if (f->clusters.data[c].nodes.data[i] > last) last = f->clusters.data[c].nodes.data[i];
    return last;
}

static uint32_t first_node(const fuser *f, uint32_t cluster) {
    const fuse_cluster *c = &f->clusters.data[cluster];
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < c->nodes.count; i++)
        if (c->nodes.data[i] < first) first = c->nodes.data[i];
    return first;
}

/* Is there a path from cluster a to cluster b, or to b2, through another cluster? Joining them would then close a cycle. Users
 * have higher indices than producers, so clusters whose nodes all come after the last one of b and b2 need not be searched. */
static bool path_around(fuser *f, uint32_t a, uint32_t b, uint32_t b2) {
    uint32_t last = last_node(f, b), last2 = last_node(f, b2);
    if (last2 > last) last = last2;
    f->search++;
    f->clusters.data[a].stamp = f->search;
    f->stack.count = 0;
    lib_vec_push(f->arena, &f->stack, a);
    while (f->stack.count) {
        uint32_t at = f->stack.data[--f->stack.count];
        const fuse_cluster *c = &f->clusters.data[at];
        for (uint32_t i = 0; i < c->nodes.count; i++) {
            uint32_t node = c->nodes.data[i];
            for (uint32_t k = 0; k < f->users[node].count; k++) {
                uint32_t user = f->edges.data[f->users[node].data[k]].user;
                uint32_t next = f->cluster_of[user];
                bool arrived = next == b || next == b2;
                if (arrived && at != a) return true;
                if (arrived || f->clusters.data[next].stamp == f->search) continue;
                if (user > last && first_node(f, next) > last) continue;
                f->clusters.data[next].stamp = f->search;
                lib_vec_push(f->arena, &f->stack, next);
            }
        }
    }
    return false;
}

/* ---- what may join --------------------------------------------------------------------------------------------- */

static bool is_output(const fuser *f, const graph_node *node) {
    for (int k = 0; k < node->results; k++)
        if (f->output[node->first + (graph_id)k]) return true;
    return false;
}

/* Is the node's value read by clusters other than p and c, or an output? */
static bool node_read_elsewhere(const fuser *f, uint32_t index, uint32_t p, uint32_t c) {
    for (uint32_t k = 0; k < f->users[index].count; k++) {
        uint32_t reader = f->edges.data[f->users[index].data[k]].user;
        if (f->cluster_of[reader] != p && f->cluster_of[reader] != c) return true;
    }
    return is_output(f, &f->g->nodes.data[index]);
}

/* Is a value of cluster p, unless of shape `domain` (may be NULL), read by clusters other than p and c, or an output? */
static bool is_read_elsewhere(const fuser *f, uint32_t p, uint32_t c, const graph_shape *domain) {
    const fuse_cluster *producer = &f->clusters.data[p];
    for (uint32_t i = 0; i < producer->nodes.count; i++) {
        const graph_node *node = &f->g->nodes.data[producer->nodes.data[i]];
        if (domain && graph_fuse_same_dims(graph_shape_of(f->g, node->first), domain)) continue;
        if (node_read_elsewhere(f, producer->nodes.data[i], p, c)) return true;
    }
    return false;
}

static graph_shape kept_shape(const fuse_cluster *rows) {
    graph_shape kept = {.rank = 0};
    for (int i = 0; i < rows->domain.rank; i++)
        if (!(rows->axes >> i & 1)) kept.dim[kept.rank++] = rows->domain.dim[i];
    return kept;
}

/* Has the shape the dimensions of the row chain's domain, or one element for each of its rows? */
static bool fits_rows(const fuser *f, const fuse_cluster *rows, const graph_shape *shape) {
    const graph_shape kept = kept_shape(rows);
    return graph_fuse_same_dims(shape, &rows->domain) || same_but_ones(f->g, shape, &kept);
}

/* Bit set of the axes behind the reduced ones, if together they fill less than a vector: so many rows are interleaved in memory, and
 * computed together. 0: there are none, or too many elements. */
static uint32_t interleaved_axes(const fuser *f, const graph_shape *domain, uint32_t axes) {
    int64_t bytes = (int64_t)lib_dtype_size(domain->dtype);
    uint32_t behind = 0;
    for (int i = domain->rank - 1; i >= 0 && !(axes >> i & 1); i--) {
        int64_t extent = graph_fuse_extent(f->g, domain->dim[i]);
        if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return 0;
        behind |= 1u << i;
    }
    return bytes < f->machine->vector_bytes ? behind : 0;
}

static bool rows_stay_on_chip(const fuser *f, const fuse_cluster *rows) {
    const uint32_t axes = rows->axes | interleaved_axes(f, &rows->domain, rows->axes);
    return runs_in_memory(f->g, &rows->domain, axes) && rows_fit(f, &rows->domain, axes);
}

/* Does the node read a result of the row chain p and continue the chain? */
static bool continues_rows(const fuser *f, const fuse_cluster *p, const graph_node *node) {
    if (!rows_stay_on_chip(f, p)) return false;
    if (node->op->class_ == GRAPH_MAP) return fits_rows(f, p, graph_shape_of(f->g, node->first));
    return node->op->structure == GRAPH_FOLDS &&
           graph_fuse_same_dims(graph_shape_of(f->g, node->input[0]), &p->domain) &&
           reduced_axes(f->g, node) == p->axes;
}

/* Is the node a map of the shape of the producer's heavy node, without a broadcast between them, so that it uses each element of the
 * producer's value once? No map follows a scatter. */
static bool is_epilogue(const fuser *f, const fuse_cluster *p, const graph_node *node, const fuse_edge *e) {
    const graph_node *heavy = &f->g->nodes.data[p->heavy];
    if (node->op->class_ != GRAPH_MAP || !e->direct || heavy->op->class_ == GRAPH_SCATTER) return false;
    return heavy->results == 1 &&
           graph_fuse_same_dims(graph_shape_of(f->g, node->first), graph_shape_of(f->g, heavy->first));
}

/* May the kernel of a concat compute its parts? At most PARTS_MAX parts, each of at least PART_LEAST elements from the axis on: loops
 * are split at the borders of parts, so that no point computes two parts. False if no longer axis precedes: such parts are written
 * in place anyway. */
static bool computes_parts(const fuser *f, const graph_node *node) {
    enum { PARTS_MAX = 4, PART_LEAST = 16 };
    const graph_shape *result = graph_shape_of(f->g, node->first);
    const int axis = graph_axis_of(node->attribute[0].integer, result->rank);
    int64_t before = 1, behind = 1;
    for (int d = 0; d < result->rank; d++) {
        int64_t extent = graph_fuse_extent(f->g, result->dim[d]);
        if (extent < 0) return false;
        if (d < axis && extent > 1) before = extent;
        if (d > axis && __builtin_mul_overflow(behind, extent, &behind)) return false;
    }
    for (int k = 0; k < node->inputs; k++)
        if (graph_fuse_extent(f->g, graph_shape_of(f->g, node->input[k])->dim[axis]) * behind < PART_LEAST)
            return false;
    return before > 1 && node->inputs <= PARTS_MAX;
}

/* Does the producer read elements of less than a byte? They cannot be loaded as vectors, so a consumer that reads each element several
 * times should not unpack them itself. */
static bool takes_apart(const fuser *f, uint32_t producer) {
    const graph_node *node = &f->g->nodes.data[producer];
    return node->inputs > 0 && node->input[0] && lib_dtype_is_packed(graph_shape_of(f->g, node->input[0])->dtype);
}

/* Would a gather on a transposed value, if it read through the transpose, touch a cache line for each of so many elements that
 * transposing first is cheaper, which takes two passes over the value? */
static bool takes_scattered(const fuser *f, const graph_node *node, const fuse_edge *e) {
    enum { LINE = 64 };
    const graph_node *producer = &f->g->nodes.data[e->producer];
    if (node->op->structure != GRAPH_LOOKS_UP || e->operand != 0 || producer->op->structure != GRAPH_PERMUTES)
        return false;
    const graph_shape *value = graph_shape_of(f->g, e->value);
    int last = value->rank - 1;
    while (last > 0 && graph_fuse_extent(f->g, value->dim[last]) == 1) last--;
    int64_t all = graph_fuse_elements(f->g, value),
            taken = graph_fuse_elements(f->g, graph_shape_of(f->g, node->first));
    if (last < 0 || producer->attribute[0].list[last] == last || all < 0 || taken < 0) return false;
    return taken >= 2 * all / (LINE / (int64_t)lib_dtype_size(value->dtype));
}

static int64_t concat_operands(const fuser *f, const fuse_cluster *c) {
    int64_t count = 0;
    for (uint32_t i = 0; i < c->nodes.count; i++) {
        const graph_node *node = &f->g->nodes.data[c->nodes.data[i]];
        if (node->op->structure == GRAPH_JOINS) count += node->inputs;
    }
    return count;
}

static double bytes_of(const graph *g, graph_id value) {
    const graph_shape *shape = graph_shape_of(g, value);
    int64_t count = graph_fuse_elements(g, shape);
    return count < 0 ? INFINITY : (double)count * (double)lib_dtype_size(shape->dtype);
}

/* Do the maps of cluster p compute the value from at most half as many bytes (narrow weights)? */
static bool widens_much(fuser *f, uint32_t p, graph_id value) {
    const graph_region region = graph_fuse_region_of(f, &f->clusters.data[p].nodes);
    double bytes = 0;
    for (uint32_t i = 0; i < region.input_count; i++) bytes += bytes_of(f->g, region.inputs[i]);
    return 2 * bytes <= bytes_of(f->g, value);
}

/* May the producer, of maps or moves, be computed at the loads of its value by `node` of a cluster of moves? */
static bool is_prologue_of_moves(fuser *f, const fuse_cluster *producer, const fuse_cluster *consumer,
                                 const graph_node *node, const fuse_edge *e) {
    const bool moves = producer->kind == CLUSTER_MOVES;
    if (node->op->structure == GRAPH_JOINS) {
        const graph_node *part = &f->g->nodes.data[e->producer];
        if (part->op->structure == GRAPH_JOINS &&
            concat_operands(f, producer) + concat_operands(f, consumer) > GRAPH_CONCAT_WIDEST)
            return false;
        return moves || computes_parts(f, node);
    }
    return moves ? !takes_scattered(f, node, e) : node->op->structure != GRAPH_LOOKS_UP;
}

/* May cluster p, of maps or moves, be computed at the loads of its value by `node` of cluster c? */
static bool is_prologue(fuser *f, uint32_t p, uint32_t c, const graph_node *node, const fuse_edge *e) {
    const fuse_cluster *producer = &f->clusters.data[p], *consumer = &f->clusters.data[c];
    const graph_shape *value = graph_shape_of(f->g, e->value);
    bool moves = producer->kind == CLUSTER_MOVES, single = graph_fuse_elements(f->g, value) == 1;
    bool in_step =
        e->direct && graph_fuse_same_dims(value, &consumer->domain); /* one element of value per point of the domain */
    /* other readers would need another kernel */
    if (is_read_elsewhere(f, p, c, in_step ? &consumer->domain : NULL)) return false;
    if (e->expands && !moves && !single) return false; /* would be recomputed for each repetition */
    switch (consumer->kind) {
    case CLUSTER_MOVES: return is_prologue_of_moves(f, producer, consumer, node, e);
    case CLUSTER_MAPS:
    case CLUSTER_ROWS: return true;
    case CLUSTER_HEAVY:
    case CLUSTER_ATTENTION:
        if (node->op->class_ == GRAPH_MAP) return true;                         /* an operand of the epilogue */
        if (node->op->class_ == GRAPH_SCATTER && e->operand == 0) return false; /* better updated in place */
        if (!moves) return node->op->class_ == GRAPH_CONTRACT && widens_much(f, p, e->value);
        return f->g->nodes.data[e->producer].op->structure != GRAPH_JOINS && !takes_apart(f, e->producer);
    case CLUSTER_ALONE: return false;
    }
    return false;
}

/* Does the attention's result depend on node `index`, a statistic of its rows, directly or through at most `depth` other statistics? One that
 * only others read (the logarithm of a sum, say) would keep the rows from passing through the kernel block by block. */
static bool is_of_result(const fuser *f, const fuse_cluster *attention, uint32_t index, int depth) {
    for (uint32_t k = 0; k < f->users[index].count; k++) {
        const uint32_t reader = f->edges.data[f->users[index].data[k]].user;
        const graph_shape *shape = graph_shape_of(f->g, f->g->nodes.data[reader].first);
        if (graph_fuse_same_dims(shape, &attention->domain)) return true;
        if (depth && same_but_ones(f->g, shape, &attention->rows) && is_of_result(f, attention, reader, depth - 1))
            return true;
    }
    return false;
}

/* May a cluster of rows join the consumer, whose `node` reads a value of it by edge e? */
static bool may_join_rows(fuser *f, const fuse_cluster *producer, const fuse_cluster *consumer, const graph_node *node,
                          const fuse_edge *e) {
    const bool alone = consumer->nodes.count == 1;
    if (alone && continues_rows(f, producer, node)) return true;
    if (consumer->kind == CLUSTER_ROWS && consumer->axes == producer->axes && rows_stay_on_chip(f, producer))
        return graph_fuse_same_dims(&consumer->domain, &producer->domain);
    return alone && node->op->class_ == GRAPH_MAP && e->direct &&
           fits_rows(f, producer, graph_shape_of(f->g, node->first)) &&
           graph_fuse_same_dims(graph_shape_of(f->g, e->value), graph_shape_of(f->g, node->first));
}

/* May cluster p join cluster c, whose `node` reads a value of p by edge e? */
static bool may_join(fuser *f, uint32_t p, uint32_t c, const graph_node *node, const fuse_edge *e) {
    enum { STATISTICS = 4 };
    const fuse_cluster *producer = &f->clusters.data[p], *consumer = &f->clusters.data[c];
    if (producer->nodes.count + consumer->nodes.count > CLUSTER_NODES_MAX) return false;
    bool alone = consumer->nodes.count == 1; /* the cluster has only the node itself */
    switch (producer->kind) {
    case CLUSTER_MOVES:
    case CLUSTER_MAPS: return is_prologue(f, p, c, node, e);
    case CLUSTER_ROWS: return may_join_rows(f, producer, consumer, node, e);
    case CLUSTER_HEAVY: return alone && is_epilogue(f, producer, node, e);
    case CLUSTER_ATTENTION: /* an epilogue, or further row statistics: one element per row */
        if (!alone || node->op->class_ != GRAPH_MAP || !e->direct) return false;
        if (same_but_ones(f->g, graph_shape_of(f->g, node->first), &producer->rows))
            return is_of_result(f, producer, e->user, STATISTICS);
        return graph_fuse_same_dims(graph_shape_of(f->g, node->first), &producer->domain) &&
               !node_read_elsewhere(f, e->producer, p, c); /* the tiles produce one value */
    case CLUSTER_ALONE: return false;
    }
    return false;
}

/* ---- joining --------------------------------------------------------------------------------------------------- */

static void take_nodes(fuser *f, uint32_t from, uint32_t to) {
    fuse_nodes *nodes = &f->clusters.data[from].nodes;
    for (uint32_t i = 0; i < nodes->count; i++) {
        f->cluster_of[nodes->data[i]] = to;
        lib_vec_push(f->arena, &f->clusters.data[to].nodes, nodes->data[i]);
    }
    nodes->count = 0;
}

void graph_fuse_join(fuser *f, uint32_t producer, uint32_t user) {
    uint32_t p = f->cluster_of[producer], c = f->cluster_of[user];
    fuse_cluster *from = &f->clusters.data[p], *to = &f->clusters.data[c];
    const fuse_join made = {producer, user, from->kind, to->kind, 0, 0};
    lib_vec_push(f->arena, &f->joins, made);
    bool heavier = from->kind > to->kind;
    if (heavier) to->kind = from->kind;
    if (heavier && from->kind >= CLUSTER_ROWS) { /* for maps before a move, the last value determines the domain */
        to->domain = from->domain;
        to->rows = from->rows;
        to->axes = from->axes;
        to->heavy = from->heavy;
    }
    take_nodes(f, p, c);
}

void graph_fuse_join_beside(fuser *f, uint32_t sum, uint32_t row) {
    const uint32_t s = f->cluster_of[sum], c = f->cluster_of[row];
    const fuse_join made = {sum, row, f->clusters.data[s].kind, f->clusters.data[c].kind, 0, 1};
    lib_vec_push(f->arena, &f->joins, made);
    take_nodes(f, s, c);
}

/* Does the node contract exactly these axes (a bit set) of its operand number `operand`? */
static bool contracts_over(const graph *g, const graph_node *node, int operand, uint32_t axes) {
    return graph_axes_of(&node->attribute[2 + operand], graph_shape_of(g, node->input[operand])->rank, false) == axes;
}

/* An edge by which the row chain reads a contraction's result of the shape of its domain; NULL: none. */
static const fuse_edge *scores_of(const fuser *f, uint32_t rows) {
    const fuse_cluster *chain = &f->clusters.data[rows];
    for (uint32_t n = 0; n < chain->nodes.count; n++) {
        uint32_t member = chain->nodes.data[n];
        for (uint32_t k = f->edges_begin[member]; k < f->edges_begin[member + 1]; k++) {
            uint32_t p = f->cluster_of[f->edges.data[k].producer];
            const fuse_cluster *from = &f->clusters.data[p];
            if (p != rows && from->kind == CLUSTER_HEAVY &&
                f->g->nodes.data[from->heavy].op->structure == GRAPH_CONTRACTS &&
                graph_fuse_same_dims(&from->domain, &chain->domain))
                return &f->edges.data[k];
        }
    }
    return NULL;
}

/* Is a value over the domain of row chain p (not only a row statistic) read by clusters other than p and c? */
static bool domain_read_elsewhere(const fuser *f, uint32_t p, uint32_t c) {
    const fuse_cluster *rows = &f->clusters.data[p];
    for (uint32_t i = 0; i < rows->nodes.count; i++) {
        const graph_node *node = &f->g->nodes.data[rows->nodes.data[i]];
        if (graph_fuse_same_dims(graph_shape_of(f->g, node->first), &rows->domain) &&
            node_read_elsewhere(f, rows->nodes.data[i], p, c))
            return true;
    }
    return false;
}

/* Does the contraction give several results for each row of the chain? A single one is a row statistic, not a matrix product. */
static bool widens_rows(const fuser *f, const graph_node *node, const fuse_cluster *chain) {
    graph_shape kept = kept_shape(chain);
    int64_t results = graph_fuse_elements(f->g, graph_shape_of(f->g, node->first)),
            rows = graph_fuse_elements(f->g, &kept);
    return results < 0 || rows < 0 || results > rows;
}

/* If node `index` is a contraction of a row chain that reads another contraction: joins the three, so that the score matrix is never
 * stored. Row statistics (a sum to divide by) may have other readers. */
static void try_attention(fuser *f, uint32_t index) {
    const graph_node *node = &f->g->nodes.data[index];
    if (node->op->structure != GRAPH_CONTRACTS) return;
    for (uint32_t i = f->edges_begin[index]; i < f->edges_begin[index + 1]; i++) {
        const fuse_edge *e = &f->edges.data[i];
        uint32_t c = f->cluster_of[index], rows = f->cluster_of[e->producer];
        const fuse_cluster *chain = &f->clusters.data[rows];
        if (rows == c || chain->kind != CLUSTER_ROWS || !rows_stay_on_chip(f, chain)) continue;
        if (!e->direct || !graph_fuse_same_dims(graph_shape_of(f->g, e->value), &chain->domain)) continue;
        if (!contracts_over(f->g, node, e->operand, chain->axes) || domain_read_elsewhere(f, rows, c)) continue;
        if (!widens_rows(f, node, chain)) continue;
        const fuse_edge *first = scores_of(f, rows);
        uint32_t scores = first ? f->cluster_of[first->producer] : UINT32_MAX;
        if (!first || is_read_elsewhere(f, scores, rows, NULL)) continue;
        if (path_around(f, rows, c, c) || path_around(f, scores, rows, c)) continue;
        graph_shape domain = f->clusters.data[c].domain, kept = kept_shape(chain);
        graph_fuse_join(f, e->producer, index);
        graph_fuse_join(f, first->producer, first->user);
        f->clusters.data[c].kind = CLUSTER_ATTENTION;
        f->clusters.data[c].domain = domain;
        f->clusters.data[c].rows = kept;
        f->clusters.data[c].heavy = index;
        return;
    }
}

/* Is the value, written by one kernel and read by the next, much of the last-level cache? */
static bool leaves_cache(const fuser *f, graph_id value) {
    enum { L3_DEFAULT = 32 << 20 };
    const double part = 0.25;
    const int64_t l3 = f->machine->l3 > 0 ? f->machine->l3 : L3_DEFAULT;
    return bytes_of(f->g, value) >= part * (double)l3;
}

/* Is the node a contraction of operands of known sizes? */
static bool is_known_contraction(const fuser *f, uint32_t index) {
    const graph_node *node = &f->g->nodes.data[index];
    bool known = node->op->structure == GRAPH_CONTRACTS;
    for (int i = 0; i < node->inputs && known; i++) known = isfinite(bytes_of(f->g, node->input[i]));
    return known;
}

/* If node `index` is a contraction that sums over the rows of another one's result, a large value that nothing else reads (layers of a
 * perceptron on many rows): joins the two, so that a block of rows passes through all layers. Such a join is in doubt. */
static void try_layers(fuser *f, uint32_t index) {
    const graph_node *node = &f->g->nodes.data[index];
    if (!f->machine || !f->costs || !is_known_contraction(f, index)) return;
    for (uint32_t i = f->edges_begin[index]; i < f->edges_begin[index + 1]; i++) {
        const fuse_edge *e = &f->edges.data[i];
        const uint32_t c = f->cluster_of[index], p = f->cluster_of[e->producer];
        const fuse_cluster *from = &f->clusters.data[p];
        if (p == c || from->kind != CLUSTER_HEAVY || !e->direct || !leaves_cache(f, e->value)) continue;
        if (!is_known_contraction(f, from->heavy)) continue;
        if (!graph_fuse_same_dims(graph_shape_of(f->g, e->value), &from->domain) || from->domain.rank < 2) continue;
        if (!contracts_over(f->g, node, e->operand, 1u << (from->domain.rank - 1))) continue;
        if (from->nodes.count + f->clusters.data[c].nodes.count > CLUSTER_NODES_MAX) continue;
        if (is_read_elsewhere(f, p, c, NULL) || path_around(f, p, c, c)) continue;
        graph_fuse_join(f, e->producer, index);
        f->joins.data[f->joins.count - 1].layers = 1;
        return;
    }
}

/* Joins clusters that the node reads to the node's: row chains, heavy ones and attention (pass 0) before maps and moves, which adapt
 * to their reader. Later operands first, since an earlier one may also be read through them. */
static void join_producers(fuser *f, uint32_t index) {
    const graph_node *node = &f->g->nodes.data[index];
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = f->edges_begin[index + 1]; i-- > f->edges_begin[index];) {
            const fuse_edge *e = &f->edges.data[i];
            uint32_t p = f->cluster_of[e->producer], c = f->cluster_of[index];
            if (p == c || (f->clusters.data[p].kind >= CLUSTER_ROWS) != (pass == 0)) continue;
            if (may_join(f, p, c, node, e) && !path_around(f, p, c, c)) graph_fuse_join(f, e->producer, index);
        }
}

/* Sets late[i] for each node i that sums along columns, each map whose value only such nodes read, and each node that depends on one of these. */
static void mark_late(const fuser *f, bool *late) {
    for (uint32_t i = f->g->nodes.count; i-- > 0;) {
        if (f->role[i] != FUSE_CORE) continue;
        const fuse_cluster *c = &f->clusters.data[f->cluster_of[i]];
        bool only_late = c->kind == CLUSTER_MAPS && f->users[i].count && !is_output(f, &f->g->nodes.data[i]);
        for (uint32_t k = 0; only_late && k < f->users[i].count; k++)
            only_late = late[f->edges.data[f->users[i].data[k]].user];
        late[i] = only_late || graph_fuse_sums_columns(c);
    }
    /* edges ascend by users, which follow their producers */
    for (uint32_t i = 0; i < f->edges_begin[f->g->nodes.count]; i++)
        if (late[f->edges.data[i].producer]) late[f->edges.data[i].user] = true;
}

/* Goes through the nodes in a topological order and joins to each node's cluster the clusters that it reads. Late nodes (mark_late) come after all
 * others: where the host lists a norm's derivative by the scale, a sum along columns, before the derivative by the input, x_hat, which both
 * read, would otherwise be joined to the sum, and the rows of the input's derivative could not compute it. */
static void form_clusters(fuser *f) {
    bool *late = LIB_NEW_ARRAY(f->arena, bool, f->g->nodes.count);
    f->cluster_of = LIB_NEW_ARRAY(f->arena, uint32_t, f->g->nodes.count);
    for (uint32_t i = 0; i < f->g->nodes.count; i++) {
        f->cluster_of[i] = UINT32_MAX;
        if (f->role[i] != FUSE_CORE) continue;
        fuse_cluster c = graph_fuse_new_cluster(f, i);
        lib_vec_push(f->arena, &c.nodes, i);
        f->cluster_of[i] = f->clusters.count;
        lib_vec_push(f->arena, &f->clusters, c);
    }
    if (f->costs) mark_late(f, late);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < f->g->nodes.count; i++) {
            if (f->role[i] != FUSE_CORE || late[i] != (pass == 1)) continue;
            if (f->clusters.data[f->cluster_of[i]].kind == CLUSTER_ALONE) continue;
            try_attention(f, i);
            try_layers(f, i);
            join_producers(f, i);
        }
}

/* Does the gather select the same elements of every row (of the last axis), and at least 1 / PART of them, so that computing whole
 * rows costs less than storing them? ROWS rows must fit L1. */
static bool chooses_from_rows(const fuser *f, const graph_node *node, const fuse_edge *e) {
    enum { ROWS = 4, PART = 4 };
    if (node->op->structure != GRAPH_LOOKS_UP || e->operand != 0 || !e->direct) return false;
    const graph_shape *value = graph_shape_of(f->g, e->value), *result = graph_shape_of(f->g, node->first);
    int last = value->rank - 1;
    if (last < 1 || result->rank != value->rank || graph_axis_of(node->attribute[0].integer, value->rank) != last)
        return false;
    int64_t row = graph_fuse_extent(f->g, value->dim[last]), chosen = graph_fuse_extent(f->g, result->dim[last]);
    int64_t l1 = f->machine->l1 > 0 ? f->machine->l1 : 32 << 10;
    return row > 0 && chosen >= row / PART && row <= l1 / ROWS / (int64_t)lib_dtype_size(value->dtype);
}

/* Does cluster c read cluster p only by gathers that select elements of rows? */
static bool reads_rows(const fuser *f, uint32_t p, uint32_t c) {
    const fuse_cluster *producer = &f->clusters.data[p];
    for (uint32_t n = 0; n < producer->nodes.count; n++)
        for (uint32_t k = 0; k < f->users[producer->nodes.data[n]].count; k++) {
            const fuse_edge *e = &f->edges.data[f->users[producer->nodes.data[n]].data[k]];
            if (f->cluster_of[e->user] == c && !chooses_from_rows(f, &f->g->nodes.data[e->user], e)) return false;
        }
    return true;
}

/* Joins maps to the cluster of the gathers that select elements of their rows, if only that cluster reads them: rows are computed where
 * they are read. */
static void join_rows(fuser *f) {
    for (uint32_t i = 0; i < f->edges.count; i++) {
        const fuse_edge *e = &f->edges.data[i];
        if (!chooses_from_rows(f, &f->g->nodes.data[e->user], e)) continue;
        uint32_t p = f->cluster_of[e->producer], c = f->cluster_of[e->user];
        const fuse_cluster *producer = &f->clusters.data[p], *consumer = &f->clusters.data[c];
        if (p == c || producer->kind != CLUSTER_MAPS || consumer->kind != CLUSTER_MAPS) continue;
        if (producer->nodes.count + consumer->nodes.count > CLUSTER_NODES_MAX) continue;
        if (!is_read_elsewhere(f, p, c, NULL) && reads_rows(f, p, c) && !path_around(f, p, c, c))
            graph_fuse_join(f, e->producer, e->user);
    }
}

/* ---- maps at borders ------------------------------------------------------------------------------------------------ */

/* Bytes of the values that cluster p would store only for cluster c, if its nodes with moves[n] were moved to c. */
static double bytes_given(const fuser *f, uint32_t p, uint32_t c, const bool *moves) {
    const fuse_cluster *producer = &f->clusters.data[p];
    double bytes = 0;
    for (uint32_t n = 0; n < producer->nodes.count; n++) {
        uint32_t index = producer->nodes.data[n];
        const graph_node *node = &f->g->nodes.data[index];
        bool given = false, kept = is_output(f, node);
        if (moves[n]) continue;
        for (uint32_t k = 0; k < f->users[index].count; k++) {
            uint32_t user = f->edges.data[f->users[index].data[k]].user, at = 0;
            while (at < producer->nodes.count && producer->nodes.data[at] != user) at++;
            bool goes = f->cluster_of[user] == c || (at < producer->nodes.count && moves[at]);
            given = given || goes;
            kept = kept || (!goes && f->cluster_of[user] != p);
        }
        if (given && !kept) bytes += bytes_of(f->g, node->first);
    }
    return bytes;
}

/* May node `index` of cluster p move to c: is it a map of c's domain that only c and moved nodes read, without a broadcast? */
static bool may_move(const fuser *f, uint32_t p, uint32_t c, uint32_t index, const bool *moves) {
    const fuse_cluster *producer = &f->clusters.data[p];
    const graph_node *node = &f->g->nodes.data[index];
    if (node->op->class_ != GRAPH_MAP || is_output(f, node)) return false;
    if (!graph_fuse_same_dims(graph_shape_of(f->g, node->first), &f->clusters.data[c].domain)) return false;
    for (uint32_t k = 0; k < f->users[index].count; k++) {
        const fuse_edge *e = &f->edges.data[f->users[index].data[k]];
        uint32_t at = 0;
        while (at < producer->nodes.count && producer->nodes.data[at] != e->user) at++;
        bool goes = f->cluster_of[e->user] == c || (at < producer->nodes.count && moves[at]);
        if (!e->direct || !goes) return false;
    }
    return f->users[index].count > 0;
}

static void move_nodes(fuser *f, uint32_t p, uint32_t c, const bool *moves) {
    fuse_cluster *from = &f->clusters.data[p], *to = &f->clusters.data[c];
    uint32_t kept = 0;
    for (uint32_t n = 0; n < from->nodes.count; n++) {
        uint32_t index = from->nodes.data[n];
        if (!moves[n]) {
            from->nodes.data[kept++] = index;
            continue;
        }
        const fuse_join made = {index, f->edges.data[f->users[index].data[0]].user, CLUSTER_MAPS, to->kind, 0, 0};
        f->cluster_of[index] = c;
        lib_vec_push(f->arena, &f->joins, made);
        lib_vec_push(f->arena, &to->nodes, index);
    }
    from->nodes.count = kept;
}

/* Moves maps at the end of cluster p to c, which alone reads them, if fewer bytes are then stored for c; takes the set of maps for
 * which these are fewest. For example, x + h is stored for a norm, but not its square as well. */
static void give_to(fuser *f, uint32_t p, uint32_t c) {
    const fuse_cluster *producer = &f->clusters.data[p], *consumer = &f->clusters.data[c];
    uint32_t count = producer->nodes.count, going = 0;
    bool *moves = LIB_NEW_ARRAY(f->arena, bool, count), *best = LIB_NEW_ARRAY(f->arena, bool, count);
    double least = bytes_given(f, p, c, moves);
    bool found = false;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t n = count; n-- > 0 && !more;) {
            uint32_t index = producer->nodes.data[n];
            if (moves[n] || consumer->nodes.count + going >= CLUSTER_NODES_MAX) continue;
            if (!may_move(f, p, c, index, moves)) continue;
            moves[n] = more = true;
            going++;
        }
        double bytes = bytes_given(f, p, c, moves);
        if (!more || bytes >= least) continue;
        least = bytes;
        found = true;
        memcpy(best, moves, count * sizeof *best);
    }
    if (found) move_nodes(f, p, c, best);
}

static void give_maps(fuser *f) {
    for (uint32_t i = 0; i < f->edges.count; i++) {
        const fuse_edge *e = &f->edges.data[i];
        if (f->role[e->user] != FUSE_CORE || e->operand < 0) continue;
        uint32_t p = f->cluster_of[e->producer], c = f->cluster_of[e->user];
        const fuse_cluster *from = &f->clusters.data[p], *to = &f->clusters.data[c];
        if (p == c || from->kind < CLUSTER_ROWS || from->kind == CLUSTER_ALONE) continue;
        if (to->kind != CLUSTER_ROWS && to->kind != CLUSTER_MAPS) continue;
        if (f->g->nodes.data[e->producer].op->class_ == GRAPH_MAP) give_to(f, p, c);
    }
}

static void start(fuser *f) {
    const graph *g = f->g;
    f->inside = LIB_NEW_ARRAY(f->arena, uint32_t, g->nodes.count);
    f->read = LIB_NEW_ARRAY(f->arena, uint32_t, g->values.count);
    f->output = LIB_NEW_ARRAY(f->arena, bool, g->values.count);
    for (uint32_t i = 0; i < g->outputs.count; i++) f->output[g->outputs.data[i]] = true;
}

graph_regions graph_fuse(lib_arena *arena, const graph *bound, const tir_machine *machine,
                         const graph_fuse_costs *costs) {
    bool *refused = LIB_NEW_ARRAY(arena, bool, bound->values.count);
    fuser f;
    do {
        f = (fuser){.arena = arena, .g = bound, .machine = machine, .costs = costs, .refused = refused};
        start(&f);
        assign_roles(&f);
        collect_edges(&f);
        form_clusters(&f);
        if (!machine) break;
        join_rows(&f);
        if (costs) graph_fuse_join_sweeps(&f);
        give_maps(&f);
        if (costs) graph_fuse_join_columns(&f);
    } while (costs && graph_fuse_question_blocks(&f));
    if (machine && costs) {
        graph_fuse_question_joins(&f);
        give_maps(&f);
    }
    return graph_fuse_list_regions(&f);
}
