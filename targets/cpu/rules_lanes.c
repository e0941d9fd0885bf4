/* Contractions by lanes: a register tile of results, each of which has its own vector of partial sums along the reduction. Operands must be
 * contiguous along the reduction. Then few columns waste no lanes, no operand is broadcast, and adding the lanes at the end is cheap
 * relative to rows of several vectors. The predicted cycles decide between this and a tile of rules_tile.c. So are the taps of a depthwise
 * window summed: both operands are streamed once, and vectors of one of them multiply shifted vectors of the other.
 *
 * In the form `steps`, vectors run along results, as in a tile, but several steps of the sum have accumulators of their own: a result of a few
 * vectors alone would wait for the sum of the step before. */
#include "targets/cpu/cost.h"
#include "targets/cpu/rules_tile.h"
#include <math.h>
#include <stdio.h>

/* Cycles per element to copy an operand into another layout: by vectors and shuffles, of which the widest vectors need fewer; by transposing
 * tiles. */
#define PACK_BY_WIDE_SHUFFLES 0.6
#define PACK_BY_SHUFFLES 1.3
#define PACK_BY_TRANSPOSING 0.9

enum {
    SHUFFLED = 4,     /* largest stride, in elements, with which vectors are loaded in place */
    CHEAP_STRIDE = 8, /* largest stride, in elements, that shuffles can gather */
    CLIPPED_ROWS = 3, /* of a window: the loop over positions is copied for each number of rows that lie on padding */
    STREAMS = 4       /* rows read side by side, once each: with more the hardware prefetches less far ahead */
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t ceiling(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

/* Facts of a contraction for which size_lanes chooses a tile. */
typedef struct lanes_problem {
    /* extents along u and v; 1: no such axis */
    int64_t m, n;
    /* points of the axis that the lanes run along */
    int64_t k;
    /* elements of a vector; bytes of an element */
    int64_t lanes, bytes;
    /* points of the other space axes, and of the other reduction axes */
    double rest, outer;
    /* pinned mr, nr and lanes of the tile; 0: none */
    int64_t rows, columns, width;
    /* The lanes run along an axis on which a window slides over one operand, whose neighbouring points have distance `spread` in memory;
     * window: the results are its taps, all of which multiply the same points of the other operand; padded: there are positions at which
     * some of its rows lie on padding. */
    bool slides, window, padded;
    int64_t spread;
    /* sums of integers: a product and its sum are two instructions, and operands are widened as they are loaded */
    bool integers;
} lanes_problem;

/* Cycles of one step of a tile, which loads (mr + nr) * q vectors, a window's mr * nr + 1, and multiplies mr * nr * q. */
static double step_cycles(const rules *r, const lanes_problem *p, int64_t mr, int64_t nr, int64_t q) {
    const tir_rates *rates = &r->machine->rates;
    const int64_t each = 2 * p->spread - 1; /* loads, and shuffles that join them */
    const int64_t loaded = p->window ? mr * nr * each + 1 : mr + nr * each;
    double fma = (double)(mr * nr * q) / rates->fma, loads = (double)(loaded * q) / rates->load;
    if (p->integers) fma = fmax(fma, (double)((2 * mr * nr + loaded) * q) / rates->vector);
    if (p->window) { /* each vector of the operands once, shifted ones from L1 */
        const double stream = rates->rows_vector * (double)((1 + p->spread) * q);
        return fmax(fmax(fma, loads), fmax(stream, rates->latency)) + rates->exposed_units * (loads + stream);
    }
    /* rows of v stay in L1 while the loop over tiles along u runs, if they fit; otherwise they are loaded from L2 */
    if (p->m == 1) { /* the single row stays in L1, rows of v are used once */
        mr = nr;
        nr = 1;
    }
    int64_t resident = nr * p->k * p->bytes, room = r->machine->l1 / 2;
    bool all = (p->m + p->n) * p->k * p->bytes <= 2 * room;
    double vectors = (double)((resident <= room ? 0 : nr) + mr) * (double)q,
           stream = all ? 0 : rates->rows_vector * vectors;
    return fmax(fmax(fma, loads), fmax(stream, rates->latency)) + rates->exposed_units * (loads + stream);
}

/* L3 streaming cycles of the operands larger than L2, for the better order of the two tile loops. The operand whose tile loop is the outer one
 * is streamed once, if the part of it that one tile reads fits in L2. Every other operand is streamed once for each tile of the other
 * operand. */
static double l3_cycles_of(const rules *r, const lanes_problem *p, int64_t mr, int64_t nr, bool *u_outside) {
    double row = (double)p->k * p->outer * (double)p->bytes, u = row * (double)p->m, v = row * (double)p->n;
    double near = r->machine->rates.kept * (double)r->machine->l2;
    if (p->window) { /* both operands are read for each tile */
        const double both = row * (double)(1 + p->spread);
        *u_outside = false;
        return both > near ? both * (double)(ceiling(p->m, mr) * ceiling(p->n, nr)) / r->machine->rates.bandwidth[2]
                           : 0;
    }
    double u_from_l3 = u > near ? u : 0, v_from_l3 = v > near ? v : 0;
    const double u_tiles = (double)ceiling(p->m, mr), v_tiles = (double)ceiling(p->n, nr);
    double outside = u_from_l3 * ((double)mr * row > near ? v_tiles : 1) + v_from_l3 * u_tiles,
           inside = v_from_l3 * ((double)nr * row > near ? u_tiles : 1) + u_from_l3 * v_tiles;
    *u_outside = p->m > 1 && outside < inside;
    return (*u_outside ? outside : inside) / r->machine->rates.bandwidth[2];
}

double rules_overlap_l3(double cycles, double l3_cycles) {
    return fmax(cycles, l3_cycles) + fmin(cycles, l3_cycles) / 10;
}

/* Registers of a tile: its sums, and their operands, which adding up the lanes needs, too: the vectors of its columns if several rows read
 * them, that of a row, the next row's beside it, and without fma a product. */
static int64_t held_registers(const rules *r, int64_t mr, int64_t nr, int64_t q) {
    const int64_t operands = (mr > 1 ? nr : 1) * q + 2 + !r->machine->fma, least = r->machine->vector_registers / 5;
    return mr * nr * q + (operands < least ? least : operands);
}

/* The largest number of rows of a tile with one column, or the reverse. */
static int64_t most_results(const rules *r, int64_t limit) {
    int64_t most = 1;
    while (most < limit && held_registers(r, most + 1, 1, 1) <= r->machine->vector_registers) most++;
    return most;
}

static bool is_wanted(int64_t pinned, int64_t value) {
    return !pinned || pinned == value;
}

/* The cost of the last step with q vectors, in whole steps: with inactive lanes, or with padding. */
static double tail_steps(const rules *r, const lanes_problem *p, int64_t q) {
    double tail = p->k % (p->lanes * q) ? r->machine->masked ? 1.5 : 6 : 0;
    if (p->slides) tail = fmax(tail, r->machine->masked ? 1.5 : 6); /* padding */
    return tail;
}

/* Cycles of all tiles of that size, a full one of which takes `full` cycles without its start. */
static double tiles_cycles(const rules *r, const lanes_problem *p, int64_t mr, int64_t nr, double full) {
    double tiles = (double)(ceiling(p->m, mr) * ceiling(p->n, nr));
    double height = (double)p->m / (double)ceiling(p->m, mr);
    double width = (double)p->n / (double)ceiling(p->n, nr);
    double share = height * width / (double)(mr * nr); /* balanced: tiles are a little smaller */
    double cycles = full * share;
    cycles = tiles * (cycles + r->machine->rates.tile);
    if (p->m % mr) cycles *= 1.01;
    if (p->n % nr) cycles *= 1.02; /* more versions of the tile */
    return cycles;
}

/* Sets *t to the best tile and returns its cycles for the whole contraction. */
static double size_lanes(const rules *r, const lanes_problem *p, rules_lanes_tile *t) {
    /* of a tile with many rows of a padded window, each tap would need a branch */
    const int64_t rows = p->padded && p->m > CLIPPED_ROWS ? 1 : smaller(p->m, 12),
                  columns = smaller(p->n, p->m == 1 && !p->window ? STREAMS : 12);
    double best = 1e300;
    for (int64_t q = 1; q <= RULES_LANE_VECTORS; q *= 2) {
        double steps = (double)(p->k / (p->lanes * q)), tail = tail_steps(r, p, q);
        double fold = 1 + (double)q; /* per result: lanes are added by halves, for several results at once */
        if (steps < 1 && (!p->slides || q > 1)) break;
        for (int64_t nr = 1; nr <= columns && is_wanted(p->width, p->lanes * q); nr++)
            for (int64_t mr = 1; mr <= rows; mr++) {
                if (held_registers(r, mr, nr, q) > r->machine->vector_registers) break;
                if (!is_wanted(p->rows, mr) || !is_wanted(p->columns, nr)) continue;
                double full = p->outer * (steps + tail) * step_cycles(r, p, mr, nr, q) + fold * (double)(mr * nr);
                double cycles = tiles_cycles(r, p, mr, nr, full);
                bool u_outside;
                cycles = rules_overlap_l3(cycles, l3_cycles_of(r, p, mr, nr, &u_outside));
                if (cycles >= best * 0.999) continue;
                best = cycles;
                t->u_outside = u_outside;
                t->mr = mr;
                t->nr = nr;
                t->lanes = p->lanes * q;
            }
    }
    t->vector = p->lanes;
    t->rows = most_results(r, rows);
    t->columns = most_results(r, columns);
    t->l3_cycles = p->rest * l3_cycles_of(r, p, p->m, p->n, &(bool){false});
    return best * p->rest;
}

/* Does the axis have a constant stride, or is it a dimension by itself, whose stride contains a varying size? */
static bool is_regular(const rules *r, const rules_access *access, const tir_stage *stage, int axis) {
    return access->stride[axis] != RULES_IRREGULAR ||
           tir_plain_dimension(r->region, access, stage->axis[axis].var) >= 0;
}

static bool slides_along(const rules *r, const tir_stage *stage, const rules_access *access, int reduction) {
    for (int a = 0; a < stage->space; a++)
        if (rules_taps_slide(r, stage, access, a, reduction)) return true;
    return false;
}

static bool is_tap(const rules *r, const tir_stage *stage, const rules_access *access, int axis) {
    for (int k = stage->space; k < stage->space + stage->reduce; k++)
        if (rules_taps_slide(r, stage, access, axis, k)) return true;
    return false;
}

/* Is the axis, on which one operand depends, a tap of that operand's window? */
static bool is_tap_of_one(const rules *r, const tir_stage *stage, const rules_access *access, int axis) {
    return is_tap(r, stage, &access[access[0].stride[axis] == 0], axis);
}

/* The taps of a window: sets *u and *v to the last two axes of it on which only this operand depends; *u = -1: there is one. False: there is
 * none. */
static bool window_axes(const rules *r, const tir_stage *stage, const rules_access *window, const rules_access *other,
                        int *u, int *v) {
    enum { TAPS_MOST = 12 };
    int found[2] = {-1, -1};
    for (int a = stage->space - 1; a >= 0 && found[1] < 0; a--) {
        const int64_t extent = rules_extent(r, &stage->axis[a]);
        if (window->stride[a] == 0 || other->stride[a] != 0 || extent < 2 || extent > TAPS_MOST) continue;
        if (is_tap(r, stage, window, a)) found[found[0] >= 0] = a;
    }
    *v = found[0] >= 0 ? found[0] : *v, *u = found[1];
    return found[0] >= 0;
}

/* *u, *v: for each operand the longest axis on which it alone depends; *u = -1: one operand has none. If a window then slides over
 * the other, *u and *v are its taps, and *window that operand's number; else -1. False: neither has such an axis, or an access is irregular. */
static bool repeated_axes(const rules *r, const tir_stage *stage, const rules_access *access, int *u, int *v,
                          int *window) {
    int64_t most[2] = {1, 1};
    int axis[2] = {-1, -1};
    for (int a = 0; a < stage->space; a++) {
        int64_t extent = rules_extent(r, &stage->axis[a]);
        bool first = access[0].stride[a] != 0, second = access[1].stride[a] != 0;
        if (!is_regular(r, &access[0], stage, a) || !is_regular(r, &access[1], stage, a)) return false;
        if (first == second) continue; /* of a batch: how many there are does not matter */
        if (extent < 0) return false;
        const bool later = extent == most[second] && axis[second] >= 0 && is_tap(r, stage, &access[second], a);
        if (extent <= most[second] && !later) continue;
        most[second] = extent;
        axis[second] = a;
    }
    /* vectors of results run along v: the innermost axis of the stored results */
    *u = axis[0] < axis[1] ? axis[0] : axis[1];
    *v = axis[0] < axis[1] ? axis[1] : axis[0];
    *window = *u >= 0 ? -1 : axis[1] == *v;
    if (*v >= 0 && *window >= 0 && !window_axes(r, stage, &access[*window], &access[1 - *window], u, v)) *window = -1;
    return *v >= 0;
}

/* The dimension that the axis indexes in groups of any number of lanes; -1: none. */
static int dimension_of_lanes(const rules *r, const rules_access *access, tir_expr axis, int64_t vector) {
    for (int d = 0; d < r->region->tensors.data[access->tensor].rank; d++)
        if (rules_steps_in(r, access, d, axis, (int)vector * RULES_LANE_VECTORS)) return d;
    return -1;
}

/* Can the operand, which is not contiguous along the axis, get another layout? */
static bool may_pack(const rules *r, const rules_access *access, tir_expr axis, int64_t vector) {
    const tir_tensor *t = &r->region->tensors.data[access->tensor];
    return t->rank >= 2 && !t->output && tir_layout_is_identity(&t->layout) &&
           dimension_of_lanes(r, access, axis, vector) >= 0;
}

/* Is the stage a contraction of two operands whose results could have vectors of partial sums? */
static bool may_use_lanes(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    if (stage->kind != TIR_REDUCE || !stage->merge[0] || !stage->reduce || stage->fold >= 0) return false;
    if (!rules_is_contraction(r, s) || !rules_simple_group(r, s) || stage->space + 1 > DLC_MAX_RANK) return false;
    return r->machine->vector_bytes >= 16;
}

/* A reduction axis that is tried as the axis of lanes. */
typedef struct lanes_trial {
    rules *r;
    const tir_stage *stage;
    const rules_access *access;
    lanes_problem p;
    int axis;
    /* its extent varies: then it may be short, when adding up lanes takes most of the time, and no layout has blocks along it */
    bool varies;
} lanes_trial;

/* Sets the numbers of steps along the axis and along the others; false: too few for lanes, or unknown. */
static bool count_steps(lanes_trial *a) {
    const tir_stage *stage = a->stage;
    lanes_problem *p = &a->p;
    a->varies = rules_extent(a->r, &stage->axis[a->axis]) < 0;
    p->k = rules_usual_extent(a->r, &stage->axis[a->axis]) | a->varies; /* odd: the last step has inactive lanes */
    p->outer = 1;
    if (p->slides) /* a row of an image may be shorter than a vector */
        while (p->lanes > 4 && p->k <= p->lanes / 2) p->lanes /= 2;
    else if (p->k < p->lanes)
        return false;
    if (p->k <= 1 || (a->varies && p->m >= p->lanes && p->n >= p->lanes)) return false;
    for (int b = stage->space; b < stage->space + stage->reduce; b++) {
        const int64_t extent = b == a->axis ? 1
                               : p->slides  ? rules_usual_extent(a->r, &stage->axis[b])
                                            : rules_extent(a->r, &stage->axis[b]);
        if (extent <= 0) return false;
        p->outer *= (double)extent;
    }
    return true;
}

/* Cycles to lay out an operand along the axis. */
static double packing_cycles(const lanes_trial *a, const rules_access *access, const rules_lanes_tile *t) {
    const int64_t stride = access->stride[a->axis];
    double points = (double)a->p.k * a->p.outer * a->p.rest;
    for (int axis = 0; axis < a->stage->space; axis++)
        if ((axis == t->u || axis == t->v) && access->stride[axis] != 0)
            points *= (double)rules_extent(a->r, &a->stage->axis[axis]);
    const double shuffles = a->r->machine->vector_bytes >= 64 ? PACK_BY_WIDE_SHUFFLES : PACK_BY_SHUFFLES;
    return (stride > 0 && stride <= CHEAP_STRIDE ? shuffles : PACK_BY_TRANSPOSING) * points;
}

/* How an operand is read along the axis: adds to *packing the cycles to lay it out. False: it cannot be read. */
static bool take_operand(lanes_trial *a, int i, rules_lanes_tile *t, double *packing) {
    const rules_access *access = &a->access[i];
    const tir_tensor *tensor = &a->r->region->tensors.data[access->tensor];
    const int64_t stride = access->stride[a->axis];
    if (stride == 1 && tensor->stage < 0) return true;
    if (a->p.slides) {
        a->p.spread = stride;
        return stride > 1 && stride <= SHUFFLED && tensor->stage < 0;
    }
    if (a->varies) {
        *packing += packing_cycles(a, access, t);
        return stride > 1 && stride <= SHUFFLED && tensor->stage < 0;
    }
    t->pack[i] = access->tensor;
    if (!tensor->constant || tensor->stage >= 0) *packing += packing_cycles(a, access, t);
    return may_pack(a->r, access, a->stage->axis[a->axis].var, a->p.lanes);
}

/* Cycles with lanes along a->axis; *t, which has the tile's axes, gets that one, its size and layouts. 1e300: impossible. */
static double axis_cost(lanes_trial *a, int s, rules_lanes_tile *t) {
    double packing = 0;
    t->axis = a->axis;
    a->p.lanes = rules_lanes(a->r, s);
    a->p.spread = 1;
    if (a->p.slides && !slides_along(a->r, a->stage, &a->access[0], a->axis) &&
        !slides_along(a->r, a->stage, &a->access[1], a->axis))
        return 1e300;
    if (!count_steps(a)) return 1e300;
    if (!take_operand(a, 0, t, &packing) || !take_operand(a, 1, t, &packing)) return 1e300;
    return size_lanes(a->r, &a->p, t) + packing;
}

/* rules_lanes_cost with these sizes, 0: free. */
static double lanes_cost(rules *r, int s, int64_t rows, int64_t columns, int64_t width, rules_lanes_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    double best = 1e300;
    if (!may_use_lanes(r, s)) return best;
    if (rules_accesses(r, s, access, RULES_ACCESSES) != 2 || access[0].tensor == access[1].tensor) return best;
    rules_lanes_tile tile = {.name = stage->name, .pack = {UINT32_MAX, UINT32_MAX}};
    int window;
    if (!repeated_axes(r, stage, access, &tile.u, &tile.v, &window)) return best;
    tile.window = window >= 0 ||
                  (tile.u >= 0 && is_tap_of_one(r, stage, access, tile.u) && is_tap_of_one(r, stage, access, tile.v));
    lanes_trial a = {
        .r = r,
        .stage = stage,
        .access = access,
        .p = {.m = tile.u < 0 ? 1 : rules_stored_extent(r, s, tile.u), /* with the padding of a blocked axis */
              .n = rules_stored_extent(r, s, tile.v),
              .lanes = rules_lanes(r, s),
              .slides = window >= 0 || stage->predicate,
              .window = window >= 0,
              .padded = window >= 0 && stage->predicate,
              .integers = !lib_dtype_is_float(r->region->tensors.data[stage->tensor[0]].dtype),
              .rest = 1,
              .rows = rows,
              .columns = columns,
              .width = width}};
    a.p.bytes = r->machine->vector_bytes / a.p.lanes;
    for (int axis = 0; axis < stage->space; axis++)
        if (axis != tile.u && axis != tile.v) a.p.rest *= (double)rules_known_extent(r, &stage->axis[axis]);
    for (a.axis = stage->space; a.axis < stage->space + stage->reduce; a.axis++) {
        rules_lanes_tile here = tile;
        const double cycles = axis_cost(&a, s, &here);
        if (cycles >= best) continue;
        best = cycles;
        *t = here;
    }
    return best;
}

double rules_lanes_cost(rules *r, int s, rules_lanes_tile *t) {
    return lanes_cost(r, s, 0, 0, 0, t);
}

void rules_choose_lanes(rules *r, int s, rules_lanes_tile *t) {
    enum { WIDTHS = 3, LONGEST = 24 };
    const char *name = r->region->stages.data[s].name, *words[WIDTHS];
    char text[WIDTHS][LONGEST];
    rules_lanes_tile pinned;
    int width = 0;
    if (!r->schedule->choices) return;
    const double cycles =
        lanes_cost(r, s, tir_pinned_number(r->schedule, name, "rows"), tir_pinned_number(r->schedule, name, "columns"),
                   tir_pinned_number(r->schedule, name, "lanes"), &pinned);
    if (cycles < 1e300) *t = pinned;
    for (int i = 0; i < WIDTHS; i++) {
        snprintf(text[i], LONGEST, "%lld", (long long)(t->vector << i));
        words[i] = text[i];
        if (t->vector << i == t->lanes) width = i;
    }
    tir_record_word(r->schedule, name, "lanes", WIDTHS, words, width);
    tir_record_number(r->schedule, name, "columns", (tir_numbers){1, t->columns, 1}, t->nr);
    if (t->u >= 0) tir_record_number(r->schedule, name, "rows", (tir_numbers){1, t->rows, 1}, t->mr);
}

/* ---- several steps side by side */

/* The only reduction axis of more than one point; -1: there is none, or several. */
static int only_reduction(const rules *r, const tir_stage *stage) {
    int axis = -1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        if (rules_extent(r, &stage->axis[a]) == 1) continue;
        if (axis >= 0) return -1;
        axis = a;
    }
    return axis;
}

/* Are all operands contiguous along axis v, or the same at all of its points? */
static bool are_vectors(rules *r, int s, int v, int axis) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        if ((access[i].stride[v] != 0 && access[i].stride[v] != 1) || access[i].stride[axis] == RULES_IRREGULAR)
            return false;
    return count < RULES_ACCESSES;
}

