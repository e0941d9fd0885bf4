/* Rules of differentiation of the matrix operators (graph/ops_matrix.c, ops_factor.c, ops_eigen.c, ops_svd.c), of matrices [..., m, n]; `da`
 * is the tangent of a. Giles 2008; Murray 2016 (cholesky); Walter & Lehmann 2012 (qr); Townsend 2016 (svd); Golub & Pereyra 1973 (pinv). */
#include "graph/gradient.h"
#include "graph/matrix.h"

/* ---- values ---------------------------------------------------------------------------------------------------------- */

static int rank_of(const graph *g, graph_id a) {
    return graph_shape_of(g, a)->rank;
}

static graph_id transposed(graph *g, graph_id a) {
    int64_t order[DLC_MAX_RANK];
    const int rank = rank_of(g, a);
    for (int i = 0; i < rank; i++) order[i] = i;
    order[rank - 2] = rank - 1;
    order[rank - 1] = rank - 2;
    return graph_transpose(g, a, order);
}

/* bool, of a's shape: does row i compare so with column j? */
static graph_id where(graph *g, graph_id a, graph_id (*compares)(graph *g, graph_id i, graph_id j)) {
    const graph_shape shape = *graph_shape_of(g, a);
    return compares(g, graph_iota(g, DLC_I32, shape.rank, shape.dim, shape.rank - 2),
                    graph_iota(g, DLC_I32, shape.rank, shape.dim, shape.rank - 1));
}

static graph_id only(graph *g, graph_id a, graph_id (*compares)(graph *g, graph_id i, graph_id j)) {
    return graph_select(g, where(g, a, compares), a, graph_scalar_like(g, a, 0));
}

/* a below the diagonal less its transpose: antisymmetric. */
static graph_id rotation(graph *g, graph_id a) {
    const graph_id below = only(g, a, graph_gt);
    return graph_sub(g, below, transposed(g, below));
}

/* The symmetric matrix of which a holds one triangle. */
static graph_id mirrored(graph *g, graph_id a, bool upper) {
    return graph_add(g, only(g, a, upper ? graph_le : graph_ge),
                     transposed(g, only(g, a, upper ? graph_lt : graph_gt)));
}

static graph_id trace(graph *g, graph_id a) {
    const int rank = rank_of(g, a);
    return graph_reduce_sum(g, only(g, a, graph_eq), 2, (int64_t[]){rank - 2, rank - 1}, false);
}

static graph_id substituted(graph *g, graph_id a, graph_id b, bool left, bool upper, bool turned, bool unit) {
    return graph_emit_with(g, "triangular_solve", 2, (graph_id[]){a, b}, 4,
                           (graph_setting[]){graph_set_bool("left", left), graph_set_bool("upper", upper),
                                             graph_set_bool("transpose", turned), graph_set_bool("unit", unit)});
}

static graph_id one_operand(graph *g, const char *name, graph_id a) {
    return graph_emit_with(g, name, 1, &a, 0, NULL);
}

static graph_id part(graph *g, graph_id a, int from_end, tir_expr start, tir_expr stop) {
    return graph_slice_axis(g, a, rank_of(g, a) - from_end, start, stop);
}

static graph_id first_columns(graph *g, graph_id a, tir_expr count) {
    return part(g, a, 1, tir_index(g->pool, 0), count);
}

/* diag(d) a, and a diag(d), for d [..., n]. */
static graph_id scaled_rows(graph *g, graph_id d, graph_id a) {
    return graph_mul(g, graph_broadcast_like(g, graph_expand_dims(g, d, rank_of(g, d)), a), a);
}
static graph_id scaled_columns(graph *g, graph_id a, graph_id d) {
    return graph_mul(g, a, graph_broadcast_like(g, graph_expand_dims(g, d, rank_of(g, d) - 1), a));
}

