/* Memory accesses. Memory is indexed by one offset; registers are arrays of each thread, and elements of other lanes are read by
 * shuffles; contiguous elements of a vec loop are accessed as vectors of up to 16 bytes. */
#include "targets/cuda/emit.h"

/* ---- registers: ownership */

void print_find_registers(emitter *e, const tir_phase *phase) {
    e->threads.count = 0;
    tir_find_registers((tir_kernel *)e->kernel, phase, e->registers); /* the kernel is the emitter's own copy */
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++)
        for (int d = 0; d < e->kernel->buffers.data[i].rank; d++)
            if (e->registers[i].mixed >> d & 1)
                print_unsupported(e, "dimension %d of %s mixes threads and elements of one thread: give it a layout", d,
                                  e->kernel->buffers.data[i].name);
}

static bool is_own(emitter *e, uint32_t buffer, int rank, const tir_expr *index) {
    if (!e->registers[buffer].any) return true;
    if (!e->threads.count || e->threads.loop[e->threads.count - 1].stride != 1)
        return false; /* several threads are active */
    return tir_equal(e->pool, tir_owner(e->pool, &e->threads, &e->registers[buffer], rank, index),
                     tir_thread_number(e->pool, &e->threads)) == TIR_YES;
}

tir_expr print_register_place(emitter *e, uint32_t buffer, const tir_expr *index) {
    return tir_register_place(e->pool, &e->kernel->buffers.data[buffer], &e->registers[buffer], index);
}

/* The element's text in the thread's own array. */
static const char *register_place(emitter *e, uint32_t id, const tir_expr *index) {
    return lib_arena_format(e->arena, "%s[%s]", e->buffer[id], print_value(e, print_register_place(e, id, index)));
}

/* Text of a load from registers: the thread's own register, or a variable that holds the result of a shuffle. The shuffle is a statement of its
 * own: as an operand of &&, || or ?:, which do not evaluate all operands, some lanes would skip it. guarded: the element may be outside of its buffer and is not used then, but all
 * lanes take part in the shuffle, so indices are clamped. */
static const char *register_load(emitter *e, uint32_t id, int rank, const tir_expr *index, bool guarded) {
    const tir_buffer *buffer = &e->kernel->buffers.data[id];
    const char *place = register_place(e, id, index);
    tir_expr inside[16];
    if (is_own(e, id, rank, index)) return place;
    for (int d = 0; d < rank; d++) {
        inside[d] = index[d];
        if (!guarded || !e->registers[id].owned[d]) continue;
        inside[d] = tir_max(e->pool, inside[d], tir_index(e->pool, 0));
        inside[d] = tir_min(e->pool, inside[d], tir_sub(e->pool, buffer->extent[d], tir_index(e->pool, 1)));
    }
    tir_expr warp = tir_index(e->pool, TIR_WARP),
             owner = tir_owner(e->pool, &e->threads, &e->registers[id], rank, inside);
    tir_expr mine = tir_div(e->pool, tir_thread_number(e->pool, &e->threads), warp);
    if (e->block > TIR_WARP && tir_equal(e->pool, tir_div(e->pool, owner, warp), mine) != TIR_YES)
        print_unsupported(e, "%s is read by threads of another warp: it must be in shared memory", buffer->name);
    const char *lane = print_value(e, tir_rem(e->pool, owner, warp)), *name = print_name(e, "other");
    print_line(e, "const %s %s = shuffle(%s, int(%s));", print_type(e, (tir_dtype)buffer->dtype), name, place, lane);
    return name;
}

typedef struct shuffle_search {
    emitter *e;
    bool found;
} shuffle_search;

static tir_expr find_shuffle(void *user, tir_pool *pool, tir_expr node, tir_expr rebuilt) {
    shuffle_search *search = user;
    const tir_node n = *tir_get(pool, node);
    if (n.op != TIR_LOAD || !tir_is_register(&search->e->kernel->buffers.data[n.bits])) return rebuilt;
    tir_expr index[16];
    int rank = n.count - (n.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, node, d);
    search->found = search->found || !is_own(search->e, (uint32_t)n.bits, rank, index);
    return rebuilt;
}

static void find_shuffles(void *user, tir_expr e) {
    shuffle_search *search = user;
    tir_rewrite(search->e->pool, e, find_shuffle, search);
}

