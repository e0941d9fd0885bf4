/* oneDNN as a peer, for all kinds of cases: a plug-in for each version whose headers are found; how versions differ is in
 * peer_onednn.h. Fairness: the line's element types throughout; weights in `format any`, reordered once before the contest; post-ops instead of second
 * passes; tensors that the host sees are plain row-major for both sides, and what oneDNN reorders of them between calls is part of
 * its time, as it is of ours; where it has several ways the fastest is taken. */
#include "bench/peer_onednn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* From the OpenMP run time that oneDNN runs on; its header speaks one compiler only. */
void omp_set_num_threads(int count);

/* ---- building blocks; after a failure they do nothing --------------------------------------------------------------------- */

static bool ok(plan *p, dnnl_status_t status) {
    if (status != dnnl_success) p->failed = true;
    return !p->failed;
}

/* A memory descriptor, row-major or with the given strides. */
static description typed(plan *p, dnnl_data_type_t type, int rank, const int64_t *dims, const int64_t *strides) {
    dnnl_dims_t sizes = {0}, steps = {0};
    for (int i = rank - 1; i >= 0; i--) {
        sizes[i] = dims[i];
        steps[i] = strides ? strides[i] : i == rank - 1 ? 1 : steps[i + 1] * dims[i + 1];
    }
    if (p->failed || p->description_count == MAX_DESCRIPTIONS) return p->failed = true, NULL;
    dnnl_memory_desc_t *d = &p->descriptions[p->description_count];
    return ok(p, make_strided(d, rank, sizes, type, steps)) ? p->description_count++, handle_of(d) : NULL;
}

static description plain(plan *p, int rank, const int64_t *dims) {
    return typed(p, dnnl_f32, rank, dims, NULL);
}

static description plain_of(plan *p, const bench_operand *x) {
    return plain(p, x->rank, x->dims);
}

static description tagged(plan *p, dnnl_data_type_t type, int rank, const int64_t *dims, dnnl_format_tag_t tag) {
    dnnl_dims_t sizes = {0};
    memcpy(sizes, dims, (size_t)rank * sizeof *dims);
    if (p->failed || p->description_count == MAX_DESCRIPTIONS) return p->failed = true, NULL;
    dnnl_memory_desc_t *d = &p->descriptions[p->description_count];
    return ok(p, make_tagged(d, rank, sizes, type, tag)) ? p->description_count++, handle_of(d) : NULL;
}

/* A descriptor whose layout oneDNN chooses. */
static description any(plan *p, dnnl_data_type_t type, int rank, const int64_t *dims) {
    return tagged(p, type, rank, dims, dnnl_format_tag_any);
}

#define D(...)          \
    (const int64_t[]) { \
        __VA_ARGS__     \
    }

/* A memory object at `data`; NULL: oneDNN allocates it. */
static dnnl_memory_t memory(plan *p, description d, void *data) {
    dnnl_memory_t m = NULL;
    if (p->failed || p->memory_count == MAX_MEMORIES) return p->failed = true, NULL;
    if (ok(p, dnnl_memory_create(&m, d, p->engine, data ? data : DNNL_MEMORY_ALLOCATE)))
        p->memories[p->memory_count++] = m;
    return m;
}

static float *values_of(plan *p, dnnl_memory_t m) {
    void *data = NULL;
    return p->failed || !ok(p, dnnl_memory_get_data_handle(m, &data)) ? NULL : data;
}

/* A memory object that holds one number. */
static dnnl_memory_t number(plan *p, description d, float value) {
    dnnl_memory_t m = memory(p, d, NULL);
    float *data = values_of(p, m);
    if (data) *data = value;
    return m;
}

static void argument(plan *p, step *s, int name, dnnl_memory_t m) {
    if (p->failed) return;
    if (s->count == MAX_ARGUMENTS)
        p->failed = true;
    else
        s->arguments[s->count++] = (dnnl_exec_arg_t){name, m};
}

static description wanted(dnnl_primitive_desc_t pd, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* Adds a step that executes the primitive described by `pd`, which is destroyed. */
static step *add_step(plan *p, dnnl_primitive_desc_t pd) {
    static step nowhere;
    if (p->failed || p->step_count == MAX_STEPS) return p->failed = true, nowhere.count = 0, &nowhere;
    step *s = &p->steps[p->step_count];
    const char *implementation = NULL;
    dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &implementation) == dnnl_success && !p->note[0])
        snprintf(p->note, sizeof p->note, "%s", implementation);
    if (implementation && dnnl_primitive_desc_query(pd, dnnl_query_primitive_kind, 0, &kind) == dnnl_success)
        p->by_reference = p->by_reference || (kind == dnnl_convolution && strncmp(implementation, "ref", 3) == 0);
    if (ok(p, dnnl_primitive_create(&s->primitive, pd))) p->step_count++;
    dnnl_primitive_desc_destroy(pd);
    return s;
}

/* `source` in the format `to`: `source` itself if it has that format and `data` is NULL, otherwise the result of a reorder, which is added
 * as a step. */
