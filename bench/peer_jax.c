/* JAX, XLA's code for the processor: steps of training. It runs in a process of its own, train_jax.py, to which a case is told through a pipe:
 * its line, for each operand a line with element type and dimensions and the bytes, and for each result the number of bytes. The answer is "ready",
 * how far f32 is off (bench_peer's `error`), and the results of the first step; or "none" and why. Then each line with a number asks for so many steps, which are answered by the
 * nanoseconds that they took together, measured there; the end of the pipe ends the process. */
#include "bench/peer.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct child {
    pid_t process;
    FILE *to, *from;
    double error;
} child;

static int threads = 1;

static void set_threads(int count) {
    threads = count;
}

static _Noreturn void be_child(int in, int out, const char *argument) {
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    for (int i = 3; i < 256; i++) close(i);
    char processors[32]; /* XLA takes as many threads */
    snprintf(processors, sizeof processors, "NPROC=%d", threads);
    execlp("env", "env", processors, "PYTHONPATH=" BENCH_JAX, "JAX_PLATFORMS=cpu", "python3", BENCH_JAX_SCRIPT,
           argument, (char *)NULL);
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
    if (!c || !fgets(text, (int)size, c->from)) snprintf(text, size, "JAX, which does not start");
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
    char line[160] = "";
    if (strcmp(problem->shape->kind, "train") != 0) return NULL;
    child *c = start("--serve");
    if (!c) return NULL;
    tell(c, problem);
    bool good = fgets(line, sizeof line, c->from) && sscanf(line, "ready %lf", &c->error) == 1;
    for (int i = 0; good && i < problem->result_count; i++)
        good = fread(problem->results[i].data, 1, problem->results[i].bytes, c->from) == problem->results[i].bytes;
    if (good) {
        snprintf(note, note_size, "jit, donated state");
        return c;
    }
    if (line[0]) printf("    jax: %s", line);
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

static double error(void *state) {
    return ((const child *)state)->error;
}

static void run(void *state) {
    time_steps(state, 1);
}

static void release(void *state) {
    stop(state);
}

const bench_peer *bench_peer_get(void) {
    static const bench_peer peer = {"jax", describe, set_threads, prepare, run, release, time_steps, error};
    return &peer;
}
