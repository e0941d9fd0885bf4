/* The differences between the C interfaces of oneDNN 2 and 3, so that peer_onednn.c compiles against either's headers. Version 2 has
 * memory descriptors by value and operation descriptors in a separate step; version 3 has handles. */
#ifndef BENCH_PEER_ONEDNN_H
#define BENCH_PEER_ONEDNN_H

#include "bench/peer.h"

#include <oneapi/dnnl/dnnl.h>

/* The argument that carries the factors of scale_weights; version 2 has none. */
#ifndef DNNL_ARG_ATTR_SCALES
#define DNNL_ARG_ATTR_SCALES 4096
#endif

#define DNNL_VERSION_NUMBER (DNNL_VERSION_MAJOR * 100 + DNNL_VERSION_MINOR)
#if DNNL_VERSION_MAJOR != 2 && DNNL_VERSION_MAJOR != 3
#error "this peer speaks the interfaces of oneDNN 2 and 3"
#endif

enum { MAX_STEPS = 24, MAX_ARGUMENTS = 40, MAX_MEMORIES = 120, MAX_DESCRIPTIONS = 160 };

#if DNNL_VERSION_MAJOR == 2
typedef const dnnl_memory_desc_t *description;
#else
typedef const_dnnl_memory_desc_t description;
#endif

typedef struct step {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[MAX_ARGUMENTS];
    int count;
} step;

/* Primitives one after another, or one compiled partition of the graph interface (peer_onednn_graph.c). */
typedef struct plan {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    step steps[MAX_STEPS];
    int step_count;
    dnnl_memory_t memories[MAX_MEMORIES];
    int memory_count;
    dnnl_memory_desc_t descriptions[MAX_DESCRIPTIONS];
    int description_count;
    struct fused *fused;
    bool failed;
    /* a convolution by the reference implementation is among the steps */
    bool by_reference;
    char note[96];
} plan;

/* How the window of a convolution moves. */
typedef struct window {
    dnnl_dims_t strides, dilations, pads;
} window;

/* Attention as one partition; fails if oneDNN does not fuse it. The mask is [1 or b, 1, 1 or queries, keys], or NULL. */
void onednn_fused_attention(plan *p, const bench_problem *problem, const float *mask, const int64_t mask_dims[4]);
void onednn_fused_run(plan *p);
void onednn_fused_release(plan *p);

/* ---- primitive descriptors: one function a kind, arguments in the order of version 3 -------------------------------------------- */

#if DNNL_VERSION_MAJOR == 2

#define DESCRIBE(init, ...)                               \
    dnnl_status_t status = init(&operation, __VA_ARGS__); \
    if (status != dnnl_success) return status;            \
    return dnnl_primitive_desc_create(pd, &operation, attributes, engine, NULL)

