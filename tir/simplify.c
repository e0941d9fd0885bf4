/* Index expressions in canonical form: sums c0 + sum ci*atom with atoms ascending, no atom a sum or constant multiple.
 *
 * As nodes: ADD(ADD(c1*a1, c2*a2), c0), left-associated, constant last; ci*ai is MUL(ai, ci), a plain ai when ci is 1.
 * Atoms are variables, loads, casts, DIV, REM, MIN, MAX, SELECT, ABS, and products of atoms (MUL, left-associated,
 * factors ascending). SUB and NEG do not occur. Comparisons have no negative coefficient on either side, no common
 * divisor, and are LT, EQ or NE.
 *
 * Every rule below holds for all integers within the ranges of the variables; floor division is exact arithmetic, so
 * none needs an argument of its own. Coefficients and constants are checked against overflow of 64 bits; they grow only
 * if divisors are joined or a remainder is expanded (see nested_quotient, reduce_modulo). */
#include "tir/simplify.h"

/* ---- sums */

_Noreturn static void overflow(tir_pool *pool) {
    lib_raise(pool->arena->scope, DLC_INVALID_ARGUMENT, "index arithmetic overflows 64 bits");
}

static int64_t plus(tir_pool *pool, int64_t a, int64_t b) {
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) overflow(pool);
    return sum;
}

static int64_t times(tir_pool *pool, int64_t a, int64_t b) {
    int64_t product;
    if (__builtin_mul_overflow(a, b, &product)) overflow(pool);
    return product;
}

void tir_sum_init(tir_sum *sum, int64_t constant) {
    sum->terms = sum->local;
    sum->count = 0;
    sum->capacity = TIR_SUM_LOCAL;
    sum->constant = constant;
}

static void reserve(tir_pool *pool, tir_sum *sum, int extra) {
    if (sum->count + extra <= sum->capacity) return;
    int capacity = (sum->count + extra) * 2;
    tir_term *terms = LIB_NEW_ARRAY(pool->arena, tir_term, (size_t)capacity);
    memcpy(terms, sum->terms, (size_t)sum->count * sizeof *terms);
    sum->terms = terms;
    sum->capacity = capacity;
}

static void copy_sum(tir_pool *pool, tir_sum *to, const tir_sum *from) {
    tir_sum_init(to, from->constant);
    reserve(pool, to, from->count);
    memcpy(to->terms, from->terms, (size_t)from->count * sizeof *to->terms);
    to->count = from->count;
}

void tir_sum_remove(tir_sum *sum, int at) {
    memmove(sum->terms + at, sum->terms + at + 1, (size_t)(sum->count - at - 1) * sizeof *sum->terms);
    sum->count--;
}

static void add_constant(tir_pool *pool, tir_sum *sum, int64_t value) {
    sum->constant = plus(pool, sum->constant, value);
}

void tir_sum_add_term(tir_pool *pool, tir_sum *sum, tir_expr atom, int64_t coefficient) {
    if (coefficient == 0) return;
    int at = sum->count;
    while (at > 0 && sum->terms[at - 1].atom > atom) at--;
    if (at > 0 && sum->terms[at - 1].atom == atom) {
        tir_term *term = &sum->terms[at - 1];
        term->coefficient = plus(pool, term->coefficient, coefficient);
        if (term->coefficient == 0) tir_sum_remove(sum, at - 1);
        return;
    }
    reserve(pool, sum, 1);
    memmove(sum->terms + at + 1, sum->terms + at, (size_t)(sum->count - at) * sizeof *sum->terms);
    sum->terms[at] = (tir_term){atom, coefficient};
    sum->count++;
}

static void reverse(tir_sum *sum) {
    for (int i = 0, j = sum->count - 1; i < j; i++, j--) {
        tir_term swap = sum->terms[i];
        sum->terms[i] = sum->terms[j];
        sum->terms[j] = swap;
    }
}

void tir_sum_add(tir_pool *pool, tir_sum *sum, tir_expr e, int64_t scale) {
    if (scale == 0) return;
    bool empty = sum->count == 0; /* atoms come off the chain in descending order: append, then reverse */
    for (tir_expr at = e; at;) {
        tir_expr term = at;
        at = 0;
        if (tir_op_of(pool, term) == TIR_ADD) {
            at = tir_operand(pool, term, 0);
            term = tir_operand(pool, term, 1);
        }
        int64_t value = 1;
        if (tir_const_index(pool, term, &value)) {
            add_constant(pool, sum, times(pool, value, scale));
            continue;
        }
        if (tir_op_of(pool, term) == TIR_MUL && tir_const_index(pool, tir_operand(pool, term, 1), &value))
            term = tir_operand(pool, term, 0);
        value = times(pool, value, scale);
        if (empty) {
            reserve(pool, sum, 1);
            sum->terms[sum->count++] = (tir_term){term, value};
        } else {
            tir_sum_add_term(pool, sum, term, value);
        }
    }
    if (empty) reverse(sum);
}

