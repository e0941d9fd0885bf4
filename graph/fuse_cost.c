/* Joins in doubt. `may_join` (fuse.c) decides which clusters one kernel can compute without computing elements several times, but
 * not whether that kernel is as fast as its parts: the target's cost model predicts that. A join is in doubt if it combines loops
 * of different forms: contractions with each other or with reductions of rows; moves and conversions read by a contraction;
 * transpositions read by maps or reductions of rows; moves read by maps whose value is also needed in memory; maps after a contraction
 * whose value is also needed in memory, and functions after one of few columns; reductions of so few rows that other threads would be
 * idle; and sums along columns beside rows. The joins of a cluster are a tree. `choose_cut` searches for the set of joins to undo that is
 * fastest on one thread, and on several threads not slower than undoing all joins in doubt. Other maps around a
 * contraction, and reductions of the same rows, are not in doubt: a prediction takes a fifth of the time of compiling the kernel.
 *
 * Values with the host's blocked layouts are reconsidered as well: is writing them row-major and then moving them faster? */
#include "graph/fuse_internal.h"

#include <assert.h>

enum { FEW_ROWS = 16 };          /* so few tasks leave threads idle */
enum { LARGE_DOMAIN = 1 << 15 }; /* elements for which using several threads is worthwhile */

typedef struct prediction {
    /* bit i: node i of the cluster */
    uint64_t nodes;
    double cycles[GRAPH_FUSE_WIDTHS];
} prediction;
static_assert(CLUSTER_NODES_MAX <= 64, "a cluster's nodes are bits");

typedef struct doubts {
    fuser *f;
    uint32_t cluster;
    /* the cluster's nodes, ascending */
    fuse_nodes nodes;
    graph_region whole;
    /* the cluster's joins, by indices into `nodes` */
    lib_vec(fuse_join) tree;
    /* by index into `nodes`: the part that the node is in, named by the index of one of that part's nodes */
    uint32_t *part;
    int count;
    /* indices into `tree` of the joins in doubt */
    uint32_t doubt[DOUBTS_MAX];
    lib_vec(prediction) known;
} doubts;

/* ---- parts */

static uint32_t root_of(uint32_t *part, uint32_t at) {
    while (part[at] != at) at = part[at] = part[part[at]];
    return at;
}

/* Does the move make another axis the last one, so that contiguous accesses to its result are strided in its operand? */
static bool turns_rows(const doubts *d, uint32_t place) {
    const graph *g = d->f->g;
    const graph_node *node = &g->nodes.data[d->nodes.data[place]];
    if (node->op->structure != GRAPH_PERMUTES) return false;
    const graph_shape *value = graph_shape_of(g, node->first);
    int last = value->rank - 1, before = last;
    while (last > 0 && graph_fuse_extent(g, value->dim[last]) == 1) last--;
    while (before > 0 && graph_fuse_extent(g, graph_shape_of(g, node->input[0])->dim[before]) == 1) before--;
    return last >= 0 && node->attribute[0].list[last] != before;
}

static bool is_undone(const doubts *d, uint32_t cut, uint32_t join) {
    for (int k = 0; k < d->count; k++)
        if (d->doubt[k] == join && cut >> k & 1) return true;
    return false;
}

static void join_parts(doubts *d, uint32_t a, uint32_t b) {
    d->part[root_of(d->part, a)] = root_of(d->part, b);
}

/* Readers of a move from which they are separated stay joined. */
static void join_readers(doubts *d, uint32_t cut, uint32_t join) {
    const uint32_t move = d->tree.data[join].producer;
    for (uint32_t j = 0; j < join && turns_rows(d, move); j++)
        if (d->tree.data[j].producer == move && is_undone(d, cut, j))
            join_parts(d, d->tree.data[j].user, d->tree.data[join].user);
}

/* Sets d->part: the connected components after removing the joins in doubt whose bit is set in `cut`. */
static void find_parts(doubts *d, uint32_t cut) {
    for (uint32_t i = 0; i < d->nodes.count; i++) d->part[i] = i;
    for (uint32_t j = 0; j < d->tree.count; j++) {
        if (is_undone(d, cut, j))
            join_readers(d, cut, j);
        else
            join_parts(d, d->tree.data[j].producer, d->tree.data[j].user);
    }
    for (uint32_t i = 0; i < d->nodes.count; i++) d->part[i] = root_of(d->part, i);
}

