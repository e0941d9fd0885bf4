/* Names decide nothing: operators of a host that differ in the names of their indices and in their own have the library's kernels, the
 * same bits whichever of them is compiled first, and schedules that are shown with the host's names and can be given back. */
#include "api/extend.h"

enum { N = 24, M = 3001, COUNT = N * M };

/* Names for three indices: plain ones, those that the rules use themselves, those of the canonical form, words of the languages. */
static const char *const spellings[][3] = {
    {"i", "j", "k"},          {"lane", "step", "block"},  {"row", "place", "within"},
    {"v_o", "u_o", "q_o"},    {"v_i", "u_i", "q_i"},      {"k_o", "b_o", "b_i"},
    {"i0", "k0", "i1"},       {"k0", "i0", "k1"},         {"s0", "x0", "s1"},
    {"s0_p", "s0_8", "s1_p"}, {"chunk", "group", "next"}, {"d0", "d1", "d2"},
    {"mask", "peel", "reg"},  {"at", "order", "split"},   {"sums", "lanes", "key_block"},
    {"w_o", "piece", "in_"},
};
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

/* A is the first name, B the second, C the third. */
typedef struct family {
    /* own: the library's operator of that meaning, as text; NULL: none */
    const char *operands, *shape, *expression, *own;
    int inputs;
} family;
static const family families[] = {
    {"x", "T[n, m] -> T[n]", "y[A] = sum(B, x[A, B])", "reduce_sum(x0, axes=[1])", 1},
    {"x", "T[n, m] -> T[m]", "y[B] = sum(A, x[A, B])", "reduce_sum(x0, axes=[0])", 1},
    {"x", "T[n, m] -> T[n, m]",
     "m[A] = max(B, x[A, B]); e[A, B] = exp(x[A, B] - m[A]); y[A, B] = e[A, B] / sum(C, e[A, C])", NULL, 1},
    {"x w", "T[n, m], T[n, m] -> T[n, n]", "y[A, B] = sum(C, x[A, C] * w[B, C])", NULL, 2},
    {"x w", "T[n, m], T[n, m] -> T[m, m]", "y[A, B] = sum(C, x[C, A] * w[C, B])", NULL, 2},
    {"x", "T[n, m] -> T[m, n]", "y[A, B] = exp(x[B, A])", NULL, 1},
};
enum { FAMILIES = sizeof families / sizeof *families };

#ifdef DLC_TARGET_cpu
static const char target[] = "cpu";
#else
static const char target[] = "interp";
#endif
static float input[2][COUNT];

/* The expression with these names. */
static void spell(const char *expression, const char *const *names, char *out) {
    for (const char *at = expression; *at; at++) {
        if (*at >= 'A' && *at <= 'C')
            out += sprintf(out, "%s", names[*at - 'A']);
        else
            *out++ = *at;
    }
    *out = 0;
}

static void define_spelled(dlc_context *context, const family *f, const char *name, const char *const *names) {
    char expression[4096];
    spell(f->expression, names, expression);
    const dlc_operator_options options = {
        .name = name, .operands = f->operands, .dtypes = "float", .shape = f->shape, .expression = expression};
    OK(context, define(context, options));
}

static dlc_program *compile_text(dlc_context *context, const char *text, const char *schedule) {
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.schedule = schedule;
    dlc_graph *g = parse(context, text);
    dlc_program *program;
    OK(context, dlc_compile(context, g, &options, &program));
    dlc_graph_destroy(g);
    return program;
}

static dlc_program *compile_call(dlc_context *context, const family *f, const char *call, const char *schedule) {
    char text[1024];
    snprintf(text, sizeof text, "graph {\n input x0: f32[%d, %d]\n %s y = %s\n output y\n}", N, f->inputs > 1 ? 301 : M,
             f->inputs > 1 ? "input x1: f32[24, 301]\n" : "", call);
    return compile_text(context, text, schedule);
}

