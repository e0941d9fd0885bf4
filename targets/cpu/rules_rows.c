/* Rows on chip: a root whose producers need whole rows (softmax, norms, row reductions with an epilogue). Producers run at the innermost of
 * the root's loops that all of them share; reductions along contiguous rows use lanes and a tree; short rows are kept in registers. */
#include "targets/cpu/cost.h"
#include "targets/cpu/rules.h"
#include "tir/inline_cost.h"

/* ---- loops */

typedef struct row_plan {
    rules *r;
    int root;
    /* name of the root, and of its loop at which producers are attached */
    const char *root_name, *loop;
    /* the root's axis whose loop that is, if the axis is not split; -1: none */
    int loop_axis;
    /* bit a: producers run point by point along the root's axis a */
    uint32_t shared;
    /* the root's vector axis */
    int v;
    /* name of the loop along v that becomes vectors: v itself, or the inner loop after a split */
    const char *v_loop;
    /* v is shared: vectors run across rows */
    bool across;
    /* with vectors across rows: values of members exceed the registers even for a single vector of rows */
    bool in_memory;
    /* rows fit registers */
    bool small;
    /* rows computed together */
    int64_t block;
    /* rows are computed in blocks because a member is a contraction */
    bool tiled;
    /* the root's results use ordinary stores, so that its memory may hold a temporary row */
    bool cached;
    /* the root's axis that is blocked; -1: none */
    int block_axis;
    int64_t lanes;
    /* [stages] 1 + the axis that a loop b_o over vectors runs along; 0: none. NULL: not recorded */
    int *chunked;
    /* data select elements of a member's rows, so that these rows cannot be in registers */
    bool chosen;
    /* sums that run beside the root's rows; NULL: none */
    rules_beside *beside;
} row_plan;

/* Name of the root's loop, or axis to be split further, along its axis a. */
static const char *loop_of(const row_plan *p, int a) {
    return p->beside && p->beside->axis == a ? "line" : p->r->region->stages.data[p->root].axis[a].name;
}

/* Is axis `a` of a member fixed (one point) inside the loop that members are attached at? */
static bool runs_along(const row_plan *p, int s, int a) {
    int label = p->r->group[s].label[a];
    return label >= 0 && (p->shared >> label & 1) && label != p->block_axis && !(p->across && label == p->v);
}

static int lane_of(const tir_stage *stage) {
    const int lane = rules_axis_of(stage, TIR_AXIS_LANE);
    return lane < stage->space ? lane : -1;
}

static bool has_lanes(const rules *r, int s) {
    return lane_of(&r->region->stages.data[s]) >= 0;
}

int rules_end_of_tree(rules *r, int s) {
    rules_access access[RULES_ACCESSES];
    for (int q = s + 1; has_lanes(r, s) && q < (int)r->region->stages.count; q++) {
        if (r->region->stages.data[q].removed) continue;
        int count = rules_accesses(r, q, access, RULES_ACCESSES);
        for (int i = 0; i < count; i++)
            if (r->region->tensors.data[access[i].tensor].stage == s) s = q, i = count;
    }
    return s;
}

/* Does it pay to fold `width` partial results of each row of a block for all rows at once? Row by row, each level takes two instructions. For
 * all rows at once the partial results are stored, and loads that are wider than these stores wait until the stores are done. */
static bool folds_rows_at_once(const row_plan *p, int64_t width) {
    enum { PER_LEVEL = 2, WAIT = 18 /* cycles */ };
    int64_t levels = 0;
    while (width >> (levels + 1) > 0) levels++;
    return (double)(PER_LEVEL * levels * p->block) > (double)WAIT * p->r->machine->rates.issue;
}

/* The widest level of the tree that ends in `end` which one vector holds; -1: none, or all levels are better run row by row. Down to this
 * level each row is reduced by itself; the levels below run for all rows together, the halves of neighbouring rows combined in one vector. */
static int vector_level(const row_plan *p, int end) {
    rules *r = p->r;
    for (int q = 0; q < end; q++) {
        const tir_stage *stage = &r->region->stages.data[q];
        if (stage->removed || stage->reduce || !has_lanes(r, q) || rules_end_of_tree(r, q) != end) continue;
        const int64_t width = rules_extent(r, &stage->axis[lane_of(stage)]);
        if (width <= rules_lanes(r, q)) return folds_rows_at_once(p, width) ? q : -1;
    }
    return -1;
}

bool rules_ends_tree(rules *r, int s) {
    for (int q = 0; q < s; q++)
        if (!r->region->stages.data[q].removed && has_lanes(r, q) && rules_end_of_tree(r, q) == s) return true;
    return false;
}

/* Is a member read only by reductions that data end, so that it is computed only up to that end? */
static bool is_ended(const row_plan *p, int s) {
    const bool map = p->r->region->stages.data[s].kind == TIR_MAP && !has_lanes(p->r, s);
    return map && s != p->root && !p->small && rules_ends_by_data(p->r);
}

/* Functions of a short row: its vectors are interleaved, since each is a long chain; others are unrolled one by one, so that their rows need
 * fewer registers. */
static void vectorise_own_axis(const row_plan *p, int s, int axis) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    int64_t extent = rules_extent(p->r, &stage->axis[axis]);
    const bool one_by_one = p->small && (extent < 0 || !tir_inline_cost_of(p->r->region, s, false).heavy);
    tir_schedule *out = p->r->schedule;
    const char *name = stage->name, *loop = s == p->root && axis == p->v ? p->v_loop : stage->axis[axis].name;
    int64_t block = one_by_one ? p->lanes : p->small ? extent : 4 * p->lanes;
    if (extent < 0 || extent > block || is_ended(p, s)) {
        bool exact = extent > 0 && extent % block == 0;
        tir_schedule_add(out, "split %s.%s %lld -> b_o b_i %s", name, loop, (long long)block,
                         p->small || exact || is_ended(p, s) ? "mask" : "peel");
        if (p->small) tir_schedule_add(out, "unroll %s.b_o", name);
        if (p->chunked) p->chunked[s] = 1 + axis;
        loop = "b_i";
    }
    tir_schedule_add(out, "vec %s.%s", name, loop);
}

