/* What hosts add to the library through <dlc/extend.h>: operators by expression, expansion and C function, rules, passes, schedules. On all
 * targets; expected values are computed here. */
#include "api/extend.h"

/* ---- helpers */

/* One output of `count` floats from up to four inputs of f32. */
static void run_floats(dlc_context *context, dlc_program *program, int inputs, const tensor *const *x, float *y,
                       int rank, const int64_t *shape) {
    const DLTensor *in[4];
    for (int i = 0; i < inputs; i++) in[i] = &x[i]->dl;
    tensor out;
    dlc_output_slot slot = {&make_tensor(&out, DLC_F32, y, rank, shape)->dl, NULL};
    OK(context, dlc_run(program, NULL, in, inputs, &slot, 1));
}

/* prints, parses back and prints the same */
static void check_text(dlc_context *context, const dlc_graph *g) {
    char *text = NULL, *again = NULL;
    OK(context, dlc_graph_print(g, &text));
    dlc_graph *back = parse(context, text);
    OK(context, dlc_graph_print(back, &again));
    assert_string_equal(text, again);
    dlc_graph_destroy(back);
    dlc_text_free(context, text);
    dlc_text_free(context, again);
}

static void on_all_targets(void (*test)(dlc_context *context)) {
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        test(context);
        if (statistics(context).interpreted_regions != 0) fail_msg("%s: a region was interpreted", all_targets[t]);
        dlc_context_destroy(context);
    }
}

/* ---- expressions */

static void contraction(dlc_context *context) {
    OK(context, define(context, linear_options));
    dlc_graph *g = parse(context, "graph {\n input x: f32[b, n, 5]\n input w: f32[5, 7]\n y = my_linear(x, w)\n"
                                  " z = my_linear(x, w)\n r = relu(y)\n s = add(r, z)\n output \"y\" = s\n}");
    check_text(context, g);
    assert_int_equal(dlc_graph_node_count(g), 5); /* y and z are one */
    dlc_program *program = compile(context, g);
    enum { B = 2, N = 3, K = 5, M = 7 };
    float x[B * N * K], w[K * M], y[B * N * M];
    double expected[B * N * M];
    fill(x, B * N * K, 1);
    fill(w, K * M, 2);
    for (int r = 0; r < B * N; r++)
        for (int j = 0; j < M; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++) sum += (double)x[r * K + k] * (double)w[k * M + j];
            expected[r * M + j] = (sum > 0 ? sum : 0) + sum;
        }
    tensor tx, tw;
    make_tensor(&tx, DLC_F32, x, 3, SHAPE(B, N, K));
    make_tensor(&tw, DLC_F32, w, 2, SHAPE(K, M));
    run_floats(context, program, 2, (const tensor *const[]){&tx, &tw}, y, 3, SHAPE(B, N, M));
    CLOSE(y, expected, B * N * M, 1e-5);
    char *text = dump(context, program, "plan", 2, (const int64_t *const[]){tx.shape, tw.shape}, (const int[]){3, 2});
    assert_holds(text, "my_linear_");
    dlc_text_free(context, text);
    assert_int_equal(statistics(context).kernel_builds, 1); /* relu and add are in its kernel */
    dlc_program_destroy(program);
}
static void test_contraction(void **state) {
    (void)state;
    on_all_targets(contraction);
}

static void softmax(dlc_context *context) {
    OK(context,
       define(context,
              (dlc_operator_options){
                  .name = "my_softmax",
                  .operands = "x",
                  .dtypes = "float",
                  .expression = "m[..., i] = max(j, x[..., i, j]); e[..., i, j] = exp(x[..., i, j] - m[..., i]);\n"
                                "y[..., i, j] = e[..., i, j] / sum(k, e[..., i, k])"}));
    dlc_graph *g = parse(context, "graph {\n input x: f32[n, m]\n y = my_softmax(x)\n output y\n}");
    dlc_program *program = compile(context, g);
    enum { N = 4, M = 19 };
    float x[N * M], y[N * M];
    double expected[N * M];
    fill(x, N * M, 3);
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int j = 0; j < M; j++) sum += exp((double)x[i * M + j]);
        for (int j = 0; j < M; j++) expected[i * M + j] = exp((double)x[i * M + j]) / sum;
    }
    tensor tx;
    make_tensor(&tx, DLC_F32, x, 2, SHAPE(N, M));
    run_floats(context, program, 1, (const tensor *const[]){&tx}, y, 2, SHAPE(N, M));
    CLOSE(y, expected, N * M, 1e-5);
    dlc_program_destroy(program);
}
static void test_statements(void **state) {
    (void)state;
    on_all_targets(softmax);
}

