/* What a call of dlc_run, with all checks, and of dlc_call_run, with tensors bound beforehand, cost beyond their kernels: two inputs,
 * 16 shapes in turn. The same kernels are called directly
 * for comparison, through the plans that the runs use; heap allocations and mutexes taken are counted. Likewise an iteration of a
 * loop. Prints one JSON line. */
#include "jit/jit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHAPES = 16, CALLS = 20000, SAMPLES = 31, REQUIRED_NS = 120, REQUIRED_CALL_NS = 50 };

/* ---- locks and allocations */

static _Atomic uint64_t locks, allocations;

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static int (*lock)(pthread_mutex_t *);
    if (!lock) *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    atomic_fetch_add_explicit(&locks, 1, memory_order_relaxed);
    return lock(mutex);
}

static void *allocate(void *user, size_t size, size_t alignment) {
    (void)user;
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return lib_libc_allocator.allocate(NULL, size, alignment);
}

static void release(void *user, void *pointer, size_t size, size_t alignment) {
    (void)user;
    lib_libc_allocator.release(NULL, pointer, size, alignment);
}

/* ---- the calls */

typedef struct shape_case {
    int64_t dims[2];
    DLTensor x, y, out;
    dlc_call *call;
    /* the plan that dlc_run used; its frame still has the pointers of these tensors */
    jit_plan *plan;
} shape_case;

static void run_all(dlc_program *program, shape_case *cases) {
    for (int i = 0; i < CALLS; i++) {
        shape_case *c = &cases[i % SHAPES];
        const DLTensor *inputs[2] = {&c->x, &c->y};
        dlc_output_slot slot = {&c->out, NULL};
        if (dlc_run(program, NULL, inputs, 2, &slot, 1) != DLC_OK) exit(2);
    }
}

static void run_bound(shape_case *cases) {
    for (int i = 0; i < CALLS; i++)
        if (dlc_call_run(cases[i % SHAPES].call, NULL) != DLC_OK) exit(2);
}

static void call_all(shape_case *cases) {
    for (int i = 0; i < CALLS; i++) {
        const jit_plan *plan = cases[i % SHAPES].plan;
        const jit_step *step = &plan->steps[0];
        for (int64_t p = 0; p < step->phases; p++)
            step->target[p].function.run(&plan->frames[0].frame->arguments[step->target[p].call], 0, 0,
                                         step->phase[p].tasks, 0, step->target[p].function.closure);
    }
}

/* ---- an iteration of a loop: a scan whose body is one small kernel, which is part of the time */

enum { LOOP_STEPS = 1000, LOOP_WIDTH = 16, REQUIRED_LOOP_NS = 200 };

static dlc_call *make_loop(dlc_context *context, dlc_program **program) {
    static float data[3][LOOP_STEPS * LOOP_WIDTH];
    static int64_t dims[2] = {LOOP_STEPS, LOOP_WIDTH};
    const dlc_dim sizes[2] = {{LOOP_STEPS, NULL}, {LOOP_WIDTH, NULL}};
    dlc_graph *g;
    dlc_call *call;
    if (dlc_graph_create(context, &g)) exit(2);
    dlc_value h = dlc_input(g, "h", DLC_F32, 1, sizes + 1), x = dlc_input(g, "x", DLC_F32, 2, sizes), results[2];
    dlc_graph *body = dlc_subgraph(g);
    dlc_value state = dlc_input(body, "h", DLC_F32, 1, sizes + 1), row = dlc_input(body, "x", DLC_F32, 1, sizes + 1);
    dlc_value next = dlc_add(state, row);
    dlc_output(body, "h", next);
    dlc_output(body, "y", next);
    dlc_scan(g, 2, (const dlc_value[]){h, x}, body, 1, 1, 2, results);
    dlc_output(g, "y", results[1]);
    if (dlc_compile(context, g, NULL, program)) exit(2);
    dlc_graph_destroy(g);
    DLTensor tensor[3];
    for (int i = 0; i < 3; i++)
        tensor[i] = (DLTensor){.data = data[i],
                               .device = {kDLCPU, 0},
                               .ndim = i ? 2 : 1,
                               .dtype = {kDLFloat, 32, 1},
                               .shape = i ? dims : dims + 1};
    const DLTensor *inputs[2] = {&tensor[0], &tensor[1]};
    DLTensor *outputs[1] = {&tensor[2]};
    if (dlc_call_create(*program, inputs, 2, outputs, 1, &call) || dlc_call_run(call, NULL)) exit(2);
    return call;
}

