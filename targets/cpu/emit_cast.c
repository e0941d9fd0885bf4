/* Conversions with the meaning of tir_arith_cast: float to integer saturates with NaN as 0, integers wrap, everything to float rounds
 * once. f16 and bf16 are handled as their bits: by hardware conversions if these are exact (vcvtneps2bf16 is, except that it flushes
 * denormals), by integer arithmetic otherwise. */
#include "targets/cpu/emit.h"

#include <math.h>

static int bits_of(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT ? lib_dtypes[dtype].bits : 64;
}

/* Shorthand for i32 sequences on `lanes` lanes. */
typedef struct bits32 {
    emitter *e;
    LLVMBuilderRef b;
    LLVMTypeRef type;
    int lanes;
} bits32;
static bits32 bits32_of(emitter *e, int lanes) {
    return (bits32){e, e->builder, emit_vector_type(e->i32, lanes), lanes};
}
static LLVMValueRef number(bits32 w, uint32_t value) {
    return emit_fill(w.e, w.e->i32, w.lanes, (int64_t)value);
}
static LLVMValueRef and_(bits32 w, LLVMValueRef a, uint32_t mask) {
    return LLVMBuildAnd(w.b, a, number(w, mask), "");
}
static LLVMValueRef shl(bits32 w, LLVMValueRef a, uint32_t by) {
    return LLVMBuildShl(w.b, a, number(w, by), "");
}
static LLVMValueRef shr(bits32 w, LLVMValueRef a, uint32_t by) {
    return LLVMBuildLShr(w.b, a, number(w, by), "");
}

/* ---- 16-bit floats to f32 */

static LLVMValueRef f32_from_bf16(emitter *e, LLVMValueRef x) {
    bits32 w = bits32_of(e, emit_lanes_of(x));
    LLVMValueRef wide = shl(w, LLVMBuildZExt(w.b, x, w.type, ""), 16);
    return LLVMBuildBitCast(w.b, wide, emit_vector_type(e->f32, w.lanes), "");
}

/* Exponent and mantissa are shifted into place, and a multiplication by 2^112 corrects the exponent and normalises denormals; infinities
 * and NaN get the full exponent. */
static LLVMValueRef f32_from_f16_bits(emitter *e, LLVMValueRef x) {
    bits32 w = bits32_of(e, emit_lanes_of(x));
    LLVMTypeRef real = emit_vector_type(e->f32, w.lanes);
    LLVMValueRef wide = LLVMBuildZExt(w.b, x, w.type, "");
    LLVMValueRef magnitude = shl(w, and_(w, wide, 0x7fff), 13), sign = shl(w, and_(w, wide, 0x8000), 16);
    LLVMValueRef scaled =
        LLVMBuildFMul(w.b, LLVMBuildBitCast(w.b, magnitude, real, ""), emit_real(e->f32, w.lanes, 0x1p112), "");
    LLVMValueRef special = LLVMBuildICmp(w.b, LLVMIntUGE, magnitude, number(w, 0x7c00u << 13), "");
    LLVMValueRef full = LLVMBuildOr(w.b, magnitude, number(w, 0x7f800000), "");
    LLVMValueRef result = LLVMBuildSelect(w.b, special, full, LLVMBuildBitCast(w.b, scaled, w.type, ""), "");
    return LLVMBuildBitCast(w.b, LLVMBuildOr(w.b, result, sign, ""), real, "");
}

static LLVMValueRef f32_from_f16(emitter *e, LLVMValueRef x) {
    int lanes = emit_lanes_of(x);
    if (e->features.x86 && !e->features.f16c) return f32_from_f16_bits(e, x);
    LLVMValueRef half = LLVMBuildBitCast(e->builder, x, emit_vector_type(e->f16, lanes), "");
    return LLVMBuildFPExt(e->builder, half, emit_vector_type(e->f32, lanes), "");
}

/* ---- f32 to 16-bit floats */

/* Rounds f32 bits to their upper 16 bits, to nearest even: adds just less than half of the last place, and one more if that place is odd; a
 * carry into the exponent is right. Not for NaN. */
static LLVMValueRef round_to_high(bits32 w, LLVMValueRef bits) {
    if (!w.lanes || !w.e->device->machine.masked) {
        LLVMValueRef odd = and_(w, shr(w, bits, 16), 1);
        return LLVMBuildAdd(w.b, bits, LLVMBuildAdd(w.b, odd, number(w, 0x7fff), ""), "");
    }
    LLVMValueRef odd = LLVMBuildICmp(w.b, LLVMIntNE, and_(w, bits, 0x10000), LLVMConstNull(w.type), "");
    LLVMValueRef more = LLVMBuildAdd(w.b, bits, number(w, 0x8000), "");
    return LLVMBuildSelect(w.b, odd, more, LLVMBuildAdd(w.b, bits, number(w, 0x7fff), ""), "");
}

