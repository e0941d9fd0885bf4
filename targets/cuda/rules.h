/* Internal to the schedule rules of the cuda target (rules*.c). */
#ifndef CUDA_RULES_H
#define CUDA_RULES_H

#include "tir/access.h"
#include "tir/choice.h"
#include "tir/extent.h"
#include "tir/machine.h"
#include "tir/schedule_lines.h"
#include "tir/unit.h"

enum { CUDA_ACCESSES = 16, CUDA_ROW_MEMBERS = 16, CUDA_WINDOW_COPIES = 4 };

/* A stage in a root's loop over rows. If it reduces: the stages that rules_rows.c made of it, NULL: none. */
typedef struct cuda_row_member {
    const char *name;
    /* is the stage a reduction; is it a map with points along the whole row? */
    bool reduces, along;
    const char *part, *own, *warp, *all, *total, *tree;
} cuda_row_member;

/* A root and the stages in its loop over rows. */
typedef struct cuda_row_group {
    const char *root;
    /* number of leading axes that all stages share, which number the rows */
    int rows;
    /* points of the longest row */
    int64_t length;
    /* number of rows */
    int64_t count;
    /* bytes of the widest element */
    int64_t size;
    /* rows differ in length */
    bool ragged;
    /* number of contiguous elements per thread */
    int64_t vector;
    /* threads of a row, a power of two */
    int64_t threads;
    /* rows of a block */
    int64_t block_rows;
    /* the values of a row that the group needs stay in registers */
    bool held;
    int members;
    /* producers, and the root if it is a reduction */
    cuda_row_member member[CUDA_ROW_MEMBERS];
} cuda_row_group;

/* A map that reads along another axis than it writes (rules_maps.c). */
typedef struct cuda_transposition {
    /* the copy in shared memory */
    const char *root, *tile;
    /* the root's axis along which the source is contiguous */
    int across;
    /* dimensions of the source that the root's last axis and axis `across` index */
    int row, column;
    /* bytes of an element of the source; elements that a thread moves at once */
    int64_t size, vector;
} cuda_transposition;

/* A cumulative fold (rules_scan.c): warps take 32 points at a time. */
typedef struct cuda_scan {
    /* name of the fold; prefix of the levels of pairwise sums, NULL: threads run along `axis` of the fold instead, one point of time after
     * the other */
    const char *fold, *levels;
    int axis;
} cuda_scan;

/* A scatter in which each thread owns elements of the result (rules_scatter.c). */
typedef struct cuda_scatter {
    /* the updated stage, and its copy in memory */
    const char *sums, *root;
    /* the axis along which an update has many elements, -1: none; the first axis that data selects */
    int lane, tiled;
    /* number of updates; points of all axes along which an update has elements */
    int64_t updates, along;
    /* points of axis `tiled`; of all further axes that data selects */
    int64_t places, other_places;
    /* bytes of an element; threads of a block */
    int64_t size, lanes;
    /* points of axis `tiled` in a block's tile */
    int64_t tile;
} cuda_scatter;

/* A contraction in tiles (rules_tile.c). */
typedef enum cuda_side { CUDA_SIDE_M, CUDA_SIDE_N, CUDA_SIDE_BATCH, CUDA_SIDE_SUM, CUDA_SIDES } cuda_side;

typedef struct cuda_tile_axis {
    const char *name;
    /* tir_axis.id */
    int32_t id;
    int64_t extent;
    cuda_side side;
    /* a tile has hi * thread * lo points; of the sum's axes, `lo` points are copied at once */
    int64_t hi, thread, lo;
} cuda_tile_axis;

typedef struct cuda_tile {
    /* stages: the contraction; the map that reads it; copies of the factors of m and of n */
    const char *sums, *root, *copy[2];
    /* the last axis of each side */
    int m, n;
    /* number of axes of the result; of all axes, those of the sum included */
    int space, count;
    cuda_tile_axis axis[TIR_MAX_AXES];
    /* by factor (m, n): which axes it uses; is a part of the predicate moved into it? */
    bool uses[2][TIR_MAX_AXES], deviates[2];
    /* points of all axes of the side */
    int64_t points[CUDA_SIDES];
    /* bytes of an element of both copies and of a sum */
    int64_t bytes[3];
    /* points of the sum that are copied at once; threads of a block */
    int64_t steps, threads;
    /* number of pieces into which the original sum was cut, `sums` being the sum of one piece; 1: it was not cut */
    int64_t pieces;
    /* blocks per multiprocessor at the same time */
    int64_t together;
    double cost;
    /* matrix instruction of a warp that computes the products (rules_matrix.c); NULL: none */
    const tir_unit *unit;
    /* axes of m, of n and of the sum that run through the unit */
    int unit_axis[3];
    /* stages: operands in the registers of the unit */
    const char *fragment[2];
    /* the axis of the sum whose parts run in sequence, with copies in between */
    int stepped;
} cuda_tile;