/* A map whose values come from a contraction: the contraction's register tiles run in the map's own loops. */
static bool attach_contraction(const row_plan *p, int s) {
    rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[s];
    int *inside, block = rules_axis_labelled(r, s, p->block_axis);
    if (!rules_members(r, s, &inside)) return false;
    lib_text prefix;
    lib_text_init(&prefix, r->arena);
    rules_tile_place place = {
        .prefix = "", .block_axis = block, .block_extent = p->block, .rows_stage = p->root_name, .rows_loop = p->loop};
    for (int a = 0; a < stage->space; a++) {
        if (a == block || !runs_along(p, s, a)) continue;
        lib_text_format(&prefix, " %s", place.prefix_last = stage->axis[a].name);
        place.prefix_axes |= 1u << a;
    }
    if (prefix.length) place.prefix = prefix.data;
    if (block >= 0) place.block_loop = stage->axis[block].name;
    return rules_tile_in(r, s, &place);
}

/* Should this temporary row be stored in the output buffer, which the root later overwrites? A row larger than half of L1 would evict the
 * input row from L1, and in scratch of its own also the output row from L2. */
static bool kept_in_output(const row_plan *p, int s) {
    const rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[s];
    int64_t bytes = (int64_t)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    if (!p->cached || p->across || p->small || p->tiled || p->block > 1 || !p->shared || stage->kind != TIR_MAP)
        return false;
    for (int a = 0; a < stage->space; a++) {
        int64_t extent = runs_along(p, s, a) ? 1 : rules_extent(r, &stage->axis[a]);
        if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return false;
    }
    return bytes > r->machine->l1 / 2 && !tir_region_kept_flaw(r->region, s, p->root);
}

/* Attaches a tree level narrower than one vector, or the final sum, for all rows at once; in registers if it has no further axes. */
static void attach_fold(const row_plan *p, int s, int row) {
    rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[s];
    const char *name = stage->name, *rows = stage->axis[row].name;
    tir_schedule_add(r->schedule, "at %s %s.%s", name, p->root_name, p->loop);
    lib_text order;
    lib_text_init(&order, r->arena);
    bool many = false;
    for (int a = 0; a < stage->space; a++) {
        if (a == row || a == lane_of(stage)) continue;
        lib_text_format(&order, " %s", stage->axis[a].name);
        many = many || (rules_extent(r, &stage->axis[a]) != 1 && !runs_along(p, s, a));
    }
    if (!many) tir_schedule_add(r->schedule, "store %s reg", name);
    tir_schedule_add(r->schedule, "order %s:%s %s lane", name, order.length ? order.data : "", rows);
    tir_schedule_add(r->schedule, "fuse %s.%s %s.lane -> lanes", name, rows, name);
    tir_schedule_add(r->schedule, "vec %s.lanes", name);
}

/* Does a stage of the same root load from s with indices that no loop over lanes provides: a reduction axis, a second axis, or an axis too
 * long for lanes? Registers are indexed by constants and lanes only. */
static bool read_in_parts(const row_plan *p, int s) {
    rules *r = p->r;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) {
        const tir_stage *reader = &r->region->stages.data[q];
        if (reader->removed || r->group[q].root != p->root) continue;
        rules_access access[RULES_ACCESSES];
        int count = rules_accesses(r, q, access, RULES_ACCESSES);
        for (int i = 0; i < count; i++) {
            if (r->region->tensors.data[access[i].tensor].stage != s) continue;
            for (int a = 0, inner = -1; a < reader->space + reader->reduce; a++) {
                int64_t extent = rules_extent(r, &reader->axis[a]);
                if (extent == 1 || (a < reader->space && runs_along(p, q, a))) continue;
                if (!tir_uses(r->region->pool, access[i].load, reader->axis[a].var)) continue;
                if (a >= reader->space || inner >= 0 || extent < 0 || extent > 4 * p->lanes) return true;
                inner = a;
            }
        }
    }
    return false;
}

static void attach_row_member(const row_plan *p, int s);

/* Contractions whose owner is map s, but for which there is no register tile, become members of the root and are attached next to s. */
static void adopt_members(const row_plan *p, int s) {
    rules *r = p->r;
    int *inside, count = rules_members(r, s, &inside);
    for (int i = 0; i < count; i++) {
        rules_group *group = &r->group[inside[i]];
        for (int a = 0; a < r->region->stages.data[inside[i]].space; a++)
            if (group->label[a] >= 0) group->label[a] = r->group[s].label[group->label[a]];
        group->owner = p->root;
        attach_row_member(p, inside[i]);
    }
}

/* How a member runs. */
typedef struct member {
    const row_plan *p;
    int s;
    const tir_stage *stage;
    /* the stage at whose rows it runs, each row by itself: the end of its tree, or the level below which rows are reduced together; s: it
     * runs at the root's loop */
    int end;
    /* that level; -1: none */
    int level;
    /* its axis whose points are fixed by the loop over rows; -1: none */
    int row;
    /* values of several rows are live, which do not fit registers */
    bool many;
    /* the axis of vectors across rows; the innermost axis of its own with several points, and how many there are; -1: none */
    int along, own, owned;
    /* the own axis has at most the points of a few vectors */
    bool in_lanes;
} member;

/* Writes where the member runs: at the root's loop, or at the loop over rows of the stage in which its tree ends. */
static void place_member(member *m) {
    const row_plan *p = m->p;
    const rules *r = p->r;
    const tir_stage *end = &r->region->stages.data[m->end];
    m->row = m->end == m->s ? -1 : rules_axis_labelled(r, m->s, p->block_axis);
    m->many = p->block > 1 && m->row < 0;
    if (m->row < 0) {
        tir_schedule_add(r->schedule, "at %s %s.%s", m->stage->name, p->root_name, p->loop);
        return;
    }
    const char *rows = m->end == p->root /* the root's axis is split into blocks */
                           ? "q_i"
                           : end->axis[rules_axis_labelled(r, m->end, p->block_axis)].name;
    tir_schedule_add(r->schedule, "at %s %s.%s", m->stage->name, end->name, rows);
}

static void find_own_axes(member *m) {
    const row_plan *p = m->p;
    rules *r = p->r;
    const bool ends = m->s == m->level || (m->level < 0 && rules_ends_tree(r, m->s));
    if (m->many && !p->tiled && ends) m->row = rules_axis_labelled(r, m->s, p->block_axis); /* the tree is inside */
    m->along = p->across ? rules_axis_labelled(r, m->s, p->v) : -1;
    m->own = -1;
    m->owned = 0;
    for (int a = 0; a < m->stage->space; a++)
        if (rules_extent(r, &m->stage->axis[a]) != 1 && a != m->along && a != m->row && !runs_along(p, m->s, a))
            m->own = a, m->owned++;
    const int64_t lanes = has_lanes(r, m->s) ? rules_lanes(r, m->s) : p->lanes;
    const int64_t points = m->own < 0 ? 0 : rules_extent(r, &m->stage->axis[m->own]);
    m->in_lanes = points > 0 && points <= 4 * lanes;
}

