/* `scan`, and branches of different shapes, through the public header: against the unrolled graph, which shares no control flow with
 * it, and against plain C. */
#include "api/support.h"
#include "test/share.h"

/* ---- a scan and what it unrolls to: one text each, with the same inputs and outputs */

typedef struct pair {
    const char *name, *scan, *unrolled;
} pair;

#define UNROLLED_INPUTS                                                                  \
    " input c: f32[2, 3]\n"                                                              \
    " input s: f32[3, 2, 3]\n"                                                           \
    " input w: f32[2, 3]\n"                                                              \
    " s0 = slice(s, start=[0, 0, 0], stop=[1, 2, 3])\n a0 = reshape(s0, shape=[2, 3])\n" \
    " s1 = slice(s, start=[1, 0, 0], stop=[2, 2, 3])\n a1 = reshape(s1, shape=[2, 3])\n" \
    " s2 = slice(s, start=[2, 0, 0], stop=[3, 2, 3])\n a2 = reshape(s2, shape=[2, 3])\n"
#define INPUTS " input c: f32[2, 3]\n input s: f32[3, 2, 3]\n input w: f32[2, 3]\n"
#define ROW(n) " t" #n " = reshape(y" #n ", shape=[1, 2, 3])\n"

static const pair pairs[] = {
    {"carry, sequence, capture, stack",
     "graph {" INPUTS " r, ys = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
     "  input h: f32[2, 3]\n  input x: f32[2, 3]\n  input v: f32[2, 3]\n"
     "  m = mul(h, v)\n  n = add(m, x)\n  y = tanh(n)\n  output y\n  output n\n })\n output r\n output ys\n}",
     "graph {" UNROLLED_INPUTS
     " m0 = mul(c, w)\n y0 = add(m0, a0)\n h0 = tanh(y0)\n m1 = mul(h0, w)\n y1 = add(m1, a1)\n"
     " h1 = tanh(y1)\n m2 = mul(h1, w)\n y2 = add(m2, a2)\n h2 = tanh(y2)\n" ROW(0) ROW(1)
         ROW(2) " ys = concat(t0, t1, t2, axis=0)\n output h2\n output ys\n}"},
    {"the carry is the stack's element; backwards",
     "graph {" INPUTS " r, ys = scan(c, s, w, carries=1, sequences=1, reverse=[1, 0], body=graph {\n"
     "  input h: f32[2, 3]\n  input x: f32[2, 3]\n  input v: f32[2, 3]\n"
     "  m = mul(h, v)\n  n = add(m, x)\n  output n\n  output n\n })\n output r\n output ys\n}",
     "graph {" UNROLLED_INPUTS " m0 = mul(c, w)\n y0 = add(m0, a2)\n m1 = mul(y0, w)\n y1 = add(m1, a1)\n"
     " m2 = mul(y1, w)\n y2 = add(m2, a0)\n" ROW(0) ROW(1)
         ROW(2) " ys = concat(t0, t1, t2, axis=0)\n output y2\n output ys\n}"},
    {"the stack backwards, two carries that change places",
     "graph {" INPUTS " q, r, ys = scan(c, w, s, carries=2, sequences=1, reverse=[0, 1], body=graph {\n"
     "  input h: f32[2, 3]\n  input k: f32[2, 3]\n  input x: f32[2, 3]\n"
     "  m = sub(k, x)\n  output m\n  output h\n  output k\n })\n output q\n output r\n output ys\n}",
     "graph {" UNROLLED_INPUTS " m0 = sub(w, a0)\n m1 = sub(c, a1)\n m2 = sub(m0, a2)\n"
     " t0 = reshape(w, shape=[1, 2, 3])\n t1 = reshape(c, shape=[1, 2, 3])\n t2 = reshape(m0, shape=[1, 2, 3])\n"
     " ys = concat(t2, t1, t0, axis=0)\n output m2\n output m1\n output ys\n}"},
    {"a carry updated where it is",
     "graph {" INPUTS " i0 = constant i64[] {0}\n r, j = scan(s, i0, s, carries=2, sequences=1, body=graph {\n"
     "  input h: f32[3, 2, 3]\n  input i: i64[]\n  input x: f32[2, 3]\n  one = constant i64[] {1}\n"
     "  u = reshape(x, shape=[1, 2, 3])\n  e = exp(u)\n  n = dynamic_update_slice(h, e, i, axes=[0])\n  k = add(i, one)\n"
     "  output n\n  output k\n })\n output r\n output j\n output c\n output w\n}",
     "graph {" UNROLLED_INPUTS " y = exp(s)\n j = constant i64[] {3}\n output y\n output j\n output c\n output w\n}"},
    {"early exit",
     "graph {" INPUTS
     " i0 = constant i64[] {0}\n r, j, ys, n = scan(c, i0, s, carries=2, sequences=1, conditional=true, body=graph {\n"
     "  input h: f32[2, 3]\n  input i: i64[]\n  input x: f32[2, 3]\n  one = constant i64[] {1}\n"
     "  y = add(h, x)\n  k = add(i, one)\n  go = lt(i, one)\n  output y\n  output k\n  output go\n  output y\n })\n"
     " output r\n output j\n output ys\n output n\n output w\n}",
     "graph {" UNROLLED_INPUTS " y0 = add(c, a0)\n y1 = add(y0, a1)\n zero = constant f32[] {0}\n"
     " z = broadcast(zero, shape=[1, 2, 3], axes=[])\n" ROW(0) ROW(
         1) " ys = concat(t0, t1, z, axis=0)\n"
            " j = constant i64[] {2}\n n = constant i64[] {2}\n output y1\n output j\n output ys\n output n\n output w\n}"},
    {"a while in a scan, invariant code in both",
     "graph {" INPUTS " r, ys = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
     "  input h: f32[2, 3]\n  input x: f32[2, 3]\n  input v: f32[2, 3]\n  i0 = constant i64[] {0}\n"
     "  j, q = while(i0, h, x, v, condition=graph {\n   input i: i64[]\n   input g: f32[2, 3]\n   input b: f32[2, 3]\n"
     "   input u: f32[2, 3]\n   two = constant i64[] {2}\n   go = lt(i, two)\n   output go\n  }, body=graph {\n"
     "   input i: i64[]\n   input g: f32[2, 3]\n   input b: f32[2, 3]\n   input u: f32[2, 3]\n   one = constant i64[] {1}\n"
     "   k = add(i, one)\n   e = exp(u)\n   p = mul(g, e)\n   o = add(p, b)\n   output k\n   output o\n  })\n"
     "  output q\n  output q\n })\n output r\n output ys\n}",
     "graph {" UNROLLED_INPUTS " e = exp(w)\n p0 = mul(c, e)\n q0 = add(p0, a0)\n p1 = mul(q0, e)\n y0 = add(p1, a0)\n"
     " p2 = mul(y0, e)\n q2 = add(p2, a1)\n p3 = mul(q2, e)\n y1 = add(p3, a1)\n p4 = mul(y1, e)\n q4 = add(p4, a2)\n"
     " p5 = mul(q4, e)\n y2 = add(p5, a2)\n" ROW(0) ROW(1)
         ROW(2) " ys = concat(t0, t1, t2, axis=0)\n output y2\n output ys\n}"},
    {"a scan and a branch in a scan",
     "graph {" INPUTS " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
     "  input h: f32[2, 3]\n  input x: f32[2, 3]\n  input v: f32[2, 3]\n"
     "  q, qs = scan(h, x, v, carries=1, sequences=0, length=[2], body=graph {\n"
     "   input g: f32[2, 3]\n   input b: f32[2, 3]\n   input v2: f32[2, 3]\n   p = mul(g, v2)\n   o = add(p, b)\n"
     "   output o\n   output o\n  })\n"
     "  all = reduce_sum(x, axes=[0, 1])\n  zero = constant f32[] {0}\n  low = lt(all, zero)\n"
     "  n = if(low, q, then=graph {\n   input z: f32[2, 3]\n   y = neg(z)\n   output y\n  }, otherwise=graph {\n"
     "   input z: f32[2, 3]\n   y = abs(z)\n   output y\n  })\n  output n\n })\n output r\n}",
     "graph {" UNROLLED_INPUTS " zero = constant f32[] {0}\n"
     " p0 = mul(c, w)\n q0 = add(p0, a0)\n p1 = mul(q0, w)\n q1 = add(p1, a0)\n l0 = reduce_sum(a0, axes=[0, 1])\n"
     " b0 = lt(l0, zero)\n u0 = neg(q1)\n v0 = abs(q1)\n n0 = select(b0, u0, v0)\n"
     " p2 = mul(n0, w)\n q2 = add(p2, a1)\n p3 = mul(q2, w)\n q3 = add(p3, a1)\n l1 = reduce_sum(a1, axes=[0, 1])\n"
     " b1 = lt(l1, zero)\n u1 = neg(q3)\n v1 = abs(q3)\n n1 = select(b1, u1, v1)\n"
     " p4 = mul(n1, w)\n q4 = add(p4, a2)\n p5 = mul(q4, w)\n q5 = add(p5, a2)\n l2 = reduce_sum(a2, axes=[0, 1])\n"
     " b2 = lt(l2, zero)\n u2 = neg(q5)\n v2 = abs(q5)\n n2 = select(b2, u2, v2)\n output n2\n}"},
};

