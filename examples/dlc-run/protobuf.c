/* Tensors in files of ONNX (.pb, a TensorProto each), as its test data have them: the file becomes the only initializer of a model, and that the
 * only output, which the library reads and runs. */
#include "dlc-run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    char *data;
    size_t size;
} bytes;

static bytes read_file(const session *s, const char *path) {
    bytes file = {NULL, 0};
    size_t room = 0;
    FILE *from = fopen(path, "rb");
    for (size_t got = 1; from && got;) {
        if (file.size == room) {
            char *larger = realloc(file.data, room = 2 * room + 4096);
            if (!larger) break;
            file.data = larger;
        }
        got = fread(file.data + file.size, 1, room - file.size, from);
        file.size += got;
        if (got == 0 && !ferror(from)) return fclose(from), file;
    }
    fail(s, "%s: %s", path, strerror(errno));
    if (from) fclose(from);
    free(file.data);
    return (bytes){NULL, 0};
}

/* A field of bytes of Protocol Buffers: tag and length; the content follows. */
static size_t add_head(char *to, int field, size_t size) {
    size_t at = 0;
    to[at++] = (char)(field << 3 | 2);
    for (; size > 127; size >>= 7) to[at++] = (char)(size | 128);
    to[at++] = (char)size;
    return at;
}

/* ModelProto: ir_version 8, graph {initializer FILE, output {name "t"}}, opset_import {version 17}. A name that comes after the file's own
 * replaces it. */
static bytes model_around(bytes tensor) {
    static const char name[] = {8 << 3 | 2, 1, 't'}, output[] = {12 << 3 | 2, 3, 1 << 3 | 2, 1, 't'},
                      versions[] = {1 << 3, 8, 8 << 3 | 2, 2, 2 << 3, 17};
    char initializer_head[16], graph_head[16];
    const size_t whole = tensor.size + sizeof name, a = add_head(initializer_head, 5, whole),
                 b = add_head(graph_head, 7, a + whole + sizeof output);
    bytes model = {malloc(sizeof versions + b + a + whole + sizeof output), 0};
    const bytes parts[] = {{(char *)versions, sizeof versions},
                           {graph_head, b},
                           {initializer_head, a},
                           tensor,
                           {(char *)name, sizeof name},
                           {(char *)output, sizeof output}};
    for (size_t i = 0; model.data && i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].size) memcpy(model.data + model.size, parts[i].data, parts[i].size);
        model.size += parts[i].size;
    }
    return model;
}

DLManagedTensorVersioned *read_protobuf(const session *s, const char *path) {
    const bytes file = read_file(s, path), around = file.data ? model_around(file) : file;
    dlc_onnx_model *model = NULL;
    dlc_onnx_runner *runner = NULL;
    dlc_output_slot slot = {NULL, NULL};
    if (file.data && !around.data) fail(s, "%s: no memory", path);
    if (around.data && (dlc_onnx_parse(s->context, around.data, around.size, NULL, &model) != DLC_OK ||
                        dlc_onnx_runner_create(model, NULL, &runner) != DLC_OK ||
                        dlc_onnx_run(runner, NULL, NULL, 0, &slot, 1) != DLC_OK))
        fail_by_context(s, path);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(around.data);
    free(file.data);
    return slot.managed;
}
