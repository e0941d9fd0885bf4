/* Blocks (blocks.h) as graphs, through the public API: a whole block, or some of its steps. Values that these take from earlier steps are
 * then operands, and values that later steps take are results. */
#include "bench/cases.h"

#include <stdlib.h>
#include <string.h>

typedef struct drawing {
    bench_builder *b;
    const bench_block *block;
    dlc_value values[BENCH_BLOCK_VALUES];
    bool made[BENCH_BLOCK_VALUES];
} drawing;

/* ---- steps ------------------------------------------------------------------------------------------------------------------- */

static dlc_value reshaped(dlc_value x, int rank, const int64_t *dims) {
    dlc_dim sizes[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = (dlc_dim){.value = dims[i]};
    return dlc_reshape(x, rank, sizes);
}

static dlc_value shaped(dlc_value x, const bench_block_value *like) {
    return reshaped(x, like->rank, like->dims);
}

static dlc_value draw_linear(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    dlc_linear_options options = DLC_LINEAR_OPTIONS_INIT;
    options.transposed = v->number[0] != 0;
    return dlc_linear_with(x[0], x[1], x[2], &options);
}

/* Rotates x [b, n, heads * d], transposed to [b, heads, n, d] and back. */
static dlc_value draw_rotary(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    const int64_t *d = v->dims, swap[4] = {0, 2, 1, 3};
    dlc_value heads = reshaped(x[0], 4, (int64_t[]){d[0], d[1], v->number[0], d[2] / v->number[0]});
    dlc_value turned = dlc_rotary_embedding(dlc_transpose(heads, 4, swap), x[1], x[2]);
    return shaped(dlc_transpose(turned, 4, swap), v);
}

static dlc_value draw_heads(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    const int64_t *d = v->dims;
    return dlc_transpose(reshaped(x[0], 4, (int64_t[]){d[0], d[2], d[1], d[3]}), 4, (int64_t[]){0, 2, 1, 3});
}

static dlc_value draw_merge(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    return shaped(dlc_transpose(x[0], 4, (int64_t[]){0, 2, 1, 3}), v);
}

/* Keys or values, each head repeated for the heads of queries that share it. */
static dlc_value for_heads(dlc_value x, int64_t heads) {
    dlc_dim dims[5];
    int64_t d[4];
    for (int i = 0; i < 4; i++) d[i] = dlc_value_dim(x, i).value;
    if (heads == d[1]) return x;
    const int64_t wide[5] = {d[0], d[1], heads / d[1], d[2], d[3]};
    for (int i = 0; i < 5; i++) dims[i] = (dlc_dim){.value = wide[i]};
    dlc_value repeated =
        dlc_broadcast(reshaped(x, 5, (int64_t[]){d[0], d[1], 1, d[2], d[3]}), 5, dims, 5, (int64_t[]){0, 1, 2, 3, 4});
    return reshaped(repeated, 4, (int64_t[]){d[0], heads, d[2], d[3]});
}

static dlc_value draw_attend(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    dlc_attention_options options = DLC_ATTENTION_OPTIONS_INIT;
    options.causal = v->number[0] != 0;
    return dlc_attention_with(x[0], for_heads(x[1], v->dims[1]), for_heads(x[2], v->dims[1]), DLC_NONE, &options);
}

static dlc_value with_bias(dlc_value y, dlc_value bias) {
    int64_t channels = dlc_value_dim(bias, 0).value;
    return dlc_add(y, reshaped(bias, 4, (int64_t[]){1, channels, 1, 1}));
}

static dlc_value draw_conv(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
    const int64_t strides[2] = {v->number[0], v->number[0]}, sides[2] = {v->number[1], v->number[1]};
    options.stride_count = options.low_count = options.high_count = 2;
    options.stride = strides, options.low = options.high = sides, options.groups = v->number[2];
    return with_bias(dlc_convolution_with(x[0], x[1], &options), x[2]);
}

static dlc_value draw_conv_up(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    dlc_convolution_transposed_options options = DLC_CONVOLUTION_TRANSPOSED_OPTIONS_INIT;
    (void)v;
    options.stride_count = 2, options.stride = (const int64_t[]){2, 2};
    return with_bias(dlc_convolution_transposed_with(x[0], x[1], &options), x[2]);
}

static dlc_value draw_max_pool(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    dlc_max_pool_options options = DLC_MAX_POOL_OPTIONS_INIT;
    (void)v;
    options.stride_count = 2, options.stride = (const int64_t[]){2, 2};
    return dlc_max_pool_with(x[0], 2, (const int64_t[]){2, 2}, &options);
}

/* x and d [b, c], a [c, s], p and q [b, s] of one time; the state h [b, c, s]. */
static dlc_value draw_scan(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    enum { STATE, X, D, P, Q, A, OPERANDS };
    const int64_t t = v->dims[0], batch = v->dims[1], c = v->dims[2], s = dlc_value_dim(x[2], 1).value;
    const int64_t shapes[OPERANDS][3] = {{batch, c, s}, {batch, c, 1}, {batch, c, 1},
                                         {batch, 1, s}, {batch, 1, s}, {1, c, s}};
    dlc_graph *body = dlc_subgraph(graph);
    dlc_value in[OPERANDS], outer[OPERANDS], results[2];
    const dlc_value given[OPERANDS] = {x[0], x[0], x[1], x[3], x[4], x[2]};
    dlc_dim state[3];
    for (int i = 0; i < OPERANDS; i++) {
        dlc_dim dims[3];
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        for (int d = 0; d < 3; d++) dims[d] = (dlc_dim){.value = shapes[i][d]};
        if (i == STATE) memcpy(state, dims, sizeof state);
        in[i] = dlc_input(body, name, DLC_F32, 3, dims);
        if (i == A)
            outer[i] = reshaped(given[i], 3, shapes[i]);
        else if (i != STATE)
            outer[i] = reshaped(given[i], 4, (int64_t[]){t, shapes[i][0], shapes[i][1], shapes[i][2]});
    }
    outer[STATE] = dlc_broadcast(dlc_scalar(graph, DLC_F32, 0), 3, state, 0, NULL);
    dlc_value decay = dlc_exp(dlc_mul(in[D], in[A]));
    dlc_value h = dlc_add(dlc_mul(decay, in[STATE]), dlc_mul(dlc_mul(in[D], in[X]), in[P]));
    dlc_output(body, "h", h);
    dlc_output(body, "y", dlc_reduce_sum(dlc_mul(h, in[Q]), 1, (int64_t[]){2}));
    dlc_scan(graph, OPERANDS, outer, body, 1, 4, 2, results);
    return results[1];
}

static dlc_value draw_dequantise(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) {
    (void)graph;
    dlc_dequantize_linear_options options = DLC_DEQUANTIZE_LINEAR_OPTIONS_INIT;
    options.block = v->number[0];
    return dlc_dequantize_linear_with(x[0], x[1], DLC_NONE, v->number[0] ? 0 : 1, &options);
}

/* Steps that are one call. */
#define STEPS(X)                                                   \
    X(add, dlc_add(x[0], x[1]))                                    \
    X(mul, dlc_mul(x[0], x[1]))                                    \
    X(gelu, dlc_gelu(x[0]))                                        \
    X(relu, dlc_relu(x[0]))                                        \
    X(silu, dlc_silu(x[0]))                                        \
    X(softplus, dlc_softplus(x[0]))                                \
    X(layer_norm, dlc_layer_norm(x[0], x[1], x[2], -1))            \
    X(rms_norm, dlc_rms_norm(x[0], x[1], -1))                      \
    X(concat, dlc_concat(2, x, 1))                                 \
    X(last, dlc_transpose(x[0], 4, (const int64_t[]){0, 2, 3, 1})) \
    X(first, dlc_transpose(x[0], 4, (const int64_t[]){0, 3, 1, 2}))
#define X(name, expression)                                                                          \
    static dlc_value draw_##name(dlc_graph *graph, const bench_block_value *v, const dlc_value *x) { \
        (void)graph, (void)v;                                                                        \
        return expression;                                                                           \
    }