typedef struct results {
    int count;
    DLManagedTensorVersioned *tensor[8];
} results;

static void run_text(dlc_context *context, const char *text, const DLTensor *const *inputs, int input_count,
                     results *out) {
    dlc_graph *g, *again;
    dlc_program *program;
    char *printed, *reprinted;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    OK(context, dlc_graph_print(g, &printed));
    OK(context, dlc_graph_parse(context, printed, strlen(printed), &again));
    OK(context, dlc_graph_print(again, &reprinted));
    assert_string_equal(printed, reprinted);
    dlc_text_free(context, printed);
    dlc_text_free(context, reprinted);
    dlc_graph_destroy(g);
    OK(context, dlc_compile(context, again, NULL, &program));
    dlc_graph_destroy(again);
    out->count = dlc_program_output_count(program);
    for (int repeat = 0; repeat < 3; repeat++) {
        dlc_output_slot slots[8] = {0};
        OK(context, dlc_run(program, NULL, inputs, input_count, slots, out->count));
        for (int o = 0; o < out->count; o++) {
            if (repeat) out->tensor[o]->deleter(out->tensor[o]);
            out->tensor[o] = slots[o].managed;
        }
    }
    dlc_program_destroy(program);
}

static size_t bytes_of(const DLTensor *t) {
    size_t bytes = t->dtype.bits / 8;
    for (int d = 0; d < t->ndim; d++) bytes *= (size_t)t->shape[d];
    return bytes;
}

