/* Convolutions of windows of 3 x 3 by Winograd's algorithm, where the host allows its larger error: tiles of 2 x 2 or 4 x 4 results
 * take 16 or 36 products for each pair of channels instead of 36 or 144.
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

typedef struct conv_sizes {
    /* sizes of the convolution; rows and columns of the result */
    double batch, ci, co, rows, columns;
} conv_sizes;

/* ---- cost, in cycles of one core */

static double transform_cycles(double tiles, double channels, double lanes, double each) {
    double vectors = channels / lanes;
    return tiles * (vectors < 1 ? 1 : vectors) * each;
}

/* Cycles for bytes written by one step and read by the next. */
static double between_steps(const tir_machine *machine, double bytes) {
    enum { L2_BYTES = 32, L3_BYTES = 16, MEMORY_BYTES = 4 }; /* bytes per cycle */
    double speed = machine->l2 > 0 && bytes <= (double)machine->l2   ? L2_BYTES
                   : machine->l3 > 0 && bytes <= (double)machine->l3 ? L3_BYTES
                                                                     : MEMORY_BYTES;
    return 2 * bytes / speed;
}

static double products_cycles(const tir_machine *machine, double products) {
    double lanes = machine->vector_bytes / 4.0, ports = machine->fma_ports > 0 ? machine->fma_ports : 1;
    return products / (lanes * ports);
}

static double direct_cycles(const tir_machine *machine, const conv_sizes *s) {
    return products_cycles(machine, 9 * s->batch * s->rows * s->columns * s->ci * s->co);
}

static double whole_vectors(double channels, double lanes) {
    return ceil(channels / lanes) * lanes;
}

static double winograd_cycles(const tir_machine *machine, const conv_sizes *s, int tile) {
    const double start = 8; /* overhead of a register tile of the contraction, in steps */
    double lanes = machine->vector_bytes / 4.0, points = (tile + 2) * (tile + 2);
    double efficiency = 0.9 * s->ci / (s->ci + start);
    double tiles = s->batch * ceil(s->rows / tile) * ceil(s->columns / tile);
    double products = products_cycles(machine, points * tiles * s->ci * whole_vectors(s->co, lanes)) / efficiency;
    double weights = between_steps(machine, points * s->ci * s->co * 4) / 2; /* streamed once */
    double input = transform_cycles(tiles, s->ci, lanes, tile == 4 ? 260 : 110);
    double output = transform_cycles(tiles, s->co, lanes, tile == 4 ? 170 : 70);
    double order = 3 * s->batch * s->rows * s->columns * s->ci / lanes; /* channels last, if they are not */
    return (products > weights ? products : weights) + input + output + order +
           between_steps(machine, points * tiles * s->ci * 4) + between_steps(machine, points * tiles * s->co * 4);
}

