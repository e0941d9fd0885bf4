/* Prefetches of a contraction's operands, and blocks of its reduction.
 * A vector operand from beyond L2: without prefetches, the first row of tiles would stall on all loads of a panel, the other rows on none. So
 * each reduction step of each tile prefetches its part of the next panel, which spreads the loads evenly. If the next panel does not fit in L2
 * and at most three tiles cover all rows, or if there are too few rows to hide its latency, each step prefetches the same panel one page
 * ahead, because the hardware prefetcher stops at page boundaries. Of an operand that is not packed, each step prefetches the next columns.
 * The reduction is cut into blocks, so that sums stay in cache while one block after the other is added to them, in three cases
 * (rules_cut_kind):
 *   panel  two panels and the broadcast operand exceed L2: all rows run over one block of steps before the next block
 *   tile   the operands of a tile exceed L2, and the taps of a gradient of weights read them again: a tile runs over one block for all taps
 *   row    the lines of an image that the tiles of a row read exceed L1: these tiles run over one block of channels before the next block */
#include "targets/cpu/rules_tile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    FEWEST_PANELS = 8, /* with fewer, the reduction is not cut: panels are the tasks */
    FEW_TILES = 3      /* with at most so many tiles, the first one takes a large part of the time */
};

/* Number of the access to the only vector operand, if it is stored in panels; -1: there is no such operand. */
static int panels_of(rules *r, int main, const rules_tile_shape *t, const rules_access *access, int count) {
    const tir_stage *stage = &r->region->stages.data[main];
    int only = -1;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[t->v] == 0) continue;
        if (only >= 0 && access[only].tensor != access[i].tensor) return -1;
        only = i;
    }
    if (only < 0 || !rules_panel_width(r, &access[only], stage->axis[t->v].var)) return -1;
    for (int a = 0; a < stage->space; a++) /* each product of a batch would have panels of its own */
        if (a != t->v && access[only].stride[a] != 0) return -1;
    return only;
}

static int first_reduction(const rules *r, const tir_stage *stage) {
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (rules_extent(r, &stage->axis[a]) != 1) return a;
    return -1;
}

static bool has_known_extents(const rules *r, const tir_stage *stage) {
    for (int a = 0; a < stage->space + stage->reduce; a++)
        if (rules_extent(r, &stage->axis[a]) < 0) return false;
    return true;
}

/* Bytes of two panels (this and the next, all reduction steps) and of the contraction's other operands, each in full: what must stay in
 * L2 while the next panel is prefetched. */
static double working_set_bytes(rules *r, int main, const rules_tile_shape *t, const rules_access *access, int count,
                                int panels) {
    double near = 2 * rules_slice_bytes(r, main, t, true, -1) * (double)t->nr;
    for (int i = 0; i < count; i++)
        if (access[i].tensor != access[panels].tensor)
            near += rules_tensor_bytes(r, &r->region->tensors.data[access[i].tensor]);
    return near;
}

/* Name of the loop over the steps of the axis; rules_attach_reduction makes s_o and s_i. */
static const char *steps_loop(const tir_stage *stage, const rules_tile_shape *t, int axis) {
    if (t->blocks_axis == axis) return "s_i";
    return t->unit && t->unit_axis == axis ? "s_o" : stage->axis[axis].name;
}

/* Prefetches the operand a page ahead: each step prefetches what a later step reads. Windows have a prefetch in each step of the window,
 * since padding leaves some out, and two pages ahead: the first tile reads parts of the lines that the hardware prefetcher expects. */
static void fetch_ahead(rules *r, const tir_stage *stage, const rules_tile_shape *t, const tir_tensor *tensor,
                        int step) {
    const bool in_unit = t->unit && t->unit_axis == step;
    const char *loop = steps_loop(stage, t, step), *innermost = loop;
    int64_t each = t->nr * (int64_t)lib_dtype_size(tensor->dtype) * (in_unit ? tir_unit_width(t->unit) : 1),
            ahead = r->machine->page;
    for (int a = step + 1; a < stage->space + stage->reduce; a++) {
        if (rules_extent(r, &stage->axis[a]) == 1) continue;
        each *= rules_extent(r, &stage->axis[a]);
        innermost = steps_loop(stage, t, a);
        ahead = 2 * r->machine->page;
    }
    tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s+%lld L2", tensor->name, stage->name, innermost,
                     stage->name, loop, (long long)(ahead > each ? ahead / each : 1));
}

