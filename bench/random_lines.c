/* Each family draws sizes until the case takes neither nanoseconds nor long, and its tensors are of a few MB: half of them odd, some small, some
 * long. */
#include "bench/random_lines.h"

#include <stdbool.h>
#include <stdio.h>

#define SAY(...) snprintf(line, BENCH_RANDOM_LINE, __VA_ARGS__)
#define LEAST_FLOPS 3e5
#define LARGEST_FLOPS 6e8
#define LARGEST_TENSOR (8 << 20) /* elements */

enum { RANK = 4 };

static bool one_in(bench_draw *s, int64_t n) {
    return bench_draw_below(s, n) == 0;
}

static bool fits(double flops, int64_t x, int64_t w, int64_t y) {
    return flops >= LEAST_FLOPS && flops <= LARGEST_FLOPS && x <= LARGEST_TENSOR && w <= LARGEST_TENSOR &&
           y <= LARGEST_TENSOR;
}

/* ---- products */

static void product(bench_draw *s, char *line, bool batched, const char *rest) {
    int64_t b, m, n, k;
    do {
        b = batched ? bench_draw_size(s, 2, 64, 1) : 1;
        m = one_in(s, 4) ? 1 : bench_draw_size(s, 2, one_in(s, 3) ? 12 : one_in(s, 2) ? 1200 : 20000, 1);
        n = one_in(s, 3) ? bench_draw_size(s, 1, 16, 1) : bench_draw_size(s, 8, 4096, one_in(s, 3) ? 8 : 1);
        k = one_in(s, 4)   ? bench_draw_size(s, 2, 64, 1)
            : one_in(s, 3) ? bench_draw_size(s, 1000, 60000, 1)
                           : bench_draw_size(s, 8, 4096, one_in(s, 3) ? 8 : 1);
    } while (!fits(2.0 * (double)(b * m * n) * (double)k, b * m * k, b * n * k, b * m * n));
    SAY("contraction any b=%d m=%d n=%d k=%d%s", (int)b, (int)m, (int)n, (int)k, rest);
}
static void weights(bench_draw *s, char *line) {
    product(s, line, false, BENCH_PICK(s, "", "", " bias act=relu", " bias act=gelu"));
}
static void given(bench_draw *s, char *line) {
    product(s, line, false, " const=0");
}
static void batched(bench_draw *s, char *line) {
    product(s, line, true, " const=0");
}
static void narrow(bench_draw *s, char *line) {
    product(s, line, false,
            BENCH_PICK(s, " dtype=bf16", " dtype=bf16 const=0", " bias act=relu dtype=bf16", " dtype=u8 out=f32",
                       " dtype=u8", " bias act=relu dtype=u8 out=u8"));
}

/* ---- convolutions */

typedef enum grouping { DENSE, GROUPED, DEPTHWISE } grouping;