static dnnl_memory_t reordered(plan *p, dnnl_memory_t source, description to, void *data) {
    description from = NULL;
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

/* Like reordered, but the reorder is executed now, once, and does not become a step. */
static dnnl_memory_t packed(plan *p, dnnl_memory_t source, description to) {
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

/* Attributes of a primitive: what follows its own operation, in the order of the calls. */
typedef struct after {
    dnnl_primitive_attr_t attributes;
    dnnl_post_ops_t post;
} after;

static after after_nothing(plan *p) {
    after a = {0};
    ok(p, dnnl_primitive_attr_create(&a.attributes));
    ok(p, dnnl_post_ops_create(&a.post));
    return a;
}

static void then_eltwise(plan *p, after *a, dnnl_alg_kind_t kind, float alpha, float beta) {
    if (!p->failed) ok(p, post_eltwise(a->post, kind, alpha, beta));
}

static void then_binary(plan *p, after *a, dnnl_alg_kind_t kind, description d) {
    if (!p->failed) ok(p, dnnl_post_ops_append_binary(a->post, kind, d));
}

/* Attributes for the activation that the line names, if any. */
static after after_activation(plan *p, const char *activation) {
    after a = after_nothing(p);
    if (activation)
        then_eltwise(p, &a, strcmp(activation, "relu") == 0 ? dnnl_eltwise_relu : dnnl_eltwise_gelu_erf, 0, 0);
    return a;
}

static const_dnnl_primitive_attr_t attributes_of(plan *p, after *a) {
    if (!p->failed) ok(p, dnnl_primitive_attr_set_post_ops(a->attributes, a->post));
    return a->attributes;
}

static void release_after(after *a) {
    dnnl_post_ops_destroy(a->post);
    dnnl_primitive_attr_destroy(a->attributes);
}

/* ---- contraction ------------------------------------------------------------------------------------------------------------ */

static dnnl_data_type_t type_of(plan *p, dlc_dtype dtype) {
    switch (dtype) {
    case DLC_F32: return dnnl_f32;
    case DLC_F16: return dnnl_f16;
    case DLC_BF16: return dnnl_bf16;
    case DLC_U8: return dnnl_u8;
    case DLC_I8: return dnnl_s8;
    case DLC_I32: return dnnl_s32;
    default: p->failed = true; return dnnl_f32;
    }
}

/* What follows the sums of one contraction or convolution: operands from `operand` on are its bias and, for quantised sums that become
 * another type, a factor for each channel. */
typedef struct epilogue {
    const bench_operand *bias, *factors;
    /* NULL: there is no bias */
    description bias_description;
    after after;
} epilogue;

/* `channels`: the axes of the weights that factors belong to. bias_rank: 1, or that of the result of a product. */
static epilogue epilogue_of(plan *p, const bench_problem *problem, const bench_types *t, int *operand, int bias_rank,
                            int channels) {
    const bench_shape *s = problem->shape;
    epilogue e = {.after = after_activation(p, bench_text(s, "act"))};
    if (bench_flag(s, "bias")) e.bias = &problem->operands[(*operand)++];
    if (t->sum == DLC_I32 && t->out != DLC_I32) e.factors = &problem->operands[(*operand)++];
    if (e.factors) ok(p, scale_weights(e.after.attributes, channels));
    if (t->x == DLC_F64) p->failed = true; /* only a reference implementation */
    if (e.bias && t->sum == DLC_I32 && !e.factors) p->failed = true;
    if (e.bias) {
        int64_t count = (int64_t)(e.bias->bytes / bench_dtype_bytes(e.bias->dtype));
        int64_t dims[3] = {1, 1, 1};
        dims[bias_rank - 1] = count;
        e.bias_description = plain(p, bias_rank, dims);
    }
    return e;
}

/* Gives the step its bias and factors as arguments. oneDNN adds the bias to sums that are already scaled, so the bias is scaled here,
 * too. */
static void add_epilogue(plan *p, step *run, const epilogue *e) {
    if (e->bias) {
        dnnl_memory_t bias = memory(p, e->bias_description, e->factors ? NULL : e->bias->data);
        float *values = e->factors ? values_of(p, bias) : NULL;
        size_t count = e->factors ? e->factors->bytes / 4 : 0;
        for (size_t i = 0; values && i < count; i++)
            values[i] = (float)(bench_element(e->bias, i) * bench_element(e->factors, i));
        argument(p, run, DNNL_ARG_BIAS, bias);
    }
    if (e->factors)
        argument(p, run, DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
                 memory(p, plain(p, 1, D((int64_t)(e->factors->bytes / 4))), e->factors->data));
}

/* The step once its primitive is known. Weights that are not constant and that the primitive wants otherwise are reordered each time. */
static void add_contraction(plan *p, const bench_problem *problem, dnnl_primitive_desc_t pd, description x,
                            description w, const epilogue *e, description y) {
    if (p->failed) return;
    dnnl_memory_t weights = memory(p, w, problem->operands[1].data);
    weights = problem->operands[1].constant ? packed(p, weights, wanted(pd, dnnl_query_weights_md))
                                            : reordered(p, weights, wanted(pd, dnnl_query_weights_md), NULL);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, memory(p, x, problem->operands[0].data));
    argument(p, run, DNNL_ARG_WEIGHTS, weights);
    add_epilogue(p, run, e);
    argument(p, run, DNNL_ARG_DST, memory(p, y, problem->results[0].data));
}

static void matmul(plan *p, const bench_problem *problem, bool plain_weights) {
    const bench_shape *s = problem->shape;
    int64_t b = bench_number(s, "b", 1), m = bench_number(s, "m", 1), n = bench_number(s, "n", 1),
            k = bench_number(s, "k", 1);
    int skip = b == 1, rank = 3 - skip, operand = 2;
    bench_types t = {0};
    bench_types_of(&t, s);
    dnnl_data_type_t xt = type_of(p, t.x), wt = type_of(p, t.w), yt = type_of(p, t.out);
    description x = typed(p, xt, rank, D(b, m, k) + skip, NULL), w = typed(p, wt, rank, D(b, k, n) + skip, NULL);
    description w_any = plain_weights ? w : any(p, wt, rank, D(b, k, n) + skip);
    description y = typed(p, yt, rank, D(b, m, n) + skip, NULL);
    epilogue e = epilogue_of(p, problem, &t, &operand, rank, 1 << (rank - 1));
    dnnl_primitive_desc_t pd = NULL;
    const_dnnl_primitive_attr_t attributes = attributes_of(p, &e.after);
    if (!p->failed) ok(p, make_matmul(&pd, p->engine, x, w_any, e.bias_description, y, attributes));
    release_after(&e.after);
    add_contraction(p, problem, pd, x, w, &e, y);
}

static void contract_matmul(plan *p, const bench_problem *problem) {
    matmul(p, problem, false);
}

/* A product whose operands are both given at run time, and are read in the layout that they have. */
static void contract_plain(plan *p, const bench_problem *problem) {
    if (problem->operands[1].constant) p->failed = true;
    matmul(p, problem, true);
}

static void contract_inner_product(plan *p, const bench_problem *problem) {
    const bench_shape *s = problem->shape;
    int64_t m = bench_number(s, "m", 1), n = bench_number(s, "n", 1), k = bench_number(s, "k", 1);
    int operand = 2;
    bench_types t = {0};
    bench_types_of(&t, s);
    if (bench_number(s, "b", 1) != 1 || !problem->operands[1].constant) p->failed = true;
    dnnl_data_type_t xt = type_of(p, t.x), wt = type_of(p, t.w), yt = type_of(p, t.out);
    description x = typed(p, xt, 2, D(m, k), NULL), y = typed(p, yt, 2, D(m, n), NULL);
    description w = typed(p, wt, 2, D(n, k), D(1, n)), w_any = any(p, wt, 2, D(n, k));
    epilogue e = epilogue_of(p, problem, &t, &operand, 1, 1);
    dnnl_primitive_desc_t pd = NULL;
    const_dnnl_primitive_attr_t attributes = attributes_of(p, &e.after);
    if (!p->failed) ok(p, make_inner_product(&pd, p->engine, x, w_any, e.bias_description, y, attributes));
    release_after(&e.after);
    add_contraction(p, problem, pd, x, w, &e, y);
}

/* ---- convolution ------------------------------------------------------------------------------------------------------------- */

/* Images as the line has them; logical dimensions are [n, c, h, w]. */
static description image(plan *p, const bench_problem *problem, dlc_dtype dtype, const int64_t dims[4]) {
    static const dnnl_format_tag_t tags[] = {
        [BENCH_PLAIN] = dnnl_abcd, [BENCH_BLOCKED] = dnnl_aBcd16b, [BENCH_LAST] = dnnl_acdb};
    return tagged(p, type_of(p, dtype), 4, dims, tags[bench_layout_of(problem->shape, dims[1])]);
}

/* How to convolve: the algorithm, and whether images stay in the layout of the line or take the one that oneDNN prefers. */
typedef struct manner {
    dnnl_alg_kind_t algorithm;
    bool as_given;
} manner;

static void output_dims(const bench_shape *s, const int64_t dims[4], const int64_t kernel[2], int64_t out[4]) {
    int64_t stride = bench_number(s, "stride", 1), pad = bench_number(s, "pad", 0);
    int64_t dilation = bench_number(s, "dilation", 1);
    out[0] = dims[0], out[1] = bench_number(s, "co", 1);
    for (int i = 0; i < 2; i++)
        out[2 + i] = bench_flag(s, "transposed")
                         ? (dims[2 + i] - 1) * stride + kernel[i] - 2 * pad
                         : (dims[2 + i] + 2 * pad - dilation * (kernel[i] - 1) - 1) / stride + 1;
}

/* One convolution of the chain from `x`, whose logical dimensions are in `dims`; they become those of the result. */
static dnnl_memory_t convolve(plan *p, const bench_problem *problem, manner how, dnnl_memory_t x, int64_t dims[4],
                              int *operand) {
    const bench_shape *s = problem->shape;
    int64_t co = bench_number(s, "co", 1), groups = bench_number(s, "groups", 1), ci = dims[1], out[4];
    int64_t kernel[2] = {bench_number(s, "kh", 1), bench_number(s, "kw", 1)}, stride = bench_number(s, "stride", 1);
    int64_t pad = bench_number(s, "pad", 0), dilation = bench_number(s, "dilation", 1), taps = kernel[0] * kernel[1];
    bool transposed = bench_flag(s, "transposed"), grouped = groups > 1;
    bench_types t = {0};
    bench_types_of(&t, s);
    output_dims(s, dims, kernel, out);
    dnnl_data_type_t xt = type_of(p, t.x), wt = type_of(p, t.w), yt = type_of(p, t.out);
    const int64_t *w_dims = D(groups, co / groups, ci / groups, kernel[0], kernel[1]) + !grouped;
    description x_any = how.as_given ? image(p, problem, t.x, dims) : any(p, xt, 4, dims);
    description y_any = how.as_given ? image(p, problem, t.out, out) : any(p, yt, 4, out);
    description w_any = any(p, wt, 4 + grouped, w_dims);
    description w = typed(p, wt, 4 + grouped, w_dims, transposed ? D(taps, co * taps, kernel[1], 1) : NULL);
    const bench_operand *filter = &problem->operands[(*operand)++];
    dnnl_dims_t strides = {stride, stride}, dilations = {dilation - 1, dilation - 1}, pads = {pad, pad};
    epilogue e = epilogue_of(p, problem, &t, operand, 1, grouped ? 3 : 1);
    const_dnnl_primitive_attr_t attributes = attributes_of(p, &e.after);
    description bias = e.bias_description;
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed)
        ok(p, transposed
                  ? make_deconvolution(&pd, p->engine, x_any, w_any, bias, y_any, strides, dilations, pads, attributes)
                  : make_convolution(&pd, p->engine, how.algorithm, x_any, w_any, bias, y_any, strides, dilations, pads,
                                     attributes));
    release_after(&e.after);
    if (p->failed) return NULL;
    dnnl_memory_t weights = packed(p, memory(p, w, filter->data), wanted(pd, dnnl_query_weights_md));
    dnnl_memory_t from = reordered(p, x, wanted(pd, dnnl_query_src_md), NULL),
                  y = memory(p, wanted(pd, dnnl_query_dst_md), NULL);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, from);
    argument(p, run, DNNL_ARG_WEIGHTS, weights);
    add_epilogue(p, run, &e);
    argument(p, run, DNNL_ARG_DST, y);
    memcpy(dims, out, sizeof out);
    return y;
}

