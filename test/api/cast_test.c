/* Every conversion between two element types, of every value of those of up to 16 bits and of edges and random bits of the
 * wider ones, on every target, bit for bit against an oracle that shares nothing with the library: formats of floats are
 * tables of their values, made from the definitions in long double, and a conversion is a search for the nearest entry. */
#include "api/support.h"
#include "test/share.h"

enum { POINTS = 1 << 16 };

__extension__ typedef __int128 wide_integer;

/* ---- element types: name, class, bits; of floats exponent bits, bias, and what is behind the greatest number */

/* f4e2m1 has neither infinities nor NaN, f8e8m0 powers of two alone. */
enum { IEEE, ONE_NAN, NOTHING, NUMBERS, POWERS };

typedef struct type {
    dlc_dtype code;
    char class_;
    int bits, exponent, bias, end;
} type;
static const type types[] = {
    {DLC_BOOL, 'b', 8, 0, 0, 0},
    {DLC_I8, 'i', 8, 0, 0, 0},
    {DLC_I16, 'i', 16, 0, 0, 0},
    {DLC_I32, 'i', 32, 0, 0, 0},
    {DLC_I64, 'i', 64, 0, 0, 0},
    {DLC_U8, 'u', 8, 0, 0, 0},
    {DLC_U16, 'u', 16, 0, 0, 0},
    {DLC_U32, 'u', 32, 0, 0, 0},
    {DLC_U64, 'u', 64, 0, 0, 0},
    {DLC_F16, 'f', 16, 5, 15, IEEE},
    {DLC_BF16, 'f', 16, 8, 127, IEEE},
    {DLC_F32, 'f', 32, 8, 127, IEEE},
    {DLC_F64, 'f', 64, 11, 1023, IEEE},
    {DLC_F8E4M3FN, 'f', 8, 4, 7, ONE_NAN},
    {DLC_F8E5M2, 'f', 8, 5, 15, IEEE},
    {DLC_F8E4M3FNUZ, 'f', 8, 4, 8, NOTHING},
    {DLC_F8E5M2FNUZ, 'f', 8, 5, 16, NOTHING},
    {DLC_I4, 'i', 4, 0, 0, 0},
    {DLC_U4, 'u', 4, 0, 0, 0},
    {DLC_I2, 'i', 2, 0, 0, 0},
    {DLC_U2, 'u', 2, 0, 0, 0},
    {DLC_F4E2M1, 'f', 4, 2, 1, NUMBERS},
    {DLC_F8E8M0, 'f', 8, 8, 127, POWERS},
};
enum { TYPES = sizeof types / sizeof *types };

static uint64_t mask_of(const type *t) {
    return UINT64_MAX >> (64 - t->bits);
}

/* A number of any type: 64 digits hold all of them. `zero_sign`: of a zero. */
typedef struct number {
    long double value;
    bool nan;
} number;

/* ---- floats of up to 16 bits: tables; powers of two alone need none */

typedef struct table {
    /* finite numbers that are not negative, in ascending order */
    int count;
    /* by their bits */
    long double value[1 << 15];
} table;
static table tables[TYPES];

static bool has_table(const type *t) {
    return t->class_ == 'f' && t->bits <= 16 && t->end != POWERS;
}

static void make_table(const type *t, table *out) {
    const int mantissa = t->bits - 1 - t->exponent;
    const int codes = 1 << (t->bits - 1);
    out->count = t->end == IEEE ? codes - (1 << mantissa) : t->end == ONE_NAN ? codes - 1 : codes;
    for (int code = 0; code < out->count; code++) {
        int exponent = code >> mantissa;
        long double digits = code & ((1 << mantissa) - 1);
        out->value[code] = exponent == 0 ? ldexpl(digits, 1 - t->bias - mantissa)
                                         : ldexpl(digits + (1 << mantissa), exponent - t->bias - mantissa);
    }
}

static number read_table(const type *t, uint64_t bits) {
    const table *all = &tables[t - types];
    const uint64_t sign = UINT64_C(1) << (t->bits - 1), code = bits & (sign - 1);
    if (t->end == NOTHING && bits == sign) return (number){0, true};
    if ((int)code > all->count) return (number){0, true};
    if ((int)code == all->count && t->end != NOTHING)
        return (number){bits & sign ? -(long double)INFINITY : (long double)INFINITY, t->end == ONE_NAN};
    return (number){bits & sign ? -all->value[code] : all->value[code], false};
}

