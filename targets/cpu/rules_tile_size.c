/* The size of a register tile. The model takes, for each step of the reduction, the maximum of FMA issue, load issue, the latency of an
 * accumulator's chain and the stream from L2; tiles that waste fewer lanes and rows win. */
#include "targets/cpu/cost.h"
#include "targets/cpu/rules_tile.h"

#include <math.h>

enum {
    SEPARATE_ROWS = 8,     /* of light reductions: hides the latency of one accumulator's chain */
    TALLEST = 10,          /* separate rows of contractions: more rows save hardly any loads */
    QUEUE = 28,            /* multiplications that wait for their operands at once */
    LOOP_INSTRUCTIONS = 10 /* of a loop: addresses, its end, a prefetch */
};

/* What a tile costs in addition whose rows each run all steps of a window, one after the other (measured: up to 4 %). */
#define STEPS_INSIDE_OVERHEAD 1.06

/* Vectors of a row of a tile: registers, and multiplication cost. On half-width units a last vector that is at most half full costs half;
 * if masks are expensive, it is split into halves. */
static int64_t row_registers(const tir_machine *machine, int64_t used, int64_t lanes) {
    int64_t rest = used % lanes;
    return used / lanes + (machine->masked ? rest > 0 : __builtin_popcountll((unsigned long long)rest));
}

static bool half_full(int64_t used, int64_t lanes) {
    return used % lanes && used % lanes <= lanes / 2;
}

/* Do rows share their last vectors (tir/vectorise.h)? */
static bool rows_pair(const rules_tile_problem *p, int64_t used, int64_t lanes) {
    return p->row_pairs && used > lanes && half_full(used, lanes);
}

/* Vectors that `height` rows multiply, averaged over tiles that differ by a row if height is fractional. */
static double tile_vectors(const rules *r, const rules_tile_problem *p, double height, int64_t used, int64_t lanes) {
    const tir_machine *machine = r->machine;
    double vectors = height * (double)row_registers(machine, used, lanes);
    if (machine->half_units && half_full(used, lanes)) return vectors - 0.5 * height;
    if (!rows_pair(p, used, lanes)) return vectors;
    int64_t least = (int64_t)height;
    double more = height - (double)least;
    return vectors - (1 - more) * (double)(least / 2) - more * (double)((least + 1) / 2);
}

/* Vectors that are live beside the sums of a tile: operands, and products or converted operands where these take registers. */
static int64_t operand_registers(const rules *r, const rules_tile_problem *p, int64_t held, bool pairs,
                                 bool steps_inside) {
    /* Of a window of more than FEW_STEPS steps, only the broadcasts of the current step stay in registers, those of other steps are loaded again.
     * (Zen 3: 7x7, 3 to 64 channels at stride 2, in tiles of 4x16 takes 0.60 of the time of 4x8, 32 to 64 @56 0.56; 5x5, 32 to 64 @56, 0.79 of
     * that of 3x16. With more registers not measured.) */
    enum { FEW_REGISTERS = 16, FEW_STEPS = 3 };
    const int64_t points = p->unrolled_points, span = p->unrolled_span;
    if (steps_inside) return held * points + (span > points ? span : points);
    const bool plain = r->machine->fma && p->instructions == 1 && !p->prepared && !p->prepared_rows && !p->separate;
    if (points > FEW_STEPS && plain && r->machine->vector_registers <= FEW_REGISTERS) return held + 1 + (pairs ? 1 : 0);
    if (points > 1) return held + points + (pairs ? 1 : 0);
    if (p->instructions > 1) return held + 2; /* a broadcast, and a product */
    /* without fma, products are held until they are added, and the next broadcast is loaded beside them */
    int64_t registers = held + 1 + (r->machine->fma ? 0 : 3);
    if (pairs) registers += 2;                           /* the other row's broadcast, and a blend of both */
    if (p->prepared || p->prepared_rows) registers += 2; /* scales and halves of converted operands */
    return registers;
}

/* Largest number of rows whose sums fit the registers together with their operands. The unrolled steps of a window share broadcasts. Those
 * of all rows stay live if the loop over rows is inside of the steps, otherwise those of a window and the vectors of all steps. */
