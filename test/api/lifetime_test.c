/* Objects are destroyed in any order, on any threads: what is left of them works on, and nothing stays behind. */
#include "api/support.h"

#include <dlc/eager.h>
#include <dlc/extend.h>
#include <dlc/files.h>
#include <unistd.h>

enum { ROWS = 3, WIDE = 8 };

typedef enum kind {
    CONTEXT,
    FILE_OBJECT,
    NATIVE,
    GRAPH,
    EAGER,
    PROGRAM,
    CALL,
    EVENT,
    OUTPUT,
    FILE_TENSOR,
    EAGER_TENSOR,
    TEXT,
    KINDS
} kind;

typedef struct world {
    dlc_context *context;
    dlc_file *file;
    dlc_native *native;
    dlc_graph *graph, *eager;
    /* of graph and eager */
    dlc_value value, known;
    dlc_program *program;
    dlc_call *call;
    dlc_event *event;
    DLManagedTensorVersioned *output, *file_tensor, *eager_tensor;
    char *text;
    float x[ROWS * WIDE], y[ROWS * WIDE], z[ROWS * WIDE];
    tensor tx, ty;
    /* registrations of the context */
    atomic_int released;
    bool there[KINDS];
} world;

static float weights[WIDE]; /* in the file */
static char path[] = "/tmp/dlc_lifetime_XXXXXX";

static int write_file(void **state) {
    (void)state;
    tensor t;
    int descriptor = mkstemp(path);
    if (descriptor < 0) return -1;
    close(descriptor);
    for (int i = 0; i < WIDE; i++) weights[i] = (float)(i + 1);
    dlc_context *context = open_context("interp", NULL);
    const DLTensor *tensors[] = {F32(&t, weights, WIDE)};
    OK(context, dlc_file_write_safetensors(context, path, 1, (const char *const[]){"w"}, tensors, 0, NULL, NULL));
    dlc_context_destroy(context);
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    return remove(path);
}

static void twice(const float *in, float *out, int64_t count) {
    for (int64_t i = 0; i < count; i++) out[i] = 2 * in[i];
}

static void count_release(void *user) {
    atomic_fetch_add((atomic_int *)user, 1);
}

/* y = twice(x + w), with w in the file, `twice` of a native, and an operator that the context has. */
static dlc_value build(world *w, dlc_graph *g, dlc_value x) {
    dlc_value sum = dlc_add(x, dlc_file_constant(g, w->file, "w")), y;
    dlc_custom_register(g, "twice", dlc_native_call, w->native);
    dlc_custom_call(g, 1, &sum, "twice", 1, SHAPE(DLC_F32), 1, SHAPE(2), 2, DIMS(SIZE(ROWS), SIZE(WIDE)), 1, &y);
    return dlc_apply(g, "same", 1, &y, 0, NULL);
}

static void expect(const float *got) {
    for (int i = 0; i < ROWS * WIDE; i++) CHECK(got[i] == 2 * ((float)i + weights[i % WIDE]));
}

static bool set_up(world *w, const char *target, counter *memory, bool background) {
    dlc_allocator allocator = counting(memory);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    *w = (world){.there = {false}};
    options.allocator = &allocator;
    options.threads = 2;
    options.background_compile = background;
    w->context = open_context(target, &options);
    if (!w->context) return false;
    dlc_operator_options same = DLC_OPERATOR_OPTIONS_INIT;
    same.name = "same", same.operands = "x", same.expression = "y[...] = x[...]";
    same.user = &w->released, same.release = count_release;
    OK(w->context, dlc_operator_register(w->context, &same));
    OK(w->context, dlc_file_open(w->context, path, NULL, &w->file));
    OK(w->context, dlc_native_create(w->context, (void (*)(void))twice, NULL, "in 0, out 0, i64 count 0", &w->native));
    OK(w->context, dlc_graph_create(w->context, &w->graph));
    w->value = build(w, w->graph, dlc_input(w->graph, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(WIDE))));
    dlc_output(w->graph, "y", w->value);
    OK(w->context, dlc_compile(w->context, w->graph, NULL, &w->program));
    for (int i = 0; i < ROWS * WIDE; i++) w->x[i] = (float)i;
    const DLTensor *in = F32(&w->tx, w->x, ROWS, WIDE);
    DLTensor *out = F32(&w->ty, w->y, ROWS, WIDE);
    OK(w->context, dlc_call_create(w->program, &in, 1, &out, 1, &w->call));
    dlc_run_options run = DLC_RUN_OPTIONS_INIT;
    run.event = &w->event;
    dlc_output_slot slot = {NULL, NULL};
    OK(w->context, dlc_run(w->program, &run, &in, 1, &slot, 1));
    w->output = slot.managed;
    OK(w->context, dlc_file_tensor(w->file, "w", &w->file_tensor));
    OK(w->context, dlc_graph_print(w->graph, &w->text));
    OK(w->context, dlc_eager_create(w->context, NULL, &w->eager));
    w->known = build(w, w->eager, dlc_eager_tensor(w->eager, in));
    OK(w->context, dlc_eager_get(w->eager, w->known, &w->eager_tensor));
    for (int k = 0; k < KINDS; k++) w->there[k] = true;
    return true;
}

