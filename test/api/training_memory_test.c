/* Memory of training steps: the order of their regions, and memory_bytes, within which values are computed again. */
#include "api/training.h"
#include "test/share.h"

/* ---- updates run as soon as their gradients are there ------------------------------------------------------------------- */

static double parameter_bytes(const training *t) {
    double bytes = 0;
    for (int i = 0; i < t->count; i++) {
        double n = sizeof(float);
        for (int d = 0; d < t->rank[i + 2]; d++) n *= (double)t->shape[i + 2][d];
        bytes += n;
    }
    return bytes;
}

/* With few rows, what the forward pass keeps is less than the gradients, which need not be there all at once. */
static void test_updates_run_early(void **state) {
    (void)state;
    enum { LAYERS = 24, ROWS = 16, WIDTH = 256 };
    dlc_context *context = open_context("cpu", NULL);
    double live;
    if (!context) return;
    training *t = mlp(context, LAYERS, ROWS, WIDTH);
    dlc_program *program = compile_training(context, t, NULL);
    const size_t kept = sizeof(float) * LAYERS * 2 * ROWS * WIDTH, weight = sizeof(float) * WIDTH * WIDTH;
    CHECK(arena_of(context, t, program, &live) <= (double)(kept + 3 * weight));
    dlc_program_destroy(program);
    free(t);

    t = transformer(context, 6, 1, 32, 256, 4);
    program = compile_training(context, t, NULL);
    CHECK(arena_of(context, t, program, &live) <= parameter_bytes(t) / 4);
    dlc_program_destroy(program);
    free(t);
    dlc_context_destroy(context);
}

/* ---- memory_bytes --------------------------------------------------------------------------------------------------------- */

/* seed: of a random one */
typedef training *make_model(dlc_context *context, uint32_t seed);

static training *small_mlp(dlc_context *context, uint32_t seed) {
    (void)seed;
    return mlp(context, 12, 64, 64);
}
static training *small_conv_net(dlc_context *context, uint32_t seed) {
    (void)seed;
    return conv_net(context, 8, 4, 8, 12);
}
static training *small_transformer(dlc_context *context, uint32_t seed) {
    (void)seed;
    return transformer(context, 6, 2, 24, 32, 4);
}
static training *small_gates(dlc_context *context, uint32_t seed) {
    (void)seed;
    return gates(context, 12, 64, 64);
}
static training *small_recurrent(dlc_context *context, uint32_t seed) {
    (void)seed;
    return recurrent(context, 4, 6, 8, 32);
}

static dlc_program *limited(dlc_context *context, make_model *make, uint32_t seed, size_t memory, training **t) {
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.memory_bytes = memory;
    *t = make(context, seed);
    return compile_training(context, *t, &options);
}

static dlc_status prepare(const training *t, dlc_program *program) {
    const int64_t *shapes[PARAMETERS_MOST + 2];
    for (int i = 0; i < t->count + 2; i++) shapes[i] = t->shape[i];
    return dlc_prepare(program, shapes, t->rank, t->count + 2);
}

static size_t elements_of(const training *t, int input) {
    size_t count = 1;
    for (int d = 0; d < t->rank[input]; d++) count *= (size_t)t->shape[input][d];
    return count;
}

/* Results of a step on fixed numbers: the loss and all parameters, one after the other. */
static float *step(dlc_context *context, const training *t, dlc_program *program, size_t *count) {
    const int inputs = t->count + 2, outputs = t->count + 1;
    const DLTensor *in[PARAMETERS_MOST + 2];
    dlc_output_slot *out = calloc((size_t)outputs, sizeof *out);
    tensor *tensors = calloc((size_t)inputs, sizeof *tensors);
    float **data = calloc((size_t)inputs, sizeof *data), *all, *at;
    CHECK(out && tensors && data);
    *count = 1;
    for (int i = 0; i < inputs; i++) {
        const size_t n = elements_of(t, i);
        data[i] = malloc(n * sizeof(float));
        CHECK(data[i]);
        fill(data[i], n, (uint32_t)i + 1);
        for (size_t k = 0; i >= 2 && k < n; k++) data[i][k] *= 0.3f;
        in[i] = &make_tensor(&tensors[i], DLC_F32, data[i], t->rank[i], t->shape[i])->dl;
        if (i >= 2) *count += n;
    }
    OK(context, dlc_run(program, NULL, in, inputs, out, outputs));
    all = at = malloc(*count * sizeof *all);
    CHECK(all);
    for (int o = 0; o < outputs; o++) {
        const size_t n = o ? elements_of(t, o + 1) : 1;
        memcpy(at, out[o].managed->dl_tensor.data, n * sizeof *at);
        at += n;
        out[o].managed->deleter(out[o].managed);
    }
    for (int i = 0; i < inputs; i++) free(data[i]);
    free(data);
    free(tensors);
    free(out);
    return all;
}

