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
    /* NULL: it is right */
    const char *message;
    /* in the kernel's text */
    const char *expects[3];
} unit_case;

/* The second operand by columns. */
#define BY_COLUMNS                                                                                              \
    "region r\ninput x bf16[45, 37]\ninput w bf16[83, 37]\ninput b f32[83]\n"                                   \
    "reduce C f32 (i: 45, j: 83 | k: 37) init 0:f32 = muladd(cast.f32(x[i, k]), cast.f32(w[j, k]), acc(0):f32)" \
    " merge acc(0):f32 + other(0):f32\n"                                                                        \
    "map D bf16 (i: 45, j: 83) = cast.bf16(max(C[i, j] + b[j], 0:f32))\noutput D\n"
/* The first operand by columns, too, and a batch of them. */
#define BATCH                                                                                                               \
    "region r\ninput x bf16[3, 37, 45]\ninput w bf16[3, 37, 83]\n"                                                          \
    "reduce C f32 (n: 3, i: 45, j: 83 | k: 37) init 0:f32 = muladd(cast.f32(x[n, k, i]), cast.f32(w[n, k, j]), acc(0):f32)" \
    " merge acc(0):f32 + other(0):f32\n"                                                                                    \
    "map D f32 (n: 3, i: 45, j: 83) = C[n, i, j]\noutput D\n"
#define BATCH_REWRITE                                                          \
    "rewrite:\n copy x -> xs\n copy w -> ws\n copy xs -> xf\n copy ws -> wf\n" \
    " layout C (n, i/32, j/32, i/16%2, j/8%4, i%8, j/2%4, i/8%2, j%2)\n"       \
    " layout xf (n, i/16, k/16, i%8, k/2%4, k/8%2, i/8%2, k%2)\n"              \
    " layout wf (n, j/8, k/16, j%8, k/2%4, k/8%2, k%2)\n"
#define BATCH_COPIES                                                                         \
    " at xs C.ko\n at ws C.ko\n store xs shared\n store ws shared\n"                         \
    " split xs.i 8 -> it iv mask\n order xs: n k it iv\n thread xs.k xs.it\n unroll xs.iv\n" \
    " split ws.j 8 -> jt jv mask\n order ws: n k jt jv\n thread ws.k ws.jt\n unroll ws.jv\n"
/* The unit of a core, without thread loops. */
#define BY_CORE                                                                        \
    "rewrite:\n copy x -> xf\n copy w -> wf\nloops:\n"                                 \
    " split D.i 4 -> ib ir mask full\n split D.j 4 -> jb jr mask full\n"               \
    " order D: ib jb ir jr\n par D.ib\n at C D.jb\n store C reg\n"                     \
    " split C.k 2 -> ko kk mask full\n order C: ko i j kk\n at xf C.ko\n at wf C.ko\n" \
    " store xf reg\n store wf reg\n unit C.i,j,kk tile.4x4x2 deviates assoc\n"
