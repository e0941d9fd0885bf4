/* Outputs that are an input and more along one axis, in one buffer with room (dlc_program_alias): what a run writes and copies, for any place of
 * the tensors; who else reads them; mistakes. */
#include "api/support.h"

/* ---- a program: present = concat(past, more) along the middle axis, and sums along it */

enum { ROWS = 3, WIDTH = 5, MOST = 64 };

static dlc_program *growing_program(dlc_context *context, bool varies) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    if (varies) OK(context, dlc_symbol_varies(g, "p", 0, 0, 0));
    dlc_value past = dlc_input(g, "past", DLC_F32, 3, DIMS(SIZE(ROWS), SYMBOL("p"), SIZE(WIDTH)));
    dlc_value more = dlc_input(g, "more", DLC_F32, 3, DIMS(SIZE(ROWS), SYMBOL("n"), SIZE(WIDTH)));
    dlc_value present = dlc_concat(2, (const dlc_value[]){past, dlc_mul(more, dlc_scalar(g, DLC_F32, 2))}, 1);
    dlc_output(g, "present", present);
    dlc_output(g, "sums", dlc_reduce_sum(present, 1, SHAPE(1)));
    dlc_output(g, "before", dlc_reduce_sum(past, 1, SHAPE(1)));
    dlc_program *program = compile(context, g);
    OK(context, dlc_program_alias(program, 0, 0));
    return program;
}

static float element(int64_t row, int64_t at, int64_t column) {
    return (float)(row * 1000 + at * 10 + column);
}

/* Elements first..first+count-1 of each row, times `factor`. */
static void put(float *data, int64_t stride, int64_t first, int64_t count, float factor) {
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < count; i++)
            for (int64_t c = 0; c < WIDTH; c++) data[r * stride + i * WIDTH + c] = factor * element(r, first + i, c);
}

static void check_rows(const float *data, int64_t stride, int64_t count) {
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < count * WIDTH; i++)
            if (data[r * stride + i] != element(r, i / WIDTH, i % WIDTH))
                failed("row %lld, element %lld is %g", (long long)r, (long long)i, (double)data[r * stride + i]);
}

static void check_sums(const float *sums, int64_t count) {
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < WIDTH; c++) {
            float sum = 0;
            for (int64_t i = 0; i < count; i++) sum += element(r, i, c);
            CHECK(sums[r * WIDTH + c] == sum);
        }
}

/* A tensor [ROWS, count, WIDTH], of whose rows the first elements are `stride` apart. */
static DLTensor *rows(tensor *t, float *data, int64_t count, int64_t stride) {
    make_tensor(t, DLC_F32, data, 3, SHAPE(ROWS, count, WIDTH));
    t->strides[0] = stride, t->strides[1] = WIDTH, t->strides[2] = 1;
    t->dl.strides = t->strides;
    return &t->dl;
}

/* Appends n elements to p: in `to`, whose first p elements may be those of `from`. */
static void step(dlc_context *context, dlc_program *program, int64_t p, int64_t n, DLTensor *from, DLTensor *to) {
    static float more[ROWS * MOST * WIDTH], sums[ROWS * WIDTH], before[ROWS * WIDTH];
    tensor tm, ts, tb;
    put(more, n * WIDTH, p, n, 0.5f);
    dlc_output_slot slots[3] = {{to, NULL}, {F32(&ts, sums, ROWS, WIDTH), NULL}, {F32(&tb, before, ROWS, WIDTH), NULL}};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){from, F32(&tm, more, ROWS, n, WIDTH)}, 2, slots, 3));
    check_sums(sums, p + n);
    check_sums(before, p);
    if (to) return;
    const DLTensor *made = &slots[0].managed->dl_tensor;
    CHECK(made->ndim == 3 && made->shape[1] == p + n);
    check_rows(made->data, (p + n) * WIDTH, p + n);
    slots[0].managed->deleter(slots[0].managed);
}

/* ---- tests */

