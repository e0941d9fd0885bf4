/* Order in which the tiles of a contraction read a vector operand that is given at run time. A tile reads one panel (some columns of all rows):
 * a few cache lines of each row, and neighbouring rows are distant if rows are long. Three ways:
 *   straight  unpacked: best if a panel spans few pages or few tiles use it
 *   panels    each panel is copied to scratch before its tiles run: its rows are then contiguous, in few pages and in all sets of a cache
 *   blocks    some rows after the others, all columns of each block, while the sums of all columns stay in cache: memory is read
 *             sequentially. If the operand exceeds L3, the next block is prefetched meanwhile, or the next columns
 * The choice follows from the cache lines of a panel's row, the pages of a panel, and the number of tiles that share a panel. If each step of
 * the sum reads a row of the broadcast operand, too (x^T dy), a block is so small that L1 holds its rows of both operands.
 * The broadcast operand is copied once if its rows map to few sets of a cache.
 * Operands of 16 bits are widened to the products' f32 in such copies, where elements are used so often that converting each once is
 * cheaper than in every tile: the vector operand, constant or not, in panels, the broadcast one as a whole. So are bytes for a unit that
 * multiplies 16 bits, but for constant panels: one instruction loads and widens them. */
#include "targets/cpu/cost.h"
#include "targets/cpu/rules_tile.h"

#include <math.h>

enum {
    LONG_ROW = 1024, /* bytes of a row: within longer rows the hardware prefetches the next lines */
    FEWER_ROWS = 8,  /* rows of a block if one tile covers all results' rows; each row of a block is a stream */
    SOME_ROWS = 16,  /* rows of a block if two tiles do; MANY_ROWS: if more do */
    MANY_ROWS = 32,
    COPY_USES = 512, /* uses of a broadcast element from which on a copy pays */
    /* cycles for a line of one of many rows, from memory and from L3, if the hardware prefetches few streams (Zen 3) */
    FAR_LINE = 60,
    NEAR_LINE = 25,
    FEWEST_ROWS = 2,  /* of results: with so few, all time is spent on reading */
    WIDENED_TILES = 4 /* tiles that use an element, from which on a widened copy pays */
};

enum { SUM_BYTES = 4 };
#define SUMS 4 /* cycles for a vector of sums that is loaded from L2, added to and stored */

/* Facts of the operand that the choice depends on. */
typedef struct operand_facts {
    /* rows of a panel: points of the reduction */
    double points;
    /* pages that a panel spans */
    double pages;
    /* bytes of the whole operand */
    double bytes;
    /* distance between rows; 0: not constant */
    double row_bytes;
    /* cache lines of a row of a panel */
    double lines_per_load;
    /* it is an argument, and short pieces of its rows are slow (tir_prefetches_few; of narrow types not measured) */
    bool few;
    /* bytes of a row of either operand together, if each step of the sum reads another row of both; 0: it does not */
    double rows_of_both;
} operand_facts;

/* Do `points` rows of `lines` cache lines each fit in L2? Rows whose distance is a large power of two map to few sets. */
static bool fits_l2(const rules *r, double points, double lines, double row_bytes) {
    int64_t line = r->machine->line, sets = r->machine->l2 / r->machine->l2_ways / line, starts = 1;
    if (sets < 1) return true;
    double room = (double)(sets * r->machine->l2_ways);
    if (row_bytes > 0 && (int64_t)row_bytes % line == 0) {
        int64_t step = (int64_t)row_bytes / line;
        while (starts < sets && starts * step % sets) starts++;
        if ((double)starts * lines < (double)sets) room = (double)(starts * r->machine->l2_ways) * lines;
    }
    return points * lines <= r->machine->rates.kept * room;
}

static bool describe(rules *r, const tir_stage *stage, const rules_access *access, int64_t nr, operand_facts *o) {
    const tir_tensor *tensor = &r->region->tensors.data[access->tensor];
    double size = (double)lib_dtype_size(tensor->dtype), line = r->machine->line;
    const double page = r->machine->page;
    *o = (operand_facts){.points = 1,
                         .pages = 1,
                         .bytes = size,
                         .few = size >= 4 && tensor->stage < 0 && tir_prefetches_few(r->machine)};
    for (int d = 0; d < tensor->rank; d++) {
        int64_t extent;
        if (!tir_is_const(r->region->pool, tensor->extent[d], &extent)) return false;
        o->bytes *= (double)extent;
    }
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        int64_t extent = rules_extent(r, &stage->axis[a]);
        if (extent < 0 || access->stride[a] == RULES_IRREGULAR) return false;
        double step = size * (double)(access->stride[a] < 0 ? -access->stride[a] : access->stride[a]);
        double pages = step >= page ? (double)extent : (double)extent * step / page;
        o->points *= (double)extent;
        if (pages > 1) o->pages *= pages;
        if (stage->reduce == 1) o->row_bytes = step;
    }
    o->lines_per_load = (double)((int64_t)((double)nr * size + line - 1) / (int64_t)line);
    return o->points > 0;
}

