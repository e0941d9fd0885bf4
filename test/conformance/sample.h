/* Samples of operator rows (graph/op.h) as test cases: reading a line, and random data for its operands. */
#ifndef TEST_CONFORMANCE_SAMPLE_H
#define TEST_CONFORMANCE_SAMPLE_H

#include "graph/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#define SAMPLE_OPERANDS 16

typedef struct sample_operand {
    /* "_" */
    bool left_out;
    dlc_dtype dtype;
    int rank;
    int64_t dim[DLC_MAX_RANK];
    /* "in low..high": numbers of [low, high); "in low..high special": the special ones of them, too, where a fill has some. */
    bool limited, special;
    double low, high;
} sample_operand;

typedef struct sample {
    const graph_op *op;
    const char *line;
    /* the line contains "T" */
    bool varies;
    int operands;
    sample_operand operand[SAMPLE_OPERANDS];
    /* one per spec */
    graph_attribute attribute[sizeof(((graph_op *)0)->attribute) / sizeof(graph_attribute_spec)];
} sample;

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* The line with each word T replaced by the dtype's name. */
static inline const char *sample_line(lib_arena *arena, const char *line, size_t length, dlc_dtype t, bool *varies) {
    lib_text text;
    lib_text_init(&text, arena);
    *varies = false;
    for (size_t i = 0; i < length; i++) {
        bool word = line[i] == 'T' && (i == 0 || (!isalnum((unsigned char)line[i - 1]) && line[i - 1] != '_')) &&
                    (i + 1 == length || (!isalnum((unsigned char)line[i + 1]) && line[i + 1] != '_'));
        if (word)
            lib_text_add(&text, lib_dtypes[t].name);
        else
            lib_text_add_bytes(&text, line + i, 1);
        *varies |= word;
    }
    lib_text_add(&text, "");
    return text.data;
}

static inline double sample_bound(lib_lexer *lexer, char **at) {
    char copy[64];
    size_t length = 0;
    char *from = *at;
    while (*from == ' ') from++;
    while (length < sizeof copy - 1 && from[length] && strchr("+-0123456789.eE", from[length]) &&
           !(from[length] == '.' && from[length + 1] == '.')) {
        copy[length] = from[length];
        length++;
    }
    copy[length] = 0;
    if (!length) lib_lexer_raise(lexer, "expected a range: in low..high");
    *at = from + length;
    return strtod(copy, NULL);
}

/* f32[2, 3] in 0..10    f32[2] in -1..1 special    _ */
static inline sample_operand sample_parse_operand(lib_lexer *lexer) {
    sample_operand operand = {0};
    char *word = lib_lexer_name(lexer);
    if (strcmp(word, "_") == 0) {
        operand.left_out = true;
        return operand;
    }
    if (!lib_dtype_parse(word, &operand.dtype)) lib_lexer_raise(lexer, "%s is not an element type", word);
    lib_lexer_expect(lexer, "[");
    while (!lib_lexer_accept(lexer, "]")) {
        if (operand.rank) lib_lexer_expect(lexer, ",");
        operand.dim[operand.rank++] = lib_lexer_integer(lexer);
    }
    if (!lib_lexer_is(lexer, "in")) return operand;
    char *at = (char *)lexer->at; /* the lexer would read "0..10" as numbers in its own way */
    operand.limited = true;
    operand.low = sample_bound(lexer, &at);
    if (at[0] != '.' || at[1] != '.') lib_lexer_raise(lexer, "expected a range: in low..high");
    at += 2;
    operand.high = sample_bound(lexer, &at);
    lexer->at = at;
    lib_lexer_next(lexer);
    operand.special = lib_lexer_accept(lexer, "special");
    return operand;
}

/* "op(f32[2, 3], axis=1)". Attributes may name sub-graphs, hence the graph. */
static inline void sample_parse(sample *s, graph *g, const graph_op *op, const char *line) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, g->arena, op->name, line, strlen(line));
    lib_lexer_next(&lexer);
    s->op = op;
    s->line = line;
    s->operands = 0;
    for (int i = 0; op->attribute[i].name; i++) {
        s->attribute[i] = (graph_attribute){0};
        if (op->attribute[i].initial && strcmp(op->attribute[i].initial, "auto") != 0)
            s->attribute[i] = graph_attribute_default(g, &op->attribute[i]);
    }
    lib_lexer_expect(&lexer, op->name);
    lib_lexer_expect(&lexer, "(");
    for (bool first = true; !lib_lexer_accept(&lexer, ")"); first = false) {
        if (!first) lib_lexer_expect(&lexer, ",");
        lib_lexer ahead = lexer;
        char *word = lib_lexer_name(&ahead);
        if (!lib_lexer_accept(&ahead, "=")) {
            if (s->operands == SAMPLE_OPERANDS) lib_lexer_raise(&lexer, "more than %d operands", SAMPLE_OPERANDS);
            s->operand[s->operands++] = sample_parse_operand(&lexer);
            continue;
        }
        int at = graph_op_attribute(op, word);
        if (at < 0) lib_lexer_raise(&lexer, "no attribute %s", word);
        lexer = ahead;
        s->attribute[at] = graph_attribute_parse(g, &lexer, &op->attribute[at]);
    }
    if (lexer.kind != LIB_END) lib_lexer_raise(&lexer, "more text than one sample");
}

