/* Programs run through the public API against plain C: outputs, strides, donation, symbols. */
#include "api/support.h"

/* ---- small graphs */

static void test_add(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value a = dlc_input(g, "a", DLC_F32, 2, DIMS(SYMBOL("n"), SYMBOL("m")));
        dlc_value b = dlc_input(g, "b", DLC_F32, 1, DIMS(SYMBOL("m")));
        dlc_output(g, "sum", dlc_add(a, b));
        dlc_program *program = compile(context, g);
        assert_int_equal(dlc_program_input_count(program), 2);
        assert_int_equal(dlc_program_output_count(program), 1);
        assert_string_equal(dlc_program_input_name(program, 1), "b");
        assert_string_equal(dlc_program_output_name(program, 0), "sum");
        assert_null(dlc_program_input_name(program, 2));
        static const int64_t sizes[][2] = {{3, 5}, {1, 1}, {0, 4}, {4, 0}, {17, 67}, {1, 1000}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int64_t n = sizes[s][0], m = sizes[s][1];
            float x[2048], y[1024], out[2048];
            double expected[2048];
            fill(x, (size_t)(n * m), 1);
            fill(y, (size_t)m, 2);
            for (int64_t i = 0; i < n * m; i++) expected[i] = (double)(x[i] + y[i % m]);
            tensor ta, tb, tout;
            const DLTensor *inputs[] = {F32(&ta, x, n, m), F32(&tb, y, m)};
            dlc_output_slot slot = {F32(&tout, out, n, m), NULL};
            OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
            CLOSE(out, expected, (size_t)(n * m), 0);
        }
        assert_int_equal(statistics(context).interpreted_regions, 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_dense(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        for (int64_t n = 0; n < 20; n++) {
            float x[20 * 8];
            double expected[20 * 4];
            fill(x, (size_t)n * 8, (uint32_t)n);
            dense_reference(x, n, expected);
            tensor tx;
            dlc_output_slot slot = {NULL, NULL}; /* the library allocates */
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, 8)}, 1, &slot, 1));
            assert_non_null(slot.managed);
            assert_int_equal(slot.managed->dl_tensor.ndim, 2);
            assert_int_equal(slot.managed->dl_tensor.shape[0], n);
            assert_int_equal(slot.managed->dl_tensor.shape[1], 4);
            CLOSE((const float *)slot.managed->dl_tensor.data, expected, (size_t)n * 4, 1e-6);
            slot.managed->deleter(slot.managed);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_softmax(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("rows"), SYMBOL("columns")));
        dlc_output(g, "p", dlc_softmax(x, -1));
        dlc_program *program = compile(context, g);
        static const int64_t sizes[][2] = {{2, 3}, {7, 128}, {1, 1}, {5, 50}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int64_t n = sizes[s][0], m = sizes[s][1];
            float in[1024], out[1024];
            double expected[1024];
            fill(in, (size_t)(n * m), 3);
            for (int64_t i = 0; i < n; i++) {
                double sum = 0;
                for (int64_t j = 0; j < m; j++) sum += exp(in[i * m + j]);
                for (int64_t j = 0; j < m; j++) expected[i * m + j] = exp(in[i * m + j]) / sum;
            }
            tensor tx, ty;
            dlc_output_slot slot = {F32(&ty, out, n, m), NULL};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, n, m)}, 1, &slot, 1));
            CLOSE(out, expected, (size_t)(n * m), 2e-6);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* [batch][channel][height][width], weights [out][in][height][width], padding 1 */
static void test_convolution(void **state) {
    (void)state;
    enum { N = 2, C = 3, H = 6, W = 7, K = 4 };
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        static float x[N * C * H * W], w[K * C * 9], out[N * K * H * W];
        static double expected[N * K * H * W];
        fill(x, sizeof x / sizeof *x, 4);
        fill(w, sizeof w / sizeof *w, 5);
        for (int n = 0; n < N; n++)
            for (int k = 0; k < K; k++)
                for (int i = 0; i < H; i++)
                    for (int j = 0; j < W; j++) {
                        double sum = 0;
                        for (int c = 0; c < C; c++)
                            for (int a = -1; a <= 1; a++)
                                for (int b = -1; b <= 1; b++)
                                    if (i + a >= 0 && i + a < H && j + b >= 0 && j + b < W)
                                        sum += (double)x[((n * C + c) * H + i + a) * W + j + b] *
                                               w[((k * C + c) * 3 + a + 1) * 3 + b + 1];
                        expected[((n * K + k) * H + i) * W + j] = sum;
                    }
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value vx = dlc_input(g, "x", DLC_F32, 4, DIMS(SYMBOL("n"), SIZE(C), SYMBOL("h"), SYMBOL("w")));
        dlc_convolution_options options = DLC_CONVOLUTION_OPTIONS_INIT;
        options.low_count = options.high_count = 2;
        options.low = options.high = SHAPE(1, 1);
        dlc_output(g, "y", dlc_convolution_with(vx, dlc_constant(g, DLC_F32, 4, SHAPE(K, C, 3, 3), w), &options));
        dlc_program *program = compile(context, g);
        tensor tx, ty;
        dlc_output_slot slot = {F32(&ty, out, N, K, H, W), NULL};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, N, C, H, W)}, 1, &slot, 1));
        CLOSE(out, expected, sizeof out / sizeof *out, 1e-5);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* An input, a constant and one value twice as outputs; a scalar; no kernel at all for some. */
