/* Chains: contraction -> rows -> contraction, as one kernel. The first contraction's results, the scores, have rows and keys; maps and
 * reductions over the keys work on their rows, and the second contraction sums over the keys. A fold over blocks of keys (`online`)
 * keeps the running results, corrected when a maximum changes: scores exist for a block at a time, in registers.
 *
 * A block of threads has 16 rows for each of its warps. Queries stay in registers; keys and values are copied to shared memory, the next
 * block during the computation of this one. Scores have the matrix unit's layout: 4 neighbouring lanes share a row, each has two
 * neighbouring keys of 8. Reductions over keys combine a lane's own values, then those of the 4 lanes, so that all of them have the row's
 * state (`thread .. alike 4`); rounded, the weights already have the layout of the second product's left operand. Its sums are the state
 * itself (`seed`, `store .. state`). */
#include "targets/cuda/rules.h"

enum { UNIT_ROWS = 16, UNIT_COLUMNS = 8, UNIT_DEPTH = 16, QUAD = 4, VECTOR = 8, PANEL = 64 };

static const tir_stage *stage_of(const cuda_rules *r, int s) {
    return &r->region->stages.data[s];
}
static const char *axis_name(const cuda_rules *r, const char *stage, int axis) {
    return cuda_stage_of(r, stage)->axis[axis].name;
}

/* ---- finding */

/* Is stage s a sum of products over one axis that a matrix unit can compute, with known extents, and no output? */
static bool is_product(cuda_rules *r, int s) {
    const tir_stage *stage = stage_of(r, s);
    if (stage->removed || stage->kind != TIR_REDUCE || stage->fold >= 0 || stage->reduce != 1 || stage->space < 2)
        return false;
    for (int a = 0; a < stage->space + 1; a++)
        if (cuda_extent(r, &stage->axis[a]) < 1) return false;
    return tir_unit_for(r->machine, TIR_BY_WARP, r->region->pool, stage) != NULL && !tir_has_output(r->region, s);
}

/* Does exactly one factor use the axis? *which: that factor. */
static bool is_of_one_factor(const cuda_rules *r, const tir_stage *stage, int axis, int *which) {
    tir_expr factor[2];
    if (!tir_sum_of_products(r->region->pool, stage, &factor[0], &factor[1])) return false;
    const bool left = tir_uses(r->region->pool, factor[0], stage->axis[axis].var);
    *which = left ? 0 : 1;
    return left != tir_uses(r->region->pool, factor[1], stage->axis[axis].var);
}

/* Are the last two axes sides of the product: is each used by one factor, and by different ones? */
static bool has_sides(const cuda_rules *r, const tir_stage *stage) {
    int rows, columns;
    return is_of_one_factor(r, stage, stage->space - 2, &rows) &&
           is_of_one_factor(r, stage, stage->space - 1, &columns) && rows != columns;
}

/* The one product on which `second` depends by stages in between; -1: there is none, or several. *first_reduction: the
 * first reduction in between; NULL: none. */
static int first_product(cuda_rules *r, int second, const char **first_reduction) {
    const tir_stage *product = stage_of(r, second);
    bool *needed = LIB_NEW_ARRAY(r->arena, bool, r->region->stages.count);
    int first = -1;
    needed[second] = true;
    *first_reduction = NULL;
    for (int s = second; s >= 0; s--) {
        const tir_stage *stage = stage_of(r, s);
        if (!needed[s] || stage->removed) continue;
        if (s != second && is_product(r, s) && stage->space == product->space) {
            if (first >= 0) return -1;
            first = s;
            continue;
        }
        if (s != second && stage->kind == TIR_REDUCE) *first_reduction = stage->name;
        for (int p = 0; p < s; p++) needed[p] = needed[p] || tir_reads(r->region, s, p);
    }
    return first;
}

/* Finds the first product, on which `second` depends by stages in between, and the sizes of both. *first_reduction: the first reduction in
 * between, where the fold begins. False: there is no such chain. */
static bool find_first(cuda_rules *r, int second, cuda_chain *c, const char **first_reduction) {
    const tir_stage *product = stage_of(r, second);
    const int first = first_product(r, second, first_reduction);
    if (first < 0 || !*first_reduction || !has_sides(r, stage_of(r, first)) || !has_sides(r, product)) return false;
    c->first = stage_of(r, first)->name;
    c->free = product->space - 1;
    c->rows = cuda_extent(r, &product->axis[c->free - 1]);
    c->width = cuda_extent(r, &product->axis[c->free]);
    c->keys = cuda_extent(r, &product->axis[c->free + 1]);
    c->depth = cuda_extent(r, &stage_of(r, first)->axis[c->free + 1]);
    for (int a = 0; a < c->free; a++)
        if (stage_of(r, first)->axis[a].extent != product->axis[a].extent) return false;
    const tir_stage *rows = cuda_stage_of(r, *first_reduction);
    return cuda_extent(r, &stage_of(r, first)->axis[c->free]) == c->keys && rows->space == c->free &&
           rows->reduce == 1 && cuda_extent(r, &rows->axis[c->free]) == c->keys;
}

/* ---- surrounding stages: if one cannot be placed, the rule does not apply */

typedef enum place {
    UNRELATED, /* reads nothing of the chain */
    KNOWN,     /* one of the stages named in cuda_chain */
    ROW,       /* a map of rows, in the fold or after it */
    ROW_SUM,   /* a reduction over the keys of a block */
    SCORE,     /* a map of rows and keys, in the fold or before it */
    UNSUPPORTED
} place;

