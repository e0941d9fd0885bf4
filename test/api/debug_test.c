/* What a host has for finding its own mistakes: the profile's times, progress by kernels, graphs printed without their weights, values
 * of a run that are no outputs, programs compared, runs that stop at what is not finite. */
#include "support.h"

#include <dlc/files.h>
#include <dlc/gradient.h>
#include <math.h>
#include <unistd.h>

static void expect(dlc_context *context, dlc_status got, dlc_status wanted, const char *text) {
    if (got != wanted || !strstr(dlc_error_message(context), text))
        failed("%s: %s, expected %s", dlc_status_text(got), dlc_error_message(context), text);
}

/* ---- the profile */

/* a clock that goes on by `step` with every look */
typedef struct stepped {
    uint64_t now, step;
} stepped;

static uint64_t look(void *user) {
    stepped *clock = user;
    return clock->now += clock->step;
}

static void test_profile_times(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        stepped clock = {1, 0};
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.clock_ns = look;
        options.clock_user = &clock;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_output(g, "y", dlc_exp(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(8)))));
        dlc_program *program = compile(context, g);
        float in[8] = {0}, out[8];
        tensor tx, ty;
        const DLTensor *input = F32(&tx, in, 8);
        dlc_output_slot slot = {F32(&ty, out, 8), NULL};
        OK(context, dlc_run(program, NULL, &input, 1, &slot, 1)); /* binds; not counted */
        dlc_program_profile(program, 1);
        const uint64_t steps[] = {7000, 1000, 2500, 12000};
        for (int i = 0; i < 4; i++) {
            clock.step = steps[i];
            OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
        }
        dlc_program_profile(program, 0);
        char *text;
        OK(context, dlc_program_dump(program, "profile", (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1, &text));
        const char *line = strchr(text, '\n');
        double share = 0, least = 0, median = 0, mean = 0, runs = 0;
        assert_non_null(line);
        assert_int_equal(sscanf(line, " %lf %% %lf us %lf us %lf us %lf runs", &share, &least, &median, &mean, &runs),
                         5);
        assert_true(share == 100 && least == 1 && median == 4.75 && mean == 5.625 && runs == 4);
        dlc_text_free(context, text);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- the parts of a training step */

/* Two layers, a step down the gradient: outputs loss, w, v. */
static dlc_graph *build_step(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(4), SIZE(8))), gradient[2];
    dlc_value w[] = {dlc_input(g, "w", DLC_F32, 2, DIMS(SIZE(8), SIZE(16))),
                     dlc_input(g, "v", DLC_F32, 2, DIMS(SIZE(16), SIZE(3)))};
    dlc_value y = dlc_matmul(dlc_tanh(dlc_matmul(x, w[0])), w[1]), loss = dlc_mean(dlc_mul(y, y), 0, NULL);
    dlc_gradient(loss, 2, w, gradient);
    dlc_output(g, "loss", loss);
    for (int i = 0; i < 2; i++)
        dlc_output(g, NULL, dlc_sub(w[i], dlc_mul(gradient[i], dlc_exp(dlc_scalar(g, DLC_F32, -3)))));
    return g;
}

/* The text says which part is which, also after it was parsed. */
static void check_labels(dlc_context *context, const dlc_graph *g) {
    char *text, *again;
    dlc_graph *parsed;
    OK(context, dlc_graph_print(g, &text));
    const char *forward = strstr(text, "\n  forward:\n"), *backward = strstr(text, "\n  backward:\n"),
               *update = strstr(text, "\n  update:\n");
    CHECK(forward && backward && update && forward < strstr(text, "tanh") && strstr(text, "tanh") < backward);
    CHECK(backward < update && !strstr(backward, "tanh") && strstr(update, "sub(w, "));
    OK(context, dlc_graph_parse(context, text, strlen(text), &parsed));
    OK(context, dlc_graph_print(parsed, &again));
    assert_string_equal(text, again);
    dlc_text_free(context, text);
    dlc_text_free(context, again);
    dlc_graph_destroy(parsed);
}

static int count_of(const char *text, const char *what) {
    int count = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) count++;
    return count;
}

