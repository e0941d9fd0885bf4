/* Kernels kept in files: another context and another process get them, whatever the order, and nothing that happens to the files or the
 * folder changes a result. */
#include "api/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PROCESSES = 16, EVERY = 8 };
#else
enum { PROCESSES = 64, EVERY = 1 };
#endif

static char folder[128];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dlc-disk-%ld-XXXXXX", (long)getpid());
    return mkdtemp(folder) ? 0 : -1;
}

typedef void file_visit(void *user, const char *path);

static int each_file(file_visit *visit, void *user) {
    DIR *stream = opendir(folder);
    int count = 0;
    if (!stream) return 0;
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char path[512];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (visit) visit(user, path);
        count++;
    }
    closedir(stream);
    return count;
}

static void remove_one(void *user, const char *path) {
    (void)user;
    if (unlink(path) != 0) rmdir(path);
}

static int remove_folder(void **state) {
    (void)state;
    each_file(remove_one, NULL);
    return rmdir(folder);
}

typedef struct lines {
    int count;
    char last[512];
} lines;

static void count_line(void *user, const char *line) {
    lines *l = user;
    if (!strstr(line, "on disk")) return;
    l->count++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static dlc_context *open_at(const char *target, const char *path, size_t bytes, lines *log) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.cache_directory = path;
    options.cache_directory_bytes = bytes;
    options.log = log ? count_line : NULL;
    options.log_user = log;
    return open_context(target, &options);
}

/* The result for n rows, in a context of its own. */
static dlc_statistics once(const char *target, const char *path, int64_t n, float *out, lines *log) {
    dlc_context *context = open_at(target, path, 0, log);
    dlc_program *program = dense_program(context, "n");
    run_dense(context, program, n, out);
    dlc_statistics s = statistics(context);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return s;
}

static bool is_there(const char *target) {
    dlc_context *context = open_context(target, NULL);
    dlc_context_destroy(context);
    return context != NULL;
}

/* ---- other machines */

typedef struct names {
    int count;
    char path[32][512];
} names;
static void note_name(void *user, const char *path) {
    names *n = user;
    for (int i = 0; i < n->count; i++)
        if (strcmp(n->path[i], path) == 0) return;
    assert_true(n->count < 32);
    snprintf(n->path[n->count++], sizeof n->path[0], "%s", path);
}

/* Kernels for other instructions lie beside each other and are never taken for one another, not even where a whole file, whose checksum
 * is right, has come to the name of another one: the build and the machine that it was made for are in it. */
static void test_other_machine(void **state) {
    (void)state;
    float narrow[16], wide[16], again[16];
    const char *before = getenv("DLC_CPU_FEATURES");
    char *kept = before ? strdup(before) : NULL;
    if (!is_there("cpu")) skip();
    setenv("DLC_CPU_FEATURES", "sse2", 1);
    dlc_statistics first = once("cpu", folder, 4, narrow, NULL);
    names of_narrow = {0}, all = {0};
    each_file(note_name, &of_narrow);
    unsetenv("DLC_CPU_FEATURES");
    dlc_statistics second = once("cpu", folder, 4, wide, NULL);
    all = of_narrow;
    each_file(note_name, &all);
    if (all.count > of_narrow.count) { /* else this machine has SSE2 alone */
        assert_int_equal(second.disk_hits, 0);
        assert_true(second.disk_writes > 0);
        assert_int_equal(all.count, of_narrow.count + (int)second.disk_writes);
        for (int i = of_narrow.count; i < all.count; i++)
            assert_int_equal(rename(of_narrow.path[i % of_narrow.count], all.path[i]), 0);
        dlc_statistics third = once("cpu", folder, 4, again, NULL);
        assert_int_equal(third.disk_hits, 0);
        assert_int_equal(third.kernel_builds, second.kernel_builds);
        assert_memory_equal(again, wide, sizeof wide);
        assert_int_equal(once("cpu", folder, 4, again, NULL).disk_hits, third.disk_writes);
    }
    assert_true(first.disk_writes > 0);
    if (kept) setenv("DLC_CPU_FEATURES", kept, 1);
    free(kept);
}