static int64_t elements_of_line(const rules *r, const rules_access *operand) {
    return r->machine->line / (int64_t)lib_dtype_size(r->region->tensors.data[operand->tensor].dtype);
}

/* The innermost loop over steps that read other pieces of the operand: taps along a row of an image share lines. */
static int loop_over_pieces(const rules *r, const tir_stage *stage, const rules_access *operand, int step) {
    const int64_t elements = elements_of_line(r, operand);
    int inner = step;
    for (int a = step + 1; a < stage->space + stage->reduce; a++) {
        const int64_t stride = operand->stride[a];
        if (rules_extent(r, &stage->axis[a]) != 1 && stride != RULES_IRREGULAR && llabs(stride) >= elements) inner = a;
    }
    return inner;
}

/* The only operand that depends on the tile's axis, if neighbouring points along it are in one line; NULL: there is none. */
static const rules_access *operand_in_pieces(const rules *r, int axis, const rules_access *access, int count) {
    const rules_access *only = NULL;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[axis] == 0) continue;
        if (only) return NULL;
        only = &access[i];
    }
    return only && only->stride[axis] > 0 && only->stride[axis] < elements_of_line(r, only) ? only : NULL;
}

/* For an operand of which a tile reads a piece of each of many distant rows, more streams than the hardware prefetcher follows: each step
 * prefetches its row's next piece, which the next tile along the axis reads, in `loop` of the owner. (Zen 5, 64 to 61 channels, 3x3, 128x256:
 * 178 to 254 GFLOP/s; which lines the hardware prefetches there depends on the number of tiles, and on where in a line rows begin. 1x1, of one
 * to 32 tiles: 0.55 to 0.98 of the time. 32 to 32, 3x3 at stride 2, 416x416, whose rows are broadcast: 0.61.) A window reads its pieces
 * several times; other reductions prefetch them only if `next`: the next tile is the one along the axis. */
static void fetch_pieces(rules *r, int main, const rules_tile_shape *t, int axis, const char *owner, const char *loop,
                         bool next) {
    enum { STREAMS = 16 };
    const tir_stage *stage = &r->region->stages.data[main];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, main, access, RULES_ACCESSES), step = first_reduction(r, stage);
    const rules_access *operand = operand_in_pieces(r, axis, access, count);
    if (!operand || t->unit || operand->stride[step] == RULES_IRREGULAR) return;
    const tir_tensor *tensor = &r->region->tensors.data[operand->tensor];
    const int inner = loop_over_pieces(r, stage, operand, step);
    const bool distant = operand->stride[step] >= r->machine->page / (int64_t)lib_dtype_size(tensor->dtype);
    if (!distant || rules_extent(r, &stage->axis[step]) < STREAMS || (inner == step && !next)) return;
    if (rules_tensor_bytes(r, tensor) > (double)r->machine->l2 &&
        tir_choose_yes(r->schedule, stage->name, "fetch_pieces", true))
        tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s+1 L2", tensor->name, stage->name,
                         steps_loop(stage, t, inner), owner, loop);
}

/* How panels get to L2 before they are used. */
typedef enum fetch { FETCH_NONE, FETCH_NEXT_PANEL, FETCH_PAGE_AHEAD } fetch;

static bool is_window(const rules *r, const tir_stage *stage, int step) {
    for (int a = step + 1; a < stage->space + stage->reduce; a++)
        if (rules_extent(r, &stage->axis[a]) != 1) return true;
    return false;
}

/* Does the prefetcher of the hardware stop at the ends of pages for so long that prefetches by instructions pay? */
static bool stops_at_pages(const tir_machine *machine) {
    const double PAYS = 0.05, stream = machine->page / machine->rates.bandwidth[TIR_LEVELS - 1];
    return machine->rates.page_stop > PAYS * stream;
}

/* With few rows the hardware prefetcher is as fast as L3, but stops at the ends of pages for longer than they compute if the panels come from
 * memory (Zen 4: of 1x2048x1024 from L3, prefetches a page ahead took 28 % of the time; on Zen 3 1x4096x4096 took 1.19 times as long with
 * them; Emerald Rapids: 8x768x3072 from L3 0.79 without prefetches of the next panel, 16x1024x4096 0.89 with; of 180 MB, four rows, the next
 * panel 15.0 ms, none 14.5, a page ahead 11.0). */
