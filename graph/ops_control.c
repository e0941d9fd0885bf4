/* Control flow over sub-graphs (branches, loops, scans), and calls of host functions. These have no compute definition: jit runs
 * them between kernels. All values that a sub-graph uses are its inputs (graph.h: graph_new_subgraph). */
#include "graph/build.h"
#include "graph/gradient.h"
#include "graph/internal.h"
#include "graph/ops_common.h"
#include "graph/registry.h"

/* ---- shared ----------------------------------------------------------------------------------------------------- */

/* Raises unless element types and shapes are equal; sizes that depend on symbols are compared at bind. */
static void require_shape(const graph_infer *infer, const graph_shape *a, const graph_shape *b, const char *what) {
    if (a->dtype != b->dtype)
        graph_infer_fail(infer, "%s: element types are %s and %s, expected one", what, lib_dtypes[a->dtype].name,
                         lib_dtypes[b->dtype].name);
    if (a->rank != b->rank)
        graph_infer_fail(infer, "%s: ranks are %d and %d, expected one shape", what, a->rank, b->rank);
    for (int i = 0; i < a->rank; i++) {
        const char *dimension = lib_arena_format(infer->g->arena, "%s: sizes of dimension %d", what, i);
        graph_infer_equal(infer, a->dim[i], b->dim[i], dimension);
    }
}

static void require_scalar_bool(const graph_infer *infer, const graph_shape *shape, const char *what) {
    if (shape->dtype != DLC_BOOL || shape->rank != 0)
        graph_infer_fail(infer, "%s is %s of rank %d, expected bool of rank 0", what, lib_dtypes[shape->dtype].name,
                         shape->rank);
}

/* The sub-graph of an attribute; raises unless its inputs have the shapes of the operands from `first` on. */
static const graph *subgraph_of(const graph_infer *infer, int attribute, int first) {
    const graph *sub = infer->g->subgraphs.data[infer->attribute[attribute].integer];
    const char *name = infer->op->attribute[attribute].name;
    if ((int)sub->inputs.count != infer->inputs - first)
        graph_infer_fail(infer, "sub-graph `%s` has %u inputs, there are %d operands for it", name, sub->inputs.count,
                         infer->inputs - first);
    for (uint32_t i = 0; i < sub->inputs.count; i++)
        require_shape(infer, &infer->operand[first + (int)i], graph_shape_of(sub, sub->inputs.data[i]),
                      lib_arena_format(infer->g->arena, "input %u of sub-graph `%s` and its operand", i, name));
    return sub;
}

/* ---- if, while -------------------------------------------------------------------------------------------------- */

enum { IF_THEN, IF_OTHERWISE, IF_SIZES };

static bool is_surely_equal(tir_pool *pool, tir_expr a, tir_expr b) {
    return a == b || tir_equal(pool, a, b) == TIR_YES;
}

/* The next symbol of attribute `sizes`, for a size that differs between the branches; 0: there is none left. */
static tir_expr next_size(const graph_infer *infer, int *used) {
    const tir_pool *pool = infer->g->pool;
    const graph_attribute *sizes = &infer->attribute[IF_SIZES];
    int number = (*used)++;
    if (number >= sizes->count) return 0;
    tir_expr size = sizes->dims[number];
    if (tir_op_of(pool, size) != TIR_VAR || tir_variable_of(pool, size)->kind != TIR_VAR_PARAM)
        graph_infer_fail(infer, "sizes: entry %d is no symbol", number);
    return size;
}

static void infer_if(graph_infer *infer) {
    require_scalar_bool(infer, &infer->operand[0], "the condition");
    const graph *then = subgraph_of(infer, IF_THEN, 1), *otherwise = subgraph_of(infer, IF_OTHERWISE, 1);
    const int sizes = infer->attribute[IF_SIZES].count;
    if (then->outputs.count != otherwise->outputs.count)
        graph_infer_fail(infer, "the branches have %u and %u outputs, expected as many", then->outputs.count,
                         otherwise->outputs.count);
    graph_shape *result = graph_infer_results(infer, (int)then->outputs.count);
    int used = 0;
    for (uint32_t i = 0; i < then->outputs.count; i++) {
        graph_shape other = *graph_shape_of(otherwise, otherwise->outputs.data[i]);
        result[i] = *graph_shape_of(then, then->outputs.data[i]);
        for (int d = 0; sizes && d < result[i].rank && result[i].rank == other.rank; d++) {
            if (is_surely_equal(infer->g->pool, result[i].dim[d], other.dim[d])) continue;
            tir_expr size = next_size(infer, &used);
            if (size) result[i].dim[d] = other.dim[d] = size;
        }
        require_shape(infer, &result[i], &other, lib_arena_format(infer->g->arena, "output %u of the branches", i));
    }
    if (sizes && used != sizes)
        graph_infer_fail(infer, "sizes names %d dimensions, there are %d that differ between the branches", sizes,
                         used);
}