/* Is it an argument or a result of a stage that does not run in the loops of another one? */
static bool is_in_memory(const rules *r, const tir_tensor *tensor) {
    return tensor->stage < 0 || r->group[tensor->stage].root == tensor->stage;
}

/* Can the operand be copied: is it row-major in memory, no output, and does the axis alone index a dimension of it? */
static bool may_be_copied(const rules *r, const rules_access *access, tir_expr axis) {
    const tir_tensor *tensor = &r->region->tensors.data[access->tensor];
    if (tir_plain_dimension(r->region, access, axis) < 0 || tensor->output || tensor->rank < 2 ||
        !tir_layout_is_identity(&tensor->layout))
        return false;
    return is_in_memory(r, tensor);
}

/* The only vector operand, row-major in memory, and contiguous along v unless it is constant; NULL: there is no such operand. */
static const rules_access *vector_operand(const rules *r, int v, const rules_access *access, int count) {
    const rules_access *found = NULL;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[v] == 0) continue;
        if (found || (access[i].stride[v] != 1 && !r->region->tensors.data[access[i].tensor].constant)) return NULL;
        found = &access[i];
    }
    return found;
}

/* Can panels of the vector operand be copied: does the stage alone read it, once? */
static bool may_copy_panels(rules *r, int s, int v, const rules_access *operand, const rules_access *access,
                            int count) {
    for (int i = 0; i < count; i++) /* a copy would have to serve both */
        if (operand != &access[i] && operand->tensor == access[i].tensor) return false;
    return may_be_copied(r, operand, r->region->stages.data[s].axis[v].var) &&
           !tir_is_read_by_others(r->region, s, operand->tensor);
}

const rules_access *rules_broadcast_operand(int v, int u, const rules_access *access, int count) {
    const rules_access *found = NULL;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[v] != 0 || access[i].stride[u] <= 0) continue;
        if (found || access[i].stride[u] == RULES_IRREGULAR) return NULL;
        found = &access[i];
    }
    return found;
}

/* Columns of one task, so few that their sums stay in L2 while the loop over blocks of rows runs; 0: that would be too few. */
static int64_t columns_of(const rules *r, int64_t n, int64_t m, int64_t nr, double outer) {
    int64_t tasks = (int64_t)((double)r->threads / outer), columns;
    if (tasks < 1) tasks = 1;
    columns = (n + tasks - 1) / tasks;
    if (columns < RULES_LEAST_COLUMNS) columns = RULES_LEAST_COLUMNS;
    columns = (columns + nr - 1) / nr * nr;
    int64_t most = r->machine->l2 / 4 / (m * SUM_BYTES) / nr * nr;
    if (columns > most) columns = most;
    return columns < RULES_LEAST_COLUMNS && columns < n ? 0 : columns;
}

/* Do the lines of a panel, which all tiles read, exceed L1, where the hardware does not prefetch them from L2? It does if all rows begin where
 * lines do (Zen 3, 512 rows of 64 floats: in panels 1.2 times the time; 4,096 rows of 43 floats: 0.61). */
static bool misses_l1(const rules *r, const operand_facts *o) {
    const bool unaligned = o->row_bytes > 0 && (int64_t)o->row_bytes % r->machine->line != 0;
    return o->few && unaligned && o->points * o->lines_per_load * (double)r->machine->line > (double)r->machine->l1 / 2;
}

/* Sets o->rows_of_both if each step of the sum reads another row of both operands, all of which exceed L2 together, and L2 holds the sums of all
 * results: a task then has all columns, for any number of threads. */
static void find_rows_of_both(const rules *r, const tir_stage *stage, const rules_operand_tile *t,
                              const rules_access *operand, const rules_access *access, int count, operand_facts *o) {
    const rules_access *rows =
        t->u < 0 || stage->reduce != 1 ? NULL : rules_broadcast_operand(t->v, t->u, access, count);
    if (!rows || rows->stride[t->u] != 1) return;
    const tir_tensor *beside = &r->region->tensors.data[rows->tensor],
                     *panels = &r->region->tensors.data[operand->tensor];
    const int64_t step = rows->stride[stage->space], panel_step = operand->stride[stage->space];
    if (beside->constant || !is_in_memory(r, beside) || !is_in_memory(r, panels)) return;
    if (step == RULES_IRREGULAR || step < t->m || panel_step < t->n) return;
    const double row = (double)t->n * (double)lib_dtype_size(panels->dtype),
                 both = beside == panels ? row : row + (double)t->m * (double)lib_dtype_size(beside->dtype);
    const double sums = (double)(t->m * rules_round_up(t->n, t->nr) * SUM_BYTES);
    if (sums > (double)r->machine->l2 / 4 || o->points * both <= r->machine->rates.kept * (double)r->machine->l2)
        return;
    o->rows_of_both = both;
}

/* Does each step read a row of both operands, which exceed L3 together? */
static bool both_from_memory(const rules *r, const operand_facts *o) {
    return o->points * o->rows_of_both > r->machine->rates.kept * (double)r->machine->l3;
}

