/* Ways to run a sample (legs.h): by the definition of its stages, as loops of the empty schedule, by the cpu target's schedule in loops
 * and in code, which must agree in all bits, and through the public API, where fusion and plans take part. */
#include "conformance/legs.h"

#include "conformance/guarded.h"
#include "graph/build.h"
#include "graph/region.h"
#include "targets/target.h"
#ifdef DLC_TARGET_cuda
#include "conformance/sources.h"
#include "targets/cuda/cuda.h"
#endif
#include "tir/access.h"
#include "tir/arith.h"
#include "tir/interpret.h"
#include "tir/schedule.h"
#include "tir/vectorise.h"

#include <dlc/dlc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the whole graph as one region, with every output a stage ------------------------------------------------------- */

typedef struct prepared_region {
    tir_region *region;
    /* by argument: bytes, or NULL and */
    const void **constant;
    /* the number of the graph's input */
    int64_t *input;
    /* tensors of the graph's outputs */
    uint32_t *output;
    uint32_t outputs;
    bool fma;
    /* of legs that lower; NULL: outputs are inputs */
    tir_kernel *kernel;
    /* of legs that compile */
    target_module *module;
    const char *schedule;
    /* of the device leg: a launch is not polled */
    bool device;
    /* hardware decides about last bits */
    bool inexact;
} prepared_region;

/* NULL: some node has no compute definition. */
static prepared_region *prepare_region(const test_leg *leg, lib_arena *arena, const test_graphs *graphs,
                                       const tir_machine *machine) {
    const graph *g = graphs->primitive;
    prepared_region *p = LIB_NEW(arena, prepared_region);
    graph_region_builder builder = graph_region_start(arena, g, "conformance");
    builder.machine = machine;
    p->constant = LIB_NEW_ARRAY(arena, const void *, g->nodes.count);
    p->input = LIB_NEW_ARRAY(arena, int64_t, g->nodes.count);
    uint32_t given = 0;
    for (uint32_t n = 0; n < g->nodes.count; n++) { /* inputs and constants: the arguments */
        const graph_node *node = &g->nodes.data[n];
        if (!graph_is_source(node->op)) continue;
        const graph_constant *constant = graph_constant_of(g, node->first);
        graph_region_add_input(&builder, node->first, constant != NULL);
        if (constant)
            p->constant[given] = constant->bytes;
        else
            p->input[given] = node->attribute[0].integer;
        given++;
    }
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (graph_is_source(node->op)) continue;
        if (!node->op->compute && !graph_op_has_scalar(node->op)) return NULL;
        graph_shape *shape = LIB_NEW_ARRAY(arena, graph_shape, node->results);
        for (int i = 0; i < node->results; i++) shape[i] = *graph_shape_of(g, node->first + (graph_id)i);
        uint32_t *tensors = LIB_NEW_ARRAY(arena, uint32_t, node->results);
        graph_region_add_node(&builder, node->op, node->inputs, node->input, node->attribute, node->results, shape,
                              tensors);
        for (int i = 0; i < node->results; i++) graph_region_set(&builder, node->first + (graph_id)i, tensors[i]);
    }
    p->outputs = g->outputs.count;
    p->output = LIB_NEW_ARRAY(arena, uint32_t, p->outputs);
    for (uint32_t i = 0; i < p->outputs; i++) {
        p->output[i] = graph_region_tensor(&builder, g->outputs.data[i]);
        if (builder.region->tensors.data[p->output[i]].stage >= 0) tir_region_output(builder.region, p->output[i]);
    }
    graph_region_finish(&builder);
    tir_region_verify(arena->scope, builder.region);
    p->region = builder.region;
    p->fma = leg->fma;
    return p;
}

/* No region of the library reads what a scatter in it has made: its readers are regions of their own, so that it happens in place. Rules
 * need not know the like. */
static bool reads_scatter(prepared_region *p) {
    enum { ACCESSES = 64 };
    tir_access access[ACCESSES];
    for (int s = 0; s < (int)p->region->stages.count; s++)
        for (int i = tir_accesses(p->region, s, access, ACCESSES); i-- > 0;) {
            int from = p->region->tensors.data[access[i].tensor].stage;
            if (from >= 0 && p->region->stages.data[from].kind == TIR_SCATTER) return true;
        }
    return false;
}

static int64_t extent_of(const tir_pool *pool, tir_expr extent) {
    int64_t value = 0;
    tir_is_const(pool, extent, &value);
    return value;
}

static int64_t element_count(const prepared_region *p, uint32_t tensor) {
    const tir_tensor *t = &p->region->tensors.data[tensor];
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= extent_of(p->region->pool, t->extent[d]);
    return count;
}

static size_t output_bytes(const prepared_region *p, uint32_t output) {
    const tir_tensor *t = &p->region->tensors.data[p->output[output]];
    return (size_t)element_count(p, p->output[output]) * lib_dtype_size(t->dtype);
}