static void compare_steps(const float *got, const float *expected, size_t count, bool bits) {
    for (size_t i = 0; i < count; i++) {
        const double far = fabs((double)got[i] - (double)expected[i]);
        if (bits ? memcmp(&got[i], &expected[i], sizeof *got) != 0 : !(far <= 2e-5 * (1 + fabs((double)expected[i]))))
            failed("element %zu is %.9g, expected %.9g", i, (double)got[i], (double)expected[i]);
    }
}

/* The least limit that is possible, from the message that refuses a smaller one. */
static double least_of(dlc_context *context, make_model *make, uint32_t seed, size_t memory) {
    double least = 0;
    training *t;
    dlc_program *program = limited(context, make, seed, memory, &t);
    CHECK(prepare(t, program) == DLC_BUDGET_EXCEEDED);
    const char *at = strstr(dlc_error_message(context), "need at least ");
    CHECK(at && sscanf(at, "need at least %lf bytes", &least) == 1);
    dlc_program_destroy(program);
    free(t);
    return least;
}

/* Limits from none down to the least: the arena keeps them and never grows, results stay the same; below is an error. */
static void check_limits(const char *target, make_model *make, uint32_t seed, double share, bool bits) {
    const double steps = test_is_short() ? 1 : seed ? 3 : test_every() > 1 ? 2 : 7;
    dlc_context *context = open_context(target, NULL);
    if (!context) return;
    training *t;
    double live, first = 0, before = 0;
    size_t count = 0;
    const double least = least_of(context, make, seed, 1);
    float *expected = NULL;
    for (int i = -1; i <= (int)steps; i++) {
        if (i == 0 && test_is_shortest()) continue;
        const double limit = i < 0 ? 0 : first - (first - least) * i / steps;
        dlc_program *program = limited(context, make, seed, (size_t)limit, &t);
        const double arena = arena_of(context, t, program, &live);
        float *got = step(context, t, program, &count);
        if (i < 0) {
            first = before = arena;
            expected = got;
        } else {
            CHECK(arena <= limit && arena <= before && live <= arena);
            compare_steps(got, expected, count, bits);
            before = arena;
            free(got);
        }
        dlc_program_destroy(program);
        free(t);
    }
    if (!seed) print_message("%s: arenas of %.0f to %.0f bytes\n", target, first, least);
    CHECK(least <= share * first && before == least);
    if (!test_is_short()) CHECK(least_of(context, make, seed, (size_t)least - 1) == least);
    free(expected);
    dlc_context_destroy(context);
}

static void test_mlp(void **state) {
    (void)state;
    check_limits("cpu", small_mlp, 0, 0.4, false);
    if (!test_is_shortest()) check_limits("interp", small_mlp, 0, 0.6, false);
}
static void test_convolutions(void **state) {
    (void)state;
    check_limits("cpu", small_conv_net, 0, 0.7, false);
}
static void test_transformer(void **state) {
    (void)state;
    check_limits("cpu", small_transformer, 0, 0.5, false);
}
static void test_maps_keep_bits(void **state) {
    (void)state;
    check_limits("cpu", small_gates, 0, 0.7, true);
}
static void test_around_loops(void **state) {
    (void)state;
    check_limits("cpu", small_recurrent, 0, 0.7, false);
}

static void test_random(void **state) {
    (void)state;
    const uint32_t seeds = test_every() > 1 ? 3 : 16;
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        check_limits("cpu", random_graph, seed, 1, false);
        if (seed % 4 == 1) check_limits("interp", random_graph, seed, 1, false);
    }
}

/* ---- recompute ------------------------------------------------------------------------------------------------------------ */

/* Arena and live bytes, and the step's results, with and without. */
static void compare_recomputed(dlc_context *context, make_model *make, uint32_t seed, double arena[2], double live[2]) {
    float *results[2];
    size_t count;
    for (int again = 0; again < 2; again++) {
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.recompute = again;
        training *t = make(context, seed);
        dlc_program *program = compile_training(context, t, &options);
        arena[again] = arena_of(context, t, program, &live[again]);
        results[again] = step(context, t, program, &count);
        dlc_program_destroy(program);
        free(t);
    }
    compare_steps(results[1], results[0], count, false);
    free(results[0]);
    free(results[1]);
}

