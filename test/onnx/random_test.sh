#!/bin/sh
# Random nodes of ONNX's operators against the standard's reference implementation. Skipped without python3 with onnx (PYTHON names another
# interpreter). SEED and COUNT: other nodes, more of them.
set -u
: "${OUT:=build/release}" "${PYTHON:=python3}" "${SEED:=1}" "${COUNT:=500}"
export OUT
command -v "$PYTHON" >/dev/null || exit 77
[ -z "${DLC_TEST_LONG:-}" ] || COUNT=5000
exec "$PYTHON" -B test/onnx/random_nodes.py "$SEED" "$COUNT"
