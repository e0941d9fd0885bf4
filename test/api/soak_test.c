/* Soak: shapes that no program has seen, one after the other, through caches that hold some of them. What a process keeps must not grow:
 *
 *     resident memory <= base + 1.08 * cache_bytes      at every look (in the short form 1 MB more)
 *     bytes allocated <= those at the end of the warm-up + 0.02 * cache_bytes
 *
 * where base is what was resident at the end of the warm-up beside what the cache said that it held: the library, LLVM's tables, the
 * C library's heap. The heap has holes between what is kept of one kernel and the next, which are 2 to 5 % of the cache after 50,000 shapes. Every result is compared with sums of integers that are exact in f32. DLC_SOAK: how many shapes (`make soak`: 100,000);
 * the first two courses take all of them (in `make test` a third), the others a share. */
#include "api/support.h"
#include "test/share.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1, SHAPES = 60 };
#else
enum { SANITIZED = 0, SHAPES = 1200 };
#endif
enum { SYMBOLS = 9, FIRST = 5 /* symbols of x; the others are z's */, MOST = 1 << (2 * SYMBOLS) };

typedef struct course {
    const char *name;
    /* of the shapes: one in so many */
    int share;
    /* runs of each shape */
    int visits;
    /* one symbol that is a parameter, in place of nine whose values become exact */
    bool varies;
    /* a program of its own for each shape */
    bool graphs;
    bool disk, background, isolate;
} course;

static int shapes_wanted(void) {
    const char *text = getenv("DLC_SOAK");
    int wanted = text ? atoi(text) : SHAPES;
    return wanted < 1 ? 1 : wanted < MOST ? wanted : MOST;
}

static double resident_bytes(void) {
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* ---- sum over the last axis of relu(x * z + c), x[a,b,c,d,e,1,1,1,1] and z[1,1,1,1,1,f,g,h,i] of one to four elements each way */

static dlc_program *outer_program(dlc_context *context, int constant) {
    static const char *const names[SYMBOLS] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    dlc_dim x_dims[SYMBOLS], z_dims[SYMBOLS];
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    for (int d = 0; d < SYMBOLS; d++) {
        x_dims[d] = d < FIRST ? SYMBOL(names[d]) : SIZE(1);
        z_dims[d] = d < FIRST ? SIZE(1) : SYMBOL(names[d]);
    }
    dlc_value x = dlc_input(g, "x", DLC_F32, SYMBOLS, x_dims), z = dlc_input(g, "z", DLC_F32, SYMBOLS, z_dims);
    dlc_value y = dlc_relu(dlc_add(dlc_mul(x, z), dlc_scalar(g, DLC_F32, constant)));
    dlc_output(g, "y", dlc_reduce_sum(y, 1, SHAPE(SYMBOLS - 1)));
    return compile(context, g);
}

static int small(int i) {
    return i * 7 % 23 - 11;
}

static void run_outer(dlc_context *context, dlc_program *program, int number, int constant) {
    static float x[1 << (2 * FIRST)], z[1 << (2 * (SYMBOLS - FIRST))], y[MOST / 4];
    int64_t xs[SYMBOLS], zs[SYMBOLS], ys[SYMBOLS];
    int xn = 1, zn = 1;
    uint32_t digits =
        (uint32_t)number * 40503u % MOST; /* an odd factor: each shape once, those beside each other apart */
    for (int d = 0; d < SYMBOLS; d++, digits /= 4) {
        const int64_t size = 1 + digits % 4;
        xs[d] = d < FIRST ? size : 1;
        zs[d] = d < FIRST ? 1 : size;
        ys[d] = size;
        xn *= (int)xs[d];
        zn *= (int)zs[d];
    }
    for (int i = 0; i < xn; i++) x[i] = (float)small(i + number);
    for (int i = 0; i < zn; i++) z[i] = (float)small(i + 5);
    if (number == 0) memset(y, 0, sizeof y); /* so that the base has its pages */
    tensor tx, tz, ty;
    const DLTensor *inputs[] = {&make_tensor(&tx, DLC_F32, x, SYMBOLS, xs)->dl,
                                &make_tensor(&tz, DLC_F32, z, SYMBOLS, zs)->dl};
    dlc_output_slot slot = {&make_tensor(&ty, DLC_F32, y, SYMBOLS - 1, ys)->dl, NULL};
    memset(y, 0xff, sizeof *y * (size_t)(xn * zn / (int)ys[SYMBOLS - 1]));
    OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
    const int last = (int)ys[SYMBOLS - 1], rows = zn / last;
    for (int i = 0; i < xn; i++)
        for (int r = 0; r < rows; r++) {
            int sum = 0;
            for (int k = 0; k < last; k++) {
                int product = small(i + number) * small(r * last + k + 5) + constant;
                sum += product > 0 ? product : 0;
            }
            if (y[i * rows + r] != (float)sum)
                fail_msg("shape %d: element %d is %g, expected %d", number, i * rows + r, y[i * rows + r], sum);
        }
}

/* ---- max(x[n, 3] * w[3], 0) with sums of rows: kernels for ranges of n, a plan for each */

static dlc_program *varying_program(dlc_context *context) {
    static const float w[3] = {2, -3, 5};
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    OK(context, dlc_symbol_varies(g, "n", 0, 0, 0));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3)));
    dlc_value y = dlc_relu(dlc_mul(x, dlc_constant(g, DLC_F32, 1, SHAPE(3), w)));
    dlc_output(g, "y", dlc_reduce_sum(y, 1, SHAPE(1)));
    return compile(context, g);
}

