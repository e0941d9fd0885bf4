/* isolate_compiler as a host sees it, and budgets that end in a status. What a helper can do wrong is in test/cpu/isolate.c. */
#include "api/support.h"
#include "test/share.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
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
    options.compiler_path = "libdlc-compiler";
    assert_int_equal(dlc_context_create(&options, &context), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(NULL), "compiler_path"));
}

#define FUNCTION(library, name) __typeof__(&name) own_##name = (__typeof__(&name))(uintptr_t)dlsym(library, #name)

/* In a child: a context of a library that was loaded from the folder `own` by a relative path, whose host then went to the folder `work`. */
static int prepare_after_moving(const char *own, const char *work) {
    static const char text[] = "graph { input a: f32[n] y = exp(a) output y }";
    if (chdir(own) != 0) return 100;
    void *library = dlopen("./libdlc.so", RTLD_NOW | RTLD_LOCAL);
    if (!library || chdir(work) != 0) return 101;
    FUNCTION(library, dlc_context_create);
    FUNCTION(library, dlc_graph_parse);
    FUNCTION(library, dlc_compile);
    FUNCTION(library, dlc_prepare);
    FUNCTION(library, dlc_program_destroy);
    FUNCTION(library, dlc_graph_destroy);
    FUNCTION(library, dlc_context_destroy);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.isolate_compiler = true;
    dlc_context *context;
    dlc_graph *graph;
    dlc_program *program;
    dlc_status status = own_dlc_context_create(&options, &context);
    if (status != DLC_OK) return (int)status;
    status = own_dlc_graph_parse(context, text, sizeof text - 1, &graph);
    if (status == DLC_OK) status = own_dlc_compile(context, graph, NULL, &program);
    if (status != DLC_OK) return 102;
    status = own_dlc_prepare(program, (const int64_t *[]){SHAPE(4)}, (const int[]){1}, 1);
    own_dlc_program_destroy(program);
    own_dlc_graph_destroy(graph);
    own_dlc_context_destroy(context);
    return (int)status;
}

static int in_child(int (*work)(const char *, const char *), const char *a, const char *b) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(work(a, b));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The current folder does not choose the program, whatever path the library was loaded by. */
static void test_relative_library(void **state) {
    (void)state;
    char root[] = "/tmp/dlc-relative-XXXXXX", own[64], trap[64], command[4 * PATH_MAX], sprung[128];
    dlc_context *probe = open_context("cpu", NULL);
    if (!probe) skip();
    dlc_context_destroy(probe);
    Dl_info info;
    __typeof__(&dlc_context_create) here = dlc_context_create;
    assert_int_not_equal(dladdr((void *)(uintptr_t)here, &info), 0);
    assert_non_null(mkdtemp(root));
    snprintf(own, sizeof own, "%s/own", root);
    snprintf(trap, sizeof trap, "%s/trap", root);
    snprintf(sprung, sizeof sprung, "%s/sprung", trap);
    snprintf(
        command, sizeof command,
        "set -e; mkdir %s %s; folder=$(dirname '%s'); cp -L $folder/libdlc.so.? $folder/libdlc-compiler %s; cd %s; "
        "ln -s libdlc.so.? libdlc.so; touch %s/libdlc.so; printf '#!/bin/sh\ntouch %s\n' >%s/libdlc-compiler; chmod +x %s/libdlc-compiler",
        own, trap, info.dli_fname, own, own, trap, sprung, trap, trap);
    assert_int_equal(system(command), 0);
    assert_int_equal(in_child(prepare_after_moving, own, trap), DLC_OK);
    assert_int_equal(access(sprung, F_OK), -1);
    snprintf(command, sizeof command, "%s/libdlc-compiler", own);
    assert_int_equal(unlink(command), 0);
    assert_int_equal(in_child(prepare_after_moving, own, trap), DLC_NOT_FOUND);
    assert_int_equal(access(sprung, F_OK), -1);
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
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
    TEST_WITHOUT_THREADS();
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
        cmocka_unit_test(test_results),  cmocka_unit_test(test_missing),       cmocka_unit_test(test_relative_library),
        cmocka_unit_test(test_impostor), cmocka_unit_test(test_memory_budget), cmocka_unit_test(test_together),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests_name("isolation and budgets", tests, NULL, NULL);
}
