#!/bin/sh
# The C programs of README.md are short, compile without a warning and print what they should.
set -u
: "${OUT:=build/release}" "${CC:=cc}" "${SANITIZE:=}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}

# NUMBER LINES: the program in the NUMBERth C block, of at most LINES, is built.
build() {
    awk -v wanted="$1" '/^```c$/ { block++; inside = block == wanted; next } /^```$/ { inside = 0 } inside' README.md >"$work/$1.c"
    [ -s "$work/$1.c" ] && [ "$(wc -l <"$work/$1.c")" -le "$2" ]
    report "program $1 of README.md has at most $2 lines" $?
    # shellcheck disable=SC2086
    "$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror $SANITIZE -Iinclude -I"$OUT/gen" "$work/$1.c" -L"$OUT" -ldlc \
        -Wl,-rpath,"$(cd "$OUT" && pwd)" -o "$work/$1"
    report "program $1 of README.md compiles" $?
}

build 1 25
printf '0 15\n0 11\n' >"$work/expected"
"$work/1" >"$work/got" && diff "$work/expected" "$work/got"
report 'program 1 of README.md prints what it should' $?

build 2 22
"$OUT/bin/classify" --numbers "$work/digits.onnx" >/dev/null 2>"$work/said"
if ! grep -q 'this build of libdlc has no ONNX' "$work/said"; then
    "$work/2" "$work/digits.onnx" >"$work/got" && [ "$(grep -c '^[0-9]: -*[0-9.]* -*[0-9.]*$' "$work/got")" = 10 ]
    report 'program 2 of README.md prints scores' $?
    "$work/2" "$work/nowhere.onnx" 2>"$work/said"
    [ $? = 1 ] && grep -q 'nowhere.onnx' "$work/said"
    report 'program 2 of README.md says what is wrong' $?
fi

build 3 25
[ "$("$work/3")" = learned ]
report 'program 3 of README.md learns' $?

echo "[  PASSED  ] $passed test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
