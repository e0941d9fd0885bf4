/* Tensors at the boundary are DLPack structures of the host. Shape and stride arithmetic on them, checked against
 * overflow because shapes come from outside, and the library's own managed tensors. */
#include "lib/lib.h"

#include <stdlib.h>

void lib_strides_compact(int rank, const int64_t *shape, int64_t *strides) {
    uint64_t stride = 1; /* unsigned: the strides of an empty tensor may wrap, and are never used */
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = (int64_t)stride;
        stride *= (uint64_t)shape[i];
    }
}

static bool is_empty(const DLTensor *tensor) {
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] == 0) return true;
    return false;
}

bool lib_tensor_is_compact(const DLTensor *tensor) {
    if (!tensor->strides || is_empty(tensor)) return true;
    int64_t expected = 1;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] == 1) continue;
        if (tensor->strides[i] != expected) return false;
        if (__builtin_mul_overflow(expected, tensor->shape[i], &expected)) return false;
    }
    return true;
}

bool lib_tensor_is_addressable(const DLTensor *tensor) {
    return tensor->dtype.bits >= 8 || lib_tensor_is_compact(tensor);
}

static int64_t element_size(const DLTensor *tensor) {
    return ((int64_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
}

bool lib_tensor_count(const DLTensor *tensor, int64_t *count) {
    int64_t product = 1, bytes;
    if (tensor->ndim < 0) return false;
    for (int i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] < 0) return false;
    if (is_empty(tensor)) { /* the other dimensions may be anything */
        *count = 0;
        return true;
    }
    for (int i = 0; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(product, tensor->shape[i], &product)) return false;
    if (__builtin_mul_overflow(product, element_size(tensor), &bytes)) return false;
    *count = product;
    return true;
}

size_t lib_tensor_bytes(const DLTensor *tensor) {
    int64_t signed_count = 0;
    if (!lib_tensor_count(tensor, &signed_count)) return 0;
    const size_t count = (size_t)signed_count, bits = tensor->dtype.bits;
    return bits < 8 ? count / 8 * bits + (count % 8 * bits + 7) / 8 : count * (bits / 8);
}

bool lib_tensor_extent(const DLTensor *tensor, const char **low, const char **high) {
    uintptr_t base = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
    *low = *high = (const char *)base;
    if (is_empty(tensor)) return true;
    if (tensor->dtype.bits < 8) { /* compact */
        *high = *low + lib_tensor_bytes(tensor);
        return true;
    }
    int64_t size = element_size(tensor), below = 0, above = 0, compact = 1;
    bool wrapped = false;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        int64_t stride = tensor->strides ? tensor->strides[i] : compact, span;
        wrapped |= __builtin_mul_overflow(compact, tensor->shape[i], &compact) && !tensor->strides;
        wrapped |= __builtin_mul_overflow(tensor->shape[i] - 1, stride, &span);
        int64_t *side = span < 0 ? &below : &above;
        wrapped |= __builtin_add_overflow(*side, span, side);
    }
    wrapped |= __builtin_mul_overflow(below, size, &below);
    wrapped |= __builtin_mul_overflow(above, size, &above) || __builtin_add_overflow(above, size, &above);
    uintptr_t first = base + (uintptr_t)below, last = base + (uintptr_t)above;
    const bool nonsense = wrapped || first > base || last < base;
    *low = nonsense ? NULL : (const char *)first;
    *high = (const char *)(nonsense ? UINTPTR_MAX : last);
    return !nonsense;
}

bool lib_tensors_overlap(const DLTensor *a, const DLTensor *b) {
    const char *low[2], *high[2];
    lib_tensor_extent(a, &low[0], &high[0]);
    lib_tensor_extent(b, &low[1], &high[1]);
    return low[0] < high[1] && low[1] < high[0];
}

/* One allocation: data first, so that a large alignment wastes nothing, then this struct. */
typedef struct owned_tensor {
    DLManagedTensorVersioned managed;
    dlc_allocator allocator;
    /* of the allocation */
    size_t size, alignment;
    /* 2 * rank */
    int64_t shape_and_strides[];
} owned_tensor;

static void delete_owned(DLManagedTensorVersioned *self) {
    owned_tensor *owned = self->manager_ctx;
    dlc_allocator allocator = owned->allocator;
    lib_release_bytes(&allocator, self->dl_tensor.data, owned->size, owned->alignment);
}

DLManagedTensorVersioned *lib_tensor_new(const dlc_allocator *allocator, dlc_dtype dtype, int rank,
                                         const int64_t *shape, size_t alignment) {
    int64_t *borrowed = (int64_t *)(uintptr_t)shape; /* DLTensor has no const; the shape is only read */
    DLTensor tensor = {.device = {kDLCPU, 0}, .ndim = rank, .dtype = lib_dtype_to_dlpack(dtype), .shape = borrowed};
    int64_t count;
    if (!lib_tensor_count(&tensor, &count)) return NULL;
    if (alignment < _Alignof(owned_tensor)) alignment = _Alignof(owned_tensor);
    size_t shape_size = (size_t)rank * sizeof(int64_t), offset, size;
    if (!lib_size_add(lib_dtype_bytes(dtype, (size_t)count), _Alignof(owned_tensor) - 1, &offset)) return NULL;
    offset = offset / _Alignof(owned_tensor) * _Alignof(owned_tensor);
    if (!lib_size_add(offset, sizeof(owned_tensor) + 2 * shape_size, &size)) return NULL;
    char *data = lib_allocate_bytes(allocator, size, alignment);
    if (!data) return NULL;

    owned_tensor *owned = (owned_tensor *)(void *)(data + offset);
    tensor.data = data;
    tensor.shape = owned->shape_and_strides;
    tensor.strides = owned->shape_and_strides + rank;
    *owned = (owned_tensor){
        .managed = {.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                    .manager_ctx = owned,
                    .deleter = delete_owned,
                    .dl_tensor = tensor},
        .allocator = *allocator,
        .size = size,
        .alignment = alignment,
    };
    if (rank) memcpy(tensor.shape, shape, shape_size);
    lib_strides_compact(rank, shape, tensor.strides);
    return &owned->managed;
}

