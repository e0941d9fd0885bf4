/* The boundary of a run: all arguments are checked before any is written. Tensors that are not compact or not aligned to their
 * elements are copied to and from compact buffers, as are donated inputs that the plan cannot update in place. */
#include "jit/internal.h"

enum { FAST_TENSORS = 24, FAST_DIMENSIONS = 64 };

/* ---- checks */

static const jit_argument *wanted_of(const jit_boundary *c, int slot) {
    return slot < c->input_count ? &c->program->inputs[slot] : &c->program->outputs[slot - c->input_count];
}

/* `format` continues the message after the tensor's name. */
__attribute__((format(printf, 4, 5))) static dlc_status refuse(const jit_boundary *c, int slot, lib_error *error,
                                                               const char *format, ...) {
    char why[256];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: %s %s%s", c->caller, slot < c->input_count ? "input" : "output",
                    wanted_of(c, slot)->name, why);
}

static dlc_status refuse_dtype(const jit_boundary *c, int slot, const DLTensor *tensor, lib_error *error) {
    dlc_dtype dtype;
    const char *expected = lib_dtypes[wanted_of(c, slot)->shape->dtype].name;
    if (lib_dtype_from_dlpack(tensor->dtype, &dtype))
        return refuse(c, slot, error, " is %s, expected %s", lib_dtypes[dtype].name, expected);
    return refuse(c, slot, error, " has DLPack dtype (code %d, %d bits, %d lanes), expected %s", tensor->dtype.code,
                  tensor->dtype.bits, tensor->dtype.lanes, expected);
}

static dlc_status refuse_size(const jit_boundary *c, int slot, const DLTensor *tensor, lib_error *error) {
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->shape[d] < 0)
            return refuse(c, slot, error, ": dimension %d is %lld, expected 0 or more", d, (long long)tensor->shape[d]);
    return refuse(c, slot, error, ": its size in bytes overflows");
}

/* Sets *count to the product of the dimensions; false: one is not above 0, or the product overflows. Sets *compact: strides are
 * those of a compact tensor. */
static bool multiply_dimensions(const DLTensor *tensor, int64_t *count, bool *compact) {
    bool plain = true;
    *count = 1, *compact = true;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        int64_t n = tensor->shape[d];
        if (tensor->strides && n != 1 && tensor->strides[d] != *count) *compact = false;
        plain &= n > 0 && !__builtin_mul_overflow(*count, n, count);
    }
    return plain;
}

/* Sets the extent by the strides, and *count to the number of elements. */
static dlc_status measure_strided(jit_boundary *c, int slot, const DLTensor *tensor, int64_t *count, lib_error *error) {
    if (!lib_tensor_count(tensor, count)) return refuse_size(c, slot, tensor, error);
    if (!lib_tensor_extent(tensor, &c->extents[slot].low, &c->extents[slot].high))
        return refuse(c, slot, error, " has strides that lead out of the address space");
    if (*count == 0) c->direct[slot] = true;
    return DLC_OK;
}

/* Checks size and strides in one pass, fast for compact tensors; sets `direct` if kernels can use the tensor without a copy. */
static dlc_status measure(jit_boundary *c, int slot, const DLTensor *tensor, lib_error *error) {
    int64_t count, size = (tensor->dtype.bits + 7) / 8;
    bool compact;
    const bool plain = multiply_dimensions(tensor, &count, &compact);
    char *first = lib_tensor_data(tensor);
    const bool packed = tensor->dtype.bits < 8;
    if (!compact && !lib_tensor_is_addressable(tensor))
        return refuse(c, slot, error, " has strides, expected a compact tensor: its elements are %d bits",
                      tensor->dtype.bits);
    int64_t alignment = size;
    if (jit_is_on_device(c->program->context, tensor)) alignment = c->program->context->target->runtime->alignment;
    c->direct[slot] = compact && ((uintptr_t)first & (uintptr_t)((alignment > size ? alignment : size) - 1)) == 0;
    if (plain && compact && !packed && !__builtin_mul_overflow(count, size, &count))
        c->extents[slot] = (jit_extent){first, first + count};
    else
        LIB_TRY(measure_strided(c, slot, tensor, &count, error));
    if (count && !tensor->data) return refuse(c, slot, error, " has no data");
    return DLC_OK;
}

