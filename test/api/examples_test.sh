#!/bin/sh
# The examples run and are right, and dlc-opt shows every stage of the digits graph and of an attention block, takes back the schedules
# that it prints, and says what is wrong with its arguments.
set -u
: "${OUT:=build/release}"
bin=$OUT/bin attention=examples/dlc-opt/attention.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}

for example in embed custom_op extend threads eager; do
    "$bin/$example" >"$work/$example" 2>&1
    report "$example" $?
done
# EXAMPLE TEXT [ARGUMENT]: it runs, and prints the lines of TEXT.
prints() {
    "$bin/$1" ${3:+"$3"} >"$work/$1" 2>&1 && printf '%s\n' "$2" >"$work/wanted" && grep -qxF -f "$work/wanted" "$work/$1" &&
        [ "$(grep -cxF -f "$work/wanted" "$work/$1")" = "$(wc -l <"$work/wanted")" ]
    report "$1" $?
}
prints control_flow '|sum| 9, its root 3
running means -0.5 -2.25 -0.125 -3.0625'
prints decode '5 steps at once, then 7 one by one: as attention over all of them
each single step writes 128 bytes into the caches'
prints safetensors 'note: two numbers out of three
layer.weight: 3 2
layer.bias: 2
y = 0 15, 0 11' "$work/two.safetensors"
prints safetensors 'y = 0 15, 0 11' "$work/two.safetensors" # now it is there
prints quantised 'weights: 10240 bytes, 65536 as f32
relative error of the product below 10 %'
prints profile 'logs: [64, 128], first element 0.4055'
grep -q '^ *[0-9.]* %  *[0-9.]* us  *[0-9.]* us  *[0-9.]* us  *100 runs ' "$work/profile" &&
    grep -q '^not finite: the run stopped: value logs of log is NaN at \[3, ' "$work/profile"
report 'profile shows kernels and the first NaN' $?
prints hello '100 x = 30.1 24.0'
grep -q 'a mistake reads: add(a: f32\[4, 3\], b: f32\[4, 2\])' "$work/hello"
report 'hello shows a mistake' $?
grep -q 'a mistake reads: add(a: f32\[4, 3\], b: f32\[4, 2\])' "$work/embed"
report 'embed shows a mistake' $?
# The tokens are those of ONNX Runtime 1.32 on the same file.
if "$bin/generate" --make "$work/decoder.onnx" 2>"$work/said"; then
    "$bin/generate" "$work/decoder.onnx" 40 >"$work/generate" && grep -qx 'tokens: 321 411 246 363 363 363 363 363 ...' "$work/generate" &&
        grep -q '^after the 8th: [0-9.]* tokens/s, 0 kernels built$' "$work/generate"
    report 'generate' $?
    "$bin/generate" "$work/nowhere.onnx" 2>"$work/said" || grep -q 'nowhere.onnx' "$work/said"
    report 'generate without a model' $?
else
    grep -q 'this build of libdlc has no ONNX' "$work/said"
    report 'generate --make' $?
fi
"$bin/digits" examples/data >"$work/digits" 2>&1 && grep -q '^accuracy 9[789]\.[0-9] % on 450 held-out digits$' "$work/digits"
report 'digits' $?
"$bin/train" examples/data "$work/digits_weights.safetensors" >"$work/train" 2>&1 &&
    grep -q 'of 450 others 9[789]\.[0-9]* % are right$' "$work/train" && cp examples/data/digits.csv "$work" &&
    "$bin/digits" "$work" | grep -q "^accuracy $(sed -n 's/.* others \([0-9.]*\).*/\1/p' "$work/train" | xargs printf '%.1f') %"
report 'train, and digits with its weights' $?
"$bin/train_text" README.md 2 "$work/state.safetensors" >"$work/text" 2>&1 && grep -q '^step     2 ' "$work/text" &&
    "$bin/train_text" README.md 4 "$work/state.safetensors" >"$work/text" 2>&1 && grep -q '^step     4 ' "$work/text"
report 'train_text' $?
"$bin/train_lstm" README.md 2 "$work/lstm.safetensors" >"$work/text" 2>&1 && grep -q '^step     2 ' "$work/text" &&
    "$bin/train_lstm" README.md 4 "$work/lstm.safetensors" >"$work/text" 2>&1 && grep -q '^step     4 ' "$work/text"
