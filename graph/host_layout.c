/* Blocked layouts that the host expresses by moves. A host that keeps images in blocks of channels, [n, c/16, h, w, 16], or with
 * channels last, writes
 *
 *   given -> transpose -> reshape -> x [n, c, h, w] -> convolution ... y [n, c, h, w] -> reshape -> transpose -> taken
 *
 * If the chain of moves only describes a blocked layout, no data has to move: x is stored in the bytes of `given`, y is written
 * to those of `taken`, and the moves are views. Kernels read and write the same number of bytes either way, so this is almost
 * always an advantage; only a kernel with row-major operands may take longer to write blocks than a separate move takes (decided
 * in fuse_cost.c). Chains of any other kind (attention heads, pixel shuffles) are left unchanged.
 *
 * The byte order of a value, seen from the other end of a chain, is a list of *digits*, outermost first: each iterates over
 * `extent` positions of a dimension with stride `divisor`. A transposition renames dimensions; a reshape keeps the row-major
 * position and splits a digit that spans two dimensions. */
#include "graph/host_layout.h"

#include "graph/internal.h"

enum { DIGITS = 2 * DLC_MAX_RANK, LEAST_BLOCK = 4, MOST_BLOCK = 64 };

typedef struct digit {
    int dim;
    int64_t divisor, extent;
} digit;

typedef struct digits {
    /* -1: cannot be expressed */
    int count;
    digit at[DIGITS];
} digits;

typedef struct readers {
    /* number of reading operands of live nodes; of moves */
    int all, moves;
    /* some reader requires row-major; some convolution reads the value as its image; the value is an output */
    bool refuse, image, host;
} readers;

typedef struct finder {
    lib_arena *arena;
    const graph *g;
    const bool *live;
    /* by value: stays row-major; NULL: none */
    const bool *refused;
    /* by value */
    readers *readers;
    graph_given *given;
} finder;

static bool is_move(const graph_node *node) {
    return node->op->structure == GRAPH_REGROUPS || node->op->structure == GRAPH_PERMUTES;
}

/* Does the convolution use whole channel blocks: not grouped, or depthwise? Small groups would pick single channels out of blocks. */
static bool convolves_blocks(const graph *g, const graph_node *node) {
    if (node->op->structure != GRAPH_CONVOLVES) return false;
    const graph_shape *w = graph_shape_of(g, node->input[1]);
    return node->attribute[graph_op_attribute(node->op, "groups")].integer == 1 || tir_is_number(g->pool, w->dim[1], 1);
}

static bool known_sizes(const graph *g, graph_id value, int64_t *size) {
    const graph_shape *shape = graph_shape_of(g, value);
    for (int d = 0; d < shape->rank; d++)
        if (!tir_is_const(g->pool, shape->dim[d], &size[d]) || size[d] < 1) return false;
    return true;
}

static digits row_major(const int64_t *size, int rank) {
    digits d = {0};
    for (int i = 0; i < rank; i++)
        if (size[i] > 1) d.at[d.count++] = (digit){i, 1, size[i]};
    return d;
}

/* The digits `in`, of dimensions of a value of size from[], as digits of the dimensions of its reshape to size to[]. */
static digits through_reshape(const digits *in, const int64_t *from, int from_rank, const int64_t *to, int to_rank) {
    int64_t stride_in[DLC_MAX_RANK], stride_out[DLC_MAX_RANK], step = 1;
    for (int d = from_rank - 1; d >= 0; step *= from[d--]) stride_in[d] = step;
    step = 1;
    for (int d = to_rank - 1; d >= 0; step *= to[d--]) stride_out[d] = step;
    digits out = {0};
    for (int i = 0; i < in->count; i++) {
        int64_t weight = in->at[i].divisor * stride_in[in->at[i].dim], extent = in->at[i].extent;
        int first = out.count;
        while (extent > 1) { /* innermost part first: find the dimension that contains this position */
            int d = 0;
            while (d < to_rank && (to[d] == 1 || stride_out[d] > weight)) d++;
            if (d == to_rank || weight % stride_out[d] || out.count == DIGITS) return (digits){.count = -1};
            int64_t room = stride_out[d] * to[d] / weight, part = extent < room ? extent : room;
            if (room < 2 || extent % part || room % part) return (digits){.count = -1};
            memmove(&out.at[first + 1], &out.at[first], (size_t)(out.count - first) * sizeof *out.at);
            out.at[first] = (digit){d, weight / stride_out[d], part};
            out.count++;
            extent /= part;
            weight *= part;
        }
    }
    return out;
}