static int64_t most_rows(const rules *r, const rules_tile_problem *p, int64_t used, int64_t lanes, bool steps_inside) {
    const int64_t registers = r->machine->vector_registers;
    const int64_t held = row_registers(r->machine, used, lanes);
    const bool pairs = rows_pair(p, used, lanes); /* two rows have one vector less */
    const int64_t room = registers - operand_registers(r, p, held, pairs, steps_inside);
    const int64_t row = held * p->sums + (p->unrolled_points > 1 && !steps_inside);
    const int64_t two = 2 * row - (pairs ? p->sums : 0);
    if (room < row) return room / row;
    return room / two * 2 + (room % two >= row);
}

double rules_window_rows(const rules_tile_problem *p, double height) {
    int64_t apart = p->row_step / p->window_step, dilation = p->window_step / p->row_step;
    double window = (double)p->window;
    if (apart >= 1) return apart >= p->window ? height * window : (height - 1) * (double)apart + window;
    return height <= (double)dilation ? height * window : (window - 1) * (double)dilation + height;
}

/* Cycles to transpose a vector with the other rows', and to store it, or the copy that maps read, by pieces of lines: pieces of `rows`
 * elements begin anywhere, unless whole tiles end where lines do. Lanes whose lines map to one set of L1 wait for each other there, longer
 * if the next piece of a line finds it evicted (measured in images of 2^k rows: with 32 lanes a convolution took 2.6 times as long). */
static double exchange_cycles(const rules *r, const rules_tile_problem *p, double rows, int64_t used, int64_t lanes) {
    int64_t whole = (int64_t)rows;
    bool even = (double)whole >= rows && p->m % lanes == 0 && (whole % lanes == 0 || lanes % whole == 0);
    double pieces = even ? (double)((whole + lanes - 1) / lanes) : 1 + (rows - 1) / (double)lanes;
    double crowd = (double)cost_crowd(r->machine, used, p->lane_bytes, 1);
    double wait = even && whole % lanes == 0 ? 0.5 * crowd : 3 * crowd;
    double accesses = p->crossings ? (double)p->crossings : 1, copy = p->crossings ? 1 : 0;
    return 3 + copy + accesses * (1.5 + wait) * pieces * (double)lanes / rows;
}

/* tile_cycles of separate rows. A vector that a row loads for one step of the window is reused by the next rows' steps. */
static double separate_cycles(const rules *r, const rules_tile_shape *t, const rules_tile_problem *p, double height,
                              int64_t used, double fma) {
    const tir_rates *rates = &r->machine->rates;
    double vectors = (double)((used + t->lanes - 1) / t->lanes);
    double rows = rules_window_rows(p, height) / (double)p->window;
    double loads = (rows * vectors * p->lines_per_load + 1) / rates->load, step = fma > loads ? fma : loads;
    double start = (p->n > used ? 2 : 1) * rates->tile_unbroadcast;
    if (p->exceeds_l2 && p->lines_per_load > 1) /* the ends of a row share cache lines with its neighbours */
        start += height * (p->exceeds_l3 ? 2 : 1) * rates->store_beyond_l2;
    if (p->transposed) start += height * vectors * exchange_cycles(r, p, height, used, t->lanes);
    return (fmax(step, rates->latency)) + rates->exposed_units * loads + start / p->steps;
}

/* Cycles of a vector whose lanes are stored one by one, each into a line of its own. The next point of an outer loop writes the next
 * elements of these lines, after all panels have written theirs: if the lines of many lanes map to one set of L1, they are evicted before
 * (measured with 64 images of 2^k points, whose batch runs along lanes: 300 to 350 cycles a vector of 16 lanes). */
double rules_scatter_cycles(const rules *r, const rules_tile_problem *p, int64_t lanes) {
    enum { WITHOUT_CROWD = 24 };
    return (double)WITHOUT_CROWD + (double)(lanes * cost_crowd(r->machine, p->n, p->lane_bytes, 1));
}

