/* Element types that kernels do not compute with: codes of numbers, of 4 and 2 bits and f8e8m0, and complex numbers; as inputs,
 * constants and outputs, in conversions, structure, arithmetic, and as weights, on every target. What is expected is computed here. */
#include "api/support.h"

#include <dlc/eager.h>
#include <dlc/files.h>

/* ---- codes of numbers */

static const struct coded {
    dlc_dtype dtype;
    const char *name;
    int bits;
    bool is_signed, is_integer;
} coded[] = {{DLC_I4, "i4", 4, true, true},          {DLC_U4, "u4", 4, false, true},
             {DLC_I2, "i2", 2, true, true},          {DLC_U2, "u2", 2, false, true},
             {DLC_F4E2M1, "f4e2m1", 4, true, false}, {DLC_F8E8M0, "f8e8m0", 8, false, false}};
enum { CODED = sizeof coded / sizeof *coded };

/* Rows that hold of the formats' definitions: the first in the lowest bits; f4e2m1 is sign, two bits of exponent with a bias of 1, one of
 * mantissa; f8e8m0 an exponent with a bias of 127. */
static const double f4e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

static int code_of(const struct coded *t, const void *bytes, int at) {
    return ((const uint8_t *)bytes)[at * t->bits / 8] >> at * t->bits % 8 & ((1 << t->bits) - 1);
}

static double number_of(const struct coded *t, const void *bytes, int at) {
    const int code = code_of(t, bytes, at);
    if (t->dtype == DLC_F4E2M1) return f4e2m1[code];
    if (t->dtype == DLC_F8E8M0) return code == 255 ? (double)NAN : ldexp(1, code - 127);
    return t->is_signed && code >= 1 << (t->bits - 1) ? code - (1 << t->bits) : code;
}