static const dlc_operator_attribute leak[] = {{"alpha", DLC_ATTRIBUTE_NUMBER, NULL, "0.5"},
                                              {NULL, DLC_ATTRIBUTE_NUMBER, NULL, NULL}};

static void map(dlc_context *context) {
    OK(context, define(context, (dlc_operator_options){
                                    .name = "leaky",
                                    .operands = "x b",
                                    .dtypes = "number",
                                    .attributes = leak,
                                    .expression = "y[...] = select(x[...] > 0, x[...], x[...] * alpha) + b[...]"}));
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3))),
              b = dlc_input(g, "b", DLC_F32, 1, DIMS(SIZE(3)));
    const dlc_setting alpha = dlc_set_number("alpha", 0.25);
    dlc_value y = dlc_apply(g, "leaky", 2, (const dlc_value[]){x, b}, 1, &alpha);
    assert_int_equal(dlc_value_rank(y), 2);
    double number = 0;
    assert_true(dlc_node_number(dlc_value_node(y), "alpha", &number) && number == 0.25);
    dlc_output(g, "y", dlc_exp(y));
    check_text(context, g);
    dlc_program *program = compile(context, g);
    float in[6], bias[3] = {1, 2, 3}, out[6];
    double expected[6];
    fill(in, 6, 4);
    for (int i = 0; i < 6; i++) expected[i] = exp((double)in[i] * (in[i] > 0 ? 1 : 0.25) + (double)bias[i % 3]);
    tensor tx, tb;
    make_tensor(&tx, DLC_F32, in, 2, SHAPE(2, 3));
    make_tensor(&tb, DLC_F32, bias, 1, SHAPE(3));
    run_floats(context, program, 2, (const tensor *const[]){&tx, &tb}, out, 2, SHAPE(2, 3));
    CLOSE(out, expected, 6, 1e-5);
    assert_int_equal(statistics(context).kernel_builds, 1);
    dlc_program_destroy(program);
}
static void test_map_broadcasts_and_fuses(void **state) {
    (void)state;
    on_all_targets(map);
}

static const dlc_operator_attribute widths[] = {{"taps", DLC_ATTRIBUTE_INTEGER, NULL, NULL},
                                                {"stride", DLC_ATTRIBUTE_INTEGER, NULL, "1"},
                                                {NULL, DLC_ATTRIBUTE_INTEGER, NULL, NULL}};

/* Windows, zeros around, a gather, integers, a predicate, two results. */
static void accesses(dlc_context *context) {
    OK(context, define(context, (dlc_operator_options){.name = "window_sum",
                                                       .operands = "x",
                                                       .attributes = widths,
                                                       .shape = "T[n] -> T[(n - taps)/stride + 1]",
                                                       .dtypes = "f32 i32",
                                                       .expression = "y[i] = sum(k: taps, x[i*stride + k])"}));
    OK(context, define(context, (dlc_operator_options){.name = "shifted",
                                                       .operands = "x",
                                                       .shape = "T[n] -> T[n]",
                                                       .expression = "y[i] = x[i - 1 where true else 0]"}));
    OK(context, define(context, (dlc_operator_options){
                                    .name = "rows_of",
                                    .operands = "table ids",
                                    .shape = "T[n, m], i32[k] -> T[k, m]",
                                    .expression = "y[i, j] = table[cast.index(ids[i]), j where true else 0]"}));
    OK(context, define(context, (dlc_operator_options){
                                    .name = "prefix",
                                    .operands = "x",
                                    .dtypes = "float",
                                    .shape = "T[n] -> T[n], T[]",
                                    .expression = "y[i] = sum(k where k <= i, x[k]); s[] = sum(k, x[k]) / cast.T(n)"}));
    dlc_graph *g = parse(
        context, "graph {\n input x: f32[n]\n input t: f32[3, 2]\n input ids: i32[4]\n"
                 " a = window_sum(x, taps=3, stride=2)\n b = shifted(x)\n c = rows_of(t, ids)\n p, s = prefix(b)\n"
                 " output a\n output c\n output p\n output s\n}");
    check_text(context, g);
    dlc_program *program = compile(context, g);
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, t[6] = {10, 11, 20, 21, 30, 31}, a[3], c[8], p[8], s[1];
    int32_t ids[4] = {2, 0, 7, -1};
    tensor tx, tt, ti, oa, oc, op, os;
    const DLTensor *in[3] = {&make_tensor(&tx, DLC_F32, x, 1, SHAPE(8))->dl,
                             &make_tensor(&tt, DLC_F32, t, 2, SHAPE(3, 2))->dl,
                             &make_tensor(&ti, DLC_I32, ids, 1, SHAPE(4))->dl};
    dlc_output_slot out[4] = {{&make_tensor(&oa, DLC_F32, a, 1, SHAPE(3))->dl, NULL},
                              {&make_tensor(&oc, DLC_F32, c, 2, SHAPE(4, 2))->dl, NULL},
                              {&make_tensor(&op, DLC_F32, p, 1, SHAPE(8))->dl, NULL},
                              {&make_tensor(&os, DLC_F32, s, 0, NULL)->dl, NULL}};
    OK(context, dlc_run(program, NULL, in, 3, out, 4));
    CLOSE(a, ((const double[]){6, 12, 18}), 3, 0);
    CLOSE(c, ((const double[]){30, 31, 10, 11, 0, 0, 0, 0}), 8, 0);
    CLOSE(p, ((const double[]){0, 1, 3, 6, 10, 15, 21, 28}), 8, 0);
    CLOSE(s, ((const double[]){3.5}), 1, 0);
    dlc_program_destroy(program);
}
static void test_accesses(void **state) {
    (void)state;
    on_all_targets(accesses);
}

