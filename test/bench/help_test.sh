#!/bin/sh
# Each target that `make help` names exists, also those of files that the Makefile includes for some goals only.
set -u
: "${MAKE:=make}"
unset MAKEFLAGS MFLAGS
passed=0 failed=0
targets=$("$MAKE" -s help | grep -o 'make [a-z][a-z-]*[a-z]\|[a-z-]*-short\|model-files\|uninstall' | sed 's/make //' | sort -u)
known=$("$MAKE" -npq NO_INSTALL=1 lib 2>/dev/null | awk '/^# Not a target/ { getline; next } /^[a-z][a-z-]*:/ { print $1 }')
for target in $targets; do
    if echo "$known" | grep -qx "$target:"; then
        passed=$((passed + 1))
    elif "$MAKE" -n NO_INSTALL=1 "$target" 2>&1 | grep "No rule to make target '$target'"; then
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done
[ "$passed" -gt 30 ] || { echo "[  FAILED  ] make help: $passed targets are too few" && exit 1; }
echo "[  PASSED  ] $passed test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
