/* Bytes of an ONNX model, or of a tensor of its test data: read, and every tensor's data made. */
#include "graph/onnx/model.h"
#include "onnx/encode.h"

#include <stdio.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* DLC_SEEDS names a folder: seeds are written there. */
static void write_seed(const char *name, message m) {
    const char *folder = getenv("DLC_SEEDS");
    char path[4096];
    FILE *file = NULL;
    if (folder) {
        snprintf(path, sizeof path, "%s/%s", folder, name);
        file = fopen(path, "wb");
    }
    if (file) fwrite(m.data, 1, m.size, file), fclose(file);
    free(m.data);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const int64_t dims[] = {2};
    (void)argc, (void)argv;
    write_seed("model", model_of(graph_of(node_of("Relu", "x", "y"))));
    message inner = graph_of(node_of("Relu", "x", "y")), attribute = {0}, node = node_of("If", "x", "y"),
            w = tensor_of("w", 1, 1, dims);
    add_data(&w, 4, "01234567", 8);
    add_message(&inner, 5, w);
    add_text(&attribute, 1, "then_branch");
    add_message(&attribute, 6, inner);
    add_int(&attribute, 20, 5);
    add_message(&node, 5, attribute);
    write_seed("nested", model_of(graph_of(node)));
    message t = tensor_of("t", 22, 1, dims);
    add_data(&t, 5, "\x21", 1);
    write_seed("tensor", t);
    return 0;
}

static void read_data(lib_arena *arena, const onnx_tensor *tensor) {
    volatile unsigned char seen = 0;
    const onnx_data data = onnx_tensor_data(arena, tensor);
    for (size_t i = 0; data.bytes.data && i < data.bytes.size; i++) seen ^= (unsigned char)data.bytes.data[i];
}

static void read_model(lib_arena *arena, onnx_bytes bytes) {
    const onnx_graph *graph = onnx_model_read(arena, bytes, NULL)->graph;
    for (size_t i = 0; i < graph->initializers.count; i++) read_data(arena, &graph->initializers.data[i]);
    for (size_t i = 0; i < graph->sparse_initializers.count; i++)
        read_data(arena, graph->sparse_initializers.data[i].dense);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    arena.limit = 16 * size + (64u << 20);
    const onnx_bytes bytes = {(const char *)data, size};
    if (LIB_ENTER(&scope)) read_model(&arena, bytes);
    lib_arena_free(&arena);
    if (LIB_ENTER(&scope)) read_data(&arena, onnx_tensor_read(&arena, bytes));
    lib_arena_free(&arena);
    return 0;
}
