/* Every operator and conversion of every dtype on ordinary and on extreme values, in lanes and as scalars, with
 * constant operands where the emitter takes short cuts. */
#include "test/cpu/kernel_check.h"
#include "test/share.h"

#include "tir/expr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const integers[] = {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
static const char *const floats[] = {"f32", "f64"};
static const char *const dtypes[] = {"bool", "i8",  "i16", "i32",  "i64", "u8", "u16",
                                     "u32",  "u64", "f16", "bf16", "f32", "f64"};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static void check_expression(const char *result, const char *operand, const char *expression) {
    static int number;
    char text[1024];
    if (!test_takes(number++, 5)) return;
    snprintf(text, sizeof text,
             "kernel value(x: %s[93] arg, y: %s[93] arg, z: %s[93] arg, o: %s[93] arg, q: %s[93] arg)\n"
             "phase tasks=1 task=p {\n"
             "  for i in 0..93 vec { o[i] = %s }\n"
             "  for i in 0..93 { q[i] = %s }\n"
             "}\n",
             operand, operand, operand, result, result, expression, expression);
    kernel_check_unverified(text, NULL); /* the verifier refuses buffers of reserved dtypes */
}

static void test_casts(void **state) {
    (void)state;
    for (size_t from = 0; from < COUNT(dtypes); from++)
        for (size_t to = 0; to < COUNT(dtypes); to++) {
            char expression[64];
            if (from == to) continue;
            snprintf(expression, sizeof expression, "cast.%s(x[i])", dtypes[to]);
            check_expression(dtypes[to], dtypes[from], expression);
        }
}

/* Rounded to nearest and converted at once; the bounds beside it are those of the type, or within. */
static void test_rounded_casts(void **state) {
    (void)state;
    static const char *const to[] = {"i8", "u8", "i16", "i32"};
    static const char *const from[] = {"f32", "f64"};
    for (size_t t = 0; t < COUNT(to); t++)
        for (size_t f = 0; f < COUNT(from); f++) {
            char text[96];
            snprintf(text, sizeof text, "cast.%s(round(x[i]))", to[t]);
            check_expression(to[t], from[f], text);
            snprintf(text, sizeof text, "cast.%s(round(max(min(x[i], 100:%s), 0:%s)))", to[t], from[f], from[f]);
            check_expression(to[t], from[f], text);
            snprintf(text, sizeof text, "cast.%s(round(x[i])) + cast.%s(x[i])", to[t], to[t]);
            check_expression(to[t], from[f], text);
        }
}

/* Denormals, of which there may be one among other lanes, and what is not positive. */
static void test_bf16(void **state) {
    (void)state;
    static const char *const forms[] = {"cast.bf16(x[i]*y[i])",
                                        "cast.bf16(max(x[i], 0:f32))",
                                        "cast.bf16(max(0:f32, x[i] + y[i]))",
                                        "cast.bf16(max(x[i], -0.0:f32))",
                                        "cast.bf16(x[i]*1.1754944e-38:f32)",
                                        "cast.bf16(max(x[i]*5.877472e-39:f32, 0:f32))",
                                        "cast.bf16(fma(x[i], y[i], z[i])*select(x[i] < y[i], 7.34684e-40:f32, 1:f32))"};
    for (size_t i = 0; i < COUNT(forms); i++) check_expression("bf16", "f32", forms[i]);
    check_expression("f32", "f32", "cast.f32(cast.bf16(x[i])) - cast.f32(cast.bf16(max(x[i], 0:f32)))");
}

static void test_index_casts(void **state) {
    (void)state;
    for (size_t to = 1; to < COUNT(dtypes); to++) {
        char expression[64];
        snprintf(expression, sizeof expression, "cast.%s(i*3 - 7)", dtypes[to]);
        check_expression(dtypes[to], "f32", expression);
        snprintf(expression, sizeof expression, "cast.%s(i*3000000000 - 7)", dtypes[to]);
        check_expression(dtypes[to], "f32", expression);
    }
}

