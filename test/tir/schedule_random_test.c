/* Random regions under random schedules: each is refused with a message, or its loop IR passes all checks of the interpreter and gives
 * the bits of evaluation by definition (within a tolerance where the schedule says so: rfactor, tree, online, block, and permuted
 * loops of inexact reductions). CASES=20000 SEED=7 in the environment run others; a failure prints what reproduces it. */
#include "test/share.h"
#include "tir/schedule.h"
#include "tir/scheduled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

enum { STAGES = 32, LEAVES = 24, TEXT = 8192, NAME = 48, RETRIES = 2 };

static uint64_t random_state;

static int below(int n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)n);
}

static bool chance(int percent) {
    return below(100) < percent;
}

static int extent(void) {
    static const int extents[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17};
    return chance(1) ? 0 : extents[below((int)(sizeof extents / sizeof *extents))];
}

static bool varies; /* the region has a parameter p */

/* An extent as text: a number, or the parameter. The text lasts for as many calls as a region has extents. */
static const char *size(void) {
    static char texts[8][8];
    static int next;
    char *text = texts[next++ % 8];
    if (varies && chance(50))
        strcpy(text, "p");
    else
        snprintf(text, sizeof texts[0], "%d", extent());
    return text;
}

typedef struct text {
    char data[TEXT];
    size_t length;
} text;

static void say(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->data + t->length, sizeof t->data - t->length, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= sizeof t->data - t->length) abort();
    t->length += (size_t)n;
}

/* ---- regions */

/* An output of two axes; now and then in blocks, as graphs lay values out. */
static void output(text *t, const char *name) {
    static const char *const blocks[] = {"d0/4, d1, d0%4", "d0, d1/4, d1%4", "d1/3, d0, d1%3",
                                         "d0/2, d1/4, d1%4, d0%2"};
    if (chance(25)) say(t, "tensor %s layout (%s)\n", name, blocks[below((int)(sizeof blocks / sizeof *blocks))]);
    say(t, "output %s\n", name);
}

#define SUM "merge acc(0):f32 + other(0):f32\n"

static void maps(text *t) {
    const char *n = size();
    int m = extent(), shift = below(3);
    say(t, "input x f32[%s, %d]\ninput y f32[%d]\n", n, m, m);
    say(t, "map a f32 (i: %s, j: %d) = x[i, j] * 2:f32 + y[j]\n", n, m);
    say(t, "map b f32 (i: %s, j: %d) = a[i, j] + a[i, j + %d where j + %d < %d else 1:f32]\n", n, m, shift, shift, m);
    if (chance(50))
        say(t, "map c f32 (i: %s, j: %d) = max(b[i, %d - j], a[i, j])\n", n, m, m - 1);
    else
        say(t, "map c f32 (j: %d, i: %s) = b[i, j] * a[i, j]\n", m, n);
    output(t, "c");
    if (chance(40)) output(t, "a");
    if (chance(30)) output(t, "b");
}

static void sums(text *t) {
    const char *n = size(), *m = size();
    bool exact = chance(40);
    say(t, "input x f32[%s, %s]\n", n, m);
    if (exact)
        say(t,
            "reduce s f32 exact (i: %s | j: %s) init -inf:f32 = max(acc(0):f32, x[i, j]) merge max(acc(0):f32, other(0):f32)\n",
            n, m);
    else
        say(t, "reduce s f32 (i: %s | j: %s) init 0:f32 = acc(0):f32 + x[i, j] " SUM, n, m);
    say(t, "map c f32 (i: %s, j: %s) = x[i, j] - s[i]\n", n, m);
    output(t, "c");
    if (chance(40)) say(t, "output s\n");
    if (chance(30)) say(t, "map e f32 (i: %s) = abs(s[i])\noutput e\n", n);
}

static void contraction(text *t) {
    const char *n = size(), *m = size(), *k = size();
    say(t, "input x f32[%s, %s]\ninput w f32[%s, %s]\ntensor w constant\ninput b f32[%s]\n", n, k, k, m, m);
    say(t, "reduce C f32 (i: %s, j: %s | k: %s) init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) " SUM, n, m, k);
    if (chance(80))
        say(t, "map D f32 (i: %s, j: %s) = max(C[i, j] + b[j], 0:f32)\n", n, m), output(t, "D");
    else
        output(t, "C");
}

