/* Chains: contraction -> rows -> contraction (attention). The first contraction's result has rows q and columns k; maps and
 * reductions over k work on its rows; the second contraction sums over k. No value of size q*k is stored in memory: a block of rows passes
 * through all stages before the next block begins.
 *
 * The first result is stored transposed, [k][q], so that vectors run along the rows: its operand with k is broadcast from memory without
 * a copy, the other one is transposed once per block, reductions over k need no step across lanes, and the second contraction
 * broadcasts the weights of neighbouring rows. */
#include "targets/cpu/rules.h"

#include <math.h>

enum {
    ROWS_LEAST = 6,      /* rows from which on vectors along them pay */
    L2_SHARE = 4,        /* part of L2 for a block of scores: operands are streamed through it, too */
    MOST_SHARED = 5,     /* largest number of rows that are computed together */
    KEYS_TYPICAL = 1024, /* assumed if the extent varies */
    FEW_SUMS = 8         /* of a tile of few rows */
};

/* Stages by number, valid until the next rewrite; axes of the root by number, of members through their labels. */
typedef struct chain {
    /* the root, the contractions */
    int root, first, second;
    /* map in whose register tiles the first contraction runs */
    int scores;
    /* the root's axis that is blocked */
    int rows;
    /* the root's axis that vectors of the second contraction run along */
    int columns;
    /* axis of `scores` that is reduced: k */
    int own;
    /* neighbouring rows for which both contractions read the same operands; -1: varying */
    int64_t group;
    /* too few rows for vectors along them */
    bool few;
} chain;

static const tir_stage *stage_of(const rules *r, int s) {
    return &r->region->stages.data[s];
}

static int readers_of(rules *r, int s) {
    int count = 0;
    for (int q = s + 1; q < (int)r->region->stages.count; q++) count += tir_reads(r->region, q, s);
    return count;
}

static bool is_live_contraction(const rules *r, int s) {
    return !stage_of(r, s)->removed && stage_of(r, s)->fold < 0 && rules_is_contraction(r, s);
}

/* ---- finding */

void rules_give_maps(rules *r, const char *except) {
    enum { MOST = 8 };
    for (int s = 0, count = 0; s < (int)r->region->stages.count; s++) {
        if (!is_live_contraction(r, s) || (!tir_has_output(r->region, s) && readers_of(r, s) == 1)) continue;
        const char *name = stage_of(r, s)->name;
        if (except && rules_stage_named(r, except) == s) continue;
        if (count++ == MOST) return;
        rules_rewrite(r, "copy %s -> %s", name, rules_fresh_name(r, name, "_out"));
        s = rules_stage_named(r, name);
    }
}

/* The one axis of several points that is the member's own; -1: none, -2: several. */
static int own_axis(const rules *r, int s) {
    int own = -1;
    for (int a = 0; a < stage_of(r, s)->space; a++)
        if (r->group[s].label[a] < 0 && rules_extent(r, &stage_of(r, s)->axis[a]) != 1) own = own == -1 ? a : -2;
    return own;
}

/* Is s a stage in the root's loops, and not the root itself? */
static bool is_member(const rules *r, const chain *c, int s) {
    return !stage_of(r, s)->removed && s != c->root && r->group[s].root == c->root;
}

/* Have all members (stages in the root's loops) an axis that runs along the root's axis `axis`? */
static bool is_shared(const rules *r, const chain *c, int axis) {
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        if (!is_member(r, c, s)) continue;
        const rules_group *owner = &r->group[r->group[s].owner];
        bool has = false;
        for (int a = 0; a < stage_of(r, s)->space; a++) {
            int label = r->group[s].label[a];
            if (label >= 0 && r->group[s].owner != c->root) label = owner->label[label];
            has = has || label == axis;
        }
        if (!has) return false;
    }
    return true;
}

/* The axis of member s that runs along the root's axis `label`; -1: none. The first contraction has labels relative to `scores`, which owns
 * it. */
static int axis_along(const rules *r, const chain *c, int s, int label) {
    if (label < 0 || s != c->first) return rules_axis_labelled(r, s, label);
    int in_map = rules_axis_labelled(r, c->scores, label);
    return in_map < 0 ? -1 : rules_axis_labelled(r, s, in_map);
}

/* The first contraction's axis of keys. */
static int key_axis(const rules *r, const chain *c) {
    return rules_axis_labelled(r, c->first, c->own);
}

/* Do the operands of contraction s that depend on its axis `along` stay the same for `group` neighbouring points of the root's axis
 * `axis`? */
static bool is_reused(rules *r, const chain *c, int s, int along, int axis, int64_t group) {
    rules_access access[RULES_ACCESSES];
    tir_pool *pool = r->region->pool;
    int count = rules_accesses(r, s, access, RULES_ACCESSES), mine = axis_along(r, c, s, axis);
    int64_t extent = rules_extent(r, &stage_of(r, c->root)->axis[axis]);
    if (mine < 0) return true;
    tir_expr var = stage_of(r, s)->axis[mine].var;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[along] == 0 || !tir_uses(pool, access[i].load, var)) continue;
        if (extent < 0 || group == extent) return false;
        tir_expr outer = tir_var(pool, "group", TIR_VAR_AXIS, TIR_INDEX, 0, extent / group - 1);
        tir_expr inner = tir_var(pool, "member", TIR_VAR_AXIS, TIR_INDEX, 0, group - 1);
        tir_expr point = tir_add(pool, tir_mul(pool, outer, tir_index(pool, group)), inner);
        if (tir_uses(pool, tir_substitute(pool, access[i].load, 1, &var, &point), inner)) return false;
    }
    return true;
}

static bool operands_reused(rules *r, const chain *c, int axis, int64_t group) {
    return is_reused(r, c, c->first, key_axis(r, c), axis, group) &&
           is_reused(r, c, c->second, rules_axis_labelled(r, c->second, c->columns), axis, group);
}

/* Rows: the last axis, except the columns, along which both contractions read the same operands, or the axis with the
 * longest groups of points for which they do (heads that share keys). */