static dlc_status refuse_place(const jit_boundary *c, int slot, const DLTensor *tensor, lib_error *error) {
    const dlc_context *context = c->program->context;
    const target_runtime *runtime = context->target->runtime;
    if (!runtime)
        return refuse(c, slot, error, " is on device type %d; expected host memory (%d)",
                      (int)tensor->device.device_type, (int)kDLCPU);
    return refuse(c, slot, error, " is on device %d of type %d; expected device %d of type %d, or host memory (%d)",
                  (int)tensor->device.device_id, (int)tensor->device.device_type, context->ordinal,
                  (int)runtime->device_type, (int)kDLCPU);
}

dlc_status jit_check_tensor(jit_boundary *c, int slot, const DLTensor *tensor, lib_error *error) {
    const jit_argument *wanted = wanted_of(c, slot);
    dlc_dtype dtype;
    if (!tensor) return refuse(c, slot, error, " is NULL");
    if (tensor->device.device_type != kDLCPU && tensor->device.device_type != kDLCUDAHost &&
        !jit_is_on_device(c->program->context, tensor))
        return refuse_place(c, slot, tensor, error);
    if (memcmp(&tensor->dtype, &wanted->dtype, sizeof tensor->dtype) != 0 &&
        (!lib_dtype_from_dlpack(tensor->dtype, &dtype) || dtype != wanted->shape->dtype))
        return refuse_dtype(c, slot, tensor, error);
    if (tensor->ndim != wanted->rank)
        return refuse(c, slot, error, " has rank %d, expected %d", (int)tensor->ndim, wanted->rank);
    if (tensor->ndim && !tensor->shape) return refuse(c, slot, error, " has no shape array");
    return measure(c, slot, tensor, error);
}

static void count_copy(const jit_boundary *c, size_t bytes) {
    atomic_fetch_add_explicit(&c->program->context->copied_bytes, bytes, memory_order_relaxed);
}

/* Allocates c->staged[slot], a compact tensor like `like`, not filled yet. donation (may be NULL): if it has room, the tensor has the
 * size of the whole buffer. */
static dlc_status stage(jit_boundary *c, int slot, const DLTensor *like, const jit_donation *donation,
                        lib_error *error) {
    const dlc_allocator *allocator = &c->program->context->allocator;
    if (!c->staged) {
        size_t size = (size_t)(c->input_count + c->output_count) * sizeof *c->staged;
        c->staged = lib_allocate_zeroed(allocator, size, 16);
        if (!c->staged)
            return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: out of memory: copies of strided tensors", c->caller);
    }
    dlc_dtype dtype;
    int64_t shape[DLC_MAX_RANK];
    lib_dtype_from_dlpack(like->dtype, &dtype);
    for (int d = 0; d < like->ndim; d++) shape[d] = like->shape[d];
    if (donation && donation->axis >= 0) shape[donation->axis] = donation->room;
    c->staged[slot] = lib_tensor_new(allocator, dtype, like->ndim, shape, TIR_BUFFER_ALIGNMENT);
    if (!c->staged[slot])
        return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: out of memory: a compact copy of a tensor", c->caller);
    return DLC_OK;
}

dlc_status jit_check_inputs(jit_boundary *c, lib_error *error) {
    const dlc_program *program = c->program;
    if (c->input_count != program->ordinary_inputs || (c->input_count && !c->inputs))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: %d inputs were given%s, the program takes %d", c->caller,
                        c->input_count, c->inputs ? "" : " (NULL)", program->ordinary_inputs);
    if (c->output_count != program->output_count || (c->output_count && !c->outputs))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: %d outputs were given%s, the program has %d", c->caller,
                        c->output_count, c->outputs ? "" : " (NULL)", program->output_count);
    for (int o = 0; o < c->output_count; o++) c->outputs[o].managed = NULL;
    for (int i = 0; i < c->input_count; i++) {
        const DLTensor *tensor = c->inputs[i];
        LIB_TRY(jit_check_tensor(c, i, tensor, error));
        for (int d = 0; d < tensor->ndim; d++) c->shapes[c->shape_count++] = tensor->shape[d];
        c->input_data[i] = lib_tensor_data(tensor);
    }
    jit_add_rooms(c);
    return DLC_OK;
}

/* Is the input donated with room? If it must be copied, it is copied to its output's buffer (fill_room). */
static bool is_part_of_output(const jit_boundary *c, int input) {
    for (int k = 0; k < c->program->growth_count; k++)
        if (c->program->growths[k].input == input) return true;
    return false;
}

