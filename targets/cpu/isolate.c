/* The host's end of isolated code generation: processes of the program libdlc-compiler, as many as compile at once, each serving one
 * request at a time. Any failure of one (a fatal error of LLVM, a crash, no memory, a time-out, a signal) becomes a status with its last
 * output, and the next request gets another process. */
#include "targets/cpu/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { CPU_P_PIDFD = 3 /* waitid: by a pidfd */, IDLE_HELPERS = 16, DEFAULT_SECONDS = 300, SLICE_MS = 50 };

/* A descriptor and the file behind it. A host may close descriptors that it has not opened (closefrom), and their numbers are then
 * reused: only the file that was opened here is ever read from, written to or closed. */
typedef struct channel {
    /* -1: none */
    int number;
    dev_t device;
    ino_t inode;
} channel;

typedef struct helper {
    /* 0: its end was reported already */
    pid_t process;
    /* A pidfd, opened when the process is started: unlike its number, which is reused after a wait for the process, it never
     * means another process. None: the kernel has no pidfds, or a filter of system calls forbids them. */
    channel handle;
    /* Used if there is no handle, or if the host has closed it: start time of the process, in ticks since the system's start; 0:
     * unknown. */
    uint64_t began;
    channel connection;
    /* a file in memory: its standard error */
    channel errors;
} helper;

struct cpu_isolation {
    /* absolute */
    char path[4096];
    /* helpers are children of this process: a forked one starts its own */
    lib_process owner;
    lib_mutex mutex;
    int idle_count;
    helper idle[IDLE_HELPERS];
};

/* ---- processes */

dlc_status cpu_isolation_open(target_device *device, const char *path, lib_error *error) {
    struct cpu_isolation *isolation = lib_allocate_zeroed(&device->allocator, sizeof *isolation, 16);
    if (!isolation) return lib_fail(error, DLC_OUT_OF_MEMORY, "isolate_compiler: out of memory");
    isolation->owner = lib_process_here();
    lib_mutex_init(&isolation->mutex);
    device->isolation = isolation;
    LIB_TRY(cpu_find_helper(path, isolation->path, sizeof isolation->path, error));
    if (access(isolation->path, X_OK) == 0) return DLC_OK;
    return lib_fail(error, DLC_NOT_FOUND, "isolate_compiler: there is no program %s: %s (compiler_path names another)",
                    isolation->path, strerror(errno));
}

/* Start time of the process of that number; 0: there is none, or it is unknown. */
static uint64_t read_beginning(pid_t process) {
    char path[64], line[1024];
    unsigned long long ticks = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t count = read(file, line, sizeof line - 1);
    close(file);
    line[count > 0 ? count : 0] = 0;
    const char *at = strrchr(line, ')'); /* after the name: field 3 and on; the start time is field 22 */
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at && sscanf(at, "%llu", &ticks) == 1 ? ticks : 0;
}

static channel open_channel(int number) {
    struct stat file;
    channel c = {.number = -1};
    if (number >= 0 && fstat(number, &file) == 0) c = (channel){number, file.st_dev, file.st_ino};
    return c;
}

static bool is_ours(const channel *c) {
    struct stat file;
    return c->number >= 0 && fstat(c->number, &file) == 0 && file.st_dev == c->device && file.st_ino == c->inode;
}

static void close_channel(channel *c) {
    if (is_ours(c)) close(c->number);
    c->number = -1;
}

/* Is the handle still the pidfd of this helper? Before Linux 6.9 all pidfds have the same inode, so the process that the kernel reports for
 * the descriptor is compared as well: it must be the helper's, or gone. */
static bool handle_is_ours(const helper *h) {
    char path[64], text[512];
    long process = 0;
    if (!is_ours(&h->handle)) return false;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", h->handle.number);
    if (!lib_file_read_start(path, text, sizeof text)) return true;
    const char *line = strstr(text, "\nPid:");
    if (!line || sscanf(line, "\nPid: %ld", &process) != 1) return false;
    return process == h->process || (process == -1 && is_ours(&h->errors));
}

