/* Inputs of the model: their sizes by files, --shape, --dim and other inputs, and their elements. */
#include "dlc-run.h"

#include <dlc/files.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int rank;
    int64_t dim[DLC_MAX_RANK];
} shape;

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

/* A size by its name, as far as the options and the inputs made so far tell it; -1: they do not. */
static int64_t size_by_name(const session *s, const inputs *in, int64_t swept, const char *name) {
    int64_t size;
    if (s->o->swept && strcmp(s->o->swept, name) == 0) return swept;
    const char *given = pair_value(&s->o->dims, name);
    if (given && parse_size(given, &size)) return size;
    for (int i = 0; i < in->count; i++) {
        const dlc_onnx_port port = port_of(s, DLC_ONNX_INPUT, i);
        for (int d = 0; in->given[i] && d < port.rank && d < in->given[i]->ndim; d++)
            if (port.dims[d].name && strcmp(port.dims[d].name, name) == 0) return in->given[i]->shape[d];
    }
    return -1;
}

/* "1,3,8", which the command line has checked. */
static shape parsed_shape(const char *text) {
    shape to = {0};
    while (*text) {
        char *end;
        to.dim[to.rank++] = strtoll(text, &end, 10);
        text = end + (*end == ',');
    }
    return to;
}

/* By the file's sizes and names. An axis without either has the name INPUT_AXIS. `missing`: the first axis that is not known, or -1. */
static shape declared_shape(const session *s, const inputs *in, int64_t swept, const dlc_onnx_port *port,
                            int *missing) {
    shape to = {.rank = port->rank};
    *missing = -1;
    for (int d = 0; d < port->rank; d++) {
        char own[1024];
        snprintf(own, sizeof own, "%s_%d", port->name, d);
        const char *name = port->dims[d].name ? port->dims[d].name : own;
        const bool fixed = !port->dims[d].name && port->dims[d].value >= 0;
        to.dim[d] = fixed ? port->dims[d].value : size_by_name(s, in, swept, name);
        if (to.dim[d] < 0 && *missing < 0) *missing = d;
    }
    return to;
}

static bool fail_by_size(const session *s, const dlc_onnx_port *port, int axis) {
    if (port->dims[axis].name)
        return fail(s, "input %s, axis %d: which size is %s? Say --dim %s=SIZE", port->name, axis,
                    port->dims[axis].name, port->dims[axis].name);
    return fail(s, "input %s, axis %d: which size? Say --dim %s_%d=SIZE, or --shape %s=SIZES", port->name, axis,
                port->name, axis, port->name);
}

/* ---- elements ----------------------------------------------------------------------------------------------------------- */

/* Steele, Lea & Flood, "Fast splittable pseudorandom number generators", 2014. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static bool is_float(dlc_dtype dtype) {
    static const char class[] = {
#define X(code, text, bits, dlpack, class_, usable) class_,
        DLC_DTYPE_TABLE(X)
#undef X
    };
    return class[dtype] == 'f' || class[dtype] == 'c';
}

static void fill_random(double *to, int64_t count, dlc_dtype dtype, uint64_t seed) {
    for (int64_t i = 0; i < count; i++) {
        const uint64_t bits = next_random(&seed) >> 11;
        const uint64_t whole = bits % (dtype == DLC_BOOL ? 2 : dtype == DLC_I4 ? 8 : 10);
        to[i] = is_float(dtype) ? (double)bits * 0x1p-52 - 1 : (double)whole;
    }
}

/* What --input says of elements: a kind, and its number. */
typedef struct content {
    enum { RANDOM, RANGE, VALUE } kind;
    uint64_t seed;
    double value;
} content;

static bool parse_content(const char *text, content *c) {
    char *end;
    if (strcmp(text, "zeros") == 0) return *c = (content){.kind = VALUE}, true;
    if (strcmp(text, "range") == 0) return *c = (content){.kind = RANGE}, true;
    errno = 0;
    if (strncmp(text, "random:", 7) == 0) {
        *c = (content){.kind = RANDOM, .seed = strtoull(text + 7, &end, 10)};
        return text[7] >= '0' && text[7] <= '9' && !*end && errno == 0;
    }
    *c = (content){.kind = VALUE, .value = strtod(text, &end)};
    return end != text && !*end;
}