/* Each kernel takes as long as any other; shares are those of the numbers of kernels. */
static void check_shares(const char *text) {
    static const char *const parts[] = {"forward",
                                        "backward",
                                        "forward and backward",
                                        "update",
                                        "forward and update",
                                        "backward and update",
                                        "forward, backward and update"};
    const int kernels = count_of(text, " runs ");
    int known = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char of_kernel[64], line[64];
        snprintf(of_kernel, sizeof of_kernel, ": %s\n", parts[i]);
        const int count = count_of(text, of_kernel);
        snprintf(line, sizeof line, "\n%5.1f %%  %s\n", 100.0 * count / kernels, parts[i]);
        if (!strstr(text, line) != !count) failed("expected a line \"%s\" in\n%s", line, text);
        known += count;
    }
    if (known != kernels || strstr(text, ": forward\n") == NULL) failed("kernels of no part in\n%s", text);
}

static void test_sweeps(void **state) {
    (void)state;
    const int64_t *shapes[] = {SHAPE(4, 8), SHAPE(8, 16), SHAPE(16, 3)};
    static const int ranks[] = {2, 2, 2};
    static float x[4 * 8], w[8 * 16], v[16 * 3];
    for (int t = 0; t < TARGETS; t++) {
        stepped clock = {1, 1000};
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.clock_ns = look;
        options.clock_user = &clock;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        dlc_graph *g = build_step(context);
        check_labels(context, g);
        dlc_program *program = compile(context, g);
        dlc_program_profile(program, 1);
        tensor tx, tw, tv;
        dlc_output_slot out[3] = {{0}};
        OK(context,
           dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 4, 8), F32(&tw, w, 8, 16), F32(&tv, v, 16, 3)}, 3,
                   out, 3));
        for (int o = 0; o < 3; o++) out[o].managed->deleter(out[o].managed);
        static const char *const stages[] = {"profile", "regions", "dot"};
        for (int s = 0; s < 3; s++) {
            char *text;
            OK(context, dlc_program_dump(program, stages[s], shapes, ranks, 3, &text));
            if (s == 0) check_shares(text);
            if (s == 1) CHECK(strstr(text, ": backward") && strstr(text, "\n  keeps  "));
            /* red: what the forward part keeps; each part in a frame */
            if (s == 2)
                CHECK(strstr(text, "label=\"forward keeps ") && strstr(text, "#d93025") &&
                      strstr(text, "{ label=\"forward"));
            dlc_text_free(context, text);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- progress */

typedef struct heard {
    int calls, first, last, total;
    bool fell;
} heard;

static void hear(void *user, const char *stage, int done, int total) {
    heard *h = user;
    assert_string_equal(stage, "compile");
    if (h->calls++ == 0) h->first = done;
    h->fell |= done < h->last || (h->calls > 1 && total != h->total);
    h->last = done, h->total = total;
}

static void test_progress_counts_kernels(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.compile_threads = threads;
        dlc_context *context = open_context("interp", &options);
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(6)));
        for (int i = 0; i < 20; i++) { /* kernels of different sizes */
            char name[16];
            snprintf(name, sizeof name, "y%d", i);
            dlc_output(g, name, dlc_cumulative_sum(dlc_broadcast(x, 2, DIMS(SIZE(i + 1), SIZE(6)), 1, SHAPE(1)), 0));
        }
        heard h = {0};
        dlc_compile_options compiled = DLC_COMPILE_OPTIONS_INIT;
        compiled.progress = hear;
        compiled.progress_user = &h;
        dlc_program *program;
        OK(context, dlc_compile(context, g, &compiled, &program));
        OK(context, dlc_prepare(program, (const int64_t *[]){SHAPE(6)}, (const int[]){1}, 1));
        assert_int_equal(h.first, 0);
        assert_true(!h.fell && h.calls >= 2 && h.last == h.total && h.total >= 20);
        assert_int_equal(h.total, statistics(context).kernel_builds);
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
    }
}

/* ---- graphs with their weights, and without */

/* Weights that the graph borrows are no part of its own memory; their text is many times what a call may take beside its input. */
static void test_borrowed_constants_are_printed(void **state) {
    enum { ELEMENTS = 1 << 20 };
    (void)state;
    float *w = calloc(ELEMENTS, sizeof *w);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    dlc_graph *g;
    char *text;
    options.target = "interp";
    options.limits.memory = 1 << 20;
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    OK(context, dlc_graph_create(context, &g));
    dlc_output(g, "y", dlc_constant_borrow(g, DLC_F32, 1, SHAPE(ELEMENTS), w));
    OK(context, dlc_graph_print(g, &text));
    assert_true(strlen(text) > 2 * ELEMENTS * sizeof *w);
    dlc_text_free(context, text);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    free(w);
}

