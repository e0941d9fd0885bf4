/* Which outputs of a region may share the buffer of one of its inputs: every element is then read before, or when, it is written, in
 * any order that a schedule may choose (except with overlapping tiles, which compute points twice). */
#include "tir/region.h"

typedef struct load_search {
    const tir_region *region;
    /* the stage whose expressions are visited */
    const tir_stage *stage;
    uint32_t tensor;
    /* number of loads of the tensor: all; guarded ones, and those not at the stage's own point */
    int loads, elsewhere;
} load_search;

static tir_expr find_load(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    load_search *search = user;
    const tir_node *node = tir_get(pool, e);
    if (node->op != TIR_LOAD || (uint32_t)node->bits != search->tensor) return rebuilt;
    bool here = !node->guarded && node->count == search->stage->space;
    for (int d = 0; d < node->count && here; d++) here = tir_operand(pool, e, d) == search->stage->axis[d].var;
    search->loads++;
    search->elsewhere += !here;
    return rebuilt;
}

static void search_expr(load_search *search, tir_expr e) {
    if (e) tir_rewrite(search->region->pool, e, find_load, search);
}

static load_search search_stage(const tir_region *region, const tir_stage *stage, uint32_t tensor, bool initial) {
    load_search search = {.region = region, .stage = stage, .tensor = tensor};
    for (int c = 0; c < stage->count; c++) {
        search_expr(&search, stage->value[c]);
        if (initial) search_expr(&search, stage->initial[c]);
        search_expr(&search, stage->merge[c]);
    }
    search_expr(&search, stage->predicate);
    for (int d = 0; d < stage->space && stage->kind == TIR_SCATTER; d++) search_expr(&search, stage->index[d]);
    return search;
}

static bool alike(const tir_region *region, uint32_t a, uint32_t b) {
    const tir_tensor *x = &region->tensors.data[a], *y = &region->tensors.data[b];
    if (x->dtype != y->dtype || x->rank != y->rank || x->has_strides || y->has_strides) return false;
    for (int d = 0; d < x->rank; d++)
        if (tir_equal(region->pool, x->extent[d], y->extent[d]) != TIR_YES) return false;
    return tir_layout_equal(&x->layout, &y->layout);
}

static uint32_t argument_tensor(const tir_region *region, int argument) {
    uint32_t t = 0;
    while (t < region->tensors.count && region->tensors.data[t].argument != argument) t++;
    return t;
}

/* Whether every reader of `tensor` is a map that reads it only at its own point and computes `output`, or an internal tensor of which
 * the same holds. */
static bool reaches_only(const tir_region *region, uint32_t tensor, uint32_t output, int depth) {
    enum { DEPTH_MAX = 16 };
    if (depth == DEPTH_MAX) return false;
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        if (stage->removed) continue;
        load_search search = search_stage(region, stage, tensor, true);
        if (!search.loads) continue;
        if (search.elsewhere || stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0) return false;
        if (stage->tensor[0] == output) continue;
        if (region->tensors.data[stage->tensor[0]].output) return false;
        if (!reaches_only(region, stage->tensor[0], output, depth + 1)) return false;
    }
    return true;
}

bool tir_region_same_point(const tir_region *region, int input, int output) {
    uint32_t x = argument_tensor(region, input), y = argument_tensor(region, region->inputs + output);
    if (x == region->tensors.count || y == region->tensors.count || !alike(region, x, y)) return false;
    return reaches_only(region, x, y, 0);
}

const char *tir_region_kept_flaw(const tir_region *region, int stage, int root) {
    const tir_stage *kept = &region->stages.data[stage], *top = &region->stages.data[root];
    uint32_t x = kept->tensor[0], y = top->tensor[0];
    int output = region->tensors.data[y].argument - region->inputs;
    if (kept->kind != TIR_MAP || kept->count != 1 || kept->fold >= 0 || region->tensors.data[x].output)
        return "it is not a map that stays inside";
    if (top->kind != TIR_MAP || top->count != 1 || output < 0) return "its root does not compute one output";
    if (!alike(region, x, y)) return "the output's elements or places are others";
    if (search_stage(region, top, x, false).elsewhere) return "the output is computed from other points of it, too";
    for (int i = 0; i < region->inputs; i++)
        if (tir_region_same_point(region, i, output)) return "an input may lie in the output's memory";
    return NULL;
}

int tir_region_updated_input(const tir_region *region, int output) {
    uint32_t y = argument_tensor(region, region->inputs + output);
    if (y == region->tensors.count || region->tensors.data[y].stage < 0) return -1;
    const tir_stage *stage = &region->stages.data[region->tensors.data[y].stage];
    const tir_node *initial = stage->initial[0] ? tir_get(region->pool, stage->initial[0]) : NULL;
    if (stage->kind != TIR_SCATTER || stage->count != 1 || !initial || initial->op != TIR_LOAD || initial->guarded)
        return -1;
    uint32_t x = (uint32_t)initial->bits;
    if (region->tensors.data[x].argument < 0 || region->tensors.data[x].stage >= 0 || !alike(region, x, y)) return -1;
    for (int d = 0; d < stage->space; d++)
        if (tir_operand(region->pool, stage->initial[0], d) != stage->axis[d].var) return -1;
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *reader = &region->stages.data[s];
        if (!reader->removed && search_stage(region, reader, x, reader != stage).loads) return -1;
    }
    return region->tensors.data[x].argument;
}

void tir_region_update_in_place(tir_region *region, int output) {
    uint32_t y = argument_tensor(region, region->inputs + output);
    region->stages.data[region->tensors.data[y].stage].in_place = true;
}
