/* A target that fails, in the place of `null`: the interpreter behind functions each call of which is refused in turn, with each status that
 * a target may give. Whatever fails ends in that status with the target's words, or in a right result where the library has another way;
 * what was opened, made and loaded is closed, released and unloaded; and the next try succeeds. Rules whose schedules need more registers
 * than there are write others, for fewer. */
#include "targets/target.h"
#include "test/counting.h"
#include "tir/choice.h"

#include <dlc/dlc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the above */
#include <cmocka.h>

/* ---- the target */

static struct {
    atomic_int calls;
    /* number of the call that fails; 0: none */
    int refuse;
    dlc_status status;
    /* that are there */
    atomic_int devices, objects, modules;
    /* what failed */
    const char *refused;
    /* vector registers of the machine; 0: unknown, and schedules are empty */
    int registers;
    /* the rules keep a row of values in registers if the machine has this many */
    int enough;
    /* schedules written */
    atomic_int schedules;
    /* of three forms of a schedule, which are a choice, lowering takes the last `taken`, not the rules' own answer, the first; 0: there are none */
    int taken;
} fake;

static bool refuses(const char *what, lib_error *error) {
    if (++fake.calls != fake.refuse) return false;
    fake.refused = what;
    lib_fail(error, fake.status, "the fake target refuses: %s", what);
    return true;
}

static dlc_status fake_open(const target_options *options, target_device **device, tir_machine *machine,
                            lib_error *error) {
    if (refuses("open", error)) return error->status;
    dlc_status status = target_interp.open(options, device, machine, error);
    fake.devices += status == DLC_OK;
    if (fake.registers) machine->vector_bytes = 64, machine->vector_registers = fake.registers;
    return status;
}
static void fake_close(target_device *device) {
    fake.devices--;
    target_interp.close(device);
}
/* Computes a row of the first stage, 64 values, where the last stage reads it; in registers if there are enough. */
static void schedule_row(const tir_machine *machine, const tir_region *region, tir_schedule *schedule) {
    const tir_stage *row = &region->stages.data[0], *root = &region->stages.data[region->stages.count - 1];
    fake.schedules++;
    if (row == root) return;
    tir_schedule_add(schedule, "at %s %s.%s", row->name, root->name, root->axis[0].name);
    if (machine->vector_registers >= fake.enough) tir_schedule_add(schedule, "store %s reg", row->name);
}
/* `at` the loop of an axis that does not exist is refused. */
static void schedule_by_form(const tir_region *region, tir_schedule *schedule) {
    static const char *const forms[] = {"first", "second", "third"};
    const tir_stage *row = &region->stages.data[0], *root = &region->stages.data[region->stages.count - 1];
    const int form = tir_choose_word(schedule, root->name, "form", 3, forms, 0);
    const char *loop = form < 3 - fake.taken ? "nothing" : root->axis[0].name;
    if (row != root) tir_schedule_add(schedule, "at %s %s.%s", row->name, root->name, loop);
}
static void fake_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    lib_error error;
    (void)threads;
    if (refuses("schedule", &error)) lib_raise_error(schedule->arena->scope, &error);
    if (fake.registers) schedule_row(machine, region, schedule);
    if (fake.taken) schedule_by_form(region, schedule);
}
static dlc_status fake_compile(target_device *device, const target_budget *budget, int count,
                               const tir_kernel *const *kernels, target_object *object, lib_error *error) {
    *object = (target_object){0};
    if (refuses("compile", error)) return error->status;
    dlc_status status = target_interp.compile(device, budget, count, kernels, object, error);
    fake.objects += status == DLC_OK;
    return status;
}
static void fake_release(target_device *device, target_object *object) {
    fake.objects -= object->owner != NULL || object->bytes != NULL;
    target_interp.release_object(device, object);
}
static dlc_status fake_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                            lib_error *error) {
    if (refuses("dump", error)) return error->status;
    return target_interp.dump(device, kernel, what, text, error);
}
static dlc_status fake_load(target_device *device, const target_object *object, int count, const char *const *names,
                            target_module **module, lib_error *error) {
    *module = NULL;
    if (refuses("load", error)) return error->status;
    dlc_status status = target_interp.load(device, object, count, names, module, error);
    fake.modules += status == DLC_OK;
    return status;
}
static void fake_unload(target_device *device, target_module *module) {
    fake.modules -= module != NULL;
    target_interp.unload(device, module);
}
static int fake_phases(const target_module *module, int kernel) {
    return target_interp.phases(module, kernel);
}
static size_t fake_bytes(const target_module *module) {
    return target_interp.module_bytes(module);
}

