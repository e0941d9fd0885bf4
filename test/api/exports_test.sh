#!/bin/sh
# What the libraries let a linker see is the public headers' functions: all of them, and nothing else. In both forms.
set -u
: "${OUT:=build/release}" "${CC:=cc}"
passed=0 failed=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Declarations end in `);` and may span lines; the name is what stands before the first parenthesis.
printf '#include <dlc/%s>\n' $(cd include/dlc && ls ./*.h) | "$CC" -E -P -Iinclude -I"$OUT/gen" '-D__attribute__(x)=DECLARED' -x c - | tr '\n' ' ' |
    tr ';' '\n' | sed -n 's/^.*DECLARED *[^(]*[ *]\(dlc_[a-z0-9_]*\)(.*$/\1/p' | sort -u >"$work/declared"
[ "$(wc -l <"$work/declared")" -gt 100 ]
report 'the header declares functions' $?

nm -D --defined-only "$OUT/libdlc.so" | awk '$2 != "A" { print $3 }' | sort -u >"$work/shared"
nm -g --defined-only "$OUT/libdlc.a" | awk 'NF == 3 { print $3 }' | sort -u >"$work/archive"
for form in shared archive; do
    extra=$(comm -13 "$work/declared" "$work/$form" | tr '\n' ' ')
    [ -z "$extra" ]
    report "$form: visible but not declared: $extra" $?
    absent=$(comm -23 "$work/declared" "$work/$form" | tr '\n' ' ')
    [ -z "$absent" ]
    report "$form: declared but not there: $absent" $?
done

# Neither form may need more than the system's own libraries, unless LLVM was linked shared on purpose.
needed=$(readelf -d "$OUT/libdlc.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -v '^lib\(c\|m\|gcc_s\|pthread\|dl\|rt\|asan\|ubsan\|tsan\)\.so\|^ld-linux\|^libLLVM' | tr '\n' ' ')
[ -z "$needed" ]
report "shared: needs at run time: $needed" $?
# The library's own objects (LLVM's are not) end no process, print nothing and change nothing of it. What only the isolated compiler's
# process runs may (compiler_main, serve); fprintf writes the map for perf.
find "$OUT/lib" "$OUT/tir" "$OUT/graph" "$OUT/targets" "$OUT/jit" -name '*.o' ! -name 'gen_*.o' ! -name compiler_main.o ! -name serve.o >"$work/objects"
said=$(xargs nm -u <"$work/objects" | awk '$1 == "U" { print $2 }' | sort -u | grep -x -E 'abort|_?exit|_Exit|quick_exit|__assert_fail|v?printf|__v?printf_chk|puts|putchar|perror|std(out|err|in)|signal|sigaction|setlocale|s?rand|strtok|(set|unset|put)env|chdir|umask|system|popen|fork|atexit|pthread_atfork|sched_setaffinity|fesetround' | tr '\n' ' ')
[ -z "$said" ]
report "the library's objects name: $said" $?
readelf -d "$OUT/libdlc.so" | grep -q 'SONAME.*libdlc\.so\.[0-9]'
report 'soname' $?

echo "[  PASSED  ] $passed test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
