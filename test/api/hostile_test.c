/* Texts, files, graphs and stacks that a host need not trust: whatever they are, a call ends with a status, its memory bounded by its
 * limits, its objects as they were. */
#include "support.h"
#include "test/share.h"

#include <dlc/files.h>

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define REFUSED(context, status, expression, part)                                                  \
    do {                                                                                            \
        dlc_status got_ = (expression);                                                             \
        if (got_ != (status) || !strstr(dlc_error_message(context), (part)))                        \
            failed("line %d: %s: %s", __LINE__, dlc_status_text(got_), dlc_error_message(context)); \
    } while (0)

static dlc_context *open_limited(const dlc_limits *limits, const dlc_allocator *allocator) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    if (limits) options.limits = *limits;
    options.allocator = allocator;
    return open_context("interp", &options);
}

static void test_limits_are_checked(void **state) {
    (void)state;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.target = "interp";
    options.limits.nesting = -1;
    REFUSED(NULL, DLC_INVALID_ARGUMENT, dlc_context_create(&options, &context), "limits.nesting");
    options.limits = (dlc_limits){.time_ms = -5};
    REFUSED(NULL, DLC_INVALID_ARGUMENT, dlc_context_create(&options, &context), "limits.time_ms");
}

/* ---- nesting */

/* `if` in the branch of an `if`, `depth` deep, of c: bool[] and x: f32[4]; open: the text ends in the middle. */
static char *nested_text(int depth, bool open) {
    char *text = malloc((size_t)depth * 160 + 200), *at = text;
    at += sprintf(at, "graph {\n input c: bool[]\n input x: f32[4]\n");
    for (int i = 0; i < depth; i++) at += sprintf(at, "a = if(c, c, x, then=graph { input c: bool[] input x: f32[4]\n");
    if (open) return text;
    at += sprintf(at, "b = neg(x) output b ");
    for (int i = 0; i < depth; i++)
        at += sprintf(at, "}, otherwise=graph { input c: bool[] input x: f32[4] d = abs(x) output d })\n output a\n");
    sprintf(at, "}");
    return text;
}

static dlc_status parse_nested(dlc_context *context, int depth, bool open, dlc_graph **g) {
    char *text = nested_text(depth, open);
    dlc_status status = dlc_graph_parse(context, text, strlen(text), g);
    free(text);
    return status;
}

static void run_nested(dlc_context *context, dlc_graph *g) {
    float in[4] = {1, 2, -3, 4}, out[4];
    bool condition = true;
    tensor tc, tx, ty;
    dlc_program *program = compile(context, g);
    dlc_output_slot slot = {F32(&ty, out, 4), NULL};
    make_tensor(&tc, DLC_BOOL, &condition, 0, NULL);
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&tc.dl, F32(&tx, in, 4)}, 2, &slot, 1));
    for (int i = 0; i < 4; i++) CHECK(out[i] == -in[i]);
    dlc_program_destroy(program);
}

static void test_nested_texts(void **state) {
    (void)state;
    dlc_context *context = open_limited(NULL, NULL);
    dlc_graph *g;
    OK(context, parse_nested(context, 64, false, &g));
    run_nested(context, g);
    for (int open = 0; open < 2; open++) {
        REFUSED(context, DLC_BUDGET_EXCEEDED, parse_nested(context, 65, open, &g), "limits.nesting = 64");
        REFUSED(context, DLC_BUDGET_EXCEEDED, parse_nested(context, 100000, open, &g), "limits.nesting = 64");
    }
    dlc_context_destroy(context);
    context = open_limited(&(dlc_limits){.nesting = 300}, NULL);
    OK(context, parse_nested(context, 300, false, &g));
    run_nested(context, g);
    REFUSED(context, DLC_BUDGET_EXCEEDED, parse_nested(context, 301, false, &g), "limits.nesting = 300");
    dlc_context_destroy(context);
}

