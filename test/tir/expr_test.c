/* Expressions: interning, simplification as text, exactness of the value rules against plain C, rewriting, text round
 * trip, bad input, refused memory. */
#include "tir/arith.h"
#include "tir/expr.h"
#include "tir/math.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* after the above */
#include <cmocka.h>

static lib_scope scope;
static lib_arena arena;
static tir_pool pool;
static tir_expr i, j, k, n, f, g, x, y, b, c; /* i, j, k, n: index; f, g: f32; x, y: i32; b, c: bool */

static const char *const tensor_names[] = {"t", "u"};

static int setup(void **unused) {
    (void)unused;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message);
    tir_pool_init(&pool, &arena);
    i = tir_var(&pool, "i", TIR_VAR_AXIS, TIR_INDEX, 0, 9);
    j = tir_var(&pool, "j", TIR_VAR_AXIS, TIR_INDEX, 0, 3);
    k = tir_var(&pool, "k", TIR_VAR_AXIS, TIR_INDEX, INT64_MIN / 2, INT64_MAX / 2);
    n = tir_var(&pool, "n", TIR_VAR_PARAM, TIR_INDEX, 1, INT64_MAX / 2);
    f = tir_var(&pool, "f", TIR_VAR_LET, DLC_F32, 0, 0);
    g = tir_var(&pool, "g", TIR_VAR_LET, DLC_F32, 0, 0);
    x = tir_var(&pool, "x", TIR_VAR_LET, DLC_I32, 0, 0);
    y = tir_var(&pool, "y", TIR_VAR_LET, DLC_I32, 0, 0);
    b = tir_var(&pool, "b", TIR_VAR_LET, DLC_BOOL, 0, 0);
    c = tir_var(&pool, "c", TIR_VAR_LET, DLC_BOOL, 0, 0);
    return 0;
}

static int teardown(void **unused) {
    (void)unused;
    lib_arena_free(&arena);
    return 0;
}

/* ---- text helpers */

static tir_expr variable_named(void *user, const char *name) {
    tir_pool *p = user;
    for (uint32_t at = 1; at < p->nodes.count; at++)
        if (tir_op_of(p, at) == TIR_VAR && strcmp(tir_variable_of(p, at)->name, name) == 0) return at;
    return 0;
}

static bool tensor_named(void *user, const char *name, uint32_t *id, tir_dtype *dtype, int *rank) {
    (void)user;
    for (uint32_t at = 0; at < 2; at++) {
        if (strcmp(tensor_names[at], name) != 0) continue;
        *id = at;
        *dtype = at ? DLC_I32 : DLC_F32;
        *rank = at ? 2 : 1;
        return true;
    }
    return false;
}

static tir_expr parsed_into(tir_pool *p, const char *text, tir_dtype expected, bool dotted) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, p->arena, "<test>", text, strlen(text));
    lexer.dotted_names = dotted;
    if (lexer.kind == LIB_END && *text) lib_lexer_next(&lexer);
    tir_names names = {.variable = variable_named, .tensor = tensor_named, .user = p};
    tir_expr e = tir_parse_expr(p, &lexer, &names, expected);
    if (lexer.kind != LIB_END) lib_lexer_raise(&lexer, "text after the expression");
    return e;
}

static tir_expr parsed(const char *text) {
    return parsed_into(&pool, text, UINT8_MAX, false);
}

static const char *printed(tir_expr e) {
    lib_text text;
    lib_text_init(&text, &arena);
    tir_print_expr(&text, &pool, e, tensor_names);
    return text.data;
}

#define ENTERED \
    if (!LIB_ENTER(&scope)) fail_msg("%s", scope.error.message)

/* ---- simplification, as text */

