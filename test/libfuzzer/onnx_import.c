/* Bytes of an ONNX model: opened, imported, and run on the interpreter with small inputs, within limits. Half of the mutations are of
 * messages, which keeps models readable. */
#include "onnx/any_model.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static dlc_context *context;
static any_memory memory;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    context = any_context(&memory);
    return context ? 0 : 1;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static mutate_fields fields;
    uint64_t random = seed;
    if (seed % 2) return LLVMFuzzerMutate(data, size, most);
    message m = {0};
    add_bytes(&m, data, size);
    for (size_t i = 1 + mutate_below(&random, 3); i > 0; i--) mutate_model(&m, &fields, &random);
    if (m.size <= most) memcpy(data, m.data, size = m.size);
    free(m.data);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const any_outcome o = any_model(context, data, size, size);
    if (o.status == DLC_INTERNAL) {
        fprintf(stderr, "ERROR: %s: %s\n", o.step, dlc_error_message(context));
        abort();
    }
    return 0;
}
