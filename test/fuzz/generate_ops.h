/* The statements that generate.h can add: one function per family of operators, one row of gen_rules each. Control flow and rows by
 * their samples have files of their own. */
#ifndef TEST_FUZZ_GENERATE_OPS_H
#define TEST_FUZZ_GENERATE_OPS_H

#include "fuzz/generate.h"
#include "fuzz/generate_control.h"
#include "fuzz/generate_samples.h"

/* ---- maps */

static inline void add_unary(gen *g) {
    char op[32];
    TRY(gen_any(g, "fi", 0), x);
    bool is_float = gen_is(&g->value[x], "f");
    gen_word(
        g,
        is_float
            ? "neg abs sign sqrt rsqrt exp expm1 exp2 exp10 log log1p log2 log10 sin cos sinc tanh erf erfc erfinv normal_cdf lgamma "
              "digamma bessel_i0 bessel_i0e bessel_i1 bessel_i1e logistic floor ceil round exp tanh neg"
            : "neg abs sign not clz popcount",
        op);
    gen_node(g, "%s(%s)", op, NAME(x));
}

static inline void add_activation(gen *g) {
    char op[32];
    TRY(gen_any(g, "f", 0), x);
    gen_word(
        g,
        "relu relu6 leaky_relu elu silu gelu hard_sigmoid hard_swish softplus relu softsign thresholded_relu shrink celu selu "
        "mish quick_gelu log_sigmoid hard_tanh tanh_shrink",
        op);
    gen_node(g, "%s(%s%s)", op, NAME(x), strcmp(op, "gelu") == 0 && gen_one_in(g, 2) ? ", approximate=tanh" : "");
}

static inline void add_binary(gen *g) {
    char op[32];
    TRY(gen_any(g, "bif", 0), a);
    const gen_value v = gen_like(g, a);
    TRY(gen_broadcastable(g, &v), b);
    gen_word(g,
             gen_is(&v, "b") ? "and or xor eq ne"
             : gen_is(&v, "i")
                 ? "add sub mul div rem min max pow and or xor eq ne lt le gt ge"
                 : "add add add sub sub mul mul mul div rem min max max pow hypot log_add_exp atan2 eq ne lt le gt ge",
             op);
    if (gen_one_in(g, 3))
        gen_node(g, "%s(%s, %s)", op, NAME(b), NAME(a));
    else
        gen_node(g, "%s(%s, %s)", op, NAME(a), NAME(b));
}

static inline void add_select(gen *g) {
    TRY(gen_any(g, "bif", 0), a);
    const gen_value v = gen_like(g, a);
    gen_value condition = v;
    condition.dtype = DLC_BOOL;
    TRY(gen_broadcastable(g, &condition), c);
    TRY(gen_broadcastable(g, &v), b);
    gen_node(g, "select(%s, %s, %s)", NAME(c), NAME(a), NAME(b));
}

static inline void add_clamp(gen *g) {
    TRY(gen_any(g, "if", 0), x);
    const gen_value v = gen_like(g, x);
    TRY(gen_broadcastable(g, &v), low);
    TRY(gen_broadcastable(g, &v), high);
    gen_node(g, "clamp(%s, %s, %s)", NAME(low), NAME(x), NAME(high));
}

static inline void add_cast(gen *g) {
    TRY(gen_any(g, "bif", 0), x);
    gen_node(g, "cast(%s, dtype=%s)", NAME(x), lib_dtypes[gen_dtype(g, "bif")].name);
}

/* ---- structure */

static inline void add_reshape(gen *g) {
    TRY(gen_any(g, "bif", 0), x);
    const gen_value *v = &g->value[x];
    char shape[512] = "";
    size_t at = 0;
    for (int i = 0; i < v->rank; i++) { /* keep, split in two, or join with the next ones */
        if (i + 1 < v->rank && gen_one_in(g, 3))
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s(%s)*(%s)", at ? ", " : "", v->text[i],
                                   v->text[i + 1]),
                i++;
        else if (v->dim[i] % 2 == 0 && v->dim[i] > 0 && strspn(v->text[i], "0123456789") == strlen(v->text[i]) &&
                 gen_one_in(g, 2))
            at +=
                (size_t)snprintf(shape + at, sizeof shape - at, "%s%lld, 2", at ? ", " : "", (long long)v->dim[i] / 2);
        else
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%s", at ? ", " : "", v->text[i]);
        if (gen_one_in(g, 8)) at += (size_t)snprintf(shape + at, sizeof shape - at, ", 1");
    }
    if (gen_one_in(g, 5) && gen_count(v) > 0) snprintf(shape, sizeof shape, "-1");
    gen_node(g, "reshape(%s, shape=[%s])", NAME(x), shape);
}

static inline void add_transpose(gen *g) {
    TRY(gen_any(g, "bif", 1), x);
    int rank = g->value[x].rank;
    int64_t order[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) order[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int k = (int)gen_below(g, i + 1);
        int64_t swap = order[i];
        order[i] = order[k], order[k] = swap;
    }
    gen_node(g, "transpose(%s, permutation=%s)", NAME(x), gen_integers(rank, order).text);
}

static inline void add_broadcast(gen *g) {
    TRY(gen_any(g, "bif", 0), x);
    const gen_value v = gen_like(g, x);
    gen_value y = v;
    int64_t axes[DLC_MAX_RANK];
    int at = (int)gen_below(g, v.rank + 1);
    y.rank = v.rank + 1;
    if (y.rank > 6) return;
    gen_pick_dim(g, &y, at);
    for (int i = 0; i < v.rank; i++) {
        axes[i] = i < at ? i : i + 1;
        y.dim[axes[i]] = v.dim[i];
        memcpy(y.text[axes[i]], v.text[i], sizeof y.text[0]);
        if (strcmp(v.text[i], "1") == 0 && gen_one_in(g, 2)) gen_set_dim(&y, (int)axes[i], gen_between(g, 1, 9));
    }
    gen_node(g, "broadcast(%s, shape=%s, axes=%s)", NAME(x), gen_dims(&y, 0, y.rank).text,
             gen_integers(v.rank, axes).text);
}

static inline void add_reverse(gen *g) {
    TRY(gen_any(g, "bif", 1), x);
    gen_node(g, "reverse(%s, axes=[%d])", NAME(x), gen_axis(g, &g->value[x]));
}

static inline void add_slice(gen *g) {
    TRY(gen_any(g, "bif", 1), x);
    const gen_value v = gen_like(g, x);
    gen_value start = v, stop = v;
    int64_t step[DLC_MAX_RANK] = {0};
    for (int i = 0; i < v.rank; i++) {
        int64_t low = gen_one_in(g, 2) ? 0 : gen_below(g, v.dim[i] + 1);
        gen_set_dim(&start, i, low);
        if (gen_one_in(g, 2)) gen_set_dim(&stop, i, gen_between(g, low, v.dim[i]));
        step[i] = gen_one_in(g, 3) ? gen_between(g, 1, 3) : 1;
    }
    gen_node(g, "slice(%s, start=%s, stop=%s, step=%s)", NAME(x), gen_dims(&start, 0, v.rank).text,
             gen_dims(&stop, 0, v.rank).text, gen_integers(v.rank, step).text);
}