static void find_rows(rules *r, chain *c) {
    const tir_stage *root = stage_of(r, c->root);
    for (int a = 0; a < root->space; a++) {
        int64_t extent = rules_extent(r, &root->axis[a]);
        if (a != c->columns && extent != 1 && operands_reused(r, c, a, extent)) c->rows = a, c->group = extent;
    }
    for (int64_t group = MOST_SHARED; group > 1 && c->rows < 0; group--)
        for (int a = 0; a < root->space && c->rows < 0; a++) {
            int64_t extent = rules_extent(r, &root->axis[a]);
            if (a == c->columns || extent <= group || extent % group || !operands_reused(r, c, a, group)) continue;
            c->rows = a;
            c->group = group;
        }
}

/* Columns: the root's one axis that not all members have. Sets the rows, too. */
static bool find_axes(rules *r, chain *c) {
    const tir_stage *root = stage_of(r, c->root);
    c->rows = c->columns = -1;
    c->group = 1;
    c->own = own_axis(r, c->scores);
    if (c->own < 0) return false;
    for (int a = 0; a < root->space; a++) {
        if (rules_extent(r, &root->axis[a]) == 1 || is_shared(r, c, a)) continue;
        if (c->columns >= 0) return false;
        c->columns = a;
    }
    if (c->columns < 0) return false;
    find_rows(r, c);
    c->few = c->rows < 0 || (c->group > 0 && c->group < ROWS_LEAST);
    return true;
}

/* Is member s one of the contractions or an operation on rows: a map, or a reduction over one axis, with at most one axis of its own? */
static bool is_row_work(const rules *r, const chain *c, int s) {
    const tir_stage *stage = stage_of(r, s);
    if (s == c->first || s == c->second) return true;
    if (stage->kind != TIR_MAP && (stage->kind != TIR_REDUCE || stage->reduce != 1)) return false;
    if (rules_pointwise(r, s)) return false; /* at the root's own points: other rules schedule it */
    return (c->rows < 0 || rules_axis_labelled(r, s, c->rows) >= 0) && own_axis(r, s) != -2;
}

static bool find_chain(rules *r, int second, chain *c) {
    *c = (chain){.second = second, .root = r->group[second].owner, .first = -1, .scores = -1};
    if (c->root == second || r->group[c->root].root != c->root || stage_of(r, second)->reduce != 1) return false;
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        if (!is_member(r, c, s) || !rules_is_contraction(r, s) || s == second) continue;
        if (c->first >= 0 || r->group[s].owner == c->root) return false;
        c->first = s;
        c->scores = r->group[s].owner;
    }
    if (c->first < 0 || !find_axes(r, c)) return false;
    for (int s = 0; s < (int)r->region->stages.count; s++)
        if (is_member(r, c, s) && !is_row_work(r, c, s)) return false;
    return true;
}

/* ---- rewrites */

/* Rows last in the stage's buffer: `layout x (b, k, q)`. */
static void rows_last(rules *r, int s, int rows) {
    const tir_stage *stage = stage_of(r, s);
    bool last = true;
    for (int a = rows + 1; a < stage->space; a++) last = last && rules_extent(r, &stage->axis[a]) == 1;
    if (!last) rules_lay_out_last(r, stage->name, rows);
}

/* An input of the region that stage s loads across the rows (a dimension is indexed by them alone, and is not contiguous): a block of it at
 * a time will be copied, transposed. UINT32_MAX: none. */
static uint32_t operand_across(rules *r, const chain *c, int s) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), rows = axis_along(r, c, s, c->rows);
    for (int i = 0; i < count && rows >= 0; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        const bool across = access[i].stride[rows] != 0 && access[i].stride[rows] != 1;
        const bool plain = tir_plain_dimension(r->region, &access[i], stage_of(r, s)->axis[rows].var) >= 0;
        if (across && plain && tensor->stage < 0 && tensor->rank > 1) return access[i].tensor;
    }
    return UINT32_MAX;
}

static void copy_across(rules *r, rules_chain *out, const chain *c, int s, uint32_t tensor) {
    const char *source = r->region->tensors.data[tensor].name, *copy = rules_fresh_name(r, source, "_rows");
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), rows = axis_along(r, c, s, c->rows), dim = -1;
    int own = s == c->first ? key_axis(r, c) : own_axis(r, s);
    bool keys = false;
    for (int i = 0; i < count; i++) {
        if (access[i].tensor != tensor) continue;
        const int plain = tir_plain_dimension(r->region, &access[i], stage_of(r, s)->axis[rows].var);
        keys = keys || (own >= 0 && access[i].stride[own] != 0);
        if (plain >= 0) dim = plain;
    }
    rules_rewrite(r, "copy %s -> %s", source, copy);
    rows_last(r, rules_stage_named(r, copy), dim);
    lib_vec_push(r->arena, &out->copies, ((rules_chain_copy){copy, dim, keys}));
}

static bool chain_again(rules *r, const rules_chain *out, chain *c) {
    return find_chain(r, rules_stage_named(r, out->second), c);
}

/* Reductions that the root reads (one row at a time) or that are outputs get a copy in memory, because the reductions end in registers. */
static void copy_statistics(rules *r, const rules_chain *out) {
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        chain c;
        if (!chain_again(r, out, &c)) return;
        const tir_stage *stage = stage_of(r, s);
        if (stage->removed || r->group[s].root != c.root || stage->kind != TIR_REDUCE || s == c.second) continue;
        if (!tir_reads(r->region, c.root, s) && !tir_has_output(r->region, s)) continue;
        const char *name = stage->name;
        rules_rewrite(r, "copy %s -> %s", name, rules_fresh_name(r, name, "_row"));
        s = rules_stage_named(r, name);
    }
}

/* Reductions whose points are neutral at some positions (a causal mask) get a predicate, and loops will be clipped to it. */
static void find_predicates(rules *r, const rules_chain *out) {
    chain c;
    for (int s = 0; s < (int)r->region->stages.count && chain_again(r, out, &c); s++) {
        if (stage_of(r, s)->removed || r->group[s].root != c.root || stage_of(r, s)->predicate) continue;
        if (tir_where_condition(r->region, s)) rules_rewrite(r, "where %s", stage_of(r, s)->name);
    }
}

