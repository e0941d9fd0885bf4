#!/bin/sh
# Derivatives of all rows as on a device, with the fake driver, which interprets each kernel with all checks, and NVRTC: conformance/gradient for a
# share of the samples, against differences of the rows' f64 references. With DLC_TEST_SHARE a third of the rows.
set -u
: "${OUT:=build/release}"
case $OUT in /*) built=$OUT ;; *) built=$PWD/$OUT ;; esac
driver=$built/test/cuda/libfake-driver.so nvrtc=$built/test/cuda/libfake-nvrtc.so
[ -e "$driver" ] || { echo "this build has no cuda target"; exit 77; }
program=$built/test/conformance/gradient part=$program share=20
[ -z "${DLC_TEST_LONG:-}" ] || share=1
if [ -n "${DLC_TEST_SHARE:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    part=$work/gradient2of3
    ln -s "$program" "$part"
fi
DLC_CUDA=$driver DLC_NVRTC=$nvrtc FAKE_CUDA_STRICT=1 DLC_TEST_TARGET=cuda DLC_TEST_SHARE=$share "$part"
