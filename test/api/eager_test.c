/* Eager graphs and tracing: the bits of compiled programs, what is compiled how often, memory over many steps, steps, known values,
 * sizes that depend on data, effects, mistakes, allocation failure. */
#include "api/support.h"

#include <dlc/eager.h>
#include <dlc/extend.h>

/* ---- one function, both ways ------------------------------------------------------------------------------------------ */

enum { N = 12, M = 7 };

static dlc_status dense(void *user, dlc_graph *g, int n, const dlc_value *in, int m, dlc_value *out) {
    (void)user, (void)g, (void)n, (void)m;
    out[0] = dlc_softmax(dlc_matmul(in[0], in[1]), -1);
    out[1] = dlc_reduce_sum(dlc_relu(in[0]), 1, (const int64_t[]){0});
    return DLC_OK;
}

static dlc_status random_numbers(void *user, dlc_graph *g, int n, const dlc_value *in, int m, dlc_value *out) {
    (void)user, (void)n, (void)m;
    dlc_value key = dlc_cast(dlc_reduce_sum(dlc_mul(in[0], dlc_scalar(g, DLC_F32, 100)), 0, NULL), DLC_I64);
    dlc_value a = dlc_rng_uniform(g, key, 1, DIMS(SIZE(100))), b = dlc_rng_uniform(g, key, 1, DIMS(SIZE(100)));
    out[0] = a;
    out[1] = dlc_sub(a, b); /* streams of their own */
    return DLC_OK;
}

static dlc_status control(void *user, dlc_graph *g, int n, const dlc_value *in, int m, dlc_value *out) {
    (void)user, (void)n, (void)m;
    dlc_graph *then = dlc_subgraph(g), *otherwise = dlc_subgraph(g);
    dlc_value total = dlc_reduce_sum(in[0], 0, NULL), zero = dlc_scalar(g, DLC_F32, 0);
    dlc_output(then, "r", dlc_exp(in[0]));
    dlc_output(otherwise, "r", dlc_neg(in[0]));
    dlc_if(dlc_gt(total, zero), 0, NULL, then, otherwise, 1, &out[0]);
    dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
    dlc_value c = dlc_input(condition, "i", DLC_I32, 0, NULL);
    dlc_input(condition, "x", DLC_F32, 2, DIMS(SIZE(N), SIZE(M)));
    dlc_output(condition, "go", dlc_lt(c, dlc_scalar_i64(condition, DLC_I32, 5)));
    dlc_value i = dlc_input(body, "i", DLC_I32, 0, NULL), x = dlc_input(body, "x", DLC_F32, 2, DIMS(SIZE(N), SIZE(M)));
    dlc_output(body, "i", dlc_add(i, dlc_scalar_i64(body, DLC_I32, 1)));
    dlc_output(body, "x", dlc_add(dlc_mul(x, dlc_scalar(body, DLC_F32, 0.5)), in[0]));
    dlc_value results[2];
    dlc_while(2, (const dlc_value[]){dlc_scalar_i64(g, DLC_I32, 0), in[0]}, condition, body, 2, results);
    out[1] = results[1];
    return DLC_OK;
}

static dlc_status moved(void *user, dlc_graph *g, int n, const dlc_value *in, int m, dlc_value *out) {
    (void)user, (void)g, (void)n, (void)m;
    out[0] = dlc_transpose(in[0], 2, (const int64_t[]){1, 0});
    out[1] = in[1]; /* a known value */
    return DLC_OK;
}

static dlc_traced_function *const functions[] = {dense, random_numbers, control, moved};

static void fill_inputs(float *x, float *w) {
    fill(x, N * M, 3);
    fill(w, M * N, 4);
}

static size_t bytes_of(const DLTensor *t) {
    size_t bytes = (size_t)t->dtype.bits / 8;
    for (int d = 0; d < t->ndim; d++) bytes *= (size_t)t->shape[d];
    return bytes;
}

static void release(DLManagedTensorVersioned *managed) {
    managed->deleter(managed);
}

static void run_traced(dlc_context *context, dlc_traced_function *function, const DLTensor *const *inputs,
                       dlc_output_slot *slots) {
    const dlc_trace_input described[] = {{"x", DLC_F32, 2, DIMS(SIZE(N), SIZE(M))},
                                         {"w", DLC_F32, 2, DIMS(SYMBOL("m"), SYMBOL("n"))}};
    dlc_graph *g;
    OK(context, dlc_trace(context, function, NULL, 2, described, 2, NULL, &g));
    dlc_program *program = compile(context, g);
    assert_string_equal(dlc_program_output_name(program, 1), "1");
    OK(context, dlc_run(program, NULL, inputs, 2, slots, 2));
    dlc_program_destroy(program);
}

