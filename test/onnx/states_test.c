/* States of runners: found by names, kept without copies, and caches that grow in memory with room. A decoder built by the public builder, written as a
 * model and run token by token must give the tokens of whole sequences. */
#include "api/support.h"
#include "examples/generate/decoder.h"
#include "onnx/encode.h"
#include "test/share.h"

#include <dlc/onnx.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static dlc_context *context;

/* ---- models written here ------------------------------------------------------------------------------------------------- */

/* OPERATOR OUTPUT INPUT...; Concat along the axis. */
static void add_node(message *g, const char *line, int axis) {
    message node = node_line(line), attribute = {0};
    if (strncmp(line, "Concat ", 7) == 0) {
        add_text(&attribute, 1, "axis"), add_int(&attribute, 3, axis), add_int(&attribute, 20, 2);
        add_message(&node, 5, attribute);
    }
    add_message(g, 1, node);
}

static dlc_onnx_model *model_from(message graph, message *bytes) {
    dlc_onnx_model *model;
    *bytes = model_of(graph);
    OK(context, dlc_onnx_parse(context, bytes->data, bytes->size, NULL, &model));
    return model;
}

static dlc_onnx_runner *runner_of(dlc_onnx_model *model) {
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    dlc_onnx_runner *runner;
    options.find_states = true;
    OK(context, dlc_onnx_runner_create(model, &options, &runner));
    return runner;
}

