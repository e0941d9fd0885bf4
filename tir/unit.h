/* Units: machine instructions that a schedule may name for a reduction, one row each. A row's meaning is an operator of tir/expr.h, or,
 * without one, the collective statement of its name (tir/collective.h); the interpreter executes both. */
#ifndef TIR_UNIT_H
#define TIR_UNIT_H

#include "tir/collective.h"
#include "tir/machine.h"
#include "tir/region.h"

/* name, operator, products summed at once, dtypes of left and right operand and of the sum, bit of tir_machine.units,
 * deviations from the sum of products that the schedule must name */
#define TIR_UNIT_TABLE(X)                                                                         \
    X("vdpbf16ps", TIR_DOT2_BF16, 2, DLC_BF16, DLC_BF16, DLC_F32, TIR_UNIT_BF16_DOT, "assoc,ftz") \
    X("vpdpbusd", TIR_DOT4_U8I8, 4, DLC_U8, DLC_I8, DLC_I32, TIR_UNIT_U8I8_DOT, "")               \
    X("mma.m16n8k16.bf16", TIR_CONST, 0, DLC_BF16, DLC_BF16, DLC_F32, TIR_UNIT_MMA, "assoc")      \
    X("mma.m16n8k16.f16", TIR_CONST, 0, DLC_F16, DLC_F16, DLC_F32, TIR_UNIT_MMA, "assoc")

typedef struct tir_unit {
    const char *name;
    tir_op op;
    /* 0: a collective statement */
    int width;
    tir_dtype left, right, sum;
    int32_t machine;
    /* "assoc": order and rounding of the sums; "ftz": denormals are flushed to 0 */
    const char *deviations;
} tir_unit;

const tir_unit *tir_unit_find(const char *name); /* NULL: none */
/* The machine's (bits of tir_machine.units) first unit of one thread that implements the stage's update; NULL: none. */
const tir_unit *tir_unit_for(int32_t machine, const tir_pool *pool, const tir_stage *stage);
/* The same for units of a warp. */
const tir_unit *tir_unit_of_warp(int32_t machine, const tir_pool *pool, const tir_stage *stage);
/* Whether the stage's update is  acc + cast(left)*cast(right)  with operands of the unit's dtypes. */
bool tir_unit_match(const tir_unit *unit, const tir_pool *pool, const tir_stage *stage, tir_expr *left,
                    tir_expr *right);

#endif