static void test_bits(void **state) {
    (void)state;
    float x[N * M], w[M * N];
    fill_inputs(x, w);
    for (int t = 0; t < TARGETS; t++) {
        counter c;
        dlc_context *context = open_counted(all_targets[t], &c);
        if (!context) continue;
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
            tensor tx, tw;
            const DLTensor *inputs[] = {F32(&tx, x, N, M), F32(&tw, w, M, N)};
            dlc_output_slot slots[2] = {{NULL, NULL}, {NULL, NULL}};
            run_traced(context, functions[f], inputs, slots);
            uint64_t kernels = statistics(context).kernel_builds;
            dlc_graph *g;
            OK(context, dlc_eager_create(context, NULL, &g));
            dlc_value in[] = {dlc_eager_tensor(g, inputs[0]), dlc_eager_borrow(g, inputs[1])}, out[2];
            assert_int_equal(functions[f](NULL, g, 2, in, 2, out), DLC_OK);
            assert_false(dlc_eager_known(out[0]));
            assert_true(dlc_eager_known(in[0]));
            OK(context, dlc_eager_evaluate(g, 2, out));
            assert_true(dlc_eager_known(out[0]) && dlc_eager_known(out[1]));
            assert_int_equal(statistics(context).kernel_builds, kernels);
            uint64_t runs = statistics(context).runs;
            for (int k = 0; k < 2; k++) {
                DLManagedTensorVersioned *got;
                OK(context, dlc_eager_get(g, out[k], &got));
                const DLTensor *expected = &slots[k].managed->dl_tensor;
                assert_int_equal(got->dl_tensor.ndim, expected->ndim);
                assert_int_equal(bytes_of(&got->dl_tensor), bytes_of(expected));
                assert_memory_equal(got->dl_tensor.data, expected->data, bytes_of(expected));
                release(got);
                release(slots[k].managed);
            }
            assert_int_equal(statistics(context).runs, runs);
            dlc_graph_destroy(g);
        }
        dlc_context_destroy(context);
        assert_int_equal(c.blocks, 0);
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------------ */

static void test_steps(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        counter c;
        dlc_context *context = open_counted(all_targets[t], &c);
        if (!context) continue;
        float x[N * M], w[M * N], expected = 1, one = 1;
        fill_inputs(x, w);
        dlc_graph *g;
        OK(context, dlc_eager_create(context, NULL, &g));
        tensor tx, tone;
        dlc_value values[] = {dlc_eager_tensor(g, F32(&tx, x, N, M)),
                              dlc_eager_tensor(g, &make_tensor(&tone, DLC_F32, &one, 0, NULL)->dl)};
        dlc_statistics first = {0};
        int64_t bytes = 0, blocks = 0;
        for (int k = 0; k < 1000; k++) {
            dlc_value stale = values[1];
            dlc_value norm = dlc_sqrt(dlc_reduce_sum(dlc_mul(values[0], values[0]), 0, NULL));
            values[0] = dlc_add(dlc_div(values[0], norm), dlc_scalar(g, DLC_F32, 0.25));
            values[1] = dlc_add(values[1], dlc_scalar(g, DLC_F32, 1));
            expected += 1;
            OK(context, dlc_eager_step(g, 2, values));
            double number;
            assert_false(dlc_value_ok(stale));
            assert_int_equal(dlc_eager_number(g, stale, &number), DLC_INVALID_ARGUMENT);
            assert_non_null(strstr(dlc_error_message(context), "did not keep"));
            OK(context, dlc_eager_number(g, values[1], &number));
            assert_true(number == (double)expected);
            if (k == 2) {
                first = statistics(context);
                bytes = c.bytes;
                blocks = c.blocks;
            }
        }
        dlc_statistics last = statistics(context);
        assert_int_equal(last.kernel_builds, first.kernel_builds);
        assert_int_equal(last.plan_builds, first.plan_builds);
        assert_int_equal(c.bytes, bytes);
        assert_int_equal(c.blocks, blocks);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
        assert_int_equal(c.blocks, 0);
    }
}