/* Cycles per reduction step of a tile whose rows run all steps of a window, each of which depends on the one before: those of some rows
 * overlap, as far as the queue of waiting multiplications holds them. */
static double steps_chain(const rules_tile_problem *p, double multiplications, double latency) {
    return multiplications * latency * (double)p->unrolled_points / (double)QUEUE;
}

/* Cycles of a tile of so many rows and columns for the lines that it shares with the tile of the next columns, because rows are no whole lines
 * in memory: if the rows' lines exceed their sets of L1, each is fetched again (measured with rows of 4,084 bytes: 14 rows of one vector took
 * 1.45 times as long as four). */
static double shared_line_cycles(const rules *r, const rules_tile_problem *p, double height, int64_t used) {
    const int64_t line = r->machine->line;
    if (!p->result_bytes || p->result_bytes % line == 0 || used >= p->n) return 0;
    if (!cost_crowd(r->machine, (int64_t)ceil(height), p->result_bytes, 2)) return 0;
    return height * 2 * (double)line / r->machine->rates.bandwidth[1]; /* written back and read */
}

/* Cycles per reduction step in tiles of `height` rows (an average) and `used` columns, including a share of the tile's start and stores. */
static double tile_cycles(const rules *r, const rules_tile_shape *t, const rules_tile_problem *p, double height,
                          int64_t used) {
    const tir_rates *rates = &r->machine->rates;
    double vectors = (double)((used + t->lanes - 1) / t->lanes);
    double prepared = (double)p->prepared * vectors + (double)p->prepared_rows * height;
    const double products = tile_vectors(r, p, height, used, t->lanes), all = p->instructions * products + prepared;
    double fma = (p->instructions > 1 ? products : p->multiplications * products + prepared) / rates->fma;
    double loads = (height + vectors * p->lines_per_load) / rates->operand;
    double stream = rates->panel_vector * vectors; /* the vector operand is streamed from L2 */
    if (p->separate) return separate_cycles(r, t, p, height, used, fma);
    double step = fmax(fmax(fma, loads), fmax(stream, rates->latency));
    if (p->instructions > 1)
        step =
            fmax(step, fmax(all / rates->vector, (all + height + vectors + (double)LOOP_INSTRUCTIONS) / rates->issue));
    step += rates->exposed_units * (loads + 1.5 * stream);
    if (t->steps_inside) step = STEPS_INSIDE_OVERHEAD * fmax(step, steps_chain(p, height * vectors, rates->latency));
    /* stores that miss L2 stall, unless the out-of-order window already holds the next tiles' arithmetic */
    double ahead = height * vectors * (p->steps + 1) / rates->window;
    double start = p->exceeds_l2
                       ? rates->tile_beyond_l2 + rates->store_beyond_l2 * height * vectors * (ahead < 1 ? ahead : 1)
                       : rates->tile + rates->tile_line * height * (vectors + 1);
    if (p->transposed) start += height * vectors * exchange_cycles(r, p, height, used, t->lanes);
    start += shared_line_cycles(r, p, height, used);
    return step + start / p->steps;
}

/* Number of tiles along an axis. An extent that varies stands for those around it: on average half of its last tile is unused. */
static double tiles_along(int64_t extent, bool varies, int64_t size) {
    if (varies) return ((double)extent + (double)(size - 1) / 2) / (double)size;
    return (double)((extent + size - 1) / size);
}

/* Columns that a tile computes. */
static int64_t used_columns(const rules_tile_problem *p, int64_t nr, bool full) {
    return p->n < nr && !p->n_varies && !full ? p->n : nr;
}

/* Would a tile that is wider than the result have fewer vectors if it computed whole ones? Without cheap masks seven columns are three vectors,
 * of four, two and one lanes. */
static bool may_be_full(const rules *r, const rules_tile_problem *p, int64_t lanes, int64_t nr) {
    if (p->n >= nr || p->n_varies || !p->fills_vectors) return false;
    return row_registers(r->machine, p->n, lanes) > row_registers(r->machine, nr, lanes);
}

