/* A program whose results are exact: their bits do not depend on how they are computed. */
#ifndef TEST_API_EXACT_H
#define TEST_API_EXACT_H

#include "api/support.h"

enum { EXACT_ELEMENTS = 4096 }; /* at most */

/* relu(x * 3 + 1) - x of x [n, m]: one kernel. */
static inline dlc_program *exact_program(dlc_context *context, const dlc_compile_options *options) {
    dlc_graph *g;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SYMBOL("m")));
    dlc_value y = dlc_add(dlc_mul(x, dlc_scalar(g, DLC_F32, 3)), dlc_scalar(g, DLC_F32, 1));
    dlc_output(g, "y", dlc_sub(dlc_relu(y), x));
    OK(context, dlc_compile(context, g, options, &program));
    dlc_graph_destroy(g);
    return program;
}

static inline void run_exact(dlc_context *context, dlc_program *program, int64_t n, int64_t m) {
    float x[EXACT_ELEMENTS], y[EXACT_ELEMENTS];
    tensor tx, ty;
    for (int64_t i = 0; i < n * m; i++) x[i] = (float)(i % 37 - 18) / 4;
    dlc_output_slot slot = {F32(&ty, y, n, m), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, m)}, 1, &slot, 1));
    for (int64_t i = 0; i < n * m; i++) {
        float expected = x[i] * 3 + 1;
        expected = (expected > 0 ? expected : 0) - x[i];
        if (y[i] != expected) failed("%d x %d: element %d is %g", (int)n, (int)m, (int)i, y[i]);
    }
}

#endif
