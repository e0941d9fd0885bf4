/* Expressions: the one scalar language of stages, index algebra, graph dimensions and loop IR.
 *
 * A tir_expr is an id in a tir_pool; nodes are immutable and hash-consed, so equal ids mean equal expressions, and ids grow
 * from operands to users (a pass over ascending ids is a topological order). Building simplifies: constants fold by the
 * rules of tir/arith.h; index expressions (TIR_INDEX) are kept in a canonical linear form c0 + sum ci*atom and use the
 * ranges of variables. Index arithmetic is exact: the code that builds an index expression guarantees that it stays within
 * +-2^62; arithmetic of value dtypes is total and wraps, saturates or rounds as tir/arith.h defines. */
#ifndef TIR_EXPR_H
#define TIR_EXPR_H

#include "lib/lib.h"

typedef uint32_t tir_expr; /* 0: none */

/* Scalar type of an expression: a dlc_dtype, or TIR_INDEX (64-bit, overflow excluded; only for axes, extents, addresses).
 * Conversions between index and value dtypes are explicit casts. */
typedef uint8_t tir_dtype;
#define TIR_INDEX ((tir_dtype)DLC_DTYPE_COUNT)

/* Flags of operators */
#define TIR_COMMUTES 1u
#define TIR_COMPARES 2u /* result is DLC_BOOL, operands of one dtype */
#define TIR_MATH 4u     /* transcendental: expanded by tir/math before loop IR; only f64 may keep it (per-lane libm) */
#define TIR_LEAF 8u
#define TIR_DOT 16u /* acc, then factors a0, b0, a1, b1, ... of products that a unit adds to it; loop IR only */

