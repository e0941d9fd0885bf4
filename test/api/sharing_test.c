/* Values that share bytes: views, parts of concatenations, results in place of operands, donated buffers of the host. That nothing is
 * copied shows in the statistics and in pages that nobody may touch; that nothing is lost, in results without sharing. */
#include "api/support.h"
#include "test/share.h"

#include <dlc/gradient.h>

#include <sys/mman.h>
#include <unistd.h>

static uint64_t copied(const dlc_context *context) {
    return statistics(context).copied_bytes;
}

static void expect_dump(dlc_context *context, dlc_program *program, const int64_t *const *shapes, const int *ranks,
                        int count, const char *wanted) {
    char *text;
    OK(context, dlc_program_dump(program, "plan", shapes, ranks, count, &text));
    if (!strstr(text, wanted)) fail_msg("the plan does not say \"%s\":\n%s", wanted, text);
    dlc_text_free(context, text);
}

/* ---- a cache that grows by a row */

enum { LENGTH = 4096, WIDTH = 256 }; /* rows of 1 KiB */

/* cache' = cache with `row` at `position`; total = sum over cache' when wanted, old = sum over the cache before. */
static dlc_program *cache_program(dlc_context *context, bool total, bool old) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value cache = dlc_input(g, "cache", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(WIDTH)));
    dlc_value row = dlc_input(g, "row", DLC_F32, 2, DIMS(SIZE(1), SIZE(WIDTH)));
    dlc_value position = dlc_input(g, "position", DLC_I64, 1, DIMS(SIZE(1)));
    dlc_value next = dlc_dynamic_update_slice(cache, dlc_add(row, row), position, 1, SHAPE(0));
    dlc_output(g, "cache", next);
    if (total) dlc_output(g, "total", dlc_reduce_sum(next, 2, SHAPE(0, 1)));
    if (old) dlc_output(g, "old", dlc_reduce_sum(cache, 2, SHAPE(0, 1)));
    dlc_program *program = compile(context, g);
    OK(context, dlc_program_alias(program, 0, 0));
    return program;
}

typedef struct cache_run {
    float *in, *out;
    float row[WIDTH], total;
    int64_t position;
} cache_run;

static void run_cache(dlc_context *context, dlc_program *program, cache_run *r, int64_t length) {
    tensor ti, tr, tp, to, tt;
    const DLTensor *inputs[] = {F32(&ti, r->in, length, WIDTH), F32(&tr, r->row, 1, WIDTH),
                                &make_tensor(&tp, DLC_I64, &r->position, 1, SHAPE(1))->dl};
    dlc_output_slot slots[2] = {{F32(&to, r->out, length, WIDTH), NULL},
                                {&make_tensor(&tt, DLC_F32, &r->total, 0, NULL)->dl, NULL}};
    OK(context, dlc_run(program, NULL, inputs, 3, slots, dlc_program_output_count(program)));
}

