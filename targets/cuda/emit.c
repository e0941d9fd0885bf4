/* Kernels, functions and statements in CUDA C; see emit.h. */
#include "targets/cuda/emit.h"
#include "targets/cuda/cuda.h"
#include "targets/cuda/units.h"

#include <stdio.h>

_Noreturn void print_unsupported(emitter *e, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    lib_raise(e->arena->scope, DLC_UNSUPPORTED, "kernel %s on cuda: %s", e->kernel->name, text);
}

void print_line(emitter *e, const char *format, ...) {
    va_list arguments;
    for (int i = 0; i < e->indent; i++) lib_text_add(e->text, "  ");
    va_start(arguments, format);
    lib_text_format_v(e->text, format, arguments);
    va_end(arguments);
    lib_text_add(e->text, "\n");
}

/* Is the name a word of C++ or of the prelude, which no variable or buffer may have? */
static bool is_word(const char *name) {
    static const char *const words[] = {
        "int",      "float",     "double",   "bool",       "char",        "short",     "long",     "signed",
        "unsigned", "void",      "auto",     "break",      "case",        "const",     "continue", "default",
        "do",       "enum",      "extern",   "goto",       "inline",      "new",       "delete",   "return",
        "sizeof",   "static",    "class",    "struct",     "switch",      "this",      "typedef",  "union",
        "volatile", "while",     "template", "operator",   "asm",         "register",  "public",   "private",
        "i8",       "i16",       "i32",      "i64",        "u8",          "u16",       "u32",      "u64",
        "f16",      "bf16",      "tid",      "first",      "workspace",   "iteration", "local",    "local_stride",
        "shared",   "shuffle",   "sticky",   "exp",        "log",         "pow",       "sin",      "cos",
        "tanh",     "erf",       "y0",       "y1",         "j0",          "j1",        "using",    "friend",
        "abs",      "min",       "max",      "div",        "floor",       "signal",    "try",      "catch",
        "throw",    "namespace", "swizzled", "copy_async", "copy_commit", "copy_wait"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(name, words[i]) == 0) return true;
    return false;
}

const char *print_name(emitter *e, const char *name) {
    if (is_word(name)) name = lib_arena_format(e->arena, "%s_", name);
    const char *free_name = tir_free_name(e->arena, &e->names, name);
    lib_vec_push(e->arena, &e->names, free_name);
    return free_name;
}

static const char *bind(emitter *e, tir_expr var) {
    return e->variable[tir_var_id(e->pool, var)] = print_name(e, tir_variable_of(e->pool, var)->name);
}

/* ---- facts */

typedef struct size_search {
    emitter *e;
    /* by node: was it visited? */
    uint8_t *seen;
} size_search;

static bool fits(tir_interval range) {
    return range.low >= INT32_MIN && range.high <= INT32_MAX;
}

static void find_wide(void *user, tir_expr root) {
    size_search *search = user;
    emitter *e = search->e;
    lib_vec(tir_expr) stack = {0};
    lib_vec_push(e->arena, &stack, root);
    while (stack.count && !e->wide) {
        tir_expr node = stack.data[--stack.count];
        if (search->seen[node]) continue;
        search->seen[node] = 1;
        if (tir_dtype_of(e->pool, node) == TIR_INDEX && !fits(tir_range(e->pool, node))) e->wide = true;
        for (int i = 0; i < tir_get(e->pool, node)->count; i++)
            lib_vec_push(e->arena, &stack, tir_operand(e->pool, node, i));
    }
}

static void find_wide_in(void *user, const tir_stmt *stmt) {
    tir_stmt_exprs(stmt, find_wide, user);
}