/* Cycles to read the operands, from L3 or memory if these are too large for L2. */
static double streaming_cycles(rules *r, int s) {
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    double bytes = 0;
    for (int i = 0; i < count; i++) bytes += rules_tensor_bytes(r, &r->region->tensors.data[access[i].tensor]);
    const int level = bytes <= (double)r->machine->l2 ? 1 : bytes <= (double)r->machine->l3 ? 2 : 3;
    return bytes / r->machine->rates.bandwidth[level];
}

double rules_steps_cost(rules *r, int s, const rules_tile_shape *tile, rules_lanes_tile *steps) {
    enum { MOST = 8, LEAST_ROUNDS = 4 };
    const double NEVER = 1e300;
    const tir_stage *stage = &r->region->stages.data[s];
    const tir_rates *rates = &r->machine->rates;
    const int axis = only_reduction(r, stage);
    if (axis < 0 || stage->predicate || !stage->merge[0] || stage->space == DLC_MAX_RANK) return NEVER;
    if (tile->unit || tile->pack != UINT32_MAX || !rules_is_contraction(r, s) || !are_vectors(r, s, tile->v, axis))
        return NEVER;
    const int64_t k = rules_extent(r, &stage->axis[axis]), n = rules_extent(r, &stage->axis[tile->v]),
                  m = tile->u < 0 ? 1 : rules_extent(r, &stage->axis[tile->u]),
                  waited = (int64_t)(rates->latency * rates->fma);
    if (k < 1 || n < 1 || m < 1 || 2 * m > waited || 2 * n > waited * tile->lanes) return NEVER;
    const int64_t vectors = ceiling(n, tile->lanes), sums = m * vectors;
    int64_t side = 1;
    while (side < MOST && side * sums < waited) side *= 2;
    if (2 * sums > waited || k < LEAST_ROUNDS * side || 2 * side * sums > r->machine->vector_registers) return NEVER;
    double rest = 1;
    for (int a = 0; a < stage->space; a++)
        if (a != tile->v && a != tile->u) rest *= (double)rules_known_extent(r, &stage->axis[a]);
    *steps = (rules_lanes_tile){.name = stage->name,
                                .u = tile->u,
                                .v = tile->v,
                                .axis = axis,
                                .mr = m,
                                .nr = n,
                                .lanes = side,
                                .pack = {UINT32_MAX, UINT32_MAX},
                                .vector = tile->lanes,
                                .steps = true};
    const double products = (double)(side * sums) / rates->fma, loads = (double)(side * (m + vectors)) / rates->operand;
    const double each = (double)ceiling(k, side) * fmax(rates->latency, fmax(products, loads)) +
                        (double)(side * sums) * rates->latency / rates->fma;
    return fmax(rest * each, streaming_cycles(r, s));
}