/* Converts digits of the dimensions of a move's operand to those of its result; back: from the result to the operand. */
static digits through_move(const graph *g, const graph_node *node, const digits *in, bool back) {
    int64_t operand[DLC_MAX_RANK], result[DLC_MAX_RANK];
    int rank = graph_shape_of(g, node->first)->rank, operand_rank = graph_shape_of(g, node->input[0])->rank;
    if (!known_sizes(g, node->input[0], operand) || !known_sizes(g, node->first, result)) return (digits){.count = -1};
    if (node->op->structure == GRAPH_REGROUPS)
        return back ? through_reshape(in, result, rank, operand, operand_rank)
                    : through_reshape(in, operand, operand_rank, result, rank);
    digits out = *in;
    for (int i = 0; i < in->count; i++)
        for (int d = 0; d < rank; d++) {
            int64_t axis = node->attribute[0].list[d]; /* result axis d is this axis of the operand */
            if (axis < 0) axis += rank;
            if ((back ? d : axis) == in->at[i].dim) out.at[i].dim = (int)(back ? axis : d);
        }
    return out;
}

/* May the digit be the position in blocks of its dimension, or, `whole`, in all of it? */
static bool is_block(const digit *block, bool whole) {
    const bool power = (block->extent & (block->extent - 1)) == 0;
    return block->divisor == 1 && (whole || (power && block->extent >= LEAST_BLOCK && block->extent <= MOST_BLOCK));
}

/* All dimensions in order, `dim` in blocks of this size, then the position in these; size 0: then all of `dim`. */
static const tir_layout *layout_of_blocks(const finder *f, int rank, int dim, int32_t block_size) {
    tir_layout *layout = LIB_NEW(f->arena, tir_layout);
    layout->rank = (int16_t)rank;
    for (int d = 0; d < rank; d++)
        if (d != dim || block_size)
            layout->part[layout->count++] = (tir_layout_part){(int16_t)d, d == dim ? block_size : 1, 0};
    layout->part[layout->count++] = (tir_layout_part){(int16_t)dim, 1, block_size};
    return layout;
}

/* The layout of the value if its digits are those of (n, c/16, h, w, c%16) or (n, h, w, c): all dimensions in order, except that one
 * dimension, or the position in its blocks, is last. NULL: they are not. */
static const tir_layout *blocks_of(const finder *f, graph_id value, const digits *in) {
    int64_t size[DLC_MAX_RANK];
    int rank = graph_shape_of(f->g, value)->rank, dim, next = 0;
    if (in->count < 2 || !known_sizes(f->g, value, size)) return NULL;
    const digit *block = &in->at[in->count - 1];
    dim = block->dim;
    bool whole = block->extent == size[dim], behind = false;
    if (!is_block(block, whole)) return NULL;
    for (int d = 0; d < rank; d++) {
        int64_t divisor = d == dim ? block->extent : 1;
        behind = behind || (d > dim && size[d] > 1);
        /* one digit, or adjacent digits that merge into one */
        for (int64_t reached = size[d]; reached > divisor; next++) {
            const digit *at = &in->at[next];
            if (next == in->count - 1 || at->dim != d || at->divisor * at->extent != reached) return NULL;
            reached = at->divisor;
            if (reached < divisor) return NULL;
        }
    }
    if (next != in->count - 1 || !behind) return NULL;
    return layout_of_blocks(f, rank, dim, whole ? 0 : (int32_t)block->extent);
}

/* May the node read blocks: a contraction, a map, or a window, which run along blocks as well as along rows? */
static bool takes_blocks(const graph_node *node) {
    return node->op->class_ == GRAPH_CONTRACT || node->op->class_ == GRAPH_MAP ||
           node->op->structure == GRAPH_FOLDS_WINDOWS;
}

/* Collects the readers of each value. */
static void find_readers(finder *f) {
    const graph *g = f->g;
    f->readers = LIB_NEW_ARRAY(f->arena, readers, g->values.count + 1);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        for (int k = 0; f->live[n] && k < node->inputs; k++) {
            readers *r = &f->readers[node->input[k]];
            r->all++;
            r->moves += is_move(node);
            r->refuse = r->refuse || (!is_move(node) && !takes_blocks(node));
            r->image = r->image || (k == 0 && convolves_blocks(g, node));
            r->refuse = r->refuse || (k == 0 && node->op->structure == GRAPH_CONVOLVES && !convolves_blocks(g, node));
        }
    }
    for (uint32_t o = 0; o < g->outputs.count; o++) f->readers[g->outputs.data[o]].host = true;
}

/* The start of the chain of moves that ends in `value`; a move with other readers starts the chain. */
static graph_id chain_start(const finder *f, graph_id value) {
    while (is_move(graph_node_of(f->g, value))) {
        graph_id below = graph_node_of(f->g, value)->input[0];
        value = below;
        if (f->readers[below].all != 1 || f->readers[below].host) break;
    }
    return value;
}