static dlc_status stage_inputs(jit_boundary *c, lib_error *error) {
    for (int i = 0; i < c->input_count; i++) {
        if (c->direct[i] || jit_is_on_device(c->program->context, c->inputs[i]) || is_part_of_output(c, i)) continue;
        LIB_TRY(stage(c, i, c->inputs[i], NULL, error));
        lib_tensor_copy(&c->staged[i]->dl_tensor, c->inputs[i]);
        count_copy(c, lib_tensor_bytes(c->inputs[i]));
        c->input_data[i] = c->staged[i]->dl_tensor.data;
    }
    return DLC_OK;
}

static bool is_donated(const jit_boundary *c, int output, int input) {
    const DLTensor *in = c->inputs[input], *out = c->outputs[output].tensor;
    return c->program->alias[output] == input && lib_tensor_data(in) == lib_tensor_data(out) &&
           (!jit_growth_of(c->program, output) || jit_begins(in, out));
}

bool jit_is_shared(const jit_boundary *c, int output) {
    int input = c->program->alias[output];
    return input >= 0 && c->outputs[output].tensor && is_donated(c, output, input) && c->direct[input];
}

static bool meet(jit_extent a, jit_extent b) {
    return a.low < b.high && b.low < a.high;
}

dlc_status jit_check_overlap(const jit_boundary *c, int output, lib_error *error) {
    const dlc_program *program = c->program;
    const jit_extent *outputs = c->extents + c->input_count;
    for (int i = 0; i < c->input_count; i++)
        if (meet(outputs[output], c->extents[i]) && !is_donated(c, output, i))
            return lib_fail(error, DLC_INVALID_ARGUMENT,
                            "%s: output %s overlaps input %s; dlc_program_alias donates an input to an output",
                            c->caller, program->outputs[output].name, program->inputs[i].name);
    for (int o = 0; o < output; o++)
        if (c->outputs[o].tensor && meet(outputs[output], outputs[o]))
            return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: outputs %s and %s overlap", c->caller,
                            program->outputs[output].name, program->outputs[o].name);
    return DLC_OK;
}

dlc_status jit_check_output(jit_boundary *c, int o, const int64_t *shape, lib_error *error) {
    const jit_argument *wanted = &c->program->outputs[o];
    const DLTensor *tensor = c->outputs[o].tensor;
    int slot = c->input_count + o;
    LIB_TRY(jit_check_tensor(c, slot, tensor, error));
    for (int d = 0; d < wanted->rank; d++)
        if (tensor->shape[d] != shape[d])
            return refuse(c, slot, error, ": dimension %d is %lld, expected %lld", d, (long long)tensor->shape[d],
                          (long long)shape[d]);
    if (!c->direct[slot] && tensor->strides &&
        lib_strides_overlap(tensor)) /* the contents would depend on the order of writes */
        return refuse(c, slot, error, " has strides under which elements overlap");
    return jit_check_overlap(c, o, error);
}

/* Allocates an output: on the device if any input is there. */
static dlc_status make_output(jit_boundary *c, int o, const int64_t *shape, lib_error *error) {
    dlc_context *context = c->program->context;
    const jit_argument *wanted = &c->program->outputs[o];
    dlc_output_slot *slot = &c->outputs[o];
    bool on_device = false;
    for (int i = 0; i < c->input_count; i++) on_device = on_device || jit_is_on_device(context, c->inputs[i]);
    if (on_device)
        return jit_device_tensor(context, wanted->name, wanted->shape->dtype, wanted->rank, shape, &slot->managed,
                                 error);
    slot->managed = jit_result_new(context, wanted->shape->dtype, wanted->rank, shape);
    return slot->managed ? DLC_OK
                         : lib_fail(error, DLC_OUT_OF_MEMORY, "%s: out of memory: output %s", c->caller, wanted->name);
}

static const DLTensor *output_tensor(const jit_boundary *c, int o) {
    return c->outputs[o].tensor ? c->outputs[o].tensor : &c->outputs[o].managed->dl_tensor;
}

