/* Versioning, the pass behind balanced heights, peeled tails, image borders and triangles: if an extent that must be constant
 * (unrolled, vectorised) is not, or a clipped condition is undecided, the innermost loop it depends on is split into
 * ranges in which it is. Within a range the loop variable has a narrower interval, and the simplifier does the rest.
 *
 * Ranges are found by bisection over the loop's values, so long loops with few ranges stay cheap. If the loop's extent is not constant
 * there are at most three, with expressions as boundaries: the conditions hold in the middle one. */
#include "tir/schedule_internal.h"

enum {
    MAX_COPIES = 12,
    MAX_SHORT_COPIES = 48,
    SHORT = 8,
    MAX_PIECES = 96,
    MAX_REASONS = 48,
    MAX_UNROLLED = 8,
    MAX_INSIDE = 64,
    MAX_INSTANCES = 1024
};

typedef struct unrolled_loop {
    tir_expr var;
    int64_t trips;
} unrolled_loop;

/* An extent to become constant, or a condition to be decided for every instance of the unrolled loops around it. */
typedef struct reason {
    tir_expr expression;
    bool condition;
    int unrolled;
    unrolled_loop around[MAX_UNROLLED];
} reason;

typedef struct versioning {
    tir_kernel *kernel;
    tir_pool *pool;
    /* second round: conditions too; third: only the loops in tasks (clip_in_task) */
    bool clips, in_tasks;
    /* of the enclosing vec loop: no bounds inside may depend on it; 0: none */
    tir_expr lane;
    /* most copies that earlier rounds made of a statement */
    int earlier;
    /* variables that hold loaded indices (tir_lower_scalar): no value of a loop variable decides what depends on them */
    lib_vec(tir_expr) loaded;
} versioning;

typedef struct reason_search {
    versioning *v;
    tir_expr var;
    /* guards of loads and selects count, too */
    bool guards;
    reason reasons[MAX_REASONS];
    int count;
    /* whether a condition that depends on loaded values was skipped */
    bool skipped;
    unrolled_loop around[MAX_UNROLLED];
    int depth;
    /* variables of lets of indices that follow from `var`, and their values by it */
    lib_vec(tir_expr) named;
    lib_vec(tir_expr) values;
} reason_search;

static bool is_clipped(const versioning *v, const tir_stmt *loop) {
    return v->in_tasks ? loop->for_.clip_in_task : loop->for_.clip;
}

/* ---- reasons for splitting a loop */

static bool is_loaded(const versioning *v, tir_expr e) {
    for (uint32_t i = 0; i < v->loaded.count; i++)
        if (tir_uses(v->pool, e, v->loaded.data[i])) return true;
    return false;
}

static tir_expr by_variable(reason_search *search, tir_expr e) {
    return search->named.count
               ? tir_substitute(search->v->pool, e, (int)search->named.count, search->named.data, search->values.data)
               : e;
}

static void note_let(reason_search *search, const tir_stmt *let) {
    const tir_expr value = by_variable(search, let->let.value);
    if (tir_dtype_of(search->v->pool, value) != TIR_INDEX || !tir_uses(search->v->pool, value, search->var)) return;
    if (is_loaded(search->v, let->let.var) || is_loaded(search->v, value)) return;
    lib_vec_push(search->v->kernel->arena, &search->named, let->let.var);
    lib_vec_push(search->v->kernel->arena, &search->values, value);
}

static void add_reason(reason_search *search, tir_expr expression, bool condition) {
    expression = by_variable(search, expression);
    if (search->count == MAX_REASONS || !tir_uses(search->v->pool, expression, search->var)) return;
    if (condition && is_loaded(search->v, expression)) {
        search->skipped = true;
        return;
    }
    for (int i = 0; i < search->count; i++)
        if (search->reasons[i].expression == expression) return;
    reason *r = &search->reasons[search->count++];
    *r = (reason){.expression = expression, .condition = condition};
    for (int i = 0; i < search->depth && condition; i++)
        if (tir_uses(search->v->pool, expression, search->around[i].var)) r->around[r->unrolled++] = search->around[i];
}

