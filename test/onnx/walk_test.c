/* Walks: models in which data decide sizes, branches, and how often a loop runs. Models are written here; results are compared with what
 * loops over the same numbers give. */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>
#include <pthread.h>
#include <time.h>

static dlc_context *context;
static counter memory;
/* Lines of the log that tell of a walk. */
static int told;

/* ---- models ------------------------------------------------------------------------------------------------------------- */

enum { INT = 2, FLOAT = 1, GRAPH = 5, INTS = 7 };

/* name=number, name=number with a point, name=[number,...], name=@part */
static void add_attribute(message *node, char *word, const message *parts) {
    message a = {0};
    char *value = strchr(word, '=');
    *value++ = 0;
    add_text(&a, 1, word);
    if (*value == '@') {
        const message *part = &parts[atoi(value + 1)];
        add_data(&a, 6, part->data, part->size), add_int(&a, 20, GRAPH);
    } else if (*value == '[') {
        for (char *rest = value + 1, *number; (number = strtok_r(rest, ",]", &rest));) add_int(&a, 8, atoll(number));
        add_int(&a, 20, INTS);
    } else if (strchr(value, '.')) {
        add_float(&a, 2, (float)atof(value)), add_int(&a, 20, FLOAT);
    } else {
        add_int(&a, 3, atoll(value)), add_int(&a, 20, INT);
    }
    add_message(node, 5, a);
}

/* "OPERATOR RESULT,... OPERAND... ATTRIBUTE..."; "-": an omitted operand. */
static message node_from(char *line, const message *parts) {
    message node = {0};
    char *rest = line, *operator= strtok_r(rest, " \n", &rest), *results = strtok_r(rest, " \n", &rest);
    char name[64];
    for (char *word; (word = strtok_r(rest, " \n", &rest));) {
        if (strchr(word, '='))
            add_attribute(&node, word, parts);
        else
            add_text(&node, 1, strcmp(word, "-") == 0 ? "" : word);
    }
    snprintf(name, sizeof name, "the_%s", results);
    for (char *more = results, *result; (result = strtok_r(more, ",", &more));) add_text(&node, 2, result);
    add_text(&node, 3, name);
    add_text(&node, 4, operator);
    return node;
}

/* Adds ports "NAME:TYPE:DIM/DIM..." */
static void add_ports(message *g, unsigned field, const char *ports) {
    char text[512], *rest = text;
    snprintf(text, sizeof text, "%s", ports);
    for (char *port; (port = strtok_r(rest, " ", &rest));) {
        char *type = strchr(port, ':'), *dims = strchr(type + 1, ':');
        *type++ = 0, *dims++ = 0;
        for (char *c = dims; *c; c++)
            if (*c == '/') *c = ' ';
        add_message(g, field, port_of(port, atoi(type), dims));
    }
}

/* Nodes are separated by ";". The parts, graphs within, are freed. */
static message graph_from(const char *inputs, const char *outputs, const char *nodes, int count, message *parts) {
    message g = {0};
    char text[2048], *rest = text;
    snprintf(text, sizeof text, "%s", nodes);
    add_text(&g, 2, "graph");
    for (char *line; (line = strtok_r(rest, ";", &rest));) add_message(&g, 1, node_from(line, parts));
    add_ports(&g, 11, inputs);
    add_ports(&g, 12, outputs);
    for (int i = 0; i < count; i++) free(parts[i].data);
    return g;
}

typedef struct fixture {
    message bytes;
    dlc_onnx_model *model;
    dlc_onnx_runner *runner;
} fixture;

static fixture open_graph(message graph, const dlc_onnx_runner_options *options) {
    fixture f = {.bytes = model_of(graph)};
    OK(context, dlc_onnx_parse(context, f.bytes.data, f.bytes.size, NULL, &f.model));
    OK(context, dlc_onnx_runner_create(f.model, options, &f.runner));
    told = 0;
    return f;
}

static void close_fixture(fixture *f) {
    dlc_onnx_runner_destroy(f->runner);
    dlc_onnx_destroy(f->model);
    free(f->bytes.data);
}

/* ---- running ------------------------------------------------------------------------------------------------------------ */

