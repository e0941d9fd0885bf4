/* Rewrites for register tiles: operands are laid out or copied as the chosen tile reads them, and results are stored as it computes them. */
#include "targets/cpu/rules_tile.h"

/* The dimensions of an operand of a tile: by dimension, is it a loop outside of the panels (a batch)? The dimension of the vectors and that
 * of a unit's steps; -1: none. */
typedef struct dimensions {
    bool outside[DLC_MAX_RANK];
    int panel, steps;
} dimensions;

static dimensions find_dimensions(rules *r, int s, const rules_tile_shape *t, uint32_t tensor) {
    dimensions found = {.panel = -1, .steps = -1};
    const int rank = r->region->tensors.data[tensor].rank;
    const tir_stage *reader = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++) /* an operand may be read twice */
        for (int d = 0; d < rank && access[i].tensor == tensor; d++) {
            const tir_expr subscript = tir_operand(r->region->pool, access[i].load, d);
            for (int b = 0; b < reader->space; b++)
                if (b != t->v && reader->axis[b].var == subscript) found.outside[d] = true;
            if (subscript == reader->axis[t->v].var) found.panel = d;
            if (t->unit && rules_steps_in(r, &access[i], d, reader->axis[t->unit_axis].var, tir_unit_width(t->unit)))
                found.steps = d;
        }
    for (int d = 0; d < rank; d++) /* a tensor may be both operands */
        if (found.panel < 0 || d == found.panel || d == found.steps) found.outside[d] = false;
    return found;
}

/* How many parts of its panel does a tile read side by side? Few rows use each byte once, and memory is read fastest by several sequential
 * streams (tir_rates), each of a page or more (Zen 3: 1x60000x256 0.79 of the time, 1x200000x64 in streams of 2 KB 1.48). */
static int64_t choose_streams(rules *r, int s, const rules_tile_shape *t) {
    enum { MOST = 8 };
    const tir_stage *stage = &r->region->stages.data[s];
    const double bytes = rules_tensor_bytes(r, &r->region->tensors.data[t->pack]), wanted = r->machine->rates.streams;
    const double column = rules_slice_bytes(r, s, t, true, -1);
    const char *words[MOST];
    int64_t parts[MOST];
    double far = 1e300;
    int count = 0, best = 0;
    if (rules_rows_but(r, stage, t->v) >= r->machine->rates.streamed_rows) return 1;
    if (bytes <= r->machine->rates.kept * (double)r->machine->l2) return 1;
    for (int64_t p = 1; p <= MOST && p * t->lanes <= t->nr; p++) {
        const double ratio = (double)p < wanted ? wanted / (double)p : (double)p / wanted;
        if (t->nr % (p * t->lanes) || (p > 1 && column * (double)(t->nr / p) < (double)r->machine->page)) continue;
        if (ratio < far) best = count, far = ratio;
        parts[count] = p;
        words[count++] = lib_arena_format(r->arena, "%lld", (long long)p);
    }
    return count < 2 ? 1 : parts[tir_choose_word(r->schedule, stage->name, "streams", count, words, best)];
}

/* Lays out an operand. In panels: (v/NR, other dimensions in order, v%NR), in several streams (v/NR, v/W%streams, .., v%W); for a unit
 * (.., k/2, .., v%NR, k%2), and its broadcast operand (.., k/2, .., k%2). Dimensions outside of the panels come first, so that memory is
 * read in order. */