/* The result in the host's memory: the last step writes there itself where it has the layout, else it is reordered. */
static void deliver(plan *p, dnnl_memory_t y, description to, void *data) {
    description from = NULL;
    if (p->failed || !ok(p, dnnl_memory_get_memory_desc(y, &from))) return;
    if (!dnnl_memory_desc_equal(from, to))
        reordered(p, y, to, data);
    else
        ok(p, dnnl_memory_set_data_handle(y, data));
}

static void convolution(plan *p, const bench_problem *problem, manner how) {
    const bench_shape *s = problem->shape;
    int64_t dims[4] = {bench_number(s, "n", 1), bench_number(s, "ci", 1), bench_number(s, "h", 1),
                       bench_number(s, "w", 1)};
    bench_types t = {0};
    bench_types_of(&t, s);
    dnnl_memory_t m = memory(p, image(p, problem, t.x, dims), problem->operands[0].data);
    int operand = 1;
    for (int64_t i = 0; i < bench_number(s, "chain", 1) && !p->failed; i++)
        m = convolve(p, problem, how, m, dims, &operand);
    deliver(p, m, image(p, problem, t.out, dims), problem->results[0].data);
}

static void convolve_direct(plan *p, const bench_problem *problem) {
    convolution(p, problem, (manner){dnnl_convolution_direct, false});
}
/* Keeps the line's layout; only for lines that name one. */
static void convolve_as_given(plan *p, const bench_problem *problem) {
    if (!bench_flag(problem->shape, "blocked") && !bench_flag(problem->shape, "last")) p->failed = true;
    convolution(p, problem, (manner){dnnl_convolution_direct, true});
}
/* Winograd's algorithm has less arithmetic and larger errors: only for lines that ask for it. */
static void convolve_winograd(plan *p, const bench_problem *problem) {
    if (!bench_flag(problem->shape, "winograd")) p->failed = true;
    convolution(p, problem, (manner){dnnl_convolution_winograd, false});
}

