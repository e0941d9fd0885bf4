/* Facts of index expressions: intervals and multiples of nodes (computed once, when a node is made), and proofs
 * of conditions by bounding the difference of the two sides. */
#include "tir/expr.h"
#include "tir/simplify.h"

__extension__ typedef __int128 int128;

/* ---- intervals. Ends at +-2^62 are infinite and stay so. */

static const tir_interval unbounded = {TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH};

static int64_t clamp(int128 value) {
    if (value < TIR_UNBOUNDED_LOW) return TIR_UNBOUNDED_LOW;
    if (value > TIR_UNBOUNDED_HIGH) return TIR_UNBOUNDED_HIGH;
    return (int64_t)value;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

int64_t tir_gcd(int64_t a, int64_t b) {
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return (int64_t)(x >> 63 ? x >> 1 : x); /* only gcd(MIN, MIN) needs 64 bits */
}

int64_t tir_floor_div(int64_t a, int64_t positive) {
    return a / positive - (a % positive < 0);
}

tir_interval tir_interval_add(tir_interval a, tir_interval b) {
    tir_interval sum = unbounded;
    if (a.low > TIR_UNBOUNDED_LOW && b.low > TIR_UNBOUNDED_LOW) sum.low = clamp((int128)a.low + b.low);
    if (a.high < TIR_UNBOUNDED_HIGH && b.high < TIR_UNBOUNDED_HIGH) sum.high = clamp((int128)a.high + b.high);
    return sum;
}

static tir_interval multiply(tir_interval a, tir_interval b) {
    int128 corner[4] = {(int128)a.low * b.low, (int128)a.low * b.high, (int128)a.high * b.low, (int128)a.high * b.high};
    int128 low = corner[0], high = corner[0];
    for (int i = 1; i < 4; i++) {
        if (corner[i] < low) low = corner[i];
        if (corner[i] > high) high = corner[i];
    }
    return (tir_interval){clamp(low), clamp(high)};
}

tir_interval tir_interval_scale(tir_interval a, int64_t scale) {
    return multiply(a, (tir_interval){scale, scale});
}

static int64_t divide_end(int64_t a, int64_t b) {
    return a <= TIR_UNBOUNDED_LOW || a >= TIR_UNBOUNDED_HIGH ? a : tir_floor_div(a, b);
}

/* Floor division by a divisor known to be at least 1. */
static tir_interval divide(tir_interval a, tir_interval b) {
    b.low = larger(b.low, 1);
    b.high = larger(b.high, b.low);
    tir_interval quotient;
    quotient.low = divide_end(a.low, a.low < 0 ? b.low : b.high);
    quotient.high = divide_end(a.high, a.high < 0 ? b.high : b.low);
    if (a.low >= 0 && b.high >= TIR_UNBOUNDED_HIGH) quotient.low = 0;
    return quotient;
}

static tir_interval remainder_of(tir_interval a, tir_interval b, int64_t multiple) {
    tir_interval rest = {0, b.high >= TIR_UNBOUNDED_HIGH ? TIR_UNBOUNDED_HIGH : larger(b.high - 1, 0)};
    if (a.low >= 0) rest.high = smaller(rest.high, a.high);
    if (multiple > 1 && rest.high < TIR_UNBOUNDED_HIGH) rest.high -= rest.high % multiple;
    return rest;
}

static tir_interval of_dtype(tir_dtype dtype) {
    if (dtype == DLC_BOOL) return (tir_interval){0, 1};
    if (dtype >= DLC_DTYPE_COUNT || !lib_dtype_is_integer((dlc_dtype)dtype) || lib_dtypes[dtype].bits == 64)
        return unbounded;
    int64_t span = INT64_C(1) << lib_dtypes[dtype].bits;
    if (lib_dtypes[dtype].class_ == 'u') return (tir_interval){0, span - 1};
    return (tir_interval){-span / 2, span / 2 - 1};
}

/* ---- facts of nodes */

tir_facts tir_facts_of(const tir_pool *pool, tir_expr e) {
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_VAR || node->dtype != TIR_INDEX) return pool->facts.data[e];
    const tir_variable *variable = &pool->variables.data[node->bits];
    return (tir_facts){{variable->low, variable->high}, variable->multiple};
}

