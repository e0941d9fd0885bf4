/* sweep S.k B -> F t: the reduction S over axis k, its producers that have an axis k, and the other readers of these producers become the
 * steps of one fold F over blocks of B points of k. (In the derivatives of attention, S is the derivative by the queries and k the keys; the
 * producers are the weights and their derivatives, which the derivatives by keys and values read as well. Dao 2023.)
 *
 *   sources    stages with an axis along k that S reads, or other sources: steps for one block, whose values last as long as it does
 *   S          the fold's state, S of the blocks so far: S_b sums a block, S_n = S + S_b
 *   followers  other readers of sources, with an axis along k of their own: steps whose values have an axis for the block; where they are
 *              outputs, or read after the fold, a map reads these
 *   operands   of the sums among the sources, if indexed by k: copied block by block, k last
 *
 * The axes that lead all of them, as the same axis, are free in the fold. S is summed in another order. */
#include "tir/schedule_internal.h"

enum { MAX_PARTS = 16, MAX_OPERANDS = 8 };

typedef enum part_kind { SOURCE, SUM, FOLLOWER } part_kind;

typedef struct part {
    part_kind kind;
    /* before the rewrite */
    tir_stage whole;
    int stage;
    /* the axis along k */
    int along;
    /* of its step */
    uint32_t step;
    /* is it read by other stages than parts, or an output? */
    bool kept;
} part;

/* A tensor that a sum among the sources loads along k. */
typedef struct operand {
    uint32_t tensor, step;
    /* by dimension: an expression over the fold's free axes; 0: along k, or an axis of the sum */
    tir_expr fixed[DLC_MAX_RANK];
    /* the dimension along k */
    int along;
    /* by dimension: extent of the axis of the sum; 0: another index */
    tir_expr extent[DLC_MAX_RANK];
} operand;

typedef struct sweep {
    tir_schedule_state *state;
    tir_pool *pool;
    part parts[MAX_PARTS];
    int count;
    /* number of S among them */
    int sum;
    operand operands[MAX_OPERANDS];
    int operand_count;
    /* number of free axes */
    int free;
    int64_t block;
    tir_expr extent;
    /* the last block is shorter */
    bool ragged;
    /* while building: the fold's stage, where the next step goes, and the fold's axis */
    int fold, at;
    tir_axis blocks;
    /* the part that is read or rewritten, and the variables of its step */
    int current;
    tir_expr time, inside;
} sweep;

static tir_stage *stage_at(const sweep *w, int s) {
    return &w->state->region->stages.data[s];
}

static int part_of(const sweep *w, uint32_t tensor) {
    for (int i = 0; i < w->count; i++)
        if (w->parts[i].whole.tensor[0] == tensor) return i;
    return -1;
}

static const char *name_of(const sweep *w, uint32_t tensor) {
    return w->state->region->tensors.data[tensor].name;
}

/* ---- parts */

/* The dimension of the load that `var` alone indexes; -1: it is not used; -2: in another way. */
static int dimension_along(const tir_pool *pool, tir_expr load, tir_expr var) {
    const tir_node *node = tir_get(pool, load);
    int found = -1;
    if (!tir_uses(pool, load, var)) return -1;
    for (int d = 0; d < node->count; d++) {
        if (!tir_uses(pool, tir_operand(pool, load, d), var)) continue;
        if (found != -1 || tir_operand(pool, load, d) != var) return -2;
        found = d;
    }
    return found;
}

/* A map or a reduction to one value, outside of folds. */
static bool may_be_part(const tir_stage *stage) {
    return stage->fold < 0 && stage->count == 1 && (stage->kind == TIR_MAP || stage->kind == TIR_REDUCE);
}

