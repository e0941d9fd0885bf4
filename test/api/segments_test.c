/* Programs whose shapes depend on data: several cuts in a row, no element left, all left, values that change from run to run, sizes
 * that only an expression tells; that plans are bounded; threads; what is refused, and that nothing is lost then. */
#include "api/support.h"
#include "test/share.h"

#include <pthread.h>

static dlc_program *parse(dlc_context *context, const char *text) {
    dlc_graph *g;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    return compile(context, g);
}

/* Numbers of x that are not zero; of those, what is above a half; and what needs sizes of all three kinds. */
static const char *const chain = "graph {\n"
                                 "  input x: f32[n]\n"
                                 "  first = non_zero(x, size=[c])\n"
                                 "  row = reshape(first, shape=[c])\n"
                                 "  kept = gather(x, row, axis=0)\n"
                                 "  half = constant f32[] {0.5}\n"
                                 "  above = gt(kept, half)\n"
                                 "  second = non_zero(above, size=[d])\n"
                                 "  place = reshape(second, shape=[d])\n"
                                 "  high = gather(kept, place, axis=0)\n"
                                 "  total = reduce_sum(x, axes=[0])\n"
                                 "  count = iota(dtype=f32, shape=[n + 2*c + d], axis=0)\n"
                                 "  most = reduce_sum(count, axes=[0])\n"
                                 "  doubled = add(high, high)\n"
                                 "  output \"doubled\" = doubled\n"
                                 "  output \"first\" = first\n"
                                 "  output \"total\" = total\n"
                                 "  output \"most\" = most\n"
                                 "  output \"x\" = x\n"
                                 "}\n";

enum { MOST = 3000 };

typedef struct chain_run {
    float x[MOST], total, most, copy[MOST];
} chain_run;

static void run_chain(dlc_context *context, dlc_program *program, chain_run *r, int64_t n) {
    tensor tx, tt, tm, tc;
    const DLTensor *input = F32(&tx, r->x, n);
    dlc_output_slot slots[5] = {{NULL, NULL},
                                {NULL, NULL},
                                {&make_tensor(&tt, DLC_F32, &r->total, 0, NULL)->dl, NULL},
                                {&make_tensor(&tm, DLC_F32, &r->most, 0, NULL)->dl, NULL},
                                {F32(&tc, r->copy, n), NULL}};
    OK(context, dlc_run(program, NULL, &input, 1, slots, 5));
    const DLTensor *doubled = &slots[0].managed->dl_tensor, *first = &slots[1].managed->dl_tensor;
    int64_t c = 0, d = 0;
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        total += r->x[i];
        CHECK(r->copy[i] == r->x[i]);
        if (r->x[i] == 0) continue;
        CHECK(c < first->shape[1]);
        CHECK(((const int64_t *)first->data)[c] == i);
        c++;
        if (!(r->x[i] > 0.5f)) continue;
        CHECK(d < doubled->shape[0]);
        CHECK(((const float *)doubled->data)[d] == 2 * r->x[i]);
        d++;
    }
    CHECK(first->ndim == 2);
    CHECK(first->shape[0] == 1);
    CHECK(first->shape[1] == c);
    CHECK(doubled->shape[0] == d);
    double all = (double)(n + 2 * c + d);
    CLOSE(&r->total, &total, 1, 1e-4);
    CLOSE(&r->most, &(double){all * (all - 1) / 2}, 1, 1e-4);
    slots[0].managed->deleter(slots[0].managed);
    slots[1].managed->deleter(slots[1].managed);
}

static void fill_sparse(float *x, int64_t n, uint32_t seed, int zeros) {
    for (int64_t i = 0; i < n; i++) {
        float value = noise(&seed);
        x[i] = fabsf(noise(&seed)) * 10 < (float)zeros ? 0 : value;
    }
}