static void index_rules(void **unused) {
    (void)unused;
    static const char *const rows[][2] = {
        {"3 + 4*2", "11"},
        {"i - i", "0"},
        {"j + i*2 + 1 - i", "i + j + 1"},
        {"(i + j)*(i - j)", "i*i - j*j"},
        {"i/1", "i"},
        {"i%1", "0"},
        {"i/10", "0"},
        {"i%10", "i"},
        {"(i*4 + j)/4", "i"},
        {"(i*4 + j)%4", "j"},
        {"(i*4 + j)/2", "i*2 + j/2"},
        {"(i*8 + j)/16", "i/2"},
        {"(i*8 + j)%16", "j + i%2*8"},
        {"(i*8 + j + 16)%16", "j + i%2*8"},
        {"k/3/5", "k/15"},
        {"(k/3 + 2)/5", "(k + 6)/15"},
        {"k%12/4", "k/4%3"},
        {"k%12%4", "k%4"},
        {"(k*5 + 7)/5", "k + 1"},
        {"(k - 1)/4", "(k + 3)/4 - 1"},
        {"k/4*4 + k%4", "k"},
        {"k/4*8 + k%4*2", "k*2"},
        {"k/4%3*4 + k%4", "k%12"},
        {"k - k/4*4", "k%4"},
        {"k/2%8 + k/16*8", "k/2"},
        {"(k + 32)/16*8 + k/2%8", "k/2 + 16"},
        {"(k + 5)/4*4 + (k + 1)%4", "k + 5"},
        {"n*k/n", "k"},
        {"n*k%n", "0"},
        {"(n*k*2 + n*3)/n", "k*2 + 3"},
        {"n/n", "1"},
        {"k*n/(n*2)", "k*n/(n*2)"},
        {"(n + 1)*k/(n + 1)", "k"},
        {"min(i, 9)", "i"},
        {"min(i, 20)", "i"},
        {"max(i + 4, j)", "i + 4"},
        {"min(min(k, 7), 5)", "min(k, 5)"},
        {"max(k, min(k, i))", "k"},
        {"min(i, j)", "min(i, j)"},
        {"abs(i)", "i"},
        {"abs(0 - i)", "i"},
        {"i < 10", "true"},
        {"i < 0", "false"},
        {"i*4 + j < 40", "true"},
        {"i*4 + j <= 38", "i*4 + j < 39"},
        {"i*4 < 18", "i < 5"},
        {"2 <= i", "1 < i"},
        {"not(i < 5)", "4 < i"},
        {"i*2 == 3", "false"},
        {"i*2 + 4 == j*2", "i + 2 == j"},
        {"i == i", "true"},
        {"i != i + 1", "true"},
        {"select(i < 10, i, k)", "i"},
        {"select(k < 10, i, i)", "i"},
        {"cast.index(cast.i64(k))", "k"},
        {"cast.index(cast.i32(i))", "i"},
        {"cast.index(cast.i32(k))", "cast.index(cast.i32(k))"},
        {"cast.index(cast.i8(x)) < 200", "true"},
    };
    ENTERED;
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        assert_string_equal(printed(parsed(rows[row][0])), rows[row][1]);
    tir_expr m = tir_var(&pool, "m", TIR_VAR_PARAM, TIR_INDEX, 0, 1000);
    pool.variables.data[tir_var_id(&pool, m)].multiple = 8;
    assert_string_equal(printed(parsed("m%4")), "0");
    assert_string_equal(printed(parsed("m/8*8")), "m");
    assert_string_equal(printed(parsed("(m + j)/8")), "m/8");
    assert_string_equal(printed(parsed("(m*3 + j)%8")), "j");
    assert_string_equal(printed(parsed("m == 12")), "false");
    assert_int_equal(tir_multiple_of(&pool, parsed("m*3 + 12")), 12);
    assert_int_equal(tir_prove(&pool, parsed("min(m, 20) <= m")), TIR_YES);
    assert_int_equal(tir_prove(&pool, parsed("(k + 15)/16*16 < k")), TIR_NO);
    assert_int_equal(tir_prove(&pool, parsed("k <= (k + 15)/16*16")), TIR_YES);
    assert_int_equal(tir_prove(&pool, parsed("k < i")), TIR_UNKNOWN);
    assert_int_equal(tir_prove(&pool, parsed("k%n < n")), TIR_YES);
    assert_int_equal(tir_equal(&pool, n, parsed("n + 1")), TIR_NO);
    assert_int_equal(tir_equal(&pool, n, k), TIR_UNKNOWN);
    assert_int_equal(tir_equal(&pool, n, parsed("n*2")), TIR_NO);
}

