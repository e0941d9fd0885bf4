/* Layouts: verification, extents, indices and text. A dim's parts, in order of divisor, must be the digits of its
 * index: the first divisor is 1, each next one is the previous divisor times its modulus, and only the last has no
 * modulus. */
#include "tir/layout.h"

tir_layout tir_layout_identity(int rank) {
    return (tir_layout){.rank = (int16_t)rank};
}

static bool is_row_major(const tir_layout *layout) {
    if (layout->count == 0) return true;
    if (layout->count != layout->rank) return false;
    for (int i = 0; i < layout->count; i++) {
        const tir_layout_part *part = &layout->part[i];
        if (part->dim != i || part->divisor != 1 || part->modulus != 0) return false;
    }
    return true;
}

bool tir_layout_is_identity(const tir_layout *layout) {
    return layout->swizzle == 0 && is_row_major(layout);
}

bool tir_layout_equal(const tir_layout *a, const tir_layout *b) {
    if (a->rank != b->rank || a->swizzle != b->swizzle) return false;
    if (is_row_major(a) || is_row_major(b)) return is_row_major(a) && is_row_major(b);
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (a->part[i].dim != b->part[i].dim || a->part[i].divisor != b->part[i].divisor ||
            a->part[i].modulus != b->part[i].modulus)
            return false;
    return true;
}

int tir_layout_physical_rank(const tir_layout *layout) {
    return layout->count ? layout->count : layout->rank;
}

/* The part of `dim` with the smallest divisor >= at; NULL if there is none. */
static const tir_layout_part *next_digit(const tir_layout *layout, int dim, int64_t at) {
    const tir_layout_part *best = NULL;
    for (int i = 0; i < layout->count; i++) {
        const tir_layout_part *part = &layout->part[i];
        if (part->dim == dim && part->divisor >= at && (!best || part->divisor < best->divisor)) best = part;
    }
    return best;
}

/* Raises unless the parts of `dim` are the digits of its index; returns their number. */
static int verify_digits(lib_scope *scope, const tir_layout *layout, int dim, const char *what) {
    int used = 0;
    int64_t expected = 1;
    bool last = false;
    while (!last) {
        const tir_layout_part *part = next_digit(layout, dim, expected);
        if (!part || part->divisor != expected)
            lib_raise(scope, DLC_INVALID_ARGUMENT, "layout of %s: dim %d has no part with divisor %lld", what, dim,
                      (long long)expected);
        used++;
        last = part->modulus == 0;
        expected *= part->modulus;
        if (part->modulus == 1)
            lib_raise(scope, DLC_INVALID_ARGUMENT, "layout of %s: dim %d has a part with modulus 1", what, dim);
    }
    return used;
}

void tir_layout_verify(lib_scope *scope, const tir_layout *layout, const char *what) {
    if (layout->rank < 0 || layout->rank > DLC_MAX_RANK || layout->count < 0 || layout->count > TIR_MAX_PHYSICAL)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "layout of %s: rank %d with %d physical dimensions", what, layout->rank,
                  layout->count);
    if (layout->count == 0) return;
    for (int i = 0; i < layout->count; i++) {
        const tir_layout_part *part = &layout->part[i];
        if (part->dim < 0 || part->dim >= layout->rank || part->divisor < 1 || part->modulus < 0)
            lib_raise(scope, DLC_INVALID_ARGUMENT, "layout of %s: part %d is dim %d / %d %% %d", what, i, part->dim,
                      (int)part->divisor, (int)part->modulus);
    }
    int used = 0;
    for (int dim = 0; dim < layout->rank; dim++) used += verify_digits(scope, layout, dim, what);
    if (used != layout->count)
        lib_raise(scope, DLC_INVALID_ARGUMENT, "layout of %s: %d of its %d parts repeat others", what,
                  layout->count - used, layout->count);
}

static int64_t greatest_divisor(const tir_layout *layout, int dim) {
    int64_t divisor = 1;
    for (int i = 0; i < layout->count; i++)
        if (layout->part[i].dim == dim && layout->part[i].divisor > divisor) divisor = layout->part[i].divisor;
    return divisor;
}

