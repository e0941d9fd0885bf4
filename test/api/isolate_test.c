/* isolate_compiler as a host sees it, and budgets that end in a status. What a helper can do wrong is in test/cpu/isolate.c. */
#include "api/support.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

static dlc_context *isolated(dlc_context_options options) {
    options.isolate_compiler = true;
    return open_context("cpu", &options);
}

/* The same bits as without; several compile at once; the assembly, too, comes from there. */
static void test_results(void **state) {
    (void)state;
    counter memory;
    dlc_allocator allocator = counting(&memory);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.compile_threads = 2;
    options.allocator = &allocator;
    dlc_context *there = isolated(options), *here = open_context("cpu", NULL);
    if (!here) skip();
    dlc_program *a = dense_program(there, "n"), *b = dense_program(here, "n");
    for (int64_t n = 1; n < 8; n++) {
        float one[64 * 4], two[64 * 4];
        run_dense(there, a, n, one);
        run_dense(here, b, n, two);
        assert_memory_equal(one, two, (size_t)n * 16);
    }
    char *text;
    OK(there, dlc_program_dump(a, "asm", (const int64_t *[]){SHAPE(3, 8)}, (const int[]){2}, 1, &text));
    assert_non_null(strstr(text, "spills"));
    dlc_text_free(there, text);
    dlc_program_destroy(a);
    dlc_program_destroy(b);
    dlc_context_destroy(there);
    dlc_context_destroy(here);
    assert_int_equal(memory.blocks, 0);
}

static void test_missing(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    dlc_context_destroy(context);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = "cpu";
    options.isolate_compiler = true;
    options.compiler_path = "/nowhere/libdlc-compiler";
    assert_int_equal(dlc_context_create(&options, &context), DLC_NOT_FOUND);
    assert_non_null(strstr(dlc_error_message(NULL), "/nowhere/libdlc-compiler"));
}

/* A program that is no compiler: the run says so, and the context stays usable for what is compiled. */
static void test_impostor(void **state) {
    (void)state;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.compiler_path = "/bin/false";
    dlc_context *context = isolated(options);
    if (!context) skip();
    dlc_program *program = dense_program(context, "n");
    const int64_t shape[2] = {3, 8};
    for (int i = 0; i < 2; i++)
        assert_int_equal(dlc_prepare(program, (const int64_t *[]){shape}, (int[]){2}, 1), DLC_COMPILE_FAILED);
    assert_non_null(strstr(dlc_error_message(context), "compiler's process"));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* Memory of a bind: too little is a status, and the next program is not concerned. */
static void test_memory_budget(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program;
        dlc_graph *g;
        const size_t budgets[] = {1, 5000, 20000, (size_t)1 << 40};
        for (int i = 0; i < 4; i++) {
            dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
            options.budget_bytes = budgets[i];
            OK(context, dlc_graph_create(context, &g));
            dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(8)));
            if (i % 2) OK(context, dlc_symbol_varies(g, "n", 1, 64, 1));
            for (int k = 0; k < 20; k++) x = dlc_softmax(dlc_add(x, x), -1);
            dlc_output(g, "y", x);
            const int64_t shape[2] = {3 + i, 8};
            dlc_status status = dlc_compile(context, g, &options, &program);
            dlc_graph_destroy(g);
            if (status == DLC_OK) status = dlc_prepare(program, (const int64_t *[]){shape}, (int[]){2}, 1);
            assert_int_equal(status, i < 3 ? DLC_BUDGET_EXCEEDED : DLC_OK);
            if (status != DLC_OK) assert_non_null(strstr(dlc_error_message(context), "budget_bytes"));
            dlc_program_destroy(program);
        }
        dlc_context_destroy(context);
    }
}

/* All of it at once: files, a background, another process. */
static void test_together(void **state) {
    (void)state;
    char folder[] = "/tmp/dlc-isolate-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    for (int round = 0; round < 2; round++) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.background_compile = true;
        options.cache_directory = folder;
        dlc_context *context = isolated(options);
        if (!context) break;
        dlc_program *program = dense_program(context, "n");
        float out[64 * 4];
        for (int i = 0; i < 3; i++)
            for (int64_t n = 1; n < 8; n++) run_dense(context, program, n, out);
        for (int i = 0; i < 1000 && statistics(context).tier_specialised < statistics(context).tier_generic; i++)
            usleep(10000);
        dlc_statistics s = statistics(context);
        if (round) assert_true(s.disk_hits > 0); /* what the first round's background did not come to is built */
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* A forked child starts compilers of its own, and leaves none of them unwaited for. */
static void test_fork(void **state) {
    (void)state;
    dlc_context *context = isolated((dlc_context_options)DLC_CONTEXT_OPTIONS_INIT);
    if (!context) skip();
    dlc_program *program = dense_program(context, "n");
    float out[64 * 4];
    run_dense(context, program, 3, out);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        run_dense(context, program, 5, out);
        _exit(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    run_dense(context, program, 5, out);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),       cmocka_unit_test(test_missing),  cmocka_unit_test(test_impostor),
        cmocka_unit_test(test_memory_budget), cmocka_unit_test(test_together), cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests_name("isolation and budgets", tests, NULL, NULL);
}
