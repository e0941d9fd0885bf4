/* Invariants of loop IR. Messages cite them and show the statement:
 *   L1  ARG buffers come first, in order of `argument`; names of buffers differ
 *   L2  a buffer has a usable dtype, extents and strides over parameters; those of REG, STACK and SHARED are constant; scratch
 *       is aligned and within the size of its scope; only SHARED buffers are swizzled
 *   L3  variables are bound before use, by the statement of their kind, never inside their own scope
 *   L4  a variable's declared range holds what it is bound to
 *   L5  bounds and indices are index, conditions and guards bool, stored values of the buffer's dtype
 *   L6  loads and stores name existing buffers, with their rank and dtype
 *   L7  arithmetic is legal: no muladd, pick, acc, other; no arithmetic on f16 and bf16; transcendentals of f64 only; fma
 *       where the machine has it
 *   L8  unroll and vec loops have constant extents; vec loops are not nested; loop bounds and conditions of
 *       inner unroll loops do not depend on its variable
 *   L9  indices of REG buffers are constant but for unrolled variables and the vec variable
 *   L10 inside a vec loop, a store to an element that does not depend on its variable is an exact reduction of that
 *       element, and all other accesses of the loop to it are reductions by the same operator
 *   L11 `read` and `written` of a buffer agree with the statements
 *   L12 tasks and repeats are over parameters; a repeat covers existing phases, and repeats are not nested
 *   L13 live REG vectors fit the machine's registers
 *   L14 thread loops have constant extents and are not in a vec loop; a block has at most 1,024 threads; if a thread loop is not the whole
 *       body of the thread loop around it, the iterations of that one are whole warps, or equal parts of a warp; a barrier in a thread
 *       loop requires that its iterations are one warp each
 *   L15 collective statements are executed by whole warps, in no vec loop, and their lanes hold the elements that the unit requires
 *   L17 a lanes loop has at most as many iterations as lanes, whose number is a power of two; it is in no vec or lanes loop; the body of a
 *       rows loop is one lanes loop, whose bounds do not depend on the row; the steps of other than serial loops are 1, of these a divisor
 *       of the extent; interleave contains lanes loops only; spill names a reg buffer, outside of vec and lanes loops;
 *       conditions are masked or split inside of vec and lanes loops only
 *   L16 an asynchronous store copies an element of memory, or zeros if a guard is false, to SHARED; commit and wait are outside
 *       of thread and vec loops
 *   L18 stores that wait are of vectors whose lanes are a constant distance apart; as many of them as their `rows` say are neighbours in memory,
 *       with equal numbers of lanes, and nothing between them makes them: an access of the buffer, a store that overlaps, a loop, a branch */
#include "tir/layout.h"
#include "tir/registers.h"
#include "tir/strided.h"

enum {
    UNBOUND,
    BOUND = 1,
    VARIES = 2,
    FREE = 4
}; /* VARIES: with the vec variable; FREE: not constant in a REG index */

typedef struct reg_use {
    uint32_t buffer;
    /* statement numbers; -1: none */
    int first, last;
    /* dimensions that some access indexes by the vec variable */
    uint32_t lanes;
} reg_use;

/* an access of a buffer inside a vec loop: the store itself, or a load of its statement */
typedef struct vec_access {
    const tir_stmt *stmt;
    /* 0: the store */
    tir_expr load;
} vec_access;

typedef struct verifier {
    lib_scope *scope;
    tir_kernel *kernel;
    tir_pool *pool;
    /* may be NULL */
    const tir_machine *machine;
    /* may be NULL */
    bool *overfull;
    const tir_phase *phase;
    /* for messages */
    const tir_stmt *stmt;
    /* by variable id: a value of the enum */
    uint8_t *state;
    /* by node, during one expression: 1 + its VARIES and FREE bits */
    uint8_t *seen;
    /* by buffer */
    bool *read, *written;
    /* by buffer, during a phase */
    reg_use *regs;
    /* earlier lifetimes of buffers */
    lib_vec(reg_use) past;
    lib_vec(tir_expr) stack, visited;
    /* statement numbers of the enclosing loops */
    lib_vec(int) opened;
    /* statement numbers of the phase's loops */
    lib_vec(reg_use) loops;
    /* of the enclosing vec loop */
    lib_vec(vec_access) accesses;
    /* its stores to an element that does not depend on its variable */
    lib_vec(const tir_stmt *) combined;
    /* inside a vec or lanes loop of several iterations; of any number; in a lanes loop; the phase has blocks of several threads */
    bool in_vec, masks, lanes, threads;
    /* the innermost enclosing thread loop; NULL: none */
    const tir_stmt *thread;
    /* the next statement is its whole body */
    bool chain;
    /* all enclosing thread loops */
    tir_thread_loops around;
    /* by buffer, of the phase; NULL: not computed yet */
    tir_registers *registers;
    /* of the current statement */
    int number;
    /* by buffer: is it a reg buffer in memory (spill)? */
    bool *spilled;
} verifier;

