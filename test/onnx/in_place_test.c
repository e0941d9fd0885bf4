/* Weights of a model stay where its file has them, whatever their addresses: what the allocator gives out, what is resident of the file, and
 * results against sums in double precision. The model is written here, with names that move its weights by 0 to 7 bytes. */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>
#include <unistd.h>

enum {
    IN = 1024,
    OUT = 2048,
    ROWS = 3,
    WHOLE = IN * OUT * 4,
    OTHERS = 1 << 20 /* a context's, a plan, code, small things */
};

static float table[OUT][IN], weights[OUT][IN];
static int64_t ids[ROWS] = {99, 0, 77};
static double expected[ROWS][OUT];
static char path[64];

static int set_up(void **state) {
    (void)state;
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            table[o][i] = (float)((o * 31 + i * 7) % 23 - 11) / 16;
            weights[o][i] = (float)((o * 13 + i * 5) % 19 - 9) / 32;
        }
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++)
            for (int i = 0; i < IN; i++) expected[r][o] += (double)table[ids[r]][i] * (double)weights[o][i];
    snprintf(path, sizeof path, "/tmp/dlc-in-place-%d.onnx", (int)getpid());
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return unlink(path);
}

static void add_weight(message *g, const char *name, const void *bytes) {
    static const int64_t dims[] = {OUT, IN};
    message w = tensor_of(name, 1, 2, dims);
    add_data(&w, 9, bytes, WHOLE);
    add_message(g, 5, w);
}

static void add_node(message *g, const char *op, const char *first, const char *second, const char *result,
                     const char *flag) {
    message node = {0}, attribute = {0};
    add_text(&node, 1, first), add_text(&node, 1, second), add_text(&node, 2, result), add_text(&node, 4, op);
    if (flag) {
        add_text(&attribute, 1, flag), add_int(&attribute, 3, 1), add_int(&attribute, 20, 2);
        add_message(&node, 5, attribute);
    }
    add_message(g, 1, node);
}

/* y = table[ids] times the transposed weights. */
static void write_model(int moved) {
    message g = {0};
    char name[16];
    snprintf(name, sizeof name, "table%.*s", moved, "_______");
    add_text(&g, 2, "main");
    add_node(&g, "Gather", name, "ids", "x", NULL);
    add_node(&g, "Gemm", "x", "w", "y", "transB");
    add_weight(&g, name, table);
    add_weight(&g, "w", weights);
    add_message(&g, 11, value_of("ids", 7, "n"));
    add_message(&g, 12, port_of("y", 1, "* *"));
    message m = model_of(g);
    make_file(path, m.data, m.size);
    free(m.data);
}

/* Bytes of files that are resident. */
static int64_t resident(void) {
    char line[128];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssFile: %lld", &kib) == 1) break;
    if (file) fclose(file);
    return 1024 * (int64_t)kib;
}

static void run(dlc_context *context, dlc_program *program, const char *what) {
    tensor t;
    dlc_output_slot y = {0};
    make_tensor(&t, DLC_I64, ids, 1, SHAPE(ROWS));
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&t.dl}, 1, &y, 1));
    const float *got = y.managed->dl_tensor.data;
    for (int k = 0; k < ROWS * OUT; k++)
        if (fabs((double)got[k] - expected[k / OUT][k % OUT]) > 1e-3)
            failed("%s: element %d is %.9g, expected %.9g", what, k, (double)got[k], expected[k / OUT][k % OUT]);
    y.managed->deleter(y.managed);
}

static dlc_program *import(dlc_context *context, bool read, bool truncated) {
    dlc_onnx_options options = DLC_ONNX_OPTIONS_INIT;
    dlc_onnx_model *model;
    dlc_graph *g;
    options.read = read;
    OK(context, dlc_onnx_open(context, path, &options, &model));
    if (truncated) assert_int_equal(truncate(path, 0), 0);
    OK(context, dlc_onnx_graph(model, NULL, &g));
    dlc_onnx_destroy(model);
    return compile(context, g);
}

static void check_held(const counter *c, int64_t before, int64_t most, const char *what) {
    const int64_t held = atomic_load(&((counter *)(uintptr_t)c)->bytes) - before;
    if (held > most + OTHERS)
        failed("%s: %lld bytes are held, expected at most %lld", what, (long long)held, (long long)most);
}

