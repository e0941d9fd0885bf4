#!/bin/sh
# What <dlc/dlc.h> makes of a DLPack header that was included before it: one of 1.0 or later is used, an older one is one error.
set -u
: "${OUT:=build/release}" "${CC:=cc}"
passed=0 failed=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# DLPack as Debian ships it (0.6), with its version as later ones of it had it, or without.
cat >"$work/old.h" <<'END'
#define DLPACK_DLPACK_H_
#include <stdint.h>
#include <stddef.h>
typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 } DLDeviceType;
typedef struct { DLDeviceType device_type; int device_id; } DLDevice;
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLBfloat = 4U, kDLComplex = 5U } DLDataTypeCode;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct { void *data; DLDevice device; int ndim; DLDataType dtype; int64_t *shape; int64_t *strides; uint64_t byte_offset; } DLTensor;
typedef struct DLManagedTensor { DLTensor dl_tensor; void *manager_ctx; void (*deleter)(struct DLManagedTensor *self); } DLManagedTensor;
END
printf '#define DLPACK_MAJOR_VERSION 0\n#define DLPACK_MINOR_VERSION 8\n' >"$work/zero.h"
cp include/dlc/dlpack.h "$work/new.h"
sed 's/MINOR_VERSION 1/MINOR_VERSION 3/' include/dlc/dlpack.h >"$work/later.h"

for language in c c++; do
    for headers in "old" "zero old" "new" "later"; do
        for header in $headers; do printf '#include "%s.h"\n' "$header"; done >"$work/host"
        printf '#include <dlc/dlc.h>\n#include <dlc/eager.h>\n#include <dlc/extend.h>\n#include <dlc/files.h>\n#include <dlc/onnx.h>\n#include <dlc/train.h>\nint main(void) { return 0; }\n' >>"$work/host"
        LC_ALL=C "$CC" -x "$language" -fsyntax-only -I"$work" -Iinclude -I"$OUT/gen" "$work/host" 2>"$work/said"
        errors=$(grep -c 'error:' "$work/said")
        case $headers in
        *old) [ "$errors" = 1 ] && grep -q 'libdlc needs DLPack 1.0 or later' "$work/said" ;;
        *) [ "$errors" = 0 ] ;;
        esac
        report "$language, $headers first: $errors errors" $?
    done
done
echo "[  PASSED  ] $passed test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