/* The part of the arena that is left, at most. Where contractions read all that the backward part needs, nothing is gained. */
static void test_keeps_least(void **state) {
    (void)state;
    static const struct {
        const char *name;
        make_model *make;
        double share;
    } models[] = {{"mlp", small_mlp, 1},
                  {"convolutions", small_conv_net, 1},
                  {"transformer", small_transformer, 0.8},
                  {"gates", small_gates, 1},
                  {"recurrent", small_recurrent, 1}};
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        double arena[2], live[2], sum[2] = {0};
        if (!context) continue;
        for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
            if (!test_takes((int)m + t + 1, 2)) continue; /* with a share: each on one of the targets at most */
            compare_recomputed(context, models[m].make, 0, arena, live);
            print_message("%s, %s: arena of %.0f bytes, recomputed %.0f, %.0f at once\n", all_targets[t],
                          models[m].name, arena[0], arena[1], live[1]);
            if (strcmp(all_targets[t], "cpu") == 0)
                CHECK(arena[1] <= models[m].share * arena[0] && arena[1] <= 1.05 * live[1]);
        }
        const uint32_t seeds = test_is_short() ? 3 : 12;
        for (uint32_t seed = 1; seed <= seeds; seed++) {
            compare_recomputed(context, random_graph, seed, arena, live);
            for (int again = 0; again < 2; again++) sum[again] += arena[again];
        }
        print_message("%s, %d random graphs: %.0f bytes, recomputed %.0f\n", all_targets[t], (int)seeds, sum[0],
                      sum[1]);
        CHECK(strcmp(all_targets[t], "cpu") != 0 || test_is_short() || sum[1] <= 0.9 * sum[0]);
        dlc_context_destroy(context);
    }
}

/* One graph for many sizes, and on threads: the same results. */
static training *mlp_of_rows(dlc_context *context, uint32_t seed);
static void test_keeps_least_of_sizes(void **state) {
    (void)state;
    static const int64_t rows[] = {64, 100, 1000, 65};
    dlc_context_options settings = DLC_CONTEXT_OPTIONS_INIT;
    settings.threads = 2;
    dlc_context *context = open_context("cpu", &settings);
    if (!context) return;
    training *t[2];
    dlc_program *program[2];
    for (int again = 0; again < 2; again++) {
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.recompute = again;
        t[again] = mlp_of_rows(context, 0);
        program[again] = compile_training(context, t[again], &options);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float *results[2];
        double arena[2], live;
        size_t count;
        for (int again = 0; again < 2; again++) {
            t[again]->shape[0][0] = t[again]->shape[1][0] = rows[i];
            results[again] = step(context, t[again], program[again], &count);
            arena[again] = arena_of(context, t[again], program[again], &live);
        }
        compare_steps(results[1], results[0], count, false);
        CHECK(arena[1] <= 0.8 * arena[0]);
        free(results[0]);
        free(results[1]);
    }
    for (int again = 0; again < 2; again++) {
        dlc_program_destroy(program[again]);
        free(t[again]);
    }
    dlc_context_destroy(context);
}

/* Each set of sizes is made to fit; those that cannot are refused, and the program goes on. */
static training *mlp_of_rows(dlc_context *context, uint32_t seed) {
    (void)seed;
    return mlp_of(context, "rows", 12, 64, 64);
}
static void test_sizes(void **state) {
    (void)state;
    const size_t limit = 400000;
    static const int64_t rows[] = {64, 100, 1000, 65};
    dlc_context *context = open_context("cpu", NULL);
    if (!context) return;
    training *t, *free_t;
    dlc_program *program = limited(context, mlp_of_rows, 0, limit, &t);
    dlc_program *unlimited = limited(context, mlp_of_rows, 0, 0, &free_t);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double live;
        size_t count;
        t->shape[0][0] = t->shape[1][0] = free_t->shape[0][0] = free_t->shape[1][0] = rows[i];
        if (rows[i] == 1000) {
            CHECK(prepare(t, program) == DLC_BUDGET_EXCEEDED);
            continue;
        }
        float *got = step(context, t, program, &count), *expected = step(context, free_t, unlimited, &count);
        CHECK(arena_of(context, t, program, &live) <= (double)limit);
        CHECK(arena_of(context, t, unlimited, &live) > (double)limit);
        compare_steps(got, expected, count, false);
        dlc_text_free(context, dump_training(context, t, program, "profile"));
        free(got);
        free(expected);
    }
    dlc_program_destroy(program);
    dlc_program_destroy(unlimited);
    free(t);
    free(free_t);
    dlc_context_destroy(context);
}