static void test_plain_outputs(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(2)));
        dlc_value y = dlc_exp(x);
        dlc_output(g, "x", x);
        dlc_output(g, "c", dlc_scalar(g, DLC_F32, 2.5));
        dlc_output(g, "y", y);
        dlc_output(g, "again", y);
        dlc_output(g, "flat", dlc_reshape(y, 1, DIMS({-1, "n*2"})));
        dlc_output(g, "sum", dlc_reduce_sum(x, 0, NULL));
        dlc_program *program = compile(context, g);
        float in[6] = {0, 1, 2, 3, 4, 5};
        tensor tx;
        dlc_output_slot slots[6];
        memset(slots, 0, sizeof slots);
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, 3, 2)}, 1, slots, 6));
        const float *out[6];
        for (int o = 0; o < 6; o++) out[o] = slots[o].managed->dl_tensor.data;
        assert_memory_equal(out[0], in, sizeof in);
        assert_true(out[1][0] == 2.5f);
        for (int i = 0; i < 6; i++) assert_true(fabs(out[2][i] - exp(i)) < 1e-5 * exp(i));
        assert_memory_equal(out[2], out[3], sizeof in);
        assert_memory_equal(out[2], out[4], sizeof in);
        assert_int_equal(slots[4].managed->dl_tensor.ndim, 1);
        assert_true(out[5][0] == 15.0f);
        for (int o = 0; o < 6; o++) slots[o].managed->deleter(slots[o].managed);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- strides, alignment, overlap, donation */

static void test_strides(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        enum { N = 5 };
        float x[N * 8], transposed[8 * N], wide[N * 10 + 1];
        double expected[N * 4];
        fill(x, N * 8, 9);
        dense_reference(x, N, expected);
        for (int i = 0; i < N; i++)
            for (int k = 0; k < 8; k++) transposed[k * N + i] = x[i * 8 + k];
        for (int layout = 0; layout < 4; layout++) {
            tensor tx, ty;
            float out[N * 4];
            const DLTensor *in = F32(&tx, transposed, N, 8);
            if (layout == 0) { /* columns */
                tx.strides[0] = 1, tx.strides[1] = N;
            } else if (layout == 1) { /* rows with a gap, from byte_offset on */
                for (int i = 0; i < N; i++) memcpy(wide + 1 + i * 10, x + i * 8, 8 * sizeof *x);
                tx.dl.data = wide, tx.dl.byte_offset = 4;
                tx.strides[0] = 10, tx.strides[1] = 1;
            } else if (layout == 2) { /* rows backwards */
                for (int i = 0; i < N; i++) memcpy(wide + (N - 1 - i) * 8, x + i * 8, 8 * sizeof *x);
                tx.dl.data = wide + (N - 1) * 8;
                tx.strides[0] = -8, tx.strides[1] = 1;
            } else { /* not aligned to elements */
                memcpy((char *)wide + 1, x, sizeof x);
                tx.dl.data = (char *)wide + 1;
                tx.strides[0] = 8, tx.strides[1] = 1;
            }
            tx.dl.strides = tx.strides;
            dlc_output_slot slot = {F32(&ty, out, N, 4), NULL};
            OK(context, dlc_run(program, NULL, &in, 1, &slot, 1));
            CLOSE(out, expected, N * 4, 1e-6);
        }
        tensor tx, ty; /* strided output: transposed, between guards */
        float out[4 * N + 2] = {0};
        out[0] = out[4 * N + 1] = -77;
        dlc_output_slot slot = {F32(&ty, out + 1, N, 4), NULL};
        ty.strides[0] = 1, ty.strides[1] = N, ty.dl.strides = ty.strides;
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, N, 8)}, 1, &slot, 1));
        for (int i = 0; i < N; i++)
            for (int j = 0; j < 4; j++) assert_true(fabs(out[1 + j * N + i] - expected[i * 4 + j]) < 1e-5);
        assert_true(out[0] == -77 && out[4 * N + 1] == -77);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* state' = state + delta and out = 2 state, in place of the state: reads and writes of one buffer by two regions. */