/* Steps of several sizes write what is new; a larger buffer costs one copy and no kernel. */
static void test_steps(void **state) {
    static const int64_t sizes[] = {7, 1, 1, 1, 2, 1, 1, 1, 1, 1};
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context || !has_host_memory(all_targets[t])) {
            dlc_context_destroy(context);
            continue;
        }
        dlc_program *program = growing_program(context, true);
        static float first[ROWS * 12 * WIDTH], second[ROWS * MOST * WIDTH];
        float *buffer = first;
        int64_t p = 0, room = 12;
        uint64_t builds = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; p += sizes[i++]) {
            tensor from, to;
            const uint64_t copied = statistics(context).copied_bytes;
            const bool moves = p + sizes[i] > room;
            rows(&from, buffer, p, room * WIDTH);
            if (moves) buffer = second, room = MOST;
            step(context, program, p, sizes[i], &from.dl, rows(&to, buffer, p + sizes[i], room * WIDTH));
            check_rows(buffer, room * WIDTH, p + sizes[i]);
            assert_int_equal(statistics(context).copied_bytes - copied,
                             moves ? (size_t)(ROWS * p * WIDTH) * sizeof *buffer : 0);
            if (i == 4) builds = statistics(context).kernel_builds;
        }
        assert_int_equal(statistics(context).kernel_builds, builds);
        char *plan;
        OK(context, dlc_program_dump(program, "plan", (const int64_t *[]){SHAPE(ROWS, p, WIDTH), SHAPE(ROWS, 1, WIDTH)},
                                     (const int[]){3, 3}, 2, &plan));
        assert_non_null(strstr(plan, "output.0 is written behind input.0"));
        dlc_text_free(context, plan);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Without a common buffer the input is copied: results are the same wherever tensors lie. */
static void test_apart(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context || !has_host_memory(all_targets[t])) {
            dlc_context_destroy(context);
            continue;
        }
        dlc_program *program = growing_program(context, false);
        static float past[ROWS * MOST * WIDTH], present[ROWS * MOST * WIDTH];
        for (int64_t p = 0; p < 7; p++)
            for (int64_t n = p == 0; n < 4; n++) {
                tensor from, to;
                for (int form = 0; form < 3; form++) { /* compact, with room, allocated */
                    const int64_t stride = form == 1 ? 20 * WIDTH : p * WIDTH;
                    put(past, stride, 0, p, 1);
                    rows(&from, past, p, stride);
                    step(context, program, p, n, &from.dl,
                         form == 2 ? NULL : rows(&to, present, p + n, form == 1 ? 30 * WIDTH : (p + n) * WIDTH));
                    if (form < 2) check_rows(present, form == 1 ? 30 * WIDTH : (p + n) * WIDTH, p + n);
                }
                /* with the axis innermost in memory */
                rows(&to, present, p + n, 0);
                to.strides[0] = MOST * WIDTH, to.strides[1] = 1, to.strides[2] = MOST;
                step(context, program, p, n, &from.dl, &to.dl);
                for (int64_t i = 0; i < ROWS * (p + n) * WIDTH; i++) {
                    const int64_t r = i / ((p + n) * WIDTH), at = i / WIDTH % (p + n), c = i % WIDTH;
                    assert_true(present[r * MOST * WIDTH + at + c * MOST] == element(r, at, c));
                }
                /* misaligned */
                char *odd = (char *)present + 1;
                rows(&to, (float *)(void *)odd, p + n, 30 * WIDTH);
                step(context, program, p, n, &from.dl, &to.dl);
                memmove(present, odd, sizeof present - sizeof *present);
                check_rows(present, 30 * WIDTH, p + n);
            }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A tensor in the buffer of another one's room is none of it. */
