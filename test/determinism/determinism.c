/* The same bits, whatever runs a graph: again, in another program, with kernels from the cache, from the disk or from another process,
 * after eviction, with 2 to 8 threads of a pool or of the host's, each running the bodies its own way. Samples of the operator table, the
 * graphs of test/regress, and cases of a size that rules split among threads (contractions along k, sums in two phases). Tiers: kernels for
 * all sizes of a range against those for just these, bit for bit where graph/bound.h says that the graph is exact, else within its bound. */
#include "determinism/texts.h"
#include "fuzz/case.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
/* after the above */
#include <cmocka.h>

/* ---- ways to run */

typedef struct body_of {
    void (*body)(void *argument, int64_t index);
    void *argument;
    int64_t index;
} body_of;

static void *call_body(void *argument) {
    const body_of *b = argument;
    b->body(b->argument, b->index);
    return NULL;
}

/* Every body on a thread of its own. */
static void one_each(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    pthread_t handles[64];
    body_of bodies[64];
    (void)user;
    for (int64_t i = 0; i < count; i++) {
        bodies[i] = (body_of){body, argument, i};
        if (pthread_create(&handles[i], NULL, call_body, &bodies[i]) != 0) abort();
    }
    for (int64_t i = 0; i < count; i++) pthread_join(handles[i], NULL);
}

static void backwards(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    (void)user;
    for (int64_t i = count; i-- > 0;) body(argument, i);
}

typedef struct way {
    const char *name;
    int pool, width;
    dlc_parallel_for_function host;
    bool disk, isolate, small, large_only;
    case_leg leg;
} way;

static way ways[] = {
    {.name = "alone"}, /* what the others are held against */
    {.name = "with a cache that holds nothing", .small = true},
    {.name = "with kernels for the disk", .disk = true},
    {.name = "with kernels from the disk", .disk = true},
    {.name = "with code of another process", .isolate = true},
    {.name = "with a pool of 2", .pool = 2},
    {.name = "with a pool of 4", .pool = 4, .large_only = true},
    {.name = "with a pool of 8", .pool = 8, .large_only = true}, /* as many as there are processors */
    {.name = "with 1 thread of the host", .host = one_each, .width = 1, .large_only = true},
    {.name = "with 2 threads of the host", .host = one_each, .width = 2, .large_only = true},
    {.name = "with 3 threads of the host", .host = one_each, .width = 3},
    {.name = "with 4 threads of the host", .host = one_each, .width = 4, .large_only = true},
    {.name = "with 5 bodies backwards", .host = backwards, .width = 5, .large_only = true},
    {.name = "with 6 bodies backwards", .host = backwards, .width = 6, .large_only = true},
    {.name = "with 7 threads of the host", .host = one_each, .width = 7, .large_only = true},
    {.name = "with 8 bodies backwards", .host = backwards, .width = 8},
};
enum { WAYS = sizeof ways / sizeof *ways };
static dlc_context *tiered;
static char folder[] = "/tmp/dlc-determinism-XXXXXX";
static case_report report;
static int runs, graphs, tiered_graphs, tiered_exact;

static dlc_context *open_context(dlc_context_options options) {
    dlc_context *context;
    options.log = case_log;
    options.log_user = &report;
    if (dlc_context_create(&options, &context) != DLC_OK) fail_msg("%s", dlc_error_message(NULL));
    return context;
}

/* This program is OUT/test/determinism/determinism. */
static const char *find_compiler(void) {
    static char path[4096 + 32];
    ssize_t length = readlink("/proc/self/exe", path, 4096);
    if (length <= 0) return NULL;
    path[length] = 0;
    for (int i = 0; i < 3 && strrchr(path, '/'); i++) *strrchr(path, '/') = 0;
    return strcat(path, "/libdlc-compiler");
}

static int open_ways(void **state) {
    const char *compiler = find_compiler();
    (void)state;
    if (!mkdtemp(folder)) return -1;
    for (int w = 0; w < WAYS; w++) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.threads = ways[w].pool;
        options.parallel_for = ways[w].host;
        options.parallel_width = ways[w].width;
#ifdef DLC_TARGET_cpu
        options.isolate_compiler = ways[w].isolate;
#endif
        options.compiler_path = ways[w].isolate ? compiler : NULL;
        if (ways[w].small) options.cache_bytes = 1;
        if (ways[w].disk) options.cache_directory = folder;
        ways[w].leg = (case_leg){.name = ways[w].name, .context = open_context(options)};
    }
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.background_compile = true;
    tiered = open_context(options);
    return 0;
}

