/* Lowering against evaluation by definition: each case is a region and a schedule in text; the scheduled loop IR, interpreted, must
 * give the bits that tir_region_evaluate gives (a few ulp where the schedule reorders an inexact reduction). */
#include "tir/scheduled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

typedef struct lower_case {
    const char *name, *region, *schedule;
    double tolerance; /* relative; 0: bitwise */
} lower_case;

static const lower_case cases[] = {
    {"empty schedule",
     "region r\ninput x f32[7, 5]\ninput y f32[7, 5]\nmap z f32 (i: 7, j: 5) = x[i, j] + y[i, j]\noutput z\n", "", 0},
    {"gelu(xW+b)",
     "region r\ninput x f32[45, 9]\ninput w f32[9, 20]\ntensor w constant\ninput b f32[20]\n"
     "reduce C f32 (i: 45, j: 20 | k: 9) init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map D f32 (i: 45, j: 20) = tanh(C[i, j] + b[j])\noutput D\n",
     "rewrite:\n layout w (j/8, k, j%8)\nloops:\n split D.j 8 -> jo ji mask\n split D.i 7 -> io ii balanced\n"
     " order D: jo io ii ji\n par D.jo\n at C D.io\n store C reg\n order C: k i j\n vec C.j D.ji\n unroll C.i D.ii\n"
     " prefetch w at C.k k+1 L2\n",
     0},
    {"convolution 3x3",
     "region r\ninput x f32[8, 6, 13]\ninput f f32[8, 8, 3, 3]\ntensor f constant\ninput b f32[8]\n"
     "reduce O f32 (co: 8, h: 6, w: 13 | ci: 8, kh: 3, kw: 3) init 0:f32 where 0 <= h + kh + -1 && h + kh + -1 < 6 && "
     "0 <= w + kw + -1 && w + kw + -1 < 13 = muladd(x[ci, h + kh + -1, w + kw + -1], f[co, ci, kh, kw], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map Y f32 (co: 8, h: 6, w: 13) = max(O[co, h, w] + b[co], 0:f32)\noutput Y\n",
     "rewrite:\n layout f (co/4, ci/4, kh, kw, ci%4, co%4)\nloops:\n split Y.co 4 -> cb cv mask\n split Y.w 5 -> wo wi balanced\n"
     " order Y: cb h wo wi cv\n par Y.cb Y.h\n at O Y.wo\n store O reg\n split O.ci 4 -> cib civ mask\n"
     " order O: cib kh kw civ h w co\n clip O.kh\n clip O.kw\n vec O.co Y.cv\n unroll O.w O.kw Y.wi\n",
     1e-6},
    {"softmax rows",
     "region r\ninput x f32[7, 20]\n"
     "reduce mx f32 exact (i: 7 | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
     "map ex f32 (i: 7, j: 20) = exp(x[i, j] - mx[i])\n"
     "reduce sm f32 (i: 7 | j: 20) init 0:f32 = acc(0):f32 + ex[i, j] merge acc(0):f32 + other(0):f32\n"
     "map sc f32 (i: 7, j: 20) = ex[i, j] / sm[i]\noutput sc\n",
     "loops:\n split sc.j 8 -> jo jv mask\n split ex.j 8 -> jo jv mask\n par sc.i\n at sm sc.i\n at ex sc.i\n at mx sc.i\n"
     " store sm reg\n store ex reg\n store mx reg\n vec sc.jv ex.jv\n unroll sc.jo ex.jo sm.j\n",
     0},
    {"softmax rows by lanes",
     "region r\ninput x f32[7, 21]\n"
     "reduce mx f32 exact (i: 7 | j: 21) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
     "map ex f32 (i: 7, j: 21) = exp(x[i, j] - mx[i])\n"
     "reduce sm f32 (i: 7 | j: 21) init 0:f32 = acc(0):f32 + ex[i, j] merge acc(0):f32 + other(0):f32\n"
     "map sc f32 (i: 7, j: 21) = ex[i, j] / sm[i]\noutput sc\n",
     "rewrite:\n rfactor mx.j 8 lanes -> mp jr jt\n tree mx.jr\n rfactor sm.j 8 lanes -> sp jr jt\n tree sm.jr\n"
     "loops:\n split sc.j 8 -> jo jv mask\n split ex.j 8 -> jo jv mask\n par sc.i\n at sm sc.i\n at sm_2 sc.i\n at sm_4 sc.i\n"
     " at sp sc.i\n at ex sc.i\n at mx sc.i\n at mx_2 sc.i\n at mx_4 sc.i\n at mp sc.i\n"
     " order sp: i jt jr\n order mp: i jt jr\n vec sp.jr mp.jr sm_4.jr sm_2.jr mx_4.jr mx_2.jr\n"
     " store sp reg\n store mp reg\n store ex stack\n vec sc.jv ex.jv\n",
     1e-6},
    {"layer norm with statistics",
     "region r\ninput x f32[6, 10]\n"
     "reduce s f32 (i: 6 | j: 10) init 0:f32 = acc(0):f32 + x[i, j] merge acc(0):f32 + other(0):f32\n"
     "map mu f32 (i: 6) = s[i] / 10:f32\n"
     "reduce v f32 (i: 6 | j: 10) init 0:f32 = acc(0):f32 + (x[i, j] - mu[i]) * (x[i, j] - mu[i]) merge acc(0):f32 + other(0):f32\n"
     "map rs f32 (i: 6) = 1:f32 / sqrt(v[i] / 10:f32)\n"
     "map lv f32 (i: 6) = log(v[i])\n"
     "map y f32 (i: 6, j: 10) = (x[i, j] - mu[i]) * rs[i]\noutput y\noutput mu\noutput rs\noutput lv\n",
     "loops:\n par y.i\n at lv y.i by i=i\n at rs y.i\n at v y.i\n at mu y.i\n at s y.i\n store mu reg\n store v reg\n store rs reg\n"
     " store s reg\n store lv reg\n",
     0},
    {"reduce all in two phases",
     "region r\ninput x f32[53]\nreduce S f32 ( | j: 53) init 0:f32 = acc(0):f32 + x[j] merge acc(0):f32 + other(0):f32\noutput S\n",
     "rewrite:\n rfactor S.j 8 chunks -> Sp jr jt\nloops:\n par Sp.jr\n", 1e-6},
    {"fused loop over two axes",
     "region r\ninput x f32[7, 5]\ninput y f32[7, 5]\nmap z f32 (i: 7, j: 5) = x[i, j] * y[i, j]\noutput z\n",
     "loops:\n fuse z.i z.j -> f\n split z.f 8 -> fo fv mask\n vec z.fv\n par z.fo\n", 0},
    {"peel and overlap", "region r\ninput x f32[7, 29]\nmap z f32 (i: 7, j: 29) = x[i, j] * 2:f32\noutput z\n",
     "loops:\n split z.j 8 -> jo jv overlap\n split z.i 3 -> io ii peel\n order z: io ii jo jv\n vec z.jv\n unroll z.ii\n",
     0},
    {"copy and layout", "region r\ninput x f32[6, 10]\nmap z f32 (i: 6, j: 10) = x[i, 9 - j]\noutput z\n",
     "rewrite:\n copy x -> xs\n layout xs (d1/4, i, d1%4)\nloops:\n at xs z.i\n", 0},
    {"arg-max and its value",
     "region r\ninput x f32[5, 9]\n"
     "reduce a (av: f32, at: i32) (i: 5 | j: 9) init {-inf:f32, 0:i32} = {select(acc(0):f32 < x[i, j], x[i, j], acc(0):f32), "
     "select(acc(0):f32 < x[i, j], cast.i32(j), acc(1):i32)} merge {select(acc(0):f32 < other(0):f32, other(0):f32, acc(0):f32), "
     "select(acc(0):f32 < other(0):f32, other(1):i32, acc(1):i32)}\noutput at\n",
     "loops:\n par a.i\n", 0},
    {"empty axes",
     "region r\ninput x f32[7, 0]\ninput y f32[7]\n"
     "reduce s f32 (i: 7 | j: 0) init 0:f32 = acc(0):f32 + x[i, j] merge acc(0):f32 + other(0):f32\n"
     "map e f32 (i: 7, j: 0) = x[i, j] + s[i]\nmap z f32 (i: 7) = s[i] + y[i]\noutput e\noutput z\n",
     "", 0},
    {"empty axes, scheduled",
     "region r\ninput x f32[7, 0]\ninput y f32[7]\n"
     "reduce s f32 (i: 7 | j: 0) init 0:f32 = acc(0):f32 + x[i, j] merge acc(0):f32 + other(0):f32\n"
     "map e f32 (i: 7, j: 0) = x[i, j] * 2:f32\nmap z f32 (i: 7) = s[i] + y[i]\noutput e\noutput z\n",
     "loops:\n split e.j 8 -> jo ji mask\n vec e.ji\n par e.i\n split s.j 4 -> jo ji peel\n unroll s.ji\n split z.i 4 -> io ii balanced\n at s z.io\n unroll z.ii\n par z.io\n",
     0},
    {"fold over no steps",
     "region r\ninput x f32[3, 0]\nfold s f32 (b: 3 | t: 0) init 5:f32\nmap st f32 in s (b: 3, t: 0) = s[b] + x[b, t]\nnext s = st[b, t]\n"
     "map y f32 (b: 3) = s[b]\noutput y\n",
     "", 0},
    {"running sums, read after the fold",
     "region r\ninput x f32[5, 9]\nfold s f32 (b: 5 | t: 9) init 0:f32\nmap st f32 in s (b: 5, t: 9) = s[b] + x[b, t]\nnext s = st[b, t]\n"
     "map y f32 (b: 5, t: 9) = st[b, 8 - t] * 2:f32\nmap z f32 (b: 5) = s[b] + 1:f32\noutput y\noutput z\n",
     "loops:\n split s.b 4 -> bo bi mask\n split s.t 4 -> to ti mask\n order s: bo to ti bi\n par s.bo\n vec s.bi st.b\n",
     0},
    {"recurrence with a state of several elements",
     "region r\ninput x f32[4, 6, 3]\ninput w f32[5, 5]\nfold h f32[5] (b: 4 | t: 6) init 0.5:f32\n"
     "reduce g f32 in h (b: 4, j: 5 | k: 5) init 0:f32 = muladd(h[b, k], w[k, j], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map n f32 in h (b: 4, t: 6, j: 5) = tanh(g[b, j] + x[b, t, j % 3])\nnext h = n[b, t, 0]\n"
     "map y f32 (t: 6, b: 4, j: 5) = n[b, t, j]\noutput y\noutput h\n",
     "loops:\n par h.b\n vec g.j n.j\n order g: b k j\n store g reg\n", 0},
    {"fold attached inside its reader",
     "region r\ninput x f32[5, 9]\nfold s f32 (b: 5 | t: 9) init 0:f32\nmap st f32 in s (b: 5, t: 9) = s[b] * 0.5:f32 + x[b, t]\n"
     "next s = st[b, t]\nmap y f32 (b: 5, t: 9) = x[b, t] / s[b]\noutput y\n",
     "loops:\n par y.b\n at s y.b\n store s reg\n store st reg\n", 0},
};