static int64_t block_of_keys(rules *r, const rules_chain *plan);
static void make_blocks(rules *r, rules_chain *out);

/* Is s a map of the chain with an axis of keys, other than the scores? */
static bool is_between(const rules *r, const chain *c, int s) {
    const tir_stage *stage = stage_of(r, s);
    if (stage->removed || stage->kind != TIR_MAP || s == c->root || s == c->scores || r->group[s].root != c->root)
        return false;
    return own_axis(r, s) >= 0;
}

static void prepare(rules *r, rules_chain *out) {
    chain c;
    find_predicates(r, out);
    copy_statistics(r, out);
    out->block = block_of_keys(r, out);
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        if (!chain_again(r, out, &c)) return;
        if (!is_member(r, &c, s) || s == c.second) continue;
        const char *name = stage_of(r, s)->name;
        for (uint32_t t; (t = operand_across(r, &c, s)) != UINT32_MAX;) {
            copy_across(r, out, &c, s, t);
            s = rules_stage_named(r, name);
            if (!chain_again(r, out, &c)) return;
        }
        if (!out->block || !is_between(r, &c, s)) rows_last(r, s, axis_along(r, &c, s, c.rows));
    }
    if (out->block) make_blocks(r, out);
}

/* ---- few rows: keys are streamed once, unpacked. Products with a key are summed by lanes, weighted values along vectors. */

/* A part of the first contraction after its division into lanes: partial sums, levels of the tree, the sum. */
static bool is_first_part(rules *r, const rules_chain *plan, int s) {
    return rules_end_of_tree(r, s) == rules_stage_named(r, plan->first);
}

/* The reduction axis of the first contraction, if it is the only one and both operands are contiguous along it; -1: otherwise. */
static int lane_axis(rules *r, const chain *c) {
    const tir_stage *first = stage_of(r, c->first);
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, c->first, access, RULES_ACCESSES);
    if (first->reduce != 1 || first->predicate || count != 2) return -1;
    for (int i = 0; i < count; i++)
        if (access[i].stride[first->space] != 1) return -1;
    return rules_extent(r, &first->axis[first->space]) >= rules_lanes(r, c->first) ? first->space : -1;
}

static bool suits_few(rules *r, const chain *c) {
    const tir_stage *second = stage_of(r, c->second), *root = stage_of(r, c->root);
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, c->second, access, RULES_ACCESSES), prefix = 0;
    int columns = rules_axis_labelled(r, c->second, c->columns);
    for (int i = 0; i < count; i++)
        if (access[i].stride[columns] != 0 && access[i].stride[columns] != 1) return false;
    for (int a = 0; a < root->space; a++) prefix += a != c->columns && a != c->rows;
    return lane_axis(r, c) >= 0 && second->space == root->space &&
           (prefix || c->group != rules_extent(r, &root->axis[c->rows]));
}

static void prepare_few(rules *r, const chain *c, rules_chain *out) {
    int axis = lane_axis(r, c), rows = axis_along(r, c, c->first, c->rows);
    const tir_stage *first = stage_of(r, c->first);
    out->few = true;
    out->first = first->name;
    out->scores = stage_of(r, c->scores)->name;
    out->first_rows = rows;
    out->first_keys = key_axis(r, c);
    out->rows = c->rows;
    out->columns = c->columns;
    out->own = c->own;
    out->group = c->group;
    const char *keys = first->axis[axis].name;
    find_predicates(r, out);
    rules_rewrite(r, "rfactor %s.%s %lld lanes -> %s lane step", out->first, keys,
                  (long long)rules_lanes(r, rules_stage_named(r, out->first)), rules_fresh_name(r, out->first, "_p"));
    rules_rewrite(r, "tree %s.lane", out->first);
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        const char *name = stage_of(r, s)->name;
        bool mine = r->group[s].root == rules_stage_named(r, out->root) && !is_first_part(r, out, s);
        if (stage_of(r, s)->removed || !mine || s == rules_stage_named(r, out->second)) continue;
        rules_prepare_rows(r, s);
        s = rules_stage_named(r, name);
    }
}

/* Are the contractions layers: is there no reduction of rows between them, and do the rows of the first one's result stay in L2? Their blocks
 * need no transposed copies then, and have tiles of their own (rules_rows.c): 0.76 to 0.99 of the time. */
static bool are_layers(const rules *r, const chain *c) {
    enum { ROWS = 64 };
    const tir_stage *scores = stage_of(r, c->scores);
    const int64_t keys = rules_extent(r, &scores->axis[c->own]);
    if (c->few || keys < 0) return false;
    for (int s = 0; s < (int)r->region->stages.count; s++)
        if (is_member(r, c, s) && stage_of(r, s)->kind == TIR_REDUCE && s != c->first && s != c->second) return false;
    return keys * ROWS * (int64_t)lib_dtype_size(r->region->tensors.data[scores->tensor[0]].dtype) <=
           r->machine->l2 / L2_SHARE;
}

void rules_prepare_chains(rules *r) {
    int contractions = 0;
    for (int s = 0; s < (int)r->region->stages.count; s++) contractions += is_live_contraction(r, s);
    if (contractions != 2) return;
    rules_give_maps(r, NULL);
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        chain c;
        if (!is_live_contraction(r, s) || !find_chain(r, s, &c) || (c.few && !suits_few(r, &c))) continue;
        if (!tir_choose_yes(r->schedule, stage_of(r, c.root)->name, "chain", !are_layers(r, &c))) continue;
        rules_chain *out = LIB_NEW(r->arena, rules_chain);
        out->root = stage_of(r, c.root)->name;
        out->second = stage_of(r, c.second)->name;
        if (c.few)
            prepare_few(r, &c, out);
        else
            prepare(r, out);
        r->chain = out;
        return;
    }
}

/* Is s the fold over blocks of keys, one of its steps, or the first contraction or the scores of a block? */
static bool in_blocks(const rules *r, const rules_chain *plan, int s) {
    const tir_stage *stage = stage_of(r, s);
    int fold = rules_stage_named(r, plan->fold);
    return s == fold || stage->fold == fold || s == rules_stage_named(r, plan->scores) ||
           s == rules_stage_named(r, plan->first);
}

