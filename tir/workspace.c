/* Offsets of the workspace's buffers. A buffer is dead after the last phase that reads it, so buffers whose ranges of phases
 * are disjoint share memory: a chain of phases takes the memory of its widest link. */
#include "tir/loop.h"

typedef struct life {
    /* phases; first > last: unused */
    int first, last;
} life;

typedef struct place {
    tir_expr size;
    /* the last phase that uses the buffer stored there now */
    int last;
} place;

typedef struct lives {
    const tir_kernel *kernel;
    /* by buffer */
    life *life;
    /* by node: the last phase that visited it, 1-based */
    uint32_t *seen;
    lib_vec(tir_expr) stack;
    /* the phases being scanned: one, or all that are repeated together */
    int first, last;
} lives;

static void note(lives *l, uint32_t buffer) {
    life *at = &l->life[buffer];
    if (l->first < at->first) at->first = l->first;
    if (l->last > at->last) at->last = l->last;
}

static void note_loads(void *user, tir_expr root) {
    lives *l = user;
    const tir_pool *pool = l->kernel->pool;
    lib_vec_push(l->kernel->arena, &l->stack, root);
    while (l->stack.count) {
        const tir_expr e = l->stack.data[--l->stack.count];
        const tir_node *node = tir_get(pool, e);
        if (l->seen[e] == (uint32_t)l->last + 1) continue;
        l->seen[e] = (uint32_t)l->last + 1;
        if (node->op == TIR_LOAD) note(l, (uint32_t)node->bits);
        for (int i = 0; i < node->count; i++) lib_vec_push(l->kernel->arena, &l->stack, tir_operand(pool, e, i));
    }
}

static void note_statement(void *user, const tir_stmt *stmt) {
    lives *l = user;
    tir_stmt_exprs(stmt, note_loads, l);
    if (stmt->kind == TIR_STORE) note(l, stmt->store.buffer);
    if (stmt->kind == TIR_PREFETCH) note(l, stmt->prefetch.buffer);
    for (int p = 0; stmt->kind == TIR_COLLECTIVE && p < stmt->collective.unit->places; p++)
        note(l, stmt->collective.place[p].buffer);
}

static life *find_lives(tir_kernel *kernel) {
    lives l = {.kernel = kernel, .last = -1};
    l.life = LIB_NEW_ARRAY(kernel->arena, life, kernel->buffers.count + 1);
    l.seen = LIB_NEW_ARRAY(kernel->arena, uint32_t, kernel->pool->nodes.count + 1);
    for (uint32_t i = 0; i < kernel->buffers.count; i++) l.life[i] = (life){INT32_MAX, -1};
    for (int p = 0; p < (int)kernel->phases.count; p++) {
        const tir_phase *phase = &kernel->phases.data[p];
        if (p > l.last) l.first = p, l.last = phase->repeat ? p + phase->repeat_phases - 1 : p;
        tir_stmt_walk(phase->body, note_statement, &l);
    }
    return l.life;
}

static int64_t most(const tir_kernel *kernel, tir_expr size) {
    return tir_range(kernel->pool, size).high;
}

/* The offset, free from phase `first` on, whose size fits best; -1: none. */
static int choose_place(const tir_kernel *kernel, const place *places, int count, int first, tir_expr size) {
    int best = -1;
    int64_t least = INT64_MAX;
    for (int i = 0; i < count; i++) {
        if (places[i].last >= first) continue;
        int64_t apart = most(kernel, places[i].size) - most(kernel, size);
        if (apart < 0) apart = -apart;
        if (places[i].size == size) apart = -1;
        if (apart >= least) continue;
        least = apart;
        best = i;
    }
    return best;
}

int64_t tir_kernel_place_workspace(tir_kernel *kernel) {
    tir_pool *pool = kernel->pool;
    const life *use = find_lives(kernel);
    place *places = LIB_NEW_ARRAY(kernel->arena, place, kernel->buffers.count + 1);
    int *chosen = LIB_NEW_ARRAY(kernel->arena, int, kernel->buffers.count + 1), count = 0;
    for (int phase = 0; phase <= (int)kernel->phases.count; phase++)
        for (uint32_t b = 0; b < kernel->buffers.count; b++) {
            if (kernel->buffers.data[b].scope != TIR_SCOPE_WORKSPACE) continue;
            const int first = use[b].last < 0 ? (int)kernel->phases.count : use[b].first; /* unused: after all */
            if (first != phase) continue;
            const tir_expr size = tir_buffer_size(kernel, &kernel->buffers.data[b]);
            int at = choose_place(kernel, places, count, first, size);
            if (at < 0) places[at = count++].size = size;
            places[at].size = tir_max(pool, places[at].size, size);
            places[at].last = use[b].last < first ? first : use[b].last;
            chosen[b] = at;
        }
    tir_expr end = tir_index(pool, 0);
    tir_expr *offset = LIB_NEW_ARRAY(kernel->arena, tir_expr, (size_t)count + 1);
    for (int i = 0; i < count; i++) {
        offset[i] = end;
        end = tir_kernel_extend(kernel, TIR_SCOPE_WORKSPACE, end, places[i].size);
    }
    for (uint32_t b = 0; b < kernel->buffers.count; b++)
        if (kernel->buffers.data[b].scope == TIR_SCOPE_WORKSPACE) kernel->buffers.data[b].offset = offset[chosen[b]];
    kernel->workspace_size = end;
    return kernel->workspace_bytes = tir_range(pool, end).high;
}
