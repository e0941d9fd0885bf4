/* Regions by definition (tir/region.h): the value of a tensor at a point, by recursion through the stages,
 * memoising points. Independent of loops, buffers and schedules, so that it can check lowering's
 * results; of large kernels it checks chosen points. */
#include "tir/arith.h"
#include "tir/math.h"
#include "tir/region.h"

/* An expression as a list: operands before users. */
typedef struct expression {
    uint32_t count;
    const tir_expr *nodes;
    /* positions of the operands of node i start at first[i] */
    const uint32_t *operands;
    const uint32_t *first;
} expression;

typedef struct stage_code {
    expression value[TIR_MAX_STATE], initial[TIR_MAX_STATE], predicate, index[DLC_MAX_RANK];
    /* fold: indices of the load that is the next value */
    expression *next_index[TIR_MAX_STATE];
    int64_t extent[TIR_MAX_AXES];
    /* of a step stage: its axis that is the fold's time; -1: none */
    int time_axis;
} stage_code;

/* Memoised values of a stage at a point. For a scatter, the slice over the axes that are not parallel; for
 * a fold, the states so far; both at a point of the remaining axes. */
typedef struct entry {
    /* point: row-major number */
    int64_t stage, point;
    uint64_t value[TIR_MAX_STATE];
    /* scatter: [points]; fold: [time 0..T][points of the component's own axes] */
    uint64_t *slice[TIR_MAX_STATE];
    /* fold: states 0..time are computed */
    int64_t time;
} entry;

typedef struct evaluation {
    lib_arena *arena;
    tir_region *region;
    tir_pool *pool;
    void *const *inputs;
    tir_rounding rounding;
    /* of tensors */
    int64_t (*extent)[DLC_MAX_RANK];
    stage_code *stages;
    /* by variable id */
    uint64_t *variables;
    /* by node, while an expression is compiled: 1-based; else 0 */
    uint32_t *position;
    uint32_t positions;
    /* by stage: of a fold whose step is being evaluated */
    int64_t *time;
    lib_vec(uint64_t) stack;
    lib_vec(entry *) entries;
    lib_map map;
} evaluation;

_Noreturn static void fail(const evaluation *ev, const char *name, const char *what) {
    lib_raise(ev->arena->scope, DLC_INTERNAL, "region %s, %s: %s", ev->region->name, name, what);
}

/* ---- expressions */

static expression compile(evaluation *ev, tir_expr root) {
    expression out = {0};
    if (!root) return out;
    root = tir_legalize(ev->pool, root, ev->rounding.has_fma, false, ev->rounding.excess);
    if (ev->positions < ev->pool->nodes.count) {
        ev->positions = ev->pool->nodes.count + ev->pool->nodes.count / 2; /* legalizing makes nodes */
        ev->position = LIB_NEW_ARRAY(ev->arena, uint32_t, ev->positions);
    }
    uint32_t *position = ev->position;
    lib_vec(tir_expr) work = {0}, nodes = {0};
    lib_vec(uint32_t) operands = {0}, first = {0};
    lib_vec_push(ev->arena, &work, root);
    while (work.count) {
        tir_expr e = work.data[work.count - 1];
        const int count = tir_get(ev->pool, e)->count;
        bool ready = true;
        for (int i = count - 1; i >= 0 && !position[e]; i--) {
            if (position[tir_operand(ev->pool, e, i)]) continue;
            lib_vec_push(ev->arena, &work, tir_operand(ev->pool, e, i));
            ready = false;
        }
        if (!ready) continue;
        work.count--;
        if (position[e]) continue;
        lib_vec_push(ev->arena, &first, operands.count);
        for (int i = 0; i < count; i++) lib_vec_push(ev->arena, &operands, position[tir_operand(ev->pool, e, i)] - 1);
        lib_vec_push(ev->arena, &nodes, e);
        position[e] = nodes.count;
    }
    for (uint32_t i = 0; i < nodes.count; i++) position[nodes.data[i]] = 0;
    return (expression){nodes.count, nodes.data, operands.data, first.data};
}

static uint64_t tensor_value(evaluation *ev, uint32_t tensor, const int64_t *index, int32_t reader_fold);

