/* Lowering against evaluation by definition: each case is a region and a schedule in text; the scheduled loop IR, interpreted, must
 * give the bits that tir_region_evaluate gives (a few ulp where the schedule reorders an inexact reduction). */
#include "tir/scheduled.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

/* C, sums of products of x where `inside`, elsewhere of 0, and w. */
#define TRIANGLE_WITH(stage, axes, inside, of_c, operand, factor, of_d, value)                                  \
    "region r excess\ninput x f32[20, 20]\ninput w f32[17, 20]\n" stage "map m f32 (" axes ") = select(" inside \
    ", x[i, k], 0:f32)\n"                                                                                       \
    "reduce C f32 (" of_c ") init 0:f32 = muladd(" operand ", " factor                                          \
    ", acc(0):f32) merge acc(0):f32 + other(0):f32\n"                                                           \
    "map D f32 (" of_d ") = " value "\noutput D\n"
#define TRIANGLE(axes, inside, of_c, operand, of_d, value) \
    TRIANGLE_WITH("", axes, inside, of_c, operand, "w[k, j]", of_d, value)
/* Tiles of C of four rows and eight columns. */
#define TILE                                                                                                  \
    "loops:\n split D.i 4 -> io ii balanced\n split D.j 8 -> jo ji mask\n order D: io jo ii ji\n at C D.jo\n" \
    " order C: k i j\n vec C.j D.ji\n unroll C.i D.ii\n"

/* Rows of d, and sums s along columns of `summed`, which run beside them. */
#define COLUMNS(rows, summed)                                                                                   \
    "region r\ninput x f32[" rows ", 20]\n"                                                                     \
    "reduce mx f32 exact (i: " rows                                                                             \
    " | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"                  \
    "map d f32 (i: " rows ", j: 20) = x[i, j] - mx[i]\n"                                                        \
    "reduce s f32 (j: 20 | i: " rows ") init 0:f32 = acc(0):f32 + " summed " merge acc(0):f32 + other(0):f32\n" \
    "output d\noutput s\n"
#define CHUNKS(chunks, rows, tail)                                                         \
    "rewrite:\n rfactor s.i " chunks " chunks -> s_c chunk line\n layout s_c (chunk, j)\n" \
    "loops:\n split d.i " rows " -> chunk line " tail "\n"
#define BESIDE                                                        \
    " order d: chunk line j\n par d.chunk\n vec d.j\n at mx d.line\n" \
    " beside s_c d.line by chunk=chunk line=line\n order s_c: chunk line j\n vec s_c.j\n"

