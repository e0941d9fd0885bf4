/* Regions and stages: *what* a kernel computes. A region is a list of tensors and of stages, each stage a pure expression
 * over its domain, independent of loops, threads and memory. Loads in stage expressions name tensors by id.
 *
 * Kinds of stage
 *   map      out[axes] = value
 *   reduce   out[axes] = final state: state = identity; for the reduction axes, ascending, last axis fastest, if
 *            `predicate` holds: state = update(state = ACC nodes, loads). Several state components at once are allowed
 *            (arg-max); each is a tensor. `merge` combines two partial states (ACC, OTHER) for rfactor. `exact`: any order
 *            and grouping gives equal bits.
 *   scatter  out[domain] = initial; then for the update axes (the reduction axes, ascending):
 *            out[index] = update(ACC = out[index]), if `predicate` holds and the index is inside the domain. A space
 *            axis whose index expression is just its own axis is parallel; the variables of other space axes must not be used by
 *            index, update or predicate.
 *   fold     sequential over one axis t with carried state: state = initial; for t ascending: step stages run (they are
 *            stages of the region with `fold` set, may use t, and read the state tensors' old values); then every state
 *            component takes its `next`. Space axes of the fold are its free axes, leading in every state. Consumers read
 *            the state tensors' last values; the values at all t are the step stages' own tensors, which have t as an axis.
 *            A fold's axes: space = free axes, then one reduction axis t. A state tensor may have further dimensions of its
 *            own after the free ones: the last indices of the load `next` (written as 0) stand for them.
 *   sort     along the last space axis, t: out[free, t] = value at i, where i is the point of the reduction axis whose key is the t-th in
 *            ascending order; stable. The key (in `initial`) is an i32 or i64 whose low `bits` bits are interpreted
 *            as an unsigned number; its other bits are equal in all keys. Key and value depend on the free axes and i; the extent of i is
 *            at least that of t. */
#ifndef TIR_REGION_H
#define TIR_REGION_H

#include "tir/expr.h"
#include "tir/layout.h"

typedef enum tir_stage_kind { TIR_MAP, TIR_REDUCE, TIR_SCATTER, TIR_FOLD, TIR_SORT } tir_stage_kind;

#define TIR_MAX_AXES 24
#define TIR_MAX_STATE 4

/* The purpose for which a rewrite made an axis. Schedule rules depend on this, never on names. */
typedef enum tir_axis_role {
    TIR_AXIS_PLAIN, /* of the computation itself */
    TIR_AXIS_LANE, /* rfactor .. lanes: which of the partial results, adjacent in memory; scan: the position within a block */
    TIR_AXIS_STEP,   /* rfactor .. lanes: the remaining reduction */
    TIR_AXIS_CHUNK,  /* rfactor .. chunks: which of the partial results */
    TIR_AXIS_WITHIN, /* rfactor .. chunks: the remaining reduction */
    TIR_AXIS_BLOCK   /* scan: the block of points */
} tir_axis_role;

typedef struct tir_axis {
    const char *name;
    /* TIR_VAR_AXIS, range 0 .. extent-1 */
    tir_expr var;
    /* index expression over parameters */
    tir_expr extent;
    /* Axes that rewrites derive from one axis (of an operand's copy, of partial results) have the id and the role in common. */
    int32_t id;
    tir_axis_role role;
} tir_axis;

typedef struct tir_tensor {
    const char *name;
    dlc_dtype dtype;
    int rank;
    tir_expr extent[DLC_MAX_RANK];
    /* of its buffer, if it gets one */
    tir_layout layout;
    /* inputs only: element strides given by the caller instead of compact */
    bool has_strides;
    int64_t stride[DLC_MAX_RANK];
    /* producing stage; -1: region input */
    int32_t stage;
    /* which state or value of the stage */
    int32_t component;
    /* position among the kernel's arguments (inputs first, then outputs); -1: internal */
    int32_t argument;
    bool output;
    /* inputs: the same bytes in every run (weights): may be packed into another layout */
    bool constant;
    /* arguments: bytes, less than an element's for constants that may lie anywhere; a packed copy is aligned to its elements */
    int32_t alignment;
    /* inputs: elements at positions where the condition does not hold are 0 in every run, which schedules may use (`skip`); over
     * `position`, a variable for each dimension. 0: nothing is known */
    tir_expr nonzero;
    tir_expr position[DLC_MAX_RANK];
} tir_tensor;