static inline void add_pad(gen *g) {
    TRY(gen_any(g, "bif", 1), x);
    const gen_value v = gen_like(g, x);
    int64_t low[DLC_MAX_RANK] = {0}, high[DLC_MAX_RANK] = {0}, interior[DLC_MAX_RANK] = {0};
    TRY(gen_scalar(g, v.dtype), value);
    for (int i = 0; i < v.rank; i++) {
        low[i] = gen_one_in(g, 2) ? gen_between(g, 0, 3) : 0;
        high[i] = gen_one_in(g, 2) ? gen_between(g, 0, 3) : 0;
        interior[i] = gen_one_in(g, 6) ? 1 : 0;
        if (gen_one_in(g, 6) && v.dim[i] > 4) low[i] = -1, high[i] = -2;
    }
    gen_node(g, "pad(%s, %s, low=%s, high=%s, interior=%s)", NAME(x), NAME(value), gen_integers(v.rank, low).text,
             gen_integers(v.rank, high).text, gen_integers(v.rank, interior).text);
}

static inline void add_concat(gen *g) {
    TRY(gen_any(g, "bif", 1), x);
    const gen_value v = gen_like(g, x);
    int axis = gen_axis(g, &v), count = (int)gen_between(g, 1, 3), other[3] = {x, x, x};
    for (int i = 1; i < count; i++) {
        gen_value like = v;
        if (!gen_one_in(g, 3)) gen_set_dim(&like, axis, gen_between(g, 0, 9));
        other[i] = gen_operand(g, &like);
        if (other[i] < 0) return;
    }
    if (count == 1) gen_node(g, "concat(%s, axis=%d)", NAME(x), axis);
    if (count == 2) gen_node(g, "concat(%s, %s, axis=%d)", NAME(other[1]), NAME(x), axis);
    if (count == 3) gen_node(g, "concat(%s, %s, %s, axis=%d)", NAME(other[1]), NAME(x), NAME(other[2]), axis);
}

static inline void add_iota(gen *g) {
    gen_value v = {.rank = (int)gen_between(g, 1, 3)};
    for (int i = 0; i < v.rank; i++) gen_pick_dim(g, &v, i);
    gen_node(g, "iota(dtype=%s, shape=%s, axis=%d)", lib_dtypes[gen_dtype(g, "if")].name, gen_dims(&v, 0, v.rank).text,
             gen_axis(g, &v));
}

/* Integers of a small shape. */
static inline int gen_indices(gen *g) {
    gen_value v = {.dtype = gen_dtype(g, "i"), .rank = (int)gen_below(g, 3)};
    for (int i = 0; i < v.rank; i++) {
        gen_pick_dim(g, &v, i);
        if (v.dim[i] > 20) gen_set_dim(&v, i, gen_between(g, 1, 9));
    }
    return gen_operand(g, &v);
}

/* `out` is v with the dimension at `axis` replaced by those of `by`. */
static inline bool gen_replace_axis(const gen_value *v, int axis, const gen_value *by, gen_value *out) {
    *out = *v;
    out->rank = v->rank - 1 + by->rank;
    if (out->rank > 7) return false;
    for (int i = 0; i < out->rank; i++) {
        const gen_value *from = i < axis || i >= axis + by->rank ? v : by;
        int at = i < axis ? i : i < axis + by->rank ? i - axis : i - by->rank + 1;
        out->dim[i] = from->dim[at];
        memcpy(out->text[i], from->text[at], sizeof out->text[0]);
    }
    return true;
}

static inline void add_gather(gen *g) {
    TRY(gen_any(g, "bif", 1), x);
    TRY(gen_indices(g), indices);
    const gen_value *v = &g->value[x];
    int axis = gen_axis(g, v);
    if (v->dim[axis] == 0) return;
    gen_node(g, "gather(%s, %s, axis=%d)", NAME(x), NAME(indices), axis);
}

/* An index for each element: as large as v, but along one axis. */
static inline int gen_element_indices(gen *g, const gen_value *v, int *axis) {
    gen_value indices = *v;
    *axis = gen_axis(g, v);
    indices.dtype = gen_dtype(g, "i");
    if (!gen_one_in(g, 3)) gen_set_dim(&indices, *axis, gen_between(g, 0, 9));
    return gen_operand(g, &indices);
}

static inline void add_elements(gen *g) {
    char combine[32];
    int axis;
    TRY(gen_any(g, "bif", 1), x);
    const gen_value v = gen_like(g, x);
    const int indices = gen_element_indices(g, &v, &axis);
    if (indices < 0) return;
    if (gen_one_in(g, 2)) {
        if (v.dim[axis]) gen_node(g, "gather_elements(%s, %s, axis=%d)", NAME(x), NAME(indices), axis);
        return;
    }
    gen_value updates = gen_like(g, indices);
    updates.dtype = v.dtype;
    TRY(gen_operand(g, &updates), u);
    gen_word(g, gen_is(&v, "b") ? "set" : "set add mul min max", combine);
    gen_node(g, "scatter_elements(%s, %s, %s, axis=%d, combine=%s)", NAME(x), NAME(indices), NAME(u), axis, combine);
}

static inline void add_scatter(gen *g) {
    char combine[32];
    TRY(gen_any(g, "bif", 1), x);
    TRY(gen_indices(g), indices);
    const gen_value v = gen_like(g, x);
    gen_value updates;
    int axis = gen_axis(g, &v);
    if (!gen_replace_axis(&v, axis, &g->value[indices], &updates)) return;
    TRY(gen_operand(g, &updates), u);
    gen_word(g, gen_is(&v, "b") ? "set" : "set add mul min max", combine);
    gen_node(g, "scatter(%s, %s, %s, axis=%d, combine=%s)", NAME(x), NAME(indices), NAME(u), axis, combine);
}

static inline void add_dynamic(gen *g) {
    TRY(gen_any(g, "bif", 1), x);
    const gen_value v = gen_like(g, x);
    gen_value start = {.dtype = gen_dtype(g, "i"), .rank = 1}, window = v;
    gen_set_dim(&start, 0, v.rank);
    for (int i = 0; i < v.rank; i++)
        if (!gen_one_in(g, 3)) gen_set_dim(&window, i, gen_between(g, 0, v.dim[i]));
    TRY(gen_operand(g, &start), s);
    if (gen_one_in(g, 2)) {
        gen_node(g, "dynamic_slice(%s, %s, size=%s)", NAME(x), NAME(s), gen_dims(&window, 0, v.rank).text);
        return;
    }
    TRY(gen_operand(g, &window), update);
    gen_node(g, "dynamic_update_slice(%s, %s, %s)", NAME(x), NAME(update), NAME(s));
}

/* ---- reductions */