/* ---- attention ---------------------------------------------------------------------------------------------------------------- */

/* A tensor to add to the scores, of 0 and minus infinity, and its dimensions; NULL when nothing is added. With fewer queries than keys,
 * queries are the last positions. */
static dnnl_memory_t mask_of(plan *p, const bench_problem *problem, int64_t dims[4]) {
    const bench_operand *q = &problem->operands[0], *k = &problem->operands[1];
    bool causal = bench_flag(problem->shape, "causal");
    if (!causal && !bench_flag(problem->shape, "masked")) return NULL;
    int64_t rows = causal ? q->dims[2] : q->dims[0], keys = k->dims[2];
    memcpy(dims, causal ? D(1, 1, rows, keys) : D(rows, 1, 1, keys), 4 * sizeof *dims);
    dnnl_memory_t mask = memory(p, plain(p, 4, dims), NULL);
    float *values = values_of(p, mask);
    if (!values) return NULL;
    const uint8_t *seen = causal ? NULL : problem->operands[3].data;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < keys; j++)
            values[i * keys + j] = (causal ? j <= i + keys - rows : seen[i * keys + j] != 0) ? 0 : -INFINITY;
    return mask;
}

/* Three primitives. Where several heads of queries share one of keys, and no mask tells their rows apart, those are rows of one
 * product. */
static void attention(plan *p, const bench_problem *problem) {
    const bench_operand *q = &problem->operands[0], *k = &problem->operands[1];
    int64_t heads = k->dims[1], rows = q->dims[1] / heads * q->dims[2], dim = q->dims[3], keys = k->dims[2];
    if (heads != q->dims[1] && (bench_flag(problem->shape, "causal") || q->dims[1] % heads)) p->failed = true;
    description qd = plain(p, 4, D(q->dims[0], heads, rows, dim)),
                kd = typed(p, dnnl_f32, 4, D(q->dims[0], heads, dim, keys), D(keys * dim * heads, keys * dim, 1, dim)),
                vd = plain_of(p, k), sd = plain(p, 4, D(q->dims[0], heads, rows, keys));
    int64_t mask_dims[4];
    dnnl_memory_t mask = mask_of(p, problem, mask_dims), scores = memory(p, sd, NULL);
    after a = after_nothing(p);
    then_eltwise(p, &a, dnnl_eltwise_linear, (float)(1 / sqrt((double)dim)), 0);
    if (mask) then_binary(p, &a, dnnl_binary_add, plain(p, 4, mask_dims));
    const_dnnl_primitive_attr_t attributes = attributes_of(p, &a);
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed) ok(p, make_matmul(&pd, p->engine, qd, kd, NULL, sd, attributes));
    release_after(&a);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, memory(p, qd, q->data));
    argument(p, run, DNNL_ARG_WEIGHTS, memory(p, kd, k->data));
    argument(p, run, DNNL_ARG_DST, scores);
    if (mask) argument(p, run, DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, mask);
    if (!p->failed) ok(p, make_softmax(&pd, p->engine, dnnl_softmax_accurate, sd, sd, 3, NULL));
    run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, scores);
    argument(p, run, DNNL_ARG_DST, scores);
    if (!p->failed) ok(p, make_matmul(&pd, p->engine, sd, vd, NULL, qd, NULL));
    run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, scores);
    argument(p, run, DNNL_ARG_WEIGHTS, memory(p, vd, problem->operands[2].data));
    argument(p, run, DNNL_ARG_DST, memory(p, qd, problem->results[0].data));
}

