/* Additions and multiplications by a number for each channel after a contraction or convolution, such as a batch norm with given
 * statistics, become one multiplication and one addition:
 *
 *   (contraction(x, w) + a - mean) * factor + b -> contraction(x, w * factor) + ((a - mean) * factor + b)    small, constant w
 *                                               -> contraction(x, w) * factor + ((a - mean) * factor + b)    other w
 *
 * (a - mean) * factor + b and w * factor depend on constants alone and are computed once. The values on the left must have no other reader.
 * Large weights stay as they are: all programs share their packed copies, while scaled ones would belong to one program; and a factor
 * costs little behind a long sum: a 3 x 3 convolution of 64 channels takes 1 % longer, a depthwise one 8 %.
 *
 * Numbers by which a contraction's operands are multiplied, and the row sums by which softmax divides, are applied to its result:
 *
 *   contraction(x * c, w * d) -> contraction(x, w) * (c * d)    contraction(e / sum e, w) -> contraction(e, w) * (1 / sum e) */
#include "graph/build.h"
#include "graph/inference.h"
#include "graph/internal.h"
#include "graph/ops_common.h"

#include <math.h>

enum { STEPS_MAX = 32 };

/* A node of a chain, which begins with a product (contraction or convolution). Each further node, a step, is +, -, * or / of the chain's
 * value so far and a number for each channel. */
typedef struct link {
    /* 1 + the node of the product; 0: not part of a chain */
    uint32_t product;
    /* of a step: which operand is the chain's value so far */
    int8_t operand;
    /* the result's axis of channels; -1: each step so far has one number for all channels */
    int8_t axis;
    /* a later step of the chain reads it */
    bool inside;
    /* steps so far, and those of them that multiply */
    uint32_t steps, factors;
} link;

typedef struct folder {
    /* the graph that the arrays below describe */
    const graph *of;
    /* by node: equal in every run */
    const bool *fixed;
    /* by value: number of readers */
    uint32_t *readers;
    /* by node */
    link *links;
} folder;

/* For each axis of the operands of a contraction the axis of the result; -1: it is contracted. */
static void find_places(const graph *g, const graph_node *node, int64_t place[2][DLC_MAX_RANK]) {
    const int ranks[] = {graph_shape_of(g, node->input[0])->rank, graph_shape_of(g, node->input[1])->rank};
    graph_dot_places(node->attribute, ranks, place);
}

/* ---- chains ------------------------------------------------------------------------------------------------------- */

/* The axis of the product's weights that is the result's `axis`; -1: there is none. */
static int axis_of_weights(const graph *g, const graph_node *product, int axis) {
    int64_t place[2][DLC_MAX_RANK];
    if (product->op->structure == GRAPH_CONVOLVES) return axis == 1 ? 0 : -1;
    find_places(g, product, place);
    for (int i = 0; i < graph_shape_of(g, product->input[1])->rank; i++)
        if (place[1][i] == axis) return i;
    return -1;
}

static bool is_product(const graph *g, const graph_node *node) {
    if (node->op->structure != GRAPH_CONTRACTS && node->op->structure != GRAPH_CONVOLVES) return false;
    const dlc_dtype dtype = graph_shape_of(g, node->first)->dtype;
    return dtype == DLC_F32 || dtype == DLC_F64;
}

/* May factors go into the product's weights? */
static bool takes_factors(const folder *f, const graph_node *product) {
    const graph *g = f->of;
    const graph_shape *w = graph_shape_of(g, product->input[1]);
    double bytes = (double)lib_dtype_size(w->dtype);
    if (w->dtype != graph_shape_of(g, product->first)->dtype || f->readers[product->input[1]] != 1) return false;
    for (int i = 0; i < w->rank; i++) bytes *= (double)tir_range(g->pool, w->dim[i]).high;
    return bytes < (double)GRAPH_BYTES_LEAST && graph_is_weight(g, product->input[1]);
}