static inline gen_list gen_axes(gen *g, const gen_value *v) {
    int64_t axes[DLC_MAX_RANK];
    int count = 0;
    for (int i = 0; i < v->rank; i++)
        if (gen_one_in(g, 2)) axes[count++] = i;
    return gen_integers(count, axes);
}

static inline void add_reduce(gen *g) {
    char op[32];
    TRY(gen_any(g, "bif", 0), x);
    const gen_value *v = &g->value[x];
    gen_word(
        g,
        gen_is(v, "b") ? "reduce_and reduce_or"
        : gen_is(v, "i")
            ? "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or"
            : "reduce_sum reduce_sum reduce_sum reduce_prod reduce_max reduce_max reduce_min mean logsumexp variance mean",
        op);
    gen_node(g, "%s(%s, axes=%s, keep=%s)", op, NAME(x), gen_axes(g, v).text, gen_one_in(g, 2) ? "true" : "false");
}

static inline void add_along(gen *g) {
    char op[32];
    TRY(gen_any(g, "if", 1), x);
    const gen_value *v = &g->value[x];
    int axis = gen_axis(g, v);
    if (v->dim[axis] == 0) return; /* has no greatest element */
    gen_word(g,
             gen_is(v, "f") ? "softmax softmax softmax log_softmax cumulative_sum arg_max" : "cumulative_sum arg_max",
             op);
    const char *more = "";
    if (strcmp(op, "cumulative_sum") == 0)
        more = gen_one_in(g, 2) ? ", exclusive=true" : gen_one_in(g, 2) ? ", reverse=true" : "";
    if (strcmp(op, "arg_max") == 0) more = gen_one_in(g, 2) ? ", dtype=i32" : gen_one_in(g, 2) ? ", keep=true" : "";
    gen_node(g, "%s(%s, axis=%d%s)", op, NAME(x), axis, more);
}

static inline void add_norm(gen *g) {
    TRY(gen_any(g, "f", 1), x);
    const gen_value v = gen_like(g, x);
    gen_value part = v;
    int axis = gen_one_in(g, 3) ? gen_axis(g, &v) : v.rank - 1;
    part.rank = v.rank - axis;
    for (int i = 0; i < part.rank; i++) {
        part.dim[i] = v.dim[axis + i];
        memcpy(part.text[i], v.text[axis + i], sizeof part.text[0]);
    }
    TRY(gen_operand(g, &part), scale);
    if (gen_one_in(g, 3)) {
        gen_node(g, "rms_norm(%s, %s, axis=%d, epsilon=0.01)", NAME(x), NAME(scale), axis);
    } else {
        TRY(gen_operand(g, &part), bias);
        gen_node(g, "layer_norm(%s, %s, %s, axis=%d, epsilon=0.1)", NAME(x), NAME(scale), NAME(bias), axis);
    }
}

static inline void add_batch_norm(gen *g) {
    TRY(gen_any(g, "f", 2), x);
    const gen_value v = gen_like(g, x);
    gen_value channel = {.dtype = v.dtype, .rank = 1};
    int axis = gen_axis(g, &v), operand[4];
    channel.dim[0] = v.dim[axis];
    memcpy(channel.text[0], v.text[axis], sizeof channel.text[0]);
    for (int i = 0; i < 4; i++)
        if ((operand[i] = gen_operand(g, &channel)) < 0) return;
    gen_node(g, "batch_norm(%s, %s, %s, %s, %s, axis=%d)", NAME(x), NAME(operand[0]), NAME(operand[1]),
             NAME(operand[2]), NAME(operand[3]), axis);
}

/* ---- contractions */

static inline void gen_copy_dim(gen_value *to, const gen_value *from, int axis) {
    to->dim[to->rank] = from->dim[axis];
    memcpy(to->text[to->rank++], from->text[axis], sizeof to->text[0]);
}

/* Each axis of x is a batch, contracted or free. */
/* A contraction of value x with another operand, along random axes; -1: no room. */
static inline int gen_contraction(gen *g, int x) {
    const gen_value v = gen_like(g, x);
    gen_value w = {.dtype = v.dtype};
    int64_t batch_x[DLC_MAX_RANK], batch_w[DLC_MAX_RANK], contract_x[DLC_MAX_RANK], contract_w[DLC_MAX_RANK];
    int batches = 0, contracted = 0, at_end = (int)gen_below(g, 2);
    for (int i = 0; i < v.rank; i++) {
        int64_t what = gen_below(g, 5);
        if (!at_end && gen_one_in(g, 3) && w.rank < 5) gen_pick_dim(g, &w, w.rank), w.rank++;
        if (what == 0) batch_x[batches] = i, batch_w[batches++] = w.rank, gen_copy_dim(&w, &v, i);
        if (what >= 3) contract_x[contracted] = i, contract_w[contracted++] = w.rank, gen_copy_dim(&w, &v, i);
    }
    if (w.rank < 5 && !gen_one_in(g, 4)) gen_pick_dim(g, &w, w.rank), w.rank++;
    if (gen_count(&w) > (double)g->largest) return -1;
    TRY_ELSE(gen_operand(g, &w), b, -1);
    char result[32] = "";
    if (lib_dtype_is_narrow_float(v.dtype) && gen_one_in(g, 2)) strcpy(result, ", result=f32");
    if (v.dtype == DLC_I8 || v.dtype == DLC_U8) strcpy(result, ", result=i32");
    return gen_node(g, "dot_general(%s, %s, batch_x=%s, batch_w=%s, contract_x=%s, contract_w=%s%s)", NAME(x), NAME(b),
                    gen_integers(batches, batch_x).text, gen_integers(batches, batch_w).text,
                    gen_integers(contracted, contract_x).text, gen_integers(contracted, contract_w).text, result);
}

static inline void add_dot_general(gen *g) {
    TRY(gen_any(g, "if", 0), x);
    gen_contraction(g, x);
}

static inline void add_matmul(gen *g) {
    TRY(gen_any(g, "if", 1), x);
    const gen_value v = gen_like(g, x);
    gen_value w = {.dtype = v.dtype};
    bool batched = v.rank > 2 && gen_one_in(g, 2);
    for (int i = 0; i < v.rank - 2 && batched; i++) {
        gen_copy_dim(&w, &v, i);
        if (gen_one_in(g, 4)) gen_set_dim(&w, i, 1);
    }
    gen_copy_dim(&w, &v, v.rank - 1);
    if (batched || !gen_one_in(g, 5)) gen_pick_dim(g, &w, w.rank), w.rank++;
    TRY(gen_operand(g, &w), b);
    gen_node(g, "matmul(%s, %s)", NAME(x), NAME(b));
}

