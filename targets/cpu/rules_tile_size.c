/* The size of a register tile. The model takes, for each step of the reduction, the maximum of FMA issue, load issue, the latency of an
 * accumulator's chain and the stream from L2; tiles that waste fewer lanes and rows win. */
#include "targets/cpu/cost.h"
#include "targets/cpu/rules_tile.h"

#include <math.h>

enum {
    SEPARATE_ROWS = 8, /* of light reductions: hides the latency of one accumulator's chain */
    TALLEST = 10,      /* separate rows of contractions: more rows save hardly any loads */
};

/* Vectors of a row of a tile: registers, and multiplication cost. On half-width units a last vector that is at most half full costs half;
 * if masks are expensive, it is split into halves. */
static int64_t row_registers(const tir_machine *machine, int64_t used, int64_t lanes) {
    int64_t rest = used % lanes;
    return used / lanes + (machine->masked ? rest > 0 : __builtin_popcountll((unsigned long long)rest));
}

static bool half_full(int64_t used, int64_t lanes) {
    return used % lanes && used % lanes <= lanes / 2;
}

/* Do rows share their last vectors (emit_pair.c)? */
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

/* Largest number of rows whose sums fit the registers together with their operands. */
static int64_t most_rows(const rules *r, const rules_tile_problem *p, int64_t used, int64_t lanes) {
    int64_t registers = r->machine->vector_registers;
    int64_t held = row_registers(r->machine, used, lanes);
    bool pairs = rows_pair(
        p, used, lanes); /* two rows have one vector less, but also hold the other row's broadcast and a blend */
    int64_t room = registers - 1 - held - !r->machine->fma -
                   (pairs ? 2 : 0);                 /* without fma, products are held until they are added */
    if (p->prepared || p->prepared_rows) room -= 2; /* scales and halves of converted operands */
    if (p->unrolled_points > 1)
        room = registers - held - p->unrolled_points -
               (pairs ? 1 : 0); /* unrolled taps share broadcasts, which then stay live */
    int64_t row = p->unrolled_points > 1 ? held * p->sums + 1 : held * p->sums, two = 2 * row - (pairs ? p->sums : 0);
    if (room < row) return room / row;
    return room / two * 2 + (room % two >= row);
}

double rules_window_rows(const rules_tile_problem *p, double height) {
    int64_t apart = p->row_step / p->window_step, dilation = p->window_step / p->row_step;
    double window = (double)p->window;
    if (apart >= 1) return apart >= p->window ? height * window : (height - 1) * (double)apart + window;
    return height <= (double)dilation ? height * window : (window - 1) * (double)dilation + height;
}

/* Cycles to transpose a vector with the other rows' and store it, by pieces of lines: pieces of `rows` elements begin anywhere, unless
 * whole tiles end where lines do. Lanes whose lines map to one set of L1 wait for each other there, longer if the next piece of a line
 * finds it evicted (measured in images of 2^k rows: with 32 lanes a convolution took 2.6 times as long). */
static double exchange_cycles(const rules *r, const rules_tile_problem *p, double rows, int64_t used, int64_t lanes) {
    int64_t whole = (int64_t)rows;
    bool even = (double)whole >= rows && p->m % lanes == 0 && (whole % lanes == 0 || lanes % whole == 0);
    double pieces = even ? (double)((whole + lanes - 1) / lanes) : 1 + (rows - 1) / (double)lanes;
    double crowd = (double)cost_crowd(r->machine, used, p->lane_bytes);
    double wait = even && whole % lanes == 0 ? 0.5 * crowd : 3 * crowd;
    return 3 + (1.5 + wait) * pieces * (double)lanes / rows;
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
    return (double)WITHOUT_CROWD + (double)(lanes * cost_crowd(r->machine, p->n, p->lane_bytes));
}

