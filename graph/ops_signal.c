/* Signal operators in addition to Fourier transforms (ops_fourier.c): inverse short-time transforms, windows, the matrix from a
 * spectrum to the mel scale. */
#include "graph/build.h"
#include "graph/ops_common.h"

#ifdef DLC_REFERENCE
#include <math.h>
#endif

/* ---- istft */

enum { ISTFT_STEP, ISTFT_LENGTH, ISTFT_ONESIDED };

static const graph_shape *window_of(int inputs, const graph_shape *window) {
    return inputs > 1 && window->rank >= 0 ? window : NULL;
}

/* Number of elements of a frame: the attribute, else the window's size, else that of the transform, an even one if onesided. */
static tir_expr elements_of_frame(tir_pool *pool, const graph_attribute *a, tir_expr bins, const graph_shape *window) {
    if (a[ISTFT_LENGTH].integer) return tir_index(pool, a[ISTFT_LENGTH].integer);
    if (window) return window->dim[0];
    if (!a[ISTFT_ONESIDED].integer) return bins;
    return tir_mul(pool, tir_sub(pool, bins, tir_index(pool, 1)), tir_index(pool, 2));
}

static tir_expr elements_of_signal(tir_pool *pool, const graph_attribute *a, tir_expr frames, tir_expr length) {
    tir_expr steps = tir_sub(pool, frames, tir_index(pool, 1));
    return tir_add(pool, tir_mul(pool, steps, tir_index(pool, a[ISTFT_STEP].integer)), length);
}

static void infer_istft(graph_infer *infer) {
    const graph_attribute *a = infer->attribute;
    const graph_shape *x = &infer->operand[0], *window = window_of(infer->inputs, &infer->operand[1]);
    tir_pool *pool = infer->g->pool;
    tir_expr one = tir_index(pool, 1), two = tir_index(pool, 2);
    graph_infer_rank(infer, 0, 4);
    graph_infer_equal(infer, x->dim[3], two, "the last dimension of x, expected 2: real and imaginary parts");
    if (window) graph_infer_rank(infer, 1, 1);
    if (window) graph_infer_same_dtype(infer, 0, 2);
    if (a[ISTFT_STEP].integer < 1 || a[ISTFT_STEP].integer > INT32_MAX)
        graph_infer_fail(infer, "frame_step is %lld, expected 1 to %d", (long long)a[ISTFT_STEP].integer, INT32_MAX);
    if (a[ISTFT_LENGTH].integer < 0 || a[ISTFT_LENGTH].integer > INT32_MAX)
        graph_infer_fail(infer, "frame_length is %lld, expected 0 to %d", (long long)a[ISTFT_LENGTH].integer,
                         INT32_MAX);
    tir_expr length = elements_of_frame(pool, a, x->dim[2], window), bins = length;
    int64_t known;
    if (window) graph_infer_equal(infer, window->dim[0], length, "elements of the window and of a frame");
    if (a[ISTFT_ONESIDED].integer) {
        bins = tir_add(pool, tir_div(pool, length, two), one);
        if (!tir_is_const(pool, length, &known)) /* an odd transform length must be given as a number */
            graph_infer_equal(infer, length, tir_mul(pool, tir_sub(pool, bins, one), two),
                              "elements of a frame and an even number");
    }
    graph_infer_equal(infer, x->dim[2], bins, "bins of x and of a frame's transform");
    graph_infer_at_most(infer, one, length, "frames without elements");
    graph_infer_at_most(infer, one, x->dim[1], "there is no frame");
    graph_infer_product(infer, 2,
                        (tir_expr[]){x->dim[1], tir_add(pool, length, tir_index(pool, a[ISTFT_STEP].integer))});
    infer->result[0] = (graph_shape){.dtype = x->dtype, .rank = 3, .dim = {x->dim[0]}};
    infer->result[0].dim[1] = elements_of_signal(pool, a, x->dim[1], length);
    infer->result[0].dim[2] = a[ISTFT_ONESIDED].integer ? one : two;
}