static void mark_views(const finder *f, graph_id from, graph_id to) {
    for (; to != from; to = graph_node_of(f->g, to)->input[0]) f->given->view[f->g->values.data[to].node] = true;
}

static bool is_laid(const finder *f, graph_id value) {
    return f->given->layouts[value] != NULL;
}

/* The digits of `start`, which is row-major and has these sizes, as digits of `value`, at the end of a chain of moves. */
static digits through_chain(const graph *g, graph_id start, graph_id value, const int64_t *size) {
    graph_id chain[DIGITS];
    int length = 0;
    for (graph_id at = value; at != start && length < DIGITS; at = graph_node_of(g, at)->input[0]) chain[length++] = at;
    if (length == DIGITS) return (digits){.count = -1};
    digits d = row_major(size, graph_shape_of(g, start)->rank);
    while (length-- > 0 && d.count >= 0) d = through_move(g, graph_node_of(g, chain[length]), &d, false);
    return d;
}

/* The `given` side: if `value`, read by convolutions, is the result of a chain of moves from the host's blocks, sets its layout and
 * marks the moves as views. */
static void find_given(const finder *f, graph_id value) {
    const graph *g = f->g;
    const readers *r = &f->readers[value];
    graph_id start = chain_start(f, value);
    int64_t size[DLC_MAX_RANK];
    if (r->refuse || r->host || r->moves || !r->image) return;
    if (start == value || is_laid(f, start) || !known_sizes(g, start, size)) return;
    if (graph_is_constant(graph_node_of(g, start))) return;
    if (f->given->view[g->values.data[start].node]) return;
    const digits d = through_chain(g, start, value, size);
    const tir_layout *layout = d.count < 0 ? NULL : blocks_of(f, value, &d);
    if (!layout) return;
    f->given->layouts[value] = layout;
    mark_views(f, start, value);
}

/* The `taken` side: if a chain of moves from a value with `made` to `end` makes the host's blocks, sets the layout of the chain's start
 * and marks the moves as views. */
static void find_taken(const finder *f, graph_id end, const bool *made) {
    const graph *g = f->g;
    graph_id start = chain_start(f, end);
    int64_t size[DLC_MAX_RANK];
    const readers *r = &f->readers[start];
    if (r->refuse || r->host || r->moves != 1 || (f->refused && f->refused[start])) return;
    if (start == end || !made[start] || is_laid(f, start) || !known_sizes(g, end, size)) return;
    digits d = row_major(size, graph_shape_of(g, end)->rank);
    for (graph_id at = end; at != start && d.count >= 0; at = graph_node_of(g, at)->input[0])
        d = through_move(g, graph_node_of(g, at), &d, true);
    const tir_layout *layout = d.count < 0 ? NULL : blocks_of(f, start, &d);
    if (!layout) return;
    f->given->layouts[start] = layout;
    mark_views(f, start, end);
}

/* By value: it is the result of a convolution, or of maps and windows after one. */
static bool *find_images(const finder *f) {
    const graph *g = f->g;
    bool *made = LIB_NEW_ARRAY(f->arena, bool, g->values.count + 1);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (!f->live[n] || node->results != 1 || graph_shape_of(g, node->first)->rank < 3) continue;
        bool is = convolves_blocks(g, node);
        bool follows = takes_blocks(node) && node->op->class_ != GRAPH_CONTRACT;
        for (int k = 0; k < node->inputs && follows; k++) is = is || made[node->input[k]];
        made[node->first] = is;
    }
    return made;
}

graph_given graph_find_given(lib_arena *arena, const graph *g, const bool *live, const bool *refused) {
    graph_given given = {.view = LIB_NEW_ARRAY(arena, bool, g->nodes.count + 1),
                         .layouts = lib_arena_array(arena, g->values.count + 1, sizeof *given.layouts)};
    finder f = {.arena = arena, .g = g, .live = live, .refused = refused, .given = &given};
    bool moves = false;
    for (uint32_t n = 0; n < g->nodes.count; n++)
        moves = moves || (live[n] && g->nodes.data[n].op->structure == GRAPH_PERMUTES);
    if (!moves) return given;
    find_readers(&f);
    const bool *made = find_images(&f);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (!live[n] || !is_move(node)) continue;
        const readers *r = &f.readers[node->first];
        if (r->all > r->moves || r->host) find_given(&f, node->first);
        if ((r->all > r->moves || r->host) && !is_laid(&f, node->first)) find_taken(&f, node->first, made);
    }
    return given;
}
