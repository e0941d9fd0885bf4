/* oneDNN 2.x as a peer. A plug-in: built where its header is found. Fairness: f32 throughout; weights in `format any`, reordered once
 * before the contest; post-ops instead of second passes; tensors that the host sees are plain row-major for both sides, and what
 * oneDNN reorders of them between calls is part of its time, as it is of ours; where it has several ways the fastest is taken. */
#include "bench/bench.h"

#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if DNNL_VERSION_MAJOR != 2
#error "this peer speaks the interface of oneDNN 2"
#endif

/* From the OpenMP run time that oneDNN runs on; its header speaks one compiler only. */
void omp_set_num_threads(int count);

enum { MAX_STEPS = 24, MAX_ARGUMENTS = 8, MAX_MEMORIES = 80 };

typedef dnnl_memory_desc_t description;

typedef struct step {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[MAX_ARGUMENTS];
    int count;
} step;

typedef struct plan {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    step steps[MAX_STEPS];
    int step_count;
    dnnl_memory_t memories[MAX_MEMORIES];
    int memory_count;
    bool failed;
    char note[96];
} plan;

/* ---- building blocks; after a failure they do nothing --------------------------------------------------------------------- */

static bool ok(plan *p, dnnl_status_t status) {
    if (status != dnnl_success) p->failed = true;
    return !p->failed;
}

static dnnl_data_type_t type_of(dlc_dtype dtype) {
    return dtype == DLC_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* Row-major, or with the given strides. */
static description plain(plan *p, dlc_dtype dtype, int rank, const int64_t *dims, const int64_t *strides) {
    dnnl_dims_t sizes = {0}, steps = {0};
    for (int i = rank - 1; i >= 0; i--) {
        sizes[i] = dims[i];
        steps[i] = strides ? strides[i] : i == rank - 1 ? 1 : steps[i + 1] * dims[i + 1];
    }
    description d = {0};
    ok(p, dnnl_memory_desc_init_by_strides(&d, rank, sizes, type_of(dtype), steps));
    return d;
}

static description any(plan *p, int rank, const int64_t *dims) {
    dnnl_dims_t sizes = {0};
    memcpy(sizes, dims, (size_t)rank * sizeof *dims);
    description d = {0};
    ok(p, dnnl_memory_desc_init_by_tag(&d, rank, sizes, dnnl_f32, dnnl_format_tag_any));
    return d;
}

#define D(...)          \
    (const int64_t[]) { \
        __VA_ARGS__     \
    }

/* data NULL: memory of its own. */
static dnnl_memory_t memory(plan *p, const description *d, void *data) {
    dnnl_memory_t m = NULL;
    if (p->failed || p->memory_count == MAX_MEMORIES) return p->failed = true, NULL;
    if (ok(p, dnnl_memory_create(&m, d, p->engine, data ? data : DNNL_MEMORY_ALLOCATE)))
        p->memories[p->memory_count++] = m;
    return m;
}

static void argument(plan *p, step *s, int name, dnnl_memory_t m) {
    if (p->failed || s->count == MAX_ARGUMENTS) return;
    s->arguments[s->count++] = (dnnl_exec_arg_t){name, m};
}

static const description *wanted(dnnl_primitive_desc_t pd, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* A step of a primitive descriptor, which it consumes. */
static step *add_step(plan *p, dnnl_primitive_desc_t pd) {
    static step nowhere;
    if (p->failed || p->step_count == MAX_STEPS) return p->failed = true, nowhere.count = 0, &nowhere;
    step *s = &p->steps[p->step_count];
    const char *implementation = NULL;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &implementation) == dnnl_success && !p->note[0])
        snprintf(p->note, sizeof p->note, "%s", implementation);
    if (ok(p, dnnl_primitive_create(&s->primitive, pd))) p->step_count++;
    dnnl_primitive_desc_destroy(pd);
    return s;
}

static dnnl_primitive_desc_t describe_primitive(plan *p, const_dnnl_op_desc_t operation,
                                                const_dnnl_primitive_attr_t attributes) {
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed) ok(p, dnnl_primitive_desc_create(&pd, operation, attributes, p->engine, NULL));
    return pd;
}

