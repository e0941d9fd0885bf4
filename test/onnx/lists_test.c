/* Sequences and optionals in models and as their inputs and outputs, and runners of such models: guards, threads, refused memory. */
#include "onnx/values.h"

/* ---- sequences and optionals ----------------------------------------------------------------------------------------------- */

static void test_ports(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "Identity y x");
    add_port(&g, 11, "x", "osT1 -");
    add_port(&g, 11, "words", "T8 n");
    add_port(&g, 11, "map", "m8T1 ");
    add_port(&g, 12, "y", "osT1 -");
    fixture f = made_of(g);
    dlc_onnx_port port;
    OK(context, dlc_onnx_port_at(f.model, DLC_ONNX_INPUT, 0, &port));
    assert_int_equal(port.kind, DLC_ONNX_SEQUENCE);
    assert_true(port.optional);
    assert_int_equal(port.dtype, -1);
    assert_string_equal(port.type, "optional(seq(tensor(float)))");
    OK(context, dlc_onnx_port_at(f.model, DLC_ONNX_INPUT, 1, &port));
    assert_int_equal(port.kind, DLC_ONNX_STRINGS);
    assert_int_equal(port.rank, 1);
    OK(context, dlc_onnx_port_at(f.model, DLC_ONNX_INPUT, 2, &port));
    assert_int_equal(port.kind, DLC_ONNX_MAP);
    assert_string_equal(port.type, "map(string,tensor(float))");
    finish(&f);
}

/* Insert t at p, erase the first, take the last, and the length. */
static fixture list_model(void) {
    message g = started();
    add_node(&g, "SequenceInsert longer x t p");
    add_node(&g, "SequenceErase y longer zero");
    add_node(&g, "SequenceAt last y minus");
    add_node(&g, "SequenceLength n y");
    add_integers(&g, "zero", 0, 1, (int64_t[]){0}), add_integers(&g, "minus", 0, 1, (int64_t[]){-1});
    add_port(&g, 11, "x", "sT1 -");
    add_port(&g, 11, "t", "T1 n");
    add_port(&g, 11, "p", "T7 ");
    add_port(&g, 12, "y", "sT1 -");
    add_port(&g, 12, "last", "T1 -");
    add_port(&g, 12, "n", "T7 ");
    return made_of(g);
}

static void test_sequence(void **state) {
    fixture f = list_model();
    float data[3][3] = {{1, 2, 3}, {4, 5}, {6}};
    int64_t p = -1;
    (void)state;
    held a = numbers(data[0], kDLFloat, 32, 1, 3), b = numbers(data[1], kDLFloat, 32, 1, 2),
         c = numbers(data[2], kDLFloat, 32, 1, 1), at = numbers(&p, kDLInt, 64, 0, 1);
    const dlc_onnx_value elements[] = {value_of_tensor(&a), value_of_tensor(&b)};
    for (int turn = 0; turn < 4; turn++) {
        dlc_onnx_value *y[3];
        p = turn % 2 ? -1 : 2; /* before the last one, and behind it */
        const dlc_onnx_value in[] = {list_of(elements, 2), value_of_tensor(&c), value_of_tensor(&at)};
        run_values(&f, in, 3, y, 3);
        assert_int_equal(y[0]->kind, DLC_ONNX_SEQUENCE);
        assert_int_equal(y[0]->count, 2);
        expect_floats(&y[0]->elements[turn % 2 ? 1 : 0], 2, data[1]);
        expect_floats(&y[0]->elements[turn % 2 ? 0 : 1], 1, data[2]);
        expect_floats(y[1], turn % 2 ? 2 : 1, data[turn % 2 ? 1 : 2]);
        expect_integer(y[2], 2);
        release(y, 3);
    }
    expect_imports(&f, 2, "p by its elements");
    p = 5;
    const dlc_onnx_value outside[] = {list_of(elements, 2), value_of_tensor(&c), value_of_tensor(&at)};
    expect_failure(&f, outside, 3, 3, DLC_INVALID_ARGUMENT, "SequenceInsert longer x t p");
    expect_failure(&f, outside, 3, 3, DLC_INVALID_ARGUMENT, "position 5 in a sequence of 2");
    p = 0;
    const dlc_onnx_value none[] = {list_of(NULL, 0), value_of_tensor(&c), value_of_tensor(&at)};
    expect_failure(&f, none, 3, 3, DLC_INVALID_ARGUMENT, "SequenceAt last y minus");
    finish(&f);
}

