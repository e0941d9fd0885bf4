/* Accesses of stages; see access.h. */
#include "tir/access.h"
#include "tir/extent.h"

enum { TERMS = 32 };

typedef struct access_walk {
    tir_region *region;
    const tir_stage *stage;
    tir_access *out;
    int count, limit;
} access_walk;

/* Linear element address of a tensor at logical indices. */
static tir_expr address_of(tir_region *region, uint32_t tensor, const tir_expr *logical) {
    tir_pool *pool = region->pool;
    const tir_tensor *t = &region->tensors.data[tensor];
    tir_expr index[TIR_MAX_PHYSICAL], extent[TIR_MAX_PHYSICAL], address = tir_index(pool, 0);
    tir_expr stride = tir_index(pool, 1);
    tir_layout_indices(pool, &t->layout, logical, index);
    tir_layout_extents(pool, &t->layout, t->extent, extent);
    for (int p = tir_layout_physical_rank(&t->layout) - 1; p >= 0; p--) {
        tir_expr step = t->has_strides ? tir_index(pool, t->stride[p]) : stride;
        address = tir_add(pool, address, tir_mul(pool, index[p], step));
        stride = tir_mul(pool, stride, extent[p]);
    }
    return address;
}

/* Strides of an address along the stage's axes; see tir_access. */
static int64_t *strides_of(tir_pool *pool, const tir_stage *stage, tir_expr address) {
    tir_term terms[TERMS];
    int64_t *stride = LIB_NEW_ARRAY(pool->arena, int64_t, 2 * TIR_MAX_AXES), *multiple_of = stride + TIR_MAX_AXES;
    int64_t constant = 1;
    int count = tir_terms(pool, address, terms, TERMS, &constant), axes = stage->space + stage->reduce;
    for (int a = 0; a < axes; a++) {
        stride[a] = count < 0 ? TIR_IRREGULAR : 0;
        multiple_of[a] = count < 0 ? 1 : constant;
        for (int t = 0; t < count; t++) {
            const bool own = terms[t].atom == stage->axis[a].var;
            if (own)
                stride[a] = stride[a] == TIR_IRREGULAR ? TIR_IRREGULAR : terms[t].coefficient;
            else if (tir_uses(pool, terms[t].atom, stage->axis[a].var))
                stride[a] = TIR_IRREGULAR;
            int64_t step = terms[t].coefficient, multiple = tir_multiple_of(pool, terms[t].atom);
            if (!own && multiple > 0 && __builtin_mul_overflow(step, multiple, &step)) step = 1;
            if (!own) multiple_of[a] = tir_gcd(multiple_of[a], step);
        }
    }
    return stride;
}

/* Hash of everything that determines the strides of a tensor's elements along the stage's axes. */
static lib_hash128 access_hash(const tir_tensor *t, const tir_stage *stage, const tir_expr *logical) {
    enum { NUMBERS = 2 + 3 * DLC_MAX_RANK + 3 * TIR_MAX_PHYSICAL + TIR_MAX_AXES };
    int64_t key[NUMBERS];
    int count = 0;
    key[count++] = t->layout.count;
    key[count++] = t->has_strides;
    for (int d = 0; d < t->rank; d++) key[count++] = logical[d];
    for (int d = 0; d < t->rank; d++) key[count++] = t->extent[d];
    for (int d = 0; t->has_strides && d < t->rank; d++) key[count++] = t->stride[d];
    for (int p = 0; p < t->layout.count; p++) {
        key[count++] = t->layout.part[p].dim;
        key[count++] = t->layout.part[p].divisor;
        key[count++] = t->layout.part[p].modulus;
    }
    for (int a = 0; a < stage->space + stage->reduce; a++) key[count++] = stage->axis[a].var;
    return lib_hash_bytes(key, (size_t)count * sizeof *key, (lib_hash128){(uint64_t)t->rank, (uint64_t)count});
}

/* Sets out->stride and out->multiple for indices `logical` of out->tensor. Results are cached in the pool: rules query the same accesses
 * many times between two rewrites, and rewrites leave most accesses unchanged. */
static void fill_access(tir_region *region, const tir_stage *stage, const tir_expr *logical, tir_access *out) {
    tir_pool *pool = region->pool;
    const lib_hash128 hash = access_hash(&region->tensors.data[out->tensor], stage, logical);
    uint32_t at = lib_map_first(&pool->access_map, hash.low), known = pool->accesses.count;
    for (; at != LIB_MAP_END && known == pool->accesses.count; at = lib_map_next(&pool->access_map, hash.low, at)) {
        const uint32_t slot = pool->access_map.slots[at].value;
        if (pool->accesses.data[slot].hash == hash.high) known = slot;
    }
    if (known == pool->accesses.count) {
        int64_t *stride = strides_of(pool, stage, address_of(region, out->tensor, logical));
        lib_vec_push(pool->arena, &pool->accesses, ((tir_known_access){hash.high, stride}));
        lib_map_insert(pool->arena, &pool->access_map, hash.low, known);
    }
    out->stride = pool->accesses.data[known].stride;
    out->multiple = out->stride + TIR_MAX_AXES;
}

