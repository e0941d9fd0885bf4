/* How much of its samples a test takes: DLC_TEST_SHARE. `make test` takes a share of 24, sanitizers 60. */
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

/* Tests that have no list of samples (random cases, sizes, lives) run a part of theirs. */
static inline bool test_is_short(void) {
    return test_every() >= 10;
}

/* Sanitizers: golden programs, texts of regress/ and levels of instructions, too. */
static inline bool test_is_shortest(void) {
    return test_every() >= 40;
}

/* Of so many random cases, points or trials: all, a quarter where the test is short, a sixteenth where it is shortest. */
static inline int test_some(int all) {
    return test_is_shortest() ? (all + 15) / 16 : test_is_short() ? (all + 3) / 4 : all;
}

/* Of a test that has no list, a case may be one of so many that are taken with a share, of twice as many where the test is short. */
static inline bool test_takes(int number, int of) {
    return test_every() == 1 || number % (test_is_short() ? 2 * of : of) == 0;
}

/* First in tests without threads of programs that have others with some: ThreadSanitizer, ten times as slow, sees nothing in them. */
#ifdef __SANITIZE_THREAD__
#define TEST_WITHOUT_THREADS() skip()
#else
#define TEST_WITHOUT_THREADS() (void)0
#endif

#endif