/* What arrives is not what the file says. */
static void test_wrong_values(void **state) {
    fixture f = list_model();
    float data[3] = {1, 2, 3};
    int64_t p = 0, huge = INT64_MAX, negative = -1;
    (void)state;
    held a = numbers(data, kDLFloat, 32, 1, 3), wrong = numbers(data, kDLInt, 32, 1, 3),
         at = numbers(&p, kDLInt, 64, 0, 1);
    words w = words_of(1, (const char *const[]){"a"});
    const dlc_onnx_value good[] = {value_of_tensor(&a), value_of_tensor(&a)},
                         mixed[] = {value_of_tensor(&a), value_of_tensor(&wrong)},
                         text[] = {value_of_tensor(&a), value_of_words(&w)}, null[] = {{.kind = DLC_ONNX_TENSOR}};
    dlc_onnx_value in[] = {list_of(mixed, 2), value_of_tensor(&a), value_of_tensor(&at)};
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.1 has elements of another type");
    in[0] = list_of(text, 2);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.1 is strings; the model takes tensor(float)");
    in[0] = list_of(null, 1);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.0 is NULL");
    in[0] = list_of(NULL, 3);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "sequence x");
    in[0] = list_of(good, SIZE_MAX);
    expect_failure(&f, in, 3, 3, DLC_BUDGET_EXCEEDED, "sequence x");
    in[0] = value_of_tensor(&a);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x is a tensor; the model takes seq(tensor(float))");
    in[0] = (dlc_onnx_value){.kind = DLC_ONNX_NONE};
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x is nothing");
    in[0] = (dlc_onnx_value){.kind = (dlc_onnx_kind)77};
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x is of no kind");
    in[0] = list_of(good, 2), in[1] = list_of(good, 2);
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "t is a sequence");
    in[1] = value_of_tensor(&a);
    a.view.shape = &negative;
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.0");
    a.view.shape = &huge;
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.0");
    a.view.shape = a.shape, a.view.data = NULL;
    expect_failure(&f, in, 3, 3, DLC_INVALID_ARGUMENT, "x.0 has no data");
    a.view.data = data;
    dlc_onnx_value *y[3];
    const dlc_onnx_value *given[] = {&in[0], NULL, &in[2]};
    assert_int_equal(dlc_onnx_run_values(f.runner, NULL, given, 3, y, 3), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_run_values(f.runner, NULL, given, 2, y, 3), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_run_values(f.runner, NULL, given, 3, y, 2), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_run_values(NULL, NULL, given, 3, y, 3), DLC_INVALID_ARGUMENT);
    const DLTensor *tensors[] = {&a.view, &a.view, &at.view};
    dlc_output_slot slots[3] = {{NULL, NULL}};
    assert_int_equal(dlc_onnx_run(f.runner, NULL, tensors, 3, slots, 3), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "x is seq(tensor(float)), which only dlc_onnx_run_values"));
    dlc_graph *graph;
    assert_int_equal(dlc_onnx_graph(f.model, NULL, &graph), DLC_UNSUPPORTED);
    run_values(&f, in, 3, y, 3); /* all of this left the runner as it was */
    release(y, 3);
    finish(&f);
}

/* Models that put together what does not go together. */
static void test_wrong_models(void **state) {
    static const struct {
        const char *node[3], *why;
        dlc_status status;
    } cases[] = {
        {{"SequenceConstruct l x i"}, "elements of type i64 in a sequence of f32", DLC_PARSE_ERROR},
        {{"SequenceEmpty l | dtype=i:7", "SequenceInsert m l x"}, "of type f32 in a sequence of i64", DLC_PARSE_ERROR},
        {{"SequenceConstruct l x", "Neg m l"}, "value \"l\" is a sequence", DLC_PARSE_ERROR},
        {{"SequenceLength l x"}, "\"x\", is a tensor; a sequence", DLC_PARSE_ERROR},
        {{"Neg l w"}, "value \"w\" is strings", DLC_UNSUPPORTED},
        {{"SequenceConstruct l x", "SequenceInsert m l l"}, "is no tensor", DLC_PARSE_ERROR},
        {{"StringConcat l x w"}, "\"x\", is no tensor of strings", DLC_PARSE_ERROR},
        {{"SequenceConstruct l x", "Reshape m x l"}, "value \"l\" is a sequence", DLC_PARSE_ERROR},
        {{"SequenceEmpty l", "ConcatFromSequence m l | axis=i:0"}, "without elements", DLC_INVALID_ARGUMENT},
        {{"Cast l w | to=i:1"}, "string \"a\" is no number", DLC_INVALID_ARGUMENT},
        {{"RegexFullMatch l w | pattern=s:a"}, "no regular expressions", DLC_UNSUPPORTED},
        {{"Optional l"}, "neither an operand nor a type", DLC_PARSE_ERROR},
        {{".ZipMap l x"}, "lists of keys", DLC_PARSE_ERROR},
        {{".CastMap l x"}, "operand 0 is no map", DLC_PARSE_ERROR},
        {{"SplitToSequence l x minus"}, "parts of size -1", DLC_INVALID_ARGUMENT},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        message g = started();
        float data[3] = {1, 2, 3};
        for (int n = 0; n < 3 && cases[c].node[n]; n++) add_node(&g, cases[c].node[n]);
        add_node(&g, "Identity y x");
        add_strings(&g, "w", 1, (const char *const[]){"a"});
        add_integers(&g, "i", 1, 3, (int64_t[]){1, 2, 3});
        add_integers(&g, "minus", 0, 1, (int64_t[]){-1});
        add_port(&g, 11, "x", "T1 3");
        add_port(&g, 11, "unused", "sT1 -");
        add_port(&g, 12, "y", "T1 3");
        fixture f = made_of(g);
        held x = numbers(data, kDLFloat, 32, 1, 3);
        const dlc_onnx_value in[] = {value_of_tensor(&x), list_of(NULL, 0)};
        expect_failure(&f, in, 2, 1, cases[c].status, cases[c].why);
        finish(&f);
    }
}

