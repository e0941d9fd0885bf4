/* Queries about the accesses of stages: strides along axes, lanes, stages that run together. */
#include "targets/cpu/rules.h"
#include "tir/loop.h"

int64_t rules_store_stride(rules *r, int stage, int axis) {
    int64_t stride[TIR_MAX_AXES];
    tir_store_strides(r->region, stage, stride);
    return stride[axis];
}

int rules_dimension_of(const rules *r, const rules_access *access, tir_expr axis, int64_t *coefficient) {
    enum { TERMS = 16 };
    const tir_tensor *tensor = &r->region->tensors.data[access->tensor];
    tir_pool *pool = r->region->pool;
    tir_term term[TERMS];
    int64_t constant;
    int found = -1;
    for (int d = 0; d < tensor->rank; d++) {
        const tir_expr subscript = tir_operand(pool, access->load, d);
        if (!tir_uses(pool, subscript, axis)) continue;
        const int count = tir_terms(pool, subscript, term, TERMS, &constant);
        if (found >= 0 || count < 0) return -1;
        for (int t = 0; t < count; t++) {
            if (term[t].atom == axis)
                found = d, *coefficient = term[t].coefficient;
            else if (tir_uses(pool, term[t].atom, axis))
                return -1;
        }
    }
    return found;
}

bool rules_steps_in(const rules *r, const rules_access *access, int d, tir_expr axis, int width) {
    tir_pool *pool = r->region->pool;
    const tir_expr subscript = tir_operand(pool, access->load, d);
    if (subscript == axis || !tir_uses(pool, subscript, axis)) return subscript == axis;
    const tir_expr rest = tir_sub(pool, subscript, axis);
    return !tir_uses(pool, rest, axis) && tir_multiple_of(pool, rest) % width == 0;
}

bool rules_is_linear(const rules *r, const tir_stage *stage, const rules_access *access, int axis) {
    int64_t coefficient;
    if (access->stride[axis] != RULES_IRREGULAR) return true;
    if (!tir_layout_is_identity(&r->region->tensors.data[access->tensor].layout)) return false;
    return rules_dimension_of(r, access, stage->axis[axis].var, &coefficient) >= 0;
}

int64_t rules_extent_limit(const rules *r, const tir_axis *axis) {
    return tir_range(r->region->pool, axis->extent).high;
}

int64_t rules_known_extent(const rules *r, const tir_axis *axis) {
    enum { ASSUMED = 4096, SHORT = 16 };
    const int64_t most = rules_extent_limit(r, axis);
    if (rules_extent(r, axis) >= 0 || most <= SHORT) return most;
    return most < 4 * ASSUMED ? most / 4 : ASSUMED;
}

int64_t rules_usual_extent(const rules *r, const tir_axis *axis) {
    enum { LEAST = 4 };
    const int64_t known = rules_known_extent(r, axis), fifth = rules_extent_limit(r, axis) / 5;
    if (rules_extent(r, axis) >= 0 || known <= LEAST || known <= fifth) return known;
    return fifth > LEAST ? fifth : LEAST;
}

int64_t rules_stored_extent(const rules *r, int stage, int axis) {
    const tir_stage *s = &r->region->stages.data[stage];
    int64_t extent = rules_extent(r, &s->axis[axis]);
    return extent < 0 ? -1 : tir_layout_padded_size(&r->region->tensors.data[s->tensor[0]].layout, axis, extent);
}

bool rules_stores_vectors(rules *r, int stage, int axis) {
    const tir_layout *layout = &r->region->tensors.data[r->region->stages.data[stage].tensor[0]].layout;
    const tir_layout_part *inner = layout->count ? &layout->part[layout->count - 1] : NULL;
    if (inner && inner->dim == axis && inner->divisor == 1) return true;
    return rules_store_stride(r, stage, axis) == 1;
}

typedef struct widest {
    /* only values that depend on this variable count; 0: all */
    tir_expr along;
    size_t bytes;
} widest;

static tir_expr meet_dtype(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    widest *w = user;
    const tir_node *node = tir_get(pool, e);
    if (node->dtype == TIR_INDEX || (w->along && !tir_uses(pool, e, w->along))) return rebuilt;
    size_t bytes = lib_dtype_size((dlc_dtype)node->dtype);
    bool half = node->count > 0 && node->op != TIR_LOAD && lib_dtype_is_float((dlc_dtype)node->dtype);
    if (half && bytes < 4) bytes = 4; /* computed in f32 */
    if (bytes > w->bytes) w->bytes = bytes;
    return rebuilt;
}

static int64_t lanes_of(const rules *r, int stage, tir_expr along) {
    const tir_stage *s = &r->region->stages.data[stage];
    widest w = {along, 1};
    for (int c = 0; c < s->count; c++) {
        tir_rewrite(r->region->pool, s->value[c], meet_dtype, &w);
        size_t own = lib_dtype_size(r->region->tensors.data[s->tensor[c]].dtype);
        if (own > w.bytes) w.bytes = own;
    }
    int64_t lanes = r->machine->vector_bytes / (int64_t)w.bytes;
    return lanes > 1 ? lanes : 1;
}