_Noreturn static void fail_as(verifier *v, dlc_status status, const char *what) {
    lib_text text;
    lib_text_init(&text, v->kernel->arena);
    lib_text_add(&text, "");
    if (v->stmt) tir_stmt_print(&text, v->kernel, v->stmt, 0);
    lib_raise(v->scope, status, "kernel %s: %s%s%.*s", v->kernel->name, what, v->stmt ? ", in: " : "",
              (int)strcspn(text.data, "\n"), text.data);
}
_Noreturn static void fail(verifier *v, const char *what) {
    fail_as(v, DLC_INTERNAL, what);
}
static void require(verifier *v, bool holds, const char *what) {
    if (!holds) fail(v, what);
}

/* ---- expressions */

static bool is_narrow(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && lib_dtype_is_narrow_float((dlc_dtype)dtype);
}

static bool is_f8(tir_dtype dtype) {
    return dtype < DLC_DTYPE_COUNT && lib_dtype_is_f8((dlc_dtype)dtype);
}

/* May operands and results of the operator, a cast, a move of bits or a unit's, be floats of less than 32 bits? */
static bool takes_narrow(tir_op op) {
    return op == TIR_CAST || op == TIR_BITCAST || op == TIR_SELECT || op == TIR_DOT2_BF16;
}

static void check_arithmetic(verifier *v, const tir_node *node, tir_expr e) {
    require(v, node->op != TIR_MULADD && node->op != TIR_PICK && node->op != TIR_ACC && node->op != TIR_OTHER,
            "L7: operator of stages");
    if (tir_ops[node->op].flags & TIR_LEAF || node->op == TIR_LOAD) return;
    require(v, !(tir_ops[node->op].flags & TIR_MATH) || node->dtype == DLC_F64, "L7: transcendental not of f64");
    require(v, node->op != TIR_FMA || !v->machine || v->machine->fma, "L7: the machine has no fma");
    require(v, node->op != TIR_LDEXP || !v->machine || v->machine->scales,
            "L7: the machine does not scale by powers of two");
    require(v,
            node->op != TIR_CAST || !(is_f8(node->dtype) || is_f8(tir_dtype_of(v->pool, tir_operand(v->pool, e, 0)))),
            "L7: conversion of a float of 8 bits");
    if (takes_narrow((tir_op)node->op)) return;
    require(v, !is_narrow(node->dtype) && !is_narrow(tir_dtype_of(v->pool, tir_operand(v->pool, e, 0))),
            "L7: arithmetic on a float of less than 32 bits");
}

/* Before a store to a reg buffer: begins a new lifetime of the buffer if the stored value does not read it and the innermost loop around
 * the store, if there is one, began after the last use. (Versions of a tile follow each other, also inside an enclosing loop.) */
static void begin_reg(verifier *v, const tir_stmt *stmt) {
    reg_use *use = &v->regs[stmt->store.buffer];
    int around = v->opened.count ? v->opened.data[v->opened.count - 1] : v->number;
    if (use->first < 0 || use->last >= around) return; /* also if the stored value reads it */
    lib_vec_push(v->kernel->arena, &v->past, *use);
    use->first = use->last = -1;
}

static void note_reg(verifier *v, uint32_t buffer, uint32_t lanes) {
    reg_use *use = &v->regs[buffer];
    if (use->first < 0) use->first = v->number;
    use->last = v->number;
    use->lanes |= lanes;
}

static const tir_buffer *check_buffer(verifier *v, uint64_t id, int rank) {
    require(v, id < v->kernel->buffers.count, "L6: no such buffer");
    const tir_buffer *buffer = &v->kernel->buffers.data[id];
    if (rank != buffer->rank) fail(v, "L6: wrong number of indices");
    return buffer;
}

/* VARIES and FREE of a node, from those of its operands, which have been visited; checks the node. */
static uint8_t check_node(verifier *v, tir_expr e) {
    const tir_node *node = tir_get(v->pool, e);
    uint8_t bits = 0, index_bits = 0;
    uint32_t lanes = 0;
    check_arithmetic(v, node, e);
    for (int i = 0; i < node->count; i++) bits |= v->seen[tir_operand(v->pool, e, i)] & (VARIES | FREE);
    if (node->op == TIR_VAR) {
        uint8_t state = v->state[tir_var_id(v->pool, e)];
        if (!(state & BOUND))
            fail(v,
                 lib_arena_format(v->kernel->arena, "L3: variable %s is not bound", tir_variable_of(v->pool, e)->name));
        return state & (VARIES | FREE);
    }
    if (node->op != TIR_LOAD) return bits;
    const int rank = node->guarded ? node->count - 2 : node->count;
    const tir_buffer *buffer = check_buffer(v, node->bits, rank);
    require(v, node->dtype == (tir_dtype)buffer->dtype, "L6: load of another dtype than the buffer's");
    for (int i = 0; i < rank; i++) {
        tir_expr index = tir_operand(v->pool, e, i);
        require(v, tir_dtype_of(v->pool, index) == TIR_INDEX, "L5: an index is not index");
        index_bits |= v->seen[index];
        if (v->seen[index] & VARIES) lanes |= 1u << i;
    }
    if (node->guarded)
        require(v, tir_dtype_of(v->pool, tir_operand(v->pool, e, rank)) == DLC_BOOL, "L5: a guard is not bool");
    v->read[node->bits] = true;
    if (v->in_vec && !(v->stmt && tir_loads_stored(v->kernel, v->stmt, e)))
        lib_vec_push(v->kernel->arena, &v->accesses, ((vec_access){v->stmt, e}));
    if (buffer->scope == TIR_SCOPE_REG) {
        require(v, v->spilled[node->bits] || !(index_bits & FREE), "L9: index of a reg buffer is not constant");
        note_reg(v, (uint32_t)node->bits, lanes);
    }
    return bits | FREE;
}

