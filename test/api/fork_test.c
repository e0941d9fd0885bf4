/* Hosts that fork while their threads are inside the library. What the child may do it can; what it may not is a status; nothing
 * hangs, and the parent goes on. */
#include "support.h"
#include "test/share.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ThreadSanitizer does not follow threads into a forked child. */
#ifdef __SANITIZE_THREAD__
#define SKIP_FORKS() skip()
#else
#define SKIP_FORKS() (void)0
#endif

/* AddressSanitizer's allocator (gcc 12) has locks that a child of a process with threads finds locked. */
#ifdef __SANITIZE_ADDRESS__
#define SKIP_FORKS_AMID_CALLS() skip()
#else
#define SKIP_FORKS_AMID_CALLS() SKIP_FORKS()
#endif

enum { ROWS = 6, SECONDS = 60 /* after which a child hangs */ };

static bool is_built_in(const char *target) {
    dlc_context *context = open_context(target, NULL);
    dlc_context_destroy(context);
    return context != NULL;
}

/* ---- in the child: numbers of what went wrong, as exit status */

/* DLC_OK with the right numbers, or `status`; DLC_INTERNAL: wrong numbers. */
static dlc_status run_rows(dlc_program *program, int64_t n) {
    float x[64 * 8], y[64 * 4];
    double expected[64 * 4];
    tensor tx, ty;
    fill(x, (size_t)n * 8, 1);
    dense_reference(x, n, expected);
    dlc_output_slot slot = {F32(&ty, y, n, 4), NULL};
    dlc_status status = dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, 8)}, 1, &slot, 1);
    for (int64_t i = 0; i < n * 4 && status == DLC_OK; i++)
        if (!(fabs(y[i] - expected[i]) <= 1e-5)) status = DLC_INTERNAL;
    return status;
}

static const char text[] =
    "graph { input x: f32[n, 8] w = constant f32[4] {1, 2, 3, 4} s = reduce_sum(x, axes=[1]) t = exp(s) output t }";

/* Everything that a host does with a context; `program` of the parent or NULL. */
static dlc_status use(dlc_context *context, int64_t n) {
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    char *dump = NULL;
    dlc_status status = dlc_graph_parse(context, text, sizeof text - 1, &g);
    if (status == DLC_OK) status = dlc_compile(context, g, NULL, &program);
    if (status == DLC_OK) status = dlc_prepare(program, (const int64_t *[]){SHAPE(n, 8)}, (int[]){2}, 1);
    if (status == DLC_OK)
        status = dlc_program_dump(program, "plan", (const int64_t *[]){SHAPE(n, 8)}, (int[]){2}, 1, &dump);
    dlc_text_free(context, dump);
    dlc_program_destroy(program);
    dlc_graph_destroy(g);
    statistics(context);
    return status;
}

static bool is_refusal(const dlc_context *context, dlc_status status) {
    return status == DLC_UNSUPPORTED && strstr(dlc_error_message(context), "forked");
}

/* A context of the child's own. LLVM may have been in use by another thread of the parent. */
static int use_new(const char *target, bool isolated) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    options.target = target;
    options.isolate_compiler = isolated;
    options.threads = 2;
    if (dlc_context_create(&options, &context) != DLC_OK) return 20;
    const dlc_status status = use(context, 9);
    const bool may_refuse = strcmp(target, "cpu") == 0 && !isolated;
    if (status != DLC_OK && !(may_refuse && is_refusal(context, status))) return 21;
    dlc_context_destroy(context);
    return 0;
}

typedef struct family {
    dlc_context *context;
    /* bound for ROWS rows */
    dlc_program *program;
    /* and perhaps not any more */
    bool evicts;
    dlc_call *call;
    dlc_graph *graph;
    tensor tx, ty;
    float x[ROWS * 8], y[ROWS * 4];
} family;

static int live_as_child(family *f, int way, const char *target) {
    dlc_status status = run_rows(f->program, ROWS);
    if (status != DLC_OK && !(f->evicts && is_refusal(f->context, status))) return 10;
    if (dlc_call_run(f->call, NULL) != DLC_OK) return 11; /* which keeps its plan */
    status = DLC_OK;
    switch (way) {
    case 0: status = run_rows(f->program, 7 + way); break;
    case 1: status = use(f->context, 5); break;
    case 2: return use_new(target, false);
    case 3: return strcmp(target, "cpu") == 0 ? use_new(target, true) : 0;
    case 4: status = use(f->context, 5), status = use(f->context, 6); break;
    default: break;
    }
    if (status != DLC_OK && !is_refusal(f->context, status)) return 12;
    dlc_call_destroy(f->call);
    dlc_graph_destroy(f->graph);
    dlc_program_destroy(f->program);
    dlc_context_destroy(f->context);
    return run_rows(NULL, 1) == DLC_INVALID_ARGUMENT ? 0 : 13;
}