typedef struct tir_stage {
    const char *name;
    tir_stage_kind kind;
    bool exact;
    /* inlined away by a rewrite; skip */
    bool removed;
    /* scatter: the output's buffer already holds the initial values; see tir_region_updated_input */
    bool in_place;
    /* number of axes: axis[0..space-1], then axis[space..space+reduce-1] */
    int space, reduce;
    tir_axis axis[TIR_MAX_AXES];
    /* values or state components, each with a tensor */
    int count;
    uint32_t tensor[TIR_MAX_STATE];
    /* map: the value; reduce, scatter: the update; fold: next[i] as a load of a step tensor */
    tir_expr value[TIR_MAX_STATE];
    /* reduce with a merge: its identity, a constant; other reduce, scatter, fold: initial value, over the space axes; sort: the key */
    tir_expr initial[TIR_MAX_STATE];
    /* reduce: over ACC and OTHER; 0: cannot be split */
    tir_expr merge[TIR_MAX_STATE];
    /* bool over the axes, 0: true. reduce, scatter: points where it is false are left out. fold: where it is false, the maker of the
     * fold promises that the steps leave the state unchanged, so that they may be skipped */
    tir_expr predicate;
    /* scatter: one per dimension of the output */
    tir_expr index[DLC_MAX_RANK];
    /* sort: significant bits of the key */
    int32_t bits;
    /* step stages: the fold they belong to; else -1 */
    int32_t fold;
} tir_stage;

typedef struct tir_region {
    const char *name;
    lib_arena *arena;
    tir_pool *pool;
    lib_vec(tir_tensor) tensors;
    /* producers before consumers; a fold after its step stages' producers, before its steps */
    lib_vec(tir_stage) stages;
    /* TIR_VAR_PARAM variables: varying dimensions and run-time scalars, kernel order */
    lib_vec(tir_expr) params;
    /* arguments: inputs 0..inputs-1, outputs after */
    int inputs, outputs;
    /* intermediate roundings may be dropped, except those of explicit casts */
    bool excess_precision;
    /* axis ids used so far */
    int32_t axis_ids;
} tir_region;

/* ---- building (region.c) */
tir_region *tir_region_new(lib_arena *arena, tir_pool *pool, const char *name);
/* Names are made unique (<name>1, <name>2, ...). */
uint32_t tir_region_input(tir_region *region, const char *name, dlc_dtype dtype, int rank, const tir_expr *extent);
/* Gives an input variables for its dimensions (tir_tensor.position), called names[0 ..], in which `nonzero` can be written. */
void tir_region_positions(tir_region *region, uint32_t input, const char *const *names);
/* The condition `nonzero` of an input at the position index[0 ..]; 0: nothing is known. */
tir_expr tir_nonzero_at(tir_region *region, uint32_t input, const tir_expr *index);
/* The condition on the axes of a map under which its value may be other than 0, by positions alone (schedule_where.c); 0: not known. */
tir_expr tir_nonzero_condition(tir_region *region, int stage);
/* Adds a stage with `space` axes of the given names and extents (names NULL: i0, i1, ...) and `reduce` further ones, without
 * values. The pointer is valid until the next stage is added. Axis variables: stage->axis[i].var. */
tir_stage *tir_region_stage(tir_region *region, tir_stage_kind kind, const char *name, int space,
                            const char *const *space_names, const tir_expr *space_extents, int reduce,
                            const char *const *reduce_names, const tir_expr *reduce_extents);
/* Adds the tensor of one value or state component. map: value. reduce: update with identity and merge (see kinds above). The
 * tensor's extents are those of the space axes. Returns the tensor id. */
uint32_t tir_stage_value(tir_region *region, tir_stage *stage, tir_expr value, tir_expr initial, tir_expr merge);
/* The usual single-component reductions: sum, prod, max, min, and, or as update(ACC, lift) with identity and merge; sets
 * stage->exact (max, min, and, or; sum and prod of integers). op: TIR_ADD TIR_MUL TIR_MAX TIR_MIN TIR_AND TIR_OR. */
uint32_t tir_stage_reduce(tir_region *region, tir_stage *stage, tir_op op, tir_expr lift);
/* sum of a*b in the dtype of a and b */
uint32_t tir_stage_contract(tir_region *region, tir_stage *stage, tir_expr a, tir_expr b);
void tir_region_output(tir_region *region, uint32_t tensor); /* outputs get their argument positions in this order */
/* Load of a tensor; the caller ensures bounds (or passes a guard). */
tir_expr tir_region_load(tir_region *region, uint32_t tensor, const tir_expr *index);
tir_expr tir_region_load_guarded(tir_region *region, uint32_t tensor, const tir_expr *index, tir_expr guard,
                                 tir_expr other);

/* The operands of nested ANDs; none for 0 and true. At most `limit`: the remainder stays one term. */
int tir_conjuncts(const tir_pool *pool, tir_expr condition, tir_expr *terms, int limit);