/* `fold`: the fold to whose steps the expression's stage belongs, or -1. */
static uint64_t evaluate_load(evaluation *ev, const tir_node *node, const uint64_t *operands, int32_t fold) {
    const int rank = node->guarded ? node->count - 2 : node->count;
    if (node->guarded && !operands[rank]) return operands[rank + 1];
    int64_t index[DLC_MAX_RANK];
    for (int i = 0; i < rank; i++) index[i] = (int64_t)operands[i];
    return tensor_value(ev, (uint32_t)node->bits, index, fold);
}

static uint64_t evaluate_code(evaluation *ev, const expression *code, const uint64_t *acc, int32_t fold) {
    const uint32_t base = ev->stack.count;
    lib_vec_reserve(ev->arena, &ev->stack, code->count);
    ev->stack.count += code->count;
    for (uint32_t i = 0; i < code->count; i++) {
        const tir_node *node = tir_get(ev->pool, code->nodes[i]);
        uint64_t operands[UINT8_MAX], value;
        for (int k = 0; k < node->count; k++)
            operands[k] = ev->stack.data[base + code->operands[code->first[i] + (uint32_t)k]];
        switch (node->op) {
        case TIR_CONST: value = node->bits; break;
        case TIR_VAR: value = ev->variables[node->bits]; break;
        case TIR_ACC: value = acc[node->bits]; break;
        case TIR_LOAD: value = evaluate_load(ev, node, operands, fold); break;
        default: {
            tir_expr typed = tir_operand(ev->pool, code->nodes[i], tir_first_value((tir_op)node->op));
            value = tir_arith((tir_op)node->op, node->dtype, tir_dtype_of(ev->pool, typed), operands, node->count,
                              ev->rounding.has_fma);
        }
        }
        ev->stack.data[base + i] = value; /* the stack may have been reallocated */
    }
    uint64_t result = ev->stack.data[base + code->count - 1];
    ev->stack.count = base;
    return result;
}

/* ---- points */

static entry *find_entry(const evaluation *ev, int64_t stage, int64_t point) {
    uint64_t hash = lib_hash_mix((uint64_t)stage, (uint64_t)point);
    for (uint32_t at = lib_map_first(&ev->map, hash); at != LIB_MAP_END; at = lib_map_next(&ev->map, hash, at)) {
        entry *e = ev->entries.data[ev->map.slots[at].value];
        if (e->stage == stage && e->point == point) return e;
    }
    return NULL;
}

static entry *add_entry(evaluation *ev, int64_t stage, int64_t point) {
    entry *e = LIB_NEW(ev->arena, entry);
    e->stage = stage;
    e->point = point;
    lib_map_insert(ev->arena, &ev->map, lib_hash_mix((uint64_t)stage, (uint64_t)point), ev->entries.count);
    lib_vec_push(ev->arena, &ev->entries, e);
    return e;
}

static void bind(evaluation *ev, const tir_axis *axis, int64_t value) {
    ev->variables[tir_var_id(ev->pool, axis->var)] = (uint64_t)value;
}

/* Saves a stage's axis variables: an outer evaluation may use them (a step stage at an earlier time). */
static void save_axes(const evaluation *ev, const tir_stage *stage, uint64_t *saved) {
    for (int i = 0; i < stage->space + stage->reduce; i++)
        saved[i] = ev->variables[tir_var_id(ev->pool, stage->axis[i].var)];
}
static void restore_axes(evaluation *ev, const tir_stage *stage, const uint64_t *saved) {
    for (int i = 0; i < stage->space + stage->reduce; i++) bind(ev, &stage->axis[i], (int64_t)saved[i]);
}

/* Next point of a box, last dimension fastest; false after the last one. */
static bool next_point(int rank, const int64_t *extent, int64_t *point) {
    for (int i = rank - 1; i >= 0; i--) {
        if (++point[i] < extent[i]) return true;
        point[i] = 0;
    }
    return false;
}

static int64_t volume(const evaluation *ev, int rank, const int64_t *extent) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(count, extent[i] > 0 ? extent[i] : 0, &count)) fail(ev, "domain", "too large");
    return count;
}

static int64_t number_of(int rank, const int64_t *extent, const int64_t *point) {
    int64_t number = 0;
    for (int i = 0; i < rank; i++) number = number * extent[i] + point[i];
    return number;
}

/* ---- kinds of stages; each is called with the stage's space axes bound */

