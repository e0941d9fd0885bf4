/* The inference form: quantised networks between dequantize_linear and quantize_linear, against sums in double precision of the floats that
 * they stand for, and batch norms behind products. */
#include "api/support.h"
#include "test/share.h"

/* ---- quantised blocks: quantize([relu](product(dequantize x, dequantize w) [+ dequantize bias] [+ dequantize residual])) */

typedef struct block {
    /* a contraction of x [n, ci] and w [ci, co] if window is 0 */
    int64_t n, ci, co, h, w, window, stride, pad, groups;
    dlc_dtype x_type, w_type, y_type;
    int x_zero, y_zero, r_zero;
    /* scales and zero points of the weights: of each output channel */
    bool by_channel, w_zeros, bias, residual, relu;
} block;

typedef struct data {
    int *x, *w, *r, *bias, *w_zero;
    float *w_scale;
    float x_scale, r_scale, y_scale;
    int64_t oh, ow;
} data;

static int draw(uint32_t *state, int low, int high) {
    const int drawn = low + (int)(((double)noise(state) + 1) / 2 * (high - low + 1));
    return drawn > high ? high : drawn;
}

static int lowest(dlc_dtype dtype) {
    return dtype == DLC_I8 ? -128 : 0;
}

static int *draw_bytes(uint32_t *state, int64_t count, dlc_dtype dtype) {
    int *x = malloc(((size_t)count + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = draw(state, lowest(dtype), lowest(dtype) + 255);
    return x;
}

static block draw_block(uint32_t *state) {
    block b = {.n = draw(state, 1, 5), .ci = draw(state, 1, 40), .co = draw(state, 1, 40), .h = 1, .w = 1, .groups = 1};
    b.stride = 1;
    if (draw(state, 0, 2)) {
        b.h = draw(state, 3, 12), b.w = draw(state, 3, 12);
        b.window = draw(state, 1, 3), b.stride = draw(state, 1, 2), b.pad = draw(state, 0, 1);
        b.groups = draw(state, 0, 3) ? 1 : draw(state, 1, 5);
        b.ci *= b.groups, b.co *= b.groups;
    }
    b.x_type = draw(state, 0, 1) ? DLC_U8 : DLC_I8;
    b.y_type = draw(state, 0, 1) ? DLC_U8 : DLC_I8;
    b.w_type = draw(state, 0, 2) ? DLC_I8 : DLC_U8;
    b.x_zero = draw(state, 0, 1) ? draw(state, lowest(b.x_type), lowest(b.x_type) + 255) : 0;
    b.y_zero = draw(state, 0, 1) ? lowest(b.y_type) + draw(state, 0, 60) : 0;
    b.r_zero = draw(state, 0, 255);
    b.by_channel = draw(state, 0, 1), b.w_zeros = b.w_type == DLC_U8 || !draw(state, 0, 2);
    b.bias = draw(state, 0, 1), b.residual = draw(state, 0, 1), b.relu = draw(state, 0, 1);
    return b;
}

static int64_t outputs(const block *b, int64_t size) {
    return b->window ? (size + 2 * b->pad - b->window) / b->stride + 1 : 1;
}

static int64_t taps(const block *b) {
    return b->window ? b->window * b->window : 1;
}

static data draw_data(const block *b, uint32_t *state) {
    data d = {.x_scale = 0.03f, .r_scale = 0.07f, .oh = outputs(b, b->h), .ow = outputs(b, b->w)};
    const int64_t out = b->n * b->co * d.oh * d.ow;
    d.x = draw_bytes(state, b->n * b->ci * b->h * b->w, b->x_type);
    d.w = draw_bytes(state, b->ci / b->groups * b->co * taps(b), b->w_type);
    d.r = draw_bytes(state, out, DLC_U8);
    d.bias = draw_bytes(state, b->co, DLC_I8);
    d.w_zero = draw_bytes(state, b->co, b->w_type);
    d.w_scale = malloc((size_t)b->co * sizeof *d.w_scale);
    assert_non_null(d.w_scale);
    for (int64_t c = 0; c < b->co; c++) {
        d.w_scale[c] = b->by_channel ? 0.01f + 0.005f * noise(state) : 0.011f;
        if (!b->w_zeros) d.w_zero[c] = 0;
        if (!b->by_channel) d.w_zero[c] = d.w_zero[0];
        d.bias[c] *= 200;
    }
    d.y_scale = 0.02f * sqrtf((float)(b->ci / b->groups * taps(b))) + 0.05f;
    return d;
}

static void free_data(data *d) {
    free(d->x), free(d->w), free(d->r), free(d->bias), free(d->w_zero), free(d->w_scale);
}

static double sum_at(const block *b, const data *d, int64_t n, int64_t co, int64_t i, int64_t j) {
    const int64_t each = b->ci / b->groups, first = co / (b->co / b->groups) * each;
    const int64_t side = b->window ? b->window : 1;
    double sum = 0;
    for (int64_t c = 0; c < each; c++)
        for (int64_t k = 0; k < side * side; k++) {
            const int64_t row = i * b->stride + k / side - b->pad, column = j * b->stride + k % side - b->pad;
            if (row < 0 || row >= b->h || column < 0 || column >= b->w) continue;
            const int x = d->x[((n * b->ci + first + c) * b->h + row) * b->w + column];
            const int w = d->w[b->window ? (co * each + c) * side * side + k : c * b->co + co];
            sum += (double)(x - b->x_zero) * (double)(w - d->w_zero[co]);
        }
    return sum;
}

/* What the quantised result is before it is rounded. */
static double result_at(const block *b, const data *d, int64_t n, int64_t co, int64_t i, int64_t j) {
    const int64_t at = ((n * b->co + co) * d->oh + i) * d->ow + j;
    const double unit = (double)d->x_scale * (double)d->w_scale[co];
    double y = sum_at(b, d, n, co, i, j) * unit;
    if (b->bias) y += d->bias[co] * unit;
    if (b->residual) y += (d->r[at] - b->r_zero) * (double)d->r_scale;
    if (b->relu && y < 0) y = 0;
    return fmin(fmax(y / (double)d->y_scale + b->y_zero, lowest(b->y_type)), lowest(b->y_type) + 255);
}

static dlc_value bytes_of(dlc_graph *g, dlc_dtype dtype, int rank, const int64_t *shape, const int *from) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= shape[i];
    uint8_t *bytes = malloc((size_t)count + 1);
    assert_non_null(bytes);
    for (int64_t i = 0; i < count; i++) bytes[i] = (uint8_t)from[i];
    dlc_value value = dlc_constant(g, dtype, rank, shape, bytes);
    free(bytes);
    return value;
}

static dlc_value dequantised(dlc_graph *g, dlc_value x, dlc_dtype dtype, float scale, int zero) {
    return dlc_dequantize_linear(x, dlc_scalar(g, DLC_F32, scale), bytes_of(g, dtype, 0, NULL, &zero), 0);
}

static dlc_value weights_of(dlc_graph *g, const block *b, const data *d) {
    const int axis = b->window == 0, rank = b->window ? 4 : 2, by = b->by_channel;
    const int64_t *shape = b->window ? SHAPE(b->co, b->ci / b->groups, b->window, b->window) : SHAPE(b->ci, b->co);
    return dlc_dequantize_linear(bytes_of(g, b->w_type, rank, shape, d->w),
                                 dlc_constant(g, DLC_F32, by, &b->co, d->w_scale),
                                 b->w_zeros ? bytes_of(g, b->w_type, by, &b->co, d->w_zero) : DLC_NONE, axis);
}

static dlc_value bias_of(dlc_graph *g, const block *b, const data *d) {
    float *units = malloc((size_t)b->co * sizeof *units);
    assert_non_null(units);
    for (int64_t c = 0; c < b->co; c++) units[c] = d->x_scale * d->w_scale[c];
    dlc_value scale = dlc_constant(g, DLC_F32, 1, &b->co, units);
    free(units);
    dlc_value bias = dlc_dequantize_linear(dlc_constant(g, DLC_I32, 1, &b->co, d->bias), scale, DLC_NONE, 0);
    return b->window ? dlc_reshape(bias, 3, DIMS(SIZE(b->co), SIZE(1), SIZE(1))) : bias;
}

static dlc_program *make_block(dlc_context *context, const block *b, const data *d, bool written) {
    dlc_graph *g;
    dlc_program *program;
    OK(context, dlc_graph_create(context, &g));
    const bool image = b->window > 0;
    dlc_value x = dlc_input(g, "x", b->x_type, image ? 4 : 2, DIMS(SIZE(b->n), SIZE(b->ci), SIZE(b->h), SIZE(b->w)));
    dlc_value r = dlc_input(g, "r", DLC_U8, image ? 4 : 2, DIMS(SIZE(b->n), SIZE(b->co), SIZE(d->oh), SIZE(d->ow)));
    dlc_value fx = dequantised(g, x, b->x_type, d->x_scale, b->x_zero), fw = weights_of(g, b, d), y;
    if (image) {
        dlc_convolution_options o = DLC_CONVOLUTION_OPTIONS_INIT;
        o.stride = SHAPE(b->stride, b->stride), o.low = o.high = SHAPE(b->pad, b->pad);
        o.stride_count = o.low_count = o.high_count = 2;
        o.groups = b->groups;
        y = dlc_convolution_with(fx, fw, &o);
    } else {
        y = dlc_matmul(fx, fw);
    }
    if (b->bias) y = dlc_add(y, bias_of(g, b, d));
    if (b->residual) y = dlc_add(y, dequantised(g, r, DLC_U8, d->r_scale, b->r_zero));
    if (b->relu) y = dlc_relu(y);
    dlc_quantize_linear_options o = DLC_QUANTIZE_LINEAR_OPTIONS_INIT;
    o.dtype = b->y_type;
    dlc_value zero = b->y_zero ? bytes_of(g, b->y_type, 0, NULL, &b->y_zero) : DLC_NONE;
    OK(context, dlc_output(g, "y", dlc_quantize_linear_with(y, dlc_scalar(g, DLC_F32, d->y_scale), zero, 0, &o)));
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    options.no_excess_precision = written;
    OK(context, dlc_compile(context, g, &options, &program));
    dlc_graph_destroy(g);
    return program;
}

/* How many kernels compute a product of integers; -1: some compute one of floats. */
static int integer_products(dlc_context *context, dlc_program *program, const block *b, const data *d) {
    char *text;
    const int64_t *shapes[] = {SHAPE(b->n, b->ci, b->h, b->w), SHAPE(b->n, b->co, d->oh, d->ow)};
    const int rank = b->window ? 4 : 2;
    OK(context, dlc_program_dump(program, "regions", shapes, (const int[]){rank, rank}, 2, &text));
    int count = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const size_t length = strcspn(line, "\n");
        const char *product = strstr(line, " = dot_general(");
        if (!product || product > line + length) product = strstr(line, " = convolution(");
        if (!product || product > line + length) continue;
        const char *type = strstr(product, "# ");
        count = count < 0 || strncmp(type, "# i32", 5) != 0 ? -1 : count + 1;
    }
    dlc_text_free(context, text);
    return count;
}