static void two_contractions(text *t) {
    const char *n = size(), *h = size(), *m = size(), *k = size();
    say(t, "input x f32[%s, %s]\ninput w f32[%s, %s]\ninput v f32[%s, %s]\n", n, k, k, h, h, m);
    say(t, "reduce C f32 (i: %s, j: %s | k: %s) init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) " SUM, n, h, k);
    say(t, "map D f32 (i: %s, j: %s) = max(C[i, j], 0:f32)\n", n, h);
    say(t, "reduce E f32 (i: %s, j: %s | k: %s) init 0:f32 = muladd(D[i, k], v[k, j], acc(0):f32) " SUM, n, m, h);
    say(t, "map F f32 (i: %s, j: %s) = E[i, j] * 0.5:f32\n", n, m);
    output(t, "F");
    if (chance(20)) output(t, "D");
}

static void convolution(text *t) {
    int c = 1 + below(5), o = 1 + below(9), h = 1 + below(7), w = 1 + below(14), kernel = 1 + 2 * below(2),
        s = 1 + below(2);
    int pad = kernel / 2, oh = (h + s - 1) / s, ow = (w + s - 1) / s;
    say(t, "input x f32[%d, %d, %d]\ninput f f32[%d, %d, %d, %d]\ntensor f constant\n", c, h, w, o, c, kernel, kernel);
    say(t, "reduce O f32 (co: %d, h: %d, w: %d | ci: %d, kh: %d, kw: %d) init 0:f32 where ", o, oh, ow, c, kernel,
        kernel);
    say(t, "0 <= h*%d + kh - %d && h*%d + kh - %d < %d && 0 <= w*%d + kw - %d && w*%d + kw - %d < %d = ", s, pad, s,
        pad, h, s, pad, s, pad, w);
    say(t, "muladd(x[ci, h*%d + kh - %d, w*%d + kw - %d], f[co, ci, kh, kw], acc(0):f32) " SUM, s, pad, s, pad);
    say(t, "map Y f32 (co: %d, h: %d, w: %d) = max(O[co, h, w], 0:f32)\noutput Y\n", o, oh, ow);
}

static void arg_max(text *t) {
    const char *n = size(), *m = size();
    say(t, "input x f32[%s, %s]\nreduce a (av: f32, at: i32) (i: %s | j: %s) init {-inf:f32, 0:i32} = ", n, m, n, m);
    say(t,
        "{select(acc(0):f32 < x[i, j], x[i, j], acc(0):f32), select(acc(0):f32 < x[i, j], cast.i32(j), acc(1):i32)} merge ");
    say(t, "{select(acc(0):f32 < other(0):f32, other(0):f32, acc(0):f32), "
           "select(acc(0):f32 < other(0):f32, other(1):i32, acc(1):i32)}\n");
    if (chance(50)) say(t, "map c f32 (i: %s) = av[i] * 2:f32\noutput c\n", n);
    say(t, "output at\n");
}

static void softmax(text *t) {
    const char *n = size(), *m = size();
    bool columns = chance(30);
    const char *at = columns ? "j, i" : "i, j";
    say(t, "input x f32[%s, %s]\n", columns ? m : n, columns ? n : m);
    say(t,
        "reduce mx f32 exact (i: %s | j: %s) init -inf:f32 = max(acc(0):f32, x[%s]) merge max(acc(0):f32, other(0):f32)\n",
        n, m, at);
    if (columns)
        say(t, "map ex f32 (j: %s, i: %s) = exp(x[j, i] - mx[i])\n", m, n);
    else
        say(t, "map ex f32 (i: %s, j: %s) = exp(x[i, j] - mx[i])\n", n, m);
    say(t, "reduce sm f32 (i: %s | j: %s) init 0:f32 = acc(0):f32 + ex[%s] " SUM, n, m, at);
    if (columns)
        say(t, "map sc f32 (j: %s, i: %s) = ex[j, i] / sm[i]\noutput sc\n", m, n);
    else
        say(t, "map sc f32 (i: %s, j: %s) = ex[i, j] / sm[i]\noutput sc\n", n, m);
    if (chance(20)) say(t, "output mx\n");
}

