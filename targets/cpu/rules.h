/* Internal to the schedule rules of the cpu target (rules*.c). */
#ifndef TARGETS_CPU_RULES_H
#define TARGETS_CPU_RULES_H

#include "tir/access.h"
#include "tir/choice.h"
#include "tir/extent.h"
#include "tir/machine.h"
#include "tir/schedule_lines.h"

/* Where a stage runs: in loops of its own as a root, or inside the loops of another stage (by stage, in `rules.group`). */
typedef struct rules_group {
    /* the stage whose loops are outermost; the stage itself if it is a root */
    int root;
    /* the stage in whose loops it runs: the root, or for a contraction the map that reads it */
    int owner;
    /* per space axis: the owner's axis with which it shares a loop, point by point; -1: none */
    int label[TIR_MAX_AXES];
    /* bit a: unlabelled axis a is read completely by every reader, at each point */
    uint32_t whole;
} rules_group;

/* The vector axis that a stage was prepared for: rewrites have laid out its operands for it. */
typedef struct rules_prepared {
    const char *stage;
    int axis;
} rules_prepared;

/* Two contractions with operations on rows between them, by name: rewrites renumber stages (rules_chain.c). */
typedef struct rules_chain_copy {
    const char *name;
    /* axis of the copy whose points will be contiguous */
    int rows;
    /* the operand also depends on the keys, so that it is copied per block of keys */
    bool keys;
} rules_chain_copy;
typedef struct rules_chain {
    /* the second contraction */
    const char *root, *second;
    /* operands of which a block is copied, transposed */
    lib_vec(rules_chain_copy) copies;
    /* too few rows for vectors along them; then the fields marked "few" are set */
    bool few;
    /* a row of scores exceeds L2: the fold over blocks of keys, one after the other; then the fields marked "fold" are set. NULL: whole
     * rows */
    const char *fold;
    /* the first contraction; the map that reads its sums. Few, fold */
    const char *first, *scores;
    /* few: axes of the first contraction and of its partial sums; first_rows -1: none */
    int first_rows, first_keys;
    /* rows, columns: axes of the root; own: the axis of keys of `scores`. Few, fold */
    int rows, columns, own;
    /* few: rows computed together */
    int64_t group;
    /* fold: the axis of rows of the fold and its steps, and of `scores` */
    int fold_rows, score_rows;
    /* fold: the axis of columns of the step that computes the second contraction */
    int sum_columns;
    /* fold: number of keys in a block */
    int64_t block;
} rules_chain;
/* Stages of a reduction in several steps (rules_reduce.c). */
typedef enum rules_role {
    RULES_NO_PART,
    RULES_WHOLE, /* combines partial results */
    RULES_CHUNK, /* a root: partial results of chunks of a long row */
    RULES_PARTS, /* a root: results of a contraction over parts of its sums (rules_prepare_parts) */
    RULES_BESIDE, /* sums of the columns of a chunk of rows, beside the root that goes through these rows (rules_beside.c) */
    RULES_COLUMNS, /* a root: adds up blocks of rows, for many columns at once */
    RULES_ROWS,    /* sum of one block of rows, in the loops of the RULES_COLUMNS root */
    RULES_SCAN,    /* a cumulative fold, in blocks of one vector */
    RULES_BATCH,   /* a fold of tables, and its steps, in vectors along a free axis (rules_batch.c) */
    RULES_INSIDE,  /* its loops are scheduled together with those of the stage it is attached to (rules_operand.c) */
    RULES_WIDENED, /* a root: a copy in a wider dtype */
    RULES_LANES,   /* partial sums of products by lanes along a row: no register tile is chosen for it */
    RULES_CUT, /* a contraction over a block of its reduction, in the loops of the sum over blocks (rules_cache_blocks.c) */
    RULES_CUT_SUMS,  /* the sum over such blocks */
    RULES_TRANSPOSED /* a copy of a contraction's sums, transposed, in its tile (rules_transposed.c) */
} rules_role;
typedef struct rules_part {
    const char *stage;
    rules_role role;
} rules_part;

