/* Preparing a kernel for the interpreter: gives expression nodes slots and decides where each is computed. */
#include "tir/interpret_program.h"
#include "tir/polls.h"

/* A statement that sets a variable, with the list to run then. stack[0] is the kernel's entry. */
typedef struct binder {
    uint32_t serial;
    tir_expr variable;
    tir_code_list *list;
} binder;

typedef struct builder {
    lib_arena *arena;
    const tir_kernel *kernel;
    const tir_pool *pool;
    tir_program *program;
    const tir_polls *polls;
    /* by node; 0: none yet */
    uint32_t *slot;
    /* by node: serial of the binder or statement whose list computes it */
    uint32_t *placed;
    /* by node: that binder's position on the stack, or OWN */
    uint32_t *depth;
    /* by node */
    uint8_t *taints;
    uint32_t next_slot, serial;
    lib_vec(binder) stack;
    lib_vec(tir_expr) work;
    /* the list of the statement being prepared */
    tir_code_list *own;
    uint32_t own_serial;
    const tir_stmt *stmt;
    /* it stores an exact reduction: its loads of the stored element are part of it */
    bool reduction;
    /* it is the whole body of the enclosing thread loop */
    bool chain;
} builder;

#define OWN UINT32_MAX

_Noreturn static void fail(builder *b, const char *what) {
    lib_text text;
    lib_text_init(&text, b->arena);
    if (b->stmt) tir_stmt_print(&text, b->kernel, b->stmt, 0);
    lib_raise(b->arena->scope, DLC_INTERNAL, "kernel %s: %s%s%s", b->kernel->name, what, b->stmt ? " in: " : "",
              b->stmt ? text.data : "");
}

static bool is_placed(const builder *b, tir_expr e) {
    if (!b->slot[e]) return false;
    uint32_t depth = b->depth[e];
    if (depth == OWN) return b->placed[e] == b->own_serial;
    return depth < b->stack.count && b->placed[e] == b->stack.data[depth].serial;
}

static uint32_t slot_of(builder *b, tir_expr e) {
    if (!b->slot[e]) b->slot[e] = b->next_slot++;
    return b->slot[e];
}

/* ---- instructions */

