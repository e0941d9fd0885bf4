/* One program, many threads, many shapes. The library starts no thread of its own: it runs on the calling threads and, if the work is
 * worth dividing, on the host's pool, through parallel_for. State is donated: overwritten in its own buffer. */
#include <dlc/dlc.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { CALLERS = 4, HELPERS = 1, CALLS = 400, FEATURES = 32, LONGEST = 64 };

/* ---- the host's pool: one job at a time; a thread that finds it busy does its work alone ------------------------------------ */

typedef struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread[HELPERS];
    bool taken, stop;
    int64_t count, next, finished;
    void (*body)(void *argument, int64_t index);
    void *argument;
} pool;

/* Executes indices of the job until none is left. Called and returns with the mutex held. */
static void work(pool *p) {
    while (p->next < p->count) {
        int64_t index = p->next++;
        pthread_mutex_unlock(&p->mutex);
        p->body(p->argument, index);
        pthread_mutex_lock(&p->mutex);
        if (++p->finished == p->count) pthread_cond_broadcast(&p->changed);
    }
}

static void *helper(void *argument) {
    pool *p = argument;
    pthread_mutex_lock(&p->mutex);
    while (!p->stop) {
        work(p);
        if (!p->stop) pthread_cond_wait(&p->changed, &p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* Called by the library: runs body(argument, 0..count-1), in any order, and returns when all have returned. */
static void parallel_for(void *user, int64_t count, void (*body)(void *argument, int64_t index), void *argument) {
    pool *p = user;
    pthread_mutex_lock(&p->mutex);
    bool mine = !p->taken;
    if (mine) {
        p->taken = true;
        p->body = body, p->argument = argument;
        p->next = p->finished = 0, p->count = count;
        pthread_cond_broadcast(&p->changed);
        work(p);
        while (p->finished < p->count) pthread_cond_wait(&p->changed, &p->mutex);
        p->count = p->next = 0;
        p->taken = false;
    }
    pthread_mutex_unlock(&p->mutex);
    for (int64_t i = 0; !mine && i < count; i++) body(argument, i);
}

/* ---- the program: y = softmax(x w); total' = total + the sum of y's rows -------------------------------------------------- */

static float w[FEATURES][FEATURES];

static dlc_status build(dlc_context *context, dlc_program **program) {
    dlc_graph *graph;
    dlc_status status = dlc_graph_create(context, &graph);
    if (status != DLC_OK) return status;
    dlc_value x = dlc_input(graph, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {FEATURES, NULL}});
    dlc_value total = dlc_input(graph, "total", DLC_F32, 1, (dlc_dim[]){{FEATURES, NULL}});
    /* Lengths of requests: one kernel with n as a parameter, rather than one for each value. */
    dlc_symbol_varies(graph, "n", 1, LONGEST, 1);
    dlc_value weights = dlc_constant_borrow(graph, DLC_F32, 2, (int64_t[]){FEATURES, FEATURES}, w);
    dlc_value y = dlc_softmax(dlc_matmul(x, weights), -1);
    dlc_output(graph, "y", y);
    dlc_output(graph, "total", dlc_add(total, dlc_reduce_sum(y, 1, (int64_t[]){0})));
    status = dlc_compile(context, graph, NULL, program);
    /* Donation: output 1 may be written over input 1. */
    if (status == DLC_OK) status = dlc_program_alias(*program, 1, 1);
    if (status != DLC_OK) fprintf(stderr, "%s\n", dlc_error_message(context));
    dlc_graph_destroy(graph);
    return status;
}

/* ---- callers ---------------------------------------------------------------------------------------------------------------- */

typedef struct caller {
    pthread_t thread;
    int number;
    dlc_context *context;
    dlc_program *program;
    /* error relative to the same computation in C */
    double worst;
    bool failed;
} caller;

/* One row in plain C, in double precision. */
static void expected_row(const float *x, double *y) {
    double greatest = -INFINITY, sum = 0;
    for (int o = 0; o < FEATURES; o++) {
        y[o] = 0;
        for (int i = 0; i < FEATURES; i++) y[o] += (double)x[i] * (double)w[i][o];
        greatest = fmax(greatest, y[o]);
    }
    for (int o = 0; o < FEATURES; o++) sum += y[o] = exp(y[o] - greatest);
    for (int o = 0; o < FEATURES; o++) y[o] /= sum;
}

static void *call(void *argument) {
    caller *c = argument;
    const DLDevice cpu = {kDLCPU, 0};
    const DLDataType f32 = {kDLFloat, 32, 1};
    float x[LONGEST][FEATURES], y[LONGEST][FEATURES], total[FEATURES] = {0};
    double row[FEATURES], expected_total[FEATURES] = {0};
    for (int i = 0; i < CALLS && !c->failed; i++) {
        int64_t n = 1 + (i * 7 + c->number * 13) % LONGEST;
        for (int64_t r = 0; r < n; r++)
            for (int k = 0; k < FEATURES; k++)
                x[r][k] = (float)((r * 31 + k * 17 + i * 5 + c->number) % 29) / 29 - 0.5f;
        DLTensor tx = {.data = x, .device = cpu, .dtype = f32, .ndim = 2, .shape = (int64_t[]){n, FEATURES}};
        DLTensor ty = {.data = y, .device = cpu, .dtype = f32, .ndim = 2, .shape = (int64_t[]){n, FEATURES}};
        DLTensor state = {.data = total, .device = cpu, .dtype = f32, .ndim = 1, .shape = (int64_t[]){FEATURES}};
        dlc_output_slot outputs[] = {{&ty, NULL}, {&state, NULL}};
        c->failed = dlc_run(c->program, NULL, (const DLTensor *const[]){&tx, &state}, 2, outputs, 2) != DLC_OK;
        if (c->failed)
            fprintf(stderr, "caller %d: %s\n", c->number, dlc_error_message(c->context)); /* this thread's message */
        for (int64_t r = 0; r < n; r++) {
            expected_row(x[r], row);
            for (int k = 0; k < FEATURES; k++) {
                c->worst = fmax(c->worst, fabs((double)y[r][k] - row[k]));
                expected_total[k] += row[k];
            }
        }
    }
    for (int k = 0; k < FEATURES; k++)
        c->worst = fmax(c->worst, fabs((double)total[k] - expected_total[k]) / fmax(1, expected_total[k]));
    return NULL;
}

int main(void) {
    static pool p = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    caller callers[CALLERS] = {0};
    dlc_context *context = NULL;
    dlc_program *program = NULL;
    for (int i = 0; i < FEATURES; i++)
        for (int o = 0; o < FEATURES; o++) w[i][o] = (float)((i * 7 + o * 11) % 23) / 23 - 0.5f;
    for (int i = 0; i < HELPERS; i++) pthread_create(&p.thread[i], NULL, helper, &p);

    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.parallel_for = parallel_for;
    options.parallel_user = &p;
    options.parallel_width = 1 + HELPERS;
    bool good = dlc_context_create(&options, &context) == DLC_OK && build(context, &program) == DLC_OK;

    double worst = 0;
    for (int i = 0; good && i < CALLERS; i++) {
        callers[i].number = i, callers[i].context = context, callers[i].program = program;
        pthread_create(&callers[i].thread, NULL, call, &callers[i]);
    }
    for (int i = 0; i < CALLERS && callers[i].program; i++) {
        pthread_join(callers[i].thread, NULL);
        good = good && !callers[i].failed;
        worst = fmax(worst, callers[i].worst);
    }
    dlc_statistics s = DLC_STATISTICS_INIT;
    if (context) dlc_context_statistics(context, &s);
    printf("%d threads, %llu runs of %d shapes: %llu kernels compiled; largest error %.1e\n", CALLERS,
           (unsigned long long)s.runs, LONGEST, (unsigned long long)s.kernel_builds, worst);

    dlc_program_destroy(program);
    dlc_context_destroy(context);
    pthread_mutex_lock(&p.mutex);
    p.stop = true;
    pthread_cond_broadcast(&p.changed);
    pthread_mutex_unlock(&p.mutex);
    for (int i = 0; i < HELPERS; i++) pthread_join(p.thread[i], NULL);
    return !good || worst > 1e-4;
}
