/* Blocks of threads: schedules with `thread`, `store shared` and registers that several threads own, against evaluation by definition;
 * and kernels that are wrong in one place each, which the interpreter's checks must find. */
#include "test/mutants.h"
#include "tir/scheduled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

#define SOFTMAX(rows, columns)                                                         \
    "region r\ninput x f32[" rows ", " columns "]\n"                                   \
    "reduce mx f32 exact (i: " rows " | j: " columns                                   \
    ") init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n" \
    "map ex f32 (i: " rows ", j: " columns ") = exp(x[i, j] - mx[i])\n"                \
    "reduce sm f32 (i: " rows " | j: " columns                                         \
    ") init 0:f32 = acc(0):f32 + ex[i, j] merge acc(0):f32 + other(0):f32\n"           \
    "map sc f32 (i: " rows ", j: " columns ") = ex[i, j] / sm[i]\noutput sc\n"

#define CONTRACTION(m, n, k)                                                                \
    "region r\ninput x f32[" m ", " k "]\ninput w f32[" k ", " n "]\ninput b f32[" n "]\n"  \
    "reduce C f32 (i: " m ", j: " n " | k: " k                                              \
    ") init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) merge acc(0):f32 + other(0):f32\n" \
    "map D f32 (i: " m ", j: " n ") = max(C[i, j] + b[j], 0:f32)\noutput D\n"

typedef struct thread_case {
    const char *name, *region, *schedule;
    /* relative; 0: bitwise */
    double tolerance;
    /* in the kernel's text; NULL: nothing in particular */
    const char *expects;
} thread_case;

/* The same by tiles that are copied ahead: rows of 8 and 32 elements, four at once. */
#define TILES(x, w, stages, groups)                                                                                                \
    "rewrite:\n copy x -> xs\n copy w -> ws\n layout C (i/2, j/4, i%2, j%4)\n"                                                     \
    "loops:\n split D.i 16 -> ib ir mask\n split D.j 32 -> jb jr mask\n split D.ir 2 -> it ii mask\n split D.jr 4 -> jt jj mask\n" \
    " order D: ib jb it jt ii jj\n par D.ib D.jb\n thread D.it D.jt\n unroll D.ii\n vec D.jj\n"                                    \
    " at C D.jb\n store C reg\n split C.k 8 -> ko ki mask\n split C.i 2 -> it ii mask\n split C.j 4 -> jt jj mask\n"               \
    " order C: ko it jt ki ii jj\n thread C.it C.jt\n unroll C.ii C.jj\n"                                                          \
    " at xs C.ko\n at ws C.ko\n store xs shared " x "\n store ws shared " w "\n"                                                   \
    " split xs.k 4 -> kt kv mask\n order xs: i kt kv\n thread xs.i xs.kt\n vec xs.kv\n"                                            \
    " split ws.j 4 -> jt jv mask\n order ws: k jt jv\n thread ws.k ws.jt\n vec ws.jv\n"                                            \
    " pipeline C.ko stages=" stages " " groups "\n"

