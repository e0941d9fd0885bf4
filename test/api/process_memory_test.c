/* Memory that is refused to anything in the process: not only to the host's allocator, as in memory_test, but to malloc itself, whoever
 * calls it: the C library (threads, folders, loading), zlib and minizip, libffi, the C++ library. Each life is lived once for every such
 * call: this one refused and the later ones granted, then this one and all later ones. With isolate_compiler the process does not end, nothing
 * is printed, nothing stays behind; a call that fails says DLC_OUT_OF_MEMORY, and the same call succeeds when there is memory again.
 * DLC_TEST_LONG: every site; else of the long lives one in so many. */
#include "api/support.h"
#include "test/share.h"

#include <dlc/files.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)

/* ---- malloc and its kin in place of the C library's, which they call */

/* They also serve AddressSanitizer before it has begun. */
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

static struct {
    _Atomic int64_t calls, refused, blocks;
    /* number of the call that is refused; -1: none */
    _Atomic int64_t site;
    /* and all that follow */
    _Atomic bool later;
    /* calls are counted */
    _Atomic bool armed;
} memory = {.site = -1};

UNCHECKED static bool is_refused(void) {
    if (!atomic_load(&memory.armed)) return false;
    int64_t call = atomic_fetch_add(&memory.calls, 1), site = atomic_load(&memory.site);
    if (site < 0 || call < site || (call > site && !atomic_load(&memory.later))) return false;
    atomic_fetch_add(&memory.refused, 1);
    errno = ENOMEM;
    return true;
}

UNCHECKED static void *count(void *pointer) {
    if (pointer) atomic_fetch_add(&memory.blocks, 1);
    return pointer;
}

#define SEEN UNCHECKED __attribute__((visibility("default"))) /* by the libraries */
#ifdef __SANITIZE_ADDRESS__
enum { THREADS = false }; /* AddressSanitizer itself ends the process where a thread that starts gets no memory */
#define OWN(name) __interceptor_##name
#else
enum { THREADS = true };
#define OWN(name) __libc_##name
#endif
extern void *OWN(malloc)(size_t), *OWN(calloc)(size_t, size_t), *OWN(realloc)(void *, size_t),
    *OWN(memalign)(size_t, size_t);
extern void OWN(free)(void *);

SEEN void *malloc(size_t size) {
    return is_refused() ? NULL : count(OWN(malloc)(size));
}
SEEN void *calloc(size_t number, size_t size) {
    return is_refused() ? NULL : count(OWN(calloc)(number, size));
}
SEEN void *realloc(void *old, size_t size) {
    if (is_refused()) return NULL;
    void *pointer = OWN(realloc)(old, size);
    if (pointer && !old) count(pointer);
    if (!pointer && old && !size) atomic_fetch_sub(&memory.blocks, 1);
    return pointer;
}
SEEN void *memalign(size_t alignment, size_t size) {
    return is_refused() ? NULL : count(OWN(memalign)(alignment, size));
}
SEEN void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}
SEEN int posix_memalign(void **pointer, size_t alignment, size_t size) {
    void *got = memalign(alignment, size);
    if (!got) return ENOMEM;
    *pointer = got;
    return 0;
}
SEEN void free(void *pointer) {
    if (pointer) atomic_fetch_sub(&memory.blocks, 1);
    OWN(free)(pointer);
}

static void grant(void) {
    atomic_store(&memory.site, -1);
}

static void arm(int64_t site, bool later) {
    atomic_store(&memory.calls, 0);
    atomic_store(&memory.refused, 0);
    atomic_store(&memory.later, later);
    atomic_store(&memory.site, site);
    atomic_store(&memory.armed, true);
}

static void disarm(void) {
    grant();
    atomic_store(&memory.armed, false);
}

/* ---- lives */

typedef struct life {
    const char *name;
    dlc_status (*live)(const struct life *l);
    const char *target;
    /* of the sites that are tried in short */
    int stride;
    bool disk, tiers, pool, isolate;
} life;

static char folder[] = "/tmp/dlc-process-XXXXXX";

/* The first failure; what failed is done again with memory, and succeeds. */
#define STEP(expression)                                                                   \
    do {                                                                                   \
        dlc_status step_ = (expression);                                                   \
        if (step_ == DLC_OK) break;                                                        \
        if (status == DLC_OK) status = step_;                                              \
        grant();                                                                           \
        step_ = (expression);                                                              \
        if (step_ != DLC_OK) failed("%s, again: %s", #expression, dlc_status_text(step_)); \
    } while (0)

enum { ROWS = 5 };

static dlc_status run_program(dlc_program *program) {
    float x[ROWS * 8], y[ROWS * 4];
    double expected[ROWS * 4];
    tensor tx, ty;
    fill(x, ROWS * 8, 3);
    dlc_output_slot slot = {F32(&ty, y, ROWS, 4), NULL};
    dlc_status status = dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, ROWS, 8)}, 1, &slot, 1);
    if (status != DLC_OK) return status;
    dense_reference(x, ROWS, expected);
    CLOSE(y, expected, ROWS * 4, 1e-6);
    return DLC_OK;
}

