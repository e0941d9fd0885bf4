/* Traversals of expressions: rewriting, import, use, evaluation. A traversal lists the nodes reachable from a root, operands
 * before users, each once, without recursion; a pass stores its result for each node in a parallel array. */
#include "tir/arith.h"
#include "tir/expr.h"
#include "tir/math.h"
#include "tir/simplify.h"

/* ---- walks */

#define WALK_FEW 16u    /* nodes of most expressions: little storage to clear */
#define WALK_LOCAL 128u /* nodes that need no allocation; a power of two, as every capacity */
/* One block: order[capacity], table[2 * capacity] (index + 1), stack[2 * capacity] (node, next operand). */
#define WALK_WORDS(capacity) ((size_t)(capacity)*5)

typedef struct walk {
    const tir_pool *pool;
    /* nodes with lower ids are skipped */
    tir_expr floor;
    uint32_t *order, *table, *stack;
    uint32_t count, capacity;
} walk;

typedef struct walk_storage {
    uint32_t local[WALK_WORDS(WALK_LOCAL)];
    /* of a walk over a const pool */
    uint32_t *heap;
    size_t heap_words;
} walk_storage;

/* The table slot of e, or the empty slot for it. */
static uint32_t walk_slot(const walk *w, tir_expr e) {
    uint32_t mask = w->capacity * 2 - 1;
    uint32_t at = (uint32_t)((e * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
    while (w->table[at] && w->order[w->table[at] - 1] != e) at = (at + 1) & mask;
    return at;
}

static uint32_t walk_index(const walk *w, tir_expr e) {
    return w->table[walk_slot(w, e)] - 1;
}

/* Lists the nodes below `root`, operands first. False: they do not fit. The walk is depth first, and a path consists of distinct nodes
 * that are not listed yet: listed and open nodes together must fit. */
static bool walk_fits(walk *w, uint32_t *words, uint32_t capacity, tir_expr root) {
    w->order = words;
    w->table = words + capacity;
    w->stack = words + (size_t)capacity * 3;
    w->capacity = capacity;
    w->count = 0;
    memset(w->table, 0, (size_t)capacity * 2 * sizeof *w->table);
    w->stack[0] = root;
    w->stack[1] = 0;
    for (uint32_t depth = 1; depth;) {
        uint32_t *top = w->stack + (depth - 1) * 2;
        const tir_node *node = tir_get(w->pool, top[0]);
        if (top[1] < node->count) {
            tir_expr operand = tir_operand(w->pool, top[0], (int)top[1]++);
            if (operand < w->floor || w->table[walk_slot(w, operand)]) continue;
            if (w->count + depth == capacity) return false;
            top[2] = operand;
            top[3] = 0;
            depth++;
            continue;
        }
        uint32_t slot = walk_slot(w, top[0]);
        w->order[w->count++] = top[0];
        w->table[slot] = w->count;
        depth--;
    }
    return true;
}

static bool walk_fits_locally(walk *w, walk_storage *storage, tir_expr root) {
    return walk_fits(w, storage->local, WALK_FEW, root) || walk_fits(w, storage->local, WALK_LOCAL, root);
}

/* For passes that raise nothing between open and close: larger storage comes from the allocator. */
static void walk_open(walk *w, walk_storage *storage, const tir_pool *pool, tir_expr root, tir_expr floor) {
    *w = (walk){.pool = pool, .floor = floor};
    storage->heap = NULL;
    if (walk_fits_locally(w, storage, root)) return;
    uint32_t *words = NULL;
    uint32_t capacity = WALK_LOCAL;
    do {
        lib_release(pool->arena->allocator, storage->heap, storage->heap_words * sizeof *words, 16);
        capacity *= 4;
        storage->heap_words = WALK_WORDS(capacity);
        storage->heap = words = lib_allocate(pool->arena->allocator, storage->heap_words * sizeof *words, 16);
        if (!words) lib_raise(pool->arena->scope, DLC_OUT_OF_MEMORY, "out of memory walking an expression");
    } while (!walk_fits(w, words, capacity, root));
}

static void walk_close(const walk *w, walk_storage *storage) {
    if (storage->heap)
        lib_release(w->pool->arena->allocator, storage->heap, storage->heap_words * sizeof(uint32_t), 16);
}

/* For passes that build nodes in `owner` meanwhile, and so may raise: larger storage is the owner's scratch. */
static void walk_open_scratch(walk *w, walk_storage *storage, tir_pool *owner, const tir_pool *pool, tir_expr root) {
    *w = (walk){.pool = pool};
    if (walk_fits_locally(w, storage, root)) return;
    uint32_t *words, capacity = WALK_LOCAL;
    do {
        capacity *= 4;
        if (owner->scratch && owner->scratch_size >= capacity) {
            words = owner->scratch;
            capacity = owner->scratch_size;
            owner->scratch = NULL; /* in use: a nested traversal allocates its own */
        } else {
            words = LIB_NEW_ARRAY(owner->arena, uint32_t, WALK_WORDS(capacity));
        }
    } while (!walk_fits(w, words, capacity, root));
}

static void walk_close_scratch(const walk *w, const walk_storage *storage, tir_pool *owner) {
    if (w->order == storage->local) return;
    if (owner->scratch && owner->scratch_size > w->capacity) return;
    owner->scratch = w->order;
    owner->scratch_size = w->capacity;
}

/* ---- rewriting: results reuse the stack's storage, one per node of the order */

static tir_expr rebuild(tir_pool *pool, const tir_node *node, const tir_expr *operands) {
    if (node->op == TIR_PICK) return tir_pick(pool, operands[0], node->count - 1, operands + 1);
    if (node->op != TIR_LOAD) return tir_make(pool, (tir_op)node->op, node->dtype, node->count, operands);
    int rank = node->guarded ? node->count - 2 : node->count;
    tir_expr guard = node->guarded ? operands[rank] : 0, other = node->guarded ? operands[rank + 1] : 0;
    return tir_load(pool, (uint32_t)node->bits, node->dtype, rank, operands, guard, other);
}

tir_expr tir_rewrite(tir_pool *pool, tir_expr e, tir_visit visit, void *user) {
    if (tir_get(pool, e)->count == 0) return visit(user, pool, e, e);
    walk w;
    walk_storage storage;
    walk_open_scratch(&w, &storage, pool, pool, e);
    uint32_t *results = w.stack;
    tir_expr operands[UINT8_MAX];
    for (uint32_t i = 0; i < w.count; i++) {
        tir_expr old = w.order[i], rebuilt = old;
        tir_node node = *tir_get(pool, old); /* a copy: the array may be reallocated */
        bool changed = false;
        for (int k = 0; k < node.count; k++) {
            tir_expr operand = tir_operand(pool, old, k);
            operands[k] = results[walk_index(&w, operand)];
            changed |= operands[k] != operand;
        }
        if (changed) rebuilt = rebuild(pool, &node, operands);
        results[i] = visit(user, pool, old, rebuilt);
    }
    tir_expr result = results[w.count - 1];
    walk_close_scratch(&w, &storage, pool);
    return result;
}

typedef struct substitution {
    int count;
    const tir_expr *from, *to;
} substitution;

static tir_expr substitute(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    (void)pool;
    const substitution *map = user;
    for (int i = 0; i < map->count; i++)
        if (map->from[i] == e) return map->to[i];
    return rebuilt;
}

tir_expr tir_substitute(tir_pool *pool, tir_expr e, int count, const tir_expr *from, const tir_expr *to) {
    substitution map = {count, from, to};
    return count ? tir_rewrite(pool, e, substitute, &map) : e;
}

static tir_expr import_leaf(tir_pool *pool, const tir_pool *from, const tir_node *node, tir_expr *variables) {
    if (node->op == TIR_CONST) return tir_bits(pool, node->dtype, node->bits);
    if (node->op != TIR_VAR) return tir_intern(pool, (tir_op)node->op, node->dtype, node->bits, false, 0, NULL);
    tir_expr *known = &variables[node->bits];
    if (*known == 0) {
        tir_variable variable = from->variables.data[node->bits];
        *known = tir_var(pool, variable.name, variable.kind, variable.dtype, variable.low, variable.high);
        pool->variables.data[tir_var_id(pool, *known)].multiple = variable.multiple;
    }
    return *known;
}

tir_expr tir_import(tir_pool *pool, const tir_pool *from, tir_expr e, tir_expr *variables) {
    const tir_node *root = tir_get(from, e);
    if (tir_ops[root->op].flags & TIR_LEAF) return import_leaf(pool, from, root, variables);
    walk w;
    walk_storage storage;
    walk_open_scratch(&w, &storage, pool, from, e);
    uint32_t *results = w.stack;
    tir_expr operands[UINT8_MAX];
    for (uint32_t i = 0; i < w.count; i++) {
        tir_node node = *tir_get(from, w.order[i]);
        for (int k = 0; k < node.count; k++) operands[k] = results[walk_index(&w, tir_operand(from, w.order[i], k))];
        bool leaf = (tir_ops[node.op].flags & TIR_LEAF) != 0;
        results[i] = leaf ? import_leaf(pool, from, &node, variables) : rebuild(pool, &node, operands);
    }
    tir_expr result = results[w.count - 1];
    walk_close_scratch(&w, &storage, pool);
    return result;
}

bool tir_uses(const tir_pool *pool, tir_expr e, tir_expr var) {
    if (e <= var) return e == var; /* users have greater ids than their operands */
    walk w;
    walk_storage storage;
    walk_open(&w, &storage, pool, e, var);
    bool uses = w.table[walk_slot(&w, var)] != 0;
    walk_close(&w, &storage);
    return uses;
}

/* ---- evaluation */

/* Transcendentals below f64 are defined by their expansion, made here in a separate pool; 16-bit floats go through f32. */
static uint64_t evaluate_expansion(const tir_pool *pool, tir_op op, tir_dtype dtype, const uint64_t *operands,
                                   int count, bool has_fma) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, pool->arena->allocator, &scope);
    uint64_t values[2] = {0, 0};
    for (int i = 0; i < count && i < 2; i++) values[i] = tir_arith_cast(DLC_F32, dtype, operands[i]);
    volatile uint64_t result = 0;
    if (LIB_ENTER(&scope)) {
        tir_pool scratch;
        tir_pool_init(&scratch, &arena);
        tir_expr arguments[2] = {0, 0};
        for (int i = 0; i < count && i < 2; i++) arguments[i] = tir_var(&scratch, "x", TIR_VAR_LET, DLC_F32, 0, 0);
        tir_expr expanded = tir_math_expand(&scratch, op, arguments);
        tir_evaluator evaluator = {.variables = values, .has_fma = has_fma};
        result = tir_arith_cast(dtype, DLC_F32, tir_evaluate(&scratch, expanded, &evaluator));
        lib_arena_free(&arena);
    } else {
        lib_arena_free(&arena);
        lib_raise_error(pool->arena->scope, &scope.error);
    }
    return result;
}