/* Adds a comparison of indices as a reason: it decides what a load or select reads or computes. */
static tir_expr find_guard(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const tir_node node = *tir_get(pool, e);
    if (node.dtype == DLC_BOOL && node.count == 2 && tir_dtype_of(pool, tir_operand(pool, e, 0)) == TIR_INDEX)
        add_reason(user, e, true);
    return rebuilt;
}

static void find_guards(reason_search *search, tir_expr value) {
    if (search->guards) tir_rewrite(search->v->pool, value, find_guard, search);
}

static void find_reasons(reason_search *search, const tir_stmt *stmt) {
    for (; stmt; stmt = stmt->next) {
        if (stmt->kind == TIR_FOR) {
            int64_t trips;
            bool constant = tir_is_const(search->v->pool, stmt->for_.extent, &trips);
            if (stmt->for_.loop != TIR_SERIAL && !constant) add_reason(search, stmt->for_.extent, false);
            bool enumerate = stmt->for_.loop == TIR_UNROLL && constant && search->depth < MAX_UNROLLED;
            if (enumerate) search->around[search->depth++] = (unrolled_loop){stmt->for_.var, trips};
            find_reasons(search, stmt->for_.body);
            if (enumerate) search->depth--;
        } else if (stmt->kind == TIR_LET) {
            find_guards(search, stmt->let.value);
            const uint32_t outside = search->named.count;
            note_let(search, stmt);
            find_reasons(search, stmt->let.body);
            search->named.count = search->values.count = outside;
        } else if (stmt->kind == TIR_STORE) {
            find_guards(search, stmt->store.value);
        } else if (stmt->kind == TIR_IF) {
            if (stmt->if_.clip && search->v->clips) add_reason(search, stmt->if_.condition, true);
            find_reasons(search, stmt->if_.body);
            find_reasons(search, stmt->if_.otherwise);
        }
    }
}

/* ---- ranges */

typedef struct run {
    int64_t begin, end;
    /* equal keys: equal extents and outcomes */
    uint64_t key;
} run;

typedef struct run_list {
    run runs[MAX_PIECES];
    int count;
    bool overflow;
} run_list;

/* Hash of the extents, and of the truths of the conditions, of all reasons with the loop's variable in begin..end-1. *settled: a narrower
 * range would change none of them. */
static uint64_t outcome(versioning *v, const reason_search *search, int64_t begin, int64_t end, bool *settled) {
    tir_expr narrow =
        end - begin == 1 ? tir_index(v->pool, begin) : tir_var(v->pool, "run", TIR_VAR_LOOP, TIR_INDEX, begin, end - 1);
    uint64_t key = 1;
    *settled = true;
    for (int i = 0; i < search->count; i++) {
        const reason *r = &search->reasons[i];
        tir_expr here = tir_substitute(v->pool, r->expression, 1, &search->var, &narrow);
        if (!r->condition) {
            key = lib_hash_mix(key, here);
            if (end - begin > 1 && tir_uses(v->pool, here, narrow)) *settled = false;
            continue;
        }
        int64_t instances = 1;
        for (int u = 0; u < r->unrolled; u++) instances *= r->around[u].trips;
        bool enumerate = instances <= MAX_INSTANCES;
        for (int64_t n = 0; n < (enumerate ? instances : 1); n++) {
            tir_expr from[MAX_UNROLLED], to[MAX_UNROLLED];
            int64_t rest = n;
            for (int u = 0; u < r->unrolled; u++) {
                from[u] = r->around[u].var;
                to[u] = tir_index(v->pool, rest % r->around[u].trips);
                rest /= r->around[u].trips;
            }
            tir_expr instance = enumerate ? tir_substitute(v->pool, here, r->unrolled, from, to) : here;
            tir_truth truth = tir_prove(v->pool, instance);
            key = lib_hash_mix(key, (uint64_t)truth);
            if (truth == TIR_UNKNOWN && end - begin > 1) *settled = false;
        }
    }
    return key;
}

static void find_runs(versioning *v, const reason_search *search, int64_t begin, int64_t end, run_list *list) {
    bool settled;
    uint64_t key = outcome(v, search, begin, end, &settled);
    if (list->overflow) return;
    if (!settled) {
        int64_t middle = begin + (end - begin) / 2;
        find_runs(v, search, begin, middle, list);
        find_runs(v, search, middle, end, list);
        return;
    }
    if (list->count && list->runs[list->count - 1].key == key) {
        list->runs[list->count - 1].end = end;
        return;
    }
    if (list->count == MAX_PIECES) {
        list->overflow = true;
        return;
    }
    list->runs[list->count++] = (run){begin, end, key};
}

