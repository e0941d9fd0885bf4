/* The promised figures. Speeds come from the contests of bench.c; costs of compilation and memory are measured here, where it
 * matters in a fresh process: this program started again with --child. */
#include "bench/figures.h"

#include "bench/cases.h"
#include "bench/ending.h"
#include "bench/levels.h"
#include "bench/varying.h"

#include <dlc/gradient.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- small programs to measure with ------------------------------------------------------------------------------------------- */

typedef struct model {
    dlc_context *context;
    dlc_graph *graph;
    dlc_program *program;
    dlc_status status;
    /* inputs and outputs; large enough for every shape used here */
    float *data;
} model;

enum { DATA_FLOATS = 1 << 16, WEIGHT_FLOATS = 1 << 16 };

/* Numbers that every weight borrows: small, not all equal. */
static const float *weight_bytes(void) {
    static float values[WEIGHT_FLOATS];
    if (values[0] == 0)
        for (int i = 0; i < WEIGHT_FLOATS; i++) values[i] = (float)((int64_t)i * 7919 % 1009 - 504) * 1e-4f;
    return values;
}

static dlc_value weights(dlc_graph *g, int rank, const int64_t *shape) {
    return dlc_constant_borrow(g, DLC_F32, rank, shape, weight_bytes());
}

/* relu(x w + b): x [n, 64]. */
static void build_linear(dlc_graph *g) {
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {64, NULL}});
    dlc_value y = dlc_linear(x, weights(g, 2, (int64_t[]){64, 128}), weights(g, 1, (int64_t[]){128}));
    dlc_output(g, "y", dlc_relu(y));
}

/* The network of examples/digits, with other weights: x [n, 1, 8, 8]. */
static void build_digits(dlc_graph *g) {
    static const int64_t channels[4] = {1, 16, 32, 32}, one[2] = {1, 1}, two[2] = {2, 2};
    dlc_convolution_options same = DLC_CONVOLUTION_OPTIONS_INIT;
    same.low_count = same.high_count = 2, same.low = same.high = one;
    dlc_max_pool_options pool = DLC_MAX_POOL_OPTIONS_INIT;
    pool.stride_count = 2, pool.stride = two;
    dlc_value x = dlc_input(g, "x", DLC_F32, 4, (dlc_dim[]){{0, "n"}, {1, NULL}, {8, NULL}, {8, NULL}});
    for (int i = 0; i < 3; i++) {
        dlc_value w = weights(g, 4, (int64_t[]){channels[i + 1], channels[i], 3, 3});
        x = dlc_relu(dlc_add(dlc_convolution_with(x, w, &same), weights(g, 4, (int64_t[]){1, channels[i + 1], 1, 1})));
        if (i == 1) x = dlc_max_pool_with(x, 2, two, &pool);
    }
    x = dlc_reshape(x, 2, (dlc_dim[]){{0, "n"}, {512, NULL}});
    x = dlc_relu(dlc_linear(x, weights(g, 2, (int64_t[]){512, 64}), weights(g, 1, (int64_t[]){64})));
    x = dlc_linear(x, weights(g, 2, (int64_t[]){64, 10}), weights(g, 1, (int64_t[]){10}));
    dlc_output(g, "y", dlc_softmax(x, -1));
}

/* Linear, GELU, layer norm, softmax: x [n, 64]. */
static void build_varying(dlc_graph *g) {
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {64, NULL}});
    dlc_symbol_varies(g, "n", 1, 4096, 1);
    dlc_value y = dlc_linear(x, weights(g, 2, (int64_t[]){64, 128}), weights(g, 1, (int64_t[]){128}));
    y = dlc_layer_norm(dlc_gelu(y), DLC_NONE, DLC_NONE, -1);
    dlc_output(g, "y", dlc_softmax(y, -1));
}

/* softmax(gelu(a*x + b)): x [n, m]. */
static void build_rows(dlc_graph *g) {
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {0, "m"}});
    dlc_value y = dlc_add(dlc_mul(x, dlc_scalar(g, DLC_F32, BENCH_MAP_A)), dlc_scalar(g, DLC_F32, BENCH_MAP_B));
    dlc_output(g, "y", dlc_softmax(dlc_gelu(y), -1));
}

static dlc_value dense(dlc_graph *g, dlc_value x, int64_t in, int64_t out) {
    return dlc_linear(x, weights(g, 2, (int64_t[]){in, out}), weights(g, 1, &out));
}

static dlc_value split_heads(dlc_value x, int64_t heads, int64_t size) {
    dlc_value split = dlc_reshape(x, 4, (dlc_dim[]){{1, NULL}, {0, "n"}, {heads, NULL}, {size, NULL}});
    return dlc_transpose(split, 4, (int64_t[]){0, 2, 1, 3});
}