static bool same_axes(const cuda_rules *r, const cuda_chain *c, const tir_stage *stage) {
    const tir_stage *first = cuda_stage_of(r, c->first);
    for (int a = 0; a < c->free; a++)
        if (a >= stage->space || stage->axis[a].extent != first->axis[a].extent) return false;
    return true;
}

static bool is_known(const cuda_rules *r, const cuda_chain *c, int s) {
    const char *const known[] = {c->first,   c->root,        c->fold,        c->sums,        c->copy[0], c->copy[1],
                                 c->copy[2], c->fragment[0], c->fragment[1], c->fragment[2], c->weights};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (cuda_is_stage(r, s, known[i])) return true;
    return false;
}

static place place_in_fold(const cuda_rules *r, const cuda_chain *c, const tir_stage *stage) {
    const int free = c->free;
    if (!same_axes(r, c, stage)) return UNSUPPORTED;
    if (stage->kind == TIR_REDUCE && stage->space == free + 1 && stage->reduce == 1 && stage->merge[0] &&
        stage->count == 1)
        return ROW_SUM;
    if (stage->kind != TIR_MAP || stage->count != 1) return UNSUPPORTED;
    if (stage->space == free + 1) return ROW;
    return stage->space == free + 2 && cuda_extent(r, &stage->axis[free + 1]) == c->block ? SCORE : UNSUPPORTED;
}

static place place_of(cuda_rules *r, const cuda_chain *c, int s);

/* What a stage outside of the fold reads, and who reads it. */
typedef struct surroundings {
    /* it reads scores before the fold; states, or maps of these; a stage that has no place */
    bool before, after, unsupported;
    /* all later readers are steps of the fold; the root, or maps of rows */
    bool inside, roots;
} surroundings;

static void note_producer(cuda_rules *r, const cuda_chain *c, int s, int p, surroundings *found) {
    const int fold = cuda_stage_named(r, c->fold);
    const tir_stage *other = stage_of(r, p);
    if (!tir_reads(r->region, s, p)) return;
    if (p == fold || other->fold == fold) found->after = true;
    if (p > s || is_known(r, c, p) || other->fold >= 0) return;
    const place its = place_of(r, c, p);
    found->before = found->before || its == SCORE;
    found->after = found->after || its == ROW;
    found->unsupported = found->unsupported || its == UNSUPPORTED;
}

static surroundings find_surroundings(cuda_rules *r, const cuda_chain *c, int s) {
    const int fold = cuda_stage_named(r, c->fold), root = cuda_stage_named(r, c->root);
    surroundings found = {.inside = true, .roots = true};
    found.before = tir_reads(r->region, s, cuda_stage_named(r, c->first));
    for (int p = 0; p < (int)r->region->stages.count && !found.unsupported; p++) {
        const tir_stage *other = stage_of(r, p);
        if (other->removed || p == s) continue;
        note_producer(r, c, s, p, &found);
        if (p < s || !tir_reads(r->region, p, s)) continue;
        found.inside = found.inside && other->fold == fold;
        found.roots = found.roots && (p == root || (other->kind == TIR_MAP && other->space == c->free));
    }
    return found;
}

static place place_around_fold(cuda_rules *r, const cuda_chain *c, int s, bool output) {
    const tir_stage *stage = stage_of(r, s);
    const surroundings found = find_surroundings(r, c, s);
    if (found.unsupported) return UNSUPPORTED;
    if (!found.before && !found.after) return UNRELATED;
    if (stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0 || output || !same_axes(r, c, stage))
        return UNSUPPORTED;
    if (found.after) return !found.before && found.roots && stage->space == c->free ? ROW : UNSUPPORTED;
    if (!found.inside || stage->space != c->free + 1) return UNSUPPORTED;
    return cuda_extent(r, &stage->axis[c->free]) == c->keys ? SCORE : UNSUPPORTED;
}

/* Where stage s belongs. Called when the fold exists. */
static place place_of(cuda_rules *r, const cuda_chain *c, int s) {
    const tir_stage *stage = stage_of(r, s);
    const bool output = tir_has_output(r->region, s);
    if (is_known(r, c, s)) return KNOWN;
    if (stage->fold == cuda_stage_named(r, c->fold)) return output ? UNSUPPORTED : place_in_fold(r, c, stage);
    return place_around_fold(r, c, s, output);
}

static bool all_have_places(cuda_rules *r, const cuda_chain *c) {
    for (int s = 0; s < (int)r->region->stages.count; s++)
        if (!stage_of(r, s)->removed && place_of(r, c, s) == UNSUPPORTED) return false;
    return true;
}

/* ---- sizes */

/* The model: cycles until a multiprocessor has done its part of the chain; -1: the sizes do not fit. A step of the fold takes each warp its
 * instructions (36 for each score of a thread, mostly for the exponential), and a part of the matrix unit's time, which overlaps with
 * these. */