static void test_mistakes(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_program *program = growing_program(context, false);
    static float buffer[ROWS * MOST * WIDTH], more[ROWS * WIDTH], sums[2][ROWS * WIDTH];
    tensor from, to, tm, ts, tb;
    put(more, WIDTH, 4, 1, 0.5f);
    dlc_output_slot slots[3] = {{rows(&to, buffer, 5, 20 * WIDTH), NULL},
                                {F32(&ts, sums[0], ROWS, WIDTH), NULL},
                                {F32(&tb, sums[1], ROWS, WIDTH), NULL}};
    const DLTensor *inputs[] = {rows(&from, buffer, 4, 10 * WIDTH), F32(&tm, more, ROWS, 1, WIDTH)};
    put(buffer, 10 * WIDTH, 0, 4, 1);
    assert_int_equal(dlc_run(program, NULL, inputs, 2, slots, 3), DLC_INVALID_ARGUMENT); /* another room */
    assert_non_null(strstr(dlc_error_message(context), "output present overlaps input past"));
    rows(&from, buffer + WIDTH, 4, 20 * WIDTH);
    assert_int_equal(dlc_run(program, NULL, inputs, 2, slots, 3), DLC_INVALID_ARGUMENT); /* not at the beginning */
    rows(&from, buffer, 4, 20 * WIDTH);
    rows(&to, buffer, 6, 20 * WIDTH);
    assert_int_equal(dlc_run(program, NULL, inputs, 2, slots, 3), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "output present: dimension 1 is 6, expected 5"));
    rows(&to, buffer, 5, 4 * WIDTH); /* rows that overlap */
    assert_int_equal(dlc_run(program, NULL, inputs, 2, slots, 3), DLC_INVALID_ARGUMENT);
    for (int bits = 20; bits < 60; bits += 7) { /* out of all memory */
        rows(&to, buffer, 5, (INT64_C(1) << bits) * WIDTH);
        assert_int_equal(dlc_run(program, NULL, inputs, 2, slots, 3), DLC_INVALID_ARGUMENT);
    }
    put(buffer, 20 * WIDTH, 0, 4, 1);
    rows(&to, buffer, 5, 20 * WIDTH);
    OK(context, dlc_run(program, NULL, inputs, 2, slots, 3));
    check_rows(buffer, 20 * WIDTH, 5);
    assert_int_equal(dlc_program_alias(program, 0, 0), DLC_INVALID_ARGUMENT); /* bound */
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

typedef struct aliasing {
    dlc_program *program;
    int calls;
} aliasing;

static uint64_t alias_in_clock(void *user) {
    aliasing *a = user;
    if (!a->program) return 0;
    CHECK(dlc_program_alias(a->program, 0, 0) == DLC_INVALID_ARGUMENT);
    a->calls++;
    return 0;
}

/* From the first bind on it is too late, also while that computes constants. */
static void test_alias_in_bind(void **state) {
    (void)state;
    enum { LARGE = 128 };
    static float w[LARGE * LARGE];
    aliasing a = {NULL, 0};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_compile_options limited = DLC_COMPILE_OPTIONS_INIT;
    options.clock_ns = alias_in_clock, options.clock_user = &a;
    limited.budget_ms = 1000; /* so that it looks at the clock */
    dlc_context *context = open_context("interp", &options);
    dlc_graph *g;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &g));
    dlc_value past = dlc_input(g, "past", DLC_F32, 1, DIMS(SYMBOL("p"))), c;
    dlc_output(g, "present", dlc_concat(2, (const dlc_value[]){past, dlc_mul(past, past)}, 0));
    c = dlc_constant_borrow(g, DLC_F32, 2, SHAPE(LARGE, LARGE), w); /* precomputed at the first run */
    dlc_output(g, "sums", dlc_reduce_sum(dlc_matmul(c, dlc_exp(c)), 1, SHAPE(1)));
    OK(context, dlc_compile(context, g, &limited, &program));
    dlc_graph_destroy(g);
    a.program = program;
    for (int run = 0; run < 2; run++) {
        float x[3] = {1, 2, 3};
        tensor tx;
        dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 3)}, 1, slots, 2));
        assert_true(((const float *)slots[0].managed->dl_tensor.data)[5] == 9);
        for (int o = 0; o < 2; o++) slots[o].managed->deleter(slots[o].managed);
    }
    assert_true(a.calls > 2);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* What is not concat(input, ...) is refused, and pairs beside each other are not. */
static void test_refused_pairs(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_value y = dlc_input(g, "y", DLC_F32, 1, DIMS(SIZE(3)));
    dlc_value z = dlc_input(g, "z", DLC_F32, 1, DIMS(SIZE(3)));
    dlc_output(g, "after", dlc_concat(2, (const dlc_value[]){y, x}, 0));
    dlc_output(g, "before", dlc_concat(2, (const dlc_value[]){z, y}, 0));
    dlc_program *program = compile(context, g);
    assert_int_equal(dlc_program_alias(program, 1, 1), DLC_INVALID_ARGUMENT); /* y is not the first */
    assert_non_null(strstr(dlc_error_message(context), "an output that is concat(input, ...)"));
    OK(context, dlc_program_alias(program, 0, 1));
    OK(context, dlc_program_alias(program, 0, 1));                            /* the same again */
    assert_int_equal(dlc_program_alias(program, 1, 1), DLC_INVALID_ARGUMENT); /* given away */
    OK(context, dlc_program_alias(program, 1, 2));
    float data[3][8] = {{1, 2}, {3, 4, 5}, {6, 7, 8}};
    tensor tx, ty, tz, to[2];
    dlc_output_slot slots[2] = {{F32(&to[0], data[1], 5), NULL}, {F32(&to[1], data[2], 6), NULL}};
    OK(context,
       dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, data[0], 2), F32(&ty, data[1], 3), F32(&tz, data[2], 3)}, 3,
               slots, 2));
    assert_memory_equal(data[1], ((float[]){3, 4, 5, 1, 2}), 5 * sizeof(float));
    assert_memory_equal(data[2], ((float[]){6, 7, 8, 3, 4, 5}), 6 * sizeof(float));
    assert_int_equal(statistics(context).copied_bytes, 0);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* A state along any axis, of any element type; more of several values, which the state itself decides. */