static void test_unrolled(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            float c[6], s[18], w[6];
            fill(c, 6, 1);
            fill(s, 18, 2);
            fill(w, 6, 3);
            tensor tc, ts, tw;
            const DLTensor *inputs[] = {F32(&tc, c, 2, 3), F32(&ts, s, 3, 2, 3), F32(&tw, w, 2, 3)};
            results scanned, unrolled;
            run_text(context, pairs[p].scan, inputs, 3, &scanned);
            run_text(context, pairs[p].unrolled, inputs, 3, &unrolled);
            assert_int_equal(scanned.count, unrolled.count);
            for (int o = 0; o < scanned.count; o++) {
                const DLTensor *a = &scanned.tensor[o]->dl_tensor, *b = &unrolled.tensor[o]->dl_tensor;
                assert_int_equal(bytes_of(a), bytes_of(b));
                if (memcmp(a->data, b->data, bytes_of(a)) != 0)
                    fail_msg("%s: %s: output %d differs", all_targets[t], pairs[p].name, o);
                scanned.tensor[o]->deleter(scanned.tensor[o]);
                unrolled.tensor[o]->deleter(unrolled.tensor[o]);
            }
        }
        dlc_context_destroy(context);
    }
}

/* ---- weights beyond L2, whose iterations go forwards and backwards in turn: h' = tanh(h w + x) against plain C, the same bits on
 * one thread and on two */

static void step(const float *h, const float *w, const float *x, int n, float *next) {
    for (int j = 0; j < n; j++) {
        double sum = 0;
        for (int k = 0; k < n; k++) sum += (double)h[k] * (double)w[k * n + j];
        next[j] = (float)tanh(sum + (double)x[j]);
    }
}

static void test_large_weights(void **state) {
    (void)state;
    enum { N = 768, STEPS = 5 };
    static const char text[] =
        "graph {\n input h: f32[1, 768]\n input x: f32[5, 1, 768]\n input w: f32[768, 768]\n"
        " r, ys = scan(h, x, w, carries=1, sequences=1, body=graph {\n  input g: f32[1, 768]\n  input a: f32[1, 768]\n"
        "  input v: f32[768, 768]\n  p = dot_general(g, v, contract_x=[1], contract_w=[0])\n  s = add(p, a)\n"
        "  y = tanh(s)\n  output y\n  output y\n })\n output r\n output ys\n}";
    static float h[N], x[STEPS * N], w[N * N], wanted[STEPS * N], first[STEPS * N];
    fill(h, N, 1);
    fill(x, STEPS * N, 2);
    fill(w, N * N, 3);
    for (int i = 0; i < N * N; i++) w[i] /= 64;
    for (int t = 0; t < STEPS; t++) step(t ? wanted + (t - 1) * N : h, w, x + t * N, N, wanted + t * N);
    for (int t = test_is_shortest(); t < TARGETS; t++) { /* the interpreter takes its time */
        for (int threads = 1; threads <= 2; threads++) {
            dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
            options.threads = threads;
            dlc_context *context = open_context(all_targets[t], &options);
            if (!context) break;
            tensor th, tx, tw;
            const DLTensor *inputs[] = {F32(&th, h, 1, N), F32(&tx, x, STEPS, 1, N), F32(&tw, w, N, N)};
            results r;
            run_text(context, text, inputs, 3, &r);
            const float *got = r.tensor[1]->dl_tensor.data;
            for (int i = 0; i < STEPS * N; i++)
                if (!(fabsf(got[i] - wanted[i]) < 1e-4f))
                    fail_msg("%s: element %d is %g, expected %g", all_targets[t], i, (double)got[i], (double)wanted[i]);
            if (threads == 1) memcpy(first, got, sizeof first);
            assert_memory_equal(first, got, sizeof first);
            for (int o = 0; o < r.count; o++) r.tensor[o]->deleter(r.tensor[o]);
            dlc_context_destroy(context);
        }
    }
}

