#!/bin/sh
# Random models of ai.onnx.ml, of strings and n-grams, of recurrent layers with all activations, and of Scan of opset 8, computed as ONNX Runtime does.
# Skipped without python3 with onnx and onnxruntime (PYTHON names another interpreter). SEED and COUNT: other models, more of each kind.
set -u
: "${OUT:=build/release}" "${PYTHON:=python3}" "${SEED:=1}" "${COUNT:=12}"
"$PYTHON" -c 'import onnx, onnxruntime' 2>/dev/null || { echo 'no python3 with onnx and onnxruntime'; exit 77; }
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
mkdir "$work/cases"
made=$("$PYTHON" test/onnx/learn.py "$work/cases" "$SEED" "$COUNT") || { echo '[  FAILED  ] 1 tests'; exit 1; }
if "$OUT/test/onnx/conformance" --verbose "$work/cases" >"$work/log" && [ "$made" -gt 0 ] &&
    [ "$(grep -c '^pass .* ULP)$' "$work/log")" = "$made" ]; then
    echo "$made models computed alike"
    echo '[  PASSED  ] 1 tests'
else
    grep -v '^pass ' "$work/log" | tail -20
    echo '[  FAILED  ] 1 tests'
    exit 1
fi