/* All of the cache but the page of the updated rows cannot be touched, and need not be. */
static void test_cache_in_place(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        if (!has_host_memory(all_targets[t])) continue;
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_program *program = cache_program(context, false, false);
        size_t bytes = (size_t)LENGTH * WIDTH * sizeof(float), page = (size_t)sysconf(_SC_PAGESIZE);
        float *cache = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(cache != MAP_FAILED);
        cache_run r = {.in = cache, .out = cache};
        for (int64_t step = 0; step < 8; step++) {
            r.position = step * 500;
            fill(r.row, WIDTH, (uint32_t)step);
            char *row = (char *)(cache + r.position * WIDTH), *start = row - ((uintptr_t)row & (page - 1));
            assert_int_equal(mprotect(cache, bytes, PROT_NONE), 0);
            assert_int_equal(mprotect(start, page, PROT_READ | PROT_WRITE), 0);
            run_cache(context, program, &r, LENGTH);
            for (int i = 0; i < WIDTH; i++) assert_true(cache[r.position * WIDTH + i] == 2 * r.row[i]);
        }
        assert_int_equal(mprotect(cache, bytes, PROT_READ | PROT_WRITE), 0);
        for (int64_t i = 0; i < LENGTH; i++) assert_true((cache[i * WIDTH] != 0) == (i % 500 == 0 && i < 4000));
        assert_int_equal(copied(context), 0);
        expect_dump(context, program, (const int64_t *[]){SHAPE(LENGTH, WIDTH), SHAPE(1, WIDTH), SHAPE(1)},
                    (const int[]){2, 2, 1}, 3, "output.0 is what is left of input.0");
        munmap(cache, bytes);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Two buffers, or readers of the old and of the new contents: the results are the same. */
static void test_cache_variants(void **state) {
    (void)state;
    enum { N = 16 };
    for (int t = 0; t < TARGETS; t++)
        for (int variant = 0; variant < 8; variant++) {
            bool total = variant & 1, old = variant >> 1 & 1, same = variant >> 2 & 1;
            if (total && old) continue;
            dlc_context *context = open_context(all_targets[t], NULL);
            if (!context) continue;
            dlc_program *program = cache_program(context, total, old);
            static float in[N * WIDTH], out[N * WIDTH], expected[N * WIDTH];
            fill(in, N * WIDTH, 5);
            cache_run r = {.in = in, .out = same ? in : out, .position = 3};
            fill(r.row, WIDTH, 6);
            memcpy(expected, in, sizeof in);
            double sum = 0;
            for (int i = 0; i < N * WIDTH && old; i++) sum += in[i];
            for (int i = 0; i < WIDTH; i++) expected[3 * WIDTH + i] = 2 * r.row[i];
            for (int i = 0; i < N * WIDTH && total; i++) sum += expected[i];
            run_cache(context, program, &r, N);
            assert_memory_equal(r.out, expected, sizeof expected);
            if (total || old) assert_true(fabs(r.total - sum) < 1e-3);
            if (!same) assert_true(in[3 * WIDTH] != expected[3 * WIDTH]); /* what is not shared is left alone */
            if (same && !old) assert_int_equal(copied(context), 0);
            dlc_program_destroy(program);
            dlc_context_destroy(context);
        }
}

/* Two updates of one cache in a row, each read afterwards; strided buffers. */
static void test_cache_chain(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++)
        for (int strided = 0; strided < 2; strided++) {
            dlc_context *context = open_context(all_targets[t], NULL);
            if (!context) continue;
            dlc_graph *g;
            OK(context, dlc_graph_create(context, &g));
            dlc_value cache = dlc_input(g, "cache", DLC_F32, 2, DIMS(SIZE(8), SIZE(3)));
            dlc_value row = dlc_input(g, "row", DLC_F32, 2, DIMS(SIZE(1), SIZE(3)));
            dlc_value first = dlc_scalar_i64(g, DLC_I64, 2), second = dlc_scalar_i64(g, DLC_I64, 5);
            dlc_value one = dlc_dynamic_update_slice(cache, row, first, 1, SHAPE(0));
            dlc_value sum = dlc_reduce_sum_with(
                one, 1, SHAPE(0), &(dlc_reduce_sum_options){sizeof(dlc_reduce_sum_options), .keep = true});
            dlc_output(g, "cache", dlc_dynamic_update_slice(one, sum, second, 1, SHAPE(0)));
            dlc_program *program = compile(context, g);
            OK(context, dlc_program_alias(program, 0, 0));
            float data[8 * 6], expected[8 * 3], values[3] = {1, 2, 3};
            for (int i = 0; i < 48; i++) data[i] = (float)i;
            tensor tc, tr, to;
            const DLTensor *inputs[] = {F32(&tc, data, 8, 3), F32(&tr, values, 1, 3)};
            dlc_output_slot slot = {F32(&to, data, 8, 3), NULL};
            int64_t pitch = strided ? 6 : 3;
            if (strided) {
                tc.strides[0] = to.strides[0] = 6, tc.strides[1] = to.strides[1] = 1;
                tc.dl.strides = tc.strides, to.dl.strides = to.strides;
            }
            for (int j = 0; j < 3; j++) {
                float all = 0;
                for (int i = 0; i < 8; i++) all += expected[i * 3 + j] = i == 2 ? values[j] : data[i * pitch + j];
                expected[5 * 3 + j] = all;
            }
            OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
            for (int i = 0; i < 24; i++) assert_true(data[i / 3 * pitch + i % 3] == expected[i]);
            if (!strided) assert_int_equal(copied(context), 0);
            dlc_program_destroy(program);
            dlc_context_destroy(context);
        }
}

