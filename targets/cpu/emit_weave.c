/* Interleaves chunks of a vec loop. Emitted one after the other, a chunk with a long dependence chain fills the processor's out-of-order
 * window by itself; interleaved, each instruction is followed by those of the other chunks, which do not depend on it. Iterations of a
 * vec loop are independent, except for reductions, whose operands keep their order. */
#include "targets/cpu/emit.h"

enum {
    LEAST = 10,     /* instructions from which on chunks are interleaved: shorter ones fit the window */
    SPARE = 4,      /* vector registers reserved for loaded constants */
    MOST_COST = 360 /* most instructions of a loop over interleaved chunks */
};

/* ---- which loops */

enum { STORES_MAX = 8 };

typedef struct accesses {
    emitter *e;
    const tir_stmt *store[STORES_MAX];
    int stores, cost, shared;
    tir_expr lane;
    bool refused;
} accesses;

/* Collects the stores of the body. Refuses statements other than lets and stores, and stores to memory whose address does not depend on the
 * lane. */
static void collect_stores(accesses *a, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt && !a->refused; stmt = stmt->next) {
        if (stmt->kind == TIR_LET) {
            a->shared += tir_dtype_of(a->e->pool, stmt->let.value) != TIR_INDEX;
            collect_stores(a, stmt->let.body);
            continue;
        }
        a->refused = stmt->kind != TIR_STORE || a->stores == STORES_MAX;
        if (a->refused) return;
        bool own = emit_in_registers(a->e, stmt->store.buffer);
        for (int i = 0; i < stmt->store.rank; i++) own = own || tir_uses(a->e->pool, stmt->store.index[i], a->lane);
        a->refused = !own;
        a->store[a->stores++] = stmt;
    }
}

/* May another lane store the element that this load reads? Such a load must not be moved over stores. */
static bool is_fixed(const accesses *a, const tir_node *load) {
    if (emit_in_registers(a->e, (uint32_t)load->bits)) return false;
    for (int s = 0; s < a->stores; s++) {
        const tir_stmt *store = a->store[s];
        if (store->store.buffer != load->bits) continue;
        for (int i = 0; i < store->store.rank; i++)
            if (store->store.index[i] != a->e->pool->operands.data[load->first + (uint32_t)i]) return true;
    }
    return false;
}

static void visit_expr(void *user, tir_expr expr) {
    accesses *a = user;
    emitter *e = a->e;
    const tir_node *node = tir_get(e->pool, expr);
    if (node->op == TIR_CONST || node->op == TIR_VAR || e->survey_epoch[expr] == e->survey_now) return;
    e->survey_epoch[expr] = e->survey_now;
    if (node->dtype != TIR_INDEX) a->cost++;
    a->refused |= node->op == TIR_LOAD && is_fixed(a, node);
    for (int i = 0; i < (int)node->count; i++) visit_expr(a, tir_operand(e->pool, expr, i));
}

static void visit_list(accesses *a, const tir_stmt *list) {
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        tir_stmt_exprs(stmt, visit_expr, a);
        if (stmt->kind == TIR_LET) visit_list(a, stmt->let.body);
    }
}

static accesses survey_accesses(emitter *e, const tir_stmt *loop) {
    accesses a = {.e = e, .lane = loop->for_.var};
    collect_stores(&a, loop->for_.body);
    if (a.refused) return a;
    e->survey_now++;
    visit_list(&a, loop->for_.body);
    return a;
}

int emit_woven_chunks(emitter *e, const tir_stmt *loop) {
    accesses a = survey_accesses(e, loop);
    if (a.refused || a.cost < LEAST) return 1;
    int ways = a.shared ? 4 : 8; /* without lets each value is used once, and its register is free immediately */
    while (ways > 1 && ways * a.cost > MOST_COST) ways /= 2;
    return ways;
}

/* ---- the order of instructions */

void emit_weave_mark(emitter *e, emit_weave *w) {
    LLVMBasicBlockRef block = e->level[e->top].block;
    if (w->count == 0) w->block = block;
    w->broken |= w->block != block || e->held.count || w->count > EMIT_WOVEN_MAX;
    if (!w->broken) w->last[w->count++] = LLVMGetLastInstruction(block);
}

/* Hash table of the instructions of all strands: were they placed already? */
typedef struct placed {
    LLVMValueRef *slot;
    /* position; -1: not placed yet */
    int *at;
    uint32_t mask;
} placed;

static uint32_t slot_of(const placed *p, LLVMValueRef value) {
    uint32_t i = (uint32_t)((uintptr_t)value >> 4) * 2654435761u & p->mask;
    while (p->slot[i] && p->slot[i] != value) i = (i + 1) & p->mask;
    return i;
}

