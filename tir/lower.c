/* Lowering: region + schedule -> loop IR. One recursion (`loops`) makes the nest
 * of a stage in the roles of tir_nest_role: initialise its state, update it (or compute a map), merge its partial results, copy
 * an attached output to its buffer, initialise the fold's state that a step is stored in. */
#include "tir/lower.h"

/* ---- loops of a stage */

static void loops(tir_lowering *l, int s, uint32_t k, tir_nest_role role);

static void attached_stages(tir_lowering *l, int s, int node) {
    for (uint32_t q = 0; q < l->region->stages.count; q++)
        if (!tir_stage_of(l, (int)q)->removed && tir_plan_of(l, (int)q)->at_stage == s &&
            tir_plan_of(l, (int)q)->at_node == node && !tir_plan_of(l, (int)q)->stages &&
            !tir_plan_of(l, (int)q)->beside) {
            if (l->waited) tir_lower_pipeline_need(l, s, node, (int)q);
            tir_lower_nest(l, (int)q);
        }
}

/* Updates the reductions beside stage s at the end of an iteration of the loop `node`. */
static void stages_beside(tir_lowering *l, int s, int node) {
    for (uint32_t q = 0; q < l->region->stages.count; q++) {
        const tir_stage_plan *plan = tir_plan_of(l, (int)q);
        if (tir_stage_of(l, (int)q)->removed || !plan->beside || plan->at_stage != s || plan->at_node != node) continue;
        const char *const line = l->state.line;
        l->state.line = tir_stage_of(l, (int)q)->name;
        tir_stage_region(&l->state, (int)q);
        tir_check_beside_extents(&l->state, (int)q);
        l->state.line = line;
        loops(l, (int)q, 0, TIR_ROLE_UPDATE);
        tir_plan_of(l, (int)q)->unpadded = true;
    }
}

/* Before loop number k of stage s: the reductions beside it whose first loop it is begin with their identities. */
static void begin_beside(tir_lowering *l, int s, uint32_t k) {
    for (uint32_t q = 0; q < l->region->stages.count; q++) {
        const tir_stage_plan *plan = tir_plan_of(l, (int)q);
        if (tir_stage_of(l, (int)q)->removed || !plan->beside || plan->at_stage != s) continue;
        if (tir_beside_begin(&l->state, (int)q) != k || tir_lower_is_single_step(l, (int)q)) continue;
        tir_stage_region(&l->state, (int)q);
        loops(l, (int)q, 0, TIR_ROLE_INIT);
    }
}

static void close_attached(tir_lowering *l, int s, int node) {
    for (uint32_t q = 0; q < l->region->stages.count; q++)
        if (tir_plan_of(l, (int)q)->at_stage == s && tir_plan_of(l, (int)q)->at_node == node)
            tir_plan_of(l, (int)q)->open = false;
}

/* Does the leaf belong to the outer part of a split whose partial last tile gets a loop of its own (separate_tail)? */
static bool has_separate_tail(tir_lowering *l, int s, int leaf) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    for (int n = leaf, parent; (parent = plan->nodes.data[n].parent) >= 0; n = parent)
        if (plan->nodes.data[parent].separate_tail && plan->nodes.data[parent].outer == n) return true;
    return false;
}

/* Loop bounds of a clipped leaf, solved from the predicate and, with `skip`, from the points that count; `all` if the leaf is an inner part of a split. Appends the terms of the
 * predicate that hold throughout the loop to decided[*count ..]. */
static tir_span clip_bounds(tir_lowering *l, int s, const tir_axis_node *leaf, tir_span all, tir_expr *decided,
                            int *count) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    bool whole = leaf->parent < 0;
    const tir_axis_node *split = whole ? NULL : &plan->nodes.data[leaf->parent];
    if (!whole && (split->parent >= 0 || split->mode != TIR_TAIL_MASK || &plan->nodes.data[split->outer] != leaf))
        return all;
    tir_span bounds = tir_clip_range(&l->state, s, leaf->axis, leaf->skip, whole ? decided : NULL, count);
    if (whole) return bounds;
    tir_expr factor = tir_index(l->pool, split->factor), low = tir_div(l->pool, bounds.low, factor);
    tir_expr high = tir_ceil_div(l->pool, tir_add(l->pool, bounds.low, bounds.extent), factor);
    return (tir_span){low, tir_sub(l->pool, high, low)};
}

