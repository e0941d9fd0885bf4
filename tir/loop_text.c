/* Text form of loop IR: printing and parsing, inverse to each other (tir/loop.h shows the form). In addition to what is shown
 * there:
 *
 *   kernel k(x: f32[n, 8] arg stride(16, 1) align 64, t: f32[7] local zero @128)
 *       params(n: 1..4096 x8, s: f32) workspace(0) local(192) cost(1e6, 4096)
 *   phase "name" tasks=n task=p repeat=4 iteration=t repeat_phases=2 {
 *     for i in 0..n { }              the whole range
 *     for i in b .. +7 vec { }       lower bound and extent
 *     let b = p*8                    its scope is the rest of the list; or a body in braces
 *     let v: f32 = x[b, 0]           values other than index ones name their dtype
 *     nt D[i] = v                    non-temporal store
 *     matrix (q, r, c) F[r, c/2, c%2] = S[r, c]    a collective statement, by its name among the units that the parser is given
 *     async xs[i] = x[i]             the copy is pending until its group is waited for
 *     commit                         ends a group
 *     wait 1                         waits for all groups but the last one
 *     barrier
 *     for i in 0..96 by 48 { }       i is 0, 48
 *     for j in i .. +16 lanes 16 { } the lanes of one vector; lanes 8 of 16: a narrower last one
 *     for r in 2 .. +1 rows upper { for j in 16 .. +5 lanes 8 { } }
 *     if (c) masked { } else masked { }   under masks, without branches; if (c) split { }: a copy without masks, too
 *     interleave { }                 lanes loops, executed side by side
 *     transpose.8 y[j, i] = v        lanes that are a distance apart: eight such stores are transposed at once
 *     lanes.unroll y[j*9] = v        lane by lane; lanes.loop y[j*9] = v: by a loop over the lanes, in transpose.8 lanes.loop y[j, i] = v some
 *     spill C { }                    in which the reg buffer is in memory
 *     comment "text"
 *   }
 *
 * Shared buffers: `xs: f32[8, 32] shared swizzle 128 @1024`; those without an offset get one after all others.
 * Strides are compact and arguments aligned to their element unless stated; without workspace(..) or local(..) buffers
 * of that scope get consecutive offsets. `read` and `written` follow from the statements. Printing renames names
 * that are taken in their scope or reserved, so that the printed text always parses back to the same structure. */
#include "tir/loop.h"
#include "tir/names.h"

/* ---- printing */

typedef struct printer {
    lib_text *text;
    lib_arena *arena;
    const tir_kernel *kernel;
    /* the kernel's, with a separate variable table: its names are those in scope */
    tir_pool pool;
    /* names taken: buffers, then variables, innermost last */
    tir_name_list scope;
    /* by id */
    const char **buffers;
    /* names whose scope is the whole kernel */
    uint32_t outermost;
} printer;

static void printer_init(printer *p, lib_text *text, const tir_kernel *kernel) {
    memset(p, 0, sizeof *p);
    p->text = text;
    p->arena = text->arena;
    p->kernel = kernel;
    p->pool = *kernel->pool;
    p->pool.variables.data = lib_arena_copy(p->arena, kernel->pool->variables.data,
                                            kernel->pool->variables.count * sizeof *kernel->pool->variables.data);
    p->buffers = LIB_NEW_ARRAY(p->arena, const char *, kernel->buffers.count);
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        p->buffers[i] = tir_free_name(p->arena, &p->scope, kernel->buffers.data[i].name);
        lib_vec_push(p->arena, &p->scope, p->buffers[i]);
    }
}

static const char *bind(printer *p, tir_expr var) {
    tir_variable *variable = &p->pool.variables.data[tir_var_id(&p->pool, var)];
    variable->name = tir_free_name(p->arena, &p->scope, variable->name);
    lib_vec_push(p->arena, &p->scope, variable->name);
    return variable->name;
}

static void print_expr(printer *p, tir_expr e) {
    tir_print_expr(p->text, &p->pool, e, p->buffers);
}

static void print_exprs(printer *p, int count, const tir_expr *e) {
    tir_exprs_print(p->text, &p->pool, count, e, p->buffers);
}

static void print_indent(printer *p, int indent) {
    for (int i = 0; i < indent; i++) lib_text_add(p->text, "  ");
}

static void print_list(printer *p, const tir_stmt *stmt, int indent);

static void print_block(printer *p, const tir_stmt *body, int indent) {
    lib_text_add(p->text, "{\n");
    print_list(p, body, indent + 1);
    print_indent(p, indent);
    lib_text_add(p->text, "}");
}

