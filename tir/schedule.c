/* The schedule language: parses directives and applies them, line by line, to the state that lowering reads. Loop-section
 * directives are only recorded (ranges resolve at lowering, consumers before producers); checks that are possible here are made here. */
#include "tir/schedule_internal.h"

#include <stdio.h>

static const struct {
    const char *name;
    tir_directive_kind kind;
    bool rewrite;
} directives[] = {
    {"inline", TIR_D_INLINE, true},    {"layout", TIR_D_LAYOUT, true},
    {"copy", TIR_D_COPY, true},        {"collapse", TIR_D_COLLAPSE, true},
    {"scan", TIR_D_SCAN, true},        {"rfactor", TIR_D_RFACTOR, true},
    {"tree", TIR_D_TREE, true},        {"where", TIR_D_WHERE, true},
    {"block", TIR_D_BLOCK, true},      {"online", TIR_D_ONLINE, true},
    {"hoist", TIR_D_HOIST, true},      {"split", TIR_D_SPLIT, false},
    {"order", TIR_D_ORDER, false},     {"at", TIR_D_AT, false},
    {"store", TIR_D_STORE, false},     {"vec", TIR_D_VEC, false},
    {"unroll", TIR_D_UNROLL, false},   {"par", TIR_D_PAR, false},
    {"clip", TIR_D_CLIP, false},       {"prefetch", TIR_D_PREFETCH, false},
    {"nt", TIR_D_NT, false},           {"unit", TIR_D_UNIT, false},
    {"fuse", TIR_D_FUSE, false},       {"thread", TIR_D_THREAD, false},
    {"operand", TIR_D_OPERAND, true},  {"pipeline", TIR_D_PIPELINE, false},
    {"seed", TIR_D_SEED, true},        {"rank", TIR_D_RANK, true},
    {"merge", TIR_D_MERGE, true},      {"expand", TIR_D_EXPAND, true},
    {"partial", TIR_D_PARTIAL, false}, {"skip", TIR_D_SKIP, false},
    {"sweep", TIR_D_SWEEP, true},      {"beside", TIR_D_BESIDE, false},
};
enum { directive_count = sizeof directives / sizeof *directives };

void tir_schedule_init(tir_schedule *schedule, lib_arena *arena) {
    *schedule = (tir_schedule){.arena = arena};
    lib_text_init(&schedule->text, arena);
}

void tir_schedule_add(tir_schedule *schedule, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    lib_text_format_v(&schedule->text, format, arguments);
    va_end(arguments);
    lib_text_add(&schedule->text, "\n");
}

/* Prefix of messages about the current directive. */
static const char *name_line(const tir_schedule_state *state) {
    const char *region = state->region->name, *line = state->line ? state->line : "";
    if (!state->number) return lib_arena_format(state->arena, "schedule of region %s: `%s`", region, line);
    return lib_arena_format(state->arena, "schedule of region %s, line %d: `%s`", region, state->number, line);
}

_Noreturn void tir_schedule_raise(const tir_schedule_state *state, const char *format, ...) {
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    lib_raise(state->arena->scope, DLC_INVALID_ARGUMENT, "%s: %s", name_line(state), reason);
}

/* Existing names, for a message about an unknown one: "a, b, c", the first ones of many. */
typedef struct name_list {
    char text[192];
    bool full;
} name_list;

static void list_name(name_list *list, const char *name) {
    size_t at = strlen(list->text);
    if (list->full) return;
    list->full = at + strlen(name) + sizeof ", , ..." > sizeof list->text;
    snprintf(list->text + at, sizeof list->text - at, "%s%s", at ? ", " : "", list->full ? "..." : name);
}

int tir_find_stage(const tir_schedule_state *state, const char *name) {
    name_list list = {.text = ""};
    lib_nearest nearest = lib_nearest_to(name);
    for (uint32_t i = 0; i < state->region->stages.count; i++) {
        if (state->region->stages.data[i].removed) continue;
        if (strcmp(state->region->stages.data[i].name, name) == 0) return (int)i;
        list_name(&list, state->region->stages.data[i].name);
        lib_nearest_try(&nearest, state->region->stages.data[i].name, strlen(state->region->stages.data[i].name));
    }
    tir_schedule_raise(state, "no stage is called %s; there are %s%s", name, list.text, lib_nearest_hint(&nearest));
}

uint32_t tir_find_tensor(const tir_schedule_state *state, const char *name) {
    for (uint32_t i = 0; i < state->region->tensors.count; i++) {
        const tir_tensor *tensor = &state->region->tensors.data[i];
        if (strcmp(tensor->name, name) != 0) continue;
        if (tensor->stage >= 0 && state->region->stages.data[tensor->stage].removed)
            tir_schedule_raise(state, "%s has been inlined", name);
        return i;
    }
    lib_nearest nearest = lib_nearest_to(name);
    for (uint32_t i = 0; i < state->region->tensors.count; i++)
        lib_nearest_try(&nearest, state->region->tensors.data[i].name, strlen(state->region->tensors.data[i].name));
    tir_schedule_raise(state, "no tensor is called %s%s", name, lib_nearest_hint(&nearest));
}

/* ---- loop section: names */

int tir_find_node(const tir_schedule_state *state, int stage, const char *name) {
    const tir_stage_plan *plan = &state->plan[stage];
    for (uint32_t i = 0; i < plan->nodes.count; i++)
        if (strcmp(plan->nodes.data[i].name, name) == 0) return (int)i;
    name_list list = {.text = ""};
    for (uint32_t i = 0; i < plan->nodes.count; i++)
        if (plan->nodes.data[i].outer < 0 && plan->nodes.data[i].fused < 0) list_name(&list, plan->nodes.data[i].name);
    tir_schedule_raise(state, "stage %s has no axis %s; it has %s", state->region->stages.data[stage].name, name,
                       *list.text ? list.text : "none");
}

static int find_leaf(const tir_schedule_state *state, int stage, const char *name) {
    int node = tir_find_node(state, stage, name);
    const tir_axis_node *n = &state->plan[stage].nodes.data[node];
    if (n->outer >= 0 || n->fused >= 0)
        tir_schedule_raise(state, "axis %s of stage %s is %s", name, state->region->stages.data[stage].name,
                           n->fused >= 0 ? "fused into another" : "split: name one of its parts");
    return node;
}

int tir_read_dotted(const tir_schedule_state *state, lib_lexer *lexer, const char **rest) {
    char *name = lib_lexer_name(lexer);
    char *dot = strrchr(name, '.');
    if (!dot) tir_schedule_raise(state, "%s: expected stage.axis", name);
    *dot = 0;
    *rest = dot + 1;
    return tir_find_stage(state, name);
}

