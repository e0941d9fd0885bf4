#!/bin/sh
# `make peers` says what it would fetch and with which command, and with NO_INSTALL=1 leaves everything as it is; what it fetches is
# pinned by version and hash. Speaks the summary that test/run reads.
set -u
: "${MAKE:=make}"
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}

"$MAKE" -C "$here" peers NO_INSTALL=1 PEERS_DIR="$work/peers" >"$work/log" 2>&1
report 'NO_INSTALL stops with an error' $((!$?))
grep -q '^Command: .*bench/requirements.txt' "$work/log"
report 'the command is printed' $?
grep -q 'MB to download' "$work/log"
report 'the size is printed' $?
report 'nothing is written' $([ -e "$work/peers" ]; echo $((!$?)))

requirements=$(cat "$here"/bench/requirements*.txt | grep -c '==')
report 'every wheel has a hash' $([ "$(cat "$here"/bench/requirements*.txt | grep -c -- '--hash=sha256:[0-9a-f]\{64\}$')" = "$requirements" ]; echo $?)

echo "[  PASSED  ] $passed test(s)."
[ $failed = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ $failed = 0 ]