static void test_axes(void **state) {
    static const dlc_dtype dtypes[] = {DLC_F64, DLC_I8, DLC_BOOL, DLC_F16};
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context || !has_host_memory(all_targets[t])) {
            dlc_context_destroy(context);
            continue;
        }
        for (int axis = 0; axis < 3; axis++)
            for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
                static _Alignas(8) unsigned char buffer[2 * 24 * 3 * 8], expected[sizeof buffer];
                static const int sizes[] = {8, 1, 1, 2};
                const int size = sizes[k];
                int64_t full[3] = {2, 3, 4}, now[3] = {2, 3, 4}, one[3] = {2, 3, 4};
                dlc_dim dims[3] = {SIZE(2), SIZE(3), SIZE(4)}, ones[3] = {SIZE(2), SIZE(3), SIZE(4)};
                dlc_graph *g;
                OK(context, dlc_graph_create(context, &g));
                dims[axis] = SYMBOL("p"), ones[axis] = SIZE(1);
                dlc_value past = dlc_input(g, "past", dtypes[k], 3, dims);
                dlc_value more = dlc_input(g, "more", dtypes[k], 3, ones);
                dlc_output(g, "all", dlc_concat(3, (const dlc_value[]){past, more, more}, axis));
                dlc_program *program = compile(context, g);
                OK(context, dlc_program_alias(program, 0, 0));
                full[axis] = 8, one[axis] = 1;
                memset(buffer, 7, sizeof buffer);
                for (int64_t p = 0; p < 6; p += 2) {
                    unsigned char bytes[24 * 8];
                    tensor from, to, tm;
                    for (int i = 0; i < 24 * 8; i++) bytes[i] = (unsigned char)(dtypes[k] == DLC_BOOL ? i % 2 : i + p);
                    now[axis] = p;
                    make_tensor(&from, dtypes[k], buffer, 3, now);
                    now[axis] = p + 2;
                    make_tensor(&to, dtypes[k], buffer, 3, now);
                    for (int d = 2; d >= 0; d--)
                        to.strides[d] = from.strides[d] = d == 2 ? 1 : to.strides[d + 1] * full[d + 1];
                    from.dl.strides = from.strides, to.dl.strides = to.strides;
                    memcpy(expected, buffer, sizeof buffer);
                    for (int i = 0, e = 0; i < one[0] * one[1] * one[2]; i++, e++)
                        for (int twice = 0; twice < 2; twice++) {
                            int64_t at[3] = {i / (one[1] * one[2]), i / one[2] % one[1], i % one[2]};
                            at[axis] = p + twice;
                            memcpy(expected + (at[0] * to.strides[0] + at[1] * to.strides[1] + at[2]) * size,
                                   bytes + e * size, (size_t)size);
                        }
                    dlc_output_slot slot = {&to.dl, NULL};
                    const DLTensor *inputs[] = {&from.dl, &make_tensor(&tm, dtypes[k], bytes, 3, one)->dl};
                    OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
                    assert_memory_equal(buffer, expected, sizeof buffer); /* nothing else was written */
                }
                dlc_program_destroy(program);
            }
        assert_int_equal(statistics(context).copied_bytes, 0);
        dlc_context_destroy(context);
    }
}