/* Can kernels write the output's own memory, without a copy? The output has passed the checks. */
static bool is_usable(const jit_boundary *c, int o, const jit_donation *donation) {
    const DLTensor *tensor = output_tensor(c, o);
    if (donation->axis >= 0)
        return (uintptr_t)lib_tensor_data(tensor) % (tensor->dtype.bits / 8u) == 0 &&
               jit_fits_room(tensor, donation->axis, donation->room);
    return !c->outputs[o].tensor || (c->direct[c->input_count + o] && (!jit_is_shared(c, o) || donation->may));
}

static dlc_status check_outputs(jit_boundary *c, const jit_plan *plan, lib_error *error) {
    for (int o = 0; o < c->output_count; o++) {
        const int64_t *shape = &plan->output_shapes[o * DLC_MAX_RANK];
        if (c->outputs[o].tensor) LIB_TRY(jit_check_output(c, o, shape, error));
    }
    for (int o = 0; o < c->output_count; o++) {
        if (!c->outputs[o].tensor) LIB_TRY(make_output(c, o, &plan->output_shapes[o * DLC_MAX_RANK], error));
        const DLTensor *tensor = output_tensor(c, o);
        c->output_data[o] = lib_tensor_data(tensor);
        if (is_usable(c, o, &plan->donations[o])) continue;
        if (jit_is_on_device(c->program->context, tensor)) continue; /* device_call.c */
        LIB_TRY(stage(c, c->input_count + o, tensor, &plan->donations[o], error));
        c->output_data[o] = c->staged[c->input_count + o]->dl_tensor.data;
    }
    return DLC_OK;
}

/* Makes the input donated with room to output o readable as a part of a whole buffer: copies it to the output's buffer unless it is there;
 * if the plan does not update in place, to a buffer of its own. */
static dlc_status fill_room(jit_boundary *c, int o, const jit_donation *donation, lib_error *error) {
    const int i = c->program->alias[o];
    const DLTensor *input = c->inputs[i];
    int64_t strides[DLC_MAX_RANK];
    char *buffer = c->output_data[o], *first = c->input_data[i];
    c->input_data[i] = buffer;
    if (donation->must && first == buffer && jit_fits_room(input, donation->axis, donation->room)) return DLC_OK;
    if (!donation->must) {
        LIB_TRY(stage(c, i, input, donation, error));
        c->input_data[i] = c->staged[i]->dl_tensor.data;
    }
    const DLTensor part = jit_view_in_room(input, donation, c->input_data[i], strides);
    lib_tensor_copy(&part, input);
    count_copy(c, lib_tensor_bytes(input));
    return DLC_OK;
}

/* Copies each donated input that the plan updates in place to the output's buffer, unless it is there. */
static dlc_status fill_donated(jit_boundary *c, const jit_plan *plan, lib_error *error) {
    for (int o = 0; o < c->output_count; o++) {
        const jit_donation *donation = &plan->donations[o];
        int input = c->program->alias[o];
        if (donation->axis >= 0) LIB_TRY(fill_room(c, o, donation, error));
        if (!donation->must || c->output_data[o] == c->input_data[input]) continue;
        if (donation->bytes) memcpy(c->output_data[o], c->input_data[input], donation->bytes);
        count_copy(c, donation->bytes);
        c->input_data[input] = c->output_data[o];
    }
    return DLC_OK;
}

/* ---- run */

static void finish(jit_boundary *c, dlc_status status) {
    for (int o = 0; o < c->output_count; o++) {
        DLManagedTensorVersioned *copy = c->staged ? c->staged[c->input_count + o] : NULL;
        if (copy && status == DLC_OK) {
            lib_tensor_copy(output_tensor(c, o), &copy->dl_tensor);
            count_copy(c, lib_tensor_bytes(output_tensor(c, o)));
        }
        if (status == DLC_OK || c->outputs[o].tensor || !c->outputs[o].managed) continue;
        c->outputs[o].managed->deleter(c->outputs[o].managed);
        c->outputs[o].managed = NULL;
    }
    if (!c->staged) return;
    int total = c->input_count + c->output_count;
    for (int i = 0; i < total; i++)
        if (c->staged[i]) c->staged[i]->deleter(c->staged[i]);
    lib_release(&c->program->context->allocator, c->staged, (size_t)total * sizeof *c->staged, 16);
}