/* Each element of the signal is a sum over the frames that may contain it: the last one that starts before it, and earlier ones. */
static void expand_istft(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_attribute *a = e->attribute;
    const graph_shape shape = *graph_shape_of(g, e->input[0]);
    graph_id window = e->inputs > 1 ? e->input[1] : 0, step = graph_whole_number(g, a[ISTFT_STEP].integer);
    tir_expr length = elements_of_frame(pool, a, shape.dim[2], window ? graph_shape_of(g, window) : NULL);
    tir_expr overlap = tir_ceil_div(pool, length, tir_index(pool, a[ISTFT_STEP].integer));
    tir_expr table[2] = {elements_of_signal(pool, a, shape.dim[1], length), overlap};
    graph_id size = graph_dimension(g, DLC_I64, length), t = graph_iota(g, DLC_I64, 2, table, 0);
    graph_id frame = graph_sub(g, graph_div(g, t, step), graph_iota(g, DLC_I64, 2, table, 1));
    graph_id place = graph_sub(g, t, graph_mul(g, frame, step));
    graph_id held = graph_and(g, graph_ge(g, frame, graph_whole_number(g, 0)), graph_lt(g, place, size));
    held = graph_and(g, held, graph_lt(g, frame, graph_dimension(g, DLC_I64, shape.dim[1])));

    int64_t known = 0;
    tir_is_const(pool, length, &known);
    const graph_setting settings[4] = {graph_set_integer("axis", 2), graph_set_bool("inverse", true),
                                       graph_set_bool("onesided", a[ISTFT_ONESIDED].integer),
                                       graph_set_integer("length", known)};
    graph_id x = graph_slice_axis(g, e->input[0], 3, tir_index(pool, 0), tir_index(pool, 2)); /* also of a symbol */
    x = graph_widen(g, x);
    graph_id y = graph_emit_with(g, "dft", 1, &x, 4, settings);
    graph_shape framed = *graph_shape_of(g, y);
    graph_id weight = graph_full(g, framed.dtype, 2, table, 1);
    if (window) {
        const int64_t along = 2;
        window = graph_widen(g, window);
        y = graph_mul(g, y, graph_broadcast(g, window, 4, framed.dim, &along));
        weight = graph_gather(g, graph_mul(g, window, window), place, 0);
    }
    const int64_t terms = 1, summed = 2;
    weight = graph_select(g, held, weight, graph_scalar_like(g, weight, 0));
    weight = graph_reduce_sum(g, weight, 1, &terms, false);
    y = graph_reshape(g, y, 3, (tir_expr[]){shape.dim[0], tir_mul(pool, shape.dim[1], length), framed.dim[3]});
    y = graph_gather(g, y, graph_add(g, graph_mul(g, frame, size), place), 1); /* [batch, signal, overlap, parts] */
    framed = *graph_shape_of(g, y);
    held = graph_broadcast(g, held, 4, framed.dim, (int64_t[]){1, 2});
    y = graph_reduce_sum(g, graph_select(g, held, y, graph_full_like(g, y, 0)), 1, &summed, false);
    framed = *graph_shape_of(g, y);
    weight = graph_broadcast(g, weight, 3, framed.dim, &terms);
    graph_id zero = graph_full_like(g, y, 0);
    e->result[0] =
        graph_cast(g, graph_select(g, graph_eq(g, weight, zero), zero, graph_div(g, y, weight)), shape.dtype);
}

/* ---- signal_window: a0 - a1 cos(2 pi k/N) + a2 cos(4 pi k/N) */

enum { WINDOW_SIZE, WINDOW_FUNCTION, WINDOW_PERIODIC, WINDOW_DTYPE };

/* a0, a1, a2 of hann, hamming and blackman, as in ONNX. */
static const double cosine_terms[][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};