/* ---- expansions and C functions */

static dlc_status expand_gate(void *user, dlc_callback *callback, int count, dlc_value *results) {
    (void)count;
    ++*(_Atomic int *)user;
    dlc_graph *g = dlc_callback_graph(callback);
    dlc_value x = dlc_callback_input(callback, 0), bias = dlc_callback_input(callback, 1);
    double scale = 0;
    if (!dlc_callback_number(callback, "scale", &scale)) return dlc_callback_fail(callback, DLC_INTERNAL, "no scale");
    dlc_value y = dlc_mul(x, dlc_scalar(g, dlc_value_dtype(x), scale));
    results[0] = dlc_mul(dlc_logistic(dlc_value_ok(bias) ? dlc_add(y, bias) : y), x);
    return DLC_OK;
}

static const dlc_operator_attribute scale[] = {{"scale", DLC_ATTRIBUTE_NUMBER, NULL, "2"},
                                               {NULL, DLC_ATTRIBUTE_NUMBER, NULL, NULL}};

static void run_expansion(dlc_context *context) {
    _Atomic int calls = 0;
    OK(context, define(context, (dlc_operator_options){.name = "gate",
                                                       .operands = "x [bias]",
                                                       .dtypes = "float",
                                                       .attributes = scale,
                                                       .shape = "T[...], T[...] -> T[...]",
                                                       .expand = expand_gate,
                                                       .user = (void *)&calls}));
    dlc_graph *g =
        parse(context, "graph {\n input x: f32[n]\n input c: bool[]\n"
                       " y = if(c, x, then=graph {\n input x: f32[n]\n z = gate(x, x, scale=3)\n output z\n },"
                       " otherwise=graph {\n input x: f32[n]\n z = gate(x)\n output z\n })\n output y\n}");
    check_text(context, g);
    assert_int_equal(calls, 0); /* a graph keeps the operator as it is */
    dlc_program *program = compile(context, g);
    assert_int_equal(calls, 2);
    float x[5], y[5];
    bool c = true;
    tensor tx, tc;
    fill(x, 5, 5);
    make_tensor(&tx, DLC_F32, x, 1, SHAPE(5));
    make_tensor(&tc, DLC_BOOL, &c, 0, NULL);
    for (int i = 0; i < 2; i++, c = !c) {
        double expected[5];
        for (int k = 0; k < 5; k++) expected[k] = (double)x[k] / (1 + exp(-(double)x[k] * (c ? 4 : 2)));
        run_floats(context, program, 2, (const tensor *const[]){&tx, &tc}, y, 1, SHAPE(5));
        CLOSE(y, expected, 5, 1e-5);
    }
    dlc_program_destroy(program);
}
static void test_expansion_in_branches(void **state) {
    (void)state;
    on_all_targets(run_expansion);
}

