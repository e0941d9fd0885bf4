/* Random shapes, as lines of the families that the fixed cases belong to, and what is expected of them. A random case is held against the
 * fixed cases of its family that are most like it, since the share of the roof that can be had depends on the size and on what limits it:
 * no fixed size stands for all. */
#include "bench/random.h"

#include "bench/draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- families ------------------------------------------------------------------------------------------------------------------ */

enum { LINE = sizeof(((bench_shape *)0)->text) };
/* Smaller cases take little more than the time of a call, which has a figure of its own. */
#define LEAST_FLOPS 2e5
#define LARGEST_FLOPS 1e9
#define LARGEST_TENSOR (1 << 20) /* elements: what moves stays clear of the last cache's edge, where no roof is known */
#define SAY(...) snprintf(line, LINE, __VA_ARGS__)

static void contraction(bench_draw *s, char *line, const char *name, int64_t multiple) {
    int64_t m, n, k;
    do
        m = bench_draw_below(s, 4) ? bench_draw_size(s, 2, 1024, 1) : 1, n = bench_draw_size(s, 8, 4096, multiple),
        k = bench_draw_size(s, 8, 4096, multiple);
    while (2.0 * (double)m * (double)n * (double)k > LARGEST_FLOPS || n * k > 4 * LARGEST_TENSOR);
    SAY("contraction %s b=1 m=%d n=%d k=%d%s", name, (int)m, (int)n, (int)k, BENCH_PICK(s, "", "", " bias act=relu"));
}
static void regular(bench_draw *s, char *line) {
    contraction(s, line, "random", 16);
}
static void odd(bench_draw *s, char *line) {
    contraction(s, line, "random-odd", 1);
}

static void images(bench_draw *s, char *line, bool depthwise) {
    static const int64_t windows[] = {1, 3, 3, 5};
    int64_t ci, co, h, kernel, stride;
    double flops;
    do {
        ci = bench_draw_size(s, 8, 1024, 8), co = depthwise ? ci : bench_draw_size(s, 8, 1024, 8),
        h = bench_draw_size(s, 7, 112, 1);
        kernel = windows[depthwise ? 1 + bench_draw_below(s, 3) : bench_draw_below(s, 4)],
        stride = 1 + (bench_draw_below(s, 4) == 0);
        flops = 2.0 * (double)(co * (h / stride) * (h / stride)) * (double)((depthwise ? 1 : ci) * kernel * kernel);
    } while (flops > LARGEST_FLOPS || flops < 1e6);
    SAY("convolution %s n=1 ci=%d co=%d h=%d w=%d kh=%d kw=%d stride=%d pad=%d groups=%d dilation=1",
        depthwise ? "random-depthwise" : "random", (int)ci, (int)co, (int)h, (int)h, (int)kernel, (int)kernel,
        (int)stride, (int)kernel / 2, (int)(depthwise ? ci : 1));
}
static void convolution(bench_draw *s, char *line) {
    images(s, line, false);
}
static void depthwise(bench_draw *s, char *line) {
    images(s, line, true);
}

static void rows(bench_draw *s, char *line) {
    const char *name =
        BENCH_PICK(s, "softmax", "softmax", "layer_norm", "layer_norm", "rms_norm", "log_softmax", "reduce_sum");
    int64_t length = bench_draw_size(s, 64, 8192, 1), count = bench_draw_size(s, 16, LARGEST_TENSOR / length, 1);
    SAY("row %s shape=%dx%d%s", name, (int)count, (int)length, strcmp(name, "reduce_sum") ? "" : " axis=1");
}

static void maps(bench_draw *s, char *line) {
    SAY("map %s shape=%d", BENCH_PICK(s, "gelu(a*x+b)", "gelu(a*x+b)", "add", "silu*gate", "20xmuladd"),
        (int)bench_draw_size(s, 1 << 14, LARGEST_TENSOR, 1));
}

