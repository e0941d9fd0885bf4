/* Maps without attached producers: only the order of their memory accesses is to be chosen. Contiguous maps use vectors along the last
 * axis, or along the last one of a result whose layout permutes its dimensions; maps that read along one axis and write along another use
 * tiles that are transposed in registers; copies into panels use vectors along the panel. One kind has a producer: rows from which a table selects elements (resize) are computed in scratch, for a block of
 * rows. Tasks have some thousand points; results that exceed the caches use non-temporal stores. */
#include "targets/cpu/rules.h"

enum {
    BLOCK_VECTORS =
        4,           /* of a contiguous map, computed together; twice that for long values: dependence chains overlap */
    LONG_VALUE = 24, /* operations */
    TASK_POINTS = RULES_TASK_POINTS / 4, /* of a transposition, at least */
    TILE_ROWS = 16,                      /* most rows of a transposed tile: the emitter transposes so many at once */
    CHEAP_STRIDE = 8 /* stride in elements up to which strided loads are cheap: a vector or two, and a shuffle */
};

/* Rounded up; n -1, varying: -1. */
static int64_t up(int64_t n, int64_t d) {
    return n < 0 ? -1 : (n + d - 1) / d;
}

void rules_add_loop(rules_nest *nest, const char *name, int64_t extent, bool whole) {
    nest->loop[nest->count++] = (rules_loop){name, extent, whole};
}

void rules_vectorise(rules *r, const char *stage, const char *loop, int64_t extent, int64_t block, const char *outer,
                     const char *inner) {
    if (extent < 0 || extent > block) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> %s %s peel", stage, loop, (long long)block, outer, inner);
        loop = inner;
    }
    tir_schedule_add(r->schedule, "vec %s.%s", stage, loop);
}

/* A share of the extent for each task: a divisor in least .. 2*least, so that no last task is smaller and needs code of its own; else
 * `least`. */
static int64_t even_share(int64_t extent, int64_t least) {
    for (int64_t n = least; n <= 2 * least && n < extent; n++)
        if (extent % n == 0) return n;
    return least;
}

void rules_form_tasks(rules_nest *nest, int64_t points, int64_t least) {
    /* a loop that cannot be split: its iterations are tasks if those of the loops around it are fewer, and if they are not much too small */
    enum { TASKS = 16, SMALLER = 8 };
    rules *r = nest->r;
    const char *name = nest->stage->name;
    int inside = nest->count;
    int64_t each = points; /* points of one iteration of loop `inside` */
    while (inside > 0 && points > 0 && points < least) {
        int64_t extent = nest->loop[--inside].extent;
        each = points;
        points = extent < 0 ? -1 : points * extent;
    }
    int64_t tasks = 1; /* -1: unknown */
    for (int i = 0; i < inside; i++) {
        tir_schedule_add(r->schedule, "par %s.%s", name, nest->loop[i].name);
        tasks = tasks < 0 || nest->loop[i].extent < 0 || tasks >= TASKS ? -1 : tasks * nest->loop[i].extent;
    }
    if (inside == nest->count) return;
    rules_loop *edge = &nest->loop[inside];
    int64_t factor = each > 0 ? (least + each - 1) / each : 1;
    const bool few = tasks >= 0 && tasks < TASKS && factor <= SMALLER && edge->extent > factor;
    if (edge->extent < 0 ? edge->whole || factor <= 1 : edge->whole && few) {
        tir_schedule_add(r->schedule, "par %s.%s", name, edge->name);
    } else if (!edge->whole && factor > 0 && (edge->extent < 0 || edge->extent > factor)) {
        if (edge->extent > 0) factor = even_share(edge->extent, factor);
        tir_schedule_add(r->schedule, "split %s.%s %lld -> to ti peel", name, edge->name, (long long)factor);
        tir_schedule_add(r->schedule, "par %s.to", name);
        *edge = (rules_loop){"ti", factor, true};
    }
}

const char *rules_form_long_tasks(rules_nest *nest, const char *loop, int64_t extent, int64_t task) {
    tir_schedule *out = nest->r->schedule;
    const char *name = nest->stage->name;
    if (extent >= 0 && extent <= task) {
        rules_form_tasks(nest, extent, RULES_TASK_POINTS);
        return loop;
    }
    for (int i = 0; i < nest->count; i++) tir_schedule_add(out, "par %s.%s", name, nest->loop[i].name);
    tir_schedule_add(out, "split %s.%s %lld -> to ti peel", name, loop, (long long)task);
    tir_schedule_add(out, "par %s.to", name);
    return "ti";
}

/* The first of the axes up to `last` across which every access is contiguous; *extent: the points of all of them, -1: varying. */
static int first_straight(rules *r, int s, int last, int64_t *extent) {
    const tir_stage *stage = &r->region->stages.data[s];
    int first = last;
    *extent = rules_extent(r, &stage->axis[last]);
    while (first > 0 && *extent > 0 && last == stage->space - 1) {
        const int64_t n = rules_extent(r, &stage->axis[first - 1]);
        if (n < 0 || !rules_straight(r, s, first - 1, first)) break;
        *extent *= n;
        first--;
    }
    return first;
}

static int last_long_axis(rules *r, const tir_stage *stage) {
    for (int a = stage->space - 1; a >= 0; a--)
        if (rules_extent(r, &stage->axis[a]) != 1) return a;
    return -1;
}

/* Bytes of cache lines per element if neighbours along the innermost axis have this stride. */
static int64_t bytes_taken(const rules *r, const tir_tensor *tensor, int64_t stride) {
    int64_t size = (int64_t)lib_dtype_size(tensor->dtype), line = r->machine->line;
    if (stride == RULES_IRREGULAR || stride > line || stride < -line) return line;
    int64_t taken = size * (stride < 0 ? -stride : stride);
    return taken < size ? size : taken > line ? line : taken;
}

/* Bytes of the cache lines that a stage reads from arguments; each tensor counts once, and an axis that a load does not depend on counts
 * as one point. */
static int64_t bytes_read(rules *r, const tir_stage *stage) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, (int)(stage - r->region->stages.data), access, RULES_ACCESSES);
    int last = last_long_axis(r, stage);
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        bool known = tensor->stage >= 0;
        for (int k = 0; k < i; k++) known = known || access[k].tensor == access[i].tensor;
        int64_t bytes = known ? 0 : bytes_taken(r, tensor, last < 0 ? 1 : access[i].stride[last]), all;
        for (int a = 0; a < stage->space; a++) {
            int64_t extent = access[i].stride[a] ? rules_extent(r, &stage->axis[a]) : 1;
            if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return 0;
        }
        all = rules_bytes(r, tensor);
        if (__builtin_add_overflow(sum, bytes < all || all < 0 ? bytes : all, &sum)) return 0;
    }
    return sum;
}