static void value_rules(void **unused) {
    (void)unused;
    static const char *const rows[][2] = {
        {"f + 0", "f + 0"}, /* -0 + 0 is 0 */
        {"f + -0.0", "f"},
        {"f - 0", "f"},
        {"f*1", "f"},
        {"f*0", "f*0"},
        {"f - f", "f - f"},
        {"neg(neg(f))", "f"},
        {"f - neg(g)", "f + g"},
        {"max(f, f)", "f"},
        {"f/4", "f/4"},
        {"f/2", "f*0.5"},
        {"f == f", "f == f"},
        {"f < f", "false"},
        {"not(f < g)", "not(f < g)"},
        {"g + f", "f + g"},
        {"x + 0", "x"},
        {"x*0", "0:i32"},
        {"x - x", "0:i32"},
        {"x*2/2", "x*2/2"}, /* wraps */
        {"x/0", "0:i32"},
        {"x%1", "0:i32"},
        {"(x + 1) < x", "x + 1 < x"},
        {"not(x < y)", "y <= x"},
        {"and(x, -1)", "x"},
        {"xor(x, x)", "0:i32"},
        {"b && true", "b"},
        {"b || not(b)", "true"},
        {"select(not(b), f, g)", "select(b, g, f)"},
        {"select(b, true, false)", "b"},
        {"pick(1, f, g)", "g"},
        {"pick(2, f, g)", "g"},
        {"pick(-1, f, g)", "g"},
        {"pick(i, f, f, f)", "f"},
        {"b == false", "not(b)"},
        {"cast.f32(cast.f64(f))", "f"},
        {"cast.i32(cast.i64(x))", "x"},
        {"cast.f32(cast.i8(x))", "cast.f32(cast.i8(x))"},
        {"cast.u8(cast.f32(cast.i8(x)))", "cast.u8(cast.f32(cast.i8(x)))"}, /* saturates */
        /* bounds that saturation sets anyway; NaN becomes 0 with or without them */
        {"cast.u8(max(f, 0:f32))", "cast.u8(f)"},
        {"cast.u8(round(min(max(f, -1:f32), 255:f32)))", "cast.u8(round(f))"},
        {"cast.i8(max(f, 0:f32))", "cast.i8(max(f, 0))"},
        {"cast.i8(round(max(f, -128:f32)))", "cast.i8(round(f))"},
        {"cast.index(max(f, 0:f32))", "cast.index(max(f, 0))"}, /* an index has no row among the element types */
        {"cast.u8(min(f, 254:f32))", "cast.u8(min(f, 254))"},
        {"cast.bool(x)", "x != 0"},
        {"floor(cast.f32(x))", "cast.f32(x)"},
        {"t[i where i < 10 else 0]", "t[i]"},
        {"t[i where i < 0 else 2]", "2:f32"},
        {"t[i where i < n else 2]", "t[i where i < n else 2]"},
        {"2.5:f32*2", "5:f32"},
        {"muladd(2:f32, 3, 1)", "7:f32"},
        {"exp(1:f64)", "exp(1:f64)"}, /* the machine's library decides */
        {"2:f16 + 3:f16", "5:f16"},
        {"sqrt(2:f16)", "sqrt(2:f16)"}, /* it may stay unrounded */
        {"sqrt(4:bf16)", "2:bf16"},
        {"exp(1:f32)", "exp(1:f32)"},
        {"acc(0):f32 + other(1):f32", "acc(0):f32 + other(1):f32"},
        {"sqrt(-1:f32)", "nan:f32"},
        {"f < -inf", "f < -inf"},
        {"-128:i8", "-128:i8"},
        {"u[i, j + 1]", "u[i, j + 1]"},
        {"(f + g)*(f - g)", "(f + g)*(f - g)"},
        {"f - (g - 1)", "f - (g - 1)"},
        {"b && c || f < g", "f < g || b && c"},
        {"b && (c || f < g)", "b && (c || f < g)"},
    };
    ENTERED;
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        assert_string_equal(printed(parsed(rows[row][0])), rows[row][1]);
    /* 1 + 2^-30 squared less 1: the product rounds, so the machine decides and nothing is folded */
    tir_expr a = tir_float(&pool, DLC_F64, 1.0 + 0x1p-30);
    assert_int_equal(tir_op_of(&pool, tir_muladd(&pool, a, a, tir_float(&pool, DLC_F64, -1.0))), TIR_MULADD);
}

/* ---- exactness of the value rules: random trees against plain C, at points that break wrong rules */

enum { POINTS = 14, SLOTS = 4 };
static const float float_points[POINTS] = {0.0f,      -0.0f, 1.0f,   -1.0f,   2.5f,     -3.0f, INFINITY,
                                           -INFINITY, NAN,   1e-45f, 3.4e38f, -3.4e38f, 0.1f,  16777216.0f};
static const int32_t int_points[POINTS] = {0, 1, -1, 2, -2, INT32_MIN, INT32_MAX, 31, 32, 7, -8, 255, 65536, -65537};

typedef struct value {
    bool is_float;
    float f;
    int32_t i;
} value;

static uint64_t seed = 9;