/* Pads output `o` of a branch with zeros to `size` along `axis`. */
static void fill_up(graph *branch, uint32_t o, int axis, tir_expr size) {
    graph_id value = branch->outputs.data[o];
    graph_shape rest = *graph_shape_of(branch, value);
    if (is_surely_equal(branch->pool, size, rest.dim[axis])) return;
    rest.dim[axis] = tir_sub(branch->pool, size, rest.dim[axis]);
    graph_id zeros = graph_full(branch, rest.dtype, rest.rank, rest.dim, 0);
    branch->outputs.data[o] = graph_concat(branch, 2, (graph_id[]){value, zeros}, axis);
}

/* A dimension of a result that differs between the branches, and its size in each. */
typedef struct unequal {
    uint32_t result;
    int axis;
    tir_expr then, otherwise;
} unequal;

/* Sets out[] to the unequal dimensions, in order, and pads the branches' outputs to the larger size; returns their number. */
static int find_unequal(graph *then, graph *otherwise, unequal *out) {
    int count = 0;
    for (uint32_t o = 0; o < then->outputs.count; o++) {
        const graph_shape a = *graph_shape_of(then, then->outputs.data[o]);
        const graph_shape b = *graph_shape_of(otherwise, otherwise->outputs.data[o]);
        for (int d = 0; d < a.rank; d++) {
            if (is_surely_equal(then->pool, a.dim[d], b.dim[d])) continue;
            tir_expr larger = tir_max(then->pool, a.dim[d], b.dim[d]);
            fill_up(then, o, d, larger);
            fill_up(otherwise, o, d, larger);
            out[count++] = (unequal){o, d, a.dim[d], b.dim[d]};
        }
    }
    return count;
}

/* A cut of x along `axis`: its first `count` elements, a size named by the symbol `size`. */
static graph_id cut_axis(graph *g, graph_id count, graph_id x, int axis, tir_expr size) {
    int64_t swap[DLC_MAX_RANK];
    int rank = graph_shape_of(g, x)->rank;
    for (int d = 0; d < rank; d++) swap[d] = d == 0 ? axis : d == axis ? 0 : d;
    if (axis) x = graph_transpose(g, x, swap);
    x = graph_emit_with(g, "cut", 2, (graph_id[]){count, x}, 1, (graph_setting[]){graph_set_dims("size", 1, &size)});
    return axis ? graph_transpose(g, x, swap) : x;
}

/* An `if` with attribute `sizes`: both branches pad their results to one shape, and the `if`'s results are cut to the sizes of the branch
 * taken. */
static void expand_if(graph_expand *e) {
    graph *g = e->g;
    graph *branches[2];
    for (int b = 0; b < 2; b++) branches[b] = g->subgraphs.data[e->attribute[b].integer];
    unequal *list = LIB_NEW_ARRAY(g->arena, unequal, (size_t)e->attribute[IF_SIZES].count + 1);
    int count = find_unequal(branches[0], branches[1], list);
    graph_id first =
        graph_emit_with(g, "if", e->inputs, e->input, 2,
                        (graph_setting[]){graph_set_integer("then", e->attribute[IF_THEN].integer),
                                          graph_set_integer("otherwise", e->attribute[IF_OTHERWISE].integer)});
    for (uint32_t o = 0; o < branches[0]->outputs.count; o++) e->result[o] = first + o;
    for (int i = 0; i < count; i++) {
        graph_id size = graph_select(g, e->input[0], graph_dimension(g, DLC_I64, list[i].then),
                                     graph_dimension(g, DLC_I64, list[i].otherwise));
        graph_id *value = &e->result[list[i].result];
        *value = cut_axis(g, size, *value, list[i].axis, e->attribute[IF_SIZES].dims[i]);
    }
}