/* The same by calls: each branch captures both inputs of the outermost graph. */
static dlc_status build_nested(dlc_context *context, int depth, dlc_graph **out) {
    dlc_graph **inner = malloc(sizeof(dlc_graph *) * (size_t)(depth + 1));
    OK(context, dlc_graph_create(context, &inner[0]));
    *out = inner[0];
    dlc_value c = dlc_input(inner[0], "c", DLC_BOOL, 0, NULL), x = dlc_input(inner[0], "x", DLC_F32, 1, DIMS(SIZE(4)));
    for (int i = 1; i <= depth; i++) inner[i] = inner[i - 1] ? dlc_subgraph(inner[i - 1]) : NULL;
    dlc_value result = dlc_neg(x);
    for (int i = depth; i > 0 && inner[i]; i--) {
        dlc_output(inner[i], "y", i == depth ? dlc_neg(x) : result);
        dlc_graph *otherwise = dlc_subgraph(inner[i - 1]);
        dlc_output(otherwise, "y", dlc_abs(x));
        dlc_if(c, 0, NULL, inner[i], otherwise, 1, &result);
    }
    free(inner);
    if (dlc_graph_status(*out) == DLC_OK) dlc_output(*out, "y", result);
    return dlc_graph_status(*out);
}

static void test_nested_graphs(void **state) {
    (void)state;
    int64_t bytes[2];
    dlc_graph *g;
    dlc_context *context = open_limited(NULL, NULL);
    OK(context, build_nested(context, 64, &g));
    run_nested(context, g);
    assert_int_equal(build_nested(context, 65, &g), DLC_BUDGET_EXCEEDED);
    assert_non_null(strstr(dlc_graph_message(g), "limits.nesting = 64"));
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    for (int i = 0; i < 2; i++) { /* memory grows as the graph does, not as its square */
        counter c;
        dlc_allocator allocator = counting(&c);
        context = open_limited(&(dlc_limits){.nesting = 1000}, &allocator);
        int64_t before = c.bytes;
        OK(context, build_nested(context, 100 << i, &g));
        bytes[i] = c.bytes - before;
        run_nested(context, g);
        dlc_context_destroy(context);
        assert_int_equal(c.blocks, 0);
    }
    assert_true(bytes[1] < bytes[0] * 5 / 2);
}

static void test_nested_brackets(void **state) {
    (void)state;
    enum { DEPTH = 200000 };
    dlc_context *context = open_limited(NULL, NULL);
    dlc_graph *g;
    static char text[DEPTH * 4 + 100];
    const char *const opening[] = {"(", "min(1,", "-("};
    for (int kind = 0; kind < 3; kind++) {
        char *at = text + sprintf(text, "graph { input x: f32[");
        while (at < text + DEPTH * 3) at += sprintf(at, "%s", opening[kind]);
        REFUSED(context, DLC_PARSE_ERROR, dlc_graph_parse(context, text, strlen(text), &g), "nested");
    }
    dlc_context_destroy(context);
}

/* ---- memory, time, cancel */

/* (s0 + s1 + 1) * (s2 + s3 + 1) * ..., and the same product in another order: whether they are equal is not known. As a text either is
 * exponentially longer than it is as a graph of shared parts. */
static char *product_text(int factors) {
    char *text = malloc((size_t)factors * 80 + 200), *at = text + sprintf(text, "graph { ");
    for (int i = 0; i < 2 * factors; i++) at += sprintf(at, "input i%d: f32[s%d] ", i, i);
    at += sprintf(at, "input x: f32[");
    for (int i = 0; i < factors; i++) at += sprintf(at, "%s(s%d+s%d+1)", i ? "*" : "", 2 * i, 2 * i + 1);
    at += sprintf(at, "] y = reshape(x, shape=[");
    for (int i = factors - 1; i >= 0; i--) at += sprintf(at, "(s%d+1+s%d)%s", 2 * i + 1, 2 * i, i ? "*" : "");
    sprintf(at, "]) output y }");
    return text;
}