/* ---- statements */

static tir_stmt **list_end(tir_stmt **list) {
    while (*list) list = &(*list)->next;
    return list;
}

/* An inner loop whose bounds have become narrower gets a new variable of that range, so that more can be proven. */
static void tighten(versioning *v, tir_stmt *loop) {
    const tir_variable old = *tir_variable_of(v->pool, loop->for_.var);
    tir_interval range = tir_loop_range(v->pool, loop->for_.lower, loop->for_.extent);
    if (range.low <= old.low && range.high >= old.high) return;
    tir_expr narrow = tir_loop_variable(v->pool, old.name, loop->for_.lower, loop->for_.extent);
    loop->for_.body = tir_stmt_substitute(v->kernel, loop->for_.body, 1, &loop->for_.var, &narrow);
    loop->for_.var = narrow;
}

/* A loop of one trip becomes its body at that point. A parallel one stays: it counts as tasks. */
static tir_stmt *single_trip(versioning *v, tir_stmt *loop) {
    int64_t lower;
    if (!tir_is_number(v->pool, loop->for_.extent, 1)) return loop;
    if (loop->for_.parallel && !tir_is_const(v->pool, loop->for_.lower, &lower)) return loop;
    tir_stmt *body = tir_stmt_substitute(v->kernel, loop->for_.body, 1, &loop->for_.var, &loop->for_.lower);
    if (!loop->for_.parallel) return body;
    loop->for_.body = body;
    return loop;
}

typedef struct use_search {
    const tir_pool *pool;
    tir_expr var;
    bool found;
} use_search;

static void find_use(void *user, tir_expr e) {
    use_search *search = user;
    search->found = search->found || tir_uses(search->pool, e, search->var);
}

static void find_uses(void *user, const tir_stmt *stmt) {
    tir_stmt_exprs(stmt, find_use, user);
}

static tir_stmt *clean(versioning *v, tir_stmt *list);

/* A let that nothing uses becomes its body: if the value is a decided guard or a number (which replaces the variable), or only other ranges
 * need it. An index of a narrower range gets a new variable. */
static tir_stmt *clean_let(versioning *v, tir_stmt *let) {
    const tir_expr value = let->let.value;
    const tir_dtype dtype = tir_dtype_of(v->pool, value);
    tir_expr instead = 0;
    if (tir_op_of(v->pool, value) == TIR_CONST && (dtype == DLC_BOOL || dtype == TIR_INDEX)) {
        instead = value;
    } else if (dtype == TIR_INDEX) {
        const tir_variable old = *tir_variable_of(v->pool, let->let.var);
        const tir_interval range = tir_range(v->pool, value);
        if (range.low > old.low || range.high < old.high) instead = tir_let_variable(v->pool, old.name, value);
    }
    if (instead) let->let.body = tir_stmt_substitute(v->kernel, let->let.body, 1, &let->let.var, &instead);
    if (instead && instead != value) let->let.var = instead;
    let->let.body = clean(v, let->let.body);
    use_search search = {v->pool, let->let.var, false};
    tir_stmt_walk(let->let.body, find_uses, &search);
    return search.found ? let : let->let.body;
}

/* Removes decided branches, loops and lets. */
static tir_stmt *clean(versioning *v, tir_stmt *list) {
    tir_stmt *result = NULL, **cursor = &result;
    for (tir_stmt *stmt = list, *next; stmt; stmt = next) {
        next = stmt->next;
        stmt->next = NULL;
        int64_t trips;
        if (stmt->kind == TIR_FOR) {
            if (tir_is_const(v->pool, stmt->for_.extent, &trips) && trips <= 0) continue;
            tighten(v, stmt);
            tir_stmt *inside = single_trip(v, stmt);
            if (inside != stmt) {
                *cursor = clean(v, inside);
                cursor = list_end(cursor);
                continue;
            }
            stmt->for_.body = clean(v, stmt->for_.body);
            if (!stmt->for_.body) continue;
        } else if (stmt->kind == TIR_LET) {
            stmt = clean_let(v, stmt);
        } else if (stmt->kind == TIR_IF) {
            stmt->if_.body = clean(v, stmt->if_.body);
            stmt->if_.otherwise = clean(v, stmt->if_.otherwise);
            if (tir_is_true(v->pool, stmt->if_.condition))
                stmt = stmt->if_.body;
            else if (tir_is_false(v->pool, stmt->if_.condition))
                stmt = stmt->if_.otherwise;
        }
        *cursor = stmt;
        cursor = list_end(cursor);
    }
    return result;
}

