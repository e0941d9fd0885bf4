/* Prints every stage of a program as text. Stages before the plan are rebuilt for the given shapes, by the functions that build
 * plans, so that they can be printed even if a later stage fails. */
#include "graph/build.h"
#include "jit/internal.h"

typedef struct dump {
    dlc_program *program;
    const int64_t *shapes;
    jit_tier tier;
    /* stages `plan` and `profile` */
    jit_plan *plan;
    lib_arena *work;
    lib_text text;
    /* build of the current graph or branch */
    jit_build *build;
    /* name of the current branch; NULL: the graph itself */
    const char *branch;
    /* by value of the current graph or branch: a region of the forward sweep writes it, one that is not of it reads it */
    bool *kept;
    /* stage `dot`: number of graphs so far */
    uint32_t graphs;
    /* parts were elided, so that the text does not parse as a graph */
    bool elided;
} dump;

/* ---- stages of the whole graph */

static void dump_graph(dump *d) {
    if (d->program->init) {
        lib_text_add(&d->text, "# once per program, its outputs are the last inputs of the graph below\n");
        d->elided |= graph_print_elided(&d->text, d->program->init);
        lib_text_add(&d->text, "\n");
    }
    d->elided |= graph_print_elided(&d->text, d->program->graph);
}

static void dump_bound(dump *d) {
    d->elided |= graph_print_elided(&d->text, d->build->bound);
}

/* ---- stages of regions; visited for the graph and all its branches */

static const char *const region_kinds[] = {"kernel", "view", "opaque", "control"};

/* Prints the layout of a value that is not row-major. */
static void add_layout(dump *d, graph_id value, const char *before) {
    static const char *const dims[] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9", "d10", "d11"};
    const tir_layout *layout = d->build->regions.layouts ? d->build->regions.layouts[value] : NULL;
    if (!layout) return;
    lib_text_add(&d->text, before);
    tir_layout_print(&d->text, layout, dims);
}

static void add_values(dump *d, const char *what, const graph_id *values, uint32_t count) {
    const graph *g = d->build->bound;
    lib_text_format(&d->text, "  %s", what);
    for (uint32_t i = 0; i < count; i++) {
        lib_text_add(&d->text, i ? ", " : " ");
        const char *name = graph_shown_name(g, values[i]);
        if (name)
            graph_print_name(&d->text, name);
        else
            lib_text_format(&d->text, "v%u", values[i]);
        lib_text_add(&d->text, ": ");
        graph_print_shape(&d->text, g, graph_shape_of(g, values[i]));
        add_layout(d, values[i], " ");
    }
    lib_text_add(&d->text, "\n");
}

/* Does it run in the forward sweep, whatever else it computes? */
static bool is_forward(dump *d, const graph_region *region) {
    return jit_region_sweeps(d->build, region) & GRAPH_SWEEP_FORWARD;
}

static void find_kept(dump *d) {
    const graph *g = d->build->bound;
    bool *forward = LIB_NEW_ARRAY(d->work, bool, (size_t)g->values.count + 1);
    d->kept = LIB_NEW_ARRAY(d->work, bool, (size_t)g->values.count + 1);
    for (uint32_t r = 0; r < d->build->regions.count; r++) {
        const graph_region *region = &d->build->regions.data[r];
        for (uint32_t o = 0; o < region->output_count; o++) forward[region->outputs[o]] = is_forward(d, region);
        for (uint32_t i = 0; i < region->input_count; i++)
            if (forward[region->inputs[i]] && !is_forward(d, region)) d->kept[region->inputs[i]] = true;
    }
}

static void region_nodes(dump *d, const graph_region *region) {
    const unsigned sweeps = jit_region_sweeps(d->build, region);
    lib_text_format(&d->text, "%s %s%s%s%s\n", region_kinds[region->kind], region->name ? region->name : "",
                    jit_region_origins(d->build, region), sweeps ? ": " : "", graph_sweeps_text(sweeps));
    add_values(d, "reads ", region->inputs, region->input_count);
    for (uint32_t i = 0; i < region->node_count; i++) {
        lib_text_add(&d->text, "    ");
        graph_print_node(&d->text, d->build->bound, region->nodes[i]);
        lib_text_add(&d->text, "\n");
    }
    add_values(d, "writes", region->outputs, region->output_count);
    graph_id *kept = LIB_NEW_ARRAY(d->work, graph_id, (size_t)region->output_count + 1);
    uint32_t count = 0;
    for (uint32_t o = 0; o < region->output_count; o++)
        if (d->kept[region->outputs[o]]) kept[count++] = region->outputs[o];
    if (count) add_values(d, "keeps ", kept, count);
}

static tir_region *computation(dump *d, const graph_region *region) {
    tir_region *out = jit_region_build(d->build, d->work, region);
    out->excess_precision = !d->program->options.no_excess_precision;
    return out;
}

