/* Expressions in CUDA C. Every operator has the meaning of tir/arith.h bit for bit (any NaN for any other): the source is compiled
 * without contraction and without fast math, integers wrap by unsigned arithmetic, and operations that C or the machine defines
 * differently have a helper in the prelude. */
#include "targets/cuda/cuda.h"
#include "targets/cuda/emit.h"

#include <math.h>

static const char prelude[] =
    "typedef signed char i8;\n"
    "typedef short i16;\n"
    "typedef int i32;\n"
    "typedef long long i64;\n"
    "typedef unsigned char u8;\n"
    "typedef unsigned short u16;\n"
    "typedef unsigned int u32;\n"
    "typedef unsigned long long u64;\n"
    "typedef unsigned short f16;  /* bits */\n"
    "typedef unsigned short bf16; /* bits */\n"
    "typedef unsigned char f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz; /* bits */\n"
    "#define HELPER static __device__ __forceinline__\n"
    "/* x/0 = 0, MIN/-1 wraps */\n"
    "template <class T> HELPER T int_div(T a, T b) { return b == 0 ? T(0) : T(-1) < T(0) && b == T(-1) ? T(0 - u64(a)) : T(a / b); }\n"
    "template <class T> HELPER T int_rem(T a, T b) { return b == 0 ? T(0) : T(u64(a) - u64(b) * u64(int_div(a, b))); }\n"
    "template <class T> HELPER T int_pow(T x, T y) {\n"
    "  if (T(-1) < T(0) && y < T(0)) return x == T(1) ? T(1) : x == T(-1) ? ((y & 1) ? T(-1) : T(1)) : T(0);\n"
    "  u64 result = 1, base = u64(i64(x));\n"
    "  for (u64 n = u64(y); n; n >>= 1, base *= base) if (n & 1) result *= base;\n"
    "  return T(result);\n"
    "}\n"
    "template <class T> HELPER T int_shl(T a, u64 amount) { return amount >= sizeof(T) * 8 ? T(0) : T(u64(a) << amount); }\n"
    "template <class T> HELPER T int_shr(T a, u64 amount) { return amount >= sizeof(T) * 8 ? T(0) : T(a >> amount); }\n"
    "template <class T> HELPER T floor_div(T a, T b) { return a / b - (a % b < 0); }\n"
    "template <class T> HELPER T floor_rem(T a, T b) { T r = a % b; return r < 0 ? r + b : r; }\n"
    "template <class T> HELPER T int_min(T a, T b) { return a < b ? a : b; }\n"
    "template <class T> HELPER T int_max(T a, T b) { return a < b ? b : a; }\n"
    "/* NaN if either is, -0 below +0 */\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "HELPER float float_min(float a, float b) { float r; asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b)); return r; }\n"
    "HELPER float float_max(float a, float b) { float r; asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b)); return r; }\n"
    "#else\n"
    "HELPER float float_min(float a, float b) { float r; asm(\"min.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b)); return a != a || b != b ? a + b : r; }\n"
    "HELPER float float_max(float a, float b) { float r; asm(\"max.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b)); return a != a || b != b ? a + b : r; }\n"
    "#endif\n"
    "HELPER double double_min(double a, double b) { return a != a || b != b ? a + b : fmin(a, b); }\n"
    "HELPER double double_max(double a, double b) { return a != a || b != b ? a + b : fmax(a, b); }\n"
    "/* saturates, NaN gives 0; low, high: the first values of F beyond T */\n"
    "template <class T, class F> HELPER T float_to_int(F x, F low, F high, T least, T most) {\n"
    "  return x != x ? T(0) : x <= low ? least : x >= high ? most : T(x);\n"
    "}\n"
    "HELPER f16 f16_of(float x) { f16 r; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)); return r; }\n"
    "HELPER f16 f16_of(double x) { f16 r; asm(\"cvt.rn.f16.f64 %0, %1;\" : \"=h\"(r) : \"d\"(x)); return r; }\n"
    "HELPER float float_of_f16(f16 x) { float r; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(x)); return r; }\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "HELPER bf16 bf16_of(float x) { bf16 r; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)); return r; }\n"
    "#else\n"
    "HELPER bf16 bf16_of(float x) { /* to nearest, ties to even */\n"
    "  const unsigned bits = __float_as_uint(x);\n"
    "  return x != x ? bf16(0x7fff) : bf16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n"
    "}\n"
    "#endif\n"
    "HELPER bf16 bf16_of(double x) { /* to odd first: one rounding in all */\n"
    "  float r = __double2float_rz(x);\n"
    "  return bf16_of(double(r) == x || x != x ? r : __int_as_float(__float_as_int(r) | 1));\n"
    "}\n"
    "HELPER float float_of_bf16(bf16 x) { return __int_as_float(int(x) << 16); }\n"
    "/* bits past the 53rd become sticky, so that a second rounding rounds as one */\n"
    "HELPER double sticky(u64 x) { return double(x >> 53 ? (x & ~0x7ffull) | u64((x & 0x7ff) != 0) << 11 : x); }\n"
    "HELPER double sticky(i64 x) { return x < 0 ? -sticky(0 - u64(x)) : sticky(u64(x)); }\n";

