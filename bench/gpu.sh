#!/bin/sh
# The checks and measurements that need an NVIDIA GPU, in four parts of less than nine minutes each.
#
#   bench/gpu.sh check OUT      conformance on the device, bit for bit against the interpreter; fragment maps against the hardware
#   bench/gpu.sh kernels OUT    kernels of shapes.txt and gpu/cases.txt in f32 and bf16 beside PyTorch
#   bench/gpu.sh models OUT     digits network, ResNet-50, BERT-base beside PyTorch eager and torch.compile
#   bench/gpu.sh sanitize OUT   compute-sanitizer: memcheck and racecheck of some rows of the conformance suite
#
# Each writes JSON and a table into the folder OUT, ends with one line, and does not do again what OUT has: the next call goes on where
# this one ran out of time. Exit status: 0, 1 (something failed or is wrong), 77 (no device, or the part cannot run here).
#
# Needed: a driver; NVRTC, as nvcc has it; python3, with PyTorch for comparisons; and a build. That is the folder build/gpu, which
# `make gpu-build` makes where gcc, make, cmocka and libffi are, without LLVM and without CUDA, of some MB; carry it along to a machine that
# lacks those. Where it is missing, the script tries to make it.
#
# DLC_GPU_BUILD another build (as build/release), DLC_GPU_SECONDS (440) starts nothing after that, DLC_GPU_JOBS processes at once,
# DLC_GPU_ROWS "add matmul": those rows only, PYTHON; further arguments go to the Python program (gpu/gpu.py --help).
set -u
usage() { sed -n '4,7s/^# *//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
part=$1 out=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
: "${DLC_GPU_BUILD:=$root/build/gpu}" "${DLC_GPU_SECONDS:=440}" "${PYTHON:=python3}"
cores=$(nproc 2>/dev/null || echo 2)
: "${DLC_GPU_JOBS:=$([ "$cores" -gt 12 ] && echo 12 || echo "$cores")}"
begin=$(date +%s)

# ---- what it stands on

find_build() {
    case $DLC_GPU_BUILD in /*) ;; *) DLC_GPU_BUILD=$PWD/$DLC_GPU_BUILD ;; esac
    if [ ! -e "$DLC_GPU_BUILD/libdlc.so" ]; then
        echo "$DLC_GPU_BUILD is missing: making it"
        if ! (cd "$root" && make gpu-build) >"$out/build.log" 2>&1; then
            tail -n 5 "$out/build.log"
            echo "It cannot be made here: carry build/gpu along from a machine where 'make gpu-build' works."
            exit 77
        fi
    fi
    LD_LIBRARY_PATH=$DLC_GPU_BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
}

# NVRTC often lies where only nvcc looks for it.
find_nvrtc() {
    [ -n "${DLC_NVRTC:-}" ] && return
    ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so\.1[1-9]' && return
    for folder in "${CUDA_HOME:-/usr/local/cuda}"/lib64 /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib; do
        for library in "$folder"/libnvrtc.so.13 "$folder"/libnvrtc.so.12 "$folder"/libnvrtc.so.11.2; do
            [ -e "$library" ] && DLC_NVRTC=$library && export DLC_NVRTC && return
        done
    done
}

# Says why not.
need_device() {
    reason=$("$DLC_GPU_BUILD/bench/models/models" resnet-small --target cuda 2>&1) && return
    echo "$part: not measured: $reason"
    exit 77
}

left_of_time() { [ $(($(date +%s) - begin)) -lt "$DLC_GPU_SECONDS" ]; }

# ---- rows of the conformance suite, each a process, several at once

# One row: ROW TOOL, TOOL a command in front of the program or empty. A log stays of what failed.
run_row() {
    row=$1 folder=$2
    shift 2
    left_of_time || return 0
    start=$(date +%s)
    limit=$((DLC_GPU_SECONDS + 80 - (start - begin)))
    [ $limit -gt 300 ] && limit=300
    DLC_TEST_TARGET=cuda timeout -k 5 $limit "$@" "$DLC_GPU_BUILD/test/conformance/conformance" "$row" >"$folder/$row.log" 2>&1
    status=$?
    [ $status = 124 ] && [ $limit -lt 300 ] && rm "$folder/$row.log" && return 0 # for the next call
    counts=$(sed -n 's/.*: \([0-9]*\) kernels bit for bit, \([0-9]*\) within bounds/"exact":\1,"bounded":\2/p' "$folder/$row.log")
    printf '{"row":"%s","status":%d,"seconds":%d,%s}\n' "$row" $status $(($(date +%s) - start)) "${counts:-\"exact\":0,\"bounded\":0}" \
        >"$folder/$row.json.new"
    mv "$folder/$row.json.new" "$folder/$row.json"
    [ $status = 0 ] && rm "$folder/$row.log"
    return 0
}

# Runs the rows that have no result yet and that no other worker has taken.
work() {
    name=$1 folder=$2
    shift 2
    for row in $rows; do
        [ -e "$folder/$row.json" ] || grep -q "\"row\":\"$row\"" "$out/$name.jsonl" 2>/dev/null && continue
        mkdir "$folder/$row.taken" 2>/dev/null && run_row "$row" "$folder" "$@"
    done
}

# NAME TOOL...
run_rows() {
    name=$1 folder=$out/$1 worker=0
    shift
    rm -rf "$folder"/*.taken
    mkdir -p "$folder"
    while [ $worker -lt "$DLC_GPU_JOBS" ]; do
        work "$name" "$folder" "$@" &
        worker=$((worker + 1))
    done
    wait
}

# Results of the rows in few files, and table and sums of them: NAME; sets passed, failed, left, exact, bounded.
sum_rows() {
    wanted=$(echo "$rows" | wc -w)
    cat "$out/$1"/*.json >>"$out/$1.jsonl" 2>/dev/null
    for log in "$out/$1"/*.log; do
        [ -e "$log" ] && { echo "==== $log"; cat "$log"; } >>"$out/$1-failures.log"
    done
    rm -r "${out:?}/$1"
    awk -F'[:,"{}]+' '{ printf "%-28s %-8s %5d s %6d bit for bit %6d within bounds\n", $3, $5 == 0 ? "ok" : "FAILED", $7, $9, $11 }' \
        "$out/$1.jsonl" | tee "$out/$1.txt"
    # shellcheck disable=SC2046
    set -- $(awk -F'[:,"{}]+' '{ n++; bad += $5 != 0; e += $9; b += $11 } END { print n + 0, bad + 0, e + 0, b + 0 }' "$out/$1.jsonl")
    passed=$(($1 - $2)) failed=$2 left=$((wanted - $1)) exact=$3 bounded=$4
}

# ---- parts

check() {
    need_device
    rows=${DLC_GPU_ROWS:-$("$DLC_GPU_BUILD/test/conformance/conformance" --list)}
    run_rows check
    sum_rows check
    maps=$out/hardware.log
    if ! grep -q PASSED "$maps" 2>/dev/null; then "$DLC_GPU_BUILD/test/cuda/hardware" >"$maps" 2>&1; fi
    if grep -q 'FAILED' "$maps" || ! grep -q 'PASSED' "$maps"; then
        hardware=FAILED failed=$((failed + 1))
    elif grep -q 'SKIPPED' "$maps"; then
        hardware='not measured'
    else
        hardware='as expected'
    fi
    summary="check: $passed rows passed, $failed failed, $left left for another run; $exact kernels bit for bit, $bounded within bounds; fragment maps and copies: $hardware"
    printf '{"passed":%d,"failed":%d,"left":%d,"exact":%d,"bounded":%d,"hardware":"%s"}\n' "$passed" "$failed" "$left" "$exact" "$bounded" \
        "$hardware" >"$out/check.json"
    echo "$summary" | tee -a "$out/check.txt"
    [ "$failed" = 0 ]
}

sanitize() {
    sanitizer=
    for candidate in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer; do
        [ -x "$candidate" ] && sanitizer=$candidate && break
    done
    [ -n "$sanitizer" ] || { echo 'sanitize: not measured: compute-sanitizer is not here'; exit 77; }
    need_device
    # Its own complaint about the device or the driver, in a program that is known to work.
    "$sanitizer" --error-exitcode 9 "$DLC_GPU_BUILD/bench/models/models" resnet-small --target cuda >"$out/attach.log" 2>&1
    if ! grep -q 'ERROR SUMMARY' "$out/attach.log" || grep -qi 'not supported\|internal sanitizer error\|unable to' "$out/attach.log"; then
        echo "sanitize: not measured: compute-sanitizer cannot attach: $(grep -i 'error\|support\|unable' "$out/attach.log" | head -n 1)"
        exit 77
    fi
    : "${DLC_TEST_SHARE:=5}"
    export DLC_TEST_SHARE
    rows=${DLC_GPU_ROWS:-add exp cast transpose concat pad gather scatter reduce_sum arg_max cumulative_sum softmax layer_norm matmul convolution attention rng_uniform top_k}
    total=0 bad=0 rest=0
    for tool in memcheck racecheck; do
        run_rows $tool "$sanitizer" --tool "$tool" --error-exitcode 9
        sum_rows $tool
        total=$((total + passed)) bad=$((bad + failed)) rest=$((rest + left))
    done
    printf '{"passed":%d,"failed":%d,"left":%d}\n' $total $bad $rest >"$out/sanitize.json"
    echo "sanitize: $total runs of rows under memcheck and racecheck passed, $bad failed, $rest left for another run" | tee "$out/sanitize.txt"
    [ $bad = 0 ]
}

mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
case $part in
check | sanitize)
    find_build
    find_nvrtc
    $part
    ;;
kernels | models)
    find_build
    find_nvrtc
    need_device
    exec "$PYTHON" "$here/gpu/gpu.py" "$part" "$out" --build "$DLC_GPU_BUILD" --seconds "$DLC_GPU_SECONDS" "$@"
    ;;
*) usage ;;
esac
