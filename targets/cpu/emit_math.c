/* Instruction sequences whose results are those of tir/arith.h bit for bit (NaN as a class), chosen for x86 vectors:
 * LLVM's own expansions of these meanings are slower, call libraries that may not exist, or trap. */
#include "targets/cpu/emit.h"

#include <math.h>

static LLVMTypeRef element_of(LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x);
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

/* ---- minimum and maximum */

/* a < b ? a : b (a > b ? a : b): one minps (maxps), which gives b for two zeros or a NaN. */
static LLVMValueRef machine_min_max(emitter *e, bool max, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef first = LLVMBuildFCmp(e->builder, max ? LLVMRealOGT : LLVMRealOLT, a, b, "");
    return LLVMBuildSelect(e->builder, first, a, b, "");
}

static bool constant_operand(LLVMValueRef x, double *value) {
    LLVMBool loses;
    if (!LLVMIsConstant(x)) return false;
    LLVMValueRef scalar = emit_lanes_of(x) ? LLVMGetAggregateElement(x, 0) : x;
    if (!scalar || !LLVMIsAConstantFP(scalar)) return false;
    for (int i = 1; i < emit_lanes_of(x); i++)
        if (LLVMGetAggregateElement(x, (unsigned)i) != scalar) return false;
    *value = LLVMConstRealGetDouble(scalar, &loses);
    return *value == *value;
}

/* x against a constant that is no NaN. The constant is the first operand, so that minps returns a NaN in x. The machine's result is wrong
 * only for zeros of unlike sign; adding +0 corrects max(x, +0). */
static LLVMValueRef min_max_constant(emitter *e, bool max, LLVMValueRef x, LLVMValueRef constant, double value) {
    if (isinf(value) && (value < 0) == max) return x; /* initial value of a reduction */
    LLVMTypeRef element = element_of(x);
    LLVMValueRef result = machine_min_max(e, max, constant, x);
    bool negative = 1.0 / value < 0;
    if (value != 0.0 || negative == max) return result;
    if (max) return LLVMBuildFAdd(e->builder, result, emit_real(element, emit_lanes_of(x), 0.0), "");
    return result;
}

static LLVMValueRef range_instruction(emitter *e, bool max, LLVMValueRef a, LLVMValueRef b) {
    bool wide = element_of(a) == e->f64;
    LLVMTypeRef mask = wide ? e->i8 : e->i16;
    LLVMValueRef arguments[] = {a,
                                b,
                                LLVMConstInt(e->i32, max ? 5 : 4, false),
                                LLVMGetPoison(LLVMTypeOf(a)),
                                LLVMConstAllOnes(mask),
                                LLVMConstInt(e->i32, 4, false)};
    return emit_call(e, wide ? "llvm.x86.avx512.mask.range.pd.512" : "llvm.x86.avx512.mask.range.ps.512", NULL, NULL, 6,
                     arguments);
}

static LLVMValueRef min_max_vector(emitter *e, bool max, LLVMValueRef a, LLVMValueRef b) {
    LLVMBuilderRef at = e->builder;
    LLVMTypeRef type = LLVMTypeOf(a), element = element_of(a);
    int lanes = emit_lanes_of(a);
    bool wide = element == e->f64;
    if (e->features.x86 && e->features.level == CPU_AVX512 && lanes * (wide ? 8 : 4) == 64) {
        LLVMValueRef number = range_instruction(e, max, a, b); /* orders zeros, prefers a number over a NaN */
        LLVMValueRef unordered = LLVMBuildFCmp(at, LLVMRealUNO, a, b, "");
        return LLVMBuildSelect(at, unordered, emit_real(element, lanes, (double)NAN), number, "");
    }
    /* Both orders of operands differ only for zeros of unlike sign and for a NaN. OR of the two minima keeps the sign of -0, and a NaN
     * stays one whatever is OR-ed to it; AND of the maxima drops the sign, so a NaN is inserted afterwards. */
    LLVMTypeRef bits = emit_vector_type(wide ? e->i64 : e->i32, lanes);
    LLVMValueRef one = LLVMBuildBitCast(at, machine_min_max(e, max, a, b), bits, "");
    LLVMValueRef two = LLVMBuildBitCast(at, machine_min_max(e, max, b, a), bits, "");
    if (!max) return LLVMBuildBitCast(at, LLVMBuildOr(at, one, two, ""), type, "");
    LLVMValueRef both = LLVMBuildAnd(at, one, two, "");
    LLVMValueRef unordered = LLVMBuildSExt(at, LLVMBuildFCmp(at, LLVMRealUNO, a, b, ""), bits, "");
    return LLVMBuildBitCast(at, LLVMBuildOr(at, both, unordered, ""), type, "");
}

