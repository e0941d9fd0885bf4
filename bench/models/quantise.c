/* Networks as ONNX Runtime's static quantiser writes them: what products read, and what they make, goes through u8, by a range that a
 * run of floats has shown; weights are i8, by channel. Biases stay f32: whoever adds them to sums of integers converts them. */
#include "bench/models/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void model_set_form(model *m, model_form form) {
    m->form = form;
}

bool model_is_quantised(const model *m) {
    return m->form == MODEL_QUANTISED;
}

int model_range_count(const model *m) {
    return m->activation_count;
}

bool model_set_ranges(model *m, int count, const float *ranges) {
    free(m->ranges);
    m->ranges = malloc((size_t)count * 2 * sizeof *ranges);
    if (m->ranges) memcpy(m->ranges, ranges, (size_t)count * 2 * sizeof *ranges);
    m->range_count = m->ranges ? count : 0;
    return m->ranges != NULL;
}

/* The least and the greatest number of x, as a tensor [2]. */
static dlc_value range_of(dlc_value x) {
    const int64_t axes[] = {0, 1, 2, 3};
    const int rank = dlc_value_rank(x);
    const dlc_dim one = {1, NULL};
    dlc_value low = dlc_reshape(dlc_reduce_min(x, rank, axes), 1, &one);
    return dlc_concat(2, (dlc_value[]){low, dlc_reshape(dlc_reduce_max(x, rank, axes), 1, &one)}, 0);
}

/* Adds the row of the next activation, in the order of construction; NULL: there is no room. */
static model_activation_row *add_activation(model *m, dlc_value x) {
    if (m->activation_count == MODEL_MOST_ACTIVATIONS) return NULL;
    model_activation_row *it = &m->activations[m->activation_count++];
    *it = (model_activation_row){.from = x, .to = x};
    return it;
}

/* Decides scale and zero point such that 0 is exactly one of the steps. */
static void decide_scale(model_activation_row *it, const float *range) {
    const double low = fmin(range[0], 0), high = fmax(range[1], 0);
    it->scale = (float)((high - low) / 255);
    if (it->scale == 0) it->scale = 1;
    it->zero_point = (uint8_t)lrint(-low / it->scale);
}

static dlc_value quantised(model *m, const model_activation_row *it, dlc_value x) {
    dlc_value zero = dlc_constant(m->graph, DLC_U8, 0, NULL, &it->zero_point);
    return dlc_quantize_linear(x, dlc_scalar(m->graph, DLC_F32, it->scale), zero, 0);
}

static dlc_value dequantised(model *m, const model_activation_row *it, dlc_value x) {
    dlc_value zero = dlc_constant(m->graph, DLC_U8, 0, NULL, &it->zero_point);
    return dlc_dequantize_linear(x, dlc_scalar(m->graph, DLC_F32, it->scale), zero, 0);
}

/* Finds the row of an activation, by the value that was quantised or by the result. */
static const model_activation_row *find(const model *m, dlc_value x) {
    for (int i = 0; i < m->activation_count; i++)
        if (m->activations[i].from.id == x.id || m->activations[i].to.id == x.id) return &m->activations[i];
    return NULL;
}

static model_activation_row *observe(model *m, dlc_value x) {
    model_activation_row *it = add_activation(m, x);
    const int number = m->activation_count - 1;
    if (it && m->form == MODEL_OBSERVED) it->range = range_of(x);
    if (it && m->form == MODEL_QUANTISED && number < m->range_count) decide_scale(it, m->ranges + 2 * number);
    return it;
}

dlc_value model_activation(model *m, dlc_value x) {
    const model_activation_row *known = m->form == MODEL_FLOAT ? NULL : find(m, x);
    if (m->form == MODEL_FLOAT) return x;
    if (known) return known->to;
    model_activation_row *it = observe(m, x);
    if (it && m->form == MODEL_QUANTISED) it->to = dequantised(m, it, quantised(m, it, x));
    return it ? it->to : DLC_NONE;
}

dlc_value model_activation_like(model *m, dlc_value x, dlc_value like) {
    const model_activation_row *known = find(m, like);
    if (m->form != MODEL_QUANTISED || !known) return x;
    return dequantised(m, known, quantised(m, known, x));
}

dlc_value model_result(model *m, dlc_value x) {
    const model_activation_row *it = m->form == MODEL_FLOAT ? NULL : observe(m, x);
    return it && m->form == MODEL_QUANTISED ? quantised(m, it, x) : x;
}

void model_output_ranges(model *m) {
    dlc_value all[MODEL_MOST_ACTIVATIONS];
    for (int i = 0; i < m->activation_count; i++) all[i] = m->activations[i].range;
    if (m->activation_count) dlc_output(m->graph, "ranges", dlc_concat(m->activation_count, all, 0));
}

/* ---- weights ------------------------------------------------------------------------------------------------------- */

/* The channel of element i: channels are the first axis, or the last one. */
static int64_t channel_of(int64_t i, int64_t count, int64_t channels, bool first) {
    return first ? i / (count / channels) : i % channels;
}

dlc_value model_narrow(model *m, int rank, const int64_t *shape, bool first, const float *numbers) {
    const int64_t channels = first ? shape[0] : shape[rank - 1];
    int64_t count = 1;
    for (int d = 0; d < rank; d++) count *= shape[d];
    int8_t *bytes = model_keep(m, (size_t)count);
    float *scales = model_keep(m, (size_t)channels * sizeof *scales);
    if (!bytes || !scales || !numbers) return DLC_NONE;
    memset(scales, 0, (size_t)channels * sizeof *scales);
    for (int64_t i = 0; i < count; i++) {
        float *most = &scales[channel_of(i, count, channels, first)];
        *most = fmaxf(*most, fabsf(numbers[i]));
    }
    for (int64_t c = 0; c < channels; c++) scales[c] = scales[c] > 0 ? scales[c] / 127 : 1;
    for (int64_t i = 0; i < count; i++)
        bytes[i] = (int8_t)lrintf(numbers[i] / scales[channel_of(i, count, channels, first)]);
    dlc_value w = dlc_constant_borrow(m->graph, DLC_I8, rank, shape, bytes);
    return dlc_dequantize_linear(w, dlc_constant_borrow(m->graph, DLC_F32, 1, &channels, scales), DLC_NONE,
                                 first ? 0 : rank - 1);
}
