/* REG buffers. Once loops are unrolled and lanes bound, every element has a constant index and is an SSA value: usually a lane of the
 * vector that was stored. Loads of the same lanes return that vector; others are assembled from lanes. Loop headers and joins of branches
 * get phis for the elements that are written inside. */
#include "targets/cpu/emit.h"

void emit_reg_init(emitter *e) {
    for (uint32_t i = 0; i < e->kernel->buffers.count; i++) {
        const tir_buffer *b = &e->kernel->buffers.data[i];
        if (b->scope != TIR_SCOPE_REG) continue;
        /* Zero is as good as any other value. */
        emit_value zero = emit_constant(LLVMConstNull(emit_type(e, (tir_dtype)b->dtype, 0)));
        for (int64_t k = 0; k < e->buffer[i].elements; k++) e->buffer[i].element[k] = (emit_element){zero, EMIT_UNSET};
    }
}

/* *first: element of lane 0; *stride: elements from lane to lane. False: they are not constant. */
static bool place_straight(emitter *e, uint32_t buffer, int rank, const tir_expr *index, int64_t *first,
                           int64_t *stride) {
    int64_t size = (int64_t)lib_dtype_size(e->kernel->buffers.data[buffer].dtype);
    emit_known known = emit_offset_known(e, buffer, rank, index, first, stride);
    *first /= size;
    *stride /= size;
    if (known != EMIT_UNKNOWN) return known == EMIT_KNOWN;
    emit_form offset = emit_offset(e, buffer, rank, index);
    *first = offset.constant / size;
    *stride = offset.lane / size;
    return !offset.count && !offset.vector.llvm;
}

/* at[i]: element of lane i, evaluated lane by lane, for indices with quotients and remainders of the lane (axes fused into a vec loop).
 * False: they are not constant. */
static bool place_each_lane(emitter *e, uint32_t buffer, int rank, const tir_expr *index, int64_t *at) {
    emit_vec_position position = e->vec_position;
    int lanes = e->lanes, active = e->active;
    int64_t start, stride;
    if (!lanes || !position.var || !emit_form_is_constant(&position.start, &start)) return false;
    bool constant = true;
    e->lanes = e->active = 0;
    for (int i = 0; i < active && constant; i++) {
        emit_form lane = emit_form_constant(start + i);
        emit_bind(e, position.var, &lane);
        constant = place_straight(e, buffer, rank, index, &at[i], &stride);
    }
    e->lanes = lanes;
    e->active = active;
    position.start.lane = 1;
    emit_bind(e, position.var, &position.start);
    return constant;
}

/* *group: first element, stride and lanes of buffer[index]; false: the elements are not constant, or follow no stride. */
static bool place_lanes(emitter *e, uint32_t buffer, int rank, const tir_expr *index, emit_group *group) {
    int64_t at[EMIT_MAX_LANES];
    *group = (emit_group){.buffer = buffer};
    if (!place_straight(e, buffer, rank, index, &group->first, &group->stride)) {
        if (!place_each_lane(e, buffer, rank, index, at) || e->active < 2) return false;
        group->first = at[0];
        group->stride = at[1] - at[0];
        for (int i = 0; i < e->active; i++)
            if (at[i] != group->first + group->stride * i) return false;
    }
    if (group->stride) {
        group->lanes = e->lanes;
        group->active = e->active;
    }
    return true;
}

/* The same as place_lanes; false also if a lane is outside of the buffer. */
static bool place(emitter *e, uint32_t buffer, int rank, const tir_expr *index, emit_group *group) {
    if (!place_lanes(e, buffer, rank, index, group)) return false;
    int64_t last = group->first + group->stride * (group->lanes ? group->active - 1 : 0);
    int64_t low = last < group->first ? last : group->first, high = last < group->first ? group->first : last;
    return low >= 0 && high < e->buffer[buffer].elements;
}

/* The same as place_each_lane; false also if a lane is outside of the buffer. */
static bool place_inside(emitter *e, uint32_t buffer, int rank, const tir_expr *index, int64_t *at) {
    if (!place_each_lane(e, buffer, rank, index, at)) return false;
    for (int i = 0; i < e->active; i++)
        if (at[i] < 0 || at[i] >= e->buffer[buffer].elements) return false;
    return true;
}