/* Neighbours of elements of 2 bits: the extent of a tensor ends with its last byte. */
static void test_packed_neighbours(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_cast(dlc_input(g, "x", DLC_U2, 1, DIMS(SIZE(7))), DLC_U8);
        dlc_output(g, "y", dlc_cast(dlc_xor(x, dlc_scalar_i64(g, DLC_U8, 3)), DLC_U2));
        dlc_program *program = compile(context, g);
        unsigned char bytes[4] = {0x1b, 0x24, 0, 0};
        tensor tx, ty;
        const DLTensor *input = &make_tensor(&tx, DLC_U2, bytes, 1, SHAPE(7))->dl;
        dlc_output_slot slot = {&make_tensor(&ty, DLC_U2, bytes + 2, 1, SHAPE(7))->dl, NULL};
        OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
        assert_true(bytes[2] == 0xe4 && (bytes[3] & 0x3f) == 0x1b);
        dlc_call *call;
        OK(context, dlc_call_create(program, &input, 1, &slot.tensor, 1, &call));
        dlc_call_destroy(call);
        slot.tensor = &make_tensor(&ty, DLC_U2, bytes + 1, 1, SHAPE(7))->dl;
        assert_int_equal(dlc_run(program, NULL, &input, 1, &slot, 1), DLC_INVALID_ARGUMENT);
        assert_non_null(strstr(dlc_error_message(context), "output y overlaps input x"));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* options.begun and options.event are written by every call, whatever refuses it. */
static void test_begun(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        float x[2 * 8], y[2 * 4];
        tensor tx, ty;
        fill(x, 16, 1);
        const DLTensor *input = F32(&tx, x, 2, 8);
        dlc_output_slot slot = {F32(&ty, y, 2, 4), NULL};
        dlc_call *call;
        OK(context, dlc_call_create(program, &input, 1, &slot.tensor, 1, &call));
        for (int way = 0; way < 8; way++) {
            const bool right = way < 2, kept = way & 1;
            bool begun = !right;
            dlc_event *event = (dlc_event *)(void *)&tx;
            dlc_run_options options = DLC_RUN_OPTIONS_INIT;
            options.begun = &begun, options.event = &event;
            if (way == 2 || way == 3) options.stop_at = 8;
            if (way == 4 || way == 5) options.budget_ms = -1;
            dlc_program *const given = way < 6 ? program : NULL;
            dlc_status status =
                kept ? dlc_call_run(given ? call : NULL, &options) : dlc_run(given, &options, &input, 1, &slot, 1);
            assert_int_equal(status, right ? DLC_OK : DLC_INVALID_ARGUMENT);
            assert_int_equal(begun, right);
            assert_int_equal(event != NULL, right);
            if (right) OK(context, dlc_event_wait(event));
            dlc_event_destroy(event);
        }
        dlc_call_destroy(call);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_donation(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value s = dlc_input(g, "state", DLC_F32, 1, DIMS(SYMBOL("n")));
        dlc_value d = dlc_input(g, "delta", DLC_F32, 1, DIMS(SYMBOL("n")));
        dlc_output(g, "next", dlc_add(dlc_reverse(s, 1, SHAPE(0)), d));
        dlc_output(g, "twice", dlc_add(s, s));
        dlc_program *program, *first;
        OK(context, dlc_compile(context, g, NULL, &first)); /* without donation */
        program = compile(context, g);
        float data[4] = {1, 2, 3, 4}, delta[4] = {10, 20, 30, 40}, twice[4];
        tensor ts, td, tn, tt;
        const DLTensor *inputs[] = {F32(&ts, data, 4), F32(&td, delta, 4)};
        dlc_output_slot slots[2] = {{F32(&tn, data, 4), NULL}, {F32(&tt, twice, 4), NULL}};
        assert_int_equal(dlc_run(first, NULL, inputs, 2, slots, 2), DLC_INVALID_ARGUMENT);
        assert_non_null(strstr(dlc_error_message(context), "overlaps input state"));
        assert_true(data[0] == 1 && data[3] == 4); /* untouched */
        dlc_program_destroy(first);
        assert_int_equal(dlc_program_alias(program, 0, 5), DLC_INVALID_ARGUMENT);
        OK(context, dlc_program_alias(program, 0, 0));
        for (int run = 0; run < 2; run++) {
            float before[4];
            memcpy(before, data, sizeof data);
            OK(context, dlc_run(program, NULL, inputs, 2, slots, 2));
            for (int i = 0; i < 4; i++) {
                assert_true(data[i] == before[3 - i] + delta[i]);
                assert_true(twice[i] == 2 * before[i]);
            }
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Results of maps that exceed the caches are the same bits beside the operands, where they are stored past the caches, and in their place. */
static void test_large_updates(void **state) {
    (void)state;
    enum { POINTS = 5 << 20, TENSORS = 5, SPOT = 4099 };
    dlc_context *context = open_context("cpu", NULL);
    if (!context) skip();
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value w = dlc_input(g, "w", DLC_F32, 1, DIMS(SIZE(POINTS))),
              m = dlc_input(g, "m", DLC_F32, 1, DIMS(SIZE(POINTS))),
              d = dlc_input(g, "d", DLC_F32, 1, DIMS(SIZE(POINTS)));
    dlc_value mean = dlc_add(m, dlc_mul(dlc_sub(d, m), dlc_scalar(g, DLC_F32, 0.25)));
    dlc_output(g, "next w", dlc_sub(w, dlc_mul(mean, dlc_scalar(g, DLC_F32, 0.5))));
    dlc_output(g, "next m", mean);
    dlc_program *beside, *over;
    OK(context, dlc_compile(context, g, NULL, &beside));
    over = compile(context, g);
    OK(context, dlc_program_alias(over, 0, 0));
    OK(context, dlc_program_alias(over, 1, 1));
    float *data[TENSORS]; /* w, m, d, results */
    for (int i = 0; i < TENSORS; i++) {
        data[i] = aligned_alloc(64, POINTS * sizeof(float));
        assert_non_null(data[i]);
        for (int k = 0; k < POINTS; k++) data[i][k] = (float)((k * (i + 3)) % 1009) / 8;
    }
    tensor t[TENSORS];
    const DLTensor *inputs[3];
    for (int i = 0; i < 3; i++) inputs[i] = F32(&t[i], data[i], POINTS);
    dlc_output_slot apart[2] = {{F32(&t[3], data[3], POINTS), NULL}, {F32(&t[4], data[4], POINTS), NULL}},
                    same[2] = {{(DLTensor *)inputs[0], NULL}, {(DLTensor *)inputs[1], NULL}};
    const float spot[3] = {data[0][SPOT], data[1][SPOT], data[2][SPOT]};
    OK(context, dlc_run(beside, NULL, inputs, 3, apart, 2));
    OK(context, dlc_run(over, NULL, inputs, 3, same, 2));
    assert_memory_equal(data[0], data[3], POINTS * sizeof(float));
    assert_memory_equal(data[1], data[4], POINTS * sizeof(float));
    const float expected = spot[1] + (spot[2] - spot[1]) / 4;
    assert_float_equal(data[4][SPOT], expected, 1e-4);
    assert_float_equal(data[3][SPOT], spot[0] - expected / 2, 1e-4);
    for (int i = 0; i < TENSORS; i++) free(data[i]);
    dlc_program_destroy(beside);
    dlc_program_destroy(over);
    dlc_context_destroy(context);
}

/* Steps of attention over donated caches, the first one of several positions: the caches are updated where they are, nothing is copied,
 * and each step agrees with attention over all keys so far. */
enum { HEADS = 4, SHARED = 2, WIDTH = 8, ROOM = 40, FIRST = 5, LAST = 11 };

static dlc_program *caching_program(dlc_context *context) {
    static const char *const names[] = {"q", "k", "v", "k_cache", "v_cache"};
    dlc_graph *g;
    dlc_value in[6], results[3];
    OK(context, dlc_graph_create(context, &g));
    for (int i = 0; i < 5; i++) {
        dlc_dim dims[] = {{1, NULL}, {i ? SHARED : HEADS, NULL}, {i < 3 ? 0 : ROOM, i < 3 ? "n" : NULL}, {WIDTH, NULL}};
        in[i] = dlc_input(g, names[i], DLC_F32, 4, dims);
    }
    in[5] = dlc_input(g, "position", DLC_I64, 0, NULL);
    dlc_cached_attention(in[0], in[1], in[2], in[3], in[4], in[5], 3, results);
    for (int i = 0; i < 3; i++) dlc_output(g, i ? names[2 + i] : "y", results[i]);
    dlc_program *program = compile(context, g);
    OK(context, dlc_program_alias(program, 1, 3));
    OK(context, dlc_program_alias(program, 2, 4));
    return program;
}

static void attend(const float *query, const float *keys, const float *values, int64_t count, double *out) {
    double sum = 0;
    for (int c = 0; c < WIDTH; c++) out[c] = 0;
    for (int64_t j = 0; j < count; j++) {
        double score = 0;
        for (int c = 0; c < WIDTH; c++) score += (double)query[c] * (double)keys[j * WIDTH + c];
        score = exp(score / sqrt(WIDTH));
        sum += score;
        for (int c = 0; c < WIDTH; c++) out[c] += score * (double)values[j * WIDTH + c];
    }
    for (int c = 0; c < WIDTH; c++) out[c] /= sum;
}

static void test_caches(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = caching_program(context);
        static _Alignas(64) float k_cache[SHARED * ROOM * WIDTH], v_cache[SHARED * ROOM * WIDTH];
        static _Alignas(64) float q[HEADS * FIRST * WIDTH], k[SHARED * FIRST * WIDTH], v[SHARED * FIRST * WIDTH];
        static _Alignas(64) float y[HEADS * FIRST * WIDTH];
        static _Alignas(64) int64_t position;
        fill(k_cache, SHARED * ROOM * WIDTH, 1);
        fill(v_cache, SHARED * ROOM * WIDTH, 2);
        for (int64_t n = FIRST, at = position = 0; at < LAST; at += n, n = 1) {
            fill(q, HEADS * FIRST * WIDTH, (uint32_t)(3 + at));
            fill(k, SHARED * FIRST * WIDTH, (uint32_t)(4 + at));
            fill(v, SHARED * FIRST * WIDTH, (uint32_t)(5 + at));
            position = at;
            tensor tensors[8];
            DLTensor start = {.data = &position, .device = {kDLCPU, 0}, .dtype = {kDLInt, 64, 1}};
            const DLTensor *inputs[] = {
                F32(&tensors[0], q, 1, HEADS, n, WIDTH),           F32(&tensors[1], k, 1, SHARED, n, WIDTH),
                F32(&tensors[2], v, 1, SHARED, n, WIDTH),          F32(&tensors[3], k_cache, 1, SHARED, ROOM, WIDTH),
                F32(&tensors[4], v_cache, 1, SHARED, ROOM, WIDTH), &start};
            dlc_output_slot slots[3] = {{F32(&tensors[5], y, 1, HEADS, n, WIDTH), NULL},
                                        {F32(&tensors[6], k_cache, 1, SHARED, ROOM, WIDTH), NULL},
                                        {F32(&tensors[7], v_cache, 1, SHARED, ROOM, WIDTH), NULL}};
            OK(context, dlc_run(program, NULL, inputs, 6, slots, 3));
            for (int64_t row = 0; row < HEADS * n; row++) {
                double expected[WIDTH];
                int64_t head = row / n / (HEADS / SHARED) * ROOM * WIDTH;
                attend(q + row * WIDTH, k_cache + head, v_cache + head, at + row % n + 1, expected);
                CLOSE(y + row * WIDTH, expected, WIDTH, 1e-5);
            }
            for (int64_t h = 0; h < SHARED; h++)
                assert_memory_equal(k_cache + (h * ROOM + at) * WIDTH, k + h * n * WIDTH,
                                    (size_t)(n * WIDTH) * sizeof *k);
        }
        assert_int_equal(statistics(context).copied_bytes, 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- symbols */

static void test_statistics(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        for (int round = 0; round < 3; round++)
            for (int64_t n = 1; n <= 3; n++) run_dense(context, program, n, NULL);
        dlc_statistics s = statistics(context);
        assert_int_equal(s.runs, 9);
        assert_int_equal(s.plan_builds, 3);
        assert_int_equal(s.plan_hits, 6);
        assert_int_equal(s.kernel_builds, 3);
        assert_int_equal(s.kernel_hits, 0);
        assert_true(s.cache_bytes > 0 && s.arena_bytes > 0 && s.compile_ns > 0);
        /* another program of the same graph finds the kernels */
        dlc_program *second = dense_program(context, "n");
        run_dense(context, second, 2, NULL);
        s = statistics(context);
        assert_int_equal(s.kernel_builds, 3);
        assert_int_equal(s.kernel_hits, 1);
        /* binding on purpose */
        OK(context, dlc_prepare(second, (const int64_t *[]){SHAPE(7, 8)}, (const int[]){2}, 1));
        uint64_t built = statistics(context).plan_builds;
        run_dense(context, second, 7, NULL);
        assert_int_equal(statistics(context).plan_builds, built);
        assert_int_equal(statistics(context).runs, 11);
        dlc_program_destroy(program);
        dlc_program_destroy(second);
        s = statistics(context);
        assert_int_equal(s.runs, 11);
        assert_int_equal(s.arena_bytes, 0);
        dlc_context_destroy(context);
    }
}

/* A symbol becomes a parameter: 200 sizes take few kernels (recurring_test counts them). */
static void test_automatic_varying(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        for (int64_t n = 1; n <= 200; n++) run_dense(context, program, n, NULL);
        assert_true(statistics(context).kernel_builds <= 3); /* 1; 2, the first other one; up to 1,024 */
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A hint for a symbol that no shape uses is no mistake: hosts may hint before they build, or for many models at once. */
static void test_hint_unused(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        OK(context, dlc_symbol_varies(g, "m", 3, 4096, 8));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
        dlc_output(g, "y", dlc_neg(x));
        dlc_program *program = compile(context, g);
        float in[3] = {1, 2, 3}, out[3];
        tensor tx, ty;
        dlc_output_slot slot = {F32(&ty, out, 3), NULL};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, 3)}, 1, &slot, 1));
        assert_true(out[2] == -3);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_declared_varying(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3)));
        OK(context, dlc_symbol_varies(g, "n", 1, 3000, 1));
        dlc_output(g, "p", dlc_softmax(x, 0)); /* two passes over a varying axis: scratch of a varying size */
        dlc_program *program = compile(context, g);
        for (int64_t n = 1; n <= 3000; n = n < 200 ? n + 1 : n * 5) {
            static float in[3000 * 3], out[3000 * 3];
            static double expected[3000 * 3];
            fill(in, (size_t)n * 3, (uint32_t)n);
            for (int j = 0; j < 3; j++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++) sum += exp(in[i * 3 + j]);
                for (int64_t i = 0; i < n; i++) expected[i * 3 + j] = exp(in[i * 3 + j]) / sum;
            }
            tensor tx, ty;
            dlc_output_slot slot = {F32(&ty, out, n, 3), NULL};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, n, 3)}, 1, &slot, 1));
            CLOSE(out, expected, (size_t)n * 3, 1e-5);
            if (n == 200) assert_true(statistics(context).kernel_builds <= 5); /* 1; up to 16; up to 1,024 */
        }
        float in[1] = {0};
        tensor tx;
        dlc_output_slot slot = {NULL, NULL};
        assert_int_equal(dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, 3001, 3)}, 1, &slot, 1),
                         DLC_INVALID_ARGUMENT);
        assert_non_null(strstr(dlc_error_message(context), "between 1 and 3000"));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Nothing or one step at a time among others: kernels of their own, built once; so have sizes up to 16. */