/* If inputs and outputs together exceed L3, uses non-temporal stores: they avoid the read for ownership, and do not evict inputs that the
 * next run would read from L3. */
bool rules_store_past_caches(rules *r, const tir_stage *stage) {
    int64_t written = 0;
    for (int c = 0; c < stage->count; c++)
        written += (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[c]].dtype);
    for (int a = 0; a < stage->space; a++) {
        int64_t extent = rules_extent(r, &stage->axis[a]);
        if (extent < 0 || __builtin_mul_overflow(written, extent, &written)) return false;
    }
    const int64_t l3 = r->machine->l3; /* the share of L3 that a core may count on (machine.c) */
    if (written < l3 / 8) return false;
    /* A consumer finds a small result in L3. */
    const bool past = written >= l3 / 4 && (written >= l3 || bytes_read(r, stage) > l3 - written);
    if (!tir_choose_yes(r->schedule, stage->name, "past_caches", past)) return false;
    tir_schedule_add(r->schedule, "nt %s", stage->name);
    return true;
}

static bool has_large_stride(int64_t stride) {
    return stride == RULES_IRREGULAR || stride > CHEAP_STRIDE || stride < -CHEAP_STRIDE;
}

/* ---- packing */

/* The axis along which all sources of a map into panels are contiguous, while the panel runs across it; -1: none, or the stride is too
 * small to matter. */
static int read_across(rules *r, int s, int panel) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), axis = -1;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[panel] == 0) continue;
        if (count == RULES_ACCESSES || !has_large_stride(access[i].stride[panel])) return -1;
        const int contiguous = tir_contiguous_axis(r->region, stage, &access[i], panel);
        if (contiguous < 0 || (axis >= 0 && axis != contiguous)) return -1;
        axis = contiguous;
    }
    return axis >= 0 && rules_extent(r, &stage->axis[axis]) >= rules_lanes(r, s) / 2 ? axis : -1;
}

/* Are the points along the axis neighbours in all sources of a map into panels, and so few that the panel runs with a small stride? Then the
 * vectors of all of them are shuffled from the same cache lines. */
static bool shares_lines(rules *r, int s, int panel, int axis) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t extent = rules_extent(r, &stage->axis[axis]);
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    if (axis == panel || extent < 2 || extent > CHEAP_STRIDE || count == RULES_ACCESSES) return false;
    for (int i = 0; i < count; i++)
        if (access[i].stride[panel] != 0 && (access[i].stride[axis] != 1 || has_large_stride(access[i].stride[panel])))
            return false;
    return true;
}

/* Are vectors along the panel gathered, and is the last panel filled up with zeros? Masks of gathers are expensive: other panels get loops
 * without them. */
static bool gathers_under_masks(rules *r, int s, const tir_layout_part *panel) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int64_t extent = rules_extent(r, &stage->axis[panel->dim]);
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    bool gathers = false;
    for (int i = 0; i < count && i < RULES_ACCESSES; i++)
        gathers = gathers || (access[i].stride[panel->dim] != 0 && access[i].stride[panel->dim] != 1);
    return gathers && (extent < 0 || (extent > panel->modulus && extent % panel->modulus));
}

typedef struct panel_loops {
    rules *r;
    const tir_stage *stage;
    /* parts of the layout: the panel's columns; the steps of a dot-product unit inside, NULL: none */
    const tir_layout_part *panel, *step;
    /* axis along which vectors are read; -1: the panel's own */
    int across;
    int64_t lanes;
} panel_loops;

/* Writes the loops of a map that reads across the panel: as many neighbouring vectors as a vector has lanes are transposed in registers at
 * once. */
static void exchange_loops(const panel_loops *l, const char *order) {
    tir_schedule *out = l->r->schedule;
    const char *name = l->stage->name, *across = l->stage->axis[l->across].name;
    const char *rows = "vi", *outer = "";
    if (l->panel->modulus > l->lanes) {
        tir_schedule_add(out, "split %s.vi %lld -> ro ri mask", name, (long long)l->lanes);
        rows = "ri";
        outer = " ro";
    }
    bool many = rules_extent(l->r, &l->stage->axis[l->across]) > l->lanes;
    if (many) tir_schedule_add(out, "split %s.%s %lld -> a_o a_i peel", name, across, (long long)l->lanes);
    tir_schedule_add(out, "order %s:%s%s%s %s %s", name, order, many ? " a_o" : "", outer, rows, many ? "a_i" : across);
    tir_schedule_add(out, "unroll %s.%s", name, rows);
    tir_schedule_add(out, "vec %s.%s", name, many ? "a_i" : across);
}

/* Does the map store groups of a unit's steps after a plain axis, (.., c/4, h, w, c%4)? *first: the first axis that is contiguous with the
 * plain one; *extent: the points of these axes, -1: varying. */
static bool has_groups_of_steps(rules *r, int s, int *first, int64_t *extent) {
    enum { STEPS = 4 };
    const tir_stage *stage = &r->region->stages.data[s];
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    const int last = layout->count - 1, along = stage->space - 1;
    const tir_layout_part *step = last > 0 ? &layout->part[last] : NULL, *plain = step ? step - 1 : NULL;
    if (!step || step->divisor != 1 || step->modulus < 2 || step->modulus > STEPS) return false;
    if (plain->modulus || plain->divisor != 1 || plain->dim != along || step->dim == along) return false;
    for (int p = 0; p < last; p++)
        if (layout->part[p].modulus || (layout->part[p].divisor != 1 && layout->part[p].dim != step->dim)) return false;
    *first = first_straight(r, s, along, extent);
    return *first > step->dim || *extent >= 0;
}

/* Finds the panel that the map's result is stored in, and the steps of a dot-product unit inside it; false: there is no panel. */
static bool find_panel(panel_loops *l) {
    const tir_layout *layout = &l->r->region->tensors.data[l->stage->tensor[0]].layout;
    const tir_layout_part *last = layout->count ? &layout->part[layout->count - 1] : NULL;
    const bool steps = layout->count > 1 && last->modulus && last->modulus <= 4 && last[-1].modulus;
    l->step = steps ? last : NULL;
    l->panel = steps ? last - 1 : last;
    if (!l->panel || !l->panel->modulus || l->panel->divisor != 1) return false;
    return !steps || (l->step->divisor == 1 && l->step->dim != l->panel->dim);
}

