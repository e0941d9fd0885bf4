/* Constants at addresses that are not aligned to their elements, as the weights of a file may lie, of every element type and in every place
 * where a program may read them: bit for bit what the same program gives with aligned ones. */
#include "support.h"
#include "test/share.h"

enum { K = 256, READERS = 11, ROWS = 2 };

static const struct {
    const char *name;
    dlc_dtype dtype;
    int bits;
} dtypes[] = {
#define X(dtype, name, bits, ...) {name, dtype, bits},
    DLC_DTYPE_TABLE(X)
#undef X
};

typedef struct inputs {
    dlc_graph *g;
    dlc_dtype dtype;
    int64_t columns;
    /* the constant, [K, columns]; f32 [ROWS, K]; i64 [3]; f32 */
    dlc_value w, x, rows, scale;
} inputs;

/* Host functions get elements at addresses of which a multiple is theirs. */
static void sum_bytes(void *user, int input_count, const DLTensor *const *input, int output_count,
                      DLTensor *const *output) {
    const DLTensor *w = input[0];
    const size_t size = w->dtype.bits < 8 ? 1 : (size_t)w->dtype.bits / 8, columns = (size_t)w->shape[1];
    const unsigned char *at = (const unsigned char *)w->data + w->byte_offset;
    int64_t sum = 0;
    (void)input_count, (void)output_count;
    if ((uintptr_t)at % size) *(bool *)user = true;
    for (size_t i = 0; i < K * columns * (size_t)w->dtype.bits / 8; i++) sum += at[i] * (int64_t)(i % 251);
    memcpy(output[0]->data, &sum, sizeof sum);
}

static bool misaligned;

static dlc_value read_by_host(const inputs *in) {
    dlc_value sum;
    dlc_custom_register(in->g, "sum", sum_bytes, &misaligned);
    dlc_custom_call(in->g, 1, &in->w, "sum", 1, SHAPE(DLC_I64), 1, SHAPE(0), 0, NULL, 1, &sum);
    return sum;
}

static dlc_value numbers(dlc_value x) {
    return dlc_cast(x, DLC_F32);
}

/* A sequence of a loop, and a row of it that the loop takes from outside. */
static dlc_value read_in_loop(const inputs *in) {
    dlc_value row = dlc_reshape(dlc_slice(in->w, 2, DIMS(SIZE(7), SIZE(0)), 2, DIMS(SIZE(8), SIZE(in->columns))), 1,
                                DIMS(SIZE(in->columns)));
    dlc_value first = dlc_mul(numbers(row), in->scale), sum;
    dlc_graph *body = dlc_subgraph(in->g);
    dlc_value before = dlc_input(body, "sum", DLC_F32, 1, DIMS(SIZE(in->columns)));
    dlc_value one = dlc_input(body, "row", in->dtype, 1, DIMS(SIZE(in->columns)));
    dlc_value all = dlc_input(body, "all", in->dtype, 2, DIMS(SIZE(K), SIZE(in->columns)));
    dlc_value last = dlc_slice(all, 2, DIMS(SIZE(K - 1), SIZE(0)), 2, DIMS(SIZE(K), SIZE(in->columns)));
    dlc_value both = dlc_add(numbers(one), dlc_reshape(numbers(last), 1, DIMS(SIZE(in->columns))));
    dlc_output(body, "sum", dlc_add(before, both));
    dlc_scan(in->g, 3, (dlc_value[]){first, in->w, in->w}, body, 1, 1, 1, &sum);
    return sum;
}

static dlc_value read_in_branch(const inputs *in) {
    dlc_graph *then = dlc_subgraph(in->g), *otherwise = dlc_subgraph(in->g);
    dlc_value x = dlc_input(then, "x", in->dtype, 2, DIMS(SIZE(K), SIZE(in->columns))), result;
    dlc_value other = dlc_input(otherwise, "x", in->dtype, 2, DIMS(SIZE(K), SIZE(in->columns)));
    dlc_output(then, "y", numbers(x));
    dlc_output(otherwise, "y", dlc_neg(numbers(other)));
    dlc_if(dlc_gt(in->scale, dlc_scalar(in->g, DLC_F32, 0)), 1, &in->w, then, otherwise, 1, &result);
    return result;
}

static dlc_value every_third(const inputs *in) {
    dlc_slice_options options = DLC_SLICE_OPTIONS_INIT;
    options.step_count = 2, options.step = (const int64_t[]){1, 3};
    return dlc_slice_with(in->w, 2, DIMS(SIZE(0), SIZE(1)), 2, DIMS(SIZE(K), SIZE(in->columns)), &options);
}