/* Arguments of one run; outputs that are inputs of the region itself are copied. */
static void **region_arguments(const prepared_region *p, lib_arena *arena, void *const *inputs, void *const *outputs) {
    void **arguments = LIB_NEW_ARRAY(arena, void *, (size_t)p->region->inputs + p->outputs + 1);
    for (int a = 0; a < p->region->inputs; a++)
        arguments[a] = p->constant[a] ? (void *)p->constant[a] : inputs[p->input[a]];
    for (uint32_t i = 0; i < p->outputs; i++) {
        const tir_tensor *t = &p->region->tensors.data[p->output[i]];
        size_t bytes = output_bytes(p, i);
        if (t->stage >= 0)
            arguments[t->argument] = outputs[i];
        else if (bytes)
            memcpy(outputs[i], arguments[t->argument], bytes);
    }
    return arguments;
}

/* ---- stages by their definition -------------------------------------------------------------------------------------- */

static void *prepare_definition(const test_leg *leg, lib_arena *arena, const test_graphs *graphs) {
    return prepare_region(leg, arena, graphs, NULL);
}

static void evaluate_all(lib_arena *arena, const prepared_region *p, uint32_t tensor, void **arguments, void *output) {
    const tir_tensor t = p->region->tensors.data[tensor];
    int64_t count = element_count(p, tensor);
    int64_t *points = LIB_NEW_ARRAY(arena, int64_t, (size_t)(count * t.rank));
    for (int64_t k = 0; k < count; k++) {
        int64_t rest = k;
        for (int i = t.rank - 1; i >= 0; i--) {
            int64_t extent = extent_of(p->region->pool, t.extent[i]);
            points[k * t.rank + i] = rest % extent;
            rest /= extent;
        }
    }
    uint64_t *bits = LIB_NEW_ARRAY(arena, uint64_t, (size_t)count);
    if (count)
        tir_region_evaluate(arena, p->region, arguments, NULL, tensor, count, points, (tir_rounding){.has_fma = p->fma},
                            bits);
    size_t size = lib_dtype_size(t.dtype);
    for (int64_t k = 0; k < count; k++) tir_bits_store((tir_dtype)t.dtype, (char *)output + (size_t)k * size, bits[k]);
}

static void run_definition(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs) {
    prepared_region *p = prepared;
    void **arguments = region_arguments(p, arena, inputs, outputs);
    for (uint32_t i = 0; i < p->outputs; i++)
        if (p->region->tensors.data[p->output[i]].stage >= 0)
            evaluate_all(arena, p, p->output[i], arguments, outputs[i]);
}

/* ---- loop IR of the empty schedule, by the checking interpreter -------------------------------------------------------- */

/* Whatever it computes, a kernel asks soon whether it shall go on. What it executes between two polls is counted here, not taken from
 * the structure that polls were placed by; few operations between them stand for the many of large sizes. Code without loops, which
 * sizes do not make longer, comes on top. */
static void interpret(const prepared_region *p, lib_arena *arena, void *const *arguments) {
    enum { WORK = 512 };
    lib_error error = {0};
    tir_poll_report polling = {0};
    const tir_interpret_options options = {.check = true, .poll_work = WORK, .polling = &polling};
    if (tir_interpret(p->kernel, arguments, NULL, &options, arena->allocator, &error) != DLC_OK)
        lib_raise_error(arena->scope, &error);
    const int64_t most = 4 * WORK + 8 * (int64_t)p->kernel->pool->nodes.count;
    if (polling.longest > most && !p->device)
        lib_raise(arena->scope, DLC_INTERNAL, "kernel %s: %lld operations without a poll, expected at most %lld",
                  p->kernel->name, (long long)polling.longest, (long long)most);
}

static void *prepare_loops(const test_leg *leg, lib_arena *arena, const test_graphs *graphs) {
    prepared_region *p = prepare_region(leg, arena, graphs, NULL);
    if (!p || p->region->outputs == 0) return p;
    tir_machine machine = {.target = "interp", .name = "none", .fma = leg->fma, .line = 64, .cores = 1};
    p->kernel = tir_lower(arena, p->region, NULL, &(tir_lower_options){.machine = &machine, .verify = true});
    return p;
}

static void run_loops(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs) {
    prepared_region *p = prepared;
    void **arguments = region_arguments(p, arena, inputs, outputs);
    if (p->kernel) interpret(p, arena, arguments);
}

/* ---- code and interpreter must agree ------------------------------------------------------------------------------------ */

#if defined DLC_TARGET_cpu || defined DLC_TARGET_cuda
static bool same_bits(dlc_dtype dtype, const char *a, const char *b, int64_t count) {
    size_t size = lib_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        const char *x = a + (size_t)i * size, *y = b + (size_t)i * size;
        if (memcmp(x, y, size) == 0) continue;
        if (!lib_dtype_is_float(dtype) || !isnan(lib_element_get_f64(dtype, x)) ||
            !isnan(lib_element_get_f64(dtype, y)))
            return false;
    }
    return true;
}