/* at[i]: element of lane i of a pair of rows; -1: the lane is no column, or its row is outside of the buffer. False: the elements are not
 * constant, or do not ascend with a stride. */
static bool place_pair(emitter *e, uint32_t buffer, int rank, const tir_expr *index, int64_t *at) {
    bool constant = true;
    for (int row = 0; row < 2; row++) {
        emit_pair pair = emit_row_enter(e, row);
        int64_t first = 0, stride = 0, *here = &at[row * pair.half], last;
        constant = constant && place_straight(e, buffer, rank, index, &first, &stride) && stride > 0;
        last = first + stride * (pair.active - 1);
        bool inside = first >= 0 && last < e->buffer[buffer].elements;
        constant = constant && (inside || !pair.used[row]);
        for (int i = 0; i < pair.half; i++) here[i] = inside && i < pair.active ? first + stride * i : -1;
        emit_row_leave(e, &pair);
    }
    return constant;
}

/* ---- loads */

/* A vector whose lane i is element[i]: each source vector is shuffled once and merged. */
static LLVMValueRef join(emitter *e, const emit_element *element, int lanes, int active, LLVMTypeRef type) {
    LLVMValueRef result = NULL;
    bool done[EMIT_MAX_LANES] = {false};
    int index[EMIT_MAX_LANES];
    for (int i = 0; i < active; i++) {
        if (done[i] || !element[i].value.llvm) continue;
        if (element[i].lane < 0) {
            if (!result) result = LLVMConstNull(type);
            LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)i, false);
            result = LLVMBuildInsertElement(e->builder, result, element[i].value.llvm, lane, "");
            done[i] = true;
            continue;
        }
        for (int k = 0; k < lanes; k++) {
            bool same =
                k < active && !done[k] && element[k].lane >= 0 && element[k].value.llvm == element[i].value.llvm;
            index[k] = same ? element[k].lane : -1;
        }
        LLVMValueRef part = emit_shuffle(e, element[i].value.llvm, NULL, lanes, index);
        for (int k = 0; k < lanes; k++) {
            bool here = index[k] >= 0;
            index[k] = here ? lanes + k : k;
            done[k] |= here;
        }
        result = result ? emit_shuffle(e, result, part, lanes, index) : part;
    }
    return result;
}

/* The value with element place[i] of a REG buffer in lane i, i < active; a scalar if all are the same scalar. A lane whose place is
 * outside of the buffer is undefined. lanes 0: the scalar element place[0]. */
static emit_value gather(emitter *e, uint32_t buffer, const int64_t *place, int lanes, int active) {
    emit_element element[EMIT_MAX_LANES];
    const emit_element *all = e->buffer[buffer].element;
    int level = 0;
    bool vector = lanes != 0, same = true;
    emit_value value = {0}; /* value of the first lane that is inside the buffer */
    for (int i = 0; i < active; i++) {
        element[i] = (emit_element){.lane = -1}; /* a lane outside of the buffer is never used */
        if (place[i] < 0 || place[i] >= e->buffer[buffer].elements) continue;
        element[i] = all[place[i]];
        if (!value.llvm) value = element[i].value;
        if (element[i].value.level > level) level = element[i].value.level;
        vector &= element[i].lane == i && element[i].value.lanes == lanes && element[i].value.llvm == value.llvm;
        same &= element[i].lane < 0 && element[i].value.llvm == value.llvm;
    }
    if (value.llvm && (vector || same)) return value;
    if (lanes == 0) {
        uint64_t key[] = {EMIT_EXTRACT, (uint64_t)(uintptr_t)element[0].value.llvm, (uint64_t)element[0].lane};
        emit_value scalar;
        if (emit_find(e, 3, key, &scalar)) return scalar;
        emit_at(e, level);
        LLVMValueRef lane = LLVMConstInt(e->i32, (unsigned)element[0].lane, false);
        scalar = (emit_value){LLVMBuildExtractElement(e->builder, element[0].value.llvm, lane, ""), 0, (int16_t)level};
        return emit_remember(e, 3, key, scalar);
    }
    emit_at(e, level);
    LLVMTypeRef type = emit_type(e, (tir_dtype)e->kernel->buffers.data[buffer].dtype, lanes);
    return (emit_value){join(e, element, lanes, active, type), (int16_t)lanes, (int16_t)level};
}