static void finish(dlc_onnx_runner *runner, dlc_onnx_model *model, message bytes) {
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

static uint64_t copied(void) {
    return statistics(context).copied_bytes;
}

/* ---- names ------------------------------------------------------------------------------------------------------------- */

static void check_pair(const char *input, const char *in, const char *output, const char *out, bool found) {
    message g = started(), bytes;
    dlc_onnx_port port;
    add_node(&g, "Identity spare x", 0);
    message copy = {0};
    add_text(&copy, 1, input), add_text(&copy, 2, output), add_text(&copy, 4, "Identity");
    add_message(&g, 1, copy);
    add_message(&g, 11, port_of("x", 1, "n"));
    add_message(&g, 11, port_of(input, 1, in));
    add_message(&g, 12, port_of("spare", 1, "n"));
    add_message(&g, 12, port_of(output, 1, out));
    dlc_onnx_model *model = model_from(g, &bytes);
    OK(context, dlc_onnx_port_at(model, DLC_ONNX_INPUT, 1, &port));
    if (port.state != (found ? 1 : -1)) fail_msg("%s, %s: %d", input, output, port.state);
    OK(context, dlc_onnx_port_at(model, DLC_ONNX_OUTPUT, 1, &port));
    assert_int_equal(port.state, found ? 1 : -1);
    OK(context, dlc_onnx_port_at(model, DLC_ONNX_INPUT, 0, &port));
    assert_int_equal(port.state, -1);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

static void test_names(void **state) {
    (void)state;
    check_pair("past", "b p 4", "present", "b t 4", true);
    check_pair("past_key_values.0.key", "b 2 p 4", "present.0.key", "b 2 t 4", true);
    check_pair("past_3", "2 b p 4", "present_3", "2 b t 4", true);
    check_pair("state", "2 b 8", "stateN", "2 b 8", true);
    check_pair("h0", "1 b 8", "hn", "1 b 8", true);
    check_pair("c", "1 b 8", "cn", "1 b 8", true);
    check_pair("cache_in", "b 8", "cache_out", "b 8", true);
    check_pair("cache", "b 8", "cache_out", "-", true);
    check_pair("past", "b p 4", "present", "b t 5", false);     /* two sizes differ */
    check_pair("past", "b p 4", "present", "b p 4 1", false);   /* ranks differ */
    check_pair("past_0", "b p 4", "present_1", "b t 4", false); /* names differ */
    check_pair("first", "b 8", "second", "b 8", false);
}

/* ---- states of one shape ------------------------------------------------------------------------------------------------ */

/* hn = h0 + x; y = hn * hn */
static dlc_onnx_model *sum_model(message *bytes) {
    message g = started();
    add_node(&g, "Add hn x h0", 0);
    add_node(&g, "Mul y hn hn", 0);
    add_message(&g, 11, port_of("x", 1, "n 3"));
    add_message(&g, 11, port_of("h0", 1, "n 3"));
    add_message(&g, 12, port_of("y", 1, "n 3"));
    add_message(&g, 12, port_of("hn", 1, "n 3"));
    return model_from(g, bytes);
}

static void test_one_shape(void **state) {
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    dlc_onnx_runner *runner = runner_of(model);
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6], h[6];
    tensor tx, ty, th;
    const uint64_t before = copied();
    for (int turn = 1; turn <= 8; turn++) {
        if (turn == 6) dlc_onnx_runner_reset(runner);
        const float times = (float)(turn < 6 ? turn : turn - 5);
        dlc_output_slot slots[2] = {{F32(&ty, y, 2, 3), NULL}, {turn == 3 ? F32(&th, h, 2, 3) : NULL, NULL}};
        OK(context, dlc_onnx_run(runner, NULL, (const DLTensor *[]){F32(&tx, x, 2, 3), NULL}, 2, slots, 2));
        assert_null(slots[1].managed);
        for (int i = 0; i < 6; i++) assert_true(y[i] == times * x[i] * times * x[i]);
        for (int i = 0; i < 6 && turn == 3; i++) assert_true(h[i] == 3 * x[i]);
    }
    assert_int_equal(copied(), before);
    finish(runner, model, bytes);
}

/* Without the option nothing is a state. */
static void test_not_asked(void **state) {
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    dlc_onnx_runner *runner;
    OK(context, dlc_onnx_runner_create(model, NULL, &runner));
    float x[3] = {1, 2, 3};
    tensor tx;
    dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
    assert_int_equal(dlc_onnx_run(runner, NULL, (const DLTensor *[]){F32(&tx, x, 1, 3), NULL}, 2, slots, 2),
                     DLC_INVALID_ARGUMENT);
    finish(runner, model, bytes);
}

/* ---- caches ---------------------------------------------------------------------------------------------------------------- */

enum { ROWS = 2, WIDTH = 3 };

/* present = past and 2 x, one after the other; y: the greatest element. */
static dlc_onnx_model *cache_model(message *bytes) {
    message g = started();
    add_node(&g, "Add twice x x", 0);
    add_node(&g, "Concat present past twice", 1);
    add_node(&g, "ReduceMax y present", 0);
    add_message(&g, 11, port_of("x", 1, "b s 3"));
    add_message(&g, 11, port_of("past", 1, "b p 3"));
    add_message(&g, 12, port_of("present", 1, "b t 3"));
    add_message(&g, 12, port_of("y", 1, "* * *"));
    return model_from(g, bytes);
}

static float number(int64_t row, int64_t at, int64_t column) {
    return (float)(row * 100 + at * 7 % 50 + column);
}

static void check_cache(const float *data, int64_t count) {
    for (int64_t i = 0; i < ROWS * count * WIDTH; i++)
        if (data[i] != 2 * number(i / (count * WIDTH), i / WIDTH % count, i % WIDTH))
            fail_msg("element %lld of %lld is %g", (long long)i, (long long)count, (double)data[i]);
}

/* Adds n elements behind `at`; the cache so far, if it is given; the new one, if it is wanted. */
static dlc_status step(dlc_onnx_runner *runner, int64_t at, int64_t n, const DLTensor *past, DLTensor *present) {
    float x[ROWS * 64 * WIDTH], most = 0;
    tensor tx;
    for (int64_t i = 0; i < ROWS * n * WIDTH; i++) x[i] = number(i / (n * WIDTH), at + i / WIDTH % n, i % WIDTH);
    for (int64_t i = 0; i < at + n; i++) most = fmaxf(most, 2 * number(ROWS - 1, i, WIDTH - 1));
    dlc_output_slot slots[2] = {{present, NULL}, {NULL, NULL}};
    const DLTensor *inputs[] = {F32(&tx, x, ROWS, n, WIDTH), past};
    const dlc_status status = dlc_onnx_run(runner, NULL, inputs, 2, slots, 2);
    if (status != DLC_OK) return status;
    assert_null(slots[0].managed);
    assert_true(*(const float *)slots[1].managed->dl_tensor.data == most);
    slots[1].managed->deleter(slots[1].managed);
    return DLC_OK;
}

/* A step copies nothing; a larger buffer costs a copy now and then; no kernel is built for a length. */
static void test_cache(void **state) {
    message bytes;
    (void)state;
    dlc_onnx_model *model = cache_model(&bytes);
    dlc_onnx_runner *runner = runner_of(model);
    static float all[ROWS * 64 * WIDTH];
    tensor ta;
    for (int turn = 0; turn < 2; turn++) {
        uint64_t builds = 0, bytes_of_cache = 0;
        int moves = 0;
        for (int64_t at = 0, n = 5, i = 0; at + n < 200; at += n, n = 1, i++) {
            const uint64_t before = copied();
            OK(context, step(runner, at, n, NULL, at + n < 64 ? F32(&ta, all, ROWS, at + n, WIDTH) : NULL));
            if (at + n < 64) check_cache(all, at + n);
            bytes_of_cache = (uint64_t)(ROWS * at * WIDTH) * sizeof *all;
            moves += copied() != before;
            assert_true(copied() == before || copied() == before + bytes_of_cache);
            if (i == 8) builds = statistics(context).kernel_builds;
        }
        assert_true(moves <= 7);
        assert_int_equal(statistics(context).kernel_builds, builds);
        dlc_onnx_runner_reset(runner);
    }
    finish(runner, model, bytes);
}

/* The host may give a cache in place of the runner's; a run that fails leaves it as it was. */
static void test_given_cache(void **state) {
    message bytes;
    (void)state;
    dlc_onnx_model *model = cache_model(&bytes);
    dlc_onnx_runner *runner = runner_of(model);
    static float past[ROWS * 64 * WIDTH], all[ROWS * 64 * WIDTH];
    tensor tp, ta, wrong;
    for (int64_t i = 0; i < ROWS * 6 * WIDTH; i++) past[i] = 2 * number(i / (6 * WIDTH), i / WIDTH % 6, i % WIDTH);
    OK(context, step(runner, 0, 3, NULL, NULL));
    OK(context, step(runner, 6, 2, F32(&tp, past, ROWS, 6, WIDTH), F32(&ta, all, ROWS, 8, WIDTH)));
    check_cache(all, 8);
    assert_int_equal(step(runner, 8, 1, NULL, F32(&wrong, all, ROWS, 8, WIDTH)), DLC_INVALID_ARGUMENT);
    OK(context, step(runner, 8, 1, NULL, F32(&ta, all, ROWS, 9, WIDTH)));
    check_cache(all, 9);
    assert_int_equal(step(runner, 9, 1, F32(&wrong, past, ROWS + 1, 2, WIDTH), NULL), DLC_INVALID_ARGUMENT);
    OK(context, step(runner, 9, 1, NULL, F32(&ta, all, ROWS, 10, WIDTH)));
    check_cache(all, 10);
    make_tensor(&ta, DLC_F32, all, 3, SHAPE(ROWS, 11, WIDTH)); /* with strides of its own */
    ta.strides[0] = 1, ta.strides[1] = ROWS, ta.strides[2] = ROWS * 11;
    ta.dl.strides = ta.strides;
    OK(context, step(runner, 10, 1, NULL, &ta.dl));
    for (int64_t i = 0; i < ROWS * 11 * WIDTH; i++)
        assert_true(all[i] == 2 * number(i % ROWS, i / ROWS % 11, i / (ROWS * 11)));
    finish(runner, model, bytes);
}

/* A cache whose file does not say that it grows is given at the first run; one that is no concatenation is made anew. */
static void test_other_growth(void **state) {
    message g = started(), bytes;
    (void)state;
    add_node(&g, "Concat present x past", 0);
    add_message(&g, 11, port_of("past", 1, "p"));
    add_message(&g, 11, port_of("x", 1, "1"));
    add_message(&g, 12, port_of("present", 1, "p"));
    dlc_onnx_model *model = model_from(g, &bytes);
    dlc_onnx_runner *runner = runner_of(model);
    float x = 0, all[9];
    tensor tx, empty, ta;
    dlc_output_slot slot = {NULL, NULL};
    const DLTensor *inputs[] = {NULL, F32(&tx, &x, 1)};
    assert_int_equal(dlc_onnx_run(runner, NULL, inputs, 2, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "dimension 0 of state past"));
    for (int now = 1; now <= 9; now++) {
        slot.tensor = F32(&ta, all, now);
        inputs[0] = now == 1 ? F32(&empty, all, 0) : NULL;
        x = (float)now;
        OK(context, dlc_onnx_run(runner, NULL, inputs, 2, &slot, 1));
        for (int i = 0; i < now; i++) assert_true(all[i] == (float)(now - i));
    }
    finish(runner, model, bytes);
}

/* ---- a decoder --------------------------------------------------------------------------------------------------------------- */

enum { LAYERS = 2, VOCABULARY = 50, TOKENS = 40, PROMPT = 6 };

static char folder[] = "/tmp/dlc_states_XXXXXX";

static const char *decoder_file(void) {
    static char path[64];
    static const decoder_sizes sizes = {LAYERS, 2, 8, VOCABULARY, 64};
    decoder d;
    dlc_graph *graph;
    if (*path) return path;
    snprintf(path, sizeof path, "%s/decoder.onnx", folder);
    assert_true(decoder_make(&d, sizes));
    OK(context, decoder_graph(context, &d, &graph));
    OK(context, dlc_onnx_write(context, path, graph, NULL));
    dlc_graph_destroy(graph);
    decoder_free(&d);
    return path;
}

/* Logits of the last of these tokens: of all of them by a runner without states, or of those that its states do not have. */
static void run_decoder(dlc_onnx_runner *runner, const int64_t *tokens, int64_t count, bool states, float *logits) {
    enum { PORTS = 1 + 2 * LAYERS };
    tensor ids, empty;
    const DLTensor *inputs[PORTS] = {&make_tensor(&ids, DLC_I64, (void *)(uintptr_t)tokens, 2, SHAPE(1, count))->dl};
    dlc_output_slot slots[PORTS] = {{NULL, NULL}};
    for (int i = 1; i < PORTS && !states; i++)
        inputs[i] = &make_tensor(&empty, DLC_F32, logits, 4, SHAPE(1, 2, 0, 8))->dl;
    OK(context, dlc_onnx_run(runner, NULL, inputs, PORTS, slots, PORTS));
    const DLTensor *y = &slots[PORTS - 1].managed->dl_tensor;
    CHECK(y->ndim == 3 && y->shape[1] == count && y->shape[2] == VOCABULARY);
    memcpy(logits, (const float *)y->data + (count - 1) * VOCABULARY, VOCABULARY * sizeof *logits);
    for (int o = 0; o < PORTS; o++) {
        CHECK(!slots[o].managed == (states && o < PORTS - 1));
        if (slots[o].managed) slots[o].managed->deleter(slots[o].managed);
    }
}

static void check_logits(const float *a, const float *b) {
    for (int i = 0; i < VOCABULARY; i++)
        if (fabsf(a[i] - b[i]) > 1e-4f) failed("logit %d is %g, expected %g", i, (double)a[i], (double)b[i]);
}

static int64_t best(const float *logits) {
    int64_t at = 0;
    for (int i = 1; i < VOCABULARY; i++)
        if (logits[i] > logits[at]) at = i;
    return at;
}

/* Prompt at once, then one by one, the lengths of others in between: the numbers of the whole sequence, and no kernel after the 8th. */
static void test_decoder(void **state) {
    static float logits[VOCABULARY], whole[VOCABULARY];
    int64_t tokens[TOKENS] = {1, 2, 3, 4, 5, 6};
    (void)state;
    TEST_WITHOUT_THREADS();
    dlc_onnx_model *model;
    OK(context, dlc_onnx_open(context, decoder_file(), NULL, &model));
    dlc_onnx_runner *runner = runner_of(model), *stateless;
    OK(context, dlc_onnx_runner_create(model, NULL, &stateless));
    for (int turn = 0; turn < 2; turn++) {
        uint64_t builds = 0;
        for (int64_t done = 0, at = PROMPT; at < TOKENS; done = at++) {
            const uint64_t before = statistics(context).kernel_builds;
            run_decoder(runner, tokens + done, at - done, true, logits);
            builds += at > PROMPT + 8 ? statistics(context).kernel_builds - before : 0;
            run_decoder(stateless, tokens, at, false, whole);
            check_logits(logits, whole);
            tokens[at] = best(whole);
        }
        assert_int_equal(builds, 0);
        dlc_onnx_runner_reset(runner);
    }
    dlc_onnx_runner_destroy(stateless);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
}

typedef struct client {
    dlc_onnx_model *model;
    dlc_onnx_runner *shared;
    float logits[VOCABULARY];
} client;

static void run_client(void *argument) {
    client *c = argument;
    const int64_t tokens[TOKENS] = {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    dlc_onnx_runner *runner = c->shared ? c->shared : runner_of(c->model);
    for (int64_t at = 0; at < 12; at++) run_decoder(runner, tokens + at, 1, true, c->logits);
    if (!c->shared) dlc_onnx_runner_destroy(runner);
}

/* Runners of one model at once, each with its own states; and one that threads share, whose runs wait for each other. */
static void test_threads(void **state) {
    enum { CLIENTS = 3 };
    static client clients[CLIENTS];
    thread threads[CLIENTS];
    (void)state;
    dlc_onnx_model *model;
    OK(context, dlc_onnx_open(context, decoder_file(), NULL, &model));
    dlc_onnx_runner *shared = runner_of(model);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CLIENTS; i++) {
            clients[i].model = model, clients[i].shared = round ? shared : NULL;
            start_thread(&threads[i], run_client, &clients[i]);
        }
        join_threads(threads, CLIENTS);
        for (int i = 1; i < CLIENTS && !round; i++) check_logits(clients[i].logits, clients[0].logits);
    }
    dlc_onnx_runner_destroy(shared);
    dlc_onnx_destroy(model);
}

