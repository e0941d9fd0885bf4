/* Operators of the host in ONNX models, dlc_onnx_register: expansions and C functions in graphs, runners and walks, in functions and in bodies of
 * control flow; attributes; strings; mistakes of the host and of models; threads; refused memory. */
#include "onnx/values.h"

#include <dlc/extend.h>

/* ---- operators ------------------------------------------------------------------------------------------------------------ */

static atomic_int calls, registered, released;

static void count_release(void *user) {
    atomic_fetch_add(&released, 1);
    (void)user;
}

static double number_of(const dlc_callback *callback, const char *name, double otherwise) {
    dlc_callback_number(callback, name, &otherwise);
    return otherwise;
}

/* scale * x. */
static dlc_status expand_scaled(void *user, dlc_callback *callback, int count, dlc_value *results) {
    const dlc_value x = dlc_callback_input(callback, 0);
    (void)user, (void)count;
    results[0] =
        dlc_mul(x, dlc_scalar(dlc_callback_graph(callback), dlc_value_dtype(x), number_of(callback, "scale", 2)));
    return DLC_OK;
}

/* By an operator of <dlc/extend.h>. */
static dlc_status expand_opposite(void *user, dlc_callback *callback, int count, dlc_value *results) {
    const dlc_value x = dlc_callback_input(callback, 0);
    (void)user, (void)count;
    results[0] = dlc_apply(dlc_callback_graph(callback), "opposite", 1, &x, 0, NULL);
    return DLC_OK;
}

/* x with the dimensions that operand 1 gives. */
static dlc_status expand_shaped(void *user, dlc_callback *callback, int count, dlc_value *results) {
    const int64_t *list;
    dlc_dim dims[DLC_MAX_RANK] = {{0, NULL}};
    int rank;
    (void)user, (void)count;
    if (!dlc_callback_elements(callback, 1, &list, &rank)) return DLC_INVALID_ARGUMENT;
    for (int d = 0; d < rank && d < DLC_MAX_RANK; d++) dims[d].value = list[d];
    results[0] = dlc_reshape(dlc_callback_input(callback, 0), rank, dims);
    return DLC_OK;
}

/* Of x [n], and weights [n] or none: the sum and the number of elements, [2]. */
static dlc_status shape_total(void *user, dlc_callback *callback) {
    (void)user;
    if (dlc_value_rank(dlc_callback_input(callback, 0)) != 1)
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "x is no list");
    return dlc_callback_set_shape(callback, 0, DLC_F32, 1, (dlc_dim[]){{2, NULL}});
}

static dlc_status call_total(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                             int results) {
    const float *x = inputs[0]->tensor->data, *w = count > 1 && inputs[1] ? inputs[1]->tensor->data : NULL;
    const int64_t n = inputs[0]->tensor->shape[0];
    (void)user, (void)results;
    atomic_fetch_add(&calls, 1);
    if (n == 6) return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "six is too many");
    DLTensor *y = dlc_callback_tensor(callback, 0, DLC_F32, 1, (int64_t[]){2});
    if (!y) return DLC_INVALID_ARGUMENT;
    float *total = y->data;
    total[0] = 0, total[1] = (float)n;
    for (int64_t i = 0; i < n; i++) total[0] += x[i] * (w ? w[i] : 1);
    return DLC_OK;
}

/* The elements of x above `least`, and their number. */
static dlc_status call_above(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                             int results) {
    const DLTensor *x = inputs[0]->tensor;
    const float *from = x->data, least = (float)number_of(callback, "least", 0);
    int64_t kept = 0, n = 1;
    (void)user, (void)count;
    for (int d = 0; d < x->ndim; d++) n *= x->shape[d];
    atomic_fetch_add(&calls, 1);
    for (int64_t i = 0; i < n; i++) kept += from[i] > least;
    if (kept == 7) return dlc_callback_fail(callback, DLC_CANCELLED, "seven");
    DLTensor *y = dlc_callback_tensor(callback, 0, DLC_F32, 1, &kept);
    DLTensor *number = results > 1 ? dlc_callback_tensor(callback, 1, DLC_I64, 0, NULL) : NULL;
    if (!y || (results > 1 && !number)) return DLC_OUT_OF_MEMORY;
    if (number) *(int64_t *)number->data = kept;
    for (int64_t i = 0, at = 0; i < n; i++)
        if (from[i] > least) ((float *)y->data)[at++] = from[i];
    return DLC_OK;
}