/* Finds or builds the plan; time that this takes is not part of the run's budget. */
static dlc_status enter_plan(jit_boundary *c, jit_how *how, jit_plan **plan, unsigned *side, lib_error *error) {
    const dlc_context *context = c->program->context;
    const uint64_t from = how->deadline_ns ? context->clock_ns(context->clock_user) : 0;
    LIB_TRY(jit_plans_enter(c->program, c->shapes, c->shape_count, JIT_TO_RUN, plan, side, error));
    if (!how->deadline_ns) return DLC_OK;
    const uint64_t taken = context->clock_ns(context->clock_user) - from;
    if (__builtin_add_overflow(how->deadline_ns, taken, &how->deadline_ns)) how->deadline_ns = UINT64_MAX;
    return DLC_OK;
}

static __attribute__((noinline, cold)) dlc_status run_call(jit_boundary *c, jit_how *how, lib_error *error) {
    dlc_program *program = c->program;
    unsigned side;
    jit_plan *plan;
    LIB_TRY(jit_check_inputs(c, error));
    LIB_TRY(enter_plan(c, how, &plan, &side, error));
    const bool plain = jit_is_plain(how);
    dlc_status status = check_outputs(c, plan, error);
    if (status == DLC_OK) status = stage_inputs(c, error);
    if (status == DLC_OK && program->context->target->runtime) {
        status = jit_device_run(c, plan, how, error);
    } else if (status == DLC_OK) {
        for (int o = 0; o < c->output_count && !plain; o++)
            if (!c->outputs[o].tensor)
                jit_touch(c->output_data[o], 0, lib_tensor_bytes(&c->outputs[o].managed->dl_tensor), how);
        status = fill_donated(c, plan, error);
        if (status == DLC_OK)
            status = jit_plan_run(program, plan, c->input_data, c->output_data, plain ? NULL : how, error);
    }
    const bool recurs = status == DLC_OK && jit_plans_recur(program, plan, !how->deadline_ns);
    jit_plans_leave(program, side);
    finish(c, status);
    if (recurs) jit_plans_promote(program, c->shapes, c->shape_count);
    return status;
}

/* ---- the fast path: host tensors of the declared types, compact and aligned, nothing donated, a plan for the shapes exists. Two
 * short passes make the same checks as the functions above; any exception falls back to these, which report errors. */

/* Is the tensor in host memory, with the declared type and rank? */
static bool is_usual(const DLTensor *tensor, const jit_argument *wanted) {
    _Static_assert(offsetof(DLTensor, dtype) == offsetof(DLTensor, ndim) + 4 &&
                       offsetof(jit_argument, dtype) == offsetof(jit_argument, rank) + 4,
                   "rank and dtype are compared as one word");
    return tensor && memcmp(&tensor->ndim, &wanted->rank, 8) == 0 && tensor->device.device_type == kDLCPU &&
           (tensor->shape || !wanted->rank);
}

/* Is the tensor compact and aligned, with data? */
static bool lies_as_usual(const DLTensor *tensor, const jit_known *known) {
    bool compact = true;
    for (int d = 0; tensor->strides && d < tensor->ndim; d++)
        compact &= tensor->strides[d] == known->strides[d] || tensor->shape[d] == 1;
    return compact && tensor->data && !((uintptr_t)lib_tensor_data(tensor) & known->misaligned);
}

static bool outputs_are_usual(const jit_boundary *c, const jit_plan *plan) {
    const jit_known *known = plan->known;
    bool usual = true;
    for (int i = 0; i < c->input_count; i++) usual &= lies_as_usual(c->inputs[i], &known[i]);
    for (int o = 0; o < c->output_count && usual; o++) {
        const DLTensor *tensor = c->outputs[o].tensor;
        const jit_known *own = &known[c->input_count + o];
        usual = is_usual(tensor, &c->program->outputs[o]) && lies_as_usual(tensor, own);
        for (int d = 0; usual && d < tensor->ndim; d++) usual = tensor->shape[d] == own->shape[d];
        if (!usual) break;
        char *low = c->output_data[o] = lib_tensor_data(tensor), *high = low + own->bytes;
        for (int i = 0; i < c->input_count + o; i++) /* outputs follow the inputs */
            usual &= high <= c->input_data[i] || c->input_data[i] + known[i].bytes <= low;
    }
    return usual;
}

