/* Internal to lowering (lower.c, lower_statement.c, lower_buffers.c, lower_check.c): the state of one lowering and shared functions. Not
 * included elsewhere. */
#ifndef TIR_LOWER_H
#define TIR_LOWER_H

#include "tir/schedule_internal.h"

enum { TIR_TERM_LIMIT = 32, TIR_MAX_PHYSICAL_RANK = 16 };

typedef enum tir_nest_role {
    TIR_ROLE_INIT,
    TIR_ROLE_UPDATE,
    TIR_ROLE_MERGE, /* a partial result becomes part of the result */
    TIR_ROLE_COPY,
    TIR_ROLE_STATE /* a step stored in a fold's state: the state's initial value */
} tir_nest_role;

/* A let in scope: `var` holds `value`, an index expression with loads, written in the variables of stages. So a loop bound that a predicate
 * reads from data is loaded once, and expressions of `var` are as affine as those of a size. */
typedef struct tir_scalar {
    tir_expr value, var;
} tir_scalar;

typedef struct tir_lowering {
    lib_arena *arena;
    tir_region *region;
    tir_pool *pool;
    tir_kernel *kernel;
    tir_schedule_state state;
    const tir_lower_options *options;
    /* facts of the machine */
    bool has_fma, scales;
    /* tensor -> buffer, for inputs, roots and attached stages also written to memory; UINT32_MAX: none */
    uint32_t *home;
    /* by stage: its root is computed, so its memory can be read */
    bool *done;
    /* of the current phase */
    tir_stmt *body;
    /* where the next statement is appended */
    tir_stmt **cursor;
    /* conditions known at the cursor: decided by clipped loops, or the statement's own guard */
    tir_expr known[TIR_TERM_LIMIT];
    int known_count;
    /* in scope at the cursor */
    lib_vec(tir_scalar) scalars;
    /* some scratch is in registers */
    bool registers;
    /* bytes of buffers on the stack so far */
    int64_t stack_bytes;
    /* the open vec loop */
    const char *vector;
    /* its variable */
    tir_expr lane;
    /* groups of the open pipeline that this iteration has waited for; 0: no pipeline */
    int waited;
} tir_lowering;

static inline tir_stage *tir_stage_of(tir_lowering *l, int s) {
    return &l->region->stages.data[s];
}
static inline tir_stage_plan *tir_plan_of(tir_lowering *l, int s) {
    return &l->state.plan[s];
}

/* lower_statement.c */
tir_stmt *tir_lower_append(tir_lowering *l, tir_stmt_kind kind);
const tir_expr *tir_lower_copy_indices(tir_lowering *l, const tir_expr *index, int rank);
int tir_lower_physical(tir_lowering *l, uint32_t tensor, const tir_expr *logical, tir_expr *out); /* returns the rank */
void tir_lower_learn(tir_lowering *l, tir_expr condition);
/* Opens a let; the next statements are in its scope. Returns its variable, with the value's range. */
tir_expr tir_lower_name(tir_lowering *l, const char *name, tir_expr value);
/* tir_schedule_state.scalar. */
tir_expr tir_lower_scalar(void *lowering, int s, tir_expr value);
/* A term of a stage's predicate at the current point, with the scalars in scope; other loads remain loads of the stage's tensors. */
tir_expr tir_lower_with_scalars(tir_lowering *l, int s, tir_expr term);
/* A stage's expression at the current point: axes become loop values, tensors buffers, ACC nodes the elements of `acc`. */
tir_expr tir_lower_translate(tir_lowering *l, int s, tir_expr e, const tir_expr *acc);
/* The same, legal for loop IR. */
tir_expr tir_lower_value(tir_lowering *l, int s, tir_expr e);
/* The innermost statement of a stage in one role, at the current point. */
void tir_lower_statement(tir_lowering *l, int s, tir_nest_role role);
/* Has the reduction one point, as the last part of a sum in several parts may have? Its result is then computed from its initial value, which
 * is not stored first. */
bool tir_lower_is_single_step(tir_lowering *l, int s);