/* `source` in the format `to`: itself if it has it, else a reorder. */
static dnnl_memory_t reordered(plan *p, dnnl_memory_t source, const description *to, void *data) {
    const description *from = NULL;
    if (p->failed || !ok(p, dnnl_memory_get_memory_desc(source, &from))) return NULL;
    if (!data && dnnl_memory_desc_equal(from, to)) return source;
    dnnl_primitive_desc_t pd = NULL;
    if (!ok(p, dnnl_reorder_primitive_desc_create(&pd, from, p->engine, to, p->engine, NULL))) return NULL;
    dnnl_memory_t target = memory(p, to, data);
    step *s = add_step(p, pd);
    argument(p, s, DNNL_ARG_FROM, source);
    argument(p, s, DNNL_ARG_TO, target);
    return target;
}

static void execute(plan *p, step *s) {
    ok(p, dnnl_primitive_execute(s->primitive, p->stream, s->count, s->arguments));
}

/* The same once, now. */
static dnnl_memory_t packed(plan *p, dnnl_memory_t source, const description *to) {
    int before = p->step_count;
    dnnl_memory_t target = reordered(p, source, to, NULL);
    if (p->failed || p->step_count == before) return target;
    execute(p, &p->steps[before]);
    dnnl_stream_wait(p->stream);
    dnnl_primitive_destroy(p->steps[before].primitive);
    p->steps[before] = (step){0};
    p->step_count = before;
    return target;
}

/* Attributes with an activation, if any. */
static dnnl_primitive_attr_t attributes_of(plan *p, const char *activation, dnnl_post_ops_t *post) {
    dnnl_primitive_attr_t attributes = NULL;
    ok(p, dnnl_primitive_attr_create(&attributes));
    ok(p, dnnl_post_ops_create(post));
    if (activation && strcmp(activation, "relu") == 0)
        ok(p, dnnl_post_ops_append_eltwise(*post, 1, dnnl_eltwise_relu, 0, 0));
    else if (activation && strcmp(activation, "gelu") == 0)
        ok(p, dnnl_post_ops_append_eltwise(*post, 1, dnnl_eltwise_gelu_erf, 0, 0));
    ok(p, dnnl_primitive_attr_set_post_ops(attributes, *post));
    return attributes;
}

static void release_attributes(dnnl_primitive_attr_t attributes, dnnl_post_ops_t post) {
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attributes);
}

/* ---- contraction ------------------------------------------------------------------------------------------------------------ */

/* The step of a primitive on the problem's tensors, weights packed beforehand. bias NULL: none. */
static void run_contraction(plan *p, const bench_problem *problem, dnnl_primitive_desc_t pd, const description *x,
                            const description *w, const description *bias, const description *y) {
    if (p->failed) return;
    dnnl_memory_t weights = packed(p, memory(p, w, problem->operands[1].data), wanted(pd, dnnl_query_weights_md));
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, memory(p, x, problem->operands[0].data));
    argument(p, run, DNNL_ARG_WEIGHTS, weights);
    if (bias) argument(p, run, DNNL_ARG_BIAS, memory(p, bias, problem->operands[2].data));
    argument(p, run, DNNL_ARG_DST, memory(p, y, problem->results[0].data));
}

static void contract_matmul(plan *p, const bench_problem *problem) {
    const bench_shape *s = problem->shape;
    int64_t b = bench_number(s, "b", 1), m = bench_number(s, "m", 1), n = bench_number(s, "n", 1),
            k = bench_number(s, "k", 1);
    int skip = b == 1, rank = 3 - skip;
    description x = plain(p, DLC_F32, rank, D(b, m, k) + skip, NULL),
                w = plain(p, DLC_F32, rank, D(b, k, n) + skip, NULL);
    description w_any = problem->operands[1].constant ? any(p, rank, D(b, k, n) + skip) : w;
    description y = plain(p, DLC_F32, rank, D(b, m, n) + skip, NULL),
                bias = plain(p, DLC_F32, rank, D(1, 1, n) + skip, NULL);
    bool biased = bench_flag(s, "bias");
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attributes = attributes_of(p, bench_text(s, "act"), &post);
    dnnl_matmul_desc_t operation;
    ok(p, dnnl_matmul_desc_init(&operation, &x, &w_any, biased ? &bias : NULL, &y));
    dnnl_primitive_desc_t pd = describe_primitive(p, &operation, attributes);
    release_attributes(attributes, post);
    run_contraction(p, problem, pd, &x, &w, biased ? &bias : NULL, &y);
}