static void moves(bench_draw *s, char *line) {
    int64_t a = bench_draw_size(s, 32, 2048, 1), b = bench_draw_size(s, 32, 2048, 1);
    switch (bench_draw_below(s, 4)) {
    case 0: SAY("move transpose shape=%dx%d perm=1,0", (int)a, (int)b); break;
    case 1:
        SAY("move transpose shape=%dx%dx%dx%d perm=0,2,3,1", (int)bench_draw_size(s, 1, 8, 1),
            (int)bench_draw_size(s, 8, 128, 1), (int)bench_draw_size(s, 7, 64, 1), (int)bench_draw_size(s, 7, 64, 1));
        break;
    case 2: SAY("move concat shape=2x(%dx%d) axis=1", (int)a, (int)b); break;
    default:
        SAY("move pad shape=8x32x%dx%d 1,1 each side of h,w", (int)bench_draw_size(s, 7, 112, 1),
            (int)bench_draw_size(s, 7, 112, 1));
    }
}

static void attention(bench_draw *s, char *line) {
    static const int64_t dims[] = {32, 64, 64, 128};
    int64_t dim = dims[bench_draw_below(s, 4)], heads = bench_draw_size(s, 1, 16, 1),
            keys = bench_draw_size(s, 48, 1024, 1);
    int64_t queries = bench_draw_below(s, 5) == 0 ? 1 : keys;
    bool causal = queries > 1 && keys >= 256 && bench_draw_below(s, 3) == 0;
    SAY("attention b=1 heads=%d queries=%d keys=%d dim=%d%s", (int)heads, (int)queries, (int)keys, (int)dim,
        causal ? " causal" : "");
}

static const struct {
    void (*line)(bench_draw *s, char *line);
    int count;
} families[] = {{regular, 45}, {odd, 35},  {convolution, 30}, {depthwise, 10},
                {rows, 25},    {maps, 20}, {moves, 15},       {attention, 20}};

void bench_random_shapes(uint64_t seed, bench_shape shapes[BENCH_RANDOM_SHAPES]) {
    bench_draw s = {seed};
    int made = 0;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        for (int i = 0; i < families[f].count && made < BENCH_RANDOM_SHAPES; i++) {
            char line[LINE];
            families[f].line(&s, line);
            bench_shape_parse(&shapes[made++], line);
        }
    }
}

/* ---- what is expected ------------------------------------------------------------------------------------------------------------ */

enum { AXES = 6, NEIGHBOURS = 3, POINTS = 5 };

static double logarithm(double x) {
    return log2(x > 1 ? x : 1);
}

/* Places a case in a space whose distances tell how alike cases of one family are: sizes in powers of two, and switches worth several of
 * these. */
static void place(const bench_outcome *o, double at[AXES]) {
    const bench_shape *s = o->shape;
    memset(at, 0, AXES * sizeof *at);
    if (strcmp(s->kind, "contraction") == 0) {
        at[0] = logarithm((double)bench_number(s, "m", 1)), at[1] = logarithm((double)bench_number(s, "n", 1));
        at[2] = logarithm((double)bench_number(s, "k", 1));
        at[3] = at[0] == 0 ? 8 : 0; /* one row: bound by the weights */
        at[4] = logarithm(o->flops), at[5] = logarithm(o->flops / o->bytes);
    } else if (strcmp(s->kind, "convolution") == 0) {
        at[0] = logarithm((double)bench_number(s, "ci", 1)), at[1] = logarithm((double)bench_number(s, "co", 1));
        at[2] = logarithm((double)(bench_number(s, "h", 1) * bench_number(s, "w", 1))) / 2;
        at[3] = bench_number(s, "kh", 1) > 1 ? 4 : 0, at[4] = bench_number(s, "stride", 1) > 1 ? 4 : 0;
        at[5] = 2 * logarithm(o->flops / o->bytes);
    } else if (strcmp(s->kind, "attention") == 0) {
        at[0] = logarithm((double)bench_number(s, "queries", 1)), at[1] = logarithm((double)bench_number(s, "keys", 1));
        at[2] = logarithm((double)bench_number(s, "dim", 1)), at[3] = bench_flag(s, "causal") ? 4 : 0;
        at[4] = at[0] == 0 ? 8 : 0, at[5] = logarithm(o->flops);
    } else { /* bytes, and those of the innermost axis */
        int64_t dims[DLC_MAX_RANK];
        int rank = bench_numbers(bench_text(s, "shape"), dims);
        at[0] = logarithm(o->bytes);
        at[1] = rank > 1 ? logarithm((double)dims[rank - 1]) / 2 : 0;
    }
}

