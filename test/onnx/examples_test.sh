#!/bin/sh
# The examples on real data print what ONNX Runtime computes (examples/data/*_expected.txt, by models_expected.py), and say what is missing where
# their data are not there. classify has its data in the tree; the others are skipped without `make examples-data`. And the operator reference
# tells of ONNX.
set -u
: "${OUT:=build/release}"
bin=$OUT/bin expected=examples/data
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}

"$bin/classify" --numbers "$work/digits.onnx" >"$work/classify" 2>"$work/said"
if grep -q 'this build of libdlc has no ONNX' "$work/said"; then
    echo 'built without ONNX'
    exit 77
fi

# EXPECTED GOT: the same words; numbers within 0.001, those of boxes, which are rounded to pixels, within 1.
same() {
    awk 'NR == FNR { line[++lines] = $0; next }
        { split($0, got); count = split(line[FNR], want); allowed = $1 == "box" ? 1 : 0.001
          if (count != NF) wrong = wrong FNR " "
          for (i = 1; i <= count; i++) {
              number = want[i] ~ /^-?[0-9]+(\.[0-9]+)?$/ && got[i] ~ /^-?[0-9]+(\.[0-9]+)?$/
              if (number ? want[i] - got[i] > allowed || got[i] - want[i] > allowed : want[i] != got[i]) wrong = wrong FNR " "
          } }
        END { if (FNR != lines) wrong = wrong "number of lines"; if (wrong) print "lines that differ: " wrong; exit wrong != "" }' "$1" "$2"
}

same "$expected/classify_expected.txt" "$work/classify"
report 'classify: scores of the model as ONNX Runtime has them' $?
"$bin/classify" "$work/digits.onnx" >"$work/shown" && grep -q '^44[0-9] of 450 held-out digits are right; first call [0-9.]* ms, then [0-9.]* ms per call$' "$work/shown"
report 'classify shows digits and times' $?
EXAMPLES_DATA=$work "$bin/classify" "$work/nowhere/digits.onnx" >"$work/shown" 2>&1
[ $? = 1 ] && grep -q '^classify: .*nowhere/digits.onnx' "$work/shown"
report 'classify says where it cannot write' $?
"$bin/onnx_operator" >"$work/shown" && grep -q '^not known: "Gated" of domain "my" (opset 1) 1 time' "$work/shown" && grep -qx 'y\[1\] = 2.9670' "$work/shown"
report 'onnx_operator runs operators of its own' $?

data=${EXAMPLES_DATA:-${XDG_CACHE_HOME:-$HOME/.cache}/libdlc/examples}
# EXAMPLE ARGUMENT...: its numbers are as expected, and without data it says how to get them.
check() {
    example=$1
    shift
    if [ ! -x "$bin/$example" ]; then
        echo "skipped: $example: built without libpng"
        skipped=$((skipped + 2))
        return
    fi
    EXAMPLES_DATA=$work/none "$bin/$example" "$@" >"$work/shown" 2>&1
    [ $? = 77 ] && grep -q "$work/none/.* is not there: .make examples-data. fetches it .*94 MB to download" "$work/shown"
    report "$example without data" $?
    "$bin/$example" --numbers "$@" >"$work/$example" 2>"$work/said"
    status=$?
    if [ $status = 77 ]; then
        echo "skipped: $example: $(cat "$work/said")"
        skipped=$((skipped + 1))
        return
    fi
    same "$expected/${example}_expected.txt" "$work/$example"
    report "$example: as ONNX Runtime" $?
}
check vad
check filetype "$data/page.png" "$data/recording.wav" "$data/magika/magika.py" "$data/magika/models/standard_v3_3/config.min.json" \
    "$data/silero_vad/data/silero_vad_op18_ifless.onnx" "$expected/digits.csv" "$expected/digits_weights.safetensors"
check ocr

# NAME PATTERN ARGUMENT...: the program shows this; skipped without data.
shows() {
    name=$1 pattern=$2
    shift 2
    "$bin/$name" "$@" >"$work/shown" 2>&1
    status=$?
    if [ $status = 77 ] || [ ! -x "$bin/$name" ]; then skipped=$((skipped + 1)); return; fi
    [ $status = 0 ] && grep -q "$pattern" "$work/shown"
    report "$name shows $pattern" $?
}
shows vad '^speech from  *[0-9.]* to  *[0-9.]* s$'
shows filetype 'LICENSE: txt ([0-9.]* %)$' LICENSE
shows filetype 'LICENSE.nowhere: too short, or not to be read$' LICENSE.nowhere
shows ocr '^ *[0-9]*,[0-9]* *[0-9.]* % ' "$data/page.png" "$work/framed.png"
head -c 100 "$expected/digits.csv" >"$work/sound.wav"
"$bin/vad" "$work/sound.wav" >"$work/shown" 2>&1
case $? in
77) skipped=$((skipped + 1)) ;;
1) grep -q 'sound.wav: not found, or not a .wav of 16 bits' "$work/shown"; report 'vad refuses what is no recording' $? ;;
*) report 'vad refuses what is no recording' 1 ;;
esac

# What a hostile file of settings says stays within the program's arrays.
mkdir -p "$work/settings/magika/models/standard_v3_3"
: >"$work/settings/magika/models/standard_v3_3/model.onnx"
printf '{"beg_size":4,"mid_size":0,"end_size":4,"block_size":4,"padding_token":256,"min_file_size_for_dl":-99999999,"target_labels_space":["a"]}' \
    >"$work/settings/magika/models/standard_v3_3/config.min.json"
EXAMPLES_DATA=$work/settings "$bin/filetype" LICENSE >"$work/shown" 2>&1
[ $? = 1 ] && grep -q 'config.min.json: not the settings of a network' "$work/shown"
report 'filetype refuses settings' $?

# `make examples-data` says what it would fetch and with which commands, and with NO_INSTALL=1 leaves everything as it is.
NO_INSTALL=1 examples/data/fetch "$work/fetched" >"$work/shown" 2>&1
[ $? = 1 ] && grep -q '^Command: python3 -m pip download .*requirements.txt' "$work/shown" && grep -q 'MB to download' "$work/shown" && [ ! -e "$work/fetched" ]
report 'make examples-data with NO_INSTALL' $?
[ "$(grep -c -- '--hash=sha256:[0-9a-f]\{64\}$' "$expected/requirements.txt")" = "$(grep -c '==' "$expected/requirements.txt")" ]
report 'every wheel has a hash' $?

# The operator reference has the rows of import and export.
grep -qx 'ONNX: exported as `Softmax`; imported from `Softmax`.' "$OUT/gen/operators.md" && grep -q '^| Softmax | 1 to [0-9]* | .softmax.(#softmax) |$' "$OUT/gen/operators.md"
report 'the operator reference tells of ONNX' $?

[ $skipped = 0 ] || echo "[  SKIPPED ] $skipped test(s)."
echo "[  PASSED  ] $passed test(s)."
[ $failed = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ $failed = 0 ]