/* y: the element if there is one, else its negative second input. */
static void test_optional(void **state) {
    message g = started(), then = {0}, otherwise = {0};
    (void)state;
    add_node(&then, "OptionalGetElement a x"), add_port(&then, 12, "a", "T1 -");
    add_node(&otherwise, "Neg b t"), add_port(&otherwise, 12, "b", "T1 -");
    message node = {0}, a = {0}, b = {0};
    add_node(&g, "OptionalHasElement has x");
    add_text(&node, 1, "has"), add_text(&node, 2, "y"), add_text(&node, 4, "If");
    add_text(&a, 1, "then_branch"), add_message(&a, 6, then), add_int(&a, 20, 5);
    add_text(&b, 1, "else_branch"), add_message(&b, 6, otherwise), add_int(&b, 20, 5);
    add_message(&node, 5, a), add_message(&node, 5, b);
    add_message(&g, 1, node);
    add_port(&g, 11, "x", "oT1 n");
    add_port(&g, 11, "t", "T1 n");
    add_port(&g, 12, "y", "T1 n");
    add_port(&g, 12, "has", "T9 ");
    fixture f = made_of(g);
    float data[2][2] = {{1, 2}, {3, 4}}, negative[2] = {-3, -4};
    held x = numbers(data[0], kDLFloat, 32, 1, 2), t = numbers(data[1], kDLFloat, 32, 1, 2);
    for (int turn = 0; turn < 4; turn++) {
        dlc_onnx_value in[] = {{.kind = DLC_ONNX_NONE}, value_of_tensor(&t)}, *y[2];
        if (turn % 2) in[0] = value_of_tensor(&x);
        run_values(&f, in, 2, y, 2);
        expect_floats(y[0], 2, turn % 2 ? data[0] : negative);
        assert_int_equal(*(const bool *)y[1]->tensor->data, turn % 2);
        release(y, 2);
    }
    expect_imports(&f, 2, "values by their structure");
    finish(&f);
    g = started();
    add_node(&g, "OptionalGetElement y x");
    add_port(&g, 11, "x", "oT1 n");
    add_port(&g, 12, "y", "T1 n");
    f = made_of(g);
    const dlc_onnx_value nothing = {.kind = DLC_ONNX_NONE};
    expect_failure(&f, &nothing, 1, 1, DLC_INVALID_ARGUMENT, "optional \"x\" is empty");
    finish(&f);
}

/* Sums of each element with t, as a sequence; its elements side by side. */
static void test_map_over_sequence(void **state) {
    message g = started(), body = {0};
    (void)state;
    add_node(&body, "Add c a b");
    add_port(&body, 11, "a", "T1 n"), add_port(&body, 11, "b", "T1 -"), add_port(&body, 12, "c", "T1 n");
    add_node_with(&g, "SequenceMap y x t", "body", &body);
    add_node(&g, "ConcatFromSequence joined y | axis=i:0");
    add_node(&g, "ConcatFromSequence stacked y | axis=i:-1 new_axis=i:1");
    add_node(&g, "SplitToSequence parts joined three");
    add_integers(&g, "three", 0, 1, (int64_t[]){3});
    add_port(&g, 11, "x", "sT1 n"), add_port(&g, 11, "t", "T1 ");
    add_port(&g, 12, "joined", "T1 n"), add_port(&g, 12, "stacked", "T1 n m"), add_port(&g, 12, "parts", "sT1 -");
    fixture f = made_of(g);
    float data[2][2] = {{1, 2}, {3, 4}}, ten = 10;
    held a = numbers(data[0], kDLFloat, 32, 1, 2), b = numbers(data[1], kDLFloat, 32, 1, 2),
         t = numbers(&ten, kDLFloat, 32, 0, 1);
    const dlc_onnx_value elements[] = {value_of_tensor(&a), value_of_tensor(&b)};
    dlc_onnx_value in[] = {list_of(elements, 2), value_of_tensor(&t)}, *y[3];
    for (int turn = 0; turn < 2; turn++) {
        run_values(&f, in, 2, y, 3);
        expect_floats(y[0], 4, (float[]){11, 12, 13, 14});
        expect_floats(y[1], 4, (float[]){11, 13, 12, 14});
        assert_int_equal(y[2]->count, 2);
        expect_floats(&y[2]->elements[0], 3, (float[]){11, 12, 13});
        expect_floats(&y[2]->elements[1], 1, (float[]){14});
        release(y, 3);
    }
    finish(&f);
}

