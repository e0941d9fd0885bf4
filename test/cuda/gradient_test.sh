#!/bin/sh
# Derivatives of all rows as on a device, with the fake driver, which interprets each kernel with all checks, and NVRTC: conformance/gradient for a
# share of the samples, against differences of the rows' f64 references.
set -u
: "${OUT:=build/release}"
case $OUT in /*) built=$OUT ;; *) built=$PWD/$OUT ;; esac
driver=$built/test/cuda/libfake-driver.so nvrtc=$built/test/cuda/libfake-nvrtc.so
[ -e "$driver" ] || { echo "this build has no cuda target"; exit 77; }
[ -n "${DLC_TEST_LONG:-}" ] && share=1 || share=20
DLC_CUDA=$driver DLC_NVRTC=$nvrtc FAKE_CUDA_STRICT=1 DLC_TEST_TARGET=cuda DLC_TEST_SHARE=$share exec "$built/test/conformance/gradient"