static fetch choose_fetch(rules *r, const tir_stage *stage, const rules_tile_shape *t, int step, double rows,
                          double panels, double working_set) {
    static const char *const ways[] = {"none", "next_panel", "page_ahead"};
    const double l2 = (double)r->machine->l2, kept = r->machine->rates.kept;
    const bool in_block = t->blocks_axis == step;
    fetch best = FETCH_NONE;
    if (rows < r->machine->rates.streamed_rows)
        best = panels > kept * (double)r->machine->l3 && stops_at_pages(r->machine) ? FETCH_PAGE_AHEAD : FETCH_NONE;
    else if (working_set <= kept * l2)
        best = panels > l2 / 4 ? FETCH_NEXT_PANEL : FETCH_NONE;
    else if (rows <= (double)(FEW_TILES * t->mr) && !in_block && panels > l2)
        best = is_window(r, stage, step) ? FETCH_PAGE_AHEAD : FETCH_NEXT_PANEL;
    return (fetch)tir_choose_word(r->schedule, stage->name, "fetch", in_block ? 2 : 3, ways, (int)best);
}

/* Pieces of rows are prefetched only if at most FEW_TILES tiles of columns share them, and if each has LEAST_PRODUCTS products (AVX2, prefetched
 * nevertheless: 64 columns at stride 2 took 1.05 of the time, 16 columns 1.09). */
void rules_fetch_rows(rules *r, int main, const rules_tile_shape *t, const char *owner, const char *uo) {
    enum { LEAST_PRODUCTS = 40 /* vectors, in a row of a window: with fewer, prefetches hold up the arithmetic */ };
    const tir_stage *stage = &r->region->stages.data[main];
    const int64_t columns = rules_extent(r, &stage->axis[t->v]);
    const int step = first_reduction(r, stage), last = stage->space + stage->reduce - 1;
    if (!rules_is_contraction(r, main) || step < 0) return;
    const int64_t products = t->mr * (t->nr / t->lanes) * rules_known_extent(r, &stage->axis[last]);
    if (products >= LEAST_PRODUCTS && columns >= 0 && columns <= FEW_TILES * t->nr)
        fetch_pieces(r, main, t, t->u, owner, uo, false);
}

void rules_fetch_columns(rules *r, int main, const rules_tile_shape *t, const char *owner, const char *vo,
                         bool panels_first) {
    const tir_stage *stage = &r->region->stages.data[main];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, main, access, RULES_ACCESSES), step = first_reduction(r, stage);
    if (!rules_is_contraction(r, main) || step < 0) return;
    const int panels = panels_of(r, main, t, access, count);
    if (panels < 0) fetch_pieces(r, main, t, t->v, owner, vo, panels_first);
    if (panels < 0 || !panels_first || t->inside) return;
    const tir_tensor *tensor = &r->region->tensors.data[access[panels].tensor];
    if (!has_known_extents(r, stage)) return;
    const double rows = rules_rows_but(r, stage, t->v);
    const fetch how = choose_fetch(r, stage, t, step, rows, rules_tensor_bytes(r, tensor),
                                   working_set_bytes(r, main, t, access, count, panels));
    if (how == FETCH_NEXT_PANEL)
        tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s+1 L2 shared", tensor->name, stage->name,
                         steps_loop(stage, t, step), owner, vo);
    if (how == FETCH_PAGE_AHEAD) fetch_ahead(r, stage, t, tensor, step);
}

/* Elements of the rows that the operand has for the points along axis u, if nothing is between rows: one for each point of the reduction; 0: it
 * has no such rows. */
static int64_t dense_row(const rules *r, const tir_stage *stage, const rules_access *operand, int u) {
    int64_t row = 1, found = 0;
    for (bool more = true; more;) {
        more = false;
        for (int a = stage->space; a < stage->space + stage->reduce; a++) {
            const int64_t extent = rules_extent(r, &stage->axis[a]);
            if (extent == 1 || (found >> a & 1)) continue;
            if (extent < 1 || operand->stride[a] != row) continue;
            row *= extent;
            found |= INT64_C(1) << a;
            more = true;
        }
    }
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (rules_extent(r, &stage->axis[a]) != 1 && !(found >> a & 1)) return 0;
    return operand->stride[u] == row ? row : 0;
}

/* Rows that a tile reads from beyond L2, all of its steps along all of them, are more streams than the hardware prefetcher follows. (Zen 5, rows
 * from memory: 262,144x64 by 64x64 13.8 to 8.3 ms, 65,536x256 by 256x256 35.4 to 32.3; 65,536x64 by 64x64, from L3, 2.95 to 2.07.) L2 must hold
 * those of two tiles; longer rows are not prefetched: lines of some steps ahead, rows by turns, took 1.0 to 1.7 times as long. */