static uint32_t chance(uint32_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static float min_of(float a, float z) {
    return isnan(a) || isnan(z) ? NAN : a < z || (a == z && signbit(a)) ? a : z;
}

/* Builds and evaluates at once. Leaves: variables slot 0..3 (f, g, x, y) or constants. */
static tir_expr random_value(int depth, bool is_float, const value *slots, value *result) {
    value l, r;
    result->is_float = is_float;
    if (depth == 0) {
        uint32_t point = chance(POINTS);
        int slot = (is_float ? 0 : 2) + (int)chance(2);
        bool constant = chance(2);
        if (constant) {
            result->f = float_points[point];
            result->i = int_points[point];
            if (is_float) return tir_float(&pool, DLC_F32, (double)result->f);
            return tir_int(&pool, DLC_I32, result->i);
        }
        *result = slots[slot];
        return (tir_expr[]){f, g, x, y}[slot];
    }
    if (chance(12) == 0) { /* conversion */
        tir_expr a = random_value(depth - 1, !is_float, slots, &l);
        if (is_float)
            result->f = (float)l.i;
        else
            result->i = isnan(l.f) ? 0 : l.f >= 0x1p31f ? INT32_MAX : l.f <= -0x1p31f ? INT32_MIN : (int32_t)l.f;
        return tir_cast(&pool, is_float ? DLC_F32 : DLC_I32, a);
    }
    tir_expr a = random_value(depth - 1, is_float, slots, &l),
             z = random_value((int)chance(2) ? 0 : depth - 1, is_float, slots, &r);
    if (chance(10) == 0) z = a, r = l;
    uint32_t ul = (uint32_t)l.i, ur = (uint32_t)r.i;
    if (chance(6) == 0) {
        bool truth = is_float ? l.f < r.f : l.i < r.i, negated = chance(2);
        tir_expr condition = tir_lt(&pool, a, z);
        if (negated) condition = tir_unary(&pool, TIR_NOT, condition);
        *result = truth != negated ? l : r;
        return tir_select(&pool, condition, a, z);
    }
    switch (chance(is_float ? 7 : 12)) {
    case 0: result->f = l.f + r.f, result->i = (int32_t)(ul + ur); return tir_add(&pool, a, z);
    case 1: result->f = l.f - r.f, result->i = (int32_t)(ul - ur); return tir_sub(&pool, a, z);
    case 2: result->f = l.f * r.f, result->i = (int32_t)(ul * ur); return tir_mul(&pool, a, z);
    case 3:
        result->f = l.f / r.f;
        result->i = r.i == 0 ? 0 : r.i == -1 ? (int32_t)(0 - ul) : l.i / r.i;
        return tir_div(&pool, a, z);
    case 4: result->f = min_of(l.f, r.f), result->i = l.i < r.i ? l.i : r.i; return tir_min(&pool, a, z);
    case 5: result->f = -l.f, result->i = (int32_t)(0 - ul); return tir_unary(&pool, TIR_NEG, a);
    case 6: result->f = fabsf(l.f), result->i = l.i < 0 ? (int32_t)(0 - ul) : l.i; return tir_unary(&pool, TIR_ABS, a);
    case 7: result->i = (int32_t)(ul & ur); return tir_and(&pool, a, z);
    case 8: result->i = (int32_t)(ul | ur); return tir_or(&pool, a, z);
    case 9: result->i = (int32_t)(ul ^ ur); return tir_binary(&pool, TIR_XOR, a, z);
    case 10: result->i = ur >= 32 ? 0 : (int32_t)(ul << ur); return tir_binary(&pool, TIR_SHL, a, z);
    default: result->i = r.i == 0 || r.i == -1 ? 0 : l.i % r.i; return tir_rem(&pool, a, z);
    }
}

static void value_rules_are_exact(void **unused) {
    (void)unused;
    ENTERED;
    for (int round = 0; round < 60000; round++) {
        uint64_t variables[10] = {0};
        value slots[SLOTS] = {{true, 0, 0}, {true, 0, 0}, {false, 0, 0}, {false, 0, 0}}, want;
        for (int slot = 0; slot < SLOTS; slot++) {
            slots[slot].f = float_points[chance(POINTS)];
            slots[slot].i = int_points[chance(POINTS)];
            uint32_t bits;
            memcpy(&bits, &slots[slot].f, sizeof bits);
            variables[4 + slot] = slot < 2 ? bits : (uint64_t)(int64_t)slots[slot].i;
        }
        bool is_float = chance(2);
        tir_expr e = random_value(1 + (int)chance(4), is_float, slots, &want);
        tir_evaluator evaluator = {.variables = variables};
        uint64_t got = tir_evaluate(&pool, e, &evaluator);
        uint32_t bits;
        memcpy(&bits, &want.f, sizeof bits);
        bool same = is_float ? got == bits || (isnan(want.f) && isnan(tir_bits_to_f64(DLC_F32, got)))
                             : got == (uint64_t)(int64_t)want.i;
        if (!same) fail_msg("round %d: %s", round, printed(e));
        if (round % 16 == 0) assert_int_equal(parsed(printed(e)), e);
    }
}

/* ---- addresses of fused axes */

/* The flat number task*size + outer*inner + lane of a point, with random sizes. */
static tir_expr random_flat_index(int64_t total) {
    const int64_t inner = 1 + (int64_t)chance(40), blocks = 1 + (int64_t)chance(40), size = inner * blocks;
    tir_expr task = tir_var(&pool, "task", TIR_VAR_AXIS, TIR_INDEX, 0, (total + size - 1) / size - 1),
             outer = tir_var(&pool, "outer", TIR_VAR_AXIS, TIR_INDEX, 0, blocks - 1),
             lane = tir_var(&pool, "lane", TIR_VAR_AXIS, TIR_INDEX, 0, inner - 1);
    return tir_add(
        &pool,
        tir_add(&pool, tir_mul(&pool, task, tir_index(&pool, size)), tir_mul(&pool, outer, tir_index(&pool, inner))),
        lane);
}

/* A point of a tensor is at the sum of its subscripts times strides: if the subscripts are the quotients and remainders of one number, this is
 * that number, however the loop over it is split. */
static void fused_axes(void **unused) {
    enum { CASES = 20000 };
    int whole = 0;
    (void)unused;
    for (int at = 0; at < CASES; at++) {
        const int rank = 2 + (int)chance(3);
        int64_t extent[4], total = 1;
        for (int d = 0; d < rank; d++) total *= extent[d] = 1 + (int64_t)chance(d % 2 ? 30 : 500);
        const tir_expr flat = random_flat_index(total);
        tir_expr address = tir_index(&pool, 0), rest = flat;
        for (int64_t d = 0, stride = total; d < rank; d++) {
            stride /= extent[d];
            address = tir_add(&pool, address,
                              tir_mul(&pool, tir_div(&pool, rest, tir_index(&pool, stride)), tir_index(&pool, stride)));
            rest = tir_rem(&pool, rest, tir_index(&pool, stride));
        }
        whole += tir_add(&pool, address, rest) == flat;
    }
    assert_int_equal(whole, CASES);
}

/* ---- text */

static void text_round_trip(void **unused) {
    (void)unused;
    static const char *const rows[] = {
        "i*4 + j - k*3 - 7",
        "select(i < j, t[i], t[j where k < n && 0 < k + 1 else -0.0])",
        "pick(i%3, x + 1, 7, y)",
        "dot2_bf16(f, cast.bf16(f), cast.bf16(g), 1:bf16, cast.bf16(f))",
        "shl(x, 3) + mulhi(cast.u32(x), -1)*2",
        "pow(f, 2) + atan2(f, g) + fma(f, g, 1e-30)",
        "bitcast.i32(f) + u[i, j]",
        "min(i, min(j, k)) + max(k, 3)%7*2",
        "neg(x)/y%3",
    };
    ENTERED;
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        const char *text = rows[row];
        if (strstr(text, "mulhi")) text = "shl(x, 3) + cast.i32(mulhi(cast.u32(x), cast.u32(y)))*2";
        tir_expr e = parsed(text);
        assert_int_equal(parsed(printed(e)), e);
        assert_int_equal(parsed_into(&pool, printed(e), tir_dtype_of(&pool, e), true), e);
        tir_pool other; /* same variables, another history: ids differ, the text settles */
        tir_pool_init(&other, &arena);
        tir_expr variables[10] = {0}, copy = tir_import(&other, &pool, e, variables), back[10] = {0};
        lib_text again;
        lib_text_init(&again, &arena);
        tir_print_expr(&again, &other, copy, tensor_names);
        assert_int_equal(parsed_into(&other, again.data, UINT8_MAX, false), copy);
        for (uint32_t v = 0; v < other.variables.count; v++)
            back[v] = variable_named(&pool, other.variables.data[v].name);
        assert_int_equal(tir_import(&pool, &other, copy, back), e);
    }
}