static void test_constants_are_elided(void **state) {
    (void)state;
    static float w[1 << 14];
    fill(w, 1 << 14, 1);
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g, *parsed;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(128)));
    dlc_value few = dlc_constant(g, DLC_F32, 1, SHAPE(4), (const float[]){1, 2, 3, 4});
    dlc_output(g, "y", dlc_matmul(x, dlc_constant(g, DLC_F32, 2, SHAPE(128, 128), w)));
    dlc_output(g, "few", few);
    dlc_print_options options = DLC_PRINT_OPTIONS_INIT;
    char *whole, *same, *elided;
    OK(context, dlc_graph_print(g, &whole));
    OK(context, dlc_graph_print_with(g, &options, &same));
    assert_string_equal(whole, same);
    options.elide_constants = true;
    OK(context, dlc_graph_print_with(g, &options, &elided));
    assert_true(strlen(whole) > sizeof w && strlen(elided) < 1000);
    assert_non_null(strstr(elided, "...\"}"));
    assert_non_null(strstr(elided, "{1, 2, 3, 4}"));
    expect(context, dlc_graph_parse(context, elided, strlen(elided), &parsed), DLC_PARSE_ERROR, "");
    options.struct_size = 0;
    char *none = elided;
    expect(context, dlc_graph_print_with(g, &options, &none), DLC_INVALID_ARGUMENT, "_INIT");
    assert_null(none);
    dlc_text_free(context, whole);
    dlc_text_free(context, same);
    dlc_text_free(context, elided);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- taps */

enum { ROWS = 5, WIDTH = 16 };

/* relu(x w) through a softmax, whose parts fusion keeps inside of kernels. */
typedef struct network {
    dlc_graph *graph;
    dlc_value x, product, kept, shifted, y;
} network;

static network build(dlc_context *context, const float *w, float shift) {
    network n;
    OK(context, dlc_graph_create(context, &n.graph));
    n.x = dlc_input(n.graph, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(WIDTH)));
    n.product = dlc_matmul(n.x, dlc_constant(n.graph, DLC_F32, 2, SHAPE(WIDTH, WIDTH), w));
    n.product = dlc_name(n.product, "product");
    n.kept = dlc_relu(n.product);
    n.shifted = dlc_add(n.kept, dlc_scalar(n.graph, DLC_F32, shift));
    n.y = dlc_softmax(dlc_mul(n.shifted, n.shifted), -1);
    dlc_output(n.graph, "y", n.y);
    OK(context, dlc_graph_status(n.graph));
    return n;
}

typedef struct seen {
    int calls;
    float value[3][ROWS * WIDTH];
    char name[3][32];
} seen;

static void see(void *user, int tap, const char *name, const DLTensor *shown) {
    seen *s = user;
    s->calls++;
    snprintf(s->name[tap], sizeof s->name[tap], "%s", name);
    memcpy(s->value[tap], (char *)shown->data + shown->byte_offset, sizeof s->value[tap]);
}

