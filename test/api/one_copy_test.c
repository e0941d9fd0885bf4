/* Memory holds one copy of a weight, in the layout that its kernels want: whatever it was made of, by the allocator. Results against sums in
 * double precision, and bit for bit against programs whose weights nobody moves. */
#include "support.h"
#include "test/share.h"

#include <dlc/files.h>
#include <unistd.h>

enum {
    IN = 640,
    OUT = 512,
    ROWS = 96,
    WHOLE = IN * OUT * 4,
    OTHERS = 320 << 10 /* a context's, a plan, code, small things */
};

typedef enum source { OWN, BORROWED, MAPPED, COPIED, PART, COMPUTED, UNPACKED, TRANSPOSED, PARSED, SOURCES } source;

/* Bytes of one copy that the allocator sees. */
static const struct {
    const char *name;
    int64_t bytes;
} sources[SOURCES] = {
    [OWN] = {"dlc_constant", WHOLE},         [BORROWED] = {"dlc_constant_borrow", WHOLE},
    [MAPPED] = {"dlc_file_constant", WHOLE}, [COPIED] = {"dlc_file_constant of packed bytes", WHOLE},
    [PART] = {"rows of a constant", WHOLE},  [COMPUTED] = {"computed once", WHOLE},
    [UNPACKED] = {"four bits", WHOLE / 4},   [TRANSPOSED] = {"transposed", WHOLE},
    [PARSED] = {"of a text", WHOLE},
};

/* Where nothing is packed, rows of a constant lie in it. */
static int64_t bytes_of(source from) {
#ifndef DLC_TARGET_cpu
    if (from == PART) return 2 * WHOLE;
#endif
    return sources[from].bytes;
}

static float weights[2 * IN][OUT], scales[OUT], inputs[ROWS][IN];
static signed char nibbles[IN * OUT / 2];
static double expected[ROWS][OUT], magnitude[ROWS][OUT];

static int number_at(int i, int j) {
    return (i * 37 + j * 11 + i * j) % 16 - 8;
}

static void fill_all(void) {
    for (int j = 0; j < OUT; j++) scales[j] = (float)(j % 7 + 1) / 256;
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < OUT; j++) {
            const int at = i * OUT + j, number = number_at(i, j);
            weights[i][j] = (float)number * scales[j];
            weights[IN + i][j] = 1;
            if (at % 2 == 0) nibbles[at / 2] = 0;
            nibbles[at / 2] = (signed char)(nibbles[at / 2] | (number & 15) << (at % 2 * 4));
        }
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < IN; i++) inputs[r][i] = (float)((r * 29 + i * 13) % 31 - 15) / 16;
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < OUT; j++)
            for (int i = 0; i < IN; i++) {
                expected[r][j] += (double)inputs[r][i] * (double)weights[i][j];
                magnitude[r][j] += fabs((double)inputs[r][i] * (double)weights[i][j]);
            }
}

/* ---- graphs */

static dlc_value file_weights(dlc_context *context, dlc_graph *g, bool packed) {
    char path[64];
    tensor w;
    dlc_file *file;
    snprintf(path, sizeof path, "/tmp/one_copy_%d.npz", (int)getpid());
    OK(context, dlc_file_write_npz(context, path, 1, (const char *[]){"w"},
                                   (const DLTensor *[]){F32(&w, weights, IN, OUT)}, packed));
    OK(context, dlc_file_open(context, path, NULL, &file));
    dlc_value value = dlc_file_constant(g, file, "w");
    dlc_file_destroy(file);
    unlink(path);
    return value;
}

