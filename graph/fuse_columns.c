/* Sums along columns join the cluster that goes through the same rows: rows of a norm's derivative, or maps, whose operands or results are
 * summed over all rows as well (the derivatives by scale and bias). One kernel then reads each row from memory once. Whether that is faster
 * than a kernel for each, the target's cost model decides (fuse_cost.c). */
#include "graph/fuse_internal.h"

typedef struct column_search {
    fuser *f;
    /* by value of a source or a core node: the clusters that read it, perhaps through cheap nodes, as they are before joins */
    fuse_nodes *readers;
    /* the clusters in an order in which each follows those that it reads, UINT32_MAX where one was joined to another; by cluster: its place */
    uint32_t *order, *place;
    /* keep_order: clusters that change places */
    uint32_t *moved;
    /* by cluster: how many sums run beside it */
    uint8_t *sums;
} column_search;

bool graph_fuse_sums_columns(const fuse_cluster *c) {
    return c->kind == CLUSTER_ROWS && c->nodes.count && c->axes && !(c->axes & (c->axes + 1)) &&
           c->axes + 1 != 1u << c->domain.rank;
}

/* ---- the order of clusters */

/* Orders the clusters by rounds, those that have what they read in the first round they do. Clusters of the same rows are then close. */
static void order_clusters(column_search *s) {
    fuser *f = s->f;
    uint32_t *waits = LIB_NEW_ARRAY(f->arena, uint32_t, f->clusters.count + 1), count = 0;
    s->order = LIB_NEW_ARRAY(f->arena, uint32_t, f->clusters.count + 1);
    s->place = LIB_NEW_ARRAY(f->arena, uint32_t, f->clusters.count + 1);
    s->moved = LIB_NEW_ARRAY(f->arena, uint32_t, f->clusters.count + 1);
    s->sums = LIB_NEW_ARRAY(f->arena, uint8_t, f->clusters.count + 1);
    for (uint32_t i = 0; i < f->edges.count; i++) {
        const uint32_t from = f->cluster_of[f->edges.data[i].producer], to = f->cluster_of[f->edges.data[i].user];
        waits[to] += from != to;
    }
    for (uint32_t c = 0; c < f->clusters.count; c++)
        if (f->clusters.data[c].nodes.count && !waits[c]) s->order[count++] = c;
    for (uint32_t at = 0; at < count; at++) {
        const fuse_nodes *nodes = &f->clusters.data[s->order[at]].nodes;
        s->place[s->order[at]] = at;
        for (uint32_t n = 0; n < nodes->count; n++)
            for (uint32_t k = 0; k < f->users[nodes->data[n]].count; k++) {
                const uint32_t to = f->cluster_of[f->edges.data[f->users[nodes->data[n]].data[k]].user];
                if (to != s->order[at] && !--waits[to]) s->order[count++] = to;
            }
    }
}

/* Does cluster `to` read a value of the cluster, other than through others? */
static bool is_read_by(const fuser *f, uint32_t cluster, uint32_t to) {
    const fuse_nodes *nodes = &f->clusters.data[cluster].nodes;
    for (uint32_t n = 0; n < nodes->count; n++)
        for (uint32_t k = 0; k < f->users[nodes->data[n]].count; k++)
            if (f->cluster_of[f->edges.data[f->users[nodes->data[n]].data[k]].user] == to) return true;
    return false;
}

/* Marks the readers of the cluster. */
static void mark_readers(fuser *f, uint32_t cluster) {
    const fuse_nodes *nodes = &f->clusters.data[cluster].nodes;
    for (uint32_t n = 0; n < nodes->count; n++)
        for (uint32_t k = 0; k < f->users[nodes->data[n]].count; k++) {
            const uint32_t to = f->cluster_of[f->edges.data[f->users[nodes->data[n]].data[k]].user];
            if (to != cluster) f->clusters.data[to].stamp = f->search;
        }
}

/* May the clusters be one, or does one need the other through a third one? Those between them in the order that need the first one are
 * marked with the number of the search. */
static bool are_close(column_search *s, uint32_t a, uint32_t b) {
    enum { MOST = 4096 /* clusters between them */ };
    fuser *f = s->f;
    const uint32_t first = s->place[a] < s->place[b] ? a : b, last = first == a ? b : a;
    if (s->place[last] - s->place[first] > MOST) return false;
    f->search++;
    mark_readers(f, first);
    for (uint32_t at = s->place[first] + 1; at < s->place[last]; at++) {
        const uint32_t c = s->order[at];
        if (c == UINT32_MAX || f->clusters.data[c].stamp != f->search) continue;
        if (is_read_by(f, c, last)) return false;
        mark_readers(f, c);
    }
    return true;
}

/* Joins `from` to cluster `to`, after are_close: in the order, what was marked follows both. */
static void keep_order(column_search *s, uint32_t from, uint32_t to) {
    fuser *f = s->f;
    const bool before = s->place[from] < s->place[to];
    const uint32_t low = s->place[before ? from : to], high = s->place[before ? to : from];
    uint32_t count = 0, at = low;
    for (uint32_t i = low; i <= high; i++) {
        const uint32_t c = s->order[i];
        if (c == from || c == to || c == UINT32_MAX) continue;
        if (f->clusters.data[c].stamp == f->search)
            s->moved[count++] = c;
        else
            s->order[at++] = c;
    }
    s->order[at++] = to;
    for (uint32_t i = 0; i < count; i++) s->order[at++] = s->moved[i];
    while (at <= high) s->order[at++] = UINT32_MAX;
    for (uint32_t i = low; i <= high; i++)
        if (s->order[i] != UINT32_MAX) s->place[s->order[i]] = i;
}

