/* Large contractions beside the peak of the level of CPU features that this process was started with. */
#include "bench/levels.h"

#include "bench/ours.h"

/* Per cent of the peak; -1: failed. */
static double share_of_cube(dlc_context *context, int size) {
    char text[96], reason[512] = "";
    bench_shape shape;
    snprintf(text, sizeof text, "contraction cube b=1 m=%d n=%d k=%d", size, size, size);
    bench_shape_parse(&shape, text);
    const bench_case_kind *kind = bench_case_find(&shape);
    bench_programs *ours = bench_programs_prepare(context, NULL, &kind->build, 1, &shape, reason, sizeof reason);
    if (!ours) {
        fprintf(stderr, "%s: %s\n", text, reason);
        return -1;
    }
    bench_contestant contestants[2] = {{.name = "dlc", .run = bench_programs_run, .state = ours},
                                       {.name = "fma", .run = bench_fma_burst}};
    bench_contest(contestants, 2, 1, &(bench_settings){15, 2e-3});
    double peak = 0, flops = ours->stages[0].builder.problem.flops, rate = flops / contestants[0].times.median;
    for (int i = 0; i < contestants[1].times.samples; i++) {
        double burst = bench_fma_flops(1) / contestants[1].samples[i];
        peak = burst > peak ? burst : peak;
    }
    bench_contest_release(contestants);
    bench_programs_release(ours);
    return rate / peak * 100;
}

static double least_share(const int *sizes, int count) {
    dlc_context *context = NULL;
    if (dlc_context_create(NULL, &context)) return -1;
    double least = 1000;
    for (int i = 0; i < count; i++) {
        double share = share_of_cube(context, sizes[i]);
        least = share < least ? share : least;
    }
    dlc_context_destroy(context);
    return least;
}

double bench_cubes_small(void) {
    return least_share((const int[]){512, 1024, 2048}, 3);
}

double bench_cubes_large(void) {
    return least_share((const int[]){1024, 1536, 2048}, 3);
}
