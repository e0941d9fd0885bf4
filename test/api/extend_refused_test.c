/* What is refused of what hosts add to the library through <dlc/extend.h>: operators, rules and others when they are registered, uses of
 * them, expansions that fail. Messages say of what and where; what was registered is released. */
#include "api/extend.h"

#include <dlc/gradient.h>

static int released;
static void release(void *user) {
    released += *(int *)user;
}

static dlc_status building_shape(void *user, dlc_callback *callback) {
    assert_false(dlc_value_ok(dlc_exp(dlc_callback_input(callback, 0)))); /* nothing can be built here */
    return repeat_shape(user, callback);
}

static dlc_status expand_into_itself(void *user, dlc_callback *callback, int count, dlc_value *results) {
    (void)count;
    dlc_value x = dlc_callback_input(callback, 0);
    results[0] = dlc_apply(dlc_callback_graph(callback), user, 1, &x, 0, NULL);
    return DLC_OK;
}

static dlc_status expand_wrongly(void *user, dlc_callback *callback, int count, dlc_value *results) {
    dlc_value x = dlc_callback_input(callback, 0);
    const char *how = user;
    (void)count;
    if (*how == 's') results[0] = dlc_reduce_sum(x, 0, NULL);
    if (*how == 'f') return dlc_callback_fail(callback, DLC_OK, "it does not work");
    if (*how == 'o') dlc_output(dlc_callback_graph(callback), "y", x), results[0] = x;
    if (*how == 'l') results[0] = x, dlc_callback_fail(callback, DLC_DEVICE_ERROR, "it is told, and forgotten");
    if (*how == 'm') results[0] = dlc_matmul(x, x);
    return *how == 'u' ? (dlc_status)77 : DLC_OK;
}

static dlc_status refusing_shape(void *user, dlc_callback *callback) {
    (void)user;
    return dlc_callback_fail(callback, DLC_UNSUPPORTED, "not of this machine");
}

static const dlc_operator_attribute wrong_choice[] = {{"mode", DLC_ATTRIBUTE_CHOICE, "in out", "up"}, {0}};

