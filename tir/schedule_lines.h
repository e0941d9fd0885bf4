/* What schedule rules need to write lines: rewrites that are applied at once, and lists of axes for `order` and `layout`. */
#ifndef TIR_SCHEDULE_LINES_H
#define TIR_SCHEDULE_LINES_H

#include "tir/schedule.h"

/* Appends a rewrite line to the schedule, and applies it to the region. */
void tir_rewrite_line(tir_schedule *schedule, tir_region *region, const char *format, va_list arguments);
/* Takes back what was written after the text had this length. */
void tir_schedule_cut(tir_schedule *schedule, size_t length);
/* Adds the line to the schedule if it is legal, and returns the region after it; NULL: it is refused. schedule NULL: it is only tried. */
tir_region *tir_try_line(tir_schedule *schedule, const tir_region *region, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tir_region *tir_try_line_v(tir_schedule *schedule, const tir_region *region, const char *format, va_list arguments);

/* Sets of a stage's axes, as bits. */
static inline uint32_t tir_axis_bit(int axis) { /* -1: none */
    return axis < 0 ? 0 : 1u << axis;
}
/* The names of the stage's axes except those in `without`, of all axes, each after a blank: " i j k". */
const char *tir_loops_but(lib_arena *arena, const tir_stage *stage, uint32_t without);
/* The same of its space axes, each before a comma, as `layout` lists dimensions: "i, j, ". */
const char *tir_dimensions_but(lib_arena *arena, const tir_stage *stage, uint32_t without);
/* Makes one loop of the stage's axes first..last, fused from the last one on, and returns its name. */
const char *tir_fuse_axes(tir_schedule *schedule, const tir_stage *stage, int first, int last);

#endif