static inline void add_linear(gen *g) {
    TRY(gen_any(g, "f", 1), x);
    const gen_value v = gen_like(g, x);
    gen_value w = {.dtype = v.dtype}, bias = {.dtype = v.dtype};
    bool transposed = gen_one_in(g, 3);
    if (transposed) gen_pick_dim(g, &w, w.rank), w.rank++;
    gen_copy_dim(&w, &v, v.rank - 1);
    if (!transposed) gen_pick_dim(g, &w, w.rank), w.rank++;
    gen_copy_dim(&bias, &w, transposed ? 0 : 1);
    TRY(gen_operand(g, &w), b);
    TRY(gen_operand(g, &bias), c);
    gen_node(g, "linear(%s, %s, %s, transposed=%s)", NAME(x), NAME(b), NAME(c), transposed ? "true" : "false");
}

/* Dimensions of an ellipsis are of two sizes, now and then 1. */
static inline void add_einsum(gen *g) {
    enum { OPERANDS = 4, LETTERS = 26, DOTS = 2 };
    static const char *const equations[] = {"ij,jk->ik",       "ij,kj->ki",        "bij,bjk->bki",
                                            "bhqd,bhkd->bhqk", "ij,ji->ij",        "ij,i->j",
                                            "i,j->ji",         "ijk,jl->lik",      "abc,cba->b",
                                            "ij,kl->jl",       "bshd,bthd->bhst",  "ii,ij->j",
                                            "ij->ji",          "iji->j",           "ij,jk,kl->il",
                                            "i,ij,j->",        "ij,ij,ij->ij",     "ai,bi,ci,abc->i",
                                            "i,j,k,ik->jk",    "iij,jk,ki->k",     "...ij,...jk->...ik",
                                            "i...,...->...i",  "...,...,...->...", "...i,ij,j...->..."};
    const char *equation = equations[gen_below(g, sizeof equations / sizeof *equations)];
    gen_value operand[OPERANDS] = {{.dtype = gen_dtype(g, "if")}}, label[LETTERS + DOTS];
    int name[OPERANDS], count = 0;
    for (int i = 0; i < LETTERS + DOTS; i++) gen_pick_dim(g, &label[i], 0), label[i].rank = 1;
    for (const char *c = equation; *c != '-'; c++) {
        if (*c == ',') operand[++count] = (gen_value){.dtype = operand[0].dtype};
        if (*c == '.') {
            for (int i = gen_one_in(g, 3); i < DOTS; i++) {
                gen_copy_dim(&operand[count], &label[LETTERS + i], 0);
                if (gen_one_in(g, 6)) gen_set_dim(&operand[count], operand[count].rank - 1, 1);
            }
            c += 2;
        }
        if (*c >= 'a' && *c <= 'z') gen_copy_dim(&operand[count], &label[*c - 'a'], 0);
    }
    char operands[256] = "";
    for (int o = 0; o <= count; o++)
        if (gen_count(&operand[o]) > (double)g->largest) return;
    for (int o = 0; o <= count; o++) {
        TRY(gen_operand(g, &operand[o]), x);
        name[o] = x;
    }
    for (int o = 0; o <= count; o++)
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), "%s, ", NAME(name[o]));
    gen_node(g, "einsum(%sequation=\"%s\")", operands, equation);
}

/* ---- windows */

typedef struct gen_window {
    int64_t size[3], stride[3], low[3], high[3], dilation[3];
} gen_window;

static inline gen_window gen_windows(gen *g, const gen_value *x, int first) {
    gen_window w;
    for (int i = 0; first + i < x->rank && i < 3; i++) {
        w.size[i] = gen_between(g, 1, 4);
        w.stride[i] = gen_one_in(g, 2) ? 1 : gen_between(g, 1, 3);
        w.low[i] = gen_one_in(g, 2) ? w.size[i] / 2 : gen_between(g, 0, 2);
        w.high[i] = gen_one_in(g, 2) ? w.size[i] / 2 : gen_between(g, 0, 2);
        w.dilation[i] = gen_one_in(g, 4) ? 2 : 1;
        if (gen_one_in(g, 12) && x->dim[first + i] + w.high[i] > 0) w.low[i] = -1;
        while ((w.size[i] - 1) * w.dilation[i] + 1 > x->dim[first + i] + w.low[i] + w.high[i] && w.size[i] > 1)
            w.size[i]--;
    }
    return w;
}

static inline void add_convolution(gen *g) {
    gen_value x = {.dtype = gen_dtype(g, gen_one_in(g, 6) ? "i" : "f"),
                   .rank = 2 + (gen_one_in(g, 4)   ? 1
                                : gen_one_in(g, 6) ? 3
                                                   : 2)};
    int64_t channels[] = {1, 2, 3, 4, 6, 8, 16, 17, 32};
    int64_t in = channels[gen_below(g, 9)], out = channels[gen_below(g, 9)], groups = 1;
    gen_set_dim(&x, 0, gen_between(g, 1, 2));
    for (int i = 2; i < x.rank; i++) gen_set_dim(&x, i, x.rank > 4 ? gen_between(g, 1, 5) : gen_between(g, 1, 15));
    if (g->symbol[0] && gen_one_in(g, 2)) gen_pick_dim(g, &x, gen_one_in(g, 2) ? 0 : 2);
    if (gen_one_in(g, 3)) groups = gen_one_in(g, 2) ? in : in % 2 == 0 ? 2 : 1, out = groups * gen_between(g, 1, 4);
    gen_set_dim(&x, 1, in);
    if (gen_count(&x) > (double)g->largest) return;
    gen_value w = {.dtype = x.dtype, .rank = x.rank};
    gen_window k = gen_windows(g, &x, 2);
    int spatial = x.rank - 2;
    gen_set_dim(&w, 0, out);
    gen_set_dim(&w, 1, in / groups);
    for (int i = 0; i < spatial; i++) gen_set_dim(&w, 2 + i, k.size[i]);
    TRY(gen_operand(g, &x), a);
    TRY(gen_operand(g, &w), b);
    gen_node(g, "convolution(%s, %s, stride=%s, low=%s, high=%s, dilation=%s, groups=%lld)", NAME(a), NAME(b),
             gen_integers(spatial, k.stride).text, gen_integers(spatial, k.low).text,
             gen_integers(spatial, k.high).text, gen_integers(spatial, k.dilation).text, (long long)groups);
}

static inline void add_pool(gen *g) {
    char op[32];
    TRY(gen_any(g, "if", 3), x);
    const gen_value *v = &g->value[x];
    int spatial = v->rank - 2;
    if (spatial > 3) return;
    gen_window k = gen_windows(g, v, 2);
    gen_word(g, gen_is(v, "f") ? "max_pool average_pool" : "max_pool", op);
    bool average = strcmp(op, "average_pool") == 0;
    gen_node(g, "%s(%s, window=%s, stride=%s, low=%s, high=%s, dilation=%s%s%s)", op, NAME(x),
             gen_integers(spatial, k.size).text, gen_integers(spatial, k.stride).text,
             gen_integers(spatial, k.low).text, gen_integers(spatial, k.high).text,
             gen_integers(spatial, k.dilation).text, average && gen_one_in(g, 2) ? ", count_include_pad=true" : "",
             gen_one_in(g, 3) ? ", ceil=true" : "");
}

