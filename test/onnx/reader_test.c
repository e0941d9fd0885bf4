/* The reader of ONNX files: what the format allows is read, what it forbids is told with place and reason, and no bytes do harm. Models are
 * written field by field (encode.h); whole files of others are compared with ONNX's own reader by oracle_test.sh, for which this program,
 * called with files, prints them. */
#include "counting.h"
#include "graph/onnx/model.h"
#include "onnx/encode.h"
#include "onnx/model_print.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* Reads the message as a model, or as a tensor. */
typedef struct reading {
    lib_scope scope;
    lib_arena arena;
    const onnx_model *model;
    const onnx_tensor *tensor;
} reading;

static dlc_status read_bytes(reading *r, const dlc_allocator *allocator, const void *data, size_t size, bool tensor) {
    memset(r, 0, sizeof *r);
    lib_arena_init(&r->arena, allocator, &r->scope);
    if (!LIB_ENTER(&r->scope)) return r->scope.error.status;
    const onnx_bytes bytes = {data, size};
    if (tensor)
        r->tensor = onnx_tensor_read(&r->arena, bytes);
    else
        r->model = onnx_model_read(&r->arena, bytes, NULL);
    return DLC_OK;
}

/* The message, which is freed, is refused with that status and with words in its error. */
static void refused(message m, bool tensor, dlc_status status, const char *words) {
    reading r;
    const dlc_status got = read_bytes(&r, &lib_libc_allocator, m.data, m.size, tensor);
    if (got != status || !strstr(r.scope.error.message, words))
        fail_msg("expected %s with \"%s\", got %s: %s", lib_status_text(status), words, lib_status_text(got),
                 r.scope.error.message);
    lib_arena_free(&r.arena);
    free(m.data);
}

static void accepted(reading *r, message m, bool tensor) {
    if (read_bytes(r, &lib_libc_allocator, m.data, m.size, tensor) != DLC_OK) fail_msg("%s", r->scope.error.message);
}

static void done(reading *r, message m) {
    lib_arena_free(&r->arena);
    free(m.data);
}

/* A model with one of everything that is checked: attributes of each kind, a graph inside, sparse and external data, functions. */
static message full_model(void) {
    static const int64_t dims[] = {2, 3}, two[] = {2}, places[] = {1, 4};
    static const float numbers[6] = {1, 2, 3, 4, 5, 6};
    message node = node_of("If", "x", "y"), a = {0}, inner = node_of("Relu", "x", "y"), sparse = {0}, external = {0},
            entry = {0};
    message values = tensor_of("s", 1, 1, two), indices = tensor_of(NULL, 7, 1, two), w = tensor_of("w", 1, 2, dims);
    add_text(&node, 3, "/If_3");
    add_text(&a, 1, "then_branch");
    add_message(&a, 6, graph_of(inner));
    add_int(&a, 20, 5);
    add_message(&node, 5, a);
    a = (message){0};
    add_text(&a, 1, "axes");
    add_data(&a, 8, "\x01\x02\x7f", 3);
    add_int(&a, 8, -1);
    add_int(&a, 20, 7);
    add_message(&node, 5, a);
    message graph = graph_of(node);
    add_data(&w, 4, numbers, sizeof numbers);
    add_message(&graph, 5, w);
    add_data(&values, 9, numbers, 8);
    add_data(&indices, 9, places, sizeof places);
    add_message(&sparse, 1, values);
    add_message(&sparse, 2, indices);
    add_data(&sparse, 3, "\x02\x03", 2);
    add_message(&graph, 15, sparse);
    external = tensor_of("e", 1, 2, dims);
    add_text(&entry, 1, "location");
    add_text(&entry, 2, "weights.bin");
    add_message(&external, 13, entry);
    entry = (message){0};
    add_text(&entry, 1, "offset");
    add_text(&entry, 2, "4096");
    add_message(&external, 13, entry);
    add_int(&external, 14, 1);
    add_message(&graph, 5, external);
    message m = model_of(graph), function = {0};
    add_text(&function, 1, "Twice");
    add_text(&function, 10, "local");
    add_message(&function, 7, node_of("Add", "a", "b"));
    add_message(&m, 25, function);
    return m;
}