typedef struct strand {
    LLVMValueRef *instruction;
    int count, next;
} strand;

static bool is_ready(const placed *p, LLVMValueRef instruction) {
    for (int i = 0; i < LLVMGetNumOperands(instruction); i++) {
        uint32_t s = slot_of(p, LLVMGetOperand(instruction, (unsigned)i));
        if (p->slot[s] && p->at[s] < 0) return false;
    }
    return true;
}

/* The largest number of vectors of the strand that are live at once. */
static int most_live(emitter *e, const strand *s, placed *p) {
    int *last = LIB_NEW_ARRAY(e->arena, int, (size_t)s->count), live = 0, most = 1;
    int *ending = LIB_NEW_ARRAY(e->arena, int, (size_t)s->count + 1);
    for (int i = 0; i < s->count; i++) p->at[slot_of(p, s->instruction[i])] = i;
    for (int i = 0; i < s->count; i++)
        for (int o = 0; o < LLVMGetNumOperands(s->instruction[i]); o++) {
            uint32_t slot = slot_of(p, LLVMGetOperand(s->instruction[i], (unsigned)o));
            if (p->slot[slot] && p->at[slot] >= 0) last[p->at[slot]] = i;
        }
    for (int i = 0; i < s->count; i++) {
        bool vector = LLVMGetTypeKind(LLVMTypeOf(s->instruction[i])) == LLVMVectorTypeKind;
        live -= ending[i];
        if (vector && last[i] > i) {
            live++;
            ending[last[i]]++;
        }
        if (live > most) most = live;
    }
    for (int i = 0; i < s->count; i++) p->at[slot_of(p, s->instruction[i])] = -1;
    return most;
}

static void move_last(emitter *e, placed *p, LLVMValueRef instruction) {
    LLVMInstructionRemoveFromParent(instruction);
    LLVMInsertIntoBuilder(e->builder, instruction);
    p->at[slot_of(p, instruction)] = 0;
}

/* Moves the strands' instructions to the builder's position: one of each strand in turn, as soon as its operands are placed. The first
 * strand can always continue. */
static void weave_strands(emitter *e, placed *p, strand *s, int count) {
    for (int rest = 1; rest;) {
        rest = 0;
        for (int i = 0; i < count; i++) {
            if (s[i].next < s[i].count && is_ready(p, s[i].instruction[s[i].next]))
                move_last(e, p, s[i].instruction[s[i].next++]);
            rest += s[i].count - s[i].next;
        }
    }
}

static strand strand_of(emitter *e, const emit_weave *w, int i, placed *p) {
    LLVMValueRef first = w->last[i] ? LLVMGetNextInstruction(w->last[i]) : LLVMGetFirstInstruction(w->block);
    LLVMValueRef end = w->last[i + 1] ? LLVMGetNextInstruction(w->last[i + 1]) : NULL;
    strand s = {0};
    for (LLVMValueRef at = first; at && at != end; at = LLVMGetNextInstruction(at)) s.count++;
    s.instruction = LIB_NEW_ARRAY(e->arena, LLVMValueRef, (size_t)s.count);
    s.count = 0;
    for (LLVMValueRef at = first; at && at != end; at = LLVMGetNextInstruction(at)) {
        uint32_t slot = slot_of(p, at);
        p->slot[slot] = s.instruction[s.count++] = at;
        p->at[slot] = -1;
    }
    return s;
}

void emit_weave_end(emitter *e, const emit_weave *w) {
    int count = w->count - 1, total = 0;
    if (w->broken || count < 2) return;
    LLVMValueRef at = w->last[0] ? LLVMGetNextInstruction(w->last[0]) : LLVMGetFirstInstruction(w->block);
    for (; at; at = LLVMGetNextInstruction(at)) total++;
    placed p = {.mask = 63};
    while ((int)p.mask < 2 * total) p.mask = 2 * p.mask + 1;
    p.slot = LIB_NEW_ARRAY(e->arena, LLVMValueRef, p.mask + 1);
    p.at = LIB_NEW_ARRAY(e->arena, int, p.mask + 1);
    strand s[EMIT_WOVEN_MAX];
    for (int i = 0; i < count; i++) s[i] = strand_of(e, w, i, &p);
    int live = most_live(e, &s[1], &p), ways = count, registers = e->device->machine.vector_registers - SPARE;
    while (ways > 1 && ways * live > registers) ways = (ways + 1) / 2;
    if (ways < 2) return;
    emit_at(e, e->top);
    for (int i = 0; i < count; i += ways) weave_strands(e, &p, s + i, count - i < ways ? count - i : ways);
    if (ways * live > e->woven) e->woven = ways * live;
}
