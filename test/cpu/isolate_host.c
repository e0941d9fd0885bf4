/* isolate_compiler in a host that closes descriptors which are not its own, and in one whose system calls are filtered. This program is also
 * the compiler's process: it is started with --compile, and DLC_TEST_FAULT=hang says that it never answers. */
#include "cpu/isolated.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Runs in a child, whose exit status is what `body` returns: 0, or the line of what is wrong. */
static int in_child(int (*body)(int variant), int variant) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(body(variant));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int line_of(int line) {
    return line < 250 ? line : 250;
}
#define WANT(condition)                                                     \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            return line_of(__LINE__);                                       \
        }                                                                   \
    } while (0)

/* ---- descriptors */

enum { FIRST = 3, LAST = 40 };

static pid_t start_innocent(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    return child;
}

static bool lives(pid_t process) {
    int status;
    return waitpid(process, &status, WNOHANG) == 0;
}

static int count_descriptors(void) {
    int count = 0;
    for (int d = 0; d < 256; d++) count += fcntl(d, F_GETFD) != -1;
    return count;
}

typedef enum own_files { SOCKETS, PIDFDS, PIPES, NOTHING, OWN_KINDS } own_files;

/* The host closes all that it finds, opens files of its own under all those numbers, and goes on. */
static int close_all(int variant) {
    const own_files kind = variant % OWN_KINDS;
    const bool goes_on = variant / OWN_KINDS % 2, is_busy = variant / OWN_KINDS / 2;
    fixture f;
    int pair[2] = {-1, -1};
    struct stat before[LAST], after;
    open_device(&f, true, NULL);
    WANT(compile(&f, NULL) == DLC_OK);
    if (is_busy) WANT(compile(&f, NULL) == DLC_OK);
    for (int d = FIRST; d < LAST; d++) close(d);
    const int left = count_descriptors();
    pid_t innocent = start_innocent();
    if (kind == SOCKETS) WANT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    if (kind == PIPES) WANT(pipe(pair) == 0);
    if (kind == PIDFDS) {
        pair[0] = (int)syscall(SYS_pidfd_open, innocent, 0);
        if (pair[0] < 0) pair[0] = dup(0);
        pair[1] = dup(pair[0]);
    }
    for (int d = FIRST; d < LAST && kind != NOTHING; d++) {
        if (d != pair[0] && d != pair[1]) WANT(dup2(pair[0], d) == d);
        fstat(d, &before[d]);
    }
    if (goes_on)
        for (int i = 0; i < 2; i++) WANT(compile(&f, NULL) == DLC_OK);
    close_device(&f);
    for (int d = FIRST; d < LAST && kind != NOTHING; d++)
        WANT(fstat(d, &after) == 0 && after.st_ino == before[d].st_ino && after.st_dev == before[d].st_dev);
    if (kind == SOCKETS || kind == PIPES) { /* nothing was written there */
        struct pollfd state = {.fd = pair[kind == SOCKETS], .events = POLLIN};
        if (kind == PIPES) state.fd = pair[0];
        WANT(poll(&state, 1, 0) == 0);
    }
    if (kind == NOTHING) WANT(count_descriptors() == left);
    WANT(lives(innocent));
    kill(innocent, SIGKILL);
    WANT(waitpid(innocent, NULL, 0) == innocent);
    WANT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* no compiler's process is left */
    return 0;
}

static void test_closed_descriptors(void **state) {
    (void)state;
    for (int variant = 0; variant < 4 * OWN_KINDS; variant++)
        if (in_child(close_all, variant)) fail_msg("variant %d", variant);
}

/* ---- filters of system calls, as containers have them */

enum { NO_FILTERS = 254 /* the system has none */ };
enum { PIDFD_OPEN = 1, PIDFD_SEND = 2, PIDFD_WAIT = 4, MEMFD = 8, SOCKET = 16 };

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define SKIP_UNLESS(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (count))
#define ANSWER(code) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (code))

static bool forbid(int what, int code) {
    const uint32_t answer = (uint32_t)code;
    struct sock_filter filter[] = {
        LOAD(nr),       SKIP_UNLESS(what & PIDFD_OPEN ? SYS_pidfd_open : 0xffff, 1),
        ANSWER(answer), SKIP_UNLESS(what & PIDFD_SEND ? SYS_pidfd_send_signal : 0xffff, 1),
        ANSWER(answer), SKIP_UNLESS(what & MEMFD ? SYS_memfd_create : 0xffff, 1),
        ANSWER(answer), SKIP_UNLESS(what & SOCKET ? SYS_socketpair : 0xffff, 1),
        ANSWER(answer), SKIP_UNLESS(what & PIDFD_WAIT ? SYS_waitid : 0xffff, 3),
        LOAD(args[0]),  SKIP_UNLESS(3 /* P_PIDFD */, 1),
        ANSWER(answer), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static pid_t only_child(void) {
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)getpid());
    return lib_file_read_start(path, line, sizeof line) ? (pid_t)atol(line) : 0;
}

