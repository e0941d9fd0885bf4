/* Runs a kernel given as text on the interpreter and on the cpu target at every instruction-set level, and compares the
 * bits. Arguments end, and in a second run begin, at an inaccessible page. */
#ifndef TEST_CPU_KERNEL_CHECK_H
#define TEST_CPU_KERNEL_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef enum fill { FILL_SMALL, FILL_SPECIAL } fill;

int kernel_check_open(void **state); /* cmocka group set-up and tear-down */
int kernel_check_close(void **state);
void kernel_check(const char *text, const int64_t *params);            /* both fills */
void kernel_check_unverified(const char *text, const int64_t *params); /* without tir_kernel_verify */
void kernel_check_fill(const char *text, const int64_t *params, fill how);
/* As kernel_check_fill, but false, without failing, for a kernel that the verifier or the interpreter refuses. */
bool kernel_check_if_legal(const char *text, const int64_t *params, fill how);
/* Reloads and spills of the kernel at the best level; -1 if that has narrower vectors. */
int kernel_spills(const char *text, int vector_bytes);
/* Whether rows of a tile share vectors at the best level: not on machines that do wide vectors in two halves (rows loops). */
bool kernel_pairs_rows(void);
/* Copies between vector registers at the level of SSE2. */
int kernel_copies(const char *text);
/* Non-temporal stores at the best level; -1 if that has narrower vectors. */
int kernel_non_temporal(const char *text, int vector_bytes);
/* Lines of the kernel's LLVM IR at the best level. */
int kernel_length(const char *text);

#endif