/* Cycles per reduction step for masks, if the last tile is not narrower. Of columns that vary it is a version of its own, with masks for all
 * vectors, as the first tile is for padding; else all tiles have masks for the vectors that may be beyond the end. */
static double masks_of_tiles(const rules_tile_shape *t, const rules_tile_problem *p, int64_t nr, int64_t rest) {
    const int64_t masked = p->n_varies ? nr : rest ? nr - rest : 0;
    const int64_t tiles = !p->n_varies ? (p->n + nr - 1) / nr : p->edge_predicate ? 2 : 1;
    return (double)(tiles * ((masked + t->lanes - 1) / t->lanes)) * p->mask_cycles;
}

/* The same for storing the results, where a machine has no cheap masks: whole and partial vectors are told apart for each row, in all tiles unless the
 * last one is a version of its own. */
static double split_stores_of_tiles(const rules *r, const rules_tile_shape *t, const rules_tile_problem *p, int64_t nr,
                                    int64_t rest, double height) {
    const double SPLIT_STORE = 2.5, tiles = t->apart ? 1 : (double)((p->n + nr - 1) / nr);
    const double vectors = (double)((nr - rest + t->lanes - 1) / t->lanes);
    return r->machine->masked || !rest || p->steps <= 0 ? 0 : tiles * vectors * height * SPLIT_STORE / p->steps;
}

/* Cycles per reduction step of all tiles. The last columns get a narrower tile if that saves more than another version of the tile costs.
 */
static double all_tiles_cycles(const rules *r, const rules_tile_shape *t, const rules_tile_problem *p, int64_t nr,
                               int64_t mr, bool *peel) {
    int64_t rest = p->n_varies ? 0 : p->n % nr;
    double rows = tiles_along(p->m, p->m_varies, mr);
    double height = p->m_varies ? (double)mr : (double)p->m / rows; /* balanced */
    double full = tile_cycles(r, t, p, height, used_columns(p, nr, t->full));
    double others = (double)((p->n - rest) / nr), masked = tiles_along(p->n, p->n_varies, nr);
    double versions = p->m % mr ? 1.01 : 1; /* heights differ: two versions of the tile */
    double conflicts = cost_conflicts(r->machine, mr, p->row_bytes);
    double masks = masks_of_tiles(t, p, nr, rest), cycles = masked * (full * versions + conflicts);
    if (p->n_varies || t->full) cycles += masks;
    if (t->full) cycles += split_stores_of_tiles(r, t, p, nr, rest, height);
    *peel = p->n_varies; /* of all tiles but the last, the masks are not worked out */
    if (rest && p->n > nr) {
        double narrow = tile_cycles(r, t, p, height, rest);
        double worth = p->exceeds_l2 ? 1 : 1.01; /* masked stores that miss L2 are expensive */
        double peeled = worth * ((others * full + narrow) * versions + masked * conflicts);
        /* Guarded lanes are stored one by one in all tiles if they are not contiguous, or if masks are expensive and a window needs
         * masks, too. If the last tile may end early, all steps of a window have run-time masks, otherwise only those at an image's
         * edges. */
        if (t->apart) masks = 0;
        cycles += split_stores_of_tiles(r, t, p, nr, rest, height);
        *peel = peeled < cycles + masks || p->strided || p->gathers || p->edge_predicate ||
                (p->separate && !r->machine->masked);
        if (*peel) cycles = peeled;
    }
    return rows * cycles;
}

/* Rows of a light reduction, of `held` vectors each: several if they are computed side by side. Blocks of channels may be wider than a
 * vector; then the registers limit the rows. */
static int64_t light_rows(const rules_tile_problem *p, int64_t registers, int64_t held) {
    const int64_t side = SEPARATE_ROWS / p->attached / (p->panel ? 1 : held), rows = p->separate ? side : 1;
    const int64_t room = (registers - 2) / (held * p->sums);
    return rows < room ? rows : room;
}

