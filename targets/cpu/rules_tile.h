/* Internal to the rules for register tiles: which tile (rules_tile.c, rules_tile_size.c, rules_window.c), rewrites (rules_tile_prepare.c,
 * rules_cache_blocks.c, rules_transposed.c), loops (rules_tile_loops.c). */
#ifndef TARGETS_CPU_RULES_TILE_H
#define TARGETS_CPU_RULES_TILE_H

#include "targets/cpu/rules.h"
#include "tir/unit.h"

enum { TILE_WITH = 2 };

typedef struct rules_tile_shape {
    /* axes of the reduction; u = -1: none */
    int v, u;
    /* elements of a vector; fewer than it holds if maps of wider types would exceed the registers */
    int64_t lanes;
    /* tile extents along v and u */
    int64_t nr, mr;
    /* the last columns get a narrower tile */
    bool peel;
    /* there are fewer columns than the tile has: whole vectors are computed, of which the last lanes are not stored. Could they be? */
    bool full, may_be_full;
    /* the last tile, if it is as wide as the others, is a version of its own, so that the others have no masks */
    bool apart;
    /* tensor of the operand to be laid out in panels along v; UINT32_MAX: none */
    uint32_t pack;
    /* that operand is copied first, because its own layout cannot be changed */
    bool pack_copy;
    /* it is copied panel by panel, in the loop over panels */
    bool inside;
    /* further constants with the same layout: scales of weights, zero points; UINT32_MAX: none */
    uint32_t with[TILE_WITH];
    /* instruction that takes several steps of the reduction at once, along unit_axis; NULL: none */
    const tir_unit *unit;
    int unit_axis;
    /* each row loads its own vectors (depthwise): several rows only hide latency */
    bool separate;
    /* separate rows without products: a window's sum or maximum */
    bool light;
    /* reduction axis whose steps reuse loads of neighbouring rows; -1: none */
    int shared;
    /* the unrolled steps of a window run inside of the loop over rows: fewer broadcasts are live */
    bool steps_inside;
    /* tensor of the broadcast operand to be laid out with the unit's steps innermost; UINT32_MAX: none */
    uint32_t steps;
    /* that operand is copied first */
    bool steps_copy;
    /* predicted cycles */
    double cycles;
    /* reduction axis in whose blocks the broadcast operand is stored, the next block being prefetched; 0: none */
    int blocks_axis;
    /* length of a block */
    int64_t block;
    /* the broadcast operand */
    uint32_t blocks;
    /* bit a: vectors may run along axis a; candidates of nr; largest mr, with the least nr */
    uint32_t vectors;
    tir_numbers columns;
    int64_t rows;
    /* the unrolled steps of a window could be on either side of the loop over rows */
    bool inner_steps;
    /* the unit that fits, even if it is not taken; NULL: none */
    const tir_unit *fitting;
} rules_tile_shape;

