/* What libdlc costs beside runs: importing, a second runner, sizes that it has not seen, iterations of a loop that is walked. */
#include "bench/models/engine_dlc.h"
#include "bench/stats.h"
#include "test/onnx/encode.h"

#include <unistd.h>

/* A context, a model in it, and a runner of the model. */
typedef struct subject {
    dlc_context *context;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
    /* the first error */
    dlc_status status;
} subject;

static subject open_context(const engine_task *task, bool background) {
    subject s = {0};
    dlc_context_options how = engine_dlc_options(task);
    how.background_compile = background;
    s.status = dlc_context_create(&how, &s.context);
    return s;
}

static void open_runner(subject *s, const char *path) {
    if (!s->status) s->status = dlc_onnx_open(s->context, path, NULL, &s->model);
    if (!s->status) s->status = dlc_onnx_runner_create(s->model, NULL, &s->runner);
}

static bool finish(subject *s, char *why, size_t size) {
    if (s->status) snprintf(why, size, "%s", dlc_error_message(s->context));
    dlc_onnx_runner_destroy(s->runner);
    dlc_onnx_destroy(s->model);
    dlc_context_destroy(s->context);
    return !s->status;
}

/* Runs once, with new tensors as results; returns the seconds that it takes. */
static double run(subject *s, dlc_onnx_runner *runner, const DLTensor *const *given, int count) {
    dlc_output_slot slots[ENGINE_MOST_RESULTS] = {{0}};
    const int outputs = dlc_onnx_port_count(s->model, DLC_ONNX_OUTPUT);
    const double begin = engine_dlc_now();
    if (!s->status) s->status = dlc_onnx_run(runner, NULL, given, count, slots, outputs);
    const double seconds = engine_dlc_now() - begin;
    for (int i = 0; i < outputs; i++)
        if (slots[i].managed) slots[i].managed->deleter(slots[i].managed);
    return seconds;
}

/* Runs a task, whose inputs must be in the file's order; returns the seconds that the run takes. */
static double run_task(subject *s, dlc_onnx_runner *runner, const engine_task *task) {
    const DLTensor *given[ENGINE_MOST_INPUTS];
    for (int i = 0; i < task->input_count; i++) given[i] = &task->inputs[i].tensor;
    return run(s, runner, given, task->input_count);
}

static dlc_statistics statistics_of(const subject *s) {
    dlc_statistics now = DLC_STATISTICS_INIT;
    if (s->context) dlc_context_statistics(s->context, &now);
    return now;
}

/* ---- importing ------------------------------------------------------------------------------------------------------------- */

static double import_seconds(subject *s, const char *path) {
    enum { TIMES = 5 };
    double seconds[TIMES];
    for (int i = 0; i < TIMES; i++) {
        dlc_onnx_model *model = NULL;
        dlc_graph *graph = NULL;
        const double begin = engine_dlc_now();
        if (!s->status) s->status = dlc_onnx_open(s->context, path, NULL, &model);
        if (!s->status) s->status = dlc_onnx_graph(model, NULL, &graph);
        seconds[i] = engine_dlc_now() - begin;
        dlc_graph_destroy(graph);
        dlc_onnx_destroy(model);
    }
    return bench_median(seconds, TIMES);
}

/* Measures the import of the file, in milliseconds. */
static int cost_of_import(const engine_task *tasks, int count, double *numbers, char *why, size_t size) {
    subject s = open_context(tasks, false);
    (void)count;
    numbers[0] = 1e3 * import_seconds(&s, tasks->path);
    return finish(&s, why, size) ? 1 : -1;
}

/* Seconds that it takes to import a file of that many nodes, which follow one another. */
static double import_chain(subject *s, int nodes) {
    char path[] = "/tmp/dlc-nodes-XXXXXX";
    const int file = mkstemp(path);
    dlc_graph *graph = NULL;
    if (file < 0) s->status = DLC_NOT_FOUND;
    if (!s->status) s->status = dlc_graph_create(s->context, &graph);
    if (!s->status) {
        dlc_value x = dlc_input(graph, "x", DLC_F32, 1, (dlc_dim[]){{0, "n"}}), y = x;
        for (int i = 0; i < nodes; i++) y = i % 2 ? dlc_tanh(y) : dlc_add(y, x);
        dlc_output(graph, "y", y);
        s->status = dlc_onnx_write(s->context, path, graph, NULL);
    }
    dlc_graph_destroy(graph);
    const double seconds = import_seconds(s, path);
    if (file >= 0) close(file), unlink(path);
    return seconds;
}

/* Measures the import of as many nodes as the task's input has elements (10^5 without an input): seconds, and their ratio to those for half
 * as many nodes. */