STEPS(X)
#undef X

typedef dlc_value draw_function(dlc_graph *graph, const bench_block_value *v, const dlc_value *x);
static draw_function *const draws[BENCH_STEP_KINDS] = {
    [BENCH_STEP_LINEAR] = draw_linear,
    [BENCH_STEP_ADD] = draw_add,
    [BENCH_STEP_MUL] = draw_mul,
    [BENCH_STEP_GELU] = draw_gelu,
    [BENCH_STEP_RELU] = draw_relu,
    [BENCH_STEP_SILU] = draw_silu,
    [BENCH_STEP_SOFTPLUS] = draw_softplus,
    [BENCH_STEP_LAYER_NORM] = draw_layer_norm,
    [BENCH_STEP_RMS_NORM] = draw_rms_norm,
    [BENCH_STEP_ROTARY] = draw_rotary,
    [BENCH_STEP_HEADS] = draw_heads,
    [BENCH_STEP_MERGE] = draw_merge,
    [BENCH_STEP_ATTEND] = draw_attend,
    [BENCH_STEP_CONV] = draw_conv,
    [BENCH_STEP_CONV_UP] = draw_conv_up,
    [BENCH_STEP_MAX_POOL] = draw_max_pool,
    [BENCH_STEP_CONCAT] = draw_concat,
    [BENCH_STEP_LAST] = draw_last,
    [BENCH_STEP_FIRST] = draw_first,
    [BENCH_STEP_SCAN] = draw_scan,
    [BENCH_STEP_DEQUANTISE] = draw_dequantise,
};

