/* The helper's end of isolated code generation: the main function of libdlc-compiler. It serves one request after another until the
 * connection is closed; a request that ends this process leaves the host unharmed. */
#include "targets/cpu/isolate.h"
#include "targets/cpu/units.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_MAX = 1 << 30 };

static bool receive(void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t count = recv(CPU_CONNECTION, (char *)bytes + done, size - done, 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        done += (size_t)count;
    }
    return true;
}

static bool transmit(const void *bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t count = send(CPU_CONNECTION, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        done += (size_t)count;
    }
    return true;
}

static bool answer(dlc_status status, const void *bytes, size_t size) {
    cpu_reply reply = {.magic = CPU_REQUEST_MAGIC, .size = size, .status = (int32_t)status};
    return transmit(&reply, sizeof reply) && transmit(bytes, size);
}

/* Limits the address space to its current size and `bytes` more. 0: no limit. */
static void limit_memory(uint64_t bytes) {
    struct rlimit limit;
    unsigned long pages = 0;
    if (getrlimit(RLIMIT_AS, &limit) != 0) return;
    FILE *file = bytes ? fopen("/proc/self/statm", "re") : NULL;
    if (file && fscanf(file, "%lu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    limit.rlim_cur = limit.rlim_max;
    if (pages && bytes < limit.rlim_max) limit.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
    setrlimit(RLIMIT_AS, &limit);
}

static volatile sig_atomic_t is_serving;

/* Ends this process if its host has ended: code generation that never ends would otherwise go on for ever. While no request is served,
 * receive() detects the end. */
static void end_without_host(int signal) {
    struct pollfd connection = {.fd = CPU_CONNECTION, .events = POLLRDHUP};
    const int interrupted = errno;
    (void)signal;
    if (is_serving && poll(&connection, 1, 0) > 0) _exit(0);
    errno = interrupted;
}

/* Any event of the connection raises SIGIO. */
static void watch_host(void) {
    const struct sigaction action = {.sa_handler = end_without_host, .sa_flags = SA_RESTART};
    sigaction(SIGIO, &action, NULL);
    fcntl(CPU_CONNECTION, F_SETOWN, getpid());
    fcntl(CPU_CONNECTION, F_SETFL, fcntl(CPU_CONNECTION, F_GETFL) | O_ASYNC);
}

static bool greet(target_device *device, const char *bytes, size_t size) {
    cpu_hello hello;
    size_t id = strlen(lib_build_id) + 1;
    if (size != id + sizeof hello || memcmp(bytes, lib_build_id, id) != 0) {
        static const char message[] = "isolate_compiler: libdlc-compiler is of another build than the library";
        answer(DLC_INVALID_ARGUMENT, message, sizeof message - 1);
        return false;
    }
    memcpy(&hello, bytes + id, sizeof hello);
    device->features = hello.features;
    device->machine = hello.machine;
    device->machine.units = cpu_units; /* not where the host has them */
    device->verify = hello.verify;
    device->no_polls = hello.no_polls;
    memcpy(device->cpu, hello.cpu, sizeof device->cpu);
    memcpy(device->attributes, hello.attributes, sizeof device->attributes);
    return answer(DLC_OK, "", 0);
}

static const tir_kernel **parse(lib_arena *arena, const char *text, size_t size, int count) {
    lib_lexer lexer;
    const tir_kernel **kernels = LIB_NEW_ARRAY(arena, const tir_kernel *, (size_t)count + 1);
    lib_lexer_init(&lexer, arena, "<request>", text, size);
    for (int k = 0; k < count; k++) kernels[k] = tir_kernel_parse(arena, &lexer, cpu_units);
    return kernels;
}

static bool serve_kernels(target_device *device, const cpu_request *request, const char *text, cpu_inspect *inspect) {
    lib_scope scope;
    lib_arena arena;
    lib_error error;
    lib_text dump = {0};
    target_object object = {0};
    const tir_kernel **volatile kernels = NULL;
    lib_arena_init(&arena, &device->allocator, &scope);
    if (LIB_ENTER(&scope)) kernels = parse(&arena, text, (size_t)request->size, request->kernels);
    dlc_status status = scope.error.status;
    if (status != DLC_OK) error = scope.error;
    lib_text_init(&dump, &arena);
    if (status == DLC_OK && request->kind == CPU_REQUEST_DUMP)
        status = cpu_dump_here(device, kernels[0], (target_dump)request->what, &dump, &error);
    else if (status == DLC_OK)
        status = cpu_compile_here(device, request->kernels, kernels, inspect, &object, &error);
    limit_memory(0);
    bool sent = status != DLC_OK                    ? answer(status, error.message, strlen(error.message))
                : request->kind == CPU_REQUEST_DUMP ? answer(DLC_OK, dump.data ? dump.data : "", dump.length)
                                                    : answer(DLC_OK, object.bytes, object.size);
    cpu_release_object(device, &object);
    lib_arena_free(&arena);
    return sent;
}

static bool serve_one(target_device *device, cpu_inspect *inspect) {
    cpu_request request;
    if (!receive(&request, sizeof request) || request.magic != CPU_REQUEST_MAGIC || request.size > REQUEST_MAX ||
        request.kernels < 0 || request.kernels > 4096)
        return false;
    char *bytes = lib_allocate(&device->allocator, (size_t)request.size + 1, 16);
    bool good = bytes && receive(bytes, (size_t)request.size);
    if (ftruncate(2, 0) == 0) lseek(2, 0, SEEK_SET); /* from here on, output is about this request */
    if (good && request.kind == CPU_REQUEST_HELLO) {
        good = greet(device, bytes, (size_t)request.size);
    } else if (good) {
        limit_memory(request.memory);
        is_serving = true;
        end_without_host(SIGIO); /* it may have ended before */
        good = serve_kernels(device, &request, bytes, inspect);
        is_serving = false;
    }
    lib_release(&device->allocator, bytes, (size_t)request.size + 1, 16);
    return good;
}

int cpu_serve(cpu_inspect *inspect) {
    static target_device device;
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
#ifdef SYS_close_range
    syscall(SYS_close_range, 3u, ~0u, 0u); /* descriptors that the host did not mark close-on-exec are not inherited */
#endif
    device.allocator = lib_libc_allocator;
    watch_host();
    cpu_llvm_initialize(); /* before memory is measured for a budget */
    cpu_compiler_open(&device);
    while (serve_one(&device, inspect)) continue;
    return 0;
}

int cpu_serve_plainly(void) {
    return cpu_serve(NULL);
}