#if DNNL_VERSION_MAJOR >= 3
static void fused_attention(plan *p, const bench_problem *problem) {
    int64_t dims[4];
    dnnl_memory_t mask = mask_of(p, problem, dims);
    const float *values = mask ? values_of(p, mask) : NULL;
    if (!p->failed) onednn_fused_attention(p, problem, values, dims);
}
#endif

/* ---- rows ------------------------------------------------------------------------------------------------------------------------ */

static step *unary(plan *p, dnnl_primitive_desc_t pd, const bench_problem *problem, description x, description y) {
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, memory(p, x, problem->operands[0].data));
    argument(p, run, DNNL_ARG_DST, memory(p, y, problem->results[0].data));
    return run;
}

static void softmax(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain_of(p, x);
    bool logarithm = strcmp(problem->shape->name, "softmax") != 0;
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed)
        ok(p, make_softmax(&pd, p->engine, logarithm ? dnnl_softmax_log : dnnl_softmax_accurate, d, d,
                           (int)bench_number(problem->shape, "axis", x->rank - 1), NULL));
    unary(p, pd, problem, d, d);
}

static void layer_norm(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain_of(p, x), one = plain(p, 1, &x->dims[x->rank - 1]);
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed) ok(p, make_layer_norm(&pd, p->engine, d, d, 1e-5f, NULL));
    step *run = unary(p, pd, problem, d, d);
    argument(p, run, DNNL_ARG_SCALE, memory(p, one, problem->operands[1].data));
    argument(p, run, DNNL_ARG_SHIFT, memory(p, one, problem->operands[2].data));
}

#if DNNL_VERSION_NUMBER >= 309
static void rms_norm(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain_of(p, x), one = plain(p, 1, &x->dims[x->rank - 1]);
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed)
        ok(p, dnnl_layer_normalization_forward_primitive_desc_create(&pd, p->engine, dnnl_forward_inference, d, d, NULL,
                                                                     1e-5f, dnnl_rms_norm | dnnl_use_scale, NULL));
    argument(p, unary(p, pd, problem, d, d), DNNL_ARG_SCALE, memory(p, one, problem->operands[1].data));
}
#endif

#if DNNL_VERSION_NUMBER >= 302
static void group_norm(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain_of(p, x), one = plain(p, 1, &x->dims[1]);
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed)
        ok(p, dnnl_group_normalization_forward_primitive_desc_create(&pd, p->engine, dnnl_forward_inference, d, d,
                                                                     bench_number(problem->shape, "groups", 1), 1e-5f,
                                                                     dnnl_use_scale | dnnl_use_shift, NULL));
    step *run = unary(p, pd, problem, d, d);
    argument(p, run, DNNL_ARG_SCALE, memory(p, one, problem->operands[1].data));
    argument(p, run, DNNL_ARG_SHIFT, memory(p, one, problem->operands[2].data));
}
#endif

static void reduction(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    int64_t kept[DLC_MAX_RANK], axes[DLC_MAX_RANK];
    memcpy(kept, x->dims, sizeof kept);
    int count = bench_numbers(bench_text(problem->shape, "axis"), axes);
    for (int i = 0; i < count; i++) kept[axes[i]] = 1;
    description from = plain_of(p, x), to = plain(p, x->rank, kept);
    bool sum = strcmp(problem->shape->name, "reduce_sum") == 0;
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed)
        ok(p, make_reduction(&pd, p->engine, sum ? dnnl_reduction_sum : dnnl_reduction_max, from, to, NULL));
    unary(p, pd, problem, from, to);
}

/* ---- backward: operands as train.c declares them -------------------------------------------------------------------------------- */

/* Gradient of a convolution by its weights (operands x, y) or by its input (operands y, w). Images and weights in the layouts that oneDNN
 * prefers; the host's are reordered each time. */