static void test_float_operators(void **state) {
    (void)state;
    static const char *const forms[] = {
        "x[i] + y[i]",
        "x[i] - y[i]",
        "x[i]*y[i]",
        "x[i]/y[i]",
        "fma(x[i], y[i], z[i])",
        "min(x[i], y[i])",
        "max(x[i], y[i])",
        "neg(x[i])",
        "abs(x[i])",
        "sqrt(x[i])",
        "floor(x[i])",
        "ceil(x[i])",
        "trunc(x[i])",
        "round(x[i])",
        "x[i] % y[i]",
        "select(x[i] < y[i], x[i], z[i])",
        "select(x[i] == y[i], x[i], z[i])",
        "select(x[i] <= y[i], x[i], z[i])",
        "select(x[i] != y[i], x[i], z[i])",
    };
    static const char *const constants[] = {"0", "-0.0", "1.5", "-2.5", "inf", "-inf"};
    for (size_t d = 0; d < COUNT(floats); d++) {
        for (size_t i = 0; i < COUNT(forms); i++) {
            char expression[128];
            snprintf(expression, sizeof expression, "%s", forms[i]);
            if (strchr(forms[i], '%')) snprintf(expression, sizeof expression, "rem(x[i], y[i])");
            check_expression(floats[d], floats[d], expression);
        }
        for (size_t i = 0; i < COUNT(constants); i++) {
            char expression[128];
            snprintf(expression, sizeof expression, "max(x[i], %s:%s)", constants[i], floats[d]);
            check_expression(floats[d], floats[d], expression);
            snprintf(expression, sizeof expression, "min(x[i], %s:%s)", constants[i], floats[d]);
            check_expression(floats[d], floats[d], expression);
        }
    }
}

static void test_integer_operators(void **state) {
    (void)state;
    static const char *const forms[] = {
        "x[i] + y[i]",
        "x[i] - y[i]",
        "x[i]*y[i]",
        "x[i]/y[i]",
        "rem(x[i], y[i])",
        "min(x[i], y[i])",
        "max(x[i], y[i])",
        "neg(x[i])",
        "abs(x[i])",
        "and(x[i], y[i])",
        "or(x[i], y[i])",
        "xor(x[i], y[i])",
        "not(x[i])",
        "shl(x[i], y[i])",
        "shr(x[i], y[i])",
        "select(x[i] < y[i], x[i], z[i])",
        "select(x[i] <= y[i], x[i], z[i])",
        "select(x[i] == y[i], x[i], z[i])",
        "select(x[i] != y[i], x[i], z[i])",
        "pow(x[i], y[i])",
    };
    static const char *const constants[] = {"x[i]/7",       "rem(x[i], 7)", "x[i]/1",       "x[i]/0",
                                            "rem(x[i], 0)", "shl(x[i], 3)", "shr(x[i], 3)", "shr(x[i], 64)"};
    static const char *const negative[] = {"x[i]/-1", "rem(x[i], -1)", "x[i]/-3", "rem(x[i], -3)"};
    for (size_t d = 0; d < COUNT(integers); d++) {
        char expression[128];
        for (size_t i = 0; i < COUNT(forms); i++) check_expression(integers[d], integers[d], forms[i]);
        for (size_t i = 0; i < COUNT(constants); i++) check_expression(integers[d], integers[d], constants[i]);
        for (size_t i = 0; i < COUNT(negative) && integers[d][0] == 'i'; i++)
            check_expression(integers[d], integers[d], negative[i]);
        snprintf(expression, sizeof expression, "mulhi(x[i], y[i])");
        if (strcmp(integers[d], "u32") == 0 || strcmp(integers[d], "u64") == 0)
            check_expression(integers[d], integers[d], expression);
    }
}

static void test_bools(void **state) {
    (void)state;
    static const char *const forms[] = {"and(x[i], y[i])", "or(x[i], y[i])",  "xor(x[i], y[i])",
                                        "not(x[i])",       "x[i] == y[i]",    "x[i] != y[i]",
                                        "min(x[i], y[i])", "max(x[i], y[i])", "select(x[i], y[i], z[i])"};
    for (size_t i = 0; i < COUNT(forms); i++) check_expression("bool", "bool", forms[i]);
    check_expression("bool", "f32", "x[i] < y[i]");
    check_expression("bool", "f64", "or(x[i] < y[i], and(y[i] < z[i], not(z[i] <= x[i])))");
    check_expression("f16", "f16", "select(cast.bool(x[i]), y[i], z[i])");
}