/* Cycles of a step in which a tile waits for `lines` cache lines of the rows of both operands, from beyond L2. Arithmetic hides them where the
 * hardware prefetches many streams. */
static double wait_for_rows(const rules *r, const operand_facts *o, double lines, double step) {
    const tir_rates *rates = &r->machine->rates;
    if (o->rows_of_both == 0) return 0;
    const int level = both_from_memory(r, o) ? TIR_LEVELS - 1 : TIR_LEVELS - 2;
    const double cycles = lines * (double)r->machine->line / rates->distant[level];
    return o->few ? cycles : fmax(0, cycles - step);
}

/* Predicted cycles of one row of a panel, for all tiles that use it. */
typedef struct order_cycles {
    double straight, panels, blocks;
} order_cycles;

static order_cycles cycles_of(const rules *r, const operand_facts *o, const rules_operand_tile *t, double tiles) {
    const tir_rates *rates = &r->machine->rates;
    const int level = o->bytes > rates->kept * (double)r->machine->l3 ? TIR_LEVELS - 1 : TIR_LEVELS - 2;
    const bool many = o->pages > (double)r->machine->tlb_pages;
    const double line = r->machine->line, stream = o->lines_per_load * line / rates->bandwidth[level];
    const bool one_stream =
        o->row_bytes > 0 && o->row_bytes <= o->lines_per_load * line;          /* a panel covers whole rows */
    const bool apart = o->few && !one_stream && o->pages > 2 * rates->streams; /* more than the hardware prefetches */
    const double far = o->few ? (level == TIR_LEVELS - 1 ? FAR_LINE : NEAR_LINE) : line / rates->distant[level];
    const double read = many || apart ? o->lines_per_load * far : stream;
    double vectors = (double)((t->nr + t->lanes - 1) / t->lanes);
    double height = (double)t->m / (double)((t->m + t->mr - 1) / t->mr), step = height * vectors / rates->fma;
    double stall = many ? rates->page_miss : misses_l1(r, o) ? rates->line_miss : 0;
    if (!fits_l2(r, o->points, o->lines_per_load, o->row_bytes)) stall = o->lines_per_load * rates->set_miss;
    stall = fmax(stall, wait_for_rows(r, o, o->lines_per_load + 1, step));
    order_cycles c;
    c.straight = fmax(step, read) + (tiles - 1) * (step + stall);
    c.panels = read + stream + tiles * step; /* the copy is written, too */
    const double work = tiles * (step + (height * vectors * SUMS + rates->tile) / (double)t->block);
    c.blocks = work > stream ? work + rates->exposed[level] * stream : stream + rates->exposed[0] * work;
    return c;
}

/* Of the axes of the result that are not the tile's: the points of those that share the operand, and of the others. False: an extent
 * varies. */
static bool count_sharing(const rules *r, const tir_stage *stage, const rules_access *operand,
                          const rules_operand_tile *t, double *sharing, double *outer) {
    *sharing = *outer = 1;
    for (int a = 0; a < stage->space; a++) {
        const int64_t extent = a == t->v || a == t->u ? 1 : rules_extent(r, &stage->axis[a]);
        if (extent < 0) return false;
        *(operand->stride[a] == 0 ? sharing : outer) *= (double)extent;
    }
    return true;
}

/* Is the operand small enough, or its rows short enough, to be read as it lies? */
static bool is_near(const rules *r, const operand_facts *o) {
    if (misses_l1(r, o)) return false;
    return o->bytes <= (double)r->machine->l2 / 2 || (o->row_bytes > 0 && o->row_bytes < (double)LONG_ROW);
}

/* Can panels of an operand be copied in the loops around the stage's tiles? */
static bool may_have_panels(rules *r, int s) {
    const tir_stage *stage = &r->region->stages.data[s];
    return rules_is_contraction(r, s) && !stage->predicate && stage->fold < 0 && rules_simple_group(r, s);
}

/* Can the tiles go through blocks of rows? Then a single row of tiles reads the operand, which has several blocks. */
static bool may_have_blocks(const tir_stage *stage, const operand_facts *o, const rules_operand_tile *t,
                            double sharing) {
    return sharing <= 1 && stage->reduce == 1 && stage->merge[0] && t->columns > 0 &&
           o->points >= (double)(4 * t->block) && stage->space + 1 <= DLC_MAX_RANK;
}

/* The way of the fewest cycles, in place unless another one clearly has fewer; `blocks`: blocks of rows are possible. */
static rules_operand_access best_access(const order_cycles *c, bool blocks) {
    if (blocks && c->blocks < 0.95 * c->straight && c->blocks < c->panels) return RULES_OPERAND_ROW_BLOCKS;
    return c->panels < 0.98 * c->straight ? RULES_OPERAND_PANELS : RULES_OPERAND_IN_PLACE;
}