/* A block of a transformer, some 50 nodes: x [n, 128]. */
static void build_block(dlc_graph *g) {
    enum { WIDTH = 128, HEADS = 2 };
    const int64_t width = WIDTH;
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {WIDTH, NULL}}), parts[3];
    for (int i = 0; i < 3; i++) parts[i] = split_heads(dense(g, x, WIDTH, WIDTH), HEADS, WIDTH / HEADS);
    dlc_value y = dlc_attention(parts[0], parts[1], parts[2], DLC_NONE);
    y = dlc_reshape(dlc_transpose(y, 4, (int64_t[]){0, 2, 1, 3}), 2, (dlc_dim[]){{0, "n"}, {WIDTH, NULL}});
    x = dlc_layer_norm(dlc_add(x, dense(g, y, WIDTH, WIDTH)), weights(g, 1, &width), weights(g, 1, &width), -1);
    y = dense(g, dlc_gelu(dense(g, x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH);
    dlc_output(g, "y", dlc_layer_norm(dlc_add(x, y), weights(g, 1, &width), weights(g, 1, &width), -1));
}

static model open_model_with(dlc_context_options options, void (*build)(dlc_graph *)) {
    model m = {0};
    m.data = calloc(DATA_FLOATS, sizeof *m.data);
    m.status = m.data ? dlc_context_create(&options, &m.context) : DLC_OUT_OF_MEMORY;
    if (!m.status) m.status = dlc_graph_create(m.context, &m.graph);
    if (m.status) return m;
    build(m.graph);
    m.status = dlc_compile(m.context, m.graph, NULL, &m.program);
    return m;
}

static model open_model(size_t cache_bytes, void (*build)(dlc_graph *)) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.cache_bytes = cache_bytes;
    return open_model_with(options, build);
}

static void close_model(model *m) {
    dlc_program_destroy(m->program);
    dlc_graph_destroy(m->graph);
    dlc_context_destroy(m->context);
    free(m->data);
}

/* One input of the given shape; the library makes the output. */
static void run_model(model *m, int rank, const int64_t *shape) {
    int64_t sizes[4];
    memcpy(sizes, shape, (size_t)rank * sizeof *sizes);
    DLTensor x = {.data = m->data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = sizes};
    const DLTensor *inputs[1] = {&x};
    dlc_output_slot output = {0};
    if (!m->status) m->status = dlc_run(m->program, NULL, inputs, 1, &output, 1);
    if (output.managed) output.managed->deleter(output.managed);
}

/* Prints the error; the child's number is then -1. */
static double failed(const model *m) {
    if (m->status) fprintf(stderr, "%s: %s\n", dlc_status_text(m->status), dlc_error_message(m->context));
    return -1;
}

static dlc_statistics statistics_of(const model *m) {
    dlc_statistics s = DLC_STATISTICS_INIT;
    if (m->context) dlc_context_statistics(m->context, &s);
    return s;
}

/* Megabytes of this process in memory. */
static double resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long total = 0, pages = 0;
    if (file && fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) * 1e-6;
}

/* ---- in a process of their own ----------------------------------------------------------------------------------------------------- */

static const int64_t linear_shape[2] = {32, 64}, digits_shape[4] = {1, 1, 8, 8};

/* Milliseconds from creating the context to the first result. */
static double first_linear(void) {
    weight_bytes();
    double start = bench_now();
    model m = open_model(0, build_linear);
    run_model(&m, 2, linear_shape);
    return m.status ? failed(&m) : (bench_now() - start) * 1e3;
}

static double first_digits(void) {
    weight_bytes();
    double start = bench_now();
    model m = open_model(0, build_digits);
    run_model(&m, 4, digits_shape);
    return m.status ? failed(&m) : (bench_now() - start) * 1e3;
}

/* Megabytes with a context and the digits network, run at three batch sizes. */
static double memory_digits(void) {
    model m = open_model(0, build_digits);
    for (int64_t n = 1; n <= 16; n *= 4) run_model(&m, 4, (int64_t[]){n, 1, 8, 8});
    return m.status ? failed(&m) : resident();
}

/* Growth of memory in megabytes from the 300th to the 1,000th shape. */
static double growth_shapes(void) {
    model m = open_model(16 << 20, build_rows);
    double before = 0;
    for (int i = 0; i < 1000 && !m.status; i++) {
        if (i == 300) before = resident();
        run_model(&m, 2, (int64_t[]){1 + i % 40, 1 + i});
        if (m.status) fprintf(stderr, "at shape %dx%d: ", 1 + i % 40, 1 + i);
    }
    dlc_statistics s = statistics_of(&m);
    if (s.cache_bytes > 16 << 20) fprintf(stderr, "the cache holds %llu bytes\n", (unsigned long long)s.cache_bytes);
    return m.status || s.cache_bytes > 16 << 20 ? failed(&m) : resident() - before;
}

/* Growth of memory in megabytes with a new graph for each shape, so that each compiles: from the time when the cache has been full for a
 * while. */
static double growth_graphs(void) {
    enum { SETTLED = 100 /* evictions */, CACHE = 4 << 20 };
    model m = open_model(CACHE, build_rows);
    double before = 0;
    for (int i = 0; i < 1000 && !m.status; i++) {
        if (before == 0 && statistics_of(&m).kernel_evictions >= SETTLED) before = resident();
        model one = {.context = m.context, .data = m.data};
        one.status = dlc_graph_create(m.context, &one.graph);
        int64_t shape[2] = {1 + i % 40, 1 + i};
        dlc_value x = dlc_input(one.graph, "x", DLC_F32, 2, (dlc_dim[]){{shape[0], NULL}, {shape[1], NULL}});
        dlc_output(one.graph, "y", dlc_softmax(dlc_add(x, x), -1));
        if (!one.status) one.status = dlc_compile(m.context, one.graph, NULL, &one.program);
        run_model(&one, 2, shape);
        dlc_program_destroy(one.program);
        dlc_graph_destroy(one.graph);
        m.status = one.status;
        if (m.status) fprintf(stderr, "at shape %dx%d: ", 1 + i % 40, 1 + i);
    }
    dlc_statistics s = statistics_of(&m);
    if (s.cache_bytes > CACHE) fprintf(stderr, "the cache holds %llu bytes\n", (unsigned long long)s.cache_bytes);
    return m.status || s.cache_bytes > CACHE || before == 0 ? failed(&m) : resident() - before;
}

