#!/bin/sh
# The levels of CPU features below the host's own: mistakes that were made once, and a share of the operator table, at each of them.
# A level takes every second row of the table, with DLC_TEST_SHARE every fourth, with DLC_TEST_LONG=1 all.
set -u
: "${OUT:=build/release}"
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# at LEVEL PROGRAM ARGUMENT...
at() {
    level=$1 program=$2
    shift 2
    DLC_CPU_FEATURES=$level DLC_TEST_SHARE=47 "$OUT/test/$program" "$@" >"$log" 2>&1 && passed=$((passed + 1)) && return
    failed=$((failed + 1))
    echo "[  FAILED  ] $program at $level"
    grep 'ERROR\|FAILED' "$log" | head -n 20
}
for level in sse2 avx2; do
    if [ "$level" = avx2 ] && ! grep -qw avx512f /proc/cpuinfo; then
        skipped=$((skipped + 1)) # it is the host's own, or the host has not even that
        continue
    fi
    [ "$level" = sse2 ] && parity=0 || parity=1
    [ "${DLC_TEST_LONG:-0}" = 1 ] && parity=all
    [ -n "${DLC_TEST_SHARE:-}" ] && step=4 || step=2
    at "$level" regress/regress
    # shellcheck disable=SC2046
    at "$level" conformance/conformance $("$OUT/test/conformance/conformance" --list | awk -v p=$parity -v n=$step 'p == "all" || NR % n == p')
done
echo "[  PASSED  ] $passed test(s)."
[ "$skipped" = 0 ] || echo "[  SKIPPED ] $skipped test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