/* [IN, OUT] */
static dlc_value weights_of(dlc_context *context, dlc_graph *g, source from) {
    switch (from) {
    case BORROWED: return dlc_constant_borrow(g, DLC_F32, 2, SHAPE(IN, OUT), weights);
    case MAPPED:
    case COPIED: return file_weights(context, g, from == COPIED);
    case PART:
        return dlc_slice(dlc_constant(g, DLC_F32, 2, SHAPE(2 * IN, OUT), weights), 2, DIMS(SIZE(0), SIZE(0)), 2,
                         DIMS(SIZE(IN), SIZE(OUT)));
    case COMPUTED: {
        dlc_value half = dlc_mul(dlc_constant(g, DLC_F32, 2, SHAPE(IN, OUT), weights), dlc_scalar(g, DLC_F32, 0.5));
        return dlc_add(half, half);
    }
    case UNPACKED:
        return dlc_dequantize_linear(dlc_constant(g, DLC_I4, 2, SHAPE(IN, OUT), nibbles),
                                     dlc_constant(g, DLC_F32, 1, SHAPE(OUT), scales), DLC_NONE, 1);
    case TRANSPOSED: {
        float *turned = malloc(WHOLE);
        for (int i = 0; i < IN; i++)
            for (int j = 0; j < OUT; j++) turned[j * IN + i] = weights[i][j];
        dlc_value w = dlc_constant(g, DLC_F32, 2, SHAPE(OUT, IN), turned);
        free(turned);
        return dlc_transpose(w, 2, (const int64_t[]){1, 0});
    }
    case OWN:
    case PARSED:
    case SOURCES: break;
    }
    return dlc_constant(g, DLC_F32, 2, SHAPE(IN, OUT), weights);
}

static dlc_graph *graph_with(dlc_context *context, source from) {
    dlc_graph *g, *parsed;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(IN)));
    dlc_output(g, "y", dlc_matmul(x, weights_of(context, g, from)));
    if (from != PARSED) return g;
    char *text;
    OK(context, dlc_graph_print(g, &text));
    dlc_graph_destroy(g);
    OK(context, dlc_graph_parse(context, text, strlen(text), &parsed));
    dlc_text_free(context, text);
    return parsed;
}

static dlc_status run_into(dlc_program *program, int rows, float (*y)[OUT]) {
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, y, rows, OUT), NULL};
    return dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, inputs, rows, IN)}, 1, &slot, 1);
}

static void check_rows(int rows, const float (*y)[OUT], const char *what) {
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < OUT; j++)
            if (fabs(expected[r][j] - (double)y[r][j]) > 1e-5 * magnitude[r][j] + 1e-6)
                failed("%s, %d rows: [%d, %d] is %.9g, expected %.9g", what, rows, r, j, (double)y[r][j],
                       expected[r][j]);
}

static void run_rows(dlc_context *context, dlc_program *program, int rows, const char *what) {
    float(*y)[OUT] = malloc(sizeof *y * ROWS);
    OK(context, run_into(program, rows, y));
    check_rows(rows, (const float(*)[OUT])y, what);
    free(y);
}

static void check_held(const counter *c, int64_t before, int64_t most, const char *what) {
    const int64_t held = atomic_load(&((counter *)(uintptr_t)c)->bytes) - before;
    if (held > most + OTHERS)
        failed("%s: %lld bytes are held, expected at most %lld", what, (long long)held, (long long)most);
}

/* Of targets that run in host memory: a device's constants are counted there. */
static dlc_context *open_here(counter *c) {
    dlc_context *context = open_counted("cpu", c);
    return context ? context : open_counted("interp", c);
}

/* ---- tests */

static void test_one_copy(void **state) {
    (void)state;
    for (source from = 0; from < SOURCES; from++) {
        counter c;
        dlc_context *context = open_here(&c);
        const int64_t before = atomic_load(&c.bytes);
        dlc_program *program = compile(context, graph_with(context, from));
        run_rows(context, program, 16, sources[from].name);
        const int64_t arenas = (int64_t)statistics(context).arena_bytes; /* kept for the next runs */
        check_held(&c, before, bytes_of(from) + arenas, sources[from].name);
        const int64_t told = (int64_t)statistics(context).constant_bytes;
        const int64_t beside = bytes_of(from) - sources[from].bytes; /* rows count without the rest of their constant */
        if (told > sources[from].bytes || told + beside + arenas + OTHERS < atomic_load(&c.bytes) - before)
            failed("%s: constant_bytes is %lld", sources[from].name, (long long)told);
        run_rows(context, program, 16, sources[from].name);
        run_rows(context, program, 1, sources[from].name); /* may want another layout */
        check_held(&c, before, 2 * bytes_of(from) + arenas, sources[from].name);
        dlc_program_destroy(program);
        check_held(&c, before, arenas, sources[from].name);
        assert_int_equal(statistics(context).constant_bytes, 0);
        dlc_context_destroy(context);
        assert_int_equal(atomic_load(&c.blocks), 0);
    }
}

