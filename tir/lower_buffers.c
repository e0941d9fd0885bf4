/* Buffers of lowering: arguments, workspace homes of roots, scratch of attached stages and fold states. */
#include "tir/lower.h"

enum {
    STACK_LIMIT =
        16
        << 10, /* bytes of all of a kernel's stack buffers: runs are guaranteed to work with 32 KiB (LIB_STACK_CALL) */
    EXACT_LIMIT = 256 << 10 /* larger scratch is sized by the parameters' actual values, smaller by the largest ones */
};

/* ---- scratch */

static tir_expr find_loop_variable(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    if (tir_op_of(pool, e) == TIR_VAR && tir_variable_of(pool, e)->kind != TIR_VAR_PARAM) *(bool *)user = true;
    return rebuilt;
}

/* Does the expression depend on parameters and numbers alone? */
static bool known_at_entry(tir_pool *pool, tir_expr e) {
    bool varies = false;
    tir_rewrite(pool, e, find_loop_variable, &varies);
    return !varies;
}

static void place_rows(tir_lowering *l, const tir_stage_plan *plan, tir_buffer *buffer) {
    const int size = (int)lib_dtype_size(buffer->dtype);
    int64_t row = 0;
    buffer->swizzle = plan->swizzle;
    if (!plan->pad) return;
    if (plan->pad % size || buffer->rank < 2 || !tir_is_const(l->pool, buffer->extent[buffer->rank - 1], &row))
        lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT, "schedule of region %s: `store %s shared pad %d`: %s",
                  l->region->name, buffer->name, plan->pad,
                  buffer->rank < 2 ? "it has a single row" : "no number of elements");
    tir_expr stride = tir_index(l->pool, row + plan->pad / size);
    for (int d = buffer->rank - 2; d >= 0; d--) {
        buffer->stride[d] = stride;
        stride = tir_mul(l->pool, stride, buffer->extent[d]);
    }
}

/* The greatest values of the extents; raises if one is unbounded. */
static void bound_extents(tir_lowering *l, const tir_tensor *t, const tir_expr *extent, tir_expr *bounded) {
    for (int d = 0; d < t->rank; d++) {
        int64_t high = tir_range(l->pool, extent[d]).high;
        if (high >= INT64_C(1) << 40)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                      "schedule of region %s: scratch of %s has no bounded size along dimension %d", l->region->name,
                      t->name, d);
        bounded[d] = tir_index(l->pool, high > 0 ? high : 0);
    }
}

/* Bytes of scratch of constant physical sizes; raises if they are too many. */
static int64_t scratch_bytes(tir_lowering *l, const tir_tensor *t, int rank, const tir_expr *sizes) {
    int64_t bytes = (int64_t)lib_dtype_size(t->dtype);
    for (int d = 0; d < rank; d++) {
        int64_t n = 1;
        tir_is_const(l->pool, sizes[d], &n);
        if (n && bytes > (INT64_C(1) << 46) / n)
            lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT, "region %s: scratch of %s is too large", l->region->name,
                      t->name);
        bytes *= n;
    }
    return bytes;
}

/* A buffer for results of the stage. of_parts: for the results that partial ones make up, in memory, whatever storage the schedule gives the
 * stage. */
