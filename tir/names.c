/* See tir/names.h. */
#include "tir/names.h"

/* Keywords of statements and expressions. */
static bool is_reserved(const char *name) {
    static const char *const words[] = {"for",   "let",    "if",     "else",       "prefetch", "comment",
                                        "nt",    "in",     "inf",    "true",       "nan",      "mod",
                                        "where", "false",  "unroll", "vec",        "thread",   "barrier",
                                        "async", "commit", "wait",   "interleave", "spill"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i]) == 0) return true;
    for (int i = 0; i < TIR_OP_COUNT; i++)
        if (strcmp(name, tir_ops[i].text) == 0) return true;
    return false;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

const char *tir_free_name(lib_arena *arena, const tir_name_list *taken, const char *name) {
    char *legal = lib_arena_string(arena, name && name[0] ? name : "v");
    for (char *c = legal; *c; c++)
        if (!is_letter(*c) && !(c > legal && *c >= '0' && *c <= '9')) *c = '_';
    char *candidate = is_reserved(legal) ? lib_arena_format(arena, "%s_", legal) : legal;
    const char *base = candidate;
    for (uint32_t n = 1, i = 0; i < taken->count; i++) {
        if (strcmp(taken->data[i], candidate) != 0) continue;
        candidate = lib_arena_format(arena, "%s_%u", base, n++);
        i = UINT32_MAX; /* restart */
    }
    return candidate;
}

/* ---- printing */

void tir_exprs_print(lib_text *text, const tir_pool *pool, int count, const tir_expr *e, const char *const *tensors) {
    for (int i = 0; i < count; i++) {
        if (i) lib_text_add(text, ", ");
        tir_print_expr(text, pool, e[i], tensors);
    }
}

void tir_params_print(lib_text *text, const tir_pool *pool, uint32_t count, const tir_expr *params) {
    lib_text_add(text, " params(");
    for (uint32_t i = 0; i < count; i++) {
        const tir_variable *v = tir_variable_of(pool, params[i]);
        lib_text_format(text, "%s%s: ", i ? ", " : "", v->name);
        if (v->dtype == TIR_INDEX)
            lib_text_format(text, "%lld..%lld", (long long)v->low, (long long)v->high);
        else
            lib_text_add(text, tir_dtype_name(v->dtype));
        if (v->multiple > 1) lib_text_format(text, " x%lld", (long long)v->multiple);
    }
    lib_text_add(text, ")");
}

/* ---- parsing */

int tir_indices_read(tir_pool *pool, lib_lexer *lexer, const tir_names *names, const char *close, int limit,
                     tir_expr *out) {
    int count = 0;
    while (!lib_lexer_accept(lexer, close)) {
        if (count) lib_lexer_expect(lexer, ",");
        if (count == limit) lib_lexer_raise(lexer, "more than %d dimensions", limit);
        out[count++] = tir_parse_expr(pool, lexer, names, TIR_INDEX);
    }
    return count;
}

tir_dtype tir_dtype_read(lib_lexer *lexer, bool index) {
    dlc_dtype dtype;
    const char *name = lib_lexer_name(lexer);
    if (index && strcmp(name, "index") == 0) return TIR_INDEX;
    if (!lib_dtype_parse(name, &dtype)) {
        lib_nearest nearest = lib_dtype_nearest(name);
        lib_lexer_raise(lexer, "unknown element type %s%s", name, lib_nearest_hint(&nearest));
    }
    return (tir_dtype)dtype;
}

void tir_range_expect(lib_lexer *lexer) {
    lib_lexer_expect(lexer, ".");
    lib_lexer_expect(lexer, ".");
}

int32_t tir_alignment_read(lib_lexer *lexer) {
    const int64_t bytes = lib_lexer_integer(lexer);
    if (bytes < 1 || bytes > 1 << 30 || (bytes & (bytes - 1)))
        lib_lexer_raise(lexer, "alignment %lld is no power of two", (long long)bytes);
    return (int32_t)bytes;
}

tir_expr tir_param_read(tir_pool *pool, lib_lexer *lexer, bool index) {
    const char *name = lib_lexer_name(lexer);
    tir_dtype dtype = TIR_INDEX;
    int64_t low = TIR_UNBOUNDED_LOW, high = TIR_UNBOUNDED_HIGH, multiple = 1;
    lib_lexer_expect(lexer, ":");
    if (lexer->kind == LIB_NAME) {
        dtype = tir_dtype_read(lexer, index);
    } else {
        low = lib_lexer_integer(lexer);
        tir_range_expect(lexer);
        high = lib_lexer_integer(lexer);
        if (low > high) lib_lexer_raise(lexer, "the range of %s is empty", name);
    }
    if (lexer->kind == LIB_NAME) { /* x8: a multiple of 8 */
        const char *digits = lexer->text + 1;
        multiple = 0;
        if (lexer->text[0] == 'x' && strlen(digits) < 10)
            for (; *digits >= '0' && *digits <= '9'; digits++) multiple = multiple * 10 + (*digits - '0');
        if (multiple < 1 || *digits) lib_lexer_raise(lexer, "expected x and a number, found %s", lexer->text);
        lib_lexer_next(lexer);
    }
    const tir_expr var = tir_var(pool, name, TIR_VAR_PARAM, dtype, low, high);
    pool->variables.data[tir_var_id(pool, var)].multiple = multiple;
    return var;
}