/* Is the value a broadcast of one number, or of numbers along one axis, that depend on constants alone? *axis: that axis; -1: one
 * number. */
static bool is_by_channel(const folder *f, graph_id value, int *axis) {
    const graph *g = f->of;
    const graph_node *node = graph_node_of(g, value);
    if (node->op->structure != GRAPH_REPEATS || !f->fixed[g->values.data[node->input[0]].node]) return false;
    const graph_shape *from = graph_shape_of(g, node->input[0]);
    *axis = -1;
    for (int i = 0; i < from->rank; i++) {
        int64_t size;
        if (!tir_is_const(g->pool, from->dim[i], &size) || (size != 1 && *axis >= 0)) return false;
        if (size != 1) *axis = graph_axis_of(node->attribute[1].list[i], graph_shape_of(g, value)->rank);
    }
    return true;
}

/* Makes the node a step of the chain that operand k is part of, if it is one. */
static bool is_step(folder *f, uint32_t index, int k) {
    const graph *g = f->of;
    const graph_node *node = &g->nodes.data[index];
    const uint32_t below = g->values.data[node->input[k]].node;
    link *so_far = &f->links[below], *own = &f->links[index];
    const bool multiplies = node->op->linear >> k & 1;
    int axis;
    if (!so_far->product || so_far->steps == STEPS_MAX || f->readers[node->input[k]] != 1) return false;
    if (!is_by_channel(f, node->input[1 - k], &axis)) return false;
    if (axis >= 0 && axis_of_weights(g, &g->nodes.data[so_far->product - 1], axis) < 0) return false;
    if (axis >= 0 && so_far->axis >= 0 && axis != so_far->axis) return false;
    *own = (link){.product = so_far->product,
                  .operand = (int8_t)k,
                  .axis = axis >= 0 ? (int8_t)axis : so_far->axis,
                  .steps = so_far->steps + 1,
                  .factors = so_far->factors + multiplies};
    so_far->inside = true;
    return true;
}

static void find_link(folder *f, uint32_t index) {
    static const struct {
        tir_op operation;
        int operands; /* that may be the chain so far */
    } steps[] = {{TIR_ADD, 2}, {TIR_SUB, 2}, {TIR_MUL, 2}, {TIR_DIV, 1}};
    const graph_node *node = &f->of->nodes.data[index];
    if (is_product(f->of, node)) f->links[index] = (link){.product = index + 1, .axis = -1};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int k = 0; graph_map_operation(node->op) == steps[i].operation && k < steps[i].operands; k++)
            if (is_step(f, index, k)) return;
}

/* Has the chain that ends with this link more steps than its folded form would have? */
static bool is_worthwhile(const folder *f, const link *last) {
    const bool stays = last->factors && !takes_factors(f, &f->of->nodes.data[last->product - 1]);
    return last->steps > (uint32_t)stays + (last->steps > last->factors);
}

/* Dissolves the chain that ends with the node. */
static void dissolve(folder *f, uint32_t index) {
    for (link own = f->links[index]; own.steps; own = f->links[index]) {
        const graph_node *node = &f->of->nodes.data[index];
        f->links[index] = (link){0};
        index = f->of->values.data[node->input[own.operand]].node;
        f->links[index].inside = false;
    }
}

static void find_chains(lib_arena *arena, folder *f) {
    const graph *g = f->of;
    const bool *live = graph_live_nodes(arena, g);
    f->fixed = graph_fixed_nodes(arena, g);
    f->readers = graph_count_readers(arena, g, live);
    f->links = LIB_NEW_ARRAY(arena, link, g->nodes.count + 1);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (live[i] && !f->fixed[i]) find_link(f, i);
    for (uint32_t i = g->nodes.count; i-- > 0;)
        if (f->links[i].steps && !f->links[i].inside && !is_worthwhile(f, &f->links[i])) dissolve(f, i);
}

