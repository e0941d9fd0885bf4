/* What a plan keeps across the region at which most bytes are live, and what it computes again behind it: for the dump "kept". */
#include "graph/recompute.h"
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

void jit_note_kept(jit_build *build) {
    jit_plan *plan = build->plan;
    if (!build->regions.count) return;
    const lifetime *found = find_lifetimes(build);
    lib_vec(graph_id) across = {0};
    for (graph_id v = 1; v < build->bound->values.count; v++)
        if (found[v].begin && found[v].begin - 1 < build->peak && found[v].end > build->peak)
            lib_vec_push(build->work, &across, v);
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
    }
}

void jit_print_kept(lib_text *text, const jit_plan *plan) {
    int64_t bytes = 0;
    double cycles = 0;
    for (int i = 0; i < plan->kept_count; i++) bytes += plan->kept[i].bytes;
    lib_text_format(text, "kept: %d values of %lld bytes, across %s; arena of %lld bytes\n", plan->kept_count,
                    (long long)bytes, plan->peak ? plan->peak : "nothing", (long long)plan->arena_bytes);
    for (int i = 0; i < plan->kept_count; i++)
        lib_text_format(text, "  %lld bytes of %s until %s: %s\n", (long long)plan->kept[i].bytes, plan->kept[i].by,
                        plan->kept[i].until, plan->kept[i].why);
    for (int i = 0; i < plan->again_count; i++) cycles += plan->again[i].cycles;
    lib_text_format(text, "computed again: %d kernels, %.0f predicted cycles\n", plan->again_count, cycles);
    for (int i = 0; i < plan->again_count; i++)
        lib_text_format(text, "  %lld bytes by %s before %s: %.0f cycles\n", (long long)plan->again[i].bytes,
                        plan->again[i].by, plan->again[i].until, plan->again[i].cycles);
}
