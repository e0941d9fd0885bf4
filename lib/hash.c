/* Hashing of bytes: MurmurHash3_x64_128 (Austin Appleby, public domain) with a 128-bit seed, so that hashes chain.
 * Every input bit reaches every output bit, which the 128-bit kernel keys rely on. */
#include "lib/lib.h"

#define C1 0x87c37b91114253d5u
#define C2 0x4cf5ad432745937fu

static uint64_t rotate(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

static uint64_t finish(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

lib_hash128 lib_hash_bytes(const void *bytes, size_t size, lib_hash128 seed) {
    const unsigned char *at = bytes;
    uint64_t h1 = seed.low, h2 = seed.high, k[2];
    for (size_t left = size; left >= 16; left -= 16, at += 16) {
        memcpy(k, at, 16);
        h1 ^= rotate(k[0] * C1, 31) * C2;
        h1 = (rotate(h1, 27) + h2) * 5 + 0x52dce729;
        h2 ^= rotate(k[1] * C2, 33) * C1;
        h2 = (rotate(h2, 31) + h1) * 5 + 0x38495ab5;
    }
    k[0] = k[1] = 0;
    if (size % 16) memcpy(k, at, size % 16); /* zero padding; the size is mixed in below */
    h1 ^= rotate(k[0] * C1, 31) * C2;
    h2 ^= rotate(k[1] * C2, 33) * C1;
    h1 ^= size, h2 ^= size;
    h1 += h2, h2 += h1;
    h1 = finish(h1), h2 = finish(h2);
    h1 += h2, h2 += h1;
    return (lib_hash128){h1, h2};
}

uint64_t lib_hash64(const void *bytes, size_t size, uint64_t seed) {
    return lib_hash_bytes(bytes, size, (lib_hash128){seed, seed}).low;
}
