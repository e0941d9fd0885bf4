/* The pool of expressions: interning, leaves, constructors, and simple queries. Simplification
 * of constructors is in tir/fold.c (values) and tir/simplify.c (index expressions). */
#include "tir/expr.h"
#include "tir/arith.h"
#include "tir/simplify.h"

#include <math.h>

const tir_op_info tir_ops[TIR_OP_COUNT] = {
#define X(id, text, arity, flags, meaning) {text, arity, flags},
    TIR_OP_TABLE(X)
#undef X
};

const char *tir_dtype_name(tir_dtype dtype) {
    if (dtype < DLC_DTYPE_COUNT) return lib_dtypes[dtype].name;
    return dtype == TIR_INDEX ? "index" : "?";
}

void tir_pool_init(tir_pool *pool, lib_arena *arena) {
    *pool = (tir_pool){.arena = arena};
    tir_node none = {.op = TIR_CONST};
    tir_facts nothing = {{0, 0}, 0};
    lib_vec_push(arena, &pool->nodes, none);
    lib_vec_push(arena, &pool->facts, nothing);
}

static lib_map map_copy(lib_arena *arena, const lib_map *map) {
    lib_map copy = *map;
    if (map->slots) copy.slots = lib_arena_copy(arena, map->slots, map->capacity * sizeof *map->slots);
    return copy;
}

tir_pool *tir_pool_copy(lib_arena *arena, const tir_pool *pool) {
    tir_pool *copy = lib_arena_copy(arena, pool, sizeof *pool);
    copy->arena = arena;
    /* full, so that the first addition moves the array */
    copy->nodes.capacity = copy->nodes.count;
    copy->operands.capacity = copy->operands.count;
    copy->variables.capacity = copy->variables.count;
    copy->facts.capacity = copy->facts.count;
    copy->accesses.capacity = copy->accesses.count;
    copy->map = map_copy(arena, &pool->map);
    copy->access_map = map_copy(arena, &pool->access_map);
    copy->scratch = NULL;
    copy->scratch_size = 0;
    return copy;
}

/* ---- interning */

static uint64_t hash_node(tir_op op, tir_dtype dtype, uint64_t bits, bool guarded, int count,
                          const tir_expr *operands) {
    uint64_t hash =
        lib_hash_mix((uint64_t)op | (uint64_t)dtype << 8 | (uint64_t)guarded << 16 | (uint64_t)count << 24, bits);
    int i = 0;
    for (; i + 1 < count; i += 2) hash = lib_hash_mix(hash, operands[i] | (uint64_t)operands[i + 1] << 32);
    if (i < count) hash = lib_hash_mix(hash, operands[i]);
    return hash;
}

static bool same_node(const tir_pool *pool, tir_expr e, const tir_node *key, const tir_expr *operands) {
    const tir_node *node = tir_get(pool, e);
    if (node->op != key->op || node->dtype != key->dtype || node->bits != key->bits || node->guarded != key->guarded ||
        node->count != key->count)
        return false;
    for (int i = 0; i < key->count; i++)
        if (pool->operands.data[node->first + (uint32_t)i] != operands[i]) return false;
    return true;
}

tir_expr tir_intern(tir_pool *pool, tir_op op, tir_dtype dtype, uint64_t bits, bool guarded, int count,
                    const tir_expr *operands) {
    if (count > UINT8_MAX) lib_raise(pool->arena->scope, DLC_INTERNAL, "%s: %d operands", tir_ops[op].text, count);
    tir_node node = {.op = (uint8_t)op, .dtype = dtype, .guarded = guarded, .count = (uint8_t)count, .bits = bits};
    uint64_t hash = hash_node(op, dtype, bits, guarded, count, operands);
    for (uint32_t at = lib_map_first(&pool->map, hash); at != LIB_MAP_END; at = lib_map_next(&pool->map, hash, at))
        if (same_node(pool, pool->map.slots[at].value, &node, operands)) return pool->map.slots[at].value;
    node.first = pool->operands.count;
    tir_facts facts = tir_facts_compute(pool, &node, operands);
    for (int i = 0; i < count; i++) lib_vec_push(pool->arena, &pool->operands, operands[i]);
    lib_vec_push(pool->arena, &pool->facts, facts);
    lib_vec_push(pool->arena, &pool->nodes, node);
    lib_map_insert(pool->arena, &pool->map, hash, pool->nodes.count - 1);
    return pool->nodes.count - 1;
}