/* Appends a thread loop of `threads` iterations that all execute the same; returns the cursor of its body. */
static tir_stmt **alike_threads(tir_lowering *l, int threads) {
    tir_stmt *loop = tir_lower_append(l, TIR_FOR);
    loop->for_.lower = tir_index(l->pool, 0);
    loop->for_.extent = tir_index(l->pool, threads);
    loop->for_.var = tir_loop_variable(l->pool, "alike", loop->for_.lower, loop->for_.extent);
    loop->for_.loop = TIR_THREAD;
    return &loop->for_.body;
}

/* Opens the loop over parts of a reduction's loop, number k in the stage's order, and a part, whose result begins with the identity. Returns
 * the part's iterations; *behind: the cursor behind the loop over parts. */
static tir_span open_part(tir_lowering *l, int s, uint32_t k, tir_span all, tir_stmt ***behind) {
    const tir_axis_node *node = &tir_plan_of(l, s)->nodes.data[tir_plan_of(l, s)->order.data[k]];
    const tir_expr points = tir_index(l->pool, node->partial);
    tir_stmt *loop = tir_lower_append(l, TIR_FOR);
    loop->for_.lower = tir_index(l->pool, 0);
    loop->for_.extent = tir_ceil_div(l->pool, all.extent, points);
    loop->for_.var = tir_loop_variable(l->pool, "part", loop->for_.lower, loop->for_.extent);
    *behind = l->cursor;
    l->cursor = &loop->for_.body;
    tir_lower_exchange_parts(l, s);
    loops(l, s, k, TIR_ROLE_INIT);
    const tir_expr before = tir_mul(l->pool, loop->for_.var, points);
    return (tir_span){tir_add(l->pool, all.low, before),
                      tir_min(l->pool, points, tir_sub(l->pool, all.extent, before))};
}

static void close_part(tir_lowering *l, int s, uint32_t k, tir_stmt **behind) {
    tir_lower_exchange_parts(l, s);
    loops(l, s, k, TIR_ROLE_MERGE);
    l->cursor = behind;
}

/* A loop of a stage, in one_loop. */
typedef struct stage_loop {
    tir_nest_role role;
    /* the iterations: bounds, of a loop over a part only the part's; all, those of all parts */
    tir_span bounds, all;
    /* terms of the predicate that hold throughout the loop */
    tir_expr decided[TIR_TERM_LIMIT];
    int decided_count;
    /* cursors behind the loop, and behind the loop over its parts; NULL: there is no such loop */
    tir_stmt **after, **behind;
    bool vector, pipeline;
} stage_loop;

/* Raises if a loop with these bounds cannot be in the enclosing vec loop. */
static void check_vector(tir_lowering *l, int s, const tir_axis_node *node, tir_span bounds) {
    if ((node->kind == TIR_VEC || node->kind == TIR_THREAD) && l->vector)
        tir_schedule_raise(&l->state, "%s loop %s of stage %s runs inside vec loop %s", tir_loop_kind_names[node->kind],
                           node->name, tir_stage_of(l, s)->name, l->vector);
    if (l->vector && (tir_uses(l->pool, bounds.low, l->lane) || tir_uses(l->pool, bounds.extent, l->lane)))
        tir_schedule_raise(&l->state, "the trips of loop %s of stage %s depend on vec loop %s outside of it",
                           node->name, tir_stage_of(l, s)->name, l->vector);
}

/* Is the leaf's loop inside of a task that is one of the tiles of a loop which is to be cut where guards change? */
static bool is_cut_in_task(const tir_stage_plan *plan, int leaf) {
    const tir_axis_node *node = &plan->nodes.data[leaf],
                        *whole = node->parent < 0 ? NULL : &plan->nodes.data[node->parent];
    const tir_axis_node *outer = whole && whole->inner == leaf ? &plan->nodes.data[whole->outer] : NULL;
    return outer && outer->parallel && outer->clip && node->kind == TIR_SERIAL && !node->reduce;
}