static DLTensor floats(float *data, int rank, int64_t *shape) {
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static void check_result(const DLTensor *y, int rank, const int64_t *shape, const float *numbers) {
    int64_t count = 1;
    assert_int_equal(y->ndim, rank);
    for (int d = 0; d < rank; d++) {
        assert_int_equal(y->shape[d], shape[d]);
        count *= shape[d];
    }
    for (int64_t i = 0; i < count; i++)
        if (((const float *)y->data)[i] != numbers[i])
            fail_msg("element %lld is %g, expected %g", (long long)i, (double)((const float *)y->data)[i],
                     (double)numbers[i]);
}

/* Runs with one input x and one result. */
static void expect(const fixture *f, float *x, int64_t n, int rank, const int64_t *shape, const float *numbers) {
    const DLTensor tx = floats(x, 1, &n);
    dlc_output_slot slot = {NULL, NULL};
    OK(context, dlc_onnx_run(f->runner, NULL, (const DLTensor *[]){&tx}, 1, &slot, 1));
    check_result(&slot.managed->dl_tensor, rank, shape, numbers);
    slot.managed->deleter(slot.managed);
}

static dlc_status run_once(const fixture *f, const dlc_run_options *options, float *x, int64_t n) {
    const DLTensor tx = floats(x, 1, &n);
    dlc_output_slot slot = {NULL, NULL};
    const dlc_status status = dlc_onnx_run(f->runner, options, (const DLTensor *[]){&tx}, 1, &slot, 1);
    if (status == DLC_OK) slot.managed->deleter(slot.managed);
    return status;
}

static void check_described(const fixture *f, const char *words) {
    char *text;
    OK(context, dlc_onnx_runner_describe(f->runner, &text));
    if (!strstr(text, words)) fail_msg("expected \"%s\" in:\n%s", words, text);
    dlc_text_free(context, text);
}

static uint64_t builds(void) {
    return statistics(context).kernel_builds;
}

/* 12 numbers: more than an import takes as guards. */
static void numbers_from(float *x, float first) {
    x[0] = first;
    for (int i = 1; i < 12; i++) x[i] = (float)i;
}

/* ---- sizes that data decide ------------------------------------------------------------------------------------------------ */

/* k is x[0] as a whole number. */
#define K \
    "Constant zero value_int=0; Gather first x zero axis=0; Cast k first to=7; Constant at value_ints=[0]; Unsqueeze ks k at;"

static void test_reshape(void **state) {
    (void)state;
    fixture f = open_graph(
        graph_from("x:1:n", "y:1:a/b", K "Constant m value_ints=[-1]; Concat s ks m axis=0; Reshape y x s", 0, NULL),
        NULL);
    float x[12];
    for (int turn = 0; turn < 2; turn++)
        for (int64_t k = 1; k <= 4; k++) {
            numbers_from(x, (float)k);
            expect(&f, x, 12, 2, (int64_t[]){k, 12 / k}, x);
        }
    assert_int_equal(told, 1);
    check_described(&f, "8 runs: walked");
    close_fixture(&f);
}

static void test_slice(void **state) {
    (void)state;
    fixture f = open_graph(
        graph_from("x:1:n", "y:1:m", K "Constant two value_ints=[2]; Mul to ks two; Slice y x ks to", 0, NULL), NULL);
    float x[12];
    uint64_t before = 0;
    for (int64_t k = 0; k <= 7; k++) {
        if (k == 3) before = builds();
        if (k == 6) assert_int_equal(builds(), before); /* where slices begin and end is told to one program */
        numbers_from(x, (float)k);
        expect(&f, x, 12, 1, (int64_t[]){k < 6 ? k : 12 - k}, x + k);
    }
    close_fixture(&f);
}

static void test_tile(void **state) {
    (void)state;
    fixture f = open_graph(graph_from("x:1:n", "y:1:m", K "Tile t x ks; Add y t first", 0, NULL), NULL);
    float x[12], y[60];
    for (int64_t k = 0; k <= 5; k++) {
        numbers_from(x, (float)k);
        for (int64_t i = 0; i < 12 * k; i++) y[i] = x[i % 12] + (float)k;
        expect(&f, x, 12, 1, (int64_t[]){12 * k}, y);
    }
    close_fixture(&f);
}

static void test_top_k(void **state) {
    (void)state;
    fixture f = open_graph(graph_from("x:1:n", "y:1:m", K "TopK y,places x ks", 0, NULL), NULL);
    static const float largest[] = {11, 10, 9, 8, 7};
    float x[12];
    for (int64_t k = 1; k <= 5; k++) {
        numbers_from(x, (float)k);
        expect(&f, x, 12, 1, &k, largest);
    }
    close_fixture(&f);
}

/* Range, ConstantOfShape, Expand and Pad. */
static void test_generated(void **state) {
    (void)state;
    fixture f = open_graph(
        graph_from("x:1:n", "y:1:m",
                   K "Constant one value_int=1; Range r zero k one; Cast rf r to=1; ConstantOfShape c ks; Add s rf c;"
                     "Constant o value_ints=[1]; Concat pads o ks axis=0; Pad p s pads;"
                     "Expand e first ks; Concat y p e axis=0",
                   0, NULL),
        NULL);
    float x[12], y[16];
    for (int64_t k = 1; k <= 5; k++) {
        numbers_from(x, (float)k);
        memset(y, 0, sizeof y);
        for (int64_t i = 0; i < k; i++) y[1 + i] = (float)i, y[1 + 2 * k + i] = (float)k;
        expect(&f, x, 12, 1, (int64_t[]){1 + 3 * k}, y);
    }
    close_fixture(&f);
}

/* A size that a counted operator decides, then arithmetic on it. */
static void test_counted(void **state) {
    (void)state;
    fixture f = open_graph(
        graph_from("x:1:n", "y:1:a/b",
                   "NonZero p x; Shape s p start=1; Constant m value_ints=[2]; Div h s m; Constant t value_ints=[-1];"
                   "Concat to h t axis=0; Cast pf p to=1; Reshape y pf to",
                   0, NULL),
        NULL);
    float x[12] = {1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0}, places[12] = {0, 2, 3, 5};
    expect(&f, x, 12, 2, (int64_t[]){2, 2}, places);
    x[10] = x[11] = 1;
    places[4] = 10, places[5] = 11;
    expect(&f, x, 12, 2, (int64_t[]){3, 2}, places);
    close_fixture(&f);
}

/* Numbers made of a size: of a mean, of indices that count from the end. One program serves all sizes. */
static void test_counts(void **state) {
    (void)state;
    fixture f = open_graph(
        graph_from("x:1:n", "y:1:2",
                   K "Constant end value_int=-1; Add last end zero; Slice s x at ks; Gather g s last;"
                     "ReduceMean m s axes=[0] keepdims=0; Unsqueeze gs g at; Unsqueeze ms m at; Concat y gs ms axis=0",
                   0, NULL),
        NULL);
    float x[12];
    uint64_t before = 0;
    for (int64_t k = 1; k <= 11; k++) {
        float sum = 0;
        numbers_from(x, (float)k);
        if (k == 7) before = builds();
        if (k > 7) assert_int_equal(builds(), before);
        for (int64_t i = 0; i < k; i++) sum += x[i];
        expect(&f, x, 12, 1, (int64_t[]){2}, (float[]){x[k - 1], sum / (float)k});
    }
    close_fixture(&f);
}

/* ---- branches -------------------------------------------------------------------------------------------------------------- */

static message rank_model(void) {
    message parts[] = {graph_from("", "y:1:n/1", "Constant last value_ints=[1]; Unsqueeze y x last", 0, NULL),
                       graph_from("", "z:1:", "ReduceSum z x keepdims=0", 0, NULL)};
    return graph_from("x:1:n", "y:1:-",
                      "Constant zero value_int=0; Gather first x zero axis=0; Cast go first to=9;"
                      "If r go then_branch=@0 else_branch=@1; Neg y r",
                      2, parts);
}

static void test_ranks(void **state) {
    (void)state;
    fixture f = open_graph(rank_model(), NULL);
    float x[12], y[12], sum = -66;
    for (int turn = 0; turn < 3; turn++) {
        numbers_from(x, 0);
        expect(&f, x, 12, 0, NULL, &sum);
        numbers_from(x, 1);
        for (int i = 0; i < 12; i++) y[i] = -x[i];
        expect(&f, x, 12, 2, (int64_t[]){12, 1}, y);
    }
    check_described(&f, "6 runs: walked");
    close_fixture(&f);
}

/* ---- loops ----------------------------------------------------------------------------------------------------------------- */

/* Carry c grows by the square of the iteration's number, which is stacked; the condition ends it after x[0] iterations. y: c and s. */
static message growing_model(void) {
    message body = graph_from(
        "i:7: go:9: c:1:n", "more:9: d:1:m s:1:",
        "Constant at value_ints=[0]; Unsqueeze is i at; Cast f is to=1; Mul g f f; Concat d c g axis=0; Cast s i to=1;"
        "Constant one value_int=1; Add next i one; Less more next k",
        0, NULL);
    return graph_from("x:1:n", "y:1:m",
                      K
                      "Constant none value_ints=[0]; ConstantOfShape empty none; Constant no value_int=0; Less go no k;"
                      "Loop c,s - go empty body=@0; Concat y c s axis=0",
                      1, &body);
}

static void expect_growing(const fixture *f, int64_t k) {
    float x[12], y[128];
    numbers_from(x, (float)k);
    for (int64_t i = 0; i < k; i++) y[i] = (float)(i * i), y[k + i] = (float)i;
    expect(f, x, 12, 1, (int64_t[]){2 * k}, y);
}

static void test_growing(void **state) {
    static const int64_t counts[] = {3, 1, 0, 7, 60, 2, 0};
    (void)state;
    fixture f = open_graph(growing_model(), NULL);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) expect_growing(&f, counts[i]);
    expect_growing(&f, 29);
    const uint64_t before = builds();
    for (int64_t k = 30; k < 50; k++) expect_growing(&f, k);
    assert_int_equal(builds(), before); /* no program for each iteration, nor for each run */
    close_fixture(&f);
}