static void note_access(void *user, tir_expr load) {
    access_walk *walk = user;
    const tir_node node = *tir_get(walk->region->pool, load);
    if (walk->count == walk->limit) return;
    for (int i = 0; i < walk->count; i++)
        if (walk->out[i].load == load) return;
    tir_access *access = &walk->out[walk->count++];
    *access = (tir_access){.tensor = (uint32_t)node.bits, .load = load};
    tir_expr logical[DLC_MAX_RANK];
    int rank = node.count - (node.guarded ? 2 : 0);
    for (int d = 0; d < rank; d++) logical[d] = tir_operand(walk->region->pool, load, d);
    fill_access(walk->region, walk->stage, logical, access);
}

int tir_accesses(tir_region *region, int stage, tir_access *out, int limit) {
    const tir_stage copy = region->stages.data[stage];
    access_walk walk = {region, &copy, out, 0, limit};
    tir_stage_loads(region, stage, note_access, &walk);
    return walk.count;
}

void tir_store_access(tir_region *region, int stage, tir_access *out) {
    const tir_stage *s = &region->stages.data[stage];
    tir_expr index[DLC_MAX_RANK];
    for (int a = 0; a < s->space; a++) index[a] = s->axis[a].var;
    *out = (tir_access){.tensor = s->tensor[0]};
    fill_access(region, s, index, out);
}

void tir_store_strides(tir_region *region, int stage, int64_t *stride) {
    const tir_stage *s = &region->stages.data[stage];
    tir_access access;
    tir_store_access(region, stage, &access);
    memcpy(stride, access.stride, (size_t)(s->space + s->reduce) * sizeof *stride);
}

bool tir_sum_of_products(const tir_pool *pool, const tir_stage *stage, tir_expr *left, tir_expr *right) {
    if (stage->kind != TIR_REDUCE || stage->count != 1) return false;
    tir_expr value = stage->value[0], product = value, acc = 0;
    if (tir_op_of(pool, value) == TIR_MULADD) {
        acc = tir_operand(pool, value, 2);
    } else if (tir_op_of(pool, value) == TIR_ADD) {
        int first = tir_op_of(pool, tir_operand(pool, value, 0)) == TIR_MUL ? 0 : 1;
        product = tir_operand(pool, value, first);
        acc = tir_operand(pool, value, 1 - first);
        if (tir_op_of(pool, product) != TIR_MUL) return false;
    }
    if (!acc || tir_op_of(pool, acc) != TIR_ACC) return false;
    *left = tir_operand(pool, product, 0);
    *right = tir_operand(pool, product, 1);
    return !tir_uses(pool, *left, acc) && !tir_uses(pool, *right, acc);
}

bool tir_is_contiguous_along(tir_region *region, int stage, int axis) {
    enum { LOADS = 72 };
    tir_access access[LOADS], store;
    const int count = tir_accesses(region, stage, access, LOADS), fold = region->stages.data[stage].fold;
    bool moves = false;
    tir_store_access(region, stage, &store);
    if (store.stride[axis] != 1 || count == LOADS) return false;
    for (int i = 0; i < count; i++) {
        const int64_t stride = access[i].stride[axis];
        const int producer = region->tensors.data[access[i].tensor].stage;
        if (producer >= 0 && producer == fold) continue;
        if (stride != 1 && stride != -1 && stride != 0) return false;
        moves = moves || stride != 0;
    }
    return moves;
}

int tir_contiguous_axis(const tir_region *region, const tir_stage *stage, const tir_access *access, int except) {
    for (int a = stage->space - 1; a >= 0; a--)
        if (a != except && access->stride[a] == 1 && tir_axis_extent(region, &stage->axis[a]) != 1) return a;
    return -1;
}

bool tir_shares_dimension(const tir_region *region, const tir_stage *stage, const tir_access *access, int axis,
                          int reduction) {
    for (int d = 0; d < region->tensors.data[access->tensor].rank; d++) {
        const tir_expr index = tir_operand(region->pool, access->load, d);
        if (tir_uses(region->pool, index, stage->axis[axis].var) &&
            tir_uses(region->pool, index, stage->axis[reduction].var))
            return true;
    }
    return false;
}

