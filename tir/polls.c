/* Which loops have cancellation checks; see polls.h. From the inside out: a loop whose iterations together exceed the work allowed between
 * checks gets a check every so many iterations, and counts for enclosing loops as the work after its last check. */
#include "tir/polls.h"

#include "tir/simplify.h"

typedef struct poll {
    const tir_stmt *loop;
    int64_t every;
} poll;

struct tir_polls {
    lib_vec(poll) polls;
    lib_map by_loop;
    /* [phases] */
    int64_t *tasks;
};

typedef struct counter {
    lib_arena *arena;
    const tir_kernel *kernel;
    const tir_pool *pool;
    tir_polls *polls;
    double limit, lanes;
    /* of the enclosing vec loop; 0: none */
    tir_expr lane;
    /* by expression: the statement in which it was counted last */
    uint32_t *seen;
    uint32_t statement;
    lib_vec(tir_expr) open;
} counter;

enum { MATH = 32, DIVISION = 8, COLLECTIVE = 1024 /* operations that each counts as */ };

/* Whether neighbouring lanes access adjacent elements, or the same one. */
static bool is_straight(const counter *c, uint32_t buffer, int rank, const tir_expr *index) {
    const tir_buffer *b = &c->kernel->buffers.data[buffer];
    int64_t stride = 0;
    for (int i = 0; i < rank; i++) {
        int64_t of_dimension, coefficient;
        if (!tir_uses(c->pool, index[i], c->lane)) continue;
        coefficient = tir_coefficient(c->pool, index[i], c->lane);
        if (coefficient == 0 || !tir_is_const(c->pool, b->stride[i], &of_dimension)) return false;
        if (__builtin_mul_overflow(coefficient, of_dimension, &coefficient) ||
            __builtin_add_overflow(stride, coefficient, &stride))
            return false;
    }
    return stride == 0 || stride == 1;
}

/* How many accesses the access counts as: one, or in a vec loop one for each lane if the lanes' elements are not adjacent. */
static double places(const counter *c, uint32_t buffer, int rank, const tir_expr *index) {
    return !c->lane || is_straight(c, buffer, rank, index) ? 1 : c->lanes;
}

static double places_of_load(const counter *c, tir_expr load, const tir_node *node) {
    tir_expr index[16];
    const int rank = (int)node->count - 2 * (int)node->guarded;
    for (int i = 0; i < rank; i++) index[i] = tir_operand(c->pool, load, i);
    return places(c, (uint32_t)node->bits, rank, index);
}

static double operations_of(const counter *c, tir_expr e, const tir_node *node) {
    switch (node->op) {
    case TIR_CONST:
    case TIR_VAR: return 0;
    case TIR_LOAD: return 2 * places_of_load(c, e, node);
    case TIR_DIV:
    case TIR_REM: return DIVISION;
    default: return (tir_ops[node->op].flags & TIR_MATH) ? MATH : 1;
    }
}

/* Counts each shared subexpression once. */
static void count_expr(void *user, tir_expr e) {
    counter *c = user;
    lib_vec_push(c->arena, &c->open, e);
}

static double count_open(counter *c) {
    double work = 0;
    while (c->open.count) {
        const tir_expr e = c->open.data[--c->open.count];
        if (c->seen[e] == c->statement) continue;
        c->seen[e] = c->statement;
        const tir_node *node = tir_get(c->pool, e);
        work += operations_of(c, e, node);
        for (int i = 0; i < (int)node->count; i++) lib_vec_push(c->arena, &c->open, tir_operand(c->pool, e, i));
    }
    return work;
}

static double count_list(counter *c, const tir_stmt *list);

/* Work of `body` operations repeated at most `extent` times, `lanes` at once; returns the operations after the last check. */
static double repeat(const counter *c, tir_expr extent, double lanes, double body, int64_t *every) {
    const double most = (double)tir_facts_of(c->pool, extent).range.high,
                 trips = most > lanes ? most / lanes : most > 0;
    *every = 0;
    if (trips <= 0) return 0;
    if (trips * body <= c->limit) return trips * body;
    *every = body < c->limit ? (int64_t)(c->limit / body * lanes) : (int64_t)lanes;
    return body < c->limit ? c->limit : body;
}