static bool statement_shuffles(emitter *e, const tir_stmt *stmt) {
    shuffle_search search = {e, false};
    tir_stmt_exprs(stmt, find_shuffles, &search);
    return search.found;
}

/* Called inside the open thread loops; thread loops of the list are opened during the search. */
bool print_shuffles(emitter *e, const tir_stmt *list) {
    shuffle_search search = {e, false};
    for (const tir_stmt *stmt = list; stmt && !search.found; stmt = stmt->next) {
        tir_stmt_exprs(stmt, find_shuffles, &search);
        bool thread = stmt->kind == TIR_FOR && stmt->for_.loop == TIR_THREAD;
        if (thread)
            e->threads.loop[e->threads.count++] = (tir_thread_loop){stmt->for_.var, tir_thread_stride(e->pool, stmt)};
        if (stmt->kind == TIR_FOR) search.found = search.found || print_shuffles(e, stmt->for_.body);
        if (thread) e->threads.count--;
        if (stmt->kind == TIR_LET) search.found = search.found || print_shuffles(e, stmt->let.body);
        if (stmt->kind == TIR_IF)
            search.found = search.found || print_shuffles(e, stmt->if_.body) || print_shuffles(e, stmt->if_.otherwise);
    }
    return search.found;
}

/* ---- memory */

tir_expr print_offset(emitter *e, uint32_t id, int rank, const tir_expr *index) {
    const tir_buffer *buffer = &e->kernel->buffers.data[id];
    tir_expr offset = tir_index(e->pool, 0);
    for (int d = 0; d < rank; d++) offset = tir_add(e->pool, offset, tir_mul(e->pool, index[d], buffer->stride[d]));
    return offset;
}

/* Text of the element at offset `at`, a text. */
const char *print_element(emitter *e, uint32_t id, const char *at) {
    const tir_buffer *buffer = &e->kernel->buffers.data[id];
    if (!buffer->swizzle) return lib_arena_format(e->arena, "%s[%s]", e->buffer[id], at);
    int size = 0;
    while ((1 << size) < (int)lib_dtype_size(buffer->dtype)) size++;
    return lib_arena_format(e->arena, "%s[swizzled<%d, %d, %d>(%s)]", e->buffer[id], 7 - size, buffer->swizzle / 16 - 1,
                            4 - size, at);
}

const char *print_load(emitter *e, tir_expr load) {
    const tir_node n = *tir_get(e->pool, load);
    const uint32_t id = (uint32_t)n.bits;
    const tir_buffer *buffer = &e->kernel->buffers.data[id];
    const int rank = n.count - (n.guarded ? 2 : 0);
    tir_expr index[16];
    for (int d = 0; d < rank; d++) index[d] = tir_operand(e->pool, load, d);
    const char *text = tir_is_register(buffer) ? register_load(e, id, rank, index, n.guarded)
                                               : print_element(e, id, print_value(e, print_offset(e, id, rank, index)));
    if (buffer->dtype == DLC_BOOL && !tir_is_register(buffer)) text = lib_arena_format(e->arena, "(%s != 0)", text);
    if (!n.guarded) return text;
    return lib_arena_format(e->arena, "%s ? %s : %s", print_atom(e, tir_operand(e->pool, load, rank)), text,
                            print_atom(e, tir_operand(e->pool, load, rank + 1)));
}

static tir_expr find_memory(void *user, tir_pool *pool, tir_expr node, tir_expr rebuilt) {
    shuffle_search *search = user;
    const tir_node *n = tir_get(pool, node);
    if (n->op == TIR_LOAD && !tir_is_register(&search->e->kernel->buffers.data[n->bits])) search->found = true;
    return rebuilt;
}

static tir_expr find_any_load(void *user, tir_pool *pool, tir_expr node, tir_expr rebuilt) {
    if (tir_op_of(pool, node) == TIR_LOAD) ((shuffle_search *)user)->found = true;
    return rebuilt;
}

static bool loads_nothing(emitter *e, tir_expr value) {
    shuffle_search search = {e, false};
    tir_rewrite(e->pool, value, find_any_load, &search);
    return !search.found;
}

bool print_only_registers(emitter *e, tir_expr value) {
    shuffle_search search = {e, false};
    tir_rewrite(e->pool, value, find_memory, &search);
    return !search.found;
}

static int64_t threads_here(const emitter *e) {
    return e->threads.count ? e->threads.loop[e->threads.count - 1].stride : e->block;
}

