/* Memory that is refused at every site of a host's life with what an option or a kind of program adds: text and dumps, loops, sizes that
 * data decides, kernels on disk, tiers, pools, code generation in a process apart. Each life is lived once for every allocation: this one
 * refused and the later ones granted, then this one and all later ones. It ends well, or with DLC_OUT_OF_MEMORY; nothing stays behind; results
 * that are told are right; and the same objects do what they failed at when there is memory again. (The plain life is in host_test, others
 * in eager_, extend_, files_ and kept_call_test.) DLC_TEST_LONG: every site; else of the long lives one in so many. */
#include "api/support.h"
#include "test/share.h"

#include <dlc/extend.h>
#include <unistd.h>

/* Sites of a long life that are passed over. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOW = 11 };
#else
enum { SLOW = 1 };
#endif

typedef struct memory {
    _Atomic int64_t blocks, bytes, calls, refused;
    /* number of the call that is refused; -1: none */
    _Atomic int64_t site;
    /* and all that follow */
    bool later;
} memory;

static void *take(void *user, size_t size, size_t alignment) {
    memory *m = user;
    int64_t call = atomic_fetch_add(&m->calls, 1), site = atomic_load(&m->site);
    if (site >= 0 && (call == site || (m->later && call > site))) {
        atomic_fetch_add(&m->refused, 1);
        return NULL;
    }
    void *pointer = NULL;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, size ? size : 1) != 0)
        return NULL;
    memset(pointer, 0xA5, size);
    atomic_fetch_add(&m->blocks, 1);
    atomic_fetch_add(&m->bytes, (int64_t)size);
    return pointer;
}

static void release(void *user, void *pointer, size_t size, size_t alignment) {
    memory *m = user;
    (void)alignment;
    if (!pointer) return;
    memset(pointer, 0x5A, size);
    atomic_fetch_sub(&m->blocks, 1);
    atomic_fetch_sub(&m->bytes, (int64_t)size);
    free(pointer);
}

static void grant(memory *m) {
    atomic_store(&m->site, -1);
}

typedef struct life {
    const char *name, *text;
    /* of the sites that are tried in short */
    int stride;
    bool disk, tiers, pool, isolate, dumps, debug;
} life;

/* y[i] = sum of x[j], j <= i, by a loop; s: the sum by a reduction; both of small integers. */
static const char loop_text[] = "graph {\n"
                                "  symbol n in 1..100\n"
                                "  input x: f32[n]\n"
                                "  c = cumulative_sum(x, axis=0)\n"
                                "  s = reduce_sum(x, axes=[0])\n"
                                "  t = mul(c, s)\n"
                                "  u = reverse(t, axes=[0])\n"
                                "  output \"c\" = c\n"
                                "  output \"u\" = u\n"
                                "}\n";

enum { ELEMENTS = 12 };

static bool results_are_right(const dlc_output_slot *slots, int n) {
    const float *c = slots[0].managed->dl_tensor.data, *u = slots[1].managed->dl_tensor.data;
    float sum = 0, all = 0;
    for (int i = 0; i < n; i++) all += (float)(i % 5 - 1);
    for (int i = 0; i < n; i++) {
        sum += (float)(i % 5 - 1);
        if (c[i] != sum || u[n - 1 - i] != sum * all) return false;
    }
    return true;
}

static dlc_status run_life(dlc_context *context, dlc_program *program, int n) {
    float x[ELEMENTS];
    tensor tx;
    dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
    for (int i = 0; i < n; i++) x[i] = (float)(i % 5 - 1);
    dlc_status status = dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n)}, 1, slots, 2);
    if (status != DLC_OK) {
        assert_null(slots[0].managed);
        assert_null(slots[1].managed);
        assert_true(strlen(dlc_error_message(context)) > 0);
        return status;
    }
    assert_true(results_are_right(slots, n));
    for (int o = 0; o < 2; o++) slots[o].managed->deleter(slots[o].managed);
    return DLC_OK;
}

