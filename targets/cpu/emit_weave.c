/* Interleaves lanes loops of one vec loop. Emitted one after the other, a vector with a long dependence chain fills the processor's
 * out-of-order window by itself; interleaved, each instruction is followed by those of the other vectors, which do not depend on it.
 * Iterations of a vec loop are independent, except for reductions, whose operands keep their order. */
#include "targets/cpu/emit.h"

/* ---- the order of instructions */

static void mark(emitter *e, emit_weave *w) {
    LLVMBasicBlockRef block = e->level[e->top].block;
    if (w->count == 0) w->block = block;
    w->broken |= w->block != block || e->waiting.count || w->count > EMIT_WOVEN_MAX;
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

static void weave(emitter *e, const emit_weave *w) {
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
    emit_at(e, e->top);
    weave_strands(e, &p, s, count);
    e->woven = true;
}

void emit_interleave(emitter *e, const tir_stmt *stmt) {
    emit_weave w = {0};
    const bool weaves = e->weaves;
    e->weaves = true;
    mark(e, &w);
    for (const tir_stmt *part = stmt->interleave.body; part; part = part->next) {
        emit_for(e, part);
        mark(e, &w);
    }
    weave(e, &w);
    e->weaves = weaves;
}