static bool is_like(double a, double b) {
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static int size_of(const struct coded *t, int count) {
    return (count * t->bits + 7) / 8;
}

static int nibble(const uint8_t *bytes, int at) {
    return (int)number_of(&coded[0], bytes, at);
}

static void fill_bytes(uint8_t *bytes, int count, uint32_t seed) {
    for (int i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

static void run(dlc_context *context, dlc_program *program, int inputs, tensor *in, int outputs, tensor *out) {
    const DLTensor *given[4];
    dlc_output_slot slots[8];
    for (int i = 0; i < inputs; i++) given[i] = &in[i].dl;
    for (int i = 0; i < outputs; i++) slots[i] = (dlc_output_slot){.tensor = &out[i].dl};
    OK(context, dlc_run(program, NULL, given, inputs, slots, outputs));
}

/* Integers to and from other types, of an odd number of elements. */
static void check_integer_casts(dlc_context *context, const struct coded *t) {
    const int64_t shape[] = {5, 7};
    static uint8_t x[18], back[18], same[18], wrapped[18];
    float f[35], real[35];
    int8_t small[35];
    int32_t whole[35];
    fill_bytes(x, 18, 5);
    for (int i = 0; i < 35; i++) f[i] = (float)i - 17.25f, whole[i] = 100 * i - 1234;
    f[3] = NAN, f[4] = INFINITY, f[5] = -INFINITY;
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "a", t->dtype, 2, DIMS(SIZE(5), SIZE(7)));
    dlc_value b = dlc_input(g, "b", DLC_F32, 2, DIMS(SIZE(5), SIZE(7)));
    dlc_value c = dlc_input(g, "c", DLC_I32, 2, DIMS(SIZE(5), SIZE(7)));
    OK(context, dlc_output(g, "real", dlc_cast(a, DLC_F32)));
    OK(context, dlc_output(g, "small", dlc_cast(a, DLC_I8)));
    OK(context, dlc_output(g, "back", dlc_cast(b, t->dtype)));
    OK(context, dlc_output(g, "wrapped", dlc_cast(c, t->dtype)));
    OK(context, dlc_output(g, "same", a));
    dlc_program *program = compile(context, g);
    tensor in[3], out[5];
    make_tensor(&in[0], t->dtype, x, 2, shape), make_tensor(&in[1], DLC_F32, f, 2, shape);
    make_tensor(&in[2], DLC_I32, whole, 2, shape);
    make_tensor(&out[0], DLC_F32, real, 2, shape), make_tensor(&out[1], DLC_I8, small, 2, shape);
    make_tensor(&out[2], t->dtype, back, 2, shape), make_tensor(&out[3], t->dtype, wrapped, 2, shape);
    make_tensor(&out[4], t->dtype, same, 2, shape);
    run(context, program, 3, in, 5, out);
    dlc_program_destroy(program);
    const int levels = 1 << t->bits, low = t->is_signed ? -levels / 2 : 0, high = low + levels - 1;
    for (int i = 0; i < 35; i++) {
        const double value = number_of(t, x, i);
        const float rounded = isnan(f[i]) ? 0 : truncf(f[i]);
        assert_true((double)real[i] == value && small[i] == (int)value && number_of(t, same, i) == value);
        assert_true(number_of(t, back, i) == fmin(fmax((double)rounded, low), high));
        assert_int_equal(code_of(t, wrapped, i), whole[i] & (levels - 1));
    }
    assert_int_equal(back[size_of(t, 35) - 1] >> 35 * t->bits % 8, 0); /* beyond the last */
}

/* All codes of a constant and of an input, as numbers and back. */
static void check_all_codes(dlc_context *context, const struct coded *t) {
    const int count = 1 << t->bits;
    static uint8_t x[256], back[256], bytes[256];
    static double given[256], known[256];
    static float real[256];
    memset(x, 0, sizeof x);
    for (int code = 0; code < count; code++) x[code * t->bits / 8] |= (uint8_t)(code << code * t->bits % 8);
    const int64_t shape[] = {count};
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "a", t->dtype, 1, DIMS(SIZE(count)));
    dlc_value c = dlc_constant(g, t->dtype, 1, shape, x), wide = dlc_unpack_bits(a);
    OK(context, dlc_output(g, "given", dlc_cast(a, DLC_F64)));
    OK(context, dlc_output(g, "known", dlc_cast(c, DLC_F64)));
    OK(context, dlc_output(g, "real", dlc_cast(a, DLC_F32)));
    OK(context, dlc_output(g, "back", dlc_cast(dlc_cast(c, DLC_F32), t->dtype)));
    OK(context, dlc_output(g, "bytes", wide));
    dlc_program *program = compile(context, g);
    tensor in, out[5];
    make_tensor(&in, t->dtype, x, 1, shape);
    make_tensor(&out[0], DLC_F64, given, 1, shape), make_tensor(&out[1], DLC_F64, known, 1, shape);
    make_tensor(&out[2], DLC_F32, real, 1, shape), make_tensor(&out[3], t->dtype, back, 1, shape);
    make_tensor(&out[4], t->is_integer && t->is_signed ? DLC_I8 : DLC_U8, bytes, 1, shape);
    run(context, program, 1, &in, 5, out);
    dlc_program_destroy(program);
    for (int i = 0; i < count; i++) {
        const double number = number_of(t, x, i);
        if (!is_like(given[i], number) || !is_like(known[i], number) || !is_like((double)real[i], number))
            fail_msg("%s: code %d is %g, %g and %g, expected %g", t->name, i, given[i], known[i], (double)real[i],
                     number);
        assert_int_equal(bytes[i], t->is_integer && number < 0 ? 256 + (int)number : i);
        assert_int_equal(code_of(t, back, i), i);
    }
}

/* Rows that move elements: transpose, slice, concatenation, gather, select. */
static void check_structure(dlc_context *context, const struct coded *t) {
    static uint8_t x[35], moved[35], part[15], joined[70];
    const int64_t shape[] = {5, 7}, turned[] = {7, 5}, both[] = {10, 7}, cut[] = {3, 5};
    fill_bytes(x, sizeof x, 9);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "a", t->dtype, 2, DIMS(SIZE(5), SIZE(7)));
    OK(context, dlc_output(g, "moved", dlc_transpose(a, 2, (const int64_t[]){1, 0})));
    OK(context, dlc_output(g, "part", dlc_slice(a, 2, DIMS(SIZE(1), SIZE(2)), 2, DIMS(SIZE(4), SIZE(7)))));
    OK(context, dlc_output(g, "joined", dlc_concat(2, (const dlc_value[]){a, a}, 0)));
    dlc_program *program = compile(context, g);
    tensor in[1], out[3];
    make_tensor(&in[0], t->dtype, x, 2, shape);
    make_tensor(&out[0], t->dtype, moved, 2, turned), make_tensor(&out[1], t->dtype, part, 2, cut);
    make_tensor(&out[2], t->dtype, joined, 2, both);
    run(context, program, 1, in, 3, out);
    dlc_program_destroy(program);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 7; k++) {
            const int code = code_of(t, x, i * 7 + k);
            assert_int_equal(code_of(t, moved, k * 5 + i), code);
            assert_int_equal(code_of(t, joined, i * 7 + k), code);
            assert_int_equal(code_of(t, joined, (i + 5) * 7 + k), code);
            if (i >= 1 && i < 4 && k >= 2) assert_int_equal(code_of(t, part, (i - 1) * 5 + k - 2), code);
        }
}

/* f8e8m0 of what is between powers of two, beyond the greatest and below the least, by each rounding with and without saturate. The
 * expected codes follow the table of ONNX Cast; NaN is 255. */
static void check_power_casts(dlc_context *context) {
    static const struct {
        double x;
        int nearest, up, down;
    } rows[] = {{1, 127, 127, 127},
                {1.4999, 127, 128, 127},
                {1.5, 128, 128, 127},
                {3, 129, 129, 128},
                {0.124, 124, 124, 123},
                {0x1.8p-127, 1, 1, 0},
                {0x1.7p-127, 0, 1, 0},
                {0x1p-127, 0, 0, 0},
                {0x1.8p-128, 0, 0, -1},
                {0x1.4p-128, -1, 0, -1},
                {0x1p-149, -1, -1, -1},
                {0, -1, -1, -1},
                {-0.0, -1, -1, -1},
                {0x1p127, 254, 254, 254},
                {0x1.4p127, 254, 255, 254},
                {0x1.8p127, 255, 255, 254},
                {(double)INFINITY, 255, 255, 255}};
    enum { ROWS = sizeof rows / sizeof *rows, ALL = ROWS + 3 };
    static const dlc_cast_rounding roundings[] = {DLC_CAST_ROUNDING_NEAREST, DLC_CAST_ROUNDING_UP,
                                                  DLC_CAST_ROUNDING_DOWN};
    float x[ALL];
    uint8_t y[6][ALL];
    for (int i = 0; i < ROWS; i++) x[i] = (float)rows[i].x;
    x[ROWS] = NAN, x[ROWS + 1] = -1, x[ROWS + 2] = -INFINITY;
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(ALL)));
    tensor in, out[6];
    for (int k = 0; k < 6; k++) {
        char name[2] = {(char)('0' + k), 0};
        const dlc_cast_options options = {sizeof options, .saturate = k >= 3, .rounding = roundings[k % 3]};
        OK(context, dlc_output(g, name, dlc_cast_with(a, DLC_F8E8M0, &options)));
        make_tensor(&out[k], DLC_F8E8M0, y[k], 1, SHAPE(ALL));
    }
    dlc_program *program = compile(context, g);
    make_tensor(&in, DLC_F32, x, 1, SHAPE(ALL));
    run(context, program, 1, &in, 6, out);
    dlc_program_destroy(program);
    for (int i = 0; i < ALL; i++)
        for (int k = 0; k < 6; k++) {
            int code = i >= ROWS ? 255 : k % 3 == 0 ? rows[i].nearest : k % 3 == 1 ? rows[i].up : rows[i].down;
            if (i < ROWS && k >= 3) code = code < 0 ? 0 : code > 254 ? 254 : code;
            if (code < 0) code = 255;
            if (y[k][i] != code) fail_msg("%a, rounding %d: code %d, expected %d", (double)x[i], k, y[k][i], code);
        }
}

