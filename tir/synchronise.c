/* Barriers between writes of a block's threads and accesses of others. One traversal in the order of execution keeps the buffers read and
 * written since the last barrier; a statement that conflicts with these gets a barrier before it. Loops are traversed twice, the second
 * time as the next iteration. Buffers count as a whole, together with those that share their memory: elements and threads are not
 * distinguished. Writes of asynchronous stores are visible to other threads after a barrier after the wait, not after the store; in between
 * other parts of the buffer may be read (a pipeline's other stages). */
#include "tir/loop.h"

typedef struct access_set {
    /* by buffer; async: stores that were not waited for */
    bool *read, *written, *async;
} access_set;

typedef struct synchroniser {
    tir_kernel *kernel;
    lib_arena *arena;
    /* since the last barrier */
    access_set pending;
    /* of the whole phase */
    access_set phase;
    /* by node: the last collection that visited it */
    uint32_t *seen;
    uint32_t serial;
    lib_vec(tir_expr) stack;
} synchroniser;

static bool is_shared(const tir_buffer *buffer) {
    return buffer->scope != TIR_SCOPE_REG && buffer->scope != TIR_SCOPE_STACK;
}

static access_set new_set(synchroniser *s) {
    return (access_set){LIB_NEW_ARRAY(s->arena, bool, s->kernel->buffers.count + 1),
                        LIB_NEW_ARRAY(s->arena, bool, s->kernel->buffers.count + 1),
                        LIB_NEW_ARRAY(s->arena, bool, s->kernel->buffers.count + 1)};
}

/* Clears a set after a barrier; pending asynchronous stores stay. */
static void clear(synchroniser *s, access_set *set) {
    memset(set->read, 0, s->kernel->buffers.count * sizeof(bool));
    memset(set->written, 0, s->kernel->buffers.count * sizeof(bool));
}

static void join(synchroniser *s, access_set *set, const access_set *other) {
    for (uint32_t i = 0; i < s->kernel->buffers.count; i++) {
        set->read[i] |= other->read[i];
        set->written[i] |= other->written[i];
        set->async[i] |= other->async[i];
    }
}

/* Do the two sets of accesses need a barrier between them? Not for a buffer that no statement of the phase reads: each of its elements is
 * written by one thread. */
static bool meet(synchroniser *s, const access_set *before, const access_set *now) {
    for (uint32_t i = 0; i < s->kernel->buffers.count; i++) {
        if (!s->phase.read[i]) continue;
        const bool writes = now->written[i] || now->async[i];
        if ((before->written[i] && (now->read[i] || writes)) || (before->read[i] && writes) ||
            (before->async[i] && now->written[i]))
            return true;
    }
    return false;
}

/* After a wait, pending asynchronous stores count as ordinary writes. Unless `all` groups are complete they also stay pending, since which
 * stores belong to which group is not tracked. */
static void finish(synchroniser *s, access_set *set, bool all) {
    for (uint32_t i = 0; i < s->kernel->buffers.count; i++) {
        set->written[i] |= set->async[i];
        if (all) set->async[i] = false;
    }
}

/* ---- accesses of a statement */

typedef struct collection {
    synchroniser *s;
    access_set *set;
} collection;

/* Adds a buffer, and those that share its memory, to a set. */
static void mark(synchroniser *s, bool *set, uint64_t buffer) {
    set[buffer] = true;
    if (s->kernel->buffers.data[buffer].scope != TIR_SCOPE_SHARED) return;
    for (uint32_t i = 0; i < s->kernel->buffers.count; i++)
        if (tir_shared_overlap(s->kernel, i, (uint32_t)buffer)) set[i] = true;
}

static void collect_loads(void *user, tir_expr root) {
    const collection *c = user;
    synchroniser *s = c->s;
    const tir_pool *pool = s->kernel->pool;
    lib_vec_push(s->arena, &s->stack, root);
    while (s->stack.count) {
        tir_expr e = s->stack.data[--s->stack.count];
        if (s->seen[e] == s->serial) continue;
        s->seen[e] = s->serial;
        const tir_node *node = tir_get(pool, e);
        if (node->op == TIR_LOAD && is_shared(&s->kernel->buffers.data[node->bits])) mark(s, c->set->read, node->bits);
        for (int i = 0; i < node->count; i++) lib_vec_push(s->arena, &s->stack, tir_operand(pool, e, i));
    }
}

