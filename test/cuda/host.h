/* A host of the library with programs and tensors, and one that uses CUDA itself, on the fake driver. */
#ifndef TEST_CUDA_HOST_H
#define TEST_CUDA_HOST_H

#include "targets/cuda/api.h"
#include "test/cuda/fakes.h"

#include <dlc/dlc.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

extern fakes *f;
extern cuda_driver own; /* the driver's functions as a host calls them */
void host_open(void);

enum { ROWS = 5, COLUMNS = 3, WIDTH = 4 };

#define DIMS(...)                                                            \
    (int)(sizeof((dlc_dim[]){__VA_ARGS__}) / sizeof(dlc_dim)), (dlc_dim[]) { \
        __VA_ARGS__                                                          \
    }

/* y[rows, WIDTH] = softmax(x[rows, COLUMNS] * exp(weights) + bias) */
dlc_graph *build(dlc_context *context);
dlc_program *compile(dlc_context *context);
/* Several kernels in a row: products of the rows of cumulative sums of softmax(x), [rows, rows]. */
dlc_graph *three(dlc_context *context);
dlc_status create(const char *target, dlc_context **context);

typedef struct matrix {
    float data[64];
    int64_t shape[2];
    DLTensor tensor;
} matrix;

void describe(matrix *m, int columns); /* ROWS rows, in host memory */
void fill(matrix *m, int columns);
dlc_status run(dlc_program *program, matrix *x, matrix *y);
void expect(matrix *y); /* what the interp target gives for x as `fill` makes it */

typedef struct cuda_host {
    CUcontext context;
    CUstream stream;
    CUdeviceptr x, y;
} cuda_host;

cuda_host host_begin(void);
void host_end(cuda_host *h);
void host_write(const cuda_host *h, CUdeviceptr to, const void *from, size_t size);
void host_read(const cuda_host *h, void *to, CUdeviceptr from, size_t size);
void put_on_device(matrix *m, CUdeviceptr where);

#endif