static double time_loop(dlc_call *call) {
    uint64_t start = lib_time_ns();
    if (dlc_call_run(call, NULL) != DLC_OK) exit(2);
    return (double)(lib_time_ns() - start) / (double)LOOP_STEPS;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int count, char **words) {
    static float data[3][64 * 64];
    static shape_case cases[SHAPES];
    const dlc_allocator allocator = {allocate, release, NULL};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    options.target = count > 1 ? words[1] : NULL;
    dlc_context *context;
    dlc_graph *g;
    dlc_program *program;
    if (dlc_context_create(&options, &context) || dlc_graph_create(context, &g)) return 2;
    const dlc_dim dims[2] = {{0, "n"}, {0, "m"}};
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, dims), y = dlc_input(g, "y", DLC_F32, 2, dims);
    dlc_output(g, "sum", dlc_add(x, y));
    if (dlc_compile(context, g, NULL, &program)) return 2;
    for (int i = 0; i < SHAPES; i++) {
        shape_case *c = &cases[i];
        c->dims[0] = 1 + i % 4;
        c->dims[1] = 8 * (1 + i / 4);
        DLTensor tensor = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = c->dims};
        c->x = c->y = c->out = tensor;
        c->x.data = data[0], c->y.data = data[1], c->out.data = data[2];
    }
    run_all(program, cases);
    for (int i = 0; i < SHAPES; i++) {
        shape_case *c = &cases[i];
        const DLTensor *inputs[2] = {&c->x, &c->y};
        DLTensor *outputs[1] = {&c->out};
        if (dlc_call_create(program, inputs, 2, outputs, 1, &c->call)) return 2;
    }
    for (int i = 0; i < SHAPES; i++)
        for (uint32_t t = 0; t < program->table_size; t++) {
            jit_plan *plan = atomic_load(&program->table[t]);
            if (plan && memcmp(plan->shapes, cases[i].dims, sizeof cases[i].dims) == 0) cases[i].plan = plan;
        }
    dlc_program *loop_program;
    dlc_call *loop = make_loop(context, &loop_program);
    uint64_t locks_before = locks, allocations_before = allocations;
    double runs[SAMPLES], bound[SAMPLES], calls[SAMPLES], loops[SAMPLES];
    for (int s = 0; s < SAMPLES; s++) {
        uint64_t start = lib_time_ns();
        run_all(program, cases);
        uint64_t ran = lib_time_ns();
        run_bound(cases);
        uint64_t ran_bound = lib_time_ns();
        call_all(cases);
        runs[s] = (double)(ran - start) / CALLS;
        bound[s] = (double)(ran_bound - ran) / CALLS;
        calls[s] = (double)(lib_time_ns() - ran_bound) / CALLS;
        loops[s] = time_loop(loop);
    }
    uint64_t locked = locks - locks_before, allocated = allocations - allocations_before;
    qsort(runs, SAMPLES, sizeof *runs, by_value);
    qsort(bound, SAMPLES, sizeof *bound, by_value);
    qsort(calls, SAMPLES, sizeof *calls, by_value);
    qsort(loops, SAMPLES, sizeof *loops, by_value);
    double kernels = calls[SAMPLES / 2], overhead = runs[SAMPLES / 2] - kernels;
    double call_overhead = bound[SAMPLES / 2] - kernels;
    printf(
        "{\"case\": \"dlc_run overhead\", \"run_ns\": %.1f, \"kernels_ns\": %.1f, \"overhead_ns\": %.1f, \"required_ns\": %d, "
        "\"call_overhead_ns\": %.1f, \"required_call_ns\": %d, \"loop_step_ns\": %.1f, \"required_loop_step_ns\": %d, \"locks\": %llu, \"allocations\": %llu}\n",
        runs[SAMPLES / 2], kernels, overhead, REQUIRED_NS, call_overhead, REQUIRED_CALL_NS, loops[SAMPLES / 2],
        REQUIRED_LOOP_NS, (unsigned long long)locked, (unsigned long long)allocated);
    for (int i = 0; i < SHAPES; i++) dlc_call_destroy(cases[i].call);
    dlc_call_destroy(loop);
    dlc_program_destroy(loop_program);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
    return overhead > REQUIRED_NS || call_overhead > REQUIRED_CALL_NS || loops[SAMPLES / 2] > REQUIRED_LOOP_NS ||
           locked || allocated;
}
