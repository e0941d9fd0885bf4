/* Quantised networks as exporters write them, in floats between dequantize_linear and quantize_linear, compute on the integers:
 *
 *   contraction or convolution(dequantize x, dequantize w) -> float(sums of integers) * (x_scale * w_scale)
 *   move(dequantize x)                                     -> dequantize(move x)      also concat, pad, greatest and least elements
 *   quantize(dequantize x), the same parameters            -> x
 *   quantize(y)                                            -> round(y * (1 / scale)) + zero_point, saturated
 *
 * The first rewrite is made only if w is a constant and the machine has an instruction for products of bytes. Operators between a contraction
 * and the next quantize_linear (bias, activation, sums with other branches) are computed in floats, in the kernel of the contraction. Sums
 * and moves of integers are exact; only factors round. So a quantised result differs from the one computed in floats by at most one step,
 * and only where the exact result is near the middle between two steps.
 *
 * The instruction multiplies unsigned by signed bytes. So a quantize_linear to i8 computes u8 with a zero point that is 128 higher, and its
 * dequantize_linear reads the u8. All other composites are expanded first, so that this file has to know few operators only. */
#include "graph/build.h"
#include "graph/inference.h"
#include "graph/internal.h"
#include "graph/ops_common.h"
#include "tir/unit.h"

#include <math.h>

enum { HALF = 128 }; /* between u8 and i8 */

/* The dequantized value (q - zero) * scale. */
typedef struct quantized {
    /* zero 0: none */
    graph_id q, scale, zero;
    /* axis of q along which scale and zero have an entry for each index; -1: one entry for all elements */
    int axis;
    /* blocked parameters, of q's rank: number of elements along the axis that share an entry; 0: not blocked */
    int64_t block;
} quantized;

/* A node about to be emitted into g. */
typedef struct visit {
    graph *g;
    const tir_machine *machine;
    const graph_op *op;
    int inputs;
    const graph_id *input;
    const graph_attribute *attribute;
} visit;

static const graph_attribute *setting_of(const visit *v, const char *name) {
    return &v->attribute[graph_op_attribute(v->op, name)];
}

static bool is_byte(dlc_dtype dtype) {
    return dtype == DLC_U8 || dtype == DLC_I8;
}

static dlc_dtype dtype_of(const graph *g, graph_id value) {
    return graph_shape_of(g, value)->dtype;
}

/* ---- composites that are not expanded first ------------------------------------------------------------------------ */

static const graph_attribute *attribute_of(const graph_node *node, const char *name) {
    return &node->attribute[graph_op_attribute(node->op, name)];
}

static bool dequantizes(const graph *g, const graph_node *node) {
    return node->op == &graph_row_dequantize_linear && dtype_of(g, node->input[1]) == DLC_F32;
}

static bool quantizes_to_bytes(const graph *g, const graph_node *node) {
    return node->op == &graph_row_quantize_linear && !attribute_of(node, "block")->integer &&
           is_byte(dtype_of(g, node->first)) && dtype_of(g, node->input[0]) == DLC_F32 &&
           dtype_of(g, node->input[1]) == DLC_F32 && graph_shape_of(g, node->input[1])->rank == 0 &&
           (!node->input[2] || graph_shape_of(g, node->input[2])->rank == 0);
}

static bool converts(const graph *g, const graph_node *node) {
    return dequantizes(g, node) || quantizes_to_bytes(g, node);
}

static bool expands_first(const graph *g, const graph_node *node) {
    return graph_has_expansion(g, node) && !converts(g, node);
}

/* ---- parameters --------------------------------------------------------------------------------------------------- */

static bool is_dequantized(const graph *g, graph_id value, quantized *out) {
    const graph_node *node = graph_node_of(g, value);
    if (!dequantizes(g, node)) return false;
    *out = (quantized){node->input[0], node->input[1], node->input[2], -1, attribute_of(node, "block")->integer};
    if (graph_shape_of(g, out->scale)->rank || (out->zero && graph_shape_of(g, out->zero)->rank))
        out->axis = graph_axis_of(attribute_of(node, "axis")->integer, graph_shape_of(g, value)->rank);
    return true;
}