/* A step of gradient descent touches the rows of a table that it has looked up, and no others. */
static void test_table_in_place(void **state) {
    (void)state;
    enum { LOOKUPS = 3 };
    for (int t = 0; t < TARGETS; t++) {
        if (!has_host_memory(all_targets[t])) continue;
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value table = dlc_input(g, "table", DLC_F32, 2, DIMS(SIZE(LENGTH), SIZE(WIDTH))), gradient;
        dlc_value ids = dlc_input(g, "ids", DLC_I64, 1, DIMS(SYMBOL("n")));
        dlc_value rows = dlc_embedding(table, ids), loss = dlc_reduce_sum(dlc_mul(rows, rows), 2, SHAPE(0, 1));
        dlc_gradient(loss, 1, &table, &gradient);
        OK(context, dlc_output(g, "table", dlc_sub(table, dlc_mul(dlc_input(g, "rate", DLC_F32, 0, NULL), gradient))));
        dlc_program *program = compile(context, g);
        OK(context, dlc_program_alias(program, 0, 0));
        const size_t bytes = (size_t)LENGTH * WIDTH * sizeof(float), page = (size_t)sysconf(_SC_PAGESIZE);
        float *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), rate = 0.125f;
        assert_true(data != MAP_FAILED);
        for (int i = 0; i < LENGTH * WIDTH; i++) data[i] = (float)(i % 9);
        const int64_t per_page = (int64_t)(page / (WIDTH * sizeof(float)));
        for (int64_t first = 0; first < LENGTH; first += 500 / per_page * per_page) {
            tensor tt, ti, tr, to;
            int64_t id[LOOKUPS] = {first + per_page - 1, first, first + per_page - 1};
            const DLTensor *inputs[] = {F32(&tt, data, LENGTH, WIDTH),
                                        &make_tensor(&ti, DLC_I64, id, 1, SHAPE(LOOKUPS))->dl,
                                        &make_tensor(&tr, DLC_F32, &rate, 0, NULL)->dl};
            dlc_output_slot slot = {F32(&to, data, LENGTH, WIDTH), NULL};
            assert_int_equal(mprotect(data, bytes, PROT_NONE), 0);
            assert_int_equal(mprotect(data + first * WIDTH, page, PROT_READ | PROT_WRITE), 0);
            OK(context, dlc_run(program, NULL, inputs, 3, &slot, 1));
            for (int i = 0; i < WIDTH; i++) {
                const float one = (float)((first * WIDTH + i) % 9), two = (float)((id[0] * WIDTH + i) % 9);
                assert_true(data[first * WIDTH + i] == one - 0.25f * one);
                assert_true(data[id[0] * WIDTH + i] == two - 2 * 0.25f * two);
            }
        }
        assert_int_equal(copied(context), 0);
        munmap(data, bytes);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- maps */

/* p' = p - rate*g, in place of p. */
static void test_state_in_place(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value p = dlc_input(g, "p", DLC_F32, 1, DIMS(SYMBOL("n")));
        dlc_value d = dlc_input(g, "g", DLC_F32, 1, DIMS(SYMBOL("n")));
        dlc_output(g, "p", dlc_sub(p, dlc_mul(d, dlc_scalar(g, DLC_F32, 0.5))));
        dlc_output(g, "scaled", dlc_mul(d, dlc_scalar(g, DLC_F32, 3)));
        dlc_program *program = compile(context, g);
        OK(context, dlc_program_alias(program, 0, 0));
        enum { N = 1003 };
        float x[N], y[N], z[N];
        for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 2;
        tensor tx, ty, to, tz;
        const DLTensor *inputs[] = {F32(&tx, x, N), F32(&ty, y, N)};
        dlc_output_slot slots[2] = {{F32(&to, x, N), NULL}, {F32(&tz, z, N), NULL}};
        for (int run = 1; run <= 3; run++) {
            OK(context, dlc_run(program, NULL, inputs, 2, slots, 2));
            for (int i = 0; i < N; i++) assert_true(x[i] == (float)(i - run) && z[i] == 6);
        }
        assert_int_equal(copied(context), 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Kernels one after another over the same elements: one buffer, and that is the output's. */
static void test_chain_in_place(void **state) {
    (void)state;
    setenv("DLC_DISABLE", "fuse", 1);
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n"))), y = x;
        for (int i = 0; i < 6; i++) y = dlc_add(dlc_neg(y), x);
        dlc_output(g, "y", y);
        dlc_program *program = compile(context, g);
        enum { N = 20000 };
        static float in[N], out[N];
        fill(in, N, 1);
        tensor tx, ty;
        dlc_output_slot slot = {F32(&ty, out, N), NULL};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, N)}, 1, &slot, 1));
        for (int i = 0; i < N; i++) assert_true(out[i] == in[i]);
        assert_true(statistics(context).kernel_builds >= 2);
        assert_true(statistics(context).arena_bytes < N * sizeof(float));
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
    unsetenv("DLC_DISABLE");
}