static void contract_inner_product(plan *p, const bench_problem *problem) {
    const bench_shape *s = problem->shape;
    int64_t m = bench_number(s, "m", 1), n = bench_number(s, "n", 1), k = bench_number(s, "k", 1);
    if (bench_number(s, "b", 1) != 1 || !problem->operands[1].constant) {
        p->failed = true;
        return;
    }
    description x = plain(p, DLC_F32, 2, D(m, k), NULL), y = plain(p, DLC_F32, 2, D(m, n), NULL),
                bias = plain(p, DLC_F32, 1, D(n), NULL);
    description w = plain(p, DLC_F32, 2, D(n, k), D(1, n)), w_any = any(p, 2, D(n, k));
    bool biased = bench_flag(s, "bias");
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attributes = attributes_of(p, bench_text(s, "act"), &post);
    dnnl_inner_product_desc_t operation;
    ok(p,
       dnnl_inner_product_forward_desc_init(&operation, dnnl_forward_inference, &x, &w_any, biased ? &bias : NULL, &y));
    dnnl_primitive_desc_t pd = describe_primitive(p, &operation, attributes);
    release_attributes(attributes, post);
    run_contraction(p, problem, pd, &x, &w, biased ? &bias : NULL, &y);
}

/* ---- convolution ------------------------------------------------------------------------------------------------------------- */

/* One convolution of the chain from `x`, whose logical dimensions are in `dims`; they become those of the result. */
static dnnl_memory_t convolve(plan *p, const bench_problem *problem, dnnl_alg_kind_t algorithm, dnnl_memory_t x,
                              int64_t dims[4], int *operand) {
    const bench_shape *s = problem->shape;
    int64_t co = bench_number(s, "co", 1), groups = bench_number(s, "groups", 1), ci = dims[1];
    int64_t kernel[2] = {bench_number(s, "kh", 1), bench_number(s, "kw", 1)}, stride = bench_number(s, "stride", 1);
    int64_t pad = bench_number(s, "pad", 0), dilation = bench_number(s, "dilation", 1), out[4] = {dims[0], co, 0, 0};
    bool transposed = bench_flag(s, "transposed"), grouped = groups > 1, biased = bench_flag(s, "bias");
    for (int i = 0; i < 2; i++)
        out[2 + i] = transposed ? (dims[2 + i] - 1) * stride + kernel[i] - 2 * pad
                                : (dims[2 + i] + 2 * pad - dilation * (kernel[i] - 1) - 1) / stride + 1;
    const int64_t *w_dims = D(groups, co / groups, ci / groups, kernel[0], kernel[1]) + !grouped;
    int64_t taps = kernel[0] * kernel[1];
    description x_any = any(p, 4, dims), y_any = any(p, 4, out), w_any = any(p, 4 + grouped, w_dims);
    description w = plain(p, DLC_F32, 4 + grouped, w_dims, transposed ? D(taps, co * taps, kernel[1], 1) : NULL);
    description bias = plain(p, DLC_F32, 1, &co, NULL);
    dnnl_dims_t strides = {stride, stride}, dilations = {dilation - 1, dilation - 1}, pads = {pad, pad};
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attributes = attributes_of(p, bench_text(s, "act"), &post);
    dnnl_convolution_desc_t operation;
    ok(p, transposed ? dnnl_dilated_deconvolution_forward_desc_init(
                           &operation, dnnl_forward_inference, dnnl_deconvolution_direct, &x_any, &w_any,
                           biased ? &bias : NULL, &y_any, strides, dilations, pads, pads)
                     : dnnl_dilated_convolution_forward_desc_init(&operation, dnnl_forward_inference, algorithm, &x_any,
                                                                  &w_any, biased ? &bias : NULL, &y_any, strides,
                                                                  dilations, pads, pads));
    dnnl_primitive_desc_t pd = describe_primitive(p, &operation, attributes);
    release_attributes(attributes, post);
    if (p->failed) return NULL;
    dnnl_memory_t weights =
        packed(p, memory(p, &w, problem->operands[(*operand)++].data), wanted(pd, dnnl_query_weights_md));
    dnnl_memory_t from = reordered(p, x, wanted(pd, dnnl_query_src_md), NULL),
                  y = memory(p, wanted(pd, dnnl_query_dst_md), NULL);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, from);
    argument(p, run, DNNL_ARG_WEIGHTS, weights);
    if (biased) argument(p, run, DNNL_ARG_BIAS, memory(p, &bias, problem->operands[(*operand)++].data));
    argument(p, run, DNNL_ARG_DST, y);
    memcpy(dims, out, sizeof out);
    return y;
}