/* Sizes that change: programs are bounded, what left is compiled again. */
static void test_programs_bounded(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    dlc_eager_options options = DLC_EAGER_OPTIONS_INIT;
    options.programs = 3;
    float x[64];
    fill(x, 64, 1);
    dlc_graph *g;
    OK(context, dlc_eager_create(context, &options, &g));
    for (int k = 0; k < 40; k++) {
        tensor tx, tr;
        float result[64];
        const float factor = (float)(1 + k % 20);
        dlc_value r = dlc_mul(dlc_eager_borrow(g, F32(&tx, x, 64)), dlc_scalar(g, DLC_F32, (double)factor));
        OK(context, dlc_eager_read(g, r, (DLTensor *)F32(&tr, result, 64)));
        for (int i = 0; i < 64; i++) assert_true(result[i] == factor * x[i]);
        OK(context, dlc_eager_step(g, 0, NULL));
    }
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- sizes that change: parts that differ in sizes alone have one program, whose kernels are soon those of all sizes ---- */

enum { SIZES = 40, WIDTH = 16, OUT_MAX = 4096 };

typedef dlc_value sized_function(dlc_graph *g, dlc_value x, dlc_value y, int64_t n, int64_t k);

static dlc_value sized_rows(dlc_graph *g, dlc_value x, dlc_value y, int64_t n, int64_t k) { /* x [n, 16], y [k, 16] */
    (void)n, (void)k;
    dlc_value w = dlc_slice(y, 2, DIMS(SIZE(0), SIZE(0)), 2, DIMS(SIZE(1), SIZE(WIDTH)));
    return dlc_relu(dlc_sub(dlc_mul(x, w), dlc_scalar(g, DLC_F32, 0.125)));
}

static dlc_value sized_shapes(dlc_graph *g, dlc_value x, dlc_value y, int64_t n, int64_t k) {
    dlc_value both = dlc_concat(2, (const dlc_value[]){x, y}, 0);
    dlc_value flat = dlc_reshape(both, 1, DIMS(SIZE((n + k) * WIDTH)));
    dlc_value part = dlc_slice(flat, 1, DIMS(SIZE(n)), 1, DIMS(SIZE((n + k) * WIDTH - 1)));
    dlc_value table =
        dlc_broadcast(dlc_reduce_max(x, 1, (const int64_t[]){1}), 2, DIMS(SIZE(k), SIZE(n)), 1, (const int64_t[]){1});
    dlc_value product = dlc_reshape(table, 1, DIMS(SIZE(n * k)));
    (void)g;
    return dlc_concat(2, (const dlc_value[]){part, product}, 0);
}

static dlc_value sized_loop(dlc_graph *g, dlc_value x, dlc_value y, int64_t n, int64_t k) {
    dlc_graph *body = dlc_subgraph(g), *condition = dlc_subgraph(g);
    dlc_value c = dlc_input(condition, "i", DLC_I32, 0, NULL);
    dlc_input(condition, "x", DLC_F32, 2, DIMS(SIZE(n), SIZE(WIDTH)));
    dlc_output(condition, "go", dlc_lt(c, dlc_scalar_i64(condition, DLC_I32, 3)));
    dlc_value i = dlc_input(body, "i", DLC_I32, 0, NULL);
    dlc_value v = dlc_input(body, "x", DLC_F32, 2, DIMS(SIZE(n), SIZE(WIDTH))), results[2];
    dlc_output(body, "i", dlc_add(i, dlc_scalar_i64(body, DLC_I32, 1)));
    dlc_output(body, "x", dlc_add(dlc_mul(v, dlc_scalar(body, DLC_F32, 0.5)), x));
    dlc_while(2, (const dlc_value[]){dlc_scalar_i64(g, DLC_I32, 0), x}, condition, body, 2, results);
    (void)y, (void)k;
    return results[1];
}

/* Places that follow from no dimension. */
static dlc_value sized_places(dlc_graph *g, dlc_value x, dlc_value y, int64_t n, int64_t k) {
    const int64_t from = k * k % n, to = from + (n - from) / 2 + 1;
    dlc_value part = dlc_slice(x, 2, DIMS(SIZE(from), SIZE(k)), 2, DIMS(SIZE(to), SIZE(WIDTH)));
    (void)g, (void)y;
    return dlc_neg(part);
}

/* A constant of the size at hand: there is no program for two of them. */
static dlc_value sized_constant(dlc_graph *g, dlc_value x, dlc_value y, int64_t n, int64_t k) {
    float column[SIZES * 3];
    for (int64_t i = 0; i < n; i++) column[i] = (float)(i * i);
    (void)y, (void)k;
    return dlc_add(x, dlc_constant(g, DLC_F32, 2, (const int64_t[]){n, 1}, column));
}

/* A transform needs its length as a number: programs of each length. */
static dlc_value sized_transform(dlc_graph *g, dlc_value x, dlc_value y, int64_t n, int64_t k) {
    (void)y, (void)k;
    dlc_value spectrum = dlc_dft(dlc_reshape(x, 2, DIMS(SIZE(n * WIDTH), SIZE(1))), 0);
    return dlc_round(dlc_mul(spectrum, dlc_scalar(g, DLC_F32, 16)));
}

static int64_t evaluate_sized(dlc_context *context, dlc_graph *g, sized_function *function, int64_t n, int64_t k,
                              float *out) {
    static float x[2 * SIZES * WIDTH], y[2 * SIZES * WIDTH];
    tensor tx, ty;
    fill(x, (size_t)n * WIDTH, (int)n);
    fill(y, (size_t)k * WIDTH, (int)k + 50);
    dlc_value r =
        function(g, dlc_eager_tensor(g, F32(&tx, x, n, WIDTH)), dlc_eager_tensor(g, F32(&ty, y, k, WIDTH)), n, k);
    DLManagedTensorVersioned *result;
    if (dlc_eager_get(g, r, &result) != DLC_OK) fail_msg("%s; %s", dlc_error_message(context), dlc_graph_message(g));
    const DLTensor *dl = &result->dl_tensor;
    int64_t count = 1;
    for (int d = 0; d < dl->ndim; d++) count *= dl->shape[d];
    assert_in_range(count, 1, OUT_MAX);
    memcpy(out, dl->data, (size_t)count * sizeof *out);
    release(result);
    OK(context, dlc_eager_step(g, 0, NULL));
    return count;
}

static uint64_t kernels_of(dlc_context *context) {
    dlc_statistics s = DLC_STATISTICS_INIT;
    dlc_context_statistics(context, &s);
    return s.kernel_builds;
}

static void test_changing_sizes(void **state) {
    (void)state;
    static float out[OUT_MAX], expected[OUT_MAX];
    static sized_function *const functions_of_size[] = {sized_rows,   sized_shapes,   sized_loop,
                                                        sized_places, sized_constant, sized_transform};
    for (size_t f = 0; f < sizeof functions_of_size / sizeof *functions_of_size; f++) {
        dlc_context *context = open_context("cpu", NULL), *other = open_context("interp", NULL);
        if (!context) context = open_context("interp", NULL);
        dlc_graph *g, *exact;
        OK(context, dlc_eager_create(context, NULL, &g));
        uint64_t builds = 0;
        for (int64_t run = 0; run < SIZES; run++) {
            const int64_t n = 1 + run * 7 % SIZES, k = 1 + run * 3 % 11; /* n and k meet, too */
            int64_t count = evaluate_sized(context, g, functions_of_size[f], n, k, out);
            OK(other, dlc_eager_create(other, NULL, &exact));
            assert_int_equal(evaluate_sized(other, exact, functions_of_size[f], n, k, expected), count);
            dlc_graph_destroy(exact);
            if (memcmp(out, expected, (size_t)count * sizeof *out) != 0)
                fail_msg("function %zu, sizes %lld, %lld", f, (long long)n, (long long)k);
            if (run == SIZES * 7 / 8) builds = kernels_of(context);
        }
        if (f < 4) assert_int_equal(kernels_of(context), builds);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
        dlc_context_destroy(other);
    }
}

/* ---- tensors ---------------------------------------------------------------------------------------------------------- */

static void test_tensors(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        float x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, out[24];
        tensor tx, to;
        dlc_graph *g;
        OK(context, dlc_eager_create(context, NULL, &g));
        make_tensor(&tx, DLC_F32, x, 2, SHAPE(3, 4)); /* transposed by strides */
        tx.strides[0] = 1, tx.strides[1] = 3;
        tx.dl.strides = tx.strides;
        dlc_value copied = dlc_eager_tensor(g, &tx.dl), borrowed = dlc_eager_borrow(g, &tx.dl);
        dlc_value both = dlc_add(copied, borrowed);
        DLManagedTensorVersioned *kept, *again;
        OK(context, dlc_eager_get(g, both, &kept));
        OK(context, dlc_eager_get(g, both, &again));
        assert_ptr_equal(kept->dl_tensor.data, again->dl_tensor.data);
        assert_true(kept->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
        release(again);
        x[1] = 100; /* the copy does not see it */
        OK(context, dlc_eager_read(g, copied, (DLTensor *)F32(&to, out, 3, 4)));
        for (int i = 0; i < 12; i++) assert_true(out[i] == (float)(i % 4 * 3 + i / 4));
        make_tensor(&to, DLC_F32, out, 2, SHAPE(3, 4)); /* into strides */
        to.strides[0] = 8, to.strides[1] = 2;
        to.dl.strides = to.strides;
        OK(context, dlc_eager_read(g, both, &to.dl));
        for (int i = 0; i < 12; i++) assert_true(out[2 * i] == (float)(2 * (i % 4 * 3 + i / 4)));
        assert_int_equal(dlc_eager_read(g, both, (DLTensor *)F32(&to, out, 4, 3)), DLC_INVALID_ARGUMENT);
        assert_int_equal(dlc_eager_read(g, both, NULL), DLC_INVALID_ARGUMENT);
        double number;
        assert_int_equal(dlc_eager_number(g, both, &number), DLC_INVALID_ARGUMENT);
        assert_non_null(strstr(dlc_error_message(context), "12 elements"));
        OK(context, dlc_eager_number(g, dlc_scalar_i64(g, DLC_I8, -7), &number));
        assert_true(number == -7);
        OK(context, dlc_eager_number(g, dlc_gt(dlc_scalar(g, DLC_F32, 2), dlc_scalar(g, DLC_F32, 1)), &number));
        assert_true(number == 1);
        dlc_graph_destroy(g);
        assert_true(((const float *)kept->dl_tensor.data)[11] == 22); /* outlives the graph */
        release(kept);
        dlc_context_destroy(context);
    }
}

/* Symbols that count: known values carry them on, and a step makes them numbers. */
static void test_counted(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        float x[6] = {0, 3, 0, 5, 7, 0};
        tensor tx;
        dlc_graph *g;
        OK(context, dlc_eager_create(context, NULL, &g));
        dlc_value v = dlc_eager_tensor(g, F32(&tx, x, 6));
        dlc_value where = dlc_reshape(dlc_non_zero(v, 1, DIMS(SYMBOL("c"))), 1, DIMS(SYMBOL("c")));
        assert_string_equal(dlc_value_dim(where, 0).name, "c");
        OK(context, dlc_eager_evaluate(g, 1, &where));
        dlc_value picked = dlc_gather(v, where, 0), sum = dlc_reduce_sum(picked, 0, NULL);
        double number;
        OK(context, dlc_eager_number(g, sum, &number));
        assert_true(number == 15);
        dlc_value twice = dlc_concat(2, (const dlc_value[]){picked, picked}, 0);
        OK(context, dlc_eager_evaluate(g, 1, &twice)); /* of size 2 c: computed again where it is used */
        OK(context, dlc_eager_number(g, dlc_reduce_sum(twice, 0, NULL), &number));
        assert_true(number == 30);
        dlc_value kept[] = {twice};
        OK(context, dlc_eager_step(g, 1, kept));
        assert_int_equal(dlc_value_dim(kept[0], 0).value, 6);
        OK(context, dlc_eager_number(g, dlc_reduce_sum(kept[0], 0, NULL), &number));
        assert_true(number == 30);
        dlc_graph_destroy(g);
        dlc_context_destroy(context);
    }
}

