/* Weights in files beside the model: where they are found, that nothing outside of the folder is opened, and that files which do not fit are
 * told by name. Models and files are written here; results against sums of the numbers written. */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* External data of an initializer of f32[3]; text NULL: no such entry. */
typedef struct weight {
    const char *location, *offset, *length;
} weight;

static char folder[] = "/tmp/dlc-external-XXXXXX";
static dlc_context *context;
static counter memory;

static const char *in(const char *name) {
    static char path[4][512];
    static int next;
    char *at = path[next = (next + 1) % 4];
    snprintf(at, sizeof path[0], "%s/%s", folder, name);
    return at;
}

static void write_file(const char *name, const void *bytes, size_t size) {
    make_file(in(name), bytes, size);
}

static void add_entry(message *w, const char *key, const char *value, size_t size) {
    message entry = {0};
    add_text(&entry, 1, key);
    add_data(&entry, 2, value, size);
    add_message(w, 13, entry);
}

/* y[n] = x[n] + the weights, one after the other. `extra` (NULL: none): raw_data of the first weight besides. */
static message chain_model(const weight *weights, int count, const char *extra) {
    static const int64_t dims[] = {3};
    message g = {0};
    add_text(&g, 2, "main");
    for (int i = 0; i < count; i++) {
        char from[16], to[16], name[16];
        snprintf(from, sizeof from, i ? "t%d" : "x", i);
        snprintf(to, sizeof to, i == count - 1 ? "y" : "t%d", i + 1);
        snprintf(name, sizeof name, "w%d", i);
        message node = {0}, w = tensor_of(name, 1, 1, dims);
        add_text(&node, 1, from), add_text(&node, 1, name), add_text(&node, 2, to), add_text(&node, 4, "Add");
        add_message(&g, 1, node);
        if (weights[i].location) add_entry(&w, "location", weights[i].location, strlen(weights[i].location));
        if (weights[i].offset) add_entry(&w, "offset", weights[i].offset, strlen(weights[i].offset));
        if (weights[i].length) add_entry(&w, "length", weights[i].length, strlen(weights[i].length));
        if (extra && i == 0) add_data(&w, 9, extra, 12);
        add_int(&w, 14, 1);
        add_message(&g, 5, w);
    }
    add_message(&g, 11, value_of("x", 1, "n"));
    add_message(&g, 12, value_of("y", 1, "n"));
    return model_of(g);
}

static void write_model(const char *name, const weight *weights, int count) {
    message m = chain_model(weights, count, NULL);
    write_file(name, m.data, m.size);
    free(m.data);
}

/* Opens the model, makes a program, closes the model, and runs: y is `expected`. */
static void run_model(const char *path, const dlc_onnx_options *options, const double *expected) {
    dlc_onnx_model *model;
    dlc_graph *g;
    dlc_onnx_graph_options graph_options = DLC_ONNX_GRAPH_OPTIONS_INIT;
    const dlc_dim n = {3, "n"};
    graph_options.dims = &n, graph_options.dim_count = 1;
    OK(context, dlc_onnx_open(context, path, options, &model));
    OK(context, dlc_onnx_graph(model, &graph_options, &g));
    dlc_onnx_destroy(model);
    dlc_program *program = compile(context, g);
    float x[] = {100, 200, 300}, y[3];
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, y, 3), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 3)}, 1, &slot, 1));
    CLOSE(y, expected, 3, 1e-6);
    dlc_program_destroy(program);
}

/* The model with that weight cannot be opened, with words in the error. */
static void refused(weight w, dlc_status status, const char *words) {
    dlc_onnx_model *model;
    write_model("refused.onnx", &w, 1);
    const dlc_status got = dlc_onnx_open(context, in("refused.onnx"), NULL, &model);
    if (got != status || !strstr(dlc_error_message(context), words))
        fail_msg("%s: expected %s with \"%s\", got %s: %s", w.location, dlc_status_text(status), words,
                 dlc_status_text(got), dlc_error_message(context));
    assert_null(model);
}