static void causal(text *t) {
    int n = 1 + below(17), d = 1 + below(8);
    say(t, "input q f32[%d, %d]\ninput k f32[%d, %d]\ninput v f32[%d, %d]\n", n, d, n, d, n, d);
    say(t, "reduce s f32 (q: %d, k: %d | d: %d) init 0:f32 = muladd(q[q, d], k[k, d], acc(0):f32) " SUM, n, n, d);
    say(t,
        "reduce m f32 exact (q: %d | k: %d) init -inf:f32 where k <= q = max(acc(0):f32, s[q, k]) "
        "merge max(acc(0):f32, other(0):f32)\n",
        n, n);
    say(t, "map p f32 (q: %d, k: %d) = exp(s[q, k] - m[q])\n", n, n);
    say(t, "reduce l f32 (q: %d | k: %d) init 0:f32 where k <= q = acc(0):f32 + p[q, k] " SUM, n, n);
    say(t, "reduce o f32 (q: %d, d: %d | k: %d) init 0:f32 where k <= q = muladd(p[q, k], v[k, d], acc(0):f32) " SUM, n,
        d, n);
    say(t, "map y f32 (q: %d, d: %d) = o[q, d] / l[q]\noutput y\n", n, d);
}

static void running(text *t) {
    const char *n = size();
    int m = extent();
    say(t, "input x f32[%s, %d]\nfold s f32 (b: %s | t: %d) init 0:f32\n", n, m, n, m);
    say(t, "map st f32 in s (b: %s, t: %d) = s[b] %s + x[b, t]\nnext s = st[b, t]\n", n, m,
        chance(50) ? "" : "* 0.5:f32");
    if (chance(60)) say(t, "map y f32 (b: %s, t: %d) = st[b, %d - t]\noutput y\n", n, m, m - 1);
    if (chance(40)) say(t, "output st\n");
    say(t, "map z f32 (b: %s) = s[b]\noutput z\n", n);
}

static void scattered(text *t) {
    const char *u = size(), *m = size();
    int n = 1 + below(9);
    say(t, "input x f32[%s, %s]\ninput ix i32[%s]\n", u, m, u);
    say(t, "scatter S f32 (i: %d, j: %s | u: %s) init 0:f32 at [cast.index(ix[u]), j] = acc(0):f32 + x[u, j]\n", n, m,
        u);
    say(t, "map y f32 (i: %d, j: %s) = S[i, j] * 2:f32\noutput y\n", n, m);
}

/* softmax as a value of its own, then a weighted sum */
static void attention(text *t) {
    const char *n = size(), *k = size();
    int d = 1 + below(5);
    bool scaled = chance(50);
    say(t, "input s f32[%s, %s]\ninput v f32[%s, %d]\n", n, k, k, d);
    say(t,
        "reduce m f32 exact (q: %s | k: %s) init -inf:f32 = max(acc(0):f32, s[q, k]) merge max(acc(0):f32, other(0):f32)\n",
        n, k);
    say(t, "map e f32 (q: %s, k: %s) = exp((s[q, k] - m[q])%s)\n", n, k, scaled ? " * 0.5:f32" : "");
    say(t, "reduce l f32 (q: %s | k: %s) init 0:f32 = acc(0):f32 + e[q, k] " SUM, n, k);
    say(t, "map p f32 (q: %s, k: %s) = e[q, k] / l[q]\n", n, k);
    say(t, "reduce o f32 (q: %s, d: %d | k: %s) init 0:f32 = muladd(p[q, k], v[k, d], acc(0):f32) " SUM, n, d, k);
    say(t, "map y f32 (q: %s, d: %d) = o[q, d]\noutput y\n", n, d);
    if (chance(20)) say(t, "output p\n");
}