/* y = x * (w * scale): weights of 4 bits, a scale for each group of 32 rows; w is a constant or arrives. */
static void check_weights(dlc_context *context, bool constant, int64_t rows) {
    enum { IN = 96, OUT = 40, GROUP = 32, ROWS = 7 };
    static uint8_t w[IN * OUT / 2];
    static float x[ROWS * IN], scale[IN / GROUP * OUT], y[ROWS * OUT];
    fill_bytes(w, sizeof w, 3);
    fill(x, ROWS * IN, 1);
    fill(scale, IN / GROUP * OUT, 2);
    const int64_t shape[] = {IN, OUT};
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(IN)));
    dlc_value b =
        constant ? dlc_constant(g, DLC_I4, 2, shape, w) : dlc_input(g, "w", DLC_I4, 2, DIMS(SIZE(IN), SIZE(OUT)));
    dlc_value s = dlc_constant(g, DLC_F32, 3, (const int64_t[]){IN / GROUP, 1, OUT}, scale);
    dlc_value wide = dlc_reshape(dlc_cast(b, DLC_F32), 3, DIMS(SIZE(IN / GROUP), SIZE(GROUP), SIZE(OUT)));
    wide = dlc_reshape(dlc_mul(wide, s), 2, DIMS(SIZE(IN), SIZE(OUT)));
    OK(context, dlc_output(g, "y", dlc_matmul(a, wide)));
    dlc_program *program = compile(context, g);
    tensor in[2], out;
    make_tensor(&in[0], DLC_F32, x, 2, (const int64_t[]){rows, IN});
    make_tensor(&in[1], DLC_I4, w, 2, shape);
    make_tensor(&out, DLC_F32, y, 2, (const int64_t[]){rows, OUT});
    run(context, program, constant ? 1 : 2, in, 1, &out);
    dlc_program_destroy(program);
    for (int i = 0; i < (int)rows; i++)
        for (int o = 0; o < OUT; o++) {
            double sum = 0;
            for (int k = 0; k < IN; k++)
                sum += (double)x[i * IN + k] * nibble(w, k * OUT + o) * (double)scale[k / GROUP * OUT + o];
            if (!(fabs((double)y[i * OUT + o] - sum) < 1e-4))
                fail_msg("y[%d, %d] is %g, expected %g", i, o, (double)y[i * OUT + o], sum);
        }
}

/* To i4 with a scale for each column, and back, with a zero point that is i4, too. */
static void check_quantized(dlc_context *context) {
    float x[35], y[35];
    uint8_t q[18];
    const float scale[] = {0.1f, 0.2f, 0.5f, 0.25f, 0.125f, 1, 2};
    const uint8_t zero = 0x0d; /* -3 */
    fill(x, 35, 4);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(5), SIZE(7)));
    dlc_value s = dlc_constant(g, DLC_F32, 1, (const int64_t[]){7}, scale);
    dlc_value z = dlc_constant(g, DLC_I4, 0, NULL, &zero);
    dlc_value packed = dlc_quantize_linear_with(
        a, s, z, 1, &(dlc_quantize_linear_options){sizeof(dlc_quantize_linear_options), .dtype = DLC_I4});
    OK(context, dlc_output(g, "q", packed));
    OK(context, dlc_output(g, "y", dlc_dequantize_linear(packed, s, z, 1)));
    dlc_program *program = compile(context, g);
    tensor in, out[2];
    make_tensor(&in, DLC_F32, x, 2, SHAPE(5, 7));
    make_tensor(&out[0], DLC_I4, q, 2, SHAPE(5, 7)), make_tensor(&out[1], DLC_F32, y, 2, SHAPE(5, 7));
    run(context, program, 1, &in, 2, out);
    dlc_program_destroy(program);
    for (int i = 0; i < 35; i++) {
        const double whole = rint((double)(x[i] / scale[i % 7])) - 3, expected = whole < -8  ? -8
                                                                                 : whole > 7 ? 7
                                                                                             : whole;
        assert_int_equal(nibble(q, i), (int)expected);
        assert_true(y[i] == (float)(expected + 3) * scale[i % 7]);
    }
}