static const unit_case cases[] = {
    {"whole tiles", REGION("bf16", "64", "128", "64"), SCHEDULE("bf16"), NULL, {NULL}},
    {"odd sizes",
     REGION("bf16", "45", "83", "37"),
     SCHEDULE("bf16"),
     NULL,
     {"ldmatrix.x4 (q, r, c) xf", "ldmatrix.x4.trans (q, r, c) wf"}},
    {"by columns",
     BY_COLUMNS,
     REWRITE RESULT SUMS COPIES FRAGMENTS UNIT("bf16"),
     NULL,
     {"ldmatrix.x4 (q, r, c) xf", "ldmatrix.x4 (q, r, c) wf"}},
    {"by a core",
     REGION("bf16", "9", "7", "5"),
     BY_CORE,
     NULL,
     {"tile.4x4x2 (i, j, k) C[i, j] += xf[i, k] * wf[k, j]"}},
    {"f16", REGION("f16", "45", "83", "37"), SCHEDULE("f16"), NULL, {NULL}},
    {"less than a tile", REGION("bf16", "5", "3", "7"), SCHEDULE("bf16"), NULL, {NULL}},
    {"a batch, operands by columns",
     BATCH,
     BATCH_REWRITE RESULT_OF("n") " par D.n\n" SUMS_OF("n") BATCH_COPIES FRAGMENTS_OF("n") UNIT("bf16"),
     NULL,
     {"ldmatrix.x4.trans (q, r, c) xf", "ldmatrix.x4.trans (q, r, c) wf"}},
    {"plain loads",
     REGION("bf16", "45", "83", "37"),
     REWRITE " layout xs (i, k%4, k/4)\n" RESULT SUMS COPIES FRAGMENTS UNIT("bf16"),
     NULL,
     {"= xs[", "ldmatrix.x4.trans (q, r, c) wf"}},
    {"another type", REGION("bf16", "45", "83", "37"), SCHEDULE("f16"), "does not sum products of f16", {NULL}},
    {"no deviation",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.il,ih,jl,je,kk mma.m16n8k16.bf16\n",
     "say so by `deviates assoc`",
     {NULL}},
    {"rows of 8",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.il,jl,je,kk mma.m16n8k16.bf16 deviates assoc\n",
     "il of stage C must have 16 points",
     {NULL}},
    {"columns first",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.jl,je,il,ih,kk mma.m16n8k16.bf16 deviates assoc\n",
     "must have 16 points",
     {NULL}},
    {"two axes",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.il,ih,kk mma.m16n8k16.bf16 deviates assoc\n",
     "rows, of columns",
     {NULL}},
    {"loops of no whole part",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " unit C.it,ih,jl,je,kk mma.m16n8k16.bf16 deviates assoc\n",
     "are no whole part of it",
     {NULL}},
    {"sums in memory",
     REGION("bf16", "45", "83", "37"),
     "loops:\n split C.i 16 -> io ii mask\n split C.j 8 -> jo ji mask\n split C.k 16 -> ko kk mask\n order C: io jo ko ii ji kk\n"
     " unit C.ii,ji,kk mma.m16n8k16.bf16 deviates assoc\n",
     "sums in registers",
     {NULL}},
    {"operands in memory",
     REGION("bf16", "45", "83", "37"),
     "rewrite:\n layout C (i/32, j/32, i/16%2, j/8%4, i%8, j/2%4, i/8%2, j%2)\n" RESULT SUMS UNIT("bf16"),
     "copy them",
     {NULL}},
    {"operands in shared memory",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES " at xf C.ks\n at wf C.ks\n store xf shared\n store wf shared\n" UNIT("bf16"),
     "must lie in registers",
     {NULL}},
    {"lanes in another order",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT SUMS COPIES FRAGMENTS " order xf: kl il it kh ih ke\n" UNIT("bf16"),
     "is held by lane",
     {NULL}},
    {"steps that overlap",
     REGION("bf16", "45", "83", "37"),
     REWRITE RESULT
     " at C D.jb\n store C reg\n"
     " split C.i 32 -> iw im mask\n split C.im 16 -> it ii mask\n split C.ii 8 -> ih il mask\n"
     " split C.j 32 -> jw jm mask\n split C.jm 8 -> jt jj mask\n split C.jj 2 -> jl je mask\n"
     " split C.k 24 -> ko ki mask full\n split C.ki 16 -> ks kk mask\n"
     " order C: ko iw jw ks il jl it jt ih je kk\n thread C.iw C.jw C.il C.jl\n unroll C.it C.jt C.ih C.je C.ks\n" COPIES
         FRAGMENTS UNIT("bf16"),
     "do not divide it",
     {NULL}},
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
    if (!c->message) assert_non_null(strstr(report.kernel, "(i, j, k) C["));
    for (int i = 0; i < 3 && c->expects[i]; i++)
        if (!strstr(report.kernel, c->expects[i])) fail_msg("%s: no %s in\n%s", c->name, c->expects[i], report.kernel);
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