static void recurrence(text *t) {
    const char *b = size(), *n = size();
    int h = 1 + below(9), i = 1 + below(5);
    say(t,
        "input x f32[%s, %s, %d]\ninput w f32[%d, %d]\ninput u f32[%d, %d]\nfold h f32[%d] (b: %s | t: %s) init 0.25:f32\n",
        b, n, i, h, h, i, h, h, b, n);
    say(t, "reduce xu f32 in h (b: %s, t: %s, j: %d | k: %d) init 0:f32 = muladd(x[b, t, k], u[k, j], acc(0):f32) " SUM,
        b, n, h, i);
    say(t, "reduce g f32 in h (b: %s, j: %d | k: %d) init 0:f32 = muladd(h[b, k], w[k, j], acc(0):f32) " SUM, b, h, h);
    say(t, "map n f32 in h (b: %s, t: %s, j: %d) = g[b, j] * 0.1:f32 + xu[b, t, j]\nnext h = n[b, t, 0]\n", b, n, h);
    if (chance(60)) say(t, "map y f32 (t: %s, b: %s, j: %d) = n[b, t, j]\noutput y\n", n, b, h);
    say(t, "map z f32 (b: %s, j: %d) = h[b, j]\noutput z\n", b, h);
}

static void random_region(text *t) {
    static void (*const kinds[])(text *) = {maps,    sums,   contraction, two_contractions, convolution, arg_max,
                                            softmax, causal, running,     scattered,        attention,   recurrence};
    varies = chance(25);
    say(t, "region r excess%s\n", varies ? " params(p: 0..40)" : "");
    kinds[below((int)(sizeof kinds / sizeof *kinds))](t);
}

/* ---- schedules */

typedef struct stage_info {
    char name[NAME];
    char leaf[LEAVES][NAME];
    bool reduce[LEAVES];
    int leaves, space;
    bool inexact, fold;
} stage_info;

typedef struct generator {
    text region, rewrites, loops;
    stage_info stage[STAGES];
    /* names: counter */
    int stages, names;
    char tensor[STAGES][NAME];
    int tensors;
    bool tolerant;
} generator;

/* What the rewritten region consists of; false: the rewrites are refused. */
static bool inspect(generator *g, const char *rewrites) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) {
        lib_arena_free(&arena);
        return false;
    }
    tir_pool *pool = LIB_NEW(&arena, tir_pool);
    tir_pool_init(pool, &arena);
    lib_lexer lexer;
    lib_lexer_init(&lexer, &arena, "region", g->region.data, g->region.length);
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(&arena, pool, &lexer);
    tir_schedule schedule;
    tir_schedule_init(&schedule, &arena);
    lib_text_add(&schedule.text, rewrites);
    tir_schedule_rewrite(region, &schedule, NULL);
    g->stages = g->tensors = 0;
    for (uint32_t s = 0; s < region->stages.count && g->stages < STAGES; s++) {
        const tir_stage *stage = &region->stages.data[s];
        if (stage->removed) continue;
        stage_info *info = &g->stage[g->stages++];
        *info = (stage_info){
            .space = stage->space, .inexact = stage->kind != TIR_MAP && !stage->exact, .fold = stage->kind == TIR_FOLD};
        snprintf(info->name, NAME, "%s", stage->name);
        for (int a = 0; a < stage->space + stage->reduce; a++) {
            snprintf(info->leaf[a], NAME, "%s", stage->axis[a].name);
            info->reduce[a] = a >= stage->space;
            info->leaves++;
        }
    }
    for (uint32_t i = 0; i < region->tensors.count && g->tensors < STAGES; i++)
        snprintf(g->tensor[g->tensors++], NAME, "%s", region->tensors.data[i].name);
    lib_arena_free(&arena);
    return true;
}

static stage_info *any_stage(generator *g) {
    return &g->stage[below(g->stages)];
}
static int any_leaf(const stage_info *s) {
    return below(s->leaves);
}

static bool accepted(generator *g, const char *rewrites, const char *loops) {
    static char schedule[2 * TEXT + 32];
    snprintf(schedule, sizeof schedule, "rewrite:\n%sloops:\n%s", rewrites, loops);
    scheduled_report report;
    scheduled_outcome outcome = scheduled_run(g->region.data, schedule, 0, 1, false, &report);
    free(report.kernel);
    if (outcome == SCHEDULED_FAILS) fail_msg("%s\n%s\n%s", g->region.data, schedule, report.message);
    return outcome == SCHEDULED_AGREES;
}