/* Kernels built for 200 sizes over kernels built for the first size, one for each region. */
static double builds_varying(void) {
    model m = open_model(0, build_varying);
    run_model(&m, 2, (int64_t[]){1, 64});
    double regions = (double)statistics_of(&m).kernel_builds;
    for (int64_t n = 2; n <= 200; n++) run_model(&m, 2, (int64_t[]){n, 64});
    double builds = (double)statistics_of(&m).kernel_builds;
    return m.status || regions == 0 ? failed(&m) : builds / regions;
}

/* Milliseconds a kernel, median over plans: the digits network at 15 batch sizes, each in a context of its own. */
static double compile_kernel(void) {
    double values[15];
    for (int i = 0; i < 15; i++) {
        model m = open_model(0, build_digits);
        int64_t shape[4] = {1 + 3 * i, 1, 8, 8};
        const int64_t *shapes[1] = {shape};
        if (!m.status) m.status = dlc_prepare(m.program, shapes, (int[]){4}, 1);
        dlc_statistics s = statistics_of(&m);
        if (m.status || s.kernel_builds == 0) return failed(&m);
        values[i] = (double)s.compile_ns * 1e-6 / (double)s.kernel_builds;
        close_model(&m);
    }
    return bench_median(values, 15);
}

/* A model of x [n, ...] for 15 sizes n, once compiled and kept on disk, then each in a context of its own that finds its kernels there.
 * Milliseconds a kernel, median: looking, checking and loading alone, or all that binding takes. */
static double from_disk(void (*build)(dlc_graph *), int rank, const int64_t *sizes, bool binding) {
    char folder[] = "/tmp/libdlc-kernelsXXXXXX", command[64];
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    double values[15];
    bool good = mkdtemp(folder) != NULL;
    options.cache_directory = folder;
    for (int round = 0; round < 2 && good; round++)
        for (int i = 0; i < 15 && good; i++) {
            model m = open_model_with(options, build);
            int64_t shape[4];
            const int64_t *shapes[1] = {shape};
            memcpy(shape, sizes, (size_t)rank * sizeof *shape);
            shape[0] = 1 + 3 * i;
            if (!m.status) m.status = dlc_prepare(m.program, shapes, (int[]){rank}, 1);
            dlc_statistics s = statistics_of(&m);
            good = !m.status && (round == 0 || (s.disk_hits && !s.kernel_builds && !s.predictions));
            if (!good) failed(&m);
            values[i] = (double)(binding ? s.compile_ns : s.disk_read_ns) * 1e-6 / (double)(good ? s.disk_hits : 1);
            close_model(&m);
        }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) good = false;
    return good ? bench_median(values, 15) : -1;
}

static double warm_kernel(void) {
    return from_disk(build_digits, 4, digits_shape, false);
}

static double warm_binding(void) {
    return from_disk(build_digits, 4, digits_shape, true);
}

/* The same for a block with doubtful joins, which fusion decided by predictions when nothing was on disk. */
static double warm_block(void) {
    return from_disk(build_block, 2, (int64_t[]){1, 128}, true);
}

/* Sets the shapes and ranks of the graph's inputs: all operands, or without those that are constants; returns their number. */
static int inputs_of(const bench_problem *problem, bool constants, const int64_t **shapes, int *ranks) {
    int inputs = 0;
    for (int o = 0; o < problem->operand_count; o++)
        if (constants || !problem->operands[o].constant)
            shapes[inputs] = problem->operands[o].dims, ranks[inputs++] = problem->operands[o].rank;
    return inputs;
}

/* Milliseconds until the graph of a line, without its data, is built, its program compiled and its kernels loaded from the folder; the first
 * time, they are compiled and kept there. */
static double start_of(const bench_shape *shape, bench_build_function *build, const char *folder, bool first) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    bench_builder builder;
    model m = {0};
    options.cache_directory = folder;
    m.status = dlc_context_create(&options, &m.context);
    if (!m.status) m.status = dlc_graph_create(m.context, &m.graph);
    if (m.status) return failed(&m);
    const double start = bench_now();
    bench_case_describe(&builder, build, shape, m.graph, NULL, NULL);
    const int64_t *shapes[BENCH_MAX_OPERANDS];
    int ranks[BENCH_MAX_OPERANDS];
    const int inputs = inputs_of(&builder.problem, true, shapes, ranks);
    m.status = dlc_compile(m.context, m.graph, NULL, &m.program);
    if (!m.status) m.status = dlc_prepare(m.program, shapes, ranks, inputs);
    const double end = bench_now();
    const bool good = !m.status && (first || statistics_of(&m).kernel_builds == 0);
    if (!good) failed(&m);
    close_model(&m);
    return good ? (end - start) * 1e3 : -1;
}