static void add_part(sweep *w, part_kind kind, int s, int along) {
    const tir_stage *stage = stage_at(w, s);
    if (w->count == MAX_PARTS) tir_schedule_raise(w->state, "more than %d stages are computed along it", MAX_PARTS);
    if (!may_be_part(stage)) tir_schedule_raise(w->state, "%s is no map or reduction to one value", stage->name);
    if (stage->kind == TIR_REDUCE && !stage->merge[0])
        tir_schedule_raise(w->state, "%s does not begin with its identity", stage->name);
    if (stage->axis[along].extent != w->extent)
        tir_schedule_raise(w->state, "%s has another number of points along it", stage->name);
    if (kind == SOURCE && tir_has_output(w->state->region, s))
        tir_schedule_raise(w->state, "%s, which it reads, is an output", stage->name);
    w->parts[w->count++] = (part){.kind = kind, .whole = *stage, .stage = s, .along = along};
}

/* Visits a load in a source or in S: if the loaded tensor is indexed by the reader's axis k, the stage that produces it is a source as well. */
static void find_source(void *user, tir_expr load) {
    sweep *w = user;
    const part *reader = &w->parts[w->current];
    const uint32_t tensor = (uint32_t)tir_get(w->pool, load)->bits;
    const int producer = w->state->region->tensors.data[tensor].stage, known = part_of(w, tensor);
    if (producer < 0) return;
    const int along = dimension_along(w->pool, load, reader->whole.axis[reader->along].var);
    if (along == -1 && known < 0) return;
    if (along < 0 || (known >= 0 && w->parts[known].along != along))
        tir_schedule_raise(w->state, "%s reads %s at other points of it", reader->whole.name, name_of(w, tensor));
    if (known < 0) add_part(w, SOURCE, producer, along);
}

/* How a stage reads the parts. */
typedef struct reading {
    const sweep *w;
    const tir_stage *stage;
    /* its axis along k; -1: none yet */
    int along;
    bool sources, followers, otherwise;
} reading;

static void find_reading(void *user, tir_expr load) {
    reading *r = user;
    const uint32_t tensor = (uint32_t)tir_get(r->w->pool, load)->bits;
    const int p = part_of(r->w, tensor);
    if (p < 0) return;
    const part *from = &r->w->parts[p];
    r->sources = r->sources || from->kind == SOURCE;
    r->followers = r->followers || from->kind == FOLLOWER;
    int axis = -1;
    for (int a = 0; a < r->stage->space && from->kind != SUM; a++)
        if (dimension_along(r->w->pool, load, r->stage->axis[a].var) == from->along) axis = a;
    if (axis < 0 || (r->along >= 0 && r->along != axis)) r->otherwise = true;
    r->along = axis;
}

/* Marks a stage that depends on S, or on values of all blocks: it comes after the sweep. So does the fold that it is a step of. */
static void mark_late(const sweep *w, int s, bool *late) {
    late[s] = true;
    if (stage_at(w, s)->fold >= 0) late[stage_at(w, s)->fold] = true;
}

/* Adds the stages that are followers, except those in `late`; marks in `late` the stages that can be none. False: none was marked. */
static bool find_followers_but(sweep *w, bool *late) {
    const int count = (int)w->state->region->stages.count;
    bool marked = false;
    for (int s = 0; s < count; s++) {
        const tir_stage *stage = stage_at(w, s);
        if (stage->removed || part_of(w, stage->tensor[0]) >= 0 || late[s]) continue;
        reading r = {.w = w, .stage = stage, .along = -1};
        tir_stage_loads(w->state->region, s, find_reading, &r);
        if (!r.sources && !r.followers && !r.otherwise && !tir_reads_any(w->state->region, s, late)) continue;
        if (may_be_part(stage) && !r.otherwise && r.along >= 0 && !tir_reads_any(w->state->region, s, late)) {
            add_part(w, FOLLOWER, s, r.along);
            continue;
        }
        mark_late(w, s, late);
        marked = true;
        if (r.sources) tir_schedule_raise(w->state, "%s reads the values of all blocks", stage->name);
    }
    return marked;
}

/* Visits a load of a part: of other parts, it may load only the current block. */
static void check_load(void *user, tir_expr load) {
    const sweep *w = user;
    const part *reader = &w->parts[w->current];
    const int p = part_of(w, (uint32_t)tir_get(w->pool, load)->bits);
    if (p < 0) return;
    const part *from = &w->parts[p];
    if (from->kind == SUM || dimension_along(w->pool, load, reader->whole.axis[reader->along].var) != from->along)
        tir_schedule_raise(w->state, "%s reads %s at other points of it", reader->whole.name, from->whole.name);
}