static void order_member(const member *m) {
    const tir_stage *stage = m->stage;
    const int inner = m->p->across ? m->along : m->own;
    lib_text order;
    lib_text_init(&order, m->p->r->arena);
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (a != inner) lib_text_format(&order, " %s", stage->axis[a].name);
    if (inner >= 0) lib_text_format(&order, " %s", stage->axis[inner].name);
    if (order.length) tir_schedule_add(m->p->r->schedule, "order %s:%s", stage->name, order.data);
}

/* Vectors across rows: a member without further points is kept in registers, unless there are too many. */
static void schedule_across(const member *m) {
    rules *r = m->p->r;
    const char *name = m->stage->name;
    if (m->along >= 0) tir_schedule_add(r->schedule, "vec %s.%s", name, m->stage->axis[m->along].name);
    if (m->own < 0 && !m->p->in_memory && rules_fits_registers(r, m->stage, m->along))
        tir_schedule_add(r->schedule, "store %s reg", name);
}

/* Can the member's values be in registers, which are indexed by constants and lanes only? */
static bool in_registers(const member *m) {
    const row_plan *p = m->p;
    if (m->many) return false;
    if (m->own < 0 || p->small) return true;
    if (!m->in_lanes || m->owned != 1) return false;
    if (has_lanes(p->r, m->s)) return true; /* levels of a tree */
    return m->stage->reduce && !p->chosen && !read_in_parts(p, m->s);
}

/* Unrolls the loops of a row in registers, and clips reductions to the steps that have points. */
static void schedule_loops(const member *m) {
    const row_plan *p = m->p;
    rules *r = p->r;
    const tir_stage *stage = m->stage;
    for (int a = 0; a < stage->space + stage->reduce && p->small && !m->many; a++) {
        const bool loop = a >= stage->space || (rules_extent(r, &stage->axis[a]) != 1 && !runs_along(p, m->s, a));
        if (loop && a != m->own && a != m->row)
            tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, stage->axis[a].name);
    }
    for (int a = stage->space; a < stage->space + stage->reduce && stage->predicate && !p->small; a++)
        if (stage->axis[a].role == TIR_AXIS_STEP) /* only the last step has inactive lanes */
            tir_schedule_add(r->schedule, "clip %s.%s", stage->name, stage->axis[a].name);
}

/* Does the whole own axis become vectors, without a split? */
static bool is_whole_vector(const member *m) {
    const row_plan *p = m->p;
    if (m->many && p->r->group[m->s].label[m->own] == p->block_axis) return true;
    if (!m->in_lanes || is_ended(p, m->s)) return false;
    return m->stage->reduce || !p->small || rules_extent(p->r, &m->stage->axis[m->own]) <= p->lanes;
}

/* Is the member a level of the tree below m->level? These run for all rows of the block at once. */
static bool is_folded_at_once(const member *m) {
    return m->level >= 0 && m->s > m->level && m->s != m->end &&
           rules_axis_labelled(m->p->r, m->s, m->p->block_axis) >= 0;
}

/* Several rows are computed together, each step for all of them before the next step: work on one row hides the latency of the others. */
static void attach_row_member(const row_plan *p, int s) {
    rules *r = p->r;
    const bool together = p->block > 1 && !p->tiled;
    member m = {.p = p, .s = s, .stage = &r->region->stages.data[s], .end = s, .level = -1};
    if (together) m.end = rules_end_of_tree(r, s);
    if (together) m.level = vector_level(p, m.end);
    if (is_folded_at_once(&m)) {
        attach_fold(p, s, rules_axis_labelled(r, s, p->block_axis));
        return;
    }
    if (m.level >= 0 && s != m.end) m.end = m.level; /* levels above run row by row, in registers */
    place_member(&m);
    if (attach_contraction(p, s)) return;
    adopt_members(p, s);
    find_own_axes(&m);
    order_member(&m);
    if (!has_lanes(r, s) && kept_in_output(p, s)) tir_schedule_add(r->schedule, "store %s output", m.stage->name);
    if (p->across) {
        schedule_across(&m);
        return;
    }
    m.many = m.many || !rules_fits_registers(r, m.stage, m.own);
    if (in_registers(&m)) tir_schedule_add(r->schedule, "store %s reg", m.stage->name);
    schedule_loops(&m);
    if (m.own < 0) return;
    if (is_whole_vector(&m))
        tir_schedule_add(r->schedule, "vec %s.%s", m.stage->name, m.stage->axis[m.own].name);
    else
        vectorise_own_axis(p, s, m.own);
}

void rules_attach_row(rules *r, int s, int root, const char *loop, uint32_t shared, int block_axis, int64_t block) {
    const tir_stage *top = &r->region->stages.data[root];
    row_plan p = {
        .r = r, .root = root, .root_name = top->name, .loop = loop, .loop_axis = -1, .shared = shared, .v = -1};
    p.lanes = rules_lanes(r, s);
    p.block = block;
    p.block_axis = block_axis;
    attach_row_member(&p, s);
}

/* The extent, or this share of the largest that a varying one may have. */
static int64_t assumed_extent(const rules *r, const tir_axis *axis, int64_t share) {
    const int64_t extent = rules_extent(r, axis), most = rules_extent_limit(r, axis);
    return extent >= 0 ? extent : most > share ? most / share : 1;
}

/* Longest row of a member, or of the root; INT32_MAX: longer, or unknown. */
static int64_t longest_row(const row_plan *p, const int *members, int count, int64_t share) {
    rules *r = p->r;
    int64_t longest = p->shared >> p->v & 1 ? 1 : assumed_extent(r, &r->region->stages.data[p->root].axis[p->v], share);
    for (int i = 0; i < count; i++) {
        const tir_stage *m = &r->region->stages.data[members[i]];
        int64_t points = 1;
        for (int a = 0; a < m->space + m->reduce && points <= INT32_MAX; a++) {
            int64_t n = a < m->space && runs_along(p, members[i], a) ? 1 : assumed_extent(r, &m->axis[a], share);
            points = n > INT32_MAX ? n : points * n;
        }
        longest = points > longest ? points : longest;
    }
    return longest < INT32_MAX ? longest : INT32_MAX;
}