/* ---- blocks ------------------------------------------------------------------------------------------------------------------ */

/* Declares an operand: the block's, or the value of a step that is not drawn. */
static void draw_operand(drawing *d, int value) {
    const bench_block_value *v = &d->block->values[value];
    bench_builder *b = d->b;
    const bool constant = v->operand && v->constant;
    d->values[value] =
        bench_case_operand(b, constant, v->dtype, v->rank, v->dims, v->operand ? v->low : -1, v->operand ? v->high : 1);
    b->operand_values[b->problem.operand_count - 1] = value;
    d->made[value] = true;
}

/* Is the step one of those to be drawn? */
static bool is_drawn(const drawing *d, int value) {
    const bench_steps *steps = d->b->steps;
    bool found = !steps;
    for (int i = 0; steps && i < steps->count; i++) found = found || steps->values[i] == value;
    return found;
}

static void draw_value(drawing *d, int value) {
    const bench_block_value *v = &d->block->values[value];
    dlc_value x[BENCH_BLOCK_INPUTS];
    if (v->operand) {
        if (!d->b->steps) draw_operand(d, value);
        return;
    }
    if (!is_drawn(d, value)) return;
    for (int i = 0; i < v->inputs; i++) {
        if (v->input[i] >= 0 && !d->made[v->input[i]]) draw_operand(d, v->input[i]);
        x[i] = v->input[i] >= 0 ? d->values[v->input[i]] : DLC_NONE;
    }
    d->values[value] = draws[v->kind](d->b->graph, v, x);
    d->made[value] = true;
}

static bool is_result(const drawing *d, int value) {
    bool result = d->block->values[value].result;
    if (d->block->values[value].operand || !is_drawn(d, value)) return false;
    for (int later = value + 1; later < d->block->count; later++) {
        const bench_block_value *reader = &d->block->values[later];
        for (int i = 0; i < reader->inputs; i++) result = result || (reader->input[i] == value && !is_drawn(d, later));
    }
    return result;
}

void bench_build_block(bench_builder *b) {
    bench_block *block = malloc(sizeof *block);
    drawing d = {.b = b, .block = block};
    if (!block || !bench_block_of(block, b->problem.shape)) abort();
    for (int v = 0; v < block->count; v++) draw_value(&d, v);
    for (int v = 0; v < block->count; v++) {
        if (!is_result(&d, v)) continue;
        if (b->problem.result_count == BENCH_MAX_RESULTS) abort();
        b->result_values[b->problem.result_count] = v;
        bench_case_result(b, d.values[v]);
    }
    b->problem.flops = block->flops;
    free(block);
}

int bench_block_parts(const bench_shape *shape) {
    bench_block *block = malloc(sizeof *block);
    if (!block) abort();
    int parts = strcmp(shape->kind, "block") == 0 && bench_block_of(block, shape) ? block->parts : 0;
    free(block);
    return parts;
}

bench_steps bench_block_steps(const bench_shape *shape, int part) {
    bench_block *block = malloc(sizeof *block);
    bench_steps steps = {0};
    if (!block || !bench_block_of(block, shape)) abort();
    for (int v = 0; v < block->count; v++)
        if (!block->values[v].operand && block->values[v].part == part) steps.values[steps.count++] = v;
    free(block);
    return steps;
}
