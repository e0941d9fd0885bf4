/* Extensions of libdlc by a host, with the installed headers alone: an operator (in each of its three forms), a rewrite rule,
 * a pass and a schedule. The graph
 *
 *     y = tally(gated(dense(x, w, b)), log(softmax(x)))
 *
 * uses all of them, and is checked against plain C. */
#include <dlc/extend.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, INPUTS = 16, OUTPUTS = 8 };

static int failed(dlc_context *context, const char *what) {
    fprintf(stderr, "%s: %s\n", what, dlc_error_message(context));
    return 1;
}

/* ---- operators */

/* Defined by an expression of its elements: the library generates kernels for it as for its own operators, and fuses it. */
static const dlc_operator_options dense = {.struct_size = sizeof dense,
                                           .name = "dense",
                                           .operands = "x w b",
                                           .dtypes = "float",
                                           .shape = "T[..., n, k], T[m, k], T[m] -> T[..., n, m]",
                                           .expression = "y[..., i, j] = max(sum(k, x[..., i, k] * w[j, k]) + b[j], 0)",
                                           .doc = "relu(x w^T + b)"};

/* Defined by other operators: x * logistic(scale * x). */
static dlc_status expand_gated(void *user, dlc_callback *callback, int count, dlc_value *results) {
    dlc_value x = dlc_callback_input(callback, 0);
    double scale = 1;
    (void)user, (void)count;
    dlc_callback_number(callback, "scale", &scale);
    dlc_value factor = dlc_scalar(dlc_callback_graph(callback), dlc_value_dtype(x), scale);
    results[0] = dlc_mul(x, dlc_logistic(dlc_mul(x, factor)));
    return DLC_OK;
}

static const dlc_operator_attribute gated_attributes[] = {{"scale", DLC_ATTRIBUTE_NUMBER, NULL, "1"},
                                                          {NULL, DLC_ATTRIBUTE_NUMBER, NULL, NULL}};
static const dlc_operator_options gated = {.struct_size = sizeof gated,
                                           .name = "gated",
                                           .operands = "x",
                                           .dtypes = "float",
                                           .attributes = gated_attributes,
                                           .shape = "T[...] -> T[...]",
                                           .expand = expand_gated};

/* Defined by an existing C function: for each row of both operands, the number of elements above 0 and the sum of the second's. */
static dlc_status tally(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input, int outputs,
                        DLTensor *const *output) {
    const float *a = input[0]->data, *b = input[1]->data;
    float *y = output[0]->data;
    int64_t rows = input[0]->shape[0], columns[2] = {input[0]->shape[1], input[1]->shape[1]};
    (void)user, (void)inputs, (void)outputs;
    if (columns[0] == 0) return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "rows are empty");
    for (int64_t r = 0; r < rows; r++, a += columns[0], b += columns[1], y += 2) {
        y[0] = y[1] = 0;
        for (int64_t c = 0; c < columns[0]; c++) y[0] += a[c] > 0 ? 1.0f : 0.0f;
        for (int64_t c = 0; c < columns[1]; c++) y[1] += b[c];
    }
    return DLC_OK;
}

static const dlc_operator_options tallied = {.struct_size = sizeof tallied,
                                             .name = "tally",
                                             .operands = "a b",
                                             .dtypes = "f32",
                                             .shape = "T[n, k], T[n, m] -> T[n, 2]",
                                             .call = tally};

/* ---- a rule, a pass, a schedule */

/* log_softmax is more accurate than the logarithm of a softmax. */
static const dlc_rule_options stable = {.struct_size = sizeof stable,
                                        .name = "stable_log_softmax",
                                        .pattern = "log(softmax(x, axis=a))",
                                        .replacement = "log_softmax(x, axis=a)"};

/* Clamps inputs of every `dense` to -4..4, and counts them. */
static dlc_status clamp_inputs(void *user, dlc_callback *callback, dlc_node node, int count, dlc_value *results) {
    if (count != 1 || strcmp(dlc_node_operator(node), "dense") != 0) return DLC_OK; /* unchanged */
    dlc_graph *g = dlc_callback_graph(callback);
    dlc_value operands[3];
    for (int i = 0; i < 3; i++) operands[i] = dlc_callback_value(callback, dlc_node_input(node, i));
    dlc_dtype dtype = dlc_value_dtype(operands[0]);
    operands[0] = dlc_clamp(dlc_scalar(g, dtype, -4), operands[0], dlc_scalar(g, dtype, 4));
    results[0] = dlc_apply(g, "dense", 3, operands, 0, NULL);
    ++*(int *)user;
    return DLC_OK;
}

/* Schedules the kernel that clamps: 8 columns at a time. Others keep the target's rules. */
static dlc_status schedule_clamp(void *user, dlc_callback *callback, const dlc_region *region) {
    ++*(int *)user;
    printf("kernel %s #%016llx for %s\n", region->name, (unsigned long long)region->hash, region->target);
    if (strcmp(region->name, "clamp") != 0) return DLC_OK;
    return dlc_callback_set_schedule(callback, "loops:\n  split clamp.i1 8 -> block lane mask\n  vec clamp.lane");
}