static void pack_operand(rules *r, int s, const rules_tile_shape *t, int64_t streams, uint32_t tensor) {
    const tir_tensor *packed = &r->region->tensors.data[tensor];
    const dimensions at = find_dimensions(r, s, t, tensor);
    const char *names[DLC_MAX_RANK];
    const int64_t width = t->nr / streams;
    lib_text parts;
    if (at.panel < 0 && at.steps < 0) return;
    tir_dimension_names(r->arena, r->region, tensor, names);
    lib_text_init(&parts, r->arena);
    for (int d = 0; d < packed->rank; d++)
        if (at.outside[d]) lib_text_format(&parts, "%s, ", names[d]);
    if (at.panel >= 0) lib_text_format(&parts, "%s/%lld", names[at.panel], (long long)t->nr);
    if (at.panel >= 0 && streams > 1)
        lib_text_format(&parts, ", %s/%lld%%%lld", names[at.panel], (long long)width, (long long)streams);
    for (int d = 0; d < packed->rank; d++) {
        const char *comma = parts.length ? ", " : "";
        if (d == at.steps)
            lib_text_format(&parts, "%s%s/%d", comma, names[d], tir_unit_width(t->unit));
        else if (d != at.panel && !at.outside[d])
            lib_text_format(&parts, "%s%s", comma, names[d]);
    }
    if (at.panel >= 0) lib_text_format(&parts, ", %s%%%lld", names[at.panel], (long long)width);
    if (at.steps >= 0) lib_text_format(&parts, ", %s%%%d", names[at.steps], tir_unit_width(t->unit));
    rules_rewrite(r, "layout %s (%s)", packed->name, parts.data);
}

/* Lays out an operand for the tile, or a copy of the operand, which holds it as the tile multiplies it. */
static void pack(rules *r, const char *reader, const rules_tile_shape *t, int64_t streams, const char *operand,
                 bool copy) {
    const uint32_t tensor = tir_region_find_tensor(r->region, operand);
    if (copy) {
        const char *source = operand, *dtype = rules_widened_dtype(r, rules_stage_named(r, reader), tensor, t->unit);
        if (rules_is_laid_out_in_place(&r->region->tensors.data[tensor]))
            pack_operand(r, rules_stage_named(r, reader), t, streams, tensor);
        operand = rules_fresh_name(r, source, "_panels");
        if (t->inside) rules_prepare_panels(r, reader, operand);
        rules_copy_as(r, source, operand, dtype, !t->inside);
    }
    pack_operand(r, rules_stage_named(r, reader), t, streams, tir_region_find_tensor(r->region, operand));
}

/* Adds copies of the stage's outputs, or of its result if it is a root: the copy has the caller's layout, the accumulators can have another
 * one. */
static void copy_outputs(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const char *source[TIR_MAX_STATE];
    int count = 0;
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *value = &r->region->tensors.data[stage->tensor[c]];
        if (value->output) source[count++] = value->name;
    }
    if (count == 0 && r->group[s].root == s) source[count++] = stage->name;
    for (int c = 0; c < count; c++)
        rules_rewrite(r, "copy %s -> %s", source[c], rules_fresh_name(r, source[c], "_out"));
}

/* Chooses the order in which the tile reads a vector operand that is given at run time, or one of 16 bits that is widened in panels. */
static rules_operand_access choose_operand_access(rules *r, int s, rules_tile_shape *t,
                                                  rules_operand_tile *operand_tile) {
    const tir_stage *stage = &r->region->stages.data[s];
    operand_tile->n = rules_extent(r, &stage->axis[t->v]);
    operand_tile->m = t->u < 0 ? 1 : rules_extent(r, &stage->axis[t->u]);
    if (t->pack_copy || t->unit || operand_tile->n < 0 || operand_tile->m < 0) return RULES_OPERAND_IN_PLACE;
    const char *widened = rules_widened_panels(r, s, operand_tile);
    if (t->pack != UINT32_MAX && !widened) return RULES_OPERAND_IN_PLACE;
    rules_operand_access kind = RULES_OPERAND_PANELS;
    if (widened)
        operand_tile->operand = widened;
    else
        kind = rules_choose_operand_access(r, s, operand_tile);
    if (kind != RULES_OPERAND_PANELS) return kind;
    t->pack = tir_region_find_tensor(r->region, operand_tile->operand);
    t->pack_copy = t->inside = true;
    return kind;
}