static void region_stages(dump *d, const graph_region *region) {
    tir_region_print(&d->text, computation(d, region));
}

static void after_line(void *user, const char *line, const char *state) {
    dump *d = user;
    lib_text_format(&d->text, "-- after `%s`\n%s\n", line, state);
}

static tir_kernel *lowered(dump *d, const graph_region *region, tir_schedule *schedule,
                           const tir_lower_options *options) {
    tir_region *rewritten;
    return jit_lower_region(d->program, d->work, computation(d, region), &rewritten, schedule, options, NULL, NULL);
}

/* The host's schedule, or that of the rules, with the region's names: in the form accepted by the compile option `schedule`. */
static jit_own shown_schedule(dump *d, const graph_region *region) {
    tir_region *what = computation(d, region), *rewritten;
    tir_schedule written, shown;
    const jit_own own = jit_own_schedule(d->program, d->work, what);
    if (own.text && !jit_has_choices(&own)) return own;
    jit_lower_region(d->program, d->work, what, &rewritten, &written, NULL, NULL, NULL);
    tir_schedule_init(&shown, d->work);
    tir_schedule_show(&shown, &written, computation(d, region));
    return (jit_own){shown.text.length ? shown.text.data : "", shown.text.length, 0};
}

/* Lowered with the region's names: the result of passing the shown schedule back as the host's. */
static tir_kernel *lowered_as_shown(dump *d, const graph_region *region, const tir_lower_options *options) {
    const jit_own own = shown_schedule(d, region);
    tir_schedule schedule;
    tir_region *rewritten;
    return jit_lower_region(d->program, d->work, computation(d, region), &rewritten, &schedule, options, &own, NULL);
}

static void region_header(dump *d, const graph_region *region) {
    const unsigned long long hash = (unsigned long long)tir_region_hash(computation(d, region)).low;
    lib_text_format(&d->text, "region %s #%016llx:\n", region->name, hash);
}

static void region_schedule(dump *d, const graph_region *region) {
    const jit_own own = shown_schedule(d, region);
    const char *end = own.length && own.text[own.length - 1] == '\n' ? "" : "\n";
    region_header(d, region);
    lib_text_format(&d->text, "%.*s%s", (int)own.length, own.text, own.length ? end : "");
}

static target_cost predicted(void *user, lib_arena *arena, const tir_kernel *kernel) {
    const dump *d = user;
    const dlc_context *context = d->program->context;
    const target_work work = {.params = d->build->param_values};
    target_cost cost = {.threads = context->width};
    if (context->target->cost) context->target->cost(context->device, arena, kernel, &work, 1, &cost);
    return cost;
}

static void region_choices(dump *d, const graph_region *region) {
    const dlc_context *context = d->program->context;
    const jit_rules rules = {context->target, context->device, context->width};
    const tir_lower_options options = {.machine = &context->machine};
    if (rules.by->schedule)
        jit_print_choices(&d->text, &rules, d->work, computation(d, region), &options, predicted, d);
}

/* For a rejected schedule, prints the steps up to the rejected line, and the reason. */
static void region_steps(dump *d, const graph_region *region) {
    lib_scope scope, *outer = d->work->scope;
    lib_text_format(&d->text, "region %s:\n", region->name);
    d->work->scope = &scope;
    if (LIB_ENTER(&scope)) lowered_as_shown(d, region, &(tir_lower_options){.step = after_line, .step_user = d});
    d->work->scope = outer;
    if (scope.error.status == DLC_INVALID_ARGUMENT || scope.error.status == DLC_PARSE_ERROR)
        lib_text_format(&d->text, "-- refused: %s\n", scope.error.message);
    else if (scope.error.status != DLC_OK)
        lib_raise_error(outer, &scope.error);
}

static void region_loops(dump *d, const graph_region *region) {
    tir_kernel_print(&d->text, lowered_as_shown(d, region, NULL));
}

static void region_code(dump *d, const graph_region *region, target_dump what) {
    dlc_context *context = d->program->context;
    tir_schedule schedule;
    lib_error error;
    const tir_kernel *kernel = lowered(d, region, &schedule, NULL);
    if (context->target->dump(context->device, kernel, what, &d->text, &error) != DLC_OK)
        lib_raise_error(d->work->scope, &error);
}

static void region_vectors(dump *d, const graph_region *region) {
    region_code(d, region, TARGET_DUMP_VECTORS);
}
static void region_llvm(dump *d, const graph_region *region) {
    region_code(d, region, TARGET_DUMP_LLVM);
}
static void region_assembly(dump *d, const graph_region *region) {
    region_code(d, region, TARGET_DUMP_ASSEMBLY);
}
static void region_source(dump *d, const graph_region *region) {
    region_code(d, region, TARGET_DUMP_SOURCE);
}