/* The same arguments, but for outputs of its own, which it fills. */
static void **run_interpreter(const prepared_region *p, lib_arena *arena, void *const *arguments) {
    void **checked = LIB_NEW_ARRAY(arena, void *, (size_t)p->region->inputs + p->outputs + 1);
    memcpy(checked, arguments, (size_t)p->region->inputs * sizeof *checked);
    for (uint32_t i = 0; i < p->outputs; i++) {
        const tir_tensor *t = &p->region->tensors.data[p->output[i]];
        if (t->stage >= 0) checked[t->argument] = lib_arena_take(arena, output_bytes(p, i) + 1);
    }
    interpret(p, arena, checked);
    return checked;
}

static void expect_same_bits(const prepared_region *p, lib_arena *arena, void *const *arguments, void *const *checked) {
    for (uint32_t i = 0; i < p->outputs; i++) {
        const tir_tensor *t = &p->region->tensors.data[p->output[i]];
        if (t->stage >= 0 &&
            !same_bits(t->dtype, arguments[t->argument], checked[t->argument], element_count(p, p->output[i])))
            lib_raise(arena->scope, DLC_INTERNAL, "compiled code and interpreter differ in %s; schedule:\n%s", t->name,
                      p->schedule);
    }
}
#endif

/* ---- the cpu target's own schedule: its loop IR by the checking interpreter and compiled give the same bits ------------ */

#ifdef DLC_TARGET_cpu
static struct {
    target_device *device;
    tir_machine machine;
} cpu;

static void open_cpu(lib_scope *scope) {
    lib_error error;
    target_options options = {.allocator = &lib_libc_allocator};
    if (!cpu.device && target_cpu.open(&options, &cpu.device, &cpu.machine, &error) != DLC_OK)
        lib_raise_error(scope, &error);
}

static void *prepare_cpu(const test_leg *leg, lib_arena *arena, const test_graphs *graphs) {
    open_cpu(arena->scope);
    prepared_region *p = prepare_region(leg, arena, graphs, &cpu.machine);
    if (p && reads_scatter(p)) return NULL;
    if (!p || p->region->outputs == 0) return p;
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    target_cpu.schedule(&cpu.machine, 1, tir_region_copy(arena, p->region), &schedule);
    p->schedule = schedule.text.length ? schedule.text.data : "";
    if (getenv("SHOW")) { /* to look at what a failing case does */
        lib_text text;
        lib_text_init(&text, arena);
        tir_region_print(&text, p->region);
        fprintf(stderr, "%s%s\n", text.data, p->schedule);
    }
    p->kernel = tir_lower(arena, p->region, &schedule, &(tir_lower_options){.machine = &cpu.machine, .verify = true});
    lib_error error = {0};
    target_object object;
    const tir_kernel *kernel = p->kernel;
    static int kernels;
    if (kernels++ % 2)
        p->kernel = tir_vectorise(arena, kernel, &cpu.machine); /* every other one is interpreted as it is executed */
    if (target_cpu.compile(cpu.device, NULL, 1, &kernel, &object, &error) != DLC_OK)
        lib_raise_error(arena->scope, &error);
    dlc_status status = target_cpu.load(cpu.device, &object, 1, NULL, &p->module, &error);
    target_cpu.release_object(cpu.device, &object);
    if (status != DLC_OK) lib_raise_error(arena->scope, &error);
    return p;
}

static void finish_cpu(void *prepared) {
    const prepared_region *p = prepared;
    if (p->module) target_cpu.unload(cpu.device, p->module);
}

/* Scratch begins as NaN patterns. */
static void *poisoned(lib_arena *arena, int64_t bytes) {
    return memset(lib_arena_take_aligned(arena, (size_t)bytes + 1, 64), 0xff, (size_t)bytes + 1);
}

static void run_compiled(const prepared_region *p, lib_arena *arena, void *const *arguments) {
    lib_error error = {0};
    target_arguments call = {.buffers = arguments,
                             .workspace = poisoned(arena, p->kernel->workspace_bytes),
                             .local = poisoned(arena, tir_range(p->kernel->pool, p->kernel->local_size).high),
                             .error = &error};
    for (uint32_t k = 0; k < p->kernel->phases.count; k++) {
        target_phase phase = target_cpu.phase(p->module, 0, (int)k);
        phase.run(&call, 0, 0, extent_of(p->kernel->pool, p->kernel->phases.data[k].tasks), 0, phase.closure);
    }
}

static void run_cpu(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs) {
    prepared_region *p = prepared;
    void **arguments = region_arguments(p, arena, inputs, outputs);
    if (!p->kernel) return;
    void **checked = run_interpreter(p, arena, arguments);
    run_compiled(p, arena, arguments);
    expect_same_bits(p, arena, arguments, checked);
}
#endif

/* ---- the cuda target's schedule, without a GPU: its loop IR by the checking interpreter, and printed as source ----------- */

#ifdef DLC_TARGET_cuda
/* Of all that the leg ran: what its rules make of shared memory. There are no conflicts but where data choose the places. */
static tir_bank_report cuda_banks;
static int cuda_kernels, cuda_runs;