/* To i4 in blocks of three along rows of seven, the last of which is one element, each with a scale and an i4 zero point. */
static void check_quantized_blocks(dlc_context *context) {
    float x[35], y[35], scale[15];
    uint8_t q[18], zero[8];
    fill(x, 35, 5);
    for (int i = 0; i < 15; i++) scale[i] = 0.0625f * (float)(1 + i % 7);
    for (int i = 0; i < 8; i++) zero[i] = (uint8_t)(i * 37 + 1);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(5), SIZE(7)));
    dlc_value s = dlc_input(g, "s", DLC_F32, 2, DIMS(SIZE(5), SIZE(3)));
    dlc_value z = dlc_constant(g, DLC_I4, 2, (const int64_t[]){5, 3}, zero);
    dlc_value packed = dlc_quantize_linear_with(
        a, s, z, 1, &(dlc_quantize_linear_options){sizeof(dlc_quantize_linear_options), .block = 3, .dtype = DLC_I4});
    OK(context, dlc_output(g, "q", packed));
    OK(context, dlc_output(g, "y",
                           dlc_dequantize_linear_with(
                               packed, s, z, 1,
                               &(dlc_dequantize_linear_options){sizeof(dlc_dequantize_linear_options), .block = 3})));
    dlc_program *program = compile(context, g);
    tensor in[2], out[2];
    make_tensor(&in[0], DLC_F32, x, 2, SHAPE(5, 7)), make_tensor(&in[1], DLC_F32, scale, 2, SHAPE(5, 3));
    make_tensor(&out[0], DLC_I4, q, 2, SHAPE(5, 7)), make_tensor(&out[1], DLC_F32, y, 2, SHAPE(5, 7));
    run(context, program, 2, in, 2, out);
    dlc_program_destroy(program);
    for (int i = 0; i < 35; i++) {
        const int block = i / 7 * 3 + i % 7 / 3, point = nibble(zero, block);
        const double whole = rint((double)(x[i] / scale[block])) + point, expected = fmin(fmax(whole, -8), 7);
        assert_int_equal(nibble(q, i), (int)expected);
        assert_true(y[i] == (float)(expected - point) * scale[block]);
    }
}

/* Through a loop, as what is carried, taken by steps and stacked. */
static void check_scan(dlc_context *context, dlc_dtype dtype, const char *name, size_t row) {
    char text[400];
    uint8_t x[6 * 8 * 4], c[8 * 4], last[8 * 4], stacked[6 * 8 * 4];
    snprintf(text, sizeof text,
             "graph {\n input x: %s[6, 4]\n input c: %s[4]\n a, y = scan(c, x, carries=1, sequences=1, body=graph {\n"
             "  input s: %s[4]\n  input e: %s[4]\n  output e\n  output s\n })\n output a\n output y\n}\n",
             name, name, name, name);
    fill_bytes(x, sizeof x, 8);
    fill_bytes(c, sizeof c, 9);
    dlc_graph *g;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    dlc_program *program = compile(context, g);
    tensor in[2], out[2];
    make_tensor(&in[0], dtype, x, 2, SHAPE(6, 4)), make_tensor(&in[1], dtype, c, 1, SHAPE(4));
    make_tensor(&out[0], dtype, last, 1, SHAPE(4)), make_tensor(&out[1], dtype, stacked, 2, SHAPE(6, 4));
    run(context, program, 2, in, 2, out);
    dlc_program_destroy(program);
    assert_memory_equal(last, x + 5 * row, row);
    assert_memory_equal(stacked, c, row);
    assert_memory_equal(stacked + row, x, 5 * row);
}

/* Codes of whole bytes may lie apart. */
static void check_strides(dlc_context *context) {
    uint8_t x[12], back[12] = {0};
    float y[6];
    dlc_graph *g;
    fill_bytes(x, sizeof x, 12);
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "x", DLC_F8E8M0, 2, DIMS(SIZE(2), SIZE(3)));
    OK(context, dlc_output(g, "y", dlc_cast(a, DLC_F32)));
    OK(context, dlc_output(g, "back", dlc_transpose(a, 2, SHAPE(1, 0))));
    dlc_program *program = compile(context, g);
    tensor in, out[2];
    make_tensor(&in, DLC_F8E8M0, x, 2, SHAPE(2, 3)), make_tensor(&out[0], DLC_F32, y, 2, SHAPE(2, 3));
    make_tensor(&out[1], DLC_F8E8M0, back, 2, SHAPE(3, 2));
    in.strides[0] = 2, in.strides[1] = 4, in.dl.strides = in.strides;
    out[1].strides[0] = 4, out[1].strides[1] = 2, out[1].dl.strides = out[1].strides;
    run(context, program, 1, &in, 2, out);
    dlc_program_destroy(program);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) {
            assert_true(is_like((double)y[i * 3 + k], number_of(&coded[5], x, 2 * i + 4 * k)));
            assert_int_equal(back[2 * i + 4 * k], x[2 * i + 4 * k]);
        }
}

/* f4e2m1 with powers of two as scales of blocks of 32 rows, as OCP's Microscaling formats have them: quantised by the graph, then the
 * weights of a product. */
