/* Shared by the rows' shape rules, compute definitions and references; see ops_common.h. */
#include "graph/ops_common.h"

tir_expr graph_infer_product(const graph_infer *infer, int count, const tir_expr *dims) {
    tir_pool *pool = infer->g->pool;
    tir_expr product = tir_index(pool, 1);
    for (int i = 0; i < count; i++) {
        int64_t a, b, c;
        if (tir_is_const(pool, product, &a) && tir_is_const(pool, dims[i], &b) &&
            (__builtin_mul_overflow(a, b, &c) || c >= TIR_UNBOUNDED_HIGH))
            graph_infer_fail(infer, "the number of elements does not fit 62 bits: %lld times %lld", (long long)a,
                             (long long)b);
        product = tir_mul(pool, product, dims[i]);
    }
    return product;
}

tir_expr graph_infer_sum(const graph_infer *infer, tir_expr a, tir_expr b) {
    const tir_expr terms[] = {a, b};
    for (int i = 0; i < 2; i++) {
        int64_t value;
        if (tir_is_const(infer->g->pool, terms[i], &value) && (value > GRAPH_SIZE_MAX || value < -GRAPH_SIZE_MAX))
            graph_infer_fail(infer, "the size %lld is too large", (long long)value);
    }
    return tir_add(infer->g->pool, a, b);
}

void graph_infer_indices(const graph_infer *infer, int operand) {
    dlc_dtype dtype = infer->operand[operand].dtype;
    if (!lib_dtype_is_integer(dtype) || lib_dtype_is_packed(dtype))
        graph_infer_fail(infer, "operand %d holds indices and must be of an integer dtype of at least 8 bits, not %s",
                         operand, lib_dtypes[dtype].name);
}

void graph_infer_at_most(const graph_infer *infer, tir_expr low, tir_expr high, const char *what) {
    tir_pool *pool = infer->g->pool;
    tir_truth truth = tir_prove(pool, tir_le(pool, low, high));
    if (truth == TIR_NO) {
        lib_text text;
        lib_text_init(&text, infer->g->arena);
        tir_describe_expr(&text, pool, low);
        lib_text_add(&text, " is more than ");
        tir_describe_expr(&text, pool, high);
        graph_infer_fail(infer, "%s: %s", what, text.data);
    }
    if (truth == TIR_UNKNOWN)
        graph_require_equal(infer->g, tir_min(pool, low, high), low, "%s: %s", infer->op->name, what);
}

void graph_infer_reached(const graph_infer *infer, tir_expr size) {
    tir_pool *pool = infer->g->pool;
    const graph_shape *shape = &infer->operand[1];
    tir_expr wanted = tir_index(pool, 1); /* 0 if there is no index */
    for (int i = 0; i < shape->rank; i++) wanted = tir_min(pool, wanted, shape->dim[i]);
    graph_infer_at_most(infer, wanted, size, "indices into an axis of size 0");
}

void graph_infer_list(const graph_infer *infer, const graph_attribute *list, int rank, const char *what) {
    if (list->count && list->count != rank)
        graph_infer_fail(infer, "%s has %d entries, expected one for each of the %d dimensions", what, list->count,
                         rank);
}

tir_expr graph_limited_index(tir_pool *pool, tir_expr value, tir_expr low, tir_expr high) {
    if (tir_dtype_of(pool, value) == DLC_U64) value = tir_min(pool, value, tir_int(pool, DLC_U64, INT64_MAX));
    return tir_max(pool, tir_min(pool, tir_cast(pool, TIR_INDEX, value), high), low);
}

tir_stage *graph_map_stage(graph_compute *compute, const graph_shape *shape, tir_expr *axis) {
    tir_stage *stage =
        tir_region_stage(compute->region, TIR_MAP, compute->name, shape->rank, NULL, shape->dim, 0, NULL, NULL);
    for (int i = 0; i < shape->rank; i++) axis[i] = stage->axis[i].var;
    return stage;
}

void graph_compute_elements(graph_compute *compute, graph_element element) {
    tir_expr axis[DLC_MAX_RANK];
    tir_stage *stage = graph_map_stage(compute, &compute->result_shape[0], axis);
    compute->result[0] = tir_stage_value(compute->region, stage, element(compute, axis), 0, 0);
}

uint32_t graph_axes_of(const graph_attribute *axes, int rank, bool all) {
    if (axes->count == 0 && all) return (1u << rank) - 1;
    uint32_t set = 0;
    for (int i = 0; i < axes->count; i++) set |= 1u << graph_axis_of(axes->list[i], rank);
    return set;
}