/* True: the run is done, with *status. The caller has checked the numbers of tensors. */
static bool run_quickly(jit_boundary *c, jit_how *how, dlc_status *status, lib_error *error) {
    dlc_program *program = c->program;
    const int inputs = c->input_count;
    int count = 0;
    if (program->growth_count) return false;
    for (int i = 0; i < inputs; i++) {
        const DLTensor *tensor = c->inputs[i];
        if (!is_usual(tensor, &program->inputs[i])) return false;
        for (int d = 0; d < tensor->ndim; d++) c->shapes[count++] = tensor->shape[d];
        c->input_data[i] = lib_tensor_data(tensor);
    }
    unsigned side;
    jit_plan *plan = jit_plans_find(program, c->shapes, count, &side);
    if (!plan) return false;
    bool usual = plan->known && outputs_are_usual(c, plan);
    if (usual) {
        for (int o = 0; o < c->output_count; o++) c->outputs[o].managed = NULL;
        *status = jit_plan_run(program, plan, c->input_data, c->output_data, how, error);
    } else {
        jit_plans_no_run(program);
    }
    const bool recurs = usual && *status == DLC_OK && jit_plans_recur(program, plan, !how || !how->deadline_ns);
    jit_plans_leave(program, side);
    if (recurs) jit_plans_promote(program, c->shapes, count);
    return usual;
}

dlc_status jit_run(dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                   dlc_output_slot *outputs, int output_count, lib_error *error) {
    char *data[FAST_TENSORS];
    jit_extent extents[FAST_TENSORS];
    bool direct[FAST_TENSORS];
    int64_t shapes[FAST_DIMENSIONS];
    jit_boundary c = {.caller = how->caller,
                      .program = program,
                      .inputs = inputs,
                      .outputs = outputs,
                      .input_count = input_count,
                      .output_count = output_count};
    LIB_TRY(jit_event_new(program, how, &c.event, error));
    size_t tensors = (size_t)(program->ordinary_inputs + program->output_count), dimensions = program->dimensions;
    bool fast = tensors <= FAST_TENSORS && dimensions <= FAST_DIMENSIONS;
    size_t heap = tensors * (sizeof(char *) + sizeof(jit_extent) + sizeof(bool)) + dimensions * sizeof(int64_t);
    char **many = fast ? data : lib_allocate(&program->context->allocator, heap, 16);
    dlc_status status = DLC_OK;
    if (many) {
        c.input_data = many;
        c.output_data = many + program->ordinary_inputs;
        c.extents = fast ? extents : (jit_extent *)(void *)(many + tensors);
        c.shapes = fast ? shapes : (int64_t *)(void *)((jit_extent *)(void *)(many + tensors) + tensors);
        c.direct = fast ? direct : (bool *)(c.shapes + dimensions);
        bool complete =
            input_count == program->ordinary_inputs && output_count == program->output_count && inputs && outputs;
        if (!complete || !run_quickly(&c, jit_is_plain(how) ? NULL : how, &status, error)) {
            c.shape_count = 0;
            status = run_call(&c, how, error);
        }
        if (!fast) lib_release(&program->context->allocator, many, heap, 16);
    } else {
        status = lib_fail(error, DLC_OUT_OF_MEMORY, "%s: out of memory: the list of tensors", how->caller);
    }
    jit_event_give(c.event, how, status);
    return status;
}

dlc_status jit_run_program(dlc_program *program, jit_how *how, const DLTensor *const *inputs, int input_count,
                           dlc_output_slot *outputs, int output_count, lib_error *error) {
    return program->segment_count ? jit_segments_run(program, how, inputs, input_count, outputs, output_count, error)
                                  : jit_run(program, how, inputs, input_count, outputs, output_count, error);
}

dlc_status jit_stack_is_small(const dlc_context *context, lib_error *error) {
    return lib_fail(error, DLC_OUT_OF_MEMORY, "a run takes %d KiB of stack, less is left (%zu KiB on coroutines)",
                    LIB_STACK_CALL >> 10, context->unknown_stack >> 10);
}

dlc_status jit_check_run_options(const dlc_context *context, const char *caller, const dlc_run_options *options,
                                 lib_error *error) {
    if (!options || (!options->stop_at && !options->budget_ms)) return DLC_OK;
    if (options->stop_at & ~(unsigned)(DLC_STOP_AT_NAN | DLC_STOP_AT_INFINITY))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: options.stop_at is %u, expected bits of dlc_stop_at", caller,
                        options->stop_at);
    if (options->budget_ms < 0)
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: options.budget_ms is %lld, expected 0 or more", caller,
                        (long long)options->budget_ms);
    if (context->target->runtime)
        return lib_fail(error, DLC_UNSUPPORTED, "%s: options.%s: kernels of target %s do not run in host memory",
                        caller, options->stop_at ? "stop_at" : "budget_ms", context->target->name);
    return DLC_OK;
}

