/* Facts about the machine that schedules, graph passes and lowering may read. From CPUID, sysfs or the driver, never from
 * timing, so that schedules are reproducible. A zeroed POD: hashed as bytes into kernel keys. */
#ifndef TIR_MACHINE_H
#define TIR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tir_machine {
    /* "cpu", "interp", ... */
    char target[16];
    /* processor name for people and the code generator */
    char name[64];
    /* 64, 32, 16; 0: no vectors */
    int32_t vector_bytes;
    /* 32, 16 */
    int32_t vector_registers;
    /* 1: fused multiply-add exists: muladd becomes fma */
    int32_t fma;
    /* vector FMAs per cycle */
    int32_t fma_ports;
    /* 1: masked loads and stores of every dtype are cheap */
    int32_t masked;
    /* 1: if the last vectors of two rows in registers are at most half full, it pays to keep both in one */
    int32_t row_pairs;
    /* bits of tir_machine_unit */
    int32_t units;
    /* data cache bytes; l3: the share of one core */
    int64_t l1, l2, l3;
    /* cache line bytes */
    int32_t line;
    /* associativity of l1; 0: unknown */
    int32_t l1_ways;
    /* usable by this process */
    int32_t cores;
    /* GPUs; else 0 */
    /* bytes per block, at most */
    int64_t shared_memory;
    /* threads that run in lockstep */
    int32_t warp;
    /* threads of a block, at most */
    int32_t block_threads;
    /* 32-bit registers of a thread, at most */
    int32_t thread_registers;
    /* number of multiprocessors */
    int32_t multiprocessors;
    /* 10 * major + minor: determines the instruction set */
    int32_t compute_capability;
} tir_machine;

typedef enum tir_machine_unit {
    TIR_UNIT_BF16_DOT = 1, /* vdpbf16ps */
    TIR_UNIT_U8I8_DOT = 2, /* vpdpbusd */
    TIR_UNIT_F16 = 4,      /* f16 conversion instructions */
    TIR_UNIT_SCALE = 8,    /* vscalefps: x * 2^floor(n) of f32 */
    TIR_UNIT_MMA = 16      /* mma.m16n8k16 of a warp: bf16 and f16 */
} tir_machine_unit;

#endif