static inline int64_t rules_round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* Facts of a contraction or reduction for which rules_size_tile chooses a tile. */
typedef struct rules_tile_problem {
    /* extents along v and u */
    int64_t n, m;
    /* they stand for a range of extents */
    bool n_varies, m_varies;
    /* cycles to make the masks of a vector that may be beyond the last column, for each step */
    double mask_cycles;
    /* width of the panels in which the vector operand is laid out already; 0: free choice */
    int64_t panel;
    /* is it a contraction? */
    bool heavy;
    /* points of the reduction */
    double steps;
    /* Number of instructions, on the multiplying ports if products are one instruction, that convert a loaded vector of the vector operand;
     * that convert a broadcast number. */
    int64_t prepared, prepared_rows;
    /* vector instructions of a product: a multiplication, and with some units a sum, which needs a register for the product */
    int instructions;
    /* multiply-adds of f32 that take as long as a product: 1, more with a slow unit */
    double multiplications;
    /* number of window points that are unrolled together */
    int64_t unrolled_points;
    /* number of neighbouring points along u from the first to the last of these */
    int64_t unrolled_span;
    /* their loop may be inside of the loop over rows */
    bool inner_steps;
    /* number of stages attached to the tile, whose values need registers too */
    int64_t attached;
    /* number of whole tiles of values, of the reduction and of attached stages, that are live at once */
    int64_t sums;
    /* distance in memory of neighbouring points along u in the broadcast operand */
    int64_t row_bytes;
    /* results exceed L2 */
    bool exceeds_l2;
    /* results, and as many bytes of inputs, exceed L3 */
    bool exceeds_l3;
    /* as in rules_tile_shape */
    bool separate;
    /* A window over separate rows: its number of steps, and the distances of neighbouring rows and steps; steps 1: none. */
    int64_t window, row_step, window_step;
    /* L1 cache lines that a vector load of a row touches, on average */
    double lines_per_load;
    /* a predicate depends on the column (padding of images) */
    bool edge_predicate;
    /* rows share their last vectors if these are at most half full */
    bool row_pairs;
    /* vectors may have lanes beyond the last column, which are not stored */
    bool fills_vectors;
    /* results are not contiguous along v */
    bool strided;
    /* vectors of an operand are shuffled or gathered: masks of loads are expensive then, on all machines */
    bool gathers;
    /* strided, but contiguous along u: results are transposed in registers before they are stored */
    bool transposed;
    /* number of tensors that maps around the reduction then load and store along u; 0: only the result is stored */
    int64_t crossings;
    /* distance in memory of results of neighbouring lanes, if they are not contiguous along v; of neighbouring rows, if they are; 0: unknown */
    int64_t lane_bytes, result_bytes;
    /* pinned nr and mr, 0: none; steps_inside, full are pinned to true, to false */
    int64_t columns, rows;
    bool only_inside, only_outside, only_full, only_narrow;
} rules_tile_problem;

/* rules_tile_size.c */
/* Sets nr, mr, peel, full and cycles of *t to those of the best tile. */
void rules_size_tile(const rules *r, rules_tile_shape *t, const rules_tile_problem *p);
/* Cycles of a vector whose lanes are stored one by one. */
double rules_scatter_cycles(const rules *r, const rules_tile_problem *p, int64_t lanes);
/* Number of different rows that windows at `height` neighbouring points read. */
double rules_window_rows(const rules_tile_problem *p, double height);

/* Which sums of a contraction stay in cache while one block of its reduction after the other is added to them. */
typedef enum rules_cut_kind {
    RULES_CUT_PANEL, /* of all rows of a panel */
    RULES_CUT_TILE,  /* of one tile: the other axes of the result read a block of both operands again */
    RULES_CUT_ROW    /* of a row of tiles: they share lines of the broadcast operand, an image */
} rules_cut_kind;

/* A contraction cut along its reduction (rules_cache_blocks.c), as names of stages: rewrites renumber stages. */
struct rules_cut {
    /* the sum over blocks; the sum of a block */
    const char *sums, *part;
    /* the vector operand */
    const char *panels;
    rules_tile_shape tile;
    rules_cut_kind kind;
    /* RULES_CUT_ROW: rows of the image's channels are apart, not in blocks of channels */
    bool in_pieces;
};

enum { RULES_CLOSE = 4 }; /* largest stride, in elements, that a few loads and shuffles still gather */

/* rules_window.c: windows that slide along an operand */
/* Do neighbouring points along `axis` read windows, along `reduction`, that overlap or are close in one dimension of the operand? */
bool rules_is_window(const rules *r, const tir_stage *stage, const rules_access *access, int axis, int reduction);
/* Does stage s reduce windows, whose rows are to be computed side by side? False if its readers call functions, which hide latency
 * already. */
bool rules_has_window(const rules *r, int s, const rules_access *access, int count);
/* Unrolls a light window of few steps, so that its masks and the loads that rows share are compile-time facts. False: it stays loops. */
bool rules_unroll_window(const rules *r, const tir_stage *stage, const rules_tile_shape *t);
/* If no axis repeats the vector operand (each channel has its own image): the axis whose points are computed side by side, to hide the
 * latency of one chain, and which share operands that do not depend on it; -1: none. */
int rules_separate_axis(const rules *r, const tir_stage *stage, int v, bool heavy, const rules_access *access,
                        int count);
