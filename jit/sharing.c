/* Values without storage of their own. A value may be linked to another one, in whose bytes it is stored:
 *
 *   view   a reshape or contiguous slice is part of its operand's bytes
 *   part   an operand of a contiguous concat is written directly into the result; an operand that cannot be is copied
 *   over   a region overwrites an operand that has no later reader: updates of slices (only the update is then
 *          written), and maps whose kernel reads each element only where it writes it
 *
 * Views, parts and updates are found before kernels are built, since an in-place update is a different computation; maps afterwards,
 * since they depend on the schedule. Links end at a value's *home*, which gets a place (memory.c). */
#include "jit/internal.h"

static graph_id view_root(const jit_build *build, graph_id value) {
    while (build->links[value].base && !build->links[value].over) value = build->links[value].base;
    return value;
}

graph_id jit_home(const jit_build *build, graph_id value, int64_t *offset) {
    int64_t at = 0;
    for (; build->links[value].base; value = build->links[value].base) at += build->links[value].offset;
    if (offset) *offset = at;
    return value;
}

/* ---- views and parts */

/* Byte offset of the slice's first element in x. */
static int64_t slice_offset(jit_build *build, const graph_node *node) {
    const graph_shape *x = graph_shape_of(build->bound, node->input[0]);
    const graph_attribute *start = &node->attribute[graph_op_attribute(node->op, "start")];
    int64_t offset = 0;
    for (int d = 0; d < x->rank; d++) {
        int64_t size = jit_dimension(build, x->dim[d]), at = jit_dimension(build, start->dims[d]);
        offset = offset * size + (at < 0 ? at + size : at);
    }
    return offset * (int64_t)lib_dtype_size(x->dtype);
}

static void link_views(jit_build *build) {
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        if (region->kind != GRAPH_REGION_VIEW) continue;
        const graph_node *node = &build->bound->nodes.data[region->nodes[0]];
        bool slice = node->op->structure == GRAPH_SELECTS && jit_value_bytes(build, node->first) > 0;
        build->links[region->outputs[0]] =
            (jit_link){.base = region->inputs[0], .offset = slice ? slice_offset(build, node) : 0};
    }
}

/* Is the value a kernel's result without a link yet, so that it can be stored inside another? */
static bool may_be_part(const jit_build *build, const uint32_t *producer, graph_id value) {
    if (producer[value] == UINT32_MAX || build->regions.data[producer[value]].kind != GRAPH_REGION_KERNEL) return false;
    if (build->links[value].base || build->parts[producer[value]]) return false;
    for (uint32_t o = 0; o < build->bound->outputs.count; o++)
        if (view_root(build, build->bound->outputs.data[o]) == value) return false;
    return true;
}

static bool is_row_major(jit_build *build, const graph_region *region) {
    const tir_region *computation = graph_region_build(build->work, build->bound, region, jit_is_constant, build);
    for (uint32_t t = 0; t < computation->tensors.count; t++)
        if (!tir_layout_is_identity(&computation->tensors.data[t].layout)) return false;
    return true;
}

static bool joins_outermost(jit_build *build, const graph_node *node) {
    const graph_shape *shape = graph_shape_of(build->bound, node->first);
    int axis = (int)node->attribute[0].integer;
    if (axis < 0) axis += shape->rank;
    for (int d = 0; d < axis; d++)
        if (jit_dimension(build, shape->dim[d]) != 1) return false;
    return true;
}

/* Links the operands of a region that is one concat, if most of its bytes can be written in place. */
static void link_parts(jit_build *build, uint32_t r, const uint32_t *producer) {
    const graph_region *region = &build->regions.data[r];
    const graph_node *node = &build->bound->nodes.data[region->nodes[0]];
    if (region->kind != GRAPH_REGION_KERNEL || region->node_count != 1 || region->output_count != 1) return;
    if (node->op->structure != GRAPH_JOINS || !joins_outermost(build, node)) return;
    size_t linked = 0, all = jit_value_bytes(build, node->first);
    int64_t offset = 0;
    for (int k = 0; k < node->inputs; k++) {
        size_t bytes = jit_value_bytes(build, node->input[k]);
        if (may_be_part(build, producer, node->input[k])) linked += bytes;
    }
    if (linked == 0 || linked < all / 2 || !is_row_major(build, region)) return;
    build->parts[r] = true;
    for (int k = 0; k < node->inputs; k++) {
        graph_id part = node->input[k];
        if (may_be_part(build, producer, part)) /* a value is linked once: a second use is copied */
            build->links[part] = (jit_link){.base = node->first, .offset = offset};
        offset += (int64_t)jit_value_bytes(build, part);
    }
}