static void images(bench_draw *s, char *line, grouping kind, const char *rest) {
    int64_t n, ci, co, g, h, w, kh, kw, stride, dilation, pad, oh, ow;
    do {
        n = one_in(s, 4) ? bench_draw_size(s, 2, 16, 1) : 1;
        g = kind == GROUPED ? bench_draw_size(s, 2, 32, 1) : kind == DEPTHWISE ? bench_draw_size(s, 3, 600, 1) : 1;
        ci = kind == GROUPED ? g * bench_draw_size(s, 1, 32, 1) : kind == DEPTHWISE ? g : bench_draw_size(s, 1, 512, 1);
        co = kind == GROUPED ? g * bench_draw_size(s, 1, 32, 1) : kind == DEPTHWISE ? g : bench_draw_size(s, 4, 512, 1);
        h = one_in(s, 5) ? 1 : bench_draw_size(s, 5, 160, 1);
        w = h > 1 && one_in(s, 2) ? h : bench_draw_size(s, 5, 300, 1);
        kh = h == 1 ? 1 : one_in(s, 2) ? 3 : 1 + bench_draw_below(s, 7);
        kw = h > 1 && !one_in(s, 5) ? kh : 1 + 2 * bench_draw_below(s, 5);
        stride = one_in(s, 2) ? 1 : 1 + bench_draw_below(s, 3);
        dilation = kh * kw > 1 && one_in(s, 5) ? 2 : 1;
        pad = kh == kw && one_in(s, 2) ? (kh - 1) * dilation / 2 : 0;
        oh = (h + 2 * pad - (kh - 1) * dilation - 1) / stride + 1;
        ow = (w + 2 * pad - (kw - 1) * dilation - 1) / stride + 1;
    } while (h + 2 * pad <= (kh - 1) * dilation || w + 2 * pad <= (kw - 1) * dilation ||
             !fits(2.0 * (double)(n * co * oh * ow) * (double)(ci / g * kh * kw), n * ci * h * w, co * ci / g * kh * kw,
                   n * co * oh * ow));
    SAY("convolution any n=%d ci=%d co=%d h=%d w=%d kh=%d kw=%d stride=%d pad=%d groups=%d dilation=%d%s", (int)n,
        (int)ci, (int)co, (int)h, (int)w, (int)kh, (int)kw, (int)stride, (int)pad, (int)g, (int)dilation, rest);
}
static void dense(bench_draw *s, char *line) {
    images(s, line, DENSE, BENCH_PICK(s, "", "", "", " blocked", " dtype=bf16", " dtype=u8"));
}
static void grouped(bench_draw *s, char *line) {
    images(s, line, GROUPED, "");
}
static void depthwise(bench_draw *s, char *line) {
    images(s, line, DEPTHWISE, "");
}

/* ---- rows, moves, maps, windows */

static void rows(bench_draw *s, char *line) {
    const int64_t length = one_in(s, 3) ? bench_draw_size(s, 3, 64, 1) : bench_draw_size(s, 64, 50000, 1),
                  most = LARGEST_TENSOR / 2 / length, count = bench_draw_size(s, 1, most < 2 ? 2 : most, 1);
    SAY("row %s shape=%dx%d",
        BENCH_PICK(s, "softmax", "softmax", "layer_norm", "layer_norm", "rms_norm", "log_softmax", "logsumexp",
                   "argmax"),
        (int)count, (int)length);
}

/* Draws dimensions, and writes them as `text`, with x between them. Returns their number. */
static int dimensions(bench_draw *s, int64_t dims[RANK], char *text, size_t size) {
    int64_t points;
    int rank;
    do {
        rank = 2 + (int)bench_draw_below(s, RANK - 1);
        points = 1;
        for (int d = 0; d < rank; d++) points *= dims[d] = bench_draw_size(s, 2, 300, 1);
    } while (points > LARGEST_TENSOR / 2 || points < 1000);
    for (int d = 0, at = 0; d < rank; d++)
        at += snprintf(text + at, size - (size_t)at, "%s%d", d ? "x" : "", (int)dims[d]);
    return rank;
}

static void reductions(bench_draw *s, char *line) {
    int64_t dims[RANK];
    char shape[64], axes[32];
    const int rank = dimensions(s, dims, shape, sizeof shape);
    const char *name = BENCH_PICK(s, "reduce_sum", "reduce_max", "cumsum");
    const int only = (int)bench_draw_below(s, rank);
    int at = 0;
    for (int d = 0; d < rank; d++)
        if (d == only || (name[0] == 'r' && one_in(s, 2)))
            at += snprintf(axes + at, sizeof axes - (size_t)at, "%s%d", at ? "," : "", d);
    SAY("row %s shape=%s axis=%s", name, shape, axes);
}

static void transpose(bench_draw *s, char *line) {
    int64_t dims[RANK];
    char shape[64], order[32];
    int rank, perm[RANK];
    bool moves = false;
    do {
        rank = dimensions(s, dims, shape, sizeof shape);
        for (int d = 0; d < rank; d++) perm[d] = d;
        for (int d = rank - 1; d > 0; d--) {
            const int other = (int)bench_draw_below(s, d + 1), kept = perm[d];
            perm[d] = perm[other];
            perm[other] = kept;
        }
        for (int d = 0; d < rank; d++) moves = moves || perm[d] != d;
    } while (!moves);
    for (int d = 0, at = 0; d < rank; d++)
        at += snprintf(order + at, sizeof order - (size_t)at, "%s%d", d ? "," : "", perm[d]);
    SAY("move transpose shape=%s perm=%s", shape, order);
}