/* Appends the loops outside of the panel, in memory order, to *order and to the nest, and to *parallel all but the innermost. False: the
 * layout has blocks of other axes, too. */
static bool outer_panel_loops(const panel_loops *l, rules_nest *nest, lib_text *order, lib_text *parallel) {
    const tir_layout *layout = &l->r->region->tensors.data[l->stage->tensor[0]].layout;
    const int count = layout->count - (l->step ? 2 : 1);
    for (int p = 0; p < count; p++) {
        const tir_layout_part *part = &layout->part[p];
        const bool panel = part->dim == l->panel->dim, outer = panel || (l->step && part->dim == l->step->dim);
        if (!outer && (part->modulus || part->divisor != 1)) return false;
        if (part->dim == l->across) continue;
        const char *loop = panel ? "vo" : outer ? "so" : l->stage->axis[part->dim].name;
        const int64_t points = rules_extent(l->r, &l->stage->axis[part->dim]);
        lib_text_format(order, " %s", loop);
        rules_add_loop(nest, loop, up(points, outer ? part->divisor : 1), outer);
        if (p == 0 || p < count - 1) lib_text_format(parallel, " %s.%s", l->stage->name, loop);
    }
    return true;
}

/* Writes the loops of a map whose vectors run along the panel. */
static void vector_loops(const panel_loops *l, int s, const char *order) {
    rules *r = l->r;
    const tir_layout *layout = &r->region->tensors.data[l->stage->tensor[0]].layout;
    const char *name = l->stage->name;
    const int inner = layout->count > 1 ? layout->part[layout->count - 2].dim : -1;
    tir_schedule_add(r->schedule, "order %s:%s%s vi", name, order, l->step ? " si" : "");
    tir_schedule_add(r->schedule, "vec %s.vi", name);
    if (l->step) {
        tir_schedule_add(r->schedule, "unroll %s.si", name);
        return;
    }
    if (gathers_under_masks(r, s, l->panel)) tir_schedule_add(r->schedule, "clip %s.vo", name);
    if (inner >= 0 && shares_lines(r, s, l->panel->dim, inner))
        tir_schedule_add(r->schedule, "unroll %s.%s", name, l->stage->axis[inner].name);
}

/* A map into panels: vectors run along the panel, or across it if memory is read that way. The few steps of a dot-product unit that may
 * be inside are unrolled: their stores are interleaved in registers. Loops are in memory order, and all but the innermost are tasks. */
bool rules_map_panels(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    panel_loops l = {.r = r, .stage = stage, .lanes = rules_lanes(r, s), .across = -1};
    int64_t extent;
    int first;
    if (!find_panel(&l) || has_groups_of_steps(r, s, &first, &extent)) return false;
    if (!l.step && l.panel->modulus % l.lanes == 0) l.across = read_across(r, s, l.panel->dim);
    rules_nest nest = {.r = r, .stage = stage};
    lib_text order, parallel;
    lib_text_init(&order, r->arena);
    lib_text_init(&parallel, r->arena);
    lib_text_add(&order, "");
    if (!outer_panel_loops(&l, &nest, &order, &parallel)) return false;
    tir_schedule_add(r->schedule, "split %s.%s %d -> vo vi mask", stage->name, stage->axis[l.panel->dim].name,
                     l.panel->modulus);
    if (l.step)
        tir_schedule_add(r->schedule, "split %s.%s %d -> so si mask", stage->name, stage->axis[l.step->dim].name,
                         l.step->modulus);
    if (l.across >= 0) {
        if (parallel.length) tir_schedule_add(r->schedule, "par%s", parallel.data);
        exchange_loops(&l, order.data);
        return true;
    }
    vector_loops(&l, s, order.data);
    rules_form_tasks(&nest, l.panel->modulus * (l.step ? l.step->modulus : 1), RULES_TASK_POINTS / 4);
    return true;
}

/* A map into short groups of a unit's steps after a plain axis: vectors run along that axis, fused with axes that continue it, and the
 * steps are unrolled: their stores are interleaved in registers. */
bool rules_map_steps(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    const char *name = stage->name;
    const int last = layout->count - 1, along = stage->space - 1;
    int64_t extent, block = rules_lanes(r, s);
    int first;
    if (!has_groups_of_steps(r, s, &first, &extent)) return false;
    const tir_layout_part *step = &layout->part[last];
    const char *loop = tir_fuse_axes(r->schedule, stage, first, along);
    tir_schedule_add(r->schedule, "split %s.%s %d -> so si mask", name, stage->axis[step->dim].name, step->modulus);
    rules_nest nest = {.r = r, .stage = stage};
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int p = 0; p < last; p++) {
        int dim = layout->part[p].dim;
        if (dim >= first && dim != step->dim) continue;
        bool outer = dim == step->dim;
        int64_t whole = rules_extent(r, &stage->axis[dim]);
        if (outer && whole >= 0) whole = (whole + step->modulus - 1) / step->modulus;
        const char *axis = outer ? "so" : stage->axis[dim].name;
        rules_add_loop(&nest, axis, whole, outer);
        lib_text_format(&order, " %s", axis);
    }
    if (extent < 0 || extent > block) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> vo vi peel", name, loop, (long long)block);
        rules_add_loop(&nest, "vo", extent < 0 ? -1 : (extent + block - 1) / block, true);
        lib_text_add(&order, " vo");
        loop = "vi";
        extent = extent < 0 ? -1 : block;
    }
    tir_schedule_add(r->schedule, "order %s:%s si %s", name, order.data ? order.data : "", loop);
    tir_schedule_add(r->schedule, "vec %s.%s", name, loop);
    tir_schedule_add(r->schedule, "unroll %s.si", name);
    rules_form_tasks(&nest, extent < 0 ? -1 : extent * step->modulus, RULES_TASK_POINTS);
    return true;
}

/* ---- choices by position */

/* Search for choices by the position along axis `var`. A choice between a value and a constant does not count: masked loads implement
 * it. */
typedef struct choice_search {
    tir_expr var;
    /* choices between a value and a constant count, too */
    bool constants;
    bool found;
} choice_search;

