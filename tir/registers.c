/* Ownership of elements of REG and STACK buffers by threads, and whether collective statements agree with it. */
#include "tir/registers.h"

typedef struct owner_search {
    tir_kernel *kernel;
    tir_pool *pool;
    tir_registers *registers;
    tir_thread_loops threads;
} owner_search;

/* Threads between neighbouring indices, if the index is a thread variable, or its quotient or remainder by a number. 0: no such form. */
static int64_t owner_stride(const owner_search *s, tir_expr index) {
    int64_t divisor = 1, factor = 1;
    tir_op op = tir_op_of(s->pool, index);
    if ((op == TIR_DIV || op == TIR_REM) && tir_is_const(s->pool, tir_operand(s->pool, index, 1), &divisor)) {
        if (op == TIR_DIV) factor = divisor;
        index = tir_operand(s->pool, index, 0);
    }
    for (int i = 0; i < s->threads.count; i++)
        if (s->threads.loop[i].var == index) return s->threads.loop[i].stride * factor;
    return 0;
}

static bool uses_thread(const owner_search *s, tir_expr index) {
    for (int i = 0; i < s->threads.count; i++)
        if (tir_uses(s->pool, index, s->threads.loop[i].var)) return true;
    return false;
}

static void note_owned(tir_registers *registers, int d, int64_t stride) {
    if (!stride || (registers->owned[d] && registers->stride[d] != stride)) registers->mixed |= 1u << d;
    registers->stride[d] = stride;
    registers->owned[d] = registers->any = true;
}

/* Notes the thread loops that no index uses: outside of a used one, each iteration has registers of its own; inside of all used ones,
 * threads hold copies of the same elements. */
static void note_group(const owner_search *s, tir_registers *registers, int rank, const tir_expr *index, bool lanes) {
    int last = -1; /* last loop that is used */
    bool used[TIR_THREAD_LOOPS] = {false};
    for (int i = 0; i < s->threads.count && registers->any; i++) {
        for (int d = 0; d < rank; d++) used[i] = used[i] || tir_uses(s->pool, index[d], s->threads.loop[i].var);
        if (used[i]) last = i;
    }
    for (int i = 0; i < s->threads.count && registers->any; i++)
        if (!used[i] && (i < last || last < 0 || lanes) &&
            (!registers->group || s->threads.loop[i].stride < registers->group))
            registers->group = s->threads.loop[i].stride;
    if (last >= 0 && !lanes) registers->alike = s->threads.loop[last].stride;
}

static void find_by_threads(const owner_search *s, uint32_t buffer, int rank, const tir_expr *index) {
    tir_registers *registers = &s->registers[buffer];
    for (int d = 0; d < rank; d++)
        if (!registers->owned[d] && uses_thread(s, index[d])) note_owned(registers, d, owner_stride(s, index[d]));
}

/* Index of a place's element with numbers instead of the statement's variables. */
static tir_expr at_point(tir_pool *pool, const tir_stmt *stmt, tir_expr index, const int *point) {
    tir_expr value[TIR_UNIT_VARS];
    for (int v = 0; v < TIR_UNIT_VARS; v++) value[v] = tir_index(pool, point[v]);
    return tir_substitute(pool, index, TIR_UNIT_VARS, stmt->collective.var, value);
}

/* Notes the owned dimensions of place p and their strides, from the unit: each bit of a lane's number comes from one bit of a variable,
 * which changes the index of one dimension. */
static void find_by_lanes(const owner_search *s, const tir_stmt *stmt, int p) {
    const tir_place *place = &stmt->collective.place[p];
    const tir_unit *unit = stmt->collective.unit;
    tir_registers *registers = &s->registers[place->buffer];
    for (int v = 0; v < TIR_UNIT_VARS; v++)
        for (int b = 0; b < unit->bits[v] && unit->place[p].uses >> v & 1; b++) {
            const int origin[TIR_UNIT_VARS] = {0}, lane = unit->place[p].bit[v][b];
            int point[TIR_UNIT_VARS] = {0};
            point[v] = 1 << b;
            for (int d = 0; d < place->rank && lane < TIR_REGISTER_BIT; d++) {
                int64_t step = 0;
                tir_expr moved = at_point(s->pool, stmt, place->index[d], point);
                tir_is_const(s->pool, tir_sub(s->pool, moved, at_point(s->pool, stmt, place->index[d], origin)), &step);
                if (step) note_owned(registers, d, (1 << lane) % step ? 0 : (1 << lane) / step);
            }
        }
}

static void find_owners(const owner_search *s, const tir_stmt *stmt) {
    if (stmt->kind == TIR_STORE && tir_is_register(&s->kernel->buffers.data[stmt->store.buffer])) {
        find_by_threads(s, stmt->store.buffer, stmt->store.rank, stmt->store.index);
        note_group(s, &s->registers[stmt->store.buffer], stmt->store.rank, stmt->store.index, false);
    }
    if (stmt->kind != TIR_COLLECTIVE) return;
    const tir_place *place = &stmt->collective.place[0];
    if (!tir_is_register(&s->kernel->buffers.data[place->buffer])) return;
    find_by_lanes(s, stmt, 0);
    find_by_threads(s, place->buffer, place->rank, place->index);
    note_group(s, &s->registers[place->buffer], place->rank, place->index, true);
}