/* What begins a store to memory by the threads that are here: "", or an `if`. choose: only the first of them stores; the others may have read
 * a value that it alone has written. */
static const char *store_guard(const emitter *e, bool choose) {
    const char *first = choose ? lib_arena_format(e->arena, "%s == 0", e->relative) : NULL, *inside = e->inside;
    if (!first && !inside) return "";
    return lib_arena_format(e->arena, "if (%s%s%s) ", inside ? inside : "", first && inside ? " && " : "",
                            first ? first : "");
}

static void store_memory(emitter *e, const tir_stmt *stmt, const char *value, bool choose) {
    const uint32_t id = stmt->store.buffer;
    const char *at = print_value(e, print_offset(e, id, stmt->store.rank, stmt->store.index));
    print_line(e, "%s%s = %s;", store_guard(e, choose), print_element(e, id, at), value);
}

void print_store_of(emitter *e, const tir_stmt *stmt, const char *value) {
    const uint32_t id = stmt->store.buffer;
    if (!tir_is_register(&e->kernel->buffers.data[id])) {
        store_memory(e, stmt, value, threads_here(e) > 1);
        return;
    }
    if (!is_own(e, id, stmt->store.rank, stmt->store.index))
        print_unsupported(e, "a thread stores to a register of another one, %s", e->kernel->buffers.data[id].name);
    print_line(e, "%s = %s;", register_place(e, id, stmt->store.index), value);
}

void print_store(emitter *e, const tir_stmt *stmt) {
    const bool memory = !tir_is_register(&e->kernel->buffers.data[stmt->store.buffer]);
    if (!memory || threads_here(e) == 1 || statement_shuffles(e, stmt)) {
        print_store_of(e, stmt, print_value(e, stmt->store.value));
        return;
    }
    print_line(e, "if (%s == 0) {", e->relative); /* the loads of the value are inside the condition, too */
    e->indent++;
    store_memory(e, stmt, print_value(e, stmt->store.value), false);
    e->indent--;
    print_line(e, "}");
}

/* ---- vectors */

typedef struct vector_access {
    /* the load; 0: this is the store */
    tir_expr load;
    /* offset of the first element */
    tir_expr base;
    /* a load's guard and other value; 0: none */
    tir_expr guard, other;
    uint32_t buffer;
    /* bytes of a vector */
    int width;
    const char *array;
} vector_access;

enum { VECTOR_ACCESSES = 16, VECTOR_LETS = 32 };

typedef struct vector_loop {
    emitter *e;
    tir_expr var;
    int64_t trips;
    const tir_stmt *store;
    /* condition around the store; 0: none */
    tir_expr condition;
    vector_access access[VECTOR_ACCESSES];
    int count;
    /* lets bound inside the loop, and their values; lets without loads are substituted */
    tir_expr let[VECTOR_LETS], let_value[VECTOR_LETS];
    int lets;
} vector_loop;

static tir_expr at_lane(vector_loop *v, tir_expr e, int64_t lane) {
    tir_expr number = tir_add(v->e->pool, tir_index(v->e->pool, lane), tir_index(v->e->pool, 0));
    return tir_substitute(v->e->pool, e, 1, &v->var, &number);
}

/* Is the condition the same for all lanes? */
static bool is_uniform(vector_loop *v, tir_expr condition) {
    const tir_expr first = at_lane(v, condition, 0);
    for (int64_t lane = 1; lane < v->trips; lane++)
        if (at_lane(v, condition, lane) != first) return false;
    return true;
}

/* Does the expression use lets bound inside the loop, which may depend on the lane? */
static bool uses_lets(vector_loop *v, tir_expr e) {
    for (int i = 0; i < v->lets; i++)
        if (tir_uses(v->e->pool, e, v->let[i])) return true;
    return false;
}

/* Records an access, if it is contiguous along the lanes and begins at an aligned address; NULL: it does not. */
static vector_access *note(vector_loop *v, uint32_t id, int rank, const tir_expr *index) {
    emitter *e = v->e;
    const tir_buffer *buffer = &e->kernel->buffers.data[id];
    const int64_t size = (int64_t)lib_dtype_size(buffer->dtype), bytes = size * v->trips;
    if (tir_is_register(buffer) || v->count == VECTOR_ACCESSES) return NULL;
    tir_expr offset = print_offset(e, id, rank, index), base = at_lane(v, offset, 0);
    if (tir_sub(e->pool, offset, base) != v->var || uses_lets(v, base)) return NULL;
    int64_t multiple = tir_multiple_of(e->pool, base), alignment = buffer->alignment;
    int width = 16;
    while (width > size && (bytes % width || alignment % width || (multiple * size) % width)) width /= 2;
    if (width <= size) return NULL;
    vector_access *access = &v->access[v->count++];
    *access = (vector_access){.base = base, .buffer = id, .width = width};
    return access;
}