/* Sets *user if `e` converts a loaded or computed value to an index. */
static tir_expr meet_data(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const tir_node *node = tir_get(pool, e);
    *(bool *)user = *(bool *)user || (node->op == TIR_CAST && node->dtype == TIR_INDEX);
    return rebuilt;
}

bool rules_is_chosen_by_data(rules *r, int s) {
    rules_access access[RULES_ACCESSES];
    bool found = false;
    for (int q = s + 1; q < (int)r->region->stages.count && !found; q++) {
        if (r->region->stages.data[q].removed || r->group[q].root != r->group[s].root) continue;
        int count = rules_accesses(r, q, access, RULES_ACCESSES);
        found = count == RULES_ACCESSES;
        for (int i = 0; i < count && !found; i++)
            if (r->region->tensors.data[access[i].tensor].stage == s)
                tir_rewrite(r->region->pool, access[i].load, meet_data, &found);
    }
    return found;
}

/* Vectors that one row of a stage takes: contiguous parts along its innermost axis, each in vectors of its own. */
static int64_t row_vectors(const row_plan *p, int s) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    int64_t vectors = 1, inner = 1;
    for (int a = 0; a < stage->space; a++) {
        int64_t n = rules_extent_limit(p->r, &stage->axis[a]);
        if (n == 1 || runs_along(p, s, a)) continue;
        vectors *= inner;
        inner = n;
    }
    return vectors * ((inner + p->lanes - 1) / p->lanes);
}

/* Are all loops inside a row constant, so that they can be unrolled? A varying one may be a single vector, of which some lanes are active:
 * the innermost one of a member, the root's contiguous one. */
static bool unrolls(const row_plan *p, int s) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    bool varies = false;
    for (int a = stage->space + stage->reduce - 1; a >= 0; a--) {
        const tir_axis *axis = &stage->axis[a];
        if (rules_extent(p->r, axis) == 1 || (a < stage->space && runs_along(p, s, a))) continue;
        if (varies) return false;
        if (rules_extent(p->r, axis) >= 0) continue;
        if (a >= stage->space || rules_extent_limit(p->r, axis) > p->lanes) return false;
        if (s == p->root && (a != p->v || rules_store_stride(p->r, s, a) != 1)) return false;
        varies = true;
    }
    return true;
}

/* Number of vector registers for one row of a stage, or for one value a row; 0: it is not kept in registers. */
static int64_t row_registers(const row_plan *p, int s) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    int64_t points[TIR_MAX_AXES];
    int own = -1;
    for (int a = 0; a < stage->space; a++) {
        points[a] = runs_along(p, s, a) ? 1 : rules_extent_limit(p->r, &stage->axis[a]);
        if (points[a] != 1) own = a;
    }
    return rules_fits_registers(p->r, stage, own) ? rules_registers(p->r, s, points, own) : 0;
}

/* The most vector registers that rows of members take at once. */
static int64_t live_rows(const row_plan *p, const int *members, int count) {
    int *stages = LIB_NEW_ARRAY(p->r->arena, int, (size_t)count + 1);
    int64_t *vectors = LIB_NEW_ARRAY(p->r->arena, int64_t, (size_t)count + 1);
    for (int i = 0; i < count; i++) {
        stages[i] = members[i];
        vectors[i] = row_registers(p, members[i]);
    }
    stages[count] = p->root; /* the root's rows are stored to memory */
    return rules_live(p->r, stages, vectors, count + 1);
}

/* Do rows of all members fit in registers, with all loops unrolled? For three rows (two operands and a result) there must be space, and for
 * two more vectors. */
static bool row_fits(const row_plan *p, const int *members, int count) {
    int64_t registers = p->r->machine->vector_registers;
    int64_t most = row_vectors(p, p->root);
    bool constant = unrolls(p, p->root);
    for (int i = 0; i < count; i++) {
        int64_t vectors = row_vectors(p, members[i]);
        if (vectors > most) most = vectors;
        constant = constant && unrolls(p, members[i]);
    }
    return constant && most <= (registers - 2) / 3 && live_rows(p, members, count) <= registers;
}

static bool uses_lanes(const rules *r, const int *members, int count) {
    for (int i = 0; i < count; i++)
        if (has_lanes(r, members[i])) return true;
    return false;
}

/* Does a contraction run in the root's loops? It needs blocks of rows: a single row would use its operands once. */
static bool has_contraction(const rules *r, int root) {
    for (int s = 0; s < (int)r->region->stages.count; s++)
        if (!r->region->stages.data[s].removed && r->group[s].root == root && rules_is_contraction(r, s)) return true;
    return false;
}

/* Does an access run along the rows of stage s, which is the root or a member, and is it another one in each row? */
static bool is_row(const row_plan *p, int s, const rules_access *access) {
    const tir_stage *stage = &p->r->region->stages.data[s];
    bool along = false, across = false;
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        if (access->stride[a] == 0 || rules_extent(p->r, &stage->axis[a]) == 1) continue;
        const bool shared = s == p->root ? p->shared >> a & 1 : a < stage->space && runs_along(p, s, a);
        along = along || !shared;
        across = across || shared;
    }
    return along && across;
}

/* Bytes that the root and its members read for each element of a row: of all tensors but those of other members. */
static int64_t bytes_read(const row_plan *p, const int *members, int count) {
    rules *r = p->r;
    rules_access access[RULES_ACCESSES];
    bool *met = LIB_NEW_ARRAY(r->arena, bool, r->region->tensors.count);
    int64_t bytes = 0;
    for (int i = 0; i <= count; i++) {
        const int s = i < count ? members[i] : p->root, loads = rules_accesses(r, s, access, RULES_ACCESSES);
        for (int k = 0; k < loads; k++) {
            const tir_tensor *tensor = &r->region->tensors.data[access[k].tensor];
            const bool inside = tensor->stage >= 0 && r->group[tensor->stage].root == p->root;
            if (inside || met[access[k].tensor] || !is_row(p, s, &access[k])) continue;
            met[access[k].tensor] = true;
            bytes += (int64_t)lib_dtype_size(tensor->dtype);
        }
    }
    return bytes;
}