static tir_stmt *make_run(versioning *v, const tir_stmt *loop, run r) {
    const tir_variable variable = *tir_variable_of(v->pool, loop->for_.var);
    bool single = r.end - r.begin == 1;
    tir_expr narrow = tir_var(v->pool, variable.name, TIR_VAR_LOOP, TIR_INDEX, r.begin, r.end - 1);
    tir_expr point = single ? tir_index(v->pool, r.begin) : narrow;
    tir_stmt *body = clean(v, tir_stmt_substitute(v->kernel, loop->for_.body, 1, &loop->for_.var, &point));
    if (single && !loop->for_.parallel) return body; /* a parallel loop stays: it counts as tasks */
    tir_stmt *copy = tir_stmt_new(v->kernel->arena, TIR_FOR);
    copy->for_ = loop->for_;
    copy->for_.var = narrow;
    copy->for_.lower = tir_index(v->pool, r.begin);
    copy->for_.extent = tir_index(v->pool, r.end - r.begin);
    copy->for_.body = body;
    return copy;
}

static tir_stmt *make_runs(versioning *v, const tir_stmt *loop, const run_list *list) {
    tir_stmt *result = NULL, **cursor = &result;
    for (int i = 0; i < list->count; i++) {
        *cursor = make_run(v, loop, list->runs[i]);
        cursor = list_end(cursor);
    }
    return result;
}

/* ---- boundaries that are expressions: between them conditions of the form  c*k + rest < 0  hold for all points of the loops inside,
 * before and after they remain in the code */

typedef struct boundaries {
    versioning *v;
    tir_expr var;
    /* all conditions count, including those of loads and selects */
    bool guards;
    /* second traversal, with all terms collected: where else does each occur? */
    bool again;
    /* enclosing loops and lets of the condition, outermost first */
    const tir_stmt *inner[MAX_INSIDE];
    int depth;
    bool failed;
    /* the loop's extent depends on parameters, not only on other loops */
    bool varies;
    tir_expr term[MAX_REASONS];
    /* the term also occurs where it cannot be bounded: it stays */
    bool open[MAX_REASONS];
    int count;
    /* 0: unbounded */
    tir_expr begin, end;
    /* the term that alone sets `begin`, or `end`, if no loop inside affects it: it is false beyond. 0: there is none */
    tir_expr only_begin, only_end;
} boundaries;

/* The iterations before the boundaries, between them, behind, and all but those between. */
typedef enum side { SIDE_BEFORE, SIDE_BETWEEN, SIDE_BEHIND, SIDE_OTHERS } side;

typedef struct mention {
    /* TIR_LOAD, or TIR_VAR of a kind */
    tir_op op;
    tir_var_kind kind;
    bool found;
} mention;

static tir_expr meet_mention(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    mention *m = user;
    const tir_op op = tir_op_of(pool, e);
    if (op == m->op && (op != TIR_VAR || tir_variable_of(pool, e)->kind == m->kind)) m->found = true;
    return rebuilt;
}

static bool mentions(tir_pool *pool, tir_expr e, mention m) {
    tir_rewrite(pool, e, meet_mention, &m);
    return m.found;
}

/* Does e load? Its value is then not known before the loop: memory may change in the loop, or be uninitialised before it. */
static bool has_load(tir_pool *pool, tir_expr e) {
    return mentions(pool, e, (mention){.op = TIR_LOAD});
}

static bool has_parameter(tir_pool *pool, tir_expr e) {
    return mentions(pool, e, (mention){.op = TIR_VAR, .kind = TIR_VAR_PARAM});
}