static uint32_t new_scratch(tir_lowering *l, int s, uint32_t tensor, const tir_expr *extent, bool of_parts) {
    const tir_tensor *t = &l->region->tensors.data[tensor];
    tir_expr bounded[DLC_MAX_RANK], sizes[TIR_MAX_PHYSICAL_RANK + 1];
    bound_extents(l, t, extent, bounded);
    tir_layout_extents(l->pool, &t->layout, bounded, sizes);
    int rank = tir_layout_physical_rank(&t->layout);
    const int64_t bytes = scratch_bytes(l, t, rank, sizes);
    const tir_stage_plan *plan = tir_plan_of(l, s);
    const bool fits = bytes <= STACK_LIMIT - l->stack_bytes;
    tir_scope scope = plan->has_scope && !of_parts ? plan->scope : fits ? TIR_SCOPE_STACK : TIR_SCOPE_LOCAL;
    if (scope == TIR_SCOPE_STACK && !fits)
        lib_raise(l->arena->scope, DLC_INVALID_ARGUMENT,
                  "schedule of region %s: %s takes %lld bytes of stack, of %d that a kernel may take %lld are left",
                  l->region->name, t->name, (long long)bytes, STACK_LIMIT, (long long)(STACK_LIMIT - l->stack_bytes));
    if (scope == TIR_SCOPE_STACK) l->stack_bytes += bytes;
    l->registers = l->registers || scope == TIR_SCOPE_REG;
    if (scope == TIR_SCOPE_LOCAL && bytes > EXACT_LIMIT) {
        for (int d = 0; d < t->rank; d++)
            if (known_at_entry(l->pool, extent[d])) bounded[d] = tir_max(l->pool, extent[d], tir_index(l->pool, 0));
        tir_layout_extents(l->pool, &t->layout, bounded, sizes);
    }
    if (plan->stages) {
        if (rank == TIR_MAX_PHYSICAL_RANK)
            tir_schedule_raise(&l->state, "pipeline: %s has too many dimensions", t->name);
        memmove(sizes + 1, sizes, (size_t)rank * sizeof *sizes);
        sizes[0] = tir_index(l->pool, plan->stages);
        rank++;
    }
    uint32_t buffer = tir_kernel_buffer(l->kernel, t->name, t->dtype, scope, rank, sizes);
    if (scope == TIR_SCOPE_SHARED) place_rows(l, plan, &l->kernel->buffers.data[buffer]);
    return buffer;
}

static bool has_parts(const tir_stage_plan *plan) {
    for (uint32_t n = 0; n < plan->nodes.count; n++)
        if (plan->nodes.data[n].partial) return true;
    return false;
}

void tir_lower_exchange_parts(tir_lowering *l, int s) {
    tir_stage_plan *plan = tir_plan_of(l, s);
    for (int c = 0; c < tir_stage_of(l, s)->count; c++) {
        const uint32_t part = plan->part[c];
        plan->part[c] = plan->scratch[c];
        plan->scratch[c] = part;
    }
}

/* Opens the stage: allocates scratch for its axes' current ranges and, whole, for a state's own dimensions; or opens it in its root's output
 * or its fold's state. */
void tir_lower_open_scratch(tir_lowering *l, int s) {
    tir_stage *stage = tir_stage_of(l, s);
    tir_stage_plan *plan = tir_plan_of(l, s);
    if (plan->in_output) {
        tir_lower_open_output(l, s);
        return;
    }
    if (plan->in_state) {
        tir_lower_open_in_state(l, s);
        return;
    }
    const bool parts = has_parts(plan);
    bool root = plan->at_stage < 0; /* a fold at the start of its sequential loop: outer loops are open */
    for (int a = 0; a < stage->space; a++) {
        tir_span view =
            root ? tir_axis_view(&l->state, s, a) : (tir_span){plan->low[a], tir_axis_span(&l->state, s, a)};
        plan->scratch_low[a] = view.low;
        plan->scratch_extent[a] = view.extent;
    }
    for (int c = 0; c < stage->count; c++) {
        const tir_tensor *t = &l->region->tensors.data[stage->tensor[c]];
        for (int d = stage->space; d < t->rank; d++) {
            plan->scratch_extent[d] = t->extent[d];
            plan->scratch_low[d] = tir_index(l->pool, 0);
        }
        if (!plan->placed) plan->scratch[c] = new_scratch(l, s, stage->tensor[c], plan->scratch_extent, parts);
        if (parts) plan->part[c] = new_scratch(l, s, stage->tensor[c], plan->scratch_extent, false);
    }
    plan->placed = plan->stages > 0;
    plan->open = true;
}

/* ---- homes: arguments and workspace */