static void test_refused_operators(void **state) {
    (void)state;
    static const struct {
        dlc_operator_options options;
        const char *message;
    } cases[] = {
        {{.name = "Bad name", .operands = "x", .expression = "y[i] = x[i]"}, "is no name for an operator"},
        {{.name = "exp", .operands = "x", .expression = "y[i] = x[i]"}, "there is an operator exp in the library"},
        {{.name = "input", .operands = "x", .expression = "y[i] = x[i]"}, "is a word of the text form"},
        {{.name = "a", .operands = "x", .attributes = wrong_choice, .expression = "y[i] = x[i]"},
         "attribute mode: its default \"up\" is none of its choices: in out"},
        {{.name = "a", .operands = "x"}, "0 of expression, expand and call are set"},
        {{.name = "a", .operands = "x", .expression = "y[i] = x[i]", .call = repeat}, "2 of expression"},
        {{.name = "a", .operands = "x", .call = repeat}, "there is no shape rule"},
        {{.name = "a", .operands = "", .expression = "y[i] = 1"}, "operands: expected their names"},
        {{.name = "a", .operands = "x x", .expression = "y[i] = x[i]"}, "two operands are called x"},
        {{.name = "a", .operands = "[x] y", .expression = "y[i] = x[i]"}, "those stand last"},
        {{.name = "a", .operands = "x", .dtypes = "f32 soup", .expression = "y[i] = x[i]"},
         "\"soup\" is no supported element type"},
        {{.name = "a", .operands = "x", .shape = "T[n]", .expression = "y[i] = x[i]"}, "shape:1:5: expected '->'"},
        {{.name = "a", .operands = "x", .shape = "T[n], T[n] -> T[n]", .expression = "y[i] = x[i]"},
         "the shape rule has 2 operands, there are 1"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[m]", .expression = "y[i] = x[i]"},
         "a: shape:1:11: unknown name 'm'"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[m]", .call = repeat}, "a: shape:1:11: unknown name 'm'"},
        {{.name = "a", .operands = "x", .shape = "T[n + 1] -> T[n]", .call = repeat}, "a: shape:1:3: unknown name 'n'"},
        {{.name = "a", .operands = "x", .shape = "T[n] ->\n T[n / 0]", .call = repeat},
         "a: shape:2:4: division of an index by 0"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[n * (9223372036854775807 * 9)]", .call = repeat},
         "a: shape:1:11: index arithmetic overflows 64 bits"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[n +]", .call = repeat},
         "a: shape:1:14: expected an expression"},
        {{.name = "a", .operands = "x", .shape = "T[..., n] -> T[n, ...]", .call = repeat},
         "a: shape:1:19: `...` stands before all dimensions"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[..., n]", .call = repeat}, "no operand has the `...`"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> q[n]", .call = repeat},
         "q is no element type, and no operand's"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[n, n]", .expression = "y[i] = x[i]"}, "y has 1 indices"},
        {{.name = "a", .operands = "x", .expression = "y[i] = z[i]"}, "z[...]: there is no operand"},
        {{.name = "a", .operands = "x", .dtypes = "f32", .expression = "y[i] = x[i + 1]"},
         "a(x: f32[x.0]): what index `i` of y runs over is not known"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[n]", .expression = "y[i] = x[i + 1]"},
         "`x` is read outside of its dimension 0"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[n]", .expression = "y[i] = x[i - 1]"},
         "`x` is read outside of its dimension 0"},
        {{.name = "a", .operands = "x", .expression = "y[i] = sum(k, x[i])"}, "what index k runs over is not known"},
        {{.name = "a", .operands = "x", .expression = "y[i] = sum(k: -3, x[i])"}, "the size of index `k` is negative"},
        {{.name = "a", .operands = "x", .expression = "y[i] = x[i] +"}, "expected an expression"},
        {{.name = "a", .operands = "x", .expression = "y[i] = exp(x[i]"}, "a:1:16: expected ')', found the end"},
        {{.name = "a", .operands = "x", .expression = "z[i] = x[i];\n  y[i] = z[i] + 1 + true"}, "a:2:"},
        {{.name = "a", .operands = "x", .expression = "y[i] = acc(0):f32 + x[i]"},
         "acc is no function of tensor expressions"},
        {{.name = "a", .operands = "x", .expression = "y[i] = pick(i, x[i], 0)"},
         "pick is no function of tensor expressions"},
        {{.name = "a", .operands = "x", .dtypes = "i32", .expression = "y[i] = sqrt(x[i])"},
         "sqrt is of floating-point numbers, not of i32"},
        {{.name = "a", .operands = "x", .dtypes = "f32", .expression = "y[i] = xor(x[i], x[i])"}, "xor is of integers"},
        {{.name = "a", .operands = "x", .expression = "y[i] = soup(x[i])"}, "unknown function 'soup'"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> i32[n]", .dtypes = "f32", .expression = "y[i] = x[i]"},
         "expected an expression of dtype i32"},
        {{.name = "a", .operands = "x", .expression = "x[i] = x[i]"}, "x is an operand or a statement already"},
        {{.name = "a", .operands = "x", .shape = "T[n] -> T[n]", .expression = "y[i] = x[i / 0]"}, ""},
        {{.name = "a", .operands = "x", .shape = "c64[n] -> f32[n]", .expression = "y[i] = cast.f32(x[i])"},
         "expressions are not of c64"},
        {{.name = "taken", .operands = "x", .expression = "y[i] = x[i]"}, "registered under the name taken already"},
    };
    counter memory;
    dlc_context *context = open_counted("interp", &memory);
    int one = 1;
    released = 0;
    OK(context,
       define(context,
              (dlc_operator_options){
                  .name = "taken", .operands = "x", .expression = "y[i] = x[i]", .user = &one, .release = release}));
    int64_t blocks = memory.blocks;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_operator_options options = cases[i].options;
        options.user = &one;
        options.release = release;
        dlc_status status = define(context, options);
        if (status != DLC_INVALID_ARGUMENT && status != DLC_PARSE_ERROR)
            fail_msg("case %zu: %s", i, dlc_status_text(status));
        assert_holds(dlc_error_message(context), cases[i].message);
        const char *name = cases[i].options.name, *message = dlc_error_message(context);
        assert_holds(message, "dlc_operator_register: ");
        message += strlen("dlc_operator_register: ");
        message += *message == '"'; /* what is no name */
        assert_memory_equal(message, name, strlen(name));
        assert_int_equal(released, i + 1); /* what failed is the host's again */
        assert_int_equal(memory.blocks, blocks);
    }
    assert_int_equal(dlc_operator_register(context, NULL), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_operator_register(context, &(dlc_operator_options){.name = "a"}), DLC_INVALID_ARGUMENT);
    released = 0;
    dlc_context_destroy(context);
    assert_int_equal(released, 1);
    assert_int_equal(memory.blocks, 0);
}

