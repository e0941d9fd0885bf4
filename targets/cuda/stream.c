/* Streams, memory and copies: the runtime of targets/target.h. Small copies between host and device use pinned memory of the stream, so
 * that they neither wait for the device nor make it wait; large copies are left to the driver. */
#include "targets/cuda/cuda.h"

enum { RETURNS_MAX = 32, STAGING_ALIGNMENT = 64 };

/* A copy to the host through the staging memory that is not complete: synchronise moves the bytes to their destination. */
typedef struct returned {
    void *to;
    const char *from;
    size_t size;
} returned;

struct target_stream {
    target_device *device;
    CUstream stream;
    /* busy: launches or copies were submitted, and not waited for */
    bool own, marked, busy;
    /* the batch that records launches; NULL: launches go to the stream */
    target_batch *batch;
    /* NULL: not needed so far */
    CUevent mark;
    /* pinned; NULL: refused, or not needed so far */
    char *staging;
    bool refused;
    /* bytes of the staging memory that the device may still read or write */
    size_t used;
    int returns;
    returned back[RETURNS_MAX];
};

/* ---- launches */

dlc_status cuda_stream_launch(target_stream *stream, CUfunction function, unsigned blocks, unsigned threads,
                              unsigned shared, void **parameters, int count, lib_error *error) {
    target_batch *batch = stream->batch;
    stream->busy = true;
    if (batch && cuda_batch_add(batch, function, blocks, threads, shared, parameters, count)) return DLC_OK;
    stream->batch = NULL;
    if (batch) LIB_TRY(cuda_batch_end(batch, stream->stream, error));
    CUDA_TRY(stream->device, cuLaunchKernel,
             (function, blocks, 1, 1, threads, 1, 1, shared, stream->stream, parameters, NULL), error);
    return DLC_OK;
}

static void begin_batch(target_stream *stream, target_batch **batch) {
    target_batch *use = cuda_batch_begin(stream->device, *batch);
    if (use) *batch = use;
    stream->batch = use;
}

static dlc_status end_batch(target_stream *stream, lib_error *error) {
    target_batch *batch = stream->batch;
    stream->batch = NULL;
    return batch ? cuda_batch_end(batch, stream->stream, error) : DLC_OK;
}

static CUdeviceptr address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* ---- pinned memory: allocating it takes long, so the device keeps some */

static char *take_staging(target_device *device) {
    lib_mutex_lock(&device->mutex);
    char *kept = device->staging_count ? device->staging[--device->staging_count] : NULL;
    lib_mutex_unlock(&device->mutex);
    if (kept) return kept;
    void *memory = NULL;
    return device->driver.cuMemAllocHost_v2(&memory, CUDA_STAGING_BYTES) == CUDA_SUCCESS ? memory : NULL;
}

static void give_staging(target_device *device, char *memory) {
    lib_mutex_lock(&device->mutex);
    bool keeps = device->staging_count < CUDA_STAGING_KEPT;
    if (keeps) device->staging[device->staging_count++] = memory;
    lib_mutex_unlock(&device->mutex);
    if (!keeps) device->driver.cuMemFreeHost(memory);
}

/* ---- streams */

static dlc_status check_given(const target_device *device, CUstream given, lib_error *error) {
    CUcontext context = NULL;
    CUDA_TRY(device, cuStreamGetCtx, (given, &context), error);
    if (context != device->context)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "cuda: the stream belongs to another context, expected the primary one of device %d",
                        device->ordinal);
    return DLC_OK;
}

static dlc_status create(target_stream *stream, lib_error *error) {
    CUDA_TRY(stream->device, cuStreamCreate, (&stream->stream, CU_STREAM_NON_BLOCKING), error);
    stream->own = true;
    return DLC_OK;
}

static dlc_status synchronise(target_stream *stream, lib_error *error) {
    if (stream->marked)
        CUDA_TRY(stream->device, cuEventSynchronize, (stream->mark), error);
    else
        CUDA_TRY(stream->device, cuStreamSynchronize, (stream->stream), error);
    stream->marked = stream->busy = false;
    for (int i = 0; i < stream->returns; i++) memcpy(stream->back[i].to, stream->back[i].from, stream->back[i].size);
    stream->returns = 0;
    stream->used = 0;
    return DLC_OK;
}

static void close_stream(target_stream *stream) {
    if (!stream) return;
    target_device *device = stream->device;
    if (lib_process_is_here(&device->process)) { /* the driver's state belongs to the process that opened the device */
        if (stream->busy) device->driver.cuStreamSynchronize(stream->stream); /* the device may still use host memory */
        if (stream->staging) give_staging(device, stream->staging);
        if (stream->mark) device->driver.cuEventDestroy_v2(stream->mark);
        if (stream->own) device->driver.cuStreamDestroy_v2(stream->stream);
    }
    lib_release(&device->allocator, stream, sizeof *stream, _Alignof(target_stream));
}

static void settle(target_device *device) {
    device->driver.cuCtxSynchronize();
}

static dlc_status open_stream(target_device *device, void *given, target_stream **result, lib_error *error) {
    *result = NULL;
    target_stream *stream = lib_allocate_zeroed(&device->allocator, sizeof *stream, _Alignof(target_stream));
    if (!stream) return lib_fail(error, DLC_OUT_OF_MEMORY, "cuda: out of memory: a stream");
    stream->device = device;
    stream->stream = given;
    dlc_status status = given ? check_given(device, given, error) : create(stream, error);
    if (status == DLC_OK)
        *result = stream;
    else
        close_stream(stream);
    return status;
}

/* ---- marks */