/* A loop whose carry has as many elements as data decide, at most six: the first places of x that are not 0, negated. */
static void test_counting(void **state) {
    (void)state;
    message body = graph_from("i:7: go:9: c:1:n", "go:9: d:1:m",
                              "NonZero z x; Cast f z to=1; Constant all value_ints=[-1]; Reshape p f all;"
                              "Constant at value_ints=[0]; Constant end value_ints=[6]; Slice q p at end; Neg d q",
                              0, NULL);
    fixture f =
        open_graph(graph_from("x:1:n", "y:1:m", "Constant k value_int=2; Loop y k - x body=@0", 1, &body), NULL);
    float x[8] = {0, 1, 0, 0, 5, 6, 7, 8};
    expect(&f, x, 5, 1, (int64_t[]){2}, (float[]){-1, -4});
    expect(&f, x, 8, 1, (int64_t[]){5}, (float[]){-1, -4, -5, -6, -7});
    for (int i = 0; i < 8; i++) x[i] = 1;
    expect(&f, x, 8, 1, (int64_t[]){6}, (float[]){0, -1, -2, -3, -4, -5});
    close_fixture(&f);
}

/* A loop in a branch of a loop: for each i < x[0], if i is odd, a list of i numbers i is appended. */
static void test_nested(void **state) {
    (void)state;
    message inner = graph_from("j:7: go:9: d:1:n", "go:9: e:1:m",
                               "Constant at value_ints=[0]; Unsqueeze fs f at; Concat e d fs axis=0", 0, NULL);
    message branches[] = {graph_from("", "r:1:n", "Loop r i - c body=@0", 1, &inner),
                          graph_from("", "c:1:n", "", 0, NULL)};
    message body = graph_from("i:7: go:9: c:1:n", "go:9: d:1:m",
                              "Constant two value_int=2; Mod odd i two; Cast is odd to=9; Cast f i to=1;"
                              "If d is then_branch=@0 else_branch=@1",
                              2, branches);
    fixture f = open_graph(
        graph_from("x:1:n", "y:1:m",
                   K "Identity ends first; Concat c ks ks axis=0; Cast cf c to=1; Loop y k - cf body=@0", 1, &body),
        NULL);
    float x[12], y[64];
    for (int64_t k = 1; k <= 7; k++) {
        int64_t count = 2;
        y[0] = y[1] = (float)k;
        for (int64_t i = 1; i < k; i += 2)
            for (int64_t n = 0; n < i; n++) y[count++] = (float)i;
        numbers_from(x, (float)k);
        expect(&f, x, 12, 1, &count, y);
    }
    close_fixture(&f);
}