/* ---- mistakes ------------------------------------------------------------------------------------------------------------------ */

/* Tensors for a state's output that cannot take a copy are refused before the run, and the state stays. */
static void test_wrong_outputs(void **state) {
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    dlc_onnx_runner *runner = runner_of(model);
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6], h[6];
    tensor tx, ty, th;
    const DLTensor *inputs[] = {F32(&tx, x, 2, 3), NULL};
    dlc_output_slot slots[2] = {{F32(&ty, y, 2, 3), NULL}, {F32(&th, h, 2, 3), NULL}};
    OK(context, dlc_onnx_run(runner, NULL, inputs, 2, slots, 2));
    static const char *const words[] = {"hn has no data",          "hn has no shape", "hn has rank -1",
                                        "hn and y overlap",        "overlaps input",  "elements overlap",
                                        "has size -2 along axis 0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        bool begun = true;
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.begun = &begun;
        slots[1].tensor = F32(&th, h, 2, 3);
        switch (i) {
        case 0: th.dl.data = NULL; break;
        case 1: th.dl.shape = NULL; break;
        case 2: th.dl.ndim = -1; break;
        case 3: th.dl.data = y; break;
        case 4: th.dl.data = x; break;
        case 5: th.dl.strides = memset(th.strides, 0, sizeof th.strides); break;
        default: th.shape[0] = -2; break;
        }
        memset(y, 0, sizeof y);
        assert_int_equal(dlc_onnx_run(runner, &options, inputs, 2, slots, 2), DLC_INVALID_ARGUMENT);
        if (!strstr(dlc_error_message(context), words[i])) fail_msg("%s", dlc_error_message(context));
        assert_true(y[5] == 0 && !begun);
    }
    slots[1].tensor = F32(&th, h, 2, 3);
    OK(context, dlc_onnx_run(runner, NULL, inputs, 2, slots, 2));
    for (int i = 0; i < 6; i++) assert_true(h[i] == 2 * x[i] && y[i] == h[i] * h[i]);
    finish(runner, model, bytes);
}