/* Importing copies nothing; a run packs one weight at most, and gives its pages of the file back. Of the table, pages around the rows come,
 * which may be huge. */
static void test_in_place(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++)
        for (int moved = 0; moved < 8; moved++) {
            counter c;
            dlc_allocator allocator = counting(&c);
            dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
            options.allocator = &allocator;
            options.threads = moved % 2 + 1;
            if (strcmp(all_targets[t], "interp") == 0 && moved > 1) continue; /* it takes its time */
            dlc_context *context = open_context(all_targets[t], &options);
            if (!context) continue;
            write_model(moved);
            const int64_t before = atomic_load(&c.bytes), files = resident();
            dlc_program *program = import(context, false, false);
            if (has_host_memory(all_targets[t])) check_held(&c, before, 0, "imported");
            run(context, program, all_targets[t]);
            if (has_host_memory(all_targets[t])) check_held(&c, before, WHOLE, "run");
            const bool first = moved < 2; /* pages of the library become resident, too */
            if (strcmp(all_targets[t], "cpu") == 0 && !first && resident() - files > WHOLE)
                failed("%lld bytes of the file are resident", (long long)(resident() - files));
            dlc_program_destroy(program);
            dlc_context_destroy(context);
            assert_int_equal(atomic_load(&c.blocks), 0);
        }
}

/* Weights that are written begin at multiples of 64 bytes, whatever precedes them; and the file says the same. */
static void test_written(void **state) {
    (void)state;
    static const char *const inputs[] = {"x", "a", "an input with a longer name"};
    dlc_context *context = open_context("interp", NULL);
    for (size_t i = 0; context && i < sizeof inputs / sizeof *inputs; i++) {
        enum { MANY = 1024 };
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value y = dlc_input(g, inputs[i], DLC_F32, 1, DIMS(SIZE(MANY)));
        for (int w = 0; w < 3; w++) y = dlc_add(y, dlc_constant(g, DLC_F32, 1, SHAPE(MANY), weights[w]));
        dlc_output(g, "y", y);
        OK(context, dlc_onnx_write(context, path, g, NULL));
        dlc_graph_destroy(g);
        FILE *file = fopen(path, "rb");
        static char bytes[1 << 16];
        const size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
        if (file) fclose(file);
        for (int w = 0; w < 3; w++) {
            const char *at = memmem(bytes, size, weights[w], MANY * sizeof(float));
            if (!at || (at - bytes) % 64) failed("weight %d is at byte %lld", w, at ? (long long)(at - bytes) : -1LL);
        }
        dlc_program *program = import(context, false, false);
        static float x[MANY], got[MANY];
        tensor tx, ty;
        dlc_output_slot slot = {F32(&ty, got, MANY), NULL};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, MANY)}, 1, &slot, 1));
        for (int k = 0; k < MANY; k++) assert_true(got[k] == weights[0][k] + weights[1][k] + weights[2][k]);
        dlc_program_destroy(program);
    }
    dlc_context_destroy(context);
}

/* What `read` has put into memory does not care what becomes of the file. */
static void test_truncated(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) context = open_context("interp", NULL);
    write_model(3);
    dlc_program *program = import(context, true, true);
    run(context, program, "truncated");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* Memory refused at any time while the weights are packed and turned: a status, nothing lost, and the next run succeeds. */
static void test_refused(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_counted("cpu", &c);
    if (!context) return;
    write_model(5);
    dlc_program *program = import(context, false, false);
    dlc_status status = DLC_OUT_OF_MEMORY;
    for (int64_t calls = 0; status != DLC_OK; calls += 1 + calls / 8) {
        tensor t;
        dlc_output_slot y = {0};
        make_tensor(&t, DLC_I64, ids, 1, SHAPE(ROWS));
        atomic_store(&c.left, calls);
        status = dlc_run(program, NULL, (const DLTensor *[]){&t.dl}, 1, &y, 1);
        atomic_store(&c.left, -1);
        if (status != DLC_OK && status != DLC_OUT_OF_MEMORY) failed("%s", dlc_error_message(context));
        if (y.managed) y.managed->deleter(y.managed);
    }
    run(context, program, "after refusals");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(atomic_load(&c.blocks), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_place), cmocka_unit_test(test_written),
                                       cmocka_unit_test(test_truncated), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