static void print_for(printer *p, const tir_stmt *stmt, int indent) {
    const char *name = bind(p, stmt->for_.var);
    p->scope.count--; /* not in scope in the bounds */
    int64_t lower = 1, extent;
    bool constant = tir_is_const(&p->pool, stmt->for_.lower, &lower);
    lib_text_format(p->text, "for %s in ", name);
    print_expr(p, stmt->for_.lower);
    if (constant && lower == 0) {
        lib_text_add(p->text, tir_is_const(&p->pool, stmt->for_.extent, &extent) ? ".." : " .. ");
    } else {
        lib_text_add(p->text, " .. +");
    }
    print_expr(p, stmt->for_.extent);
    lib_text_add(p->text, " ");
    if (stmt->for_.step != 1) lib_text_format(p->text, "by %lld ", (long long)stmt->for_.step);
    if (stmt->for_.loop != TIR_SERIAL) lib_text_format(p->text, "%s ", tir_loop_kind_names[stmt->for_.loop]);
    if (stmt->for_.loop == TIR_LANES) lib_text_format(p->text, "%d ", stmt->for_.width);
    if (stmt->for_.loop == TIR_LANES && stmt->for_.whole != stmt->for_.width)
        lib_text_format(p->text, "of %d ", stmt->for_.whole);
    if (stmt->for_.loop == TIR_ROWS && stmt->for_.half) lib_text_add(p->text, "upper ");
    p->scope.count++;
    print_block(p, stmt->for_.body, indent);
    p->scope.count--;
}

static void print_let(printer *p, const tir_stmt *stmt, int indent) {
    const char *name = bind(p, stmt->let.var);
    tir_dtype dtype = tir_dtype_of(&p->pool, stmt->let.var);
    p->scope.count--;
    lib_text_format(p->text, "let %s", name);
    if (dtype != TIR_INDEX) lib_text_format(p->text, ": %s", tir_dtype_name(dtype));
    lib_text_add(p->text, " = ");
    print_expr(p, stmt->let.value);
    p->scope.count++;
    if (stmt->next) {
        lib_text_add(p->text, " ");
        print_block(p, stmt->let.body, indent);
    } else if (stmt->let.body) {
        lib_text_add(p->text, "\n");
        print_list(p, stmt->let.body, indent);
        p->text->data[--p->text->length] = 0; /* the caller terminates the line */
    }
    p->scope.count--;
}

static void print_place(printer *p, uint32_t buffer, int rank, const tir_expr *index) {
    lib_text_format(p->text, "%s[", p->buffers[buffer]);
    print_exprs(p, rank, index);
    lib_text_add(p->text, "]");
}

static void print_collective(printer *p, const tir_stmt *stmt) {
    const tir_unit *unit = stmt->collective.unit;
    const char *separator[] = {"", unit->kind == TIR_MULTIPLY ? " += " : " = ", " * "};
    const uint32_t outer = p->scope.count;
    lib_text_format(p->text, "%s (", unit->name);
    for (int v = 0; v < TIR_UNIT_VARS; v++)
        lib_text_format(p->text, "%s%s", v ? ", " : "", bind(p, stmt->collective.var[v]));
    lib_text_add(p->text, ") ");
    for (int i = 0; i < unit->places; i++) {
        const tir_place *place = &stmt->collective.place[i];
        lib_text_add(p->text, separator[i]);
        print_place(p, place->buffer, place->rank, place->index);
    }
    p->scope.count = outer;
}

