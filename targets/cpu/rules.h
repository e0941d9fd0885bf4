/* Internal to the schedule rules of the cpu target (rules*.c). */
#ifndef TARGETS_CPU_RULES_H
#define TARGETS_CPU_RULES_H

#include "tir/access.h"
#include "tir/machine.h"
#include "tir/schedule.h"

/* Stages that run inside the loops of one root. */
typedef struct rules_group {
    /* of the group this stage belongs to; itself when it is a root */
    int root;
    /* the stage in whose loops it runs: the root, or for a contraction the map that reads it */
    int owner;
    /* per space axis: the owner's axis it runs along with, point by point; -1: none */
    int label[TIR_MAX_AXES];
    /* bit a: unlabelled axis a is read completely by every reader, at each point */
    uint32_t whole;
} rules_group;

/* The vector axis that a stage was prepared for: rewrites have laid out its operands for it. */
typedef struct rules_choice {
    const char *stage;
    int axis;
} rules_choice;

/* Two contractions with operations on rows between them, by name: rewrites renumber stages (rules_chain.c). */
typedef struct rules_chain_copy {
    const char *name;
    /* its axis whose points will be contiguous */
    int rows;
    /* it has keys, too */
    bool keys;
} rules_chain_copy;
typedef struct rules_chain {
    /* the second contraction */
    const char *root, *second;
    /* blocks of operands that are copied, transposed */
    lib_vec(rules_chain_copy) copies;
    /* too few rows for vectors along them. The fields marked "few" are set, too */
    bool few;
    /* a row of scores exceeds L2: blocks of keys one after the other; then also the fields of a fold */
    const char *fold;
    /* the first contraction, and the map that reads its sums */
    const char *first, *scores;
    /* axes of the first contraction, and of its parts; rows -1: none. Few */
    int first_rows, first_keys;
    /* axes of the root, and of `scores`: its keys */
    int rows, columns, own;
    /* rows computed together. Few */
    int64_t group;
    /* axes of rows: of a fold and its steps, of `scores` */
    int fold_rows, score_rows;
    /* of the second contraction's steps */
    int sum_columns;
    /* of a fold: keys */
    int64_t block;
} rules_chain;
/* Stages of a reduction in several steps (rules_reduce.c). */
typedef enum rules_role {
    RULES_NO_PART,
    RULES_WHOLE,   /* combines the parts */
    RULES_CHUNK,   /* a root: parts of a long row, by lanes inside */
    RULES_COLUMNS, /* a root: adds up blocks of rows, for many columns at once */
    RULES_ROWS,    /* such a block, in the loops of that root */
    RULES_SCAN,    /* a fold in blocks of one vector */
    RULES_BATCH,   /* a fold of tables, and its steps, in vectors along a free axis (rules_batch.c) */
    RULES_INSIDE,  /* runs in the loops of another stage, which are scheduled with it (rules_operand.c) */
    RULES_LANES,   /* partial sums of products by lanes along a row: they get no tile of their own */
    RULES_CUT, /* a contraction over a block of its reduction, in the loops of the sum over blocks (rules_cache_blocks.c) */
    RULES_CUT_SUMS,
    RULES_TRANSPOSED /* a copy of a contraction's sums, transposed, in its tile (rules_transposed.c) */
} rules_role;
typedef struct rules_part {
    const char *stage;
    rules_role role;
} rules_part;

/* A contraction in tiles of results with vectors of partial sums (rules_lanes.c). */
typedef struct rules_lanes_tile {
    /* the sums; the partial ones */
    const char *name, *part;
    /* axes that the tile repeats, of all stages of the sum; u = -1: v only */
    int u, v;
    /* before the rewrites: the reduction axis that the lanes run along */
    int axis;
    int64_t mr, nr, lanes;
    /* which loop over tiles is the outer one */
    bool u_outside;
    /* L3 streaming cycles of the operands larger than L2, each read once */
    double l3_cycles;
    /* operands to be laid out along the axis; UINT32_MAX: none */
    uint32_t pack[2];
} rules_lanes_tile;

/* How the tiles of a contraction read an operand given at run time that is contiguous along vectors (rules_operand.c). */
typedef enum rules_operand_access {
    RULES_OPERAND_IN_PLACE,
    RULES_OPERAND_PANELS,
    RULES_OPERAND_ROW_BLOCKS
} rules_operand_access;
typedef struct rules_operand_tile {
    /* axes; u = -1: none */
    int v, u;
    /* extents along them */
    int64_t n, m;
    /* the tile; elements of a vector */
    int64_t nr, mr, lanes;
    /* results from here on: the operand's name */
    const char *operand;
    /* blocks: rows of one, columns of a task */
    int64_t block, columns;
    /* blocks: the operand exceeds L3, so the next block is prefetched */
    bool fetch;
} rules_operand_tile;
typedef struct rules_block_tile {
    /* the sums; those of one block of rows */
    const char *stage, *part;
    /* axes of both stages */
    rules_operand_tile tile;
} rules_block_tile;
typedef struct rules_panel_copy {
    /* the contraction; its operand in panels */
    const char *stage, *copy;
} rules_panel_copy;
typedef struct rules_cut rules_cut; /* rules_tile.h */