void tir_lower_arguments(tir_lowering *l) {
    int total = l->region->inputs + l->region->outputs;
    for (int argument = 0; argument < total; argument++) {
        for (uint32_t t = 0; t < l->region->tensors.count; t++) {
            const tir_tensor *tensor = &l->region->tensors.data[t];
            if (tensor->argument != argument) continue;
            tir_expr sizes[TIR_MAX_PHYSICAL_RANK];
            tir_layout_extents(l->pool, &tensor->layout, tensor->extent, sizes);
            uint32_t b = tir_kernel_buffer(l->kernel, tensor->name, tensor->dtype, TIR_SCOPE_ARG,
                                           tir_layout_physical_rank(&tensor->layout), sizes);
            tir_buffer *buffer = &l->kernel->buffers.data[b];
            buffer->argument = argument;
            const bool packed = !tir_layout_is_identity(&tensor->layout);
            const int32_t element = (int32_t)lib_dtype_size(tensor->dtype);
            buffer->alignment = tensor->alignment;
            if (!buffer->alignment || (packed && buffer->alignment < element)) buffer->alignment = element;
            if (tensor->has_strides)
                for (int d = 0; d < tensor->rank; d++) buffer->stride[d] = tir_index(l->pool, tensor->stride[d]);
            l->home[t] = b;
        }
    }
    l->kernel->arguments = total;
}

typedef struct reader_search {
    tir_lowering *l;
    int producer;
    bool found;
} reader_search;

static void find_reader(void *user, tir_expr load) {
    reader_search *search = user;
    const tir_tensor *t = &search->l->region->tensors.data[tir_get(search->l->pool, load)->bits];
    search->found = search->found || t->stage == search->producer;
}

bool tir_lower_reads(tir_lowering *l, int reader, int producer) {
    reader_search search = {l, producer, false};
    tir_stage_loads(l->state.region, reader, find_reader, &search);
    return search.found;
}

/* Is a value of stage s, the fold or one of its steps, an output or read by a stage other than the fold and its steps? */
static bool used_outside(tir_lowering *l, int s, int fold) {
    bool used = false;
    for (int c = 0; c < tir_stage_of(l, s)->count; c++)
        used = used || l->region->tensors.data[tir_stage_of(l, s)->tensor[c]].output;
    for (int q = 0; q < (int)l->region->stages.count && !used; q++)
        if (q != s && q != fold && !tir_stage_of(l, q)->removed && tir_stage_of(l, q)->fold != fold)
            used = tir_lower_reads(l, q, s);
    return used;
}

bool tir_lower_has_home(tir_lowering *l, int s) {
    for (int c = 0; c < tir_stage_of(l, s)->count; c++)
        if (l->home[tir_stage_of(l, s)->tensor[c]] != UINT32_MAX) return true;
    return false;
}

/* Does a stage in the loops of another root read stage s? */
static bool used_by_another_root(tir_lowering *l, int s) {
    bool used = false;
    for (int q = 0; q < (int)l->region->stages.count && !used; q++)
        used = !tir_stage_of(l, q)->removed && tir_lower_root(l, q) != tir_lower_root(l, s) && tir_lower_reads(l, q, s);
    return used;
}

/* Gives the stage's tensors that are not arguments buffers in the workspace, if the stage is a root or runs beside one (a fold: only if its state is read
 * outside of the fold), an attached step that is read outside of its fold, or attached and read by another root. */
void tir_lower_workspace(tir_lowering *l, int s) {
    tir_stage *stage = tir_stage_of(l, s);
    bool attached = tir_plan_of(l, s)->at_stage >= 0 && !tir_plan_of(l, s)->beside;
    if (attached && !(stage->fold < 0 ? used_by_another_root(l, s) : used_outside(l, s, stage->fold))) return;
    if (stage->kind == TIR_FOLD && !used_outside(l, s, s)) return;
    for (int c = 0; c < stage->count; c++) {
        uint32_t t = stage->tensor[c];
        const tir_tensor *tensor = &l->region->tensors.data[t];
        if (l->home[t] != UINT32_MAX) continue;
        tir_expr sizes[TIR_MAX_PHYSICAL_RANK];
        tir_layout_extents(l->pool, &tensor->layout, tensor->extent, sizes);
        l->home[t] = tir_kernel_buffer(l->kernel, tensor->name, tensor->dtype, TIR_SCOPE_WORKSPACE,
                                       tir_layout_physical_rank(&tensor->layout), sizes);
    }
}
