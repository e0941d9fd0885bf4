/* Loop IR: building, walking and copying kernels. Text is in loop_text.c, the verifier in loop_verify.c, the meaning in
 * interpret.c. */
#include "tir/loop.h"
#include "tir/simplify.h"

const char *const tir_scope_names[] = {"arg", "workspace", "local", "stack", "reg", "shared"};
const char *const tir_loop_kind_names[] = {"", "unroll", "vec", "thread", "lanes", "rows"};

tir_kernel *tir_kernel_new(lib_arena *arena, tir_pool *pool, const char *name) {
    tir_kernel *kernel = LIB_NEW(arena, tir_kernel);
    kernel->name = lib_arena_string(arena, name);
    kernel->pool = pool;
    kernel->arena = arena;
    return kernel;
}

static bool buffer_name_taken(const tir_kernel *kernel, const char *name) {
    for (uint32_t i = 0; i < kernel->buffers.count; i++)
        if (strcmp(kernel->buffers.data[i].name, name) == 0) return true;
    return false;
}

uint32_t tir_kernel_buffer(tir_kernel *kernel, const char *name, dlc_dtype dtype, tir_scope scope, int rank,
                           const tir_expr *extent) {
    tir_pool *pool = kernel->pool;
    tir_buffer buffer;
    memset(&buffer, 0, sizeof buffer);
    if (rank < 0 || rank > (int)(sizeof buffer.extent / sizeof *buffer.extent))
        lib_raise(kernel->arena->scope, DLC_INTERNAL, "kernel %s, buffer %s: rank %d is out of range", kernel->name,
                  name, rank);
    char *unique = lib_arena_string(kernel->arena, name);
    for (int n = 1; buffer_name_taken(kernel, unique); n++) unique = lib_arena_format(kernel->arena, "%s%d", name, n);
    buffer.name = unique;
    buffer.dtype = dtype;
    buffer.scope = scope;
    buffer.rank = rank;
    buffer.argument = scope == TIR_SCOPE_ARG ? kernel->arguments++ : -1;
    buffer.alignment = scope == TIR_SCOPE_ARG ? (int32_t)lib_dtype_size(dtype) : TIR_BUFFER_ALIGNMENT;
    tir_expr stride = tir_index(pool, 1);
    for (int i = rank - 1; i >= 0; i--) {
        buffer.extent[i] = extent[i];
        buffer.stride[i] = stride;
        stride = tir_mul(pool, stride, extent[i]);
    }
    lib_vec_push(kernel->arena, &kernel->buffers, buffer);
    return kernel->buffers.count - 1;
}

tir_stmt *tir_stmt_new(lib_arena *arena, tir_stmt_kind kind) {
    tir_stmt *stmt = LIB_NEW(arena, tir_stmt);
    stmt->kind = kind;
    if (kind == TIR_FOR) stmt->for_.step = 1;
    return stmt;
}

tir_stmt *tir_collective_new(tir_kernel *kernel, const tir_unit *unit) {
    tir_stmt *stmt = tir_stmt_new(kernel->arena, TIR_COLLECTIVE);
    stmt->collective.unit = unit;
    for (int v = 0; v < TIR_UNIT_VARS; v++)
        stmt->collective.var[v] =
            tir_var(kernel->pool, unit->var[v], TIR_VAR_LOOP, TIR_INDEX, 0, (INT64_C(1) << unit->bits[v]) - 1);
    return stmt;
}

tir_interval tir_loop_range(tir_pool *pool, tir_expr lower, tir_expr extent) {
    tir_interval start = tir_range(pool, lower), size = tir_range(pool, extent);
    tir_interval end =
        tir_range(pool, tir_add(pool, lower, extent)); /* often narrower than the sum of the two ranges */
    int64_t high = TIR_UNBOUNDED_HIGH;
    if (start.high < TIR_UNBOUNDED_HIGH && size.high < TIR_UNBOUNDED_HIGH) high = start.high + size.high - 1;
    if (end.high - 1 < high) high = end.high - 1;
    if (high > TIR_UNBOUNDED_HIGH) high = TIR_UNBOUNDED_HIGH;
    return (tir_interval){start.low, high > start.low ? high : start.low};
}