static const thread_case cases[] = {
    {"map", "region r\ninput x f32[7, 45]\ninput y f32[45]\nmap z f32 (i: 7, j: 45) = x[i, j] * y[j]\noutput z\n",
     "loops:\n split z.j 16 -> jb jt mask\n order z: i jb jt\n par z.i z.jb\n thread z.jt\n", 0, "thread"},
    {"map, vectors of a thread", "region r\ninput x f32[1003]\nmap z f32 (i: 1003) = exp(x[i])\noutput z\n",
     "loops:\n split z.i 128 -> b r mask\n split z.r 4 -> t v mask\n par z.b\n thread z.t\n vec z.v\n", 0, "vec"},
    {"transpose through shared memory", "region r\ninput x f32[37, 29]\nmap z f32 (i: 29, j: 37) = x[j, i]\noutput z\n",
     "rewrite:\n copy x -> xs\nloops:\n split z.i 8 -> ib it mask\n split z.j 16 -> jb jt mask\n order z: ib jb it jt\n"
     " par z.ib z.jb\n thread z.it z.jt\n at xs z.jb\n store xs shared\n thread xs.j xs.i\n",
     0, "barrier"},
    {"softmax, a warp for each row", SOFTMAX("5", "70"),
     "rewrite:\n layout ex (i, j/32, j%32)\n rfactor mx.j 32 lanes -> mp jr jt\n tree mx.jr\n rfactor sm.j 32 lanes -> sp jr jt\n tree sm.jr\n"
     "loops:\n split sc.j 32 -> jo jl mask\n order sc: i jo jl\n par sc.i\n thread sc.jl\n unroll sc.jo\n"
     " split ex.j 32 -> jo jl mask\n thread ex.jl\n unroll ex.jo\n order ex: i jo jl\n"
     " at sm sc.i\n at sm_2 sc.i\n at sm_4 sc.i\n at sm_8 sc.i\n at sm_16 sc.i\n at sp sc.i\n at ex sc.i\n"
     " at mx sc.i\n at mx_2 sc.i\n at mx_4 sc.i\n at mx_8 sc.i\n at mx_16 sc.i\n at mp sc.i\n"
     " order sp: i jt jr\n order mp: i jt jr\n thread sp.jr mp.jr\n"
     " thread mx_16.jr mx_8.jr mx_4.jr mx_2.jr sm_16.jr sm_8.jr sm_4.jr sm_2.jr\n"
     " store sp reg\n store mp reg\n store mx_16 reg\n store mx_8 reg\n store mx_4 reg\n store mx_2 reg\n store mx reg\n"
     " store sm_16 reg\n store sm_8 reg\n store sm_4 reg\n store sm_2 reg\n store sm reg\n store ex reg\n",
     1e-6, NULL},
    {"contraction, tiles in registers", CONTRACTION("37", "50", "21"),
     "rewrite:\n copy x -> xs\n copy w -> ws\n layout C (i/2, j/4, i%2, j%4)\n"
     "loops:\n split D.i 16 -> ib ir mask\n split D.j 32 -> jb jr mask\n split D.ir 2 -> it ii mask\n split D.jr 4 -> jt jj mask\n"
     " order D: ib jb it jt ii jj\n par D.ib D.jb\n thread D.it D.jt\n unroll D.ii\n vec D.jj\n"
     " at C D.jb\n store C reg\n split C.k 8 -> ko ki mask\n split C.i 2 -> it ii mask\n split C.j 4 -> jt jj mask\n"
     " order C: ko it jt ki ii jj\n thread C.it C.jt\n unroll C.ii C.jj\n"
     " at xs C.ko\n at ws C.ko\n store xs shared\n store ws shared\n"
     " fuse xs.i xs.k -> f\n thread xs.f\n thread ws.k\n vec ws.j\n",
     0, "barrier"},
    {"pipeline, two stages", CONTRACTION("37", "52", "21"), TILES("swizzle 32", "swizzle 128", "2", ""), 0, "wait 0"},
    {"pipeline, three stages", CONTRACTION("37", "52", "48"), TILES("pad 16", "", "3", ""), 0, "wait 1"},
    {"pipeline, four stages, groups", CONTRACTION("16", "52", "70"), TILES("", "swizzle 64", "4", "groups=xs|ws"), 0,
     "wait 4"},
    {"pipeline over the runs of a clipped loop",
     "region r\ninput x f32[37, 48]\ninput w f32[48, 52]\ninput b f32[52]\n"
     "reduce C f32 (i: 37, j: 52 | k: 48) init 0:f32 where k <= i + 3 = muladd(x[i, k], w[k, j], acc(0):f32) "
     "merge acc(0):f32 + other(0):f32\n"
     "map D f32 (i: 37, j: 52) = max(C[i, j] + b[j], 0:f32)\noutput D\n",
     TILES("", "", "3", "") " clip C.ko\n", 0, "wait 0"},
    {"pipeline of a fold: attention, keys and values apart",
     "region r excess\ninput q f32[7, 6]\ninput k f32[21, 6]\ninput v f32[21, 8]\n"
     "reduce s f32 (q: 7, k: 21 | e: 6) init 0:f32 = muladd(q[q, e], k[k, e], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "reduce m f32 exact (q: 7 | k: 21) init -inf:f32 = max(acc(0):f32, s[q, k]) merge max(acc(0):f32, other(0):f32)\n"
     "map ex f32 (q: 7, k: 21) = exp(s[q, k] - m[q])\n"
     "reduce l f32 (q: 7 | k: 21) init 0:f32 = acc(0):f32 + ex[q, k] merge acc(0):f32 + other(0):f32\n"
     "map p f32 (q: 7, k: 21) = ex[q, k] / l[q]\n"
     "reduce o f32 (q: 7, d: 8 | k: 21) init 0:f32 = muladd(p[q, k], v[k, d], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map y f32 (q: 7, d: 8) = o[q, d]\noutput y\n",
     "rewrite:\n copy k -> ks\n copy v -> vs\n online m.k 8 -> F kb\n inline o\n inline p\n inline ex\n"
     "loops:\n split y.q 4 -> qo qi mask\n par y.qo\n thread y.qi\n at F y.qo\n order F: kb q\n thread F.q\n at s F.kb\n"
     " order s: q k e\n thread s.q m_b.q m_n.q ex_b.q l_b.q l_n.q o_b.q o_n.q\n at ks F.kb\n at vs F.kb\n store ks shared\n"
     " store vs shared\n thread ks.k vs.k\n pipeline F.kb stages=2 groups=ks|vs\n",
     1e-5, "wait 2"},
    {"pipeline of a fold: sums in the place of the state",
     "region r excess\ninput q f32[7, 6]\ninput k f32[21, 6]\ninput v f32[21, 8]\n"
     "reduce s f32 (q: 7, k: 21 | e: 6) init 0:f32 = muladd(q[q, e], k[k, e], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "reduce m f32 exact (q: 7 | k: 21) init -inf:f32 = max(acc(0):f32, s[q, k]) merge max(acc(0):f32, other(0):f32)\n"
     "map ex f32 (q: 7, k: 21) = exp(s[q, k] - m[q])\n"
     "reduce l f32 (q: 7 | k: 21) init 0:f32 = acc(0):f32 + ex[q, k] merge acc(0):f32 + other(0):f32\n"
     "map p f32 (q: 7, k: 21) = ex[q, k] / l[q]\n"
     "reduce o f32 (q: 7, d: 8 | k: 21) init 0:f32 = muladd(p[q, k], v[k, d], acc(0):f32) merge acc(0):f32 + other(0):f32\n"
     "map y f32 (q: 7, d: 8) = o[q, d]\noutput y\n",
     "rewrite:\n copy k -> ks\n copy v -> vs\n online m.k 8 -> F kb\n inline o\n inline p\n inline ex\n seed o_b\n"
     "loops:\n split y.q 4 -> qo qi mask\n par y.qo\n thread y.qi y.d\n at F y.qo\n order F: kb q\n thread F.q alike 8\n"
     " at s F.kb\n order s: q k e\n thread s.q s.k m_b.q m_n.q ex_b.q ex_b.k l_b.q l_n.q\n store F reg\n store s shared\n"
     " store ex_b shared\n thread m_b.q alike 8\n thread m_n.q alike 8\n thread l_b.q alike 8\n thread l_n.q alike 8\n"
     " store m_b reg\n store m_n reg\n store l_b reg\n store l_n reg\n order o_n: q d kb k\n thread o_n.q o_n.d\n"
     " store o_n state\n at ks F.kb\n at vs F.kb\n store ks shared\n store vs shared\n thread ks.k vs.k\n"
     " pipeline F.kb stages=2 groups=ks|vs\n",
     1e-5, "for alike in 0..8 thread"},
    {"sums of rows that all lanes of a row have",
     "region r\ninput x f32[3, 8, 4]\n"
     "reduce m f32 (b: 3, i: 8 | j: 4) init 0:f32 = acc(0):f32 + x[b, i, j] merge acc(0):f32 + other(0):f32\n"
     "map y f32 (b: 3, i: 8, j: 4) = x[b, i, j] / m[b, i]\noutput y\n",
     "rewrite:\n rfactor m.j 4 lanes -> p lane step\n tree m.lane\nloops:\n par y.b\n thread y.i y.j\n at p y.b\n at m_2 y.b\n"
     " at m y.b\n thread p.i p.lane\n thread m_2.i\n thread m_2.lane alike 2\n thread m.i alike 4\n store p reg\n"
     " store m_2 reg\n store m reg\n",
     1e-6, "for alike in 0..2 thread"},
    {"shared memory used again",
     "region r\ninput x f32[3, 64]\nmap a f32 (i: 3, j: 64) = x[i, j] * 2:f32\nmap b f32 (i: 3, j: 64) = a[i, 63 - j] + 1:f32\n"
     "map c f32 (i: 3, j: 64) = b[i, (j + 33) % 64] * 3:f32\nmap d f32 (i: 3, j: 64) = c[i, 63 - j] + x[i, j]\noutput d\n",
     "loops:\n par d.i\n thread d.j c.j b.j a.j\n at c d.i\n at b d.i\n at a d.i\n store a shared\n store b shared\n store c shared\n",
     0, "b: f32[1, 64] shared @256, c: f32[1, 64] shared @0"},
    {"pipeline of one iteration", CONTRACTION("37", "52", "7"), TILES("", "swizzle 128", "3", ""), 0,
     "shared swizzle 128"},
    {"pipeline longer than its loop", CONTRACTION("37", "52", "9"), TILES("", "", "4", ""), 0, "wait 2"},
};