static inline dnnl_status_t make_strided(dnnl_memory_desc_t *d, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                         const dnnl_dims_t strides) {
    return dnnl_memory_desc_init_by_strides(d, rank, dims, type, strides);
}
static inline dnnl_status_t make_tagged(dnnl_memory_desc_t *d, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                        dnnl_format_tag_t tag) {
    return dnnl_memory_desc_init_by_tag(d, rank, dims, type, tag);
}
static inline description handle_of(const dnnl_memory_desc_t *d) {
    return d;
}
static inline void destroy_description(dnnl_memory_desc_t *d) {
    (void)d;
}
static inline dnnl_status_t post_eltwise(dnnl_post_ops_t post, dnnl_alg_kind_t kind, float alpha, float beta) {
    return dnnl_post_ops_append_eltwise(post, 1, kind, alpha, beta);
}
/* Version 2 takes the factors when the primitive is made, not as an argument; that is not supported here. */
static inline dnnl_status_t scale_weights(dnnl_primitive_attr_t attributes, int mask) {
    (void)attributes, (void)mask;
    return dnnl_unimplemented;
}
static inline dnnl_status_t make_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x, description w,
                                        description bias, description y, const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t operation;
    DESCRIBE(dnnl_matmul_desc_init, x, w, bias, y);
}
static inline dnnl_status_t make_inner_product(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description w, description bias, description y,
                                               const_dnnl_primitive_attr_t attributes) {
    dnnl_inner_product_desc_t operation;
    DESCRIBE(dnnl_inner_product_forward_desc_init, dnnl_forward_inference, x, w, bias, y);
}
static inline dnnl_status_t make_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                             description x, description w, description bias, description y,
                                             const dnnl_dims_t strides, const dnnl_dims_t dilations,
                                             const dnnl_dims_t pads, const_dnnl_primitive_attr_t attributes) {
    dnnl_convolution_desc_t operation;
    DESCRIBE(dnnl_dilated_convolution_forward_desc_init, dnnl_forward_inference, kind, x, w, bias, y, strides,
             dilations, pads, pads);
}
static inline dnnl_status_t make_deconvolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description w, description bias, description y,
                                               const dnnl_dims_t strides, const dnnl_dims_t dilations,
                                               const dnnl_dims_t pads, const_dnnl_primitive_attr_t attributes) {
    dnnl_deconvolution_desc_t operation;
    DESCRIBE(dnnl_dilated_deconvolution_forward_desc_init, dnnl_forward_inference, dnnl_deconvolution_direct, x, w,
             bias, y, strides, dilations, pads, pads);
}
static inline dnnl_status_t make_softmax(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                         description x, description y, int axis,
                                         const_dnnl_primitive_attr_t attributes) {
    dnnl_softmax_v2_desc_t operation;
    DESCRIBE(dnnl_softmax_v2_forward_desc_init, dnnl_forward_inference, kind, x, y, axis);
}
static inline dnnl_status_t make_layer_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                            description y, float epsilon, const_dnnl_primitive_attr_t attributes) {
    (void)y;
    dnnl_layer_normalization_desc_t operation;
    DESCRIBE(dnnl_layer_normalization_forward_desc_init, dnnl_forward_inference, x, NULL, epsilon,
             dnnl_use_scale | dnnl_use_shift);
}
static inline dnnl_status_t make_reduction(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                           description x, description y, const_dnnl_primitive_attr_t attributes) {
    dnnl_reduction_desc_t operation;
    DESCRIBE(dnnl_reduction_desc_init, kind, x, y, 0, 0);
}
static inline dnnl_status_t make_eltwise(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                         description x, float alpha, float beta,
                                         const_dnnl_primitive_attr_t attributes) {
    dnnl_eltwise_desc_t operation;
    DESCRIBE(dnnl_eltwise_forward_desc_init, dnnl_forward_inference, kind, x, alpha, beta);
}
static inline dnnl_status_t make_binary(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                        description x, description y, description to,
                                        const_dnnl_primitive_attr_t attributes) {
    dnnl_binary_desc_t operation;
    DESCRIBE(dnnl_binary_desc_init, kind, x, y, to);
}
static inline dnnl_status_t make_concat(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description to, int count,
                                        int axis, const description *from) {
    dnnl_memory_desc_t sources[BENCH_MAX_OPERANDS];
    for (int i = 0; i < count; i++) sources[i] = *from[i];
    return dnnl_concat_primitive_desc_create(pd, to, count, axis, sources, NULL, engine);
}
/* Backward: `hint` is the forward primitive, of training. */
#define DESCRIBE_BACKWARD(hint, init, ...)                \
    dnnl_status_t status = init(&operation, __VA_ARGS__); \
    if (status != dnnl_success) return status;            \
    return dnnl_primitive_desc_create(pd, &operation, NULL, engine, hint)