/* ---- last reads */

/* For each value that is not a view: the last region that reads it or its views. Copies to outputs count as after all regions. */
static void find_last_reads(jit_build *build) {
    const graph *g = build->bound;
    build->last_read = LIB_NEW_ARRAY(build->work, uint32_t, g->values.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++)
        for (uint32_t i = 0; i < build->regions.data[r].input_count; i++)
            build->last_read[view_root(build, build->regions.data[r].inputs[i])] = r;
    for (uint32_t o = 0; o < g->outputs.count; o++)
        build->last_read[view_root(build, g->outputs.data[o])] = build->regions.count;
}

/* Does region r read the value once, as its last reader? */
static bool dies_at(const jit_build *build, uint32_t r, graph_id value) {
    const graph_region *region = &build->regions.data[r];
    graph_id root = view_root(build, value);
    int uses = 0;
    for (uint32_t i = 0; i < region->input_count; i++) uses += view_root(build, region->inputs[i]) == root;
    return uses == 1 && build->last_read[root] == r;
}

/* ---- updates */

static jit_update find_update(jit_build *build, const graph_region *region) {
    bool scatters = false;
    for (uint32_t n = 0; n < region->node_count; n++)
        scatters = scatters || build->bound->nodes.data[region->nodes[n]].op->class_ == GRAPH_SCATTER;
    if (!scatters || region->kind != GRAPH_REGION_KERNEL) return (jit_update){-1, -1};
    const tir_region *computation = graph_region_build(build->work, build->bound, region, jit_is_constant, build);
    for (int o = 0; o < computation->outputs; o++) {
        int input = tir_region_updated_input(computation, o);
        if (input >= 0) return (jit_update){o, input};
    }
    return (jit_update){-1, -1};
}

/* The in-place updates of all regions; kept in the front, since they do not depend on sizes. */
static const jit_update *find_updates(jit_build *build) {
    jit_front *front = build->front;
    if (front && front->updates) return front->updates;
    jit_update *updates =
        LIB_NEW_ARRAY(front ? &front->arena : build->work, jit_update, (size_t)build->regions.count + 1);
    for (uint32_t r = 0; r < build->regions.count; r++) updates[r] = find_update(build, &build->regions.data[r]);
    if (front) front->updates = updates;
    return updates;
}

static void link_update(jit_build *build, uint32_t r, jit_update u) {
    const graph_region *region = &build->regions.data[r];
    build->links[region->outputs[u.output]] = (jit_link){.base = region->inputs[u.input], .over = true};
    build->updates[r] = u.output + 1;
}

/* Links a chain of updates from a donated input to the output that it is donated to. */
static void link_donated(jit_build *build, uint32_t output, const uint32_t *producer, const jit_update *updates) {
    const graph *g = build->bound;
    graph_id source = g->inputs.data[build->donated[output]];
    graph_id last = view_root(build, g->outputs.data[output]);
    for (int pass = 0; pass < 2; pass++) /* the first pass checks that the chain reaches the input */
        for (graph_id at = last; at != source;) {
            uint32_t r = producer[at];
            if (r == UINT32_MAX || updates[r].output < 0 || build->regions.data[r].outputs[updates[r].output] != at)
                return;
            graph_id below = build->regions.data[r].inputs[updates[r].input];
            if (jit_value_bytes(build, at) == 0) return;
            if (!dies_at(build, r, below) || jit_value_bytes(build, below) != jit_value_bytes(build, last)) return;
            if (pass == 1) link_update(build, r, updates[r]);
            at = view_root(build, below);
        }
}

static void link_updates(jit_build *build, const uint32_t *producer) {
    const jit_update *updates = find_updates(build);
    for (uint32_t o = 0; build->donated && o < build->bound->outputs.count; o++)
        if (build->donated[o] >= 0) link_donated(build, o, producer, updates);
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const graph_region *region = &build->regions.data[r];
        if (updates[r].output < 0 || build->links[region->outputs[updates[r].output]].base) continue;
        graph_id below = region->inputs[updates[r].input];
        if (jit_value_bytes(build, region->outputs[updates[r].output]) == 0) continue;
        if (dies_at(build, r, below) && producer[jit_home(build, below, NULL)] != UINT32_MAX)
            link_update(build, r, updates[r]);
    }
}