/* Two contractions around rows (rules_chain.c): a fold over blocks of keys. */
typedef struct cuda_chain {
    /* stages: the first contraction, the map that reads the second, the fold, the second one's step */
    const char *first, *root, *fold, *sums;
    /* stages, by queries, keys, values: the copy in shared memory, the copy in registers */
    const char *copy[3], *fragment[3];
    /* the left operand of the second contraction, in registers */
    const char *weights;
    /* axes of the copy of the values (tir_axis.id) */
    int32_t key_axis, width_axis;
    /* number of axes that all stages share, the last one being rows */
    int free;
    /* the first contraction: rows x depth x keys, the second: rows x keys x width */
    int64_t rows, keys, depth, width;
    /* keys of a step; warps of a block of threads; buffers of keys and values */
    int64_t block, warps, stages;
    /* queries stay in registers */
    bool held;
} cuda_chain;

/* A short sum over windows (rules_window.c). */
typedef struct cuda_window {
    const char *sums, *root;
    /* by axis of the result: threads of a block along it */
    int64_t lanes[TIR_MAX_AXES];
    /* results of a thread along rows_axis */
    int64_t rows;
    /* the axis along which a thread has several results; -1: none */
    int rows_axis;
    int copies;
    /* stages: values that a thread reads, in registers */
    const char *copy[CUDA_WINDOW_COPIES];
} cuda_window;

/* A stage that is computed inside the root's threads that need its values (rules.c). */
typedef struct cuda_inside {
    const char *stage, *root;
} cuda_inside;
/* A reduction with neighbouring threads along its results (rules_reduce.c). */
typedef struct cuda_column_group {
    /* stages: the stored results; the sums in registers; partial sums of each row of threads, in registers and in shared memory */
    const char *root, *whole, *part, *all;
    /* axis of the contiguous results */
    int axis;
    /* points of that axis; of all other axes; of the reduction */
    int64_t columns, rest, points;
    /* bytes of the widest element */
    int64_t size;
    /* results of a thread; threads along the results; rows of such threads, which share the reduction */
    int64_t vector, lanes, groups;
    /* number of chunks that the reduction is cut into */
    int64_t chunks;
} cuda_column_group;

/* A sort by merging (rules_sort.c): stages NAME_0 .. NAME_passes. */
typedef struct cuda_sort {
    const char *name;
    /* number of passes; of passes that a block makes on chip */
    int passes, chip;
} cuda_sort;

typedef struct cuda_rules {
    const tir_machine *machine;
    /* the region as changed by the rewrites so far */
    tir_region *region;
    /* the schedule being written */
    tir_schedule *schedule;
    lib_arena *arena;
    /* stages to be scheduled, including those already done */
    lib_vec(const char *) roots;
    lib_vec(cuda_row_group) rows;
    lib_vec(cuda_tile) tiles;
    /* stages that add up pieces */
    lib_vec(const char *) sums;
    lib_vec(cuda_inside) inside;
    lib_vec(cuda_chain) chains;
    lib_vec(cuda_window) windows;
    lib_vec(cuda_column_group) columns;
    lib_vec(cuda_transposition) transpositions;
    lib_vec(cuda_scan) scans;
    lib_vec(cuda_scatter) scatters;
    lib_vec(cuda_sort) sorts;
    /* folds (rules_state.c) */
    lib_vec(const char *) states;
    /* scheduled stages, by name: rewrites renumber them */
    lib_vec(const char *) done;
} cuda_rules;