static tir_expr meet_choice(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    choice_search *search = user;
    const tir_node node = *tir_get(pool, e);
    bool load = node.op == TIR_LOAD && node.guarded;
    if (!load && node.op != TIR_SELECT) return rebuilt;
    tir_expr condition = tir_operand(pool, e, load ? (int)node.count - 2 : 0);
    for (int i = load ? 0 : 1; i < 3; i++) { /* a load may itself be the selected value */
        tir_expr value = i ? tir_operand(pool, e, load ? (int)node.count - 1 : i) : e;
        if (tir_op_of(pool, value) == TIR_CONST && !search->constants) return rebuilt;
    }
    if (tir_uses(pool, condition, search->var)) search->found = true;
    return rebuilt;
}

bool rules_selects(rules *r, const tir_stage *stage, int axis, bool constants) {
    choice_search search = {stage->axis[axis].var, constants, false};
    for (int c = 0; c < stage->count; c++) tir_rewrite(r->region->pool, stage->value[c], meet_choice, &search);
    return search.found;
}

/* Cuts loops (`clip`) of the axes that are not in `whole` where a choice by position changes, so that no part contains the choice. Along
 * axis `masks` (-1: none), choices between a value and a constant are cut, too: around a short loop, masks would take most of the time. */
static void clip_choices(rules *r, const tir_stage *stage, uint32_t whole, int masks) {
    for (int a = 0; a < stage->space; a++)
        if (!(whole >> a & 1) && rules_selects(r, stage, a, a == masks))
            tir_schedule_add(r->schedule, "clip %s.%s", stage->name, stage->axis[a].name);
}

/* ---- transposition */

typedef struct transposition {
    /* the axes along which memory is contiguous for loads, and for the store */
    int read, write;
    int64_t lanes, rows;
    /* the last tile along the read axis overlaps the one before it */
    bool overlap;
} transposition;

/* Sets the lanes of the tile's vectors: so many that a short axis fills them, and of bytes no more than 16, of which wider vectors do not
 * transpose more at a time. Where masks are expensive, the last tile overlaps the one before it if many lanes would be masked off. */
static void choose_lanes(const rules *r, transposition *t, int64_t along, int64_t size, bool pure) {
    const int64_t least = size == 1 ? 8 : 16 / size;
    if (along < 0) return;
    if (r->machine->masked) {
        while (t->lanes > least && along <= t->lanes / 2) t->lanes /= 2;
        return;
    }
    while (t->lanes > least && (along < t->lanes || (size == 1 && t->lanes > 16))) t->lanes /= 2;
    const int64_t rest = along % t->lanes;
    t->overlap = pure && along > t->lanes && rest * (size == 1 ? 3 : 2) > t->lanes;
}

/* The last axis of several points along which results are contiguous; -1: none. */
static int written_axis(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int write = -1;
    for (int a = 0; a < stage->space; a++)
        if (rules_extent(r, &stage->axis[a]) != 1 && rules_store_stride(r, s, a) == 1) write = a;
    return write;
}

/* A map that reads short rows across, each of its vectors from `stride` vectors, reads all of them again for each point of a row: is it better to
 * transpose tiles? (Zen 5: rows of 4 to 8, 0.15 to 0.75 of the time, with AVX2, too; of 3, from beyond L2, 0.6 to 0.9, within 1.1 to 1.6, and 1.1
 * to 1.8 with AVX2, which masks the fourth lane.) */
static bool is_read_again(rules *r, const tir_stage *stage, int64_t stride) {
    enum { ROW = 4, ROW_FROM_BEYOND_L2 = 3 };
    return stride >= ROW ||
           (stride == ROW_FROM_BEYOND_L2 && r->machine->masked && bytes_read(r, stage) > r->machine->l2 / 2);
}

/* Sets t->read to the axis along which loads are contiguous that are not so along the stores' axis. False: there is no
 * common one, or these loads have no large strides and choose no tensors. */
static bool find_read_axis(rules *r, const tir_stage *stage, const rules_access *access, int count, transposition *t) {
    const int64_t points = rules_extent(r, &stage->axis[t->write]);
    bool strided = points > 0 && points <= TILE_ROWS && rules_selects(r, stage, t->write, false);
    for (int i = 0; i < count; i++) {
        if (access[i].stride[t->write] == 1) continue;
        strided = strided || has_large_stride(access[i].stride[t->write]) ||
                  is_read_again(r, stage, access[i].stride[t->write]);
        const int contiguous = tir_contiguous_axis(r->region, stage, &access[i], t->write);
        if (contiguous < 0 && access[i].stride[t->write] == 0) continue;
        if (contiguous < 0 || (t->read >= 0 && t->read != contiguous)) return false;
        t->read = contiguous;
    }
    return strided && t->read >= 0;
}

/* Sets *t if the map is a transposition: the loads that depend on the axis of contiguous stores have large strides along it, or its few
 * points each choose a tensor, and all of them are contiguous along one other axis. Loads that are contiguous along the stores' axis must
 * not depend on that other axis. */
static bool find_transposition(rules *r, int s, transposition *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    *t = (transposition){.read = -1, .write = -1, .lanes = rules_lanes(r, s)};
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    if (layout->count && layout->part[layout->count - 1].modulus) return false; /* panels */
    t->write = written_axis(r, s);
    if (t->write < 0 || count == RULES_ACCESSES || t->lanes < 2) return false;
    const int64_t line = r->machine->line / (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    t->rows = t->lanes < line ? line : t->lanes;
    if (t->rows > TILE_ROWS) t->rows = TILE_ROWS;
    if (!find_read_axis(r, stage, access, count, t)) return false;
    for (int i = 0; i < count; i++)
        if (access[i].stride[t->write] == 1 && access[i].stride[t->read] != 0) return false;
    const int64_t along = rules_extent(r, &stage->axis[t->read]), high = rules_extent(r, &stage->axis[t->write]);
    const int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    choose_lanes(r, t, along, size, count == 1 /* nothing is read where it was written */);
    return (along < 0 || along >= t->lanes / 2) && (high < 0 || high > 1);
}

/* Number of vectors along the read axis in a column of tiles: a divisor of `vectors`, so that no tail is needed; 0: there is none. */
static int64_t columns_of(int64_t vectors) {
    enum { MOST = 16, LEAST = 4 };
    for (int64_t n = MOST; n >= LEAST; n--)
        if (vectors % n == 0) return n;
    return 0;
}

/* The axis along which whole rows of both the source and the result are contiguous: one of the outer loops; -1: none. */
static int contiguous_outer_axis(rules *r, int s, const transposition *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int a = stage->space - 1; a >= 0; a--) {
        if (a == t->read || a == t->write || rules_extent(r, &stage->axis[a]) == 1) continue;
        bool on = rules_store_stride(r, s, a) == rules_extent(r, &stage->axis[t->write]);
        for (int i = 0; i < count; i++)
            on =
                on && (access[i].stride[t->read] != 1 || access[i].stride[a] == rules_extent(r, &stage->axis[t->read]));
        return on && rules_extent(r, &stage->axis[a]) > 1 ? a : -1;
    }
    return -1;
}

