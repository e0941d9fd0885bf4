/* A graph as an ONNX model and back: dlc_onnx_write, then the importer. What ONNX has not is left out, with the reason. */
#ifndef TEST_FUZZ_THROUGH_ONNX_H
#define TEST_FUZZ_THROUGH_ONNX_H

#include <dlc/onnx.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of this process: of memory where there is such a folder, since the writer flushes what it has written. */
static inline void onnx_path(char path[64]) {
    snprintf(path, 64, "%s/dlc-fuzz-%ld.onnx", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
}

/* "2 values cannot be exported:\n  cholesky t3: why\n ...": the first why, or the whole. */
static inline void onnx_reason(const char *message, char *reason, size_t size) {
    const char *line = strchr(message, '\n'), *why = line ? strstr(line, ": ") : NULL;
    if (why) message = why + 2;
    snprintf(reason, size, "%.*s", (int)strcspn(message, "\n"), message);
}

/* *g becomes the graph that was imported, NULL where none serves, since data decide sizes; *runner one of the model.
 * left_out, if it is not empty: why the graph cannot be exported. */
static inline dlc_status through_onnx(dlc_context *context, dlc_graph **g, dlc_onnx_runner **runner, char *left_out,
                                      size_t size) {
    char path[64];
    dlc_onnx_model *model = NULL;
    onnx_path(path);
    dlc_status status = dlc_onnx_write(context, path, *g, NULL);
    left_out[0] = 0;
    if (status == DLC_UNSUPPORTED) onnx_reason(dlc_error_message(context), left_out, size);
    dlc_graph_destroy(*g);
    *g = NULL;
    if (status != DLC_OK) return status;
    status = dlc_onnx_open(context, path, NULL, &model);
    if (status == DLC_OK) status = dlc_onnx_graph(model, NULL, g);
    if (status == DLC_OK || status == DLC_UNSUPPORTED || status == DLC_INVALID_ARGUMENT) {
        dlc_compile_options compile = DLC_COMPILE_OPTIONS_INIT;
        dlc_onnx_runner_options options = DLC_ONNX_RUNNER_OPTIONS_INIT;
        compile.no_excess_precision = true;
        options.compile = &compile;
        status = dlc_onnx_runner_create(model, &options, runner);
    }
    dlc_onnx_destroy(model); /* the graph or the runner keeps the mapped file */
    unlink(path);
    return status;
}

/* A tensor as a model has it: complex numbers are pairs. */
typedef struct onnx_view {
    DLTensor tensor;
    int64_t shape[DLC_MAX_RANK + 1], strides[DLC_MAX_RANK + 1];
} onnx_view;

static inline DLTensor *view_for_onnx(onnx_view *view, DLTensor *t) {
    if (t->dtype.code != kDLComplex) return t;
    view->tensor = *t;
    view->tensor.dtype = (DLDataType){kDLFloat, 32, 1};
    for (int d = 0; d < t->ndim; d++) {
        view->shape[d] = t->shape[d];
        view->strides[d] = t->strides ? 2 * t->strides[d] : 0;
    }
    view->shape[t->ndim] = 2, view->strides[t->ndim] = 1;
    view->tensor.ndim++;
    view->tensor.shape = view->shape;
    view->tensor.strides = t->strides ? view->strides : NULL;
    return &view->tensor;
}

#endif