/* Records a let; if it loads nothing, its value in terms of outer variables will be substituted for it. False: there are too many. */
static bool note_let(vector_loop *v, const tir_stmt *let) {
    if (v->lets == VECTOR_LETS) return false;
    tir_expr value = let->let.value;
    value =
        loads_nothing(v->e, value) ? tir_substitute(v->e->pool, value, v->lets, v->let, v->let_value) : let->let.var;
    v->let[v->lets] = let->let.var;
    v->let_value[v->lets++] = value;
    return true;
}

static tir_expr note_load(void *user, tir_pool *pool, tir_expr node, tir_expr rebuilt) {
    vector_loop *v = user;
    const tir_node n = *tir_get(pool, node);
    if (n.op != TIR_LOAD) return rebuilt;
    tir_expr index[16];
    const int rank = n.count - (n.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) index[d] = tir_operand(pool, node, d);
    tir_expr guard = n.guarded ? tir_substitute(pool, tir_operand(pool, node, rank), v->lets, v->let, v->let_value) : 0;
    if (guard && (uses_lets(v, guard) || !is_uniform(v, guard))) return rebuilt;
    for (int i = 0; i < v->count; i++)
        if (v->access[i].load == node) return rebuilt;
    vector_access *access = note(v, (uint32_t)n.bits, rank, index);
    if (!access) return rebuilt;
    access->load = node;
    access->guard = guard ? at_lane(v, guard, 0) : 0;
    access->other = guard ? tir_operand(pool, node, rank + 1) : 0;
    if (access->other && (tir_uses(pool, access->other, v->var) || uses_lets(v, access->other))) v->count--;
    return rebuilt;
}

static const char *vector_type(int width) {
    return width == 16 ? "uint4" : width == 8 ? "uint2" : width == 4 ? "u32" : "u16";
}

static const char *memory_type(const emitter *e, uint32_t buffer) {
    dlc_dtype dtype = e->kernel->buffers.data[buffer].dtype;
    return dtype == DLC_BOOL ? "u8" : print_type(e, (tir_dtype)dtype);
}

static void move_vectors(vector_loop *v, const vector_access *access) {
    emitter *e = v->e;
    const int size = (int)lib_dtype_size(e->kernel->buffers.data[access->buffer].dtype), step = access->width / size;
    const char *base = print_atom(e, access->base), *type = vector_type(access->width);
    for (int64_t i = 0; i < v->trips; i += step) {
        const char *own = lib_arena_format(e->arena, "*(%s *)&%s[%lld]", type, access->array, (long long)i);
        const char *at = lib_arena_format(e->arena, "%s + %lld", base, (long long)i);
        const char *place = lib_arena_format(e->arena, "*(%s%s *)&%s", access->load ? "const " : "", type,
                                             print_element(e, access->buffer, at));
        print_line(e, "%s = %s;", access->load ? own : place, access->load ? place : own);
    }
}

static void load_vectors(vector_loop *v, vector_access *access) {
    emitter *e = v->e;
    access->array = print_name(e, lib_arena_format(e->arena, "%s_v", e->buffer[access->buffer]));
    print_line(e, "__align__(16) %s %s[%lld];", memory_type(e, access->buffer), access->array, (long long)v->trips);
    if (!access->load) return;
    if (!access->guard) {
        move_vectors(v, access);
        return;
    }
    const char *guard = print_value(e, access->guard), *other = print_value(e, access->other);
    print_value(e, access->base);
    print_line(e, "if (%s) {", guard);
    e->indent++;
    move_vectors(v, access);
    e->indent--;
    print_line(e, "} else {");
    e->indent++;
    print_line(e, "#pragma unroll");
    print_line(e, "for (int v = 0; v < %lld; ++v) %s[v] = %s;", (long long)v->trips, access->array, other);
    e->indent--;
    print_line(e, "}");
}