/* Cycles per reduction step in tiles of `height` rows (an average) and `used` columns, including a share of the tile's start and stores. */
static double tile_cycles(const rules *r, const rules_tile_shape *t, const rules_tile_problem *p, double height,
                          int64_t used) {
    const tir_rates *rates = &r->machine->rates;
    double vectors = (double)((used + t->lanes - 1) / t->lanes);
    double prepared = (double)p->prepared * vectors + (double)p->prepared_rows * height;
    double fma = (tile_vectors(r, p, height, used, t->lanes) + prepared) / rates->fma;
    double loads = (height + vectors * p->lines_per_load) / rates->operand;
    double stream = rates->panel_vector * vectors; /* the vector operand is streamed from L2 */
    if (p->separate) return separate_cycles(r, t, p, height, used, fma);
    double step = fmax(fmax(fma, loads), fmax(stream, rates->latency));
    step += rates->exposed_units * (loads + 1.5 * stream);
    /* stores that miss L2 stall, unless the out-of-order window already holds the next tiles' arithmetic */
    double ahead = height * vectors * (p->steps + 1) / rates->window;
    double start = p->exceeds_l2
                       ? rates->tile_beyond_l2 + rates->store_beyond_l2 * height * vectors * (ahead < 1 ? ahead : 1)
                       : rates->tile + rates->tile_line * height * (vectors + 1);
    if (p->transposed) start += height * vectors * exchange_cycles(r, p, height, used, t->lanes);
    return step + start / p->steps;
}

/* Cycles per reduction step of all tiles. The last columns get a narrower tile if that saves more than another version of the tile costs.
 */
static double all_tiles_cycles(const rules *r, const rules_tile_shape *t, const rules_tile_problem *p, int64_t nr,
                               int64_t mr, bool *peel) {
    int64_t rows = (p->m + mr - 1) / mr, rest = p->n % nr;
    double height = (double)p->m / (double)rows; /* balanced */
    double full = tile_cycles(r, t, p, height, p->n < nr ? p->n : nr);
    double others = (double)((p->n - rest) / nr), masked = others + (rest > 0);
    double versions = p->m % mr ? 1.01 : 1; /* heights differ: two versions of the tile */
    double conflicts = cost_conflicts(r->machine, mr, p->row_bytes);
    double cycles = masked * (full * versions + conflicts);
    *peel = false;
    if (rest && p->n > nr) {
        double narrow = tile_cycles(r, t, p, height, rest);
        double worth = p->exceeds_l2 ? 1 : 1.01; /* masked stores that miss L2 are expensive */
        double peeled = worth * ((others * full + narrow) * versions + masked * conflicts);
        /* Guarded lanes are stored one by one in all tiles if they are not contiguous, or if masks are expensive and a window needs
         * masks, too. If the last tile may end early, all steps of a window have run-time masks, otherwise only those at an image's
         * edges. */
        *peel = peeled < cycles || p->strided || p->edge_predicate || (p->separate && !r->machine->masked);
        if (*peel) cycles = peeled;
    }
    return (double)rows * cycles;
}

/* Rows of a light reduction, of `held` vectors each, computed side by side. Blocks of channels may be wider than a vector; then the
 * registers limit the rows. */
static int64_t light_rows(const rules_tile_problem *p, int64_t registers, int64_t held) {
    const int64_t rows = SEPARATE_ROWS / p->attached, room = (registers - 2) / held;
    if (!p->panel) return rows / held;
    return rows < room ? rows : room;
}

void rules_size_tile(const rules *r, rules_tile_shape *t, const rules_tile_problem *p) {
    int64_t registers = r->machine->vector_registers;
    t->cycles = 1e300;
    int64_t most = p->heavy          ? 8
                   : p->attached > 2 ? 1
                                     : 4 / p->attached; /* light reductions share the registers with attached stages */
    int64_t least = p->panel ? (p->panel + t->lanes - 1) / t->lanes : 1;
    if (p->panel) most = least;
    for (int64_t nv = least; nv <= most; nv++) {
        int64_t nr = p->panel ? p->panel : nv * t->lanes;
        if (nv > least && nr > rules_round_up(p->n, t->lanes)) break;
        int64_t held = row_registers(r->machine, p->n < nr ? p->n : nr, t->lanes);
        int64_t limit = most_rows(r, p, p->n < nr ? p->n : nr, t->lanes);
        if (!p->heavy)
            limit = p->separate ? light_rows(p, registers, held) : 1;
        else if (p->window > 1) /* its rows stay in registers for the next steps */
            limit = (registers - 2 * p->window) / (2 * held);
        if (p->heavy && p->separate && limit > TALLEST) limit = TALLEST;
        if (limit < 1 && nv > least) break;
        if (limit < 1) limit = 1;
        for (int64_t mr = 1; mr <= limit && mr <= p->m; mr++) {
            bool peel;
            double cycles = all_tiles_cycles(r, t, p, nr, mr, &peel);
            if (cycles >= t->cycles * 0.999) continue;
            t->cycles = cycles;
            t->nr = nr;
            t->mr = mr;
            t->peel = peel;
        }
    }
}