/* ---- rewrites */

/* Does an axis of the result on which both operands depend index the dimension? Then each of its points is a contraction of its own. */
static bool is_of_batch(rules *r, const tir_stage *reader, const rules_access *access, int count, int i, int dim) {
    const tir_expr index = tir_operand(r->region->pool, access[i].load, dim);
    for (int a = 0; a < reader->space; a++) {
        bool all = true;
        for (int k = 0; k < count; k++) all = all && access[k].stride[a] != 0;
        if (all && tir_uses(r->region->pool, index, reader->axis[a].var)) return true;
    }
    return false;
}

/* Lays out operand i as (dimensions of a batch, k/lanes, other dimensions in order, k%lanes): vectors of partial sums are loaded contiguously,
 * and so are all that one contraction of a batch reads. */
static void pack_lanes(rules *r, const tir_stage *reader, const rules_access *accesses, int count, int i,
                       const rules_lanes_tile *t) {
    const rules_access *access = &accesses[i];
    const tir_tensor *packed = &r->region->tensors.data[access->tensor];
    const char *names[DLC_MAX_RANK];
    lib_text parts;
    lib_text_init(&parts, r->arena);
    const long long lanes = t->lanes;
    const int dim = dimension_of_lanes(r, access, reader->axis[t->axis].var, t->vector);
    tir_dimension_names(r->arena, r->region, access->tensor, names);
    for (int d = 0; d < packed->rank; d++)
        if (d != dim && is_of_batch(r, reader, accesses, count, i, d)) lib_text_format(&parts, "%s, ", names[d]);
    lib_text_format(&parts, "%s/%lld", names[dim], lanes);
    for (int d = 0; d < packed->rank; d++)
        if (d != dim && !is_of_batch(r, reader, accesses, count, i, d)) lib_text_format(&parts, ", %s", names[d]);
    lib_text_format(&parts, ", %s%%%lld", names[dim], lanes);
    rules_rewrite(r, "layout %s (%s)", packed->name, parts.data);
}