enum { WHILE_CONDITION, WHILE_BODY };

static void infer_while(graph_infer *infer) {
    const graph *condition = subgraph_of(infer, WHILE_CONDITION, 0), *body = subgraph_of(infer, WHILE_BODY, 0);
    if (condition->outputs.count != 1)
        graph_infer_fail(infer, "the condition has %u outputs, expected 1", condition->outputs.count);
    require_scalar_bool(infer, graph_shape_of(condition, condition->outputs.data[0]), "the condition's output");
    if ((int)body->outputs.count > infer->inputs)
        graph_infer_fail(infer, "the body has %u outputs for %d operands: each replaces an operand",
                         body->outputs.count, infer->inputs);
    graph_shape *result = graph_infer_results(infer, (int)body->outputs.count);
    for (uint32_t i = 0; i < body->outputs.count; i++) {
        result[i] = infer->operand[i];
        require_shape(infer, &result[i], graph_shape_of(body, body->outputs.data[i]),
                      lib_arena_format(infer->g->arena, "operand %u and the body's output for it", i));
    }
}

/* ---- scan ------------------------------------------------------------------------------------------------------- */

/* Operands: carries, sequences, captures. The body's inputs: carries, one element of each sequence, captures; its outputs: carries,
 * with `conditional` a bool, then an element of each stack. Results: carries, stacks, with `conditional` the number of iterations. */
static tir_expr scan_length(const graph_infer *infer, int carries, int sequences) {
    const graph_attribute *length = &infer->attribute[GRAPH_SCAN_LENGTH];
    if (length->count > 1) graph_infer_fail(infer, "length has %d dimensions, expected at most 1", length->count);
    if (!length->count && !sequences)
        graph_infer_fail(infer, "there is no sequence that gives the number of iterations: expected a length");
    tir_expr first = length->count ? length->dims[0] : 0;
    for (int i = carries; i < carries + sequences; i++) {
        if (infer->operand[i].rank < 1) graph_infer_fail(infer, "sequence %d is of rank 0", i - carries);
        if (first)
            graph_infer_equal(infer, first, infer->operand[i].dim[0], "lengths of the sequences");
        else
            first = infer->operand[i].dim[0];
    }
    return first;
}

static graph_shape element_of(const graph_shape *sequence) {
    graph_shape element = *sequence;
    element.rank--;
    memmove(element.dim, element.dim + 1, (size_t)element.rank * sizeof *element.dim);
    return element;
}

static graph_shape stack_of(const graph_infer *infer, const graph_shape *element, tir_expr length) {
    graph_shape stack = *element;
    if (stack.rank == DLC_MAX_RANK)
        graph_infer_fail(infer, "elements of rank %d cannot be stacked: expected a rank below %d", stack.rank,
                         DLC_MAX_RANK);
    memmove(stack.dim + 1, stack.dim, (size_t)stack.rank++ * sizeof *stack.dim);
    stack.dim[0] = length;
    return stack;
}

static void check_scan_inputs(const graph_infer *infer, const graph *body, int carries, int sequences) {
    if ((int)body->inputs.count != infer->inputs)
        graph_infer_fail(infer, "sub-graph `body` has %u inputs, there are %d operands for it", body->inputs.count,
                         infer->inputs);
    for (int i = 0; i < infer->inputs; i++) {
        bool sequence = i >= carries && i < carries + sequences;
        graph_shape given = sequence ? element_of(&infer->operand[i]) : infer->operand[i];
        require_shape(infer, &given, graph_shape_of(body, body->inputs.data[i]),
                      lib_arena_format(infer->g->arena, "input %d of sub-graph `body` and %s", i,
                                       sequence ? "an element of its operand" : "its operand"));
    }
}

