/* The state that a schedule's lines change, shared by schedule.c (directives), schedule_rewrite.c, lower.c and version.c. Not included
 * elsewhere. */
#ifndef TIR_SCHEDULE_INTERNAL_H
#define TIR_SCHEDULE_INTERNAL_H

#include "tir/readers.h"
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
    /* the node into which this one and a neighbour were fused; -1: none. A fused part has no loop of its own */
    int fused;
    /* a fused node: its two parts; -1: none */
    int slow, fast;
    /* the axis of the stage to which it belongs */
    int axis;
    bool reduce;
    /* when split */
    tir_split_mode mode;
    int64_t factor;
    /* a mask split whose tiles have `factor` points even if the axis has fewer */
    bool full;
    /* a mask split whose partial tile gets a loop of its own */
    bool separate_tail;
    /* leaves: a variable of a collective statement */
    bool unit;
    /* leaves */
    tir_loop_kind kind;
    /* leaves: threads that run each iteration of a thread loop; 0: one */
    int alike;
    /* leaves */
    bool parallel, clip;
    /* leaves: iterations are left out in which no point counts (tir_stage_plan.counts) */
    bool skip;
    /* leaves: iterations of a reduction that make a partial result of their own; 0: all make one */
    int64_t partial;
    /* leaves: number of stages and of groups of the pipeline of this loop; 0: it has none */
    int stages, groups;
    /* while lowering: the loop variable of a leaf whose loop is open; else 0 */
    tir_expr value;
} tir_axis_node;

typedef struct tir_prefetch {
    uint32_t tensor;
    /* the loop of the stage that contains the prefetch */
    int node;
    /* the loop for whose later iteration it fetches */
    int moved_stage, moved;
    /* iterations of that loop */
    int64_t ahead;
    int level;
    /* each iteration of the loops between `moved` and `node` fetches a part */
    bool shared;
    /* iterations beyond the last one of `moved` are the first ones in the next iteration of the loop around it */
    bool carry;
    /* fetches what the current iteration of the loop `moved` loads or stores outside of this stage */
    bool tile;
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
    /* axis -> the axis of at_stage it corresponds to (`by`; with `beside`, a node); -1: derived from the loads (with `beside`: whole) */
    int by[TIR_MAX_AXES];
    /* a reduction that is updated in the loops of at_stage, which does not read it */
    bool beside;
    /* the instruction that executes unit_node's iterations; NULL: none */
    const tir_unit *unit;
    int unit_node;
    /* collective unit: the node of each variable */
    int unit_root[TIR_UNIT_VARS];
    /* While lowering, operand of a collective unit: elements from `zero_end` on along an axis are zero; 0: not required. */
    int zero_axis;
    tir_expr zero_end;
    /* `skip`: a reduction's points that count; 0: all */
    tir_expr counts;
    /* the result of tir_is_follower */
    bool follower;
    bool has_scope;
    /* of the scratch of an attached stage */
    tir_scope scope;
    /* no scratch: stored in the memory of its root's output */
    bool in_output;
    /* no scratch: a step stored in the state whose next value it is */
    bool in_state;
    /* fold: threads over which the state's own axes are distributed; 0: the thread that runs the fold */
    int own_threads;
    /* shared scratch: padding bytes between rows, bytes of swizzled rows; 0: none */
    int pad, swizzle;
    /* the pipeline group that it belongs to, from 1; 0: none */
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
    /* stored in memory without its layout's zero padding */
    bool unpadded;
    uint32_t scratch[TIR_MAX_STATE];
    /* of a reduction with `partial`: the buffers of partial results, which take the place of `scratch` while their iterations are open */
    uint32_t part[TIR_MAX_STATE];
    /* open pipeline: number of copies of the scratch; 0: none */
    int stages;
    /* the copies are already allocated */
    bool placed;
    /* the copy in use */
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
    /* the current directive, for messages */
    const char *line;
    /* its line number in the host's text; 0: none */
    int number;
    /* whose units the schedule may name; NULL: none */
    const tir_machine *machine;
    lib_arena *arena;
    uint32_t stamp;
    /* While lowering: returns a variable that holds `value`, an index expression with loads over axes that are fixed by open loops; binds
     * it by a let at the cursor if there is none yet. 0: the value cannot be computed there. NULL: not lowering. */
    tir_expr (*scalar)(void *lowering, int stage, tir_expr value);
    void *lowering;
} tir_schedule_state;