/* Appends the loop of the leaf and moves the cursor into it. */
static void open_loop(tir_lowering *l, int s, int leaf, stage_loop *loop) {
    tir_axis_node *node = &tir_plan_of(l, s)->nodes.data[leaf];
    const tir_span bounds = loop->bounds;
    loop->vector = node->kind == TIR_VEC;
    check_vector(l, s, node, bounds);
    const tir_expr lower = loop->behind ? tir_index(l->pool, 0) : bounds.low;
    tir_expr var = tir_loop_variable(l->pool, loop->behind ? "step" : node->name, lower, bounds.extent);
    loop->pipeline = loop->role == TIR_ROLE_UPDATE && tir_lower_pipeline_open(l, s, leaf, var, bounds);
    tir_stmt *stmt = tir_lower_append(l, TIR_FOR);
    loop->after = l->cursor;
    stmt->for_.var = var;
    stmt->for_.lower = lower;
    stmt->for_.extent = bounds.extent;
    stmt->for_.loop = node->kind;
    stmt->for_.parallel = node->parallel;
    stmt->for_.clip = (node->clip && !node->reduce) || has_separate_tail(l, s, leaf);
    stmt->for_.clip_in_task = is_cut_in_task(tir_plan_of(l, s), leaf);
    node->value = var;
    if (loop->vector) {
        l->vector = node->name;
        l->lane = stmt->for_.var;
    }
    l->cursor = &stmt->for_.body;
    if (loop->behind) node->value = tir_lower_name(l, node->name, tir_add(l->pool, bounds.low, var));
    if (node->alike) l->cursor = alike_threads(l, node->alike);
    if (loop->pipeline) tir_lower_pipeline_step(l, s, leaf, var, bounds);
}

/* Adds the conditions that hold in an iteration of the leaf's loop to the known ones. */
static void learn_iteration(tir_lowering *l, int s, int leaf, const stage_loop *loop) {
    const tir_axis_node *node = &tir_plan_of(l, s)->nodes.data[leaf];
    const tir_span bounds = loop->bounds, all = loop->all;
    int64_t trips;
    if (loop->after && !tir_is_const(l->pool, bounds.extent, &trips)) /* not implied by the variable's range */
        tir_lower_learn(l, tir_lt(l->pool, node->value, tir_add(l->pool, bounds.low, bounds.extent)));
    if (loop->behind) tir_lower_learn(l, tir_lt(l->pool, node->value, tir_add(l->pool, all.low, all.extent)));
    for (int i = 0; i < loop->decided_count; i++)
        tir_lower_learn(l, tir_lower_translate(l, s, tir_lower_with_scalars(l, s, loop->decided[i]), NULL));
}

static void one_loop(tir_lowering *l, int s, uint32_t k, tir_nest_role role) {
    tir_stage_plan *plan = tir_plan_of(l, s);
    int leaf = plan->order.data[k];
    tir_axis_node *node = &plan->nodes.data[leaf];
    const tir_span whole = {tir_index(l->pool, 0), tir_node_extent(&l->state, s, leaf)};
    stage_loop loop = {.role = role, .bounds = whole};
    const int saved = l->known_count;
    if ((node->clip || node->skip) && node->reduce && node->kind != TIR_UNROLL)
        loop.bounds = clip_bounds(l, s, node, whole, loop.decided, &loop.decided_count);
    loop.all = loop.bounds;
    if (node->partial && role == TIR_ROLE_UPDATE) loop.bounds = open_part(l, s, k, loop.all, &loop.behind);
    if (tir_is_number(l->pool, loop.bounds.extent, 1))
        node->value = loop.bounds.low;
    else
        open_loop(l, s, leaf, &loop);
    const uint32_t scalars = l->scalars.count;
    learn_iteration(l, s, leaf, &loop);
    if (role == TIR_ROLE_UPDATE) {
        attached_stages(l, s, leaf);
        if (loop.pipeline) tir_lower_pipeline_need(l, s, leaf, -1);
        tir_lower_prefetches(l, s, leaf);
    }
    loops(l, s, k + 1, role);
    if (role == TIR_ROLE_UPDATE) {
        stages_beside(l, s, leaf);
        close_attached(l, s, leaf);
    }
    l->known_count = saved;
    tir_plan_of(l, s)->nodes.data[leaf].value = 0;
    if (loop.vector) l->vector = NULL;
    if (loop.after) {
        l->cursor = loop.after;
        l->scalars.count = scalars;
    }
    if (loop.pipeline) tir_lower_pipeline_close(l, s, leaf);
    if (loop.behind) close_part(l, s, k, loop.behind);
}

static bool is_leaf(const tir_stage_plan *plan, int node) {
    for (uint32_t k = 0; k < plan->order.count; k++)
        if (plan->order.data[k] == node) return true;
    return false;
}

bool tir_lower_is_single_step(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    const tir_stage_plan *plan = tir_plan_of(l, s);
    if (stage->kind != TIR_REDUCE || !stage->merge[0] || stage->predicate || plan->counts || plan->unit ||
        stage->fold >= 0)
        return false;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        if (!tir_is_number(l->pool, stage->axis[a].extent, 1)) return false;
        if (!is_leaf(plan, plan->root[a]) || plan->nodes.data[plan->root[a]].partial) return false;
    }
    for (int c = 0; c < stage->count; c++)
        if (!tir_layout_is_identity(&l->region->tensors.data[stage->tensor[c]].layout)) return false;
    return true;
}

