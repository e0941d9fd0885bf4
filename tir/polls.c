/* Which loops poll; see polls.h. From the inside out: a loop whose iterations together are more work than lies between two polls asks
 * every so many iterations, and whatever is around it then sees that much work of it, as what lies behind its last question. */
#include "tir/polls.h"

#include "tir/simplify.h"

typedef struct poll {
    const tir_stmt *loop;
    int64_t every;
} poll;

struct tir_polls {
    lib_vec(poll) polls;
    lib_map by_loop;
    int64_t *tasks; /* [phases] */
};

typedef struct counter {
    lib_arena *arena;
    const tir_pool *pool;
    tir_polls *polls;
    double limit;
    uint32_t *seen; /* by expression: the statement in which it was counted last */
    uint32_t statement;
    bool lanes; /* inside of a vec loop */
    lib_vec(tir_expr) open;
} counter;

enum { MATH = 32, DIVISION = 8, COLLECTIVE = 1024 /* operations that these stand for */ };
enum {
    LANES = 4 /* arithmetic of so many lanes takes as long as that of one, at least; accesses may be a lane at a time */
};

static double operations_of(const counter *c, const tir_node *node) {
    const double one = c->lanes ? 1.0 / (double)LANES : 1.0;
    switch (node->op) {
    case TIR_CONST:
    case TIR_VAR: return 0;
    case TIR_LOAD: return 2;
    case TIR_DIV:
    case TIR_REM: return one * (double)DIVISION;
    default: return (tir_ops[node->op].flags & TIR_MATH) ? one * (double)MATH : one;
    }
}

/* Each shared part once. */
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
        work += operations_of(c, node);
        for (int i = 0; i < (int)node->count; i++) lib_vec_push(c->arena, &c->open, tir_operand(c->pool, e, i));
    }
    return work;
}

static double count_list(counter *c, const tir_stmt *list);

/* `body` operations, as many times as `extent` says at most: those that lie behind the last poll. */
static double repeat(const counter *c, tir_expr extent, double body, int64_t *every) {
    const double trips = (double)tir_facts_of(c->pool, extent).range.high;
    *every = 0;
    if (trips <= 0) return 0;
    if (trips * body <= c->limit) return trips * body;
    *every = body < c->limit ? (int64_t)(c->limit / body) : 1;
    return body < c->limit ? c->limit : body;
}

static double count_loop(counter *c, const tir_stmt *loop) {
    int64_t every;
    const bool outer = c->lanes;
    c->lanes |= loop->for_.loop == TIR_VEC;
    const double body = 1 + count_list(c, loop->for_.body);
    c->lanes = outer;
    const double work = repeat(c, loop->for_.extent, body, &every);
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
        if (stmt->kind == TIR_STORE) work += 1;
        if (stmt->kind == TIR_COLLECTIVE) work += (double)COLLECTIVE;
        if (stmt->kind == TIR_IF) {
            const double body = count_list(c, stmt->if_.body), otherwise = count_list(c, stmt->if_.otherwise);
            work += body > otherwise ? body : otherwise;
        }
        if (stmt->kind != TIR_LET) continue;
        if (next)
            work += count_list(c, stmt->let.body);
        else
            next = stmt->let.body; /* chains of them are long */
    }
    return work;
}

tir_polls *tir_polls_new(lib_arena *arena, const tir_kernel *kernel, int64_t work) {
    tir_polls *polls = LIB_NEW(arena, tir_polls);
    counter c = {.arena = arena, .pool = kernel->pool, .polls = polls, .limit = (double)work};
    polls->tasks = LIB_NEW_ARRAY(arena, int64_t, kernel->phases.count);
    c.seen = LIB_NEW_ARRAY(arena, uint32_t, kernel->pool->nodes.count);
    for (uint32_t p = 0; p < kernel->phases.count; p++) {
        const tir_phase *phase = &kernel->phases.data[p];
        repeat(&c, phase->tasks, 1 + count_list(&c, phase->body), &polls->tasks[p]);
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