static int close_ways(void **state) {
    char command[64];
    (void)state;
    dlc_statistics read = DLC_STATISTICS_INIT;
    dlc_context_statistics(ways[3].leg.context, &read);
    print_message(
        "%d graphs, %d runs compared; %llu kernels from the disk, %llu not there; tiers: %d graphs, %d outputs of them exact\n",
        graphs, runs, (unsigned long long)read.disk_hits, (unsigned long long)read.disk_misses, tiered_graphs,
        tiered_exact);
    for (int w = 0; w < WAYS; w++) dlc_context_destroy(ways[w].leg.context);
    dlc_context_destroy(tiered);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || read.disk_misses != 0;
}

/* ---- one graph */

typedef struct item {
    const char *text;
    case_setting setting;
    case_shapes shapes;
    case_memory in[CASE_TENSORS], expected[CASE_TENSORS], got[CASE_TENSORS];
    bool large;
} item;

static bool same_bits(const item *t, const char *name) {
    for (int i = 0; i < t->shapes.outputs; i++) {
        const case_memory *a = &t->expected[i], *b = &t->got[i];
        if (!a->block.size || memcmp(a->block.data, b->block.data, a->block.size) == 0) continue;
        if (case_compare(name, &t->shapes.output[i], a, b, NULL, false, &report))
            snprintf(report.message, sizeof report.message, "%s: output %s: other bits of NaNs", name,
                     t->shapes.output[i].name);
        return false;
    }
    runs++;
    return true;
}

static bool run_into(item *t, const case_leg *leg, dlc_program *program, case_memory *out) {
    case_free(out, t->shapes.outputs);
    for (int i = 0; i < t->shapes.outputs; i++)
        if (!case_take(&out[i], &t->shapes.output[i], WAY_COMPACT, 0, 0xff)) return false;
    return case_run(leg, program, &t->shapes, t->in, out, &report);
}

static dlc_program *compile(const item *t, const case_leg *leg) {
    case_state state = {.setting = t->setting, .report = &report};
    dlc_program *program;
    return case_compile(&state, (case_leg *)(uintptr_t)leg, t->text, &program) ? program : NULL;
}

/* Twice each by two programs: the second finds the kernels. */
static bool check_way(item *t, int w) {
    bool good = true;
    for (int round = 0; round < 2 && good; round++) {
        dlc_program *program = compile(t, &ways[w].leg);
        good = program != NULL;
        for (int run = 0; run < 2 && good; run++) {
            bool first = w == 0 && round == 0 && run == 0;
            good = run_into(t, &ways[w].leg, program, first ? t->expected : t->got) &&
                   (first || same_bits(t, ways[w].name));
        }
        dlc_program_destroy(program);
        if (w) break;
    }
    return good;
}

static void settle(void) {
    dlc_statistics s;
    do {
        usleep(1000);
        s = (dlc_statistics)DLC_STATISTICS_INIT;
        dlc_context_statistics(tiered, &s);
    } while (s.tier_specialised + s.tier_failures < s.tier_generic);
}

/* The first run's kernels take sizes as parameters, the second's are those of the other ways. */
static bool check_tiers(item *t) {
    const case_leg leg = {.name = "tiered", .context = tiered};
    dlc_statistics before = DLC_STATISTICS_INIT, after = DLC_STATISTICS_INIT;
    dlc_context_statistics(tiered, &before);
    dlc_program *program = compile(t, &leg);
    bool good = program && run_into(t, &leg, program, t->got);
    dlc_context_statistics(tiered, &after);
    if (good && after.tier_generic > before.tier_generic) {
        tiered_graphs++;
        for (int i = 0; i < t->shapes.outputs && good; i++) {
            const case_tensor *y = &t->shapes.output[i];
            tiered_exact += y->bound.error == 0;
            if (y->bound.error < INFINITY)
                good = case_compare("with generic kernels", y, &t->expected[i], &t->got[i], &y->bound, false, &report);
        }
        settle();
        good = good && run_into(t, &leg, program, t->got) &&
               same_bits(t, "with kernels that took the generic ones' place");
    }
    dlc_program_destroy(program);
    return good;
}

static void check(item *t) {
    bool good = true;
    report.message[0] = 0;
    graphs++;
    setenv("DLC_LAYOUT", t->setting.layout ? "all" : "", 1);
    for (int w = 0; w < WAYS && good; w++)
        if (t->large || !ways[w].large_only) good = check_way(t, w);
    if (good && t->setting.symbols) good = check_tiers(t);
    case_free(t->in, CASE_TENSORS);
    case_free(t->expected, CASE_TENSORS);
    case_free(t->got, CASE_TENSORS);
    if (!good) fail_msg("%s\n%s", report.message, t->text);
}