static void test_taps(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        float w[WIDTH * WIDTH], in[ROWS * WIDTH], plain[ROWS * WIDTH], tapped[ROWS * WIDTH];
        fill(w, WIDTH * WIDTH, 1);
        fill(in, ROWS * WIDTH, 2);
        network n = build(context, w, 0.5f);
        dlc_program *program;
        OK(context, dlc_compile(context, n.graph, NULL, &program));
        tensor tx, ty;
        const DLTensor *input = F32(&tx, in, ROWS, WIDTH);
        dlc_output_slot slot = {F32(&ty, plain, ROWS, WIDTH), NULL};
        OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
        seen s = {0};
        OK(context, dlc_program_tap(program, 3, (dlc_value[]){n.x, n.product, n.shifted}, see, &s));
        dlc_graph_destroy(n.graph);
        slot.tensor = F32(&ty, tapped, ROWS, WIDTH);
        OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
        assert_int_equal(s.calls, 3);
        assert_memory_equal(plain, tapped, sizeof plain);
        assert_memory_equal(s.value[0], in, sizeof in);
        assert_string_equal(s.name[0], "x");
        assert_string_equal(s.name[1], "product");
        assert_string_equal(s.name[2], "add");
        double product[ROWS * WIDTH], shifted[ROWS * WIDTH];
        for (int i = 0; i < ROWS * WIDTH; i++) {
            product[i] = 0;
            for (int k = 0; k < WIDTH; k++)
                product[i] += (double)in[i / WIDTH * WIDTH + k] * (double)w[k * WIDTH + i % WIDTH];
            shifted[i] = fmax(product[i], 0) + 0.5;
        }
        CLOSE(s.value[1], product, ROWS * WIDTH, 1e-5);
        CLOSE(s.value[2], shifted, ROWS * WIDTH, 1e-5);
        OK(context, dlc_program_tap(program, 0, NULL, NULL, NULL));
        OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
        assert_int_equal(s.calls, 3);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void count_tap(void *user, int tap, const char *name, const DLTensor *shown) {
    (void)tap, (void)name, (void)shown;
    ++*(int *)user;
}

/* Kept calls are not tapped, whatever their tensors need. */
static void test_calls_are_not_tapped(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        float w[WIDTH * WIDTH], in[ROWS * WIDTH], out[ROWS * WIDTH];
        fill(w, WIDTH * WIDTH, 1);
        fill(in, ROWS * WIDTH, 2);
        network n = build(context, w, 0.5f);
        dlc_program *program;
        OK(context, dlc_compile(context, n.graph, NULL, &program));
        seen s = {0};
        OK(context, dlc_program_tap(program, 1, &n.product, see, &s));
        dlc_graph_destroy(n.graph);
        tensor tx, ty;
        for (int strided = 0; strided < 2; strided++) {
            const DLTensor *input = F32(&tx, in, ROWS, WIDTH);
            if (strided) tx.strides[0] = 1, tx.strides[1] = ROWS, tx.dl.strides = tx.strides;
            dlc_call *call;
            dlc_event *event = (dlc_event *)(void *)&tx;
            dlc_run_options options = DLC_RUN_OPTIONS_INIT;
            OK(context, dlc_call_create(program, &input, 1, (DLTensor *[]){F32(&ty, out, ROWS, WIDTH)}, 1, &call));
            OK(context, dlc_call_run(call, NULL));
            options.event = &event, options.stop_at = 8;
            expect(context, dlc_call_run(call, &options), DLC_INVALID_ARGUMENT, "dlc_call_run: options.stop_at");
            assert_null(event);
            dlc_call_destroy(call);
        }
        assert_int_equal(s.calls, 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A host function that takes 80 ms by the clock. */
static void take_time(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    stepped *clock = user;
    (void)inputs, (void)input, (void)outputs;
    clock->now += 80000000;
    *(float *)output[0]->data = 1;
}

/* The budget is one for the tapped values and the run. */
static void test_taps_within_budget(void **state) {
    (void)state;
    stepped clock = {1, 0};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_run_options limited = DLC_RUN_OPTIONS_INIT;
    options.clock_ns = look, options.clock_user = &clock;
    dlc_context *context = open_context("interp", &options);
    dlc_graph *g;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(1))), y[2];
    OK(context, dlc_custom_register(g, "take_time", take_time, &clock));
    for (int i = 0; i < 2; i++)
        dlc_custom_call(g, 1, i ? y : &x, "take_time", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){1}, 1, DIMS(SIZE(1)), 1,
                        &y[i]);
    dlc_output(g, "y", y[1]);
    OK(context, dlc_compile(context, g, NULL, &program));
    float in = 0, out;
    int taps = 0;
    tensor tx, ty;
    const DLTensor *input = F32(&tx, &in, 1);
    dlc_output_slot slot = {F32(&ty, &out, 1), NULL};
    OK(context, dlc_program_tap(program, 1, y, count_tap, &taps));
    for (int run = 0; run < 3; run++) { /* the first one binds */
        const uint64_t before = clock.now;
        bool begun = false;
        limited.budget_ms = run == 2 ? 1000 : 150;
        limited.begun = &begun;
        const dlc_status status = dlc_run(program, &limited, &input, 1, &slot, 1);
        if (run < 2) expect(context, status, DLC_BUDGET_EXCEEDED, "budget_ms = 150");
        if (run == 2) OK(context, status);
        assert_int_equal(clock.now - before, run == 2 ? 240000000 : 160000000);
        assert_true(begun);
    }
    assert_int_equal(taps, 3);
    limited.cancel = &(const int){1};
    for (int way = 0; way < 2; way++) { /* cancelled; refused: nothing has begun */
        bool begun = true;
        dlc_event *event = (dlc_event *)(void *)&tx;
        limited.begun = &begun, limited.event = &event;
        expect(context, dlc_run(program, &limited, &input, 1 - way, &slot, 1),
               way ? DLC_INVALID_ARGUMENT : DLC_CANCELLED, way ? "inputs were given" : "cancelled");
        assert_true(!begun && !event);
    }
    dlc_graph_destroy(g);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* Donated inputs are seen as they were; host functions with effects are called once. */
static int effects;
static void count_effect(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)input, (void)outputs, (void)output;
    effects++;
}