/* Is x.q of bytes, and are its parameters not blocked? */
static bool are_bytes(const graph *g, const quantized *x) {
    return is_byte(dtype_of(g, x->q)) && !x->block;
}

static bool is_quantized(const graph *g, graph_id value, quantized *out) {
    return is_dequantized(g, value, out) && are_bytes(g, out);
}

static graph_id dequantized(graph *g, const quantized *x) {
    const graph_setting setting[] = {graph_set_integer("axis", x->axis), graph_set_integer("block", x->block)};
    return graph_emit_with(g, "dequantize_linear", 3, (graph_id[]){x->q, x->scale, x->zero}, x->axis >= 0 ? 2 : 0,
                           setting);
}

static bool same_parameters(const quantized *a, const quantized *b) {
    return a->scale == b->scale && a->zero == b->zero && a->axis < 0 && b->axis < 0;
}

/* Is the scale a constant number that is positive and, as its inverse, normal in f32? */
static bool is_positive(const graph *g, graph_id scale) {
    const double least = 0x1p-126, most = 0x1p126;
    double number;
    return graph_is_number(g, scale, &number) && number >= least && number <= most;
}

/* Is the zero point missing or known to be 0? */
static bool is_at_zero(const graph *g, graph_id zero) {
    double number;
    return !zero || (graph_is_number(g, zero, &number) && number == 0);
}

/* x + shift, where x and the result are of 8 bits, dtype being the result's type. */
static graph_id shifted(graph *g, graph_id x, int shift, dlc_dtype dtype) {
    return graph_cast(g, graph_add_number(g, graph_cast(g, x, DLC_I32), shift), dtype);
}

static graph_id raised_zero(graph *g, graph_id zero) {
    return zero ? shifted(g, zero, HALF, DLC_U8) : graph_scalar(g, DLC_U8, HALF);
}

/* The u8 value from which x, of i8, was computed by shifted(..., -HALF, DLC_I8); 0: x is no such value. */
static graph_id raised(const graph *g, graph_id x) {
    static const tir_op steps[] = {TIR_CAST, TIR_ADD, TIR_CAST};
    double number = -HALF;
    if (dtype_of(g, x) != DLC_I8) return 0;
    for (int i = 0; i < 3; i++) {
        const graph_node *node = graph_node_of(g, x);
        if (graph_map_operation(node->op) != steps[i]) return 0;
        if (i == 1 && !graph_is_number(g, node->input[1], &number)) return 0;
        x = node->input[0];
    }
    return number == -HALF && dtype_of(g, x) == DLC_U8 ? x : 0;
}

/* ---- quantize and dequantize -------------------------------------------------------------------------------------- */

static graph_id visit_dequantize(const visit *v) {
    graph *g = v->g;
    const graph_id unsigned_ = dtype_of(g, v->input[0]) == DLC_I8 ? raised(g, v->input[0]) : 0;
    if (!unsigned_) return 0;
    const graph_id input[] = {unsigned_, v->input[1], raised_zero(g, v->input[2])};
    return graph_emit(g, v->op, 3, input, v->attribute);
}

/* y quantized to u8 by the parameters of *as. */
static graph_id quantized_by(graph *g, const quantized *as, graph_id y) {
    if (!is_positive(g, as->scale)) {
        const graph_setting dtype = graph_set_integer("dtype", DLC_U8);
        return graph_emit_with(g, "quantize_linear", 3, (graph_id[]){y, as->scale, as->zero}, 1, &dtype);
    }
    double scale;
    graph_is_number(g, as->scale, &scale);
    y = graph_round(g, graph_mul_number(g, y, 1 / scale));
    if (as->zero && !is_at_zero(g, as->zero)) y = graph_add(g, y, graph_cast(g, as->zero, DLC_F32));
    return graph_cast(g, y, DLC_U8);
}

