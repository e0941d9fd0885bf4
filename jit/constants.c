/* Constants at run time: addresses of their bytes, and copies in kernels' layouts, also of loop-invariant values. Bytes that
 * belong to the program (or to the host, if borrowed) are used without a copy; those that binding made by folding are copied into
 * the plan. Large constants are weights (weights.c); smaller ones are packed separately for each plan. */
#include "jit/internal.h"

/* ---- which bytes live as long as the program */

static int by_address(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

/* Lists the addresses of the graph's constants in `out` (NULL: only counts them), except of weights, whose address is only a name. */
static size_t collect(const graph *g, const void **out) {
    size_t count = 0;
    for (uint32_t i = 0; i < g->constants.count; i++) {
        if (jit_weight_of(&g->constants.data[i])) continue;
        if (out) out[count] = g->constants.data[i].bytes;
        count++;
    }
    for (uint32_t i = 0; i < g->subgraphs.count; i++) count += collect(g->subgraphs.data[i], out ? out + count : NULL);
    return count;
}

typedef lib_vec(graph_holder *) holder_list;

static void list_holder(lib_arena *arena, holder_list *list, graph_holder *holder) {
    for (uint32_t i = list->count; holder && i-- > 0;)
        if (list->data[i] == holder) return;
    if (holder) lib_vec_push(arena, list, holder);
}

static void list_holders(lib_arena *arena, holder_list *list, const graph *g) {
    for (uint32_t i = 0; i < g->constants.count; i++)
        if (!jit_weight_of(&g->constants.data[i])) list_holder(arena, list, g->constants.data[i].holder);
    for (uint32_t i = 0; i < g->customs.count; i++) list_holder(arena, list, g->customs.data[i].holder);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (g->nodes.data[i].op->host) list_holder(arena, list, g->nodes.data[i].op->host->holder);
    for (uint32_t i = 0; i < g->subgraphs.count; i++) list_holders(arena, list, g->subgraphs.data[i]);
}

/* Retains the owners of constants' bytes (files) and of host functions. */
static void keep_holders(dlc_program *program) {
    holder_list list = {0};
    list_holders(&program->arena, &list, program->graph);
    if (program->init) list_holders(&program->arena, &list, program->init);
    for (uint32_t i = 0; i < list.count; i++) list.data[i]->keep(list.data[i]);
    program->holders = list.data;
    program->holder_count = list.count;
}

void jit_collect_constants(dlc_program *program) {
    keep_holders(program);
    size_t init = program->init ? collect(program->init, NULL) : 0, all = init + collect(program->graph, NULL);
    program->constants = LIB_NEW_ARRAY(&program->arena, const void *, all + 1);
    if (program->init) collect(program->init, program->constants);
    collect(program->graph, program->constants + init);
    program->constant_count = all;
    if (all) qsort(program->constants, all, sizeof *program->constants, by_address);
}

static bool lives_on(const dlc_program *program, const void *bytes) {
    bool init = program->init && atomic_load(&program->init_state) == JIT_INIT_DONE;
    for (uint32_t i = 0; init && i < program->init->outputs.count; i++)
        if (program->init_values[i].bytes == bytes && !jit_weight_of(&program->init_values[i])) return true;
    return program->constant_count &&
           bsearch(&bytes, program->constants, program->constant_count, sizeof bytes, by_address) != NULL;
}

static bool is_kept(const dlc_program *program, const jit_place *place) {
    return place->weight || lives_on(program, place->pointer);
}

jit_place jit_constant_place(jit_build *build, const graph_constant *constant) {
    const void *bytes = constant->bytes;
    jit_weight *weight = jit_weight_of(constant);
    if (!weight && !lives_on(build->program, bytes)) bytes = lib_arena_copy(&build->plan->arena, bytes, constant->size);
    return (jit_place){.kind = JIT_PLACE_CONSTANT, .pointer = (void *)(uintptr_t)bytes, .weight = weight};
}

/* ---- packing */

/* Row-major bytes, valid as long as the plan; for a view of a weight, from the view's first element. */
static void *whole_bytes(jit_build *build, const jit_place *place) {
    if (!place->weight) return place->pointer;
    const char *whole = jit_weight_whole(build, place->weight);
    return (void *)(uintptr_t)(whole + ((const char *)place->pointer - (const char *)place->weight->name));
}

/* Is the value the whole weight? */
static bool is_all_of(const jit_place *place, const jit_packing *outline, size_t bytes) {
    const jit_weight *weight = place->weight;
    return weight && place->pointer == weight->name && bytes == weight->size &&
           (!weight->base || jit_transposed_fits(&weight->transposition, outline));
}

/* Bytes of a constant in the requested layout; *total: how many, *kept_on: they live as long as the program. */
static void *pack_constant(jit_build *build, graph_id value, const tir_layout *layout, size_t *total, bool *kept_on) {
    const jit_place *place = &build->place[value];
    const graph_shape *shape = graph_shape_of(build->bound, value);
    const size_t element = lib_dtype_size(shape->dtype);
    size_t compact = element;
    int64_t dims[DLC_MAX_RANK] = {0};
    if (tir_layout_is_identity(layout)) {
        *total = jit_value_bytes(build, value);
        void *bytes = whole_bytes(build, place);
        *kept_on = is_kept(build->program, place);
        return bytes;
    }
    for (int d = 0; d < shape->rank; d++) dims[d] = jit_dimension(build, shape->dim[d]), compact *= (size_t)dims[d];
    const jit_packing outline = jit_packing_outline(layout, element, dims);
    *total = outline.bytes;
    *kept_on = is_all_of(place, &outline, compact);
    if (*kept_on) return jit_weight_packed(build, place->weight, &outline);
    const jit_packing packing = jit_packing_of(build->work, layout, element, dims);
    void *to = lib_arena_take_aligned(&build->plan->arena, packing.bytes, TIR_BUFFER_ALIGNMENT);
    jit_pack(&packing, whole_bytes(build, place), to);
    return to;
}

void jit_keep_weights(jit_build *build) {
    for (uint32_t r = 0; r < build->request_count; r++) {
        const jit_request *request = &build->requests[r];
        for (uint32_t i = 0; i < request->region->input_count; i++) {
            const graph_id value = request->region->inputs[i];
            const jit_place *place = &build->place[value];
            if (place->kind != JIT_PLACE_CONSTANT || !place->weight) continue;
            if (!build->constant[value] || tir_layout_is_identity(&request->kernel->input_layouts[i]))
                jit_weight_whole(build, place->weight);
        }
    }
}

void *jit_pack_constant(jit_build *build, graph_id value, const tir_layout *layout) {
    size_t bytes;
    bool kept;
    void *packed = pack_constant(build, value, layout, &bytes, &kept);
    return build->program->context->target->runtime ? jit_device_constant(build, packed, bytes, kept) : packed;
}

/* ---- loop-invariant values */

static bool wants_packing(const jit_build *build, graph_id value, const tir_layout *layout) {
    return build->steady[value] && !tir_layout_is_identity(layout);
}

static jit_packing *find_packing(const jit_build *build, graph_id value, const tir_layout *layout) {
    jit_plan *plan = build->plan;
    for (int i = 0; i < plan->packing_count; i++)
        if (plan->packings[i].input == build->place[value].number &&
            tir_layout_equal(&plan->packings[i].layout, layout))
            return &plan->packings[i];
    return NULL;
}

/* Is the value also invariant in the loop around this one, so that the outer loop can pack it? */
static bool may_lift(const jit_build *build, graph_id value) {
    return build->control && build->outer->steady[build->loop->input[build->place[value].number]];
}

/* Index of the packed copy in the list of lifted ones; the list's length if it is not there yet. */
static uint32_t find_lifted(const jit_build *build, graph_id value, const tir_layout *layout) {
    const jit_control *control = build->control;
    uint32_t i = 0;
    while (i < control->lifted.count && (control->lifted.data[i].input != build->place[value].number ||
                                         !tir_layout_equal(&control->lifted.data[i].layout, layout)))
        i++;
    return i;
}

static void want_packing(jit_build *build, graph_id value, const tir_layout *layout) {
    if (!wants_packing(build, value, layout)) return;
    jit_plan *plan = build->plan;
    if (may_lift(build, value)) {
        const jit_lifted lifted = {build->place[value].number, *layout};
        if (find_lifted(build, value, layout) == build->control->lifted.count)
            lib_vec_push(build->work, &build->control->lifted, lifted);
        return;
    }
    if (find_packing(build, value, layout)) return;
    const graph_shape *shape = graph_shape_of(build->bound, value);
    int64_t dims[DLC_MAX_RANK];
    for (int d = 0; d < shape->rank; d++) dims[d] = jit_dimension(build, shape->dim[d]);
    jit_packing *packing = &plan->packings[plan->packing_count++];
    *packing = jit_packing_of(&plan->arena, layout, lib_dtype_size(shape->dtype), dims);
    packing->input = build->place[value].number;
}

void jit_ask_for_packings(jit_build *build) {
    size_t most = 0;
    if (build->steady_from < 0) return;
    for (uint32_t r = 0; r < build->request_count; r++) most += build->requests[r].region->input_count;
    for (uint32_t r = 0; r < build->regions.count; r++) most += build->controls[r].lifted.count;
    build->plan->packings = LIB_NEW_ARRAY(&build->plan->arena, jit_packing, most + 1);
    for (uint32_t r = 0; r < build->request_count; r++) {
        const jit_request *request = &build->requests[r];
        for (uint32_t i = 0; i < request->region->input_count; i++)
            want_packing(build, request->region->inputs[i], &request->kernel->input_layouts[i]);
    }
    for (uint32_t r = 0; r < build->regions.count; r++) {
        const jit_control *control = &build->controls[r];
        const graph_node *node = &build->bound->nodes.data[build->regions.data[r].nodes[0]];
        for (uint32_t i = 0; i < control->lifted.count; i++)
            want_packing(build, node->input[control->lifted.data[i].input], &control->lifted.data[i].layout);
    }
}

jit_place jit_steady_place(const jit_build *build, graph_id value, const tir_layout *layout) {
    if (!wants_packing(build, value, layout)) return build->place[value];
    if (may_lift(build, value))
        return (jit_place){.kind = JIT_PLACE_INPUT,
                           .number = build->loop->inputs + (int32_t)find_lifted(build, value, layout)};
    return (jit_place){.kind = JIT_PLACE_ARENA, .offset = find_packing(build, value, layout)->offset};
}

void jit_pack_steady(const jit_plan *plan, const jit_frame *frame, char *const *inputs) {
    for (int i = 0; i < plan->packing_count; i++) {
        const jit_packing *packing = &plan->packings[i];
        char *to = frame->memory + packing->offset;
        if (packing->padded) memset(to, 0, packing->bytes);
        jit_pack(packing, inputs[packing->input], to);
    }
}

/* The bytes, or a copy of them in the plan's arena if they are not aligned to `alignment`. */
static void *aligned(jit_build *build, void *bytes, size_t size, size_t alignment) {
    if (!((uintptr_t)bytes & (alignment - 1)) || !size) return bytes;
    return memcpy(lib_arena_take_aligned(&build->plan->arena, size, TIR_BUFFER_ALIGNMENT), bytes, size);
}

/* The same for arguments of kernels of a target with a runtime, which require TIR_BUFFER_ALIGNMENT. */
static void *aligned_for_kernels(jit_build *build, void *bytes, size_t size) {
    return aligned(build, bytes, size, TIR_BUFFER_ALIGNMENT);
}

void *jit_pack_host_constant(jit_build *build, graph_id value, const tir_layout *layout) {
    size_t bytes;
    bool kept;
    void *packed = pack_constant(build, value, layout, &bytes, &kept);
    return aligned_for_kernels(build, packed, bytes);
}

void *jit_host_constant(jit_build *build, graph_id value) {
    return aligned_for_kernels(build, whole_bytes(build, &build->place[value]), jit_value_bytes(build, value));
}

void *jit_resident_constant(jit_build *build, graph_id value) {
    const jit_place *place = &build->place[value];
    void *bytes = whole_bytes(build, place);
    if (!build->program->context->target->runtime) return bytes;
    return jit_device_constant(build, bytes, jit_value_bytes(build, value), is_kept(build->program, place));
}

void *jit_aligned_constant(jit_build *build, graph_id value) {
    const size_t element = lib_dtype_size(graph_shape_of(build->bound, value)->dtype);
    return aligned(build, jit_resident_constant(build, value), jit_value_bytes(build, value), element);
}