/* The maximum of an index expression over the inner loops; 0: not affine in them. */
static tir_expr greatest(const boundaries *b, tir_expr e) {
    tir_pool *pool = b->v->pool;
    for (int i = b->depth; i-- > 0;) {
        const tir_stmt *loop = b->inner[i];
        if (loop->kind == TIR_LET && tir_uses(pool, e, loop->let.var)) return 0;
        if (loop->kind == TIR_LET || !tir_uses(pool, e, loop->for_.var)) continue;
        int64_t coefficient = tir_coefficient(pool, e, loop->for_.var);
        if (coefficient == 0 || tir_uses(pool, loop->for_.extent, b->var)) return 0;
        tir_expr last = tir_add(pool, loop->for_.lower, tir_sub(pool, loop->for_.extent, tir_index(pool, 1)));
        e = tir_substitute(pool, e, 1, &loop->for_.var, coefficient > 0 ? &last : &loop->for_.lower);
    }
    return tir_uses(pool, e, b->var) ? 0 : e;
}

/* left - right for a term left < right: negative exactly if the term holds. */
static tir_expr difference(tir_pool *pool, tir_expr term) {
    return tir_sub(pool, tir_operand(pool, term, 0), tir_operand(pool, term, 1));
}

/* A term for which the variable has to be below `bound` (`upper`), or not below. Narrows *boundary; *only becomes the term if it alone sets the
 * boundary, and is `exact`. */
static void narrow(tir_pool *pool, bool upper, tir_expr bound, tir_expr term, bool exact, tir_expr *boundary,
                   tir_expr *only) {
    const tir_expr old = *boundary;
    *boundary = !old ? bound : upper ? tir_min(pool, old, bound) : tir_max(pool, old, bound);
    if (!old || *boundary != old) *only = *boundary == bound && exact ? term : 0;
}

/* Narrows b->begin or b->end to the values of b->var for which the term holds in all iterations of the loops inside. False: the term is not
 * affine enough, or splitting an outer loop decides it better (the trips are constant for each value of that loop's variable). */
static bool bound_here(boundaries *b, tir_expr term) {
    tir_pool *pool = b->v->pool;
    tir_expr rest = difference(pool, term);
    int64_t step = tir_coefficient(pool, rest, b->var);
    if (step == 0) return false;
    const tir_expr here = tir_sub(pool, rest, tir_mul(pool, tir_index(pool, step), b->var));
    rest = greatest(b, here);
    const bool told = !b->varies && rest && !has_parameter(pool, rest) && !is_loaded(b->v, rest);
    if (!rest || has_load(pool, rest) || (step != 1 && told)) return false;
    const tir_expr minus = tir_sub(pool, tir_index(pool, 0), rest);
    if (step > 0)
        narrow(pool, true, tir_ceil_div(pool, minus, tir_index(pool, step)), term, rest == here, &b->end, &b->only_end);
    else
        narrow(pool, false, tir_add(pool, tir_div(pool, rest, tir_index(pool, -step)), tir_index(pool, 1)), term,
               rest == here, &b->begin, &b->only_begin);
    return true;
}

/* Is it certain that a and b never hold at once (as the conditions of two parts of a concatenation)? */
static bool exclude(tir_pool *pool, tir_expr a, tir_expr b) {
    tir_expr sum = tir_add(pool, difference(pool, a), difference(pool, b));
    return tir_prove(pool, tir_le(pool, tir_index(pool, -1), sum)) == TIR_YES;
}

static bool bound_term(boundaries *b, tir_expr term) {
    tir_pool *pool = b->v->pool;
    if (!tir_uses(pool, term, b->var)) return true;
    if (tir_op_of(pool, term) != TIR_LT || tir_dtype_of(pool, tir_operand(pool, term, 0)) != TIR_INDEX) return false;
    int at = 0;
    while (at < b->count && b->term[at] != term) at++;
    if (at == MAX_REASONS || (at == b->count && b->again)) return false;
    if (at == b->count) {
        for (int i = 0; i < at && !b->open[at]; i++) b->open[at] = !b->open[i] && exclude(pool, b->term[i], term);
        b->term[b->count++] = term;
    }
    b->open[at] = b->open[at] || !bound_here(b, term);
    return !b->open[at];
}

static tir_expr meet_term(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    (void)pool;
    bound_term(user, e);
    return rebuilt;
}