static int add_node(const tir_schedule_state *state, int stage, tir_axis_node node) {
    tir_stage_plan *plan = &state->plan[stage];
    for (uint32_t i = 0; i < plan->nodes.count; i++)
        if (strcmp(plan->nodes.data[i].name, node.name) == 0)
            tir_schedule_raise(state, "stage %s already has an axis %s", state->region->stages.data[stage].name,
                               node.name);
    lib_vec_push(state->arena, &plan->nodes, node);
    return (int)plan->nodes.count - 1;
}

static void init_plan(tir_schedule_state *state) {
    tir_region *region = state->region;
    state->plan = LIB_NEW_ARRAY(state->arena, tir_stage_plan, region->stages.count ? region->stages.count : 1);
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        tir_stage_plan *plan = &state->plan[s];
        plan->at_stage = -1;
        for (int a = 0; a < stage->space + stage->reduce; a++) {
            plan->by[a] = -1;
            plan->root[a] = add_node(state, (int)s,
                                     (tir_axis_node){.name = stage->axis[a].name,
                                                     .parent = -1,
                                                     .outer = -1,
                                                     .inner = -1,
                                                     .fused = -1,
                                                     .slow = -1,
                                                     .fast = -1,
                                                     .axis = a,
                                                     .reduce = a >= stage->space});
            lib_vec_push(state->arena, &plan->order, plan->root[a]);
        }
    }
}

/* ---- loop section: directives */

static const char *const split_modes[] = {"mask", "overlap", "peel", "balanced"};

static void apply_split(tir_schedule_state *state, lib_lexer *lexer) {
    const char *axis;
    int stage = tir_read_dotted(state, lexer, &axis);
    int node = find_leaf(state, stage, axis);
    tir_stage_plan *plan = &state->plan[stage];
    int64_t factor = lib_lexer_integer(lexer);
    if (factor < 1) tir_schedule_raise(state, "a split factor must be at least 1");
    lib_lexer_expect(lexer, "->");
    const char *outer = lib_lexer_name(lexer), *inner = lib_lexer_name(lexer);
    int mode = -1;
    for (int m = 0; m < 4; m++)
        if (lib_lexer_accept(lexer, split_modes[m])) mode = m;
    if (mode < 0) tir_schedule_raise(state, "the tail must be said: mask, overlap, peel or balanced");
    const bool full = mode == TIR_TAIL_MASK && lib_lexer_accept(lexer, "full");
    tir_axis_node whole = plan->nodes.data[node];
    if (whole.kind != TIR_SERIAL || whole.parallel)
        tir_schedule_raise(state, "axis %s is already %s", axis,
                           whole.parallel ? "par" : tir_loop_kind_names[whole.kind]);
    if (mode == TIR_TAIL_OVERLAP && whole.reduce)
        tir_schedule_raise(state, "overlap would count points of a reduction twice");
    tir_axis_node part = {.parent = node,
                          .outer = -1,
                          .inner = -1,
                          .fused = -1,
                          .slow = -1,
                          .fast = -1,
                          .axis = whole.axis,
                          .reduce = whole.reduce};
    part.name = outer;
    part.clip = whole.clip; /* continues on the tiles */
    part.skip = whole.skip;
    int outer_node = add_node(state, stage, part);
    part.name = inner;
    part.clip = part.skip = false;
    int inner_node = add_node(state, stage, part);
    tir_axis_node *split = &plan->nodes.data[node];
    split->outer = outer_node;
    split->inner = inner_node;
    split->factor = factor;
    split->mode = (tir_split_mode)mode;
    split->full = full;
    split->clip = split->skip = false;
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (plan->order.data[i] == node) {
            lib_vec_push(state->arena, &plan->order, 0);
            memmove(&plan->order.data[i + 2], &plan->order.data[i + 1], (plan->order.count - i - 2) * sizeof(int));
            plan->order.data[i] = outer_node;
            plan->order.data[i + 1] = inner_node;
            break;
        }
}

/* Fuses two space axes that are adjacent in the order into one loop. Only unsplit axes: the fused node may be split. */
static void apply_fuse(tir_schedule_state *state, lib_lexer *lexer) {
    const char *slow_name, *fast_name;
    int stage = tir_read_dotted(state, lexer, &slow_name);
    int slow = find_leaf(state, stage, slow_name);
    if (tir_read_dotted(state, lexer, &fast_name) != stage)
        tir_schedule_raise(state, "both axes must belong to one stage");
    int fast = find_leaf(state, stage, fast_name);
    lib_lexer_expect(lexer, "->");
    tir_stage_plan *plan = &state->plan[stage];
    const tir_axis_node *a = &plan->nodes.data[slow], *b = &plan->nodes.data[fast];
    if (a->parent >= 0 || b->parent >= 0 || a->reduce || b->reduce)
        tir_schedule_raise(state, "only whole space axes can be fused");
    if (a->parallel || b->parallel || a->kind != TIR_SERIAL || b->kind != TIR_SERIAL)
        tir_schedule_raise(state, "an axis is already par, vec or unroll");
    if (state->region->stages.data[stage].kind == TIR_SCATTER)
        tir_schedule_raise(state, "a scatter's updates do not run along all of its axes");
    tir_axis_node both = {.name = lib_lexer_name(lexer),
                          .parent = -1,
                          .outer = -1,
                          .inner = -1,
                          .fused = -1,
                          .slow = slow,
                          .fast = fast,
                          .axis = b->axis};
    uint32_t at = 0;
    while (at < plan->order.count && plan->order.data[at] != slow) at++;
    if (at + 1 >= plan->order.count || plan->order.data[at + 1] != fast)
        tir_schedule_raise(state, "axis %s does not follow %s in the order", fast_name, slow_name);
    int node = add_node(state, stage, both);
    plan->nodes.data[slow].fused = plan->nodes.data[fast].fused = node;
    plan->order.data[at] = node;
    memmove(&plan->order.data[at + 1], &plan->order.data[at + 2], (plan->order.count - at - 2) * sizeof(int));
    plan->order.count--;
}