/* Does a reduction by lanes wait for the result of another one of the same row? */
static bool reduces_in_turn(const row_plan *p, const int *members, int count) {
    rules *r = p->r;
    rules_access access[RULES_ACCESSES];
    /* by stage: does its value depend on a reduction of these members? */
    bool *reduced = LIB_NEW_ARRAY(r->arena, bool, r->region->stages.count);
    for (int i = 0; i < count; i++) {
        const int s = members[i], loads = rules_accesses(r, s, access, RULES_ACCESSES);
        const bool reduces = r->region->stages.data[s].reduce > 0 && has_lanes(r, s);
        for (int k = 0; k < loads; k++) {
            const int producer = r->region->tensors.data[access[k].tensor].stage;
            reduced[s] = reduced[s] || (producer >= 0 && reduced[producer]);
        }
        if (reduces && reduced[s]) return true;
        reduced[s] = reduced[s] || reduces;
    }
    return false;
}

/* What the stages that run in the root's loops over rows (members) compute and keep for each row. */
typedef struct row_values {
    /* bytes that are kept; most values that a member has at a point */
    int64_t kept, values;
    /* functions are computed for each row, or roundings to a narrow type: vectors do this for several rows */
    bool costly;
} row_values;

/* Does the member have several points for each row? Reductions by lanes do not count: they have a few values. */
static bool is_along_rows(const row_plan *p, int s) {
    const tir_stage *m = &p->r->region->stages.data[s];
    bool whole = false;
    for (int a = 0; a < m->space && !has_lanes(p->r, s); a++)
        whole = whole || (!runs_along(p, s, a) && rules_extent(p->r, &m->axis[a]) != 1);
    return whole;
}

/* Rows are kept by maps along whole rows, of `longest` points; all other members have a few values per row. */
static row_values values_of_rows(const row_plan *p, const int *members, int count, int64_t longest) {
    const tir_region *region = p->r->region;
    const uint32_t result = region->stages.data[p->root].tensor[0];
    row_values v = {.values = 1, .costly = lib_dtype_is_narrow_float(region->tensors.data[result].dtype)};
    for (int i = 0; i < count; i++) {
        const tir_stage *m = &region->stages.data[members[i]];
        const bool whole = is_along_rows(p, members[i]);
        if (m->count > v.values) v.values = m->count;
        const bool map = !whole && m->kind == TIR_MAP;
        v.costly = v.costly || (map && tir_inline_cost_of(region, members[i], false).heavy > 0);
        if (whole) v.kept += longest * (int64_t)lib_dtype_size(region->tensors.data[m->tensor[0]].dtype);
    }
    return v;
}

/* At most `block` rows: so few that all threads have blocks, and if these are few, blocks of equal size if possible.
 * axis NULL: there is a single row. */
static int64_t even_rows(const row_plan *p, const tir_axis *axis, int64_t rows, int64_t block) {
    enum { MANY = 8 /* blocks */ };
    if (p->r->threads > 1 && block > rows / (2 * p->r->threads)) block = rows / (2 * p->r->threads);
    if (block < 2) return 1;
    if (axis && rules_extent(p->r, axis) < 0) return block < rows ? block : rows;
    int64_t blocks = (rows + block - 1) / block; /* the last block is a separate version */
    if (blocks > MANY) return block;
    for (int64_t less = block; less > block * 3 / 4; less--)
        if (rows % less == 0) return less;
    return blocks > 4 ? block : (rows + blocks - 1) / blocks;
}

/* How many rows to compute together to hide latency: 16, so that the scalars of their reductions fill vectors, fewer if L1 cannot hold the
 * rows. Rows that keep no values are loaded again in each step, which pays only if they are short: a long row is not latency-bound. Neither
 * is one of a few vectors whose reductions do not wait for each other, and of whose results nothing costly is computed: the processor begins the
 * next row before the sums are known. */
static int64_t rows_together(const row_plan *p, const int *members, int count, const tir_axis *axis) {
    enum { MOST = 16, LEAST_READ = 12, FEW = 3 /* vectors */, USUAL = 4 };
    /* varying sizes are assumed to be a quarter of the largest ones */
    const int64_t longest = longest_row(p, members, count, USUAL), rows = axis ? assumed_extent(p->r, axis, USUAL) : 1;
    const tir_machine *machine = p->r->machine;
    const int64_t cache = machine->l1, registers = machine->vector_registers;
    int64_t block = MOST;
    const row_values v = values_of_rows(p, members, count, longest);
    if (longest == INT32_MAX) return 1;
    while (block > 1 && block * v.values * 3 / 4 > registers - 2)
        block /= 2; /* two levels of folding: a half and a quarter */
    if (v.kept > 0) {
        const int64_t read = p->small ? 0 /* registers hold the row */ : longest * (machine->vector_bytes / p->lanes);
        while (block > 1 && block * (v.kept + read) > cache / 2) block /= 2;
    } else {
        const int64_t row = longest * bytes_read(p, members, count);
        if (LEAST_READ * row > cache / 2) return 1;
        const bool ends_alone = v.values == 1 && !v.costly && row_vectors(p, p->root) > 1;
        if (ends_alone && longest >= FEW * p->lanes && !reduces_in_turn(p, members, count)) return 1;
        if (block * row > cache / 2) block = LEAST_READ;
    }
    return even_rows(p, axis, rows, block);
}

static bool reads_tensor(rules *r, int s, uint32_t tensor) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        if (access[i].tensor == tensor) return true;
    return false;
}

/* Vectors that a member's points take if vectors run across `points` rows; 0: it is not kept in registers. */
static int64_t across_vectors(const row_plan *p, int s, int64_t points) {
    const rules *r = p->r;
    const tir_stage *stage = &r->region->stages.data[s];
    int along = rules_axis_labelled(r, s, p->v);
    for (int a = 0; a < stage->space; a++)
        if (a != along && rules_extent(r, &stage->axis[a]) != 1 && !runs_along(p, s, a)) return 0;
    if (!rules_fits_registers(r, stage, along)) return 0;
    int64_t held[TIR_MAX_AXES];
    for (int a = 0; a < stage->space; a++) held[a] = a == along ? points : 1;
    return rules_registers(r, s, held, along);
}

/* Rows computed together: four vectors of the root's rows, fewer if values of members would not fit the registers. If a single vector's would
 * not, values are in memory, four vectors of them. */
