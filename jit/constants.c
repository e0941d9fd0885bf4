/* Constants at run time: where their bytes are, and copies in the layouts that kernels want; such copies, too, of what a loop takes from
 * outside. Bytes that belong to the program (or to the host, when borrowed) are used as they are; those that binding made by folding
 * are copied into the plan. Packed copies of large constants are shared by all plans of a program. */
#include "jit/internal.h"

enum { SHARED_MIN = 64 << 10 }; /* smaller ones are packed anew for each plan */

/* ---- which bytes live as long as the program */

static int by_address(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

static size_t collect(const graph *g, const void **out) {
    size_t count = g->constants.count;
    for (uint32_t i = 0; out && i < g->constants.count; i++) out[i] = g->constants.data[i].bytes;
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
    for (uint32_t i = 0; i < g->constants.count; i++) list_holder(arena, list, g->constants.data[i].holder);
    for (uint32_t i = 0; i < g->customs.count; i++) list_holder(arena, list, g->customs.data[i].holder);
    for (uint32_t i = 0; i < g->subgraphs.count; i++) list_holders(arena, list, g->subgraphs.data[i]);
}

/* The files that bytes of constants lie in, and what host functions belong to. */
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

static bool is_kept(const dlc_program *program, const void *bytes) {
    bool init = program->init && atomic_load(&program->init_state) == JIT_INIT_DONE;
    for (uint32_t i = 0; init && i < program->init->outputs.count; i++)
        if (program->init_values[i].bytes == bytes) return true;
    return program->constant_count &&
           bsearch(&bytes, program->constants, program->constant_count, sizeof bytes, by_address) != NULL;
}

const void *jit_keep_constant(jit_build *build, const graph_constant *constant) {
    if (is_kept(build->program, constant->bytes)) return constant->bytes;
    return lib_arena_copy(&build->plan->arena, constant->bytes, constant->size);
}

/* ---- packing */

/* Extents and strides of the physical dimensions; returns the number of elements. */
static size_t physical(const tir_layout *layout, const int64_t *shape, int64_t *stride) {
    size_t count = 1;
    for (int p = layout->count - 1; p >= 0; p--) {
        const tir_layout_part *part = &layout->part[p];
        stride[p] = (int64_t)count;
        count *= (size_t)(part->modulus ? part->modulus : (shape[part->dim] + part->divisor - 1) / part->divisor);
    }
    return count;
}

/* Where the elements of a row lie in the packed copy, from its first one on: what the coordinates of the last dimension add. */
static void place_row(const tir_layout *layout, const int64_t *stride, int dim, int64_t count, int64_t *place) {
    for (int64_t i = 0; i < count; i++) {
        place[i] = 0;
        for (int p = 0; p < layout->count; p++) {
            const tir_layout_part *part = &layout->part[p];
            int64_t value = i / part->divisor;
            if (part->dim == dim) place[i] += (part->modulus ? value % part->modulus : value) * stride[p];
        }
    }
}

/* The longest runs of equal length in which a row's elements lie side by side in the copy, too. */
static int64_t run_of(const int64_t *place, int64_t count) {
    int64_t run = 1;
    while (run < count && place[run] == place[run - 1] + 1) run++;
    for (int64_t i = 1; i < count; i++)
        if (i % run && place[i] != place[i - 1] + 1) return 1;
    return run;
}

static void copy_row(const jit_packing *packing, int64_t count, const int64_t *place, const char *from, char *to) {
    const size_t size = packing->element;
    const int64_t run = packing->run;
    if (run > 1) {
        for (int64_t i = 0; i < count; i += run)
            memcpy(to + (size_t)place[i] * size, from + (size_t)i * size,
                   (size_t)(run < count - i ? run : count - i) * size);
        return;
    }
    switch (size) { /* a copy of constant size is a move */
    case 1:
        for (int64_t i = 0; i < count; i++) to[place[i]] = from[i];
        break;
    case 2:
        for (int64_t i = 0; i < count; i++) memcpy(to + 2 * place[i], from + 2 * i, 2);
        break;
    case 4:
        for (int64_t i = 0; i < count; i++) memcpy(to + 4 * place[i], from + 4 * i, 4);
        break;
    default:
        for (int64_t i = 0; i < count; i++) memcpy(to + (size_t)place[i] * size, from + (size_t)i * size, size);
        break;
    }
}

/* How a compact tensor of this shape becomes one of that layout; tables in `arena`. */
static jit_packing packing_of(lib_arena *arena, const tir_layout *layout, size_t element, const int64_t *shape) {
    int64_t stride[TIR_MAX_PHYSICAL];
    jit_packing packing = {.layout = *layout, .element = element, .run = 1};
    const size_t count = physical(layout, shape, stride);
    size_t own = 1;
    packing.bytes = count * element;
    for (int d = 0; d < layout->rank; d++) own *= (size_t)shape[d];
    packing.padded = count != own;
    for (int d = 0; d < layout->rank; d++) {
        packing.shape[d] = shape[d];
        packing.places[d] = LIB_NEW_ARRAY(arena, int64_t, (size_t)shape[d]);
        place_row(layout, stride, d, shape[d], packing.places[d]);
        if (d == layout->rank - 1) packing.run = run_of(packing.places[d], shape[d]);
    }
    return packing;
}

/* Padding is left as it is. */
static void pack(const jit_packing *packing, const char *from, char *to) {
    int64_t index[DLC_MAX_RANK] = {0}, rows = 1;
    const int64_t *shape = packing->shape, *const *place = (const int64_t *const *)packing->places;
    const int last = packing->layout.rank - 1;
    if (last < 0) {
        memcpy(to, from, packing->element);
        return;
    }
    for (int d = 0; d < last; d++) rows *= shape[d];
    for (int64_t row = 0; row < rows && shape[last]; row++) {
        int64_t at = 0;
        for (int d = 0; d < last; d++) at += place[d][index[d]];
        copy_row(packing, shape[last], place[last], from, to + (size_t)at * packing->element);
        from += (size_t)shape[last] * packing->element;
        for (int d = last - 1; d >= 0 && ++index[d] == shape[d]; d--) index[d] = 0;
    }
}

static void free_packed(const dlc_allocator *allocator, jit_packed *packed) {
    lib_release_bytes(allocator, packed->bytes, packed->size, TIR_BUFFER_ALIGNMENT);
    lib_release(allocator, packed, sizeof *packed, 16);
}

/* Zeroed memory, not yet the program's. */
static jit_packed *new_packed(jit_build *build, const jit_packed *wanted, size_t size) {
    const dlc_allocator *allocator = &build->program->context->allocator;
    jit_packed *packed = lib_allocate_zeroed(allocator, sizeof *packed, 16);
    void *bytes = packed ? lib_allocate_bytes(allocator, size, TIR_BUFFER_ALIGNMENT) : NULL;
    if (!bytes) {
        lib_release(allocator, packed, sizeof *packed, 16);
        lib_raise(build->work->scope, DLC_OUT_OF_MEMORY, "out of memory: a packed constant of %zu bytes", size);
    }
    memset(bytes, 0, size);
    *packed = *wanted;
    packed->bytes = bytes;
    packed->size = size;
    return packed;
}

static bool is_same(const jit_packed *a, const jit_packed *b) {
    return a->source == b->source && a->element == b->element && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           tir_layout_equal(&a->layout, &b->layout);
}

static void *find_packed(const jit_packed *p, const jit_packed *wanted) {
    while (p && !is_same(p, wanted)) p = p->next;
    return p ? p->bytes : NULL;
}

/* Of the program from now on; another thread may have packed the same meanwhile. */
static void *publish_packed(dlc_program *program, jit_packed *packed) {
    lib_mutex_lock(&program->mutex);
    void *bytes = find_packed(program->packed, packed);
    if (!bytes) {
        packed->next = program->packed;
        program->packed = packed;
    }
    lib_mutex_unlock(&program->mutex);
    if (!bytes) return packed->bytes;
    free_packed(&program->context->allocator, packed);
    return bytes;
}

/* Bytes of a constant in the layout asked for, and whether they live as long as the program. */
static void *pack_constant(jit_build *build, graph_id value, const tir_layout *layout, size_t *total, bool *kept_on) {
    dlc_program *program = build->program;
    const void *from = build->place[value].pointer;
    const graph_shape *shape = graph_shape_of(build->bound, value);
    jit_packed wanted = {.source = from, .element = lib_dtype_size(shape->dtype), .layout = *layout};
    int64_t *dims = wanted.shape;
    bool kept = *kept_on = is_kept(program, from);
    if (tir_layout_is_identity(layout)) {
        *total = jit_value_bytes(build, value);
        return build->place[value].pointer;
    }
    for (int d = 0; d < shape->rank; d++) dims[d] = jit_dimension(build, shape->dim[d]);
    const jit_packing packing = packing_of(build->work, layout, wanted.element, dims);
    const size_t bytes = *total = packing.bytes;
    if (kept) {
        lib_mutex_lock(&program->mutex);
        void *known = find_packed(program->packed, &wanted);
        lib_mutex_unlock(&program->mutex);
        if (known) return known;
    }
    if (kept && bytes >= SHARED_MIN) {
        jit_packed *packed = new_packed(build, &wanted, bytes);
        pack(&packing, from, packed->bytes);
        return publish_packed(program, packed);
    }
    *kept_on = false;
    void *to = lib_arena_take_aligned(&build->plan->arena, bytes, TIR_BUFFER_ALIGNMENT);
    pack(&packing, from, to);
    return to;
}

void *jit_pack_constant(jit_build *build, graph_id value, const tir_layout *layout) {
    size_t bytes;
    bool kept;
    void *packed = pack_constant(build, value, layout, &bytes, &kept);
    return build->program->context->target->runtime ? jit_device_constant(build, packed, bytes, kept) : packed;
}

/* ---- what is the same in all iterations of a loop */

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

/* The loop around has the same tensor for all of its iterations, too. */
static bool may_lift(const jit_build *build, graph_id value) {
    return build->control && build->outer->steady[build->loop->input[build->place[value].number]];
}

/* Its number among what is lifted out of the loop; the list's length: not there yet. */
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
    *packing = packing_of(&plan->arena, layout, lib_dtype_size(shape->dtype), dims);
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
        pack(packing, inputs[packing->input], to);
    }
}

