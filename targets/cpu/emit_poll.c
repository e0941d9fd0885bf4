/* Cancellation checks in loops (tir/polls.h). They add nothing to an iteration: the loop runs until `stop`, which is its end or
 * earlier; there, outside of the loop's hot path, it reads the host's flag:
 *
 *   latch:  next = counter + step; next < stop ? head : edge
 *   edge:   next < end ? look : after
 *   look:   *arguments->cancel == 0 ? again : ask
 *   ask:    arguments->is_over(arguments) ? give_up : again
 *   again:  stop = min(next + every, end); head
 *   give_up: return */
#include "targets/cpu/emit.h"

static LLVMValueRef stop_behind(emitter *e, const emit_poll *poll, LLVMValueRef from) {
    LLVMValueRef stop = LLVMBuildAdd(e->builder, from, emit_i64(e, poll->every), "");
    LLVMValueRef nearer = LLVMBuildICmp(e->builder, LLVMIntSLT, stop, poll->end, "");
    return LLVMBuildSelect(e->builder, nearer, stop, poll->end, "");
}

void emit_poll_before(emitter *e, emit_poll *poll, LLVMValueRef begin, LLVMValueRef end) {
    poll->end = end;
    if (poll->every) poll->stop = stop_behind(e, poll, begin);
}

void emit_poll_head(emitter *e, emit_poll *poll, LLVMBasicBlockRef before) {
    if (!poll->every) return;
    LLVMValueRef first = poll->stop;
    poll->stop = LLVMBuildPhi(e->builder, e->i64, "stop");
    LLVMAddIncoming(poll->stop, &first, &before, 1);
}

static LLVMBasicBlockRef give_up(emitter *e) {
    if (e->give_up) return e->give_up;
    e->give_up = emit_block(e, "give_up");
    LLVMPositionBuilderAtEnd(e->builder, e->give_up);
    LLVMBuildRetVoid(e->builder);
    return e->give_up;
}

static void branch_if_zero(emitter *e, LLVMValueRef value, LLVMBasicBlockRef zero, LLVMBasicBlockRef other) {
    LLVMValueRef none = LLVMConstNull(LLVMTypeOf(value));
    LLVMBuildCondBr(e->builder, LLVMBuildICmp(e->builder, LLVMIntEQ, value, none, ""), zero, other);
}

/* Emits block `look` and the blocks after it, which end at `again` or leave the function. */
static void look(emitter *e, LLVMBasicBlockRef look, LLVMBasicBlockRef again) {
    LLVMBasicBlockRef flag = emit_block(e, "flag"), ask = emit_block(e, "ask"), end = give_up(e);
    LLVMPositionBuilderAtEnd(e->builder, look);
    LLVMValueRef place = emit_argument(e, e->pointer, offsetof(target_arguments, cancel));
    branch_if_zero(e, place, again, flag);
    LLVMPositionBuilderAtEnd(e->builder, flag);
    LLVMValueRef raised = LLVMBuildLoad2(e->builder, e->i32, place, "");
    LLVMSetVolatile(raised, true);
    branch_if_zero(e, raised, again, ask);
    LLVMPositionBuilderAtEnd(e->builder, ask);
    LLVMValueRef function = emit_argument(e, e->pointer, offsetof(target_arguments, is_over));
    LLVMTypeRef type = LLVMFunctionType(e->i32, &e->pointer, 1, false);
    LLVMValueRef arguments = LLVMGetParam(e->function, 0);
    LLVMValueRef over = LLVMBuildCall2(e->builder, type, function, &arguments, 1, "");
    unsigned cold = LLVMGetEnumAttributeKindForName("cold", 4);
    LLVMAddCallSiteAttribute(over, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                             LLVMCreateEnumAttribute(e->context, cold, 0));
    branch_if_zero(e, over, again, end);
}

LLVMBasicBlockRef emit_poll_latch(emitter *e, const emit_poll *poll, LLVMValueRef next, LLVMBasicBlockRef head,
                                  LLVMBasicBlockRef after, LLVMBasicBlockRef *latch) {
    LLVMValueRef on = LLVMBuildICmp(e->builder, LLVMIntSLT, next, poll->every ? poll->stop : poll->end, "");
    if (!poll->every) {
        LLVMBuildCondBr(e->builder, on, head, after);
        return NULL;
    }
    LLVMBasicBlockRef edge = emit_block(e, "edge"), ahead = emit_block(e, "look"), again = emit_block(e, "again");
    LLVMBuildCondBr(e->builder, on, head, edge);
    LLVMPositionBuilderAtEnd(e->builder, edge);
    LLVMBuildCondBr(e->builder, LLVMBuildICmp(e->builder, LLVMIntSLT, next, poll->end, ""), ahead, after);
    look(e, ahead, again);
    LLVMPositionBuilderAtEnd(e->builder, again);
    LLVMValueRef stop = stop_behind(e, poll, next), same = poll->stop;
    LLVMBuildBr(e->builder, head);
    LLVMAddIncoming(poll->stop, &same, latch, 1);
    LLVMAddIncoming(poll->stop, &stop, &again, 1);
    *latch = edge;
    return again;
}