static void constants_round_trip(void **unused) {
    (void)unused;
    ENTERED;
    for (int round = 0; round < 4000; round++) {
        tir_dtype dtype = (tir_dtype)chance(TIR_INDEX + 1);
        if (dtype < DLC_DTYPE_COUNT && (!lib_dtypes[dtype].usable || lib_dtype_is_stored_otherwise((dlc_dtype)dtype)))
            continue;
        uint64_t bits = (uint64_t)chance(UINT32_MAX) << 33 ^ (uint64_t)chance(UINT32_MAX) << 4 ^ chance(16);
        if (chance(4) == 0) bits = 0 - (uint64_t)chance(3);
        if (chance(8) == 0) bits = UINT64_C(1) << 63;
        tir_expr e = tir_bits(&pool, dtype, bits);
        assert_int_equal(parsed(printed(e)), e);
    }
    assert_int_equal(tir_lowest(&pool, DLC_I32), tir_int(&pool, DLC_I32, INT32_MIN));
    assert_int_equal(tir_highest(&pool, DLC_U8), tir_int(&pool, DLC_U8, 255));
    assert_int_equal(tir_lowest(&pool, DLC_F16), tir_float(&pool, DLC_F16, -INFINITY));
    assert_int_equal(tir_highest(&pool, DLC_I64), tir_int(&pool, DLC_I64, INT64_MAX));
    assert_int_equal(tir_int(&pool, DLC_I8, 200), tir_int(&pool, DLC_I8, -56));
    assert_int_equal(tir_float(&pool, DLC_F32, NAN), tir_bits(&pool, DLC_F32, 0xffc12345));
}

static void refuse(const char *text, const char *message) {
    if (LIB_ENTER(&scope)) {
        parsed(text);
        fail_msg("'%s' was accepted", text);
    }
    if (!strstr(scope.error.message, message)) fail_msg("'%s' gave: %s", text, scope.error.message);
}

static void bad_text(void **unused) {
    (void)unused;
    refuse("i +", "expected an expression");
    refuse("q", "unknown name 'q'");
    refuse("q[i]", "unknown tensor 'q'");
    refuse("foo(i)", "unknown function 'foo'");
    refuse("i + f", "operands of '+' are index and f32");
    refuse("cast.f99(i)", "unknown dtype 'f99'");
    refuse("t[f]", "expected an expression of dtype index, not f32");
    refuse("u[i]", "expected");
    refuse("select(i, f, g)", "dtype bool");
    refuse("pick(f, f, g)", "expected an expression of dtype index, not f32");
    refuse("pick(i, f, x)", "f32");
    refuse("pick(i, i, k)", "pick is of values, not of indices");
    refuse("pick(i)", "expected ','");
    refuse("1.5 + i", "no fraction");
    refuse("i/0", "division of an index by 0");
    refuse("i%-2", "division of an index by -2");
    refuse("4611686018427387904*4", "overflows");
    refuse("i i", "text after");
    refuse("- -i", "number after '-'");
    refuse("exp(i", "expected");
    char deep[8001];
    memset(deep, '(', 8000);
    deep[8000] = 0;
    refuse(deep, "nested deeper");
    ENTERED;
    assert_string_equal(printed(parsed("3 < f")), "3:f32 < f");
    assert_int_equal(parsed("f > g"), parsed("g < f"));
    assert_int_equal(parsed("f >= 2"), parsed("2:f32 <= f"));
    assert_int_equal(parsed("-f * g"), parsed("neg(f) * g"));
    assert_int_equal(parsed("j - -i"), parsed("j + i"));
}