typedef struct lower_case {
    const char *name, *region, *schedule;
    /* relative; 0: bitwise */
    double tolerance;
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
     " prefetch w at C.k k+1 L2\n prefetch D at C.k D.io tile\n",
     0},
    {"a later root reads, from memory, what is attached to an earlier one",
     "region r\ninput x f32[7, 20]\n"
     "reduce mx f32 exact (i: 7 | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
     "map d f32 (i: 7, j: 20) = x[i, j] - mx[i]\nmap m f32 (i: 7) = mx[i] * 2:f32\noutput d\noutput m\n",
     "at mx d.i\nstore mx reg\npar d.i\nvec d.j m.i", 0},
    {"sums of columns beside rows", COLUMNS("12", "x[i, j]"), CHUNKS("3", "4", "mask") BESIDE, 1e-5},
    {"sums of columns of the rows beside them", COLUMNS("12", "d[i, j]"), CHUNKS("3", "4", "mask") BESIDE, 1e-5},
    {"sums of columns beside rows, of which the last chunk has fewer", COLUMNS("13", "d[i, j]"),
     CHUNKS("4", "4", "peel") BESIDE, 1e-5},
    {"the same, masked", COLUMNS("13", "d[i, j]"), CHUNKS("4", "4", "mask") BESIDE, 1e-5},
    {"sums of columns beside blocks of rows", COLUMNS("14", "d[i, j]"),
     CHUNKS("3", "5", "peel") " split d.line 2 -> q_o q_i peel\n order d: chunk q_o q_i j\n par d.chunk\n vec d.j\n"
                              " at mx d.q_o\n beside s_c d.q_o by chunk=chunk line=line\n split s_c.j 8 -> jo ji mask\n"
                              " order s_c: chunk jo line ji\n vec s_c.ji\n",
     1e-5},
    {"sums of columns beside rows, of what is attached to these", COLUMNS("12", "x[i, j]*mx[i]"),
     CHUNKS("3", "4", "mask") BESIDE, 1e-5},
    {"sums of columns that precede the rows beside which they run",
     "region r\ninput x f32[12, 20]\n"
     "reduce s f32 (j: 20 | i: 12) init 0:f32 = acc(0):f32 + x[i, j] merge acc(0):f32 + other(0):f32\n"
     "map h f32 (j: 20) = s[j]*2:f32\n"
     "reduce mx f32 exact (i: 12 | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
     "map d f32 (i: 12, j: 20) = x[i, j] - mx[i]\noutput h\noutput d\noutput s\n",
     CHUNKS("3", "4", "mask") BESIDE, 1e-5},
    {"a sum beside rows, whose layout has padding",
     "region r\ninput x f32[12, 20]\nmap d f32 (i: 12, j: 20) = x[i, j]*3:f32\n"
     "reduce s f32 (j: 20 | i: 12) init 1:f32 = acc(0):f32 + d[i, j]\ntensor s layout (d0/8, d0%8)\noutput d\noutput s\n",
     "loops:\n order d: i j\n beside s d.i by i=i\n order s: i j\n", 0},
    {"the whole sum beside rows", COLUMNS("12", "d[i, j]"),
     "loops:\n order d: i j\n at mx d.i\n beside s d.i by i=i\n order s: i j\n vec s.j d.j\n", 0},
    {"tiles of an attached stage's fused axes end beyond it",
     "region r\ninput x f32[7, 5]\nmap c f32 (i: 7, j: 5) = x[i, j] * 2:f32\nmap d f32 (i: 7, j: 5) = c[i, j] + c[i, 4 - j]\n"
     "output d\n",
     "loops:\n at c d.i\n fuse c.i c.j -> f\n split c.f 4 -> a b mask\n vec c.b\n", 0},
    {"channels in groups, two stages and their readers",
     "region r\ninput x f32[6, 5]\ninput w f32[12, 3]\ninput b f32[12]\n"
     "reduce C f32 (c: 12, i: 5 | k: 3) init 0:f32 = muladd(x[c/6*3 + k, i], w[c, k], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map D f32 (c: 12, i: 5) = C[c, i] + b[c]\nmap E f32 (i: 5, c: 12) = C[11 - c, i]\noutput D\noutput E\noutput C\n",
     "rewrite:\n expand C.c 6 -> g m\nloops:\n order C: g k m i\n unroll C.m\n vec C.i\n order D: g m i\n par D.g\n vec D.i\n",
     0},
    /* arguments in blocks of 4 channels, of which the last ones are padding: zeros */
    {"maximum of blocked channels, plain loops",
     "region r\ninput x f32[6, 7, 5]\ntensor x layout (d0/4, d1, d2, d0%4)\n"
     "reduce m f32 exact (c: 6, h: 4, w: 5 | k: 3) init -inf:f32 where 0 <= h*2 + k + -1 && h*2 + k + -1 < 7 = "
     "max(acc(0):f32, x[c, h*2 + k + -1, w]) merge max(acc(0):f32, other(0):f32)\n"
     "tensor m layout (d0/4, d1, d2, d0%4)\noutput m\n",
     "", 0},
    {"maximum of blocked channels",
     "region r\ninput x f32[6, 7, 5]\ntensor x layout (d0/4, d1, d2, d0%4)\n"
     "reduce m f32 exact (c: 6, h: 4, w: 5 | k: 3) init -inf:f32 where 0 <= h*2 + k + -1 && h*2 + k + -1 < 7 = "
     "max(acc(0):f32, x[c, h*2 + k + -1, w]) merge max(acc(0):f32, other(0):f32)\n"
     "tensor m layout (d0/4, d1, d2, d0%4)\noutput m\n",
     "rewrite:\n copy m -> y\n layout m (h, w, c)\nloops:\n split y.c 4 -> co ci mask\n order y: co h w ci\n par y.co y.h\n"
     " vec y.ci\n unroll y.w\n at m y.h\n store m reg\n order m: h k w c\n vec m.c\n unroll m.w\n clip m.k\n",
     0},
    {"blocks whose padding no region of the attached stage reaches",
     "region r\ninput x f32[3, 7]\nmap t f32 (i: 3, j: 7) = max(x[i, j], 0.5:f32)\n"
     "reduce p f32 (j: 7 | i: 3) init 1:f32 = acc(0):f32 * t[i, j] merge acc(0):f32 * other(0):f32\n"
     "tensor t layout (d0/2, d1/4, d1%4, d0%2)\noutput t\noutput p\n",
     "loops:\n par p.j\n at t p.j\n", 1e-6},
    {"blocks that the regions of the attached stage reach behind the end",
     "region r\ninput x f32[6]\nmap t f32 (i: 6) = x[i] * 2:f32\nmap y f32 (i: 6) = t[i] + 1:f32\n"
     "tensor t layout (d0/4, d0%4)\ntensor y layout (d0/4, d0%4)\noutput t\noutput y\n",
     "loops:\n split y.i 4 -> o v mask\n par y.o\n at t y.o\n", 0},
    {"map from blocks to rows and back",
     "region r\ninput x f32[6, 9]\ninput y f32[6, 9]\ntensor x layout (d0/4, d1, d0%4)\n"
     "map a f32 (i: 6, j: 9) = exp(x[i, j]) + y[i, j]\nmap b f32 (i: 6, j: 9) = x[i, j] * 2:f32\n"
     "tensor b layout (d0/4, d1, d0%4)\noutput a\noutput b\n",
     "loops:\n split b.i 4 -> io ii mask\n order b: io j ii\n vec b.ii\n par b.io b.j\n", 0},
    {"convolution 3x3",
     "region r\ninput x f32[8, 6, 13]\ninput f f32[8, 8, 3, 3]\ntensor f constant\ninput b f32[8]\n"
     "reduce O f32 (co: 8, h: 6, w: 13 | ci: 8, kh: 3, kw: 3) init 0:f32 where 0 <= h + kh + -1 && h + kh + -1 < 6 && "
     "0 <= w + kw + -1 && w + kw + -1 < 13 = muladd(x[ci, h + kh + -1, w + kw + -1], f[co, ci, kh, kw], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map Y f32 (co: 8, h: 6, w: 13) = max(O[co, h, w] + b[co], 0:f32)\noutput Y\n",
     "rewrite:\n layout f (co/4, ci/4, kh, kw, ci%4, co%4)\nloops:\n split Y.co 4 -> cb cv mask\n split Y.w 5 -> wo wi balanced\n"
     " order Y: cb h wo wi cv\n par Y.cb Y.h\n at O Y.wo\n store O reg\n split O.ci 4 -> cib civ mask\n"
     " order O: cib kh kw civ h w co\n clip O.kh\n clip O.kw\n vec O.co Y.cv\n unroll O.w O.kw Y.wi\n",
     1e-6},
    {"values picked by a position, of which there are fewer, plain loops",
     "region r\ninput x f32[5, 9]\nmap y f32 (i: 5, j: 9) = pick(i, x[i, j], x[4, j] * 2:f32, 3:f32)\noutput y\n", "",
     0},
    {"values picked by the position in a tile, unrolled",
     "region r\ninput x f32[12]\nmap y f32 (i: 12) = pick(i%3, x[i], x[i] * 2:f32, -x[i])\noutput y\n",
     "loops:\n split y.i 3 -> o v mask\n par y.o\n unroll y.v\n", 0},
    {"a sum that begins with a value",
     "region r\ninput x f32[7, 9]\ninput y f32[7]\n"
     "reduce s f32 (i: 7 | j: 9) init 0:f32 where j <= i + 1 = acc(0):f32 + x[i, j] merge acc(0):f32 + other(0):f32\n"
     "map z f32 (i: 7) = y[i] * 2:f32 + s[i]\noutput z\n",
     "rewrite:\n seed s\nloops:\n par z.i\n clip z.j\n", 1e-6},
    {"products of a triangular operand, by rows",
     TRIANGLE("i: 13, k: 17", "k <= i + 2", "i: 13, j: 20 | k: 17", "m[i, k]", "i: 13, j: 20", "C[i, j] * 2:f32"),
     TILE " skip C.k\n", 1e-6},
    {"products of a triangular operand, by columns",
     TRIANGLE("k: 17, i: 13", "i < k", "i: 13, j: 20 | k: 17", "m[k, i]", "i: 13, j: 20", "C[i, j] * 2:f32"),
     TILE " split C.k 4 -> ko ki mask\n order C: ko ki i j\n skip C.ko\n", 1e-6},
    {"products of a band",
     TRIANGLE("i: 13, k: 17", "k <= i + 2 && i <= k + 1", "i: 13, j: 20 | k: 17", "m[i, k]", "i: 13, j: 20",
              "C[i, j] * 2:f32"),
     TILE " partial C.k 4\n skip C.k\n", 1e-6},
    {"products of an operand with one element",
     TRIANGLE("i: 13, k: 17", "k + 11 < i", "i: 13, j: 20 | k: 17", "m[i, k]", "i: 13, j: 20", "C[i, j] + 1:f32"),
     TILE " skip C.k\n", 0},
    {"products that a triangle does not use",
     TRIANGLE("i: 13, k: 17", "true", "i: 13, j: 20 | k: 17", "m[i, k]", "i: 13, j: 20",
              "select(j <= i + -3, C[i, j], 1:f32)"),
     TILE " skip C.k\n", 1e-6},
    {"products of a triangular operand that a triangle does not use",
     TRIANGLE("i: 13, k: 17", "k <= i", "i: 13, j: 20 | k: 17", "m[i, k]", "i: 13, j: 20",
              "select(i < j, C[i, j], 1:f32)"),
     TILE " skip C.k\n", 1e-6},
    {"a sum of one product of an operand that is 0 behind its diagonal",
     TRIANGLE("i: 13, k: 1", "i < 3", "i: 13, j: 20 | k: 1", "m[i, k]", "i: 13, j: 20", "C[i, j] + 1:f32"),
     TILE " skip C.k\n", 0},
    {"products of an operand in steps of four", /* the axis stands in a quotient, which bounds nothing */
     TRIANGLE("i: 13, k: 17", "i <= k/4", "i: 13, j: 20 | k: 17", "m[i, k]", "i: 13, j: 20", "C[i, j] * 2:f32"),
     TILE " skip C.k\n", 1e-6},
    {"products of a triangular operand, the other computed for each tile",
     TRIANGLE_WITH("map p f32 (k: 17, j: 20) = w[k, j] * 2:f32\n", "i: 13, k: 17", "i <= k", "i: 13, j: 20 | k: 17",
                   "m[i, k]", "p[k, j]", "i: 13, j: 20", "C[i, j] * 2:f32"),
     TILE " at p D.jo\n split C.k 4 -> ko ki mask\n order C: ko ki i j\n skip C.ko\n", 1e-6},
    {"both computed for each tile",
     TRIANGLE_WITH("map p f32 (k: 17, j: 20) = w[k, j] * 2:f32\n", "i: 13, k: 17", "k <= i", "i: 13, j: 20 | k: 17",
                   "m[i, k]", "p[k, j]", "i: 13, j: 20", "C[i, j] * 2:f32"),
     TILE " at p D.jo\n at m D.jo\n skip C.k\n", 1e-6},
    {"parts of products of a triangular operand",
     TRIANGLE("i: 13, k: 17", "i <= k", "i: 13, j: 20 | k: 17", "m[i, k]", "i: 13, j: 20", "C[i, j] * 2:f32"),
     "rewrite:\n rfactor C.k 4 chunks -> P block row\nloops:\n split C.i 4 -> io ii balanced\n order C: block io ii j\n"
     " vec C.j\n unroll C.ii\n at P C.io\n order P: block row i j\n unroll P.i\n vec P.j\n skip P.row\n",
     1e-6},
    {"a running sum in the place of its state",
     "region r\ninput x f32[3, 9]\ninput y f32[3]\nfold s f32 (i: 3 | t: 9) init y[i]\n"
     "map st f32 in s (i: 3, t: 9) = s[i] + x[i, t]\nnext s = st[i, t]\nmap z f32 (i: 3) = s[i] * 2:f32\noutput z\n",
     "loops:\n par z.i\n at s z.i\n store s stack\n store st state\n", 0},
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
    {"reduce in chunks of a multiple of points, of which the last are empty",
     "region r\ninput x f32[53]\nreduce S f32 ( | j: 53) init 0:f32 = acc(0):f32 + x[j] merge acc(0):f32 + other(0):f32\noutput S\n",
     "rewrite:\n rfactor S.j 6 chunks of 8 -> Sp jr jt\n rfactor Sp.jt 4 lanes -> Sl lane step\n tree Sp.lane\n"
     "loops:\n par Sp.jr\n at Sl Sp.jr\n vec Sl.lane\n order Sl: jr step lane\n clip Sl.step\n at Sp_2 Sp.jr\n",
     1e-6},
    {"fused loop over two axes",
     "region r\ninput x f32[7, 5]\ninput y f32[7, 5]\nmap z f32 (i: 7, j: 5) = x[i, j] * y[i, j]\noutput z\n",
     "loops:\n fuse z.i z.j -> f\n split z.f 8 -> fo fv mask\n vec z.fv\n par z.fo\n", 0},
    {"peel and overlap", "region r\ninput x f32[7, 29]\nmap z f32 (i: 7, j: 29) = x[i, j] * 2:f32\noutput z\n",
     "loops:\n split z.j 8 -> jo jv overlap\n split z.i 3 -> io ii peel\n order z: io ii jo jv\n vec z.jv\n unroll z.ii\n",
     0},
    {"copy and layout", "region r\ninput x f32[6, 10]\nmap z f32 (i: 6, j: 10) = x[i, 9 - j]\noutput z\n",
     "rewrite:\n copy x -> xs\n layout xs (d1/4, i, d1%4)\nloops:\n at xs z.i\n", 0},
    {"copy as a wider float, which other readers do not take",
     "region r\ninput x f16[6, 10]\nmap z f32 (i: 6, j: 10) = cast.f32(x[i, 9 - j]) * cast.f32(x[i, j])\n"
     "map y f16 (i: 6, j: 10) = x[i, j] * 2:f16\noutput z\noutput y\n",
     "rewrite:\n copy x -> xs as f32\nloops:\n at xs z.i\n vec z.j\n", 0},
    {"copies of integers in wider ones, of which casts to any dtype are made",
     "region r\ninput x u8[6, 10]\ninput w i8[6, 10]\n"
     "map z i32 (i: 6, j: 10) = cast.i32(x[i, 9 - j]) * cast.i32(w[i, j])\nmap y f32 (i: 6, j: 10) = cast.f32(x[i, j])\n"
     "map u u8 (i: 6, j: 10) = cast.u8(w[i, j])\noutput z\noutput y\noutput u\n",
     "rewrite:\n copy x -> xs as i16\n copy w -> ws as i16\nloops:\n vec z.j\n", 0},
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
#define SUM "merge acc(0):f32 + other(0):f32\n"
#define CONTRACTION                                                                            \
    "region r\ninput x f32[7, 9]\ninput w f32[9, 20]\n"                                        \
    "reduce C f32 (i: 7, j: 20 | k: 9) init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) " SUM \
    "map D f32 (i: 7, j: 20) = C[i, j] * 2:f32\noutput D\n"