tir_expr tir_loop_variable(tir_pool *pool, const char *name, tir_expr lower, tir_expr extent) {
    tir_interval range = tir_loop_range(pool, lower, extent);
    return tir_var(pool, name, TIR_VAR_LOOP, TIR_INDEX, range.low, range.high);
}

tir_expr tir_stepped_variable(tir_pool *pool, const char *name, tir_expr lower, tir_expr extent, int64_t step) {
    const tir_expr var = tir_loop_variable(pool, name, lower, extent);
    tir_variable *variable = &pool->variables.data[tir_var_id(pool, var)];
    if (step == 1) return var;
    if (variable->high - (step - 1) >= variable->low) variable->high -= step - 1;
    variable->multiple = tir_gcd(step, tir_multiple_of(pool, lower));
    return var;
}

tir_expr tir_let_variable(tir_pool *pool, const char *name, tir_expr value) {
    tir_dtype dtype = tir_dtype_of(pool, value);
    if (dtype != TIR_INDEX) return tir_var(pool, name, TIR_VAR_LET, dtype, TIR_UNBOUNDED_LOW, TIR_UNBOUNDED_HIGH);
    tir_interval range = tir_range(pool, value);
    tir_expr var = tir_var(pool, name, TIR_VAR_LET, dtype, range.low, range.high);
    int64_t multiple = tir_multiple_of(pool, value);
    pool->variables.data[tir_var_id(pool, var)].multiple = multiple > 1 ? multiple : 1;
    return var;
}

void tir_stmt_walk(const tir_stmt *stmt, tir_stmt_visit visit, void *user) {
    for (; stmt; stmt = stmt->next) {
        visit(user, stmt);
        for (; stmt->kind == TIR_LET && !stmt->next && stmt->let.body; visit(user, stmt)) stmt = stmt->let.body;
        switch (stmt->kind) {
        case TIR_FOR: tir_stmt_walk(stmt->for_.body, visit, user); break;
        case TIR_LET: tir_stmt_walk(stmt->let.body, visit, user); break;
        case TIR_IF:
            tir_stmt_walk(stmt->if_.body, visit, user);
            tir_stmt_walk(stmt->if_.otherwise, visit, user);
            break;
        case TIR_INTERLEAVE: tir_stmt_walk(stmt->interleave.body, visit, user); break;
        case TIR_SPILL: tir_stmt_walk(stmt->spill.body, visit, user); break;
        case TIR_STORE:
        case TIR_PREFETCH:
        case TIR_COLLECTIVE:
        case TIR_BARRIER:
        case TIR_COMMIT:
        case TIR_WAIT:
        case TIR_COMMENT: break;
        }
    }
}

int tir_stmt_nesting(lib_arena *scratch, const tir_stmt *list) {
    struct open {
        const tir_stmt *list;
        int depth;
    };
    lib_vec(struct open) open = {0};
    int deepest = 0;
    lib_vec_push(scratch, &open, ((struct open){list, 1}));
    while (open.count) {
        const struct open at = open.data[--open.count];
        if (at.list && at.depth > deepest) deepest = at.depth;
        for (const tir_stmt *stmt = at.list; stmt; stmt = stmt->next) {
            const tir_stmt *inner[2] = {NULL, NULL};
            if (stmt->kind == TIR_FOR) inner[0] = stmt->for_.body;
            if (stmt->kind == TIR_LET) inner[0] = stmt->let.body;
            if (stmt->kind == TIR_INTERLEAVE) inner[0] = stmt->interleave.body;
            if (stmt->kind == TIR_SPILL) inner[0] = stmt->spill.body;
            if (stmt->kind == TIR_IF) inner[0] = stmt->if_.body, inner[1] = stmt->if_.otherwise;
            for (int i = 0; i < 2; i++)
                if (inner[i]) lib_vec_push(scratch, &open, ((struct open){inner[i], at.depth + 1}));
        }
    }
    return deepest;
}