/* The start of a step of training whose kernels are on disk, over that of its forward part. */
static double warm_step(void) {
    enum { RUNS = 7 };
    char folder[] = "/tmp/libdlc-kernelsXXXXXX", command[64];
    bench_shape shape;
    double values[2][RUNS];
    bool good = mkdtemp(folder) != NULL;
    bench_shape_parse(&shape, "train network=transformer layers=6 d=384 heads=6 tokens=256 batch=8 words=256");
    bench_build_function *const builds[] = {bench_forward_of(&shape), bench_case_find(&shape)->build};
    for (int b = 0; b < 2 && good; b++) {
        good = start_of(&shape, builds[b], folder, true) > 0;
        for (int i = 0; i < RUNS && good; i++) good = (values[b][i] = start_of(&shape, builds[b], folder, false)) > 0;
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0 || !good) return -1;
    const double forward = bench_median(values[0], RUNS), step = bench_median(values[1], RUNS);
    if (getenv("BENCH_TELL")) fprintf(stderr, "forward %.1f ms, step %.1f ms\n", forward, step);
    return step / forward;
}

static void wait_for_background(const model *m) {
    for (int i = 0; i < 2000; i++) {
        dlc_statistics s = statistics_of(m);
        if (s.tier_specialised + s.tier_failures >= s.tier_generic) return;
        usleep(5000);
    }
}

/* The first answer for sizes that a transformer block has not seen, over twice the steady time and a millisecond: the median of three
 * sizes, whose kernels are compiled in the background, and three of those that come when kernels no longer are. */
static double first_answers(void) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.background_compile = true;
    model m = open_model_with(options, build_block);
    double values[6];
    run_model(&m, 2, (int64_t[]){16, 128}); /* generic kernels for the range */
    for (int i = 0; i < 6 && !m.status; i++) {
        int64_t shape[2] = {33 + 19 * i, 128};
        wait_for_background(&m);
        double start = bench_now(), steady = 1;
        run_model(&m, 2, shape);
        double first = bench_now() - start;
        wait_for_background(&m);
        for (int r = 0; r < 30; r++) {
            start = bench_now();
            run_model(&m, 2, shape);
            if (bench_now() - start < steady) steady = bench_now() - start;
        }
        values[i] = first / (2 * steady + 1e-3);
        if (getenv("BENCH_TELL"))
            fprintf(stderr, "n = %d: first %.3f ms, then %.3f ms\n", (int)shape[0], first * 1e3, steady * 1e3);
    }
    return m.status ? failed(&m) : bench_median(values, 6);
}

/* Cases of one kernel with much code: padding, chains, activations. */
static const char *const compiled[] = {
    "contraction figure b=1 m=128 n=768 k=768 bias act=gelu",
    "contraction odd b=1 m=37 n=641 k=129",
    "contraction batched b=12 m=128 n=128 k=64 const=0",
    "convolution resnet50 n=1 ci=3 co=64 h=224 w=224 kh=7 kw=7 stride=2 pad=3",
    "convolution resnet50 n=1 ci=64 co=64 h=56 w=56 kh=3 kw=3 pad=1 bias act=relu",
    "convolution resnet50 n=1 ci=128 co=128 h=14 w=14 kh=3 kw=3 stride=2 pad=1",
    "convolution resnet50 n=1 ci=128 co=128 h=7 w=7 kh=3 kw=3 pad=1",
    "convolution depthwise n=1 ci=240 co=240 h=14 w=14 kh=5 kw=5 pad=2 groups=240",
    "convolution odd n=1 ci=17 co=31 h=37 w=41 kh=3 kw=5 stride=1 pad=1",
    "attention b=1 heads=12 queries=128 keys=128 dim=64",
    "attention b=1 heads=8 queries=333 keys=333 dim=48 causal",
    "attention b=1 heads=32 queries=1 keys=1024 dim=128",
    "row softmax shape=64x1000",
    "row layer_norm shape=128x768",
    "row group_norm shape=1x320x64x64 groups=32",
    "row topk shape=64x1000 k=10",
    "map adam shape=65536",
    "move transpose shape=31x37x41x43 perm=3,1,2,0",
};

/* Writes a statement without what is in brackets and without numbers: copies of it for other parts of a loop are then equal. */
static void skeleton(const char *from, size_t length, char *to, size_t size) {
    size_t depth = 0, at = 0;
    for (size_t i = 0; i < length && at + 1 < size; i++) {
        depth -= from[i] == ']';
        if (depth == 0 && from[i] != ' ' && (from[i] < '0' || from[i] > '9')) to[at++] = from[i];
        depth += from[i] == '[';
    }
    to[at] = 0;
}

/* The largest number of copies of one statement in loop IR: for edges, heights of tiles, last columns. */
static int count_versions(const char *loops) {
    enum { STATEMENTS = 400, LENGTH = 400 };
    static char seen[STATEMENTS][LENGTH];
    int count[STATEMENTS] = {0}, known = 0, most = 1;
    for (const char *line = loops, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        char text[LENGTH];
        skeleton(line, (size_t)(end - line), text, sizeof text);
        if (!strstr(text, "]=")) continue;
        int i = 0;
        while (i < known && strcmp(seen[i], text) != 0) i++;
        if (i == STATEMENTS) continue;
        if (i == known) strcpy(seen[known++], text);
        if (++count[i] > most) most = count[i];
    }
    return most;
}

typedef struct compilation {
    /* time to bind a program of one kernel: code for the kernel and for packing its weights, and all else */
    double milliseconds;
    int versions;
} compilation;