/* [..., n, n]: 1/(d_j - d_i); 0 on the diagonal and between equals. */
static graph_id gaps(graph *g, graph_id d, graph_id like) {
    const int rank = rank_of(g, d);
    const graph_id row = graph_broadcast_like(g, graph_expand_dims(g, d, rank), like);
    const graph_id column = graph_broadcast_like(g, graph_expand_dims(g, d, rank - 1), like);
    const graph_id gap = graph_sub(g, column, row), zero = graph_scalar_like(g, like, 0),
                   one = graph_scalar_like(g, like, 1);
    const graph_id none = graph_eq(g, gap, zero);
    return graph_select(g, none, zero, graph_div(g, one, graph_select(g, none, one, gap)));
}

/* ---- factors ----------------------------------------------------------------------------------------------------------- */

/* dl = l phi(l^-1 da l^-T), phi: the lower triangle with half of the diagonal. */
void matrix_tangent_cholesky(graph_rule *rule) {
    graph *g = rule->g;
    const bool upper = rule->attribute[0].integer != 0;
    const graph_id l = upper ? transposed(g, rule->first) : rule->first;
    const graph_id once = substituted(g, l, mirrored(g, rule->tangent[0], upper), true, false, false, false);
    const graph_id twice = substituted(g, l, transposed(g, once), true, false, false, false);
    const graph_id half = graph_mul_number(g, only(g, twice, graph_eq), 0.5);
    const graph_id d =
        only(g, graph_matmul(g, l, graph_add(g, only(g, twice, graph_gt), half)), graph_ge); /* also of NaN */
    rule->out[0] = upper ? transposed(g, d) : d;
}

typedef struct solve_form {
    bool left, upper, turned, unit;
} solve_form;

static solve_form form_of(const graph_rule *rule) {
    const graph_attribute *a = rule->attribute;
    return (solve_form){a[0].integer != 0, a[1].integer != 0, a[2].integer != 0, a[3].integer != 0};
}

/* In b: the same system, op transposed. */
void matrix_transpose_substitution(graph_rule *rule) {
    const solve_form f = form_of(rule);
    rule->out[0] = substituted(rule->g, rule->input[0], rule->cotangent[0], f.left, f.upper, !f.turned, f.unit);
}

/* In a: op(a) dx = -op(da) x, of da the triangle that is read. */
void matrix_tangent_substitution(graph_rule *rule) {
    graph *g = rule->g;
    const solve_form f = form_of(rule);
    const graph_id x = rule->first;
    graph_id da = only(g, rule->tangent[0], f.upper ? (f.unit ? graph_lt : graph_le) : f.unit ? graph_gt : graph_ge);
    if (f.turned) da = transposed(g, da);
    const graph_id moved = graph_neg(g, f.left ? graph_matmul(g, da, x) : graph_matmul(g, x, da));
    rule->out[0] = substituted(g, rule->input[0], moved, f.left, f.upper, f.turned, f.unit);
}

/* With c = q^T da r^-1 and the antisymmetric w that has c's lower triangle: dq = da r^-1 - q (c - w), dr = q^T da - w r; r and da cut to
 * their first k columns where they are divided by. */
void matrix_tangent_qr(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id q = rule->first, r = rule->first + 1, da = rule->tangent[0];
    const tir_expr k = matrix_dim(g, q, 1);
    const graph_id over = substituted(g, first_columns(g, r, k), first_columns(g, da, k), false, true, false, false);
    const graph_id c = graph_matmul(g, transposed(g, q), over), w = rotation(g, c);
    rule->out[0] = graph_sub(g, over, graph_matmul(g, q, graph_sub(g, c, w)));
    rule->out[1] = graph_sub(g, graph_matmul(g, transposed(g, q), da), graph_matmul(g, w, r));
}