static void find_followers(sweep *w) {
    bool *late = LIB_NEW_ARRAY(w->state->arena, bool, w->state->region->stages.count + 1);
    const int sources = w->count;
    /* Repeated until no stage is marked: a fold precedes its steps in the list of stages, so a reader of the fold may have been added as a
     * follower before a step of the fold was marked. */
    for (bool marked = true; marked;) {
        w->count = sources;
        marked = find_followers_but(w, late);
    }
    for (w->current = 0; w->current < w->count; w->current++) {
        const part *p = &w->parts[w->current];
        tir_stage_loads(w->state->region, p->stage, check_load, w);
        if (tir_reads_any(w->state->region, p->stage, late))
            tir_schedule_raise(w->state, "%s depends on the values of all blocks", p->whole.name);
    }
}

/* Sets `kept` of the followers. */
static void find_kept(sweep *w) {
    for (int i = 0; i < w->count; i++) {
        part *p = &w->parts[i];
        p->kept = p->kind == FOLLOWER && tir_has_output(w->state->region, p->stage);
        for (int s = 0; s < (int)w->state->region->stages.count && p->kind == FOLLOWER; s++)
            if (!stage_at(w, s)->removed && part_of(w, stage_at(w, s)->tensor[0]) < 0 &&
                tir_stage_reads(w->state->region, s, p->whole.tensor[0]))
                p->kept = true;
    }
}

/* ---- free axes */

static void limit_free(void *user, tir_expr load) {
    sweep *w = user;
    const int p = part_of(w, (uint32_t)tir_get(w->pool, load)->bits);
    const tir_stage *reader = &w->parts[w->current].whole;
    for (int a = 0; p >= 0 && a < w->free; a++)
        if (tir_operand(w->pool, load, a) != reader->axis[a].var ||
            w->parts[p].whole.axis[a].extent != reader->axis[a].extent)
            w->free = a;
}

static void find_free(sweep *w) {
    w->free = w->parts[0].whole.space;
    for (int i = 0; i < w->count; i++) {
        const part *p = &w->parts[i];
        const int most = p->along < p->whole.space ? p->along : p->whole.space;
        if (most < w->free) w->free = most;
    }
    for (w->current = 0; w->current < w->count; w->current++)
        tir_stage_loads(w->state->region, w->parts[w->current].stage, limit_free, w);
}

/* ---- steps */

/* Adds a step of the fold. Its axes, count of them: the free axes of `like`, the blocks, then `rest`; the last `reduce` of them are reduced. */
static tir_stage *add_step(sweep *w, const tir_stage *like, const char *suffix, const tir_axis *rest, int count,
                           int reduce) {
    const char *name = tir_derived_name(w->state, like->name, suffix);
    const tir_stage one = {.count = 1, .tensor = {like->tensor[0]}};
    tir_axis axis[TIR_MAX_AXES];
    if (w->free + 1 + count > TIR_MAX_AXES) tir_schedule_raise(w->state, "%s would have too many axes", name);
    for (int a = 0; a < w->free; a++)
        axis[a] = tir_axis_like(w->state, &w->parts[0].whole.axis[a], like->axis[a].extent);
    axis[w->free] = tir_axis_like(w->state, &w->blocks, w->blocks.extent);
    for (int a = 0; a < count; a++) axis[w->free + 1 + a] = rest[a];
    tir_stage *step = tir_insert_stage(w->state, w->at);
    step->name = name;
    step->kind = reduce ? TIR_REDUCE : TIR_MAP;
    step->fold = w->fold;
    step->space = w->free + 1 + count - reduce;
    step->reduce = reduce;
    memcpy(step->axis, axis, sizeof axis);
    tir_new_tensors(w->state, w->at, &one, name);
    return stage_at(w, w->at++);
}

/* Position kb of block t, as a point of k. */
static tir_expr point(const sweep *w, tir_expr time, tir_expr inside) {
    return tir_add(w->pool, tir_mul(w->pool, time, tir_index(w->pool, w->block)), inside);
}

