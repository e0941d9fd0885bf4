/* Decisions of fusion kept in files: a process that starts warm predicts nothing and cuts its graph as the first one did; whatever
 * happens to the files, and for other machines, it is decided again, to the same end. */
#include "api/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 24, WIDTH = 16, RESULTS = ROWS * WIDTH };
enum { FILES = 16, PATH = 512, FILE_BYTES = 4096 };

static char folder[128];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dlc-decisions-%ld-XXXXXX", (long)getpid());
    return mkdtemp(folder) ? 0 : -1;
}

/* Files whose names end so; NULL: all. */
typedef struct files {
    int count;
    char path[FILES][PATH];
} files;

static files list(const char *end) {
    files found = {0};
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.') continue;
        if (end && (length < strlen(end) || strcmp(entry->d_name + length - strlen(end), end) != 0)) continue;
        assert_true(found.count < FILES);
        snprintf(found.path[found.count++], PATH, "%s/%s", folder, entry->d_name);
    }
    closedir(stream);
    return found;
}

static int remove_folder(void **state) {
    (void)state;
    files all = list(NULL);
    for (int i = 0; i < all.count; i++) unlink(all.path[i]);
    return rmdir(folder);
}

static size_t get_file(const char *path, char *bytes) {
    int file = open(path, O_RDONLY);
    ssize_t size = read(file, bytes, FILE_BYTES);
    assert_true(file >= 0 && size > 0 && size < FILE_BYTES);
    close(file);
    return (size_t)size;
}

static void put_file(const char *path, const char *bytes, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    close(file);
}

/* ---- a program with joins in doubt: linear, softmax of rows, linear */

typedef struct outcome {
    dlc_statistics statistics;
    float y[RESULTS];
    char regions[4096];
} outcome;

static dlc_program *doubtful_program(dlc_context *context) {
    float w[WIDTH * WIDTH];
    dlc_graph *g;
    fill(w, WIDTH * WIDTH, 1);
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(WIDTH)));
    dlc_value wv = dlc_constant(g, DLC_F32, 2, SHAPE(WIDTH, WIDTH), w);
    dlc_output(g, "y", dlc_matmul(dlc_softmax(dlc_matmul(x, wv), -1), wv));
    return compile(context, g);
}

/* In a context of its own, which knows nothing. */
static void once(const char *path, outcome *o) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.cache_directory = path;
    dlc_context *context = open_context("cpu", &options);
    dlc_program *program = doubtful_program(context);
    float x[RESULTS];
    tensor tx, ty;
    char *text = NULL;
    memset(o, 0, sizeof *o);
    fill(x, RESULTS, 2);
    dlc_output_slot slot = {F32(&ty, o->y, ROWS, WIDTH), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, ROWS, WIDTH)}, 1, &slot, 1));
    o->statistics = statistics(context);
    OK(context, dlc_program_dump(program, "regions", (const int64_t *[]){SHAPE(ROWS, WIDTH)}, (int[]){2}, 1, &text));
    snprintf(o->regions, sizeof o->regions, "%s", text);
    dlc_text_free(context, text);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void expect_same(const outcome *a, const outcome *b) {
    assert_string_equal(a->regions, b->regions);
    assert_memory_equal(a->y, b->y, sizeof a->y);
}

static void expect_asked(const outcome *first, const char *path) {
    outcome o;
    once(path, &o);
    expect_same(first, &o);
    assert_true(o.statistics.disk_decisions == 0 && o.statistics.predictions == first->statistics.predictions);
    assert_int_equal(o.statistics.kernel_builds, 0);
}

static void expect_found(const outcome *first) {
    outcome o;
    once(folder, &o);
    expect_same(first, &o);
    assert_true(o.statistics.disk_decisions > 0 && o.statistics.predictions == 0);
    assert_int_equal(o.statistics.kernel_builds, 0);
}

/* The decision's file, and its bytes; what was found and computed without a folder is the same as with one. */
static void begin(outcome *first, char *path, char *bytes, size_t *size) {
    outcome without;
    once(NULL, &without);
    once(folder, first);
    expect_same(&without, first);
    assert_true(first->statistics.predictions > 0);
    assert_int_equal(without.statistics.predictions, first->statistics.predictions);
    assert_int_equal(first->statistics.disk_decisions, 0);
    files decisions = list(".dlcd");
    assert_int_equal(decisions.count, 1);
    snprintf(path, PATH, "%s", decisions.path[0]);
    *size = get_file(path, bytes);
}

/* Else no target here has a cost model. */
static bool is_there(void) {
    dlc_context *context = open_context("cpu", NULL);
    dlc_context_destroy(context);
    return context != NULL;
}

/* ---- tests */

static void test_processes(void **state) {
    (void)state;
    if (!is_there()) skip();
    static outcome first;
    char path[PATH], bytes[FILE_BYTES];
    size_t size;
    begin(&first, path, bytes, &size);
    expect_found(&first);
    pid_t child = fork();
    if (child == 0) {
        outcome o;
        once(folder, &o);
        bool same = strcmp(o.regions, first.regions) == 0 && memcmp(o.y, first.y, sizeof o.y) == 0;
        _exit(same && o.statistics.predictions == 0 && o.statistics.kernel_builds == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_damage(void **state) {
    (void)state;
    if (!is_there()) skip();
    static outcome first;
    char path[PATH], bytes[FILE_BYTES];
    size_t size;
    begin(&first, path, bytes, &size);
    for (size_t at = 0; at < size; at++) {
        bytes[at] ^= (char)(1 << at % 8);
        put_file(path, bytes, size);
        bytes[at] ^= (char)(1 << at % 8);
        expect_asked(&first, folder);
        if (at % 8 == 0) expect_found(&first); /* it was written anew */
    }
    bytes[size] = 0;
    const size_t sizes[] = {0, 1, 8, size / 2, size - 1, size + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put_file(path, bytes, sizes[i]);
        expect_asked(&first, folder);
        expect_found(&first);
    }
    unlink(path);
    expect_asked(&first, folder);
    unlink(path);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    expect_asked(&first, folder);
    expect_found(&first);
    assert_int_equal(chmod(path, 0622), 0);
    expect_asked(&first, folder);
    expect_found(&first);
}

/* A machine of other caches asks questions of its own; a whole file under the name of another question's is none. */
static void test_other_machine(void **state) {
    (void)state;
    if (!is_there()) skip();
    static outcome first, other, again;
    char path[PATH], bytes[FILE_BYTES];
    size_t size;
    const char *before = getenv("DLC_CPU_CACHES");
    char *kept = before ? strdup(before) : NULL;
    begin(&first, path, bytes, &size);
    setenv("DLC_CPU_CACHES", "16,64,256", 1);
    once(folder, &other);
    assert_true(other.statistics.predictions > 0 && other.statistics.disk_decisions == 0);
    files both = list(".dlcd");
    assert_int_equal(both.count, 2);
    put_file(both.path[strcmp(both.path[0], path) == 0], bytes, size);
    once(folder, &again);
    expect_same(&other, &again);
    assert_true(again.statistics.predictions > 0 && again.statistics.disk_decisions == 0);
    if (kept)
        setenv("DLC_CPU_CACHES", kept, 1);
    else
        unsetenv("DLC_CPU_CACHES");
    free(kept);
    expect_found(&first);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {TEST(test_processes), TEST(test_damage), TEST(test_other_machine)};
    return cmocka_run_group_tests_name("decisions on disk", tests, NULL, NULL);
}