/* A Scan whose body slices by data: s sums the elements, backwards, and the stack has the sums before x[0] of them. */
static void test_scan(void **state) {
    (void)state;
    message body =
        graph_from("s:1:2 e:1:2", "t:1:2 u:1:*", "Add t s e; Constant at value_ints=[0]; Slice u t at ks", 0, NULL);
    message g = graph_from(
        "x:1:n", "y:1:a/b",
        K "Constant m value_ints=[6,2]; Reshape rows x m; Constant two value_ints=[2]; Expand begin first two;"
          "Scan s,u begin rows num_scan_inputs=1 scan_input_directions=[1] scan_output_axes=[1]"
          " scan_output_directions=[1] body=@0;"
          "Constant last value_ints=[1]; Unsqueeze column s last; Slice part column at ks; Concat y part u axis=1",
        1, &body);
    fixture f = open_graph(g, NULL);
    float x[12], y[14];
    for (int64_t k = 1; k <= 2; k++) {
        numbers_from(x, (float)k);
        for (int64_t j = 0; j < k; j++) {
            float sum = (float)k;
            for (int64_t row = 5; row >= 0; row--) y[7 * j + row + 1] = sum += x[2 * row + j];
            y[7 * j] = sum;
        }
        expect(&f, x, 12, 2, (int64_t[]){k, 7}, y);
    }
    close_fixture(&f);
}

/* No iteration: stacks have the shape of the elements that there would have been. */
static void test_none(void **state) {
    (void)state;
    message body = graph_from(
        "i:7: go:9: c:1:n", "more:9: d:1:m s:1:*/*",
        "Concat d c c axis=0; Constant m value_ints=[3,-1]; Reshape s c m; Gather f x i axis=0; Cast more f to=9", 0,
        NULL);
    fixture f = open_graph(graph_from("x:1:n", "s:1:*/*/*", K "Loop d,s k - x body=@0", 1, &body), NULL);
    float x[12];
    numbers_from(x, 0);
    expect(&f, x, 12, 3, (int64_t[]){0, 3, 4}, NULL);
    numbers_from(x, 1);
    expect(&f, x, 12, 3, (int64_t[]){1, 3, 4}, x);
    numbers_from(x, 0);
    expect(&f, x, 12, 3, (int64_t[]){0, 3, 4}, NULL);
    close_fixture(&f);
}