/* Lays out the operands that the tile reads in panels or in steps of a unit. */
static void pack_operands(rules *r, const char *reader, const rules_tile_shape *t) {
    enum { OPERANDS = TILE_WITH + 2 };
    uint32_t tensors[OPERANDS] = {[TILE_WITH] = t->pack, t->steps};
    const bool copies[OPERANDS] = {[TILE_WITH] = t->pack_copy, t->steps_copy};
    const char *names[OPERANDS]; /* rewrites renumber tensors */
    int64_t streams = 1;
    memcpy(tensors, t->with, sizeof t->with);
    if (t->pack != UINT32_MAX && !t->pack_copy) streams = choose_streams(r, rules_stage_named(r, reader), t);
    for (int i = 0; i < OPERANDS; i++)
        names[i] = tensors[i] == UINT32_MAX ? NULL : r->region->tensors.data[tensors[i]].name;
    for (int i = 0; i < OPERANDS; i++)
        if (names[i]) pack(r, reader, t, streams, names[i], copies[i]);
}

static void prepare_register_tile(rules *r, int s, rules_tile_shape *t) {
    const char *name = r->region->stages.data[s].name;
    rules_pin_tile(r, s, t);
    lib_vec_push(r->arena, &r->prepared, ((rules_prepared){name, t->v}));
    rules_operand_tile operand_tile = {.v = t->v, .u = t->u, .nr = t->nr, .mr = t->mr, .lanes = t->lanes};
    const rules_operand_access kind = choose_operand_access(r, s, t, &operand_tile);
    copy_outputs(r, s);
    s = rules_stage_named(r, name);
    if (kind == RULES_OPERAND_ROW_BLOCKS) {
        rules_prepare_blocks(r, s, &operand_tile);
        return;
    }
    if (t->v != r->region->stages.data[s].space - 1) rules_lay_out_last(r, name, t->v);
    if (rules_extent(r, &r->region->stages.data[s].axis[t->v]) < 0) return;
    pack_operands(r, name, t);
    if (kind == RULES_OPERAND_IN_PLACE && !t->unit) rules_copy_rows(r, rules_stage_named(r, name), &operand_tile);
    rules_widen_rows(r, rules_stage_named(r, name), &operand_tile, t->unit);
    const bool crossed = rules_crossings(r, rules_stage_named(r, name), t) > 0;
    if (kind == RULES_OPERAND_IN_PLACE) rules_prepare_cut(r, name, t);
    if (crossed) rules_prepare_transposed(r, rules_stage_named(r, name), t);
}

/* Is neither form clearly faster, of a result with few columns? The models of the two forms were not made for comparisons: they do not
 * include masks, copies and the ends of sums in the same way. Nor do they include lines of L2 that the hardware does not prefetch, of which
 * lanes, whose tiles have fewer products for each operand, load more. */
static bool is_close(const rules *r, int s, const rules_tile_shape *t, double tile, double lanes) {
    const double CLOSE = 2.5, BETTER = 1.5;
    const int64_t columns = rules_known_extent(r, &r->region->stages.data[s].axis[t->v]);
    if (r->machine->rates.line_miss > 0 && lanes < tile && tile < BETTER * lanes) return true;
    return (columns <= 2 * t->lanes || t->full) && tile < CLOSE * lanes && lanes < CLOSE * tile;
}

/* The tile, or, if the sums run through blocks of rows, the smallest task of them: how large tasks are depends on threads, on which results must
 * not depend. */
static rules_tile_shape task_of(rules *r, int s, const rules_tile_shape *t) {
    rules_tile_shape task = *t;
    rules_operand_tile blocks = {.v = t->v, .u = t->u, .nr = t->nr, .mr = t->mr, .lanes = t->lanes};
    if (choose_operand_access(r, s, &task, &blocks) != RULES_OPERAND_ROW_BLOCKS) return *t;
    task.nr = RULES_LEAST_COLUMNS;
    task.mr = blocks.m;
    return task;
}

/* Cuts the sums into parts if that is better (rules_prepare_parts): s is then the number of the sums over a part. */
static bool cut_sums(rules *r, int s, bool by_lanes, const rules_tile_shape *t, const rules_lanes_tile *lanes) {
    const bool packs = lanes->pack[0] != UINT32_MAX || lanes->pack[1] != UINT32_MAX;
    const rules_tile_shape task =
        by_lanes
            ? (rules_tile_shape){.v = lanes->v, .u = lanes->u, .nr = lanes->nr, .mr = lanes->mr, .pack = UINT32_MAX}
            : task_of(r, s, t);
    const int width = by_lanes && packs ? (int)lanes->vector * RULES_LANE_VECTORS : 1;
    return rules_prepare_parts(r, s, &task, task.unit ? tir_unit_width(task.unit) : width);
}

