/* Finds the functions of ONNX Runtime in its table, and opens sessions at their best. */
#include "bench/onnxruntime.h"

#include <string.h>

typedef void ort_function(void);
typedef struct ort_base {
    ort_function *const *(*table)(uint32_t version);
    const char *(*version)(void);
} ort_base;
const ort_base *OrtGetApiBase(void);

enum { INTERFACE_VERSION = 5 };

const ort_api *onnxruntime(void) {
    static ort_api functions;
    if (functions.create_env) return &functions;
    ort_function *const *table = OrtGetApiBase()->table(INTERFACE_VERSION);
    if (!table) return NULL;
#define X(name, position, result, parameters) memcpy(&functions.name, &table[position], sizeof functions.name);
    ORT_TABLE(X)
#undef X
    return &functions;
}

const char *onnxruntime_version(void) {
    return OrtGetApiBase()->version();
}

ort_status *onnxruntime_options(int threads, ort_options **options) {
    static const char *const entries[][2] = {{"session.intra_op.allow_spinning", "1"},
                                             {"session.intra_op.spin_duration_us", "1000"},
                                             {"session.qdq_matmulnbits_accuracy_level", "1"}};
    *options = NULL;
    ort_status *status = onnxruntime()->create_options(options);
    if (!status) status = onnxruntime()->set_optimisation(*options, ORT_OPTIMISE_ALL);
    if (!status) status = onnxruntime()->set_threads(*options, threads);
    for (size_t i = 0; i < sizeof entries / sizeof *entries && !status; i++)
        status = onnxruntime()->set_option(*options, entries[i][0], entries[i][1]);
    return status;
}
