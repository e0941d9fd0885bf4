/* Rows of the operator table that the arguments of a test program name. */
#ifndef TEST_ASKED_H
#define TEST_ASKED_H

#include "graph/op.h"

#include <stdio.h>

/* Why the program cannot test the row, of which it would say nothing by passing; NULL: it can. */
typedef const char *asked_refusal(const graph_op *op);

/* The number of names that are no rows, or rows that the program cannot test, each with a message. */
static inline int asked_unknown(const char *program, int count, char *const *names, asked_refusal *refusal) {
    int unknown = 0;
    for (int i = 0; i < count; i++) {
        const graph_op *op = graph_op_find(names[i]);
        const char *why = op ? refusal(op) : ": there is no such row";
        if (why) fprintf(stderr, "%s: %s%s\n", program, names[i], why);
        unknown += why != NULL;
    }
    return unknown;
}

#endif
