/* Layout of a buffer: how logical indices become physical ones. Physical dimensions are listed outermost first; each is
 * (index[dim] / divisor) % modulus, modulus 0 meaning none. `(j/48, k, j%48)` is {j,48,0} {k,1,0} {j,1,48}.
 * The extent of a logical dimension is padded to a multiple of the largest divisor among its parts; padding holds zeros. */
#ifndef TIR_LAYOUT_H
#define TIR_LAYOUT_H

#include "tir/expr.h"

#define TIR_MAX_PHYSICAL 16

typedef struct tir_layout_part {
    int16_t dim;
    /* >= 1 */
    int32_t divisor;
    /* 0: none */
    int32_t modulus;
} tir_layout_part;

typedef struct tir_layout {
    /* logical */
    int16_t rank;
    /* physical dimensions; 0: identity (row-major), parts are not read */
    int16_t count;
    /* bytes of the XOR pattern of shared memory, 0: none */
    int32_t swizzle;
    tir_layout_part part[TIR_MAX_PHYSICAL];
} tir_layout;

tir_layout tir_layout_identity(int rank);
bool tir_layout_is_identity(const tir_layout *layout);
bool tir_layout_equal(const tir_layout *a, const tir_layout *b);
/* Raises unless the parts are a bijection from the padded box: every dim covered, divisors chain by moduli. */
void tir_layout_verify(lib_scope *scope, const tir_layout *layout, const char *what);
int tir_layout_physical_rank(const tir_layout *layout);
tir_expr tir_layout_padded(tir_pool *pool, const tir_layout *layout, int dim, tir_expr extent);
int64_t tir_layout_padded_size(const tir_layout *layout, int dim, int64_t extent);
/* Physical extents / indices from logical ones; arrays of tir_layout_physical_rank(). */
void tir_layout_extents(tir_pool *pool, const tir_layout *layout, const tir_expr *logical, tir_expr *physical);
void tir_layout_indices(tir_pool *pool, const tir_layout *layout, const tir_expr *logical, tir_expr *physical);
/* "(j/48, k, j%48)" with names of the logical dimensions; parse is the inverse. */
void tir_layout_print(lib_text *text, const tir_layout *layout, const char *const *dims);
tir_layout tir_layout_parse(lib_lexer *lexer, int rank, const char *const *dims);

#endif