static void print_stmt(printer *p, const tir_stmt *stmt, int indent) {
    print_indent(p, indent);
    switch (stmt->kind) {
    case TIR_FOR: print_for(p, stmt, indent); break;
    case TIR_LET: print_let(p, stmt, indent); break;
    case TIR_IF:
        lib_text_add(p->text, "if (");
        print_expr(p, stmt->if_.condition);
        lib_text_add(p->text, stmt->if_.split ? ") split " : stmt->if_.masked ? ") masked " : ") ");
        print_block(p, stmt->if_.body, indent);
        if (!stmt->if_.otherwise) break;
        lib_text_add(p->text, stmt->if_.otherwise_masked ? " else masked " : " else ");
        print_block(p, stmt->if_.otherwise, indent);
        break;
    case TIR_STORE:
        if (stmt->store.non_temporal) lib_text_add(p->text, "nt ");
        if (stmt->store.async) lib_text_add(p->text, "async ");
        if (stmt->store.rows > 1) lib_text_format(p->text, "transpose.%d ", stmt->store.rows);
        if (stmt->store.lane_loop || stmt->store.rows == 1)
            lib_text_add(p->text, stmt->store.lane_loop ? "lanes.loop " : "lanes.unroll ");
        print_place(p, stmt->store.buffer, stmt->store.rank, stmt->store.index);
        lib_text_add(p->text, " = ");
        print_expr(p, stmt->store.value);
        break;
    case TIR_PREFETCH:
        if (stmt->prefetch.write)
            lib_text_add(p->text, "prefetch.w ");
        else
            lib_text_format(p->text, "prefetch.%d ", stmt->prefetch.level);
        print_place(p, stmt->prefetch.buffer, stmt->prefetch.rank, stmt->prefetch.index);
        break;
    case TIR_INTERLEAVE:
        lib_text_add(p->text, "interleave ");
        print_block(p, stmt->interleave.body, indent);
        break;
    case TIR_SPILL:
        lib_text_format(p->text, "spill %s ", p->buffers[stmt->spill.buffer]);
        print_block(p, stmt->spill.body, indent);
        break;
    case TIR_COLLECTIVE: print_collective(p, stmt); break;
    case TIR_BARRIER: lib_text_add(p->text, "barrier"); break;
    case TIR_COMMIT: lib_text_add(p->text, "commit"); break;
    case TIR_WAIT: lib_text_format(p->text, "wait %d", stmt->wait.groups); break;
    case TIR_COMMENT:
        lib_text_add(p->text, "comment ");
        lib_text_quoted(p->text, stmt->comment);
        break;
    }
    lib_text_add(p->text, "\n");
}

static void print_list(printer *p, const tir_stmt *stmt, int indent) {
    for (; stmt; stmt = stmt->next) print_stmt(p, stmt, indent);
}

void tir_stmt_print(lib_text *text, const tir_kernel *kernel, const tir_stmt *stmt, int indent) {
    printer p;
    printer_init(&p, text, kernel);
    print_stmt(&p, stmt, indent);
}

/* Whether the strides equal the parser's defaults. Only inspects expressions: printing adds none to the pool. */
static bool has_compact_strides(const tir_pool *pool, const tir_buffer *buffer) {
    int64_t inner, extent, stride;
    if (buffer->rank == 0) return true;
    if (!tir_is_number(pool, buffer->stride[buffer->rank - 1], 1)) return false;
    for (int i = buffer->rank - 2; i >= 0; i--) {
        tir_expr e = buffer->extent[i + 1], s = buffer->stride[i + 1];
        bool e_constant = tir_is_const(pool, e, &extent), s_constant = tir_is_const(pool, s, &inner);
        if (e_constant && s_constant) {
            if (!tir_is_const(pool, buffer->stride[i], &stride) || stride != inner * extent) return false;
        } else if (!(s_constant && inner == 1 && buffer->stride[i] == e) &&
                   !(e_constant && extent == 1 && buffer->stride[i] == s)) {
            return false;
        }
    }
    return true;
}

static void print_buffer(printer *p, uint32_t id) {
    const tir_buffer *buffer = &p->kernel->buffers.data[id];
    lib_text_format(p->text, "%s: %s[", p->buffers[id], lib_dtypes[buffer->dtype].name);
    print_exprs(p, buffer->rank, buffer->extent);
    lib_text_format(p->text, "] %s", tir_scope_names[buffer->scope]);
    if (!has_compact_strides(&p->pool, buffer)) {
        lib_text_add(p->text, " stride(");
        print_exprs(p, buffer->rank, buffer->stride);
        lib_text_add(p->text, ")");
    }
    if (buffer->scope == TIR_SCOPE_ARG && buffer->alignment != (int32_t)lib_dtype_size(buffer->dtype))
        lib_text_format(p->text, " align %d", buffer->alignment);
    if (buffer->zero_initialised) lib_text_add(p->text, " zero");
    if (buffer->swizzle) lib_text_format(p->text, " swizzle %d", buffer->swizzle);
    if (!buffer->offset || (buffer->scope != TIR_SCOPE_SHARED && tir_is_number(p->kernel->pool, buffer->offset, 0)))
        return;
    lib_text_add(p->text, " @");
    print_exprs(p, 1, &buffer->offset);
}

static void print_size(printer *p, const char *name, tir_expr size) {
    if (!size) return;
    lib_text_format(p->text, " %s(", name);
    print_expr(p, size);
    lib_text_add(p->text, ")");
}

