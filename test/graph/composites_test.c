/* Contractions, windows, random numbers, control flow and composites beyond their samples: with symbolic dimensions,
 * against plain C on values chosen to hurt, against published vectors, and on wrong uses. */
#include "graph/rows.h"
#include "test/share.h"

/* ---- running a graph */

/* Numbers of output 0. inputs[i]: numbers of input i. Symbols become numbers where `bind`, else parameters. */
static double *run(lib_arena *arena, const graph *composite, const int64_t *sizes, bool bind,
                   const double *const *inputs, int64_t *count) {
    const graph *g = graph_decompose(arena, composite);
    dlc_dtype dtype;
    if (bind) g = graph_bind(arena, g, sizes);
    uint64_t *bits = rows_evaluate(arena, g, sizes, inputs, count, &dtype);
    double *numbers = LIB_NEW_ARRAY(arena, double, (size_t)*count);
    for (int64_t p = 0; p < *count; p++)
        numbers[p] =
            lib_dtype_is_integer(dtype) ? (double)(int64_t)bits[p] : tir_bits_to_f64((tir_dtype)dtype, bits[p]);
    return numbers;
}

static const char *text_of_case = "";

static void in_scope(void (*body)(lib_arena *arena)) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) body(&arena);
    lib_arena_free(&arena);
    if (scope.error.status != DLC_OK) fail_msg("%s: %s", text_of_case, scope.error.message);
}

static double random_number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 40) * 0x1p-23 - 1;
}

static double *random_numbers(lib_arena *arena, int64_t count, uint64_t seed) {
    double *numbers = LIB_NEW_ARRAY(arena, double, (size_t)count);
    for (int64_t i = 0; i < count; i++) numbers[i] = random_number(&seed);
    return numbers;
}

static void expect(const double *got, int64_t count, const double *expected, int64_t expected_count, double error) {
    assert_int_equal(count, expected_count);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= error || got[i] == expected[i] || (isnan(got[i]) && isnan(expected[i]))))
            fail_msg("element %lld is %.17g, expected %.17g", (long long)i, got[i], expected[i]);
}

/* ---- symbols: the region over parameters gives the numbers of the graph bound to them */

/* graph, shape of its output as text (NULL: any) */
static const struct {
    const char *text, *shape;
} symbolic[] = {
    {"graph { input x: f32[n, m] input w: f32[m, 3] y = dot_general(x, w, contract_x=[1], contract_w=[0]) output y }",
     "f32[n, 3]"},
    {"graph { input x: f32[n, 4, m] input w: f32[n, m, 3] y = matmul(x, w) output y }", "f32[n, 4, 3]"},
    {"graph { input x: f32[1, 4, m] input w: f32[n, m, 3] y = matmul(x, w) output y }", "f32[n, 4, 3]"},
    {"graph { input x: f32[m, 1, 4, 2] input w: f32[n, 2, 3] y = matmul(x, w) output y }", "f32[m, n, 4, 3]"},
    {"graph { input x: f32[n, m] input w: f32[n, m] y = einsum(x, w, equation=\"ij,kj->ki\") output y }", "f32[n, n]"},
    {"graph { input x: f32[n, n, m] y = einsum(x, equation=\"iij->j\") output y }", "f32[m]"},
    {"graph { input x: f32[n, m] input w: f32[m, 3] y = einsum(x, w, x, equation=\"ij,jk,lj->kli\") output y }",
     "f32[3, n, n]"},
    {"graph { input x: f32[n, 1, 3, m] input w: f32[m, m, 3] y = einsum(x, w, equation=\"...ij,...ji->i...\") output y }",
     NULL},
    {"graph { input x: f32[n, 2, 6, 5] input w: f32[3, 2, 3, 2] y = convolution(x, w, low=[1, 1], high=[0, 1]) output "
     "y }",
     "f32[n, 3, 5, 6]"},
    {"graph { input x: f32[2, 4, n] input w: f32[6, 2, 3] y = convolution(x, w, low=[1], high=[1], stride=[2], "
     "groups=2) output y }",
     NULL},
    {"graph { input x: f32[1, n, 5] input w: f32[m, n, 2] y = convolution(x, w) output y }", "f32[1, m, 4]"},
    {"graph { input x: f32[n, m, 4, 6] y = max_pool(x, window=[2, 3]) output y }", "f32[n, m, 2, 2]"},
    {"graph { input x: f32[1, 1, n, m] y = average_pool(x, window=[2, 2], low=[1, 1], high=[1, 1]) output y }", NULL},
    {"graph { input x: f32[1, 2, 13, 20] input w: f32[3, 2, 3, 2] "
     "y = convolution(x, w, stride=[2, 3], dilation=[4, 5], low=[1, 0], high=[0, 2]) output y }",
     "f32[1, 3, 3, 6]"},
    {"graph { input x: f32[17, 9] y = reduce_window(x, op=max, window=[3, 1], dilation=[5, 1], stride=[2, 4]) output "
     "y }",
     "f32[4, 3]"},
    {"graph { input x: f32[1, 1, 10] y = max_pool(x, window=[3], low=[1]) output y }", "f32[1, 1, 3]"},
    {"graph { input x: f32[n, m] y = softmax(x) output y }", "f32[n, m]"},
    {"graph { input x: f64[n, m] y = logsumexp(x, axes=[0]) output y }", "f64[m]"},
    {"graph { input x: f32[n, m] y = variance(x, axes=[1], correction=1, keep=true) output y }", "f32[n, 1]"},
    {"graph { input x: f32[n, m] input s: f32[m] y = layer_norm(x, s) output y }", "f32[n, m]"},
    {"graph { input x: f16[n, m] y = rms_norm(x, axis=0) output y }", "f16[n, m]"},
    {"graph { input x: f32[n, m, 3] input s: f32[m] y = batch_norm(x, s, s, s, s) output y }", "f32[n, m, 3]"},
    {"graph { input x: bf16[n, m] input w: bf16[m, 5] input b: bf16[5] y = linear(x, w, b) output y }", "bf16[n, 5]"},
    {"graph { input x: f32[n, m] input l: i32[n] y = cross_entropy(x, l) output y }", "f32[n]"},
    {"graph { input x: f32[n, m] input l: i32[m] y = reverse_sequence(x, l) output y }", "f32[n, m]"},
    {"graph { input s: f32[m] input v: f32[n, 2] y = search_sorted(s, v) output y }", "i64[n, 2]"},
    {"graph { input s: f32[n, m] input v: f32[n, 4] y = search_sorted(s, v, right=true) output y }", "i64[n, 4]"},
    {"graph { input x: f32[n, 12, 6] y = col2im(x, image=[3, 4], block=[2, 2]) output y }", "f32[n, 3, 3, 4]"},
    {"graph { input x: f32[n, m + 1] y = center_crop_pad(x, shape=[5, 3]) output y }", "f32[5, 3]"},
    {"graph { input x: f32[4, 9] y = center_crop_pad(x, shape=[n, m]) output y }", "f32[n, m]"},
    {"graph { input x: f32[2, n, 5, 2] input w: f32[8] y = istft(x, w, frame_step=3) output y }", NULL},
    {"graph { y = signal_window(size=[n], function=hamming, periodic=false) output y }", "f32[n]"},
    {"graph { input x: f32[n, m, 3, 3] y = det(x) output y }", "f32[n, m]"},
    {"graph { input x: f32[2, n, n] y = det(x) output y }", "f32[2]"},
    {"graph { input x: u8[n, 4, m] input s: f32[n, 2, m] y = dequantize_linear(x, s, block=2) output y }",
     "f32[n, 4, m]"},
    {"graph { input x: f32[n, 3, m] input s: f32[n, 2, m] y = quantize_linear(x, s, block=2, dtype=i8) output y }",
     "i8[n, 3, m]"},
    {"graph { input x: f32[n, m, n + 1, 3] y, i = max_pool_with_indices(x, window=[2, 2], stride=[1, 1]) output i }",
     "i64[n, m, n, 2]"},
    {"graph { input x: f32[n, m + 1] y = hardmax(x) output y }", "f32[n, m + 1]"},
    {"graph { input x: f32[n, m] y = lp_normalization(x, axis=0) output y }", "f32[n, m]"},
    {"graph { input x: f32[n, m] y = mean_variance_normalization(x, axes=[1]) output y }", "f32[n, m]"},
    {"graph { input x: u8[n, m] input w: i8[m, 3] input z: u8[] y = matmul_integer(x, w, z) output y }", "i32[n, 3]"},
    {"graph { input a: f32[n, m] y = rng_gamma(a, stream=5) output y }", "f32[n, m]"},
    {"graph { y = rng_truncated_normal(shape=[n, m], stream=5) output y }", "f32[n, m]"},
    {"graph { input x: f32[n, 6, 4] y = resize(x, shape=[n*2, 4], axes=[1, 2], mode=linear, aspect=not_larger) output y }",
     NULL},
    {"graph { input x: f32[n, m, 4, 5] input g: f32[n, 2, 3, 2] y = grid_sample(x, g) output y }", "f32[n, m, 2, 3]"},
    {"graph { input x: f32[2, m, 4, 5] input r: f32[n, 4] input i: i64[n] y = roi_align(x, r, i, shape=[2, 2]) output y }",
     "f32[n, m, 2, 2]"},
    {"graph { input t: f32[m, 3] input i: i32[n, 2] y = embedding(t, i) output y }", "f32[n, 2, 3]"},
    {"graph { input i: i32[n] y = one_hot(i, depth=[m]) output y }", "f32[n, m]"},
    {"graph { y = rng_bits(shape=[n, m], stream=5) output y }", "i32[n, m]"},
    {"graph { y = rng_normal(shape=[n, m, 2], stream=5) output y }", "f32[n, m, 2]"},
    {"graph { input q: f32[n, 2, 3, 4] input k: f32[n, 2, m, 4] y = attention(q, k, k, causal=true) output y }",
     "f32[n, 2, 3, 4]"},
    {"graph { input q: f32[2, n*3, 3, m] input k: f32[2, n, 4, m] y = attention(q, k, k) output y }",
     "f32[2, n*3, 3, m]"},
    {"graph { input q: f32[1, n, 3, m] input b: bool[3, 3] y = attention(q, q, q, b) output y }", "f32[1, n, 3, m]"},
};