static void collect(void *user, const tir_stmt *stmt) {
    const collection *c = user;
    tir_stmt_exprs(stmt, collect_loads, user);
    if (stmt->kind == TIR_STORE && is_shared(&c->s->kernel->buffers.data[stmt->store.buffer]))
        mark(c->s, stmt->store.async ? c->set->async : c->set->written, stmt->store.buffer);
    for (int p = 0; stmt->kind == TIR_COLLECTIVE && p < stmt->collective.unit->places; p++) {
        const uint32_t buffer = stmt->collective.place[p].buffer;
        if (is_shared(&c->s->kernel->buffers.data[buffer])) mark(c->s, p ? c->set->read : c->set->written, buffer);
    }
}

/* ---- placing barriers */

static tir_stmt *synchronise_list(synchroniser *s, tir_stmt *list);

static bool writes_any(const synchroniser *s, const access_set *set) {
    for (uint32_t i = 0; i < s->kernel->buffers.count; i++)
        if ((set->written[i] || set->async[i]) && s->phase.read[i]) return true;
    return false;
}

/* The accesses of the statement alone, without later statements; includes those inside thread loops and inside loops that only read: a
 * barrier goes before these, not into them. */
static access_set touched(synchroniser *s, const tir_stmt *stmt) {
    access_set set = new_set(s), inside = new_set(s);
    s->serial++;
    collect(&(collection){s, &set}, stmt);
    if (stmt->kind != TIR_FOR) return set;
    tir_stmt_walk(stmt->for_.body, collect, &(collection){s, &inside});
    if (stmt->for_.loop == TIR_THREAD || !writes_any(s, &inside)) join(s, &set, &inside);
    return set;
}

/* Inside a thread loop whose iterations are whole warps, each warp is a block of its own. */
static void synchronise_warps(synchroniser *s, tir_stmt *loop) {
    while (loop && loop->kind == TIR_FOR && loop->for_.loop == TIR_THREAD) {
        tir_stmt *body = loop->for_.body;
        bool chain = body && !body->next && body->kind == TIR_FOR && body->for_.loop == TIR_THREAD;
        if (!chain && tir_threads(s->kernel->pool, body) > 1) {
            access_set around = s->pending;
            s->pending = new_set(s);
            loop->for_.body = synchronise_list(s, body);
            s->pending = around;
        }
        loop = chain ? body : NULL;
    }
}

static void synchronise_inside(synchroniser *s, tir_stmt *stmt) {
    if (stmt->kind == TIR_FOR && stmt->for_.loop == TIR_THREAD) {
        synchronise_warps(s, stmt);
    } else if (stmt->kind == TIR_FOR) {
        for (int pass = 0; pass < 2; pass++) stmt->for_.body = synchronise_list(s, stmt->for_.body);
    } else if (stmt->kind == TIR_LET) {
        stmt->let.body = synchronise_list(s, stmt->let.body);
    } else if (stmt->kind == TIR_IF) {
        access_set before = new_set(s), after = new_set(s);
        join(s, &before, &s->pending);
        stmt->if_.body = synchronise_list(s, stmt->if_.body);
        join(s, &after, &s->pending);
        s->pending = before;
        stmt->if_.otherwise = synchronise_list(s, stmt->if_.otherwise);
        join(s, &s->pending, &after);
    }
}

static tir_stmt *synchronise_list(synchroniser *s, tir_stmt *list) {
    for (tir_stmt **link = &list; *link; link = &(*link)->next) {
        if ((*link)->kind == TIR_BARRIER) {
            clear(s, &s->pending);
            continue;
        }
        if ((*link)->kind == TIR_WAIT) {
            finish(s, &s->pending, (*link)->wait.groups == 0);
            continue;
        }
        access_set now = touched(s, *link);
        if (meet(s, &s->pending, &now)) {
            tir_stmt *barrier = tir_stmt_new(s->kernel->arena, TIR_BARRIER);
            barrier->next = *link;
            *link = barrier;
            link = &barrier->next;
            clear(s, &s->pending);
        }
        join(s, &s->pending, &now);
        synchronise_inside(s, *link);
    }
    return list;
}

void tir_kernel_synchronise(tir_kernel *kernel) {
    synchroniser s = {.kernel = kernel, .arena = kernel->arena};
    s.seen = LIB_NEW_ARRAY(kernel->arena, uint32_t, kernel->pool->nodes.count);
    for (uint32_t i = 0; i < kernel->phases.count; i++) {
        tir_phase *phase = &kernel->phases.data[i];
        if (tir_threads(kernel->pool, phase->body) <= 1) continue;
        s.pending = new_set(&s);
        s.phase = new_set(&s);
        s.serial++;
        tir_stmt_walk(phase->body, collect, &(collection){&s, &s.phase});
        phase->body = synchronise_list(&s, phase->body);
    }
}