static void pack_operand(rules *r, const rules_lanes_tile *t, uint32_t tensor) {
    const tir_tensor *operand = &r->region->tensors.data[tensor];
    int s = rules_stage_named(r, t->name);
    rules_access access[RULES_ACCESSES];
    if (!operand->constant || operand->stage >= 0) {
        const char *source = operand->name, *copy = rules_fresh_name(r, source, "_rows");
        rules_rewrite(r, "copy %s -> %s", source, copy);
        tensor = tir_region_find_tensor(r->region, copy);
        s = rules_stage_named(r, t->name);
    }
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        if (access[i].tensor == tensor) pack_lanes(r, &r->region->stages.data[s], access, count, i, t);
}

void rules_prepare_lanes(rules *r, int s, const rules_lanes_tile *chosen) {
    rules_lanes_tile t = *chosen;
    t.part = rules_fresh_name(r, t.name, "_p");
    for (int i = 0; i < 2; i++)
        if (t.pack[i] != UINT32_MAX) pack_operand(r, &t, t.pack[i]);
    s = rules_stage_named(r, t.name);
    rules_set_role(r, t.part, RULES_LANES);
    lib_vec_push(r->arena, &r->lanes_tiles, t);
    rules_rewrite(r, "rfactor %s.%s %lld lanes -> %s lane step", t.name, r->region->stages.data[s].axis[t.axis].name,
                  (long long)t.lanes, t.part);
    rules_rewrite(r, "tree %s.lane", t.name);
}

