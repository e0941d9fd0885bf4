/* The dump "kept": values of the forward sweep that later sweeps read, values that live across the region at which most bytes are live, and the
 * kernels that compute values again. */
#include "graph/recompute.h"
#include "graph/sweep.h"
#include "jit/internal.h"

/* The regions of a value's lifetime in the arena. */
typedef struct lifetime {
    /* 1 + the first region that writes it; 0: it is not in the arena */
    uint32_t begin;
    /* the last region that reads or writes it; regions.count: it is copied to an output */
    uint32_t end;
} lifetime;

static lifetime *find_lifetimes(jit_build *build) {
    lifetime *found = LIB_NEW_ARRAY(build->work, lifetime, build->bound->values.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        for (uint32_t o = 0; o < region->output_count && region->kind != GRAPH_REGION_VIEW; o++) {
            const graph_id home = jit_home(build, region->outputs[o], NULL);
            if (build->place[home].kind != JIT_PLACE_ARENA) continue;
            if (!found[home].begin) found[home].begin = r + 1;
            found[home].end = r;
        }
        for (uint32_t i = 0; i < region->input_count; i++) found[jit_home(build, region->inputs[i], NULL)].end = r;
    }
    for (uint32_t o = 0; o < build->bound->outputs.count; o++)
        found[jit_home(build, build->bound->outputs.data[o], NULL)].end = build->regions.count;
    return found;
}

static const char *reason_of(const jit_build *build, const graph_region *by) {
    if (!build->program->options.memory_bytes) return "there is no memory_bytes";
    if (!graph_may_recompute(build->bound, by)) return "never computed again";
    return "memory_bytes is enough";
}

static bool is_forward(jit_build *build, const graph_region *region) {
    return jit_region_sweeps(build, region) & GRAPH_SWEEP_FORWARD;
}

/* Is each value computed again: from operands that are read by the identity `again`, and otherwise from values of the forward sweep alone? Reverse
 * mode computes in this way what `recompute`, or a rule of differentiation, does not keep. */
static bool *find_again(jit_build *build) {
    const graph *g = build->bound;
    const uint8_t *sweeps = graph_sweeps(build->work, g, 0);
    bool *again = LIB_NEW_ARRAY(build->work, bool, (size_t)g->values.count + 1);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        bool any = strcmp(node->op->name, "again") == 0, all = true;
        for (int i = 0; i < node->inputs && strcmp(node->op->name, "again") != 0; i++) {
            if (!node->input[i]) continue;
            any = any || again[node->input[i]];
            const uint8_t from = sweeps ? sweeps[g->values.data[node->input[i]].node] : 0;
            all = all && (again[node->input[i]] || !from || from == GRAPH_SWEEP_FORWARD);
        }
        for (int r = 0; r < node->results; r++) again[node->first + (graph_id)r] = any && all;
    }
    return again;
}

/* Appends the regions that compute again to plan->again. */
static void note_again(jit_build *build) {
    jit_plan *plan = build->plan;
    jit_kept *all = LIB_NEW_ARRAY(&plan->arena, jit_kept, (size_t)plan->again_count + build->regions.count);
    if (plan->again_count) memcpy(all, plan->again, (size_t)plan->again_count * sizeof *all);
    plan->again = all;
    const bool *again_value = find_again(build);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        bool found = false;
        for (uint32_t o = 0; o < region->output_count; o++) found = found || again_value[region->outputs[o]];
        if (!found || region->kind == GRAPH_REGION_VIEW) continue;
        jit_kept *again = &all[plan->again_count++];
        *again = (jit_kept){.by = lib_arena_string(&plan->arena, region->name)};
        for (uint32_t o = 0; o < region->output_count; o++)
            again->bytes += (int64_t)jit_value_bytes(build, region->outputs[o]);
    }
}

void jit_note_kept(jit_build *build) {
    jit_plan *plan = build->plan;
    if (!build->regions.count) return;
    const lifetime *found = find_lifetimes(build);
    lib_vec(graph_id) across = {0};
    for (graph_id v = 1; v < build->bound->values.count; v++) {
        if (!found[v].begin) continue;
        const uint32_t begin = found[v].begin - 1, end = found[v].end;
        const bool later = end < build->regions.count && is_forward(build, &build->regions.data[begin]) &&
                           !is_forward(build, &build->regions.data[end]);
        if (later || (begin < build->peak && end > build->peak)) lib_vec_push(build->work, &across, v);
    }
    plan->peak = lib_arena_string(&plan->arena, build->regions.data[build->peak].name);
    plan->kept = LIB_NEW_ARRAY(&plan->arena, jit_kept, (size_t)across.count + 1);
    for (uint32_t i = 0; i < across.count; i++) {
        const lifetime *life = &found[across.data[i]];
        const graph_region *by = &build->regions.data[life->begin - 1];
        const bool output = life->end == build->regions.count;
        plan->kept[plan->kept_count++] = (jit_kept){
            .bytes = (int64_t)jit_value_bytes(build, across.data[i]),
            .by = lib_arena_format(&plan->arena, "%s%s", by->name, jit_region_origins(build, by)),
            .until = output ? "the end" : lib_arena_string(&plan->arena, build->regions.data[life->end].name),
            .why = reason_of(build, by)};
        plan->kept[plan->kept_count - 1].peak = life->begin - 1 < build->peak && life->end > build->peak;
    }
    note_again(build);
}

void jit_print_kept(lib_text *text, const jit_plan *plan) {
    int64_t bytes = 0, at_peak = 0;
    for (int i = 0; i < plan->kept_count; i++) {
        bytes += plan->kept[i].bytes;
        if (plan->kept[i].peak) at_peak += plan->kept[i].bytes;
    }
    lib_text_format(text, "kept: %d values of %lld bytes, %lld of them across %s; arena of %lld bytes\n",
                    plan->kept_count, (long long)bytes, (long long)at_peak, plan->peak ? plan->peak : "nothing",
                    (long long)plan->arena_bytes);
    for (int i = 0; i < plan->kept_count; i++)
        lib_text_format(text, "  %lld bytes of %s until %s: %s\n", (long long)plan->kept[i].bytes, plan->kept[i].by,
                        plan->kept[i].until, plan->kept[i].why);
    lib_text_format(text, "computed again: %d kernels\n", plan->again_count);
    for (int i = 0; i < plan->again_count; i++) {
        const jit_kept *again = &plan->again[i];
        lib_text_format(text, "  %lld bytes by %s", (long long)again->bytes, again->by);
        if (again->until)
            lib_text_format(text, " before %s for memory_bytes: %.0f predicted cycles", again->until, again->cycles);
        lib_text_add(text, "\n");
    }
}