static tir_code fast_code(const tir_node *node, tir_dtype from) {
    char class_ = from == TIR_INDEX ? 'i' : lib_dtypes[from].class_;
    bool word = from == TIR_INDEX || from == DLC_I64, is_signed = class_ == 'i' || class_ == 'b';
    tir_op op = (tir_op)node->op;
#define IS_WORD (word || op == TIR_SELECT || (class_ != 'f' && (op == TIR_AND || op == TIR_OR || op == TIR_XOR)))
#define IS_I32 (from == DLC_I32)
#define IS_INDEX (from == TIR_INDEX)
#define IS_SIGNED is_signed
#define IS_F32 (from == DLC_F32)
#define IS_F32_TRUTH (from == DLC_F32)
#define IS_F64 (from == DLC_F64)
#define IS_F64_TRUTH (from == DLC_F64)
#define X(kind, operator, value) \
    if (op == TIR_##operator&& IS_##kind) return TIR_FAST_##kind##_##operator;
    TIR_FAST_TABLE(X)
#undef X
    return op == TIR_CAST ? TIR_CODE_CAST : TIR_CODE_GENERAL;
}

static void check_load(builder *b, tir_expr e) {
    const tir_node *node = tir_get(b->pool, e);
    if (node->bits >= b->kernel->buffers.count) fail(b, "load of an unknown buffer");
    const tir_buffer *buffer = &b->kernel->buffers.data[node->bits];
    if (node->count - (node->guarded ? 2 : 0) != buffer->rank) fail(b, "load with a wrong number of indices");
    if (node->dtype != (tir_dtype)buffer->dtype) fail(b, "load of another element type than the buffer's");
}

/* Appends the instruction of a node whose operands are placed. */
static void emit(builder *b, tir_expr e, tir_code_list *list) {
    const tir_node *node = tir_get(b->pool, e);
    if (node->count > TIR_OPERANDS_MAX) fail(b, "too many operands");
    tir_instruction i = {.op = node->op, .dtype = node->dtype, .count = node->count, .target = b->slot[e]};
    uint32_t *operands = LIB_NEW_ARRAY(b->arena, uint32_t, node->count);
    for (int k = 0; k < node->count; k++) {
        tir_expr operand = tir_operand(b->pool, e, k);
        operands[k] = b->slot[operand];
        i.taints = i.taints || b->taints[operand];
    }
    i.operands = operands;
    if (node->count > 0) i.x = operands[0];
    if (node->count > 1) i.y = operands[1];
    if (node->count > 2) i.z = operands[2];
    if (node->op == TIR_LOAD) {
        check_load(b, e);
        i.code = TIR_CODE_LOAD;
        i.buffer = (uint32_t)node->bits;
        i.guarded = node->guarded;
        i.taints = i.taints || b->kernel->buffers.data[i.buffer].scope != TIR_SCOPE_ARG;
        i.reduction = b->reduction && tir_loads_stored(b->kernel, b->stmt, e);
    } else {
        i.from = tir_dtype_of(b->pool, tir_operand(b->pool, e, node->op == TIR_SELECT ? 1 : 0));
        i.code = (uint8_t)fast_code(node, i.from);
    }
    b->taints[e] = i.taints;
    lib_vec_push(b->arena, list, i);
}

static uint32_t binder_depth(builder *b, tir_expr variable) {
    for (uint32_t i = b->stack.count; i-- > 0;)
        if (b->stack.data[i].variable == variable) return i;
    for (uint32_t i = 0; i < b->kernel->params.count; i++)
        if (b->kernel->params.data[i] == variable) return 0;
    fail(b, lib_arena_format(b->arena, "variable %s is not bound", tir_variable_of(b->pool, variable)->name));
}

/* Places one node whose operands are placed: in the list of the innermost variable it depends on, or the statement's
 * own. */
static void place_node(builder *b, tir_expr e) {
    const tir_node *node = tir_get(b->pool, e);
    uint32_t depth = 0;
    bool is_new = !b->slot[e];
    uint32_t slot = slot_of(b, e);
    switch (node->op) {
    case TIR_CONST:
        if (is_new) {
            lib_vec_push(b->arena, &b->program->constants, slot);
            lib_vec_push(b->arena, &b->program->constant_bits, node->bits);
        }
        break;
    case TIR_VAR: depth = binder_depth(b, e); break;
    case TIR_ACC:
    case TIR_OTHER: fail(b, "acc and other have no meaning in loop IR");
    case TIR_LOAD:
        if (!b->own)
            fail(b, "an extent, stride, size, task count or place of a collective statement loads from memory");
        depth = OWN;
        break;
    default:
        for (int i = 0; i < node->count; i++) {
            uint32_t d = b->depth[tir_operand(b->pool, e, i)];
            if (d > depth) depth = d;
        }
    }
    b->depth[e] = depth;
    b->placed[e] = depth == OWN ? b->own_serial : b->stack.data[depth].serial;
    if (node->op != TIR_CONST && node->op != TIR_VAR) emit(b, e, depth == OWN ? b->own : b->stack.data[depth].list);
}

/* Ensures that e is computed before the current statement runs; returns its slot. */
static uint32_t place(builder *b, tir_expr root) {
    b->work.count = 0;
    lib_vec_push(b->arena, &b->work, root);
    while (b->work.count) {
        tir_expr e = b->work.data[b->work.count - 1];
        bool ready = true;
        if (!is_placed(b, e)) {
            for (int i = tir_get(b->pool, e)->count - 1; i >= 0; i--) {
                tir_expr operand = tir_operand(b->pool, e, i);
                if (is_placed(b, operand)) continue;
                lib_vec_push(b->arena, &b->work, operand);
                ready = false;
            }
            if (!ready) continue;
            place_node(b, e);
        }
        b->work.count--;
    }
    return b->slot[root];
}

static void push_binder(builder *b, tir_expr variable, tir_code_list *list) {
    for (uint32_t i = 0; variable && i < b->stack.count; i++)
        if (b->stack.data[i].variable == variable) fail(b, "a variable is bound inside its own scope");
    binder entry = {++b->serial, variable, list};
    lib_vec_push(b->arena, &b->stack, entry);
    if (variable) slot_of(b, variable);
}

static void begin_statement(builder *b, const tir_stmt *stmt, tir_code_list *own) {
    b->stmt = stmt;
    b->own = own;
    b->own_serial = ++b->serial;
    b->reduction = false;
}

/* ---- statements */

static tir_step *prepare_list(builder *b, const tir_stmt *stmt);

static void prepare_for(builder *b, const tir_stmt *stmt, tir_step *step) {
    step->first = place(b, stmt->for_.lower);
    step->second = place(b, stmt->for_.extent);
    if (b->taints[stmt->for_.lower] || b->taints[stmt->for_.extent]) step->taints = true;
    push_binder(b, stmt->for_.var, &step->bound);
    step->variable = b->slot[stmt->for_.var];
    bool thread = stmt->for_.loop == TIR_THREAD;
    step->poll = tir_polls_of_loop(b->polls, stmt);
    if (step->poll) step->poll = step->poll > stmt->for_.step ? step->poll / stmt->for_.step : 1;
    step->nest = thread && !b->chain;
    if (thread) step->threads = (int32_t)tir_thread_stride(b->pool, stmt);
    b->chain = thread;
    step->body = prepare_list(b, stmt->for_.body);
    b->stack.count--;
}

static void prepare_let(builder *b, const tir_stmt *stmt, tir_step *step) {
    step->first = place(b, stmt->let.value);
    step->taints = b->taints[stmt->let.value];
    push_binder(b, stmt->let.var, &step->bound);
    b->taints[stmt->let.var] = step->taints;
    step->variable = b->slot[stmt->let.var];
    step->body = prepare_list(b, stmt->let.body);
    b->stack.count--;
}

static void prepare_store(builder *b, const tir_stmt *stmt, tir_step *step) {
    if (stmt->store.buffer >= b->kernel->buffers.count) fail(b, "store to an unknown buffer");
    const tir_buffer *buffer = &b->kernel->buffers.data[stmt->store.buffer];
    if (stmt->store.rank != buffer->rank) fail(b, "store with a wrong number of indices");
    if (tir_dtype_of(b->pool, stmt->store.value) != (tir_dtype)buffer->dtype)
        fail(b, "store of another element type than the buffer's");
    b->reduction = tir_is_exact_reduction(b->arena, b->kernel, stmt);
    step->reduction = b->reduction;
    step->single_thread = buffer->scope != TIR_SCOPE_REG && buffer->scope != TIR_SCOPE_STACK;
    uint32_t *index = LIB_NEW_ARRAY(b->arena, uint32_t, (size_t)stmt->store.rank);
    for (int i = 0; i < stmt->store.rank; i++) {
        index[i] = place(b, stmt->store.index[i]);
        step->taints = step->taints || b->taints[stmt->store.index[i]];
    }
    step->index = index;
    step->first = place(b, stmt->store.value);
    step->taints = step->taints || b->taints[stmt->store.value];
}

static void prepare_collective(builder *b, const tir_stmt *stmt, tir_step *step) {
    const tir_unit *unit = stmt->collective.unit;
    tir_collective_step *c = LIB_NEW(b->arena, tir_collective_step);
    b->own = NULL; /* no index depends on memory */
    for (int v = 0; v < TIR_UNIT_VARS; v++) {
        push_binder(b, stmt->collective.var[v], &c->bound[v]);
        c->variable[v] = b->slot[stmt->collective.var[v]];
    }
    for (int p = 0; p < unit->places; p++) {
        const tir_place *at = &stmt->collective.place[p];
        if (at->buffer >= b->kernel->buffers.count) fail(b, "a place in an unknown buffer");
        if (at->rank != b->kernel->buffers.data[at->buffer].rank) fail(b, "a place with a wrong number of indices");
        for (int d = 0; d < at->rank; d++) c->index[p][d] = place(b, at->index[d]);
    }
    b->stack.count -= TIR_UNIT_VARS;
    step->collective = c;
}

static tir_step *prepare_list(builder *b, const tir_stmt *stmt) {
    tir_step *first = NULL, **link = &first;
    const bool chain = b->chain && stmt && !stmt->next;
    for (; stmt; stmt = stmt->next) {
        if (stmt->kind == TIR_PREFETCH || stmt->kind == TIR_COMMENT) continue;
        b->chain = chain;
        tir_step *step = LIB_NEW(b->arena, tir_step);
        step->stmt = stmt;
        begin_statement(b, stmt, &step->before);
        switch (stmt->kind) {
        case TIR_FOR: prepare_for(b, stmt, step); break;
        case TIR_LET: prepare_let(b, stmt, step); break;
        case TIR_IF:
            step->first = place(b, stmt->if_.condition);
            step->taints = b->taints[stmt->if_.condition];
            step->body = prepare_list(b, stmt->if_.body);
            step->otherwise = prepare_list(b, stmt->if_.otherwise);
            break;
        case TIR_INTERLEAVE: step->body = prepare_list(b, stmt->interleave.body); break;
        case TIR_SPILL: step->body = prepare_list(b, stmt->spill.body); break;
        case TIR_COLLECTIVE: prepare_collective(b, stmt, step); break;
        case TIR_BARRIER:
        case TIR_COMMIT:
        case TIR_WAIT: break;
        default: prepare_store(b, stmt, step); break;
        }
        *link = step;
        link = &step->next;
    }
    return first;
}

/* An expression over parameters alone. */
static uint32_t place_at_entry(builder *b, tir_expr e) {
    begin_statement(b, NULL, NULL);
    uint32_t slot = place(b, e);
    if (b->depth[e] != 0) fail(b, "an extent, stride, size or task count depends on more than parameters");
    return slot;
}

static void prepare_entry(builder *b) {
    const tir_kernel *kernel = b->kernel;
    tir_program *program = b->program;
    uint32_t *params = LIB_NEW_ARRAY(b->arena, uint32_t, kernel->params.count);
    program->params = params;
    program->extents = lib_arena_array(b->arena, kernel->buffers.count, sizeof *program->extents);
    program->strides = lib_arena_array(b->arena, kernel->buffers.count, sizeof *program->strides);
    program->offsets = LIB_NEW_ARRAY(b->arena, uint32_t, kernel->buffers.count);
    for (uint32_t i = 0; i < kernel->params.count; i++) params[i] = place_at_entry(b, kernel->params.data[i]);
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        const tir_buffer *buffer = &kernel->buffers.data[i];
        for (int d = 0; d < buffer->rank; d++) {
            program->extents[i][d] = place_at_entry(b, buffer->extent[d]);
            program->strides[i][d] = place_at_entry(b, buffer->stride[d]);
        }
        if (buffer->offset) program->offsets[i] = place_at_entry(b, buffer->offset);
    }
    if (kernel->workspace_size) program->workspace = place_at_entry(b, kernel->workspace_size);
    if (kernel->local_size) program->local = place_at_entry(b, kernel->local_size);
}