static void find_terms(void *user, tir_expr value) {
    tir_rewrite(((boundaries *)user)->v->pool, value, meet_term, user);
}

static void find_boundaries(boundaries *b, const tir_stmt *stmt) {
    for (; stmt && !b->failed; stmt = stmt->next) {
        if (b->guards || b->again) tir_stmt_exprs(stmt, find_terms, b);
        if (stmt->kind == TIR_FOR || stmt->kind == TIR_LET) {
            b->failed = b->depth == MAX_INSIDE;
            if (b->failed) return;
            b->inner[b->depth++] = stmt;
            find_boundaries(b, stmt->kind == TIR_LET ? stmt->let.body : stmt->for_.body);
            b->depth--;
        } else if (stmt->kind == TIR_IF) {
            tir_expr terms[MAX_REASONS];
            int count = stmt->if_.clip ? tir_conjuncts(b->v->pool, stmt->if_.condition, terms, MAX_REASONS) : 0;
            if (count == MAX_REASONS || (count && stmt->if_.otherwise)) b->failed = true;
            for (int i = 0; i < count && !b->failed; i++) b->failed = !bound_term(b, terms[i]);
            find_boundaries(b, stmt->if_.body);
            find_boundaries(b, stmt->if_.otherwise);
        }
    }
}

/* For a body outside of the boundaries: clears `clip` of all conditions on `var`, which stay: outer loops need not be split for them. */
static void keep_conditions(const versioning *v, tir_stmt *stmt, tir_expr var) {
    for (; stmt; stmt = stmt->next) {
        if (stmt->kind == TIR_FOR) keep_conditions(v, stmt->for_.body, var);
        if (stmt->kind == TIR_LET) keep_conditions(v, stmt->let.body, var);
        if (stmt->kind != TIR_IF) continue;
        if (tir_uses(v->pool, stmt->if_.condition, var)) stmt->if_.clip = false;
        keep_conditions(v, stmt->if_.body, var);
        keep_conditions(v, stmt->if_.otherwise, var);
    }
}

/* Does exactly one of the terms a < b hold? */
static bool is_opposite(tir_pool *pool, tir_expr a, tir_expr b) {
    return tir_is_number(pool, tir_add(pool, difference(pool, a), difference(pool, b)), -1);
}

/* The loop's body for values on one side of the boundaries; `var` replaces its variable. */
static tir_stmt *body_of(const boundaries *b, const tir_stmt *list, tir_expr var, side where) {
    versioning *v = b->v;
    tir_expr value[MAX_REASONS], term[MAX_REASONS];
    int decided = 0;
    tir_stmt *body = tir_stmt_substitute(v->kernel, list, 1, &b->var, &var);
    const tir_expr only = where == SIDE_BEFORE ? b->only_begin : where == SIDE_BEHIND ? b->only_end : 0;
    for (int i = 0; i < b->count; i++) {
        const bool opposite = only && is_opposite(v->pool, b->term[i], only);
        if (where == SIDE_BETWEEN ? b->open[i] : b->term[i] != only && !opposite) continue;
        value[decided] = tir_bool(v->pool, where == SIDE_BETWEEN || opposite);
        term[decided++] = tir_substitute(v->pool, b->term[i], 1, &b->var, &var);
    }
    body = tir_stmt_substitute(v->kernel, body, decided, term, value);
    if (where != SIDE_BETWEEN) keep_conditions(v, body, var);
    return clean(v, body);
}

/* The iterations from `lower` to `end`, exclusive; NULL: none. */
static tir_stmt *part(const boundaries *b, const tir_stmt *loop, tir_expr lower, tir_expr end, side where) {
    tir_pool *pool = b->v->pool;
    if (lower == end) return NULL;
    tir_stmt *copy = tir_stmt_new(b->v->kernel->arena, TIR_FOR);
    copy->for_ = loop->for_;
    copy->for_.lower = lower;
    copy->for_.extent = tir_sub(pool, end, lower);
    copy->for_.var = tir_loop_variable(pool, tir_variable_of(pool, loop->for_.var)->name, lower, copy->for_.extent);
    copy->for_.body = body_of(b, loop->for_.body, copy->for_.var, where);
    return single_trip(b->v, copy);
}

