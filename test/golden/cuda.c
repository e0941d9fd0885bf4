/* test/golden/cuda/x.txt: a region, and what the rules of the cuda target make of it: schedule, loop IR. It is also run, with all checks, and compared
 * with evaluation by definition. */
#ifdef DLC_TARGET_cuda
#include "golden/files.h"
#include "test/region.h"

#include "targets/cuda/cuda.h"
#include "tir/schedule.h"
#include "tir/scheduled.h"

#include <stdlib.h>

static void schedule_text(lib_arena *arena, lib_text *out, const char *input) {
    tir_machine machine;
    tir_schedule schedule;
    tir_region *region = aligned_region_of_text(arena, input);
    if (!cuda_machine_of_name("sm_90", &machine)) lib_raise(arena->scope, DLC_INTERNAL, "no facts of sm_90");
    tir_schedule_init(&schedule, arena);
    cuda_schedule(&machine, 1, tir_region_copy(arena, region), &schedule);
    lib_text_format(out, "%s==== loops\n", schedule.text.data ? schedule.text.data : "");
    tir_kernel_print(out,
                     tir_lower(arena, region, &schedule, &(tir_lower_options){.machine = &machine, .verify = true}));
    scheduled_report report;
    const char *text = schedule.text.data ? schedule.text.data : "";
    bool narrow = false; /* roundings move: an output of 16 bits may be its neighbour */
    for (uint32_t t = 0; t < region->tensors.count; t++)
        narrow = narrow || (region->excess_precision && region->tensors.data[t].output &&
                            lib_dtype_size(region->tensors.data[t].dtype) == 2);
    scheduled_outcome outcome = scheduled_run(input, text, narrow ? 1.0 / 64 : 1e-4, 7, true, &report);
    free(report.kernel);
    if (report.accesses)
        lib_text_format(out, "==== shared memory\n%ld accesses of warps, %ld bank conflicts%s%s\n", report.accesses,
                        report.conflicts, report.conflicts ? ", most in " : "", report.conflicts ? report.worst : "");
    if (report.requests)
        lib_text_format(out, "==== memory\n%ld accesses of warps, %ld sectors, %ld in excess\n", report.requests,
                        report.sectors, report.excess);
    if (outcome != SCHEDULED_AGREES) lib_raise(arena->scope, DLC_INTERNAL, "%s", report.message);
}

int main(void) {
    return golden_run("golden/cuda", "test/golden/cuda", "==== schedule\n", schedule_text);
}
#else
int main(void) {
    return 77;
}
#endif