static int64_t across_block(row_plan *p, const int *members, int count) {
    rules *r = p->r;
    const int64_t registers = r->machine->vector_registers, least = p->lanes < 4 ? p->lanes : 4;
    int64_t block = 8 * p->lanes;
    int *stages = LIB_NEW_ARRAY(r->arena, int, (size_t)count + 1);
    int64_t *vectors = LIB_NEW_ARRAY(r->arena, int64_t, (size_t)count + 1);
    memcpy(stages, members, (size_t)count * sizeof *stages);
    stages[count] = p->root; /* the root's rows are stored to memory */
    do {
        block /= 2;
        for (int i = 0; i < count; i++) vectors[i] = across_vectors(p, members[i], block);
        p->in_memory = rules_live(r, stages, vectors, count + 1) > registers;
    } while (block > least && p->in_memory);
    return p->in_memory ? 4 * p->lanes : block;
}

/* Points of the blocked axis in a block, in whose loops a contraction runs: a divisor of the extent or, if the vectors of its register tile
 * run along that axis, whole tiles of so many columns (0: they do not). Rows of 2^k points in scratch would share sets of L1. */
static int64_t block_of(int64_t extent, int64_t columns) {
    enum { MOST = 64, LEAST = 16, USUAL = 32 };
    if (extent < 0) return USUAL;
    if (extent <= (columns ? MOST : USUAL)) return extent;
    if (columns) {
        int64_t tiles = columns < MOST ? MOST / columns : 1;
        const int64_t block = tiles * columns;
        if (tiles > 1 && (block & (block - 1)) == 0) tiles--;
        return tiles * columns;
    }
    for (int64_t block = MOST; block >= LEAST; block--)
        if (extent % block == 0) return block;
    return USUAL;
}

/* Writes the root's tasks, and starts its order: shared axes outside, then the loop over blocks. Sets p->loop, the innermost of these
 * loops. */
static void outer_loops(row_plan *p, lib_text *order, rules_tile_place *place) {
    rules *r = p->r;
    const tir_stage *top = &r->region->stages.data[p->root];
    lib_text parallel;
    lib_text_init(&parallel, r->arena);
    for (int a = 0; a < top->space; a++) {
        if (!(p->shared >> a & 1) || (p->across && a == p->v)) continue;
        const bool cut = p->beside && p->beside->axis == a;
        p->loop = a == p->block_axis ? "q_o" : loop_of(p, a);
        p->loop_axis = a == p->block_axis ? -1 : a;
        if (a != p->block_axis) place->prefix_axes |= 1u << a;
        lib_text_format(order, "%s %s", cut ? " chunk" : "", p->loop);
        lib_text_format(&parallel, " %s.%s", p->root_name, cut ? "chunk" : p->loop);
    }
    if (p->across && p->v_loop != top->axis[p->v].name) {
        lib_text_format(order, " %s", p->loop = "v_o");
        p->loop_axis = -1;
        lib_text_format(&parallel, " %s.v_o", p->root_name);
    }
    if (!p->shared) { /* there is a single row */
        lib_text_format(order, " %s", p->loop = "row");
        lib_text_format(&parallel, " %s.row", p->root_name);
    }
    tir_schedule_add(r->schedule, "par%s", parallel.data);
}

/* Points of a row of stage s, if s reduces rows to lanes, in steps; -1: another stage, or varying. */
static int64_t lane_points(const rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    int lane = stage->space - 1, step = stage->space + stage->reduce - 1;
    if (stage->kind != TIR_REDUCE || lane < 0 || !stage->reduce) return -1;
    if (stage->axis[lane].role != TIR_AXIS_LANE || stage->axis[step].role != TIR_AXIS_STEP) return -1;
    int64_t points = rules_extent(r, &stage->axis[lane]);
    for (int a = stage->space; a <= step && points >= 0; a++) {
        int64_t extent = rules_extent(r, &stage->axis[a]);
        if (extent < 0 || __builtin_mul_overflow(points, extent, &points)) return -1;
    }
    return points;
}

/* The stage in whose loop the next row is prefetched: the first map over the row that is cut into chunks, including the root; else the
 * last reduction by lanes that reads an input that another one read before it. */
static int fetching_stage(const row_plan *p, const int *members, int count) {
    rules *r = p->r;
    rules_access access[RULES_ACCESSES];
    for (int i = 0; i < count; i++)
        if (p->chunked[members[i]] && r->region->stages.data[members[i]].kind == TIR_MAP) return members[i];
    for (int i = count - 1; i > 0 && !p->chunked[p->root]; i--) {
        int found = lane_points(r, members[i]) < 0 ? 0 : rules_accesses(r, members[i], access, RULES_ACCESSES);
        for (int k = 0; k < found; k++)
            for (int m = 0; m < i && r->region->tensors.data[access[k].tensor].stage < 0; m++)
                if (lane_points(r, members[m]) >= 0 && reads_tensor(r, members[m], access[k].tensor)) return members[i];
    }
    return p->root;
}

/* The last axis of stage s that the root's innermost loop over rows, or over blocks of rows, goes through; -1: none. */
static int axis_across_rows(const row_plan *p, int s) {
    const rules_group *group = &p->r->group[s];
    int row = -1;
    for (int a = 0; a < p->r->region->stages.data[s].space; a++)
        if (group->label[a] >= 0 && (group->label[a] == p->block_axis || group->label[a] == p->loop_axis)) row = a;
    return row;
}

/* Prefetches the next row during this one: otherwise the first step of each row would stall on memory, which is idle during the other
 * steps. Returns whether there is anything to prefetch. */
static bool fetch_next_row(const row_plan *p, const int *members, int count) {
    rules *r = p->r;
    int s = fetching_stage(p, members, count), axis = p->chunked[s] - 1;
    const tir_stage *stage = &r->region->stages.data[s];
    int64_t extent = lane_points(r, s);
    bool by_lanes = extent >= 0, done = false;
    if (by_lanes)
        axis = stage->space - 1;
    else if (axis >= 0)
        extent = rules_extent(r, &stage->axis[axis]);
    if (p->across || p->small || !p->shared || axis < 0 || extent < 0) return false;
    rules_access access[RULES_ACCESSES];
    int found = rules_accesses(r, s, access, RULES_ACCESSES), row = axis_across_rows(p, s);
    for (int i = 0; i < found && row >= 0; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        int64_t bytes = extent * (int64_t)lib_dtype_size(tensor->dtype);
        bool along = access[i].stride[axis] == 1 && access[i].stride[row] != 0;
        if (tensor->stage >= 0 || !along || bytes > r->machine->l2 / 4) continue;
        tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s+1 %s", tensor->name, stage->name,
                         by_lanes ? "step" : "b_o", p->root_name, p->loop, bytes <= r->machine->l1 / 4 ? "L1" : "L2");
        done = true;
    }
    return done;
}