/* Does the index consist of free axes of the part alone? */
static bool is_fixed(const sweep *w, const part *p, tir_expr index) {
    for (int a = w->free; a < p->whole.space + p->whole.reduce; a++)
        if (tir_uses(w->pool, index, p->whole.axis[a].var)) return false;
    return !tir_has_load(w->pool, index, 0);
}

static int plain_axis(const part *p, tir_expr index) {
    for (int a = 0; a < p->whole.space + p->whole.reduce; a++)
        if (p->whole.axis[a].var == index) return a;
    return -1;
}

static tir_expr on_fold_axes(const sweep *w, const part *p, tir_expr e) {
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < w->free; a++) from[a] = p->whole.axis[a].var, to[a] = stage_at(w, w->fold)->axis[a].var;
    return tir_substitute(w->pool, e, w->free, from, to);
}

/* Is the load an operand that can be copied by blocks: does a source that is a reduction load it, with one index k, the others being expressions
 * of free axes or single axes of the reduction? Sets *out, but for the step. */
static bool is_operand(const sweep *w, const part *p, tir_expr load, operand *out) {
    const tir_node *node = tir_get(w->pool, load);
    *out = (operand){.tensor = (uint32_t)node->bits};
    if (p->kind != SOURCE || p->whole.kind != TIR_REDUCE || node->guarded) return false;
    out->along = dimension_along(w->pool, load, p->whole.axis[p->along].var);
    if (out->along < 0) return false;
    for (int d = 0; d < node->count; d++) {
        const tir_expr index = tir_operand(w->pool, load, d);
        if (d == out->along) continue;
        if (is_fixed(w, p, index))
            out->fixed[d] = on_fold_axes(w, p, index);
        else if (plain_axis(p, index) >= 0)
            out->extent[d] = p->whole.axis[plain_axis(p, index)].extent;
        else
            return false;
    }
    return true;
}

static int known_operand(const sweep *w, const operand *o) {
    for (int i = 0; i < w->operand_count; i++)
        if (w->operands[i].tensor == o->tensor && w->operands[i].along == o->along &&
            memcmp(w->operands[i].fixed, o->fixed, sizeof o->fixed) == 0 &&
            memcmp(w->operands[i].extent, o->extent, sizeof o->extent) == 0)
            return i;
    return -1;
}

/* The loads of a part, collected before steps are inserted. */
typedef struct load_list {
    lib_arena *arena;
    lib_vec(tir_expr) loads;
} load_list;

static void collect_load(void *user, tir_expr load) {
    load_list *list = user;
    lib_vec_push(list->arena, &list->loads, load);
}

/* Adds the step that copies blocks of an operand, if the load is one of a source that is a sum. */
static void add_operand(sweep *w, tir_expr load) {
    const part *p = &w->parts[w->current];
    operand o;
    if (part_of(w, (uint32_t)tir_get(w->pool, load)->bits) >= 0 || !is_operand(w, p, load, &o)) return;
    if (known_operand(w, &o) >= 0 || w->operand_count == MAX_OPERANDS) return;
    const tir_tensor tensor = w->state->region->tensors.data[o.tensor];
    tir_axis rest[DLC_MAX_RANK];
    int count = 0, axis_of[DLC_MAX_RANK];
    for (int d = 0; d < tensor.rank; d++) {
        if (d == o.along || o.fixed[d]) continue;
        const tir_axis *axis = &p->whole.axis[plain_axis(p, tir_operand(w->pool, load, d))];
        axis_of[d] = count;
        rest[count++] = tir_axis_like(w->state, axis, axis->extent);
    }
    axis_of[o.along] = count;
    rest[count++] = tir_axis_like(w->state, &p->whole.axis[p->along], tir_index(w->pool, w->block));
    tir_stage like = p->whole;
    like.name = tensor.name;
    like.tensor[0] = o.tensor;
    tir_stage *step = add_step(w, &like, "_b", rest, count, 0);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES], index[DLC_MAX_RANK];
    for (int a = 0; a < w->free; a++) from[a] = stage_at(w, w->fold)->axis[a].var, to[a] = step->axis[a].var;
    for (int d = 0; d < tensor.rank; d++)
        index[d] = o.fixed[d] ? tir_substitute(w->pool, o.fixed[d], w->free, from, to)
                              : step->axis[w->free + 1 + axis_of[d]].var;
    index[o.along] = point(w, step->axis[w->free].var, index[o.along]);
    const tir_dtype dtype = (tir_dtype)tensor.dtype;
    const tir_expr inside = w->ragged ? tir_lt(w->pool, index[o.along], w->extent) : 0;
    step->value[0] = tir_load(w->pool, o.tensor, dtype, tensor.rank, index, inside, tir_int(w->pool, dtype, 0));
    o.step = step->tensor[0];
    w->operands[w->operand_count++] = o;
}

