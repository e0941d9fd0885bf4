#!/bin/sh
# The levels of CPU features below the host's own: mistakes that were made once, and a share of the operator table, at each of them.
set -u
: "${OUT:=build/release}"
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for level in sse2 avx2; do
    if [ "$level" != sse2 ] && ! grep -qw "$level" /proc/cpuinfo; then
        skipped=$((skipped + 1))
        continue
    fi
    for program in regress/regress conformance/conformance; do
        DLC_CPU_FEATURES=$level DLC_TEST_SHARE=11 "$OUT/test/$program" >"$log" 2>&1 && passed=$((passed + 1)) && continue
        failed=$((failed + 1))
        echo "[  FAILED  ] $program at $level"
        grep 'ERROR\|FAILED' "$log" | head -n 20
    done
done
echo "[  PASSED  ] $passed test(s)."
[ "$skipped" = 0 ] || echo "[  SKIPPED ] $skipped test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