static void infer_signal_window(graph_infer *infer) {
    const graph_attribute *size = &infer->attribute[WINDOW_SIZE];
    dlc_dtype dtype = (dlc_dtype)infer->attribute[WINDOW_DTYPE].integer;
    if (size->count != 1) graph_infer_fail(infer, "size has %d entries, expected 1", size->count);
    if (!lib_dtype_is_float(dtype)) graph_infer_fail(infer, "dtype is %s, expected a float", lib_dtypes[dtype].name);
    graph_infer_at_most(infer, tir_index(infer->g->pool, 0), size->dims[0], "size is negative");
    infer->result[0] = (graph_shape){.dtype = dtype, .rank = 1, .dim = {size->dims[0]}};
}

static void expand_signal_window(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const bool periodic = e->attribute[WINDOW_PERIODIC].integer;
    const double *term = cosine_terms[e->attribute[WINDOW_FUNCTION].integer];
    tir_expr n = e->attribute[WINDOW_SIZE].dims[0], one = tir_index(pool, 1);
    tir_expr steps = tir_max(pool, periodic ? n : tir_sub(pool, n, one), one);
    graph_id share = graph_div(g, graph_iota(g, DLC_F64, 1, &n, 0), graph_dimension(g, DLC_F64, steps));
    graph_id y = graph_mul_number(g, graph_cos(g, graph_mul_number(g, share, 6.283185307179586476925)), -term[1]);
    y = graph_add_number(g, y, term[0]);
    if (term[2] != 0)
        y = graph_add(
            g, y, graph_mul_number(g, graph_cos(g, graph_mul_number(g, share, 2 * 6.283185307179586476925)), term[2]));
    if (!periodic) { /* a window of one element is the middle element */
        graph_id single = graph_eq(g, graph_dimension(g, DLC_I64, n), graph_whole_number(g, 1));
        y = graph_select(g, graph_broadcast(g, single, 1, &n, NULL), graph_full_like(g, y, 1), y);
    }
    e->result[0] = graph_cast(g, y, (dlc_dtype)e->attribute[WINDOW_DTYPE].integer);
}

/* ---- mel_matrix */

enum { MEL_BINS, MEL_LENGTH, MEL_RATE, MEL_LOW, MEL_HIGH, MEL_DTYPE };

static void infer_mel_matrix(graph_infer *infer) {
    const graph_attribute *a = infer->attribute;
    dlc_dtype dtype = (dlc_dtype)a[MEL_DTYPE].integer;
    for (int i = MEL_BINS; i <= MEL_RATE; i++)
        if (a[i].integer < 1 || a[i].integer > INT32_MAX)
            graph_infer_fail(infer, "%s is %lld, expected 1 to %d", infer->op->attribute[i].name,
                             (long long)a[i].integer, INT32_MAX);
    if (!(a[MEL_LOW].number >= 0 && a[MEL_LOW].number <= a[MEL_HIGH].number && a[MEL_HIGH].number <= 1e12))
        graph_infer_fail(infer, "low and high are %g and %g, expected 0 <= low <= high", a[MEL_LOW].number,
                         a[MEL_HIGH].number);
    if (!lib_dtype_is_float(dtype)) graph_infer_fail(infer, "dtype is %s, expected a float", lib_dtypes[dtype].name);
    tir_pool *pool = infer->g->pool;
    infer->result[0] = (graph_shape){.dtype = dtype, .rank = 2};
    infer->result[0].dim[0] = tir_index(pool, a[MEL_LENGTH].integer / 2 + 1);
    infer->result[0].dim[1] = tir_index(pool, a[MEL_BINS].integer);
}

static graph_id mel_of(graph *g, double hertz) {
    graph_id share = graph_scalar(g, DLC_F64, 1 + hertz / 700);
    return graph_mul_number(g, graph_div(g, graph_log(g, share), graph_log(g, graph_scalar(g, DLC_F64, 10))), 2595);
}