static void fill(double *to, int64_t count, dlc_dtype dtype, const content *c, int input) {
    if (c->kind == RANDOM) fill_random(to, count, dtype, c->seed + 1000003 * (uint64_t)input);
    for (int64_t i = 0; c->kind != RANDOM && i < count; i++) to[i] = c->kind == RANGE ? (double)i : c->value;
}

/* Elements that fit into memory as f64; -1: they do not. */
static int64_t checked_count(const shape *of) {
    int64_t count = 1;
    for (int d = 0; d < of->rank; d++)
        if (__builtin_mul_overflow(count, of->dim[d], &count)) return -1;
    return count <= INT64_MAX / 8 ? count : -1;
}

static DLManagedTensorVersioned *make_tensor(const session *s, const dlc_onnx_port *port, shape *of, const content *c,
                                             int input) {
    const int64_t count = checked_count(of);
    double *numbers = count < 0 ? NULL : malloc(8 * (size_t)count + 8);
    if (!numbers) {
        fail(s, "input %s: no memory for elements of these sizes", port->name);
        return NULL;
    }
    fill(numbers, count, (dlc_dtype)port->dtype, c, input);
    const DLTensor view = {
        .data = numbers, .device = {kDLCPU, 0}, .ndim = of->rank, .dtype = {kDLFloat, 64, 1}, .shape = of->dim};
    DLManagedTensorVersioned *made = convert(s, &view, (dlc_dtype)port->dtype);
    free(numbers);
    return made;
}

/* ---- one input ---------------------------------------------------------------------------------------------------------- */

bool has_ending(const char *path, const char *ending) {
    const size_t length = strlen(path), end = strlen(ending);
    return length > end && strcmp(path + length - end, ending) == 0;
}

static bool is_file(const char *what) {
    return what && (has_ending(what, ".npy") || has_ending(what, ".pb"));
}

DLManagedTensorVersioned *read_tensor_file(const session *s, const char *path) {
    DLManagedTensorVersioned *made = NULL;
    dlc_file *file = NULL;
    if (has_ending(path, ".pb")) return read_protobuf(s, path);
    if (dlc_file_open(s->context, path, NULL, &file) != DLC_OK || dlc_file_tensor(file, "", &made) != DLC_OK)
        fail_by_context(s, path);
    dlc_file_destroy(file);
    return made;
}

static DLManagedTensorVersioned *read_tensor(const session *s, const dlc_onnx_port *port, const char *path) {
    DLManagedTensorVersioned *made = read_tensor_file(s, path);
    if (made && port->dtype >= 0 && (int)dtype_of(&made->dl_tensor) != port->dtype) {
        char text[400];
        fail(s, "input %s: %s has %s, the model takes %s", port->name, path,
             type_text(&made->dl_tensor, text, sizeof text), dlc_dtype_name((dlc_dtype)port->dtype));
        made->deleter(made);
        return NULL;
    }
    return made;
}