static int set_up(void **state) {
    static const float numbers[] = {1, 2, 3, 4, 5, 6};
    (void)state;
    if (!mkdtemp(folder) || !(context = open_counted("interp", &memory))) return -1;
    write_file("weights.bin", numbers, sizeof numbers);
    if (mkdir(in("sub"), 0700) || mkdir(in("sub/deep"), 0700) || mkdir(in("elsewhere"), 0700)) return -1;
    write_file("sub/deep/three.bin", numbers + 3, 12);
    write_file("elsewhere/weights.bin", numbers + 3, 12);
    write_file("odd.bin", "????\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f", 16);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    char command[128];
    dlc_context_destroy(context);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) || memory.blocks;
}

/* One file for several tensors, files in folders, all ways to give a part of one; mapped and read; the model gone before the run. */
static void test_found(void **state) {
    (void)state;
    static const weight weights[] = {{"weights.bin", NULL, "12"},          {"weights.bin", "12", NULL},
                                     {"./weights.bin", "12", "12"},        {"sub/deep/three.bin", NULL, NULL},
                                     {"sub//deep/./three.bin", "0", "12"}, {"odd.bin", "4", "12"}};
    static const double expected[] = {100 + 1 + 4 * 4 + 1, 200 + 2 + 4 * 5 + 1, 300 + 3 + 4 * 6 + 1};
    dlc_onnx_options options = DLC_ONNX_OPTIONS_INIT;
    write_model("found.onnx", weights, 6);
    run_model(in("found.onnx"), NULL, expected);
    options.read = true;
    run_model(in("found.onnx"), &options, expected);
    assert_int_equal(chdir(folder), 0);
    run_model("found.onnx", NULL, expected);
}

static void test_folder(void **state) {
    (void)state;
    static const weight w = {"weights.bin", NULL, NULL};
    dlc_onnx_options options = DLC_ONNX_OPTIONS_INIT;
    dlc_onnx_model *model;
    write_model("folder.onnx", &w, 1);
    options.folder = in("elsewhere");
    run_model(in("folder.onnx"), &options, (double[]){104, 205, 306});
    options.folder = in("nowhere");
    assert_int_equal(dlc_onnx_open(context, in("folder.onnx"), &options, &model), DLC_NOT_FOUND);
    assert_non_null(strstr(dlc_error_message(context), "nowhere/weights.bin: No such file"));
}

/* A file for each tensor, as some writers do; and what was opened is closed. */
static void test_many(void **state) {
    (void)state;
    enum { MANY = 300 };
    static char names[MANY][16];
    static weight weights[MANY];
    static const float ones[] = {1, 2, 3};
    const int before = open("/dev/null", O_RDONLY);
    close(before);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "many%d", i);
        weights[i] = (weight){names[i], NULL, NULL};
        write_file(names[i], ones, sizeof ones);
    }
    write_model("many.onnx", weights, MANY);
    run_model(in("many.onnx"), NULL, (double[]){100 + MANY, 200 + 2 * MANY, 300 + 3 * MANY});
    const int after = open("/dev/null", O_RDONLY);
    close(after);
    assert_int_equal(before, after);
}

static void test_outside(void **state) {
    (void)state;
    static const char *const locations[] = {
        "/etc/hostname", "../weights.bin",      "sub/../weights.bin", "sub/..", "..",
        "c:weights.bin", "sub\\deep\\three.bin"};
    for (size_t i = 0; i < sizeof locations / sizeof *locations; i++)
        refused((weight){locations[i], NULL, NULL}, DLC_PARSE_ERROR, "is no relative path beneath the model's folder");
    assert_int_equal(symlink(in("weights.bin"), in("link.bin")), 0);
    assert_int_equal(symlink("weights.bin", in("near.bin")), 0);
    assert_int_equal(symlink("/etc", in("outside")), 0);
    assert_int_equal(symlink("sub", in("linked")), 0);
    refused((weight){"link.bin", NULL, NULL}, DLC_NOT_FOUND, "a symbolic link");
    refused((weight){"near.bin", NULL, NULL}, DLC_NOT_FOUND, "a symbolic link");
    refused((weight){"outside/hostname", NULL, NULL}, DLC_NOT_FOUND, "a symbolic link");
    refused((weight){"linked/deep/three.bin", NULL, NULL}, DLC_NOT_FOUND, "a symbolic link");
    refused((weight){"weights.bin/x", NULL, NULL}, DLC_NOT_FOUND, "in place of a folder");
}