static void check_scaled_blocks(dlc_context *context, bool constant) {
    enum { IN = 96, OUT = 40, GROUP = 32, ROWS = 3 };
    static uint8_t w[IN * OUT / 2], q[ROWS * IN / 2], scale[IN / GROUP * OUT];
    static float x[ROWS * IN], y[ROWS * OUT], plain[IN * OUT];
    const struct coded *f4 = &coded[4], *power = &coded[5];
    fill_bytes(w, sizeof w, 3);
    fill(x, ROWS * IN, 1);
    for (int i = 0; i < IN / GROUP * OUT; i++) scale[i] = (uint8_t)(127 - i % 7);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    const dlc_dequantize_linear_options blocks = {sizeof blocks, .block = GROUP};
    const dlc_quantize_linear_options to_f4 = {sizeof to_f4, .dtype = DLC_F4E2M1};
    dlc_value a = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(ROWS), SIZE(IN)));
    dlc_value b = constant ? dlc_constant(g, DLC_F4E2M1, 2, SHAPE(IN, OUT), w)
                           : dlc_input(g, "w", DLC_F4E2M1, 2, DIMS(SIZE(IN), SIZE(OUT)));
    dlc_value s = constant ? dlc_constant(g, DLC_F8E8M0, 2, SHAPE(IN / GROUP, OUT), scale)
                           : dlc_input(g, "s", DLC_F8E8M0, 2, DIMS(SIZE(IN / GROUP), SIZE(OUT)));
    dlc_value wide = dlc_dequantize_linear_with(b, s, DLC_NONE, 0, &blocks);
    OK(context, dlc_output(g, "y", dlc_matmul(a, wide)));
    OK(context, dlc_output(g, "plain", wide));
    dlc_value eighth = dlc_cast(dlc_scalar(g, DLC_F32, 0.125), DLC_F8E8M0);
    OK(context, dlc_output(g, "q", dlc_quantize_linear_with(a, eighth, DLC_NONE, 0, &to_f4)));
    dlc_program *program = compile(context, g);
    tensor in[3], out[3];
    make_tensor(&in[0], DLC_F32, x, 2, SHAPE(ROWS, IN));
    make_tensor(&in[1], DLC_F4E2M1, w, 2, SHAPE(IN, OUT));
    make_tensor(&in[2], DLC_F8E8M0, scale, 2, SHAPE(IN / GROUP, OUT));
    make_tensor(&out[0], DLC_F32, y, 2, SHAPE(ROWS, OUT)), make_tensor(&out[1], DLC_F32, plain, 2, SHAPE(IN, OUT));
    make_tensor(&out[2], DLC_F4E2M1, q, 2, SHAPE(ROWS, IN));
    run(context, program, constant ? 1 : 3, in, 3, out);
    dlc_program_destroy(program);
    for (int k = 0; k < IN * OUT; k++)
        assert_true((double)plain[k] == number_of(f4, w, k) * number_of(power, scale, k / OUT / GROUP * OUT + k % OUT));
    for (int i = 0; i < ROWS * OUT; i++) {
        double sum = 0;
        for (int k = 0; k < IN; k++) sum += (double)x[i / OUT * IN + k] * (double)plain[k * OUT + i % OUT];
        assert_true(fabs((double)y[i] - sum) < 1e-4);
    }
    for (int i = 0; i < ROWS * IN; i++) {
        const double exact = (double)x[i] * 8, got = number_of(f4, q, i);
        for (int code = 0; code < 16; code++) /* no other number is nearer */
            assert_true(fabs(got - exact) <= fabs(f4e2m1[code] - exact));
    }
}

/* Of all four types of less than a byte, in one row of numbers with a scale each; halves to even, ends saturate. */
static void check_quantized_types(dlc_context *context) {
    static const float x[] = {-30, -3, -2.5f, -0.5f, -0.25f, 0.25f, 0.5f, 0.75f, 1.5f, 2.5f, 3.5f, 5, 40};
    static const double expected[3][13] = {{-2, -2, -2, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1},
                                           {0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 3, 3, 3},
                                           {-6, -3, -2, -0.5, 0, 0, 0.5, 1, 1.5, 2, 4, 4, 6}};
    enum { COUNT = sizeof x / sizeof *x };
    static const int which[] = {2, 3, 4};
    uint8_t q[3][7];
    float y[3][COUNT];
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(COUNT))), one = dlc_scalar(g, DLC_F32, 1);
    tensor in, out[6];
    for (int k = 0; k < 3; k++) {
        const struct coded *t = &coded[which[k]];
        char name[2][3] = {{'q', (char)('0' + k), 0}, {'y', (char)('0' + k), 0}};
        const dlc_quantize_linear_options options = {sizeof options, .dtype = t->dtype};
        dlc_value packed = dlc_quantize_linear_with(a, one, DLC_NONE, 0, &options);
        OK(context, dlc_output(g, name[0], packed));
        OK(context, dlc_output(g, name[1], dlc_dequantize_linear(packed, one, DLC_NONE, 0)));
        make_tensor(&out[2 * k], t->dtype, q[k], 1, SHAPE(COUNT));
        make_tensor(&out[2 * k + 1], DLC_F32, y[k], 1, SHAPE(COUNT));
    }
    dlc_program *program = compile(context, g);
    make_tensor(&in, DLC_F32, (void *)(uintptr_t)x, 1, SHAPE(COUNT));
    run(context, program, 1, &in, 6, out);
    dlc_program_destroy(program);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < COUNT; i++)
            if (number_of(&coded[which[k]], q[k], i) != expected[k][i] || (double)y[k][i] != expected[k][i])
                fail_msg("%s of %g is %g, expected %g", coded[which[k]].name, (double)x[i], (double)y[k][i],
                         expected[k][i]);
}