static void add_sum(tir_pool *pool, tir_sum *to, const tir_sum *from, int64_t scale) {
    for (int i = 0; i < from->count; i++)
        tir_sum_add_term(pool, to, from->terms[i].atom, times(pool, from->terms[i].coefficient, scale));
    add_constant(pool, to, times(pool, from->constant, scale));
}

static void load_sum(tir_pool *pool, tir_sum *sum, tir_expr e) {
    tir_sum_init(sum, 0);
    tir_sum_add(pool, sum, e, 1);
}

tir_interval tir_sum_range(const tir_pool *pool, const tir_sum *sum) {
    tir_interval range = {sum->constant, sum->constant};
    for (int i = 0; i < sum->count; i++)
        range = tir_interval_add(
            range, tir_interval_scale(tir_facts_of(pool, sum->terms[i].atom).range, sum->terms[i].coefficient));
    return range;
}

/* Of the coefficients; 0 for a constant. */
static int64_t sum_gcd(const tir_sum *sum) {
    int64_t gcd = 0;
    for (int i = 0; i < sum->count; i++) gcd = tir_gcd(gcd, sum->terms[i].coefficient);
    return gcd;
}

static tir_expr intern2(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    return tir_intern(pool, op, TIR_INDEX, 0, false, 2, (tir_expr[]){a, b});
}

static tir_expr intern_sum(tir_pool *pool, const tir_sum *sum) {
    tir_expr e = 0;
    for (int i = 0; i < sum->count; i++) {
        tir_expr term = sum->terms[i].atom;
        if (sum->terms[i].coefficient != 1)
            term = intern2(pool, TIR_MUL, term, tir_index(pool, sum->terms[i].coefficient));
        e = e ? intern2(pool, TIR_ADD, e, term) : term;
    }
    if (e && sum->constant == 0) return e;
    tir_expr constant = tir_index(pool, sum->constant);
    return e ? intern2(pool, TIR_ADD, e, constant) : constant;
}

/* ---- joining quotients and remainders. Each rule removes a DIV or REM term from the sum. */

static tir_expr index_rem(tir_pool *pool, tir_expr a, tir_expr b);
static tir_expr index_div(tir_pool *pool, tir_expr a, tir_expr b);
static void reduce_modulo(tir_pool *pool, tir_sum *sum, int64_t c);
static tir_expr build_sum(tir_pool *pool, tir_sum *sum);

static bool is_by_const(const tir_pool *pool, tir_expr e, tir_op op, int64_t *divisor) {
    return tir_op_of(pool, e) == op && tir_const_index(pool, tir_operand(pool, e, 1), divisor);
}

/* Whether coefficient*atom is always a multiple of c > 0. */
static bool divisible(const tir_pool *pool, tir_expr atom, int64_t coefficient, int64_t c) {
    int64_t gcd = tir_gcd(coefficient, c);
    return gcd == c || tir_facts_of(pool, atom).multiple % (c / gcd) == 0;
}

static bool congruent(tir_pool *pool, tir_expr a, tir_expr b, int64_t c) {
    tir_sum difference;
    load_sum(pool, &difference, a);
    tir_sum_add(pool, &difference, b, -1);
    reduce_modulo(pool, &difference, c);
    return difference.count == 0 && difference.constant == 0;
}

static void divide_exactly(tir_sum *sum, int64_t g) {
    for (int i = 0; i < sum->count; i++) sum->terms[i].coefficient /= g;
}

/* Sets *quotient to (a - b) div c, term by term: remainders are expanded where their coefficients times their divisors are multiples of c.
 * False: another coefficient is no multiple of c. */
static bool exact_quotient(tir_pool *pool, tir_sum *quotient, tir_expr a, tir_expr b, int64_t c) {
    load_sum(pool, quotient, a);
    tir_sum_add(pool, quotient, b, -1);
    for (int i = 0; i < quotient->count; i++) {
        const tir_term term = quotient->terms[i];
        int64_t divisor, whole;
        if (term.coefficient % c == 0 || !is_by_const(pool, term.atom, TIR_REM, &divisor)) continue;
        if (__builtin_mul_overflow(term.coefficient, divisor, &whole) || whole % c != 0 || whole == INT64_MIN) continue;
        const tir_expr n = tir_operand(pool, term.atom, 0);
        tir_sum_remove(quotient, i);
        tir_sum_add(pool, quotient, n, term.coefficient);
        tir_sum_add(pool, quotient, index_div(pool, n, tir_index(pool, divisor)), -whole);
        i = -1;
    }
    if (quotient->constant % c != 0) return false;
    for (int i = 0; i < quotient->count; i++)
        if (quotient->terms[i].coefficient % c != 0) return false;
    divide_exactly(quotient, c);
    quotient->constant /= c;
    return true;
}

static void remove_atom(tir_sum *sum, tir_expr atom) {
    int at = 0;
    while (sum->terms[at].atom != atom) at++;
    tir_sum_remove(sum, at);
}