/* Are the source's rows contiguous, of a few cache lines each? */
static bool has_short_rows(rules *r, int s, const transposition *t) {
    enum { LINES = 16 };
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    int64_t along = rules_extent(r, &stage->axis[t->read]);
    for (int i = 0; i < count; i++)
        if (access[i].stride[t->read] == 1 && access[i].stride[t->write] != along) return false;
    return along <= LINES * t->lanes;
}

/* Loops of a transposition, from the outermost. */
typedef struct tile_loops {
    rules_nest nest;
    lib_text order;
    /* names of the innermost loops along the read and the written axis */
    const char *read, *write;
    /* the loop whose next iteration is prefetched; NULL: none */
    const char *ahead;
    /* bytes of an element */
    int64_t size;
    /* number of points in one iteration of the loops that may be tasks */
    int64_t points;
} tile_loops;

static void add_tile_loop(tile_loops *l, const char *name, int64_t extent, bool whole) {
    rules_add_loop(&l->nest, name, extent, whole);
    lib_text_format(&l->order, " %s", name);
}

/* Notes that each iteration of loop `name`, which reads `points` points, prefetches the next one, if they are few enough to arrive in time
 * and stay in cache. */
static void fetch_iterations(tile_loops *l, const char *name, int64_t points) {
    if (!l->ahead && points * l->size <= l->nest.r->machine->l2 / 8) l->ahead = name;
}

/* Cuts `axis`, or the rest of it, into blocks of `size`. Returns the name of the loop inside. */
static const char *cut_axis(tile_loops *l, const char *axis, int64_t size, const char *outer, const char *inner) {
    tir_schedule_add(l->nest.r->schedule, "split %s.%s %lld -> %s %s peel", l->nest.stage->name, axis, (long long)size,
                     outer, inner);
    return inner;
}

/* Cuts the read axis, or the rest of it, into the vectors of tiles. */
static void cut_vectors(tile_loops *l, const transposition *t) {
    tir_schedule_add(l->nest.r->schedule, "split %s.%s %lld -> v_o v_i %s", l->nest.stage->name, l->read,
                     (long long)t->lanes, t->overlap ? "overlap" : "peel");
    l->read = "v_i";
}

/* Adds the loops over the axes that are not the tile's, nor `on` (-1: none). */
static void add_other_loops(tile_loops *l, const transposition *t, int on) {
    const tir_stage *stage = l->nest.stage;
    for (int a = 0; a < stage->space; a++)
        if (a != t->read && a != t->write && a != on)
            add_tile_loop(l, stage->axis[a].name, rules_extent(l->nest.r, &stage->axis[a]), false);
}

/* Iterations of a loop, of `each` points, in about equal blocks that take at most 1/share of L2; 0: not even two do. */
static int64_t block_of(const tile_loops *l, int64_t each, int64_t extent, int64_t share) {
    const int64_t block = l->nest.r->machine->l2 / share / (each * l->size);
    if (block < 2) return 0;
    return block < extent ? up(extent, up(extent, block)) : block;
}

/* Adds the loops over the tiles of a block. */
static void add_block_tiles(tile_loops *l, const transposition *t, int64_t vectors, int64_t rows) {
    if (vectors > 1) {
        cut_vectors(l, t);
        lib_text_add(&l->order, " v_o");
    }
    if (rows > 1) {
        l->write = cut_axis(l, l->write, t->rows, "r_o", "r_i");
        lib_text_add(&l->order, " r_o");
    }
}

/* A transposition that exceeds L2 runs in blocks of 16 rows read and 16 rows written; each block prefetches the next one, because the
 * hardware prefetcher does not follow that many rows of one or two lines each. False: no such blocks. */
static bool block_loops(tile_loops *l, int s, const transposition *t, int64_t vectors, int64_t rows) {
    rules *r = l->nest.r;
    const tir_stage *stage = l->nest.stage;
    int on = contiguous_outer_axis(r, s, t);
    int64_t along = rules_extent(r, &stage->axis[t->read]), high = rules_extent(r, &stage->axis[t->write]);
    bool by_rows = on < 0 && vectors > 1 && rows > 1 && has_short_rows(r, s, t);
    if (on < 0 && !by_rows) return false;
    int64_t each = on >= 0 ? along * high : along * t->rows,
            extent = on >= 0 ? rules_extent(r, &stage->axis[on]) : rows;
    const int64_t block = block_of(l, each, extent, on >= 0 ? 8 : 32);
    if (!block) return false;
    add_other_loops(l, t, on);
    const char *inner = on >= 0 ? stage->axis[on].name : l->write;
    if (block < extent) {
        inner = cut_axis(l, inner, on >= 0 ? block : block * t->rows, "b_o", "b_i");
        add_tile_loop(l, "b_o", up(extent, block), true);
        fetch_iterations(l, "b_o", each * block);
    }
    if (on < 0) l->write = inner;
    add_block_tiles(l, t, vectors, rows);
    if (on >= 0) lib_text_format(&l->order, " %s", inner);
    l->points = each * (block < extent ? block : extent); /* each thread writes contiguous memory */
    return true;
}

/* Rows of tiles that make a task, if the loops so far have few iterations and a row of tiles is too small for a task (rules_form_tasks); 0:
 * rows, or the loops outside, are tasks. */
static int64_t rows_of_tasks(const tile_loops *l, const transposition *t, int64_t vectors, int64_t rows) {
    enum { TASKS = 16, SMALLER = 8 };
    const int64_t share = up(TASK_POINTS, (vectors < 0 ? 1 : vectors) * t->lanes * t->rows);
    int64_t tasks = 1;
    for (int i = 0; i < l->nest.count && tasks < TASKS; i++)
        tasks = l->nest.loop[i].extent < 0 ? TASKS : tasks * l->nest.loop[i].extent;
    return share > SMALLER && rows > share && tasks < TASKS ? share : 0;
}

/* Tiles move slowly along the written axis and fast along the read one, in columns of at most 16 vectors: few pages are in use at a time,
 * and no line needs to stay in a cache, from which strides of powers of two would evict it. Negative vectors or rows: varying. */