/* l: the first `trips` multiples of x, in a sequence that the loop carries; and their numbers, stacked. */
static fixture loop_model(const char *condition) {
    message g = started(), body = {0};
    add_node(&body, "Cast k i | to=i:1");
    add_node(&body, "Mul m k x");
    add_node(&body, "SequenceInsert out in m");
    add_node(&body, condition);
    add_port(&body, 11, "i", "T7 "), add_port(&body, 11, "go", "T9 "), add_port(&body, 11, "in", "sT1 -");
    add_port(&body, 12, "on", "T9 "), add_port(&body, 12, "out", "sT1 -"), add_port(&body, 12, "k", "T1 ");
    add_node(&g, "SequenceEmpty empty");
    add_node_with(&g, "Loop l,k trips - empty", "body", &body);
    add_integers(&g, "four", 0, 1, (int64_t[]){4});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "trips", "T7 ");
    add_port(&g, 12, "l", "sT1 n"), add_port(&g, 12, "k", "T1 n");
    return made_of(g);
}

static void test_loop(void **state) {
    fixture f = loop_model("Identity on go"), shorter = loop_model("Less on i four");
    float data[2] = {1, 2};
    int64_t trips = 3;
    (void)state;
    held x = numbers(data, kDLFloat, 32, 1, 2), t = numbers(&trips, kDLInt, 64, 0, 1);
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_tensor(&t)};
    dlc_onnx_value *y[2];
    for (trips = 1; trips <= 3; trips++) {
        run_values(&f, in, 2, y, 2);
        assert_int_equal(y[0]->count, trips);
        for (int i = 0; i < trips; i++)
            expect_floats(&y[0]->elements[i], 2, (float[]){(float)i * data[0], (float)i * data[1]});
        expect_floats(y[1], trips, (float[]){0, 1, 2});
        release(y, 2);
    }
    trips = 50;
    run_values(&shorter, in, 2, y, 2);
    assert_int_equal(y[0]->count, 5);
    release(y, 2);
    trips = 65; /* more than are unrolled: walked */
    run_values(&f, in, 2, y, 2);
    assert_int_equal(y[0]->count, 65);
    expect_floats(&y[0]->elements[64], 2, (float[]){64, 128});
    release(y, 2);
    trips = 0;
    run_values(&f, in, 2, y, 2);
    assert_int_equal(y[0]->count, 0);
    expect_floats(y[1], 0, NULL);
    release(y, 2);
    finish(&f), finish(&shorter);
}

/* ---- walks --------------------------------------------------------------------------------------------------------------- */

/* k: the first element of x as a whole number. */
static void add_count(message *g) {
    add_node(g, "Gather first x zero"), add_node(g, "Cast k first | to=i:7");
    add_integers(g, "zero", 0, 1, (int64_t[]){0});
}

/* l: k times, the last element of the list, twice as long, behind it; s: the sums of what was there before, stacked; the words of t, one
 * longer each time. Captured: a list. */
static message growing_graph(void) {
    message g = started(), body = {0};
    add_node(&body, "SequenceAt last in minus"), add_node(&body, "Concat longer last last | axis=i:0");
    add_node(&body, "SequenceInsert out in longer");
    add_node(&body, "SequenceAt c both odd"), add_node(&body, "Mod odd i two");
    add_node(&body, "ReduceSum sum last | keepdims=i:0"), add_node(&body, "Add s sum c");
    add_node(&body, "StringConcat more words suffix"), add_node(&body, "Identity on go");
    add_port(&body, 11, "i", "T7 "), add_port(&body, 11, "go", "T9 ");
    add_port(&body, 11, "in", "sT1 -"), add_port(&body, 11, "words", "T8 n");
    add_port(&body, 12, "on", "T9 "), add_port(&body, 12, "out", "sT1 -");
    add_port(&body, 12, "more", "T8 n"), add_port(&body, 12, "s", "T1 ");
    add_count(&g);
    add_node(&g, "Neg minus_first first"), add_node(&g, "SequenceConstruct both first minus_first");
    add_node(&g, "SequenceConstruct begin x");
    add_node_with(&g, "Loop l,t,s k - begin w", "body", &body);
    add_integers(&g, "minus", 0, 1, (int64_t[]){-1}), add_integers(&g, "two", 0, 1, (int64_t[]){2});
    add_strings(&g, "suffix", 1, (const char *const[]){"x"});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "w", "T8 n");
    add_port(&g, 12, "l", "sT1 -"), add_port(&g, 12, "t", "T8 n"), add_port(&g, 12, "s", "T1 n");
    return g;
}