static void apply_order(tir_schedule_state *state, lib_lexer *lexer) {
    int stage = tir_find_stage(state, lib_lexer_name(lexer));
    lib_lexer_expect(lexer, ":");
    tir_stage_plan *plan = &state->plan[stage];
    uint32_t count = 0;
    bool *seen = LIB_NEW_ARRAY(state->arena, bool, plan->nodes.count + 1);
    int *order = LIB_NEW_ARRAY(state->arena, int, plan->order.count + 1);
    while (lexer->kind == LIB_NAME) {
        const char *name = lib_lexer_name(lexer);
        int node = find_leaf(state, stage, name);
        if (seen[node]) tir_schedule_raise(state, "axis %s is named twice", name);
        seen[node] = true;
        order[count++] = node;
    }
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (!seen[plan->order.data[i]])
            tir_schedule_raise(state, "axis %s is missing: order names all loops of the stage",
                               plan->nodes.data[plan->order.data[i]].name);
    for (uint32_t i = 0; i < count; i++) plan->order.data[i] = order[i];
}

static bool attached_inside(const tir_schedule_state *state, int stage, int ancestor) {
    for (int s = stage; s >= 0; s = state->plan[s].at_stage)
        if (s == ancestor) return true;
    return false;
}

static int find_axis(const tir_schedule_state *state, int stage, const char *name) {
    const tir_stage *s = &state->region->stages.data[stage];
    for (int a = 0; a < s->space; a++)
        if (strcmp(s->axis[a].name, name) == 0) return a;
    tir_schedule_raise(state, "stage %s has no space axis %s", s->name, name);
}

static void apply_at(tir_schedule_state *state, lib_lexer *lexer) {
    int stage = tir_find_stage(state, lib_lexer_name(lexer));
    const char *axis;
    int owner = tir_read_dotted(state, lexer, &axis);
    tir_stage_plan *plan = &state->plan[stage];
    if (attached_inside(state, owner, stage)) tir_schedule_raise(state, "a stage cannot be attached inside itself");
    plan->at_stage = owner;
    plan->at_node = tir_find_node(state, owner, axis);
    plan->beside = false;
    for (int a = 0; a < TIR_MAX_AXES; a++) plan->by[a] = -1;
    if (lib_lexer_accept(lexer, "by"))
        while (lexer->kind == LIB_NAME) {
            int mine = find_axis(state, stage, lib_lexer_name(lexer));
            lib_lexer_expect(lexer, "=");
            plan->by[mine] = find_axis(state, owner, lib_lexer_name(lexer));
        }
}

static void apply_beside(tir_schedule_state *state, lib_lexer *lexer) {
    const int stage = tir_find_stage(state, lib_lexer_name(lexer));
    const char *axis;
    const int owner = tir_read_dotted(state, lexer, &axis);
    tir_stage_plan *plan = &state->plan[stage];
    if (attached_inside(state, owner, stage)) tir_schedule_raise(state, "a stage cannot run beside itself");
    plan->at_stage = owner;
    plan->at_node = find_leaf(state, owner, axis);
    tir_apply_beside(state, stage, owner, lexer);
}

/* Parses `pad 16` or `swizzle 128`, if it stands there. */
static void apply_padding(const tir_schedule_state *state, tir_stage_plan *plan, lib_lexer *lexer) {
    plan->pad = plan->swizzle = 0;
    const bool pad = lib_lexer_accept(lexer, "pad"), swizzle = !pad && lib_lexer_accept(lexer, "swizzle");
    if (!pad && !swizzle) return;
    if (plan->scope != TIR_SCOPE_SHARED) tir_schedule_raise(state, "only shared memory is padded or swizzled");
    int64_t bytes = lib_lexer_integer(lexer);
    if (pad && (bytes < 1 || bytes > 4096)) tir_schedule_raise(state, "pad by 1 to 4096 bytes");
    if (swizzle && bytes != 32 && bytes != 64 && bytes != 128)
        tir_schedule_raise(state, "rows that are swizzled have 32, 64 or 128 bytes");
    *(pad ? &plan->pad : &plan->swizzle) = (int)bytes;
}

static void apply_store(tir_schedule_state *state, lib_lexer *lexer) {
    int stage = tir_find_stage(state, lib_lexer_name(lexer));
    const char *scope = lib_lexer_name(lexer);
    tir_stage_plan *plan = &state->plan[stage];
    tir_scope s = TIR_SCOPE_WORKSPACE;
    plan->in_output = strcmp(scope, "output") == 0;
    plan->in_state = strcmp(scope, "state") == 0;
    if (plan->in_output || plan->in_state) return;
    while (s <= TIR_SCOPE_SHARED && strcmp(scope, tir_scope_names[s]) != 0) s++;
    if (s > TIR_SCOPE_SHARED)
        tir_schedule_raise(state, "%s is not a storage: reg, stack, local, workspace, shared, output or state", scope);
    plan->has_scope = true;
    plan->scope = s;
    apply_padding(state, plan, lexer);
}

/* the directive  thread F state 256 */
static void apply_state_threads(tir_schedule_state *state, lib_lexer *lexer) {
    const int stage = tir_find_stage(state, lib_lexer_name(lexer));
    const tir_stage *s = &state->region->stages.data[stage];
    lib_lexer_expect(lexer, "state");
    const int64_t threads = lib_lexer_integer(lexer);
    if (s->kind != TIR_FOLD) tir_schedule_raise(state, "%s is no fold", s->name);
    if (threads < 2 || threads > TIR_BLOCK_THREADS)
        tir_schedule_raise(state, "a state is set by 2 to %d threads", TIR_BLOCK_THREADS);
    bool own = false;
    for (int c = 0; c < s->count; c++) {
        const tir_tensor *tensor = &state->region->tensors.data[s->tensor[c]];
        int64_t points = threads, extent;
        own = own || tensor->rank > s->space;
        for (int d = s->space; d < tensor->rank; d++) {
            if (!tir_is_const(state->region->pool, tensor->extent[d], &extent))
                tir_schedule_raise(state, "the size of %s is no constant", tensor->name);
            if (extent > 0 && __builtin_mul_overflow(points, extent, &points))
                tir_schedule_raise(state, "%s has too many points", tensor->name);
        }
    }
    if (!own) tir_schedule_raise(state, "the state of %s has no axes of its own", s->name);
    state->plan[stage].own_threads = (int)threads;
}

/* Whether a node's extent is constant, possibly after versioning the enclosing loops. */
static bool has_trips(const tir_schedule_state *state, int stage, int node) {
    const tir_stage_plan *plan = &state->plan[stage];
    const tir_axis_node *n = &plan->nodes.data[node];
    int64_t trips;
    if (n->slow >= 0) return has_trips(state, stage, n->slow) && has_trips(state, stage, n->fast);
    if (n->parent < 0)
        return tir_is_const(state->region->pool, state->region->stages.data[stage].axis[n->axis].extent, &trips);
    const tir_axis_node *split = &plan->nodes.data[n->parent];
    bool fixed = split->inner == node && (split->mode == TIR_TAIL_MASK || split->mode == TIR_TAIL_OVERLAP);
    return fixed || has_trips(state, stage, n->parent);
}