static double cost_of(const cuda_rules *r, const cuda_chain *c) {
    enum {
        EACH = 2,
        REGISTERS = 65536,
        THREADS = 2048,
        L2_BYTES = 24,
        SCORE_COST = 36,
        SCHEDULERS = 4,
        SPARE = 64,
        MARGIN = 40 /* registers for the guards of last blocks */
    };
    const int64_t depth = cuda_round_up(c->depth, UNIT_DEPTH), width = cuda_round_up(c->width, UNIT_COLUMNS);
    const int64_t scores = UNIT_ROWS * c->block / TIR_WARP, sums = UNIT_ROWS * width / TIR_WARP;
    const int64_t threads = c->warps * TIR_WARP;
    const int64_t registers = SPARE + sums + scores + scores / 2 + (c->held ? depth / 4 : 4) + c->block / 8;
    const int64_t shared = 2 * (c->warps * UNIT_ROWS * depth + c->stages * c->block * (depth + width));
    int64_t blocks = cuda_ceil_div(c->rows, c->warps * UNIT_ROWS);
    for (int a = 0; a + 1 < c->free; a++) blocks *= cuda_extent(r, &cuda_stage_of(r, c->first)->axis[a]);
    if (registers > r->machine->thread_registers - MARGIN || shared > r->machine->shared_memory) return -1;
    int64_t together = cuda_least(REGISTERS / (registers * threads), THREADS / threads);
    together = cuda_least(together, r->machine->shared_memory / shared);
    together = cuda_least(together, cuda_ceil_div(blocks, r->machine->multiprocessors));
    if (together < 1) return -1;
    const int64_t products =
        depth / UNIT_DEPTH * (c->block / UNIT_COLUMNS) + c->block / UNIT_DEPTH * (width / UNIT_COLUMNS);
    const double arithmetic = (double)(c->warps * products * EACH);
    const double others = (double)(c->warps * (scores * SCORE_COST + 2 * sums + products + 96)) / (double)SCHEDULERS;
    const double memory = (double)(2 * c->block * (depth + width)) / (double)L2_BYTES;
    const double work = others + arithmetic / 2, step = work > memory ? work + memory / 4 : memory + work / 4;
    return cuda_tile_cycles(r, blocks, together, (double)cuda_ceil_div(c->keys, c->block), step);
}

/* The words of the choices "warps", "keys" and "held". */
typedef struct size_words {
    const char *word[TIR_SEARCHED];
} size_words;

static size_words words_of(const cuda_rules *r, const cuda_chain *c) {
    return (size_words){{cuda_number_word(r, c->warps), cuda_number_word(r, c->block), c->held ? "yes" : "no"}};
}

/* Sets the sizes of least cost, of those that the search admits; search NULL: of all. */
static bool search_sizes(const cuda_rules *r, cuda_chain *c, tir_search *search) {
    cuda_chain best = *c;
    double least = -1;
    for (c->warps = 1; c->warps <= 8; c->warps *= 2)
        for (c->block = 16; c->block <= 128; c->block *= 2)
            for (int held = 1; held >= 0; held--) {
                c->held = held;
                c->stages = 2;
                if (c->block >= 2 * c->keys && c->block > 16) continue;
                if (c->warps > 1 && (c->warps - 1) * UNIT_ROWS >= c->rows) continue;
                const double cost = cost_of(r, c);
                if (cost < 0 || (search && search->asked && !tir_search_admits(search, words_of(r, c).word))) continue;
                if (least >= 0 && cost >= least) continue;
                least = cost, best = *c;
            }
    *c = best;
    return least >= 0;
}

static bool choose_size(const cuda_rules *r, cuda_chain *c) {
    static const char *const choices[TIR_SEARCHED] = {"warps", "keys", "held"};
    tir_search search = tir_search_for(r->schedule, c->first, TIR_SEARCHED, choices);
    bool found = search_sizes(r, c, &search);
    if (!found && search.asked) {
        search.unpinned = true;
        found = search_sizes(r, c, &search);
    }
    if (found && search.asked) tir_search_record(&search, words_of(r, c).word);
    return found;
}

/* ---- rewrites */

/* Names of the stage's axes except `one` and `two`, each followed by `comma`. */
static const char *others(const cuda_rules *r, const char *stage, int one, int two, const char *comma) {
    const tir_stage *s = cuda_stage_of(r, stage);
    lib_text text;
    lib_text_init(&text, r->arena);
    lib_text_add(&text, "");
    for (int a = 0; a < s->space + s->reduce; a++)
        if (a != one && a != two) lib_text_format(&text, "%s%s", s->axis[a].name, comma);
    return text.data ? text.data : "";
}

/* own, deep: the operand's axis of rows or columns, and that of the sum, in a stage derived from the operand; own_points, deep_points: how
 * many points of each a block copies. */
typedef struct operand_axes {
    int own, deep;
    int64_t own_points, deep_points;
} operand_axes;

static int32_t axis_id(const cuda_rules *r, const char *stage, int axis) {
    return cuda_stage_of(r, stage)->axis[axis].id;
}

/* The operand's axes in stage `name`. which: 0 queries, 1 keys, 2 values. */
static operand_axes axes_of(const cuda_rules *r, const cuda_chain *c, int which, const char *name) {
    const int64_t depth = cuda_round_up(c->depth, UNIT_DEPTH), width = cuda_round_up(c->width, UNIT_COLUMNS);
    const tir_stage *stage = cuda_stage_of(r, name);
    if (which == 2)
        return (operand_axes){cuda_axis_of(stage, c->width_axis), cuda_axis_of(stage, c->key_axis), width, c->block};
    const int own = cuda_axis_of(stage, axis_id(r, c->first, which == 1 ? c->free : c->free - 1));
    const int deep = cuda_axis_of(stage, axis_id(r, c->first, c->free + 1));
    return (operand_axes){own, deep, which == 1 ? c->block : c->warps * UNIT_ROWS, depth};
}

/* Is the copy contiguous along the sum's axis in shared memory? It is as in memory, if one of the two axes is contiguous there (*vectors:
 * threads copy vectors). */