/* id, text, operands (-1: variable), flags, meaning */
#define TIR_OP_TABLE(X)                                                                                               \
    X(TIR_CONST, "const", 0, TIR_LEAF, "a number of the node's dtype")                                                \
    X(TIR_VAR, "var", 0, TIR_LEAF, "axis, loop variable, let or kernel parameter")                                    \
    X(TIR_ACC, "acc", 0, TIR_LEAF, "state component of the enclosing reduction, before the update")                   \
    X(TIR_OTHER, "other", 0, TIR_LEAF, "state component of the second operand of a reduction's merge")                \
    X(TIR_LOAD, "load", -1, 0, "element of a tensor (stages) or buffer (loop IR); operands: indices [, guard, else]") \
    X(TIR_ADD, "add", 2, TIR_COMMUTES, "ints wrap")                                                                   \
    X(TIR_SUB, "sub", 2, 0, "ints wrap")                                                                              \
    X(TIR_MUL, "mul", 2, TIR_COMMUTES, "ints wrap")                                                                   \
    X(TIR_DIV, "div", 2, 0, "float: IEEE; int: truncates, x/0 = 0, MIN/-1 wraps; index: floor, divisor > 0")          \
    X(TIR_REM, "rem", 2, 0, "int: x - y*trunc(x/y), x rem 0 = 0; index: x mod y in [0, y); float: fmod")              \
    X(TIR_MIN, "min", 2, TIR_COMMUTES, "float: NaN if either is NaN; min(-0,+0) = -0")                                \
    X(TIR_MAX, "max", 2, TIR_COMMUTES, "float: NaN if either is NaN; max(-0,+0) = +0")                                \
    X(TIR_POW, "pow", 2, TIR_MATH, "C99 pow; int: wraps, negative exponent gives 1/x truncated (0 for |x| > 1)")      \
    X(TIR_ATAN2, "atan2", 2, TIR_MATH, "C99 atan2")                                                                   \
    X(TIR_AND, "and", 2, TIR_COMMUTES, "bitwise; bool: logical")                                                      \
    X(TIR_OR, "or", 2, TIR_COMMUTES, "bitwise; bool: logical")                                                        \
    X(TIR_XOR, "xor", 2, TIR_COMMUTES, "bitwise; bool: logical")                                                      \
    X(TIR_SHL, "shl", 2, 0, "amount >= width (as unsigned) gives 0")                                                  \
    X(TIR_SHR, "shr", 2, 0, "arithmetic for signed, amount >= width gives 0")                                         \
    X(TIR_MULHI, "mulhi", 2, TIR_COMMUTES, "high half of the double-width product, u32 and u64")                      \
    X(TIR_EQ, "eq", 2, TIR_COMMUTES | TIR_COMPARES, "IEEE: NaN equals nothing")                                       \
    X(TIR_NE, "ne", 2, TIR_COMMUTES | TIR_COMPARES, "IEEE: NaN differs from all")                                     \
    X(TIR_LT, "lt", 2, TIR_COMPARES, "IEEE ordered")                                                                  \
    X(TIR_LE, "le", 2, TIR_COMPARES, "IEEE ordered")                                                                  \
    X(TIR_NEG, "neg", 1, 0, "float: sign flip; int wraps")                                                            \
    X(TIR_ABS, "abs", 1, 0, "int wraps at MIN")                                                                       \
    X(TIR_NOT, "not", 1, 0, "bitwise; bool: logical")                                                                 \
    X(TIR_SQRT, "sqrt", 1, 0, "correctly rounded")                                                                    \
    X(TIR_FLOOR, "floor", 1, 0, "")                                                                                   \
    X(TIR_CEIL, "ceil", 1, 0, "")                                                                                     \
    X(TIR_TRUNC, "trunc", 1, 0, "")                                                                                   \
    X(TIR_ROUND, "round", 1, 0, "ties to even")                                                                       \
    X(TIR_EXP, "exp", 1, TIR_MATH, "")                                                                                \
    X(TIR_EXP2, "exp2", 1, TIR_MATH, "")                                                                              \
    X(TIR_EXP10, "exp10", 1, TIR_MATH, "")                                                                            \
    X(TIR_EXPM1, "expm1", 1, TIR_MATH, "")                                                                            \
    X(TIR_LOG, "log", 1, TIR_MATH, "")                                                                                \
    X(TIR_LOG1P, "log1p", 1, TIR_MATH, "")                                                                            \
    X(TIR_SIN, "sin", 1, TIR_MATH, "")                                                                                \
    X(TIR_COS, "cos", 1, TIR_MATH, "")                                                                                \
    X(TIR_TAN, "tan", 1, TIR_MATH, "")                                                                                \
    X(TIR_ASIN, "asin", 1, TIR_MATH, "")                                                                              \
    X(TIR_ACOS, "acos", 1, TIR_MATH, "")                                                                              \
    X(TIR_ATAN, "atan", 1, TIR_MATH, "")                                                                              \
    X(TIR_SINH, "sinh", 1, TIR_MATH, "")                                                                              \
    X(TIR_COSH, "cosh", 1, TIR_MATH, "")                                                                              \
    X(TIR_ASINH, "asinh", 1, TIR_MATH, "")                                                                            \
    X(TIR_ACOSH, "acosh", 1, TIR_MATH, "")                                                                            \
    X(TIR_ATANH, "atanh", 1, TIR_MATH, "")                                                                            \
    X(TIR_CBRT, "cbrt", 1, TIR_MATH, "")                                                                              \
    X(TIR_TANH, "tanh", 1, TIR_MATH, "")                                                                              \
    X(TIR_ERF, "erf", 1, TIR_MATH, "")                                                                                \
    X(TIR_ERFC, "erfc", 1, TIR_MATH, "")                                                                              \
    X(TIR_LOGISTIC, "logistic", 1, TIR_MATH, "1/(1 + exp(-x))")                                                       \
    X(TIR_NORMAL_CDF, "normal_cdf", 1, TIR_MATH, "(1 + erf(x/sqrt(2)))/2; f32: to 3 units of 1/2")                    \
    X(TIR_NORMAL_TAIL, "normal_tail", 1, TIR_MATH, "the same, accurate where it is small, too")                       \
    X(TIR_SILU, "silu", 1, TIR_MATH, "x/(1 + exp(-x))")                                                               \
    X(TIR_SELECT, "select", 3, 0, "cond ? a : b; both are evaluated, neither can trap")                               \
    X(TIR_FMA, "fma", 3, 0, "one rounding; loop IR only")                                                             \
    X(TIR_LDEXP, "ldexp", 2, 0, "x * 2^floor(n), rounded once; loop IR only")                                         \
    X(TIR_MULADD, "muladd", 3, 0, "a*b + c; becomes fma or mul and add at lowering, by machine facts")                \
    X(TIR_CAST, "cast", 1, 0,                                                                                         \
      "value conversion: float to int saturates, NaN gives 0; int to int wraps; bool is x != 0")                      \
    X(TIR_BITCAST, "bitcast", 1, 0, "same bits, dtypes of equal width")                                               \
    X(TIR_DOT2_BF16, "dot2_bf16", 5, TIR_DOT, "a0*b0 + (a1*b1 + acc), all fused, denormals are 0")                    \
    X(TIR_DOT2_I16, "dot2_i16", 5, TIR_DOT, "acc + a0*b0 + a1*b1, i32 wraps")                                         \
    X(TIR_DOT4_U8I8, "dot4_u8i8", 9, TIR_DOT, "acc + a0*b0 + ... + a3*b3, i32 wraps")                                 \
    X(TIR_PICK, "pick", -1, 0, "position, values: the value at the position, an index; elsewhere the last; stages only")

