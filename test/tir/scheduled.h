/* Runs a region under a schedule, both given as text, and compares with evaluation by definition: what tests of lowering share. */
#ifndef TEST_TIR_SCHEDULED_H
#define TEST_TIR_SCHEDULED_H

#include "lib/lib.h"

typedef enum scheduled_outcome {
    SCHEDULED_AGREES,
    SCHEDULED_REFUSED, /* the schedule is an error of its writer */
    SCHEDULED_FAILS    /* wrong values, a failed check, an internal error */
} scheduled_outcome;

typedef struct scheduled_report {
    char message[4 * LIB_MESSAGE_MAX];
    /* text of the loop IR, from malloc; NULL: none was made */
    char *kernel;
    /* of banks of shared memory */
    long accesses, conflicts;
    /* of the device's memory */
    long requests, sectors, excess;
    /* the statement with most conflicts */
    char worst[256];
} scheduled_report;

/* tolerance: relative; 0: bitwise. The loop IR runs with all checks, tasks forward and backward, vector lanes likewise; blocks of
 * threads store outputs once. `check` false: lower only. */
scheduled_outcome scheduled_run(const char *region, const char *schedule, double tolerance, uint64_t seed, bool check,
                                scheduled_report *report);

#endif
