/* Asynchronous copies from memory to shared memory: a vec loop whose elements are contiguous on both sides is copied in chunks of 16, 8 or
 * 4 bytes, as wide as the known alignment of both sides allows; if a guard ends within a chunk, the rest of the chunk is zeros. All other
 * asynchronous stores become ordinary stores, which complete earlier than required. */
#include "targets/cuda/emit.h"
#include "tir/region.h"

enum { TERMS = 16, NARROWEST = 4, WIDEST = 16 };

typedef struct copy {
    emitter *e;
    const tir_stmt *store;
    /* offsets of the first element */
    tir_expr to, from;
    /* condition under which elements are copied or zeroed at all; 0: always */
    tir_expr condition;
    /* condition under which anything is read; 0: always */
    tir_expr whole;
    /* number of elements that are read (its value may exceed the chunk or be negative); 0: all */
    tir_expr count;
    /* bytes of an element and of a chunk */
    int size, width;
} copy;

static tir_expr conjoin(tir_pool *pool, tir_expr all, tir_expr term) {
    return all ? tir_and(pool, all, term) : term;
}

/* Splits a guard into terms that are the same for all elements and a limit, v < limit, for a prefix of them; false: it has other terms. */
static bool split_guard(copy *c, tir_expr guard, tir_expr var) {
    tir_pool *pool = c->e->pool;
    tir_expr terms[TERMS], zero = tir_index(pool, 0);
    int count = tir_conjuncts(pool, guard, terms, TERMS);
    if (count == TERMS) return false;
    for (int i = 0; i < count; i++) {
        if (!var || !tir_uses(pool, terms[i], var)) {
            c->whole = conjoin(pool, c->whole, terms[i]);
            continue;
        }
        if (tir_op_of(pool, terms[i]) != TIR_LT || tir_dtype_of(pool, tir_operand(pool, terms[i], 0)) != TIR_INDEX)
            return false;
        tir_expr rest = tir_sub(pool, tir_operand(pool, terms[i], 0), tir_operand(pool, terms[i], 1));
        rest = tir_sub(pool, rest, var);
        if (tir_uses(pool, rest, var)) return false;
        tir_expr limit = tir_sub(pool, zero, rest);
        c->count = c->count ? tir_min(pool, c->count, limit) : limit;
    }
    return true;
}

/* Bytes of the widest chunk that divides the elements' bytes and the known alignment of both sides; less than NARROWEST: there is none. */
static int chunk_width(const copy *c, int64_t trips) {
    const tir_kernel *kernel = c->e->kernel;
    const tir_node *load = tir_get(c->e->pool, c->store->store.value);
    const tir_buffer *to = &kernel->buffers.data[c->store->store.buffer], *from = &kernel->buffers.data[load->bits];
    const int64_t a = tir_multiple_of(c->e->pool, c->to) * c->size, b = tir_multiple_of(c->e->pool, c->from) * c->size;
    int width = WIDEST;
    while (width >= NARROWEST &&
           (trips * c->size % width || from->alignment % width || to->alignment % width || a % width || b % width))
        width /= 2;
    return width;
}