static void check_block(dlc_context *context, dlc_program *program, const block *b, const data *d, uint32_t seed) {
    const int64_t in = b->n * b->ci * b->h * b->w, out = b->n * b->co * d->oh * d->ow;
    const int rank = b->window ? 4 : 2;
    uint8_t *x = malloc((size_t)in), *r = malloc((size_t)out), *y = malloc((size_t)out);
    assert_true(x && r && y);
    for (int64_t i = 0; i < in; i++) x[i] = (uint8_t)d->x[i];
    for (int64_t i = 0; i < out; i++) r[i] = (uint8_t)d->r[i];
    tensor tx, tr, ty;
    const int64_t *shape = SHAPE(b->n, b->co, d->oh, d->ow);
    make_tensor(&tx, b->x_type, x, rank, SHAPE(b->n, b->ci, b->h, b->w));
    make_tensor(&tr, DLC_U8, r, rank, shape);
    make_tensor(&ty, b->y_type, y, rank, shape);
    dlc_output_slot slot = {.tensor = &ty.dl};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){&tx.dl, &tr.dl}, 2, &slot, 1));
    int64_t at = 0;
    for (int64_t n = 0; n < b->n; n++)
        for (int64_t co = 0; co < b->co; co++)
            for (int64_t i = 0; i < d->oh; i++)
                for (int64_t j = 0; j < d->ow; j++, at++) {
                    const double exact = result_at(b, d, n, co, i, j), near = 0.5 + 1e-3;
                    const int got = b->y_type == DLC_I8 ? (int8_t)y[at] : y[at];
                    if (!(fabs(got - exact) <= near))
                        fail_msg("seed %u: element %lld is %d, expected %.4f", seed, (long long)at, got, exact);
                }
    free(x), free(r), free(y);
}