/* ---- folding -------------------------------------------------------------------------------------------------------- */

/* A factor and a shift, of rank 0 or with an entry for each channel; 0: 1 and 0. */
typedef struct affine {
    graph_id factor, shift;
} affine;

/* The numbers of a step, its operand number `operand`, in the new graph: of rank 0 or 1, before the broadcast. */
static graph_id numbers_of(const graph_walk *walk, const graph_node *node, int operand) {
    graph *g = walk->to;
    const graph_id numbers = walk->map[graph_node_of(walk->from, node->input[operand])->input[0]];
    const graph_shape shape = *graph_shape_of(g, numbers);
    for (int i = 0; i < shape.rank; i++) {
        int64_t size;
        if (tir_is_const(g->pool, shape.dim[i], &size) && size != 1) return graph_reshape(g, numbers, 1, &shape.dim[i]);
    }
    return graph_reshape(g, numbers, 0, NULL);
}

static graph_id times(graph *g, graph_id a, graph_id b) {
    return a ? graph_mul(g, a, b) : b;
}

/* a followed by the step `node` with numbers c; operand: which operand of the node is the chain. */
static affine then(graph *g, affine a, const graph_node *node, int operand, graph_id c) {
    const graph_id one = graph_scalar_like(g, c, 1);
    if (graph_map_operation(node->op) == TIR_MUL)
        return (affine){times(g, a.factor, c), a.shift ? graph_mul(g, a.shift, c) : 0};
    if (graph_map_operation(node->op) == TIR_DIV)
        return (affine){graph_div(g, a.factor ? a.factor : one, c), a.shift ? graph_div(g, a.shift, c) : 0};
    if (graph_map_operation(node->op) == TIR_ADD) return (affine){a.factor, a.shift ? graph_add(g, a.shift, c) : c};
    if (operand == 0) return (affine){a.factor, a.shift ? graph_sub(g, a.shift, c) : graph_neg(g, c)};
    return (affine){graph_neg(g, a.factor ? a.factor : one), a.shift ? graph_sub(g, c, a.shift) : c};
}

static affine affine_of(graph_walk *walk, const folder *f, uint32_t index) {
    const link *at = &f->links[index];
    if (!at->steps) return (affine){0, 0};
    const graph_node *node = &walk->from->nodes.data[index];
    const affine before = affine_of(walk, f, walk->from->values.data[node->input[at->operand]].node);
    return then(walk->to, before, node, at->operand, numbers_of(walk, node, 1 - at->operand));
}

static graph_id along(graph *g, graph_id numbers, graph_id like, int axis) {
    const graph_shape shape = *graph_shape_of(g, like);
    const int64_t axes = axis;
    return graph_broadcast(g, numbers, shape.rank, shape.dim, graph_shape_of(g, numbers)->rank ? &axes : NULL);
}

static graph_id folded(graph_walk *walk, const folder *f, uint32_t index) {
    graph *g = walk->to;
    const link *last = &f->links[index];
    const graph_node *product = &walk->from->nodes.data[last->product - 1];
    const affine a = affine_of(walk, f, index);
    graph_attribute attribute[sizeof product->op->attribute / sizeof *product->op->attribute];
    graph_walk_attributes(walk, product, attribute);
    graph_id *input = graph_walk_inputs(walk, product);
    const bool inside = a.factor && takes_factors(f, product);
    if (inside) {
        const int axis = last->axis < 0 ? 0 : axis_of_weights(walk->from, product, last->axis);
        input[1] = graph_mul(g, input[1], along(g, a.factor, input[1], axis));
    }
    graph_id y = graph_emit(g, product->op, product->inputs, input, attribute);
    if (a.factor && !inside) y = graph_mul(g, y, along(g, a.factor, y, last->axis));
    return a.shift ? graph_add(g, y, along(g, a.shift, y, last->axis)) : y;
}