/* May e differ between the lanes of the enclosing vec loop? Assumed if e uses a let variable. */
static bool depends_on_lane(const versioning *v, tir_expr e) {
    if (!v->lane) return false;
    return tir_uses(v->pool, e, v->lane) || mentions(v->pool, e, (mention){.op = TIR_VAR, .kind = TIR_VAR_LET});
}

/* The statements inside parallel loops, which keep their number of tasks: an `if` by which each task selects its version. */
static tir_stmt *choose_side(const boundaries *b, const tir_stmt *list, tir_expr between) {
    if (tir_is_true(b->v->pool, between)) return body_of(b, list, b->var, SIDE_BETWEEN);
    tir_stmt *choice = tir_stmt_new(b->v->kernel->arena, TIR_IF);
    choice->if_.condition = between;
    choice->if_.body = body_of(b, list, b->var, SIDE_BETWEEN);
    choice->if_.otherwise = body_of(b, list, b->var, SIDE_OTHERS);
    return choice;
}

static bool is_parallel(const tir_stmt *list) {
    return list && list->kind == TIR_FOR && list->for_.parallel && !list->next;
}

/* The loop's body; of a parallel loop: that of the innermost parallel loop directly inside. */
static tir_stmt **task_of(tir_stmt *loop) {
    tir_stmt **task = &loop->for_.body;
    while (loop->for_.parallel && is_parallel(*task)) task = &(*task)->for_.body;
    return task;
}

static int count_statements(const tir_stmt *list, int most) {
    int count = 0;
    for (; list && count < most; list = list->next) {
        count++;
        if (list->kind == TIR_FOR) count += count_statements(list->for_.body, most);
        if (list->kind == TIR_LET) count += count_statements(list->let.body, most);
        if (list->kind == TIR_IF)
            count += count_statements(list->if_.body, most) + count_statements(list->if_.otherwise, most);
    }
    return count;
}

/* How many copies of a statement of the loop there may be: more, if there are few statements (parts of a concatenation). */
static int most_copies(const tir_stmt *loop) {
    return count_statements(loop->for_.body, SHORT + 1) <= SHORT ? MAX_SHORT_COPIES : MAX_COPIES;
}

static tir_stmt *split_at_boundaries(versioning *v, tir_stmt *loop, int *copies);

/* Iterations before or behind the boundaries, in which `only` (0: none) is false: a short loop is split again, where another part of a
 * concatenation begins. Adds to *copies those of a statement, `each` before the split. */
static tir_stmt *split_side(const boundaries *b, tir_stmt *loop, tir_expr only, int each, int *copies) {
    if (loop && loop->kind == TIR_FOR && b->guards && only && count_statements(loop->for_.body, SHORT + 1) <= SHORT)
        loop = split_at_boundaries(b->v, loop, &each);
    *copies += loop ? each : 0;
    return loop;
}

static tir_stmt *split_at_boundaries(versioning *v, tir_stmt *loop, int *copies) {
    tir_pool *pool = v->pool;
    boundaries b = {.v = v, .var = loop->for_.var, .guards = is_clipped(v, loop)};
    b.varies = has_parameter(pool, loop->for_.extent);
    if (loop->for_.loop != TIR_SERIAL) return loop;
    tir_stmt **task = task_of(loop);
    find_boundaries(&b, *task);
    b.again = !b.guards && b.count;
    if (b.again) find_boundaries(&b, *task);
    tir_expr lower = loop->for_.lower, last = tir_add(pool, lower, loop->for_.extent);
    tir_expr begin = b.begin ? tir_min(pool, tir_max(pool, b.begin, lower), last) : lower;
    tir_expr end = b.end ? tir_min(pool, tir_max(pool, b.end, begin), last) : last;
    if ((!b.begin && !b.end) || b.failed || begin == end || depends_on_lane(v, begin) || depends_on_lane(v, end))
        return loop;
    int parts = loop->for_.parallel ? 2 : 1 + (begin != lower) + (end != last);
    const int each = *copies;
    if (each * parts * v->earlier > most_copies(loop)) return loop;
    *copies *= loop->for_.parallel ? parts : 1;
    if (loop->for_.parallel) {
        tir_expr inside = tir_and(pool, tir_le(pool, begin, b.var), tir_lt(pool, b.var, end));
        *task = choose_side(&b, *task, inside);
        return loop;
    }
    tir_stmt *before = part(&b, loop, lower, begin, SIDE_BEFORE), *behind = part(&b, loop, end, last, SIDE_BEHIND);
    tir_stmt *result = split_side(&b, before, b.only_begin, each, copies), **cursor = list_end(&result);
    *cursor = part(&b, loop, begin, end, SIDE_BETWEEN);
    cursor = list_end(cursor);
    *cursor = split_side(&b, behind, b.only_end, each, copies);
    return result;
}