/* Known values and what is computed of them. */
static void check_eager(dlc_context *context, const struct coded *t) {
    uint8_t x[5], back[5];
    float y[5];
    double number;
    fill_bytes(x, sizeof x, 6);
    dlc_graph *g;
    tensor in, out, real;
    OK(context, dlc_eager_create(context, NULL, &g));
    dlc_value a = dlc_eager_tensor(g, &make_tensor(&in, t->dtype, x, 1, SHAPE(5))->dl), wide = dlc_cast(a, DLC_F32);
    OK(context, dlc_eager_read(g, wide, &make_tensor(&real, DLC_F32, y, 1, SHAPE(5))->dl));
    OK(context, dlc_eager_read(g, dlc_cast(wide, t->dtype), &make_tensor(&out, t->dtype, back, 1, SHAPE(5))->dl));
    for (int i = 0; i < 5; i++) {
        assert_true(is_like((double)y[i], number_of(t, x, i)));
        assert_int_equal(code_of(t, back, i), code_of(t, x, i));
    }
    OK(context, dlc_eager_number(g, dlc_cast(dlc_scalar(g, DLC_F32, 1), t->dtype), &number));
    assert_true(number == 1);
    dlc_graph_destroy(g);
}

/* Bytes of single elements and back, by name. */
static void check_bytes(dlc_context *context, const struct coded *t) {
    uint8_t x[12], bytes[12], back[12];
    dlc_graph *g;
    fill_bytes(x, sizeof x, 11);
    OK(context, dlc_graph_create(context, &g));
    dlc_value wide = dlc_unpack_bits(dlc_input(g, "x", t->dtype, 2, DIMS(SIZE(3), SIZE(4))));
    OK(context, dlc_output(g, "wide", wide));
    OK(context, dlc_output(g, "back", dlc_pack_bits(wide, t->dtype)));
    dlc_program *program = compile(context, g);
    tensor in[1], out[2];
    const bool is_signed = t->is_signed && t->is_integer;
    make_tensor(&in[0], t->dtype, x, 2, SHAPE(3, 4));
    make_tensor(&out[0], is_signed ? DLC_I8 : DLC_U8, bytes, 2, SHAPE(3, 4));
    make_tensor(&out[1], t->dtype, back, 2, SHAPE(3, 4));
    run(context, program, 1, in, 2, out);
    dlc_program_destroy(program);
    for (int i = 0; i < 12; i++)
        assert_int_equal(is_signed ? (int8_t)bytes[i] : bytes[i],
                         is_signed ? (int)number_of(t, x, i) : code_of(t, x, i));
    assert_memory_equal(back, x, size_of(t, 12));
}

static void test_codes(void **state) {
    dlc_context *context = open_context(*state, NULL);
    if (!context) skip();
    for (int i = 0; i < CODED; i++) {
        if (coded[i].is_integer) check_integer_casts(context, &coded[i]);
        check_all_codes(context, &coded[i]);
        check_structure(context, &coded[i]);
        check_bytes(context, &coded[i]);
        check_scan(context, coded[i].dtype, coded[i].name, (size_t)size_of(&coded[i], 4));
        check_eager(context, &coded[i]);
    }
    check_power_casts(context);
    check_strides(context);
    check_quantized(context);
    check_quantized_blocks(context);
    check_quantized_types(context);
    for (int constant = 0; constant < 2; constant++) {
        check_scaled_blocks(context, constant);
        for (int64_t rows = 1; rows <= 7; rows += 6) check_weights(context, constant, rows);
    }
    dlc_context_destroy(context);
}

/* ---- complex numbers */