/* `peel` of an axis whose extent varies: where trips must be constant, the partial tile cannot have just the remaining points:
 * it is as long as the others, and masked. */
static void keep_trips(tir_schedule_state *state, int stage, int node) {
    const int parent = state->plan[stage].nodes.data[node].parent;
    if (parent < 0 || has_trips(state, stage, node)) return;
    tir_axis_node *split = &state->plan[stage].nodes.data[parent];
    if (split->inner != node) {
        keep_trips(state, stage, parent);
    } else if (split->mode == TIR_TAIL_PEEL) {
        split->mode = TIR_TAIL_MASK;
        split->separate_tail = true;
    }
}

/* Raises unless the mark fits the axis of the stage. */
static void check_mark(const tir_schedule_state *state, tir_directive_kind kind, const tir_stage *s,
                       const tir_axis_node *node, const char *axis) {
    if (kind == TIR_D_PAR && node->reduce)
        tir_schedule_raise(state, "%s is a reduction axis: tasks would write the same points", axis);
    if (kind == TIR_D_VEC && node->reduce && !s->exact)
        tir_schedule_raise(state, "%s is a reduction axis of an inexact reduction: rfactor it into lanes first", axis);
    if (kind == TIR_D_THREAD && node->reduce)
        tir_schedule_raise(state, "%s is a reduction axis: threads would update the same points; rfactor it first",
                           axis);
    if (kind == TIR_D_CLIP && !node->reduce && s->kind != TIR_MAP)
        tir_schedule_raise(state, "only reduction axes have a predicate to clip by, and only maps guards");
}

static void apply_mark(tir_schedule_state *state, tir_directive_kind kind, lib_lexer *lexer) {
    if (kind == TIR_D_THREAD && lexer->kind == LIB_NAME && !strchr(lexer->text, '.')) {
        apply_state_threads(state, lexer);
        return;
    }
    if (lexer->kind != LIB_NAME) tir_schedule_raise(state, "expected stage.axis");
    while (lexer->kind == LIB_NAME) {
        const char *axis;
        int stage = tir_read_dotted(state, lexer, &axis);
        const tir_stage *s = &state->region->stages.data[stage];
        tir_axis_node *node = &state->plan[stage].nodes.data[find_leaf(state, stage, axis)];
        check_mark(state, kind, s, node, axis);
        if (kind == TIR_D_CLIP)
            node->clip = true;
        else if (kind == TIR_D_PAR)
            node->parallel = true;
        else
            node->kind = kind == TIR_D_VEC ? TIR_VEC : kind == TIR_D_THREAD ? TIR_THREAD : TIR_UNROLL;
        if (node->kind == TIR_VEC || node->kind == TIR_UNROLL) keep_trips(state, stage, find_leaf(state, stage, axis));
        if (kind != TIR_D_THREAD || !lib_lexer_accept(lexer, "alike")) continue;
        const int64_t threads = lib_lexer_integer(lexer);
        if (threads < 2 || threads > TIR_WARP) tir_schedule_raise(state, "2 to %d threads can be alike", TIR_WARP);
        node->alike = (int)threads;
    }
}

/* partial C.k 256 : each 256 iterations of loop k make a result of their own. */
static void apply_partial(tir_schedule_state *state, lib_lexer *lexer) {
    const char *axis;
    const int stage = tir_read_dotted(state, lexer, &axis);
    const tir_stage *s = &state->region->stages.data[stage];
    tir_axis_node *node = &state->plan[stage].nodes.data[find_leaf(state, stage, axis)];
    if (!node->reduce || s->kind != TIR_REDUCE) tir_schedule_raise(state, "%s is not a reduction axis", axis);
    if (!s->merge[0]) tir_schedule_raise(state, "%s cannot be combined from parts", s->name);
    node->partial = lib_lexer_integer(lexer);
    if (node->partial < 1 || node->partial > INT32_MAX)
        tir_schedule_raise(state, "a number of iterations of at least 1 was expected");
}

/* skip O.kh : bounds of a reduction's loop by the points that count. */
static void apply_skip(tir_schedule_state *state, lib_lexer *lexer) {
    const char *axis;
    const int stage = tir_read_dotted(state, lexer, &axis);
    tir_axis_node *node = &state->plan[stage].nodes.data[find_leaf(state, stage, axis)];
    const char *name = state->region->stages.data[stage].name;
    const tir_axis_node *split = node->parent < 0 ? NULL : &state->plan[stage].nodes.data[node->parent];
    if (!node->reduce) tir_schedule_raise(state, "%s is not a reduction axis", axis);
    if (node->kind == TIR_UNROLL || (split && (split->parent >= 0 || split->mode != TIR_TAIL_MASK ||
                                               &state->plan[stage].nodes.data[split->outer] != node)))
        tir_schedule_raise(state, "%s has bounds of its own: skip takes a whole axis, or the tiles of one (mask)",
                           axis);
    state->plan[stage].counts = tir_skip_condition(state->region, stage);
    if (!state->plan[stage].counts)
        tir_schedule_raise(state, "no condition on positions alone makes points of %s add 0, or its results unused",
                           name);
    node->skip = true;
}

/* prefetch w at C.k k+1 L2 : in loop k of C, fetch what its next iteration reads of w; with D.jo+1, what an iteration of an enclosing
 * loop reads; shared: each iteration of the loops inside that one fetches a part of it; carry: beyond the loop's end, what the next iteration of
 * the loop around it reads. If the reads are indexed by loaded values, these are loaded ahead, too.
 * prefetch y at C.k D.jo tile : in the iterations of loop k, fetch the lines that the iteration of D's loop loads or stores of y. */