LLVMValueRef emit_min_max(emitter *e, bool max, LLVMValueRef a, LLVMValueRef b) {
    double value;
    bool left = constant_operand(a, &value);
    if ((left || constant_operand(b, &value)) && (max || value != 0.0 || 1.0 / value > 0))
        return min_max_constant(e, max, left ? b : a, left ? a : b, value);
    if (emit_lanes_of(a)) return min_max_vector(e, max, a, b);
    /* a scalar is lane 0 of an SSE register anyway */
    int lanes = element_of(a) == e->f64 ? 2 : 4;
    LLVMValueRef zero = LLVMConstInt(e->i32, 0, false), empty = LLVMConstNull(emit_vector_type(LLVMTypeOf(a), lanes));
    LLVMValueRef result = min_max_vector(e, max, LLVMBuildInsertElement(e->builder, empty, a, zero, ""),
                                         LLVMBuildInsertElement(e->builder, empty, b, zero, ""));
    return LLVMBuildExtractElement(e->builder, result, zero, "");
}

/* ---- rounding to integers */

/* Without roundps: adding and subtracting 2^23 (2^52) rounds the magnitude to even; the other modes correct that by one. The sign is
 * restored, so zeros keep theirs; larger magnitudes, infinities and NaN are unchanged. */
static LLVMValueRef round_by_adding(emitter *e, tir_op op, LLVMValueRef x) {
    LLVMBuilderRef b = e->builder;
    LLVMTypeRef type = LLVMTypeOf(x), element = element_of(x);
    int lanes = emit_lanes_of(x);
    LLVMValueRef limit = emit_real(element, lanes, element == e->f64 ? 0x1p52 : 0x1p23);
    LLVMValueRef one = emit_real(element, lanes, 1.0), zero = LLVMConstNull(type);
    LLVMValueRef magnitude = emit_call(e, "llvm.fabs", type, NULL, 1, &x);
    LLVMValueRef result = LLVMBuildFSub(b, LLVMBuildFAdd(b, magnitude, limit, ""), limit, "");
    if (op == TIR_TRUNC) {
        LLVMValueRef above = LLVMBuildFCmp(b, LLVMRealOGT, result, magnitude, "");
        result = LLVMBuildFSub(b, result, LLVMBuildSelect(b, above, one, zero, ""), "");
    }
    result = emit_call(e, "llvm.copysign", type, NULL, 2, (LLVMValueRef[]){result, x});
    if (op == TIR_FLOOR || op == TIR_CEIL) {
        LLVMValueRef past = LLVMBuildFCmp(b, op == TIR_FLOOR ? LLVMRealOGT : LLVMRealOLT, result, x, "");
        LLVMValueRef step = LLVMBuildSelect(b, past, one, zero, "");
        result = op == TIR_FLOOR ? LLVMBuildFSub(b, result, step, "") : LLVMBuildFAdd(b, result, step, "");
        result = emit_call(e, "llvm.copysign", type, NULL, 2, (LLVMValueRef[]){result, x});
    }
    LLVMValueRef small = LLVMBuildFCmp(b, LLVMRealOLT, magnitude, limit, "");
    return LLVMBuildSelect(b, small, result, x, "");
}

LLVMValueRef emit_round(emitter *e, tir_op op, LLVMValueRef x) {
    if (e->features.x86 && !e->features.sse41) return round_by_adding(e, op, x);
    const char *name = op == TIR_FLOOR   ? "llvm.floor"
                       : op == TIR_CEIL  ? "llvm.ceil"
                       : op == TIR_TRUNC ? "llvm.trunc"
                                         : "llvm.roundeven";
    return emit_call(e, name, LLVMTypeOf(x), NULL, 1, &x);
}