/* ---- leaves */

tir_expr tir_bits(tir_pool *pool, tir_dtype dtype, uint64_t bits) {
    uint64_t canonical = tir_arith_cast(dtype, dtype, bits);
    if (dtype < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)dtype) && isnan(tir_bits_to_f64(dtype, canonical)))
        canonical = tir_bits_from_f64(dtype, NAN); /* NaN is one class: one constant */
    return tir_intern(pool, TIR_CONST, dtype, canonical, false, 0, NULL);
}

tir_expr tir_int(tir_pool *pool, tir_dtype dtype, int64_t value) {
    return tir_bits(pool, dtype, tir_arith_cast(dtype, DLC_I64, (uint64_t)value));
}

tir_expr tir_float(tir_pool *pool, tir_dtype dtype, double value) {
    return tir_bits(pool, dtype, tir_bits_from_f64(dtype, value));
}

tir_expr tir_bool(tir_pool *pool, bool value) {
    return tir_bits(pool, DLC_BOOL, value);
}

/* The least or greatest value of a dtype: sign -1 or 1. Conversion from infinity saturates for every integer dtype. */
static tir_expr extreme(tir_pool *pool, tir_dtype dtype, int sign) {
    if (dtype == TIR_INDEX) return tir_index(pool, sign < 0 ? TIR_UNBOUNDED_LOW : TIR_UNBOUNDED_HIGH);
    if (dtype == DLC_BOOL) return tir_bool(pool, sign > 0);
    double end = INFINITY;
    if (dtype < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)dtype) && !lib_float_of((dlc_dtype)dtype).infinite)
        end = lib_float_of((dlc_dtype)dtype).greatest;
    return tir_float(pool, dtype, sign < 0 ? -end : end);
}

tir_expr tir_lowest(tir_pool *pool, tir_dtype dtype) {
    return extreme(pool, dtype, -1);
}
tir_expr tir_highest(tir_pool *pool, tir_dtype dtype) {
    return extreme(pool, dtype, 1);
}

tir_expr tir_var(tir_pool *pool, const char *name, tir_var_kind kind, tir_dtype dtype, int64_t low, int64_t high) {
    tir_variable variable = {.name = lib_arena_string(pool->arena, name), .kind = kind, .dtype = dtype, .multiple = 1};
    variable.low = low < TIR_UNBOUNDED_LOW ? TIR_UNBOUNDED_LOW : low;
    variable.high = high > TIR_UNBOUNDED_HIGH ? TIR_UNBOUNDED_HIGH : high;
    lib_vec_push(pool->arena, &pool->variables, variable);
    return tir_intern(pool, TIR_VAR, dtype, pool->variables.count - 1, false, 0, NULL);
}

tir_expr tir_acc(tir_pool *pool, tir_dtype dtype, int component) {
    return tir_intern(pool, TIR_ACC, dtype, (uint64_t)component, false, 0, NULL);
}

tir_expr tir_other(tir_pool *pool, tir_dtype dtype, int component) {
    return tir_intern(pool, TIR_OTHER, dtype, (uint64_t)component, false, 0, NULL);
}

/* ---- operators */

_Noreturn static void bad_operands(const tir_pool *pool, tir_op op, tir_dtype dtype, int count,
                                   const tir_expr *operands) {
    char list[160] = "";
    size_t at = 0;
    for (int i = 0; i < count && i < 9; i++) {
        bool exists = operands[i] && operands[i] < pool->nodes.count;
        const char *name = exists ? tir_dtype_name(tir_dtype_of(pool, operands[i])) : "none";
        size_t length = strlen(name);
        if (i) list[at++] = ' ';
        memcpy(list + at, name, length + 1);
        at += length;
    }
    lib_raise(pool->arena->scope, DLC_INTERNAL, "expression: %s of dtype %s does not take %d operands (%s)",
              tir_ops[op].text, tir_dtype_name(dtype), count, list);
}