/* Runs it with k in the first place of 12 numbers, more than an import takes as guards. */
static dlc_status grow(dlc_onnx_runner *runner, int k) {
    static const char *const longer[] = {"a,b", "ax,bx", "axx,bxx", "axxx,bxxx", "axxxx,bxxxx"};
    float data[12] = {(float)k, 1}, sums[4];
    words w = words_of(2, (const char *const[]){"a", "b"});
    held x = numbers(data, kDLFloat, 32, 1, 12);
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_words(&w)}, *given[] = {&in[0], &in[1]};
    dlc_onnx_value *y[3];
    const dlc_status status = dlc_onnx_run_values(runner, NULL, given, 2, y, 3);
    if (status != DLC_OK) return status;
    assert_int_equal(y[0]->count, k + 1);
    for (int i = 0; i <= k; i++) assert_int_equal(y[0]->elements[i].tensor->shape[0], 12 << i);
    for (int i = 0; i < k; i++) sums[i] = (float)((k + 1) << i) + (float)(i % 2 ? -k : k);
    expect_words(y[1], longer[k]);
    expect_floats(y[2], k, sums);
    release(y, 3);
    return DLC_OK;
}

static void test_growing(void **state) {
    (void)state;
    fixture f = made_of(growing_graph());
    uint64_t before = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int k = 4; k >= 0; k--) OK(context, grow(f.runner, k));
        if (turn) assert_int_equal(statistics(context).kernel_builds, before);
        before = statistics(context).kernel_builds;
    }
    expect_imports(&f, 1, "10 runs: walked");
    finish(&f);
}

/* A branch: y, o and t are the nodes' results. */
static message branch_of(const char *list, const char *optional, const char *strings) {
    message part = {0};
    add_node(&part, list), add_node(&part, optional), add_node(&part, strings);
    add_port(&part, 12, "y", "sT1 -"), add_port(&part, 12, "o", "oT1 -"), add_port(&part, 12, "t", "T8 -");
    return part;
}

/* Data decide which branch gives a list, an optional and strings. */
static void test_branches(void **state) {
    static const char *const names[] = {"then_branch", "else_branch"};
    message g = started(),
            parts[] = {branch_of("SequenceConstruct y x first x", "Optional o x", "Identity t w"),
                       branch_of("SequenceConstruct y first", "Identity o none", "Concat t w w | axis=i:0")};
    (void)state;
    add_count(&g);
    add_node(&g, "Cast positive k | to=i:9");
    add_node_with_all(&g, "If y,o,t positive", 2, names, parts);
    add_node(&g, "OptionalHasElement has o"), add_node(&g, "SequenceLength n y");
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "w", "T8 n"), add_port(&g, 11, "none", "oT1 n");
    add_port(&g, 12, "y", "sT1 -"), add_port(&g, 12, "o", "oT1 -"), add_port(&g, 12, "t", "T8 -");
    add_port(&g, 12, "has", "T9 "), add_port(&g, 12, "n", "T7 ");
    fixture f = made_of(g);
    float data[12] = {0, 1};
    held x = numbers(data, kDLFloat, 32, 1, 12);
    words w = words_of(2, (const char *const[]){"a", "b"});
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_words(&w), {.kind = DLC_ONNX_NONE}};
    for (int turn = 0; turn < 4; turn++) {
        dlc_onnx_value *y[5];
        const bool then = turn % 2;
        data[0] = (float)then;
        run_values(&f, in, 3, y, 5);
        assert_int_equal(y[0]->count, then ? 3 : 1);
        expect_floats(&y[0]->elements[then], 1, data);
        assert_int_equal(y[1]->kind, then ? DLC_ONNX_TENSOR : DLC_ONNX_NONE);
        expect_words(y[2], then ? "a,b" : "a,b,a,b");
        assert_int_equal(*(const bool *)y[3]->tensor->data, then);
        expect_integer(y[4], then ? 3 : 1);
        release(y, 5);
    }
    expect_imports(&f, 1, "4 runs: walked");
    finish(&f);
}