/* Branches of other sizes: x, whose size the file gives as 0, and the first element of w. A size of 0 may be any. */
static void test_other_sizes(void **state) {
    (void)state;
    message branches[] = {graph_from("", "a:1:*", "Identity a x", 0, NULL),
                          graph_from("", "b:1:*", "Identity b w", 0, NULL)};
    fixture f =
        open_graph(graph_from("c:9: x:1:0 w:1:1", "y:1:*", "If y c then_branch=@0 else_branch=@1", 2, branches), NULL);
    float x[3] = {1, 2, 3}, w[1] = {7};
    for (int64_t i = 0; i < 16; i++) {
        int64_t n = i / 2 % 4, one = 1;
        bool c = i % 2;
        const DLTensor tx = floats(x, 1, &n), tw = floats(w, 1, &one);
        const DLTensor tc = {.data = &c, .device = {kDLCPU, 0}, .dtype = {kDLBool, 8, 1}};
        dlc_output_slot slot = {NULL, NULL};
        OK(context, dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&tc, &tx, &tw}, 3, &slot, 1));
        check_result(&slot.managed->dl_tensor, 1, c ? &n : &one, c ? x : w);
        slot.managed->deleter(slot.managed);
    }
    close_fixture(&f);
}

/* ---- loops that do not end ----------------------------------------------------------------------------------------------------- */

/* The carry has one element and two by turns, for ever. */
static message endless_model(void) {
    message body = graph_from(
        "i:7: go:9: c:1:n", "go:9: d:1:m",
        "Constant two value_ints=[2]; Constant one value_ints=[1]; Mod odd i two; Add to odd one; Constant at value_ints=[0];"
        "Concat e c c axis=0; Slice d e at to",
        0, NULL);
    return graph_from("x:1:n", "y:1:m", "Constant go value_int=1; Cast b go to=9; Loop y - b x body=@0", 1, &body);
}

static void *raise_later(void *flag) {
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void test_endless(void **state) {
    (void)state;
    fixture f = open_graph(endless_model(), NULL);
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    volatile int flag = 0;
    pthread_t other;
    float x[12];
    numbers_from(x, 1);
    options.budget_ms = 30;
    assert_int_equal(run_once(&f, &options, x, 12), DLC_BUDGET_EXCEEDED);
    assert_non_null(strstr(dlc_error_message(context), "budget_ms = 30"));
    options = (dlc_run_options)DLC_RUN_OPTIONS_INIT;
    options.cancel = &flag;
    assert_int_equal(pthread_create(&other, NULL, raise_later, (void *)(uintptr_t)&flag), 0);
    assert_int_equal(run_once(&f, &options, x, 12), DLC_CANCELLED);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(run_once(&f, &options, x, 12), DLC_CANCELLED); /* before anything is computed */
    close_fixture(&f);
}

/* ---- errors ----------------------------------------------------------------------------------------------------------------- */

/* An error in the third iteration: 5 elements do not make rows of x[0] + iteration. */
static void test_error_inside(void **state) {
    (void)state;
    message body = graph_from(
        "i:7: go:9: c:1:n", "go:9: d:1:m",
        "Constant m value_ints=[-1]; Add rows ks i; Concat s rows m axis=0; Reshape r c s; Reshape d r m", 0, NULL);
    fixture f = open_graph(
        graph_from("x:1:n", "y:1:m", K "Constant most value_int=3; Loop y most - x body=@0", 1, &body), NULL);
    float x[12];
    for (int turn = 0; turn < 2; turn++) {
        numbers_from(x, 1);
        expect(&f, x, 12, 1, (int64_t[]){12}, x);
        numbers_from(x, 3);
        assert_int_equal(run_once(&f, NULL, x, 12), DLC_INVALID_ARGUMENT);
        const char *said = dlc_error_message(context);
        if (!strstr(said, "\"the_y\" (\"Loop\") iteration 2: node 3 \"the_r\"")) fail_msg("%s", said);
    }
    close_fixture(&f);
}

static void test_wrong_inputs(void **state) {
    (void)state;
    fixture f = open_graph(graph_from("x:1:12", "y:1:m", K "Tile y x ks", 0, NULL), NULL);
    float x[12];
    int64_t twelve = 12, two[] = {3, 4};
    numbers_from(x, 1);
    DLTensor wrong[] = {floats(x, 2, two), floats(x, 1, &twelve), floats(x, 1, two)};
    wrong[1].dtype = (DLDataType){kDLInt, 32, 1};
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 3; i++) {
            dlc_output_slot slot = {NULL, NULL};
            assert_int_equal(dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&wrong[i]}, 1, &slot, 1),
                             DLC_INVALID_ARGUMENT);
            assert_null(slot.managed);
        }
        expect(&f, x, 12, 1, &twelve, x);
    }
    close_fixture(&f);
}