static void column_loops(tile_loops *l, const transposition *t, int64_t vectors, int64_t rows, int64_t columns) {
    rules *r = l->nest.r;
    const tir_stage *stage = l->nest.stage;
    int64_t high = rules_extent(r, &stage->axis[t->write]);
    add_other_loops(l, t, -1);
    if (columns && columns < vectors) {
        l->read = cut_axis(l, l->read, columns * t->lanes, "c_o", "c");
        add_tile_loop(l, "c_o", vectors / columns, true);
        vectors = columns;
        fetch_iterations(l, "c_o", vectors * t->lanes * high);
    }
    if (rows != 1) {
        const int64_t share = rows_of_tasks(l, t, vectors, rows);
        if (share) {
            l->write = cut_axis(l, l->write, share * t->rows, "t_o", "t_i");
            add_tile_loop(l, "t_o", up(rows, share), true);
        }
        l->write = cut_axis(l, l->write, t->rows, "r_o", "r_i");
        add_tile_loop(l, "r_o", share ? share : rows, true);
        fetch_iterations(l, "r_o", vectors * t->lanes * t->rows);
    }
    l->points = t->lanes * (rows != 1 ? t->rows : high);
    if (vectors == 1) return;
    cut_vectors(l, t);
    if (t->overlap) { /* its tiles write the same points, so they are no tasks */
        lib_text_add(&l->order, " v_o");
        l->points *= vectors;
    } else {
        add_tile_loop(l, "v_o", vectors, true);
    }
}

static void fetch_tiles(tile_loops *l, int s, const transposition *t) {
    rules *r = l->nest.r;
    const char *name = l->nest.stage->name;
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (tensor->stage < 0 && access[i].stride[t->read] == 1 && access[i].stride[t->write] != 0)
            tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s+1 L2", tensor->name, name, l->write, name,
                             l->ahead);
    }
}

/* Schedules a transposition in tiles of rows x lanes: each line of the source is read once, as one vector, and each line of the result
 * written once, after the transposition in registers. False: the map is none. */
bool rules_map_transposed(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    transposition t;
    if (!find_transposition(r, s, &t)) return false;
    const char *name = stage->name;
    t.rows = tir_choose_number(r->schedule, name, "rows", (tir_numbers){1, TILE_ROWS, 1}, t.rows);
    int64_t along = rules_extent(r, &stage->axis[t.read]), high = rules_extent(r, &stage->axis[t.write]);
    int64_t vectors = up(along, t.lanes), rows = up(high, t.rows),
            columns = along < 0 || along % t.lanes ? 0 : columns_of(vectors);
    tile_loops l = {.nest = {.r = r, .stage = stage},
                    .read = stage->axis[t.read].name,
                    .write = stage->axis[t.write].name,
                    .size = (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype)};
    lib_text_init(&l.order, r->arena);
    bool exceeds_l2 = bytes_read(r, stage) > r->machine->l2 / 2;
    bool narrow = !columns || columns >= vectors;
    if (!exceeds_l2 || !narrow || !block_loops(&l, s, &t, vectors, rows)) column_loops(&l, &t, vectors, rows, columns);
    tir_schedule_add(r->schedule, "order %s:%s %s %s", name, l.order.data ? l.order.data : "", l.write, l.read);
    clip_choices(r, stage, tir_axis_bit(t.write) | tir_axis_bit(t.read), -1);
    rules_form_tasks(&l.nest, l.points, TASK_POINTS);
    tir_schedule_add(r->schedule, "unroll %s.%s", name, l.write);
    tir_schedule_add(r->schedule, "vec %s.%s", name, l.read);
    if (exceeds_l2 && l.ahead) fetch_tiles(&l, s, &t);
    if (t.rows * l.size >= r->machine->line) rules_store_past_caches(r, stage); /* these store whole lines */
    return true;
}

/* ---- maps by tables */

/* Do loaded indices that depend on `axis`, but not on `row`, select elements of the tensors' last dimension? Elements have at least 4
 * bytes: processors have permutations for these. */
static bool chosen_along(rules *r, int s, int axis, int row) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    bool found = false;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (access[i].stride[axis] != RULES_IRREGULAR || lib_dtype_size(tensor->dtype) < 4) continue;
        tir_pool *pool = r->region->pool;
        const int last = tensor->rank - 1;
        for (int d = 0; d < last; d++)
            if (tir_has_load(pool, tir_operand(pool, access[i].load, d), stage->axis[axis].var)) return false;
        const tir_expr index = tir_operand(pool, access[i].load, last);
        if (!tir_has_load(pool, index, stage->axis[axis].var)) return false;
        if (tir_has_load(pool, index, stage->axis[row].var)) return false;
        found = true;
    }
    return found && count < RULES_ACCESSES;
}

/* Bytes that member s computes for each row of the root, if it has all of the root's axes except the last, and one of its own; -1:
 * otherwise. */
static int64_t kept_bytes(rules *r, int s, const tir_stage *root, int last) {
    const tir_stage *stage = &r->region->stages.data[s];
    int64_t own = 1;
    for (int a = 0; a < last; a++)
        if (rules_extent(r, &root->axis[a]) != 1 && rules_axis_labelled(r, s, a) < 0) return -1;
    for (int a = 0; a < stage->space; a++)
        if (r->group[s].label[a] < 0 && rules_extent(r, &stage->axis[a]) != 1) {
            if (own != 1 || a != stage->space - 1) return -1;
            own = rules_extent(r, &stage->axis[a]);
        }
    return stage->kind == TIR_MAP && own > 1 && own <= INT32_MAX
               ? own * (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype)
               : -1;
}

/* Attaches member s, the rows from which elements are selected, for a block of the root's rows: in vectors along the rows, in scratch. */
static void attach_rows(rules *r, int s, const char *root, const char *loop) {
    const tir_stage *stage = &r->region->stages.data[s];
    int last = stage->space - 1;
    int64_t block = BLOCK_VECTORS * rules_lanes(r, s);
    tir_schedule_add(r->schedule, "at %s %s.%s", stage->name, root, loop);
    rules_vectorise(r, stage->name, stage->axis[last].name, rules_extent(r, &stage->axis[last]), block, "b_o", "b_i");
}

enum { CHOSEN_LEAST = 2 /* rows of a block, at least, that share the addresses derived from the table */ };

/* The axis of the rows of a map whose last axis selects elements of them by a table; -1: it is no such map, or its
 * vectors are not contiguous. */