/* A loop that is one row of a part, and whose body reads a list of sizes: inputs of the row. */
static void test_captured_sizes(void **state) {
    message g = started(), body = {0};
    (void)state;
    add_node(&body, "SequenceAt b l one"), add_node(&body, "Add out in b"), add_node(&body, "Identity on go");
    add_port(&body, 11, "i", "T7 "), add_port(&body, 11, "go", "T9 "), add_port(&body, 11, "in", "T7 1");
    add_port(&body, 12, "on", "T9 "), add_port(&body, 12, "out", "T7 1");
    add_count(&g);
    add_node(&g, "Shape n x"), add_node(&g, "Add n1 n one"), add_node(&g, "SequenceConstruct l n n1");
    add_node_with(&g, "Loop sum k - ks", "body", &body);
    add_node(&g, "Unsqueeze ks k zeros"), add_node(&g, "SequenceAt z l odd"), add_node(&g, "Mod odd k two");
    add_integers(&g, "one", 0, 1, (int64_t[]){1}), add_integers(&g, "two", 0, 1, (int64_t[]){2});
    add_integers(&g, "zeros", 1, 1, (int64_t[]){0});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 12, "sum", "T7 1"), add_port(&g, 12, "z", "T7 1");
    fixture f = made_of(g);
    for (int64_t k = 0; k < 4; k++)
        for (int64_t n = 10; n <= 12; n++) {
            float data[12] = {(float)k};
            held x = numbers(data, kDLFloat, 32, 1, n);
            const dlc_onnx_value in = value_of_tensor(&x);
            dlc_onnx_value *y[2];
            run_values(&f, &in, 1, y, 2);
            expect_integer(y[0], k + k * (n + 1));
            expect_integer(y[1], n + k % 2);
            release(y, 2);
        }
    expect_imports(&f, 1, "12 runs: walked");
    finish(&f);
}

/* Structures that arrive share the runner's walk. */
static void test_walked_lanes(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "SequenceAt x l zero"), add_node(&g, "Gather first x zero"), add_node(&g, "Cast k first | to=i:7");
    add_node(&g, "SequenceAt y l k"), add_integers(&g, "zero", 0, 1, (int64_t[]){0});
    add_port(&g, 11, "l", "sT1 n"), add_port(&g, 12, "y", "T1 n");
    fixture f = made_of(g);
    float data[3][12] = {{0}, {1}, {2}};
    held t[3];
    dlc_onnx_value element[3];
    for (int i = 0; i < 3; i++) t[i] = numbers(data[i], kDLFloat, 32, 1, 12), element[i] = value_of_tensor(&t[i]);
    for (size_t count = 1; count <= 3; count++)
        for (size_t k = 0; k < count; k++) {
            const dlc_onnx_value list = list_of(element, count);
            dlc_onnx_value *y[1];
            data[0][0] = (float)k;
            run_values(&f, &list, 1, y, 1);
            expect_floats(y[0], 12, data[k]);
            release(y, 1);
        }
    expect_imports(&f, 3, "3 runs: walked");
    data[0][0] = 3;
    const dlc_onnx_value list = list_of(element, 3);
    expect_failure(&f, &list, 1, 1, DLC_INVALID_ARGUMENT, "position 3 in a sequence of 3");
    finish(&f);
}

/* Results of more tensors than a run gives, in an import and in a walk. */
static void test_many(void **state) {
    static float data[1100] = {1};
    (void)state;
    for (int walked = 0; walked < 2; walked++) {
        message g = started();
        add_count(&g);
        add_node(&g, "SplitToSequence l x one"), add_node(&g, "SequenceAt y l k");
        add_integers(&g, "one", 0, 1, (int64_t[]){1});
        add_port(&g, 11, "x", "T1 n"), add_port(&g, 12, "l", "sT1 1");
        if (walked) add_port(&g, 12, "y", "T1 1");
        fixture f = made_of(g);
        held x = numbers(data, kDLFloat, 32, 1, 1025);
        const dlc_onnx_value in = value_of_tensor(&x);
        expect_failure(&f, &in, 1, 1 + walked, DLC_BUDGET_EXCEEDED, "1024");
        finish(&f);
    }
}

/* The body of a loop that is not unrolled reads a sequence and strings' places of the graph around it. */
static void test_captured(void **state) {
    message g = started(), body = {0};
    (void)state;
    add_node(&body, "SequenceAt b l one");
    add_node(&body, "Add out in b");
    add_node(&body, "Identity on go");
    add_port(&body, 11, "i", "T7 "), add_port(&body, 11, "go", "T9 "), add_port(&body, 11, "in", "T1 n");
    add_port(&body, 12, "on", "T9 "), add_port(&body, 12, "out", "T1 n");
    add_node(&g, "SequenceConstruct l x x2");
    add_node(&g, "Neg x2 x");
    add_node_with(&g, "Loop y trips - x", "body", &body);
    add_node(&g, "SequenceAt z l one");
    add_integers(&g, "one", 0, 1, (int64_t[]){1});
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "trips", "T7 "), add_port(&g, 11, "none", "oT1 n");
    add_port(&g, 12, "y", "T1 n"), add_port(&g, 12, "z", "T1 n");
    fixture f = made_of(g);
    float data[2] = {1, 2};
    int64_t trips = 3;
    held x = numbers(data, kDLFloat, 32, 1, 2), t = numbers(&trips, kDLInt, 64, 0, 1);
    const dlc_onnx_value in[] = {value_of_tensor(&x), value_of_tensor(&t), {.kind = DLC_ONNX_NONE}};
    dlc_onnx_value *y[2];
    run_values(&f, in, 3, y, 2);
    expect_floats(y[0], 2, (float[]){-2, -4});
    expect_floats(y[1], 2, (float[]){-1, -2});
    release(y, 2);
    finish(&f);
}