/* ---- lengths known at run time; a loop-invariant value of run-time weights; nothing allocated */

/* h' = tanh(h * softmax(w) + x), stacked */
static dlc_program *smoothing_program(dlc_context *context) {
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_value h = dlc_input(g, "h", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("length"), SYMBOL("n")));
    dlc_value w = dlc_input(g, "w", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_graph *body = dlc_subgraph(g);
    dlc_value bh = dlc_input(body, "h", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_value bx = dlc_input(body, "x", DLC_F32, 1, DIMS(SYMBOL("n")));
    dlc_value next = dlc_tanh(dlc_add(dlc_mul(bh, dlc_softmax(w, 0)), bx)), both[2];
    dlc_output(body, "h", next);
    dlc_output(body, "y", next);
    dlc_scan(g, 2, (const dlc_value[]){h, x}, body, 1, 1, 2, both);
    dlc_output(g, "last", both[0]);
    dlc_output(g, "all", both[1]);
    return compile(context, g);
}

static void smooth(const float *h, const float *x, const float *w, int length, int n, double *last, double *all) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)w[i]);
    for (int i = 0; i < n; i++) last[i] = (double)h[i];
    for (int t = 0; t < length; t++)
        for (int i = 0; i < n; i++)
            all[t * n + i] = last[i] = tanh(last[i] * exp((double)w[i]) / sum + (double)x[t * n + i]);
}

static void test_lengths(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        counter count;
        dlc_context *context = open_counted(all_targets[t], &count);
        if (!context) continue;
        dlc_program *program = smoothing_program(context);
        enum { N = 5, LONGEST = 40 };
        for (int length = 0; length < LONGEST; length += length < 3 ? 1 : 9) {
            float h[N], x[LONGEST * N], w[N], last[N], all[LONGEST * N];
            double wanted_last[N], wanted_all[LONGEST * N];
            fill(h, N, 1);
            fill(x, LONGEST * N, 2);
            fill(w, N, 3);
            smooth(h, x, w, length, N, wanted_last, wanted_all);
            tensor th, tx, tw, tl, ta;
            const DLTensor *inputs[] = {F32(&th, h, N), F32(&tx, x, length, N), F32(&tw, w, N)};
            for (int repeat = 0; repeat < 2; repeat++) {
                dlc_output_slot slots[2] = {{F32(&tl, last, N), NULL}, {F32(&ta, all, length, N), NULL}};
                int64_t before = count.calls;
                OK(context, dlc_run(program, NULL, inputs, 3, slots, 2));
                if (repeat && strcmp(all_targets[t], "cpu") == 0) assert_int_equal(count.calls, before);
                CLOSE(last, wanted_last, N, 2e-6);
                CLOSE(all, wanted_all, (size_t)length * N, 2e-6);
            }
        }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
        assert_int_equal(count.blocks, 0);
    }
}

/* ---- branches of different shapes */

static const char unequal[] = "graph {\n input c: bool[]\n input x: f32[n, 4]\n r, s, x1 = if(c, x, then=graph {\n"
                              "  input x: f32[n, 4]\n  y = concat(x, x, axis=0)\n  z = reduce_sum(x, axes=[1])\n"
                              "  output y\n  output z\n  output x\n }, otherwise=graph {\n  input x: f32[n, 4]\n"
                              "  y = slice(x, start=[0, 0], stop=[n, 2])\n  z = reduce_max(x, axes=[0])\n  w = neg(x)\n"
                              "  output y\n  output z\n  output w\n }, sizes=[rows, columns, length])\n"
                              " e = abs(r)\n t = neg(s)\n output e\n output t\n output x1\n}\n";