/* Visits all nested branches, innermost last; d->build is the branch visited. */
static void for_branches(dump *d, void (*visit)(dump *d)) {
    jit_build *outer = d->build;
    for (uint32_t n = 0; n < outer->bound->nodes.count; n++) {
        const graph_node *node = &outer->bound->nodes.data[n];
        for (int which = 0; node->op->class_ == GRAPH_CONTROL && which < 2; which++) {
            const char *name = jit_branch_name(node, which);
            if (!name) continue;
            d->build = jit_branch(outer, node, which, outer->plan, NULL);
            d->branch = lib_arena_format(d->work, "%s: %s", node->op->name, name);
            jit_place_sources(d->build);
            visit(d);
        }
    }
    d->build = outer;
    d->branch = NULL;
}

static void each_region(dump *d, bool kernels_only, void (*print)(dump *d, const graph_region *region)) {
    d->build->regions = jit_fuse(d->build);
    jit_find_sharing(d->build);
    find_kept(d);
    if (d->branch) lib_text_format(&d->text, "%s# %s\n", d->text.length ? "\n" : "", d->branch);
    for (uint32_t r = 0; r < d->build->regions.count; r++) {
        const graph_region *region = &d->build->regions.data[r];
        if (kernels_only && region->kind != GRAPH_REGION_KERNEL) continue;
        if (d->text.length) lib_text_add(&d->text, "\n");
        print(d, region);
    }
}

#define REGION_STAGE(name, kernels_only, print) \
    static void name(dump *d) {                 \
        each_region(d, kernels_only, print);    \
        for_branches(d, name);                  \
    }
REGION_STAGE(dump_regions, false, region_nodes)
REGION_STAGE(dump_stages, true, region_stages)
REGION_STAGE(dump_schedule, true, region_schedule)
REGION_STAGE(dump_choices, true, region_choices)
REGION_STAGE(dump_steps, true, region_steps)
REGION_STAGE(dump_loops, true, region_loops)
REGION_STAGE(dump_vectors, true, region_vectors)
REGION_STAGE(dump_llvm, true, region_llvm)
REGION_STAGE(dump_assembly, true, region_assembly)
REGION_STAGE(dump_source, true, region_source)

/* ---- Graphviz: regions are clusters, within those of the sweeps. A node that several regions compute appears in each of them. Edges of values that
 * the forward sweep keeps for others are red. */

/* Prints text escaped for a quoted label. */
static void dot_text(dump *d, const char *printed) {
    for (const char *c = printed; *c; c++) {
        if (*c == '"' || *c == '\\') lib_text_add(&d->text, "\\");
        lib_text_add_bytes(&d->text, c, 1);
    }
}

static void dot_name(dump *d, const char *name) {
    lib_text printed;
    lib_text_init(&printed, d->work);
    graph_print_name(&printed, name);
    dot_text(d, printed.data);
}

static void dot_shape(dump *d, graph_id value) {
    graph_print_shape(&d->text, d->build->bound, graph_shape_of(d->build->bound, value));
}

/* Prints the origin of an edge: a node inside its region, or a source. */
static void dot_origin(dump *d, uint32_t graph_number, const uint32_t *region_of, graph_id value) {
    uint32_t node = d->build->bound->values.data[value].node;
    if (region_of[value] == UINT32_MAX)
        lib_text_format(&d->text, "g%u_n%u", graph_number, node);
    else
        lib_text_format(&d->text, "g%u_r%u_n%u", graph_number, region_of[value], node);
}

static void dot_source(dump *d, uint32_t graph_number, uint32_t n) {
    const graph *g = d->build->bound;
    const graph_node *node = &g->nodes.data[n];
    const graph_shape *shape = graph_shape_of(g, node->first);
    const graph_constant *constant = graph_constant_of(g, node->first);
    const char *name = graph_shown_name(g, node->first);
    lib_text_format(&d->text, "  g%u_n%u [shape=%s, label=\"", graph_number, n, constant ? "note" : "ellipse");
    if (constant && constant->size == lib_dtype_size(shape->dtype))
        lib_text_format(&d->text, "%g", lib_element_get_f64(shape->dtype, constant->bytes));
    else if (name)
        dot_name(d, name);
    else
        lib_text_add(&d->text, node->op->name);
    lib_text_add(&d->text, "\\n");
    dot_shape(d, node->first);
    lib_text_add(&d->text, "\"];\n");
}