static void test_varying_steps(void **state) {
    static const int64_t sizes[] = {0, 1, 7, 200, 1, 9, 201, 1, 0, 33, 1};
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        OK(context, dlc_symbol_varies(g, "n", 0, 0, 0));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3)));
        dlc_output(
            g, "y",
            dlc_add(x, dlc_reduce_sum_with(x, 1, (int64_t[]){0},
                                           &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true})));
        dlc_program *program = compile(context, g);
        uint64_t builds[4] = {0};
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            static float in[201 * 3], out[201 * 3];
            static double expected[201 * 3];
            const int64_t n = sizes[k];
            fill(in, (size_t)n * 3, (uint32_t)k);
            for (int j = 0; j < 3; j++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++) sum += in[i * 3 + j];
                for (int64_t i = 0; i < n; i++) expected[i * 3 + j] = in[i * 3 + j] + sum;
            }
            tensor tx, ty;
            dlc_output_slot slot = {F32(&ty, out, n, 3), NULL};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, n, 3)}, 1, &slot, 1));
            CLOSE(out, expected, (size_t)n * 3, 1e-5);
            if (k < 4) builds[k] = statistics(context).kernel_builds;
        }
        assert_true(builds[1] > builds[0] && builds[2] > builds[1] && builds[3] > builds[2]);
        assert_int_equal(statistics(context).kernel_builds, builds[3]);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Kernels for lines of any length, from none to many runs: places ascend, of equals the first comes first. */