static void reduce_state(evaluation *ev, const tir_stage *stage, const stage_code *code, uint64_t *state) {
    const int64_t *extent = code->extent + stage->space;
    int64_t point[TIR_MAX_AXES] = {0};
    for (int c = 0; c < stage->count; c++) state[c] = evaluate_code(ev, &code->initial[c], NULL, stage->fold);
    if (volume(ev, stage->reduce, extent) == 0) return;
    do {
        uint64_t next[TIR_MAX_STATE];
        for (int i = 0; i < stage->reduce; i++) bind(ev, &stage->axis[stage->space + i], point[i]);
        if (stage->predicate && !evaluate_code(ev, &code->predicate, NULL, stage->fold)) continue;
        for (int c = 0; c < stage->count; c++) next[c] = evaluate_code(ev, &code->value[c], state, stage->fold);
        memcpy(state, next, sizeof next[0] * (size_t)stage->count);
    } while (next_point(stage->reduce, extent, point));
}

static bool is_parallel(const tir_stage *stage, int axis) {
    return stage->index[axis] == stage->axis[axis].var;
}

/* The update at the bound point of the axes of updates. own_extent: extents of the slice. */
static void update_slice(evaluation *ev, const tir_stage *stage, const stage_code *code, entry *slice,
                         const int64_t *own_extent) {
    int64_t own[DLC_MAX_RANK];
    uint64_t old[TIR_MAX_STATE], next[TIR_MAX_STATE];
    bool inside = true;
    if (stage->predicate && !evaluate_code(ev, &code->predicate, NULL, stage->fold)) return;
    for (int d = 0; d < stage->space; d++) {
        own[d] = is_parallel(stage, d) ? 0 : (int64_t)evaluate_code(ev, &code->index[d], NULL, stage->fold);
        inside = inside && own[d] >= 0 && own[d] < own_extent[d];
    }
    if (!inside) return;
    const int64_t at = number_of(stage->space, own_extent, own);
    for (int c = 0; c < stage->count; c++) old[c] = slice->slice[c][at];
    for (int c = 0; c < stage->count; c++) next[c] = evaluate_code(ev, &code->value[c], old, stage->fold);
    for (int c = 0; c < stage->count; c++) slice->slice[c][at] = next[c];
}

/* Initial values, then all updates, of the points that share the parallel coordinates of `point`. */
static void scatter_slice(evaluation *ev, const tir_stage *stage, const stage_code *code, entry *slice,
                          int64_t *point) {
    const int64_t *extent = code->extent + stage->space;
    int64_t own[DLC_MAX_RANK] = {0}, own_extent[DLC_MAX_RANK], update[TIR_MAX_AXES] = {0};
    for (int d = 0; d < stage->space; d++) own_extent[d] = is_parallel(stage, d) ? 1 : code->extent[d];
    const int64_t count = volume(ev, stage->space, own_extent);
    for (int c = 0; c < stage->count; c++) slice->slice[c] = LIB_NEW_ARRAY(ev->arena, uint64_t, (size_t)count);
    for (int64_t n = 0; n < count; n++, next_point(stage->space, own_extent, own)) {
        for (int d = 0; d < stage->space; d++) bind(ev, &stage->axis[d], is_parallel(stage, d) ? point[d] : own[d]);
        for (int c = 0; c < stage->count; c++)
            slice->slice[c][n] = evaluate_code(ev, &code->initial[c], NULL, stage->fold);
    }
    if (volume(ev, stage->reduce, extent) == 0) return;
    do {
        for (int i = 0; i < stage->reduce; i++) bind(ev, &stage->axis[stage->space + i], update[i]);
        update_slice(ev, stage, code, slice, own_extent);
    } while (next_point(stage->reduce, extent, update));
}

static uint64_t scatter_value(evaluation *ev, uint32_t s, int component, int64_t *point) {
    const tir_stage *stage = &ev->region->stages.data[s];
    const stage_code *code = &ev->stages[s];
    int64_t key[DLC_MAX_RANK], own[DLC_MAX_RANK], own_extent[DLC_MAX_RANK];
    for (int d = 0; d < stage->space; d++) {
        key[d] = is_parallel(stage, d) ? point[d] : 0;
        own[d] = is_parallel(stage, d) ? 0 : point[d];
        own_extent[d] = is_parallel(stage, d) ? 1 : code->extent[d];
    }
    int64_t number = number_of(stage->space, code->extent, key);
    entry *slice = find_entry(ev, s, number);
    if (!slice) {
        slice = add_entry(ev, s, number);
        scatter_slice(ev, stage, code, slice, point);
    }
    return slice->slice[component][number_of(stage->space, own_extent, own)];
}