static void dot_region(dump *d, uint32_t graph_number, uint32_t r) {
    static const char *const fill[] = {"#e8f0fe", "#ffffff", "#fde9d9", "#e6f4ea"};
    const graph *g = d->build->bound;
    const graph_region *region = &d->build->regions.data[r];
    lib_text_format(&d->text,
                    "  subgraph cluster_g%u_r%u {\n    style=\"rounded,filled\"; color=\"#5f6368\"; fillcolor=\"%s\"; "
                    "fontcolor=\"#5f6368\"; label=\"%s%s%s",
                    graph_number, r, fill[region->kind],
                    region->kind == GRAPH_REGION_KERNEL ? "" : region_kinds[region->kind],
                    region->kind == GRAPH_REGION_KERNEL || !region->name ? "" : " ", region->name ? region->name : "");
    dot_text(d, jit_region_origins(d->build, region));
    lib_text_add(&d->text, "\";\n");
    for (uint32_t i = 0; i < region->node_count; i++) {
        const graph_node *node = &g->nodes.data[region->nodes[i]];
        lib_text_format(&d->text, "    g%u_r%u_n%u [label=\"%s\\n", graph_number, r, region->nodes[i], node->op->name);
        if (node->results && g->values.data[node->first].called) {
            dot_name(d, g->values.data[node->first].called);
            lib_text_add(&d->text, "\\n");
        }
        if (node->results) dot_shape(d, node->first);
        for (uint32_t o = 0; o < region->output_count; o++)
            if (node->results && region->outputs[o] == node->first) add_layout(d, node->first, "\\n");
        lib_text_add(&d->text, "\"];\n");
    }
    lib_text_add(&d->text, "  }\n");
}

static void dot_edges(dump *d, uint32_t graph_number, uint32_t r, const uint32_t *region_of) {
    const graph *g = d->build->bound;
    const graph_region *region = &d->build->regions.data[r];
    const bool forward = is_forward(d, region);
    for (uint32_t i = 0; i < region->node_count; i++) {
        const graph_node *node = &g->nodes.data[region->nodes[i]];
        for (int k = 0; k < node->inputs; k++) {
            if (!node->input[k]) continue;
            uint32_t below = g->values.data[node->input[k]].node;
            bool inside = false;
            for (uint32_t j = 0; j < region->node_count; j++) inside |= region->nodes[j] == below;
            lib_text_add(&d->text, "  ");
            if (inside)
                lib_text_format(&d->text, "g%u_r%u_n%u", graph_number, r, below);
            else
                dot_origin(d, graph_number, region_of, node->input[k]);
            lib_text_format(&d->text, " -> g%u_r%u_n%u%s;\n", graph_number, r, region->nodes[i],
                            inside                                ? ""
                            : !forward && d->kept[node->input[k]] ? " [penwidth=2, color=\"#d93025\"]"
                                                                  : " [penwidth=2]");
        }
    }
}

/* The regions of each set of sweeps in a cluster of their own. */
static void dot_regions(dump *d, uint32_t graph_number) {
    for (unsigned sweeps = 0; sweeps < GRAPH_SWEEPS; sweeps++) {
        bool open = false;
        for (uint32_t r = 0; r < d->build->regions.count; r++) {
            if (jit_region_sweeps(d->build, &d->build->regions.data[r]) != sweeps) continue;
            if (sweeps && !open)
                lib_text_format(&d->text,
                                "  subgraph cluster_g%u_s%u { label=\"%s\"; style=dashed; color=\"#5f6368\";\n",
                                graph_number, sweeps, graph_sweeps_text(sweeps));
            open = sweeps != 0;
            dot_region(d, graph_number, r);
        }
        if (open) lib_text_add(&d->text, "  }\n");
    }
}

/* What the graph or branch is, and what its forward sweep keeps. */
static void dot_title(dump *d) {
    int64_t bytes = 0;
    uint32_t kept = 0;
    for (graph_id v = 1; v < d->build->bound->values.count; v++) {
        if (!d->kept[v]) continue;
        bytes += (int64_t)jit_value_bytes(d->build, v);
        kept++;
    }
    if (!d->branch && !kept) return;
    lib_text_format(&d->text, "  labelloc=t; label=\"%s", d->branch ? d->branch : "");
    if (kept)
        lib_text_format(&d->text, "%sforward keeps %u values of %lld bytes", d->branch ? ", " : "", kept,
                        (long long)bytes);
    lib_text_add(&d->text, "\";\n");
}

static void dot_graph(dump *d) {
    const graph *g = d->build->bound;
    uint32_t number = d->graphs++;
    d->build->regions = jit_fuse(d->build);
    find_kept(d);
    if (d->branch) lib_text_format(&d->text, "  subgraph cluster_g%u { color=\"#5f6368\";\n", number);
    dot_title(d);
    uint32_t *region_of = LIB_NEW_ARRAY(d->work, uint32_t, g->values.count + 1);
    bool *used = LIB_NEW_ARRAY(d->work, bool, g->nodes.count + 1);
    memset(region_of, 0xFF, (g->values.count + 1) * sizeof *region_of);
    for (uint32_t r = 0; r < d->build->regions.count; r++) {
        const graph_region *region = &d->build->regions.data[r];
        for (uint32_t o = 0; o < region->output_count; o++) region_of[region->outputs[o]] = r;
        for (uint32_t i = 0; i < region->node_count; i++)
            for (int k = 0; k < g->nodes.data[region->nodes[i]].inputs; k++)
                used[g->values.data[g->nodes.data[region->nodes[i]].input[k]].node] = true;
    }
    for (uint32_t o = 0; o < g->outputs.count; o++) used[g->values.data[g->outputs.data[o]].node] = true;
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (used[n] && (graph_is_input(&g->nodes.data[n]) || graph_is_constant(&g->nodes.data[n])) &&
            region_of[g->nodes.data[n].first] == UINT32_MAX)
            dot_source(d, number, n);
    dot_regions(d, number);
    for (uint32_t r = 0; r < d->build->regions.count; r++) dot_edges(d, number, r, region_of);
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        const char *name = g->output_names.data[o];
        lib_text_format(&d->text, "  g%u_o%u [shape=ellipse, style=bold, label=\"", number, o);
        dot_name(d, name ? name : "output");
        lib_text_add(&d->text, "\"];\n  ");
        dot_origin(d, number, region_of, g->outputs.data[o]);
        lib_text_format(&d->text, " -> g%u_o%u [penwidth=2];\n", number, o);
    }
    if (d->branch) lib_text_add(&d->text, "  }\n");
    for_branches(d, dot_graph);
}