bool rules_in_chain(rules *r, int s) {
    if (!r->chain) return false;
    int root = rules_stage_named(r, r->chain->root);
    if (s == root || r->group[s].root == root || (r->chain->few && is_first_part(r, r->chain, s))) return true;
    if (r->chain->fold && in_blocks(r, r->chain, s)) return true;
    for (uint32_t i = 0; i < r->chain->copies.count; i++)
        if (rules_stage_named(r, r->chain->copies.data[i].name) == s) return true;
    return false;
}

/* ---- loops */

typedef struct chain_loops {
    rules *r;
    const chain *c;
    /* name */
    const char *root;
    /* the stage and its loop at which the scores are attached */
    const char *stage, *loop;
    /* elements of a vector; rows of a block */
    int64_t lanes, block;
} chain_loops;

/* Chooses a register tile, *mr by *nv vectors, for `height` by `vectors` of them (-1: varying): enough sums to hide the latency, few loads
 * per product, little waste in the last tiles. `whole`: *nv = vectors. `sums`: contractions whose sums are in registers together. */
static void choose_tile(const rules *r, int64_t height, int64_t vectors, bool whole, int sums, int64_t *mr,
                        int64_t *nv) {
    int64_t registers = r->machine->vector_registers;
    const tir_rates *rates = &r->machine->rates;
    double best = 1e300;
    if (height < 0) height = KEYS_TYPICAL;
    if (vectors < 0) vectors = 4;
    for (int64_t n = whole ? vectors : 1; n <= vectors && n <= 8; n++)
        for (int64_t m = 1; m <= height && sums * m * n + n + 1 <= registers && m * n <= 24; m++) {
            double products = (double)(m * n) / rates->fma, loads = (double)(m + n) / rates->load;
            double step = fmax(rates->latency, fmax(products, loads));
            double tiles = (double)((height + m - 1) / m) * (double)((vectors + n - 1) / n);
            double cost =
                tiles * (step + rates->exposed_units * loads) * (height % m ? 1.02 : 1) * (vectors % n ? 1.02 : 1);
            if (cost < best * 0.999) best = cost, *mr = m, *nv = n;
        }
}

void rules_fit_tile(const rules *r, int64_t height, int64_t vectors, int sums, int64_t *mr, int64_t *nv) {
    choose_tile(r, height, vectors, false, sums, mr, nv);
}

/* The number of rows computed together: a few vectors, so that broadcasts and panels are reused often, with little waste after the last
 * row. *peel: the last block gets code of its own. */
static int64_t choose_block(const chain_loops *l, int64_t rows, bool *peel) {
    static const double load[] = {0, 1.15, 1.03, 1.01, 1};
    double least = 1e300;
    int64_t block = 4, vectors = rows < 0 ? 4 : (rows + l->lanes - 1) / l->lanes;
    for (int64_t v = 4; v >= 1; v--) {
        double cost = (double)((vectors + v - 1) / v * v) * load[v];
        if (cost < least * 0.999) least = cost, block = v;
    }
    int64_t whole = (vectors + block - 1) / block * block;
    *peel = rows > 0 && vectors > 4 && (double)whole > 1.06 * (double)vectors;
    if (*peel) block = 4;
    return block * l->lanes;
}

/* Orders the stage's loops: its axes except those in `inner`, then `tail`. */
static void order_line(const rules *r, int s, uint32_t inner, const char *tail) {
    tir_schedule_add(r->schedule, "order %s:%s %s", stage_of(r, s)->name,
                     tir_loops_but(r->arena, stage_of(r, s), inner), tail);
}

/* The name of the stage's loop along the axis, after a blank; "": axis -1. */
static const char *loop_along(const rules *r, int s, int axis) {
    return axis < 0 ? "" : lib_arena_format(r->arena, " %s", stage_of(r, s)->axis[axis].name);
}

static void clip_reduction(const rules *r, int s) {
    const tir_stage *stage = stage_of(r, s);
    for (int a = stage->space; a < stage->space + stage->reduce && stage->predicate; a++)
        if (tir_uses(r->region->pool, stage->predicate, stage->axis[a].var))
            tir_schedule_add(r->schedule, "clip %s.%s", stage->name, stage->axis[a].name);
}

void rules_attach_contraction(const rules *r, int s, const char *at, const char *loop, int high, int wide) {
    const tir_stage *stage = stage_of(r, s);
    tir_schedule *out = r->schedule;
    tir_schedule_add(out, "at %s %s.%s", stage->name, at, loop);
    tir_schedule_add(out, "store %s reg", stage->name);
    tir_schedule_add(out, "order %s:%s%s%s", stage->name,
                     tir_loops_but(r->arena, stage, tir_axis_bit(high) | tir_axis_bit(wide)), loop_along(r, s, high),
                     loop_along(r, s, wide));
    tir_schedule_add(out, "vec %s.%s", stage->name, stage->axis[wide].name);
    if (high >= 0) tir_schedule_add(out, "unroll %s.%s", stage->name, stage->axis[high].name);
    clip_reduction(r, s);
}

void rules_transposed_loops(const rules *r, int s, int across, int along) {
    const tir_stage *stage = stage_of(r, s);
    const long long lanes = (long long)rules_lanes(r, s);
    tir_schedule *out = r->schedule;
    tir_schedule_add(out, "split %s.%s %lld -> t_o t_i mask", stage->name, stage->axis[across].name, lanes);
    tir_schedule_add(out, "split %s.%s %lld -> s_o s_i mask", stage->name, stage->axis[along].name, lanes);
    order_line(r, s, tir_axis_bit(across) | tir_axis_bit(along), "t_o s_o t_i s_i");
    tir_schedule_add(out, "unroll %s.t_i", stage->name);
    tir_schedule_add(out, "vec %s.s_i", stage->name);
}

