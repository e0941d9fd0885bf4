/* Which outputs of a region may share the buffer of one of its inputs: every element is then read before, or when, it is written, in
 * any order that a schedule may choose (except with overlapping tiles, which compute points twice). */
#include "tir/loop.h"
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

/* Does a statement of the list store to the buffer? */
static bool stores_to(const tir_stmt *list, uint32_t buffer) {
    for (const tir_stmt *stmt = list; stmt; stmt = stmt->next) {
        bool stores = false;
        switch (stmt->kind) {
        case TIR_FOR: stores = stores_to(stmt->for_.body, buffer); break;
        case TIR_LET: stores = stores_to(stmt->let.body, buffer); break;
        case TIR_IF: stores = stores_to(stmt->if_.body, buffer) || stores_to(stmt->if_.otherwise, buffer); break;
        case TIR_INTERLEAVE: stores = stores_to(stmt->interleave.body, buffer); break;
        case TIR_SPILL: stores = stores_to(stmt->spill.body, buffer); break;
        case TIR_STORE: stores = stmt->store.buffer == buffer; break;
        case TIR_COLLECTIVE:
            for (int i = 0; i < stmt->collective.unit->places; i++)
                stores = stores || stmt->collective.place[i].buffer == buffer;
            break;
        case TIR_PREFETCH:
        case TIR_BARRIER:
        case TIR_COMMIT:
        case TIR_WAIT:
        case TIR_COMMENT: break;
        }
        if (stores) return true;
    }
    return false;
}

/* Does the kernel finish argument `first` in phases before the first one that writes argument `second`? */
static bool is_finished_before(const tir_kernel *kernel, int first, int second) {
    bool second_begun = false;
    for (uint32_t p = 0; p < kernel->phases.count; p++) {
        const tir_phase *phase = &kernel->phases.data[p];
        second_begun = second_begun || stores_to(phase->body, (uint32_t)second);
        if (phase->repeat || (second_begun && stores_to(phase->body, (uint32_t)first))) return false;
    }
    return true;
}

/* What is computed from an element of an input: which further outputs may be among it. */
typedef struct reach {
    const tir_region *region;
    /* NULL: no schedule is known */
    const tir_kernel *kernel;
    uint32_t output;
} reach;

/* Whether every reader of `tensor` is a map that reads it only at its own point and computes the output, or an internal tensor of which the
 * same holds, or another output: one from which in turn the output is computed, so that its elements, which are computed once, come first; or
 * one that the kernel finishes in earlier phases. *readers: the number of loads. */
static bool reaches_only(const reach *r, uint32_t tensor, int depth, int *readers) {
    enum { DEPTH_MAX = 16 };
    if (depth == DEPTH_MAX) return false;
    *readers = 0;
    for (uint32_t s = 0; s < r->region->stages.count; s++) {
        const tir_stage *stage = &r->region->stages.data[s];
        if (stage->removed) continue;
        load_search search = search_stage(r->region, stage, tensor, true);
        if (!search.loads) continue;
        if (search.elsewhere || stage->kind != TIR_MAP || stage->count != 1 || stage->fold >= 0) return false;
        *readers += search.loads;
        const tir_tensor *written = &r->region->tensors.data[stage->tensor[0]];
        int further;
        if (stage->tensor[0] == r->output) continue;
        if (written->output && !r->kernel) return false;
        if (!reaches_only(r, stage->tensor[0], depth + 1, &further)) return false;
        if (written->output && !further &&
            !is_finished_before(r->kernel, written->argument, r->region->tensors.data[r->output].argument))
            return false;
    }
    return true;
}

bool tir_region_same_point(const tir_region *region, const tir_kernel *kernel, int input, int output) {
    const uint32_t x = argument_tensor(region, input), y = argument_tensor(region, region->inputs + output);
    int readers;
    if (x == region->tensors.count || y == region->tensors.count || !alike(region, x, y)) return false;
    return reaches_only(&(reach){region, kernel, y}, x, 0, &readers);
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
        if (tir_region_same_point(region, NULL, i, output)) return "an input may lie in the output's memory";
    return NULL;
}

/* Does any expression read the tensor, other than as the stage's initial value? */
static bool is_read_otherwise(const tir_region *region, uint32_t tensor, const tir_stage *stage) {
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *reader = &region->stages.data[s];
        if (!reader->removed && search_stage(region, reader, tensor, reader != stage).loads) return true;
    }
    return false;
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
    if (is_read_otherwise(region, x, stage)) return -1;
    return region->tensors.data[x].argument;
}

void tir_region_update_in_place(tir_region *region, int output) {
    uint32_t y = argument_tensor(region, region->inputs + output);
    region->stages.data[region->tensors.data[y].stage].in_place = true;
}