static int64_t case_sizes[2];
static const char *case_shape;

static void compare_bound(lib_arena *arena) {
    graph *g = rows_parse(arena, text_of_case);
    lib_text text;
    lib_text_init(&text, arena);
    graph_print_shape(&text, g, graph_shape_of(g, g->outputs.data[0]));
    if (case_shape) assert_string_equal(text.data, case_shape);
    const double *inputs[8];
    for (uint32_t i = 0; i < g->inputs.count && i < 8; i++) inputs[i] = random_numbers(arena, 4096, i + 1);
    int64_t of_symbols, of_numbers;
    double *free = run(arena, g, case_sizes, false, inputs, &of_symbols);
    double *bound = run(arena, g, case_sizes, true, inputs, &of_numbers);
    expect(free, of_symbols, bound, of_numbers, 0);
}

static void test_symbolic(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {3, 5}, {7, 2}, {2, 0}};
    for (size_t t = 0; t < sizeof symbolic / sizeof *symbolic; t++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            if (strstr(symbolic[t].text, "embedding") && sizes[k][1] == 0)
                continue; /* a table of no rows is refused at bind */
            text_of_case = symbolic[t].text;
            case_shape = symbolic[t].shape;
            memcpy(case_sizes, sizes[k], sizeof case_sizes);
            in_scope(compare_bound);
        }
}

/* ---- a network */

static const char network[] =
    "graph {\n"
    "  input x: f64[n, 1, 8, 8]\n  input w1: f64[3, 1, 3, 3]\n  input b1: f64[3, 1, 1]\n"
    "  input w2: f64[48, 10]\n  input b2: f64[10]\n"
    "  c = convolution(x, w1, low=[1, 1], high=[1, 1])\n  bb = broadcast(b1, shape=[n, 3, 8, 8], axes=[1, 2, 3])\n"
    "  a = add(c, bb)\n  r = relu(a)\n  p = max_pool(r, window=[2, 2])\n"
    "  f = reshape(p, shape=[n, 48])\n  l = linear(f, w2, b2)\n  y = softmax(l)\n  output y\n}";

static void network_by_hand(const double *const *in, int image, double *out) {
    double pooled[3][4][4], most = -INFINITY, sum = 0;
    for (int c = 0; c < 3; c++)
        for (int h = 0; h < 8; h++)
            for (int w = 0; w < 8; w++) {
                double a = in[2][c];
                for (int i = 0; i < 3; i++)
                    for (int j = 0; j < 3; j++) {
                        int y = h + i - 1, x = w + j - 1;
                        if (y >= 0 && y < 8 && x >= 0 && x < 8)
                            a += in[0][image * 64 + y * 8 + x] * in[1][c * 9 + i * 3 + j];
                    }
                a = a > 0 ? a : 0;
                if ((h % 2 == 0 && w % 2 == 0) || a > pooled[c][h / 2][w / 2]) pooled[c][h / 2][w / 2] = a;
            }
    for (int o = 0; o < 10; o++) {
        out[o] = in[4][o];
        for (int k = 0; k < 48; k++) out[o] += pooled[k / 16][k / 4 % 4][k % 4] * in[3][k * 10 + o];
        if (out[o] > most) most = out[o];
    }
    for (int o = 0; o < 10; o++) sum += exp(out[o] - most);
    for (int o = 0; o < 10; o++) out[o] = exp(out[o] - most) / sum;
}

static void run_network(lib_arena *arena) {
    static const int64_t counts[] = {64 * 3, 27, 3, 480, 10};
    const double *inputs[5];
    for (int i = 0; i < 5; i++) inputs[i] = random_numbers(arena, counts[i], (uint64_t)i + 77);
    int64_t n = 3, count;
    double *got = run(arena, rows_parse(arena, network), &n, true, inputs, &count), expected[30];
    for (int i = 0; i < 3; i++) network_by_hand(inputs, i, expected + i * 10);
    expect(got, count, expected, 30, 1e-14);
}

static void test_network(void **state) {
    (void)state;
    in_scope(run_network);
}

/* ---- values chosen to hurt */

#define NUMBERS(...)   \
    (const double[]) { \
        __VA_ARGS__    \
    }