typedef enum tir_op {
#define X(id, text, arity, flags, meaning) id,
    TIR_OP_TABLE(X)
#undef X
        TIR_OP_COUNT
} tir_op;

typedef struct tir_op_info {
    const char *text;
    int8_t arity;
    uint8_t flags;
} tir_op_info;
extern const tir_op_info tir_ops[TIR_OP_COUNT];

typedef struct tir_node {
    uint8_t op;
    tir_dtype dtype;
    /* LOAD: the last two operands are the guard (bool) and the value if the guard is false */
    bool guarded;
    /* operands */
    uint8_t count;
    /* operands start at pool->operands[first] */
    uint32_t first;
    /* CONST: the value's bits, low end (index: int64); VAR: variable id; ACC, OTHER: component; LOAD: tensor or buffer id */
    uint64_t bits;
} tir_node;

typedef enum tir_var_kind {
    TIR_VAR_AXIS, /* of a stage */
    TIR_VAR_LOOP, /* of a loop in loop IR */
    TIR_VAR_LET,  /* bound by a let in loop IR; any dtype */
    TIR_VAR_PARAM /* run-time parameter of a kernel; a symbol in graph dimensions */
} tir_var_kind;

typedef struct tir_variable {
    const char *name;
    tir_var_kind kind;
    tir_dtype dtype;
    /* inclusive range of an index variable; conservative */
    int64_t low, high;
    /* the value is a multiple of this; >= 1 */
    int64_t multiple;
} tir_variable;

typedef struct tir_interval {
    /* inclusive; TIR_UNBOUNDED_LOW / _HIGH when nothing is known */
    int64_t low, high;
} tir_interval;
#define TIR_UNBOUNDED_HIGH (INT64_C(1) << 62)
#define TIR_UNBOUNDED_LOW (-TIR_UNBOUNDED_HIGH)

/* Facts of an index node, computed when it is made. Facts of a variable are read from the variable: its range and
 * multiple may be narrowed until the first expression that uses it is made. */
typedef struct tir_facts {
    tir_interval range;
    /* 0: the value is 0 */
    int64_t multiple;
} tir_facts;