static void test_bitcasts(void **state) {
    (void)state;
    check_expression("i32", "f32", "bitcast.i32(x[i])");
    check_expression("f32", "u32", "bitcast.f32(x[i])");
    check_expression("u64", "f64", "bitcast.u64(x[i])");
    check_expression("i16", "f16", "bitcast.i16(x[i])");
    check_expression("bf16", "u16", "bitcast.bf16(x[i])");
    check_expression("u8", "i8", "bitcast.u8(x[i])");
}

static void test_library(void **state) {
    (void)state;
    static const char *const forms[] = {"exp(x[i])",       "expm1(x[i])",      "log(x[i])",  "log1p(x[i])",
                                        "sin(x[i])",       "cos(x[i])",        "tanh(x[i])", "erf(x[i])",
                                        "pow(x[i], y[i])", "atan2(x[i], y[i])"};
    for (size_t i = 0; i < COUNT(forms); i++) check_expression("f64", "f64", forms[i]);
}

static void test_guards(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"f32", "1:f32"},  {"f32", "0:f32"}, {"f32", "-0.0:f32"},
                                           {"i8", "3:i8"},    {"i8", "0:i8"},   {"bool", "true"},
                                           {"bool", "false"}, {"f64", "2:f64"}, {"f64", "0:f64"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[1024];
        const char *type = cases[i][0], *other = cases[i][1];
        snprintf(
            text, sizeof text,
            "kernel guards(x: %s[50] arg, f: bool[50] arg, o: %s[64] arg, q: %s[64] arg, r: %s[64] arg, s: %s[64] arg, "
            "t: %s[64] arg, u: %s[64] arg)\n"
            "phase tasks=64 task=p {\n"
            "  q[p] = x[p where p < 50 else %s]\n"
            "  if (p == 3) {\n"
            "    for i in 0..64 vec { o[i] = x[i - 7 where and(7 <= i, i < 57) else %s] }\n"
            "    for i in 0..64 vec { r[i] = x[p*20 + i where p < 1 else %s] }\n"
            "    for i in 0..64 vec { s[i] = x[99 where 77 < i else %s] }\n"
            "    for i in 0..64 vec { t[i] = x[99 - i*2 where and(24 < i, i < 50) else %s] }\n"
            "    for i in 0..64 vec { if (f[i/2]) { u[i] = x[i where i < 50 else %s] } }\n"
            "  }\n"
            "}\n",
            type, type, type, type, type, type, type, other, other, other, other, other, other);
        kernel_check(text, NULL);
    }
}

static void test_dots(void **state) {
    (void)state;
    const char *bf16 = "kernel dot(a: bf16[6, 14] arg, b: bf16[7, 32, 2] arg, D: f32[6, 32] arg, C: f32[6, 32] reg)\n"
                       "phase tasks=1 task=p {\n"
                       "  for i in 0..6 unroll { for j in 0..32 vec { C[i, j] = D[i, j] } }\n"
                       "  for k in 0..7 { for i in 0..6 unroll { for j in 0..32 vec {\n"
                       "    C[i, j] = dot2_bf16(C[i, j], a[i, k*2], b[k, j, 0], a[i, k*2 + 1], b[k, j, 1])\n"
                       "  } } }\n"
                       "  for i in 0..6 unroll { for j in 0..32 vec { D[i, j] = C[i, j] } }\n"
                       "}\n";
    const char *i8 = "kernel dot(a: u8[6, 28] arg, b: i8[7, 32, 4] arg, D: i32[6, 32] arg, C: i32[6, 32] reg)\n"
                     "phase tasks=1 task=p {\n"
                     "  for i in 0..6 unroll { for j in 0..32 vec { C[i, j] = D[i, j] } }\n"
                     "  for k in 0..7 { for i in 0..6 unroll { for j in 0..32 vec {\n"
                     "    C[i, j] = dot4_u8i8(C[i, j], a[i, k*4], b[k, j, 0], a[i, k*4 + 1], b[k, j, 1],\n"
                     "                        a[i, k*4 + 2], b[k, j, 2], a[i, k*4 + 3], b[k, j, 3])\n"
                     "  } } }\n"
                     "  for i in 0..6 unroll { for j in 0..32 vec { D[i, j] = C[i, j] } }\n"
                     "}\n";
    const char *narrow =
        "kernel dot(a: bf16[6, 14] arg, b: bf16[7, 32, 2] arg, D: bf16[6, 32] arg, E: bf16[6, 32] arg,\n"
        "           F: f32[32] arg, C: f32[6, 32] reg)\n"
        "phase tasks=1 task=p {\n"
        "  for i in 0..6 unroll { for j in 0..32 vec { C[i, j] = 0:f32 } }\n"
        "  for k in 0..7 { for i in 0..6 unroll { for j in 0..32 vec {\n"
        "    C[i, j] = dot2_bf16(C[i, j], a[i, k*2], b[k, j, 0], a[i, k*2 + 1], b[k, j, 1])\n"
        "  } } }\n"
        "  for i in 0..6 unroll { for j in 0..32 vec { D[i, j] = cast.bf16(C[i, j]) } }\n"
        "  for i in 0..6 unroll { for j in 0..32 vec { E[i, j] = cast.bf16(max(C[i, j] + F[j], 0:f32)) } }\n"
        "}\n";
    const char *converted =
        "kernel dot(a: u8[6, 14] arg, b: bf16[7, 32, 2] arg, D: f32[6, 32] arg, C: f32[6, 32] reg)\n"
        "phase tasks=1 task=p {\n"
        "  for i in 0..6 unroll { for j in 0..32 vec { C[i, j] = 0:f32 } }\n"
        "  for k in 0..7 { for i in 0..6 unroll { for j in 0..32 vec {\n"
        "    C[i, j] = dot2_bf16(C[i, j], cast.bf16(a[i, k*2]), b[k, j, 0], cast.bf16(a[i, k*2 + 1]), b[k, j, 1])\n"
        "  } } }\n"
        "  for i in 0..6 unroll { for j in 0..32 vec { D[i, j] = C[i, j] } }\n"
        "}\n";
    kernel_check(bf16, NULL);
    kernel_check(converted, NULL); /* bytes are converted, not widened to words */
    kernel_check(narrow, NULL);
    kernel_check(i8, NULL);
}

