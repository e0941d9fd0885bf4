/* DLPack tensors: counts, extents and compactness against enumeration of all elements; overflow; owned tensors. */
#include "lib/lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_state = 11;
static int random_below(int bound) {
    random_state ^= random_state >> 12, random_state ^= random_state << 25, random_state ^= random_state >> 27;
    return (int)(random_state * 0x2545f4914f6cdd1du >> 33) % bound;
}

static DLTensor tensor_of(int rank, int64_t *shape, int64_t *strides) {
    static double anchor[1];
    return (DLTensor){.data = anchor,
                      .device = {kDLCPU, 0},
                      .ndim = rank,
                      .dtype = lib_dtype_to_dlpack(DLC_F64),
                      .shape = shape,
                      .strides = strides};
}

static void test_against_enumeration(void **state) {
    (void)state;
    for (int round = 0; round < 20000; round++) {
        int rank = random_below(5);
        int64_t shape[5], strides[5], compact[5], index[5] = {0}, count, expected = 1;
        for (int i = 0; i < rank; i++) {
            shape[i] = random_below(20) ? 1 + random_below(4) : 0;
            strides[i] = random_below(13) - 6;
            expected *= shape[i];
        }
        lib_strides_compact(rank, shape, compact);
        if (round % 3 == 0)
            for (int i = 0; i < rank; i++) strides[i] = shape[i] == 1 ? random_below(9) - 4 : compact[i];
        DLTensor tensor = tensor_of(rank, shape, round % 5 ? strides : NULL);
        tensor.byte_offset = (uint64_t)random_below(100);
        assert_true(lib_tensor_count(&tensor, &count) && count == expected);

        int64_t low = INT64_MAX, high = INT64_MIN, position = 0;
        bool in_order = true;
        for (int64_t n = 0; n < expected; n++) { /* odometer over all elements */
            int64_t at = 0;
            for (int i = 0; i < rank; i++) at += index[i] * (tensor.strides ? strides[i] : compact[i]);
            if (at < low) low = at;
            if (at > high) high = at;
            in_order = in_order && at == position++;
            for (int i = rank - 1; i >= 0 && ++index[i] == shape[i]; i--) index[i] = 0;
        }
        const char *first, *last, *base = (const char *)tensor.data + tensor.byte_offset;
        assert_true(lib_tensor_extent(&tensor, &first, &last));
        assert_true(first == (expected ? base + low * 8 : base));
        assert_true(last == (expected ? base + (high + 1) * 8 : base));
        assert_int_equal(lib_tensor_is_compact(&tensor), in_order);
    }
}

/* Two elements of a tensor share a place: every place is marked. */
static void test_strides_overlap(void **state) {
    (void)state;
    enum { PLACES = 4096 };
    int overlapping = 0, interleaved = 0;
    for (int round = 0; round < 40000; round++) {
        int rank = random_below(5);
        int64_t shape[5], strides[5], index[5] = {0}, count = 1;
        bool used[2 * PLACES] = {false}, expected = false;
        for (int i = 0; i < rank; i++) {
            shape[i] = random_below(20) ? 1 + random_below(4) : 0;
            strides[i] = (random_below(30) ? 1 + random_below(round % 2 ? 200 : 9) : 0) * (random_below(2) ? 1 : -1);
            count *= shape[i];
        }
        for (int64_t n = 0; n < count; n++) {
            int64_t at = PLACES;
            for (int i = 0; i < rank; i++) at += index[i] * strides[i];
            expected = expected || used[at];
            used[at] = true;
            for (int i = rank - 1; i >= 0 && ++index[i] == shape[i]; i--) index[i] = 0;
        }
        DLTensor tensor = tensor_of(rank, shape, strides);
        assert_int_equal(lib_strides_overlap(&tensor), expected);
        overlapping += expected;
        interleaved += !expected && rank == 2 && strides[0] > strides[1] && strides[0] <= strides[1] * (shape[1] - 1);
    }
    assert_true(overlapping > 1000 && interleaved > 100);
    /* a search without end is given up, a place beyond 63 bits is no place */
    int64_t shape[12], strides[12];
    for (int i = 0; i < 12; i++) shape[i] = 3, strides[i] = 1000003 + i * i * 7;
    DLTensor tensor = tensor_of(12, shape, strides);
    (void)lib_strides_overlap(&tensor);
    strides[3] = INT64_MAX - 2;
    assert_true(lib_strides_overlap(&tensor));
    strides[3] = INT64_MIN;
    assert_true(lib_strides_overlap(&tensor));
}