/* State after `time` steps. Old states are kept: a step tensor of any time may be evaluated later. */
static uint64_t fold_value(evaluation *ev, uint32_t s, int component, const int64_t *point, int64_t time) {
    const tir_stage *stage = &ev->region->stages.data[s];
    const stage_code *code = &ev->stages[s];
    const int space = stage->space;
    const int64_t steps = code->extent[space] > 0 ? code->extent[space] : 0;
    int64_t own_count[TIR_MAX_STATE], outer_time = ev->time[s];
    int64_t number = number_of(space, code->extent, point);
    for (int i = 0; i < space; i++) bind(ev, &stage->axis[i], point[i]);
    for (int c = 0; c < stage->count; c++)
        own_count[c] =
            volume(ev, ev->region->tensors.data[stage->tensor[c]].rank - space, ev->extent[stage->tensor[c]] + space);
    entry *states = find_entry(ev, s, number);
    if (!states) {
        states = add_entry(ev, s, number);
        for (int c = 0; c < stage->count; c++) {
            states->slice[c] = lib_arena_array(ev->arena, (size_t)(steps + 1), (size_t)own_count[c] * sizeof(uint64_t));
            uint64_t initial = evaluate_code(ev, &code->initial[c], NULL, stage->fold);
            for (int64_t n = 0; n < own_count[c]; n++) states->slice[c][n] = initial;
        }
    }
    for (; states->time < time; states->time++) {
        ev->time[s] = states->time;
        for (int c = 0; c < stage->count; c++) {
            const tir_tensor *tensor = &ev->region->tensors.data[stage->tensor[c]];
            const tir_node *next = tir_get(ev->pool, stage->value[c]);
            const int own_rank = tensor->rank - space, given = next->count - own_rank;
            int64_t own[DLC_MAX_RANK] = {0}, index[DLC_MAX_RANK];
            for (int64_t n = 0; n < own_count[c];
                 n++, next_point(own_rank, ev->extent[stage->tensor[c]] + space, own)) {
                for (int i = 0; i < space; i++) bind(ev, &stage->axis[i], point[i]);
                bind(ev, &stage->axis[space], states->time);
                for (int i = 0; i < given; i++)
                    index[i] = (int64_t)evaluate_code(ev, &code->next_index[c][i], NULL, stage->fold);
                for (int i = given; i < next->count; i++) index[i] = own[i - given];
                states->slice[c][(states->time + 1) * own_count[c] + n] =
                    tensor_value(ev, (uint32_t)next->bits, index, (int32_t)s);
            }
        }
    }
    ev->time[s] = outer_time;
    const uint32_t tensor = stage->tensor[component];
    int64_t own = number_of(ev->region->tensors.data[tensor].rank - space, ev->extent[tensor] + space, point + space);
    return states->slice[component][time * own_count[component] + own];
}

/* Sorts the line of a point, by insertion. */
static uint64_t sort_value(evaluation *ev, uint32_t s, int64_t *point) {
    const tir_stage *stage = &ev->region->stages.data[s];
    const stage_code *code = &ev->stages[s];
    const int last = stage->space - 1;
    const int64_t n = code->extent[stage->space], t = point[last];
    const uint64_t mask = stage->bits < 64 ? (UINT64_C(1) << stage->bits) - 1 : UINT64_MAX;
    int64_t line[DLC_MAX_RANK];
    memcpy(line, point, sizeof *line * (size_t)stage->space);
    line[last] = 0;
    int64_t number = number_of(stage->space, code->extent, line);
    entry *known = find_entry(ev, s, number);
    if (known) return known->slice[0][t];
    uint64_t *keys = LIB_NEW_ARRAY(ev->arena, uint64_t, (size_t)n),
             *values = LIB_NEW_ARRAY(ev->arena, uint64_t, (size_t)n);
    for (int a = 0; a < last; a++) bind(ev, &stage->axis[a], point[a]);
    for (int64_t i = 0; i < n; i++) {
        bind(ev, &stage->axis[stage->space], i);
        uint64_t key = evaluate_code(ev, &code->initial[0], NULL, stage->fold) & mask;
        uint64_t value = evaluate_code(ev, &code->value[0], NULL, stage->fold);
        int64_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--) {
            keys[at] = keys[at - 1];
            values[at] = values[at - 1];
        }
        keys[at] = key;
        values[at] = value;
    }
    add_entry(ev, s, number)->slice[0] = values;
    return values[t];
}