static void replace_pair(tir_pool *pool, tir_sum *sum, tir_term a, tir_term b, tir_expr by, int64_t scale) {
    remove_atom(sum, a.atom);
    remove_atom(sum, b.atom);
    tir_sum_add(pool, sum, by, scale);
}

/* Each join_ function rewrites terms of the sum by the rule at its head; false: the rule does not apply.
 *
 * k*(n rem c) + k*c*(m div d) -> k*n + k*c*((m - q) div d) if n div c is q div d and q = m (mod d); the last division
 * is exact. For q = n, d = c, the plain case, the result is k*m. */
static bool join_with_quotient(tir_pool *pool, tir_sum *sum, tir_term rem, tir_term div, int64_t c) {
    int64_t d, divisor;
    tir_expr n = tir_operand(pool, rem.atom, 0), m = tir_operand(pool, div.atom, 0);
    if (!tir_const_index(pool, tir_operand(pool, div.atom, 1), &d) || d % c != 0) return false;
    tir_expr whole = index_div(pool, n, tir_index(pool, c));
    if (!is_by_const(pool, whole, TIR_DIV, &divisor) || divisor != d) return false;
    tir_expr q = tir_operand(pool, whole, 0);
    if (!congruent(pool, m, q, d)) return false;
    replace_pair(pool, sum, rem, div, n, rem.coefficient);
    if (m == q) return true;
    tir_sum apart;
    if (exact_quotient(pool, &apart, m, q, d))
        add_sum(pool, sum, &apart, div.coefficient);
    else
        tir_sum_add(pool, sum, index_div(pool, tir_sub(pool, m, q), tir_index(pool, d)), div.coefficient);
    return true;
}

/* k*(n rem c) + k*c*(m rem b) -> k*(w rem (c*b)) with w = c*m + n rem c, if w joins to a sum without remainder. */
static bool join_with_remainder(tir_pool *pool, tir_sum *sum, tir_term rem, tir_term other, int64_t c) {
    int64_t b, joined;
    if (!is_by_const(pool, other.atom, TIR_REM, &b) || __builtin_mul_overflow(c, b, &joined)) return false;
    tir_sum whole;
    tir_sum_init(&whole, 0);
    tir_sum_add(pool, &whole, tir_operand(pool, other.atom, 0), c);
    tir_sum_add_term(pool, &whole, rem.atom, 1);
    tir_expr w = build_sum(pool, &whole);
    for (int i = 0; i < whole.count; i++)
        if (whole.terms[i].atom == rem.atom) return false; /* it did not join */
    tir_expr replacement = index_rem(pool, w, tir_index(pool, joined));
    if (tir_op_of(pool, replacement) != TIR_REM) return false;
    replace_pair(pool, sum, rem, other, replacement, rem.coefficient);
    return true;
}

static bool join_remainder(tir_pool *pool, tir_sum *sum, tir_term rem, int64_t c) {
    int64_t scale;
    if (__builtin_mul_overflow(rem.coefficient, c, &scale) || scale == INT64_MIN) return false;
    for (int i = 0; i < sum->count; i++) {
        tir_term other = sum->terms[i];
        if (other.coefficient != scale || other.atom == rem.atom) continue;
        tir_op op = tir_op_of(pool, other.atom);
        if (op == TIR_DIV && join_with_quotient(pool, sum, rem, other, c)) return true;
        if (op == TIR_REM && join_with_remainder(pool, sum, rem, other, c)) return true;
    }
    return false;
}

/* k*n - k*c*(n div c) + rest -> k*(n rem c) + rest; only if all of n's terms are present, so that the number of terms never grows. */
static bool join_quotient(tir_pool *pool, tir_sum *sum, tir_term div, int64_t c) {
    if (div.coefficient % c != 0 || div.coefficient == INT64_MIN) return false;
    int64_t k = -(div.coefficient / c);
    tir_expr n = tir_operand(pool, div.atom, 0);
    if (tir_facts_of(pool, n).multiple % c == 0) { /* exact: k*c*(n div c) is k*n */
        remove_atom(sum, div.atom);
        tir_sum_add(pool, sum, n, -k);
        return true;
    }
    tir_sum numerator;
    load_sum(pool, &numerator, n);
    for (int i = 0, at = 0; i < numerator.count; i++, at++) {
        while (at < sum->count && sum->terms[at].atom < numerator.terms[i].atom) at++;
        int64_t expected;
        if (at == sum->count || sum->terms[at].atom != numerator.terms[i].atom) return false;
        if (__builtin_mul_overflow(k, numerator.terms[i].coefficient, &expected)) return false;
        if (sum->terms[at].coefficient != expected) return false;
    }
    remove_atom(sum, div.atom);
    tir_sum_add(pool, sum, n, times(pool, k, -1));
    tir_sum_add(pool, sum, index_rem(pool, n, tir_index(pool, c)), k);
    return true;
}

