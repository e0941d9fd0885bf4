/* CUDA C of all kernels that the suite makes, each once, compiled by NVRTC where it is installed: no GPU is needed. */
#ifndef TEST_CONFORMANCE_SOURCES_H
#define TEST_CONFORMANCE_SOURCES_H

#include "tir/loop.h"

void sources_add(lib_arena *arena, const tir_kernel *kernel); /* raises what emission raises */
void test_sources(void **state);                              /* the last test of the suite */

#endif