/* Checks all nodes below; returns VARIES and FREE of the root. */
static uint8_t check_expr(verifier *v, tir_expr root, tir_dtype dtype, const char *what) {
    enum { OPEN = 0x40, SEEN = 0x80 };
    lib_arena *arena = v->kernel->arena;
    require(v, root > 0 && root < v->pool->nodes.count, "L5: an expression is missing");
    if (tir_dtype_of(v->pool, root) != dtype)
        fail(v, lib_arena_format(arena, "L5: %s is %s, not %s", what, tir_dtype_name(tir_dtype_of(v->pool, root)),
                                 tir_dtype_name(dtype)));
    v->visited.count = v->stack.count = 0;
    lib_vec_push(arena, &v->stack, root);
    while (v->stack.count) {
        tir_expr e = v->stack.data[v->stack.count - 1];
        if (!v->seen[e]) { /* operands first */
            v->seen[e] = OPEN;
            for (int i = 0; i < tir_get(v->pool, e)->count; i++)
                if (!v->seen[tir_operand(v->pool, e, i)]) lib_vec_push(arena, &v->stack, tir_operand(v->pool, e, i));
            continue;
        }
        v->stack.count--;
        if (v->seen[e] & SEEN) continue;
        v->seen[e] = SEEN | check_node(v, e);
        lib_vec_push(arena, &v->visited, e);
    }
    uint8_t bits = v->seen[root] & (VARIES | FREE);
    for (uint32_t i = 0; i < v->visited.count; i++) v->seen[v->visited.data[i]] = 0;
    return bits;
}

/* ---- statements */

static void check_list(verifier *v, const tir_stmt *stmt);
static void check_registers(verifier *v);

static void bind(verifier *v, tir_expr var, tir_var_kind kind, uint8_t bits, tir_interval range) {
    require(v, var && tir_op_of(v->pool, var) == TIR_VAR, "L3: what is bound is no variable");
    const tir_variable *variable = tir_variable_of(v->pool, var);
    require(v, variable->kind == kind, "L3: the bound variable is of another kind");
    uint8_t *state = &v->state[tir_var_id(v->pool, var)];
    require(v, !(*state & BOUND), "L3: a variable is bound inside its own scope");
    if (variable->dtype == TIR_INDEX)
        require(v, range.low >= variable->low && range.high <= variable->high,
                "L4: the variable's declared range does not hold its values");
    *state = BOUND | bits;
}

static void unbind(verifier *v, tir_expr var) {
    v->state[tir_var_id(v->pool, var)] = UNBOUND;
}

/* The operator by which the store of a reduction combines, below selects that keep the old value. */
static tir_op combining_operator(const verifier *v, const tir_stmt *stmt) {
    tir_expr e = stmt->store.value;
    while (tir_op_of(v->pool, e) == TIR_SELECT) {
        tir_expr yes = tir_operand(v->pool, e, 1);
        e = tir_loads_stored(v->kernel, stmt, yes) ? tir_operand(v->pool, e, 2) : yes;
    }
    return tir_op_of(v->pool, e);
}

/* Does the access have the buffer and the index expressions of the reduction's store? Different expressions may have equal values: only the
 * interpreter detects that. */
static bool meets(const verifier *v, const tir_stmt *reduction, const vec_access *access) {
    const tir_stmt *store = access->stmt;
    uint64_t buffer = access->load ? tir_get(v->pool, access->load)->bits : store->store.buffer;
    if (buffer != reduction->store.buffer) return false;
    for (int i = 0; i < reduction->store.rank; i++) {
        tir_expr a = reduction->store.index[i];
        tir_expr b = access->load ? tir_operand(v->pool, access->load, i) : store->store.index[i];
        if (a != b) return false;
    }
    return true;
}

/* At the end of a vec loop: the result must not depend on the order in which its lanes are combined. */
static void check_combined(verifier *v) {
    for (uint32_t r = 0; r < v->combined.count; r++) {
        const tir_stmt *reduction = v->combined.data[r];
        for (uint32_t a = 0; a < v->accesses.count; a++) {
            const vec_access *access = &v->accesses.data[a];
            if (!meets(v, reduction, access)) continue;
            v->stmt = access->stmt;
            require(v, !access->load, "L10: a vec loop reads what its iterations combine");
            require(v, combining_operator(v, reduction) == combining_operator(v, access->stmt),
                    "L10: iterations of a vec loop combine into one place in two ways");
        }
    }
    v->accesses.count = v->combined.count = 0;
}

static void check_thread_loop(verifier *v, const tir_stmt *stmt) {
    int64_t extent = 0, stride = tir_thread_stride(v->pool, stmt);
    tir_is_const(v->pool, stmt->for_.extent, &extent);
    require(v, !v->in_vec, "L14: a thread loop inside a vec loop");
    require(v, extent <= TIR_BLOCK_THREADS / stride, "L14: more than 1,024 threads");
    const int64_t around = v->thread && !v->chain ? tir_thread_stride(v->pool, v->thread) : TIR_WARP;
    require(v, around % TIR_WARP == 0 || TIR_WARP % around == 0,
            "L14: the iterations of the thread loop around are no whole warps, nor equal parts of one");
}