static dlc_status compile_line(const char *line, compilation *c) {
    bench_shape shape;
    bench_builder builder;
    model m = {0};
    char *loops = NULL;
    *c = (compilation){.versions = 1};
    bench_shape_parse(&shape, line);
    const bench_case_kind *kind = bench_case_find(&shape);
    if (!kind) return DLC_OK;
    m.status = dlc_context_create(NULL, &m.context);
    if (!m.status) m.status = dlc_graph_create(m.context, &m.graph);
    if (m.status) return m.status;
    bench_case_build(&builder, kind->build, &shape, m.graph, NULL);
    const int64_t *shapes[BENCH_MAX_OPERANDS];
    int ranks[BENCH_MAX_OPERANDS];
    const int inputs = inputs_of(&builder.problem, false, shapes, ranks);
    m.status = dlc_compile(m.context, m.graph, NULL, &m.program);
    if (!m.status) m.status = dlc_prepare(m.program, shapes, ranks, inputs);
    c->milliseconds = (double)statistics_of(&m).compile_ns * 1e-6;
    if (!m.status) m.status = dlc_program_dump(m.program, "loops", shapes, ranks, inputs, &loops);
    if (loops) c->versions = count_versions(loops);
    dlc_text_free(m.context, loops);
    dlc_status status = m.status;
    if (status) failed(&m);
    close_model(&m);
    bench_case_release(&builder);
    return status;
}

static double worst_compilation(bool by_version) {
    double most = 0;
    for (size_t i = 0; i < sizeof compiled / sizeof *compiled; i++) {
        compilation c;
        if (compile_line(compiled[i], &c)) return -1;
        double value = c.milliseconds / (by_version ? c.versions : 1);
        if (value > most) most = value;
        if (getenv("BENCH_TELL"))
            fprintf(stderr, "%8.2f ms, %2d versions  %s\n", c.milliseconds, c.versions, compiled[i]);
    }
    return most;
}

static double compile_worst(void) {
    return worst_compilation(false);
}

static double compile_version(void) {
    return worst_compilation(true);
}

/* ---- long graphs: x [8, 16] through about `nodes` nodes ------------------------------------------------------------------------------ */

/* Layers with the same weights: matmul, relu, add, neg. */
static dlc_value chain_of_layers(dlc_graph *g, dlc_value x, int nodes) {
    dlc_value w = weights(g, 2, (int64_t[]){16, 16}), y = x;
    for (int i = 0; i < nodes; i += 4) y = dlc_neg(dlc_add(dlc_relu(dlc_matmul(y, w)), x));
    return y;
}

/* A chain of maps only, all of which fusion may take into one kernel. */
static dlc_value chain_of_maps(dlc_graph *g, dlc_value x, int nodes) {
    (void)g;
    dlc_value y = x;
    for (int i = 0; i < nodes; i += 4) y = dlc_tanh(dlc_add(dlc_mul(y, x), dlc_exp(x)));
    return y;
}

/* A chain in which each link has its own constant. */
static dlc_value chain_of_constants(dlc_graph *g, dlc_value x, int nodes) {
    static const int64_t shape[2] = {8, 16};
    dlc_value y = x;
    float values[8 * 16];
    for (int i = 0; i < nodes; i += 3) {
        for (int k = 0; k < 8 * 16; k++) values[k] = (float)k * 0.1f + (float)i;
        y = dlc_add(dlc_mul(dlc_constant(g, DLC_F32, 2, shape, values), x), y);
    }
    return y;
}

typedef dlc_value build_chain(dlc_graph *, dlc_value, int);
static build_chain *const chains[] = {chain_of_layers, chain_of_maps, chain_of_constants};

/* Seconds of processor for building, compiling and preparing; -1: failed. */
static double prepare_seconds(build_chain *build, int nodes) {
    static const int64_t shape[2] = {8, 16};
    const int64_t *shapes[1] = {shape};
    model m = {.status = DLC_OK};
    m.status = dlc_context_create(NULL, &m.context);
    if (!m.status) m.status = dlc_graph_create(m.context, &m.graph);
    if (m.status) return failed(&m);
    clock_t start = clock();
    dlc_value x = dlc_input(m.graph, "x", DLC_F32, 2, (dlc_dim[]){{8, NULL}, {16, NULL}});
    dlc_output(m.graph, "y", build(m.graph, x, nodes));
    m.status = dlc_compile(m.context, m.graph, NULL, &m.program);
    if (!m.status) m.status = dlc_prepare(m.program, shapes, (int[]){2}, 1);
    double seconds = m.status ? failed(&m) : (double)(clock() - start) / CLOCKS_PER_SEC;
    close_model(&m);
    return seconds;
}

/* Seconds of processor for dlc_gradient of the sum of the chain's result; -1: failed. */
static double gradient_seconds(build_chain *build, int nodes) {
    model m = {.status = DLC_OK};
    m.status = dlc_context_create(NULL, &m.context);
    if (!m.status) m.status = dlc_graph_create(m.context, &m.graph);
    if (m.status) return failed(&m);
    dlc_value x = dlc_input(m.graph, "x", DLC_F32, 2, (dlc_dim[]){{8, NULL}, {16, NULL}}), gradient;
    const dlc_value loss = dlc_reduce_sum(build(m.graph, x, nodes), 2, (const int64_t[]){0, 1});
    clock_t start = clock();
    dlc_gradient(loss, 1, &x, &gradient);
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    m.status = dlc_graph_status(m.graph);
    if (m.status) return failed(&m);
    close_model(&m);
    return seconds;
}

