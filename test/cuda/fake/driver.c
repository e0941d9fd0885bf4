/* A fake CUDA driver over host memory. Device memory is unreadable for the host but while the device works; a stream does what it was
 * given when somebody synchronises with it, as late as it may; a kernel is run by the interpreter of loop IR, with all its
 * checks, from the text that stands in its source. Misuse is an error and leaves a message in the control. */
#include "targets/cuda/api.h"
#include "test/cuda/fake/fake.h"
#include "test/units.h"
#include "tir/interpret.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT fake_control fake_driver_control;
#define control fake_driver_control

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of everything here */

enum { DEVICES_MAX = 8, STACK_MAX = 64, PAGE = 4096 };

/* ---- failing */

__attribute__((format(printf, 2, 3))) static CUresult misuse(CUresult result, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (!control.message[0]) vsnprintf(control.message, sizeof control.message, format, list);
    va_end(list);
    return result;
}

static CUresult fails(const char *name) {
    bool now = control.fail && strcmp(control.fail, name) == 0 && ++control.seen == control.fail_at;
    return now ? control.fail_with : CUDA_SUCCESS;
}

/* Every function begins so: under the mutex until it returns, with the failure that was asked for. */
static void unlock(pthread_mutex_t **held) {
    pthread_mutex_unlock(*held);
}
#define LOCK                                                          \
    pthread_mutex_t *held_ __attribute__((cleanup(unlock))) = &mutex; \
    pthread_mutex_lock(held_)
#define BEGIN(name)                       \
    LOCK;                                 \
    const CUresult failed_ = fails(name); \
    if (failed_ != CUDA_SUCCESS) return failed_
/* What gives back does so in any case: an error is one of work before. */
#define BEGIN_RELEASE(name) \
    LOCK;                   \
    const CUresult failed = fails(name)

/* ---- contexts */

struct CUctx_st {
    CUdevice device;
    long retained;
};
static struct CUctx_st primary[DEVICES_MAX];
static _Thread_local CUcontext stack[STACK_MAX];
static _Thread_local int depth;

static CUcontext current(void) {
    return depth ? stack[depth - 1] : NULL;
}
static CUresult needs_context(const char *name) {
    if (!current()) return misuse(CUDA_ERROR_INVALID_CONTEXT, "%s without a current context", name);
    if (current() >= primary && current() < primary + DEVICES_MAX && !current()->retained)
        return misuse(CUDA_ERROR_INVALID_CONTEXT, "%s in a context that was released", name);
    return CUDA_SUCCESS;
}
#define NEEDS_CONTEXT(name)                \
    do {                                   \
        CUresult r_ = needs_context(name); \
        if (r_ != CUDA_SUCCESS) return r_; \
    } while (0)

static int device_count(void) {
    return control.devices < 0 ? 0 : control.devices ? control.devices : 2;
}