static bool is_vector(tir_loop_kind kind) {
    return kind == TIR_VEC || kind == TIR_LANES;
}

/* L17, of a rows loop. */
static void check_rows(verifier *v, const tir_stmt *stmt, int64_t extent) {
    const tir_stmt *lanes = stmt->for_.body;
    require(v, extent >= 1 && stmt->for_.half >= 0 && stmt->for_.half + extent <= 2, "L17: a vector has two halves");
    require(v,
            lanes && !lanes->next && lanes->kind == TIR_FOR && lanes->for_.loop == TIR_LANES && lanes->for_.width > 1 &&
                lanes->for_.width <= TIR_MAX_LANES / 2,
            "L17: the body of a rows loop is not one lanes loop");
    require(v, !tir_uses(v->pool, lanes->for_.lower, stmt->for_.var),
            "L17: the columns of a rows loop depend on the row");
}

/* L17, of a loop of any kind. */
static void check_parts(verifier *v, const tir_stmt *stmt) {
    const tir_loop_kind kind = stmt->for_.loop;
    const int width = stmt->for_.width;
    int64_t extent = 0;
    tir_is_const(v->pool, stmt->for_.extent, &extent);
    require(v,
            stmt->for_.step == 1 || (kind == TIR_SERIAL && stmt->for_.step > 1 &&
                                     tir_multiple_of(v->pool, stmt->for_.extent) % stmt->for_.step == 0),
            "L17: the step of a loop");
    if (kind == TIR_LANES) {
        require(v, width >= 1 && width <= TIR_MAX_LANES && !(width & (width - 1)) && stmt->for_.whole >= width,
                "L17: number of lanes");
        require(v, extent >= 1 && extent <= width, "L17: more iterations than lanes");
    }
    if (kind == TIR_ROWS) check_rows(v, stmt, extent);
}

static void check_for(verifier *v, const tir_stmt *stmt) {
    const tir_loop_kind kind = stmt->for_.loop;
    uint8_t lower = check_expr(v, stmt->for_.lower, TIR_INDEX, "a bound");
    uint8_t bounds = lower | check_expr(v, stmt->for_.extent, TIR_INDEX, "a bound");
    int64_t extent = 0;
    bool constant = tir_is_const(v->pool, stmt->for_.extent, &extent), outer = v->in_vec;
    require(v, kind == TIR_SERIAL || constant, "L8: extent of an unroll, vec or thread loop is not constant");
    require(v, !(is_vector(kind) || kind == TIR_ROWS) || !v->in_vec, "L8: a vec loop inside another");
    check_parts(v, stmt);
    if (kind == TIR_THREAD) check_thread_loop(v, stmt);
    require(v, !(bounds & VARIES), "L8: loop bounds depend on the vec variable");
    tir_interval range = tir_loop_range(v->pool, stmt->for_.lower, stmt->for_.extent);
    range.high -= stmt->for_.step - 1;
    if (tir_range(v->pool, stmt->for_.extent).high <= 0) /* takes no value */
        range.low = range.high = tir_variable_of(v->pool, stmt->for_.var)->low;
    const reg_use loop = {0, v->number, v->number, 0};
    const uint32_t at = v->loops.count;
    lib_vec_push(v->kernel->arena, &v->loops, loop);
    const bool vector = is_vector(kind) && extent != 1; /* one iteration conflicts with no other */
    const bool masks = v->masks, lanes = v->lanes;
    v->masks = masks || is_vector(kind);
    v->lanes = lanes || kind == TIR_LANES;
    v->in_vec = outer || vector;
    uint8_t bits = vector ? VARIES : kind == TIR_SERIAL ? FREE : 0;
    const tir_stmt *outer_thread = v->thread;
    if (kind == TIR_THREAD) {
        v->thread = stmt;
        require(v, v->around.count < TIR_THREAD_LOOPS, "L14: thread loops nested too deeply");
        v->around.loop[v->around.count++] = (tir_thread_loop){stmt->for_.var, tir_thread_stride(v->pool, stmt)};
    }
    v->chain = kind == TIR_THREAD;
    bind(v, stmt->for_.var, TIR_VAR_LOOP, bits | (lower & FREE), range);
    lib_vec_push(v->kernel->arena, &v->opened, loop.first);
    check_list(v, stmt->for_.body);
    v->opened.count--;
    unbind(v, stmt->for_.var);
    v->thread = outer_thread;
    v->around.count -= kind == TIR_THREAD;
    if (vector) check_combined(v);
    v->in_vec = outer;
    v->masks = masks;
    v->lanes = lanes;
    v->loops.data[at].last = v->number;
}

static void check_async(verifier *v, const tir_stmt *stmt) {
    const tir_node value = *tir_get(v->pool, stmt->store.value);
    require(v, v->kernel->buffers.data[stmt->store.buffer].scope == TIR_SCOPE_SHARED && value.op == TIR_LOAD,
            "L16: an asynchronous store is no copy to shared memory");
    const tir_scope from = v->kernel->buffers.data[value.bits].scope;
    require(v, from == TIR_SCOPE_ARG || from == TIR_SCOPE_WORKSPACE || from == TIR_SCOPE_LOCAL,
            "L16: an asynchronous store copies from memory");
    if (!value.guarded) return;
    tir_expr other = tir_operand(v->pool, stmt->store.value, value.count - 1);
    require(v, tir_op_of(v->pool, other) == TIR_CONST && tir_get(v->pool, other)->bits == 0,
            "L16: where nothing is copied there are zeros");
}

