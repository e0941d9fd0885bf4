/* What the files of ONNX Runtime's plug-in share: engine_onnxruntime.c sessions, decode_onnxruntime.c decoding. */
#ifndef BENCH_MODELS_ENGINE_ONNXRUNTIME_H
#define BENCH_MODELS_ENGINE_ONNXRUNTIME_H

#include "bench/models/engine.h"
#include "bench/onnxruntime.h"

/* The first error of a session. */
typedef struct ort_error {
    bool failed;
    char message[512];
} ort_error;

/* Keeps the status's message and releases it. False: there has been an error. */
bool engine_ort_ok(ort_error *error, ort_status *status);
/* One for the process; NULL: it failed. */
ort_env *engine_ort_environment(ort_error *error);
ort_allocator *engine_ort_allocator(ort_error *error);
extern const engine_decoder engine_ort_decoder;

#endif