/* The strings backwards, and their lengths. */
static dlc_status call_backwards(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                                 int results) {
    dlc_onnx_string made[8];
    char bytes[8][16];
    (void)user, (void)count, (void)results;
    if (inputs[0]->kind != DLC_ONNX_STRINGS) return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "no strings");
    DLTensor *lengths = dlc_callback_tensor(callback, 1, DLC_I64, 1, inputs[0]->dims);
    if (!lengths || inputs[0]->dims[0] > 8) return DLC_BUDGET_EXCEEDED;
    for (int64_t i = 0; i < inputs[0]->dims[0]; i++) {
        const dlc_onnx_string *s = &inputs[0]->strings[i];
        for (size_t c = 0; c < s->size && c < 16; c++) bytes[i][c] = s->data[s->size - 1 - c];
        made[i] = (dlc_onnx_string){bytes[i], s->size};
        ((int64_t *)lengths->data)[i] = (int64_t)s->size;
    }
    return dlc_callback_strings(callback, 0, 1, inputs[0]->dims, made);
}

/* A result for each kind of attribute. */
static dlc_status call_attributes(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                                  int results) {
    int64_t integer = 0;
    const int64_t *list = NULL;
    const char *text = NULL;
    size_t length = 0;
    int listed = 0;
    float *y = dlc_callback_tensor(callback, 0, DLC_F32, 1, (int64_t[]){9})->data;
    const dlc_onnx_value *floats = dlc_callback_attribute(callback, "floats"),
                         *listed_words = dlc_callback_attribute(callback, "words"),
                         *one = dlc_callback_attribute(callback, "integer"),
                         *real = dlc_callback_attribute(callback, "real");
    (void)user, (void)count, (void)inputs;
    y[0] = dlc_callback_integer(callback, "integer", &integer) ? (float)integer : -1;
    y[1] = (float)number_of(callback, "real", -1);
    y[2] = dlc_callback_string(callback, "text", &text, &length) && strlen(text) == length ? (float)length : -1;
    y[3] = dlc_callback_list(callback, "list", &list, &listed) && listed == 2 ? (float)list[1] : -1;
    y[4] = floats->tensor->ndim == 1 && floats->tensor->shape[0] == 2 ? ((const float *)floats->tensor->data)[1] : -1;
    y[5] = listed_words->rank == 1 && listed_words->dims[0] == 2 ? (float)listed_words->strings[1].size : -1;
    y[6] = (float)*(const int64_t *)one->tensor->data + *(const float *)real->tensor->data;
    y[7] = dlc_callback_attribute(callback, "missing") || dlc_callback_number(callback, "text", NULL) ? -1 : 1;
    y[8] = (float)(10 * dlc_callback_opset(callback) + results);
    return DLC_OK;
}

/* What `user` says is wrong. */
static dlc_status call_wrong(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                             int results) {
    const char *what = user;
    const int64_t two = 2, below[] = {-1}, large[] = {INT64_MAX, 4};
    int64_t *elements;
    int listed;
    (void)count, (void)inputs, (void)results;
    if (strcmp(what, "none") == 0) return DLC_OK;
    if (strcmp(what, "number") == 0) return (dlc_status)77;
    if (strcmp(what, "status") == 0) return DLC_NOT_FOUND;
    if (strcmp(what, "index") == 0) dlc_callback_tensor(callback, 1, DLC_F32, 1, &two);
    if (strcmp(what, "below") == 0) dlc_callback_tensor(callback, 0, DLC_F32, 1, below);
    if (strcmp(what, "large") == 0) dlc_callback_tensor(callback, 0, DLC_F32, 2, large);
    if (strcmp(what, "rank") == 0) dlc_callback_tensor(callback, 0, DLC_F32, DLC_MAX_RANK + 1, large);
    if (strcmp(what, "dtype") == 0) dlc_callback_tensor(callback, 0, (dlc_dtype)1000, 1, &two);
    if (strcmp(what, "null") == 0) dlc_callback_strings(callback, 0, 1, &two, NULL);
    if (strcmp(what, "elements") == 0) dlc_callback_elements(callback, 0, (const int64_t **)&elements, &listed);
    if (strcmp(what, "twice") == 0)
        for (int i = 0; i < 2; i++) dlc_callback_tensor(callback, 0, DLC_F32, 1, &two);
    return DLC_OK;
}

static dlc_status expand_wrong(void *user, dlc_callback *callback, int count, dlc_value *results) {
    (void)count;
    if (user) results[0] = dlc_add(dlc_callback_input(callback, 0), dlc_callback_input(callback, 5));
    return DLC_OK;
}

/* Registers, or fails. Both are released. */
static dlc_status try_to_register(const dlc_onnx_operator_options *o) {
    if (o->struct_size == sizeof *o) atomic_fetch_add(&registered, 1);
    return dlc_onnx_register(context, o);
}