EXPORT CUresult cuInit(unsigned int flags) {
    BEGIN("cuInit");
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    BEGIN("cuDriverGetVersion");
    *version = control.version ? control.version : 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
    static const struct {
        CUresult result;
        const char *name;
    } names[] = {
#define X(name, value) {value, #name},
        CUDA_CONSTANT_TABLE(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].result == error && strncmp(names[i].name, "CUDA_", 5) == 0) return *text = names[i].name, 0;
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    (void)error;
    *text = "a fake error";
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    BEGIN("cuDeviceGetCount");
    *count = device_count();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    BEGIN("cuDeviceGet");
    if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    BEGIN("cuDeviceGetName");
    snprintf(name, (size_t)length, "Fake %d", device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    BEGIN("cuDeviceGetAttribute");
    (void)device;
    int capability = control.capability ? control.capability : 90;
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 4 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = !control.no_pools; break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; break;
    default: return misuse(CUDA_ERROR_INVALID_VALUE, "unknown device attribute %u", which);
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    BEGIN("cuDevicePrimaryCtxRetain");
    if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
    primary[device].device = device;
    primary[device].retained++;
    control.contexts++;
    *context = &primary[device];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    BEGIN_RELEASE("cuDevicePrimaryCtxRelease_v2");
    if (device < 0 || device >= device_count() || !primary[device].retained)
        return misuse(CUDA_ERROR_INVALID_CONTEXT, "a context is released that nobody holds");
    primary[device].retained--;
    control.contexts--;
    return failed;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    BEGIN("cuCtxPushCurrent_v2");
    if (!context || depth == STACK_MAX) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    BEGIN_RELEASE("cuCtxPopCurrent_v2");
    if (!depth) return misuse(CUDA_ERROR_INVALID_CONTEXT, "a context is popped that nobody pushed");
    *context = stack[--depth];
    return failed;
}

/* For tests: what is current to the calling thread. */
EXPORT CUcontext fake_current_context(void) {
    return current();
}

/* ---- memory of the device */

typedef struct block {
    struct block *next;
    char *bytes;
    size_t size, mapped;
    CUdevice device;
    /* pooled: from a pool; freed: by work that a stream has yet to do */
    bool pinned, pooled, freed;
} block;
static block *blocks;

static block *block_of(CUdeviceptr pointer, size_t size) {
    for (block *b = blocks; b; b = b->next)
        if (pointer >= (uintptr_t)b->bytes && pointer + size <= (uintptr_t)b->bytes + b->size) return b;
    return NULL;
}

static CUresult new_block(size_t size, bool pinned, char **bytes) {
    size_t mapped = (size + PAGE - 1) / PAGE * PAGE;
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    if (!pinned && control.memory && control.bytes + size > control.memory) return CUDA_ERROR_OUT_OF_MEMORY;
    block *b = calloc(1, sizeof *b);
    *b = (block){.next = blocks, .size = size, .mapped = mapped, .device = current()->device, .pinned = pinned};
    b->bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(b->bytes, 0xff, size); /* NaN, and indices far outside */
    if (!pinned) mprotect(b->bytes, mapped, PROT_NONE);
    blocks = b;
    *bytes = b->bytes;
    if (pinned) {
        control.pinned++;
    } else {
        control.allocations++;
        control.bytes += size;
    }
    return CUDA_SUCCESS;
}

static CUresult drop_block(const char *bytes, bool pinned) {
    for (block **at = &blocks; *at; at = &(*at)->next) {
        block *b = *at;
        if (b->bytes != bytes || b->pinned != pinned) continue;
        *at = b->next;
        munmap(b->bytes, b->mapped);
        if (pinned) {
            control.pinned--;
        } else {
            control.allocations--;
            control.bytes -= b->size;
        }
        free(b);
        return CUDA_SUCCESS;
    }
    return misuse(CUDA_ERROR_INVALID_VALUE, "memory is freed that is not there");
}

/* The device works: its memory is there. Streams that wait for each other work in turn. */
static int working;
static void show_memory(bool show) {
    if (show ? working++ : --working) return;
    for (block *b = blocks; b; b = b->next)
        if (!b->pinned) mprotect(b->bytes, b->mapped, show ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* ---- modules */

struct CUfunc_st {
    CUmodule module;
    const tir_kernel *kernel;
    const tir_program *program;
    int phase, shared;
};

enum { KERNELS_MAX = 64, FUNCTIONS_MAX = 512 };
struct CUmod_st {
    lib_arena arena;
    int functions;
    const tir_kernel *kernel[KERNELS_MAX];
    const tir_program *program[KERNELS_MAX];
    struct CUfunc_st function[FUNCTIONS_MAX];
};

static void parse_module(CUmodule module, const char *source) {
    const char *mark = "/* loop IR of kernel ", *at = source;
    while ((at = strstr(at, mark)) != NULL) {
        int number = atoi(at += strlen(mark));
        const char *text = strchr(at, '\n'), *end = strstr(at, "*/");
        if (!text || !end || number < 0 || number >= KERNELS_MAX) break;
        lib_lexer lexer;
        lib_lexer_init(&lexer, &module->arena, "<fake image>", text, (size_t)(end - text));
        module->kernel[number] = tir_kernel_parse(&module->arena, &lexer, test_units);
        module->program[number] = tir_program_new(&module->arena, module->kernel[number]);
        at = end;
    }
}

static CUresult check_image(const char *image) {
    char kind[32];
    int architecture = 0, by = 0, capability = control.capability ? control.capability : 90;
    if (sscanf(image, FAKE_IMAGE_FORMAT, kind, &architecture, &by) != 3) return CUDA_ERROR_INVALID_IMAGE;
    bool newer = by / 1000 > (control.version ? control.version : 13000) / 1000;
    if (strcmp(kind, "ptx") == 0)
        return newer && control.refuses_ptx ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
               : architecture > capability  ? CUDA_ERROR_INVALID_PTX
                                            : CUDA_SUCCESS;
    if (newer && control.refuses_code) return CUDA_ERROR_INVALID_IMAGE;
    bool runs = architecture / 10 == capability / 10 && architecture <= capability;
    return runs ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, CUjit_option *options,
                                   void **values) {
    BEGIN("cuModuleLoadDataEx");
    (void)count, (void)options, (void)values;
    NEEDS_CONTEXT("cuModuleLoadDataEx");
    CUresult result = check_image(image);
    if (result != CUDA_SUCCESS) return result;
    CUmodule module = calloc(1, sizeof *module);
    lib_scope scope;
    lib_arena_init(&module->arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        parse_module(module, image);
        module->arena.scope = NULL;
        control.modules++;
        *out = module;
        return CUDA_SUCCESS;
    }
    misuse(CUDA_ERROR_INVALID_IMAGE, "%s", scope.error.message);
    lib_arena_free(&module->arena);
    free(module);
    return CUDA_ERROR_INVALID_IMAGE;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    BEGIN("cuModuleGetFunction");
    int kernel;
    int phase;
    NEEDS_CONTEXT("cuModuleGetFunction");
    if (sscanf(name, "k%d_p%d", &kernel, &phase) != 2 || kernel < 0 || kernel >= KERNELS_MAX ||
        !module->kernel[kernel] || phase < 0 || phase >= (int)module->kernel[kernel]->phases.count ||
        module->functions == FUNCTIONS_MAX)
        return CUDA_ERROR_NOT_FOUND;
    *out = &module->function[module->functions++];
    **out = (struct CUfunc_st){module, module->kernel[kernel], module->program[kernel], phase, 0};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    BEGIN("cuFuncGetAttribute");
    (void)function;
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    BEGIN("cuFuncSetAttribute");
    if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) function->shared = value;
    return CUDA_SUCCESS;
}

/* ---- streams: work is done when somebody waits for it */

typedef struct work {
    struct work *next;
    enum { WORK_COPY, WORK_FREE, WORK_LAUNCH, WORK_RECORD, WORK_WAIT } kind;
    /* RECORD, WAIT */
    struct CUevent_st *event;
    /* of the event: its number */
    long recording;
    char *to;
    const char *from;
    /* a copy of `from` */
    char *owned;
    size_t size;
    CUfunction function;
    void **buffers;
    int64_t *params, iteration, first, count;
    char *workspace, *local;
    int64_t local_stride;
} work;

struct CUstream_st {
    struct CUstream_st *next;
    CUcontext context;
    work *head, **tail;
    /* stays */
    CUresult failed;
};
static struct CUstream_st *streams;

static void free_work(work *w) {
    free(w->owned);
    free(w->buffers);
    free(w->params);
    free(w);
}

/* FAKE_CUDA_WRONG: a device whose results are off by a bit, which tests of results must see. */
static void spoil(const work *w) {
    const tir_kernel *kernel = w->function->kernel;
    for (int i = 0; i < kernel->arguments && getenv("FAKE_CUDA_WRONG"); i++)
        if (kernel->buffers.data[i].written && w->buffers[i]) *(char *)w->buffers[i] ^= 1;
}

static CUresult run_launch(const work *w) {
    const tir_interpret_options options = {.check = true};
    const tir_kernel *kernel = w->function->kernel;
    lib_error error;
    for (int i = 0; i < kernel->arguments; i++)
        if (w->buffers[i] && !block_of((uintptr_t)w->buffers[i], 1))
            return misuse(CUDA_ERROR_UNKNOWN, "kernel %s: argument %d is not on the device", kernel->name, i);
    dlc_status status = DLC_OK;
    for (int64_t b = 0; b < w->count && status == DLC_OK; b++) {
        char *local = w->local ? w->local + b * w->local_stride : NULL;
        status = tir_program_run_tasks(w->function->program, w->function->phase, w->iteration, w->first + b,
                                       w->first + b + 1, w->buffers, w->params, w->workspace, local, &options,
                                       &lib_libc_allocator, &error);
    }
    if (status == DLC_OK) spoil(w);
    return status == DLC_OK ? CUDA_SUCCESS : misuse(CUDA_ERROR_UNKNOWN, "kernel %s: %s", kernel->name, error.message);
}

struct CUevent_st {
    struct CUevent_st *next;
    /* that it was last recorded on */
    CUstream stream;
    /* recordings so far */
    long recorded, reached;
    /* of the stream, when it came there */
    CUresult result;
};
static struct CUevent_st *events;

static void reach(CUevent event, long recording);

/* The stream's next piece of work. */
static void step(CUstream stream) {
    work *w = stream->head;
    stream->head = w->next;
    if (!stream->head) stream->tail = &stream->head;
    show_memory(true);
    switch (w->kind) {
    case WORK_FREE: drop_block(w->to, false); break;
    case WORK_COPY:
        if (!stream->failed) memcpy(w->to, w->owned ? w->owned : w->from, w->size);
        break;
    case WORK_LAUNCH:
        if (!stream->failed) stream->failed = run_launch(w);
        break;
    case WORK_RECORD:
        w->event->reached = w->recording;
        w->event->result = stream->failed;
        break;
    case WORK_WAIT:
        if (w->event) reach(w->event, w->recording);
        break;
    }
    show_memory(false);
    free_work(w);
}

static void reach(CUevent event, long recording) {
    while (event->reached < recording && event->stream->head) step(event->stream);
}

static CUresult drain(CUstream stream) {
    while (stream->head) step(stream);
    return stream->failed;
}

/* The default streams, by their numbers as handles: 1 and 2. */
static struct CUstream_st defaults[DEVICES_MAX][2];

static CUresult drain_all(void) {
    CUresult result = CUDA_SUCCESS;
    for (int d = 0; d < DEVICES_MAX; d++)
        for (int i = 0; i < 2; i++) drain(&defaults[d][i]);
    for (CUstream s = streams; s; s = s->next) {
        CUresult one = drain(s);
        if (one != CUDA_SUCCESS) result = one;
    }
    return result;
}

/* NULL: no stream. */
static CUstream known(CUstream stream) {
    const uintptr_t number = (uintptr_t)stream;
    if ((number == 1 || number == 2) && current()) {
        CUstream own = &defaults[current()->device][number - 1];
        own->context = current();
        if (!own->tail) own->tail = &own->head;
        return own;
    }
    CUstream s = streams;
    while (s && s != stream) s = s->next;
    return s;
}

static CUresult give(CUstream stream, const work *what) {
    stream = known(stream);
    if (!stream) return misuse(CUDA_ERROR_INVALID_HANDLE, "work for a stream that does not exist");
    if (stream->context != current())
        return misuse(CUDA_ERROR_INVALID_HANDLE, "work for a stream of a context that is not current");
    work *w = calloc(1, sizeof *w);
    *w = *what;
    *stream->tail = w;
    stream->tail = &w->next;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags) {
    BEGIN("cuStreamCreate");
    NEEDS_CONTEXT("cuStreamCreate");
    if (flags != CU_STREAM_NON_BLOCKING) return misuse(CUDA_ERROR_INVALID_VALUE, "a stream that blocks the host's");
    CUstream stream = calloc(1, sizeof *stream);
    *stream = (struct CUstream_st){.next = streams, .context = current()};
    stream->tail = &stream->head;
    streams = stream;
    control.streams++;
    *out = stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    BEGIN_RELEASE("cuStreamDestroy_v2");
    CUstream *at = &streams;
    while (*at && *at != stream) at = &(*at)->next;
    if (!*at) return misuse(CUDA_ERROR_INVALID_HANDLE, "a stream is destroyed that does not exist");
    drain(stream);
    *at = stream->next;
    free(stream);
    control.streams--;
    return failed;
}

/* Waits in any case: what fails is the work. */
EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    BEGIN_RELEASE("cuStreamSynchronize");
    NEEDS_CONTEXT("cuStreamSynchronize");
    if (!known(stream)) return misuse(CUDA_ERROR_INVALID_HANDLE, "waits for a stream that does not exist");
    const CUresult result = drain(known(stream));
    return failed != CUDA_SUCCESS ? failed : result;
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    BEGIN("cuStreamGetCtx");
    if (!known(stream)) return CUDA_ERROR_INVALID_HANDLE;
    *context = known(stream)->context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) {
    BEGIN_RELEASE("cuCtxSynchronize");
    NEEDS_CONTEXT("cuCtxSynchronize");
    const CUresult result = drain_all();
    return failed != CUDA_SUCCESS ? failed : result;
}

/* ---- events */

static CUevent known_event(CUevent event) {
    CUevent e = events;
    while (e && e != event) e = e->next;
    return e;
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags) {
    BEGIN("cuEventCreate");
    NEEDS_CONTEXT("cuEventCreate");
    if (flags != CU_EVENT_DISABLE_TIMING) return misuse(CUDA_ERROR_INVALID_VALUE, "an event that takes the time");
    CUevent event = calloc(1, sizeof *event);
    event->next = events;
    events = event;
    control.events++;
    *out = event;
    return CUDA_SUCCESS;
}

static void forget(CUstream stream, CUevent event) {
    for (work *w = stream->head; w; w = w->next)
        if (w->kind == WORK_WAIT && w->event == event) w->event = NULL;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    BEGIN_RELEASE("cuEventDestroy_v2");
    CUevent *at = &events;
    while (*at && *at != event) at = &(*at)->next;
    if (!*at) return misuse(CUDA_ERROR_INVALID_HANDLE, "an event is destroyed that does not exist");
    reach(event, event->recorded);
    for (CUstream s = streams; s; s = s->next) forget(s, event);
    for (int d = 0; d < DEVICES_MAX; d++)
        for (int i = 0; i < 2; i++) forget(&defaults[d][i], event);
    *at = event->next;
    free(event);
    control.events--;
    return failed;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    BEGIN("cuEventRecord");
    if (!known_event(event)) return misuse(CUDA_ERROR_INVALID_HANDLE, "an event is recorded that does not exist");
    event->stream = known(stream);
    return give(stream, &(work){.kind = WORK_RECORD, .event = event, .recording = ++event->recorded});
}

/* The device is busy: it does one piece of work from question to question. */
EXPORT CUresult cuEventQuery(CUevent event) {
    BEGIN("cuEventQuery");
    if (!known_event(event)) return misuse(CUDA_ERROR_INVALID_HANDLE, "an unknown event is asked for");
    if (event->reached == event->recorded) return event->result;
    if (event->stream->head) step(event->stream);
    return CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
    BEGIN_RELEASE("cuEventSynchronize");
    if (!known_event(event)) return misuse(CUDA_ERROR_INVALID_HANDLE, "waits for an event that does not exist");
    reach(event, event->recorded);
    return failed != CUDA_SUCCESS ? failed : event->result;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    BEGIN("cuStreamWaitEvent");
    if (!known_event(event) || flags) return misuse(CUDA_ERROR_INVALID_HANDLE, "a stream waits for no event");
    return give(stream, &(work){.kind = WORK_WAIT, .event = event, .recording = event->recorded});
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    BEGIN_RELEASE("cuModuleUnload");
    drain_all();
    lib_arena_free(&module->arena);
    free(module);
    control.modules--;
    return failed;
}

/* ---- allocation */

struct CUmemPoolHandle_st {
    int device;
};

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    BEGIN("cuMemPoolCreate");
    if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = calloc(1, sizeof **pool);
    (*pool)->device = properties->location.id;
    control.pools++;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    BEGIN_RELEASE("cuMemPoolDestroy");
    free(pool);
    control.pools--;
    return failed;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *value) {
    BEGIN("cuMemPoolSetAttribute");
    return pool && value && which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    BEGIN("cuMemPoolTrimTo");
    (void)pool, (void)keep;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
    BEGIN("cuMemAlloc_v2");
    char *bytes = NULL;
    NEEDS_CONTEXT("cuMemAlloc_v2");
    CUresult result = new_block(size, false, &bytes);
    *pointer = (uintptr_t)bytes;
    return result;
}