/* dlc_recompute: results are those of the same graph without it, and of groups of layers only the operands are kept; the dump says what is computed
 * again. */
static void test_recompute(void **state) {
    (void)state;
    for (int target = test_is_shortest() ? 1 : 0; target < 2; target++) {
        dlc_context *context = open_context(all_targets[target], NULL);
        if (!context) continue;
        training *plain = mlp(context, 24, 64, 64), *grouped = grouped_mlp(context, 6, 4, 64, 64);
        dlc_program *programs[] = {compile_training(context, plain, NULL), compile_training(context, grouped, NULL)};
        double live;
        size_t count;
        float *expected = step(context, plain, programs[0], &count), *got = step(context, grouped, programs[1], &count);
        const double arenas[] = {arena_of(context, plain, programs[0], &live),
                                 arena_of(context, grouped, programs[1], &live)};
        compare_steps(got, expected, count, false);
        print_message("%s: arenas of %.0f bytes, %.0f by dlc_recompute\n", all_targets[target], arenas[0], arenas[1]);
        CHECK(arenas[1] <= 0.5 * arenas[0]);
        for (int i = 0; i < 2; i++) {
            char *kept = dump_training(context, i ? grouped : plain, programs[i], "kept");
            CHECK((strstr(kept, "computed again: 0 kernels") == NULL) == (i == 1));
            dlc_text_free(context, kept);
        }
        free(expected);
        free(got);
        for (int i = 0; i < 2; i++) dlc_program_destroy(programs[i]);
        free(plain);
        free(grouped);
        dlc_context_destroy(context);
    }
}

/* Derivatives in both modes and of second order, with a captured value, printed and parsed in between. */
static void test_recompute_differentiates(void **state) {
    (void)state;
    enum { N = 5, RESULTS = 3 };
    dlc_context *context = open_context("interp", NULL);
    if (!context) return;
    float data[2][N], results[2][RESULTS][N];
    for (int i = 0; i < 2; i++) fill(data[i], N, (uint32_t)i + 1);
    for (int way = 0; way < 2; way++) {
        dlc_graph *g, *again;
        char *text;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(N))), d = dlc_input(g, "d", DLC_F32, 1, DIMS(SIZE(N)));
        dlc_value scale = dlc_exp(x), y, out[RESULTS];
        dlc_graph *body = way ? dlc_subgraph(g) : g;
        y = way ? dlc_input(body, "x", DLC_F32, 1, DIMS(SIZE(N))) : x;
        y = dlc_mul(dlc_tanh(dlc_mul(y, y)), scale);
        if (way) {
            dlc_output(body, "y", y);
            dlc_recompute(g, 1, &x, body, 1, &y);
        }
        dlc_value loss = dlc_reduce_sum(dlc_mul(y, dlc_sin(y)), 0, NULL);
        dlc_gradient(loss, 1, &x, &out[0]);
        dlc_jvp(1, &x, &d, 1, &y, &out[1]);
        dlc_hvp(loss, 1, &x, &d, &out[2]);
        for (int r = 0; r < RESULTS; r++) dlc_output(g, (const char *[]){"g", "t", "h"}[r], out[r]);
        OK(context, dlc_graph_print(g, &text));
        OK(context, dlc_graph_parse(context, text, strlen(text), &again));
        CHECK((strstr(text, "recompute(") != NULL) == way);
        dlc_text_free(context, text);
        dlc_graph_destroy(g);
        dlc_program *program = compile(context, again);
        tensor in[2], to[RESULTS];
        dlc_output_slot slots[RESULTS];
        for (int r = 0; r < RESULTS; r++) slots[r] = (dlc_output_slot){F32(&to[r], results[way][r], N), NULL};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&in[0], data[0], N), F32(&in[1], data[1], N)}, 2,
                            slots, RESULTS));
        dlc_program_destroy(program);
    }
    for (int r = 0; r < RESULTS; r++) compare_steps(results[1][r], results[0][r], N, false);
    dlc_context_destroy(context);
}