static void pass_fold(graph_walk *walk) {
    const folder *f = walk->user;
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const link *own = f->of == walk->from ? &f->links[i] : NULL;
        if (!live[i] || (own && own->inside)) continue;
        if (!own || !own->steps) {
            graph_walk_node(walk, i);
            continue;
        }
        const graph_id result = folded(walk, f, i);
        graph_walk_record(walk, &walk->from->nodes.data[i], &result);
    }
}

graph *graph_fold_factors(lib_arena *arena, const graph *g) {
    folder f = {.of = g};
    find_chains(arena, &f);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (f.links[i].inside) return graph_walk_run(arena, g, g->phase, NULL, pass_fold, &f);
    return (graph *)(uintptr_t)g;
}

/* ---- factors of contractions' operands: numbers, and the sums by which softmax divides rows ------------------------------- */

/* An operand of a contraction: terms * factor, or terms / factor, where the factor is equal along the contracted axes. */
typedef struct normalized {
    graph_id terms, factor;
    /* by axis of the factor: the axis of the operand */
    const int64_t *axes;
    bool divides;
} normalized;

/* Is the value the sum of the terms over these axes; if not `divides`, a number divided by that sum? */
static bool is_sum_of(const graph *g, graph_id value, graph_id terms, uint32_t axes, bool divides) {
    double number;
    const graph_node *node = graph_node_of(g, value);
    if (!divides) {
        if (graph_map_operation(node->op) != TIR_DIV || !graph_is_number(g, node->input[0], &number)) return false;
        node = graph_node_of(g, node->input[1]);
    }
    while (node->op->structure == GRAPH_REGROUPS || node->op->structure == GRAPH_REPEATS)
        node = graph_node_of(g, node->input[0]);
    return node->op->structure == GRAPH_FOLDS && node->op->operation == TIR_ADD && node->input[0] == terms &&
           graph_axes_of(&node->attribute[0], graph_shape_of(g, terms)->rank, true) == axes;
}

static bool is_normalized(const graph *g, graph_id value, uint32_t contracted, normalized *out) {
    const graph_node *node = graph_node_of(g, value);
    const bool divides = graph_map_operation(node->op) == TIR_DIV;
    if (!divides && graph_map_operation(node->op) != TIR_MUL) return false;
    for (int k = divides; k < 2; k++) {
        const graph_node *stretch = graph_node_of(g, node->input[k]);
        if (stretch->op->structure != GRAPH_REPEATS) continue;
        *out = (normalized){node->input[1 - k], stretch->input[0], stretch->attribute[1].list, divides};
        const graph_shape *factor = graph_shape_of(g, out->factor);
        bool equal = is_sum_of(g, out->factor, out->terms, contracted, divides);
        for (int i = 0; i < factor->rank; i++) {
            const int axis = graph_axis_of(out->axes[i], graph_shape_of(g, value)->rank);
            const bool one = tir_is_number(g->pool, factor->dim[i], 1);
            equal = equal && (one || !(contracted >> axis & 1));
        }
        if (equal) return true;
    }
    return false;
}

/* The factor of *n, or its inverse if n->divides, broadcast to the result's shape. rank: of the operand; place: by axis of the operand,
 * the result's axis. */
static graph_id factor_of(graph_walk *walk, const normalized *n, int rank, const int64_t *place,
                          const graph_shape *result) {
    graph *g = walk->to;
    graph_id factor = walk->map[n->factor];
    const graph_shape shape = *graph_shape_of(g, factor);
    int64_t axes[DLC_MAX_RANK];
    tir_expr dims[DLC_MAX_RANK];
    int kept = 0;
    for (int i = 0; i < shape.rank; i++) {
        const int64_t at = place[graph_axis_of(n->axes[i], rank)];
        if (at < 0) continue;
        dims[kept] = shape.dim[i];
        axes[kept++] = at;
    }
    if (n->divides) factor = graph_div(g, graph_scalar_like(g, factor, 1), factor);
    return graph_broadcast(g, graph_reshape(g, factor, kept, dims), result->rank, result->dim, axes);
}