/* e: |x| twice, or its first two columns; t: minus the sums of rows, or minus the largest of each column; x or -x */
static void check_unequal(const float *x, int64_t n, bool truth, dlc_output_slot *slots) {
    const DLTensor *e = &slots[0].managed->dl_tensor, *t = &slots[1].managed->dl_tensor;
    const float *ed = e->data, *td = t->data, *same = slots[2].managed->dl_tensor.data;
    int64_t columns = truth ? 4 : 2, length = truth ? n : 4;
    assert_int_equal(e->ndim, 2);
    assert_int_equal(e->shape[0], truth ? 2 * n : n);
    assert_int_equal(e->shape[1], columns);
    assert_int_equal(t->shape[0], length);
    for (int64_t i = 0; i < e->shape[0]; i++)
        for (int64_t j = 0; j < columns; j++) assert_true(ed[i * columns + j] == fabsf(x[i % n * 4 + j]));
    for (int64_t k = 0; k < length; k++) {
        double sum = 0, most = -INFINITY;
        for (int64_t j = 0; truth && j < 4; j++) sum += (double)x[k * 4 + j];
        for (int64_t i = 0; !truth && i < n; i++) most = fmax(most, (double)x[i * 4 + k]);
        assert_true(fabs((double)td[k] + (truth ? sum : most)) < 1e-5);
    }
    for (int64_t i = 0; i < 4 * n; i++) assert_true(same[i] == (truth ? x[i] : -x[i]));
}

static void test_unequal_branches(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_parse(context, unequal, sizeof unequal - 1, &g));
        dlc_program *program = compile(context, g);
        for (int64_t n = 1; n < 8; n += 2)
            for (unsigned char truth = 0; truth < 2; truth++) {
                float x[8 * 4];
                fill(x, (size_t)n * 4, (uint32_t)n);
                tensor tc, tx;
                const DLTensor *inputs[] = {&make_tensor(&tc, DLC_BOOL, &truth, 0, NULL)->dl, F32(&tx, x, n, 4)};
                dlc_output_slot slots[3] = {0};
                OK(context, dlc_run(program, NULL, inputs, 2, slots, 3));
                check_unequal(x, n, truth, slots);
                for (int o = 0; o < 3; o++) slots[o].managed->deleter(slots[o].managed);
            }
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- one constant in several shapes, which kernels pack in layouts of one description */

static void test_constant_in_shapes(void **state) {
    (void)state;
    enum { N = 144, K = 288 };
    static float w[N * K], x[8 * K], y[8 * N], z[8 * K];
    static double wanted[8 * K];
    fill(w, N * K, 5);
    fill(x, 8 * K, 6);
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_create(context, &g));
        dlc_value a = dlc_input(g, "a", DLC_F32, 2, DIMS(SIZE(8), SIZE(K)));
        dlc_value b = dlc_constant_borrow(g, DLC_F32, 2, SHAPE(K, N), w);
        dlc_value c =
            dlc_slice(dlc_reshape(a, 2, DIMS(SIZE(16), SIZE(N))), 2, DIMS(SIZE(0), SIZE(0)), 2, DIMS(SIZE(8), SIZE(N)));
        dlc_value half = dlc_slice(b, 2, DIMS(SIZE(0), SIZE(0)), 2, DIMS(SIZE(N), SIZE(N)));
        dlc_output(g, "y", dlc_dot(a, b));
        dlc_output(g, "z", dlc_dot(c, dlc_reshape(b, 2, DIMS(SIZE(N), SIZE(K)))));
        dlc_output(g, "u", dlc_dot(c, dlc_reshape(half, 2, DIMS(SIZE(N), SIZE(N)))));
        dlc_program *program = compile(context, g);
        tensor ta, ty, tz, tu;
        static float v[8 * N];
        dlc_output_slot slots[3] = {{F32(&ty, y, 8, N), NULL}, {F32(&tz, z, 8, K), NULL}, {F32(&tu, v, 8, N), NULL}};
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&ta, x, 8, K)}, 1, slots, 3));
        for (int i = 0; i < 8 * N; i++) {
            wanted[i] = 0;
            for (int k = 0; k < K; k++) wanted[i] += (double)x[i / N * K + k] * (double)w[k * N + i % N];
        }
        CLOSE(y, wanted, 8 * N, 3e-5);
        for (int i = 0; i < 8 * K; i++) {
            wanted[i] = 0;
            for (int k = 0; k < N; k++) wanted[i] += (double)x[i / K * N + k] * (double)w[k * K + i % K];
        }
        CLOSE(z, wanted, 8 * K, 3e-5);
        for (int i = 0; i < 8 * N; i++) {
            wanted[i] = 0;
            for (int k = 0; k < N; k++) wanted[i] += (double)x[i / N * N + k] * (double)w[k * N + i % N];
        }
        CLOSE(v, wanted, 8 * N, 3e-5);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- every allocation refused once, from the text to the first run: a status, and nothing is lost */