/* Stores zero at a point of the stage's buffer in memory. */
void tir_lower_store_zero(tir_lowering *l, int s, int component, const tir_expr *index);

/* Adds a condition to `all` unless it is known or proven; 0: true. */
tir_expr tir_lower_conjoin(tir_lowering *l, tir_expr all, tir_expr term);
/* The condition under which stores of the point stay in their tiles (and, for homes, the domain). */
tir_expr tir_lower_store_guard(tir_lowering *l, int s, bool scratch, bool padded);
/* Loads of the stage's own elements at the current point. */
void tir_lower_load_state(tir_lowering *l, int s, bool scratch, tir_expr *acc);

/* lower_collective.c: collective units. Before lowering: sets zero_axis and zero_end of the plans of operands' stages; the statement at the
 * current point; after lowering: checks the collective statements. */
void tir_lower_zero_operands(tir_lowering *l, int s);
tir_expr tir_lower_zeroed(tir_lowering *l, int s,
                          tir_expr value); /* the value of an operand's stage at the current point */
void tir_lower_collective(tir_lowering *l, int s);
void tir_lower_matrices(
    tir_lowering *l); /* copies out of shared memory become TIR_LOAD_MATRICES units where these fit */
void tir_lower_check_collectives(tir_lowering *l);

/* lower_sort.c: a line of a sort, at the current point of the free axes */
void tir_lower_sort(tir_lowering *l, int s);

/* The stage in whose loops s runs, which is attached to none; s itself, if that is s. */
int tir_lower_root(tir_lowering *l, int s);

/* lower_buffers.c */
void tir_lower_arguments(tir_lowering *l);
void tir_lower_workspace(tir_lowering *l, int s); /* homes of a stage's tensors that live in kernel-wide memory */
bool tir_lower_has_home(tir_lowering *l, int s);
bool tir_lower_reads(tir_lowering *l, int reader, int producer); /* whether a stage loads what another one computes */
void tir_lower_open_scratch(tir_lowering *l, int s);
/* Exchanges the stage's buffers of results and of partial results. */
void tir_lower_exchange_parts(tir_lowering *l, int s);

/* lower_output.c: stages that are stored in their root's output */
void tir_lower_check_outputs(tir_lowering *l, const tir_region *original);
void tir_lower_open_output(tir_lowering *l, int s);

/* lower_state.c: steps that are stored in their fold's state. state_step: the step stored in this component (-1: none). state_place:
 * returns the state's tensor for such a step's tensor, with its indices in `out`; returns any other tensor itself. state_initial: the
 * component's initial value, over the step's axes. begin_state: opens the step at the point before the first iteration. */
void tir_lower_check_states(tir_lowering *l);
int tir_lower_state_step(tir_lowering *l, int fold, int component);
void tir_lower_open_in_state(tir_lowering *l, int s);
uint32_t tir_lower_state_place(tir_lowering *l, uint32_t tensor, const tir_expr *logical, tir_expr *out);
tir_expr tir_lower_state_initial(tir_lowering *l, int s);
void tir_lower_begin_state(tir_lowering *l, int s);

/* lower_prefetch.c: the prefetches of loop `leaf` of stage s, at the current point */
void tir_lower_prefetches(tir_lowering *l, int s, int leaf);

/* lower_pipeline.c: _open: the prologue, before the loop is opened (false: the loop has no pipeline); _step: the start of the loop's body;
 * _need: waits for the groups that stage `reader` reads (-1: stage s itself); _close: the code after the loop. tir_lower_nest (lower.c): the
 * nest of an attached stage. */
bool tir_lower_pipeline_open(tir_lowering *l, int s, int leaf, tir_expr var, tir_span bounds);
void tir_lower_pipeline_step(tir_lowering *l, int s, int leaf, tir_expr var, tir_span bounds);
void tir_lower_pipeline_need(tir_lowering *l, int s, int leaf, int reader);
void tir_lower_pipeline_close(tir_lowering *l, int s, int leaf);
void tir_lower_nest(tir_lowering *l, int s);

/* lower_check.c: refuses schedules whose promises the finished loops do not keep */
void tir_lower_check(tir_lowering *l);

#endif
