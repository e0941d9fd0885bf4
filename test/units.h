/* The units of all targets in one table: for tests of kernels, schedules and regions in text that have no target. */
#ifndef TEST_UNITS_H
#define TEST_UNITS_H

#include "targets/cpu/units.h"
#include "targets/cuda/units.h"

enum { UNIT_R0 = TIR_REGISTER_BIT, UNIT_R1, UNIT_R2, UNIT_R3 };
static const tir_unit test_units[] = {
    CPU_UNITS,
    CUDA_UNITS,
    /* a unit of a core, all of whose matrices are in one thread's registers; no target has one yet */
    {.name = "tile.4x4x2",
     .kind = TIR_MULTIPLY,
     .executor = TIR_BY_CORE,
     .lanes = 1,
     .machines = 1,
     .deviations = "assoc",
     .places = 3,
     .bits = {2, 2, 1},
     .var = {"i", "j", "k"},
     .place = {{.dtype = DLC_F32, .uses = 3, .bit = {{UNIT_R2, UNIT_R3}, {UNIT_R0, UNIT_R1}}},
               {.dtype = DLC_BF16, .uses = 5, .bit = {{UNIT_R1, UNIT_R2}, {0}, {UNIT_R0}}},
               {.dtype = DLC_BF16, .uses = 6, .bit = {{0}, {UNIT_R0, UNIT_R1}, {UNIT_R2}}}}},
    {.name = NULL}};

#endif
