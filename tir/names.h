/* What the text forms of regions (region_text.c) and of loop IR (loop_text.c) share: names, parameters, lists of expressions. */
#ifndef TIR_NAMES_H
#define TIR_NAMES_H

#include "tir/expr.h"

/* ---- names that parse back: passes may give two things in one scope the same name, or a name that is reserved in the text; printing
 * renames them. */

/* a lib_vec */
typedef struct tir_name_list {
    const char **data;
    uint32_t count, capacity;
} tir_name_list;

/* `name` itself, or the nearest identifier that is neither reserved nor in the list. */
const char *tir_free_name(lib_arena *arena, const tir_name_list *taken, const char *name);

/* ---- printing; `tensors`: names by id */
void tir_exprs_print(lib_text *text, const tir_pool *pool, int count, const tir_expr *e, const char *const *tensors);
void tir_params_print(lib_text *text, const tir_pool *pool, uint32_t count, const tir_expr *params);

/* ---- parsing; mistakes are raised */

/* Up to `limit` index expressions until the closing token, which is consumed; returns their number. */
int tir_indices_read(tir_pool *pool, lib_lexer *lexer, const tir_names *names, const char *close, int limit,
                     tir_expr *out);
/* The name of an element type; with `index`, also of TIR_INDEX. */
tir_dtype tir_dtype_read(lib_lexer *lexer, bool index);
void tir_range_expect(lib_lexer *lexer); /* `..` */
int32_t tir_alignment_read(lib_lexer *lexer);
/* A parameter, as a new variable; its dtype as by tir_dtype_read. */
tir_expr tir_param_read(tir_pool *pool, lib_lexer *lexer, bool index);

#endif