static void test_full_model(void **state) {
    (void)state;
    reading r;
    message m = full_model();
    accepted(&r, m, false);
    const onnx_graph *g = r.model->graph;
    assert_int_equal(r.model->ir_version, 8);
    assert_int_equal(r.model->opsets.data[0].version, 17);
    assert_true(onnx_is(r.model->functions.data[0].nodes.data[0].operator, "Add"));
    assert_int_equal(g->nodes.count, 1);
    const onnx_node *node = &g->nodes.data[0];
    assert_true(onnx_is(node->name, "/If_3"));
    assert_true(onnx_is(node->attributes.data[0].g->nodes.data[0].operator, "Relu"));
    const onnx_int64s axes = node->attributes.data[1].ints;
    const int64_t expected[] = {1, 2, 127, -1}; /* packed, then one by one */
    assert_int_equal(axes.count, 4);
    assert_memory_equal(axes.data, expected, sizeof expected);
    const onnx_data w = onnx_tensor_data(&r.arena, &g->initializers.data[0]);
    assert_int_equal(w.count, 6);
    assert_memory_equal(w.bytes.data, ((float[]){1, 2, 3, 4, 5, 6}), w.bytes.size);
    const onnx_data dense = onnx_tensor_data(&r.arena, g->sparse_initializers.data[0].dense);
    assert_int_equal(dense.count, 6);
    assert_memory_equal(dense.bytes.data, ((float[]){0, 1, 0, 0, 2, 0}), dense.bytes.size);
    const onnx_external e = onnx_external_of(&r.arena, &g->initializers.data[1]);
    assert_true(onnx_is(e.location, "weights.bin"));
    assert_int_equal(e.offset, 4096);
    assert_int_equal(e.length, -1);
    assert_string_equal(onnx_shown(&r.arena, (onnx_bytes){"a\0\xff\"", 4}), "\"a\\x00\\xff\\\"\"");
    done(&r, m);
}

/* What the specification of the wire format lets writers do. */
static void test_liberties(void **state) {
    (void)state;
    reading r;
    message m = model_of(graph_of(node_of("Relu", "x", "y"))), second = {0}, node = node_of("Abs", "y", "z");
    add_message(&second, 1, node);
    add_message(&m, 7, second);   /* a singular message again: merged */
    add_int(&m, 1, 7);            /* a singular number again: the last one counts */
    add_text(&m, 999, "unknown"); /* fields of later versions are skipped */
    add_int(&m, 1000, -1);
    add_float(&m, 1001, 1);
    add_tag(&m, 1002, 1), add_bytes(&m, "12345678", 8);
    accepted(&r, m, false);
    assert_int_equal(r.model->ir_version, 7);
    assert_int_equal(r.model->graph->nodes.count, 2);
    assert_true(onnx_is(r.model->graph->nodes.data[1].operator, "Abs"));
    assert_true(onnx_is(r.model->graph->name, "main"));
    done(&r, m);
}

/* The last member of a group counts. */
static void test_oneof(void **state) {
    (void)state;
    reading r;
    message dim = {0}, shape = {0}, tensor = {0}, type = {0}, value = {0}, graph = graph_of(node_of("Relu", "x", "y"));
    add_int(&dim, 1, 5);
    add_text(&dim, 2, "batch");
    add_message(&shape, 1, dim);
    add_message(&shape, 1, (message){0});
    add_message(&tensor, 2, shape);
    add_message(&type, 1, tensor);
    add_text(&value, 1, "v");
    add_message(&value, 2, type);
    add_message(&graph, 13, value);
    message m = model_of(graph);
    accepted(&r, m, false);
    const onnx_type *got = r.model->graph->values.data[0].type;
    assert_int_equal(got->which, ONNX_TYPE_TENSOR);
    assert_int_equal(got->tensor->shape->dims.data[0].which, 2);
    assert_true(onnx_is(got->tensor->shape->dims.data[0].parameter, "batch"));
    assert_int_equal(got->tensor->shape->dims.data[1].which, 0);
    done(&r, m);
}