/* A cached result of access.c: strides of a tensor's elements along a stage's axes. `hash`: one half of the key's hash. */
typedef struct tir_known_access {
    uint64_t hash;
    const int64_t *stride;
} tir_known_access;

typedef struct tir_pool {
    lib_arena *arena;
    /* [0] is unused */
    lib_vec(tir_node) nodes;
    lib_vec(tir_expr) operands;
    lib_vec(tir_variable) variables;
    /* by node */
    lib_vec(tir_facts) facts;
    lib_map map;
    lib_vec(tir_known_access) accesses;
    /* into `accesses`, keyed by the other half of the hash */
    lib_map access_map;
    /* reused by rewriting; NULL while in use */
    uint32_t *scratch;
    uint32_t scratch_size;
} tir_pool;

void tir_pool_init(tir_pool *pool, lib_arena *arena);
/* A pool with the same ids, to which more can be added; `pool` may be used by other threads meanwhile, and must live as long. */
tir_pool *tir_pool_copy(lib_arena *arena, const tir_pool *pool);

static inline const tir_node *tir_get(const tir_pool *pool, tir_expr e) {
    return &pool->nodes.data[e];
}
static inline tir_op tir_op_of(const tir_pool *pool, tir_expr e) {
    return (tir_op)pool->nodes.data[e].op;
}
static inline tir_dtype tir_dtype_of(const tir_pool *pool, tir_expr e) {
    return pool->nodes.data[e].dtype;
}
static inline tir_expr tir_operand(const tir_pool *pool, tir_expr e, int i) {
    return pool->operands.data[pool->nodes.data[e].first + (uint32_t)i];
}
/* The number of the first operand that is a value: in a select the condition precedes the values, in a pick the position. */
static inline int tir_first_value(tir_op op) {
    return op == TIR_SELECT || op == TIR_PICK;
}
const char *tir_dtype_name(tir_dtype dtype); /* "index" for TIR_INDEX */

/* ---- leaves */
tir_expr tir_int(tir_pool *pool, tir_dtype dtype, int64_t value);  /* any dtype; converted as by cast */
tir_expr tir_float(tir_pool *pool, tir_dtype dtype, double value); /* any dtype; rounded once */
tir_expr tir_bits(tir_pool *pool, tir_dtype dtype, uint64_t bits);
static inline tir_expr tir_index(tir_pool *pool, int64_t value) {
    return tir_int(pool, TIR_INDEX, value);
}
tir_expr tir_bool(tir_pool *pool, bool value);
tir_expr tir_lowest(tir_pool *pool, tir_dtype dtype);  /* identity of max: -inf, MIN, false */
tir_expr tir_highest(tir_pool *pool, tir_dtype dtype); /* identity of min */
/* A new variable, different from all others even if its name is not; index variables: of low..high inclusive (TIR_UNBOUNDED_LOW,
 * TIR_UNBOUNDED_HIGH: unknown). */
tir_expr tir_var(tir_pool *pool, const char *name, tir_var_kind kind, tir_dtype dtype, int64_t low, int64_t high);
tir_expr tir_acc(tir_pool *pool, tir_dtype dtype, int component);
tir_expr tir_other(tir_pool *pool, tir_dtype dtype, int component);

/* ---- operators; operand dtypes must agree (else DLC_INTERNAL is raised) */
tir_expr tir_make(tir_pool *pool, tir_op op, tir_dtype dtype, int count,
                  const tir_expr *operands); /* any op but leaves, LOAD, PICK */
tir_expr tir_unary(tir_pool *pool, tir_op op, tir_expr a);
tir_expr tir_binary(tir_pool *pool, tir_op op, tir_expr a, tir_expr b); /* comparisons give bool */
tir_expr tir_select(tir_pool *pool, tir_expr condition, tir_expr a, tir_expr b);
/* values[position] of `count` >= 1 values of one dtype other than TIR_INDEX; if there is none, the last one. Values that an axis enumerates
 * (the results of a small transform) are written so: a schedule that unrolls the axis leaves each value alone. */
