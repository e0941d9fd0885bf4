/* The same bits, whatever runs a graph: again, in another program, with kernels from the cache, from the disk or from another process,
 * after eviction, with 2 to 8 threads of a pool or of the host's, each running the bodies its own way. Samples of the operator table, the
 * graphs of test/regress, and cases of a size that rules split among threads (contractions along k, sums in two phases). Tiers: kernels for
 * all sizes of a range against those for just these, bit for bit where bounds.h says that the graph is exact, else within its bound. */
#include "conformance/sample.h"
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
        if (case_compare(name, &t->shapes.output[i], a, b, NULL, &report))
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
                good = case_compare("with generic kernels", y, &t->expected[i], &t->got[i], &y->bound, &report);
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

static char *text_of_sample(const graph_op *op, const char *line, size_t length, dlc_dtype dtype, sample *s,
                            bool *varies) {
    lib_scope scope;
    lib_arena arena;
    char *volatile copy = NULL;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        graph *g = graph_new(&arena, NULL);
        graph_id input[SAMPLE_OPERANDS];
        sample_parse(s, g, op, sample_line(&arena, line, length, dtype, varies));
        for (int i = 0; i < s->operands; i++) {
            const sample_operand *operand = &s->operand[i];
            graph_shape shape = {.dtype = operand->dtype, .rank = operand->rank};
            for (int d = 0; d < operand->rank; d++) shape.dim[d] = tir_index(g->pool, operand->dim[d]);
            input[i] = operand->left_out ? 0 : graph_new_input(g, lib_arena_format(&arena, "x%d", i), &shape);
        }
        graph_id first = graph_emit(g, op, s->operands, input, s->attribute);
        int results = op->results >= 0 ? op->results : graph_node_of(g, first)->results;
        for (int i = 0; i < results; i++) graph_new_output(g, lib_arena_format(&arena, "y%d", i), first + (graph_id)i);
        lib_text text;
        lib_text_init(&text, &arena);
        graph_print(&text, g);
        copy = strdup(text.data);
    }
    lib_arena_free(&arena);
    if (!copy) fail_msg("%.*s: %s", (int)length, line, scope.error.message);
    return copy;
}

static void check_sample(const graph_op *op, const char *line, size_t length, dlc_dtype dtype, bool large,
                         bool *varies) {
    sample s;
    lib_error error;
    char *text = text_of_sample(op, line, length, dtype, &s, varies);
    item *t = calloc(1, sizeof *t);
    t->text = text;
    t->large = large;
    t->setting = (case_setting){.seed = 1, .runs = 1};
    if (!case_shapes_of(text, &t->setting, 0, &t->shapes, &error)) fail_msg("%s: %s", text, error.message);
    for (int o = 0, i = 0; o < s.operands; o++) {
        if (s.operand[o].left_out) continue;
        const case_tensor *x = &t->shapes.input[i];
        double *doubles = malloc(sizeof *doubles * (size_t)(x->count + 1));
        assert_true(case_take(&t->in[i], x, WAY_COMPACT, 0, 0));
        sample_data(&s.operand[o], o, SAMPLE_TAME, lib_hash64(line, length, (uint64_t)o), x->count, t->in[i].block.data,
                    doubles);
        t->in[i].before = calloc(1, t->in[i].block.size + 1);
        if (t->in[i].block.size) memcpy(t->in[i].before, t->in[i].block.data, t->in[i].block.size);
        free(doubles);
        i++;
    }
    check(t);
    free(t);
    free(text);
}

static bool is_usable(const graph_op *op, dlc_dtype dtype) {
    return !lib_dtype_is_stored_otherwise(dtype) && graph_op_accepts(op, dtype);
}

/* The first line with f32, and another one with another dtype; DLC_TEST_LONG: all of both. */
static void check_row(const graph_op *op, uint64_t hash) {
    const bool all = getenv("DLC_TEST_LONG") != NULL;
    int lines = 1, number = 0;
    for (const char *at = op->samples; *at; at++) lines += *at == '\n';
    const int other = (int)(hash % (uint64_t)lines);
    for (const char *line = op->samples; line; number++) {
        size_t length = strcspn(line, "\n");
        bool varies = true;
        dlc_dtype first = DLC_DTYPE_COUNT;
        for (int t = DLC_DTYPE_COUNT; t-- > 0;)
            if (is_usable(op, (dlc_dtype)t) && first != DLC_F32) first = (dlc_dtype)t;
        if (!all && number == other && number) /* the one that the hash says */
            for (int t = 0, skip = (int)(hash >> 8) % 6; t < DLC_DTYPE_COUNT; t++)
                if (is_usable(op, (dlc_dtype)t) && skip-- >= 0) first = (dlc_dtype)t;
        for (int t = 0; t < DLC_DTYPE_COUNT && varies; t++)
            if (all ? is_usable(op, (dlc_dtype)t) : (dlc_dtype)t == first && (number == 0 || number == other))
                check_sample(op, line, length, (dlc_dtype)t, false, &varies);
        line = line[length] ? line + length + 1 : NULL;
    }
}

static void test_rows(void **state) {
    const char *share = getenv("DLC_TEST_SHARE");
    uint64_t number = 0, every = share ? strtoull(share, NULL, 10) : 1;
    (void)state;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            if ((*row)->samples && (*row)->reference && number++ % (every ? every : 1) == 0)
                check_row(*row, lib_hash64((*row)->name, strlen((*row)->name), 0));
}

/* ---- sizes that threads share */