static void check_reverse(const graph_infer *infer, int expected) {
    const graph_attribute *reverse = &infer->attribute[GRAPH_SCAN_REVERSE];
    if (reverse->count && reverse->count != expected)
        graph_infer_fail(infer, "reverse has %d entries, expected none or %d: one per sequence and per stack",
                         reverse->count, expected);
    for (int i = 0; i < reverse->count; i++)
        if (reverse->list[i] != 0 && reverse->list[i] != 1)
            graph_infer_fail(infer, "reverse: entry %d is %lld, expected 0 or 1", i, (long long)reverse->list[i]);
}

static void infer_scan(graph_infer *infer) {
    const graph *body = infer->g->subgraphs.data[infer->attribute[GRAPH_SCAN_BODY].integer];
    const int64_t given_carries = infer->attribute[GRAPH_SCAN_CARRIES].integer;
    const int64_t given_sequences = infer->attribute[GRAPH_SCAN_SEQUENCES].integer;
    if (given_carries < 0 || given_sequences < 0 || given_carries > infer->inputs ||
        given_sequences > infer->inputs - given_carries)
        graph_infer_fail(infer, "carries is %lld and sequences %lld, there are %d operands", (long long)given_carries,
                         (long long)given_sequences, infer->inputs);
    const int carries = (int)given_carries, sequences = (int)given_sequences;
    const int conditional = infer->attribute[GRAPH_SCAN_CONDITIONAL].integer != 0;
    const int stacks = (int)body->outputs.count - carries - conditional;
    tir_expr length = scan_length(infer, carries, sequences);
    check_scan_inputs(infer, body, carries, sequences);
    if (stacks < 0)
        graph_infer_fail(infer, "the body has %u outputs, expected at least %d: one per carry%s", body->outputs.count,
                         carries + conditional, conditional ? ", and whether to go on" : "");
    check_reverse(infer, sequences + stacks);
    if (conditional)
        require_scalar_bool(infer, graph_shape_of(body, body->outputs.data[carries]),
                            "the body's output after carries");
    graph_shape *result = graph_infer_results(infer, carries + stacks + conditional);
    for (int i = 0; i < carries; i++) {
        result[i] = infer->operand[i];
        require_shape(infer, &result[i], graph_shape_of(body, body->outputs.data[i]),
                      lib_arena_format(infer->g->arena, "carry %d and the body's output for it", i));
    }
    for (int i = 0; i < stacks; i++)
        result[carries + i] =
            stack_of(infer, graph_shape_of(body, body->outputs.data[carries + conditional + i]), length);
    if (conditional) result[carries + stacks] = (graph_shape){.dtype = DLC_I64};
}

/* ---- recompute --------------------------------------------------------------------------------------------------- */

static void infer_recompute(graph_infer *infer) {
    const graph *body = subgraph_of(infer, 0, 0);
    for (uint32_t n = 0; n < body->nodes.count; n++)
        if (body->nodes.data[n].impure)
            graph_infer_fail(infer, "the sub-graph has an effect (%s), which a gradient would have a second time",
                             body->nodes.data[n].op->name);
    graph_shape *result = graph_infer_results(infer, (int)body->outputs.count);
    for (uint32_t i = 0; i < body->outputs.count; i++) result[i] = *graph_shape_of(body, body->outputs.data[i]);
}

static void expand_recompute(graph_expand *e) {
    graph_inline(e->g->subgraphs.data[e->attribute[0].integer], e->g, e->input, e->result);
}

/* ---- custom_call ------------------------------------------------------------------------------------------------ */

enum { CUSTOM_TARGET, CUSTOM_DTYPES, CUSTOM_RANKS, CUSTOM_SHAPES };