static bool depthwise_line(const bench_shape *s) {
    return bench_number(s, "groups", 1) > 1 && bench_number(s, "groups", 1) == bench_number(s, "ci", 1);
}

/* Is the fixed case of the random one's family? For rows, maps and moves it must be the same operator. */
static bool alike(const bench_shape *random, const bench_shape *fixed) {
    static const char *const other_forms[] = {"dtype", "const", "blocked", "last", "winograd", "masked", "kv_heads"};
    if (strcmp(random->kind, fixed->kind) != 0) return false;
    for (size_t i = 0; i < sizeof other_forms / sizeof *other_forms; i++)
        if (bench_flag(fixed, other_forms[i])) return false;
    if (strcmp(random->kind, "contraction") == 0)
        return bench_number(fixed, "b", 1) == 1 &&
               (strcmp(random->name, "random-odd") == 0) == (strcmp(fixed->name, "odd") == 0);
    if (strcmp(random->kind, "convolution") == 0) {
        bool plain = bench_number(fixed, "groups", 1) == 1 || depthwise_line(fixed);
        return plain && depthwise_line(random) == depthwise_line(fixed) && !bench_flag(fixed, "transposed") &&
               bench_number(fixed, "dilation", 1) == 1;
    }
    return strcmp(random->name, fixed->name) == 0 || strcmp(random->kind, "attention") == 0;
}

static double share_of(const bench_outcome *o) {
    return 100 * o->roof / o->seconds;
}

/* The least share of the roof among the fixed cases nearest to the random one; -1: the family has none. */
static double expected(const bench_outcome *random, const bench_outcome *fixed, int count) {
    double at[AXES], there[AXES], distances[NEIGHBOURS], shares[NEIGHBOURS];
    int found = 0;
    place(random, at);
    for (int i = 0; i < count; i++) {
        if (!alike(random->shape, fixed[i].shape)) continue;
        place(&fixed[i], there);
        double distance = 0;
        for (int a = 0; a < AXES; a++) distance += (at[a] - there[a]) * (at[a] - there[a]);
        int rank = found;
        while (rank > 0 && distances[rank - 1] > distance) rank--;
        if (rank == NEIGHBOURS) continue;
        found += found < NEIGHBOURS;
        for (int j = found - 1; j > rank; j--) distances[j] = distances[j - 1], shares[j] = shares[j - 1];
        distances[rank] = distance, shares[rank] = share_of(&fixed[i]);
    }
    double least = -1;
    for (int i = 0; i < found; i++) least = i == 0 || shares[i] < least ? shares[i] : least;
    return least;
}

bool bench_random_comparable(const bench_shape *random, const bench_outcome *fixed, int fixed_count) {
    for (int i = 0; i < fixed_count; i++)
        if (alike(random, fixed[i].shape)) return true;
    return false;
}

bool bench_random_below(const bench_outcome *random, const bench_outcome *fixed, int fixed_count) {
    return share_of(random) < expected(random, fixed, fixed_count) - (double)POINTS;
}

bool bench_random_judge(const bench_arena *arena, uint64_t seed, const bench_outcome *random, int random_count,
                        const bench_outcome *fixed, int fixed_count) {
    int judged = 0, below_points = 0;
    for (int i = 0; i < random_count; i++) {
        const bench_outcome *o = &random[i];
        double want = expected(o, fixed, fixed_count), share = share_of(o);
        fprintf(arena->json, "{\"random\":\"%s\",\"seed\":%llu,\"threads\":%d,\"share\":%.4g,\"expected\":%.4g}\n",
                o->shape->text, (unsigned long long)seed, arena->threads, share, want);
        if (want < 0) continue;
        judged++;
        if (!bench_random_below(o, fixed, fixed_count)) continue;
        if (below_points++ == 0) printf("\nrandom shapes below those most like them:\n");
        printf("  %5.1f%% of the roof, %5.1f%%  %s\n", share, want, o->shape->label);
    }
    printf(
        "\nrandom shapes, seed %llu: of %d, %d within %d points of the fixed cases most like them, or above; %d below%s\n",
        (unsigned long long)seed, judged, judged - below_points, POINTS, below_points,
        judged < BENCH_RANDOM_SHAPES ? "; of the others' family no fixed case was measured" : "");
    return below_points == 0;
}