static dlc_status build(dlc_context *context, dlc_program **program) {
    float w[32], b[4];
    dlc_graph *g;
    fill(w, 32, 1);
    fill(b, 4, 2);
    dlc_status status = dlc_graph_create(context, &g);
    if (status != DLC_OK) return status;
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(8)));
    dlc_value wv = dlc_constant(g, DLC_F32, 2, SHAPE(8, 4), w), bv = dlc_constant(g, DLC_F32, 1, SHAPE(4), b);
    status = dlc_output(g, "y", dlc_relu(dlc_add(dlc_matmul(x, wv), bv)));
    if (status == DLC_OK) status = dlc_compile(context, g, NULL, program);
    dlc_graph_destroy(g);
    return status;
}

static void settle(dlc_context *context) {
    for (int i = 0; i < 20000; i++) {
        const dlc_statistics s = statistics(context);
        if (s.tier_specialised + s.tier_failures >= s.tier_generic) return;
        usleep(200);
    }
    failed("the background does not end");
}

static dlc_status dump(dlc_context *context, dlc_program *program, const char *what) {
    char *text = NULL;
    dlc_status status =
        dlc_program_dump(program, what, (const int64_t *[]){SHAPE(ROWS, 8)}, (const int[]){2}, 1, &text);
    dlc_text_free(context, text);
    return status;
}

static dlc_status live_compiling(const life *l) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_program *program = NULL;
    dlc_status status = DLC_OK;
    options.target = l->target;
    options.isolate_compiler = l->isolate;
    options.background_compile = l->tiers;
    options.cache_directory = l->disk ? folder : NULL;
    if (l->pool) options.threads = options.compile_threads = 2;
    STEP(dlc_context_create(&options, &context));
    STEP(build(context, &program));
    STEP(run_program(program));
    if (l->tiers) settle(context);
    STEP(run_program(program));
    STEP(dump(context, program, "plan"));
    grant();
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return status;
}

static dlc_status read_file(dlc_context *context, const char *path) {
    dlc_file *file = NULL;
    DLManagedTensorVersioned *got = NULL;
    dlc_status status = dlc_file_open(context, path, NULL, &file);
    if (status == DLC_OK) status = dlc_file_tensor(file, dlc_file_name(file, 0), &got);
    if (status == DLC_OK) {
        for (int i = 0; i < 6; i++) CHECK(((const float *)got->dl_tensor.data)[i] == (float)i);
        got->deleter(got);
    }
    dlc_file_destroy(file);
    return status;
}

static dlc_status live_files(const life *l) {
    static const char *const names[] = {"a.npz", "a.safetensors", "a.npy"};
    float data[6] = {0, 1, 2, 3, 4, 5};
    tensor t;
    const DLTensor *tensors[1] = {F32(&t, data, 2, 3)};
    char paths[3][64];
    for (int i = 0; i < 3; i++) snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_status status = DLC_OK;
    options.target = l->target;
    STEP(dlc_context_create(&options, &context));
    STEP(dlc_file_write_npz(context, paths[0], 1, (const char *[]){"a"}, tensors, true));
    STEP(dlc_file_write_safetensors(context, paths[1], 1, (const char *[]){"a"}, tensors, 1, (const char *[]){"k"},
                                    (const char *[]){"v"}));
    STEP(dlc_file_write_npy(context, paths[2], tensors[0]));
    for (int i = 0; i < 3; i++) STEP(read_file(context, paths[i]));
    grant();
    dlc_context_destroy(context);
    return status;
}

/* A device that is not there: its driver is looked for. */
static dlc_status live_driverless(const life *l) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    options.target = l->target;
    dlc_status status = dlc_context_create(&options, &context);
    dlc_context_destroy(context);
    grant();
    dlerror(); /* lets go of the text that the library was told */
    return status == DLC_UNSUPPORTED || status == DLC_NOT_FOUND ? DLC_OK : status;
}

/* ---- a library that is loaded while the process runs, on a thread that has not called it yet */

#define FUNCTION(library, name) __typeof__(&name) own_##name = (__typeof__(&name))(uintptr_t)dlsym(library, #name)

static void *loaded; /* a copy that nothing else uses */

static void load_copy(void) {
    char path[64], command[4096];
    Dl_info own;
    __typeof__(&dlc_context_create) here = dlc_context_create;
    CHECK(dladdr((void *)(uintptr_t)here, &own) != 0);
    snprintf(path, sizeof path, "%s/libdlc.so", folder);
    snprintf(command, sizeof command, "cp '%s' %s", own.dli_fname, path);
    CHECK(system(command) == 0);
    loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!loaded) failed("%s", dlerror());
}