/* Do indices, offsets and task numbers need 64 bits? */
static void decide_width(emitter *e) {
    size_search search = {e, LIB_NEW_ARRAY(e->arena, uint8_t, e->pool->nodes.count)};
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) {
        const tir_buffer *buffer = &e->kernel->buffers.data[i];
        int64_t low = 0, high = 0;
        if (buffer->offset) find_wide(&search, buffer->offset);
        for (int d = 0; d < buffer->rank && !e->wide; d++) {
            tir_interval extent = tir_range(e->pool, buffer->extent[d]), stride = tir_range(e->pool, buffer->stride[d]);
            if (!fits(extent) || !fits(stride)) {
                e->wide = true;
                break;
            }
            int64_t a = (extent.high - 1) * stride.low, b = (extent.high - 1) * stride.high;
            low += a < b ? a : b;
            high += a < b ? b : a;
            e->wide = !fits((tir_interval){low, high});
        }
    }
    for (uint32_t p = 0; p < e->kernel->phases.count; p++) {
        find_wide(&search, e->kernel->phases.data[p].tasks);
        tir_stmt_walk(e->kernel->phases.data[p].body, find_wide_in, &search);
    }
}

typedef struct buffer_use {
    const tir_kernel *kernel;
    bool *used;
} buffer_use;

static tir_expr find_buffer(void *user, tir_pool *pool, tir_expr node, tir_expr rebuilt) {
    if (tir_op_of(pool, node) == TIR_LOAD) ((buffer_use *)user)->used[tir_get(pool, node)->bits] = true;
    return rebuilt;
}
static void find_buffers(void *user, tir_expr e) {
    tir_rewrite(((buffer_use *)user)->kernel->pool, e, find_buffer, user);
}
static void find_buffers_in(void *user, const tir_stmt *stmt) {
    tir_stmt_exprs(stmt, find_buffers, user);
    if (stmt->kind == TIR_STORE) ((buffer_use *)user)->used[stmt->store.buffer] = true;
    for (int p = 0; stmt->kind == TIR_COLLECTIVE && p < stmt->collective.unit->places; p++)
        ((buffer_use *)user)->used[stmt->collective.place[p].buffer] = true;
}

static int64_t buffer_elements(const tir_kernel *kernel, const tir_buffer *buffer) {
    int64_t count = 1, extent = 0;
    for (int d = 0; d < buffer->rank; d++) {
        tir_is_const(kernel->pool, buffer->extent[d], &extent);
        count *= extent;
    }
    return count;
}

int cuda_phase_threads(const tir_kernel *kernel, int phase) {
    int64_t threads = tir_threads(kernel->pool, kernel->phases.data[phase].body);
    return (int)((threads + TIR_WARP - 1) / TIR_WARP * TIR_WARP);
}

int64_t cuda_phase_shared(const tir_kernel *kernel, int phase) {
    return kernel->phases.data[phase].shared_bytes;
}

/* ---- statements */

static void emit_list(emitter *e, const tir_stmt *stmt);

static void open_block(emitter *e, const char *head) {
    print_line(e, "%s{", head);
    e->indent++;
}
static void close_block(emitter *e) {
    e->indent--;
    print_line(e, "}");
}

static void emit_serial(emitter *e, const tir_stmt *stmt) {
    const char *lower = print_value(e, stmt->for_.lower);
    tir_expr end = tir_add(e->pool, stmt->for_.lower, stmt->for_.extent);
    const char *last = print_atom(e, end);
    print_forget(e);
    const char *name = bind(e, stmt->for_.var);
    if (stmt->for_.loop != TIR_SERIAL) print_line(e, "#pragma unroll");
    open_block(e, lib_arena_format(e->arena, "for (%s %s = %s; %s < %s; ++%s) ", print_type(e, TIR_INDEX), name, lower,
                                   name, last, name));
    emit_list(e, stmt->for_.body);
    close_block(e);
}

/* Prints a vec loop twice, with vector accesses for when all lanes are active, and lane by lane for other cases; false: nothing was
 * printed. */
static bool emit_both_paths(emitter *e, const tir_stmt *stmt) {
    tir_expr condition;
    const tir_stmt *whole = print_whole_loop(e, stmt, &condition);
    if (!whole) return false;
    const size_t before = e->text->length;
    open_block(e, lib_arena_format(e->arena, "if (%s) ", print_value(e, condition)));
    print_forget(e);
    const bool vectors = print_vector_loop(e, whole);
    print_forget(e);
    e->indent--;
    if (!vectors) {
        e->text->length = before;
        e->text->data[before] = 0;
        return false;
    }
    print_line(e, "} else {");
    e->indent++;
    emit_serial(e, stmt);
    close_block(e);
    return true;
}

