/* See ending.h. A run with a budget asks the context's clock whenever a kernel asks whether the run shall go on: so a clock of the host's
 * sees how far questions are from each other, which is the longest that a run may go on after it is to end. */
#include "bench/ending.h"

#include "bench/bench.h"

#include <dlc/dlc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Operators with different kinds of loops; operand a: f32[rows, columns]. */
typedef struct errand {
    const char *name, *text;
    /* sizes for some seconds of work, or for as much as memory allows */
    int64_t rows, columns;
    /* sizes for some milliseconds of work; 0: not used for costs */
    int64_t few_rows, few_columns;
} errand;

static const errand errands[] = {
    {"exp", "y = exp(a)", 6000, 6000, 1, 4000000},
    {"erf", "y = erf(a)", 6000, 6000, 1000, 1000},
    {"pow f64", "b = cast(a, dtype=f64) c = pow(b, b) y = cast(c, dtype=f32)", 3000, 3000, 200, 1000},
    {"sort", "y, i = sort(a, axis=1)", 1, 50000000, 1, 200000},
    {"sort rows", "y, i = sort(a, axis=1)", 2000, 10000, 100, 2000},
    {"top_k", "y, i = top_k(a, axis=1, k=50)", 1, 20000000, 100, 20000},
    {"det", "y = det(a)", 1500, 1500, 120, 120},
    {"cholesky", "y = cholesky(a)", 3000, 3000, 120, 120},
    {"qr", "y, z = qr(a)", 1200, 1200, 80, 80},
    {"eigh", "y, z = eigh(a)", 400, 400, 60, 60},
    {"cumulative sum", "y = cumulative_sum(a, axis=1)", 1, 50000000, 1, 4000000},
    {"cumulative product", "y = cumulative_prod(a, axis=0)", 50000000, 1, 1000000, 1},
    {"matmul", "y = matmul(a, a)", 4000, 4000, 512, 512},
    {"softmax", "y = softmax(a, axis=1)", 1, 50000000, 1000, 1000},
    {"sum", "y = reduce_sum(a, axes=[0, 1])", 7000, 7000, 2000, 2000},
    {"arg_max", "y = arg_max(a, axis=1)", 1, 50000000, 1, 4000000},
    {"transpose", "b = transpose(a, permutation=[1, 0]) y = exp(b)", 7000, 7000, 1000, 1000},
    {"local response norm", "y = local_response_norm(a, size=1000001)", 1000000, 5, 0, 0},
    {"convolution",
     "x = reshape(a, shape=[4, 64, 250, 250]) c = constant f32[] {0.5} "
     "w = broadcast(c, shape=[64, 64, 3, 3], axes=[]) y = convolution(x, w)",
     4000, 4000, 0, 0},
};
enum { ERRANDS = sizeof errands / sizeof *errands };

typedef struct prepared {
    dlc_program *program;
    float *data;
    int64_t shape[2];
    DLTensor in;
} prepared;

static dlc_status prepare(dlc_context *context, const errand *e, bool few, prepared *p) {
    char text[512];
    dlc_graph *graph = NULL;
    *p = (prepared){.shape = {few ? e->few_rows : e->rows, few ? e->few_columns : e->columns}};
    const int length = snprintf(text, sizeof text, "graph { input a: f32[%lld, %lld] %s output y }",
                                (long long)p->shape[0], (long long)p->shape[1], e->text);
    const size_t count = (size_t)(p->shape[0] * p->shape[1]);
    p->data = malloc(count * sizeof *p->data);
    if (!p->data) return DLC_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) p->data[i] = sinf((float)i * 1.7f);
    for (int64_t i = 0; p->shape[0] == p->shape[1] && i < p->shape[0]; i++)
        p->data[i * (p->shape[0] + 1)] += (float)p->shape[0];
    p->in =
        (DLTensor){.data = p->data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = p->shape};
    dlc_status status = dlc_graph_parse(context, text, (size_t)length, &graph);
    if (status == DLC_OK) status = dlc_compile(context, graph, NULL, &p->program);
    dlc_graph_destroy(graph);
    if (status == DLC_OK) status = dlc_prepare(p->program, (const int64_t *[]){p->shape}, (int[]){2}, 1);
    if (status != DLC_OK) fprintf(stderr, "%s: %s\n", e->name, dlc_error_message(context));
    return status;
}

static void forget(prepared *p) {
    dlc_program_destroy(p->program);
    free(p->data);
}

static dlc_status run(prepared *p, const dlc_run_options *options, dlc_output_slot *slot) {
    const DLTensor *inputs[] = {&p->in};
    return dlc_run(p->program, options, inputs, 1, slot, 1);
}

/* ---- how soon */

