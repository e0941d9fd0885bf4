/* expand S.i 68 -> o i : a space axis whose extent is a multiple of 68 becomes two, and so does the dimension of the stage's results. Where
 * an operand is indexed by i/68 (a convolution whose channels are in groups), the operand then depends on o alone, and its elements can be
 * reused along i. If an axis and a dimension that it indexes have equal extents and one of them becomes two, so does the other, through all
 * stages; so do dimensions of inputs that only such axes index; any other index e of a
 * dimension that became two becomes e/68 and e%68. Order, values and addresses are unchanged. A constant whose dimension became two can no
 * longer have a layout of its own. */
#include "tir/schedule_internal.h"

enum { NONE = -1, REFUSED = -2 };

typedef struct expansion {
    tir_schedule_state *state;
    tir_region *region;
    tir_pool *pool;
    const char *outer, *inner;
    int64_t factor;
    /* by stage: the axis that becomes two; by tensor: the dimension; -1: none */
    int *axis, *dimension;
    /* the stage whose loads are visited */
    int reader;
    bool changed;
    /* of `reader`: its axis, and what it becomes */
    tir_expr from, to;
} expansion;

static tir_stage *stage_at(const expansion *x, int s) {
    return &x->region->stages.data[s];
}

/* NULL: the space axis can become two; else the reason why not. */
static const char *refusal(const expansion *x, int s, int a) {
    const tir_stage *stage = stage_at(x, s);
    int64_t extent;
    if (stage->kind != TIR_MAP && stage->kind != TIR_REDUCE) return "it is neither a map nor a reduction";
    if (stage->fold >= 0) return "it is a step of a fold";
    if (!tir_is_const(x->pool, stage->axis[a].extent, &extent)) return "the axis' extent varies";
    if (extent % x->factor || extent <= x->factor) return "the axis' extent is no multiple of the factor";
    if (stage->space == DLC_MAX_RANK || stage->space + stage->reduce == TIR_MAX_AXES) return "it has too many axes";
    for (int k = 0; k < stage->count; k++)
        if (!tir_layout_is_identity(&x->region->tensors.data[stage->tensor[k]].layout))
            return "its result has a layout of its own";
    return NULL;
}

static int space_axis(const expansion *x, int s, tir_expr var) {
    const tir_stage *stage = stage_at(x, s);
    for (int a = 0; a < stage->space; a++)
        if (stage->axis[a].var == var) return a;
    return -1;
}

static void mark(expansion *x, int s, int a) {
    if (a < 0 || x->axis[s] >= 0 || refusal(x, s, a)) return;
    x->axis[s] = a;
    x->changed = true;
}

/* If an axis of the reader indexes a dimension of equal extent of a stage's tensor, and one of the two is marked, marks the other. */
static void mark_together(void *user, tir_expr load) {
    expansion *x = user;
    const int maker = x->region->tensors.data[tir_get(x->pool, load)->bits].stage;
    if (maker < 0) return;
    for (int d = 0; d < stage_at(x, maker)->space; d++) {
        const int a = space_axis(x, x->reader, tir_operand(x->pool, load, d));
        if (a < 0 || stage_at(x, x->reader)->axis[a].extent != stage_at(x, maker)->axis[d].extent) continue;
        if (x->axis[maker] == d) mark(x, x->reader, a);
        if (x->axis[x->reader] == a) mark(x, maker, d);
    }
}

/* dimension[t] of an input t: the dimension that every load of t indexes by an axis that becomes two; REFUSED: some load does not. */
static void mark_input(void *user, tir_expr load) {
    expansion *x = user;
    const uint32_t t = (uint32_t)tir_get(x->pool, load)->bits;
    const tir_tensor *tensor = &x->region->tensors.data[t];
    const int a = x->axis[x->reader];
    int found = NONE;
    if (tensor->stage >= 0) return;
    for (int d = 0; d < tensor->rank && a >= 0; d++)
        if (tir_operand(x->pool, load, d) == stage_at(x, x->reader)->axis[a].var) found = found == NONE ? d : REFUSED;
    const bool alike = found >= 0 && tensor->extent[found] == stage_at(x, x->reader)->axis[a].extent &&
                       tensor->rank < DLC_MAX_RANK && tir_layout_is_identity(&tensor->layout);
    if (!alike || (x->dimension[t] != NONE && x->dimension[t] != found)) found = REFUSED;
    x->dimension[t] = found;
}