/* Functions and sums of products; sizes that overflow when squared, infinities, zeros. */
static void check_complex_functions(dlc_context *context) {
    enum { M = 9, K = 6, N = 4 };
    static const float ends[][2] = {{0, 0},         {3e38f, 1e38f}, {1e-40f, 0},
                                    {-INFINITY, 1}, {2, INFINITY},  {-3e-30f, 4e-30f}};
    static float a[2 * M * K], b[2 * K * N], product[2 * M * N], power[2 * M * K], size[M * K], angle[M * K],
        sum[2 * M];
    fill(a, 2 * M * K, 3);
    fill(b, 2 * K * N, 4);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_C64, 2, DIMS(SIZE(M), SIZE(K))),
              y = dlc_input(g, "y", DLC_C64, 2, DIMS(SIZE(K), SIZE(N)));
    OK(context, dlc_output(g, "product", dlc_matmul(x, y)));
    OK(context, dlc_output(g, "power", dlc_exp(x)));
    OK(context, dlc_output(g, "size", dlc_abs(x)));
    OK(context, dlc_output(g, "angle", dlc_angle(x)));
    OK(context, dlc_output(g, "sum", dlc_reduce_sum(x, 1, SHAPE(1))));
    dlc_program *program = compile(context, g);
    tensor in[2], out[5];
    make_tensor(&in[0], DLC_C64, a, 2, SHAPE(M, K)), make_tensor(&in[1], DLC_C64, b, 2, SHAPE(K, N));
    make_tensor(&out[0], DLC_C64, product, 2, SHAPE(M, N)), make_tensor(&out[1], DLC_C64, power, 2, SHAPE(M, K));
    make_tensor(&out[2], DLC_F32, size, 2, SHAPE(M, K)), make_tensor(&out[3], DLC_F32, angle, 2, SHAPE(M, K));
    make_tensor(&out[4], DLC_C64, sum, 1, SHAPE(M));
    run(context, program, 2, in, 5, out);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double real = 0, imag = 0;
            for (int k = 0; k < K; k++) {
                const double p = (double)a[2 * (i * K + k)], q = (double)a[2 * (i * K + k) + 1];
                const double r = (double)b[2 * (k * N + j)], s = (double)b[2 * (k * N + j) + 1];
                real += p * r - q * s, imag += p * s + q * r;
            }
            assert_true(fabs((double)product[2 * (i * N + j)] - real) <= 1e-5 &&
                        fabs((double)product[2 * (i * N + j) + 1] - imag) <= 1e-5);
        }
    for (int i = 0; i < M * K; i++) {
        const double p = (double)a[2 * i], q = (double)a[2 * i + 1];
        assert_true(fabs((double)power[2 * i] - exp(p) * cos(q)) <= 2e-6 * exp(p) &&
                    fabs((double)power[2 * i + 1] - exp(p) * sin(q)) <= 2e-6 * exp(p));
        assert_true(fabs((double)size[i] - hypot(p, q)) <= 4e-7 * hypot(p, q) &&
                    fabs((double)angle[i] - atan2(q, p)) <= 2e-6);
    }
    for (int i = 0; i < 2 * M; i++) {
        double whole = 0;
        for (int k = 0; k < K; k++) whole += (double)a[2 * (i / 2 * K + k) + i % 2];
        assert_true(fabs((double)sum[i] - whole) <= 1e-5);
    }
    memcpy(a, ends, sizeof ends);
    run(context, program, 2, in, 5, out);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const double exact = hypot((double)ends[i][0], (double)ends[i][1]);
        assert_true(isinf(exact) ? (double)size[i] == exact : fabs((double)size[i] - exact) <= 4e-7 * exact + 1e-44);
    }
    dlc_program_destroy(program);
}

static void test_complex(void **state) {
    enum { N = 35 };
    dlc_context *context = open_context(*state, NULL);
    if (!context) skip();
    const int64_t shape[] = {5, 7}, turned[] = {7, 5}, pairs[] = {5, 7, 2};
    static float a[2 * N], b[2 * N], product[2 * N], quotient[2 * N], sum[2 * N], moved[2 * N], view[2 * N], imag[N],
        conj[2 * N], strided[4 * N];
    fill(a, 2 * N, 1);
    fill(b, 2 * N, 2);
    b[1] = 0, b[2] = 0; /* divisors on either axis */
    b[20] *= 1e30f, b[21] *= 1e30f;
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_C64, 2, DIMS(SIZE(5), SIZE(7)));
    dlc_value y = dlc_input(g, "y", DLC_C64, 2, DIMS(SIZE(5), SIZE(7)));
    OK(context, dlc_output(g, "product", dlc_mul(x, y)));
    OK(context, dlc_output(g, "quotient", dlc_div(x, y)));
    OK(context, dlc_output(g, "sum", dlc_sub(dlc_add(x, y), dlc_neg(y))));
    OK(context, dlc_output(g, "moved", dlc_transpose(x, 2, (const int64_t[]){1, 0})));
    OK(context, dlc_output(g, "view", dlc_as_pairs(dlc_as_complex(dlc_as_pairs(x)))));
    OK(context, dlc_output(g, "imag", dlc_imag(x)));
    OK(context, dlc_output(g, "conj", dlc_complex(dlc_real(dlc_conj(x)), dlc_imag(dlc_conj(x)))));
    dlc_program *program = compile(context, g);
    tensor in[2], out[7];
    for (int i = 0; i < N; i++) memcpy(&strided[4 * i], &a[2 * i], 8);
    make_tensor(&in[0], DLC_C64, strided, 2, shape), make_tensor(&in[1], DLC_C64, b, 2, shape);
    in[0].strides[0] = 14, in[0].strides[1] = 2;
    in[0].dl.strides = in[0].strides;
    make_tensor(&out[0], DLC_C64, product, 2, shape), make_tensor(&out[1], DLC_C64, quotient, 2, shape);
    make_tensor(&out[2], DLC_C64, sum, 2, shape), make_tensor(&out[3], DLC_C64, moved, 2, turned);
    make_tensor(&out[4], DLC_F32, view, 3, pairs), make_tensor(&out[5], DLC_F32, imag, 2, shape);
    make_tensor(&out[6], DLC_C64, conj, 2, shape);
    run(context, program, 2, in, 7, out);
    dlc_program_destroy(program);
    for (int i = 0; i < N; i++) {
        const double p = (double)a[2 * i], q = (double)a[2 * i + 1], r = (double)b[2 * i], s = (double)b[2 * i + 1];
        const double size = r * r + s * s, exact[] = {(p * r + q * s) / size, (q * r - p * s) / size};
        assert_true(fabs((double)product[2 * i] - (p * r - q * s)) <= 1e-6 * (fabs(p * r) + fabs(q * s)));
        assert_true(fabs((double)product[2 * i + 1] - (p * s + q * r)) <= 1e-6 * (fabs(p * s) + fabs(q * r)));
        for (int k = 0; k < 2; k++)
            assert_true(fabs((double)quotient[2 * i + k] - exact[k]) <= 2e-6 * hypot(exact[0], exact[1]));
        assert_true(sum[2 * i] == a[2 * i] + b[2 * i] + b[2 * i] && imag[i] == a[2 * i + 1]);
        assert_true(conj[2 * i] == a[2 * i] && conj[2 * i + 1] == -a[2 * i + 1]);
        assert_memory_equal(&moved[2 * (i % 7 * 5 + i / 7)], &a[2 * i], 8);
    }
    assert_memory_equal(view, a, sizeof a);
    check_scan(context, DLC_C64, "c64", 32);
    check_complex_functions(context);
    dlc_context_destroy(context);
}