static void destroy(world *w, kind which) {
    w->there[which] = false;
    switch (which) {
    case CONTEXT: dlc_context_destroy(w->context); break;
    case FILE_OBJECT: dlc_file_destroy(w->file); break;
    case NATIVE: dlc_native_destroy(w->native); break;
    case GRAPH: dlc_graph_destroy(w->graph); break;
    case EAGER: dlc_graph_destroy(w->eager); break;
    case PROGRAM: dlc_program_destroy(w->program); break;
    case CALL: dlc_call_destroy(w->call); break;
    case EVENT: dlc_event_destroy(w->event); break;
    case OUTPUT: w->output->deleter(w->output); break;
    case FILE_TENSOR: w->file_tensor->deleter(w->file_tensor); break;
    case EAGER_TENSOR: w->eager_tensor->deleter(w->eager_tensor); break;
    case TEXT: dlc_text_free(NULL, w->text); break;
    case KINDS: break;
    }
}

/* Everything that is still there does what it is for. */
static void use(world *w, int rows) {
    const DLTensor *in = F32(&w->tx, w->x, ROWS, WIDE);
    DLManagedTensorVersioned *managed;
    if (w->there[FILE_OBJECT]) {
        CHECK(strcmp(dlc_file_name(w->file, 0), "w") == 0);
        CHECK(dlc_file_tensor(w->file, "w", &managed) == DLC_OK);
        CHECK(memcmp(managed->dl_tensor.data, weights, sizeof weights) == 0);
        managed->deleter(managed);
    }
    if (w->there[GRAPH]) {
        CHECK(dlc_value_ok(dlc_relu(w->value)));
        if (w->there[FILE_OBJECT]) CHECK(dlc_value_ok(dlc_file_constant(w->graph, w->file, "w")));
        if (w->there[CONTEXT]) {
            dlc_program *again;
            CHECK(dlc_compile(w->context, w->graph, NULL, &again) == DLC_OK);
            dlc_program_destroy(again);
        }
    }
    if (w->there[EAGER]) {
        dlc_value more = dlc_add(w->known, dlc_eager_tensor(w->eager, in));
        float got[ROWS * WIDE];
        tensor t;
        CHECK(dlc_eager_read(w->eager, more, F32(&t, got, ROWS, WIDE)) == DLC_OK);
        for (int i = 0; i < ROWS * WIDE; i++) CHECK(got[i] == 2 * ((float)i + weights[i % WIDE]) + (float)i);
    }
    if (w->there[PROGRAM]) { /* shapes that are bound, and new ones */
        float x[64 * WIDE], y[64 * WIDE];
        tensor tx, ty;
        for (int i = 0; i < rows * WIDE; i++) x[i] = (float)i;
        dlc_output_slot slot = {F32(&ty, y, rows, WIDE), NULL};
        dlc_status status = dlc_run(w->program, NULL, (const DLTensor *[]){F32(&tx, x, rows, WIDE)}, 1, &slot, 1);
        CHECK(status == (rows == ROWS ? DLC_OK : status));
        if (status == DLC_OK) expect(y);
    }
    if (w->there[CALL]) {
        memset(w->y, 0, sizeof w->y);
        CHECK(dlc_call_run(w->call, NULL) == DLC_OK);
        expect(w->y);
    }
    if (w->there[EVENT]) CHECK(dlc_event_wait(w->event) == DLC_OK);
    if (w->there[OUTPUT] && !w->there[EVENT]) expect(w->output->dl_tensor.data);
    if (w->there[FILE_TENSOR]) CHECK(memcmp(w->file_tensor->dl_tensor.data, weights, sizeof weights) == 0);
    if (w->there[EAGER_TENSOR]) expect(w->eager_tensor->dl_tensor.data);
    if (w->there[TEXT]) CHECK(strstr(w->text, "custom_call") != NULL);
}

static void shuffle(kind *order, uint32_t *seed) {
    for (int i = 0; i < KINDS; i++) order[i] = (kind)i;
    for (int i = KINDS - 1; i > 0; i--) {
        *seed = *seed * 1664525u + 1013904223u;
        int j = (int)((*seed >> 8) % (uint32_t)(i + 1));
        kind k = order[i];
        order[i] = order[j], order[j] = k;
    }
}

/* Is anything left but tensors in host memory and texts? */
static bool needs_context(const world *w) {
    for (int k = 0; k < KINDS; k++)
        if (w->there[k] && k != OUTPUT && k != EAGER_TENSOR && k != TEXT) return true;
    return false;
}