/* ---- runners ------------------------------------------------------------------------------------------------------------------------- */

/* Words to numbers, without kernels. */
static fixture encoder_model(void) {
    message g = started();
    add_node(&g, ".LabelEncoder y x | keys_strings=ss:a,b values_int64s=is:1,2 default_int64=i:0");
    add_port(&g, 11, "x", "T8 n");
    add_port(&g, 12, "y", "T7 n");
    return made_of(g);
}

static void test_eviction(void **state) {
    fixture f = encoder_model();
    (void)state;
    for (int turn = 0; turn < 40; turn++) {
        char text[2] = {(char)('a' + turn % 20), 0};
        words w = words_of(1, (const char *const[]){text});
        const dlc_onnx_value in = value_of_words(&w);
        dlc_onnx_value *y;
        run_values(&f, &in, 1, &y, 1);
        expect_integer(y, turn % 20 == 0 ? 1 : turn % 20 == 1 ? 2 : 0);
        release(&y, 1);
    }
    expect_imports(&f, 16, "without kernels");
    finish(&f);
}

/* A model of tensors alone, with a state. */
static void test_state(void **state) {
    static const dlc_onnx_state pair = {"s", "y"};
    dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
    message g = started();
    (void)state;
    add_node(&g, "Add y x s");
    add_node(&g, "Neg z y");
    add_port(&g, 11, "x", "T1 n"), add_port(&g, 11, "s", "T1 n");
    add_port(&g, 12, "y", "T1 n"), add_port(&g, 12, "z", "T1 n");
    fixture f = made_of(g);
    dlc_onnx_runner_destroy(f.runner);
    options.states = &pair, options.state_count = 1;
    OK(context, dlc_onnx_runner_create(f.model, &options, &f.runner));
    float data[2] = {1, 2};
    held x = numbers(data, kDLFloat, 32, 1, 2);
    const dlc_onnx_value in[] = {value_of_tensor(&x), {.kind = DLC_ONNX_NONE}};
    for (int turn = 1; turn <= 3; turn++) {
        dlc_onnx_value *y[2];
        run_values(&f, in, 2, y, 2);
        assert_int_equal(y[0]->kind, DLC_ONNX_NONE);
        expect_floats(y[1], 2, (float[]){(float)-turn, (float)(-2 * turn)});
        release(y, 2);
    }
    const dlc_onnx_value none[] = {{.kind = DLC_ONNX_NONE}, {.kind = DLC_ONNX_NONE}};
    expect_failure(&f, none, 2, 2, DLC_INVALID_ARGUMENT, "input x is nothing");
    finish(&f);
    f = encoder_model();
    dlc_onnx_runner *runner;
    const dlc_onnx_state words_state = {"x", "y"};
    options.states = &words_state;
    assert_int_equal(dlc_onnx_runner_create(f.model, &options, &runner), DLC_UNSUPPORTED);
    finish(&f);
}

static void *run_lists(void *runner) {
    float data[3] = {1, 2, 3};
    for (int turn = 0; turn < 30; turn++) {
        int64_t p = 0;
        held a = numbers(data, kDLFloat, 32, 1, 1 + turn % 3), at = numbers(&p, kDLInt, 64, 0, 1);
        const dlc_onnx_value elements[3] = {value_of_tensor(&a), value_of_tensor(&a), value_of_tensor(&a)},
                             list = list_of(elements, 1 + (size_t)turn % 3), t = value_of_tensor(&a),
                             place = value_of_tensor(&at), *in[] = {&list, &t, &place};
        dlc_onnx_value *y[3];
        if (dlc_onnx_run_values(runner, NULL, in, 3, y, 3) != DLC_OK) return runner;
        const bool right = y[0]->count == list.count && y[1]->tensor->shape[0] == 1 + turn % 3 &&
                           memcmp(y[1]->tensor->data, data, (size_t)(1 + turn % 3) * sizeof *data) == 0;
        release(y, 3);
        if (!right) return runner;
    }
    return NULL;
}

/* More words than are kept: others' go while they are used. */
static void *run_words(void *runner) {
    for (int turn = 0; turn < 100; turn++) {
        const char text[2] = {(char)('a' + turn % 26), 0};
        words w = words_of(1, (const char *const[]){text});
        const dlc_onnx_value value = value_of_words(&w), *in = &value;
        dlc_onnx_value *y;
        if (dlc_onnx_run_values(runner, NULL, &in, 1, &y, 1) != DLC_OK) return runner;
        const bool right = *(const int64_t *)y->tensor->data == (turn % 26 < 2 ? turn % 26 + 1 : 0);
        dlc_onnx_value_destroy(y);
        if (!right) return runner;
    }
    return NULL;
}