/* ---- integers */

static bool constant_divisor(LLVMValueRef b, int64_t *value) {
    int lanes = emit_lanes_of(b);
    LLVMValueRef scalar = !LLVMIsConstant(b) ? NULL : lanes ? LLVMGetAggregateElement(b, 0) : b;
    if (!scalar || !LLVMIsAConstantInt(scalar)) return false;
    for (int i = 1; i < lanes; i++)
        if (LLVMGetAggregateElement(b, (unsigned)i) != scalar) return false;
    *value = LLVMConstIntGetSExtValue(scalar);
    return true;
}

/* Lanes of up to 32 bits divide in floating point: f32 holds 16-bit quotients exactly, f64 32-bit ones, and a quotient
 * that is not whole is further from the next integer than half a unit in its last place. */
static LLVMValueRef divide_by_float(emitter *e, bool is_signed, LLVMValueRef a, LLVMValueRef b) {
    LLVMBuilderRef at = e->builder;
    int lanes = emit_lanes_of(a), bits = (int)LLVMGetIntTypeWidth(element_of(a));
    LLVMTypeRef type = LLVMTypeOf(a), real = emit_vector_type(bits > 16 ? e->f64 : e->f32, lanes);
    LLVMTypeRef wide = emit_vector_type(bits > 16 && !is_signed ? e->i64 : e->i32, lanes);
    LLVMValueRef x = is_signed ? LLVMBuildSIToFP(at, a, real, "") : LLVMBuildUIToFP(at, a, real, "");
    LLVMValueRef y = is_signed ? LLVMBuildSIToFP(at, b, real, "") : LLVMBuildUIToFP(at, b, real, "");
    LLVMValueRef quotient = LLVMBuildFPToSI(at, LLVMBuildFDiv(at, x, y, ""), wide, "");
    return wide == type ? quotient : LLVMBuildTrunc(at, quotient, type, "");
}

/* Truncating. No lane of `divisor` is 0, or -1 where that of `a` is MIN; `known`: it is constant. */
static LLVMValueRef safe_quotient(emitter *e, bool is_signed, bool known, LLVMValueRef a, LLVMValueRef divisor) {
    int lanes = emit_lanes_of(a), bits = (int)LLVMGetIntTypeWidth(element_of(a));
    if (lanes && !known && bits > 1 && bits <= 32 && e->features.x86) return divide_by_float(e, is_signed, a, divisor);
    return is_signed ? LLVMBuildSDiv(e->builder, a, divisor, "") : LLVMBuildUDiv(e->builder, a, divisor, "");
}

/* Truncating; x/0 = 0 and MIN/-1 = MIN: such divisors are replaced by 1 first, which gives MIN and both remainders. */
LLVMValueRef emit_int_divide(emitter *e, bool remainder, tir_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    LLVMBuilderRef at = e->builder;
    LLVMTypeRef type = LLVMTypeOf(a), element = element_of(a);
    int lanes = emit_lanes_of(a), bits = (int)LLVMGetIntTypeWidth(element);
    bool is_signed = dtype == TIR_INDEX || lib_dtypes[dtype].class_ == 'i';
    LLVMValueRef zero = LLVMConstNull(type), one = emit_fill(e, element, lanes, 1);
    int64_t constant;
    bool known = constant_divisor(b, &constant);
    if (known && constant == 0) return zero;
    LLVMValueRef divisor = b, by_zero = NULL;
    if (!known || constant == -1) {
        by_zero = LLVMBuildICmp(at, LLVMIntEQ, b, zero, "");
        LLVMValueRef unsafe = by_zero;
        if (is_signed && bits > 1) {
            LLVMValueRef lowest = emit_fill(e, element, lanes, (int64_t)(UINT64_C(1) << (bits - 1)));
            LLVMValueRef overflow = LLVMBuildAnd(at, LLVMBuildICmp(at, LLVMIntEQ, a, lowest, ""),
                                                 LLVMBuildICmp(at, LLVMIntEQ, b, LLVMConstAllOnes(type), ""), "");
            unsafe = LLVMBuildOr(at, by_zero, overflow, "");
        }
        divisor = LLVMBuildSelect(at, unsafe, one, b, "");
    }
    LLVMValueRef quotient = safe_quotient(e, is_signed, known, a, divisor);
    if (remainder) {
        LLVMValueRef rest = LLVMBuildSub(at, a, LLVMBuildMul(at, quotient, divisor, ""), "");
        return by_zero ? LLVMBuildSelect(at, by_zero, zero, rest, "") : rest;
    }
    return by_zero ? LLVMBuildSelect(at, by_zero, zero, quotient, "") : quotient;
}