static void convolution(plan *p, const bench_problem *problem, dnnl_alg_kind_t algorithm) {
    const bench_operand *source = &problem->operands[0], *target = &problem->results[0];
    int64_t dims[4];
    memcpy(dims, source->dims, sizeof dims);
    description x = plain(p, DLC_F32, 4, dims, NULL), y = plain(p, DLC_F32, 4, target->dims, NULL);
    dnnl_memory_t m = memory(p, &x, source->data);
    int operand = 1;
    for (int64_t i = 0; i < bench_number(problem->shape, "chain", 1) && !p->failed; i++)
        m = convolve(p, problem, algorithm, m, dims, &operand);
    reordered(p, m, &y, target->data);
}

static void convolve_direct(plan *p, const bench_problem *problem) {
    convolution(p, problem, dnnl_convolution_direct);
}
static void convolve_winograd(plan *p, const bench_problem *problem) {
    convolution(p, problem, dnnl_convolution_winograd);
}

/* ---- attention: three primitives ------------------------------------------------------------------------------------------------ */

/* What is added to the scores: 0 or minus infinity. False when nothing is. */
static bool add_mask(plan *p, const bench_problem *problem, const int64_t *scores, dnnl_post_ops_t post,
                     dnnl_memory_t *mask) {
    const bench_shape *s = problem->shape;
    bool causal = bench_flag(s, "causal");
    if (!causal && !bench_flag(s, "masked")) return false;
    description d = causal ? plain(p, DLC_F32, 4, D(1, 1, scores[2], scores[3]), NULL)
                           : plain(p, DLC_F32, 4, D(scores[0], 1, 1, scores[3]), NULL);
    *mask = memory(p, &d, NULL);
    void *data = NULL;
    if (p->failed || !ok(p, dnnl_memory_get_data_handle(*mask, &data))) return false;
    float *values = data;
    const uint8_t *seen = causal ? NULL : problem->operands[3].data;
    int64_t rows = causal ? scores[2] : scores[0], keys = scores[3];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < keys; j++)
            values[i * keys + j] = (causal ? j <= i + keys - scores[2] : seen[i * keys + j] != 0) ? 0 : -INFINITY;
    return ok(p, dnnl_post_ops_append_binary(post, dnnl_binary_add, &d));
}

static void attention(plan *p, const bench_problem *problem) {
    const bench_operand *q = &problem->operands[0], *k = &problem->operands[1];
    if (q->dims[1] != k->dims[1]) {
        p->failed = true;
        return;
    }
    int64_t dim = q->dims[3], scores_dims[4] = {q->dims[0], q->dims[1], q->dims[2], k->dims[2]};
    int64_t keys[4] = {q->dims[0], q->dims[1], dim, k->dims[2]}, head = k->dims[2] * dim;
    description qd = plain(p, DLC_F32, 4, q->dims, NULL),
                kd = plain(p, DLC_F32, 4, keys, D(head * q->dims[1], head, 1, dim));
    description vd = plain(p, DLC_F32, 4, k->dims, NULL), yd = plain(p, DLC_F32, 4, q->dims, NULL);
    description sd = plain(p, DLC_F32, 4, scores_dims, NULL);
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attributes = attributes_of(p, NULL, &post);
    dnnl_memory_t mask = NULL, scores = memory(p, &sd, NULL);
    bool masked = add_mask(p, problem, scores_dims, post, &mask);
    float scale = (float)(1 / sqrt((double)dim));
    ok(p, dnnl_primitive_attr_set_post_ops(attributes, post));
    ok(p, dnnl_primitive_attr_set_output_scales(attributes, 1, 0, &scale));
    dnnl_matmul_desc_t operation;
    ok(p, dnnl_matmul_desc_init(&operation, &qd, &kd, NULL, &sd));
    step *run = add_step(p, describe_primitive(p, &operation, attributes));
    release_attributes(attributes, post);
    argument(p, run, DNNL_ARG_SRC, memory(p, &qd, q->data));
    argument(p, run, DNNL_ARG_WEIGHTS, memory(p, &kd, k->data));
    argument(p, run, DNNL_ARG_DST, scores);
    if (masked) argument(p, run, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, mask);
    dnnl_softmax_v2_desc_t softmax;
    ok(p, dnnl_softmax_v2_forward_desc_init(&softmax, dnnl_forward_inference, dnnl_softmax_accurate, &sd, &sd, 3));
    run = add_step(p, describe_primitive(p, &softmax, NULL));
    argument(p, run, DNNL_ARG_SRC, scores);
    argument(p, run, DNNL_ARG_DST, scores);
    ok(p, dnnl_matmul_desc_init(&operation, &sd, &vd, NULL, &yd));
    run = add_step(p, describe_primitive(p, &operation, NULL));
    argument(p, run, DNNL_ARG_SRC, scores);
    argument(p, run, DNNL_ARG_WEIGHTS, memory(p, &vd, problem->operands[2].data));
    argument(p, run, DNNL_ARG_DST, memory(p, &yd, problem->results[0].data));
}

