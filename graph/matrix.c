/* Shared by the matrix operators. For steps of folds: a clamped offset operand. For expansions: a Householder reflection from a
 * vector, products of reflections applied block by block, padding to at least one row and column, triangles, diagonals. */
#include "graph/matrix.h"

/* ---- steps */

tir_expr matrix_offset(graph_compute *c, tir_expr limit) {
    tir_pool *pool = c->pool;
    tir_expr last = tir_max(pool, tir_sub(pool, limit, tir_index(pool, 1)), tir_index(pool, 0));
    return graph_limited_index(pool, graph_operand_load(c, 1, NULL), tir_index(pool, 0), last);
}

/* ---- expansions */

graph_id matrix_reflector_of(graph *g, graph_id x, graph_id pivot) {
    const int64_t axis = graph_shape_of(g, x)->rank - 1;
    graph_id i = index_vector(g, matrix_dim(g, x, 1)), zero = graph_scalar_like(g, x, 0);
    graph_id from = graph_ge(g, i, pivot), here = graph_eq(g, i, pivot);
    graph_id most = graph_reduce_max(g, graph_select(g, from, graph_abs(g, x), zero), 1, &axis, true);
    most = graph_select(g, graph_eq(g, most, zero), graph_scalar_like(g, x, 1), most);
    x = graph_select(g, from, graph_div(g, x, most), zero); /* squares are in range */
    graph_id behind = graph_select(g, here, zero, x);
    graph_id square = graph_reduce_sum(g, graph_mul(g, behind, behind), 1, &axis, true);
    graph_id first = graph_reduce_sum(g, graph_select(g, here, x, zero), 1, &axis, true);
    graph_id norm = graph_sqrt(g, graph_add(g, graph_mul(g, first, first), square));
    /* the sign opposite to the first element's, so that nothing cancels */
    graph_id aim = graph_select(g, graph_lt(g, first, zero), graph_sub(g, first, norm), graph_add(g, first, norm));
    graph_id length = graph_sqrt(g, graph_mul(g, norm, graph_add(g, norm, graph_abs(g, first))));
    length = graph_select(g, graph_eq(g, square, zero), graph_scalar_like(g, x, (double)INFINITY), length);
    return graph_div(g, graph_select(g, here, aim, behind), length);
}

graph_id matrix_apply_reflectors(graph *g, graph_id v, graph_id x, bool transposed) {
    const graph_setting solve[] = {graph_set_bool("upper", true), graph_set_bool("unit", true),
                                   graph_set_bool("transpose", transposed)};
    graph_id down = matrix_transpose(g, v);
    graph_id inner[2] = {graph_matmul(g, v, down), graph_matmul(g, v, x)};
    return graph_sub(g, x, graph_matmul(g, down, graph_emit_with(g, "substitute", 2, inner, 3, solve)));
}

/* The product of the reflections, in order, times x: blocks of `block` reflections are applied to x, the last block first. */
graph_id matrix_apply_all(graph *g, graph_id v, graph_id x, int block) {
    tir_pool *pool = g->pool;
    tir_expr count = matrix_dim(g, v, 2), width = tir_index(pool, block), trips = tir_ceil_div(pool, count, width);
    matrix_loop loop = open_loop(g, trips, 2, (graph_id[]){x, v});
    graph *body = loop.body;
    graph_id last = graph_dimension(body, DLC_I32, tir_sub(pool, trips, tir_index(pool, 1)));
    graph_id start = graph_mul_number(body, graph_sub(body, last, loop.inner[0]), block);
    graph_id next = matrix_apply_reflectors(body, slice_at(body, loop.inner[2], start, 2, width), loop.inner[1], false);
    close_loop(&loop, 1, &next, &x);
    return x;
}

graph_id matrix_at_least_one(graph *g, graph_id a) {
    tir_pool *pool = g->pool;
    tir_expr one = tir_index(pool, 1), size[2] = {matrix_dim(g, a, 2), matrix_dim(g, a, 1)}, more[2];
    for (int k = 0; k < 2; k++) more[k] = tir_max(pool, size[k], one);
    if (more[0] == size[0] && more[1] == size[1]) return a;
    graph_id start = graph_scalar_i64(g, DLC_I32, 0);
    a = update_at(g, zeros_like_of(g, a, size[0], more[1]), a, start, 1);
    return update_at(g, zeros_like_of(g, a, more[0], more[1]), a, start, 2);
}

graph_id matrix_triangle(graph *g, graph_id a, bool upper) {
    graph_id i = as_column(g, index_vector(g, matrix_dim(g, a, 2))),
             j = as_row(g, index_vector(g, matrix_dim(g, a, 1)));
    return graph_select(g, upper ? graph_le(g, i, j) : graph_lt(g, j, i), a, graph_full_like(g, a, 0));
}

graph_id matrix_diagonal(graph *g, graph_id a) {
    const int64_t column = graph_shape_of(g, a)->rank - 1;
    graph_id i = index_vector(g, matrix_dim(g, a, 1));
    graph_id chosen = graph_eq(g, as_column(g, i), as_row(g, i));
    return graph_reduce_sum(g, graph_select(g, chosen, a, graph_full_like(g, a, 0)), 1, &column, false);
}
