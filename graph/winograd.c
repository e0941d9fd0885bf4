/* Convolutions of windows of 3 or of 3 x 3 by Winograd's algorithm, where the host allows its larger error: tiles of 2 x 2 or 4 x 4 results
 * take 16 or 36 products for each pair of channels instead of 36 or 144, tiles of 2 or 4 results 4 or 6 instead of 6 or 12.
 *
 *   convolution(x, w) -> winograd_output(dot_general(winograd_input(x), G w G^T))
 *
 * The windows are constant, so that their transform is computed once; operators after the convolution are fused with the last step, as
 * they would be with the convolution. The cheapest of the three variants is chosen: multiply-adds, transforms by tile and vector of channels, and
 * the bytes between the steps at the speed of the cache that holds them. */
#include "graph/winograd.h"
#include "graph/build.h"
#include "graph/internal.h"

#include <math.h>

enum { MOST_DIMS = 2 /* along which windows extend */ };

typedef struct conv_sizes {
    int dims;
    double batch, ci, co;
    /* results by dimension */
    double size[MOST_DIMS];
    /* distance of a window's elements */
    double dilation;
} conv_sizes;

/* ---- cost, in cycles of one core */

static double transform_cycles(double tiles, double channels, double lanes, double each) {
    double vectors = channels / lanes;
    return tiles * (vectors < 1 ? 1 : vectors) * each;
}

/* Cycles for bytes written by one step and read by the next. */
static double between_steps(const tir_machine *machine, double bytes) {
    const int level = bytes <= (double)machine->l2 ? 1 : bytes <= (double)machine->l3 ? 2 : 3;
    return 2 * bytes / machine->rates.distant[level];
}

static double products_cycles(const tir_machine *machine, double products) {
    double lanes = machine->vector_bytes / 4.0;
    return products / (lanes * machine->rates.fma);
}

static double results_of(const conv_sizes *s) {
    return s->batch * s->size[0] * (s->dims == 2 ? s->size[1] : 1);
}

static double direct_cycles(const tir_machine *machine, const conv_sizes *s) {
    return products_cycles(machine, pow(3, s->dims) * results_of(s) * s->ci * s->co);
}

static double whole_vectors(double channels, double lanes) {
    return ceil(channels / lanes) * lanes;
}

static double tiles_of(const conv_sizes *s, int tile) {
    double tiles = s->batch;
    for (int i = 0; i < s->dims; i++) tiles *= ceil(s->size[i] / (tile * s->dilation)) * s->dilation;
    return tiles;
}

static double winograd_cycles(const tir_machine *machine, const conv_sizes *s, int tile) {
    const double start = 2; /* overhead of a register tile of the contraction, in steps */
    double lanes = machine->vector_bytes / 4.0, points = pow(tile + 2, s->dims);
    double efficiency = 0.95 * s->ci / (s->ci + start);
    double tiles = tiles_of(s, tile);
    double products = products_cycles(machine, points * tiles * s->ci * whole_vectors(s->co, lanes)) / efficiency;
    double weights = between_steps(machine, points * s->ci * s->co * 4) / 2; /* streamed once */
    /* rows of points that are transformed, of a tile */
    double read = s->dims == 2 ? 2 * (tile + 2) : 1, written = s->dims == 2 ? 2 * tile + 2 : 1;
    double input = transform_cycles(tiles, s->ci, lanes, read * (tile == 4 ? 22 : 14));
    double output = transform_cycles(tiles, s->co, lanes, written * (tile == 4 ? 17 : 12));
    double order = 3 * results_of(s) * s->ci / lanes; /* channels last, if they are not */
    return (products > weights ? products : weights) + input + output + order +
           between_steps(machine, points * tiles * s->ci * 4) + between_steps(machine, points * tiles * s->co * 4);
}

/* Number of results of the cheapest tile along each dimension; 0: no tile takes less than 0.8 of the direct convolution's cycles. */
static int cheapest_tile(const tir_machine *machine, const conv_sizes *s) {
    const double least_gain = 0.8;
    double best = direct_cycles(machine, s) * least_gain;
    int chosen = 0;
    for (int tile = 2; tile <= 4; tile += 2) {
        double cycles = winograd_cycles(machine, s, tile);
        if (cycles >= best) continue;
        best = cycles;
        chosen = tile;
    }
    return chosen;
}