/* Without a handle: is the number still that of the process that was started? */
static bool number_is_ours(const helper *h) {
    return h->began && read_beginning(h->process) == h->began;
}

/* Kills the helper's process unless it has ended; never another process. */
static void kill_process(const helper *h) {
    if (handle_is_ours(h) &&
        (syscall(SYS_pidfd_send_signal, h->handle.number, SIGKILL, NULL, 0) == 0 || errno == ESRCH))
        return;
    if (number_is_ours(h)) kill(h->process, SIGKILL);
}

/* waitid, repeated while it is interrupted. False: it failed, and errno is set. */
static bool wait_by(idtype_t kind, id_t id, siginfo_t *info, int options) {
    int refused;
    do {
        memset(info, 0, sizeof *info);
        refused = waitid(kind, id, info, options);
    } while (refused && errno == EINTR);
    return !refused;
}

/* Has the helper's process ended? 1: yes, *status is that of waitpid; 0: it runs; -1: unknown, since another thread or the system has
 * waited for it. */
static int wait_for_end(const helper *h, bool patient, int *status) {
    const int options = WEXITED | (patient ? 0 : WNOHANG);
    siginfo_t info;
    *status = 0;
    bool told = handle_is_ours(h) && wait_by((idtype_t)CPU_P_PIDFD, (id_t)h->handle.number, &info, options);
    if (!told && number_is_ours(h)) told = wait_by(P_PID, (id_t)h->process, &info, options);
    if (!told) return -1;
    if (!info.si_pid) return 0;
    *status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
    return 1;
}

static void end_helper(helper *h) {
    int status;
    close_channel(&h->connection);
    if (h->process) {
        kill_process(h);
        wait_for_end(h, true, &status);
    }
    if (handle_is_ours(h)) close(h->handle.number);
    h->handle.number = -1;
    close_channel(&h->errors);
    h->process = 0;
}

void cpu_isolation_close(target_device *device) {
    struct cpu_isolation *isolation = device->isolation;
    if (!isolation) return;
    for (int i = 0; i < isolation->idle_count; i++) {
        if (!lib_process_is_here(&isolation->owner)) isolation->idle[i].process = 0; /* its parent waits for it */
        end_helper(&isolation->idle[i]);
    }
    lib_process_forget(&isolation->owner);
    lib_mutex_destroy(&isolation->mutex);
    lib_release(&device->allocator, isolation, sizeof *isolation, 16);
    device->isolation = NULL;
}

static int spawn(const char *path, int connection, int errors, pid_t *process) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char *words[] = {(char *)(uintptr_t)path, (char *)(uintptr_t) "--compile", NULL};
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    int refused = posix_spawn_file_actions_adddup2(&actions, connection, CPU_CONNECTION); /* may fail: it allocates */
    if (!refused) refused = posix_spawn_file_actions_adddup2(&actions, errors, 1);
    if (!refused) refused = posix_spawn_file_actions_adddup2(&actions, errors, 2);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0); /* a terminal's signals are for the host only */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    if (!refused) refused = posix_spawn(process, path, &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return refused;
}