/* ---- data ------------------------------------------------------------------------------------------------------ */

static uint64_t sample_random(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u;
    return lib_hash_mix(*seed, 0);
}

static inline double sample_uniform(uint64_t *seed, double low, double high) {
    return low + (high - low) * ((double)(sample_random(seed) >> 11) * 0x1p-53);
}

/* Special numbers of a dtype, at which implementations of operators tend to differ; returns their count. Products of those of i64 stay
 * within the integers that a double can hold. */
static inline int sample_specials(dlc_dtype dtype, bool extreme, double *out) {
    static const double i64_specials[] = {0, 1, -1, 2, -2, 3, -0x1p63, 0x1p31, -0x1p31, 63, 64, -64};
    static const double u64_specials[] = {
        0, 1, 2, 3, 4, 0x1p31, 0x1p32, 63, 64, 0x1p63, 0x1p63 - 0x1p10, 0x1p64 - 0x1p11};
    static const double i32_specials[] = {0, 1, -1, 2, -2, 3, INT32_MIN, INT32_MAX, 31, 32, -32, 65536};
    static const double u32_specials[] = {0, 1, 2, 3, 4, 31, 32, 65536, INT32_MAX, 0x1p31, UINT32_MAX - 1, UINT32_MAX};
    static const double i16_specials[] = {0, 1, -1, 2, -2, 3, INT16_MIN, INT16_MAX, 15, 16, -16, 256};
    static const double u16_specials[] = {0, 1, 2, 3, 4, 5, 15, 16, 256, 32767, 32768, UINT16_MAX};
    static const double i8_specials[] = {0, 1, -1, 2, -2, 3, INT8_MIN, INT8_MAX, 7, 8, -8, 16};
    static const double u8_specials[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 127, 128, 255};
    static const double ordinary[] = {0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -1.5, INFINITY, -INFINITY, NAN, 3};
    double largest = 0x1.fffffffffffffp1023, smallest = 0x1p-1074;
    int count = 12;
    switch (dtype) {
    case DLC_BOOL: return 0;
    case DLC_I8: memcpy(out, i8_specials, sizeof i8_specials); return count;
    case DLC_U8: memcpy(out, u8_specials, sizeof u8_specials); return count;
    case DLC_I32: memcpy(out, i32_specials, sizeof i32_specials); return count;
    case DLC_I64: memcpy(out, i64_specials, sizeof i64_specials); return count;
    case DLC_I16: memcpy(out, i16_specials, sizeof i16_specials); return count;
    case DLC_U16: memcpy(out, u16_specials, sizeof u16_specials); return count;
    case DLC_U32: memcpy(out, u32_specials, sizeof u32_specials); return count;
    case DLC_U64: memcpy(out, u64_specials, sizeof u64_specials); return count;
    case DLC_F16: largest = 65504, smallest = 0x1p-24; break;
    case DLC_BF16: largest = 0x1.fep127, smallest = 0x1p-133; break;
    case DLC_F8E4M3FN: largest = 448, smallest = 0x1p-9; break;
    case DLC_F8E4M3FNUZ: largest = 240, smallest = 0x1p-10; break;
    case DLC_F8E5M2: largest = 57344, smallest = 0x1p-16; break;
    case DLC_F8E5M2FNUZ: largest = 57344, smallest = 0x1p-17; break;
    case DLC_F32: largest = 0x1.fffffep127, smallest = 0x1p-149; break;
    default: break;
    }
    memcpy(out, ordinary, sizeof ordinary);
    if (!extreme) return count;
    out[count++] = largest;
    out[count++] = -largest;
    out[count++] = smallest;
    out[count++] = smallest * 1000;
    return count;
}

/* Keeps the special numbers within the operand's range, which excludes NaN; returns their count. */
static inline int sample_within(const sample_operand *operand, double *special, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (special[i] >= operand->low && special[i] <= operand->high) special[kept++] = special[i];
    return kept;
}