/* Numbers at the end of 64 bits: an answer or a refusal, never undefined behaviour. */
static const int64_t ends[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, 2, 3, INT64_C(1) << 62, INT64_MAX};
static const tir_op index_ops[] = {TIR_ADD, TIR_SUB, TIR_MUL, TIR_DIV, TIR_REM,
                                   TIR_MIN, TIR_MAX, TIR_EQ,  TIR_LT,  TIR_LE};
enum { ENDS = sizeof ends / sizeof *ends, OPS = sizeof index_ops / sizeof *index_ops };

static void extreme_index(int at) {
    int64_t scale = ends[at % ENDS], shift = ends[at / ENDS % ENDS], other = ends[at / ENDS / ENDS % ENDS];
    tir_op op = index_ops[at / ENDS / ENDS / ENDS % OPS], last = index_ops[at / ENDS / ENDS / ENDS / OPS];
    if (!LIB_ENTER(&scope)) return;
    tir_expr e = tir_add(&pool, tir_mul(&pool, at % 2 ? k : i, tir_index(&pool, scale)), tir_index(&pool, shift));
    e = tir_binary(&pool, op, e, tir_index(&pool, other));
    if (tir_dtype_of(&pool, e) == TIR_INDEX) e = tir_binary(&pool, last, e, tir_add(&pool, i, tir_index(&pool, scale)));
    if (tir_dtype_of(&pool, e) == TIR_INDEX)
        tir_multiple_of(&pool, tir_sub(&pool, e, j));
    else
        tir_prove(&pool, e);
}

static void extreme_indices(void **unused) {
    (void)unused;
    for (int at = 0; at < ENDS * ENDS * ENDS * OPS * OPS; at += 7) extreme_index(at);
}

/* Integers made of positions compare like the positions, unless they could wrap. */
static void positions_compare_as_indices(void **unused) {
    (void)unused;
    ENTERED;
    tir_expr p = tir_var(&pool, "p", TIR_VAR_AXIS, TIR_INDEX, 0, 299),
             q = tir_var(&pool, "q", TIR_VAR_AXIS, TIR_INDEX, 0, 99);
    tir_expr four = tir_index(&pool, 4), below = tir_le(&pool, p, tir_add(&pool, q, four));
    tir_dtype wide[] = {DLC_I64, DLC_I32};
    for (int d = 0; d < 2; d++) {
        tir_expr left = tir_cast(&pool, wide[d], p), right = tir_cast(&pool, wide[d], q),
                 shift = tir_int(&pool, wide[d], 4);
        assert_int_equal(tir_le(&pool, left, tir_add(&pool, right, shift)), below);
        assert_int_equal(tir_le(&pool, tir_sub(&pool, left, right), shift), below);
        assert_true(tir_is_true(&pool, tir_lt(&pool, right, tir_int(&pool, wide[d], 100))));
    }
    tir_expr left = tir_cast(&pool, DLC_U8, p), right = tir_cast(&pool, DLC_U8, q); /* 299 does not fit */
    assert_int_equal(tir_dtype_of(&pool, tir_operand(&pool, tir_lt(&pool, left, right), 0)), DLC_U8);
    tir_expr less = tir_sub(&pool, right, tir_int(&pool, DLC_U8, 1)); /* 0 - 1 wraps */
    assert_int_equal(tir_dtype_of(&pool, tir_operand(&pool, tir_lt(&pool, less, right), 0)), DLC_U8);
}

/* The type of indices is none of the table of element types. */
static void indices_in_operators(void **unused) {
    (void)unused;
    ENTERED;
    assert_int_equal(tir_make(&pool, TIR_CAST, TIR_INDEX, 1, &i), i);
    tir_expr d = tir_var(&pool, "d", TIR_VAR_AXIS, TIR_INDEX, -9, 9);
    assert_int_equal(tir_op_of(&pool, tir_unary(&pool, TIR_ABS, d)), TIR_ABS);
}

/* An axis of extent 0 has no points: whatever is said of it holds, but it must be said. */
static void empty_axis(void **unused) {
    (void)unused;
    ENTERED;
    tir_expr none = tir_var(&pool, "none", TIR_VAR_AXIS, TIR_INDEX, 0, -1);
    tir_expr e = tir_add(&pool, tir_mul(&pool, none, tir_index(&pool, 5)), i);
    tir_rem(&pool, tir_div(&pool, e, tir_index(&pool, 3)), tir_index(&pool, 4));
    tir_prove(&pool, tir_lt(&pool, tir_max(&pool, e, k), tir_min(&pool, none, n)));
    tir_interval range = tir_range(&pool, tir_mul(&pool, none, n));
    assert_true(range.low <= range.high || range.high < 0);
}