/* Branches that a function builds inside of an expansion, with a capture. */
static dlc_status expand_choice(void *user, dlc_callback *callback, int count, dlc_value *results) {
    (void)user, (void)count;
    dlc_graph *g = dlc_callback_graph(callback), *branch[2] = {dlc_subgraph(g), dlc_subgraph(g)};
    dlc_value c = dlc_callback_input(callback, 0), x = dlc_callback_input(callback, 1), twice = dlc_add(x, x);
    for (int b = 0; b < 2; b++) {
        const dlc_dim dim = dlc_value_dim(x, 0);
        dlc_value own = dlc_input(branch[b], "own", dlc_value_dtype(x), 1, &dim);
        dlc_output(branch[b], "y", b ? dlc_neg(own) : dlc_mul(own, twice));
    }
    dlc_if(c, 1, &x, branch[0], branch[1], 1, results);
    return DLC_OK;
}

static void choice(dlc_context *context) {
    OK(context,
       define(context,
              (dlc_operator_options){
                  .name = "choice", .operands = "c x", .shape = "bool[], T[n] -> T[n]", .expand = expand_choice}));
    dlc_program *program = compile(
        context, parse(context, "graph {\n input c: bool[]\n input x: f32[n]\n y = choice(c, x)\n output y\n}"));
    float x[3] = {1, 2, 3}, y[3];
    bool c = true;
    tensor tx, tc;
    make_tensor(&tx, DLC_F32, x, 1, SHAPE(3));
    make_tensor(&tc, DLC_BOOL, &c, 0, NULL);
    run_floats(context, program, 2, (const tensor *const[]){&tc, &tx}, y, 1, SHAPE(3));
    CLOSE(y, ((const double[]){2, 8, 18}), 3, 0);
    c = false;
    run_floats(context, program, 2, (const tensor *const[]){&tc, &tx}, y, 1, SHAPE(3));
    CLOSE(y, ((const double[]){-1, -2, -3}), 3, 0);
    dlc_program_destroy(program);
}
static void test_expansion_that_builds_branches(void **state) {
    (void)state;
    on_all_targets(choice);
}

static void c_function(dlc_context *context) {
    _Atomic int calls = 0;
    OK(context, define(context, (dlc_operator_options){.name = "repeated",
                                                       .operands = "x",
                                                       .dtypes = "f32",
                                                       .attributes = repeat_attributes,
                                                       .shape_function = repeat_shape,
                                                       .call = repeat,
                                                       .user = (void *)&calls}));
    dlc_graph *g = parse(
        context, "graph {\n input x: f32[n]\n a = mul(x, x)\n y = repeated(a, times=2)\n z = exp(y)\n output z\n}");
    check_text(context, g);
    dlc_program *program = compile(context, g);
    float x[3] = {0.5f, 0.25f, -1}, y[6];
    double expected[6];
    tensor tx;
    for (int i = 0; i < 6; i++) expected[i] = exp((double)x[i % 3] * (double)x[i % 3]);
    make_tensor(&tx, DLC_F32, x, 1, SHAPE(3));
    run_floats(context, program, 1, (const tensor *const[]){&tx}, y, 1, SHAPE(6));
    CLOSE(y, expected, 6, 1e-5);
    assert_int_equal(calls, 1);
    x[0] = 2; /* it refuses, says why, and goes on */
    tensor out;
    const DLTensor *in = &tx.dl;
    dlc_output_slot slot = {&make_tensor(&out, DLC_F32, y, 1, SHAPE(6))->dl, NULL};
    assert_int_equal(dlc_run(program, NULL, &in, 1, &slot, 1), DLC_INVALID_ARGUMENT);
    assert_holds(dlc_error_message(context), "operator repeated: x[0] is too large");
    x[0] = 0.5f;
    run_floats(context, program, 1, (const tensor *const[]){&tx}, y, 1, SHAPE(6));
    CLOSE(y, expected, 6, 1e-5);
    dlc_program_destroy(program);
}
static void test_c_function(void **state) {
    (void)state;
    on_all_targets(c_function);
}

/* x, plus those of a and b that are given: operands that are left out are NULL. */
static dlc_status add_given(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input, int outputs,
                            DLTensor *const *output) {
    float *y = output[0]->data;
    (void)user, (void)outputs;
    if (inputs != 3) return dlc_callback_fail(callback, DLC_INTERNAL, "expected all operands");
    memcpy(y, input[0]->data, sizeof(float) * (size_t)input[0]->shape[0]);
    for (int k = 1; k < inputs; k++)
        for (int64_t i = 0; input[k] && i < input[0]->shape[0]; i++)
            y[i] += (float)k * ((const float *)input[k]->data)[i];
    return DLC_OK;
}