static void infer_custom(graph_infer *infer) {
    const graph_attribute *dtypes = &infer->attribute[CUSTOM_DTYPES], *ranks = &infer->attribute[CUSTOM_RANKS];
    const graph_attribute *shapes = &infer->attribute[CUSTOM_SHAPES];
    if (!infer->attribute[CUSTOM_TARGET].string[0])
        graph_infer_fail(infer, "target is empty, expected a function's name");
    if (dtypes->count != ranks->count)
        graph_infer_fail(infer, "dtypes has %d entries and ranks %d, expected one each per result", dtypes->count,
                         ranks->count);
    graph_shape *result = graph_infer_results(infer, dtypes->count);
    int at = 0;
    for (int i = 0; i < dtypes->count; i++) {
        int64_t dtype = dtypes->list[i], rank = ranks->list[i];
        if (dtype < 0 || dtype >= DLC_DTYPE_COUNT || !lib_dtypes[dtype].usable)
            graph_infer_fail(infer, "dtypes: %lld of result %d is no supported element type", (long long)dtype, i);
        if (rank < 0 || rank > shapes->count - at)
            graph_infer_fail(infer, "rank %lld of result %d: shapes has %d dimensions left", (long long)rank, i,
                             shapes->count - at);
        result[i] = (graph_shape){.dtype = (dlc_dtype)dtype, .rank = (int)rank};
        for (int d = 0; d < rank; d++) result[i].dim[d] = shapes->dims[at++];
    }
    if (at != shapes->count)
        graph_infer_fail(infer, "shapes has %d dimensions, the ranks add up to %d", shapes->count, at);
}

/* ---- cut --------------------------------------------------------------------------------------------------------- */

static void infer_cut(graph_infer *infer) {
    const tir_pool *pool = infer->g->pool;
    const graph_attribute *size = &infer->attribute[0];
    graph_infer_indices(infer, 0);
    graph_infer_rank(infer, 0, 0);
    bool symbol = size->count == 1 && tir_op_of(pool, size->dims[0]) == TIR_VAR;
    if (!symbol || tir_variable_of(pool, size->dims[0])->kind != TIR_VAR_PARAM)
        graph_infer_fail(infer, "size must be one symbol, which the count will be the value of");
    graph_shape *result = graph_infer_results(infer, infer->inputs - 1);
    for (int i = 1; i < infer->inputs; i++) {
        result[i - 1] = infer->operand[i];
        if (!infer->operand[i].rank) graph_infer_fail(infer, "operand %d has rank 0, expected 1 or more", i);
        graph_infer_equal(infer, infer->operand[i].dim[0], infer->operand[1].dim[0], "leading sizes of the operands");
        result[i - 1].dim[0] = size->dims[0];
    }
}

/* ---- with_gradient ---------------------------------------------------------------------------------------------------- */

/* The output of `backward` for an operand: its derivative, in the type of derivatives or its own. */
static void require_derivative(const graph_infer *infer, const graph *backward, int operand) {
    const graph_shape of = infer->operand[operand], *given = graph_shape_of(backward, backward->outputs.data[operand]);
    graph_shape expected = of;
    if (!lib_dtype_is_float(of.dtype) && of.dtype != DLC_C64) return;
    if (given->dtype != of.dtype) expected.dtype = graph_tangent_dtype(of.dtype);
    require_shape(infer, given, &expected,
                  lib_arena_format(infer->g->arena, "output %d of sub-graph `backward` and its operand", operand));
}

static void infer_with_gradient(graph_infer *infer) {
    const graph *forward = subgraph_of(infer, GRAPH_FORWARD, 0);
    const graph *backward = infer->g->subgraphs.data[infer->attribute[GRAPH_BACKWARD].integer];
    const int results = (int)forward->outputs.count, expected = infer->inputs + 2 * results;
    graph_shape *result = graph_infer_results(infer, results);
    for (int r = 0; r < results; r++) result[r] = *graph_shape_of(forward, forward->outputs.data[r]);
    if ((int)backward->inputs.count != expected)
        graph_infer_fail(infer,
                         "sub-graph `backward` has %u inputs, expected %d: %d operands (values of the graph around it "
                         "that a sub-graph reads count as such), the results, and the cotangents of these",
                         backward->inputs.count, expected, infer->inputs);
    if ((int)backward->outputs.count != infer->inputs)
        graph_infer_fail(
            infer,
            "sub-graph `backward` has %u outputs for %d operands: one each. A value of the graph around it "
            "that a sub-graph reads must be an operand",
            backward->outputs.count, infer->inputs);
    for (int i = 0; i < expected; i++) {
        const int r = i - infer->inputs;
        graph_shape given = r < 0 ? infer->operand[i] : result[r % results];
        if (r >= results) given.dtype = graph_tangent_dtype(given.dtype);
        require_shape(infer, &given, graph_shape_of(backward, backward->inputs.data[i]),
                      lib_arena_format(infer->g->arena, "input %d of sub-graph `backward` and the %s", i,
                                       r < 0         ? "operand"
                                       : r < results ? "result"
                                                     : "derivative of the result"));
    }
    for (int k = 0; k < infer->inputs; k++) require_derivative(infer, backward, k);
}

