#!/bin/sh
# The programs of test/api that go through all targets once more, with the fake driver and NVRTC, so that they run on the cuda target, too.
# Nothing may be left on the device at their end. The slow ones (up to a minute each on the interpreter) only with DLC_TEST_LONG=1; with
# DLC_TEST_SHARE=N every N-th.
set -u
: "${OUT:=build/release}"
driver=$PWD/$OUT/test/cuda/libfake-driver.so nvrtc=$PWD/$OUT/test/cuda/libfake-nvrtc.so
case $OUT in /*) driver=$OUT/test/cuda/libfake-driver.so nvrtc=$OUT/test/cuda/libfake-nvrtc.so ;; esac
[ -e "$driver" ] || { echo "this build has no cuda target"; exit 77; }
passed=0 failed=0 number=0
slow='concurrent_test factor_test training_memory_test host_test inference_test matrix_test memory_test one_copy_test unaligned_test winograd_test'
for source in $(grep -lE 'all_targets|EACH_TARGET|open_target' test/api/*_test.c); do
    name=$(basename "$source" .c)
    case " $slow " in *" $name "*) [ "${DLC_TEST_LONG:-0}" = 1 ] || continue ;; esac
    number=$((number + 1))
    [ $((number % ${DLC_TEST_SHARE:-1})) = 0 ] || continue
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