void lib_tensor_describe(lib_text *text, const DLTensor *tensor) {
    dlc_dtype dtype;
    if (lib_dtype_from_dlpack(tensor->dtype, &dtype))
        lib_text_add(text, lib_dtypes[dtype].name);
    else
        lib_text_format(text, "dlpack(code %d, bits %d, lanes %d)", tensor->dtype.code, tensor->dtype.bits,
                        tensor->dtype.lanes);
    lib_text_add(text, "[");
    for (int i = 0; i < tensor->ndim; i++) lib_text_format(text, "%s%lld", i ? "," : "", (long long)tensor->shape[i]);
    lib_text_add(text, "]");
}

void lib_tensor_copy(const DLTensor *to, const DLTensor *from) {
    int64_t count, index[DLC_MAX_RANK] = {0}, to_stride[DLC_MAX_RANK], from_stride[DLC_MAX_RANK];
    size_t size = (size_t)to->dtype.bits / 8;
    if (!lib_tensor_count(to, &count) || !count) return;
    if (to->dtype.bits < 8) { /* compact */
        memcpy(lib_tensor_data(to), lib_tensor_data(from), lib_tensor_bytes(to));
        return;
    }
    lib_strides_compact(to->ndim, to->shape, to_stride);
    lib_strides_compact(to->ndim, to->shape, from_stride);
    for (int d = 0; d < to->ndim; d++) {
        if (to->strides) to_stride[d] = to->strides[d];
        if (from->strides) from_stride[d] = from->strides[d];
        if (to->shape[d] == 1) to_stride[d] = from_stride[d] = 0; /* a size-1 stride may be any number */
    }
    int outer = to->ndim; /* dimensions before those that are one run of memory on both sides */
    int64_t run = 1;
    while (outer > 0 && (to->shape[outer - 1] == 1 || (to_stride[outer - 1] == run && from_stride[outer - 1] == run)))
        run *= to->shape[--outer];
    char *out = lib_tensor_data(to);
    const char *in = lib_tensor_data(from);
    for (int64_t i = 0; i < count; i += run) {
        memcpy(out, in, (size_t)run * size);
        for (int d = outer - 1; d >= 0; d--) {
            out += to_stride[d] * (int64_t)size;
            in += from_stride[d] * (int64_t)size;
            if (++index[d] < to->shape[d]) break;
            out -= to_stride[d] * (int64_t)size * to->shape[d];
            in -= from_stride[d] * (int64_t)size * to->shape[d];
            index[d] = 0;
        }
    }
}

/* ---- overlap ---------------------------------------------------------------------------------------------------- */

/* Two elements share an address if the differences of their indices, |difference[d]| < shape[d] and not all zero, satisfy
 * sum(difference[d] * stride[d]) = 0. The search takes the largest stride first: the reach of the smaller ones leaves few
 * candidates, a single one for the strides of an ordinary array. */
typedef struct stride_search {
    int rank;
    /* strides positive, descending; greatest difference */
    int64_t stride[DLC_MAX_RANK], most[DLC_MAX_RANK];
    /* sum of most * stride from dimension d on */
    int64_t reach[DLC_MAX_RANK + 1];
    int steps;
} stride_search;

/* Sorts the dimensions by stride; false: addresses do not fit into 63 bits, or a stride is 0. */
static bool sort_strides(stride_search *s, const DLTensor *tensor) {
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] == 1) continue;
        const int64_t stride = tensor->strides[d];
        if (stride == 0 || stride == INT64_MIN) return false;
        int at = s->rank++;
        for (; at > 0 && s->stride[at - 1] < llabs(stride); at--) {
            s->stride[at] = s->stride[at - 1];
            s->most[at] = s->most[at - 1];
        }
        s->stride[at] = llabs(stride);
        s->most[at] = tensor->shape[d] - 1;
    }
    for (int d = s->rank - 1; d >= 0; d--)
        if (__builtin_mul_overflow(s->most[d], s->stride[d], &s->reach[d]) ||
            __builtin_add_overflow(s->reach[d], s->reach[d + 1], &s->reach[d]) || s->reach[d] > INT64_MAX / 4)
            return false;
    return true;
}

/* Whether `sum` plus some combination of the dimensions from d on is zero. `different`: an index differs already. */
static bool can_meet(stride_search *s, int d, int64_t sum, bool different) {
    enum { STEPS = 1 << 16 };
    if (d == s->rank) return different && sum == 0;
    const int64_t stride = s->stride[d], rest = s->reach[d + 1];
    int64_t low = (-rest - sum) / stride - 1, high = (rest - sum) / stride + 1;
    if (high > s->most[d]) high = s->most[d];
    if (low < -s->most[d]) low = -s->most[d];
    if (!different && low < 0) low = 0; /* the other sign is the same pair */
    for (int64_t difference = low; difference <= high; difference++) {
        const int64_t next = sum + difference * stride;
        if (next < -rest || next > rest) continue;
        if (++s->steps > STEPS || can_meet(s, d + 1, next, different || difference != 0)) return true;
    }
    return false;
}

bool lib_strides_overlap(const DLTensor *tensor) {
    stride_search search = {.rank = 0};
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] == 0) return false;
    return !sort_strides(&search, tensor) || can_meet(&search, 0, 0, false);
}
