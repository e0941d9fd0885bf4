/* First calls: a fresh process reads the file, gives a result, and tells when and with how much memory. */
#include "bench/bench.h"
#include "bench/models/suite.h"

#include <stdlib.h>
#include <string.h>

void suite_first_measure(int number, const char *path, const model_case *it, int threads, const char *cache,
                         suite_first *first) {
    char engine_text[16], thread_text[16], since[40], text[256];
    snprintf(engine_text, sizeof engine_text, "%d", number);
    snprintf(thread_text, sizeof thread_text, "%d", threads);
    snprintf(since, sizeof since, "%.9f", bench_now());
    const char *const words[] = {"first", engine_text, path, thread_text, it->text, since, cache ? cache : "", NULL};
    *first = (suite_first){0};
    if (suite_child_run(words, text, sizeof text) &&
        sscanf(text, "%lf %lf %lf", &first->seconds, &first->import, &first->bytes) == 3)
        return;
    *first = (suite_first){0};
    snprintf(first->problem, sizeof first->problem, "%s", *text ? text : "the process ended");
}

/* The most memory that the process has had, in bytes; 0: unknown. */
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
    const int count = model_inputs_make(argv[3], 0, inputs);
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
    if (state) it->close(state); /* closing writes kernels to the cache folder, too */
    model_inputs_free(inputs, count);
    return !good;
}