/* Time for a graph of twice as many nodes, medians of three taken in turns; the worst of three graphs at two sizes. */
static double time_doubled(double (*seconds)(build_chain *, int)) {
    static const int sizes[] = {12500, 50000};
    double worst = 0;
    for (int i = 0; i < 6; i++) {
        double once[3], twice[3];
        int nodes = sizes[i % 2];
        if (i % 2 == 0 && seconds(chains[i / 2], 100) < 0) return -1; /* costs of the first program only */
        for (int run = 0; run < 3; run++) {
            once[run] = seconds(chains[i / 2], nodes);
            twice[run] = seconds(chains[i / 2], 2 * nodes);
            if (once[run] < 0 || twice[run] < 0) return -1;
        }
        double ratio = bench_median(twice, 3) / bench_median(once, 3);
        if (getenv("BENCH_TELL"))
            fprintf(stderr, "graph %d, %d nodes: %.3f s, twice as many: %.3f s\n", i / 2, nodes, once[1], twice[1]);
        if (ratio > worst) worst = ratio;
    }
    return worst;
}

static double compile_doubled(void) {
    return time_doubled(prepare_seconds);
}

static double gradient_doubled(void) {
    return time_doubled(gradient_seconds);
}

/* Microseconds for a node of 10^5, the worst of the graphs. */
static double gradient_node(void) {
    const int nodes = 100000;
    double worst = 0;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        const double seconds = gradient_seconds(chains[i], nodes);
        if (seconds < 0) return -1;
        if (seconds > worst) worst = seconds;
    }
    return worst * 1e6 / nodes;
}

/* Run-time memory of causal attention over 16 Ki tokens, or of its derivatives by queries, keys and values, over the bytes of its inputs. */
static double attention_memory(bool derivatives) {
    enum { TOKENS = 16384, DIM = 64, MOST = 4 };
    static const int64_t dims[4] = {1, 1, TOKENS, DIM};
    const int inputs = derivatives ? 4 : 3, outputs = derivatives ? 3 : 1;
    model m = {0};
    bench_operand operands[MOST + 3];
    DLTensor views[MOST + 3];
    const DLTensor *given[MOST];
    dlc_output_slot slots[3] = {{0}};
    dlc_value x[MOST], y[3];
    m.status = dlc_context_create(NULL, &m.context);
    if (!m.status) m.status = dlc_graph_create(m.context, &m.graph);
    if (m.status) return failed(&m);
    for (int i = 0; i < inputs + outputs; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        bench_operand_create(&operands[i], DLC_F32, 4, dims, -1, 1);
        views[i] = (DLTensor){.data = operands[i].data,
                              .device = {kDLCPU, 0},
                              .ndim = 4,
                              .dtype = {kDLFloat, 32, 1},
                              .shape = operands[i].dims};
        dlc_dim sizes[4] = {{1, NULL}, {1, NULL}, {TOKENS, NULL}, {DIM, NULL}};
        if (i < inputs) x[i] = dlc_input(m.graph, name, DLC_F32, 4, sizes);
        if (i < inputs)
            given[i] = &views[i];
        else
            slots[i - inputs].tensor = &views[i];
    }
    y[0] = dlc_attention_with(x[0], x[1], x[2], DLC_NONE,
                              &(dlc_attention_options){sizeof(dlc_attention_options), .causal = true});
    const dlc_value forward = y[0];
    if (derivatives) dlc_vjp(1, &forward, &x[3], 3, x, y);
    for (int i = 0; i < outputs; i++) dlc_output(m.graph, (const char *[]){"a", "b", "c"}[i], y[i]);
    m.status = dlc_compile(m.context, m.graph, NULL, &m.program);
    if (!m.status) m.status = dlc_run(m.program, NULL, given, inputs, slots, outputs);
    for (int i = 0; i < inputs + outputs; i++) free(operands[i].data);
    return m.status ? failed(&m) : (double)statistics_of(&m).arena_bytes / ((double)inputs * (double)operands[0].bytes);
}

static double attention_arena(void) {
    return attention_memory(false);
}

static double derivatives_arena(void) {
    return attention_memory(true);
}

/* Nanoseconds of dlc_run with two inputs, 16 shapes in turn, kernels of 1 to 16 elements included. */
static void build_pair(dlc_graph *g) {
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, (dlc_dim[]){{0, "n"}}),
              y = dlc_input(g, "y", DLC_F32, 1, (dlc_dim[]){{0, "n"}});
    dlc_output(g, "z", dlc_add(x, y));
}