/* A child of this one that gets the given number; 0: the system does not let us choose. */
static pid_t start_with_number(pid_t number) {
    for (int i = 0; i < 200; i++) {
        FILE *file = fopen("/proc/sys/kernel/ns_last_pid", "w");
        if (!file) return 0;
        fprintf(file, "%ld", (long)number - 1);
        if (fclose(file) != 0) return 0;
        pid_t child = start_innocent();
        if (child == number) return child;
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return 0;
}

static const int forbidden[] = {
    0, PIDFD_OPEN, PIDFD_SEND, PIDFD_WAIT, PIDFD_SEND | PIDFD_WAIT, PIDFD_OPEN | PIDFD_SEND | PIDFD_WAIT};
enum { FORBIDDEN = sizeof forbidden / sizeof *forbidden };

/* It compiles, stops a process that hangs, tells how one ended, waits for all of its own, and leaves a stranger of the same number alone. */
static int live_filtered(int variant) {
    fixture f;
    const int what = forbidden[variant / 2], code = variant % 2 ? EPERM : ENOSYS;
    if (!forbid(what, code)) return NO_FILTERS;
    if (what & PIDFD_OPEN) WANT(syscall(SYS_pidfd_open, getpid(), 0) == -1 && errno == code);
    open_device(&f, true, NULL);
    WANT(compile(&f, NULL) == DLC_OK);
    siginfo_t ended; /* it is the library's to wait for */
    kill(only_child(), SIGKILL);
    WANT(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0);
    WANT(compile(&f, NULL) == DLC_OK);
    pid_t own = only_child();
    WANT(own > 0);
    kill(own, SIGKILL); /* a host that waits for all its children: the number goes to a stranger */
    WANT(waitpid(own, NULL, 0) == own);
    pid_t innocent = start_with_number(own);
    WANT(compile(&f, NULL) == DLC_OK);
    close_device(&f);
    if (innocent) {
        WANT(lives(innocent));
        kill(innocent, SIGKILL);
        WANT(waitpid(innocent, NULL, 0) == innocent);
    }
    open_device(&f, true, "hang");
    target_budget budget = {.deadline_ns = lib_time_ns() + 50000000};
    WANT(compile(&f, &budget) == DLC_BUDGET_EXCEEDED);
    close_device(&f);
    open_device(&f, true, "exit");
    WANT(compile(&f, NULL) == DLC_COMPILE_FAILED && strstr(f.error.message, "status 7"));
    close_device(&f);
    WANT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    return 0;
}

static void run_filtered(int (*body)(int variant), int variant) {
    int wrong = in_child(body, variant);
    if (wrong == NO_FILTERS) skip();
    if (wrong) fail_msg("variant %d", variant);
}

static void test_without_pidfds(void **state) {
    (void)state;
    for (int variant = 0; variant < 2 * FORBIDDEN; variant++) run_filtered(live_filtered, variant);
}

/* What the connection is made of is refused: a status, and nothing stays open. */
static int live_without_channels(int variant) {
    fixture f;
    open_device(&f, true, NULL);
    int before = count_descriptors();
    if (!forbid(variant % 2 ? MEMFD : SOCKET, variant / 2 ? EPERM : ENOSYS)) return NO_FILTERS;
    for (int i = 0; i < 2; i++)
        WANT(compile(&f, NULL) == DLC_COMPILE_FAILED && strstr(f.error.message, "cannot start"));
    WANT(count_descriptors() == before);
    close_device(&f);
    return 0;
}

static void test_without_channels(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) run_filtered(live_without_channels, variant);
}

static void misbehave(LLVMModuleRef module) {
    const char *fault = getenv("DLC_TEST_FAULT");
    (void)module;
    if (strcmp(fault, "exit") == 0) _exit(7);
    for (;;) pause();
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "--compile") == 0) {
        const char *fault = getenv("DLC_TEST_FAULT");
        return cpu_serve(fault && fault[0] ? misbehave : NULL);
    }
    if (!find_self()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_descriptors),
        cmocka_unit_test(test_without_pidfds),
        cmocka_unit_test(test_without_channels),
    };
    return cmocka_run_group_tests_name("hosts of isolated code generation", tests, NULL, NULL);
}