/* A state without a size stays empty: the runner may know it. */
static bool make_input(const session *s, inputs *in, int i, int64_t swept) {
    const dlc_onnx_port port = port_of(s, DLC_ONNX_INPUT, i);
    const char *what = pair_value(&s->o->inputs, port.name), *sizes = pair_value(&s->o->shapes, port.name);
    const bool is_state = state_of(s, DLC_ONNX_INPUT, port.name) != NULL;
    content c = {.kind = is_state ? VALUE : RANDOM, .seed = 1};
    int missing = -1;
    if (is_file(what)) {
        if (sizes) return fail(s, "input %s: --shape, but its file has the sizes", port.name);
        in->tensor[i] = read_tensor(s, &port, what);
        return in->tensor[i] != NULL;
    }
    if (what && !parse_content(what, &c))
        return fail(s, "input %s: %s: expected FILE.npy, FILE.pb, random:SEED, zeros, range or a number", port.name,
                    what);
    if (port.dtype < 0) return fail(s, "input %s is %s; dlc-run gives tensors of numbers only", port.name, port.type);
    shape of = sizes ? parsed_shape(sizes) : declared_shape(s, in, swept, &port, &missing);
    if (is_state && !what && (of.rank < 0 || missing >= 0)) return true;
    if (of.rank < 0) return fail(s, "input %s: the file declares no rank: say --shape %s=SIZES", port.name, port.name);
    if (missing >= 0) return fail_by_size(s, &port, missing);
    in->tensor[i] = make_tensor(s, &port, &of, &c, i);
    return in->tensor[i] != NULL;
}

/* ---- all inputs --------------------------------------------------------------------------------------------------------- */

/* Each name of an option is one of the model's inputs. */
static bool names_exist(const session *s, const char *option, const pairs *list) {
    for (int k = 0; k < list->count; k++) {
        bool found = false;
        for (int i = 0; i < s->input_count; i++)
            found = found || strcmp(port_of(s, DLC_ONNX_INPUT, i).name, list->name[k]) == 0;
        if (!found) return fail(s, "%s %s: the model has no such input (see --list)", option, list->name[k]);
    }
    return true;
}

/* Is it the name of a size of an input or, by the file, of an output? */
static bool is_size(const session *s, const char *name) {
    for (int side = DLC_ONNX_INPUT; side <= DLC_ONNX_OUTPUT; side++)
        for (int i = 0; i < dlc_onnx_port_count(s->model, (dlc_onnx_side)side); i++) {
            const dlc_onnx_port port = port_of(s, (dlc_onnx_side)side, i);
            for (int d = 0; d < port.rank; d++) {
                char own[1024];
                snprintf(own, sizeof own, "%s_%d", port.name, d);
                const bool unnamed = !port.dims[d].name && port.dims[d].value < 0 && side == DLC_ONNX_INPUT;
                if (port.dims[d].name && strcmp(port.dims[d].name, name) == 0) return true;
                if (unnamed && strcmp(own, name) == 0) return true;
            }
        }
    return false;
}

static bool sizes_exist(const session *s) {
    for (int k = 0; k < s->o->dims.count; k++)
        if (!is_size(s, s->o->dims.name[k]))
            return fail(s, "--dim %s: the model has no such size (see --list)", s->o->dims.name[k]);
    if (s->o->swept && !is_size(s, s->o->swept))
        return fail(s, "--sweep %s: the model has no such size (see --list)", s->o->swept);
    return true;
}

/* Inputs of given sizes come first: others take sizes of the same name from them. */
bool make_inputs(const session *s, int64_t swept, inputs *in) {
    *in = (inputs){.count = s->input_count};
    bool good = names_exist(s, "--input", &s->o->inputs) && names_exist(s, "--shape", &s->o->shapes) && sizes_exist(s);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; good && i < in->count; i++) {
            const char *name = port_of(s, DLC_ONNX_INPUT, i).name;
            const bool given = is_file(pair_value(&s->o->inputs, name)) || pair_value(&s->o->shapes, name);
            if (given != (turn == 0)) continue;
            good = make_input(s, in, i, swept);
            in->given[i] = in->tensor[i] ? &in->tensor[i]->dl_tensor : NULL;
        }
    if (!good) free_inputs(in);
    return good;
}

void free_inputs(inputs *in) {
    for (int i = 0; i < in->count; i++)
        if (in->tensor[i]) in->tensor[i]->deleter(in->tensor[i]);
    *in = (inputs){0};
}

void release_states(const session *s, inputs *in) {
    for (int i = 0; i < in->count; i++)
        if (state_of(s, DLC_ONNX_INPUT, port_of(s, DLC_ONNX_INPUT, i).name)) in->given[i] = NULL;
}