/* ---- loops */

/* Is s a stage of the tile: the partial sums, a level of the tree over their lanes, or the sum? All have the sum's axes first. */
static bool is_lanes_part(rules *r, int s, const rules_lanes_tile *t) {
    return rules_end_of_tree(r, s) == rules_stage_named(r, t->name);
}

/* Prefetches the rows of both images of a window's taps, each half a page or half of a plane ahead, if the two images together exceed a quarter of
 * L3: the kernels before have then left little of them there. The plane of one channel is a short piece of memory, at whose end the hardware
 * prefetcher has to start anew. */
static void fetch_rows(rules *r, int s, const rules_lanes_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int row = stage->space + stage->reduce - 2; /* the loop around that over the steps of a row */
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    const bool carries = rules_known_extent(r, &stage->axis[row]) > 0;
    double all = 0;
    for (int i = 0; i < count; i++) all += rules_tensor_bytes(r, &r->region->tensors.data[access[i].tensor]);
    if (!t->window || row < stage->space || stage->axis[row].role != TIR_AXIS_PLAIN ||
        4 * all <= (double)r->machine->l3)
        return;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        if (tensor->stage >= 0 || access[i].stride[row] <= 0 || access[i].stride[row] == RULES_IRREGULAR) continue;
        const int64_t bytes = access[i].stride[row] * (int64_t)lib_dtype_size(tensor->dtype);
        const int64_t ahead = smaller(r->machine->page / 2 / bytes, rules_known_extent(r, &stage->axis[row]) / 2);
        if (ahead > 0)
            tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s+%lld L1%s", tensor->name, stage->name,
                             stage->axis[row].name, stage->name, stage->axis[row].name, (long long)ahead,
                             carries ? " carry" : "");
    }
}

