/* The image: linked machine code that runs wherever it is placed. It is the result of `compile` and the input of `load`, and the form in
 * which the kernel cache stores code on disk and the process of isolate_compiler sends it. One block of bytes: this header | code |
 * constants | import slots | table of functions. All distances within it are fixed when it is linked (orc.c), so nothing in it is ever
 * relocated: placing it (image.c) is a copy, an address in each import slot and one change of protection. */
#ifndef TARGETS_CPU_IMAGE_H
#define TARGETS_CPU_IMAGE_H

#include "targets/cpu/cpu.h"

/* Functions of the C library that code may call. Images refer to them by their number here: append new ones at the end. */
/* clang-format off */
#define CPU_LIBRARY_TABLE(X) \
    X(memset) X(memcpy) X(memmove) X(fmod) X(fma) X(fmaf) \
    X(exp) X(expm1) X(log) X(log1p) X(pow) X(cbrt) X(erf) \
    X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(atan2) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh)
/* clang-format on */
typedef enum cpu_library {
#define X(name) CPU_LIBRARY_##name,
    CPU_LIBRARY_TABLE(X)
#undef X
        CPU_LIBRARY_COUNT
} cpu_library;

#define CPU_IMAGE_MAGIC UINT64_C(0x6567616d69636c64)
enum {
    CPU_IMAGE_VERSION = 1,
#if defined(__x86_64__)
    CPU_IMAGE_ARCHITECTURE = 62, /* machine numbers of ELF */
#elif defined(__aarch64__)
    CPU_IMAGE_ARCHITECTURE = 183,
#else
    CPU_IMAGE_ARCHITECTURE = 0,
#endif
    CPU_IMAGE_MAX = 1 << 30,   /* bytes */
    CPU_IMAGE_ALIGNMENT = 4096 /* of its first byte, both where it is linked and where it runs */
};

typedef struct cpu_image {
    uint64_t magic;
    uint32_t version;
    uint32_t architecture;
    /* Bytes of the image, including this header. */
    uint64_t size;
    /* Bytes from the image's start: functions lie in code .. code_end - 1. */
    uint64_t code, code_end;
    /* Bytes from the image's start, a multiple of 4. The table is 32-bit numbers, its offsets are bytes from its own start:
     *   kernels, imports,
     *   imports * {number in CPU_LIBRARY_TABLE, offset of the slot that holds that function's address},
     *   (kernels + 1) * number of the first function of the kernel; the last one is how many functions there are,
     *   functions * offset of the function: phase p of kernel k is number first[k] + p. */
    uint64_t table;
} cpu_image;

/* Name of the symbol that the object gives the table (emit_image.c); the linker looks it up. */
#define CPU_TABLE_SYMBOL "dlc_table"

/* A placed image. */
struct target_module {
    dlc_allocator allocator;
    /* The mapping: never writable and executable at once. */
    char *memory;
    /* Bytes of the mapping. */
    size_t size;
    /* Inside the mapping. */
    const cpu_image *image;
    /* The table's parts, inside the mapping; offsets are from `table`. */
    const int32_t *table, *first, *function;
    int kernels;
    /* The entry in the debugger's list; NULL: none. */
    void *debug;
};

/* symbols.c: tells gdb (DLC_GDB) and perf (DLC_PERF_MAP) the names of a placed image's functions. names[k]: name of kernel k; may be
 * NULL. */
void cpu_symbols_tell(target_module *module, const char *const *names);
void cpu_symbols_forget(target_module *module);

#endif