typedef struct rules {
    const tir_machine *machine;
    int threads;
    /* after the rewrites so far */
    tir_region *region;
    /* the schedule being written */
    tir_schedule *schedule;
    lib_arena *arena;
    /* per stage */
    rules_group *group;
    lib_vec(rules_choice) choices;
    /* NULL: none */
    rules_chain *chain;
    lib_vec(rules_part) parts;
    /* partial results of interleaved rows, and their axis of rows (rules_interleaved.c) */
    lib_vec(rules_choice) interleaved;
    lib_vec(rules_lanes_tile) lanes_tiles;
    lib_vec(rules_block_tile) block_tiles;
    lib_vec(rules_panel_copy) panel_copies;
    lib_vec(rules_cut *) cuts;
} rules;

#define RULES_IRREGULAR TIR_IRREGULAR
typedef tir_access rules_access;
enum { RULES_ACCESSES = 72 }; /* a pass of a Fourier transform reads 32 pairs */

enum { RULES_REGISTER_VECTORS = 10 }; /* rows of at most so many vectors are unrolled into registers */

/* Appends a rewrite line and applies it to r->region. */
void rules_rewrite(rules *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *rules_fresh_name(const rules *r, const char *base, const char *suffix); /* no tensor has it */
/* Does data end a reduction? The stages computed for it have as many points: no vector with a constant number of them. */
bool rules_ends_by_data(const rules *r);
bool rules_loads(const rules *r,
                 tir_expr e); /* does the expression depend on memory or on another stage? `e` may be 0: no */
int rules_stage_named(const rules *r, const char *name);       /* as rules call it; -1: none */
int rules_axis_of(const tir_stage *stage, tir_axis_role role); /* the first of that role; -1: none */
/* The final reduction of partial results by lanes and of the levels of a tree over them; the stage itself if it is neither. */
int rules_end_of_tree(rules *r, int stage);

/* rules_access.c */
int rules_accesses(rules *r, int stage, rules_access *out, int limit); /* of values and predicates; distinct */
int64_t rules_store_stride(rules *r, int stage, int axis);
int64_t rules_extent(const rules *r, const tir_axis *axis); /* -1: varying */
int64_t rules_extent_limit(const rules *r,
                           const tir_axis *axis); /* the largest that it may have; TIR_UNBOUNDED_HIGH: unknown */
int64_t rules_known_extent(const rules *r,
                           const tir_axis *axis); /* of a varying one a quarter of the largest, at least 4 */
/* Can the stage's value be kept in registers with vectors along v? False if its layout has blocks along another axis: each point would take
 * registers for a whole block. */
bool rules_fits_registers(const rules *r, const tir_stage *stage, int v);
int64_t rules_stored_extent(const rules *r, int stage, int axis);  /* a space axis, with the padding of the layout */
bool rules_has_output(const rules *r, int stage);                  /* a value of it leaves the region */
bool rules_stores_vectors(rules *r, int stage, int axis);          /* a vector of it is contiguous, or a block */
int64_t rules_lanes(const rules *r, int stage);                    /* of one vector of the widest type computed */
int64_t rules_lanes_along(const rules *r, int stage, int axis);    /* of the values that differ along the axis */
bool rules_bare_use(tir_pool *pool, tir_expr value, tir_expr var); /* used in arithmetic, not only in addresses */
bool rules_straight(rules *r, int stage, int slow,
                    int fast);                              /* all accesses are contiguous from one axis to the other */
bool rules_is_contraction(const rules *r, int stage);       /* sums products: worth a register tile */
int rules_members(const rules *r, int owner, int *members); /* producers that run in its loops, in stage order */
bool rules_pointwise(const rules *r, int stage);            /* runs point by point with its owner */
int rules_axis_labelled(const rules *r, int stage, int label); /* -1: none */
/* The largest sum of sizes that is live at once if these stages run in order and the value of each has its `sizes` entry. */
int64_t rules_live(rules *r, const int *stages, const int64_t *sizes, int count);
bool *rules_in_tile(rules *r, int owner);           /* by stage: in the owner's tile, as is all that reads it */
bool rules_simple_group(const rules *r, int stage); /* all in the loops of its root runs point by point */

rules_role rules_role_of(const rules *r, int stage);
void rules_set_role(rules *r, const char *stage, rules_role role);

/* Each returns false if the group is not of its kind. */
bool rules_tile(rules *r, int root);
bool rules_tileable(rules *r, int stage); /* a reduction with an axis to run vectors along */
bool rules_rows(rules *r, int root);
bool rules_interleaved_rows(rules *r, int root);
bool rules_short_rows(rules *r, int root);
/* Does a stage select elements of the rows of a root by data? Registers are indexed by constants only. */
bool rules_chooses_by_data(rules *r, int root, int stage);
bool rules_enumerated_tile(rules *r, int root);
bool rules_enumerated_rows(rules *r, int root);
bool rules_columns(rules *r, int root);
bool rules_fold(rules *r, int root);
bool rules_scatter(rules *r, int root);
bool rules_sort(rules *r, int root);
void rules_map(rules *r, int root); /* a map without producers of its own */
bool rules_chosen(rules *r,
                  int root); /* rows from which a table selects elements are computed in scratch: rules_map.c */

/* The register tile of `owner` and its pointwise members. `prefix`: loops that already exist outside (NULL: the owner is a root and its
 * other axes come first, as tasks). `block_axis` (-1: none) of the owner has been split, and its rest is loop `block_loop` of
 * `block_extent` points. False: no tile. */
typedef struct rules_tile_place {
    /* " b h q_o" */
    const char *prefix;
    /* "q_o" */
    const char *prefix_last;
    /* bit a: axis a of the owner is in the prefix */
    uint32_t prefix_axes;
    int block_axis;
    const char *block_loop;
    int64_t block_extent;
} rules_tile_place;
bool rules_tile_in(rules *r, int owner, const rules_tile_place *place);
/* Rewrites before scheduling: an epilogue for contractions without one, packing of operands, lanes for reductions along rows. */
bool rules_prepare_batch(rules *r, int fold); /* false: lanes do not run along its free axes */
void rules_batch(rules *r, int fold);
void rules_prepare_scan(rules *r, int stage);
void rules_prepare_sorts(rules *r); /* changes the numbers of stages */
void rules_prepare_reduce(rules *r, int stage);
void rules_prepare_tile(rules *r, int stage);
void rules_prepare_rows(rules *r, int stage);
/* Are rows of so many points (-1: varying) too short for lanes along them? Then vectors run across rows. */
bool rules_is_short_row(const rules *r, int stage, int64_t points);
bool rules_is_interleaved(rules *r, int stage); /* a reduction of rows that lie interleaved in memory */
bool rules_prepare_interleaved(rules *r, int stage);
/* Predicted cycles of a contraction in tiles by lanes; not possible: 1e300. */
double rules_lanes_cost(rules *r, int stage, rules_lanes_tile *tile);
/* Cycles of `cycles` of computation overlapped with `l3_cycles` cycles of L3 traffic: the longer one, and a tenth of the shorter one. */
double rules_overlap_l3(double cycles, double l3_cycles);
void rules_prepare_lanes(rules *r, int stage, const rules_lanes_tile *tile);
bool rules_lanes_loops(rules *r, int root);
rules_operand_access rules_choose_operand_access(rules *r, int stage, rules_operand_tile *tile);
void rules_prepare_blocks(rules *r, int stage, const rules_operand_tile *tile);
/* Copies a broadcast input whose rows evict each other from L2 (they map to few sets); a cache line of the copy runs along the reduction. */
void rules_copy_rows(rules *r, int stage, const rules_operand_tile *tile);
/* Are the rows of the broadcast operand read in short pieces that are distant in memory? */
bool rules_rows_are_scattered(rules *r, int stage, int v, int u);
bool rules_blocks(rules *r, int root);
void rules_prepare_panels(rules *r, const char *stage, const char *copy); /* before the copy is made */
const char *rules_panels_of(const rules *r, const char *stage);           /* NULL: no copied panels */
void rules_attach_panels(rules *r, const char *copy, const char *owner, const char *loop);
bool rules_cut_loops(rules *r, int root); /* rules_cache_blocks.c */
void rules_prepare_enumerated_tile(rules *r, int stage);
uint32_t rules_positions(const rules *r, int stage); /* axes whose positions the values of a map enumerate */
bool rules_loses_positions(rules *r, int stage);     /* inlined into its readers (rules_enumerated_rows.c) */
/* Chains come first: the other rules skip their stages. */
void rules_prepare_chains(rules *r);
bool rules_in_chain(rules *r, int stage);
bool rules_chained(rules *r, int root);
/* Attaches member `s`, an operation on rows, at a loop of the root: `shared` axes of the root run point by point, and `block` points of
 * `block_axis` (-1: none) are computed together. */
void rules_attach_row(rules *r, int s, int root, const char *loop, uint32_t shared, int block_axis, int64_t block);

/* Loops of a root outside of its vectors, outermost first, and tasks made of them (rules_map.c). */
typedef struct rules_loop {
    const char *name;
    /* -1: varying */
    int64_t extent;
    /* may not be split: tiles of another split */
    bool whole;
} rules_loop;
typedef struct rules_nest {
    rules *r;
    const tir_stage *stage;
    rules_loop loop[TIR_MAX_AXES + 4];
    int count;
} rules_nest;
void rules_add_loop(rules_nest *nest, const char *name, int64_t extent, bool whole);
/* Makes the outer loops of the nest tasks, such that the loops inside of a task have at least `least` points; the loop at the boundary is
 * split. `points`: of the innermost loop's body, -1: unknown. */
void rules_form_tasks(rules_nest *nest, int64_t points, int64_t least);
/* Adds `nt` (non-temporal stores) if the results, with the inputs, exceed the share of L3 that a core may count on. False: it did not. */
bool rules_store_past_caches(rules *r, const tir_stage *stage);

#endif
