/* Total, bit-exact scalar arithmetic: the meaning of every operator of TIR_OP_TABLE. Used by constant folding, the expression
 * evaluator and the interpreter; code generators must agree bit for bit (NaN as a class).
 * Values are passed as the bits of their dtype in the low end of a u64; TIR_INDEX and integers are sign- or zero-extended. f16 and
 * bf16 operations compute in f32 (or f64 if one f32 operation would round twice differently) and round to the dtype. */
#ifndef TIR_ARITH_H
#define TIR_ARITH_H

#include "tir/expr.h"

/* op: any but leaves and LOAD. operand_dtype is the dtype of the first value operand (the condition of SELECT excepted). */
uint64_t tir_arith(tir_op op, tir_dtype result, tir_dtype operand_dtype, const uint64_t *operands, int count,
                   bool has_fma);
uint64_t tir_arith_cast(tir_dtype to, tir_dtype from, uint64_t bits);
bool tir_embeds(tir_dtype from, tir_dtype to); /* Does every value of `from` exist in `to`? */
double tir_bits_to_f64(tir_dtype dtype, uint64_t bits);
uint64_t tir_bits_from_f64(tir_dtype dtype, double value); /* one rounding; ints saturate */
/* Conversion between an element of memory and bits. */
uint64_t tir_bits_load(tir_dtype dtype, const void *element);
void tir_bits_store(tir_dtype dtype, void *element, uint64_t bits);

#endif