/* k*(n div c) - k*(m div c) -> k*((n - m) div c) if n - m is a multiple of c, term by term. */
static bool join_quotients(tir_pool *pool, tir_sum *sum, tir_term div, int64_t c) {
    if (div.coefficient == INT64_MIN) return false;
    for (int i = 0; i < sum->count; i++) {
        const tir_term other = sum->terms[i];
        int64_t d;
        if (other.atom == div.atom || other.coefficient != -div.coefficient) continue;
        if (!is_by_const(pool, other.atom, TIR_DIV, &d) || d != c) continue;
        const tir_expr n = tir_operand(pool, div.atom, 0), m = tir_operand(pool, other.atom, 0);
        tir_sum apart;
        if (!congruent(pool, n, m, c) || !exact_quotient(pool, &apart, n, m, c)) continue;
        remove_atom(sum, div.atom);
        remove_atom(sum, other.atom);
        add_sum(pool, sum, &apart, div.coefficient);
        return true;
    }
    return false;
}

static bool join_once(tir_pool *pool, tir_sum *sum) {
    for (int i = 0; i < sum->count; i++) {
        tir_term term = sum->terms[i];
        int64_t c;
        if (is_by_const(pool, term.atom, TIR_REM, &c) && join_remainder(pool, sum, term, c)) return true;
        if (is_by_const(pool, term.atom, TIR_DIV, &c) &&
            (join_quotient(pool, sum, term, c) || join_quotients(pool, sum, term, c)))
            return true;
    }
    return false;
}

static bool join(tir_pool *pool, tir_sum *sum) {
    bool joined = false;
    while (join_once(pool, sum)) joined = true;
    return joined;
}

/* Joins quotients with remainders, then interns. */
static tir_expr build_sum(tir_pool *pool, tir_sum *sum) {
    join(pool, sum);
    return intern_sum(pool, sum);
}

/* ---- products */

#define FACTORS 16
/* Limits of a product that is multiplied out; a larger one is an atom. Nodes as in its text, where shared parts are written each time:
 * without that limit, products of products are expressions whose text grows exponentially with their depth. */
#define TERMS 64
#define NODES 1024

static int factors_of(const tir_pool *pool, tir_expr atom, tir_expr *factors, int count) {
    int first = count;
    for (tir_expr at = atom; at;) {
        if (count == FACTORS) return -1;
        bool product = tir_op_of(pool, at) == TIR_MUL;
        factors[count++] = product ? tir_operand(pool, at, 1) : at;
        at = product ? tir_operand(pool, at, 0) : 0;
    }
    for (int i = first; i < count; i++) { /* insertion into the ascending ones before */
        tir_expr factor = factors[i];
        int j = i;
        for (; j > 0 && factors[j - 1] > factor; j--) factors[j] = factors[j - 1];
        factors[j] = factor;
    }
    return count;
}

static tir_expr product_of_atoms(tir_pool *pool, tir_expr a, tir_expr b) {
    tir_expr factors[FACTORS];
    int count = factors_of(pool, a, factors, 0);
    if (count > 0) count = factors_of(pool, b, factors, count);
    if (count < 0) return intern2(pool, TIR_MUL, a < b ? a : b, a < b ? b : a);
    tir_expr product = factors[0];
    for (int i = 1; i < count; i++) product = intern2(pool, TIR_MUL, product, factors[i]);
    return product;
}

/* Nodes of e, each occurrence of a shared one counted, up to `most`. */
static int64_t nodes_of(const tir_pool *pool, tir_expr e, int64_t most) {
    const tir_node *node = tir_get(pool, e);
    int64_t nodes = 1;
    for (int i = 0; i < node->count && nodes < most; i++)
        nodes += nodes_of(pool, tir_operand(pool, e, i), most - nodes);
    return nodes;
}

/* Nodes of the copies of e that a product with a sum of `terms` has; a leaf's copies are as many as there are terms already. */
static int64_t copied(const tir_pool *pool, tir_expr e, int terms) {
    const int64_t nodes = terms > 1 ? nodes_of(pool, e, NODES + 1) : 0;
    return nodes > 1 ? terms * nodes : 0;
}

static tir_expr index_mul(tir_pool *pool, tir_expr a, tir_expr b) {
    tir_sum left, right, product;
    load_sum(pool, &left, a);
    load_sum(pool, &right, b);
    tir_sum_init(&product, 0);
    if (left.count == 0 || right.count == 0) {
        const tir_sum *terms = left.count ? &left : &right;
        add_sum(pool, &product, terms, left.count ? right.constant : left.constant);
        return build_sum(pool, &product);
    }
    const int of_left = left.count + (left.constant != 0), of_right = right.count + (right.constant != 0);
    const bool grows = of_left > 1 && of_right > 1 && (int64_t)left.count * right.count > TERMS;
    if (grows || copied(pool, a, of_right) + copied(pool, b, of_left) > NODES)
        return intern2(pool, TIR_MUL, a < b ? a : b, a < b ? b : a);
    add_sum(pool, &product, &left, right.constant);
    product.constant = 0; /* the next line adds the product of the constants */
    add_sum(pool, &product, &right, left.constant);
    for (int i = 0; i < left.count; i++)
        for (int j = 0; j < right.count; j++)
            tir_sum_add_term(pool, &product, product_of_atoms(pool, left.terms[i].atom, right.terms[j].atom),
                             times(pool, left.terms[i].coefficient, right.terms[j].coefficient));
    return build_sum(pool, &product);
}