/* A window over separate rows: the reduction axis along which neighbouring rows share most of their reads; -1: none. Also notes how
 * vectors of rows are aligned to lines. */
int rules_shared_axis(const rules *r, const tir_stage *stage, const rules_tile_shape *t, const rules_access *access,
                      int count, rules_tile_problem *p);
/* Cycles to make the masks of a vector, for each step of the reduction, where columns may end within a tile: each step of a window has its
 * own, which the steps along other axes share if the number of columns varies (rules_masking_axes). */
double rules_mask_cycles(const rules *r, const tir_stage *stage, int v, const rules_access *access, int count);
/* Bit a: in the last tile along an axis that varies, masks depend on reduction axis a, a window's. Their loops are outside of the others,
 * which then share the masks. 0 if many rows share them anyway, or the tile's vectors do not stay in L1 for the next step of the window. */
uint32_t rules_masking_axes(rules *r, int s, const rules_tile_shape *t);
/* Of padded rows that whole tiles cover: do the first and the last tile deserve versions of their own, so that the others have no masks?
 * (Where the last tile is narrower, they have them anyway.) */
bool rules_edges_cost(const rules *r, const tir_stage *stage, const rules_tile_shape *t);

/* Does a term of the stage's predicate contain both the axis and the variable? */
bool rules_meets(const rules *r, const tir_stage *stage, int axis, tir_expr var);
/* Is a loop of the reduction unrolled because its predicate then becomes a compile-time fact for each point along u? */
bool rules_unrolls_step(const rules *r, const tir_stage *stage, int axis, const rules_tile_shape *t);
/* Number of neighbouring points along u from the one that reads a broadcast number in the first step along a reduction axis to the one that
 * reads it in the last step. */
int64_t rules_window_span(const rules *r, const tir_stage *stage, int reduction, const rules_access *access, int count,
                          const rules_tile_shape *t);

/* Does the address of the access change along the axis? */
static inline bool rules_depends(const rules_access *access, int axis) {
    return access->stride[axis] != 0;
}

/* rules_reduce.c */
/* If long sums have so few results that such tiles are too few tasks, or if operands that exceed L3 are read again by tiles: cuts the sums into
 * parts, which are tasks, too, and have whole groups of `width` steps. Returns whether it did; s is then the number of the sums over a part. */
bool rules_prepare_parts(rules *r, int s, const rules_tile_shape *t, int64_t width);

/* rules_tile.c */
/* Predicted cycles of a contraction with so few results that a tile waits for its accumulators, if several steps of the sum are computed side by
 * side; *steps gets their number. `tile`: the contraction's register tile. 1e300: it does not wait, or cannot be computed so. */
double rules_steps_cost(rules *r, int stage, const rules_tile_shape *tile, rules_lanes_tile *steps);
/* The best tile of stage s by the rules' own answers; false: none. */
bool rules_find_tile(rules *r, int s, rules_tile_shape *t);
/* Replaces *t, which rules_find_tile found, by the best tile that has the pinned choices (tir/choice.h), if there is one, and records the
 * choices of *t. */
void rules_pin_tile(rules *r, int s, rules_tile_shape *t);
/* The best tile of stage s that has its pinned choices, which are recorded; false: none. */
bool rules_choose_tile(rules *r, int s, rules_tile_shape *t);
/* Can the tensor itself get the layout: is it a constant without one? Stages that read it in another layout get copies. */
bool rules_is_laid_out_in_place(const tir_tensor *tensor);
int64_t rules_panel_width(const rules *r, const rules_access *access, tir_expr axis);

/* rules_tile_loops.c */
/* The axes of reduction s, as bits, whose loops can leave out iterations in which no point of a tile counts (`skip`): of triangular
 * operands, or, if the condition is on results alone, all. 0: none. */
uint32_t rules_skipped_axes(rules *r, int s);
/* Attaches the reduction for which *t was chosen at the tile's loop, in registers, with vectors innermost. v_label, u_label: the tile's axes
 * of the root; u_label -1: none. */
void rules_attach_reduction(rules *r, int s, const char *owner, const char *loop, int v_label, int u_label,
                            const rules_tile_shape *t);