/* The value in the new graph without numbers by which it is multiplied or divided, directly or before at most `depth` moves and such
 * operations, if all have no other reader. Multiplies *number by these numbers. */
static graph_id without_numbers(graph_walk *walk, const uint32_t *readers, graph_id value, int depth, double *number) {
    const graph *g = walk->from;
    const graph_node *node = graph_node_of(g, value);
    const bool moves = node->op->structure == GRAPH_PERMUTES || node->op->structure == GRAPH_REGROUPS,
               divides = graph_map_operation(node->op) == TIR_DIV;
    double factor;
    if (readers[value] != 1 || !depth || (!moves && !divides && graph_map_operation(node->op) != TIR_MUL))
        return walk->map[value];
    if (!moves) {
        if (!graph_is_number(g, node->input[1], &factor)) return walk->map[value];
        *number *= divides ? 1 / factor : factor;
        return without_numbers(walk, readers, node->input[0], depth - 1, number);
    }
    const graph_id inner = without_numbers(walk, readers, node->input[0], depth - 1, number);
    graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
    if (inner == walk->map[node->input[0]]) return walk->map[value];
    graph_walk_attributes(walk, node, attribute);
    return graph_emit(walk->to, node->op, 1, &inner, attribute);
}

/* The contraction `node` with the factors of its operands applied to its result; 0: it has no such factors, or is no contraction. */
static graph_id factored_product(graph_walk *walk, const graph_node *node, const uint32_t *readers) {
    enum { DEPTH = 6 };
    const graph *g = walk->from;
    normalized found[2] = {{0}};
    int64_t place[2][DLC_MAX_RANK];
    double number = 1;
    graph_id input[2];
    const dlc_dtype dtype = graph_shape_of(g, node->first)->dtype;
    if (node->op->structure != GRAPH_CONTRACTS || (dtype != DLC_F32 && dtype != DLC_F64)) return 0;
    find_places(g, node, place);
    for (int which = 0; which < 2; which++) {
        const graph_id value = node->input[which];
        const graph_shape *shape = graph_shape_of(g, value);
        const uint32_t contracted = graph_axes_of(&node->attribute[2 + which], shape->rank, false);
        if (shape->dtype != dtype) return 0;
        const bool sums = readers[value] == 1 && is_normalized(g, value, contracted, &found[which]);
        if (!sums) found[which].terms = 0;
        input[which] = sums ? walk->map[found[which].terms] : without_numbers(walk, readers, value, DEPTH, &number);
    }
    if (input[0] == walk->map[node->input[0]] && input[1] == walk->map[node->input[1]]) return 0;
    if (!(fabs(number) >= 0x1p-60 && fabs(number) <= 0x1p60)) return 0; /* else results might be 0 or infinite by it */
    graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
    graph_walk_attributes(walk, node, attribute);
    graph_id y = graph_emit(walk->to, node->op, 2, input, attribute);
    const graph_shape result = *graph_shape_of(walk->to, y);
    for (int which = 0; which < 2; which++)
        if (found[which].terms)
            y = graph_mul(
                walk->to, y,
                factor_of(walk, &found[which], graph_shape_of(g, node->input[which])->rank, place[which], &result));
    return number == 1 ? y : graph_mul_number(walk->to, y, number);
}

static void pass_factor(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    const uint32_t *readers = graph_count_readers(walk->to->arena, walk->from, live);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        if (!live[i]) continue;
        const graph_id result = factored_product(walk, &walk->from->nodes.data[i], readers);
        if (result)
            graph_walk_record(walk, &walk->from->nodes.data[i], &result);
        else
            graph_walk_node(walk, i);
    }
}

graph *graph_factor_products(lib_arena *arena, const graph *g) {
    return graph_walk_run(arena, g, g->phase, NULL, pass_factor, NULL);
}
