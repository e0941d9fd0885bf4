/* Matrices that contractions make and other contractions read along either axis (the derivatives of attention: scores, from which those of
 * queries, keys and values are contracted) join in one cluster: a target may compute all of them block by block, so that no such matrix is
 * stored. Whether that is faster than a kernel for each, its cost model decides (fuse_cost.c). */
#include "graph/fuse_internal.h"
#include "graph/ops_common.h"

typedef struct sweep_set {
    fuser *f;
    /* clusters that make matrices; clusters that contract them */
    fuse_nodes makers, readers;
} sweep_set;

static bool has(const fuse_nodes *set, uint32_t cluster) {
    for (uint32_t i = 0; i < set->count; i++)
        if (set->data[i] == cluster) return true;
    return false;
}

static bool in_set(const sweep_set *s, uint32_t cluster) {
    return has(&s->makers, cluster) || has(&s->readers, cluster);
}

static bool is_contraction(const fuser *f, uint32_t cluster) {
    const fuse_cluster *c = &f->clusters.data[cluster];
    return c->kind == CLUSTER_HEAVY && f->g->nodes.data[c->heavy].op->structure == GRAPH_CONTRACTS;
}

/* Does the edge carry the whole matrix that its producer's cluster makes? */
static bool carries_matrix(const fuser *f, const fuse_edge *e, const graph_shape *matrix) {
    return e->operand >= 0 && e->direct && graph_fuse_same_dims(graph_shape_of(f->g, e->value), matrix);
}

/* The one axis of the matrix that the contraction `e->user`, of a batch of matrices (its tasks), sums over; -1: it sums over others. */
static int contracted_axis(const fuser *f, const fuse_edge *e) {
    const graph_node *node = &f->g->nodes.data[e->user];
    if (node->op->structure != GRAPH_CONTRACTS || e->operand > 1 || !node->attribute[e->operand].count) return -1;
    const int rank = graph_shape_of(f->g, node->input[e->operand])->rank;
    const uint32_t axes = graph_axes_of(&node->attribute[2 + e->operand], rank, false);
    return axes && !(axes & (axes - 1)) ? __builtin_ctz(axes) : -1;
}

/* Adds the contractions whose matrices of this shape the node reads. */
static void add_makers(sweep_set *s, uint32_t node, const graph_shape *matrix) {
    fuser *f = s->f;
    for (uint32_t k = f->edges_begin[node]; k < f->edges_begin[node + 1]; k++) {
        const fuse_edge *e = &f->edges.data[k];
        const uint32_t from = f->cluster_of[e->producer];
        if (!in_set(s, from) && is_contraction(f, from) && carries_matrix(f, e, matrix) &&
            graph_fuse_same_dims(&f->clusters.data[from].domain, matrix))
            lib_vec_push(f->arena, &s->makers, from);
    }
}

/* Adds the clusters that read the node's matrix of this shape: contract it, or make matrices from it. False: something else
 * reads it. */
static bool add_readers(sweep_set *s, uint32_t node, const graph_shape *matrix) {
    fuser *f = s->f;
    for (uint32_t k = 0; k < f->users[node].count; k++) {
        const fuse_edge *e = &f->edges.data[f->users[node].data[k]];
        const uint32_t to = f->cluster_of[e->user];
        if (in_set(s, to)) continue;
        if (!is_contraction(f, to) || !carries_matrix(f, e, matrix)) return false;
        if (contracted_axis(f, e) >= 0)
            lib_vec_push(f->arena, &s->readers, to);
        else if (f->g->nodes.data[e->user].op->class_ == GRAPH_MAP &&
                 graph_fuse_same_dims(&f->clusters.data[to].domain, matrix))
            lib_vec_push(f->arena, &s->makers, to);
        else
            return false;
    }
    return true;
}

/* Adds the clusters that make matrices of this shape for the makers so far, and all that read these. False: something else reads one. */
static bool collect(sweep_set *s, const graph_shape *matrix) {
    fuser *f = s->f;
    for (uint32_t m = 0; m < s->makers.count; m++) {
        const fuse_cluster *maker = &f->clusters.data[s->makers.data[m]];
        for (uint32_t n = 0; n < maker->nodes.count; n++) {
            const uint32_t node = maker->nodes.data[n];
            for (int k = 0; k < f->g->nodes.data[node].results; k++)
                if (f->output[f->g->nodes.data[node].first + (graph_id)k]) return false;
            add_makers(s, node, matrix);
            if (!add_readers(s, node, matrix)) return false;
        }
    }
    return true;
}

/* Is a cluster of the set needed, through others, by another cluster of the set? Both could not be one kernel. */
static bool is_left(sweep_set *s) {
    fuser *f = s->f;
    f->search++;
    f->stack.count = 0;
    for (int part = 0; part < 2; part++) {
        const fuse_nodes *set = part ? &s->readers : &s->makers;
        for (uint32_t i = 0; i < set->count; i++) {
            f->clusters.data[set->data[i]].stamp = f->search;
            lib_vec_push(f->arena, &f->stack, set->data[i]);
        }
    }
    while (f->stack.count) {
        const uint32_t at = f->stack.data[--f->stack.count];
        const fuse_cluster *c = &f->clusters.data[at];
        for (uint32_t n = 0; n < c->nodes.count; n++)
            for (uint32_t k = 0; k < f->users[c->nodes.data[n]].count; k++) {
                const uint32_t next = f->cluster_of[f->edges.data[f->users[c->nodes.data[n]].data[k]].user];
                if (!in_set(s, at) && in_set(s, next)) return true;
                if (f->clusters.data[next].stamp == f->search) continue;
                f->clusters.data[next].stamp = f->search;
                lib_vec_push(f->arena, &f->stack, next);
            }
    }
    return false;
}

static uint32_t count_nodes(const sweep_set *s) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->makers.count; i++) count += s->f->clusters.data[s->makers.data[i]].nodes.count;
    for (uint32_t i = 0; i < s->readers.count; i++) count += s->f->clusters.data[s->readers.data[i]].nodes.count;
    return count;
}

/* Joins the clusters along the matrices, each once. */
static void join_set(const sweep_set *s, const graph_shape *matrix) {
    fuser *f = s->f;
    for (uint32_t i = 0; i < f->edges.count; i++) {
        const fuse_edge *e = &f->edges.data[i];
        if (e->operand < 0 || f->role[e->user] != FUSE_CORE || !carries_matrix(f, e, matrix)) continue;
        const uint32_t from = f->cluster_of[e->producer], to = f->cluster_of[e->user];
        if (from != to && in_set(s, from) && in_set(s, to)) graph_fuse_join(f, e->producer, e->user);
    }
}

void graph_fuse_join_sweeps(fuser *f) {
    for (uint32_t i = 0; i < f->edges.count; i++) {
        const fuse_edge *e = &f->edges.data[i];
        const uint32_t from = f->cluster_of[e->producer];
        if (e->operand < 0 || f->cluster_of[e->user] == from || !is_contraction(f, from) || contracted_axis(f, e) < 0)
            continue;
        const graph_shape matrix = f->clusters.data[from].domain;
        sweep_set s = {.f = f};
        if (!carries_matrix(f, e, &matrix)) continue;
        lib_vec_push(f->arena, &s.makers, from);
        if (!collect(&s, &matrix) || s.makers.count + s.readers.count < 3 || s.readers.count < 2) continue;
        if (s.makers.count + s.readers.count - 1 > DOUBTS_MAX) continue; /* all of these joins must be questioned */
        if (count_nodes(&s) <= CLUSTER_NODES_MAX && !is_left(&s)) join_set(&s, &matrix);
    }
}