static void dump_dot(dump *d) {
    lib_text_add(&d->text, "digraph program {\n  rankdir=TB; compound=true;\n"
                           "  node [shape=box, fontname=\"Helvetica\", fontsize=10, style=filled, fillcolor=white];\n"
                           "  graph [fontname=\"Helvetica\", fontsize=10];\n");
    dot_graph(d);
    lib_text_add(&d->text, "}\n");
}

/* ---- the plan */

static void add_place(dump *d, const jit_place *place) {
    switch (place->kind) {
    case JIT_PLACE_INPUT: lib_text_format(&d->text, " input.%d", place->number); break;
    case JIT_PLACE_OUTPUT: lib_text_format(&d->text, " output.%d", place->number); break;
    case JIT_PLACE_ARENA: lib_text_format(&d->text, " arena+%lld", (long long)place->offset); break;
    case JIT_PLACE_CONSTANT: lib_text_add(&d->text, " constant"); break;
    case JIT_PLACE_NONE: lib_text_add(&d->text, " nowhere"); break;
    }
    if (place->offset && place->kind != JIT_PLACE_ARENA) lib_text_format(&d->text, "+%lld", (long long)place->offset);
}

static void add_kernels(dump *d, const jit_plan *plan, const jit_step *step, const char *indent) {
    for (int64_t p = 0; p < step->phases; p++) {
        const jit_call *call = &plan->calls[step->target[p].call];
        if (p == 0 || step->target[p].call != step->target[p - 1].call) {
            lib_text_format(&d->text, "%s  kernel %s%s:", indent, call->name, call->origins);
            for (int a = 0; a < call->arguments; a++) add_place(d, &plan->slots[call->first_slot + (uint32_t)a]);
            if (call->workspace >= 0) lib_text_format(&d->text, " workspace=arena+%lld", (long long)call->workspace);
            if (call->local >= 0)
                lib_text_format(&d->text, " local=arena+%lld stride %lld", (long long)call->local,
                                (long long)call->local_stride);
            lib_text_add(&d->text, "; tasks");
        }
        lib_text_format(&d->text, " %lld", (long long)step->phase[p].tasks);
        if (p + 1 == step->phases || step->target[p + 1].call != step->target[p].call) lib_text_add(&d->text, "\n");
    }
}

static void add_plan(dump *d, const jit_plan *plan, const char *indent) {
    static const char *const kinds[] = {"kernels", "copy", "custom", "if", "loop", "on the host"};
    static const char *const names[DLC_MAX_RANK] = {"d0", "d1", "d2", "d3", "d4",  "d5",
                                                    "d6", "d7", "d8", "d9", "d10", "d11"};
    lib_text_format(&d->text, "%splan: %d steps, %d kernels, arena of %lld bytes, %lld of them at once\n", indent,
                    plan->step_count, plan->call_count, (long long)plan->arena_bytes, (long long)plan->live_bytes);
    for (int i = 0; i < plan->packing_count; i++) {
        const jit_packing *packing = &plan->packings[i];
        lib_text_format(&d->text, "%sonce: input.%d packed in arena+%lld as ", indent, packing->input,
                        (long long)packing->offset);
        tir_layout_print(&d->text, &packing->layout, names);
        lib_text_add(&d->text, "\n");
    }
    for (int s = 0; s < plan->step_count; s++) {
        const jit_step *step = &plan->steps[s];
        lib_text_format(&d->text, "%s%d: %s", indent, s, step->loop ? step->name : kinds[step->kind]);
        if (step->kind == JIT_STEP_CUSTOM) lib_text_format(&d->text, " %s", step->custom.name);
        if (step->origins) lib_text_add(&d->text, step->origins);
        for (int i = 0; step->inputs && i < step->input_count; i++) add_place(d, &step->inputs[i].place);
        if (step->output_count) lib_text_add(&d->text, " ->");
        for (int o = 0; o < step->output_count; o++) add_place(d, &step->outputs[o].place);
        lib_text_add(&d->text, "\n");
        if (step->phases) add_kernels(d, plan, step, indent);
        for (int b = 0; b < 2; b++)
            if (step->branch[b]) add_plan(d, step->branch[b], lib_arena_format(d->work, "%s    ", indent));
    }
}