/* Most rows of a tile with vectors for `used` columns; 0: not even one fits the registers. */
static int64_t row_limit(const rules *r, int64_t lanes, const rules_tile_problem *p, int64_t used, bool steps_inside) {
    const int64_t registers = r->machine->vector_registers;
    const int64_t held = row_registers(r->machine, used, lanes);
    if (!p->heavy) return light_rows(p, registers, held);
    int64_t limit = most_rows(r, p, used, lanes, steps_inside);
    if (p->window > 1) /* its rows stay in registers for the next steps */
        limit = (registers - 2 * p->window) / ((p->sums + 1) * held);
    return p->separate && limit > TALLEST ? TALLEST : limit;
}

/* Sets *t to the best tile of at most `limit` rows, if that is faster than *t. */
static void size_rows(const rules *r, rules_tile_shape *t, const rules_tile_problem *p, int64_t nr, bool full,
                      int64_t limit, bool steps_inside) {
    rules_tile_shape tried = *t;
    if (limit > p->m) limit = p->m;
    if (steps_inside ? p->only_outside : p->only_inside) return;
    tried.steps_inside = steps_inside;
    tried.nr = nr;
    tried.full = full;
    tried.apart = p->fills_vectors && !p->n_varies && p->n > nr && p->n % nr != 0;
    for (tried.mr = 1; tried.mr <= limit; tried.mr++) {
        if (p->rows && tried.mr != p->rows) continue;
        tried.cycles = all_tiles_cycles(r, &tried, p, nr, tried.mr, &tried.peel);
        if (tried.cycles < t->cycles * 0.999) *t = tried;
    }
}

/* Most vectors of a row of a tile. */
static int64_t most_vectors(const rules_tile_problem *p) {
    if (p->heavy) return 8;
    return p->attached > 2 ? 1 : 4 / p->attached; /* light reductions share the registers with attached stages */
}

/* size_rows for both orders of the loops over rows and over a window's steps, as far as they are possible; `limit`: most
 * rows if the steps are outside. */
static void size_both_orders(const rules *r, rules_tile_shape *t, const rules_tile_problem *p, int64_t nr, bool full,
                             int64_t limit) {
    const int64_t used = used_columns(p, nr, full);
    const bool either = p->inner_steps && !rows_pair(p, used, t->lanes);
    size_rows(r, t, p, nr, full, limit < 1 ? 1 : limit, false);
    if (either) size_rows(r, t, p, nr, full, row_limit(r, t->lanes, p, used, true), true);
    if (t->nr == nr) t->inner_steps = either;
}

static void size_columns(const rules *r, rules_tile_shape *t, const rules_tile_problem *p) {
    int64_t most = most_vectors(p), least = p->panel ? (p->panel + t->lanes - 1) / t->lanes : 1, high = 0, tall = 1;
    if (p->panel) most = least;
    t->cycles = 1e300;
    for (int64_t nv = least; nv <= most; nv++) {
        const int64_t nr = p->panel ? p->panel : nv * t->lanes;
        if (nv > least && nr > rules_round_up(p->n, t->lanes)) break;
        const bool either = may_be_full(r, p, t->lanes, nr);
        const int64_t narrow = row_limit(r, t->lanes, p, used_columns(p, nr, false), false),
                      full = either ? row_limit(r, t->lanes, p, nr, false) : narrow;
        if (full < 1 && nv > least) break;
        high = nr;
        if (full > tall) tall = full;
        if (p->columns && nr != p->columns) continue;
        if (!either || !p->only_full) size_both_orders(r, t, p, nr, false, narrow);
        if (either && !p->only_narrow) size_both_orders(r, t, p, nr, true, full);
        if (t->nr == nr) t->may_be_full = either;
    }
    t->rows = tall < p->m ? tall : p->m;
    t->columns = (tir_numbers){p->panel ? p->panel : t->lanes, high, t->lanes};
}

void rules_size_tile(const rules *r, rules_tile_shape *t, const rules_tile_problem *p) {
    size_columns(r, t, p);
    if (t->cycles < 1e300) return;
    rules_tile_problem free = *p; /* what is pinned is no candidate */
    free.columns = free.rows = 0;
    free.only_inside = free.only_outside = free.only_full = free.only_narrow = false;
    size_columns(r, t, &free);
}
