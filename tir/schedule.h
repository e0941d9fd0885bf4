/* Schedules: *how* a region runs, as a program of directives. A schedule is text, one directive a line,
 * in two sections; target rules and hosts write that text, and the parsed form prints it back.
 *
 *   rewrite:
 *     inline  relu1                        the map stage disappears into its consumers
 *     collapse                             neighbouring axes across which all accesses are contiguous become one axis, in all stages
 *     expand  C.i 68 -> io ii              axis i becomes two, io and ii of 68 points, in all stages that have it
 *     layout  w (j/48, k, j%48)            of a tensor's buffer
 *     copy    x -> xs                      the consumers read a copy instead, a stage of its own
 *             x -> xs as f32               of a narrower float: instead of their casts to f32
 *     operand C.i -> xs [deviates zero*nonfinite]
 *                                          the factor of C's products that uses axis i becomes a map; deviating, C's predicate moves
 *                                          into it
 *     rfactor sum1.j 8 chunks|lanes -> sum1_p jr jt
 *             sum1.j 8 chunks of 64 -> ..  each of a multiple of 64 points, but for the last ones
 *     tree    sum1.jr                      halves an rfactored axis repeatedly: pairwise, in fixed order
 *     where   max1                         turns select(cond(axes), v, identity) under the reduction into the predicate cond,
 *                                          which may compare axes with loaded integers
 *     rank    S -> K R                     a sort by counting: the position of i is R[i], the number of keys K that precede K[i]
 *     merge   S -> M                       a merge sort: M_p holds sorted runs of 2^p elements, each merged from two runs of
 *                                          M_(p-1); M_p_first[i]: how many elements of the first of these precede position i
 *     block   cumsum1.t 4096 -> total prefix b i
 *                                          an associative fold over blocks b of i: the blocks' totals, the state before each, the fold
 *                                          itself with b as a free axis
 *     scan    cumsum1.t 16 -> L b i        the same blocks, sequentially; each by log2(16) levels of pairwise sums L_1, L_2, ..
 *     online  max1.k 64 -> F kb            max1 and the later reductions over k that depend on it become one fold over blocks of k,
 *                                          with steps <member>_b (of the block) and <member>_n (next), and <map>_b of maps between them
 *                                          that several points read; a divisor is applied after the fold
 *     sweep   dq.j 32 -> F jb              the reduction dq over j, its producers that have an axis j, and other stages that read these
 *                                          producers at their own axis j, become one fold F over blocks of j, with steps <stage>_b (of one
 *                                          block) and dq_n (next); the producers' values are kept for one block only
 *     seed    o_b                          the map that alone reads sum o_b, as x + o_b, becomes that sum, beginning with x
 *     hoist   xw F                         a step that does not depend on the state moves out of fold F
 *   loops:
 *     split   D.i 13 -> io ii mask|overlap|peel|balanced
 *                                          mask full: tiles of 13 points, even if the axis is shorter; peel, of an axis with a
 *                                          varying extent that has a vec or unroll loop inside: the last tile is masked, in a loop
 *                                          of its own
 *     fuse    D.i D.j -> ij                one loop over two neighbouring axes; in an attached stage it covers the whole axes, and can be
 *                                          split only in tiles that do not overrun (peel)
 *     order   D: io jo ii ji
 *     at      C D.jo [by i=i ...]
 *     beside  s_p D.row by block=chunk row=row
 *                                          the reduction s_p, which the root D does not read, is updated in the iterations of D's loop row, after
 *                                          D's own inner loops: at the points of D's loops (or of axes that are split into these) along the
 *                                          axes that `by` names, at all points along others. It may read D
 *     store   C reg|stack|local|shared|workspace
 *     store   C output                     no scratch: stored in the output buffer of its root, which overwrites it point by point
 *     store   o_n state                    no scratch: the next value of a fold's state overwrites the state
 *     store   xs shared pad 16             each row (innermost dimension) is padded by this many bytes
 *     store   xs shared swizzle 128        16-byte chunks within rows of 32, 64 or 128 bytes are permuted (tir_swizzled)
 *     pipeline C.ko stages=3 [groups=xs|ws]
 *                                          copies to shared memory attached at this loop run asynchronously while earlier iterations
 *                                          compute; a group is waited for before its first reader
 *     vec     D.ji C.j
 *     thread  D.ji C.j                     the iterations are threads of a block; see tir/loop.h
 *     thread  D.il alike 4                 each iteration is run by this many neighbouring threads, which hold equal values in registers
 *     thread  F state 256                  the state's own axes of fold F are distributed over this many threads of a block
 *     unroll  D.ii
 *     par     D.jo D.io
 *     partial C.k 256                      each 256 iterations of k make a sum of their own, in the storage of C, which is then added to the
 *                                          result, in memory: errors grow with 256 + n/256 instead of with n
 *     clip    O.kh                         a reduction axis ends where the predicate becomes false; of a map: split where guards change
 *     skip    O.kh                         a reduction's loop begins with the first and ends with the last iteration in which a point of the
 *                                          tile adds something to a result that is used; a whole axis, or the tiles of a mask split
 *     prefetch w at C.k k+1 L2             prefetches what w's reader loads at k+1; its address may depend on loaded values
 *     prefetch w at C.k D.jo+1 L2 shared   the prefetches of iteration jo+1 are spread over the iterations of the loops inside jo
 *     prefetch w at C.k k+9 L2 carry       iterations beyond the last one are the first ones of the next iteration of the loop around k
 *     prefetch y at C.k D.jo tile          the lines that iteration jo stores of y, or loads in other stages than C, are fetched row by
 *                                          row in the iterations of k and of the loops between jo and k
 *     nt      D
 *     unit    C.ki NAME deviates assoc,ftz the iterations of loop ki are one operator of the target's units (tir/unit.h)
 *     unit    C.il,ih,jl,je,kk NAME deviates assoc
 *                                          these loops, by axes in the order of the unit's variables, are a collective statement
 *
 * An illegal directive raises DLC_INVALID_ARGUMENT naming directive, stage and reason, a malformed one
 * DLC_PARSE_ERROR; neither makes wrong code. */