#define BYTES                                        \
    "region r\ninput x u8[7, 9]\ninput w i8[7, 9]\n" \
    "map D i32 (i: 7, j: 9) = cast.i32(x[i, j]) * cast.i32(w[i, j])\noutput D\n"
/* Copies in shared memory, of whole rows and columns. */
#define COPIES "copy x -> xs\ncopy w -> ws\norder C: k i j\nat xs C.k\nat ws C.k\nstore xs shared\nstore ws shared\n"
#define RUNNING                                                          \
    "region r\ninput x f32[3, 9]\nfold s f32 (i: 3 | t: 9) init 0:f32\n" \
    "map st f32 in s (i: 3, t: 9) = s[i] + x[i, t]\nnext s = st[i, t]\noutput st\n"
#define ARG_MAX                                                                                                    \
    "region r\ninput x f32[5, 9]\nreduce a (av: f32, at: i32) exact (i: 5 | j: 9) init {-inf:f32, 0:i32} = "       \
    "{select(acc(0):f32 < x[i, j], x[i, j], acc(0):f32), select(acc(0):f32 < x[i, j], cast.i32(j), acc(1):i32)}\n" \
    "output at\n"
#define SCATTER                                                                                       \
    "region r\ninput x f32[9, 4]\ninput ix i32[9]\n"                                                  \
    "scatter S f32 (i: 6, j: 4 | u: 9) init 0:f32 at [cast.index(ix[u]), j] = acc(0):f32 + x[u, j]\n" \
    "map y f32 (i: 6, j: 4) = S[i, j]\noutput y\n"