static void test_shared_dimensions(void **state) {
    (void)state;
    dlc_context *context = open_limited(&(dlc_limits){.memory = 16 << 20}, NULL);
    dlc_graph *g;
    char *text = product_text(40), *printed;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    dlc_status status = dlc_graph_print(g, &printed); /* as whole text it may be beyond all limits */
    assert_true(status == DLC_OK || status == DLC_BUDGET_EXCEEDED);
    if (status == DLC_OK) dlc_text_free(context, printed);
    dlc_graph_destroy(g);
    free(text);
    dlc_context_destroy(context);
}

/* A text whose nodes take more memory than its limit: 64 bytes for each of its own, and so much more. */
static char *long_text(int nodes) {
    char *text = malloc((size_t)nodes * 24 + 100), *at = text + sprintf(text, "graph { input x: f32[4] a0 = neg(x) ");
    for (int i = 1; i < nodes; i++) at += sprintf(at, "a%d=sin(a%d) ", i, i - 1);
    sprintf(at, "output a%d }", nodes - 1);
    return text;
}

static void test_memory_of_texts(void **state) {
    (void)state;
    counter c;
    dlc_allocator allocator = counting(&c);
    dlc_context *context = open_limited(&(dlc_limits){.memory = 1 << 16}, &allocator);
    dlc_graph *g;
    char *text = long_text(20000);
    int64_t before = c.bytes;
    dlc_status status = dlc_graph_parse(context, text, strlen(text), &g);
    if (status == DLC_OK) {
        assert_true(c.bytes - before <= (int64_t)strlen(text) * 64 + (1 << 16));
        dlc_graph_destroy(g);
    } else {
        REFUSED(context, DLC_BUDGET_EXCEEDED, status, "limits.memory");
    }
    dlc_context_destroy(context);
    free(text);
    /* each statement of some 20 bytes is folded to a constant of 8 KiB */
    char folded[1 << 14], *at = folded + sprintf(folded, "graph { c0 = constant f32[4] {1, 2, 3, 4} ");
    for (int i = 1; i <= 9; i++) at += sprintf(at, "c%d = concat(c%d, c%d, axis=0) ", i, i - 1, i - 1);
    at += sprintf(at, "a0 = neg(c9) ");
    for (int i = 1; i < 300; i++) at += sprintf(at, "a%d = add(a%d, a%d) ", i, i - 1, i - 1);
    sprintf(at, "output a299 }");
    context = open_limited(&(dlc_limits){.memory = 1 << 20}, &allocator);
    REFUSED(context, DLC_BUDGET_EXCEEDED, dlc_graph_parse(context, folded, strlen(folded), &g), "limits.memory");
    assert_true(c.bytes < 1 << 20); /* nothing of it stays */
    dlc_context_destroy(context);
    assert_int_equal(c.blocks, 0);
}

static void test_time_and_cancel(void **state) {
    (void)state;
    volatile int cancel = 1;
    dlc_graph *g;
    dlc_file *file;
    char *text = long_text(20000);
    dlc_context *context = open_limited(&(dlc_limits){.cancel = &cancel}, NULL);
    assert_int_equal(dlc_graph_create(context, &g), DLC_CANCELLED);
    REFUSED(context, DLC_CANCELLED, dlc_graph_parse(context, text, strlen(text), &g), "cancelled");
    REFUSED(context, DLC_CANCELLED, dlc_file_parse(context, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, &file),
            "cancelled");
    cancel = 0;
    OK(context, dlc_graph_create(context, &g));
    cancel = 1;
    assert_false(dlc_value_ok(dlc_input(g, "x", DLC_F32, 0, NULL)));
    assert_int_equal(dlc_graph_status(g), DLC_CANCELLED);
    dlc_graph_destroy(g);
    cancel = 0;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    free(text);
}

/* ---- schedules of a host's, which may be as foreign: one line may ask for a million copies of a loop's body */

static dlc_status bind_by(dlc_context *context, const char *text, const char *schedule, const int64_t *shape,
                          int rank) {
    dlc_graph *g;
    dlc_program *program;
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.schedule = schedule;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    dlc_status status = dlc_compile(context, g, &options, &program);
    if (status == DLC_OK) status = dlc_prepare(program, (const int64_t *[]){shape}, (int[]){rank}, 1);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    return status;
}

