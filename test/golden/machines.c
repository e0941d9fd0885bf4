/* Three levels of instructions, each with the caches of a server and with small ones; of AVX2 two processors, whose rates differ. */
#include "golden/machines.h"

#include "targets/cpu/units.h"

#define LARGE .l1 = 48 << 10, .l1_ways = 12, .l2_ways = 8, .l2 = 2 << 20, .l3 = 16 << 20
#define SMALL .l1 = 32 << 10, .l1_ways = 8, .l2_ways = 8, .l2 = 256 << 10, .l3 = 2 << 20
#define AVX512                                                                                                    \
    .target = "cpu", .name = "sapphirerapids", .vector_bytes = 64, .vector_registers = 32, .fma = 1, .masked = 1, \
    .row_pairs = 1, .line = 64, .cores = 4, .scales = 1, .unit_bits = CPU_BF16_DOT | CPU_U8I8_DOT | CPU_I16_DOT,  \
    .units = units
#define AVX2(processor)                                                                                               \
    .target = "cpu", .name = processor, .vector_bytes = 32, .vector_registers = 16, .fma = 1, .line = 64, .cores = 4, \
    .unit_bits = CPU_I16_DOT, .units = units
#define SSE2                                                                                               \
    .target = "cpu", .name = "x86-64", .vector_bytes = 16, .vector_registers = 16, .line = 64, .cores = 4, \
    .unit_bits = CPU_I16_DOT, .units = units

static const tir_unit units[] = {CPU_UNITS, {.name = NULL}};

const golden_machine golden_machines[GOLDEN_MACHINES] = {
    {'Z', 1, {AVX512, LARGE}},         {'z', 1, {AVX512, SMALL}},
    {'T', 4, {AVX512, LARGE}},         {'Y', 1, {AVX2("haswell"), LARGE}},
    {'y', 1, {AVX2("znver3"), SMALL}}, {'X', 1, {SSE2, LARGE}},
    {'x', 1, {SSE2, SMALL}},
};