static void find_in_list(owner_search *s, const tir_stmt *stmt) {
    for (; stmt; stmt = stmt->next) {
        const bool thread = stmt->kind == TIR_FOR && stmt->for_.loop == TIR_THREAD;
        if (thread && s->threads.count == TIR_THREAD_LOOPS)
            lib_raise(s->kernel->arena->scope, DLC_UNSUPPORTED, "kernel %s: thread loops nested too deeply",
                      s->kernel->name);
        if (thread)
            s->threads.loop[s->threads.count++] = (tir_thread_loop){stmt->for_.var, tir_thread_stride(s->pool, stmt)};
        if (stmt->kind == TIR_FOR) find_in_list(s, stmt->for_.body);
        if (thread) s->threads.count--;
        if (stmt->kind == TIR_LET) find_in_list(s, stmt->let.body);
        find_owners(s, stmt);
        if (stmt->kind != TIR_IF) continue;
        find_in_list(s, stmt->if_.body);
        find_in_list(s, stmt->if_.otherwise);
    }
}

void tir_find_registers(tir_kernel *kernel, const tir_phase *phase, tir_registers *registers) {
    owner_search search = {.kernel = kernel, .pool = kernel->pool, .registers = registers};
    memset(registers, 0, kernel->buffers.count * sizeof *registers);
    find_in_list(&search, phase->body);
}

tir_expr tir_thread_number(tir_pool *pool, const tir_thread_loops *threads) {
    tir_expr number = tir_index(pool, 0);
    for (int i = 0; i < threads->count; i++)
        number = tir_add(pool, number, tir_mul(pool, threads->loop[i].var, tir_index(pool, threads->loop[i].stride)));
    return number;
}

tir_expr tir_owner(tir_pool *pool, const tir_thread_loops *threads, const tir_registers *registers, int rank,
                   const tir_expr *index) {
    tir_thread_loops group = {.count = 0};
    for (int i = 0; i < threads->count; i++)
        if (registers->group && threads->loop[i].stride >= registers->group)
            group.loop[group.count++] = threads->loop[i];
    tir_expr owner = tir_thread_number(pool, &group);
    for (int d = 0; d < rank; d++)
        if (registers->owned[d])
            owner = tir_add(pool, owner, tir_mul(pool, index[d], tir_index(pool, registers->stride[d])));
    if (registers->alike > 1) /* the reader's own replica, if it has one */
        owner =
            tir_add(pool, owner, tir_rem(pool, tir_thread_number(pool, threads), tir_index(pool, registers->alike)));
    return owner;
}

tir_expr tir_register_place(tir_pool *pool, const tir_buffer *buffer, const tir_registers *registers,
                            const tir_expr *index) {
    tir_expr at = tir_index(pool, 0);
    for (int d = 0; d < buffer->rank; d++)
        if (!registers->owned[d]) at = tir_add(pool, tir_mul(pool, at, buffer->extent[d]), index[d]);
    return at;
}

/* ---- collective statements */

typedef struct fragment_check {
    tir_kernel *kernel;
    tir_pool *pool;
    const tir_stmt *stmt;
    const tir_thread_loops *threads;
    const tir_registers *registers;
    int place;
} fragment_check;

static const char *flaw(const fragment_check *c, const char *format, int lane, int64_t owner) {
    const tir_place *place = &c->stmt->collective.place[c->place];
    return lib_arena_format(c->kernel->arena, format, c->stmt->collective.unit->name,
                            c->kernel->buffers.data[place->buffer].name, lane, (long long)owner);
}

/* Whether two elements are a pair that begins at an even index. */
static bool even_pair(tir_pool *pool, tir_expr second) {
    tir_expr first = tir_sub(pool, second, tir_index(pool, 1));
    int64_t number;
    return tir_is_const(pool, first, &number) ? number % 2 == 0 : tir_multiple_of(pool, first) % 2 == 0;
}

/* Is a lane's element n the second one of a pair that shares a register? */
static bool is_second_of_pair(const fragment_check *c, int n) {
    return c->place == 0 && c->stmt->collective.unit->kind == TIR_LOAD_MATRICES && n % 2;
}

/* Checks that every element is owned by the lane that the unit requires, in a register of its own. Returns what is wrong; NULL:
 * nothing. */