static bool is_deep(cuda_rules *r, const char *copy, const operand_axes *a, bool *vectors) {
    int64_t bytes;
    const int along = cuda_contiguous_axis(r, cuda_stage_named(r, copy), &bytes);
    *vectors = along >= 0 && (along == a->own || along == a->deep);
    return !*vectors || along == a->deep;
}

/* How a copy lies in shared memory: the names of the axes along its rows and across them, and how many points of each a
 * block copies. */
typedef struct copy_shape {
    operand_axes axes;
    const char *fast, *slow;
    int64_t length, count;
    /* threads copy vectors */
    bool vectors;
} copy_shape;

static copy_shape shape_of(cuda_rules *r, const cuda_chain *c, int which) {
    const char *copy = c->copy[which];
    copy_shape shape = {.axes = axes_of(r, c, which, copy)};
    const operand_axes *a = &shape.axes;
    const bool deep = is_deep(r, copy, a, &shape.vectors);
    shape.fast = axis_name(r, copy, deep ? a->deep : a->own);
    shape.slow = axis_name(r, copy, deep ? a->own : a->deep);
    shape.length = deep ? a->deep_points : a->own_points;
    shape.count = deep ? a->own_points : a->deep_points;
    return shape;
}

/* Elements of a row of the copy in shared memory: a power of two, so that swizzles keep all rows of a column in different banks. */
static int64_t panel_of(int64_t length) {
    int64_t panel = PANEL;
    while (length % panel) panel /= 2;
    return panel;
}

static void lay_out_copy(cuda_rules *r, const cuda_chain *c, int which, bool *good) {
    const char *copy = c->copy[which];
    const copy_shape shape = shape_of(r, c, which);
    const char *fast = shape.fast, *slow = shape.slow;
    const char *rest = others(r, copy, shape.axes.own, shape.axes.deep, ", ");
    const int panel = (int)panel_of(shape.length);
    if (shape.length > panel)
        cuda_try_rewrite(r, good, "layout %s (%s%s/%d, %s, %s%%%d)", copy, rest, fast, panel, slow, fast, panel);
    else
        cuda_try_rewrite(r, good, "layout %s (%s%s, %s)", copy, rest, slow, fast);
}

static void lay_out_fragment(cuda_rules *r, const cuda_chain *c, int which, bool *good) {
    const char *name = c->fragment[which];
    const operand_axes a = axes_of(r, c, which, name);
    const char *rest = others(r, name, a.own, a.deep, ", "), *o = axis_name(r, name, a.own),
               *d = axis_name(r, name, a.deep);
    if (which == 0)
        cuda_try_rewrite(r, good, "layout %s (%s%s/16, %s/16, %s%%8, %s/2%%4, %s/8%%2, %s/8%%2, %s%%2)", name, rest, o,
                         d, o, d, d, o, d);
    else
        cuda_try_rewrite(r, good, "layout %s (%s%s/8, %s/16, %s%%8, %s/2%%4, %s/8%%2, %s%%2)", name, rest, o, d, o, d,
                         d, d);
}

/* Layout of a state, or of a map or reduction of rows, by the matrix unit's rows. `lane`, `own`: further parts, of lanes and of a lane's
 * own values; NULL: none. */
static void lay_out_rows(cuda_rules *r, const cuda_chain *c, const char *name, const char *lane, const char *own,
                         bool *good) {
    const char *i = axis_name(r, name, c->free - 1);
    const tir_stage *stage = cuda_stage_of(r, name);
    lib_text rest;
    lib_text_init(&rest, r->arena);
    lib_text_add(&rest, "");
    for (int a = 0; a < stage->space; a++)
        if (a != c->free - 1 && a < (stage->fold < 0 ? c->free : c->free + 1))
            lib_text_format(&rest, "%s, ", stage->axis[a].name);
    cuda_try_rewrite(r, good, "layout %s (%s%s/16, %s%%8%s%s, %s/8%%2%s%s)", cuda_tensor_name(r, name), rest.data, i, i,
                     lane ? ", " : "", lane ? lane : "", i, own ? ", " : "", own ? own : "");
}

/* Layout of a stage with rows and columns: that of the matrix unit's sums or, if `operand`, of its left operand. */
static void lay_out_matrix(cuda_rules *r, const cuda_chain *c, const char *name, int column, bool operand, bool *good) {
    const char *i = axis_name(r, name, c->free - 1), *j = axis_name(r, name, column);
    const char *rest = others(r, name, c->free - 1, column, ", ");
    const tir_stage *stage = cuda_stage_of(r, name);
    if (stage->reduce) { /* reduction axes are no dimensions of the result */
        lib_text text;
        lib_text_init(&text, r->arena);
        lib_text_add(&text, "");
        for (int a = 0; a < stage->space; a++)
            if (a != c->free - 1 && a != column) lib_text_format(&text, "%s, ", stage->axis[a].name);
        rest = text.data;
    }
    if (operand)
        cuda_try_rewrite(r, good, "layout %s (%s%s/16, %s/16, %s%%8, %s/2%%4, %s/8%%2, %s/8%%2, %s%%2)", name, rest, i,
                         j, i, j, j, i, j);
    else
        cuda_try_rewrite(r, good, "layout %s (%s%s/16, %s/8, %s%%8, %s/2%%4, %s/8%%2, %s%%2)", name, rest, i, j, i, j,
                         i, j);
}

/* Makes stages for the operands of both products (copy), and copies of queries and keys in registers (fragment), before the fold is
 * made. */
