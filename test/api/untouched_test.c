/* What a host's process is after the library has lived in it: what it was before. Signals' handlers, locale, affinity, working folder, file
 * mode mask, environment, standard streams, open files, threads, children, rounding; with every option that could touch them, and with
 * mistakes. And what it leaves in memory once it is unloaded. */
#include "api/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SIGNALS = 65, PATH = 1024 };

typedef struct process {
    struct sigaction action[SIGNALS];
    sigset_t blocked;
    char locale[256], folder[PATH];
    cpu_set_t cpus;
    mode_t mask;
    char **environment;
    int variables, files, threads, rounding;
    /* of the environment */
    uint64_t text;
} process;

static int count_entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static process look(void) {
    process p;
    memset(&p, 0, sizeof p);
    for (int s = 1; s < SIGNALS; s++) sigaction(s, NULL, &p.action[s]);
    sigprocmask(SIG_BLOCK, NULL, &p.blocked);
    snprintf(p.locale, sizeof p.locale, "%s", setlocale(LC_ALL, NULL));
    assert_non_null(getcwd(p.folder, sizeof p.folder));
    sched_getaffinity(0, sizeof p.cpus, &p.cpus);
    p.mask = umask(0);
    umask(p.mask);
    p.environment = environ;
    for (char **at = environ; *at; at++, p.variables++)
        for (const char *c = *at; *c; c++) p.text = p.text * 31 + (unsigned char)*c;
    p.files = count_entries("/proc/self/fd");
    p.threads = count_entries("/proc/self/task");
    p.rounding = fegetround();
    return p;
}

static void compare(const process *a, const process *b) {
    for (int s = 1; s < SIGNALS; s++)
        if (a->action[s].sa_handler != b->action[s].sa_handler || a->action[s].sa_flags != b->action[s].sa_flags)
            fail_msg("signal %d has another handler", s);
    assert_memory_equal(&a->blocked, &b->blocked, sizeof a->blocked);
    assert_string_equal(a->locale, b->locale);
    assert_string_equal(a->folder, b->folder);
    assert_memory_equal(&a->cpus, &b->cpus, sizeof a->cpus);
    assert_int_equal(a->mask, b->mask);
    assert_ptr_equal(a->environment, b->environment);
    assert_int_equal(a->variables, b->variables);
    assert_true(a->text == b->text);
    assert_int_equal(a->files, b->files);
#ifndef __SANITIZE_THREAD__ /* it has one of its own */
    assert_int_equal(a->threads, b->threads);
#endif
    assert_int_equal(a->rounding, b->rounding);
}