static char *many_sections(int count) {
    char *schedule = malloc((size_t)count * 48 + 1), *at = schedule;
    for (int i = 0; i < count; i++) at += sprintf(at, "region none%d:\nunroll a.i0\n", i);
    return schedule;
}

static void test_schedules(void **state) {
    (void)state;
    static const char exp_text[] = "graph { input x: f32[1048576] y = exp(x) output y }";
    static const char unrolled[] = "region exp:\nunroll exp.i0\n";
    const int64_t shape[1] = {1 << 20};
    volatile int cancel = 0;
    for (int t = 0; t < 2; t++) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        REFUSED(context, DLC_BUDGET_EXCEEDED, bind_by(context, exp_text, unrolled, shape, 1), "limits.memory");
        OK(context, bind_by(context, exp_text, "region exp:\nsplit exp.i0 8 -> a b mask\nunroll exp.b\n", shape, 1));
        dlc_context_destroy(context);
        options.limits.memory = 1 << 16; /* 64 bytes for each of a text are not enough for so many sections */
        context = open_context(all_targets[t], &options);
        char *schedule = many_sections(10000);
        dlc_status status = bind_by(context, exp_text, schedule, shape, 1);
        if (status != DLC_OK) REFUSED(context, DLC_BUDGET_EXCEEDED, status, "limits.memory");
        free(schedule);
        dlc_context_destroy(context);
        options.limits = (dlc_limits){.cancel = &cancel};
        context = open_context(all_targets[t], &options);
        dlc_graph *g;
        dlc_program *program;
        dlc_compile_options compiled = DLC_COMPILE_OPTIONS_INIT;
        compiled.schedule = "region exp:\nvec exp.i0\n";
        OK(context, dlc_graph_parse(context, exp_text, sizeof exp_text - 1, &g));
        cancel = 1;
        assert_int_equal(dlc_compile(context, g, &compiled, &program), DLC_CANCELLED);
        cancel = 0;
        OK(context, dlc_compile(context, g, &compiled, &program));
        cancel = 1; /* binding reads a section of the text */
        assert_int_equal(dlc_prepare(program, (const int64_t *[]){shape}, (int[]){1}, 1), DLC_CANCELLED);
        cancel = 0;
        dlc_program_destroy(program);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
    }
}

/* Storage on the stack is little: runs find their way on small ones. */
static void test_schedule_of_stacks(void **state) {
    (void)state;
    static const char text[] =
        "graph { input x: f32[4, n] a = exp(x) b = reduce_sum(a, axes=[1], keep=true) y = div(a, b) output y }";
    static const char schedule[] = "region exp_reduce_sum_div:\npar div.i0\n"
                                   "at broadcast div.i0 ; at reduce_sum div.i0 ; at exp div.i0\nstore exp stack\n";
    dlc_context *context = open_limited(NULL, NULL);
    OK(context, bind_by(context, text, schedule, (const int64_t[]){4, 1024}, 2));
    REFUSED(context, DLC_INVALID_ARGUMENT, bind_by(context, text, schedule, (const int64_t[]){4, 8192}, 2),
            "bytes of stack");
    dlc_context_destroy(context);
}

/* ---- graphs of equal hash */

/* y = x[start ..] c + d of ten elements, where d is so large or c so small that y is d. */
static void run_scaled(dlc_context *context, int64_t size, int64_t start, const char *c, const char *d,
                       double expected) {
    char text[512];
    dlc_graph *graph;
    dlc_program *program;
    double *x = calloc((size_t)size, sizeof *x);
    assert_non_null(x);
    x[start] = 1;
    DLTensor input = {x, {kDLCPU, 0}, 1, {kDLFloat, 64, 1}, &size, NULL, 0};
    dlc_output_slot slot = {0};
    snprintf(
        text, sizeof text,
        "graph { input x: f64[%lld] c = constant f64[] {\"%s\"} d = constant f64[] {\"%s\"} s = slice(x, start=[%lld], "
        "stop=[%lld]) p = mul(s, c) y = add(p, d) output y }",
        (long long)size, c, d, (long long)start, (long long)start + 10);
    OK(context, dlc_graph_parse(context, text, strlen(text), &graph));
    OK(context, dlc_compile(context, graph, NULL, &program));
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&input}, 1, &slot, 1));
    for (int i = 0; i < 10; i++)
        if (((const double *)slot.managed->dl_tensor.data)[i] != expected) failed("element %d differs", i);
    slot.managed->deleter(slot.managed);
    dlc_program_destroy(program), dlc_graph_destroy(graph);
    free(x);
}