static void test_any_order(void **state) {
    (void)state;
    uint32_t seed = 1;
    static const char *const targets[] = {"interp", "cpu"};
    for (int t = 0; t < 2; t++)
        for (int round = 0; round < (t ? 12 : 60); round++) {
            static world w;
            counter memory;
            kind order[KINDS];
            if (!set_up(&w, targets[t], &memory, round % 4 == 3)) break;
            shuffle(order, &seed);
            for (int i = 0; i < KINDS; i++) {
                use(&w, ROWS);
                CHECK(atomic_load(&w.released) == !needs_context(&w));
                destroy(&w, order[i]);
            }
            CHECK(atomic_load(&w.released) == 1);
            CHECK(atomic_load(&memory.blocks) == 0);
        }
}

/* Everything that one object keeps when it is all that is left. */
static void test_last_one(void **state) {
    (void)state;
    for (int last = 0; last < KINDS; last++) {
        static world w;
        counter memory;
        assert_true(set_up(&w, "interp", &memory, false));
        for (int k = 0; k < KINDS; k++)
            if (k != last) destroy(&w, (kind)k);
        use(&w, ROWS);
        destroy(&w, (kind)last);
        CHECK(atomic_load(&w.released) == 1);
        CHECK(atomic_load(&memory.blocks) == 0);
    }
}

/* ---- on many threads at once */

typedef struct destroyer {
    world *w;
    kind order[KINDS];
    atomic_int *next;
} destroyer;

static void destroy_some(void *argument) {
    destroyer *d = argument;
    for (int i; (i = atomic_fetch_add(d->next, 1)) < KINDS;) destroy(d->w, d->order[i]);
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    uint32_t seed = 7;
    for (int round = 0; round < 40; round++) {
        static world w;
        counter memory;
        atomic_int next = 0;
        thread threads[THREADS];
        destroyer d = {.w = &w, .next = &next};
        assert_true(set_up(&w, "interp", &memory, round % 2));
        shuffle(d.order, &seed);
        for (int i = 0; i < THREADS; i++) start_thread(&threads[i], destroy_some, &d);
        join_threads(threads, THREADS);
        CHECK(atomic_load(&w.released) == 1);
        CHECK(atomic_load(&memory.blocks) == 0);
    }
}

/* Threads that run one program by calls of their own, while others destroy the program, its graph and its context. */
static void run_and_destroy(void *argument) {
    dlc_call *call = argument;
    for (int i = 0; i < 50; i++) CHECK(dlc_call_run(call, NULL) == DLC_OK);
    dlc_call_destroy(call);
}

static void destroy_rest(void *argument) {
    world *w = argument;
    for (int k = 0; k < KINDS; k++)
        if (k != CALL) destroy(w, (kind)k);
}

static void test_calls_go_on(void **state) {
    (void)state;
    enum { CALLS = 3 };
    for (int round = 0; round < 10; round++) {
        static world w;
        counter memory;
        thread threads[CALLS + 1];
        float y[CALLS][ROWS * WIDE];
        tensor to[CALLS];
        dlc_call *calls[CALLS];
        assert_true(set_up(&w, "interp", &memory, false));
        for (int i = 0; i < CALLS; i++) {
            const DLTensor *in = &w.tx.dl;
            DLTensor *out = F32(&to[i], y[i], ROWS, WIDE);
            OK(w.context, dlc_call_create(w.program, &in, 1, &out, 1, &calls[i]));
        }
        destroy(&w, CALL);
        for (int i = 0; i < CALLS; i++) start_thread(&threads[i], run_and_destroy, calls[i]);
        start_thread(&threads[CALLS], destroy_rest, &w);
        join_threads(threads, CALLS + 1);
        for (int i = 0; i < CALLS; i++) expect(y[i]);
        CHECK(atomic_load(&memory.blocks) == 0);
    }
}

/* ---- an eager step lets go of what no value needs */

static void test_step(void **state) {
    (void)state;
    counter memory;
    dlc_context *context = open_counted("interp", &memory);
    dlc_graph *g;
    dlc_file *file;
    OK(context, dlc_eager_create(context, NULL, &g));
    for (int step = 0; step < 50; step++) {
        OK(context, dlc_file_open(context, path, NULL, &file));
        dlc_value w = dlc_file_constant(g, file, "w"), y = dlc_add(w, w);
        dlc_file_destroy(file);
        float got[WIDE];
        tensor t;
        OK(context, dlc_eager_read(g, y, F32(&t, got, WIDE)));
        for (int i = 0; i < WIDE; i++) CHECK(got[i] == 2 * weights[i]);
        OK(context, dlc_eager_step(g, 1, &y));
        OK(context, dlc_eager_read(g, y, &t.dl));
        for (int i = 0; i < WIDE; i++) CHECK(got[i] == 2 * weights[i]);
    }
    dlc_context_destroy(context);
    dlc_graph_destroy(g);
    CHECK(atomic_load(&memory.blocks) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),   cmocka_unit_test(test_last_one), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_calls_go_on), cmocka_unit_test(test_step),
    };
    return cmocka_run_group_tests(tests, write_file, remove_file);
}