static void take_operands(cuda_rules *r, cuda_chain *c, const char *second, bool *good) {
    const char *const product[] = {c->first, c->first, second};
    const int axis[] = {c->free - 1, c->free, c->free};
    static const char *const suffix[] = {"queries", "keys", "values"};
    for (int n = 0; n < 3 && *good; n++) {
        c->copy[n] = cuda_fresh_name(r, product[n], suffix[n]);
        cuda_try_rewrite(r, good, "operand %s.%s -> %s", product[n], axis_name(r, product[n], axis[n]), c->copy[n]);
    }
    for (int n = 0; n < 2 && *good; n++) {
        c->fragment[n] = cuda_fresh_name(r, c->copy[n], "fragment");
        cuda_try_rewrite(r, good, "copy %s -> %s", c->copy[n], c->fragment[n]);
    }
}

/* Splits a reduction over the keys of a block into one over a lane's keys at each of its two places, one over these two, and two levels
 * between the 4 lanes of a row. */
static void reduce_by_lanes(cuda_rules *r, const cuda_chain *c, const char *name, bool *good) {
    const tir_stage *stage = cuda_stage_of(r, name);
    const char *keys = stage->axis[stage->space].name, *part = cuda_fresh_name(r, name, "part"),
               *own = cuda_fresh_name(r, name, "own");
    cuda_try_rewrite(r, good, "rfactor %s.%s %d lanes -> %s place step", name, keys, UNIT_COLUMNS, part);
    cuda_try_rewrite(r, good, "rfactor %s.place %d chunks -> %s lane pair", name, QUAD, own);
    if (!cuda_try_rewrite(r, good, "tree %s.lane", name)) return;
    lay_out_rows(r, c, part, "place/2", "place%2", good);
    lay_out_rows(r, c, own, "lane", NULL, good);
    if (*good) lay_out_rows(r, c, lib_arena_format(r->arena, "%s_2", name), "lane", NULL, good);
    lay_out_rows(r, c, name, NULL, NULL, good);
}

/* Gives reductions a predicate where a condition makes points neutral: keys that are masked for all rows of a block are then skipped. */
static void find_predicates(cuda_rules *r, const cuda_chain *c, int second, bool *good) {
    const int first = cuda_stage_named(r, c->first);
    for (int s = first + 1; s <= second; s++) {
        const tir_stage *stage = stage_of(r, s);
        if (stage->removed || stage->kind != TIR_REDUCE || stage->predicate || stage->fold >= 0) continue;
        if (tir_where_condition(r->region, s)) cuda_try_rewrite(r, good, "where %s", stage->name);
    }
}

/* Lays out the reductions of rows and the second product's sums, before they become states of the fold. */
static void lay_out_states(cuda_rules *r, const cuda_chain *c, const char *second, bool *good) {
    const int first = cuda_stage_named(r, c->first), last = cuda_stage_named(r, second);
    for (int s = first + 1; s < last && *good; s++) {
        const tir_stage *stage = stage_of(r, s);
        if (!stage->removed && stage->kind == TIR_REDUCE && stage->space == c->free && same_axes(r, c, stage))
            lay_out_rows(r, c, stage->name, NULL, NULL, good);
    }
    lay_out_matrix(r, c, second, c->free, false, good);
}

/* Inlines maps that no stage reads, or only the root. */
static void inline_unread(cuda_rules *r, const cuda_chain *c, const char *second, bool *good) {
    for (int s = (int)r->region->stages.count - 1; s >= 0 && *good; s--) {
        const tir_stage *stage = stage_of(r, s);
        bool read = tir_has_output(r->region, s), rooted = false;
        if (stage->removed || stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0) continue;
        for (int q = s + 1; q < (int)r->region->stages.count; q++) {
            if (!tir_reads(r->region, q, s)) continue;
            rooted = cuda_is_stage(r, q, c->root);
            read = read || !rooted;
        }
        if (!read && (!rooted || cuda_is_stage(r, s, second))) cuda_try_rewrite(r, good, "inline %s", stage->name);
    }
}

/* Makes the fold, whose state includes the second product's sums, and the operands of its step. */
static void make_fold(cuda_rules *r, cuda_chain *c, const char *first_reduction, const char *second, bool *good) {
    c->fold = cuda_fresh_name(r, second, "fold");
    cuda_try_rewrite(r, good, "online %s.%s %lld -> %s key_block", first_reduction,
                     axis_name(r, first_reduction, c->free), (long long)c->block, c->fold);
    if (!*good) return;
    inline_unread(r, c, second, good);
    c->sums = lib_arena_format(r->arena, "%s_n", second);
    const char *block = lib_arena_format(r->arena, "%s_b", second);
    *good = *good && cuda_stage_named(r, block) >= 0 && cuda_stage_named(r, c->sums) >= 0;
    cuda_try_rewrite(r, good, "seed %s", block);
    if (!*good) return;
    const tir_stage *sums = cuda_stage_of(r, c->sums);
    *good = sums->fold == cuda_stage_named(r, c->fold) && sums->space == c->free + 2;
    if (!*good) return;
    c->weights = cuda_fresh_name(r, second, "weights");
    c->fragment[2] = cuda_fresh_name(r, c->copy[2], "fragment");
    const char *rows = sums->axis[c->free - 1].name, *columns = sums->axis[c->free + 1].name;
    cuda_try_rewrite(r, good, "operand %s.%s -> %s%s", c->sums, rows, c->weights,
                     sums->predicate ? " deviates zero*nonfinite" : "");
    cuda_try_rewrite(r, good, "operand %s.%s -> %s", c->sums, columns, c->fragment[2]);
    *good = *good && !cuda_stage_of(r, c->sums)->predicate;
}