void jit_find_sharing(jit_build *build) {
    uint32_t count = build->bound->values.count + 1;
    build->links = lib_arena_array(build->work, count, sizeof *build->links);
    build->parts = LIB_NEW_ARRAY(build->work, bool, build->regions.count + 1);
    build->updates = LIB_NEW_ARRAY(build->work, int, build->regions.count + 1);
    uint32_t *producer = LIB_NEW_ARRAY(build->work, uint32_t, count); /* of values other than views */
    for (uint32_t v = 0; v < count; v++) producer[v] = UINT32_MAX;
    for (uint32_t r = 0; r < build->regions.count; r++)
        for (uint32_t o = 0; o < build->regions.data[r].output_count; o++)
            if (build->regions.data[r].kind != GRAPH_REGION_VIEW) producer[build->regions.data[r].outputs[o]] = r;
    link_views(build);
    bool alias = !lib_environment_lists(LIB_ENV_DISABLE, "alias");
    for (uint32_t r = 0; alias && r < build->regions.count; r++) link_parts(build, r, producer);
    find_last_reads(build);
    if (alias) link_updates(build, producer);
}

/* In a branch, whose inputs the enclosing plan places, values count as aligned to their elements only. */
int32_t jit_alignment(const jit_build *build, graph_id value, int32_t element) {
    const target_runtime *runtime = build->program->context->target->runtime;
    int32_t alignment = runtime && !build->given ? runtime->alignment : element;
    int64_t offset;
    const graph_id home = jit_home(build, value, &offset);
    if (build->constant[home] && !runtime) return 1;
    while (alignment > element && offset % alignment) alignment /= 2;
    return alignment > element ? alignment : element;
}

tir_region *jit_region_build(jit_build *build, lib_arena *arena, const graph_region *region) {
    tir_region *out = graph_region_build(arena, build->bound, region, jit_is_constant, build);
    for (uint32_t t = 0; t < out->tensors.count; t++) {
        tir_tensor *tensor = &out->tensors.data[t];
        if (tensor->argument < 0) continue;
        graph_id value = tensor->argument < out->inputs ? region->inputs[tensor->argument]
                                                        : region->outputs[tensor->argument - out->inputs];
        tensor->alignment = jit_alignment(build, value, tensor->alignment);
    }
    int updated = build->updates[region - build->regions.data];
    if (updated) tir_region_update_in_place(out, updated - 1);
    return out;
}

/* ---- maps */

static bool kernel_shares(const jit_kernel *kernel, int input, int output) {
    return input < 64 && (kernel->shares[output] >> input & 1);
}

/* Is the operand already overwritten by another result of the region? */
static bool is_taken(const jit_build *build, const graph_region *region, graph_id operand) {
    bool taken = false;
    for (uint32_t o = 0; o < region->output_count; o++) {
        const jit_link *link = &build->links[region->outputs[o]];
        taken = taken || (link->over && link->base == operand);
    }
    return taken;
}

/* Is the value an output whose donated input the region reads? Then the buffer belongs to the input until the region has run. */
static bool waits_for_donation(const jit_build *build, uint32_t r, graph_id value) {
    const graph *g = build->bound;
    for (uint32_t o = 0; build->donated && o < g->outputs.count; o++)
        if (g->outputs.data[o] == value && build->donated[o] >= 0 &&
            build->last_read[g->inputs.data[build->donated[o]]] == r)
            return true;
    return false;
}