static void fork_and_wait(family *f, int way, const char *target) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        _exit(live_as_child(f, way, target));
    }
    int status;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        failed("%s, way %d: the child ended with %x (signal %d: it hung)", target, way, (unsigned)status, SIGALRM);
}

static void begin(family *f, const char *target, const dlc_context_options *options) {
    f->context = open_context(target, options);
    f->evicts = options && options->plan_cache_entries > 0;
    f->program = dense_program(f->context, "n");
    fill(f->x, ROWS * 8, 1);
    const DLTensor *in = F32(&f->tx, f->x, ROWS, 8);
    DLTensor *out = F32(&f->ty, f->y, ROWS, 4);
    OK(f->context, dlc_call_create(f->program, &in, 1, &out, 1, &f->call));
    OK(f->context, dlc_graph_create(f->context, &f->graph));
}

static void end(family *f) {
    CHECK(run_rows(f->program, ROWS) == DLC_OK && run_rows(f->program, 13) == DLC_OK); /* the parent is as it was */
    dlc_call_destroy(f->call);
    dlc_graph_destroy(f->graph);
    dlc_program_destroy(f->program);
    dlc_context_destroy(f->context);
}

/* ---- threads of the parent */

typedef struct busy {
    family *family;
    uint32_t seed;
    const atomic_bool *stop;
    atomic_int *rounds;
} busy;

static void build_and_destroy(void *argument) {
    busy *b = argument;
    while (!atomic_load(b->stop)) {
        b->seed = b->seed * 1664525u + 1013904223u;
        CHECK(use(b->family->context, 1 + (b->seed >> 20) % 40) == DLC_OK);
        CHECK(run_rows(b->family->program, 1 + (b->seed >> 12) % 40) == DLC_OK);
        atomic_fetch_add(b->rounds, 1);
    }
}

static void run_bound(void *argument) {
    busy *b = argument;
    volatile int never = 0;
    dlc_run_options options = DLC_RUN_OPTIONS_INIT;
    options.cancel = &never;
    while (!atomic_load(b->stop)) {
        CHECK(run_rows(b->family->program, ROWS) == DLC_OK);
        CHECK(dlc_call_run(b->family->call, b->seed & 1 ? &options : NULL) == DLC_OK);
        b->seed++;
        atomic_fetch_add(b->rounds, 1);
    }
}

static void fork_amid(const char *target, const dlc_context_options *options, int forks) {
    family f;
    enum { BUSY = 3 };
    thread threads[BUSY];
    busy work[BUSY];
    atomic_bool stop = false;
    atomic_int rounds = 0;
    begin(&f, target, options);
    for (int i = 0; i < BUSY; i++) {
        work[i] = (busy){&f, (uint32_t)i + 1, &stop, &rounds};
        start_thread(&threads[i], i ? build_and_destroy : run_bound, &work[i]);
    }
    uint32_t seed = 1;
    for (int i = 0; i < forks; i++) {
        seed = seed * 1664525u + 1013904223u;
        usleep(seed >> 21); /* up to two milliseconds: anywhere in what they do */
        fork_and_wait(&f, i % 6, target);
    }
    atomic_store(&stop, true);
    join_threads(threads, BUSY);
    CHECK(atomic_load(&rounds) > 0);
    end(&f);
}

static void test_amid_calls(void **state) {
    (void)state;
    SKIP_FORKS_AMID_CALLS();
    for (int t = 0; t < 2; t++) {
        if (!is_built_in(all_targets[t])) continue;
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.cache_bytes = 1 << 16; /* eviction, too */
        options.plan_cache_entries = 4;
        fork_amid(all_targets[t], &options, 150);
        options.threads = options.compile_threads = 2;
        options.background_compile = true;
        fork_amid(all_targets[t], &options, 100);
        options.isolate_compiler = strcmp(all_targets[t], "cpu") == 0;
        if (options.isolate_compiler) fork_amid(all_targets[t], &options, 60);
    }
}