static void test_quantised(void **state) {
    (void)state;
    enum { BLOCKS = 60 };
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (uint32_t seed = 1; seed <= (test_is_short() ? BLOCKS / 6 : BLOCKS); seed++) {
            uint32_t noise_state = seed * 7919;
            const block b = draw_block(&noise_state);
            data d = draw_data(&b, &noise_state);
            for (int written = 0; written < 2; written++) {
                dlc_program *program = make_block(context, &b, &d, written);
                check_block(context, program, &b, &d, seed);
                const int products = integer_products(context, program, &b, &d);
                if (written) assert_int_equal(products, -1);
                if (!written && strcmp(all_targets[t], "interp") == 0 && products < 1)
                    fail_msg("seed %u: a product of floats", seed);
                dlc_program_destroy(program);
            }
            free_data(&d);
        }
        dlc_context_destroy(context);
    }
}

/* ---- moves: nothing is converted */

static void test_moves(void **state) {
    (void)state;
    static const char text[] =
        "graph { input x: i8[2, 3, 8, 6] s = constant f32[] {0.3} z = constant i8[] {-7} v = constant f32[] {0}"
        " a = dequantize_linear(x, s, z) b = max_pool(a, window=[3, 2], stride=[1, 2], low=[1, 0], high=[1, 0])"
        " c = quantize_linear(b, s, z, dtype=i8) d = dequantize_linear(c, s, z) e = transpose(d, permutation=[0, 2, 3, 1])"
        " f = pad(e, v, low=[0, 1, 0, 0], high=[0, 0, 2, 0]) g = slice(f, start=[0, 0, 1, 0], stop=[2, 9, 5, 3])"
        " h = reshape(g, shape=[2, 36, 3]) i = concat(h, h, axis=1) j = reverse(i, axes=[1])"
        " k = pad_repeat(j, low=[0, -2, 0], high=[0, 3, 0], mode=wrap) o = constant i32[1] {1}"
        " l = dynamic_slice(k, o, size=[72], axes=[1]) y = quantize_linear(l, s, z, dtype=i8) output y }";
    int8_t x[288], y[2][432];
    uint32_t noise_state = 5;
    for (size_t i = 0; i < sizeof x; i++) x[i] = (int8_t)draw(&noise_state, -128, 127);
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (int written = 0; written < 2; written++) {
            dlc_graph *g;
            dlc_program *program;
            char *regions;
            tensor tx, ty;
            dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
            options.no_excess_precision = written;
            OK(context, dlc_graph_parse(context, text, strlen(text), &g));
            OK(context, dlc_compile(context, g, &options, &program));
            const int64_t *shape = SHAPE(2, 3, 8, 6);
            OK(context, dlc_program_dump(program, "regions", &shape, (const int[]){4}, 1, &regions));
            assert_int_equal(written, strstr(regions, "f32") != NULL);
            dlc_text_free(context, regions);
            make_tensor(&tx, DLC_I8, x, 4, shape);
            make_tensor(&ty, DLC_I8, y[written], 3, SHAPE(2, 72, 3));
            dlc_output_slot slot = {.tensor = &ty.dl};
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){&tx.dl}, 1, &slot, 1));
            dlc_program_destroy(program), dlc_graph_destroy(g);
        }
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        dlc_context_destroy(context);
    }
}