/* ---- results ---------------------------------------------------------------------------------------------------------------- */

/* An input, a computed value twice, and one in a tensor of the host. */
/* The host's tensors for outputs are checked before the walk; after a refusal nothing has begun. */
static void test_wrong_outputs(void **state) {
    (void)state;
    fixture f = open_graph(graph_from("x:1:12", "y:1:m z:1:m", K "Tile y x ks; Neg z y", 0, NULL), NULL);
    float x[12], data[24];
    int64_t twelve = 12, zero = 0;
    numbers_from(x, 1);
    const DLTensor tx = floats(x, 1, &twelve);
    static const char *const words[] = {"y has no shape", "y has no data", "elements overlap", "overlaps input x",
                                        "z and y overlap"};
    for (int i = 0; i < 5; i++) {
        DLTensor ty = floats(i == 3 ? x : data, 1, &twelve), tz = floats(data + (i == 4 ? 11 : 12), 1, &twelve);
        dlc_output_slot slots[2] = {{&ty, NULL}, {&tz, NULL}};
        if (i == 0) ty.shape = NULL;
        if (i == 1) ty.data = NULL;
        if (i == 2) ty.strides = &zero;
        assert_int_equal(dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&tx}, 1, slots, 2), DLC_INVALID_ARGUMENT);
        if (!strstr(dlc_error_message(context), words[i])) fail_msg("%s", dlc_error_message(context));
    }
    for (int i = 0; i < 4; i++) { /* an event; wrong options; cancelled; at last a run */
        const int raised = i == 2;
        dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
        dlc_event *event = (dlc_event *)(void *)&f;
        bool begun = i < 3;
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.begun = &begun;
        if (i == 0) options.event = &event;
        if (i == 1) options.stop_at = 8;
        options.cancel = &raised;
        const dlc_status status = dlc_onnx_run(f.runner, &options, (const DLTensor *[]){&tx}, 1, slots, 2);
        static const dlc_status expected[] = {DLC_UNSUPPORTED, DLC_INVALID_ARGUMENT, DLC_CANCELLED, DLC_OK};
        assert_int_equal(status, expected[i]);
        assert_int_equal(begun, i == 3);
        assert_true(i || !event);
        for (int o = 0; o < 2 && i == 3; o++) slots[o].managed->deleter(slots[o].managed);
    }
    close_fixture(&f);
}

static void test_results(void **state) {
    (void)state;
    fixture f = open_graph(
        graph_from("x:1:n", "x:1:n y:1:m z:1:m w:1:m", K "Tile y x ks; Identity z y; Neg w y", 0, NULL), NULL);
    float x[12], w[24];
    int64_t twelve = 12, m = 24;
    numbers_from(x, 2);
    const DLTensor tx = floats(x, 1, &twelve);
    DLTensor tw = floats(w, 1, &m), shorter = floats(w, 1, &twelve);
    for (int turn = 0; turn < 2; turn++) {
        dlc_output_slot slots[4] = {{.tensor = NULL}};
        slots[3].tensor = &shorter;
        assert_int_equal(dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&tx}, 1, slots, 4), DLC_INVALID_ARGUMENT);
        for (int i = 0; i < 3; i++) assert_null(slots[i].managed);
        slots[3].tensor = &tw;
        OK(context, dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&tx}, 1, slots, 4));
        assert_ptr_not_equal(slots[0].managed->dl_tensor.data, x);
        check_result(&slots[0].managed->dl_tensor, 1, &twelve, x);
        assert_ptr_not_equal(slots[1].managed->dl_tensor.data, slots[2].managed->dl_tensor.data);
        for (int i = 0; i < 24; i++) {
            assert_true(((float *)slots[1].managed->dl_tensor.data)[i] == x[i % 12]);
            assert_true(((float *)slots[2].managed->dl_tensor.data)[i] == x[i % 12]);
            assert_true(w[i] == -x[i % 12]);
        }
        for (int i = 0; i < 3; i++) slots[i].managed->deleter(slots[i].managed);
    }
    close_fixture(&f);
}

/* No program serves, and events are refused. */
static void test_program(void **state) {
    (void)state;
    fixture f = open_graph(rank_model(), NULL);
    float x[12];
    int64_t twelve = 12;
    dlc_program *program;
    dlc_event *event;
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    numbers_from(x, 1);
    const DLTensor tx = floats(x, 1, &twelve);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(dlc_onnx_runner_program(f.runner, (const DLTensor *[]){&tx}, 1, &program), DLC_UNSUPPORTED);
        assert_null(program);
        OK(context, run_once(&f, NULL, x, 12));
    }
    options.event = &event;
    assert_int_equal(run_once(&f, &options, x, 12), DLC_UNSUPPORTED);
    close_fixture(&f);
}