report 'train_lstm' $?
"$bin/fashion" --student examples/data 3 >"$work/fashion" 2>&1 && grep -q '^no Fashion-MNIST in examples/data' "$work/fashion" &&
    grep -q '^of 450 held out the student, taught, names 9[0-9.]* %; alone 9[0-9.]* %$' "$work/fashion" &&
    grep -q '^of 450 held out the network names 9[0-9.]* %$' "$work/fashion"
report 'fashion on the digits' $?

# PATTERN EXAMPLE ARGUMENT...: it ends with 1 or 2, and says why.
stops() {
    pattern=$1 example=$2
    shift 2
    "$bin/$example" "$@" >/dev/null 2>"$work/said"
    status=$?
    { [ $status = 1 ] || [ $status = 2 ]; } && grep -q -e "$pattern" "$work/said"
    report "$example stops: $pattern" $?
}
mkdir "$work/bright" "$work/foreign" "$work/clothes"
sed '1s/^[0-9]*/99999999/' examples/data/digits.csv >"$work/bright/digits.csv"
cp examples/data/digits_weights.safetensors "$work/bright"
stops 'not 1797 rows of 64 pixels (0 to 16)' digits "$work/bright"
cp examples/data/digits.csv "$work/foreign"
cp "$work/two.safetensors" "$work/foreign/digits_weights.safetensors"
stops 'no tensor "conv1.weight"' digits --graph "$work/foreign"
stops 'EPOCHS: 1 to 1000' fashion examples/data 0
for set in train t10k; do # one picture, of class 200
    { printf '\0\0\010\003\0\0\0\001\0\0\0\034\0\0\0\034'; head -c 784 /dev/zero; } >"$work/clothes/$set-images-idx3-ubyte.gz"
    printf '\0\0\010\001\0\0\0\001\310' >"$work/clothes/$set-labels-idx1-ubyte.gz"
done
stops 'train-labels-idx1-ubyte.gz: not one of 10 classes' fashion "$work/clothes" 1
stops 'cannot create' train_text README.md 1000000 "$work/nowhere/state.safetensors"
header='{"layer.weight":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]},"layer.bias":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}'
{ printf "\\$(printf %o ${#header})\0\0\0\0\0\0\0%s" "$header"; head -c 16 /dev/zero; } >"$work/column.safetensors"
prints safetensors 'note: none
y = 0, 0' "$work/column.safetensors"
if [ -e "$work/decoder.onnx" ]; then
    stops 'usage: generate MODEL.onnx' generate "$work/decoder.onnx" -20
    stops 'usage: classify' classify --help
    # logits = ReduceSum(input_ids), of rank 0
    printf '\010\010:e\012/\012\011input_ids\022\006logits"\011ReduceSum*\017\012\010keepdims\030\000\240\001\002\022\001gZ\035\012\011input_ids\022\020\012\016\010\007\022\012\012\003\022\001b\012\003\022\001nb\020\012\006logits\022\006\012\004\010\007\022\000B\004\012\000\020\021' >"$work/sum.onnx"
    stops 'logits are no f32 \[1, tokens, vocabulary\]' generate "$work/sum.onnx"
fi

"$bin/digits" --graph examples/data >"$work/digits.txt"
report 'digits --graph' $?