int tir_plain_dimension(const tir_region *region, const tir_access *access, tir_expr var) {
    for (int d = 0; d < region->tensors.data[access->tensor].rank; d++)
        if (tir_operand(region->pool, access->load, d) == var) return d;
    return -1;
}

int tir_sole_dimension(const tir_region *region, const tir_access *access, tir_expr var) {
    const int plain = tir_plain_dimension(region, access, var);
    for (int d = 0; d < region->tensors.data[access->tensor].rank; d++)
        if (d != plain && tir_uses(region->pool, tir_operand(region->pool, access->load, d), var)) return -1;
    return plain;
}

tir_expr tir_unwidened(const tir_pool *pool, tir_expr e) {
    while (tir_op_of(pool, e) == TIR_CAST) {
        const tir_dtype to = tir_dtype_of(pool, e), from = tir_dtype_of(pool, tir_operand(pool, e, 0));
        if (from == TIR_INDEX || lib_dtype_size((dlc_dtype)from) >= lib_dtype_size((dlc_dtype)to)) break;
        e = tir_operand(pool, e, 0);
    }
    return e;
}

/* ---- steps of a fold */

typedef struct step_search {
    tir_region *region;
    int fold, reader;
    /* by stage */
    tir_step_axes *axes;
    bool changed;
} step_search;

/* Records that the stage's axis corresponds to axis `along` of the fold, unless either of the two has a partner already (several axes
 * correspond to one if a matrix is read along its diagonal: the first found counts). */
static void note_axis(step_search *search, int stage, int axis, int along) {
    int *known = search->axes[stage].along;
    bool taken = along < 0 || known[axis] >= 0;
    for (int a = 0; a < TIR_MAX_AXES; a++) taken = taken || known[a] == along;
    if (taken) return;
    known[axis] = along;
    search->changed = true;
}

/* If the axis a of a step, `reader`, indexes dimension d of its load, both correspond to the same axis of the fold. Between two steps this propagates
 * both ways, but time only from the reader to the step that it reads; the state's leading dimensions are the fold's free axes. */
static void follow_load(void *user, tir_expr load) {
    step_search *search = user;
    const int reader = search->reader;
    const tir_pool *pool = search->region->pool;
    const tir_tensor *tensor = &search->region->tensors.data[tir_get(pool, load)->bits];
    const tir_stage *stage = &search->region->stages.data[reader], *fold = &search->region->stages.data[search->fold];
    const bool state = tensor->stage == search->fold;
    if (tensor->stage < 0 || (!state && search->region->stages.data[tensor->stage].fold != search->fold)) return;
    for (int d = 0; d < tensor->rank; d++)
        for (int a = 0; a < stage->space; a++) {
            if (tir_operand(pool, load, d) != stage->axis[a].var) continue;
            const int along = state ? d : search->axes[tensor->stage].along[d];
            if (!state) note_axis(search, tensor->stage, d, search->axes[reader].along[a]);
            if (along < fold->space) note_axis(search, reader, a, along);
        }
}

tir_step_axes *tir_fold_axes(lib_arena *arena, tir_region *region, int fold) {
    const int count = (int)region->stages.count;
    const tir_stage *f = &region->stages.data[fold];
    step_search search = {.region = region, .fold = fold, .axes = LIB_NEW_ARRAY(arena, tir_step_axes, (size_t)count)};
    for (int s = 0; s < count; s++)
        for (int a = 0; a < TIR_MAX_AXES; a++) search.axes[s].along[a] = -1;
    for (int c = 0; c < f->count; c++) { /* next: a step at the fold's own axes */
        const tir_tensor *next = &region->tensors.data[tir_get(region->pool, f->value[c])->bits];
        for (int d = 0; d < next->rank; d++)
            for (int a = 0; a <= f->space; a++)
                if (tir_operand(region->pool, f->value[c], d) == f->axis[a].var) note_axis(&search, next->stage, d, a);
    }
    do {
        search.changed = false;
        for (int s = 0; s < count; s++) {
            const tir_stage *step = &region->stages.data[s];
            if (step->removed || step->fold != fold) continue;
            search.reader = s;
            tir_stage_loads(region, s, follow_load, &search);
        }
    } while (search.changed);
    return search.axes;
}

int tir_scan_axis(tir_region *region, int step) {
    const tir_stage *stage = &region->stages.data[step];
    tir_access store;
    int along = -1;
    bool block = false;
    tir_store_access(region, step, &store);
    for (int a = 0; a < stage->space; a++) {
        if (stage->axis[a].role == TIR_AXIS_LANE) return a;
        block = block || stage->axis[a].role == TIR_AXIS_BLOCK;
        if (store.stride[a] == 1 && tir_axis_extent(region, &stage->axis[a]) != 1) along = a;
    }
    return block ? -1 : along;
}