static int cost_of_nodes(const engine_task *tasks, int count, double *numbers, char *why, size_t size) {
    subject s = open_context(tasks, false);
    const int nodes = tasks->input_count ? (int)tasks->inputs->shape[0] : 100000;
    (void)count;
    const double half = import_chain(&s, nodes / 2);
    numbers[0] = import_chain(&s, nodes);
    numbers[1] = numbers[0] / half;
    return finish(&s, why, size) ? 2 : -1;
}

/* ---- a second runner --------------------------------------------------------------------------------------------------------- */

/* Seconds from the creation of a second runner to its first result; *constants: bytes of constants while that runner lives. */
static double second_seconds(subject *s, const engine_task *task, double *constants) {
    dlc_onnx_runner *second = NULL;
    const double begin = engine_dlc_now();
    if (!s->status) s->status = dlc_onnx_runner_create(s->model, NULL, &second);
    run_task(s, second, task);
    const double seconds = engine_dlc_now() - begin;
    *constants = (double)statistics_of(s).constant_bytes;
    dlc_onnx_runner_destroy(second);
    return seconds;
}

/* Measures a second runner: milliseconds that it takes beyond a run (the least of several tries each), megabytes of constants and number of
 * kernels that are made for it. */
static int cost_of_second(const engine_task *tasks, int count, double *numbers, char *why, size_t size) {
    enum { TIMES = 5 };
    subject s = open_context(tasks, false);
    double steady = 1e9, second = 1e9, constants = 0;
    (void)count;
    open_runner(&s, tasks->path);
    run_task(&s, s.runner, tasks);
    const dlc_statistics before = statistics_of(&s);
    for (int i = 0; i < TIMES; i++) {
        const double again = run_task(&s, s.runner, tasks), other = second_seconds(&s, tasks, &constants);
        if (again < steady) steady = again;
        if (other < second) second = other;
    }
    const dlc_statistics after = statistics_of(&s);
    numbers[0] = 1e3 * (second - steady);
    numbers[1] = 1e-6 * (constants - (double)before.constant_bytes);
    numbers[2] = (double)(after.kernel_builds - before.kernel_builds);
    return finish(&s, why, size) ? 3 : -1;
}

/* ---- sizes ----------------------------------------------------------------------------------------------------------------- */

/* The tasks in random order (Fisher & Yates 1938), so that sizes do not only grow; NULL: no memory. */
static const engine_task **shuffled(const engine_task *tasks, int count) {
    const engine_task **order = calloc((size_t)count, sizeof *order);
    uint32_t state = 1;
    for (int i = 0; order && i < count; i++) {
        state = state * 1664525 + 1013904223; /* Numerical Recipes */
        const int other = (int)((state >> 8) % (uint32_t)(i + 1));
        order[i] = order[other], order[other] = &tasks[i];
    }
    return order;
}

static void wait_for_background(const subject *s) {
    for (int i = 0; i < 2000; i++) {
        const dlc_statistics now = statistics_of(s);
        if (now.tier_specialised + now.tier_failures >= now.tier_generic) return;
        usleep(5000);
    }
}

/* Kernels built for all sizes over the most that one of them took: some sizes have more regions than others (attention to one key). */
static double builds_of_sizes(subject *s, const engine_task *const *tasks, int count) {
    double all = 0, most = 0;
    for (int i = 0; i < count; i++) {
        run_task(s, s->runner, tasks[i]);
        const double before = all;
        all = (double)statistics_of(s).kernel_builds;
        if (all - before > most) most = all - before;
    }
    return all / most;
}

/* The time of the first run for a size, over twice that of later runs and a millisecond; kernels are compiled in the background. */
static double answer_of_size(subject *s, const engine_task *task) {
    wait_for_background(s);
    const double first = run_task(s, s->runner, task);
    wait_for_background(s);
    const double one = run_task(s, s->runner, task), two = run_task(s, s->runner, task);
    if (getenv("BENCH_TELL")) fprintf(stderr, "%.3f ms, then %.3f and %.3f\n", 1e3 * first, 1e3 * one, 1e3 * two);
    return first / (2 * (one < two ? one : two) + 1e-3);
}

/* The median of answer_of_size over all sizes but the first, for which generic kernels are compiled. */
static double answers_of_sizes(subject *s, const engine_task *const *tasks, int count) {
    double *ratios = calloc((size_t)count, sizeof *ratios);
    if (!ratios) return s->status = DLC_OUT_OF_MEMORY, 0;
    run_task(s, s->runner, tasks[0]);
    for (int i = 1; i < count && !s->status; i++) ratios[i - 1] = answer_of_size(s, tasks[i]);
    const double median = bench_median(ratios, count - 1);
    free(ratios);
    return median;
}

static int cost_of_sizes(const engine_task *tasks, int count, double *numbers, char *why, size_t size) {
    const engine_task **order = shuffled(tasks, count);
    bool good = order != NULL;
    if (!good) snprintf(why, size, "no memory");
    for (int background = 0; good && background < 2; background++) {
        subject s = open_context(tasks, background);
        open_runner(&s, tasks->path);
        numbers[background] = background ? answers_of_sizes(&s, order, count) : builds_of_sizes(&s, order, count);
        good = finish(&s, why, size);
    }
    free(order);
    return good ? 2 : -1;
}