/* So that no bank conflicts are left, which there are without. */
static bool is_swizzled(const thread_case *c) {
    return strstr(c->schedule, "swizzle 32") != NULL;
}

static void test_case(void **state) {
    const thread_case *c = *state;
    scheduled_report report;
    scheduled_outcome outcome = scheduled_run(c->region, c->schedule, c->tolerance, 7, true, &report);
    if (getenv("SHOW") && report.kernel) fprintf(stderr, "%s\n", report.kernel);
    if (outcome != SCHEDULED_AGREES) {
        if (report.kernel) fprintf(stderr, "%s\n", report.kernel);
        fail_msg("%s: %s", c->name, report.message);
    }
    if (getenv("SHOW"))
        fprintf(stderr, "%ld accesses, %ld conflicts, most in %s\n", report.accesses, report.conflicts, report.worst);
    if (is_swizzled(c) && report.conflicts) fail_msg("%ld bank conflicts in %s", report.conflicts, report.worst);
    if (c->expects) assert_non_null(strstr(report.kernel, c->expects));
    free(report.kernel);
}

/* ---- what is wrong is found */

typedef struct wrong_case {
    const char *name, *kernel, *message;
} wrong_case;

#define KERNEL(body)                                                                                                            \
    "kernel k(x: f32[64] arg, y: f32[64] arg, s: f32[64] shared, r: f32[64] reg, u: f32[1] reg)\nphase tasks=1 task=p {\n" body \
    "}\n"