static inline int64_t cuda_ceil_div(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}
static inline int64_t cuda_power_above(int64_t n) { /* of two, at least n */
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}
static inline int64_t cuda_round_up(int64_t n, int64_t to) {
    return cuda_ceil_div(n, to) * to;
}
static inline int64_t cuda_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Appends a rewrite line and applies it to r->region. */
void cuda_rewrite(cuda_rules *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same if the line is legal, and if *good; else *good becomes false, and the caller drops the changed region. Returns *good. */
bool cuda_try_rewrite(cuda_rules *r, bool *good, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline int cuda_stage_named(const cuda_rules *r, const char *name) { /* number of the stage; -1: none */
    return tir_region_find_stage(r->region, name);
}
static inline bool cuda_is_stage(const cuda_rules *r, int stage, const char *name) { /* name NULL: false */
    return name && stage >= 0 && cuda_stage_named(r, name) == stage;
}
static inline const tir_stage *cuda_stage_of(const cuda_rules *r, const char *name) { /* the stage must exist */
    return &r->region->stages.data[cuda_stage_named(r, name)];
}
static inline int64_t cuda_extent(const cuda_rules *r, const tir_axis *axis) { /* -1: varying */
    return tir_axis_extent(r->region, axis);
}
/* The name of a loop made of an axis; names in one stage must differ: "block2". */
static inline const char *cuda_loop_name(const cuda_rules *r, const char *part, int axis) {
    return lib_arena_format(r->arena, "%s%d", part, axis);
}
static inline const char *cuda_size_word(const cuda_rules *r, int64_t rows, int64_t columns) { /* "64x128" */
    return lib_arena_format(r->arena, "%lldx%lld", (long long)rows, (long long)columns);
}
static inline const char *cuda_number_word(const cuda_rules *r, int64_t number) {
    return lib_arena_format(r->arena, "%lld", (long long)number);
}
/* The words of two choices that a search makes together. */
typedef struct cuda_size_words {
    const char *word[2];
} cuda_size_words;
/* cuda_axis_of: the stage's axis with this id (an axis made from another one keeps its id); -1: none. cuda_tile_axis_of: the tile's axis
 * with this id; -1: none. */
int cuda_axis_of(const tir_stage *stage, int32_t id);
int cuda_tile_axis_of(const cuda_tile *tile, int32_t id);
const char *cuda_fresh_name(const cuda_rules *r, const char *base, const char *suffix); /* no tensor has it */
bool cuda_is_done(const cuda_rules *r, const char *stage); /* also true if the stage was removed */
void cuda_mark_done(cuda_rules *r, const char *stage);
/* Name of the tensor of the stage's first value; all its values have the layout of that tensor. */
const char *cuda_tensor_name(const cuda_rules *r, const char *stage);
/* If the root is a reduction, which would be updated in memory: adds a copy of its only needed value and returns the copy, which becomes
 * the root, so that the reduction may run in registers. The root itself if it is a map, or if several values are needed. */
const char *cuda_copy_root(cuda_rules *r, const char *root);
/* The map that reads the stage point by point, if it is the only reader and not scheduled yet; -1: there is none. */
int cuda_reader_of(cuda_rules *r, int stage);
/* ---- the model (rules_model.c) */

/* Collects contiguous accesses along an axis: bytes of the widest element; largest number of neighbours for which all accesses are
 * aligned. */
typedef struct cuda_vector {
    int64_t widest, most;
} cuda_vector;
#define CUDA_NO_VECTOR ((cuda_vector){.most = 16})

/* Adds an access, if it is contiguous along the axis. */
void cuda_note_vector(cuda_rules *r, const tir_access *access, int axis, cuda_vector *vector);
int64_t cuda_vector_of(const cuda_vector *vector, int64_t extent); /* number of contiguous elements per thread */
/* Chooses threads, block_rows and held of a group; false: several phases are better. */
bool cuda_model_rows(const tir_machine *machine, cuda_row_group *group);
void cuda_set_row_threads(const tir_machine *machine, cuda_row_group *group); /* block_rows and held, for its threads */
/* Number of chunks for `rows` reductions of `points` points, `length` of which are along the axis of threads; 1: not cut. */
int64_t cuda_model_chunks(const tir_machine *machine, int64_t rows, int64_t points, int64_t length);
/* Points of time per piece of a cumulative fold of `length` points for each of `points` free points; `length` or more: it is not cut.
 * along: time is contiguous in memory, and a warp computes a piece. */
int64_t cuda_model_piece(const tir_machine *machine, int64_t points, int64_t length, bool along);
bool cuda_model_scatter(const tir_machine *machine,
                        cuda_scatter *scatter); /* chooses lanes and tile; false: it does not pay */
void cuda_model_columns(const tir_machine *machine, cuda_column_group *group); /* chooses lanes, groups, chunks */

/* Prepare a root, possibly by rewrites, before any loop is scheduled. True: the rule applies, and the root and all stages inside it are
 * done. */
bool cuda_prepare_rows(cuda_rules *r, const char *root);
bool cuda_prepare_reduction(cuda_rules *r, const char *root);
/* Part: the root is the partial results of chunks, and its last axis is the chunk. */
bool cuda_prepare_columns(cuda_rules *r, const char *root, bool part);
void cuda_schedule_rows(cuda_rules *r, const cuda_row_group *group);
/* For contractions on matrix units, called by the functions of rules_tile.c (rules_matrix.c). */
bool cuda_matrix_fits(cuda_rules *r, int stage, cuda_tile *tile);
void cuda_matrix_steps(cuda_tile *tile);
/* Sets the best size and returns its cost; -1: none fits. record: the candidates are noted. */
double cuda_matrix_size(cuda_rules *r, cuda_tile *tile, bool record);
void cuda_matrix_lay_out(cuda_rules *r, cuda_tile *tile);
void cuda_schedule_matrix(cuda_rules *r, const cuda_tile *tile);
/* Is the stage only a copy? A value that is computed cannot be copied asynchronously. */
static inline bool cuda_is_copy(const cuda_rules *r, const char *stage) {
    return tir_is_copy(r->region->pool, cuda_stage_of(r, stage)->value[0]);
}
/* Points of a copy's axis that a block needs at once; *side of the tile. */
int64_t cuda_copied_points(const cuda_tile *tile, const tir_axis *axis, cuda_side *side);
/* Points of a tile along the axis. */
static inline int64_t cuda_tile_points(const cuda_tile_axis *axis) {
    return axis->hi * axis->thread * axis->lo;
}
/* Appends a loop to an order; writes a line for a loop. loop NULL: neither. */
static inline void cuda_add_loop(lib_text *order, const char *loop) {
    if (loop) lib_text_format(order, " %s", loop);
}
static inline void cuda_mark_loop(cuda_rules *r, const char *directive, const char *stage, const char *loop) {
    if (loop) tir_schedule_add(r->schedule, "%s %s.%s", directive, stage, loop);
}
/* The axis along which a copy's source is contiguous in memory; *bytes: of its element; -1: none. */
int cuda_contiguous_axis(cuda_rules *r, int stage, int64_t *bytes);
/* Cycles until all blocks are done, with `together` blocks at once on a multiprocessor, each of `rounds` rounds of copies followed by
 * `step` cycles of work. */
double cuda_tile_cycles(const cuda_rules *r, int64_t blocks, int64_t together, double rounds, double step);
void cuda_prepare_sorts(cuda_rules *r);
void cuda_schedule_sort(cuda_rules *r, const cuda_sort *sort);
bool cuda_prepare_chain(cuda_rules *r, int second);
void cuda_schedule_chain(cuda_rules *r, const cuda_chain *chain);
bool cuda_prepare_tile(cuda_rules *r, int stage);
void cuda_schedule_tile(cuda_rules *r, const cuda_tile *tile);
bool cuda_prepare_window(cuda_rules *r, const char *sums);
void cuda_schedule_window(cuda_rules *r, const cuda_window *window);
void cuda_schedule_columns(cuda_rules *r, const cuda_column_group *group);
bool cuda_prepare_scan(cuda_rules *r, const char *root);
void cuda_schedule_scan(cuda_rules *r, const cuda_scan *scan);
bool cuda_prepare_state(cuda_rules *r, const char *root);
void cuda_schedule_state(cuda_rules *r, const char *fold);
bool cuda_prepare_scatter(cuda_rules *r, const char *root);
void cuda_schedule_scatter(cuda_rules *r, const cuda_scatter *scatter);
bool cuda_prepare_transposition(cuda_rules *r, const char *root);
void cuda_schedule_transposition(cuda_rules *r, const cuda_transposition *transposition);
void cuda_prepare_points(cuda_rules *r, const char *root); /* applies to every root */
void cuda_schedule_points(cuda_rules *r, int root);
/* The reduction's axis along which threads access contiguous memory; -1: none. */
int cuda_lane_axis(cuda_rules *r, int stage);

#endif