/* seconds */
typedef struct watch {
    double begin, last, longest;
    bool on;
} watch;

static uint64_t look(void *user) {
    enum { LIMIT_MS = 300 };
    watch *w = user;
    if (!w->on) return 1;
    const double now = bench_now();
    if (now - w->last > w->longest) w->longest = now - w->last;
    w->last = now;
    return (uint64_t)((now - w->begin) * 1e9) < LIMIT_MS * UINT64_C(1000000) ? 1 : UINT64_C(1) << 60;
}

/* The longest time, in seconds, between two cancellation checks, or from the last one to the return; -1: failed. */
static double longest_wait(prepared *p, watch *w) {
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    dlc_output_slot slot = {0};
    options.budget_ms = 1000;
    *w = (watch){.begin = bench_now(), .on = true};
    w->last = w->begin;
    dlc_status status = run(p, &options, &slot);
    look(w);
    w->on = false;
    if (slot.managed) slot.managed->deleter(slot.managed);
    return status == DLC_OK || status == DLC_BUDGET_EXCEEDED ? w->longest : -1;
}

double bench_ending_worst(void) {
    watch w = {0};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    double worst = 0;
    options.clock_ns = look;
    options.clock_user = &w;
    if (dlc_context_create(&options, &context) != DLC_OK) return -1;
    for (int i = 0; i < ERRANDS && worst >= 0; i++) {
        prepared p;
        double least = prepare(context, &errands[i], false, &p) == DLC_OK ? INFINITY : -1;
        for (int round = 0; round < 3 && least >= 0; round++) least = fmin(least, longest_wait(&p, &w));
        if (getenv("BENCH_TELL")) fprintf(stderr, "%-20s ends after %8.3f ms\n", errands[i].name, least * 1e3);
        worst = least < 0 ? -1 : fmax(worst, least);
        forget(&p);
    }
    dlc_context_destroy(context);
    return worst < 0 ? -1 : worst * 1e3;
}

/* ---- at what cost */

static dlc_context *open_with(bool polls) {
    dlc_context *context = NULL;
    if (!polls) setenv("DLC_DISABLE", "polls", 1);
    dlc_context_create(NULL, &context);
    unsetenv("DLC_DISABLE");
    return context;
}

/* Least times of runs in turns, without cancellation checks, and with checks and a flag that is never raised. */
static bool take_turns(prepared *p, double *least) {
    static volatile int never;
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    dlc_output_slot slot = {0};
    options.cancel = &never;
    if (run(&p[0], NULL, &slot) != DLC_OK) return false;
    dlc_output_slot kept = {&slot.managed->dl_tensor, NULL};
    const double end = bench_now() + 0.15;
    bool good = true;
    for (int round = 0; round < 3 || bench_now() < end; round++)
        for (int which = 0; which < 2; which++) {
            const double begin = bench_now();
            good &= run(&p[which], which ? &options : NULL, &kept) == DLC_OK;
            least[which] = fmin(least[which], bench_now() - begin);
        }
    slot.managed->deleter(slot.managed);
    return good;
}

/* Per cent by which checks make the operator slower; NAN: failed. Several rounds, on the same input, with code and scratch at different
 * addresses, which matter more than checks. */
static double cost_of(const errand *e) {
    enum { ROUNDS = 6 };
    double least[2] = {INFINITY, INFINITY};
    bool good = true;
    for (int round = 0; round < ROUNDS && good; round++) {
        dlc_context *context[2] = {NULL, NULL};
        prepared p[2] = {{.program = NULL}, {.program = NULL}};
        for (int k = 0; k < 2 && good; k++) {
            const int which = (k + round) % 2;
            context[which] = open_with(which == 1);
            good = context[which] && prepare(context[which], e, true, &p[which]) == DLC_OK;
        }
        p[1].in.data = p[0].data;
        good = good && take_turns(p, least);
        for (int which = 0; which < 2; which++) {
            forget(&p[which]);
            dlc_context_destroy(context[which]);
        }
    }
    return good ? (least[1] / least[0] - 1) * 100 : NAN;
}

static double cost(bool of_worst) {
    double worst = -1, sum = 0;
    int count = 0;
    for (int i = 0; i < ERRANDS; i++) {
        if (!errands[i].few_rows) continue;
        const double percent = cost_of(&errands[i]);
        if (getenv("BENCH_TELL")) fprintf(stderr, "%-20s asking costs %+6.2f %%\n", errands[i].name, percent);
        if (!isfinite(percent)) return -1;
        sum += percent;
        worst = fmax(worst, percent);
        count++;
    }
    return of_worst ? worst : sum / count;
}

double bench_ending_cost_mean(void) {
    return cost(false);
}

double bench_ending_cost_worst(void) {
    return cost(true);
}
