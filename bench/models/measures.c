/* Measurements other than contests and first calls, each in a process of its own: the table of them, both sides of the process. */
#include "bench/models/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    suite_measure_function *measure;
} measures[] = {
    {"decoding", suite_decoding},
    {"clients", suite_clients},
};

/* Runs the measurement of that name. Those that are not in the table are costs of libdlc alone. */
static int measure(const char *name, const engine *const engines[SUITE_ENGINES], const engine_task *tasks, int count,
                   double *numbers, char *message, size_t size) {
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++)
        if (strcmp(measures[i].name, name) == 0) return measures[i].measure(engines, tasks, numbers, message, size);
    return engines[SUITE_DLC]->cost(name, tasks, count, numbers, message, size);
}

/* ---- the child's side ------------------------------------------------------------------------------------------------------ */

/* Tasks of one model, one for each size of the inputs. */
typedef struct series {
    int count;
    engine_task *tasks;
    engine_input (*inputs)[ENGINE_MOST_INPUTS];
} series;

static void free_series(series *s) {
    for (int i = 0; s->inputs && i < s->count; i++) model_inputs_free(s->inputs[i], s->tasks[i].input_count);
    free(s->inputs), free(s->tasks);
}

static bool make_series(series *s, const char *path, const char *text, int threads) {
    const int count = (int)model_inputs_steps(text);
    *s = (series){0};
    s->tasks = calloc((size_t)count, sizeof *s->tasks);
    s->inputs = calloc((size_t)count, sizeof *s->inputs);
    while (s->tasks && s->inputs && s->count < count) {
        const int inputs = model_inputs_make(text, s->count, s->inputs[s->count]);
        if (inputs < 0) return false;
        s->tasks[s->count] =
            (engine_task){.path = path, .threads = threads, .input_count = inputs, .inputs = s->inputs[s->count]};
        s->count++;
    }
    return s->count == count;
}

/* Arguments: MEASURE PATH INPUTS THREADS PEERS */
int suite_measure_child(int argc, char **argv) {
    const engine *engines[SUITE_ENGINES] = {NULL};
    char message[512] = "malformed inputs";
    double numbers[ENGINE_MOST_NUMBERS];
    series all;
    if (argc != 5) return 2;
    int count = -1;
    if (make_series(&all, argv[1], argv[2], atoi(argv[3]))) {
        for (int e = SUITE_ENGINES - 1; e >= 0; e--)
            if (e == SUITE_DLC || strstr(argv[4], suite_engines[e]))
                engines[e] = suite_engine(e, message, sizeof message);
        for (int i = 0; i < ENGINE_MOST_NUMBERS; i++) numbers[i] = NAN;
        if (engines[SUITE_DLC])
            count = measure(argv[0], engines, all.tasks, all.count, numbers, message, sizeof message);
    }
    free_series(&all);
    for (int i = 0; i < count; i++) printf("%.9g ", numbers[i]);
    if (count < 0) printf("%s", message);
    return count < 0;
}

/* ---- the side of the suite -------------------------------------------------------------------------------------------------- */

void suite_measure(const char *path, const model_case *it, int threads, const char *peers, suite_measured *measured) {
    char text[1024], thread_text[16], *at = text;
    snprintf(thread_text, sizeof thread_text, "%d", threads);
    const char *const words[] = {it->measure, path, it->text, thread_text, peers, NULL};
    *measured = (suite_measured){.it = it};
    if (!suite_child_run(words, text, sizeof text)) {
        snprintf(measured->problem, sizeof measured->problem, "%.255s", *text ? text : "the process ended");
        return;
    }
    for (int i = 0; i < ENGINE_MOST_NUMBERS; i++) {
        char *end;
        measured->numbers[i] = strtod(at, &end);
        if (end == at) measured->numbers[i] = NAN;
        at = end;
    }
}