static void lower_for_cuda(prepared_region *p, lib_arena *arena, const tir_machine *machine) {
    tir_schedule schedule;
    tir_schedule_init(&schedule, arena);
    cuda_schedule(machine, 1, tir_region_copy(arena, p->region), &schedule);
    p->schedule = schedule.text.length ? schedule.text.data : "";
    p->kernel = tir_lower(arena, p->region, &schedule, &(tir_lower_options){.machine = machine, .verify = true});
}

static void *prepare_cuda(const test_leg *leg, lib_arena *arena, const test_graphs *graphs) {
    tir_machine machine;
    if (!cuda_machine_of_name("sm_90", &machine)) lib_raise(arena->scope, DLC_INTERNAL, "no facts of sm_90");
    prepared_region *p = prepare_region(leg, arena, graphs, &machine);
    if (p && reads_scatter(p)) return NULL;
    if (!p || p->region->outputs == 0) return p;
    lower_for_cuda(p, arena, &machine);
    sources_add(arena, p->kernel);
    cuda_kernels++;
    if (getenv("SHOW")) {
        lib_text text, source;
        lib_text_init(&text, arena);
        lib_text_init(&source, arena);
        tir_region_print(&text, p->region);
        cuda_emit(p->kernel, 0, &source);
        fprintf(stderr, "%s%s\n%s\n", text.data, p->schedule, source.data);
    }
    return p;
}

/* A scatter stores x first, and then the updates. */
static bool stores_once(const tir_region *region) {
    for (uint32_t s = 0; s < region->stages.count; s++)
        if (region->stages.data[s].kind == TIR_SCATTER) return false;
    return true;
}

static void run_blocks(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs) {
    prepared_region *p = prepared;
    void **arguments = region_arguments(p, arena, inputs, outputs);
    tir_bank_report banks;
    lib_error error = {0};
    if (!p->kernel) return;
    if (tir_interpret(p->kernel, arguments, NULL,
                      &(tir_interpret_options){.check = true, .stored_once = stores_once(p->region), .banks = &banks},
                      arena->allocator, &error) != DLC_OK)
        lib_raise_error(arena->scope, &error);
    const bool both_ways =
        strstr(p->schedule, " state ") != NULL; /* a fold over matrices, read along rows and columns */
    if (banks.conflicts > banks.chosen && !both_ways)
        lib_raise(arena->scope, DLC_INTERNAL,
                  "%lld of %lld accesses to shared memory meet in a bank, most in %s; schedule:\n%s",
                  (long long)(banks.conflicts - banks.chosen), (long long)banks.accesses, banks.worst, p->schedule);
    cuda_runs++;
    cuda_banks.accesses += banks.accesses;
    cuda_banks.conflicts += banks.conflicts;
}

/* ---- the cuda target on its device: the schedule for that device by NVRTC and the driver, and by the interpreter ------------ */

static struct {
    target_device *device;
    tir_machine machine;
    /* kernels that ran */
    int exact, inexact;
} gpu;

static void open_gpu(lib_scope *scope) {
    lib_error error;
    target_options options = {.allocator = &lib_libc_allocator};
    if (!gpu.device && target_cuda.open(&options, &gpu.device, &gpu.machine, &error) != DLC_OK)
        lib_raise_error(scope, &error);
}

static void gpu_try(lib_scope *scope, dlc_status status, const lib_error *error) {
    if (status != DLC_OK) lib_raise_error(scope, error);
}

/* What is no promise: f64 functions are the vendor's, and matrix units add in an order of their own. */
static bool is_inexact(lib_arena *arena, const tir_kernel *kernel) {
    for (uint32_t n = 1; n < kernel->pool->nodes.count; n++) {
        const tir_node *node = &kernel->pool->nodes.data[n];
        if ((tir_ops[node->op].flags & TIR_MATH) && node->dtype == DLC_F64) return true;
    }
    lib_text source;
    lib_text_init(&source, arena);
    cuda_emit(kernel, 0, &source);
    return source.length && strstr(source.data, "mma_");
}

static void *prepare_device(const test_leg *leg, lib_arena *arena, const test_graphs *graphs) {
    open_gpu(arena->scope);
    prepared_region *p = prepare_region(leg, arena, graphs, &gpu.machine);
    if (p && reads_scatter(p)) return NULL;
    if (!p || p->region->outputs == 0) return p;
    lower_for_cuda(p, arena, &gpu.machine);
    p->device = true;
    p->inexact = is_inexact(arena, p->kernel);
    lib_error error = {0};
    target_object object;
    const tir_kernel *kernel = p->kernel;
    gpu_try(arena->scope, target_cuda.compile(gpu.device, NULL, 1, &kernel, &object, &error), &error);
    dlc_status status = target_cuda.load(gpu.device, &object, 1, NULL, &p->module, &error);
    target_cuda.release_object(gpu.device, &object);
    gpu_try(arena->scope, status, &error);
    *(p->inexact ? &gpu.inexact : &gpu.exact) += 1;
    return p;
}

static void finish_device(void *prepared) {
    const prepared_region *p = prepared;
    if (p->module) target_cuda.unload(gpu.device, p->module);
}