static void test_refused_rules_and_others(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"x", "x", "the pattern is no operator"},
        {"soup(x)", "x", "there is no operator soup"},
        {"exp(x", "x", "expected"},
        {"exp(x)", "y", "the replacement's y is not in the pattern"},
        {"exp(x, x)", "x", "r: pattern:1:10: exp: 2 operands, expected 1 (x)"},
        {"add(x)", "x", "add: 1 operands, expected 2 (a b)"},
        {"exp(x, axis=1)", "x", "exp has no attribute axis"},
        {"softmax(x, axis=a)", "log_softmax(x, axis=b)", "the replacement's b is not in"},
        {"cast(x)", "x", "attribute dtype is required"},
        {"input(x)", "x", "input cannot stand in a rule"}};
    dlc_context *context = open_context("interp", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_not_equal(rule(context, "r", cases[i][0], cases[i][1]), DLC_OK);
        assert_holds(dlc_error_message(context), cases[i][2]);
    }
    assert_int_equal(rule(context, NULL, "exp(x)", "x"), DLC_INVALID_ARGUMENT);
    assert_int_equal(rule(context, "r", "exp(x)", NULL), DLC_INVALID_ARGUMENT);
    assert_holds(dlc_error_message(context), "dlc_rule_register: r: expected a replacement or a function");
    OK(context, rule(context, "r", "exp(cbrt(x))", "x"));
    assert_int_equal(rule(context, "r", "exp(cbrt(x))", "x"), DLC_INVALID_ARGUMENT);
    dlc_pass_options pass = DLC_PASS_OPTIONS_INIT;
    pass.name = "p";
    assert_int_equal(dlc_pass_register(context, &pass), DLC_INVALID_ARGUMENT);
    assert_holds(dlc_error_message(context), "dlc_pass_register: p: there is no function");
    dlc_schedule_options schedule = DLC_SCHEDULE_OPTIONS_INIT;
    schedule.name = "s";
    assert_int_equal(dlc_schedule_register(context, &schedule), DLC_INVALID_ARGUMENT);
    dlc_context_destroy(context);
}