/* Waits for the device, but not if the memory is from a pool. */
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    BEGIN_RELEASE("cuMemFree_v2");
    const block *b = block_of(pointer, 1);
    if (b && b->freed) return misuse(CUDA_ERROR_INVALID_VALUE, "memory is freed twice");
    if (!b || !b->pooled) drain_all();
    const CUresult result = drop_block((char *)(uintptr_t)pointer, false);
    return failed != CUDA_SUCCESS ? failed : result;
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t size, CUmemoryPool pool, CUstream stream) {
    BEGIN("cuMemAllocFromPoolAsync");
    char *bytes = NULL;
    NEEDS_CONTEXT("cuMemAllocFromPoolAsync");
    if (!known(stream) || pool->device != current()->device) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = new_block(size, false, &bytes);
    if (result == CUDA_SUCCESS) blocks->pooled = true;
    *pointer = (uintptr_t)bytes;
    return result;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    BEGIN_RELEASE("cuMemFreeAsync");
    block *b = block_of(pointer, 1);
    if (!b || b->freed) return misuse(CUDA_ERROR_INVALID_VALUE, "memory is freed that is not there");
    b->freed = true;
    const CUresult result = give(stream, &(work){.kind = WORK_FREE, .to = (char *)(uintptr_t)pointer});
    return failed != CUDA_SUCCESS ? failed : result;
}

EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t size) {
    BEGIN("cuMemAllocHost_v2");
    char *bytes = NULL;
    NEEDS_CONTEXT("cuMemAllocHost_v2");
    CUresult result = new_block(size, true, &bytes);
    *pointer = bytes;
    return result;
}
EXPORT CUresult cuMemFreeHost(void *pointer) {
    BEGIN_RELEASE("cuMemFreeHost");
    const CUresult result = drop_block(pointer, true);
    return failed != CUDA_SUCCESS ? failed : result;
}

/* ---- copies, launches */

static bool on_device(CUdeviceptr pointer, size_t size) {
    const block *b = block_of(pointer, size);
    return b && !b->pinned && !b->freed;
}

/* Pageable memory is read before the call returns; pinned memory when the stream comes to it. */
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    BEGIN("cuMemcpyHtoDAsync_v2");
    if (!on_device(to, size)) return misuse(CUDA_ERROR_INVALID_VALUE, "a copy to what is no memory of the device");
    work w = {.kind = WORK_COPY, .to = (char *)(uintptr_t)to, .from = from, .size = size};
    if (!block_of((uintptr_t)from, size)) w.owned = memcpy(malloc(size), from, size);
    control.to_device += size;
    return give(stream, &w);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    BEGIN("cuMemcpyDtoHAsync_v2");
    if (!on_device(from, size)) return misuse(CUDA_ERROR_INVALID_VALUE, "a copy from what is no memory of the device");
    control.to_host += size;
    return give(stream, &(work){.kind = WORK_COPY, .to = to, .from = (char *)(uintptr_t)from, .size = size});
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    BEGIN("cuMemcpyDtoDAsync_v2");
    if (!on_device(from, size) || !on_device(to, size))
        return misuse(CUDA_ERROR_INVALID_VALUE, "a copy on the device of what is not there");
    control.on_device += size;
    return give(stream,
                &(work){.kind = WORK_COPY, .to = (char *)(uintptr_t)to, .from = (char *)(uintptr_t)from, .size = size});
}