/* ---- rows, maps, moves -------------------------------------------------------------------------------------------------------------- */

static void unary(plan *p, dnnl_primitive_desc_t pd, const bench_problem *problem, const description *x,
                  const description *y) {
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, memory(p, x, problem->operands[0].data));
    argument(p, run, DNNL_ARG_DST, memory(p, y, problem->results[0].data));
}

static void softmax(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain(p, DLC_F32, x->rank, x->dims, NULL);
    dnnl_softmax_v2_desc_t operation;
    ok(p, dnnl_softmax_v2_forward_desc_init(&operation, dnnl_forward_inference,
                                            strcmp(problem->shape->name, "softmax") == 0 ? dnnl_softmax_accurate
                                                                                         : dnnl_softmax_log,
                                            &d, &d, (int)bench_number(problem->shape, "axis", x->rank - 1)));
    unary(p, describe_primitive(p, &operation, NULL), problem, &d, &d);
}

static void layer_norm(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain(p, DLC_F32, x->rank, x->dims, NULL), one = plain(p, DLC_F32, 1, &x->dims[x->rank - 1], NULL);
    dnnl_layer_normalization_desc_t operation;
    ok(p, dnnl_layer_normalization_forward_desc_init(&operation, dnnl_forward_inference, &d, NULL, 1e-5f,
                                                     dnnl_use_scale | dnnl_use_shift));
    dnnl_primitive_desc_t pd = describe_primitive(p, &operation, NULL);
    if (p->failed) return;
    unary(p, pd, problem, &d, &d);
    step *run = &p->steps[p->step_count - 1];
    argument(p, run, DNNL_ARG_SCALE, memory(p, &one, problem->operands[1].data));
    argument(p, run, DNNL_ARG_SHIFT, memory(p, &one, problem->operands[2].data));
}

static void reduction(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    int64_t kept[DLC_MAX_RANK], axes[DLC_MAX_RANK];
    memcpy(kept, x->dims, sizeof kept);
    int count = bench_numbers(bench_text(problem->shape, "axis"), axes);
    for (int i = 0; i < count; i++) kept[axes[i]] = 1;
    description from = plain(p, DLC_F32, x->rank, x->dims, NULL), to = plain(p, DLC_F32, x->rank, kept, NULL);
    dnnl_reduction_desc_t operation;
    bool sum = strcmp(problem->shape->name, "reduce_sum") == 0;
    ok(p, dnnl_reduction_desc_init(&operation, sum ? dnnl_reduction_sum : dnnl_reduction_max, &from, &to, 0, 0));
    unary(p, describe_primitive(p, &operation, NULL), problem, &from, &to);
}

/* Elementwise operations want two dimensions at least: with one, the reference implementation does nothing. */
static description flat(plan *p, const bench_operand *x) {
    return plain(p, DLC_F32, 2, D(1, (int64_t)(x->bytes / 4)), NULL);
}

