#!/bin/sh
# Installs into a temporary DESTDIR and builds a tiny host against it: by pkg-config with the shared library and with the
# archive, and by CMake. Speaks the summary that test/run reads. Ways whose tool is not installed are skipped.
set -u
: "${OUT:=build/release}" "${CC:=cc}" "${CXX:=c++}" "${MAKE:=make}"
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
report() {
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "[  FAILED  ] $1"; fi
}
skip() { skipped=$((skipped + 1)); echo "[  SKIPPED ] $1"; }

mkdir "$work/host"
cat >"$work/host/host.c" <<'END'
#include <dlc/dlc.h>
#include <stdio.h>

int main(void) {
    dlc_context *context;
    dlc_graph *graph;
    dlc_program *program;
    dlc_output_slot y = {NULL, NULL};
    float data[4] = {-1, 0, 2, 4};
    int64_t shape[1] = {4};
    DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
    const DLTensor *inputs[1] = {&x};
    if (dlc_context_create(NULL, &context) || dlc_graph_create(context, &graph)) return 1;
    dlc_output(graph, "y", dlc_relu(dlc_input(graph, "x", DLC_F32, 1, (dlc_dim[]){{4, NULL}})));
    if (dlc_compile(context, graph, NULL, &program) || dlc_run(program, NULL, inputs, 1, &y, 1)) {
        fprintf(stderr, "%s\n", dlc_error_message(context));
        return 1;
    }
    const float *result = y.managed->dl_tensor.data;
    int right = result[0] == 0 && result[1] == 0 && result[2] == 2 && result[3] == 4;
    y.managed->deleter(y.managed);
    dlc_program_destroy(program);
    dlc_graph_destroy(graph);
    dlc_context_destroy(context);
    return !right;
}
END
cat >"$work/host/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(host C CXX)
find_package(libdlc 0.1 CONFIG REQUIRED)
add_executable(host host.c)
target_link_libraries(host libdlc::dlc)
add_executable(host_static host.c)
target_link_libraries(host_static libdlc::dlc_static)
END

# What was built is what is installed: nothing may be compiled here.
"$MAKE" -C "$here" install DESTDIR="$work/root" PREFIX=/opt/dlc >"$work/install.log" 2>&1
report install $?
root=$work/root/opt/dlc
grep -q '^  CC' "$work/install.log" && report 'install compiles nothing' 1
for file in include/dlc/dlc.h include/dlc/dlc.hpp include/dlc/ops.h include/dlc/ops.hpp include/dlc/types.h include/dlc/eager.h include/dlc/extend.h include/dlc/files.h include/dlc/onnx.h include/dlc/gradient.h include/dlc/train.h include/dlc/train.hpp include/dlc/dlpack.h lib/libdlc.a lib/libdlc.so \
    lib/libdlc-compiler lib/pkgconfig/libdlc.pc lib/cmake/libdlc/libdlc-config.cmake bin/dlc-opt share/man/man1/dlc-opt.1 bin/dlc-run share/man/man1/dlc-run.1 \
    share/doc/libdlc/operators.md share/doc/libdlc/adding-an-operator.md share/doc/libdlc/adding-an-import-row.md share/doc/libdlc/writing-a-schedule.md share/doc/libdlc/porting.md; do
    [ -e "$root/$file" ] || report "$file is installed" 1
done
if grep -rlF -e "$here/build" -e "$here/include" "$root/include" "$root/lib/pkgconfig" "$root/lib/cmake"; then
    report 'no path of the build inside' 1
fi

if command -v pkg-config >/dev/null 2>&1; then
    export PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$work/host/host.c" $(pkg-config --cflags --libs libdlc) -Wl,-rpath,"$root/lib" -o "$work/shared" &&
        "$work/shared"
    report 'pkg-config, shared' $?
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$work/host/host.c" $(pkg-config --cflags libdlc) "$root/lib/libdlc.a" \
        $(pkg-config --static --libs libdlc | sed 's/-ldlc//') -o "$work/static" && "$work/static"
    report 'pkg-config, archive' $?
else
    skip 'pkg-config is not installed'
fi

if command -v cmake >/dev/null 2>&1; then
    cmake -S "$work/host" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$root" -DCMAKE_C_COMPILER="$CC" \
        -DCMAKE_CXX_COMPILER="$CXX" >"$work/cmake.log" 2>&1 && cmake --build "$work/cmake" >>"$work/cmake.log" 2>&1
    status=$?
    [ $status = 0 ] || tail -n 20 "$work/cmake.log"
    report 'CMake' $status
    if [ $status = 0 ]; then
        "$work/cmake/host"
        report 'CMake, shared' $?
        "$work/cmake/host_static"
        report 'CMake, archive' $?
    fi
else
    skip 'cmake is not installed'
fi

# The tools find their library where it was installed, and their pages have all of their options.
printf 'graph {\n  input x: f32[n]\n  y = add(x, x)\n  output y\n}\n' >"$work/twice.txt"
(cd / && "$root/bin/dlc-opt" "$work/twice.txt" --dims n=3 --check | grep -q ': good$')
report 'dlc-opt runs where it is installed' $?
for tool in dlc-opt dlc-run; do
    missing=$("$root/bin/$tool" --help | grep -o -e '--[a-z-]*' | sort -u | while read -r option; do
        sed 's/\\-/-/g' "$root/share/man/man1/$tool.1" | grep -q -e "$option" || echo "$option"
    done)
    [ -z "$missing" ]
    report "the man page of $tool has all options $missing" $?
done

"$MAKE" -C "$here" uninstall DESTDIR="$work/root" PREFIX=/opt/dlc >/dev/null 2>&1
report uninstall $?
left=$(find "$work/root" ! -type d | wc -l)
[ "$left" = 0 ]
report 'uninstall leaves nothing' $?

[ "$failed" = 0 ] || cat "$work/install.log"
echo "[  PASSED  ] $passed test(s)."
[ "$skipped" = 0 ] || echo "[  SKIPPED ] $skipped test(s)."
[ "$failed" = 0 ] || echo "[  FAILED  ] $failed test(s)."
[ "$failed" = 0 ]