/* A transposed block of an operand, rows innermost: tiles of the size of the registers along both axes. */
static void attach_copy(const chain_loops *l, const rules_chain_copy *copy) {
    int s = rules_stage_named(l->r, copy->name), along = -1;
    const tir_stage *stage = stage_of(l->r, s);
    tir_schedule *out = l->r->schedule;
    bool inside = copy->keys && l->r->chain->fold;
    tir_schedule_add(out, "at %s %s.%s", copy->name, inside ? l->stage : l->root, inside ? l->loop : "q_o");
    tir_schedule_add(out, "store %s local", copy->name);
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(l->r, s, access, RULES_ACCESSES);
    if (count == 1) along = tir_contiguous_axis(l->r->region, stage, &access[0], copy->rows);
    int64_t lanes = rules_lanes(l->r, s), extent = along < 0 ? 1 : rules_extent(l->r, &stage->axis[along]);
    if (lib_dtype_size(l->r->region->tensors.data[stage->tensor[0]].dtype) != 4 || (extent > 0 && extent < lanes)) {
        order_line(l->r, s, tir_axis_bit(copy->rows), stage->axis[copy->rows].name);
        return;
    }
    rules_transposed_loops(l->r, s, copy->rows, along);
}

/* Has a stage of the chain (with a fold: a step) a predicate? Then a block has only the keys that its rows use, a varying number. */
static bool has_predicate(const chain_loops *l) {
    int fold = l->r->chain->fold ? rules_stage_named(l->r, l->r->chain->fold) : -1;
    for (int s = 0; s < (int)l->r->region->stages.count; s++) {
        const tir_stage *stage = stage_of(l->r, s);
        bool member = fold >= 0 ? stage->fold == fold : l->r->group[s].root == l->c->root;
        if (!stage->removed && member && stage->predicate) return true;
    }
    return false;
}

/* Attaches `scores` and, in its tiles, the first contraction. `rows`: the map's axis of rows; `keys`: the number of keys at a time, -1:
 * varying. */
static void attach_scores(const chain_loops *l, int rows, int64_t keys) {
    const chain *c = l->c;
    const tir_stage *scores = stage_of(l->r, c->scores);
    tir_schedule *out = l->r->schedule;
    int64_t mr = 1, nv = 1;
    choose_tile(l->r, keys, l->block / l->lanes, true, 1, &mr, &nv);
    tir_schedule_add(out, "at %s %s.%s", scores->name, l->stage, l->loop);
    tir_schedule_add(out, "store %s local", scores->name);
    tir_schedule_add(out, "split %s.%s %lld -> k_o k_i %s", scores->name, scores->axis[c->own].name, (long long)mr,
                     keys < 0 || keys % mr == 0 || has_predicate(l) ? "mask" : "balanced");
    order_line(l->r, c->scores, tir_axis_bit(rows) | tir_axis_bit(c->own),
               lib_arena_format(l->r->arena, "k_o k_i %s", scores->axis[rows].name));
    tir_schedule_add(out, "unroll %s.k_i", scores->name);
    tir_schedule_add(out, "vec %s.%s", scores->name, scores->axis[rows].name);
    rules_attach_contraction(l->r, c->first, scores->name, "k_o", rules_axis_labelled(l->r, c->first, c->own),
                             rules_axis_labelled(l->r, c->first, rows));
}

/* Attaches a map or reduction of the rows, with vectors across rows and serial loops along them. Steps of a fold run in the fold's
 * loops. */
static void attach_row_work(const chain_loops *l, int s, int rows) {
    const tir_stage *stage = stage_of(l->r, s);
    const char *name = stage->axis[rows].name;
    if (stage->fold < 0) tir_schedule_add(l->r->schedule, "at %s %s.q_o", stage->name, l->root);
    tir_schedule_add(l->r->schedule, "store %s %s", stage->name, stage->kind == TIR_REDUCE ? "reg" : "local");
    order_line(l->r, s, tir_axis_bit(rows), name);
    tir_schedule_add(l->r->schedule, "vec %s.%s", stage->name, name);
    clip_reduction(l->r, s);
}

static void split_rows(chain_loops *l) {
    const tir_stage *root = stage_of(l->r, l->c->root);
    const tir_axis *rows = &root->axis[l->c->rows];
    bool peel;
    l->block = choose_block(l, rules_extent(l->r, rows), &peel);
    tir_schedule_add(l->r->schedule, "split %s.%s %lld -> q_o q_i %s", l->root, rows->name, (long long)l->block,
                     peel ? "peel" : "mask");
}

/* Order and tasks of the root: a task is a block of rows, in which the loops `inside` run. */
static void order_root(const chain_loops *l, const char *inside) {
    const tir_stage *root = stage_of(l->r, l->c->root);
    lib_text parallel;
    lib_text_init(&parallel, l->r->arena);
    for (int a = 0; a < root->space; a++)
        if (a != l->c->rows && a != l->c->columns) lib_text_format(&parallel, " %s.%s", l->root, root->axis[a].name);
    order_line(l->r, l->c->root, tir_axis_bit(l->c->rows) | tir_axis_bit(l->c->columns),
               lib_arena_format(l->r->arena, "q_o %s", inside));
    tir_schedule_add(l->r->schedule, "par%s %s.q_o", parallel.data ? parallel.data : "", l->root);
}

/* The root: blocks of rows are tasks; inside, tiles of the second contraction. */
static void root_loops(chain_loops *l) {
    rules *r = l->r;
    const chain *c = l->c;
    const tir_stage *root = stage_of(r, c->root);
    tir_schedule *out = r->schedule;
    int64_t columns = rules_extent(r, &root->axis[c->columns]), mr = 1, nv = 1;
    split_rows(l);
    choose_tile(r, l->block, columns < 0 ? -1 : (columns + l->lanes - 1) / l->lanes, false, 1, &mr, &nv);
    tir_schedule_add(out, "split %s.q_i %lld -> u_o u_i mask", l->root, (long long)mr);
    const char *wide = root->axis[c->columns].name, *loop = "u_o";
    bool split = columns < 0 || columns > nv * l->lanes;
    if (split) tir_schedule_add(out, "split %s.%s %lld -> v_o v_i mask", l->root, wide, (long long)(nv * l->lanes));
    if (split) wide = "v_i", loop = "v_o";
    order_root(l, lib_arena_format(r->arena, "u_o%s u_i %s", split ? " v_o" : "", wide));
    tir_schedule_add(out, "vec %s.%s", l->root, wide);
    tir_schedule_add(out, "unroll %s.u_i", l->root);
    rules_attach_contraction(r, c->second, l->root, loop, rules_axis_labelled(r, c->second, c->rows),
                             rules_axis_labelled(r, c->second, c->columns));
}