static tir_facts of_product(tir_facts a, tir_facts b, bool square) {
    tir_facts facts = {multiply(a.range, b.range), 1};
    if (square && facts.range.low < 0) facts.range.low = 0;
    if (__builtin_mul_overflow(a.multiple, b.multiple, &facts.multiple))
        facts.multiple = larger(a.multiple, b.multiple);
    return facts;
}

static tir_facts of_absolute(tir_facts a) {
    tir_interval mirror = tir_interval_scale(a.range, -1);
    int64_t low = larger(0, larger(a.range.low, mirror.low));
    return (tir_facts){{low, larger(a.range.high, mirror.high)}, a.multiple};
}

tir_facts tir_facts_compute(const tir_pool *pool, const tir_node *node, const tir_expr *operands) {
    tir_facts facts = {unbounded, 1};
    if (node->dtype != TIR_INDEX) return facts;
    tir_facts a = facts, b = facts;
    if (node->count > 0) a = tir_facts_of(pool, operands[node->op == TIR_SELECT ? 1 : 0]);
    if (node->count > 1) b = tir_facts_of(pool, operands[node->op == TIR_SELECT ? 2 : 1]);
    int64_t common = tir_gcd(a.multiple, b.multiple);
    switch (node->op) {
    case TIR_CONST:
        return (tir_facts){{clamp((int64_t)node->bits), clamp((int64_t)node->bits)}, tir_gcd((int64_t)node->bits, 0)};
    case TIR_ADD: return (tir_facts){tir_interval_add(a.range, b.range), common};
    case TIR_MUL: return of_product(a, b, operands[0] == operands[1]);
    case TIR_DIV: return (tir_facts){divide(a.range, b.range), 1};
    case TIR_REM: return (tir_facts){remainder_of(a.range, b.range, common), common};
    case TIR_MIN: return (tir_facts){{smaller(a.range.low, b.range.low), smaller(a.range.high, b.range.high)}, common};
    case TIR_MAX: return (tir_facts){{larger(a.range.low, b.range.low), larger(a.range.high, b.range.high)}, common};
    case TIR_SELECT:
        return (tir_facts){{smaller(a.range.low, b.range.low), larger(a.range.high, b.range.high)}, common};
    case TIR_ABS: return of_absolute(a);
    case TIR_CAST: facts.range = of_dtype(tir_dtype_of(pool, operands[0])); return facts;
    default: return facts;
    }
}

tir_interval tir_range(tir_pool *pool, tir_expr index) {
    return tir_facts_of(pool, index).range;
}

int64_t tir_multiple_of(tir_pool *pool, tir_expr index) {
    /* a sum's own facts hold unless a variable was narrowed since; sums are short: recompute from the terms */
    tir_sum sum;
    tir_sum_init(&sum, 0);
    tir_sum_add(pool, &sum, index, 1);
    int64_t multiple = tir_gcd(sum.constant, 0);
    for (int i = 0; i < sum.count; i++) {
        int64_t of_term, of_atom = tir_facts_of(pool, sum.terms[i].atom).multiple;
        if (__builtin_mul_overflow(sum.terms[i].coefficient, of_atom, &of_term)) of_term = of_atom;
        multiple = tir_gcd(multiple, of_term);
    }
    return multiple;
}

/* ---- proofs: an upper bound of a sum, the best of its interval and of the sums in which a bound replaces one atom
 */

#define PROOF_DEPTH 5
#define PROOF_STEPS 200
/* Coefficients and divisors of more bits are not used: products of two must not overflow, because a proof never
 * raises. */
#define PROOF_BITS 30
#define REMAINDER_BITS 20

typedef struct proof {
    tir_pool *pool;
    /* remaining */
    int steps;
} proof;

static int64_t upper_bound(proof *p, const tir_sum *sum, int depth);

static bool within(int64_t value, int bits) {
    return value > -(INT64_C(1) << bits) && value < INT64_C(1) << bits;
}

static bool sum_within(const tir_sum *sum, int bits) {
    bool small = within(sum->constant, bits + 1);
    for (int i = 0; i < sum->count; i++) small &= within(sum->terms[i].coefficient, bits);
    return small;
}

static bool expression_within(tir_pool *pool, tir_expr e, int bits) {
    tir_sum sum;
    tir_sum_init(&sum, 0);
    tir_sum_add(pool, &sum, e, 1);
    return sum_within(&sum, bits);
}