static uint32_t first_reduction(const tir_stage_plan *plan) {
    uint32_t r = 0;
    while (r < plan->order.count && !plan->nodes.data[plan->order.data[r]].reduce) r++;
    return r;
}

/* Do updates of the stage loop over the space axis? Of a scatter: only if the axis is its own index (else data choose the position); of a
 * sort: unless it is the sorted axis. */
static bool scatters_along(tir_lowering *l, int s, int axis) {
    const tir_stage *stage = tir_stage_of(l, s);
    if (stage->kind == TIR_SORT) return axis + 1 < stage->space; /* a line is sorted by one statement */
    return stage->kind != TIR_SCATTER || stage->index[axis] == stage->axis[axis].var;
}

/* Before a fold's sequential loops: allocates scratch for its state, or, if the state is in memory because it is read after the fold,
 * raises if tiles of the fold's axes overlap. */
static void open_state(tir_lowering *l, int s) {
    if (!tir_lower_has_home(l, s)) {
        tir_lower_open_scratch(l, s);
        return;
    }
    for (int a = 0; a < tir_stage_of(l, s)->space; a++)
        if (tir_tiles_overlap(&l->state, s, a))
            tir_schedule_raise(
                &l->state, "masked tiles of axis %s of fold %s reach into the next tile, whose state they would read",
                tir_stage_of(l, s)->axis[a].name, tir_stage_of(l, s)->name);
}

/* Before the sequential loops of a fold or reduction, from number k in the stage's order: initialises its state, and
 * that of a fold for each step that is stored in it. */
static void initialise(tir_lowering *l, int s, uint32_t k) {
    tir_stage_kind kind = tir_stage_of(l, s)->kind;
    if (kind == TIR_FOLD && !tir_plan_of(l, s)->open) open_state(l, s);
    loops(l, s, k, TIR_ROLE_INIT);
    for (int c = 0; kind == TIR_FOLD && c < tir_stage_of(l, s)->count; c++) {
        const int step = tir_lower_state_step(l, s, c);
        if (step < 0) continue;
        tir_lower_begin_state(l, step);
        loops(l, step, 0, TIR_ROLE_STATE);
        tir_plan_of(l, step)->open = false;
    }
}

/* Raises unless the loop that the stage's unit covers has the unit's number of iterations. */
static void check_unit_loop(tir_lowering *l, int s) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    const tir_axis_node *leaf = &plan->nodes.data[plan->unit_node];
    int64_t trips;
    const tir_axis_node *split = leaf->parent < 0 ? NULL : &plan->nodes.data[leaf->parent];
    bool known = tir_is_const(l->pool, tir_node_extent(&l->state, s, plan->unit_node), &trips);
    /* an axis shorter than the unit has one tile, and masks for the steps beyond its end */
    if (known && trips < tir_unit_width(plan->unit) && split && split->mode == TIR_TAIL_MASK) trips = split->factor;
    if (!known || trips != tir_unit_width(plan->unit))
        tir_schedule_raise(&l->state, "loop %s of stage %s must have %d iterations for unit %s", leaf->name,
                           tir_stage_of(l, s)->name, tir_unit_width(plan->unit), plan->unit->name);
}

static void loops(tir_lowering *l, int s, uint32_t k, tir_nest_role role) {
    tir_stage_plan *plan = tir_plan_of(l, s);
    tir_stage_kind kind = tir_stage_of(l, s)->kind;
    /* a scatter is initialised by a phase of its own */
    bool has_init = kind == TIR_FOLD || (kind == TIR_REDUCE && !tir_lower_is_single_step(l, s));
    if (role == TIR_ROLE_UPDATE) {
        if (has_init && !plan->beside && k == first_reduction(plan)) initialise(l, s, k);
        begin_beside(l, s, k);
    }
    if (k == plan->order.count) {
        /* a scatter or reduction without update axes is updated once; a map is computed */
        tir_lower_statement(l, s, role);
        return;
    }
    const tir_axis_node *leaf = &plan->nodes.data[plan->order.data[k]];
    if (leaf->unit && role == TIR_ROLE_UPDATE) {
        loops(l, s, k + 1, role);
        return;
    }
    if (plan->unit && plan->order.data[k] == plan->unit_node) { /* all iterations at once, in the statement */
        check_unit_loop(l, s);
        loops(l, s, k + 1, role);
        return;
    }
    bool sorts = kind == TIR_SORT && leaf->reduce;
    if (role != TIR_ROLE_UPDATE ? leaf->reduce : sorts || (!leaf->reduce && !scatters_along(l, s, leaf->axis)))
        loops(l, s, k + 1, role);
    else
        one_loop(l, s, k, role);
}

