#!/bin/sh
# Operators of the domain com.microsoft: cases that microsoft.py makes, with results of ONNX Runtime, run by the conformance program. Skipped
# without python3 with onnx and onnxruntime (PYTHON names another interpreter). The script's first argument limits them to a text of their names.
set -u
: "${OUT:=build/release}" "${PYTHON:=python3}"
"$PYTHON" -c 'import ml_dtypes, numpy, onnx, onnxruntime' 2>/dev/null || { echo 'no Python with onnx and onnxruntime'; exit 77; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
"$PYTHON" test/onnx/microsoft.py "$work" "${1:-}" || { echo '[  FAILED  ] 1 tests'; exit 1; }
failed=0
[ -d "$work/cases" ] && "$OUT/test/onnx/conformance" "$work/cases" || failed=1
reasons=$("$OUT/test/onnx/conformance" "$work/refused" | grep -c 'FAIL.*let the host run the loop')
[ "$reasons" = 3 ] || { echo "$reasons of 3 operators refused with their reason"; failed=1; }
[ $failed = 0 ] && echo '[  PASSED  ] 1 tests' || echo '[  FAILED  ] 1 tests'
exit $failed
