#!/bin/sh
# bench/models: each small network is written as an ONNX model whose results have the same bits, and the suite runs the files and measures
# everything else that it measures: without peers, since not every machine has them; what it says of files that are missing or broken, and of lists
# and options that are malformed.
set -u
: "${OUT:=build/release}"
case $OUT in /*) built=$OUT ;; *) built=$PWD/$OUT ;; esac
programs=$built/bench/models
[ -e "$programs/models" ] && [ -e "$programs/suite" ] || { echo "this build lacks the benchmark"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# expect STATUS TEXT COMMAND...: its exit status, and what its output contains
expect() {
    status=$1 text=$2
    shift 2
    "$@" >"$work/log" 2>&1
    got=$?
    if [ $got = "$status" ] && grep -q -e "$text" "$work/log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '[  FAILED  ] %s: exit %d, expected %d and "%s"\n' "$*" $got "$status" "$text"
        tail -n 20 "$work/log"
    fi
}

list=bench/models/short.txt
networks=$(awk '$2 ~ /^(standard|odd|quantised)$/ { print $1 } /^@/ && $2 != "-" { print $2 }' $list | sort -u)
if "$programs/models" resnet-small --onnx "$work/resnet-small.onnx" 2>&1 | grep -q '^unsupported'; then
    echo "this build does not read ONNX files"
    exit 77
fi
for network in $networks; do
    expect 0 '"equal_bits":true' "$programs/models" "$network" --onnx "$work/$network.onnx"
done

suite="$programs/suite --models $work --peers none --samples 2 --seconds 0.1"
cases=$(grep -v '^@' $list | grep -c '=')
expect 0 'resnet-small' $suite --only contests --threads 1,2 --filter resnet $list
expect 0 'wavenet-small' $suite --only contests --threads 2 --json "$work/models.json" $list
expect 0 "^$cases\$" grep -c '"kind":"contest".*"onnxruntime":null' "$work/models.json"
expect 0 'resnet-small  *1x3x32x32 *[0-9.]* *[0-9.]* *[0-9.]* ' $suite --only first --filter resnet --cache "$work" $list
# Fewer nodes: they only show that the measurement runs.
sed 's/^@nodes .*/@nodes - nodes=600/' $list >"$work/others.txt"
expect 0 'decoding: kernels built after the 8th token  *0.00  *0.00  *ok' \
    $suite --only others --threads 2 --json "$work/others.json" "$work/others.txt"
expect 0 "^$(grep -c '^@' $list)\$" grep -c '"kind":"measured".*"numbers":\[[0-9.-]' "$work/others.json"
expect 0 'not measured' grep '"figure":"the same, ONNX Runtime over ours, p99"' "$work/others.json"

echo 'nothing odd x=1x3' >"$work/missing.txt"
expect 0 'nothing  *not measured' $suite "$work/missing.txt"
head -c 1000 "$work/resnet-small.onnx" >"$work/short.onnx"
echo 'short odd image=1x3x32x32' >"$work/broken.txt"
expect 1 'short .*FAILED: .*short.onnx' $suite --only contests "$work/broken.txt"
expect 1 '    dlc: .*short.onnx' $suite --only first "$work/broken.txt"
echo 'resnet-small odd image=1x3x32x33' >"$work/sizes.txt"
expect 1 'FAILED: .*33' $suite "$work/sizes.txt"
echo 'resnet-small odd image=1x3y' >"$work/inputs.txt"
expect 1 'malformed inputs' $suite "$work/inputs.txt"
echo 'resnet-small odd data=1x3x32x32' >"$work/names.txt"
expect 1 'no sizes are given for the input image' $suite "$work/names.txt"
echo '@nothing -' >"$work/measure.txt"
expect 1 'no cost nothing' $suite "$work/measure.txt"
echo '@clients nothing' >"$work/measure.txt"
expect 0 'p99, ms .*not measured' $suite "$work/measure.txt"
echo '@clients' >"$work/line.txt"
expect 2 'line.txt:1: expected MODEL FAMILY INPUT' $suite "$work/line.txt"
echo 'resnet-small' >"$work/line.txt"
expect 2 'line.txt:1: expected MODEL FAMILY INPUT' $suite "$work/line.txt"
expect 2 'suite \[option\]' $suite --threads 0 $list
expect 2 'models NAME \[option\]' "$programs/models" resnet-small --batch 0
expect 2 'unknown model lenet' "$programs/models" lenet
echo "[  PASSED  ] $passed test(s)."
[ $failed = 0 ] || { echo "[  FAILED  ] $failed test(s)"; exit 1; }