/* A contraction in tiles of results with vectors of partial sums (rules_lanes.c). */
typedef struct rules_lanes_tile {
    /* stage of the sums; stage of the partial sums */
    const char *name, *part;
    /* axes along which the tile has several results, the same numbers in all stages of the sum; u = -1: v only */
    int u, v;
    /* the contraction's reduction axis along which the lanes run (its number before the rewrites) */
    int axis;
    int64_t mr, nr, lanes;
    /* the loop over tiles along u is outside of the loop along v; the results are all taps of a window, which
     * slides over one operand or, by rows and along a row, over both: both are read once */
    bool u_outside, window;
    /* L3 streaming cycles of the operands larger than L2, each read once */
    double l3_cycles;
    /* operands to be laid out along the axis; UINT32_MAX: none */
    uint32_t pack[2];
    /* elements of a vector; largest mr and nr, beside the least of the other */
    int64_t vector, rows, columns;
    /* form `steps`: the tile is the whole result, its vectors run along v, and `lanes` is the number of steps computed side by side */
    bool steps;
} rules_lanes_tile;

#define RULES_OF_L1 0.625           /* what all tiles of a block read takes at most this share of L1 */
enum { RULES_LEAST_COLUMNS = 256 }; /* of a task of sums that run through blocks of rows */
enum { RULES_LANE_VECTORS = 4 };    /* of a partial sum, at most: a power of two */

/* How the tiles of a contraction read an operand given at run time that is contiguous along vectors (rules_operand.c). */
typedef enum rules_operand_access {
    RULES_OPERAND_IN_PLACE,
    RULES_OPERAND_PANELS,
    RULES_OPERAND_ROW_BLOCKS
} rules_operand_access;
typedef enum rules_block_fetch {
    RULES_FETCH_NONE,
    RULES_FETCH_BLOCK,  /* the next block of rows */
    RULES_FETCH_COLUMNS /* the next tile's columns of the same rows */
} rules_block_fetch;
typedef struct rules_operand_tile {
    /* axes; u = -1: none */
    int v, u;
    /* extents along them */
    int64_t n, m;
    /* the tile; elements of a vector */
    int64_t nr, mr, lanes;
    /* chosen by rules_choose_operand_access, as all members below: the operand's name */
    const char *operand;
    /* RULES_OPERAND_ROW_BLOCKS: name of the broadcast operand, if it is another tensor, of which each step reads another row, too; else NULL */
    const char *beside;
    /* RULES_OPERAND_ROW_BLOCKS: rows of a block, columns of a task */
    int64_t block, columns;
    /* RULES_OPERAND_ROW_BLOCKS: the prefetch that the rule proposes for each step of the sums; the choice `fetch` may name another */
    rules_block_fetch fetch;
} rules_operand_tile;
typedef struct rules_block_tile {
    /* stage of the sums; stage of the sums over one block of rows */
    const char *stage, *part;
    /* v and u are axes of both stages */
    rules_operand_tile tile;
} rules_block_tile;
typedef struct rules_panel_copy {
    /* the contraction; the copy of its operand, in panels */
    const char *stage, *copy;
} rules_panel_copy;
typedef struct rules_cut rules_cut; /* rules_tile.h */
/* Sums along columns that run beside a root's rows (rules_beside.c). */
typedef struct rules_beside {
    /* name of the root; its axis of rows, which is cut into chunks of so many rows */
    const char *root;
    int axis;
    int64_t rows;
    /* the partial sums, one for each chunk, and their axes of columns */
    lib_vec(rules_prepared) sums;
    /* the sums' loops have been written, beside the root's */
    bool written;
} rules_beside;

typedef struct rules {
    const tir_machine *machine;
    int threads;
    /* the region as changed by the rewrites so far */
    tir_region *region;
    /* the schedule being written */
    tir_schedule *schedule;
    lib_arena *arena;
    /* per stage */
    rules_group *group;
    lib_vec(rules_prepared) prepared;
    /* NULL: none */
    rules_chain *chain;
    /* name of the fold over blocks (rules_sweep.c); NULL: none */
    const char *sweep;
    lib_vec(rules_part) parts;
    /* stages of partial results of interleaved rows, and the stage's axis along which rows follow each other */
    lib_vec(rules_prepared) interleaved;
    lib_vec(rules_lanes_tile) lanes_tiles;
    lib_vec(rules_block_tile) block_tiles;
    lib_vec(rules_panel_copy) panel_copies;
    lib_vec(rules_cut *) cuts;
    lib_vec(rules_beside) beside;
} rules;

#define RULES_IRREGULAR TIR_IRREGULAR
typedef tir_access rules_access;
enum { RULES_ACCESSES = 72 }; /* a pass of a Fourier transform reads 32 pairs */

/* Points of a task of cheap loops, about; a task of a transposition has at least a quarter of it. */
enum { RULES_TASK_POINTS = 16384 };

