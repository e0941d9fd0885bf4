/* Invariants of regions. Messages cite them:
 *   R1  names are not empty; those of stages differ, those of tensors differ
 *   R2  a tensor has rank 0..DLC_MAX_RANK, a usable dtype, extents over parameters only
 *   R3  a tensor of a stage is that component of it; tensors without a stage are inputs
 *   R4  arguments are numbered without gaps: inputs 0.., then outputs
 *   R5  a layout has its tensor's rank and is a bijection; strides only on inputs with the identity layout
 *   R6  axes have variables of their own; a tensor's extents are those of its stage's space axes (fold: the leading ones)
 *   R7  expressions use their stage's axes and the region's parameters only; next of a fold: its axes
 *   R9  a load names an existing tensor, with its rank and dtype, of an earlier stage that is not removed; a step may also load its
 *       fold's state, and next the fold's steps
 *   R10 a map has no reduction axes; a reduction with a merge has a constant initial value; a fold has one reduction axis and its next are
 *       loads of its own steps; a scatter has an index per dimension, and axes that it indexes are not used otherwise
 *   R11 acc occurs in updates and merges, other in merges, with the dtype of a component
 *   R12 parameters are distinct variables
 *   R13 no operator of loop IR: fma, units
 *   R14 a step stage belongs to an earlier fold
 *   R15 a sort has one value, at most as many ranks as elements, and a key of 1..64 bits; neither key nor value depends on the rank
 *   R16 only inputs have a condition of known zeros, over their positions and the region's parameters, without loads */
#include "tir/region.h"

typedef struct verifier {
    lib_scope *scope;
    const tir_region *region;
    const tir_pool *pool;
    /* of the stage or tensor being checked */
    const char *name;
    /* the current stage, or -1 */
    int32_t stage;
    /* by node, during one expression */
    uint8_t *seen;
    lib_vec(tir_expr) stack, visited;
    /* what the current expression may contain */
    bool axes, acc, other, is_next;
    /* it may use the axes below this one */
    int axis_limit;
    /* whose positions it may use; NULL: none */
    const tir_tensor *positions;
} verifier;

_Noreturn static void fail(const verifier *v, const char *what) {
    lib_raise(v->scope, DLC_INTERNAL, "region %s, %s: %s", v->region->name, v->name, what);
}
static void require(const verifier *v, bool holds, const char *what) {
    if (!holds) fail(v, what);
}

static const tir_stage *stage_of(const verifier *v) {
    return &v->region->stages.data[v->stage];
}

/* ---- expressions */

static void check_variable(const verifier *v, tir_expr e) {
    for (uint32_t i = 0; i < v->region->params.count; i++)
        if (v->region->params.data[i] == e) return;
    if (v->stage >= 0 && v->axes)
        for (int i = 0; i < v->axis_limit; i++)
            if (stage_of(v)->axis[i].var == e) return;
    for (int i = 0; v->positions && i < v->positions->rank; i++)
        if (v->positions->position[i] == e) return;
    lib_raise(v->scope, DLC_INTERNAL, "region %s, %s: R7: variable %s is not one of its axes or parameters",
              v->region->name, v->name, tir_variable_of(v->pool, e)->name);
}

static void check_load(const verifier *v, const tir_node *node) {
    require(v, node->bits < v->region->tensors.count, "R9: load of a tensor that does not exist");
    const tir_tensor *t = &v->region->tensors.data[node->bits];
    require(v, node->count - (node->guarded ? 2 : 0) == t->rank, "R9: load with a wrong number of indices");
    require(v, node->dtype == (tir_dtype)t->dtype, "R9: load of another dtype than the tensor's");
    require(v, v->stage >= 0, "R9: an extent or a condition of known zeros loads");
    if (t->stage < 0) return;
    const tir_stage *producer = &v->region->stages.data[t->stage];
    if (producer->removed)
        lib_raise(v->scope, DLC_INTERNAL, "region %s, %s: R9: load of %s, whose stage is removed", v->region->name,
                  v->name, t->name);
    bool earlier = t->stage < v->stage || (v->is_next && producer->fold == v->stage);
    if (!earlier)
        lib_raise(v->scope, DLC_INTERNAL, "region %s, %s: R9: load of %s, which is not computed before",
                  v->region->name, v->name, t->name);
}