static void dump_plan(dump *d) {
    add_plan(d, d->plan, "");
    for (int o = 0; o < d->program->output_count; o++) {
        const jit_donation *donation = &d->plan->donations[o];
        const bool grows = donation->axis >= 0;
        if (d->program->alias[o] >= 0)
            lib_text_format(&d->text, "output.%d %s input.%d\n", o,
                            grows && donation->must ? "is written behind"
                            : donation->must        ? "is what is left of"
                            : donation->may         ? "may lie in the place of"
                                                    : "is copied over",
                            d->program->alias[o]);
    }
}

static void dump_kept(dump *d) {
    jit_print_kept(&d->text, d->plan);
}

/* ---- the profile: times of kernels since profiling was switched on */

static double total_ns(jit_plan *plan) {
    double total = 0;
    for (int c = 0; c < plan->call_count; c++) total += (double)atomic_load(&plan->calls[c].profile_ns);
    for (int s = 0; s < plan->step_count; s++)
        for (int b = 0; b < 2; b++)
            if (plan->steps[s].branch[b]) total += total_ns(plan->steps[s].branch[b]);
    return total;
}

/* Adds the times of the plan's kernels, by their sweeps. */
static void add_sweeps(jit_plan *plan, double ns[GRAPH_SWEEPS]) {
    for (int c = 0; c < plan->call_count; c++)
        ns[plan->calls[c].sweeps] += (double)atomic_load(&plan->calls[c].profile_ns);
    for (int s = 0; s < plan->step_count; s++)
        for (int b = 0; b < 2; b++)
            if (plan->steps[s].branch[b]) add_sweeps(plan->steps[s].branch[b], ns);
}

/* The target model's prediction for a region's kernel; false: the target has no model. */
static bool predict(dump *d, const graph_region *region, const jit_call *call, target_cost *cost) {
    dlc_context *context = d->program->context;
    target_work work = {.params = d->build->param_values, .operations = call->operations, .bytes = call->bytes};
    tir_schedule schedule;
    if (!context->target->cost) return false;
    cost->threads = context->width;
    context->target->cost(context->device, d->work, lowered(d, region, &schedule, NULL), &work, 1, cost);
    return true;
}