/* A graph that the host keeps shares its bytes with programs; with its end they go. */
static void test_graph_kept(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_here(&c);
    const int64_t before = atomic_load(&c.bytes);
    dlc_graph *g = graph_with(context, OWN);
    dlc_program *program;
    char *first, *later;
    OK(context, dlc_graph_print(g, &first));
    OK(context, dlc_compile(context, g, NULL, &program));
    run_rows(context, program, 16, "graph kept");
    OK(context, dlc_graph_print(g, &later)); /* elements where they were */
    assert_string_equal(first, later);
    dlc_text_free(context, first);
    dlc_text_free(context, later);
    check_held(&c, before, 2 * WHOLE, "graph kept");
    run_rows(context, program, 1, "graph kept");
    dlc_graph_destroy(g);
    check_held(&c, before, 2 * WHOLE, "graph gone");
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(atomic_load(&c.blocks), 0);
}

/* Whatever order plans come in, and whether they are evicted: the bits are those of a program with this plan alone, which packs from bytes
 * that stay. */
static void test_other_layouts(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    static const int rows[] = {16, 1, 96, 3, 17, 64, 2, 16, 1};
    static float y[ROWS][OUT], alone[ROWS][OUT];
    for (int few = 0; few < 2; few++) {
        counter c;
        dlc_allocator allocator = counting(&c);
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.allocator = &allocator;
        options.plan_cache_entries = few ? 1 : 0;
        for (int t = 0; t < TARGETS; t++) {
            dlc_context *context = open_context(all_targets[t], &options);
            if (!context) continue;
            dlc_program *program = compile(context, graph_with(context, OWN));
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                if (t == 0 && rows[i] > 3) continue; /* the interpreter takes its time */
                dlc_program *other = compile(context, graph_with(context, BORROWED));
                OK(context, run_into(program, rows[i], y));
                OK(context, run_into(other, rows[i], alone));
                assert_memory_equal(y, alone, (size_t)rows[i] * sizeof *y);
                dlc_program_destroy(other);
            }
            dlc_program_destroy(program);
            dlc_context_destroy(context);
            assert_int_equal(atomic_load(&c.blocks), 0);
        }
    }
}

/* The weights as an output, and as the operand of a kernel that is no contraction: their row-major bytes stay, or come back. */
static void test_read_elsewhere(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    static float y[ROWS][OUT], all[IN][OUT], negated[IN][OUT];
    for (int t = 0; t < TARGETS; t++) {
        for (source from = OWN; from <= TRANSPOSED; from++) {
            if (test_is_short() && ((int)from + t) % 2) continue;
            counter c;
            dlc_context *context = open_counted(all_targets[t], &c);
            if (!context) continue;
            dlc_graph *g;
            OK(context, dlc_graph_create(context, &g));
            dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(IN))), w = weights_of(context, g, from);
            dlc_output(g, "y", dlc_matmul(x, w));
            dlc_output(g, "w", w);
            dlc_output(g, "negated", dlc_neg(w));
            dlc_program *program = compile(context, g);
            for (int rows = 1; rows <= 2; rows++) {
                tensor tx, ty, tw, tn;
                dlc_output_slot slots[] = {
                    {F32(&ty, y, rows, OUT), NULL}, {F32(&tw, all, IN, OUT), NULL}, {F32(&tn, negated, IN, OUT), NULL}};
                OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, inputs, rows, IN)}, 1, slots, 3));
                check_rows(rows, (const float(*)[OUT])y, sources[from].name);
                for (int i = 0; i < IN; i++)
                    for (int j = 0; j < OUT; j++) {
                        assert_true(all[i][j] == weights[i][j]);
                        assert_true(negated[i][j] == -weights[i][j]);
                    }
            }
            dlc_program_destroy(program);
            dlc_context_destroy(context);
            assert_int_equal(atomic_load(&c.blocks), 0);
        }
    }
}