static bool operands_agree(const tir_pool *pool, tir_op op, tir_dtype dtype, int count, const tir_expr *operands) {
    if (tir_ops[op].arity != count || op == TIR_LOAD || (tir_ops[op].flags & TIR_LEAF)) return false;
    for (int i = 0; i < count; i++)
        if (!operands[i] || operands[i] >= pool->nodes.count) return false;
    if (op == TIR_CAST || op == TIR_BITCAST) return true;
    if (tir_ops[op].flags & TIR_DOT) return tir_dtype_of(pool, operands[0]) == dtype;
    const int first = tir_first_value(op);
    if (first && tir_dtype_of(pool, operands[0]) != DLC_BOOL) return false;
    tir_dtype operand = tir_dtype_of(pool, operands[first]);
    for (int i = first + 1; i < count; i++)
        if (tir_dtype_of(pool, operands[i]) != operand) return false;
    return dtype == ((tir_ops[op].flags & TIR_COMPARES) ? (tir_dtype)DLC_BOOL : operand);
}

tir_expr tir_make(tir_pool *pool, tir_op op, tir_dtype dtype, int count, const tir_expr *operands) {
    if (!operands_agree(pool, op, dtype, count, operands)) bad_operands(pool, op, dtype, count, operands);
    return tir_simplify(pool, op, dtype, count, operands);
}

tir_expr tir_unary(tir_pool *pool, tir_op op, tir_expr a) {
    return tir_make(pool, op, tir_dtype_of(pool, a), 1, &a);
}

tir_expr tir_binary(tir_pool *pool, tir_op op, tir_expr a, tir_expr b) {
    tir_dtype dtype = (tir_ops[op].flags & TIR_COMPARES) ? (tir_dtype)DLC_BOOL : tir_dtype_of(pool, a);
    return tir_make(pool, op, dtype, 2, (tir_expr[]){a, b});
}

tir_expr tir_select(tir_pool *pool, tir_expr condition, tir_expr a, tir_expr b) {
    return tir_make(pool, TIR_SELECT, tir_dtype_of(pool, a), 3, (tir_expr[]){condition, a, b});
}

tir_expr tir_pick(tir_pool *pool, tir_expr position, int count, const tir_expr *values) {
    tir_expr operands[UINT8_MAX];
    const tir_dtype dtype = count ? tir_dtype_of(pool, values[0]) : TIR_INDEX;
    int64_t at;
    bool agree = tir_dtype_of(pool, position) == TIR_INDEX && dtype != TIR_INDEX && count < UINT8_MAX, same = true;
    operands[0] = position;
    for (int i = 0; i < count && agree; i++) {
        operands[1 + i] = values[i];
        agree = tir_dtype_of(pool, values[i]) == dtype;
        same = same && values[i] == values[0];
    }
    if (!agree) bad_operands(pool, TIR_PICK, dtype, count < 9 ? count : 9, values);
    if (same) return values[0];
    if (tir_is_const(pool, position, &at)) return values[at >= 0 && at < count ? at : count - 1];
    return tir_intern(pool, TIR_PICK, dtype, 0, false, count + 1, operands);
}

tir_expr tir_pick_by_selects(tir_pool *pool, tir_expr pick) {
    const int last = tir_get(pool, pick)->count - 1;
    const tir_expr position = tir_operand(pool, pick, 0);
    tir_expr chosen = tir_operand(pool, pick, last);
    for (int i = last - 1; i >= 1; i--)
        chosen = tir_select(pool, tir_eq(pool, position, tir_index(pool, i - 1)), tir_operand(pool, pick, i), chosen);
    return chosen;
}

tir_expr tir_muladd(tir_pool *pool, tir_expr a, tir_expr b, tir_expr c) {
    return tir_make(pool, TIR_MULADD, tir_dtype_of(pool, a), 3, (tir_expr[]){a, b, c});
}

tir_expr tir_cast(tir_pool *pool, tir_dtype to, tir_expr a) {
    return tir_dtype_of(pool, a) == to ? a : tir_make(pool, TIR_CAST, to, 1, &a);
}