static int64_t element_of(const emit_group *group, int lane) {
    return group->each ? group->each[lane] : group->first + group->stride * lane;
}

emit_value emit_reg_gather(emitter *e, const emit_group *group) {
    int64_t at[EMIT_MAX_LANES];
    int active = group->lanes ? group->active : 1;
    for (int i = 0; i < active; i++) at[i] = element_of(group, i);
    return gather(e, group->buffer, at, group->lanes, active);
}

LLVMValueRef emit_reg_value(emitter *e, const emit_group *group) {
    emit_value value = emit_reg_gather(e, group);
    if (group->lanes && !value.lanes) value = emit_splat(e, value, group->lanes);
    return value.llvm;
}

bool emit_reg_load(emitter *e, uint32_t buffer, int rank, const tir_expr *index, emit_value *value) {
    emit_group group;
    int64_t at[EMIT_MAX_LANES];
    if (e->pair.on && place_pair(e, buffer, rank, index, at)) {
        *value = gather(e, buffer, at, e->lanes, e->lanes);
        return true;
    }
    bool inside = false, straight = !e->pair.on && place_lanes(e, buffer, rank, index, &group);
    int lanes = straight ? group.lanes : e->lanes, active = lanes ? straight ? group.active : e->active : 1;
    for (int i = 0; straight && i < active; i++) at[i] = group.first + group.stride * i;
    if (!straight && !place_each_lane(e, buffer, rank, index, at))
        emit_raise(e, "load of reg buffer %s: index not constant", e->kernel->buffers.data[buffer].name);
    for (int i = 0; i < active; i++) inside |= at[i] >= 0 && at[i] < e->buffer[buffer].elements;
    if (inside) *value = gather(e, buffer, at, lanes, active);
    return inside;
}

/* ---- stores */

void emit_reg_set(emitter *e, const emit_group *group, emit_value value) {
    emit_element *element = e->buffer[group->buffer].element;
    int active = group->lanes ? group->active : 1;
    for (int i = 0; i < active; i++) {
        int64_t at = element_of(group, i);
        if (at >= 0) element[at] = (emit_element){value, value.lanes ? i : -1};
    }
    e->epoch++;
}

static bool pair_group(emitter *e, uint32_t buffer, int rank, const tir_expr *index, emit_group *group) {
    int64_t at[EMIT_MAX_LANES];
    if (!place_pair(e, buffer, rank, index, at)) return false;
    *group = (emit_group){.buffer = buffer, .lanes = e->lanes, .active = e->lanes};
    group->each = memcpy(LIB_NEW_ARRAY(e->arena, int64_t, (size_t)e->lanes), at, (size_t)e->lanes * sizeof *at);
    return true;
}

/* Stores to a pair of rows; lanes of a row that takes no part keep their values. */
static void store_pair(emitter *e, const emit_group *group, emit_value value) {
    LLVMValueRef lane[EMIT_MAX_LANES];
    bool keeps = false;
    value = emit_splat(e, value, e->lanes);
    for (int i = 0; i < e->lanes; i++) {
        bool used = e->pair.used[i / e->pair.half];
        lane[i] = LLVMConstInt(e->i1, used, false);
        keeps |= !used && group->each[i] >= 0;
    }
    emit_value mask = {LLVMConstVector(lane, (unsigned)e->lanes), (int16_t)e->lanes, 0};
    if (keeps) value = emit_select(e, mask, value, emit_reg_gather(e, group));
    emit_reg_set(e, group, value);
}

void emit_reg_store(emitter *e, uint32_t buffer, int rank, const tir_expr *index, emit_value value) {
    emit_group group;
    int64_t each[EMIT_MAX_LANES];
    if (e->pair.on && pair_group(e, buffer, rank, index, &group)) {
        store_pair(e, &group, value);
        return;
    }
    if (e->pair.on || !place(e, buffer, rank, index, &group)) {
        if (e->pair.on || !place_inside(e, buffer, rank, index, each))
            emit_raise(e, "store to reg buffer %s: index not constant or outside",
                       e->kernel->buffers.data[buffer].name);
        value = emit_splat(e, value, e->lanes);
        if (e->mask.llvm) value = emit_select(e, e->mask, value, gather(e, buffer, each, e->lanes, e->active));
        for (int i = 0; i < e->active; i++) e->buffer[buffer].element[each[i]] = (emit_element){value, i};
        e->epoch++;
        return;
    }
    if (group.lanes && e->mask.llvm)
        value = emit_select(e, emit_opaque_mask(e, e->mask), value, emit_reg_gather(e, &group));
    emit_reg_set(e, &group, value);
}