static void check_node(const verifier *v, tir_expr e) {
    const tir_node *node = tir_get(v->pool, e);
    switch (node->op) {
    case TIR_VAR: check_variable(v, e); break;
    case TIR_LOAD: check_load(v, node); break;
    case TIR_FMA:
    case TIR_LDEXP:
    case TIR_DOT2_BF16:
    case TIR_DOT2_I16:
    case TIR_DOT4_U8I8: fail(v, "R13: operator of loop IR in a stage"); break;
    case TIR_ACC:
    case TIR_OTHER:
        require(v, node->op == TIR_ACC ? v->acc : v->other, "R11: acc or other outside of an update or merge");
        require(v, v->stage >= 0 && node->bits < (uint64_t)stage_of(v)->count, "R11: no such component");
        require(v, node->dtype == (tir_dtype)v->region->tensors.data[stage_of(v)->tensor[node->bits]].dtype,
                "R11: dtype of acc or other");
        break;
    default: break;
    }
}

static void check_expr(verifier *v, tir_expr root, tir_dtype dtype, const char *what) {
    require(v, root > 0 && root < v->pool->nodes.count, "R8: an expression is missing");
    if (tir_dtype_of(v->pool, root) != dtype)
        lib_raise(v->scope, DLC_INTERNAL, "region %s, %s: R8: %s is %s, expected %s", v->region->name, v->name, what,
                  tir_dtype_name(tir_dtype_of(v->pool, root)), tir_dtype_name(dtype));
    lib_arena *arena = v->region->arena;
    v->stack.count = v->visited.count = 0;
    lib_vec_push(arena, &v->stack, root);
    while (v->stack.count) {
        tir_expr e = v->stack.data[--v->stack.count];
        if (v->seen[e]) continue;
        v->seen[e] = 1;
        lib_vec_push(arena, &v->visited, e);
        check_node(v, e);
        for (int i = 0; i < tir_get(v->pool, e)->count; i++) lib_vec_push(arena, &v->stack, tir_operand(v->pool, e, i));
    }
    for (uint32_t i = 0; i < v->visited.count; i++) v->seen[v->visited.data[i]] = 0;
}

static void check_extent(verifier *v, tir_expr extent) {
    v->axes = v->acc = v->other = v->is_next = false;
    check_expr(v, extent, TIR_INDEX, "an extent");
}

/* ---- tensors */

static void check_argument(const verifier *v, uint32_t id) {
    const tir_tensor *t = &v->region->tensors.data[id];
    require(v, t->stage >= 0 || (t->argument >= 0 && t->argument < v->region->inputs && !t->output),
            "R4: a tensor without a stage is an input");
    require(v,
            t->stage < 0 ||
                (t->output ? t->argument >= v->region->inputs && t->argument < v->region->inputs + v->region->outputs
                           : t->argument < 0),
            "R4: argument position of an output or internal tensor");
    for (uint32_t i = 0; i < id && t->argument >= 0; i++)
        require(v, v->region->tensors.data[i].argument != t->argument, "R4: two tensors are one argument");
}

static void check_tensor(verifier *v, uint32_t id) {
    const tir_tensor *t = &v->region->tensors.data[id];
    v->name = t->name && t->name[0] ? t->name : "a tensor";
    v->stage = -1;
    require(v, t->name && t->name[0], "R1: it has no name");
    for (uint32_t i = 0; i < id; i++)
        require(v, strcmp(v->region->tensors.data[i].name, t->name) != 0, "R1: two tensors have this name");
    require(v, t->rank >= 0 && t->rank <= DLC_MAX_RANK, "R2: rank");
    require(v, t->dtype < DLC_DTYPE_COUNT && lib_dtypes[t->dtype].usable, "R2: dtype is not usable");
    for (int d = 0; d < t->rank; d++) check_extent(v, t->extent[d]);
    if (t->stage >= 0) {
        require(v, t->stage < (int32_t)v->region->stages.count, "R3: its stage does not exist");
        const tir_stage *stage = &v->region->stages.data[t->stage];
        require(v, t->component >= 0 && t->component < stage->count && stage->tensor[t->component] == id,
                "R3: its stage does not know it");
        if (stage->removed) require(v, !t->output, "R3: output of a removed stage");
    }
    check_argument(v, id);
    require(v, t->layout.rank == t->rank, "R5: rank of the layout");
    tir_layout_verify(v->scope, &t->layout, t->name);
    require(v, !t->has_strides || (t->stage < 0 && tir_layout_is_identity(&t->layout)),
            "R5: strides on something other than an input with the identity layout");
    if (!t->nonzero) return;
    require(v, t->stage < 0, "R16: known zeros of something other than an input");
    v->positions = t;
    check_expr(v, t->nonzero, DLC_BOOL, "the condition of known zeros");
    v->positions = NULL;
}

