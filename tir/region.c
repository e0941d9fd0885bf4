/* Regions: building and copying. Errors of a builder here are bugs of the compiler, hence DLC_INTERNAL. Text is in
 * region_text.c, the verifier in region_verify.c, the meaning in evaluate.c. */
#include "tir/region.h"

tir_region *tir_region_new(lib_arena *arena, tir_pool *pool, const char *name) {
    tir_region *region = LIB_NEW(arena, tir_region);
    region->name = lib_arena_string(arena, name);
    region->arena = arena;
    region->pool = pool;
    return region;
}

static bool is_named(const char *own, const char *name) {
    return *own == *name && strcmp(own, name) == 0;
}

bool tir_region_has_name(const tir_region *region, const char *name) {
    for (uint32_t i = 0; i < region->tensors.count; i++)
        if (is_named(region->tensors.data[i].name, name)) return true;
    for (uint32_t i = 0; i < region->stages.count; i++)
        if (is_named(region->stages.data[i].name, name)) return true;
    return false;
}

/* The number after the base in "base12"; 0: not such a name. */
static uint64_t number_after(const char *name, const char *base, size_t length) {
    uint64_t number = 0;
    if (*name != *base || strncmp(name, base, length) != 0 || name[length] == '0') return 0;
    for (const char *at = name + length; *at; at++) {
        if (*at < '0' || *at > '9' || number > UINT32_MAX) return 0;
        number = number * 10 + (uint64_t)(*at - '0');
    }
    return number;
}

/* The name with the number appended; without format strings, which took a third of the time to make a stage. */
static const char *numbered_name(lib_arena *arena, const char *name, size_t number) {
    const size_t length = strlen(name);
    size_t digits = 1;
    for (size_t rest = number; rest >= 10; rest /= 10) digits++;
    char *made = LIB_NEW_ARRAY(arena, char, length + digits + 1);
    memcpy(made, name, length);
    made[length + digits] = 0;
    for (size_t at = length + digits; at > length; number /= 10) made[--at] = (char)('0' + number % 10);
    return made;
}

/* The name itself, or with the smallest number appended that makes it unique, in one pass over all names. */
static const char *unique_name(tir_region *region, const char *name) {
    if (!tir_region_has_name(region, name)) return lib_arena_string(region->arena, name);
    const size_t count = (size_t)region->tensors.count + region->stages.count, length = strlen(name);
    bool *taken = LIB_NEW_ARRAY(region->arena, bool, count + 2);
    for (size_t i = 0; i < count; i++) {
        const char *other = i < region->tensors.count ? region->tensors.data[i].name
                                                      : region->stages.data[i - region->tensors.count].name;
        uint64_t number = number_after(other, name, length);
        if (number <= count) taken[number] = true;
    }
    size_t number = 1;
    while (taken[number]) number++;
    return numbered_name(region->arena, name, number);
}

static uint32_t add_tensor(tir_region *region, const char *name, dlc_dtype dtype, int rank, const tir_expr *extent) {
    if (rank < 0 || rank > DLC_MAX_RANK)
        lib_raise(region->arena->scope, DLC_INTERNAL, "region %s, tensor %s: rank %d is out of range", region->name,
                  name, rank);
    tir_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.rank = rank;
    for (int i = 0; i < rank; i++) tensor.extent[i] = extent[i];
    tensor.layout = tir_layout_identity(rank);
    tensor.stage = -1;
    tensor.argument = -1;
    tensor.alignment = (int32_t)lib_dtype_size(dtype);
    lib_vec_push(region->arena, &region->tensors, tensor);
    return region->tensors.count - 1;
}

uint32_t tir_region_input(tir_region *region, const char *name, dlc_dtype dtype, int rank, const tir_expr *extent) {
    uint32_t id = add_tensor(region, unique_name(region, name), dtype, rank, extent);
    for (uint32_t i = 0; i < id; i++) /* outputs are numbered after all inputs */
        if (region->tensors.data[i].output) region->tensors.data[i].argument++;
    region->tensors.data[id].argument = region->inputs++;
    return id;
}

/* A variable for positions below `extent`. An empty axis has no position: any range is right. */
static tir_expr position_variable(tir_region *region, const char *name, tir_expr extent) {
    const int64_t high = tir_range(region->pool, extent).high;
    return tir_var(region->pool, name, TIR_VAR_AXIS, TIR_INDEX, 0, high > 0 ? high - 1 : 0);
}