tir_expr tir_pick(tir_pool *pool, tir_expr position, int count, const tir_expr *values);
/* The same node, a PICK, as a chain of selects. */
tir_expr tir_pick_by_selects(tir_pool *pool, tir_expr pick);
tir_expr tir_muladd(tir_pool *pool, tir_expr a, tir_expr b, tir_expr c);
tir_expr tir_cast(tir_pool *pool, tir_dtype to, tir_expr a); /* to the same dtype: a itself */
tir_expr tir_bitcast(tir_pool *pool, tir_dtype to, tir_expr a);
/* guard 0: unguarded (the alternative value is ignored) */
tir_expr tir_load(tir_pool *pool, uint32_t tensor, tir_dtype dtype, int rank, const tir_expr *index, tir_expr guard,
                  tir_expr other);
static inline tir_expr tir_add(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_ADD, a, b);
}
static inline tir_expr tir_sub(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_SUB, a, b);
}
static inline tir_expr tir_mul(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_MUL, a, b);
}
static inline tir_expr tir_div(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_DIV, a, b);
}
static inline tir_expr tir_rem(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_REM, a, b);
}
static inline tir_expr tir_min(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_MIN, a, b);
}
static inline tir_expr tir_max(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_MAX, a, b);
}
static inline tir_expr tir_and(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_AND, a, b);
}
static inline tir_expr tir_or(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_OR, a, b);
}
static inline tir_expr tir_lt(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_LT, a, b);
}
static inline tir_expr tir_le(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_LE, a, b);
}
static inline tir_expr tir_eq(tir_pool *p, tir_expr a, tir_expr b) {
    return tir_binary(p, TIR_EQ, a, b);
}
tir_expr tir_ceil_div(tir_pool *pool, tir_expr a, tir_expr b); /* index */

/* ---- queries */
bool tir_is_const(const tir_pool *pool, tir_expr e, int64_t *value); /* CONST of an integer, index or bool dtype */
static inline bool tir_is_number(const tir_pool *pool, tir_expr e, int64_t number) {
    int64_t value;
    return tir_is_const(pool, e, &value) && value == number;
}
bool tir_is_copy(const tir_pool *pool, tir_expr e);  /* a load that is zero, and not -0, where its guard is false */
bool tir_is_true(const tir_pool *pool, tir_expr e);  /* constant true */
bool tir_is_false(const tir_pool *pool, tir_expr e); /* constant false */
uint32_t tir_var_id(const tir_pool *pool, tir_expr var);
static inline const tir_variable *tir_variable_of(const tir_pool *pool, tir_expr var) {
    return &pool->variables.data[tir_var_id(pool, var)];
}

tir_interval tir_range(tir_pool *pool, tir_expr index);  /* from the variables' ranges; exact for affine boxes */
int64_t tir_multiple_of(tir_pool *pool, tir_expr index); /* largest known divisor; 0 for the constant 0 */
int64_t tir_gcd(int64_t a, int64_t b);                   /* of magnitudes; gcd(0, x) = |x| */
int64_t tir_floor_div(int64_t a, int64_t positive);
typedef enum tir_truth { TIR_NO, TIR_YES, TIR_UNKNOWN } tir_truth;
/* A lower bound of the index expression, often greater than tir_range's: found as by tir_prove. Makes no nodes. */
int64_t tir_least(tir_pool *pool, tir_expr index);
tir_truth tir_prove(tir_pool *pool, tir_expr condition);     /* YES: for all values of the variables; NO: for none */
tir_truth tir_equal(tir_pool *pool, tir_expr a, tir_expr b); /* the same of a == b, two index expressions */

/* index = constant + sum coefficient[i]*atom[i]; atoms are not sums or constant multiples; at most `limit` terms, -1 if more.
 * Every index expression has this form with integer coefficients. */