static void eltwise(plan *p, dnnl_alg_kind_t algorithm, float alpha, float beta, const description *d,
                    dnnl_memory_t from, dnnl_memory_t to) {
    dnnl_eltwise_desc_t operation;
    ok(p, dnnl_eltwise_forward_desc_init(&operation, dnnl_forward_inference, algorithm, d, alpha, beta));
    step *run = add_step(p, describe_primitive(p, &operation, NULL));
    argument(p, run, DNNL_ARG_SRC, from);
    argument(p, run, DNNL_ARG_DST, to);
}

static void gelu_two_passes(plan *p, const bench_problem *problem) {
    description d = flat(p, &problem->operands[0]);
    dnnl_memory_t x = memory(p, &d, problem->operands[0].data), y = memory(p, &d, problem->results[0].data);
    eltwise(p, dnnl_eltwise_linear, BENCH_MAP_A, BENCH_MAP_B, &d, x, y);
    eltwise(p, dnnl_eltwise_gelu_erf, 0, 0, &d, y, y);
}

/* A product with one number and two post-ops: compiled code, unlike an elementwise operation with post-ops. */
static void gelu_one_pass(plan *p, const bench_problem *problem) {
    description d = flat(p, &problem->operands[0]), one = plain(p, DLC_F32, 2, D(1, 1), NULL);
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t post = NULL;
    ok(p, dnnl_primitive_attr_create(&attributes));
    ok(p, dnnl_post_ops_create(&post));
    ok(p, dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_linear, 1, BENCH_MAP_B));
    ok(p, dnnl_post_ops_append_eltwise(post, 1, dnnl_eltwise_gelu_erf, 0, 0));
    ok(p, dnnl_primitive_attr_set_post_ops(attributes, post));
    dnnl_binary_desc_t operation;
    ok(p, dnnl_binary_desc_init(&operation, dnnl_binary_mul, &d, &one, &d));
    dnnl_primitive_desc_t pd = describe_primitive(p, &operation, attributes);
    release_attributes(attributes, post);
    dnnl_memory_t factor = memory(p, &one, NULL);
    void *data = NULL;
    if (p->failed || !ok(p, dnnl_memory_get_data_handle(factor, &data))) return;
    *(float *)data = BENCH_MAP_A;
    unary(p, pd, problem, &d, &d);
    argument(p, &p->steps[p->step_count - 1], DNNL_ARG_SRC_1, factor);
}

/* add, bias+relu */
static void add_map(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0], *y = &problem->operands[1];
    description d = plain(p, DLC_F32, x->rank, x->dims, NULL), second = plain(p, DLC_F32, y->rank, y->dims, NULL);
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_attr_t attributes = attributes_of(p, strstr(problem->shape->name, "relu") ? "relu" : NULL, &post);
    dnnl_binary_desc_t operation;
    ok(p, dnnl_binary_desc_init(&operation, dnnl_binary_add, &d, &second, &d));
    dnnl_primitive_desc_t pd = describe_primitive(p, &operation, attributes);
    release_attributes(attributes, post);
    if (p->failed) return;
    unary(p, pd, problem, &d, &d);
    argument(p, &p->steps[p->step_count - 1], DNNL_ARG_SRC_1, memory(p, &second, y->data));
}

/* Two passes: with a post-op, an elementwise operation is not compiled. */
static void silu_gate(plan *p, const bench_problem *problem) {
    description d = flat(p, &problem->operands[0]);
    dnnl_memory_t x = memory(p, &d, problem->operands[0].data), y = memory(p, &d, problem->results[0].data);
    eltwise(p, dnnl_eltwise_swish, 1, 0, &d, x, y);
    dnnl_binary_desc_t operation;
    ok(p, dnnl_binary_desc_init(&operation, dnnl_binary_mul, &d, &d, &d));
    step *run = add_step(p, describe_primitive(p, &operation, NULL));
    argument(p, run, DNNL_ARG_SRC_0, y);
    argument(p, run, DNNL_ARG_SRC_1, memory(p, &d, problem->operands[1].data));
    argument(p, run, DNNL_ARG_DST, y);
}

static void cast_map(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description from = plain(p, DLC_F32, x->rank, x->dims, NULL), to = plain(p, DLC_BF16, x->rank, x->dims, NULL);
    reordered(p, memory(p, &from, x->data), &to, problem->results[0].data);
}