static int axis_of_chosen_rows(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int last = last_long_axis(r, stage), row = last - 1;
    int64_t lanes = rules_lanes(r, s);
    while (row > 0 && rules_extent(r, &stage->axis[row]) == 1) row--;
    if (row < 0 || lanes < 2 || last != stage->space - 1 || rules_store_stride(r, s, last) != 1) return -1;
    int64_t extent = rules_extent(r, &stage->axis[last]), rows = rules_extent(r, &stage->axis[row]);
    return extent < lanes || rows < CHOSEN_LEAST || !chosen_along(r, s, last, row) ? -1 : row;
}

/* The most rows of a block for which the members' rows fit in half of L1; 0: a member has no rows of that kind. */
static int64_t rows_in_l1(rules *r, const tir_stage *stage, const int *members, int count) {
    enum { ROWS = 16 };
    int64_t kept = 0, most = ROWS, l1 = r->machine->l1;
    for (int i = 0; i < count; i++) {
        int64_t bytes = kept_bytes(r, members[i], stage, stage->space - 1);
        if (bytes < 0) return 0;
        kept += bytes;
    }
    while (most > 1 && most * kept > l1 / 2) most /= 2;
    return most;
}

/* Rows of a block: at most `most`, a divisor of their number if possible. */
static int64_t rows_of_block(rules *r, const tir_stage *stage, int64_t rows, int64_t most) {
    enum { FEW = 8 }; /* memory bandwidth is best with few streams */
    int64_t each = bytes_read(r, stage) > r->machine->l2 && most > FEW ? FEW : most;
    for (int64_t n = each; n >= each / 2 && rows % each; n--)
        if (rows % n == 0) each = n;
    return each;
}

/* Schedules a map that selects elements of rows by a table: what is derived from the table for one vector is used for a block of rows,
 * whose members' rows fit in half of L1. False: it is no such map. */
static bool map_chosen(rules *r, int s, const int *members, int count) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int row = axis_of_chosen_rows(r, s), last = stage->space - 1;
    if (row < 0) return false;
    const int64_t lanes = rules_lanes(r, s), extent = rules_extent(r, &stage->axis[last]);
    int64_t rows = rules_extent(r, &stage->axis[row]);
    const int64_t most = rows_in_l1(r, stage, members, count);
    if (count && (most < CHOSEN_LEAST || rows <= most)) return false;
    const char *name = stage->name, *inner = stage->axis[row].name, *vector = stage->axis[last].name;
    rules_nest nest = {.r = r, .stage = stage};
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < row; a++) {
        rules_add_loop(&nest, stage->axis[a].name, rules_extent(r, &stage->axis[a]), false);
        lib_text_format(&order, " %s", stage->axis[a].name);
    }
    clip_choices(r, stage, 0, -1);
    if (rows > most) {
        const int64_t each = rows_of_block(r, stage, rows, most), blocks = up(rows, each);
        tir_schedule_add(r->schedule, "split %s.%s %lld -> r_o r_i peel", name, inner, (long long)each);
        rules_add_loop(&nest, "r_o", blocks, false);
        lib_text_add(&order, " r_o");
        inner = "r_i", rows = each;
    }
    if (extent > lanes) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i peel", name, vector, (long long)lanes);
        lib_text_add(&order, " v_o");
        vector = "v_i";
    }
    for (int a = row + 1; a < last; a++) lib_text_format(&order, " %s", stage->axis[a].name);
    tir_schedule_add(r->schedule, "order %s:%s %s %s", name, order.data ? order.data : "", inner, vector);
    rules_form_tasks(&nest, rows * extent, RULES_TASK_POINTS);
    tir_schedule_add(r->schedule, "vec %s.%s", name, vector);
    for (int i = 0; i < count; i++) attach_rows(r, members[i], name, nest.loop[nest.count - 1].name);
    rules_store_past_caches(r, stage);
    return true;
}

bool rules_chosen(rules *r, int root) {
    int *members, count = rules_members(r, root, &members);
    return r->region->stages.data[root].kind == TIR_MAP && count && map_chosen(r, root, members, count);
}

bool rules_map_chosen(rules *r, int root) {
    return map_chosen(r, root, NULL, 0);
}

/* ---- straight maps */

static tir_expr count_operation(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const tir_node *node = tir_get(pool, e);
    *(int *)user += node->dtype != TIR_INDEX && node->op != TIR_CONST && node->op != TIR_LOAD;
    return rebuilt;
}

int rules_operations(rules *r, const tir_stage *stage) {
    int operations = 0;
    for (int c = 0; c < stage->count; c++) tir_rewrite(r->region->pool, stage->value[c], count_operation, &operations);
    return operations;
}

static int64_t block_vectors(rules *r, const tir_stage *stage) {
    return rules_operations(r, stage) < LONG_VALUE * stage->count ? BLOCK_VECTORS : 2 * BLOCK_VECTORS;
}

/* Prefetches rows of a table larger than L2 that an index in memory selects, which the hardware cannot predict: each iteration of loop
 * `row`, of axis `axis`, prefetches the row of a later iteration. Within a long row the hardware prefetcher suffices. */
static void fetch_chosen_rows(rules *r, int s, int axis, int last, const char *row) {
    enum { ROWS = 16, LINES = 16 };
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        const int64_t size = (int64_t)lib_dtype_size(tensor->dtype), bytes = rules_bytes(r, tensor);
        if (tensor->stage >= 0 || access[i].stride[last] != 1 || (bytes >= 0 && bytes <= r->machine->l2)) continue;
        bool chosen = false;
        for (int d = 0; d < tensor->rank; d++)
            chosen = chosen || tir_has_load(r->region->pool, tir_operand(r->region->pool, access[i].load, d),
                                            stage->axis[axis].var);
        if (chosen && rules_extent(r, &stage->axis[last]) * size <= LINES * r->machine->line)
            tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s+%d L1", tensor->name, stage->name, row, row, ROWS);
    }
}