/* The code of the nearest value, ties to even; count stands for the next one if there were one. */
static int nearest(const table *all, long double x) {
    int low = 0, high = all->count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (all->value[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    long double below = all->value[low];
    long double above = high < all->count ? all->value[high] : 2 * below - all->value[low - 1];
    if (isinf(x)) return all->count;
    if (x - below < above - x || (x - below == above - x && low % 2 == 0)) return low;
    return high;
}

static uint64_t write_table(const type *t, number x, bool *nan) {
    const table *all = &tables[t - types];
    const uint64_t sign = UINT64_C(1) << (t->bits - 1);
    int code = x.nan ? 0 : nearest(all, fabsl(x.value));
    if (t->end == NUMBERS) {
        *nan = false;
        if (x.nan) return 0;
        if (code == all->count) code--;
        return (uint64_t)code | (signbit(x.value) ? sign : 0);
    }
    *nan = x.nan || (code == all->count && t->end != IEEE);
    if (*nan) return 0;
    if (t->end == NOTHING && code == 0) return 0;
    return (uint64_t)code | (signbit(x.value) ? sign : 0);
}

/* ---- powers of two */

static number read_power(const type *t, uint64_t bits) {
    return (number){ldexpl(1, (int)bits - t->bias), bits == mask_of(t)};
}

/* The nearest one, of two as near the greater. */
static uint64_t write_power(const type *t, number x, bool *nan) {
    int code = 0;
    *nan = true;
    if (x.nan || !(x.value > 0) || isinf(x.value)) return 0;
    while (code < 1 << t->exponent && ldexpl(1.5, code - t->bias) <= x.value) code++;
    *nan = x.value < ldexpl(0.75, -t->bias) || code >= (1 << t->exponent) - 1;
    return *nan ? 0 : (uint64_t)code;
}

/* ---- all types */

static wide_integer integer_of(const type *t, uint64_t bits) {
    if (t->class_ == 'b') return bits != 0;
    if (t->class_ == 'u') return (wide_integer)bits;
    return (int64_t)(bits << (64 - t->bits)) >> (64 - t->bits);
}

static number read_number(const type *t, uint64_t bits) {
    if (t->class_ != 'f') return (number){(long double)integer_of(t, bits), false};
    if (t->end == POWERS) return read_power(t, bits);
    if (t->bits <= 16) return read_table(t, bits);
    long double value;
    if (t->bits == 32) {
        uint32_t low = (uint32_t)bits;
        float narrow;
        memcpy(&narrow, &low, sizeof narrow);
        value = (long double)narrow;
    } else {
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        value = (long double)wide;
    }
    return (number){value, isnan(value) != 0};
}

/* Truncated, then bounded; NaN is 0. */
static uint64_t saturated(const type *t, number x) {
    if (x.nan) return 0;
    const int digits = t->bits - (t->class_ == 'i');
    const long double low = t->class_ == 'i' ? -ldexpl(1, digits) : 0, high = ldexpl(1, digits);
    if (x.value <= low) return t->class_ == 'i' ? UINT64_C(1) << digits : 0;
    if (x.value >= high) return (UINT64_C(1) << (digits - 1)) * 2 - 1;
    return x.value < 0 ? (uint64_t)(int64_t)x.value & mask_of(t) : (uint64_t)x.value;
}

static uint64_t convert(const type *from, const type *to, uint64_t bits, bool *nan) {
    const number x = read_number(from, bits);
    *nan = false;
    if (to->class_ == 'b') return x.nan || x.value != 0;
    if (to->class_ != 'f')
        return from->class_ == 'f' ? saturated(to, x) : (uint64_t)integer_of(from, bits) & mask_of(to);
    if (to->end == POWERS) return write_power(to, x, nan);
    if (to->bits <= 16) return write_table(to, x, nan);
    *nan = x.nan;
    uint64_t result = 0;
    if (to->bits == 32) {
        float narrow = (float)x.value;
        memcpy(&result, &narrow, sizeof narrow);
    } else {
        double wide = (double)x.value;
        memcpy(&result, &wide, sizeof wide);
    }
    return result;
}

/* ---- what is converted */

static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static uint64_t bits_of_double(const type *t, double value) {
    bool nan;
    static const type f64 = {DLC_F64, 'f', 64, 11, 1023, IEEE};
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return convert(&f64, t, bits, &nan);
}

/* Powers of two, the middles between them, numbers beside both, values of every narrow float and the points between them, random bits. */
static int wide_points(const type *t, uint64_t *out, int room) {
    uint64_t state = 7;
    int count = 0;
    for (int half = -2 * 160; half <= 2 * 160; half++)
        for (int side = -2; side <= 2; side++) {
            double value = ldexp(half % 2 ? 1.5 : 1, (half - (half % 2 != 0)) / 2);
            for (int step = 0; step < abs(side); step++)
                value = t->bits == 32 && t->class_ == 'f' ? (double)nextafterf((float)value, side < 0 ? 0 : INFINITY)
                                                          : nextafter(value, side < 0 ? 0 : (double)INFINITY);
            out[count++] = bits_of_double(t, value);
            out[count++] = bits_of_double(t, -value);
        }
    for (int i = 0; i < TYPES; i++) {
        const table *all = &tables[i];
        if (!has_table(&types[i])) continue;
        for (int code = 0; code + 1 < all->count; code += types[i].bits <= 8 ? 1 : 61) {
            double between = (double)(all->value[code] + all->value[code + 1]) / 2;
            double points[] = {between, nextafter(between, (double)INFINITY), nextafter(between, 0),
                               (double)all->value[code + 1]};
            for (int p = 0; p < 4; p++) out[count++] = bits_of_double(t, p % 2 ? -points[p] : points[p]);
        }
        double greatest = (double)all->value[all->count - 1], step = greatest - (double)all->value[all->count - 2];
        for (int quarter = 0; quarter < 6; quarter++) out[count++] = bits_of_double(t, greatest + quarter * step / 4);
    }
    for (int bit = 0; bit < t->bits; bit++)
        for (int side = -1; side <= 1; side++) {
            uint64_t power = (UINT64_C(1) << bit) + (uint64_t)(int64_t)side;
            out[count++] = power & mask_of(t);
            out[count++] = (0 - power) & mask_of(t);
            out[count++] = (power | next_random(&state) >> (63 - bit)) & mask_of(t);
        }
    if (t->class_ == 'f') {
        const double specials[] = {0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN, 0.5, 1.5, 2.5, -0.5};
        for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) out[count++] = bits_of_double(t, specials[i]);
        out[count++] = t->bits == 32 ? 0x7f800001 : UINT64_C(0x7ff0000000000001); /* signalling */
    }
    while (count < room) out[count++] = next_random(&state) & mask_of(t);
    return count;
}

static int points_of(const type *t, uint64_t *out) {
    if (t->class_ == 'b') {
        out[0] = 0, out[1] = 1;
        return 2;
    }
    if (t->bits > 16) return wide_points(t, out, POINTS / 4);
    for (uint64_t bits = 0; bits <= mask_of(t); bits++) out[bits] = bits;
    return (int)mask_of(t) + 1;
}

/* Elements of less than a byte: the first in its lowest bits. */
static void put(const type *t, void *data, int at, uint64_t bits) {
    if (t->bits < 8)
        ((uint8_t *)data)[at * t->bits / 8] |= (uint8_t)(bits << at * t->bits % 8);
    else
        memcpy((char *)data + (size_t)at * (size_t)t->bits / 8, &bits, (size_t)t->bits / 8); /* little-endian */
}
static uint64_t get(const type *t, const void *data, int at) {
    uint64_t bits = 0;
    if (t->bits < 8) return ((const uint8_t *)data)[at * t->bits / 8] >> at * t->bits % 8 & mask_of(t);
    memcpy(&bits, (const char *)data + (size_t)at * (size_t)t->bits / 8, (size_t)t->bits / 8);
    return bits;
}

static void check_results(const char *target, const type *from, const type *to, int count, const uint64_t *points,
                          const void *results) {
    for (int i = 0; i < count; i++) {
        bool nan;
        const uint64_t expected = convert(from, to, points[i], &nan), got = get(to, results, i);
        if (nan ? to->class_ == 'f' && read_number(to, got).nan : got == expected) continue;
        fail_msg("%s: %s 0x%llx to %s: 0x%llx, expected %s 0x%llx", target, dlc_dtype_name(from->code),
                 (unsigned long long)points[i], dlc_dtype_name(to->code), (unsigned long long)got,
                 nan ? "NaN, not" : "", (unsigned long long)expected);
    }
}

/* From one type to all others, in one graph. */
static void check_from(dlc_context *context, const char *target, const type *from) {
    static uint64_t points[POINTS], input[POINTS];
    static char output[TYPES][POINTS * 8];
    const int count = points_of(from, points);
    memset(input, 0, sizeof input);
    for (int i = 0; i < count; i++) put(from, input, i, points[i]);
    dlc_graph *graph;
    OK(context, dlc_graph_create(context, &graph));
    dlc_value x = dlc_input(graph, "x", from->code, 1, DIMS(SIZE(count)));
    dlc_output_slot slots[TYPES];
    tensor in, out[TYPES];
    for (int i = 0; i < TYPES; i++) {
        OK(context, dlc_output(graph, dlc_dtype_name(types[i].code), dlc_cast(x, types[i].code)));
        slots[i] = (dlc_output_slot){.tensor = &make_tensor(&out[i], types[i].code, output[i], 1, SHAPE(count))->dl};
    }
    dlc_program *program = compile(context, graph);
    const DLTensor *inputs[] = {&make_tensor(&in, from->code, input, 1, SHAPE(count))->dl};
    OK(context, dlc_run(program, NULL, inputs, 1, slots, TYPES));
    dlc_program_destroy(program);
    for (int i = 0; i < TYPES; i++) check_results(target, from, &types[i], count, points, output[i]);
}

static void test_casts(void **state) {
    const char *target = *state;
    dlc_context *context = open_context(target, NULL);
    if (!context) skip();
    for (int i = 0; i < TYPES; i++)
        if (test_takes(i, 2)) check_from(context, target, &types[i]);
    dlc_context_destroy(context);
}

int main(void) {
    for (int i = 0; i < TYPES; i++)
        if (has_table(&types[i])) make_table(&types[i], &tables[i]);
    const struct CMUnitTest tests[] = {
        {"casts_on_interp", test_casts, NULL, NULL, (void *)(uintptr_t)all_targets[0]},
        {"casts_on_cpu", test_casts, NULL, NULL, (void *)(uintptr_t)all_targets[1]},
        {"casts_on_cuda", test_casts, NULL, NULL, (void *)(uintptr_t)all_targets[2]},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