static inline dnnl_status_t make_training_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                      description w, description y, const window *o) {
    const const_dnnl_primitive_attr_t attributes = NULL;
    dnnl_convolution_desc_t operation;
    DESCRIBE(dnnl_dilated_convolution_forward_desc_init, dnnl_forward_training, dnnl_convolution_direct, x, w, NULL, y,
             o->strides, o->dilations, o->pads, o->pads);
}
static inline dnnl_status_t make_convolution_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                     description w, description y, const window *o,
                                                     const_dnnl_primitive_desc_t hint) {
    dnnl_convolution_desc_t operation;
    DESCRIBE_BACKWARD(hint, dnnl_dilated_convolution_backward_weights_desc_init, dnnl_convolution_direct, x, w, NULL, y,
                      o->strides, o->dilations, o->pads, o->pads);
}
static inline dnnl_status_t make_convolution_input(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                   description w, description y, const window *o,
                                                   const_dnnl_primitive_desc_t hint) {
    dnnl_convolution_desc_t operation;
    DESCRIBE_BACKWARD(hint, dnnl_dilated_convolution_backward_data_desc_init, dnnl_convolution_direct, x, w, y,
                      o->strides, o->dilations, o->pads, o->pads);
}
static inline dnnl_status_t make_training_softmax(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                  int axis) {
    const const_dnnl_primitive_attr_t attributes = NULL;
    dnnl_softmax_v2_desc_t operation;
    DESCRIBE(dnnl_softmax_v2_forward_desc_init, dnnl_forward_training, dnnl_softmax_accurate, x, x, axis);
}
static inline dnnl_status_t make_softmax_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                  int axis, const_dnnl_primitive_desc_t hint) {
    dnnl_softmax_v2_desc_t operation;
    DESCRIBE_BACKWARD(hint, dnnl_softmax_v2_backward_desc_init, dnnl_softmax_accurate, x, x, x, axis);
}
static inline dnnl_status_t make_training_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description statistics) {
    const const_dnnl_primitive_attr_t attributes = NULL;
    dnnl_layer_normalization_desc_t operation;
    DESCRIBE(dnnl_layer_normalization_forward_desc_init, dnnl_forward_training, x, statistics, 1e-5f,
             dnnl_use_scale | dnnl_use_shift);
}
static inline dnnl_status_t make_norm_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description statistics, const_dnnl_primitive_desc_t hint) {
    dnnl_layer_normalization_desc_t operation;
    DESCRIBE_BACKWARD(hint, dnnl_layer_normalization_backward_desc_init, dnnl_backward, x, x, statistics, 1e-5f,
                      dnnl_use_scale | dnnl_use_shift);
}
#undef DESCRIBE
#undef DESCRIBE_BACKWARD

#else

