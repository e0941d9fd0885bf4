/* Replaces vec loops by lanes loops; vectorise.h lists the decisions. vectorise_analysis.c analyses the loops' bodies for them. */
#include "tir/vectorise.h"
#include "tir/strided.h"
#include "tir/vectorise_analysis.h"

enum {
    ROLL_CHUNKS = 8,   /* vec loops of more vectors than this become loops over vectors when they may */
    COPIES_CHUNKS = 32 /* the same where the lanes of each copy are constants */
};

/* A list of statements being made. */
typedef struct output {
    tir_stmt **end;
} output;

static void append(output *out, tir_stmt *stmt) {
    *out->end = stmt;
    out->end = &stmt->next;
}

static tir_stmt *rewrite(tir_vectoriser *v, const tir_stmt *list);

/* ---- loops */

static tir_stmt *loop_over(tir_vectoriser *v, tir_loop_kind kind, tir_expr var, tir_expr lower, tir_expr extent,
                           tir_stmt *body) {
    tir_stmt *loop = tir_stmt_new(v->arena, TIR_FOR);
    loop->for_.loop = kind;
    loop->for_.var = var;
    loop->for_.lower = lower;
    loop->for_.extent = extent;
    loop->for_.body = body;
    return loop;
}

static tir_stmt *loop_new(tir_vectoriser *v, tir_loop_kind kind, tir_expr var, tir_expr lower, int64_t extent,
                          tir_stmt *body) {
    return loop_over(v, kind, var, lower, tir_index(v->pool, extent), body);
}

static tir_expr sum(tir_vectoriser *v, tir_expr a, int64_t b) {
    return b ? tir_add(v->pool, a, tir_index(v->pool, b)) : a;
}

static tir_stmt *kind_of(tir_vectoriser *v, const tir_stmt *loop, tir_loop_kind kind, tir_stmt *body) {
    tir_stmt *copy = lib_arena_copy(v->arena, loop, sizeof *loop);
    copy->next = NULL;
    copy->for_.loop = kind;
    copy->for_.body = body;
    return copy;
}

/* ---- vectors of a vec loop */

typedef struct part {
    int width, active;
} part;

/* The next vector, if `rest` iterations are left: a whole one while there are enough; then a partial one if masks are cheap, else halves. */
static part next_part(const tir_vectoriser *v, int width, int64_t rest) {
    if (rest >= width && width > 1) return (part){width, width};
    if (rest == 1 || width <= 1) return (part){1, 1};
    int half = width;
    while (half > rest) half /= 2;
    if (half == rest || !v->machine->masked) return (part){half, half};
    while (half < rest) half *= 2;
    return (part){half, (int)rest};
}

static tir_stmt *lanes_new(tir_vectoriser *v, const tir_stmt *loop, tir_expr lower, part p, int whole, tir_stmt *body) {
    tir_stmt *lanes = loop_new(v, TIR_LANES, loop->for_.var, lower, p.active, body);
    lanes->for_.width = p.width;
    lanes->for_.whole = whole > p.width ? whole : p.width;
    return lanes;
}

int64_t tir_vec_count(const tir_vectoriser *v, int width, int64_t extent) {
    int64_t count = width > 1 ? extent / width : extent;
    for (int64_t rest = width > 1 ? extent % width : 0; rest > 0; count++) rest -= next_part(v, width, rest).active;
    return count;
}

/* Appends lanes loops for iterations start .. extent - 1, with `ways` at a time interleaved. */
static void append_vectors(tir_vectoriser *v, const tir_stmt *loop, tir_expr lower, int64_t start, int64_t extent,
                           int width, int ways, tir_stmt *body, output *out) {
    while (start < extent) {
        tir_stmt *first = NULL;
        output group = {&first};
        int count = 0;
        for (; count < ways && start < extent; count++) {
            part p = next_part(v, width, extent - start);
            append(&group, lanes_new(v, loop, sum(v, lower, start), p, width, body));
            start += p.active;
        }
        if (count > 1) {
            tir_stmt *together = tir_stmt_new(v->arena, TIR_INTERLEAVE);
            together->interleave.body = first;
            append(out, together);
        } else {
            append(out, first);
        }
    }
}

