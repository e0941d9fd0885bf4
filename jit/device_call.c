/* The boundary of runs on targets with device memory: tensors in host memory are copied to the device and back, tensors on the
 * device are used in place. A run is synchronous, or leaves an event (event.c). */
#include "jit/device.h"

typedef struct device_tensor {
    DLManagedTensorVersioned managed;
    dlc_context *context;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
} device_tensor;

static void delete_tensor(DLManagedTensorVersioned *self) {
    device_tensor *tensor = self->manager_ctx;
    dlc_context *context = tensor->context;
    const jit_resident memory = {.device = self->dl_tensor.data};
    if (memory.device) {
        jit_device_settle(context); /* earlier users may have work in progress on it, on any stream */
        jit_device_release(context, &memory);
    }
    lib_release(&context->allocator, tensor, sizeof *tensor, _Alignof(device_tensor));
    jit_context_release(context);
}

static dlc_status allocate_alone(dlc_context *context, size_t size, void **memory, lib_error *error) {
    jit_session s;
    *memory = NULL;
    if (!size) return DLC_OK;
    LIB_TRY(jit_session_begin(&s, context, NULL, error));
    dlc_status status = s.runtime->allocate(s.stream, size, memory, error);
    if (status == DLC_OK) { /* so that other streams may use it from now on */
        status = s.runtime->synchronise(s.stream, error);
        if (status != DLC_OK) s.runtime->release(s.stream, *memory);
    }
    jit_session_end(&s, status != DLC_OK);
    return status;
}

dlc_status jit_device_tensor(dlc_context *context, const char *name, dlc_dtype dtype, int rank, const int64_t *shape,
                             DLManagedTensorVersioned **result, lib_error *error) {
    device_tensor *tensor = lib_allocate_zeroed(&context->allocator, sizeof *tensor, _Alignof(device_tensor));
    if (!tensor) return lib_fail(error, DLC_OUT_OF_MEMORY, "out of memory: tensor %s", name);
    tensor->context = context;
    if (rank) memcpy(tensor->shape, shape, (size_t)rank * sizeof *shape);
    lib_strides_compact(rank, shape, tensor->strides);
    tensor->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = tensor,
        .deleter = delete_tensor,
        .dl_tensor = {.device = {(DLDeviceType)context->target->runtime->device_type, context->ordinal},
                      .ndim = rank,
                      .dtype = lib_dtype_to_dlpack(dtype),
                      .shape = tensor->shape,
                      .strides = tensor->strides}};
    dlc_status status =
        allocate_alone(context, lib_tensor_bytes(&tensor->managed.dl_tensor), &tensor->managed.dl_tensor.data, error);
    if (status == DLC_OK) {
        jit_context_keep(context);
        *result = &tensor->managed;
    } else {
        lib_release(&context->allocator, tensor, sizeof *tensor, _Alignof(device_tensor));
    }
    return status;
}

dlc_status jit_device_transfer(dlc_context *context, const DLTensor *to, const DLTensor *from, lib_error *error) {
    const size_t bytes = lib_tensor_bytes(from);
    const target_copy kind = jit_is_on_device(context, to) ? TARGET_COPY_TO_DEVICE : TARGET_COPY_TO_HOST;
    jit_session s;
    if (!bytes) return DLC_OK;
    LIB_TRY(jit_session_begin(&s, context, NULL, error));
    const jit_device_running run = {.session = &s, .error = error};
    dlc_status status = jit_device_copy(&run, kind, lib_tensor_data(to), lib_tensor_data(from), bytes);
    if (status == DLC_OK) status = s.runtime->synchronise(s.stream, error);
    jit_session_end(&s, status != DLC_OK);
    return status;
}

typedef struct boundary_run {
    jit_device_running run;
    jit_boundary *c;
    const jit_how *how;
    const jit_plan *plan;
    /* [inputs + outputs] device memory owned by this run; NULL: none */
    void **owned;
    /* [inputs + outputs] addresses on the device */
    char **pointer;
} boundary_run;

static dlc_status own(const boundary_run *b, int slot, size_t size) {
    const jit_session *s = b->run.session;
    if (size) LIB_TRY(s->runtime->allocate(s->stream, size, &b->owned[slot], b->run.error));
    b->pointer[slot] = b->owned[slot];
    return DLC_OK;
}

/* The run's compact copy, on the device, of a tensor that kernels cannot use. */
static DLTensor compact_there(const boundary_run *b, int slot, const DLTensor *tensor) {
    DLTensor compact = *tensor;
    compact.data = b->pointer[slot];
    compact.byte_offset = 0;
    compact.strides = NULL;
    return compact;
}

static dlc_status bring_input(const boundary_run *b, int i) {
    const jit_boundary *c = b->c;
    const DLTensor *tensor = c->inputs[i];
    bool there = jit_is_on_device(c->program->context, tensor);
    size_t bytes = lib_tensor_bytes(tensor);
    b->pointer[i] = c->input_data[i];
    if (there && c->direct[i]) return DLC_OK;
    LIB_TRY(own(b, i, bytes));
    if (!there) return jit_device_copy(&b->run, TARGET_COPY_TO_DEVICE, b->pointer[i], c->input_data[i], bytes);
    const DLTensor compact = compact_there(b, i, tensor);
    return bytes ? jit_device_move(&b->run, &compact, tensor) : DLC_OK;
}