void tir_stmt_exprs(const tir_stmt *stmt, void (*visit)(void *user, tir_expr e), void *user) {
    switch (stmt->kind) {
    case TIR_FOR:
        visit(user, stmt->for_.lower);
        visit(user, stmt->for_.extent);
        break;
    case TIR_LET: visit(user, stmt->let.value); break;
    case TIR_IF: visit(user, stmt->if_.condition); break;
    case TIR_STORE:
        for (int i = 0; i < stmt->store.rank; i++) visit(user, stmt->store.index[i]);
        visit(user, stmt->store.value);
        break;
    case TIR_PREFETCH:
        for (int i = 0; i < stmt->prefetch.rank; i++) visit(user, stmt->prefetch.index[i]);
        break;
    case TIR_COLLECTIVE:
        for (int p = 0; p < stmt->collective.unit->places; p++)
            for (int i = 0; i < stmt->collective.place[p].rank; i++) visit(user, stmt->collective.place[p].index[i]);
        break;
    case TIR_INTERLEAVE:
    case TIR_SPILL:
    case TIR_BARRIER:
    case TIR_COMMIT:
    case TIR_WAIT:
    case TIR_COMMENT: break;
    }
}

/* A substitution and its context. */
typedef struct substitution {
    tir_kernel *kernel;
    int count;
    const tir_expr *from, *to;
} substitution;

static tir_expr replaced(const substitution *s, tir_expr e) {
    return e ? tir_substitute(s->kernel->pool, e, s->count, s->from, s->to) : 0;
}

/* The variable that a copied statement binds: renamed if `to` is a variable; unchanged if it is a value. */
static tir_expr replaced_binder(const substitution *s, tir_expr var) {
    tir_expr e = replaced(s, var);
    return tir_op_of(s->kernel->pool, e) == TIR_VAR ? e : var;
}

static const tir_expr *replaced_index(const substitution *s, int rank, const tir_expr *index) {
    tir_expr *copy = LIB_NEW_ARRAY(s->kernel->arena, tir_expr, (size_t)rank);
    for (int i = 0; i < rank; i++) copy[i] = replaced(s, index[i]);
    return copy;
}

static tir_stmt *substitute_list(const substitution *s, const tir_stmt *stmt) {
    tir_stmt *first = NULL, **link = &first;
    for (; stmt; stmt = stmt->next) {
        tir_stmt *copy = lib_arena_copy(s->kernel->arena, stmt, sizeof *stmt);
        switch (stmt->kind) {
        case TIR_FOR:
            copy->for_.var = replaced_binder(s, stmt->for_.var);
            copy->for_.lower = replaced(s, stmt->for_.lower);
            copy->for_.extent = replaced(s, stmt->for_.extent);
            copy->for_.body = substitute_list(s, stmt->for_.body);
            break;
        case TIR_LET:
            copy->let.var = replaced_binder(s, stmt->let.var);
            copy->let.value = replaced(s, stmt->let.value);
            copy->let.body = substitute_list(s, stmt->let.body);
            break;
        case TIR_IF:
            copy->if_.condition = replaced(s, stmt->if_.condition);
            copy->if_.body = substitute_list(s, stmt->if_.body);
            copy->if_.otherwise = substitute_list(s, stmt->if_.otherwise);
            break;
        case TIR_INTERLEAVE: copy->interleave.body = substitute_list(s, stmt->interleave.body); break;
        case TIR_SPILL: copy->spill.body = substitute_list(s, stmt->spill.body); break;
        case TIR_STORE:
            copy->store.index = replaced_index(s, stmt->store.rank, stmt->store.index);
            copy->store.value = replaced(s, stmt->store.value);
            break;
        case TIR_COLLECTIVE:
            for (int v = 0; v < TIR_UNIT_VARS; v++)
                copy->collective.var[v] = replaced_binder(s, stmt->collective.var[v]);
            for (int p = 0; p < stmt->collective.unit->places; p++) {
                const tir_place *place = &stmt->collective.place[p];
                copy->collective.place[p].index = replaced_index(s, place->rank, place->index);
            }
            break;
        case TIR_PREFETCH: copy->prefetch.index = replaced_index(s, stmt->prefetch.rank, stmt->prefetch.index); break;
        case TIR_BARRIER:
        case TIR_COMMIT:
        case TIR_WAIT:
        case TIR_COMMENT: break;
        }
        *link = copy;
        link = &copy->next;
    }
    *link = NULL;
    return first;
}