/* Rows of a block, each of which is a stream, for so many tiles of rows. (Zen 3: 16x4096x4096 32 rows 31 ms, 8 rows 18; 16x768x768, from near,
 * 16 rows 0.85 of 8. 25,088 rows of 64 and of 256, both read in each step: 16 rows 14.6 ms, 8 rows 16.9, 98 rows 18.8.) */
static int64_t rows_of_block(const rules *r, const operand_facts *o, double tiles) {
    const double near = 8; /* times L2 */
    if (o->rows_of_both > 0) {
        const int64_t rows = (int64_t)(RULES_OF_L1 * (double)r->machine->l1 / o->rows_of_both) / 4 * 4;
        return rows < FEWER_ROWS ? FEWER_ROWS : rows < 2 * MANY_ROWS ? rows : 2 * MANY_ROWS;
    }
    if (tiles <= 1 || (o->few && o->bytes > near * (double)r->machine->l2)) return FEWER_ROWS;
    return tiles <= 2 || o->few ? SOME_ROWS : MANY_ROWS;
}

/* (Zen 3, from memory: 1x4096x4096 with prefetches of the next block 10.6 ms, without 5.7; 16x4096x4096 18 ms, with prefetches of the next
 * columns 15.) */
static rules_block_fetch block_fetch(const rules *r, const operand_facts *o, int64_t m) {
    if (o->rows_of_both > 0) return RULES_FETCH_BLOCK;
    if (o->bytes <= r->machine->rates.kept * (double)r->machine->l3) return RULES_FETCH_NONE;
    if (!o->few) return RULES_FETCH_BLOCK;
    return m > 1 ? RULES_FETCH_COLUMNS : RULES_FETCH_NONE;
}

static const char *const access_names[] = {"in_place", "panels", "row_blocks"}; /* as in rules_operand_access */

/* Chooses among reading in place and the ways that are possible. */
static rules_operand_access choose_access(rules *r, const char *stage, rules_operand_access best, bool panels,
                                          bool blocks) {
    const bool possible[] = {true, panels, blocks};
    const char *names[3];
    rules_operand_access offered[3];
    int count = 0, proposed = 0;
    for (int i = RULES_OPERAND_IN_PLACE; i <= RULES_OPERAND_ROW_BLOCKS; i++) {
        if (!possible[i]) continue;
        if (i == (int)best) proposed = count;
        names[count] = access_names[i];
        offered[count++] = (rules_operand_access)i;
    }
    return count == 1 ? best : offered[tir_choose_word(r->schedule, stage, "read", count, names, proposed)];
}

bool rules_reads_both_from_memory(rules *r, int s, const rules_operand_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    const rules_access *operand = may_have_panels(r, s) ? vector_operand(r, t->v, access, count) : NULL;
    operand_facts o;
    if (!operand || r->region->tensors.data[operand->tensor].constant || !describe(r, stage, operand, t->nr, &o))
        return false;
    find_rows_of_both(r, stage, t, operand, access, count, &o);
    return both_from_memory(r, &o);
}

rules_operand_access rules_choose_operand_access(rules *r, int s, rules_operand_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    if (!may_have_panels(r, s)) return RULES_OPERAND_IN_PLACE;
    const rules_access *operand = vector_operand(r, t->v, access, count);
    operand_facts o;
    double sharing, outer;
    if (!operand || r->region->tensors.data[operand->tensor].constant || t->n <= t->nr ||
        !describe(r, stage, operand, t->nr, &o))
        return RULES_OPERAND_IN_PLACE;
    find_rows_of_both(r, stage, t, operand, access, count, &o);
    const bool near = is_near(r, &o), both = o.rows_of_both > 0, far = both_from_memory(r, &o);
    if (near && !both) return RULES_OPERAND_IN_PLACE;
    t->operand = r->region->tensors.data[operand->tensor].name;
    if (!count_sharing(r, stage, operand, t, &sharing, &outer)) return RULES_OPERAND_IN_PLACE;
    const double tiles = (double)((t->m + t->mr - 1) / t->mr) * sharing;
    t->block = rows_of_block(r, &o, tiles);
    t->columns = both ? rules_round_up(t->n, t->nr) : columns_of(r, t->n, t->m, t->nr, outer);
    t->fetch = block_fetch(r, &o, t->m);
    const rules_access *rows = both ? rules_broadcast_operand(t->v, t->u, access, count) : operand;
    if (rows->tensor != operand->tensor) t->beside = r->region->tensors.data[rows->tensor].name;
    order_cycles c = cycles_of(r, &o, t, tiles);
    const bool copied = !near && may_copy_panels(r, s, t->v, operand, access, count),
               blocks = (copied || both) && may_have_blocks(stage, &o, t, sharing);
    if (!copied) c.panels = HUGE_VAL;
    /* (Zen 5, 6,230 rows of 1,761 by 29: blocks 2.9 ms, panels 6.1, in place 6.3.) */
    const rules_operand_access best = far && blocks && !o.few ? RULES_OPERAND_ROW_BLOCKS : best_access(&c, blocks);
    /* the model above does not include that tiles prefetch the next one's columns (rules_cache_blocks.c) */
    if (best != RULES_OPERAND_IN_PLACE && t->m > FEWEST_ROWS && !o.few && !far)
        tir_doubt(r->schedule, stage->name, "read", access_names[RULES_OPERAND_IN_PLACE]);
    if (best == RULES_OPERAND_ROW_BLOCKS && copied && tiles > 1 && o.bytes <= (double)r->machine->l2)
        tir_doubt(r->schedule, stage->name, "read", access_names[RULES_OPERAND_PANELS]);
    return choose_access(r, stage->name, best, copied, blocks);
}