static const DLTensor *output_tensor(const jit_boundary *c, int o) {
    return c->outputs[o].tensor ? c->outputs[o].tensor : &c->outputs[o].managed->dl_tensor;
}

/* May kernels write the output's own memory? It must be on the device, usable without a copy, and no input's buffer (unless the plan
 * allows that). */
static bool is_written_there(const boundary_run *b, int o) {
    const jit_boundary *c = b->c;
    if (!jit_is_on_device(c->program->context, output_tensor(c, o))) return false;
    return !c->outputs[o].tensor || /* allocated by the library */
           (c->direct[c->input_count + o] && (!jit_is_shared(c, o) || b->plan->donations[o].may));
}

static dlc_status bring_output(const boundary_run *b, int o) {
    const DLTensor *tensor = output_tensor(b->c, o);
    int slot = b->c->input_count + o, input = b->c->program->alias[o];
    b->pointer[slot] = b->c->output_data[o];
    if (is_written_there(b, o)) return DLC_OK;
    if (input >= 0 && b->plan->donations[o].must && b->owned[input]) { /* a copy, which may be overwritten */
        b->pointer[slot] = b->pointer[input];
        return DLC_OK;
    }
    return own(b, slot, lib_tensor_bytes(tensor));
}

/* If the plan updates a donated input in place, copies the input to the output's buffer. */
static dlc_status donate(const boundary_run *b, int o) {
    int input = b->c->program->alias[o], slot = b->c->input_count + o;
    const jit_donation *donation = &b->plan->donations[o];
    if (input < 0 || !donation->must || b->pointer[slot] == b->pointer[input]) return DLC_OK;
    LIB_TRY(jit_device_copy(&b->run, TARGET_COPY_ON_DEVICE, b->pointer[slot], b->pointer[input], donation->bytes));
    atomic_fetch_add_explicit(&b->run.session->context->copied_bytes, donation->bytes, memory_order_relaxed);
    b->pointer[input] = b->pointer[slot];
    return DLC_OK;
}

static dlc_status return_output(const boundary_run *b, int o) {
    const DLTensor *tensor = output_tensor(b->c, o);
    int slot = b->c->input_count + o;
    if (is_written_there(b, o)) return DLC_OK;
    const DLTensor compact = compact_there(b, slot, tensor);
    if (jit_is_on_device(b->c->program->context, tensor))
        return lib_tensor_bytes(tensor) ? jit_device_move(&b->run, tensor, &compact) : DLC_OK;
    return jit_device_copy(&b->run, TARGET_COPY_TO_HOST, b->c->output_data[o], b->pointer[slot],
                           lib_tensor_bytes(tensor));
}

static dlc_status run_boundary(const boundary_run *b, jit_plan *plan) {
    const jit_boundary *c = b->c;
    const jit_session *s = b->run.session;
    for (int i = 0; i < c->input_count; i++) LIB_TRY(bring_input(b, i));
    for (int o = 0; o < c->output_count; o++) LIB_TRY(bring_output(b, o));
    if (lib_is_raised(b->how->cancel)) return lib_fail(b->run.error, DLC_CANCELLED, "the run was cancelled");
    if (b->how->begun) *b->how->begun = true; /* from here on outputs may be written */
    for (int o = 0; o < c->output_count; o++) LIB_TRY(donate(b, o));
    LIB_TRY(jit_device_run_plan(&b->run, plan, b->pointer, b->pointer + c->input_count));
    for (int o = 0; o < c->output_count; o++) LIB_TRY(return_output(b, o));
    return c->event ? s->runtime->mark(s->stream, b->run.error) : s->runtime->synchronise(s->stream, b->run.error);
}

/* The host's stream. NULL: none given, for which DLPack has -1. */
static void *given_stream(const jit_how *how) {
    return how->stream != (void *)(intptr_t)-1 ? how->stream : NULL;
}

dlc_status jit_device_run(jit_boundary *c, jit_plan *plan, const jit_how *how, lib_error *error) {
    dlc_context *context = c->program->context;
    int count = c->input_count + c->output_count;
    size_t bytes = ((size_t)count + 1) * 2 * sizeof(void *);
    jit_session s;
    void **lists = lib_allocate_zeroed(&context->allocator, bytes, 16);
    if (!lists) return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: out of memory: the list of tensors", c->caller);
    dlc_status status = c->event ? jit_event_prepare(c->event, c, error) : DLC_OK;
    if (status == DLC_OK) status = jit_session_begin(&s, context, given_stream(how), error);
    if (status == DLC_OK) {
        const boundary_run b = {.run = {.session = &s, .program = c->program, .cancel = how->cancel, .error = error},
                                .c = c,
                                .how = how,
                                .plan = plan,
                                .owned = lists,
                                .pointer = (char **)(void *)(lists + count + 1)};
        status = run_boundary(&b, plan);
        for (int t = 0; t < count; t++) s.runtime->release(s.stream, b.owned[t]);
        if (status == DLC_OK && c->event)
            jit_event_start(c->event, plan, &s);
        else
            jit_session_end(&s, status != DLC_OK);
    }
    lib_release(&context->allocator, lists, bytes, 16);
    return status;
}