static dlc_onnx_operator_options options_of(const char *name) {
    dlc_onnx_operator_options o = DLC_ONNX_OPERATOR_OPTIONS_INIT;
    o.domain = "com.example", o.name = name, o.release = count_release;
    return o;
}

static void register_expansion(const char *name, dlc_operator_expand *expand) {
    dlc_onnx_operator_options o = options_of(name);
    o.expand = expand;
    OK(context, try_to_register(&o));
}

static void register_call(const char *name, dlc_onnx_call *call, dlc_operator_shape *shape, bool effects) {
    dlc_onnx_operator_options o = options_of(name);
    o.call = call, o.shape_function = shape, o.has_effects = effects;
    OK(context, try_to_register(&o));
}

/* ---- running -------------------------------------------------------------------------------------------------------------- */

static void expect_list(const fixture *f, float *x, int64_t n, int64_t count, const float *expected) {
    held in = numbers(x, kDLFloat, 32, 1, n);
    dlc_onnx_value value = value_of_tensor(&in), *y;
    run_values(f, &value, 1, &y, 1);
    expect_floats(y, count, expected);
    dlc_onnx_value_destroy(y);
}

static fixture list_model(message g, const char *type) {
    add_port(&g, 11, "x", type);
    add_port(&g, 12, "y", "T1 -");
    return made_of(g);
}

static void expect_failing_list(const fixture *f, int64_t n, dlc_status status, const char *why) {
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    held in = numbers(x, kDLFloat, 32, 1, n);
    dlc_onnx_value value = value_of_tensor(&in);
    expect_failure(f, &value, 1, 1, status, why);
}

static void expect_no_graph(const fixture *f, const char *why) {
    dlc_graph *graph;
    assert_int_equal(dlc_onnx_graph(f->model, NULL, &graph), DLC_UNSUPPORTED);
    if (!strstr(dlc_error_message(context), why)) fail_msg("no \"%s\": %s", why, dlc_error_message(context));
    assert_null(graph);
}

/* ---- graphs ---------------------------------------------------------------------------------------------------------------- */

/* Graphs and programs with such nodes are printed and dumped like others; dlc_onnx_write refuses them. */
static void look_at(dlc_graph *graph, dlc_program *program) {
    char *text;
    OK(context, dlc_graph_print(graph, &text));
    assert_non_null(strstr(text, "Total.1."));
    dlc_text_free(context, text);
    OK(context, dlc_program_dump(program, "plan", (const int64_t *[]){(int64_t[]){4}}, (const int[]){1}, 1, &text));
    dlc_text_free(context, text);
    assert_int_equal(dlc_onnx_write(context, "/nowhere/x.onnx", graph, NULL), DLC_UNSUPPORTED);
}

/* Both forms in one program for all sizes, which keeps what it needs of the model. */
static void test_graph(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "com.example.Scaled scaled x | scale=f:3");
    add_node(&g, "com.example.Total total scaled");
    add_node(&g, "com.example.Opposite y total");
    fixture f = list_model(g, "T1 n");
    dlc_graph *graph;
    dlc_program *program;
    OK(context, dlc_onnx_graph(f.model, NULL, &graph));
    OK(context, dlc_compile(context, graph, NULL, &program));
    look_at(graph, program);
    dlc_graph_destroy(graph);
    finish(&f);
    for (int64_t n = 1; n < 7; n++) {
        float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[2];
        held in = numbers(x, kDLFloat, 32, 1, n), out = numbers(y, kDLFloat, 32, 1, 2);
        value_of_tensor(&in), value_of_tensor(&out);
        dlc_output_slot slot = {&out.view, NULL};
        const dlc_status status = dlc_run(program, NULL, (const DLTensor *[]){&in.view}, 1, &slot, 1);
        assert_int_equal(status, n == 6 ? DLC_INVALID_ARGUMENT : DLC_OK);
        if (n == 6 && !strstr(dlc_error_message(context), "(\"Total\"): six is too many"))
            fail_msg("%s", dlc_error_message(context));
        if (n != 6) assert_true(y[0] == (float)(-3 * n * (n + 1) / 2) && y[1] == (float)-n);
    }
    dlc_program_destroy(program);
}

static void test_left_out(void **state) {
    const float w[] = {1, 10, 100, 1000};
    message g = started(), t = tensor_of("w", 1, 1, (int64_t[]){4});
    (void)state;
    add_data(&t, 9, w, sizeof w);
    add_message(&g, 5, t);
    add_node(&g, "com.example.Total a x w");
    add_node(&g, "com.example.Total b x -");
    add_node(&g, "Add y a b");
    fixture f = list_model(g, "T1 4");
    expect_list(&f, (float[]){1, 2, 3, 4}, 4, 2, (float[]){4321 + 10, 8});
    expect_imports(&f, 1, "none");
    finish(&f);
}