/* ---- operands that are widened */

const char *rules_widened_dtype(const rules *r, int s, uint32_t tensor, const tir_unit *unit) {
    tir_pool *pool = r->region->pool;
    tir_expr factor[2];
    const char *found = NULL;
    const bool words = unit && unit->op == TIR_DOT2_I16;
    if (!tir_sum_of_products(pool, &r->region->stages.data[s], &factor[0], &factor[1])) return NULL;
    for (int f = 0; f < 2; f++) {
        if (tir_op_of(pool, factor[f]) != TIR_CAST) continue;
        const tir_node *load = tir_get(pool, tir_operand(pool, factor[f], 0));
        if (load->op != TIR_LOAD || load->bits != tensor) continue;
        const bool half = load->dtype == (tir_dtype)DLC_F16 || load->dtype == (tir_dtype)DLC_BF16;
        if (!unit && half && tir_dtype_of(pool, factor[f]) == (tir_dtype)DLC_F32) found = "f32";
        if (words && load->dtype != (tir_dtype)DLC_I16) found = "i16";
    }
    return found;
}

void rules_copy_as(rules *r, const char *source, const char *copy, const char *dtype, bool root) {
    if (dtype && root) rules_set_role(r, copy, RULES_WIDENED);
    rules_rewrite(r, "copy %s -> %s%s%s", source, copy, dtype ? " as " : "", dtype ? dtype : "");
}

const char *rules_widened_panels(rules *r, int s, const rules_operand_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    double sharing, outer;
    if (t->u < 0 || t->n <= t->nr || !may_have_panels(r, s)) return NULL; /* a single panel has no loop */
    const rules_access *operand = vector_operand(r, t->v, access, count);
    if (!operand || !may_copy_panels(r, s, t->v, operand, access, count) ||
        !rules_widened_dtype(r, s, operand->tensor, NULL) || !count_sharing(r, stage, operand, t, &sharing, &outer))
        return NULL;
    const bool pays = (double)((t->m + t->mr - 1) / t->mr) * sharing >= (double)WIDENED_TILES;
    return tir_choose_yes(r->schedule, stage->name, "widen_panels", pays)
               ? r->region->tensors.data[operand->tensor].name
               : NULL;
}

/* ---- the broadcast operand */

static bool is_plain_input(const tir_tensor *tensor) {
    return tensor->stage < 0 && !tensor->constant && !tensor->output && tir_layout_is_identity(&tensor->layout);
}

/* Do steps along the reduction's axis read whole lines of the operand? */
static bool uses_lines_up(const rules *r, const tir_stage *stage, const rules_access *access, int axis) {
    const double bytes = (double)lib_dtype_size(r->region->tensors.data[access->tensor].dtype);
    const double step = bytes * (double)access->stride[axis], line = (double)r->machine->line;
    return access->stride[axis] > 0 && step < line && step * (double)rules_extent(r, &stage->axis[axis]) >= line;
}

/* The reduction axis whose steps are distant in the operand's memory and that alone indexes a dimension, *dim; -1: none, or other steps read
 * whole lines. */
static int axis_of_rows(const rules *r, const tir_stage *stage, const rules_access *access, int *dim) {
    const tir_tensor *tensor = &r->region->tensors.data[access->tensor];
    double size = (double)lib_dtype_size(tensor->dtype);
    int found = -1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (access->stride[a] != RULES_IRREGULAR && uses_lines_up(r, stage, access, a)) return -1;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        if (access->stride[a] == RULES_IRREGULAR || (double)access->stride[a] * size < (double)LONG_ROW) continue;
        for (int d = 0; d < tensor->rank; d++)
            if (tir_operand(r->region->pool, access->load, d) == stage->axis[a].var) found = a, *dim = d;
    }
    return found;
}

/* Does the part of the operand that a row of tiles reads stay in cache until the next columns read it again? */
static bool row_fits_cache(const rules *r, const tir_stage *stage, const rules_access *access, int axis,
                           const rules_operand_tile *t) {
    double size = (double)lib_dtype_size(r->region->tensors.data[access->tensor].dtype), points = 1, run, lines;
    double line = (double)r->machine->line, row = size * (double)access->stride[axis];
    run = size * (double)access->stride[t->u] * (double)t->m;
    if (run > row / 2)
        run = size * (double)access->stride[t->u] * (double)t->mr; /* a row of tiles reads a few rows of the operand */
    lines = (double)((int64_t)((run + line - 1) / line) + 1);
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        double extent = (double)rules_extent(r, &stage->axis[a]);
        if (a == axis)
            points *= extent;
        else if (size * (double)access->stride[a] >= line)
            lines *= extent;
    }
    return fits_l2(r, points, lines, row);
}