/* ---- the rewrite */

typedef struct rewriter {
    const tir_machine *machine;
    /* the graph that `fixed` refers to */
    const graph *of;
    const bool *fixed;
} rewriter;

static const graph_attribute *attribute_of(const graph_node *node, const char *name) {
    return &node->attribute[graph_op_attribute(node->op, name)];
}

static int64_t entry_of(const graph_node *node, const char *name, int dim, int64_t otherwise) {
    const graph_attribute *list = attribute_of(node, name);
    return list->count ? list->list[dim] : otherwise;
}

/* Does the window move along the dimension by one element, and reach into the padding by no more than its own extent? */
static bool moves_by_one(const graph_node *node, int dim) {
    const int64_t reach = 2 * entry_of(node, "dilation", dim, 1), low = entry_of(node, "low", dim, 0),
                  high = entry_of(node, "high", dim, 0);
    return entry_of(node, "stride", dim, 1) == 1 && low >= 0 && low <= reach && high >= 0 && high <= reach;
}

/* Are the sizes of the windows w and of the results y, except the batch, known and positive, the windows' extents 3? */
static bool has_known_sizes(const graph *g, const graph_shape *w, const graph_shape *y, int rank) {
    int64_t size;
    for (int d = 0; d < rank; d++)
        if (!tir_is_const(g->pool, w->dim[d], &size) || size < 1 || (d > 1 && size != 3)) return false;
    for (int d = 1; d < rank; d++)
        if (!tir_is_const(g->pool, y->dim[d], &size) || size < 1) return false;
    return true;
}

/* Is it a convolution of stride 1 with constant windows of 3, or of 3 x 3 neighbours, and known sizes? */
static bool is_candidate(const graph_walk *walk, const rewriter *r, const graph_node *node) {
    const graph *g = walk->from;
    if (node->op->structure != GRAPH_CONVOLVES || r->of != g) return false;
    const graph_shape *x = graph_shape_of(g, node->input[0]), *w = graph_shape_of(g, node->input[1]);
    const graph_shape *y = graph_shape_of(g, node->first);
    const int dims = x->rank - 2;
    if (dims < 1 || dims > MOST_DIMS || x->dtype != DLC_F32 || w->dtype != DLC_F32 || y->dtype != DLC_F32) return false;
    if (!r->fixed[g->values.data[node->input[1]].node] || attribute_of(node, "groups")->integer != 1) return false;
    for (int i = 0; i < dims; i++)
        if (!moves_by_one(node, i) || entry_of(node, "dilation", i, 1) > (dims > 1 ? 1 : GRAPH_WINOGRAD_DILATION))
            return false;
    return has_known_sizes(g, w, y, x->rank);
}

static double known(const graph *g, tir_expr dim) {
    int64_t size;
    return tir_is_const(g->pool, dim, &size) ? (double)size : 1;
}

static conv_sizes sizes_of(const graph *g, const graph_node *node) {
    const graph_shape *x = graph_shape_of(g, node->input[0]), *y = graph_shape_of(g, node->first);
    conv_sizes s = {
        .dims = x->rank - 2,
        .batch = known(g, y->dim[0]),
        .ci = known(g, x->dim[1]),
        .co = known(g, y->dim[1]),
        .dilation = (double)entry_of(node, "dilation", 0, 1),
    };
    for (int i = 0; i < s.dims; i++) s.size[i] = known(g, y->dim[2 + i]);
    return s;
}