/* The spectral bin, a whole number, of edge i + k of the triangles, where i is the mel bin of dims[]. */
static graph_id bin_of_edge(graph_expand *e, const tir_expr *dims, int k) {
    graph *g = e->g;
    const graph_attribute *a = e->attribute;
    graph_id low = mel_of(g, a[MEL_LOW].number), high = mel_of(g, a[MEL_HIGH].number);
    graph_id step = graph_div(g, graph_sub(g, high, low), graph_scalar(g, DLC_F64, (double)(a[MEL_BINS].integer + 2)));
    graph_id edge = graph_add_number(g, graph_iota(g, DLC_F64, 2, dims, 1), k);
    graph_id mel = graph_add(g, graph_mul(g, edge, step), low);
    graph_id hertz = graph_pow(g, graph_scalar(g, DLC_F64, 10), graph_mul_number(g, mel, 1.0 / 2595));
    hertz = graph_mul_number(g, graph_add_number(g, hertz, -1), 700);
    graph_id bin = graph_mul_number(g, hertz, (double)(a[MEL_LENGTH].integer + 1));
    return graph_floor(g, graph_div(g, bin, graph_scalar(g, DLC_F64, (double)a[MEL_RATE].integer)));
}

static void expand_mel_matrix(graph_expand *e) {
    graph *g = e->g;
    const graph_attribute *a = e->attribute;
    tir_expr dims[2] = {tir_index(g->pool, a[MEL_LENGTH].integer / 2 + 1), tir_index(g->pool, a[MEL_BINS].integer)};
    graph_id row = graph_iota(g, DLC_F64, 2, dims, 0), edge[3], zero = graph_scalar(g, DLC_F64, 0);
    for (int k = 0; k < 3; k++) edge[k] = bin_of_edge(e, dims, k);
    graph_id rise = graph_div(g, graph_sub(g, row, edge[0]), graph_sub(g, edge[1], edge[0]));
    graph_id fall = graph_div(g, graph_sub(g, edge[2], row), graph_sub(g, edge[2], edge[1]));
    graph_id rises = graph_and(g, graph_le(g, edge[0], row), graph_lt(g, row, edge[1]));
    graph_id falls = graph_and(g, graph_lt(g, edge[1], row), graph_lt(g, row, edge[2]));
    graph_id y = graph_select(g, rises, rise, graph_select(g, falls, fall, graph_broadcast_like(g, zero, fall)));
    y = graph_select(g, graph_eq(g, row, edge[1]), graph_full_like(g, y, 1), y);
    e->result[0] = graph_cast(g, y, (dlc_dtype)a[MEL_DTYPE].integer);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* The real (part 0) or imaginary part of element i of the inverse transform of a frame's bins, by the defining sum; n: its elements. */
static double reference_inverse(const double *bins, int64_t n, bool onesided, int64_t i, int part) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        bool mirrored = onesided && k > n / 2;
        const double *bin = bins + 2 * (mirrored ? n - k : k);
        double angle = 2 * M_PI * (double)(i * k % n) / (double)n, imaginary = mirrored ? -bin[1] : bin[1];
        if (onesided && (k == 0 || 2 * k == n)) imaginary = 0;
        sum += part ? bin[0] * sin(angle) + imaginary * cos(angle) : bin[0] * cos(angle) - imaginary * sin(angle);
    }
    return sum / (double)n;
}

static void reference_istft(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *y = &r->result[0];
    const int64_t frames = x->dim[1], bins = x->dim[2], parts = y->dim[2], step = r->attribute[ISTFT_STEP].integer;
    const int64_t n = y->dim[1] - (frames - 1) * step;
    const double *window = graph_reference_given(r, 1) ? r->operand[1].data : NULL;
    for (int64_t at = 0; at < graph_reference_count(y); at++) {
        int64_t part = at % parts, t = at / parts % y->dim[1], batch = at / parts / y->dim[1];
        double sum = 0, weight = 0;
        for (int64_t f = 0; f < frames; f++) {
            int64_t i = t - f * step;
            if (i < 0 || i >= n) continue;
            double w = window ? window[i] : 1;
            sum += w * reference_inverse(x->data + (batch * frames + f) * bins * 2, n,
                                         r->attribute[ISTFT_ONESIDED].integer, i, (int)part);
            weight += window ? w * w : 1;
        }
        y->data[at] = weight == 0 ? 0 : sum / weight;
    }
}