static uint32_t place_of(const doubts *d, uint32_t node) {
    uint32_t low = 0, high = d->nodes.count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (d->nodes.data[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->nodes.count && d->nodes.data[low] == node ? low : UINT32_MAX;
}

/* Can the parts run one after the other, without a cycle? Repeatedly finishes the parts that depend on no unfinished part. */
static bool can_run(const doubts *d) {
    const fuser *f = d->f;
    bool *waits = LIB_NEW_ARRAY(f->arena, bool, d->nodes.count), *done = LIB_NEW_ARRAY(f->arena, bool, d->nodes.count);
    for (bool more = true; more;) {
        more = false;
        memset(waits, 0, d->nodes.count * sizeof *waits);
        for (uint32_t i = 0; i < d->nodes.count; i++)
            for (uint32_t k = f->edges_begin[d->nodes.data[i]]; k < f->edges_begin[d->nodes.data[i] + 1]; k++) {
                uint32_t from = place_of(d, f->edges.data[k].producer);
                if (from != UINT32_MAX && d->part[from] != d->part[i] && !done[d->part[from]]) waits[d->part[i]] = true;
            }
        for (uint32_t i = 0; i < d->nodes.count; i++)
            if (d->part[i] == i && !done[i] && !waits[i]) done[i] = more = true;
    }
    for (uint32_t i = 0; i < d->nodes.count; i++)
        if (!done[d->part[i]]) return false;
    return true;
}

static fuse_nodes nodes_of(const doubts *d, uint32_t part) {
    fuse_nodes nodes = {0};
    for (uint32_t i = 0; i < d->nodes.count; i++)
        if (d->part[i] == part) lib_vec_push(d->f->arena, &nodes, d->nodes.data[i]);
    return nodes;
}

/* ---- which joins are in doubt */

static bool has_few_rows(const doubts *d) {
    const fuse_cluster *c = &d->f->clusters.data[d->cluster];
    if (c->kind != CLUSTER_ROWS) return false;
    int64_t rows = 1;
    for (int i = 0; i < c->domain.rank; i++) {
        int64_t extent = graph_fuse_extent(d->f->g, c->domain.dim[i]);
        if (!(c->axes >> i & 1) && (extent < 0 || __builtin_mul_overflow(rows, extent, &rows))) return false;
    }
    return rows < FEW_ROWS && graph_fuse_elements(d->f->g, &c->domain) >= LARGE_DOMAIN;
}

/* Is the join's producer an output, or read by another cluster, so that it is stored though `user` is in the same kernel? */
static bool is_stored(const doubts *d, const fuse_join *join) {
    const fuser *f = d->f;
    uint32_t index = d->nodes.data[join->producer];
    for (uint32_t k = 0; k < f->users[index].count; k++)
        if (f->cluster_of[f->edges.data[f->users[index].data[k]].user] != d->cluster) return true;
    return f->output[f->g->nodes.data[index].first];
}

static bool takes_long(tir_op op) {
    return (tir_ops[op].flags & TIR_MATH) != 0 || op == TIR_DIV || op == TIR_SQRT;
}

static tir_expr meet_function(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    *(bool *)user = *(bool *)user || takes_long(tir_op_of(pool, e));
    return rebuilt;
}

/* Is a function that takes many instructions among the cluster's maps? */
static bool has_functions(const doubts *d) {
    enum { OPERANDS = 8 };
    const graph *g = d->f->g;
    bool found = false;
    for (uint32_t i = 0; i < d->nodes.count && !found; i++) {
        const graph_node *node = &g->nodes.data[d->nodes.data[i]];
        tir_expr operands[OPERANDS];
        tir_pool pool;
        found = takes_long(graph_map_operation(node->op));
        if (found || !node->op->scalar || node->inputs > OPERANDS) continue;
        tir_pool_init(&pool, d->f->arena);
        for (int k = 0; k < node->inputs; k++)
            operands[k] = node->input[k] ? tir_var(&pool, "x", TIR_VAR_LET,
                                                   (tir_dtype)graph_shape_of(g, node->input[k])->dtype, 0, 0)
                                         : 0;
        const tir_dtype dtype = (tir_dtype)graph_shape_of(g, node->first)->dtype;
        tir_rewrite(&pool, graph_op_scalar(node->op, &pool, dtype, operands, node->attribute), meet_function, &found);
    }
    return found;
}

/* Has the join's producer, a sum of products without a window, a window without products, or a map that a reduction reads, rows of so few columns
 * that functions in their loops leave most lanes empty? */
static bool has_few_columns(const doubts *d, const fuse_join *join) {
    enum { FEW_COLUMNS = 8 };
    const graph_node *node = &d->f->g->nodes.data[d->nodes.data[join->producer]];
    const bool sums = node->op->class_ == GRAPH_CONTRACT || node->op->class_ == GRAPH_REDUCE;
    if ((join->of_producer > CLUSTER_ROWS && !sums) || node->op->structure == GRAPH_CONVOLVES) return false;
    const graph_shape *value = graph_shape_of(d->f->g, node->first);
    int last = value->rank - 1;
    while (last > 0 && graph_fuse_extent(d->f->g, value->dim[last]) == 1) last--;
    const int64_t columns = last >= 0 ? graph_fuse_extent(d->f->g, value->dim[last]) : 1;
    return columns >= 0 && columns <= FEW_COLUMNS && graph_fuse_elements(d->f->g, value) != columns && has_functions(d);
}

/* May the join make loops of maps or rows slower: do rows turn, is the move's value stored anyway, or are functions
 * computed in rows of few columns? */
static bool may_slow_loops(const doubts *d, const fuse_join *join) {
    fuse_kind from = join->of_producer, to = join->of_user;
    if (from <= CLUSTER_ROWS && (to == CLUSTER_MAPS || to == CLUSTER_ROWS) && turns_rows(d, join->producer))
        return true; /* also the further readers of a move that is in a cluster already */
    if (from == CLUSTER_MOVES && to == CLUSTER_MAPS && is_stored(d, join)) return true;
    return from == CLUSTER_MAPS && to == CLUSTER_ROWS && has_few_columns(d, join);
}

static bool is_in_doubt(const doubts *d, const fuse_join *join, bool few_rows) {
    fuse_kind from = join->of_producer, to = join->of_user;
    if (join->beside || may_slow_loops(d, join)) return true;
    bool rows = from >= CLUSTER_ROWS && to >= CLUSTER_ROWS, contracts = from > CLUSTER_ROWS || to > CLUSTER_ROWS;
    if (rows && (contracts || few_rows)) return true;
    if (from < CLUSTER_ROWS && to > CLUSTER_ROWS)
        return from == CLUSTER_MOVES || d->f->g->nodes.data[d->nodes.data[join->user]].op->class_ == GRAPH_CONTRACT;
    return from > CLUSTER_ROWS && (is_stored(d, join) || has_few_columns(d, join));
}

static bool find_doubts(doubts *d, const fuse_join *joins, uint32_t count) {
    for (uint32_t j = 0; j < count; j++) {
        fuse_join made = joins[j];
        made.producer = place_of(d, made.producer);
        made.user = place_of(d, made.user);
        lib_vec_push(d->f->arena, &d->tree, made);
    }
    d->part = LIB_NEW_ARRAY(d->f->arena, uint32_t, d->nodes.count);
    find_parts(d, 0);
    for (uint32_t i = 1; i < d->nodes.count; i++)
        if (d->part[i] != d->part[0]) return false; /* disconnected, because maps were moved out of it */
    bool few_rows = has_few_rows(d);
    uint32_t all = 0;
    for (uint32_t j = 0; j < d->tree.count; j++) all += is_in_doubt(d, &d->tree.data[j], few_rows);
    /* of too many, those between contractions and of sums beside rows first: most depends on them */
    for (int pass = all > DOUBTS_MAX ? 0 : 1; pass < 2; pass++)
        for (uint32_t j = 0; j < d->tree.count && d->count < DOUBTS_MAX; j++) {
            const fuse_join *join = &d->tree.data[j];
            const bool first = join->beside || (join->of_producer > CLUSTER_ROWS && join->of_user > CLUSTER_ROWS);
            if ((all > DOUBTS_MAX && first != (pass == 0)) || !is_in_doubt(d, join, few_rows)) continue;
            d->doubt[d->count++] = j;
        }
    return d->count > 0;
}

/* ---- costs of parts */

/* Adds the predicted cycles of the part's kernel to cycles[]; predictions are kept in d->known. False: no prediction. */
static bool predict_part(doubts *d, uint32_t part, double cycles[GRAPH_FUSE_WIDTHS]) {
    const graph_fuse_costs *costs = d->f->costs;
    prediction new = {.nodes = 0};
    for (uint32_t i = 0; i < d->nodes.count; i++)
        if (d->part[i] == part) new.nodes |= UINT64_C(1) << i;
    const prediction *known = NULL;
    for (uint32_t i = 0; i < d->known.count && !known; i++)
        if (d->known.data[i].nodes == new.nodes) known = &d->known.data[i];
    if (!known) {
        fuse_nodes nodes = nodes_of(d, part);
        graph_region region = graph_fuse_region_of(d->f, &nodes);
        if (region.kind == GRAPH_REGION_KERNEL && !costs->predict(costs->user, &region, &d->whole, new.cycles))
            return false;
        lib_vec_push(d->f->arena, &d->known, new);
        known = &new;
    }
    for (int w = 0; w < GRAPH_FUSE_WIDTHS; w++) cycles[w] += known->cycles[w];
    return true;
}

/* Bytes of the value if its symbolic dimensions have their greatest values. */
static double most_bytes(const graph *g, graph_id value) {
    const graph_shape *shape = graph_shape_of(g, value);
    double bytes = (double)lib_dtype_size(shape->dtype);
    for (int i = 0; i < shape->rank; i++) bytes *= (double)tir_range(g->pool, shape->dim[i]).high;
    return bytes;
}

/* Is the value at this place in `nodes` what a layer hands to the next one? */
static bool is_layer(const doubts *d, uint32_t place) {
    for (uint32_t j = 0; j < d->tree.count; j++)
        if (d->tree.data[j].layers && d->tree.data[j].producer == place) return true;
    return false;
}

/* The bytes that the parts store for each other over those that the whole reads and writes. Layers grow with the rows, as these do, and are
 * left out. */
static double memory_between(const doubts *d) {
    const fuser *f = d->f;
    double between = 0, around = 0;
    for (uint32_t i = 0; i < d->whole.input_count; i++) around += most_bytes(f->g, d->whole.inputs[i]);
    for (uint32_t i = 0; i < d->whole.output_count; i++) around += most_bytes(f->g, d->whole.outputs[i]);
    for (uint32_t i = 0; i < d->nodes.count; i++) {
        uint32_t index = d->nodes.data[i];
        bool crosses = false;
        for (uint32_t k = 0; k < f->users[index].count && !crosses; k++) {
            uint32_t user = place_of(d, f->edges.data[f->users[index].data[k]].user);
            crosses = user != UINT32_MAX && d->part[user] != d->part[i];
        }
        if (crosses && !is_layer(d, i)) between += most_bytes(f->g, f->g->nodes.data[index].first);
    }
    return around > 0 ? between / around : 0;
}

/* Attention scores grow quadratically with the sequence length and may not fit in memory though the operands do. */
static bool needs_much_memory(const doubts *d) {
    return memory_between(d) > 2;
}

/* Sets cycles[] to those of all parts after undoing the joins in `cut`; false: the parts depend on each other in a cycle, need too
 * much memory, or one has no prediction. */
static bool predict_cut(doubts *d, uint32_t cut, double cycles[GRAPH_FUSE_WIDTHS]) {
    find_parts(d, cut);
    for (int w = 0; w < GRAPH_FUSE_WIDTHS; w++) cycles[w] = 0;
    if (!can_run(d) || needs_much_memory(d)) return false;
    for (uint32_t i = 0; i < d->nodes.count; i++)
        if (d->part[i] == i && !predict_part(d, i, cycles)) return false;
    return true;
}

/* Bit k of the result: the join d->doubt[k] is undone. Starts with all joins or none, whichever is faster on one thread, then
 * makes or undoes one join at a time while that is faster; cuts that are slower than the separate parts on several threads are
 * not considered. */
static uint32_t choose_cut(doubts *d) {
    const uint32_t all = (1u << d->count) - 1;
    double parts[GRAPH_FUSE_WIDTHS], here[GRAPH_FUSE_WIDTHS], least;
    uint32_t chosen = all;
    if (!predict_cut(d, all, parts)) { /* then cuts are compared with the whole */
        if (!predict_cut(d, 0, parts)) return 0;
        chosen = 0;
    }
    /* Differences below the model's accuracy favour fewer kernels; larger ones do, too, if these save more memory than the whole reads and
     * writes: the model does not know the time of stores that miss */
    const double even = chosen == all && memory_between(d) > 1 ? 1.15 : 1.01;
    least = parts[0];
    for (int k = -1, turns = 0; k < d->count && turns <= d->count;) {
        uint32_t cut = k < 0 ? 0 : chosen ^ (1u << k);
        bool joins = k < 0 || chosen >> k & 1; /* undoes one join more than `chosen` */
        k++;
        bool faster = predict_cut(d, cut, here) && (joins ? here[0] <= least * even : here[0] * even < least);
        for (int w = 1; w < GRAPH_FUSE_WIDTHS && faster; w++) faster = here[w] <= parts[w] * even;
        if (!faster) continue;
        chosen = cut;
        if (here[0] < least) least = here[0];
        if (k > 0) k = 0, turns++;
    }
    return chosen;
}

/* Hash of the tree of joins, of the joins in doubt, and of the nodes' operators: with the region's computation, they determine the
 * decision. */
static lib_hash128 hash_of(const doubts *d) {
    lib_hash128 hash =
        lib_hash_bytes(d->tree.data, d->tree.count * sizeof *d->tree.data, (lib_hash128){d->nodes.count, 2});
    for (uint32_t i = 0; i < d->nodes.count; i++) {
        const char *name = d->f->g->nodes.data[d->nodes.data[i]].op->name;
        hash = lib_hash_bytes(name, strlen(name), hash);
    }
    return lib_hash_bytes(d->doubt, (size_t)d->count * sizeof *d->doubt, hash);
}

/* Could choose_cut have returned this cut? Decisions from files are not trusted. */
static bool is_possible(doubts *d, uint32_t cut) {
    if (cut >> d->count) return false;
    find_parts(d, cut);
    return cut == 0 || (can_run(d) && !needs_much_memory(d));
}

/* Undoes the joins in `cut`: the part of the first node replaces the cluster, other parts become new clusters. */
static void cut_cluster(doubts *d, uint32_t cut) {
    fuser *f = d->f;
    find_parts(d, cut);
    for (uint32_t i = 0; i < d->nodes.count; i++) {
        if (d->part[i] != i) continue;
        fuse_nodes nodes = nodes_of(d, i);
        fuse_cluster part = graph_fuse_new_cluster(f, nodes.data[0]);
        for (uint32_t n = 1; n < nodes.count; n++) {
            fuse_cluster other = graph_fuse_new_cluster(f, nodes.data[n]);
            if (other.kind > part.kind) part = other;
        }
        part.nodes = nodes;
        bool first = d->part[0] == i;
        for (uint32_t n = 0; n < nodes.count; n++)
            f->cluster_of[nodes.data[n]] = first ? d->cluster : f->clusters.count;
        if (first)
            f->clusters.data[d->cluster] = part;
        else
            lib_vec_push(f->arena, &f->clusters, part);
    }
}

static void question_cluster(fuser *f, uint32_t cluster, const fuse_join *joins, uint32_t count) {
    const graph_fuse_costs *costs = f->costs;
    doubts d = {.f = f, .cluster = cluster, .nodes = f->clusters.data[cluster].nodes};
    graph_fuse_sort(&d.nodes);
    if (!find_doubts(&d, joins, count)) return;
    d.whole = graph_fuse_region_of(f, &d.nodes);
    const lib_hash128 question = costs->identify(costs->user, &d.whole, hash_of(&d));
    uint32_t cut;
    if (!costs->recall(costs->user, &question, &cut) || !is_possible(&d, cut)) {
        cut = choose_cut(&d);
        costs->record(costs->user, &question, cut);
    }
    if (cut) cut_cluster(&d, cut);
}

void graph_fuse_question_joins(fuser *f) {
    const uint32_t clusters = f->clusters.count;
    lib_vec(fuse_join) *of = lib_arena_array(f->arena, clusters + 1, sizeof *of);
    for (uint32_t j = 0; j < f->joins.count; j++) {
        const fuse_join *join = &f->joins.data[j];
        uint32_t c = f->cluster_of[join->user];
        if (c == f->cluster_of[join->producer]) lib_vec_push(f->arena, &of[c], *join);
    }
    for (uint32_t c = 0; c < clusters; c++) {
        fuse_kind kind = f->clusters.data[c].kind;
        if (of[c].count && kind >= CLUSTER_MAPS && kind != CLUSTER_ALONE)
            question_cluster(f, c, of[c].data, of[c].count);
    }
}

/* ---- the host's blocks (host_layout.h) */

/* The chain of moves, currently views, from the value on, as far as each move is the only reader of the value before it. */
static fuse_nodes moves_behind(const fuser *f, graph_id value) {
    fuse_nodes moves = {0};
    for (;;) {
        const uint32_t maker = f->g->values.data[value].node;
        if (f->users[maker].count != 1 || f->output[value]) return moves;
        const fuse_edge *e = &f->edges.data[f->users[maker].data[0]];
        if (e->operand < 0 || e->value != value || !f->given.view[e->user]) return moves;
        lib_vec_push(f->arena, &moves, e->user);
        value = f->g->nodes.data[e->user].first;
    }
}

/* Is the region a kernel whose operands are all row-major, and whose only output is the value? */
static bool writes_blocks(const fuser *f, const graph_region *region, graph_id value) {
    bool others = region->output_count != 1 || region->kind != GRAPH_REGION_KERNEL;
    for (uint32_t i = 0; i < region->input_count; i++)
        others = others || f->given.layouts[region->inputs[i]] != NULL || region->inputs[i] == value;
    return !others;
}

/* Is writing the value row-major and then moving it faster? If one thread and several disagree, the greater ratio counts: writing blocks
 * takes up to twice as long on one thread, moving them a tenth longer on several that share the memory. */
static bool is_moved_faster(fuser *f, const graph_region *blocks, graph_id value, const fuse_nodes *moves) {
    const graph_fuse_costs *costs = f->costs;
    const tir_layout **layouts = lib_arena_array(f->arena, f->g->values.count + 1, sizeof *layouts);
    double here[GRAPH_FUSE_WIDTHS], plain[GRAPH_FUSE_WIDTHS], moving[GRAPH_FUSE_WIDTHS];
    const double even = 1.01;
    const lib_hash128 question = costs->identify(costs->user, blocks, (lib_hash128){moves->count, 3});
    uint32_t faster;
    if (costs->recall(costs->user, &question, &faster) && faster <= 1) return faster;
    for (graph_id v = 1; v < f->g->values.count; v++) layouts[v] = v == value ? NULL : f->given.layouts[v];
    graph_region row_major = *blocks, move = graph_fuse_region_of(f, moves);
    row_major.layouts = move.layouts = layouts;
    move.kind = GRAPH_REGION_KERNEL;
    faster = costs->predict(costs->user, blocks, NULL, here) && costs->predict(costs->user, &row_major, NULL, plain) &&
             costs->predict(costs->user, &move, NULL, moving);
    double ratio = even;
    for (int w = 0; w < GRAPH_FUSE_WIDTHS && faster; w++) ratio *= (plain[w] + moving[w]) / here[w];
    faster = faster && ratio < 1;
    costs->record(costs->user, &question, faster);
    return faster;
}

bool graph_fuse_question_blocks(fuser *f) {
    bool found = false;
    for (graph_id v = 1; v < f->g->values.count; v++) {
        const uint32_t maker = f->g->values.data[v].node;
        if (!f->given.layouts[v] || f->role[maker] != FUSE_CORE || f->given.view[maker]) continue;
        const fuse_nodes moves = moves_behind(f, v);
        if (!moves.count) continue;
        const graph_region region = graph_fuse_region_of(f, &f->clusters.data[f->cluster_of[maker]].nodes);
        if (!writes_blocks(f, &region, v) || !is_moved_faster(f, &region, v, &moves)) continue;
        f->refused[v] = found = true;
    }
    return found;
}