/* Device memory of one run: arguments, workspace, local scratch, each with a fence behind it that nothing may touch. */
enum { FENCE = 64, FENCE_BYTE = 0xa5, BLOCKS_MAX = 64 };

typedef struct device_block {
    void *at;
    /* expected contents of the whole allocation: `bytes` of the tensor, then the fence after it */
    char *image;
    size_t bytes;
} device_block;

typedef struct device_run {
    lib_arena *arena;
    target_stream *stream;
    device_block blocks[BLOCKS_MAX];
    int count;
} device_run;

static void *put_on_device(device_run *r, const void *from, size_t bytes) {
    lib_error error = {0};
    if (r->count == BLOCKS_MAX) lib_raise(r->arena->scope, DLC_INTERNAL, "more than %d arguments", BLOCKS_MAX);
    device_block *block = &r->blocks[r->count];
    *block = (device_block){.image = lib_arena_take(r->arena, bytes + FENCE), .bytes = bytes};
    if (from)
        memcpy(block->image, from, bytes);
    else
        memset(block->image, 0xff, bytes);
    memset(block->image + bytes, FENCE_BYTE, FENCE);
    gpu_try(r->arena->scope, cuda_runtime.allocate(r->stream, bytes + FENCE, &block->at, &error), &error);
    r->count++;
    gpu_try(r->arena->scope,
            cuda_runtime.copy(r->stream, TARGET_COPY_TO_DEVICE, block->at, block->image, bytes + FENCE, &error),
            &error);
    return block->at;
}

static void take_from_device(device_run *r) {
    lib_error error = {0};
    for (int i = 0; i < r->count; i++)
        gpu_try(r->arena->scope,
                cuda_runtime.copy(r->stream, TARGET_COPY_TO_HOST, r->blocks[i].image, r->blocks[i].at,
                                  r->blocks[i].bytes + FENCE, &error),
                &error);
    gpu_try(r->arena->scope, cuda_runtime.synchronise(r->stream, &error), &error);
    for (int i = 0; i < r->count; i++)
        for (int k = 0; k < FENCE; k++)
            if ((unsigned char)r->blocks[i].image[r->blocks[i].bytes + (size_t)k] != FENCE_BYTE)
                lib_raise(r->arena->scope, DLC_INTERNAL, "the device wrote behind argument %d", i);
}

static void launch_phases(const prepared_region *p, const target_arguments *call) {
    const tir_kernel *k = p->kernel;
    for (uint32_t first = 0, count; first < k->phases.count; first += count) {
        const tir_phase *phase = &k->phases.data[first];
        int64_t repeat = phase->repeat ? extent_of(k->pool, phase->repeat) : 1;
        count = phase->repeat ? (uint32_t)phase->repeat_phases : 1;
        for (int64_t iteration = 0; iteration < repeat; iteration++)
            for (uint32_t i = first; i < first + count; i++) {
                int64_t tasks = extent_of(k->pool, k->phases.data[i].tasks);
                target_phase run = target_cuda.phase(p->module, 0, (int)i);
                if (tasks > 0) run.run(call, iteration, 0, tasks, 0, run.closure);
            }
    }
}

static void run_on_device(const prepared_region *p, device_run *r, void *const *arguments) {
    const tir_kernel *k = p->kernel;
    lib_error error = {.status = DLC_OK};
    void **buffers = LIB_NEW_ARRAY(r->arena, void *, (size_t)k->arguments + 1);
    for (int a = 0; a < p->region->inputs; a++)
        buffers[a] = put_on_device(
            r, arguments[a], (size_t)element_count(p, (uint32_t)a) * lib_dtype_size(p->region->tensors.data[a].dtype));
    const int inputs = r->count;
    for (uint32_t i = 0; i < p->outputs; i++) {
        const tir_tensor *t = &p->region->tensors.data[p->output[i]];
        if (t->stage >= 0 && !buffers[t->argument]) buffers[t->argument] = put_on_device(r, NULL, output_bytes(p, i));
    }
    int64_t local = k->local_size ? tir_range(k->pool, k->local_size).high : 0;
    target_arguments call = {.buffers = buffers, .error = &error, .stream = r->stream};
    call.local_stride = (local + TIR_BUFFER_ALIGNMENT - 1) / TIR_BUFFER_ALIGNMENT * TIR_BUFFER_ALIGNMENT;
    if (k->workspace_bytes) call.workspace = put_on_device(r, NULL, (size_t)k->workspace_bytes);
    if (local) call.local = put_on_device(r, NULL, (size_t)(call.local_stride * gpu.machine.cores));
    launch_phases(p, &call);
    gpu_try(r->arena->scope, error.status, &error);
    take_from_device(r);
    for (uint32_t i = 0; i < p->outputs; i++) {
        const tir_tensor *t = &p->region->tensors.data[p->output[i]];
        for (int b = inputs; t->stage >= 0 && b < r->count; b++)
            if (r->blocks[b].at == buffers[t->argument])
                memcpy(arguments[t->argument], r->blocks[b].image, r->blocks[b].bytes);
    }
}