/* ---- a stage with its attached stages */

static void end_phase(tir_lowering *l, int s);

/* Sets the region of a root: all points, and the padding of their layouts. */
static void root_region(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        plan->low[a] = tir_index(l->pool, 0);
        plan->extent[a] = stage->axis[a].extent;
        if (a < stage->space && stage->kind != TIR_FOLD)
            for (int c = 0; c < stage->count; c++)
                plan->extent[a] = tir_layout_padded(l->pool, &l->region->tensors.data[stage->tensor[c]].layout, a,
                                                    stage->axis[a].extent);
    }
}

void tir_lower_nest(tir_lowering *l, int s) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    bool attached = plan->at_stage >= 0;
    if (attached && l->vector)
        tir_schedule_raise(&l->state, "%s is attached inside vec loop %s: the lanes would share its storage",
                           stage->name, l->vector);
    if (attached) {
        tir_stage_region(&l->state, s);
        tir_lower_open_scratch(l, s);
    } else {
        root_region(l, s);
    }
    if (stage->kind == TIR_SCATTER && (attached || !stage->in_place)) {
        loops(l, s, 0, TIR_ROLE_INIT);
        if (!attached) end_phase(l, s);
    }
    loops(l, s, 0, TIR_ROLE_UPDATE);
    if (attached && tir_lower_has_home(l, s)) {
        const char *flaw = stage->kind == TIR_FOLD ? "a fold must be a root" : tir_region_flaw(&l->state, s, false);
        if (flaw)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                      "schedule of region %s: %s is also needed in memory, but it is attached: %s", l->region->name,
                      stage->name, flaw);
        loops(l, s, 0, TIR_ROLE_COPY);
        plan->unpadded |= tir_region_flaw(&l->state, s, true) != NULL;
    }
    if (stage->kind == TIR_FOLD && tir_lower_has_home(l, s)) plan->unpadded = true;
    if (!attached) plan->open = false; /* the state of a fold */
}

/* ---- phases and tasks */

static tir_expr list_tasks(tir_lowering *l, const tir_stmt *list);

/* Number of tasks in one iteration of a parallel loop: product of the trips of the parallel loops directly inside it. */
static tir_expr inner_tasks(tir_lowering *l, const tir_stmt *loop) {
    return list_tasks(l, loop->for_.body);
}

static bool parallel_list(const tir_stmt *list) {
    return list && list->kind == TIR_FOR && list->for_.parallel;
}

static tir_expr list_tasks(tir_lowering *l, const tir_stmt *list) {
    if (!parallel_list(list)) return tir_index(l->pool, 1);
    tir_expr trips = tir_index(l->pool, 0), inner = inner_tasks(l, list);
    for (const tir_stmt *run = list; run; run = run->next) {
        if (!parallel_list(run) || inner_tasks(l, run) != inner)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                      "schedule of region %s: the par loops of a stage must be nested directly and have equal trips",
                      l->region->name);
        trips = tir_add(l->pool, trips, run->for_.extent);
    }
    return tir_mul(l->pool, trips, inner);
}

/* The body of a task: each parallel loop becomes a let of its variable, computed from the task's number `task`; if versioning has split a
 * parallel loop into several, branches on the number choose among them. */
