# shellcheck shell=sh
# Sourced by the scripts that list mutants: sources made wrong in one place, which tests must find. They are copied and changed in the copy; only
# the changed file and the tests are built. A mutant whose line is gone fails, too: it is to be written again for the code of now.
# Arguments of such a script: words, for only the files whose names contain one of them; --lines, for only whether the lines exist.
# A script defines
#   programs_of [TEST...]   the programs that decide about a mutant
#   survives [TEST...]      do they pass, in the copy, the working folder?
# and calls begin "$@", mutant for each, and finish.
: "${OUT:=build/release}" "${MAKE:=make}"
unset MAKEFLAGS MFLAGS DLC_BLESS
passed=0 failed=0 lines='' words=''

# FOLDER [TEST...]: builds the programs there; nothing is made again because flags are given otherwise.
build() {
    folder=$1 && shift
    # shellcheck disable=SC2046
    (cd "$folder" && "$MAKE" configuration="$(cat "$OUT/configuration")" BUILD="$(dirname "$OUT")" MODE="$(basename "$OUT")" $(programs_of "$@"))
}

told() {
    if [ "$1" = found ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    printf '%-9s %-30s %s\n' "$1" "$2" "$3"
}

begin() {
    [ "${1:-}" != --lines ] || { lines=1 && shift; }
    words=$*
    [ -z "$lines" ] || return 0
    case $OUT in /*) echo "OUT=$OUT: expected a folder below this one, which is copied: mutants would be built into it" && exit 1 ;; esac
    top=$(mktemp -d)
    trap 'rm -rf "$top"' EXIT
    build . >/dev/null || exit 1
    cp -a Makefile include lib tir graph jit compiler targets bench test examples "$top" || exit 1
    find "$OUT" \( -name '*.o' -o -name '*.d' -o -name 'layer-*.a' -o -path "$OUT/gen/*" -o -path "$OUT/gen_ops*" -o -name configuration \) -type f |
        tar --format=pax -c -T - | tar -x -C "$top" || exit 1
    if ! build "$top" >"$top/log" 2>&1 || ! (cd "$top" && survives) >"$top/log" 2>&1; then
        echo 'The copy does not build, or fails without a mutant:'
        tail -n 20 "$top/log"
        exit 1
    fi
}

# FILE SED WHAT [TEST...]: the mutant; what it does; the tests that decide.
mutant() {
    file=$1 change=$2 what=$3 && shift 3
    if [ -n "$words" ]; then
        wanted=
        for word in $words; do case $file in *"$word"*) wanted=1 ;; esac; done
        [ -n "$wanted" ] || return 0
    fi
    if [ -n "$lines" ]; then
        if sed "$change" "$file" | cmp -s - "$file"; then told 'NO LINE' "$file" "$what"; else told found "$file" "$what"; fi
        return 0
    fi
    cp "$top/$file" "$top/kept"
    sed "$change" "$top/kept" >"$top/$file"
    if cmp -s "$top/kept" "$top/$file"; then
        told 'NO LINE' "$file" "$what"
    elif ! build "$top" "$@" >"$top/log" 2>&1; then
        told 'NO BUILD' "$file" "$what"
        grep -m 3 'error' "$top/log"
    elif (cd "$top" && survives "$@") >"$top/log" 2>&1; then
        told SURVIVED "$file" "$what"
    else
        told found "$file" "$what"
    fi
    cp "$top/kept" "$top/$file"
}

finish() {
    echo "[  PASSED  ] $passed test(s)."
    [ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
    [ "$failed" = 0 ]
}
