/* libdlc as a contestant. */
#ifndef BENCH_OURS_H
#define BENCH_OURS_H

#include "bench/cases.h"

typedef struct bench_stage {
    bench_builder builder;
    dlc_program *program;
    dlc_call *call;
    DLTensor tensors[BENCH_MAX_OPERANDS + BENCH_MAX_RESULTS];
    const DLTensor *inputs[BENCH_MAX_OPERANDS];
    int input_count;
    /* dlc_compile and the first run */
    double first_seconds;
} bench_stage;

/* A case as programs: one; or several, of which the first result of each is the first operand of the next; or the parts of a block, each as
 * one program or, if that is faster, as one for each of its steps. */
typedef struct bench_programs {
    bench_stage stages[BENCH_MAX_PARTS];
    int count;
    dlc_status status;
} bench_programs;

/* Builds, compiles with `options` (NULL: none) and runs once. NULL: failed, `reason` tells why. */
bench_programs *bench_programs_prepare(dlc_context *context, const dlc_compile_options *options,
                                       bench_build_function *const *builds, int count, const bench_shape *shape,
                                       char *reason, size_t size);
/* The same for the parts of a block, whose operands come from the parts before them. */
bench_programs *bench_parts_prepare(dlc_context *context, int parts, const bench_shape *shape, char *reason,
                                    size_t size);
void bench_programs_run(void *programs);
/* Do both run the same kernels, by the hashes of their regions, in any order? */
bool bench_programs_same_kernels(dlc_context *context, const bench_programs *a, const bench_programs *b);
/* A dump of the first program; NULL: failed. To be freed with dlc_text_free. */
char *bench_programs_dump(const bench_programs *programs, const char *what);
/* Bytes of the first program's arena; 0: failed. */
double bench_programs_arena(dlc_context *context, const bench_programs *programs);
/* Seconds of a run predicted by the library's cost model, all kernels together; 0: it has none. */
double bench_programs_predict(dlc_context *context, const bench_programs *programs);
void bench_programs_release(bench_programs *programs);

#endif
