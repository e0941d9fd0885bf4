/* Two programs on the same inputs: the first value that differs. */
#include "jit/internal.h"

#include <dlc/files.h>
#include <math.h>

typedef struct comparison {
    dlc_program *program[2];
    dlc_compare_options options;
    const DLTensor *const *inputs;
    int input_count;
    /* of both programs: number of tapped values; number of tapped values and outputs */
    int taps, count;
    /* [count] */
    dlc_output_slot *slots[2];
} comparison;

/* ---- running */

static dlc_status run_one(const comparison *c, int which, lib_error *error) {
    dlc_program *program = c->program[which];
    dlc_output_slot *slots = c->slots[which];
    jit_how how = {.caller = "dlc_run"};
    dlc_status status = DLC_OK;
    if (c->taps) status = jit_tap_compute(program, &how, c->inputs, c->input_count, slots, error);
    if (status == DLC_OK)
        status =
            jit_run_program(program, &how, c->inputs, c->input_count, slots + c->taps, program->output_count, error);
    if (status == DLC_OK) return DLC_OK;
    const lib_error own = *error;
    return lib_fail(error, own.status, "dlc_program_compare: the %s program: %s", which ? "second" : "first",
                    own.message);
}

static void release_slots(const comparison *c, int which) {
    for (int i = 0; c->slots[which] && i < c->count; i++) {
        DLManagedTensorVersioned *tensor = c->slots[which][i].managed;
        if (tensor) tensor->deleter(tensor);
    }
    lib_release(&c->program[0]->context->allocator, c->slots[which], (size_t)c->count * sizeof(dlc_output_slot) + 1,
                16);
}

/* ---- comparing */

static const char *name_of(const comparison *c, int i) {
    return i < c->taps ? jit_tap_name(c->program[0], i) : c->program[0]->outputs[i - c->taps].name;
}

/* elements of a compact tensor; c64 as pairs of f32 */
typedef struct elements {
    const char *data;
    dlc_dtype dtype;
} elements;

/* Address of element i; an element of less than a byte is extracted into *alone. */
static const char *element(const elements *e, int64_t i, char *alone) {
    if (!lib_dtype_is_packed(e->dtype)) return e->data + (size_t)i * lib_dtype_size(e->dtype);
    *alone = (char)lib_packed_get(e->dtype, e->data, (size_t)i);
    return alone;
}

static bool agree(const comparison *c, const elements *a, const elements *b, int64_t i, double number[2]) {
    char alone[2];
    const char *x = element(a, i, &alone[0]), *y = element(b, i, &alone[1]);
    if (memcmp(x, y, lib_dtype_size(a->dtype)) == 0) return true;
    number[0] = lib_element_get_f64(a->dtype, x);
    number[1] = lib_element_get_f64(b->dtype, y);
    if (isnan(number[0]) && isnan(number[1])) return true;
    /* +0, -0; wide integers may still differ */
    if (lib_dtype_is_float(a->dtype) && number[0] == number[1]) return true;
    const double bound = c->options.absolute + c->options.relative * fabs(number[1]);
    return bound > 0 && isfinite(number[1]) && fabs(number[0] - number[1]) <= bound;
}

static void compare_value(const comparison *c, int i, dlc_difference *d) {
    const DLTensor *tensor[2] = {&c->slots[0][i].managed->dl_tensor, &c->slots[1][i].managed->dl_tensor};
    elements of[2];
    int64_t count = 0;
    lib_tensor_count(tensor[0], &count);
    for (int k = 0; k < 2; k++) {
        of[k] = (elements){(const char *)tensor[k]->data + tensor[k]->byte_offset, DLC_BOOL};
        lib_dtype_from_dlpack(tensor[k]->dtype, &of[k].dtype);
    }
    const int parts = of[0].dtype == DLC_C64 ? 2 : 1;
    if (parts == 2) of[0].dtype = of[1].dtype = DLC_F32;
    d->total = count;
    for (int64_t e = 0; e < count; e++) {
        bool differs = false;
        for (int part = 0; part < parts; part++) {
            double number[2];
            if (agree(c, &of[0], &of[1], e * parts + part, number)) continue;
            const double by = fabs(number[0] - number[1]);
            d->greatest = fmax(d->greatest, isnan(by) ? INFINITY : by);
            if (!d->count && !differs) d->index = e, d->first = number[0], d->second = number[1];
            differs = true;
        }
        d->count += differs;
    }
    d->found = d->count > 0;
    d->tapped = i < c->taps;
    d->number = d->tapped ? i : i - c->taps;
    d->name = name_of(c, i);
}

