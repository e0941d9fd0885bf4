#!/bin/sh
# What went wrong on the cuda target once: the texts test/regress/device_*, with the fake driver and NVRTC.
set -u
: "${OUT:=build/release}"
case $OUT in /*) built=$OUT ;; *) built=$PWD/$OUT ;; esac
driver=$built/test/cuda/libfake-driver.so nvrtc=$built/test/cuda/libfake-nvrtc.so
[ -e "$driver" ] || { echo "this build has no cuda target"; exit 77; }
DLC_CUDA=$driver DLC_NVRTC=$nvrtc FAKE_CUDA_STRICT=1 DLC_TEST_TARGET=cuda exec "$built/test/regress/regress" device_
