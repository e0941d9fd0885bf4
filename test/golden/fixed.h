/* A target that replaces `null`: it has the rules and the cost model of the cpu target and the facts of one of machines.c, whatever
 * processor runs the test. It compiles nothing; every stage of code generation is a line `cycles NUMBER`. */
#ifndef TEST_GOLDEN_FIXED_H
#define TEST_GOLDEN_FIXED_H

#include "golden/machines.h"

/* Sets the machine of contexts that are created from now on with target "null". */
void golden_fix_machine(const golden_machine *machine);

#endif
