/* Matrix units of NVIDIA GPUs: instructions of a warp. PTX ISA, "Warp-level matrix instructions": fragments of mma.m16n8k16 and ldmatrix.
 * CUDA_UNITS: rows of a table of tir_units; of the loads that fit a copy, lowering takes the first. */
#ifndef TARGETS_CUDA_UNITS_H
#define TARGETS_CUDA_UNITS_H

#include "tir/unit.h"

/* bits of tir_machine.unit_bits */
enum { CUDA_MATRICES = 1 };

/* Bits of the lane's number, and of an element's number within its lane. Of eight rows each is in four lanes; of eight columns two are
 * neighbours in a lane. */
enum { CUDA_L0, CUDA_L1, CUDA_L2, CUDA_L3, CUDA_L4, CUDA_R0 = TIR_REGISTER_BIT, CUDA_R1, CUDA_R2 };
#define CUDA_ROW CUDA_L2, CUDA_L3, CUDA_L4
#define CUDA_COLUMN CUDA_R0, CUDA_L0, CUDA_L1

/* clang-format off */
#define CUDA_WARP(text, what) .name = text, .kind = what, .executor = TIR_BY_WARP, .lanes = 32, .machines = CUDA_MATRICES
#define CUDA_MMA(text, type)                                                                                    \
    {CUDA_WARP(text, TIR_MULTIPLY), .deviations = "assoc",                                                      \
     .places = 3, .bits = {4, 3, 4}, .var = {"i", "j", "k"},                                                    \
     .place = {{.dtype = DLC_F32, .uses = 3, .bit = {{CUDA_ROW, CUDA_R1}, {CUDA_COLUMN}}},                      \
               {.dtype = type, .uses = 5, .bit = {{CUDA_ROW, CUDA_R1}, {0}, {CUDA_COLUMN, CUDA_R2}}},           \
               {.dtype = type, .uses = 6, .bit = {{0}, {CUDA_ROW}, {CUDA_COLUMN, CUDA_R1}}}}}
#define CUDA_LOAD(text, log_matrices, r, c)                                                                     \
    {CUDA_WARP(text, TIR_LOAD_MATRICES),                                                                        \
     .places = 2, .bits = {log_matrices, 3, 3}, .var = {"q", "r", "c"},                                         \
     .place = {{.dtype = TIR_INDEX, .uses = 7, .bit = {{CUDA_R1, CUDA_R2}, {r}, {c}}},                          \
               {.dtype = TIR_INDEX, .uses = 7, .memory = true}}}

#define CUDA_UNITS                                            \
    CUDA_MMA("mma.m16n8k16.bf16", DLC_BF16),                  \
    CUDA_MMA("mma.m16n8k16.f16", DLC_F16),                    \
    CUDA_LOAD("ldmatrix.x4", 2, CUDA_ROW, CUDA_COLUMN),       \
    CUDA_LOAD("ldmatrix.x4.trans", 2, CUDA_COLUMN, CUDA_ROW), \
    CUDA_LOAD("ldmatrix.x2", 1, CUDA_ROW, CUDA_COLUMN),       \
    CUDA_LOAD("ldmatrix.x2.trans", 1, CUDA_COLUMN, CUDA_ROW), \
    CUDA_LOAD("ldmatrix.x1", 0, CUDA_ROW, CUDA_COLUMN),       \
    CUDA_LOAD("ldmatrix.x1.trans", 0, CUDA_COLUMN, CUDA_ROW)
/* clang-format on */
extern const tir_unit cuda_units[];

#endif