/* ---- concatenation, slices */

/* Products are written where the concatenation holds them; an input has to be copied there. */
static void test_concat_parts(void **state) {
    (void)state;
    enum { K = 24, M = 10 };
    for (int t = 0; t < TARGETS; t++)
        for (int with_input = 0; with_input < 2; with_input++) {
            dlc_context *context = open_context(all_targets[t], NULL);
            if (!context) continue;
            static float w[K * M], x[4 * K], extra[2 * M], out[10 * M];
            fill(w, K * M, 1);
            fill(x, 4 * K, 2);
            fill(extra, 2 * M, 3);
            dlc_graph *g;
            OK(context, dlc_graph_create(context, &g));
            dlc_value vx = dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(4), SIZE(K)));
            dlc_value ve = dlc_input(g, "extra", DLC_F32, 2, DIMS(SIZE(2), SIZE(M)));
            dlc_value vw = dlc_constant(g, DLC_F32, 2, SHAPE(K, M), w);
            dlc_value a = dlc_matmul(vx, vw);
            dlc_value b = dlc_reduce_sum(dlc_reshape(a, 3, DIMS(SIZE(2), SIZE(2), SIZE(M))), 1, SHAPE(0));
            if (!with_input)
                b = dlc_add(dlc_matmul(dlc_slice(vx, 2, DIMS(SIZE(0), SIZE(0)), 2, DIMS(SIZE(2), SIZE(K))), vw), b);
            dlc_output(g, "y", dlc_concat(with_input ? 3 : 2, (dlc_value[]){a, b, ve}, 0));
            dlc_program *program = compile(context, g);
            tensor tx, te, ty;
            const DLTensor *inputs[] = {F32(&tx, x, 4, K), F32(&te, extra, 2, M)};
            dlc_output_slot slot = {F32(&ty, out, with_input ? 8 : 6, M), NULL};
            OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
            for (int j = 0; j < M; j++) {
                double product[4];
                for (int i = 0; i < 4; i++) {
                    product[i] = 0;
                    for (int k = 0; k < K; k++) product[i] += (double)x[i * K + k] * w[k * M + j];
                    assert_true(fabs(out[i * M + j] - product[i]) < 1e-4);
                }
                for (int i = 0; i < 2; i++) {
                    double sum = product[i] + product[i + 2] + (with_input ? 0 : product[i]);
                    assert_true(fabs(out[(4 + i) * M + j] - sum) < 1e-4);
                    if (with_input) assert_true(out[(6 + i) * M + j] == extra[i * M + j]);
                }
            }
            assert_int_equal(copied(context), with_input ? sizeof extra : 0);
            assert_int_equal(statistics(context).arena_bytes == 0, 0);
            dlc_program_destroy(program);
            dlc_context_destroy(context);
        }
}