/* A few layers on images, each on the one before, some with what an earlier one left: values that may be blocked. */
static inline void add_layers(gen *g) {
    gen_value x = {.dtype = gen_one_in(g, 5) ? gen_dtype(g, "f") : DLC_F32, .rank = 4};
    int64_t channels[] = {3, 8, 16, 17, 20, 32, 33}, layers = gen_between(g, 2, 5);
    gen_set_dim(&x, 0, gen_between(g, 1, 2));
    gen_set_dim(&x, 1, channels[gen_below(g, 7)]);
    for (int i = 2; i < 4; i++) gen_set_dim(&x, i, gen_between(g, 3, 12));
    if (g->symbol[0] && gen_one_in(g, 3)) gen_pick_dim(g, &x, gen_one_in(g, 2) ? 0 : 2);
    if (gen_count(&x) > (double)g->largest) return;
    TRY(gen_operand(g, &x), at);
    int earlier = at;
    for (int64_t layer = 0; layer < layers; layer++) {
        gen_value v = gen_like(g, at);
        int before = g->values, pick = (int)gen_below(g, 8);
        gen_window k = gen_windows(g, &v, 2);
        for (int i = 0; i < 2; i++) k.dilation[i] = 1;
        if (pick < 4) {
            bool depthwise = gen_one_in(g, 3);
            gen_value w = {.dtype = v.dtype, .rank = 4};
            gen_set_dim(&w, 0, depthwise ? v.dim[1] : channels[gen_below(g, 7)]);
            gen_set_dim(&w, 1, depthwise ? 1 : v.dim[1]);
            for (int i = 0; i < 2; i++) gen_set_dim(&w, 2 + i, k.size[i]);
            bool constant = !gen_one_in(g, 3) && gen_count(&w) * (double)lib_dtype_size(w.dtype) < GEN_LINE / 2 - 512;
            TRY(constant ? gen_constant(g, &w) : gen_operand(g, &w), weights);
            gen_node(g, "convolution(%s, %s, stride=%s, low=%s, high=%s, groups=%lld)", NAME(at), NAME(weights),
                     gen_integers(2, k.stride).text, gen_integers(2, k.low).text, gen_integers(2, k.high).text,
                     (long long)(depthwise ? v.dim[1] : 1));
        } else if (pick == 4) {
            gen_node(g, "max_pool(%s, window=%s, stride=%s, low=%s, high=%s)", NAME(at), gen_integers(2, k.size).text,
                     gen_integers(2, k.stride).text, gen_integers(2, k.low).text, gen_integers(2, k.high).text);
        } else if (pick == 5 && gen_same_shape(&g->value[earlier], &v)) {
            gen_node(g, "add(%s, %s)", NAME(at), NAME(earlier));
            earlier = g->values - 1;
        } else if (pick == 6) {
            gen_value b = {.dtype = v.dtype, .rank = 4};
            for (int i = 0; i < 4; i++) gen_set_dim(&b, i, i == 1 ? v.dim[1] : 1);
            TRY(gen_operand(g, &b), bias);
            gen_node(g, "add(%s, %s)", NAME(at), NAME(bias));
        } else {
            gen_node(g, "relu(%s)", NAME(at));
        }
        if (g->values == before) return;
        at = g->values - 1;
        if (gen_one_in(g, 3)) earlier = at;
    }
    if (gen_one_in(g, 4)) gen_node(g, "mean(%s, axes=[2, 3])", NAME(at));
}

static inline void add_window(gen *g) {
    char op[32];
    TRY(gen_any(g, "if", 1), x);
    const gen_value *v = &g->value[x];
    if (v->rank > 3) return;
    gen_window k = gen_windows(g, v, 0);
    gen_node(g, "reduce_window(%s, op=%s, window=%s, stride=%s, low=%s, high=%s, dilation=%s)", NAME(x),
             gen_word(g, "sum max min", op), gen_integers(v->rank, k.size).text, gen_integers(v->rank, k.stride).text,
             gen_integers(v->rank, k.low).text, gen_integers(v->rank, k.high).text,
             gen_integers(v->rank, k.dilation).text);
}

static inline void add_rearranged(gen *g) {
    TRY(gen_any(g, "bif", 2), x);
    const gen_value *v = &g->value[x];
    int axis = gen_axis(g, v);
    switch (gen_below(g, 3)) {
    case 0: gen_node(g, "roll(%s, shift=[%lld], axes=[%d])", NAME(x), (long long)gen_between(g, -9, 9), axis); break;
    case 1:
        gen_node(g, "trilu(%s, upper=%s, diagonal=%lld)", NAME(x), gen_one_in(g, 2) ? "true" : "false",
                 (long long)gen_between(g, -2, 2));
        break;
    default: {
        gen_value repeats = {.rank = v->rank};
        for (int i = 0; i < v->rank; i++) gen_set_dim(&repeats, i, gen_between(g, 1, i == axis ? 3 : 1));
        if (v->rank <= DLC_MAX_RANK / 2)
            gen_node(g, "tile(%s, repeats=%s)", NAME(x), gen_dims(&repeats, 0, v->rank).text);
    }
    }
}

static inline void add_resize(gen *g) {
    char mode[32], coordinates[32];
    TRY(gen_any(g, "f", 1), x);
    const gen_value *v = &g->value[x];
    int axis = gen_axis(g, v);
    if (v->dim[axis] < 1) return;
    gen_word(g, "nearest linear cubic linear", mode);
    bool wide = strcmp(mode, "nearest") != 0 && v->rank < DLC_MAX_RANK && gen_one_in(g, 4);
    gen_node(g, "resize(%s, shape=[%lld], axes=[%d], mode=%s, coordinates=%s, exclude_outside=%s, antialias=%s)",
             NAME(x), (long long)gen_between(g, 1, 17), axis, mode,
             gen_word(g, "half_pixel pytorch_half_pixel align_corners asymmetric tf_half_pixel", coordinates),
             gen_one_in(g, 4) ? "true" : "false", wide ? "true" : "false");
}

/* ---- networks */

/* Which points of [rows, columns], given as `shape`, an end that is an input lets see: a mask by loaded numbers; -1: no room. */
static inline int gen_ended(gen *g, const char *shape, int rows, int columns, const gen_value *end) {
    const char *dtype = lib_dtypes[end->dtype].name;
    const int n = gen_operand(g, end);
    if (n < 0) return -1;
    int at = gen_node(g, "iota(shape=[%s], axis=%d, dtype=%s)", shape, columns, dtype), until = n;
    if (at < 0) return -1;
    const int row = rows == columns || gen_one_in(g, 2)
                        ? -1
                        : gen_node(g, "iota(shape=[%s], axis=%d, dtype=%s)", shape, rows, dtype);
    if (row >= 0 && gen_one_in(g, 2))
        at = gen_node(g, "sub(%s, %s)", NAME(at), NAME(row));
    else if (row >= 0)
        until = gen_node(g, "add(%s, %s)", NAME(row), NAME(n));
    if (at < 0 || until < 0) return -1;
    const int seen = gen_one_in(g, 2)   ? gen_node(g, "lt(%s, %s)", NAME(at), NAME(until))
                     : gen_one_in(g, 2) ? gen_node(g, "ge(%s, %s)", NAME(until), NAME(at))
                                        : gen_node(g, "le(%s, %s)", NAME(until), NAME(at));
    if (seen < 0 || !gen_one_in(g, 4)) return seen;
    const int from = gen_operand(g, end); /* two ends */
    const int more = from < 0 ? -1 : gen_node(g, "le(%s, %s)", NAME(from), NAME(at));
    return more < 0 ? seen : gen_node(g, "and(%s, %s)", NAME(seen), NAME(more));
}

