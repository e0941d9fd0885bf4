/* Rows of products: matrices, convolutions, sums over labels. */
#include "graph/onnx/import.h"
#include "graph/onnx/window.h"

static void import_gemm(onnx_import *im) {
    const double alpha = onnx_float(im, "alpha", 1), beta = onnx_float(im, "beta", 1);
    const bool left = onnx_int(im, "transA", 0) != 0, right = onnx_int(im, "transB", 0) != 0;
    const graph_id a = onnx_operand(im, 0), b = onnx_operand(im, 1);
    onnx_ignore(im, "broadcast");
    if (graph_shape_of(im->g, a)->rank != 2 || graph_shape_of(im->g, b)->rank != 2)
        onnx_fail(im, DLC_PARSE_ERROR, "operands of rank %d and %d in place of matrices",
                  graph_shape_of(im->g, a)->rank, graph_shape_of(im->g, b)->rank);
    graph_id y = graph_contract(im->g, a, b, 0, NULL, NULL, 1, (int64_t[]){left ? 0 : 1}, (int64_t[]){right ? 1 : 0});
    if (alpha != 1) y = onnx_binary(im, "mul", y, graph_scalar_like(im->g, y, alpha));
    if (onnx_has(im, 2) && beta != 0) {
        graph_id c = onnx_operand(im, 2);
        if (beta != 1) c = onnx_binary(im, "mul", c, graph_scalar_like(im->g, c, beta));
        y = onnx_binary(im, "add", y, c);
    }
    onnx_give(im, 0, y);
}

static void import_einsum(onnx_import *im) {
    const int count = (int)onnx_operands(im);
    graph_id *operands = LIB_NEW_ARRAY(im->g->arena, graph_id, (size_t)count + 1);
    for (int i = 0; i < count; i++) operands[i] = onnx_operand(im, (size_t)i);
    onnx_give(im, 0,
              onnx_emit(im, "einsum", count, operands, 1,
                        &(graph_setting){"equation", {.string = onnx_string(im, "equation", ""), .given = true}}));
}

static graph_id add_bias(onnx_import *im, graph_id y, graph_id bias) {
    const int rank = graph_shape_of(im->g, y)->rank;
    for (int d = 2; d < rank; d++) bias = graph_expand_dims(im->g, bias, graph_shape_of(im->g, bias)->rank);
    return onnx_binary(im, "add", y, bias);
}

static void check_kernel_shape(onnx_import *im, const graph_shape *w) {
    int count;
    const int64_t *given = onnx_ints(im, "kernel_shape", &count);
    int64_t own;
    for (int i = 0; i < count; i++)
        if (i + 2 >= w->rank || (tir_is_const(im->g->pool, w->dim[i + 2], &own) && own != given[i]))
            onnx_fail(im, DLC_PARSE_ERROR, "kernel_shape is not that of the weights");
}

static int conv_settings(onnx_import *im, const onnx_window *w, graph_setting *s) {
    s[0] = graph_set_list("stride", w->rank, w->stride);
    s[1] = graph_set_list("low", w->rank, w->low);
    s[2] = graph_set_list("high", w->rank, w->high);
    s[3] = graph_set_list("dilation", w->rank, w->dilation);
    s[4] = graph_set_integer("groups", onnx_int(im, "group", 1));
    return 5;
}

static void import_conv(onnx_import *im) {
    const graph_shape weights = onnx_operand_shape(im, 1);
    check_kernel_shape(im, &weights);
    const onnx_window w = onnx_window_of(im, onnx_window_dims(im, &weights));
    graph_setting settings[5];
    const int count = conv_settings(im, &w, settings);
    graph_id y =
        onnx_emit(im, "convolution", 2, (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 1)}, count, settings);
    onnx_give(im, 0, onnx_has(im, 2) ? add_bias(im, y, onnx_operand(im, 2)) : y);
}

static void import_conv_integer(onnx_import *im) {
    const graph_shape weights = onnx_operand_shape(im, 1);
    check_kernel_shape(im, &weights);
    const onnx_window w = onnx_window_of(im, onnx_window_dims(im, &weights));
    graph_setting settings[5];
    const int count = conv_settings(im, &w, settings);
    const graph_id inputs[] = {onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand(im, 2), onnx_operand(im, 3)};
    onnx_give(im, 0, onnx_emit(im, "convolution_integer", 4, inputs, count, settings));
}