static void reference_signal_window(const graph_reference *r) {
    const int64_t n = r->result[0].dim[0];
    const bool periodic = r->attribute[WINDOW_PERIODIC].integer;
    for (int64_t k = 0; k < n; k++) {
        double turn = 2 * M_PI * (double)k / (double)(periodic ? n : n - 1), y = 1;
        switch (r->attribute[WINDOW_FUNCTION].integer) {
        case 0: y = sin(turn / 2) * sin(turn / 2); break;
        case 1: y = (25 - 21 * cos(turn)) / 46; break;
        default: y = 0.42 - 0.5 * cos(turn) + 0.08 * cos(2 * turn); break;
        }
        r->result[0].data[k] = n == 1 && !periodic ? 1 : y;
    }
}

static void reference_mel_matrix(const graph_reference *r) {
    const graph_reference_tensor *y = &r->result[0];
    const double length = (double)r->attribute[MEL_LENGTH].integer, rate = (double)r->attribute[MEL_RATE].integer;
    double low = 2595 * log10(1 + r->attribute[MEL_LOW].number / 700),
           high = 2595 * log10(1 + r->attribute[MEL_HIGH].number / 700);
    for (int64_t m = 0; m < y->dim[1]; m++) {
        int64_t edge[3];
        for (int k = 0; k < 3; k++) {
            double mel = low + (high - low) / (double)(y->dim[1] + 2) * (double)(m + k);
            edge[k] = (int64_t)floor((length + 1) * 700 * (pow(10, mel / 2595) - 1) / rate);
        }
        for (int64_t j = 0; j < y->dim[0]; j++) {
            double *to = &y->data[j * y->dim[1] + m];
            if (j >= edge[0] && j <= edge[1])
                *to = edge[0] == edge[1] ? 1 : (double)(j - edge[0]) / (double)(edge[1] - edge[0]);
            if (j >= edge[1] && j < edge[2]) *to = (double)(edge[2] - j) / (double)(edge[2] - edge[1]);
        }
    }
}

#endif

/* ---- rows */

#define FORM(name_, least_, most_, operands_) \
    COMPOSITE_ROW(name_, least_, most_, 1, operands_, "float"), .infer = infer_##name_