/* None is a standard stream: the host's output must not go to helpers, and helpers' standard streams need these numbers. */
static bool open_channels(int pair[2], int *errors) {
    *errors = memfd_create("libdlc-compiler", MFD_CLOEXEC);
    if (!lib_file_leave_standard(errors) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
    bool first = lib_file_leave_standard(&pair[0]);
    return lib_file_leave_standard(&pair[1]) && first;
}

/* Gives up a process that can be neither stopped nor waited for safely: it ends by itself, because its connection is closed. */
static dlc_status abandon_helper(helper *h, lib_error *error) {
    const struct timespec moment = {.tv_nsec = 1000000};
    close_channel(&h->connection);
    close_channel(&h->errors);
    for (int i = 0; i < 200 && waitpid(h->process, NULL, WNOHANG) == 0; i++) nanosleep(&moment, NULL);
    return lib_fail(error, DLC_UNSUPPORTED,
                    "isolate_compiler: this process has neither pidfds nor /proc, so that no other can be told for "
                    "certain to be the compiler's");
}

static dlc_status start_helper(const struct cpu_isolation *isolation, helper *h, lib_error *error) {
    int pair[2] = {-1, -1}, errors = -1;
    int refused = open_channels(pair, &errors) ? spawn(isolation->path, pair[1], errors, &h->process) : errno;
    if (pair[1] >= 0) close(pair[1]);
    if (!refused) {
        int handle = (int)syscall(SYS_pidfd_open, h->process, 0);
        lib_file_leave_standard(&handle);
        h->handle = open_channel(handle);
        h->began = read_beginning(h->process);
        h->connection = open_channel(pair[0]);
        h->errors = open_channel(errors);
        return h->handle.number >= 0 || h->began ? DLC_OK : abandon_helper(h, error);
    }
    if (pair[0] >= 0) close(pair[0]);
    if (errors >= 0) close(errors);
    return lib_fail(error, refused == ENOMEM || refused == EAGAIN ? DLC_OUT_OF_MEMORY : DLC_COMPILE_FAILED,
                    "isolate_compiler: cannot start %s: %s", isolation->path, strerror(refused));
}

/* ---- one exchange */

typedef struct exchange {
    target_device *device;
    const target_budget *budget;
    helper helper;
    /* of lib_time_ns */
    uint64_t deadline_ns;
    bool timed_out, cancelled;
} exchange;

/* Waits until the connection is ready for `events`. False: the helper is gone, the deadline has passed, or the compilation was
 * cancelled. */
static bool wait_for(exchange *x, short events) {
    for (;;) {
        uint64_t now = lib_time_ns();
        x->cancelled = x->budget && lib_is_raised(x->budget->cancel);
        x->timed_out = now >= x->deadline_ns;
        if (x->cancelled || x->timed_out) return false;
        uint64_t left = (x->deadline_ns - now) / 1000000 + 1;
        struct pollfd wanted = {.fd = x->helper.connection.number, .events = events};
        int ready = poll(&wanted, 1, left < SLICE_MS ? (int)left : SLICE_MS);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
    }
}

static bool move(exchange *x, void *bytes, size_t size, bool out) {
    char *at = bytes;
    for (size_t done = 0; done < size;) {
        if (!wait_for(x, out ? POLLOUT : POLLIN)) return false;
        ssize_t count = out ? send(x->helper.connection.number, at + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                            : recv(x->helper.connection.number, at + done, size - done, MSG_DONTWAIT);
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (count <= 0) return false;
        done += (size_t)count;
    }
    return true;
}

/* The last part of the helper's standard error, on one line. */
static void read_errors(const helper *h, char *text, size_t size) {
    off_t end = lseek(h->errors.number, 0, SEEK_END), start = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
    ssize_t count = end > 0 ? pread(h->errors.number, text, size - 1, start) : 0;
    text[count > 0 ? count : 0] = 0;
    for (char *at = text; *at; at++)
        if (*at == '\n') *at = at[1] ? ' ' : 0;
}

static bool speaks_of_memory(const char *words) {
    return strstr(words, "bad_alloc") || strstr(words, "out of memory") || strstr(words, "Allocation failed") ||
           strstr(words, "length_error");
}

/* Does the helper's process run? *status: its exit status after its end; 0 if somebody else has waited for it. Forgets an ended process,
 * whose number may be reused. */
static bool still_runs(helper *h, int *status) {
    *status = 0;
    int ended = h->process ? wait_for_end(h, false, status) : -1;
    if (ended != 0) h->process = 0;
    return ended == 0;
}

/* Waits for the end of a helper that has closed its connection. Returns whether it still runs. */
static bool await_end(helper *h, int *status) {
    const struct timespec moment = {.tv_nsec = 1000000};
    bool running = true;
    for (int i = 0; i < 200 && running; i++) {
        nanosleep(&moment, NULL);
        running = still_runs(h, status);
    }
    return running;
}

/* Releases a failed helper and reports the cause as a status. */
static dlc_status fail_helper(exchange *x, lib_error *error) {
    char words[400], how[64] = "went silent";
    int status;
    read_errors(&x->helper, words, sizeof words);
    bool running = still_runs(&x->helper, &status);
    if (running && !x->timed_out && !x->cancelled) { /* it has closed its connection and is about to end */
        running = await_end(&x->helper, &status);
        read_errors(&x->helper, words, sizeof words);
    }
    if (!running && WIFSIGNALED(status)) snprintf(how, sizeof how, "ended by signal %d", WTERMSIG(status));
    if (!running && WIFEXITED(status)) snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
    end_helper(&x->helper);
    if (x->cancelled) return lib_fail(error, DLC_CANCELLED, "compilation was cancelled");
    if (x->timed_out)
        return lib_fail(error, DLC_BUDGET_EXCEEDED, "the compiler's process took too long and was stopped%s%s",
                        words[0] ? ": " : "", words);
    bool memory = speaks_of_memory(words);
    dlc_status result = !memory                          ? DLC_COMPILE_FAILED
                        : x->budget && x->budget->memory ? DLC_BUDGET_EXCEEDED
                                                         : DLC_OUT_OF_MEMORY;
    return lib_fail(error, result, "the compiler's process %s%s%s", how, words[0] ? ": " : "", words);
}

/* Sends a request (first_size bytes at `first`, the others at `rest`) and receives the reply, whose bytes belong to the caller. A reply
 * with an error status is a valid reply: the helper is kept. */
static dlc_status ask(exchange *x, const cpu_request *request, const void *first, size_t first_size, const void *rest,
                      target_object *bytes, lib_error *error) {
    cpu_reply reply;
    *bytes = (target_object){0};
    if (!move(x, (void *)(uintptr_t)request, sizeof *request, true) ||
        !move(x, (void *)(uintptr_t)first, first_size, true) ||
        !move(x, (void *)(uintptr_t)rest, (size_t)request->size - first_size, true) ||
        !move(x, &reply, sizeof reply, false))
        return fail_helper(x, error);
    if (reply.magic != CPU_REQUEST_MAGIC || reply.size > CPU_REPLY_MAX || reply.status < DLC_OK ||
        reply.status > DLC_INTERNAL)
        return fail_helper(x, error);
    char *got = cpu_allocate_object(x->device, (size_t)reply.size, bytes);
    if (!got || !move(x, got, (size_t)reply.size, false)) {
        cpu_release_object(x->device, bytes);
        dlc_status status = fail_helper(x, error);
        return got ? status : lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for %zu bytes of code", (size_t)reply.size);
    }
    got[reply.size] = 0;
    if (reply.status == DLC_OK) return DLC_OK;
    bool over = reply.status == DLC_OUT_OF_MEMORY && request->memory;
    lib_fail(error, over ? DLC_BUDGET_EXCEEDED : (dlc_status)reply.status, "%s", got);
    cpu_release_object(x->device, bytes);
    return over ? DLC_BUDGET_EXCEEDED : (dlc_status)reply.status;
}

static dlc_status greet(exchange *x, lib_error *error) {
    const target_device *device = x->device;
    cpu_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.features = device->features;
    hello.machine = device->machine;
    hello.verify = device->verify;
    hello.no_polls = device->no_polls;
    memcpy(hello.cpu, device->cpu, sizeof hello.cpu);
    memcpy(hello.attributes, device->attributes, sizeof hello.attributes);
    size_t id = strlen(lib_build_id) + 1;
    cpu_request request = {.magic = CPU_REQUEST_MAGIC, .size = id + sizeof hello, .kind = CPU_REQUEST_HELLO};
    target_object answer;
    LIB_TRY(ask(x, &request, lib_build_id, id, &hello, &answer, error));
    cpu_release_object(x->device, &answer);
    return DLC_OK;
}

/* Takes an idle helper that still runs, or starts one, into x->helper. */
static dlc_status take_helper(exchange *x, lib_error *error) {
    struct cpu_isolation *isolation = x->device->isolation;
    if (lib_process_is_here(&isolation->owner)) {
        for (;;) {
            bool any = false;
            lib_mutex_lock(&isolation->mutex);
            if ((any = isolation->idle_count > 0)) x->helper = isolation->idle[--isolation->idle_count];
            lib_mutex_unlock(&isolation->mutex);
            if (!any) break;
            struct pollfd state = {.fd = x->helper.connection.number, .events = POLLIN};
            if (is_ours(&x->helper.connection) && is_ours(&x->helper.errors) && poll(&state, 1, 0) == 0)
                return DLC_OK; /* nothing to read: it is idle */
            end_helper(&x->helper);
        }
    }
    LIB_TRY(start_helper(isolation, &x->helper, error));
    dlc_status status = greet(x, error);
    if (status != DLC_OK && x->helper.connection.number >= 0) end_helper(&x->helper);
    return status;
}

static void give_helper(exchange *x) {
    struct cpu_isolation *isolation = x->device->isolation;
    bool keep = lib_process_is_here(&isolation->owner); /* otherwise the mutex may be held for ever */
    if (keep) {
        lib_mutex_lock(&isolation->mutex);
        keep = isolation->idle_count < IDLE_HELPERS;
        if (keep) isolation->idle[isolation->idle_count++] = x->helper;
        lib_mutex_unlock(&isolation->mutex);
    }
    if (!keep) end_helper(&x->helper);
}

static char *print_kernels(lib_arena *arena, int count, const tir_kernel *const *kernels, size_t *size,
                           lib_error *error) {
    lib_scope scope, *outer = arena->scope;
    char *volatile text = NULL;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        lib_text printed;
        lib_text_init(&printed, arena);
        lib_text_add(&printed, "");
        for (int k = 0; k < count; k++) tir_kernel_print(&printed, kernels[k]);
        *size = printed.length;
        text = printed.data;
    }
    arena->scope = outer;
    if (!text) lib_fail(error, scope.error.status, "%s", scope.error.message);
    return text;
}

static dlc_status exchange_kernels(target_device *device, const target_budget *budget, cpu_request request,
                                   const tir_kernel *const *kernels, target_object *bytes, lib_error *error) {
    exchange x = {.device = device, .budget = budget};
    x.deadline_ns =
        budget && budget->deadline_ns ? budget->deadline_ns : lib_time_ns() + UINT64_C(1000000000) * DEFAULT_SECONDS;
    lib_arena arena;
    lib_arena_init(&arena, &device->allocator, NULL);
    size_t size;
    lib_error own;
    char *text = print_kernels(&arena, request.kernels, kernels, &size, &own);
    dlc_status status = text ? take_helper(&x, &own) : own.status;
    if (status == DLC_OK) {
        request.magic = CPU_REQUEST_MAGIC;
        request.memory = budget ? budget->memory : 0;
        request.size = size;
        status = ask(&x, &request, text, size, NULL, bytes, &own);
        if (x.helper.connection.number >= 0) give_helper(&x);
    }
    lib_arena_free(&arena);
    return status == DLC_OK ? DLC_OK : lib_fail(error, status, "%s", own.message);
}

dlc_status cpu_compile_isolated(target_device *device, const target_budget *budget, int count,
                                const tir_kernel *const *kernels, target_object *object, lib_error *error) {
    *object = (target_object){0};
    return exchange_kernels(device, budget, (cpu_request){.kind = CPU_REQUEST_OBJECT, .kernels = count}, kernels,
                            object, error);
}

dlc_status cpu_dump_isolated(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                             lib_error *error) {
    target_object bytes = {0};
    cpu_request request = {.kind = CPU_REQUEST_DUMP, .kernels = 1, .what = (int32_t)what};
    LIB_TRY(exchange_kernels(device, NULL, request, &kernel, &bytes, error));
    lib_scope *outer = text->arena->scope, scope;
    text->arena->scope = &scope;
    if (LIB_ENTER(&scope)) lib_text_add_bytes(text, bytes.bytes, bytes.size);
    text->arena->scope = outer;
    cpu_release_object(device, &bytes);
    return scope.error.status == DLC_OK ? DLC_OK : lib_fail(error, scope.error.status, "%s", scope.error.message);
}