/* The constants were chosen so that the kernels of both graphs have the same MurmurHash: that of one, run in place of the other, would read
 * elsewhere, and beyond the end of x. */
static void test_kernels_of_equal_hash(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        dlc_context *context = open_context(t ? NULL : "interp", NULL);
        run_scaled(context, 1000, 5, "1818e3416ee68fa0", "0000000000801c40", 7.125);
        run_scaled(context, 10000000, 9000000, "fa803adb3ddafac3", "fb3b1c510c9b8cf7", -0x1.c9b0c511c3bfbp+889);
        dlc_context_destroy(context);
    }
}

/* ---- files */

/* Two members of one archive, then the second's entry in the directory says that it lies where the first does, or a byte further. */
static void test_members_overlap(void **state) {
    (void)state;
    static unsigned char bytes[1 << 14];
    char path[] = "/tmp/dlc-hostile-XXXXXX";
    float data[100] = {1};
    tensor t;
    dlc_context *context = open_limited(NULL, NULL);
    dlc_file *file;
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    fclose(fdopen(descriptor, "rb"));
    const DLTensor *list[] = {F32(&t, data, 100), &t.dl};
    for (int compress = 0; compress < 2; compress++) {
        OK(context, dlc_file_write_npz(context, path, 2, (const char *[]){"a", "b"}, list, compress));
        FILE *from = fopen(path, "rb");
        size_t size = fread(bytes, 1, sizeof bytes, from), second = 0;
        fclose(from);
        OK(context, dlc_file_parse(context, bytes, size, &file));
        assert_int_equal(dlc_file_count(file), 2);
        dlc_file_destroy(file);
        for (size_t at = 0; at + 46 < size; at++)
            if (memcmp(bytes + at, "PK\1\2", 4) == 0) second = at;
        memset(bytes + second + 42, 0, 4); /* the offset of the member */
        REFUSED(context, DLC_PARSE_ERROR, dlc_file_parse(context, bytes, size, &file), "member 1: it shares bytes");
    }
    unlink(path);
    dlc_context_destroy(context);
}

/* ---- tensors */

