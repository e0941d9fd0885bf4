#!/bin/sh
# What went wrong between a graph and its ONNX model once: the texts onnx_* of this folder, exported and imported (test/fuzz/through_onnx.h).
# Bounds are those of a machine that computes functions in its own way, since functions that ONNX has not are others there.
DLC_TEST_TARGET=onnx DLC_CPU_FEATURES=sse2 exec "${OUT:=build/release}/test/regress/regress" onnx_