static graph_id visit_quantize(const visit *v) {
    graph *g = v->g;
    const dlc_dtype dtype = (dlc_dtype)setting_of(v, "dtype")->integer;
    const bool low = dtype == DLC_I8;
    quantized as = {0, v->input[1], v->input[2], -1, 0}, from;
    const bool again = is_quantized(g, v->input[0], &from) && is_positive(g, as.scale);
    if (again && same_parameters(&as, &from) && dtype_of(g, from.q) == dtype) return from.q;
    if (low) as.zero = raised_zero(g, as.zero);
    const bool same = again && same_parameters(&as, &from) && dtype_of(g, from.q) == DLC_U8;
    as.q = same ? from.q : quantized_by(g, &as, v->input[0]);
    return low ? shifted(g, as.q, -HALF, DLC_I8) : as.q;
}

/* ---- moves -------------------------------------------------------------------------------------------------------- */

static tir_expr product(tir_pool *pool, const tir_expr *dims, int count) {
    tir_expr result = tir_index(pool, 1);
    for (int i = 0; i < count; i++) result = tir_mul(pool, result, dims[i]);
    return result;
}

/* For each move: the result's axis that corresponds to `axis` of the first operand; -1: none does. */
static int transposed_axis(const visit *v, const graph_shape *from, const graph_shape *to, int axis) {
    (void)from;
    for (int i = 0; i < to->rank; i++)
        if (graph_axis_of(v->attribute[0].list[i], to->rank) == axis) return i;
    return -1;
}

static int reshaped_axis(const visit *v, const graph_shape *from, const graph_shape *to, int axis) {
    tir_pool *pool = v->g->pool;
    const tir_expr before = product(pool, from->dim, axis);
    for (int i = 0; i < to->rank; i++)
        if (tir_equal(pool, to->dim[i], from->dim[axis]) == TIR_YES &&
            tir_equal(pool, product(pool, to->dim, i), before) == TIR_YES)
            return i;
    return -1;
}

static int stretched_axis(const visit *v, const graph_shape *from, const graph_shape *to, int axis) {
    const int at = graph_axis_of(setting_of(v, "axes")->list[axis], to->rank);
    return tir_equal(v->g->pool, from->dim[axis], to->dim[at]) == TIR_YES ? at : -1;
}

static int cut_axis(const visit *v, const graph_shape *from, const graph_shape *to, int axis) {
    return tir_equal(v->g->pool, from->dim[axis], to->dim[axis]) == TIR_YES ? axis : -1;
}

typedef int axis_after(const visit *v, const graph_shape *from, const graph_shape *to, int axis);

/* Emits the node with `first` as its first operand. */
static graph_id emit_on(const visit *v, graph_id first) {
    graph_id *input = LIB_NEW_ARRAY(v->g->arena, graph_id, (size_t)v->inputs);
    memcpy(input, v->input, (size_t)v->inputs * sizeof *input);
    input[0] = first;
    return graph_emit(v->g, v->op, v->inputs, input, v->attribute);
}

/* move(dequantize x) -> dequantize(move x); 0: no such move. With blocked parameters only for transpositions. */
static graph_id moved(const visit *v, const quantized *x) {
    static axis_after *const axes[] = {[GRAPH_REPEATS] = stretched_axis,
                                       [GRAPH_SELECTS] = cut_axis,
                                       [GRAPH_REGROUPS] = reshaped_axis,
                                       [GRAPH_PERMUTES] = transposed_axis,
                                       [GRAPH_PICKS] = NULL};
    const graph_structure structure = v->op->structure;
    if (structure < GRAPH_REPEATS || structure > GRAPH_PICKS || (x->axis >= 0 && !axes[structure])) return 0;
    if (x->block && structure != GRAPH_PERMUTES) return 0;
    quantized y = *x;
    y.q = emit_on(v, x->q);
    const graph_shape from = *graph_shape_of(v->g, x->q), to = *graph_shape_of(v->g, y.q);
    if (x->axis >= 0) y.axis = axes[structure](v, &from, &to, x->axis);
    if (x->axis >= 0 && y.axis < 0) return 0;
    if (x->block) y.scale = emit_on(v, x->scale);
    if (x->block && x->zero) y.zero = emit_on(v, x->zero);
    return dequantized(v->g, &y);
}

static graph_id padded(const visit *v, const quantized *x) {
    double value;
    if (x->axis >= 0 || !graph_is_number(v->g, v->input[1], &value) || value != 0) return 0;
    const graph_id fill = x->zero ? x->zero : graph_scalar(v->g, dtype_of(v->g, x->q), 0);
    quantized y = *x;
    y.q = graph_emit(v->g, v->op, 2, (graph_id[]){x->q, fill}, v->attribute);
    return dequantized(v->g, &y);
}

