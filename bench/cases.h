/* A case with its graph. The builder of its kind or operator declares operands and results on a graph, through the public API. */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include "bench/blocks.h"

#include <dlc/train.h>

/* BENCH_BATCH: operands of a line of kind `train` that are no weights: x and labels, the first ones. */
enum { BENCH_MAX_STAGES = 4, BENCH_BYTES_APART = 64, BENCH_BATCH = 2 };

/* Steps of a block that make one program: neighbours among its values. */
typedef struct bench_steps {
    int count, values[BENCH_BLOCK_VALUES];
} bench_steps;

typedef struct bench_builder {
    /* filled by the builder, with data */
    bench_problem problem;
    dlc_graph *graph;
    dlc_value results[BENCH_MAX_RESULTS];
    /* operands have no data and are inputs; constants are inputs, too, if `bytes` is NULL, else constants with these bytes */
    bool described;
    /* see `described` */
    const void *bytes;
    /* of a block: builds only these steps; NULL: all. Then the builder also sets the block's value for each operand and result: */
    const bench_steps *steps;
    int operand_values[BENCH_MAX_OPERANDS], result_values[BENCH_MAX_RESULTS];
    /* A step of training: by result, the operand in whose place it is written (0: none); the operand that is the rate. */
    int replaced[BENCH_MAX_RESULTS], rate;
    /* not NULL: the first BENCH_BATCH operands are this training's batch, further ones its parameters, of these values */
    dlc_training *training;
    DLTensor initial[BENCH_MAX_OPERANDS];
} bench_builder;

typedef void bench_build_function(bench_builder *b);

typedef struct bench_case_kind {
    const char *kind;
    /* NULL: every name of the kind */
    const char *name;
    bench_build_function *build;
    /* builders of the case as several programs, the result of each being the first operand of the next, that is, without fusion */
    bench_build_function *stages[BENCH_MAX_STAGES];
} bench_case_kind;

/* NULL when no operator covers the line. */
const bench_case_kind *bench_case_find(const bench_shape *shape);
/* Calls the builder, then allocates the results. Stages and parts of blocks get shared operands from the caller. */
void bench_case_build(bench_builder *b, bench_build_function *build, const bench_shape *shape, dlc_graph *graph,
                      const bench_steps *steps);
/* The same graph without data of operands and results. All operands are inputs; or, if `bytes` is not NULL, those that are known before
 * the first run are constants with these bytes, each operand's starting BENCH_BYTES_APART after the previous one's. There must be enough
 * bytes for the largest operand after all these distances, and they must outlive the graph. Nothing to release. */
void bench_case_describe(bench_builder *b, bench_build_function *build, const bench_shape *shape, dlc_graph *graph,
                         const bench_steps *steps, const void *bytes);
void bench_case_release(bench_builder *b);
/* Creates an operand or result with data; values are spread evenly over [low, high), always the same. */
void bench_operand_create(bench_operand *operand, dlc_dtype dtype, int rank, const int64_t *dims, double low,
                          double high);
/* Its first data again. */
void bench_operand_fill(bench_operand *operand);

/* For builders of other files: the next operand, spread over [low, high); the next result. */
dlc_value bench_case_operand(bench_builder *b, bool constant, dlc_dtype dtype, int rank, const int64_t *dims,
                             double low, double high);
void bench_case_result(bench_builder *b, dlc_value value);

/* train.c: kinds `train`, `backward`, `update` and `second`. */
bench_build_function bench_build_train, bench_build_backward, bench_build_update, bench_build_second;
/* The loss of a line of kind `train`, in the graph of its training. */
dlc_value bench_training_loss(bench_builder *b);
/* Is the line's network, derivative, optimiser or activation known? */
bool bench_trains(const bench_shape *shape);
/* The computation whose derivative the line is; NULL: it is compared with none. */
bench_build_function *bench_forward_of(const bench_shape *shape);

/* block_graphs.c: kind `block`. */
bench_build_function bench_build_block;
/* Number of parts; 0: the line is no known block. */
int bench_block_parts(const bench_shape *shape);
/* The steps of a part, from 0. */
bench_steps bench_block_steps(const bench_shape *shape, int part);

#endif
