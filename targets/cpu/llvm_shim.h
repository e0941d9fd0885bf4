/* The LLVM C API as this target uses it: the headers, and the differences between supported versions. No other file includes llvm-c or
 * checks for a version. */
#ifndef TARGETS_CPU_LLVM_SHIM_H
#define TARGETS_CPU_LLVM_SHIM_H

#if defined(__clang__) || defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#endif
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/OrcEE.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm/Config/llvm-config.h>
#if defined(__clang__) || defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#if LLVM_VERSION_MAJOR < 19
#error "LLVM 19 or newer is needed"
#endif

#endif