/* Rows of a table that the shapes at hand decide, beside its use as a weight. */
static void test_parts(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    static float y[ROWS][OUT];
    for (int t = 0; t < TARGETS; t++) {
        counter c;
        dlc_context *context = open_counted(all_targets[t], &c);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(IN))), w = weights_of(context, g, OWN);
        dlc_value head = dlc_slice(w, 2, DIMS(SIZE(0), SIZE(0)), 2, DIMS(SYMBOL("n"), SIZE(OUT)));
        dlc_output(g, "y", dlc_add(dlc_matmul(x, w), head));
        dlc_program *program = compile(context, g);
        for (int rows = 1; rows <= 3; rows++) {
            OK(context, run_into(program, rows, y));
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < OUT; j++) y[r][j] -= weights[r][j];
            check_rows(rows, (const float(*)[OUT])y, "a table");
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        assert_int_equal(atomic_load(&c.blocks), 0);
    }
}

/* h = x, then twice h = (h w) s: what a loop takes from outside, a constant or computed once. */
static void test_loop(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    enum { SIZE_ = 256, BYTES = SIZE_ * SIZE_ * 4 };
    static float w[SIZE_][SIZE_], x[4][SIZE_], y[4][SIZE_];
    static double h[4][SIZE_], next[4][SIZE_];
    for (int i = 0; i < SIZE_; i++)
        for (int j = 0; j < SIZE_; j++) w[i][j] = (float)((i * 7 + j * 5) % 17 - 8) / 8;
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < SIZE_; i++) h[r][i] = x[r][i] = (float)((r + i) % 9 - 4);
    for (int step = 0; step < 2; step++) {
        for (int r = 0; r < 4; r++)
            for (int j = 0; j < SIZE_; j++) {
                next[r][j] = 0;
                for (int i = 0; i < SIZE_; i++) next[r][j] += h[r][i] * (double)w[i][j] / 64;
            }
        memcpy(h, next, sizeof h);
    }
    for (int t = 0; t < TARGETS; t++) {
        for (int computed = 0; computed < 2; computed++) {
            counter c;
            dlc_context *context = open_counted(all_targets[t], &c);
            if (!context) continue;
            const int64_t before = atomic_load(&c.bytes);
            dlc_graph *g;
            dlc_scan_options options = DLC_SCAN_OPTIONS_INIT;
            OK(context, dlc_graph_create(context, &g));
            dlc_value vx = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(4), SIZE(SIZE_)));
            dlc_value vw = dlc_constant(g, DLC_F32, 2, SHAPE(SIZE_, SIZE_), w), result;
            if (computed) vw = dlc_mul(vw, dlc_scalar(g, DLC_F32, 1. / 64));
            dlc_graph *body = dlc_subgraph(g);
            dlc_value vh = dlc_input(body, "h", DLC_F32, 2, DIMS(SIZE(4), SIZE(SIZE_))), product = dlc_matmul(vh, vw);
            dlc_output(body, "h", computed ? product : dlc_mul(product, dlc_scalar(body, DLC_F32, 1. / 64)));
            options.length_count = 1;
            options.length = DIMS(SIZE(2));
            dlc_scan_with(g, 1, &vx, body, 1, 0, &options, 1, &result);
            dlc_output(g, "y", result);
            dlc_program *program = compile(context, g);
            tensor tx, ty;
            dlc_output_slot slot = {F32(&ty, y, 4, SIZE_), NULL};
            for (int again = 0; again < 2; again++) {
                OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 4, SIZE_)}, 1, &slot, 1));
                for (int r = 0; r < 4; r++) CLOSE(y[r], h[r], SIZE_, 1e-4);
            }
            if (has_host_memory(all_targets[t])) check_held(&c, before, BYTES, "a loop's weights");
            dlc_program_destroy(program);
            dlc_context_destroy(context);
            assert_int_equal(atomic_load(&c.blocks), 0);
        }
    }
}

