/* Models with mistakes, opened, imported and run on interp within limits of memory and time (any_model.h): ONNX's test cases, models of
 * random graphs (test/fuzz), and models of DLC_MODELS, a folder, each with one to four mutations (mutate.h). Whatever they are, each call
 * gives a status; afterwards the context runs a model as before, and no memory is left.
 *
 *   mutated_test [COUNT [FIRST]]     mutants FIRST, FIRST + 1, ... of DLC_SEED
 *   mutated_test FILE                that model, as it is
 *
 * Mutants run in children, a batch in each: one that crashes or does not end is written to build/mutated, and the next batch begins
 * behind it. */
#include "fuzz/generate.h"
#include "onnx/any_model.h"
#include "test/share.h"

#include <ftw.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

enum {
    BATCH = 250,
    FILES_MAX = 4096,
    LARGEST = 32 << 20,
    SMALL = 64 << 10,
    CPU_SECONDS = 60,
    FAILURES_MAX = 10,
    STATUSES = 16
};

/* Shared with the child. */
typedef struct shared {
    uint64_t number;
    uint64_t statuses[3][STATUSES];
    double slowest;
    /* the mutant's bytes */
    size_t size;
    char reason[256];
    char bytes[LARGEST];
} shared;

static shared *s;
static mutate_fields fields;
static char *paths[FILES_MAX];
static int path_count;
static off_t largest = SMALL;
static const char *const steps[] = {"open", "import", "run"};

/* ---- models */

static int note_file(const char *path, const struct stat *st, int type, struct FTW *where) {
    const size_t length = strlen(path);
    (void)where;
    if (type != FTW_F || length < 5 || strcmp(path + length - 5, ".onnx") != 0) return 0;
    if (path_count < FILES_MAX && st->st_size <= largest) paths[path_count++] = strdup(path);
    return 0;
}

static message read_file(const char *path) {
    message m = {0};
    char part[4096];
    FILE *file = fopen(path, "rb");
    for (size_t n; file && (n = fread(part, 1, sizeof part, file)) > 0;) add_bytes(&m, part, n);
    if (file) fclose(file);
    return m;
}

/* The model of a random graph; no bytes: it cannot be exported. */
static message generated(dlc_context *context, uint64_t seed, uint64_t number) {
    char refused[CASE_MESSAGE], path[64];
    message m = {0};
    dlc_graph *g = NULL;
    char *text = gen_graph(seed, number, refused);
    onnx_path(path);
    if (text && dlc_graph_parse(context, text, strlen(text), &g) == DLC_OK &&
        dlc_onnx_write(context, path, g, NULL) == DLC_OK) {
        m = read_file(path);
        unlink(path);
    }
    dlc_graph_destroy(g);
    free(text);
    return m;
}

/* Most of them of files, if there are any. */
static message mutant(dlc_context *context, uint64_t seed, uint64_t number) {
    uint64_t random = seed * 0x9e3779b97f4a7c15u + number;
    message m = {0};
    if (path_count && test_random(&random) % 4) m = read_file(paths[mutate_below(&random, (size_t)path_count)]);
    while (!m.size) m = generated(context, seed, test_random(&random) % 100000);
    int left = 4;
    do mutate_model(&m, &fields, &random);
    while (--left && test_random(&random) % 2);
    return m;
}

/* ---- in the child */

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void limit_time(int seconds) {
    const struct itimerval timer = {.it_value.tv_sec = seconds};
    setitimer(ITIMER_PROF, &timer, NULL);
}

_Noreturn static void give_up(const char *reason) {
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    _exit(1);
}

static void try_bytes(dlc_context *context, const char *bytes, size_t size, uint64_t seed) {
    const double begin = processor_seconds();
    limit_time(CPU_SECONDS);
    const any_outcome o = any_model(context, bytes, size, seed);
    limit_time(0);
    const double taken = processor_seconds() - begin;
    if (taken > s->slowest) s->slowest = taken;
    if (o.status == DLC_INTERNAL) give_up(dlc_error_message(context));
    if (o.status != DLC_OK && !dlc_error_message(context)[0]) give_up("a status without a message");
    for (int i = 0; i < 3; i++)
        if (strcmp(steps[i], o.step) == 0 && (int)o.status < STATUSES) s->statuses[i][o.status]++;
}