int64_t rules_lanes(const rules *r, int stage) {
    return lanes_of(r, stage, 0);
}

int64_t rules_lanes_along(const rules *r, int stage, int axis) {
    return lanes_of(r, stage, r->region->stages.data[stage].axis[axis].var);
}

bool rules_straight(rules *r, int stage, int slow, int fast) {
    rules_access access[RULES_ACCESSES];
    const tir_stage *s = &r->region->stages.data[stage];
    int64_t extent = rules_extent(r, &s->axis[fast]), store = rules_store_stride(r, stage, fast);
    if (extent < 0 || store == RULES_IRREGULAR || rules_store_stride(r, stage, slow) != store * extent) return false;
    int count = rules_accesses(r, stage, access, RULES_ACCESSES);
    for (int i = 0; i < count; i++)
        if (access[i].stride[fast] == RULES_IRREGULAR || access[i].stride[slow] != access[i].stride[fast] * extent)
            return false;
    tir_pool *pool = r->region->pool; /* the axes must occur in addresses only */
    for (int c = 0; c < s->count; c++)
        if (rules_bare_use(pool, s->value[c], s->axis[slow].var) ||
            rules_bare_use(pool, s->value[c], s->axis[fast].var))
            return false;
    return count < RULES_ACCESSES;
}

typedef struct bare_use {
    tir_expr var;
    bool found;
} bare_use;

static tir_expr meet_bare(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    bare_use *use = user;
    const tir_node node = *tir_get(pool, e);
    if (node.op == TIR_CAST && tir_dtype_of(pool, tir_operand(pool, e, 0)) == TIR_INDEX && tir_uses(pool, e, use->var))
        use->found = true;
    if (node.dtype == DLC_BOOL && node.count == 2 && tir_dtype_of(pool, tir_operand(pool, e, 0)) == TIR_INDEX &&
        tir_uses(pool, e, use->var))
        use->found = true;
    return rebuilt;
}

bool rules_bare_use(tir_pool *pool, tir_expr value, tir_expr var) {
    bare_use use = {var, false};
    tir_rewrite(pool, value, meet_bare, &use);
    return use.found;
}

bool rules_is_contraction(const rules *r, int stage) {
    const tir_stage *s = &r->region->stages.data[stage];
    if (s->kind != TIR_REDUCE || s->count != 1 || tir_op_of(r->region->pool, s->value[0]) != TIR_MULADD) return false;
    if (rules_role_of(r, stage) == RULES_LANES) return false;
    return tir_op_of(r->region->pool, tir_operand(r->region->pool, s->value[0], 2)) == TIR_ACC;
}

int rules_members(const rules *r, int owner, int **members) {
    int count = 0;
    *members = LIB_NEW_ARRAY(r->arena, int, r->region->stages.count + 1);
    for (int s = 0; s < (int)r->region->stages.count; s++)
        if (s != owner && !r->region->stages.data[s].removed && r->group[s].owner == owner) (*members)[count++] = s;
    return count;
}

int rules_axis_labelled(const rules *r, int stage, int label) {
    for (int a = 0; a < r->region->stages.data[stage].space; a++)
        if (r->group[stage].label[a] == label) return a;
    return -1;
}

bool rules_pointwise(const rules *r, int stage) {
    const tir_stage *s = &r->region->stages.data[stage], *owner = &r->region->stages.data[r->group[stage].owner];
    for (int a = 0; a < s->space; a++)
        if (r->group[stage].label[a] < 0 && rules_extent(r, &s->axis[a]) != 1) return false;
    for (int a = 0; a < owner->space; a++)
        if (rules_extent(r, &owner->axis[a]) != 1 && rules_axis_labelled(r, stage, a) < 0) return false;
    return true;
}

bool *rules_in_tile(rules *r, int owner) {
    const tir_region *region = r->region;
    bool *inside = LIB_NEW_ARRAY(r->arena, bool, region->stages.count + 1);
    rules_access access[RULES_ACCESSES];
    for (int s = 0; s < owner; s++)
        inside[s] = !region->stages.data[s].removed && r->group[s].owner == owner && rules_pointwise(r, s);
    for (int q = owner - 1; q >= 0; q--) { /* readers come after the stages that they read */
        if (inside[q] || region->stages.data[q].removed || r->group[q].root != r->group[owner].root) continue;
        int count = rules_accesses(r, q, access, RULES_ACCESSES);
        for (int i = 0; i < count; i++)
            if (region->tensors.data[access[i].tensor].stage >= 0)
                inside[region->tensors.data[access[i].tensor].stage] = false;
    }
    return inside;
}