static void test_overflow(void **state) {
    (void)state;
    int64_t count;
    int64_t huge[3] = {INT64_MAX / 2, 4, 0}, negative[2] = {0, -1}, bytes[2] = {INT64_MAX / 8 + 1, 1};
    DLTensor tensor = tensor_of(2, huge, NULL);
    assert_false(lib_tensor_count(&tensor, &count));
    tensor = tensor_of(3, huge, NULL);
    assert_true(lib_tensor_count(&tensor, &count) && count == 0);
    tensor = tensor_of(2, negative, NULL);
    assert_false(lib_tensor_count(&tensor, &count));
    tensor = tensor_of(2, bytes, NULL);
    assert_false(lib_tensor_count(&tensor, &count));
    bytes[0]--;
    assert_true(lib_tensor_count(&tensor, &count) && count == INT64_MAX / 8);
    tensor = tensor_of(-1, bytes, NULL);
    assert_false(lib_tensor_count(&tensor, &count));
    int64_t halves[2] = {(INT64_C(1) << 62) + 3, 1}; /* of a byte: more bits than 2^64 */
    tensor = tensor_of(2, halves, NULL);
    tensor.dtype = lib_dtype_to_dlpack(DLC_I4);
    assert_true(lib_tensor_bytes(&tensor) == ((size_t)1 << 61) + 2);
    assert_true(lib_dtype_bytes(DLC_U4, (size_t)halves[0]) == ((size_t)1 << 61) + 2);
    assert_true(lib_dtype_bytes(DLC_U2, (size_t)halves[0]) == ((size_t)1 << 60) + 1);
    /* nonsense strides claim all memory */
    static const int64_t wild[] = {INT64_MAX, INT64_MIN, INT64_MAX / 8, INT64_MIN / 8, INT64_MAX / 16};
    for (int i = 0; i < 5; i++) {
        int64_t shape[2] = {3, 2}, strides[2] = {wild[i], 1};
        const char *low, *high;
        tensor = tensor_of(2, shape, strides);
        assert_false(lib_tensor_extent(&tensor, &low, &high));
        assert_true(low == NULL && (uintptr_t)high == UINTPTR_MAX);
        assert_false(lib_tensor_is_compact(&tensor));
    }
}

/* The stride of a dimension of one element may be anything (NumPy leaves what is handy there), and is not used. */
static void test_copy(void **state) {
    (void)state;
    int64_t shape[3] = {1, 3, 1}, from_strides[3] = {INT64_MAX, -2, INT64_MIN}, to_strides[3] = {INT64_MIN, 1, 7};
    double numbers[5] = {1, 2, 3, 4, 5}, out[3] = {0};
    DLTensor from = tensor_of(3, shape, from_strides), to = tensor_of(3, shape, to_strides);
    from.data = numbers + 4;
    to.data = out;
    lib_tensor_copy(&to, &from);
    assert_true(out[0] == 5 && out[1] == 3 && out[2] == 1);
}

static void *refuse(void *user, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    return NULL;
}

static void test_owned(void **state) {
    (void)state;
    int64_t shapes[][4] = {{0, 0, 0, 0}, {7, 3, 5, 2}, {1, 1, 1, 1}, {1000, 3, 1, 7}, {3, 0, 5, 1}};
    for (int s = 0; s < 5; s++)
        for (int rank = 0; rank <= 4; rank++)
            for (int dtype = 0; dtype < DLC_DTYPE_COUNT; dtype++)
                for (size_t alignment = 1; alignment <= 4096; alignment *= 8) {
                    dlc_allocator allocator = lib_libc_allocator; /* the tensor keeps its own copy */
                    DLManagedTensorVersioned *owned =
                        lib_tensor_new(&allocator, (dlc_dtype)dtype, rank, shapes[s], alignment);
                    memset(&allocator, 0, sizeof allocator);
                    assert_non_null(owned);
                    int64_t count;
                    dlc_dtype back;
                    assert_true(lib_tensor_count(&owned->dl_tensor, &count));
                    assert_true(lib_tensor_is_compact(&owned->dl_tensor));
                    assert_true(lib_dtype_from_dlpack(owned->dl_tensor.dtype, &back) && back == (dlc_dtype)dtype);
                    assert_int_equal((uintptr_t)owned->dl_tensor.data % alignment, 0);
                    memset(owned->dl_tensor.data, 0xff, lib_dtype_bytes(back, (size_t)count));
                    assert_int_equal(owned->dl_tensor.ndim, rank);
                    assert_int_equal(owned->version.major, 1);
                    if (rank) assert_memory_equal(owned->dl_tensor.shape, shapes[s], (size_t)rank * 8);
                    owned->deleter(owned);
                }
    int64_t shape[2] = {INT64_MAX / 4, 3}, small[1] = {-1};
    dlc_allocator none = {refuse, NULL, NULL};
    assert_null(lib_tensor_new(&lib_libc_allocator, DLC_F32, 2, shape, 64));
    assert_null(lib_tensor_new(&lib_libc_allocator, DLC_F32, 1, small, 64));
    assert_null(lib_tensor_new(&none, DLC_F32, 0, NULL, 64));
}

static void test_describe(void **state) {
    (void)state;
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        int64_t shape[3] = {2, 3, INT64_MAX};
        DLTensor tensor = tensor_of(3, shape, NULL);
        lib_text text;
        lib_text_init(&text, &arena);
        lib_tensor_describe(&text, &tensor);
        assert_string_equal(text.data, "f64[2,3,9223372036854775807]");
        tensor.ndim = 0;
        tensor.dtype = lib_dtype_to_dlpack(DLC_BF16);
        lib_text_init(&text, &arena);
        lib_tensor_describe(&text, &tensor);
        assert_string_equal(text.data, "bf16[]");
        tensor.dtype = (DLDataType){2, 32, 4};
        lib_text_init(&text, &arena);
        lib_tensor_describe(&text, &tensor);
        assert_string_equal(text.data, "dlpack(code 2, bits 32, lanes 4)[]");
    }
    lib_arena_free(&arena);
    assert_int_equal(scope.error.status, DLC_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_enumeration),
                                       cmocka_unit_test(test_strides_overlap),
                                       cmocka_unit_test(test_overflow),
                                       cmocka_unit_test(test_copy),
                                       cmocka_unit_test(test_owned),
                                       cmocka_unit_test(test_describe)};
    return cmocka_run_group_tests_name("lib/tensor", tests, NULL, NULL);
}