/* A shape rule that refuses, at import and when sizes arrive. */
static void test_shapes(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "com.example.Total y x");
    fixture f = list_model(g, "T1 n m");
    dlc_graph *graph;
    assert_int_equal(dlc_onnx_graph(f.model, NULL, &graph), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "x is no list"));
    assert_non_null(strstr(dlc_error_message(context), "node 0"));
    finish(&f);
}

static void test_elements(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "com.example.Shaped y x dims");
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "dims", "T7 k");
    add_port(&g, 12, "y", "T1 -");
    fixture f = made_of(g);
    expect_no_graph(&f, "decides a shape");
    for (int64_t rows = 1; rows <= 2; rows++) {
        float x[] = {1, 2, 3, 4};
        int64_t dims[] = {rows, 4 / rows};
        held in[] = {numbers(x, kDLFloat, 32, 1, 4), numbers(dims, kDLInt, 64, 1, 2)};
        dlc_onnx_value values[] = {value_of_tensor(&in[0]), value_of_tensor(&in[1])}, *y;
        run_values(&f, values, 2, &y, 1);
        assert_int_equal(y->tensor->shape[0], rows);
        expect_floats(y, 4, x);
        dlc_onnx_value_destroy(y);
    }
    expect_imports(&f, 2, "dims by its elements");
    finish(&f);
}

static void test_attributes(void **state) {
    const float expected[] = {7, 1.5f, 4, -3, 0.25f, 3, 8.5f, 1, 31};
    message g = started();
    (void)state;
    add_node(&g, "com.example.Attributes y x | integer=i:7 real=f:1.5 text=s:four list=is:5,-3 floats=fs:1,0.25 "
                 "words=ss:a,bcd");
    fixture f = list_model(g, "T1 n");
    expect_list(&f, (float[]){1}, 1, 9, expected);
    finish(&f);
    dlc_onnx_operator_options o = options_of("Strict");
    o.expand = expand_scaled, o.attributes = "scale other";
    OK(context, try_to_register(&o));
    g = started();
    add_node(&g, "com.example.Strict a x | scale=f:3");
    add_node(&g, "com.example.Strict y a | scales=f:3");
    f = list_model(g, "T1 n");
    expect_failing_list(&f, 1, DLC_UNSUPPORTED, "has no attribute \"scales\"");
    finish(&f);
}

/* ---- sizes that data decide, strings --------------------------------------------------------------------------------------- */

static void test_walk(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Mul twice x x");
    add_node(&g, "com.example.Above kept,number twice | least=f:3");
    add_node(&g, "Mul y kept kept");
    fixture f = list_model(g, "T1 n");
    expect_no_graph(&f, "no shape function");
    expect_list(&f, (float[]){1, 2, 3}, 3, 2, (float[]){16, 81});
    expect_list(&f, (float[]){1, 1, 1, 1}, 4, 0, NULL);
    expect_list(&f, (float[]){4}, 1, 1, (float[]){256});
    expect_imports(&f, 1, "walked");
    finish(&f);
}

/* Known operands are computed while the model is imported: a graph has the results. */
static void test_known(void **state) {
    const float w[] = {-1, 2, -3, 4};
    message g = started(), t = tensor_of("w", 1, 1, (int64_t[]){4});
    (void)state;
    add_data(&t, 9, w, sizeof w);
    add_message(&g, 5, t);
    add_node(&g, "com.example.Above kept,number w");
    add_node(&g, "Expand wide x number");
    add_node(&g, "Add y kept wide");
    fixture f = list_model(g, "T1 1");
    dlc_graph *graph;
    OK(context, dlc_onnx_graph(f.model, NULL, &graph));
    dlc_graph_destroy(graph);
    finish(&f);
}

static void test_strings(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "com.example.Backwards turned,lengths x");
    add_node(&g, "StringConcat y turned x");
    add_port(&g, 11, "x", "T8 n");
    add_port(&g, 12, "y", "T8 n"), add_port(&g, 12, "lengths", "T7 n");
    fixture f = made_of(g);
    words w = words_of(2, (const char *const[]){"abc", "de"});
    dlc_onnx_value in = value_of_words(&w), *y[2];
    for (int turn = 0; turn < 2; turn++) {
        run_values(&f, &in, 1, y, 2);
        expect_words(y[0], "cbaabc,edde");
        assert_memory_equal(y[1]->tensor->data, ((int64_t[]){3, 2}), 16);
        release(y, 2);
    }
    w = words_of(0, NULL);
    run_values(&f, &in, 1, y, 2);
    expect_words(y[0], "");
    release(y, 2);
    w.count = 9;
    for (int i = 0; i < 9; i++) w.string[i] = (dlc_onnx_string){"x", 1};
    expect_failure(&f, &in, 1, 2, DLC_BUDGET_EXCEEDED, "(\"Backwards\")");
    finish(&f);
    g = started(); /* sequences are refused */
    add_node(&g, "SequenceConstruct list x x");
    add_node(&g, "com.example.Above y list");
    f = list_model(g, "T1 n");
    expect_failing_list(&f, 1, DLC_PARSE_ERROR, "a sequence");
    finish(&f);
}

