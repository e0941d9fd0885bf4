/* Internal to the text forms of regions and loop IR: names that parse back. Passes may give two things in one scope the
 * same name, or a name that is reserved in the text; printing renames them. */
#ifndef TIR_NAMES_H
#define TIR_NAMES_H

#include "tir/expr.h"

/* a lib_vec */
typedef struct tir_name_list {
    const char **data;
    uint32_t count, capacity;
} tir_name_list;

/* `name` itself, or the nearest identifier that is neither reserved nor in the list. */
const char *tir_free_name(lib_arena *arena, const tir_name_list *taken, const char *name);

#endif