static void lay_out_fold(cuda_rules *r, const cuda_chain *c, bool *good) {
    const char **sums = LIB_NEW_ARRAY(r->arena, const char *, r->region->stages.count);
    int count = 0;
    for (int s = 0; s < (int)r->region->stages.count && *good; s++) {
        const tir_stage *stage = stage_of(r, s);
        const place where = stage->removed ? UNRELATED : place_of(r, c, s);
        if (where == ROW) lay_out_rows(r, c, stage->name, NULL, NULL, good);
        if (where == SCORE) lay_out_matrix(r, c, stage->name, stage->fold < 0 ? c->free : c->free + 1, false, good);
        if (where == ROW_SUM) sums[count++] = stage->name;
    }
    for (int i = 0; i < count && *good; i++) reduce_by_lanes(r, c, sums[i], good);
    if (*good) lay_out_matrix(r, c, c->weights, c->free + 1, true, good);
    if (*good) lay_out_matrix(r, c, c->first, c->free, false, good);
    for (int n = 0; n < 3 && *good; n++) {
        lay_out_copy(r, c, n, good);
        lay_out_fragment(r, c, n, good);
    }
}

static bool make_chain(cuda_rules *r, cuda_chain *c, const char *second, const char *first_reduction, bool predicates) {
    bool good = true;
    const int reader = cuda_reader_of(r, cuda_stage_named(r, second));
    c->key_axis = axis_id(r, second, c->free + 1);
    c->width_axis = axis_id(r, second, c->free);
    if (reader >= 0) {
        c->root = stage_of(r, reader)->name;
    } else {
        c->root = cuda_fresh_name(r, second, "out");
        cuda_try_rewrite(r, &good, "copy %s -> %s", second, c->root);
    }
    if (predicates) find_predicates(r, c, cuda_stage_named(r, second), &good);
    if (good) take_operands(r, c, second, &good);
    if (good) lay_out_states(r, c, second, &good);
    if (good) make_fold(r, c, first_reduction, second, &good);
    if (!good || !all_have_places(r, c)) return false;
    lay_out_fold(r, c, &good);
    return good;
}

bool cuda_prepare_chain(cuda_rules *r, int s) {
    enum { LEAST_ROWS = 8, LEAST_KEYS = 8 };
    const char *first_reduction;
    cuda_chain c = {0};
    if (!is_product(r, s) || !r->region->excess_precision || !find_first(r, s, &c, &first_reduction)) return false;
    if (c.rows < LEAST_ROWS || c.keys < LEAST_KEYS || !search_sizes(r, &c, NULL)) return false;
    if (!tir_choose_yes(r->schedule, c.first, "chain", true) || !choose_size(r, &c)) return false;
    const char *second = stage_of(r, s)->name;
    for (int predicates = 1; predicates >= 0; predicates--) {
        cuda_rules trial = *r;
        tir_schedule schedule;
        tir_schedule_init(&schedule, r->arena);
        trial.schedule = &schedule;
        cuda_chain made = c;
        if (!make_chain(&trial, &made, second, first_reduction, predicates)) continue;
        r->region = trial.region;
        lib_text_add(&r->schedule->text, schedule.text.data);
        for (int q = 0; q < (int)r->region->stages.count; q++)
            if (!stage_of(r, q)->removed && place_of(r, &made, q) != UNRELATED) cuda_mark_done(r, stage_of(r, q)->name);
        lib_vec_push(r->arena, &r->chains, made);
        return true;
    }
    return false;
}

/* ---- loops */

typedef struct chain_loops {
    cuda_rules *r;
    const cuda_chain *c;
} chain_loops;

static void add(const chain_loops *l, const char *format, ...) {
    lib_text line;
    va_list arguments;
    lib_text_init(&line, l->r->arena);
    va_start(arguments, format);
    lib_text_format_v(&line, format, arguments);
    va_end(arguments);
    tir_schedule_add(l->r->schedule, "%s", line.data);
}

/* The stage's axes except rows, `column` and `deep`, which come before these in the order. */
static const char *leading(const chain_loops *l, const char *name, int column, int deep) {
    const tir_stage *stage = cuda_stage_of(l->r, name);
    lib_text text;
    lib_text_init(&text, l->r->arena);
    lib_text_add(&text, "");
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (a != l->c->free - 1 && a != column && a != deep) lib_text_format(&text, " %s", stage->axis[a].name);
    return text.data;
}

/* Splits the axis of rows (axis NULL: the stage's own) into warps, halves (8 rows apart, of one lane) and lanes. */
static void split_rows(const chain_loops *l, const char *name, const char *axis) {
    add(l, "split %s.%s %d -> warp_m part_m mask", name, axis ? axis : axis_name(l->r, name, l->c->free - 1),
        UNIT_ROWS);
    add(l, "split %s.part_m 8 -> half_m lane_m mask", name);
    add(l, "thread %s.warp_m %s.lane_m", name, name);
    add(l, "unroll %s.half_m", name);
}

/* Splits the axis of columns: a lane has pairs of neighbours, 4 lanes share a row. */
static void split_columns(const chain_loops *l, const char *name, int column) {
    add(l, "split %s.%s %d -> tile_n part_n mask full", name, axis_name(l->r, name, column), UNIT_COLUMNS);
    add(l, "split %s.part_n 2 -> lane_n pair_n mask", name);
    add(l, "thread %s.lane_n", name);
    add(l, "unroll %s.tile_n", name);
}