/* A serial loop over the whole vectors, `ways` at a time, unless it has a single iteration; then the rest. */
static void append_rolled(tir_vectoriser *v, const tir_stmt *loop, int64_t extent, int width, int ways, tir_stmt *body,
                          output *out) {
    const int together = extent / width < ways ? 1 : ways;
    const int64_t step = (int64_t)together * width, rolled = extent / step * step;
    if (rolled == step) {
        append_vectors(v, loop, loop->for_.lower, 0, extent, width, together, body, out);
        return;
    }
    const tir_variable variable = *tir_variable_of(v->pool, loop->for_.var);
    tir_stmt *vectors = NULL;
    output inside = {&vectors};
    tir_expr var = tir_stepped_variable(v->pool, variable.name, loop->for_.lower, tir_index(v->pool, rolled), step);
    append_vectors(v, loop, var, 0, step, width, together, body, &inside);
    tir_stmt *outer = loop_new(v, TIR_SERIAL, var, loop->for_.lower, rolled, vectors);
    outer->for_.step = step;
    append(out, outer);
    append_vectors(v, loop, loop->for_.lower, rolled, extent, width, ways, body, out);
}

/* If the whole body runs below a constant end only, and masks are expensive: the loop up to there, whose last vectors need none. */
static const tir_stmt *up_to_end(tir_vectoriser *v, const tir_stmt *loop) {
    const tir_stmt *body = loop->for_.body;
    int64_t lower, extent, end;
    if (v->machine->masked || !body || body->next || body->kind != TIR_IF || body->if_.otherwise) return loop;
    const tir_expr below = body->if_.condition;
    if (tir_op_of(v->pool, below) != TIR_LT || tir_operand(v->pool, below, 0) != loop->for_.var) return loop;
    if (!tir_is_const(v->pool, tir_operand(v->pool, below, 1), &end)) return loop;
    if (!tir_is_const(v->pool, loop->for_.lower, &lower) || !tir_is_const(v->pool, loop->for_.extent, &extent))
        return loop;
    tir_stmt *copy = kind_of(v, loop, TIR_VEC, body->if_.body);
    if (end - lower < extent) copy->for_.extent = tir_index(v->pool, end - lower);
    return copy;
}

static void rewrite_vec(tir_vectoriser *v, const tir_stmt *loop, output *out) {
    int64_t extent = 0;
    loop = up_to_end(v, loop);
    tir_is_const(v->pool, loop->for_.extent, &extent);
    if (extent <= 0) return;
    const tir_vec_plan plan = extent > 1 ? tir_vec_plan_of(v, loop) : (tir_vec_plan){.width = 1, .ways = 1};
    const int64_t width = plan.width > 1 ? plan.width : 1;
    const bool copied = width > 1 && extent <= COPIES_CHUNKS * width &&
                        tir_vec_copies_differ(v, loop->for_.body, loop->for_.var, plan.width);
    const bool roll = (plan.roll || extent > ROLL_CHUNKS * width) && !copied && tir_vec_may_roll(v, loop->for_.body);
    tir_vec_enter(v, loop, plan.width, extent);
    tir_stmt *body = rewrite(v, loop->for_.body);
    tir_vec_leave(v, loop);
    if (plan.width <= 1 && extent > 1)
        append(out, kind_of(v, loop, roll ? TIR_SERIAL : TIR_UNROLL, body));
    else if (roll && extent > 1)
        append_rolled(v, loop, extent, plan.width, plan.ways, body, out);
    else
        append_vectors(v, loop, loop->for_.lower, 0, extent, plan.width, plan.ways, body, out);
}

/* ---- unrolled loops */

/* Rows of a tile whose last vectors are shared by two (see tir_vec_rows_pair). Pairs begin at even rows of the buffer, in all loops. */
static void append_pairs(tir_vectoriser *v, const tir_stmt *loop, int64_t count, const tir_pair_plan *plan,
                         output *out) {
    const tir_stmt *vec = loop->for_.body;
    int64_t columns = 0;
    tir_is_const(v->pool, vec->for_.extent, &columns);
    const int64_t whole = columns / plan->width * plan->width;
    const tir_expr lower = loop->for_.lower;
    tir_stmt *body = rewrite(v, vec->for_.body);
    for (int64_t i = plan->odd ? -1 : 0; i < count; i += 2) {
        const int64_t first = i < 0 ? 0 : i, end = i + 2 < count ? i + 2 : count;
        for (int64_t row = first; row < end; row++) {
            tir_stmt *vectors = NULL;
            output inside = {&vectors};
            append_vectors(v, vec, vec->for_.lower, 0, whole, plan->width, 1, body, &inside);
            append(out, loop_new(v, TIR_UNROLL, loop->for_.var, sum(v, lower, row), 1, vectors));
        }
        const part rest = {plan->width / 2, (int)(columns - whole)};
        tir_stmt *lanes = lanes_new(v, vec, sum(v, vec->for_.lower, whole), rest, plan->width, body);
        tir_stmt *rows = loop_new(v, TIR_ROWS, loop->for_.var, sum(v, lower, first), end - first, lanes);
        rows->for_.half = i < 0;
        append(out, rows);
    }
}

