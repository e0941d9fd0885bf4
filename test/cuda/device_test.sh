#!/bin/sh
# Conformance as on a device, with the fake driver and NVRTC: kernels by the way of the target and programs by that of a host, their
# results held against the interpreter bit for bit. What `bench/gpu.sh check` does on a real one, for a share of the samples.
set -u
: "${OUT:=build/release}"
case $OUT in /*) built=$OUT ;; *) built=$PWD/$OUT ;; esac
driver=$built/test/cuda/libfake-driver.so nvrtc=$built/test/cuda/libfake-nvrtc.so
[ -e "$driver" ] || { echo "this build has no cuda target"; exit 77; }
program=$built/test/conformance/conformance share=7 rows=
[ -z "${DLC_TEST_LONG:-}" ] || share=1
[ -z "${DLC_TEST_SHARE:-}" ] || rows=$("$program" --list | awk 'NR % 2')
# shellcheck disable=SC2086
DLC_CUDA=$driver DLC_NVRTC=$nvrtc FAKE_CUDA_STRICT=1 DLC_TEST_TARGET=cuda DLC_TEST_SHARE=$share exec "$program" $rows