static void partial_sums(rules *r, int s, const rules_lanes_tile *t, const char *owner, const char *loop) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int u = t->u, v = t->v, lane = rules_axis_of(stage, TIR_AXIS_LANE);
    const char *u_name = u < 0 ? "" : stage->axis[u].name, *v_name = stage->axis[v].name;
    tir_schedule_add(r->schedule, "at %s %s.%s", stage->name, owner, loop);
    tir_schedule_add(r->schedule, "store %s reg", stage->name);
    tir_schedule_add(r->schedule, "order %s:%s%s%s%s %s%s", stage->name,
                     tir_loops_but(r->arena, stage, tir_axis_bit(u) | tir_axis_bit(v) | tir_axis_bit(lane)),
                     t->steps ? " lane" : "", u < 0 ? "" : " ", u_name, v_name, t->steps ? "" : " lane");
    if (stage->predicate) tir_schedule_add(r->schedule, "clip %s.step", stage->name);
    for (int a = stage->space; stage->predicate && a < stage->space + stage->reduce; a++)
        if (stage->axis[a].role == TIR_AXIS_PLAIN && tir_uses(r->region->pool, stage->predicate, stage->axis[a].var))
            tir_schedule_add(r->schedule, "clip %s.%s", stage->name, stage->axis[a].name);
    tir_schedule_add(r->schedule, "vec %s.%s", stage->name, t->steps ? v_name : "lane");
    if (u >= 0) tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, u_name);
    tir_schedule_add(r->schedule, "unroll %s.%s", stage->name, t->steps ? "lane" : v_name);
    if (t->steps && !stage->exact &&
        rules_extent_limit(r, &stage->axis[rules_axis_of(stage, TIR_AXIS_STEP)]) >= 2 * RULES_SUM_PART)
        tir_schedule_add(r->schedule, "partial %s.step %d", stage->name, RULES_SUM_PART);
    fetch_rows(r, s, t);
}

