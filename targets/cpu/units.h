/* Units of x86-64 processors: instructions that sum a few products in each lane of a vector. CPU_UNITS: rows of a table of tir_units. */
#ifndef TARGETS_CPU_UNITS_H
#define TARGETS_CPU_UNITS_H

#include "tir/unit.h"

/* bits of tir_machine.unit_bits */
enum { CPU_BF16_DOT = 1, CPU_U8I8_DOT = 2 };

/* clang-format off */
#define CPU_DOT(text, bit, operator, left, right, sum, log_width, differing)                                                         \
    {.name = text, .kind = TIR_MULTIPLY, .executor = TIR_BY_THREAD, .lanes = 1, .machines = bit, .op = operator,                     \
     .deviations = differing, .places = 3, .bits = {0, 0, log_width},                                                                \
     .place = {{.dtype = sum}, {.dtype = left}, {.dtype = right}}}
#define CPU_UNITS                                                                                    \
    CPU_DOT("vdpbf16ps", CPU_BF16_DOT, TIR_DOT2_BF16, DLC_BF16, DLC_BF16, DLC_F32, 1, "assoc,ftz"),  \
    CPU_DOT("vpdpbusd", CPU_U8I8_DOT, TIR_DOT4_U8I8, DLC_U8, DLC_I8, DLC_I32, 2, "")
/* clang-format on */
extern const tir_unit cpu_units[];

#endif