static void test_wire_mistakes(void **state) {
    (void)state;
    message m = {0};
    refused(m, false, DLC_PARSE_ERROR, "no ir_version");
    add_tag(&m, 0, 0), add_varint(&m, 1);
    refused(m, false, DLC_PARSE_ERROR, "byte 0, in ModelProto: 0 is no field number: the file begins as none");
    m = (message){0};
    add_tag(&m, 5, 3);
    refused(m, false, DLC_PARSE_ERROR, "wire type 3, which ONNX does not use: the file begins as none");
    m = (message){0};
    add_int(&m, 1, 8), add_int(&m, 7, 1);
    refused(m, false, DLC_PARSE_ERROR,
            "byte 2, in ModelProto: field graph is a varint in place of bytes with a length");
    m = (message){0};
    add_tag(&m, 7, 2), add_varint(&m, UINT64_MAX);
    refused(m, false, DLC_PARSE_ERROR, "wants 18446744073709551615 bytes, of which 0 are left");
    m = (message){0};
    add_tag(&m, 1, 0), add_bytes(&m, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10);
    refused(m, false, DLC_PARSE_ERROR, "more than 64 bits");
    m = (message){0};
    add_tag(&m, 1, 0), add_bytes(&m, "\xff", 1);
    refused(m, false, DLC_PARSE_ERROR, "ends in the midst of a number");
    m = tensor_of("t", 1, 0, NULL);
    add_data(&m, 4, "12345", 5);
    refused(m, true, DLC_PARSE_ERROR, "field float_data has 5 bytes of numbers of 4 bytes");
    /* Where: the path of fields. */
    message node = node_of("Relu", "x", "y"), a = {0};
    add_text(&a, 1, "alpha");
    add_int(&a, 2, 1);
    add_message(&node, 5, a);
    refused(model_of(graph_of(node)), false, DLC_PARSE_ERROR,
            "in AttributeProto graph.node[0].attribute[0]: field f is a varint in place of 4 bytes");
}

static void test_model_mistakes(void **state) {
    (void)state;
    message m = {0};
    add_int(&m, 1, 14);
    refused(m, false, DLC_UNSUPPORTED, "IR version 14; libdlc reads 3 to 13");
    m = (message){0}, add_int(&m, 1, 8);
    refused(m, false, DLC_PARSE_ERROR, "no graph");
    m = (message){0}, add_int(&m, 1, 8), add_message(&m, 7, (message){0});
    refused(m, false, DLC_PARSE_ERROR, "opset_import");
    message node = {0};
    add_text(&node, 1, "x");
    refused(model_of(graph_of(node)), false, DLC_PARSE_ERROR, "graph \"main\" > node 0 (\"\"): a node without op_type");
    node = node_of("Relu", "x", "y");
    message a = {0};
    add_text(&a, 1, "alpha");
    add_message(&node, 5, a);
    refused(model_of(graph_of(node)), false, DLC_PARSE_ERROR,
            "node 0 (\"Relu\"), attribute \"alpha\": it has neither a type nor a value");
    node = node_of("Relu", "x", "y"), a = (message){0};
    add_text(&a, 1, "body"), add_int(&a, 20, 5);
    add_message(&node, 5, a);
    refused(model_of(graph_of(node)), false, DLC_PARSE_ERROR, "attribute \"body\": it has no value of its type");
    char *name = calloc(1, ONNX_NAME_MAX + 2);
    memset(name, 'n', ONNX_NAME_MAX + 1);
    refused(model_of(graph_of(node_of("Relu", name, "y"))), false, DLC_BUDGET_EXCEEDED, "a name of 65537 bytes");
    m = full_model();
    message function = {0};
    add_text(&function, 1, "Twice");
    add_text(&function, 10, "local");
    add_message(&m, 25, function);
    refused(m, false, DLC_PARSE_ERROR, "two functions are called \"Twice\"");
    m = model_of(graph_of(node_of("Relu", "x", "y")));
    for (int i = 0; i < ONNX_OPSETS_MAX; i++) {
        message opset = {0};
        add_int(&opset, 2, 18);
        add_message(&m, 8, opset);
    }
    refused(m, false, DLC_BUDGET_EXCEEDED, "more than 1024 versions of operators");
    free(name);
}