typedef struct bits {
    size_t size;
    unsigned char *data;
} bits;

static bits run_program(dlc_context *context, const family *f, dlc_program *program) {
    const int64_t *shape = SHAPE(N, f->inputs > 1 ? 301 : M);
    tensor t[2];
    for (int i = 0; i < 2; i++) make_tensor(&t[i], DLC_F32, input[i], 2, shape);
    dlc_output_slot slot = {0};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&t[0].dl, &t[1].dl}, f->inputs, &slot, 1));
    const DLTensor *y = &slot.managed->dl_tensor;
    bits result = {.size = sizeof(float)};
    for (int d = 0; d < y->ndim; d++) result.size *= (size_t)y->shape[d];
    result.data = malloc(result.size);
    assert_non_null(result.data);
    memcpy(result.data, y->data, result.size);
    slot.managed->deleter(slot.managed);
    return result;
}

static void call_of(const family *f, const char *name, char *call) {
    sprintf(call, f->inputs > 1 ? "%s(x0, x1)" : "%s(x0)", name);
}

static void expect_same(const bits *expected, bits got, const char *what) {
    if (got.size != expected->size || memcmp(got.data, expected->data, got.size) != 0) fail_msg("%s: other bits", what);
    free(got.data);
}

/* All spellings, beginning with another one each time: one kernel serves all, with the bits of the plain one. */
static void test_names_share_kernels(void **state) {
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        bits expected = {0};
        uint64_t builds = 0;
        for (int first = 0; first < SPELLINGS; first++) {
            dlc_context *context = open_context(target, NULL);
            for (int n = 0; n < SPELLINGS && (n < 3 || first == 0); n++) {
                const int s = (first + n) % SPELLINGS;
                char name[32], call[64];
                sprintf(name, "spelled%d", s);
                call_of(&families[f], name, call);
                define_spelled(context, &families[f], name, spellings[s]);
                dlc_program *program = compile_call(context, &families[f], call, NULL);
                bits got = run_program(context, &families[f], program);
                if (!expected.data) {
                    expected = got;
                    builds = statistics(context).kernel_builds;
                } else {
                    expect_same(&expected, got, spellings[s][0]);
                }
                dlc_program_destroy(program);
            }
            if (families[f].own) {
                dlc_program *program = compile_call(context, &families[f], families[f].own, NULL);
                expect_same(&expected, run_program(context, &families[f], program), families[f].own);
                dlc_program_destroy(program);
            }
            assert_int_equal(statistics(context).interpreted_regions, 0);
            assert_int_equal(statistics(context).kernel_builds, builds);
            dlc_context_destroy(context);
        }
        free(expected.data);
    }
}

/* Operators are called as the rules name stages, as words of the languages, or at length. */
static void test_names_of_operators(void **state) {
    enum { LENGTH = 63 }; /* as many as there may be */
    static char longest[LENGTH + 1];
    static const char *const names[] = {"s0",  "s1_p", "x0_rows", "i0",    "k0",    "loops",    "rewrite",
                                        "map", "lane", longest,   "rows_", "order", "spelled_8"};
    (void)state;
    memset(longest, 'q', LENGTH);
    for (int f = 0; f < FAMILIES; f++) {
        dlc_context *context = open_context(target, NULL);
        bits expected = {0};
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            char call[LENGTH + 32];
            call_of(&families[f], names[n], call);
            define_spelled(context, &families[f], names[n], spellings[n % SPELLINGS]);
            dlc_program *program = compile_call(context, &families[f], call, NULL);
            bits got = run_program(context, &families[f], program);
            if (!expected.data)
                expected = got;
            else
                expect_same(&expected, got, names[n]);
            dlc_program_destroy(program);
        }
        assert_int_equal(statistics(context).interpreted_regions, 0);
        free(expected.data);
        dlc_context_destroy(context);
    }
}