static void transpose(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0], *y = &problem->results[0];
    int64_t permutation[DLC_MAX_RANK], compact[DLC_MAX_RANK], strides[DLC_MAX_RANK];
    bench_numbers(bench_text(problem->shape, "perm"), permutation);
    for (int i = x->rank - 1; i >= 0; i--) compact[i] = i == x->rank - 1 ? 1 : compact[i + 1] * x->dims[i + 1];
    for (int i = 0; i < x->rank; i++) strides[i] = compact[permutation[i]];
    description from = plain(p, DLC_F32, y->rank, y->dims, strides), to = plain(p, DLC_F32, y->rank, y->dims, NULL);
    reordered(p, memory(p, &from, x->data), &to, y->data);
}

/* ---- the peer ----------------------------------------------------------------------------------------------------------------------- */

typedef void way(plan *p, const bench_problem *problem);
enum { MAX_WAYS = 2 };
static const struct {
    const char *kind, *name; /* name NULL: all of the kind */
    way *ways[MAX_WAYS];
} table[] = {
    {"contraction", NULL, {contract_matmul, contract_inner_product}},
    {"convolution", NULL, {convolve_direct, convolve_winograd}},
    {"attention", NULL, {attention, NULL}},
    {"row", "softmax", {softmax, NULL}},
    {"row", "log_softmax", {softmax, NULL}},
    {"row", "layer_norm", {layer_norm, NULL}},
    {"row", "reduce_sum", {reduction, NULL}},
    {"row", "reduce_max", {reduction, NULL}},
    {"map", "gelu(a*x+b)", {gelu_one_pass, gelu_two_passes}},
    {"map", "add", {add_map, NULL}},
    {"map", "bias+relu", {add_map, NULL}},
    {"map", "silu*gate", {silu_gate, NULL}},
    {"map", "cast f32->bf16", {cast_map, NULL}},
    {"move", "transpose", {transpose, NULL}},
};

static void run(void *state) {
    plan *p = state;
    for (int i = 0; i < p->step_count; i++) execute(p, &p->steps[i]);
    dnnl_stream_wait(p->stream);
}

static void release(void *state) {
    plan *p = state;
    for (int i = 0; i < p->step_count; i++) dnnl_primitive_destroy(p->steps[i].primitive);
    for (int i = 0; i < p->memory_count; i++) dnnl_memory_destroy(p->memories[i]);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
    free(p);
}

static plan *try_way(way *build, const bench_problem *problem) {
    plan *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    if (ok(p, dnnl_engine_create(&p->engine, dnnl_cpu, 0)))
        ok(p, dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
    if (!p->failed) build(p, problem);
    if (!p->failed) run(p);
    if (!p->failed) return p;
    release(p);
    return NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The best of a few runs within 30 ms. */
static double quick_time(plan *p) {
    double best = HUGE_VAL, begin = now();
    for (int i = 0; i < 3 || (i < 1000 && now() - begin < 0.03); i++) {
        double start = now();
        run(p);
        double seconds = now() - start;
        if (seconds < best) best = seconds;
    }
    return best;
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    plan *best = NULL;
    double best_seconds = HUGE_VAL;
    for (size_t row = 0; row < sizeof table / sizeof *table; row++) {
        const char *name = table[row].name;
        if (strcmp(table[row].kind, problem->shape->kind) != 0 || (name && strcmp(name, problem->shape->name) != 0))
            continue;
        for (int w = 0; w < MAX_WAYS && table[row].ways[w]; w++) {
            plan *p = try_way(table[row].ways[w], problem);
            double seconds = p ? quick_time(p) : HUGE_VAL;
            if (p && seconds < best_seconds) {
                if (best) release(best);
                best = p, best_seconds = seconds;
            } else if (p) {
                release(p);
            }
        }
    }
    if (best) snprintf(note, note_size, "%s", best->note);
    return best;
}

static void describe(char *text, size_t size) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, size, "%d.%d.%d; f32, instruction set code 0x%x", v->major, v->minor, v->patch,
             (unsigned)dnnl_get_effective_cpu_isa());
}

static void set_threads(int count) {
    omp_set_num_threads(count);
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {"onednn", describe, set_threads, prepare, run, release};
    return &peer;
}