static void check_store(verifier *v, const tir_stmt *stmt) {
    const tir_buffer *buffer = check_buffer(v, stmt->store.buffer, stmt->store.rank);
    uint8_t index = 0;
    uint32_t lanes = 0;
    for (int i = 0; i < stmt->store.rank; i++) {
        uint8_t bits = check_expr(v, stmt->store.index[i], TIR_INDEX, "an index");
        if (bits & VARIES) lanes |= 1u << i;
        index |= bits;
    }
    check_expr(v, stmt->store.value, (tir_dtype)buffer->dtype, "the stored value");
    if (stmt->store.async) check_async(v, stmt);
    require(v, v->lanes || !stmt->store.rows, "L18: stores wait in lanes loops only");
    require(v, stmt->store.rows <= TIR_STRIDED_ROWS, "L18: too many rows of a transposition");
    v->written[stmt->store.buffer] = true;
    if (buffer->scope == TIR_SCOPE_REG) {
        require(v, v->spilled[stmt->store.buffer] || !(index & FREE), "L9: index of a reg buffer is not constant");
        begin_reg(v, stmt);
        note_reg(v, stmt->store.buffer, lanes);
    }
    require(v, !v->in_vec || index & VARIES || tir_is_exact_reduction(v->kernel->arena, v->kernel, stmt),
            "L10: iterations of a vec loop store to one place");
    if (!v->in_vec) return;
    lib_vec_push(v->kernel->arena, &v->accesses, ((vec_access){stmt, 0}));
    if (!(index & VARIES)) lib_vec_push(v->kernel->arena, &v->combined, stmt);
}

/* Checks a collective statement. Its variables count as those of unrolled loops, so that indices of places in registers are constant. */
static void check_collective(verifier *v, const tir_stmt *stmt) {
    const tir_unit *unit = stmt->collective.unit;
    require(v, !v->in_vec, "L15: a collective statement in a vec loop");
    for (int i = 0; i < TIR_UNIT_VARS; i++)
        bind(v, stmt->collective.var[i], TIR_VAR_LOOP, 0, (tir_interval){0, (INT64_C(1) << unit->bits[i]) - 1});
    for (int p = 0; p < unit->places; p++) {
        const tir_place *place = &stmt->collective.place[p];
        const tir_buffer *buffer = check_buffer(v, place->buffer, place->rank);
        uint8_t bits = 0;
        for (int d = 0; d < place->rank; d++) bits |= check_expr(v, place->index[d], TIR_INDEX, "an index");
        require(v, buffer->scope != TIR_SCOPE_REG || !(bits & FREE), "L9: index of a reg buffer is not constant");
        if (p == 0) v->written[place->buffer] = true;
        if (p > 0 || unit->kind == TIR_MULTIPLY) v->read[place->buffer] = true;
        if (buffer->scope == TIR_SCOPE_REG) note_reg(v, place->buffer, 0);
    }
    if (!v->registers) {
        v->registers = LIB_NEW_ARRAY(v->kernel->arena, tir_registers, v->kernel->buffers.count);
        tir_find_registers(v->kernel, v->phase, v->registers);
    }
    const char *wrong = tir_collective_flaw(v->kernel, stmt, &v->around, v->registers);
    if (wrong) fail(v, lib_arena_format(v->kernel->arena, "L15: %s", wrong));
    for (int i = 0; i < TIR_UNIT_VARS; i++) unbind(v, stmt->collective.var[i]);
}

/* Checks a branch of an `if`. Outside of all loops, branches are versions of a parallel loop: registers are checked for each alone, since
 * buffers live in one are not live in another. */
static void check_branch(verifier *v, const tir_stmt *list) {
    const uint32_t count = v->kernel->buffers.count;
    if (v->opened.count || !list) {
        check_list(v, list);
        return;
    }
    bool *before = LIB_NEW_ARRAY(v->kernel->arena, bool, count + 1);
    for (uint32_t i = 0; i < count; i++) before[i] = v->regs[i].first >= 0;
    check_list(v, list);
    v->stmt = NULL;
    if (!v->threads) check_registers(v);
    for (uint32_t i = 0; i < count; i++)
        if (!before[i]) v->regs[i] = (reg_use){i, -1, -1, v->regs[i].lanes}; /* lanes are the same in all versions */
}

static void check_interleave(verifier *v, const tir_stmt *stmt) {
    for (const tir_stmt *part = stmt->interleave.body; part; part = part->next)
        require(v, part->kind == TIR_FOR && part->for_.loop == TIR_LANES, "L17: interleave contains lanes loops only");
    check_list(v, stmt->interleave.body);
}

static void check_spill(verifier *v, const tir_stmt *stmt) {
    const uint32_t buffer = stmt->spill.buffer;
    require(v,
            buffer < v->kernel->buffers.count && v->kernel->buffers.data[buffer].scope == TIR_SCOPE_REG && !v->in_vec,
            "L17: spill of other than a reg buffer, or in a vec loop");
    require(v, !v->spilled[buffer], "L17: a reg buffer is spilled twice");
    v->spilled[buffer] = true;
    check_list(v, stmt->spill.body);
    v->spilled[buffer] = false;
}