/* ---- refused for certain: a thread is in a callback of its build, for as long as the host wants */

typedef struct gate {
    atomic_bool reached, open;
    dlc_program *program;
    dlc_status prepared;
} gate;

static void wait_in_build(void *user, const char *stage, int done, int total) {
    gate *g = user;
    (void)stage, (void)done, (void)total;
    atomic_store(&g->reached, true);
    while (!atomic_load(&g->open)) usleep(100);
}

static void prepare_there(void *argument) {
    gate *g = argument;
    g->prepared = dlc_prepare(g->program, (const int64_t *[]){SHAPE(3, 8)}, (int[]){2}, 1);
}

static int refused_child(family *f, dlc_program *half_built, dlc_event *event, const counter *memory) {
    if (run_rows(f->program, ROWS) != DLC_OK || dlc_call_run(f->call, NULL) != DLC_OK) return 30;
    if (!is_refusal(f->context, run_rows(f->program, ROWS + 1))) return 31;
    dlc_graph *g;
    if (!is_refusal(f->context, dlc_graph_create(f->context, &g)) || g) return 32;
    if (!is_refusal(f->context, dlc_graph_parse(f->context, text, sizeof text - 1, &g)) || g) return 33;
    if (!is_refusal(f->context, dlc_prepare(half_built, (const int64_t *[]){SHAPE(3, 8)}, (int[]){2}, 1))) return 34;
    if (statistics(f->context).runs) return 35; /* nothing is told */
    if (dlc_subgraph(f->graph) || !is_refusal(f->context, dlc_graph_status(f->graph))) return 38;
    const int64_t blocks = atomic_load(&memory->blocks);
    dlc_event_destroy(event);
    dlc_graph_destroy(f->graph);
    dlc_call_destroy(f->call);
    dlc_program_destroy(half_built);
    dlc_program_destroy(f->program);
    dlc_context_destroy(f->context);
    if (atomic_load(&memory->blocks) != blocks) return 39; /* nothing is destroyed */
    if (use_new("interp", false)) return 36;
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(is_refusal(f->context, use(f->context, 2)) ? 0 : 1);
    int status;
    return waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 37;
}

static void test_refused(void **state) {
    (void)state;
    SKIP_FORKS();
    for (int t = 0; t < 2; t++) {
        if (!is_built_in(all_targets[t])) continue;
        family f;
        gate g = {.reached = false};
        counter memory;
        dlc_allocator allocator = counting(&memory);
        dlc_context_options counted = DLC_CONTEXT_OPTIONS_INIT;
        counted.allocator = &allocator;
        begin(&f, all_targets[t], &counted);
        dlc_event *event;
        dlc_run_options early = DLC_RUN_OPTIONS_INIT;
        early.event = &event;
        dlc_output_slot slot = {&f.ty.dl, NULL};
        OK(f.context, dlc_run(f.program, &early, (const DLTensor *[]){&f.tx.dl}, 1, &slot, 1));
        dlc_graph *graph;
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.progress = wait_in_build;
        options.progress_user = &g;
        OK(f.context, dlc_graph_parse(f.context, text, sizeof text - 1, &graph));
        OK(f.context, dlc_compile(f.context, graph, &options, &g.program));
        dlc_graph_destroy(graph);
        thread other;
        start_thread(&other, prepare_there, &g);
        while (!atomic_load(&g.reached)) usleep(100);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            alarm(SECONDS);
            _exit(refused_child(&f, g.program, event, &memory));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        atomic_store(&g.open, true);
        join_threads(&other, 1);
        assert_int_equal(status, 0);
        assert_int_equal(g.prepared, DLC_OK);
        dlc_event_destroy(event);
        dlc_program_destroy(g.program);
        end(&f);
    }
}

/* ---- results of the library's: their memory is kept under a lock that is held for some instructions, also in runs of bound shapes */

static void make_results(void *argument) {
    const busy *b = argument;
    float x[ROWS * 8] = {0};
    tensor tx;
    const DLTensor *in = F32(&tx, x, ROWS, 8);
    while (!atomic_load(b->stop)) {
        dlc_output_slot slot = {NULL, NULL};
        CHECK(dlc_run(b->family->program, NULL, &in, 1, &slot, 1) == DLC_OK);
        slot.managed->deleter(slot.managed);
    }
}

