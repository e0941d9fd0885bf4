/* Large weights of a narrow type stay narrow: their conversion runs in the contraction that reads them. Results against sums in double
 * precision; memory by the allocator. */
#include "support.h"
#include "test/share.h"

enum { IN = 640, OUT = 512, BLOCK = 32, WIDE = IN * OUT * 4, OTHERS = 160 << 10 /* a plan, code, small things */ };

typedef enum scales { PLAIN, TENSOR, CHANNEL, BLOCKS, ZERO_POINT } scales;

typedef struct weights {
    dlc_dtype dtype;
    scales scales;
    /* [out, in] */
    bool transposed;
    const char *name;
} weights;

static const weights cases[] = {
    {DLC_BF16, PLAIN, false, "bf16 [in, out]"},
    {DLC_BF16, PLAIN, true, "bf16 [out, in]"},
    {DLC_F16, PLAIN, true, "f16"},
    {DLC_I8, PLAIN, false, "i8 without scales"},
    {DLC_I8, TENSOR, false, "i8 by tensor"},
    {DLC_I8, CHANNEL, false, "i8 by channel [in, out]"},
    {DLC_I8, CHANNEL, true, "i8 by channel"},
    {DLC_I8, BLOCKS, false, "i8 by block [in, out]"},
    {DLC_I8, BLOCKS, true, "i8 by block"},
    {DLC_U8, ZERO_POINT, true, "u8 with zero points"},
    {DLC_U8, ZERO_POINT, false, "u8 with zero points [in, out]"},
    {DLC_I4, BLOCKS, true, "i4 by block"},
    {DLC_I4, CHANNEL, false, "i4 by channel [in, out]"},
    {DLC_I2, BLOCKS, true, "i2 by block"},
    {DLC_F4E2M1, BLOCKS, true, "f4e2m1 by block"},
    {DLC_F4E2M1, BLOCKS, false, "f4e2m1 by block [in, out]"},
};

static unsigned char bytes[IN * OUT * 2];
static float scale[IN * OUT], wide[IN][OUT];
static unsigned char zero[OUT];

/* Bits of number / 64 in bf16 or f16, exact where the number has eight bits. */
static uint16_t narrow_bits(dlc_dtype dtype, int number) {
    const float value = (float)number / 64;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (dtype == DLC_BF16) return (uint16_t)(bits >> 16);
    if (number == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023));
}

static int number_at(const weights *w, int i, int j) {
    const int mixed = (i * 37 + j * 11 + i * j) % 255;
    if (w->dtype == DLC_U8) return mixed;
    if (w->dtype == DLC_I4 || w->dtype == DLC_F4E2M1) return mixed % 16 - 8;
    if (w->dtype == DLC_I2) return mixed % 4 - 2;
    return mixed % 253 - 126;
}

/* The number of a code of f4e2m1: 0, a half, ... 6 of either sign. */
static double f4_number(int code) {
    static const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -sizes[code & 7] : sizes[code & 7];
}

/* Where element (i, j), row of the input and column of the result, lies. */
static int place_of(const weights *w, int i, int j) {
    return w->transposed ? j * IN + i : i * OUT + j;
}

static int scale_place(const weights *w, int i, int j) {
    if (w->scales == TENSOR) return 0;
    if (w->scales == CHANNEL || w->scales == ZERO_POINT) return j;
    return w->transposed ? j * (IN / BLOCK) + i / BLOCK : i / BLOCK * OUT + j;
}

static void fill_weights(const weights *w) {
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < IN * OUT; i++) scale[i] = (float)(i % 7 + 1) / 256;
    for (int j = 0; j < OUT; j++) zero[j] = (unsigned char)(100 + j % 50);
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < OUT; j++) {
            const int number = number_at(w, i, j), at = place_of(w, i, j);
            double value = number;
            if (w->dtype == DLC_BF16 || w->dtype == DLC_F16) {
                const int small = number % 128; /* eight bits of mantissa */
                const uint16_t bits = narrow_bits(w->dtype, small);
                memcpy(bytes + 2 * at, &bits, 2);
                value = (double)small / 64;
            } else if (w->dtype == DLC_I2) {
                bytes[at / 4] = (unsigned char)(bytes[at / 4] | (number & 3) << (at % 4 * 2));
            } else if (w->dtype == DLC_I4 || w->dtype == DLC_F4E2M1) {
                if (w->dtype == DLC_F4E2M1) value = f4_number(number & 15);
                bytes[at / 2] = (unsigned char)(bytes[at / 2] | (number & 15) << (at % 2 * 4));
            } else {
                bytes[at] = (unsigned char)number;
            }
            if (w->scales == ZERO_POINT) value -= zero[j];
            wide[i][j] = (float)(w->scales == PLAIN ? value : value * (double)scale[scale_place(w, i, j)]);
        }
}