static void check_statement(verifier *v, const tir_stmt *stmt) {
    switch (stmt->kind) {
    case TIR_INTERLEAVE: check_interleave(v, stmt); break;
    case TIR_SPILL: check_spill(v, stmt); break;
    case TIR_FOR: check_for(v, stmt); break;
    case TIR_LET: {
        uint8_t bits = check_expr(v, stmt->let.value, tir_dtype_of(v->pool, stmt->let.var), "the value");
        tir_interval range = {0, 0};
        if (tir_dtype_of(v->pool, stmt->let.var) == TIR_INDEX) range = tir_range(v->pool, stmt->let.value);
        bind(v, stmt->let.var, TIR_VAR_LET, bits, range);
        const tir_stmt *body = stmt->let.body;
        if (body && (body->kind == TIR_STORE || body->kind == TIR_LET)) v->number--; /* it belongs to the store */
        check_list(v, body);
        unbind(v, stmt->let.var);
        break;
    }
    case TIR_IF:
        check_expr(v, stmt->if_.condition, DLC_BOOL, "the condition");
        require(v, v->masks || !(stmt->if_.masked || stmt->if_.otherwise_masked || stmt->if_.split),
                "L17: masks outside of vec and lanes loops");
        check_branch(v, stmt->if_.body);
        check_branch(v, stmt->if_.otherwise);
        break;
    case TIR_STORE: check_store(v, stmt); break;
    case TIR_PREFETCH:
        check_buffer(v, stmt->prefetch.buffer, stmt->prefetch.rank);
        require(v, stmt->prefetch.level >= 1 && stmt->prefetch.level <= 3, "L6: no such cache level");
        for (int i = 0; i < stmt->prefetch.rank; i++) check_expr(v, stmt->prefetch.index[i], TIR_INDEX, "an index");
        break;
    case TIR_COLLECTIVE: check_collective(v, stmt); break;
    case TIR_BARRIER:
        require(v, !v->thread || tir_thread_stride(v->pool, v->thread) == TIR_WARP,
                "L14: a barrier in a thread loop whose iterations are not one warp");
        break;
    case TIR_COMMIT:
    case TIR_WAIT:
        require(v, !v->thread && !v->in_vec, "L16: groups of asynchronous stores are those of all threads");
        break;
    case TIR_COMMENT: break;
    }
}

static void check_list(verifier *v, const tir_stmt *stmt) {
    const bool chain = v->chain && stmt && !stmt->next;
    for (; stmt; stmt = stmt->next) {
        v->chain = chain;
        v->stmt = stmt;
        v->number++;
        check_statement(v, stmt);
    }
}

/* ---- buffers */

static void check_shared(verifier *v, const tir_buffer *buffer) {
    int64_t offset = 0, low = 0, high = 0, element = (int64_t)lib_dtype_size(buffer->dtype);
    require(v, !buffer->swizzle || buffer->swizzle == 32 || buffer->swizzle == 64 || buffer->swizzle == 128,
            "L2: rows of swizzled buffers have 32, 64 or 128 bytes");
    for (int d = 0; d < buffer->rank; d++) {
        int64_t stride = 0, extent = 0;
        require(v, tir_is_const(v->pool, buffer->stride[d], &stride),
                "L2: a stride of a shared buffer is not constant");
        tir_is_const(v->pool, buffer->extent[d], &extent);
        *(stride < 0 ? &low : &high) += (extent - 1) * stride;
    }
    require(v, low >= 0, "L2: a stride of a shared buffer is negative");
    require(v, buffer->offset && tir_is_const(v->pool, buffer->offset, &offset), "L2: a shared buffer has no place");
    require(v, offset >= 0 && offset % (buffer->swizzle ? 128 : element) == 0, "L2: offset of a shared buffer");
    if (v->machine && v->machine->shared_memory && offset + (high + 1) * element > v->machine->shared_memory)
        fail_as(v, DLC_INVALID_ARGUMENT,
                lib_arena_format(v->kernel->arena, "L2: %lld bytes of shared memory, the machine has %lld",
                                 (long long)(offset + (high + 1) * element), (long long)v->machine->shared_memory));
}

/* L1 */
static void check_name_and_order(verifier *v, uint32_t id) {
    const tir_kernel *kernel = v->kernel;
    const tir_buffer *buffer = &kernel->buffers.data[id];
    const bool is_argument = buffer->scope == TIR_SCOPE_ARG;
    require(v, buffer->name && buffer->name[0], "L1: a buffer has no name");
    for (uint32_t i = 0; i < id; i++)
        require(v, strcmp(kernel->buffers.data[i].name, buffer->name) != 0, "L1: two buffers have one name");
    require(v, is_argument == ((int)id < kernel->arguments) && (!is_argument || buffer->argument == (int)id),
            "L1: arguments do not come first, in order");
}