#define MOST_VALUES 300

/* graph, numbers of its inputs (in order, by their sizes), numbers of its output */
static const struct {
    const char *text;
    const double *inputs[3];
    int64_t count;
    const double *output;
} exact[] = {
    /* padding meets no infinite weight */
    {"graph { input x: f32[1, 1, 2] input w: f32[1, 1, 3] y = convolution(x, w, low=[1], high=[1]) output y }",
     {NUMBERS(1, 2), NUMBERS(INFINITY, 1, -INFINITY)},
     2,
     NUMBERS(-INFINITY, INFINITY)},
    {"graph { input x: f32[1, 1, 1] input w: f32[1, 1, 3] y = convolution(x, w, low=[1], high=[1]) output y }",
     {NUMBERS(3), NUMBERS(NAN, 2, INFINITY)},
     1,
     NUMBERS(6)},
    /* windows on padding alone */
    {"graph { input x: f32[1] y = reduce_window(x, op=max, window=[2], low=[3]) output y }",
     {NUMBERS(5)},
     3,
     NUMBERS(-INFINITY, -INFINITY, 5)},
    {"graph { input x: i8[1] y = reduce_window(x, op=min, window=[1], high=[1]) output y }",
     {NUMBERS(-5)},
     2,
     NUMBERS(-5, 127)},
    {"graph { input x: f32[2] y = reduce_window(x, op=sum, window=[1], low=[1], stride=[2]) output y }",
     {NUMBERS(4, 6)},
     2,
     NUMBERS(0, 6)},
    /* what lies outside meets no infinite element */
    {"graph { input x: f32[1, 1, 1, 2] input g: f32[1, 1, 2, 2] y = grid_sample(x, g) output y }",
     {NUMBERS(INFINITY, 3), NUMBERS(-3, 0, 0.5, 0)},
     2,
     NUMBERS(0, 3)},
    {"graph { input x: f32[1, 1, 1, 2] input r: f32[1, 4] input i: i32[1] y = roi_align(x, r, i, shape=[1, 1]) output y }",
     {NUMBERS(INFINITY, 3), NUMBERS(-9, 0, -8, 1), NUMBERS(0)},
     1,
     NUMBERS(0)},
    {"graph { input x: f32[1, 1, 4] y, i = max_pool_with_indices(x, window=[2], stride=[1], low=[3], dilation=[2]) output i }",
     {NUMBERS(1, NAN, -INFINITY, NAN)},
     5,
     NUMBERS(-1, 0, 1, 0, 1)},
    {"graph { input x: f32[1, 2, 2] y, i = max_pool_with_indices(x, window=[2]) output i }",
     {NUMBERS(-INFINITY, -INFINITY, 2, 3)},
     2,
     NUMBERS(0, 3)},
    /* what orders: NaN comes last, and counts as greatest */
    {"graph { input s: f32[5] input v: f32[6] y = search_sorted(s, v) output y }",
     {NUMBERS(-INFINITY, 1, 1, INFINITY, NAN), NUMBERS(-INFINITY, 1, 2, INFINITY, NAN, -3)},
     6,
     NUMBERS(0, 1, 3, 3, 4, 1)},
    {"graph { input s: f32[5] input v: f32[6] y = search_sorted(s, v, right=true) output y }",
     {NUMBERS(-INFINITY, 1, 1, INFINITY, NAN), NUMBERS(-INFINITY, 1, 2, INFINITY, NAN, -3)},
     6,
     NUMBERS(1, 3, 3, 4, 5, 1)},
    {"graph { input x: f32[2, 4] y = arg_max(x, axis=1, last=true) output y }",
     {NUMBERS(1, NAN, 3, NAN, -INFINITY, -INFINITY, -INFINITY, -INFINITY)},
     2,
     NUMBERS(3, 3)},
    {"graph { input x: f32[2, 3] y = hardmax(x) output y }",
     {NUMBERS(1, NAN, NAN, 2, 5, 5)},
     6,
     NUMBERS(0, 1, 0, 0, 1, 0)},
    {"graph { input p: f32[5] y = normal_quantile(p) output y }",
     {NUMBERS(0, 1, 0.5, -0.25, NAN)},
     5,
     NUMBERS(-INFINITY, INFINITY, 0, NAN, NAN)},
    {"graph { input x: f32[2, 3] y = lp_normalization(x) output y }",
     {NUMBERS(3, 0, 4, 0, 0, 0)},
     6,
     NUMBERS(0.6f, 0, 0.8f, 0, 0, 0)},
    {"graph { input x: f32[2] input s: f32[] y = quantize_linear(x, s, dtype=u16) output y }",
     {NUMBERS(-1, 1e30), NUMBERS(1)},
     2,
     NUMBERS(0, 65535)},
    /* the specification's examples of ONNX ScatterElements and ScatterND */
    {"graph { input x: f32[1, 5] input i: i64[1, 2] input u: f32[1, 2] y = scatter_elements(x, i, u, axis=1, combine=add) "
     "output y }",
     {NUMBERS(1, 2, 3, 4, 5), NUMBERS(1, 1), NUMBERS(1.5, 2.5)},
     5,
     NUMBERS(1, 6, 3, 4, 5)},
    {"graph { input x: f32[8] input i: i64[4, 1] input u: f32[4] y = scatter_nd(x, i, u) output y }",
     {NUMBERS(1, 2, 3, 4, 5, 6, 7, 8), NUMBERS(4, 3, 1, 7), NUMBERS(9, 10, 11, 12)},
     8,
     NUMBERS(1, 11, 3, 10, 9, 6, 7, 12)},
    {"graph { input x: f32[1, 1, 3] y = max_pool(x, window=[2], stride=[1]) output y }",
     {NUMBERS(1, NAN, -INFINITY)},
     2,
     NUMBERS(NAN, NAN)},
    {"graph { input x: f16[1, 1, 4] y = average_pool(x, window=[4]) output y }",
     {NUMBERS(60000, 60000, 60000, 60000)},
     1,
     NUMBERS(60000)},
    /* sums of bytes in i32, and wrapping */
    {"graph { input x: i8[2] input w: i8[2] y = einsum(x, w, equation=\"i,i\") output y }",
     {NUMBERS(-128, 1), NUMBERS(-128, 5)},
     1,
     NUMBERS(5)},
    {"graph { input x: i8[2] input w: i8[2] y = dot(x, w, result=i32) output y }",
     {NUMBERS(-128, -128), NUMBERS(-128, -128)},
     1,
     NUMBERS(32768)},
    {"graph { input x: u8[2] input w: i8[2] y = dot(x, w, result=i32) output y }",
     {NUMBERS(255, 255), NUMBERS(-128, -128)},
     1,
     NUMBERS(-65280)},
    /* softmax and its kin at the ends of the range */
    {"graph { input x: f32[4] y = softmax(x) output y }",
     {NUMBERS(-INFINITY, 3e38, -3e38, 3e38)},
     4,
     NUMBERS(0, 0.5, 0, 0.5)},
    {"graph { input x: f32[2] y = softmax(x) output y }", {NUMBERS(-INFINITY, -INFINITY)}, 2, NUMBERS(NAN, NAN)},
    {"graph { input x: f32[2] y = logsumexp(x) output y }", {NUMBERS(-INFINITY, -INFINITY)}, 1, NUMBERS(-INFINITY)},
    {"graph { input x: f32[2] y = logsumexp(x) output y }", {NUMBERS(INFINITY, 1)}, 1, NUMBERS(INFINITY)},
    {"graph { input x: f32[2] y = logsumexp(x) output y }", {NUMBERS(NAN, INFINITY)}, 1, NUMBERS(NAN)},
    {"graph { input x: f32[2] y = logsumexp(x) output y }", {NUMBERS(-INFINITY, 88)}, 1, NUMBERS(88)},
    {"graph { input x: f16[3] y = mean(x) output y }", {NUMBERS(65504, 65504, 65504)}, 1, NUMBERS(65504)},
    {"graph { input x: f32[0] y = mean(x) output y }", {NULL}, 1, NUMBERS(NAN)},
    {"graph { input x: f32[4] y = relu(x) output y }",
     {NUMBERS(NAN, -1, INFINITY, -INFINITY)},
     4,
     NUMBERS(NAN, 0, INFINITY, 0)},
    {"graph { input x: f32[4] y = silu(x) output y }",
     {NUMBERS(-INFINITY, 200, 0, INFINITY)},
     4,
     NUMBERS(0, 200, 0, INFINITY)},
    {"graph { input x: f32[4] y = softplus(x) output y }",
     {NUMBERS(-200, 200, INFINITY, -INFINITY)},
     4,
     NUMBERS(0, 200, INFINITY, 0)},
    {"graph { input x: f32[3] y = elu(x) output y }",
     {NUMBERS(-INFINITY, 100, INFINITY)},
     3,
     NUMBERS(-1, 100, INFINITY)},
    /* labels outside the classes, and infinite logits beside the label */
    {"graph { input x: f32[3, 2] input l: i64[3] y = cross_entropy(x, l) output y }",
     {NUMBERS(1, 1, 0, -INFINITY, INFINITY, 0), NUMBERS(-100, 0, 2)},
     3,
     NUMBERS(0, 0, 0)},
    {"graph { input i: u8[2] y = one_hot(i, depth=[300]) z = reduce_sum(y, axes=[1]) output z }",
     {NUMBERS(0, 255)},
     2,
     NUMBERS(1, 1)},
    /* attention of queries that see nothing; of scores that overflow */
    {"graph { input q: f32[1, 1, 2, 1] input k: f32[1, 1, 1, 1] input v: f32[1, 1, 1, 1] y = attention(q, k, v, "
     "causal=true) output y }",
     {NUMBERS(1, 2), NUMBERS(1), NUMBERS(7)},
     2,
     NUMBERS(0, 7)},
    {"graph { input q: f32[1, 1, 1, 1] input m: f32[2] v = constant f32[1, 1, 2, 1] {5, 6} y = attention(q, v, v, m) "
     "output y }",
     {NUMBERS(0), NUMBERS(-INFINITY, 0)},
     1,
     NUMBERS(6)},
    {"graph { input q: f32[1, 1, 1, 1] input m: f32[2] v = constant f32[1, 1, 2, 1] {5, 6} y = attention(q, v, v, m) "
     "output y }",
     {NUMBERS(0), NUMBERS(-INFINITY, -INFINITY)},
     1,
     NUMBERS(0)},
    /* bf16 sums in f32: in bf16 they would stop at 256 */
    {"graph { input x: bf16[300] y = einsum(x, x, equation=\"i,i->\") output y }", {NULL}, 1, NUMBERS(300)},
    /* of several products one rounding: (256 + 1)*3, each in bf16 once, would be 768 */
    {"graph { input x: bf16[2] input w: bf16[2] input s: bf16[] y = einsum(x, w, s, equation=\"i,i,\") output y }",
     {NUMBERS(256, 1), NUMBERS(1, 1), NUMBERS(3)},
     1,
     NUMBERS(772)},
    {"graph { input x: bf16[300] y = dot(x, x, result=f32) output y }", {NULL}, 1, NUMBERS(300)},
    {"graph { input x: bf16[1, 300, 1] input w: bf16[1, 300, 1] y = convolution(x, w) output y }",
     {NULL, NULL},
     1,
     NUMBERS(300)},
    {"graph { input x: bf16[300] y = reduce_window(x, op=sum, window=[300]) output y }", {NULL}, 1, NUMBERS(300)},
    /* the bias before the one rounding: 256 + 0.75 + 0.5 is 257.25, which rounds to 258; 256.75 would first round to
       256 */
    {"graph { input x: bf16[2] input w: bf16[2, 1] input b: bf16[1] y = linear(x, w, b) output y }",
     {NUMBERS(256, 0.75), NUMBERS(1, 1), NUMBERS(0.5)},
     1,
     NUMBERS(258)},
};