static void left_out(dlc_context *context) {
    OK(context, define(context, (dlc_operator_options){.name = "add_given",
                                                       .operands = "x [a] [b]",
                                                       .shape = "T[n], T[n], T[n] -> T[n]",
                                                       .call = add_given}));
    for (int which = 0; which < 4; which++) {
        float numbers[3] = {1, 2, 3}, got[3];
        tensor in;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n"))), operand[3] = {x};
        for (int k = 1; k < 3; k++) operand[k] = which & k ? x : DLC_NONE;
        dlc_output(g, "y", dlc_apply(g, "add_given", which ? 3 : 1, operand, 0, NULL));
        dlc_program *program = compile(context, g);
        make_tensor(&in, DLC_F32, numbers, 1, SHAPE(3));
        run_floats(context, program, 1, (const tensor *const[]){&in}, got, 1, SHAPE(3));
        for (int i = 0; i < 3; i++) assert_true(got[i] == numbers[i] * (float)(1 + which));
        dlc_program_destroy(program);
    }
}
static void test_left_out(void **state) {
    (void)state;
    on_all_targets(left_out);
}

/* ---- rules */

static char *compiled(dlc_context *context, const char *text) {
    dlc_program *program = compile(context, parse(context, text));
    char *shown = dump(context, program, "graph", 0, NULL, NULL);
    dlc_program_destroy(program);
    return shown;
}

static void rules(dlc_context *context) {
    OK(context, rule(context, "one", "tanh(mul(x, 2))", "sin(x)")); /* commutes: either way */
    OK(context, rule(context, "two", "log(softmax(x, axis=a))", "neg(log_softmax(x, axis=a))"));
    OK(context, rule(context, "twice", "sub(x, x)", "mul(x, 0)"));
    char *text = compiled(
        context, "graph {\n input x: f32[n]\n t = constant f32[] {2}\n a = mul(t, x)\n y = tanh(a)\n output y\n}");
    assert_holds(text, "sin(x)");
    assert_null(strstr(text, "tanh"));
    dlc_text_free(context, text);
    text = compiled(context, "graph {\n input x: f32[n, m]\n a = softmax(x, axis=0)\n y = log(a)\n output y\n}");
    assert_holds(text, "neg(");
    assert_holds(text, "axes=[0]");
    dlc_text_free(context, text);
    text = compiled(context, "graph {\n input x: f32[n]\n input z: f32[n]\n y = sub(x, z)\n output y\n}");
    assert_holds(text, "sub(x, z)"); /* not the same value */
    dlc_text_free(context, text);
}
static void test_rules(void **state) {
    (void)state;
    on_all_targets(rules);
}

static dlc_status halve(void *user, dlc_callback *callback, dlc_value *replacement) {
    dlc_value x = dlc_callback_match(callback, "x");
    assert_true(dlc_value_ok(x));
    assert_false(dlc_value_ok(dlc_callback_match(callback, "y")));
    if (dlc_value_rank(x) == 1)
        *replacement = dlc_mul(x, dlc_scalar(dlc_callback_graph(callback), dlc_value_dtype(x), 0.5));
    if (*(int *)user == 1) return dlc_callback_fail(callback, DLC_UNSUPPORTED, "not today");
    if (*(int *)user == 2) *replacement = dlc_reduce_sum(x, 0, NULL);
    if (*(int *)user == 3) dlc_input(dlc_callback_graph(callback), "more", DLC_F32, 0, NULL);
    if (*(int *)user == 4) *replacement = dlc_value_node(x).graph ? dlc_concat(2, (const dlc_value[]){x, x}, 0) : x;
    return DLC_OK;
}

static void test_rule_function(void **state) {
    (void)state;
    static const char text[] = "graph {\n input x: f32[8]\n y = cbrt(x)\n output y\n}";
    static const struct {
        int kind;
        dlc_status status;
        const char *message;
    } cases[] = {{1, DLC_UNSUPPORTED, "rule half: not today"},
                 {2, DLC_INVALID_ARGUMENT, "rule half: the replacement is f32[], what it replaces is f32[8]"},
                 {3, DLC_INVALID_ARGUMENT, "rule half: dlc_input: this graph can be given values"},
                 {4, DLC_INVALID_ARGUMENT, "rule half: the replacement is f32[16]"}};
    int kind = 0;
    dlc_context *context = open_context("interp", NULL);
    dlc_rule_options options = DLC_RULE_OPTIONS_INIT;
    options.name = "half";
    options.pattern = "cbrt(x)";
    options.replace = halve;
    options.user = &kind;
    OK(context, dlc_rule_register(context, &options));
    char *shown = compiled(context, text);
    assert_holds(shown, "mul(x");
    dlc_text_free(context, shown);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_graph *g = parse(context, text);
        dlc_program *program;
        kind = cases[i].kind;
        assert_int_equal(dlc_compile(context, g, NULL, &program), cases[i].status);
        assert_holds(dlc_error_message(context), cases[i].message);
        assert_int_equal(dlc_graph_status(g), DLC_OK); /* the host's graph is as it was */
        kind = 0;
        dlc_program_destroy(compile(context, g));
    }
    dlc_context_destroy(context);
}