/* L2, of a buffer in the workspace or in local scratch. elements: its number of elements, if that is constant. */
static void check_scratch(verifier *v, const tir_buffer *buffer, bool constant, int64_t elements) {
    tir_expr scope_size = buffer->scope == TIR_SCOPE_WORKSPACE ? v->kernel->workspace_size : v->kernel->local_size;
    int64_t size;
    require(v, scope_size != 0, "L2: a scope with buffers has no size");
    int64_t offset = 0, element = (int64_t)lib_dtype_size(buffer->dtype);
    if (buffer->offset) check_expr(v, buffer->offset, TIR_INDEX, "an offset");
    bool known = !buffer->offset || tir_is_const(v->pool, buffer->offset, &offset);
    require(v, !known || (offset >= 0 && offset % element == 0), "L2: offset of a scratch buffer");
    if (constant && known && tir_is_const(v->pool, scope_size, &size))
        require(v, offset <= size && elements <= (size - offset) / element, "L2: a scratch buffer exceeds its scope");
}

static void check_buffer_facts(verifier *v, uint32_t id) {
    const tir_buffer *buffer = &v->kernel->buffers.data[id];
    bool fixed =
        buffer->scope == TIR_SCOPE_REG || buffer->scope == TIR_SCOPE_STACK || buffer->scope == TIR_SCOPE_SHARED;
    int64_t elements = 1, extent;
    bool constant = true;
    check_name_and_order(v, id);
    require(v, buffer->dtype < DLC_DTYPE_COUNT && lib_dtypes[buffer->dtype].usable, "L2: dtype of a buffer");
    require(v, buffer->rank >= 0 && buffer->rank <= 16, "L2: rank of a buffer");
    for (int d = 0; d < buffer->rank; d++) {
        check_expr(v, buffer->extent[d], TIR_INDEX, "an extent");
        check_expr(v, buffer->stride[d], TIR_INDEX, "a stride");
        constant = constant && tir_is_const(v->pool, buffer->extent[d], &extent) &&
                   !__builtin_mul_overflow(elements, extent > 0 ? extent : 0, &elements);
    }
    require(v, !fixed || constant, "L2: extents of a reg, stack or shared buffer are not constant");
    if (buffer->scope == TIR_SCOPE_SHARED) check_shared(v, buffer);
    require(v, buffer->scope == TIR_SCOPE_SHARED || !buffer->swizzle, "L2: only shared buffers are swizzled");
    if (buffer->scope == TIR_SCOPE_WORKSPACE || buffer->scope == TIR_SCOPE_LOCAL)
        check_scratch(v, buffer, constant, elements);
}

/* ---- registers */

int64_t tir_vectors_of(const tir_machine *machine, dlc_dtype dtype, int rank, const int64_t *extent, uint32_t lanes) {
    int64_t vectors = 1, bytes = (int64_t)lib_dtype_size(dtype);
    for (int d = 0; d < rank; d++) *(lanes >> d & 1 ? &bytes : &vectors) *= extent[d];
    if (!lanes) return vectors;
    const int64_t whole = bytes / machine->vector_bytes, rest = bytes % machine->vector_bytes;
    const bool pairs = machine->row_pairs && whole && 2 * rest <= machine->vector_bytes;
    return vectors * whole + (rest ? pairs ? (vectors + 1) / 2 : vectors : 0);
}

static int64_t vectors_of(const verifier *v, uint32_t id) {
    const tir_buffer *buffer = &v->kernel->buffers.data[id];
    int64_t extent[TIR_MAX_PHYSICAL];
    for (int d = 0; d < buffer->rank; d++) {
        extent[d] = 1;
        tir_is_const(v->pool, buffer->extent[d], &extent[d]);
    }
    return tir_vectors_of(v->machine, buffer->dtype, buffer->rank, extent, v->regs[id].lanes);
}

/* A value used inside and outside of a loop is live throughout the loop. */
static void extend_over_loops(const verifier *v, reg_use *use) {
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < v->loops.count; i++) {
            const reg_use *loop = &v->loops.data[i];
            bool ends_inside = use->first < loop->first && use->last >= loop->first && use->last < loop->last;
            bool begins_inside = use->last > loop->last && use->first > loop->first && use->first <= loop->last;
            if (ends_inside) use->last = loop->last;
            if (begins_inside) use->first = loop->first;
            changed = changed || ends_inside || begins_inside;
        }
    }
}

/* Live vectors where use `at` begins. own: the uses before extension over enclosing loops. */
static int64_t live_vectors(const verifier *v, const reg_use *uses, const reg_use *own, uint32_t count, uint32_t at) {
    int64_t live = 0, leaving = 0, begins = vectors_of(v, uses[at].buffer);
    for (uint32_t i = 0; i < count; i++) {
        if (i == at || uses[i].first > uses[at].first || uses[i].last < uses[at].first) continue;
        if (own[i].last == own[at].first) /* the last use of one is in the statement that makes the other */
            leaving += vectors_of(v, uses[i].buffer);
        else
            live += vectors_of(v, uses[i].buffer);
    }
    return live + (begins > leaving ? begins : leaving);
}