static void run_varying(dlc_context *context, dlc_program *program, int number) {
    static float x[MOST * 3], y[MOST];
    const int n = number + 1;
    if (number == 0) { /* likewise */
        for (int i = 0; i < MOST; i++) y[i] = 0;
        for (int i = 0; i < MOST * 3; i++) x[i] = (float)small(i / 3 + i % 3);
    }
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, y, n), NULL};
    y[number] = y[0] = -1;
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, 3)}, 1, &slot, 1));
    const int step = n < 256 ? 1 : n / 256; /* of a long one 256 elements, the last one among them */
    for (int i = number; i >= 0; i -= step) {
        static const int w[3] = {2, -3, 5};
        int sum = 0;
        for (int k = 0; k < 3; k++) sum += small(i + k) * w[k] > 0 ? small(i + k) * w[k] : 0;
        if (y[i] != (float)sum) fail_msg("%d rows: element %d is %g, expected %d", n, i, y[i], sum);
    }
}

/* ---- a course */

enum { BLOCK_BYTES = 4096 };

/* As the folder's limit counts them: a file takes whole blocks. */
static double folder_bytes(const char *path, int *files) {
    double sum = 0;
    DIR *folder = opendir(path);
    *files = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char name[600];
        struct stat status;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (stat(name, &status) != 0 || !S_ISREG(status.st_mode)) continue;
        sum += ceil((double)status.st_size / BLOCK_BYTES) * BLOCK_BYTES;
        ++*files;
    }
    if (folder) closedir(folder);
    return sum;
}

/* Bytes of malloc that are in use, 0 if the C library does not say. */
static double allocated_bytes(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    const struct mallinfo2 heap = mallinfo2();
    return (double)heap.uordblks + (double)heap.hblkhd;
#else
    return 0;
#endif
}

static void settle(dlc_context *context) {
    uint64_t before = 0, done;
    for (int quiet = 0; quiet < 20;
         before = done) { /* jobs of plans that were evicted meanwhile are dropped without a word */
        const dlc_statistics s = statistics(context);
        done = s.tier_specialised + s.tier_failures;
        quiet = done == before ? quiet + 1 : 0;
        usleep(5000);
    }
}