#define COPY "for t in 0..64 thread { async s[t] = x[t] }\n"
/* One buffer written, another one in its place read: but for the name they are one. */
#define VIEWS(a, b)                                                                                          \
    "kernel k(x: f32[64] arg, y: f32[64] arg, s: f32[64] shared " a " @0, v: f32[64] shared " b " @0)\n"     \
    "phase tasks=1 task=p { for t in 0..64 thread { s[t] = x[t] }\nbarrier\nfor t in 0..64 thread { y[t] = " \
    "v[63 - t] } }\n"
#define FILL "for t in 0..64 thread { s[t] = x[t] }\n"

static const wrong_case wrong_cases[] = {
    {"right", KERNEL(FILL "barrier\nfor t in 0..64 thread { y[t] = s[63 - t] }\n"), NULL},
    {"own elements need no barrier", KERNEL(FILL "for t in 0..64 thread { y[t] = s[t] }\n"), NULL},
    {"no barrier before a read", KERNEL(FILL "for t in 0..64 thread { y[t] = s[63 - t] }\n"),
     "no barrier after another thread writes"},
    {"no barrier before a write",
     KERNEL(
         FILL
         "barrier\nfor k in 0..2 { for t in 0..64 thread { y[t] = s[63 - t] }\nfor t in 0..64 thread { s[t] = y[t] }\nbarrier }\n"),
     "no barrier after another one reads"},
    {"two threads write", KERNEL("for t in 0..64 thread { s[t/2] = x[t] }\n"), "two threads of the block write"},
    {"all read what one writes", KERNEL("s[0] = x[0]\nu[0] = s[0]\nfor t in 0..64 thread { y[t] = u[0] }\n"),
     "no barrier"},
    {"a shuffle", KERNEL("for t in 0..64 thread { r[t] = x[t] }\nfor t in 0..64 thread { y[t] = r[t/2*2] }\n"), NULL},
    {"a register of another warp",
     KERNEL("for t in 0..64 thread { r[t] = x[t] }\nfor t in 0..64 thread { y[t] = r[63 - t] }\n"),
     "a register of another warp"},
    {"a register within one loop",
     KERNEL("for t in 0..64 thread { r[t] = x[t] }\nfor t in 0..64 thread { r[t] = r[t/2*2] + 1 }\n"),
     "in the same thread loop"},
    {"warps on their own",
     KERNEL("for w in 0..2 thread { for l in 0..32 thread { s[w*32 + l] = x[w*32 + l] }\nbarrier\n"
            "for l in 0..32 thread { y[w*32 + l] = s[w*32 + 31 - l] } }\n"),
     NULL},
    {"all of a warp read what one of it wrote",
     KERNEL("for w in 0..2 thread { s[w] = x[w]\nlet v: f32 = s[w]\nfor l in 0..32 thread { y[w*32 + l] = v } }\n"),
     "no barrier after another thread writes"},
    {"warps without their barrier",
     KERNEL("for w in 0..2 thread { for l in 0..32 thread { s[w*32 + l] = x[w*32 + l] }\n"
            "for l in 0..32 thread { y[w*32 + l] = s[w*32 + 31 - l] } }\n"),
     "no barrier after another thread writes"},
    {"a warp reads what another one writes",
     KERNEL("for w in 0..2 thread { for l in 0..32 thread { s[w*32 + l] = x[w*32 + l] }\nbarrier\n"
            "for l in 0..32 thread { y[w*32 + l] = s[63 - w*32 - l] } }\n"),
     "poison"},
    {"too many threads", KERNEL("for a in 0..64 thread { for b in 0..32 thread { y[a] = x[a] } }\n"),
     "more than 1,024 threads"},
    {"three quarters of a warp",
     KERNEL(
         "for a in 0..2 thread { for b in 0..24 thread { s[a*24 + b] = x[b] }\nfor b in 0..24 thread { y[a*24 + b] = s[b] } }\n"),
     "no whole warps"},
    {"a copy", KERNEL(COPY "commit\nwait 0\nbarrier\nfor t in 0..64 thread { y[t] = s[63 - t] }\n"), NULL},
    {"an own copy needs no barrier", KERNEL(COPY "commit\nwait 0\nfor t in 0..64 thread { y[t] = s[t] }\n"), NULL},
    {"a copy without its barrier", KERNEL(COPY "commit\nwait 0\nfor t in 0..64 thread { y[t] = s[63 - t] }\n"),
     "no barrier after another thread writes"},
    {"a barrier before the wait", KERNEL(COPY "commit\nbarrier\nwait 0\nfor t in 0..64 thread { y[t] = s[63 - t] }\n"),
     "no barrier after another thread writes"},
    {"a copy that nobody waits for", KERNEL(COPY "commit\nbarrier\nfor t in 0..64 thread { y[t] = s[t] }\n"),
     "nobody has waited for the copy that makes s["},
    {"a copy without a group", KERNEL(COPY "wait 0\nbarrier\nfor t in 0..64 thread { y[t] = s[t] }\n"),
     "nobody has waited for the copy that makes s["},
    {"the wait leaves one too many", KERNEL(COPY "commit\nwait 1\nfor t in 0..64 thread { y[t] = s[t] }\n"),
     "nobody has waited for the copy that makes s["},
    {"the last group may be empty", KERNEL(COPY "commit\ncommit\nwait 1\nfor t in 0..64 thread { y[t] = s[t] }\n"),
     NULL},
    {"a store over a copy", KERNEL(COPY "commit\nfor t in 0..64 thread { s[t] = 1 }\n"), "under way to s["},
    {"a copy over what is read", KERNEL(FILL "barrier\nfor t in 0..64 thread { y[t] = s[63 - t] }\n" COPY),
     "no barrier after another one reads"},
    {"a copy that computes", KERNEL("for t in 0..64 thread { async s[t] = x[t] + 1 }\n"), "L16"},
    {"a wait of some threads", KERNEL("for t in 0..64 thread { async s[t] = x[t]\nwait 0 }\n"), "L16"},
    {"two views", VIEWS("swizzle 128", "swizzle 64"), "poison is stored to y"},
    {"quarters of a warp",
     KERNEL(
         "for a in 0..8 thread { for b in 0..8 thread { r[a*8 + b] = x[a*8 + b] }\nfor b in 0..4 thread { y[a*4 + b] = r[a*8 + b] + r[a*8 + b + 4] } }\n"),
     NULL},
    {"quarters of a warp share memory",
     KERNEL(
         "for a in 0..8 thread { for b in 0..8 thread { s[a*8 + b] = x[b] }\nfor b in 0..8 thread { y[a*8 + b] = s[a*8 + 7 - b] } }\n"),
     "no barrier after another thread writes"},
    {"stored once", KERNEL("for t in 0..64 thread { y[t] = x[t] }\n"), NULL},
    {"stored twice",
     KERNEL("for t in 0..64 thread { y[t] = x[t] }\nfor t in 0..64 thread { if (t == 9) { y[t] = 0 } }\n"),
     "stored before: y[9]"},
    {"not stored", KERNEL("for t in 0..63 thread { y[t] = x[t] }\n"), "nothing is stored to y[63]"},
    {"a barrier of two warps",
     KERNEL(
         "for a in 0..1 thread { for b in 0..64 thread { s[b] = x[b] }\nbarrier\nfor b in 0..64 thread { y[b] = s[b] } }\n"),
     "not one warp"},
};

