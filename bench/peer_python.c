/* Peers written in Python: steps of training and single derivatives in JAX and PyTorch. Each is a plug-in of its own, built with the macros
 * BENCH_NAME of the peer, BENCH_INTERPRETER, BENCH_PACKAGES (a folder), BENCH_SCRIPT, BENCH_WAY (an argument of the script) and BENCH_KINDS of
 * lines that it knows. The script runs in a process of its own, to which a case is told through a pipe: its line, the numbers of operands and of
 * results, for each operand a line with element type and dimensions and the bytes, and for each result the number of bytes. The answer is "ready", the nanoseconds of the first step, compilation included, how far f32 is off
 * (bench_peer's `error`), a note, and the results of that step, or "none" and why. Then each line with a number asks for so many steps, which are answered by the nanoseconds that they took
 * together, measured there, and a line "peak" for the bytes that a step takes at once; the end of the pipe ends the process. */
#include "bench/peer.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct child {
    pid_t process;
    FILE *to, *from;
    /* of the first step; bench_peer's `error` */
    double first, error;
} child;

static int threads = 1;

static void set_threads(int count) {
    threads = count;
}

static _Noreturn void be_child(int in, int out, const char *argument) {
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    for (int i = 3; i < 256; i++) close(i);
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    execlp("env", "env", "PYTHONPATH=" BENCH_PACKAGES, BENCH_INTERPRETER, BENCH_SCRIPT, argument, BENCH_WAY, count,
           (char *)NULL);
    _exit(127);
}

static void stop(child *c) {
    if (c->to) fclose(c->to);
    if (c->from) fclose(c->from);
    if (c->process > 0) waitpid(c->process, NULL, 0);
    free(c);
}

/* NULL: it cannot be started. */
static child *start(const char *argument) {
    int to[2], from[2];
    if (pipe(to)) return NULL;
    if (pipe(from)) return close(to[0]), close(to[1]), NULL;
    child *c = calloc(1, sizeof *c);
    if (!c) abort();
    signal(SIGPIPE, SIG_IGN); /* a child that ended is told by what it does not answer */
    c->process = fork();
    if (c->process == 0) be_child(to[0], from[1], argument);
    close(to[0]), close(from[1]);
    c->to = fdopen(to[1], "w"), c->from = fdopen(from[0], "r");
    if (c->process > 0 && c->to && c->from) return c;
    stop(c);
    return NULL;
}

static void describe(char *text, size_t size) {
    child *c = start("--version");
    if (!c || !fgets(text, (int)size, c->from)) snprintf(text, size, "does not start");
    text[strcspn(text, "\n")] = 0;
    if (c) stop(c);
}

static void tell(child *c, const bench_problem *p) {
    static const char *const names[DLC_DTYPE_COUNT] = {[DLC_F32] = "f32", [DLC_I64] = "i64"};
    fprintf(c->to, "%s\n%d %d\n", p->shape->text, p->operand_count, p->result_count);
    for (int i = 0; i < p->operand_count; i++) {
        const bench_operand *o = &p->operands[i];
        fprintf(c->to, "%s", names[o->dtype]);
        for (int d = 0; d < o->rank; d++) fprintf(c->to, " %lld", (long long)o->dims[d]);
        fprintf(c->to, "\n");
        fwrite(o->data, 1, o->bytes, c->to);
    }
    for (int i = 0; i < p->result_count; i++) fprintf(c->to, "%zu\n", p->results[i].bytes);
    fflush(c->to);
}

static void *prepare(const bench_problem *problem, char *note, size_t note_size) {
    char line[256] = "";
    if (!strstr(BENCH_KINDS, problem->shape->kind)) return NULL;
    child *c = start("--serve");
    if (!c) return NULL;
    tell(c, problem);
    bool good = fgets(line, sizeof line, c->from) && strncmp(line, "ready ", 6) == 0;
    for (int i = 0; good && i < problem->result_count; i++)
        good = fread(problem->results[i].data, 1, problem->results[i].bytes, c->from) == problem->results[i].bytes;
    if (good) {
        char *rest;
        c->first = strtod(line + 6, &rest) * 1e-9;
        c->error = strtod(rest, &rest);
        snprintf(note, note_size, "%.*s", (int)strcspn(rest, "\n"), rest);
        return c;
    }
    printf("    " BENCH_NAME ": %s", line[0] ? line : "it ended\n");
    stop(c);
    return NULL;
}

static double time_steps(void *state, int64_t calls) {
    child *c = state;
    char line[64] = "";
    fprintf(c->to, "%lld\n", (long long)calls);
    fflush(c->to);
    return fgets(line, sizeof line, c->from) ? strtod(line, NULL) * 1e-9 : 1e9;
}

static void run(void *state) {
    time_steps(state, 1);
}

static double first_step(const void *state) {
    return strcmp(BENCH_WAY, "compile") == 0 ? ((const child *)state)->first : 0;
}

static double peak(void *state) {
    child *c = state;
    char line[64] = "";
    fprintf(c->to, "peak\n");
    fflush(c->to);
    return fgets(line, sizeof line, c->from) ? strtod(line, NULL) : 0;
}

static double error(const void *state) {
    return ((const child *)state)->error;
}

static void release(void *state) {
    stop(state);
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {BENCH_NAME, describe,   set_threads, prepare, run,
                                    release,    time_steps, first_step,  error,   peak};
    return &peer;
}
