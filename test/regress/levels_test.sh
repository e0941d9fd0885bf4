#!/bin/sh
# What went wrong at another level of the processor's instructions once: the texts avx2_* and sse2_* of this folder.
set -u
: "${OUT:=build/release}"
found=77
for level in avx2 sse2; do
    grep -qw $level /proc/cpuinfo || continue
    DLC_CPU_FEATURES=$level "$OUT/test/regress/regress" ${level}_
    code=$?
    [ $code -eq 77 ] && continue # no text
    [ $code -eq 0 ] || exit $code
    found=0
done
exit $found