/* What is shown of a schedule has the host's names, can be given back, and is the same kernel to the bit. */
static void test_schedules_are_given_back(void **state) {
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int s = 0; s < SPELLINGS; s++) {
            dlc_context *context = open_context(target, NULL);
            char name[32], call[64];
            const int64_t *shape = SHAPE(N, families[f].inputs > 1 ? 301 : M);
            sprintf(name, "spelled%d", s);
            call_of(&families[f], name, call);
            define_spelled(context, &families[f], name, spellings[s]);
            dlc_program *program = compile_call(context, &families[f], call, NULL);
            bits expected = run_program(context, &families[f], program);
            char *text = dump(context, program, "schedule", families[f].inputs, (const int64_t *[]){shape, shape},
                              (const int[]){2, 2});
            dlc_program *again = compile_call(context, &families[f], call, text);
            expect_same(&expected, run_program(context, &families[f], again), text);
            if (strcmp(target, "cpu") == 0) assert_holds(text, name);
            char *loops = dump(context, again, "loops", families[f].inputs, (const int64_t *[]){shape, shape},
                               (const int[]){2, 2});
            assert_holds(loops, name);
            assert_int_equal(statistics(context).interpreted_regions, 0);
            dlc_text_free(context, loops);
            dlc_text_free(context, text);
            dlc_program_destroy(again);
            dlc_program_destroy(program);
            free(expected.data);
            dlc_context_destroy(context);
        }
}

/* Messages about a host's schedule tell the host's names. */
static void test_messages_tell_the_hosts_names(void **state) {
    (void)state;
    dlc_context *context = open_context(target, NULL);
    define_spelled(context, &families[0], "summed", spellings[1]);
    dlc_program *program =
        compile_call(context, &families[0], "summed(x0)", "region summed:\nloops:\n par summed.i0\n");
    const int64_t *const shapes[1] = {SHAPE(N, M)};
    assert_int_equal(dlc_prepare(program, shapes, (const int[]){2}, 1), DLC_INVALID_ARGUMENT);
    assert_holds(dlc_error_message(context), "stage summed has no axis i0; it has lane, step");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* One text says different things of two regions of one structure: it is no key of a kernel by itself. */
static void test_one_text_for_two_regions(void **state) {
    (void)state;
    dlc_context *context = open_context(target, NULL);
    static const char *const names[] = {"a", "b"};
    for (int n = 0; n < 2; n++) {
        char text[256];
        const int64_t *shape = SHAPE(N, N);
        snprintf(text, sizeof text,
                 "graph {\n input %s: f32[%d, %d]\n input %s: f32[%d, %d]\n y = matmul(%s, %s)\n output y\n}", names[n],
                 N, N, names[1 - n], N, N, names[n], names[1 - n]);
        dlc_program *program = compile_text(context, text, "region dot_general:\n  copy a -> a_copy\n");
        OK(context, dlc_prepare(program, (const int64_t *[]){shape, shape}, (const int[]){2, 2}, 2));
        assert_int_equal(statistics(context).kernel_builds, n + 1);
        char *steps = dump(context, program, "steps", 2, (const int64_t *[]){shape, shape}, (const int[]){2, 2});
        assert_holds(steps, n ? "a_copy[k, j]" : "a_copy[i, k]");
        dlc_text_free(context, steps);
        dlc_program_destroy(program);
    }
    dlc_context_destroy(context);
}

static int make_input(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < COUNT; k++) input[i][k] = (float)((k * 7919 + i) % 1013) / 500 - 1.0137f;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_share_kernels),      cmocka_unit_test(test_names_of_operators),
        cmocka_unit_test(test_schedules_are_given_back), cmocka_unit_test(test_messages_tell_the_hosts_names),
        cmocka_unit_test(test_one_text_for_two_regions),
    };
    return cmocka_run_group_tests_name("api/names", tests, make_input, NULL);
}