static LLVMValueRef high_half(bits32 w, LLVMValueRef bits) {
    return LLVMBuildTrunc(w.b, shr(w, bits, 16), emit_vector_type(w.e->i16, w.lanes), "");
}

static LLVMValueRef bf16_by_integers(emitter *e, LLVMValueRef x) {
    bits32 w = bits32_of(e, emit_lanes_of(x));
    LLVMValueRef bits = LLVMBuildBitCast(w.b, x, w.type, ""), rounded = round_to_high(w, bits);
    LLVMValueRef quiet = LLVMBuildOr(w.b, bits, number(w, 0x400000), "");
    LLVMValueRef nan = LLVMBuildFCmp(w.b, LLVMRealUNO, x, x, "");
    return high_half(w, LLVMBuildSelect(w.b, nan, quiet, rounded, ""));
}

/* Converts by vcvtneps2bf16, which flushes denormals to zero; lanes outside of `keep` (NULL: none) become zero, too. */
static LLVMValueRef bf16_by_unit(emitter *e, LLVMValueRef x, LLVMValueRef keep) {
    int lanes = emit_lanes_of(x);
    const char *name = lanes == 16 ? "llvm.x86.avx512bf16.cvtneps2bf16.512" : "llvm.x86.avx512bf16.cvtneps2bf16.256";
    LLVMValueRef y = emit_call(e, name, NULL, NULL, 1, &x);
    if (keep) y = LLVMBuildSelect(e->builder, keep, y, LLVMConstNull(LLVMTypeOf(y)), "");
    return LLVMBuildBitCast(e->builder, y, emit_vector_type(e->i16, lanes), "");
}

/* Is x a result of the bf16 dot-product unit, which flushes denormals? Also if x is carried by a loop that may not run. */
static bool is_flushed(LLVMValueRef x, int depth) {
    if (LLVMIsAPHINode(x) && depth) {
        for (unsigned i = 0; i < LLVMCountIncoming(x); i++)
            if (!is_flushed(LLVMGetIncomingValue(x, i), depth - 1)) return false;
        return true;
    }
    if (LLVMIsConstant(x)) return LLVMIsNull(x);
    size_t length;
    return LLVMIsACallInst(x) && strstr(LLVMGetValueName2(LLVMGetCalledValue(x), &length), ".dpbf16ps.");
}

static void set_unlikely(emitter *e, LLVMValueRef branch) {
    LLVMMetadataRef parts[] = {LLVMMDStringInContext2(e->context, "branch_weights", 14),
                               LLVMValueAsMetadata(LLVMConstInt(e->i32, 1, false)),
                               LLVMValueAsMetadata(LLVMConstInt(e->i32, 2000, false))};
    LLVMValueRef weights = LLVMMetadataAsValue(e->context, LLVMMDNodeInContext2(e->context, parts, 3));
    LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(e->context, "prof", 4), weights);
}

/* Converts by vcvtneps2bf16. Denormal lanes, which it flushes, are rare: a branch converts them by integer arithmetic. */
static LLVMValueRef bf16_but_denormals(emitter *e, LLVMValueRef x, LLVMValueRef keep) {
    bits32 w = bits32_of(e, emit_lanes_of(x));
    bool wide = w.lanes == 16;
    LLVMBasicBlockRef before = e->level[e->top].block, mend = emit_block(e, "denormal"),
                      after = emit_block(e, "narrow");
    LLVMValueRef fast = bf16_by_unit(e, x, keep);
    LLVMValueRef arguments[] = {x, LLVMConstInt(e->i32, 0x20, false)};
    LLVMValueRef denormal = emit_call(e, wide ? "llvm.x86.avx512.fpclass.ps.512" : "llvm.x86.avx512.fpclass.ps.256",
                                      NULL, NULL, 2, arguments);
    LLVMTypeRef bits = wide ? e->i16 : e->i8;
    LLVMValueRef any =
        LLVMBuildICmp(w.b, LLVMIntNE, LLVMBuildBitCast(w.b, denormal, bits, ""), LLVMConstNull(bits), "");
    set_unlikely(e, LLVMBuildCondBr(w.b, any, mend, after));
    LLVMPositionBuilderAtEnd(w.b, mend);
    if (keep) denormal = LLVMBuildAnd(w.b, denormal, keep, "");
    LLVMValueRef exact = high_half(w, round_to_high(w, LLVMBuildBitCast(w.b, x, w.type, "")));
    LLVMValueRef from[] = {fast, LLVMBuildSelect(w.b, denormal, exact, fast, "")};
    LLVMBuildBr(w.b, after);
    e->level[e->top].block = after;
    emit_at(e, e->top);
    LLVMValueRef result = LLVMBuildPhi(w.b, LLVMTypeOf(fast), "");
    LLVMAddIncoming(result, from, (LLVMBasicBlockRef[]){before, mend}, 2);
    return result;
}