static void add_rewrite(generator *g) {
    text line = {{0}, 0}, all = g->rewrites;
    const stage_info *s = any_stage(g), *fold = NULL;
    for (int i = 0; i < g->stages; i++)
        if (g->stage[i].fold) fold = &g->stage[i];
    int leaf = s->leaves ? any_leaf(s) : 0, n = g->names++;
    switch (below(8)) {
    case 7:
        if (!s->leaves) return;
        say(&line, "expand %s.%s %d -> outer%d inner%d\n", s->name, s->leaf[leaf], 2 + below(3), n, n);
        break;
    case 6: say(&line, "collapse\n"); break;
    case 4:
        if (!fold && (!s->leaves || !s->reduce[leaf])) return;
        if (!fold)
            say(&line, "online %s.%s %d -> fold%d r%d\n", s->name, s->leaf[leaf], 1 + below(9), n, n);
        else if (chance(40))
            say(&line, "scan %s.%s %d -> level%d r%d t%d\n", fold->name, fold->leaf[fold->leaves - 1], 1 << below(4), n,
                n, n);
        else
            say(&line, "block %s.%s %d -> total%d prefix%d r%d t%d\n", fold->name, fold->leaf[fold->leaves - 1],
                1 + below(9), n, n, n, n);
        break;
    case 5: say(&line, "hoist %s %s\n", s->name, fold ? fold->name : s->name); break;
    case 0: say(&line, "inline %s\n", s->name); break;
    case 1: say(&line, "copy %s -> copy%d\n", g->tensor[below(g->tensors)], n); break;
    case 2: {
        if (!s->leaves || s->space < 1) return;
        int d = below(s->space), block = 1 << below(4);
        say(&line, "layout %s (", s->name);
        say(&line, "%s/%d", s->leaf[d], block);
        for (int a = 0; a < s->space; a++)
            if (a != d) say(&line, ", %s", s->leaf[a]);
        say(&line, ", %s%%%d)\n", s->leaf[d], block);
        break;
    }
    default:
        if (!s->leaves || !s->reduce[leaf]) return;
        say(&line, "rfactor %s.%s %d %s -> part%d r%d t%d\n", s->name, s->leaf[leaf], 2 << below(3),
            chance(50)   ? "lanes"
            : chance(50) ? "chunks"
                         : "chunks of 4",
            n, n, n);
        if (chance(40)) say(&line, "tree %s.r%d\n", s->name, n);
        break;
    }
    say(&all, "%s", line.data);
    if (!accepted(g, all.data, "") || !inspect(g, all.data)) {
        inspect(g, g->rewrites.data);
        return;
    }
    if (strncmp(line.data, "rfactor", 7) == 0 || strncmp(line.data, "online", 6) == 0 ||
        strncmp(line.data, "block", 5) == 0 || strncmp(line.data, "scan", 4) == 0)
        g->tolerant = true;
    g->rewrites = all;
}

static void shuffle(stage_info *s) {
    for (int i = s->leaves - 1; i > 0; i--) {
        int k = below(i + 1);
        char name[NAME];
        bool reduce = s->reduce[i];
        memcpy(name, s->leaf[i], NAME);
        memcpy(s->leaf[i], s->leaf[k], NAME);
        memcpy(s->leaf[k], name, NAME);
        s->reduce[i] = s->reduce[k];
        s->reduce[k] = reduce;
    }
}

static bool split_leaf(generator *g, stage_info *s, text *line) {
    static const char *const modes[] = {"mask", "mask", "peel", "balanced", "overlap"};
    int leaf = any_leaf(s), n = g->names++;
    if (s->leaves + 1 >= LEAVES) return false;
    say(line, "split %s.%s %d -> a%d b%d %s\n", s->name, s->leaf[leaf], 1 + below(9), n, n, modes[below(5)]);
    memmove(s->leaf[leaf + 1], s->leaf[leaf], (size_t)(s->leaves - leaf) * NAME);
    memmove(&s->reduce[leaf + 1], &s->reduce[leaf], (size_t)(s->leaves - leaf) * sizeof(bool));
    snprintf(s->leaf[leaf], NAME, "a%d", n);
    snprintf(s->leaf[leaf + 1], NAME, "b%d", n);
    s->leaves++;
    return true;
}