static void run_course(const course *c) {
    const int shapes = (shapes_wanted() + c->share - 1) / c->share, warm = shapes / 2 < 4000 ? shapes / 2 : 4000;
    const bool is_long = shapes_wanted() >= 20000;
    const double budget = is_long ? 16 << 20 : 4 << 20; /* full, or nearly, at the end of the warm-up */
    const double most_allowed = 1.08 * budget + (is_long ? 0 : 1e6 /* the C library's heap still settles */);
    const double under_way = c->background ? 1 << 17 : 0; /* of the build behind, which is not among the plans yet */
    const int lag = is_long ? 1800 : 450;                 /* shapes until one is no longer in memory, but on disk */
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    char folder[] = "/tmp/dlc-soak-XXXXXX", command[64];
    options.cache_bytes = (size_t)budget;
    options.background_compile = c->background;
    options.isolate_compiler = c->isolate;
    if (c->disk) {
        options.cache_directory = mkdtemp(folder);
        /* a file takes a block here: what is `lag` shapes old stays when an eighth is freed, older ones go */
        options.cache_directory_bytes = (size_t)lag * BLOCK_BYTES * 5 / 4;
    }
    dlc_context *context = open_context("cpu", &options);
    dlc_program *program = c->varies ? varying_program(context) : outer_program(context, 3);
    double base = 0, most = 0, allocated = 0;
    int looks = 0;
    for (int i = 0; i < shapes; i++) {
        const int constant = c->graphs ? i % 19 - 9 : 3;
        dlc_program *own = c->graphs ? outer_program(context, constant) : program;
        for (int v = 0; v < c->visits; v++) {
            if (c->varies)
                run_varying(context, own, i);
            else
                run_outer(context, own, i, constant);
            if (v == 0 && c->background && i % 8 == 0) settle(context);
        }
        if (c->disk && i >= lag) run_outer(context, own, i - lag, constant);
        if (c->graphs) dlc_program_destroy(own);
        if (i < warm || (i - warm) % 16) continue;
        const dlc_statistics s = statistics(context);
        const double resident = resident_bytes();
        if (looks++ == 0) {
            base = resident - (double)s.cache_bytes - (double)s.arena_bytes;
            allocated = allocated_bytes();
        }
        if (resident - base > most) most = resident - base;
        assert_true((double)s.cache_bytes <= budget + under_way);
        if (!SANITIZED && resident > base + most_allowed)
            fail_msg(
                "%s: after %d shapes %.2f MB are resident beyond the base of %.2f MB; the cache holds %.2f MB of %.2f",
                c->name, i + 1, (resident - base) / 1e6, base / 1e6, (double)s.cache_bytes / 1e6, budget / 1e6);
    }
    if (c->background) settle(context);
    /* on a machine with much else to do, a build may have been under way all the time that settle waits */
    for (int i = 0; i < 600 && is_long && c->background && allocated_bytes() > allocated + 0.02 * budget; i++)
        usleep(50000);
    if (is_long && !SANITIZED && allocated_bytes() > allocated + 0.02 * budget + under_way)
        fail_msg("%s: %.2f MB are allocated, %.2f after the warm-up", c->name, allocated_bytes() / 1e6,
                 allocated / 1e6);
    const dlc_statistics s = statistics(context);
    print_message(
        "%-10s %6d shapes: %7llu kernels built, %7llu evicted, %6llu plans evicted; base %.1f MB, most beyond it "
        "%.2f MB = %.1f %% of the budget; the cache holds %.2f MB\n",
        c->name, shapes, (unsigned long long)s.kernel_builds, (unsigned long long)s.kernel_evictions,
        (unsigned long long)s.plan_evictions, base / 1e6, most / 1e6, 100 * most / budget, (double)s.cache_bytes / 1e6);
    if (c->disk) {
        int files;
        const double bytes = folder_bytes(folder, &files);
        print_message("           on disk %d files of %.2f MB; %llu hits, %llu written\n", files, bytes / 1e6,
                      (unsigned long long)s.disk_hits, (unsigned long long)s.disk_writes);
        /* a sixteenth is written between two looks at the folder */
        assert_true(bytes <= 1.125 * (double)options.cache_directory_bytes);
        assert_true(SANITIZED || s.disk_hits > 0);
        /* of builds behind, those of evicted plans are dropped: on a busy machine fewer than there are shapes are written */
        if (s.disk_writes * BLOCK_BYTES > options.cache_directory_bytes) assert_true(s.disk_writes > (uint64_t)files);
        assert_int_equal(s.disk_errors, 0);
    }
    if (c->background) {
        print_message("           %llu generic plans, %llu replaced\n", (unsigned long long)s.tier_generic,
                      (unsigned long long)s.tier_specialised);
        assert_true(s.tier_specialised > 0 && s.tier_failures == 0);
    }
    assert_int_equal(s.interpreted_regions, 0);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    if (c->disk) {
        snprintf(command, sizeof command, "rm -rf %s", folder);
        assert_int_equal(system(command), 0);
    }
}

static bool has_target(const char *target) {
    dlc_context *context = open_context(target, NULL);
    dlc_context_destroy(context);
    return context != NULL;
}

/* Kernels of the interpreter lie in the C heap, which keeps what it is given back. */
static void soak(const course *c) {
    if (!has_target("cpu")) skip();
#ifdef __GLIBC__
    malloc_trim(0); /* what an earlier course left is not to hide what this one takes */
#endif
    run_course(c);
}

static void test_exact(void **state) {
    (void)state;
    soak(&(course){.name = "exact", .share = test_is_short() ? 3 : 1, .visits = 1});
}
static void test_varying(void **state) {
    (void)state;
    soak(&(course){.name = "varying", .share = test_is_short() ? 3 : 1, .visits = 1, .varies = true});
}
static void test_background(void **state) {
    (void)state;
    soak(&(course){.name = "background", .share = 5, .visits = 2, .background = true});
}
static void test_disk(void **state) {
    (void)state;
    soak(&(course){.name = "disk", .share = 2, .visits = 1, .disk = true});
}
static void test_graphs(void **state) {
    (void)state;
    soak(&(course){.name = "graphs", .share = 5, .visits = 1, .graphs = true});
}
static void test_isolated(void **state) {
    (void)state;
    soak(&(course){.name = "isolated", .share = 10, .visits = 1, .isolate = true});
}
static void test_together(void **state) {
    (void)state;
    soak(
        &(course){.name = "together", .share = test_is_short() ? 4 : 2, .visits = 1, .background = true, .disk = true});
}

/* With an argument: the courses whose names it matches (`soak_test test_disk`). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),    cmocka_unit_test(test_varying), cmocka_unit_test(test_background),
        cmocka_unit_test(test_disk),     cmocka_unit_test(test_graphs),  cmocka_unit_test(test_isolated),
        cmocka_unit_test(test_together),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("soak", tests, NULL, NULL);
}