static void test_interleaved_strides(void **state) {
    (void)state;
    const float in[6] = {1, 2, 3, 4, 5, 6};
    for (int i = 0; i < TARGETS; i++) {
        dlc_context *context = open_context(all_targets[i], NULL);
        dlc_graph *g;
        tensor tx, ty;
        float out[8] = {0};
        if (!context) continue;
        OK(context, dlc_graph_create(context, &g));
        dlc_output(g, "y", dlc_neg(dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(3), SIZE(2)))));
        dlc_program *program = compile(context, g);
        dlc_output_slot slot = {F32(&ty, out, 3, 2), NULL};
        const DLTensor *inputs[] = {F32(&tx, (void *)(uintptr_t)in, 3, 2)};
        ty.dl.strides = ty.strides;
        ty.strides[0] = 2, ty.strides[1] = 3; /* places 0 3, 2 5, 4 7 */
        OK(context, dlc_run(program, NULL, inputs, 1, &slot, 1));
        for (int k = 0; k < 6; k++) assert_true(out[k / 2 * 2 + k % 2 * 3] == -in[k]);
        ty.strides[0] = 1, ty.strides[1] = 2; /* 0 2, 1 3, 2 4 */
        REFUSED(context, DLC_INVALID_ARGUMENT, dlc_run(program, NULL, inputs, 1, &slot, 1), "overlap");
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* No sizes of the host's are a bug of the library's. */
static void test_huge_sizes(void **state) {
    (void)state;
    const int64_t huge = INT64_C(1) << 62;
    const char *const texts[] = {
        "graph { input a: f32[0, 4611686018427387904] r = logsumexp(a) output r }",
        "graph { input a: f32[0, 4611686018427387904] r = softmax(a, axis=1) output r }",
        "graph { input a: f32[0, 4611686018427387904] r = layer_norm(a) output r }",
        "graph { input a: f32[0, 4611686018427387904] r = cumulative_sum(a, axis=1) output r }",
        "graph { input a: f32[0, 4611686018427387904] r, i = sort(a, axis=1) output r }",
        "graph { input a: f32[0, 4611686018427387904] r = reduce_sum(a, axes=[1]) output r }",
        "graph { input a: f32[0, 4611686018427387904] r = transpose(a, permutation=[1, 0]) s = exp(r) output s }",
    };
    const char *const schedules[] = {NULL,
                                     "region reduce_sum:\nrfactor reduce_sum.k0 4611686018427387904 lanes -> p a b\n",
                                     "region reduce_sum:\nrfactor reduce_sum.k0 4611686018427387904 chunks -> p a b\n",
                                     "region reduce_sum:\nsplit reduce_sum.k0 4611686018427387904 -> a b mask\n",
                                     "region reduce_sum:\nsplit reduce_sum.k0 4611686018427387904 -> a b balanced\n",
                                     "region reduce_sum:\nsplit reduce_sum.k0 4611686018427387904 -> a b peel\n"};
    for (int i = 0; i < TARGETS; i++) {
        dlc_context *context = open_context(all_targets[i], NULL);
        if (!context) continue;
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
                dlc_graph *g;
                dlc_program *program;
                dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
                options.schedule = schedules[s];
                OK(context, dlc_graph_parse(context, texts[t], strlen(texts[t]), &g));
                dlc_status status = dlc_compile(context, g, &options, &program);
                if (status == DLC_OK) status = dlc_prepare(program, (const int64_t *[]){SHAPE(0, huge)}, (int[]){2}, 1);
                if (status != DLC_OK && status != DLC_INVALID_ARGUMENT && status != DLC_UNSUPPORTED)
                    failed("%s: %s: %s", texts[t], dlc_status_text(status), dlc_error_message(context));
                dlc_program_destroy(program);
                dlc_graph_destroy(g);
            }
        }
        dlc_context_destroy(context);
    }
}

/* Sanitizers make frames several times as large as what the library counts with. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SKIP_STACKS() skip()
#else
#define SKIP_STACKS() (void)0
#endif

/* ---- stacks: too small a one is a status. A page behind each is not mapped. */

/* everything that a host does with a graph, up to the first failure */
typedef struct errand {
    dlc_context *context;
    /* NULL: a chain of 20,000 maps */
    const char *text;
    dlc_status status;
} errand;

static dlc_graph *long_chain(dlc_context *context) {
    dlc_graph *g;
    if (dlc_graph_create(context, &g) != DLC_OK) return NULL;
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    for (int i = 0; i < 20000; i++) x = dlc_sin(x);
    dlc_output(g, "y", x);
    return g;
}

static void run_errand(void *argument) {
    errand *e = argument;
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    char *text = NULL;
    static const int64_t sizes[4] = {2, 8, 8, 8};
    e->status = DLC_OK;
    if (e->text)
        e->status = dlc_graph_parse(e->context, e->text, strlen(e->text), &g);
    else
        g = long_chain(e->context);
    if (!g) e->status = DLC_OUT_OF_MEMORY;
    if (e->status == DLC_OK) e->status = dlc_compile(e->context, g, NULL, &program);
    if (e->status == DLC_OK) {
        const int64_t *shapes[2] = {sizes, sizes};
        const int ranks[2] = {e->text ? 4 : 1, 4};
        e->status = dlc_prepare(program, shapes, ranks, dlc_program_input_count(program));
    }
    if (g && e->status == DLC_OK) e->status = dlc_graph_print(g, &text);
    dlc_text_free(e->context, text);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
}