/* f32 to bf16; lanes outside of `keep` (NULL: none) become 0. */
static LLVMValueRef bf16_from_f32(emitter *e, LLVMValueRef x, LLVMValueRef keep) {
    int lanes = emit_lanes_of(x);
    if (e->features.avx512bf16 && (lanes == 16 || lanes == 8)) {
        LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
        if (is_flushed(x, 2)) return bf16_by_unit(e, x, keep);
        if (!e->weaves && here == e->level[e->top].block && !LLVMGetBasicBlockTerminator(here))
            return bf16_but_denormals(e, x, keep);
    }
    LLVMValueRef y = bf16_by_integers(e, x);
    return keep ? LLVMBuildSelect(e->builder, keep, y, LLVMConstNull(LLVMTypeOf(y)), "") : y;
}

LLVMValueRef emit_positive_bf16(emitter *e, LLVMValueRef x) {
    LLVMValueRef keep = LLVMBuildFCmp(e->builder, LLVMRealUGT, x, LLVMConstNull(LLVMTypeOf(x)), "");
    return bf16_from_f32(e, x, keep);
}

/* Normal results: rebias, add half and the odd bit, shift. Denormal results: adding 0.5 aligns the mantissa so that the
 * addition itself rounds to even at bit 0. */
static LLVMValueRef f16_from_f32_bits(emitter *e, LLVMValueRef x) {
    bits32 w = bits32_of(e, emit_lanes_of(x));
    LLVMTypeRef real = emit_vector_type(e->f32, w.lanes);
    LLVMValueRef all = LLVMBuildBitCast(w.b, x, w.type, "");
    LLVMValueRef bits = and_(w, all, 0x7fffffff), sign = shr(w, and_(w, all, 0x80000000), 16);
    LLVMValueRef odd = and_(w, shr(w, bits, 13), 1);
    LLVMValueRef normal = LLVMBuildAdd(w.b, bits, LLVMBuildAdd(w.b, odd, number(w, 0xc8000fff), ""), "");
    normal = shr(w, normal, 13);
    LLVMValueRef half = emit_real(e->f32, w.lanes, 0.5);
    LLVMValueRef sum = LLVMBuildFAdd(w.b, LLVMBuildBitCast(w.b, bits, real, ""), half, "");
    LLVMValueRef small = LLVMBuildSub(w.b, LLVMBuildBitCast(w.b, sum, w.type, ""), number(w, 0x3f000000), "");
    LLVMValueRef result =
        LLVMBuildSelect(w.b, LLVMBuildICmp(w.b, LLVMIntULT, bits, number(w, 0x38800000), ""), small, normal, "");
    LLVMValueRef infinite = LLVMBuildICmp(w.b, LLVMIntUGE, bits, number(w, 0x47800000), "");
    LLVMValueRef nan = LLVMBuildICmp(w.b, LLVMIntUGT, bits, number(w, 0x7f800000), "");
    result = LLVMBuildSelect(w.b, infinite, number(w, 0x7c00), result, "");
    result = LLVMBuildSelect(w.b, nan, number(w, 0x7e00), result, "");
    return LLVMBuildTrunc(w.b, LLVMBuildOr(w.b, result, sign, ""), emit_vector_type(e->i16, w.lanes), "");
}

static LLVMValueRef f16_from_f32(emitter *e, LLVMValueRef x) {
    int lanes = emit_lanes_of(x);
    if (e->features.x86 && !e->features.f16c) return f16_from_f32_bits(e, x);
    LLVMValueRef half = LLVMBuildFPTrunc(e->builder, x, emit_vector_type(e->f16, lanes), "");
    return LLVMBuildBitCast(e->builder, half, emit_vector_type(e->i16, lanes), "");
}