static void test_taps_change_nothing(void **state) {
    (void)state;
    dlc_context *context = open_context(all_targets[0], NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(ROWS), SIZE(WIDTH)));
    dlc_value squared = dlc_mul(x, x);
    OK(context, dlc_custom_register(g, "count", count_effect, NULL));
    dlc_custom_effect(g, 1, &squared, "count", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
    dlc_output(g, "y", dlc_add(squared, dlc_scalar(g, DLC_F32, 1)));
    dlc_program *program = NULL;
    OK(context, dlc_compile(context, g, NULL, &program));
    OK(context, dlc_program_alias(program, 0, 0));
    seen s = {0};
    OK(context, dlc_program_tap(program, 2, (dlc_value[]){x, squared}, see, &s));
    float data[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) data[i] = (float)i;
    tensor tx, ty;
    const DLTensor *input = F32(&tx, data, ROWS, WIDTH);
    dlc_output_slot slot = {F32(&ty, data, ROWS, WIDTH), NULL};
    effects = 0;
    OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
    assert_int_equal(effects, 1);
    assert_true(s.calls == 2 && s.value[0][7] == 7 && s.value[1][7] == 49 && data[7] == 50);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

static void test_taps_refused(void **state) {
    (void)state;
    counter count = {0};
    dlc_context *context = open_counted("interp", &count);
    float w[WIDTH * WIDTH] = {0}, in[ROWS * WIDTH] = {0}, out[ROWS * WIDTH];
    network n = build(context, w, 0), other = build(context, w, 0);
    dlc_program *program;
    OK(context, dlc_compile(context, n.graph, NULL, &program));
    seen s = {0};
    OK(context, dlc_program_tap(program, 1, &n.product, see, &s));
    expect(context, dlc_program_tap(program, 1, &other.product, see, &s), DLC_INVALID_ARGUMENT, "another graph");
    expect(context, dlc_program_tap(program, 1, &(dlc_value){0}, see, &s), DLC_INVALID_ARGUMENT, "none");
    expect(context, dlc_program_tap(program, 1, NULL, see, &s), DLC_INVALID_ARGUMENT, "NULL");
    expect(context, dlc_program_tap(program, -1, &n.x, see, &s), DLC_INVALID_ARGUMENT, "below 0");
    expect(NULL, dlc_program_tap(NULL, 0, NULL, see, &s), DLC_INVALID_ARGUMENT, "NULL");
    tensor tx, ty;
    const DLTensor *input = F32(&tx, in, ROWS, WIDTH);
    dlc_output_slot slot = {F32(&ty, out, ROWS, WIDTH), NULL};
    OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
    assert_int_equal(s.calls, 1); /* the first one is still there */
    dlc_graph_destroy(n.graph);
    expect(context, dlc_program_tap(program, 1, &n.x, see, &s), DLC_INVALID_ARGUMENT, "destroyed");
    dlc_program_destroy(program);
    dlc_graph_destroy(other.graph);
    dlc_context_destroy(context);
    assert_int_equal(count.blocks, 0);
}

/* Tapped programs are run, compared and stopped by several threads at once, as others are. */
typedef struct shared {
    dlc_context *context;
    dlc_program *program, *other;
    const DLTensor *input, *infinite;
    const float *expected;
    atomic_int calls;
} shared;

static void count_call(void *user, int tap, const char *name, const DLTensor *shown) {
    shared *s = user;
    (void)tap, (void)name, (void)shown;
    atomic_fetch_add(&s->calls, 1);
}

static void run_tapped(void *argument) {
    shared *s = argument;
    for (int i = 0; i < 10; i++) {
        float out[ROWS * WIDTH];
        tensor ty;
        dlc_output_slot slot = {F32(&ty, out, ROWS, WIDTH), NULL};
        dlc_difference d = DLC_DIFFERENCE_INIT;
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        OK(s->context, dlc_run(s->program, NULL, &s->input, 1, &slot, 1));
        CHECK(memcmp(out, s->expected, sizeof out) == 0);
        OK(s->context, dlc_program_compare(s->program, s->other, NULL, &s->input, 1, &d));
        CHECK(!d.found);
        options.stop_at = DLC_STOP_AT_INFINITY;
        CHECK(dlc_run(s->other, &options, &s->infinite, 1, &slot, 1) == DLC_NOT_FINITE);
        CHECK(strstr(dlc_error_message(s->context), "infinity at [0, 0]"));
    }
}

static void test_taps_on_threads(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.threads = 2;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        static float w[WIDTH * WIDTH], in[ROWS * WIDTH], infinite[ROWS * WIDTH], expected[ROWS * WIDTH];
        fill(w, WIDTH * WIDTH, 1);
        fill(in, ROWS * WIDTH, 2);
        infinite[0] = INFINITY;
        shared s = {.context = context, .expected = expected};
        dlc_program **programs[2] = {&s.program, &s.other};
        for (int i = 0; i < 2; i++) {
            network n = build(context, w, 0.5f);
            OK(context, dlc_compile(context, n.graph, NULL, programs[i]));
            OK(context, dlc_program_tap(*programs[i], 2, (dlc_value[]){n.product, n.shifted}, count_call, &s));
            dlc_graph_destroy(n.graph);
        }
        tensor tx, ti, ty;
        s.input = F32(&tx, in, ROWS, WIDTH);
        s.infinite = F32(&ti, infinite, ROWS, WIDTH);
        dlc_output_slot slot = {F32(&ty, expected, ROWS, WIDTH), NULL};
        OK(context, dlc_run(s.program, NULL, &s.input, 1, &slot, 1));
        thread threads[3];
        for (int i = 0; i < 3; i++) start_thread(&threads[i], run_tapped, &s);
        join_threads(threads, 3);
        assert_true(atomic_load(&s.calls) >= 2 + 3 * 10 * 2);
        dlc_program_destroy(s.program);
        dlc_program_destroy(s.other);
        dlc_context_destroy(context);
    }
}