/* ---- control flow, functions ------------------------------------------------------------------------------------------------- */

/* Ten times: x = Scaled(x); a scan over the totals of rows. */
static void test_bodies(void **state) {
    message g = started(), loop = started(), scan = started();
    (void)state;
    add_node(&loop, "com.example.Scaled next now");
    add_node(&loop, "Identity go_on on");
    add_port(&loop, 11, "i", "T7"), add_port(&loop, 11, "on", "T9"), add_port(&loop, 11, "now", "T1 n m");
    add_port(&loop, 12, "go_on", "T9"), add_port(&loop, 12, "next", "T1 n m");
    add_node(&scan, "com.example.Total total row");
    add_port(&scan, 11, "row", "T1 m");
    add_port(&scan, 12, "total", "T1 2");
    add_integers(&g, "ten", 0, 1, (int64_t[]){10});
    add_node_with(&g, "Loop grown ten - x", "body", &loop);
    add_node_with_all(&g, "Scan y grown | num_scan_inputs=i:1", 1, (const char *const[]){"body"}, &scan);
    fixture f = list_model(g, "T1 n m");
    float x[] = {1, 2, 3, 4};
    held in = numbers(x, kDLFloat, 32, 2, 4);
    dlc_onnx_value value = value_of_tensor(&in), *y;
    run_values(&f, &value, 1, &y, 1);
    expect_floats(y, 4, (float[]){3 * 1024, 2, 7 * 1024, 2});
    dlc_onnx_value_destroy(y);
    expect_imports(&f, 1, "none");
    finish(&f);
}

/* A branch that data choose: of a program if its shapes are found without elements, else of a walk. */
static void test_branches(void **state) {
    (void)state;
    for (int walk = 0; walk < 2; walk++) {
        message g = started(), yes = started(), no = started();
        add_node(&yes, walk ? "com.example.Above a x" : "com.example.Total a x");
        add_node(&no, "com.example.Scaled b x");
        add_port(&yes, 12, "a", "T1 -"), add_port(&no, 12, "b", "T1 -");
        add_integers(&g, "zero", 0, 1, (int64_t[]){0});
        add_node(&g, "Cast nought zero | to=i:1");
        add_node(&g, "ReduceSum sum x | keepdims=i:0");
        add_node(&g, "Greater positive sum nought");
        add_node_with_all(&g, "If y positive", 2, (const char *const[]){"then_branch", "else_branch"},
                          (const message[]){yes, no});
        fixture f = list_model(g, "T1 2");
        expect_list(&f, (float[]){1, 2}, 2, 2, walk ? (float[]){1, 2} : (float[]){3, 2});
        expect_list(&f, (float[]){-1, -2}, 2, 2, (float[]){-2, -4});
        expect_imports(&f, 1, walk ? "walked" : "none");
        finish(&f);
    }
}

/* The rest above 0 is halved until nothing is left: a loop whose carried size data decide. */
static void test_walked_body(void **state) {
    message g = started(), loop = started();
    (void)state;
    add_node(&loop, "com.example.Above rest,number now | least=f:1");
    add_node(&loop, "com.example.Scaled next rest | scale=f:0.5");
    add_node(&loop, "com.example.Total total next");
    add_node(&loop, "Greater go_on number nothing");
    add_port(&loop, 11, "i", "T7"), add_port(&loop, 11, "on", "T9"), add_port(&loop, 11, "now", "T1 n");
    add_port(&loop, 12, "go_on", "T9"), add_port(&loop, 12, "next", "T1 m"), add_port(&loop, 12, "total", "T1 2");
    add_integers(&g, "nothing", 0, 1, (int64_t[]){0});
    add_node_with(&g, "Loop last,y - - x", "body", &loop);
    fixture f = list_model(g, "T1 n");
    for (int turn = 0; turn < 2; turn++)
        expect_list(&f, (float[]){1, 2, 4, 8}, 4, 8, (float[]){7, 3, 6 * 0.5f, 2, 2 * 0.5f, 1, 0, 0});
    finish(&f);
}

