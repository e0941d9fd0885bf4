/* An ONNX model with operators that only its author knows: domain "my" has Gated, which is built of libdlc's operators and compiled with
 * the rest, and Large, a C function whose result is as long as its elements decide.
 *
 *     y = Large(Gated(x, scale=1.5), least=0.5)     Gated(x) = x * logistic(scale * x); Large(x): the elements above `least` */
#include <dlc/onnx.h>

#include <stdio.h>

/* What an exporter would have written to a file. */
static const char model_bytes[] = "\x08\x08"                                              /* IR version 8 */
                                  "\x3a\x72"                                              /* the graph: */
                                  "\x0a\x22\x0a\x01x\x12\x01g\x22\x05Gated"               /* a node x -> g */
                                  "\x2a\x0f\x0a\x05scale\x15\x00\x00\xc0\x3f\xa0\x01\x01" /* a float */
                                  "\x3a\x02my"                                            /* its domain */
                                  "\x0a\x22\x0a\x01g\x12\x01y\x22\x05Large"               /* a node g -> y */
                                  "\x2a\x0f\x0a\x05least\x15\x00\x00\x00\x3f\xa0\x01\x01" /* a float */
                                  "\x3a\x02my"                                            /* its domain */
                                  "\x12\x04main"                                          /* a name */
                                  "\x5a\x10\x0a\x01x\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x12\x01n" /* x: f32[n] */
                                  "\x62\x10\x0a\x01y\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x12\x01m" /* y: f32[m] */
                                  "\x42\x04\x0a\x00\x10\x14"    /* operator sets: 20 */
                                  "\x42\x06\x0a\x02my\x10\x01"; /* my: 1 */

static dlc_status expand_gated(void *user, dlc_callback *callback, int count, dlc_value *results) {
    dlc_value x = dlc_callback_input(callback, 0);
    double scale = 1;
    (void)user, (void)count;
    dlc_callback_number(callback, "scale", &scale);
    dlc_value factor = dlc_scalar(dlc_callback_graph(callback), dlc_value_dtype(x), scale);
    results[0] = dlc_mul(x, dlc_logistic(dlc_mul(x, factor)));
    return DLC_OK;
}

static dlc_status call_large(void *user, dlc_callback *callback, int count, const dlc_onnx_value *const *inputs,
                             int results) {
    (void)user, (void)results;
    if (count != 1 || inputs[0]->kind != DLC_ONNX_TENSOR || inputs[0]->tensor->ndim != 1)
        return dlc_callback_fail(callback, DLC_INVALID_ARGUMENT, "expected one list");
    const float *x = inputs[0]->tensor->data;
    double least = 0;
    int64_t n = inputs[0]->tensor->shape[0], kept = 0;
    dlc_callback_number(callback, "least", &least);
    for (int64_t i = 0; i < n; i++) kept += (double)x[i] > least;
    DLTensor *y = dlc_callback_tensor(callback, 0, DLC_F32, 1, &kept); /* the library's memory */
    if (!y) return DLC_INVALID_ARGUMENT;                               /* the message is set */
    float *to = y->data;
    for (int64_t i = 0; i < n; i++)
        if ((double)x[i] > least) *to++ = x[i];
    return DLC_OK;
}

static const dlc_onnx_operator_options gated = {
    .struct_size = sizeof gated, .domain = "my", .name = "Gated", .attributes = "scale", .expand = expand_gated};
static const dlc_onnx_operator_options large = {
    .struct_size = sizeof large, .domain = "my", .name = "Large", .attributes = "least", .call = call_large};

int main(void) {
    float numbers[] = {-2, 0.25f, 1, 3};
    DLTensor x = {
        .data = numbers, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){4}};
    dlc_output_slot y = {0};
    dlc_context *context;
    dlc_onnx_model *model = NULL;
    dlc_onnx_runner *runner = NULL;
    char *missing = NULL;
    if (dlc_context_create(NULL, &context)) return 1;
    dlc_status status = dlc_onnx_parse(context, model_bytes, sizeof model_bytes - 1, NULL, &model);
    if (!status) status = dlc_onnx_check(model, &missing);
    if (!status) printf("not known: %s\n", missing), dlc_text_free(context, missing);
    if (!status) status = dlc_onnx_register(context, &gated);
    if (!status) status = dlc_onnx_register(context, &large);
    if (!status) status = dlc_onnx_runner_create(model, NULL, &runner);
    if (!status) status = dlc_onnx_run(runner, NULL, (const DLTensor *[]){&x}, 1, &y, 1);
    if (status) fprintf(stderr, "%s\n", dlc_error_message(context));
    for (int64_t i = 0; y.managed && i < y.managed->dl_tensor.shape[0]; i++)
        printf("y[%d] = %.4f\n", (int)i, (double)((const float *)y.managed->dl_tensor.data)[i]);
    if (y.managed) y.managed->deleter(y.managed);
    dlc_onnx_runner_destroy(runner), dlc_onnx_destroy(model), dlc_context_destroy(context);
    return status != DLC_OK;
}