static dlc_status build_and_run(dlc_context *context, const char *text, const DLTensor *const *inputs,
                                dlc_output_slot *slots) {
    dlc_graph *g = NULL;
    dlc_program *program = NULL;
    dlc_status status = dlc_graph_parse(context, text, strlen(text), &g);
    if (status == DLC_OK) status = dlc_compile(context, g, NULL, &program);
    dlc_graph_destroy(g);
    int count = dlc_program_output_count(program);
    if (status == DLC_OK) status = dlc_run(program, NULL, inputs, 3, slots, count);
    for (int o = 0; o < count; o++)
        if (slots[o].managed) slots[o].managed->deleter(slots[o].managed);
    dlc_program_destroy(program);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    float c[6] = {0}, s[18] = {0}, w[6] = {0};
    tensor tc, ts, tw;
    const DLTensor *inputs[] = {F32(&tc, c, 2, 3), F32(&ts, s, 3, 2, 3), F32(&tw, w, 2, 3)};
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        counter count;
        dlc_context *context = open_counted("interp", &count);
        assert_non_null(context);
        bool done = false;
        for (int64_t left = 0; !done; left++) {
            dlc_output_slot slots[8] = {{NULL, NULL}};
            atomic_store(&count.left, left);
            dlc_status status = build_and_run(context, pairs[p].scan, inputs, slots);
            atomic_store(&count.left, -1);
            done = status == DLC_OK;
            if (!done) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        }
        dlc_context_destroy(context);
        assert_int_equal(count.blocks, 0);
    }
}

/* ---- mistakes */

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"graph {\n input c: bool[]\n input x: f32[3]\n y = if(c, x, then=graph {\n  input a: f32[3]\n  output a\n },"
         " otherwise=graph {\n  input a: f32[3]\n  b = neg(a)\n  output b\n }, sizes=[k])\n output y\n}",
         "there are 0 that differ"},
        {"graph {\n input c: bool[]\n input x: f32[3]\n y = if(c, x, then=graph {\n  input a: f32[3]\n  output a\n },"
         " otherwise=graph {\n  input a: f32[3]\n  b = slice(a, start=[0], stop=[2])\n  output b\n })\n output y\n}",
         "output 0 of the branches"},
        {"graph {\n input x: f32[3]\n y = scan(x, carries=2, sequences=0, length=[1], body=graph {\n  input a: f32[3]\n"
         "  output a\n })\n output y\n}",
         "carries is 2"},
        {"graph {\n input x: f32[3]\n y = scan(x, carries=1, sequences=0, body=graph {\n  input a: f32[3]\n  output a\n })\n"
         " output y\n}",
         "expected a length"},
        {"graph {\n input x: f32[]\n y = scan(x, carries=0, sequences=1, body=graph {\n  input a: f32[]\n  output a\n })\n"
         " output y\n}",
         "rank 0"},
        {"graph {\n input x: f32[3]\n input s: f32[4, 2]\n y = scan(x, s, carries=1, sequences=1, body=graph {\n"
         "  input a: f32[3]\n  input b: f32[4, 2]\n  output a\n })\n output y\n}",
         "an element of its operand"},
        {"graph {\n input x: f32[3]\n y = scan(x, carries=1, sequences=0, length=[2], body=graph {\n  input a: f32[3]\n"
         "  b = eq(a, a)\n  output b\n })\n output y\n}",
         "carry 0"},
        {"graph {\n input x: f32[3]\n y, n = scan(x, carries=1, sequences=0, length=[2], conditional=true, body=graph {\n"
         "  input a: f32[3]\n  output a\n })\n output y\n}",
         "whether to go on"},
        {"graph {\n input x: f32[3]\n y = scan(x, carries=0, sequences=1, reverse=[1], body=graph {\n  input a: f32[]\n"
         "  output a\n })\n output y\n}",
         "reverse has 1"},
    };
    dlc_context *context = open_context("interp", NULL);
    assert_non_null(context);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dlc_graph *g = NULL;
        assert_int_equal(dlc_graph_parse(context, wrong[i].text, strlen(wrong[i].text), &g), DLC_INVALID_ARGUMENT);
        if (!strstr(dlc_error_message(context), wrong[i].message))
            fail_msg("%s: expected %s", dlc_error_message(context), wrong[i].message);
    }
    dlc_context_destroy(context);
}

/* ---- weights given at run time are packed in front of the loop, also of one inside of another, and again in the next run */

enum { PACK_N = 83, PACK_OUTER = 3, PACK_INNER = 2 };