static void add_reference(message *node, const char *name, const char *reference, int type) {
    message a = {0};
    add_text(&a, 1, name);
    add_int(&a, 20, type);
    add_text(&a, 21, reference);
    add_message(node, 5, a);
}

/* A function with the operator, whose attribute each call gives; and one that the model defines itself, which comes first. */
static void test_functions(void **state) {
    message g = started(), m, node = {0}, function = {0}, opset = {0}, own = {0};
    (void)state;
    add_text(&node, 1, "a"), add_text(&node, 2, "b"), add_text(&node, 4, "Above"), add_text(&node, 7, "com.example");
    add_reference(&node, "least", "limit", 1);
    add_text(&function, 1, "Keep"), add_text(&function, 10, "com.example");
    add_text(&function, 4, "a"), add_text(&function, 5, "b"), add_text(&function, 6, "limit");
    add_message(&function, 7, node);
    add_text(&opset, 1, "com.example"), add_int(&opset, 2, 3);
    add_message(&function, 9, opset);
    add_node(&g, "com.example.Keep some x | limit=f:2");
    add_node(&g, "com.example.Keep fewer some | limit=f:4");
    add_node(&g, "com.example.Keep all fewer");
    add_node(&g, "com.example.Scaled y all");
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 12, "y", "T1 -");
    m = model_with(g);
    add_message(&m, 25, function);
    node = (message){0}, opset = (message){0};
    add_text(&node, 1, "a"), add_text(&node, 2, "b"), add_text(&node, 4, "Neg");
    add_text(&own, 1, "Scaled"), add_text(&own, 10, "com.example"), add_text(&own, 4, "a"), add_text(&own, 5, "b");
    add_message(&own, 7, node);
    add_int(&opset, 2, 20);
    add_message(&own, 9, opset);
    add_message(&m, 25, own);
    fixture f = {.bytes = m};
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &f.model));
    OK(context, dlc_onnx_runner_create(f.model, NULL, &f.runner));
    expect_list(&f, (float[]){1, 3, 5, 7, -1}, 5, 2, (float[]){-5, -7});
    finish(&f);
}

/* ---- effects, mistakes -------------------------------------------------------------------------------------------------------- */

static void test_effects(void **state) {
    const float w[] = {1, 2};
    message g = started(), t = tensor_of("w", 1, 1, (int64_t[]){2});
    (void)state;
    add_data(&t, 9, w, sizeof w);
    add_message(&g, 5, t);
    add_node(&g, "com.example.Noted unused w");
    add_node(&g, "com.example.Noted also x");
    add_node(&g, "Identity y x");
    fixture f = list_model(g, "T1 2");
    for (int turn = 1; turn <= 3; turn++) {
        const int before = atomic_load(&calls);
        expect_list(&f, (float[]){1, 2}, 2, 2, (float[]){1, 2});
        assert_int_equal(atomic_load(&calls) - before, 2);
    }
    finish(&f);
}