/* ---- division and remainder by a constant */

/* sum = multiples + rest, with every coefficient of `multiples` divisible by g and the constant in `rest`. True
 * if floor(rest/g) has a single value, *quotient. */
static bool split_by(tir_pool *pool, const tir_sum *sum, int64_t g, tir_sum *multiples, tir_sum *rest,
                     int64_t *quotient) {
    tir_sum_init(multiples, 0);
    tir_sum_init(rest, sum->constant);
    for (int i = 0; i < sum->count; i++) {
        tir_sum *part = sum->terms[i].coefficient % g == 0 ? multiples : rest;
        tir_sum_add_term(pool, part, sum->terms[i].atom, sum->terms[i].coefficient);
    }
    tir_interval range = tir_sum_range(pool, rest);
    if (range.low <= TIR_UNBOUNDED_LOW || range.high >= TIR_UNBOUNDED_HIGH) return false;
    *quotient = tir_floor_div(range.low, g);
    return *quotient == tir_floor_div(range.high, g);
}

static int64_t floor_rem(int64_t a, int64_t positive) {
    int64_t rest = a % positive;
    return rest < 0 ? rest + positive : rest;
}

/* The next candidate divisor of c below `limit`: the largest gcd(coefficient, c) there; 1 when none is left. */
static int64_t next_divisor(const tir_sum *sum, int64_t c, int64_t limit) {
    int64_t best = 1;
    for (int i = 0; i < sum->count; i++) {
        int64_t g = tir_gcd(sum->terms[i].coefficient, c);
        if (g < limit && g > best) best = g;
    }
    return best;
}

/* (x div a + k) div c -> (x + k*a) div (a*c);  (x rem (d*c)) div c -> (x div c) rem d */
static tir_expr nested_quotient(tir_pool *pool, const tir_sum *sum, int64_t c) {
    if (sum->count != 1 || sum->terms[0].coefficient != 1) return 0;
    tir_expr atom = sum->terms[0].atom;
    int64_t inner, joined, shift;
    if (is_by_const(pool, atom, TIR_DIV, &inner) && !__builtin_mul_overflow(inner, c, &joined) &&
        !__builtin_mul_overflow(sum->constant, inner, &shift)) {
        tir_expr numerator = tir_add(pool, tir_operand(pool, atom, 0), tir_index(pool, shift));
        return index_div(pool, numerator, tir_index(pool, joined));
    }
    if (is_by_const(pool, atom, TIR_REM, &inner) && sum->constant == 0 && inner % c == 0) {
        tir_expr quotient = index_div(pool, tir_operand(pool, atom, 0), tir_index(pool, c));
        return index_rem(pool, quotient, tir_index(pool, inner / c));
    }
    return 0;
}

/* Terms that are multiples of c for reasons other than their coefficient divide exactly, each separately:
 * (t + rest) div c -> t/c + rest div c. Moves them from `sum` to `quotient`. */
static void take_exact_terms(tir_pool *pool, tir_sum *sum, tir_sum *quotient, int64_t c) {
    if (sum->count == 1 && sum->constant == 0 && sum->terms[0].coefficient == 1) return; /* already in this form */
    for (int i = 0; i < sum->count;) {
        tir_term term = sum->terms[i];
        if (!divisible(pool, term.atom, term.coefficient, c)) {
            i++;
            continue;
        }
        int64_t g = tir_gcd(term.coefficient, c);
        tir_expr part = term.atom;
        if (g != c) part = index_div(pool, term.atom, tir_index(pool, c / g));
        tir_sum_remove(sum, i);
        tir_sum_add(pool, quotient, part, term.coefficient / g);
    }
}