/* A run that is refused has not begun, and there is no event. */
static void test_nothing_begun(void **state) {
    message bytes;
    (void)state;
    dlc_onnx_model *model = sum_model(&bytes);
    dlc_onnx_runner *runner = runner_of(model);
    float x[6] = {0};
    tensor tx;
    const DLTensor *inputs[] = {F32(&tx, x, 2, 3), NULL};
    for (int way = 0; way < 3; way++) {
        dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
        dlc_event *event = (dlc_event *)(void *)&tx;
        bool begun = true;
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.begun = &begun, options.event = &event;
        const dlc_status status = dlc_onnx_run(way == 2 ? NULL : runner, &options, inputs, way ? 1 : 2, slots, 2);
        assert_int_equal(status, way ? DLC_INVALID_ARGUMENT : DLC_UNSUPPORTED);
        assert_true(!begun && !event);
    }
    finish(runner, model, bytes);
}

/* ---- forks --------------------------------------------------------------------------------------------------------------------- */

typedef struct gate {
    atomic_bool armed, reached, open;
    dlc_onnx_runner *runner;
} gate;

static uint64_t wait_in_clock(void *user) {
    gate *g = user;
    if (atomic_exchange(&g->armed, false)) {
        atomic_store(&g->reached, true);
        while (!atomic_load(&g->open)) usleep(100);
    }
    return 0;
}