/* What is added may depend on the state, and the state may be read by what runs later. */
static void test_dependent(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context || !has_host_memory(all_targets[t])) {
            dlc_context_destroy(context);
            continue;
        }
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value past = dlc_input(g, "past", DLC_F32, 2, DIMS(SIZE(2), SYMBOL("p")));
        dlc_value sum = dlc_reduce_sum_with(past, 1, SHAPE(1),
                                            &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true});
        dlc_value all = dlc_concat(2, (const dlc_value[]){past, sum}, 1);
        dlc_output(g, "all", all);
        dlc_output(g, "most", dlc_mul(dlc_reduce_max(all, 1, SHAPE(1)), dlc_reduce_max(past, 1, SHAPE(1))));
        dlc_program *program = compile(context, g);
        OK(context, dlc_program_alias(program, 0, 0));
        float buffer[2][16] = {{1}, {3}}, most[2];
        for (int64_t p = 1; p < 9; p++) {
            tensor from, to, tm;
            make_tensor(&from, DLC_F32, buffer, 2, SHAPE(2, p)), make_tensor(&to, DLC_F32, buffer, 2, SHAPE(2, p + 1));
            from.strides[0] = to.strides[0] = 16, from.strides[1] = to.strides[1] = 1;
            from.dl.strides = from.strides, to.dl.strides = to.strides;
            dlc_output_slot slots[2] = {{&to.dl, NULL}, {F32(&tm, most, 2), NULL}};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){&from.dl}, 1, slots, 2));
            for (int r = 0; r < 2; r++) {
                const float last = (float)((r ? 3 : 1) * (1 << (p - 1)));
                assert_true(buffer[r][p] == last && most[r] == last * buffer[r][p - 1]);
            }
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Two states of one size share a room; where one has another, it is copied. */
static void test_other_rooms(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context || !has_host_memory(all_targets[t])) {
            dlc_context_destroy(context);
            continue;
        }
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value more = dlc_input(g, "more", DLC_F32, 3, DIMS(SIZE(ROWS), SYMBOL("n"), SIZE(WIDTH)));
        for (int k = 0; k < 2; k++) {
            dlc_value past =
                dlc_input(g, k ? "values" : "keys", DLC_F32, 3, DIMS(SIZE(ROWS), SYMBOL("p"), SIZE(WIDTH)));
            dlc_output(g, k ? "all_values" : "all_keys", dlc_concat(2, (const dlc_value[]){past, more}, 1));
        }
        dlc_program *program = compile(context, g);
        for (int k = 0; k < 2; k++) OK(context, dlc_program_alias(program, k, k + 1));
        static float buffer[2][ROWS * MOST * WIDTH], added[ROWS * WIDTH];
        static const int64_t room[3][2] = {{20, 20}, {20, 30}, {30, 3}}; /* 3: compact */
        for (int form = 0; form < 3; form++)
            for (int managed = 0; managed < 2; managed++) {
                tensor from[2], to[2], tm;
                const uint64_t copied = statistics(context).copied_bytes;
                put(added, WIDTH, 2, 1, 1);
                for (int k = 0; k < 2; k++) {
                    put(buffer[k], room[form][k] * WIDTH, 0, 2, 1);
                    rows(&from[k], buffer[k], 2, room[form][k] * WIDTH);
                    rows(&to[k], buffer[k], 3, room[form][k] * WIDTH);
                }
                dlc_output_slot slots[2] = {{&to[0].dl, NULL}, {managed ? NULL : &to[1].dl, NULL}};
                OK(context, dlc_run(program, NULL,
                                    (const DLTensor *[]){F32(&tm, added, ROWS, 1, WIDTH), &from[0].dl, &from[1].dl}, 3,
                                    slots, 2));
                check_rows(buffer[0], room[form][0] * WIDTH, 3);
                if (managed)
                    check_rows(slots[1].managed->dl_tensor.data, 3 * WIDTH, 3);
                else
                    check_rows(buffer[1], room[form][1] * WIDTH, 3);
                if (managed) slots[1].managed->deleter(slots[1].managed);
                if (!form && !managed) assert_int_equal(statistics(context).copied_bytes, copied);
            }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Checks for NaN see what is stored, and not what lies in the room. */