dlc_status dlc_run(dlc_program *program, const dlc_run_options *options, const DLTensor *const *inputs, int input_count,
                   dlc_output_slot *outputs, int output_count) {
    lib_error error;
    jit_not_begun(options);
    if (!program || (options && options->struct_size != sizeof *options)) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_run: %s",
                 program ? "options.struct_size is wrong (use DLC_RUN_OPTIONS_INIT)" : "the program is NULL");
        return jit_fail(program ? program->context : NULL, &error);
    }
    dlc_status status = jit_check_stack(program->context, &error);
    if (status == DLC_OK) status = jit_check_run_options(program->context, "dlc_run", options, &error);
    jit_how how = jit_how_of(program->context, "dlc_run", options);
    if (status == DLC_OK && program->tap) status = jit_tap_run(program, &how, inputs, input_count, &error);
    if (status == DLC_OK) status = jit_run_program(program, &how, inputs, input_count, outputs, output_count, &error);
    return status == DLC_OK ? DLC_OK : jit_fail(program->context, &error);
}

/* ---- shapes without tensors */

dlc_status jit_gather_shapes(const dlc_program *program, const char *caller, const int64_t *const *shapes,
                             const int *ranks, int input_count, int64_t *out, int *count, lib_error *error) {
    *count = 0;
    if (input_count != program->ordinary_inputs || (input_count && (!shapes || !ranks)))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: %d input shapes were given, the program takes %d inputs",
                        caller, shapes && ranks ? input_count : 0, program->ordinary_inputs);
    for (int i = 0; i < input_count; i++) {
        const jit_argument *wanted = &program->inputs[i];
        if (ranks[i] != wanted->rank)
            return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: input %s has rank %d, expected %d", caller, wanted->name,
                            ranks[i], wanted->rank);
        for (int d = 0; d < ranks[i]; d++) {
            if (!shapes[i] || shapes[i][d] < 0)
                return lib_fail(error, DLC_INVALID_ARGUMENT, "%s: input %s: dimension %d is missing or negative",
                                caller, wanted->name, d);
            out[(*count)++] = shapes[i][d];
        }
    }
    for (int r = 0; r < program->room_count; r++) out[(*count)++] = 0;
    return DLC_OK;
}

dlc_status dlc_prepare(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count) {
    lib_error error;
    if (!program) {
        lib_fail(&error, DLC_INVALID_ARGUMENT, "dlc_prepare: the program is NULL");
        return jit_fail(NULL, &error);
    }
    const dlc_allocator *allocator = &program->context->allocator;
    size_t bytes = (program->dimensions + 1) * sizeof(int64_t);
    int64_t *all = lib_allocate(allocator, bytes, 16);
    int count;
    unsigned side;
    jit_plan *plan;
    dlc_status status = all ? jit_gather_shapes(program, "dlc_prepare", shapes, ranks, input_count, all, &count, &error)
                            : lib_fail(&error, DLC_OUT_OF_MEMORY, "dlc_prepare: out of memory: a list of sizes");
    dlc_program *bound = program; /* later segments are bound when their sizes are known */
    int64_t *sizes = all;
    if (status == DLC_OK && program->segment_count) {
        bound = program->segments->program;
        status = jit_segments_first(program, all, &sizes, &count, &error);
    }
    if (status == DLC_OK) status = jit_plans_enter(bound, sizes, count, JIT_TO_BIND, &plan, &side, &error);
    if (status == DLC_OK) jit_plans_leave(bound, side);
    if (sizes != all) lib_release(allocator, sizes, (bound->dimensions + 1) * sizeof *sizes, 16);
    lib_release(allocator, all, bytes, 16);
    return status == DLC_OK ? DLC_OK : jit_fail(program->context, &error);
}