tir_region *tir_region_copy(lib_arena *arena, const tir_region *region); /* shares the pool: rewrites work on a copy */

/* ---- names (canonical.c). A region's names (a host's index names, operators, inputs) must not influence its
 * compilation: schedule rules see canonical names, so that equal hashes give equal schedules. */

/* A copy for schedule rules, sharing the pool: inputs are x0, x1, ..., stages and their values s0, s1, ... (further values s0_1, ..),
 * axes of each stage i0, i1, ... and k0, k1, ... of the reduction. Names made by rules or rewrites may begin with one of these followed
 * by _, but never equal one. Axes are renumbered and get the role "plain". Names of the region itself and of its parameters stay. */
tir_region *tir_region_canonical(lib_arena *arena, const tir_region *region);
/* Hash of all names that a schedule can mention. */
lib_hash128 tir_region_hash_names(const tir_region *region);
/* Look-up by name; removed stages do not count. */
int tir_region_find_stage(const tir_region *region, const char *name);       /* -1: none */
uint32_t tir_region_find_tensor(const tir_region *region, const char *name); /* UINT32_MAX: none */
/* base and suffix, with a number appended if a tensor or stage has that name. */
bool tir_region_has_name(const tir_region *region,
                         const char *name); /* of a tensor or a stage, removed ones included */
const char *tir_region_fresh_name(lib_arena *arena, const tir_region *region, const char *base, const char *suffix);

struct tir_kernel;

/* ---- sharing of buffers (in_place.c): input and output are positions among the region's inputs and outputs; both buffers
 * start at one address. */

/* Whether every element of the input is read only to compute the same element of the output. Holds for any
 * schedule without overlapping tiles. With the kernel made of the region, further outputs may be computed from the element, if that
 * comes before. */
bool tir_region_same_point(const tir_region *region, const struct tir_kernel *kernel, int input, int output);
/* Why the values of map `stage` may not be stored in the buffer of the output that map `root` computes, where `root` overwrites each value
 * as it reads it; NULL: they may, if all readers but `root` finish before `root` begins (which the caller checks). */
const char *tir_region_kept_flaw(const tir_region *region, int stage, int root);
/* The input of which the output is an updated copy (a scatter) and that nothing else reads: in one buffer, nothing needs to be copied.
 * -1: none. */
int tir_region_updated_input(const tir_region *region, int output);
void tir_region_update_in_place(tir_region *region, int output); /* marks that both share their buffer */

/* ---- work (work.c) at the given parameters' values. Operations: arithmetic on elements; a multiply-add counts two, comparisons, logic
 * on booleans, selects and casts zero, points excluded by a predicate included. Bytes: of inputs and outputs, each element once; of tensors that are
 * read or updated at data-dependent indices, each access once. */
typedef struct tir_work tir_work;
/* What does not depend on parameters: operations and loads of each stage's points. Owned by the arena. */
const tir_work *tir_work_of(lib_arena *arena, const tir_region *region);
void tir_region_work(lib_arena *arena, const tir_region *region, const tir_work *work, const int64_t *params,
                     double *operations, double *bytes); /* arena: for the working memory */

/* ---- text (region_text.c): prints and parses back:
 *   region r params(n: 1..64)
 *   input  x f32[45, 9]
 *   reduce C f32 (i: 45, j: 20 | k: 9) init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) merge acc(0):f32 + other(0):f32
 *   map    D f32 (i: 45, j: 20) = tanh(C[i, j])
 *   output D */
void tir_region_print(lib_text *text, const tir_region *region);
tir_region *tir_region_parse(lib_arena *arena, tir_pool *pool, lib_lexer *lexer);

/* ---- verifier (region_verify.c): numbered invariants; raises DLC_INTERNAL. */
void tir_region_verify(lib_scope *scope, tir_region *region);

/* Permitted differences in rounding: multiply-adds may be fused, values of narrow floats may stay unrounded within an expression. */
typedef struct tir_rounding {
    bool has_fma, excess;
} tir_rounding;

/* ---- evaluation by definition (evaluate.c), sharing no code with lowering: the value of one tensor at chosen points, by
 * memoised recursion through the stages; reductions in ascending order. Strides and layouts of inputs
 * are honoured: inputs[i] is element 0 of input i in its physical layout. result[p] holds bits. */
void tir_region_evaluate(lib_arena *scratch, tir_region *region, void *const *inputs, const int64_t *params,
                         uint32_t tensor, int64_t points, const int64_t *point /* [points][rank] */,
                         tir_rounding rounding, uint64_t *result);

/* Hash of the structure without names; equal computations give equal hashes. */
lib_hash128 tir_region_hash(const tir_region *region);

#endif