static void schedule_state_rows(const chain_loops *l, const char *name) {
    split_rows(l, name, NULL);
    add(l, "order %s:%s warp_m lane_m half_m", name, leading(l, name, -1, -1));
    add(l, "thread %s.lane_m alike %d", name, QUAD);
    add(l, "store %s reg", name);
}

/* Schedules a map of rows and keys. */
static void schedule_scores(const chain_loops *l, const char *name, int column) {
    split_rows(l, name, NULL);
    split_columns(l, name, column);
    add(l, "order %s:%s warp_m lane_m lane_n tile_n half_m pair_n", name, leading(l, name, column, -1));
    add(l, "unroll %s.pair_n", name);
    add(l, "store %s reg", name);
}

/* Schedules the parts of a reduction over keys (reduce_by_lanes). */
static void schedule_row_sum(const chain_loops *l, const char *name) {
    const int free = l->c->free;
    const tir_stage *stage = cuda_stage_of(l->r, name);
    split_rows(l, name, NULL);
    if (stage->axis[stage->space - 1].role == TIR_AXIS_LANE) {
        add(l, "split %s.place 2 -> lane_n pair_n mask", name);
        add(l, "order %s:%s warp_m lane_m lane_n step half_m pair_n", name, leading(l, name, free + 1, free + 2));
        add(l, "thread %s.lane_n", name);
        add(l, "unroll %s.step %s.pair_n", name, name);
    } else if (stage->kind == TIR_REDUCE) {
        add(l, "order %s:%s warp_m lane_m lane half_m pair", name, leading(l, name, free + 1, free + 2));
        add(l, "thread %s.lane", name);
        add(l, "unroll %s.pair", name);
    } else {
        add(l, "order %s:%s warp_m lane_m lane half_m", name, leading(l, name, free + 1, -1));
        add(l, "thread %s.lane alike 2", name);
    }
    add(l, "store %s reg", name);
}

/* Schedules a copy to shared memory: threads run along a row there, with vectors, then over such rows, then over panels. */
static void schedule_copy(const chain_loops *l, int which, const char *at) {
    cuda_rules *r = l->r;
    const char *copy = l->c->copy[which];
    const copy_shape shape = shape_of(r, l->c, which);
    const char *fast = shape.fast, *rows = shape.slow, *turn = "", *panels = "";
    const int64_t length = shape.length, count = shape.count;
    const bool vectors = shape.vectors;
    const int64_t panel = panel_of(length), chunks = vectors ? panel / VECTOR : panel;
    int64_t left = l->c->warps * TIR_WARP / chunks;
    if (length > panel) {
        add(l, "split %s.%s %lld -> panel rest mask", copy, fast, (long long)panel);
        fast = "rest", panels = " panel";
    }
    if (vectors) add(l, "split %s.%s %d -> chunk vector mask", copy, fast, VECTOR);
    if (left < count) {
        add(l, "split %s.%s %lld -> turn_m lane_m mask", copy, shape.slow, (long long)left);
        rows = "lane_m", turn = " turn_m";
    }
    left /= cuda_least(left, cuda_power_above(count));
    const bool wide = *panels && length / panel <= left; /* threads run over panels, too */
    add(l, "order %s: %s%s %s %s%s%s%s", copy, others(r, copy, shape.axes.own, shape.axes.deep, " "),
        wide ? panels : "", rows, vectors ? "chunk" : fast, turn, wide ? "" : panels, vectors ? " vector" : "");
    add(l, "thread %s.%s %s.%s", copy, rows, copy, vectors ? "chunk" : fast);
    if (*panels) add(l, "%s %s.panel", wide ? "thread" : "unroll", copy);
    if (*turn) add(l, "unroll %s.turn_m", copy);
    if (vectors) add(l, "vec %s.vector", copy);
    add(l, "at %s %s", copy, at);
    if (2 * panel >= 32)
        add(l, "store %s shared swizzle %d", copy, (int)(2 * panel));
    else
        add(l, "store %s shared", copy);
}

/* Schedules an operand's copy in registers, as ldmatrix loads it: lanes have rows of the left operand or columns of the right one, and
 * pairs along the sum. */
static void schedule_fragment(const chain_loops *l, int which, const char *at) {
    const char *name = l->c->fragment[which];
    const operand_axes a = axes_of(l->r, l->c, which, name);
    const char *rest = others(l->r, name, a.own, a.deep, " "), *own = axis_name(l->r, name, a.own);
    if (which == 0)
        split_rows(l, name, own);
    else
        add(l, "split %s.%s %d -> tile_n lane_m mask", name, own, UNIT_COLUMNS);
    add(l, "split %s.%s %d -> tile_k part_k mask", name, axis_name(l->r, name, a.deep), UNIT_DEPTH);
    add(l, "split %s.part_k 8 -> half_k rest_k mask", name);
    add(l, "split %s.rest_k 2 -> lane_k pair_k mask", name);
    if (which == 0)
        add(l, "order %s: %swarp_m lane_m lane_k tile_k half_k half_m pair_k", name, rest);
    else
        add(l, "order %s: %slane_m lane_k tile_n tile_k half_k pair_k", name, rest);
    add(l, "thread %s.lane_m %s.lane_k", name, name);
    add(l, "unroll %s.tile_k %s.half_k", name, name);
    if (which) add(l, "unroll %s.tile_n", name);
    add(l, "vec %s.pair_k", name);
    add(l, "at %s %s", name, at);
    add(l, "store %s reg", name);
}