static graph_id joined(const visit *v, const quantized *x) {
    graph_id *input = LIB_NEW_ARRAY(v->g->arena, graph_id, (size_t)v->inputs);
    for (int i = 0; i < v->inputs; i++) {
        quantized part;
        if (!is_quantized(v->g, v->input[i], &part) || !same_parameters(x, &part)) return 0;
        if (dtype_of(v->g, part.q) != dtype_of(v->g, x->q)) return 0;
        input[i] = part.q;
    }
    quantized y = *x;
    y.q = graph_emit(v->g, v->op, v->inputs, input, v->attribute);
    return dequantized(v->g, &y);
}

/* Does every window contain an element of x, not only padding, whatever x's size? */
static bool is_never_empty(const visit *v) {
    const graph_attribute *window = setting_of(v, "window"), *dilation = setting_of(v, "dilation");
    for (int i = 0; i < window->count; i++) {
        const int64_t low = graph_list_entry(setting_of(v, "low"), i, 0),
                      high = graph_list_entry(setting_of(v, "high"), i, 0);
        const bool apart = graph_list_entry(dilation, i, 1) != 1;
        if ((low > 0 || high > 0) && (apart || low >= window->list[i] || high >= window->list[i])) return false;
    }
    return true;
}

/* greatest(dequantize x) -> dequantize(greatest x), also for least elements: a positive scale keeps the order. */
static graph_id greatest(const visit *v, const quantized *x) {
    enum { SUM };
    if (x->axis >= 0 || !is_positive(v->g, x->scale)) return 0;
    if (v->op->structure == GRAPH_FOLDS_WINDOWS && (setting_of(v, "op")->integer == SUM || !is_never_empty(v)))
        return 0;
    quantized y = *x;
    y.q = graph_emit(v->g, v->op, 1, &x->q, v->attribute);
    return dequantized(v->g, &y);
}

/* ---- products ----------------------------------------------------------------------------------------------------- */

/* Most terms of a sum of products of differences of bytes: each product is below 2^16, so that sums fit i32. */
enum { TERMS_MAX = 1 << 15 };

/* Has the machine a unit that adds products of u8 and i8 to i32? Without it, products of bytes are slower than those
 * of floats. */
static bool multiplies_bytes(const visit *v) {
    return tir_machine_multiplies(v->machine, DLC_U8, DLC_I8, DLC_I32);
}

static bool are_few(const graph *g, int count, const tir_expr *dims) {
    double terms = 1;
    for (int i = 0; i < count; i++) terms *= (double)tir_range(g->pool, dims[i]).high;
    return terms <= (double)TERMS_MAX;
}

bool graph_is_weight(const graph *g, graph_id value) {
    while (graph_node_of(g, value)->op->class_ == GRAPH_INJECTIVE) value = graph_node_of(g, value)->input[0];
    return graph_constant_of(g, value) != NULL;
}

static void make_unsigned(graph *g, quantized *x) {
    if (dtype_of(g, x->q) == DLC_U8) return;
    x->q = shifted(g, x->q, HALF, DLC_U8);
    x->zero = raised_zero(g, x->zero);
}

static void make_signed(graph *g, quantized *w) {
    if (dtype_of(g, w->q) == DLC_I8) return;
    w->q = shifted(g, w->q, -HALF, DLC_I8);
    w->zero = w->zero ? shifted(g, w->zero, -HALF, DLC_I8) : graph_scalar(g, DLC_I8, -HALF);
}

/* Axes of an operand of dot_general: the contracted ones, and by axis the axis of the result (-1: it is contracted). */
typedef struct places {
    const graph_attribute *contract;
    const int64_t *axis;
} places;

/* The parameter (scale or zero point) of operand x, broadcast to the result's shape. */
static graph_id parameter_in(graph *g, graph_id parameter, const quantized *x, const places *at,
                             const graph_shape *result) {
    if (graph_shape_of(g, parameter)->rank == 0) return graph_broadcast(g, parameter, result->rank, result->dim, NULL);
    return graph_broadcast(g, parameter, result->rank, result->dim, &at->axis[x->axis]);
}

