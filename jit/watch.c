/* Runs that stop at the first NaN or infinity (dlc_run_options.stop_at): checks of values, and the message. */
#include "jit/internal.h"

#include <math.h>

/* a tensor in memory, compact in its layout, or a part of one that is */
typedef struct watched {
    jit_watched is;
    const char *data;
    /* "input", "value" */
    const char *what;
    /* kernel or host function that wrote it; NULL: the host */
    const char *by;
    /* of a kernel: " of a, b", the names of its values; NULL: none */
    const char *origins;
} watched;

static const char *kind_of(double number, unsigned stop_at) {
    if (isnan(number)) return stop_at & DLC_STOP_AT_NAN ? "NaN" : NULL;
    if (isinf(number)) return stop_at & DLC_STOP_AT_INFINITY ? number < 0 ? "-infinity" : "infinity" : NULL;
    return NULL;
}

/* Position in memory, in elements, of the element with row-major index `index`. */
static int64_t place_of(const jit_watched *is, int64_t index) {
    int64_t logical[DLC_MAX_RANK], place = 0;
    const bool plain = !is->layout || tir_layout_is_identity(is->layout);
    if (plain && !is->room) return index;
    for (int d = is->rank; d-- > 0; index /= is->shape[d]) logical[d] = index % is->shape[d];
    for (int d = 0; plain && d < is->rank; d++)
        place = place * (d == is->room->axis ? is->room->room : is->shape[d]) + logical[d];
    if (plain) return place;
    for (int p = 0; p < is->layout->count; p++) {
        const tir_layout_part *part = &is->layout->part[p];
        const int64_t padded = tir_layout_padded_size(is->layout, part->dim, is->shape[part->dim]);
        const int64_t all = (padded + part->divisor - 1) / part->divisor, at = logical[part->dim] / part->divisor;
        place = place * (part->modulus ? part->modulus : all) + (part->modulus ? at % part->modulus : at);
    }
    return place;
}

static dlc_status tell(const watched *w, int64_t index, const char *kind, lib_error *error) {
    char at[256] = "";
    size_t used = 0;
    int64_t count = 1;
    for (int d = 0; d < w->is.rank; d++) count *= w->is.shape[d];
    for (int d = 0; d < w->is.rank && used < sizeof at; d++) {
        count /= w->is.shape[d];
        used += (size_t)snprintf(at + used, sizeof at - used, "%s%lld", d ? ", " : "",
                                 (long long)(index / count % w->is.shape[d]));
    }
    return lib_fail(error, DLC_NOT_FINITE, "the run stopped: %s%s%s%s%s%s is %s at [%s]", w->what,
                    w->is.name ? " " : "", w->is.name ? w->is.name : "", w->by ? " of " : "", w->by ? w->by : "",
                    !w->is.name && w->origins ? w->origins : "", kind, at);
}

/* c64 is a pair of floats. */
static dlc_status look_at(const watched *w, unsigned stop_at, lib_error *error) {
    const bool pairs = w->is.dtype == DLC_C64;
    const dlc_dtype dtype = pairs ? DLC_F32 : w->is.dtype;
    const int parts = pairs ? 2 : 1;
    if (!lib_dtype_is_float(dtype) || lib_dtype_is_packed(dtype)) return DLC_OK; /* f4e2m1 has finite numbers alone */
    int64_t count = 1;
    for (int d = 0; d < w->is.rank; d++) count *= w->is.shape[d];
    for (int64_t i = 0; i < count; i++)
        for (int part = 0; part < parts; part++) {
            const size_t element = (size_t)(place_of(&w->is, i) * parts + part);
            const char *kind = kind_of(lib_element_get_f64(dtype, w->data + element * lib_dtype_size(dtype)), stop_at);
            if (kind) return tell(w, i, kind, error);
        }
    return DLC_OK;
}

dlc_status jit_watch_inputs(const dlc_program *program, const jit_plan *plan, char *const *inputs, unsigned stop_at,
                            lib_error *error) {
    const int64_t *shape = plan->shapes;
    for (int i = 0; i < program->ordinary_inputs; shape += program->inputs[i++].rank) {
        const jit_argument *is = &program->inputs[i];
        watched w = {.is = {.name = is->name, .shape = shape, .rank = is->rank}, .data = inputs[i], .what = "input"};
        for (int k = 0; k < program->growth_count; k++)
            if (program->growths[k].input == i) w.is.room = &plan->donations[program->growths[k].output];
        if (!lib_dtype_from_dlpack(is->dtype, &w.is.dtype)) continue;
        LIB_TRY(look_at(&w, stop_at, error));
    }
    return DLC_OK;
}

dlc_status jit_watch_call(const jit_call *call, const jit_frame *frame, unsigned stop_at, lib_error *error) {
    const int first = call->arguments - call->result_count;
    for (int o = 0; o < call->result_count; o++) {
        const watched w = {.is = call->results[o],
                           .data = frame->pointers[call->first_slot + (uint32_t)(first + o)],
                           .what = call->results[o].name ? "value" : "a result",
                           .by = call->name,
                           .origins = call->origins};
        LIB_TRY(look_at(&w, stop_at, error));
    }
    return DLC_OK;
}

dlc_status jit_watch_tensor(const jit_tensor *tensor, const char *data, const char *name, unsigned stop_at,
                            lib_error *error) {
    const watched w = {.is = {.shape = tensor->shape, .rank = tensor->rank, .dtype = tensor->dtype},
                       .data = data,
                       .what = "a result",
                       .by = name};
    return look_at(&w, stop_at, error);
}
