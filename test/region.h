/* A region of its text, verified: what tests of schedule rules share. */
#ifndef TEST_REGION_H
#define TEST_REGION_H

#include "tir/loop.h"
#include "tir/region.h"

#include <string.h>

static inline tir_region *region_of_text(lib_arena *arena, const char *text) {
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    lib_lexer lexer;
    tir_pool_init(pool, arena);
    lib_lexer_init(&lexer, arena, "region", text, strlen(text));
    lib_lexer_next(&lexer);
    tir_region *region = tir_region_parse(arena, pool, &lexer);
    tir_region_verify(arena->scope, region);
    return region;
}

/* The same with arguments aligned as the runtime aligns them. */
static inline tir_region *aligned_region_of_text(lib_arena *arena, const char *text) {
    tir_region *region = region_of_text(arena, text);
    for (uint32_t t = 0; t < region->tensors.count; t++)
        if (region->tensors.data[t].argument >= 0) region->tensors.data[t].alignment = TIR_BUFFER_ALIGNMENT;
    return region;
}

#endif
