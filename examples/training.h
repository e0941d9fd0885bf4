/* What the examples of training share: a context and its errors, tensors of the batch, parameters, random numbers and the time. */
#ifndef EXAMPLES_TRAINING_H
#define EXAMPLES_TRAINING_H

#include <dlc/train.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static dlc_context *context;

static inline void check(dlc_status status, const char *what) {
    if (status == DLC_OK) return;
    fprintf(stderr, "%s: %s\n", what, dlc_error_message(context));
    exit(1);
}

/* With a thread for each processor: the numbers of a training do not depend on how many there are. */
static inline void open_context(void) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.threads = 64;
    check(dlc_context_create(&options, &context), "context");
}

static inline DLTensor tensor(DLDataTypeCode code, int bits, void *data, int rank, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, (uint8_t)bits, 1}, .shape = shape};
}

/* An f32 parameter, whose values at the start have this deviation; of deviation 0: zeros. */
static inline dlc_value parameter(dlc_training *t, const char *name, int rank, const int64_t *shape, double deviation) {
    dlc_parameter_options options = DLC_PARAMETER_OPTIONS_INIT;
    options.initial = DLC_INITIAL_UNIFORM;
    options.scale = sqrt(3) * deviation;
    return dlc_training_parameter(t, name, DLC_F32, rank, shape, deviation > 0 ? &options : NULL);
}

static inline uint32_t next_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
