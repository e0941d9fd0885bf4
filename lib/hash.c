/* Hashing of bytes: MurmurHash3_x64_128 (Austin Appleby, public domain) and BLAKE2b (RFC 7693), both with a 128-bit seed, so that hashes
 * chain. Inputs of equal MurmurHash are easily constructed; of equal BLAKE2b none are known. */
#include "lib/lib.h"

#include <stdatomic.h>
#include <sys/random.h>

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

/* ---- BLAKE2b -------------------------------------------------------------------------------------------------------- */

enum { BLOCK = 128, DIGEST_BYTES = 16, ROUNDS = 12 };

static const uint64_t blake2b_start[8] = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu,
                                          0xa54ff53a5f1d36f1u, 0x510e527fade682d1u, 0x9b05688c2b3e6c1fu,
                                          0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};

/* The order of a block's words in each round; rounds 10 and 11 are as 0 and 1. */
static const uint8_t blake2b_order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x, v[d] = rotate(v[d] ^ v[a], 32);
    v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 40);
    v[a] += v[b] + y, v[d] = rotate(v[d] ^ v[a], 48);
    v[c] += v[d], v[b] = rotate(v[b] ^ v[c], 1);
}

/* `end`: bytes of the input up to the end of this block. */
static void compress(uint64_t *h, const unsigned char *block, uint64_t end, bool last) {
    uint64_t m[16], v[16];
    memcpy(m, block, BLOCK);
    memcpy(v, h, 8 * sizeof *v);
    memcpy(v + 8, blake2b_start, sizeof blake2b_start);
    v[12] ^= end;
    if (last) v[14] = ~v[14];
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *order = blake2b_order[round % 10];
        mix(v, 0, 4, 8, 12, m[order[0]], m[order[1]]);
        mix(v, 1, 5, 9, 13, m[order[2]], m[order[3]]);
        mix(v, 2, 6, 10, 14, m[order[4]], m[order[5]]);
        mix(v, 3, 7, 11, 15, m[order[6]], m[order[7]]);
        mix(v, 0, 5, 10, 15, m[order[8]], m[order[9]]);
        mix(v, 1, 6, 11, 12, m[order[10]], m[order[11]]);
        mix(v, 2, 7, 8, 13, m[order[12]], m[order[13]]);
        mix(v, 3, 4, 9, 14, m[order[14]], m[order[15]]);
    }
    for (int i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
}

lib_hash128 lib_digest(const void *bytes, size_t size, lib_hash128 seed) {
    uint64_t h[8];
    unsigned char rest[BLOCK] = {0};
    const unsigned char *at = bytes;
    size_t left = size;
    memcpy(h, blake2b_start, sizeof h);
    h[0] ^= 0x01010000u ^ DIGEST_BYTES;  /* sequential, no key */
    h[4] ^= seed.low, h[5] ^= seed.high; /* the salt */
    for (; left > BLOCK; left -= BLOCK, at += BLOCK) compress(h, at, size - left + BLOCK, false);
    if (left) memcpy(rest, at, left);
    compress(h, rest, size, true);
    return (lib_hash128){h[0], h[1]};
}

/* ---- names ---------------------------------------------------------------------------------------------------------- */

/* Random; without randomness from the system the time, and where the loader has put this file. */
static uint64_t make_salt(void) {
    uint64_t salt;
    if (getrandom(&salt, sizeof salt, GRND_NONBLOCK) != sizeof salt)
        salt = lib_time_ns() ^ (uint64_t)(uintptr_t)&blake2b_start;
    return salt | 1; /* 0: none yet */
}

uint64_t lib_hash_name(const void *bytes, size_t size) {
    static _Atomic uint64_t of_process;
    uint64_t salt = atomic_load_explicit(&of_process, memory_order_relaxed), made = salt ? 0 : make_salt();
    /* of several threads that make one, the first one's counts */
    if (made &&
        atomic_compare_exchange_strong_explicit(&of_process, &salt, made, memory_order_relaxed, memory_order_relaxed))
        salt = made;
    return lib_digest(bytes, size, (lib_hash128){salt, 0}).low;
}