static tir_expr quotient_by_const(tir_pool *pool, tir_expr a, int64_t c) {
    tir_sum sum, quotient, multiples, rest;
    load_sum(pool, &sum, a);
    tir_sum_init(&quotient, tir_floor_div(sum.constant, c));
    sum.constant = floor_rem(sum.constant, c);
    for (int i = 0; i < sum.count;) {
        if (sum.terms[i].coefficient % c != 0) {
            i++;
            continue;
        }
        tir_sum_add_term(pool, &quotient, sum.terms[i].atom, sum.terms[i].coefficient / c);
        tir_sum_remove(&sum, i);
    }
    take_exact_terms(pool, &sum, &quotient, c);
    if (join(pool, &sum)) { /* the remaining terms became simpler */
        tir_sum_add(pool, &quotient, quotient_by_const(pool, intern_sum(pool, &sum), c), 1);
        return build_sum(pool, &quotient);
    }
    if (sum.count == 0) return build_sum(pool, &quotient);
    int64_t k;
    for (int64_t g = c; g > 1; g = next_divisor(&sum, c, g)) {
        if (!split_by(pool, &sum, g, &multiples, &rest, &k)) continue;
        divide_exactly(&multiples, g);
        multiples.constant = k;
        tir_expr below = build_sum(pool, &multiples);
        tir_sum_add(pool, &quotient, index_div(pool, below, tir_index(pool, c / g)), 1);
        return build_sum(pool, &quotient);
    }
    tir_expr last = nested_quotient(pool, &sum, c);
    if (!last) last = intern2(pool, TIR_DIV, intern_sum(pool, &sum), tir_index(pool, c));
    if (quotient.count == 0 && quotient.constant == 0) return last;
    tir_sum_add(pool, &quotient, last, 1);
    return build_sum(pool, &quotient);
}

/* Drops multiples of c, reduces coefficients and constant, expands remainders by multiples of c. */
static void reduce_modulo(tir_pool *pool, tir_sum *sum, int64_t c) {
    for (int i = 0; i < sum->count;) {
        tir_term term = sum->terms[i];
        int64_t divisor;
        term.coefficient %= c; /* keeps its sign: never larger in magnitude */
        if (term.coefficient == 0 || divisible(pool, term.atom, term.coefficient, c)) {
            tir_sum_remove(sum, i);
        } else if (is_by_const(pool, term.atom, TIR_REM, &divisor) &&
                   divisor % (c / tir_gcd(term.coefficient, c)) == 0) {
            tir_sum_remove(sum, i);
            tir_sum_add(pool, sum, tir_operand(pool, term.atom, 0), term.coefficient);
            i = 0;
        } else {
            sum->terms[i++].coefficient = term.coefficient;
        }
    }
    sum->constant = floor_rem(sum->constant, c);
}

static tir_expr remainder_by_const(tir_pool *pool, tir_expr a, int64_t c) {
    tir_sum sum, multiples, rest;
    tir_interval range = tir_facts_of(pool, a).range;
    bool bounded = range.low > TIR_UNBOUNDED_LOW && range.high < TIR_UNBOUNDED_HIGH;
    if (bounded && tir_floor_div(range.low, c) == tir_floor_div(range.high, c))
        return tir_add(pool, a, tir_index(pool, -c * tir_floor_div(range.low, c)));
    load_sum(pool, &sum, a);
    reduce_modulo(pool, &sum, c);
    if (join(pool, &sum)) return remainder_by_const(pool, intern_sum(pool, &sum), c);
    if (sum.count == 0) return tir_index(pool, sum.constant);
    int64_t k;
    for (int64_t g = c; g > 1; g = next_divisor(&sum, c, g)) {
        if (!split_by(pool, &sum, g, &multiples, &rest, &k)) continue;
        divide_exactly(&multiples, g);
        multiples.constant = k;
        rest.constant = plus(pool, rest.constant, -times(pool, k, g));
        tir_expr above = index_rem(pool, build_sum(pool, &multiples), tir_index(pool, c / g));
        tir_sum_add(pool, &rest, above, g);
        return build_sum(pool, &rest);
    }
    return intern2(pool, TIR_REM, intern_sum(pool, &sum), tir_index(pool, c));
}

/* ---- division and remainder by an expression known to be positive */

static bool divide_monomial(tir_pool *pool, tir_term by, tir_term term, tir_term *quotient) {
    tir_expr have[FACTORS], want[FACTORS];
    int count = factors_of(pool, term.atom, have, 0), wanted = factors_of(pool, by.atom, want, 0);
    if (count < 0 || wanted < 0 || term.coefficient % by.coefficient != 0) return false;
    tir_expr left = 0;
    int at = 0;
    for (int i = 0; i < count; i++) {
        if (at < wanted && have[i] == want[at]) {
            at++;
        } else {
            left = left ? intern2(pool, TIR_MUL, left, have[i]) : have[i];
        }
    }
    *quotient = (tir_term){left, term.coefficient / by.coefficient};
    return at == wanted;
}

