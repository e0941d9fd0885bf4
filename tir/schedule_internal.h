/* What schedule.c (directives), schedule_rewrite.c, lower.c and version.c share: the state that a schedule's lines change. Not included
 * outside of these files. */
#ifndef TIR_SCHEDULE_INTERNAL_H
#define TIR_SCHEDULE_INTERNAL_H

#include "tir/schedule.h"
#include "tir/unit.h"

typedef enum tir_split_mode { TIR_TAIL_MASK, TIR_TAIL_OVERLAP, TIR_TAIL_PEEL, TIR_TAIL_BALANCED } tir_split_mode;

/* A node of a stage's axis trees: an axis of the stage, or a part of a split. Leaves are loops. */
typedef struct tir_axis_node {
    const char *name;
    /* the node it is a part of; -1: an axis */
    int parent;
    /* parts when split; -1: a leaf */
    int outer, inner;
    /* the node that this one and a neighbour were fused into; -1: none. Then no loop of its own */
    int fused;
    /* a fused node: the nodes it stands for; -1: none */
    int slow, fast;
    /* which axis of the stage it belongs to */
    int axis;
    bool reduce;
    /* when split */
    tir_split_mode mode;
    int64_t factor;
    /* a mask split whose tiles are of `factor` points even where the whole has fewer */
    bool full;
    /* a mask split whose whole tiles are walked apart from the one that is not */
    bool apart;
    /* leaves: a collective statement runs through it */
    bool unit;
    /* leaves */
    tir_loop_kind kind;
    /* leaves: threads that run each iteration of a thread loop; 0: one */
    int alike;
    /* leaves */
    bool parallel, clip;
    /* leaves: of a pipeline; 0: none */
    int stages, groups;
    /* while lowering: the loop variable of a leaf whose loop is open; 0 outside */
    tir_expr value;
} tir_axis_node;

typedef struct tir_prefetch {
    uint32_t tensor;
    /* loop of the stage in which it happens */
    int node;
    /* the loop whose later iteration is fetched for */
    int moved_stage, moved;
    /* iterations of that loop */
    int64_t ahead;
    int level;
    /* iterations of the loops in between fetch a part each, not all of it */
    bool shared;
} tir_prefetch;

typedef struct tir_stage_plan {
    lib_vec(tir_axis_node) nodes;
    /* node of each axis */
    int root[TIR_MAX_AXES];
    /* leaves, outermost first */
    lib_vec(int) order;
    /* -1: a root */
    int at_stage;
    /* leaf of at_stage */
    int at_node;
    /* axis -> axis of at_stage it corresponds to (`by`); -1: from the loads */
    int by[TIR_MAX_AXES];
    /* computes the updates of unit_node's iterations at once; NULL: none */
    const tir_unit *unit;
    int unit_node;
    /* of a collective unit: the nodes that its variables are */
    int unit_root[TIR_COLLECTIVE_VARS];
    /* While lowering, of an operand of a collective unit: elements at `zero_end` and beyond along an axis are zero; 0: no matter. */
    int zero_axis;
    tir_expr zero_end;
    /* tir_is_follower */
    bool follower;
    bool has_scope;
    /* of the scratch of an attached stage */
    tir_scope scope;
    /* no scratch: in the memory of the output that its root computes */
    bool in_output;
    /* no scratch: a step in the place of the state whose next value it is */
    bool in_state;
    /* of a fold: threads that the state's own axes are distributed over; 0: the thread that runs the fold */
    int own_threads;
    /* of shared scratch: bytes between rows, bytes of swizzled rows; 0: none */
    int pad, swizzle;
    /* of the pipeline that it is a copy of, from 1; 0: none */
    int group;
    bool non_temporal;
    lib_vec(tir_prefetch) prefetches;
    /* while lowering */
    /* start of each axis' range */
    tir_expr low[TIR_MAX_AXES];
    /* its extent; may be an expression of enclosing loops */
    tir_expr extent[TIR_MAX_AXES];
    /* scratch is allocated: loads go to it, relative to scratch_low */
    bool open;
    /* in memory without the zeros behind the ends of its layout */
    bool unpadded;
    uint32_t scratch[TIR_MAX_STATE];
    /* of the pipeline that is open: so many copies of the scratch; 0: none */
    int stages;
    /* they are there already */
    bool placed;
    /* which of them is meant */
    tir_expr slot;
    tir_expr scratch_low[DLC_MAX_RANK], scratch_extent[DLC_MAX_RANK];
    /* of the region computation that filled low and extent */
    uint32_t stamp;
} tir_stage_plan;

typedef struct tir_schedule_state {
    /* after the rewrite section */
    tir_region *region;
    /* per stage */
    tir_stage_plan *plan;
    /* the directive at work, for messages */
    const char *line;
    /* of its line, in the host's text; 0: none */
    int number;
    lib_arena *arena;
    uint32_t stamp;
    /* While lowering: the variable that holds an index expression over open loops that loads, named where the next statement goes; 0: it
     * cannot be computed there. NULL: nothing is being lowered. */
    tir_expr (*scalar)(void *lowering, int stage, tir_expr value);
    void *lowering;
} tir_schedule_state;