/* Programs that get the same bytes share what is packed, also where the first has packed and dropped them before the second comes. */
static void test_programs_share(void **state) {
    (void)state;
    for (source from = OWN; from <= BORROWED; from++) {
        counter c;
        dlc_context *context = open_here(&c);
        const int64_t before = atomic_load(&c.bytes);
        dlc_graph *g = graph_with(context, from);
        dlc_program *first, *second, *third;
        OK(context, dlc_compile(context, g, NULL, &first));
        run_rows(context, first, 16, "first");
        OK(context, dlc_compile(context, g, NULL, &second));
        OK(context, dlc_compile(context, g, NULL, &third));
        dlc_graph_destroy(g);
        run_rows(context, second, 16, "second");
        check_held(&c, before, WHOLE, "two programs");
        run_rows(context, third, 1, "third");
        check_held(&c, before, 2 * WHOLE, "three programs");
        dlc_program_destroy(third);
        check_held(&c, before, WHOLE, "two programs are left");
        dlc_program_destroy(first);
        run_rows(context, second, 17, "one program is left");
        dlc_program_destroy(second);
        check_held(&c, before, 0, "no program is left");
        dlc_context_destroy(context);
        assert_int_equal(atomic_load(&c.blocks), 0);
    }
}

/* Texts of a program whose weights lie packed, values tapped in it, and another program of the graph. */
static void test_looking_inside(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    static const char *const stages[] = {"graph", "bound", "regions", "steps", "loops", "dot", "plan"};
    for (int t = 0; t < TARGETS; t++)
        for (source from = OWN; from <= TRANSPOSED; from++) {
            if (test_is_short() && ((int)from + t) % 2) continue;
            dlc_context *context = open_context(all_targets[t], NULL);
            if (!context) continue;
            dlc_program *program = compile(context, graph_with(context, from));
            char *before, *after;
            const int64_t shape[] = {2, IN}, *shapes[] = {shape};
            OK(context, dlc_program_dump(program, "graph", NULL, NULL, 0, &before));
            run_rows(context, program, 2, "dumps");
            OK(context, dlc_program_dump(program, "graph", NULL, NULL, 0, &after));
            assert_string_equal(before, after);
            dlc_text_free(context, before);
            dlc_text_free(context, after);
            for (size_t s = 0; s < sizeof stages / sizeof *stages; s++) {
                OK(context, dlc_program_dump(program, stages[s], shapes, (int[]){2}, 1, &after));
                dlc_text_free(context, after);
            }
            run_rows(context, program, 2, "dumps");
            dlc_program_destroy(program);
            dlc_context_destroy(context);
        }
}

/* ---- refused memory: the kernels are in the cache, so that a life is short */

typedef struct refuser {
    counter all;
    /* number of the call that is refused; -1: none */
    _Atomic int64_t calls, site;
    /* calls of a life, until memory was granted */
    int64_t made;
    /* and all that follow */
    bool later;
} refuser;

static void *refuse(void *user, size_t size, size_t alignment) {
    refuser *r = user;
    const int64_t call = atomic_fetch_add(&r->calls, 1), site = atomic_load(&r->site);
    return site >= 0 && (call == site || (r->later && call > site)) ? NULL : counted_allocate(&r->all, size, alignment);
}

static void release(void *user, void *pointer, size_t size, size_t alignment) {
    counted_release(&((refuser *)user)->all, pointer, size, alignment);
}

