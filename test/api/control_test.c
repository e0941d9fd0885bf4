/* Control flow and functions of the host, through the public API: loops, branches, both nested, captures, effects in their order. */
#include "api/support.h"

/* ---- loops and branches */

/* while (i < limit) { i = i + 1; x = x * factor }, factor a capture */
static dlc_program *power_program(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value limit = dlc_input(g, "limit", DLC_I32, 0, NULL), x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_value factor = dlc_input(g, "factor", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
    dlc_value ci = dlc_input(condition, "i", DLC_I32, 0, NULL);
    dlc_input(condition, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_output(condition, "go", dlc_lt(ci, limit));
    dlc_value bi = dlc_input(body, "i", DLC_I32, 0, NULL), bx = dlc_input(body, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_output(body, "i", dlc_add(bi, dlc_scalar_i64(body, DLC_I32, 1)));
    dlc_output(body, "x", dlc_mul(bx, factor));
    dlc_value results[2];
    dlc_while(2, (const dlc_value[]){dlc_scalar_i64(g, DLC_I32, 0), x}, condition, body, 2, results);
    dlc_output(g, "count", results[0]);
    dlc_output(g, "power", dlc_add(results[1], dlc_scalar(g, DLC_F32, 1)));
    return compile(context, g);
}

static void test_while(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        counter count;
        dlc_context *context = open_counted(all_targets[t], &count);
        if (!context) continue;
        dlc_program *program = power_program(context);
        for (int32_t limit = 0; limit < 6; limit++) {
            int32_t rounds = -1;
            float x[3] = {1, 2, 3}, factor[3] = {2, 3, 0.5f}, out[3];
            tensor tl, tx, tf, tc, tp;
            const DLTensor *inputs[] = {&make_tensor(&tl, DLC_I32, &limit, 0, NULL)->dl, F32(&tx, x, 3),
                                        F32(&tf, factor, 3)};
            dlc_output_slot slots[2] = {{&make_tensor(&tc, DLC_I32, &rounds, 0, NULL)->dl, NULL},
                                        {F32(&tp, out, 3), NULL}};
            OK(context, dlc_run(program, NULL, inputs, 3, slots, 2));
            assert_int_equal(rounds, limit);
            for (int i = 0; i < 3; i++) assert_true(fabs(out[i] - (x[i] * pow(factor[i], limit) + 1)) < 1e-4);
        }
        if (strcmp(all_targets[t], "cpu") == 0) { /* the interpreter allocates */
            int32_t limit = 100, rounds;
            float x[3] = {1, 2, 3}, out[3];
            tensor tl, tx, tf, tc, tp;
            const DLTensor *inputs[] = {&make_tensor(&tl, DLC_I32, &limit, 0, NULL)->dl, F32(&tx, x, 3),
                                        F32(&tf, x, 3)};
            dlc_output_slot slots[2] = {{&make_tensor(&tc, DLC_I32, &rounds, 0, NULL)->dl, NULL},
                                        {F32(&tp, out, 3), NULL}};
            int64_t before = count.calls;
            OK(context, dlc_run(program, NULL, inputs, 3, slots, 2));
            assert_int_equal(count.calls, before);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        assert_int_equal(count.blocks, 0);
    }
}

static void test_if(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value c = dlc_input(g, "c", DLC_BOOL, 0, NULL), x = dlc_input(g, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
        dlc_value doubled = dlc_add(x, x);
        dlc_graph *then = dlc_subgraph(g), *otherwise = dlc_subgraph(g);
        dlc_output(then, "r", dlc_exp(doubled));
        dlc_output(otherwise, "r", x); /* nothing to compute */
        dlc_value r;
        dlc_if(c, 0, NULL, then, otherwise, 1, &r);
        dlc_output(g, "r", dlc_neg(r));
        dlc_program *program = compile(context, g);
        for (int n = 1; n < 4; n++)
            for (unsigned char truth = 0; truth < 2; truth++) {
                float in[4] = {0.5f, -1, 2, 3}, out[4];
                tensor tc, tx, tr;
                const DLTensor *inputs[] = {&make_tensor(&tc, DLC_BOOL, &truth, 0, NULL)->dl, F32(&tx, in, n)};
                dlc_output_slot slot = {F32(&tr, out, n), NULL};
                OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
                for (int i = 0; i < n; i++)
                    assert_true(fabs(out[i] + (truth ? exp(2 * in[i]) : in[i])) < 1e-4 * exp(2 * fabs(in[i])));
            }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* The branches have parameters, so they compute inside; one captures a constant too. */
static void test_if_with_operands(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        float w[9];
        fill(w, 9, 6);
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value c = dlc_input(g, "c", DLC_BOOL, 0, NULL),
                  x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3)));
        dlc_value wv = dlc_constant(g, DLC_F32, 2, SHAPE(3, 3), w);
        dlc_graph *branch[2] = {dlc_subgraph(g), dlc_subgraph(g)};
        for (int b = 0; b < 2; b++) {
            dlc_value p = dlc_input(branch[b], "p", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(3)));
            dlc_output(branch[b], "r", b ? dlc_neg(p) : dlc_exp(dlc_matmul(p, wv)));
            dlc_output(branch[b], "s", b ? p : dlc_add(p, p));
        }
        dlc_value r[2];
        dlc_if(c, 1, &x, branch[0], branch[1], 2, r);
        dlc_output(g, "r", r[0]);
        dlc_output(g, "s", dlc_neg(r[1]));
        dlc_program *program = compile(context, g);
        for (int n = 1; n < 9; n++)
            for (unsigned char truth = 0; truth < 2; truth++) {
                float in[27], out[27], sums[27];
                double expected[27];
                fill(in, 27, (uint32_t)n);
                for (int i = 0; i < n * 3; i++) {
                    expected[i] = 0;
                    for (int k = 0; k < 3; k++) expected[i] += (double)in[i / 3 * 3 + k] * w[k * 3 + i % 3];
                    expected[i] = truth ? exp(expected[i]) : -(double)in[i];
                }
                tensor tc, tx, tr, ts;
                const DLTensor *inputs[] = {&make_tensor(&tc, DLC_BOOL, &truth, 0, NULL)->dl, F32(&tx, in, n, 3)};
                dlc_output_slot slots[2] = {{F32(&tr, out, n, 3), NULL}, {F32(&ts, sums, n, 3), NULL}};
                OK(context, dlc_run(program, NULL, inputs, 2, slots, 2));
                CLOSE(out, expected, (size_t)n * 3, 1e-5);
                for (int i = 0; i < n * 3; i++) assert_true(sums[i] == (truth ? -2 * in[i] : -in[i]));
            }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* for (i = 0; i < n; i++) for (j = 0; j < i; j++) sum += (j odd ? step : 1), with the innermost value captured over three levels */
static void test_nested_control(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value n = dlc_input(g, "n", DLC_I32, 0, NULL), step = dlc_input(g, "step", DLC_I32, 0, NULL);
        dlc_graph *outer_condition = dlc_subgraph(g), *outer = dlc_subgraph(g);
        dlc_value oci = dlc_input(outer_condition, "i", DLC_I32, 0, NULL);
        dlc_input(outer_condition, "sum", DLC_I32, 0, NULL);
        dlc_output(outer_condition, "go", dlc_lt(oci, n));
        dlc_value oi = dlc_input(outer, "i", DLC_I32, 0, NULL), osum = dlc_input(outer, "sum", DLC_I32, 0, NULL),
                  inner_results[2];
        dlc_graph *inner_condition = dlc_subgraph(outer), *inner = dlc_subgraph(outer);
        dlc_value icj = dlc_input(inner_condition, "j", DLC_I32, 0, NULL);
        dlc_input(inner_condition, "sum", DLC_I32, 0, NULL);
        dlc_output(inner_condition, "go", dlc_lt(icj, oi));
        dlc_value ij = dlc_input(inner, "j", DLC_I32, 0, NULL), isum = dlc_input(inner, "sum", DLC_I32, 0, NULL), added;
        dlc_graph *odd = dlc_subgraph(inner), *even = dlc_subgraph(inner);
        dlc_value odd_sum = dlc_input(odd, "sum", DLC_I32, 0, NULL),
                  even_sum = dlc_input(even, "sum", DLC_I32, 0, NULL);
        dlc_output(odd, "sum", dlc_add(odd_sum, step));
        dlc_output(even, "sum", dlc_add(even_sum, dlc_scalar_i64(even, DLC_I32, 1)));
        dlc_value is_odd = dlc_eq(dlc_rem(ij, dlc_scalar_i64(inner, DLC_I32, 2)), dlc_scalar_i64(inner, DLC_I32, 1));
        dlc_if(is_odd, 1, &isum, odd, even, 1, &added);
        dlc_output(inner, "j", dlc_add(ij, dlc_scalar_i64(inner, DLC_I32, 1)));
        dlc_output(inner, "sum", added);
        dlc_while(2, (const dlc_value[]){dlc_scalar_i64(outer, DLC_I32, 0), osum}, inner_condition, inner, 2,
                  inner_results);
        dlc_output(outer, "i", dlc_add(oi, dlc_scalar_i64(outer, DLC_I32, 1)));
        dlc_output(outer, "sum", inner_results[1]);
        dlc_value results[2];
        dlc_while(2, (const dlc_value[]){dlc_scalar_i64(g, DLC_I32, 0), dlc_scalar_i64(g, DLC_I32, 0)}, outer_condition,
                  outer, 2, results);
        dlc_output(g, "sum", results[1]);
        dlc_program *program = compile(context, g);
        for (int32_t limit = 0; limit < 7; limit++) {
            int32_t by = 100, expected = 0, sum = -1;
            for (int i = 0; i < limit; i++)
                for (int j = 0; j < i; j++) expected += j % 2 ? by : 1;
            tensor tn, ts, tr;
            const DLTensor *inputs[] = {&make_tensor(&tn, DLC_I32, &limit, 0, NULL)->dl,
                                        &make_tensor(&ts, DLC_I32, &by, 0, NULL)->dl};
            dlc_output_slot slot = {&make_tensor(&tr, DLC_I32, &sum, 0, NULL)->dl, NULL};
            OK(context, dlc_run(program, NULL, inputs, 2, &slot, 1));
            assert_int_equal(sum, expected);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* Large weights, in the layout that kernels like: packed once, shared by the plans of several shapes and by a loop's body, where they
 * are captured. y = x w; while (i < 3) { i = i + 1; y = y v } */
static void test_packed_weights(void **state) {
    (void)state;
    enum { K = 150, M = 170, ROUNDS = 3 };
    static float w[K * M], v[M * M], x[9 * K], out[9 * M];
    static double y[9 * M], z[9 * M];
    fill(w, K * M, 1);
    fill(v, M * M, 2);
    for (int i = 0; i < M * M; i++) v[i] *= 0.1f;
    fill(x, 9 * K, 3);
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value vx = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(K)));
        dlc_value vy = dlc_matmul(vx, dlc_constant_borrow(g, DLC_F32, 2, SHAPE(K, M), w));
        dlc_value vv = dlc_constant(g, DLC_F32, 2, SHAPE(M, M), v), results[2];
        dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
        dlc_value ci = dlc_input(condition, "i", DLC_I32, 0, NULL);
        dlc_input(condition, "y", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(M)));
        dlc_output(condition, "go", dlc_lt(ci, dlc_scalar_i64(condition, DLC_I32, ROUNDS)));
        dlc_value bi = dlc_input(body, "i", DLC_I32, 0, NULL);
        dlc_value by = dlc_input(body, "y", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(M)));
        dlc_output(body, "i", dlc_add(bi, dlc_scalar_i64(body, DLC_I32, 1)));
        dlc_output(body, "y", dlc_matmul(by, vv));
        dlc_while(2, (const dlc_value[]){dlc_scalar_i64(g, DLC_I32, 0), vy}, condition, body, 2, results);
        dlc_output(g, "z", results[1]);
        dlc_program *program = compile(context, g);
        for (int n = 1; n <= (t ? 9 : 3); n += 2) {
            for (int i = 0; i < n * M; i++) {
                y[i] = 0;
                for (int k = 0; k < K; k++) y[i] += (double)x[i / M * K + k] * w[k * M + i % M];
            }
            for (int round = 0; round < ROUNDS; round++) {
                for (int i = 0; i < n * M; i++) {
                    z[i] = 0;
                    for (int k = 0; k < M; k++) z[i] += y[i / M * M + k] * v[k * M + i % M];
                }
                memcpy(y, z, sizeof y);
            }
            tensor tx, tz;
            dlc_output_slot slot = {F32(&tz, out, n, M), NULL};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, n, K)}, 1, &slot, 1));
            CLOSE(out, z, (size_t)(n * M), 2e-5);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- functions of the host */

