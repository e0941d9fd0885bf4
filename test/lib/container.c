/* Arrays, the hash map against a plain list, and hashes against published values of MurmurHash3_x64_128 and Python's BLAKE2b. */
#include "lib/lib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_state = 3;
static uint64_t random64(void) { /* xorshift64* */
    random_state ^= random_state >> 12, random_state ^= random_state << 25, random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1du;
}

static void with_arena(void (*work)(lib_arena *arena)) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope))
        work(&arena);
    else
        fail_msg("%s", scope.error.message);
    lib_arena_free(&arena);
}

typedef struct odd_size {
    char bytes[13];
} odd_size;

static void use_vec(lib_arena *arena) {
    lib_vec(odd_size) vec = {0};
    for (int i = 0; i < 10000; i++) {
        odd_size value = {{0}};
        memcpy(value.bytes, &i, sizeof i);
        lib_vec_push(arena, &vec, value);
        assert_true(vec.count <= vec.capacity);
    }
    for (int i = 0; i < 10000; i++) assert_memory_equal(vec.data[i].bytes, &i, sizeof i);
    lib_vec(int) ints = {0};
    uint32_t nothing = 0;
    lib_vec_reserve(arena, &ints, nothing);
    assert_int_equal(ints.capacity, 0);
    lib_vec_reserve(arena, &ints, 1000);
    assert_true(ints.capacity >= 1000);
    int *before = ints.data;
    for (int i = 0; i < 1000; i++) lib_vec_push(arena, &ints, i);
    assert_ptr_equal(before, ints.data);
}

static void test_vec(void **state) {
    (void)state;
    with_arena(use_vec);
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    uint32_t capacity = UINT32_MAX - 1;
    if (LIB_ENTER(&scope)) lib_vec_grow(&arena, NULL, UINT32_MAX - 1, &capacity, 10, 1);
    assert_int_equal(scope.error.status, DLC_OUT_OF_MEMORY);
}

/* `spread` hashes in all: 0 among them, many equal. The values found for a hash must be those inserted with it. */
static void use_map(lib_arena *arena, uint64_t spread, int count, int shift) {
    lib_map map = {0};
    uint64_t *hashes = malloc((size_t)count * sizeof *hashes);
    bool *seen = malloc((size_t)count);
    assert_true(lib_map_first(&map, 5) == LIB_MAP_END);
    for (int i = 0; i < count; i++) {
        hashes[i] = random64() % spread << shift;
        lib_map_insert(arena, &map, hashes[i], (uint32_t)i);
        assert_int_equal(map.count, i + 1);
        if (i % 37 != 0 && i != count - 1) continue;
        uint64_t wanted = i % 2 ? hashes[random64() % (uint64_t)(i + 1)] : random64() % (2 * spread) << shift;
        int expected = 0, found = 0;
        memset(seen, 0, (size_t)count);
        for (int k = 0; k <= i; k++) expected += (hashes[k] ? hashes[k] : 1) == (wanted ? wanted : 1);
        for (uint32_t at = lib_map_first(&map, wanted); at != LIB_MAP_END; at = lib_map_next(&map, wanted, at)) {
            uint32_t value = map.slots[at].value;
            assert_true((hashes[value] ? hashes[value] : 1) == (wanted ? wanted : 1) && !seen[value]);
            seen[value] = true;
            found++;
        }
        assert_int_equal(found, expected);
    }
    free(hashes);
    free(seen);
}

static void use_maps(lib_arena *arena) {
    use_map(arena, 1, 100, 0);
    use_map(arena, 2, 300, 0);
    use_map(arena, 50, 3000, 0);
    use_map(arena, 1000, 5000, 32); /* low bits all zero */
    use_map(arena, UINT64_MAX / 2, 5000, 0);
    use_map(arena, 100000, 1, 0);
}

static void test_map(void **state) {
    (void)state;
    with_arena(use_maps);
}

static void test_hash(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t seed, low, high;
    } rows[] = {
        {"", 0, 0, 0},
        {"hello", 0, 0xcbd8a7b341bd9b02, 0x5b1e906a48ae1d19},
        {"hello, world", 0, 0x342fac623a5ebc8e, 0x4cdcbc079642414d},
        {"19 Jan 2038 at 3:14:07 AM", 0, 0xb89e5988b737affc, 0x664fc2950231b2cb},
        {"The quick brown fox jumps over the lazy dog.", 0, 0xcd99481f9ee902c9, 0x695da1a38987b6e7},
        {"hello", 1, 0xa78ddff5adae8d10, 0x128900ef20900135},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char shifted[64];
        strcpy(shifted + 1, rows[i].text); /* at an odd address */
        lib_hash128 hash = lib_hash_bytes(shifted + 1, strlen(rows[i].text), (lib_hash128){rows[i].seed, rows[i].seed});
        assert_true(hash.low == rows[i].low && hash.high == rows[i].high);
        assert_true(lib_hash64(rows[i].text, strlen(rows[i].text), rows[i].seed) == hash.low);
    }
    assert_true(lib_hash64(NULL, 0, 1) != lib_hash64("", 1, 1));
    /* every bit of input, length and seed matters */
    unsigned char bytes[40] = {0};
    uint64_t base = lib_hash64(bytes, 40, 0);
    for (int i = 0; i < 320; i++) {
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        int flips = __builtin_popcountll(base ^ lib_hash64(bytes, 40, 0));
        assert_in_range(flips, 12, 52);
        bytes[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    for (size_t size = 0; size < 40; size++) assert_true(lib_hash64(bytes, size, 9) != lib_hash64(bytes, size + 1, 9));
    for (uint64_t a = 0; a < 100; a++)
        assert_true(lib_hash_mix(a, 1) != lib_hash_mix(a + 1, 1) && lib_hash_mix(1, a) != lib_hash_mix(1, a + 1));
}

/* hashlib.blake2b(text, digest_size=16, salt=seed) of the bytes i % 251 */
static void test_digest(void **state) {
    (void)state;
    static const struct {
        size_t size;
        lib_hash128 seed, digest;
    } rows[] = {
        {0, {0x0, 0x0}, {0x40bdefd94169e6ca, 0x7076a68e75884d4e}},
        {3, {0x0, 0x0}, {0x1b0c36970d0b5ca7, 0x5a39a0b66e4983a7}},
        {127, {0x0, 0x0}, {0x8807487d6c29b128, 0x0acc4dc04eeee63d}},
        {128, {0x0, 0x0}, {0xe389f54e008747a7, 0x4a29d00039184911}},
        {129, {0x1, 0x2}, {0x468499cbeb86741a, 0x45e9b5e41849f399}},
        {256, {0xffffffffffffffff, 0x4d}, {0x1c5c105c43302019, 0x5e0488ecf917d55d}},
        {1000, {0x5, 0x123456789abcdef}, {0x813d1423801fc103, 0x003d6d77323334ba}},
    };
    unsigned char bytes[1001];
    for (size_t i = 0; i < sizeof bytes - 1; i++) bytes[i + 1] = (unsigned char)(i % 251); /* at an odd address */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const lib_hash128 digest = lib_digest(bytes + 1, rows[i].size, rows[i].seed);
        assert_true(digest.low == rows[i].digest.low && digest.high == rows[i].digest.high);
    }
    assert_true(lib_digest(NULL, 0, (lib_hash128){0, 0}).low == rows[0].digest.low);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vec), cmocka_unit_test(test_map),
                                       cmocka_unit_test(test_hash), cmocka_unit_test(test_digest)};
    return cmocka_run_group_tests_name("lib/container", tests, NULL, NULL);
}