static void apply_prefetch(tir_schedule_state *state, lib_lexer *lexer) {
    uint32_t tensor = tir_find_tensor(state, lib_lexer_name(lexer));
    lib_lexer_expect(lexer, "at");
    const char *axis;
    int stage = tir_read_dotted(state, lexer, &axis), moved_stage = stage;
    char *moved = lib_lexer_name(lexer), *dot = strrchr(moved, '.');
    if (dot) {
        *dot = 0;
        moved_stage = tir_find_stage(state, moved);
        moved = dot + 1;
    }
    tir_prefetch prefetch = {.tensor = tensor,
                             .node = find_leaf(state, stage, axis),
                             .moved_stage = moved_stage,
                             .moved = find_leaf(state, moved_stage, moved),
                             .tile = lib_lexer_accept(lexer, "tile")};
    if (prefetch.tile) {
        prefetch.level = 1;
        lib_vec_push(state->arena, &state->plan[stage].prefetches, prefetch);
        return;
    }
    lib_lexer_expect(lexer, "+");
    prefetch.ahead = lib_lexer_integer(lexer);
    const char *level = lib_lexer_name(lexer);
    if (level[0] != 'L' || level[1] < '1' || level[1] > '3' || level[2])
        tir_schedule_raise(state, "%s is not a cache level: L1, L2 or L3", level);
    prefetch.level = level[1] - '0';
    prefetch.shared = lib_lexer_accept(lexer, "shared");
    prefetch.carry = lib_lexer_accept(lexer, "carry");
    lib_vec_push(state->arena, &state->plan[stage].prefetches, prefetch);
}

static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return true;
    return false;
}

static bool all_in_unit(const tir_stage_plan *plan, int node) {
    const tir_axis_node *n = &plan->nodes.data[node];
    if (n->slow >= 0 || n->fused >= 0) return false;
    return n->outer < 0 ? n->unit : all_in_unit(plan, n->outer) && all_in_unit(plan, n->inner);
}

/* unit C.il,ih,jl,je,k NAME : a collective statement. Axes in the order of the unit's variables; each is a node all of whose loops are
 * named. */
static void apply_collective(tir_schedule_state *state, int stage, const int *leaf, int count) {
    tir_stage_plan *plan = &state->plan[stage];
    int axis[TIR_UNIT_VARS], axes = 0;
    for (int i = 0; i < count; i++) plan->nodes.data[leaf[i]].unit = true;
    for (int i = 0; i < count; i++) {
        int node = leaf[i], a = 0, above;
        while (a < axes && axis[a] != plan->nodes.data[node].axis) a++;
        if (a == TIR_UNIT_VARS) tir_schedule_raise(state, "%s has %d axes", plan->unit->name, a);
        axis[a] = plan->nodes.data[node].axis;
        while ((above = plan->nodes.data[node].parent) >= 0 && all_in_unit(plan, above)) node = above;
        if (a < axes && plan->unit_root[a] != node)
            tir_schedule_raise(state, "loops of axis %s that %s takes are no whole part of it",
                               state->region->stages.data[stage].axis[axis[a]].name, plan->unit->name);
        plan->unit_root[a] = node;
        if (a == axes) axes++;
        if (plan->nodes.data[node].reduce != (a == TIR_UNIT_VARS - 1))
            tir_schedule_raise(state, "%s takes loops of rows, of columns and of the reduction, in this order",
                               plan->unit->name);
    }
    if (axes != TIR_UNIT_VARS)
        tir_schedule_raise(state, "%s takes loops of %d axes: of rows, of columns and of the reduction",
                           plan->unit->name, TIR_UNIT_VARS);
}

/* Parses `deviates assoc,ftz`, if it stands there; raises unless these are the unit's deviations. */
static void check_deviations(const tir_schedule_state *state, const tir_unit *unit, const char *name,
                             lib_lexer *lexer) {
    char given[128] = "";
    if (lib_lexer_accept(lexer, "deviates")) do {
            const char *word = lib_lexer_name(lexer);
            if (!has_word(unit->deviations, word)) tir_schedule_raise(state, "%s is no deviation of %s", word, name);
            if (strlen(given) + strlen(word) + 2 < sizeof given) strcat(strcat(given, given[0] ? "," : ""), word);
        } while (lib_lexer_accept(lexer, ","));
    char needed[128];
    snprintf(needed, sizeof needed, "%s", unit->deviations);
    for (char *word = needed, *end; *word; word = end) {
        end = word + strcspn(word, ",");
        if (*end) *end++ = 0;
        if (!has_word(given, word))
            tir_schedule_raise(state, "%s deviates from the sum of products: say so by `deviates %s`", name,
                               unit->deviations);
    }
}

/* unit C.ki NAME deviates assoc,ftz : the iterations of loop ki are one operator. */
static void apply_unit(tir_schedule_state *state, lib_lexer *lexer) {
    enum { LEAVES = 16 };
    const char *axis;
    int stage = tir_read_dotted(state, lexer, &axis), leaf[LEAVES], leaves = 1;
    int node = leaf[0] = find_leaf(state, stage, axis);
    while (lib_lexer_accept(lexer, ",")) {
        if (leaves == LEAVES) tir_schedule_raise(state, "more than %d loops", LEAVES);
        leaf[leaves++] = find_leaf(state, stage, lib_lexer_name(lexer));
    }
    tir_stage_plan *plan = &state->plan[stage];
    const char *name = lib_lexer_name(lexer);
    const tir_unit *unit = tir_unit_find(state->machine ? state->machine->units : NULL, name);
    if (!unit || unit->kind != TIR_MULTIPLY) tir_schedule_raise(state, "no unit is called %s", name);
    if (!tir_machine_has(state->machine, unit)) tir_schedule_raise(state, "the machine has no unit %s", name);
    check_deviations(state, unit, name, lexer);
    tir_expr left, right;
    if (!tir_unit_match(unit, state->region->pool, &state->region->stages.data[stage], &left, &right))
        tir_schedule_raise(state, "stage %s does not sum products of %s and %s in %s",
                           state->region->stages.data[stage].name, tir_dtype_name(unit->place[1].dtype),
                           tir_dtype_name(unit->place[2].dtype), tir_dtype_name(unit->place[0].dtype));
    plan->unit = unit;
    if (tir_unit_is_collective(unit)) {
        plan->unit_node = -1;
        apply_collective(state, stage, leaf, leaves);
        return;
    }
    if (leaves > 1) tir_schedule_raise(state, "%s takes one loop", name);
    if (!plan->nodes.data[node].reduce) tir_schedule_raise(state, "%s is not a reduction axis", axis);
    plan->unit_node = node;
}

static void apply_pipeline(tir_schedule_state *state, lib_lexer *lexer) {
    const char *axis;
    int stage = tir_read_dotted(state, lexer, &axis);
    tir_apply_pipeline(state, find_leaf(state, stage, axis), stage, lexer);
}