/* ---- rewriting */

static tir_expr count_visits(void *user, tir_pool *p, tir_expr e, tir_expr rebuilt) {
    (void)p;
    (void)e;
    ++*(int *)user;
    return rebuilt;
}

static void rewriting(void **unused) {
    (void)unused;
    ENTERED;
    tir_expr e = parsed("select(i*4 + j < n, t[i], t[j])");
    tir_expr changed = tir_substitute(&pool, e, 2, (tir_expr[]){i, j}, (tir_expr[]){tir_index(&pool, 2), k});
    assert_string_equal(printed(changed), "select(k + 8 < n, t[2], t[k])");
    assert_int_equal(tir_substitute(&pool, e, 1, &k, &n), e);
    assert_int_equal(tir_substitute(&pool, parsed("i/4"), 1, &i, (tir_expr[]){parsed("k*4 + j")}), k);
    assert_true(tir_uses(&pool, e, n));
    assert_true(tir_uses(&pool, e, e));
    assert_false(tir_uses(&pool, e, k));
    assert_false(tir_uses(&pool, i, e));
    tir_expr shared = f; /* 2^200 paths, 201 nodes */
    for (int level = 0; level < 200; level++) shared = tir_mul(&pool, shared, shared);
    int visits = 0;
    assert_int_equal(tir_rewrite(&pool, shared, count_visits, &visits), shared);
    assert_int_equal(visits, 201);
    uint64_t variables[10] = {[4] = 0x3f800000};
    tir_evaluator evaluator = {.variables = variables};
    assert_int_equal(tir_evaluate(&pool, shared, &evaluator), 0x3f800000);
}

static void depth(void **unused) {
    (void)unused;
    ENTERED;
    enum { DEPTH = 100000 };
    tir_expr e = f;
    for (int level = 0; level < DEPTH; level++) e = tir_unary(&pool, TIR_SQRT, tir_add(&pool, e, g));
    uint64_t variables[10] = {0};
    tir_evaluator evaluator = {.variables = variables};
    assert_int_equal(tir_evaluate(&pool, e, &evaluator), 0);
    tir_expr swapped = tir_substitute(&pool, e, 2, (tir_expr[]){f, g}, (tir_expr[]){g, f});
    assert_int_equal(tir_substitute(&pool, swapped, 2, (tir_expr[]){f, g}, (tir_expr[]){g, f}), e);
    assert_true(tir_uses(&pool, e, f));
    assert_true(strlen(printed(e)) > DEPTH);
    tir_expr sum = i; /* a thousand terms */
    for (int term = 0; term < 1000; term++)
        sum = tir_add(&pool, sum,
                      tir_mul(&pool, tir_var(&pool, "v", TIR_VAR_AXIS, TIR_INDEX, 0, 1), tir_index(&pool, 3)));
    assert_int_equal(tir_range(&pool, sum).high, 3009);
    assert_int_equal(tir_rem(&pool, sum, tir_index(&pool, 3)), tir_rem(&pool, i, tir_index(&pool, 3)));
    tir_term terms[8];
    int64_t constant;
    assert_int_equal(tir_terms(&pool, sum, terms, 8, &constant), -1);
    assert_int_equal(tir_terms(&pool, parsed("j*3 + i - 5"), terms, 8, &constant), 2);
    assert_int_equal(constant, -5);
    assert_int_equal(terms[0].atom, i);
    assert_int_equal(terms[1].coefficient, 3);
}

/* Products of many sums, chained either way or in pairs, and of such products plus a symbol: their text, which writes shared parts
 * out, grows like their factors, and their value is the product. */
static void products_of_sums(void **unused) {
    (void)unused;
    ENTERED;
    enum { FACTORS = 64, WAYS = 4 };
    uint64_t variables[FACTORS + 16] = {0};
    tir_expr factors[FACTORS];
    const tir_evaluator evaluator = {.variables = variables};
    for (int at = 0; at < FACTORS; at++) {
        tir_expr size = tir_var(&pool, "s", TIR_VAR_PARAM, TIR_INDEX, 0, INT64_MAX / 2);
        variables[tir_var_id(&pool, size)] = (uint64_t)(at % 7 == 3);
        factors[at] = tir_add(&pool, size, tir_index(&pool, 1));
    }
    for (int way = 0; way < WAYS; way++) {
        tir_expr product = factors[way == 1 ? FACTORS - 1 : 0];
        for (int at = 1; at < FACTORS; at++) {
            tir_expr factor = factors[way == 1 ? FACTORS - 1 - at : at];
            if (way == 2) factor = tir_mul(&pool, factor, factor);
            if (way == 3 && at % 9 == 8) product = tir_add(&pool, product, tir_sub(&pool, factor, tir_index(&pool, 1)));
            product = at & 1 ? tir_mul(&pool, product, factor) : tir_mul(&pool, factor, product);
        }
        uint64_t expected = 1, length = strlen(printed(product));
        for (int at = 0; at < FACTORS; at++) {
            uint64_t factor = (uint64_t)(at % 7 == 3) + 1;
            if (way == 3 && at % 9 == 8) expected += factor - 1;
            expected *= way == 2 && at ? factor * factor : factor;
        }
        if (length > (1 << 15)) fail_msg("way %d: %llu characters", way, (unsigned long long)length);
        assert_true(tir_evaluate(&pool, product, &evaluator) == expected);
    }
}