static dlc_status check_pair(const comparison *c, int i, lib_error *error) {
    const DLTensor *a = &c->slots[0][i].managed->dl_tensor, *b = &c->slots[1][i].managed->dl_tensor;
    bool same = a->ndim == b->ndim && memcmp(&a->dtype, &b->dtype, sizeof a->dtype) == 0;
    for (int d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
    if (same) return DLC_OK;
    return lib_fail(error, DLC_INVALID_ARGUMENT,
                    "dlc_program_compare: %s %s has another element type or shape in the second program",
                    i < c->taps ? "tapped value" : "output", name_of(c, i));
}

/* ---- the file */

static bool ends_in(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static dlc_status save_inputs(const comparison *c, lib_error *error) {
    dlc_context *context = c->program[0]->context;
    const char *path = c->options.save;
    const size_t size = (size_t)c->input_count * sizeof(char *) + 1;
    const char **names = lib_allocate(&context->allocator, size, 16);
    if (!names) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_program_compare: out of memory: names of inputs");
    for (int i = 0; i < c->input_count; i++) names[i] = c->program[0]->inputs[i].name;
    dlc_status status = ends_in(path, ".safetensors")
                            ? dlc_file_write_safetensors(context, path, c->input_count, names, c->inputs, 0, NULL, NULL)
                            : dlc_file_write_npz(context, path, c->input_count, names, c->inputs, false);
    if (status != DLC_OK)
        lib_fail(error, status, "dlc_program_compare: inputs are not saved: %s", dlc_error_message(context));
    lib_release(&context->allocator, (void *)names, size, 16);
    return status;
}

/* ---- all of it */

static dlc_status compare(comparison *c, dlc_difference *d, lib_error *error) {
    for (int which = 0; which < 2; which++) {
        const size_t size = (size_t)c->count * sizeof(dlc_output_slot) + 1;
        c->slots[which] = lib_allocate_zeroed(&c->program[0]->context->allocator, size, 16);
        if (!c->slots[which]) return lib_fail(error, DLC_OUT_OF_MEMORY, "dlc_program_compare: out of memory");
        LIB_TRY(run_one(c, which, error));
    }
    for (int i = 0; i < c->count && !d->found; i++) {
        LIB_TRY(check_pair(c, i, error));
        *d = (dlc_difference){.struct_size = d->struct_size};
        compare_value(c, i, d);
    }
    if (!d->found) *d = (dlc_difference){.struct_size = d->struct_size};
    return d->found && c->options.save ? save_inputs(c, error) : DLC_OK;
}

static dlc_status check_programs(const comparison *c, const dlc_compare_options *given, lib_error *error) {
    if (given && given->struct_size != sizeof *given)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_program_compare: options.struct_size is wrong (use DLC_COMPARE_OPTIONS_INIT)");
    if (!(c->options.absolute >= 0) || !(c->options.relative >= 0))
        return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_program_compare: a tolerance is negative or NaN");
    if (jit_tap_count(c->program[0]) != jit_tap_count(c->program[1]) ||
        c->program[0]->output_count != c->program[1]->output_count)
        return lib_fail(error, DLC_INVALID_ARGUMENT,
                        "dlc_program_compare: the programs have %d and %d tapped values, %d and %d outputs",
                        jit_tap_count(c->program[0]), jit_tap_count(c->program[1]), c->program[0]->output_count,
                        c->program[1]->output_count);
    for (int i = 0; c->inputs && i < c->input_count; i++)
        if (c->inputs[i] && c->inputs[i]->device.device_type != kDLCPU)
            return lib_fail(error, DLC_INVALID_ARGUMENT, "dlc_program_compare: input %d is not in host memory", i);
    return DLC_OK;
}

dlc_status dlc_program_compare(dlc_program *first, dlc_program *second, const dlc_compare_options *options,
                               const DLTensor *const *inputs, int input_count, dlc_difference *difference) {
    lib_error error;
    if (!first || !second || !difference || difference->struct_size != sizeof *difference) {
        lib_fail(&error, DLC_INVALID_ARGUMENT,
                 "dlc_program_compare: a program or difference is NULL, or difference.struct_size is wrong "
                 "(use DLC_DIFFERENCE_INIT)");
        return jit_fail(first ? first->context : NULL, &error);
    }
    *difference = (dlc_difference){.struct_size = sizeof *difference};
    GRAPH_CALL(first->context, LIB_STACK_CALL);
    comparison c = {.program = {first, second},
                    .options = options ? *options : (dlc_compare_options){0},
                    .inputs = inputs,
                    .input_count = input_count};
    dlc_status status = check_programs(&c, options, &error);
    c.taps = jit_tap_count(first);
    c.count = c.taps + first->output_count;
    if (status == DLC_OK) status = compare(&c, difference, &error);
    for (int which = 0; which < 2; which++) release_slots(&c, which);
    return status == DLC_OK ? DLC_OK : jit_fail(first->context, &error);
}