static tir_stmt *task_body(tir_lowering *l, tir_stmt *list, tir_expr task) {
    if (!parallel_list(list)) return list;
    tir_expr inner = inner_tasks(l, list), position = tir_div(l->pool, task, inner);
    tir_expr rest = tir_rem(l->pool, task, inner), first = tir_index(l->pool, 0);
    tir_stmt *result = NULL, **cursor = &result;
    for (tir_stmt *run = list; run; run = run->next) {
        const tir_variable *variable = tir_variable_of(l->pool, run->for_.var);
        tir_stmt *let = tir_stmt_new(l->arena, TIR_LET);
        let->let.var = tir_var(l->pool, variable->name, TIR_VAR_LET, TIR_INDEX, variable->low, variable->high);
        tir_expr value = tir_add(l->pool, run->for_.lower, tir_sub(l->pool, position, first));
        value = tir_max(l->pool, value, tir_index(l->pool, variable->low)); /* implied by the branch on the position; */
        let->let.value =
            tir_min(l->pool, value, tir_index(l->pool, variable->high)); /* but ranges need the explicit clamp */
        tir_stmt *body = tir_stmt_substitute(l->kernel, run->for_.body, 1, &run->for_.var, &let->let.var);
        let->let.body = task_body(l, body, rest);
        first = tir_add(l->pool, first, run->for_.extent);
        if (!run->next) {
            *cursor = let;
            break;
        }
        tir_stmt *branch = tir_stmt_new(l->arena, TIR_IF);
        branch->if_.condition = tir_lt(l->pool, position, first);
        branch->if_.body = let;
        *cursor = branch;
        cursor = &branch->if_.otherwise;
    }
    return result;
}

/* May two phases of one task become one? Not if both have thread loops, for blocks of different sizes: the larger block has threads that the
 * smaller block's statements outside of thread loops must not be executed by. */
static bool blocks_agree(tir_lowering *l, const tir_stmt *one, const tir_stmt *other) {
    int64_t a = tir_threads(l->pool, one), b = tir_threads(l->pool, other);
    return a == b || a == 1 || b == 1;
}

static void add_phase(tir_lowering *l, const char *name, tir_stmt *body) {
    const int64_t threads = tir_threads(l->pool, body);
    if (threads > TIR_BLOCK_THREADS)
        lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                  "schedule of region %s: blocks of %s have %lld threads, expected at most %d", l->region->name, name,
                  (long long)threads, TIR_BLOCK_THREADS);
    tir_phase phase = {.name = name, .tasks = list_tasks(l, body)};
    if (tir_is_number(l->pool, phase.tasks, 1) && l->kernel->phases.count) {
        tir_phase *last = &l->kernel->phases.data[l->kernel->phases.count - 1]; /* neighbours of one task merge */
        if (tir_is_number(l->pool, last->tasks, 1) && !parallel_list(body) && blocks_agree(l, last->body, body)) {
            tir_stmt **end = &last->body;
            while (*end) end = &(*end)->next;
            *end = body;
            return;
        }
    }
    int64_t high = tir_range(l->pool, phase.tasks).high;
    phase.task = tir_var(l->pool, "task", TIR_VAR_LOOP, TIR_INDEX, 0, high > 0 ? high - 1 : 0);
    phase.body = task_body(l, body, phase.task);
    lib_vec_push(l->arena, &l->kernel->phases, phase);
}

/* Search for elements of reg buffers indexed by a loop's variable: such loops are unrolled, with or without a directive. */
typedef struct register_search {
    tir_lowering *l;
    tir_expr var;
    bool found;
} register_search;

static tir_expr find_register_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    register_search *search = user;
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD || search->l->kernel->buffers.data[node->bits].scope != TIR_SCOPE_REG) return rebuilt;
    for (int d = 0; d < node->count - (node->guarded ? 2 : 0); d++)
        if (tir_uses(pool, tir_operand(pool, e, d), search->var)) search->found = true;
    return rebuilt;
}

static void find_register(void *user, tir_expr e) {
    register_search *search = user;
    if (tir_uses(search->l->pool, e, search->var)) tir_rewrite(search->l->pool, e, find_register_load, search);
}

static void find_register_use(void *user, const tir_stmt *stmt) {
    register_search *search = user;
    if (search->found) return;
    tir_stmt_exprs(stmt, find_register, search);
    for (int p = 0; stmt->kind == TIR_COLLECTIVE && p < stmt->collective.unit->places; p++) {
        const tir_place *place = &stmt->collective.place[p];
        if (search->l->kernel->buffers.data[place->buffer].scope != TIR_SCOPE_REG) continue;
        for (int d = 0; d < place->rank; d++)
            if (tir_uses(search->l->pool, place->index[d], search->var)) search->found = true;
    }
    if (stmt->kind != TIR_STORE || search->l->kernel->buffers.data[stmt->store.buffer].scope != TIR_SCOPE_REG) return;
    for (int d = 0; d < stmt->store.rank; d++)
        if (tir_uses(search->l->pool, stmt->store.index[d], search->var)) search->found = true;
}