/* ---- stages */

static void check_axes(verifier *v, const tir_stage *stage) {
    require(v, stage->space >= 0 && stage->reduce >= 0 && stage->space + stage->reduce <= TIR_MAX_AXES,
            "R6: number of axes");
    require(v, stage->space <= DLC_MAX_RANK, "R6: more space axes than dimensions");
    for (int i = 0; i < stage->space + stage->reduce; i++) {
        const tir_axis *axis = &stage->axis[i];
        require(v, axis->name && axis->name[0], "R1: an axis has no name");
        require(v,
                axis->var && tir_op_of(v->pool, axis->var) == TIR_VAR &&
                    tir_variable_of(v->pool, axis->var)->kind == TIR_VAR_AXIS,
                "R6: an axis has no variable");
        for (int k = 0; k < i; k++) require(v, stage->axis[k].var != axis->var, "R6: two axes share a variable");
        check_extent(v, axis->extent);
    }
    require(v, stage->count > 0 && stage->count <= TIR_MAX_STATE, "R3: number of values");
    for (int c = 0; c < stage->count; c++) {
        require(v, stage->tensor[c] < v->region->tensors.count, "R3: tensor of a value");
        const tir_tensor *t = &v->region->tensors.data[stage->tensor[c]];
        require(v, t->stage == v->stage && t->component == c, "R3: its tensor belongs to another stage");
        require(v, stage->kind == TIR_FOLD ? t->rank >= stage->space : t->rank == stage->space,
                "R6: rank of its tensor");
        for (int d = 0; d < stage->space; d++)
            require(v, t->extent[d] == stage->axis[d].extent, "R6: extents of its tensor are not those of the axes");
    }
}

static void check_scatter(verifier *v, const tir_stage *stage) {
    v->axes = true;
    v->acc = false;
    v->axis_limit = stage->space + stage->reduce;
    for (int d = 0; d < stage->space; d++) check_expr(v, stage->index[d], TIR_INDEX, "an index");
    for (int d = 0; d < stage->space; d++) {
        const tir_expr var = stage->axis[d].var;
        if (stage->index[d] == var) continue;
        bool used = stage->predicate && tir_uses(v->pool, stage->predicate, var);
        for (int i = 0; i < stage->space; i++) used = used || tir_uses(v->pool, stage->index[i], var);
        for (int c = 0; c < stage->count; c++) used = used || tir_uses(v->pool, stage->value[c], var);
        require(v, !used, "R10: a scattered axis is used by index, update or predicate");
    }
}

static void check_next(verifier *v, const tir_stage *stage, int component) {
    const tir_tensor *state = &v->region->tensors.data[stage->tensor[component]];
    const tir_node *next = tir_get(v->pool, stage->value[component]);
    require(v, next->op == TIR_LOAD && !next->guarded && next->bits < v->region->tensors.count,
            "R10: next is not a load");
    const tir_tensor *step = &v->region->tensors.data[next->bits];
    require(v, step->stage >= 0 && v->region->stages.data[step->stage].fold == v->stage, "R10: next is not of a step");
    require(v, next->count >= state->rank - stage->space, "R10: next has fewer indices than the state has own axes");
}

static void check_values(verifier *v, const tir_stage *stage) {
    const bool updates = stage->kind == TIR_REDUCE || stage->kind == TIR_SCATTER;
    for (int c = 0; c < stage->count; c++) {
        const tir_dtype dtype = (tir_dtype)v->region->tensors.data[stage->tensor[c]].dtype;
        v->axes = true;
        v->axis_limit = stage->space + stage->reduce;
        v->acc = updates;
        v->is_next = stage->kind == TIR_FOLD;
        v->other = false;
        if (stage->kind == TIR_FOLD) check_next(v, stage, c);
        check_expr(v, stage->value[c], dtype, "a value");
        v->acc = v->is_next = false;
        v->axis_limit = stage->space;
        if (stage->kind == TIR_SORT) {
            v->axis_limit = stage->space + stage->reduce;
            check_expr(v, stage->initial[c], stage->bits > 32 ? DLC_I64 : DLC_I32, "a key");
            const tir_expr t = stage->axis[stage->space - 1].var;
            require(v, !tir_uses(v->pool, stage->initial[c], t) && !tir_uses(v->pool, stage->value[c], t),
                    "R15: key or value of a sort depend on the rank");
        } else if (stage->kind != TIR_MAP)
            check_expr(v, stage->initial[c], dtype, "an initial value");
        require(v, stage->kind != TIR_REDUCE || !stage->merge[c] || tir_op_of(v->pool, stage->initial[c]) == TIR_CONST,
                "R10: the identity of a reduction that can be split is not constant");
        v->axis_limit = 0;
        v->acc = v->other = true;
        if (stage->kind == TIR_REDUCE && stage->merge[c]) check_expr(v, stage->merge[c], dtype, "a merge");
        require(v, (stage->merge[c] != 0) == (stage->merge[0] != 0), "R11: some components have a merge, others not");
        v->other = v->acc = false;
    }
}