/* A load of another part's value in the current part becomes one of the other part's step, in the same block. */
static tir_expr load_of_step(const sweep *w, const part *from, tir_expr load, tir_expr guard, tir_expr other) {
    const tir_node node = *tir_get(w->pool, load);
    const int dims = node.count - (node.guarded ? 2 : 0);
    tir_expr index[DLC_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < w->free; d++) index[rank++] = tir_operand(w->pool, load, d);
    index[rank++] = w->time;
    for (int d = w->free; d < dims; d++) index[rank++] = d == from->along ? w->inside : tir_operand(w->pool, load, d);
    return tir_load(w->pool, from->step, node.dtype, rank, index, guard, other);
}

/* A load of an operand in the current part, with so many indices, becomes one of the copied block. */
static tir_expr load_of_copy(const sweep *w, const operand *o, tir_expr load, int dims) {
    const part *p = &w->parts[w->current];
    tir_expr index[DLC_MAX_RANK];
    int rank = 0;
    for (int a = 0; a < w->free; a++) index[rank++] = p->whole.axis[a].var;
    index[rank++] = w->time;
    for (int d = 0; d < dims; d++)
        if (d != o->along && !o->fixed[d]) index[rank++] = tir_operand(w->pool, load, d);
    index[rank++] = w->inside;
    return tir_load(w->pool, o->step, tir_dtype_of(w->pool, load), rank, index, 0, 0);
}

/* A load in the current part, over its axes and the variables w->time and w->inside of its step. */
static tir_expr replace_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const sweep *w = user;
    const part *p = &w->parts[w->current];
    tir_expr index[DLC_MAX_RANK];
    operand o;
    if (tir_op_of(pool, e) != TIR_LOAD) return rebuilt;
    const tir_node node = *tir_get(pool, rebuilt);
    const int dims = node.count - (node.guarded ? 2 : 0), from = part_of(w, (uint32_t)node.bits);
    tir_expr guard = node.guarded ? tir_operand(pool, rebuilt, dims) : 0,
             other = node.guarded ? tir_operand(pool, rebuilt, dims + 1) : tir_int(pool, node.dtype, 0);
    if (from >= 0 && w->parts[from].kind != SUM) return load_of_step(w, &w->parts[from], rebuilt, guard, other);
    const int known = is_operand(w, p, e, &o) ? known_operand(w, &o) : -1;
    if (known >= 0) return load_of_copy(w, &w->operands[known], rebuilt, dims);
    const tir_expr k = p->whole.axis[p->along].var;
    if (p->kind == SUM || !w->ragged || !tir_uses(pool, rebuilt, k)) return rebuilt;
    const tir_expr within = tir_lt(pool, k, w->extent);
    for (int d = 0; d < dims; d++) index[d] = tir_operand(pool, rebuilt, d);
    return tir_load(pool, (uint32_t)node.bits, node.dtype, dims, index, guard ? tir_and(pool, guard, within) : within,
                    other);
}