/* What is no file of data; a pipe without a writer must not stop the host. */
static void test_no_file(void **state) {
    (void)state;
    assert_int_equal(mkfifo(in("pipe"), 0600), 0);
    refused((weight){"pipe", NULL, NULL}, DLC_NOT_FOUND, "no regular file");
    refused((weight){"sub", NULL, NULL}, DLC_NOT_FOUND, "no regular file");
    refused((weight){"sub/", NULL, NULL}, DLC_NOT_FOUND, "no regular file");
    refused((weight){".", NULL, NULL}, DLC_NOT_FOUND, "no regular file");
    refused((weight){"missing.bin", NULL, NULL}, DLC_NOT_FOUND, "missing.bin: No such file");
    refused((weight){NULL, "0", NULL}, DLC_PARSE_ERROR, "\"w0\": its external data have no location");
    refused((weight){"", NULL, NULL}, DLC_PARSE_ERROR, "have no location");
}

static void test_sizes(void **state) {
    (void)state;
    static const weight cases[] = {{"weights.bin", "16", "12"},
                                   {"weights.bin", "24", NULL},
                                   {"weights.bin", "9223372036854775807", "12"},
                                   {"weights.bin", "0", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(cases[i], DLC_PARSE_ERROR, "\"weights.bin\" of 24 bytes has ");
    write_file("empty.bin", "", 0);
    refused((weight){"empty.bin", NULL, "12"}, DLC_PARSE_ERROR, "\"empty.bin\" of 0 bytes has 0");
    refused((weight){"weights.bin", NULL, "8"}, DLC_PARSE_ERROR, "external data of 8 bytes, but float[3] takes 12");
    refused((weight){"weights.bin", "9223372036854775808", "12"}, DLC_PARSE_ERROR, "is no number");
}

/* From memory there is no folder; data cannot be in two places. */
static void test_refused(void **state) {
    (void)state;
    static const weight w = {"weights.bin", NULL, "12"};
    dlc_onnx_model *model;
    dlc_graph *g;
    message m = chain_model(&w, 1, NULL);
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &model));
    assert_int_equal(dlc_onnx_graph(model, NULL, &g), DLC_UNSUPPORTED);
    assert_non_null(strstr(dlc_error_message(context), "\"w0\" has external data, which dlc_onnx_open reads"));
    dlc_onnx_destroy(model);
    free(m.data);
    m = chain_model(&w, 1, "0123456789ab");
    assert_int_equal(dlc_onnx_parse(context, m.data, m.size, NULL, &model), DLC_PARSE_ERROR);
    assert_non_null(strstr(dlc_error_message(context), "external data and raw_data"));
    free(m.data);
}

/* Each allocation refused in turn: an error, nothing lost, no descriptor left. */
static void test_refused_memory(void **state) {
    (void)state;
    static const weight weights[] = {{"weights.bin", NULL, "12"}, {"sub/deep/three.bin", NULL, NULL}};
    dlc_onnx_options options = DLC_ONNX_OPTIONS_INIT;
    const int before = open("/dev/null", O_RDONLY);
    close(before);
    write_model("refusing.onnx", weights, 2);
    for (int read = 0; read < 2; read++) {
        options.read = read != 0;
        const int64_t blocks = memory.blocks;
        dlc_onnx_model *model = NULL;
        dlc_status status = DLC_OUT_OF_MEMORY;
        int refusals = 0;
        for (; status == DLC_OUT_OF_MEMORY; refusals++) {
            memory.left = refusals;
            status = dlc_onnx_open(context, in("refusing.onnx"), &options, &model);
            memory.left = -1;
            if (status == DLC_OUT_OF_MEMORY) assert_null(model);
        }
        OK(context, status);
        assert_true(refusals > 2);
        dlc_onnx_destroy(model);
        assert_int_equal(memory.blocks, blocks);
    }
    const int after = open("/dev/null", O_RDONLY);
    close(after);
    assert_int_equal(before, after);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found),   cmocka_unit_test(test_folder),
                                       cmocka_unit_test(test_many),    cmocka_unit_test(test_outside),
                                       cmocka_unit_test(test_no_file), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_refused_memory)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