static void rewrite_unrolled(tir_vectoriser *v, const tir_stmt *loop, output *out) {
    int64_t count = 0;
    tir_is_const(v->pool, loop->for_.extent, &count);
    if (count <= 0) return;
    tir_pair_plan pairs;
    if (count > 1 && tir_vec_rows_pair(v, loop, &pairs)) {
        append_pairs(v, loop, count, &pairs, out);
        return;
    }
    const bool *spilled = count > 1 ? tir_vec_rows_roll(v, loop, count) : NULL;
    if (spilled) {
        tir_stmt *list = kind_of(v, loop, TIR_SERIAL, NULL);
        tir_vec_enter_loop(v, loop);
        tir_vec_enter_spill(v, spilled);
        list->for_.body = rewrite(v, loop->for_.body);
        tir_vec_leave_spill(v, spilled);
        tir_vec_leave_loop(v, loop);
        for (uint32_t i = v->kernel->buffers.count; i-- > 0;) {
            if (!spilled[i]) continue;
            tir_stmt *spill = tir_stmt_new(v->arena, TIR_SPILL);
            spill->spill.buffer = i;
            spill->spill.body = list;
            list = spill;
        }
        append(out, list);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        tir_vec_enter_copy(v, loop, sum(v, loop->for_.lower, i));
        tir_stmt *body = rewrite(v, loop->for_.body);
        if (!tir_vec_leave_copy(v)) { /* all copies are alike */
            append(out, kind_of(v, loop, TIR_UNROLL, body));
            return;
        }
        append(out, loop_new(v, TIR_UNROLL, loop->for_.var, sum(v, loop->for_.lower, i), 1, body));
    }
}

/* ---- serial loops around a register tile */

/* A serial loop of `steps` iterations at a time, then the rest. */
static void rewrite_steps(tir_vectoriser *v, const tir_stmt *loop, int steps, output *out) {
    const tir_expr each = tir_index(v->pool, steps), lower = loop->for_.lower;
    tir_expr count = loop->for_.extent;
    if (tir_range(v->pool, count).low < 0) count = tir_max(v->pool, count, tir_index(v->pool, 0));
    const tir_expr stepped = tir_mul(v->pool, tir_div(v->pool, count, each), each),
                   rest = tir_rem(v->pool, count, each);
    int64_t iterations = 1;
    tir_vec_enter_loop(v, loop);
    tir_stmt *body = rewrite(v, loop->for_.body);
    tir_vec_leave_loop(v, loop);
    const char *name = tir_variable_of(v->pool, loop->for_.var)->name;
    const tir_expr var = tir_stepped_variable(v->pool, name, lower, stepped, steps);
    tir_stmt *outer =
        loop_over(v, TIR_SERIAL, var, lower, stepped, loop_new(v, TIR_UNROLL, loop->for_.var, var, steps, body));
    outer->for_.step = steps;
    append(out, outer);
    if (!tir_is_const(v->pool, rest, &iterations) || iterations)
        append(out, loop_over(v, TIR_SERIAL, loop->for_.var, tir_add(v->pool, lower, stepped), rest, body));
}

bool tir_has_steps(const tir_stmt *loop) {
    const tir_stmt *copies = loop->for_.body;
    return loop->for_.loop == TIR_SERIAL && loop->for_.step > 1 && copies && !copies->next && copies->kind == TIR_FOR &&
           copies->for_.loop == TIR_UNROLL && copies->for_.lower == loop->for_.var;
}

/* ---- statements */