LLVMValueRef emit_shift(emitter *e, tir_op op, tir_dtype dtype, LLVMValueRef a, LLVMValueRef b) {
    LLVMBuilderRef at = e->builder;
    LLVMTypeRef element = element_of(a);
    int lanes = emit_lanes_of(a), bits = (int)LLVMGetIntTypeWidth(element);
    bool is_signed = dtype == TIR_INDEX || lib_dtypes[dtype].class_ == 'i';
    if (bits == 1) return LLVMBuildAnd(at, a, LLVMBuildNot(at, b, ""), "");
    LLVMValueRef inside = LLVMBuildICmp(at, LLVMIntULT, b, emit_fill(e, element, lanes, bits), "");
    LLVMValueRef amount = LLVMBuildSelect(at, inside, b, LLVMConstNull(LLVMTypeOf(b)), "");
    LLVMValueRef shifted = op == TIR_SHL ? LLVMBuildShl(at, a, amount, "")
                           : is_signed   ? LLVMBuildAShr(at, a, amount, "")
                                         : LLVMBuildLShr(at, a, amount, "");
    return LLVMBuildSelect(at, inside, shifted, LLVMConstNull(LLVMTypeOf(a)), "");
}

/* Unsigned: u32 and u64 only. A 64-bit product is computed from 32-bit halves, since vectors have no wider multiplication. */
LLVMValueRef emit_mulhi(emitter *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMBuilderRef at = e->builder;
    int lanes = emit_lanes_of(a), bits = (int)LLVMGetIntTypeWidth(element_of(a));
    if (bits <= 32 || !lanes) {
        LLVMTypeRef wide = emit_vector_type(LLVMIntTypeInContext(e->context, (unsigned)bits * 2), lanes);
        LLVMTypeRef element = lanes ? LLVMGetElementType(wide) : wide;
        LLVMValueRef product = LLVMBuildMul(at, LLVMBuildZExt(at, a, wide, ""), LLVMBuildZExt(at, b, wide, ""), "");
        product = LLVMBuildLShr(at, product, emit_fill(e, element, lanes, bits), "");
        return LLVMBuildTrunc(at, product, LLVMTypeOf(a), "");
    }
    LLVMValueRef half = emit_fill(e, e->i64, lanes, 32), low = emit_fill(e, e->i64, lanes, UINT32_MAX);
    LLVMValueRef a0 = LLVMBuildAnd(at, a, low, ""), a1 = LLVMBuildLShr(at, a, half, "");
    LLVMValueRef b0 = LLVMBuildAnd(at, b, low, ""), b1 = LLVMBuildLShr(at, b, half, "");
    LLVMValueRef carry = LLVMBuildLShr(at, LLVMBuildMul(at, a0, b0, ""), half, "");
    LLVMValueRef cross = LLVMBuildAdd(at, LLVMBuildMul(at, a1, b0, ""), carry, "");
    LLVMValueRef other = LLVMBuildAdd(at, LLVMBuildMul(at, a0, b1, ""), LLVMBuildAnd(at, cross, low, ""), "");
    LLVMValueRef high = LLVMBuildAdd(at, LLVMBuildMul(at, a1, b1, ""), LLVMBuildLShr(at, cross, half, ""), "");
    return LLVMBuildAdd(at, high, LLVMBuildLShr(at, other, half, ""), "");
}