static const void *seen;
static void look(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)user, (void)inputs, (void)outputs;
    seen = input[0]->data;
    const float *x = input[0]->data;
    float sum = 0;
    for (int64_t i = 0; i < input[0]->shape[0] * input[0]->shape[1]; i++) sum += x[i];
    *(float *)output[0]->data = sum;
}

/* What a host function gets of an input is the host's own bytes. */
static void test_slice_view(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        OK(context, dlc_custom_register(g, "look", look, NULL));
        dlc_value x = dlc_input(g, "x", DLC_F32, 3, DIMS(SIZE(3), SIZE(5), SIZE(4)));
        dlc_value part = dlc_slice(x, 3, DIMS(SIZE(1), SIZE(2), SIZE(0)), 3, DIMS(SIZE(2), SIZE(-1), SIZE(4)));
        dlc_value flat = dlc_reshape(part, 2, DIMS(SIZE(4), SIZE(2))), sum;
        dlc_custom_call(g, 1, &flat, "look", 1, SHAPE(DLC_F32), 1, SHAPE(0), 0, NULL, 1, &sum);
        dlc_output(g, "sum", sum);
        dlc_output(g, "part", part); /* copied once, at the end */
        dlc_program *program = compile(context, g);
        float data[60], total, rows[8], expected = 0;
        for (int i = 0; i < 60; i++) data[i] = (float)i;
        for (int i = 0; i < 8; i++) expected += data[28 + i];
        tensor tx, ts, tp;
        dlc_output_slot slots[2] = {{&make_tensor(&ts, DLC_F32, &total, 0, NULL)->dl, NULL},
                                    {F32(&tp, rows, 1, 2, 4), NULL}};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, data, 3, 5, 4)}, 1, slots, 2));
        if (has_host_memory(all_targets[t])) assert_ptr_equal(seen, data + 28);
        assert_true(total == expected);
        assert_memory_equal(rows, data + 28, sizeof rows);
        assert_int_equal(copied(context), sizeof rows);
        assert_int_equal(statistics(context).kernel_builds, 0);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- random programs, with and without sharing, bit for bit */

enum { ROWS = 6, COLUMNS = 10, ELEMENTS = ROWS * COLUMNS, NODES = 14, INPUTS = 3, OUTPUTS = 3 };

static uint32_t pick(uint32_t *seed, uint32_t count) {
    noise(seed);
    return (*seed >> 10) % count;
}

/* Values of one shape; operators that keep it. */
static dlc_value random_value(dlc_graph *g, uint32_t *seed, const dlc_value *v, uint32_t count) {
    dlc_value a = v[count - 1 - pick(seed, count < 4 ? count : 4)], b = v[pick(seed, count)];
    int64_t cut = 1 + (int64_t)pick(seed, ROWS - 1);
    dlc_value top = dlc_slice(b, 2, DIMS(SIZE(0), SIZE(0)), 2, DIMS(SIZE(cut), SIZE(COLUMNS)));
    dlc_value rest = dlc_slice(a, 2, DIMS(SIZE(cut), SIZE(0)), 2, DIMS(SIZE(ROWS), SIZE(COLUMNS)));
    switch (pick(seed, 8)) {
    case 0: return dlc_add(a, b);
    case 1: return dlc_neg(a);
    case 2: return dlc_reverse(a, 1, SHAPE((int64_t)pick(seed, 2)));
    case 3: return dlc_concat(2, (dlc_value[]){dlc_neg(top), dlc_exp(rest)}, 0);
    case 4: return dlc_concat(2, (dlc_value[]){rest, top}, 0);
    case 5: return dlc_dynamic_update_slice(a, dlc_abs(top), dlc_scalar_i64(g, DLC_I64, pick(seed, ROWS)), 1, SHAPE(0));
    case 6:
        return dlc_add(a, dlc_reduce_max_with(b, 1, SHAPE(1),
                                              &(dlc_reduce_max_options){sizeof(dlc_reduce_max_options), .keep = true}));
    default:
        return dlc_reshape(dlc_mul(dlc_reshape(a, 1, DIMS(SIZE(ELEMENTS))), dlc_reshape(b, 1, DIMS(SIZE(ELEMENTS)))), 2,
                           DIMS(SIZE(ROWS), SIZE(COLUMNS)));
    }
}