#define RECURRENCE                                                                                                   \
    "region r\ninput x f32[3, 9]\nfold s f32 (b: 3 | t: 9) init 0:f32\nmap e f32 in s (b: 3, t: 9) = exp(x[b, t])\n" \
    "map g f32 in s (b: 3) = s[b] * 0.5:f32\nmap n f32 in s (b: 3, t: 9) = g[b] + e[b, t]\nnext s = n[b, t]\n"       \
    "map y f32 (b: 3) = s[b]\noutput y\n"
#define WINDOW \
    "region r\ninput x f32[8]\nmap a f32 (i: 8) = x[i] * 2:f32\nmap b f32 (i: 7, j: 3) = a[i] + a[i + 1]\noutput a\noutput b\n"
#define VARIANCE                                                                                              \
    "region r excess\ninput x f32[6, 10]\nreduce s f32 (i: 6 | j: 10) init 0:f32 = acc(0):f32 + x[i, j] " SUM \
    "reduce v f32 (i: 6 | j: 10) init 0:f32 = acc(0):f32 + (x[i, j] - s[i]) * (x[i, j] - s[i]) " SUM          \
    "map y f32 (i: 6) = v[i] + s[i]\noutput y\n"
#define MASKED                                                                                                                     \
    "region r excess\ninput x f32[6, 10]\n"                                                                                        \
    "reduce m f32 exact (i: 6 | j: 10) init -inf:f32 where j < i = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n" \
    "reduce l f32 (i: 6 | j: 10) init 0:f32 where j < i = acc(0):f32 + exp(x[i, j] - m[i]) " SUM                                   \
    "map p f32 (i: 6, j: 10) = exp(x[i, j] - m[i]) / l[i]\n"                                                                       \
    "reduce o f32 (i: 6 | j: 10) init 0:f32 where j < i = acc(0):f32 + p[i, j] * x[i, j] " SUM                                     \
    "map y f32 (i: 6) = o[i]\noutput y\n"
