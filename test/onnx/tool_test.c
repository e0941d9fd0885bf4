/* dlc-run, the program: models that are written here, its text, its JSON object by the grammar of RFC 8259, files, statuses, mistakes; dlc-opt
 * on such models. */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/files.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/dlc-run-test-XXXXXX";
/* What the last run of the tool wrote. */
static char said[1 << 16], complained[1 << 16];

/* ---- models and files --------------------------------------------------------------------------------------------------- */

static message add_of(const char *a, const char *b, const char *sum) {
    message n = {0};
    add_text(&n, 1, a), add_text(&n, 1, b);
    add_text(&n, 2, sum);
    add_text(&n, 4, "Add");
    return n;
}

static void write_model(const char *name, message graph) {
    char path[256];
    message bytes = model_of(graph);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    make_file(path, bytes.data, bytes.size);
    free(bytes.data);
}

/* two.onnx: y/1 = x + b and -(y/1), whose name JSON has to escape; n is a size. */
static void write_two(void) {
    message g = {0};
    add_message(&g, 1, add_of("x", "b", "y/1"));
    add_message(&g, 1, node_of("Neg", "y/1", "the \"neg\\\t\x01\xff\xc3\xa9"));
    add_text(&g, 2, "main");
    add_message(&g, 11, port_of("x", 1, "n 3"));
    add_message(&g, 11, port_of("b", 1, "3"));
    add_message(&g, 12, port_of("y/1", 1, "n 3"));
    add_message(&g, 12, port_of("the \"neg\\\t\x01\xff\xc3\xa9", 1, "n 3"));
    write_model("two.onnx", g);
}

/* ONE = a + b, all declared by these sizes. */
static void write_sum(const char *name, const char *sum, const char *a, const char *b, const char *dims) {
    message g = {0};
    add_message(&g, 1, add_of(a, b, sum));
    add_text(&g, 2, "main");
    add_message(&g, 11, port_of(a, 1, dims));
    add_message(&g, 11, port_of(b, 1, dims));
    add_message(&g, 12, port_of(sum, 1, dims));
    write_model(name, g);
}

/* y = OPERATOR(x), x of an element type */
static void write_one(const char *name, const char *operator, int type, const char *dims) {
    message g = {0};
    add_message(&g, 1, node_of(operator, "x", "y"));
    add_text(&g, 2, "main");
    add_message(&g, 11, port_of("x", type, dims));
    add_message(&g, 12, port_of("y", 1, "-"));
    write_model(name, g);
}

static void make_folder(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void write_array(const char *name, const float *numbers, int64_t rows) {
    dlc_context *context;
    int64_t shape[2] = {rows, 3};
    char path[256];
    DLTensor array = {
        .data = (void *)numbers, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    OK(NULL, dlc_context_create(NULL, &context));
    OK(context, dlc_file_write_npy(context, path, &array));
    dlc_context_destroy(context);
}

/* A tensor of f32 as ONNX's test data have it. */
static void write_protobuf(const char *name, const float *numbers, int64_t rows) {
    const int64_t dims[] = {rows, 3};
    char path[256];
    message t = tensor_of("another name", 1, 2, dims);
    add_data(&t, 9, numbers, (size_t)rows * 12);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    make_file(path, t.data, t.size);
    free(t.data);
}

/* ---- the tool ----------------------------------------------------------------------------------------------------------- */

static void read_text(const char *name, char *text, size_t room) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, room - 1, file)] = 0;
    fclose(file);
}