static void expand_with_gradient(graph_expand *e) {
    graph_inline(e->g->subgraphs.data[e->attribute[GRAPH_FORWARD].integer], e->g, e->input, e->result);
}

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static const graph_op row_if = {
    .name = "if",
    .class_ = GRAPH_CONTROL,
    .structure = GRAPH_BRANCHES,
    .min_inputs = 1,
    .max_inputs = -1,
    .results = -1,
    .operands = "condition x",
    .dtypes = "all",
    .attribute = {{"then", GRAPH_ATTR_SUBGRAPH, NULL, NULL, "graph of the results where the condition is true"},
                  {"otherwise", GRAPH_ATTR_SUBGRAPH, NULL, NULL, "graph of the results where it is false"},
                  {"sizes", GRAPH_ATTR_DIMS, NULL, "[]",
                   "symbols of their own, which no input has: the names of the sizes in which the branches' results "
                   "differ, results and dimensions in order"}},
    .jvp = graph_tangent_if,
    .vjp = graph_cotangent_if,
    .infer = infer_if,
    .expand = expand_if,
    .doc = "The outputs of `then` or of `otherwise`, whose inputs are the operands after condition, a bool of rank "
           "0. Only the chosen graph runs. Outputs of both have one dtype and rank, and one shape but for the "
           "dimensions that `sizes` names, which are known when the condition is (dlc_cut): such an `if` stands in the "
           "outermost graph. StableHLO if; ONNX If.",
};

static const graph_op row_while = {
    .name = "while",
    .class_ = GRAPH_CONTROL,
    .structure = GRAPH_LOOPS,
    .min_inputs = 1,
    .max_inputs = -1,
    .results = -1,
    .operands = "x",
    .dtypes = "all",
    .attribute = {{"condition", GRAPH_ATTR_SUBGRAPH, NULL, NULL, "one output, bool of rank 0: go on?"},
                  {"body", GRAPH_ATTR_SUBGRAPH, NULL, NULL, "outputs replace the first operands"}},
    .jvp = graph_tangent_while,
    .refused = "use scan, conditional where it may end early",
    .infer = infer_while,
    .doc = "While condition(x...) holds, the first operands are replaced by body(x...), which keeps their dtypes "
           "and shapes; operands beyond its outputs stay. Results: the replaced operands at the end. StableHLO "
           "while.",
};

static const graph_op row_scan = {
    .name = "scan",
    .class_ = GRAPH_CONTROL,
    .structure = GRAPH_SCANS,
    .min_inputs = 0,
    .max_inputs = -1,
    .results = -1,
    .operands = "x",
    .dtypes = "any",
    .attribute = {[GRAPH_SCAN_BODY] = {"body", GRAPH_ATTR_SUBGRAPH, NULL, NULL, "graph of one iteration"},
                  [GRAPH_SCAN_CARRIES] = {"carries", GRAPH_ATTR_INTEGER, NULL, NULL,
                                          "number of operands, the first ones, that an iteration replaces"},
                  [GRAPH_SCAN_SEQUENCES] = {"sequences", GRAPH_ATTR_INTEGER, NULL, NULL,
                                            "number of operands after these, of which an iteration sees an element"},
                  [GRAPH_SCAN_LENGTH] = {"length", GRAPH_ATTR_DIMS, NULL, "[]",
                                         "number of iterations; empty: that of the sequences' elements"},
                  [GRAPH_SCAN_REVERSE] = {"reverse", GRAPH_ATTR_INTEGERS, NULL, "[]",
                                          "1 for each sequence, then for each stack, that is passed through from its "
                                          "last element to its first, else 0; empty: none is"},
                  [GRAPH_SCAN_CONDITIONAL] = {"conditional", GRAPH_ATTR_BOOL, NULL, "false",
                                              "the body says after each iteration whether there is another one"}},
    .jvp = graph_tangent_scan,
    .vjp = graph_cotangent_scan,
    .infer = infer_scan,
    .doc =
        "A loop of known length over the elements (along dimension 0) of the operands `sequences`. Iteration i runs "
        "body(carries..., sequence[i]..., further operands...), whose outputs are the next iteration's carries, then "
        "any number of tensors that are stacked along a new dimension 0. Results: the carries after the last "
        "iteration, which keep dtype and shape, and the stacks. Length 0 gives the carries as they came and empty "
        "stacks. With `conditional` the body has a bool of rank 0 between carries and elements of stacks: false ends "
        "the loop after this iteration; elements of stacks that were not reached are 0, and a last result, i64 of "
        "rank 0, is the number of iterations that ran. JAX lax.scan; ONNX Scan and Loop (transpose for other axes).",
};