/* ---- samples of the operator table */

static void check_sample(char *text, const sample *s, bool large) {
    lib_error error;
    item *t = calloc(1, sizeof *t);
    t->text = text;
    t->large = large;
    t->setting = (case_setting){.seed = 1, .runs = 1};
    if (!case_shapes_of(text, &t->setting, 0, &t->shapes, &error)) fail_msg("%s: %s", text, error.message);
    for (int o = 0, i = 0; o < s->operands; o++) {
        if (s->operand[o].left_out) continue;
        const case_tensor *x = &t->shapes.input[i];
        double *doubles = malloc(sizeof *doubles * (size_t)(x->count + 1));
        assert_true(case_take(&t->in[i], x, WAY_COMPACT, 0, 0));
        sample_data(&s->operand[o], o, SAMPLE_TAME, lib_hash64(text, strlen(text), (uint64_t)o), x->count,
                    t->in[i].block.data, doubles);
        t->in[i].before = calloc(1, t->in[i].block.size + 1);
        if (t->in[i].block.size) memcpy(t->in[i].before, t->in[i].block.data, t->in[i].block.size);
        free(doubles);
        i++;
    }
    check(t);
    free(t);
    free(text);
}

static void check_small(void *user, char *text, const sample *given) {
    (void)user;
    check_sample(text, given, false);
}

static void test_rows(void **state) {
    (void)state;
    for_samples(check_small, NULL);
}

/* ---- sizes that threads share */

static void check_large(void *user, char *text, const sample *given) {
    (void)user;
    check_sample(text, given, true);
}

static void test_large(void **state) {
    (void)state;
    for_large_samples(check_large, NULL);
}

/* ---- graphs: of test/regress, and some whose sizes are symbols */

static void check_text(const char *text, bool is_large) {
    item *t = calloc(1, sizeof *t);
    lib_error error;
    t->text = text;
    t->large = is_large;
    t->setting = case_read_setting(text);
    for (int run = 0; run < t->setting.runs; run++) {
        if (!case_shapes_of(text, &t->setting, run, &t->shapes, &error)) {
            if (run == 0) fail_msg("%s: %s", text, error.message);
            break; /* sizes that the graph does not allow */
        }
        assert_true(case_make_inputs(&t->shapes, &t->setting, run, t->in));
        check(t);
    }
    free(t);
}

static const char *const symbolic[] = {
    "# case seed=3 n=300,77,1000 m=40,5\ngraph {\n  symbol n in 0..100000\n  symbol m in 0..100000\n  input x: f32[n, m]\n  s = softmax(x, axis=1)\n"
    "  r = reduce_sum(x, axes=[0])\n  e = reduce_max(x, axes=[1])\n  output \"s\" = s\n  output \"r\" = r\n  output \"e\" = e\n}\n",
    "# case seed=4 fill=integers n=130,17 k=257,64\ngraph {\n  symbol n in 0..100000\n  symbol k in 0..100000\n  input a: f32[n, k]\n  input b: f32[k, 48]\n"
    "  m = matmul(a, b)\n  q = relu(m)\n  output \"q\" = q\n}\n",
    "# case seed=5 n=5000,33\ngraph {\n  symbol n in 0..100000\n  input x: i32[n]\n  c = cumulative_sum(x, axis=0)\n  o, p = sort(x)\n"
    "  output \"c\" = c\n  output \"o\" = o\n  output \"p\" = p\n}\n",
    "# case seed=6 n=60,9 m=50,70\ngraph {\n  symbol n in 0..100000\n  symbol m in 0..100000\n  input x: f32[n, m]\n  t = transpose(x, permutation=[1, 0])\n"
    "  u = max(t, t)\n  output \"t\" = t\n}\n",
};

static void test_symbols(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof symbolic / sizeof *symbolic; i++) check_text(symbolic[i], true);
}

static int is_text(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

static void test_regress(void **state) {
    struct dirent **entry;
    const int every = test_share();
    (void)state;
    int count = scandir("test/regress", &entry, is_text, alphasort);
    if (count <= 0) skip();
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "test/regress/%s", entry[i]->d_name);
        free(entry[i]);
        if (i % every) continue;
        char *text = read_text(path);
        check_text(text, false);
        free(text);
    }
    free(entry);
}

/* Runs from the root of the repository. */
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_regress),
    };
    return cmocka_run_group_tests_name("determinism", tests, open_ways, close_ways);
}