/* What the library's own operators would say. */
static void test_refused_uses(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"graph {\n input x: i32[3, 5]\n input w: i32[5, 2]\n y = my_linear(x, w)\n}",
         "my_linear: operand 0 (`x`) is i32[3, 5], expected one of these element types: float"},
        {"graph {\n input x: f32[3, 5]\n input w: f32[4, 2]\n y = my_linear(x, w)\n}",
         "<text>:4: my_linear(x: f32[3, 5], w: f32[4, 2]): sizes of dimension `k` must be equal; they are 4 and 5"},
        {"graph {\n input x: f32[3]\n input w: f32[4, 2]\n y = my_linear(x, w)\n}",
         "operand `x` has rank 1, expected 2 or more"},
        {"graph {\n input x: f32[3, 5]\n input w: f64[5, 2]\n y = my_linear(x, w)\n}",
         "operand `w` is f64, expected f32"},
        {"graph {\n input x: f32[3, 5]\n y = my_linear(x)\n}", "my_linear: 1 operands were given, expected 2 (x w)"},
        {"graph {\n input x: f32[3, 5]\n y = my_linear(x, x, axis=2)\n}",
         "operator my_linear has no attribute axis; it has none"},
        {"graph {\n input x: f32[3]\n y = inner(x)\n}", "`x` is read outside of its dimension 0"},
        {"graph {\n input x: f32[3]\n y = repeated(x)\n}", "the size of index `k` is negative"},
        {"graph {\n input x: i4[6]\n y = inner(x)\n}", "expected one of these element types: any"},
        {"graph {\n input x: c64[6]\n y = inner(x)\n}", "expected one of these element types: any"},
        {"graph {\n input x: f32[6]\n y = parted(x, times=0)\n}",
         "<text>:3: parted(x: f32[6]): dimension `n / times`: division of an index by 0"},
    };
    dlc_context *context = open_context("interp", NULL);
    OK(context, define(context, linear_options));
    OK(context,
       define(context,
              (dlc_operator_options){
                  .name = "inner", .operands = "x", .shape = "T[n] -> T[2]", .expression = "y[i] = x[i + 2]"}));
    OK(context, define(context, (dlc_operator_options){.name = "parted",
                                                       .operands = "x",
                                                       .attributes = repeat_attributes,
                                                       .shape = "T[n] -> T[n / times]",
                                                       .call = repeat}));
    OK(context, define(context, (dlc_operator_options){.name = "repeated",
                                                       .operands = "x",
                                                       .shape = "T[n] -> T[n]",
                                                       .expression = "y[i] = sum(k: n - 4, x[i])"}));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_graph *g;
        assert_int_not_equal(dlc_graph_parse(context, cases[i].text, strlen(cases[i].text), &g), DLC_OK);
        assert_holds(dlc_error_message(context), cases[i].message);
    }
    dlc_graph *g = parse(context, "graph {\n input x: f32[n]\n y = inner(x)\n output y\n}");
    dlc_program *program = compile(context, g);
    assert_int_equal(dlc_prepare(program, (const int64_t *const[]){SHAPE(3)}, (const int[]){1}, 1),
                     DLC_INVALID_ARGUMENT);
    assert_holds(dlc_error_message(context), "`x` is read outside of its dimension 0");
    OK(context, dlc_prepare(program, (const int64_t *const[]){SHAPE(4)}, (const int[]){1}, 1));
    dlc_program_destroy(program);
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)));
    assert_false(dlc_value_ok(dlc_apply(g, "soup", 1, &x, 0, NULL)));
    assert_int_equal(dlc_graph_status(g), DLC_NOT_FOUND);
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(3)));
    assert_false(dlc_value_ok(dlc_apply(g, "sort", 1, &x, 0, NULL)));
    assert_holds(dlc_graph_message(g), "sort has 2 results: use dlc_apply_all");
    dlc_graph_destroy(g);
    dlc_context *other = open_context("interp", NULL); /* knows nothing of it */
    assert_int_not_equal(dlc_graph_parse(other, cases[1].text, strlen(cases[1].text), &g), DLC_OK);
    assert_holds(dlc_error_message(other), "there is no operator my_linear");
    dlc_context_destroy(other);
    dlc_context_destroy(context);
}

/* A setting of another kind than its attribute's is not taken for the default, or for 0. */
static void test_refused_settings(void **state) {
    (void)state;
    const int64_t axes[1] = {0};
    const struct {
        const char *operator;
        dlc_setting setting;
        const char *message;
    } cases[] = {
        {"softmax", dlc_set_string("axis", "q"), "softmax: attribute axis is set to a string, expected an integer"},
        {"softmax", dlc_set_number("axis", 1), "softmax: attribute axis is set to a number, expected an integer"},
        {"softmax", dlc_set_list("axis", 1, axes), "axis is set to a list of integers, expected an integer"},
        {"softmax", {.name = "axis", .integer = 1}, "axis is set to nothing, expected an integer"},
        {"reduce_sum", dlc_set_integer("axes", 0), "axes is set to an integer, expected a list of integers"},
        {"cast", dlc_set_string("dtype", "i8"), "dtype is set to a string, expected an element type"},
        {"resize", dlc_set_integer("mode", 0), "mode is set to an integer, expected a word"},
    };
    dlc_context *context = open_context("interp", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SIZE(4)));
        dlc_apply(g, cases[i].operator, 1, &x, 1, &cases[i].setting);
        assert_int_equal(dlc_graph_status(g), DLC_INVALID_ARGUMENT);
        assert_holds(dlc_graph_message(g), cases[i].message);
        dlc_graph_destroy(g);
    }
    dlc_context_destroy(context);
}

