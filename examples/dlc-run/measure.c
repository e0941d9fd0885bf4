/* Times: of runs one after the other, by kernels, by sizes, and of threads that share a runner. */
#include "dlc-run.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool run_once(const session *s, const inputs *in, outputs *out) {
    *out = (outputs){0};
    return dlc_onnx_run(s->runner, NULL, in->given, in->count, out->slot, s->output_count) == DLC_OK ||
           fail_by_context(s, "");
}

/* ---- samples ------------------------------------------------------------------------------------------------------------ */

/* Seconds of runs; of them, while a profile is taken, in kernels. */
typedef struct samples {
    double *second, kernels;
    size_t count, room;
} samples;

static bool add_sample(samples *to, double seconds) {
    if (to->count == to->room) {
        double *more = realloc(to->second, (to->room = 2 * to->room + 1024) * sizeof *more);
        if (!more) return false;
        to->second = more;
    }
    to->second[to->count++] = seconds;
    return true;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted samples: the least that at least this part of them does not exceed. */
static double quantile(const samples *of, double part) {
    const double place = ceil(part * (double)of->count);
    return of->second[place < 1 ? 0 : (size_t)place - 1];
}

static void sort_samples(samples *of) {
    qsort(of->second, of->count, sizeof *of->second, by_value);
}

/* ---- runs one after the other ------------------------------------------------------------------------------------------- */

/* A run whose time counts: into the outputs of the run before, where these fit, as a host in a loop would do. */
static bool run_again(const session *s, const inputs *in, outputs *kept, bool *reuses, double *seconds) {
    for (;;) {
        outputs out = {0};
        for (int i = 0; *reuses && i < s->output_count; i++)
            if (kept->slot[i].managed) out.slot[i].tensor = &kept->slot[i].managed->dl_tensor;
        const double begin = now();
        const dlc_status status = dlc_onnx_run(s->runner, NULL, in->given, in->count, out.slot, s->output_count);
        *seconds = now() - begin;
        free_outputs(&out);
        if (status == DLC_OK) return true;
        if (status != DLC_INVALID_ARGUMENT || !*reuses) return false;
        *reuses = false; /* sizes that depend on data, or a state that grows */
    }
}

/* By all runs so far, while profiles are taken. */
static double seconds_in_kernels(const session *s) {
    dlc_statistics statistics = DLC_STATISTICS_INIT;
    dlc_context_statistics(s->context, &statistics);
    return 1e-9 * (double)statistics.run_ns;
}

/* For that long, and at least `least` times. */
static bool run_for(const session *s, const inputs *in, double seconds, size_t least, samples *times) {
    outputs kept = {0};
    bool reuses = true,
         good = dlc_onnx_run(s->runner, NULL, in->given, in->count, kept.slot, s->output_count) == DLC_OK;
    const double begin = now(), before = seconds_in_kernels(s);
    while (good && (times->count < least || now() - begin < seconds)) {
        double taken;
        good = run_again(s, in, &kept, &reuses, &taken) && add_sample(times, taken);
    }
    if (!good) fail_by_context(s, "timed run");
    times->kernels = seconds_in_kernels(s) - before;
    free_outputs(&kept);
    return good;
}

bool measure_time(const session *s, report *r, const inputs *in) {
    samples times = {0};
    const bool good = run_for(s, in, s->o->seconds, 3, &times);
    if (good) {
        sort_samples(&times);
        const double least = times.second[0], median = quantile(&times, 0.5), high = quantile(&times, 0.99);
        say(r, "time: least %.3f ms, median %.3f ms, p99 %.3f ms, of %zu runs\n", 1e3 * least, 1e3 * median, 1e3 * high,
            times.count);
        json_open(r, "time", "{");
        json_number(r, "least_ms", 1e3 * least), json_number(r, "median_ms", 1e3 * median);
        json_number(r, "p99_ms", 1e3 * high), json_whole(r, "runs", (int64_t)times.count);
        json_close(r, "}");
    }
    free(times.second);
    return good;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------ */

/* Shapes of the program's inputs: the model's inputs, without those whose elements the import took as constants. */
dlc_status dump_stage(const session *s, const inputs *in, dlc_program *program, const char *stage, char **text) {
    const int64_t *shapes[PORTS_MAX];
    int ranks[PORTS_MAX];
    const int count = dlc_program_input_count(program);
    for (int p = 0; p < count; p++)
        for (int i = 0; i < in->count; i++) {
            if (strcmp(port_of(s, DLC_ONNX_INPUT, i).name, dlc_program_input_name(program, p)) != 0) continue;
            shapes[p] = in->tensor[i]->dl_tensor.shape, ranks[p] = in->tensor[i]->dl_tensor.ndim;
        }
    return dlc_program_dump(program, stage, shapes, ranks, count, text);
}

static bool profile(const session *s, const inputs *in, samples *times, char **text) {
    dlc_program *program;
    if (dlc_onnx_runner_program(s->runner, in->given, in->count, &program) != DLC_OK)
        return fail_by_context(s, "profile");
    dlc_program_profile(program, 1);
    bool good = run_for(s, in, s->o->seconds, 10, times);
    /* The runs may have ended the import that the program belonged to. */
    good = good && (dlc_onnx_runner_program(s->runner, in->given, in->count, &program) == DLC_OK ||
                    fail_by_context(s, "profile"));
    good = good && (dump_stage(s, in, program, "profile", text) == DLC_OK || fail_by_context(s, "profile"));
    if (good) dlc_program_profile(program, 0);
    return good;
}

/* What the profile's kernels leave of the runs that it is of: calls, checks, copies, and the clock, which is read at both ends of a kernel. */
static void say_the_rest(report *r, const samples *times) {
    double run = 0;
    for (size_t i = 0; i < times->count; i++) run += times->second[i] / (double)times->count;
    const double kernels = times->kernels / (double)times->count, rest = run - kernels;
    say(r, "a run, mean: %.3f us, kernels %.3f us (%.1f %%), beside kernels %.3f us (%.1f %%)\n", 1e6 * run,
        1e6 * kernels, 100 * kernels / run, 1e6 * rest, 100 * rest / run);
    json_open(r, "profiled_run", "{");
    json_number(r, "mean_us", 1e6 * run), json_number(r, "kernels_us", 1e6 * kernels);
    json_number(r, "beside_kernels_us", 1e6 * rest);
    json_close(r, "}");
}

bool measure_profile(const session *s, report *r, const inputs *in) {
    char *text = NULL;
    samples times = {0};
    for (int i = 0; i < in->count; i++)
        if (!in->tensor[i])
            return fail(s, "--profile needs the sizes of state %s: say --shape %s=SIZES",
                        port_of(s, DLC_ONNX_INPUT, i).name, port_of(s, DLC_ONNX_INPUT, i).name);
    const bool good = profile(s, in, &times, &text);
    if (good) say(r, "profile:\n%s", text), json_string(r, "profile", text), say_the_rest(r, &times);
    if (text) dlc_text_free(s->context, text);
    free(times.second);
    return good;
}

/* ---- threads that share the runner ---------------------------------------------------------------------------------------- */

typedef struct client {
    const session *s;
    const inputs *in;
    double seconds;
    samples times;
    pthread_t thread;
    bool good;
} client;

static void *run_client(void *argument) {
    client *c = argument;
    c->good = run_for(c->s, c->in, c->seconds, 1, &c->times);
    return NULL;
}

/* The times of all, sorted. False: one of them failed. */
static bool join_clients(const session *s, client *clients, int started, samples *all) {
    bool good = started == s->o->clients || fail(s, "--clients: a thread could not be started");
    for (int i = 0; i < started; i++) {
        pthread_join(clients[i].thread, NULL);
        good = good && clients[i].good;
        for (size_t k = 0; good && k < clients[i].times.count; k++)
            good = add_sample(all, clients[i].times.second[k]) || fail(s, "--clients: no memory");
        free(clients[i].times.second);
    }
    if (good) sort_samples(all);
    return good;
}

static void tell_clients(const session *s, report *r, const samples *all, double seconds) {
    const double median = quantile(all, 0.5), high = quantile(all, 0.99), rate = (double)all->count / seconds;
    say(r, "clients: %d threads, p50 %.3f ms, p99 %.3f ms, %.1f runs/s\n", s->o->clients, 1e3 * median, 1e3 * high,
        rate);
    json_open(r, "clients", "{");
    json_whole(r, "threads", s->o->clients), json_whole(r, "runs", (int64_t)all->count);
    json_number(r, "p50_ms", 1e3 * median), json_number(r, "p99_ms", 1e3 * high), json_number(r, "runs_per_s", rate);
    json_close(r, "}");
}

bool measure_clients(const session *s, report *r, const inputs *in) {
    client *clients = calloc((size_t)s->o->clients, sizeof *clients);
    samples all = {0};
    int started = 0;
    if (!clients) return fail(s, "--clients: no memory");
    const double begin = now();
    for (; started < s->o->clients; started++) {
        client *c = &clients[started];
        *c = (client){.s = s, .in = in, .seconds = s->o->seconds > 0 ? s->o->seconds : 1};
        if (pthread_create(&c->thread, NULL, run_client, c) != 0) break;
    }
    const bool good = join_clients(s, clients, started, &all);
    if (good) tell_clients(s, r, &all, now() - begin);
    free(all.second);
    free(clients);
    return good;
}

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

static bool measure_size(const session *s, report *r, int64_t size) {
    dlc_statistics before = DLC_STATISTICS_INIT, after = DLC_STATISTICS_INIT;
    double time[2] = {0, 0};
    inputs in;
    outputs out = {0};
    if (!make_inputs(s, size, &in)) return false;
    dlc_context_statistics(s->context, &before);
    bool good = true;
    for (int turn = 0; good && turn < 2; turn++) {
        time[turn] = now();
        good = run_once(s, &in, &out);
        time[turn] = 1e3 * (now() - time[turn]);
        free_outputs(&out);
    }
    dlc_context_statistics(s->context, &after);
    free_inputs(&in);
    if (!good) return false;
    const int64_t plans = (int64_t)(after.plan_builds - before.plan_builds),
                  built = (int64_t)(after.kernel_builds - before.kernel_builds),
                  found = (int64_t)(after.kernel_hits - before.kernel_hits);
    say(r,
        "%s=%" PRId64 ": first answer %.3f ms, second %.3f ms, plans built %" PRId64 ", kernels built %" PRId64
        ", found %" PRId64 "\n",
        s->o->swept, size, time[0], time[1], plans, built, found);
    json_open(r, NULL, "{");
    json_whole(r, "size", size), json_number(r, "first_ms", time[0]), json_number(r, "second_ms", time[1]);
    json_whole(r, "plans_built", plans), json_whole(r, "kernels_built", built), json_whole(r, "kernels_found", found);
    json_close(r, "}");
    return true;
}

bool measure_sweep(const session *s, report *r) {
    bool good = true;
    json_string(r, "swept", s->o->swept);
    json_open(r, "sweep", "[");
    for (int64_t size = s->o->sweep_from; good && size <= s->o->sweep_to; size++) {
        good = measure_size(s, r, size);
        if (size == INT64_MAX) break;
    }
    json_close(r, "]");
    return good;
}