static uint64_t point_value(evaluation *ev, uint32_t s, int component, const int64_t *point) {
    const tir_stage *stage = &ev->region->stages.data[s];
    const stage_code *code = &ev->stages[s];
    uint64_t value[TIR_MAX_STATE];
    int64_t outer_time = stage->fold >= 0 ? ev->time[stage->fold] : 0;
    int64_t number = number_of(stage->space, code->extent, point);
    /* A step stage without a time axis has one value for each time, which its point does not identify. */
    bool remember = stage->fold < 0 || code->time_axis >= 0;
    const entry *known = remember ? find_entry(ev, s, number) : NULL;
    if (known) return known->value[component];
    if (stage->fold >= 0 && code->time_axis >= 0) ev->time[stage->fold] = point[code->time_axis];
    for (int i = 0; i < stage->space; i++) bind(ev, &stage->axis[i], point[i]);
    if (stage->kind == TIR_REDUCE)
        reduce_state(ev, stage, code, value);
    else
        for (int c = 0; c < stage->count; c++) value[c] = evaluate_code(ev, &code->value[c], NULL, stage->fold);
    if (remember) memcpy(add_entry(ev, s, number)->value, value, sizeof *value * (size_t)stage->count);
    if (stage->fold >= 0) ev->time[stage->fold] = outer_time;
    return value[component];
}

/* ---- tensors */

/* Physical offset in elements, from the definition in tir/layout.h. */
static int64_t input_offset(const evaluation *ev, uint32_t id, const int64_t *index) {
    const tir_tensor *t = &ev->region->tensors.data[id];
    int64_t offset = 0;
    if (t->has_strides) {
        for (int d = 0; d < t->rank; d++) offset += index[d] * t->stride[d];
    } else if (t->layout.count == 0) {
        offset = number_of(t->rank, ev->extent[id], index);
    } else {
        for (int k = 0; k < t->layout.count; k++) {
            const tir_layout_part *part = &t->layout.part[k];
            int64_t size = part->modulus, at = index[part->dim] / part->divisor;
            if (size) at %= size;
            if (!size) size = (ev->extent[id][part->dim] + part->divisor - 1) / part->divisor;
            offset = offset * size + at;
        }
    }
    return offset;
}

static void check_bounds(const evaluation *ev, uint32_t id, const int64_t *index) {
    const tir_tensor *t = &ev->region->tensors.data[id];
    for (int d = 0; d < t->rank; d++)
        if (index[d] < 0 || index[d] >= ev->extent[id][d])
            fail(ev, t->name,
                 lib_arena_format(ev->arena, "index %lld of dimension %d is outside of extent %lld",
                                  (long long)index[d], d, (long long)ev->extent[id][d]));
}

static uint64_t tensor_value(evaluation *ev, uint32_t id, const int64_t *index, int32_t reader_fold) {
    const tir_tensor *t = &ev->region->tensors.data[id];
    check_bounds(ev, id, index);
    if (t->stage < 0) {
        const char *base = ev->inputs[t->argument];
        return tir_bits_load((tir_dtype)t->dtype,
                             base + input_offset(ev, id, index) * (int64_t)lib_dtype_size(t->dtype));
    }
    const uint32_t s = (uint32_t)t->stage;
    const tir_stage *stage = &ev->region->stages.data[s];
    int64_t point[DLC_MAX_RANK];
    uint64_t saved[TIR_MAX_AXES], value;
    memcpy(point, index, sizeof *point * (size_t)t->rank);
    save_axes(ev, stage, saved);
    if (stage->kind == TIR_SCATTER)
        value = scatter_value(ev, s, t->component, point);
    else if (stage->kind == TIR_SORT)
        value = sort_value(ev, s, point);
    else if (stage->kind == TIR_FOLD)
        value = fold_value(ev, s, t->component, point,
                           reader_fold == t->stage                  ? ev->time[s]
                           : ev->stages[s].extent[stage->space] > 0 ? ev->stages[s].extent[stage->space]
                                                                    : 0);
    else
        value = point_value(ev, s, t->component, point);
    restore_axes(ev, stage, saved);
    return value;
}

/* ---- setting up */

static int64_t evaluate_extent(evaluation *ev, tir_expr e) {
    expression extent = compile(ev, e);
    return (int64_t)evaluate_code(ev, &extent, NULL, -1);
}

/* A load that reads a step tensor of the fold at `time` determines the step's time axis by that index's position. A load that
 * uses the time in other dimensions, too (a pivot), is ignored; other loads determine it. */