static tir_expr replace_axis(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const expansion *x = user;
    (void)pool;
    return e == x->from ? x->to : rebuilt;
}

static tir_expr divide_index(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const expansion *x = user;
    const tir_node node = *tir_get(pool, rebuilt);
    (void)e;
    if (node.op != TIR_LOAD) return rebuilt;
    const int divided = x->dimension[node.bits], rank = x->region->tensors.data[node.bits].rank;
    if (divided < 0 || node.count - (node.guarded ? 2 : 0) != rank) return rebuilt;
    tir_expr index[DLC_MAX_RANK], factor = tir_index(pool, x->factor);
    for (int d = 0, to = 0; d < rank; d++) {
        const tir_expr here = tir_operand(pool, rebuilt, d);
        index[to++] = d == divided ? tir_div(pool, here, factor) : here;
        if (d == divided) index[to++] = tir_rem(pool, here, factor);
    }
    return tir_load(pool, (uint32_t)node.bits, node.dtype, rank + 1, index,
                    node.guarded ? tir_operand(pool, rebuilt, rank) : 0,
                    node.guarded ? tir_operand(pool, rebuilt, rank + 1) : 0);
}

static const char *axis_name(const expansion *x, const tir_stage *stage, const char *name) {
    for (int number = 2;; number++) {
        const char *tried = number == 2 ? name : lib_arena_format(x->region->arena, "%s%d", name, number);
        bool taken = false;
        for (int a = 0; a < stage->space + stage->reduce; a++) taken = taken || strcmp(stage->axis[a].name, tried) == 0;
        if (!taken) return tried;
    }
}

static void divide_axis(expansion *x, int s) {
    tir_stage *stage = stage_at(x, s);
    const int a = x->axis[s];
    const tir_axis whole = stage->axis[a];
    const tir_expr factor = tir_index(x->pool, x->factor);
    const tir_axis outer =
        tir_new_axis(x->state, axis_name(x, stage, x->outer), whole.role, tir_div(x->pool, whole.extent, factor));
    const tir_axis inner = tir_new_axis(x->state, axis_name(x, stage, x->inner), whole.role, factor);
    x->from = whole.var;
    x->to = tir_add(x->pool, tir_mul(x->pool, outer.var, factor), inner.var);
    tir_rewrite_stage(x->pool, stage, replace_axis, x);
    memmove(&stage->axis[a + 2], &stage->axis[a + 1],
            (size_t)(stage->space + stage->reduce - a - 1) * sizeof *stage->axis);
    stage->axis[a] = outer;
    stage->axis[a + 1] = inner;
    stage->space++;
}

/* The condition of known zeros, at positions along the two dimensions that were d before. */
static void divide_positions(expansion *x, tir_tensor *tensor, int d, const tir_tensor *before) {
    const char *names[DLC_MAX_RANK];
    tir_expr to[DLC_MAX_RANK];
    for (int i = 0; i < tensor->rank; i++)
        names[i] = tir_variable_of(x->pool, before->position[i > d ? i - 1 : i])->name;
    tir_region_positions(x->region, (uint32_t)(tensor - x->region->tensors.data), names);
    for (int i = 0; i < before->rank; i++) to[i] = tensor->position[i > d ? i + 1 : i];
    to[d] = tir_add(x->pool, tir_mul(x->pool, to[d], tir_index(x->pool, x->factor)), tensor->position[d + 1]);
    tensor->nonzero = tir_substitute(x->pool, before->nonzero, before->rank, before->position, to);
}