static dlc_value describe(dlc_graph *g, const weights *w) {
    const int64_t shape[2] = {w->transposed ? OUT : IN, w->transposed ? IN : OUT};
    dlc_value narrow = dlc_constant_borrow(g, w->dtype, 2, shape, bytes);
    if (w->scales == PLAIN) return dlc_cast(narrow, DLC_F32);
    dlc_dequantize_linear_options options = DLC_DEQUANTIZE_LINEAR_OPTIONS_INIT;
    const int channels = w->transposed ? 0 : 1, inner = 1 - channels;
    if (w->scales == TENSOR)
        return dlc_dequantize_linear(narrow, dlc_constant(g, DLC_F32, 0, NULL, scale), DLC_NONE, 0);
    if (w->scales != BLOCKS) {
        const int64_t count = OUT;
        dlc_value points = w->scales == ZERO_POINT ? dlc_constant(g, DLC_U8, 1, &count, zero) : DLC_NONE;
        return dlc_dequantize_linear(narrow, dlc_constant(g, DLC_F32, 1, &count, scale), points, channels);
    }
    int64_t blocks[2] = {shape[0], shape[1]};
    blocks[inner] /= BLOCK;
    options.block = BLOCK;
    return dlc_dequantize_linear_with(narrow, dlc_constant_borrow(g, DLC_F32, 2, blocks, scale), DLC_NONE, inner,
                                      &options);
}

static void check_rows(dlc_context *context, dlc_program *program, const weights *w, int rows) {
    static float x[96 * IN], y[96 * OUT];
    for (int i = 0; i < rows * IN; i++) x[i] = (float)(i * 13 % 31 - 15) / 16;
    DLTensor in = {
        .data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){rows, IN}};
    DLTensor out = in;
    out.data = y, out.shape = (int64_t[]){rows, OUT};
    dlc_output_slot slot = {&out, NULL};
    if (dlc_run(program, NULL, (const DLTensor *[]){&in}, 1, &slot, 1)) fail_msg("%s", dlc_error_message(context));
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < OUT; j++) {
            double sum = 0, most = 0;
            for (int i = 0; i < IN; i++) {
                sum += (double)x[r * IN + i] * (double)wide[i][j];
                most += fabs((double)x[r * IN + i] * (double)wide[i][j]);
            }
            if (fabs(sum - (double)y[r * OUT + j]) > 1e-5 * most + 1e-6)
                fail_msg("%s, %d rows: [%d, %d] is %.9g, expected %.9g", w->name, rows, r, j, (double)y[r * OUT + j],
                         sum);
        }
}

/* `also`: an output that reads the wide weights outside of contractions, which keeps them. */
static dlc_program *compile_case(dlc_context *context, const weights *w, bool also) {
    dlc_graph *g;
    dlc_program *program;
    assert_int_equal(dlc_graph_create(context, &g), DLC_OK);
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {IN, NULL}}), weight = describe(g, w);
    dlc_linear_options options = DLC_LINEAR_OPTIONS_INIT;
    options.transposed = w->transposed;
    dlc_output(g, "y", dlc_linear_with(x, weight, DLC_NONE, &options));
    if (also) dlc_output(g, "w", dlc_neg(weight));
    if (dlc_compile(context, g, NULL, &program)) fail_msg("%s: %s", w->name, dlc_error_message(context));
    dlc_graph_destroy(g);
    return program;
}

static void test_results(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        dlc_context *context;
        dlc_statistics statistics = DLC_STATISTICS_INIT;
        assert_int_equal(dlc_context_create(NULL, &context), DLC_OK);
        fill_weights(&cases[c]);
        dlc_program *program = compile_case(context, &cases[c], false);
        const int rows[] = {1, 3, 16, 17, 64, 96};
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            if (!test_is_short() || (r + c) % 3 == 0) check_rows(context, program, &cases[c], rows[r]);
        dlc_context_statistics(context, &statistics);
        assert_int_equal(statistics.interpreted_regions, 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A first run leaves no more than the narrow weights, unpacked from four bits and laid out for kernels; never those in f32. */
static void test_memory(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        counter count;
        dlc_allocator allocator = counting(&count);
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        dlc_context *context;
        options.allocator = &allocator;
        options.target = "cpu"; /* others hold other things beside the weights */
        if (dlc_context_create(&options, &context) == DLC_NOT_FOUND) skip();
        fill_weights(&cases[c]);
        dlc_program *program = compile_case(context, &cases[c], false);
        const int64_t before = atomic_load(&count.bytes);
        check_rows(context, program, &cases[c], 16);
        const int64_t held = atomic_load(&count.bytes) - before;
        const bool half = cases[c].dtype == DLC_BF16 || cases[c].dtype == DLC_F16;
        if (held > WIDE / (half ? 2 : 4) * 9 / 4 + OTHERS)
            fail_msg("%s: %lld bytes are held, %d are those of the weights in f32", cases[c].name, (long long)held,
                     WIDE);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_read_elsewhere(void **state) {
    (void)state;
    const weights *w = &cases[6];
    static float x[IN], y[OUT], negated[IN * OUT];
    dlc_context *context;
    assert_int_equal(dlc_context_create(NULL, &context), DLC_OK);
    fill_weights(w);
    dlc_program *program = compile_case(context, w, true);
    for (int i = 0; i < IN; i++) x[i] = 1;
    DLTensor in = {
        .data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){1, IN}};
    DLTensor out = in, all = in;
    out.data = y, out.shape = (int64_t[]){1, OUT};
    all.data = negated, all.shape = (int64_t[]){OUT, IN};
    dlc_output_slot slots[] = {{&out, NULL}, {&all, NULL}};
    if (dlc_run(program, NULL, (const DLTensor *[]){&in}, 1, slots, 2)) fail_msg("%s", dlc_error_message(context));
    for (int j = 0; j < OUT; j++) {
        double sum = 0;
        for (int i = 0; i < IN; i++) {
            sum += (double)wide[i][j];
            assert_true(negated[j * IN + i] == -wide[i][j]);
        }
        assert_true(fabs(sum - (double)y[j]) < 1e-3);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_read_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