tir_stmt *tir_stmt_substitute(tir_kernel *kernel, const tir_stmt *stmt, int count, const tir_expr *from,
                              const tir_expr *to) {
    substitution s = {kernel, count, from, to};
    return substitute_list(&s, stmt);
}

/* State of tir_kernel_mark_access: each node is visited once, with an explicit stack of ids. */
typedef struct access_marker {
    tir_kernel *kernel;
    lib_arena *scratch;
    /* by node id */
    uint8_t *seen;
    lib_vec(tir_expr) stack;
} access_marker;

static void mark_reads(void *user, tir_expr root) {
    access_marker *marker = user;
    const tir_pool *pool = marker->kernel->pool;
    lib_vec_push(marker->scratch, &marker->stack, root);
    while (marker->stack.count) {
        tir_expr e = marker->stack.data[--marker->stack.count];
        if (marker->seen[e]) continue;
        marker->seen[e] = 1;
        const tir_node *node = tir_get(pool, e);
        if (node->op == TIR_LOAD && node->bits < marker->kernel->buffers.count)
            marker->kernel->buffers.data[node->bits].read = true;
        for (int i = 0; i < node->count; i++) lib_vec_push(marker->scratch, &marker->stack, tir_operand(pool, e, i));
    }
}

static void mark_statement(void *user, const tir_stmt *stmt) {
    access_marker *marker = user;
    tir_stmt_exprs(stmt, mark_reads, marker);
    if (stmt->kind == TIR_STORE && stmt->store.buffer < marker->kernel->buffers.count)
        marker->kernel->buffers.data[stmt->store.buffer].written = true;
    for (int p = 0; stmt->kind == TIR_COLLECTIVE && p < stmt->collective.unit->places; p++) {
        uint32_t id = stmt->collective.place[p].buffer;
        if (id >= marker->kernel->buffers.count) continue;
        tir_buffer *buffer = &marker->kernel->buffers.data[id];
        buffer->written = buffer->written || p == 0;
        buffer->read = buffer->read || p > 0 || stmt->collective.unit->kind == TIR_MULTIPLY;
    }
}

void tir_kernel_mark_access(tir_kernel *kernel) {
    access_marker marker = {.kernel = kernel, .scratch = kernel->arena};
    marker.seen = LIB_NEW_ARRAY(kernel->arena, uint8_t, kernel->pool->nodes.count);
    for (uint32_t i = 0; i < kernel->buffers.count; i++)
        kernel->buffers.data[i].read = kernel->buffers.data[i].written = false;
    for (uint32_t i = 0; i < kernel->phases.count; i++)
        tir_stmt_walk(kernel->phases.data[i].body, mark_statement, &marker);
}

tir_expr tir_buffer_size(tir_kernel *kernel, const tir_buffer *buffer) {
    tir_pool *pool = kernel->pool;
    tir_expr bytes = tir_index(pool, (int64_t)lib_dtype_size(buffer->dtype)), zero = tir_index(pool, 0);
    tir_expr unit = tir_index(pool, TIR_BUFFER_ALIGNMENT);
    for (int i = 0; i < buffer->rank; i++) {
        tir_interval extent = tir_range(pool, buffer->extent[i]);
        int64_t ignored;
        if (extent.high >= TIR_UNBOUNDED_HIGH)
            lib_raise(kernel->arena->scope, DLC_UNSUPPORTED,
                      "kernel %s: the size of scratch buffer %s is more than there are addresses", kernel->name,
                      buffer->name);
        if (extent.high > 0 && __builtin_mul_overflow(tir_range(pool, bytes).high, extent.high, &ignored))
            lib_raise(kernel->arena->scope, DLC_UNSUPPORTED,
                      "kernel %s: the size of scratch buffer %s is more than there are addresses", kernel->name,
                      buffer->name);
        bytes = tir_mul(pool, bytes, extent.low < 0 ? tir_max(pool, buffer->extent[i], zero) : buffer->extent[i]);
    }
    return tir_mul(pool, tir_ceil_div(pool, bytes, unit), unit);
}

