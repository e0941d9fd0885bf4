/* Stages of tensor expressions as other rows, by which registered operators differentiate (gradient_stage.c). */
#ifndef GRAPH_GRADIENT_STAGE_H
#define GRAPH_GRADIENT_STAGE_H

#include "graph/op.h"

/* A statement, or a reduction in one, over index variables of g->pool. */
typedef struct graph_stage {
    /* those of the result, then those of the reduction */
    int space, axes;
    tir_expr var[TIR_MAX_AXES], extent[TIR_MAX_AXES];
    /* of the reduction: TIR_ADD TIR_MUL TIR_MAX TIR_MIN TIR_AND TIR_OR; 0: none */
    tir_op op;
    tir_expr body;
    /* where elements count; 0: everywhere */
    tir_expr predicate;
    /* element type of the result */
    dlc_dtype dtype;
} graph_stage;

/* The value of each tensor that stages load. */
typedef struct graph_stage_tensors {
    graph *g;
    lib_vec(graph_id) value;
} graph_stage_tensors;

/* Emits the rows that compute the stage; loads of tensor t, whose number is first + t, are of tensors->value[t]. */
graph_id graph_emit_stage(const graph_stage_tensors *tensors, const graph_stage *stage);

#endif