#ifndef TIR_SCHEDULE_H
#define TIR_SCHEDULE_H

#include "tir/loop.h"
#include "tir/machine.h"
#include "tir/region.h"

typedef enum tir_directive_kind {
    TIR_D_INLINE,
    TIR_D_COLLAPSE,
    TIR_D_EXPAND,
    TIR_D_LAYOUT,
    TIR_D_COPY,
    TIR_D_OPERAND,
    TIR_D_RFACTOR,
    TIR_D_TREE,
    TIR_D_WHERE,
    TIR_D_RANK,
    TIR_D_MERGE,
    TIR_D_BLOCK,
    TIR_D_SCAN,
    TIR_D_ONLINE,
    TIR_D_SWEEP,
    TIR_D_HOIST,
    TIR_D_SEED,
    TIR_D_SPLIT,
    TIR_D_FUSE,
    TIR_D_ORDER,
    TIR_D_AT,
    TIR_D_STORE,
    TIR_D_VEC,
    TIR_D_THREAD,
    TIR_D_UNROLL,
    TIR_D_PAR,
    TIR_D_CLIP,
    TIR_D_PARTIAL,
    TIR_D_SKIP,
    TIR_D_PREFETCH,
    TIR_D_NT,
    TIR_D_UNIT,
    TIR_D_PIPELINE,
    TIR_D_BESIDE
} tir_directive_kind;

typedef struct tir_choices tir_choices; /* tir/choice.h */

typedef struct tir_schedule {
    lib_arena *arena;
    /* the text so far */
    lib_text text;
    /* line number of its first line in a host's text, for messages; 0: not from a host */
    int first_line;
    /* the decisions of the rules that write the text; NULL: they make all of them, and none is recorded */
    tir_choices *choices;
} tir_schedule;

void tir_schedule_init(tir_schedule *schedule, lib_arena *arena);
/* Appends one directive line; rewrite lines must come before loop lines (section headers are written automatically). */
void tir_schedule_add(tir_schedule *schedule, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Called after each line with the printed state (dlc-opt --steps). */
typedef void (*tir_step_callback)(void *user, const char *line, const char *state);

typedef struct tir_lower_options {
    /* muladd, register count, units; NULL: no units */
    const tir_machine *machine;
    /* the region, and the resulting kernel */
    bool verify;
    /* the region after each line of the rewrite section, too */
    bool verify_steps;
    /* set to true if `verify` refuses the kernel because its reg buffers exceed the machine's registers; may be NULL */
    bool *overfull;
    /* may be NULL */
    tir_step_callback step;
    void *step_user;
} tir_lower_options;

/* Applies the rewrite section: region is changed in place (pass a copy). Rules call it to get the loops that they schedule. */
void tir_schedule_rewrite(tir_region *region, const tir_schedule *schedule, const tir_lower_options *options);

/* The same on a copy; NULL: the schedule is illegal. */
tir_region *tir_schedule_try(const tir_region *region, const tir_schedule *schedule);

/* The names of a tensor's dimensions in `layout` and `copy`, names[rank]: the axes of its stage; for an input, those by which its first
 * reader indexes it; else d0, d1, ... All differ. */
void tir_dimension_names(lib_arena *arena, tir_region *region, uint32_t tensor, const char **names);

/* Appends to `out` the schedule that rules wrote for tir_region_canonical(region), with the names of the region: the form that people read
 * and may pass back. New names get numbers if the region has them already. */
void tir_schedule_show(tir_schedule *out, const tir_schedule *schedule, const tir_region *region);

/* The predicate that `where` would give a reduction: the condition under which points are not neutral; 0: none. */
tir_expr tir_where_condition(tir_region *region, int stage);
/* The condition on positions that `skip` would use: at other points a reduction adds nothing, or its result is not used; 0: none. */
tir_expr tir_skip_condition(tir_region *region, int stage);
/* The condition, or its complement, with comparisons of a position and a loaded integer rewritten as comparisons of indices where possible:
 * equal for all values, also if sums wrap (condition.c). */
tir_expr tir_index_condition(tir_pool *pool, tir_expr condition, bool negate);
/* The only step of a cumulative fold, one that `block` and `scan` may split: it combines the state with another value by an associative
 * operator. *time: the step's axis for time. -1: the stage is no such fold. */
int tir_cumulative_step(tir_region *region, int fold, int *time);

/* region + schedule -> loop IR. Pure and deterministic; region itself is not changed. schedule NULL: the empty schedule (each
 * stage a root with serial loops in axis order). Runs in the scope of `arena`. */
tir_kernel *tir_lower(lib_arena *arena, const tir_region *region, const tir_schedule *schedule,
                      const tir_lower_options *options);

#endif