/* The state grows by x[0] zeros. */
static void test_state(void **state) {
    static const dlc_onnx_state pair = {"s", "y"};
    (void)state;
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    options.states = &pair, options.state_count = 1;
    fixture f = open_graph(graph_from("x:1:n s:1:m", "y:1:k", K "ConstantOfShape c ks; Concat y s c axis=0", 0, NULL),
                           &options);
    float x[12], s[1] = {5}, y[16];
    int64_t twelve = 12, one = 1, length = 1;
    const DLTensor tx = floats(x, 1, &twelve), ts = floats(s, 1, &one);
    for (int k = 1; k <= 4; k++) {
        numbers_from(x, (float)k);
        length += k;
        DLTensor ty = floats(y, 1, &length);
        dlc_output_slot slot = {&ty, NULL};
        OK(context, dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&tx, k == 1 ? &ts : NULL}, 2, &slot, 1));
        assert_null(slot.managed);
        assert_true(y[0] == 5 && y[length - 1] == 0);
    }
    close_fixture(&f);
}

/* A cache grows in one buffer until the branches of a run have other shapes, which the import does not serve: the walk reads the cache and
 * makes another one. Results are a branch and the sum of the cache. */
static void check_cache(int64_t other) {
    static const dlc_onnx_state pair = {"s", "t"};
    message branches[] = {graph_from("", "p:1:n", "Neg p x", 0, NULL), graph_from("", "q:1:k", "Neg q a", 0, NULL)};
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    options.states = &pair, options.state_count = 1;
    fixture f = open_graph(graph_from("c:9: x:1:n a:1:k s:1:m", "y:1:j t:1:l",
                                      "Concat t s x axis=0; If r c then_branch=@0 else_branch=@1;"
                                      "ReduceSum sum t keepdims=0; Add y r sum",
                                      2, branches),
                           &options);
    float x[3], a[3] = {7, 8, 9}, y[3], t[18], sum = 0;
    for (int turn = 1; turn <= 6; turn++) {
        bool c = turn % 2 == 1;
        int64_t n = 3, k = turn == 4 ? other : 3, j = c ? n : k, l = 3 * turn;
        for (int i = 0; i < 3; i++) sum += x[i] = (float)(10 * turn + i);
        const DLTensor tx = floats(x, 1, &n), ta = floats(a, 1, &k),
                       tc = {.data = &c, .device = {kDLCPU, 0}, .dtype = {kDLBool, 8, 1}};
        DLTensor ty = floats(y, 1, &j), tt = floats(t, 1, &l);
        dlc_output_slot slots[] = {{&ty, NULL}, {&tt, NULL}};
        OK(context, dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&tc, &tx, &ta, NULL}, 4, slots, 2));
        assert_null(slots[1].managed);
        assert_int_equal(told, turn >= 4);
        for (int i = 0; i < j; i++) assert_true(y[i] == sum - (c ? x : a)[i]);
        for (int i = 0; i < l; i++) assert_true(t[i] == (float)(10 * (i / 3 + 1) + i % 3));
    }
    close_fixture(&f);
}

static void test_cache(void **state) {
    (void)state;
    check_cache(2);
    check_cache(1); /* an import of its own is tried first */
}