static inline double sample_number(const sample_operand *operand, bool wide, uint64_t *seed) {
    bool integral = !lib_dtype_is_float(operand->dtype);
    if (operand->limited) {
        double x = sample_uniform(seed, operand->low, operand->high);
        return integral ? floor(x) : x;
    }
    switch (operand->dtype) {
    case DLC_BOOL: return (double)(sample_random(seed) & 1);
    case DLC_I8: return floor(sample_uniform(seed, INT8_MIN, INT8_MAX + 1));
    case DLC_U8: return floor(sample_uniform(seed, 0, UINT8_MAX + 1));
    case DLC_I32: return floor(wide ? sample_uniform(seed, INT32_MIN, INT32_MAX) : sample_uniform(seed, -1000, 1000));
    case DLC_I64: return floor(sample_uniform(seed, -0x1p20, 0x1p20));
    case DLC_I16:
        return floor(wide ? sample_uniform(seed, INT16_MIN, INT16_MAX + 1) : sample_uniform(seed, -1000, 1000));
    case DLC_U16: return floor(sample_uniform(seed, 0, wide ? UINT16_MAX + 1 : 2000));
    case DLC_U32: return floor(sample_uniform(seed, 0, wide ? 0x1p32 : 2000));
    case DLC_U64: return floor(sample_uniform(seed, 0, 0x1p21));
    default: break;
    }
    if (!wide) return sample_uniform(seed, -2, 2);
    if (sample_random(seed) % 5) return sample_uniform(seed, -4, 4);
    return copysign(exp2(sample_uniform(seed, -12, 12)), (double)(sample_random(seed) & 1) - 0.5);
}

typedef enum sample_fill {
    SAMPLE_TAME = 1,    /* moderate numbers: sums and products of them do not overflow */
    SAMPLE_WIDE = 2,    /* small and large numbers too */
    SAMPLE_SPECIAL = 4, /* moderate ones, and now and then NaN, infinities, zeros of both signs */
    SAMPLE_EXTREME =
        8 /* wide ones, and all pairs of special numbers in the first two operands, largest and smallest too */
} sample_fill;

/* Data of operand `number`, both as elements and as the doubles that these read back as. */
static inline void sample_data(const sample_operand *operand, int number, sample_fill fill, uint64_t seed,
                               int64_t count, void *elements, double *doubles) {
    double special[16];
    size_t size = lib_dtype_size(operand->dtype);
    int specials = fill >= SAMPLE_SPECIAL && (!operand->limited || operand->special)
                       ? sample_specials(operand->dtype, fill == SAMPLE_EXTREME, special)
                       : 0;
    if (operand->limited) specials = sample_within(operand, special, specials);
    for (int64_t i = 0; i < count; i++) {
        double x = sample_number(operand, fill == SAMPLE_WIDE || fill == SAMPLE_EXTREME, &seed);
        if (specials && fill == SAMPLE_EXTREME && i < (int64_t)specials * specials) /* all pairs in operands 0 and 1 */
            x = special[(number == 0   ? i
                         : number == 1 ? i / specials
                                       : (int64_t)(sample_random(&seed) >> 1)) %
                        specials];
        if (specials && fill == SAMPLE_SPECIAL && sample_random(&seed) % 37 == 0)
            x = special[sample_random(&seed) % (uint64_t)specials];
        char *element = (char *)elements + (size_t)i * size;
        lib_element_set_f64(operand->dtype, element, x);
        doubles[i] = lib_element_get_f64(operand->dtype, element);
    }
}

/* ---- the row's reference ----------------------------------------------------------------------------------------- */

static inline int64_t sample_count(const graph_reference_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dim[i];
    return count;
}

/* The number that a dimension of a sample is; -1: it is none. */
static inline int64_t sample_extent(const tir_pool *pool, tir_expr extent) {
    int64_t value = -1;
    tir_is_const(pool, extent, &value);
    return value;
}

/* Computes result[results], of the shapes and types of like[], by the row's reference, which reads dimension lists as numbers in `list`.
 * Operands left out have rank -1. pool: of the sample's graph. */
static inline void sample_reference(const sample *s, lib_arena *arena, const tir_pool *pool,
                                    const graph_reference_tensor *operand, int results,
                                    const graph_reference_tensor *like, graph_reference_tensor *result) {
    graph_attribute attribute[sizeof s->attribute / sizeof *s->attribute];
    memcpy(attribute, s->attribute, sizeof attribute);
    for (int i = 0; s->op->attribute[i].name; i++) {
        if (s->op->attribute[i].kind != GRAPH_ATTR_DIMS) continue;
        int64_t *list = LIB_NEW_ARRAY(arena, int64_t, (size_t)attribute[i].count);
        for (int k = 0; k < attribute[i].count; k++) list[k] = sample_extent(pool, attribute[i].dims[k]);
        attribute[i].list = list;
    }
    for (int i = 0; i < results; i++) {
        result[i] = like[i];
        result[i].data = LIB_NEW_ARRAY(arena, double, (size_t)sample_count(&result[i]));
    }
    const int inputs = s->op->max_inputs > s->operands ? s->op->max_inputs : s->operands;
    s->op->reference(&(graph_reference){
        .inputs = inputs, .results = results, .operand = operand, .attribute = attribute, .result = result});
}

#endif