/* How the sums of a contraction are computed: in a register tile of results, with a vector of partial sums for each result, or several steps side
 * by side (rules_lanes.c). */
enum { FORM_TILE, FORM_LANES, FORM_STEPS, FORMS };

/* The forms of a contraction, and the predicted cycles of each; NEVER: it is impossible. */
typedef struct sum_forms {
    double cycles[FORMS];
    rules_tile_shape tile;
    rules_lanes_tile lanes, steps;
} sum_forms;

#define NEVER 1e300

static sum_forms find_forms(rules *r, int s) {
    sum_forms f = {.cycles = {NEVER, NEVER, NEVER}};
    const bool found = rules_find_tile(r, s, &f.tile);
    f.cycles[FORM_LANES] = rules_lanes_cost(r, s, &f.lanes);
    if (found) f.cycles[FORM_TILE] = rules_overlap_l3(f.tile.cycles, f.lanes.l3_cycles);
    if (found) f.cycles[FORM_STEPS] = rules_overlap_l3(rules_steps_cost(r, s, &f.tile, &f.steps), f.lanes.l3_cycles);
    return f;
}

/* Chooses the form that costs least, and doubts forms of which the models of this file know too little; FORMS: all are impossible. */
static int choose_form(rules *r, int s, const sum_forms *f) {
    static const char *const words[] = {"tile", "lanes", "steps"};
    const double STEPS_BETTER = 0.7;
    const char *name = r->region->stages.data[s].name, *candidates[FORMS];
    int form[FORMS], count = 0, best = 0;
    for (int i = 0; i < FORMS; i++) {
        if (f->cycles[i] >= NEVER) continue;
        /* (Zen 5: 1x27382 by 27382x7, weights in L2: steps 10.0 us, as predicted for lanes, too, which take 4.3) */
        const double better = i == FORM_STEPS ? STEPS_BETTER : 1;
        if (count && f->cycles[i] < better * f->cycles[form[best]]) best = count;
        form[count] = i;
        candidates[count++] = words[i];
    }
    if (count < 2) return count ? form[0] : FORMS;
    /* (Zen 3, x^T dy of 491 rows of 752 by 178: both operands in another layout, and lanes: 3.8 ms; tiles 1.9. Zen 5, bf16, 8x1850 by 1850x754:
     * one in another layout, and lanes: 0.26 ms; tiles with a unit 0.09.) */
    const bool packs = f->lanes.pack[0] != UINT32_MAX || f->lanes.pack[1] != UINT32_MAX;
    for (int i = 0; i < count; i++) {
        const bool pair = form[i] + form[best] == FORM_TILE + FORM_LANES;
        if (i == best) continue;
        if (!pair || (form[best] == FORM_LANES && packs) ||
            is_close(r, s, &f->tile, f->cycles[FORM_TILE], f->cycles[FORM_LANES]))
            tir_doubt(r->schedule, name, "form", candidates[i]);
    }
    return form[tir_choose_word(r->schedule, name, "form", count, candidates, best)];
}

void rules_prepare_tile(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    const char *name = stage->name;
    if (stage->kind != TIR_REDUCE || stage->fold >= 0) return;
    if (rules_role_of(r, s) > RULES_WHOLE || rules_is_interleaved(r, s)) return;
    sum_forms f = find_forms(r, s);
    int form = choose_form(r, s, &f);
    if (form == FORMS) return;
    if (cut_sums(r, s, form == FORM_LANES, &f.tile, &f.lanes)) {
        name = r->region->stages.data[s].name;
        f = find_forms(r, s);
        if (f.cycles[form] >= NEVER) form = FORM_TILE;
        if (f.cycles[form] >= NEVER) return;
    }
    if (form == FORM_TILE) {
        prepare_register_tile(r, s, &f.tile);
        return;
    }
    if (form == FORM_LANES) rules_choose_lanes(r, s, &f.lanes);
    copy_outputs(r, s);
    rules_prepare_lanes(r, rules_stage_named(r, name), form == FORM_LANES ? &f.lanes : &f.steps);
}
