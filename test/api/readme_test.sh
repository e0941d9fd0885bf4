#!/bin/sh
# The program on README.md's first page is short, compiles without a warning and prints what it should.
set -u
: "${OUT:=build/release}" "${CC:=cc}" "${SANITIZE:=}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md >"$work/readme.c"
# shellcheck disable=SC2086
"$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror $SANITIZE -Iinclude -I"$OUT/gen" "$work/readme.c" -L"$OUT" -ldlc \
    -Wl,-rpath,"$(cd "$OUT" && pwd)" -o "$work/readme" || exit 1
[ "$(wc -l <"$work/readme.c")" -le 25 ] || { echo "README.md: the example has more than 25 lines"; exit 1; }
printf '0 15\n0 11\n' >"$work/expected"
"$work/readme" >"$work/got" && diff "$work/expected" "$work/got"