/* Partial sums by lanes over a long contiguous run that exceeds all caches: the hardware prefetcher stops at page boundaries, so the first
 * stage that reads the run prefetches it a page ahead. The bytes after a run are mostly the next run; if they are not, the run must be
 * long. */
static void fetch_ahead(const row_plan *p, const int *members, int index) {
    enum { RUNS = 8 };
    rules *r = p->r;
    const int64_t page = r->machine->page;
    int s = members[index];
    const tir_stage *stage = &r->region->stages.data[s];
    if (p->across || p->small || lane_points(r, s) < 0) return;
    int lane = stage->space - 1, step = stage->space + stage->reduce - 1;
    int64_t lanes = rules_extent(r, &stage->axis[lane]), steps = rules_extent(r, &stage->axis[step]);
    rules_access access[RULES_ACCESSES];
    int found = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < found; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        int64_t bytes = rules_bytes(r, tensor), each = lanes * (int64_t)lib_dtype_size(tensor->dtype);
        bool run = access[i].stride[lane] == 1 && access[i].stride[step] == lanes, next = false;
        for (int a = 0; a < stage->space + stage->reduce; a++) next = next || access[i].stride[a] == steps * lanes;
        for (int m = 0; m < index; m++) run = run && !reads_tensor(r, members[m], access[i].tensor);
        if (tensor->stage >= 0 || !run || bytes <= r->machine->l3 || each > page) continue;
        if (!next && steps * each < RUNS * page) continue;
        tir_schedule_add(r->schedule, "prefetch %s at %s.step %s.step+%lld L2", tensor->name, stage->name, stage->name,
                         (long long)(page / each));
    }
}

/* Writes the root's vector loop: across rows, over the rows of a block, or along its own axis. */
static void vectorise_root(row_plan *p) {
    rules *r = p->r;
    const tir_stage *top = &r->region->stages.data[p->root];
    const bool row_by_row = p->shared >> p->v & 1;
    if (p->across)
        tir_schedule_add(r->schedule, "vec %s.%s", top->name, p->v_loop);
    else if (p->block > 1 && !p->tiled && (rules_ends_tree(r, p->root) ? vector_level(p, p->root) >= 0 : row_by_row))
        tir_schedule_add(r->schedule, "vec %s.q_i", top->name);
    else if (!row_by_row && rules_store_stride(r, p->root, p->v) == 1) {
        vectorise_own_axis(p, p->root, p->v);
        const bool again =
            p->beside && tir_is_read_by_others(r->region, p->root, top->tensor[0]); /* by sums beside it */
        p->cached = again || !rules_store_past_caches(r, top);
    }
}

/* Writes the root's order and its vector loop. True: the root got a register tile, in which its pointwise members were placed. */
static bool root_loops(row_plan *p, lib_text *order, rules_tile_place *place) {
    rules *r = p->r;
    const tir_stage *top = &r->region->stages.data[p->root];
    place->prefix = order->data;
    place->prefix_last = p->loop;
    if (p->block > 1 && p->tiled && rules_tile_in(r, p->root, place)) return true;
    if (p->block_axis >= 0) lib_text_add(order, " q_i");
    for (int a = 0; a < top->space; a++)
        if (!(p->shared >> a & 1)) lib_text_format(order, " %s", a == p->v ? p->v_loop : top->axis[a].name);
    if (p->across) lib_text_format(order, " %s", p->v_loop);
    tir_schedule_add(r->schedule, "order %s:%s", top->name, order->data);
    vectorise_root(p);
    for (int a = 0; a < top->space && p->small && p->block == 1; a++)
        if (!(p->shared >> a & 1) && a != p->v && rules_extent(r, &top->axis[a]) != 1)
            tir_schedule_add(r->schedule, "unroll %s.%s", top->name, top->axis[a].name);
    return false;
}

/* ---- the root */

/* Points of the axis in a block, if memory holds blocks of it, innermost; else 0. */
static int64_t points_of_blocks(const rules *r, int s, int axis) {
    int dim;
    const int64_t points = rules_innermost_block(r, r->region->stages.data[s].tensor[0], &dim);
    return points && dim == axis ? points : 0;
}

/* Finds the axes that all members share with the root, the axis of its vectors (the last one, or that of blocks if it is shared), and the last
 * shared one, of whose points several may be computed together (p->block_axis). */
static void find_axes(row_plan *p, const int *members, int count) {
    rules *r = p->r;
    const tir_stage *top = &r->region->stages.data[p->root];
    for (int a = 0; a < top->space; a++) {
        const bool single = rules_extent(r, &top->axis[a]) == 1;
        bool shared = true;
        for (int i = 0; i < count; i++) shared = shared && (single || rules_axis_labelled(r, members[i], a) >= 0);
        p->shared |= (uint32_t)shared << a;
        if (!single || p->v < 0) p->v = a;
        if (shared && !single) p->block_axis = a;
    }
    for (int a = 0; a < top->space; a++)
        if ((p->shared >> a & 1) && points_of_blocks(r, p->root, a)) p->v = a;
}

/* Lanes of the root's vectors, or of the narrowest level of a tree that fills a vector: those of the reduced type, which may be wider. */
static int64_t narrowest_lanes(const rules *r, int root, const int *members, int count) {
    int64_t least = rules_lanes(r, root);
    for (int i = 0; i < count; i++) {
        const int64_t lanes = has_lanes(r, members[i]) ? rules_lanes(r, members[i]) : least;
        if (lanes < least) least = lanes;
    }
    return least;
}

/* Chooses whether rows are in registers. */
static void choose_registers(row_plan *p, const int *members, int count) {
    rules *r = p->r;
    const int64_t longest = longest_row(p, members, count, 1);
    p->small = !p->across && !p->tiled && longest <= RULES_REGISTER_VECTORS * p->lanes && row_fits(p, members, count);
    for (int i = 0; i < count; i++) p->chosen = p->chosen || rules_is_chosen_by_data(r, members[i]);
    p->small = p->small && !p->chosen;
    if (p->small) p->small = tir_choose_yes(r->schedule, p->root_name, "registers", true);
}