/* ---- batch norms behind products */

typedef struct normed {
    int64_t ci, co, side, window, groups;
    /* a contraction */
    bool rows;
} normed;

static void check_normed(dlc_context *context, const normed *m) {
    const int64_t h = m->side, each = m->ci / m->groups, count = m->rows ? 1 : m->window * m->window,
                  pad = m->window / 2;
    const size_t in = (size_t)(m->ci * h * h), out = (size_t)(m->co * h * h), weights = (size_t)(m->co * each * count);
    float *x = malloc(in * sizeof *x), *y = malloc(out * sizeof *y), *w = malloc(weights * sizeof *w),
          *p = malloc((size_t)m->co * 20);
    double *expected = malloc(out * sizeof *expected);
    assert_true(x && y && w && p && expected);
    fill(x, in, 1), fill(w, weights, 2), fill(p, (size_t)m->co * 5, 3);
    float *scale = p, *bias = p + m->co, *mean = bias + m->co, *variance = mean + m->co, *own = variance + m->co;
    for (int64_t c = 0; c < m->co; c++) variance[c] = 0.6f + 0.5f * variance[c];
    for (int64_t c = 0; c < m->co; c++)
        for (int64_t i = 0; i < h * h; i++) {
            double sum = (double)own[c];
            for (int64_t k = 0; k < each; k++)
                for (int64_t q = 0; q < count; q++) {
                    const int64_t row = i / h + q / m->window - pad, column = i % h + q % m->window - pad;
                    if (row < 0 || row >= h || column < 0 || column >= h) continue;
                    const int64_t channel = c / (m->co / m->groups) * each + k;
                    sum += m->rows
                               ? (double)x[i * m->ci + k] * (double)w[k * m->co + c]
                               : (double)x[(channel * h + row) * h + column] * (double)w[(c * each + k) * count + q];
                }
            sum = (sum - (double)mean[c]) / sqrt((double)variance[c] + 1e-5) * (double)scale[c] + (double)bias[c];
            expected[m->rows ? i * m->co + c : c * h * h + i] = fmax(sum, 0);
        }
    for (int written = 0; written < 2; written++) {
        dlc_graph *g;
        dlc_program *program;
        OK(context, dlc_graph_create(context, &g));
        dlc_value product, v[5];
        dlc_convolution_options o = DLC_CONVOLUTION_OPTIONS_INIT;
        o.low = o.high = SHAPE(pad, pad), o.low_count = o.high_count = 2, o.groups = m->groups;
        for (int i = 0; i < 5; i++) v[i] = dlc_constant(g, DLC_F32, 1, &m->co, p + i * m->co);
        if (m->rows) {
            product = dlc_add(dlc_matmul(dlc_input(g, "x", DLC_F32, 2, DIMS(SIZE(h * h), SIZE(m->ci))),
                                         dlc_constant(g, DLC_F32, 2, SHAPE(m->ci, m->co), w)),
                              v[4]);
        } else {
            dlc_value image = dlc_input(g, "x", DLC_F32, 4, DIMS(SIZE(1), SIZE(m->ci), SIZE(h), SIZE(h)));
            product = dlc_convolution_with(
                image, dlc_constant(g, DLC_F32, 4, SHAPE(m->co, each, m->window, m->window), w), &o);
            product = dlc_add(product, dlc_reshape(v[4], 3, DIMS(SIZE(m->co), SIZE(1), SIZE(1))));
        }
        OK(context, dlc_output(g, "y", dlc_relu(dlc_batch_norm(product, v[0], v[1], v[2], v[3], 1))));
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.no_excess_precision = written;
        OK(context, dlc_compile(context, g, &options, &program));
        dlc_graph_destroy(g);
        const int64_t *shape = m->rows ? SHAPE(h * h, m->ci) : SHAPE(1, m->ci, h, h);
        const int rank = m->rows ? 2 : 4;
        char *text;
        OK(context, dlc_program_dump(program, "regions", &shape, &rank, 1, &text));
        assert_int_equal(written, strstr(text, "= sub(") != NULL); /* the mean */
        const bool large = weights * sizeof *w >= 64 << 10;
        assert_int_equal(written || large, strstr(text, "= mul(") != NULL);
        dlc_text_free(context, text);
        tensor tx, ty;
        dlc_output_slot slot = {.tensor = m->rows ? F32(&ty, y, h * h, m->co) : F32(&ty, y, 1, m->co, h, h)};
        make_tensor(&tx, DLC_F32, x, rank, shape);
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){&tx.dl}, 1, &slot, 1));
        CLOSE(y, expected, out, 2e-5);
        dlc_program_destroy(program);
    }
    free(x), free(y), free(w), free(p), free(expected);
}