static void *run_growing(void *runner) {
    for (int turn = 0; turn < 10; turn++)
        if (grow(runner, turn % 5) != DLC_OK) return runner;
    return NULL;
}

static void run_threads(const fixture *f, void *(*body)(void *runner)) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, body, f->runner), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

static void test_threads(void **state) {
    fixture lists = list_model(), encoder = encoder_model(), growing = made_of(growing_graph());
    (void)state;
    run_threads(&lists, run_lists);
    expect_imports(&lists, 3, "p by its elements");
    run_threads(&encoder, run_words);
    run_threads(&growing, run_growing);
    expect_imports(&growing, 1, "40 runs: walked");
    finish(&lists), finish(&encoder), finish(&growing);
}

/* A runner of lists, strings and maps, from its making to its second structure, with memory refused from one place on. */
static dlc_status try_all(dlc_onnx_model *model) {
    dlc_onnx_runner *runner;
    float data[4] = {1, 2, 4, 3};
    held x = numbers(data, kDLFloat, 32, 2, 4);
    words w = words_of(2, (const char *const[]){"a", "b"});
    const dlc_onnx_value element = value_of_tensor(&x), elements[] = {element, element};
    dlc_status status = dlc_onnx_runner_create(model, NULL, &runner);
    for (size_t turn = 1; turn <= 2 && status == DLC_OK; turn++) {
        const dlc_onnx_value list = list_of(elements, turn), text = value_of_words(&w), *in[] = {&list, &text};
        dlc_onnx_value *y[4];
        status = dlc_onnx_run_values(runner, NULL, in, 2, y, 4);
        if (status != DLC_OK) break;
        expect_words(y[0], "dog,cat");
        assert_int_equal(y[1]->count, 2);
        expect_words(y[2], "ax,bx");
        assert_int_equal(y[3]->count, turn + 1);
        release(y, 4);
    }
    dlc_onnx_runner_destroy(runner);
    return status;
}

static dlc_status try_growing(dlc_onnx_model *model) {
    dlc_onnx_runner *runner;
    dlc_status status = dlc_onnx_runner_create(model, NULL, &runner);
    for (int k = 2; k >= 1 && status == DLC_OK; k--) status = grow(runner, k);
    dlc_onnx_runner_destroy(runner);
    return status;
}

static void refuse_memory(message g, dlc_status (*try)(dlc_onnx_model *model)) {
    message bytes = model_with(g);
    dlc_onnx_model *model;
    OK(context, dlc_onnx_parse(context, bytes.data, bytes.size, NULL, &model));
    for (int turn = 0; turn < 3; turn++)
        assert_int_equal(try(model), DLC_OK); /* kernels and all else that stays with the context */
    const int64_t before = atomic_load(&memory.blocks);
    dlc_status status = DLC_OUT_OF_MEMORY;
    for (int64_t site = 0; status != DLC_OK; site++) {
        atomic_store(&memory.left, site);
        status = try(model);
        atomic_store(&memory.left, -1);
        if (status != DLC_OK) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        assert_in_range(site, 0, 20000);
    }
    OK(context, try(model));
    assert_in_range(atomic_load(&memory.blocks), 0, before);
    dlc_onnx_destroy(model);
    free(bytes.data);
}

static void test_refused(void **state) {
    message g = started();
    (void)state;
    add_node(&g, "SequenceAt x l zero");
    add_node(&g, "SequenceInsert longer l x");
    add_node(&g, ".LinearClassifier label,scores x | classlabels_strings=ss:cat,dog coefficients=fs:1,0,0,1 "
                 "intercepts=fs:0,0");
    add_node(&g, ".ZipMap named scores | classlabels_strings=ss:cat,dog");
    add_node(&g, "StringConcat joined w suffix");
    add_strings(&g, "suffix", 1, (const char *const[]){"x"});
    add_integers(&g, "zero", 0, 1, (int64_t[]){0});
    add_port(&g, 11, "l", "sT1 n 2"), add_port(&g, 11, "w", "T8 n");
    add_port(&g, 12, "label", "T8 n"), add_port(&g, 12, "named", "sm8T1 "), add_port(&g, 12, "joined", "T8 n");
    add_port(&g, 12, "longer", "sT1 n 2");
    refuse_memory(g, try_all);
    refuse_memory(growing_graph(), try_growing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports),        cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_wrong_values), cmocka_unit_test(test_wrong_models),
        cmocka_unit_test(test_optional),     cmocka_unit_test(test_map_over_sequence),
        cmocka_unit_test(test_loop),         cmocka_unit_test(test_captured),
        cmocka_unit_test(test_eviction),     cmocka_unit_test(test_state),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_growing),      cmocka_unit_test(test_branches),
        cmocka_unit_test(test_walked_lanes), cmocka_unit_test(test_captured_sizes),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests_name("onnx lists", tests, open_all, close_all);
}
