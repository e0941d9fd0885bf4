/* Lines of schedules that rules write; see schedule_lines.h. */
#include "tir/schedule_lines.h"

/* A schedule of this line alone. */
static tir_schedule schedule_of(lib_arena *arena, const char *format, va_list arguments) {
    tir_schedule one;
    tir_schedule_init(&one, arena);
    lib_text_format_v(&one.text, format, arguments);
    lib_text_add(&one.text, "\n");
    return one;
}

void tir_rewrite_line(tir_schedule *schedule, tir_region *region, const char *format, va_list arguments) {
    const tir_schedule one = schedule_of(schedule->arena, format, arguments);
    tir_schedule_rewrite(region, &one, NULL);
    lib_text_add(&schedule->text, one.text.data);
}

void tir_schedule_cut(tir_schedule *schedule, size_t length) {
    schedule->text.length = length;
    if (schedule->text.data) schedule->text.data[length] = '\0';
}

tir_region *tir_try_line_v(tir_schedule *schedule, const tir_region *region, const char *format, va_list arguments) {
    const tir_schedule one = schedule_of(region->arena, format, arguments);
    tir_region *after = tir_schedule_try(region, &one);
    if (after && schedule) lib_text_add(&schedule->text, one.text.data);
    return after;
}

tir_region *tir_try_line(tir_schedule *schedule, const tir_region *region, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tir_region *after = tir_try_line_v(schedule, region, format, arguments);
    va_end(arguments);
    return after;
}

/* ---- lists of axes */

static const char *list_axes(lib_arena *arena, const tir_stage *stage, int end, uint32_t without, const char *before,
                             const char *after) {
    lib_text list;
    lib_text_init(&list, arena);
    lib_text_add(&list, "");
    for (int a = 0; a < end; a++)
        if (!(without >> a & 1)) lib_text_format(&list, "%s%s%s", before, stage->axis[a].name, after);
    return list.data;
}

const char *tir_loops_but(lib_arena *arena, const tir_stage *stage, uint32_t without) {
    return list_axes(arena, stage, stage->space + stage->reduce, without, " ", "");
}

const char *tir_dimensions_but(lib_arena *arena, const tir_stage *stage, uint32_t without) {
    return list_axes(arena, stage, stage->space, without, "", ", ");
}

const char *tir_fuse_axes(tir_schedule *schedule, const tir_stage *stage, int first, int last) {
    const char *name = stage->axis[last].name;
    for (int a = last - 1; a >= first; a--) {
        const char *fused = lib_arena_format(schedule->arena, "f%d", a);
        tir_schedule_add(schedule, "fuse %s.%s %s.%s -> %s", stage->name, stage->axis[a].name, stage->name, name,
                         fused);
        name = fused;
    }
    return name;
}