/* Random numbers without a seed: others at each run, the same ones of runners with one seed. */
static void test_random(void **state) {
    (void)state;
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    float x[12], y[3][2][12];
    int64_t twelve = 12;
    const DLTensor tx = floats(x, 1, &twelve);
    numbers_from(x, 0);
    for (int r = 0; r < 3; r++) {
        options.seed = r < 2 ? 5 : 6;
        fixture f = open_graph(graph_from("x:1:n", "y:1:m", "RandomUniformLike y x", 0, NULL), &options);
        for (int turn = 0; turn < 2; turn++) {
            DLTensor ty = floats(y[r][turn], 1, &twelve);
            dlc_output_slot slot = {&ty, NULL};
            OK(context, dlc_onnx_run(f.runner, NULL, (const DLTensor *[]){&tx}, 1, &slot, 1));
        }
        close_fixture(&f);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_not_equal(y[0][0], y[0][1], sizeof y[0][0]);
    assert_memory_not_equal(y[0][0], y[2][0], sizeof y[0][0]);
}

/* ---- constants, threads, memory ----------------------------------------------------------------------------------------------- */

enum { WIDTH = 160 };

/* A weight of 100 KiB, not aligned in the file, which the body of a loop multiplies with: c grows by a row of zeros each time. */
static message weight_model(void) {
    static float w[WIDTH][WIDTH];
    message body =
        graph_from("i:7: go:9: c:1:n/160", "go:9: d:1:m/160", "MatMul e c w; Concat d e row axis=0", 0, NULL);
    message g =
        graph_from("x:1:n", "y:1:m/160",
                   K "Constant shape value_ints=[1,160]; Expand row first shape; Loop y k - row body=@0", 1, &body);
    for (int i = 0; i < WIDTH; i++) w[i][i] = 2;
    message t = tensor_of("w", 1, 2, (int64_t[]){WIDTH, WIDTH});
    add_data(&t, 9, w, sizeof w);
    add_message(&g, 5, t);
    return g;
}

static void test_weights(void **state) {
    (void)state;
    fixture f = open_graph(weight_model(), NULL);
    float x[12], y[8 * WIDTH];
    uint64_t bytes = 0;
    for (int turn = 0; turn < 4; turn++) {
        numbers_from(x, 7);
        for (int i = 0; i < 8 * WIDTH; i++) y[i] = 7.0f * (float)(1 << (7 - i / WIDTH));
        expect(&f, x, 12, 2, (int64_t[]){8, WIDTH}, y);
        if (turn == 1) bytes = statistics(context).constant_bytes;
        if (turn > 1) assert_int_equal(statistics(context).constant_bytes, bytes);
    }
    close_fixture(&f);
}

static void *run_many(void *argument) {
    const fixture *f = argument;
    for (int turn = 0; turn < 10; turn++) {
        float x[12];
        int64_t twelve = 12;
        numbers_from(x, (float)(turn % 4 + 1));
        const DLTensor tx = floats(x, 1, &twelve);
        dlc_output_slot slot = {NULL, NULL};
        if (dlc_onnx_run(f->runner, NULL, (const DLTensor *[]){&tx}, 1, &slot, 1) != DLC_OK) return argument;
        const bool right = slot.managed->dl_tensor.shape[0] == 2 * (turn % 4 + 1);
        slot.managed->deleter(slot.managed);
        if (!right) return argument;
    }
    return NULL;
}

static void test_threads(void **state) {
    pthread_t threads[4];
    (void)state;
    fixture f = open_graph(growing_model(), NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, run_many, &f), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    check_described(&f, "40 runs: walked");
    close_fixture(&f);
}

/* From the runner's making to its second run, with memory refused from one place on. */
static dlc_status try_all(dlc_onnx_model *model) {
    fixture f = {.model = model};
    float x[12];
    dlc_status status = dlc_onnx_runner_create(model, NULL, &f.runner);
    for (int turn = 1; turn <= 2 && status == DLC_OK; turn++) {
        numbers_from(x, (float)turn);
        status = run_once(&f, NULL, x, 12);
    }
    dlc_onnx_runner_destroy(f.runner);
    return status;
}

static void refuse_memory(message graph) {
    fixture f = open_graph(graph, NULL);
    for (int turn = 0; turn < 3; turn++)
        OK(context, try_all(f.model)); /* kernels and all else that stays with the context */
    const int64_t before = atomic_load(&memory.blocks);
    dlc_status status = DLC_OUT_OF_MEMORY;
    for (int64_t site = 0; status != DLC_OK; site++) {
        atomic_store(&memory.left, site);
        status = try_all(f.model);
        atomic_store(&memory.left, -1);
        if (status != DLC_OK) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        assert_in_range(site, 0, 20000);
    }
    OK(context, try_all(f.model));
    assert_in_range(atomic_load(&memory.blocks), 0, before);
    close_fixture(&f);
}

static void test_refused(void **state) {
    (void)state;
    refuse_memory(growing_model());
    refuse_memory(rank_model());
}

static void hear(void *user, const char *line) {
    (void)user;
    told += strstr(line, "walked") != NULL;
}

static int open_all(void **state) {
    dlc_allocator allocator = counting(&memory);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    (void)state;
    options.allocator = &allocator;
    options.log = hear;
    context = open_context("cpu", &options);
    if (!context) context = open_context("interp", &options);
    return context == NULL;
}

static int close_all(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return atomic_load(&memory.blocks) != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshape),      cmocka_unit_test(test_slice),        cmocka_unit_test(test_tile),
        cmocka_unit_test(test_top_k),        cmocka_unit_test(test_generated),    cmocka_unit_test(test_counted),
        cmocka_unit_test(test_ranks),        cmocka_unit_test(test_counts),       cmocka_unit_test(test_growing),
        cmocka_unit_test(test_nested),       cmocka_unit_test(test_counting),     cmocka_unit_test(test_scan),
        cmocka_unit_test(test_none),         cmocka_unit_test(test_other_sizes),  cmocka_unit_test(test_endless),
        cmocka_unit_test(test_error_inside), cmocka_unit_test(test_wrong_inputs), cmocka_unit_test(test_wrong_outputs),
        cmocka_unit_test(test_results),      cmocka_unit_test(test_program),      cmocka_unit_test(test_state),
        cmocka_unit_test(test_cache),        cmocka_unit_test(test_weights),      cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("onnx walk", tests, open_all, close_all);
}