/* G w G^T [t + 2, t + 2, ci, co], or G w [t + 2, ci, co], in double precision until it is stored. */
static graph_id transformed_windows(graph *g, graph_id w, int tile) {
    enum { POINTS = 6 };
    static const double rows[2][POINTS][3] = {{{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
                                              {{1 / 4.0, 0, 0},
                                               {-1 / 6.0, -1 / 6.0, -1 / 6.0},
                                               {-1 / 6.0, 1 / 6.0, -1 / 6.0},
                                               {1 / 24.0, 1 / 12.0, 1 / 6.0},
                                               {1 / 24.0, -1 / 12.0, 1 / 6.0},
                                               {0, 0, 1}}};
    const graph_shape *shape = graph_shape_of(g, w);
    const int points = tile + 2, dims = shape->rank - 2, window = dims == 2 ? 9 : 3;
    const int all = dims == 2 ? points * points : points;
    double matrix[POINTS * POINTS * 9];
    for (int p = 0; p < all; p++)
        for (int i = 0; i < window; i++) {
            matrix[p * window + i] = rows[tile == 4][p % points][i % 3];
            if (dims == 2) matrix[p * window + i] *= rows[tile == 4][p / points][i / 3];
        }
    const int64_t sizes[] = {points, dims == 2 ? points : window, window};
    tir_expr flat[3] = {shape->dim[0], shape->dim[1], tir_index(g->pool, window)};
    graph_id k = graph_literal(g, DLC_F64, dims + 1, sizes, matrix);
    graph_id windows = graph_cast(g, graph_reshape(g, w, 3, flat), DLC_F64);
    graph_id u = graph_contract(g, k, windows, 0, NULL, NULL, 1, (int64_t[]){dims}, (int64_t[]){2});
    return graph_transpose(g, graph_cast(g, u, DLC_F32), dims == 2 ? (int64_t[]){0, 1, 3, 2} : (int64_t[]){0, 2, 1});
}

static graph_id rewrite(graph *g, const graph_node *node, const graph_id *input, const graph_shape *y, int tile) {
    const int dims = y->rank - 2;
    graph_setting setting[4] = {graph_set_integer("tile", tile == 4),
                                graph_set_integer("dilation", entry_of(node, "dilation", 0, 1))};
    int count = 2;
    static const char *const names[] = {"low", "high"};
    for (int i = 0; i < 2; i++) {
        const graph_attribute *list = attribute_of(node, names[i]);
        if (list->count) setting[count++] = graph_set_list(names[i], list->count, list->list);
    }
    graph_id v = graph_emit_with(g, "winograd_input", 1, &input[0], count, setting);
    graph_id u = transformed_windows(g, input[1], tile);
    const int64_t batch[MOST_DIMS] = {0, 1}, of_v = dims + 1, of_u = dims;
    graph_id m = graph_contract(g, v, u, dims, batch, batch, 1, &of_v, &of_u);
    const tir_expr shape[1 + MOST_DIMS] = {y->dim[0], y->dim[2], dims == 2 ? y->dim[3] : 0};
    setting[2] = graph_set_dims("shape", 1 + dims, shape);
    return graph_emit_with(g, "winograd_output", 1, &m, 3, setting);
}

static void pass_winograd(graph_walk *walk) {
    rewriter *r = walk->user;
    const graph *from = walk->from;
    const bool *live = graph_live_nodes(walk->to->arena, from);
    for (uint32_t i = 0; i < from->nodes.count; i++) {
        const graph_node *node = &from->nodes.data[i];
        if (!live[i]) continue;
        int tile = 0;
        if (is_candidate(walk, r, node)) {
            const conv_sizes sizes = sizes_of(from, node);
            tile = cheapest_tile(r->machine, &sizes);
        }
        if (!tile) {
            graph_walk_node(walk, i);
            continue;
        }
        graph_shape y = *graph_shape_of(from, node->first);
        for (int d = 0; d < y.rank; d++) y.dim[d] = graph_walk_dim(walk, y.dim[d]);
        graph_id result = rewrite(walk->to, node, graph_walk_inputs(walk, node), &y, tile);
        graph_walk_record(walk, node, &result);
    }
}

graph *graph_winograd(lib_arena *arena, const graph *g, const tir_machine *machine) {
    rewriter r = {.machine = machine, .of = g, .fixed = graph_fixed_nodes(arena, g)};
    return graph_walk_run(arena, g, g->phase, NULL, pass_winograd, &r);
}