static void convolution_backward(plan *p, const bench_problem *problem) {
    const bench_shape *s = problem->shape;
    const bool by_weights = strcmp(s->name, "convolution weights") == 0;
    const int64_t groups = bench_number(s, "groups", 1), ci = bench_number(s, "ci", 1), co = bench_number(s, "co", 1),
                  kernel[2] = {bench_number(s, "kh", 1), bench_number(s, "kw", 1)},
                  stride = bench_number(s, "stride", 1), pad = bench_number(s, "pad", 0), *x_dims, *y_dims;
    const bench_operand *first = &problem->operands[0], *second = &problem->operands[1], *result = &problem->results[0];
    const window o = {{stride, stride}, {0, 0}, {pad, pad}};
    const bool grouped = groups > 1;
    const int64_t *w_dims = D(groups, co / groups, ci / groups, kernel[0], kernel[1]) + !grouped;
    const int w_rank = 4 + grouped;
    x_dims = by_weights ? first->dims : result->dims;
    y_dims = by_weights ? second->dims : first->dims;
    description x = any(p, dnnl_f32, 4, x_dims), w = any(p, dnnl_f32, w_rank, w_dims), y = any(p, dnnl_f32, 4, y_dims);
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    if (!p->failed) ok(p, make_training_convolution(&hint, p->engine, x, w, y, &o));
    if (!p->failed)
        ok(p, (by_weights ? make_convolution_weights : make_convolution_input)(&pd, p->engine, x, w, y, &o, hint));
    if (hint) dnnl_primitive_desc_destroy(hint);
    if (p->failed) return;
    const dnnl_query_t asked = by_weights ? dnnl_query_src_md : dnnl_query_weights_md,
                       given = by_weights ? dnnl_query_diff_weights_md : dnnl_query_diff_src_md;
    dnnl_memory_t dy = memory(p, plain(p, 4, y_dims), by_weights ? second->data : first->data);
    dnnl_memory_t other =
        by_weights ? memory(p, plain(p, 4, x_dims), first->data) : memory(p, plain(p, w_rank, w_dims), second->data);
    dy = reordered(p, dy, wanted(pd, dnnl_query_diff_dst_md), NULL);
    other = !by_weights && second->constant ? packed(p, other, wanted(pd, asked))
                                            : reordered(p, other, wanted(pd, asked), NULL);
    dnnl_memory_t to = memory(p, wanted(pd, given), NULL);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_DIFF_DST, dy);
    argument(p, run, by_weights ? DNNL_ARG_SRC : DNNL_ARG_WEIGHTS, other);
    argument(p, run, by_weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_DIFF_SRC, to);
    deliver(p, to, by_weights ? plain(p, w_rank, w_dims) : plain(p, 4, x_dims), result->data);
}

/* x^T dy: x [rows, k], dy [rows, n]; or dy w^T: w [k, n]. */
static void product_backward(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0], *y = &problem->operands[1];
    const int64_t *a = x->dims, *b = y->dims;
    const bool by_input = strcmp(problem->shape->name, "product input") == 0;
    description xd = by_input ? plain(p, 2, a) : typed(p, dnnl_f32, 2, D(a[1], a[0]), D(1, a[1])),
                yd = by_input ? typed(p, dnnl_f32, 2, D(b[1], b[0]), D(1, b[1])) : plain(p, 2, b),
                wd = plain(p, 2, problem->results[0].dims);
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed) ok(p, make_matmul(&pd, p->engine, xd, yd, NULL, wd, NULL));
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, memory(p, xd, x->data));
    argument(p, run, DNNL_ARG_WEIGHTS, memory(p, yd, y->data));
    argument(p, run, DNNL_ARG_DST, memory(p, wd, problem->results[0].data));
}

static void softmax_backward(plan *p, const bench_problem *problem) {
    const bench_operand *y = &problem->operands[0];
    description d = plain_of(p, y);
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    if (!p->failed) ok(p, make_training_softmax(&hint, p->engine, d, y->rank - 1));
    if (!p->failed) ok(p, make_softmax_backward(&pd, p->engine, d, y->rank - 1, hint));
    if (hint) dnnl_primitive_desc_destroy(hint);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_DST, memory(p, d, y->data));
    argument(p, run, DNNL_ARG_DIFF_DST, memory(p, d, problem->operands[1].data));
    argument(p, run, DNNL_ARG_DIFF_SRC, memory(p, d, problem->results[0].data));
}

/* Operands x, dy, scale, mean, variance; results of x, scale, bias. */
static void layer_norm_backward(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain_of(p, x), one = plain(p, 1, &x->dims[1]), rows = plain(p, 1, x->dims);
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    if (!p->failed) ok(p, make_training_norm(&hint, p->engine, d, rows));
    if (!p->failed) ok(p, make_norm_backward(&pd, p->engine, d, rows, hint));
    if (hint) dnnl_primitive_desc_destroy(hint);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, memory(p, d, x->data));
    argument(p, run, DNNL_ARG_DIFF_DST, memory(p, d, problem->operands[1].data));
    argument(p, run, DNNL_ARG_SCALE, memory(p, one, problem->operands[2].data));
#if DNNL_VERSION_MAJOR == 2
    argument(p, run, DNNL_ARG_SHIFT, number(p, one, 0)); /* required, not read */
#endif
    argument(p, run, DNNL_ARG_MEAN, memory(p, rows, problem->operands[3].data));
    argument(p, run, DNNL_ARG_VARIANCE, memory(p, rows, problem->operands[4].data));
    argument(p, run, DNNL_ARG_DIFF_SRC, memory(p, d, problem->results[0].data));
    argument(p, run, DNNL_ARG_DIFF_SCALE, memory(p, one, problem->results[1].data));
    argument(p, run, DNNL_ARG_DIFF_SHIFT, memory(p, one, problem->results[2].data));
}

/* ---- maps ------------------------------------------------------------------------------------------------------------------------- */

/* Elementwise operations want two dimensions at least: with one, the reference implementation does nothing. */
static description flat(plan *p, const bench_operand *x) {
    return plain(p, 2, D(1, (int64_t)(x->bytes / 4)));
}

static void eltwise(plan *p, dnnl_alg_kind_t kind, float alpha, float beta, description d, dnnl_memory_t from,
                    dnnl_memory_t to) {
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed) ok(p, make_eltwise(&pd, p->engine, kind, d, alpha, beta, NULL));
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC, from);
    argument(p, run, DNNL_ARG_DST, to);
}