tir_expr tir_kernel_extend(tir_kernel *kernel, tir_scope scope, tir_expr end, tir_expr size) {
    int64_t ignored;
    if (__builtin_add_overflow(tir_range(kernel->pool, end).high, tir_range(kernel->pool, size).high, &ignored))
        lib_raise(kernel->arena->scope, DLC_UNSUPPORTED, "kernel %s: the size of %s is more than there are addresses",
                  kernel->name, tir_scope_names[scope]);
    return tir_add(kernel->pool, end, size);
}

int64_t tir_kernel_place(tir_kernel *kernel, tir_scope scope) {
    tir_pool *pool = kernel->pool;
    tir_expr end = tir_index(pool, 0);
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        if (kernel->buffers.data[i].scope != scope) continue;
        kernel->buffers.data[i].offset = end;
        end = tir_kernel_extend(kernel, scope, end, tir_buffer_size(kernel, &kernel->buffers.data[i]));
    }
    int64_t most = tir_range(pool, end).high;
    if (scope == TIR_SCOPE_WORKSPACE) {
        kernel->workspace_bytes = most;
        kernel->workspace_size = end;
    } else if (scope == TIR_SCOPE_LOCAL) {
        kernel->local_size = end;
    }
    return most;
}

/* ---- threads */

static int64_t threads_of_statement(const tir_pool *pool, const tir_stmt *stmt) {
    int64_t trips = 1, most = 1, other;
    switch (stmt->kind) {
    case TIR_FOR:
        if (stmt->for_.loop == TIR_THREAD) tir_is_const(pool, stmt->for_.extent, &trips);
        return __builtin_mul_overflow(trips, tir_threads(pool, stmt->for_.body), &most) ? INT64_MAX : most;
    case TIR_LET: return tir_threads(pool, stmt->let.body);
    case TIR_IF:
        most = tir_threads(pool, stmt->if_.body);
        other = tir_threads(pool, stmt->if_.otherwise);
        return most > other ? most : other;
    case TIR_INTERLEAVE: return tir_threads(pool, stmt->interleave.body);
    case TIR_SPILL: return tir_threads(pool, stmt->spill.body);
    case TIR_COLLECTIVE: return stmt->collective.unit->lanes;
    case TIR_STORE:
    case TIR_PREFETCH:
    case TIR_BARRIER:
    case TIR_COMMIT:
    case TIR_WAIT:
    case TIR_COMMENT: break;
    }
    return 1;
}

int64_t tir_threads(const tir_pool *pool, const tir_stmt *list) {
    int64_t most = 1;
    for (; list; list = list->next) {
        int64_t threads = threads_of_statement(pool, list);
        if (threads > most) most = threads;
    }
    return most;
}

int64_t tir_thread_stride(const tir_pool *pool, const tir_stmt *loop) {
    return tir_threads(pool, loop->for_.body);
}

/* ---- exact reductions */

bool tir_loads_stored(const tir_kernel *kernel, const tir_stmt *stmt, tir_expr e) {
    const tir_node *node = tir_get(kernel->pool, e);
    if (stmt->kind != TIR_STORE || node->op != TIR_LOAD || node->guarded || node->bits != stmt->store.buffer ||
        node->count != stmt->store.rank)
        return false;
    for (int i = 0; i < node->count; i++)
        if (tir_operand(kernel->pool, e, i) != stmt->store.index[i]) return false;
    return true;
}