# GRAPH STAGE TEXT: the stage is shown and holds the text.
shows() {
    "$bin/dlc-opt" "$1" --dims n=7 --print "$2" >"$work/shown" 2>"$work/said" && grep -q "$3" "$work/shown" && [ ! -s "$work/said" ]
    report "dlc-opt $1 --print $2" $?
}
for graph in "$attention" "$work/digits.txt"; do
    shows "$graph" graph '= dot_general('
    shows "$graph" bound ': f32\[7, '
    shows "$graph" regions '^kernel dot_general'
    shows "$graph" stages '^reduce dot_general '
    shows "$graph" schedule '^region dot_general'
    shows "$graph" steps '^-- after `vec '
    shows "$graph" loops 'for .* vec {$'
    shows "$graph" llvm '^define '
    shows "$graph" asm '^# .*: [0-9]* spills, [0-9]* reloads$'
    shows "$graph" plan '^plan: [0-9]* steps'
    shows "$graph" dot '^digraph '
    "$bin/dlc-opt" "$graph" --dims n=7 --passes decompose,simplify,bind,init >"$work/shown" && grep -q '^# after bind$' "$work/shown"
    report "dlc-opt $graph --passes" $?
    "$bin/dlc-opt" "$graph" --dims n=7 --check --time 0.01 --print profile >"$work/shown" && grep -q ': good$' "$work/shown" &&
        grep -q '^time: median .* us, best' "$work/shown" && grep -q '^ *[0-9.]* %  *[0-9.]* us .* runs ' "$work/shown"
    report "dlc-opt $graph --check --time" $?
    "$bin/dlc-opt" "$graph" --dims n=7 --print schedule >"$work/schedule"
    "$bin/dlc-opt" "$graph" --dims n=7 --schedule "$work/schedule" --check --print schedule >"$work/again" &&
        sed -n '/^---- schedule/,$p' "$work/again" | cmp -s - "$work/schedule"
    report "dlc-opt $graph takes its own schedules" $?
done
DLC_DEBUG=plan "$bin/dlc-opt" "$attention" --dims n=7 --run 2>&1 | grep -q '^plan: [0-9]* steps'
report 'DLC_DEBUG=plan' $?

# One file in, other numbers out.
printf 'graph {\n  input x: f32[n]\n  y = add(x, x)\n  output y\n}\n' >"$work/twice.txt"
"$bin/dlc-opt" "$work/twice.txt" --passes jvp >"$work/jvp.txt" && "$bin/dlc-opt" "$work/jvp.txt" --print graph | grep -q 'output .*y.tangent'
report 'dlc-opt reads the graph that a pass printed' $?
printf '\000\000\200\077\000\000\000\100\000\000\100\100' >"$work/x" # 1 2 3
"$bin/dlc-opt" "$work/twice.txt" --dims n=3 --input "x=$work/x" --values | grep -q '^y: f32\[3\] = 2 4 6$'
report 'dlc-opt --input' $?
printf 'region add:\nloops:\n  split add.i0 2 -> a b mask\n  unroll add.b\n' >"$work/schedule"
"$bin/dlc-opt" "$work/twice.txt" --dims n=3 --schedule "$work/schedule" --check --print loops >"$work/shown" && grep -q 'for b in 0..2 unroll' "$work/shown"
report 'dlc-opt --schedule' $?

# In bf16 a fused kernel rounds less often than one operator after the other; --strict rounds as these do.
cat >"$work/narrow.txt" <<'EOF'
graph {
  input x: bf16[n, 8]
  e = exp(x)
  s = reduce_sum(e, axes=[1], keep=true)
  y = div(e, s)
  z = mul(y, y)
  output z
}
EOF
"$bin/dlc-opt" "$work/narrow.txt" --dims n=40 --compare interp --strict | grep -q '^compare with interp: all values agree$'
report 'dlc-opt --compare, values that agree' $?
"$bin/dlc-opt" "$work/narrow.txt" --dims n=40 --compare interp --tolerance 0 --save "$work/x.safetensors" >"$work/shown"
[ $? = 1 ] && grep -q '^compare with interp: output z differs first, at element ' "$work/shown" && [ -s "$work/x.safetensors" ]
report 'dlc-opt --compare, values that differ' $?