static void apply_loop(tir_schedule_state *state, tir_directive_kind kind, lib_lexer *lexer) {
    switch (kind) {
    case TIR_D_SPLIT: apply_split(state, lexer); break;
    case TIR_D_FUSE: apply_fuse(state, lexer); break;
    case TIR_D_ORDER: apply_order(state, lexer); break;
    case TIR_D_AT: apply_at(state, lexer); break;
    case TIR_D_BESIDE: apply_beside(state, lexer); break;
    case TIR_D_STORE: apply_store(state, lexer); break;
    case TIR_D_PREFETCH: apply_prefetch(state, lexer); break;
    case TIR_D_NT: state->plan[tir_find_stage(state, lib_lexer_name(lexer))].non_temporal = true; break;
    case TIR_D_UNIT: apply_unit(state, lexer); break;
    case TIR_D_PARTIAL: apply_partial(state, lexer); break;
    case TIR_D_SKIP: apply_skip(state, lexer); break;
    case TIR_D_PIPELINE: apply_pipeline(state, lexer); break;
    default: apply_mark(state, kind, lexer); break;
    }
}

/* ---- state as text, after each line */

static void print_state(lib_text *text, const tir_schedule_state *state) {
    for (uint32_t s = 0; s < state->region->stages.count; s++) {
        const tir_stage *stage = &state->region->stages.data[s];
        if (stage->removed) continue;
        const tir_stage_plan *plan = &state->plan[s];
        lib_text_format(text, "  %s:", stage->name);
        for (uint32_t i = 0; i < plan->order.count; i++) {
            const tir_axis_node *node = &plan->nodes.data[plan->order.data[i]];
            lib_text_format(text, " [%s%s%s%s%s%s]", node->name, node->reduce ? " reduce" : "",
                            node->kind == TIR_SERIAL ? "" : " ", tir_loop_kind_names[node->kind],
                            node->parallel ? " par" : "",
                            node->clip   ? " clip"
                            : node->skip ? " skip"
                                         : "");
            if (node->partial) lib_text_format(text, "/%lld", (long long)node->partial);
        }
        if (plan->at_stage >= 0)
            lib_text_format(text, " at %s.%s", state->region->stages.data[plan->at_stage].name,
                            state->plan[plan->at_stage].nodes.data[plan->at_node].name);
        if (plan->has_scope) lib_text_format(text, " in %s", tir_scope_names[plan->scope]);
        if (plan->in_output) lib_text_add(text, " in output");
        lib_text_add(text, "\n");
    }
}

static void report_step(const tir_schedule_state *state, const tir_lower_options *options, bool rewrite) {
    if (!options || !options->step) return;
    lib_text text;
    lib_text_init(&text, state->arena);
    if (rewrite)
        tir_region_print(&text, state->region);
    else
        print_state(&text, state);
    options->step(options->step_user, state->line, text.data ? text.data : "");
}

/* ---- the program */

/* Does the line begin a section, as `name:`? Raises if no section has this name. */
static bool begins_section(const tir_schedule_state *state, const char *name, lib_lexer *lexer) {
    if (!lib_lexer_accept(lexer, ":") || lexer->kind != LIB_END) return false;
    if (strcmp(name, "loops") == 0 || strcmp(name, "rewrite") == 0) return true;
    tir_schedule_raise(state, "sections are called rewrite: and loops:");
}

/* The directive's row in the table. */
static int find_directive(const tir_schedule_state *state, const char *name) {
    int row = 0;
    while (row < directive_count && strcmp(directives[row].name, name) != 0) row++;
    if (row < directive_count) return row;
    lib_text known;
    lib_text_init(&known, state->arena);
    for (int i = 0; i < directive_count; i++) lib_text_format(&known, " %s", directives[i].name);
    lib_nearest nearest = lib_nearest_to(name);
    lib_nearest_try_list(&nearest, known.data);
    tir_schedule_raise(state, "no directive is called %s; there are%s%s", name, known.data, lib_nearest_hint(&nearest));
}

static void apply_line(tir_schedule_state *state, bool *in_loops, bool rewrite_only, const tir_lower_options *options) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, state->arena, state->number ? name_line(state) : "schedule", state->line,
                   strlen(state->line));
    lexer.dotted_names = true;
    lib_lexer_next(&lexer);
    if (lexer.kind == LIB_END) return;
    const char *name = lib_lexer_name(&lexer);
    if (begins_section(state, name, &lexer)) return;
    const int row = find_directive(state, name);
    if (directives[row].rewrite && *in_loops)
        tir_schedule_raise(state, "a rewrite directive cannot follow loop directives");
    if (!directives[row].rewrite && !*in_loops) {
        *in_loops = true;
        if (!rewrite_only) init_plan(state);
    }
    if (directives[row].rewrite)
        tir_apply_rewrite(state, directives[row].kind, &lexer);
    else if (!rewrite_only)
        apply_loop(state, directives[row].kind, &lexer);
    else
        return;
    if (lexer.kind != LIB_END) tir_schedule_raise(state, "%s is not expected here", lexer.text);
    if (directives[row].rewrite && options && options->verify_steps)
        tir_region_verify(state->arena->scope, state->region);
    report_step(state, options, directives[row].rewrite);
}

/* Raises unless the fold's sequential loops are in order; attaches its steps to the innermost of them, unless they are attached already. */
static void check_fold(tir_schedule_state *state, int fold) {
    tir_stage_plan *plan = &state->plan[fold];
    int innermost = -1, last = -1;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        int node = plan->order.data[i];
        if (!plan->nodes.data[node].reduce) continue;
        if (node < last) /* parts are numbered outer first */
            tir_schedule_raise(state, "loop %s stands inside of %s: a fold's axis runs in order",
                               plan->nodes.data[last].name, plan->nodes.data[node].name);
        innermost = last = node;
    }
    for (uint32_t s = 0; s < state->region->stages.count; s++) {
        const tir_stage *step = &state->region->stages.data[s];
        if (step->removed || step->fold != fold || attached_inside(state, fold, (int)s)) continue;
        if (state->plan[s].at_stage < 0) {
            state->plan[s].at_stage = fold;
            state->plan[s].at_node = innermost;
        }
    }
}

static void check_step(tir_schedule_state *state, int step, int fold) {
    if (attached_inside(state, state->plan[fold].at_stage, step))
        tir_schedule_raise(state, "fold %s is attached inside its own step %s", state->region->stages.data[fold].name,
                           state->region->stages.data[step].name);
    int at = step;
    while (at >= 0 && state->plan[at].at_stage != fold) at = state->plan[at].at_stage;
    bool inside = at >= 0;
    const tir_stage_plan *plan = &state->plan[fold];
    for (uint32_t i = plan->order.count; inside && i-- > 0 && plan->order.data[i] != state->plan[at].at_node;)
        inside = !plan->nodes.data[plan->order.data[i]].reduce;
    if (!inside)
        tir_schedule_raise(state, "%s is a step of %s: it runs inside of that fold's loops",
                           state->region->stages.data[step].name, state->region->stages.data[fold].name);
}