/* f64 to f32 rounded to odd: a second rounding to 16 bits is then a single one (Boldo and Melquiond, 2008). */
static LLVMValueRef f32_to_odd(emitter *e, LLVMValueRef x) {
    bits32 w = bits32_of(e, emit_lanes_of(x));
    LLVMTypeRef real = emit_vector_type(e->f32, w.lanes);
    LLVMValueRef nearest = LLVMBuildFPTrunc(w.b, x, real, "");
    LLVMValueRef back = LLVMBuildFPExt(w.b, nearest, LLVMTypeOf(x), "");
    LLVMValueRef inexact = LLVMBuildFCmp(w.b, LLVMRealONE, back, x, "");
    LLVMValueRef sizes[2] = {emit_call(e, "llvm.fabs", LLVMTypeOf(x), NULL, 1, &back),
                             emit_call(e, "llvm.fabs", LLVMTypeOf(x), NULL, 1, &x)};
    LLVMValueRef away = LLVMBuildFCmp(w.b, LLVMRealOGT, sizes[0], sizes[1], "");
    LLVMValueRef bits = LLVMBuildBitCast(w.b, nearest, w.type, "");
    LLVMValueRef below = LLVMBuildSub(w.b, bits, LLVMBuildZExt(w.b, away, w.type, ""), "");
    LLVMValueRef sticky = LLVMBuildOr(w.b, below, number(w, 1), "");
    return LLVMBuildBitCast(w.b, LLVMBuildSelect(w.b, inexact, sticky, bits, ""), real, "");
}

/* ---- between floats and integers */

/* For byte_from_f32: limits x to the range of a byte where the conversion to i32 and the narrowing to bytes do not. saturates: the narrowing
 * limits its operand. */
static LLVMValueRef clamp_for_bytes(emitter *e, bool is_signed, bool saturates, LLVMValueRef x) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef real = LLVMTypeOf(x);
    int lanes = emit_lanes_of(x);
    LLVMValueRef zero = LLVMConstNull(real), most = emit_real(e->f32, lanes, is_signed ? 127 : 255), y = x;
    if (!is_signed) y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, y, zero, ""), y, zero, ""); /* also NaN */
    if (is_signed || !saturates) y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOLT, y, most, ""), y, most, "");
    if (is_signed && !saturates) {
        LLVMValueRef least = emit_real(e->f32, lanes, -128);
        y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, y, least, ""), y, least, "");
    }
    return y;
}

/* f32 lanes to bytes, saturating, NaN as 0; rounded to nearest even, or truncated. The conversion gives the lowest i32 for values out of
 * range, which narrowing saturates to the lower end; the upper end is clamped before. NULL: there is no single instruction. */
static LLVMValueRef byte_from_f32(emitter *e, bool is_signed, bool nearest, LLVMValueRef x) {
    static const char *const names[2][3] = {
        {"llvm.x86.sse2.cvttps2dq", "llvm.x86.avx.cvtt.ps2dq.256", "llvm.x86.avx512.mask.cvttps2dq.512"},
        {"llvm.x86.sse2.cvtps2dq", "llvm.x86.avx.cvt.ps2dq.256", "llvm.x86.avx512.mask.cvtps2dq.512"}};
    LLVMBuilderRef b = e->builder;
    int lanes = emit_lanes_of(x), size = lanes == 4 ? 0 : lanes == 8 ? 1 : lanes == 16 ? 2 : -1;
    if (size < 0 || !e->features.x86 || (int)e->features.level < size) return NULL;
    LLVMTypeRef wide = emit_vector_type(e->i32, lanes);
    bool saturates = e->features.level == CPU_AVX512;
    LLVMValueRef y = clamp_for_bytes(e, is_signed, saturates, x);
    LLVMValueRef operands[] = {y, LLVMConstNull(wide), LLVMConstAllOnes(e->i16), LLVMConstInt(e->i32, 4, false)};
    y = emit_call(e, names[nearest][size], NULL, NULL, size == 2 ? 4 : 1, operands);
    if (is_signed) y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealORD, x, x, ""), y, LLVMConstNull(wide), "");
    if (saturates && is_signed) {
        LLVMValueRef low = emit_fill(e, e->i32, lanes, -128), high = emit_fill(e, e->i32, lanes, 127);
        y = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSGT, y, low, ""), y, low, "");
        y = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, y, high, ""), y, high, "");
    } else if (saturates) {
        LLVMValueRef high = emit_fill(e, e->i32, lanes, 255);
        y = LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntULT, y, high, ""), y, high, "");
    }
    return LLVMBuildTrunc(b, y, emit_vector_type(e->i8, lanes), "");
}