void tir_region_positions(tir_region *region, uint32_t input, const char *const *names) {
    tir_tensor *t = &region->tensors.data[input];
    for (int i = 0; i < t->rank; i++)
        t->position[i] = position_variable(region, lib_arena_string(region->arena, names[i]), t->extent[i]);
}

tir_expr tir_nonzero_at(tir_region *region, uint32_t input, const tir_expr *index) {
    const tir_tensor *t = &region->tensors.data[input];
    return t->nonzero ? tir_substitute(region->pool, t->nonzero, t->rank, t->position, index) : 0;
}

static void add_axis(tir_region *region, tir_stage *stage, const char *name, const char *letter, int number,
                     tir_expr extent) {
    tir_axis *axis = &stage->axis[stage->space + stage->reduce];
    axis->name = name ? lib_arena_string(region->arena, name) : numbered_name(region->arena, letter, (size_t)number);
    axis->extent = extent;
    axis->id = region->axis_ids++;
    axis->var = position_variable(region, axis->name, extent);
}

tir_stage *tir_region_stage(tir_region *region, tir_stage_kind kind, const char *name, int space,
                            const char *const *space_names, const tir_expr *space_extents, int reduce,
                            const char *const *reduce_names, const tir_expr *reduce_extents) {
    if (space < 0 || reduce < 0 || space + reduce > TIR_MAX_AXES)
        lib_raise(region->arena->scope, DLC_INTERNAL, "region %s, stage %s: %d axes, at most %d", region->name, name,
                  space + reduce, TIR_MAX_AXES);
    tir_stage stage;
    memset(&stage, 0, sizeof stage);
    stage.name = unique_name(region, name);
    stage.kind = kind;
    stage.fold = -1;
    for (; stage.space < space; stage.space++)
        add_axis(region, &stage, space_names ? space_names[stage.space] : NULL, "i", stage.space,
                 space_extents[stage.space]);
    for (; stage.reduce < reduce; stage.reduce++)
        add_axis(region, &stage, reduce_names ? reduce_names[stage.reduce] : NULL, "k", stage.reduce,
                 reduce_extents[stage.reduce]);
    lib_vec_push(region->arena, &region->stages, stage);
    return &region->stages.data[region->stages.count - 1];
}

uint32_t tir_stage_value(tir_region *region, tir_stage *stage, tir_expr value, tir_expr initial, tir_expr merge) {
    if (stage->count == TIR_MAX_STATE)
        lib_raise(region->arena->scope, DLC_INTERNAL, "region %s, stage %s: more than %d values", region->name,
                  stage->name, TIR_MAX_STATE);
    tir_expr extent[DLC_MAX_RANK];
    for (int i = 0; i < stage->space && i < DLC_MAX_RANK; i++) extent[i] = stage->axis[i].extent;
    /* The first tensor shares its stage's name, which unique_name would refuse. */
    const char *name = stage->name;
    if (stage->count > 0)
        name = unique_name(region, lib_arena_format(region->arena, "%s_%d", stage->name, stage->count));
    dlc_dtype dtype = (dlc_dtype)tir_dtype_of(region->pool, value);
    uint32_t id = add_tensor(region, name, dtype, stage->space, extent);
    region->tensors.data[id].stage = (int32_t)(stage - region->stages.data);
    region->tensors.data[id].component = stage->count;
    stage->tensor[stage->count] = id;
    stage->value[stage->count] = value;
    stage->initial[stage->count] = initial;
    stage->merge[stage->count] = merge;
    stage->count++;
    return id;
}

static tir_expr identity_of(tir_region *region, tir_op op, tir_dtype dtype) {
    tir_pool *pool = region->pool;
    switch (op) {
    case TIR_ADD:
    case TIR_OR:
    case TIR_XOR: return tir_int(pool, dtype, 0);
    case TIR_MUL: return tir_int(pool, dtype, 1);
    case TIR_MAX: return tir_lowest(pool, dtype);
    case TIR_MIN: return tir_highest(pool, dtype);
    case TIR_AND: return tir_int(pool, dtype, -1); /* all bits; bool: true */
    default:
        lib_raise(region->arena->scope, DLC_INTERNAL, "region %s: %s is no reduction", region->name, tir_ops[op].text);
    }
}

