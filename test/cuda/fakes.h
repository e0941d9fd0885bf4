/* The fake driver and NVRTC (test/cuda/fake) for tests: loaded beforehand, and named to libdlc by its environment variables. */
#ifndef TEST_CUDA_FAKES_H
#define TEST_CUDA_FAKES_H

#include "test/cuda/fake/fake.h"

typedef struct fakes {
    fake_control *driver, *nvrtc;
    void *(*current_context)(void);
    char driver_path[4096], nvrtc_path[4096];
} fakes;

/* Aborts the program when they are not where the build puts them. */
fakes *fakes_open(void);
/* As at the start: nothing fails, default settings. What exists stays counted. */
void fakes_reset(fakes *f);
/* True when nothing is left of what the library took. */
bool fakes_are_empty(const fakes *f);

#endif