#define BF16                                                                                                      \
    "region r\ninput x bf16[5, 8]\ninput w bf16[8, 4]\n"                                                          \
    "reduce C f32 (i: 5, j: 4 | k: 8) init 0:f32 = muladd(cast.f32(x[i, k]), cast.f32(w[k, j]), acc(0):f32) " SUM \
    "output C\n"

/* A fold whose state has axes of its own. */
#define OWN_AXES(lines, own)                                           \
    "region r\ninput x f32[" lines "]\nfold s f32[" own "] (b: " lines \
    " | t: 5) init 0:f32\nmap n f32 in s (b: " lines ", k: 5) = s[b, 0, 1] + x[b]\nnext s = n[b, t]\noutput s\n"

static const struct {
    /* NULL: the softmax below */
    const char *schedule, *message, *region;
} refusals[] = {
    {"split Q.i 4 -> a b mask", "no stage is called Q; there are ", NULL},
    {"split sc.z 4 -> a b mask", "has no axis z; it has ", NULL},
    {"split sc.j 4 -> a b", "the tail must be said", NULL},
    {"split sc.j 0 -> a b mask", "at least 1", NULL},
    {"split sc.j 4 -> i b mask", "already has an axis i", NULL},
    {"vec sc.j\nsplit sc.j 4 -> a b mask", "is already vec", NULL},
    {"split sc.j 4 -> a b mask\nvec sc.j", "split: name one of its parts", NULL},
    {"order sc: j", "axis i is missing", NULL},
    {"order sc: j j i", "named twice", NULL},
    {"par sm.j", "reduction axis", NULL},
    {"par sc.j", "only the outermost loops", NULL},
    {"vec sm.j", "inexact reduction", NULL},
    {"vec sc.i sc.j", "runs inside vec loop i", NULL},
    {"clip sm.i", "only reduction axes", NULL},
    {"skip sm.i", "i is not a reduction axis", NULL},
    {"skip sm.j", "no condition on positions alone", NULL},
    {"split sm.j 4 -> a b balanced\nskip sm.a", "has bounds of its own", NULL},
    {"split sm.j 4 -> a b mask\nskip sm.b", "has bounds of its own", NULL},
    {"at sc sc.i", "attached inside itself", NULL},
    {"at sm sc.j\nat mx sm.i\norder sc: i j", "outside of that loop", NULL},
    {"at mx sc.i", "before", NULL},
    {"at sm sc.i\nvec sc.i", "lanes would share", NULL},
    {"split sc.j 8 -> a b mask\nat sm sc.j", "which is split", NULL},
    {"fuse sc.i sc.j -> f\nat sm sc.i", "fused into another", NULL},
    {"fuse sc.i sm.j -> f", "one stage", NULL},
    {"order sc: j i\nfuse sc.i sc.j -> f", "does not follow", NULL},
    {"split sc.j 8 -> a b mask\nfuse sc.i sc.a -> f", "only whole space axes", NULL},
    {"turn sc.i", "no directive is called turn", NULL},
    {"loopz:", "sections are called", NULL},
    {"par sc.i 4", "not expected here", NULL},
    {"store sm attic", "is not a storage", NULL},
    {"thread sm state 256", "sm is no fold", NULL},
    {"thread s state 2048", "by 2 to 1024 threads", RUNNING},
    {"thread s state 1", "by 2 to 1024 threads", OWN_AXES("3", "4, 2")},
    {"thread s state 8", "has no axes of its own", RUNNING},
    {"thread q state 8", "no stage is called q", OWN_AXES("3", "4, 2")},
    {"vec s.b\nthread s state 8", "inside vec loop b", OWN_AXES("3", "4, 2")},
    {"thread s state 8", "too many points", OWN_AXES("3", "2305843009213693952, 2")},
    {"order s: t b\nthread s.b\nthread s state 512", "2400 threads, expected at most 1024", OWN_AXES("300", "4, 2")},
    {"vec sc.j\n layout x (j/4, i, j%4)", "cannot follow loop directives", NULL},
    {"layout x (j/4, i, j%4)", "copy", NULL},
    {"layout sc (j/4, i, j%4)", "is an output", NULL},
    {"inline sm", "only maps", NULL},
    {"inline sc", "is an output", NULL},
    {"copy q -> qs", "no tensor is called q", NULL},
    {"copy x -> mx", "name mx is taken", NULL},
    {"copy x -> xs as f32", "has a wider one", NULL},
    {"copy x -> xs as i64", "has a wider one", NULL},
    {"copy x -> xs as float", "has a wider one", NULL},
    {"copy sc -> xs as f64", "has a wider one", NULL},
    {"copy w -> xs as u16", "has a wider one", BYTES},
    {"copy w -> xs as f32", "has a wider one", BYTES},
    {"copy x -> xs as u8", "has a wider one", BYTES},
    {"copy x -> xs as f16", "has a wider one",
     "region r\ninput x f8e8m0[7]\nmap D f32 (i: 7) = cast.f32(x[i])\noutput D\n"},
    {"operand sm.i -> xs", "is no sum of products", NULL},
    {"operand C.k -> xs", "does not tell the factors apart", CONTRACTION},
    {"operand C.q -> xs", "has no axis q", CONTRACTION},
    {"operand C.i -> xs deviates assoc", "in zero*nonfinite only", CONTRACTION},
    {"rfactor sm.i 4 lanes -> p jr jt", "no reduction axis i", NULL},
    {"rfactor sm.j 0 lanes -> p jr jt", "at least 1", NULL},
    {"rfactor sm.j 4 chunks of 0 -> p jr jt", "at least 1", NULL},
    {"rfactor sm.j 3 lanes -> p jr jt\ntree sm.jr", "power of two", NULL},
    {"tree sm.j", "power of two", NULL},
    {"scan sm.j 4 -> l b i", "is not a fold", NULL},
    {"scan s.t 3 -> l b i", "power of two", RUNNING},
    {"scan s.i 4 -> l b i", "is called t", RUNNING},
    {"scan s.t 4 -> l b i\nscan s.b 4 -> m c k", "several steps", RUNNING},
    {"where sm", "makes what it adds neutral", NULL},
    {"where sc", "not a reduction to one value", NULL},
    {"prefetch x at sc.i i+1 L9", "not a cache level", NULL},
    {"split C.j 4 -> a b mask\norder C: a i b k\nprefetch w at C.i C.a+1 L2 shared", "is not a run of memory",
     CONTRACTION},
    {"split C.k 4 -> a b mask\nprefetch w at C.b C.a+1 L2 carry", "carry needs a loop over a whole axis of known size",
     CONTRACTION},
    {"at C D.i\nprefetch x at C.k D.i tile", "no other stage in that loop of D loads or stores it", CONTRACTION},
    {"prefetch D at C.k D.i tile", "is not around it", CONTRACTION},
    {"at c y.i\nprefetch x at y.j i+1 L1", "is computed in the same loops",
     "region r\ninput x f32[9, 5]\ninput k i32[7]\nmap c i32 (i: 7) = k[i] + 1\n"
     "map y f32 (i: 7, j: 5) = x[max(min(cast.index(c[i]), 8), 0), j]\noutput y\n"},
    {"inline D", "is an output", CONTRACTION},
    {"copy C -> E\ninline E\nlayout E (i, j)", "has been inlined", CONTRACTION},
    {"store sm shared pad 0", "pad by 1 to 4096", NULL},
    {"store sm shared swizzle 48", "32, 64 or 128", NULL},
    {"store sm stack pad 16", "only shared memory", NULL},
    {COPIES "store xs shared pad 6", "no number of elements", CONTRACTION},
    {COPIES "pipeline C.k stages=1", "2 to 8 stages", CONTRACTION},
    {COPIES "pipeline C.k stages=2\npipeline C.k stages=3", "has a pipeline already", CONTRACTION},
    {COPIES "pipeline C.k stages=2\nsplit C.k 4 -> a b mask", "which is split", CONTRACTION},
    {COPIES "pipeline C.k stages=2 groups=xs|xs", "named twice", CONTRACTION},
    {COPIES "pipeline C.k stages=2\nunroll C.k", "not run in order", CONTRACTION},
    {COPIES "at ws C.i\npipeline C.k stages=2 groups=xs|ws", "ws is not attached at the pipeline's loop", CONTRACTION},
    {COPIES "store xs stack\npipeline C.k stages=2 groups=xs", "xs is not in shared memory", CONTRACTION},
    {COPIES "store xs stack\nstore ws stack\npipeline C.k stages=2", "no copy in shared memory is attached",
     CONTRACTION},
    {COPIES "order C: i k j\nthread C.i\npipeline C.k stages=2", "all threads of a block wait together", CONTRACTION},
    {"at sm sc.i\nstore sm shared\npipeline sc.i stages=2", "computes something", NULL},
    {"copy x -> xs\nat xs y.i\nstore xs shared", "need 120064 bytes of shared memory, the machine has 101376",
     "region r\ninput x f32[7, 30001]\nmap y f32 (i: 7, j: 30001) = x[i, 30000 - j]\noutput y\n"},
    {"split C.i 4 -> a b overlap\npar C.a", "cannot run at once", CONTRACTION},
    {"split C.i 4 -> a b overlap\norder C: k a b j", "updated twice", CONTRACTION},
    {"split C.k 4 -> a b overlap", "reduction twice", CONTRACTION},
    {"split C.i 4 -> a b overlap\nat C D.i", "only roots", CONTRACTION},
    {"split D.i 4 -> a b peel\norder D: b a j", "needs the loops of a outside", CONTRACTION},
    {"split D.i 4 -> a b balanced\norder D: a b j\nvec D.a", "depend on vec loop a", CONTRACTION},
    {"par D.i\nfuse D.i D.j -> f", "already par, vec or unroll", CONTRACTION},
    {"at C D.k", "has no axis k", CONTRACTION},
    {"at D C.i by i=i", "whose result it reads", CONTRACTION},
    {"vec a.j", "store to one place", ARG_MAX},
    {"rfactor a.j 4 lanes -> p jr jt", "cannot be combined from parts", ARG_MAX},
    {"fuse S.i S.j -> f", "do not run along all", SCATTER},
    {"split S.j 3 -> a b overlap", "updated twice", SCATTER},
    {"split s.t 2 -> to ti mask\norder s: b ti to", "runs in order", RECURRENCE},
    {"order s: t b\nsplit s.b 2 -> bo bi mask\norder s: bo t bi\nat g s.bo", "runs inside of that fold's loops",
     RECURRENCE},
    {"at s g.b", "attached inside its own step g", RECURRENCE},
    {"hoist g s", "reads the state s", RECURRENCE},
    {"hoist n s", "stays in the fold", RECURRENCE},
    {"hoist y s", "not a step of that fold", RECURRENCE},
    {"hoist e y", "is not a fold", RECURRENCE},
    {"block s.t 4 -> a b c d", "several steps", RECURRENCE},
    {"block s.b 4 -> a b c d", "the axis of fold s is called t", RECURRENCE},
    {"block y.b 4 -> a b c d", "is not a fold", RECURRENCE},
    {"at a b.i", "does not advance", WINDOW},
    {"at a b.j", "more than once",
     "region r\ninput x f32[8]\nmap a f32 (i: 8) = x[i] * 2:f32\nmap b f32 (i: 8, j: 3) = a[i]\noutput a\noutput b\n"},
    {"online s.j 4 -> F jb", "has no correction", VARIANCE},
    {"online y.i 4 -> F jb", "not a reduction", VARIANCE},
    {"online s.i 4 -> F jb", "no reduction axis i", VARIANCE},
    {"online s.j 0 -> F jb", "at least one point", VARIANCE},
    {"online mx.j 4 -> F jb", "no excess precision", NULL},
    {"online m.j 4 -> F jb", "may be empty", MASKED},
    {"seed C", "is no sum of the region's own", BF16},
    {"seed s", "C is no map beside s",
     "region r\ninput x f32[4, 9]\n"
     "reduce s f32 (i: 4 | j: 9) init 0:f32 = acc(0):f32 + x[i, j]\nreduce C f32 (|i: 4) init 0:f32 = acc(0):f32 + s[i]\noutput C\n"},
    {"seed s", "is no sum that begins with 0",
     "region r\ninput x f32[4, 9]\n"
     "reduce s f32 (i: 4 | j: 9) init 1:f32 = acc(0):f32 * x[i, j]\nmap C f32 (i: 4) = x[i, 0] + s[i]\noutput C\n"},
    {"seed s", "at its own points",
     "region r\ninput x f32[4, 9]\n"
     "reduce s f32 (i: 4 | j: 9) init 0:f32 = acc(0):f32 + x[i, j]\nmap C f32 (i: 4) = x[i, 0] + s[3 - i]\noutput C\n"},
    {"store st state", "something but the fold reads it",
     "region r\ninput x f32[3, 9]\nfold s f32 (i: 3 | t: 9) init 0:f32\n"
     "map st f32 in s (i: 3, t: 9) = s[i] + x[i, t]\nnext s = st[i, t]\nmap y f32 (i: 3, t: 9) = st[i, t] * 2:f32\noutput y\noutput s\n"},
    {"store e state", "no next value", RECURRENCE},
    {"store n state", "another step reads the old state", RECURRENCE},
    {"thread sc.i alike 4", "values must lie in registers", NULL},
    {"thread sc.i alike 1", "2 to 32 threads", NULL},
    {"copy x -> xs\nat xs D.i\nstore xs reg\nthread xs.i alike 4\nthread xs.k", "innermost thread loop", CONTRACTION},
    {"unit C.k vfma", "no unit is called vfma", BF16},
    {"unit C.k vdpbf16ps", "deviates from the sum", BF16},
    {"unit C.k vdpbf16ps deviates speed", "no deviation", BF16},
    {"unit C.k vpdpbusd", "does not sum products of u8", BF16},
    {"unit C.j vdpbf16ps deviates assoc,ftz", "not a reduction axis", BF16},
    {"unit C.k vdpbf16ps deviates assoc,ftz", "must have 2 iterations", BF16},
    {"split C.k 2 -> a b mask\norder C: i j b a\nunit C.b vdpbf16ps deviates assoc,ftz", "innermost reduction", BF16},
    {"split C.k 2 -> a b mask\nunit C.b vdpbf16ps deviates assoc,ftz\nunroll C.b", "belongs to unit", BF16},
    {"unit sm.j vdpbf16ps deviates assoc,ftz", "does not sum products", NULL},
    {"split C.k 2 -> a b mask\nunit C.b vdpbf16ps deviates assoc,ftz\nsplit C.b 1 -> c d mask",
     "name one of its parts for unit", BF16},
    {"at sm sc.i by q=i", "has no space axis q", NULL},
    {"at mx d.i\nbeside s d.i by q=i", "stage s has no axis q", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\nbeside s d.i by i=q", "stage d has no axis q; it has ", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\nbeside s d.j by i=i", "no axis of s runs with loop j", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\nbeside s d.j by i=i j=j", "inside of one that is reduced", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\npar d.i\nbeside s d.i by i=i", "it cannot be parallel", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\nbeside s d.i by i=i\nstore s reg", "s is in memory", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\nbeside s d.i by i=i j=i", "two axes run with i", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\nbeside s d.i by i=i\nclip s.i", "no bounds of its own",
     "region r\ninput x f32[12, 20]\nmap d f32 (i: 12, j: 20) = x[i, j]\nmap mx f32 () = 0:f32\n"
     "reduce s f32 (j: 20 | i: 12) init 0:f32 where 3 <= i = acc(0):f32 + x[i, j]\noutput d\noutput s\n"},
    {"beside s d.i by i=i", "begins with a loaded value",
     "region r\ninput x f32[12, 20]\nmap d f32 (i: 12, j: 20) = x[i, j]\n"
     "reduce s f32 (j: 20 | i: 12) init d[0, j] = acc(0):f32 + x[i, j]\noutput d\noutput s\n"},
    {"beside t d.i by i=i\npartial t.j 4", "need storage",
     "region r\ninput x f32[12, 20]\nmap d f32 (i: 12, j: 20) = x[i, j]\n"
     "reduce t f32 ( | i: 12, j: 20) init 0:f32 = acc(0):f32 + x[i, j] merge acc(0):f32 + other(0):f32\noutput d\noutput t\n"},
    {"at c d.i\nstore c output\nbeside s d.i by i=i", "after the root has overwritten it",
     "region r\ninput x f32[12, 20]\nmap c f32 (i: 12, j: 20) = exp(x[i, j])\nmap d f32 (i: 12, j: 20) = tanh(c[i, j])\n"
     "reduce s f32 (j: 20 | i: 12) init 0:f32 = acc(0):f32 + c[i, j]\noutput d\noutput s\n"},
    {"split e.i 4 -> a b mask\nbeside s e.a by i=a j=b\nbeside s d.j by i=i", "no axis of s runs with loop j",
     "region r\ninput x f32[12, 20]\nmap d f32 (i: 12, j: 20) = x[i, j]\nmap e f32 (i: 12, j: 20) = x[i, j]*2:f32\n"
     "reduce s f32 (j: 20 | i: 12) init 0:f32 = acc(0):f32 + x[i, j]\noutput d\noutput e\noutput s\n"},
    {"beside e d.i by i=i", "e is no plain reduction",
     "region r\ninput x f32[12]\nmap d f32 (i: 12) = x[i]\nmap e f32 (i: 12) = d[i]\noutput d\noutput e\n"},
    {"beside mx d.i by i=i", "before that is computed", COLUMNS("12", "x[i, j]")},
    {"beside s mx.i by i=i", "mx is no root that is a map", COLUMNS("12", "d[i, j]")},
    {"at mx d.i\nbeside s d.i by i=i", "has another number of points than i",
     "region r\ninput x f32[12, 20]\nmap d f32 (i: 12, j: 20) = x[i, j]\n"
     "reduce s f32 (j: 20 | i: 11) init 0:f32 = acc(0):f32 + x[i, j]\nmap mx f32 () = 0:f32\noutput d\noutput s\n"},
    {"at mx d.i\nbeside s d.i by i=i", "that this iteration has not computed", COLUMNS("12", "d[11 - i, j]")},
    {"split d.i 5 -> a b overlap\nat mx d.b\nbeside s d.b by i=i", "points more than once", COLUMNS("12", "x[i, j]")},
    {"split d.i 5 -> a b mask\nat mx d.b\nbeside s d.b by i=i", "points more than once", COLUMNS("12", "x[i, j]")},
    {"hoist n s", "it is the next state",
     "region r\ninput x f32[9]\nfold s f32 ( | t: 9) init 0:f32\nmap n f32 in s (t: 9) = x[t]\nnext s = n[t]\n"
     "map y f32 () = s[]\noutput y\n"},
    {"block s.t 4 -> a b c d", "reads the state at several points",
     "region r\ninput x f32[4, 9]\nfold s f32 (b: 4 | t: 9) init 0:f32\n"
     "map n f32 in s (b: 4, t: 9) = s[b] + s[3 - b]\nnext s = n[b, t]\nmap y f32 (b: 4) = s[b]\noutput y\n"},
    {"block s.t 4 -> a b c d", "is not a map over its axes",
     "region r\ninput x f32[9]\nfold s f32 ( | t: 9) init 0:f32\nmap n f32 in s () = s[] + 1:f32\nnext s = n[]\n"
     "map y f32 () = s[]\noutput y\n"},
    {"tree C.k", "does not combine the parts", BF16},
    {"inline a", "3 index maps",
     "region r\ninput x f32[9]\nmap a f32 (i: 9) = x[i] * 2:f32\nmap b f32 (i: 7) = a[i] + a[i + 1] + a[i + 2]\noutput b\n"},
};

