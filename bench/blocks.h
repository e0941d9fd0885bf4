/* Blocks of networks, in a form from which both libdlc's graphs (block_graphs.c) and ONNX models (onnx_blocks.c) are made: operands, and
 * steps with one value each. Steps are numbered by part: a part is what a host would put into one program if it had to cut the block. */
#ifndef BENCH_BLOCKS_H
#define BENCH_BLOCKS_H

#include "bench/bench.h"

/* Values are referred to by number; operands of a step are in this order. */
typedef enum bench_step_kind {
    BENCH_STEP_LINEAR,     /* x [..., k], w [k, n] or, with number[0], [n, k], bias [n] or none */
    BENCH_STEP_ADD,        /* two operands of one shape */
    BENCH_STEP_MUL,        /* the second operand: of the first one's shape, or of its last axis */
    BENCH_STEP_GELU,       /* by erf */
    BENCH_STEP_RELU,       /* */
    BENCH_STEP_SILU,       /* */
    BENCH_STEP_SOFTPLUS,   /* */
    BENCH_STEP_LAYER_NORM, /* x, scale, bias: last axis */
    BENCH_STEP_RMS_NORM,   /* x, scale: last axis */
    BENCH_STEP_ROTARY,     /* x [b, n, heads * d], cosine and sine [n, d / 2]; number[0]: heads */
    BENCH_STEP_HEADS,      /* [b, n, heads * d] to [b, heads, n, d]; number[0]: heads */
    BENCH_STEP_MERGE,      /* the inverse of HEADS */
    BENCH_STEP_ATTEND,     /* q, k, v as HEADS gives them, heads of q in groups that share k and v; number[0]: causal */
    BENCH_STEP_CONV,       /* x [n, c, h, w], w, bias [c]; number: stride, padding, groups */
    BENCH_STEP_CONV_UP,    /* transposed, windows and stride of 2: x, w [ci, co, 2, 2], bias */
    BENCH_STEP_MAX_POOL,   /* windows and stride of 2 */
    BENCH_STEP_CONCAT,     /* along channels */
    BENCH_STEP_LAST,       /* [n, c, h, w] to [n, h, w, c] */
    BENCH_STEP_FIRST,      /* the inverse of LAST */
    BENCH_STEP_SCAN,       /* see below */
    BENCH_STEP_DEQUANTISE, /* w [k, n] of i8 with scales [n], or of i4 with scales [k / number[0], n] */
    BENCH_STEP_KINDS
} bench_step_kind;
/* SCAN, the selective scan of Mamba (Gu, Dao 2023), time as the first axis: x and d [t, b, c], a [c, s], p and q [t, b, s]:
 *     h = exp(d a) h + d x p;  y[t, b, c] = sum over s of h q */

enum { BENCH_BLOCK_VALUES = 128, BENCH_BLOCK_INPUTS = 5, BENCH_BLOCK_NUMBERS = 3, BENCH_MAX_PARTS = 64 };

typedef struct bench_block_value {
    dlc_dtype dtype;
    int rank;
    int64_t dims[DLC_MAX_RANK];
    /* operand: an operand of the block, otherwise the value of a step; constant: an operand that is known before the first run */
    bool operand, constant;
    /* operands: see bench_operand */
    double low, high;
    /* of a step, from here on: */
    bench_step_kind kind;
    /* values; -1: left out */
    int input[BENCH_BLOCK_INPUTS], inputs;
    int64_t number[BENCH_BLOCK_NUMBERS];
    /* number of the part to which the step belongs, from 0 */
    int part;
    /* it is a result of the block */
    bool result;
} bench_block_value;

typedef struct bench_block {
    /* operands before the steps that use them */
    bench_block_value values[BENCH_BLOCK_VALUES];
    int count, parts;
    double flops;
} bench_block;

/* Sets *block to the block of a line; with the flag `all`, every value except those that only move elements is a result. False: there is no
 * block of this name. */
bool bench_block_of(bench_block *block, const bench_shape *shape);
/* results[]: the numbers of the values that are results, in order; returns their count. */
int bench_block_results(const bench_block *block, int results[BENCH_BLOCK_VALUES]);

#endif