/* As kernels of a target with a runtime expect of every argument. */
static void *aligned(jit_build *build, void *bytes, size_t size) {
    if (!((uintptr_t)bytes & (TIR_BUFFER_ALIGNMENT - 1)) || !size) return bytes;
    return memcpy(lib_arena_take_aligned(&build->plan->arena, size, TIR_BUFFER_ALIGNMENT), bytes, size);
}

void *jit_pack_host_constant(jit_build *build, graph_id value, const tir_layout *layout) {
    size_t bytes;
    bool kept;
    void *packed = pack_constant(build, value, layout, &bytes, &kept);
    return aligned(build, packed, bytes);
}

void *jit_host_constant(jit_build *build, graph_id value) {
    return aligned(build, build->place[value].pointer, jit_value_bytes(build, value));
}

void *jit_resident_constant(jit_build *build, graph_id value) {
    void *bytes = build->place[value].pointer;
    if (!build->program->context->target->runtime) return bytes;
    return jit_device_constant(build, bytes, jit_value_bytes(build, value), is_kept(build->program, bytes));
}

void jit_constants_free(dlc_program *program) {
    jit_device_constants_free(program);
    const dlc_allocator *allocator = &program->context->allocator;
    for (jit_packed *packed = program->packed, *next; packed; packed = next) {
        next = packed->next;
        free_packed(allocator, packed);
    }
    program->packed = NULL;
}