/* ---- libm */

LLVMValueRef emit_library(emitter *e, const char *name, int count, LLVMValueRef *operands) {
    int lanes = emit_lanes_of(operands[0]);
    if (!lanes) return emit_call(e, name, e->f64, NULL, count, operands);
    LLVMValueRef result = LLVMGetPoison(LLVMTypeOf(operands[0]));
    for (int i = 0; i < lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)i, false), scalar[3];
        for (int k = 0; k < count; k++) scalar[k] = LLVMBuildExtractElement(e->builder, operands[k], lane, "");
        LLVMValueRef one = emit_call(e, name, e->f64, NULL, count, scalar);
        result = LLVMBuildInsertElement(e->builder, result, one, lane, "");
    }
    return result;
}

/* ---- dot products of units */

static LLVMValueRef flush(emitter *e, LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef magnitude = emit_call(e, "llvm.fabs", type, NULL, 1, &x);
    LLVMValueRef tiny =
        LLVMBuildFCmp(e->builder, LLVMRealOLT, magnitude, emit_real(element_of(x), emit_lanes_of(x), 0x1p-126), "");
    LLVMValueRef zero = emit_call(e, "llvm.copysign", type, NULL, 2, (LLVMValueRef[]){LLVMConstNull(type), x});
    return LLVMBuildSelect(e->builder, tiny, zero, x, "");
}

/* Element by element, if there is no instruction. */
LLVMValueRef emit_dot(emitter *e, tir_op op, int lanes, LLVMValueRef *x) {
    LLVMValueRef sum = x[0];
    if (op == TIR_DOT2_BF16) {
        sum = flush(e, sum);
        for (int i = 1; i >= 0; i--) { /* the odd element first */
            LLVMValueRef a = flush(e, emit_cast(e, DLC_F32, DLC_BF16, x[1 + 2 * i]));
            LLVMValueRef b = flush(e, emit_cast(e, DLC_F32, DLC_BF16, x[2 + 2 * i]));
            sum = flush(e, emit_call(e, "llvm.fma", LLVMTypeOf(sum), NULL, 3, (LLVMValueRef[]){a, b, sum}));
        }
        return sum;
    }
    LLVMTypeRef wide = emit_vector_type(e->i32, lanes);
    const bool words = op == TIR_DOT2_I16;
    for (int i = 0; i < tir_ops[op].arity / 2; i++) {
        LLVMValueRef a = (words ? LLVMBuildSExt : LLVMBuildZExt)(e->builder, x[1 + 2 * i], wide, "");
        LLVMValueRef b = LLVMBuildSExt(e->builder, x[2 + 2 * i], wide, "");
        sum = LLVMBuildAdd(e->builder, sum, LLVMBuildMul(e->builder, a, b, ""), "");
    }
    return sum;
}

/* x, a scalar or a vector, widened to `lanes` lanes with zeros. */
static LLVMValueRef widen_lanes(emitter *e, LLVMValueRef x, int lanes) {
    int had = emit_lanes_of(x);
    if (had == lanes) return x;
    LLVMTypeRef element = element_of(x);
    LLVMValueRef zero = LLVMConstNull(LLVMVectorType(element, (unsigned)lanes)), index[32];
    if (!had) return LLVMBuildInsertElement(e->builder, zero, x, LLVMConstInt(e->i32, 0, false), "");
    for (int i = 0; i < lanes; i++) index[i] = LLVMConstInt(e->i32, (unsigned)(i < had ? i : had), false);
    return LLVMBuildShuffleVector(e->builder, x, LLVMConstNull(LLVMTypeOf(x)), LLVMConstVector(index, (unsigned)lanes),
                                  "");
}

static LLVMValueRef first_lanes(emitter *e, LLVMValueRef x, int lanes) {
    if (lanes == emit_lanes_of(x)) return x;
    if (!lanes) return LLVMBuildExtractElement(e->builder, x, LLVMConstInt(e->i32, 0, false), "");
    LLVMValueRef index[16];
    for (int i = 0; i < lanes; i++) index[i] = LLVMConstInt(e->i32, (unsigned)i, false);
    return LLVMBuildShuffleVector(e->builder, x, LLVMGetPoison(LLVMTypeOf(x)), LLVMConstVector(index, (unsigned)lanes),
                                  "");
}