static dlc_status mark(target_stream *stream, lib_error *error) {
    if (!stream->mark) CUDA_TRY(stream->device, cuEventCreate, (&stream->mark, CU_EVENT_DISABLE_TIMING), error);
    CUDA_TRY(stream->device, cuEventRecord, (stream->mark, stream->stream), error);
    stream->marked = true;
    return DLC_OK;
}

static dlc_status query(target_stream *stream, bool *done, lib_error *error) {
    CUresult result = stream->device->driver.cuEventQuery(stream->mark);
    *done = result == CUDA_SUCCESS;
    if (*done || result == CUDA_ERROR_NOT_READY) return DLC_OK;
    return cuda_fail(&stream->device->driver, result, "cuEventQuery", error);
}

static dlc_status order(target_stream *stream, void *later, lib_error *error) {
    LIB_TRY(check_given(stream->device, later, error));
    CUDA_TRY(stream->device, cuStreamWaitEvent, (later, stream->mark, 0), error);
    return DLC_OK;
}

/* ---- memory */

static dlc_status explain_memory(const target_device *device, size_t size, CUresult result, const char *function,
                                 lib_error *error) {
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return cuda_fail(&device->driver, result, function, error);
    return lib_fail(error, DLC_OUT_OF_MEMORY, "cuda: device %d has no %zu bytes of memory left", device->ordinal, size);
}

/* If memory runs out: waits for all work of the context, the host's included, which may release memory, and lets the pool give back what is
 * unused. */
static CUresult allocate_from_pool(target_stream *stream, size_t size, CUdeviceptr *pointer) {
    const target_device *device = stream->device;
    const cuda_driver *driver = &device->driver;
    CUresult result = driver->cuMemAllocFromPoolAsync(pointer, size, device->pool, stream->stream);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    if (driver->cuCtxSynchronize() != CUDA_SUCCESS || driver->cuMemPoolTrimTo(device->pool, 0) != CUDA_SUCCESS)
        return result;
    return driver->cuMemAllocFromPoolAsync(pointer, size, device->pool, stream->stream);
}

static dlc_status allocate(target_stream *stream, size_t size, void **pointer, lib_error *error) {
    const target_device *device = stream->device;
    CUdeviceptr memory = 0;
    CUresult result =
        device->pool ? allocate_from_pool(stream, size, &memory) : device->driver.cuMemAlloc_v2(&memory, size);
    *pointer = (void *)(uintptr_t)memory;
    if (result == CUDA_SUCCESS) return DLC_OK;
    *pointer = NULL;
    return explain_memory(device, size, result, device->pool ? "cuMemAllocFromPoolAsync" : "cuMemAlloc_v2", error);
}

static void release(target_stream *stream, void *pointer) {
    const target_device *device = stream->device;
    if (!pointer) return;
    if (device->pool)
        device->driver.cuMemFreeAsync(address(pointer), stream->stream);
    else
        device->driver.cuMemFree_v2(address(pointer)); /* waits for the device */
}

/* cuMemFree also takes memory of the pool, for which it does not wait for the device: no work may use it any more (target.h). */
static void free_memory(target_device *device, void *pointer) {
    if (pointer) device->driver.cuMemFree_v2(address(pointer));
}

/* ---- copies */

/* Reserves `size` bytes of the staging memory; NULL: there is no room, so that the copy is an ordinary one. */
static char *stage(target_stream *stream, size_t size) {
    size_t padded = (size + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
    if (padded > CUDA_STAGING_BYTES - stream->used || stream->refused) return NULL;
    if (!stream->staging) {
        stream->staging = take_staging(stream->device);
        stream->refused = !stream->staging;
        if (stream->refused) return NULL;
    }
    char *room = stream->staging + stream->used;
    stream->used += padded;
    return room;
}

static dlc_status copy_to_device(target_stream *stream, void *to, const void *from, size_t size, lib_error *error) {
    char *staged = stage(stream, size);
    if (staged) memcpy(staged, from, size);
    CUDA_TRY(stream->device, cuMemcpyHtoDAsync_v2, (address(to), staged ? staged : from, size, stream->stream), error);
    return DLC_OK;
}

static dlc_status copy_to_host(target_stream *stream, void *to, const void *from, size_t size, lib_error *error) {
    char *staged = stream->returns < RETURNS_MAX ? stage(stream, size) : NULL;
    CUDA_TRY(stream->device, cuMemcpyDtoHAsync_v2, (staged ? staged : to, address(from), size, stream->stream), error);
    if (staged) stream->back[stream->returns++] = (returned){to, staged, size};
    return DLC_OK;
}

static dlc_status copy(target_stream *stream, target_copy kind, void *to, const void *from, size_t size,
                       lib_error *error) {
    stream->busy = true;
    switch (kind) {
    case TARGET_COPY_TO_DEVICE: return copy_to_device(stream, to, from, size, error);
    case TARGET_COPY_TO_HOST: return copy_to_host(stream, to, from, size, error);
    case TARGET_COPY_ON_DEVICE:
        CUDA_TRY(stream->device, cuMemcpyDtoDAsync_v2, (address(to), address(from), size, stream->stream), error);
        break;
    }
    return DLC_OK;
}

const target_runtime cuda_runtime = {
    .device_type = kDLCUDA,
    .alignment = 16, /* the widest access of a thread */
    .enter = cuda_enter,
    .leave = cuda_leave,
    .settle = settle,
    .open = open_stream,
    .close = close_stream,
    .allocate = allocate,
    .release = release,
    .free = free_memory,
    .copy = copy,
    .synchronise = synchronise,
    .begin_batch = begin_batch,
    .end_batch = end_batch,
    .release_batch = cuda_batch_release,
    .mark = mark,
    .query = query,
    .order = order,
};