/* The scope of the caller is left by way of the clean-up. */
static void run_device(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs) {
    prepared_region *p = prepared;
    void **arguments = region_arguments(p, arena, inputs, outputs);
    if (!p->kernel) return;
    void **checked = run_interpreter(p, arena, arguments);
    lib_scope scope, *outer = arena->scope;
    lib_error error = {0};
    device_run r = {.arena = arena};
    gpu_try(outer, cuda_runtime.enter(gpu.device, &error), &error);
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        gpu_try(&scope, cuda_runtime.open(gpu.device, NULL, &r.stream, &error), &error);
        run_on_device(p, &r, arguments);
    }
    arena->scope = outer;
    for (int i = 0; i < r.count; i++) cuda_runtime.release(r.stream, r.blocks[i].at);
    if (r.stream) cuda_runtime.close(r.stream);
    cuda_runtime.leave(gpu.device);
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
    if (!p->inexact) expect_same_bits(p, arena, arguments, checked);
}
#endif

/* ---- a host's program on the build's default target, or on a device ---------------------------------------------------------------------- */

typedef struct host {
    dlc_context *context;
    /* regions so far */
    uint64_t interpreted;
} host;

static host default_host, device_host;
static char last_log[LIB_MESSAGE_MAX]; /* why a region was interpreted */

static void keep_line(void *user, const char *line) {
    (void)user;
    snprintf(last_log, sizeof last_log, "%s", line);
}

/* The library's memory begins as NaN patterns. A program's arena lives as long as the program, hence a program for each run; the
 * kernels come from the context's cache. */
static void *allocate_poisoned(void *user, size_t size, size_t alignment) {
    void *pointer = NULL;
    (void)user;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, size ? size : 1) != 0)
        return NULL;
    return memset(pointer, 0xff, size);
}

static void release_poisoned(void *user, void *pointer, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    free(pointer);
}

typedef struct prepared_program {
    const graph *g, *primitive;
    host *host;
    dlc_graph *handle;
    bool strided;
} prepared_program;

_Noreturn static void raise_host(lib_scope *scope, const host *by, dlc_status status) {
    lib_raise(scope, status == DLC_OK ? DLC_INTERNAL : status, "%s", dlc_error_message(by->context));
}

static void *prepare_program(const test_leg *leg, lib_arena *arena, const test_graphs *graphs) {
    static const dlc_allocator allocator = {allocate_poisoned, release_poisoned, NULL};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    options.log = keep_line;
    options.target = leg->target;
    prepared_program *p = LIB_NEW(arena, prepared_program);
    p->host = leg->target ? &device_host : &default_host;
    if (!p->host->context && dlc_context_create(&options, &p->host->context) != DLC_OK)
        lib_raise(arena->scope, DLC_INTERNAL, "%s", dlc_error_message(NULL));
    lib_text text;
    lib_text_init(&text, arena);
    graph_print(&text, graphs->whole);
    p->g = graphs->whole;
    p->primitive = graphs->primitive;
    p->strided = leg->strided;
    dlc_status status = dlc_graph_parse(p->host->context, text.data, text.length, &p->handle);
    if (status != DLC_OK) raise_host(arena->scope, p->host, status);
    return p;
}

static void finish_program(void *prepared) {
    dlc_graph_destroy(((prepared_program *)prepared)->handle);
}

/* A tensor of a host: compact where the leg has it, or with its axes the other way round in memory and a gap after each row. */
typedef struct host_tensor {
    DLTensor tensor;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
    /* of an element */
    size_t size;
    int64_t count;
    char *compact;
    guarded copy;
} host_tensor;

static char *host_element(const host_tensor *t, int64_t number) {
    int64_t at = 0;
    for (int d = t->tensor.ndim - 1; d >= 0; d--) {
        at += number % t->shape[d] * t->strides[d];
        number /= t->shape[d];
    }
    return (char *)t->tensor.data + at * (int64_t)t->size;
}

static void place_tensor(host_tensor *t, lib_arena *arena, const graph *g, graph_id value, void *compact,
                         bool strided) {
    const graph_shape *shape = graph_shape_of(g, value);
    *t = (host_tensor){.compact = compact, .size = lib_dtype_size(shape->dtype), .count = 1};
    t->tensor = (DLTensor){.data = compact,
                           .device = {kDLCPU, 0},
                           .ndim = shape->rank,
                           .dtype = lib_dtype_to_dlpack(shape->dtype),
                           .shape = t->shape};
    int64_t stride = 1;
    for (int d = 0; d < shape->rank; d++) {
        t->count *= t->shape[d] = extent_of(g->pool, shape->dim[d]);
        t->strides[d] = stride;
        stride = stride * t->shape[d] + (d == 0);
    }
    if (!strided) return;
    size_t bytes = t->count ? (size_t)stride * t->size : 0;
    if (!guarded_new(&t->copy, bytes, true)) lib_raise(arena->scope, DLC_OUT_OF_MEMORY, "no memory");
    if (bytes) memset(t->copy.data, 0xff, bytes);
    t->tensor.data = t->copy.data;
    t->tensor.strides = t->strides;
}