static void unroll_register_loops(void *user, const tir_stmt *stmt) {
    enum { MOST = 64 };
    register_search search = {user, 0, false};
    if (stmt->kind != TIR_FOR || stmt->for_.loop != TIR_SERIAL || stmt->for_.parallel) return;
    if (tir_range(search.l->pool, stmt->for_.extent).high > MOST) return;
    search.var = stmt->for_.var;
    tir_stmt_walk(stmt->for_.body, find_register_use, &search);
    if (search.found) ((tir_stmt *)stmt)->for_.loop = TIR_UNROLL; /* a statement of this lowering */
}

/* Turns the statements appended so far into a phase; the next statement starts another. */
static void end_phase(tir_lowering *l, int s) {
    lib_stack_require(l->arena->scope,
                      LIB_STACK_CALL / 2 + (size_t)tir_stmt_nesting(l->arena, l->body) * TIR_STACK_NESTED);
    if (l->registers) tir_stmt_walk(l->body, unroll_register_loops, l);
    add_phase(l, tir_stage_of(l, s)->name, tir_version(l->kernel, l->body));
    l->body = NULL;
    l->cursor = &l->body;
    l->scalars.count = 0;
}

int tir_lower_root(tir_lowering *l, int s) {
    while (tir_plan_of(l, s)->at_stage >= 0) s = tir_plan_of(l, s)->at_stage;
    return s;
}

/* A phase that stores zeros in a tensor of the stage from the end of `axis` up to `behind`: along earlier axes only within their extents,
 * along later ones within their padded extents, so that calls for all axes store each element of the padding once. */
static void pad_axis(tir_lowering *l, int s, int component, int axis, tir_expr behind) {
    const tir_tensor *t = &l->region->tensors.data[tir_stage_of(l, s)->tensor[component]];
    tir_expr point[DLC_MAX_RANK];
    for (int k = 0; k < t->rank; k++) {
        const int a = k + 1 == t->rank ? axis : k < axis ? k : k + 1; /* its own axis innermost */
        const tir_expr end = t->extent[a];
        tir_stmt *loop = tir_lower_append(l, TIR_FOR);
        loop->for_.lower = tir_index(l->pool, 0);
        loop->for_.extent = a < axis    ? end
                            : a == axis ? tir_sub(l->pool, behind, end)
                                        : tir_layout_padded(l->pool, &t->layout, a, end);
        loop->for_.var = tir_loop_variable(l->pool, a == axis ? "behind" : "at", loop->for_.lower, loop->for_.extent);
        point[a] = a == axis ? tir_add(l->pool, end, loop->for_.var) : loop->for_.var;
        l->cursor = &loop->for_.body;
    }
    tir_lower_store_zero(l, s, component, point);
    end_phase(l, s);
}

/* Zero-fills the padding that regions of stages attached to a root, or to its folds, do not cover. */
static void pad(tir_lowering *l, int root) {
    for (int s = 0; s < (int)l->region->stages.count; s++) {
        if (tir_lower_root(l, s) != root || !tir_plan_of(l, s)->unpadded) continue;
        for (int c = 0; c < tir_stage_of(l, s)->count; c++) {
            const tir_tensor *t = &l->region->tensors.data[tir_stage_of(l, s)->tensor[c]];
            for (int a = 0; a < t->rank; a++) {
                const tir_expr behind = tir_layout_padded(l->pool, &t->layout, a, t->extent[a]);
                if (behind != t->extent[a]) pad_axis(l, s, c, a, behind);
            }
        }
    }
}

/* Whether there is nothing to compute at this root: it has no points, and no attached stage is written to memory. */
static bool is_empty(tir_lowering *l, int root) {
    tir_stage *stage = tir_stage_of(l, root);
    bool empty = false;
    for (int a = 0; a < stage->space; a++)
        if (tir_is_number(l->pool, stage->axis[a].extent, 0)) empty = true;
    for (int s = 0; s < (int)l->region->stages.count && empty; s++) {
        if (tir_lower_root(l, s) == root && s != root && !tir_stage_of(l, s)->removed && tir_lower_has_home(l, s))
            empty = false;
    }
    return empty;
}

static void check_shared(tir_lowering *l) {
    const int64_t limit = l->options && l->options->machine ? l->options->machine->shared_memory : 0;
    for (uint32_t p = 0; p < l->kernel->phases.count && limit; p++)
        if (l->kernel->phases.data[p].shared_bytes > limit)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                      "schedule of region %s: blocks of %s need %lld bytes of shared memory, the machine has %lld",
                      l->region->name, l->kernel->phases.data[p].name,
                      (long long)l->kernel->phases.data[p].shared_bytes, (long long)limit);
}

