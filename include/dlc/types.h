/* Public base types of libdlc: status codes, element types, tensors, allocator, limits.
 * Included by <dlc/dlc.h>; internal layers include it directly. C11 and C++17. */
#ifndef DLC_TYPES_H
#define DLC_TYPES_H

#include <dlc/dlpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DLC_API __attribute__((visibility("default")))
#else
#define DLC_API
#endif

/* Result of every call that can fail. One row: code, text. */
#define DLC_STATUS_TABLE(X)                                                                                      \
    X(DLC_OK, "ok")                                                                                              \
    X(DLC_INVALID_ARGUMENT, "invalid argument") /* the caller's mistake: shape, dtype, NULL, foreign value */    \
    X(DLC_OUT_OF_MEMORY, "out of memory")       /* the allocator refused */                                      \
    X(DLC_UNSUPPORTED, "unsupported")           /* valid, but this build, target or device cannot do it */       \
    X(DLC_NOT_FOUND, "not found")               /* file, library, name */                                        \
    X(DLC_PARSE_ERROR, "parse error")           /* text or file is malformed; the message has line and column */ \
    X(DLC_COMPILE_FAILED, "compilation failed") /* a code generator refused; its text is in the message */       \
    X(DLC_DEVICE_ERROR, "device error")         /* a driver or device call failed */                             \
    X(DLC_CANCELLED, "cancelled")               /* the host raised the cancel flag */                            \
    X(DLC_BUDGET_EXCEEDED, "budget exceeded")   /* beyond budget_ms, budget_bytes or a limit */                  \
    X(DLC_NOT_FINITE, "not finite")             /* a run met a value of dlc_run_options.stop_at */               \
    X(DLC_INTERNAL, "internal error")           /* a bug in libdlc: a verifier failed */

typedef enum dlc_status {
#define X(code, text) code,
    DLC_STATUS_TABLE(X)
#undef X
} dlc_status;

/* Element types. One row: code, text name, bits, DLPack type code, class ('b'ool, 'i'nt, 'u'nsigned, 'f'loat, 'c'omplex),
 * 1 if usable now (0: reserved, every use is DLC_UNSUPPORTED). Bool is one byte, 0 or 1. In DLPack, a tensor of the type has the
 * DLDataType {DLPack type code, bits, 1}.
 *
 * The floats of 8 bits are those of Micikevicius et al., "FP8 formats for deep learning", 2022, and of Noune et al., "8-bit
 * numerical formats for deep neural networks", 2022 (fnuz). e5m2 has infinities and NaN as IEEE 754 has; e4m3fn has no
 * infinities and one NaN of either sign; fnuz has neither infinities nor -0, and its NaN is 0x80.
 *
 * f4e2m1 and f8e8m0 are those of "OCP Microscaling Formats (MX) Specification", 2023. f4e2m1 has the numbers 0, 0.5, 1, 1.5,
 * 2, 3, 4, 6 of either sign and nothing else. f8e8m0 has the powers of two 2^(code - 127), without a sign and without zero; its
 * NaN is 255.
 *
 * Elements of 4 and 2 bits are packed two and four to a byte, the first in its lowest bits, through all of a tensor in row-major
 * order (as ONNX packs them): n of b bits take (n * b + 7) / 8 bytes, and libdlc writes the unused bits of the last one as zero.
 * Their tensors are compact. c64 is a pair of f32, real part first. */