/* The loop, split into ranges if that settles conditions in its body. *copies: in, the most copies of one statement in the body; out,
 * in the result. */
static tir_stmt *version_loop(versioning *v, tir_stmt *loop, int *copies) {
    int64_t lower, trips;
    bool cut = v->clips && is_clipped(v, loop); /* also vec loops: each range becomes one */
    if (v->in_tasks && !cut) return loop;
    bool divisible = loop->for_.loop == TIR_SERIAL || (cut && loop->for_.loop == TIR_VEC);
    if (!divisible || !tir_is_const(v->pool, loop->for_.lower, &lower) ||
        !tir_is_const(v->pool, loop->for_.extent, &trips) || trips < 2)
        return v->clips ? split_at_boundaries(v, loop, copies) : loop;
    reason_search *search = LIB_NEW(v->kernel->arena, reason_search);
    search->v = v;
    search->var = loop->for_.var;
    search->guards = cut;
    find_reasons(search, loop->for_.body);
    if (!search->count) return v->clips && search->skipped ? split_at_boundaries(v, loop, copies) : loop;
    run_list *list = LIB_NEW(v->kernel->arena, run_list);
    find_runs(v, search, lower, lower + trips, list);
    if (list->overflow || list->count == 1 || list->count * *copies * v->earlier > most_copies(loop))
        return v->clips ? split_at_boundaries(v, loop, copies) : loop;
    *copies *= list->count;
    return make_runs(v, loop, list);
}

static void note_loaded(versioning *v, const tir_stmt *let) {
    if (tir_dtype_of(v->pool, let->let.value) == TIR_INDEX && has_load(v->pool, let->let.value))
        lib_vec_push(v->kernel->arena, &v->loaded, let->let.var);
}

static tir_stmt *version_list(versioning *v, tir_stmt *list, int *copies) {
    tir_stmt *result = NULL, **cursor = &result;
    *copies = 1;
    for (tir_stmt *stmt = list, *next; stmt; stmt = next) {
        next = stmt->next;
        stmt->next = NULL;
        if (stmt->kind == TIR_LET) note_loaded(v, stmt);
        if (stmt->kind == TIR_LET && !next) { /* not recursive: chains of lets are as long as expressions */
            *cursor = stmt;
            cursor = &stmt->let.body;
            next = stmt->let.body;
            *cursor = NULL;
            continue;
        }
        int here = 1, otherwise = 1;
        if (stmt->kind == TIR_FOR) {
            const tir_expr outside = v->lane;
            if (stmt->for_.loop == TIR_VEC) v->lane = stmt->for_.var;
            stmt->for_.body = version_list(v, stmt->for_.body, &here);
            v->lane = outside;
            stmt = version_loop(v, stmt, &here);
        } else if (stmt->kind == TIR_LET) {
            stmt->let.body = version_list(v, stmt->let.body, &here);
        } else if (stmt->kind == TIR_IF) {
            stmt->if_.body = version_list(v, stmt->if_.body, &here);
            stmt->if_.otherwise = version_list(v, stmt->if_.otherwise, &otherwise);
        }
        if (here < otherwise) here = otherwise;
        if (*copies < here) *copies = here;
        *cursor = stmt;
        cursor = list_end(cursor);
    }
    return result;
}

tir_stmt *tir_version(tir_kernel *kernel, tir_stmt *body) {
    versioning v = {.kernel = kernel, .pool = kernel->pool, .earlier = 1};
    int copies;
    body = version_list(&v, body, &copies);
    v.earlier = copies;
    v.clips = true;
    body = version_list(&v, body, &copies);
    v.earlier *= copies;
    v.in_tasks = true;
    return version_list(&v, body, &copies);
}