static step *binary(plan *p, dnnl_alg_kind_t kind, description x, description y, after *a, dnnl_memory_t from,
                    dnnl_memory_t second, dnnl_memory_t to) {
    dnnl_primitive_desc_t pd = NULL;
    const_dnnl_primitive_attr_t attributes = a ? attributes_of(p, a) : NULL;
    if (!p->failed) ok(p, make_binary(&pd, p->engine, kind, x, y, x, attributes));
    if (a) release_after(a);
    step *run = add_step(p, pd);
    argument(p, run, DNNL_ARG_SRC_0, from);
    argument(p, run, DNNL_ARG_SRC_1, second);
    argument(p, run, DNNL_ARG_DST, to);
    return run;
}

static void gelu_two_passes(plan *p, const bench_problem *problem) {
    description d = flat(p, &problem->operands[0]);
    dnnl_memory_t x = memory(p, d, problem->operands[0].data), y = memory(p, d, problem->results[0].data);
    eltwise(p, dnnl_eltwise_linear, BENCH_MAP_A, BENCH_MAP_B, d, x, y);
    eltwise(p, dnnl_eltwise_gelu_erf, 0, 0, d, y, y);
}

/* A product with one number and post-ops: compiled code, unlike an elementwise operation with post-ops. */
static void scaled(plan *p, const bench_problem *problem, float factor, after *a) {
    description d = flat(p, &problem->operands[0]), one = plain(p, 2, D(1, 1));
    binary(p, dnnl_binary_mul, d, one, a, memory(p, d, problem->operands[0].data), number(p, one, factor),
           memory(p, d, problem->results[0].data));
}

static void gelu_one_pass(plan *p, const bench_problem *problem) {
    after a = after_nothing(p);
    then_eltwise(p, &a, dnnl_eltwise_linear, 1, BENCH_MAP_B);
    then_eltwise(p, &a, dnnl_eltwise_gelu_erf, 0, 0);
    scaled(p, problem, BENCH_MAP_A, &a);
}

#if DNNL_VERSION_MAJOR >= 3
/* The constants of cases.c. Version 2.6 computes something else. */
static void muladds(plan *p, const bench_problem *problem) {
    after a = after_nothing(p);
    then_eltwise(p, &a, dnnl_eltwise_linear, 1, -0.4f);
    for (int i = 1; i < 20; i++)
        then_eltwise(p, &a, dnnl_eltwise_linear, (float)(0.9 + 0.01 * i), (float)(0.05 * i - 0.4));
    scaled(p, problem, 0.9f, &a);
}
#endif

/* add, bias+relu */
static void add_map(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0], *y = &problem->operands[1];
    description d = plain_of(p, x), second = plain_of(p, y);
    after a = after_activation(p, strstr(problem->shape->name, "relu") ? "relu" : NULL);
    binary(p, dnnl_binary_add, d, second, &a, memory(p, d, x->data), memory(p, second, y->data),
           memory(p, d, problem->results[0].data));
}

static void scale_shift(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    description d = plain_of(p, x), channels = plain_of(p, &problem->operands[1]);
    after a = after_nothing(p);
    then_binary(p, &a, dnnl_binary_add, channels);
    then_eltwise(p, &a, dnnl_eltwise_hardswish, 1.0f / 6, 0.5f);
    step *run = binary(p, dnnl_binary_mul, d, channels, &a, memory(p, d, x->data),
                       memory(p, channels, problem->operands[1].data), memory(p, d, problem->results[0].data));
    argument(p, run, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
             memory(p, channels, problem->operands[2].data));
}

/* Two passes: with a post-op, an elementwise operation is not compiled. */
static void silu_gate(plan *p, const bench_problem *problem) {
    description d = flat(p, &problem->operands[0]);
    dnnl_memory_t y = memory(p, d, problem->results[0].data);
    eltwise(p, dnnl_eltwise_swish, 1, 0, d, memory(p, d, problem->operands[0].data), y);
    binary(p, dnnl_binary_mul, d, d, NULL, y, memory(p, d, problem->operands[1].data), y);
}

/* ---- moves ------------------------------------------------------------------------------------------------------------------------ */

static void cast_map(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    reordered(p, memory(p, plain_of(p, x), x->data), typed(p, dnnl_bf16, x->rank, x->dims, NULL),
              problem->results[0].data);
}

/* A reorder from a view of the operand that has the result's dimensions. */
static void view(plan *p, const bench_problem *problem, const int64_t *strides) {
    const bench_operand *x = &problem->operands[0], *y = &problem->results[0];
    reordered(p, memory(p, typed(p, dnnl_f32, y->rank, y->dims, strides), x->data), plain_of(p, y), y->data);
}

static void compact_strides(const bench_operand *x, int64_t *strides) {
    for (int i = x->rank - 1; i >= 0; i--) strides[i] = i == x->rank - 1 ? 1 : strides[i + 1] * x->dims[i + 1];
}

static void transpose(plan *p, const bench_problem *problem) {
    const bench_operand *x = &problem->operands[0];
    int64_t permutation[DLC_MAX_RANK], compact[DLC_MAX_RANK], strides[DLC_MAX_RANK];
    bench_numbers(bench_text(problem->shape, "perm"), permutation);
    compact_strides(x, compact);
    for (int i = 0; i < x->rank; i++) strides[i] = compact[permutation[i]];
    view(p, problem, strides);
}

static void slice(plan *p, const bench_problem *problem) {
    int64_t strides[DLC_MAX_RANK];
    compact_strides(&problem->operands[0], strides);
    for (int i = 0; i < problem->operands[0].rank; i++) strides[i] *= bench_number(problem->shape, "step", 1);
    view(p, problem, strides);
}