/* a = quotient*b + rest, by the term of b with most factors; true if anything was divided. */
static bool divide_symbolic(tir_pool *pool, tir_expr a, tir_expr b, tir_sum *quotient, tir_sum *rest) {
    tir_sum divisor;
    load_sum(pool, &divisor, b);
    load_sum(pool, rest, a);
    tir_sum_init(quotient, 0);
    int lead = 0, most = 0;
    tir_expr factors[FACTORS];
    for (int i = 0; i < divisor.count; i++) {
        int count = factors_of(pool, divisor.terms[i].atom, factors, 0);
        if (count > most) most = count, lead = i;
    }
    if (divisor.count == 0 || divisor.terms[lead].coefficient == -1) return false;
    tir_sum numerator;
    copy_sum(pool, &numerator, rest);
    for (int i = 0; i < numerator.count; i++) {
        tir_term part;
        if (!divide_monomial(pool, divisor.terms[lead], numerator.terms[i], &part)) continue;
        if (part.atom)
            tir_sum_add_term(pool, quotient, part.atom, part.coefficient);
        else
            add_constant(pool, quotient, part.coefficient);
    }
    if (quotient->count == 0 && quotient->constant == 0) return false;
    tir_expr product = index_mul(pool, intern_sum(pool, quotient), b);
    tir_sum_add(pool, rest, product, -1);
    return rest->count + quotient->count <= numerator.count || (rest->count == 0 && rest->constant == 0);
}

/* Whether 0 <= rest < b. */
static bool is_remainder(tir_pool *pool, const tir_sum *rest, tir_expr b) {
    tir_sum gap;
    if (tir_sum_range(pool, rest).low < 0) return false;
    load_sum(pool, &gap, b);
    add_sum(pool, &gap, rest, -1);
    return tir_sum_range(pool, &gap).low > 0;
}

static bool check_divisor(tir_pool *pool, tir_expr b, int64_t *constant) {
    if (!tir_const_index(pool, b, constant)) return false;
    if (*constant <= 0)
        lib_raise(pool->arena->scope, DLC_INVALID_ARGUMENT, "division of an index by %lld", (long long)*constant);
    return true;
}

static tir_expr index_div(tir_pool *pool, tir_expr a, tir_expr b) {
    int64_t c;
    if (check_divisor(pool, b, &c)) return c == 1 ? a : quotient_by_const(pool, a, c);
    tir_sum quotient, rest;
    if (tir_facts_of(pool, b).range.low < 1) return intern2(pool, TIR_DIV, a, b);
    if (!divide_symbolic(pool, a, b, &quotient, &rest)) {
        load_sum(pool, &rest, a);
        return is_remainder(pool, &rest, b) ? tir_index(pool, 0) : intern2(pool, TIR_DIV, a, b);
    }
    if (!is_remainder(pool, &rest, b))
        tir_sum_add(pool, &quotient, intern2(pool, TIR_DIV, intern_sum(pool, &rest), b), 1);
    return build_sum(pool, &quotient);
}

static tir_expr index_rem(tir_pool *pool, tir_expr a, tir_expr b) {
    int64_t c;
    if (check_divisor(pool, b, &c)) return c == 1 ? tir_index(pool, 0) : remainder_by_const(pool, a, c);
    tir_sum quotient, rest;
    if (tir_facts_of(pool, b).range.low < 1) return intern2(pool, TIR_REM, a, b);
    if (!divide_symbolic(pool, a, b, &quotient, &rest)) load_sum(pool, &rest, a);
    if (is_remainder(pool, &rest, b)) return build_sum(pool, &rest);
    return intern2(pool, TIR_REM, intern_sum(pool, &rest), b);
}

/* ---- minimum, maximum, comparison: by the range of the difference */

static tir_expr index_min_max(tir_pool *pool, tir_op op, tir_expr a, tir_expr b);

/* op of x and y if x is a minimum or maximum itself, and one of the three values can be left out; 0: none can. */
static tir_expr join_min_max(tir_pool *pool, tir_op op, tir_expr x, tir_expr y) {
    int64_t value, inner;
    tir_op other = op == TIR_MIN ? TIR_MAX : TIR_MIN;
    if (tir_op_of(pool, x) != op && tir_op_of(pool, x) != other) return 0;
    tir_expr x0 = tir_operand(pool, x, 0), x1 = tir_operand(pool, x, 1);
    if (x0 == y || x1 == y) return tir_op_of(pool, x) == op ? x : y; /* absorbed */
    if (tir_op_of(pool, x) != op || !tir_const_index(pool, x1, &inner) || !tir_const_index(pool, y, &value)) return 0;
    bool keep = (inner < value) == (op == TIR_MIN);
    return keep ? x : index_min_max(pool, op, x0, y);
}

static tir_expr index_min_max(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    if (a == b) return a;
    tir_sum difference;
    load_sum(pool, &difference, a);
    tir_sum_add(pool, &difference, b, -1);
    tir_interval range = tir_sum_range(pool, &difference);
    if (range.high <= 0) return op == TIR_MIN ? a : b;
    if (range.low >= 0) return op == TIR_MIN ? b : a;
    int64_t value;
    bool a_const = tir_const_index(pool, a, &value);
    if (a_const || (a > b && !tir_const_index(pool, b, &value))) {
        tir_expr swap = a;
        a = b;
        b = swap;
    }
    for (int side = 0; side < 2; side++) {
        tir_expr joined = join_min_max(pool, op, side ? b : a, side ? a : b);
        if (joined) return joined;
    }
    return intern2(pool, op, a, b);
}