static const graph_op row_istft = {
    FORM(istft, 1, 2, "x [window]"),
    .linear = 1,
    .algebra = GRAPH_BY_NUMBERS,
    .attribute =
        {{"frame_step", GRAPH_ATTR_INTEGER, NULL, NULL, "elements from one frame to the next"},
         {"frame_length", GRAPH_ATTR_INTEGER, NULL, "0",
          "elements of a frame; 0: of the window, else as many as bins, onesided 2*(bins - 1)"},
         {"onesided", GRAPH_ATTR_BOOL, NULL, "true",
          "bins are 0 to frame_length/2 of a real signal's transforms; else all of them, and the signal is complex"}},
    .tolerance = 64,
    .samples =
        "istft(T[2, 5, 9, 2], T[16] in 1..2, frame_step=8)\nistft(T[1, 4, 7, 2], frame_step=5, frame_length=12)\n"
        "istft(T[2, 6, 9, 2], T[9] in 1..2, frame_step=4, onesided=false)\n"
        "istft(T[1, 3, 5, 2], T[9] in 1..2, frame_step=3)\nistft(T[2, 2, 5, 2], T[8] in 1..2, frame_step=11)\n"
        "istft(T[1, 9, 33, 2], T[64] in 1..2, frame_step=16)\nistft(T[0, 2, 3, 2], T[4], frame_step=2)\n"
        "istft(T[1, 1, 1, 2], frame_step=1, frame_length=1)",
    .doc =
        "The signal of short-time Fourier transforms: y[b, t] = sum over frames f of w[t - f*frame_step] * inverse dft of x[b, f] at "
        "t - f*frame_step, over the sum of the squares of those w, 0 where that sum is 0. x [batch, frames, bins, 2], window "
        "[frame_length] (left out: ones), result [batch, (frames - 1)*frame_step + frame_length, 1], or 2 parts without onesided: "
        "the least-squares inverse of stft. Griffin and Lim 1984; PyTorch istft, center=False.",
};
static const graph_op row_signal_window = {
    FORM(signal_window, 0, 0, ""),
    GRAPH_NO_GRADIENT,
    .attribute = {{"size", GRAPH_ATTR_DIMS, NULL, NULL, "number of elements, one dimension"},
                  {"function", GRAPH_ATTR_ENUM, "hann hamming blackman", NULL, "see the definition"},
                  {"periodic", GRAPH_ATTR_BOOL, NULL, "true",
                   "N is size: one period without its end; else size - 1: symmetric"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "f32", "element type of the result"}},
    .tolerance = 8,
    .samples =
        "signal_window(size=[16], function=hann)\nsignal_window(size=[13], function=hamming, periodic=false)\n"
        "signal_window(size=[101], function=blackman, dtype=f64)\nsignal_window(size=[0], function=hann)\n"
        "signal_window(size=[1], function=hann, periodic=false, dtype=bf16)\nsignal_window(size=[1], function=hamming)\n"
        "signal_window(size=[7], function=blackman, periodic=false, dtype=f16)",
    .doc =
        "y[k] = 0.5 - 0.5 cos(2 pi k/N) (hann), 25/46 - 21/46 cos(2 pi k/N) (hamming), or 0.42 - 0.5 cos(2 pi k/N) + 0.08 cos(4 "
        "pi k/N) (blackman), in f64 and rounded once; 1 for one element that is not periodic. ONNX HannWindow, HammingWindow, "
        "BlackmanWindow.",
};
static const graph_op row_mel_matrix = {
    .aliases = "mel_weight_matrix",
    FORM(mel_matrix, 0, 0, ""),
    GRAPH_NO_GRADIENT,
    .attribute = {{"bins", GRAPH_ATTR_INTEGER, NULL, NULL, "bands of the mel scale: columns of the result"},
                  {"length", GRAPH_ATTR_INTEGER, NULL, NULL,
                   "points of the Fourier transform, of which length/2 + 1 are rows"},
                  {"rate", GRAPH_ATTR_INTEGER, NULL, NULL, "samples of the signal in a second"},
                  {"low", GRAPH_ATTR_FLOAT, NULL, NULL, "lower edge of the bands in hertz"},
                  {"high", GRAPH_ATTR_FLOAT, NULL, NULL, "upper edge"},
                  {"dtype", GRAPH_ATTR_DTYPE, NULL, "f32", "element type of the result"}},
    .tolerance = 2,
    .samples = "mel_matrix(bins=8, length=64, rate=8192, low=10.0, high=4000.0)\n"
               "mel_matrix(bins=13, length=33, rate=16000, low=20.5, high=7600.0, dtype=f64)\n"
               "mel_matrix(bins=1, length=1, rate=8000, low=1.0, high=3000.0, dtype=f16)",
    .doc =
        "Weights from a spectrum, y[j, m] for bins j of the spectrum and m of the mel scale: a triangle that rises from 0 at edge m to 1 "
        "at edge m + 1 and falls to 0 at edge m + 2. Edge i is floor((length + 1)*hz(i)/rate), hz(i) = 700*(10^(mel/2595) - 1), "
        "mel = mel(low) + i*(mel(high) - mel(low))/(bins + 2), mel(f) = 2595 log10(1 + f/700). Where edges are equal the "
        "middle is 1. ONNX MelWeightMatrix.",
};

const graph_op *const graph_ops_signal[] = {&row_istft, &row_signal_window, &row_mel_matrix, NULL};