static dlc_status register_all(dlc_context *context, int *clamped, int *asked) {
    const dlc_operator_options *const operators[] = {&dense, &gated, &tallied};
    dlc_pass_options pass = DLC_PASS_OPTIONS_INIT;
    dlc_schedule_options schedule = DLC_SCHEDULE_OPTIONS_INIT;
    dlc_status status = DLC_OK;
    for (int i = 0; i < 3 && status == DLC_OK; i++) status = dlc_operator_register(context, operators[i]);
    if (status == DLC_OK) status = dlc_rule_register(context, &stable);
    pass.name = "clamp_inputs";
    pass.function = clamp_inputs;
    pass.user = clamped;
    if (status == DLC_OK) status = dlc_pass_register(context, &pass);
    schedule.name = "schedule_clamp";
    schedule.function = schedule_clamp;
    schedule.user = asked;
    if (status == DLC_OK) status = dlc_schedule_register(context, &schedule);
    return status;
}

/* ---- main */

static dlc_graph *build(dlc_context *context, const float *w, const float *b) {
    dlc_graph *g;
    if (dlc_graph_create(context, &g) != DLC_OK) return NULL;
    const int64_t shape[] = {OUTPUTS, INPUTS};
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {INPUTS, NULL}});
    dlc_value dense_operands[] = {x, dlc_constant(g, DLC_F32, 2, shape, w), dlc_constant(g, DLC_F32, 1, shape, b)};
    dlc_value y = dlc_apply(g, "dense", 3, dense_operands, 0, NULL);
    const dlc_setting scale = dlc_set_number("scale", 1.5);
    y = dlc_apply(g, "gated", 1, &y, 1, &scale);
    dlc_value both[] = {dlc_add(y, dlc_scalar(g, DLC_F32, -0.25)), dlc_log(dlc_softmax(x, -1))};
    dlc_output(g, "y", dlc_apply(g, "tally", 2, both, 0, NULL));
    return g;
}

static void by_hand(const float *x, const float *w, const float *b, double *y) {
    for (int r = 0; r < ROWS; r++, x += INPUTS, y += 2) {
        double total = 0, logs = 0;
        y[0] = 0;
        for (int j = 0; j < OUTPUTS; j++) {
            double sum = b[j];
            for (int k = 0; k < INPUTS; k++) sum += fmin(fmax(x[k], -4), 4) * (double)w[j * INPUTS + k];
            sum = fmax(sum, 0);
            y[0] += sum / (1 + exp(-1.5 * sum)) - 0.25 > 0;
        }
        for (int k = 0; k < INPUTS; k++) total += exp((double)x[k]);
        for (int k = 0; k < INPUTS; k++) logs += (double)x[k] - log(total);
        y[1] = logs;
    }
}

static int run(dlc_context *context, dlc_program *program, const float *w, const float *b) {
    float x[ROWS * INPUTS], y[ROWS * 2];
    double expected[ROWS * 2];
    int64_t in_shape[] = {ROWS, INPUTS}, out_shape[] = {ROWS, 2};
    for (int i = 0; i < ROWS * INPUTS; i++) x[i] = (float)((i * 37) % 101) / 10.0f - 5.0f;
    DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = in_shape};
    DLTensor out = {.data = y, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = out_shape};
    const DLTensor *inputs[] = {&in};
    dlc_output_slot outputs[] = {{&out, NULL}};
    if (dlc_run(program, NULL, inputs, 1, outputs, 1) != DLC_OK) return failed(context, "run");
    by_hand(x, w, b, expected);
    for (int i = 0; i < ROWS * 2; i++)
        if (!(fabs((double)y[i] - expected[i]) <= 1e-4 * (1 + fabs(expected[i])))) {
            fprintf(stderr, "element %d is %g, expected %g\n", i, (double)y[i], expected[i]);
            return 1;
        }
    return 0;
}

int main(void) {
    float w[OUTPUTS * INPUTS], b[OUTPUTS];
    int clamped = 0, asked = 0;
    dlc_context *context;
    dlc_program *program = NULL;
    for (int i = 0; i < OUTPUTS * INPUTS; i++) w[i] = (float)((i * 29) % 53) / 53.0f - 0.5f;
    for (int i = 0; i < OUTPUTS; i++) b[i] = (float)i / (float)OUTPUTS - 0.5f;
    if (dlc_context_create(NULL, &context) != DLC_OK) return failed(NULL, "context");
    if (register_all(context, &clamped, &asked) != DLC_OK) return failed(context, "register");
    dlc_graph *graph = build(context, w, b);
    char *text = NULL;
    if (!graph || dlc_graph_print(graph, &text) != DLC_OK) return failed(context, "graph");
    printf("%s", text); /* registered operators print like the library's, and parse back */
    dlc_text_free(context, text);
    if (dlc_compile(context, graph, NULL, &program) != DLC_OK) return failed(context, "compile");
    dlc_graph_destroy(graph);
    int status = run(context, program, w, b);
    const int64_t in_shape[] = {ROWS, INPUTS}, *shapes[] = {in_shape};
    const int ranks[] = {2};
    if (dlc_program_dump(program, "schedule", shapes, ranks, 1, &text) != DLC_OK) return failed(context, "dump");
    bool scheduled = strstr(text, "vec clamp.lane") != NULL;
    dlc_text_free(context, text);
    printf("%d inputs clamped, %d kernels asked about\n", clamped, asked);
    dlc_program_destroy(program);

    /* Error messages are like those of the library's own operators. */
    static const char wrong[] =
        "graph {\n input x: f32[4, 16]\n input w: f32[8, 15]\n input b: f32[8]\n y = dense(x, w, b)\n}";
    if (dlc_graph_parse(context, wrong, strlen(wrong), &graph) != DLC_OK)
        printf("a mistake reads: %s\n", dlc_error_message(context));
    dlc_context_destroy(context);
    return status || clamped != 1 || asked == 0 || !scheduled;
}