/* Attaches a level of the tree over steps side by side, or the sum: vectors of results. */
static void fold_steps(rules *r, int s, const rules_lanes_tile *t, const char *owner, const char *loop) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int lane = rules_axis_of(stage, TIR_AXIS_LANE);
    const char *name = stage->name, *v_name = stage->axis[t->v].name;
    tir_schedule_add(r->schedule, "at %s %s.%s", name, owner, loop);
    tir_schedule_add(r->schedule, "store %s reg", name);
    tir_schedule_add(r->schedule, "order %s:%s %s", name, tir_loops_but(r->arena, stage, tir_axis_bit(t->v)), v_name);
    tir_schedule_add(r->schedule, "vec %s.%s", name, v_name);
    if (t->u >= 0) tir_schedule_add(r->schedule, "unroll %s.%s", name, stage->axis[t->u].name);
    if (lane >= 0) tir_schedule_add(r->schedule, "unroll %s.lane", name);
}

/* Attaches a level of the tree over lanes, or the sum, for all results together: the halves of neighbouring results fill a vector. */
static void fold_lanes(rules *r, int s, const rules_lanes_tile *t, const char *owner, const char *loop) {
    const tir_stage *stage = &r->region->stages.data[s];
    const int u = t->u, v = t->v, lane = rules_axis_of(stage, TIR_AXIS_LANE);
    const char *u_name = u < 0 ? "" : stage->axis[u].name, *v_name = stage->axis[v].name;
    const char *name = stage->name, *all = v_name;
    tir_schedule_add(r->schedule, "at %s %s.%s", name, owner, loop);
    tir_schedule_add(r->schedule, "store %s reg", name);
    tir_schedule_add(r->schedule, "order %s:%s%s%s %s%s", name,
                     tir_loops_but(r->arena, stage, tir_axis_bit(u) | tir_axis_bit(v) | tir_axis_bit(lane)),
                     u < 0 ? "" : " ", u_name, all, lane < 0 ? "" : " lane");
    if (u >= 0) tir_schedule_add(r->schedule, "fuse %s.%s %s.%s -> sums", name, u_name, name, all);
    if (u >= 0) all = "sums";
    if (lane >= 0) tir_schedule_add(r->schedule, "fuse %s.%s %s.lane -> lanes", name, all, name);
    if (lane >= 0) all = "lanes";
    tir_schedule_add(r->schedule, "vec %s.%s", name, all);
}

typedef struct lanes_loops {
    rules *r;
    /* the root, and its number */
    const tir_stage *top;
    int root;
    const rules_lanes_tile *tile;
    /* the stage of the partial sums */
    int part;
    /* axes of the root along the tile; u -1: none */
    int u, v;
    lib_text order, parallel;
    /* innermost loop so far; NULL: none */
    const char *last;
} lanes_loops;

static void add_loop(lanes_loops *l, const char *loop, bool parallel) {
    lib_text_format(&l->order, " %s", loop);
    if (parallel) lib_text_format(&l->parallel, " %s.%s", l->top->name, loop);
    l->last = loop;
}

/* Splits the axis into tiles, if it is larger than one, and adds the outer loop. Returns the name of the loop inside the tile. */
static const char *split_axis(lanes_loops *l, int axis, int64_t size, const char *outer, const char *inner) {
    const char *name = l->top->axis[axis].name;
    if (rules_stored_extent(l->r, l->root, axis) <= size) return name;
    tir_schedule_add(l->r->schedule, "split %s.%s %lld -> %s %s balanced", l->top->name, name, (long long)size, outer,
                     inner);
    add_loop(l, outer, true);
    return inner;
}

static const rules_lanes_tile *tile_of(const rules *r, const int *members, int count) {
    for (uint32_t i = 0; i < r->lanes_tiles.count; i++)
        for (int m = 0; m < count; m++)
            if (rules_stage_named(r, r->lanes_tiles.data[i].part) == members[m]) return &r->lanes_tiles.data[i];
    return NULL;
}

/* Finds the loops of a root whose members are the parts of a sum by lanes, and maps; false: it is none. */
static bool find_loops(lanes_loops *l, rules *r, int root, const int *members, int count) {
    const tir_stage *top = &r->region->stages.data[root];
    const rules_lanes_tile *t = top->kind == TIR_MAP ? tile_of(r, members, count) : NULL;
    if (!t) return false;
    for (int i = 0; i < count; i++)
        if (!is_lanes_part(r, members[i], t) &&
            (!rules_pointwise(r, members[i]) || r->region->stages.data[members[i]].kind != TIR_MAP))
            return false;
    const int sums = rules_stage_named(r, t->name);
    *l = (lanes_loops){.r = r, .top = top, .root = root, .tile = t, .part = rules_stage_named(r, t->part)};
    l->v = r->group[l->part].label[t->v];
    l->u = t->u < 0 ? -1 : r->group[l->part].label[t->u];
    return l->v >= 0 && (t->u < 0 || l->u >= 0) && (sums == root || r->group[sums].owner == root);
}

/* Sets *rows to the operand of the partial sums that depends on the tile's rows (axis u), *columns to the other one. False: the tile has no
 * axis u, the sums have not two operands, or both operands depend on u. */