static size_t exact_case;

static void run_exact(lib_arena *arena) {
    static double ones[MOST_VALUES];
    for (int i = 0; i < MOST_VALUES; i++) ones[i] = 1;
    const double *inputs[3];
    for (int i = 0; i < 3; i++) inputs[i] = exact[exact_case].inputs[i] ? exact[exact_case].inputs[i] : ones;
    int64_t count;
    double *got = run(arena, rows_parse(arena, exact[exact_case].text), NULL, true, inputs, &count);
    for (int64_t i = 0; i < count && i < exact[exact_case].count; i++)
        if (got[i] != exact[exact_case].output[i] && !(isnan(got[i]) && isnan(exact[exact_case].output[i])))
            print_error("%s\n", exact[exact_case].text);
    expect(got, count, exact[exact_case].output, exact[exact_case].count, 0);
}

static void test_exact(void **state) {
    (void)state;
    for (exact_case = 0; exact_case < sizeof exact / sizeof *exact; exact_case++) in_scope(run_exact);
}

/* ---- random numbers */

static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1], c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Known answers of Random123 1.14 (kat_vectors): counter, key, result. */
static const uint32_t known[][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                     {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
                                      0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                     {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
                                      0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};

static void run_philox(lib_arena *arena) {
    uint32_t out[4];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        philox(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
    int64_t count;
    double *first =
        run(arena, rows_parse(arena, "graph { y = rng_bits(shape=[4], stream=0) output y }"), NULL, true, NULL, &count);
    for (int i = 0; i < 4; i++) assert_true((uint32_t)(int32_t)first[i] == known[0][6 + i]);
    const double key = -0x1p62 + 12345678; /* exact in a double */
    uint64_t bits = (uint64_t)(int64_t)key;
    const char *text = "graph { input k: i64[] y = rng_bits(k, shape=[5, 7], stream=4000000000, part=9) output y }";
    double *got = run(arena, rows_parse(arena, text), NULL, true, (const double *const[]){&key}, &count);
    assert_int_equal(count, 35);
    for (uint32_t i = 0; i < 35; i++) {
        philox((uint32_t[]){i / 4, 0, 4000000000u, 9}, (uint32_t[]){(uint32_t)bits, (uint32_t)(bits >> 32)}, out);
        assert_true((uint32_t)(int32_t)got[i] == out[i % 4]);
    }
}

/* Mean and variance of 4000 numbers within six standard errors of what they are to be. */
static void expect_moments(lib_arena *arena, const char *text, const double *const *inputs, double low, double high,
                           double mean, double variance) {
    int64_t count;
    double *x = run(arena, rows_parse(arena, text), NULL, true, inputs, &count), sum = 0, square = 0, fourth = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_true(x[i] >= low && x[i] <= high);
        sum += (x[i] - mean) / (double)count;
        square += (x[i] - mean) * (x[i] - mean) / (double)count;
        fourth += pow(x[i] - mean, 4) / (double)count;
    }
    if (!(fabs(sum) < 6 * sqrt(variance / (double)count)) ||
        !(fabs(square - variance) < 6 * sqrt((fourth - variance * variance) / (double)count)))
        fail_msg("%s: mean off by %g, mean square %g, expected %g", text, sum, square, variance);
}

static void run_other_distributions(lib_arena *arena) {
    static const double alphas[] = {0.3, 1, 2.5, 40};
    for (int k = 0; k < 4; k++) {
        double *alpha = LIB_NEW_ARRAY(arena, double, 4000);
        for (int i = 0; i < 4000; i++) alpha[i] = alphas[k];
        const double *inputs[] = {alpha};
        expect_moments(arena, "graph { input a: f64[4000] y = rng_gamma(a, seed=3, stream=1) output y }", inputs, 0,
                       INFINITY, alphas[k], alphas[k]);
    }
    /* of the standard normal distribution within a..b: with p its density and c = P(a..b), the mean m = (p(a) - p(b))/c and the
     * variance 1 + (a p(a) - b p(b))/c - m^2 */
    static const double ends[][2] = {{-2, 2}, {-0.5, 3}, {4, 9}};
    for (int k = 0; k < 3; k++) {
        const double a = ends[k][0], b = ends[k][1], root = sqrt(2 * M_PI);
        const double pa = exp(-a * a / 2) / root, pb = exp(-b * b / 2) / root;
        const double c = (erfc(a / sqrt(2)) - erfc(b / sqrt(2))) / 2, mean = (pa - pb) / c;
        const char *text = lib_arena_format(
            arena, "graph { y = rng_truncated_normal(shape=[4000], seed=3, stream=2, low=%.1f, high=%.1f) output y }",
            a, b);
        expect_moments(arena, text, NULL, a, b, mean, 1 + (a * pa - b * pb) / c - mean * mean);
    }
}

static void run_distributions(lib_arena *arena) {
    int64_t count, counts[16] = {0};
    double *u = run(arena, rows_parse(arena, "graph { y = rng_uniform(shape=[4000], seed=3, stream=1) output y }"),
                    NULL, true, NULL, &count);
    for (int64_t i = 0; i < count; i++) {
        assert_true(u[i] >= 0 && u[i] < 1);
        counts[(int)(u[i] * 16)]++;
    }
    double chi = 0, mean = 0, square = 0;
    for (int i = 0; i < 16; i++) chi += ((double)counts[i] - 250) * ((double)counts[i] - 250) / 250;
    assert_true(chi < 40); /* 15 degrees of freedom: p < 0.0005 beyond */
    double *z = run(arena, rows_parse(arena, "graph { y = rng_normal(shape=[4000], seed=3, stream=2) output y }"), NULL,
                    true, NULL, &count);
    for (int64_t i = 0; i < count; i++) mean += z[i] / 4000, square += z[i] * z[i] / 4000;
    assert_true(fabs(mean) < 0.06 && fabs(square - 1) < 0.1);
}

static void run_streams(lib_arena *arena) {
    graph *g = rows_parse(
        arena, "graph { a = rng_uniform(shape=[4]) b = rng_uniform(shape=[4]) c = rng_uniform(shape=[4], stream=0) "
               "d = sub(a, b) output d output c }");
    assert_int_equal(g->nodes.count, 3); /* c is a, b is not */
    int64_t count;
    double *difference = run(arena, g, NULL, true, NULL, &count);
    assert_true(difference[0] != 0 && difference[1] != 0);
}

static void test_random(void **state) {
    (void)state;
    in_scope(run_philox);
    if (!test_is_shortest()) { /* moments of many numbers */
        in_scope(run_distributions);
        in_scope(run_other_distributions);
    }
    in_scope(run_streams);
}

/* ---- einsum of several operands: the shapes of the products, in order */

static const struct {
    const char *text, *products;
} orders[] = {
    {"graph { input x: f32[1000, 10] input w: f32[10, 1000] input v: f32[1000, 10] y = einsum(x, w, v, "
     "equation=\"ij,jk,kl->il\") output y }",
     "f32[10, 10] f32[1000, 10] "},
    {"graph { input x: bf16[10, 1000] input w: bf16[1000, 10] input v: bf16[10, 1000] y = einsum(x, w, v, "
     "equation=\"ij,jk,kl->il\") output y }",
     "f32[10, 10] f32[10, 1000] "},
    {"graph { input x: i32[n, 2] input w: i32[2, n] input v: i32[n, 2] y = einsum(x, w, v, equation=\"ij,jk,kl->il\") "
     "output y }",
     "i32[2, 2] i32[n, 2] "},
    /* equal work: the smaller product, then the first */
    {"graph { input x: f32[5, 3] input w: f32[3, 5] input v: f32[5, 3] y = einsum(x, w, v, equation=\"ij,jk,kl->il\") "
     "output y }",
     "f32[3, 3] f32[5, 3] "},
    {"graph { input x: f32[4] input w: f32[3] input v: f32[4] y = einsum(x, w, v, equation=\"i,j,k->ijk\") output y }",
     "f32[4, 3] f32[4, 3, 4] "},
    /* what one operand alone has is summed before */
    {"graph { input x: f32[4, 9] input w: f32[4, 3] input v: f32[3, 8] y = einsum(x, w, v, equation=\"ia,ij,jb->i\") "
     "output y }",
     "f32[4] f32[4] "},
};
static size_t order_case;

static void run_order(lib_arena *arena) {
    const graph *g = graph_decompose(arena, rows_parse(arena, orders[order_case].text));
    lib_text text;
    lib_text_init(&text, arena);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        if (strcmp(g->nodes.data[i].op->name, "dot_general") != 0) continue;
        graph_print_shape(&text, g, graph_shape_of(g, g->nodes.data[i].first));
        lib_text_add(&text, " ");
    }
    assert_string_equal(text.data, orders[order_case].products);
}

static void test_order(void **state) {
    (void)state;
    for (order_case = 0; order_case < sizeof orders / sizeof *orders; order_case++) {
        text_of_case = orders[order_case].text;
        in_scope(run_order);
    }
}

/* ---- control flow and host functions */

static const char control[] =
    "graph {\n  input c: bool[]\n  input x: f32[n, 3]\n  input i: i64[]\n"
    "  y, z = if(c, x, i, then=graph { input x: f32[n, 3] input i: i64[] e = exp(x) output e output i },"
    " otherwise=graph { input x: f32[n, 3] input i: i64[] one = constant i64[] {1} j = add(i, one) output x output j "
    "})\n"
    "  a, b = while(z, y, x, condition=graph { input i: i64[] input y: f32[n, 3] input x: f32[n, 3] ten = constant "
    "i64[] {10}"
    " go = lt(i, ten) output go }, body=graph { input i: i64[] input y: f32[n, 3] input x: f32[n, 3] one = constant "
    "i64[] {1}"
    " j = add(i, one) k = add(y, x) s = softmax(k) output j output s })\n  output a\n  output b\n}";

static const char *print(lib_arena *arena, const graph *g) {
    lib_text text;
    lib_text_init(&text, arena);
    graph_print(&text, g);
    return text.data;
}

static const char *shape_text(lib_arena *arena, const graph *g, uint32_t output) {
    lib_text text;
    lib_text_init(&text, arena);
    graph_print_shape(&text, g, graph_shape_of(g, g->outputs.data[output]));
    return text.data;
}

static void run_control(lib_arena *arena) {
    graph *g = rows_parse(arena, control);
    assert_string_equal(shape_text(arena, g, 0), "i64[]");
    assert_string_equal(shape_text(arena, g, 1), "f32[n, 3]");
    assert_string_equal(print(arena, rows_parse(arena, print(arena, g))), print(arena, g));
    int64_t n = 7;
    graph *bound = graph_bind(arena, graph_decompose(arena, g), &n);
    assert_string_equal(shape_text(arena, bound, 1), "f32[7, 3]");
    assert_null(strstr(print(arena, bound), "softmax"));
}

static void nothing(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)input, (void)outputs, (void)output;
}
static void something(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    nothing(user, outputs, input, inputs, output);
}

