/* Results of cases by operator. */
#ifndef TEST_ONNX_TALLY_H
#define TEST_ONNX_TALLY_H

#include <stdbool.h>
#include <stdio.h>

/* A case of the operator; "": of several. `units`: the greatest error of its results in units in the last place. */
void tally_add(const char *operator, bool passed, double units);
/* A table in Markdown. */
void tally_write(FILE *to);

#endif
