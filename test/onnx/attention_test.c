/* FlexAttention with sub-graphs that contradict it: errors with the node's name. Its results are those of ONNX's cases (conformance.c). */
#include "api/support.h"
#include "onnx/encode.h"

#include <dlc/onnx.h>

enum { FLOAT = 1, INT_ATTRIBUTE = 2, GRAPH_ATTRIBUTE = 5 };

/* s -> t by that operator; attribute to, if it is not 0. */
static message modifier(const char *operator, int to, int inputs) {
    message g = {0}, n = node_of(operator, "s", "t"), a = {0};
    add_text(&a, 1, "to"), add_int(&a, 3, to), add_int(&a, 20, INT_ATTRIBUTE);
    if (to)
        add_message(&n, 5, a);
    else
        free(a.data);
    add_message(&g, 1, n);
    add_text(&g, 2, "modifier");
    add_message(&g, 11, port_of("s", FLOAT, "b h l k"));
    if (inputs > 1) add_message(&g, 11, port_of("u", FLOAT, "b h l k"));
    add_message(&g, 12, port_of("t", FLOAT, "b h l k"));
    return g;
}

/* y = FlexAttention(q, k, v) with that attribute. */
static message attention(const char *dims, const char *attribute, message part) {
    message m = {0}, g = {0}, n = node_of("FlexAttention", "q", "y"), a = {0};
    add_text(&n, 1, "k"), add_text(&n, 1, "v"), add_text(&n, 3, "here"), add_text(&n, 7, "ai.onnx.preview");
    add_text(&a, 1, attribute), add_message(&a, 6, part), add_int(&a, 20, GRAPH_ATTRIBUTE);
    add_message(&n, 5, a);
    add_message(&g, 1, n);
    add_text(&g, 2, "main");
    add_message(&g, 11, port_of("q", FLOAT, dims));
    add_message(&g, 11, port_of("k", FLOAT, "2 3 5 8")), add_message(&g, 11, port_of("v", FLOAT, "2 3 5 8"));
    add_message(&g, 12, port_of("y", FLOAT, dims));
    add_int(&m, 1, 13);
    add_message(&m, 7, g);
    for (int i = 0; i < 2; i++) {
        message opset = {0};
        add_text(&opset, 1, i ? "ai.onnx.preview" : "");
        add_int(&opset, 2, i ? 1 : 26);
        add_message(&m, 8, opset);
    }
    return m;
}

static void import(dlc_context *context, message m, dlc_status status, const char *told) {
    dlc_onnx_model *model;
    dlc_graph *graph = NULL;
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &model));
    assert_int_equal(dlc_onnx_graph(model, NULL, &graph), status);
    if (told && !strstr(dlc_error_message(context), told))
        fail_msg("\"%s\" lacks \"%s\"", dlc_error_message(context), told);
    dlc_graph_destroy(graph);
    dlc_onnx_destroy(model);
    free(m.data);
}

static void test_modifiers(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    import(context, attention("2 3 4 8", "score_mod", modifier("Tanh", 0, 1)), DLC_OK, NULL);
    import(context, attention("2 3 4 8", "prob_mod", modifier("Tanh", 0, 1)), DLC_OK, NULL);
    import(context, attention("2 3 8", "score_mod", modifier("Tanh", 0, 1)), DLC_PARSE_ERROR,
           "operand 0 of rank 3, not 4");
    import(context, attention("2 3 4 8", "score_mod", modifier("Transpose", 0, 1)), DLC_PARSE_ERROR,
           "score_mod changes the element type or the shape");
    import(context, attention("2 3 4 8", "prob_mod", modifier("Cast", 11, 1)), DLC_PARSE_ERROR,
           "prob_mod changes the element type or the shape");
    import(context, attention("2 3 4 8", "score_mod", modifier("Tanh", 0, 2)), DLC_PARSE_ERROR,
           "score_mod with 2 inputs and 1 outputs, not one");
    import(context, attention("2 3 4 8", "mask_mod", modifier("Tanh", 0, 1)), DLC_UNSUPPORTED, "mask_mod");
    dlc_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_modifiers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