/* Products of words, and of bytes widened to words: neighbours in memory, and apart; some rows and lanes are masked. */
static void test_dots_of_words(void **state) {
    (void)state;
    static const char *const types[][2] = {{"i16", "i16"}, {"u8", "i8"},  {"i8", "i8"},
                                           {"u8", "u8"},   {"i16", "i8"}, {"i8", "i16"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int lanes = 5; lanes <= 32; lanes += 27) {
            char text[2048];
            const char *from = strcmp(types[i][0], "i16") == 0 ? "" : "cast.i16",
                       *with = strcmp(types[i][1], "i16") == 0 ? "" : "cast.i16";
            snprintf(
                text, sizeof text,
                "kernel dot(a: %s[6, 14] arg, b: %s[7, %d, 2] arg, c: %s[7, 2, %d] arg, D: i32[6, %d] arg, C: i32[6, %d] reg)\n"
                "phase tasks=1 task=p {\n"
                "  for i in 0..6 unroll { for j in 0..%d vec { C[i, j] = D[i, j] } }\n"
                "  for k in 0..7 { for i in 0..6 unroll { for j in 0..%d vec {\n"
                "    C[i, j] = dot2_i16(C[i, j], %s(a[i, k*2]), %s(b[k, j, 0]), %s(a[i, k*2 + 1]), %s(b[k, j, 1]))\n"
                "  } } }\n"
                "  for k in 0..7 { for i in 0..6 unroll { for j in 0..%d vec {\n"
                "    C[i, j] = dot2_i16(C[i, j], %s(a[i, k*2]), %s(c[k, 0, j]), %s(a[i, k*2 + 1]), %s(c[k, 1, j]))\n"
                "  } } }\n"
                "  for i in 0..6 unroll { for j in 0..%d vec { D[i, j] = C[i, j] } }\n"
                "}\n",
                types[i][0], types[i][1], lanes, types[i][1], lanes, lanes, lanes, lanes, lanes, from, with, from, with,
                lanes, from, with, from, with, lanes);
            kernel_check(text, NULL);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_rounded_casts),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_index_casts),
        cmocka_unit_test(test_float_operators),
        cmocka_unit_test(test_integer_operators),
        cmocka_unit_test(test_bools),
        cmocka_unit_test(test_bitcasts),
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_guards),
        cmocka_unit_test(test_dots),
        cmocka_unit_test(test_dots_of_words),
    };
    return cmocka_run_group_tests_name("cpu values", tests, kernel_check_open, kernel_check_close);
}