int graph_winograd_tile(const tir_machine *machine, double batch, double ci, double co, double rows, double columns) {
    const double least_gain = 0.8;
    const conv_sizes s = {batch, ci, co, rows, columns};
    double best = direct_cycles(machine, &s) * least_gain;
    int chosen = 0;
    for (int tile = 2; tile <= 4; tile += 2) {
        double cycles = winograd_cycles(machine, &s, tile);
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

static bool all_are(const graph_attribute *list, int64_t low, int64_t high) {
    for (int i = 0; i < list->count; i++)
        if (list->list[i] < low || list->list[i] > high) return false;
    return true;
}

/* Is it a convolution of stride 1 with constant 3 x 3 windows and known image sizes? */
static bool is_candidate(const graph_walk *walk, const rewriter *r, const graph_node *node) {
    const graph *g = walk->from;
    int64_t size;
    if (strcmp(node->op->name, "convolution") != 0 || r->of != g) return false;
    const graph_shape *x = graph_shape_of(g, node->input[0]), *w = graph_shape_of(g, node->input[1]);
    const graph_shape *y = graph_shape_of(g, node->first);
    if (x->rank != 4 || x->dtype != DLC_F32 || w->dtype != DLC_F32 || y->dtype != DLC_F32) return false;
    if (!r->fixed[g->values.data[node->input[1]].node] || attribute_of(node, "groups")->integer != 1) return false;
    if (!all_are(attribute_of(node, "stride"), 1, 1) || !all_are(attribute_of(node, "dilation"), 1, 1) ||
        !all_are(attribute_of(node, "low"), 0, 2) || !all_are(attribute_of(node, "high"), 0, 2))
        return false;
    for (int d = 0; d < 4; d++)
        if (!tir_is_const(g->pool, w->dim[d], &size) || size < 1 || (d > 1 && size != 3)) return false;
    for (int d = 1; d < 4; d++)
        if (!tir_is_const(g->pool, y->dim[d], &size) || size < 1) return false;
    return true;
}

static double known(const graph *g, tir_expr dim) {
    int64_t size;
    return tir_is_const(g->pool, dim, &size) ? (double)size : 1;
}

/* G w G^T [t + 2, t + 2, ci, co], in double precision until it is stored. */
static graph_id transformed_windows(graph *g, graph_id w, int tile) {
    static const double rows[2][6][3] = {{{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
                                         {{1 / 4.0, 0, 0},
                                          {-1 / 6.0, -1 / 6.0, -1 / 6.0},
                                          {-1 / 6.0, 1 / 6.0, -1 / 6.0},
                                          {1 / 24.0, 1 / 12.0, 1 / 6.0},
                                          {1 / 24.0, -1 / 12.0, 1 / 6.0},
                                          {0, 0, 1}}};
    int points = tile + 2;
    double matrix[6 * 6 * 9];
    for (int a = 0; a < points; a++)
        for (int b = 0; b < points; b++)
            for (int i = 0; i < 9; i++)
                matrix[(a * points + b) * 9 + i] = rows[tile == 4][a][i / 3] * rows[tile == 4][b][i % 3];
    const graph_shape *shape = graph_shape_of(g, w);
    tir_expr dims[3] = {shape->dim[0], shape->dim[1], tir_index(g->pool, 9)};
    graph_id k = graph_literal(g, DLC_F64, 3, (int64_t[]){points, points, 9}, matrix);
    graph_id flat = graph_cast(g, graph_reshape(g, w, 3, dims), DLC_F64);
    graph_id u = graph_contract(g, k, flat, 0, NULL, NULL, 1, (int64_t[]){2}, (int64_t[]){2});
    return graph_transpose(g, graph_cast(g, u, DLC_F32), (int64_t[]){0, 1, 3, 2});
}

static graph_id rewrite(graph *g, const graph_node *node, const graph_id *input, const graph_shape *y, int tile) {
    graph_setting setting[3] = {graph_set_integer("tile", tile == 4)};
    int count = 1;
    static const char *const names[2] = {"low", "high"};
    for (int i = 0; i < 2; i++) {
        const graph_attribute *list = attribute_of(node, names[i]);
        if (list->count) setting[count++] = graph_set_list(names[i], list->count, list->list);
    }
    graph_id v = graph_emit_with(g, "winograd_input", 1, &input[0], count, setting);
    graph_id u = transformed_windows(g, input[1], tile);
    const int64_t batch[2] = {0, 1};
    graph_id m = graph_contract(g, v, u, 2, batch, batch, 1, (int64_t[]){3}, (int64_t[]){2});
    setting[1] = graph_set_dims("shape", 3, (tir_expr[]){y->dim[0], y->dim[2], y->dim[3]});
    return graph_emit_with(g, "winograd_output", 1, &m, 2, setting);
}

static void pass_winograd(graph_walk *walk) {
    rewriter *r = walk->user;
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const graph_node *node = &walk->from->nodes.data[i];
        if (!live[i]) continue;
        int tile = 0;
        if (is_candidate(walk, r, node)) {
            const graph_shape *y = graph_shape_of(walk->from, node->first),
                              *x = graph_shape_of(walk->from, node->input[0]);
            tile = graph_winograd_tile(r->machine, known(walk->from, y->dim[0]), known(walk->from, x->dim[1]),
                                       known(walk->from, y->dim[1]), known(walk->from, y->dim[2]),
                                       known(walk->from, y->dim[3]));
        }
        if (!tile) {
            graph_walk_node(walk, i);
            continue;
        }
        graph_shape y = *graph_shape_of(walk->from, node->first);
        for (int d = 0; d < y.rank; d++) y.dim[d] = graph_walk_dim(walk, y.dim[d]);
        graph_id result = rewrite(walk->to, node, graph_walk_inputs(walk, node), &y, tile);
        graph_walk_record(walk, node, &result);
    }
}

graph *graph_winograd(lib_arena *arena, const graph *g, const tir_machine *machine) {
    rewriter r = {.machine = machine, .of = g, .fixed = graph_fixed_nodes(arena, g)};
    return graph_walk_run(arena, g, g->phase, NULL, pass_winograd, &r);
}