/* ---- hits */

static void test_again(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        float first[16], second[16];
        if (!is_there(all_targets[t])) continue;
        dlc_statistics cold = once(all_targets[t], folder, 4, first, NULL);
        dlc_statistics warm = once(all_targets[t], folder, 4, second, NULL);
        assert_memory_equal(first, second, sizeof first);
        assert_true(cold.kernel_builds > 0 && cold.disk_hits == 0 && cold.disk_misses == cold.kernel_builds);
        assert_int_equal(cold.disk_writes, cold.kernel_builds);
        assert_int_equal(warm.disk_hits, cold.disk_writes);
        assert_int_equal(warm.kernel_builds, 0);
        assert_int_equal(warm.disk_read_bytes, cold.disk_written_bytes);
        assert_int_equal(warm.disk_errors + cold.disk_errors, 0);
    }
}

/* Other sizes before, parameters of kernels, another number of threads. */
static void test_order(void **state) {
    (void)state;
    const char *target = is_there("cpu") ? "cpu" : "interp";
    float out[2][12][64 * 4];
    for (int round = 0; round < 2; round++) {
        dlc_context *context = open_at(target, folder, 0, NULL);
        dlc_program *program = dense_program(context, "n");
        for (int i = 0; i < 12; i++) {
            int n = round ? 12 - i : 1 + i; /* the last ones are sizes that kernels take as a parameter */
            run_dense(context, program, n, out[round][n - 1]);
        }
        dlc_statistics s = statistics(context);
        if (round) assert_true(s.disk_hits > 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
    for (int i = 0; i < 12; i++) { /* the size that came first has kernels of its own, which may sum in another order */
        double expected[48];
        for (int k = 0; k < (i + 1) * 4; k++) expected[k] = out[0][i][k];
        CLOSE(out[1][i], expected, (size_t)(i + 1) * 4, 1e-6);
    }
}

/* ---- damage */

typedef struct file_copy {
    char path[512];
    char *bytes;
    size_t size;
} file_copy;

static void keep_copy(void *user, const char *path) {
    file_copy *copy = user;
    struct stat status;
    if (copy->bytes || stat(path, &status) != 0) return;
    snprintf(copy->path, sizeof copy->path, "%s", path);
    copy->size = (size_t)status.st_size;
    copy->bytes = malloc(copy->size + 1);
    int file = open(path, O_RDONLY);
    assert_true(read(file, copy->bytes, copy->size) == (ssize_t)copy->size);
    close(file);
}

static void put_file(const char *path, const char *bytes, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    close(file);
}

/* One file is not as it was: that kernel is built again, the result is the same, and the file is good again. */
static void expect_miss(const char *target, const float *expected, bool replaced) {
    float out[16];
    dlc_statistics s = once(target, folder, 4, out, NULL);
    assert_memory_equal(out, expected, sizeof out);
    assert_int_equal(s.disk_misses, 1);
    assert_int_equal(s.kernel_builds, 1);
    if (!replaced) return;
    s = once(target, folder, 4, out, NULL);
    assert_int_equal(s.disk_misses, 0);
}

static void test_flipped(void **state) {
    (void)state;
    const char *target = is_there("cpu") ? "cpu" : "interp";
    float expected[16];
    file_copy copy = {0};
    once(target, folder, 4, expected, NULL);
    each_file(keep_copy, &copy);
    for (size_t at = 0; at < copy.size; at += at < 160 ? (size_t)EVERY : copy.size / 40 + 1) {
        copy.bytes[at] ^= (char)(1 << at % 8);
        put_file(copy.path, copy.bytes, copy.size);
        copy.bytes[at] ^= (char)(1 << at % 8);
        expect_miss(target, expected, at % 16 == 0);
    }
    free(copy.bytes);
}

static void test_lengths(void **state) {
    (void)state;
    const char *target = is_there("cpu") ? "cpu" : "interp";
    float expected[16];
    file_copy copy = {0};
    once(target, folder, 4, expected, NULL);
    each_file(keep_copy, &copy);
    copy.bytes[copy.size] = 0;
    const size_t sizes[] = {0, 1, 8, 100, 160, copy.size / 2, copy.size - 64, copy.size - 1, copy.size + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put_file(copy.path, copy.bytes, sizes[i]);
        expect_miss(target, expected, true);
    }
    for (size_t at = 0; at < 144; at += 8) { /* lengths and hashes without bound */
        char bytes[8];
        memcpy(bytes, copy.bytes + at, 8);
        memset(copy.bytes + at, at % 16 ? 0xff : 0x7f, 8);
        put_file(copy.path, copy.bytes, copy.size);
        memcpy(copy.bytes + at, bytes, 8);
        expect_miss(target, expected, false);
    }
    free(copy.bytes);
}

/* What is no plain file of this user alone. */
static void test_kinds(void **state) {
    (void)state;
    const char *target = is_there("cpu") ? "cpu" : "interp";
    float expected[16];
    file_copy copy = {0};
    char other[600];
    once(target, folder, 4, expected, NULL);
    each_file(keep_copy, &copy);
    snprintf(other, sizeof other, "%s/elsewhere", folder);
    put_file(other, copy.bytes, copy.size);
    unlink(copy.path);
    assert_int_equal(symlink(other, copy.path), 0);
    expect_miss(target, expected, true); /* the link was replaced, not what it names */
    unlink(copy.path);
    assert_int_equal(symlink("/nowhere/at/all", copy.path), 0);
    expect_miss(target, expected, true);
    unlink(copy.path);
    assert_int_equal(mkfifo(copy.path, 0600), 0);
    expect_miss(target, expected, true);
    unlink(copy.path);
    assert_int_equal(mkdir(copy.path, 0700), 0);
    float out[16];
    dlc_statistics s = once(target, folder, 4, out, NULL);
    assert_memory_equal(out, expected, sizeof out);
    assert_true(s.disk_errors == 1 && s.disk_misses == 1);
    assert_int_equal(rmdir(copy.path), 0);
    put_file(copy.path, copy.bytes, copy.size);
    assert_int_equal(chmod(copy.path, 0622), 0);
    expect_miss(target, expected, true);
    free(copy.bytes);
}

/* ---- folders */

static void test_bad_folders(void **state) {
    (void)state;
    float expected[16], out[16];
    char path[600];
    snprintf(path, sizeof path, "%s/file", folder);
    put_file(path, "x", 1);
    once("interp", NULL, 4, expected, NULL);
    const char *const ends[] = {"/file", "/file/below", "/missing/below"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        lines log = {0};
        snprintf(path, sizeof path, "%s%s", folder, ends[i]);
        dlc_statistics s = once("interp", path, 4, out, &log);
        assert_memory_equal(out, expected, sizeof out);
        assert_true(s.disk_errors > 0 && s.disk_writes == 0 && s.disk_hits == 0);
        assert_int_equal(log.count, 1);
        assert_non_null(strstr(log.last, path));
    }
    char *name = malloc(10000);
    memset(name, 'x', 9999);
    name[9999] = 0;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.cache_directory = name;
    assert_int_equal(dlc_context_create(&options, &context), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(NULL), "cache_directory"));
    name[0] = '/', name[4001] = 0;
    assert_int_equal(dlc_context_create(&options, &context), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(NULL), "longer than 4000 bytes"));
    name[4000] = 0;
    OK(NULL, dlc_context_create(&options, &context));
    dlc_context_destroy(context);
    free(name);
}

