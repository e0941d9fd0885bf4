#!/bin/sh
# <dlc/dlc.hpp> and <dlc/train.hpp> compile without a warning in C++17 and C++20, with exceptions and without, by the C++ compilers that are there, in two
# translation units of one program, and do what cxx_test.cpp checks. README's example in C++ prints what it should.
set -u
: "${OUT:=build/release}" "${CXX:=c++}" "${SANITIZE:=}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}
library=$(cd "$OUT" && pwd)
# COMPILER FLAG... : the files are compiled into $work/program.
build() {
    # shellcheck disable=SC2086
    "$@" -O0 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror $SANITIZE -Iinclude -I"$OUT/gen" $files -L"$OUT" -ldlc \
        -Wl,-rpath,"$library" -o "$work/program"
}
printf '#include <dlc/train.hpp>\nnamespace other { dlc::value twice(const dlc::value &x) { return x + x; } }\n' >"$work/other.cpp"
files="test/api/cxx_test.cpp $work/other.cpp"
clang=$(command -v clang++-19 || echo clang++)
for compiler in "$CXX" "$clang"; do
    if ! command -v "$compiler" >/dev/null 2>&1; then
        skipped=$((skipped + 1)) && echo "[  SKIPPED ] $compiler is not installed"
        continue
    fi
    for flags in -std=c++17 '-std=c++17 -fno-exceptions' -std=c++20; do
        # with a share, clang takes the newest standard, the other compiler the oldest
        if [ -n "${DLC_TEST_SHARE:-}" ]; then
            [ "$compiler" = "$clang" ] && wanted='*20' || wanted='*17*'
            # shellcheck disable=SC2254
            case $flags in $wanted) ;; *) continue ;; esac
        fi
        # shellcheck disable=SC2086
        build "$compiler" $flags && "$work/program"
        report "$compiler $flags" $?
    done
done
awk '/^```cpp$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md >"$work/readme.cpp"
files=$work/readme.cpp
build "$CXX" -std=c++17 && "$work/program" >"$work/got" && printf '0 15\n0 11\n' | diff - "$work/got"
report "README's example in C++" $?
echo "[  PASSED  ] $passed test(s)."
[ "$skipped" = 0 ] || echo "[  SKIPPED ] $skipped test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