/* Overlapping tiles compute points twice: allowed only if one task runs them in sequence, and if computing a point does not read its old
 * value. */
static void check_overlap(tir_schedule_state *state, int s) {
    tir_stage_plan *plan = &state->plan[s];
    const tir_stage *stage = &state->region->stages.data[s];
    bool reducing = false;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        int node = plan->order.data[i];
        const tir_axis_node *leaf = &plan->nodes.data[node];
        reducing = reducing || leaf->reduce;
        for (const tir_axis_node *n = leaf; n->parent >= 0; node = n->parent, n = &plan->nodes.data[n->parent]) {
            const tir_axis_node *split = &plan->nodes.data[n->parent];
            if (split->mode != TIR_TAIL_OVERLAP || split->outer != node) continue;
            if (plan->at_stage >= 0)
                tir_schedule_raise(state, "overlap of %s: only roots can compute points twice", split->name);
            bool at_once = leaf->parallel || leaf->kind == TIR_VEC;
            for (uint32_t k = 0; k < i; k++) {
                const tir_axis_node *outside = &plan->nodes.data[plan->order.data[k]];
                at_once = at_once || (outside->axis == leaf->axis && (outside->parallel || outside->kind == TIR_VEC));
            }
            if (at_once)
                tir_schedule_raise(state, "overlap of %s: its tiles write the same points, so they cannot run at once",
                                   split->name);
            if (reducing || stage->kind == TIR_SCATTER || stage->kind == TIR_FOLD)
                tir_schedule_raise(state, "overlap of %s: points would be updated twice", split->name);
        }
    }
}

/* Raises unless the node that the stage is attached at is a loop. */
static void check_place(tir_schedule_state *state, const tir_stage_plan *plan) {
    const tir_stage *owner = &state->region->stages.data[plan->at_stage];
    const tir_axis_node *node = &state->plan[plan->at_stage].nodes.data[plan->at_node];
    if (node->outer >= 0)
        tir_schedule_raise(state, "attached at axis %s, which is split: attach at one of its parts", node->name);
    if (node->fused >= 0) tir_schedule_raise(state, "attached at axis %s, which is fused into another", node->name);
    if (owner->kind == TIR_SCATTER && !node->reduce && owner->index[node->axis] != owner->axis[node->axis].var)
        tir_schedule_raise(state, "attached at axis %s: the updates of scatter %s do not run along it", node->name,
                           owner->name);
}

/* A stage's result cannot be read inside its own loops; steps read the old state. */
static void check_owners(tir_schedule_state *state, int s) {
    if (state->plan[s].beside) return; /* reads what its owner has computed: tir_check_beside_extents */
    for (int owner = state->plan[s].at_stage; owner >= 0; owner = state->plan[owner].at_stage) {
        const tir_stage *stage = &state->region->stages.data[owner];
        for (int c = 0; c < stage->count && owner != state->region->stages.data[s].fold; c++)
            if (tir_stage_reads(state->region, s, stage->tensor[c]))
                tir_schedule_raise(state, "it is attached inside the loops of %s, whose result it reads", stage->name);
    }
}

/* Raises if a stage is attached at this loop, which belongs to the unit of stage s. */
static void check_inside_unit(const tir_schedule_state *state, int s, int node) {
    for (uint32_t q = 0; q < state->region->stages.count; q++)
        if (!state->region->stages.data[q].removed && state->plan[q].at_stage == s && state->plan[q].at_node == node)
            tir_schedule_raise(state, "%s is attached inside unit %s", state->region->stages.data[q].name,
                               state->plan[s].unit->name);
}

/* A collective unit consumes whole loops, on registers, and these contain nothing else. */
static void check_collective(tir_schedule_state *state, int s) {
    const tir_stage_plan *plan = &state->plan[s];
    for (uint32_t n = 0; n < plan->nodes.count; n++) {
        const tir_axis_node *leaf = &plan->nodes.data[n];
        if (!leaf->unit) continue;
        if (leaf->outer >= 0 || leaf->fused >= 0)
            tir_schedule_raise(state, "axis %s is split: name one of its parts for unit %s", leaf->name,
                               plan->unit->name);
        if (leaf->clip || leaf->skip || leaf->parallel)
            tir_schedule_raise(state, "axis %s belongs to unit %s", leaf->name, plan->unit->name);
        check_inside_unit(state, s, (int)n);
    }
    if (state->region->stages.data[s].predicate)
        tir_schedule_raise(state, "%s is for reductions without a condition", plan->unit->name);
    if (plan->at_stage < 0 || (!plan->in_state && (!plan->has_scope || plan->scope != TIR_SCOPE_REG)))
        tir_schedule_raise(state, "%s sums in registers: `at` and `store %s reg`", plan->unit->name,
                           state->region->stages.data[s].name);
}

/* Raises unless the loop of the stage's unit is the innermost reduction, and no stage is attached inside it. */
static void check_unit(tir_schedule_state *state, int s) {
    const tir_stage_plan *plan = &state->plan[s];
    const tir_axis_node *leaf = &plan->nodes.data[plan->unit_node];
    bool inside = false;
    if (leaf->outer >= 0)
        tir_schedule_raise(state, "axis %s is split: name one of its parts for unit %s", leaf->name, plan->unit->name);
    if (leaf->clip || leaf->skip || leaf->kind != TIR_SERIAL)
        tir_schedule_raise(state, "axis %s belongs to unit %s", leaf->name, plan->unit->name);
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (inside && plan->nodes.data[plan->order.data[i]].reduce)
            tir_schedule_raise(state, "axis %s of unit %s must be the innermost reduction", leaf->name,
                               plan->unit->name);
        inside = inside || plan->order.data[i] == plan->unit_node;
    }
    check_inside_unit(state, s, plan->unit_node);
}

/* Raises unless threads of an `alike` loop are neighbours (it is the innermost thread loop) and write only registers. */
static void check_alike(const tir_schedule_state *state, int s) {
    const tir_stage_plan *plan = &state->plan[s];
    const char *alike = NULL;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        const tir_axis_node *node = &plan->nodes.data[plan->order.data[i]];
        if (alike && node->kind == TIR_THREAD)
            tir_schedule_raise(state, "threads of %s are alike: it must be the innermost thread loop", alike);
        if (node->alike) alike = node->name;
    }
    if (alike && (plan->at_stage < 0 || !plan->has_scope || plan->scope != TIR_SCOPE_REG))
        tir_schedule_raise(state, "threads of %s are alike: their values must lie in registers", alike);
}