/* Sums of x.q over the contracted axes, i32, of x's remaining axes in their order. */
static graph_id sums_over(graph *g, const quantized *x, const places *at) {
    return graph_reduce_sum(g, graph_cast(g, x->q, DLC_I32), at->contract->count, at->contract->list, false);
}

/* sums_over's result, broadcast to the result's shape. */
static graph_id sums_in(graph *g, graph_id sums, const quantized *x, const places *at, const graph_shape *result) {
    int64_t axes[DLC_MAX_RANK];
    int kept = 0;
    for (int i = 0; i < graph_shape_of(g, x->q)->rank; i++)
        if (at->axis[i] >= 0) axes[kept++] = at->axis[i];
    return graph_broadcast(g, sums, result->rank, result->dim, axes);
}

/* x's zero point times the number of terms, broadcast to the shape of `sums`, a result of sums_over. */
static graph_id zero_in_sums(graph *g, const quantized *x, const places *at, graph_id sums, tir_expr terms) {
    const graph_id zero = graph_mul(g, graph_cast(g, x->zero, DLC_I32), graph_dimension(g, DLC_I32, terms));
    const graph_shape shape = *graph_shape_of(g, sums);
    int64_t axis = 0;
    for (int i = 0; i < x->axis; i++) axis += at->axis[i] >= 0;
    return graph_broadcast(g, zero, shape.rank, shape.dim, graph_shape_of(g, zero)->rank ? &axis : NULL);
}

/* The sums of (x - a)(w - b), with zero points a and b: sum x*w - a*(sum w - b*terms) - b*(sum x). The second term is constant, as w is. */
static graph_id sums_of_products(const visit *v, const quantized *x, const quantized *w, const places at[2],
                                 tir_expr terms) {
    enum { I32 = 3 }; /* of the attribute */
    graph *g = v->g;
    graph_attribute attribute[sizeof v->op->attribute / sizeof *v->op->attribute];
    memcpy(attribute, v->attribute, sizeof attribute);
    attribute[graph_op_attribute(v->op, "result")] = graph_set_integer("result", I32).value;
    graph_id sums = graph_emit(g, v->op, 2, (graph_id[]){x->q, w->q}, attribute);
    const graph_shape result = *graph_shape_of(g, sums);
    const bool moves_w = !is_at_zero(g, w->zero);
    if (!is_at_zero(g, x->zero)) {
        graph_id weights = sums_over(g, w, &at[1]);
        if (moves_w) weights = graph_sub(g, weights, zero_in_sums(g, w, &at[1], weights, terms));
        weights = graph_mul(g, weights, graph_cast(g, x->zero, DLC_I32));
        sums = graph_sub(g, sums, sums_in(g, weights, w, &at[1], &result));
    }
    if (!moves_w) return sums;
    const graph_id lines = sums_in(g, sums_over(g, x, &at[0]), x, &at[0], &result);
    return graph_sub(g, sums,
                     graph_mul(g, lines, parameter_in(g, graph_cast(g, w->zero, DLC_I32), w, &at[1], &result)));
}

static bool is_contracted(const quantized *x, const places *at) {
    return x->axis >= 0 && at->axis[x->axis] < 0;
}

static graph_id contracted(const visit *v, const quantized *given) {
    graph *g = v->g;
    quantized x = *given, w;
    int64_t place[2][DLC_MAX_RANK];
    const places at[2] = {{setting_of(v, "contract_x"), place[0]}, {setting_of(v, "contract_w"), place[1]}};
    tir_expr dims[DLC_MAX_RANK];
    if (!multiplies_bytes(v) || !is_quantized(g, v->input[1], &w) || !graph_is_weight(g, w.q)) return 0;
    graph_dot_places(v->attribute, (int[]){graph_shape_of(g, x.q)->rank, graph_shape_of(g, w.q)->rank}, place);
    const graph_attribute *list = at[0].contract;
    const graph_shape from = *graph_shape_of(g, x.q);
    for (int i = 0; i < list->count; i++) dims[i] = from.dim[graph_axis_of(list->list[i], from.rank)];
    if (!list->count || !are_few(g, list->count, dims) || is_contracted(&x, &at[0]) || is_contracted(&w, &at[1]))
        return 0;
    if (x.zero && graph_shape_of(g, x.zero)->rank) return 0;
    make_unsigned(g, &x);
    make_signed(g, &w);
    const graph_id sums = sums_of_products(v, &x, &w, at, product(g->pool, dims, list->count));
    const graph_shape result = *graph_shape_of(g, sums);
    const graph_id both = x.axis < 0 ? graph_mul(g, w.scale, x.scale) : w.scale;
    graph_id factor = parameter_in(g, both, &w, &at[1], &result);
    if (x.axis >= 0) factor = graph_mul(g, factor, parameter_in(g, x.scale, &x, &at[0], &result));
    return graph_mul(g, graph_cast(g, sums, DLC_F32), factor);
}