static void print_phase(printer *p, const tir_phase *phase) {
    lib_text_add(p->text, "phase ");
    if (phase->name) {
        lib_text_quoted(p->text, phase->name);
        lib_text_add(p->text, " ");
    }
    lib_text_add(p->text, "tasks=");
    print_expr(p, phase->tasks);
    if (phase->repeat) {
        lib_text_add(p->text, " repeat=");
        print_expr(p, phase->repeat);
        lib_text_format(p->text, " iteration=%s repeat_phases=%d", bind(p, phase->iteration), phase->repeat_phases);
    }
    lib_text_format(p->text, " task=%s ", bind(p, phase->task));
    print_block(p, phase->body, 0);
    lib_text_add(p->text, "\n");
    p->scope.count--;
}

void tir_kernel_print(lib_text *text, const tir_kernel *kernel) {
    printer p;
    printer_init(&p, text, kernel);
    for (uint32_t i = 0; i < kernel->params.count; i++) bind(&p, kernel->params.data[i]);
    p.outermost = p.scope.count;
    lib_text_format(text, "kernel %s(", tir_free_name(p.arena, &(tir_name_list){0}, kernel->name));
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        if (i) lib_text_add(text, ", ");
        print_buffer(&p, i);
    }
    lib_text_add(text, ")");
    if (kernel->params.count) tir_params_print(p.text, &p.pool, kernel->params.count, kernel->params.data);
    print_size(&p, "workspace", kernel->workspace_size);
    print_size(&p, "local", kernel->local_size);
    if (kernel->flops != 0 || kernel->bytes != 0) {
        lib_text_add(text, " cost(");
        lib_text_float(text, kernel->flops, DLC_F64);
        lib_text_add(text, ", ");
        lib_text_float(text, kernel->bytes, DLC_F64);
        lib_text_add(text, ")");
    }
    lib_text_add(text, "\n");
    uint32_t repeat_end = 0; /* phases before it have the iteration variable in scope */
    for (uint32_t i = 0; i < kernel->phases.count; i++) {
        const tir_phase *phase = &kernel->phases.data[i];
        if (i >= repeat_end) p.scope.count = p.outermost;
        if (phase->repeat) repeat_end = i + (uint32_t)phase->repeat_phases;
        print_phase(&p, phase);
    }
}

/* ---- parsing */

typedef struct parser {
    /* rows that collective statements may name */
    const tir_unit *units;
    lib_lexer *lexer;
    tir_kernel *kernel;
    /* variables in scope, innermost last */
    lib_vec(tir_expr) scope;
    tir_names names;
} parser;

static tir_expr find_variable(void *user, const char *name) {
    parser *p = user;
    for (uint32_t i = p->scope.count; i-- > 0;)
        if (strcmp(tir_variable_of(p->kernel->pool, p->scope.data[i])->name, name) == 0) return p->scope.data[i];
    return 0;
}

static bool find_buffer(void *user, const char *name, uint32_t *id, tir_dtype *dtype, int *rank) {
    parser *p = user;
    for (uint32_t i = 0; i < p->kernel->buffers.count; i++) {
        const tir_buffer *buffer = &p->kernel->buffers.data[i];
        if (strcmp(buffer->name, name) != 0) continue;
        *id = i;
        *dtype = (tir_dtype)buffer->dtype;
        *rank = buffer->rank;
        return true;
    }
    return false;
}

static tir_expr parse_expr(parser *p, tir_dtype expected) {
    return tir_parse_expr(p->kernel->pool, p->lexer, &p->names, expected);
}

static tir_expr parse_index(parser *p) {
    return parse_expr(p, TIR_INDEX);
}

static int parse_indices(parser *p, const char *close, int limit, tir_expr *out) {
    return tir_indices_read(p->kernel->pool, p->lexer, &p->names, close, limit, out);
}

static void push_scope(parser *p, tir_expr var) {
    lib_vec_push(p->kernel->arena, &p->scope, var);
}

static tir_stmt *parse_list(parser *p);

static tir_stmt *parse_block(parser *p) {
    lib_lexer_expect(p->lexer, "{");
    tir_stmt *body = parse_list(p);
    lib_lexer_expect(p->lexer, "}");
    return body;
}

static int parse_lanes(parser *p) {
    const int64_t lanes = lib_lexer_integer(p->lexer);
    if (lanes < 1 || lanes > TIR_MAX_LANES) lib_lexer_raise(p->lexer, "no vector has %lld lanes", (long long)lanes);
    return (int)lanes;
}

