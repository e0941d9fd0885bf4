/* Names of equal MurmurHash3, as a hostile file has them. */
#ifndef TEST_EQUAL_NAMES_H
#define TEST_EQUAL_NAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline uint64_t rotated(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

/* 32 bytes. All such bytes have the same MurmurHash3 (x64, 128 bits) with this seed: any 16 bytes can be followed by 16 that lead to a given
 * state. False: there is a zero byte among them. */
static inline bool set_bytes_of_equal_hash(int number, uint64_t seed, char *name) {
    const uint64_t c1 = 0x87c37b91114253d5u, c2 = 0x4cf5ad432745937fu, state = 0x0123456789abcdefu;
    const uint64_t inverse_c1 = 0xa98409e882ce4d7du, inverse_c2 = 0xa81e14edd9de2c7fu, inverse_5 = 0xcccccccccccccccdu;
    char first[17];
    uint64_t k[2];
    snprintf(first, sizeof first, "%016d", number);
    memcpy(k, first, sizeof k);
    uint64_t h1 = (rotated(seed ^ rotated(k[0] * c1, 31) * c2, 27) + seed) * 5 + 0x52dce729;
    uint64_t h2 = (rotated(seed ^ rotated(k[1] * c2, 33) * c1, 31) + h1) * 5 + 0x38495ab5;
    h1 ^= rotated((state - 0x52dce729) * inverse_5 - h2, 37);
    h2 ^= rotated((state - 0x38495ab5) * inverse_5 - state, 33);
    k[0] = rotated(h1 * inverse_c2, 33) * inverse_c1;
    k[1] = rotated(h2 * inverse_c1, 31) * inverse_c2;
    memcpy(name, first, 16);
    memcpy(name + 16, k, 16);
    return !memchr(k, 0, sizeof k);
}

static inline bool set_name_of_equal_hash(int number, char *name) {
    return set_bytes_of_equal_hash(number, 0, name);
}

#endif
