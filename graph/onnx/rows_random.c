/* Rows of random numbers, by libdlc's generator, whose numbers depend on the key and the position alone: a node with a seed gives the same
 * numbers at every run, in every iteration of a loop, and as another node with that seed. A node without one would have to give
 * others each time, and is refused. */
#include "graph/onnx/import.h"

/* The key of a node's numbers. */
static int64_t seed_of(onnx_import *im) {
    const bool whole = onnx_is(im->node->operator, "Dropout");
    const onnx_attribute *seed = onnx_attribute_find(im, "seed", whole ? ONNX_ATTRIBUTE_INT : ONNX_ATTRIBUTE_FLOAT);
    int32_t bits;
    if (!seed)
        onnx_fail(im, DLC_UNSUPPORTED, "random numbers without a seed, which would have to be others at each run");
    memcpy(&bits, &seed->f, sizeof bits);
    return whole ? seed->i : bits;
}

enum { SEED_SETTINGS = 2 };

/* Settings seed and stream. */
static void set_seed(onnx_import *im, graph_setting *s) {
    s[0] = graph_set_integer("seed", seed_of(im));
    s[1] = graph_set_integer("stream", 0);
}

/* The shape of operand 0 or of the attribute. */
static graph_shape shape_of(onnx_import *im, bool like) {
    graph_shape shape = {.dtype = DLC_F32};
    int rank;
    if (like) {
        shape = onnx_operand_shape(im, 0);
    } else {
        const int64_t *dims = onnx_ints(im, "shape", &rank);
        if (!dims || rank > DLC_MAX_RANK) onnx_fail(im, DLC_PARSE_ERROR, "attribute shape has %d dimensions", rank);
        for (int d = 0; d < rank; d++) {
            if (dims[d] < 0) onnx_fail(im, DLC_PARSE_ERROR, "a dimension of %lld", (long long)dims[d]);
            shape.dim[d] = tir_index(im->g->pool, dims[d]);
        }
        shape.rank = rank;
    }
    shape.dtype = onnx_dtype_attribute(im, "dtype", shape.dtype);
    return shape;
}

/* The row's `op` is rng_uniform or rng_normal. */
static void draw(onnx_import *im, bool like) {
    const bool normal = strcmp(im->row->op, "rng_normal") == 0;
    const graph_shape shape = shape_of(im, like);
    graph_setting s[SEED_SETTINGS + 4];
    set_seed(im, s);
    s[2] = graph_set_dims("shape", shape.rank, shape.dim);
    s[3] = graph_set_integer("dtype", shape.dtype);
    s[4] =
        normal ? graph_set_float("mean", onnx_float(im, "mean", 0)) : graph_set_float("low", onnx_float(im, "low", 0));
    s[5] = normal ? graph_set_float("deviation", onnx_float(im, "scale", 1))
                  : graph_set_float("high", onnx_float(im, "high", 1));
    onnx_give(im, 0, onnx_emit(im, im->row->op, 0, NULL, SEED_SETTINGS + 4, s));
}

static void import_random(onnx_import *im) {
    draw(im, false);
}

static void import_random_like(onnx_import *im) {
    draw(im, true);
}

static void import_bernoulli(onnx_import *im) {
    const graph_id p = onnx_operand(im, 0);
    const dlc_dtype dtype = onnx_dtype_attribute(im, "dtype", onnx_operand_shape(im, 0).dtype);
    graph_setting s[SEED_SETTINGS];
    set_seed(im, s);
    onnx_give(im, 0, graph_cast(im->g, onnx_emit(im, "rng_bernoulli", 1, &p, SEED_SETTINGS, s), dtype));
}

static void import_multinomial(onnx_import *im) {
    const graph_id logits = onnx_operand(im, 0);
    const dlc_dtype dtype = onnx_dtype_attribute(im, "dtype", DLC_I32);
    graph_setting s[SEED_SETTINGS + 1];
    set_seed(im, s);
    s[2] = graph_set_integer("samples", onnx_int(im, "sample_size", 1));
    onnx_give(im, 0, graph_cast(im->g, onnx_emit(im, "rng_categorical", 1, &logits, SEED_SETTINGS + 1, s), dtype));
}

/* ---- Dropout --------------------------------------------------------------------------------------------------------- */

/* What is kept is divided by 1 - ratio. */
static void drop(onnx_import *im) {
    graph *g = im->g;
    const graph_id x = onnx_operand(im, 0), wide = graph_widen(g, x);
    const graph_shape shape = *graph_shape_of(g, x);
    const graph_id ratio =
        onnx_has(im, 1) ? graph_cast(g, onnx_operand_or_scalar(im, 1), DLC_F32) : graph_scalar(g, DLC_F32, 0.5);
    graph_setting s[SEED_SETTINGS + 2];
    set_seed(im, s);
    s[2] = graph_set_dims("shape", shape.rank, shape.dim);
    s[3] = graph_set_integer("dtype", DLC_F32);
    const graph_id kept = graph_ge(g, onnx_emit(im, "rng_uniform", 0, NULL, SEED_SETTINGS + 2, s), ratio);
    const graph_id scale = graph_sub(g, graph_scalar(g, DLC_F32, 1), ratio);
    const graph_id scaled = graph_div(g, wide, graph_cast(g, scale, graph_shape_of(g, wide)->dtype));
    onnx_give(im, 0, graph_cast(g, graph_select(g, kept, scaled, graph_scalar_like(g, scaled, 0)), shape.dtype));
    onnx_give(im, 1, kept);
}

/* Without training nothing is dropped: the mask is all true. */
static void import_dropout(onnx_import *im) {
    static const char *const ignored[] = {"consumed_inputs", "ratio", "seed", "is_test"};
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) onnx_ignore(im, ignored[i]);
    const bool trains = im->opset >= 12 && onnx_has(im, 2) && onnx_operand_float(im, 2, 0) != 0;
    if (trains && !(onnx_operand_is_constant(im, 1) && onnx_operand_float(im, 1, 0.5) == 0)) {
        drop(im);
        return;
    }
    onnx_give_operand(im, 0, 0);
    if (!onnx_wants(im, 1)) return;
    const graph_shape shape = onnx_operand_shape(im, 0);
    const dlc_dtype mask = im->opset < 10 ? shape.dtype : DLC_BOOL;
    onnx_give(im, 1, graph_full(im->g, mask, shape.rank, shape.dim, 1));
}

const onnx_row onnx_rows_random[] = {
    {"Bernoulli", 15, 0, import_bernoulli, NULL},
    {"Dropout", 1, 0, import_dropout, NULL},
    {"Multinomial", 7, 0, import_multinomial, NULL},
    {"RandomNormal", 1, 0, import_random, "rng_normal"},
    {"RandomNormalLike", 1, 0, import_random_like, "rng_normal"},
    {"RandomUniform", 1, 0, import_random, "rng_uniform"},
    {"RandomUniformLike", 1, 0, import_random_like, "rng_uniform"},
    {0},
};