static void store_vectors(vector_loop *v) {
    emitter *e = v->e;
    const char *guard = store_guard(e, threads_here(e) > 1);
    if (!guard[0]) {
        move_vectors(v, &v->access[v->count - 1]);
        return;
    }
    print_value(e, v->access[v->count - 1].base);
    print_line(e, "%s{", guard);
    e->indent++;
    move_vectors(v, &v->access[v->count - 1]);
    e->indent--;
    print_line(e, "}");
}

/* Prints the loop over lanes, after the vectors were loaded into arrays. */
static void vector_lanes(vector_loop *v, const tir_stmt *body) {
    emitter *e = v->e;
    const char *name = print_name(e, tir_variable_of(e->pool, v->var)->name);
    e->variable[tir_var_id(e->pool, v->var)] = name;
    print_line(e, "#pragma unroll");
    print_line(e, "for (%s %s = 0; %s < %lld; ++%s) {", print_type(e, TIR_INDEX), name, name, (long long)v->trips,
               name);
    e->indent++;
    print_forget(e);
    for (; body; body = body->kind == TIR_LET ? body->let.body : body->if_.body) {
        for (int i = 0; i < v->count; i++)
            if (v->access[i].load) {
                const char *text = lib_arena_format(e->arena, "%s[%s]", v->access[i].array, name);
                if (tir_dtype_of(e->pool, v->access[i].load) == DLC_BOOL)
                    text = lib_arena_format(e->arena, "(%s != 0)", text);
                print_know(e, v->access[i].load, text);
            }
        if (body->kind == TIR_LET) {
            const char *value = print_value(e, body->let.value);
            const char *variable = print_name(e, tir_variable_of(e->pool, body->let.var)->name);
            print_line(e, "const %s %s = %s;", print_type(e, tir_dtype_of(e->pool, body->let.var)), variable, value);
            e->variable[tir_var_id(e->pool, body->let.var)] = variable;
        } else if (body->kind == TIR_STORE) {
            const vector_access *to = &v->access[v->count - 1];
            if (to->load)
                print_store(e, body);
            else
                print_line(e, "%s[%s] = %s;", to->array, name, print_value(e, body->store.value));
            break;
        }
        print_forget(e);
    }
    print_forget(e);
    e->indent--;
    print_line(e, "}");
}

/* Finds the store statement of the loop's body, which may be inside let statements and one if statement, and notes the loads of the lets' values.
 * False: the body has no store or has another statement, the if's condition depends on the lane, or there are too many lets. */
static bool find_store(vector_loop *v, const tir_stmt *stmt) {
    for (; stmt; stmt = stmt->kind == TIR_LET ? stmt->let.body : stmt->if_.body) {
        if (stmt->next) return false;
        if (stmt->kind == TIR_LET) {
            tir_rewrite(v->e->pool, stmt->let.value, note_load, v);
            if (!note_let(v, stmt)) return false;
        } else if (stmt->kind == TIR_IF && !stmt->if_.otherwise && !v->condition) {
            v->condition = stmt->if_.condition;
            if (!is_uniform(v, v->condition) || uses_lets(v, v->condition)) return false;
        } else if (stmt->kind == TIR_STORE) {
            v->store = stmt;
            return true;
        } else {
            return false;
        }
    }
    return false;
}

bool print_vector_loop(emitter *e, const tir_stmt *loop) {
    vector_loop v = {.e = e, .var = loop->for_.var};
    int64_t lower;
    if (!tir_is_const(e->pool, loop->for_.extent, &v.trips) || !tir_is_const(e->pool, loop->for_.lower, &lower) ||
        lower)
        return false;
    if (v.trips < 2) return false;
    if (!find_store(&v, loop->for_.body) || (v.condition && loop->for_.body->kind != TIR_IF)) return false;
    tir_rewrite(e->pool, v.store->store.value, note_load, &v);
    bool stores =
        v.count < VECTOR_ACCESSES && note(&v, v.store->store.buffer, v.store->store.rank, v.store->store.index);
    if (v.count == 0) return false;
    if (v.condition) {
        print_line(e, "if (%s) {", print_value(e, at_lane(&v, v.condition, 0)));
        print_forget(e);
    } else {
        print_line(e, "{");
    }
    e->indent++;
    for (int i = 0; i < v.count; i++) load_vectors(&v, &v.access[i]);
    print_forget(e);
    vector_lanes(&v, v.condition ? loop->for_.body->if_.body : loop->for_.body);
    if (stores) store_vectors(&v);
    print_forget(e);
    e->indent--;
    print_line(e, "}");
    return true;
}