/* Schedules the weights, in the registers of the second product's left operand. */
static void schedule_weights(const chain_loops *l) {
    const char *name = l->c->weights;
    const int column = l->c->free + 1;
    split_rows(l, name, NULL);
    add(l, "split %s.%s %d -> tile_k part_k mask", name, axis_name(l->r, name, column), UNIT_DEPTH);
    add(l, "split %s.part_k 8 -> half_k rest_k mask", name);
    add(l, "split %s.rest_k 2 -> lane_k pair_k mask", name);
    add(l, "order %s:%s warp_m lane_m lane_k tile_k half_k half_m pair_k", name, leading(l, name, column, -1));
    add(l, "thread %s.lane_k", name);
    add(l, "unroll %s.tile_k %s.half_k", name, name);
    add(l, "vec %s.pair_k", name);
    add(l, "store %s reg", name);
}

static void schedule_product(const chain_loops *l, const char *name, int column) {
    const tir_stage *stage = cuda_stage_of(l->r, name);
    split_rows(l, name, NULL);
    split_columns(l, name, column);
    add(l, "split %s.%s %d -> tile_k point_k mask full", name, stage->axis[stage->space].name, UNIT_DEPTH);
    add(l, "order %s:%s warp_m tile_k lane_m lane_n tile_n half_m pair_n point_k", name,
        leading(l, name, column, stage->space));
    add(l, "unroll %s.tile_k %s.pair_n", name, name);
    add(l, "unit %s.half_m,lane_m,lane_n,pair_n,point_k %s deviates assoc", name,
        tir_unit_for(l->r->machine, TIR_BY_WARP, l->r->region->pool, stage)->name);
}

static void schedule_root(const chain_loops *l) {
    const cuda_chain *c = l->c;
    const tir_stage *root = cuda_stage_of(l->r, c->root);
    int64_t stride[TIR_MAX_AXES];
    tir_store_strides(l->r->region, cuda_stage_named(l->r, c->root), stride);
    add(l, "split %s.%s %lld -> block_m rest_m mask full", c->root, root->axis[c->free - 1].name,
        (long long)(c->warps * UNIT_ROWS));
    split_rows(l, c->root, "rest_m");
    split_columns(l, c->root, c->free);
    const char *first = leading(l, c->root, c->free, -1);
    add(l, "order %s:%s block_m warp_m lane_m lane_n tile_n half_m pair_n", c->root, first);
    for (int a = 0; a + 1 < c->free; a++) add(l, "par %s.%s", c->root, root->axis[a].name);
    add(l, "par %s.block_m", c->root);
    add(l, "%s %s.pair_n", stride[c->free] == 1 ? "vec" : "unroll", c->root);
}

/* Schedules the stages of rows and of scores. block, step: loops in which those outside of the fold are computed,
 * of rows and of scores. */
static void schedule_surroundings(const chain_loops *l, const char *block, const char *step) {
    cuda_rules *r = l->r;
    const cuda_chain *c = l->c;
    const int fold = cuda_stage_named(r, c->fold);
    for (int s = 0; s < (int)r->region->stages.count; s++) {
        const tir_stage *stage = stage_of(r, s);
        if (stage->removed || is_known(r, c, s)) continue;
        const bool inside = stage->fold == fold;
        const place where = place_of(r, c, s);
        if (inside && (stage->kind == TIR_REDUCE || where == UNSUPPORTED ||
                       (where == SCORE && cuda_extent(r, &stage->axis[c->free + 1]) != c->block)))
            schedule_row_sum(l, stage->name);
        else if (where == ROW)
            schedule_state_rows(l, stage->name);
        else if (where == SCORE)
            schedule_scores(l, stage->name, inside ? c->free + 1 : c->free);
        if (!inside && where == ROW) add(l, "at %s %s", stage->name, block);
        if (!inside && where == SCORE) add(l, "at %s %s", stage->name, step);
    }
}

void cuda_schedule_chain(cuda_rules *r, const cuda_chain *c) {
    const chain_loops l = {r, c};
    const char *block = lib_arena_format(r->arena, "%s.block_m", c->root),
               *step = lib_arena_format(r->arena, "%s.key_block", c->fold);
    schedule_root(&l);
    add(&l, "at %s %s", c->fold, block);
    schedule_state_rows(&l, c->fold);
    if (cuda_stage_of(r, c->fold)->predicate) add(&l, "clip %s.key_block", c->fold);
    schedule_surroundings(&l, block, step);
    schedule_product(&l, c->first, c->free);
    add(&l, "at %s %s", c->first, step);
    add(&l, "store %s reg", c->first);
    schedule_weights(&l);
    schedule_product(&l, c->sums, c->free + 1);
    add(&l, "store %s state", c->sums);
    schedule_copy(&l, 0, block);
    schedule_copy(&l, 1, step);
    schedule_copy(&l, 2, step);
    schedule_fragment(&l, 0, c->held ? block : lib_arena_format(r->arena, "%s.tile_k", c->first));
    schedule_fragment(&l, 1, lib_arena_format(r->arena, "%s.tile_k", c->first));
    schedule_fragment(&l, 2, lib_arena_format(r->arena, "%s.tile_k", c->sums));
    if (c->keys > c->block && cuda_is_copy(r, c->copy[1]) && cuda_is_copy(r, c->copy[2]))
        add(&l, "pipeline %s stages=%d groups=%s|%s", step, (int)c->stages, c->copy[1], c->copy[2]);
}