/* What has an effect would have it twice. */
static void test_effects_are_refused(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    if (!context) return;
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(4))), y;
    dlc_graph *body = dlc_subgraph(g);
    dlc_value z = dlc_input(body, "x", DLC_F32, 1, DIMS(SIZE(4))), told;
    dlc_custom_effect(body, 1, &z, "print", 1, (const int64_t[]){DLC_F32}, 1, SHAPE(1), 1, DIMS(SIZE(4)), 1, &told);
    dlc_output(body, "y", told);
    dlc_recompute(g, 1, &x, body, 1, &y);
    CHECK(dlc_graph_status(g) == DLC_INVALID_ARGUMENT && strstr(dlc_graph_message(g), "has an effect"));
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* The dump says what the forward sweep keeps, of that what lives where most bytes are live, and what is computed again: within memory_bytes, or
 * by `recompute`. */
static void test_kept(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) return;
    training *t;
    double first = 0, live;
    for (int limits = 0; limits < 2; limits++) {
        int values = 0, kernels = 0, lines = 0;
        double bytes = 0, across = 0, sum = 0;
        dlc_program *program = limited(context, small_transformer, 0, limits ? (size_t)(first / 2) : 0, &t);
        char *text = dump_training(context, t, program, "kept"), *at = strstr(text, "computed again: ");
        CHECK(sscanf(text, "kept: %d values of %lf bytes", &values, &bytes) == 2 && values > 0);
        CHECK(sscanf(text, "kept: %*d values of %*f bytes, %lf of them across", &across) == 1);
        CHECK(at && sscanf(at, "computed again: %d kernels", &kernels) == 1);
        first = arena_of(context, t, program, &live);
        CHECK(across <= live && across <= bytes);
        CHECK(!!strstr(at, " for memory_bytes: ") == (limits > 0) && (!limits || kernels > 0));
        CHECK(strstr(text, limits ? ": memory_bytes is enough" : ": there is no memory_bytes"));
        for (const char *line = strstr(text, "\n  "); line; line = strstr(line + 1, "\n  "), lines++) {
            double own = 0;
            CHECK(sscanf(line, " %lf bytes", &own) == 1 && own > 0);
            if (line < at) sum += own;
        }
        CHECK(lines == values + kernels && sum == bytes);
        dlc_text_free(context, text);
        dlc_program_destroy(program);
        free(t);
    }
    dlc_context_destroy(context);
}

/* 24 transformer blocks in 40 % of the memory that they take without a limit. */
static training *deep_transformer(dlc_context *context, uint32_t seed) {
    (void)seed;
    return transformer(context, 24, 2, 64, 64, 4);
}
static void test_deep(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) return;
    training *t;
    double live;
    dlc_program *program = limited(context, deep_transformer, 0, 0, &t);
    const double first = arena_of(context, t, program, &live);
    dlc_program_destroy(program);
    free(t);
    program = limited(context, deep_transformer, 0, (size_t)(first * 0.4), &t);
    CHECK(arena_of(context, t, program, &live) <= first * 0.4);
    dlc_program_destroy(program);
    free(t);
    dlc_context_destroy(context);
}

/* ---- memory of the host that is refused while plans are made to fit --------------------------------------------------------- */

static training *tiny_recurrent(dlc_context *context, uint32_t seed) {
    (void)seed;
    return recurrent(context, 2, 3, 4, 8);
}

static void test_refused(void **state) {
    (void)state;
    enum { STRIDE = 13 };
    dlc_context *plain = open_context("interp", NULL);
    if (!plain) return;
    const size_t least = (size_t)least_of(plain, tiny_recurrent, 0, 1);
    dlc_context_destroy(plain);
    bool refused = true;
    for (int64_t site = 0; refused; site += STRIDE) {
        counter c;
        training *t;
        dlc_context *context = open_counted("interp", &c);
        dlc_program *program = limited(context, tiny_recurrent, 0, least, &t);
        atomic_store(&c.left, site);
        const dlc_status status = prepare(t, program);
        refused = atomic_load(&c.left) == 0;
        atomic_store(&c.left, -1);
        CHECK(status == DLC_OK || (refused && status == DLC_OUT_OF_MEMORY));
        OK(context, prepare(t, program));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        CHECK(atomic_load(&c.blocks) == 0);
        free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates_run_early),
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_maps_keep_bits),
        cmocka_unit_test(test_around_loops),
        cmocka_unit_test(test_keeps_least),
        cmocka_unit_test(test_keeps_least_of_sizes),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_recompute_differentiates),
        cmocka_unit_test(test_effects_are_refused),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("memory of training", tests, NULL, NULL);
}
