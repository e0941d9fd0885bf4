#!/bin/sh
# A row that would declare what a public header has already fails when the operators' header is generated, by the row's name; comments, longer
# words and other functions do not count. Names of rows to conformance that no row has fail.
set -u
: "${OUT:=build/release}"
header=$(mktemp) && trap 'rm -f "$header"' EXIT
failures=0
expect() { # status, text that the message must hold, what is told, command
    expected=$1 text=$2 what=$3
    shift 3
    message=$("$@" 2>&1)
    status=$?
    if [ $status -eq "$expected" ] && echo "$message" | grep -q "$text"; then return; fi
    echo "$what: status $status, expected $expected: $message"
    failures=$((failures + 1))
}
printf '/* dlc_softmax(x) */ // dlc_matmul\nvoid dlc_softmax_of(void); void other_dlc_softmax(void);\n' >"$header"
expect 0 '' 'no name is taken' "$OUT/gen_ops" names "$header"
printf 'void dlc_softmax(void);\n' >"$header"
expect 1 'row `softmax` would declare dlc_softmax' 'a function' "$OUT/gen_ops" names "$header"
printf 'typedef struct dlc_gelu_options dlc_gelu_options;\n' >"$header"
expect 1 'row `gelu` would declare dlc_gelu_options' 'options' "$OUT/gen_ops" names "$header"
printf 'typedef enum dlc_gelu_approximate { A } dlc_gelu_approximate;\n' >"$header"
expect 1 'its attribute `approximate`' 'a choice' "$OUT/gen_ops" names "$header"
expect 2 'nosuchrow: there is no such row' 'a filter' "$OUT/test/conformance/conformance" nosuchrow
if [ $failures -eq 0 ]; then echo '[  PASSED  ] 5 tests'; else echo "[  FAILED  ] $failures tests"; exit 1; fi
