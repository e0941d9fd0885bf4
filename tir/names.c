/* Names for printing; see tir/names.h. */
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