static void test_wrong_functions(void **state) {
    static const struct {
        const char *what;
        dlc_status status;
        const char *why;
    } cases[] = {
        {"none", DLC_INVALID_ARGUMENT, "has not given result 0"},
        {"number", DLC_INTERNAL, "77, which is no status"},
        {"status", DLC_NOT_FOUND, "it failed"},
        {"index", DLC_INVALID_ARGUMENT, "no such result"},
        {"below", DLC_INVALID_ARGUMENT, "dimension below 0"},
        {"large", DLC_INVALID_ARGUMENT, "too many elements"},
        {"rank", DLC_INVALID_ARGUMENT, "rank"},
        {"dtype", DLC_INVALID_ARGUMENT, "element type"},
        {"null", DLC_INVALID_ARGUMENT, "string 0"},
        {"elements", DLC_INVALID_ARGUMENT, "no expansion"},
        {"twice", DLC_INVALID_ARGUMENT, "given twice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_onnx_operator_options o = options_of(cases[i].what);
        char line[64];
        message g = started();
        o.call = call_wrong, o.user = (void *)(uintptr_t)cases[i].what;
        OK(context, try_to_register(&o));
        snprintf(line, sizeof line, "com.example.%s y x", cases[i].what);
        add_node(&g, line);
        fixture f = list_model(g, "T1 n");
        for (int turn = 0; turn < 2; turn++) expect_failing_list(&f, 2, cases[i].status, cases[i].why);
        expect_failing_list(&f, 2, cases[i].status, "node 0");
        finish(&f);
    }
}

/* A result with another shape than its rule says; expansions without a result, and with a mistake of the builder. */
static void test_wrong_results(void **state) {
    static int mistake;
    dlc_onnx_operator_options o = options_of("Shapeless");
    message g = started();
    (void)state;
    register_call("Unlike", call_above, shape_total, false);
    add_node(&g, "com.example.Unlike y x");
    fixture f = list_model(g, "T1 n");
    expect_list(&f, (float[]){1, -1, 2}, 3, 2, (float[]){1, 2});
    expect_failing_list(&f, 4, DLC_INVALID_ARGUMENT, "than its shape rule says");
    finish(&f);
    o.expand = expand_wrong;
    OK(context, try_to_register(&o));
    o.name = "Mistaken", o.user = &mistake;
    OK(context, try_to_register(&o));
    g = started();
    add_node(&g, "com.example.Shapeless y x");
    f = list_model(g, "T1 n");
    expect_failing_list(&f, 1, DLC_INVALID_ARGUMENT, "has not set result 0");
    finish(&f);
    g = started();
    add_node(&g, "com.example.Mistaken y x");
    f = list_model(g, "T1 n");
    expect_failing_list(&f, 1, DLC_INVALID_ARGUMENT, "node 0");
    finish(&f);
}

/* A status that concerns no node names it nevertheless. */
static void test_circumstance(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Neg less x");
    add_node(&g, "com.example.Above y less | least=f:-2");
    fixture f = list_model(g, "T1 n");
    expect_failing_list(&f, 7, DLC_CANCELLED, "(\"Above\"): seven");
    expect_list(&f, (float[]){1, 3}, 2, 1, (float[]){-1});
    finish(&f);
}

static void refuse_registration(dlc_onnx_operator_options o, const char *why) {
    const int before = atomic_load(&released);
    assert_int_equal(try_to_register(&o), DLC_INVALID_ARGUMENT);
    if (!strstr(dlc_error_message(context), why)) fail_msg("no \"%s\": %s", why, dlc_error_message(context));
    assert_int_equal(atomic_load(&released) - before, o.struct_size == sizeof o);
}

static void test_registration(void **state) {
    dlc_onnx_operator_options o = options_of("Ranged");
    (void)state;
    o.expand = expand_scaled, o.since = 2, o.until = 4;
    OK(context, try_to_register(&o));
    o.since = 4, o.until = 0;
    refuse_registration(o, "Ranged already, for this domain and some of these versions");
    o.since = 5;
    OK(context, try_to_register(&o));
    o.since = 0, o.until = 1, o.domain = "com.example.other";
    OK(context, try_to_register(&o));
    o.since = 3, o.until = 2;
    refuse_registration(o, "no range");
    o.until = 0, o.call = call_above;
    refuse_registration(o, "one of expand and call");
    o.call = NULL, o.has_effects = true;
    refuse_registration(o, "are for call");
    o = options_of("Relu");
    o.expand = expand_scaled, o.domain = "ai.onnx";
    refuse_registration(o, "libdlc imports this operator itself");
    o.name = NULL;
    refuse_registration(o, "needs a name");
    o.struct_size--;
    refuse_registration(o, "struct_size");
    assert_int_equal(dlc_onnx_register(context, NULL), DLC_INVALID_ARGUMENT);
}

/* All that is not registered is reported at once; versions decide. */
static void test_check(void **state) {
    message g = started();
    char *text;
    dlc_onnx_operator_options o = options_of("Later");
    (void)state;
    o.expand = expand_scaled, o.since = 4;
    OK(context, try_to_register(&o));
    add_node(&g, "com.example.Scaled a x");
    add_node(&g, "com.example.Later b a");
    add_node(&g, "com.example.Unknown y b");
    fixture f = list_model(g, "T1 n");
    OK(context, dlc_onnx_check(f.model, &text));
    assert_null(strstr(text, "Scaled"));
    assert_non_null(strstr(text, "Later"));
    assert_non_null(strstr(text, "Unknown"));
    dlc_text_free(context, text);
    finish(&f);
}

/* ---- threads, memory ---------------------------------------------------------------------------------------------------------- */

/* y: of a program, or of a walk. */
static message both_forms(bool walk) {
    message g = started();
    add_node(&g, "com.example.Scaled scaled x | scale=f:3");
    add_node(&g, "com.example.Total total scaled");
    add_node(&g, walk ? "com.example.Above y total" : "Abs y total");
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 12, "y", "T1 m");
    return g;
}

static dlc_status run_both(dlc_onnx_runner *runner, int64_t n) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    held in = numbers(x, kDLFloat, 32, 1, n);
    const dlc_onnx_value value = value_of_tensor(&in), *given = &value;
    dlc_onnx_value *y;
    const dlc_status status = dlc_onnx_run_values(runner, NULL, &given, 1, &y, 1);
    if (status == DLC_OK) expect_floats(y, 2, (float[]){(float)(3 * n * (n + 1) / 2), (float)n});
    dlc_onnx_value_destroy(y);
    return status;
}