static void find_time_axes(evaluation *ev, const expression *code, int32_t fold, tir_expr time) {
    for (uint32_t i = 0; i < code->count; i++) {
        const tir_node *node = tir_get(ev->pool, code->nodes[i]);
        if (node->op != TIR_LOAD) continue;
        int32_t s = ev->region->tensors.data[node->bits].stage;
        if (s < 0 || ev->region->stages.data[s].fold != fold) continue;
        const int rank = node->guarded ? node->count - 2 : node->count;
        int first = -1, count = 0;
        for (int d = rank; d-- > 0;)
            if (tir_operand(ev->pool, code->nodes[i], d) == time) first = d, count++;
        if (count == 1 || (count > 1 && ev->stages[s].time_axis < 0)) ev->stages[s].time_axis = first;
    }
}

static void compile_stage(evaluation *ev, uint32_t s) {
    const tir_stage *stage = &ev->region->stages.data[s];
    stage_code *code = &ev->stages[s];
    for (int i = 0; i < stage->space + stage->reduce; i++) code->extent[i] = evaluate_extent(ev, stage->axis[i].extent);
    for (int c = 0; c < stage->count; c++) {
        code->value[c] = compile(ev, stage->value[c]);
        code->initial[c] = compile(ev, stage->initial[c]);
        if (stage->kind != TIR_FOLD) continue;
        const int count = tir_get(ev->pool, stage->value[c])->count;
        if (tir_op_of(ev->pool, stage->value[c]) != TIR_LOAD) fail(ev, stage->name, "the next state is not a load");
        code->next_index[c] = LIB_NEW_ARRAY(ev->arena, expression, (size_t)count);
        for (int i = 0; i < count; i++) code->next_index[c][i] = compile(ev, tir_operand(ev->pool, stage->value[c], i));
    }
    code->predicate = compile(ev, stage->predicate);
    for (int d = 0; stage->kind == TIR_SCATTER && d < stage->space; d++) code->index[d] = compile(ev, stage->index[d]);
    code->time_axis = -1;
}

static void find_times(evaluation *ev) {
    const tir_region *region = ev->region;
    for (uint32_t s = region->stages.count; s-- > 0;) { /* users come after producers, steps after their fold */
        const tir_stage *stage = &region->stages.data[s];
        if (stage->kind != TIR_FOLD) continue;
        for (int c = 0; c < stage->count; c++)
            find_time_axes(ev, &ev->stages[s].value[c], (int32_t)s, stage->axis[stage->space].var);
        for (uint32_t k = region->stages.count; k-- > 0;) {
            const tir_stage *step = &region->stages.data[k];
            if (step->fold != (int32_t)s || ev->stages[k].time_axis < 0) continue;
            for (int c = 0; c < step->count; c++)
                find_time_axes(ev, &ev->stages[k].value[c], (int32_t)s, step->axis[ev->stages[k].time_axis].var);
        }
    }
}

void tir_region_evaluate(lib_arena *scratch, tir_region *region, void *const *inputs, const int64_t *params,
                         uint32_t tensor, int64_t points, const int64_t *point, tir_rounding rounding,
                         uint64_t *result) {
    evaluation ev = {.arena = scratch, .region = region, .pool = region->pool, .inputs = inputs, .rounding = rounding};
    ev.variables = LIB_NEW_ARRAY(scratch, uint64_t, region->pool->variables.count);
    ev.time = LIB_NEW_ARRAY(scratch, int64_t, region->stages.count);
    ev.stages = LIB_NEW_ARRAY(scratch, stage_code, region->stages.count);
    ev.extent = lib_arena_array(scratch, region->tensors.count, sizeof *ev.extent);
    for (uint32_t i = 0; i < region->params.count; i++)
        ev.variables[tir_var_id(region->pool, region->params.data[i])] = (uint64_t)params[i];
    for (uint32_t i = 0; i < region->tensors.count; i++)
        for (int d = 0; d < region->tensors.data[i].rank; d++)
            ev.extent[i][d] = evaluate_extent(&ev, region->tensors.data[i].extent[d]);
    for (uint32_t i = 0; i < region->stages.count; i++)
        if (!region->stages.data[i].removed) compile_stage(&ev, i);
    find_times(&ev);
    const int rank = region->tensors.data[tensor].rank;
    for (int64_t p = 0; p < points; p++) result[p] = tensor_value(&ev, tensor, point + p * rank, -1);
}