static void settle(dlc_context *context, const memory *m) {
    for (int i = 0; i < 2000; i++) {
        const dlc_statistics s = statistics(context);
        if (s.tier_specialised + s.tier_failures >= s.tier_generic) return;
        usleep(200);
    }
    fail_msg("the background does not end; %d calls refused", (int)m->refused);
}

static dlc_status dump_all(dlc_context *context, dlc_program *program) {
    static const char *const stages[] = {"graph", "bound", "regions", "stages",  "schedule", "steps",
                                         "loops", "plan",  "kept",    "profile", "dot",      "asm"};
    const int64_t shape[1] = {5}, *shapes[1] = {shape};
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
        char *text = NULL;
        dlc_status status = dlc_program_dump(program, stages[s], shapes, (int[]){1}, 1, &text);
        if (status != DLC_OK && status != DLC_UNSUPPORTED) return status;
        dlc_text_free(context, text);
    }
    return DLC_OK;
}

static dlc_status round_trip(dlc_context *context, dlc_graph *g) {
    char *text = NULL;
    dlc_graph *again = NULL;
    dlc_status status = dlc_graph_print(g, &text);
    if (status == DLC_OK) status = dlc_graph_parse(context, text, strlen(text), &again);
    dlc_text_free(context, text);
    dlc_graph_destroy(again);
    return status;
}

/* ---- what a host looks for its own mistakes with */

static void see(void *user, int tap, const char *name, const DLTensor *shown) {
    (void)tap, (void)name, (void)shown;
    ++*(int *)user;
}

/* A run that stops at the infinity that it is given. */
static dlc_status stop_at(dlc_context *context, dlc_program *program) {
    float x[5] = {1, 2, INFINITY, 4, 5};
    tensor tx;
    dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.stop_at = DLC_STOP_AT_NAN | DLC_STOP_AT_INFINITY;
    dlc_status status = dlc_run(program, &options, (const DLTensor *[]){F32(&tx, x, 5)}, 1, slots, 2);
    assert_true(status != DLC_OK && !slots[0].managed && !slots[1].managed);
    if (status == DLC_NOT_FINITE) assert_non_null(strstr(dlc_error_message(context), "infinity at [2]"));
    return status == DLC_NOT_FINITE || status == DLC_UNSUPPORTED ? DLC_OK : status;
}

static dlc_status compare(dlc_program *program, const char *folder) {
    float x[5] = {1, 2, 3, 4, 5};
    tensor tx;
    char path[128];
    dlc_compare_options options = DLC_COMPARE_OPTIONS_INIT;
    dlc_difference difference = DLC_DIFFERENCE_INIT;
    snprintf(path, sizeof path, "%s/inputs.npz", folder);
    options.save = path;
    dlc_status status =
        dlc_program_compare(program, program, &options, (const DLTensor *[]){F32(&tx, x, 5)}, 1, &difference);
    if (status == DLC_OK) assert_false(difference.found);
    return status;
}