static void test_rules_end(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    OK(context, rule(context, "swap", "atan2(x, y)", "atan2(y, x)")); /* has an end all the same */
    OK(context, rule(context, "grow", "cbrt(x)", "mul(add(cbrt(sin(x)), cbrt(cos(x))), cbrt(tan(x)))"));
    dlc_text_free(context,
                  compiled(context, "graph {\n input x: f32[n]\n input z: f32[n]\n y = atan2(x, z)\n output y\n}"));
    dlc_graph *g = parse(context, "graph {\n input x: f32[n]\n y = cbrt(x)\n output y\n}");
    dlc_program *program;
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_INVALID_ARGUMENT);
    assert_holds(dlc_error_message(context), "rule grow: the graph has grown");
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- passes */

typedef struct seen {
    int nodes, inputs, mode;
} seen;

static dlc_status clip(void *user, dlc_callback *callback, dlc_node node, int count, dlc_value *results) {
    seen *s = user;
    s->nodes++;
    s->inputs = 0;
    for (int i = 0; i < dlc_graph_node_count(node.graph); i++)
        s->inputs += strcmp(dlc_node_operator(dlc_graph_node(node.graph, i)), "input") == 0;
    if (strcmp(dlc_node_operator(node), "exp") != 0) return DLC_OK;
    assert_int_equal(count, 1);
    dlc_value old = dlc_node_input(node, 0), x = dlc_callback_value(callback, old);
    assert_true(dlc_value_ok(x) && dlc_value_rank(x) == dlc_value_rank(old));
    assert_false(dlc_value_ok(dlc_callback_value(callback, x))); /* is new already */
    if (s->mode == 1) return dlc_callback_fail(callback, DLC_CANCELLED, "no exp here");
    if (s->mode == 2) {
        results[0] = old;
        return DLC_OK;
    }
    dlc_value one = dlc_scalar(dlc_callback_graph(callback), dlc_value_dtype(x), 1);
    results[0] = s->mode == 3 ? one : dlc_exp(dlc_min(x, one));
    return DLC_OK;
}

static void passes(dlc_context *context) {
    seen s = {0, 0, 0};
    dlc_pass_options options = DLC_PASS_OPTIONS_INIT;
    options.name = "clip";
    options.function = clip;
    options.user = &s;
    OK(context, dlc_pass_register(context, &options));
    static const char text[] = "graph {\n input x: f32[3]\n input c: bool[]\n a = neg(x)\n"
                               " y = if(c, a, then=graph {\n input x: f32[3]\n z = exp(x)\n output z\n },"
                               " otherwise=graph {\n input x: f32[3]\n output x\n })\n output y\n}";
    dlc_program *program = compile(context, parse(context, text));
    assert_int_equal(s.nodes, 3); /* neg, exp of the branch, if */
    assert_int_equal(s.inputs, 2);
    float x[3] = {-3, 0, 1}, y[3];
    bool c = true;
    tensor tx, tc;
    make_tensor(&tx, DLC_F32, x, 1, SHAPE(3));
    make_tensor(&tc, DLC_BOOL, &c, 0, NULL);
    run_floats(context, program, 2, (const tensor *const[]){&tx, &tc}, y, 1, SHAPE(3));
    CLOSE(y, ((const double[]){exp(1), 1, exp(-1)}), 3, 1e-6);
    dlc_program_destroy(program);
    static const char *const messages[] = {"pass clip: no exp here", "pass clip: result 0 is no value of the graph",
                                           "pass clip: the replacement is f32[], what it replaces is f32[3]"};
    for (s.mode = 1; s.mode <= 3; s.mode++) {
        dlc_graph *g = parse(context, text);
        assert_int_equal(dlc_compile(context, g, NULL, &program), s.mode == 1 ? DLC_CANCELLED : DLC_INVALID_ARGUMENT);
        assert_holds(dlc_error_message(context), messages[s.mode - 1]);
        dlc_graph_destroy(g);
    }
}
static void test_passes(void **state) {
    (void)state;
    on_all_targets(passes);
}