/* ---- sums, and clusters beside whose rows they may run */

/* Adds the cluster to the readers of each value that `value` depends on through cheap nodes. */
static void add_reader(column_search *s, graph_id value, uint32_t cluster) {
    const fuser *f = s->f;
    const uint32_t maker = f->g->values.data[value].node;
    if (f->role[maker] == FUSE_CHEAP) {
        const graph_node *node = &f->g->nodes.data[maker];
        for (int k = 0; k < node->inputs; k++)
            if (node->input[k]) add_reader(s, node->input[k], cluster);
        return;
    }
    fuse_nodes *of = &s->readers[value];
    if (!of->count || of->data[of->count - 1] != cluster) lib_vec_push(f->arena, of, cluster);
}

/* Is the node's value an output, or read by a cluster other than these two? */
static bool is_stored(const fuser *f, uint32_t node, uint32_t cluster, uint32_t other) {
    for (uint32_t k = 0; k < f->users[node].count; k++) {
        const uint32_t reader = f->cluster_of[f->edges.data[f->users[node].data[k]].user];
        if (reader != cluster && reader != other) return true;
    }
    return f->output[f->g->nodes.data[node].first];
}

/* Does the cluster go through the rows that cluster `sums` sums: is each row on its own, or summed along the same columns, and a value of all
 * rows stored? */
static bool goes_through_rows(const fuser *f, uint32_t cluster, uint32_t sums) {
    const fuse_cluster *c = &f->clusters.data[cluster], *to = &f->clusters.data[sums];
    if (c->kind != CLUSTER_ROWS && c->kind != CLUSTER_MAPS) return false;
    if (!graph_fuse_same_dims(&c->domain, &to->domain)) return false;
    if (c->kind == CLUSTER_ROWS && c->axes & to->axes && c->axes != to->axes) return false;
    bool stored = false;
    for (uint32_t n = 0; n < c->nodes.count && !stored; n++)
        stored = graph_fuse_same_dims(graph_shape_of(f->g, f->g->nodes.data[c->nodes.data[n]].first), &to->domain) &&
                 is_stored(f, c->nodes.data[n], cluster, sums);
    return stored;
}

/* The cluster that makes or reads the value and goes through the rows that cluster `sums` sums, if it does not depend on the sums, nor the sums
 * on it through a third cluster; UINT32_MAX: none. */
static uint32_t cluster_of_rows(column_search *s, graph_id value, uint32_t sums) {
    enum { READERS = 16 /* of a value, that are considered */, SUMS = DOUBTS_MAX / 2 /* beside a cluster */ };
    fuser *f = s->f;
    const fuse_cluster *to = &f->clusters.data[sums];
    const uint32_t maker = f->g->values.data[value].node,
                   readers = s->readers[value].count < READERS ? s->readers[value].count : READERS;
    if (!graph_fuse_same_dims(graph_shape_of(f->g, value), &to->domain)) return UINT32_MAX;
    for (uint32_t i = 0; i <= readers; i++) {
        const bool makes = i == readers;
        if (makes && f->role[maker] != FUSE_CORE) continue;
        const uint32_t c = makes ? f->cluster_of[maker] : s->readers[value].data[i];
        if (c == sums || s->sums[c] == SUMS || s->sums[sums] || !goes_through_rows(f, c, sums)) continue;
        if (f->clusters.data[c].nodes.count + to->nodes.count > CLUSTER_NODES_MAX || is_read_by(f, sums, c)) continue;
        if (are_close(s, c, sums)) return c;
    }
    return UINT32_MAX;
}

static uint32_t find_rows(column_search *s, uint32_t sums) {
    fuser *f = s->f;
    const fuse_cluster *c = &f->clusters.data[sums];
    uint32_t found = UINT32_MAX;
    for (uint32_t n = 0; n < c->nodes.count && found == UINT32_MAX; n++) {
        const graph_node *node = &f->g->nodes.data[c->nodes.data[n]];
        for (int k = 0; k < node->inputs && found == UINT32_MAX; k++)
            if (node->input[k] && f->role[f->g->values.data[node->input[k]].node] != FUSE_CHEAP)
                found = cluster_of_rows(s, node->input[k], sums);
    }
    return found;
}

void graph_fuse_join_columns(fuser *f) {
    column_search s = {.f = f, .readers = lib_arena_array(f->arena, f->g->values.count, sizeof *s.readers)};
    const uint32_t clusters = f->clusters.count;
    order_clusters(&s);
    for (uint32_t i = 0; i < f->g->nodes.count; i++) {
        const graph_node *node = &f->g->nodes.data[i];
        for (int k = 0; f->role[i] == FUSE_CORE && k < node->inputs; k++)
            if (node->input[k]) add_reader(&s, node->input[k], f->cluster_of[i]);
    }
    for (uint32_t c = 0; c < clusters; c++) {
        const fuse_cluster *sums = &f->clusters.data[c];
        if (!graph_fuse_sums_columns(sums) || graph_fuse_elements(f->g, &sums->domain) < 0) continue;
        const uint32_t rows = find_rows(&s, c);
        if (rows == UINT32_MAX) continue;
        keep_order(&s, c, rows);
        s.sums[rows]++;
        graph_fuse_join_beside(f, sums->nodes.data[0], f->clusters.data[rows].nodes.data[0]);
    }
}