/* ---- blocks of keys: for rows of scores that exceed L2 */

/* Bytes for each key of a block of `rows` rows: of the scores, and of the maps with an axis of keys. */
static int64_t bytes_of_key(rules *r, const chain *c, int64_t rows) {
    int64_t bytes = 0;
    for (int s = 0; s < (int)r->region->stages.count; s++)
        if (s == c->scores || is_between(r, c, s))
            bytes += rows * (int64_t)lib_dtype_size(r->region->tensors.data[stage_of(r, s)->tensor[0]].dtype);
    return bytes;
}

/* The line that makes the chain a fold over blocks of keys, from its first reduction over keys on; the second contraction is the fold if
 * there is no such reduction. */
static const char *online_line(const rules *r, const chain *c, int64_t block, const char *fold) {
    int s = 0;
    while (s != c->second && (stage_of(r, s)->removed || stage_of(r, s)->kind != TIR_REDUCE || s == c->first ||
                              r->group[s].root != c->root))
        s++;
    const tir_stage *stage = stage_of(r, s);
    return lib_arena_format(r->arena, "online %s.%s %lld -> %s key_block", stage->name, stage->axis[stage->space].name,
                            (long long)block, fold);
}

/* After the rewrite: is the second contraction in the fold, and are the scores and the maps of scores read inside the fold only? */
static bool is_whole(rules *r, const char *fold_name, const char *second, const char *scores,
                     const char *const *between, int count) {
    int fold = rules_stage_named(r, fold_name);
    int sum = rules_stage_named(r, lib_arena_format(r->arena, "%s_b", second));
    if (fold < 0 || sum < 0 || stage_of(r, sum)->fold != fold || stage_of(r, sum)->reduce != 1) return false;
    for (int i = -1; i < count; i++) {
        int s = rules_stage_named(r, i < 0 ? scores : between[i]);
        if (s < 0 || tir_has_output(r->region, s)) return false;
        for (int q = s + 1; q < (int)r->region->stages.count; q++) {
            if (!tir_reads(r->region, q, s) || (i < 0 && stage_of(r, q)->fold == fold)) continue;
            bool known = false;
            for (int k = 0; k < count; k++) known = known || rules_stage_named(r, between[k]) == q;
            if (!known) return false;
        }
    }
    return true;
}

static int names_between(const rules *r, const chain *c, const char **names) {
    int count = 0;
    for (int s = 0; s < (int)r->region->stages.count; s++)
        if (is_between(r, c, s)) names[count++] = stage_of(r, s)->name;
    return count;
}

/* Blocks of at most `most` keys: of equal lengths and full tiles, if these are not much shorter. */
static int64_t even_block(int64_t keys, int64_t most) {
    enum { TILE = 24 }; /* about the height of a tile */
    int64_t least = most > 0 ? (keys + most - 1) / most : keys;
    for (int64_t count = least; count <= 2 * least && count * TILE <= keys; count++)
        if (keys % (count * TILE) == 0) return keys / count;
    for (int64_t count = least; count <= 2 * least && count * TILE <= keys; count++)
        if (keys % (count * 4) == 0) return keys / count;
    int64_t block = (keys + least - 1) / least;
    return (block + TILE - 1) / TILE * TILE;
}

/* Keys of a block; 0: whole rows, because they are short or because `online` does not apply. */
static int64_t block_of_keys(rules *r, const rules_chain *plan) {
    chain c;
    if (!chain_again(r, plan, &c)) return 0;
    chain_loops l = {.r = r, .c = &c, .lanes = rules_lanes(r, c.first)};
    bool peel;
    int64_t rows = choose_block(&l, rules_extent(r, &stage_of(r, c.root)->axis[c.rows]), &peel);
    int64_t keys = rules_extent(r, &stage_of(r, c.scores)->axis[c.own]), bytes = bytes_of_key(r, &c, rows);
    if (keys < 0) return 0;
    const tir_numbers blocks_of = {0, keys, 8};
    const int64_t block =
        tir_choose_number(r->schedule, plan->root, "keys", blocks_of,
                          keys * bytes <= r->machine->l2 ? 0 : even_block(keys, r->machine->l2 / L2_SHARE / bytes));
    if (!block) return 0;
    const char *fold = rules_fresh_name(r, plan->second, "_fold");
    const char **between = LIB_NEW_ARRAY(r->arena, const char *, r->region->stages.count + 1);
    int count = names_between(r, &c, between);
    const char *second = stage_of(r, c.second)->name, *scores = stage_of(r, c.scores)->name;
    rules trial = *r;
    trial.region = tir_try_line(NULL, r->region, "%s", online_line(r, &c, block, fold));
    return trial.region && is_whole(&trial, fold, second, scores, between, count) ? block : 0;
}

static void make_blocks(rules *r, rules_chain *out) {
    chain c;
    if (!chain_again(r, out, &c)) return;
    const char **between = LIB_NEW_ARRAY(r->arena, const char *, r->region->stages.count + 1);
    int count = names_between(r, &c, between);
    out->fold = rules_fresh_name(r, out->second, "_fold");
    out->first = stage_of(r, c.first)->name;
    out->scores = stage_of(r, c.scores)->name;
    out->rows = c.rows;
    out->columns = c.columns;
    out->own = c.own;
    out->score_rows = rules_axis_labelled(r, c.scores, c.rows);
    out->fold_rows = rules_axis_labelled(r, c.second, c.rows);
    out->sum_columns = rules_axis_labelled(r, c.second, c.columns) + 1;
    rules_rewrite(r, "%s", online_line(r, &c, out->block, out->fold));
    for (int i = count - 1; i >= 0; i--) rules_rewrite(r, "inline %s", between[i]);
    int fold = rules_stage_named(r, out->fold);
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        const tir_stage *stage = stage_of(r, s);
        if (stage->removed || stage->fold != fold || stage->kind != TIR_MAP) continue;
        if (rules_extent(r, &stage->axis[stage->space - 1]) == out->block) rows_last(r, s, out->fold_rows);
    }
}