/* The context works as before: a model whose inputs and result are known. */
static void check_context(dlc_context *context) {
    message m = model_of(graph_of(node_of("Relu", "x", "y")));
    const any_outcome o = any_model(context, m.data, m.size, 1);
    if (o.status != DLC_OK || strcmp(o.step, "run") != 0) give_up(dlc_error_message(context));
    free(m.data);
}

static void run_batch(uint64_t seed, uint64_t end) {
    any_memory memory = {0};
    dlc_context *context = any_context(&memory), *writer = NULL;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.target = "interp";
    if (!context || dlc_context_create(&options, &writer) != DLC_OK) give_up("no context");
    for (; s->number < end; s->number++) {
        message m = mutant(writer, seed, s->number);
        s->size = m.size < LARGEST ? m.size : 0;
        memcpy(s->bytes, m.data, s->size);
        free(m.data);
        try_bytes(context, s->bytes, s->size, s->number);
        if (s->number % 50 == 0) check_context(context);
    }
    s->size = 0;
    dlc_context_destroy(context);
    if (memory.blocks) give_up("memory is left");
    dlc_context_destroy(writer);
    exit(0); /* LeakSanitizer looks for leaks */
}

/* ---- in the parent */

static bool await(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    if (!s->reason[0])
        snprintf(s->reason, sizeof s->reason, "%s (signal %d, exit %d)",
                 WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF ? "no end" : "crash",
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return false;
}

static void keep(uint64_t seed) {
    char path[128];
    mkdir("build", 0777), mkdir("build/mutated", 0777);
    snprintf(path, sizeof path, "build/mutated/seed%llu-%llu.onnx", (unsigned long long)seed,
             (unsigned long long)s->number);
    FILE *file = fopen(path, "wb");
    if (file) fwrite(s->bytes, 1, s->size, file), fclose(file);
    printf("FAILED %s: %s\n", path, s->reason);
}

static int run_file(const char *path) {
    any_memory memory = {0};
    dlc_context *context = any_context(&memory);
    message m = read_file(path);
    const any_outcome o = any_model(context, m.data, m.size, 1);
    printf("%s: %s: %s\n", o.step, dlc_status_text(o.status), dlc_error_message(context));
    free(m.data);
    dlc_context_destroy(context);
    return o.status == DLC_INTERNAL || memory.blocks;
}

static void report(uint64_t count, int failures) {
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    printf("mutated: %llu models, %d failures, %ld s of processor time, at most %.2f s for one and %ld MB\n",
           (unsigned long long)count, failures, used.ru_utime.tv_sec + used.ru_stime.tv_sec, s->slowest,
           used.ru_maxrss >> 10);
    for (int i = 0; i < 3; i++)
        for (int status = 0; status < STATUSES; status++)
            if (s->statuses[i][status])
                printf("  %s: %llu %s\n", steps[i], (unsigned long long)s->statuses[i][status],
                       dlc_status_text((dlc_status)status));
}

int main(int argc, char **argv) {
    const uint64_t seed = (uint64_t)lib_environment_integer(LIB_ENV_SEED, 1);
    const char *models = getenv("DLC_MODELS");
    if (argc > 1 && !isdigit((unsigned char)argv[1][0])) return run_file(argv[1]);
    s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) return 2;
    const uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : test_is_short() ? 150 : 500;
    s->number = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    const uint64_t end = s->number + count;
    nftw("/usr/share/libonnx-testdata/data", note_file, 16, FTW_PHYS);
    largest = LARGEST / 2;
    if (models) nftw(models, note_file, 16, 0);
    int failures = 0;
    while (s->number < end && failures < FAILURES_MAX) {
        s->reason[0] = 0;
        fflush(NULL);
        const pid_t child = fork();
        if (child < 0) return 2;
        if (child == 0) run_batch(seed, s->number + BATCH < end ? s->number + BATCH : end);
        if (await(child)) continue;
        keep(seed);
        failures++;
        s->number++;
    }
    report(count, failures);
    return failures > 0;
}
