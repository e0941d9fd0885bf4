/* Shared by the files that run plans on targets with device memory. */
#ifndef JIT_DEVICE_H
#define JIT_DEVICE_H

#include "jit/internal.h"

/* a thread's use of the device and of one of its streams; after jit_session_leave, only the stream, whose work may still be in progress */
typedef struct jit_session {
    bool entered;
    dlc_context *context;
    const target_runtime *runtime;
    target_stream *stream;
    /* NULL: the stream is closed at the end */
    jit_stream_slot *slot;
} jit_session;

/* Uses the host's stream if it is given, else one of the context's. */
dlc_status jit_session_begin(jit_session *s, dlc_context *context, void *given, lib_error *error);
/* _leave: makes the thread's previous device current again, but keeps the stream; _enter: makes the session's device current. */
void jit_session_leave(jit_session *s);
dlc_status jit_session_enter(jit_session *s, lib_error *error);
/* `failed`: the stream is closed, not reused. */
void jit_session_end(jit_session *s, bool failed);

typedef struct jit_device_running {
    jit_session *session;
    dlc_program *program;
    jit_plan *plan;
    jit_frame *frame;
    /* of the plan, on the device */
    char *const *inputs, *const *outputs;
    const volatile int *cancel;
    lib_error *error;
    /* a batch is open already */
    bool batched;
} jit_device_running;

/* Runs the plan's steps on the session's stream; ignores the plan, frame and pointers of `outer`. */
dlc_status jit_device_run_plan(const jit_device_running *outer, jit_plan *plan, char *const *inputs,
                               char *const *outputs);
/* host.c: a step of kind HOST. */
dlc_status jit_host_run(const jit_device_running *run, const jit_step *step);

/* event.c: _prepare, before the run: the event takes over the boundary's staged tensors; _start, after submission: it takes over the
 * session, and the thread leaves the device. */
dlc_status jit_event_prepare(dlc_event *event, jit_boundary *c, lib_error *error);
void jit_event_start(dlc_event *event, jit_plan *plan, jit_session *session);

/* strided.c: copies between tensors of one shape and dtype on the device, with any strides and alignment. */
const tir_kernel *jit_strided_kernel(lib_arena *arena, int element, int rank, int threads);
dlc_status jit_device_move(const jit_device_running *run, const DLTensor *to, const DLTensor *from);

/* Copies in the stream's order; counted as a transfer unless both sides are on the device. */
dlc_status jit_device_copy(const jit_device_running *run, target_copy kind, void *to, const void *from, size_t size);

#endif