/* The step for the new sums: the rescaled old sums plus the sums of the block, which are computed in its register tiles. */
static void sum_loops(const chain_loops *l, const char *second) {
    rules *r = l->r;
    const rules_chain *plan = r->chain;
    const char *sum = lib_arena_format(r->arena, "%s_n", second);
    const tir_stage *stage = stage_of(r, rules_stage_named(r, sum));
    const char *rows = stage->axis[plan->fold_rows].name, *wide = stage->axis[plan->sum_columns].name;
    int64_t columns = rules_extent(r, &stage->axis[plan->sum_columns]), mr = 1, nv = 1;
    choose_tile(r, l->block, columns < 0 ? -1 : (columns + l->lanes - 1) / l->lanes, false, 1, &mr, &nv);
    bool split = columns < 0 || columns > nv * l->lanes;
    tir_schedule_add(r->schedule, "store %s local", sum);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> u_o u_i mask", sum, rows, (long long)mr);
    if (split) tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i mask", sum, wide, (long long)(nv * l->lanes));
    if (split) wide = "v_i";
    order_line(r, rules_stage_named(r, sum), tir_axis_bit(plan->fold_rows) | tir_axis_bit(plan->sum_columns),
               lib_arena_format(r->arena, "u_o%s u_i %s", split ? " v_o" : "", wide));
    tir_schedule_add(r->schedule, "vec %s.%s", sum, wide);
    tir_schedule_add(r->schedule, "unroll %s.u_i", sum);
    rules_attach_contraction(r, rules_stage_named(r, lib_arena_format(r->arena, "%s_b", second)), sum,
                             split ? "v_o" : "u_o", plan->fold_rows, plan->sum_columns);
}

static void fold_loops(const chain_loops *l, int fold) {
    const tir_stage *stage = stage_of(l->r, fold);
    tir_schedule_add(l->r->schedule, "at %s %s.q_o", stage->name, l->root);
    tir_schedule_add(l->r->schedule, "store %s local", stage->name);
    order_line(l->r, fold, tir_axis_bit(l->r->chain->fold_rows), stage->axis[l->r->chain->fold_rows].name);
    if (tir_has_load(l->r->region->pool, stage->predicate, 0)) clip_reduction(l->r, fold);
}

static bool blocks_of_keys(rules *r, int root) {
    const rules_chain *plan = r->chain;
    int fold = rules_stage_named(r, plan->fold), scores = rules_stage_named(r, plan->scores);
    chain c = {.root = root,
               .scores = scores,
               .first = rules_stage_named(r, plan->first),
               .rows = plan->rows,
               .columns = plan->columns,
               .own = plan->own};
    chain_loops l = {.r = r, .c = &c, .root = stage_of(r, root)->name, .stage = plan->fold, .loop = "key_block"};
    l.lanes = rules_lanes(r, c.first);
    split_rows(&l);
    const char *wide = stage_of(r, root)->axis[plan->columns].name;
    order_root(&l, lib_arena_format(r->arena, "q_i %s", wide));
    tir_schedule_add(r->schedule, "vec %s.%s", l.root, wide);
    for (uint32_t i = 0; i < plan->copies.count; i++) attach_copy(&l, &plan->copies.data[i]);
    fold_loops(&l, fold);
    attach_scores(&l, plan->score_rows, plan->block);
    const int block_sum = rules_stage_named(r, lib_arena_format(r->arena, "%s_b", plan->second));
    const int sum = rules_stage_named(r, lib_arena_format(r->arena, "%s_n", plan->second));
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        const tir_stage *stage = stage_of(r, s);
        if (stage->removed || s == root) continue;
        if (stage->fold == fold && s != block_sum && s != sum) attach_row_work(&l, s, plan->fold_rows);
        if (stage->fold < 0 && r->group[s].root == root && s != fold)
            attach_row_work(&l, s, rules_axis_labelled(r, s, plan->rows));
    }
    sum_loops(&l, plan->second);
    return true;
}

/* ---- loops, few rows */

/* Attaches a part of the first contraction at the loop over tiles of keys. */
static void few_part(rules *r, int p) {
    enum { MOST_PRODUCTS = 128 };
    const rules_chain *plan = r->chain;
    const tir_stage *part = stage_of(r, p);
    tir_schedule *out = r->schedule;
    const char *name = part->name;
    const int lane = rules_axis_of(part, TIR_AXIS_LANE), step = rules_axis_of(part, TIR_AXIS_STEP);
    const int inner[] = {plan->first_keys, step, plan->first_rows, lane};
    const int64_t steps = step >= 0 ? rules_extent(r, &part->axis[step]) : -1;
    uint32_t last = 0;
    lib_text tail;
    lib_text_init(&tail, r->arena);
    for (int i = 0; i < 4; i++) {
        last |= tir_axis_bit(inner[i]);
        lib_text_add(&tail, loop_along(r, p, inner[i]));
    }
    tir_schedule_add(out, "at %s %s.k_o", name, plan->scores);
    tir_schedule_add(out, "store %s reg", name);
    tir_schedule_add(out, "order %s:%s%s", name, tir_loops_but(r->arena, part, last), tail.data);
    if (steps > 0 && steps * FEW_SUMS <= MOST_PRODUCTS) tir_schedule_add(out, "unroll %s.step", name);
    if (plan->first_rows >= 0) tir_schedule_add(out, "unroll %s.%s", name, part->axis[plan->first_rows].name);
    tir_schedule_add(out, "unroll %s.%s", name, part->axis[plan->first_keys].name);
    if (lane >= 0) tir_schedule_add(out, "vec %s.%s", name, part->axis[lane].name);
}

/* Attaches the scores in tiles of keys and rows: partial sums by lanes, in registers, whose halves are added until one lane is left. Keys
 * are read one after the other, in memory order. */
