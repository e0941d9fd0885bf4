/* Rows of random numbers. The numbers of libdlc's generator depend only on the key and the position: a node with a seed gives the same numbers
 * in every run and in every iteration of a loop, and so does another node with that seed. A node without a seed must give different
 * numbers each time: it is refused except in a walk, which draws a key for it. */
#include "graph/onnx/import.h"

enum { SEED_SETTINGS = 2 };

/* Sets s[0] and s[1], seed and stream. A node without a seed gets a drawn key, a value that is the row's last operand; else returns 0. */
static graph_id set_key(onnx_import *im, graph_setting *s) {
    const bool whole = onnx_is(im->node->operator, "Dropout");
    const onnx_attribute *seed = onnx_attribute_find(im, "seed", whole ? ONNX_ATTRIBUTE_INT : ONNX_ATTRIBUTE_FLOAT);
    int32_t bits = 0;
    if (!seed && !onnx_walks(im))
        onnx_fail(im, DLC_UNSUPPORTED, "random numbers without a seed, which would have to be others at each run");
    if (seed) memcpy(&bits, &seed->f, sizeof bits);
    s[0] = graph_set_integer("seed", seed && whole ? seed->i : bits);
    s[1] = graph_set_integer("stream", 0);
    if (seed) return 0;
    onnx_walk *walk = im->options->walk;
    const int64_t key = walk->draw(walk);
    return walk->hold(walk, im->g, &(graph_shape){.dtype = DLC_I64}, &key);
}

/* Emits an operator with operand x (0: none) and the key (0: none). */
static graph_id emit_keyed(onnx_import *im, const char *op, graph_id x, graph_id key, int settings,
                           const graph_setting *setting) {
    const graph_id in[] = {x ? x : key, key};
    return onnx_emit(im, op, (x != 0) + (key != 0), in, settings, setting);
}

/* The result's shape and dtype: operand 0's if `like`, else the attribute's. */
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

/* Imports the node by the row's `op`, rng_uniform or rng_normal. */
static void draw(onnx_import *im, bool like) {
    const bool normal = strcmp(im->row->op, "rng_normal") == 0;
    const graph_shape shape = shape_of(im, like);
    graph_setting s[SEED_SETTINGS + 4];
    const graph_id key = set_key(im, s);
    s[2] = graph_set_dims("shape", shape.rank, shape.dim);
    s[3] = graph_set_integer("dtype", shape.dtype);
    s[4] =
        normal ? graph_set_float("mean", onnx_float(im, "mean", 0)) : graph_set_float("low", onnx_float(im, "low", 0));
    s[5] = normal ? graph_set_float("deviation", onnx_float(im, "scale", 1))
                  : graph_set_float("high", onnx_float(im, "high", 1));
    onnx_give(im, 0, emit_keyed(im, im->row->op, 0, key, SEED_SETTINGS + 4, s));
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
    const graph_id key = set_key(im, s);
    onnx_give(im, 0, graph_cast(im->g, emit_keyed(im, "rng_bernoulli", p, key, SEED_SETTINGS, s), dtype));
}

static void import_multinomial(onnx_import *im) {
    const graph_id logits = onnx_operand(im, 0);
    const dlc_dtype dtype = onnx_dtype_attribute(im, "dtype", DLC_I32);
    graph_setting s[SEED_SETTINGS + 1];
    const graph_id key = set_key(im, s);
    s[2] = graph_set_integer("samples", onnx_int(im, "sample_size", 1));
    onnx_give(im, 0, graph_cast(im->g, emit_keyed(im, "rng_categorical", logits, key, SEED_SETTINGS + 1, s), dtype));
}

/* ---- Dropout --------------------------------------------------------------------------------------------------------- */

/* Dropout in training: elements are kept with probability 1 - ratio and divided by it, the others become 0. */
static void drop(onnx_import *im) {
    graph *g = im->g;
    const graph_id x = onnx_operand(im, 0), wide = graph_widen(g, x);
    const graph_shape shape = *graph_shape_of(g, x);
    const graph_id ratio =
        onnx_has(im, 1) ? graph_cast(g, onnx_operand_or_scalar(im, 1), DLC_F32) : graph_scalar(g, DLC_F32, 0.5);
    graph_setting s[SEED_SETTINGS + 2];
    const graph_id key = set_key(im, s);
    s[2] = graph_set_dims("shape", shape.rank, shape.dim);
    s[3] = graph_set_integer("dtype", DLC_F32);
    const graph_id kept = graph_ge(g, emit_keyed(im, "rng_uniform", 0, key, SEED_SETTINGS + 2, s), ratio);
    const graph_id scale = graph_sub(g, graph_scalar(g, DLC_F32, 1), ratio);
    const graph_id scaled = graph_div(g, wide, graph_cast(g, scale, graph_shape_of(g, wide)->dtype));
    onnx_give(im, 0, graph_cast(g, graph_select(g, kept, scaled, graph_scalar_like(g, scaled, 0)), shape.dtype));
    onnx_give(im, 1, kept);
}

/* Without training, or with a ratio of 0, the result is x and the mask all true. */
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