void rules_fetch_next_rows(rules *r, int main, const rules_tile_shape *t, const char *owner, const char *loop) {
    const tir_stage *stage = &r->region->stages.data[main];
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, main, access, RULES_ACCESSES), step = first_reduction(r, stage);
    const rules_access *operand = NULL;
    if (!rules_is_contraction(r, main) || step < 0 || t->u < 0 || stage->predicate) return;
    for (int a = 0; a < stage->space; a++) /* the steps of a varying number of tiles cannot be counted */
        if (a != t->u && rules_extent(r, &stage->axis[a]) < 0) return;
    for (int i = 0; i < count; i++) {
        if (access[i].stride[t->u] == 0) continue;
        if (operand || access[i].stride[t->v] != 0) return;
        operand = &access[i];
    }
    if (!operand) return;
    const tir_tensor *tensor = &r->region->tensors.data[operand->tensor];
    const int64_t row = dense_row(r, stage, operand, t->u) * (int64_t)lib_dtype_size(tensor->dtype),
                  l2 = r->machine->l2;
    if (!row || tensor->stage >= 0 || row > l2 / 2 / t->mr || rules_tensor_bytes(r, tensor) <= (double)l2) return;
    if (tir_choose_yes(r->schedule, stage->name, "fetch_rows", true))
        tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s+1 L2 shared", tensor->name, stage->name,
                         steps_loop(stage, t, step), owner, loop);
}

/* Is the tensor a result of a stage in the tile, or an operand beyond L2 that stages other than the reduction load? */
static bool is_tile_wide(rules *r, int main, int owner, const bool *inside, uint32_t tensor) {
    const tir_tensor *t = &r->region->tensors.data[tensor];
    if (t->stage >= 0) return t->output && (t->stage == owner || inside[t->stage]);
    if (t->argument < 0 || rules_tensor_bytes(r, t) <= (double)r->machine->l2) return false;
    for (int s = 0; s <= owner; s++) {
        rules_access access[RULES_ACCESSES];
        if (s == main || r->region->stages.data[s].removed || (s != owner && !inside[s])) continue;
        for (int i = rules_accesses(r, s, access, RULES_ACCESSES); i-- > 0;)
            if (access[i].tensor == tensor) return true;
    }
    return false;
}

/* After its reduction a tile may load and store more lines than the core can have misses outstanding; where all of them miss, it would stall
 * at the end of each tile. Fewer lines are not fetched: each step of the reduction would compute an address (measured on Zen 3, tiles of six
 * lines: 1.0 to 1.26 times the time). */
void rules_fetch_tile(rules *r, int main, int owner, const bool *inside, const rules_tile_shape *t, const char *loop) {
    enum { FEWEST_STEPS = 24 }; /* as many as a tile has lines: with fewer, prefetches hold up the arithmetic */
    const tir_region *region = r->region;
    const tir_stage *stage = &region->stages.data[main];
    const int step = first_reduction(r, stage);
    double bytes = 0;
    int64_t lines = 0;
    if (!rules_is_contraction(r, main) || step < 0 || t->u < 0 || t->inside) return;
    if (rules_extent(r, &stage->axis[step]) < FEWEST_STEPS) return;
    for (uint32_t i = 0; i < region->tensors.count; i++)
        if (region->tensors.data[i].output) bytes += rules_tensor_bytes(r, &region->tensors.data[i]);
    if (bytes <= (double)r->machine->l2) return;
    for (uint32_t i = 0; i < region->tensors.count; i++)
        if (is_tile_wide(r, main, owner, inside, i))
            lines += t->mr * ((t->nr * (int64_t)lib_dtype_size(region->tensors.data[i].dtype) + r->machine->line - 1) /
                              r->machine->line);
    if (!lines || !tir_choose_yes(r->schedule, stage->name, "fetch_tile", (double)lines > r->machine->rates.misses))
        return;
    for (uint32_t i = 0; i < region->tensors.count; i++)
        if (is_tile_wide(r, main, owner, inside, i))
            tir_schedule_add(r->schedule, "prefetch %s at %s.%s %s.%s tile", region->tensors.data[i].name, stage->name,
                             steps_loop(stage, t, step), region->stages.data[owner].name, loop);
}

/* If the tensor's innermost dimension is a block of the reduction axis: the length of a block; else 0. */
static int64_t block_length(const rules *r, const rules_access *access, const tir_axis *axis) {
    int dim;
    const int64_t block = rules_innermost_block(r, access->tensor, &dim), extent = rules_extent(r, axis);
    const bool along = block && tir_operand(r->region->pool, access->load, dim) == axis->var;
    return along && extent > block && extent % block == 0 ? block : 0;
}