/* Adds the step of part number i for one block; of S: S_b. */
static void add_part_step(sweep *w, int i) {
    part *p = &w->parts[i];
    tir_axis rest[TIR_MAX_AXES];
    const int axes = p->whole.space + p->whole.reduce;
    w->current = i;
    load_list list = {.arena = w->state->arena};
    tir_stage_loads(w->state->region, p->stage + w->at - w->fold, collect_load, &list);
    for (uint32_t l = 0; l < list.loads.count; l++) add_operand(w, list.loads.data[l]);
    for (int a = w->free; a < axes; a++)
        rest[a - w->free] = tir_axis_like(w->state, &p->whole.axis[a],
                                          a == p->along ? tir_index(w->pool, w->block) : p->whole.axis[a].extent);
    tir_stage *step = add_step(w, &p->whole, "_b", rest, axes - w->free, p->whole.reduce);
    tir_expr from[TIR_MAX_AXES], to[TIR_MAX_AXES];
    for (int a = 0; a < axes; a++) {
        from[a] = p->whole.axis[a].var;
        to[a] = step->axis[a < w->free ? a : a + 1].var;
    }
    w->time = step->axis[w->free].var;
    w->inside = to[p->along];
    to[p->along] = point(w, w->time, w->inside);
    tir_expr value = tir_rewrite(w->pool, p->whole.value[0], replace_load, w);
    step->value[0] = tir_substitute(w->pool, value, axes, from, to);
    p->step = step->tensor[0];
    if (p->whole.kind != TIR_REDUCE) return;
    tir_expr predicate = p->whole.predicate ? tir_rewrite(w->pool, p->whole.predicate, replace_load, w) : 0;
    if (predicate) predicate = tir_substitute(w->pool, predicate, axes, from, to);
    if (p->kind == SUM && w->ragged) {
        const tir_expr within = tir_lt(w->pool, to[p->along], w->extent);
        predicate = predicate ? tir_and(w->pool, predicate, within) : within;
    }
    step->exact = p->whole.exact;
    step->predicate = predicate;
    step->initial[0] = p->whole.initial[0];
    step->merge[0] = p->whole.merge[0];
}

/* S_n: S of the blocks so far, and of this one. */
static void add_next(sweep *w) {
    const part *p = &w->parts[w->sum];
    tir_axis rest[TIR_MAX_AXES];
    for (int a = w->free; a < p->whole.space; a++)
        rest[a - w->free] = tir_axis_like(w->state, &p->whole.axis[a], p->whole.axis[a].extent);
    tir_stage *step = add_step(w, &p->whole, "_n", rest, p->whole.space - w->free, 0);
    const tir_dtype dtype = tir_dtype_of(w->pool, p->whole.value[0]);
    tir_expr here[DLC_MAX_RANK], old[DLC_MAX_RANK], value[2],
        place[2] = {tir_acc(w->pool, dtype, 0), tir_other(w->pool, dtype, 0)};
    for (int a = 0; a < step->space; a++) here[a] = step->axis[a].var;
    for (int a = 0; a < p->whole.space; a++) old[a] = here[a < w->free ? a : a + 1];
    value[0] = tir_load(w->pool, p->whole.tensor[0], dtype, p->whole.space, old, 0, 0);
    value[1] = tir_load(w->pool, p->step, dtype, step->space, here, 0, 0);
    step->value[0] = tir_substitute(w->pool, p->whole.merge[0], 2, place, value);
    tir_expr index[DLC_MAX_RANK];
    const tir_stage *fold = stage_at(w, w->fold);
    for (int a = 0; a < step->space; a++) index[a] = a <= w->free ? fold->axis[a].var : tir_index(w->pool, 0);
    stage_at(w, w->fold)->value[0] = tir_load(w->pool, step->tensor[0], dtype, step->space, index, 0, 0);
}

/* A follower that is needed after the fold becomes a map that reads its step. */
static void read_step(sweep *w, const part *p) {
    tir_stage *stage = stage_at(w, p->stage + w->at - w->fold);
    tir_expr index[DLC_MAX_RANK], size = tir_index(w->pool, w->block);
    int rank = 0;
    stage->removed = !p->kept;
    if (!p->kept) return;
    for (int a = 0; a < stage->space; a++) {
        const tir_expr var = stage->axis[a].var;
        if (a == w->free) index[rank++] = tir_div(w->pool, stage->axis[p->along].var, size);
        index[rank++] = a == p->along ? tir_rem(w->pool, var, size) : var;
    }
    stage->value[0] = tir_load(w->pool, p->step, tir_dtype_of(w->pool, p->whole.value[0]), rank, index, 0, 0);
    stage->kind = TIR_MAP;
    stage->exact = false;
    stage->reduce = 0;
    stage->initial[0] = stage->merge[0] = stage->predicate = 0;
}