/* Is the loop one instruction for each of its body's? Otherwise a lanes loop is like any other, as for the interpreter. */
static bool is_vector(const counter *c, const tir_stmt *loop) {
    return loop->for_.loop == TIR_LANES && loop->for_.width > 1 && c->lanes > 1;
}

static double count_loop(counter *c, const tir_stmt *loop) {
    int64_t every;
    const bool vector = is_vector(c, loop), lanes = (loop->for_.loop == TIR_VEC || vector) && !c->lane;
    if (lanes) c->lane = loop->for_.var;
    const double body = 1 + count_list(c, loop->for_.body);
    if (lanes) c->lane = 0;
    if (vector || (loop->for_.loop == TIR_ROWS && c->lanes > 1)) return body;
    const double work = repeat(c, loop->for_.extent, lanes ? c->lanes : (double)loop->for_.step, body, &every);
    if (!every) return work;
    lib_map_insert(c->arena, &c->polls->by_loop, (uint64_t)(uintptr_t)loop, c->polls->polls.count);
    lib_vec_push(c->arena, &c->polls->polls, ((poll){loop, every}));
    return work;
}

static double count_list(counter *c, const tir_stmt *list) {
    double work = 0;
    for (const tir_stmt *stmt = list, *next; stmt; stmt = next) {
        next = stmt->next;
        c->statement++;
        tir_stmt_exprs(stmt, count_expr, c);
        work += count_open(c);
        if (stmt->kind == TIR_FOR) work += count_loop(c, stmt);
        if (stmt->kind == TIR_STORE) work += places(c, stmt->store.buffer, stmt->store.rank, stmt->store.index);
        if (stmt->kind == TIR_COLLECTIVE) work += (double)COLLECTIVE;
        if (stmt->kind == TIR_INTERLEAVE) work += count_list(c, stmt->interleave.body);
        if (stmt->kind == TIR_SPILL) work += count_list(c, stmt->spill.body);
        if (stmt->kind == TIR_IF) {
            const double body = count_list(c, stmt->if_.body), otherwise = count_list(c, stmt->if_.otherwise);
            work += body > otherwise ? body : otherwise;
        }
        if (stmt->kind != TIR_LET) continue;
        if (next)
            work += count_list(c, stmt->let.body);
        else
            next = stmt->let.body; /* not recursive: chains of lets are long */
    }
    return work;
}

tir_polls *tir_polls_new(lib_arena *arena, const tir_kernel *kernel, int64_t work, int lanes) {
    tir_polls *polls = LIB_NEW(arena, tir_polls);
    counter c = {.arena = arena,
                 .kernel = kernel,
                 .pool = kernel->pool,
                 .polls = polls,
                 .limit = (double)work,
                 .lanes = lanes > 1 ? lanes : 1};
    polls->tasks = LIB_NEW_ARRAY(arena, int64_t, kernel->phases.count);
    c.seen = LIB_NEW_ARRAY(arena, uint32_t, kernel->pool->nodes.count);
    for (uint32_t p = 0; p < kernel->phases.count; p++) {
        const tir_phase *phase = &kernel->phases.data[p];
        repeat(&c, phase->tasks, 1, 1 + count_list(&c, phase->body), &polls->tasks[p]);
    }
    return polls;
}

int64_t tir_polls_of_loop(const tir_polls *polls, const tir_stmt *loop) {
    const uint64_t hash = (uint64_t)(uintptr_t)loop;
    for (uint32_t at = lib_map_first(&polls->by_loop, hash); at != LIB_MAP_END;
         at = lib_map_next(&polls->by_loop, hash, at))
        if (polls->polls.data[polls->by_loop.slots[at].value].loop == loop)
            return polls->polls.data[polls->by_loop.slots[at].value].every;
    return 0;
}

int64_t tir_polls_of_tasks(const tir_polls *polls, int phase) {
    return polls->tasks[phase];
}