static void check_registers(verifier *v) {
    lib_arena *arena = v->kernel->arena;
    if (!v->machine || v->machine->vector_bytes <= 0 || v->machine->vector_registers <= 0) return;
    lib_vec(reg_use) uses = {0};
    for (uint32_t i = 0; i < v->past.count; i++) lib_vec_push(arena, &uses, v->past.data[i]);
    for (uint32_t i = 0; i < v->kernel->buffers.count; i++)
        if (v->regs[i].first >= 0) lib_vec_push(arena, &uses, v->regs[i]);
    reg_use *own = LIB_NEW_ARRAY(arena, reg_use, uses.count + 1); /* before extension over enclosing loops */
    for (uint32_t i = 0; i < uses.count; i++) {
        own[i] = uses.data[i];
        extend_over_loops(v, &uses.data[i]);
    }
    for (uint32_t at = 0; at < uses.count; at++) { /* pressure is highest where some lifetime begins */
        const int64_t live = live_vectors(v, uses.data, own, uses.count, at);
        if (live <= v->machine->vector_registers) continue;
        if (v->overfull) *v->overfull = true;
        fail_as(v, DLC_INVALID_ARGUMENT, /* a mistake of the schedule */
                lib_arena_format(arena, "L13: %lld live vectors in reg buffers, the machine has %d registers",
                                 (long long)live, (int)v->machine->vector_registers));
    }
}

/* ---- phases */

static void check_phase(verifier *v, const tir_phase *phase) {
    tir_interval tasks = tir_range(v->pool, phase->tasks);
    for (uint32_t i = 0; i < v->kernel->buffers.count; i++) v->regs[i] = (reg_use){i, -1, -1, 0};
    v->loops.count = v->past.count = v->opened.count = 0;
    v->number = 0;
    v->phase = phase;
    v->registers = NULL;
    v->stmt = NULL;
    v->threads = tir_threads(v->pool, phase->body) > 1;
    bind(v, phase->task, TIR_VAR_LOOP, FREE, (tir_interval){0, tasks.high > 0 ? tasks.high - 1 : 0});
    check_list(v, phase->body);
    v->stmt = NULL;
    unbind(v, phase->task);
    if (!v->threads) check_registers(v); /* else every thread has registers of its own */
}

static void check_phases(verifier *v) {
    const tir_kernel *kernel = v->kernel;
    int64_t repeat_end = 0;
    for (uint32_t i = 0; i < kernel->phases.count; i++) { /* before any iteration or task variable is bound */
        check_expr(v, kernel->phases.data[i].tasks, TIR_INDEX, "the number of tasks");
        if (kernel->phases.data[i].repeat) check_expr(v, kernel->phases.data[i].repeat, TIR_INDEX, "a repeat");
    }
    const tir_phase *repeat = NULL;
    for (uint32_t i = 0; i < kernel->phases.count; i++) {
        const tir_phase *phase = &kernel->phases.data[i];
        if (repeat && i >= repeat_end) {
            unbind(v, repeat->iteration);
            repeat = NULL;
        }
        if (phase->repeat) {
            require(v, !repeat, "L12: a repeat inside another");
            repeat = phase;
            repeat_end = (int64_t)i + phase->repeat_phases;
            require(v, phase->repeat_phases >= 1 && repeat_end <= (int64_t)kernel->phases.count,
                    "L12: a repeat covers phases that do not exist");
            tir_interval range = tir_range(v->pool, phase->repeat);
            bind(v, phase->iteration, TIR_VAR_LOOP, FREE, (tir_interval){0, range.high > 0 ? range.high - 1 : 0});
        }
        check_phase(v, phase);
    }
}

void tir_kernel_verify(lib_scope *scope, tir_kernel *kernel, const tir_machine *machine, bool *overfull) {
    lib_arena *arena = kernel->arena;
    verifier v = {.scope = scope, .kernel = kernel, .pool = kernel->pool, .machine = machine, .overfull = overfull};
    v.state = LIB_NEW_ARRAY(arena, uint8_t, kernel->pool->variables.count);
    v.seen = LIB_NEW_ARRAY(arena, uint8_t, kernel->pool->nodes.count);
    v.read = LIB_NEW_ARRAY(arena, bool, kernel->buffers.count);
    v.written = LIB_NEW_ARRAY(arena, bool, kernel->buffers.count);
    v.spilled = LIB_NEW_ARRAY(arena, bool, kernel->buffers.count);
    v.regs = LIB_NEW_ARRAY(arena, reg_use, kernel->buffers.count);
    for (uint32_t i = 0; i < kernel->params.count; i++) {
        const tir_expr param = kernel->params.data[i];
        bind(&v, param, TIR_VAR_PARAM, FREE,
             (tir_interval){tir_variable_of(v.pool, param)->low, tir_variable_of(v.pool, param)->high});
    }
    for (uint32_t i = 0; i < kernel->buffers.count; i++) check_buffer_facts(&v, i);
    if (kernel->workspace_size) check_expr(&v, kernel->workspace_size, TIR_INDEX, "the workspace's size");
    if (kernel->local_size) check_expr(&v, kernel->local_size, TIR_INDEX, "the local scratch's size");
    check_phases(&v);
    const char *why;
    v.stmt = tir_strided_flaw(arena, kernel, &why);
    if (v.stmt) fail(&v, lib_arena_format(arena, "L18: %s", why));
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        const tir_buffer *buffer = &kernel->buffers.data[i];
        if (buffer->read != v.read[i] || buffer->written != v.written[i])
            fail(&v, lib_arena_format(arena, "L11: buffer %s is %sread and %swritten, its facts say otherwise",
                                      buffer->name, v.read[i] ? "" : "not ", v.written[i] ? "" : "not "));
    }
}