bool rules_rows_are_scattered(rules *r, int s, int v, int u) {
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), dim;
    const rules_access *rows = rules_broadcast_operand(v, u, access, count);
    return rows && rows->stride[u] == 1 && axis_of_rows(r, &r->region->stages.data[s], rows, &dim) >= 0;
}

/* Products of a contraction; -1: varying. */
static double products_of(const rules *r, const tir_stage *stage) {
    double products = 1;
    for (int a = 0; a < stage->space + stage->reduce; a++) {
        products *= (double)rules_extent(r, &stage->axis[a]);
        if (rules_extent(r, &stage->axis[a]) < 0) return -1;
    }
    return products;
}

void rules_copy_rows(rules *r, int s, const rules_operand_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), axis = -1, dim = 0;
    if (!rules_is_contraction(r, s) || t->u < 0) return;
    const double uses = products_of(r, stage);
    if (uses < 0) return;
    const rules_access *rows = rules_broadcast_operand(t->v, t->u, access, count);
    const tir_tensor *tensor = rows ? &r->region->tensors.data[rows->tensor] : NULL;
    if (!rows || !is_plain_input(tensor) || (axis = axis_of_rows(r, stage, rows, &dim)) < 0) return;
    int64_t size = (int64_t)lib_dtype_size(tensor->dtype), block = r->machine->line / size;
    if (uses < (double)COPY_USES * rules_tensor_bytes(r, tensor) / (double)size || tensor->rank >= DLC_MAX_RANK ||
        rules_extent(r, &stage->axis[axis]) % block || row_fits_cache(r, stage, rows, axis, t) ||
        tir_is_read_by_others(r->region, s, rows->tensor) ||
        !tir_choose_yes(r->schedule, stage->name, "copy_rows", true))
        return;
    const char *copy = rules_fresh_name(r, tensor->name, "_rows"), *names[DLC_MAX_RANK];
    int rank = tensor->rank;
    rules_copy_as(r, tensor->name, copy, rules_widened_dtype(r, s, rows->tensor, NULL), true);
    tir_dimension_names(r->arena, r->region, r->region->stages.data[rules_stage_named(r, copy)].tensor[0], names);
    lib_text parts;
    lib_text_init(&parts, r->arena);
    for (int d = 0; d < rank; d++) lib_text_format(&parts, d == dim ? "%s/%lld, " : "%s, ", names[d], (long long)block);
    rules_rewrite(r, "layout %s (%s%s%%%lld)", copy, parts.data, names[dim], (long long)block);
}

/* Does another contraction read the tensor? It may have been prepared for another unit, which multiplies no wider elements. */
static bool is_multiplied_by_others(rules *r, int s, uint32_t tensor) {
    rules_access access[RULES_ACCESSES];
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        if (q == s || r->region->stages.data[q].removed || !rules_is_contraction(r, q)) continue;
        for (int i = rules_accesses(r, q, access, RULES_ACCESSES); i-- > 0;)
            if (access[i].tensor == tensor) return true;
    }
    return false;
}

/* The broadcast operand whose elements the products convert. */
typedef struct converted_rows {
    const tir_tensor *tensor;
    const char *dtype;
    /* a copy of it can be widened; elements are used so often that it pays */
    bool copied, pays;
} converted_rows;

static bool find_converted_rows(rules *r, int s, const rules_operand_tile *t, const tir_unit *unit, converted_rows *c) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES);
    if (!rules_is_contraction(r, s) || t->u < 0) return false;
    const rules_access *rows = rules_broadcast_operand(t->v, t->u, access, count);
    if (!rows || !(c->dtype = rules_widened_dtype(r, s, rows->tensor, unit))) return false;
    c->tensor = &r->region->tensors.data[rows->tensor];
    c->copied = c->tensor->stage < 0 && !c->tensor->output && !is_multiplied_by_others(r, s, rows->tensor);
    const double size = (double)lib_dtype_size(c->tensor->dtype), bytes = rules_tensor_bytes(r, c->tensor);
    double uses = size / bytes;
    for (int a = 0; a < stage->space + stage->reduce; a++) uses *= (double)rules_extent(r, &stage->axis[a]);
    /* bytes that are broadcast are widened one at a time: a copy in the cache pays even for a single tile */
    const bool near = size < 2 && 3 * bytes <= r->machine->rates.kept * (double)r->machine->l3;
    c->pays = near || uses >= (double)(WIDENED_TILES * t->nr);
    return true;
}

bool rules_converts_rows(rules *r, int s, const rules_operand_tile *t, const tir_unit *unit, double *copying) {
    const double EACH = 10 / (double)r->machine->vector_bytes; /* cycles per element */
    converted_rows rows;
    if (!find_converted_rows(r, s, t, unit, &rows)) return false;
    const bool copies = rows.copied && rows.pays;
    if (copies) *copying = EACH * rules_tensor_bytes(r, rows.tensor) / (double)lib_dtype_size(rows.tensor->dtype);
    return !copies;
}