static target_phase_function interpret;
static void fake_run(const target_arguments *arguments, int64_t iteration, int64_t begin, int64_t end, int64_t slot,
                     const void *closure) {
    if (!refuses("run", arguments->error)) interpret(arguments, iteration, begin, end, slot, closure);
}
static target_phase fake_phase(const target_module *module, int kernel, int phase) {
    target_phase inner = target_interp.phase(module, kernel, phase);
    interpret = inner.run;
    return (target_phase){fake_run, inner.closure};
}

/* The linker takes this one and leaves the library's in its archive. */
const target target_null = {
    .name = "null",
    .open = fake_open,
    .close = fake_close,
    .schedule = fake_schedule,
    .compile = fake_compile,
    .release_object = fake_release,
    .dump = fake_dump,
    .load = fake_load,
    .phases = fake_phases,
    .phase = fake_phase,
    .unload = fake_unload,
    .module_bytes = fake_bytes,
};

/* ---- a life on it */

static const char text[] =
    "graph {\n  symbol n in 1..50\n  input x: f32[n, 3]\n  w = constant f32[3, 2] {\"0000803f0000004000004040000080400000a0400000c040\"}\n"
    "  m = matmul(x, w)\n  s = reduce_sum(m, axes=[0])\n  c = cumulative_sum(m, axis=0)\n"
    "  output \"s\" = s\n  output \"c\" = c\n}\n";

static bool run_is_right(dlc_program *program, dlc_status *status) {
    enum { N = 4 };
    float x[N * 3], s[2], c[N * 2], es[2] = {0, 0};
    const float w[6] = {1, 2, 3, 4, 5, 6};
    int64_t xs[2] = {N, 3}, ss[1] = {2}, cs[2] = {N, 2};
    for (int i = 0; i < N * 3; i++) x[i] = (float)(i % 4 - 1);
    const DLDataType f32 = {kDLFloat, 32, 1};
    DLTensor tx = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = xs};
    DLTensor ts = {.data = s, .device = {kDLCPU, 0}, .ndim = 1, .dtype = f32, .shape = ss};
    DLTensor tc = {.data = c, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = cs};
    dlc_output_slot slots[2] = {{&ts, NULL}, {&tc, NULL}};
    *status = dlc_run(program, NULL, (const DLTensor *[]){&tx}, 1, slots, 2);
    if (*status != DLC_OK) return true;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < 2; j++) {
            for (int k = 0; k < 3; k++) es[j] += x[i * 3 + k] * w[k * 2 + j];
            if (c[i * 2 + j] != es[j]) return false;
        }
    return s[0] == es[0] && s[1] == es[1];
}

/* The first status that is not DLC_OK; what gave it is done again, and must succeed. */
static dlc_status live(const dlc_allocator *allocator, char *message, size_t size) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context = NULL;
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    options.target = "null";
    options.allocator = allocator;
    options.cache_bytes = 1; /* modules come and go */
    dlc_status first = dlc_context_create(&options, &context);
    if (first != DLC_OK) {
        snprintf(message, size, "%s", dlc_error_message(NULL));
        assert_null(context);
        assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    }
    if (dlc_graph_parse(context, text, sizeof text - 1, &g) != DLC_OK) fail_msg("%s", dlc_error_message(context));
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    const int64_t shape[2] = {7, 3}, *shapes[1] = {shape};
    for (int step = 0; step < 4; step++)
        for (int again = 0; again < 2; again++) {
            dlc_status status = DLC_OK;
            if (step == 0) status = dlc_prepare(program, shapes, (const int[]){2}, 1);
            if (step == 1 || step == 3) assert_true(run_is_right(program, &status));
            if (step == 2) {
                char *dump = NULL;
                status = dlc_program_dump(program, "source", shapes, (const int[]){2}, 1, &dump);
                dlc_text_free(context, dump);
            }
            if (status == DLC_OK) break;
            if (again) fail_msg("step %d, again: %s", step, dlc_error_message(context));
            if (first != DLC_OK) fail_msg("two calls failed");
            first = status;
            snprintf(message, size, "%s", dlc_error_message(context));
        }
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    return first;
}