static const char *const errands[] = {
    "graph { input a: f32[2,8,8,8] input b: f32[2,8,8,8] c = convolution(a, b) y = softmax(c, axis=1) output y }",
    "graph { input a: f32[2,8,8,8] q, r = qr(a) d, e = eigh(a) output q output d }",
    "graph { input a: f32[2,8,8,8] y = attention(a, a, a) s = sort(y, axis=3) output s }",
    "graph { input a: f32[2,8,8,n] y = layer_norm(a) z = cumulative_sum(y, axis=3) output z }", NULL};
enum { ERRANDS = sizeof errands / sizeof *errands };

static void *on_thread(void *argument) {
    run_errand(argument);
    return NULL;
}

static void test_small_threads(void **state) {
    (void)state;
    SKIP_STACKS();
    for (int i = 0; i < 2; i++) {
        dlc_context *context = open_context(all_targets[i], NULL);
        const int step = test_every() > 1 ? 2 : 1;
        for (int kib = 32; context && kib <= 512; kib += step * (kib < 128 ? 8 : 64)) {
            for (int k = 0; k < ERRANDS; k++) {
                errand e = {context, errands[k], DLC_OK};
                pthread_attr_t attributes;
                pthread_t id;
                pthread_attr_init(&attributes);
                pthread_attr_setstacksize(&attributes, (size_t)kib << 10);
                assert_int_equal(pthread_create(&id, &attributes, on_thread, &e), 0);
                pthread_join(id, NULL);
                pthread_attr_destroy(&attributes);
                if (e.status != DLC_OK && e.status != DLC_OUT_OF_MEMORY) failed("%s", dlc_status_text(e.status));
                if (i == 0 && errands[k] && kib >= 128) assert_int_equal(e.status, DLC_OK);
                if (kib < 48) assert_int_equal(e.status, DLC_OUT_OF_MEMORY);
            }
        }
        dlc_context_destroy(context);
    }
}

/* Runs of what is bound, kernels' own frames included. */
typedef struct small_run {
    dlc_program *program;
    dlc_call *call;
    const DLTensor *inputs[2];
    dlc_status run, call_run;
} small_run;

static void run_bound(void *argument) {
    small_run *r = argument;
    dlc_output_slot slots[2] = {{0}};
    r->run = dlc_run(r->program, NULL, r->inputs, dlc_program_input_count(r->program), slots,
                     dlc_program_output_count(r->program));
    for (int o = 0; o < 2; o++)
        if (slots[o].managed) slots[o].managed->deleter(slots[o].managed);
    r->call_run = dlc_call_run(r->call, NULL);
}
static void *run_bound_there(void *argument) {
    run_bound(argument);
    return NULL;
}

static void on_small_threads(small_run *r) {
    for (int kib = 16; kib <= 96; kib += 8) {
        pthread_attr_t attributes;
        pthread_t id;
        pthread_attr_init(&attributes);
        assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)kib << 10), 0);
        assert_int_equal(pthread_create(&id, &attributes, run_bound_there, r), 0);
        pthread_join(id, NULL);
        pthread_attr_destroy(&attributes);
        const dlc_status both[2] = {r->run, r->call_run};
        for (int i = 0; i < 2; i++) {
            if (both[i] != DLC_OK && both[i] != DLC_OUT_OF_MEMORY) failed("%s", dlc_status_text(both[i]));
            if (kib <= 32) assert_int_equal(both[i], DLC_OUT_OF_MEMORY);
            if (kib >= 48) assert_int_equal(both[i], DLC_OK);
        }
    }
}