static void test_tensor_mistakes(void **state) {
    (void)state;
    static const struct {
        int type, rank;
        int64_t dims[3];
        unsigned field;
        size_t bytes;
        const char *words;
    } cases[] = {
        {0, 1, {2}, 9, 8, "element type 0"},
        {27, 1, {2}, 9, 8, "element type 27"},
        {1, 1, {-2}, 9, 8, "dimensions [-2] are negative"},
        {1, 3, {INT64_C(1) << 31, INT64_C(1) << 31, 4}, 9, 8, "too large"},
        {1, 1, {2}, 9, 7, "raw_data has 7 bytes, but float[2] takes 8"},
        {1, 1, {2}, 4, 4, "float_data has 1 elements, but float[2] takes 2"},
        {7, 1, {2}, 4, 8, "int64[2] has float_data, not raw_data or int64_data"},
        {8, 1, {2}, 9, 8, "string[2] has raw_data, not string_data"},
        {1, 1, {2}, 0, 0, "float[2] has no data"},
        {22, 1, {3}, 9, 3, "raw_data has 3 bytes, but int4[3] takes 2"},
        {26, 1, {5}, 9, 1, "raw_data has 1 bytes, but int2[5] takes 2"},
        {14, 1, {2}, 4, 8, "float_data has 2 elements, but complex64[2] takes 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        message t = tensor_of("t", cases[i].type, cases[i].rank, cases[i].dims);
        if (cases[i].field) add_data(&t, cases[i].field, "0123456789abcdef", cases[i].bytes);
        refused(t, true, DLC_PARSE_ERROR, cases[i].words);
    }
    message t = tensor_of("t", 1, 0, NULL), entry = {0};
    add_int(&t, 14, 1);
    refused(t, true, DLC_PARSE_ERROR, "have no location");
    t = tensor_of("t", 1, 0, NULL);
    add_int(&t, 14, 1);
    add_text(&entry, 1, "offset"), add_text(&entry, 2, "-1");
    add_message(&t, 13, entry);
    refused(t, true, DLC_PARSE_ERROR, "offset \"-1\" of its external data is no number");
}

/* Typed fields as the elements they stand for. */
static void test_typed_data(void **state) {
    (void)state;
    static const struct {
        int type;
        int64_t count;
        unsigned field;
        /* one varint of one byte each */
        const char *numbers;
        const char *bytes;
        size_t size;
    } cases[] = {
        {3, 2, 5, "\x7f\x01", "\x7f\x01", 2},
        {4, 2, 5, "\x7f\x01", "\x7f\0\x01\0", 4},
        {9, 2, 5, "\x02\x01", "\x01\x01", 2},
        {10, 1, 5, "\x3c", "\x3c\0", 2},
        {16, 1, 5, "\x3c", "\x3c\0", 2},
        {17, 2, 5, "\x38\x39", "\x38\x39", 2},
        {21, 3, 5, "\x21\x03", "\x21\x03", 2},
        {25, 5, 5, "\x1b\x02", "\x1b\x02", 2},
        {6, 1, 5, "\x05", "\x05\0\0\0", 4},
        {7, 1, 7, "\x05", "\x05\0\0\0\0\0\0\0", 8},
        {12, 2, 11, "\x05\x06", "\x05\0\0\0\x06\0\0\0", 8},
        {13, 1, 11, "\x05", "\x05\0\0\0\0\0\0\0", 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        message t = tensor_of("t", cases[i].type, 1, &cases[i].count);
        reading r;
        add_data(&t, cases[i].field, cases[i].numbers, strlen(cases[i].numbers));
        accepted(&r, t, true);
        const onnx_data data = onnx_tensor_data(&r.arena, r.tensor);
        assert_int_equal(data.count, cases[i].count);
        assert_int_equal(data.bytes.size, cases[i].size);
        assert_memory_equal(data.bytes.data, cases[i].bytes, cases[i].size);
        done(&r, t);
    }
}

/* A model with the sparse initializer s of those dimensions: 1 and 2 at these places. */
static message sparse_model(const int64_t *places, int rank, const int64_t *dims) {
    static const int64_t two[] = {2};
    static const float numbers[] = {1, 2};
    message values = tensor_of("s", 1, 1, two), indices = tensor_of(NULL, 7, 1, two), sparse = {0},
            graph = graph_of(node_of("Relu", "x", "y"));
    add_data(&values, 9, numbers, 8);
    add_data(&indices, 9, places, 16);
    add_message(&sparse, 1, values);
    add_message(&sparse, 2, indices);
    for (int d = 0; d < rank; d++) add_int(&sparse, 3, dims[d]);
    add_message(&graph, 15, sparse);
    return model_of(graph);
}

static void test_sparse_mistakes(void **state) {
    (void)state;
    static const int64_t outside[] = {1, 6}, twice[] = {4, 4}, places[] = {1, 4}, dims[] = {2, 3},
                         huge[] = {1 << 20, 1 << 20};
    static const char wrong[] = "index 1 lies outside of [2, 3] or is not above the one before";
    refused(sparse_model(outside, 2, dims), false, DLC_PARSE_ERROR, wrong);
    refused(sparse_model(twice, 2, dims), false, DLC_PARSE_ERROR, wrong);
    refused(sparse_model(places, 2, huge), false, DLC_BUDGET_EXCEEDED, "takes more than 1 GiB");
}

/* `depth` graphs inside of each other. */
static message nested(int depth) {
    message node = node_of("Relu", "x", "y");
    for (int i = 1; i < depth; i++) {
        message outer = node_of("If", "x", "y"), a = {0};
        add_text(&a, 1, "then_branch");
        add_message(&a, 6, graph_of(node));
        add_int(&a, 20, 5);
        add_message(&outer, 5, a);
        node = outer;
    }
    return model_of(graph_of(node));
}

static void test_nesting(void **state) {
    (void)state;
    reading r;
    message m = nested(ONNX_GRAPH_NESTING);
    accepted(&r, m, false);
    done(&r, m);
    refused(nested(ONNX_GRAPH_NESTING + 1), false, DLC_BUDGET_EXCEEDED, "more than 32 graphs inside of each other");
    refused(nested(5000), false, DLC_BUDGET_EXCEEDED, "more than 128 messages inside of each other");
}

/* Memory is in proportion to the file, and limited. */
static void test_memory(void **state) {
    (void)state;
    message graph = graph_of(node_of("Relu", "x", "y"));
    for (int i = 0; i < 200000; i++) add_bytes(&graph, "\x0a\x00", 2); /* nodes without anything */
    message m = model_of(graph);
    const onnx_bytes bytes = {(char *)m.data, m.size};
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    arena.limit = 16 * m.size;
    if (LIB_ENTER(&scope)) {
        onnx_model_read(&arena, bytes, NULL);
        fail_msg("the limit did not count");
    }
    assert_int_equal(scope.error.status, DLC_BUDGET_EXCEEDED);
    lib_arena_free(&arena);
    free(m.data);
}

/* Every prefix of a model, and every byte of it changed, is read or refused; memory tools see what is touched. */
static void test_every_byte(void **state) {
    (void)state;
    static const unsigned char changes[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    message m = full_model();
    reading r;
    for (size_t size = 0; size < m.size; size++) {
        unsigned char *exact = malloc(size ? size : 1); /* of that size, so that reading past it is seen */
        memcpy(exact, m.data, size);
        read_bytes(&r, &lib_libc_allocator, exact, size, false);
        lib_arena_free(&r.arena);
        free(exact);
    }
    for (size_t i = 0; i < m.size; i++)
        for (size_t k = 0; k < sizeof changes; k++) {
            const unsigned char before = m.data[i];
            m.data[i] = (unsigned char)(k < 3 ? changes[k] : before ^ changes[k]);
            read_bytes(&r, &lib_libc_allocator, m.data, m.size, false);
            lib_arena_free(&r.arena);
            m.data[i] = before;
        }
    free(m.data);
}

static void test_refused_memory(void **state) {
    (void)state;
    message m = full_model();
    int64_t refuse = 0;
    for (dlc_status status = DLC_OUT_OF_MEMORY; status != DLC_OK;) {
        counting c = {.refuse = ++refuse};
        const dlc_allocator allocator = {counting_allocate, counting_release, &c};
        reading r;
        status = read_bytes(&r, &allocator, m.data, m.size, false);
        lib_arena_free(&r.arena);
        assert_int_equal(c.outstanding, 0);
        if (status != DLC_OK) assert_int_equal(status, DLC_OUT_OF_MEMORY);
    }
    assert_true(refuse > 1);
    free(m.data);
}

static void print_contents(lib_arena *arena, const char *path) {
    onnx_bytes bytes;
    lib_text text;
    bytes.data = lib_file_read(arena, path, &bytes.size);
    const char *end = strrchr(path, '.');
    lib_text_init(&text, arena);
    if (end && !strcmp(end, ".onnx"))
        print_model(&text, onnx_model_read(arena, bytes, NULL));
    else
        print_tensor(&text, onnx_tensor_read(arena, bytes));
    fputs(text.data, stdout);
}

/* Prints a file in the canonical text of model_print.h. For a file that cannot be read, the reason is printed in place of the text. */
static void print_file(const char *path) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    printf("file %s\n", path);
    if (LIB_ENTER(&scope)) {
        print_contents(&arena, path);
    } else
        printf("%s: %s\n", lib_status_text(scope.error.status), scope.error.message);
    lib_arena_free(&arena);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_model),     cmocka_unit_test(test_liberties),
        cmocka_unit_test(test_oneof),          cmocka_unit_test(test_wire_mistakes),
        cmocka_unit_test(test_model_mistakes), cmocka_unit_test(test_tensor_mistakes),
        cmocka_unit_test(test_typed_data),     cmocka_unit_test(test_sparse_mistakes),
        cmocka_unit_test(test_nesting),        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_every_byte),     cmocka_unit_test(test_refused_memory),
    };
    for (int i = 1; i < argc; i++) print_file(argv[i]);
    return argc > 1 ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