static const char *const large[] = {
    "matmul(f32[3, 20000], f32[20000, 8])",
    "matmul(f32[130, 300], f32[300, 170])",
    "matmul(bf16[64, 4000], bf16[4000, 40])",
    "matmul(f64[17, 9000], f64[9000, 5])",
    "dot_general(i8[40, 2000], i8[30, 2000], contract_x=[1], contract_w=[1], result=i32)",
    "convolution(f32[2, 24, 30, 30], f32[40, 24, 3, 3], low=[1, 1], high=[1, 1])",
    "convolution(f32[1, 64, 40, 40], f32[64, 1, 3, 3], groups=64)",
    "convolution_transposed(f32[1, 8, 20, 20], f32[8, 12, 4, 4], stride=[2, 2])",
    "reduce_sum(f32[700001], axes=[0])",
    "reduce_sum(f32[9001, 37], axes=[0])",
    "reduce_sum(f32[37, 9001], axes=[1])",
    "reduce_sum(f16[5, 301, 203], axes=[0, 2])",
    "reduce_prod(f64[5000, 3] in 0.99..1.01, axes=[0])",
    "reduce_max(f32[400003], axes=[0])",
    "arg_max(f32[400003], axis=0)",
    "mean(f32[64, 5003], axes=[1])",
    "variance(f32[64, 5003], axes=[1])",
    "logsumexp(f32[7, 50021], axes=[1])",
    "softmax(f32[40, 5003], axis=1)",
    "softmax(f32[5003, 40], axis=0)",
    "log_softmax(bf16[40, 5003], axis=1)",
    "layer_norm(f32[65, 1021], f32[1021], f32[1021], axis=1)",
    "rms_norm(f32[65, 4099], f32[4099])",
    "group_norm(f32[3, 12, 50, 50], f32[12], f32[12], groups=4)",
    "attention(f32[2, 3, 130, 64], f32[2, 3, 170, 64], f32[2, 3, 170, 64])",
    "attention(f32[1, 2, 1, 64], f32[1, 2, 3000, 64], f32[1, 2, 3000, 64])",
    "attention(bf16[1, 2, 200, 32], bf16[1, 2, 200, 32], bf16[1, 2, 200, 32], causal=true)",
    "gelu(f32[300007])",
    "gather(f32[500, 200], i32[3000] in 0..500, axis=0)",
    "scatter(f32[100, 40], i32[5000] in 0..100, f32[5000, 40], axis=0, combine=add)",
    "scatter(f32[1000], i32[70000] in 0..1000, f32[70000], axis=0, combine=add)",
    "cumulative_sum(f32[3, 100003], axis=1)",
    "cumulative_sum(f32[100003, 3], axis=0, reverse=true)",
    "cumulative_max(f32[200003], axis=0)",
    "sort(f32[20, 5003])",
    "sort(f32[70001])",
    "top_k(f32[20, 5003], k=40, axis=1)",
    "dft(f32[8, 1024, 2])",
    "dft(f32[3, 1155, 2], inverse=true)",
    "stft(f32[2, 20000, 1], f32[512], frame_step=128)",
    "resize(f32[2, 3, 50, 60], shape=[113, 127], axes=[2, 3], mode=cubic)",
    "average_pool(f32[1, 16, 60, 60], window=[3, 3], stride=[2, 2])",
    "transpose(f32[101, 203, 31], permutation=[2, 0, 1])",
    "concat(f32[500, 300], f32[500, 41], axis=1)",
    "lstm(f32[20, 2, 30], f32[1, 160, 30], f32[1, 160, 40], f32[1, 320])",
    "gru(f32[20, 2, 30], f32[2, 120, 30], f32[2, 120, 40], f32[2, 240], direction=bidirectional)",
    "triangular_solve(f32[4, 60, 60] in 1..2, f32[4, 60, 50])",
    "qr(f32[3, 40, 30])",
    "eigh(f32[3, 20, 20])",
    "cross_entropy(f32[300, 1000], i32[300] in 0..1000)",
    "batch_norm_training(f32[16, 12, 30, 30], f32[12], f32[12], f32[12], f32[12] in 0.5..1)",
    "grid_sample(f32[2, 3, 40, 50], f32[2, 60, 70, 2] in -1..1)",
    "quantize_linear(f32[100, 3000], f32[] in 0.01..0.02, u8[])",
};

static void test_large(void **state) {
    const char *share = getenv("DLC_TEST_SHARE");
    size_t every = share ? (size_t)atoi(share) : 1;
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i += every ? every : 1) {
        char name[64] = "";
        bool varies;
        memcpy(name, large[i], strcspn(large[i], "("));
        const graph_op *op = graph_op_find(name);
        if (!op) fail_msg("no operator %s", name);
        check_sample(op, large[i], strlen(large[i]), DLC_F32, true, &varies);
    }
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

static char *read_text(const char *path) {
    enum { LONGEST = 1 << 20 };
    char *text = calloc(1, LONGEST);
    FILE *file = fopen(path, "r");
    if (file && text && fread(text, 1, LONGEST - 1, file) == 0) text[0] = 0;
    if (file) fclose(file);
    return text;
}

static int is_text(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

static void test_regress(void **state) {
    struct dirent **entry;
    const char *share = getenv("DLC_TEST_SHARE");
    int every = share ? atoi(share) : getenv("DLC_TEST_LONG") ? 1 : 2;
    (void)state;
    int count = scandir("test/regress", &entry, is_text, alphasort);
    if (count <= 0) skip();
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "test/regress/%s", entry[i]->d_name);
        free(entry[i]);
        if (i % (every ? every : 1)) continue;
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