_Noreturn void tir_schedule_raise(const tir_schedule_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

int tir_find_stage(const tir_schedule_state *state, const char *name);           /* raises */
int tir_find_node(const tir_schedule_state *state, int stage, const char *name); /* an axis, or a part of one; raises */
/* Parses S.a as one dotted name; returns the stage S, and in *rest the name a. */
int tir_read_dotted(const tir_schedule_state *state, lib_lexer *lexer, const char **rest);
uint32_t tir_find_tensor(const tir_schedule_state *state, const char *name); /* raises */

/* schedule_rewrite.c: one line of the rewrite section; `lexer` is after the directive's name. */
void tir_apply_rewrite(tir_schedule_state *state, tir_directive_kind kind, lib_lexer *lexer);

/* Helpers of rewrites (schedule_rewrite.c). Inserting a stage changes stage numbers and pointers. */
tir_stage *tir_insert_stage(tir_schedule_state *state, int at);
void tir_permute_stages(tir_schedule_state *state, const int *position); /* stage i moves to position[i] */
/* Moves the stages of the set `later`, and those that need one of them, behind all others, and adds those to the set, by their old numbers. Sets
 * position[s], the new number of stage s. Returns the first one's new number. */
int tir_part_stages(tir_schedule_state *state, bool *later, int *position);
const char *tir_unique_name(tir_schedule_state *state, const char *name); /* raises if taken */
/* A name that the schedule does not give: with a number appended if taken. */
const char *tir_derived_name(tir_schedule_state *state, const char *base, const char *suffix);
tir_axis tir_new_axis(tir_schedule_state *state, const char *name, tir_axis_role role, tir_expr extent);
/* A new variable for the same axis, with an extent of its own. */
tir_axis tir_axis_like(tir_schedule_state *state, const tir_axis *axis, tir_expr extent);
void tir_new_tensors(tir_schedule_state *state, int stage, const tir_stage *like,
                     const char *name); /* extents: the space axes' */
void tir_rewrite_stage(tir_pool *pool, tir_stage *stage, tir_visit visit,
                       void *user); /* rewrites all of its expressions but merges */
void tir_take_output(tir_region *region, uint32_t from, uint32_t to);

/* schedule_fold.c: block and hoist; also used by online, which makes folds */
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

/* schedule_expand.c */
void tir_apply_expand(tir_schedule_state *state, lib_lexer *lexer);

/* schedule_sweep.c */
void tir_apply_sweep(tir_schedule_state *state, lib_lexer *lexer);
/* schedule_online.c */
void tir_apply_online(tir_schedule_state *state, lib_lexer *lexer);

/* schedule.c: the whole program; region is changed by the rewrite section. Fills state->plan. */
void tir_schedule_apply(tir_schedule_state *state, lib_arena *arena, tir_region *region, const tir_schedule *schedule,
                        const tir_lower_options *options, bool rewrite_only);

/* schedule_beside.c: `beside`, its checks that need the whole plan, and those that need extents (made before the stage's first update) */
void tir_apply_beside(tir_schedule_state *state, int stage, int owner, lib_lexer *lexer);
void tir_check_beside(tir_schedule_state *state, int stage);
void tir_check_beside_extents(tir_schedule_state *state, int stage);
/* Number, in the owner's order, of the first loop that moves along a reduction axis of the stage; before it the result begins. */
uint32_t tir_beside_begin(const tir_schedule_state *state, int stage);

/* lower_pipeline.c: `pipeline` after the name of its loop, and the checks that need the whole plan */
void tir_apply_pipeline(tir_schedule_state *state, int node, int stage, lib_lexer *lexer);
void tir_check_pipelines(tir_schedule_state *state, int stage);

/* version.c: splits loops into ranges in which unrolled and vectorised extents, and clipped conditions, are constant. Runs on
 * the statements of one phase before its parallel loops become tasks. */
tir_stmt *tir_version(tir_kernel *kernel, tir_stmt *body);

/* ranges.c: axis ranges, split arithmetic and regions over the state's open loops. */
typedef struct tir_span {
    tir_expr low, extent;
} tir_span;

tir_expr tir_node_extent(tir_schedule_state *state, int stage, int node); /* trips of a leaf, size of an inner part */
tir_expr tir_node_value(tir_schedule_state *state, int stage, int node);  /* 0 unless all its leaves are open */
tir_expr tir_axis_value(tir_schedule_state *state, int stage, int axis);  /* low + value; 0 unless fixed */
tir_span tir_axis_view(tir_schedule_state *state, int stage, int axis);   /* its points in the open loops' iteration */
tir_expr tir_axis_span(tir_schedule_state *state, int stage, int axis);   /* extent incl. the overrun of mask splits */
/* Sets the plan's low and extent to the region of `stage` that its consumers need in one iteration of the loop that it is attached at.
 * Raises if a consumer is outside of that loop. */
void tir_stage_region(tir_schedule_state *state, int stage);
/* Whether it is a follower: a step of a fold whose values neither the fold itself nor a step other than a follower uses. */
bool tir_is_follower(tir_schedule_state *state, int stage);
/* Why the regions of an attached stage, over all iterations of the loops it is attached in, do not cover each point of its domain exactly
 * once (padded: of its domain and its layout's zero padding); NULL: they do. Called while these loops are open, after tir_stage_region. */
const char *tir_region_flaw(tir_schedule_state *state, int stage, bool padded);
bool tir_tiles_overlap(tir_schedule_state *state, int owner, int axis); /* may two iterations see one point? */
/* Bounds of a reduction axis solved from the stage's predicate (`clip`) and, if `skip`, from the points that count, after eliminating
 * everything that is not open. Terms of the predicate that the bounds decide are appended to `decided` (may be NULL) as lowered conditions. */
tir_span tir_clip_range(tir_schedule_state *state, int stage, int axis, bool skip, tir_expr *decided,
                        int *decided_count);

#endif