/* With the first k rows of l and columns of u, x = l1^-1 da[p] (k rows), f = x u1^-1: du = x - below(f) u, dl = (da[p] - l du) u1^-1. */
void matrix_tangent_lu(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id l = rule->first, u = rule->first + 1, da = rule->tangent[0];
    const graph_shape shape = *graph_shape_of(g, da);
    const tir_expr k = matrix_dim(g, l, 1), zero = tir_index(g->pool, 0);
    const graph_id order = graph_broadcast_like(g, graph_expand_dims(g, rule->first + 2, shape.rank - 1), da);
    const graph_id moved = graph_gather_elements(g, da, order, shape.rank - 2);
    const graph_id l1 = part(g, l, 2, zero, k), u1 = first_columns(g, u, k);
    const graph_id x = substituted(g, l1, part(g, moved, 2, zero, k), true, false, false, true);
    const graph_id f = substituted(g, u1, first_columns(g, x, k), false, true, false, false);
    const graph_id du = graph_sub(g, x, graph_matmul(g, only(g, f, graph_gt), u));
    const graph_id rest = graph_sub(g, first_columns(g, moved, k), graph_matmul(g, l, first_columns(g, du, k)));
    rule->out[0] = substituted(g, u1, rest, false, true, false, false);
    rule->out[1] = du;
}

/* ---- systems ----------------------------------------------------------------------------------------------------------- */

static graph_id solved(graph *g, graph_id a, graph_id b) {
    return graph_emit_with(g, "solve", 2, (graph_id[]){a, b}, 0, NULL);
}

void matrix_transpose_solve(graph_rule *rule) {
    rule->out[0] = solved(rule->g, transposed(rule->g, rule->input[0]), rule->cotangent[0]);
}

void matrix_tangent_solve(graph_rule *rule) {
    graph *g = rule->g;
    rule->out[0] = solved(g, rule->input[0], graph_neg(g, graph_matmul(g, rule->tangent[0], rule->first)));
}

void matrix_tangent_inverse(graph_rule *rule) {
    graph *g = rule->g;
    rule->out[0] = graph_neg(g, graph_matmul(g, graph_matmul(g, rule->first, rule->tangent[0]), rule->first));
}

/* d det = det trace(a^-1 da), which is not finite where a is singular. */
void matrix_tangent_det(graph_rule *rule) {
    graph *g = rule->g;
    rule->out[0] = graph_mul(g, rule->first, trace(g, solved(g, rule->input[0], rule->tangent[0])));
}

void matrix_tangent_slogdet(graph_rule *rule) {
    rule->out[1] = trace(rule->g, solved(rule->g, rule->input[0], rule->tangent[0]));
}

/* exp([a d; 0 a]) holds the derivative of exp at a in the direction d right above (Higham 2008, 3.6). */
static graph_id exponential_along(graph *g, graph_id a, graph_id d) {
    const int rank = rank_of(g, a);
    const tir_expr n = matrix_dim(g, a, 1), twice = tir_mul(g->pool, n, tir_index(g->pool, 2)),
                   zero = tir_index(g->pool, 0);
    const graph_id above = graph_concat(g, 2, (graph_id[]){a, d}, rank - 1);
    const graph_id below = graph_concat(g, 2, (graph_id[]){graph_full_like(g, a, 0), a}, rank - 1);
    const graph_id whole = one_operand(g, "expm", graph_concat(g, 2, (graph_id[]){above, below}, rank - 2));
    return part(g, part(g, whole, 2, zero, n), 1, n, twice);
}

void matrix_tangent_expm(graph_rule *rule) {
    rule->out[0] = exponential_along(rule->g, rule->input[0], rule->tangent[0]);
}

void matrix_cotangent_expm(graph_rule *rule) {
    rule->out[0] = exponential_along(rule->g, transposed(rule->g, rule->input[0]), rule->cotangent[0]);
}

/* ---- eigenvalues and singular values ------------------------------------------------------------------------------------- */

/* dw = diag(v^T da v), dv = v (f * v^T da v), f_ij = 1/(w_j - w_i), 0 between equal values. */
void matrix_tangent_eigh(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id w = rule->first, v = rule->first + 1;
    const graph_id turned = graph_matmul(g, graph_matmul(g, transposed(g, v), mirrored(g, rule->tangent[0], false)), v);
    rule->out[0] = matrix_diagonal(g, turned);
    rule->out[1] = graph_matmul(g, v, graph_mul(g, gaps(g, w, turned), turned));
}