static void emit_vector(emitter *e, const tir_stmt *stmt) {
    if (!print_copy_loop(e, stmt) && !emit_both_paths(e, stmt) && !print_vector_loop(e, stmt)) emit_serial(e, stmt);
}

/* Prints a thread loop: its iterations belong to the first threads of the group around. The other threads skip the loop; if the loop reads
 * registers of other threads, which takes whole warps, they compute, too, and store nothing. */
static void emit_threads(emitter *e, const tir_stmt *stmt) {
    const int64_t around = e->threads.count ? e->threads.loop[e->threads.count - 1].stride : e->block;
    const char *relative = e->relative, *inside = e->inside, *type = print_type(e, TIR_INDEX);
    int64_t stride = tir_thread_stride(e->pool, stmt), extent = 1;
    tir_is_const(e->pool, stmt->for_.extent, &extent);
    bool rest = extent * stride < around, along = false;
    e->threads.loop[e->threads.count++] = (tir_thread_loop){stmt->for_.var, stride};
    if (rest) along = print_shuffles(e, stmt->for_.body);
    const char *position = stride > 1 ? lib_arena_format(e->arena, "%s / %lld", relative, (long long)stride) : relative;
    const char *first = print_value(e, stmt->for_.lower);
    open_block(e, rest && !along ? lib_arena_format(e->arena, "if (%s < %lld) ", relative, (long long)(extent * stride))
                                 : "");
    if (along) {
        position = lib_arena_format(e->arena, "int_min(%s, %lld)", position, (long long)extent - 1);
        e->inside = print_name(e, "inside");
        print_line(e, "const bool %s = %s%s%s < %lld;", e->inside, inside ? inside : "", inside ? " && " : "", relative,
                   (long long)(extent * stride));
    }
    const char *name = bind(e, stmt->for_.var);
    bool zero = strcmp(first, "0") == 0;
    print_line(e, "const %s %s = %s%s%s;", type, name, zero ? "" : first, zero ? "" : " + ", position);
    if (stride > 1) {
        e->relative = print_name(e, "lane");
        print_line(e, "const int %s = %s %% %lld;", e->relative, relative, (long long)stride);
    }
    print_forget(e);
    emit_list(e, stmt->for_.body);
    close_block(e);
    e->threads.count--;
    e->relative = relative;
    e->inside = inside;
}

/* May the condition differ between threads of one warp? */
static bool divides_warps(emitter *e, tir_expr condition) {
    for (int i = 0; i < e->threads.count; i++)
        if (e->threads.loop[i].stride % TIR_WARP && tir_uses(e->pool, condition, e->threads.loop[i].var)) return true;
    return false;
}

/* Prints an IF whose condition may differ within a warp and whose body reads registers of other threads: the registers are read before
 * it. */
static void emit_divergent(emitter *e, const tir_stmt *stmt) {
    const tir_stmt *store = stmt->if_.body;
    if (stmt->if_.otherwise || store->kind != TIR_STORE || store->next || !print_only_registers(e, store->store.value))
        print_unsupported(e, "registers of other threads are read where not all threads of a warp come");
    const char *value = print_value(e, store->store.value);
    if (strchr(value, '(')) {
        const char *name = print_name(e, "stored");
        print_line(e, "const %s %s = %s;", print_type(e, tir_dtype_of(e->pool, store->store.value)), name, value);
        value = name;
    }
    const char *condition = print_value(e, stmt->if_.condition);
    open_block(e, lib_arena_format(e->arena, "if (%s) ", condition));
    print_forget(e);
    print_store_of(e, store, value);
    close_block(e);
}

static void emit_if(emitter *e, const tir_stmt *stmt) {
    if (divides_warps(e, stmt->if_.condition) &&
        (print_shuffles(e, stmt->if_.body) || print_shuffles(e, stmt->if_.otherwise))) {
        emit_divergent(e, stmt);
        return;
    }
    const char *condition = print_value(e, stmt->if_.condition);
    open_block(e, lib_arena_format(e->arena, "if (%s) ", condition));
    print_forget(e);
    emit_list(e, stmt->if_.body);
    e->indent--;
    if (stmt->if_.otherwise) {
        print_line(e, "} else {");
        e->indent++;
        emit_list(e, stmt->if_.otherwise);
        e->indent--;
    }
    print_line(e, "}");
}