static dlc_status count_composites(void *user, dlc_callback *callback, dlc_node node, int count, dlc_value *results) {
    (void)callback, (void)count, (void)results;
    *(int *)user += strcmp(dlc_node_operator(node), "softmax") == 0;
    return DLC_OK;
}

static void test_positions_of_passes(void **state) {
    (void)state;
    int found[2] = {0, 0};
    dlc_context *context = open_context("interp", NULL);
    for (int i = 0; i < 2; i++) {
        dlc_pass_options options = DLC_PASS_OPTIONS_INIT;
        options.name = i ? "late" : "early";
        options.position = i ? DLC_PASS_SIMPLIFIED : DLC_PASS_FIRST;
        options.function = count_composites;
        options.user = &found[i];
        OK(context, dlc_pass_register(context, &options));
    }
    dlc_text_free(context, compiled(context, "graph {\n input x: f32[n]\n y = softmax(x, axis=0)\n output y\n}"));
    assert_int_equal(found[0], 1);
    assert_int_equal(found[1], 0);
    dlc_context_destroy(context);
}

/* ---- schedules */

typedef struct answers {
    int asked;
    const char *text;
    char name[64];
    char stages[512];
} answers;

static dlc_status answer(void *user, dlc_callback *callback, const dlc_region *region) {
    answers *a = user;
    a->asked++;
    snprintf(a->name, sizeof a->name, "%s", region->name);
    snprintf(a->stages, sizeof a->stages, "%s", region->stages);
    if (a->text && strcmp(a->text, "fail") == 0) return dlc_callback_fail(callback, DLC_UNSUPPORTED, "no idea");
    return a->text ? dlc_callback_set_schedule(callback, a->text) : DLC_OK;
}

static void test_schedules(void **state) {
    (void)state;
    answers a = {0};
    dlc_context *context = open_context("interp", NULL);
    dlc_schedule_options options = DLC_SCHEDULE_OPTIONS_INIT;
    options.name = "adds";
    options.region = "add";
    options.function = answer;
    options.user = &a;
    OK(context, dlc_schedule_register(context, &options));
    const int64_t *const shapes[1] = {SHAPE(6)};
    dlc_program *program = compile(context, parse(context, "graph {\n input x: f32[n]\n y = add(x, x)\n output y\n}"));
    OK(context, dlc_prepare(program, shapes, (const int[]){1}, 1));
    assert_int_equal(a.asked, 1);
    assert_string_equal(a.name, "add");
    assert_holds(a.stages, "map");
    dlc_program_destroy(program);
    a.text = "loops:\n  split add.i0 2 -> a b mask\n  unroll add.b";
    program = compile(context, parse(context, "graph {\n input x: f32[n]\n y = add(x, x)\n output y\n}"));
    OK(context, dlc_prepare(program, shapes, (const int[]){1}, 1));
    assert_int_equal(statistics(context).kernel_builds, 2); /* another schedule is another kernel */
    char *text = dump(context, program, "loops", 1, shapes, (const int[]){1});
    assert_holds(text, "for b in 0..2 unroll");
    dlc_text_free(context, text);
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6];
    tensor tx;
    make_tensor(&tx, DLC_F32, x, 1, SHAPE(6));
    run_floats(context, program, 1, (const tensor *const[]){&tx}, y, 1, SHAPE(6));
    CLOSE(y, ((const double[]){2, 4, 6, 8, 10, 12}), 6, 0);
    dlc_program_destroy(program);
    static const char *const wrong[] = {"loops:\n  split nothing.i0 2 -> a b", "fail"};
    static const char *const messages[] = {"nothing", "schedule adds: no idea"};
    for (int i = 0; i < 2; i++) {
        a.text = wrong[i];
        program = compile(context, parse(context, "graph {\n input x: f32[n]\n y = add(x, x)\n output y\n}"));
        assert_int_not_equal(dlc_prepare(program, shapes, (const int[]){1}, 1), DLC_OK);
        assert_holds(dlc_error_message(context), messages[i]);
        dlc_program_destroy(program);
    }
    program = compile(context, parse(context, "graph {\n input x: f32[n]\n y = exp(x)\n output y\n}"));
    OK(context, dlc_prepare(program, shapes, (const int[]){1}, 1)); /* not its region */
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* ---- memory, threads */