static inline dnnl_status_t make_strided(dnnl_memory_desc_t *d, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                         const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides(d, rank, dims, type, strides);
}
static inline dnnl_status_t make_tagged(dnnl_memory_desc_t *d, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                        dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(d, rank, dims, type, tag);
}
static inline description handle_of(const dnnl_memory_desc_t *d) {
    return *d;
}
static inline void destroy_description(dnnl_memory_desc_t *d) {
    dnnl_memory_desc_destroy(*d);
}
static inline dnnl_status_t post_eltwise(dnnl_post_ops_t post, dnnl_alg_kind_t kind, float alpha, float beta) {
    return dnnl_post_ops_append_eltwise(post, kind, alpha, beta);
}
/* Multiplies the sums of each channel by a factor that is an argument. `mask`: the axes of the weights that are channels. */
static inline dnnl_status_t scale_weights(dnnl_primitive_attr_t attributes, int mask) {
    return dnnl_primitive_attr_set_scales_mask(attributes, DNNL_ARG_WEIGHTS, mask);
}
static inline dnnl_status_t make_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x, description w,
                                        description bias, description y, const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(pd, engine, x, w, bias, y, attributes);
}
static inline dnnl_status_t make_inner_product(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description w, description bias, description y,
                                               const_dnnl_primitive_attr_t attributes) {
    return dnnl_inner_product_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, x, w, bias, y,
                                                            attributes);
}
static inline dnnl_status_t make_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                             description x, description w, description bias, description y,
                                             const dnnl_dims_t strides, const dnnl_dims_t dilations,
                                             const dnnl_dims_t pads, const_dnnl_primitive_attr_t attributes) {
    return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, kind, x, w, bias, y,
                                                          strides, dilations, pads, pads, attributes);
}
static inline dnnl_status_t make_deconvolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description w, description bias, description y,
                                               const dnnl_dims_t strides, const dnnl_dims_t dilations,
                                               const dnnl_dims_t pads, const_dnnl_primitive_attr_t attributes) {
    return dnnl_deconvolution_forward_primitive_desc_create(pd, engine, dnnl_forward_inference,
                                                            dnnl_deconvolution_direct, x, w, bias, y, strides,
                                                            dilations, pads, pads, attributes);
}
static inline dnnl_status_t make_softmax(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                         description x, description y, int axis,
                                         const_dnnl_primitive_attr_t attributes) {
    return dnnl_softmax_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, kind, x, y, axis, attributes);
}
static inline dnnl_status_t make_layer_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                            description y, float epsilon, const_dnnl_primitive_attr_t attributes) {
    return dnnl_layer_normalization_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, x, y, NULL,
                                                                  epsilon, dnnl_use_scale | dnnl_use_shift, attributes);
}
static inline dnnl_status_t make_reduction(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                           description x, description y, const_dnnl_primitive_attr_t attributes) {
    return dnnl_reduction_primitive_desc_create(pd, engine, kind, x, y, 0, 0, attributes);
}
static inline dnnl_status_t make_eltwise(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                         description x, float alpha, float beta,
                                         const_dnnl_primitive_attr_t attributes) {
    return dnnl_eltwise_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, kind, x, x, alpha, beta,
                                                      attributes);
}
static inline dnnl_status_t make_binary(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t kind,
                                        description x, description y, description to,
                                        const_dnnl_primitive_attr_t attributes) {
    return dnnl_binary_primitive_desc_create(pd, engine, kind, x, y, to, attributes);
}
static inline dnnl_status_t make_concat(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description to, int count,
                                        int axis, const description *from) {
    return dnnl_concat_primitive_desc_create(pd, engine, to, count, axis, from, NULL);
}
/* Backward: `hint` is the forward primitive, of training. */
static inline dnnl_status_t make_training_convolution(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                      description w, description y, const window *o) {
    return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, dnnl_convolution_direct, x,
                                                          w, NULL, y, o->strides, o->dilations, o->pads, o->pads, NULL);
}
static inline dnnl_status_t make_convolution_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                     description w, description y, const window *o,
                                                     const_dnnl_primitive_desc_t hint) {
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, x, w, NULL, y, o->strides, o->dilations, o->pads, o->pads, hint, NULL);
}
static inline dnnl_status_t make_convolution_input(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                   description w, description y, const window *o,
                                                   const_dnnl_primitive_desc_t hint) {
    return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, dnnl_convolution_direct, x, w, y,
                                                                o->strides, o->dilations, o->pads, o->pads, hint, NULL);
}
static inline dnnl_status_t make_training_softmax(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                  int axis) {
    return dnnl_softmax_forward_primitive_desc_create(pd, engine, dnnl_forward_training, dnnl_softmax_accurate, x, x,
                                                      axis, NULL);
}
static inline dnnl_status_t make_softmax_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                                  int axis, const_dnnl_primitive_desc_t hint) {
    return dnnl_softmax_backward_primitive_desc_create(pd, engine, dnnl_softmax_accurate, x, x, x, axis, hint, NULL);
}
static inline dnnl_status_t make_training_norm(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description statistics) {
    return dnnl_layer_normalization_forward_primitive_desc_create(pd, engine, dnnl_forward_training, x, x, statistics,
                                                                  1e-5f, dnnl_use_scale | dnnl_use_shift, NULL);
}
static inline dnnl_status_t make_norm_backward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, description x,
                                               description statistics, const_dnnl_primitive_desc_t hint) {
    return dnnl_layer_normalization_backward_primitive_desc_create(pd, engine, dnnl_backward, x, x, x, statistics,
                                                                   1e-5f, dnnl_use_scale | dnnl_use_shift, hint, NULL);
}

#endif

#endif