/* Sets the padding of a transposed convolution: given, or such that the result has output_shape, or the input's size times stride. */
static void transposed_padding(onnx_import *im, onnx_window *w, const int64_t *window, int64_t *more) {
    const graph_shape x = onnx_operand_shape(im, 0);
    int count;
    const int64_t *wanted = onnx_ints(im, "output_shape", &count);
    int64_t shape[DLC_MAX_RANK];
    if (!wanted && w->pad != ONNX_PAD_UPPER && w->pad != ONNX_PAD_LOWER) return;
    onnx_window_list(im, "output_shape", count == w->rank + 2 ? count : w->rank, 0, 0, shape);
    for (int d = 0; d < w->rank; d++) {
        int64_t size, total;
        const int64_t span = (window[d] - 1) * w->dilation[d] + 1;
        if (wanted) {
            if (!tir_is_const(im->g->pool, x.dim[d + 2], &size))
                onnx_fail(im, DLC_UNSUPPORTED, "output_shape where the input's size is not given");
            if (size > ONNX_WINDOW_MAX) onnx_fail(im, DLC_UNSUPPORTED, "an input of size %lld", (long long)size);
            total = w->stride[d] * (size - 1) + more[d] + span - shape[count - w->rank + d];
        } else
            total = more[d] + span - w->stride[d];
        if (total < 0) more[d] -= total, total = 0; /* the result is larger than all windows together */
        /* Upper: the odd element is at the end, since version 11; before that, and with output_shape only, as the file's auto_pad
         * says. */
        const bool upper = w->pad == ONNX_PAD_UPPER;
        w->low[d] = upper ? total / 2 : total - total / 2;
        w->high[d] = total - w->low[d];
    }
}

static void import_conv_transpose(onnx_import *im) {
    const graph_shape weights = onnx_operand_shape(im, 1);
    check_kernel_shape(im, &weights);
    const int64_t *window = onnx_window_dims(im, &weights);
    onnx_window w = onnx_window_transposed(im, window);
    int64_t more[DLC_MAX_RANK] = {0};
    onnx_window_list(im, "output_padding", w.rank, 0, 0, more);
    transposed_padding(im, &w, window, more);
    graph_setting settings[6];
    int n = conv_settings(im, &w, settings);
    settings[n++] = graph_set_list("output_padding", w.rank, more);
    graph_id y =
        onnx_emit(im, "convolution_transposed", 2, (graph_id[]){onnx_operand(im, 0), onnx_operand(im, 1)}, n, settings);
    onnx_give(im, 0, onnx_has(im, 2) ? add_bias(im, y, onnx_operand(im, 2)) : y);
}

/* Floats that the operator does not take are computed in f32. */
static void import_deform_conv(onnx_import *im) {
    const dlc_dtype own = onnx_operand_shape(im, 0).dtype, wide = own == DLC_F64 ? DLC_F64 : DLC_F32;
    const graph_shape weights = onnx_operand_shape(im, 1);
    check_kernel_shape(im, &weights);
    const onnx_window w = onnx_window_of(im, onnx_window_dims(im, &weights));
    graph_setting settings[6];
    int n = conv_settings(im, &w, settings);
    settings[n++] = graph_set_integer("offset_groups", onnx_int(im, "offset_group", 1));
    graph_id in[5] = {0};
    for (size_t i = 0; i < 5; i++)
        if (onnx_has(im, i)) in[i] = graph_cast(im->g, onnx_operand(im, i), wide);
    const graph_id y =
        onnx_emit(im, "deformable_convolution", 4, (graph_id[]){in[0], in[1], in[2], in[4]}, n, settings);
    onnx_give(im, 0, graph_cast(im->g, in[3] ? add_bias(im, y, in[3]) : y, own));
}

/* A zero point with an entry for each row of the first operand is subtracted beforehand, since the operator takes a single number. */
static void import_matmul_integer(onnx_import *im) {
    const graph_id in[] = {onnx_operand(im, 0), onnx_operand(im, 1), onnx_operand_or_scalar(im, 2),
                           onnx_operand_or_scalar(im, 3)};
    if (graph_shape_of(im->g, in[1])->rank == 2 && (!in[2] || graph_shape_of(im->g, in[2])->rank == 0)) {
        onnx_give(im, 0, onnx_emit(im, "matmul_integer", 4, in, 0, NULL));
        return;
    }
    graph_id x = graph_cast(im->g, in[0], DLC_I32), w = graph_cast(im->g, in[1], DLC_I32);
    if (in[2]) {
        graph_id zero = graph_cast(im->g, in[2], DLC_I32);
        if (graph_shape_of(im->g, zero)->rank == 1) zero = graph_expand_dims(im->g, zero, 1);
        x = onnx_binary(im, "sub", x, zero);
    }
    if (in[3]) w = onnx_binary(im, "sub", w, graph_cast(im->g, in[3], DLC_I32));
    onnx_give(im, 0, onnx_binary(im, "matmul", x, w));
}

const onnx_row onnx_rows_contract[] = {
    {"Conv", 1, 0, import_conv, NULL},
    {"ConvInteger", 10, 0, import_conv_integer, NULL},
    {"ConvTranspose", 1, 0, import_conv_transpose, NULL},
    {"DeformConv", 19, 0, import_deform_conv, NULL},
    {"Einsum", 12, 0, import_einsum, NULL},
    {"Gemm", 1, 0, import_gemm, NULL},
    {"MatMul", 1, 0, NULL, "matmul"},
    {"MatMulInteger", 10, 0, import_matmul_integer, NULL},
    {0},
};