static const char packed_text[] =
    "graph {\n input c: f32[rows, 83]\n input s: f32[3, rows, 83]\n input w: f32[83, 83]\n"
    " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
    "  input h: f32[rows, 83]\n  input x: f32[rows, 83]\n  input v: f32[83, 83]\n  i0 = constant i64[] {0}\n"
    "  j, q = while(i0, h, v, condition=graph {\n   input i: i64[]\n   input g: f32[rows, 83]\n"
    "   input u: f32[83, 83]\n   two = constant i64[] {2}\n   go = lt(i, two)\n   output go\n  }, body=graph {\n"
    "   input i: i64[]\n   input g: f32[rows, 83]\n   input u: f32[83, 83]\n   one = constant i64[] {1}\n"
    "   k = add(i, one)\n   m = matmul(g, u)\n   o = tanh(m)\n   output k\n   output o\n  })\n"
    "  m = matmul(q, v)\n  n = add(m, x)\n  output n\n })\n output r\n}";

static void multiply(int rows, const double *h, const float *w, double *out) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < PACK_N; j++) {
            out[i * PACK_N + j] = 0;
            for (int k = 0; k < PACK_N; k++) out[i * PACK_N + j] += h[i * PACK_N + k] * (double)w[k * PACK_N + j];
        }
}

static int count_text(const char *text, const char *wanted) {
    int count = 0;
    for (; (text = strstr(text, wanted)) != NULL; text++) count++;
    return count;
}

static void test_packed_once(void **state) {
    (void)state;
    TEST_WITHOUT_THREADS();
    enum { ROWS_MAX = 70 };
    static float c[ROWS_MAX * PACK_N], s[PACK_OUTER * ROWS_MAX * PACK_N], w[PACK_N * PACK_N], r[ROWS_MAX * PACK_N];
    static double h[ROWS_MAX * PACK_N], m[ROWS_MAX * PACK_N];
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_parse(context, packed_text, strlen(packed_text), &g));
        dlc_program *program = compile(context, g);
        static const int rows[] = {70, 1, 16, 5, 33, 70, 9};
        bool packed = strcmp(all_targets[t], "cpu") != 0;
        for (size_t run = 0; run < sizeof rows / sizeof *rows; run += test_is_short() ? 2 : 1) {
            const int n = rows[run], elements = n * PACK_N;
            fill(c, (size_t)elements, 1);
            fill(s, (size_t)(PACK_OUTER * elements), 2);
            fill(w, PACK_N * PACK_N, 3 + (int)run); /* others in every run */
            for (int i = 0; i < PACK_N * PACK_N; i++) w[i] *= 0.25f;
            tensor tc, ts, tw, tr;
            const DLTensor *inputs[] = {F32(&tc, c, n, PACK_N), F32(&ts, s, PACK_OUTER, n, PACK_N),
                                        F32(&tw, w, PACK_N, PACK_N)};
            dlc_output_slot slot = {.tensor = (DLTensor *)(uintptr_t)F32(&tr, r, n, PACK_N)};
            OK(context, dlc_run(program, NULL, inputs, 3, &slot, 1));
            for (int i = 0; i < elements; i++) h[i] = (double)c[i];
            for (int outer = 0; outer < PACK_OUTER; outer++) {
                for (int inner = 0; inner < PACK_INNER; inner++) {
                    multiply(n, h, w, m);
                    for (int i = 0; i < elements; i++) h[i] = tanh(m[i]);
                }
                multiply(n, h, w, m);
                for (int i = 0; i < elements; i++) h[i] = m[i] + (double)s[outer * elements + i];
            }
            for (int i = 0; i < elements; i++)
                if (fabs((double)r[i] - h[i]) > 1e-4 * (1 + fabs(h[i])))
                    fail_msg("%s, %d rows, element %d: %g, expected %g", all_targets[t], n, i, (double)r[i], h[i]);
            char *plan;
            OK(context, dlc_program_dump(program, "plan",
                                         (const int64_t *[]){inputs[0]->shape, inputs[1]->shape, inputs[2]->shape},
                                         (const int[]){2, 3, 2}, 3, &plan));
            packed = packed || strstr(plan, "once: input.");
            assert_true(count_text(plan, "once: input.") <= 1); /* for the loop and the one inside of it together */
            dlc_text_free(context, plan);
        }
        assert_true(packed);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

/* ---- what an inner loop's kernels want of a tensor is packed in front of the outermost loop that does not change it */