static void run_custom(lib_arena *arena) {
    /* dtypes 3 and 11 are i32 and f32 */
    graph *g = rows_parse(
        arena,
        "graph { input x: f32[n]\n p, q = custom_call(x, target=\"f\", dtypes=[3, 11], ranks=[0, 2], shapes=[n, 4])\n"
        " s, t = custom_call(x, target=\"f\", dtypes=[3, 11], ranks=[0, 2], shapes=[n, 4])\n"
        " u = custom_effect(x, target=\"g\", dtypes=[3], ranks=[0], shapes=[])\n"
        " v = custom_effect(x, target=\"g\", dtypes=[3], ranks=[0], shapes=[])\n"
        " custom_effect(x, target=\"h\", dtypes=[], ranks=[], shapes=[])\n output q output p }");
    assert_int_equal(g->nodes.count, 5); /* pure calls merge, others never */
    assert_string_equal(shape_text(arena, g, 0), "f32[n, 4]");
    assert_string_equal(shape_text(arena, g, 1), "i32[]");
    graph_add_custom(g, &(graph_custom){.name = "f", .call = nothing, .user = g});
    graph_add_custom(g, &(graph_custom){.name = "f", .call = nothing, .user = g});
    assert_int_equal(g->customs.count, 1);
    int64_t n = 5;
    graph *bound = graph_bind(arena, graph_decompose(arena, g), &n);
    assert_int_equal(bound->nodes.count, 5); /* effects that nobody reads are kept */
    assert_string_equal(shape_text(arena, bound, 0), "f32[5, 4]");
    assert_true(graph_find_custom(bound, "f")->call == nothing && graph_find_custom(bound, "f")->user == g);
    assert_null(graph_find_custom(bound, "g"));
}