void jit_share_maps(jit_build *build) {
    if (lib_environment_lists(LIB_ENV_DISABLE, "alias")) return;
    for (uint32_t q = 0; q < build->request_count; q++) {
        const graph_region *region = build->requests[q].region;
        const jit_kernel *kernel = build->requests[q].kernel;
        uint32_t r = (uint32_t)(region - build->regions.data);
        for (uint32_t o = 0; o < region->output_count; o++) {
            if (waits_for_donation(build, r, region->outputs[o])) continue;
            for (uint32_t i = 0; i < region->input_count && !build->links[region->outputs[o]].base; i++) {
                graph_id from = region->inputs[i], to = region->outputs[o], home = jit_home(build, from, NULL);
                if (jit_alignment(build, from, 1) < jit_alignment(build, to, 1))
                    continue; /* the kernel relies on the alignment */
                if (!kernel_shares(kernel, (int)i, (int)o) || !dies_at(build, r, from) || !build->produced[home])
                    continue;
                if (jit_value_bytes(build, from) != jit_value_bytes(build, to) || is_taken(build, region, from))
                    continue;
                build->links[to] = (jit_link){.base = from, .over = true};
            }
        }
    }
}

/* ---- donation */

static const jit_request *request_of(const jit_build *build, const graph_region *region) {
    for (uint32_t q = 0; q < build->request_count; q++)
        if (build->requests[q].region == region) return &build->requests[q];
    return NULL;
}

/* The first region that writes the output's buffer; regions.count: a copy after all regions. */
static uint32_t first_write(const jit_build *build, uint32_t output, graph_id *written) {
    for (uint32_t r = 0; r < build->regions.count; r++)
        for (uint32_t o = 0; o < build->regions.data[r].output_count; o++) {
            *written = build->regions.data[r].outputs[o];
            const jit_place *place = &build->place[*written];
            bool view = build->regions.data[r].kind == GRAPH_REGION_VIEW;
            if (!view && place->kind == JIT_PLACE_OUTPUT && place->number == (int32_t)output) return r;
        }
    return build->regions.count;
}

/* May the output's buffer be the input's? */
static bool may_share(const jit_build *build, uint32_t output, int input) {
    graph_id source = build->bound->inputs.data[input], written = 0;
    uint32_t read = build->last_read[source], write = first_write(build, output, &written);
    if (read < write) return true;
    if (read != write) return false;
    if (write == build->regions.count) /* an output that is the input itself needs no copy */
        return jit_home(build, build->bound->outputs.data[output], NULL) == source;
    const graph_region *region = &build->regions.data[write];
    const jit_request *request = request_of(build, region);
    if (!request || !dies_at(build, write, source)) return false;
    int from = -1, to = -1;
    for (uint32_t i = 0; i < region->input_count; i++)
        if (view_root(build, region->inputs[i]) == source) from = (int)i;
    for (uint32_t o = 0; o < region->output_count; o++)
        if (region->outputs[o] == written) to = (int)o;
    return kernel_shares(request->kernel, from, to) && build->place[written].offset == 0 &&
           build->place[region->inputs[from]].offset == 0;
}

/* Checks sizes that dlc_program_alias could not compare. */
static void check_donated_shape(jit_build *build, uint32_t output, int input) {
    const graph_shape *in = graph_shape_of(build->bound, build->bound->inputs.data[input]),
                      *out = graph_shape_of(build->bound, build->bound->outputs.data[output]);
    for (int d = 0; d < in->rank; d++) {
        int64_t from = jit_dimension(build, in->dim[d]), to = jit_dimension(build, out->dim[d]);
        if (from != to)
            lib_raise(
                build->work->scope, DLC_INVALID_ARGUMENT,
                "dimension %d of output %s is %lld and of input %s, which dlc_program_alias donates to it, %lld: expected one shape",
                d, build->program->outputs[output].name, (long long)to, build->program->inputs[input].name,
                (long long)from);
    }
}

void jit_plan_donation(jit_build *build) {
    const graph *g = build->bound;
    jit_plan *plan = build->plan;
    plan->donations = LIB_NEW_ARRAY(&plan->arena, jit_donation, g->outputs.count + 1);
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        int input = build->donated ? build->donated[o] : -1;
        jit_donation *donation = &plan->donations[o];
        donation->axis = -1;
        if (input < 0) continue;
        graph_id source = g->inputs.data[input], value = g->outputs.data[o];
        const graph_growth *growth =
            build->donated == build->program->alias ? jit_growth_of(build->program, (int)o) : NULL;
        if (growth)
            jit_describe_room(build, growth, donation);
        else
            check_donated_shape(build, o, input);
        donation->bytes = jit_value_bytes(build, value);
        donation->must = value != source && view_root(build, value) != source && jit_home(build, value, NULL) == source;
        donation->may = donation->must || (!growth && may_share(build, o, input));
    }
}