static dlc_status all_of_it(dlc_context *context) {
    static int zero = 0;
    static seen s;
    dlc_program *program = NULL;
    dlc_graph *g = NULL;
    static const char text[] =
        "graph {\n input x: f32[n, 3]\n input w: f32[3, 3]\n a = my_linear(x, w)\n b = gate(a)\n y = cbrt(b)\n output y\n}";
    static _Atomic int calls;
    dlc_status status = define(context, linear_options);
    if (status == DLC_OK)
        status = define(context, (dlc_operator_options){.name = "gate",
                                                        .operands = "x [bias]",
                                                        .attributes = scale,
                                                        .shape = "T[...], T[...] -> T[...]",
                                                        .expand = expand_gate,
                                                        .user = (void *)&calls});
    dlc_rule_options options = DLC_RULE_OPTIONS_INIT;
    options.name = "half";
    options.pattern = "cbrt(x)";
    options.replace = halve;
    options.user = &zero;
    if (status == DLC_OK) status = dlc_rule_register(context, &options);
    dlc_pass_options pass = DLC_PASS_OPTIONS_INIT;
    pass.name = "clip";
    pass.function = clip;
    pass.user = &s;
    if (status == DLC_OK) status = dlc_pass_register(context, &pass);
    static answers a;
    dlc_schedule_options schedule = DLC_SCHEDULE_OPTIONS_INIT;
    schedule.name = "adds";
    schedule.function = answer;
    schedule.user = &a;
    if (status == DLC_OK) status = dlc_schedule_register(context, &schedule);
    if (status == DLC_OK) status = dlc_graph_parse(context, text, strlen(text), &g);
    if (status == DLC_OK) status = dlc_compile(context, g, NULL, &program);
    if (status == DLC_OK)
        status = dlc_prepare(program, (const int64_t *const[]){SHAPE(4, 3), SHAPE(3, 3)}, (const int[]){2, 2}, 2);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    return status;
}

static void test_refused_memory(void **state) {
    (void)state;
    counter memory;
    dlc_allocator allocator = counting(&memory);
    dlc_context_options with = DLC_CONTEXT_OPTIONS_INIT;
    with.allocator = &allocator;
    for (int64_t site = 0, done = 0; !done; site++) {
        dlc_context *context = open_context("interp", &with);
        memory.left = site;
        dlc_status status = all_of_it(context);
        done = memory.left > 0 || status == DLC_OK;
        if (!done && status != DLC_OUT_OF_MEMORY)
            fail_msg("site %d: %s: %s", (int)site, dlc_status_text(status), dlc_error_message(context));
        memory.left = -1;
        dlc_context_destroy(context);
        assert_int_equal(memory.blocks, 0);
    }
}

typedef struct worker {
    dlc_context *context;
    int number;
} worker;

static void work(void *argument) {
    const worker *w = argument;
    char name[32], text[160], expression[64];
    snprintf(name, sizeof name, "own_%d", w->number);
    snprintf(expression, sizeof expression, "y[...] = x[...] + %d", w->number);
    OK(w->context,
       define(w->context,
              (dlc_operator_options){.name = name, .operands = "x", .dtypes = "number", .expression = expression}));
    dlc_status status = define(
        w->context, (dlc_operator_options){
                        .name = "shared", .operands = "x", .dtypes = "number", .expression = "y[...] = x[...] * 2"});
    CHECK(status == DLC_OK || status == DLC_INVALID_ARGUMENT);
    snprintf(text, sizeof text, "graph {\n input x: f32[n]\n a = %s(x)\n y = shared(a)\n output y\n}", name);
    for (int i = 1; i <= 4; i++) {
        dlc_program *program = compile(w->context, parse(w->context, text));
        float x[4] = {0, 1, 2, 3}, y[4];
        tensor tx;
        make_tensor(&tx, DLC_F32, x, 1, SHAPE(i));
        run_floats(w->context, program, 1, (const tensor *const[]){&tx}, y, 1, SHAPE(i));
        for (int k = 0; k < i; k++) CHECK(y[k] == 2 * (x[k] + (float)w->number));
        dlc_program_destroy(program);
    }
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    dlc_context *context = open_context("interp", NULL);
    thread threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){context, i};
        start_thread(&threads[i], work, &workers[i]);
    }
    join_threads(threads, THREADS);
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contraction),
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_map_broadcasts_and_fuses),
        cmocka_unit_test(test_accesses),
        cmocka_unit_test(test_expansion_in_branches),
        cmocka_unit_test(test_expansion_that_builds_branches),
        cmocka_unit_test(test_c_function),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_rule_function),
        cmocka_unit_test(test_rules_end),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_positions_of_passes),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