static inline dlc_dtype gen_end_dtype(gen *g) {
    static const dlc_dtype dtypes[] = {DLC_I64, DLC_I64, DLC_I32, DLC_U8, DLC_U64, DLC_I8};
    return dtypes[gen_below(g, sizeof dtypes / sizeof *dtypes)];
}

/* Reductions of as many points as an input says, or as one says for each row. */
static inline void add_ended(gen *g) {
    TRY(gen_any(g, "f", 1), x);
    const gen_value v = gen_like(g, x);
    const int axis = (int)gen_below(g, v.rank), rows = (int)gen_below(g, v.rank);
    gen_value end = {.dtype = gen_end_dtype(g), .rank = 0};
    char shape[256] = "";
    size_t at = 0;
    for (int d = 0; d < v.rank; d++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%s", d ? ", " : "", v.text[d]);
    if (gen_one_in(g, 2)) {
        end.rank = v.rank;
        for (int d = 0; d < v.rank; d++) {
            memcpy(end.text[d], v.text[d], sizeof end.text[d]), end.dim[d] = v.dim[d];
            if (d == axis || gen_one_in(g, 2)) gen_set_dim(&end, d, 1);
        }
    }
    TRY(gen_ended(g, shape, rows, axis, &end), seen);
    const bool most = gen_one_in(g, 3);
    const gen_value number = {.dtype = v.dtype, .rank = 0};
    case_bits bits = {{0}};
    if (most) lib_element_set_f64(v.dtype, (char *)bits.bytes, -INFINITY);
    TRY(gen_constant_of(g, &number, &bits), none);
    TRY(gen_node(g, "select(%s, %s, %s)", NAME(seen), NAME(x), NAME(none)), s);
    gen_node(g, "%s(%s, axes=[%d], keep=%s)", most ? "reduce_max" : "reduce_sum", NAME(s), axis,
             gen_one_in(g, 2) ? "true" : "false");
}

static inline void add_attention(gen *g) {
    gen_value q = {.dtype = gen_dtype(g, "f"), .rank = 4}, k, v;
    gen_set_dim(&q, 0, gen_between(g, 1, 2));
    gen_set_dim(&q, 1, gen_between(g, 1, 3));
    gen_pick_dim(g, &q, 2);
    gen_set_dim(&q, 3, gen_one_in(g, 2) ? 8 : gen_between(g, 1, 17));
    k = q;
    gen_pick_dim(g, &k, 2);
    v = k;
    gen_set_dim(&v, 3, gen_between(g, 1, 9));
    gen_value mask = {.dtype = gen_one_in(g, 2) ? DLC_BOOL : q.dtype, .rank = 2};
    memcpy(mask.text[0], q.text[2], sizeof mask.text[0]), mask.dim[0] = q.dim[2];
    memcpy(mask.text[1], k.text[2], sizeof mask.text[1]), mask.dim[1] = k.dim[2];
    if (gen_count(&q) > (double)g->largest || gen_count(&k) > (double)g->largest ||
        gen_count(&mask) > (double)g->largest)
        return;
    TRY(gen_operand(g, &q), a);
    TRY(gen_operand(g, &k), b);
    TRY(gen_operand(g, &v), c);
    bool causal = gen_one_in(g, 2);
    if (gen_one_in(g, 2)) {
        gen_node(g, "attention(%s, %s, %s, causal=%s)", NAME(a), NAME(b), NAME(c), causal ? "true" : "false");
        return;
    }
    int m = -1;
    if (mask.dtype == DLC_BOOL && gen_one_in(g, 2)) {
        char shape[256];
        const gen_value end = {.dtype = gen_end_dtype(g), .rank = 0};
        snprintf(shape, sizeof shape, "%s, %s", mask.text[0], mask.text[1]);
        m = gen_ended(g, shape, 0, 1, &end);
    }
    if (m < 0) m = gen_operand(g, &mask);
    if (m < 0) return;
    gen_node(g, "attention(%s, %s, %s, %s, causal=%s, scale=0.25)", NAME(a), NAME(b), NAME(c), NAME(m),
             causal ? "true" : "false");
}

static inline void add_classes(gen *g) {
    TRY(gen_indices(g), ids);
    if (gen_one_in(g, 3)) {
        gen_node(g, "one_hot(%s, depth=[%lld], dtype=%s)", NAME(ids), (long long)gen_between(g, 1, 9),
                 lib_dtypes[gen_dtype(g, "bif")].name);
        return;
    }
    if (gen_one_in(g, 2)) {
        TRY(gen_any(g, "bif", 1), table);
        if (g->value[table].dim[0] == 0) return;
        gen_node(g, "embedding(%s, %s)", NAME(table), NAME(ids));
        return;
    }
    gen_value logits = g->value[ids];
    logits.dtype = gen_dtype(g, "f");
    gen_pick_dim(g, &logits, logits.rank);
    logits.rank++;
    TRY(gen_operand(g, &logits), x);
    gen_node(g, "cross_entropy(%s, %s)", NAME(x), NAME(ids));
}

/* Real numbers, or pairs made of real and imaginary part alike; lengths of all the ways to transform. */
static inline void add_dft(gen *g) {
    TRY(gen_any(g, "f", 1), x);
    const gen_value v = gen_like(g, x);
    int axis = gen_axis(g, &v), parts = gen_one_in(g, 2) ? 2 : 1;
    if (v.rank > 5 || v.dim[axis] < 1) return;
    gen_value pairs = v;
    pairs.rank = v.rank + 1;
    gen_set_dim(&pairs, v.rank, parts);
    int64_t axes[DLC_MAX_RANK];
    for (int i = 0; i < v.rank; i++) axes[i] = i;
    static const int lengths[] = {0, 0, 4, 9, 34, 48, 64, 37, 131};
    int length = lengths[gen_below(g, 9)];
    if (length == 0 && v.dim[axis] < 2) length = 4; /* half of a transform of no points has one */
    if (gen_count(&v) * fmax(length, 1) > 1e5) return;
    int numbers = gen_node(g, "broadcast(%s, shape=%s, axes=%s)", NAME(x), gen_dims(&pairs, 0, pairs.rank).text,
                           gen_integers(v.rank, axes).text);
    bool inverse = gen_one_in(g, 2), halved = gen_one_in(g, 2) && inverse == (parts == 2);
    if (numbers >= 0)
        gen_node(g, "dft(%s, axis=%d, inverse=%s, onesided=%s, length=%d)", NAME(numbers), axis,
                 inverse ? "true" : "false", halved ? "true" : "false", length);
}

/* Of a square corner of something. */
static inline void add_matrix(gen *g) {
    TRY(gen_any(g, "f", 2), x);
    const gen_value v = gen_like(g, x);
    if (v.dtype != DLC_F32 && v.dtype != DLC_F64) return;
    gen_value start = v, stop = v;
    const int64_t rows = v.dim[v.rank - 2], columns = v.dim[v.rank - 1], least = rows < columns ? rows : columns;
    for (int i = 0; i < v.rank; i++) gen_set_dim(&start, i, 0);
    for (int i = v.rank - 2; i < v.rank; i++) gen_set_dim(&stop, i, least < 6 ? least : 6);
    int a = gen_node(g, "slice(%s, start=%s, stop=%s)", NAME(x), gen_dims(&start, 0, v.rank).text,
                     gen_dims(&stop, 0, v.rank).text);
    if (a < 0) return;
    const char *upper = gen_one_in(g, 2) ? "true" : "false", *other = gen_one_in(g, 2) ? "true" : "false";
    static const char *const plain[] = {"lu", "inverse", "slogdet", "qr", "expm", "svd", "det", "pinv"};
    switch (gen_below(g, 6)) {
    case 0: gen_node(g, "cholesky(%s, upper=%s)", NAME(a), upper); break;
    case 2: gen_node(g, "solve(%s, %s)", NAME(a), NAME(a)); break;
    case 3:
    case 4: gen_node(g, "%s(%s)", plain[gen_below(g, sizeof plain / sizeof *plain)], NAME(a)); break;
    case 1:
        gen_node(g, "triangular_solve(%s, %s, upper=%s, left=%s, transpose=%s)", NAME(a), NAME(a), upper, other,
                 gen_one_in(g, 2) ? "true" : "false");
        break;
    default: gen_node(g, "eigh(%s)", NAME(a)); break;
    }
}

static inline void add_random(gen *g) {
    gen_value v = {.rank = (int)gen_below(g, 3)};
    for (int i = 0; i < v.rank; i++) gen_pick_dim(g, &v, i);
    if (gen_count(&v) > (double)g->largest) return;
    gen_list shape = gen_dims(&v, 0, v.rank);
    int64_t stream = gen_below(g, 5);
    if (gen_one_in(g, 2)) {
        gen_node(g, "rng_bits(shape=%s, dtype=%s, stream=%lld)", shape.text, gen_one_in(g, 2) ? "i32" : "i64",
                 (long long)stream);
        return;
    }
    char op[32];
    gen_node(g, "%s(shape=%s, dtype=%s, stream=%lld)", gen_word(g, "rng_uniform rng_normal", op), shape.text,
             lib_dtypes[gen_dtype(g, "f")].name, (long long)stream);
}

static inline void add_recurrent(gen *g) {
    enum { W = 1, R, BIAS, LENGTHS, STATE };
    char op[32];
    gen_value v[6] = {{.dtype = gen_dtype(g, "f"), .rank = 3}};
    const bool both = gen_one_in(g, 4), backwards = gen_one_in(g, 3), first = gen_one_in(g, 4);
    const char *kind = gen_word(g, "rnn gru lstm lstm", op);
    const int64_t steps = gen_between(g, 0, 4), batch = gen_between(g, 1, 4), hidden = gen_between(g, 1, 5);
    const int64_t rows = hidden * (kind[0] == 'r' ? 1 : kind[0] == 'g' ? 3 : 4);
    const int64_t sizes[6][3] = {{first ? batch : steps, first ? steps : batch, gen_between(g, 1, 5)},
                                 {1 + both, rows, 0},
                                 {1 + both, rows, hidden},
                                 {1 + both, 2 * rows, 0},
                                 {batch, 0, 0},
                                 {first ? batch : 1 + both, first ? 1 + both : batch, hidden}};
    static const int ranks[6] = {3, 3, 3, 2, 1, 3};
    int at[6];
    for (int i = 0; i < 6; i++) {
        v[i] = (gen_value){.dtype = i == LENGTHS ? DLC_I32 : v[0].dtype, .rank = ranks[i]};
        for (int d = 0; d < ranks[i]; d++) gen_set_dim(&v[i], d, i == W && d == 2 ? sizes[0][2] : sizes[i][d]);
        at[i] = i == LENGTHS && gen_one_in(g, 2) ? -1 : gen_operand(g, &v[i]);
        if (at[i] < 0 && i != LENGTHS) return;
    }
    gen_node(g, "%s(%s, %s, %s, %s, %s, %s, direction=%s, layout=%s%s)", kind, NAME(at[0]), NAME(at[W]), NAME(at[R]),
             NAME(at[BIAS]), at[LENGTHS] < 0 ? "_" : NAME(at[LENGTHS]), NAME(at[STATE]),
             both        ? "bidirectional"
             : backwards ? "reverse"
                         : "forward",
             first ? "batch" : "steps", kind[0] == 'g' && gen_one_in(g, 2) ? ", linear_before_reset=true" : "");
}

/* A value that is 0 on one side of a diagonal, often a contraction's result, and contractions of it: causal attention and its derivatives,
 * triangular matrices. */
static inline void add_triangle(gen *g) {
    if (g->setting.fill == FILL_SPECIAL && !g->setting.strict)
        return; /* 0 times infinity may be left out (dlc_compile_options) */
    TRY(gen_any(g, "if", 2), x);
    int y = gen_one_in(g, 2) ? gen_contraction(g, x) : x;
    if (y < 0 || g->value[y].rank < 2) y = x;
    const gen_value v = gen_like(g, y);
    const int rows = (int)gen_below(g, v.rank), columns = (rows + (int)gen_between(g, 1, v.rank - 1)) % v.rank;
    const gen_value number = {.dtype = DLC_I32}, of_y = {.dtype = v.dtype};
    char shape[256] = "", word[32];
    case_bits shift = {{0}}, zero = {{0}};
    size_t at = 0;
    for (int d = 0; d < v.rank; d++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%s", d ? ", " : "", v.text[d]);
    TRY(gen_node(g, "iota(shape=[%s], axis=%d, dtype=i32)", shape, rows), row);
    TRY(gen_node(g, "iota(shape=[%s], axis=%d, dtype=i32)", shape, columns), column);
    lib_element_set_f64(DLC_I32, (char *)shift.bytes, (double)gen_between(g, -20, 20));
    int from = row;
    if (gen_one_in(g, 2)) {
        TRY(gen_constant_of(g, &number, &shift), by);
        from = gen_node(g, "add(%s, %s)", NAME(row), NAME(by));
        if (from < 0) return;
    }
    TRY(gen_node(g, "%s(%s, %s)", gen_word(g, "le lt ge gt", word), NAME(column), NAME(from)), inside);
    TRY(gen_constant_of(g, &of_y, &zero), none);
    TRY(gen_node(g, "select(%s, %s, %s)", NAME(inside), NAME(y), NAME(none)), s);
    int t = s;
    if (gen_one_in(g, 2)) { /* the zeros of a factor */
        TRY(gen_operand(g, &v), factor);
        const bool floats = lib_dtype_is_float(v.dtype);
        t = gen_node(g, "%s(%s, %s)", gen_word(g, floats ? "mul multiply_no_nan" : "mul", word), NAME(s), NAME(factor));
    }
    if (t >= 0 && gen_one_in(g, 3)) { /* two dimensions become one */
        const int joined = (int)gen_below(g, v.rank - 1);
        at = 0;
        for (int d = 0; d < v.rank; d++)
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s(%s)",
                                   d == 0            ? ""
                                   : d == joined + 1 ? "*"
                                                     : ", ",
                                   v.text[d]);
        t = gen_node(g, "reshape(%s, shape=[%s])", NAME(t), shape);
    }
    if (t >= 0) gen_contraction(g, t);
    gen_contraction(g, s);
}

/* A batch of products of rows of two operands, given or new: [batch, rows, columns]. */
static inline int gen_matrix_of_products(gen *g, const gen_value *matrix) {
    gen_value x = *matrix, w = *matrix;
    const bool turned = gen_one_in(g, 4);
    gen_set_dim(&x, 2, gen_between(g, 1, 9));
    snprintf(w.text[turned ? 2 : 1], sizeof w.text[0], "%s", matrix->text[2]);
    w.dim[turned ? 2 : 1] = matrix->dim[2];
    gen_set_dim(&w, turned ? 1 : 2, x.dim[2]);
    const int a = gen_operand(g, &x), b = a < 0 ? -1 : gen_operand(g, &w);
    if (b < 0) return -1;
    return gen_node(g, "dot_general(%s, %s, batch_x=[0], batch_w=[0], contract_x=[2], contract_w=[%d])", NAME(a),
                    NAME(b), turned ? 1 : 2);
}

/* Maps of a matrix: functions, statistics of its rows, a diagonal. */
static inline int gen_matrix_map(gen *g, int m) {
    const gen_value v = gen_like(g, m);
    gen_value row = v;
    char word[32];
    switch (gen_below(g, 4)) {
    case 0: return gen_node(g, "%s(%s)", gen_word(g, "tanh sigmoid relu neg", word), NAME(m));
    case 1:
    case 2: {
        gen_set_dim(&row, gen_one_in(g, 3) ? 1 : 2, 1);
        const int by = gen_operand(g, &row);
        return by < 0 ? -1 : gen_node(g, "%s(%s, %s)", gen_word(g, "sub mul add", word), NAME(m), NAME(by));
    }
    default: {
        const gen_value one = {.dtype = v.dtype};
        case_bits zero = {{0}};
        const int r = gen_node(g, "iota(shape=[%s, %s, %s], axis=1, dtype=i32)", v.text[0], v.text[1], v.text[2]);
        const int c =
            r < 0 ? -1 : gen_node(g, "iota(shape=[%s, %s, %s], axis=2, dtype=i32)", v.text[0], v.text[1], v.text[2]);
        const int none = c < 0 ? -1 : gen_constant_of(g, &one, &zero);
        const int seen = none < 0 ? -1 : gen_node(g, "%s(%s, %s)", gen_word(g, "le ge", word), NAME(c), NAME(r));
        return seen < 0 ? -1 : gen_node(g, "select(%s, %s, %s)", NAME(seen), NAME(m), NAME(none));
    }
    }
}

/* Matrices of that shape, of products, of each other, which several contractions sum along rows or columns. */
static inline void gen_matrices(gen *g, const gen_value *v) {
    enum { MOST = 3 };
    int m[MOST], count = 0;
    for (const int makers = (int)gen_between(g, 1, MOST); count < makers; count++) {
        m[count] = gen_matrix_of_products(g, v);
        for (int maps = (int)gen_below(g, 3); maps > 0 && m[count] >= 0; maps--) m[count] = gen_matrix_map(g, m[count]);
        if (m[count] < 0) return;
        if (count) m[count] = gen_node(g, "mul(%s, %s)", NAME(m[count]), NAME(m[count - 1]));
        if (m[count] < 0) return;
    }
    for (int readers = (int)gen_between(g, 2, 4); readers > 0; readers--) {
        const int from = m[readers == 1 ? count - 1 : (int)gen_below(g, count)], axis = (int)gen_between(g, 1, 2);
        gen_value w = *v;
        snprintf(w.text[1], sizeof w.text[1], "%s", v->text[axis]);
        w.dim[1] = v->dim[axis];
        gen_set_dim(&w, 2, gen_between(g, 1, 9));
        TRY(gen_operand(g, &w), by);
        gen_node(g, "dot_general(%s, %s, batch_x=[0], batch_w=[0], contract_x=[%d], contract_w=[1])", NAME(from),
                 NAME(by), axis);
    }
}

/* Attention's derivatives and their neighbours, large enough that they may be computed block by block (`sweep`). */
static inline void add_matrices(gen *g) {
    if (g->setting.fill == FILL_SPECIAL && !g->setting.strict) return; /* as add_triangle */
    gen_value v = {.dtype = gen_one_in(g, 4) ? DLC_F64 : DLC_F32, .rank = 3};
    gen_set_dim(&v, 0, gen_between(g, 1, 2));
    gen_set_dim(&v, 1, gen_between(g, 60, 170));
    gen_set_dim(&v, 2, gen_between(g, 60, 170));
    const int64_t largest = g->largest;
    g->largest = (int64_t)gen_count(&v);
    gen_matrices(g, &v);
    g->largest = largest;
}

/* ---- the table */

static const struct {
    int weight;
    void (*add)(gen *g);
} gen_rules[] = {
    {14, add_unary},     {16, add_binary},     {10, add_activation},  {4, add_select},    {2, add_clamp},
    {6, add_cast},       {8, add_reshape},     {8, add_transpose},    {5, add_broadcast}, {2, add_reverse},
    {5, add_slice},      {5, add_pad},         {6, add_concat},       {2, add_iota},      {4, add_gather},
    {4, add_scatter},    {3, add_elements},    {4, add_dynamic},      {14, add_reduce},   {10, add_along},
    {6, add_norm},       {3, add_batch_norm},  {10, add_dot_general}, {8, add_matmul},    {6, add_linear},
    {4, add_einsum},     {8, add_convolution}, {4, add_pool},         {3, add_window},    {5, add_attention},
    {4, add_ended},      {3, add_classes},     {6, add_layers},       {3, add_random},    {1, add_if},
    {1, add_while},      {2, add_dft},         {1, add_scan},         {1, add_recurrent}, {2, add_resize},
    {3, add_rearranged}, {1, add_matrix},      {2, add_counted},      {20, add_sample},   {4, add_triangle},
    {4, add_matrices},
};

#endif