/* Partial results are of one serial loop, and of a stage with storage of its own, which then holds them. */
static void check_partial(const tir_schedule_state *state, int s) {
    const tir_stage_plan *plan = &state->plan[s];
    const char *in_parts = NULL;
    for (uint32_t i = 0; i < plan->nodes.count; i++) {
        const tir_axis_node *leaf = &plan->nodes.data[i];
        if (!leaf->partial) continue;
        if (in_parts)
            tir_schedule_raise(state, "partial results of %s and of %s inside each other", in_parts, leaf->name);
        in_parts = leaf->name;
        if (leaf->outer >= 0 || leaf->fused >= 0 || leaf->kind != TIR_SERIAL || leaf->stages || leaf->unit ||
            (plan->unit && plan->unit_node == (int)i))
            tir_schedule_raise(state, "axis %s: partial results are of a serial loop", leaf->name);
    }
    if (in_parts && (plan->at_stage < 0 || plan->beside || plan->in_output || plan->in_state))
        tir_schedule_raise(state, "partial results of %s need storage: attach it (at)", in_parts);
}

/* A sort must be a root, and its line (the sorted axis and the reduction) takes no directives: one statement, with its own loops, sorts it. */
static void check_sort(tir_schedule_state *state, int s) {
    const tir_stage_plan *plan = &state->plan[s];
    const tir_stage *stage = &state->region->stages.data[s];
    if (plan->at_stage >= 0 || plan->has_scope) tir_schedule_raise(state, "a sort must be a root");
    for (uint32_t i = 0; i < plan->nodes.count; i++) {
        const tir_axis_node *node = &plan->nodes.data[i];
        if (node->kind != TIR_SERIAL)
            tir_schedule_raise(state, "axis %s: lines of a sort have no such loop", node->name);
        if (node->axis + 1 >= stage->space &&
            (node->parallel || node->parent >= 0 || node->outer >= 0 || node->fused >= 0 || node->slow >= 0))
            tir_schedule_raise(state, "axis %s: a line is sorted as a whole", node->name);
    }
    for (uint32_t q = 0; q < state->region->stages.count; q++)
        if (!state->region->stages.data[q].removed && state->plan[q].at_stage == s)
            tir_schedule_raise(state, "%s is attached inside of sort %s", state->region->stages.data[q].name,
                               stage->name);
}

/* Raises unless parallel loops are the outermost ones of a root. */
static void check_tasks(const tir_schedule_state *state, int s) {
    const tir_stage_plan *plan = &state->plan[s];
    bool outermost = true;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        const tir_axis_node *node = &plan->nodes.data[plan->order.data[i]];
        if (node->parallel && (plan->at_stage >= 0 || !outermost))
            tir_schedule_raise(state, "par axis %s: only the outermost loops of a root can be tasks", node->name);
        outermost = outermost && node->parallel;
    }
}

static void check_stage(tir_schedule_state *state, int s) {
    tir_stage_plan *plan = &state->plan[s];
    const tir_stage *stage = &state->region->stages.data[s];
    state->line = stage->name;
    if (stage->removed) return;
    if (stage->fold >= 0) check_step(state, s, stage->fold);
    if (plan->at_stage >= 0) check_place(state, plan);
    check_owners(state, s);
    if (plan->has_scope && plan->at_stage < 0 && stage->kind != TIR_FOLD && plan->scope != TIR_SCOPE_WORKSPACE)
        tir_schedule_raise(state, "store %s: a root lies in its own buffer; attach it first (at)",
                           tir_scope_names[plan->scope]);
    if (stage->kind == TIR_SORT) check_sort(state, s);
    if (plan->unit && tir_unit_is_collective(plan->unit)) check_collective(state, s);
    if (plan->unit && !tir_unit_is_collective(plan->unit)) check_unit(state, s);
    check_overlap(state, s);
    check_alike(state, s);
    check_partial(state, s);
    tir_check_pipelines(state, s);
    check_tasks(state, s);
    if (plan->beside) tir_check_beside(state, s);
}

static void check_plan(tir_schedule_state *state) {
    for (uint32_t s = 0; s < state->region->stages.count; s++)
        if (!state->region->stages.data[s].removed) state->plan[s].follower = tir_is_follower(state, (int)s);
    for (uint32_t s = 0; s < state->region->stages.count; s++)
        if (!state->region->stages.data[s].removed && state->region->stages.data[s].kind == TIR_FOLD)
            check_fold(state, (int)s);
    for (uint32_t s = 0; s < state->region->stages.count; s++) check_stage(state, (int)s);
    state->line = NULL;
}

void tir_schedule_apply(tir_schedule_state *state, lib_arena *arena, tir_region *region, const tir_schedule *schedule,
                        const tir_lower_options *options, bool rewrite_only) {
    *state = (tir_schedule_state){.region = region,
                                  .machine = options ? options->machine : NULL,
                                  .arena = arena,
                                  .number = schedule ? schedule->first_line : 0};
    bool in_loops = false;
    const char *at = schedule && schedule->text.data ? schedule->text.data : "";
    while (*at) {
        size_t length = strcspn(at, "\n;");
        char *line = lib_arena_take(arena, length + 1);
        memcpy(line, at, length);
        line += strspn(line, " \t");
        char *comment = strchr(line, '#');
        if (comment) *comment = 0;
        state->line = line;
        apply_line(state, &in_loops, rewrite_only, options);
        state->number += state->number && at[length] == '\n';
        at += length + (at[length] != 0);
    }
    state->line = NULL;
    state->number = 0;
    if (rewrite_only) return;
    if (!in_loops) init_plan(state);
    check_plan(state);
}

void tir_schedule_rewrite(tir_region *region, const tir_schedule *schedule, const tir_lower_options *options) {
    tir_schedule_state state;
    tir_schedule_apply(&state, region->arena, region, schedule, options, true);
}

tir_region *tir_schedule_try(const tir_region *region, const tir_schedule *schedule) {
    lib_arena *arena = region->arena, *nodes = region->pool->arena;
    lib_scope *const outer = arena->scope, *const outer_nodes = nodes->scope;
    tir_region *copy = tir_region_copy(arena, region), *volatile result = NULL;
    lib_scope inner;
    arena->scope = nodes->scope = &inner;
    if (LIB_ENTER(&inner)) {
        tir_schedule_rewrite(copy, schedule, NULL);
        result = copy;
    }
    arena->scope = outer;
    nodes->scope = outer_nodes;
    if (!result && inner.error.status != DLC_INVALID_ARGUMENT) lib_raise_error(outer, &inner.error);
    return result;
}