static dlc_status run_timed(dlc_onnx_runner *runner) {
    float x[6] = {0}, y[6];
    tensor tx, ty;
    dlc_output_slot slots[2] = {{F32(&ty, y, 2, 3), NULL}, {NULL, NULL}};
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.budget_ms = 1000;
    return dlc_onnx_run(runner, &options, (const DLTensor *[]){F32(&tx, x, 2, 3), NULL}, 2, slots, 2);
}

static void run_there(void *argument) {
    CHECK(run_timed(((gate *)argument)->runner) == DLC_OK);
}

static int live_as_child(dlc_context *parents, dlc_onnx_runner *runner, dlc_onnx_model *model) {
    float x[6] = {0};
    tensor tx;
    dlc_program *program;
    if (run_timed(runner) != DLC_UNSUPPORTED || !strstr(dlc_error_message(parents), "forked")) return 1;
    const DLTensor *inputs[] = {F32(&tx, x, 2, 3), NULL};
    if (dlc_onnx_runner_program(runner, inputs, 2, &program) != DLC_UNSUPPORTED) return 2;
    dlc_onnx_runner_reset(runner);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    dlc_context_destroy(parents);
    return 0;
}

/* While a thread is in a run of shapes that are bound, which holds the runner's locks: the child refuses, and does not wait for it. */
static void test_fork(void **state) {
    dlc_context *const outer = context;
    message bytes;
    gate g = {.armed = false};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* does not follow threads into a child */
#endif
    options.clock_ns = wait_in_clock, options.clock_user = &g;
    context = open_context("interp", &options);
    dlc_onnx_model *model = sum_model(&bytes);
    g.runner = runner_of(model);
    OK(context, run_timed(g.runner));
    thread other;
    atomic_store(&g.armed, true);
    start_thread(&other, run_there, &g);
    while (!atomic_load(&g.reached)) usleep(100);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60); /* it hangs */
        _exit(live_as_child(context, g.runner, model));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    atomic_store(&g.open, true);
    join_threads(&other, 1);
    assert_int_equal(status, 0);
    OK(context, run_timed(g.runner));
    finish(g.runner, model, bytes);
    dlc_context_destroy(context);
    context = outer;
}