/* Both ways, with all checks. */
static lib_error run_kernel(const char *text, bool once, tir_bank_report *banks) {
    tir_interpret_options options = {.check = true, .stored_once = once, .banks = banks};
    lib_error error = mutant_run(text, &options);
    options.reverse_lanes = true;
    return error.status == DLC_OK ? mutant_run(text, &options) : error;
}

static void test_wrong(void **state) {
    const wrong_case *c = *state;
    lib_error error = run_kernel(c->kernel, strstr(c->name, "stored") != NULL, NULL);
    if (!c->message) {
        assert_string_equal(error.status == DLC_OK ? "" : error.message, "");
    } else {
        assert_int_equal(error.status, DLC_INTERNAL);
        if (!strstr(error.message, c->message)) fail_msg("%s: %s", c->name, error.message);
    }
}

/* ---- mutants of pipelines: the loop IR that lowering made, wrong in one place */

static void expect(const thread_case *c, const char *mutation, char *kernel, const char *message) {
    lib_error error = run_kernel(kernel, false, NULL);
    if (message ? error.status != DLC_INTERNAL || !strstr(error.message, message) : error.status != DLC_OK)
        fail_msg("%s, %s: %s\n%s", c->name, mutation, error.status == DLC_OK ? "nothing is found" : error.message,
                 kernel);
    free(kernel);
}