/* The first failure, after which what failed is done again with memory. */
#define STEP(expression)                                                                     \
    do {                                                                                     \
        dlc_status step_ = (expression);                                                     \
        if (step_ == DLC_OK) break;                                                          \
        if (status == DLC_OK) status = step_;                                                \
        grant(m);                                                                            \
        step_ = (expression);                                                                \
        if (step_ != DLC_OK) fail_msg("%s, again: %s", #expression, dlc_status_text(step_)); \
    } while (0)

/* Graphs are alive while values of theirs are tapped. A tap that was refused leaves the program without. */
static dlc_status debug(memory *m, dlc_context *context, dlc_graph *g, dlc_program *program, const char *folder) {
    dlc_status status = DLC_OK;
    int seen = 0;
    dlc_value values[2];
    for (int i = 0; i < 2; i++) values[i] = dlc_node_result(dlc_graph_node(g, dlc_graph_node_count(g) - 3 + i), 0);
    STEP(dlc_program_tap(program, 2, values, see, &seen));
    STEP(run_life(context, program, 5));
    assert_true(seen >= 2);
    STEP(compare(program, folder));
    STEP(stop_at(context, program));
    STEP(dlc_program_tap(program, 0, NULL, NULL, NULL));
    return status;
}

static dlc_status live(const life *l, memory *m, const char *target, const char *folder) {
    dlc_allocator allocator = {take, release, m};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    dlc_status status = DLC_OK;
    options.target = target;
    options.allocator = &allocator;
    options.cache_directory = l->disk ? folder : NULL;
    options.background_compile = l->tiers;
    options.isolate_compiler = l->isolate;
    if (l->pool) options.threads = options.compile_threads = 2;
    STEP(dlc_context_create(&options, &context));
    STEP(dlc_graph_parse(context, l->text, strlen(l->text), &g));
    if (l->dumps) STEP(round_trip(context, g));
    STEP(dlc_compile(context, g, NULL, &program));
    for (int n = 5; n <= (l->isolate ? 5 : ELEMENTS); n += 7) {
        STEP(run_life(context, program, n));
        if (l->tiers) settle(context, m);
        STEP(run_life(context, program, n));
    }
    if (l->dumps) STEP(dump_all(context, program));
    if (l->debug) {
        const dlc_status debugged = debug(m, context, g, program, folder);
        if (status == DLC_OK) status = debugged;
    }
    grant(m);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    return status;
}

static void live_all(const life *l, const char *target) {
    char folder[] = "/tmp/dlc-memory-XXXXXX", command[64];
    int64_t sites = 0, stride = getenv("DLC_TEST_LONG") ? 1 : l->stride;
    if (test_every() > 1 && SLOW == 1) stride = 2 * stride + 1;
    int tolerated = 0, told = 0;
    dlc_context *probe = open_context(target, NULL);
    if (!probe) return;
    dlc_context_destroy(probe);
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    for (int later = 0; later < 2; later++)
        for (int64_t site = 0;; site += stride) {
            memory m = {.site = site, .later = later};
            if (l->disk && site % 2)
                assert_int_equal(system(command), 0); /* else what the last life has left is there */
            dlc_status status = live(l, &m, target, folder);
            if (m.blocks || m.bytes)
                fail_msg("%s on %s: allocation %d refused: %d blocks stay", l->name, target, (int)site, (int)m.blocks);
            if (status != DLC_OK && status != DLC_OUT_OF_MEMORY)
                fail_msg("%s on %s: allocation %d refused: %s", l->name, target, (int)site, dlc_status_text(status));
            if (m.refused == 0) {
                assert_int_equal(status, DLC_OK);
                break;
            }
            sites++;
            tolerated += status == DLC_OK;
            told += status != DLC_OK;
        }
    print_message("%-8s on %-6s %5lld sites: %d told, %d done without\n", l->name, target, (long long)sites, told,
                  tolerated);
    assert_true(told > 5);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void everywhere(const life *l) {
    for (int t = 0; t < TARGETS; t++) live_all(l, all_targets[t]);
}

static void test_text(void **state) {
    (void)state;
    everywhere(&(life){.name = "text", .text = loop_text, .stride = 3 * SLOW, .dumps = true});
}
static void test_disk(void **state) {
    (void)state;
    everywhere(&(life){.name = "disk", .text = loop_text, .stride = SLOW, .disk = true});
}
static void test_tiers(void **state) {
    (void)state;
    everywhere(&(life){.name = "tiers", .text = loop_text, .stride = SLOW, .tiers = true});
}
static void test_pool(void **state) {
    (void)state;
    everywhere(&(life){.name = "pool", .text = loop_text, .stride = 3 * SLOW, .pool = true});
}
static void test_debugging(void **state) {
    (void)state;
    everywhere(&(life){.name = "debug", .text = loop_text, .stride = 3 * SLOW, .debug = true});
}
static void test_isolated(void **state) {
    (void)state;
    live_all(&(life){.name = "isolated", .text = loop_text, .stride = 2 * SLOW, .isolate = true}, "cpu");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text), cmocka_unit_test(test_disk),      cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_pool), cmocka_unit_test(test_debugging), cmocka_unit_test(test_isolated),
    };
    return cmocka_run_group_tests_name("refused memory", tests, NULL, NULL);
}