/* Makes the stages that unit operands are loaded from zero-fill what the units read beyond the domain. */
static void zero_operands(tir_lowering *l) {
    for (int s = 0; s < (int)l->region->stages.count; s++)
        if (!tir_stage_of(l, s)->removed && tir_plan_of(l, s)->unit && tir_unit_is_collective(tir_plan_of(l, s)->unit))
            tir_lower_zero_operands(l, s);
}

/* Makes the phases of a root with its attached stages, unless that is done or there is nothing to compute. */
static void lower_root(tir_lowering *l, int s) {
    for (uint32_t q = 0; q < l->region->stages.count && is_empty(l, s); q++)
        l->done[q] = l->done[q] || tir_lower_root(l, (int)q) == s;
    if (l->done[s]) return;
    l->body = NULL;
    l->cursor = &l->body;
    l->state.line = tir_stage_of(l, s)->name;
    tir_lower_nest(l, s);
    end_phase(l, s);
    pad(l, s);
    for (uint32_t q = 0; q < l->region->stages.count; q++) l->done[q] = l->done[q] || tir_lower_root(l, (int)q) == s;
}

/* Lowers the root after those that its loops read. In the order of stages these come first, but for sums that run beside a later root. */
static void lower_in_order(tir_lowering *l, int s, bool *begun) {
    if (l->done[s] || begun[s])
        return; /* begun: it reads itself through others, which lowering the first of them refuses */
    begun[s] = true;
    for (int q = 0; q < (int)l->region->stages.count; q++)
        for (int p = 0; p < (int)l->region->stages.count && !tir_stage_of(l, q)->removed && tir_lower_root(l, q) == s;
             p++)
            if (!tir_stage_of(l, p)->removed && !l->done[p] && tir_lower_root(l, p) != s && tir_lower_reads(l, q, p))
                lower_in_order(l, tir_lower_root(l, p), begun);
    lower_root(l, s);
}

static bool has_beside(tir_lowering *l) {
    for (int s = 0; s < (int)l->region->stages.count; s++)
        if (!tir_stage_of(l, s)->removed && tir_plan_of(l, s)->beside) return true;
    return false;
}

tir_kernel *tir_lower(lib_arena *arena, const tir_region *original, const tir_schedule *schedule,
                      const tir_lower_options *options) {
    tir_region *region = tir_region_copy(arena, original);
    tir_lowering l = {.arena = arena, .region = region, .pool = region->pool, .options = options};
    l.has_fma = !options || !options->machine || options->machine->fma;
    l.scales = options && options->machine && options->machine->scales;
    tir_schedule_apply(&l.state, arena, region, schedule, options, false);
    l.state.scalar = tir_lower_scalar;
    l.state.lowering = &l;
    tir_lower_check_outputs(&l, original);
    tir_lower_check_states(&l);
    if (options && options->verify) tir_region_verify(arena->scope, region);
    l.kernel = tir_kernel_new(arena, region->pool, region->name);
    for (uint32_t i = 0; i < region->params.count; i++) lib_vec_push(arena, &l.kernel->params, region->params.data[i]);
    zero_operands(&l);
    l.done = LIB_NEW_ARRAY(arena, bool, region->stages.count + 1);
    l.home = LIB_NEW_ARRAY(arena, uint32_t, region->tensors.count + 1);
    for (uint32_t t = 0; t < region->tensors.count; t++) l.home[t] = UINT32_MAX;
    tir_lower_arguments(&l);
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (!region->stages.data[s].removed) tir_lower_workspace(&l, (int)s);
    bool *begun = has_beside(&l) ? LIB_NEW_ARRAY(arena, bool, region->stages.count + 1) : NULL;
    for (uint32_t s = 0; s < region->stages.count; s++) {
        if (region->stages.data[s].removed || l.state.plan[s].at_stage >= 0) continue;
        if (begun)
            lower_in_order(&l, (int)s, begun);
        else
            lower_root(&l, (int)s);
    }
    tir_kernel_place_workspace(l.kernel);
    tir_kernel_place(l.kernel, TIR_SCOPE_LOCAL);
    tir_lower_matrices(&l);
    tir_kernel_place_shared(l.kernel, true);
    check_shared(&l);
    tir_kernel_synchronise(l.kernel);
    tir_kernel_mark_access(l.kernel); /* some loads may have been removed */
    tir_lower_check(&l);
    if (options && options->verify) tir_kernel_verify(arena->scope, l.kernel, options->machine, options->overfull);
    return l.kernel;
}