static void test_mutants(void **state) {
    (void)state;
    static const char empty[] = "    }\n    commit\n";
    int pipelines = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scheduled_report report;
        if (!strstr(cases[i].schedule, "pipeline") || strstr(cases[i].name, "of one")) continue; /* no copies ahead */
        pipelines++;
        assert_int_equal(scheduled_run(cases[i].region, cases[i].schedule, 0, 7, false, &report), SCHEDULED_AGREES);
        const char *text = report.kernel, *at = text;
        while ((at = strstr(at, "wait ")) != NULL) {
            const long groups = strtol(at + 5, NULL, 10);
            const bool last = !strstr(at + 5, "wait "); /* behind the loop, where nothing but empty groups is left */
            char more[32], less[32];
            snprintf(more, sizeof more, "wait %ld\n", groups + 1);
            snprintf(less, sizeof less, "wait %ld\n", groups ? groups - 1 : 0);
            const size_t length = strcspn(at, "\n") + 1;
            expect(&cases[i], "wait + 1", mutant_text(text, at, length, more), last ? NULL : "nobody has waited");
            expect(&cases[i], "wait - 1", mutant_text(text, at, length, less), NULL);
            at += length;
        }
        /* A group is committed where something is copied only. The last iterations are those that notice: there must be some. */
        at = strstr(text, "_next = min(");
        assert_non_null(at);
        at = strstr(at, empty);
        assert_non_null(at);
        const bool longer = strstr(cases[i].name, "longer") != NULL;
        if (!longer && !strstr(cases[i].schedule, "stages=2"))
            expect(&cases[i], "no empty commit", mutant_text(text, at, strlen(empty), "    commit\n    }\n"),
                   "nobody has waited for the copy that makes");
        if (is_swizzled(&cases[i])) {
            tir_bank_report banks;
            at = strstr(text, "swizzle ");
            char *kernel = mutant_text(text, at, strlen("swizzle 128"), "");
            at = strstr(kernel, "swizzle ");
            char *plain = mutant_text(kernel, at, strlen("swizzle 32"), "");
            assert_int_equal(run_kernel(plain, false, &banks).status, DLC_OK);
            assert_in_range(banks.conflicts, 1, banks.accesses * TIR_WARP);
            assert_non_null(strstr(banks.worst, "= fma(xs["));
            free(kernel);
            free(plain);
        }
        free(report.kernel);
    }
    assert_true(pipelines >= 4);
}