/* Upper bound of scale*(sum without term `at`) + factor*by + plus. */
static int64_t bound_with(proof *p, const tir_sum *sum, int at, int64_t scale, tir_expr by, int64_t factor,
                          int64_t plus, int depth) {
    if (!expression_within(p->pool, by, PROOF_BITS)) return TIR_UNBOUNDED_HIGH;
    tir_sum replaced;
    tir_sum_init(&replaced, sum->constant * scale + plus);
    for (int i = 0; i < sum->count; i++)
        if (i != at) tir_sum_add_term(p->pool, &replaced, sum->terms[i].atom, sum->terms[i].coefficient * scale);
    tir_sum_add(p->pool, &replaced, by, factor);
    return upper_bound(p, &replaced, depth);
}

/* c*floor(n/c) = n - (n rem c) lies in [n - c + 1, n]. */
static int64_t bound_quotient(proof *p, const tir_sum *sum, int at, int depth) {
    tir_term term = sum->terms[at];
    int64_t c;
    if (!tir_const_index(p->pool, tir_operand(p->pool, term.atom, 1), &c) || !within(c, PROOF_BITS))
        return TIR_UNBOUNDED_HIGH;
    int64_t scale = c / tir_gcd(c, term.coefficient), factor = term.coefficient * scale / c;
    int64_t plus = factor < 0 ? -factor * (c - 1) : 0;
    int64_t bound = bound_with(p, sum, at, scale, tir_operand(p->pool, term.atom, 0), factor, plus, depth);
    return divide_end(bound, scale);
}

static int64_t bound_term(proof *p, const tir_sum *sum, int at, int depth) {
    tir_term term = sum->terms[at];
    tir_op op = tir_op_of(p->pool, term.atom);
    bool choice = op == TIR_MIN || op == TIR_MAX || op == TIR_SELECT;
    if (choice) {
        int first = op == TIR_SELECT;
        int64_t a = bound_with(p, sum, at, 1, tir_operand(p->pool, term.atom, first), term.coefficient, 0, depth);
        int64_t b = bound_with(p, sum, at, 1, tir_operand(p->pool, term.atom, first + 1), term.coefficient, 0, depth);
        bool either = op != TIR_SELECT && (op == TIR_MIN) == (term.coefficient > 0);
        return either ? smaller(a, b) : larger(a, b);
    }
    if (op == TIR_DIV) return bound_quotient(p, sum, at, depth);
    if (op == TIR_REM && term.coefficient > 0) {
        tir_expr n = tir_operand(p->pool, term.atom, 0);
        tir_expr divisor = tir_operand(p->pool, term.atom, 1);
        int64_t bound = TIR_UNBOUNDED_HIGH, value;
        if (tir_facts_of(p->pool, n).range.low >= 0) bound = bound_with(p, sum, at, 1, n, term.coefficient, 0, depth);
        if (tir_const_index(p->pool, divisor, &value)) return bound; /* the interval is as precise */
        return smaller(bound, bound_with(p, sum, at, 1, divisor, term.coefficient, -term.coefficient, depth));
    }
    return TIR_UNBOUNDED_HIGH;
}

static int64_t upper_bound(proof *p, const tir_sum *sum, int depth) {
    int64_t best = tir_sum_range(p->pool, sum).high;
    if (depth == 0 || !sum_within(sum, PROOF_BITS)) return best;
    for (int i = 0; i < sum->count && p->steps > 0; i++) {
        p->steps--;
        best = smaller(best, bound_term(p, sum, i, depth - 1));
    }
    return best;
}

/* Bounds of a - b; UNBOUNDED if unknown. */
static tir_interval difference_bounds(tir_pool *pool, tir_expr a, tir_expr b) {
    tir_sum forward, backward;
    tir_sum_init(&forward, 0);
    tir_sum_add(pool, &forward, a, 1);
    tir_sum_add(pool, &forward, b, -1);
    tir_sum_init(&backward, 0);
    tir_sum_add(pool, &backward, b, 1);
    tir_sum_add(pool, &backward, a, -1);
    proof up = {pool, PROOF_STEPS}, down = {pool, PROOF_STEPS};
    int64_t high = upper_bound(&up, &forward, PROOF_DEPTH), low = upper_bound(&down, &backward, PROOF_DEPTH);
    return (tir_interval){low >= TIR_UNBOUNDED_HIGH ? TIR_UNBOUNDED_LOW : -low, high};
}