static tir_stmt *parse_for(parser *p) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_FOR);
    tir_pool *pool = p->kernel->pool;
    const char *name = lib_lexer_name(p->lexer);
    lib_lexer_expect(p->lexer, "in");
    stmt->for_.lower = parse_index(p);
    tir_range_expect(p->lexer);
    bool is_extent = lib_lexer_accept(p->lexer, "+");
    tir_expr bound = parse_index(p);
    stmt->for_.extent = is_extent ? bound : tir_sub(pool, bound, stmt->for_.lower);
    if (lib_lexer_accept(p->lexer, "by")) stmt->for_.step = lib_lexer_integer(p->lexer);
    if (stmt->for_.step < 1) lib_lexer_raise(p->lexer, "loop %s does not advance", name);
    for (int kind = TIR_UNROLL; kind <= TIR_ROWS; kind++)
        if (lib_lexer_accept(p->lexer, tir_loop_kind_names[kind])) stmt->for_.loop = (tir_loop_kind)kind;
    if (stmt->for_.loop == TIR_LANES) {
        stmt->for_.width = stmt->for_.whole = parse_lanes(p);
        if (lib_lexer_accept(p->lexer, "of")) stmt->for_.whole = parse_lanes(p);
    }
    stmt->for_.half = stmt->for_.loop == TIR_ROWS && lib_lexer_accept(p->lexer, "upper");
    stmt->for_.var = tir_stepped_variable(pool, name, stmt->for_.lower, stmt->for_.extent, stmt->for_.step);
    push_scope(p, stmt->for_.var);
    stmt->for_.body = parse_block(p);
    p->scope.count--;
    return stmt;
}

static tir_stmt *parse_let(parser *p) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_LET);
    const char *name = lib_lexer_name(p->lexer);
    tir_dtype dtype = lib_lexer_accept(p->lexer, ":") ? tir_dtype_read(p->lexer, true) : TIR_INDEX;
    lib_lexer_expect(p->lexer, "=");
    stmt->let.value = parse_expr(p, dtype);
    stmt->let.var = tir_let_variable(p->kernel->pool, name, stmt->let.value);
    push_scope(p, stmt->let.var);
    stmt->let.body = lib_lexer_is(p->lexer, "{") ? parse_block(p) : parse_list(p);
    p->scope.count--;
    return stmt;
}

static tir_stmt *parse_if(parser *p) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_IF);
    lib_lexer_expect(p->lexer, "(");
    stmt->if_.condition = parse_expr(p, DLC_BOOL);
    lib_lexer_expect(p->lexer, ")");
    stmt->if_.split = lib_lexer_accept(p->lexer, "split");
    stmt->if_.masked = !stmt->if_.split && lib_lexer_accept(p->lexer, "masked");
    stmt->if_.body = parse_block(p);
    if (!lib_lexer_accept(p->lexer, "else")) return stmt;
    stmt->if_.otherwise_masked = lib_lexer_accept(p->lexer, "masked");
    stmt->if_.otherwise = parse_block(p);
    return stmt;
}

/* buffer[index]; the name is already consumed */
static const tir_expr *parse_place(parser *p, const char *name, uint32_t *buffer, int *rank) {
    tir_expr index[sizeof((tir_buffer *)0)->extent / sizeof(tir_expr)];
    tir_dtype dtype;
    if (!find_buffer(p, name, buffer, &dtype, rank)) lib_lexer_raise(p->lexer, "unknown buffer or statement %s", name);
    lib_lexer_expect(p->lexer, "[");
    int count = parse_indices(p, "]", (int)(sizeof index / sizeof *index), index);
    if (count != *rank) lib_lexer_raise(p->lexer, "%s has rank %d, not %d", name, *rank, count);
    return lib_arena_copy(p->kernel->arena, index, (size_t)count * sizeof *index);
}

static tir_stmt *parse_interleave(parser *p) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_INTERLEAVE);
    stmt->interleave.body = parse_block(p);
    return stmt;
}

static tir_stmt *parse_spill(parser *p) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_SPILL);
    const char *name = lib_lexer_name(p->lexer);
    tir_dtype dtype;
    int rank;
    if (!find_buffer(p, name, &stmt->spill.buffer, &dtype, &rank)) lib_lexer_raise(p->lexer, "unknown buffer %s", name);
    stmt->spill.body = parse_block(p);
    return stmt;
}