static int by_time(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Median of the recorded runs. */
static double median_ns(dump *d, const jit_samples *samples) {
    const uint64_t taken = atomic_load(&samples->taken);
    const size_t count = (size_t)(taken < JIT_SAMPLES ? taken : JIT_SAMPLES);
    uint64_t *ns = LIB_NEW_ARRAY(d->work, uint64_t, count + 1);
    for (size_t i = 0; i < count; i++) ns[i] = atomic_load(&samples->ns[i]);
    qsort(ns, count, sizeof *ns, by_time);
    return count ? (double)(ns[(count - 1) / 2] + ns[count / 2]) / 2 : 0;
}

static void add_call_profile(dump *d, jit_call *call, const graph_region *region, double total) {
    double ns = (double)atomic_load(&call->profile_ns), runs = (double)atomic_load(&call->profile_runs);
    target_cost cost = {0};
    bool predicted = region && predict(d, region, call, &cost);
    const dlc_context *context = d->program->context;
    double clock = predicted ? context->target->cycles_per_ns(context->device) : 1;
    if (runs == 0 && !predicted) return;
    const jit_samples *samples = atomic_load(&call->samples);
    if (runs > 0 && samples)
        lib_text_format(&d->text, "%5.1f %%  %10.3f us  %10.3f us  %10.3f us  %8.0f runs  %8.2f GFLOP/s  %8.2f GB/s",
                        total > 0 ? 100 * ns / total : 0, (double)atomic_load(&samples->least) / 1e3,
                        median_ns(d, samples) / 1e3, ns / runs / 1e3, runs, call->operations * runs / ns,
                        call->bytes * runs / ns);
    else
        lib_text_format(&d->text, "%5s %%  %10s us  %10s us  %10s us  %8d runs  %8s GFLOP/s  %8s GB/s", "-", "-", "-",
                        "-", 0, "-", "-");
    if (predicted) lib_text_format(&d->text, "  predicted %10.3f us", cost.cycles / clock / 1e3);
    if (predicted && runs > 0) lib_text_format(&d->text, "  roof %5.1f %%", 100 * cost.roof_cycles / clock * runs / ns);
    lib_text_format(&d->text, "  %s%s%s%s\n", call->name, call->origins, call->sweeps ? ": " : "",
                    graph_sweeps_text(call->sweeps));
}

/* The next region of this kind from *at on; NULL: none. `name`: the name of a call's kernel, since some regions have no call. */
static const graph_region *next_region(const jit_build *build, graph_region_kind kind, const char *name, uint32_t *at) {
    for (uint32_t r = *at; build && r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        if (region->kind != kind || (name && strcmp(region->name, name) != 0)) continue;
        *at = r + 1;
        return region;
    }
    return NULL;
}

/* d->build is a rebuild of the plan's build, for predictions; NULL: no predictions. */
static void add_profile(dump *d, jit_plan *plan, double total) {
    jit_build *build = d->build;
    if (build) {
        build->regions = jit_fuse(build);
        jit_find_sharing(build);
    }
    uint32_t kernels = 0, controls = 0;
    for (int c = 0; c < plan->call_count; c++) {
        jit_call *call = &plan->calls[c];
        add_call_profile(d, call, next_region(build, GRAPH_REGION_KERNEL, call->name, &kernels), total);
    }
    for (int s = 0; s < plan->step_count; s++) {
        if (!plan->steps[s].branch[0] && !plan->steps[s].branch[1]) continue;
        const graph_region *region = next_region(build, GRAPH_REGION_CONTROL, NULL, &controls);
        for (int b = 0; b < 2; b++) {
            if (!plan->steps[s].branch[b]) continue;
            d->build =
                region ? jit_branch(build, &build->bound->nodes.data[region->nodes[0]], b, build->plan, NULL) : NULL;
            if (d->build) jit_place_sources(d->build);
            add_profile(d, plan->steps[s].branch[b], total);
        }
        d->build = build;
    }
}

static void dump_profile(dump *d) {
    double total = total_ns(d->plan);
    lib_text_format(
        &d->text,
        "# share of %.1f us in all kernels of the plan; least, median and mean time of a run; runs; rates by the mean%s; kernel\n",
        total / 1e3, d->program->context->target->cost ? "; time of a run by the cost model, share of the roof" : "");
    if (d->program->context->target->cost) {
        jit_bind_graph(d->build, d->program->graph, d->shapes, false);
        jit_place_sources(d->build);
    } else {
        d->build = NULL;
    }
    add_profile(d, d->plan, total);
    double ns[GRAPH_SWEEPS] = {0};
    add_sweeps(d->plan, ns);
    for (unsigned s = 1; s < GRAPH_SWEEPS && total > 0; s++)
        if (ns[s] > 0) lib_text_format(&d->text, "%5.1f %%  %s\n", 100 * ns[s] / total, graph_sweeps_text(s));
}

/* ---- which stages there are */

static const struct {
    const char *name;
    void (*print)(dump *d);
    /* needs shapes */
    bool shapes;
    /* needs an existing plan */
    bool plan;
} stages[] = {
    {"graph", dump_graph, false, false},      {"bound", dump_bound, true, false},
    {"regions", dump_regions, true, false},   {"stages", dump_stages, true, false},
    {"schedule", dump_schedule, true, false}, {"choices", dump_choices, true, false},
    {"steps", dump_steps, true, false},       {"loops", dump_loops, true, false},
    {"vectors", dump_vectors, true, false},   {"llvm", dump_llvm, true, false},
    {"asm", dump_assembly, true, false},      {"source", dump_source, true, false},
    {"dot", dump_dot, true, false},           {"plan", dump_plan, true, true},
    {"kept", dump_kept, true, true},          {"profile", dump_profile, true, true},
};
enum { STAGES = sizeof stages / sizeof *stages };

static void print_stage(dump *d, int stage, jit_plan *scratch) {
    jit_build build = {.program = d->program,
                       .steady_from = -1,
                       .plan = scratch,
                       .work = d->work,
                       .tier = d->tier,
                       .init_values =
                           atomic_load(&d->program->init_state) == JIT_INIT_DONE ? d->program->init_values : NULL,
                       .ordinary_inputs = d->program->ordinary_inputs,
                       .donated = d->program->alias};
    build.root = &build;
    d->build = &build;
    lib_text_init(&d->text, d->work);
    if (stages[stage].shapes && !stages[stage].plan) {
        jit_bind_graph(&build, d->program->graph, d->shapes, false);
        jit_place_sources(&build);
    }
    stages[stage].print(d);
    if (d->elided) {
        lib_text whole; /* dlc_graph_print shows everything, and parses */
        lib_text_init(&whole, d->work);
        lib_text_add(&whole, "# large constants are shortened to \"start...\": this text cannot be parsed\n");
        lib_text_add(&whole, d->text.data);
        d->text = whole;
    }
    if (!d->text.length) lib_text_add(&d->text, "# nothing\n");
}

static dlc_status print_guarded(dump *d, int stage, jit_plan *scratch, lib_error *error) {
    lib_scope scope;
    d->work->scope = scratch->arena.scope = &scope;
    if (LIB_ENTER(&scope)) {
        print_stage(d, stage, scratch);
        return DLC_OK;
    }
    *error = scope.error;
    return error->status;
}

/* d->text is allocated in d->work. */
static dlc_status print(dump *d, int stage, lib_error *error) {
    jit_plan *scratch = jit_plan_new(d->program->context);
    if (!scratch) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a dump");
    lib_fp_state state = lib_fp_enter();
    dlc_status status = print_guarded(d, stage, scratch, error);
    lib_fp_restore(state);
    jit_plan_free(scratch);
    return status;
}

void jit_dump_to_log(dlc_program *program, const int64_t *shapes, jit_tier tier, jit_plan *plan) {
    if (!*lib_environment_get(LIB_ENV_DEBUG)) return;
    const lib_log *log = &program->context->log;
    for (int s = 0; s < STAGES; s++) {
        if (stages[s].plan != (plan != NULL) || !lib_environment_lists(LIB_ENV_DEBUG, stages[s].name)) continue;
        lib_arena work;
        lib_arena_init(&work, &program->context->allocator, NULL);
        dump d = {.program = program, .shapes = shapes, .tier = tier, .plan = plan, .work = &work};
        lib_error error;
        lib_log_write(log, "dlc: %s", stages[s].name);
        if (print(&d, s, &error) == DLC_OK)
            lib_log_lines(log, d.text.data);
        else
            lib_log_write(log, "dlc: %s", error.message);
        lib_arena_free(&work);
    }
}

static int find_stage(const char *name, lib_error *error) {
    for (int s = 0; s < STAGES; s++)
        if (strcmp(name, stages[s].name) == 0) return s;
    size_t used = 0;
    char known[256] = "";
    for (int s = 0; s < STAGES; s++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", s ? ", " : "", stages[s].name);
    lib_nearest nearest = lib_nearest_to(name);
    lib_nearest_try_list(&nearest, known);
    lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_program_dump: no stage is called \"%.200s\", expected one of: %s%s",
             name, known, lib_nearest_hint(&nearest));
    return -1;
}

static dlc_status dump_stage(dlc_program *program, int stage, const int64_t *shapes, int count, char **text,
                             lib_error *error) {
    lib_arena work;
    lib_arena_init(&work, &program->context->allocator, NULL);
    dump d = {.program = program, .shapes = shapes, .work = &work};
    unsigned side = 0;
    if (stages[stage].shapes) d.tier = jit_plans_tier(program, shapes, count);
    if (stages[stage].plan) LIB_TRY(jit_plans_enter(program, shapes, count, JIT_TO_SHOW, &d.plan, &side, error));
    dlc_status status = print(&d, stage, error);
    if (stages[stage].plan) jit_plans_leave(program, side);
    if (status == DLC_OK) {
        *text = graph_text_new(&program->context->allocator, d.text.data, d.text.length);
        if (!*text) status = lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: a text of %zu bytes", d.text.length);
    }
    lib_arena_free(&work);
    return status;
}

/* `all`: space for all dimensions. */
static dlc_status dump_program(dlc_program *program, int stage, const int64_t *const *shapes, const int *ranks,
                               int input_count, int64_t *all, char **text, lib_error *error) {
    int count = 0;
    if (stages[stage].shapes)
        LIB_TRY(jit_gather_shapes(program, "dlc_program_dump", shapes, ranks, input_count, all, &count, error));
    if (!stages[stage].shapes || !program->segment_count) return dump_stage(program, stage, all, count, text, error);
    dlc_program *first = program->segments->program; /* sizes of later segments are not known */
    int64_t *sizes = NULL;
    dlc_status status = jit_segments_first(program, all, &sizes, &count, error);
    if (status == DLC_OK) status = dump_stage(first, stage, sizes, count, text, error);
    lib_release(&program->context->allocator, sizes, (first->dimensions + 1) * sizeof *sizes, 16);
    return status;
}

dlc_status dlc_program_dump(dlc_program *program, const char *stage, const int64_t *const *shapes, const int *ranks,
                            int input_count, char **text) {
    lib_error error;
    if (text) *text = NULL;
    if (!program || !stage || !text) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_program_dump: program, stage and text must not be NULL");
        return jit_fail(program ? program->context : NULL, &error);
    }
    int number = find_stage(stage, &error);
    if (number < 0) return jit_fail(program->context, &error);
    GRAPH_CALL(program->context, LIB_STACK_CALL);
    const dlc_allocator *allocator = &program->context->allocator;
    size_t bytes = (program->dimensions + 1) * sizeof(int64_t);
    int64_t *all = lib_allocate(allocator, bytes, 16);
    dlc_status status = all ? dump_program(program, number, shapes, ranks, input_count, all, text, &error)
                            : lib_fail(&error, DLC_OUT_OF_MEMORY, "out of memory: a dump");
    lib_release(allocator, all, bytes, 16);
    return status == DLC_OK ? DLC_OK : jit_fail(program->context, &error);
}
