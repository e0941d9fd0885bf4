#ifdef DLC_TARGET_cpu
#include "golden/fixed.h"

#include "targets/cpu/cost.h"

static golden_machine at_hand;

static dlc_status fixed_open(const target_options *options, target_device **device, tir_machine *machine,
                             lib_error *error) {
    const dlc_status status = target_interp.open(options, device, machine, error);
    *machine = at_hand.facts;
    return status;
}

static void fixed_close(target_device *device) {
    target_interp.close(device);
}

static void fixed_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    target_cpu.schedule(machine, threads, region, schedule);
}

static dlc_status fixed_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                             lib_error *error) {
    cost_work work;
    target_cost cost = {.threads = at_hand.threads};
    (void)device, (void)what, (void)error;
    if (kernel->params.count) return lib_fail(error, DLC_UNSUPPORTED, "a kernel of varying sizes");
    cost_count(text->arena, &at_hand.facts, kernel, NULL, &work);
    cost_cycles(&at_hand.facts, &work, &cost);
    lib_text_format(text, "cycles %.17g\n", cost.cycles);
    return DLC_OK;
}

static void fixed_cost(target_device *device, lib_arena *arena, const tir_kernel *kernel, const target_work *work,
                       int count, target_cost *cost) {
    cost_work counted;
    (void)device;
    cost_count(arena, &at_hand.facts, kernel, work, &counted);
    for (int i = 0; i < count; i++) cost_cycles(&at_hand.facts, &counted, &cost[i]);
}

static dlc_status fixed_compile(target_device *device, const target_budget *budget, int count,
                                const tir_kernel *const *kernels, target_object *object, lib_error *error) {
    (void)device, (void)budget, (void)count, (void)kernels, (void)object;
    return lib_fail(error, DLC_UNSUPPORTED, "nothing is compiled here");
}

const target target_null = {.name = "null",
                            .open = fixed_open,
                            .close = fixed_close,
                            .schedule = fixed_schedule,
                            .compile = fixed_compile,
                            .cost = fixed_cost,
                            .dump = fixed_dump};

void golden_fix_machine(const golden_machine *machine) {
    at_hand = *machine;
    cpu_set_rates(&at_hand.facts);
}
#else
typedef int golden_no_machine;
#endif