/* The parameters as targets/cuda/cuda.h lists them. */
static work describe_launch(CUfunction function, unsigned grid, void **parameters) {
    const tir_kernel *kernel = function->kernel;
    size_t arguments = (size_t)kernel->arguments, params = kernel->params.count;
    work w = {.kind = WORK_LAUNCH, .function = function, .count = grid};
    w.buffers = calloc(arguments + 1, sizeof *w.buffers);
    w.params = calloc(params + 1, sizeof *w.params);
    for (size_t i = 0; i < arguments; i++) w.buffers[i] = *(void **)*parameters++;
    for (size_t i = 0; i < params; i++) w.params[i] = *(int64_t *)*parameters++;
    w.workspace = *(char **)*parameters++;
    w.local = *(char **)*parameters++;
    w.local_stride = *(int64_t *)*parameters++;
    w.iteration = *(int64_t *)*parameters++;
    w.first = *(int64_t *)*parameters++;
    return w;
}

static CUresult launch(CUfunction function, unsigned grid, CUstream stream, void **parameters) {
    const work w = describe_launch(function, grid, parameters);
    CUresult result = give(stream, &w);
    if (result == CUDA_SUCCESS) control.launches++;
    if (result != CUDA_SUCCESS) free(w.buffers), free(w.params);
    return result;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                               unsigned int block_x, unsigned int block_y, unsigned int block_z,
                               unsigned int shared_bytes, CUstream stream, void **parameters, void **extra) {
    pthread_mutex_lock(&mutex);
    CUresult result = fails("cuLaunchKernel");
    bool wrong = !grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_x > 1024 || block_y != 1 || block_z != 1 ||
                 extra || (shared_bytes > 48 << 10 && (int)shared_bytes > function->shared);
    if (result == CUDA_SUCCESS && wrong) result = misuse(CUDA_ERROR_INVALID_VALUE, "a launch of a wrong shape");
    if (result == CUDA_SUCCESS) result = launch(function, grid_x, stream, parameters);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- graphs: nodes one behind the other; an executable one has copies of them */

enum { NODES_MAX = 4096 };
struct CUgraphNode_st {
    work launch;
};
struct CUgraph_st {
    int count;
    struct CUgraphNode_st node[NODES_MAX];
};
struct CUgraphExec_st {
    /* that it was made from */
    CUgraph graph;
    int count;
    work launch[NODES_MAX];
};

static bool is_wrong(const CUDA_KERNEL_NODE_PARAMS *p) {
    return !p->func || !p->gridDimX || p->gridDimY != 1 || p->gridDimZ != 1 || !p->blockDimX || p->blockDimX > 1024 ||
           p->blockDimY != 1 || p->blockDimZ != 1 || p->extra || p->kern || p->ctx ||
           (p->sharedMemBytes > 48 << 10 && (int)p->sharedMemBytes > p->func->shared);
}

static work copy_launch(const work *from) {
    const tir_kernel *kernel = from->function->kernel;
    work w = *from;
    size_t buffers = ((size_t)kernel->arguments + 1) * sizeof *w.buffers;
    size_t params = ((size_t)kernel->params.count + 1) * sizeof *w.params;
    w.buffers = memcpy(malloc(buffers), from->buffers, buffers);
    w.params = memcpy(malloc(params), from->params, params);
    return w;
}

static void drop_launch(work *w) {
    free(w->buffers);
    free(w->params);
}

EXPORT CUresult cuGraphCreate(CUgraph *out, unsigned int flags) {
    BEGIN("cuGraphCreate");
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    control.graphs++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    BEGIN_RELEASE("cuGraphDestroy");
    for (int i = 0; i < graph->count; i++) drop_launch(&graph->node[i].launch);
    free(graph);
    control.graphs--;
    return failed;
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
                                        const CUDA_KERNEL_NODE_PARAMS *parameters) {
    BEGIN("cuGraphAddKernelNode_v2");
    NEEDS_CONTEXT("cuGraphAddKernelNode_v2");
    int at = graph->count;
    bool behind = at ? count == 1 && before[0] == &graph->node[at - 1] : count == 0;
    if (at == NODES_MAX || !behind || is_wrong(parameters))
        return misuse(CUDA_ERROR_INVALID_VALUE, "a node of a wrong shape, or beside others");
    graph->node[at].launch = describe_launch(parameters->func, parameters->gridDimX, parameters->kernelParams);
    *out = &graph->node[graph->count++];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    BEGIN("cuGraphInstantiateWithFlags");
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    CUgraphExec exec = *out = calloc(1, sizeof *exec);
    exec->graph = graph;
    exec->count = graph->count;
    for (int i = 0; i < graph->count; i++) exec->launch[i] = copy_launch(&graph->node[i].launch);
    control.graphs++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    BEGIN_RELEASE("cuGraphExecDestroy");
    for (int i = 0; i < exec->count; i++) drop_launch(&exec->launch[i]);
    free(exec);
    control.graphs--;
    return failed;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_KERNEL_NODE_PARAMS *parameters) {
    BEGIN("cuGraphExecKernelNodeSetParams_v2");
    int64_t at = node - exec->graph->node;
    if (at < 0 || at >= exec->count || is_wrong(parameters) || parameters->func != exec->launch[at].function)
        return misuse(CUDA_ERROR_INVALID_VALUE, "a node is changed that is none, or into something else");
    drop_launch(&exec->launch[at]);
    exec->launch[at] = describe_launch(parameters->func, parameters->gridDimX, parameters->kernelParams);
    control.updates++;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    BEGIN("cuGraphLaunch");
    for (int i = 0; i < exec->count; i++) {
        work w = copy_launch(&exec->launch[i]);
        CUresult result = give(stream, &w);
        if (result != CUDA_SUCCESS) drop_launch(&w);
        if (result != CUDA_SUCCESS) return result;
    }
    control.graph_launches++;
    return CUDA_SUCCESS;
}

/* For programs that do not look themselves (test/cuda/api_test.sh): what is left at the end, or was misused, is a failure. */
__attribute__((destructor)) static void check_at_end(void) {
    const char *strict = getenv("FAKE_CUDA_STRICT");
    long left = control.graphs + control.events + control.contexts + control.streams + control.modules + control.pools +
                control.pinned + control.allocations;
    if (!strict || (!left && !control.message[0])) return;
    fprintf(stderr,
            "[  FAILED  ] fake CUDA: left are %ld contexts, %ld streams, %ld modules, %ld pools, %ld pinned, %ld "
            "allocations; %s\n",
            control.contexts, control.streams, control.modules, control.pools, control.pinned, control.allocations,
            control.message);
    _exit(99);
}