static void test_amid_results(void **state) {
    (void)state;
    SKIP_FORKS_AMID_CALLS();
    enum { BUSY = 2 };
    const int forks = test_is_short() ? 500 : 1500;
    family f;
    thread threads[BUSY];
    atomic_bool stop = false;
    busy work = {&f, 0, &stop, NULL};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.default_float_modes = true;
    begin(&f, "interp", &options);
    for (int i = 0; i < BUSY; i++) start_thread(&threads[i], make_results, &work);
    for (int i = 0; i < forks; i++) fork_and_wait(&f, 5, "interp");
    atomic_store(&stop, true);
    join_threads(threads, BUSY);
    end(&f);
}

/* ---- forks from a callback, of the only thread that is inside: the child may use everything, and the call goes on in the parent */

typedef struct brood {
    family *family;
    int children;
} brood;

static void fork_in_build(void *user, const char *stage, int done, int total) {
    brood *b = user;
    (void)stage, (void)done, (void)total;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        dlc_graph *g;
        if (run_rows(b->family->program, ROWS) != DLC_OK) _exit(40);
        if (dlc_graph_parse(b->family->context, text, sizeof text - 1, &g) != DLC_OK) _exit(41);
        dlc_graph_destroy(g);
        _exit(use_new("interp", false));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    b->children++;
}

static void test_in_callback(void **state) {
    (void)state;
    SKIP_FORKS();
    for (int t = 0; t < 2; t++) {
        if (!is_built_in(all_targets[t])) continue;
        family f;
        begin(&f, all_targets[t], NULL);
        brood b = {&f, 0};
        dlc_graph *graph;
        dlc_program *program;
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.progress = fork_in_build;
        options.progress_user = &b;
        OK(f.context, dlc_graph_parse(f.context, text, sizeof text - 1, &graph));
        OK(f.context, dlc_compile(f.context, graph, &options, &program));
        dlc_graph_destroy(graph);
        OK(f.context, dlc_prepare(program, (const int64_t *[]){SHAPE(3, 8)}, (int[]){2}, 1));
        assert_true(b.children >= 2);
        dlc_program_destroy(program);
        end(&f);
    }
}

/* A child of a child, of one thread each, is no different. */
static void test_generations(void **state) {
    (void)state;
    SKIP_FORKS();
    family f;
    begin(&f, "interp", NULL);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        for (int generation = 0; generation < 3; generation++) {
            if (use(f.context, 3 + generation) != DLC_OK || run_rows(f.program, 2 + generation) != DLC_OK) _exit(50);
            const pid_t next = fork();
            if (next == 0) continue;
            int status;
            _exit(waitpid(next, &status, 0) == next && status == 0 ? 0 : 51);
        }
        dlc_call_destroy(f.call);
        dlc_graph_destroy(f.graph);
        dlc_program_destroy(f.program);
        dlc_context_destroy(f.context);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    end(&f);
}

/* The parent and the child are both process 1, each in a PID namespace of its own. */
static int fork_as_one(void) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    family f;
    if (getpid() != 1) return 60;
    options.background_compile = true;
    begin(&f, "interp", &options);
    if (unshare(CLONE_NEWPID) != 0) return 61;
    const pid_t child = fork();
    if (child == 0) {
        if (getpid() != 1 || use(f.context, 3) != DLC_OK) _exit(62);
        dlc_call_destroy(f.call);
        dlc_graph_destroy(f.graph);
        dlc_program_destroy(f.program);
        dlc_context_destroy(f.context); /* the background thread is the parent's */
        _exit(0);
    }
    int status = -1;
    for (int i = 0; i < 100 * SECONDS && waitpid(child, &status, WNOHANG) == 0; i++) usleep(10000);
    end(&f);
    return status ? 63 : 0; /* process 1's end ends all of its namespace */
}

static void test_same_number(void **state) {
    (void)state;
    SKIP_FORKS();
    fflush(NULL);
    pid_t user = fork(), child = 0;
    int status;
    if (user == 0) {
        if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(77);
        if ((child = fork()) == 0) _exit(fork_as_one());
        _exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 64);
    }
    assert_int_equal(waitpid(user, &status, 0), user);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip(); /* the system allows no namespaces */
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_in_callback),  cmocka_unit_test(test_generations),
        cmocka_unit_test(test_amid_calls), cmocka_unit_test(test_amid_results), cmocka_unit_test(test_same_number),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