static void test_factors(void **state) {
    (void)state;
    static const normed cases[] = {{3, 17, 9, 3, 1, false},  {12, 12, 7, 3, 12, false}, {8, 6, 5, 1, 2, false},
                                   {40, 64, 6, 3, 1, false}, {24, 33, 5, 1, 1, true},   {160, 128, 4, 1, 1, true}};
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_normed(context, &cases[i]);
        dlc_context_destroy(context);
    }
}

/* ---- scatters that are added to a value */

enum { TABLE_ROWS = 64, TABLE_COLUMNS = 20, UPDATES_U = 6, UPDATES_V = 5 };

typedef struct scattered {
    const char *text;
    /* factors of x and of the updates u at i, v at j, for r = 0.5 */
    double of_x, of_u, of_v;
    /* rows of the table; is the sum one scatter onto x? */
    int64_t rows;
    bool onto;
} scattered;

#define AT_I " s = scatter(z, i, u, axis=0, combine=add)"
#define AT_J " t = scatter_nd(z, k, v, combine=add)"
static const scattered scattered_cases[] = {
    /* the gradient of a look-up times a rate, subtracted; of a table that is shorter than its updates */
    {AT_I " g = mul(r, s) y = sub(x, g)", 1, -0.5, 0, 64, true},
    {AT_I " g = mul(r, s) y = sub(x, g)", 1, -0.5, 0, 8, false},
    /* the scatter first; further maps that are linear in it */
    {AT_I " m = neg(s) d = div(m, r) y = add(d, x)", 1, -2, 0, 64, true},
    /* two look-ups of a table: a sum, a difference, one onto the other */
    {AT_I AT_J " a = add(s, t) g = mul(a, r) y = sub(x, g)", 1, -0.5, -0.5, 64, true},
    {AT_I AT_J " g = mul(t, r) a = sub(s, g) y = sub(x, a)", 1, -1, 0.5, 64, true},
    {AT_I " t = scatter_nd(s, k, v, combine=add) g = mul(t, r) y = add(x, g)", 1, 0.5, 0.5, 64, true},
    /* updates that repeat */
    {" b = slice(u, start=[0, 0], stop=[1, 20]) w = broadcast(b, shape=[6, 20], axes=[0, 1])"
     " s = scatter(z, i, w, axis=0, combine=add) g = mul(r, s) y = sub(x, g)",
     1, -0.5, 0, 64, true},
    /* not: with another reader, set instead of added, multiplied by a row, subtracted from */
    {AT_I " a = add(s, s) y = add(x, a)", 1, 2, 0, 64, false},
    {" s = scatter(z, j, v, axis=0, combine=set) y = add(x, s)", 1, 0, 1, 64, false},
    {AT_I
     " c = slice(r, start=[0, 0], stop=[1, 20]) d = broadcast(c, shape=[n, 20], axes=[0, 1]) g = mul(s, d) y = add(x, g)",
     1, 0.5, 0, 64, false},
    {" s = scatter_elements(z, e, v, axis=0, combine=add) g = mul(s, r) y = sub(g, x)", -1, 0, 0.5, 64, false},
};

