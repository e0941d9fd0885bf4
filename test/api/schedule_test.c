/* Schedules that a host gives: what is dumped can be given back, by hash or by name, and runs to the same bits; what is changed is
 * followed; what no region wants is told to the log. */
#include "test/api/support.h"

/* softmax(relu(x a + b) c) and its transpose: several regions. */
static dlc_graph *network(dlc_context *context) {
    static float a[32 * 48], b[48], c[48 * 24];
    dlc_graph *g;
    fill(a, 32 * 48, 1);
    fill(b, 48, 2);
    fill(c, 48 * 24, 3);
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(32)));
    dlc_value y =
        dlc_linear(x, dlc_constant(g, DLC_F32, 2, SHAPE(32, 48), a), dlc_constant(g, DLC_F32, 1, SHAPE(48), b));
    y = dlc_softmax(dlc_matmul(dlc_relu(y), dlc_constant(g, DLC_F32, 2, SHAPE(48, 24), c)), -1);
    dlc_output(g, "y", y);
    dlc_output(g, "t", dlc_transpose(y, 2, (const int64_t[]){1, 0}));
    return g;
}

enum { N = 19 };
typedef struct results {
    float y[N * 24], t[24 * N];
} results;

static dlc_program *compile_with(dlc_context *context, const char *schedule) {
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.schedule = schedule;
    dlc_graph *g = network(context);
    dlc_program *program;
    OK(context, dlc_compile(context, g, &options, &program));
    dlc_graph_destroy(g);
    return program;
}

static char *dump(dlc_context *context, dlc_program *program, const char *stage) {
    char *text;
    OK(context, dlc_program_dump(program, stage, (const int64_t *[]){SHAPE(N, 32)}, (const int[]){2}, 1, &text));
    return text;
}

static results run(dlc_context *context, dlc_program *program) {
    static float x[N * 32];
    results r;
    tensor tx, ty, tt;
    fill(x, N * 32, 4);
    dlc_output_slot slots[2] = {{F32(&ty, r.y, N, 24), NULL}, {F32(&tt, r.t, 24, N), NULL}};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, N, 32)}, 1, slots, 2));
    return r;
}

/* Takes either the names or the hashes out of the headers; the copy is the caller's. */
static char *without(const char *text, bool names) {
    char *copy = strdup(text);
    for (char *at = copy; (at = strstr(at, "region ")) != NULL; at++) {
        char *hash = strchr(at, '#'), *end = strchr(at, ':');
        if (!hash || !end || hash > end) fail_msg("a header without a hash: %.40s", at);
        if (names)
            memmove(at + 7, hash, strlen(hash) + 1);
        else
            memmove(hash - 1, end, strlen(end) + 1);
    }
    return copy;
}

typedef struct journal {
    int lines;
    char last[512];
} journal;

static void note(void *user, const char *line) {
    journal *j = user;
    if (!strstr(line, "dlc: schedule")) return;
    j->lines++;
    snprintf(j->last, sizeof j->last, "%s", line);
}

static dlc_context *open_told(const char *target, journal *said) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.log = note;
    options.log_user = said;
    return open_context(target, &options);
}

static void test_round_trip(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        journal said = {0};
        dlc_context *context = open_told(all_targets[t], &said);
        if (!context) continue;
        dlc_program *first = compile_with(context, NULL);
        char *schedules = dump(context, first, "schedule"), *loops = dump(context, first, "loops");
        results expected = run(context, first);
        for (int form = 0; form < 3; form++) {
            char *given = form == 0 ? strdup(schedules) : without(schedules, form == 1);
            dlc_program *program = compile_with(context, given);
            char *again = dump(context, program, "loops");
            assert_string_equal(again, loops);
            results got = run(context, program);
            assert_memory_equal(&got, &expected, sizeof got);
            dlc_text_free(context, again);
            dlc_program_destroy(program);
            free(given);
        }
        assert_int_equal(said.lines, 0);
        dlc_text_free(context, schedules);
        dlc_text_free(context, loops);
        dlc_program_destroy(first);
        dlc_context_destroy(context);
    }
}

/* A section by hash goes before one by name; sections of no region are told once, however many plans there are. */
static void test_choice(void **state) {
    (void)state;
    journal said = {0};
    dlc_context *context = open_told("interp", &said);
    dlc_program *first = compile_with(context, NULL);
    char *schedules = dump(context, first, "schedule"), name[64], hash[64], text[1024];
    if (sscanf(schedules, "region %63s %63[^:]:", name, hash) != 2) fail_msg("%s", schedules);
    snprintf(
        text, sizeof text,
        "# by name\nregion %s:\nnonsense\nregion soup:\nnonsense\nregion %s:\n# plain\nregion #00000000000000aa:\n",
        name, hash);
    dlc_program *program = compile_with(context, text);
    results expected = run(context, first), got = run(context, program);
    for (int i = 0; i < N * 24; i++) assert_true(fabsf(got.y[i] - expected.y[i]) < 1e-6f);
    assert_int_equal(said.lines, 3); /* the one by name was not needed */
    assert_non_null(strstr(said.last, "line 8"));
    assert_non_null(strstr(said.last, "#00000000000000aa"));
    /* of another size the region computes something else: its name counts */
    assert_int_equal(dlc_prepare(program, (const int64_t *[]){SHAPE(3, 32)}, (const int[]){2}, 1),
                     DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), ", line 3: `nonsense`: no directive is called nonsense"));
    assert_int_equal(said.lines, 3);
    dlc_text_free(context, schedules);
    dlc_program_destroy(program);
    dlc_program_destroy(first);
    dlc_context_destroy(context);
}

/* Several regions that compute the same have the same section each in a dump: it is taken back, and nothing is told of. */
static void test_repeated(void **state) {
    (void)state;
    journal said = {0};
    dlc_context *context = open_told("interp", &said);
    dlc_program *first = compile_with(context, NULL);
    char *schedules = dump(context, first, "schedule"), *names = without(schedules, false);
    char *twice = malloc(2 * strlen(names) + 1);
    sprintf(twice, "%s%s", names, names);
    dlc_program *program = compile_with(context, twice);
    results expected = run(context, first), got = run(context, program);
    assert_memory_equal(&expected, &got, sizeof got);
    assert_int_equal(said.lines, 0);
    free(twice);
    free(names);
    dlc_text_free(context, schedules);
    dlc_program_destroy(program);
    dlc_program_destroy(first);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_repeated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