/* If not, the rules for rows handle the group (rules_rows.c). */
bool rules_simple_group(const rules *r, int s) {
    int root = r->group[s].root;
    if (root == s) return true;
    if (r->region->stages.data[root].kind != TIR_MAP || r->group[s].owner != root) return false;
    for (int q = 0; q < (int)r->region->stages.count; q++) {
        const tir_stage *stage = &r->region->stages.data[q];
        if (stage->removed || q == root || r->group[q].root != root) continue;
        if (!rules_pointwise(r, q) || (q != s && stage->kind != TIR_MAP)) return false;
    }
    return true;
}

/* The same of one component. */
static int64_t registers_of(const rules *r, const tir_tensor *t, int space, const int64_t *points, int v) {
    const tir_layout *layout = &t->layout;
    const int rank = tir_layout_physical_rank(layout);
    tir_expr logical[DLC_MAX_RANK], physical[TIR_MAX_PHYSICAL];
    int64_t extent[TIR_MAX_PHYSICAL], elements = 1;
    uint32_t lanes = 0;
    for (int d = 0; d < t->rank; d++) logical[d] = d < space ? tir_index(r->region->pool, points[d]) : t->extent[d];
    tir_layout_extents(r->region->pool, layout, logical, physical);
    for (int d = 0; d < rank; d++) {
        if (!tir_is_const(r->region->pool, physical[d], &extent[d])) return INT32_MAX;
        if (__builtin_mul_overflow(elements, extent[d], &elements) || elements > INT32_MAX) return INT32_MAX;
        const int dim = tir_layout_is_identity(layout) ? d : layout->part[d].dim;
        lanes |= (uint32_t)(dim == v) << d;
    }
    return tir_vectors_of(r->machine, t->dtype, rank, extent, lanes);
}

int64_t rules_registers(const rules *r, int stage, const int64_t *points, int v) {
    const tir_stage *s = &r->region->stages.data[stage];
    int64_t all = 0;
    for (int c = 0; c < s->count && all < INT32_MAX; c++)
        all += registers_of(r, &r->region->tensors.data[s->tensor[c]], s->space, points, v);
    return all < INT32_MAX ? all : INT32_MAX;
}

/* A value is live from its definition to its last use, an output to the end. The result of a map can take the registers of operands that it
 * uses last; sums cannot, because they are live before the last operand is read. */
int64_t rules_live(rules *r, const int *stages, const int64_t *sizes, int count) {
    const tir_region *region = r->region;
    int *last = LIB_NEW_ARRAY(r->arena, int, region->stages.count + 1); /* by stage: place of the last reader */
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        rules_access access[RULES_ACCESSES];
        int accesses = rules_accesses(r, stages[i], access, RULES_ACCESSES);
        for (int k = 0; k < accesses; k++) {
            int producer = region->tensors.data[access[k].tensor].stage;
            if (producer >= 0) last[producer] = i;
        }
    }
    for (int i = 0; i < count; i++)
        if (tir_has_output(r->region, stages[i])) last[stages[i]] = count - 1;
    for (int i = 0; i < count; i++) {
        int64_t live = 0, leaving = 0;
        for (int k = 0; k < i; k++)
            if (last[stages[k]] > i || (last[stages[k]] == i && region->stages.data[stages[i]].kind != TIR_MAP))
                live += sizes[k];
            else if (last[stages[k]] == i)
                leaving += sizes[k];
        live += sizes[i] > leaving ? sizes[i] : leaving;
        if (live > most) most = live;
    }
    return most;
}

bool rules_taps_slide(const rules *r, const tir_stage *stage, const rules_access *access, int axis, int reduction) {
    return tir_shares_dimension(r->region, stage, access, axis, reduction) &&
           rules_usual_extent(r, &stage->axis[axis]) < rules_usual_extent(r, &stage->axis[reduction]);
}

double rules_tensor_bytes(const rules *r, const tir_tensor *tensor) {
    double bytes = (double)lib_dtype_size(tensor->dtype);
    for (int d = 0; d < tensor->rank; d++) {
        int64_t extent = 0;
        bytes *= tir_is_const(r->region->pool, tensor->extent[d], &extent) ? (double)extent : 4096;
    }
    return bytes;
}

int64_t rules_innermost_block(const rules *r, uint32_t tensor, int *dim) {
    const tir_layout *layout = &r->region->tensors.data[tensor].layout;
    if (tir_layout_is_identity(layout)) return 0;
    const tir_layout_part *last = &layout->part[layout->count - 1];
    *dim = last->dim;
    return last->divisor == 1 && last->modulus > 1 ? last->modulus : 0;
}

bool rules_fits_registers(const rules *r, const tir_stage *stage, int v) {
    const tir_layout *layout = &r->region->tensors.data[stage->tensor[0]].layout;
    const tir_layout_part *last = &layout->part[layout->count - 1];
    return tir_layout_is_identity(layout) || last->modulus == 0 || last->dim == v;
}