static double run_alternating(void) {
    model m = open_model(0, build_pair);
    int64_t sizes[16];
    DLTensor tensors[16][3];
    for (int i = 0; i < 16; i++) {
        sizes[i] = i + 1;
        for (int t = 0; t < 3; t++)
            tensors[i][t] = (DLTensor){.data = m.data + t * 64,
                                       .device = {kDLCPU, 0},
                                       .ndim = 1,
                                       .dtype = {kDLFloat, 32, 1},
                                       .shape = &sizes[i]};
    }
    double samples[25];
    for (int s = 0; s < 25; s++) {
        double start = bench_now();
        for (int i = 0; i < 16000; i++) {
            DLTensor *t = tensors[i % 16];
            const DLTensor *inputs[2] = {&t[0], &t[1]};
            dlc_output_slot output = {.tensor = &t[2]};
            if (!m.status) m.status = dlc_run(m.program, NULL, inputs, 2, &output, 1);
        }
        samples[s] = (bench_now() - start) / 16000 * 1e9;
    }
    return m.status ? failed(&m) : bench_median(samples, 25);
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------------ */

typedef enum metric { GIGABYTES, PEAK_SHARE, MICROSECONDS, FUSION_GAIN } metric;

/* Figures of a contest with one thread. */
static const struct {
    const char *name, *line;
    metric metric;
    double required, stretch;
} contests[] = {
    {"gelu(a*x+b), 64 Ki floats, GB/s", "map gelu(a*x+b) shape=65536", GIGABYTES, 35, 45},
    {"contraction 512x512x512, share of peak %", "contraction figure b=1 m=512 n=512 k=512", PEAK_SHARE, 85, 93},
    {"the same with bias and GELU, %", "contraction figure b=1 m=512 n=512 k=512 bias act=gelu", PEAK_SHARE, 85, 93},
    {"contraction 128x768x768, share of peak %", "contraction figure b=1 m=128 n=768 k=768", PEAK_SHARE, 85, 93},
    {"the same with bias and GELU, %", "contraction figure b=1 m=128 n=768 k=768 bias act=gelu", PEAK_SHARE, 85, 93},
    {"8 convolutions 3x3 64->64 @56, share of peak %",
     "convolution figure n=1 ci=64 co=64 h=56 w=56 kh=3 kw=3 pad=1 chain=8 bias act=relu", PEAK_SHARE, 80, 94},
    {"softmax 128x128, us", "row softmax shape=128x128", MICROSECONDS, 6, 4},
    {"attention 12x128x64 over three programs, x", "attention b=1 heads=12 queries=128 keys=128 dim=64", FUSION_GAIN,
     1.3, 2},
};

/* Figures measured by a process of its own. Less is better, unless it is a share. */
static const struct {
    const char *name, *child;
    double (*measure)(void);
    int runs;
    double required, stretch;
    /* level of CPU features; NULL: the machine's */
    const char *level;
    bool share;
} children[] = {
    {"contraction, cubes of 1024, 1536, 2048: least share of peak %", "cubes", bench_cubes_large, 1, 88, 94, NULL,
     true},
    {"AVX2, cubes of 512, 1024, 2048: least share of its peak %", "avx2", bench_cubes_small, 1, 88, 94, "avx2", true},
    {"SSE2, cubes of 512, 1024, 2048: least share of its peak %", "sse2", bench_cubes_small, 1, 60, 75, "sse2", true},
    {"attention over 16 Ki tokens: arena over inputs", "arena", attention_arena, 1, 2, 0.5, NULL, false},
    {"the same, of its derivatives", "arena-derivatives", derivatives_arena, 1, 2, 1.2, NULL, false},
    {"dlc_run, 2 inputs, 16 shapes in turn, kernels included, ns", "run", run_alternating, 3, 0, 0, NULL, false},
    {"compilation of one kernel, amortised over a plan, ms", "compile", compile_kernel, 1, 2.5, 1.5, NULL, false},
    {"compilation of a program of one kernel, the worst, ms", "compile-worst", compile_worst, 3, 40, 20, NULL, false},
    {"the same, for each version of its loops, the worst, ms", "compile-version", compile_version, 3, 15, 8, NULL,
     false},
    {"warm start from disk: finding, checking, loading a kernel, ms", "warm", warm_kernel, 3, 0.1, 0.03, NULL, false},
    {"warm start from disk: all of binding, a kernel, ms", "warm-bind", warm_binding, 3, 0, 0, NULL, false},
    {"the same, a transformer block", "warm-block", warm_block, 3, 0, 0, NULL, false},
    {"warm start from disk: a training step over its forward part, graph and gradients included", "warm-step",
     warm_step, 1, 2, 1.3, NULL, false},
    {"first answer for new sizes of a transformer block, over 2 x steady + 1 ms", "answers", first_answers, 3, 1, 0.5,
     NULL, false},
    {"graphs of up to 10^5 nodes: time of 2N nodes over that of N", "doubled", compile_doubled, 1, 2.2, 2.05, NULL,
     false},
    {"dlc_gradient, a node of 10^5, us", "gradient", gradient_node, 3, 15, 5, NULL, false},
    {"dlc_gradient, graphs of up to 10^5 nodes: time of 2N nodes over that of N", "gradient-doubled", gradient_doubled,
     1, 2.2, 2.05, NULL, false},
    {"context to first result (linear + relu), ms", "first", first_linear, 15, 25, 10, NULL, false},
    {"context to first result (digits network), ms", "first-digits", first_digits, 15, 0, 0, NULL, false},
    {"1,000 shapes, one program, 16 MiB cache: growth, MB", "shapes", growth_shapes, 1, 4, 1, NULL, false},
    {"1,000 graphs, 4 MiB cache: growth, MB", "graphs", growth_graphs, 1, 4, 1, NULL, false},
    {"200 values of a varying symbol: builds a region", "varying", builds_varying, 1, 3, 1, NULL, false},
    {"sizes that vary: time of kernels that do not know them over that of those that do, mean", "unknown",
     bench_varying_mean, 1, 1.2, 1.05, NULL, false},
    {"the same, the worst", "unknown-worst", bench_varying_worst, 1, 0, 0, NULL, false},
    {"memory after context and digits network, MB", "memory", memory_digits, 3, 60, 40, NULL, false},
    {"from `cancel` to the run's return, the worst of 19 operators, ms", "ending", bench_ending_worst, 1, 20, 5, NULL,
     false},
    {"what asking costs kernels, mean of 17 operators, %", "polls", bench_ending_cost_mean, 1, 1, 0.3, NULL, false},
    {"the same, the worst, %", "polls-worst", bench_ending_cost_worst, 1, 0, 0, NULL, false},
};
enum { CONTESTS = sizeof contests / sizeof *contests, CHILDREN = sizeof children / sizeof *children };

int bench_child(const char *name) {
    for (int i = 0; i < CHILDREN; i++) {
        if (strcmp(children[i].child, name) != 0) continue;
        printf("%.9g\n", children[i].measure());
        return 0;
    }
    return 2;
}

/* Median over the runs; -1 when one failed. */
static double ask_child(int index) {
    char program[4096], command[4200];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) return -1;
    program[length] = 0;
    const char *level = children[index].level;
    snprintf(command, sizeof command, "%s%s '%s' --child %s", level ? "DLC_CPU_FEATURES=" : "", level ? level : "",
             program, children[index].child);
    double values[32];
    int runs = children[index].runs;
    for (int i = 0; i < runs; i++) {
        FILE *pipe = popen(command, "r");
        values[i] = -1;
        if (pipe && fscanf(pipe, "%lf", &values[i]) != 1) values[i] = -1;
        if (!pipe || pclose(pipe) != 0) values[i] = -1;
        if (values[i] == -1) return -1;
    }
    return bench_median(values, runs);
}