static void test_varying_sort(void **state) {
    static const int64_t lengths[] = {0, 1, 2, 7, 33, 55, 56, 1000, 1024, 1025, 3001, 5000};
    enum { LINES = 2, MOST = LINES * 5000 };
    static float in[MOST], out[MOST];
    static int64_t places[MOST];
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(LINES), SYMBOL("n"))), sorted[2];
        OK(context, dlc_symbol_varies(g, "n", 0, 0, 0));
        dlc_sort(x, -1, 2, sorted);
        for (int o = 0; o < 2; o++) OK(context, dlc_output(g, NULL, sorted[o]));
        dlc_program *program = compile(context, g);
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            const int64_t n = lengths[k];
            fill(in, (size_t)(LINES * n), (uint32_t)n);
            for (int64_t i = 0; i < LINES * n; i++) in[i] = i % 3 ? floorf(in[i] * 50) : in[i];
            tensor tx, ty, tp;
            dlc_output_slot slots[] = {{F32(&ty, out, LINES, n), NULL},
                                       {&make_tensor(&tp, DLC_I64, places, 2, SHAPE(LINES, n))->dl, NULL}};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, LINES, n)}, 1, slots, 2));
            for (int64_t i = 0; i < LINES * n; i++) {
                const float *line = in + i / n * n;
                assert_true(places[i] >= 0 && places[i] < n && out[i] == line[places[i]]);
                if (i % n == 0) continue;
                assert_true(out[i - 1] < out[i] || (out[i - 1] == out[i] && places[i - 1] < places[i]));
            }
        }
        assert_true(statistics(context).kernel_builds <= 5);
        if (strcmp(all_targets[t], "interp") != 0) assert_int_equal(statistics(context).interpreted_regions, 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Of long rows of scores no thread holds more than a block. */
static void test_long_attention(void **state) {
    (void)state;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.threads = 8;
    dlc_context *context = open_context("cpu", &options);
    if (!context) return;
    enum { QUERIES = 1024, KEYS = 16384, DIM = 32 };
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value q = dlc_input(g, "q", DLC_F32, 4, DIMS(SIZE(1), SIZE(1), SIZE(QUERIES), SIZE(DIM)));
    dlc_value k = dlc_input(g, "k", DLC_F32, 4, DIMS(SIZE(1), SIZE(1), SIZE(KEYS), SIZE(DIM)));
    dlc_output(g, "y", dlc_attention(q, k, k, DLC_NONE));
    dlc_program *program = compile(context, g);
    float *queries = calloc(QUERIES * DIM, sizeof *queries), *keys = calloc(KEYS * DIM, sizeof *keys);
    float *y = calloc(QUERIES * DIM, sizeof *y);
    for (int i = 0; i < KEYS * DIM; i++) keys[i] = (float)(i / DIM % 3);
    tensor tq, tk, ty;
    const DLTensor *inputs[] = {F32(&tq, queries, 1, 1, QUERIES, DIM), F32(&tk, keys, 1, 1, KEYS, DIM)};
    dlc_output_slot slot = {F32(&ty, y, 1, 1, QUERIES, DIM), NULL};
    OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
    double mean = 0; /* all scores are 0 */
    for (int i = 0; i < KEYS; i++) mean += i % 3 / (double)KEYS;
    for (int i = 0; i < QUERIES * DIM; i += 37) assert_true(fabs(y[i] - mean) < 1e-5);
    assert_true(statistics(context).arena_bytes < 2 * (QUERIES + 2 * KEYS) * DIM * sizeof(float));
    free(queries);
    free(keys);
    free(y);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* Scratch of kernels follows the sizes at hand, not the range that a varying symbol may have. */
static void test_varying_scratch(void **state) {
    (void)state;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) return;
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SYMBOL("m")));
    OK(context, dlc_symbol_varies(g, "n", 0, 0, 0));
    OK(context, dlc_symbol_varies(g, "m", 0, 0, 0));
    dlc_value e = dlc_exp(x);
    dlc_value rows = dlc_reduce_sum_with(e, 1, SHAPE(1),
                                         &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true}),
              columns = dlc_reduce_sum_with(e, 1, SHAPE(0),
                                            &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true});
    dlc_output(g, "y", dlc_softmax(dlc_add(dlc_div(e, rows), dlc_div(e, columns)), 0));
    dlc_program *program = compile(context, g);
    enum { N = 1030, M = 1040 }; /* just above a step of the ranges that kernels are built for */
    float *in = calloc(N * M, sizeof *in), *out = calloc(N * M, sizeof *out);
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, out, N, M), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, N, M)}, 1, &slot, 1));
    for (int i = 0; i < N * M; i += 997) assert_true(fabs(out[i] - 1.0 / N) < 1e-6);
    assert_true(statistics(context).arena_bytes < 16 * N * M * sizeof *in);
    free(in);
    free(out);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

