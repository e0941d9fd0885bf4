/* Code generation in a process of its own: the protocol of its two ends. A request is a header and the kernels' loop IR as text, a reply
 * a header and bytes: an image, a dump, or a message. The first request describes the device, and gets a reply like the others. */
#ifndef TARGETS_CPU_ISOLATE_H
#define TARGETS_CPU_ISOLATE_H

#include "targets/cpu/cpu.h"

#define CPU_REQUEST_MAGIC UINT64_C(0x7465757165726c64)
enum { CPU_CONNECTION = 0 /* the helper's descriptor */, CPU_REPLY_MAX = 1 << 30 };
typedef enum cpu_request_kind { CPU_REQUEST_HELLO, CPU_REQUEST_OBJECT, CPU_REQUEST_DUMP } cpu_request_kind;

typedef struct cpu_request {
    /* size: of the bytes that follow the header */
    uint64_t magic, size;
    /* bytes that the helper process may allocate beyond those of the idle process; 0: no limit */
    uint64_t memory;
    int32_t kind, kernels, what;
} cpu_request;

typedef struct cpu_reply {
    uint64_t magic, size;
    int32_t status;
} cpu_reply;

/* The first request's bytes: the text of lib_build_id with its final 0, then this. */
typedef struct cpu_hello {
    cpu_features features;
    tir_machine machine;
    char cpu[64], attributes[4096];
    bool verify, no_polls;
} cpu_hello;

/* helper_path.c: writes the absolute path of libdlc-compiler to `path`: `given`, which must be absolute; if `given` is NULL or empty,
 * libdlc-compiler in the folder of the file that this code was loaded from. */
dlc_status cpu_find_helper(const char *given, char *path, size_t size, lib_error *error);

#endif