static void emit_let(emitter *e, const tir_stmt *stmt) {
    const char *value = print_value(e, stmt->let.value);
    print_forget(e);
    const char *name = bind(e, stmt->let.var);
    print_line(e, "const %s %s = %s;", print_type(e, tir_dtype_of(e->pool, stmt->let.var)), name, value);
    emit_list(e, stmt->let.body);
}

static void emit_list(emitter *e, const tir_stmt *stmt) {
    for (; stmt; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR:
            if (stmt->for_.loop == TIR_THREAD)
                emit_threads(e, stmt);
            else if (stmt->for_.loop == TIR_VEC)
                emit_vector(e, stmt);
            else
                emit_serial(e, stmt);
            break;
        case TIR_LET:
            if (stmt->next) open_block(e, "");
            emit_let(e, stmt);
            if (stmt->next) close_block(e);
            break;
        case TIR_IF: emit_if(e, stmt); break;
        case TIR_STORE:
            if (!print_copy(e, stmt)) print_store(e, stmt);
            break;
        case TIR_COLLECTIVE: print_collective(e, stmt); break;
        case TIR_INTERLEAVE: emit_list(e, stmt->interleave.body); break;
        case TIR_SPILL: emit_list(e, stmt->spill.body); break;
        case TIR_BARRIER: print_line(e, e->threads.count ? "__syncwarp();" : "__syncthreads();"); break;
        case TIR_COMMIT: print_line(e, "copy_commit();"); break;
        case TIR_WAIT: print_line(e, "copy_wait<%d>();", stmt->wait.groups); break;
        case TIR_COMMENT: print_line(e, "/* %s */", stmt->comment); break;
        case TIR_PREFETCH: break;
        }
        print_forget(e);
    }
}

/* ---- functions */

static const char *memory_type(const emitter *e, const tir_buffer *buffer) {
    return buffer->dtype == DLC_BOOL ? "u8" : print_type(e, (tir_dtype)buffer->dtype);
}

static void emit_signature(emitter *e, int number, int phase) {
    print_line(e, "extern \"C\" __global__ void __launch_bounds__(%lld) k%d_p%d(", (long long)e->block, number, phase);
    e->indent += 2;
    for (int i = 0; i < e->kernel->arguments; i++) {
        const tir_buffer *buffer = &e->kernel->buffers.data[i];
        print_line(e, "%s%s *%s,", buffer->written ? "" : "const ", memory_type(e, buffer), e->buffer[i]);
    }
    for (uint32_t i = 0; i < e->kernel->params.count; i++)
        print_line(e, "const i64 %s_,", e->variable[tir_var_id(e->pool, e->kernel->params.data[i])]);
    print_line(e, "char *workspace, char *local, const i64 local_stride, const i64 iteration, const i64 first) {");
    e->indent -= 2;
}

static void emit_buffers(emitter *e, int phase) {
    buffer_use use = {e->kernel, LIB_NEW_ARRAY(e->arena, bool, e->kernel->buffers.count + 1)};
    tir_stmt_walk(e->kernel->phases.data[phase].body, find_buffers_in, &use);
    if (e->kernel->phases.data[phase].shared_bytes) print_line(e, "extern __shared__ __align__(1024) char shared[];");
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) {
        const tir_buffer *buffer = &e->kernel->buffers.data[i];
        const char *type = memory_type(e, buffer);
        if (!use.used[i]) continue;
        switch (buffer->scope) {
        case TIR_SCOPE_ARG: break;
        case TIR_SCOPE_WORKSPACE:
            print_line(e, "%s *const %s = (%s *)(workspace + %s);", type, e->buffer[i], type,
                       buffer->offset ? print_atom(e, buffer->offset) : "0");
            break;
        case TIR_SCOPE_SHARED:
            print_line(e, "%s *const %s = (%s *)(shared + %s);", type, e->buffer[i], type,
                       print_value(e, buffer->offset));
            break;
        case TIR_SCOPE_LOCAL:
            print_line(e, "%s *const %s = (%s *)(local + blockIdx.x * local_stride + %s);", type, e->buffer[i], type,
                       buffer->offset ? print_atom(e, buffer->offset) : "0");
            break;
        case TIR_SCOPE_REG:
        case TIR_SCOPE_STACK: {
            int64_t count = buffer_elements(e->kernel, buffer), extent = 1;
            for (int d = 0; d < buffer->rank; d++) {
                tir_is_const(e->pool, buffer->extent[d], &extent);
                if (e->registers[i].owned[d] && extent) count /= extent;
            }
            print_line(e, "__align__(16) %s %s[%lld]%s;", print_type(e, (tir_dtype)buffer->dtype), e->buffer[i],
                       (long long)(count ? count : 1), buffer->zero_initialised ? " = {}" : "");
            break;
        }
        }
    }
}

