#!/bin/sh
# Each target that `make help` names exists, also those of files that the Makefile includes for some goals only.
set -u
: "${MAKE:=make}"
unset MAKEFLAGS MFLAGS
passed=0 failed=0
targets=$("$MAKE" -s help | grep -o 'make [a-z][a-z-]*[a-z]\|[a-z-]*-short\|model-files\|uninstall' | sed 's/make //' | sort -u)
known=$("$MAKE" -npq NO_INSTALL=1 lib 2>/dev/null | awk '/^# Not a target/ { getline; next } /^[a-z][a-z-]*:/ { print $1 }')
others=$(echo "$targets" | grep -vxF "$(echo "$known" | tr -d :)")
# shellcheck disable=SC2086
missing=$("$MAKE" -nk NO_INSTALL=1 $others 2>&1 | grep 'No rule to make target')
[ -z "$missing" ] || { failed=1 && echo "[  FAILED  ] $missing"; }
passed=$(($(echo "$targets" | wc -l) - failed))
[ "$passed" -gt 30 ] || { echo "[  FAILED  ] make help: $passed targets are too few" && exit 1; }
echo "[  PASSED  ] $passed test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