bool rules_map_straight(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int last = last_long_axis(r, stage), first;
    if (last < 0) return true;
    const int64_t usual = block_vectors(r, stage);
    const int64_t vectors = tir_choose_number(r->schedule, stage->name, "vectors", (tir_numbers){1, 16, 1}, usual);
    int64_t extent;
    const int64_t block = rules_lanes(r, s) * vectors;
    first = first_straight(r, s, last, &extent);
    const char *loop = tir_fuse_axes(r->schedule, stage, first, last), *name = stage->name;
    bool few = usual == BLOCK_VECTORS; /* for short values, a loop of two iterations is not worth it */
    rules_nest nest = {.r = r, .stage = stage};
    for (int a = 0; a < first; a++) rules_add_loop(&nest, stage->axis[a].name, rules_extent(r, &stage->axis[a]), false);
    int64_t task = (RULES_TASK_POINTS + block - 1) / block * block;
    const uint32_t fused = first < last ? tir_axis_bit(last + 1) - tir_axis_bit(first) : 0;
    clip_choices(r, stage, fused, extent > 0 && extent <= block ? first - 1 : -1);
    const char *whole = loop;
    loop = rules_form_long_tasks(&nest, loop, extent, task);
    const bool cut = loop != whole && first == last && rules_selects(r, stage, last, false);
    const char *row = nest.count && first == last && last == stage->space - 1 && extent > 0 && extent <= task
                          ? nest.loop[nest.count - 1].name
                          : NULL;
    if (extent < 0 || extent > (few ? 2 * block : block)) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> vo vi peel", name, loop, (long long)block);
        if (cut) tir_schedule_add(r->schedule, "clip %s.vo", name); /* of the task in which the choice changes */
        loop = "vi";
    }
    if (row) fetch_chosen_rows(r, s, first - 1, last, row);
    if (rules_store_stride(r, s, last) == 1) tir_schedule_add(r->schedule, "vec %s.%s", name, loop);
    rules_store_past_caches(r, stage);
    return true;
}

/* ---- maps whose results have another order of dimensions */

/* The axis along which the results of a map, whose layout permutes their dimensions, are contiguous; -1: they have another layout. */
static int permuted_last(const rules *r, const tir_stage *stage) {
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    if (tir_layout_is_identity(layout) || layout->count != stage->space) return -1;
    for (int p = 0; p < layout->count; p++)
        if (layout->part[p].divisor != 1 || layout->part[p].modulus) return -1;
    return layout->part[layout->count - 1].dim;
}

/* A map that reads in the order of its results' memory, which is not that of its axes: loops in that order. */
bool rules_map_permuted(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES), last = permuted_last(r, stage);
    transposition turned;
    if (last < 0 || last == stage->space - 1 || count == RULES_ACCESSES) return false;
    if (rules_extent(r, &stage->axis[last]) == 1 || find_transposition(r, s, &turned)) return false;
    for (int i = 0; i < count; i++)
        if (access[i].stride[last] != 0 && access[i].stride[last] != 1) return false;
    const int64_t extent = rules_extent(r, &stage->axis[last]), block = rules_lanes(r, s) * block_vectors(r, stage);
    rules_nest nest = {.r = r, .stage = stage};
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int p = 0; p < layout->count - 1; p++) {
        const tir_axis *axis = &stage->axis[layout->part[p].dim];
        rules_add_loop(&nest, axis->name, rules_extent(r, axis), false);
        lib_text_format(&order, "%s ", axis->name);
    }
    tir_schedule_add(r->schedule, "order %s: %s%s", stage->name, order.data, stage->axis[last].name);
    clip_choices(r, stage, 0, -1);
    rules_form_tasks(&nest, extent, RULES_TASK_POINTS);
    rules_vectorise(r, stage->name, stage->axis[last].name, extent, block, "vo", "vi");
    rules_store_past_caches(r, stage);
    return true;
}

/* ---- maps that read along memory and across it */

/* Does the position along any axis select the value of a point, constants included? */
static bool has_choices(rules *r, const tir_stage *stage) {
    bool found = false;
    for (int a = 0; a < stage->space; a++) found = found || rules_selects(r, stage, a, true);
    return found;
}

/* The axis along which the operands that the map reads with large strides along its vectors are contiguous; -1: there are no such operands,
 * or they have no common axis. */
static int transposed_axis(rules *r, int s, int last) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), turned = -1;
    if (count == RULES_ACCESSES) return -1;
    for (int i = 0; i < count; i++) {
        if (!has_large_stride(access[i].stride[last])) continue;
        const int contiguous = tir_contiguous_axis(r->region, stage, &access[i], last);
        if (access[i].stride[last] == RULES_IRREGULAR || contiguous < 0) return -1;
        if (turned >= 0 && turned != contiguous) return -1;
        turned = contiguous;
    }
    return turned;
}

/* A map that reads some operands along memory, as it writes, and others across it (a residual of another layout): vectors along memory,
 * in blocks of as many rows as a line has elements. A line that is read across serves all rows of the block while it is in L1; along
 * whole rows it would be evicted before the next row reads it, the sooner the fewer sets its neighbours share with it. */
bool rules_map_mixed(rules *r, int s) {
    enum { VECTORS = 2 * BLOCK_VECTORS };
    const tir_stage *stage = &r->region->stages.data[s];
    int last = last_long_axis(r, stage), across = last < 0 ? -1 : transposed_axis(r, s, last);
    if (across < 0 || rules_store_stride(r, s, last) != 1 || has_choices(r, stage)) return false;
    const tir_tensor *result = &r->region->tensors.data[stage->tensor[0]];
    int64_t rows = r->machine->line / (int64_t)lib_dtype_size(result->dtype), columns = rules_lanes(r, s) * VECTORS;
    int64_t n = rules_extent(r, &stage->axis[last]), m = rules_extent(r, &stage->axis[across]);
    if (n < rules_lanes(r, s) || rows < 2) return false;
    const char *name = stage->name, *row = stage->axis[across].name, *column = stage->axis[last].name;
    rules_nest nest = {.r = r, .stage = stage};
    lib_text order;
    lib_text_init(&order, r->arena);
    for (int a = 0; a < stage->space; a++) {
        if (a == across || a == last) continue;
        rules_add_loop(&nest, stage->axis[a].name, rules_extent(r, &stage->axis[a]), false);
        lib_text_format(&order, " %s", stage->axis[a].name);
    }
    if (m > rows) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> r_o r_i peel", name, row, (long long)rows);
        rules_add_loop(&nest, "r_o", (m + rows - 1) / rows, true);
        lib_text_add(&order, " r_o");
        row = "r_i", m = rows;
    }
    if (n > columns) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i peel", name, column, (long long)columns);
        rules_add_loop(&nest, "v_o", (n + columns - 1) / columns, true);
        lib_text_add(&order, " v_o");
        column = "v_i", n = columns;
    }
    tir_schedule_add(r->schedule, "order %s:%s %s %s", name, order.data ? order.data : "", row, column);
    tir_schedule_add(r->schedule, "vec %s.%s", name, column);
    rules_form_tasks(&nest, m * n, RULES_TASK_POINTS);
    rules_store_past_caches(r, stage);
    return true;
}