static void order_parts(sweep *w) {
    for (int i = 1; i < w->count; i++) /* by stage number, which insertions below keep */
        for (int k = i; k > 0 && w->parts[k].stage < w->parts[k - 1].stage; k--) {
            const part moved = w->parts[k];
            w->parts[k] = w->parts[k - 1];
            w->parts[k - 1] = moved;
        }
    while (w->parts[w->sum].kind != SUM) w->sum++;
}

static void build(sweep *w, const char *name, const char *blocks) {
    tir_region *region = w->state->region;
    const int count = (int)region->stages.count;
    bool *later = LIB_NEW_ARRAY(w->state->arena, bool, (size_t)count + 1);
    int *position = LIB_NEW_ARRAY(w->state->arena, int, (size_t)count + 1);
    const tir_stage sum = w->parts[0].whole;
    for (int i = 0; i < w->count; i++) later[w->parts[i].stage] = true;
    w->fold = tir_part_stages(w->state, later, position);
    for (int i = 0; i < w->count; i++) w->parts[i].stage = position[w->parts[i].stage];
    tir_insert_stage(w->state, w->fold);
    tir_stage fold = {.name = name, .kind = TIR_FOLD, .space = w->free, .reduce = 1, .count = 1, .fold = -1};
    for (int a = 0; a < w->free; a++) fold.axis[a] = tir_axis_like(w->state, &sum.axis[a], sum.axis[a].extent);
    w->blocks = fold.axis[w->free] =
        tir_new_axis(w->state, blocks, TIR_AXIS_PLAIN, tir_ceil_div(w->pool, w->extent, tir_index(w->pool, w->block)));
    fold.tensor[0] = sum.tensor[0];
    fold.initial[0] = sum.initial[0];
    region->tensors.data[sum.tensor[0]].stage = w->fold;
    *stage_at(w, w->fold) = fold;
    w->at = w->fold + 1;
    order_parts(w);
    for (int i = 0; i < w->count; i++) {
        add_part_step(w, i);
        if (i == w->sum) add_next(w);
    }
    for (int i = 0; i < w->count; i++) {
        const part *p = &w->parts[i];
        if (p->kind == FOLLOWER)
            read_step(w, p);
        else
            stage_at(w, p->stage + w->at - w->fold)->removed = true;
    }
}

void tir_apply_sweep(tir_schedule_state *state, lib_lexer *lexer) {
    sweep w = {.state = state, .pool = state->region->pool};
    const char *axis;
    const int s = tir_read_dotted(state, lexer, &axis);
    const tir_stage *sum = stage_at(&w, s);
    w.block = lib_lexer_integer(lexer);
    lib_lexer_expect(lexer, "->");
    const char *fold = tir_unique_name(state, lib_lexer_name(lexer)), *blocks = lib_lexer_name(lexer);
    if (sum->kind != TIR_REDUCE || sum->reduce != 1 || sum->count != 1 || sum->fold >= 0)
        tir_schedule_raise(state, "%s is not a reduction to one value over one axis", sum->name);
    if (strcmp(sum->axis[sum->space].name, axis) != 0)
        tir_schedule_raise(state, "stage %s has no reduction axis %s", sum->name, axis);
    if (w.block < 1) tir_schedule_raise(state, "a block has at least one point");
    w.extent = sum->axis[sum->space].extent;
    w.ragged = tir_multiple_of(w.pool, w.extent) % w.block != 0;
    add_part(&w, SUM, s, sum->space);
    for (w.current = 0; w.current < w.count; w.current++)
        tir_stage_loads(state->region, w.parts[w.current].stage, find_source, &w);
    if (w.count == 1) tir_schedule_raise(state, "%s reads nothing that is computed along %s", sum->name, axis);
    find_followers(&w);
    find_kept(&w);
    find_free(&w);
    build(&w, fold, blocks);
}