static dlc_status live(dlc_context *context, source from, refuser *r) {
    static float y[ROWS][OUT];
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    dlc_status status = dlc_graph_create(context, &g);
    if (status == DLC_OK) {
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(IN)));
        dlc_output(g, "y", dlc_matmul(x, weights_of(context, g, from)));
        status = dlc_compile(context, g, NULL, &program);
    }
    dlc_graph_destroy(g);
    for (int rows = 16; rows >= 1 && status == DLC_OK; rows -= 15) {
        status = run_into(program, rows, y);
        if (status == DLC_OK) check_rows(rows, (const float(*)[OUT])y, "some memory refused");
    }
    r->made = atomic_load(&r->calls);
    atomic_store(&r->site, -1);
    for (int rows = 1; rows <= 16 && program; rows += 15) /* the same objects do it when there is memory again */
        run_rows(context, program, rows, "memory granted again");
    dlc_program_destroy(program);
    return status;
}

static int refuse_each(source from, bool later) {
    refuser r = {.site = -1, .later = later};
    int refused = 0;
    counting(&r.all);
    dlc_allocator allocator = {refuse, release, &r};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    dlc_context *context = open_context("cpu", &options);
    if (!context) return 0;
    assert_int_equal(live(context, from, &r), DLC_OK);
    const int64_t bytes = atomic_load(&r.all.bytes);
    for (int64_t site = 0; site <= r.made; site += test_is_shortest() ? 4 : 1) {
        atomic_store(&r.calls, 0);
        atomic_store(&r.site, site);
        dlc_status status = live(context, from, &r);
        if (status != DLC_OK && status != DLC_OUT_OF_MEMORY)
            failed("site %d: %s: %s", (int)site, dlc_status_text(status), dlc_error_message(context));
        refused += status != DLC_OK;
        if (atomic_load(&r.all.bytes) > bytes + WHOLE / 8) failed("site %d leaves bytes behind", (int)site);
    }
    dlc_context_destroy(context);
    assert_int_equal(atomic_load(&r.all.blocks), 0);
    return refused;
}

static void test_refused(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    static const source tried[] = {OWN, COMPUTED, UNPACKED};
    int refused = 0;
    for (size_t s = 0; s < sizeof tried / sizeof *tried; s++)
        for (int later = test_is_short() ? (int)s % 2 : 0; later < 2; later++) refused += refuse_each(tried[s], later);
    assert_true(refused > 0 || !open_context("cpu", NULL));
}

/* ---- threads */

enum { THREADS = 4, TURNS = 3 };

typedef struct worker {
    dlc_context *context;
    dlc_program *shared;
    int number;
} worker;

static void work(void *argument) {
    const worker *w = argument;
    static const int rows[] = {16, 1, 3, 17, 2};
    for (int turn = 0; turn < TURNS; turn++) {
        dlc_program *own = compile(w->context, graph_with(w->context, turn % 2 ? OWN : BORROWED));
        for (int i = 0; i < 5; i++) {
            const int n = rows[(i + w->number + turn) % 5];
            run_rows(w->context, w->shared, n, "a shared program");
            run_rows(w->context, own, n, "a thread's own program");
        }
        dlc_program_destroy(own);
    }
}

static void test_threads(void **state) {
    (void)state;
    for (source from = OWN; from <= BORROWED; from++) {
        counter c;
        dlc_allocator allocator = counting(&c);
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.allocator = &allocator;
        options.plan_cache_entries = 2; /* plans come and go */
        dlc_context *context = open_context("cpu", &options);
        if (!context) skip();
        worker workers[THREADS];
        thread threads[THREADS];
        dlc_program *shared = compile(context, graph_with(context, from));
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){context, shared, i};
            start_thread(&threads[i], work, &workers[i]);
        }
        join_threads(threads, THREADS);
        dlc_program_destroy(shared);
        dlc_context_destroy(context);
        assert_int_equal(atomic_load(&c.blocks), 0);
    }
}

static int set_up(void **state) {
    (void)state;
    fill_all();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_copy),       cmocka_unit_test(test_graph_kept),
        cmocka_unit_test(test_other_layouts),  cmocka_unit_test(test_read_elsewhere),
        cmocka_unit_test(test_parts),          cmocka_unit_test(test_loop),
        cmocka_unit_test(test_programs_share), cmocka_unit_test(test_looking_inside),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