/* ---- refused memory ------------------------------------------------------------------------------------------------------------ */

/* From the runner's making to the fourth step, with memory refused from one place on; then it goes on where it was. */
static void test_refused(void **state) {
    counter memory;
    dlc_context *const outer = context;
    message bytes;
    bool done = false;
    (void)state;
    context = open_counted("interp", &memory);
    dlc_onnx_model *model = cache_model(&bytes);
    for (int64_t from = 0; !done; from += from < 100 ? 1 : 23) {
        dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
        dlc_onnx_runner *runner = NULL;
        float all[ROWS * 64 * WIDTH];
        tensor ta;
        int64_t at = 0;
        options.find_states = true;
        atomic_store(&memory.left, from);
        dlc_status status = dlc_onnx_runner_create(model, &options, &runner);
        for (; at < 60 && status == DLC_OK; at += status == DLC_OK ? 20 : 0) status = step(runner, at, 20, NULL, NULL);
        atomic_store(&memory.left, -1);
        done = status == DLC_OK;
        if (!done) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        if (runner) OK(context, step(runner, at, 1, NULL, F32(&ta, all, ROWS, at + 1, WIDTH)));
        if (runner) check_cache(all, at + 1);
        dlc_onnx_runner_destroy(runner);
    }
    dlc_onnx_destroy(model);
    dlc_context_destroy(context);
    free(bytes.data);
    assert_int_equal(atomic_load(&memory.blocks), 0);
    context = outer;
}

static int open_all(void **state) {
    (void)state;
    context = open_context("cpu", NULL);
    if (!context) context = open_context("interp", NULL);
    return context && mkdtemp(folder) ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    unlink(decoder_file());
    rmdir(folder);
    dlc_context_destroy(context);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),         cmocka_unit_test(test_one_shape),     cmocka_unit_test(test_not_asked),
        cmocka_unit_test(test_cache),         cmocka_unit_test(test_given_cache),   cmocka_unit_test(test_other_growth),
        cmocka_unit_test(test_decoder),       cmocka_unit_test(test_threads),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_wrong_outputs), cmocka_unit_test(test_nothing_begun), cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests_name("onnx states", tests, open_all, close_all);
}