/* How to split n columns into tasks of `width`: a mask for the last one is on the loads of all tasks, since tasks are alike, which is cheap only if
 * the processor has masked loads (Zen 3: 1x50257x768 35 ms with masks, 15 with loops of their own for the last columns). */
const char *rules_tail_of_tasks(const rules *r, int64_t n, int64_t width);
/* Of a contraction: should the loop over its panels be inside of the loops over rows of tiles? v, u: the tile's axes of the owner. A byte of the
 * broadcast operand from beyond L2 costs as much as `pieces` of panels. */
bool rules_panels_inside(rules *r, const tir_stage *owner, int main, const rules_tile_shape *t, int v, int u,
                         int64_t panels, double pieces);
/* Points of the stage's space axes except v. */
double rules_rows_but(const rules *r, const tir_stage *stage, int v);
/* Bytes of the vector operands (`vectors`) or of the broadcast ones, for all points of the reduction and all points of axis `along` (-1:
 * one point of every space axis). */
double rules_slice_bytes(rules *r, int main, const rules_tile_shape *t, bool vectors, int along);

/* rules_transposed.c: maps in vectors across the lanes of a contraction's tile */
/* If the maps around the contraction load and store only tensors that are contiguous along u, across the lanes of its tile, and several of
 * them: how many. 0: they run in vectors along v. */
int rules_crossings(rules *r, int contraction, const rules_tile_shape *t);
/* Makes the maps read a transposed copy of the sums. */
void rules_prepare_transposed(rules *r, int contraction, const rules_tile_shape *t);
/* The stage that is the transposed copy in the owner's tile; -1: none. The stages after it run in vectors along u. */
int rules_transposed_copy(const rules *r, int owner);
/* Attaches the copy at the tile's loop, or a stage after it at the owner's loop over single points of v. v_label, u_label: axes of
 * the root. */
void rules_attach_transposed(rules *r, int s, const char *owner, const char *tile_loop, const char *row_loop,
                             int v_label, int u_label);

/* rules_operand.c: the only broadcast operand that depends on the tile's rows; NULL: there is none, or more than one. */
const rules_access *rules_broadcast_operand(int v, int u, const rules_access *access, int count);

/* rules_cache_blocks.c: columns of the vector operand from beyond L2, in the loop `vo` over tiles of columns; panels_first: that is outside
 * of the loop over tiles of rows */
void rules_fetch_columns(rules *r, int main, const rules_tile_shape *t, const char *owner, const char *vo,
                         bool panels_first);
/* The same for rows of an image that are broadcast, in the loop `uo` over tiles of rows. */
void rules_fetch_rows(rules *r, int main, const rules_tile_shape *t, const char *owner, const char *uo);
/* If rows of the broadcast operand come from beyond L2: each step prefetches its part of those that the next iteration of the owner's loop
 * reads. */
void rules_fetch_next_rows(rules *r, int main, const rules_tile_shape *t, const char *owner, const char *loop);
/* If the results of the stages in the tile exceed L2, prefetches during the reduction the lines that the tile stores, and those of operands
 * that stages other than the reduction load. `loop`: the owner's loop at which the stages are attached. */
void rules_fetch_tile(rules *r, int main, int owner, const bool *inside, const rules_tile_shape *t, const char *loop);
/* If the broadcast operand is stored in blocks along the reduction and exceeds L2, notes in *t that the next block is to be prefetched.
 * To be called before the stage is attached. */
void rules_fetch_next_block(rules *r, int main, rules_tile_shape *t);
/* The results of a contraction that are taps of a window, as of a gradient of weights: they read the same operands, shifted. */
typedef struct rules_taps {
    /* 1: none, or so few that they do not matter */
    double count;
    /* number of blocks of the reduction: one task sums all taps of a block before the next block, because the operands of a tile exceed L2
     * (rules_prepare_cut); 0: the taps are tasks */
    int64_t blocks;
} rules_taps;

rules_taps rules_count_taps(rules *r, int s, const rules_tile_shape *t);
/* If panels of the contraction and its other operands exceed L2: makes it a sum over blocks of its reduction. */
void rules_prepare_cut(rules *r, const char *contraction, const rules_tile_shape *t);

#endif