uint32_t tir_stage_reduce(tir_region *region, tir_stage *stage, tir_op op, tir_expr lift) {
    tir_pool *pool = region->pool;
    tir_dtype dtype = tir_dtype_of(pool, lift);
    tir_expr initial = identity_of(region, op, dtype);
    tir_expr acc = tir_acc(pool, dtype, stage->count), other = tir_other(pool, dtype, stage->count);
    bool rounds = dtype < DLC_DTYPE_COUNT && lib_dtype_is_float((dlc_dtype)dtype) && (op == TIR_ADD || op == TIR_MUL);
    stage->exact = !rounds;
    return tir_stage_value(region, stage, tir_binary(pool, op, acc, lift), initial, tir_binary(pool, op, acc, other));
}

uint32_t tir_stage_contract(tir_region *region, tir_stage *stage, tir_expr a, tir_expr b) {
    tir_pool *pool = region->pool;
    tir_dtype dtype = tir_dtype_of(pool, a);
    tir_expr acc = tir_acc(pool, dtype, stage->count), other = tir_other(pool, dtype, stage->count);
    stage->exact = dtype < DLC_DTYPE_COUNT && !lib_dtype_is_float((dlc_dtype)dtype);
    return tir_stage_value(region, stage, tir_muladd(pool, a, b, acc), tir_int(pool, dtype, 0),
                           tir_add(pool, acc, other));
}

void tir_region_output(tir_region *region, uint32_t tensor) {
    tir_tensor *t = &region->tensors.data[tensor];
    if (t->stage < 0)
        lib_raise(region->arena->scope, DLC_INTERNAL,
                  "region %s: input %s cannot be an output: copy it with a map stage", region->name, t->name);
    if (t->output) return;
    t->output = true;
    t->argument = region->inputs + region->outputs++;
}

tir_expr tir_region_load(tir_region *region, uint32_t tensor, const tir_expr *index) {
    const tir_tensor *t = &region->tensors.data[tensor];
    return tir_load(region->pool, tensor, (tir_dtype)t->dtype, t->rank, index, 0, 0);
}

tir_expr tir_region_load_guarded(tir_region *region, uint32_t tensor, const tir_expr *index, tir_expr guard,
                                 tir_expr other) {
    const tir_tensor *t = &region->tensors.data[tensor];
    return tir_load(region->pool, tensor, (tir_dtype)t->dtype, t->rank, index, guard, other);
}

tir_region *tir_region_copy(lib_arena *arena, const tir_region *region) {
    tir_region *copy = lib_arena_copy(arena, region, sizeof *region);
    copy->arena = arena;
#define COPY(vec)                                                                                            \
    (copy->vec.data = lib_arena_copy(arena, region->vec.data, region->vec.count * sizeof *region->vec.data), \
     copy->vec.capacity = region->vec.count)
    COPY(tensors);
    COPY(stages);
    COPY(params);
#undef COPY
    return copy;
}

/* ---- canonical hash: dense numbers in order of first visit replace pool ids and names of variables and expressions.
 */

typedef struct region_hasher {
    const tir_region *region;
    lib_arena *arena;
    /* by node id; 0: not visited yet */
    uint32_t *number;
    uint32_t next;
    lib_vec(tir_expr) stack;
    lib_vec(uint8_t) facts;
} region_hasher;

/* One byte for -1 to 253, which most are, nine for others: the digest takes its time by bytes. */
static void hash_integer(region_hasher *hasher, int64_t value) {
    enum { OTHERS = UINT8_MAX };
    lib_vec_reserve(hasher->arena, &hasher->facts, 1 + sizeof value);
    uint8_t *end = hasher->facts.data + hasher->facts.count;
    const bool is_small = value >= -1 && value < OTHERS - 1;
    *end = is_small ? (uint8_t)(value + 1) : OTHERS;
    if (!is_small) memcpy(end + 1, &value, sizeof value);
    hasher->facts.count += is_small ? 1 : 1 + (uint32_t)sizeof value;
}

static void hash_node(region_hasher *hasher, tir_expr e) {
    const tir_pool *pool = hasher->region->pool;
    const tir_node *node = tir_get(pool, e);
    hasher->number[e] = hasher->next++;
    hash_integer(hasher, node->op);
    hash_integer(hasher, node->dtype);
    hash_integer(hasher, node->guarded);
    hash_integer(hasher, node->count);
    if (node->op == TIR_VAR) { /* identified by its number; the range may affect simplification */
        const tir_variable *variable = tir_variable_of(pool, e);
        hash_integer(hasher, variable->kind);
        hash_integer(hasher, variable->low);
        hash_integer(hasher, variable->high);
        hash_integer(hasher, variable->multiple);
    } else {
        hash_integer(hasher, (int64_t)node->bits);
    }
    for (int i = 0; i < node->count; i++) hash_integer(hasher, hasher->number[tir_operand(pool, e, i)]);
}