enum {
    RULES_SUM_PART = 256
}; /* terms of a part of a long sum in registers, about: parts are added up in memory (`partial`) */

enum { RULES_REGISTER_VECTORS = 10 }; /* rows of at most so many vectors are unrolled into registers */

/* Appends a rewrite line and applies it to r->region. */
void rules_rewrite(rules *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline const char *rules_fresh_name(const rules *r, const char *base,
                                           const char *suffix) { /* no tensor has it */
    return tir_region_fresh_name(r->arena, r->region, base, suffix);
}
/* Stores the stage's values with this axis innermost, so that vectors along it are contiguous. */
void rules_lay_out_last(rules *r, const char *stage, int axis);
/* Has a reduction a predicate that depends on loaded values? The stages computed for it then have as many points as it reads, a number
 * known at run time only: their axes are split with `mask`, never with `peel`. */
bool rules_ends_by_data(const rules *r);
static inline int rules_stage_named(const rules *r, const char *name) { /* number of the stage; -1: none */
    return tir_region_find_stage(r->region, name);
}
int rules_axis_of(const tir_stage *stage, tir_axis_role role); /* the first axis of that role; -1: none */
/* If `stage` is a reduction into lanes, or a level of the tree over its lanes: the stage in which that tree ends; else `stage` itself. */
int rules_end_of_tree(rules *r, int stage);
bool rules_ends_tree(rules *r, int stage);

/* rules_access.c */
/* Distinct loads, as tir_accesses; returns their number. */
static inline int rules_accesses(rules *r, int stage, rules_access *out, int limit) {
    return tir_accesses(r->region, stage, out, limit);
}
int64_t rules_store_stride(rules *r, int stage, int axis);
/* The only dimension of the load whose subscript contains the axis, and the axis's coefficient there; -1: none, several, or not linear. */
int rules_dimension_of(const rules *r, const rules_access *access, tir_expr axis, int64_t *coefficient);
/* Does dimension d of the load contain the axis, added to a multiple of `width`? Groups of `width` steps along the axis are then groups of
 * elements, too. */
bool rules_steps_in(const rules *r, const rules_access *access, int d, tir_expr axis, int width);
/* Bytes of the whole tensor; -1: varying. */
static inline int64_t rules_bytes(const rules *r, const tir_tensor *tensor) {
    const int64_t elements = tir_elements(r->region, tensor, 0), size = (int64_t)lib_dtype_size(tensor->dtype);
    return elements < 0 || elements > INT64_MAX / size ? -1 : elements * size;
}
/* Is the address linear in the axis? Its stride is constant, or contains sizes that vary. */
bool rules_is_linear(const rules *r, const tir_stage *stage, const rules_access *access, int axis);
static inline int64_t rules_extent(const rules *r, const tir_axis *axis) { /* -1: varying */
    return tir_axis_extent(r->region, axis);
}
/* The largest extent possible; TIR_UNBOUNDED_HIGH: unknown. */
int64_t rules_extent_limit(const rules *r, const tir_axis *axis);
/* The extent; of a varying one a quarter of the largest possible, at least 4. */
int64_t rules_known_extent(const rules *r, const tir_axis *axis);
/* The extent; of a varying one that for which fixed costs, relative to those of the points, are what they are on average over the range: a
 * fifth of the largest possible, at least 4. */
int64_t rules_usual_extent(const rules *r, const tir_axis *axis);
/* Bytes of the tensor; a varying extent counts as 4,096. */
double rules_tensor_bytes(const rules *r, const tir_tensor *tensor);
/* Does a window, with the result's axis as its taps, slide over more points of the operand along the reduction axis? */
bool rules_taps_slide(const rules *r, const tir_stage *stage, const rules_access *access, int axis, int reduction);
/* Elements of a block, if the tensor's layout has blocks of a dimension (*dim) innermost; else 0. */
int64_t rules_innermost_block(const rules *r, uint32_t tensor, int *dim);
/* Can the stage's value be kept in registers with vectors along v? False if its layout has blocks along another axis: each point would take
 * registers for a whole block. */
bool rules_fits_registers(const rules *r, const tir_stage *stage, int v);
/* Extent of a space axis, with the padding of the layout. */
int64_t rules_stored_extent(const rules *r, int stage, int axis);
/* Are results contiguous along the axis, or in blocks? */
bool rules_stores_vectors(rules *r, int stage, int axis);
/* Lanes of a vector of the widest type that the stage computes. */
int64_t rules_lanes(const rules *r, int stage);
/* The same, of types of values that vary along the axis. */
int64_t rules_lanes_along(const rules *r, int stage, int axis);
bool rules_bare_use(tir_pool *pool, tir_expr value, tir_expr var); /* is var used outside of addresses? */
/* Is the access contiguous along the axis, in either direction? */
static inline bool rules_in_line(const rules_access *access, int axis) {
    return access->stride[axis] == 1 || access->stride[axis] == -1;
}
/* Are all accesses contiguous across both axes, used in addresses only? */
bool rules_straight(rules *r, int stage, int slow, int fast);
/* Does it sum products, so that it is worth a register tile? */
bool rules_is_contraction(const rules *r, int stage);
/* Sets *members to the stages that run in the owner's loops, in stage order, with room for one more; returns their number. */
int rules_members(const rules *r, int owner, int **members);
bool rules_pointwise(const rules *r, int stage); /* do it and its owner share all axes of several points? */
int rules_axis_labelled(const rules *r, int stage, int label); /* the stage's axis with that label; -1: none */
/* Number of vector registers for the values of a stage, of all components, if they are kept at points[a] points along space axis a and
 * vectors run along axis v: of the tensors' layouts, as the verifier of loop IR counts them. INT32_MAX: more, or unknown. */
int64_t rules_registers(const rules *r, int stage, const int64_t *points, int v);
/* Register pressure: if these stages run in order and the value of stages[i] has size sizes[i], the largest sum of sizes live at once. */
int64_t rules_live(rules *r, const int *stages, const int64_t *sizes, int count);
/* By stage: does it run point by point in the owner's tile, as do all its readers? */
bool *rules_in_tile(rules *r, int owner);
/* Is the stage a root, or do all stages in its root's loops run point by point, all but itself and the root being maps? */
bool rules_simple_group(const rules *r, int stage);
/* Does the family `blocks` take the root: is a contraction in its loops summed over blocks of the reduction? */
bool rules_is_in_blocks(const rules *r, int root);

rules_role rules_role_of(const rules *r, int stage);
void rules_set_role(rules *r, const char *stage, rules_role role);

bool rules_tileable(rules *r, int stage); /* is it a reduction for which a register tile exists? */
/* Does another stage in the same root's loops load elements of `stage` at indices that depend on data? They cannot be in registers, which
 * are indexed by constants and lanes only. */
bool rules_is_chosen_by_data(rules *r, int stage);

/* Schedules the root and all stages in its loops by one of the families below (rules_roots.c). */
void rules_root(rules *r, int root);
/* Families: each schedules the root and all stages in its loops; false: it is not for such a root. */
bool rules_fold(rules *r, int root);
bool rules_scatter(rules *r, int root);
bool rules_sort(rules *r, int root);
bool rules_columns(rules *r, int root);
bool rules_enumerated_tile(rules *r, int root);
bool rules_enumerated_rows(rules *r, int root);
bool rules_lanes_loops(rules *r, int root);
bool rules_blocks(rules *r, int root);
bool rules_cut_loops(rules *r, int root);
bool rules_tile(rules *r, int root);
bool rules_chosen(rules *r, int root);
bool rules_interleaved_rows(rules *r, int root);
bool rules_short_rows(rules *r, int root);
bool rules_rows(rules *r, int root);
/* Families for maps in whose loops no other stage runs (rules_map.c). */
bool rules_map_beside(rules *r, int root); /* rules_beside.c */
bool rules_map_steps(rules *r, int root);
bool rules_map_panels(rules *r, int root);
bool rules_map_transposed(rules *r, int root);
bool rules_map_chosen(rules *r, int root);
bool rules_map_permuted(rules *r, int root);
bool rules_map_mixed(rules *r, int root);
bool rules_map_straight(rules *r, int root);
/* Does a select, or a load's guard, whose condition contains the axis choose the value of a point? `constants`: also one between a value and a
 * constant, which masked loads implement. */
bool rules_selects(rules *r, const tir_stage *stage, int axis, bool constants);
int rules_operations(rules *r, const tir_stage *stage); /* of a point */
/* rules_map_short.c */
bool rules_map_short_rows(rules *r, int root);

/* Schedules `owner` and its pointwise members by a register tile. `place`: the loops around the tile; NULL: the owner is a root, whose
 * other axes become tasks. False: there is no tile. */
typedef struct rules_tile_place {
    /* loops that exist already around the tile: " b h q_o" */
    const char *prefix;
    /* the last one of these loops: "q_o" */
    const char *prefix_last;
    /* bit a: the loop of the owner's axis a is in the prefix */
    uint32_t prefix_axes;
    /* this axis of the owner was split: the inner loop's name and extent; -1: none */
    int block_axis;
    const char *block_loop;
    int64_t block_extent;
    /* the loop whose next iteration is the next block of rows, and its stage */
    const char *rows_stage, *rows_loop;
} rules_tile_place;
bool rules_tile_in(rules *r, int owner, const rules_tile_place *place);
/* Columns of the owner's register tile if its vectors run along the owner's axis; 0: they do not, or there is no tile. */
int64_t rules_columns_along(rules *r, int owner, int axis);
/* Rewrites of one stage before scheduling: copies of outputs, layouts and copies of operands, partial sums by lanes. */
bool rules_prepare_batch(rules *r, int fold); /* false: the fold is no batch of small tables */
void rules_batch(rules *r, int fold);
void rules_prepare_scan(rules *r, int stage);
void rules_prepare_sorts(rules *r); /* changes the numbers of stages */
void rules_prepare_reduce(rules *r, int stage);
/* Makes partial sums along columns v, about `groups` for each column, if a root goes through the same rows. */
bool rules_prepare_beside(rules *r, int stage, int v, int64_t groups);
rules_beside *rules_sums_beside(rules *r, int root); /* NULL: none */
/* Cuts the root's rows into loops `chunk`, over tasks, and `line`. */
void rules_cut_rows(rules *r, const rules_beside *beside);
/* Writes the sums' loops, at the end of the root's loop `loop`, which is `line` or over blocks of it of `block` rows. */
void rules_write_beside(rules *r, rules_beside *beside, const char *loop, int64_t block);
void rules_sum_alone(rules *r); /* makes roots of sums whose loops have not been written */
void rules_prepare_tile(rules *r, int stage);
void rules_prepare_rows(rules *r, int stage);
/* Are rows of `points` points (-1: varying) too short for lanes along them? Then vectors run across rows. */
bool rules_is_short_row(const rules *r, int stage, int64_t points);
/* Does the stage reduce rows that are interleaved in memory, and could it by lanes along points and rows at once; is that the choice? */
bool rules_may_interleave(rules *r, int stage);
bool rules_is_interleaved(rules *r, int stage);
bool rules_prepare_interleaved(rules *r, int stage);
/* Predicted cycles of a contraction whose results have vectors of partial sums, and its best *tile; 1e300: not possible. */
double rules_lanes_cost(rules *r, int stage, rules_lanes_tile *tile);
/* Names the choices that *tile consists of; sets it to the best of those that are pinned. */
void rules_choose_lanes(rules *r, int stage, rules_lanes_tile *tile);
/* Cycles of `cycles` of computation overlapped with `l3_cycles` cycles of L3 traffic: the longer one, and a tenth of the shorter one. */
double rules_overlap_l3(double cycles, double l3_cycles);
void rules_prepare_lanes(rules *r, int stage, const rules_lanes_tile *tile);
rules_operand_access rules_choose_operand_access(rules *r, int stage, rules_operand_tile *tile);
/* Does each step of the sum read another row of both operands, which exceed L3 (x^T dy)? Of the tile: v, u, n, m, nr. */
bool rules_reads_both_from_memory(rules *r, int stage, const rules_operand_tile *tile);
void rules_prepare_blocks(rules *r, int stage, const rules_operand_tile *tile);
/* Copies the broadcast input if its rows evict each other from L2 because they map to few sets; a cache line of the copy runs along the
 * reduction. */
void rules_copy_rows(rules *r, int stage, const rules_operand_tile *tile);
/* The name of the dtype that the stage's products, those of `unit` if it is not NULL, convert the tensor's elements to: f32 of 16 bits, i16 of
 * bytes. NULL: they are not converted. */
const char *rules_widened_dtype(const rules *r, int stage, uint32_t tensor, const struct tir_unit *unit);
/* `copy source -> copy`, as the dtype if it is not NULL. `root`: a copy that has loops of its own. */
void rules_copy_as(rules *r, const char *source, const char *copy, const char *dtype, bool root);
/* Name of the vector operand if it is to be widened in panels; NULL: it is not. */
const char *rules_widened_panels(rules *r, int stage, const rules_operand_tile *tile);
/* Copies the broadcast operand, widened, if it comes from outside and many tiles would convert each element. Do tiles convert it? If a copy
 * does, *copying is set to its cycles. `unit`: of the products, or NULL. */
void rules_widen_rows(rules *r, int stage, const rules_operand_tile *tile, const struct tir_unit *unit);
bool rules_converts_rows(rules *r, int stage, const rules_operand_tile *tile, const struct tir_unit *unit,
                         double *copying);
/* Are the rows of the broadcast operand read in short pieces that are distant in memory? */
bool rules_rows_are_scattered(rules *r, int stage, int v, int u);
/* Records that the stage reads `copy` in panels. */
void rules_prepare_panels(rules *r, const char *stage, const char *copy);
/* The copy that the stage reads in panels; NULL: none. */
const char *rules_panels_of(const rules *r, const char *stage);
void rules_attach_panels(rules *r, const char *copy, const char *owner, const char *loop);
void rules_prepare_enumerated_tile(rules *r, int stage);
/* Bit a: the position along axis a picks the values of the map (TIR_PICK). */
uint32_t rules_positions(const rules *r, int stage);
/* Would the positions no longer be an axis if the map were inlined? (rules_enumerated_rows.c) */
bool rules_loses_positions(rules *r, int stage);
/* Chains come first: the other rules skip their stages. */
void rules_prepare_chains(rules *r);
bool rules_in_chain(rules *r, int stage);
bool rules_chained(rules *r, int root);
/* Gives each contraction, but `except` (may be NULL), one map that reads it, in whose tiles it will run: one that is an output, or has not
 * exactly one reader, gets a copy as its reader. */
void rules_give_maps(rules *r, const char *except);
/* Attaches contraction s, in registers, at loop `loop` of stage `at`: axis `high` (-1: none) is unrolled, axis `wide` becomes vectors. */
void rules_attach_contraction(const rules *r, int s, const char *at, const char *loop, int high, int wide);
/* Chooses a register tile, *mr by *nv vectors, for `height` by `vectors` of them (-1: varying) of so many `sums` at once. */
void rules_fit_tile(const rules *r, int64_t height, int64_t vectors, int sums, int64_t *mr, int64_t *nv);
/* Loops of a copy, of elements of four bytes, that is contiguous along axis `across` and its operand along axis `along`: tiles of a vector's
 * size along both are transposed in registers. */
void rules_transposed_loops(const rules *r, int s, int across, int along);
/* Sweeps (rules_sweep.c); then the other rules skip their stages, too. */
void rules_prepare_sweeps(rules *r);
bool rules_in_sweep(const rules *r, int stage);
bool rules_swept(rules *r, int root);
/* Attaches `s`, an operation on rows, at a loop of the root. Bit a of `shared`: this loop is inside that of the root's axis a. `block`
 * points of the root's axis `block_axis` (-1: none) are computed together. */
void rules_attach_row(rules *r, int s, int root, const char *loop, uint32_t shared, int block_axis, int64_t block);

/* The loops of a root around its vector loop, outermost first, of which rules_form_tasks makes tasks (rules_map.c). */
typedef struct rules_loop {
    const char *name;
    /* -1: varying */
    int64_t extent;
    /* may not be split, since it comes from a split */
    bool whole;
} rules_loop;
typedef struct rules_nest {
    rules *r;
    const tir_stage *stage;
    rules_loop loop[TIR_MAX_AXES + 4];
    int count;
} rules_nest;
void rules_add_loop(rules_nest *nest, const char *name, int64_t extent, bool whole);
/* Splits the loop into blocks of `block` points if its extent is larger than that, or not known (-1), and vectorises the loop inside the blocks,
 * called `inner`; a loop that is not split is vectorised itself. */
void rules_vectorise(rules *r, const char *stage, const char *loop, int64_t extent, int64_t block, const char *outer,
                     const char *inner);
/* Makes outer loops of the nest tasks, so that the loops inside a task have at least `least` points; the loop at the boundary is split.
 * `points`: points of the innermost loop's body; -1: unknown. */
void rules_form_tasks(rules_nest *nest, int64_t points, int64_t least);
/* The same around a loop of `extent` points (-1: varying) that is itself cut into tasks if it is longer than `task`. Returns the name of the loop
 * inside of the tasks. */
const char *rules_form_long_tasks(rules_nest *nest, const char *loop, int64_t extent, int64_t task);
/* Adds `nt` (non-temporal stores) if inputs and results together exceed the share of L3 that a core may count on. Returns whether it
 * did. */
bool rules_store_past_caches(rules *r, const tir_stage *stage);

#endif