tir_expr tir_bitcast(tir_pool *pool, tir_dtype to, tir_expr a) {
    return tir_dtype_of(pool, a) == to ? a : tir_make(pool, TIR_BITCAST, to, 1, &a);
}

tir_expr tir_load(tir_pool *pool, uint32_t tensor, tir_dtype dtype, int rank, const tir_expr *index, tir_expr guard,
                  tir_expr other) {
    if (guard && tir_is_false(pool, guard)) return other;
    if (guard && tir_is_true(pool, guard)) guard = 0;
    if (rank > DLC_MAX_RANK * 2) lib_raise(pool->arena->scope, DLC_INTERNAL, "load: rank %d", rank);
    tir_expr operands[DLC_MAX_RANK * 2 + 2];
    for (int i = 0; i < rank; i++) operands[i] = index[i];
    operands[rank] = guard;
    operands[rank + 1] = other;
    return tir_intern(pool, TIR_LOAD, dtype, tensor, guard != 0, rank + (guard ? 2 : 0), operands);
}

tir_expr tir_ceil_div(tir_pool *pool, tir_expr a, tir_expr b) {
    return tir_div(pool, tir_add(pool, a, tir_sub(pool, b, tir_index(pool, 1))), b);
}

/* ---- questions */

bool tir_is_copy(const tir_pool *pool, tir_expr e) {
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD || !node->guarded) return node->op == TIR_LOAD;
    const tir_node *other = tir_get(pool, tir_operand(pool, e, node->count - 1));
    return other->op == TIR_CONST && other->bits == 0;
}

bool tir_is_const(const tir_pool *pool, tir_expr e, int64_t *value) {
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_CONST) return false;
    if (node->dtype != TIR_INDEX && node->dtype != DLC_BOOL && !lib_dtype_is_integer((dlc_dtype)node->dtype))
        return false;
    if (value) *value = (int64_t)node->bits;
    return true;
}

bool tir_is_true(const tir_pool *pool, tir_expr e) {
    const tir_node *node = tir_get(pool, e);
    return node->op == TIR_CONST && node->dtype == DLC_BOOL && node->bits == 1;
}

bool tir_is_false(const tir_pool *pool, tir_expr e) {
    const tir_node *node = tir_get(pool, e);
    return node->op == TIR_CONST && node->dtype == DLC_BOOL && node->bits == 0;
}

uint32_t tir_var_id(const tir_pool *pool, tir_expr var) {
    return (uint32_t)tir_get(pool, var)->bits;
}

int tir_terms(const tir_pool *pool, tir_expr index, tir_term *terms, int limit, int64_t *constant) {
    int count = 0;
    *constant = 0;
    for (tir_expr at = index; at;) { /* down the chain: constant, then atoms descending */
        tir_expr term = at;
        at = 0;
        if (tir_op_of(pool, term) == TIR_ADD) {
            at = tir_operand(pool, term, 0);
            term = tir_operand(pool, term, 1);
        }
        int64_t value = 1;
        if (tir_const_index(pool, term, &value)) {
            *constant = value;
            continue;
        }
        if (count == limit) return -1;
        if (tir_op_of(pool, term) == TIR_MUL && tir_const_index(pool, tir_operand(pool, term, 1), &value))
            term = tir_operand(pool, term, 0);
        terms[count++] = (tir_term){term, value};
    }
    for (int i = 0; i < count / 2; i++) {
        tir_term swap = terms[i];
        terms[i] = terms[count - 1 - i];
        terms[count - 1 - i] = swap;
    }
    return count;
}

int64_t tir_coefficient(const tir_pool *pool, tir_expr index, tir_expr var) {
    enum { TERMS = 64 };
    tir_term terms[TERMS];
    int64_t constant, coefficient = 0;
    int count = tir_terms(pool, index, terms, TERMS, &constant);
    for (int i = 0; i < count; i++)
        if (terms[i].atom == var)
            coefficient = terms[i].coefficient;
        else if (tir_uses(pool, terms[i].atom, var))
            return 0;
    return coefficient;
}
