/* What tests see of the fake driver and the fake NVRTC: two shared objects that stand for libcuda.so.1 and libnvrtc, over host memory.
 * Each exports one `fake_control`, besides the functions of targets/cuda/symbols.h. */
#ifndef TEST_CUDA_FAKE_H
#define TEST_CUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fake_control {
    /* The `fail_at`-th call (from 1) of function `fail` after these are set returns `fail_with`. NULL: none. */
    const char *fail;
    long fail_at;
    unsigned fail_with;
    /* calls of `fail` since */
    long seen;

    /* Settings; 0: as by default. */
    /* 1000*major + 10*minor, by default 13000 */
    int version;
    /* -1: none; by default 2 */
    int devices;
    /* of each device, by default 90 */
    int capability;
    /* of a newer NVRTC than the driver */
    bool no_pools, refuses_code, refuses_ptx;
    /* bytes of each device */
    size_t memory;
    /* that NVRTC knows; by default 75, 80, 86, 90, 100 */
    int architectures[8];
    /* compilations wait for so many at once, for some seconds */
    int together;
    /* NVRTC refuses sources with this text */
    const char *refuses;

    /* What exists now. */
    long contexts, streams, events, graphs, modules, pools, pinned, allocations, programs;
    size_t bytes;
    /* What happened. */
    /* bytes copied to the device, from there to the host, and on the device */
    size_t to_device, to_host, on_device;
    long launches, compilations, graph_launches, updates;
    /* compilations, at most */
    long at_once;
    /* of the first kernel that failed, or of the first misuse */
    char message[1024];
} fake_control;

#define FAKE_DRIVER_CONTROL "fake_driver_control"
#define FAKE_NVRTC_CONTROL "fake_nvrtc_control"

/* A driver's image, as the fake NVRTC makes it: this line, then the source. */
#define FAKE_IMAGE_FORMAT "fake %31s for %d by %d\n"

#endif