static void add_loop(generator *g) {
    text line = {{0}, 0}, all = g->loops;
    stage_info *s = any_stage(g), before = *s;
    bool tolerant = g->tolerant;
    if (!s->leaves) return;
    const char *leaf = s->leaf[any_leaf(s)];
    switch (below(13)) {
    case 0:
    case 1:
    case 2:
        if (!split_leaf(g, s, &line)) return;
        break;
    case 3: {
        shuffle(s);
        int reductions = 0;
        say(&line, "order %s:", s->name);
        for (int i = 0; i < s->leaves; i++) {
            say(&line, " %s", s->leaf[i]);
            reductions += s->reduce[i];
        }
        say(&line, "\n");
        if (s->inexact && reductions > 1) tolerant = true;
        break;
    }
    case 4:
    case 5: {
        const stage_info *owner = any_stage(g);
        if (owner->leaves) say(&line, "at %s %s.%s\n", s->name, owner->name, owner->leaf[any_leaf(owner)]);
        break;
    }
    case 6: say(&line, "store %s %s\n", s->name, (const char *[]){"reg", "stack", "local"}[below(3)]); break;
    case 7: say(&line, "vec %s.%s\n", s->name, leaf); break;
    case 8: say(&line, "unroll %s.%s\n", s->name, leaf); break;
    case 9: say(&line, "par %s.%s\n", s->name, s->leaf[0]); break;
    case 10: say(&line, "clip %s.%s\n", s->name, leaf); break;
    case 11:
        say(&line, "partial %s.%s %d\n", s->name, leaf, 1 + below(9));
        tolerant = tolerant || s->inexact;
        break;
    default: {
        int a = s->leaves > 1 ? below(s->leaves - 1) : -1, n = g->names++;
        if (a < 0) return;
        say(&line, "fuse %s.%s %s.%s -> f%d\n", s->name, s->leaf[a], s->name, s->leaf[a + 1], n);
        snprintf(s->leaf[a], NAME, "f%d", n);
        memmove(s->leaf[a + 1], s->leaf[a + 2], (size_t)(s->leaves - a - 2) * NAME);
        memmove(&s->reduce[a + 1], &s->reduce[a + 2], (size_t)(s->leaves - a - 2) * sizeof(bool));
        s->leaves--;
    }
    }
    say(&all, "%s", line.data);
    if (!accepted(g, g->rewrites.data, all.data)) {
        *s = before;
        return;
    }
    g->tolerant = tolerant;
    g->loops = all;
}

static void fail_case(uint64_t seed, const text *region, const char *schedule, const scheduled_report *report) {
    print_error("%s", region->data); /* one message would be cut off */
    print_error("%s", schedule);
    for (const char *at = report->kernel; at && *at; at += strcspn(at, "\n") + 1)
        print_error("%.*s\n", (int)strcspn(at, "\n"), at);
    fail_msg("SEED=%llu: %s", (unsigned long long)seed, report->message);
}

static void test_random(void **state) {
    (void)state;
    static generator g;
    static char schedule[2 * TEXT + 32];
    const char *cases = getenv("CASES"), *seed = getenv("SEED");
    int count = cases ? atoi(cases) : getenv("DLC_TEST_LONG") ? 500000 : test_some(4000);
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    for (uint64_t i = first; i < first + (uint64_t)count; i++) {
        random_state = i * 0x9e3779b97f4a7c15u;
        g = (generator){.stages = 0};
        random_region(&g.region);
        assert_true(inspect(&g, ""));
        for (int n = below(5); n > 0; n--) add_rewrite(&g);
        inspect(&g, g.rewrites.data);
        for (int n = below(16); n > 0; n--) add_loop(&g);
        snprintf(schedule, sizeof schedule, "rewrite:\n%sloops:\n%s", g.rewrites.data, g.loops.data);
        scheduled_report report;
        scheduled_outcome outcome = scheduled_run(g.region.data, schedule, g.tolerant ? 2e-5 : 0, i, true, &report);
        if (outcome != SCHEDULED_AGREES) fail_case(i, &g.region, schedule, &report);
        free(report.kernel);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests_name("tir/schedule_random", tests, NULL, NULL);
}