int64_t tir_least(tir_pool *pool, tir_expr index) {
    tir_sum negated;
    if (!expression_within(pool, index, PROOF_BITS)) return tir_range(pool, index).low;
    tir_sum_init(&negated, 0);
    tir_sum_add(pool, &negated, index, -1);
    proof up = {pool, PROOF_STEPS};
    int64_t high = upper_bound(&up, &negated, PROOF_DEPTH);
    return high >= TIR_UNBOUNDED_HIGH ? TIR_UNBOUNDED_LOW : -high;
}

/* Compares a - b after rewriting every remainder n rem c as n - c*(n div c), so that both forms become equal. */
static tir_truth equal_without_remainders(tir_pool *pool, tir_expr a, tir_expr b) {
    tir_sum sum;
    tir_sum_init(&sum, 0);
    tir_sum_add(pool, &sum, a, 1);
    tir_sum_add(pool, &sum, b, -1);
    int64_t c;
    for (int i = 0, steps = 0; i < sum.count && steps < 32 && sum_within(&sum, REMAINDER_BITS); i++) {
        tir_term term = sum.terms[i];
        if (tir_op_of(pool, term.atom) != TIR_REM || !tir_const_index(pool, tir_operand(pool, term.atom, 1), &c))
            continue;
        tir_expr n = tir_operand(pool, term.atom, 0), quotient = tir_div(pool, n, tir_operand(pool, term.atom, 1));
        if (!within(c, REMAINDER_BITS) || !expression_within(pool, n, REMAINDER_BITS) ||
            !expression_within(pool, quotient, REMAINDER_BITS))
            continue;
        tir_sum_remove(&sum, i);
        tir_sum_add(pool, &sum, n, term.coefficient);
        tir_sum_add(pool, &sum, quotient, -term.coefficient * c);
        i = -1;
        steps++;
    }
    if (sum.count) return TIR_UNKNOWN;
    return sum.constant ? TIR_NO : TIR_YES;
}

static tir_truth negate(tir_truth truth) {
    return truth == TIR_UNKNOWN ? truth : truth == TIR_YES ? TIR_NO : TIR_YES;
}

static tir_truth prove_comparison(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    if (op == TIR_NE) return negate(prove_comparison(pool, TIR_EQ, a, b));
    tir_interval d = difference_bounds(pool, a, b);
    switch (op) {
    case TIR_LT: return d.high < 0 ? TIR_YES : d.low >= 0 ? TIR_NO : TIR_UNKNOWN;
    case TIR_LE: return d.high <= 0 ? TIR_YES : d.low > 0 ? TIR_NO : TIR_UNKNOWN;
    default: break;
    }
    if (d.low > 0 || d.high < 0) return TIR_NO;
    if (d.low == 0 && d.high == 0) return TIR_YES;
    return equal_without_remainders(pool, a, b);
}

/* `steps` bounds the work on conditions with shared parts, and the recursion. */
static tir_truth prove(tir_pool *pool, tir_expr condition, int *steps) {
    if (tir_is_true(pool, condition)) return TIR_YES;
    if (tir_is_false(pool, condition)) return TIR_NO;
    tir_op op = tir_op_of(pool, condition);
    if (tir_get(pool, condition)->count == 0 || (*steps)-- <= 0) return TIR_UNKNOWN;
    tir_expr a = tir_operand(pool, condition, 0);
    if (tir_ops[op].flags & TIR_COMPARES)
        return tir_dtype_of(pool, a) == TIR_INDEX ? prove_comparison(pool, op, a, tir_operand(pool, condition, 1))
                                                  : TIR_UNKNOWN;
    if (op == TIR_NOT) return negate(prove(pool, a, steps));
    if (op != TIR_AND && op != TIR_OR) return TIR_UNKNOWN;
    tir_truth decisive = op == TIR_AND ? TIR_NO : TIR_YES, left = prove(pool, a, steps);
    if (left == decisive) return decisive;
    tir_truth right = prove(pool, tir_operand(pool, condition, 1), steps);
    if (right == decisive) return decisive;
    return left == right ? left : TIR_UNKNOWN;
}

tir_truth tir_prove(tir_pool *pool, tir_expr condition) {
    int steps = 256;
    return prove(pool, condition, &steps);
}

tir_truth tir_equal(tir_pool *pool, tir_expr a, tir_expr b) {
    return tir_prove(pool, tir_eq(pool, a, b));
}