/* Is this an operator for which any order and grouping gives equal bits? */
static bool is_exact(const tir_node *node) {
    switch (node->op) {
    case TIR_MIN:
    case TIR_MAX:
    case TIR_AND:
    case TIR_OR:
    case TIR_XOR: return true;
    case TIR_ADD:
    case TIR_MUL: return node->dtype < DLC_DTYPE_COUNT && !lib_dtype_is_float((dlc_dtype)node->dtype);
    default: return false;
    }
}

enum { ABSENT = 1, PRESENT = 2 };

typedef struct reduction_search {
    const tir_kernel *kernel;
    const tir_stmt *stmt;
    /* by node: whether it contains a load of the stored element; 0: not visited yet */
    uint8_t *found;
} reduction_search;

static void search_loads(reduction_search *s, lib_arena *scratch, tir_expr root) {
    const tir_pool *pool = s->kernel->pool;
    lib_vec(tir_expr) work = {0};
    lib_vec_push(scratch, &work, root);
    while (work.count) {
        tir_expr e = work.data[work.count - 1];
        bool ready = true, present = tir_loads_stored(s->kernel, s->stmt, e);
        for (int i = 0; i < tir_get(pool, e)->count && !s->found[e]; i++) {
            tir_expr operand = tir_operand(pool, e, i);
            present = present || s->found[operand] == PRESENT;
            if (s->found[operand]) continue;
            lib_vec_push(scratch, &work, operand);
            ready = false;
        }
        if (!ready) continue;
        if (!s->found[e]) s->found[e] = present ? PRESENT : ABSENT;
        work.count--;
    }
}

/* Whether e is the element's old value combined with other values by one operator (*op, once it is known). */
static bool carries(const reduction_search *s, tir_expr e, tir_op *op, int depth) {
    enum { DEPTH_MAX = 8 }; /* operators between a store and its load */
    const tir_pool *pool = s->kernel->pool;
    const tir_node *node = tir_get(pool, e);
    if (tir_loads_stored(s->kernel, s->stmt, e)) return true;
    if (depth == DEPTH_MAX || s->found[e] != PRESENT) return false;
    if (node->op == TIR_SELECT)
        return s->found[tir_operand(pool, e, 0)] != PRESENT && carries(s, tir_operand(pool, e, 1), op, depth + 1) &&
               carries(s, tir_operand(pool, e, 2), op, depth + 1);
    if (!is_exact(node) || (*op != TIR_CONST && *op != (tir_op)node->op)) return false;
    *op = (tir_op)node->op;
    tir_expr first = tir_operand(pool, e, 0), second = tir_operand(pool, e, 1);
    if ((s->found[first] == PRESENT) == (s->found[second] == PRESENT)) return false;
    return carries(s, s->found[first] == PRESENT ? first : second, op, depth + 1);
}

bool tir_is_exact_reduction(lib_arena *scratch, const tir_kernel *kernel, const tir_stmt *stmt) {
    if (stmt->kind != TIR_STORE) return false;
    const tir_expr value = stmt->store.value;
    const tir_node *node = tir_get(kernel->pool, value);
    if (node->op != TIR_SELECT && !is_exact(node)) return false; /* most stores end here */
    reduction_search search = {.kernel = kernel, .stmt = stmt};
    search.found = lib_arena_array(scratch, (size_t)value + 1, sizeof *search.found); /* operands have smaller ids */
    search_loads(&search, scratch, value);
    tir_op op = TIR_CONST; /* none yet */
    return carries(&search, value, &op, 0);
}

tir_expr tir_reduced_operand(const tir_kernel *kernel, const tir_stmt *stmt) {
    const tir_pool *pool = kernel->pool;
    if (!is_exact(tir_get(pool, stmt->store.value))) return 0;
    const tir_expr left = tir_operand(pool, stmt->store.value, 0), right = tir_operand(pool, stmt->store.value, 1);
    return tir_loads_stored(kernel, stmt, left) ? right : tir_loads_stored(kernel, stmt, right) ? left : 0;
}