static void run_custom_twice(lib_arena *arena) {
    graph *g = graph_new(arena, NULL);
    graph_add_custom(g, &(graph_custom){.name = "f", .call = nothing});
    graph_add_custom(g, &(graph_custom){.name = "f", .call = something});
}

static void test_control(void **state) {
    (void)state;
    assert_int_equal(DLC_I32, 3);
    assert_int_equal(DLC_F32, 11);
    in_scope(run_control);
    in_scope(run_custom);
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) run_custom_twice(&arena);
    lib_arena_free(&arena);
    assert_int_equal(scope.error.status, DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(scope.error.message, "another host function is registered as f"));
}

/* ---- wrong uses */

#define BRANCH(outputs) \
    "graph { input x: f32[3] t = constant bool[] {1} e = exp(x) c = cast(x, dtype=f64) " outputs " }"
#define IF(then, otherwise) "if(bool[], f32[3], then=" BRANCH(then) ", otherwise=" BRANCH(otherwise) ")"
#define TWELVE "f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"
#define WHILE(condition, body) "while(f32[3], condition=" BRANCH(condition) ", body=" BRANCH(body) ")"

/* sample, part of the message */
static const rows_wrong wrong[] = {
    {"reverse_sequence(f32[2, 3], i32[2])", "number of lengths and of sequences"},
    {"reverse_sequence(f32[2, 3], i8[3])", "expected i32 or i64"},
    {"reverse_sequence(f32[2, 3], i32[3], axis=1)", "are both 1"},
    {"search_sorted(f32[2, 3], f32[4])", "expected 2"},
    {"search_sorted(f32[2, 3], f32[3, 4])", "leading dimensions"},
    {"search_sorted(f32[3], f64[4])", "one dtype"},
    {"search_sorted(f32[], f32[4])", "at least 1"},
    {"col2im(f32[1, 8, 5], image=[3, 3], block=[2, 2])", "columns of x and blocks"},
    {"col2im(f32[1, 7, 4], image=[3, 3], block=[2, 2])", "a multiple of a block's elements"},
    {"col2im(f32[1, 4, 4], image=[1, 3], block=[2, 2])", "larger than the padded image"},
    {"col2im(f32[1, 4, 4], image=[3, 3], block=[2])", "block has 1 entries"},
    {"col2im(f32[1, 4, 4], image=[3, 3], block=[2, 2], stride=[0, 1])", "stride of dimension 0 is 0"},
    {"center_crop_pad(f32[2, 3], shape=[2])", "one for each of 2 axes"},
    {"istft(f32[1, 2, 5, 1], frame_step=1)", "expected 2: real and imaginary"},
    {"istft(f32[1, 2, 5, 2], f32[9], frame_step=1, onesided=false)", "bins of x"},
    {"istft(f32[1, 2, 5, 2], frame_step=0)", "frame_step is 0"},
    {"istft(f32[1, 0, 5, 2], frame_step=1)", "there is no frame"},
    {"signal_window(size=[4], function=hann, dtype=i32)", "expected a float"},
    {"mel_matrix(bins=0, length=4, rate=8000, low=0.0, high=100.0)", "bins is 0"},
    {"mel_matrix(bins=2, length=4, rate=8000, low=200.0, high=100.0)", "low <= high"},
    {"det(f32[2, 3])", "rows and columns"},
    {"einsum(" TWELVE ", " TWELVE ", " TWELVE ", equation=\"abcdmnopqrst,efghmnopuvwx,ijklqrstuvwx->abcdefghijkl\")",
     "more than 12 dimensions"},
    {"unique_along(f32[2, 3], size=[3], axis=2)", "out of range"},
    {"unique_along(f32[], size=[3], axis=0)", "out of range"},
    {"unique_along(f32[2, 3], size=[3], axis=-2)", "size must be one symbol"},
    {"roi_align(f32[1, 1, 2, 2], f32[1, 4], i32[1], shape=[1, 1], samples=-1)", "expected 0 to 64"},
    {"affine_gather(f32[3], shape=[2], matrix=[1, 1], offset=[0])", "matrix has 2 entries, expected 1"},
    {"affine_gather(f32[3], shape=[2], matrix=[1], offset=[0, 1])", "offset has 2 entries, expected 1"},
    {"affine_scatter(f32[3, 2], shape=[2], matrix=[1, 9999999999], offset=[0])", "matrix: 9999999999 is too large"},
    {"affine_gather(f32[3], shape=[2], matrix=[1], offset=[9223372036854775807])",
     "offset: 9223372036854775807 is too large"},
    {"affine_scatter(f32[3], shape=[-2], matrix=[1], offset=[0])", "shape: a size below 0"},
    {"quantize_linear(f32[4, 6], f32[4, 2], block=4, axis=0)", "blocks along axis"},
    {"quantize_linear(f32[4, 6], f32[4], block=2)", "expected 2"},
    {"quantize_linear(f32[4, 6], f32[], block=-1)", "block is -1"},
    {"quantize_linear(f16[4], f32[])", "scale is f32, expected f16"},
    {"quantize_linear(f32[4], f32[], dtype=f16)", "a float of 8 bits"},
    {"quantize_linear(f32[4], f32[], dtype=f8e8m0)", "a float of 8 bits with a sign"},
    {"quantize_linear(f32[4], f32[], i4[], dtype=i2)", "zero_point is i4, expected i2"},
    {"dequantize_linear(u8[4], f64[])", "expected f32, f16, bf16 or f8e8m0"},
    {"dequantize_linear(f8e8m0[4], f32[])", "f4e2m1"},
    {"dequantize_linear(i32[4], f32[], i32[])", "expected no zero_point"},
    {"matmul_integer(u8[2, 3], f32[3, 2])", "expected u8 or i8"},
    {"matmul_integer(u8[2, 3], i8[4, 2])", "the last dimension of x"},
    {"convolution_integer(u8[1, 2, 3], i8[1, 2, 2], u8[2])", "rank 1, expected 0"},
    {"average_pool(f32[0, 1, 0], window=[1], low=[-1], ceil=true)", "negative padding removes more than there is"},
    {"max_pool_with_indices(f32[1, 1, 0], window=[1], low=[2])", "nothing but padding"},
    {"ctc_loss(f32[4, 2, 3], i64[2, 1], i64[2], i64[3])", "batches of the operands"},
    {"ctc_loss(f32[4, 2, 3], i64[2, 1], i64[2], i64[2], blank=3)", "no class of x"},
    {"ctc_loss(f32[4, 2, 3], f32[2, 1], i64[2], i64[2])", "expected i32 or i64"},
    {"rng_truncated_normal(shape=[2], low=1.0, high=1.0)", "low < high"},
    {"rng_gamma(f32[2], f32[])", "expected i64"},
    {"hardmax(f32[])", "out of range"},
    {"lp_normalization(f32[2], p=0)", "expected 1 to"},
    {"dot_general(f32[2, 3], f32[4, 5], contract_x=[1], contract_w=[0])", "must be equal"},
    {"dot_general(f32[2, 3], f32[3, 5], contract_x=[1], contract_w=[])", "expected as many"},
    {"dot_general(f32[2, 3], f32[3, 5], contract_x=[2], contract_w=[0])", "out of range"},
    {"dot_general(f32[2, 2], f32[2, 2], contract_x=[1, 1], contract_w=[0, 1])", "given twice"},
    {"dot_general(f32[2, 2], f32[2, 2], batch_x=[0], batch_w=[0], contract_x=[0], contract_w=[0])",
     "both a batch and a contracted"},
    {"dot_general(f32[2], f64[2], contract_x=[0], contract_w=[0])", "one dtype"},
    {"dot_general(bool[2], bool[2], contract_x=[0], contract_w=[0])", "expected one of these element types"},
    {"dot_general(f32[2], f32[2], contract_x=[0], contract_w=[0], result=i32)", "same kind"},
    {"dot_general(f64[2], f64[2], contract_x=[0], contract_w=[0], result=f32)", "wider"},
    {"dot_general(u8[2], i8[2], contract_x=[0], contract_w=[0])", "one dtype"},
    {"dot_general(f32[1,1,1,1,1,1,1], f32[1,1,1,1,1,1], contract_x=[], contract_w=[])", "more than 12 dimensions"},
    {"dot(f32[], f32[3])", "at least 1"},
    {"dot(f32[2, 3], f32[2, 3])", "last but one"},
    {"matmul(f32[3], f32[])", "at least 1"},
    {"matmul(f32[2, 3, 4], f32[3, 4, 5])", "batch dimension"},
    {"matmul(f32[2, 3], f32[2, 3])", "must be equal"},
    {"einsum(f32[2], f32[2], equation=\"i->i\")", "fewer operands"},
    {"einsum(f32[2], equation=\"i,j->i\")", "more operands"},
    {"einsum(f32[2], equation=\"ij->i\")", "2 labels for operand 0, which has rank 1"},
    {"einsum(f32[2], equation=\"i->ii\")", "twice in the result"},
    {"einsum(f32[2], equation=\"i->j\")", "stands in no operand"},
    {"einsum(f32[2], equation=\"i.->i\")", "expected letters"},
    {"einsum(f32[2], equation=\"...->\")", "its result has no ellipsis"},
    {"einsum(f32[2], equation=\"...i...->i\")", "two ellipses"},
    {"einsum(f32[2], equation=\"...ij->i\")", "2 labels for operand 0, which has rank 1"},
    {"einsum(f32[2], f32[3], equation=\"...,...\")", "labelled ..."},
    {"einsum(f32[2], f32[2], f32[3], equation=\"i,i,i\")", "labelled i"},
    {"einsum(f32[2], f32[2], i32[2], equation=\"i,i,i\")", "i32"},
    {"einsum(f32[2, 2, 2, 2, 2, 2, 2], f32[2, 2, 2, 2, 2, 2, 2], equation=\"abcdefg,hijklmn\")", "too many labels"},
    {"einsum(f32[2], equation=\"i->i->i\")", "more than one ->"},
    {"einsum(f32[2, 3], equation=\"ii\")", "labelled i"},
    {"einsum(f32[2], f32[3], equation=\"i,i\")", "labelled i"},
    {"convolution(f32[1, 2], f32[1, 2])", "expected 3 to 5"},
    {"convolution(f32[1, 2, 3, 3], f32[1, 2, 3])", "expected 4"},
    {"convolution(f32[1, 2, 3], f32[1, 3, 3])", "channels of x and of w"},
    {"convolution(f32[1, 4, 3], f32[3, 2, 3], groups=2)", "do not divide"},
    {"convolution(f32[1, 4, 3], f32[4, 4, 3], groups=2)", "groups times those of w"},
    {"convolution(f32[1, 4, 3], f32[4, 4, 3], groups=0)", "groups is 0"},
    {"convolution(f32[1, 1, 3], f32[1, 1, 0])", "window has size 0"},
    {"convolution(f32[1, 1, 3], f32[1, 1, 2], stride=[0])", "stride of windowed dimension 0 is 0"},
    {"convolution(f32[1, 1, 3], f32[1, 1, 2], dilation=[1, 1])", "dilation has 2 entries"},
    {"convolution(f32[1, 1, 3], f32[1, 1, 2], low=[9223372036854775807])", "low of windowed dimension 0"},
    {"reduce_window(f32[3, 3], op=sum, window=[2])", "1 entries, expected 2"},
    {"reduce_window(f32[3], op=sum, window=[0])", "window of dimension 0 is 0"},
    {"max_pool(f32[3, 3], window=[])", "expected at least 3"},
    {"max_pool(f32[1, 1, 3, 3], window=[2])", "expected 2"},
    {"average_pool(i32[1, 1, 3], window=[2])", "expected one of these element types"},
    {"rng_bits(shape=[2], dtype=f32)", "expected i32 or i64"},
    {"rng_bits(i32[], shape=[2])", "expected i64"},
    {"rng_bits(i64[1], shape=[2])", "expected 0"},
    {"rng_bits(shape=[2], stream=-1)", "stream -1"},
    {"rng_bits(shape=[-2])", "is -2"},
    {"rng_uniform(shape=[2], dtype=i32)", "expected a float"},
    {"rng_normal(shape=[2], dtype=bool)", "expected a float"},
    {"softmax(f32[])", "out of range"},
    {"softmax(i32[3])", "expected one of these element types"},
    {"logsumexp(f32[3], axes=[0, 0])", "given twice"},
    {"variance(f32[3], correction=-1)", "correction is -1"},
    {"layer_norm(f32[2, 3], f32[2])", "must be equal"},
    {"layer_norm(f32[2, 3], f32[2, 3])", "expected 1"},
    {"layer_norm(f32[2, 3], f64[3])", "one dtype"},
    {"batch_norm(f32[2, 3], f32[3], f32[3], f32[2], f32[3])", "number of channels"},
    {"linear(f32[2, 3], f32[4, 3])", "must be equal"},
    {"linear(f32[2, 3], f32[4, 3], f32[3], transposed=true)", "sizes of the bias"},
    {"linear(f32[], f32[4, 3])", "at least 1"},
    {"embedding(f32[3, 2], f32[2])", "integer dtype"},
    {"embedding(f32[0, 2], i32[2])", "axis of size 0"},
    {"embedding(f32[2, 1, 1, 1, 1, 1, 1], i32[1, 1, 1, 1, 1, 1, 1])", "more than 12 dimensions"},
    {"one_hot(i32[3], depth=[2, 2])", "expected 1"},
    {"one_hot(i32[3], depth=[2], axis=2)", "out of range"},
    {"cross_entropy(f32[2, 3], i32[3])", "must be equal"},
    {"cross_entropy(f32[2, 3], f32[2])", "integer dtype"},
    {"attention(f32[1, 2, 3], f32[1, 2, 3], f32[1, 2, 3])", "expected 4"},
    {"attention(f32[1, 1, 2, 3], f32[1, 1, 2, 4], f32[1, 1, 2, 3])", "last dimensions"},
    {"attention(f32[1, 1, 2, 3], f32[1, 1, 2, 3], f32[1, 1, 3, 3])", "keys and of values"},
    {"attention(f32[1, 3, 2, 3], f32[1, 2, 2, 3], f32[1, 2, 2, 3])", "heads of q and a multiple"},
    {"attention(f32[1, 1, 2, 3], f32[1, 1, 4, 3], f32[1, 1, 4, 3], bool[4, 2])", "the mask"},
    {"attention(f32[1, 1, 2, 3], f32[1, 1, 4, 3], f32[1, 1, 4, 3], i32[2, 4])", "expected bool or f32"},
    {"if(f32[], f32[3], then=" BRANCH("output x") ", otherwise=" BRANCH("output x") ")", "the condition is f32"},
    {"if(bool[], then=" BRANCH("output x") ", otherwise=" BRANCH("output x") ")", "has 1 inputs, there are 0"},
    {"if(bool[], f64[3], then=" BRANCH("output x") ", otherwise=" BRANCH("output x") ")",
     "input 0 of sub-graph `then`"},
    {"if(bool[], f32[4], then=" BRANCH("output x") ", otherwise=" BRANCH("output x") ")", "sizes of dimension 0"},
    {IF("output x output e", "output x"), "2 and 1 outputs"},
    {IF("output x", "output c"), "element types are f32 and f64"},
    {IF("output x", "output t"), "element types are f32 and bool"},
    {WHILE("output x", "output x"), "condition's output is f32"},
    {WHILE("output t output t", "output x"), "has 2 outputs, expected 1"},
    {WHILE("output t", "output x output e"), "2 outputs for 1 operands"},
    {WHILE("output t", "output c"), "element types are f32 and f64"},
    {"custom_call(f32[3], target=\"\", dtypes=[], ranks=[], shapes=[])", "target is empty"},
    {"custom_call(f32[3], target=\"f\", dtypes=[11], ranks=[], shapes=[])", "1 entries and ranks 0"},
    {"custom_call(f32[3], target=\"f\", dtypes=[99], ranks=[0], shapes=[])", "99 of result 0"},
    {"custom_call(f32[3], target=\"f\", dtypes=[11], ranks=[2], shapes=[3])", "1 dimensions left"},
    {"custom_call(f32[3], target=\"f\", dtypes=[11], ranks=[0], shapes=[3])", "the ranks add up to 0"},
};