/* What of b [..., m, k] stands on none of the orthonormal columns of u: b - u u^T b. */
static graph_id beside(graph *g, graph_id u, graph_id b) {
    return graph_sub(g, b, graph_matmul(g, u, graph_matmul(g, transposed(g, u), b)));
}

/* With p = u^T da v: ds = diag(p), du = u (f * (p s + s p^T)) + (1 - u u^T) da v / s, dv likewise of the transpose; f as of eigh, of s^2. */
void matrix_tangent_svd(graph_rule *rule) {
    graph *g = rule->g;
    const graph_id u = rule->first, s = rule->first + 1, vt = rule->first + 2, v = transposed(g, vt),
                   da = rule->tangent[0];
    const graph_id right = graph_matmul(g, da, v), left = graph_matmul(g, transposed(g, da), u);
    const graph_id p = graph_matmul(g, transposed(g, u), right), pt = transposed(g, p),
                   f = gaps(g, graph_mul(g, s, s), p);
    const graph_id zero = graph_scalar_like(g, s, 0), one = graph_scalar_like(g, s, 1), none = graph_eq(g, s, zero);
    const graph_id over = graph_select(g, none, zero, graph_div(g, one, graph_select(g, none, one, s)));
    const graph_id turn_u = graph_mul(g, f, graph_add(g, scaled_columns(g, p, s), scaled_rows(g, s, pt)));
    const graph_id turn_v = graph_mul(g, f, graph_add(g, scaled_rows(g, s, p), scaled_columns(g, pt, s)));
    rule->out[0] = graph_add(g, graph_matmul(g, u, turn_u), scaled_columns(g, beside(g, u, right), over));
    rule->out[1] = matrix_diagonal(g, p);
    rule->out[2] = transposed(g, graph_add(g, graph_matmul(g, v, turn_v), scaled_columns(g, beside(g, v, left), over)));
}

/* dp times b, for p the pseudo-inverse of a: -p da p b + p p^T da^T (b - a p b) + (1 - p a) da^T p^T p b; b 0: the unit matrix. */
static graph_id pseudo_inverse_along(graph *g, graph_id a, graph_id p, graph_id da, graph_id b) {
    const graph_id x = b ? graph_matmul(g, p, b) : p, dat = transposed(g, da), pt = transposed(g, p);
    graph_id rest; /* b - a x */
    if (b) {
        rest = graph_sub(g, b, graph_matmul(g, a, x));
    } else {
        const graph_id ax = graph_matmul(g, a, x);
        const graph_id unit = graph_cast(g, where(g, ax, graph_eq), graph_shape_of(g, ax)->dtype);
        rest = graph_sub(g, unit, ax);
    }
    const graph_id first = graph_neg(g, graph_matmul(g, p, graph_matmul(g, da, x)));
    const graph_id second = graph_matmul(g, p, graph_matmul(g, pt, graph_matmul(g, dat, rest)));
    const graph_id third = graph_matmul(g, dat, graph_matmul(g, pt, x));
    const graph_id within = graph_matmul(g, p, graph_matmul(g, a, third));
    return graph_add(g, graph_add(g, first, second), graph_sub(g, third, within));
}

void matrix_tangent_pinv(graph_rule *rule) {
    rule->out[0] = pseudo_inverse_along(rule->g, rule->input[0], rule->first, rule->tangent[0], 0);
}

void matrix_transpose_lstsq(graph_rule *rule) {
    const graph_id p = one_operand(rule->g, "pinv", rule->input[0]);
    rule->out[0] = graph_matmul(rule->g, transposed(rule->g, p), rule->cotangent[0]);
}

void matrix_tangent_lstsq(graph_rule *rule) {
    const graph_id p = one_operand(rule->g, "pinv", rule->input[0]);
    rule->out[0] = pseudo_inverse_along(rule->g, rule->input[0], p, rule->tangent[0], rule->input[1]);
}