static const graph_op row_cut = {
    .name = "cut",
    .class_ = GRAPH_CONTROL,
    .structure = GRAPH_CUTS,
    .min_inputs = 2,
    .max_inputs = -1,
    .results = -1,
    .operands = "count x",
    .dtypes = "any",
    .attribute = {{"size", GRAPH_ATTR_DIMS, NULL, NULL,
                   "a symbol of its own, which no input has: the name of the new leading size"}},
    .jvp = graph_tangent_cut,
    .vjp = graph_cotangent_cut,
    .infer = infer_cut,
    .doc =
        "The first `count` elements of each operand along its leading dimension, count an integer of rank 0 that the run "
        "computes, from 0 to that dimension: a run in which it is not ends with an error. Only in the outermost "
        "graph. What depends on the results is bound, and compiled where needed, when the count is known; see dlc_run. "
        "With it any operator whose result's size depends on data is made: it fills as much as there can be.",
};

static const graph_op row_recompute = {
    .name = "recompute",
    .aliases = "checkpoint remat",
    .class_ = GRAPH_COMPOSITE,
    .min_inputs = 0,
    .max_inputs = -1,
    .results = -1,
    .operands = "x",
    .dtypes = "all",
    .attribute = {{"body", GRAPH_ATTR_SUBGRAPH, NULL, NULL, "graph of the results, without effects"}},
    .vjp = graph_cotangent_recompute,
    .infer = infer_recompute,
    .expand = expand_recompute,
    .doc =
        "The outputs of `body`, whose inputs are the operands, computed as if they stood in the graph itself; but for a "
        "gradient they are computed a second time from the operands, so that nothing between operands and results is kept "
        "for it. JAX checkpoint, PyTorch utils.checkpoint.",
};

static const graph_op row_with_gradient = {
    .name = "with_gradient",
    .class_ = GRAPH_CONTROL,
    .min_inputs = 1,
    .max_inputs = -1,
    .results = -1,
    .operands = "x",
    .dtypes = "all",
    .attribute = {[GRAPH_FORWARD] = {"forward", GRAPH_ATTR_SUBGRAPH, NULL, NULL, "graph of the results"},
                  [GRAPH_BACKWARD] = {"backward", GRAPH_ATTR_SUBGRAPH, NULL, NULL,
                                      "graph of the operands' cotangents; its inputs: operands, results, cotangents of "
                                      "the results"}},
    .vjp = graph_cotangent_with_gradient,
    .jvp = graph_rule_transpose_cotangents,
    .infer = infer_with_gradient,
    .expand = expand_with_gradient,
    .doc =
        "forward(x...), which derivatives treat as an operator whose cotangents are backward(x..., results..., cotangents "
        "of the results...): one output for each operand, which for an operand of no float type is not read. Cotangents "
        "have the types of their values, f32 for narrower floats (of results of no float type they are zeros); outputs may "
        "also have the operand's own. Without "
        "derivatives it is `forward` alone, joined to the operators around it. Forward mode transposes `backward`, which "
        "then must be linear in the cotangents. Sub-graphs read no values of graphs around them, only operands: these "
        "would have no cotangents. For straight-through estimators, derivatives that are limited or have a better form, "
        "host functions. JAX custom_vjp, PyTorch autograd.Function.",
};