/* The phase that begins the repeated group to which `phase` belongs; NULL: it is not repeated. */
static const tir_phase *repeat_of(const tir_kernel *kernel, int phase) {
    for (int p = phase; p >= 0; p--)
        if (kernel->phases.data[p].repeat)
            return p + kernel->phases.data[p].repeat_phases > phase ? &kernel->phases.data[p] : NULL;
    return NULL;
}

static void emit_phase(emitter *e, int number, int phase) {
    const tir_phase *p = &e->kernel->phases.data[phase], *repeat = repeat_of(e->kernel, phase);
    const uint32_t outer_names = e->names.count;
    const char *type = print_type(e, TIR_INDEX);
    e->block = cuda_phase_threads(e->kernel, phase);
    e->threads.count = 0;
    e->relative = "tid";
    e->inside = NULL;
    e->temporaries = 0;
    print_find_registers(e, p);
    if (p->name) print_line(e, "/* %s */", p->name);
    emit_signature(e, number, phase);
    e->indent++;
    print_line(e, "const int tid = threadIdx.x;");
    for (uint32_t i = 0; i < e->kernel->params.count; i++) {
        const char *name = e->variable[tir_var_id(e->pool, e->kernel->params.data[i])];
        print_line(e, "const %s %s = %s(%s_);", type, name, type, name);
    }
    if (repeat) {
        const char *name = bind(e, repeat->iteration);
        print_line(e, "const %s %s = %s(iteration);", type, name, type);
    }
    const char *task = bind(e, p->task);
    print_line(e, "const %s %s = %s(first) + %s(blockIdx.x);", type, task, type, type);
    emit_buffers(e, phase);
    print_forget(e);
    emit_list(e, p->body);
    e->indent--;
    print_line(e, "}\n");
    e->names.count = outer_names;
}

/* A copy of the kernel, because printing adds nodes to the pool, and other threads may read the kernel's. */
static tir_kernel *own_copy(const tir_kernel *kernel, lib_arena *arena) {
    lib_text text;
    lib_lexer lexer;
    lib_text_init(&text, arena);
    tir_kernel_print(&text, kernel);
    lib_lexer_init(&lexer, arena, "kernel", text.data, text.length);
    return tir_kernel_parse(arena, &lexer, cuda_units);
}

void cuda_emit(const tir_kernel *original, int number, lib_text *text) {
    const tir_kernel *kernel = own_copy(original, text->arena);
    emitter e = {.kernel = kernel, .pool = kernel->pool, .arena = text->arena, .text = text};
    e.variable = LIB_NEW_ARRAY(e.arena, const char *, kernel->pool->variables.count + 1);
    e.buffer = LIB_NEW_ARRAY(e.arena, const char *, kernel->buffers.count + 1);
    e.registers = LIB_NEW_ARRAY(e.arena, tir_registers, kernel->buffers.count + 1);
    decide_width(&e);
    for (uint32_t i = 0; i < kernel->buffers.count; i++) e.buffer[i] = print_name(&e, kernel->buffers.data[i].name);
    for (uint32_t i = 0; i < kernel->params.count; i++) bind(&e, kernel->params.data[i]);
    for (int p = 0; p < (int)kernel->phases.count; p++) emit_phase(&e, number, p);
}