LLVMValueRef emit_round_cast(emitter *e, tir_dtype to, LLVMValueRef x) {
    LLVMValueRef y = bits_of(to) == 8 ? byte_from_f32(e, emit_class_of(to) == 'i', true, x) : NULL;
    return y ? y : emit_cast(e, to, DLC_F32, emit_round(e, TIR_ROUND, x));
}

/* Float to integer, saturating, NaN as 0. No lane converts a value out of range, which LLVM leaves undefined. */
static LLVMValueRef float_to_int(emitter *e, tir_dtype to, LLVMValueRef x) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef real = LLVMTypeOf(x);
    int lanes = emit_lanes_of(x), bits = bits_of(to);
    LLVMTypeRef element = lanes ? LLVMGetElementType(real) : real;
    bool is_signed = emit_class_of(to) == 'i';
    if (bits == 8 && element == e->f32) {
        LLVMValueRef y = byte_from_f32(e, is_signed, false, x);
        if (y) return y;
    }
    double low = is_signed ? -ldexp(1.0, bits - 1) : 0.0, end = ldexp(1.0, is_signed ? bits - 1 : bits);
    if (bits < (element == e->f64 ? 32 : 16) + 1) { /* the bounds themselves are exact: clamp, then convert */
        LLVMTypeRef wide = emit_vector_type(bits == 32 && !is_signed ? e->i64 : e->i32, lanes);
        LLVMValueRef zero = LLVMConstNull(real), least = emit_real(element, lanes, low);
        LLVMValueRef most = emit_real(element, lanes, end - 1.0);
        LLVMValueRef y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealORD, x, x, ""), x, zero, "");
        y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, least, y, ""), least, y, "");
        y = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOLT, most, y, ""), most, y, "");
        y = LLVMBuildFPToSI(b, y, wide, "");
        LLVMTypeRef type = emit_type(e, to, lanes);
        return wide == type ? y : LLVMBuildTrunc(b, y, type, "");
    }
    LLVMTypeRef integer = emit_type(e, to, lanes);
    LLVMTypeRef integer_element = emit_type(e, to, 0);
    LLVMValueRef least = emit_real(element, lanes, low), limit = emit_real(element, lanes, end);
    LLVMValueRef above = LLVMBuildFCmp(b, LLVMRealOGE, x, limit, ""),
                 below = LLVMBuildFCmp(b, LLVMRealOLE, x, least, "");
    LLVMValueRef inside =
        LLVMBuildAnd(b, LLVMBuildFCmp(b, LLVMRealOLT, x, limit, ""), LLVMBuildFCmp(b, LLVMRealOGT, x, least, ""), "");
    LLVMValueRef safe = LLVMBuildSelect(b, inside, x, LLVMConstNull(real), "");
    LLVMValueRef result = is_signed ? LLVMBuildFPToSI(b, safe, integer, "") : LLVMBuildFPToUI(b, safe, integer, "");
    uint64_t top = UINT64_C(1) << (bits - 1);
    LLVMValueRef highest =
        is_signed ? emit_fill(e, integer_element, lanes, (int64_t)(top - 1)) : LLVMConstAllOnes(integer);
    LLVMValueRef lowest = emit_fill(e, integer_element, lanes, is_signed ? (int64_t)top : 0);
    result = LLVMBuildSelect(b, above, highest, result, "");
    return LLVMBuildSelect(b, below, lowest, result, "");
}

/* An integer of more than 32 bits as f64, so that its conversion to a 16-bit float rounds once: the bits beyond 53 are collected in the
 * last one (sticky). */