static bool find_operands(const lanes_loops *l, rules_access *rows, rules_access *columns) {
    rules_access access[RULES_ACCESSES];
    if (l->u < 0 || rules_accesses(l->r, l->part, access, RULES_ACCESSES) != 2) return false;
    const bool second = access[0].stride[l->tile->u] == 0;
    *rows = access[second], *columns = access[!second];
    return rows->stride[l->tile->u] != 0 && columns->stride[l->tile->u] == 0;
}

/* Is the root's axis one along which the rows do not change (channels of an image and rows of the window, if results are its taps)? */
static bool repeats_rows(const lanes_loops *l, const rules_access *rows, int axis) {
    const int mine = rules_axis_labelled(l->r, l->part, axis);
    return axis != l->u && axis != l->v && mine >= 0 && rows->stride[mine] == 0;
}

/* Should the loop over tiles of rows be outside of those over axes along which they do not change? The operand whose loops are inside is
 * streamed again for each iteration outside, if it exceeds L2. */
static bool rows_outside(const lanes_loops *l, rules_access *rows) {
    rules_access columns;
    double repeats = 1;
    if (!find_operands(l, rows, &columns)) return false;
    for (int a = 0; a < l->top->space; a++)
        if (repeats_rows(l, rows, a)) repeats *= (double)rules_known_extent(l->r, &l->top->axis[a]);
    const double near = l->r->machine->rates.kept * (double)l->r->machine->l2;
    const double tiles = (double)ceiling(rules_stored_extent(l->r, l->root, l->u), l->tile->mr);
    const double of_rows = rules_tensor_bytes(l->r, &l->r->region->tensors.data[rows->tensor]);
    const double of_columns = rules_tensor_bytes(l->r, &l->r->region->tensors.data[columns.tensor]);
    return of_rows + of_columns * (of_columns > near ? tiles : 1) <
           of_columns + of_rows * (of_rows > near ? repeats : 1);
}

/* Adds the loops over the axes that are not the tile's, but for those along which `rows` (NULL: none) do not change. */
static void add_outer_axes(lanes_loops *l, const rules_access *rows) {
    for (int a = 0; a < l->top->space; a++)
        if (a != l->u && a != l->v && !(rows && repeats_rows(l, rows, a))) add_loop(l, l->top->axis[a].name, true);
}

/* Writes the loops of the root. */
static void order_root(lanes_loops *l) {
    rules *r = l->r;
    const tir_stage *top = l->top;
    const rules_lanes_tile *t = l->tile;
    lib_text_init(&l->order, r->arena);
    lib_text_init(&l->parallel, r->arena);
    rules_access rows;
    const bool outside = rows_outside(l, &rows);
    add_outer_axes(l, outside ? &rows : NULL);
    const char *ui = t->u_outside || outside ? split_axis(l, l->u, t->mr, "u_o", "u_i") : NULL;
    for (int a = 0; a < top->space && outside; a++)
        if (repeats_rows(l, &rows, a)) add_loop(l, top->axis[a].name, true);
    const char *vi = split_axis(l, l->v, t->nr, "v_o", "v_i");
    if (l->u >= 0 && !ui) ui = split_axis(l, l->u, t->mr, "u_o", "u_i");
    if (!l->last) { /* the tile covers everything: a loop of one iteration to attach at */
        tir_schedule_add(r->schedule, "split %s.%s %lld -> w_o w_i mask", top->name, vi,
                         (long long)rules_extent(r, &top->axis[l->v]));
        vi = "w_i";
        add_loop(l, "w_o", false);
    }
    tir_schedule_add(r->schedule, "order %s:%s%s%s %s", top->name, l->order.data, ui ? " " : "", ui ? ui : "", vi);
    if (l->parallel.length) tir_schedule_add(r->schedule, "par%s", l->parallel.data);
    if (ui) tir_schedule_add(r->schedule, "unroll %s.%s", top->name, ui);
    tir_schedule_add(r->schedule, "vec %s.%s", top->name, vi);
}

/* Attaches a map around the sums. */
static void attach_map(const lanes_loops *l, int s) {
    rules *r = l->r;
    const tir_stage *m = &r->region->stages.data[s];
    const int u = l->u < 0 ? -1 : rules_axis_labelled(r, s, l->u), v = rules_axis_labelled(r, s, l->v);
    tir_schedule_add(r->schedule, "at %s %s.%s", m->name, l->top->name, l->last);
    tir_schedule_add(r->schedule, "store %s local", m->name);
    if (v >= 0) tir_schedule_add(r->schedule, "vec %s.%s", m->name, m->axis[v].name);
    if (u >= 0) tir_schedule_add(r->schedule, "unroll %s.%s", m->name, m->axis[u].name);
}

bool rules_lanes_loops(rules *r, int root) {
    int *members, count = rules_members(r, root, &members);
    lanes_loops l;
    if (!find_loops(&l, r, root, members, count)) return false;
    order_root(&l);
    for (int i = 0; i < count; i++) {
        if (members[i] == l.part)
            partial_sums(r, l.part, l.tile, l.top->name, l.last);
        else if (is_lanes_part(r, members[i], l.tile))
            (l.tile->steps ? fold_steps : fold_lanes)(r, members[i], l.tile, l.top->name, l.last);
        else
            attach_map(&l, members[i]);
    }
    return true;
}