int64_t tir_layout_padded_size(const tir_layout *layout, int dim, int64_t extent) {
    int64_t divisor = greatest_divisor(layout, dim);
    return (extent + divisor - 1) / divisor * divisor;
}

tir_expr tir_layout_padded(tir_pool *pool, const tir_layout *layout, int dim, tir_expr extent) {
    int64_t divisor = greatest_divisor(layout, dim);
    if (divisor == 1) return extent;
    tir_expr unit = tir_index(pool, divisor);
    return tir_mul(pool, tir_ceil_div(pool, extent, unit), unit);
}

void tir_layout_extents(tir_pool *pool, const tir_layout *layout, const tir_expr *logical, tir_expr *physical) {
    for (int i = 0; i < tir_layout_physical_rank(layout); i++) {
        if (layout->count == 0) {
            physical[i] = logical[i];
            continue;
        }
        const tir_layout_part *part = &layout->part[i];
        physical[i] = part->modulus ? tir_index(pool, part->modulus)
                                    : tir_ceil_div(pool, logical[part->dim], tir_index(pool, part->divisor));
    }
}

void tir_layout_indices(tir_pool *pool, const tir_layout *layout, const tir_expr *logical, tir_expr *physical) {
    for (int i = 0; i < tir_layout_physical_rank(layout); i++) {
        if (layout->count == 0) {
            physical[i] = logical[i];
            continue;
        }
        const tir_layout_part *part = &layout->part[i];
        tir_expr index = tir_div(pool, logical[part->dim], tir_index(pool, part->divisor));
        physical[i] = part->modulus ? tir_rem(pool, index, tir_index(pool, part->modulus)) : index;
    }
}

/* ---- text */

void tir_layout_print(lib_text *text, const tir_layout *layout, const char *const *dims) {
    lib_text_add(text, "(");
    for (int i = 0; i < tir_layout_physical_rank(layout); i++) {
        tir_layout_part part = {(int16_t)i, 1, 0};
        if (layout->count) part = layout->part[i];
        lib_text_format(text, "%s%s", i ? ", " : "", dims[part.dim]);
        if (part.divisor != 1) lib_text_format(text, "/%d", (int)part.divisor);
        if (part.modulus != 0) lib_text_format(text, "%%%d", (int)part.modulus);
    }
    lib_text_add(text, ")");
    if (layout->swizzle) lib_text_format(text, " swizzle %d", (int)layout->swizzle);
}

static int32_t positive(lib_lexer *lexer) {
    int64_t value = lib_lexer_integer(lexer);
    if (value < 1 || value > INT32_MAX) lib_lexer_raise(lexer, "layout: expected a number from 1 to %d", INT32_MAX);
    return (int32_t)value;
}

tir_layout tir_layout_parse(lib_lexer *lexer, int rank, const char *const *dims) {
    tir_layout layout = {.rank = (int16_t)rank};
    lib_lexer_expect(lexer, "(");
    while (!lib_lexer_is(lexer, ")")) {
        if (layout.count > 0) lib_lexer_expect(lexer, ",");
        if (layout.count == TIR_MAX_PHYSICAL) lib_lexer_raise(lexer, "layout: more than %d parts", TIR_MAX_PHYSICAL);
        int dim = 0;
        while (dim < rank && !lib_lexer_is(lexer, dims[dim])) dim++;
        if (dim == rank) lib_lexer_raise(lexer, "layout: expected the name of a dimension");
        lib_lexer_next(lexer);
        tir_layout_part part = {(int16_t)dim, 1, 0};
        if (lib_lexer_accept(lexer, "/")) part.divisor = positive(lexer);
        if (lib_lexer_accept(lexer, "%")) part.modulus = positive(lexer);
        layout.part[layout.count++] = part;
    }
    lib_lexer_expect(lexer, ")");
    if (lib_lexer_accept(lexer, "swizzle")) layout.swizzle = positive(lexer);
    if (layout.count == 0 && rank > 0) lib_lexer_raise(lexer, "layout: no parts for %d dimensions", rank);
    tir_layout_verify(lexer->arena->scope, &layout, "the text");
    if (!is_row_major(&layout)) return layout;
    layout.count = 0;
    memset(layout.part, 0, sizeof layout.part);
    return layout;
}