/* level 0: for a store */
static tir_stmt *parse_prefetch(parser *p, int level) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_PREFETCH);
    stmt->prefetch.level = level ? level : 1;
    stmt->prefetch.write = level == 0;
    stmt->prefetch.index = parse_place(p, lib_lexer_name(p->lexer), &stmt->prefetch.buffer, &stmt->prefetch.rank);
    return stmt;
}

static tir_stmt *parse_collective(parser *p, const tir_unit *unit) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_COLLECTIVE);
    const char *separator[] = {NULL, unit->kind == TIR_MULTIPLY ? "+" : "=", "*"};
    stmt->collective.unit = unit;
    lib_lexer_expect(p->lexer, "(");
    for (int v = 0; v < TIR_UNIT_VARS; v++) {
        if (v) lib_lexer_expect(p->lexer, ",");
        const char *name = lib_lexer_name(p->lexer);
        stmt->collective.var[v] =
            tir_var(p->kernel->pool, name, TIR_VAR_LOOP, TIR_INDEX, 0, (INT64_C(1) << unit->bits[v]) - 1);
        push_scope(p, stmt->collective.var[v]);
    }
    lib_lexer_expect(p->lexer, ")");
    for (int i = 0; i < unit->places; i++) {
        tir_place *place = &stmt->collective.place[i];
        if (i) lib_lexer_expect(p->lexer, separator[i]);
        if (i == 1 && unit->kind == TIR_MULTIPLY) lib_lexer_expect(p->lexer, "=");
        place->index = parse_place(p, lib_lexer_name(p->lexer), &place->buffer, &place->rank);
    }
    p->scope.count -= TIR_UNIT_VARS;
    return stmt;
}

/* The rows of transpose.8; 0: another word. */
static int rows_of(const char *word) {
    int rows = 0;
    if (strncmp(word, "transpose.", 10) != 0) return 0;
    for (word += 10; *word >= '0' && *word <= '9' && rows < TIR_MAX_LANES; word++) rows = rows * 10 + (*word - '0');
    return *word || rows == 1 ? 0 : rows;
}

static tir_stmt *parse_store(parser *p, const char *name) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_STORE);
    stmt->store.non_temporal = strcmp(name, "nt") == 0;
    stmt->store.async = strcmp(name, "async") == 0;
    if (stmt->store.non_temporal || stmt->store.async) name = lib_lexer_name(p->lexer);
    stmt->store.rows = rows_of(name);
    if (stmt->store.rows) name = lib_lexer_name(p->lexer);
    stmt->store.lane_loop = strcmp(name, "lanes.loop") == 0;
    if (stmt->store.lane_loop || strcmp(name, "lanes.unroll") == 0) {
        if (!stmt->store.rows) stmt->store.rows = 1;
        name = lib_lexer_name(p->lexer);
    }
    stmt->store.index = parse_place(p, name, &stmt->store.buffer, &stmt->store.rank);
    lib_lexer_expect(p->lexer, "=");
    stmt->store.value = parse_expr(p, (tir_dtype)p->kernel->buffers.data[stmt->store.buffer].dtype);
    return stmt;
}

static tir_stmt *parse_wait(parser *p) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_WAIT);
    int64_t groups = lib_lexer_integer(p->lexer);
    if (groups < 0 || groups > INT32_MAX)
        lib_lexer_raise(p->lexer, "wait %lld: no number of groups", (long long)groups);
    stmt->wait.groups = (int)groups;
    return stmt;
}

static tir_stmt *parse_comment(parser *p) {
    tir_stmt *stmt = tir_stmt_new(p->kernel->arena, TIR_COMMENT);
    if (p->lexer->kind != LIB_STRING) lib_lexer_raise(p->lexer, "expected the comment's text in quotes");
    stmt->comment = p->lexer->text;
    lib_lexer_next(p->lexer);
    return stmt;
}

/* The statement that begins with `word`, which has been read. */
static tir_stmt *parse_statement(parser *p, const char *word) {
    if (strcmp(word, "for") == 0) return parse_for(p);
    if (strcmp(word, "let") == 0) return parse_let(p);
    if (strcmp(word, "if") == 0) return parse_if(p);
    if (strcmp(word, "interleave") == 0) return parse_interleave(p);
    if (strcmp(word, "spill") == 0) return parse_spill(p);
    if (strcmp(word, "barrier") == 0) return tir_stmt_new(p->kernel->arena, TIR_BARRIER);
    if (strcmp(word, "commit") == 0) return tir_stmt_new(p->kernel->arena, TIR_COMMIT);
    if (strcmp(word, "wait") == 0) return parse_wait(p);
    if (strcmp(word, "comment") == 0) return parse_comment(p);
    if (strncmp(word, "prefetch.", 9) == 0 && word[9] >= '1' && word[9] <= '3' && !word[10])
        return parse_prefetch(p, word[9] - '0');
    if (strcmp(word, "prefetch.w") == 0) return parse_prefetch(p, 0);
    if (tir_unit_find(p->units, word)) return parse_collective(p, tir_unit_find(p->units, word));
    return parse_store(p, word);
}