/* ---- comparing */

static void test_compare(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context[2] = {open_context("interp", NULL), open_context(all_targets[t], NULL)};
        if (!context[1]) {
            dlc_context_destroy(context[0]);
            continue;
        }
        float w[WIDTH * WIDTH], in[ROWS * WIDTH];
        fill(w, WIDTH * WIDTH, 1);
        fill(in, ROWS * WIDTH, 2);
        tensor tx;
        const DLTensor *input = F32(&tx, in, ROWS, WIDTH);
        for (int differ = 0; differ < 2; differ++) {
            dlc_program *program[2];
            for (int i = 0; i < 2; i++) {
                network n = build(context[i], w, differ && i ? 0.25f : 0.5f);
                OK(context[i], dlc_compile(context[i], n.graph, NULL, &program[i]));
                OK(context[i], dlc_program_tap(program[i], 3, (dlc_value[]){n.product, n.kept, n.shifted}, NULL, NULL));
                dlc_graph_destroy(n.graph);
            }
            dlc_compare_options options = DLC_COMPARE_OPTIONS_INIT;
            dlc_difference d = DLC_DIFFERENCE_INIT;
            char path[64];
            snprintf(path, sizeof path, "/tmp/dlc-debug-test-%d.npz", (int)getpid());
            options.absolute = options.relative = 1e-5;
            options.save = path;
            OK(context[0], dlc_program_compare(program[0], program[1], &options, &input, 1, &d));
            assert_int_equal(d.found, differ);
            assert_int_equal(access(path, F_OK) == 0, differ);
            if (differ) {
                assert_true(d.tapped && d.number == 2 && d.index == 0 && d.count == ROWS * WIDTH && d.total == d.count);
                assert_true(fabs(d.first - d.second - 0.25) < 1e-5 && fabs(d.greatest - 0.25) < 1e-5);
                dlc_file *file;
                DLManagedTensorVersioned *saved;
                OK(context[0], dlc_file_open(context[0], path, NULL, &file));
                OK(context[0], dlc_file_tensor(file, "x", &saved));
                assert_memory_equal(saved->dl_tensor.data, in, sizeof in);
                saved->deleter(saved);
                dlc_file_destroy(file);
                unlink(path);
            }
            dlc_program_destroy(program[0]);
            dlc_program_destroy(program[1]);
        }
        dlc_context_destroy(context[0]);
        dlc_context_destroy(context[1]);
    }
}