/* All lines of a block miss at its first step, so the block before prefetches them. Not with a window: each line is then read so often
 * that one miss does not matter. */
void rules_fetch_next_block(rules *r, int main, rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[main];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, main, access, RULES_ACCESSES), step = first_reduction(r, stage);
    if (!rules_is_contraction(r, main) || t->unit || t->u < 0 || step < 0 || stage->predicate) return;
    for (int a = stage->space; a < stage->space + stage->reduce; a++)
        if (a != step && rules_extent(r, &stage->axis[a]) != 1) return;
    for (int i = 0; i < count; i++) {
        const tir_tensor *tensor = &r->region->tensors.data[access[i].tensor];
        int64_t length = access[i].stride[t->v] == 0 ? block_length(r, &access[i], &stage->axis[step]) : 0;
        if (length * (int64_t)lib_dtype_size(tensor->dtype) < r->machine->line) continue;
        if (rules_tensor_bytes(r, tensor) < (double)r->machine->l2 / 2) continue;
        t->blocks_axis = step;
        t->block = length;
        t->blocks = access[i].tensor;
    }
}

/* ---- blocks of the reduction */

/* Number of blocks in which an axis of `bytes` is cut, each at most `most` bytes; a divisor of the axis' extent if one is near. */
static int64_t count_blocks(int64_t extent, double bytes, double most) {
    int64_t least = (int64_t)(bytes / most) + 1;
    for (int64_t n = least; n < 2 * least && n <= extent; n++)
        if (extent % n == 0) return n;
    return least;
}

static bool stands_alone(const rules *r, int s) {
    int root = r->group[s].root;
    for (int q = 0; q < (int)r->region->stages.count; q++)
        if (q != s && q != root && !r->region->stages.data[q].removed && r->group[q].root == root) return false;
    return root != s && r->group[s].owner == root && r->region->stages.data[root].kind == TIR_MAP &&
           rules_pointwise(r, s);
}

/* Points of the result's axes, except those of the tile, that are taps of a window: they read the same operands, shifted. */
static double count_taps(const rules *r, const tir_stage *stage, const rules_tile_shape *t, const rules_access *access,
                         int count) {
    double taps = 1;
    for (int a = 0; a < stage->space; a++) {
        bool tap = false;
        for (int i = 0; i < count && a != t->v && a != t->u; i++)
            for (int k = stage->space; k < stage->space + stage->reduce; k++)
                tap = tap || rules_taps_slide(r, stage, &access[i], a, k);
        if (tap) taps *= (double)rules_extent(r, &stage->axis[a]);
    }
    return taps;
}

/* Bytes of the operands that one tile reads for all taps: a panel, and rows of the others. */
static double tile_bytes(rules *r, int s, const rules_tile_shape *t, const rules_access *access, int count) {
    const tir_stage *stage = &r->region->stages.data[s];
    double bytes = rules_slice_bytes(r, s, t, true, -1) * (double)t->nr;
    for (int i = 0; i < count; i++)
        if (access[i].stride[t->v] == 0 && access[i].stride[t->u] != 0)
            bytes += rules_tensor_bytes(r, &r->region->tensors.data[access[i].tensor]) * (double)t->mr /
                     (double)rules_extent(r, &stage->axis[t->u]);
    return bytes;
}

rules_taps rules_count_taps(rules *r, int s, const rules_tile_shape *t) {
    const double TAPS = 4; /* the least number of taps that read a block again */
    const tir_stage *stage = &r->region->stages.data[s];
    const double l2 = (double)r->machine->l2;
    rules_access access[RULES_ACCESSES];
    const int count = rules_accesses(r, s, access, RULES_ACCESSES), axis = first_reduction(r, stage);
    const double taps = count_taps(r, stage, t, access, count);
    if (t->u < 0 || t->unit || axis < 0 || taps < TAPS) return (rules_taps){.count = 1};
    if (stage->predicate && tir_uses(r->region->pool, stage->predicate, stage->axis[axis].var))
        return (rules_taps){.count = taps};
    const double bytes = tile_bytes(r, s, t, access, count);
    const int64_t steps = rules_extent(r, &stage->axis[axis]),
                  blocks = bytes > r->machine->rates.kept * l2 ? count_blocks(steps, bytes, l2 / 2) : 0;
    return (rules_taps){taps, blocks <= steps ? blocks : 0};
}