static void rewrite_for(tir_vectoriser *v, const tir_stmt *loop, output *out) {
    switch (loop->for_.loop) {
    case TIR_VEC: rewrite_vec(v, loop, out); return;
    case TIR_UNROLL:
        if (!v->in_vec) {
            rewrite_unrolled(v, loop, out);
            return;
        }
        break;
    default: break;
    }
    const int steps = tir_vec_steps(v, loop);
    if (steps > 1) {
        rewrite_steps(v, loop, steps, out);
        return;
    }
    tir_vec_enter_loop(v, loop);
    append(out, kind_of(v, loop, loop->for_.loop, rewrite(v, loop->for_.body)));
    tir_vec_leave_loop(v, loop);
}

/* Of a condition in which lanes differ: with cheap masks, a side whose accesses cannot fault runs without a branch. */
static void decide_masks(tir_vectoriser *v, tir_stmt *stmt) {
    stmt->if_.split = !v->machine->masked;
    stmt->if_.masked = v->machine->masked && tir_vec_flattens(v, stmt->if_.body);
    stmt->if_.otherwise_masked = v->machine->masked && stmt->if_.otherwise && tir_vec_flattens(v, stmt->if_.otherwise);
}

/* The lets that the list itself opens are open until its end. */
static tir_stmt *rewrite(tir_vectoriser *v, const tir_stmt *list) {
    tir_stmt *first = NULL;
    output out = {&first};
    const uint32_t known = v->known.count;
    for (const tir_stmt *stmt = list, *next; stmt; stmt = next) {
        next = stmt->next;
        if (stmt->kind == TIR_FOR) {
            rewrite_for(v, stmt, &out);
            continue;
        }
        tir_stmt *copy = lib_arena_copy(v->arena, stmt, sizeof *stmt);
        copy->next = NULL;
        append(&out, copy);
        switch (stmt->kind) {
        case TIR_LET:
            tir_vec_enter_let(v, stmt);
            copy->let.body = NULL;
            if (!next) { /* not recursive: chains of lets are long */
                out.end = &copy->let.body;
                next = stmt->let.body;
            } else {
                copy->let.body = rewrite(v, stmt->let.body);
                tir_vec_leave_lets(v, v->known.count - 1);
            }
            break;
        case TIR_IF:
            if (v->in_vec && tir_vec_varies(v, stmt->if_.condition)) decide_masks(v, copy);
            copy->if_.body = rewrite(v, stmt->if_.body);
            copy->if_.otherwise = rewrite(v, stmt->if_.otherwise);
            break;
        case TIR_INTERLEAVE: copy->interleave.body = rewrite(v, stmt->interleave.body); break;
        case TIR_SPILL: copy->spill.body = rewrite(v, stmt->spill.body); break;
        case TIR_STORE: tir_vec_note_store(v, stmt); break;
        default: break;
        }
    }
    tir_vec_leave_lets(v, known);
    return first;
}

tir_kernel *tir_vectorise(lib_arena *arena, const tir_kernel *kernel, const tir_machine *machine) {
    tir_kernel *result = lib_arena_copy(arena, kernel, sizeof *kernel);
    const uint32_t buffers = kernel->buffers.count, nodes = kernel->pool->nodes.count,
                   variables = kernel->pool->variables.count;
    result->arena = arena;
    result->pool = tir_pool_copy(arena, kernel->pool);
    result->phases.data =
        lib_arena_copy(arena, kernel->phases.data, kernel->phases.count * sizeof *kernel->phases.data);
    tir_vectoriser v = {
        .arena = arena, .kernel = result, .pool = result->pool, .machine = machine, .width = 1, .variables = variables};
    v.spilled = LIB_NEW_ARRAY(arena, bool, buffers);
    v.stored_whole = LIB_NEW_ARRAY(arena, bool, buffers);
    v.bound = LIB_NEW_ARRAY(arena, bool, variables);
    v.dependent = LIB_NEW_ARRAY(arena, bool, variables);
    v.varies = LIB_NEW_ARRAY(arena, bool, nodes);
    v.seen = LIB_NEW_ARRAY(arena, uint32_t, nodes);
    for (uint32_t i = 0; i < kernel->params.count; i++) v.bound[tir_var_id(v.pool, kernel->params.data[i])] = true;
    for (uint32_t p = 0; p < kernel->phases.count; p++) {
        tir_phase *phase = &result->phases.data[p];
        if (phase->repeat) v.bound[tir_var_id(v.pool, phase->iteration)] = true;
        v.bound[tir_var_id(v.pool, phase->task)] = true;
        phase->body = rewrite(&v, phase->body);
    }
    tir_strided_plan(arena, result, machine);
    return result;
}
