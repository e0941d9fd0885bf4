/* Text of a region and of a schedule for it, as in test/golden: parsed and lowered, with the verifier on. */
#include "tir/schedule.h"
#include "tir/lower.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char mark[] = "==== schedule\n";

static void lower(lib_arena *arena, const char *text, size_t size) {
    const char *at = memmem(text, size, mark, sizeof mark - 1);
    if (!at) return;
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_pool_init(pool, arena);
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "region", text, (size_t)(at - text));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(arena, pool, &lexer);
    tir_region_verify(arena->scope, region);
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    at += sizeof mark - 1;
    lib_text_add_bytes(&schedule.text, at, (size_t)(text + size - at));
    if (memchr(schedule.text.data, 0, schedule.text.length)) return; /* texts are strings */
    tir_machine machine = {.fma = 1, .vector_bytes = 64, .vector_registers = 32, .line = 64};
    tir_lower(arena, region, &schedule, &(tir_lower_options){.machine = &machine, .verify = true});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lib_arena arena;
    lib_scope scope;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) lower(&arena, (const char *)data, size);
    lib_arena_free(&arena);
    return 0;
}
