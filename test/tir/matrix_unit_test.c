/* Contractions on matrix units, by schedules written by hand, against evaluation by definition: odd sizes, batches, sizes below one
 * tile; and schedules that a unit refuses. */
#include "tir/matrix_unit.h"
#include "tir/scheduled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

typedef struct unit_case {
    const char *name, *region, *schedule;
    const char *message; /* NULL: it is right */
} unit_case;

static const unit_case cases[] = {
    {"whole tiles", REGION("bf16", "64", "128", "64"), SCHEDULE("bf16"), NULL},
    {"odd sizes", REGION("bf16", "45", "83", "37"), SCHEDULE("bf16"), NULL},
    {"f16", REGION("f16", "45", "83", "37"), SCHEDULE("f16"), NULL},
    {"less than a tile", REGION("bf16", "5", "3", "7"), SCHEDULE("bf16"), NULL},
    {"another type", REGION("bf16", "45", "83", "37"), SCHEDULE("f16"), "does not sum products of f16"},
    {"no deviation", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.il,ih,jl,je,kk mma.m16n8k16.bf16\n", "say so by `deviates assoc`"},
    {"rows of 8", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.il,jl,je,kk mma.m16n8k16.bf16 deviates assoc\n",
     "il of stage C must have 16 points"},
    {"columns first", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.jl,je,il,ih,kk mma.m16n8k16.bf16 deviates assoc\n",
     "must have 16 points"},
    {"two axes", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.il,ih,kk mma.m16n8k16.bf16 deviates assoc\n", "rows, of columns"},
    {"loops of no whole part", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.it,ih,jl,je,kk mma.m16n8k16.bf16 deviates assoc\n",
     "are no whole part of it"},
    {"sums in memory", REGION("bf16", "45", "83", "37"),
     "loops:\n split C.i 16 -> io ii mask\n split C.j 8 -> jo ji mask\n split C.k 16 -> ko kk mask\n order C: io jo ko ii ji kk\n"
     " unit C.ii,ji,kk mma.m16n8k16.bf16 deviates assoc\n",
     "sums in registers"},
    {"operands in memory", REGION("bf16", "45", "83", "37"),
     "rewrite:\n layout C (i/32, j/32, i/16%2, j/8%4, i%8, j/2%4, i/8%2, j%2)\n" RESULT SUMS UNIT("bf16"), "copy them"},
    {"operands in shared memory", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES " at xf C.ks\n at wf C.ks\n store xf shared\n store wf shared\n" UNIT("bf16"),
     "must lie in registers"},
    {"lanes in another order", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " order xf: kl il it kh ih ke\n" UNIT("bf16"), "is held by lane"},
    {"steps that overlap", REGION("bf16", "45", "83", "37"),
     REWRITE RESULT
     " at C D.jb\n store C reg\n"
     " split C.i 32 -> iw im mask\n split C.im 16 -> it ii mask\n split C.ii 8 -> ih il mask\n"
     " split C.j 32 -> jw jm mask\n split C.jm 8 -> jt jj mask\n split C.jj 2 -> jl je mask\n"
     " split C.k 24 -> ko ki mask full\n split C.ki 16 -> ks kk mask\n"
     " order C: ko iw jw ks il jl it jt ih je kk\n thread C.iw C.jw C.il C.jl\n unroll C.it C.jt C.ih C.je C.ks\n" COPIES
         FRAGMENTS UNIT("bf16"),
     "do not divide it"},
};

static void test_case(void **state) {
    const unit_case *c = *state;
    scheduled_report report;
    scheduled_outcome outcome = scheduled_run(c->region, c->schedule, 1e-5, 7, true, &report);
    if (getenv("SHOW") && report.kernel) fprintf(stderr, "%s\n", report.kernel);
    if (outcome != (c->message ? SCHEDULED_REFUSED : SCHEDULED_AGREES)) {
        if (report.kernel) fprintf(stderr, "%s\n", report.kernel);
        fail_msg("%s: %s", c->name, report.message);
    }
    if (c->message && !strstr(report.message, c->message)) fail_msg("%s: %s", c->name, report.message);
    if (!c->message) assert_non_null(strstr(report.kernel, "mma.m16n8k16"));
    free(report.kernel);
}

int main(void) {
    enum { COUNT = sizeof cases / sizeof *cases };
    struct CMUnitTest tests[COUNT];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    return cmocka_run_group_tests_name("matrix units", tests, NULL, NULL);
}