/* Can `sum` accumulate `part`? Floats: every number of `part` is one of `sum`. Integers: at least as many bits; unsigned sums
 * need unsigned parts. */
static bool holds_sums(dlc_dtype sum, dlc_dtype part) {
    const lib_dtype_info *wide = &lib_dtypes[sum], *narrow = &lib_dtypes[part];
    if ((wide->class_ == 'f') != (narrow->class_ == 'f') || wide->bits < narrow->bits) return false;
    if (wide->class_ != 'f') return wide->class_ == 'i' || narrow->class_ == 'u';
    const lib_float_info a = lib_float_of(sum), b = lib_float_of(part);
    return a.digits >= b.digits && a.highest >= b.highest;
}

dlc_dtype graph_infer_product_dtype(const graph_infer *infer, const graph_attribute *result) {
    static const dlc_dtype choice[] = {DLC_BOOL, DLC_F32,  DLC_F64, DLC_I32, DLC_I64, /* words of `result`; the */
                                       DLC_F16,  DLC_BF16, DLC_U32, DLC_U64};         /* first is "same" */
    const lib_dtype_info *x = &lib_dtypes[infer->operand[0].dtype], *w = &lib_dtypes[infer->operand[1].dtype];
    if (!result->integer) {
        graph_infer_same_dtype(infer, 0, 2);
        return infer->operand[0].dtype;
    }
    const lib_dtype_info *wide = &lib_dtypes[choice[result->integer]];
    bool bytes = x->bits == 8 && w->bits == 8 && x->class_ != 'f' && w->class_ != 'f';
    bool floats = x->class_ == 'f' && w->class_ == 'f';
    if (!bytes && !floats) graph_infer_same_dtype(infer, 0, 2);
    for (int i = 0; i < 2; i++)
        if (!holds_sums(choice[result->integer], infer->operand[i].dtype))
            graph_infer_fail(infer, "result %s cannot hold sums of %s: expected a wider element type of the same kind",
                             wide->name, (i ? w : x)->name);
    return choice[result->integer];
}

uint32_t graph_compute_cast(graph_compute *compute, uint32_t tensor, dlc_dtype dtype, const char *const *axis_names) {
    const tir_tensor from = compute->region->tensors.data[tensor];
    if (from.dtype == dtype) return tensor;
    tir_stage *stage =
        tir_region_stage(compute->region, TIR_MAP, compute->name, from.rank, axis_names, from.extent, 0, NULL, NULL);
    tir_expr index[DLC_MAX_RANK];
    for (int i = 0; i < from.rank; i++) index[i] = stage->axis[i].var;
    tir_expr value = tir_cast(compute->pool, (tir_dtype)dtype, tir_region_load(compute->region, tensor, index));
    return tir_stage_value(compute->region, stage, value, 0, 0);
}

#ifdef DLC_REFERENCE
int64_t graph_reference_count(const graph_reference_tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->dim[i];
    return count;
}

int64_t graph_reference_at(const graph_reference_tensor *tensor, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < tensor->rank; i++) at = at * tensor->dim[i] + index[i];
    return at;
}

bool graph_reference_next(const graph_reference_tensor *tensor, int64_t *index) {
    for (int i = tensor->rank - 1; i >= 0; i--) {
        if (++index[i] < tensor->dim[i]) return true;
        index[i] = 0;
    }
    return false;
}

graph_reference_rows graph_reference_rows_along(const graph_reference_tensor *tensor, int64_t axis) {
    graph_reference_rows rows = {1, 1, 1};
    const int at = graph_axis_of(axis, tensor->rank);
    for (int i = 0; i < tensor->rank; i++)
        *(i < at ? &rows.outer : i == at ? &rows.size : &rows.inner) *= tensor->dim[i];
    return rows;
}

double graph_reference_wrap(dlc_dtype dtype, uint64_t bits) {
    switch (dtype) {
    case DLC_BOOL: return bits != 0;
    case DLC_I8: return (double)(int8_t)bits;
    case DLC_I16: return (double)(int16_t)bits;
    case DLC_I32: return (double)(int32_t)bits;
    case DLC_U8: return (double)(uint8_t)bits;
    case DLC_U16: return (double)(uint16_t)bits;
    case DLC_U32: return (double)(uint32_t)bits;
    case DLC_U64: return (double)bits;
    default: return (double)(int64_t)bits;
    }
}

uint64_t graph_reference_word(double x) {
    return x >= 0x1p63 ? (uint64_t)x : (uint64_t)(int64_t)x;
}

void graph_reference_philox(uint64_t key, uint64_t block, uint64_t stream, uint64_t part, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream, (uint32_t)part};
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}
#endif
