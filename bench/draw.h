/* Random numbers that are the same on every machine. */
#ifndef BENCH_DRAW_H
#define BENCH_DRAW_H

#include <math.h>
#include <stdint.h>

typedef struct bench_draw {
    uint64_t state;
} bench_draw;

/* splitmix64 (Steele, Lea, Flood 2014) */
static inline uint64_t bench_draw_next(bench_draw *d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int64_t bench_draw_below(bench_draw *d, int64_t limit) {
    return (int64_t)(bench_draw_next(d) % (uint64_t)limit);
}

/* A size in low..high, each power of two as likely as the next one, rounded down to a multiple of `multiple`. */
static inline int64_t bench_draw_size(bench_draw *d, int64_t low, int64_t high, int64_t multiple) {
    double exponent =
        log2((double)low) + (log2((double)high) - log2((double)low)) * (double)(bench_draw_next(d) >> 11) * 0x1p-53;
    int64_t value = (int64_t)lround(exp2(exponent)) / multiple * multiple;
    return value < multiple ? multiple : value;
}

#define BENCH_PICK(d, ...)  \
    ((const char *const[]){ \
        __VA_ARGS__})[bench_draw_below(d, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))]

#endif
