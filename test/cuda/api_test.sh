#!/bin/sh
# The programs of test/api once more, with the fake driver and NVRTC, so that they run on the cuda target, too. Nothing may be left
# on the device at their end.
set -u
: "${OUT:=build/release}"
driver=$PWD/$OUT/test/cuda/libfake-driver.so nvrtc=$PWD/$OUT/test/cuda/libfake-nvrtc.so
case $OUT in /*) driver=$OUT/test/cuda/libfake-driver.so nvrtc=$OUT/test/cuda/libfake-nvrtc.so ;; esac
[ -e "$driver" ] || { echo "this build has no cuda target"; exit 77; }
passed=0 failed=0
for name in cast_test stored_test run_test control_test sharing_test kept_call_test schedule_test native_test digits_test host_test scan_test segments_test extend_test eager_test matrix_test; do
    log=$(DLC_CUDA=$driver DLC_NVRTC=$nvrtc FAKE_CUDA_STRICT=1 "$OUT/test/api/$name" 2>&1)
    if [ $? = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '[  FAILED  ] %s\n%s\n' "$name" "$log"
    fi
done
echo "[  PASSED  ] $passed test(s)."
[ $failed = 0 ] || { echo "[  FAILED  ] $failed test(s)"; exit 1; }