static void live(const char *target, const char *folder, bool isolate) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.threads = options.compile_threads = 2;
    options.background_compile = true;
    options.cache_directory = folder;
    options.isolate_compiler = isolate && strcmp(target, "cpu") == 0;
    dlc_context *context = open_context(target, &options);
    if (!context) return;
    dlc_program *program = dense_program(context, "n"), *none;
    for (int64_t n = 1; n < 30; n += 3) run_dense(context, program, n, NULL);
    const int64_t shape[2] = {7, 8}, *shapes[1] = {shape};
    OK(context, dlc_prepare(program, shapes, (const int[]){2}, 1));
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_output(g, "z",
               dlc_add(dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(2))), dlc_input(g, "y", DLC_I8, 1, DIMS(SIZE(3)))));
    assert_int_not_equal(dlc_compile(context, g, NULL, &none), DLC_OK);
    dlc_graph_destroy(g);
    assert_int_not_equal(dlc_graph_parse(context, "graph { nonsense", 16, &g), DLC_OK);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void test_untouched(void **state) {
    (void)state;
    char folder[] = "/tmp/dlc-untouched-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    const char *target = "cpu";
    dlc_context *probe = open_context(target, NULL);
    if (!probe) target = "interp";
    dlc_context_destroy(probe);
    fflush(NULL);
    int said = memfd_create("said", 0), out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    dup2(said, STDOUT_FILENO);
    dup2(said, STDERR_FILENO);
    process before = look();
    live(target, folder, false);
    live(target, folder, true);
    live("interp", folder, false);
    process after = look();
    for (int i = 0; i < 1000 && after.threads > before.threads; i++) { /* that were joined: the system takes a moment */
        usleep(1000);
        after = look();
    }
    int child = waitpid(-1, NULL, WNOHANG), why = errno;
    fflush(NULL);
    off_t bytes = lseek(said, 0, SEEK_END);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    close(said);
    compare(&before, &after);
    assert_true(child == -1 && why == ECHILD);
    assert_int_equal(bytes, 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- unloading */

#define FUNCTION(library, name) __typeof__(&name) own_##name = (__typeof__(&name))(uintptr_t)dlsym(library, #name)

/* A life of a copy of the library that nothing else in the process uses; with a call that fails, whose message is told. */
static void load_and_use(const char *path, bool isolate) {
    static const char text[] = "graph { input a: f32[n, 50] s = softmax(a, axis=1) output s }";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    FUNCTION(library, dlc_context_create);
    FUNCTION(library, dlc_graph_parse);
    FUNCTION(library, dlc_compile);
    FUNCTION(library, dlc_run);
    FUNCTION(library, dlc_program_destroy);
    FUNCTION(library, dlc_graph_destroy);
    FUNCTION(library, dlc_context_destroy);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.isolate_compiler = isolate;
    dlc_context *context;
    dlc_graph *graph;
    dlc_program *program;
    float x[100], y[100];
    tensor tx, ty;
    fill(x, 100, 3);
    dlc_output_slot slot = {F32(&ty, y, 2, 50), NULL};
    assert_int_equal(own_dlc_context_create(&options, &context), DLC_OK);
    assert_int_equal(own_dlc_graph_parse(context, "nonsense", 8, &graph), DLC_PARSE_ERROR);
    assert_int_equal(own_dlc_graph_parse(context, text, sizeof text - 1, &graph), DLC_OK);
    assert_int_equal(own_dlc_compile(context, graph, NULL, &program), DLC_OK);
    assert_int_equal(own_dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 2, 50)}, 1, &slot, 1), DLC_OK);
    own_dlc_program_destroy(program);
    own_dlc_graph_destroy(graph);
    own_dlc_context_destroy(context);
    assert_int_equal(dlclose(library), 0);
}

static size_t bytes_in_heap(void) {
#ifdef __GLIBC__
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* An unloaded library leaves nothing in the C library's heap, whether LLVM has run in this process or not. */
static void test_unloading(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
    skip();
#endif
    enum { LIVES = 12, KEPT = 128 /* bytes of a life */ };
    char folder[] = "/tmp/dlc-unloading-XXXXXX", path[64], command[3 * PATH];
    Dl_info own;
    assert_non_null(mkdtemp(folder));
    __typeof__(&dlc_context_create) here = dlc_context_create;
    assert_int_not_equal(dladdr((void *)(uintptr_t)here, &own), 0);
    snprintf(path, sizeof path, "%s/libdlc.so.0", folder);
    snprintf(command, sizeof command, "cp '%s' %s && cp \"$(dirname '%s')/libdlc-compiler\" %s", own.dli_fname, path,
             own.dli_fname, folder);
    assert_int_equal(system(command), 0);
    for (int isolate = 0; isolate < 2; isolate++) {
        for (int i = 0; i < 3; i++) load_and_use(path, isolate);
        size_t before = bytes_in_heap();
        for (int i = 0; i < LIVES; i++) load_and_use(path, isolate);
        size_t after = bytes_in_heap();
        if (after > before + LIVES * KEPT)
            fail_msg("a life leaves %zu bytes%s", (after - before) / LIVES, isolate ? ", isolated" : "");
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* Bytes that were freed and lie in the cache of a thread count as used: there is none. */
static void leave_cache_out(char **words) {
    static const char name[] = "GLIBC_TUNABLES", setting[] = "glibc.malloc.tcache_count=0";
    const char *now = getenv(name);
    if (now && strcmp(now, setting) == 0) return;
    setenv(name, setting, 1);
    execv("/proc/self/exe", words);
}

int main(int count, char **words) {
    (void)count;
    leave_cache_out(words);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_untouched), cmocka_unit_test(test_unloading)};
    return cmocka_run_group_tests_name("untouched", tests, NULL, NULL);
}