/* ---- effects ---------------------------------------------------------------------------------------------------------- */

static void count_calls(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)inputs, (void)input, (void)outputs, (void)output;
    ++*(int *)user;
}

/* Two calls, in a loop whose result nobody reads. */
static void count_in_loop(dlc_graph *g) {
    dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
    dlc_value i = dlc_input(condition, "i", DLC_I32, 0, NULL), j = dlc_input(body, "i", DLC_I32, 0, NULL);
    dlc_value first = dlc_scalar_i64(g, DLC_I32, 0), last;
    dlc_output(condition, "go", dlc_lt(i, dlc_scalar_i64(condition, DLC_I32, 2)));
    dlc_custom_effect(body, 1, &j, "count", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
    dlc_output(body, "i", dlc_add(j, dlc_scalar_i64(body, DLC_I32, 1)));
    dlc_while(1, &first, condition, body, 1, &last);
}

static void test_effects(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    int calls = 0;
    float x[3] = {1, 2, 3};
    tensor tx;
    dlc_graph *g;
    OK(context, dlc_eager_create(context, NULL, &g));
    OK(context, dlc_custom_register(g, "count", count_calls, &calls));
    for (int k = 0; k < 2; k++) {
        dlc_value v = dlc_eager_tensor(g, F32(&tx, x, 3)), y = dlc_neg(v), z = dlc_exp(v);
        dlc_custom_effect(g, 1, &y, "count", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
        count_in_loop(g);
        assert_int_equal(calls, 3 * k);
        OK(context, dlc_eager_evaluate(g, 1, &z));
        assert_int_equal(calls, 3 * k + 3);
        OK(context, dlc_eager_evaluate(g, 1, &y));
        assert_int_equal(calls, 3 * k + 3);
        OK(context, dlc_eager_step(g, 0, NULL)); /* the function stays */
    }
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

typedef struct reentrance {
    dlc_graph *graph;
    dlc_value other;
    dlc_status step, evaluate;
} reentrance;

static dlc_status reenter(void *user, dlc_callback *callback, int inputs, const DLTensor *const *in, int outputs,
                          DLTensor *const *out) {
    (void)callback, (void)inputs, (void)outputs;
    reentrance *r = user;
    r->step = dlc_eager_step(r->graph, 0, NULL);
    r->evaluate = dlc_eager_evaluate(r->graph, 1, &r->other);
    memcpy(out[0]->data, in[0]->data, 3 * sizeof(float));
    return DLC_OK;
}

/* A function that an evaluation calls cannot have the graph evaluated, or renewed under that evaluation. */
static void test_reentrance(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    float x[3] = {1, 2, 3};
    tensor tx;
    reentrance r = {0};
    dlc_operator_options options = DLC_OPERATOR_OPTIONS_INIT;
    options.name = "reenter", options.operands = "x", options.shape = "T[n] -> T[n]", options.call = reenter;
    options.user = &r;
    OK(context, dlc_operator_register(context, &options));
    OK(context, dlc_eager_create(context, NULL, &r.graph));
    dlc_value v = dlc_eager_tensor(r.graph, F32(&tx, x, 3)), y = dlc_apply(r.graph, "reenter", 1, &v, 0, NULL);
    r.other = dlc_neg(v);
    OK(context, dlc_eager_evaluate(r.graph, 1, &y));
    assert_int_equal(r.step, DLC_INVALID_ARGUMENT);
    assert_int_equal(r.evaluate, DLC_INVALID_ARGUMENT);
    OK(context, dlc_eager_step(r.graph, 1, &y));
    dlc_graph_destroy(r.graph);
    dlc_context_destroy(context);
}

static void count_effect(void *user, int inputs, const DLTensor *const *in, int outputs, DLTensor *const *out) {
    (void)inputs, (void)outputs;
    ++*(int *)user;
    memcpy(out[0]->data, in[0]->data, sizeof(float));
}

typedef struct added_effect {
    dlc_graph *graph;
    int calls;
} added_effect;

static dlc_status add_effect(void *user, dlc_callback *callback, int inputs, const DLTensor *const *in, int outputs,
                             DLTensor *const *out) {
    added_effect *a = user;
    dlc_value x = dlc_scalar(a->graph, DLC_F32, 1), y;
    (void)callback, (void)inputs, (void)outputs;
    dlc_custom_register(a->graph, "count", count_effect, &a->calls);
    dlc_custom_effect(a->graph, 1, &x, "count", 1, (int64_t[]){DLC_F32}, 1, (int64_t[]){0}, 0, NULL, 1, &y);
    memcpy(out[0]->data, in[0]->data, sizeof(float));
    return DLC_OK;
}

/* An effect that a function adds while an evaluation calls it belongs to the next evaluation. */
static void test_effect_added_inside(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    added_effect a = {0};
    double number;
    dlc_operator_options options = DLC_OPERATOR_OPTIONS_INIT;
    options.name = "adds", options.operands = "x", options.shape = "T[] -> T[]", options.call = add_effect;
    options.user = &a;
    OK(context, dlc_operator_register(context, &options));
    OK(context, dlc_eager_create(context, NULL, &a.graph));
    dlc_value x = dlc_scalar(a.graph, DLC_F32, 2), y = dlc_apply(a.graph, "adds", 1, &x, 0, NULL);
    OK(context, dlc_eager_number(a.graph, y, &number));
    assert_int_equal(a.calls, 0);
    for (int i = 0; i < 2; i++) {
        OK(context, dlc_eager_evaluate(a.graph, 1, &y));
        assert_int_equal(a.calls, 1);
    }
    dlc_graph_destroy(a.graph);
    dlc_context_destroy(context);
}

static dlc_status touch(void *user, dlc_callback *callback, int inputs, const DLTensor *const *in, int outputs,
                        DLTensor *const *out) {
    (void)callback, (void)inputs, (void)outputs;
    int *left = user; /* calls until one fails */
    memcpy(out[0]->data, in[0]->data, (size_t)in[0]->shape[0] * sizeof(float));
    return --*left < 0 ? DLC_INVALID_ARGUMENT : DLC_OK;
}

/* Parts that differ in sizes, whose effect stands in the body of a loop: nothing that failed happens again. */
static void test_effects_in_loops(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    int left = 6;
    float data[8] = {1, 2, 3};
    dlc_graph *g;
    dlc_operator_options touching = DLC_OPERATOR_OPTIONS_INIT;
    touching.name = "touch";
    touching.operands = "x";
    touching.dtypes = "f32";
    touching.shape = "T[n] -> T[n]";
    touching.call = touch;
    touching.user = &left;
    touching.has_effects = true;
    OK(context, dlc_operator_register(context, &touching));
    OK(context, dlc_eager_create(context, NULL, &g));
    for (int n = 4; n < 7; n++) {
        tensor t;
        dlc_value x = dlc_eager_tensor(g, F32(&t, data, n)), result[2];
        dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
        dlc_value i = dlc_input(condition, "i", DLC_I32, 0, NULL);
        dlc_input(condition, "x", DLC_F32, 1, (dlc_dim[]){{n, NULL}});
        dlc_output(condition, "go", dlc_lt(i, dlc_scalar_i64(condition, DLC_I32, 3)));
        dlc_value j = dlc_input(body, "i", DLC_I32, 0, NULL),
                  y = dlc_input(body, "x", DLC_F32, 1, (dlc_dim[]){{n, NULL}});
        dlc_output(body, "i", dlc_add(j, dlc_scalar_i64(body, DLC_I32, 1)));
        dlc_output(body, "x", dlc_apply(body, "touch", 1, &y, 0, NULL));
        dlc_while(2, (dlc_value[]){dlc_scalar_i64(g, DLC_I32, 0), x}, condition, body, 2, result);
        dlc_status status = dlc_eager_evaluate(g, 1, &result[1]);
        assert_int_equal(status, n < 6 ? DLC_OK : DLC_INVALID_ARGUMENT);
    }
    assert_int_equal(left, -1); /* three calls, three calls, and the one that failed */
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- mistakes --------------------------------------------------------------------------------------------------------- */

static dlc_status asks(void *user, dlc_graph *g, int n, const dlc_value *in, int m, dlc_value *out) {
    (void)n, (void)m;
    double number = 1;
    dlc_status status = dlc_eager_number(g, dlc_reduce_sum(in[0], 0, NULL), &number);
    out[0] = number > 0 ? in[0] : dlc_neg(in[0]);
    return *(const int *)user ? DLC_OK : status; /* one that looks, one that does not */
}

static dlc_status sets_nothing(void *user, dlc_graph *g, int n, const dlc_value *in, int m, dlc_value *out) {
    (void)user, (void)g, (void)n, (void)in, (void)m, (void)out;
    return DLC_OK;
}

static dlc_status gives_up(void *user, dlc_graph *g, int n, const dlc_value *in, int m, dlc_value *out) {
    (void)user, (void)g, (void)n, (void)in, (void)m, (void)out;
    return DLC_CANCELLED;
}

static dlc_status returns_no_status(void *user, dlc_graph *g, int count, const dlc_value *in, int results,
                                    dlc_value *out) {
    (void)user, (void)g, (void)count, (void)in, (void)results, (void)out;
    return (dlc_status)-5;
}

static void test_trace_mistakes(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    const dlc_trace_input input = {"x", DLC_F32, 1, DIMS(SYMBOL("n"))};
    dlc_graph *g;
    for (int ignores = 0; ignores < 2; ignores++) {
        assert_int_equal(dlc_trace(context, asks, &ignores, 1, &input, 1, NULL, &g), DLC_INVALID_ARGUMENT);
        assert_null(g);
        assert_non_null(strstr(dlc_error_message(context), "being traced"));
    }
    assert_int_equal(dlc_trace(context, sets_nothing, NULL, 1, &input, 1, NULL, &g), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "output 0"));
    assert_int_equal(dlc_trace(context, gives_up, NULL, 1, &input, 1, NULL, &g), DLC_CANCELLED);
    assert_int_equal(dlc_trace(context, returns_no_status, NULL, 1, &input, 1, NULL, &g), DLC_INTERNAL);
    assert_non_null(strstr(dlc_error_message(context), "returned -5, which is no status"));
    assert_int_equal(dlc_trace(context, NULL, NULL, 1, &input, 1, NULL, &g), DLC_INVALID_ARGUMENT);
    /* the same function on tensors */
    int looks = 0;
    float x[2] = {-1, -2};
    tensor tx;
    OK(context, dlc_eager_create(context, NULL, &g));
    dlc_value v = dlc_eager_tensor(g, F32(&tx, x, 2)), r;
    OK(context, asks(&looks, g, 1, &v, 1, &r));
    double number;
    OK(context, dlc_eager_number(g, dlc_reduce_sum(r, 0, NULL), &number));
    assert_true(number == 3);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

static void test_mistakes(void **state) {
    (void)state;
    dlc_context *context = open_context("interp", NULL);
    float x[6] = {1, 2, 3, 4, 5, 6};
    tensor ta, tb;
    dlc_graph *g, *other;
    assert_int_equal(dlc_eager_create(NULL, NULL, &g), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_eager_create(context, NULL, NULL), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_eager_create(context, &(dlc_eager_options){0}, &g), DLC_INVALID_ARGUMENT);
    OK(context, dlc_eager_create(context, NULL, &g));
    OK(context, dlc_eager_create(context, NULL, &other));
    dlc_value a = dlc_eager_tensor(g, F32(&ta, x, 2)), b = dlc_eager_tensor(g, F32(&tb, x, 3));
    dlc_value bad = dlc_relu(dlc_add(a, b)), foreign = dlc_eager_tensor(other, F32(&ta, x, 2));
    DLManagedTensorVersioned *got;
    assert_int_equal(dlc_eager_get(g, bad, &got), DLC_INVALID_ARGUMENT);
    assert_null(got);
    assert_non_null(strstr(dlc_error_message(context), "add(")); /* the first mistake */
    assert_int_equal(dlc_eager_evaluate(g, 1, &foreign), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "another graph"));
    make_tensor(&tb, DLC_F32, x, 1, SHAPE(2));
    tb.strides[0] = 0, tb.dl.strides = tb.strides;
    assert_int_equal(dlc_eager_read(g, a, &tb.dl), DLC_INVALID_ARGUMENT);
    assert_string_equal(dlc_error_message(context), /* the call is named once */
                        "dlc_eager_read: output 0 has strides under which elements overlap");
    dlc_graph *sub = dlc_subgraph(g);
    dlc_value inner = dlc_neg(dlc_input(sub, "i", DLC_F32, 0, NULL));
    assert_int_equal(dlc_eager_evaluate(g, 1, &inner), DLC_INVALID_ARGUMENT);
    double number;
    OK(context, dlc_eager_number(g, dlc_reduce_sum(a, 0, NULL), &number)); /* others stay usable */
    assert_true(number == 3);
    OK(context, dlc_eager_step(g, 1, &a));
    assert_int_equal(dlc_graph_status(g), DLC_OK);
    /* tensors */
    static const int code = 99;
    assert_false(dlc_value_ok(dlc_eager_tensor(g, NULL)));
    OK(context, dlc_eager_step(g, 1, &a));
    make_tensor(&ta, DLC_F32, NULL, 1, SHAPE(2));
    assert_false(dlc_value_ok(dlc_eager_tensor(g, &ta.dl)));
    make_tensor(&ta, DLC_F32, x, 1, SHAPE(-2));
    assert_false(dlc_value_ok(dlc_eager_tensor(g, &ta.dl)));
    make_tensor(&ta, DLC_F32, x, 1, SHAPE(2));
    ta.dl.dtype.code = (uint8_t)code;
    assert_false(dlc_value_ok(dlc_eager_borrow(g, &ta.dl)));
    make_tensor(&ta, DLC_F32, x, 1, SHAPE(2));
    ta.dl.device.device_type = kDLCUDA;
    assert_false(dlc_value_ok(dlc_eager_borrow(g, &ta.dl)));
    /* inputs of run time have no tensor */
    OK(context, dlc_eager_step(g, 0, NULL));
    dlc_value input = dlc_input(g, "late", DLC_F32, 0, NULL);
    assert_int_equal(dlc_eager_number(g, dlc_neg(input), &number), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "late"));
    dlc_graph_destroy(other);
    assert_int_equal(dlc_eager_evaluate(other, 0, NULL), DLC_INVALID_ARGUMENT);
    dlc_graph_destroy(g);
    dlc_context_destroy(context);
}

/* ---- allocation failure ----------------------------------------------------------------------------------------------- */

/* Create, compute, step, read. DLC_OK or what failed; a failure leaves everything usable. */
static dlc_status whole(dlc_context *context, float *result) {
    float x[4] = {1, 2, 3, 4};
    tensor tx, tr;
    dlc_graph *g;
    dlc_status status = dlc_eager_create(context, NULL, &g);
    if (status != DLC_OK) return status;
    dlc_value v = dlc_eager_tensor(g, F32(&tx, x, 4));
    for (int k = 0; k < 2 && status == DLC_OK; k++) {
        v = dlc_mul(v, dlc_scalar(g, DLC_F32, 2));
        status = dlc_eager_step(g, 1, &v);
    }
    for (int rows = 3; rows > 0 && status == DLC_OK; rows--) { /* sizes that change */
        dlc_value part = dlc_mul(dlc_eager_tensor(g, F32(&tx, x, rows)), dlc_scalar(g, DLC_F32, 2));
        status = dlc_eager_evaluate(g, 1, &part);
    }
    if (status == DLC_OK) status = dlc_eager_read(g, dlc_neg(v), (DLTensor *)F32(&tr, result, 4));
    DLManagedTensorVersioned *got = NULL;
    if (status == DLC_OK) status = dlc_eager_get(g, v, &got);
    if (got) release(got);
    dlc_graph_destroy(g);
    return status;
}

static void test_allocation_failure(void **state) {
    (void)state;
    counter c;
    dlc_context *context = open_counted("interp", &c);
    float result[4];
    dlc_status status = DLC_OUT_OF_MEMORY;
    int refused = 0;
    for (int64_t n = 0; status != DLC_OK; n++) {
        atomic_store(&c.left, n);
        status = whole(context, result);
        atomic_store(&c.left, -1);
        if (status == DLC_OK) break;
        assert_int_equal(status, DLC_OUT_OF_MEMORY);
        refused++;
    }
    assert_true(refused > 20);
    for (int i = 0; i < 4; i++) assert_true(result[i] == -4 * (float)(i + 1));
    dlc_context_destroy(context);
    assert_int_equal(c.blocks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_changing_sizes),
        cmocka_unit_test(test_programs_bounded),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_effects),
        cmocka_unit_test(test_reentrance),
        cmocka_unit_test(test_effect_added_inside),
        cmocka_unit_test(test_effects_in_loops),
        cmocka_unit_test(test_trace_mistakes),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