typedef struct host_call {
    host_tensor *input, *output;
    const DLTensor **inputs;
    dlc_output_slot *slots;
    int input_count, output_count;
} host_call;

static host_call *make_call(const prepared_program *p, lib_arena *arena, void *const *inputs, void *const *outputs) {
    host_call *c = LIB_NEW(arena, host_call);
    c->input_count = (int)p->g->inputs.count;
    c->output_count = (int)p->g->outputs.count;
    c->input = LIB_NEW_ARRAY(arena, host_tensor, (size_t)c->input_count + 1);
    c->inputs = LIB_NEW_ARRAY(arena, const DLTensor *, (size_t)c->input_count + 1);
    c->output = LIB_NEW_ARRAY(arena, host_tensor, (size_t)c->output_count);
    c->slots = LIB_NEW_ARRAY(arena, dlc_output_slot, (size_t)c->output_count);
    for (int i = 0; i < c->input_count; i++) {
        host_tensor *t = &c->input[i];
        place_tensor(t, arena, p->g, p->g->inputs.data[i], inputs[i], p->strided);
        for (int64_t k = 0; p->strided && k < t->count; k++)
            memcpy(host_element(t, k), t->compact + (size_t)k * t->size, t->size);
        c->inputs[i] = &t->tensor;
    }
    for (int i = 0; i < c->output_count; i++) {
        place_tensor(&c->output[i], arena, p->g, p->g->outputs.data[i], outputs[i], p->strided);
        c->slots[i].tensor = &c->output[i].tensor;
    }
    return c;
}

static void end_call(host_call *c, bool strided) {
    for (int i = 0; i < c->output_count; i++) {
        const host_tensor *t = &c->output[i];
        for (int64_t k = 0; strided && k < t->count; k++)
            memcpy(t->compact + (size_t)k * t->size, host_element(t, k), t->size);
        guarded_free(&c->output[i].copy);
    }
    for (int i = 0; i < c->input_count; i++) guarded_free(&c->input[i].copy);
}

static void run_program(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs) {
    const prepared_program *p = prepared;
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    dlc_program *program;
    options.no_excess_precision = p->strided; /* both ways are tried */
    dlc_status status = dlc_compile(p->host->context, p->handle, &options, &program);
    if (status != DLC_OK) raise_host(arena->scope, p->host, status);
    host_call *call = make_call(p, arena, inputs, outputs);
    status = dlc_run(program, NULL, call->inputs, call->input_count, call->slots, call->output_count);
    end_call(call, p->strided);
    dlc_program_destroy(program);
    if (status != DLC_OK) raise_host(arena->scope, p->host, status);
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    dlc_context_statistics(p->host->context, &statistics);
    if (statistics.interpreted_regions > p->host->interpreted) {
        p->host->interpreted = statistics.interpreted_regions;
        lib_raise(arena->scope, DLC_INTERNAL, "%s", last_log);
    }
}

/* ---- a host's program whose operands are constants: what is folded has the bits of what runs ------------------------------------------ */

static void add_hexadecimal(lib_text *text, const void *bytes, size_t size) {
    lib_text_add(text, "{\"");
    for (size_t i = 0; i < size; i++) lib_text_format(text, "%02x", ((const unsigned char *)bytes)[i]);
    lib_text_add(text, "\"}");
}

/* The program's text, in which `input x0: f32[3]` has become `x0 = constant f32[3] {"..."}`. Its inputs stand first. */
static void print_with_constants(lib_text *text, lib_arena *arena, const graph *g, void *const *inputs) {
    static const char mark[] = "  input ";
    lib_text printed;
    lib_text_init(&printed, arena);
    graph_print(&printed, g);
    uint32_t input = 0;
    for (const char *line = printed.data; *line;) {
        const char *end = line + strcspn(line, "\n"), *colon = strchr(line, ':');
        if (input < g->inputs.count && strncmp(line, mark, strlen(mark)) == 0) {
            const graph_shape *of = graph_shape_of(g, g->inputs.data[input]);
            size_t size = lib_dtype_size(of->dtype);
            for (int d = 0; d < of->rank; d++) size *= (size_t)extent_of(g->pool, of->dim[d]);
            lib_text_add_bytes(text, line + strlen(mark), (size_t)(colon - line) - strlen(mark));
            lib_text_add(text, " = constant");
            lib_text_add_bytes(text, colon + 1, (size_t)(end - colon - 1));
            lib_text_add(text, " ");
            add_hexadecimal(text, inputs[input++], size);
        } else {
            lib_text_add_bytes(text, line, (size_t)(end - line));
        }
        lib_text_add(text, "\n");
        line = *end ? end + 1 : end;
    }
}

static bool same_element(dlc_dtype dtype, const void *a, const void *b) {
    if (memcmp(a, b, lib_dtype_size(dtype)) == 0) return true;
    return lib_dtype_is_float(dtype) && isnan(lib_element_get_f64(dtype, a)) && isnan(lib_element_get_f64(dtype, b));
}