/* ---- which elements do statements write? */

typedef struct scan {
    emit_groups *groups;
    uint32_t id;
} scan;

static void scan_list(emitter *e, const tir_stmt *list, void *user);

static void scan_store(emitter *e, const tir_stmt *stmt, scan *s) {
    emit_group group;
    uint32_t buffer = stmt->store.buffer;
    int64_t each[EMIT_MAX_LANES];
    if (e->kernel->buffers.data[buffer].scope != TIR_SCOPE_REG) return;
    if (e->pair.on) {
        if (!pair_group(e, buffer, stmt->store.rank, stmt->store.index, &group)) return;
    } else if (!place(e, buffer, stmt->store.rank, stmt->store.index, &group)) {
        /* Such a store is in a branch that is never taken. */
        if (!place_inside(e, buffer, stmt->store.rank, stmt->store.index, each)) return;
        for (int i = 0; i < e->active; i++) {
            emit_group single = {.buffer = buffer, .first = each[i]};
            if (e->buffer[buffer].owner[each[i]] != s->id) lib_vec_push(e->arena, s->groups, single);
            e->buffer[buffer].owner[each[i]] = s->id;
        }
        return;
    }
    uint32_t *owner = e->buffer[group.buffer].owner;
    int active = group.lanes ? group.active : 1, owned = 0;
    for (int i = 0; i < active; i++) {
        int64_t at = element_of(&group, i);
        owned += at >= 0 && owner[at] == s->id;
    }
    if (owned == 0) lib_vec_push(e->arena, s->groups, group);
    for (int i = 0; i < active; i++) {
        int64_t at = element_of(&group, i);
        if (at < 0) continue;
        if (owned != 0 && owner[at] != s->id) {
            emit_group single = {.buffer = group.buffer, .first = at};
            lib_vec_push(e->arena, s->groups, single);
        }
        owner[at] = s->id;
    }
}

/* Does the index depend on memory: by a load, or a variable of another type than index, which holds loaded values? */
static bool has_load(emitter *e, tir_expr expr) {
    const tir_node *node = tir_get(e->pool, expr);
    if (node->op == TIR_LOAD || (node->op == TIR_VAR && node->dtype != TIR_INDEX)) return true;
    for (int i = 0; i < (int)node->count; i++)
        if (has_load(e, tir_operand(e->pool, expr, i))) return true;
    return false;
}

static void scan_let(emitter *e, const tir_stmt *stmt, scan *s) {
    tir_dtype dtype = tir_dtype_of(e->pool, stmt->let.value);
    if (dtype != TIR_INDEX) {
        emit_bind_value(e, stmt->let.var, emit_constant(LLVMGetUndef(emit_type(e, dtype, 0))));
    } else if (has_load(e, stmt->let.value)) {
        emit_form unknown = emit_unknown(e);
        emit_bind(e, stmt->let.var, &unknown);
    } else {
        emit_form form = emit_index(e, stmt->let.value);
        emit_bind(e, stmt->let.var, &form);
    }
    scan_list(e, stmt->let.body, s);
    emit_unbind(e, stmt->let.var);
}

static void scan_list(emitter *e, const tir_stmt *list, void *user) {
    scan *s = user;
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        switch (stmt->kind) {
        case TIR_FOR: emit_scan_for(e, stmt, scan_list, s); break;
        case TIR_LET: scan_let(e, stmt, s); break;
        case TIR_IF:
            scan_list(e, stmt->if_.body, s);
            scan_list(e, stmt->if_.otherwise, s);
            break;
        case TIR_STORE: scan_store(e, stmt, s); break;
        case TIR_INTERLEAVE: scan_list(e, stmt->interleave.body, s); break;
        case TIR_SPILL: scan_list(e, stmt->spill.body, s); break;
        default: break;
        }
    }
}

void emit_reg_scan(emitter *e, const tir_stmt *list, emit_groups *groups) {
    if (!e->has_reg) return;
    scan s = {groups, ++e->next_scan};
    scan_list(e, list, &s);
}
