#!/bin/sh
# Models that dlc_onnx_write makes of the samples of all rows, before ONNX's own checker with full shape inference, and in ONNX Runtime on the
# data and results of the interpreter. Skipped without python3 with onnx and onnxruntime (PYTHON names another interpreter).
set -u
: "${OUT:=build/release}" "${PYTHON:=python3}"
"$PYTHON" -c 'import onnx, onnxruntime, numpy' 2>/dev/null || { echo 'no python3 with onnx and onnxruntime'; exit 77; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
"$OUT/test/onnx/export_test" --write "$work" "$@" >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
"$PYTHON" test/onnx/export_oracle.py "$work"