/* acc, and the operands of each accumulator lane packed into i32 lanes; at most 16 lanes, 0 for scalars. */
LLVMValueRef emit_dot_unit(emitter *e, tir_op op, int lanes, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b) {
    static const char *const names[2][3] = {
        {"llvm.x86.avx512.vpdpbusd.128", "llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx512.vpdpbusd.512"},
        {"llvm.x86.avx512bf16.dpbf16ps.128", "llvm.x86.avx512bf16.dpbf16ps.256", "llvm.x86.avx512bf16.dpbf16ps.512"}};
    bool bf16 = op == TIR_DOT2_BF16;
    int wide = lanes <= 4 ? 4 : lanes <= 8 ? 8 : 16;
    acc = widen_lanes(e, acc, wide);
    a = widen_lanes(e, a, wide);
    b = widen_lanes(e, b, wide);
    if (bf16) {
        LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(e->context), (unsigned)wide * 2);
        a = LLVMBuildBitCast(e->builder, a, pairs, "");
        b = LLVMBuildBitCast(e->builder, b, pairs, "");
    }
    return first_lanes(e, emit_call(e, names[bf16][wide / 8], NULL, NULL, 3, (LLVMValueRef[]){acc, a, b}), lanes);
}

/* x, an i16 of two bytes or lanes of such, as i32 of two words. */
LLVMValueRef emit_widened_bytes(emitter *e, LLVMValueRef x, bool is_signed) {
    const int lanes = emit_lanes_of(x), count = lanes ? 2 * lanes : 2;
    x = LLVMBuildBitCast(e->builder, x, emit_vector_type(e->i8, count), "");
    x = (is_signed ? LLVMBuildSExt : LLVMBuildZExt)(e->builder, x, emit_vector_type(e->i16, count), "");
    return LLVMBuildBitCast(e->builder, x, emit_vector_type(e->i32, lanes), "");
}

/* acc + the sums of two products of words each; acc, at most 16 lanes, 0 for scalars; a, b: two words in each of as many i32. */
LLVMValueRef emit_dot_words(emitter *e, int lanes, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b) {
    static const char *const names[] = {"llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd",
                                        "llvm.x86.avx512.pmaddw.d.512"};
    const int wide = lanes <= 4 ? 4 : lanes <= 8 ? 8 : 16;
    LLVMTypeRef words = emit_vector_type(e->i16, 2 * wide);
    a = LLVMBuildBitCast(e->builder, widen_lanes(e, a, wide), words, "");
    b = LLVMBuildBitCast(e->builder, widen_lanes(e, b, wide), words, "");
    LLVMValueRef sums = emit_call(e, names[wide / 8], NULL, NULL, 2, (LLVMValueRef[]){a, b});
    return LLVMBuildAdd(e->builder, acc, first_lanes(e, sums, lanes), "");
}

/* vscalefps: f32, at most 16 lanes. */
LLVMValueRef emit_ldexp(emitter *e, LLVMValueRef x, LLVMValueRef n) {
    static const char *const names[] = {"llvm.x86.avx512.mask.scalef.ps.128", "llvm.x86.avx512.mask.scalef.ps.256",
                                        "llvm.x86.avx512.mask.scalef.ps.512"};
    int lanes = emit_lanes_of(x), wide = lanes <= 4 ? 4 : lanes <= 8 ? 8 : 16;
    x = widen_lanes(e, x, wide);
    n = widen_lanes(e, n, wide);
    LLVMTypeRef mask = wide == 16 ? e->i16 : e->i8;
    LLVMValueRef arguments[] = {x, n, LLVMGetPoison(LLVMTypeOf(x)), LLVMConstAllOnes(mask),
                                LLVMConstInt(e->i32, 4, false)};
    return first_lanes(e, emit_call(e, names[wide / 8], NULL, NULL, wide == 16 ? 5 : 4, arguments), lanes);
}