static tir_stmt *parse_list(parser *p) {
    tir_stmt *first = NULL, **link = &first;
    while (!lib_lexer_is(p->lexer, "}")) {
        *link = parse_statement(p, lib_lexer_name(p->lexer));
        link = &(*link)->next;
    }
    return first;
}

static tir_scope parse_scope(parser *p) {
    const char *name = lib_lexer_name(p->lexer);
    for (int i = TIR_SCOPE_ARG; i <= TIR_SCOPE_SHARED; i++)
        if (strcmp(name, tir_scope_names[i]) == 0) return (tir_scope)i;
    lib_lexer_raise(p->lexer, "unknown scope %s", name);
}

static void parse_buffer(parser *p) {
    tir_expr extent[sizeof((tir_buffer *)0)->extent / sizeof(tir_expr)];
    const int limit = (int)(sizeof extent / sizeof *extent);
    const char *name = lib_lexer_name(p->lexer);
    uint32_t id;
    tir_dtype dtype;
    int rank;
    if (find_buffer(p, name, &id, &dtype, &rank)) lib_lexer_raise(p->lexer, "two buffers are called %s", name);
    lib_lexer_expect(p->lexer, ":");
    dtype = tir_dtype_read(p->lexer, true);
    if (dtype == TIR_INDEX) lib_lexer_raise(p->lexer, "buffer %s: index is no element type", name);
    lib_lexer_expect(p->lexer, "[");
    rank = parse_indices(p, "]", limit, extent);
    id = tir_kernel_buffer(p->kernel, name, (dlc_dtype)dtype, parse_scope(p), rank, extent);
    tir_buffer *buffer = &p->kernel->buffers.data[id];
    if (buffer->scope == TIR_SCOPE_ARG && buffer->argument != (int)id)
        lib_lexer_raise(p->lexer, "argument %s stands after a buffer of another scope", name);
    while (!lib_lexer_is(p->lexer, ",") && !lib_lexer_is(p->lexer, ")")) {
        if (lib_lexer_accept(p->lexer, "stride")) {
            lib_lexer_expect(p->lexer, "(");
            if (parse_indices(p, ")", limit, buffer->stride) != rank)
                lib_lexer_raise(p->lexer, "buffer %s needs %d strides", name, rank);
        } else if (lib_lexer_accept(p->lexer, "align")) {
            buffer->alignment = tir_alignment_read(p->lexer);
        } else if (lib_lexer_accept(p->lexer, "zero")) {
            buffer->zero_initialised = true;
        } else if (lib_lexer_accept(p->lexer, "swizzle")) {
            buffer->swizzle = (int32_t)lib_lexer_integer(p->lexer);
        } else {
            lib_lexer_expect(p->lexer, "@");
            buffer->offset = parse_index(p);
        }
    }
}

static void parse_parameter(parser *p) {
    const tir_expr var = tir_param_read(p->kernel->pool, p->lexer, true);
    lib_vec_push(p->kernel->arena, &p->kernel->params, var);
    push_scope(p, var);
}

static void parse_each(parser *p, void (*parse)(parser *)) {
    lib_lexer_expect(p->lexer, "(");
    for (bool first = true; !lib_lexer_accept(p->lexer, ")"); first = false) {
        if (!first) lib_lexer_expect(p->lexer, ",");
        parse(p);
    }
}

static void skip_parentheses(parser *p) {
    int depth = 0;
    do {
        if (p->lexer->kind == LIB_END) lib_lexer_raise(p->lexer, "expected ')', found the end of the text");
        depth += lib_lexer_is(p->lexer, "(") - lib_lexer_is(p->lexer, ")");
        lib_lexer_next(p->lexer);
    } while (depth > 0);
}

static tir_expr parse_size(parser *p) {
    lib_lexer_expect(p->lexer, "(");
    tir_expr size = parse_index(p);
    lib_lexer_expect(p->lexer, ")");
    return size;
}

