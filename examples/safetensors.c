/* Weights from a file: safetensors FILE. If there is none, writes one with two tensors and a note; lists it, and runs a layer whose
 * weights are used in place in the mapped file. */
#include <dlc/files.h>

#include <stdio.h>

static DLTensor tensor_of(const float *data, int rank, int64_t *shape) {
    return (DLTensor){.data = (void *)(uintptr_t)data,
                      .device = {kDLCPU, 0},
                      .ndim = rank,
                      .dtype = {kDLFloat, 32, 1},
                      .shape = shape};
}

static dlc_status write_weights(dlc_context *context, const char *path) {
    static const float weight[3][2] = {{1, 2}, {3, 4}, {5, 6}}, bias[2] = {-20, 1};
    const DLTensor w = tensor_of(weight[0], 2, (int64_t[]){3, 2}), b = tensor_of(bias, 1, (int64_t[]){2});
    return dlc_file_write_safetensors(context, path, 2, (const char *[]){"layer.weight", "layer.bias"},
                                      (const DLTensor *[]){&w, &b}, 1, (const char *[]){"format"},
                                      (const char *[]){"two numbers out of three"});
}

static dlc_status list_tensors(dlc_file *file) {
    const char *note = dlc_file_note(file, "format");
    printf("note: %s\n", note ? note : "none");
    for (int i = 0; i < dlc_file_count(file); i++) {
        DLManagedTensorVersioned *tensor;
        dlc_status status = dlc_file_tensor(file, dlc_file_name(file, i), &tensor);
        if (status != DLC_OK) return status;
        printf("%s:", dlc_file_name(file, i));
        for (int d = 0; d < tensor->dl_tensor.ndim; d++) printf(" %lld", (long long)tensor->dl_tensor.shape[d]);
        printf("\n");
        tensor->deleter(tensor);
    }
    return DLC_OK;
}

static dlc_status build(dlc_context *context, dlc_file *file, dlc_program **program) {
    dlc_graph *graph;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status != DLC_OK) return status;
    dlc_value x = dlc_input(graph, "x", DLC_F32, 2, (dlc_dim[]){{0, "rows"}, {3, NULL}});
    dlc_value w = dlc_file_constant(graph, file, "layer.weight"), b = dlc_file_constant(graph, file, "layer.bias");
    dlc_output(graph, "y", dlc_relu(dlc_linear(x, w, b)));
    status = dlc_compile(context, graph, NULL, program);
    dlc_graph_destroy(graph);
    return status;
}

int main(int count, char **words) {
    const char *path = count > 1 ? words[1] : "two-tensors.safetensors";
    float rows[2][3] = {{1, 0, 2}, {3, 1, 0}};
    DLTensor x = tensor_of(rows[0], 2, (int64_t[]){2, 3});
    dlc_output_slot y = {NULL, NULL};
    dlc_context *context = NULL;
    dlc_file *file = NULL;
    dlc_program *program = NULL;
    dlc_status status = dlc_context_create(NULL, &context);
    if (status == DLC_OK) status = dlc_file_open(context, path, NULL, &file);
    if (status == DLC_NOT_FOUND) {
        status = write_weights(context, path);
        if (status == DLC_OK) status = dlc_file_open(context, path, NULL, &file);
    }
    if (status == DLC_OK) status = list_tensors(file);
    if (status == DLC_OK) status = build(context, file, &program);
    if (status == DLC_OK) status = dlc_run(program, NULL, (const DLTensor *[]){&x}, 1, &y, 1);
    if (status == DLC_OK) {
        const float *r = y.managed->dl_tensor.data;
        const int64_t columns = y.managed->dl_tensor.shape[1]; /* those of layer.weight */
        printf("y =");
        for (int64_t i = 0; i < 2 * columns; i++) printf("%s %g", i > 0 && i % columns == 0 ? "," : "", (double)r[i]);
        printf("\n");
        y.managed->deleter(y.managed);
    } else {
        fprintf(stderr, "%s\n", dlc_error_message(context));
    }
    dlc_program_destroy(program);
    dlc_file_destroy(file);
    dlc_context_destroy(context);
    return status != DLC_OK;
}