static void divide_dimension(expansion *x, tir_tensor *tensor, int d) {
    const tir_expr factor = tir_index(x->pool, x->factor);
    const tir_tensor before = *tensor;
    const size_t after = (size_t)(tensor->rank - d);
    memmove(&tensor->extent[d + 1], &tensor->extent[d], after * sizeof *tensor->extent);
    memmove(&tensor->stride[d + 1], &tensor->stride[d], after * sizeof *tensor->stride);
    tensor->extent[d] = tir_div(x->pool, tensor->extent[d], factor);
    tensor->extent[d + 1] = factor;
    tensor->stride[d] *= x->factor;
    tensor->layout = tir_layout_identity(++tensor->rank);
    tensor->constant = false;
    if (tensor->nonzero) divide_positions(x, tensor, d, &before);
}

/* Marks the axis that `name` (stage.axis) names; raises if it cannot become two. */
static void begin(expansion *x, char *name) {
    char *dot = strrchr(name, '.');
    if (!dot) tir_schedule_raise(x->state, "%s: expected stage.axis", name);
    *dot = 0;
    const int s = tir_find_stage(x->state, name);
    const tir_stage *stage = stage_at(x, s);
    int a = 0;
    while (a < stage->space && strcmp(stage->axis[a].name, dot + 1) != 0) a++;
    if (a == stage->space) tir_schedule_raise(x->state, "stage %s has no axis %s of its result", name, dot + 1);
    const char *reason = refusal(x, s, a);
    if (reason) tir_schedule_raise(x->state, "%s.%s: %s", name, dot + 1, reason);
    x->axis[s] = a;
}

/* Marks the axes and dimensions of all stages that become two together with the marked axis. */
static void mark_all(expansion *x, int count) {
    do {
        x->changed = false;
        for (x->reader = 0; x->reader < count; x->reader++)
            if (!stage_at(x, x->reader)->removed) tir_stage_loads(x->region, x->reader, mark_together, x);
    } while (x->changed);
    for (int s = 0; s < count; s++)
        for (int k = 0; x->axis[s] >= 0 && k < stage_at(x, s)->count; k++)
            x->dimension[stage_at(x, s)->tensor[k]] = x->axis[s];
    for (x->reader = 0; x->reader < count; x->reader++)
        if (!stage_at(x, x->reader)->removed) tir_stage_loads(x->region, x->reader, mark_input, x);
}

void tir_apply_expand(tir_schedule_state *state, lib_lexer *lexer) {
    tir_region *region = state->region;
    expansion x = {.state = state, .region = region, .pool = region->pool};
    const int count = (int)region->stages.count;
    x.axis = LIB_NEW_ARRAY(state->arena, int, (size_t)count + 1);
    x.dimension = LIB_NEW_ARRAY(state->arena, int, region->tensors.count + 1);
    for (int s = 0; s < count; s++) x.axis[s] = NONE;
    for (uint32_t t = 0; t < region->tensors.count; t++) x.dimension[t] = NONE;
    char *name = lib_lexer_name(lexer);
    x.factor = lib_lexer_integer(lexer);
    lib_lexer_expect(lexer, "->");
    x.outer = lib_lexer_name(lexer);
    x.inner = lib_lexer_name(lexer);
    if (x.factor < 2) tir_schedule_raise(state, "a factor of at least 2 was expected");
    if (strcmp(x.outer, x.inner) == 0) tir_schedule_raise(state, "the two axes need two names");
    begin(&x, name);
    mark_all(&x, count);
    for (int s = 0; s < count; s++)
        if (x.axis[s] >= 0) divide_axis(&x, s);
    for (int s = 0; s < count; s++)
        if (!stage_at(&x, s)->removed) tir_rewrite_stage(x.pool, stage_at(&x, s), divide_index, &x);
    for (uint32_t t = 0; t < region->tensors.count; t++)
        if (x.dimension[t] >= 0) divide_dimension(&x, &region->tensors.data[t], x.dimension[t]);
}