typedef struct tir_term {
    tir_expr atom;
    int64_t coefficient;
} tir_term;
int tir_terms(const tir_pool *pool, tir_expr index, tir_term *terms, int limit, int64_t *constant);
int64_t tir_coefficient(const tir_pool *pool, tir_expr index, tir_expr var); /* 0 also if it is not linear in var */
bool tir_uses(const tir_pool *pool, tir_expr e, tir_expr var);

/* ---- rewriting: replaces sub-expressions bottom-up, re-simplifying. `from[i]` is any expression (mostly variables). */
tir_expr tir_substitute(tir_pool *pool, tir_expr e, int count, const tir_expr *from, const tir_expr *to);
/* General form: `visit` gets each node with its operands already rewritten (as `rebuilt`; equal to e if nothing below
 * changed) and returns its replacement or `rebuilt`. Shared nodes are visited once. */
typedef tir_expr (*tir_visit)(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt);
tir_expr tir_rewrite(tir_pool *pool, tir_expr e, tir_visit visit, void *user);
/* Copies an expression of another pool; variables map by `variables[id]` (0: an equal variable is created and recorded). */
tir_expr tir_import(tir_pool *pool, const tir_pool *from, tir_expr e, tir_expr *variables);

/* ---- evaluation: values as bits of their dtype in the low end of a u64 (index: int64). Loads call the callback. */
typedef struct tir_evaluator {
    /* by variable id */
    const uint64_t *variables;
    const uint64_t *acc, *other;
    uint64_t (*load)(void *user, const tir_node *node, const int64_t *index);
    void *user;
    /* how MULADD rounds */
    bool has_fma;
} tir_evaluator;
uint64_t tir_evaluate(const tir_pool *pool, tir_expr e, const tir_evaluator *evaluator);

/* ---- text:  3, i*4 + j, floor-div i/8, mod i%8, x[i, k], max(a, b), select(c, a, b), cast.f32(x), 1.5:f32, a < b.
 * Names: variables by name; tensors through `names[id]`. */
void tir_print_expr(lib_text *text, const tir_pool *pool, tir_expr e, const char *const *tensor_names);
/* For messages: an index expression's text up to about this many characters, then "...". */
#define TIR_DESCRIBED 120
void tir_describe_expr(lib_text *text, const tir_pool *pool, tir_expr e);
/* Parses; names are looked up through the callback: variables and tensors. Dtypes are inferred from operands; literals take
 * the other operand's dtype or their :suffix. */
typedef struct tir_names {
    /* 0: unknown */
    tir_expr (*variable)(void *user, const char *name);
    bool (*tensor)(void *user, const char *name, uint32_t *id, tir_dtype *dtype, int *rank);
    void *user;
    /* Extensions of a notation (graph/notation.c); each may be NULL. */
    /* further names of element types, in casts */
    bool (*dtype)(void *user, const char *name, tir_dtype *dtype);
    /* a name that is a literal */
    bool (*number)(void *user, const char *name, bool *fraction, int64_t *integer, double *number);
    /* Called after "name(": parses up to and including ")"; 0: not a function of the notation. */
    tir_expr (*call)(void *user, lib_lexer *lexer, const char *name, tir_dtype want);
    /* leading: stores the indices that a leading `...` stands for and returns their number. load: makes loads, instead of tir_load. */
    int (*leading)(void *user, lib_lexer *lexer, uint32_t tensor, tir_expr *index);
    tir_expr (*load)(void *user, uint32_t tensor, int rank, const tir_expr *index, tir_expr guard, tir_expr other);
} tir_names;
#define TIR_ANY_DTYPE ((tir_dtype)UINT8_MAX) /* as `expected`: a literal is an index, or f32 with a fraction */
tir_expr tir_parse_expr(tir_pool *pool, lib_lexer *lexer, const tir_names *names, tir_dtype expected);

#endif