void rules_widen_rows(rules *r, int s, const rules_operand_tile *t, const tir_unit *unit) {
    converted_rows rows;
    if (!find_converted_rows(r, s, t, unit, &rows) || !rows.copied) return;
    if (!tir_choose_yes(r->schedule, r->region->stages.data[s].name, "widen_rows", rows.pays)) return;
    const tir_layout layout = rows.tensor->layout;
    const char *copy = rules_fresh_name(r, rows.tensor->name, "_wide"), *names[DLC_MAX_RANK];
    lib_text text;
    rules_copy_as(r, rows.tensor->name, copy, rows.dtype, true);
    if (tir_layout_is_identity(&layout)) return;
    lib_text_init(&text, r->arena);
    tir_dimension_names(r->arena, r->region, tir_region_find_tensor(r->region, copy), names);
    tir_layout_print(&text, &layout, names);
    rules_rewrite(r, "layout %s %s", copy, text.data);
}

/* ---- blocks: rewrites */

void rules_prepare_blocks(rules *r, int s, const rules_operand_tile *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_block_tile b = {.stage = stage->name, .tile = *t};
    int axis = stage->space, v = t->v;
    int64_t rows = rules_extent(r, &stage->axis[axis]);
    lib_text layout;
    lib_text_init(&layout, r->arena);
    b.part = rules_fresh_name(r, b.stage, "_b");
    const char *v_name = stage->axis[v].name, *u_name = t->u < 0 ? NULL : stage->axis[t->u].name;
    for (int a = 0; a < stage->space; a++)
        if (a != v && a != t->u) lib_text_format(&layout, "%s, ", stage->axis[a].name);
    lib_text_format(&layout, "%s/%lld, ", v_name, (long long)t->nr);
    if (u_name) lib_text_format(&layout, "%s, ", u_name);
    lib_text_format(&layout, "%s%%%lld", v_name, (long long)t->nr);
    rules_set_role(r, b.stage, RULES_WHOLE);
    rules_set_role(r, b.part, RULES_INSIDE);
    lib_vec_push(r->arena, &r->block_tiles, b);
    rules_rewrite(r, "layout %s (%s)", b.stage, layout.data);
    rules_rewrite(r, "rfactor %s.%s %lld chunks -> %s block row", b.stage, stage->axis[axis].name,
                  (long long)((rows + t->block - 1) / t->block), b.part);
}

/* ---- blocks: loops */

static const rules_block_tile *block_tile_of(const rules *r, int root, int *sums) {
    for (uint32_t i = 0; i < r->block_tiles.count; i++) {
        *sums = rules_stage_named(r, r->block_tiles.data[i].stage);
        if (*sums >= 0 && r->group[*sums].owner == root && *sums != root)
            return rules_simple_group(r, *sums) ? &r->block_tiles.data[i] : NULL;
    }
    return NULL;
}

bool rules_is_in_blocks(const rules *r, int root) {
    int sums;
    return block_tile_of(r, root, &sums) != NULL;
}

/* The stage's first axes, except those of the tile, " b h". */
static const char *other_axes(rules *r, const tir_stage *stage, int count, const rules_block_tile *b) {
    lib_text names;
    lib_text_init(&names, r->arena);
    for (int a = 0; a < count; a++)
        if (a != b->tile.v && a != b->tile.u) lib_text_format(&names, " %s", stage->axis[a].name);
    return names.length ? names.data : "";
}