/* May the stage's reduction be cut: is it a contraction in tiles of rows, without a unit, alone in its root's loops? */
static bool may_cut(const rules *r, int s, const rules_tile_shape *t) {
    const tir_stage *stage = &r->region->stages.data[s];
    return rules_is_contraction(r, s) && !t->unit && !rules_panels_of(r, stage->name) && t->u >= 0 &&
           first_reduction(r, stage) >= 0 && stands_alone(r, s);
}

/* Bytes of the lines of an image that windows at all points along u read; 0: there is no window, or they are not known. */
static double row_bytes(const rules *r, const tir_stage *stage, const rules_tile_shape *t, const rules_access *image,
                        int step) {
    const int64_t size = (int64_t)lib_dtype_size(r->region->tensors.data[image->tensor].dtype), line = r->machine->line;
    const int64_t block = block_length(r, image, &stage->axis[step]);
    int64_t pieces = 1, length = (rules_extent(r, &stage->axis[t->u]) - 1) * image->stride[t->u] * size;
    bool window = false;
    for (int a = stage->space; a < stage->space + stage->reduce; a++) {
        const int64_t extent = rules_extent(r, &stage->axis[a]), stride = image->stride[a];
        window = window || (a != step && extent > 1 && tir_shares_dimension(r->region, stage, image, t->u, a));
        if (a == step && block > 0)
            pieces *= extent / block;
        else if (stride == RULES_IRREGULAR)
            return 0;
        else if (llabs(stride) * size >= line && llabs(stride) * size * extent > length)
            pieces *= extent;
        else
            length += (extent - 1) * llabs(stride) * size;
    }
    return window ? (double)pieces * (double)((length / line + 1) * line) : 0;
}

/* Has each of `blocks` blocks equally many steps, and does it consist of whole blocks of the image's layout, or divide one? `layout`: steps in a
 * block of the layout, 0: none. */
static bool divides(int64_t blocks, int64_t extent, int64_t layout) {
    const int64_t block = extent / blocks;
    return extent % blocks == 0 && (layout == 0 || block % layout == 0 || layout % block == 0);
}

/* Number of blocks of channels (steps of the reduction's first axis) for the tiles of a row of an image: so many that what these tiles read of the
 * image and of a panel in one block fits in L1. 0: no blocks, since all channels fit (in L1, or in L2 if the image is stored in blocks of
 * channels, whose lines are read in sequence), a block would have too few terms, or rows and panels are too few tasks. Without blocks each
 * tile reads its columns of all channels, lines in no sequence, from L2 (Zen 3: 3x3, 512 to 256 channels @64 0.60 of the time with blocks,
 * 64 to 64 @56 0.85, 96 to 72 @45 0.83). */
static int64_t blocks_of_row(rules *r, int s, const rules_tile_shape *t, const rules_access *image, double panel) {
    const double LEAST = 64,
                 TASKS = 16; /* terms of a block: it loads and stores its sums; tasks, whatever the number of threads */
    const tir_stage *stage = &r->region->stages.data[s];
    const int axis = first_reduction(r, stage);
    const int64_t extent = rules_extent(r, &stage->axis[axis]), rows = rules_extent(r, &stage->axis[t->u]),
                  layout = block_length(r, image, &stage->axis[axis]);
    const double terms = (double)tir_points(r->region, stage, stage->space, stage->space + stage->reduce);
    const double bytes = row_bytes(r, stage, t, image, axis), all = bytes + panel, l1 = (double)r->machine->l1;
    const double sums =
        (double)(rows * t->nr) * (double)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype);
    const double panels = ceil((double)rules_extent(r, &stage->axis[t->v]) / (double)t->nr);
    const double tasks = panels * rules_rows_but(r, stage, t->v) / (double)rows;
    if (bytes == 0 || rows <= t->mr || sums > (double)r->machine->l2 / 8 || tasks < TASKS) return 0;
    const double held = layout ? r->machine->rates.kept * (double)r->machine->l2 : l1;
    int64_t blocks = all > held ? count_blocks(extent, all, RULES_OF_L1 * l1) : 1;
    while (blocks > 1 && ((double)blocks * LEAST > terms || !divides(blocks, extent, layout))) blocks--;
    if (r->machine->rates.line_miss == 0 || all > (double)blocks * l1)
        blocks = 1; /* of other processors not measured */
    blocks = tir_choose_number(r->schedule, stage->name, "row_blocks", (tir_numbers){1, extent, 1}, blocks);
    return blocks < 2 ? 0 : blocks;
}