static void test_runs_on_small_threads(void **state) {
    (void)state;
    SKIP_STACKS();
    for (int i = 0; i < 2; i++) {
        dlc_context *context = open_context(all_targets[i], NULL);
        for (int k = 0; context && errands[k]; k++) {
            static float x[2 * 8 * 8 * 8], out[2][2 * 8 * 8 * 8];
            tensor in[2], results[2];
            small_run r = {.run = DLC_INTERNAL};
            dlc_graph *g;
            DLTensor *outputs[2];
            const int64_t *shapes[2];
            int ranks[2] = {4, 4};
            fill(x, sizeof x / sizeof *x, 1);
            for (int t = 0; t < 2; t++) {
                r.inputs[t] = F32(&in[t], x, 2, 8, 8, 8);
                shapes[t] = in[t].shape;
            }
            OK(context, dlc_graph_parse(context, errands[k], strlen(errands[k]), &g));
            r.program = compile(context, g);
            const int count = dlc_program_output_count(r.program), given = dlc_program_input_count(r.program);
            for (int o = 0; o < count; o++) {
                int rank;
                int64_t shape[DLC_MAX_RANK];
                OK(context, dlc_output_shape(r.program, shapes, ranks, given, o, DLC_MAX_RANK, shape, &rank));
                outputs[o] = &make_tensor(&results[o], DLC_F32, out[o], rank, shape)->dl;
            }
            OK(context, dlc_call_create(r.program, r.inputs, given, outputs, count, &r.call));
            on_small_threads(&r);
            dlc_call_destroy(r.call);
            dlc_program_destroy(r.program);
        }
        dlc_context_destroy(context);
    }
}

/* A stack that the host switches to, of which the library learns by an option alone. */
static struct {
    ucontext_t outside, inside;
    errand errand;
} coroutine;

static void enter_coroutine(void) {
    run_errand(&coroutine.errand);
}

static dlc_status run_on_coroutine(dlc_context *context, const char *text, size_t size) {
    const size_t page = 4096;
    char *stack = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED && mprotect(stack, page, PROT_NONE) == 0);
    coroutine.errand = (errand){context, text, DLC_INTERNAL};
    getcontext(&coroutine.inside);
    coroutine.inside.uc_stack = (stack_t){.ss_sp = stack + page, .ss_size = size};
    coroutine.inside.uc_link = &coroutine.outside;
    makecontext(&coroutine.inside, enter_coroutine, 0);
    assert_int_equal(swapcontext(&coroutine.outside, &coroutine.inside), 0);
    munmap(stack, size + page);
    return coroutine.errand.status;
}

static void check_coroutine(const char *target, int kib, bool told) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.coroutine_stack = told ? ((size_t)kib << 10) - 8192 : 0;
    dlc_context *context = open_context(target, &options);
    if (!context) return;
    for (int k = 0; k < ERRANDS - 1; k++) {
        const dlc_status status = run_on_coroutine(context, errands[k], (size_t)kib << 10);
        if (status != DLC_OK && status != DLC_OUT_OF_MEMORY) failed("%s", dlc_status_text(status));
        if (told && kib >= (strcmp(target, "cpu") == 0 ? 4096 : 256)) assert_int_equal(status, DLC_OK);
        if (!told) assert_int_equal(status, DLC_OUT_OF_MEMORY); /* binding wants more than it may count on */
    }
    dlc_context_destroy(context);
}

static void test_coroutines(void **state) {
    (void)state;
    SKIP_STACKS();
    for (int kib = 64; kib <= 4096; kib *= 2)
        for (int told = 0; told < 2; told++)
            for (int i = 0; i < 2; i++) check_coroutine(all_targets[i], kib, told);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_are_checked),  cmocka_unit_test(test_nested_texts),
        cmocka_unit_test(test_nested_graphs),       cmocka_unit_test(test_nested_brackets),
        cmocka_unit_test(test_shared_dimensions),   cmocka_unit_test(test_memory_of_texts),
        cmocka_unit_test(test_time_and_cancel),     cmocka_unit_test(test_members_overlap),
        cmocka_unit_test(test_interleaved_strides), cmocka_unit_test(test_huge_sizes),
        cmocka_unit_test(test_schedules),           cmocka_unit_test(test_schedule_of_stacks),
        cmocka_unit_test(test_small_threads),       cmocka_unit_test(test_runs_on_small_threads),
        cmocka_unit_test(test_coroutines),          cmocka_unit_test(test_kernels_of_equal_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