static const char *register_flaw(const fragment_check *c) {
    tir_pool *pool = c->pool;
    const tir_unit *unit = c->stmt->collective.unit;
    const tir_place *place = &c->stmt->collective.place[c->place];
    const tir_buffer *buffer = &c->kernel->buffers.data[place->buffer];
    const tir_registers *registers = &c->registers[place->buffer];
    const tir_expr first = tir_thread_number(pool, c->threads);
    const int count = tir_fragment_registers(unit, c->place);
    tir_expr base[TIR_UNIT_ELEMENTS] = {0};
    int64_t at[TIR_UNIT_ELEMENTS];
    if (registers->mixed) return flaw(c, "%s: indices of %s mix threads and elements of one thread", 0, 0);
    for (int lane = 0; lane < unit->lanes; lane++)
        for (int n = 0; n < count; n++) {
            int point[TIR_UNIT_VARS];
            tir_expr index[16];
            int64_t owner = -1, distance = 0;
            tir_fragment_point(unit, c->place, lane, n, point);
            for (int d = 0; d < place->rank; d++) index[d] = at_point(pool, c->stmt, place->index[d], point);
            tir_expr holder = tir_sub(pool, tir_owner(pool, c->threads, registers, place->rank, index), first);
            if (!tir_is_const(pool, holder, &owner)) return flaw(c, "%s: which lanes hold %s cannot be told", 0, 0);
            if (owner != lane)
                return flaw(c, "%s: an element of %s that lane %d gives is held by lane %lld", lane, owner);
            tir_expr here = tir_register_place(pool, buffer, registers, index);
            if (lane == 0) base[n] = here;
            if (!tir_is_const(pool, tir_sub(pool, here, base[n]), &distance) || distance)
                return flaw(c, "%s: lanes hold elements of %s in different registers", 0, 0);
            if (!tir_is_const(pool, tir_sub(pool, here, base[0]), &at[n]))
                return flaw(c, "%s: the registers of %s are not constant", 0, 0);
            if (is_second_of_pair(c, n) && (at[n] != at[n - 1] + 1 || !even_pair(pool, here)))
                return flaw(c, "%s: pairs of %s do not share a register", 0, 0);
            for (int i = 0; i < n; i++)
                if (at[i] == at[n]) return flaw(c, "%s: two elements of %s lie in one register of lane %d", lane, 0);
        }
    return NULL;
}

/* The same for a place in shared memory: rows along the last variable must be contiguous, and aligned to their size. */
static const char *memory_flaw(const fragment_check *c) {
    tir_pool *pool = c->pool;
    const tir_place *place = &c->stmt->collective.place[c->place];
    const tir_buffer *buffer = &c->kernel->buffers.data[place->buffer];
    const tir_expr column = c->stmt->collective.var[TIR_UNIT_VARS - 1], zero = tir_index(pool, 0);
    const int64_t size = (int64_t)lib_dtype_size(buffer->dtype);
    const int row = (int)size << c->stmt->collective.unit->bits[TIR_UNIT_VARS - 1];
    tir_expr offset = tir_index(pool, 0);
    for (int d = 0; d < place->rank; d++)
        offset = tir_add(pool, offset, tir_mul(pool, place->index[d], buffer->stride[d]));
    tir_expr start = tir_substitute(pool, offset, 1, &column, &zero);
    if (buffer->scope != TIR_SCOPE_SHARED) return flaw(c, "%s: %s is not in shared memory", 0, 0);
    if (tir_sub(pool, offset, start) != column) return flaw(c, "%s: rows of %s are not contiguous", 0, 0);
    if (!tir_is_number(pool, start, 0) && tir_multiple_of(pool, start) * size % row)
        return flaw(c, "%s: rows of %s are not aligned to %d bytes", row, 0);
    return NULL;
}

const char *tir_collective_flaw(tir_kernel *kernel, const tir_stmt *stmt, const tir_thread_loops *threads,
                                const tir_registers *registers) {
    const tir_unit *unit = stmt->collective.unit;
    const dlc_dtype moved = kernel->buffers.data[stmt->collective.place[0].buffer].dtype;
    fragment_check c = {kernel, kernel->pool, stmt, threads, registers, 0};
    if (threads->count && threads->loop[threads->count - 1].stride % unit->lanes)
        return lib_arena_format(kernel->arena, "%s: not whole warps come here", unit->name);
    for (c.place = 0; c.place < unit->places; c.place++) {
        const tir_fragment *fragment = &unit->place[c.place];
        const tir_buffer *buffer = &kernel->buffers.data[stmt->collective.place[c.place].buffer];
        const bool any = fragment->dtype == TIR_INDEX;
        if (any ? buffer->dtype != moved || lib_dtype_size(moved) != 2 : (tir_dtype)buffer->dtype != fragment->dtype)
            return flaw(&c, "%s: the element type of %s is another one", 0, 0);
        if (!fragment->memory && buffer->scope != TIR_SCOPE_REG) return flaw(&c, "%s: %s is not in registers", 0, 0);
        const char *wrong = fragment->memory ? memory_flaw(&c) : register_flaw(&c);
        if (wrong) return wrong;
    }
    return NULL;
}