static void test_expansions_that_fail(void **state) {
    (void)state;
    static const struct {
        const char *name;
        dlc_operator_expand *expand;
        const char *user, *message;
    } cases[] = {
        {"own", expand_into_itself, "own", "operator own: its expansion contains itself"},
        {"one", expand_into_itself, "other", "still expands after"},
        {"other", expand_into_itself, "one", "still expands after"},
        {"nowhere", expand_into_itself, "soup", "operator nowhere: dlc_apply: there is no operator soup"},
        {"nothing", expand_wrongly, "n", "operator nothing: the expansion has not set result 0"},
        {"shape", expand_wrongly, "s", "operator shape: result 0 of the expansion is f32[], by the shape rule f32[n]"},
        {"failing", expand_wrongly, "f", "operator failing: it does not work"},
        {"lost", expand_wrongly, "l", "operator lost: it is told, and forgotten"},
        {"outputs", expand_wrongly, "o", "operator outputs: dlc_output: this graph can be given values"},
        {"mistaken", expand_wrongly, "m", "operator mistaken: "},
        {"unheard", expand_wrongly, "u", "operator unheard: it returned 77, which is no status"},
    };
    dlc_context *context = open_context("interp", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        OK(context, define(context, (dlc_operator_options){.name = cases[i].name,
                                                           .operands = "x",
                                                           .shape = "T[n] -> T[n]",
                                                           .expand = cases[i].expand,
                                                           .user = (void *)(uintptr_t)cases[i].user}));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        dlc_program *program;
        snprintf(text, sizeof text, "graph {\n input x: f32[n]\n y = %s(x)\n output y\n}", cases[i].name);
        dlc_graph *g = parse(context, text);
        dlc_status status = dlc_compile(context, g, NULL, &program);
        assert_true(status != DLC_OK && (unsigned)status <= DLC_INTERNAL);
        assert_holds(dlc_error_message(context), cases[i].message);
        dlc_graph_destroy(g);
    }
    for (int use = 0; use < 3; use++) { /* derivatives and mixed precision expand, too */
        dlc_graph *ring;
        OK(context, dlc_graph_create(context, &ring));
        dlc_value x = dlc_input(ring, "x", DLC_F32, 1, DIMS(SYMBOL("n"))), y = dlc_apply(ring, "one", 1, &x, 0, NULL),
                  z;
        if (use == 0) dlc_gradient(dlc_reduce_sum(y, 0, NULL), 1, &x, &z);
        if (use == 1) dlc_jvp(1, &x, &x, 1, &y, &z);
        if (use == 2) dlc_mixed_precision(1, &y, DLC_BF16, &z);
        assert_int_equal(dlc_graph_status(ring), DLC_INVALID_ARGUMENT);
        assert_holds(dlc_graph_message(ring), "the expansion of one (node 1) contains it");
        dlc_graph_destroy(ring);
    }
    OK(context, define(context, (dlc_operator_options){.name = "closed",
                                                       .operands = "x",
                                                       .attributes = repeat_attributes,
                                                       .shape_function = building_shape,
                                                       .call = repeat}));
    dlc_graph *g;
    static const char text[] = "graph {\n input x: f32[3]\n y = closed(x, times=2)\n output y\n}";
    assert_int_not_equal(dlc_graph_parse(context, text, strlen(text), &g), DLC_OK);
    assert_holds(dlc_error_message(context), "exp: this graph can be read only here");
    OK(context,
       define(context, (dlc_operator_options){
                           .name = "elsewhere", .operands = "x", .shape_function = refusing_shape, .call = repeat}));
    static const char other[] = "graph {\n input x: f32[3]\n y = elsewhere(x)\n output y\n}";
    assert_int_equal(dlc_graph_parse(context, other, strlen(other), &g), DLC_UNSUPPORTED);
    assert_holds(dlc_error_message(context), "elsewhere(x: f32[3]): not of this machine");
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_operators),        cmocka_unit_test(test_refused_settings),
        cmocka_unit_test(test_refused_rules_and_others), cmocka_unit_test(test_refused_uses),
        cmocka_unit_test(test_expansions_that_fail),
    };
    return cmocka_run_group_tests_name("extend: refused", tests, NULL, NULL);
}