#define CUSTOM(name_, algebra_, doc_)                                                                            \
    static const graph_op row_##name_ = {                                                                        \
        .name = #name_,                                                                                          \
        .class_ = GRAPH_OPAQUE,                                                                                  \
        .algebra = algebra_,                                                                                     \
        .min_inputs = 0,                                                                                         \
        .max_inputs = -1,                                                                                        \
        .results = -1,                                                                                           \
        .operands = "x",                                                                                         \
        .dtypes = "all",                                                                                         \
        .attribute = {{"target", GRAPH_ATTR_STRING, NULL, NULL, "name under which the function was registered"}, \
                      {"dtypes", GRAPH_ATTR_INTEGERS, NULL, NULL, "element type (a dlc_dtype) of each result"},  \
                      {"ranks", GRAPH_ATTR_INTEGERS, NULL, NULL, "rank of each result"},                         \
                      {"shapes", GRAPH_ATTR_DIMS, NULL, NULL,                                                    \
                       "dimensions of all results, one after the other; at most 12"}},                           \
        .refused = "dlc_with_gradient around it, or a registered operator, gives it one",                        \
        .infer = infer_custom,                                                                                   \
        .doc = doc_,                                                                                             \
    };
CUSTOM(
    custom_call, 0,
    "Results of the host function `target` of compact tensors. It must depend on nothing but its operands and have no "
    "effect but "
    "its results: it may be called more than once, or not at all. StableHLO custom_call.")
CUSTOM(
    custom_effect, GRAPH_IMPURE,
    "As custom_call, for a function with effects: each is called exactly once per run, in the order of the graph, its "
    "results used "
    "or not. StableHLO custom_call with has_side_effect.")

const graph_op *const graph_ops_control[] = {&row_if,          &row_while,         &row_scan,
                                             &row_cut,         &row_recompute,     &row_with_gradient,
                                             &row_custom_call, &row_custom_effect, NULL};

/* ---- host functions --------------------------------------------------------------------------------------------- */

const graph_custom *graph_find_custom(const graph *g, const char *name) {
    const graph *outer = graph_outermost(g);
    for (uint32_t i = 0; i < outer->customs.count; i++)
        if (strcmp(outer->customs.data[i].name, name) == 0) return &outer->customs.data[i];
    return NULL;
}

graph_custom graph_custom_of(lib_arena *arena, const graph *g, const graph_node *node) {
    const graph_op *op = node->op;
    if (!op->host) {
        const char *name = node->attribute[CUSTOM_TARGET].string;
        const graph_custom *found = graph_find_custom(g, name);
        if (!found) {
            const graph *outer = graph_outermost(g);
            lib_nearest nearest = lib_nearest_to(name);
            for (uint32_t i = 0; i < outer->customs.count; i++)
                lib_nearest_try(&nearest, outer->customs.data[i].name, strlen(outer->customs.data[i].name));
            lib_raise(arena->scope, DLC_NOT_FOUND, "%s: no host function is registered as \"%s\"%s", op->name, name,
                      lib_nearest_hint(&nearest));
        }
        graph_custom custom = *found;
        custom.name = lib_arena_string(arena, custom.name);
        return custom;
    }
    int count = 0;
    while (op->attribute[count].name) count++;
    graph_attribute *attribute = LIB_NEW_ARRAY(arena, graph_attribute, (size_t)count);
    for (int i = 0; i < count; i++) attribute[i] = graph_attribute_copy(arena, &op->attribute[i], &node->attribute[i]);
    return (graph_custom){.name = op->name, .op = op, .attribute = attribute};
}

dlc_status graph_custom_invoke(const graph_custom *custom, int inputs, const DLTensor *const *input, int outputs,
                               DLTensor *const *output, lib_error *error) {
    if (custom->op) return custom->op->host->invoke(custom->op->host, custom, inputs, input, outputs, output, error);
    custom->call(custom->user, inputs, input, outputs, output);
    return DLC_OK;
}

void graph_add_custom(graph *g, const graph_custom *custom) {
    const char *name = custom->name;
    graph *outer = graph_outermost(g);
    if (!name || !name[0] || !custom->call)
        lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "a host function needs a name and an address");
    const graph_custom *known = graph_find_custom(g, name);
    if (known && known->call == custom->call && known->user == custom->user) return;
    if (known) lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "another host function is registered as %s", name);
    graph_custom own = *custom;
    own.name = lib_arena_string(outer->arena, name);
    lib_vec_push(outer->arena, &outer->customs, own);
}