/* An evaluator of the program's dimensions, with the symbols' values for these shapes. Raises. */
static tir_evaluator evaluator_for(lib_arena *work, const dlc_program *program, const int64_t *const *shapes,
                                   const int *ranks, int input_count) {
    const graph *g = program->graph;
    lib_error error;
    int count;
    int64_t *all = LIB_NEW_ARRAY(work, int64_t, program->dimensions + 1);
    int64_t *values = LIB_NEW_ARRAY(work, int64_t, g->symbols.count + 1);
    if (jit_gather_shapes(program, "dlc_output_shape", shapes, ranks, input_count, all, &count, &error) != DLC_OK)
        lib_raise_error(work->scope, &error);
    jit_bind_symbols(work, g, program->ordinary_inputs, all, values);
    const tir_evaluator evaluator = {.variables = jit_variables(work, g, values)};
    for (uint32_t c = 0; c < g->constraints.count; c++) {
        const graph_constraint *constraint = &g->constraints.data[c];
        if (graph_depends_on_data(g, constraint->left) || graph_depends_on_data(g, constraint->right)) continue;
        if (tir_evaluate(g->pool, constraint->left, &evaluator) != tir_evaluate(g->pool, constraint->right, &evaluator))
            lib_raise(work->scope, DLC_INVALID_ARGUMENT, "%s", constraint->message);
    }
    return evaluator;
}

/* Evaluates the output's dimensions. Raises. */
static void evaluate_shape(lib_arena *work, const dlc_program *program, const tir_evaluator *evaluator, int output,
                           int room, int64_t *shape, int *rank) {
    const graph *g = program->graph;
    const graph_shape *wanted = program->outputs[output].shape;
    *rank = wanted->rank;
    if (room == 0) return;
    for (int d = 0; d < wanted->rank; d++)
        if (graph_depends_on_data(g, wanted->dim[d]))
            lib_raise(work->scope, DLC_UNSUPPORTED,
                      "dlc_output_shape: dimension %d of output %s depends on data: a run gives it", d,
                      program->outputs[output].name);
    if (room < wanted->rank)
        lib_raise(work->scope, DLC_INVALID_ARGUMENT,
                  "dlc_output_shape: output %s has %d dimensions, room for %d was given", program->outputs[output].name,
                  wanted->rank, room);
    for (int d = 0; d < wanted->rank; d++) shape[d] = (int64_t)tir_evaluate(g->pool, wanted->dim[d], evaluator);
}

dlc_status dlc_output_shape(dlc_program *program, const int64_t *const *shapes, const int *ranks, int input_count,
                            int output, int room, int64_t *shape, int *rank) {
    lib_scope scope;
    if (!program || !rank || room < 0 || (room && !shape) || output < 0 || output >= program->output_count) {
        lib_fail(&scope.error, DLC_INVALID_ARGUMENT,
                 "dlc_output_shape: program, rank or shape is NULL, room is negative, or output %d does not exist",
                 output);
        return jit_fail(program ? program->context : NULL, &scope.error);
    }
    GRAPH_CALL(program->context, LIB_STACK_CALL);
    lib_arena work;
    lib_arena_init(&work, &program->context->allocator, &scope);
    if (LIB_ENTER(&scope)) {
        const tir_evaluator evaluator = evaluator_for(&work, program, shapes, ranks, input_count);
        evaluate_shape(&work, program, &evaluator, output, room, shape, rank);
    }
    lib_arena_free(&work);
    return scope.error.status == DLC_OK ? DLC_OK : jit_fail(program->context, &scope.error);
}

dlc_status jit_output_shapes(dlc_program *program, const DLTensor *const *inputs, int input_count, int count,
                             const int *outputs, int64_t (*shapes)[DLC_MAX_RANK]) {
    lib_scope scope;
    lib_arena work;
    GRAPH_CALL(program->context, LIB_STACK_CALL);
    lib_arena_init(&work, &program->context->allocator, &scope);
    if (LIB_ENTER(&scope)) {
        const int64_t **given = LIB_NEW_ARRAY(&work, const int64_t *, (size_t)input_count + 1);
        int *ranks = LIB_NEW_ARRAY(&work, int, (size_t)input_count + 1);
        for (int i = 0; i < input_count; i++) given[i] = inputs[i]->shape, ranks[i] = inputs[i]->ndim;
        const tir_evaluator evaluator = evaluator_for(&work, program, given, ranks, input_count);
        for (int o = 0, rank; o < count; o++)
            evaluate_shape(&work, program, &evaluator, outputs[o], DLC_MAX_RANK, shapes[o], &rank);
    }
    lib_arena_free(&work);
    return scope.error.status == DLC_OK ? DLC_OK : jit_fail(program->context, &scope.error);
}