static void note(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    (void)outputs, (void)output;
    char *trace = user;
    size_t length = strlen(trace);
    trace[length] = inputs ? (char)('a' + *(const int32_t *)input[0]->data) : '!';
    trace[length + 1] = 0;
}

/* x -> -x, and whatever else the program does. */
static void run_negation(dlc_context *context, dlc_program *program, int32_t x) {
    int32_t z;
    tensor tx, tz;
    const DLTensor *input = &make_tensor(&tx, DLC_I32, &x, 0, NULL)->dl;
    dlc_output_slot slot = {&make_tensor(&tz, DLC_I32, &z, 0, NULL)->dl, NULL};
    OK(context, dlc_run(program, NULL, &input, 1, &slot, 1));
    assert_int_equal(z, -x);
}

/* Calls with effects: each once, in order, also those whose results nobody reads. */
static void test_effects(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        char trace[64] = "";
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        OK(context, dlc_custom_register(g, "note", note, trace));
        dlc_value x = dlc_input(g, "x", DLC_I32, 0, NULL), y = dlc_add(x, dlc_scalar_i64(g, DLC_I32, 2));
        dlc_custom_effect(g, 1, &y, "note", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
        dlc_custom_effect(g, 1, &x, "note", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
        dlc_custom_effect(g, 1, &x, "note", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
        dlc_custom_effect(g, 0, NULL, "note", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
        dlc_output(g, "z", dlc_neg(x));
        dlc_program *program = compile(context, g);
        for (int32_t value = 0; value < 2; value++) run_negation(context, program, value);
        assert_string_equal(trace, "caa!dbb!");
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* A loop over 0, 1 that notes where it is, its result read by nobody; in `g`, which may be a branch. */
static void note_in_loop(dlc_graph *g) {
    dlc_graph *condition = dlc_subgraph(g), *body = dlc_subgraph(g);
    dlc_value i = dlc_input(condition, "i", DLC_I32, 0, NULL), j = dlc_input(body, "i", DLC_I32, 0, NULL), last;
    dlc_output(condition, "go", dlc_lt(i, dlc_scalar_i64(condition, DLC_I32, 2)));
    dlc_custom_effect(body, 1, &j, "note", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
    dlc_output(body, "i", dlc_add(j, dlc_scalar_i64(body, DLC_I32, 1)));
    dlc_value first = dlc_scalar_i64(g, DLC_I32, 0);
    dlc_while(1, &first, condition, body, 1, &last);
}

/* Effects in sub-graphs: loops that are the same happen as often as they are written, in order, also within a branch. */
static void test_effects_in_subgraphs(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        char trace[64] = "";
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        OK(context, dlc_custom_register(g, "note", note, trace));
        dlc_value x = dlc_input(g, "x", DLC_I32, 0, NULL), branch;
        note_in_loop(g);
        dlc_custom_effect(g, 0, NULL, "note", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
        note_in_loop(g);
        note_in_loop(g);
        dlc_graph *then = dlc_subgraph(g), *otherwise = dlc_subgraph(g);
        dlc_output(then, "y", dlc_input(then, "x", DLC_I32, 0, NULL));
        note_in_loop(then);
        dlc_output(otherwise, "y", dlc_input(otherwise, "x", DLC_I32, 0, NULL));
        dlc_custom_effect(otherwise, 0, NULL, "note", 0, NULL, 0, NULL, 0, NULL, 0, NULL);
        dlc_if(dlc_gt(x, dlc_scalar_i64(g, DLC_I32, 0)), 1, &x, then, otherwise, 1, &branch);
        dlc_output(g, "z", dlc_neg(x));
        dlc_program *program = compile(context, g);
        for (int32_t value = 0; value < 2; value++) {
            *trace = 0;
            run_negation(context, program, value);
            assert_string_equal(trace, value ? "ab!ababab" : "ab!abab!");
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

static void scale(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    assert_int_equal(inputs, 1);
    assert_int_equal(outputs, 1);
    assert_int_equal(input[0]->ndim, 2);
    const float *from = (const float *)((const char *)input[0]->data + input[0]->byte_offset);
    float *to = (float *)((char *)output[0]->data + output[0]->byte_offset);
    for (int64_t i = 0; i < input[0]->shape[0] * input[0]->shape[1]; i++) to[i] = *(const float *)user * from[i];
}

static void test_custom(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        static float by = 3;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        OK(context, dlc_custom_register(g, "scale", scale, &by));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(2))), y = dlc_add(x, x), z;
        dlc_custom_call(g, 1, &y, "scale", 1, SHAPE(DLC_F32), 1, SHAPE(2), 2, DIMS(SYMBOL("n"), SIZE(2)), 1, &z);
        dlc_output(g, "z", dlc_neg(z));
        dlc_program *program = compile(context, g);
        for (int n = 0; n < 4; n++) {
            float in[8], out[8];
            double expected[8];
            fill(in, 8, 5);
            for (int i = 0; i < 8; i++) expected[i] = -6 * (double)in[i];
            tensor tx, tz;
            dlc_output_slot slot = {F32(&tz, out, n, 2), NULL};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, in, n, 2)}, 1, &slot, 1));
            CLOSE(out, expected, (size_t)n * 2, 1e-6);
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_while),
        cmocka_unit_test(test_if),
        cmocka_unit_test(test_if_with_operands),
        cmocka_unit_test(test_nested_control),
        cmocka_unit_test(test_packed_weights),
        cmocka_unit_test(test_effects),
        cmocka_unit_test(test_effects_in_subgraphs),
        cmocka_unit_test(test_custom),
    };
    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