/* Kernels of sums of products add in an order that a constant operand's layout makes better; they are never folded. */
static bool has_contraction(const graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (g->nodes.data[i].op->class_ == GRAPH_CONTRACT) return true;
    return false;
}

static void run_constants(void *prepared, lib_arena *arena, void *const *inputs, void *const *outputs) {
    prepared_program *p = prepared, folded = *p;
    graph none = *p->g;
    lib_text text;
    none.inputs.count = 0;
    lib_text_init(&text, arena);
    print_with_constants(&text, arena, p->g, inputs);
    dlc_status status = dlc_graph_parse(p->host->context, text.data, text.length, &folded.handle);
    if (status != DLC_OK) raise_host(arena->scope, p->host, status);
    folded.g = &none;
    run_program(&folded, arena, NULL, outputs);
    dlc_graph_destroy(folded.handle);
    if (has_contraction(p->primitive)) return;
    void **run = LIB_NEW_ARRAY(arena, void *, p->g->outputs.count);
    size_t *size = LIB_NEW_ARRAY(arena, size_t, p->g->outputs.count);
    for (uint32_t i = 0; i < p->g->outputs.count; i++) {
        const graph_shape *shape = graph_shape_of(p->g, p->g->outputs.data[i]);
        size[i] = lib_dtype_size(shape->dtype);
        for (int d = 0; d < shape->rank; d++) size[i] *= (size_t)extent_of(p->g->pool, shape->dim[d]);
        run[i] = lib_arena_take(arena, size[i] + 1);
    }
    run_program(p, arena, inputs, run);
    for (uint32_t i = 0; i < p->g->outputs.count; i++) {
        const dlc_dtype dtype = graph_shape_of(p->g, p->g->outputs.data[i])->dtype;
        for (size_t at = 0; at < size[i]; at += lib_dtype_size(dtype)) {
            const char *a = (char *)outputs[i] + at, *b = (char *)run[i] + at;
            if (same_element(dtype, a, b)) continue;
            lib_raise(arena->scope, DLC_INTERNAL, "output %u element %zu is %a of constants, %a of inputs", i,
                      at / lib_dtype_size(dtype), lib_element_get_f64(dtype, a), lib_element_get_f64(dtype, b));
        }
    }
}

/* ---- which there are ----------------------------------------------------------------------------------------------------- */

const test_leg test_legs[TEST_LEGS_MAX] = {
    {.name = "definition", .prepare = prepare_definition, .run = run_definition},
    {.name = "definition with fma", .prepare = prepare_definition, .run = run_definition, .fma = true},
    {.name = "loops", .prepare = prepare_loops, .run = run_loops, .fma = true},
#ifdef DLC_TARGET_cpu
    {.name = "cpu", .prepare = prepare_cpu, .run = run_cpu, .finish = finish_cpu, .fma = true},
#endif
#ifdef DLC_TARGET_cuda
    {.name = "cuda", .prepare = prepare_cuda, .run = run_blocks, .fma = true},
#endif
#define PROGRAM .prepare = prepare_program, .run = run_program, .finish = finish_program, .fma = true
    {.name = "program", PROGRAM},
    {.name = "program, strided", PROGRAM, .strided = true},
    {.name = "program of constants",
     .prepare = prepare_program,
     .run = run_constants,
     .finish = finish_program,
     .fma = true,
     .once = true},
#ifdef DLC_TARGET_cuda
    {.name = "device",
     .prepare = prepare_device,
     .run = run_device,
     .finish = finish_device,
     .fma = true,
     .target = "cuda"},
    {.name = "device program", PROGRAM, .target = "cuda"},
    {.name = "device program, strided", PROGRAM, .strided = true, .target = "cuda"},
#endif
#undef PROGRAM
};

bool test_leg_wanted(const test_leg *leg) {
    const char *wanted = getenv("DLC_TEST_TARGET");
    return wanted ? leg->target && strcmp(wanted, leg->target) == 0 : !leg->target;
}

void test_legs_close(void) {
    dlc_context_destroy(default_host.context);
    dlc_context_destroy(device_host.context);
    default_host = device_host = (host){NULL, 0};
#ifdef DLC_TARGET_cuda
    if (cuda_kernels)
        printf(
            "cuda: %d kernels interpreted, %d times; %lld accesses of warps to shared memory, %lld conflicts of banks "
            "where data choose the place or a fold reads both ways, none elsewhere\n",
            cuda_kernels, cuda_runs, (long long)cuda_banks.accesses, (long long)cuda_banks.conflicts);
    if (gpu.device) {
        printf("%s: %d kernels bit for bit, %d within bounds\n", gpu.machine.name, gpu.exact, gpu.inexact);
        target_cuda.close(gpu.device);
        gpu.device = NULL;
    }
#endif
#ifdef DLC_TARGET_cpu
    if (cpu.device) target_cpu.close(cpu.device);
    cpu.device = NULL;
#endif
}