/* Phases i to i+n-1 run inside a repeat, with its counter in scope. */
static void prepare_phase(builder *b, uint32_t i, const tir_phase *repeat) {
    const tir_phase *phase = &b->kernel->phases.data[i];
    tir_program_phase *out = &b->program->phases[i];
    out->tasks = place_at_entry(b, phase->tasks);
    if (phase->repeat) out->repeat = place_at_entry(b, phase->repeat);
    if (repeat) {
        push_binder(b, repeat->iteration, &out->iteration_bound);
        out->iteration = b->slot[repeat->iteration];
    }
    push_binder(b, phase->task, &out->task_bound);
    out->task = b->slot[phase->task];
    out->threads = tir_threads(b->pool, phase->body);
    out->poll = tir_polls_of_tasks(b->polls, (int)i);
    out->body = prepare_list(b, phase->body);
    b->stack.count = 1;
    b->stmt = NULL;
}

tir_program *tir_program_new(lib_arena *arena, const tir_kernel *kernel) {
    return tir_program_new_polling(arena, kernel, TIR_POLL_WORK_INTERPRETED);
}

tir_program *tir_program_new_polling(lib_arena *arena, const tir_kernel *kernel, int64_t poll_work) {
    const size_t nodes = kernel->pool->nodes.count;
    builder b = {.arena = arena, .kernel = kernel, .pool = kernel->pool, .next_slot = 1};
    tir_program *program = LIB_NEW(arena, tir_program);
    program->kernel = kernel;
    program->phases = LIB_NEW_ARRAY(arena, tir_program_phase, kernel->phases.count);
    b.program = program;
    b.polls = tir_polls_new(arena, kernel, poll_work, 1);
    b.slot = LIB_NEW_ARRAY(arena, uint32_t, nodes);
    b.placed = LIB_NEW_ARRAY(arena, uint32_t, nodes);
    b.depth = LIB_NEW_ARRAY(arena, uint32_t, nodes);
    b.taints = LIB_NEW_ARRAY(arena, uint8_t, nodes);
    push_binder(&b, 0, &program->entry);
    prepare_entry(&b);
    const tir_phase *repeat = NULL;
    uint32_t repeat_end = 0;
    for (uint32_t i = 0; i < kernel->phases.count; i++) {
        if (i >= repeat_end) repeat = NULL;
        if (kernel->phases.data[i].repeat) {
            repeat = &kernel->phases.data[i];
            repeat_end = i + (uint32_t)repeat->repeat_phases;
        }
        prepare_phase(&b, i, repeat);
    }
    program->slots = b.next_slot;
    return program;
}
