/* Units of x86-64 processors: each adds a few products to each lane of a vector, in one instruction (vdpbf16ps, vpdpbusd) or in several
 * (vpmaddwd and sums). CPU_UNITS: rows of a table of tir_units. */
#ifndef TARGETS_CPU_UNITS_H
#define TARGETS_CPU_UNITS_H

#include "tir/unit.h"

/* bits of tir_machine.unit_bits */
enum { CPU_BF16_DOT = 1, CPU_U8I8_DOT = 2, CPU_U8I8_WIDENED = 4 };

/* clang-format off */
#define CPU_DOT(text, bit, operator, left, right, sum, log_width, differing)                                                         \
    {.name = text, .kind = TIR_MULTIPLY, .executor = TIR_BY_THREAD, .lanes = 1, .machines = bit, .op = operator,                     \
     .deviations = differing, .places = 3, .bits = {0, 0, log_width},                                                                \
     .place = {{.dtype = sum}, {.dtype = left}, {.dtype = right}}}
#define CPU_UNITS                                                                                    \
    CPU_DOT("vdpbf16ps", CPU_BF16_DOT, TIR_DOT2_BF16, DLC_BF16, DLC_BF16, DLC_F32, 1, "assoc,ftz"),  \
    CPU_DOT("vpdpbusd", CPU_U8I8_DOT, TIR_DOT4_U8I8, DLC_U8, DLC_I8, DLC_I32, 2, ""),                \
    CPU_DOT("vpmaddwd", CPU_U8I8_WIDENED, TIR_DOT4_U8I8, DLC_U8, DLC_I8, DLC_I32, 2, "")
/* clang-format on */
extern const tir_unit cpu_units[];

/* Vector instructions of a unit: for a product, and those of them that only the multiplying ports execute; to prepare the left and the right
 * operand, a vector or a broadcast element, each for all its products. A prepared operand takes `registers`. vpmaddwd adds products of 16
 * bits: even and odd bytes, widened, are operands of their own. */
typedef struct cpu_unit_work {
    int product, multiplications, prepare[2], registers;
} cpu_unit_work;
static inline cpu_unit_work cpu_unit_work_of(const tir_machine *machine, tir_op op) {
    if (op == TIR_DOT4_U8I8 && !(machine->unit_bits & CPU_U8I8_DOT)) return (cpu_unit_work){4, 2, {2, 3}, 2};
    return (cpu_unit_work){1, 1, {0, 0}, 1};
}

#endif