/* NumPy's of the other byte order: each part is turned by itself. */
static void test_swapped(void **state) {
    (void)state;
    static const char header[] = "{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }";
    unsigned char bytes[128 + 8] = "\x93NUMPY\x01";
    const unsigned char parts[] = {0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}; /* 1 - 2i */
    memset(bytes + 10, ' ', 118);
    bytes[7] = 0, bytes[8] = 118, bytes[9] = 0, bytes[127] = '\n';
    memcpy(bytes + 10, header, sizeof header - 1);
    memcpy(bytes + 128, parts, sizeof parts);
    dlc_context *context = open_context("interp", NULL);
    dlc_file *file;
    DLManagedTensorVersioned *read;
    OK(context, dlc_file_parse(context, bytes, sizeof bytes, &file));
    OK(context, dlc_file_tensor(file, "", &read));
    const float expected[] = {1, -2};
    assert_memory_equal(read->dl_tensor.data, expected, sizeof expected);
    read->deleter(read);
    dlc_file_destroy(file);
    dlc_context_destroy(context);
}

/* ---- what is refused, and what the message says */

static void check_message(const dlc_graph *g, const char *wanted) {
    if (!strstr(dlc_graph_message(g), wanted)) fail_msg("\"%s\" lacks \"%s\"", dlc_graph_message(g), wanted);
}

static void test_refusals(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_exp(dlc_input(g, "x", DLC_I4, 1, DIMS(SIZE(4))));
    check_message(g, "i4");
    dlc_graph_destroy(g);
    static const dlc_dtype codes[] = {DLC_I2, DLC_F4E2M1, DLC_F8E8M0};
    for (int i = 0; i < 3; i++) { /* also a row of all floats has none of it */
        OK(context, dlc_graph_create(context, &g));
        dlc_exp(dlc_input(g, "x", codes[i], 1, DIMS(SIZE(4))));
        check_message(g, dlc_dtype_name(codes[i]));
        check_message(g, "cast it first");
        dlc_graph_destroy(g);
    }
    OK(context, dlc_graph_create(context, &g));
    dlc_pack_bits(dlc_input(g, "x", DLC_U8, 1, DIMS(SIZE(4))), DLC_F32);
    check_message(g, "dtype is f32, expected i4, u4, i2, u2, f4e2m1 or f8e8m0");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    dlc_bit_cast(dlc_input(g, "x", DLC_F8E8M0, 1, DIMS(SIZE(4))), DLC_U8);
    check_message(g, "unpack_bits");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    const dlc_quantize_linear_options powers = {sizeof powers, .dtype = DLC_F8E8M0};
    dlc_quantize_linear_with(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(4))), dlc_scalar(g, DLC_F32, 1), DLC_NONE, 0,
                             &powers);
    check_message(g, "dtype is f8e8m0");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    dlc_cast(dlc_input(g, "x", DLC_C64, 1, DIMS(SIZE(4))), DLC_F32);
    check_message(g, "cast real or imag of it");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    dlc_input(g, "x", (dlc_dtype)DLC_DTYPE_COUNT, 1, DIMS(SIZE(4)));
    check_message(g, "is not an element type");
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_output(g, "y", dlc_cast(dlc_input(g, "x", DLC_U4, 1, DIMS(SIZE(4))), DLC_I32)));
    dlc_program *program = compile(context, g);
    uint8_t x[4] = {0};
    int32_t y[4];
    tensor in, out;
    const DLTensor *given[] = {&make_tensor(&in, DLC_U4, x, 1, SHAPE(4))->dl};
    dlc_output_slot slot = {.tensor = &make_tensor(&out, DLC_I32, y, 1, SHAPE(4))->dl};
    in.strides[0] = 2, in.dl.strides = in.strides;
    assert_int_equal(dlc_run(program, NULL, given, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "expected a compact tensor"));
    in.dl.strides = NULL;
    in.dl.dtype.lanes = 2;
    assert_int_equal(dlc_run(program, NULL, given, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "expected u4"));
    in.dl.dtype = (DLDataType){kDLInt, 4, 1};
    assert_int_equal(dlc_run(program, NULL, given, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "is i4, expected u4"));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    struct CMUnitTest tests[2 * TARGETS + 2];
    char names[2 * TARGETS][32];
    for (int t = 0; t < TARGETS; t++)
        for (int k = 0; k < 2; k++) {
            snprintf(names[2 * t + k], sizeof *names, "%s_on_%s", k ? "complex" : "codes", all_targets[t]);
            tests[2 * t + k] = (struct CMUnitTest){names[2 * t + k], k ? test_complex : test_codes, NULL, NULL,
                                                   (void *)(uintptr_t)all_targets[t]};
        }
    tests[2 * TARGETS] = (struct CMUnitTest)cmocka_unit_test(test_refusals);
    tests[2 * TARGETS + 1] = (struct CMUnitTest)cmocka_unit_test(test_swapped);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
