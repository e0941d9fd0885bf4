#!/bin/sh
# bench/gpu.sh as far as it goes without a GPU, on the fake driver and NVRTC: some rows, small cases and models; that it goes on where
# it stopped, and says what it did not measure.
set -u
: "${OUT:=build/release}"
case $OUT in /*) built=$OUT ;; *) built=$PWD/$OUT ;; esac
driver=$built/test/cuda/libfake-driver.so nvrtc=$built/test/cuda/libfake-nvrtc.so
[ -e "$driver" ] && [ -e "$built/bench/bench" ] && [ -e "$built/bench/models/models" ] || { echo "this build lacks the cuda target or the benchmark"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DLC_CUDA="$driver" DLC_NVRTC="$nvrtc" DLC_GPU_BUILD="$built" DLC_GPU_JOBS=2 FAKE_CUDA_STRICT=1
passed=0 failed=0

# expect STATUS TEXT COMMAND...: its exit status, and what its last line contains
expect() {
    status=$1 text=$2
    shift 2
    "$@" >"$work/log" 2>&1
    got=$?
    if [ $got = "$status" ] && tail -n 1 "$work/log" | grep -q "$text"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '[  FAILED  ] %s: exit %d, expected %d and "%s"\n' "$*" $got "$status" "$text"
        tail -n 20 "$work/log"
    fi
}

export DLC_GPU_ROWS='neg reduce_sum matmul'
expect 0 'check: 0 rows passed, 0 failed, 3 left' env DLC_GPU_SECONDS=0 bench/gpu.sh check "$work/out"
expect 0 'check: 3 rows passed, 0 failed, 0 left' env DLC_TEST_SHARE=5 bench/gpu.sh check "$work/out"
expect 77 'check: not measured: .*was not found' env DLC_CUDA="$work/none" bench/gpu.sh check "$work/out"
expect 77 'sanitize: not measured' bench/gpu.sh sanitize "$work/out"
# Results that are off by a bit are found.
expect 1 'check: 0 rows passed, 1 failed' env DLC_TEST_SHARE=5 DLC_GPU_ROWS=neg FAKE_CUDA_WRONG=1 bench/gpu.sh check "$work/bad"
for model in resnet-small bert-small; do
    for type in f32 bf16; do
        expect 0 '"difference"' "$built/bench/models/models" $model --batch 2 --dtype $type --check 3e-2
    done
done
if command -v python3 >/dev/null; then
    expect 0 'kernels: 10 run, .* 0 measured, 0 failed, 0 wrong, .* 0 cases left' bench/gpu.sh kernels "$work/out" --filter cube
    expect 0 'models: .* 0 measured, 0 failed, 0 wrong' bench/gpu.sh models "$work/out" --filter small
fi
echo "[  PASSED  ] $passed test(s)."
[ $failed = 0 ] || { echo "[  FAILED  ] $failed test(s)"; exit 1; }