/* Sectors of memory that accesses of warps touch, and those that their bytes would not have needed. */
static void test_sectors(void **state) {
    static const struct {
        const char *body;
        long requests, sectors, excess;
    } counted[] = {
        {"for t in 0..64 thread { y[t] = x[t] }\n", 4, 16, 0},
        {"for t in 0..64 thread { y[t] = x[5] }\n", 4, 10, 0}, /* one element for all */
        {"for t in 0..16 thread { for v in 0..4 vec { y[t*4 + v] = x[t*4 + v] } }\n", 2, 16, 0},
        {"for t in 0..16 thread { for v in 0..4 unroll { y[t*4 + v] = x[t*4 + v] } }\n", 8, 64, 48},
        {"for t in 0..8 thread { y[t*8] = x[t] }\n", 2, 9, 7},
        {"for t in 0..8 thread { y[t] = x[t + 4] }\n", 2, 3, 1}, /* across a border */
    };
    (void)state;
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        char text[512];
        tir_bank_report report;
        snprintf(text, sizeof text, "kernel k(x: f32[64] arg, y: f32[64] arg)\nphase tasks=1 task=p {\n%s}\n",
                 counted[i].body);
        assert_int_equal(run_kernel(text, false, &report).status, DLC_OK);
        assert_int_equal(report.requests, counted[i].requests);
        assert_int_equal(report.sectors, counted[i].sectors);
        assert_int_equal(report.excess, counted[i].excess);
    }
}

/* Each barrier that lowering put into the cases is needed. */
static void test_barriers(void **state) {
    (void)state;
    int barriers = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scheduled_report report;
        assert_int_equal(scheduled_run(cases[i].region, cases[i].schedule, 0, 7, false, &report), SCHEDULED_AGREES);
        assert_int_equal(run_kernel(report.kernel, false, NULL).status, DLC_OK);
        for (char *at = report.kernel; (at = strstr(at, "barrier")) != NULL; at++, barriers++) {
            char *text = strdup(report.kernel);
            memset(text + (at - report.kernel), ' ', strlen("barrier"));
            lib_error error = run_kernel(text, false, NULL);
            if (error.status == DLC_OK || !strstr(error.message, "race"))
                fail_msg("%s: without barrier %d nothing is found", cases[i].name, barriers);
            free(text);
        }
        free(report.kernel);
    }
    assert_true(barriers >= 3);
}

int main(void) {
    enum { COUNT = sizeof cases / sizeof *cases, WRONG = sizeof wrong_cases / sizeof *wrong_cases };
    struct CMUnitTest tests[COUNT + WRONG + 3];
    for (int i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_case, .initial_state = (void *)(uintptr_t)&cases[i]};
    for (int i = 0; i < WRONG; i++)
        tests[COUNT + i] = (struct CMUnitTest){
            .name = wrong_cases[i].name, .test_func = test_wrong, .initial_state = (void *)(uintptr_t)&wrong_cases[i]};
    tests[COUNT + WRONG] = (struct CMUnitTest)cmocka_unit_test(test_barriers);
    tests[COUNT + WRONG + 2] = (struct CMUnitTest)cmocka_unit_test(test_sectors);
    tests[COUNT + WRONG + 1] = (struct CMUnitTest)cmocka_unit_test(test_mutants);
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