/* Into how many blocks the reduction's first axis is cut; 0: it is not cut. */
static int64_t choose_blocks(rules *r, int s, const rules_tile_shape *t, rules_cut_kind *kind) {
    const tir_stage *stage = &r->region->stages.data[s];
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES), axis = first_reduction(r, stage);
    if (!may_cut(r, s, t)) return 0;
    int panels = panels_of(r, s, t, access, count);
    if (!has_known_extents(r, stage)) return 0;
    if (panels < 0 || (stage->predicate && tir_uses(r->region->pool, stage->predicate, stage->axis[axis].var)))
        return 0;
    const int64_t columns = rules_extent(r, &stage->axis[t->v]), steps = rules_extent(r, &stage->axis[axis]);
    double l2 = (double)r->machine->l2, panel = rules_slice_bytes(r, s, t, true, -1) * (double)t->nr;
    double sums = (double)lib_dtype_size(r->region->tensors.data[stage->tensor[0]].dtype) * (double)t->nr;
    double rows = rules_rows_but(r, stage, t->v);
    const rules_taps taps = rules_count_taps(r, s, t);
    *kind = taps.count > 1 ? RULES_CUT_TILE : RULES_CUT_PANEL;
    if (taps.count > 1) return taps.blocks;
    bool cut = 4 * panel >= l2 && working_set_bytes(r, s, t, access, count, panels) > r->machine->rates.kept * l2 &&
               rows * sums <= l2 / 8 && rows >= 2 * (double)t->mr;
    if (cut && columns >= FEWEST_PANELS * t->nr) return count_blocks(steps, panel, l2 / 16);
    const rules_access *image = rules_broadcast_operand(t->v, t->u, access, count);
    *kind = RULES_CUT_ROW;
    return image ? blocks_of_row(r, s, t, image, panel) : 0;
}

void rules_prepare_cut(rules *r, const char *contraction, const rules_tile_shape *t) {
    int s = rules_stage_named(r, contraction);
    rules_cut_kind kind;
    int64_t blocks = choose_blocks(r, s, t, &kind);
    if (!blocks) return;
    const tir_stage *stage = &r->region->stages.data[s];
    rules_cut *b = LIB_NEW(r->arena, rules_cut);
    *b = (rules_cut){.sums = contraction, .part = rules_fresh_name(r, contraction, "_b"), .tile = *t, .kind = kind};
    rules_access access[RULES_ACCESSES];
    int count = rules_accesses(r, s, access, RULES_ACCESSES);
    b->panels = r->region->tensors.data[access[panels_of(r, s, t, access, count)].tensor].name;
    if (kind == RULES_CUT_ROW)
        b->in_pieces = !block_length(r, rules_broadcast_operand(t->v, t->u, access, count),
                                     &stage->axis[first_reduction(r, stage)]);
    rules_set_role(r, b->sums, RULES_CUT_SUMS);
    rules_set_role(r, b->part, RULES_CUT);
    lib_vec_push(r->arena, &r->cuts, b);
    rules_rewrite(r, "rfactor %s.%s %lld chunks -> %s block step", contraction,
                  stage->axis[first_reduction(r, stage)].name, (long long)blocks, b->part);
    rules_lay_out_last(r, b->part, t->v);
}

static const rules_cut *blocks_of(const rules *r, int root) {
    for (uint32_t i = 0; i < r->cuts.count; i++) {
        int s = rules_stage_named(r, r->cuts.data[i]->sums);
        if (s >= 0 && r->group[s].root == root && s != root) return r->cuts.data[i];
    }
    return NULL;
}

/* Splits the stage's axis u into tiles of rows, if it has more; returns the loop inside of a tile. */
static const char *split_rows(rules *r, const tir_stage *stage, int u, int64_t rows) {
    const char *name = stage->axis[u].name;
    if (rules_extent(r, &stage->axis[u]) <= rows) return name;
    tir_schedule_add(r->schedule, "split %s.%s %lld -> u_o u_i balanced", stage->name, name, (long long)rows);
    return "u_i";
}

