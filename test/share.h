/* How much of its samples a test takes: DLC_TEST_SHARE. */
#ifndef TEST_SHARE_H
#define TEST_SHARE_H

#include <stdbool.h>
#include <stdlib.h>

/* n: every n-th sample. */
static inline int test_every(void) {
    const char *share = getenv("DLC_TEST_SHARE");
    const int every = share ? atoi(share) : 1;
    return every > 1 ? every : 1;
}

/* Of a test that has no such list, a case may be one of so many that are taken with a share. */
static inline bool test_takes(int number, int of) {
    return test_every() == 1 || number % of == 0;
}

/* Sanitizers: tests that have no list of samples (random cases, golden programs, texts of regress/) run a small part as well. */
static inline bool test_is_short(void) {
    return test_every() >= 10;
}

#endif