static void few_scores(rules *r, const char *loop, const char *root) {
    const rules_chain *plan = r->chain;
    const int s = rules_stage_named(r, plan->scores),
              rows = plan->rows < 0 ? -1 : rules_axis_labelled(r, s, plan->rows);
    const tir_stage *scores = stage_of(r, s);
    tir_schedule *out = r->schedule;
    int64_t block = FEW_SUMS / plan->group > 0 ? FEW_SUMS / plan->group : 1;
    const int64_t keys = rules_extent(r, &scores->axis[plan->own]);
    const bool mask = keys < 0 || keys % block == 0 || rules_ends_by_data(r);
    /* a tile of the last keys has its own registers: all levels of the tree are live in between */
    if (!mask && block > 1) block /= 2;
    tir_schedule_add(out, "at %s %s.%s", scores->name, root, loop);
    tir_schedule_add(out, "store %s local", scores->name);
    tir_schedule_add(out, "split %s.%s %lld -> k_o k_i %s", scores->name, scores->axis[plan->own].name,
                     (long long)block, mask || keys % block == 0 ? "mask" : "peel");
    order_line(r, s, tir_axis_bit(rows) | tir_axis_bit(plan->own),
               lib_arena_format(r->arena, "k_o%s k_i", loop_along(r, s, rows)));
    if (rows >= 0) tir_schedule_add(out, "unroll %s.%s", scores->name, scores->axis[rows].name);
    tir_schedule_add(out, "unroll %s.k_i", scores->name);
    for (int p = 0; p < (int)r->region->stages.count; p++)
        if (!stage_of(r, p)->removed && is_first_part(r, plan, p)) few_part(r, p);
}

/* Columns of a tile of few rows: vectors whose sums and operands fit in the registers, in tiles of equal width. */
static int64_t few_columns(const rules *r, int64_t columns) {
    const rules_chain *plan = r->chain;
    int64_t lanes = rules_lanes(r, rules_stage_named(r, plan->second)), registers = r->machine->vector_registers;
    int64_t vectors = columns < 0 ? 4 : (columns + lanes - 1) / lanes;
    int64_t most = ((registers ? registers : 16) - 1) / (plan->group + 1);
    if (most > 8) most = 8;
    int64_t tiles = (vectors + most - 1) / most;
    return (vectors + tiles - 1) / tiles * lanes;
}

/* Order and tasks of the root (a task is the rows that share keys), and its tile of the second contraction. Returns the loop at which the
 * other members are attached. */
static const char *few_root(rules *r, int root) {
    const rules_chain *plan = r->chain;
    const tir_stage *top = stage_of(r, root);
    tir_schedule *out = r->schedule;
    const char *loop = NULL, *rows = plan->rows < 0 ? "" : top->axis[plan->rows].name;
    bool grouped = plan->rows >= 0 && rules_extent(r, &top->axis[plan->rows]) != plan->group;
    lib_text order, parallel;
    lib_text_init(&order, r->arena);
    lib_text_init(&parallel, r->arena);
    if (grouped) tir_schedule_add(out, "split %s.%s %lld -> r_o r_i mask", top->name, rows, (long long)plan->group);
    for (int a = 0; a < top->space; a++) {
        if (a == plan->columns || (a == plan->rows && !grouped)) continue;
        loop = a == plan->rows ? "r_o" : top->axis[a].name;
        lib_text_format(&order, " %s", loop);
        lib_text_format(&parallel, " %s.%s", top->name, loop);
    }
    if (grouped) rows = "r_i";
    int64_t columns = rules_extent(r, &top->axis[plan->columns]), tile = few_columns(r, columns);
    const char *wide = top->axis[plan->columns].name, *at = loop;
    if (columns < 0 || columns > tile) {
        tir_schedule_add(out, "split %s.%s %lld -> v_o v_i mask", top->name, wide, (long long)tile);
        lib_text_add(&order, " v_o");
        wide = "v_i";
        at = "v_o";
    }
    tir_schedule_add(out, "order %s:%s %s %s", top->name, order.data, rows, wide);
    tir_schedule_add(out, "par%s", parallel.data);
    tir_schedule_add(out, "vec %s.%s", top->name, wide);
    if (*rows) tir_schedule_add(out, "unroll %s.%s", top->name, rows);
    const int second = rules_stage_named(r, plan->second);
    rules_attach_contraction(r, second, top->name, at, plan->rows < 0 ? -1 : rules_axis_labelled(r, second, plan->rows),
                             rules_axis_labelled(r, second, plan->columns));
    return loop;
}

static bool few_rows(rules *r, int root) {
    const rules_chain *plan = r->chain;
    const char *loop = few_root(r, root);
    uint32_t shared = 0;
    for (int a = 0; a < stage_of(r, root)->space; a++) shared |= (uint32_t)(a != plan->columns) << a;
    few_scores(r, loop, plan->root);
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        if (stage_of(r, s)->removed || s == root || r->group[s].root != root || is_first_part(r, plan, s)) continue;
        if (s != rules_stage_named(r, plan->scores) && s != rules_stage_named(r, plan->second))
            rules_attach_row(r, s, root, loop, shared, plan->rows, plan->group);
    }
    return true;
}

bool rules_chained(rules *r, int root) {
    chain c;
    if (!r->chain || rules_stage_named(r, r->chain->root) != root) return false;
    if (r->chain->few) return few_rows(r, root);
    if (r->chain->fold) return blocks_of_keys(r, root);
    if (!chain_again(r, r->chain, &c)) return false;
    chain_loops l = {.r = r, .c = &c, .root = stage_of(r, root)->name, .loop = "q_o"};
    l.stage = l.root;
    l.lanes = rules_lanes(r, c.first);
    root_loops(&l);
    for (uint32_t i = 0; i < r->chain->copies.count; i++) attach_copy(&l, &r->chain->copies.data[i]);
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        if (stage_of(r, s)->removed || s == root || r->group[s].root != root) continue;
        if (s == c.scores)
            attach_scores(&l, rules_axis_labelled(r, s, c.rows), rules_extent(r, &stage_of(r, s)->axis[c.own]));
        else if (s != c.first && s != c.second)
            attach_row_work(&l, s, rules_axis_labelled(r, s, c.rows));
    }
    return true;
}