static void concatenation(bench_draw *s, char *line) {
    const int64_t parts = 2 + bench_draw_below(s, 5);
    int64_t a, b;
    do a = bench_draw_size(s, 1, 600, 1), b = bench_draw_size(s, 1, 2500, 1);
    while (parts * a * b > LARGEST_TENSOR / 2 || parts * a * b < 1000);
    SAY("move concat shape=%dx(%dx%d) axis=%d", (int)parts, (int)a, (int)b, (int)bench_draw_below(s, 2));
}

static void windows(bench_draw *s, char *line) {
    const int64_t k = 2 + bench_draw_below(s, 4);
    SAY("window %s shape=%dx%dx%dx%d k=%d stride=%d pad=%d", BENCH_PICK(s, "max_pool", "average_pool"),
        (int)bench_draw_size(s, 1, 8, 1), (int)bench_draw_size(s, 3, 200, 1), (int)bench_draw_size(s, 7, 112, 1),
        (int)bench_draw_size(s, 7, 112, 1), (int)k, (int)(1 + bench_draw_below(s, 3)), one_in(s, 2) ? (int)k / 2 : 0);
}

static void maps(bench_draw *s, char *line) {
    SAY("map %s shape=%d", BENCH_PICK(s, "gelu(a*x+b)", "add", "silu*gate", "20xmuladd"),
        (int)bench_draw_size(s, 1000, LARGEST_TENSOR / 2, 1));
}

/* Causal ones of single images: oneDNN 3.6 computes wrong results of several. */
static void attention(bench_draw *s, char *line) {
    static const int64_t dims[] = {16, 32, 40, 64, 64, 80, 96, 128};
    int64_t b, heads, queries, keys, dim;
    do {
        dim = dims[bench_draw_below(s, sizeof dims / sizeof *dims)];
        b = one_in(s, 3) ? bench_draw_size(s, 2, 8, 1) : 1, heads = bench_draw_size(s, 1, 20, 1);
        queries = one_in(s, 4) ? 1 : bench_draw_size(s, 2, 900, 1);
        keys = queries > 1 && !one_in(s, 3) ? queries : bench_draw_size(s, 16, 3000, 1);
    } while (!fits(4.0 * (double)(b * heads * queries) * (double)(keys * dim), 0, b * heads * keys * dim, 0));
    SAY("attention b=%d heads=%d queries=%d keys=%d dim=%d%s", (int)b, (int)heads, (int)queries, (int)keys, (int)dim,
        b == 1 && queries > 1 && queries == keys && one_in(s, 3) ? " causal" : "");
}

static void recurrent(bench_draw *s, char *line) {
    SAY("recurrent %s steps=%d b=%d input=%d hidden=%d", BENCH_PICK(s, "lstm", "gru"),
        (int)bench_draw_size(s, 5, 60, 1), one_in(s, 2) ? 1 : (int)bench_draw_size(s, 2, 40, 1),
        (int)bench_draw_size(s, 8, 400, 1), (int)bench_draw_size(s, 8, 400, 1));
}

void bench_random_line(bench_draw *s, char line[BENCH_RANDOM_LINE]) {
    static const struct {
        void (*line)(bench_draw *s, char *line);
        int share;
    } families[] = {{weights, 18},  {given, 12},        {batched, 6}, {narrow, 9},    {dense, 16},
                    {grouped, 4},   {depthwise, 5},     {rows, 9},    {maps, 3},      {reductions, 7},
                    {transpose, 5}, {concatenation, 4}, {windows, 3}, {attention, 7}, {recurrent, 2}};
    int all = 0;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) all += families[f].share;
    int64_t at = bench_draw_below(s, all);
    size_t f = 0;
    for (; at >= families[f].share; f++) at -= families[f].share;
    families[f].line(s, line);
}