static graph_id convolved(const visit *v, const quantized *x) {
    graph *g = v->g;
    quantized w;
    if (!multiplies_bytes(v) || !is_quantized(g, v->input[1], &w) || !graph_is_weight(g, w.q)) return 0;
    if (x->axis >= 0 || w.axis > 0) return 0;
    const graph_shape window = *graph_shape_of(g, w.q);
    if (!are_few(g, window.rank - 1, window.dim + 1)) return 0;
    graph_id sums = graph_emit(g, graph_op_find("convolution_integer"), 4, (graph_id[]){x->q, w.q, x->zero, w.zero},
                               v->attribute); /* whose attributes it has */
    const graph_shape result = *graph_shape_of(g, sums);
    const int64_t channels = 1;
    const graph_id factor = graph_mul(g, w.scale, x->scale);
    const int each = graph_shape_of(g, factor)->rank;
    return graph_mul(g, graph_cast(g, sums, DLC_F32),
                     graph_broadcast(g, factor, result.rank, result.dim, each ? &channels : NULL));
}

/* ---- the pass ----------------------------------------------------------------------------------------------------- */

/* The rewritten value of a node whose first operand is dequantized x; 0: the node is not rewritten. */
static graph_id on_integers(const visit *v, const quantized *x) {
    if (are_bytes(v->g, x)) switch (v->op->structure) {
        case GRAPH_CONTRACTS: return contracted(v, x);
        case GRAPH_CONVOLVES: return convolved(v, x);
        case GRAPH_JOINS: return joined(v, x);
        case GRAPH_PADS: return padded(v, x);
        case GRAPH_FOLDS: return v->op->operation == TIR_MAX || v->op->operation == TIR_MIN ? greatest(v, x) : 0;
        case GRAPH_FOLDS_WINDOWS: return greatest(v, x);
        default: break;
        }
    return moved(v, x);
}

static graph_id rewritten(const visit *v) {
    quantized x;
    if (v->inputs == 0 || !v->input[0]) return 0;
    if (v->op == &graph_row_dequantize_linear) return visit_dequantize(v);
    if (v->op == &graph_row_quantize_linear) return visit_quantize(v);
    return is_dequantized(v->g, v->input[0], &x) ? on_integers(v, &x) : 0;
}

static void pass_integers(graph_walk *walk) {
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const graph_node *node = &walk->from->nodes.data[i];
        if (!live[i]) continue;
        graph_id result = 0;
        if (node->results == 1 && node->op->class_ != GRAPH_CONTROL && node->op->class_ != GRAPH_SOURCE) {
            graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute] = {0};
            graph_walk_attributes(walk, node, attribute);
            result = rewritten(
                &(visit){walk->to, walk->user, node->op, node->inputs, graph_walk_inputs(walk, node), attribute});
        }
        if (result)
            graph_walk_record(walk, node, &result);
        else
            graph_walk_node(walk, i);
    }
}

graph *graph_compute_on_integers(lib_arena *arena, const graph *g, const tir_machine *machine) {
    if (!graph_any_node(g, converts)) return (graph *)(uintptr_t)g;
    const graph *expanded = graph_expand_all(arena, g, expands_first);
    return graph_walk_run(arena, expanded, GRAPH_SIMPLIFY, NULL, pass_integers, (void *)(uintptr_t)machine);
}
