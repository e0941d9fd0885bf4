/* Loads of stages; see readers.h. */
#include "tir/readers.h"

typedef struct load_walk {
    tir_load_visit visit;
    void *user;
} load_walk;

static tir_expr walk_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const load_walk *walk = user;
    if (tir_op_of(pool, e) == TIR_LOAD) walk->visit(walk->user, e);
    return rebuilt;
}

void tir_stage_loads(const tir_region *region, int stage, tir_load_visit visit, void *user) {
    load_walk walk = {visit, user};
    tir_pool *pool = region->pool;
    const tir_stage s = region->stages.data[stage];
    for (int c = 0; c < s.count; c++) tir_rewrite(pool, s.value[c], walk_load, &walk);
    for (int c = 0; c < s.count; c++)
        if (s.initial[c]) tir_rewrite(pool, s.initial[c], walk_load, &walk);
    if (s.predicate) tir_rewrite(pool, s.predicate, walk_load, &walk);
    for (int d = 0; d < s.space && s.kind == TIR_SCATTER; d++) tir_rewrite(pool, s.index[d], walk_load, &walk);
}

typedef struct load_count {
    const tir_pool *pool;
    uint32_t tensor;
    tir_expr load[TIR_LOADS_MAX];
    int count;
} load_count;

static void count_load(void *user, tir_expr load) {
    load_count *found = user;
    if (tir_get(found->pool, load)->bits != found->tensor || found->count == TIR_LOADS_MAX) return;
    for (int i = 0; i < found->count; i++)
        if (found->load[i] == load) return;
    found->load[found->count++] = load;
}

int tir_loads_of(const tir_region *region, int stage, uint32_t tensor) {
    load_count found = {.pool = region->pool, .tensor = tensor};
    tir_stage_loads(region, stage, count_load, &found);
    return found.count;
}

bool tir_stage_reads(const tir_region *region, int stage, uint32_t tensor) {
    return tir_loads_of(region, stage, tensor) > 0;
}

bool tir_reads_any(const tir_region *region, int reader, const bool *set) {
    for (uint32_t p = 0; p < region->stages.count; p++)
        for (int c = 0; set[p] && c < region->stages.data[p].count; c++)
            if (tir_stage_reads(region, reader, region->stages.data[p].tensor[c])) return true;
    return false;
}

typedef struct load_search {
    tir_expr var;
    bool found;
} load_search;

static tir_expr meet_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    load_search *search = user;
    if (tir_op_of(pool, e) == TIR_LOAD && (!search->var || tir_uses(pool, e, search->var))) search->found = true;
    return rebuilt;
}

bool tir_has_load(tir_pool *pool, tir_expr e, tir_expr var) {
    load_search search = {.var = var};
    if (e) tir_rewrite(pool, e, meet_load, &search);
    return search.found;
}

/* Loads of one stage's values by another one. */
typedef struct producer_search {
    const tir_region *region;
    const tir_stage *reader;
    int producer;
    /* how many indices are compared with the reader's axes */
    int axes;
    /* there is a load; one whose first indices are other ones */
    bool reads, elsewhere;
} producer_search;

static void find_producer(void *user, tir_expr load) {
    producer_search *search = user;
    const tir_tensor *tensor = &search->region->tensors.data[tir_get(search->region->pool, load)->bits];
    if (tensor->stage != search->producer) return;
    search->reads = true;
    if (tensor->rank < search->axes || search->reader->space < search->axes) search->elsewhere = true;
    for (int d = 0; d < search->axes && !search->elsewhere; d++)
        search->elsewhere = tir_operand(search->region->pool, load, d) != search->reader->axis[d].var;
}

static producer_search search_producer(const tir_region *region, int reader, int producer, int axes) {
    const tir_stage stage = region->stages.data[reader];
    producer_search search = {.region = region, .reader = &stage, .producer = producer, .axes = axes};
    if (!stage.removed) tir_stage_loads(region, reader, find_producer, &search);
    return search;
}

bool tir_reads(const tir_region *region, int reader, int producer) {
    return search_producer(region, reader, producer, 0).reads;
}

bool tir_reads_along(const tir_region *region, int reader, int producer, int axes) {
    return !search_producer(region, reader, producer, axes).elsewhere;
}

bool tir_is_read_by_others(const tir_region *region, int stage, uint32_t tensor) {
    for (int q = 0; q < (int)region->stages.count; q++)
        if (q != stage && !region->stages.data[q].removed && tir_stage_reads(region, q, tensor)) return true;
    return false;
}

bool tir_has_output(const tir_region *region, int stage) {
    const tir_stage *s = &region->stages.data[stage];
    for (int c = 0; c < s->count; c++)
        if (region->tensors.data[s->tensor[c]].output) return true;
    return false;
}