# TEXT ARGUMENT...: refused with that text.
refuses() {
    text=$1
    shift
    "$bin/dlc-opt" "$@" >/dev/null 2>"$work/said"
    [ $? != 0 ] && grep -q -e "$text" "$work/said"
    report "dlc-opt refuses: $text" $?
}
refuses 'which graph' --run
refuses 'No such file' "$work/nowhere.txt"
refuses 'what is n? Say --dims n=NUMBER' "$work/twice.txt" --run
refuses 'the graph has no symbol m' "$work/twice.txt" --dims m=3 --run
printf 'graph {\n  input x: f32[n]\n  y = non_zero(x, size=[k])\n  output y\n}\n' >"$work/counted.txt"
refuses 'no input has k, a run counts it' "$work/counted.txt" --dims n=3,k=3 --run
"$bin/dlc-opt" "$work/counted.txt" --dims n=3 --check >"$work/shown" && grep -q ': good$' "$work/shown"
report 'dlc-opt with sizes that a run counts' $?
refuses '--dims n=soup: expected name=number' "$work/twice.txt" --dims n=soup --run
refuses '--dims n=-1: expected name=number' "$work/twice.txt" --dims n=-1 --run
refuses '--dims n=3,n=4: expected .* each name once' "$work/twice.txt" --dims n=3,n=4 --run
refuses '--dims nothing: expected name=number' "$work/twice.txt" --dims n=3 --run --dims
refuses '--input soup=.*the graph has no input' "$work/twice.txt" --dims n=3 --input "soup=$work/twice.txt" --run
refuses '--tolerance soup: expected a number' "$work/twice.txt" --dims n=3 --check --tolerance soup
refuses '"soup", expected one of: graph' "$work/twice.txt" --dims n=3 --print soup
refuses 'no pass is called soup' "$work/twice.txt" --passes soup
refuses '--soup: there is no such option' "$work/twice.txt" --soup
refuses '--time nothing: expected a number of seconds' "$work/twice.txt" --time
refuses 'more: the graph is .*twice' "$work/twice.txt" more --run
refuses '--schedule: only with' "$work/twice.txt" --schedule "$work/schedule"
refuses '--tolerance: only with --check or --compare' "$work/twice.txt" --dims n=3 --run --tolerance 1
refuses 'Is a directory' "$work"
refuses 'Is a directory' "$work/twice.txt" --dims n=3 --run --schedule "$work"
refuses 'input x: no memory for [0-9]* bytes\|input x: impossible size' "$work/twice.txt" --dims n=1000000000000000000 --run
"$bin/dlc-opt" "$work/twice.txt" --dims n=3 --print loops --print plan >"$work/shown" && grep -q '^---- loops' "$work/shown" && grep -q '^---- plan' "$work/shown"
report 'dlc-opt --print, twice' $?
"$bin/dlc-opt" "$work/twice.txt" --run -h | grep -q '^usage: dlc-opt'
report 'dlc-opt -h' $?
refuses 'no target is called "soup"\|"soup"' "$work/twice.txt" --target soup
printf 'region soup:\npar add.i0\n' >"$work/schedule"
refuses 'no region is called soup' "$work/twice.txt" --dims n=3 --run --schedule "$work/schedule"
printf 'region add:\nsplit add.z 2 -> a b mask\n' >"$work/schedule"
refuses 'stage add has no axis z; it has i0' "$work/twice.txt" --dims n=3 --run --schedule "$work/schedule"
printf 'region add:\nsplit add.i0 2 -> a b mask\nvec add.z\n' >"$work/schedule"
"$bin/dlc-opt" "$work/twice.txt" --dims n=3 --steps --schedule "$work/schedule" >"$work/shown" 2>&1
[ $? != 0 ] && grep -q -e '-- after `split add.i0' "$work/shown" && grep -q -e '-- refused: .*line 3: `vec add.z`: stage add has no axis z; it has a, b' "$work/shown"
report 'dlc-opt shows the steps before a line that is refused' $?
printf '# mine\nregion add:\ncopy add -> out\ninline soup\n' >"$work/schedule"
"$bin/dlc-opt" "$work/twice.txt" --dims n=3 --steps --schedule "$work/schedule" >"$work/shown" 2>&1
[ $? != 0 ] && grep -q -e '-- after `copy add' "$work/shown" && grep -q -e '-- refused: .*line 4: `inline soup`: no stage is called soup' "$work/shown"
report 'dlc-opt shows the steps before a rewrite that is refused' $?
printf 'region add:\nsplit add.i0 2\n' >"$work/schedule"
refuses 'schedule of region add, line 2: `split add.i0 2`:1:15: expected' "$work/twice.txt" --dims n=3 --steps --schedule "$work/schedule"
printf 'graph {\n  input x: f32[n]\n  y = add(x, z)\n  output y\n}\n' >"$work/wrong.txt"
refuses ':3:.*z is not defined' "$work/wrong.txt"
printf 'abc' >"$work/x"
refuses 'bytes' "$work/twice.txt" --dims n=3 --input "x=$work/x" --run

echo "[  PASSED  ] $passed test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