static double contest_figure(int index, const bench_outcome *outcomes, int count) {
    for (int i = 0; i < count; i++) {
        const bench_outcome *o = &outcomes[i];
        if (o->threads != 1 || strcmp(o->shape->text, contests[index].line) != 0) continue;
        switch (contests[index].metric) {
        case GIGABYTES: return o->bytes / o->seconds * 1e-9;
        case PEAK_SHARE: return o->flops / o->seconds / o->fma / o->gain * 100;
        case MICROSECONDS: return o->seconds * 1e6;
        case FUSION_GAIN: return o->others[BENCH_SEPARATE].ratio > 0 ? o->others[BENCH_SEPARATE].ratio : -1;
        }
    }
    return -1;
}

/* Size of the loaded shared library; -1: it is statically linked. */
static double library_megabytes(void) {
    Dl_info info;
    const char *(*function)(void) = dlc_version;
    void *address;
    memcpy(&address, &function, sizeof address);
    if (!dladdr(address, &info) || !strstr(info.dli_fname, ".so")) return -1;
    char copy[] = "/tmp/libdlc-strippedXXXXXX", command[4200];
    int file = mkstemp(copy);
    if (file < 0) return -1;
    close(file);
    snprintf(command, sizeof command, "strip -o %s '%s'", copy, info.dli_fname);
    struct stat status;
    double size = system(command) == 0 && stat(copy, &status) == 0 ? (double)status.st_size * 1e-6 : -1;
    unlink(copy);
    return size;
}

/* Prints a figure and compares it with `required`; 0: nothing is required. Returns whether it was reached. */
static bool report(FILE *json, const char *name, double value, double required, double stretch, bool more_is_better) {
    bool measured = value != -1, reached = required == 0, stretched = false;
    if (measured && required != 0) {
        reached = more_is_better ? value >= required : value <= required;
        stretched = more_is_better ? value >= stretch : value <= stretch;
    }
    const char *verdict = !measured ? "not measured" : stretched ? "stretch" : reached ? "ok" : "MISSED";
    if (required != 0)
        printf("%-64s %10.2f %10.2f  ", name, required, stretch);
    else
        printf("%-64s %10s %10s  ", name, "-", "-");
    if (measured)
        printf("%10.2f  %s\n", value, required != 0 ? verdict : "");
    else
        printf("%10s  %s\n", "-", verdict);
    fprintf(json, "{\"figure\":\"%s\",\"required\":%g,\"stretch\":%g,\"measured\":", name, required, stretch);
    fprintf(json, measured ? "%g" : "null", value);
    fprintf(json, ",\"verdict\":\"%s\"}\n", verdict);
    fflush(stdout);
    return measured && reached;
}

bool bench_figures(const bench_outcome *outcomes, int count, FILE *json) {
    bool reached = true;
    printf("%-64s %10s %10s  %10s\n", "figure", "required", "stretch", "measured");
    for (int i = 0; i < CONTESTS; i++) {
        metric m = contests[i].metric;
        reached &= report(json, contests[i].name, contest_figure(i, outcomes, count), contests[i].required,
                          contests[i].stretch, m != MICROSECONDS);
    }
    for (int i = 0; i < CHILDREN; i++)
        reached &=
            report(json, children[i].name, ask_child(i), children[i].required, children[i].stretch, children[i].share);
    reached &= report(json, "libdlc.so stripped, MB", library_megabytes(), 32, 29, false);
    return reached;
}