_Noreturn void tir_schedule_raise(const tir_schedule_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

int tir_find_stage(const tir_schedule_state *state, const char *name);       /* raises */
uint32_t tir_find_tensor(const tir_schedule_state *state, const char *name); /* raises */

/* schedule_rewrite.c: one line of the rewrite section; `lexer` stands behind the directive's name. */
void tir_apply_rewrite(tir_schedule_state *state, tir_directive_kind kind, lib_lexer *lexer);

/* What rewrites are made of (schedule_rewrite.c). Stage numbers and pointers move when one is inserted. */
tir_stage *tir_insert_stage(tir_schedule_state *state, int at);
void tir_permute_stages(tir_schedule_state *state, const int *position);  /* stage i comes to position[i] */
const char *tir_unique_name(tir_schedule_state *state, const char *name); /* raises when taken */
/* Of what the schedule does not name: with a number behind when taken. */
const char *tir_derived_name(tir_schedule_state *state, const char *base, const char *suffix);
tir_axis tir_new_axis(tir_schedule_state *state, const char *name, tir_axis_role role, tir_expr extent);
/* Another variable for the same axis, with an extent of its own. */
tir_axis tir_axis_like(tir_schedule_state *state, const tir_axis *axis, tir_expr extent);
void tir_new_tensors(tir_schedule_state *state, int stage, const tir_stage *like,
                     const char *name); /* extents: the space axes' */
void tir_rewrite_stage(tir_pool *pool, tir_stage *stage, tir_visit visit,
                       void *user); /* all of its expressions but merges */
void tir_take_output(tir_region *region, uint32_t from, uint32_t to);

/* schedule_fold.c: block and hoist, and from there online, which makes folds */
void tir_apply_fold_rewrite(tir_schedule_state *state, tir_directive_kind kind, lib_lexer *lexer);

/* schedule_where.c */
void tir_apply_where(tir_schedule_state *state, lib_lexer *lexer);
/* schedule_sort.c */
void tir_apply_rank(tir_schedule_state *state, lib_lexer *lexer);
void tir_apply_merge(tir_schedule_state *state, lib_lexer *lexer);
/* schedule_operand.c */
void tir_apply_operand(tir_schedule_state *state, lib_lexer *lexer);
/* schedule_seed.c */
void tir_apply_seed(tir_schedule_state *state, lib_lexer *lexer);
/* schedule_collapse.c */
void tir_apply_collapse(tir_schedule_state *state);

/* schedule_online.c */
void tir_apply_online(tir_schedule_state *state, lib_lexer *lexer);

/* schedule.c: the whole program; region is changed by the rewrite section. Fills state->plan. */
void tir_schedule_apply(tir_schedule_state *state, lib_arena *arena, tir_region *region, const tir_schedule *schedule,
                        const tir_lower_options *options, bool rewrite_only);

/* lower_pipeline.c: `pipeline` behind the name of its loop, and what only the whole plan shows */
void tir_apply_pipeline(tir_schedule_state *state, int node, int stage, lib_lexer *lexer);
void tir_check_pipelines(tir_schedule_state *state, int stage);

/* version.c: partitions loops into runs in which unrolled and vectorised extents, and clipped conditions, are constant. Works on
 * the statements of one phase before tasks are made of its parallel loops. */
tir_stmt *tir_version(tir_kernel *kernel, tir_stmt *body);

/* ranges.c: axis ranges, split arithmetic and regions over the state's open loops. */
typedef struct tir_span {
    tir_expr low, extent;
} tir_span;

tir_expr tir_node_extent(tir_schedule_state *state, int stage, int node); /* trips of a leaf, size of an inner part */
tir_expr tir_node_value(tir_schedule_state *state, int stage, int node);  /* 0 unless all its leaves are open */
tir_expr tir_axis_value(tir_schedule_state *state, int stage, int axis);  /* low + value; 0 unless fixed */
tir_span tir_axis_view(tir_schedule_state *state, int stage, int axis);   /* as seen from the open loops */
tir_expr tir_axis_span(tir_schedule_state *state, int stage, int axis);   /* extent incl. the overrun of mask splits */
/* Region of `stage` as seen from the loop it is attached at, into its plan's low and extent. Raises if some consumer lies outside. */
void tir_stage_region(tir_schedule_state *state, int stage);
/* A step of a fold whose values no other step and not the fold itself uses. */
bool tir_is_follower(tir_schedule_state *state, int stage);
/* Do the regions of an attached stage, over all iterations of the loops it is attached in, cover its domain (padded: with the zeros
 * of its layout behind) with each point just once? NULL: yes; else what is wrong. Called where those loops are open and the region
 * is computed. */
const char *tir_region_flaw(tir_schedule_state *state, int stage, bool padded);
bool tir_tiles_overlap(tir_schedule_state *state, int owner,
                       int axis); /* do open tiles of the axis reach into others' points? */
/* Bounds of a clipped reduction axis solved from the stage's predicate with everything that is not open eliminated. Terms that the
 * bounds decide are appended to `decided` (may be NULL) as lowered conditions. */
tir_span tir_clip_range(tir_schedule_state *state, int stage, int axis, tir_expr *decided, int *decided_count);
typedef void (*tir_load_visit)(void *user, tir_expr load);
void tir_stage_loads(tir_schedule_state *state, int stage, tir_load_visit visit, void *user);
bool tir_stage_reads(tir_schedule_state *state, int stage, uint32_t tensor);

#endif