/* A missing folder is made; a full disk is no error of the run, and leaves nothing behind. */
static void test_made_and_full(void **state) {
    (void)state;
    float expected[16], out[16];
    char inner[600], outer[128];
    snprintf(outer, sizeof outer, "%s", folder);
    snprintf(inner, sizeof inner, "%.100s/made", outer);
    snprintf(folder, sizeof folder, "%.120s", inner);
    dlc_statistics s = once("interp", folder, 4, expected, NULL);
    assert_true(s.disk_writes > 0 && s.disk_errors == 0);
    assert_int_equal(each_file(remove_one, NULL), s.disk_writes);
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 100;
    setrlimit(RLIMIT_FSIZE, &small);
    lines log = {0};
    s = once("interp", folder, 4, out, &log);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_memory_equal(out, expected, sizeof out);
    assert_true(s.disk_errors > 0 && s.disk_writes == 0);
    assert_int_equal(log.count, 1);
    assert_int_equal(each_file(NULL, NULL), 0);
    assert_int_equal(rmdir(folder), 0);
    snprintf(folder, sizeof folder, "%s", outer);
}

static void add_size(void *user, const char *path) {
    struct stat status;
    if (stat(path, &status) == 0) *(size_t *)user += (size_t)status.st_size;
}

static void make_old(void *user, const char *path) {
    const struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    (void)user;
    utimensat(AT_FDCWD, path, times, 0);
}