/* Everything before the first phase. Parameters follow the buffers that use them, so the list is parsed twice. */
static void parse_header(parser *p) {
    tir_kernel *kernel = p->kernel;
    lib_lexer buffers = *p->lexer;
    skip_parentheses(p);
    if (lib_lexer_accept(p->lexer, "params")) parse_each(p, parse_parameter);
    lib_lexer rest = *p->lexer;
    *p->lexer = buffers;
    parse_each(p, parse_buffer);
    *p->lexer = rest;
    if (lib_lexer_accept(p->lexer, "workspace")) kernel->workspace_size = parse_size(p);
    if (lib_lexer_accept(p->lexer, "local")) kernel->local_size = parse_size(p);
    if (kernel->workspace_size) kernel->workspace_bytes = tir_range(kernel->pool, kernel->workspace_size).high;
    if (lib_lexer_accept(p->lexer, "cost")) {
        lib_lexer_expect(p->lexer, "(");
        kernel->flops = lib_lexer_number(p->lexer);
        lib_lexer_expect(p->lexer, ",");
        kernel->bytes = lib_lexer_number(p->lexer);
        lib_lexer_expect(p->lexer, ")");
    }
    for (uint32_t i = 0; i < kernel->buffers.count; i++) {
        tir_scope scope = kernel->buffers.data[i].scope;
        if (scope == TIR_SCOPE_WORKSPACE && !kernel->workspace_size) tir_kernel_place(kernel, scope);
        if (scope == TIR_SCOPE_LOCAL && !kernel->local_size) tir_kernel_place(kernel, scope);
    }
}

static void parse_phase(parser *p) {
    tir_phase phase;
    memset(&phase, 0, sizeof phase);
    if (p->lexer->kind == LIB_STRING) {
        phase.name = p->lexer->text;
        lib_lexer_next(p->lexer);
    }
    lib_lexer_expect(p->lexer, "tasks");
    lib_lexer_expect(p->lexer, "=");
    phase.tasks = parse_index(p);
    tir_expr zero = tir_index(p->kernel->pool, 0);
    if (lib_lexer_accept(p->lexer, "repeat")) {
        lib_lexer_expect(p->lexer, "=");
        phase.repeat = parse_index(p);
        lib_lexer_expect(p->lexer, "iteration");
        lib_lexer_expect(p->lexer, "=");
        phase.iteration = tir_loop_variable(p->kernel->pool, lib_lexer_name(p->lexer), zero, phase.repeat);
        lib_lexer_expect(p->lexer, "repeat_phases");
        lib_lexer_expect(p->lexer, "=");
        int64_t phases = lib_lexer_integer(p->lexer);
        if (phases < 1 || phases > INT32_MAX) lib_lexer_raise(p->lexer, "repeat_phases must be positive");
        phase.repeat_phases = (int)phases;
        push_scope(p, phase.iteration);
    }
    lib_lexer_expect(p->lexer, "task");
    lib_lexer_expect(p->lexer, "=");
    phase.task = tir_loop_variable(p->kernel->pool, lib_lexer_name(p->lexer), zero, phase.tasks);
    push_scope(p, phase.task);
    phase.body = parse_block(p);
    p->scope.count--;
    lib_vec_push(p->kernel->arena, &p->kernel->phases, phase);
}

tir_kernel *tir_kernel_parse(lib_arena *arena, lib_lexer *lexer, const tir_unit *units) {
    lexer->dotted_names = true;
    if (lexer->at == lexer->start) lib_lexer_next(lexer); /* a fresh lexer has no token yet */
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_pool_init(pool, arena);
    lib_lexer_expect(lexer, "kernel");
    parser p = {
        .lexer = lexer, .units = units, .names = {.variable = find_variable, .tensor = find_buffer, .user = &p}};
    p.kernel = tir_kernel_new(arena, pool, lib_lexer_name(lexer));
    parse_header(&p);
    int64_t repeat_end = 0;
    while (lib_lexer_accept(lexer, "phase")) {
        if ((int64_t)p.kernel->phases.count >= repeat_end) p.scope.count = p.kernel->params.count;
        parse_phase(&p);
        const tir_phase *phase = &p.kernel->phases.data[p.kernel->phases.count - 1];
        if (phase->repeat) repeat_end = (int64_t)p.kernel->phases.count - 1 + phase->repeat_phases;
    }
    tir_kernel_mark_access(p.kernel);
    tir_kernel_place_shared(p.kernel, false);
    return p.kernel;
}