static void concat(plan *p, const bench_problem *problem) {
    int count = problem->operand_count;
    description from[BENCH_MAX_OPERANDS], to = plain_of(p, &problem->results[0]);
    for (int i = 0; i < count; i++) from[i] = plain_of(p, &problem->operands[i]);
    dnnl_primitive_desc_t pd = NULL;
    if (!p->failed) ok(p, make_concat(&pd, p->engine, to, count, (int)bench_number(problem->shape, "axis", 0), from));
    step *run = add_step(p, pd);
    for (int i = 0; i < count; i++)
        argument(p, run, DNNL_ARG_MULTIPLE_SRC + i, memory(p, from[i], problem->operands[i].data));
    argument(p, run, DNNL_ARG_DST, memory(p, to, problem->results[0].data));
}

/* ---- the peer ----------------------------------------------------------------------------------------------------------------------- */

typedef void way(plan *p, const bench_problem *problem);
enum { MAX_WAYS = 3 };
static const struct {
    /* name NULL: all cases of the kind */
    const char *kind, *name;
    way *ways[MAX_WAYS];
} table[] = {
    {"contraction", NULL, {contract_matmul, contract_inner_product, contract_plain}},
    {"convolution", NULL, {convolve_direct, convolve_winograd, convolve_as_given}},
#if DNNL_VERSION_MAJOR >= 3
    {"attention", NULL, {attention, fused_attention}},
    {"map", "20xmuladd", {muladds}},
#else
    {"attention", NULL, {attention}},
#endif
    {"backward", "convolution weights", {convolution_backward}},
    {"backward", "convolution input", {convolution_backward}},
    {"backward", "product", {product_backward}},
    {"backward", "product input", {product_backward}},
    {"backward", "softmax", {softmax_backward}},
    {"backward", "layer_norm", {layer_norm_backward}},
    {"row", "softmax", {softmax}},
    {"row", "log_softmax", {softmax}},
    {"row", "layer_norm", {layer_norm}},
#if DNNL_VERSION_NUMBER >= 309
    {"row", "rms_norm", {rms_norm}},
#endif
#if DNNL_VERSION_NUMBER >= 302
    {"row", "group_norm", {group_norm}},
#endif
    {"row", "reduce_sum", {reduction}},
    {"row", "reduce_max", {reduction}},
    {"map", "gelu(a*x+b)", {gelu_one_pass, gelu_two_passes}},
    {"map", "add", {add_map}},
    {"map", "bias+relu", {add_map}},
    {"map", "scale+shift+hswish", {scale_shift}},
    {"map", "silu*gate", {silu_gate}},
    {"map", "cast f32->bf16", {cast_map}},
    {"move", "transpose", {transpose}},
    {"move", "slice", {slice}},
    {"move", "concat", {concat}},
};

static void run(void *state) {
    plan *p = state;
    for (int i = 0; i < p->step_count; i++) execute(p, &p->steps[i]);
#if DNNL_VERSION_MAJOR >= 3
    if (p->fused) onednn_fused_run(p);
#endif
    dnnl_stream_wait(p->stream);
}

static void release(void *state) {
    plan *p = state;
#if DNNL_VERSION_MAJOR >= 3
    if (p->fused) onednn_fused_release(p);
#endif
    for (int i = 0; i < p->step_count; i++) dnnl_primitive_destroy(p->steps[i].primitive);
    for (int i = 0; i < p->memory_count; i++) dnnl_memory_destroy(p->memories[i]);
    for (int i = 0; i < p->description_count; i++) destroy_description(&p->descriptions[i]);
    dnnl_stream_destroy(p->stream);
    free(p);
}

/* One engine for the whole process: compiled partitions, which oneDNN keeps, do not outlive the engine that they were compiled for. */
static dnnl_engine_t engine(plan *p) {
    static dnnl_engine_t only;
    if (!only) ok(p, dnnl_engine_create(&only, dnnl_cpu, 0));
    return only;
}

static void *attempt(int index, const bench_problem *problem) {
    way *build = NULL;
    for (size_t row = 0; row < sizeof table / sizeof *table; row++)
        if (strcmp(table[row].kind, problem->shape->kind) == 0 &&
            (!table[row].name || strcmp(table[row].name, problem->shape->name) == 0))
            build = table[row].ways[index];
    plan *p = build ? calloc(1, sizeof *p) : NULL;
    if (!p) return NULL;
    p->engine = engine(p);
    if (!p->failed) ok(p, dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
    if (!p->failed) build(p, problem);
    /* a layout that has plain loops alone, which take minutes, while the first way chooses its layout */
    if (p->by_reference && index > 0) p->failed = true;
    if (!p->failed) run(p);
    if (!p->failed) return p;
    release(p);
    return NULL;
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    plan *best = bench_fastest(MAX_WAYS, attempt, run, release, problem);
    if (best) snprintf(note, note_size, "%s", best->note);
    return best;
}

static void describe(char *text, size_t size) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, size, "%d.%d.%d; instruction set code 0x%x", v->major, v->minor, v->patch,
             (unsigned)dnnl_get_effective_cpu_isa());
}

static void set_threads(int count) {
    omp_set_num_threads(count);
}

const bench_peer *bench_peer_get(void) {
#if DNNL_VERSION_MAJOR == 2
    static char name[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(name, sizeof name, "onednn%d.%d", v->major, v->minor);
#else
    static const char name[] = "onednn";
#endif
    static const bench_peer peer = {name, describe, set_threads, prepare, run, release, NULL, NULL, NULL, NULL};
    return &peer;
}