static dlc_program *copy_of(dlc_context *context, dlc_dtype dtype, bool negate) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_output(g, "y", dlc_cast(negate ? dlc_neg(x) : x, dtype));
    return compile(context, g);
}

/* NaN agrees with NaN, -0 with 0; an infinity with no number, whatever the tolerance. */
static void test_compare_specials(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *same = copy_of(context, DLC_F32, false), *other = copy_of(context, DLC_F32, true),
                *bytes = copy_of(context, DLC_I8, false);
    float in[3] = {NAN, 0, 0};
    tensor tx;
    const DLTensor *input = F32(&tx, in, 3);
    dlc_compare_options options = DLC_COMPARE_OPTIONS_INIT;
    dlc_difference d = DLC_DIFFERENCE_INIT;
    OK(context, dlc_program_compare(same, other, NULL, &input, 1, &d));
    assert_false(d.found);
    in[2] = INFINITY;
    options.relative = 1e30;
    OK(context, dlc_program_compare(same, other, &options, &input, 1, &d));
    assert_true(d.found && !d.tapped && d.number == 0 && d.index == 2 && d.count == 1 && isinf(d.greatest));
    assert_string_equal(d.name, "y");
    expect(context, dlc_program_compare(same, bytes, &options, &input, 1, &d), DLC_INVALID_ARGUMENT, "element type");
    options.save = "/nowhere/inputs.npz";
    expect(context, dlc_program_compare(same, other, &options, &input, 1, &d), DLC_NOT_FOUND, "not saved");
    assert_true(d.found);
    options.absolute = -1;
    expect(context, dlc_program_compare(same, other, &options, &input, 1, &d), DLC_INVALID_ARGUMENT, "tolerance");
    expect(context, dlc_program_compare(same, other, NULL, NULL, 0, &d), DLC_INVALID_ARGUMENT, "the first program");
    d.struct_size = 0;
    expect(context, dlc_program_compare(same, other, NULL, &input, 1, &d), DLC_INVALID_ARGUMENT, "struct_size");
    dlc_program_destroy(same);
    dlc_program_destroy(other);
    dlc_program_destroy(bytes);
    dlc_context_destroy(context);
}

/* ---- runs that stop */

static void test_stops_where_it_begins(void **state) {
    (void)state;
    static const char text[] =
        "graph { input x: f32[n, 6] w = constant f32[6] {1, 2, 3, 4, 5, 6}\n"
        "bad = log(x) total = reduce_sum(bad, axes=[1], keep=true) y = div(bad, total) z = cumulative_sum(y, axis=0) output z }";
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_parse(context, text, sizeof text - 1, &g));
        dlc_program *program;
        OK(context, dlc_compile(context, g, NULL, &program));
        float in[18], out[18];
        tensor tx, ty;
        const DLTensor *input = F32(&tx, in, 3, 6);
        dlc_output_slot slot = {F32(&ty, out, 3, 6), NULL};
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.stop_at = DLC_STOP_AT_NAN | DLC_STOP_AT_INFINITY;
        for (int i = 0; i < 18; i++) in[i] = 2;
        dlc_status status = dlc_run(program, &options, &input, 1, &slot, 1);
        if (status == DLC_UNSUPPORTED) { /* tensors of a device */
            assert_non_null(strstr(dlc_error_message(context), "stop_at"));
        } else {
            OK(context, status);
            in[8] = -1;
            expect(context, dlc_run(program, &options, &input, 1, &slot, 1), DLC_NOT_FINITE, "is NaN at [1");
            assert_null(strstr(dlc_error_message(context), "cumulative"));
            OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
            options.stop_at = DLC_STOP_AT_INFINITY; /* the NaN may pass */
            OK(context, dlc_run(program, &options, &input, 1, &slot, 1));
            in[8] = INFINITY;
            expect(context, dlc_run(program, &options, &input, 1, &slot, 1), DLC_NOT_FINITE,
                   "input x is infinity at [1, 2]");
            options.stop_at = DLC_STOP_AT_NAN;
            expect(context, dlc_run(program, &options, &input, 1, &slot, 1), DLC_NOT_FINITE, "NaN");
            in[8] = 0;
            dlc_call *call;
            OK(context, dlc_call_create(program, &input, 1, &slot.tensor, 1, &call));
            expect(context, dlc_call_run(call, &options), DLC_NOT_FINITE, "NaN at [1, 2]");
            OK(context, dlc_call_run(call, NULL));
            dlc_call_destroy(call);
            options.stop_at = 8;
            expect(context, dlc_run(program, &options, &input, 1, &slot, 1), DLC_INVALID_ARGUMENT, "dlc_stop_at");
        }
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
    }
}