static void test_chain(void **state) {
    (void)state;
    chain_run *r = malloc(sizeof *r);
    assert_non_null(r);
    for (int t = 0; t < TARGETS; t++) {
        counter c;
        dlc_context *context = open_counted(all_targets[t], &c);
        if (!context) continue;
        dlc_program *program = parse(context, chain);
        const int64_t sizes[] = {1, 7, 0, 100, t ? MOST : 300, 100};
        for (int k = 0; k < 12; k++) {
            int64_t n = sizes[k % 6];
            fill_sparse(r->x, n, (uint32_t)k, k % 3 == 0 ? 0 : k % 3 == 1 ? 20 : 4);
            run_chain(context, program, r, n);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        assert_int_equal(c.blocks, 0);
    }
    free(r);
}

/* Counts never seen before take no code once they vary, and plans only up to the context's limit. */
static void test_bounded(void **state) {
    (void)state;
    chain_run *r = malloc(sizeof *r);
    assert_non_null(r);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.plan_cache_entries = 16;
    dlc_context *context = open_context("cpu", &options);
    if (!context) context = open_context("interp", &options);
    dlc_program *program = parse(context, chain);
    uint64_t kernels = 0, bytes = 0;
    for (int k = 0; k < 120; k++) {
        for (int i = 0; i < 200; i++) r->x[i] = i < k ? 1 : i < 2 * k ? 0.25f : 0;
        run_chain(context, program, r, 200);
        if (k == 20) kernels = statistics(context).kernel_builds;
        if (k == 60) bytes = statistics(context).cache_bytes;
    }
    assert_int_equal(statistics(context).kernel_builds, kernels);
    assert_true(statistics(context).cache_bytes < bytes + bytes / 4);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    free(r);
}

/* All ranks, also where nothing is. */
static void test_ranks(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = parse(context, "graph {\n  input x: i32[a, b, 5]\n  input s: bool[]\n"
                                              "  y = non_zero(x, size=[c])\n  z = non_zero(s, size=[d])\n"
                                              "  output \"y\" = y\n  output \"z\" = z\n}\n");
        for (int64_t a = 0; a < 4; a++) {
            int32_t x[4 * 3 * 5];
            bool s = a == 2;
            for (int i = 0; i < 60; i++) x[i] = (i * 7 + (int)a) % 3;
            tensor tx, ts;
            const DLTensor *inputs[] = {&make_tensor(&tx, DLC_I32, x, 3, SHAPE(a, 3, 5))->dl,
                                        &make_tensor(&ts, DLC_BOOL, &s, 0, NULL)->dl};
            dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
            OK(context, dlc_run(program, NULL, inputs, 2, slots, 2));
            const DLTensor *y = &slots[0].managed->dl_tensor, *z = &slots[1].managed->dl_tensor;
            const int64_t *found = y->data;
            int64_t count = 0, size = y->shape[1];
            for (int64_t i = 0; i < a * 15; i++) {
                if (!x[i]) continue;
                assert_true(count < size);
                assert_int_equal(found[count], i / 15);
                assert_int_equal(found[size + count], i / 5 % 3);
                assert_int_equal(found[2 * size + count], i % 5);
                count++;
            }
            assert_int_equal(size, count);
            assert_int_equal(y->shape[0], 3);
            assert_int_equal(z->shape[0], 0);
            assert_int_equal(z->shape[1], s ? 1 : 0);
            for (int o = 0; o < 2; o++) slots[o].managed->deleter(slots[o].managed);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- operators that count */

static void test_unique(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    for (int round = 0; round < 2 * TARGETS; round++) {
        const bool sorted = round % 2;
        dlc_context *context = open_context(all_targets[round / 2], NULL);
        char text[256];
        if (!context) continue;
        snprintf(text, sizeof text,
                 "graph {\n  input x: f32[a, 3]\n  v, i, g, n = unique(x, size=[c]%s)\n"
                 "  output \"v\" = v\n  output \"i\" = i\n  output \"g\" = g\n  output \"n\" = n\n}\n",
                 sorted ? "" : ", sorted=false");
        dlc_program *program = parse(context, text);
        for (int64_t a = 0; a < 9; a += 2) {
            float x[24];
            for (int i = 0; i < 24; i++) x[i] = i % 7 == 5 ? NAN : (float)((i * 5 + (int)a) % 4) - 1;
            tensor tx;
            const DLTensor *input = F32(&tx, x, a, 3);
            dlc_output_slot slots[4] = {{NULL, NULL}};
            OK(context, dlc_run(program, NULL, &input, 1, slots, 4));
            const DLTensor *out[4];
            for (int o = 0; o < 4; o++) out[o] = &slots[o].managed->dl_tensor;
            const float *v = out[0]->data;
            const int64_t *first = out[1]->data, *group = out[2]->data, *times = out[3]->data;
            int64_t count = out[0]->shape[0], all = 0;
            assert_int_equal(out[2]->shape[0], 3 * a);
            for (int64_t k = 0; k < count; k++) {
                bool ascends = k == 0 || v[k - 1] < v[k] || (isnan(v[k]) && !isnan(v[k - 1]));
                assert_true(sorted ? ascends : k == 0 || first[k - 1] < first[k]);
                int64_t same = 0, earliest = -1;
                for (int64_t i = 0; i < 3 * a; i++) {
                    if (group[i] != k) continue;
                    if (earliest < 0) earliest = i;
                    assert_true(x[i] == v[k] || (isnan(x[i]) && isnan(v[k])));
                    same++;
                }
                assert_int_equal(times[k], same);
                assert_int_equal(first[k], earliest);
                all += same;
            }
            assert_int_equal(all, 3 * a);
            for (int o = 0; o < 4; o++) slots[o].managed->deleter(slots[o].managed);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* The example of the ONNX specification's tests: two classes, most 2, and one box that equals another. */
/* Element e of slice i along `axis` of x [shape]. */
static float slice_element(const float *x, const int64_t *shape, int axis, int64_t i, int64_t e) {
    int64_t inner = 1;
    for (int d = axis + 1; d < 3; d++) inner *= shape[d];
    return x[(e / inner * shape[axis] + i) * inner + e % inner];
}

/* Below 0: slice i of x comes before slice j of y, both of `count` elements. NaN comes last. */
static int compare_slices(const float *x, const int64_t *x_shape, int64_t i, const float *y, const int64_t *y_shape,
                          int64_t j, int axis, int64_t count) {
    for (int64_t e = 0; e < count; e++) {
        float a = slice_element(x, x_shape, axis, i, e), b = slice_element(y, y_shape, axis, j, e);
        if (a == b || (isnan(a) && isnan(b))) continue;
        return isnan(b) || a < b ? -1 : 1;
    }
    return 0;
}

static void check_along(dlc_context *context, dlc_program *program, const int64_t *shape, int axis, bool sorted) {
    static const float values[] = {1, 0, -0.0f, NAN, -2};
    enum { ROOM = 200 };
    float x[ROOM];
    tensor tx;
    int64_t elements = shape[0] * shape[1] * shape[2], n = shape[axis], each = 1;
    for (int d = 0; d < 3; d++) each *= d == axis ? 1 : shape[d];
    uint32_t seed = 5;
    for (int64_t i = 0; i < elements; i++) x[i] = values[((seed = seed * 1664525 + 1013904223) >> 24) % 5];
    for (int64_t i = 0; i < elements; i++)
        if (each > 2 && i % 3) x[i] = 1;
    const DLTensor *input = &make_tensor(&tx, DLC_F32, x, 3, shape)->dl;
    dlc_output_slot slots[4] = {{NULL, NULL}};
    OK(context, dlc_run(program, NULL, &input, 1, slots, 4));
    const DLTensor *v = &slots[0].managed->dl_tensor;
    const int64_t *first = slots[1].managed->dl_tensor.data, *group = slots[2].managed->dl_tensor.data;
    const int64_t *times = slots[3].managed->dl_tensor.data, count = v->shape[axis];
    int64_t all = 0;
    for (int d = 0; d < 3; d++) assert_true(d == axis || v->shape[d] == shape[d]);
    assert_int_equal(slots[2].managed->dl_tensor.shape[0], n);
    for (int64_t k = 0; k < count; k++) {
        int64_t same = 0, earliest = -1;
        if (k && sorted) assert_true(compare_slices(v->data, v->shape, k - 1, v->data, v->shape, k, axis, each) < 0);
        if (k && !sorted) assert_true(first[k - 1] < first[k]);
        for (int64_t i = 0; i < n; i++) {
            bool equal = compare_slices(x, shape, i, v->data, v->shape, k, axis, each) == 0;
            assert_true(equal == (group[i] == k));
            if (equal && earliest < 0) earliest = i;
            same += equal;
        }
        assert_int_equal(times[k], same);
        assert_int_equal(first[k], earliest);
        all += same;
    }
    assert_int_equal(all, n);
    for (int o = 0; o < 4; o++) slots[o].managed->deleter(slots[o].managed);
}

static void test_unique_along(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    static const int64_t shapes[][3] = {{8, 3, 2}, {1, 1, 1}, {5, 7, 1},  {0, 3, 2},
                                        {4, 0, 2}, {2, 9, 3}, {3, 2, 30}, {0, 0, 0}};
    for (int round = 0; round < 6 * TARGETS; round++) {
        const int axis = round % 3;
        const bool sorted = round / 3 % 2;
        dlc_context *context = open_context(all_targets[round / 6], NULL);
        char text[256];
        if (!context) continue;
        snprintf(text, sizeof text,
                 "graph {\n  input x: f32[a, b, d]\n  v, i, g, n = unique_along(x, size=[c], axis=%d, sorted=%s)\n"
                 "  output \"v\" = v\n  output \"i\" = i\n  output \"g\" = g\n  output \"n\" = n\n}\n",
                 axis == 2 ? -1 : axis, sorted ? "true" : "false");
        dlc_program *program = parse(context, text);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            check_along(context, program, shapes[s], axis, sorted);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Elements other than floats, by their whole value; the example of NumPy's documentation, and of the axis' names. */
static void test_unique_rows(void **state) {
    (void)state;
    uint8_t x[] = {1, 0, 0, 1, 0, 0, 2, 3, 4, 200, 0, 0};
    static const uint8_t rows[] = {1, 0, 0, 2, 3, 4, 200, 0, 0}, columns[] = {0, 0, 1, 0, 0, 1, 3, 4, 2, 0, 0, 200};
    for (int round = 0; round < 2 * TARGETS; round++) {
        const int axis = round % 2;
        dlc_context *context = open_context(all_targets[round / 2], NULL);
        char text[256];
        if (!context) continue;
        snprintf(
            text, sizeof text,
            "graph {\n  input x: u8[4, 3]\n  v, i, g, n = unique_along(x, size=[c], axis=%d)\n  output \"v\" = v\n}\n",
            axis);
        dlc_program *program = parse(context, text);
        tensor tx;
        const DLTensor *input = &make_tensor(&tx, DLC_U8, x, 2, SHAPE(4, 3))->dl;
        dlc_output_slot slot = {NULL, NULL};
        OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
        const DLTensor *v = &slot.managed->dl_tensor;
        assert_int_equal(v->shape[axis], 3);
        assert_memory_equal(v->data, axis ? columns : rows, axis ? sizeof columns : sizeof rows);
        slot.managed->deleter(slot.managed);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_suppression(void **state) {
    (void)state;
    float boxes[6 * 4] = {0, 0,     1, 1,     0, 0.1f,  1, 1.1f,  0, -0.1f,  1, 0.9f,
                          0, 10.0f, 1, 11.0f, 0, 10.1f, 1, 11.1f, 0, 100.0f, 1, 101.0f};
    float scores[12] = {0.9f, 0.75f, 0.6f, 0.95f, 0.5f, 0.3f, 0.9f, 0.75f, 0.6f, 0.95f, 0.5f, 0.3f};
    static const int64_t expected[] = {0, 0, 3, 0, 0, 0, 0, 1, 3, 0, 1, 0};
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program =
            parse(context, "graph {\n  input b: f32[1, n, 4]\n  input s: f32[1, 2, n]\n"
                           "  y = non_max_suppression(b, s, size=[c], most=2, overlap=0.5, score=0.0)\n"
                           "  output \"y\" = y\n}\n");
        for (int64_t n = 6; n >= 0; n -= 6) {
            tensor tb, ts;
            const DLTensor *inputs[] = {F32(&tb, boxes, 1, n, 4), F32(&ts, scores, 1, 2, n)};
            dlc_output_slot slot = {NULL, NULL};
            OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
            const DLTensor *y = &slot.managed->dl_tensor;
            assert_int_equal(y->shape[0], n ? 4 : 0);
            assert_int_equal(y->shape[1], 3);
            if (n) assert_memory_equal(y->data, expected, sizeof expected);
            slot.managed->deleter(slot.managed);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- threads */

typedef struct worker {
    dlc_context *context;
    dlc_program *program;
    int number;
} worker;

static void work(void *user) {
    worker *w = user;
    chain_run *r = malloc(sizeof *r);
    CHECK(r);
    for (int k = 0; k < 25; k++) {
        int64_t n = 40 + (k * 13 + w->number * 29) % 60;
        fill_sparse(r->x, n, (uint32_t)(k * 4 + w->number), 5);
        run_chain(w->context, w->program, r, n);
    }
    free(r);
}

static void test_threads(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) context = open_context("interp", NULL);
    dlc_program *program = parse(context, chain);
    worker w[4];
    thread threads[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){.context = context, .program = program, .number = i};
        start_thread(&threads[i], work, &w[i]);
    }
    join_threads(threads, 4);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* ---- what is refused */

static void expect(dlc_context *context, dlc_status got, dlc_status wanted, const char *part) {
    if (got != wanted || !strstr(dlc_error_message(context), part))
        fail_msg("%s: %s; expected %s with \"%s\"", dlc_status_text(got), dlc_error_message(context),
                 dlc_status_text(wanted), part);
}

static void expect_no_program(dlc_context *context, const char *text, dlc_status wanted, const char *part) {
    dlc_graph *g;
    dlc_program *program;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    expect(context, dlc_compile(context, g, NULL, &program), wanted, part);
    assert_null(program);
    dlc_graph_destroy(g);
}

static void test_refused(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = parse(context, chain);
        tensor tx, ty;
        float x[4] = {1, 0, 2, 3}, y[4];
        const DLTensor *input = F32(&tx, x, 4);
        dlc_output_slot slots[5] = {{F32(&ty, y, 4), NULL}};
        expect(context, dlc_run(program, NULL, &input, 1, slots, 5), DLC_INVALID_ARGUMENT, "leave its slot empty");
        expect(context, dlc_run(program, NULL, &input, 1, slots, 4), DLC_INVALID_ARGUMENT, "4 outputs were given");
        dlc_call *call;
        DLTensor *outputs[5] = {&ty.dl, &ty.dl, &ty.dl, &ty.dl, &ty.dl};
        expect(context, dlc_call_create(program, &input, 1, outputs, 5, &call), DLC_UNSUPPORTED, "depend on data");
        expect(context, dlc_program_alias(program, 4, 0), DLC_UNSUPPORTED, "depend on data");
        const int64_t *shape = SHAPE(4);
        int rank = 1;
        int64_t size[DLC_MAX_RANK];
        expect(context, dlc_output_shape(program, &shape, &rank, 1, 0, DLC_MAX_RANK, size, &rank), DLC_UNSUPPORTED,
               "a run gives it");
        OK(context, dlc_output_shape(program, &shape, &(int){1}, 1, 4, DLC_MAX_RANK, size, &rank));
        assert_int_equal(size[0], 4);
        OK(context, dlc_prepare(program, &shape, &(int){1}, 1));
        char *text;
        const char *const stages[] = {"graph", "bound", "stages", "plan", "profile"};
        for (int s = 0; s < 5; s++) {
            OK(context, dlc_program_dump(program, stages[s], &shape, &(int){1}, 1, &text));
            dlc_text_free(context, text);
        }
        dlc_program_destroy(program);
        expect_no_program(context, "graph {\n  input x: f32[n]\n  y = non_zero(x, size=[n])\n  output \"y\" = y\n}\n",
                          DLC_INVALID_ARGUMENT, "input x");
        expect_no_program(context,
                          "graph {\n  input x: f32[n]\n  input z: f32[n]\n  y = non_zero(x, size=[c])\n"
                          "  w = non_zero(z, size=[c])\n  output \"y\" = y\n  output \"w\" = w\n}\n",
                          DLC_INVALID_ARGUMENT, "two cuts");
        expect_no_program(
            context,
            "graph {\n  input x: f32[n, 3]\n  y = scan(x, carries=0, sequences=1, body=graph {\n"
            "    input a: f32[3]\n    i = non_zero(a, size=[c])\n    s = reduce_sum(i)\n    output s\n  })\n"
            "  output \"y\" = y\n}\n",
            DLC_INVALID_ARGUMENT, "data decide it inside of a sub-graph");
        dlc_context_destroy(context);
    }
}

/* A count of the host's own, in and out of range. */
static void test_count(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value count = dlc_input(g, "count", DLC_I32, 0, NULL), parts[2];
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3)));
        dlc_cut(count, 2, (dlc_value[]){x, dlc_mul(x, x)}, 1, DIMS(SYMBOL("c")), 2, parts);
        dlc_output(g, "sum", dlc_add(parts[0], parts[1]));
        dlc_program *program = compile(context, g);
        for (int n = -1; n < 8; n++) {
            float data[6 * 3];
            int32_t number = n;
            tensor tc, tx;
            fill(data, 18, 3);
            const DLTensor *inputs[] = {&make_tensor(&tc, DLC_I32, &number, 0, NULL)->dl, F32(&tx, data, 6, 3)};
            dlc_output_slot slot = {NULL, NULL};
            dlc_event *event = NULL;
            dlc_run_options options = DLC_RUN_OPTIONS_INIT;
            if (n % 2) options.event = &event;
            dlc_status status = dlc_run(program, &options, inputs, 2, &slot, 1);
            if (n < 0 || n > 6) {
                expect(context, status, DLC_INVALID_ARGUMENT, "expected 0 to 6");
                assert_null(slot.managed);
                assert_null(event);
                continue;
            }
            OK(context, status);
            if (event) OK(context, dlc_event_wait(event));
            dlc_event_destroy(event);
            const DLTensor *sum = &slot.managed->dl_tensor;
            assert_int_equal(sum->shape[0], n);
            for (int i = 0; i < n * 3; i++)
                assert_true(((const float *)sum->data)[i] == data[i] + data[i] * data[i] || all_targets[t][0] == 'c');
            slot.managed->deleter(slot.managed);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static uint64_t tick(void *user) {
    return *(uint64_t *)user += 3000000;
}

/* The budget is the whole run's, without binding, and messages have the host's number. */
static void test_budget(void **state) {
    (void)state;
    uint64_t now = 0;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_run_options limited = DLC_RUN_OPTIONS_INIT;
    options.clock_ns = tick, options.clock_user = &now;
    dlc_context *context = open_context("interp", &options);
    dlc_program *program = parse(context, chain);
    float x[8] = {1, 0, 2, 3};
    char expected[64];
    tensor tx;
    const DLTensor *input = F32(&tx, x, 8);
    bool done = false;
    int over = 0;
    for (int64_t budget = 4; !done; budget += 5) {
        dlc_output_slot slots[5] = {{NULL, NULL}};
        limited.budget_ms = budget;
        const dlc_status status = dlc_run(program, &limited, &input, 1, slots, 5);
        done = status == DLC_OK;
        for (int o = 0; o < 5 && done; o++) slots[o].managed->deleter(slots[o].managed);
        if (done) break;
        snprintf(expected, sizeof expected, "budget_ms = %d", (int)budget);
        expect(context, status, DLC_BUDGET_EXCEEDED, expected);
        over++;
    }
    assert_true(over > 3);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* The rank of an output is known, whatever its sizes depend on. */
static void test_rank(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *program = parse(context, chain);
    int64_t shape[DLC_MAX_RANK];
    for (int output = 0; output < 5; output++) {
        static const int ranks[] = {1, 2, 0, 0, 1};
        int rank = -1;
        OK(context,
           dlc_output_shape(program, (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1, output, 0, NULL, &rank));
        assert_int_equal(rank, ranks[output]);
        rank = -1;
        const dlc_status status = dlc_output_shape(program, (const int64_t *[]){SHAPE(8)}, (const int[]){1}, 1, output,
                                                   DLC_MAX_RANK, shape, &rank);
        if (output < 2)
            expect(context, status, DLC_UNSUPPORTED, "depends on data");
        else
            OK(context, status);
        assert_int_equal(rank, ranks[output]);
    }
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* Every allocation refused once: a status, and nothing is lost. */
static void test_memory(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_counted("interp", &c);
    if (!context) return;
    dlc_program *program = parse(context, chain);
    chain_run *r = malloc(sizeof *r);
    assert_non_null(r);
    fill_sparse(r->x, 20, 1, 4);
    run_chain(context, program, r, 20);
    tensor tx;
    const DLTensor *input = F32(&tx, r->x, 20);
    bool done = false;
    for (int64_t left = 0; !done; left++) {
        dlc_output_slot slots[5] = {{NULL, NULL}};
        int64_t blocks = c.blocks;
        c.left = left;
        dlc_status status = dlc_run(program, NULL, &input, 1, slots, 5);
        c.left = -1;
        done = status == DLC_OK;
        if (!done) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        for (int o = 0; o < 5 && done; o++) slots[o].managed->deleter(slots[o].managed);
        for (int o = 0; o < 5 && !done; o++) assert_null(slots[o].managed);
        assert_int_equal(c.blocks, blocks);
    }
    free(r);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    assert_int_equal(c.blocks, 0);
}

/* Sizes that others have, while no one reads the values that they are counted of. */
static void test_sizes_alone(void **state) {
    static const char *const texts[] = {
        "graph {\n  input x: f32[n]\n  i = non_zero(x, size=[c])\n  y = iota(dtype=i64, shape=[c], axis=0)\n"
        "  output \"y\" = y\n}\n",
        "graph {\n  input x: f32[n]\n  i, j, k, l = unique(x, size=[c])\n  y = iota(dtype=i64, shape=[c], axis=0)\n"
        "  output \"y\" = y\n}\n",
        "graph {\n  input x: f32[n]\n  any = reduce_max(x, axes=[0])\n  half = constant f32[] {0.5}\n"
        "  go = gt(any, half)\n  v = if(go, x, then=graph {\n    input a: f32[n]\n    b = concat(a, a, axis=0)\n"
        "    output b\n  }, otherwise=graph {\n    input a: f32[n]\n    b = neg(a)\n    output b\n  }, sizes=[m])\n"
        "  y = iota(dtype=i64, shape=[m], axis=0)\n  output \"y\" = y\n}\n"};
    static const int64_t counts[][3] = {{3, 4, 8}, {0, 1, 4}};
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (int i = 0; i < 3; i++) {
            dlc_program *program = parse(context, texts[i]);
            for (int r = 0; r < 2; r++) {
                float x[4] = {r ? 0 : 1, 0, r ? 0 : 2, r ? 0 : 3};
                tensor tx;
                const DLTensor *input = F32(&tx, x, 4);
                dlc_output_slot slot = {NULL, NULL};
                OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
                assert_int_equal(slot.managed->dl_tensor.shape[0], counts[r][i]);
                slot.managed->deleter(slot.managed);
            }
            dlc_program_destroy(program);
        }
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_alone),  cmocka_unit_test(test_chain),       cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_ranks),        cmocka_unit_test(test_threads),     cmocka_unit_test(test_unique),
        cmocka_unit_test(test_unique_along), cmocka_unit_test(test_unique_rows), cmocka_unit_test(test_suppression),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_count),       cmocka_unit_test(test_memory),
        cmocka_unit_test(test_budget),       cmocka_unit_test(test_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