/* ---- a walked loop ----------------------------------------------------------------------------------------------------------- */

/* Adds a node, given as "OPERATOR OUTPUT INPUT...". Concat and Gather are along axis 0, Cast is to `type`. */
static void add_node(message *graph, const char *line, int type) {
    message node = {0}, attribute = {0};
    char text[64], *rest = text;
    snprintf(text, sizeof text, "%s", line);
    const char *operator= strtok_r(rest, " ", &rest), *output = strtok_r(rest, " ", &rest);
    for (char *input; (input = strtok_r(rest, " ", &rest)) != NULL;) add_text(&node, 1, input);
    add_text(&node, 2, output), add_text(&node, 4, operator);
    const bool cast = strcmp(operator, "Cast") == 0;
    if (cast || strcmp(operator, "Concat") == 0 || strcmp(operator, "Gather") == 0) {
        add_text(&attribute, 1, cast ? "to" : "axis"), add_int(&attribute, 3, type), add_int(&attribute, 20, 2);
        add_message(&node, 5, attribute);
    }
    add_message(graph, 1, node);
}

static void add_integer(message *graph, const char *name, int rank, int64_t value) {
    message tensor = tensor_of(name, 7, rank, (int64_t[]){1});
    add_data(&tensor, 9, &value, sizeof value);
    add_message(graph, 5, tensor);
}

/* Writes a model whose loop makes x[0] iterations, each of which appends a number to the carried value. */
static message growing_model(void) {
    message graph = {0}, body = {0}, node = {0}, attribute = {0};
    add_node(&body, "Unsqueeze at i zeros", 0), add_node(&body, "Cast number at", 1);
    add_node(&body, "Concat longer carried number", 0), add_node(&body, "Identity on go", 0);
    add_text(&body, 2, "body");
    add_message(&body, 11, port_of("i", 7, "")), add_message(&body, 11, port_of("go", 9, ""));
    add_message(&body, 11, port_of("carried", 1, "n"));
    add_message(&body, 12, port_of("on", 9, "")), add_message(&body, 12, port_of("longer", 1, "m"));

    add_node(&graph, "Gather first x zero", 0), add_node(&graph, "Cast count first", 7);
    add_text(&node, 1, "count"), add_text(&node, 1, ""), add_text(&node, 1, "x");
    add_text(&node, 2, "y"), add_text(&node, 4, "Loop");
    add_text(&attribute, 1, "body"), add_message(&attribute, 6, body), add_int(&attribute, 20, 5);
    add_message(&node, 5, attribute);
    add_message(&graph, 1, node);
    add_text(&graph, 2, "main");
    add_integer(&graph, "zero", 0, 0), add_integer(&graph, "zeros", 1, 0);
    add_message(&graph, 11, port_of("x", 1, "1")), add_message(&graph, 12, port_of("y", 1, "n"));
    return model_of(graph);
}

/* The least time of a run with that many iterations, in seconds. */
static double loop_seconds(subject *s, int iterations) {
    float x = (float)iterations;
    int64_t shape = 1;
    const DLTensor tensor = {.data = &x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = &shape};
    double least = 1e9;
    for (int i = 0; i < 8; i++) {
        const double seconds = run(s, s->runner, (const DLTensor *[]){&tensor}, 1);
        if (seconds < least) least = seconds;
    }
    return least;
}

/* Microseconds that an iteration takes; its kernels, which append a number to a few hundred, take less than one of them. */
static int cost_of_loop(const engine_task *tasks, int count, double *numbers, char *why, size_t size) {
    message bytes = growing_model();
    subject s = open_context(tasks, false);
    (void)count;
    if (!s.status) s.status = dlc_onnx_parse(s.context, bytes.data, bytes.size, NULL, &s.model);
    if (!s.status) s.status = dlc_onnx_runner_create(s.model, NULL, &s.runner);
    numbers[0] = 1e6 * (loop_seconds(&s, 600) - loop_seconds(&s, 100)) / 500;
    const bool good = finish(&s, why, size);
    free(bytes.data);
    return good ? 1 : -1;
}

/* ---- the table --------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*measure)(const engine_task *tasks, int count, double *numbers, char *why, size_t size);
} costs[] = {
    {"import", cost_of_import}, {"nodes", cost_of_nodes}, {"second", cost_of_second},
    {"sizes", cost_of_sizes},   {"loop", cost_of_loop},
};

int engine_dlc_cost(const char *name, const engine_task *tasks, int count, double numbers[ENGINE_MOST_NUMBERS],
                    char *why, size_t size) {
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (strcmp(costs[i].name, name) == 0) return costs[i].measure(tasks, count, numbers, why, size);
    snprintf(why, size, "no cost %s", name);
    return -1;
}