#define DLC_DTYPE_TABLE(X)                                         \
    X(DLC_BOOL, "bool", 8, kDLBool, 'b', 1)                        \
    X(DLC_I8, "i8", 8, kDLInt, 'i', 1)                             \
    X(DLC_I16, "i16", 16, kDLInt, 'i', 1)                          \
    X(DLC_I32, "i32", 32, kDLInt, 'i', 1)                          \
    X(DLC_I64, "i64", 64, kDLInt, 'i', 1)                          \
    X(DLC_U8, "u8", 8, kDLUInt, 'u', 1)                            \
    X(DLC_U16, "u16", 16, kDLUInt, 'u', 1)                         \
    X(DLC_U32, "u32", 32, kDLUInt, 'u', 1)                         \
    X(DLC_U64, "u64", 64, kDLUInt, 'u', 1)                         \
    X(DLC_F16, "f16", 16, kDLFloat, 'f', 1)                        \
    X(DLC_BF16, "bf16", 16, kDLBfloat, 'f', 1)                     \
    X(DLC_F32, "f32", 32, kDLFloat, 'f', 1)                        \
    X(DLC_F64, "f64", 64, kDLFloat, 'f', 1)                        \
    X(DLC_F8E4M3FN, "f8e4m3fn", 8, kDLFloat8_e4m3fn, 'f', 1)       \
    X(DLC_F8E5M2, "f8e5m2", 8, kDLFloat8_e5m2, 'f', 1)             \
    X(DLC_C64, "c64", 64, kDLComplex, 'c', 1)                      \
    X(DLC_F8E4M3FNUZ, "f8e4m3fnuz", 8, kDLFloat8_e4m3fnuz, 'f', 1) \
    X(DLC_F8E5M2FNUZ, "f8e5m2fnuz", 8, kDLFloat8_e5m2fnuz, 'f', 1) \
    X(DLC_I4, "i4", 4, kDLInt, 'i', 1)                             \
    X(DLC_U4, "u4", 4, kDLUInt, 'u', 1)                            \
    X(DLC_I2, "i2", 2, kDLInt, 'i', 1)                             \
    X(DLC_U2, "u2", 2, kDLUInt, 'u', 1)                            \
    X(DLC_F4E2M1, "f4e2m1", 4, kDLFloat4_e2m1fn, 'f', 1)           \
    X(DLC_F8E8M0, "f8e8m0", 8, kDLFloat8_e8m0fnu, 'f', 1)

typedef enum dlc_dtype {
#define X(code, text, bits, dlpack, class_, usable) code,
    DLC_DTYPE_TABLE(X)
#undef X
        DLC_DTYPE_COUNT
} dlc_dtype;

/* Highest rank of a tensor. */
#define DLC_MAX_RANK 12

/* A dimension: a constant when name is NULL; else a symbol of that name (value is ignored). */
typedef struct dlc_dim {
    int64_t value;
    const char *name;
} dlc_dim;

/* Host memory. `allocate` returns `size` bytes at `alignment` (a power of two) or NULL; `release` gets the same size and
 * alignment. Both may be called from any thread that libdlc runs on. */
typedef struct dlc_allocator {
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*release)(void *user, void *pointer, size_t size, size_t alignment);
    void *user;
} dlc_allocator;

/* Limits on untrusted input: texts of graphs and schedules, files of tensors, and graphs built by calls. They apply to each call
 * separately, and to each region bound by a host's schedule for what the schedule generates: a line may request a
 * million copies of a loop. A call beyond a limit returns DLC_BUDGET_EXCEEDED and leaves its objects unchanged. 0: the default. */
typedef struct dlc_limits {
    /* Depth of nested sub-graphs. Default: 64. Each level also takes up to 6 KiB of the stack of threads that parse, build,
     * compile and bind; too little stack is DLC_OUT_OF_MEMORY. */
    int nesting;
    /* Bytes of working memory and results of a call, in addition to 64 for each byte of the text, file or constant that it is
     * given. Default: 256 MiB. */
    size_t memory;
    /* Milliseconds that a call takes, in addition to one for each KiB that it is given. Default: 20,000. */
    int64_t time_ms;
    /* Set to non-zero by any thread: parsing, opening, building and binding by schedules end with DLC_CANCELLED. Default: NULL, not
     * cancellable. */
    const volatile int *cancel;
} dlc_limits;

/* ---- values of ONNX models, for <dlc/onnx.h> ------------------------------------------------------------------------------- */

/* What a value is. */
typedef enum dlc_onnx_kind {
    /* An optional without a value. Of a port: its type is not declared, or is none that libdlc has, as sparse tensors are. */
    DLC_ONNX_NONE,
    DLC_ONNX_TENSOR,
    DLC_ONNX_STRINGS,
    DLC_ONNX_SEQUENCE,
    DLC_ONNX_MAP
} dlc_onnx_kind;

/* Bytes, usually UTF-8; they need not be terminated and may have zeros. */
typedef struct dlc_onnx_string {
    const char *data;
    size_t size;
} dlc_onnx_string;

/* A value of a model: of the kind that its type has, or, where the type is an optional, NONE. */
typedef struct dlc_onnx_value {
    dlc_onnx_kind kind;
    /* TENSOR. */
    const DLTensor *tensor;
    /* STRINGS: dimensions, and strings in row-major order. */
    int rank;
    const int64_t *dims;
    const dlc_onnx_string *strings;
    /* SEQUENCE: its elements. MAP: two, the keys, each once, and the values, as many: each STRINGS or a TENSOR of rank 1. Keys that are
     * integers are i64, compact, in host memory. */
    size_t count;
    const struct dlc_onnx_value *elements;
} dlc_onnx_value;

#ifdef __cplusplus
}
#endif
#endif
