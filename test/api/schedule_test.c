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

/* ---- choices of the rules */

static dlc_program *compile_product(dlc_context *context, const char *schedule) {
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    dlc_graph *g;
    dlc_program *program;
    options.schedule = schedule;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(200), SIZE(1024))),
              w = dlc_input(g, "w", DLC_F32, 2, DIMS(SIZE(1024), SIZE(7)));
    dlc_output(g, "y", dlc_matmul(x, w));
    OK(context, dlc_compile(context, g, &options, &program));
    dlc_graph_destroy(g);
    return program;
}

static dlc_status prepare_product(dlc_program *program) {
    return dlc_prepare(program, (const int64_t *[]){SHAPE(200, 1024), SHAPE(1024, 7)}, (const int[]){2, 2}, 2);
}

static char *dump_product(dlc_context *context, dlc_program *program, const char *stage) {
    char *text;
    OK(context, dlc_program_dump(program, stage, (const int64_t *[]){SHAPE(200, 1024), SHAPE(1024, 7)},
                                 (const int[]){2, 2}, 2, &text));
    return text;
}

/* All choices as the rules make them: the same loops. Comments, in which other candidates stand, are no lines of a schedule. */
static void test_choices_round_trip(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        journal said = {0};
        dlc_context *context = open_told(all_targets[t], &said);
        if (!context) continue;
        dlc_program *first = compile_with(context, NULL);
        char *choices = dump(context, first, "choices"), *loops = dump(context, first, "loops");
        if (strcmp(all_targets[t], "cpu") == 0) assert_non_null(strstr(choices, "\nchoose "));
        dlc_program *program = compile_with(context, choices);
        char *again = dump(context, program, "loops");
        results expected = run(context, first), got = run(context, program);
        assert_string_equal(again, loops);
        assert_memory_equal(&got, &expected, sizeof got);
        assert_int_equal(said.lines, 0);
        dlc_text_free(context, again);
        dlc_text_free(context, choices);
        dlc_text_free(context, loops);
        dlc_program_destroy(program);
        dlc_program_destroy(first);
        dlc_context_destroy(context);
    }
}

/* Choices are followed in any order of lines: the choice of lanes exists only in that form. The schedule that they make
 * is shown, differs from the rules' own, and can be given back. */
static void test_choices_are_followed(void **state) {
    static const char *const lines[] = {
        "choose dot_general.lanes 4\nchoose dot_general.columns 7\nchoose dot_general.rows 1\nchoose dot_general.form lanes\n",
        "choose dot_general.form lanes\n\n# as above\nchoose dot_general.rows 1\nchoose dot_general.lanes 4\nchoose dot_general.columns 7"};
    (void)state;
    setenv("DLC_CPU_FEATURES", "sse2", 1); /* the same candidates on every machine */
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    dlc_program *rules = compile_product(context, NULL);
    char *own = dump_product(context, rules, "schedule"), text[256];
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "region dot_general:\n%s", lines[i]);
        dlc_program *program = compile_product(context, text);
        OK(context, prepare_product(program));
        char *shown = dump_product(context, program, "schedule"), *loops = dump_product(context, program, "loops");
        assert_string_not_equal(shown, own);
        assert_non_null(strstr(shown, ".i 1 -> u_o u_i"));
        assert_null(strstr(shown, "choose"));
        dlc_program *again = compile_product(context, shown);
        char *same = dump_product(context, again, "loops");
        assert_string_equal(same, loops);
        dlc_text_free(context, same);
        dlc_text_free(context, loops);
        dlc_text_free(context, shown);
        dlc_program_destroy(again);
        dlc_program_destroy(program);
    }
    dlc_text_free(context, own);
    dlc_program_destroy(rules);
    dlc_context_destroy(context);
    unsetenv("DLC_CPU_FEATURES");
}

/* The dump shows a sample of a hundred numbers; a host may choose each of them. */
static void test_choice_of_many_numbers(void **state) {
    enum { LENGTH = 1000000 };
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    int found = 0;
    for (int chunks = 50; chunks < 58; chunks++) {
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        dlc_graph *g;
        dlc_program *program;
        char schedule[80], line[40], *text;
        snprintf(schedule, sizeof schedule, "region reduce_sum:\nchoose reduce_sum.chunks %d\n", chunks);
        snprintf(line, sizeof line, " %d chunks", chunks);
        options.schedule = schedule;
        OK(context, dlc_graph_create(context, &g));
        dlc_output(g, "y", dlc_reduce_sum(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(LENGTH))), 0, NULL));
        OK(context, dlc_compile(context, g, &options, &program));
        OK(context,
           dlc_program_dump(program, "schedule", (const int64_t *[]){SHAPE(LENGTH)}, (const int[]){1}, 1, &text));
        found += strstr(text, line) != NULL;
        dlc_text_free(context, text);
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
    }
    CHECK(found == 8);
    dlc_context_destroy(context);
}

static void test_choices_that_do_not_exist(void **state) {
    static const struct {
        const char *lines, *line, *reason;
    } wrong[] = {
        {"choose dot_general.row 3\n", "line 2: `choose dot_general.row 3`", "did you mean \"dot_general.rows\"?"},
        {"choose nothing.rows 3\n", "line 2", "there is no such choice; there are dot_general.form"},
        {"choose dot_general.rows 99\n", "line 2", "expected one of 1, 2"},
        {"\nchoose dot_general.rows three\n", "line 3", "expected one of 1, 2"},
        {"choose dot_general.rows 1\nchoose dot_general.rows 2\n", "line 3", "impossible beside the other choices"},
        {"choose dot_general.rows 1 2\n", "line 2", "expected `choose STAGE.CHOICE VALUE`"},
        {"choose dot_general 3\n", "line 2", "expected `choose STAGE.CHOICE VALUE`"},
        {"chooses dot_general.rows 1\n", "line 2", "no directive is called chooses"},
        {"choose\n", "line 2", "expected `choose STAGE.CHOICE VALUE`"},
        {"choose dot_general.rows 3\nvec dot_general.j\n", "line 2", "directives (line 3)"},
        {"loops:\nchoose dot_general.rows 3\n", "line 3", "directives (line 2)"},
    };
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[256];
        snprintf(text, sizeof text, "region dot_general:\n%s", wrong[i].lines);
        dlc_program *program = compile_product(context, text);
        assert_int_equal(prepare_product(program), DLC_INVALID_ARGUMENT);
        if (!strstr(dlc_error_message(context), wrong[i].line) || !strstr(dlc_error_message(context), wrong[i].reason))
            fail_msg("%s: %s", wrong[i].lines, dlc_error_message(context));
        dlc_program_destroy(program);
    }
    dlc_program *program = compile_product(context, NULL); /* the context goes on */
    OK(context, prepare_product(program));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_choice),
                                       cmocka_unit_test(test_repeated),
                                       cmocka_unit_test(test_choices_round_trip),
                                       cmocka_unit_test(test_choices_are_followed),
                                       cmocka_unit_test(test_choice_of_many_numbers),
                                       cmocka_unit_test(test_choices_that_do_not_exist)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