static const char lifted_text[] =
    "graph {\n input c: f32[4, 83]\n input s: f32[3, 83, 83]\n input w: f32[83, 83]\n"
    " r = scan(c, s, w, carries=1, sequences=1, body=graph {\n"
    "  input h: f32[4, 83]\n  input x: f32[83, 83]\n  input v: f32[83, 83]\n"
    "  a = scan(h, x, v, carries=1, sequences=0, length=[2], body=graph {\n"
    "   input g: f32[4, 83]\n   input y: f32[83, 83]\n   input u: f32[83, 83]\n   i0 = constant i64[] {0}\n"
    "   j, b = while(i0, g, y, u, condition=graph {\n    input i: i64[]\n    input f: f32[4, 83]\n"
    "    input q: f32[83, 83]\n    input p: f32[83, 83]\n    e = matmul(f, p)\n"
    "    two = constant f32[] {2}\n    n = reduce_max(e, axes=[0, 1])\n    small = lt(n, two)\n"
    "    limit = constant i64[] {3}\n    first = lt(i, limit)\n    go = and(first, small)\n    output go\n"
    "   }, body=graph {\n    input i: i64[]\n    input f: f32[4, 83]\n    input q: f32[83, 83]\n"
    "    input p: f32[83, 83]\n    one = constant i64[] {1}\n    k = add(i, one)\n    m = matmul(f, p)\n"
    "    n = matmul(m, q)\n    o = tanh(n)\n    output k\n    output o\n   })\n   output b\n  })\n"
    "  output a\n })\n output r\n}";

static bool goes_on(const double *e, int elements) {
    for (int i = 0; i < elements; i++)
        if (e[i] >= 2) return false;
    return true;
}

static void lifted_reference(const float *c, const float *s, const float *w, double *h) {
    static double m[4 * PACK_N], n[4 * PACK_N];
    for (int i = 0; i < 4 * PACK_N; i++) h[i] = (double)c[i];
    for (int outer = 0; outer < 3; outer++)
        for (int middle = 0; middle < 2; middle++)
            for (int inner = 0; inner < 3; inner++) {
                multiply(4, h, w, m);
                if (!goes_on(m, 4 * PACK_N)) break;
                multiply(4, m, s + outer * PACK_N * PACK_N, n);
                for (int i = 0; i < 4 * PACK_N; i++) h[i] = tanh(n[i]);
            }
}

static void test_packed_outside(void **state) {
    (void)state;
    static float c[4 * PACK_N], s[3 * PACK_N * PACK_N], w[PACK_N * PACK_N], r[4 * PACK_N];
    static double h[4 * PACK_N];
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        dlc_graph *g;
        OK(context, dlc_graph_parse(context, lifted_text, strlen(lifted_text), &g));
        dlc_program *program = compile(context, g);
        for (int run = 0; run < 3; run++) {
            fill(c, 4 * PACK_N, 1 + run);
            fill(s, 3 * PACK_N * PACK_N, 11 + run);
            fill(w, PACK_N * PACK_N, 21 + run);
            for (int i = 0; i < PACK_N * PACK_N; i++) w[i] *= 0.25f;
            tensor tc, ts, tw, tr;
            const DLTensor *inputs[] = {F32(&tc, c, 4, PACK_N), F32(&ts, s, 3, PACK_N, PACK_N),
                                        F32(&tw, w, PACK_N, PACK_N)};
            dlc_output_slot slot = {.tensor = (DLTensor *)(uintptr_t)F32(&tr, r, 4, PACK_N)};
            OK(context, dlc_run(program, NULL, inputs, 3, &slot, 1));
            lifted_reference(c, s, w, h);
            for (int i = 0; i < 4 * PACK_N; i++)
                if (fabs((double)r[i] - h[i]) > 1e-4)
                    fail_msg("%s, element %d: %g, expected %g", all_targets[t], i, (double)r[i], h[i]);
        }
        char *plan;
        OK(context, dlc_program_dump(program, "plan",
                                     (const int64_t *[]){(int64_t[]){4, PACK_N}, (int64_t[]){3, PACK_N, PACK_N},
                                                         (int64_t[]){PACK_N, PACK_N}},
                                     (const int[]){2, 3, 2}, 3, &plan));
        if (strcmp(all_targets[t], "cpu") == 0) { /* a plan is indented by four for each loop around it */
            assert_int_equal(count_text(plan, "once: "), 2);
            assert_non_null(strstr(plan, "\n    once: input.2 packed"));
            assert_non_null(strstr(plan, "\n        once: input.1 packed"));
        }
        dlc_text_free(context, plan);
        dlc_program_destroy(program);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unrolled),         cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_unequal_branches), cmocka_unit_test(test_constant_in_shapes),
        cmocka_unit_test(test_memory),           cmocka_unit_test(test_refused),
        cmocka_unit_test(test_large_weights),    cmocka_unit_test(test_packed_once),
        cmocka_unit_test(test_packed_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