/* Reader r of the constant; the value is poison if the element type has no such operator. */
static dlc_value read_by(const inputs *in, int r) {
    switch (r) {
    case 0: return in->w;
    case 1: return dlc_gather(in->w, in->rows, 0);
    case 2: return dlc_mul(numbers(in->w), in->scale);
    case 3: return dlc_matmul(in->x, numbers(in->w));
    case 4: return dlc_matmul(dlc_cast(in->x, in->dtype), in->w);
    case 5: return dlc_mul(numbers(dlc_reverse(in->w, 1, (const int64_t[]){1})), in->scale);
    case 6: return dlc_mul(numbers(every_third(in)), in->scale);
    case 7: return dlc_matmul(in->x, dlc_cast(dlc_transpose(in->w, 2, (const int64_t[]){1, 0}), DLC_F32));
    case 8: return read_in_loop(in);
    case 9: return read_in_branch(in);
    default: return read_by_host(in);
    }
}

static inputs start(dlc_context *context, int type, const void *bytes) {
    inputs in = {.dtype = dtypes[type].dtype, .columns = dtypes[type].bits < 8 ? K * 8 / dtypes[type].bits : K};
    OK(context, dlc_graph_create(context, &in.g));
    in.x = dlc_input(in.g, "x", DLC_F32, 2, DIMS(SIZE(ROWS), SIZE(K)));
    in.rows = dlc_input(in.g, "rows", DLC_I64, 1, DIMS(SIZE(3)));
    in.scale = dlc_input(in.g, "scale", DLC_F32, 0, NULL);
    in.w = dlc_constant_borrow(in.g, in.dtype, 2, SHAPE(K, in.columns), bytes);
    return in;
}

/* The readers that the element type has: bits. */
static unsigned find_readers(dlc_context *context, int type, const void *bytes) {
    unsigned found = 0;
    for (int r = 0; r < READERS; r++) {
        inputs in = start(context, type, bytes);
        dlc_output(in.g, "y", read_by(&in, r));
        if (dlc_graph_status(in.g) == DLC_OK) found |= 1u << r;
        dlc_graph_destroy(in.g);
    }
    return found;
}

static int run_readers(dlc_context *context, int type, const void *bytes, unsigned readers,
                       dlc_output_slot results[READERS]) {
    static float x[ROWS][K];
    static int64_t rows[] = {K - 1, 0, 5};
    static float scale = 0.75F;
    tensor tx, trows, tscale;
    int count = 0;
    for (int i = 0; i < ROWS * K; i++) x[i / K][i % K] = (float)(i % 13 - 6) / 8;
    inputs in = start(context, type, bytes);
    for (int r = 0; r < READERS; r++) {
        char name[8];
        snprintf(name, sizeof name, "y%d", r);
        if (!(readers >> r & 1)) continue;
        dlc_output(in.g, name, read_by(&in, r));
        results[count++] = (dlc_output_slot){0};
    }
    dlc_program *program = compile(context, in.g);
    make_tensor(&trows, DLC_I64, rows, 1, SHAPE(3));
    make_tensor(&tscale, DLC_F32, &scale, 0, NULL);
    OK(context,
       dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, ROWS, K), &trows.dl, &tscale.dl}, 3, results, count));
    dlc_program_destroy(program);
    return count;
}

static size_t bytes_of(const DLTensor *t) {
    size_t count = 1;
    for (int d = 0; d < t->ndim; d++) count *= (size_t)t->shape[d];
    return (count * (size_t)t->dtype.bits + 7) / 8;
}

static void check_type(dlc_context *context, int type) {
    const int64_t size = dtypes[type].bits < 8 ? K * K : (int64_t)K * K * dtypes[type].bits / 8;
    char *aligned = aligned_alloc(64, (size_t)size), *block = malloc((size_t)size + 1), *other = block + 1;
    dlc_output_slot expected[READERS], results[READERS];
    for (int64_t i = 0; i < size; i++) /* as floats of any type: at least 0, below 2 */
        aligned[i] = (char)((i * 37 + i / 251) % (dtypes[type].dtype == DLC_BOOL ? 2 : 60));
    memcpy(other, aligned, (size_t)size);
    const unsigned readers = find_readers(context, type, aligned);
    if (!(readers & 3)) failed("%s: is not even an output", dtypes[type].name);
    const int count = run_readers(context, type, aligned, readers, expected);
    run_readers(context, type, other, readers, results);
    for (int i = 0; i < count; i++) {
        const DLTensor *a = &expected[i].managed->dl_tensor, *b = &results[i].managed->dl_tensor;
        if (memcmp(a->data, b->data, bytes_of(a)) != 0)
            failed("%s: output %d of %d differs", dtypes[type].name, i, count);
        expected[i].managed->deleter(expected[i].managed);
        results[i].managed->deleter(results[i].managed);
    }
    if (misaligned) failed("%s: a host function got an address that is not aligned", dtypes[type].name);
    free(aligned), free(block);
}

static void test_unaligned(void **state) {
    (void)state;
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *context = open_context(all_targets[t], NULL);
        const size_t every = test_is_short() ? TARGETS : 1; /* each type on one of the targets */
        for (size_t type = (size_t)t % every; context && type < sizeof dtypes / sizeof *dtypes; type += every)
            check_type(context, (int)type);
        dlc_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unaligned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