static void test_output_shape(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value a = dlc_input(g, "a", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(8)));
    dlc_value b = dlc_input(g, "b", DLC_F32, 2, DIMS(SYMBOL("m"), SIZE(8)));
    dlc_output(g, "c", dlc_concat(2, (const dlc_value[]){a, b}, 0));
    dlc_program *program = compile(context, g);
    int rank = -1;
    int64_t shape[DLC_MAX_RANK];
    OK(context, dlc_output_shape(program, (const int64_t *[]){SHAPE(3, 8), SHAPE(5, 8)}, (const int[]){2, 2}, 2, 0,
                                 DLC_MAX_RANK, shape, &rank));
    assert_int_equal(rank, 2);
    assert_int_equal(shape[0], 8);
    assert_int_equal(shape[1], 8);
    assert_int_equal(statistics(context).plan_builds, 0);
    assert_int_equal(dlc_output_shape(program, (const int64_t *[]){SHAPE(3, 8), SHAPE(5, 7)}, (const int[]){2, 2}, 2, 0,
                                      DLC_MAX_RANK, shape, &rank),
                     DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "input b: dimension 1 is 7, expected 8"));
    dlc_program_destroy(program);
    dlc_context_destroy(context);
}

/* ---- products of half precision */

/* Products of half precision kept in single precision; the plain form keeps the operands' type. */
static void test_matmul_as(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_BF16, 2, DIMS(SIZE(1), SIZE(2)));
        dlc_value w = dlc_input(g, "w", DLC_BF16, 2, DIMS(SIZE(2), SIZE(1)));
        dlc_value wide = dlc_matmul_with(
                      x, w, &(dlc_matmul_options){sizeof(dlc_matmul_options), .result = DLC_MATMUL_RESULT_F32}),
                  same = dlc_matmul(x, w);
        assert_int_equal(dlc_value_dtype(wide), DLC_F32);
        assert_int_equal(dlc_value_dtype(same), DLC_BF16);
        assert_int_equal(dlc_value_dtype(dlc_dot_with(
                             x, w, &(dlc_dot_options){sizeof(dlc_dot_options), .result = DLC_DOT_RESULT_F64})),
                         DLC_F64);
        dlc_output(g, "wide", wide);
        dlc_output(g, "same", same);
        dlc_program *program = compile(context, g);
        uint16_t one[2] = {0x3f80, 0x3f80}, small[2] = {0x3f80, 0x3b80}, got; /* 1, 1; 1, 2^-8 */
        float sum;
        tensor tx, tw, to, ts;
        const DLTensor *inputs[] = {&make_tensor(&tx, DLC_BF16, one, 2, SHAPE(1, 2))->dl,
                                    &make_tensor(&tw, DLC_BF16, small, 2, SHAPE(2, 1))->dl};
        dlc_output_slot slots[2] = {{F32(&to, &sum, 1, 1), NULL},
                                    {&make_tensor(&ts, DLC_BF16, &got, 2, SHAPE(1, 1))->dl, NULL}};
        OK(context, dlc_run(program, NULL, inputs, 2, slots, 2));
        assert_true(sum == 1.00390625f); /* not in bf16, which rounds it to 1 */
        assert_int_equal(got, 0x3f80);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- what is written and when: plans beyond the limit, programs without inputs */

