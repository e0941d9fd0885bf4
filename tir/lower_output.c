/* `store C output`: an attached stage without scratch. Its values are stored in the memory of its root's output, until the root overwrites
 * each one as it reads it. So a row that several steps of a computation pass on takes no more cache than the result. */
#include "tir/lower.h"

/* The stage that is attached to a loop of `root` and is s, or has s attached inside it, possibly through others; -1: none. */
static int runs_in(tir_lowering *l, int s, int root) {
    while (s >= 0 && tir_plan_of(l, s)->at_stage != root) s = tir_plan_of(l, s)->at_stage;
    return s;
}

/* Why stage s may not be stored in its root's output; NULL: it may, as far as loops go: it is attached to a root, no other stage is stored
 * there, and its readers but the root run in stages attached at the same loop, so they finish before the root reads it. */
static const char *place_flaw(tir_lowering *l, int s) {
    const tir_stage_plan *plan = tir_plan_of(l, s);
    int root = plan->at_stage;
    if (root < 0 || tir_plan_of(l, root)->at_stage >= 0) return "it is not attached to a root";
    for (int q = 0; q < (int)l->region->stages.count; q++) {
        if (q == s || q == root || tir_stage_of(l, q)->removed) continue;
        if (tir_plan_of(l, q)->in_output && tir_plan_of(l, q)->at_stage == root)
            return "another stage is stored there, too";
        bool reads = tir_lower_reads(l, q, s);
        int top = reads ? runs_in(l, q, root) : -1;
        if (top >= 0 && tir_plan_of(l, top)->beside)
            return "a sum beside the root reads it, after the root has overwritten it";
        if (reads && (top < 0 || tir_plan_of(l, top)->at_node != plan->at_node))
            return "something reads it in another loop than it is attached at";
    }
    return NULL;
}

static _Noreturn void refuse(tir_lowering *l, int s, const char *flaw) {
    lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT, "schedule of region %s: `store %s output`: %s", l->region->name,
              tir_stage_of(l, s)->name, flaw);
}

void tir_lower_check_outputs(tir_lowering *l, const tir_region *original) {
    for (int s = 0; s < (int)l->region->stages.count; s++) {
        if (!tir_plan_of(l, s)->in_output || tir_stage_of(l, s)->removed) continue;
        const char *flaw = place_flaw(l, s);
        if (!flaw) flaw = tir_region_kept_flaw(l->region, s, tir_plan_of(l, s)->at_stage);
        if (flaw) refuse(l, s, flaw);
        /* Hosts choose buffers by the region before the schedule's rewrites. */
        const tir_stage *root = tir_stage_of(l, tir_plan_of(l, s)->at_stage);
        int output = l->region->tensors.data[root->tensor[0]].argument - l->region->inputs;
        for (int i = 0; i < original->inputs; i++)
            if (tir_region_same_point(original, NULL, i, output))
                refuse(l, s, "an input may lie in the output's memory");
    }
}

/* Opens stage s at the root's output; refuses unless its points are exactly those that the root stores inside the current iteration. */
void tir_lower_open_output(tir_lowering *l, int s) {
    const tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    const char *flaw = tir_region_flaw(&l->state, s, false);
    for (int a = 0; a < stage->space && !flaw; a++) {
        tir_span view = tir_axis_view(&l->state, plan->at_stage, a);
        if (plan->low[a] != view.low || plan->extent[a] != view.extent)
            flaw = "its points are not those that the root stores in that loop";
        plan->scratch_low[a] = tir_index(l->pool, 0);
    }
    if (flaw) refuse(l, s, flaw);
    plan->scratch[0] = l->home[tir_stage_of(l, plan->at_stage)->tensor[0]];
    plan->open = true;
}
