#!/bin/sh
# The models and tensors of ONNX's test cases, as the library reads them and as ONNX's own reader does, in one canonical text. Skipped without
# python3 with onnx (PYTHON names another interpreter) or without the cases: FOLDER of the script's first argument, else those of
# libonnx-testdata.
set -u
: "${OUT:=build/release}" "${PYTHON:=python3}"
cases=${1:-/usr/share/libonnx-testdata/data}
"$PYTHON" -c 'import numpy, onnx.numpy_helper' 2>/dev/null && [ -d "$cases" ] || { echo 'no python3-onnx, or no libonnx-testdata'; exit 77; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
# Sequences and optionals stand in files of their own kind; the models say which.
"$PYTHON" test/onnx/oracle.py --list "$cases" >"$work/files"
xargs "$OUT/test/onnx/reader_test" <"$work/files" >"$work/ours"
xargs "$PYTHON" test/onnx/oracle.py <"$work/files" >"$work/theirs"
models=$(grep -c '\.onnx$' "$work/files") all=$(wc -l <"$work/files")
if [ "$models" -gt 0 ] && cmp -s "$work/ours" "$work/theirs"; then
    echo "$models models and $((all - models)) tensors read alike"
    echo '[  PASSED  ] 1 tests'
else
    diff "$work/ours" "$work/theirs" | head -20
    echo '[  FAILED  ] 1 tests'
    exit 1
fi