static void test_plan_eviction(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.plan_cache_entries = 4;
        dlc_context *context = open_context(all_targets[t], &options);
        if (!context) continue;
        dlc_program *program = dense_program(context, "n");
        for (int64_t n = 1; n <= 12; n++) run_dense(context, program, n, NULL);
        assert_int_equal(statistics(context).plan_builds, 12);
        assert_int_equal(statistics(context).plan_evictions, 8);
        run_dense(context, program, 12, NULL); /* the last ones are still there */
        run_dense(context, program, 9, NULL);
        assert_int_equal(statistics(context).plan_builds, 12);
        run_dense(context, program, 1, NULL);
        assert_int_equal(statistics(context).plan_builds, 13);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void test_no_inputs(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        enum { N = 3000 };
        static float w[N * 8];
        fill(w, N * 8, 8);
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value c =
            dlc_constant_borrow(g, DLC_F32, 2, SHAPE(N, 8), w); /* too large to fold: precomputed at the first run */
        dlc_value scaled = dlc_mul(c, dlc_scalar(g, DLC_F32, 2));
        dlc_output(g, "twice", scaled);
        dlc_output(g, "sums", dlc_reduce_sum(scaled, 1, SHAPE(1)));
        dlc_program *program = compile(context, g);
        for (int run = 0; run < 2; run++) {
            dlc_output_slot slots[2];
            memset(slots, 0, sizeof slots);
            OK(context, dlc_run(program, NULL, NULL, 0, slots, 2));
            const float *twice = slots[0].managed->dl_tensor.data, *sums = slots[1].managed->dl_tensor.data;
            for (int i = 0; i < N; i++) {
                double sum = 0;
                for (int j = 0; j < 8; j++) {
                    assert_true(twice[i * 8 + j] == 2 * w[i * 8 + j]);
                    sum += 2 * (double)w[i * 8 + j];
                }
                assert_true(fabs(sums[i] - sum) < 1e-5);
            }
            for (int o = 0; o < 2; o++) slots[o].managed->deleter(slots[o].managed);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_plain_outputs),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_packed_neighbours),
        cmocka_unit_test(test_begun),
        cmocka_unit_test(test_donation),
        cmocka_unit_test(test_large_updates),
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_automatic_varying),
        cmocka_unit_test(test_hint_unused),
        cmocka_unit_test(test_declared_varying),
        cmocka_unit_test(test_varying_steps),
        cmocka_unit_test(test_varying_sort),
        cmocka_unit_test(test_varying_scratch),
        cmocka_unit_test(test_long_attention),
        cmocka_unit_test(test_output_shape),
        cmocka_unit_test(test_matmul_as),
        cmocka_unit_test(test_plan_eviction),
        cmocka_unit_test(test_no_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