/* Sets *c to the copy that the store makes; false: it cannot be asynchronous. `var`: variable of the vec loop; 0: none. */
static bool find_copy(copy *c, tir_expr var, int64_t trips) {
    emitter *e = c->e;
    tir_expr index[16], value = c->store->store.value, first = tir_index(e->pool, 0);
    const tir_node load = *tir_get(e->pool, value);
    const int rank = load.count - (load.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(e->pool, value, d);
    tir_expr to = print_offset(e, c->store->store.buffer, c->store->store.rank, c->store->store.index);
    tir_expr from = print_offset(e, (uint32_t)load.bits, rank, index);
    c->size = (int)lib_dtype_size(e->kernel->buffers.data[c->store->store.buffer].dtype);
    c->to = var ? tir_substitute(e->pool, to, 1, &var, &first) : to;
    c->from = var ? tir_substitute(e->pool, from, 1, &var, &first) : from;
    if (var && (tir_sub(e->pool, to, c->to) != var || tir_sub(e->pool, from, c->from) != var)) return false;
    if (load.guarded && !split_guard(c, tir_operand(e->pool, value, rank), var)) return false;
    c->width = chunk_width(c, trips);
    return c->width >= NARROWEST && c->width >= c->size;
}

static const char *bytes_text(const copy *c, int64_t at) {
    emitter *e = c->e;
    const int step = c->width / c->size;
    const char *bytes = lib_arena_format(e->arena, "%d", c->width);
    if (c->count) {
        tir_expr left = tir_sub(e->pool, c->count, tir_index(e->pool, at));
        left = tir_max(e->pool, tir_min(e->pool, left, tir_index(e->pool, step)), tir_index(e->pool, 0));
        bytes = print_value(e, tir_mul(e->pool, left, tir_index(e->pool, c->size)));
    }
    if (!c->whole) return bytes;
    return lib_arena_format(e->arena, "%s ? %s : 0", print_atom(e, c->whole), bytes);
}

static void print_chunks(copy *c, int64_t trips) {
    emitter *e = c->e;
    const int64_t group = e->threads.count ? e->threads.loop[e->threads.count - 1].stride : e->block;
    const uint32_t to = c->store->store.buffer, from = (uint32_t)tir_get(e->pool, c->store->store.value)->bits;
    const char *who = e->inside ? e->inside : group > 1 ? lib_arena_format(e->arena, "%s == 0", e->relative) : NULL;
    if (c->condition) {
        const char *condition = print_atom(e, c->condition);
        who = who ? lib_arena_format(e->arena, "%s && %s", who, condition) : condition;
    }
    if (who) {
        print_line(e, "if (%s) {", who);
        e->indent++;
        print_forget(e);
    }
    for (int64_t at = 0; at < trips; at += c->width / c->size) {
        tir_expr offset = tir_index(e->pool, at);
        const char *target = print_element(e, to, print_value(e, tir_add(e->pool, c->to, offset)));
        const char *source = print_element(e, from, print_value(e, tir_add(e->pool, c->from, offset)));
        print_line(e, "copy_async<%d>(&%s, &%s, %s);", c->width, target, source, bytes_text(c, at));
    }
    print_forget(e);
    if (!who) return;
    e->indent--;
    print_line(e, "}");
}

bool print_copy(emitter *e, const tir_stmt *stmt) {
    copy c = {.e = e, .store = stmt};
    if (!stmt->store.async || !find_copy(&c, 0, 1)) return false;
    print_chunks(&c, 1);
    return true;
}

/* A copy of the store, with the values of `lets` variables in it. */
static const tir_stmt *substitute_store(emitter *e, const tir_stmt *stmt, int lets, const tir_expr *from,
                                        const tir_expr *to) {
    tir_stmt *store = lib_arena_copy(e->arena, stmt, sizeof *stmt);
    tir_expr *index = LIB_NEW_ARRAY(e->arena, tir_expr, (size_t)stmt->store.rank + 1);
    for (int d = 0; d < stmt->store.rank; d++) index[d] = tir_substitute(e->pool, stmt->store.index[d], lets, from, to);
    store->store.index = index;
    store->store.value = tir_substitute(e->pool, stmt->store.value, lets, from, to);
    return store;
}

bool print_copy_loop(emitter *e, const tir_stmt *loop) {
    copy c = {.e = e};
    tir_expr from[TERMS], to[TERMS];
    int64_t trips, lower;
    int lets = 0;
    if (!tir_is_const(e->pool, loop->for_.extent, &trips) || !tir_is_const(e->pool, loop->for_.lower, &lower) || lower)
        return false;
    for (const tir_stmt *stmt = loop->for_.body; stmt && !c.store;) {
        if (stmt->next) return false;
        if (stmt->kind == TIR_LET && lets < TERMS) {
            from[lets] = stmt->let.var;
            to[lets] = tir_substitute(e->pool, stmt->let.value, lets, from, to);
            lets++;
            stmt = stmt->let.body;
        } else if (stmt->kind == TIR_IF && !stmt->if_.otherwise) {
            tir_expr condition = tir_substitute(e->pool, stmt->if_.condition, lets, from, to);
            if (tir_uses(e->pool, condition, loop->for_.var)) return false;
            c.condition = conjoin(e->pool, c.condition, condition);
            stmt = stmt->if_.body;
        } else if (stmt->kind == TIR_STORE && stmt->store.async) {
            c.store = substitute_store(e, stmt, lets, from, to);
        } else {
            return false;
        }
    }
    if (!c.store || !find_copy(&c, loop->for_.var, trips)) return false;
    print_chunks(&c, trips);
    return true;
}