static void math_nodes(void **unused) {
    (void)unused;
    ENTERED;
    static const tir_op ops[] = {TIR_EXP, TIR_LOG, TIR_TANH, TIR_ERF};
    static const tir_dtype dtypes[] = {DLC_F32, DLC_F16, DLC_BF16, DLC_F64};
    for (int op = 0; op < 4; op++) {
        for (int d = 0; d < 4; d++) {
            tir_evaluator evaluator = {.has_fma = true};
            tir_expr e = tir_unary(&pool, ops[op], tir_float(&pool, dtypes[d], 0.75));
            double got = tir_bits_to_f64(dtypes[d], tir_evaluate(&pool, e, &evaluator));
            double want = (double[]){exp(0.75), log(0.75), tanh(0.75), erf(0.75)}[op];
            double tolerance = (double[]){1e-6, 1e-3, 1e-2, 0}[d];
            assert_true(fabs(got - want) <= fabs(want) * tolerance);
        }
    }
}

static void refuse_operands(int count, const tir_expr *operands) {
    if (LIB_ENTER(&scope)) {
        tir_make(&pool, TIR_ADD, DLC_F32, count, operands);
        fail_msg("accepted");
    }
    assert_int_equal(scope.error.status, DLC_INTERNAL);
    assert_non_null(strstr(scope.error.message, "add"));
}

static void bad_operands(void **unused) {
    (void)unused;
    refuse_operands(2, (tir_expr[]){f, x});
    refuse_operands(2, (tir_expr[]){i, i});
    refuse_operands(2, (tir_expr[]){f, 0});
    refuse_operands(2, (tir_expr[]){f, 1u << 30});
    refuse_operands(3, (tir_expr[]){f, f, f});
}

/* ---- refused memory: the N-th allocation fails, for every N */

typedef struct failing {
    int left;
    int64_t live;
} failing;

static void *failing_allocate(void *user, size_t size, size_t alignment) {
    failing *state = user;
    if (state->left-- <= 0) return NULL;
    state->live += (int64_t)size;
    return lib_allocate(&lib_libc_allocator, size, alignment);
}

static void failing_release(void *user, void *pointer, size_t size, size_t alignment) {
    ((failing *)user)->live -= pointer ? (int64_t)size : 0;
    lib_release(&lib_libc_allocator, pointer, size, alignment);
}

static bool build_much(failing *state) {
    dlc_allocator allocator = {failing_allocate, failing_release, state};
    lib_scope inner;
    lib_arena memory;
    lib_arena_init(&memory, &allocator, &inner);
    bool done = false;
    if (LIB_ENTER(&inner)) {
        tir_pool p;
        tir_pool_init(&p, &memory);
        tir_expr v = tir_var(&p, "v", TIR_VAR_LET, DLC_F32, 0, 0), e = v;
        for (int at = 0; at < 3000; at++) e = tir_add(&p, tir_unary(&p, TIR_SQRT, e), tir_float(&p, DLC_F32, at));
        e = tir_substitute(&p, e, 1, &v, (tir_expr[]){tir_float(&p, DLC_F32, 2)});
        e = tir_unary(&p, TIR_EXP, v);
        uint64_t variables[1] = {0};
        tir_evaluator evaluator = {.variables = variables};
        tir_evaluate(&p, e, &evaluator);
        done = true;
    } else {
        assert_int_equal(inner.error.status, DLC_OUT_OF_MEMORY);
    }
    lib_arena_free(&memory);
    return done;
}

static void refused_memory(void **unused) {
    (void)unused;
    int at = 0;
    for (bool done = false; !done; at++) {
        failing state = {.left = at};
        done = build_much(&state);
        assert_int_equal(state.live, 0);
    }
    assert_true(at > 5);
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(index_rules),
        TEST(value_rules),
        TEST(value_rules_are_exact),
        TEST(fused_axes),
        TEST(text_round_trip),
        TEST(constants_round_trip),
        TEST(bad_text),
        TEST(rewriting),
        TEST(depth),
        TEST(products_of_sums),
        TEST(extreme_indices),
        TEST(positions_compare_as_indices),
        TEST(indices_in_operators),
        TEST(empty_axis),
        TEST(math_nodes),
        TEST(bad_operands),
        TEST(refused_memory),
    };
    return cmocka_run_group_tests_name("tir/expr", tests, NULL, NULL);
}