/* What test/golden shows must be right, too. A line `; tolerance x` in a file allows for reordered sums. */
static void test_golden_files(void **state) {
    (void)state;
    DIR *folder = opendir("test/golden");
    if (!folder) skip();
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        static char text[1 << 16], path[400];
        if (!strstr(entry->d_name, ".txt") || strncmp(entry->d_name, "refused", 7) == 0) continue;
        snprintf(path, sizeof path, "test/golden/%s", entry->d_name);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        char *schedule = strstr(text, "==== schedule\n"), *loops = strstr(text, "==== loops\n"), *region = text;
        assert_true(schedule && loops);
        double tolerance = 0;
        for (; *region == ';'; region = strchr(region, '\n') + 1) sscanf(region, "; tolerance %lf", &tolerance);
        *schedule = *loops = 0;
        scheduled_report report;
        if (scheduled_run(region, schedule + 14, tolerance, 1, true, &report) != SCHEDULED_AGREES)
            fail_msg("%s: %s", path, report.message);
        free(report.kernel);
    }
    closedir(folder);
}

static void test_refusals(void **state) {
    (void)state;
    const char *text =
        "region r\ninput x f32[7, 20]\n"
        "reduce mx f32 exact (i: 7 | j: 20) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n"
        "reduce sm f32 (i: 7 | j: 20) init 0:f32 = acc(0):f32 + exp(x[i, j] - mx[i]) merge acc(0):f32 + other(0):f32\n"
        "map sc f32 (i: 7, j: 20) = exp(x[i, j] - mx[i]) / sm[i]\noutput sc\n";
    int wrong = 0;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        scheduled_report report;
        const char *region = refusals[i].region ? refusals[i].region : text;
        scheduled_outcome outcome = scheduled_run(region, refusals[i].schedule, 0, 1, false, &report);
        free(report.kernel);
        if (outcome == SCHEDULED_REFUSED && strstr(report.message, refusals[i].message)) continue;
        wrong++;
        if (outcome == SCHEDULED_AGREES)
            print_error("`%s` was accepted\n", refusals[i].schedule);
        else
            print_error("`%s`: message \"%s\" does not say \"%s\"\n", refusals[i].schedule, report.message,
                        refusals[i].message);
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_golden_files)};
    return cmocka_run_group_tests_name("tir/lower", tests, NULL, NULL);
}