static void test_cases(void **state) {
    (void)state;
    bool verbose = getenv("VERBOSE") != NULL;
    const char *only = getenv("ONLY");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!only || strstr(cases[i].name, only)) {
            scheduled_report report;
            scheduled_outcome outcome =
                scheduled_run(cases[i].region, cases[i].schedule, cases[i].tolerance, 1, true, &report);
            if (verbose) printf("---- %s\n%s\n", cases[i].name, report.kernel ? report.kernel : "");
            if (outcome != SCHEDULED_AGREES) fail_msg("%s: %s", cases[i].name, report.message);
            free(report.kernel);
        }
}

/* Illegal directives: a message that names directive, stage and reason. */
static const struct {
    const char *schedule, *message, *region; /* NULL: the softmax below */
} refusals[] = {
    {"split Q.i 4 -> a b mask", "no stage is called Q", NULL},
    {"split sc.z 4 -> a b mask", "has no axis z", NULL},
    {"split sc.j 4 -> a b", "the tail must be said", NULL},
    {"split sc.j 0 -> a b mask", "at least 1", NULL},
    {"order sc: j", "axis i is missing", NULL},
    {"par sm.j", "reduction axis", NULL},
    {"vec sm.j", "inexact reduction", NULL},
    {"at sc sc.i", "attached inside itself", NULL},
    {"at mx sm.i", "outside of that loop", NULL},
    {"turn sc.i", "no directive is called turn", NULL},
    {"store sm attic", "is not a storage", NULL},
    {"vec sc.j\n layout x (j/4, i, j%4)", "cannot follow loop directives", NULL},
    {"layout x (j/4, i, j%4)", "copy", NULL},
    {"inline sm", "only maps", NULL},
    {"unit sc.j vdpbf16ps", "unit", NULL},
};

static void test_refusals(void **state) {
    (void)state;
    const char *text =
        "region r\ninput x f32[7, 20]\n"
        "reduce mx f32 exact (i: 7 | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
        "reduce sm f32 (i: 7 | j: 20) init 0:f32 = acc(0):f32 + exp(x[i, j] - mx[i]) merge acc(0):f32 + other(0):f32\n"
        "map sc f32 (i: 7, j: 20) = exp(x[i, j] - mx[i]) / sm[i]\noutput sc\n";
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        scheduled_report report;
        const char *region = refusals[i].region ? refusals[i].region : text;
        scheduled_outcome outcome = scheduled_run(region, refusals[i].schedule, 0, 1, false, &report);
        free(report.kernel);
        if (outcome == SCHEDULED_AGREES) fail_msg("`%s` was accepted", refusals[i].schedule);
        if (outcome != SCHEDULED_REFUSED || !strstr(report.message, refusals[i].message))
            fail_msg("`%s`: message \"%s\" does not say \"%s\"", refusals[i].schedule, report.message,
                     refusals[i].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests_name("tir/lower", tests, NULL, NULL);
}
