/* Internal to the schedule rules of the cuda target (rules*.c). */
#ifndef CUDA_RULES_H
#define CUDA_RULES_H

#include "tir/access.h"
#include "tir/machine.h"
#include "tir/schedule.h"
#include "tir/unit.h"

enum { CUDA_ACCESSES = 16, CUDA_ROW_MEMBERS = 16, CUDA_WINDOW_COPIES = 4 };

/* A stage in a root's loop over rows, and the stages that its reduction became (rules_rows.c); NULL: none. */
typedef struct cuda_row_member {
    const char *name;
    /* is it a reduction; is it a map with points along the whole row? */
    bool reduces, along;
    const char *part, *own, *warp, *all, *total, *tree;
} cuda_row_member;

/* A root and the stages in its loop over rows. */
typedef struct cuda_row_group {
    const char *root;
    /* leading axes that all stages share: the row's number */
    int rows;
    /* points of the longest row */
    int64_t length;
    /* rows */
    int64_t count;
    /* bytes of an element, the widest */
    int64_t size;
    /* rows differ in length */
    bool ragged;
    /* contiguous elements per thread */
    int64_t vector;
    /* threads of a row, a power of two */
    int64_t threads;
    /* of a block */
    int64_t block_rows;
    /* the values of a row that the group needs stay in registers */
    bool held;
    int members;
    /* producers, and the root if it reduces itself */
    cuda_row_member member[CUDA_ROW_MEMBERS];
} cuda_row_group;

/* A map that reads along another axis than it writes (rules_maps.c). */
typedef struct cuda_transposition {
    /* the copy in shared memory */
    const char *root, *tile;
    /* the root's axis along which the source is contiguous */
    int across;
    /* dimensions of the source that follow the root's last axis and that one */
    int row, column;
    /* bytes of an element of the source; elements that a thread moves at once */
    int64_t size, vector;
} cuda_transposition;

/* A cumulative fold (rules_scan.c): warps take 32 points at a time. */
typedef struct cuda_scan {
    /* NULL: threads run along an axis of the fold instead, one point of time after the other */
    const char *fold, *levels;
    int axis;
} cuda_scan;

/* A scatter in which each thread owns elements of the result (rules_scatter.c). */
typedef struct cuda_scatter {
    /* the updated stage, and its copy in memory */
    const char *sums, *root;
    /* the axis that updates run along, -1: none; the first axis that data selects */
    int lane, tiled;
    /* updates of each element; points of all axes that updates run along */
    int64_t updates, along;
    /* elements along `tiled`, and along all further axes that data selects */
    int64_t places, other_places;
    /* bytes of an element; threads */
    int64_t size, lanes;
    /* elements of a block's tile */
    int64_t tile;
} cuda_scatter;

/* A contraction in tiles (rules_tile.c). */
typedef enum cuda_side { CUDA_SIDE_M, CUDA_SIDE_N, CUDA_SIDE_BATCH, CUDA_SIDE_SUM, CUDA_SIDES } cuda_side;

typedef struct cuda_tile_axis {
    const char *name;
    /* tir_axis */
    int32_t id;
    int64_t extent;
    cuda_side side;
    /* points of a block; of the sum: lo are copied at once */
    int64_t hi, thread, lo;
} cuda_tile_axis;

typedef struct cuda_tile {
    /* stages: the contraction, the map that reads it, copies of the factors of m and n */
    const char *sums, *root, *copy[2];
    /* an axis of each side */
    int m, n;
    /* axes of the result, and with those of the sum */
    int space, count;
    cuda_tile_axis axis[TIR_MAX_AXES];
    /* axes of the factors of m and n; is the predicate moved into them? */
    bool uses[2][TIR_MAX_AXES], deviates[2];
    /* of all axes of the side */
    int64_t points[CUDA_SIDES];
    /* of an element of both copies and of a sum */
    int64_t bytes[3];
    /* of the sum, copied at once; of a block */
    int64_t steps, threads;
    /* number of pieces of a sum that is cut: this is one of them */
    int64_t pieces;
    /* blocks per multiprocessor at the same time */
    int64_t together;
    double cost;
    /* of a warp, which computes the products (rules_matrix.c); NULL: none */
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
    /* of queries, keys, values: in shared memory, in registers */
    const char *copy[3], *fragment[3];
    /* the left operand of the second contraction, in registers */
    const char *weights;
    /* the values' axes (tir_axis.id) */
    int32_t key_axis, width_axis;
    /* axes that all stages share, the last one being rows */
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
    /* of a block, by axis of the result */
    int64_t lanes[TIR_MAX_AXES];
    /* results of a thread along rows_axis */
    int64_t rows;
    /* that axis; -1: none */
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
    /* stored; in registers; of rows of threads, in registers and in shared memory */
    const char *root, *whole, *part, *all;
    /* axis of the contiguous results */
    int axis;
    /* along that axis, of all others, of the reduction */
    int64_t columns, rest, points;
    /* bytes of an element, the widest */
    int64_t size;
    /* results of a thread, threads along them, rows of such threads */
    int64_t vector, lanes, groups;
    /* number of chunks that the reduction is cut into */
    int64_t chunks;
} cuda_column_group;

/* A sort by merging (rules_sort.c): stages NAME_0 .. NAME_passes. */
typedef struct cuda_sort {
    const char *name;
    /* all passes; passes that a block makes on chip */
    int passes, chip;
} cuda_sort;