static void test_each_call(void **state) {
    (void)state;
    static const dlc_status statuses[] = {DLC_COMPILE_FAILED, DLC_UNSUPPORTED, DLC_DEVICE_ERROR, DLC_OUT_OF_MEMORY,
                                          DLC_INTERNAL};
    counting memory = {0};
    const dlc_allocator allocator = {counting_allocate, counting_release, &memory};
    int told = 0;
    for (size_t s = 0; s < sizeof statuses / sizeof *statuses; s++)
        for (int refuse = 1;; refuse++) {
            char message[1024] = "";
            fake.calls = 0;
            fake.refuse = refuse;
            fake.status = statuses[s];
            fake.refused = NULL;
            dlc_status status = live(&allocator, message, sizeof message);
            if (fake.devices || fake.objects || fake.modules || memory.outstanding)
                fail_msg("call %d, %s: %d devices, %d objects, %d modules, %lld blocks stay", refuse, fake.refused,
                         fake.devices, fake.objects, fake.modules, (long long)memory.outstanding);
            if (!fake.refused) {
                assert_int_equal(status, DLC_OK);
                break;
            }
            told += status != DLC_OK;
            /* without rules there are plain loops; a run's own words are those of its kernel */
            bool other_way = strcmp(fake.refused, "schedule") == 0 && statuses[s] != DLC_OUT_OF_MEMORY;
            if (status != (other_way ? DLC_OK : statuses[s]))
                fail_msg("call %d, %s: %s: %s", refuse, fake.refused, dlc_status_text(status), message);
            if (!other_way && !strstr(message, "the fake target refuses")) fail_msg("%s: %s", fake.refused, message);
        }
    print_message("%d refused calls told\n", told);
    assert_true(told > 30);
}

static char said[1024];

static void note_line(void *user, const char *line) {
    (void)user;
    snprintf(said, sizeof said, "%s", line);
}

/* Runs the sums of the rows' squares. */
static dlc_statistics run_squares(void) {
    static const char rows[] = "graph {\n  input x: f32[2, 64]\n  m = mul(x, x)\n  s = reduce_sum(m, axes=[1])\n"
                               "  output \"s\" = s\n}\n";
    fake.calls = fake.refuse = fake.schedules = 0;
    said[0] = 0;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.log = note_line;
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    dlc_context *context = NULL;
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    options.target = "null";
    assert_int_equal(dlc_context_create(&options, &context), DLC_OK);
    assert_int_equal(dlc_graph_parse(context, rows, sizeof rows - 1, &g), DLC_OK);
    assert_int_equal(dlc_compile(context, g, NULL, &program), DLC_OK);
    float x[128], s[2] = {0};
    for (int i = 0; i < 128; i++) x[i] = (float)(i / 64 + 1);
    const DLDataType f32 = {kDLFloat, 32, 1};
    DLTensor tx = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = f32, .shape = (int64_t[]){2, 64}};
    DLTensor ts = {.data = s, .device = {kDLCPU, 0}, .ndim = 1, .dtype = f32, .shape = (int64_t[]){2}};
    dlc_output_slot slot = {&ts, NULL};
    assert_int_equal(dlc_run(program, NULL, (const DLTensor *[]){&tx}, 1, &slot, 1), DLC_OK);
    assert_true(s[0] == 64 && s[1] == 256);
    dlc_context_statistics(context, &statistics);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    return statistics;
}

/* On a machine with 32 registers. Returns the number of regions that ran by plain loops. */
static uint64_t run_rows(int enough) {
    fake.registers = 32;
    fake.enough = enough;
    const uint64_t plain = run_squares().interpreted_regions;
    fake.registers = 0;
    return plain;
}

static void test_registers(void **state) {
    (void)state;
    assert_int_equal(run_rows(32), 0); /* the second schedule is for 16 registers */
    assert_int_equal(fake.schedules, 2);
    assert_int_equal(run_rows(8), 0);
    assert_int_equal(fake.schedules, 4);
    assert_int_equal(run_rows(1), 1);
}

/* Lowering refuses the rules' schedule: another candidate is taken, which is told and counted; plain loops only if there is none. */
static void test_other_candidates(void **state) {
    (void)state;
    for (fake.taken = 1; fake.taken < 3; fake.taken++) {
        const dlc_statistics s = run_squares();
        assert_int_equal(s.interpreted_regions, 0);
        assert_int_equal(s.refused_schedules, 1);
        if (!strstr(said, fake.taken == 1 ? "form third`" : "form second`") || !strstr(said, "nothing"))
            fail_msg("%s", said);
    }
    fake.taken = -1;
    const dlc_statistics s = run_squares();
    assert_int_equal(s.interpreted_regions, 1);
    assert_int_equal(s.refused_schedules, 0);
    fake.taken = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_call), cmocka_unit_test(test_registers),
                                       cmocka_unit_test(test_other_candidates)};
    return cmocka_run_group_tests_name("a target that fails", tests, NULL, NULL);
}