/* Runs a tool in the folder of the models. Returns its status. */
static int run_program(const char *program, const char *arguments) {
    const char *out = getenv("OUT");
    char command[2048], here[512];
    assert_non_null(getcwd(here, sizeof here));
    if (!out) out = "build/release";
    snprintf(command, sizeof command, "cd %s && %s%s%s/bin/%s %s >said 2>complained", folder, *out == '/' ? "" : here,
             *out == '/' ? "" : "/", out, program, arguments);
    const int ended = system(command);
    read_text("said", said, sizeof said);
    read_text("complained", complained, sizeof complained);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

static int run_tool(const char *arguments) {
    return run_program("dlc-run", arguments);
}

/* It must end with that status. */
static void tool(int status, const char *arguments) {
    const int got = run_tool(arguments);
    if (got != status) fail_msg("dlc-run %s: status %d, expected %d\n%s%s", arguments, got, status, said, complained);
}

static void tool_says(int status, const char *text, const char *arguments) {
    tool(status, arguments);
    if (!strstr(said, text)) fail_msg("dlc-run %s: no \"%s\" in:\n%s%s", arguments, text, said, complained);
}

/* One line on standard error, and nothing on standard output. */
static void tool_refuses(int status, const char *text, const char *arguments) {
    tool(status, arguments);
    const char *end = strchr(complained, '\n');
    if (!strstr(complained, text) || !end || end[1] || *said)
        fail_msg("dlc-run %s: expected one line with \"%s\":\n%s%s", arguments, text, said, complained);
}

/* ---- JSON: each function returns the end of the value at `at`, or NULL if there is none ---------------------------------------------------------------- */

static const char *blank_end(const char *at) {
    return at + strspn(at, " \t\n\r");
}

static const char *json_text(const char *at) {
    if (*at++ != '"') return NULL;
    while (*at != '"') {
        if ((unsigned char)*at < 0x20) return NULL;
        if (*at++ != '\\') continue;
        if (*at == 'u') {
            if (strspn(at + 1, "0123456789abcdefABCDEF") < 4) return NULL;
            at += 5;
        } else if (!*at || !strchr("\"\\/bfnrt", *at++))
            return NULL;
    }
    return at + 1;
}

static const char *json_digits(const char *at) {
    const size_t count = strspn(at, "0123456789");
    return count ? at + count : NULL;
}

static const char *json_numeral(const char *at) {
    at += *at == '-';
    at = *at == '0' ? at + 1 : json_digits(at);
    if (at && *at == '.') at = json_digits(at + 1);
    if (at && (*at == 'e' || *at == 'E')) at = json_digits(at + 1 + (at[1] == '+' || at[1] == '-'));
    return at;
}

static const char *json_value(const char *at, int depth) {
    static const char *const word[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++)
        if (strncmp(at, word[i], strlen(word[i])) == 0) return at + strlen(word[i]);
    if (*at == '"') return json_text(at);
    if (*at != '{' && *at != '[') return json_numeral(at);
    const char end = *at == '{' ? '}' : ']';
    if (depth == 16) return NULL;
    at = blank_end(at + 1);
    if (*at == end) return at + 1;
    for (;;) {
        if (end == '}') {
            at = json_text(at);
            if (!at || *(at = blank_end(at)) != ':') return NULL;
            at = blank_end(at + 1);
        }
        at = json_value(at, depth + 1);
        if (!at) return NULL;
        at = blank_end(at);
        if (*at == end) return at + 1;
        if (*at != ',') return NULL;
        at = blank_end(at + 1);
    }
}

/* Standard output is one object, with that in it. */
static void tool_json(int status, const char *text, const char *arguments) {
    tool_says(status, text, arguments);
    const char *end = *said == '{' ? json_value(said, 0) : NULL;
    if (!end || *blank_end(end)) fail_msg("dlc-run %s: no JSON object:\n%s", arguments, said);
}

/* ---- tests -------------------------------------------------------------------------------------------------------------- */

static void test_looks(void **state) {
    (void)state;
    tool_says(0, "input x: f32[n, 3]\ninput b: f32[3]\noutput y/1: f32[n, 3]\n", "two.onnx --list");
    tool_says(0, "input a: f32[?, 2]\n", "unnamed.onnx --list");
    tool_says(0, "input a: f32, of any rank\n", "open.onnx --list");
    tool_says(0, "all operators are imported\n", "two.onnx --check");
    tool_says(1, "Soup", "soup.onnx --check");
    tool_says(0, "usage: dlc-run", "--help");
    tool_says(0, "usage: dlc-run", "two.onnx --soup -h");
}

static void test_inputs(void **state) {
    (void)state;
    tool_says(0, "output y/1: f32[2, 3] 1..6, mean 3.5, hash ", "two.onnx --dim n=2 --input x=range --input b=1");
    assert_non_null(strstr(said, " = 1 2 3 4 5 6\n"));
    assert_non_null(strstr(said, " = -1 -2 -3 -4 -5 -6\n"));
    assert_non_null(strstr(said, "1 runs, guards:"));
    assert_non_null(strstr(said, "import: "));
    assert_non_null(strstr(said, "memory: "));
    tool_says(0, " = 0.5 1 1.5 2 2.5 3 3.5 4 ...\n", "two.onnx --input x=x.npy --input b=zeros");
    tool_says(0, "f32[4, 3] -2..-2, mean -2,", "two.onnx --shape x=4,3 --input x=zeros --input b=-2e0");
    tool_says(0, "f32[0, 3] hash ", "two.onnx --dim n=0");
    tool_says(0, " 3 NaN, hash ", "two.onnx --dim n=1 --input x=nan");
    /* Sizes without a name, those of the other input, and none at all. */
    tool_says(0, "sum: f32[3, 2]", "unnamed.onnx --dim a_0=3 --dim b_0=3");
    tool_says(0, "sum: f32[3, 4]", "marked.onnx --dim a_0=3 --dim a_1=4 --shape b=3,4");
    tool_refuses(1, "input a, axis 1: which size? Say --dim a_1=SIZE", "marked.onnx --dim a_0=3");
    tool_says(0, "sum: f32[3, 2]", "named.onnx --shape b=3,2");
    tool_says(0, "sum: f32[] 5..5", "open.onnx --shape a= --shape b= --input a=2 --input b=3");
    /* Random numbers are those of their seed. */
    char first[1 << 12];
    tool(0, "two.onnx --dim n=2");
    snprintf(first, sizeof first, "%s", strstr(said, "output y/1"));
    tool_says(0, first, "two.onnx --dim n=2 --input x=random:1 --input b=random:1");
    tool(0, "two.onnx --dim n=2 --input x=random:2");
    assert_null(strstr(said, first));
}

static void test_states(void **state) {
    (void)state;
    tool_says(0, "output sum: kept as input b of the next run\n", "named.onnx --dim n=2 --state b=sum --time 0.01");
    tool_says(0, "profile:\n", "named.onnx --dim n=2 --state b=sum --input b=1 --profile");
    tool_refuses(1, "no output called soup", "named.onnx --dim n=2 --state b=soup");
    tool_refuses(1, "give the state at the first run (by --shape b=SIZES)", "marked.onnx --shape a=3,2 --state b=sum");
}

static void test_comparisons(void **state) {
    (void)state;
    tool(0, "two.onnx --input x=x.npy --input b=1 --save kept");
    tool_says(0, "compare y/1 with kept/y_1.npy: equal, greatest difference 0\n",
              "two.onnx --input x=x.npy --input b=1 --expect kept");
    tool_says(2, "DIFFERS: 9 of 9 elements, the first at 0: 1.625 instead of 1.5; greatest difference 0.125\n",
              "two.onnx --input x=x.npy --input b=1.125 --expect kept");
    tool_says(0, ": equal, greatest difference 0.125\n",
              "two.onnx --input x=x.npy --input b=1.125 --expect kept --tolerance 0.125");
    tool_says(2, "DIFFERS: f32[2, 3] instead of f32[3, 3]\n", "two.onnx --dim n=2 --expect kept");
    tool_says(2, "DIFFERS: 9 of 9", "two.onnx --input x=x.npy --input b=nan --expect kept");
    tool(1, "two.onnx --dim n=2 --expect nowhere");
    assert_non_null(strstr(complained, "two.onnx: nowhere/y_1.npy: "));
    tool(1, "two.onnx --dim n=2 --save two.onnx/x");
    assert_non_null(strstr(complained, "two.onnx: two.onnx/x: "));
    tool_says(0, "compare y/1 with interp: equal", "two.onnx --dim n=40 --compare interp");
    tool(1, "two.onnx --dim n=2 --compare soup");
    assert_non_null(strstr(complained, "soup"));
}

static void test_protobuf(void **state) {
    (void)state;
    tool(0, "two.onnx --input x=x.npy --input b=1 --save kept");
    tool_says(0, "kept/y_1.npy: equal, greatest difference 0\n", "two.onnx --input x=x.pb --input b=1 --expect kept");
    tool_says(2, "data/output_0.pb: DIFFERS: 9 of 9", "three.onnx --input a=x.npy --input b=1 --expect data");
    tool_says(0, "compare sum with data/output_0.pb: equal", "three.onnx --input a=x.npy --input b=0 --expect data");
    tool_refuses(1, "nowhere.pb: ", "two.onnx --input x=nowhere.pb");
    tool_refuses(1, "x.npy.pb: ", "two.onnx --input x=x.npy.pb");
}

static void test_graphs(void **state) {
    char text[1 << 14];
    (void)state;
    tool_says(0, "exported: again.onnx\n", "two.onnx --input x=x.npy --input b=1 --export again.onnx");
    tool_says(0, "input x: f32[n, 3]\n", "again.onnx --list");
    tool(0, "two.onnx --input x=x.npy --input b=1 --save kept");
    tool_says(0, "kept/y_1.npy: equal", "again.onnx --input x=x.npy --input b=1 --expect kept");
    tool_says(0, "exported: fixed.onnx\n", "two.onnx --dim n=2 --export fixed.onnx");
    tool_says(0, "input x: f32[2, 3]\n", "fixed.onnx --list");
    tool_json(0, "\"exported\": \"again.onnx\", \"fixed\": []", "two.onnx --dim n=2 --export again.onnx --json");
    tool(1, "two.onnx --dim n=2 --export nowhere/again.onnx");
    tool_says(0, "graph: two.dot\n", "two.onnx --dim n=2 --graph two.dot");
    read_text("two.dot", text, sizeof text);
    assert_int_equal(strncmp(text, "digraph", 7), 0);
    tool(1, "two.onnx --dim n=2 --graph nowhere/two.dot");
    if (run_tool("two.onnx --dim n=2 --graph two.svg") == 0)
        assert_non_null(strstr(said, "graph: two.svg\n"));
    else
        assert_non_null(strstr(complained, "Graphviz's program dot is not installed"));
}

/* Models as dlc-opt's graphs, by their content. */
/* A model whose operators depend on sizes: with those of --dim, also of axes without a name, or else with those of the run. */
static void test_sized(void **state) {
    (void)state;
    tool_says(0, "exported: s.onnx\n", "squeezed.onnx --dim x_0=1 --dim x_1=3 --export s.onnx");
    tool_says(0, "exported: s.onnx, for inputs of these sizes alone\n", "squeezed.onnx --shape x=1,9 --export s.onnx");
    tool_says(0, "input x: f32[1, 9]\n", "s.onnx --list");
    tool_says(0, "verify: all values agree", "squeezed.onnx --shape x=1,9 --verify");
}

static void test_graph_tool(void **state) {
    (void)state;
    assert_int_equal(run_program("dlc-opt", "flat.onnx"), 0);
    assert_non_null(strstr(said, "input x: f32[n, 10]"));
    assert_int_equal(run_program("dlc-opt", "- --dims n=2 --check --target interp --print bound <flat.onnx"), 0);
    assert_non_null(strstr(said, "input x: f32[2, 10]"));
    assert_non_null(strstr(said, ": good"));
    assert_int_equal(run_program("dlc-opt", "soup.onnx"), 1);
    assert_non_null(strstr(complained, "Soup"));
}

static void test_verify(void **state) {
    char text[1 << 14];
    (void)state;
    tool_says(0, "verify: all values agree with the interpreter\n", "two.onnx --dim n=40 --verify");
    tool_json(0, "\"verify\": {\"equal\": true}", "two.onnx --dim n=40 --verify --json");
    /* Sums of the target are in another order, unless it is the interpreter. */
    const int status = run_tool("total.onnx --dim n=100000 --verify --tolerance 0");
    if (status == 0) return;
    assert_int_equal(status, 2);
    assert_non_null(strstr(said, "DIFFERS first: 1 of 1 elements"));
    read_text("verify.txt", text, sizeof text);
    assert_non_null(strstr(text, "reduce"));
    read_text("verify.npz", text, sizeof text);
}

static void test_trace(void **state) {
    static char text[1 << 20];
    (void)state;
    tool(0, "two.onnx --dim n=1000 --threads 2 --time 0.01 --trace trace.json");
    read_text("trace.json", text, sizeof text);
    const char *end = *text == '{' ? json_value(text, 0) : NULL;
    assert_true(end && !*blank_end(end));
    assert_non_null(strstr(text, "\"cat\": \"compile\", \"ph\": \"X\""));
    assert_non_null(strstr(text, "\"cat\": \"run\", \"ph\": \"X\""));
    tool(0, "two.onnx --dim n=1 --trace trace.json"); /* on one thread, a few elements */
    read_text("trace.json", text, sizeof text);
    assert_non_null(strstr(text, "\"cat\": \"run\", \"ph\": \"X\""));
    tool(1, "two.onnx --dim n=2 --trace nowhere/trace.json");
    assert_non_null(strstr(complained, "--trace: nowhere/trace.json: "));
}

static void test_pictures(void **state) {
    (void)state;
    tool_says(0, "  |@@@@@%%%%%|\n  |#####*****|\n", "flat.onnx --dim n=10 --input x=range --show");
    tool(0, "two.onnx --dim n=10 --show");
    assert_null(strstr(said, "|"));
}

static void test_times(void **state) {
    (void)state;
    tool_says(0, "time: least ", "two.onnx --dim n=8 --time 0.01");
    tool_says(0, " runs ", "two.onnx --dim n=8 --profile");
    assert_non_null(strstr(said, "a run, mean: "));
    assert_non_null(strstr(said, "beside kernels "));
    tool_says(0, "clients: 3 threads, p50 ", "two.onnx --dim n=8 --clients 3 --time 0.01 --threads 2");
    tool_says(0, "n=1: first answer ", "two.onnx --sweep n=1:5 --compile-threads 2 --target interp");
    assert_non_null(strstr(said, "n=5: first answer "));
    assert_null(strstr(said, "n=6: "));
    tool(0, "two.onnx --dim n=8 --cache stored");
}

static void test_json(void **state) {
    (void)state;
    tool_json(0, "\"shape\": [\"n\", 3]", "two.onnx --list --check --json");
    tool_json(0, "\"name\": \"the \\\"neg\\\\\\u0009\\u0001\\ufffd\xc3\xa9\"", "two.onnx --list --json");
    tool_json(0, "\"shape\": [null, 2]", "unnamed.onnx --list --json");
    tool_json(1, "Soup", "soup.onnx --check --json");
    tool_json(
        0, "\"first\": [2, 3, 4]",
        "two.onnx --dim n=1 --input x=range --input b=2 --time 0.01 --profile --clients 2 --compare interp --json");
    tool_json(0, "\"beside_kernels_us\": ", "two.onnx --dim n=1 --profile --json");
    tool_json(0, "\"least\": null", "two.onnx --dim n=0 --json");
    tool_json(2, "\"equal\": false", "two.onnx --input x=x.npy --input b=7 --expect kept --json");
    tool_json(2, "\"type\": \"f32[2, 3]\", \"expected\": \"f32[3, 3]\"", "two.onnx --dim n=2 --expect kept --json");
    tool_json(0, "\"size\": 3", "two.onnx --sweep n=1:3 --json");
    tool_refuses(1, "which size is n", "two.onnx --json");
    tool_refuses(1, "two.onnx: ", "two.onnx --dim n=2 --expect nowhere --json");
}

static void test_models_refused(void **state) {
    (void)state;
    tool_refuses(1, "dlc-run: nowhere.onnx: ", "nowhere.onnx");
    tool_refuses(1, "dlc-run: x.npy: ", "x.npy");
    tool_refuses(1, "dlc-run: soup.onnx: ", "soup.onnx --dim n=2");
    tool_refuses(1, "input x is tensor(string); dlc-run gives tensors of numbers only", "words.onnx --dim n=2");
    tool_refuses(1, "input x, axis 0: which size is n? Say --dim n=SIZE", "two.onnx");
    tool_refuses(1, "input a, axis 0: which size? Say --dim a_0=SIZE, or --shape a=SIZES", "unnamed.onnx");
    tool_refuses(1, "input a: the file declares no rank: say --shape a=SIZES", "open.onnx");
    tool_refuses(1, "--input soup: the model has no such input", "two.onnx --dim n=2 --input soup=1");
    tool_refuses(1, "--shape soup: the model has no such input", "two.onnx --dim n=2 --shape soup=1");
    tool_refuses(1, "--dim soup: the model has no such size", "two.onnx --dim n=2 --dim soup=1");
    tool_refuses(1, "--sweep soup: the model has no such size", "two.onnx --sweep soup=1:2");
    tool_refuses(1, "input x: soup: expected FILE.npy", "two.onnx --dim n=2 --input x=soup");
    tool_refuses(1, "input x: random:: expected FILE.npy", "two.onnx --dim n=2 --input x=random:");
    tool_refuses(1, "nowhere.npy", "two.onnx --input x=nowhere.npy");
    tool_refuses(1, "input x: --shape, but its file has the sizes", "two.onnx --input x=x.npy --shape x=3,3");
    tool_refuses(1, "no memory for elements", "two.onnx --dim n=1000000000000000000");
    tool_refuses(1, "two.onnx: ", "two.onnx --shape x=2,4");
    tool_refuses(1, "soup", "two.onnx --dim n=2 --target soup");
}

static void test_usage(void **state) {
    static const char *const wrong[][2] = {
        {"which model?", "--list"},
        {"more.onnx: the model is two.onnx already", "two.onnx more.onnx"},
        {"--soup: there is no such option", "two.onnx --soup"},
        {"--input nothing: expected NAME=FILE.npy", "two.onnx --input"},
        {"--input x: expected NAME=FILE.npy", "two.onnx --input x"},
        {"--input x=: expected NAME=FILE.npy", "two.onnx --input x="},
        {"expected NAME=FILE.npy, NAME=FILE.pb, NAME=random:SEED, zeros, range or a number, each name once",
         "two.onnx --input x=1 --input x=2"},
        {"--shape x=1,: expected NAME=sizes", "two.onnx --shape x=1,"},
        {"--shape x=-1: expected NAME=sizes", "two.onnx --shape x=-1"},
        {"--shape x=1,1,1,1,1,1,1,1,1,1,1,1,1: expected NAME=sizes", "two.onnx --shape x=1,1,1,1,1,1,1,1,1,1,1,1,1"},
        {"--dim n=soup: expected NAME=size", "two.onnx --dim n=soup"},
        {"--dim n=99999999999999999999: expected NAME=size", "two.onnx --dim n=99999999999999999999"},
        {"--state =y: expected INPUT=OUTPUT", "two.onnx --state =y"},
        {"--target nothing: expected a target's name", "two.onnx --target"},
        {"--target interp: expected a target's name, once", "two.onnx --target cpu --target interp"},
        {"--threads -1: expected a number", "two.onnx --threads -1"},
        {"--compile-threads 1x: expected a number", "two.onnx --compile-threads 1x"},
        {"--cache nothing: expected a folder", "two.onnx --cache ''"},
        {"--time 0: expected a number of seconds", "two.onnx --time 0"},
        {"--time nan: expected a number of seconds", "two.onnx --time nan"},
        {"--save nothing: expected a folder", "two.onnx --save"},
        {"--expect nothing: expected a folder", "two.onnx --expect"},
        {"--compare nothing: expected a target", "two.onnx --compare"},
        {"--tolerance -1: expected a number", "two.onnx --expect kept --tolerance -1"},
        {"--sweep n=2:1: expected NAME=FIRST:LAST", "two.onnx --sweep n=2:1"},
        {"--sweep n=2: expected NAME=FIRST:LAST", "two.onnx --sweep n=2"},
        {"--clients 0: expected a number of threads from 1 to 4096", "two.onnx --clients 0"},
        {"--threads 5000: expected a number of threads, at most 4096", "two.onnx --threads 5000"},
        {"--graph two.txt: expected a file that ends in .dot, .svg or .png", "two.onnx --graph two.txt"},
        {"--export nothing: expected a file", "two.onnx --export"},
        {"--verify: not with --sweep", "two.onnx --sweep n=1:2 --verify"},
        {"--show: not with --list or --check", "two.onnx --list --show"},
        {"--tolerance: only with --expect, --compare or --verify", "two.onnx --tolerance 1"},
        {"--dim: that size is swept", "two.onnx --sweep n=1:2 --dim n=2"},
        {"--time: not with --sweep", "two.onnx --sweep n=1:2 --time 1"},
        {"--state: not with --sweep", "two.onnx --sweep n=1:2 --state x=y"},
        {"--input: not with --list or --check", "two.onnx --list --input x=1"},
        {"--sweep: not with --list or --check", "two.onnx --check --sweep n=1:2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) tool_refuses(3, wrong[i][0], wrong[i][1]);
}

static int write_all(void **state) {
    static const float x[9] = {0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4.5f};
    (void)state;
    if (!mkdtemp(folder)) return 1;
    write_two();
    write_sum("unnamed.onnx", "sum", "a", "b", "* 2");
    write_sum("marked.onnx", "sum", "a", "b", "? ?");
    write_sum("named.onnx", "sum", "a", "b", "n 2");
    write_sum("open.onnx", "sum", "a", "b", "-");
    write_sum("three.onnx", "sum", "a", "b", "3 3");
    write_one("total.onnx", "ReduceSum", 1, "n"), write_one("flat.onnx", "Neg", 1, "n 10");
    write_one("words.onnx", "Identity", 8, "n"), write_one("squeezed.onnx", "Squeeze", 1, "* *");
    write_protobuf("x.pb", x, 3);
    make_folder("data");
    write_protobuf("data/output_0.pb", x, 3);
    write_array("x.npy.pb", x, 3);
    write_model("soup.onnx", graph_of(node_of("Soup", "x", "y")));
    write_array("x.npy", x, 3);
    return 0;
}

static int remove_all(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_looks),    cmocka_unit_test(test_inputs),         cmocka_unit_test(test_states),
        cmocka_unit_test(test_protobuf), cmocka_unit_test(test_graphs),         cmocka_unit_test(test_graph_tool),
        cmocka_unit_test(test_sized),    cmocka_unit_test(test_verify),         cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_trace),    cmocka_unit_test(test_comparisons),    cmocka_unit_test(test_times),
        cmocka_unit_test(test_json),     cmocka_unit_test(test_models_refused), cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests_name("dlc-run", tests, write_all, remove_all);
}