static void check_sort(const verifier *v, const tir_stage *stage) {
    require(v, stage->space >= 1 && stage->reduce == 1 && stage->count == 1 && stage->fold < 0,
            "R15: a sort has one value, one axis to sort along and no fold");
    require(v,
            tir_prove(v->region->pool, tir_le(v->region->pool, stage->axis[stage->space - 1].extent,
                                              stage->axis[stage->space].extent)) != TIR_NO,
            "R15: a sort has at most as many ranks as elements");
    require(v, stage->bits >= 1 && stage->bits <= 64, "R15: bits of a sort's key");
}

/* Checks reduction axes, predicate, fold and place, by the kind of the stage. */
static void check_kind(const verifier *v, const tir_stage *stage) {
    require(v, stage->kind != TIR_MAP || stage->reduce == 0, "R10: a map with reduction axes");
    require(v, stage->kind != TIR_FOLD || stage->reduce == 1, "R10: a fold has one reduction axis");
    if (stage->kind == TIR_SORT) check_sort(v, stage);
    require(v, !stage->predicate || (stage->kind != TIR_MAP && stage->kind != TIR_SORT),
            "R10: predicate on a map or a sort");
    require(v, stage->fold < 0 || (stage->fold < v->stage && v->region->stages.data[stage->fold].kind == TIR_FOLD),
            "R14: it is a step of something that is no earlier fold");
    require(v, !stage->in_place || (stage->kind == TIR_SCATTER && v->region->tensors.data[stage->tensor[0]].output),
            "R10: only a scatter whose result is an output is in place");
}

static void check_stage(verifier *v, int32_t id) {
    const tir_stage *stage = &v->region->stages.data[id];
    v->stage = id;
    v->name = stage->name && stage->name[0] ? stage->name : "a stage";
    require(v, stage->name && stage->name[0], "R1: it has no name");
    if (stage->removed) return;
    for (int32_t i = 0; i < id; i++)
        require(v, v->region->stages.data[i].removed || strcmp(v->region->stages.data[i].name, stage->name) != 0,
                "R1: two stages have this name");
    check_axes(v, stage);
    check_kind(v, stage);
    check_values(v, stage);
    v->axes = true;
    v->axis_limit = stage->space + stage->reduce;
    if (stage->predicate) check_expr(v, stage->predicate, DLC_BOOL, "the predicate");
    if (stage->kind == TIR_SCATTER) check_scatter(v, stage);
}

void tir_region_verify(lib_scope *scope, tir_region *region) {
    verifier v = {.scope = scope, .region = region, .pool = region->pool, .name = "parameters", .stage = -1};
    v.seen = LIB_NEW_ARRAY(region->arena, uint8_t, region->pool->nodes.count);
    for (uint32_t i = 0; i < region->params.count; i++) {
        const tir_expr e = region->params.data[i];
        require(&v, tir_op_of(v.pool, e) == TIR_VAR && tir_variable_of(v.pool, e)->kind == TIR_VAR_PARAM,
                "R12: a parameter is no parameter variable");
        for (uint32_t k = 0; k < i; k++) require(&v, region->params.data[k] != e, "R12: a parameter stands twice");
    }
    int inputs = 0, outputs = 0;
    for (uint32_t i = 0; i < region->tensors.count; i++) {
        check_tensor(&v, i);
        inputs += region->tensors.data[i].stage < 0;
        outputs += region->tensors.data[i].output;
    }
    v.name = "arguments";
    require(&v, inputs == region->inputs && outputs == region->outputs, "R4: number of inputs or outputs");
    for (uint32_t i = 0; i < region->stages.count; i++) check_stage(&v, (int32_t)i);
}