static void test_stop_at(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context || !has_host_memory(all_targets[t])) {
            dlc_context_destroy(context);
            continue;
        }
        dlc_program *program = growing_program(context, false);
        static float buffer[ROWS * 20 * WIDTH], more[ROWS * WIDTH], sums[2][ROWS * WIDTH];
        tensor from, to, tm, ts, tb;
        dlc_run_options options = DLC_RUN_OPTIONS_INIT;
        options.stop_at = DLC_STOP_AT_NAN;
        for (size_t i = 0; i < sizeof buffer / sizeof *buffer; i++) buffer[i] = NAN;
        put(buffer, 20 * WIDTH, 0, 4, 1), put(more, WIDTH, 4, 1, 0.5f);
        dlc_output_slot slots[3] = {{rows(&to, buffer, 5, 20 * WIDTH), NULL},
                                    {F32(&ts, sums[0], ROWS, WIDTH), NULL},
                                    {F32(&tb, sums[1], ROWS, WIDTH), NULL}};
        const DLTensor *inputs[] = {rows(&from, buffer, 4, 20 * WIDTH), F32(&tm, more, ROWS, 1, WIDTH)};
        OK(context, dlc_run(program, &options, inputs, 2, slots, 3));
        more[WIDTH + 2] = NAN;
        assert_int_equal(dlc_run(program, &options, inputs, 2, slots, 3), DLC_NOT_FINITE);
        more[WIDTH + 2] = 0;
        buffer[20 * WIDTH + 3 * WIDTH + 1] = NAN;
        assert_int_equal(dlc_run(program, &options, inputs, 2, slots, 3), DLC_NOT_FINITE);
        assert_non_null(strstr(dlc_error_message(context), "input past is NaN at [1, 3, 1]"));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A call that the host keeps appends behind the same elements each time. */
static void test_kept_call(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context || !has_host_memory(all_targets[t])) {
            dlc_context_destroy(context);
            continue;
        }
        dlc_program *program = growing_program(context, false);
        static float buffer[ROWS * 20 * WIDTH], more[ROWS * WIDTH], sums[2][ROWS * WIDTH];
        tensor from, to, tm, ts, tb;
        dlc_call *call;
        put(buffer, 20 * WIDTH, 0, 4, 1), put(more, WIDTH, 4, 1, 0.5f);
        const DLTensor *inputs[] = {rows(&from, buffer, 4, 20 * WIDTH), F32(&tm, more, ROWS, 1, WIDTH)};
        DLTensor *outputs[] = {rows(&to, buffer, 5, 20 * WIDTH), F32(&ts, sums[0], ROWS, WIDTH),
                               F32(&tb, sums[1], ROWS, WIDTH)};
        OK(context, dlc_call_create(program, inputs, 2, outputs, 3, &call));
        for (int i = 0; i < 3; i++) OK(context, dlc_call_run(call, NULL));
        check_rows(buffer, 20 * WIDTH, 5);
        check_sums(sums[0], 5);
        check_sums(sums[1], 4);
        assert_int_equal(statistics(context).copied_bytes, 0);
        dlc_call_destroy(call);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A run that is refused memory leaves the state as it was, and nothing leaks. */
static void test_refused_memory(void **state) {
    (void)state;
    counter memory;
    dlc_context *context = open_counted("interp", &memory);
    for (int64_t from = 0, done = 0; !done; from += from < 40 ? 1 : 17) {
        static float buffer[ROWS * 20 * WIDTH], more[ROWS * WIDTH], sums[2][ROWS * WIDTH];
        tensor past, to, tm, ts, tb;
        dlc_program *program = growing_program(context, false);
        put(buffer, 20 * WIDTH, 0, 4, 1), put(more, WIDTH, 4, 1, 0.5f);
        dlc_output_slot slots[3] = {{rows(&to, buffer, 5, 20 * WIDTH), NULL},
                                    {F32(&ts, sums[0], ROWS, WIDTH), NULL},
                                    {F32(&tb, sums[1], ROWS, WIDTH), NULL}};
        const DLTensor *inputs[] = {rows(&past, buffer, 4, 20 * WIDTH), F32(&tm, more, ROWS, 1, WIDTH)};
        atomic_store(&memory.left, from);
        const dlc_status status = dlc_run(program, NULL, inputs, 2, slots, 3);
        atomic_store(&memory.left, -1);
        check_rows(buffer, 20 * WIDTH, 4);
        done = status == DLC_OK;
        if (!done) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        OK(context, dlc_run(program, NULL, inputs, 2, slots, 3));
        check_rows(buffer, 20 * WIDTH, 5);
        dlc_program_destroy(program);
    }
    dlc_context_destroy(context);
    assert_int_equal(atomic_load(&memory.blocks), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),         cmocka_unit_test(test_apart),          cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_refused_pairs), cmocka_unit_test(test_alias_in_bind),  cmocka_unit_test(test_axes),
        cmocka_unit_test(test_dependent),     cmocka_unit_test(test_other_rooms),    cmocka_unit_test(test_stop_at),
        cmocka_unit_test(test_kept_call),     cmocka_unit_test(test_refused_memory),
    };
    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