/* Schedules the sums, of which all columns stay in cache: for each block of rows, the tiles of all columns run. */
static void schedule_sums(rules *r, const tir_stage *sums, const rules_block_tile *b, const char *owner,
                          const char *loop) {
    static const char *const fetched[] = {"none", "next_block", "next_columns"}; /* as in rules_block_fetch */
    const rules_operand_tile *t = &b->tile;
    const tir_stage *part = &r->region->stages.data[rules_stage_named(r, b->part)];
    const char *last = "v_o", *name = sums->name, *others = other_axes(r, sums, sums->space, b);
    const char *v_name = sums->axis[t->v].name, *u_name = t->u < 0 ? NULL : sums->axis[t->u].name, *u = u_name;
    tir_schedule_add(r->schedule, "at %s %s.%s", name, owner, loop);
    tir_schedule_add(r->schedule, "store %s local", name);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i %s", name, v_name, (long long)t->nr,
                     rules_tail_of_tasks(r, t->n, t->columns));
    if (u && t->m > t->mr) {
        tir_schedule_add(r->schedule, "split %s.%s %lld -> u_o u_i balanced", name, u, (long long)t->mr);
        u = "u_i";
        last = "u_o";
    }
    tir_schedule_add(r->schedule, "order %s:%s block v_o%s%s%s v_i", name, others, t->m > t->mr ? " u_o" : "",
                     u ? " " : "", u ? u : "");
    tir_schedule_add(r->schedule, "vec %s.v_i", name);
    if (u) tir_schedule_add(r->schedule, "unroll %s.%s", name, u);
    if (sums->predicate) tir_schedule_add(r->schedule, "clip %s.block", name);
    tir_schedule_add(r->schedule, "at %s %s.%s", b->part, name, last);
    tir_schedule_add(r->schedule, "store %s reg", b->part);
    tir_schedule_add(r->schedule, "order %s:%s block row%s%s %s", b->part, other_axes(r, part, sums->space, b),
                     u_name ? " " : "", u_name ? u_name : "", v_name);
    if (part->predicate) tir_schedule_add(r->schedule, "clip %s.row", b->part);
    if (rules_skipped_axes(r, rules_stage_named(r, b->part))) tir_schedule_add(r->schedule, "skip %s.row", b->part);
    if (u_name) tir_schedule_add(r->schedule, "unroll %s.%s", b->part, u_name);
    tir_schedule_add(r->schedule, "vec %s.%s", b->part, v_name);
    const rules_block_fetch fetch =
        (rules_block_fetch)tir_choose_word(r->schedule, name, "fetch", 3, fetched, (int)t->fetch);
    if (fetch == RULES_FETCH_BLOCK)
        tir_schedule_add(r->schedule, "prefetch %s at %s.row %s.block+1 L2", t->operand, b->part, name);
    if (fetch == RULES_FETCH_BLOCK && t->beside)
        tir_schedule_add(r->schedule, "prefetch %s at %s.row %s.block+1 L2", t->beside, b->part, name);
    if (fetch == RULES_FETCH_COLUMNS)
        tir_schedule_add(r->schedule, "prefetch %s at %s.row %s.v_o+1 L1", t->operand, b->part, name);
}

bool rules_blocks(rules *r, int root) {
    int sums = -1, *members;
    const rules_block_tile *b = block_tile_of(r, root, &sums);
    if (!b) return false;
    const tir_stage *top = &r->region->stages.data[root], *stage = &r->region->stages.data[sums];
    int v = r->group[sums].label[b->tile.v], u = b->tile.u < 0 ? -1 : r->group[sums].label[b->tile.u];
    lib_text order, parallel;
    lib_text_init(&order, r->arena);
    lib_text_init(&parallel, r->arena);
    for (int a = 0; a < top->space; a++) {
        if (a == v || a == u) continue;
        lib_text_format(&order, " %s", top->axis[a].name);
        lib_text_format(&parallel, " %s.%s", top->name, top->axis[a].name);
    }
    const char *tail = rules_tail_of_tasks(r, b->tile.n, b->tile.columns);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_p v_t %s", top->name, top->axis[v].name,
                     (long long)b->tile.columns, tail);
    tir_schedule_add(r->schedule, "split %s.v_t %lld -> v_x v_y %s", top->name, (long long)b->tile.nr, tail);
    tir_schedule_add(r->schedule, "order %s:%s v_p v_x%s%s v_y", top->name, order.length ? order.data : "",
                     u < 0 ? "" : " ", u < 0 ? "" : top->axis[u].name);
    tir_schedule_add(r->schedule, "par%s %s.v_p", parallel.length ? parallel.data : "", top->name);
    tir_schedule_add(r->schedule, "vec %s.v_y", top->name);
    int count = rules_members(r, root, &members);
    for (int i = 0; i < count; i++) {
        const tir_stage *member = &r->region->stages.data[members[i]];
        int along = rules_axis_labelled(r, members[i], v);
        if (members[i] == sums) continue;
        tir_schedule_add(r->schedule, "at %s %s.%s", member->name, top->name, u < 0 ? "v_x" : top->axis[u].name);
        tir_schedule_add(r->schedule, "store %s local", member->name);
        if (along >= 0) tir_schedule_add(r->schedule, "vec %s.%s", member->name, member->axis[along].name);
    }
    schedule_sums(r, stage, b, top->name, "v_p");
    return true;
}

/* ---- panels */

void rules_prepare_panels(rules *r, const char *stage, const char *copy) {
    rules_set_role(r, copy, RULES_INSIDE);
    lib_vec_push(r->arena, &r->panel_copies, ((rules_panel_copy){stage, copy}));
}

const char *rules_panels_of(const rules *r, const char *stage) {
    for (uint32_t i = 0; i < r->panel_copies.count; i++)
        if (rules_stage_named(r, r->panel_copies.data[i].stage) == rules_stage_named(r, stage))
            return r->panel_copies.data[i].copy;
    return NULL;
}

void rules_attach_panels(rules *r, const char *copy, const char *owner, const char *loop) {
    const tir_stage *stage = &r->region->stages.data[rules_stage_named(r, copy)];
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    tir_schedule_add(r->schedule, "at %s %s.%s", copy, owner, loop);
    tir_schedule_add(r->schedule, "store %s local", copy);
    tir_schedule_add(r->schedule, "vec %s.%s", copy, stage->axis[layout->part[layout->count - 1].dim].name);
}