static LLVMValueRef sticky_f64(emitter *e, bool is_signed, LLVMValueRef x) {
    LLVMBuilderRef b = e->builder;
    int lanes = emit_lanes_of(x);
    LLVMTypeRef type = LLVMTypeOf(x), real = emit_vector_type(e->f64, lanes);
    LLVMValueRef zero = LLVMConstNull(type), negative = LLVMBuildICmp(b, LLVMIntSLT, x, zero, "");
    LLVMValueRef magnitude = is_signed ? LLVMBuildSelect(b, negative, LLVMBuildNeg(b, x, ""), x, "") : x;
    LLVMValueRef low = LLVMBuildAnd(b, magnitude, emit_fill(e, e->i64, lanes, 0x7ff), "");
    LLVMValueRef any = LLVMBuildZExt(b, LLVMBuildICmp(b, LLVMIntNE, low, zero, ""), type, "");
    LLVMValueRef cut = LLVMBuildOr(b, LLVMBuildXor(b, magnitude, low, ""),
                                   LLVMBuildShl(b, any, emit_fill(e, e->i64, lanes, 11), ""), "");
    LLVMValueRef large = LLVMBuildICmp(b, LLVMIntUGE, magnitude, emit_fill(e, e->i64, lanes, INT64_C(1) << 53), "");
    LLVMValueRef result = LLVMBuildUIToFP(b, LLVMBuildSelect(b, large, cut, magnitude, ""), real, "");
    if (!is_signed) return result;
    return LLVMBuildSelect(b, negative, LLVMBuildFNeg(b, result, ""), result, "");
}

static LLVMValueRef int_to_float(emitter *e, tir_dtype to, tir_dtype from, LLVMValueRef x) {
    int lanes = emit_lanes_of(x);
    bool is_signed = emit_class_of(from) == 'i';
    if (to == DLC_F32 || to == DLC_F64) {
        LLVMTypeRef real = emit_type(e, to, lanes);
        return is_signed ? LLVMBuildSIToFP(e->builder, x, real, "") : LLVMBuildUIToFP(e->builder, x, real, "");
    }
    if (bits_of(from) <= 16) return emit_cast(e, to, DLC_F32, int_to_float(e, DLC_F32, from, x));
    if (bits_of(from) <= 32) return emit_cast(e, to, DLC_F64, int_to_float(e, DLC_F64, from, x));
    return emit_cast(e, to, DLC_F64, sticky_f64(e, is_signed, x));
}

static LLVMValueRef float_to_float(emitter *e, tir_dtype to, tir_dtype from, LLVMValueRef x) {
    LLVMTypeRef type = emit_type(e, to, emit_lanes_of(x));
    if (from == DLC_F16 || from == DLC_BF16) {
        LLVMValueRef wide = from == DLC_F16 ? f32_from_f16(e, x) : f32_from_bf16(e, x);
        return float_to_float(e, to, DLC_F32, wide);
    }
    if (to == from) return x;
    if (to == DLC_F64) return LLVMBuildFPExt(e->builder, x, type, "");
    if (to == DLC_F32) return LLVMBuildFPTrunc(e->builder, x, type, "");
    if (from == DLC_F64) x = f32_to_odd(e, x);
    return to == DLC_F16 ? f16_from_f32(e, x) : bf16_from_f32(e, x, NULL);
}

static LLVMValueRef int_to_int(emitter *e, tir_dtype to, tir_dtype from, LLVMValueRef x) {
    LLVMTypeRef type = emit_type(e, to, emit_lanes_of(x));
    int bits = from == DLC_BOOL ? 1 : bits_of(from);
    if (bits_of(to) < bits) return LLVMBuildTrunc(e->builder, x, type, "");
    if (LLVMTypeOf(x) == type) return x;
    return emit_class_of(from) == 'i' ? LLVMBuildSExt(e->builder, x, type, "") : LLVMBuildZExt(e->builder, x, type, "");
}

LLVMValueRef emit_cast(emitter *e, tir_dtype to, tir_dtype from, LLVMValueRef x) {
    char source = emit_class_of(from), result = emit_class_of(to);
    if (to == from) return x;
    if (source == 'c' || result == 'c') emit_raise(e, "no conversion of complex numbers");
    if (result == 'b') {
        if (from == DLC_F16 || from == DLC_BF16) { /* nonzero apart from the sign: also denormals and NaN */
            int lanes = emit_lanes_of(x);
            LLVMValueRef magnitude = LLVMBuildAnd(e->builder, x, emit_fill(e, e->i16, lanes, 0x7fff), "");
            return LLVMBuildICmp(e->builder, LLVMIntNE, magnitude, LLVMConstNull(LLVMTypeOf(x)), "");
        }
        LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x));
        return source == 'f' ? LLVMBuildFCmp(e->builder, LLVMRealUNE, x, zero, "")
                             : LLVMBuildICmp(e->builder, LLVMIntNE, x, zero, "");
    }
    if (source == 'f' && result == 'f') return float_to_float(e, to, from, x);
    if (source == 'f') return float_to_int(e, to, from == DLC_F64 ? x : float_to_float(e, DLC_F32, from, x));
    if (result == 'f') return int_to_float(e, to, from, x);
    return int_to_int(e, to, from, x);
}