/* Results for one seed; donated inputs are passed as outputs when `share`. */
static uint64_t run_random(const char *target, uint32_t seed, bool share, float out[OUTPUTS][ELEMENTS]) {
    dlc_context *context = open_context(target, NULL);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value v[INPUTS + NODES];
    const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    for (int i = 0; i < INPUTS; i++) v[i] = dlc_input(g, names[i], DLC_F32, 2, DIMS(SIZE(ROWS), SIZE(COLUMNS)));
    for (uint32_t i = INPUTS; i < INPUTS + NODES; i++) v[i] = random_value(g, &seed, v, i);
    for (int o = 0; o < OUTPUTS; o++)
        dlc_output(g, names[3 + o], o ? v[pick(&seed, INPUTS + NODES)] : v[INPUTS + NODES - 1]);
    dlc_program *program = compile(context, g);
    float in[INPUTS][ELEMENTS];
    tensor ti[INPUTS], to[OUTPUTS];
    const DLTensor *inputs[INPUTS];
    dlc_output_slot slots[OUTPUTS];
    uint32_t swap = pick(&seed, 2);
    for (int i = 0; i < INPUTS; i++) {
        fill(in[i], ELEMENTS, seed + (uint32_t)i);
        inputs[i] = F32(&ti[i], in[i], ROWS, COLUMNS);
    }
    for (uint32_t o = 0; o < OUTPUTS; o++) {
        bool donated = share && o < 2; /* outputs 0 and 1 in place of inputs 0 and 1, or 1 and 0 */
        if (donated) OK(context, dlc_program_alias(program, (int)o, (int)(o ^ swap)));
        slots[o] = (dlc_output_slot){F32(&to[o], donated ? in[o ^ swap] : out[o], ROWS, COLUMNS), NULL};
    }
    OK(context, dlc_run(program, NULL, inputs, INPUTS, slots, OUTPUTS));
    for (uint32_t o = 0; o < OUTPUTS; o++) memmove(out[o], slots[o].tensor->data, sizeof out[o]);
    uint64_t bytes = copied(context);
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return bytes;
}

static void test_random(void **state) {
    (void)state;
    static float expected[OUTPUTS][ELEMENTS], got[OUTPUTS][ELEMENTS];
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *probe = open_context(all_targets[t], NULL);
        if (!probe) continue;
        dlc_context_destroy(probe);
        int seeds = strcmp(all_targets[t], "cpu") == 0 ? test_some(60) : test_some(250);
        for (int seed = 1; seed <= seeds; seed++) {
            setenv("DLC_DISABLE", "alias", 1);
            run_random(all_targets[t], (uint32_t)seed, false, expected);
            for (int variant = 0; variant < 2; variant++) { /* regions of one node share the most */
                if (variant)
                    setenv("DLC_DISABLE", "fuse", 1);
                else
                    unsetenv("DLC_DISABLE");
                run_random(all_targets[t], (uint32_t)seed, true, got);
                for (int o = 0; o < OUTPUTS; o++)
                    for (int i = 0; i < ELEMENTS; i++)
                        if (memcmp(&expected[o][i], &got[o][i], sizeof(float)) != 0 &&
                            !(isnan(expected[o][i]) && isnan(got[o][i])))
                            fail_msg("%s, seed %d, %s: output %d, element %d is %.9g, expected %.9g", all_targets[t],
                                     seed, variant ? "no fusion" : "fusion", o, i, got[o][i], expected[o][i]);
            }
        }
    }
    unsetenv("DLC_DISABLE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_in_place), cmocka_unit_test(test_cache_variants),
        cmocka_unit_test(test_cache_chain),    cmocka_unit_test(test_table_in_place),
        cmocka_unit_test(test_state_in_place), cmocka_unit_test(test_chain_in_place),
        cmocka_unit_test(test_concat_parts),   cmocka_unit_test(test_slice_view),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