/* Integers and factors of powers of 2, so that sums are exact in any order; indices that repeat and that are out of range. */
static void check_scattered(dlc_context *context, const scattered *c) {
    static const int64_t i[UPDATES_U] = {3, 70, 5, 3, -1, 3}, j[UPDATES_V] = {3, 0, 6, 64, 1};
    static float x[TABLE_ROWS][TABLE_COLUMNS], u[UPDATES_U][TABLE_COLUMNS], v[UPDATES_V][TABLE_COLUMNS],
        y[TABLE_ROWS][TABLE_COLUMNS], half = 0.5f;
    double expected[TABLE_ROWS][TABLE_COLUMNS];
    for (int k = 0; k < TABLE_ROWS * TABLE_COLUMNS; k++) x[k / TABLE_COLUMNS][k % TABLE_COLUMNS] = (float)(k % 23 - 11);
    for (int k = 0; k < UPDATES_U * TABLE_COLUMNS; k++) u[k / TABLE_COLUMNS][k % TABLE_COLUMNS] = (float)(k % 13 - 4);
    for (int k = 0; k < UPDATES_V * TABLE_COLUMNS; k++) v[k / TABLE_COLUMNS][k % TABLE_COLUMNS] = (float)(k % 17 - 9);
    const bool repeats = strstr(c->text, "w = broadcast") != NULL;
    for (int k = 0; k < TABLE_COLUMNS; k++) {
        for (int n = 0; n < c->rows; n++) expected[n][k] = c->of_x * (double)x[n][k];
        for (int n = 0; n < UPDATES_U; n++)
            if (i[n] >= 0 && i[n] < c->rows) expected[i[n]][k] += c->of_u * (double)u[repeats ? 0 : n][k];
        for (int n = 0; n < UPDATES_V; n++)
            if (j[n] >= 0 && j[n] < c->rows) expected[j[n]][k] += c->of_v * (double)v[n][k];
    }
    char text[1000];
    snprintf(
        text, sizeof text,
        "graph { input x: f32[n, 20] input u: f32[6, 20] input v: f32[5, 20] input h: f32[]"
        " i = constant i64[6] {3, 70, 5, 3, -1, 3} j = constant i64[5] {3, 0, 6, 64, 1} k = reshape(j, shape=[5, 1])"
        " e = broadcast(j, shape=[5, 20], axes=[0]) zero = constant f32[] {0}"
        " z = broadcast(zero, shape=[n, 20], axes=[]) r = broadcast(h, shape=[n, 20], axes=[]) %s output y }",
        c->text);
    for (int written = 0; written < 2; written++) {
        dlc_graph *g;
        dlc_program *program;
        char *regions;
        tensor tx, tu, tv, th, ty;
        dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
        options.no_excess_precision = written;
        OK(context, dlc_graph_parse(context, text, strlen(text), &g));
        OK(context, dlc_compile(context, g, &options, &program));
        const int64_t *const shapes[] = {SHAPE(c->rows, 20), SHAPE(6, 20), SHAPE(5, 20), NULL};
        OK(context, dlc_program_dump(program, "regions", shapes, (const int[]){2, 2, 2, 0}, 4, &regions));
        if ((strstr(regions, "= scatter(x,") != NULL) != (c->onto && !written))
            fail_msg("%s, %s: %s", c->text, written ? "as written" : "simplified", regions);
        dlc_text_free(context, regions);
        const DLTensor *in[] = {F32(&tx, x[0], c->rows, 20), F32(&tu, u[0], 6, 20), F32(&tv, v[0], 5, 20),
                                &make_tensor(&th, DLC_F32, &half, 0, NULL)->dl};
        dlc_output_slot slot = {.tensor = F32(&ty, y[0], c->rows, 20)};
        OK(context, dlc_run(program, NULL, in, 4, &slot, 1));
        CLOSE(y[0], expected[0], (size_t)c->rows * 20, 0);
        dlc_program_destroy(program), dlc_graph_destroy(g);
    }
}

static void test_scattered(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        if (!context) continue;
        for (size_t i = 0; i < sizeof scattered_cases / sizeof *scattered_cases; i++)
            check_scattered(context, &scattered_cases[i]);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quantised), cmocka_unit_test(test_moves),
                                       cmocka_unit_test(test_factors), cmocka_unit_test(test_scattered)};
    return cmocka_run_group_tests_name("api/inference", tests, NULL, NULL);
}