/* Inside of a loop's body, and behind a host function. */
static void make_nan(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)input, (void)outputs;
    float *y = output[0]->data;
    y[0] = 1, y[1] = NAN;
}

static void test_stops_inside(void **state) {
    (void)state;
    static const char loop[] =
        "graph { input x: f32[4] input n: i64[] one = constant i64[] {1} zero = constant i64[] {0}\n"
        "i, r = while(zero, x, n, condition=graph { input i: i64[] input r: f32[4] input n: i64[] c = lt(i, n) output c },\n"
        "body=graph { input i: i64[] input r: f32[4] input n: i64[] one = constant i64[] {1} k = add(i, one) big = mul(r, r)\n"
        "output k output big }) output r }";
    dlc_context *context = open_context(all_targets[0], NULL);
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.stop_at = DLC_STOP_AT_INFINITY;
    dlc_graph *g;
    float in[4] = {2, 2, 2, 10}, out[4];
    tensor tx, tn, ty;
    int64_t times = 5;
    dlc_output_slot slot = {F32(&ty, out, 4), NULL};
    dlc_program *program;
    if (dlc_graph_parse(context, loop, sizeof loop - 1, &g) != DLC_OK) failed("%s", dlc_error_message(context));
    program = compile(context, g);
    const DLTensor *inputs[2] = {F32(&tx, in, 4), &make_tensor(&tn, DLC_I64, &times, 0, NULL)->dl};
    OK(context, dlc_run(program, &options, inputs, 2, &slot, 1));
    times = 6; /* 10 to the power 64 */
    expect(context, dlc_run(program, &options, inputs, 2, &slot, 1), DLC_NOT_FINITE, "is infinity at [3]");
    dlc_program_destroy(program);

    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(4))), y;
    OK(context, dlc_custom_register(g, "make_nan", make_nan, NULL));
    dlc_custom_call(g, 1, &x, "make_nan", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){1}, 1, DIMS(SIZE(2)), 1, &y);
    dlc_output(g, "y", dlc_neg(y));
    program = compile(context, g);
    slot.tensor = F32(&ty, out, 2);
    options.stop_at = DLC_STOP_AT_NAN;
    expect(context, dlc_run(program, &options, inputs, 1, &slot, 1), DLC_NOT_FINITE, "of make_nan is NaN at [1]");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile_times),
        cmocka_unit_test(test_sweeps),
        cmocka_unit_test(test_progress_counts_kernels),
        cmocka_unit_test(test_borrowed_constants_are_printed),
        cmocka_unit_test(test_constants_are_elided),
        cmocka_unit_test(test_taps),
        cmocka_unit_test(test_calls_are_not_tapped),
        cmocka_unit_test(test_taps_within_budget),
        cmocka_unit_test(test_taps_change_nothing),
        cmocka_unit_test(test_taps_refused),
        cmocka_unit_test(test_taps_on_threads),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_specials),
        cmocka_unit_test(test_stops_where_it_begins),
        cmocka_unit_test(test_stops_inside),
    };
    return cmocka_run_group_tests_name("debugging", tests, NULL, NULL);
}