static uint64_t evaluate_load(const tir_node *node, const uint64_t *operands, const tir_evaluator *evaluator) {
    int64_t index[DLC_MAX_RANK * 2];
    int rank = node->guarded ? node->count - 2 : node->count;
    if (node->guarded && !operands[rank]) return operands[rank + 1];
    for (int i = 0; i < rank; i++) index[i] = (int64_t)operands[i];
    return evaluator->load(evaluator->user, node, index);
}

static uint64_t evaluate_node(const tir_pool *pool, const tir_node *node, tir_expr e, const uint64_t *operands,
                              const tir_evaluator *evaluator) {
    switch (node->op) {
    case TIR_CONST: return node->bits;
    case TIR_VAR: return evaluator->variables[node->bits];
    case TIR_ACC: return evaluator->acc[node->bits];
    case TIR_OTHER: return evaluator->other[node->bits];
    case TIR_LOAD: return evaluate_load(node, operands, evaluator);
    default: break;
    }
    tir_dtype operand = tir_dtype_of(pool, tir_operand(pool, e, tir_first_value((tir_op)node->op)));
    bool narrow = operand < DLC_DTYPE_COUNT && operand != DLC_F64 && lib_dtype_is_float((dlc_dtype)operand);
    if ((tir_ops[node->op].flags & TIR_MATH) && narrow)
        return evaluate_expansion(pool, (tir_op)node->op, operand, operands, node->count, evaluator->has_fma);
    return tir_arith((tir_op)node->op, node->dtype, operand, operands, node->count, evaluator->has_fma);
}

uint64_t tir_evaluate(const tir_pool *pool, tir_expr e, const tir_evaluator *evaluator) {
    walk w;
    walk_storage storage;
    walk_open(&w, &storage, pool, e, 0);
    uint64_t operands[UINT8_MAX], value = 0;
    for (uint32_t i = 0; i < w.count; i++) { /* values reuse the stack's storage, two words each */
        const tir_node *node = tir_get(pool, w.order[i]);
        for (int k = 0; k < node->count; k++)
            memcpy(&operands[k], &w.stack[2 * walk_index(&w, tir_operand(pool, w.order[i], k))], sizeof *operands);
        value = evaluate_node(pool, node, w.order[i], operands, evaluator);
        memcpy(&w.stack[2 * i], &value, sizeof value);
    }
    walk_close(&w, &storage);
    return value;
}