static void test_wrong_uses(void **state) {
    (void)state;
    rows_check_refusals(wrong, sizeof wrong / sizeof *wrong);
}

/* ---- expansions that do not give what `infer` says */

static void expand_wide(graph_expand *e) {
    e->result[0] = graph_exp(e->g, graph_widen(e->g, e->input[0]));
}
static void expand_summed(graph_expand *e) {
    e->result[0] = graph_reduce_sum(e->g, e->input[0], 0, NULL, false);
}
static void expand_partly(graph_expand *e) {
    (void)e;
}

static void test_wrong_expansions(void **state) {
    static const struct {
        void (*expand)(graph_expand *e);
        const char *message;
    } cases[] = {{expand_wide, "the expansion of silly gave f32[5], its infer f16[5]"},
                 {expand_summed, "the expansion of silly gave f16[], its infer f16[5]"},
                 {expand_partly, "the expansion of silly has not set result 0"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lib_scope scope;
        lib_arena arena;
        const graph_op row = {.name = "silly",
                              .class_ = GRAPH_COMPOSITE,
                              .min_inputs = 1,
                              .max_inputs = 1,
                              .results = 1,
                              .operands = "x",
                              .dtypes = "float",
                              .infer = graph_infer_map,
                              .expand = cases[i].expand,
                              .samples = "silly(T[5])"};
        lib_arena_init(&arena, &lib_libc_allocator, &scope);
        if (LIB_ENTER(&scope)) {
            graph *g = graph_new(&arena, NULL);
            const graph_shape shape = {.dtype = DLC_F16, .rank = 1, .dim = {tir_index(g->pool, 5)}};
            const graph_id x = graph_new_input(g, "x", &shape);
            graph_new_output(g, "y", graph_emit(g, &row, 1, &x, NULL));
            graph_decompose(&arena, g);
        }
        assert_int_equal(scope.error.status, DLC_INTERNAL);
        assert_non_null(strstr(scope.error.message, cases[i].message));
        lib_arena_free(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_symbolic),   cmocka_unit_test(test_network),
                                       cmocka_unit_test(test_exact),      cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_control),    cmocka_unit_test(test_order),
                                       cmocka_unit_test(test_wrong_uses), cmocka_unit_test(test_wrong_expansions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