/* Hashes an expression: its new nodes in post-order (with an explicit stack), operands in order, each shared node once; then the root's
 * number, beyond those of operators, by which a node begins. */
static void hash_expr(region_hasher *hasher, tir_expr root) {
    const tir_pool *pool = hasher->region->pool;
    if (root) lib_vec_push(hasher->arena, &hasher->stack, root);
    while (hasher->stack.count) {
        tir_expr e = hasher->stack.data[hasher->stack.count - 1];
        bool ready = true;
        for (int i = tir_get(pool, e)->count - 1; i >= 0 && !hasher->number[e]; i--) {
            tir_expr operand = tir_operand(pool, e, i);
            if (hasher->number[operand]) continue;
            lib_vec_push(hasher->arena, &hasher->stack, operand);
            ready = false;
        }
        if (!ready) continue;
        if (!hasher->number[e]) hash_node(hasher, e);
        hasher->stack.count--;
    }
    hash_integer(hasher, TIR_OP_COUNT + (root ? (int64_t)hasher->number[root] : 0));
}

static void hash_tensor(region_hasher *hasher, const tir_tensor *t) {
    const int64_t facts[] = {
        t->dtype,          t->rank,         t->has_strides, t->stage,     t->component,
        t->argument,       t->output,       t->constant,    t->alignment, tir_layout_is_identity(&t->layout),
        t->layout.swizzle, t->layout.count, t->nonzero != 0};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) hash_integer(hasher, facts[i]);
    for (int i = 0; i < t->rank; i++) {
        hash_expr(hasher, t->extent[i]);
        hash_integer(hasher, t->has_strides ? t->stride[i] : 0);
    }
    for (int i = 0; i < t->layout.count; i++) {
        hash_integer(hasher, t->layout.part[i].dim);
        hash_integer(hasher, t->layout.part[i].divisor);
        hash_integer(hasher, t->layout.part[i].modulus);
    }
    if (!t->nonzero) return;
    for (int i = 0; i < t->rank; i++) hash_expr(hasher, t->position[i]);
    hash_expr(hasher, t->nonzero);
}

static void hash_stage(region_hasher *hasher, const tir_stage *stage) {
    const int64_t facts[] = {stage->kind,  stage->exact, stage->removed,  stage->space, stage->reduce,
                             stage->count, stage->fold,  stage->in_place, stage->bits};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) hash_integer(hasher, facts[i]);
    for (int i = 0; i < stage->space + stage->reduce; i++) {
        hash_expr(hasher, stage->axis[i].var);
        hash_expr(hasher, stage->axis[i].extent);
    }
    for (int i = 0; i < stage->count; i++) {
        hash_integer(hasher, stage->tensor[i]);
        hash_expr(hasher, stage->value[i]);
        hash_expr(hasher, stage->initial[i]);
        hash_expr(hasher, stage->merge[i]);
    }
    hash_expr(hasher, stage->predicate);
    for (int i = 0; i < DLC_MAX_RANK; i++) hash_expr(hasher, stage->index[i]);
}

lib_hash128 tir_region_hash(const tir_region *region) {
    enum { BYTES_AT_FIRST = 1024 };
    region_hasher hasher = {.region = region, .arena = region->arena, .next = 1};
    hasher.number = LIB_NEW_ARRAY(region->arena, uint32_t, region->pool->nodes.count);
    lib_vec_reserve(region->arena, &hasher.facts, BYTES_AT_FIRST);
    hash_integer(&hasher, region->inputs);
    hash_integer(&hasher, region->outputs);
    hash_integer(&hasher, region->excess_precision);
    hash_integer(&hasher, region->params.count);
    hash_integer(&hasher, region->tensors.count);
    hash_integer(&hasher, region->stages.count);
    for (uint32_t i = 0; i < region->params.count; i++) hash_expr(&hasher, region->params.data[i]);
    for (uint32_t i = 0; i < region->tensors.count; i++) hash_tensor(&hasher, &region->tensors.data[i]);
    for (uint32_t i = 0; i < region->stages.count; i++) hash_stage(&hasher, &region->stages.data[i]);
    return lib_digest(hasher.facts.data, hasher.facts.count, (lib_hash128){1, 2});
}