/* Most columns of the register tiles in the group's rows whose vectors run along the root's axis; 0: there are none. */
static int64_t columns_along(const row_plan *p, const int *members, int count, int axis) {
    int64_t most = rules_columns_along(p->r, p->root, axis);
    for (int i = 0; i < count; i++) {
        const int a = rules_axis_labelled(p->r, members[i], axis);
        const int64_t columns = a < 0 ? 0 : rules_columns_along(p->r, members[i], a);
        most = columns > most ? columns : most;
    }
    return most;
}

/* Chooses where a row is kept and how many rows are computed together. */
static void choose_block(row_plan *p, const int *members, int count) {
    enum { MOST = 64 /* rows, among the candidates */ };
    rules *r = p->r;
    const tir_stage *top = &r->region->stages.data[p->root];
    const int axis = p->block_axis;
    const bool lanes = !p->across && uses_lanes(r, members, count);
    const int64_t rows = axis < 0 ? 1 : rules_extent(r, &top->axis[axis]), most = rows < 0 || rows > MOST ? MOST : rows;
    p->block_axis = -1; /* until it is known that rows are computed together */
    choose_registers(p, members, count);
    if (p->tiled)
        p->block = block_of(rows, axis < 0 ? 0 : columns_along(p, members, count, axis));
    else if (lanes)
        p->block = rows_together(p, members, count, axis < 0 ? NULL : &top->axis[axis]);
    if (p->tiled || lanes)
        p->block = tir_choose_number(r->schedule, top->name, "together", (tir_numbers){1, most, 1}, p->block);
    if (p->block > 1 || p->tiled) p->block_axis = axis;
}

/* Splits the root's axes: vectors across rows (of a block, if memory holds blocks of them: more would be as many streams), blocks of rows; a
 * single row gets a loop of one iteration to attach members at. */
static void split_root(row_plan *p, const int *members, int count) {
    rules *r = p->r;
    const tir_stage *top = &r->region->stages.data[p->root];
    const int64_t extent = rules_extent(r, &top->axis[p->v]);
    const bool alone = p->shared == 1u << p->v; /* there is no other loop to attach members at */
    p->v_loop = top->axis[p->v].name;
    if (p->beside) rules_cut_rows(r, p->beside);
    if (p->across) {
        const tir_numbers widths = {p->lanes, 8 * p->lanes, p->lanes};
        const int64_t most = across_block(p, members, count), points = points_of_blocks(r, p->root, p->v),
                      own = points ? (points + p->lanes - 1) / p->lanes * p->lanes : most,
                      width = tir_choose_number(r->schedule, top->name, "together", widths, own < most ? own : most);
        if (extent < 0 || extent > width || alone) {
            tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i peel", top->name, p->v_loop,
                             (long long)(extent > 0 && extent < width ? extent : width));
            p->v_loop = "v_i";
        }
    }
    if (p->block_axis >= 0) {
        const int64_t rows = rules_extent(r, &top->axis[p->block_axis]), chunk = p->beside ? p->beside->rows : rows;
        const bool even = rows < 0 || (rows % chunk == 0 && chunk % p->block == 0);
        tir_schedule_add(r->schedule, "split %s.%s %lld -> q_o q_i %s", top->name, loop_of(p, p->block_axis),
                         (long long)p->block, even ? "mask" : "peel");
    }
    if (!p->shared) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> row in_row mask", top->name, p->v_loop, (long long)extent);
        p->v_loop = "in_row";
    }
}

/* Maps of the same points with several results: all of them may be stored past the caches. */
static void store_maps_past_caches(const row_plan *p, const int *members, int count) {
    rules *r = p->r;
    for (int i = 0; i < count; i++)
        if (!rules_pointwise(r, members[i])) return;
    for (int i = 0; i <= count; i++) {
        const int s = i < count ? members[i] : p->root;
        const tir_stage *stage = &r->region->stages.data[s];
        const int along = i < count ? rules_axis_labelled(r, s, p->v) : p->v;
        const bool written = stage->count == 1 && r->region->tensors.data[stage->tensor[0]].output;
        if (written && along >= 0 && rules_store_stride(r, s, along) == 1) rules_store_past_caches(r, stage);
    }
}

/* Finds the sums that run beside the root's rows: its only loop around single rows, or blocks of rows, is that along their axis. */
static void find_beside(row_plan *p) {
    const tir_stage *top = &p->r->region->stages.data[p->root];
    rules_beside *beside = rules_sums_beside(p->r, p->root);
    if (!beside || p->tiled || p->across || !(p->shared >> beside->axis & 1)) return;
    for (int a = 0; a < top->space; a++)
        if (a != beside->axis && (p->shared >> a & 1) && rules_extent(p->r, &top->axis[a]) != 1) return;
    p->beside = beside;
}

bool rules_rows(rules *r, int root) {
    const tir_stage *top = &r->region->stages.data[root];
    int *members, count = rules_members(r, root, &members);
    if (top->kind != TIR_MAP || count == 0 || top->space == 0) return false;
    row_plan p = {.r = r,
                  .loop_axis = -1,
                  .root = root,
                  .root_name = top->name,
                  .lanes = narrowest_lanes(r, root, members, count),
                  .v = -1,
                  .block = 1,
                  .block_axis = -1,
                  .tiled = has_contraction(r, root),
                  .chunked = LIB_NEW_ARRAY(r->arena, int, r->region->stages.count + 1)};
    find_axes(&p, members, count);
    const int64_t extent = rules_extent(r, &top->axis[p.v]);
    if (!p.shared && (extent < 1 || p.tiled)) return false;
    p.across = !p.tiled && p.shared >> p.v & 1 && extent != 1 && !uses_lanes(r, members, count);
    find_beside(&p);
    choose_block(&p, members, count);
    split_root(&p, members, count);
    lib_text order;
    lib_text_init(&order, r->arena);
    rules_tile_place place = {.block_axis = p.block_axis, .block_loop = "q_i", .block_extent = p.block};
    outer_loops(&p, &order, &place);
    place.rows_stage = p.root_name;
    place.rows_loop = p.loop;
    const bool tiled = root_loops(&p, &order, &place);
    const bool *inside = rules_in_tile(r, root);
    for (int i = 0; i < count; i++)
        if (!tiled || !inside[members[i]]) attach_row_member(&p, members[i]);
    if (p.beside) rules_write_beside(r, p.beside, p.loop, p.block);
    if (p.across) store_maps_past_caches(&p, members, count);
    if (!tiled && !fetch_next_row(&p, members, count))
        for (int i = 0; i < count; i++) fetch_ahead(&p, members, i);
    return true;
}