/* Attaches the sums over blocks at the owner's loop, with loops over blocks and tiles, and in each tile the sum of one block, in registers. */
static void add_blocks(rules *r, const rules_cut *b, const char *owner, const char *loop) {
    const rules_tile_shape *t = &b->tile;
    int s = rules_stage_named(r, b->sums), part = rules_stage_named(r, b->part);
    const tir_stage *stage = &r->region->stages.data[s];
    const char *name = stage->name, *ui = stage->axis[t->u].name, *vi = stage->axis[t->v].name, *last = "block";
    tir_schedule_add(r->schedule, "at %s %s.%s", name, owner, loop);
    tir_schedule_add(r->schedule, "store %s local", name);
    lib_text order;
    lib_text_init(&order, r->arena);
    lib_text_format(&order, " block");
    for (int a = 0; a < stage->space; a++) {
        if (a == t->u || a == t->v) continue;
        last = stage->axis[a].name;
        lib_text_format(&order, " %s", last);
    }
    if (b->kind != RULES_CUT_TILE && rules_extent(r, &stage->axis[t->u]) > t->mr) {
        ui = split_rows(r, stage, t->u, t->mr);
        lib_text_format(&order, " u_o");
        last = "u_o";
    }
    tir_schedule_add(r->schedule, "order %s:%s %s %s", name, order.data, ui, vi);
    tir_schedule_add(r->schedule, "vec %s.%s", name, vi);
    tir_schedule_add(r->schedule, "unroll %s.%s", name, ui);
    rules_attach_reduction(r, part, name, last, r->group[s].label[t->v], r->group[s].label[t->u], t);
    if (b->kind == RULES_CUT_PANEL)
        tir_schedule_add(r->schedule, "prefetch %s at %s.step %s.block+1 L2 shared", b->panels, b->part, name);
}

/* The root's loops of a cut contraction while they are written, outermost first. */
typedef struct cut_loops {
    const tir_stage *top;
    lib_text order, tasks;
    /* the innermost task, at which the sums are attached; the innermost loop */
    const char *task, *inner;
} cut_loops;

static void add_loop(cut_loops *l, const char *loop, bool task) {
    lib_text_format(&l->order, " %s", loop);
    l->inner = loop;
    if (!task) return;
    lib_text_format(&l->tasks, " %s.%s", l->top->name, loop);
    l->task = loop;
}

static void add_other_loops(cut_loops *l, int v, int u, bool tasks) {
    for (int a = 0; a < l->top->space; a++)
        if (a != v && a != u) add_loop(l, l->top->axis[a].name, tasks);
}

bool rules_cut_loops(rules *r, int root) {
    const double PIECES =
        3; /* a byte of rows of distant channels takes as long as so many of panels, from beyond L2 (Zen 3) */
    const rules_cut *b = blocks_of(r, root);
    if (!b) return false;
    const rules_tile_shape *t = &b->tile;
    const tir_stage *top = &r->region->stages.data[root];
    const rules_group *group = &r->group[rules_stage_named(r, b->sums)];
    const int v = group->label[t->v], u = group->label[t->u], part = rules_stage_named(r, b->part);
    const int transposed = rules_transposed_copy(r, root);
    const bool rows = rules_extent(r, &top->axis[u]) > t->mr, by_row = b->kind == RULES_CUT_ROW,
               by_tile = b->kind == RULES_CUT_TILE;
    const int64_t panels = (rules_extent(r, &top->axis[v]) + t->nr - 1) / t->nr;
    const bool inside = by_row && rules_panels_inside(r, top, part, t, v, u, panels, b->in_pieces ? PIECES : 1);
    cut_loops l = {.top = top};
    lib_text_init(&l.order, r->arena);
    lib_text_init(&l.tasks, r->arena);
    tir_schedule_add(r->schedule, "split %s.%s %lld -> v_o v_i %s", top->name, top->axis[v].name, (long long)t->nr,
                     t->full ? "mask full" : "mask");
    const char *ui = split_rows(r, top, u, t->mr);
    if (inside) add_other_loops(&l, v, u, true);
    add_loop(&l, "v_o", true);
    if (rows && by_tile) add_loop(&l, "u_o", true);
    if (!inside) add_other_loops(&l, v, u, by_row);
    if (rows && !by_tile) add_loop(&l, "u_o", false);
    tir_schedule_add(r->schedule, "order %s:%s %s %s", top->name, l.order.data, transposed < 0 ? ui : "v_i",
                     transposed < 0 ? "v_i" : ui);
    tir_schedule_add(r->schedule, "par%s", l.tasks.data);
    if (transposed < 0) tir_schedule_add(r->schedule, "unroll %s.%s", top->name, ui);
    tir_schedule_add(r->schedule, "vec %s.%s", top->name, transposed < 0 ? "v_i" : ui);
    add_blocks(r, b, top->name, l.task);
    if (transposed >= 0) rules_attach_transposed(r, transposed, top->name, l.inner, "v_i", v, u);
    return true;
}
