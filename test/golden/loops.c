/* test/golden/x.txt: a region, a schedule and the loop IR (or the error) that lowering made of them. test/tir/lower_test runs the same
 * files. */
#include "golden/files.h"

#include "tir/schedule.h"
#include "units.h"

static const char schedule_mark[] = "==== schedule\n";

static void lower_text(lib_arena *arena, lib_text *out, const char *input) {
    const char *mark = strstr(input, schedule_mark);
    if (!mark) lib_raise(arena->scope, DLC_PARSE_ERROR, "the file has no line %s", schedule_mark);
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_pool_init(pool, arena);
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "region", input, (size_t)(mark - input));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(arena, pool, &lexer);
    tir_region_verify(arena->scope, region);
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    lib_text_add(&schedule.text, mark + strlen(schedule_mark));
    tir_machine machine = {.fma = 1,
                           .vector_bytes = 64,
                           .vector_registers = 32,
                           .line = 64,
                           .unit_bits = CPU_BF16_DOT | CPU_U8I8_DOT | CPU_I16_DOT,
                           .units = test_units};
    tir_kernel_print(out,
                     tir_lower(arena, region, &schedule, &(tir_lower_options){.machine = &machine, .verify = true}));
}

int main(void) {
    return golden_run("golden/loops", "test/golden", "==== loops\n", lower_text);
}
