/* Runs that return before they are done. The event owns what completing such a run needs: the stream with outstanding copies to
 * the host, the plan, whose kernels and constants are in use, and the compact copies of tensors. */
#include "jit/device.h"

/* a copy of the host's DLTensor, which may be freed before the run completes */
typedef struct output_view {
    DLTensor tensor;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
} output_view;

struct dlc_event {
    dlc_program *program;
    /* retained; NULL: no work is in progress */
    jit_plan *plan;
    jit_session session;
    /* of `staged`: number of inputs, number of inputs and outputs */
    int inputs, tensors;
    /* taken over from the boundary; NULL: none */
    DLManagedTensorVersioned **staged;
    /* [outputs] views of the staged outputs; NULL: none */
    output_view *views;
    /* result of the run */
    lib_error error;
};

dlc_status jit_event_new(dlc_program *program, const jit_how *how, dlc_event **event, lib_error *error) {
    *event = NULL;
    if (!how->event) return DLC_OK;
    *event = lib_allocate_zeroed(&program->context->allocator, sizeof **event, _Alignof(dlc_event));
    if (!*event) return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: out of memory: an event", how->caller);
    (*event)->program = program;
    jit_program_keep(program);
    return DLC_OK;
}

static size_t views_bytes(const dlc_event *event) {
    return (size_t)(event->tensors - event->inputs) * sizeof *event->views;
}

static void drop_copies(dlc_event *event) {
    const dlc_allocator *allocator = &event->program->context->allocator;
    if (!event->staged) return;
    for (int t = 0; t < event->tensors; t++)
        if (event->staged[t]) event->staged[t]->deleter(event->staged[t]);
    lib_release(allocator, event->staged, (size_t)event->tensors * sizeof *event->staged, 16);
    if (event->views) lib_release(allocator, event->views, views_bytes(event), 16);
    event->staged = NULL;
    event->views = NULL;
}

/* ---- creation by a run */

static void copy_view(output_view *view, const DLTensor *tensor) {
    view->tensor = *tensor;
    if (!tensor->ndim) return;
    size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
    view->tensor.shape = memcpy(view->shape, tensor->shape, bytes);
    if (tensor->strides) view->tensor.strides = memcpy(view->strides, tensor->strides, bytes);
}

dlc_status jit_event_prepare(dlc_event *event, jit_boundary *c, lib_error *error) {
    if (!c->staged) return DLC_OK;
    event->inputs = c->input_count;
    event->tensors = c->input_count + c->output_count;
    if (c->output_count) {
        event->views = lib_allocate_zeroed(&event->program->context->allocator, views_bytes(event), 16);
        if (!event->views) return lib_fail(error, DLC_OUT_OF_MEMORY, "%s: out of memory: an event", c->caller);
    }
    for (int o = 0; o < c->output_count; o++)
        if (c->staged[c->input_count + o]) copy_view(&event->views[o], c->outputs[o].tensor);
    event->staged = c->staged;
    c->staged = NULL;
    return DLC_OK;
}

void jit_event_start(dlc_event *event, jit_plan *plan, jit_session *session) {
    jit_plans_hold(event->program, plan);
    event->plan = plan;
    jit_session_leave(session);
    event->session = *session;
}

/* ---- completion */

static void copy_back(dlc_event *event) {
    for (int t = event->inputs; event->staged && t < event->tensors; t++) {
        const DLManagedTensorVersioned *copy = event->staged[t];
        if (!copy) continue;
        lib_tensor_copy(&event->views[t - event->inputs].tensor, &copy->dl_tensor);
        atomic_fetch_add_explicit(&event->program->context->copied_bytes, lib_tensor_bytes(&copy->dl_tensor),
                                  memory_order_relaxed);
    }
}

static void let_go(dlc_event *event) {
    drop_copies(event);
    jit_plans_let_go(event->program, event->plan);
    event->plan = NULL;
}

/* Waits for the stream and collects its result. Makes the device current meanwhile. */
static void finish(dlc_event *event) {
    jit_session *s = &event->session;
    dlc_status status = s->runtime->synchronise(s->stream, &event->error);
    event->error.status = status;
    jit_session_end(s, status != DLC_OK);
    if (status == DLC_OK) copy_back(event);
    let_go(event);
}

static dlc_status outcome(const dlc_event *event) {
    return event->error.status == DLC_OK ? DLC_OK : jit_fail(event->program->context, &event->error);
}

static dlc_status refuse(const dlc_event *event, const char *caller) {
    lib_error error;
    lib_fail(&error, DLC_INVALID_ARGUMENT, "%s: the event or the place for its answer is NULL", caller);
    return jit_fail(event ? event->program->context : NULL, &error);
}

dlc_status dlc_event_wait(dlc_event *event) {
    lib_error error;
    if (!event) return refuse(event, "dlc_event_wait");
    if (event->plan) {
        if (jit_session_enter(&event->session, &error) != DLC_OK) return jit_fail(event->program->context, &error);
        finish(event);
    }
    return outcome(event);
}

dlc_status dlc_event_query(dlc_event *event, bool *done) {
    lib_error error;
    if (!event || !done) return refuse(event, "dlc_event_query");
    *done = !event->plan;
    if (*done) return outcome(event);
    jit_session *s = &event->session;
    if (jit_session_enter(s, &error) != DLC_OK) return jit_fail(event->program->context, &error);
    if (s->runtime->query(s->stream, done, &error) == DLC_OK && !*done) {
        jit_session_leave(s);
        return DLC_OK;
    }
    *done = true; /* or failed: waiting returns the error */
    finish(event);
    return outcome(event);
}

dlc_status dlc_event_order(dlc_event *event, void *stream) {
    lib_error error;
    if (!event || !stream) return refuse(event, "dlc_event_order");
    jit_session *s = &event->session;
    if (!event->plan) return outcome(event);
    dlc_status status = jit_session_enter(s, &error);
    if (status == DLC_OK) {
        status = s->runtime->order(s->stream, stream, &error);
        jit_session_leave(s);
    }
    return status == DLC_OK ? DLC_OK : jit_fail(event->program->context, &error);
}

static void destroy(dlc_event *event) {
    lib_error ignored;
    if (event->plan) {
        if (jit_session_enter(&event->session, &ignored) == DLC_OK) {
            finish(event);
        } else { /* a forked child has nothing to wait for */
            jit_session_end(&event->session, true);
            let_go(event);
        }
    }
    drop_copies(event);
    dlc_program *program = event->program;
    lib_release(&program->context->allocator, event, sizeof *event, _Alignof(dlc_event));
    jit_program_release(program);
}

void dlc_event_destroy(dlc_event *event) {
    lib_call call;
    if (!event) return;
    dlc_context *context = event->program->context;
    if (!graph_call_to_destroy(context, &call)) return;
    destroy(event);
    graph_call_destroyed(context, &call);
}

void jit_event_give(dlc_event *event, const jit_how *how, dlc_status status) {
    if (event && status == DLC_OK)
        *how->event = event;
    else if (event)
        destroy(event);
}
