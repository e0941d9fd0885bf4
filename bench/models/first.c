/* First calls: a fresh process reads the file, gives a result, and tells when and with how much memory. */
#include "bench/bench.h"
#include "bench/models/suite.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool become_child(int to, char *const *words) {
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0 || dup2(to, STDOUT_FILENO) < 0) return false;
    program[length] = 0;
    return execv(program, words) == 0;
}

/* What the child prints: numbers, or why it failed, which is false. */
static bool run_child(char *const *words, char *text, size_t size) {
    int pipes[2], status;
    if (pipe(pipes) != 0) return false;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(!become_child(pipes[1], words));
    close(pipes[1]);
    FILE *from = fdopen(pipes[0], "r");
    const size_t length = from ? fread(text, 1, size - 1, from) : 0;
    text[length] = 0;
    if (from) fclose(from);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void suite_first_measure(int number, const char *path, const model_case *it, int threads, const char *cache,
                         suite_first *first) {
    char engine_text[16], thread_text[16], since[40], text[256];
    snprintf(engine_text, sizeof engine_text, "%d", number);
    snprintf(thread_text, sizeof thread_text, "%d", threads);
    snprintf(since, sizeof since, "%.9f", bench_now());
    char *const words[] = {(char *)"suite",
                           (char *)"--child",
                           engine_text,
                           (char *)path,
                           thread_text,
                           (char *)it->text,
                           since,
                           (char *)(cache ? cache : ""),
                           NULL};
    *first = (suite_first){0};
    if (run_child(words, text, sizeof text) &&
        sscanf(text, "%lf %lf %lf", &first->seconds, &first->import, &first->bytes) == 3)
        return;
    *first = (suite_first){0};
    snprintf(first->problem, sizeof first->problem, "%s", *text ? text : "the process ended");
}

/* Bytes; 0: unknown. */
static double greatest_memory(void) {
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lf", &kib) == 1) break;
    if (file) fclose(file);
    return 1024 * kib;
}

/* NUMBER PATH THREADS INPUTS SINCE CACHE. Making the inputs does not count. */
int suite_first_child(int argc, char **argv) {
    char message[512] = "";
    engine_input inputs[ENGINE_MOST_INPUTS];
    const DLTensor *results[ENGINE_MOST_RESULTS];
    if (argc != 6) return 2;
    const double begin = bench_now();
    const int count = model_inputs_make(argv[3], inputs);
    const double begun = strtod(argv[4], NULL) + bench_now() - begin;
    double import = 0;
    const engine_task task = {.path = argv[1],
                              .threads = atoi(argv[2]),
                              .input_count = count,
                              .inputs = inputs,
                              .cache = *argv[5] ? argv[5] : NULL,
                              .import_seconds = &import};
    const engine *it = suite_engine(atoi(argv[0]), message, sizeof message);
    void *state = it && count >= 0 ? it->open(&task, message, sizeof message) : NULL;
    const bool good = state && it->results(state, results) >= 0;
    if (good)
        printf("%.6f %.6f %.0f\n", bench_now() - begun, import, greatest_memory());
    else
        printf("%s\n", message);
    fflush(stdout);
    if (state) it->close(state); /* writes what is kept on disk */
    model_inputs_free(inputs, count);
    return !good;
}