/* A runner of its own, and the one that all threads share. */
static void *run_many(void *user) {
    const fixture *f = user;
    dlc_onnx_runner *own;
    for (int i = 0; i < 6; i++) {
        OK(context, dlc_onnx_runner_create(f->model, NULL, &own));
        OK(context, run_both(own, 4 + i % 2));
        OK(context, run_both(f->runner, 4 + i % 2));
        dlc_onnx_runner_destroy(own);
    }
    return NULL;
}

static void *register_many(void *user) {
    char name[32] = "";
    dlc_onnx_operator_options o = options_of(name);
    (void)user;
    o.expand = expand_scaled;
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "Another%d", i);
        OK(context, try_to_register(&o));
    }
    return NULL;
}

static void test_threads(void **state) {
    pthread_t threads[5];
    fixture f[] = {made_of(both_forms(false)), made_of(both_forms(true))};
    (void)state;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_many, &f[i % 2]);
    pthread_create(&threads[4], NULL, register_many, NULL);
    for (int i = 0; i < 5; i++) pthread_join(threads[i], NULL);
    finish(&f[0]), finish(&f[1]);
}

static dlc_status try_all(const message *bytes) {
    dlc_onnx_model *model;
    dlc_onnx_runner *runner = NULL;
    dlc_status status = dlc_onnx_parse(context, bytes->data, bytes->size, NULL, &model);
    if (status != DLC_OK) return status;
    status = dlc_onnx_runner_create(model, NULL, &runner);
    if (status == DLC_OK) status = run_both(runner, 4);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    return status;
}

/* Refuses each allocation in turn. */
static void refuse_all(dlc_status (*try)(const message *bytes), const message *bytes) {
    dlc_status status = DLC_OUT_OF_MEMORY;
    for (int64_t site = 0; status != DLC_OK; site++) {
        atomic_store(&memory.left, site);
        status = try(bytes);
        atomic_store(&memory.left, -1);
        if (status != DLC_OK && status != DLC_OUT_OF_MEMORY)
            fail_msg("site %lld: %s", (long long)site, dlc_error_message(context));
        assert_in_range(site, 0, 4000);
    }
}

static dlc_status try_registration(const message *unused) {
    dlc_onnx_operator_options o = options_of("Refused");
    (void)unused;
    o.expand = expand_scaled;
    return try_to_register(&o);
}

static void test_refused(void **state) {
    (void)state;
    for (int walk = 0; walk < 2; walk++) {
        message bytes = model_with(both_forms(walk));
        assert_int_equal(try_all(&bytes), DLC_OK); /* kernels and all else that stays with the context */
        const int64_t before = atomic_load(&memory.blocks);
        refuse_all(try_all, &bytes);
        assert_int_equal(atomic_load(&memory.blocks), before);
        free(bytes.data);
    }
    refuse_all(try_registration, NULL);
}

static int open_with_operators(void **state) {
    dlc_operator_options opposite = DLC_OPERATOR_OPTIONS_INIT;
    const int status = open_all(state);
    opposite.name = "opposite", opposite.operands = "x", opposite.expression = "y[...] = -x[...]";
    if (status) return status;
    OK(context, dlc_operator_register(context, &opposite));
    register_expansion("Opposite", expand_opposite);
    register_expansion("Scaled", expand_scaled);
    register_expansion("Shaped", expand_shaped);
    register_call("Total", call_total, shape_total, false);
    register_call("Noted", call_total, shape_total, true);
    register_call("Above", call_above, NULL, false);
    register_call("Backwards", call_backwards, NULL, false);
    register_call("Attributes", call_attributes, NULL, false);
    return 0;
}

/* Every registration is released once. */
static int close_and_count(void **state) {
    const int status = close_all(state);
    if (atomic_load(&released) != atomic_load(&registered))
        printf("%d registrations, %d released\n", registered, released);
    return status || atomic_load(&released) != atomic_load(&registered);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph),         cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_attributes),    cmocka_unit_test(test_walk),
        cmocka_unit_test(test_known),         cmocka_unit_test(test_strings),
        cmocka_unit_test(test_bodies),        cmocka_unit_test(test_walked_body),
        cmocka_unit_test(test_functions),     cmocka_unit_test(test_effects),
        cmocka_unit_test(test_branches),      cmocka_unit_test(test_wrong_functions),
        cmocka_unit_test(test_wrong_results), cmocka_unit_test(test_circumstance),
        cmocka_unit_test(test_registration),  cmocka_unit_test(test_check),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("onnx host", tests, open_with_operators, close_and_count);
}