/* The two sides of `sum ? 0`, without negative coefficients. */
static void two_sides(tir_pool *pool, const tir_sum *sum, tir_expr *left, tir_expr *right) {
    tir_sum positive, negative;
    tir_sum_init(&positive, sum->constant > 0 ? sum->constant : 0);
    tir_sum_init(&negative, sum->constant < 0 ? times(pool, sum->constant, -1) : 0);
    for (int i = 0; i < sum->count; i++) {
        tir_term term = sum->terms[i];
        if (term.coefficient > 0)
            tir_sum_add_term(pool, &positive, term.atom, term.coefficient);
        else
            tir_sum_add_term(pool, &negative, term.atom, times(pool, term.coefficient, -1));
    }
    *left = intern_sum(pool, &positive);
    *right = intern_sum(pool, &negative);
}

static tir_expr compare(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    return tir_intern(pool, op, DLC_BOOL, 0, false, 2, (tir_expr[]){a, b});
}

static tir_expr equality(tir_pool *pool, tir_op op, tir_sum *d) {
    tir_interval range = tir_sum_range(pool, d);
    bool equal = d->count == 0 && d->constant == 0, different = range.low > 0 || range.high < 0;
    if (range.low == 0 && range.high == 0) equal = true;
    int64_t multiple = 0, g = sum_gcd(d);
    for (int i = 0; i < d->count; i++) {
        int64_t of_atom = tir_facts_of(pool, d->terms[i].atom).multiple, of_term;
        if (__builtin_mul_overflow(d->terms[i].coefficient, of_atom, &of_term)) of_term = d->terms[i].coefficient;
        multiple = tir_gcd(multiple, of_term);
    }
    if (multiple > 1 && d->constant % multiple != 0) different = true;
    if (equal || different) return tir_bool(pool, equal == (op == TIR_EQ));
    if (g > 1 && d->constant % g == 0) {
        divide_exactly(d, g);
        d->constant /= g;
    }
    if (d->terms[0].coefficient < 0) {
        tir_sum negated;
        tir_sum_init(&negated, 0);
        add_sum(pool, &negated, d, -1);
        copy_sum(pool, d, &negated);
    }
    tir_expr left, right;
    two_sides(pool, d, &left, &right);
    return compare(pool, op, left, right);
}

tir_expr tir_simplify_compare(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    tir_sum d, built;
    load_sum(pool, &d, a);
    tir_sum_add(pool, &d, b, -1);
    if (d.count > 1) { /* quotients and remainders of the two sides may join */
        tir_expr joined = build_sum(pool, &d);
        load_sum(pool, &built, joined);
        copy_sum(pool, &d, &built);
    }
    if (op == TIR_EQ || op == TIR_NE) return equality(pool, op, &d);
    if (op == TIR_LE) add_constant(pool, &d, -1);
    tir_interval range = tir_sum_range(pool, &d);
    if (range.high < 0) return tir_bool(pool, true);
    if (range.low >= 0) return tir_bool(pool, false);
    int64_t g = sum_gcd(&d);
    if (g > 1) { /* g*t + c < 0  <=>  t + floor(c/g) < 0 */
        divide_exactly(&d, g);
        d.constant = tir_floor_div(d.constant, g);
    }
    tir_expr left, right;
    two_sides(pool, &d, &left, &right);
    return compare(pool, TIR_LT, left, right);
}

/* ---- entry */

static tir_expr index_sum(tir_pool *pool, tir_expr a, int64_t a_scale, tir_expr b, int64_t b_scale) {
    tir_sum sum;
    tir_sum_init(&sum, 0);
    bool swap = b > a; /* the newer expression is likely longer: load it, insert the other */
    tir_sum_add(pool, &sum, swap ? b : a, swap ? b_scale : a_scale);
    tir_sum_add(pool, &sum, swap ? a : b, swap ? a_scale : b_scale);
    return build_sum(pool, &sum);
}

tir_expr tir_simplify_index(tir_pool *pool, tir_op op, int count, const tir_expr *operands) {
    tir_expr a = operands[0], b = count > 1 ? operands[1] : 0;
    switch (op) {
    case TIR_ADD: return index_sum(pool, a, 1, b, 1);
    case TIR_SUB: return index_sum(pool, a, 1, b, -1);
    case TIR_NEG: return index_sum(pool, a, -1, tir_index(pool, 0), 1);
    case TIR_MUL: return index_mul(pool, a, b);
    case TIR_DIV: return index_div(pool, a, b);
    case TIR_REM: return index_rem(pool, a, b);
    case TIR_MIN:
    case TIR_MAX: return index_min_max(pool, op, a, b);
    case TIR_ABS: {
        tir_interval range = tir_facts_of(pool, a).range;
        if (range.low >= 0) return a;
        if (range.high <= 0) return tir_unary(pool, TIR_NEG, a);
        break;
    }
    default: break;
    }
    return tir_intern(pool, op, TIR_INDEX, 0, false, count, operands);
}