/* The folder keeps its size, what was used last stays, and what a dead process left goes. */
static void test_bound(void **state) {
    (void)state;
    enum { BUDGET = 48 << 10 };
    float out[64 * 4];
    char left[600];
    snprintf(left, sizeof left, "%s/new-1-2-3.dlck", folder);
    put_file(left, "x", 1);
    make_old(NULL, left);
    once("interp", folder, 4, out, NULL);
    int first = each_file(make_old, NULL);
    once("interp", folder, 4, out, NULL); /* used again */
    for (int i = 0; i < 40; i++) {
        dlc_context *context = open_at("interp", folder, BUDGET, NULL);
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, (dlc_dim[]){{5 + i, NULL}});
        dlc_output(g, "y", dlc_exp(dlc_add(x, x)));
        dlc_program *program = compile(context, g);
        int64_t n = 5 + i;
        OK(context, dlc_prepare(program, (const int64_t *[]){&n}, (int[]){1}, 1));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        size_t bytes = 0;
        each_file(add_size, &bytes);
        assert_true(bytes <= BUDGET + BUDGET / 8);
    }
    assert_true(first > 0 && each_file(NULL, NULL) > 3);
    assert_int_equal(access(left, F_OK), -1);
}

/* ---- many processes: each builds its own order of sizes, some delete files meanwhile */

static int process_main(int number) {
    const char *target = is_there("cpu") ? "cpu" : "interp";
    float out[64 * 4];
    dlc_context *context = open_at(target, folder, number % 7 == 0 ? 24 << 10 : 0, NULL);
    dlc_program *program = dense_program(context, "n");
    for (int i = 0; i < 8; i++) {
        run_dense(context, program, 1 + (i * (1 + 2 * (number % 4)) + number) % 8, out);
        if (number % 13 == 5) each_file(remove_one, NULL);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return 0; /* a wrong result has ended it; that a file went before it was renamed is counted as an error, and is none */
}

static void test_processes(void **state) {
    (void)state;
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            alarm(120);
            _exit(process_main(i));
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        if (status != 0) fail_msg("process %d ended with status %x", i, (unsigned)status);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_other_machine), TEST(test_again),     TEST(test_order),       TEST(test_flipped),
        TEST(test_lengths),       TEST(test_kinds),     TEST(test_bad_folders), TEST(test_made_and_full),
        TEST(test_bound),         TEST(test_processes),
    };
    return cmocka_run_group_tests_name("kernels on disk", tests, NULL, NULL);
}