typedef struct cuda_rules {
    const tir_machine *machine;
    /* after the rewrites so far */
    tir_region *region;
    /* the schedule being written */
    tir_schedule *schedule;
    lib_arena *arena;
    /* stages to be scheduled, including those already done */
    lib_vec(const char *) roots;
    lib_vec(cuda_row_group) rows;
    lib_vec(cuda_tile) tiles;
    /* that add up pieces */
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
static inline int64_t cuda_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Appends a rewrite line and applies it to r->region. */
void cuda_rewrite(cuda_rules *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cuda_stage_named(const cuda_rules *r, const char *name);                         /* as rules call it; -1: none */
static inline bool cuda_is_stage(const cuda_rules *r, int stage, const char *name) { /* name NULL: false */
    return name && stage >= 0 && cuda_stage_named(r, name) == stage;
}
static inline const tir_stage *cuda_stage_of(const cuda_rules *r, const char *name) { /* the stage must exist */
    return &r->region->stages.data[cuda_stage_named(r, name)];
}
int64_t cuda_extent(const cuda_rules *r, const tir_axis *axis); /* -1: varying */
/* The axis of a stage that has this id, or was made of the axis that has it; -1: none. The number of an axis of a contraction's tile; -1:
 * none. */
int cuda_axis_of(const tir_stage *stage, int32_t id);
int cuda_tile_axis_of(const cuda_tile *tile, int32_t id);
const char *cuda_fresh_name(const cuda_rules *r, const char *base, const char *suffix); /* no tensor has it */
bool cuda_is_done(const cuda_rules *r, const char *stage); /* also true if the stage was removed */
void cuda_mark_done(cuda_rules *r, const char *stage);
const char *cuda_tensor_name(const cuda_rules *r,
                             const char *stage); /* of its first value: all its values share this layout */
/* A reduction as root would be updated in memory. Returns the stage that becomes the root instead, a copy of its single needed value, so
 * that the reduction may run in registers; the root itself if several values are needed. */
const char *cuda_copy_root(cuda_rules *r, const char *root);
/* Does a load of the consumer read the producer point by point along its first `axes` axes, at the same points of the consumer's? Loads
 * of other tensors do not count. *reads: is there such a load? */
bool cuda_reads_along(cuda_rules *r, int consumer, int producer, int axes, bool *reads);

/* The only map that reads the stage, at its own points, and is not done; -1: there is none. */
int cuda_reader_of(cuda_rules *r, int stage);
/* ---- the model (rules_model.c) */

/* The contiguous accesses along an axis found so far: bytes of the widest element, and how many neighbours stay aligned. */
typedef struct cuda_vector {
    int64_t widest, most;
} cuda_vector;
#define CUDA_NO_VECTOR ((cuda_vector){.most = 16})

void cuda_note_vector(cuda_rules *r, const tir_access *access, int axis,
                      cuda_vector *vector);                        /* counts only accesses along the axis */
int64_t cuda_vector_of(const cuda_vector *vector, int64_t extent); /* contiguous elements per thread */
/* Chooses threads, block_rows and held of a group; false: several phases are better. */
bool cuda_model_rows(const tir_machine *machine, cuda_row_group *group);
/* Number of chunks for rows of so many points, `length` of them along the axis of threads. */
int64_t cuda_model_chunks(const tir_machine *machine, int64_t rows, int64_t points, int64_t length);
/* Points of time per piece of a cumulative fold; its length or more: it is not cut. along: contiguous in memory, a warp computes them. */
int64_t cuda_model_piece(const tir_machine *machine, int64_t points, int64_t length, bool along);
bool cuda_model_scatter(const tir_machine *machine,
                        cuda_scatter *scatter); /* chooses lanes and tile; false: it does not pay */
void cuda_model_columns(const tir_machine *machine, cuda_column_group *group); /* chooses lanes, groups, chunks */

/* Each root is prepared, possibly by rewrites, before any loop is scheduled. True: the root is of this kind, and it and all stages inside
 * are done. */
bool cuda_prepare_rows(cuda_rules *r, const char *root);
bool cuda_prepare_reduction(cuda_rules *r, const char *root);
bool cuda_prepare_columns(cuda_rules *r, const char *root, bool part); /* part: of results, numbered by its last axis */
void cuda_schedule_rows(cuda_rules *r, const cuda_row_group *group);
/* The matrix-unit part of the functions below (rules_matrix.c). */
bool cuda_matrix_fits(cuda_rules *r, int stage, cuda_tile *tile);
void cuda_matrix_steps(cuda_tile *tile);
double cuda_matrix_size(cuda_rules *r, cuda_tile *tile); /* the cost; -1: none fits */
void cuda_matrix_lay_out(cuda_rules *r, cuda_tile *tile);
void cuda_schedule_matrix(cuda_rules *r, const cuda_tile *tile);
int cuda_contiguous_axis(cuda_rules *r, int stage,
                         int64_t *bytes); /* along which a copy's source is contiguous in memory; -1: none */
/* Cycles until all blocks are done, with `together` at once on a multiprocessor, for so many rounds of copies and `step` cycles of work. */
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
void cuda_prepare_points(cuda_rules *r, const char *root); /* accepts every root */
void cuda_schedule_points(cuda_rules *r, int root);
/* The reduction's axis along which threads access contiguous memory; -1: none. */
int cuda_lane_axis(cuda_rules *r, int stage);

#endif