static const char shuffle_prelude[] =
    "HELPER u32 shuffle(u32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }\n"
    "HELPER i32 shuffle(i32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }\n"
    "HELPER u64 shuffle(u64 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }\n"
    "HELPER i64 shuffle(i64 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }\n"
    "HELPER float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }\n"
    "HELPER double shuffle(double x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }\n"
    "template <class T> HELPER T shuffle(T x, int lane) { return T(__shfl_sync(0xffffffffu, u32(x), lane)); }\n";

static const char copy_prelude[] =
    "/* shared memory whose 16-byte chunks change places: of an offset in elements */\n"
    "template <int shift, int mask, int to> HELPER int swizzled(int at) { return at ^ (at >> shift & mask) << to; }\n"
    "/* `size` bytes, of which the first `bytes` are read and the others zero; before 8.0 at once */\n"
    "template <int size> HELPER void copy_async(void *to, const void *from, int bytes) {\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "  const u32 at = u32(__cvta_generic_to_shared(to));\n"
    "  if (size == 16)\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: \"r\"(at), \"l\"(from), \"r\"(bytes) : \"memory\");\n"
    "  else\n"
    "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], %2, %3;\" :: \"r\"(at), \"l\"(from), \"n\"(size), \"r\"(bytes) : \"memory\");\n"
    "#else\n"
    "  if (bytes == size)\n"
    "    for (int i = 0; i < size / 4; ++i) ((u32 *)to)[i] = ((const u32 *)from)[i];\n"
    "  else\n"
    "    for (int i = 0; i < size; ++i) ((u8 *)to)[i] = i < bytes ? ((const u8 *)from)[i] : u8(0);\n"
    "#endif\n"
    "}\n"
    "HELPER void copy_commit() {\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "  asm volatile(\"cp.async.commit_group;\" ::: \"memory\");\n"
    "#endif\n"
    "}\n"
    "template <int groups> HELPER void copy_wait() {\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "  asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(groups) : \"memory\");\n"
    "#endif\n"
    "}\n";

void cuda_emit_prelude(lib_text *text) {
    lib_text_add(text, prelude);
    lib_text_add(text, shuffle_prelude);
    lib_text_add(text, copy_prelude);
    print_tile_prelude(text);
}

const char *print_type(const emitter *e, tir_dtype dtype) {
    if (dtype == TIR_INDEX) return e->wide ? "i64" : "int";
    switch (dtype) {
    case DLC_F32: return "float";
    case DLC_F64: return "double";
    case DLC_BOOL: return "bool";
    default: return tir_dtype_name(dtype);
    }
}

static char class_of(tir_dtype dtype) {
    return dtype == TIR_INDEX ? 'x' : lib_dtypes[dtype].class_;
}
static bool is_narrow(tir_dtype dtype) {
    return dtype != TIR_INDEX && lib_dtype_is_narrow_float((dlc_dtype)dtype);
}

/* ---- numbers */

/* Digits that read back as the same value, with a decimal point in every locale. */
static const char *number_text(emitter *e, double value) {
    lib_text text;
    lib_text_init(&text, e->arena);
    lib_text_float(&text, value, DLC_F64);
    return text.data;
}

static const char *float_text(emitter *e, dlc_dtype dtype, uint64_t bits) {
    double value;
    if (dtype == DLC_F32) {
        uint32_t low = (uint32_t)bits;
        float narrow;
        memcpy(&narrow, &low, sizeof narrow);
        if (!isfinite(narrow)) return lib_arena_format(e->arena, "__int_as_float(0x%08x)", low);
        value = (double)narrow;
    } else {
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            return lib_arena_format(e->arena, "__longlong_as_double(0x%016llx)", (unsigned long long)bits);
    }
    const char *number = number_text(e, value);
    return lib_arena_format(e->arena, "%s%s%s", number, strpbrk(number, ".e") ? "" : ".0", dtype == DLC_F32 ? "f" : "");
}

static const char *constant_text(emitter *e, tir_dtype dtype, uint64_t bits) {
    switch (class_of(dtype)) {
    case 'x': return lib_arena_format(e->arena, e->wide ? "%lldll" : "%lld", (long long)(int64_t)bits);
    case 'b': return bits ? "true" : "false";
    case 'f':
        if (is_narrow(dtype)) return lib_arena_format(e->arena, "%s(0x%04x)", print_type(e, dtype), (unsigned)bits);
        return float_text(e, (dlc_dtype)dtype, bits);
    case 'u':
        if (dtype == DLC_U32) return lib_arena_format(e->arena, "%uu", (unsigned)bits);
        return lib_arena_format(e->arena, "%s(%lluull)", print_type(e, dtype), (unsigned long long)bits);
    default:
        if (dtype == DLC_I32 && (int64_t)bits > INT32_MIN) return lib_arena_format(e->arena, "%d", (int)(int64_t)bits);
        if ((int64_t)bits == INT64_MIN) return "i64(0x8000000000000000)";
        return lib_arena_format(e->arena, "%s(%lldll)", print_type(e, dtype), (long long)(int64_t)bits);
    }
}

/* ---- binding strength of a text: which neighbours it can have without parentheses */

enum { ATOM, PRODUCT, SUM, COMPARISON, CONJUNCTION, LOOSE };

static const char *operand(emitter *e, tir_expr node, int i, int loosest) {
    tir_expr x = tir_operand(e->pool, node, i);
    return e->level[x] <= loosest ? e->value[x] : lib_arena_format(e->arena, "(%s)", e->value[x]);
}

/* a OP b for operators of which (a OP b) OP c may be written a OP b OP c */
static const char *infix(emitter *e, tir_expr node, const char *symbol, int level) {
    e->made = (uint8_t)level;
    return lib_arena_format(e->arena, "%s %s %s", operand(e, node, 0, level), symbol, operand(e, node, 1, level - 1));
}

static const char *call(emitter *e, tir_expr node, const char *function) {
    if (tir_get(e->pool, node)->count == 1)
        return lib_arena_format(e->arena, "%s(%s)", function, operand(e, node, 0, LOOSE));
    return lib_arena_format(e->arena, "%s(%s, %s)", function, operand(e, node, 0, LOOSE), operand(e, node, 1, LOOSE));
}

/* ---- conversions */

static const char *to_integer(emitter *e, tir_dtype to, const char *x, bool wide) {
    const int width = lib_dtypes[to].bits;
    const char *type = print_type(e, to), *from = wide ? "double" : "float";
    if (class_of(to) == 'u')
        return lib_arena_format(e->arena, "float_to_int<%s, %s>(%s, 0, %s, 0, %s(~0ull))", type, from, x,
                                number_text(e, ldexp(1, width)), type);
    return lib_arena_format(e->arena, "float_to_int<%s, %s>(%s, %s, %s, %s(1ull << %d), %s((1ull << %d) - 1))", type,
                            from, x, number_text(e, -ldexp(1, width - 1)), number_text(e, ldexp(1, width - 1)), type,
                            width - 1, type, width - 1);
}

static const char *to_narrow(emitter *e, tir_dtype to, tir_dtype from, const char *x) {
    const char *name = to == DLC_F16 ? "f16_of" : "bf16_of";
    switch (class_of(from)) {
    case 'f': return lib_arena_format(e->arena, "%s(%s)", name, x);
    case 'b': return lib_arena_format(e->arena, "%s(float(%s))", name, x);
    case 'u': return lib_arena_format(e->arena, "%s(sticky(u64(%s)))", name, x);
    default: return lib_arena_format(e->arena, "%s(sticky(i64(%s)))", name, x);
    }
}

static const char *cast_text(emitter *e, tir_dtype to, tir_dtype from, const char *x) {
    const char *type = print_type(e, to);
    const bool floating = class_of(from) == 'f';
    if (from == DLC_F16) x = lib_arena_format(e->arena, "float_of_f16(%s)", x);
    if (from == DLC_BF16) x = lib_arena_format(e->arena, "float_of_bf16(%s)", x);
    if (is_narrow(from) && to == DLC_F32) return x;
    if (class_of(to) == 'b') return lib_arena_format(e->arena, "((%s) != 0)", x);
    if (is_narrow(to)) return to_narrow(e, to, from, x);
    if (floating && class_of(to) == 'x')
        return lib_arena_format(e->arena, "%s(%s)", type, to_integer(e, DLC_I64, x, from == DLC_F64));
    if (floating && class_of(to) != 'f') return to_integer(e, to, x, from == DLC_F64);
    return lib_arena_format(e->arena, "%s(%s)", type, x);
}

static const char *bitcast_text(emitter *e, tir_dtype to, tir_dtype from, const char *x) {
    if (to == DLC_F32) return lib_arena_format(e->arena, "__int_as_float(%s)", x);
    if (to == DLC_F64) return lib_arena_format(e->arena, "__longlong_as_double(%s)", x);
    if (from == DLC_F32)
        return lib_arena_format(e->arena, to == DLC_U32 ? "__float_as_uint(%s)" : "__float_as_int(%s)", x);
    if (from == DLC_F64) return lib_arena_format(e->arena, "%s(__double_as_longlong(%s))", print_type(e, to), x);
    return lib_arena_format(e->arena, "%s(%s)", print_type(e, to), x);
}

/* ---- operators */

static const char *index_binary(emitter *e, tir_expr node) {
    bool natural = tir_range(e->pool, tir_operand(e->pool, node, 0)).low >= 0;
    int64_t constant;
    switch (tir_op_of(e->pool, node)) {
    case TIR_ADD:
        if (tir_is_const(e->pool, tir_operand(e->pool, node, 1), &constant) && constant < 0) {
            e->made = SUM;
            return lib_arena_format(e->arena, e->wide ? "%s - %lldll" : "%s - %lld", operand(e, node, 0, SUM),
                                    -(long long)constant);
        }
        e->made = SUM; /* exact: libdlc determines the order of additions */
        return lib_arena_format(e->arena, "%s + %s", operand(e, node, 0, SUM), operand(e, node, 1, SUM));
    case TIR_SUB: return infix(e, node, "-", SUM);
    case TIR_MUL: return infix(e, node, "*", PRODUCT);
    case TIR_DIV: return natural ? infix(e, node, "/", PRODUCT) : call(e, node, "floor_div");
    case TIR_REM: return natural ? infix(e, node, "%", PRODUCT) : call(e, node, "floor_rem");
    case TIR_MIN: return call(e, node, "int_min");
    case TIR_MAX: return call(e, node, "int_max");
    default: print_unsupported(e, "operator %s on indices", tir_ops[tir_op_of(e->pool, node)].text);
    }
}

/* Sums and products wrap: computed in unsigned arithmetic of at least 32 bits, then converted back. */
static const char *wrapping(emitter *e, tir_expr node, const char *symbol, int level) {
    const tir_dtype dtype = tir_dtype_of(e->pool, node);
    if (dtype == DLC_U32 || dtype == DLC_U64) return infix(e, node, symbol, level);
    const char *word = lib_dtypes[dtype].bits == 64 ? "u64" : "u32";
    return lib_arena_format(e->arena, "%s(%s(%s) %s %s(%s))", print_type(e, dtype), word, operand(e, node, 0, LOOSE),
                            symbol, word, operand(e, node, 1, LOOSE));
}

static const char *shift(emitter *e, tir_expr node, const char *symbol, const char *helper) {
    static const char *const words[] = {"u8", "u16", "u32", "u64"};
    const tir_dtype dtype = tir_dtype_of(e->pool, node);
    const int width = lib_dtypes[dtype].bits;
    int64_t amount;
    if (tir_is_const(e->pool, tir_operand(e->pool, node, 1), &amount) && amount >= 0 && amount < width && width >= 32 &&
        (class_of(dtype) == 'u' || symbol[0] == '>'))
        return lib_arena_format(e->arena, "(%s %s %lld)", operand(e, node, 0, ATOM), symbol, (long long)amount);
    const char *word = words[width == 8 ? 0 : width == 16 ? 1 : width == 32 ? 2 : 3];
    return lib_arena_format(e->arena, "%s<%s>(%s, %s(%s))", helper, print_type(e, dtype), operand(e, node, 0, LOOSE),
                            word, operand(e, node, 1, LOOSE));
}

static const char *integer_binary(emitter *e, tir_expr node) {
    const tir_op op = tir_op_of(e->pool, node);
    const tir_dtype dtype = tir_dtype_of(e->pool, node);
    const char *type = print_type(e, dtype), *word = class_of(dtype) == 'u' ? "u64" : "i64";
    const int width = lib_dtypes[dtype].bits;
    switch (op) {
    case TIR_ADD: return wrapping(e, node, "+", SUM);
    case TIR_SUB: return wrapping(e, node, "-", SUM);
    case TIR_MUL: return wrapping(e, node, "*", PRODUCT);
    case TIR_DIV: return call(e, node, lib_arena_format(e->arena, "int_div<%s>", type));
    case TIR_REM: return call(e, node, lib_arena_format(e->arena, "int_rem<%s>", type));
    case TIR_POW: return call(e, node, lib_arena_format(e->arena, "int_pow<%s>", type));
    case TIR_MIN: return call(e, node, lib_arena_format(e->arena, "int_min<%s>", type));
    case TIR_MAX: return call(e, node, lib_arena_format(e->arena, "int_max<%s>", type));
    case TIR_AND:
    case TIR_OR:
    case TIR_XOR:
        return lib_arena_format(e->arena, "%s(%s %s %s)", type, operand(e, node, 0, ATOM),
                                op == TIR_AND  ? "&"
                                : op == TIR_OR ? "|"
                                               : "^",
                                operand(e, node, 1, ATOM));
    case TIR_SHL: return shift(e, node, "<<", "int_shl");
    case TIR_SHR: return shift(e, node, ">>", "int_shr");
    case TIR_MULHI:
        if (width == 64) return call(e, node, class_of(dtype) == 'u' ? "__umul64hi" : "__mul64hi");
        return lib_arena_format(e->arena, "%s((%s(%s) * %s(%s)) >> %d)", type, word, operand(e, node, 0, LOOSE), word,
                                operand(e, node, 1, LOOSE), width);
    default: print_unsupported(e, "operator %s on integers", tir_ops[op].text);
    }
}

static const char *logical(emitter *e, tir_expr node, const char *symbol) {
    e->made = CONJUNCTION;
    return lib_arena_format(e->arena, "%s %s %s", operand(e, node, 0, COMPARISON), symbol,
                            operand(e, node, 1, COMPARISON));
}

static const char *bool_binary(emitter *e, tir_expr node) {
    switch (tir_op_of(e->pool, node)) {
    case TIR_AND:
    case TIR_MUL:
    case TIR_MIN:
    case TIR_DIV: return logical(e, node, "&&"); /* x/0 = 0 */
    case TIR_OR:
    case TIR_MAX: return logical(e, node, "||");
    case TIR_ADD:
    case TIR_SUB:
    case TIR_XOR: return infix(e, node, "!=", COMPARISON);
    case TIR_REM: return "false";
    case TIR_POW:
        return lib_arena_format(e->arena, "(%s || !%s)", operand(e, node, 0, ATOM), operand(e, node, 1, ATOM));
    case TIR_SHL:
    case TIR_SHR:
        return lib_arena_format(e->arena, "(%s && !%s)", operand(e, node, 0, ATOM), operand(e, node, 1, ATOM));
    default: print_unsupported(e, "operator %s on bool", tir_ops[tir_op_of(e->pool, node)].text);
    }
}

static const char *float_binary(emitter *e, tir_expr node) {
    const bool wide = tir_dtype_of(e->pool, node) == DLC_F64;
    const tir_op op = tir_op_of(e->pool, node);
    switch (op) {
    case TIR_ADD: return infix(e, node, "+", SUM);
    case TIR_SUB: return infix(e, node, "-", SUM);
    case TIR_MUL: return infix(e, node, "*", PRODUCT);
    case TIR_DIV: return infix(e, node, "/", PRODUCT);
    case TIR_REM: return call(e, node, wide ? "fmod" : "fmodf");
    case TIR_MIN: return call(e, node, wide ? "double_min" : "float_min");
    case TIR_MAX: return call(e, node, wide ? "double_max" : "float_max");
    case TIR_POW:
    case TIR_ATAN2: return call(e, node, tir_ops[op].text); /* f64 */
    default: print_unsupported(e, "operator %s on floats", tir_ops[op].text);
    }
}

static const char *integer_unary(emitter *e, tir_expr node) {
    const tir_dtype dtype = tir_dtype_of(e->pool, node);
    const char *type = print_type(e, dtype), *word = lib_dtypes[dtype].bits == 64 ? "u64" : "u32",
               *x = operand(e, node, 0, ATOM);
    switch (tir_op_of(e->pool, node)) {
    case TIR_NEG: return lib_arena_format(e->arena, "%s(0 - %s(%s))", type, word, x);
    case TIR_ABS:
        if (class_of(dtype) == 'u') return x;
        return lib_arena_format(e->arena, "(%s < 0 ? %s(0 - %s(%s)) : %s)", x, type, word, x, x);
    case TIR_NOT: return lib_arena_format(e->arena, "%s(~%s)", type, x);
    default: return x; /* integers are rounded already */
    }
}

static const char *float_unary(emitter *e, tir_expr node) {
    const tir_op op = tir_op_of(e->pool, node);
    const tir_dtype dtype = tir_dtype_of(e->pool, node);
    const bool wide = dtype == DLC_F64;
    if (is_narrow(dtype)) /* only sign operations; the verifier rejects others */
        return lib_arena_format(e->arena, op == TIR_NEG ? "%s(%s ^ 0x8000)" : "%s(%s & 0x7fff)", print_type(e, dtype),
                                operand(e, node, 0, ATOM));
    switch (op) {
    case TIR_NEG: return lib_arena_format(e->arena, "(-%s)", operand(e, node, 0, ATOM));
    case TIR_ABS: return call(e, node, wide ? "fabs" : "fabsf");
    case TIR_SQRT: return call(e, node, wide ? "sqrt" : "sqrtf");
    case TIR_FLOOR: return call(e, node, wide ? "floor" : "floorf");
    case TIR_CEIL: return call(e, node, wide ? "ceil" : "ceilf");
    case TIR_TRUNC: return call(e, node, wide ? "trunc" : "truncf");
    case TIR_ROUND: return call(e, node, wide ? "rint" : "rintf");
    default: return call(e, node, tir_ops[op].text); /* f64 transcendentals */
    }
}

static const char *compare(emitter *e, tir_expr node) {
    const tir_op op = tir_op_of(e->pool, node);
    e->made = COMPARISON;
    return lib_arena_format(e->arena, "%s %s %s", operand(e, node, 0, SUM),
                            op == TIR_EQ   ? "=="
                            : op == TIR_NE ? "!="
                            : op == TIR_LT ? "<"
                                           : "<=",
                            operand(e, node, 1, SUM));
}

/* Sets e->made to the binding strength of the text. */
static const char *operator_text(emitter *e, tir_expr node) {
    const tir_node *n = tir_get(e->pool, node);
    const tir_op op = (tir_op)n->op;
    const tir_dtype from = tir_dtype_of(e->pool, tir_operand(e->pool, node, 0));
    e->made = ATOM;
    switch (op) {
    case TIR_SELECT:
        e->made = LOOSE;
        return lib_arena_format(e->arena, "%s ? %s : %s", operand(e, node, 0, CONJUNCTION), operand(e, node, 1, SUM),
                                operand(e, node, 2, SUM));
    case TIR_FMA:
        return lib_arena_format(e->arena, "%s(%s, %s, %s)", n->dtype == DLC_F64 ? "fma" : "fmaf",
                                operand(e, node, 0, LOOSE), operand(e, node, 1, LOOSE), operand(e, node, 2, LOOSE));
    case TIR_CAST: return cast_text(e, n->dtype, from, operand(e, node, 0, LOOSE));
    case TIR_BITCAST: return bitcast_text(e, n->dtype, from, operand(e, node, 0, LOOSE));
    default: break;
    }
    if (n->count < 1 || n->count > 2) print_unsupported(e, "operator %s", tir_ops[op].text);
    if (tir_ops[op].flags & TIR_COMPARES) {
        if (is_narrow(from)) print_unsupported(e, "comparison of %s", tir_dtype_name(from));
        return compare(e, node);
    }
    const char class_ = class_of(n->dtype);
    if (class_ == 'c') print_unsupported(e, "complex numbers");
    if (n->count == 1 && class_ == 'b')
        return op == TIR_NOT ? lib_arena_format(e->arena, "!%s", operand(e, node, 0, ATOM)) : operand(e, node, 0, ATOM);
    if (n->count == 1) return class_ == 'f' ? float_unary(e, node) : integer_unary(e, node);
    return class_ == 'x'   ? index_binary(e, node)
           : class_ == 'b' ? bool_binary(e, node)
           : class_ == 'f' ? float_binary(e, node)
                           : integer_binary(e, node);
}

/* ---- statements' values */

static void *grown(emitter *e, const void *old, uint32_t count, size_t size) {
    void *copy = lib_arena_array(e->arena, e->node_limit, size);
    if (count) memcpy(copy, old, count * size);
    return copy;
}

/* Printing makes nodes: offsets. */
static void print_reserve(emitter *e) {
    const uint32_t count = e->pool->nodes.count, old = e->node_limit;
    if (count <= old) return;
    e->node_limit = count + count / 2 + 64;
    e->value = grown(e, e->value, old, sizeof *e->value);
    e->level = grown(e, e->level, old, sizeof *e->level);
    e->uses = grown(e, e->uses, old, sizeof *e->uses);
}

static void know(emitter *e, tir_expr node, const char *text, int level) {
    print_reserve(e);
    e->value[node] = text;
    e->level[node] = (uint8_t)level;
    lib_vec_push(e->arena, &e->valued, node);
}

void print_know(emitter *e, tir_expr node, const char *text) {
    know(e, node, text, ATOM);
}

/* Values that are used twice, or have long texts, get a name. */
static void name_value(emitter *e, tir_expr node, const char *text) {
    const char *name = print_name(e, lib_arena_format(e->arena, "v%u", e->temporaries++));
    print_line(e, "const %s %s = %s;", print_type(e, tir_dtype_of(e->pool, node)), name, text);
    know(e, node, name, ATOM);
}

static void compute(emitter *e, tir_expr node) {
    enum { LONG = 160 };
    const tir_node *n = tir_get(e->pool, node);
    if (n->op == TIR_CONST) {
        const char *text = constant_text(e, n->dtype, n->bits);
        know(e, node, text, text[0] == '-' ? LOOSE : ATOM);
        return;
    }
    if (n->op == TIR_VAR) {
        const char *name = e->variable[tir_var_id(e->pool, node)];
        if (!name) print_unsupported(e, "variable %s is not bound", tir_variable_of(e->pool, node)->name);
        know(e, node, name, ATOM);
        return;
    }
    const bool guarded = n->guarded, load = n->op == TIR_LOAD;
    const char *text = load ? print_load(e, node) : operator_text(e, node);
    const int level = load ? guarded ? LOOSE : ATOM : e->made;
    if (e->uses[node] > 1 || strlen(text) > LONG)
        name_value(e, node, text);
    else
        know(e, node, text, level);
}

/* Counts uses below the root; nodes whose values are known are leaves. */
static void count_uses(emitter *e, tir_expr root) {
    lib_vec(tir_expr) stack = {0};
    print_reserve(e);
    lib_vec_push(e->arena, &stack, root);
    while (stack.count) {
        tir_expr node = stack.data[--stack.count];
        if (e->value[node]) continue;
        if (e->uses[node]++) continue;
        for (int i = 0; i < tir_get(e->pool, node)->count; i++)
            lib_vec_push(e->arena, &stack, tir_operand(e->pool, node, i));
    }
}

const char *print_value(emitter *e, tir_expr root) {
    lib_vec(tir_expr) stack = {0};
    count_uses(e, root);
    lib_vec_push(e->arena, &stack, root);
    while (stack.count) {
        tir_expr node = stack.data[stack.count - 1];
        bool ready = true;
        if (e->value[node]) {
            stack.count--;
            continue;
        }
        for (int i = tir_get(e->pool, node)->count; i-- > 0;) {
            tir_expr operand = tir_operand(e->pool, node, i);
            if (e->value[operand]) continue;
            lib_vec_push(e->arena, &stack, operand);
            ready = false;
        }
        if (!ready) continue;
        compute(e, node);
        stack.count--;
    }
    return e->value[root];
}

const char *print_atom(emitter *e, tir_expr root) {
    const char *text = print_value(e, root);
    return e->level[root] == ATOM ? text : lib_arena_format(e->arena, "(%s)", text);
}

void print_forget(emitter *e) {
    for (uint32_t i = 0; i < e->valued.count; i++) {
        e->value[e->valued.data[i]] = NULL;
        e->uses[e->valued.data[i]] = 0;
    }
    e->valued.count = 0;
}