typedef struct visit {
    const life *life;
    int64_t site;
    bool later;
    dlc_status status;
} visit;

/* Allocations of pthread_create itself may not fail here; only calls to libdlc on the new thread are tested with refused memory. */
static void visit_library(void *argument) {
    visit *v = argument;
    const life *const l = v->life;
    dlc_status status = DLC_OK;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_graph *graph = NULL;
    FUNCTION(loaded, dlc_context_create);
    FUNCTION(loaded, dlc_context_destroy);
    FUNCTION(loaded, dlc_graph_parse);
    FUNCTION(loaded, dlc_error_message);
    options.target = l->target;
    options.isolate_compiler = l->isolate;
    options.compiler_path = l->isolate ? "/bin/true" : NULL;
    arm(v->site, v->later);
    STEP(own_dlc_context_create(&options, &context));
    if (own_dlc_graph_parse(context, "nonsense", 8, &graph) != DLC_OK) { /* a failure, whose message is told */
        CHECK(own_dlc_error_message(context)[0]);
    }
    grant();
    own_dlc_context_destroy(context);
    v->status = status;
    disarm();
}

static dlc_status live_loaded(const life *l) {
    thread t;
    visit v = {.life = l, .site = memory.armed ? memory.site : -1, .later = memory.later};
    int64_t armed = memory.armed;
    disarm();
    start_thread(&t, visit_library, &v);
    join_threads(&t, 1);
    memory.armed = armed;
    return v.status;
}

/* ---- all sites */

static void live_all(const life *l) {
    int64_t sites = 0,
            stride = getenv("DLC_TEST_LONG") ? 1
                     : test_is_shortest()    ? 3 * l->stride
                                             : l->stride,
            before = 0;
    int told = 0, tolerated = 0;
    char command[64];
    disarm();
    if (l->live != live_driverless) {
        dlc_context *probe = open_context(l->target, NULL);
        if (!probe) skip();
        dlc_context_destroy(probe);
    }
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    CHECK(dlc_context_create(NULL, NULL) == DLC_INVALID_ARGUMENT); /* a thread's message stays */
    for (int i = 0; i < 2; i++) { /* what the C library keeps for good is there afterwards */
        before = memory.blocks;
        CHECK(l->live(l) == DLC_OK);
    }
    for (int later = 0; later < 2; later++)
        for (int64_t site = 0;; site += stride) {
            if (l->disk && site % 2) CHECK(system(command) == 0); /* else what the last life has left is there */
            before = memory.blocks;
            arm(site, later);
            dlc_status status = l->live(l);
            disarm();
            if (memory.blocks != before)
                failed("%s: allocation %d refused%s: %d blocks stay", l->name, (int)site, later ? " and all later" : "",
                       (int)(memory.blocks - before));
            if (status != DLC_OK && status != DLC_OUT_OF_MEMORY)
                failed("%s: allocation %d refused%s: %s", l->name, (int)site, later ? " and all later" : "",
                       dlc_status_text(status));
            if (memory.refused == 0) {
                CHECK(status == DLC_OK);
                break;
            }
            sites++;
            tolerated += status == DLC_OK;
            told += status != DLC_OK;
        }
    print_message("%-9s on %-6s %5lld sites: %d told, %d done without\n", l->name, l->target, (long long)sites, told,
                  tolerated);
    CHECK(told > 0);
}

static void test_isolated(void **state) {
    (void)state;
    live_all(&(life){"isolated", live_compiling, "cpu", 1, .isolate = true});
}
static void test_all_at_once(void **state) {
    (void)state;
    if (!THREADS) skip();
    live_all(&(life){"together", live_compiling, "cpu", 3, .isolate = true, .disk = true, .tiers = true, .pool = true});
}
static void test_interpreted(void **state) {
    (void)state;
    live_all(&(life){"plain", live_compiling, "interp", 1, .pool = THREADS});
}
static void test_files(void **state) {
    (void)state;
    live_all(&(life){"files", live_files, "interp", .stride = 1});
}

static void test_driverless(void **state) {
    (void)state;
    live_all(&(life){"driver", live_driverless, "cuda", .stride = 1});
}
static void test_loaded(void **state) {
    (void)state;
    if (!THREADS) skip();
    load_copy();
    live_all(&(life){"loaded", live_loaded, "cpu", 1, .isolate = true});
    CHECK(dlclose(loaded) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isolated), cmocka_unit_test(test_all_at_once), cmocka_unit_test(test_interpreted),
        cmocka_unit_test(test_files),    cmocka_unit_test(test_driverless),  cmocka_unit_test(test_loaded),
    };
    char command[64];
    if (!mkdtemp(folder)) return 1;
    int failures = cmocka_run_group_tests_name("memory refused to the process", tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || failures;
}

#else
int main(void) {
    return 0;
}
#endif
