/* ONNX's own test cases, through the public header: each folder has model.onnx and data sets of inputs and results.
 *
 *   conformance [--target NAME] [--verbose] [--filter TEXT] [--symbols] [--export] [--table FILE] FOLDER...
 *                                                                      folders of cases, or of folders of cases
 *
 * Without folders: the cases of Debian's libonnx-testdata, skipped without them. A case passes if every element of every result is within
 * 1e-7 + 1e-3 of the magnitude that the case has (data.json of a case may say other numbers), integers and bools equal. A case
 * runs twice, by one runner. A file x.onnx with x_output_0.pb beside it is a case whose inputs of n elements are 0, 1/n, 2/n, ...
 * Operators that the standard has and libdlc leaves to the host are registered (registered.h); the last lines say how many cases pass by them.
 * excluded.txt lists the cases that do not pass, with reasons: one that is not listed and does not pass fails, and so does one that is listed
 * and passes. A reason begins with a class (exclusions.h) if libdlc is not
 * going to pass the case. DLC_BLESS=1 rewrites the list; review the difference.
 *
 * --symbols runs the cases with a name for each size of each input in place of the number; --export as graphs that have been written
 * as models and imported again, against the graph as it was. Without these options every eighth case is run in these ways, too
 * (DLC_TEST_LONG: every one). --table writes results by operator in Markdown: cases of one node; ULP: the greatest error in units in the last
 * place of the expected element, or of a sixteenth of the greatest one. */
#include "onnx/again.h"
#include "onnx/data.h"
#include "onnx/exclusions.h"
#include "onnx/parts.h"
#include "onnx/registered.h"
#include "onnx/tally.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

enum { MOST = 64, PATH = 4096 };

/* ---- comparison ------------------------------------------------------------------------------------------------------ */

/* A float of 8 or 4 bits. */
static double small_number(int code, int byte) {
    static const double of_four_bits[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    if (code == kDLFloat4_e2m1fn) return byte >> 3 ? -of_four_bits[byte & 7] : of_four_bits[byte & 7];
    if (code == kDLFloat8_e8m0fnu) return byte == 255 ? NAN : ldexp(1, byte - 127);
    const bool wide = code == kDLFloat8_e5m2 || code == kDLFloat8_e5m2fnuz,
               unsigned_zero = code == kDLFloat8_e4m3fnuz || code == kDLFloat8_e5m2fnuz;
    const int digits = wide ? 2 : 3, bias = (wide ? 15 : 7) + unsigned_zero;
    const int exponent = (byte & 127) >> digits, mantissa = byte & ((1 << digits) - 1);
    if (unsigned_zero ? byte == 128 : code == kDLFloat8_e4m3fn ? (byte & 127) == 127 : exponent == 31 && mantissa)
        return NAN;
    const double value = code == kDLFloat8_e5m2 && exponent == 31 ? INFINITY
                         : exponent ? ldexp((1 << digits) + mantissa, exponent - bias - digits)
                                    : ldexp(mantissa, 1 - bias - digits);
    return byte >> 7 ? -value : value;
}

static bool is_float(DLDataType type) {
    return type.code == kDLFloat || type.code == kDLBfloat || type.code >= kDLFloat8_e4m3fn;
}

/* Element i of less than a byte. */
static int code_of(DLDataType type, const char *data, size_t i) {
    const size_t bit = i * type.bits;
    return (unsigned char)data[bit / 8] >> bit % 8 & ((1 << type.bits) - 1);
}

static double number(DLDataType type, const char *data, size_t i) {
    if (type.bits < 8) return small_number(type.code, code_of(type, data, i));
    const char *at = data + i * type.bits / 8;
    if (type.bits == 8) return small_number(type.code, (unsigned char)*at);
    if (type.code == kDLFloat && type.bits == 64) return *(const double *)(const void *)at;
    if (type.code == kDLFloat && type.bits == 32) return (double)*(const float *)(const void *)at;
    if (type.code == kDLBfloat) {
        const uint32_t bits = (uint32_t) * (const uint16_t *)(const void *)at << 16;
        float value;
        memcpy(&value, &bits, 4);
        return (double)value;
    }
    const uint16_t h = *(const uint16_t *)(const void *)at;
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                         : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                        : ldexp(mantissa, -24);
    return h >> 15 ? -value : value;
}

/* The greatest error of the floats that compare has seen, in units in the last place. */
static double worst_units;

/* Bits after the leading one, and the least exponent of numbers that have all of them. */
static void precision_of(DLDataType type, int *digits, int *least) {
    static const struct {
        int code, bits, digits, least;
    } known[] = {{kDLFloat, 16, 10, -14},        {kDLFloat, 32, 23, -126},        {kDLFloat, 64, 52, -1022},
                 {kDLBfloat, 16, 7, -126},       {kDLFloat8_e4m3fn, 8, 3, -6},    {kDLFloat8_e4m3fnuz, 8, 3, -7},
                 {kDLFloat8_e5m2, 8, 2, -14},    {kDLFloat8_e5m2fnuz, 8, 2, -15}, {kDLFloat4_e2m1fn, 4, 1, 0},
                 {kDLFloat8_e8m0fnu, 8, 0, -127}};
    *digits = 23, *least = -126;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].code == type.code && known[i].bits == type.bits)
            *digits = known[i].digits, *least = known[i].least;
}

/* Adds the errors of floats to worst_units. The unit of an element that is small beside the greatest is that of a sixteenth of it: what sums
 * cancel is no error of the operator. */
static void note_units(const DLTensor *got, const tensor *expected) {
    const DLDataType type = expected->view.dtype;
    const char *data = (const char *)got->data + got->byte_offset;
    double greatest = 0;
    int digits, least, exponent;
    precision_of(type, &digits, &least);
    for (size_t i = 0; i < expected->count; i++) {
        const double y = fabs(number(type, expected->data, i));
        if (isfinite(y)) greatest = fmax(greatest, y);
    }
    for (size_t i = 0; i < expected->count; i++) {
        const double x = number(type, data, i), y = number(type, expected->data, i);
        if (!isfinite(x) || !isfinite(y) || x == y) continue;
        frexp(fmax(fabs(y), greatest / 16), &exponent);
        const int unit = (exponent - 1 > least ? exponent - 1 : least) - digits;
        worst_units = fmax(worst_units, ldexp(fabs(x - y), -unit));
    }
}

/* What data.h read. */
static const tensor *tensor_in(const dlc_onnx_value *value) {
    return (const tensor *)(const void *)value->tensor;
}

/* Empty: they agree. */
static void compare(const DLTensor *got, const tensor *expected, double relative, double absolute, char *why,
                    size_t room) {
    const DLTensor *e = &expected->view;
    /* Older data have the bits of bf16 as u16. */
    const bool bits = e->dtype.code == kDLUInt && e->dtype.bits == 16 && got->dtype.code == kDLBfloat;
    *why = 0;
    bool same =
        got->ndim == e->ndim && (bits || (got->dtype.code == e->dtype.code && got->dtype.bits == e->dtype.bits));
    for (int d = 0; same && d < e->ndim; d++) same = got->shape[d] == e->shape[d];
    if (!same) {
        int at = snprintf(why, room, "another type or shape: %d.%d[", got->dtype.code, got->dtype.bits);
        for (int d = 0; d < got->ndim && at < 150; d++)
            at += snprintf(why + at, room - (size_t)at, " %lld", (long long)got->shape[d]);
        at += snprintf(why + at, room - (size_t)at, " ] in place of %d.%d[", e->dtype.code, e->dtype.bits);
        for (int d = 0; d < e->ndim && at < 300; d++)
            at += snprintf(why + at, room - (size_t)at, " %lld", (long long)e->shape[d]);
        snprintf(why + at, room - (size_t)at, " ]");
        return;
    }
    if (is_float(e->dtype)) note_units(got, expected);
    const size_t element = bytes_of(1, e->dtype.bits);
    const char *data = (const char *)got->data + got->byte_offset;
    for (size_t i = 0; i < expected->count; i++) {
        if (!is_float(e->dtype)) {
            if (e->dtype.bits < 8 ? code_of(e->dtype, data, i) == code_of(e->dtype, expected->data, i)
                                  : memcmp(data + i * element, expected->data + i * element, element) == 0)
                continue;
            snprintf(why, room, "element %zu differs", i);
            return;
        }
        const double x = number(e->dtype, data, i), y = number(e->dtype, expected->data, i);
        if ((isnan(x) && isnan(y)) || x == y || fabs(x - y) <= absolute + relative * fabs(y)) continue;
        snprintf(why, room, "element %zu is %.9g in place of %.9g", i, x, y);
        return;
    }
}

static void compare_strings(const dlc_onnx_value *got, const dlc_onnx_value *e, char *why, size_t room) {
    size_t count = 1;
    bool same = got->rank == e->rank;
    for (int d = 0; same && d < e->rank; d++) same = got->dims[d] == e->dims[d], count *= (size_t)e->dims[d];
    if (!same) snprintf(why, room, "strings of another shape");
    for (size_t i = 0; same && i < count; i++) {
        const dlc_onnx_string *x = &got->strings[i], *y = &e->strings[i];
        same = x->size == y->size && (!x->size || memcmp(x->data, y->data, x->size) == 0);
        if (!same)
            snprintf(why, room, "string %zu is \"%.*s\" in place of \"%.*s\"", i, (int)x->size, x->data, (int)y->size,
                     y->data);
    }
}

/* Empty: they agree. */
static void compare_values(const dlc_onnx_value *got, const dlc_onnx_value *e, double relative, double absolute,
                           char *why, size_t room) {
    *why = 0;
    if (got->kind != e->kind || got->count != e->count) {
        snprintf(why, room, "kind %d of %zu elements in place of kind %d of %zu", (int)got->kind, got->count,
                 (int)e->kind, e->count);
    } else if (e->kind == DLC_ONNX_TENSOR) {
        compare(got->tensor, tensor_in(e), relative, absolute, why, room);
    } else if (e->kind == DLC_ONNX_STRINGS) {
        compare_strings(got, e, why, room);
    }
    for (size_t i = 0; !*why && i < e->count; i++)
        compare_values(&got->elements[i], &e->elements[i], relative, absolute, why, room);
}

/* ---- cases ----------------------------------------------------------------------------------------------------------- */

static dlc_context *context;
static int passed, failed, refused;
/* Of those that pass: by functions that this program registered. */
static int by_functions;
static bool verbose;
static const char *filter = "";

/* Ways in which a case is run: as it is, with symbols for sizes, exported and imported again. every[way]: each n-th case; 0: none. */
typedef enum way { AS_IT_IS, SYMBOLS, EXPORTED, WAYS } way;
static const char *const way_text[WAYS] = {"", " with symbols", " exported"};
static int every[WAYS] = {1, 8, 8}, cases;
static int passed_way[WAYS], best_way[WAYS], not_possible[WAYS];
/* Of the last case with symbols: one import serves all sizes; of the last exported one: results have equal bits. */
static bool is_best;

/* What data.json says under that key; the usual number without it. */
static double tolerance(const char *folder, const char *key, double usual) {
    char path[PATH], *found;
    snprintf(path, sizeof path, "%s/data.json", folder);
    const file_bytes b = read_file(path);
    if (!b.data) return usual;
    b.data[b.size] = 0;
    found = strstr((char *)b.data, key);
    found = found ? strchr(found, ':') : NULL;
    const double value = found ? atof(found + 1) : usual;
    return value;
}

/* Reads the values of one side of a data set; the reason in `why`. */
static bool read_side(dlc_onnx_model *model, dlc_onnx_side side, const char *set, dlc_onnx_value *values, char *why,
                      size_t room) {
    const char *name = side == DLC_ONNX_INPUT ? "input" : "output";
    for (int i = 0; i < dlc_onnx_port_count(model, side); i++) {
        char path[PATH];
        dlc_onnx_port port;
        snprintf(path, sizeof path, "%s/%s_%d.pb", set, name, i);
        if (dlc_onnx_port_at(model, side, i, &port) != DLC_OK || !read_value_file(path, port.type, &values[i])) {
            snprintf(why, room, "%s %d is no value that this program reads", name, i);
            return false;
        }
        const tensor *t = tensor_in(&values[i]);
        if (side == DLC_ONNX_INPUT && t && t->type == 4 && port.dtype == DLC_BF16) /* older data have its bits as u16 */
            ((tensor *)(uintptr_t)t)->view.dtype = types[16].dtype;
    }
    return true;
}

static bool has_only_tensors(dlc_onnx_model *model) {
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < dlc_onnx_port_count(model, (dlc_onnx_side)side); i++) {
            dlc_onnx_port port;
            if (dlc_onnx_port_at(model, (dlc_onnx_side)side, i, &port) != DLC_OK || port.kind != DLC_ONNX_TENSOR ||
                port.optional)
                return false;
        }
    return true;
}

/* Runs with tensors as tensors where there is nothing else, so that both ways are used. out[i] is made. */
static dlc_status run_model(dlc_onnx_model *model, dlc_onnx_runner *runner, const dlc_onnx_value *in,
                            dlc_onnx_value **values, dlc_output_slot *slots) {
    const DLTensor *plain[MOST];
    const dlc_onnx_value *input[MOST];
    const int inputs = dlc_onnx_port_count(model, DLC_ONNX_INPUT),
              outputs = dlc_onnx_port_count(model, DLC_ONNX_OUTPUT);
    for (int i = 0; i < inputs; i++) input[i] = &in[i], plain[i] = in[i].tensor;
    if (!has_only_tensors(model)) return dlc_onnx_run_values(runner, NULL, input, inputs, values, outputs);
    return dlc_onnx_run(runner, NULL, plain, inputs, slots, outputs);
}

/* Runs one data set. 0: right, 1: wrong, -1: not possible; the reason in `why`. */
static int run_set(dlc_onnx_model *model, dlc_onnx_runner *runner, const char *folder, const char *set, char *why,
                   size_t room) {
    static dlc_onnx_value in[MOST], out[MOST];
    dlc_onnx_value *made[MOST] = {NULL};
    dlc_output_slot slots[MOST];
    char path[PATH];
    const int outputs = dlc_onnx_port_count(model, DLC_ONNX_OUTPUT);
    int result = 0;
    memset(slots, 0, sizeof slots);
    snprintf(path, sizeof path, "%s/%s", folder, set);
    if (dlc_onnx_port_count(model, DLC_ONNX_INPUT) > MOST || outputs > MOST)
        return snprintf(why, room, "too many inputs or outputs"), -1;
    if (!read_side(model, DLC_ONNX_INPUT, path, in, why, room) ||
        !read_side(model, DLC_ONNX_OUTPUT, path, out, why, room))
        result = -1;
    if (!result && run_model(model, runner, in, made, slots) != DLC_OK) {
        snprintf(why, room, "run: %s", dlc_error_message(context));
        result = 1;
    }
    const double relative = tolerance(folder, "rtol", 1e-3), absolute = tolerance(folder, "atol", 1e-7);
    for (int i = 0; i < outputs && !result; i++) {
        char part[400];
        if (made[i])
            compare_values(made[i], &out[i], relative, absolute, part, sizeof part);
        else
            compare(&slots[i].managed->dl_tensor, tensor_in(&out[i]), relative, absolute, part, sizeof part);
        if (*part) snprintf(why, room, "output %d: %s", i, part), result = 1;
    }
    for (int i = 0; i < outputs; i++) {
        if (slots[i].managed) slots[i].managed->deleter(slots[i].managed);
        dlc_onnx_value_destroy(made[i]);
    }
    data_release();
    return result;
}

/* The case's model with a name for each size; `freed`, its bytes, must outlive it. 0: it is open, 1: it is refused, -1: no size is a number. */
static int open_freed(const char *path, message *freed, dlc_onnx_model **model, char *why, size_t room) {
    const file_bytes file = read_file(path);
    int count = 0;
    if (file.data) *freed = parts_free_sizes(file.data, file.size, &count);
    if (!count) return snprintf(why, room, "no input has a size that is a number"), -1;
    if (dlc_onnx_parse(context, freed->data, freed->size, NULL, model) == DLC_OK) return 0;
    snprintf(why, room, "open: %s", dlc_error_message(context));
    return 1;
}

/* Does one import serve inputs of any size? */
static bool is_free_of_guards(dlc_onnx_runner *runner) {
    char *text = NULL;
    const bool none = runner && dlc_onnx_runner_describe(runner, &text) == DLC_OK && strstr(text, "guards: none") &&
                      strchr(text, '\n') == strrchr(text, '\n');
    dlc_text_free(context, text);
    return none;
}

static int run_case(const char *folder, bool symbols, char *why, size_t room) {
    char path[PATH];
    dlc_onnx_model *model = NULL;
    dlc_onnx_runner *runner = NULL;
    message freed = {0};
    int result = -1, sets = 0;
    *why = 0;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (symbols)
        result = open_freed(path, &freed, &model, why, room);
    else if (dlc_onnx_open(context, path, NULL, &model))
        snprintf(why, room, "open: %s", dlc_error_message(context));
    if (model && dlc_onnx_runner_create(model, NULL, &runner))
        snprintf(why, room, "runner: %s", dlc_error_message(context));
    for (int s = 0; s < 10 && runner && (s == 0 || !result); s++) {
        char set[32];
        struct stat about;
        snprintf(set, sizeof set, "test_data_set_%d", s);
        snprintf(path, sizeof path, "%s/%s", folder, set);
        if (stat(path, &about) != 0) break;
        sets++;
        result = run_set(model, runner, folder, set, why, room);
        if (!result) result = run_set(model, runner, folder, set, why, room); /* once more, with what is there now */
    }
    char *lacking = NULL;
    if (runner && !sets && dlc_onnx_check(model, &lacking) == DLC_OK)
        snprintf(why, room, "no data; %s", *lacking ? lacking : "all operators are imported");
    dlc_text_free(context, lacking);
    is_best = symbols && is_free_of_guards(runner);
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    free(freed.data);
    return result;
}

/* ---- models without data ------------------------------------------------------------------------------------------------ */

/* n elements in the sizes that the file declares: 0, 1/n, 2/n, ... False: no tensor of f32, or without sizes. */
static bool make_input(const dlc_onnx_port *port, tensor *t) {
    memset(t, 0, sizeof *t);
    t->count = 1, t->type = 1;
    for (int d = 0; d < port->rank; d++) {
        if (port->dims[d].value < 0) return false;
        t->count *= (size_t)(t->shape[d] = port->dims[d].value);
    }
    if (port->rank < 0 || port->dtype != DLC_F32) return false;
    float *element = data_new(t->count * sizeof *element + 1);
    for (size_t i = 0; i < t->count; i++) element[i] = (float)((double)i / (double)t->count);
    t->data = (char *)element;
    t->view = (DLTensor){
        .data = element, .device = {kDLCPU, 0}, .ndim = port->rank, .dtype = types[t->type].dtype, .shape = t->shape};
    return true;
}

/* Runs a model of one input and one output. */
static int run_light_model(dlc_onnx_model *model, const tensor *expected, char *why, size_t room) {
    dlc_onnx_runner *runner = NULL;
    dlc_output_slot slot = {0};
    dlc_onnx_port port;
    tensor in = {0};
    int result = -1;
    if (dlc_onnx_port_count(model, DLC_ONNX_INPUT) != 1 || dlc_onnx_port_count(model, DLC_ONNX_OUTPUT) != 1 ||
        dlc_onnx_port_at(model, DLC_ONNX_INPUT, 0, &port) || !make_input(&port, &in))
        snprintf(why, room, "not one input of f32 with sizes, and one output");
    else if (dlc_onnx_runner_create(model, NULL, &runner) ||
             dlc_onnx_run(runner, NULL, (const DLTensor *[]){&in.view}, 1, &slot, 1))
        snprintf(why, room, "run: %s", dlc_error_message(context));
    else {
        compare(&slot.managed->dl_tensor, expected, 1e-3, 1e-7, why, room);
        result = *why != 0;
    }
    if (slot.managed) slot.managed->deleter(slot.managed);
    dlc_onnx_runner_destroy(runner);
    return result;
}

static int run_light(const char *path, const char *result_path, char *why, size_t room) {
    dlc_onnx_model *model = NULL;
    dlc_onnx_value expected;
    int result = -1;
    *why = 0;
    if (!read_value_file(result_path, "tensor(float)", &expected) || !expected.tensor)
        snprintf(why, room, "its result is no tensor");
    else if (dlc_onnx_open(context, path, NULL, &model))
        snprintf(why, room, "open: %s", dlc_error_message(context));
    else
        result = run_light_model(model, tensor_in(&expected), why, room);
    dlc_onnx_destroy(model);
    data_release();
    return result;
}

/* ---- models exported and imported again ----------------------------------------------------------------------------------- */

/* The original's results are what is expected. */
static int compare_results(const again_results *of, char *why, size_t room) {
    is_best = true;
    for (int i = 0; i < of->count; i++) {
        const DLTensor *first = &of->first[i].managed->dl_tensor, *second = &of->second[i].managed->dl_tensor;
        tensor expected = {.view = *first, .count = 1, .data = (char *)first->data + first->byte_offset};
        if (again_same_bits(first, second)) continue;
        for (int d = 0; d < first->ndim; d++) expected.count *= (size_t)first->shape[d];
        is_best = false;
        compare(second, &expected, 1e-3, 1e-7, why, room);
        if (*why) return 1;
    }
    return 0;
}

/* 0: equal, 1: not, -1: libdlc does not import it as one graph, or does not export that, as `why` says. */
static int run_again(dlc_onnx_model *model, const char *folder, char *why, size_t room) {
    static dlc_onnx_value in[MOST];
    const DLTensor *given[MOST];
    again_results results = {.count = 0};
    char set[PATH];
    const int count = dlc_onnx_port_count(model, DLC_ONNX_INPUT);
    snprintf(set, sizeof set, "%s/test_data_set_0", folder);
    if (count > MOST || !has_only_tensors(model))
        return snprintf(why, room, "too many inputs, or some that are no tensors of numbers"), -1;
    if (!read_side(model, DLC_ONNX_INPUT, set, in, why, room)) return -1;
    for (int i = 0; i < count; i++) given[i] = in[i].tensor;
    int result = again_run(context, model, given, count, &results, why, room);
    if (result == 0) result = compare_results(&results, why, room);
    again_free(&results);
    return result;
}

static int run_export_case(const char *folder, char *why, size_t room) {
    dlc_onnx_model *model = NULL;
    char path[PATH];
    int result = -1;
    *why = 0;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (dlc_onnx_open(context, path, NULL, &model))
        snprintf(why, room, "open: %s", dlc_error_message(context));
    else
        result = run_again(model, folder, why, room);
    dlc_onnx_destroy(model);
    data_release();
    return result;
}

/* ---- cases that do not pass ------------------------------------------------------------------------------------------- */

static const char usual[] = "/usr/share/libonnx-testdata/data";
/* By class, of the cases that were run. */
static int excluded[EXCLUSIONS_CLASSES + 1];

/* Settles a case that came out so. */
static void settle(const char *name, int result, const char *why) {
    const bool bless = getenv("DLC_BLESS") != NULL;
    const int at = exclusions_find(name);
    if (result == 0 && at < 0) {
        passed++;
        if (verbose) printf("pass %s (%.1f ULP)\n", name, worst_units);
    } else if (result == 0 && !bless) {
        failed++;
        printf("FAIL %s: it passes, and is listed in %s\n", name, EXCLUSIONS_PATH);
    } else if (result == 0) {
        passed++;
        exclusions_remove(at);
    } else if (bless) {
        refused++;
        excluded[exclusions_set(name, why)]++;
    } else if (at >= 0) {
        refused++;
        excluded[exclusions_class_of(at)]++;
        if (verbose) printf("none %s: %s\n", name, why);
    } else {
        failed++;
        printf("FAIL %s: %s\n", name, why);
    }
}

/* Settles a case that came out so in another way; those that do not pass as they are do not count. */
static void settle_way(const char *name, way which, int result, const char *why) {
    if (exclusions_find(name) >= 0) return;
    if (result < 0) {
        not_possible[which]++;
        if (verbose) printf("none %s%s: %s\n", name, way_text[which], why);
    } else if (result == 0) {
        passed++, passed_way[which]++, best_way[which] += is_best;
        if (verbose) printf("pass %s%s\n", name, way_text[which]);
    } else {
        failed++;
        printf("FAIL %s%s: %s\n", name, way_text[which], why);
    }
}

/* Settles a case as it is, for the table, too. */
static void settle_and_count(const char *name, const char *model_path, int result, const char *why) {
    const file_bytes model = read_file(model_path);
    char operator[96] = "";
    if (model.data) parts_operator(model.data, model.size, operator, sizeof operator);
    data_release();
    tally_add(operator, result == 0, worst_units);
    settle(name, result, why);
}

/* A folder of a case. */
static void run_folder(const char *folder) {
    char why[1500], path[PATH];
    const char *name = strrchr(folder, '/');
    char listed_as[160]; /* the cases of 2022 are others than those of the same name today */
    snprintf(listed_as, sizeof listed_as, "%s%s", strncmp(folder, usual, strlen(usual)) == 0 ? "1.12/" : "",
             name ? name + 1 : folder);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    for (int which = 0; which < WAYS; which++) {
        if (!every[which] || cases % every[which]) continue;
        worst_units = 0;
        const int calls_before = registered_calls();
        const int result = which == EXPORTED ? run_export_case(folder, why, sizeof why)
                                             : run_case(folder, which == SYMBOLS, why, sizeof why);
        if (which == AS_IT_IS) {
            settle_and_count(listed_as, path, result, why);
            by_functions += result == 0 && registered_calls() != calls_before;
        } else {
            settle_way(listed_as, (way)which, result, why);
        }
    }
    cases++;
}

/* A file x.onnx with x_output_0.pb beside it. */
static void run_file(const char *path) {
    char result_path[PATH], why[1500];
    const size_t length = strlen(path);
    struct stat about;
    if (length < 5 || strcmp(path + length - 5, ".onnx") != 0) return;
    snprintf(result_path, sizeof result_path, "%.*s_output_0.pb", (int)length - 5, path);
    if (stat(result_path, &about) != 0 || !every[AS_IT_IS]) return;
    worst_units = 0;
    const int result = run_light(path, result_path, why, sizeof why);
    settle_and_count(strrchr(path, '/') + 1, path, result, why);
    cases++;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void walk(const char *folder) {
    char path[PATH];
    struct stat about;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (stat(path, &about) == 0) {
        if (strstr(folder, filter)) run_folder(folder);
        return;
    }
    DIR *list = opendir(folder);
    char *names[8192];
    int count = 0;
    if (!list) return;
    for (const struct dirent *entry; (entry = readdir(list)) && count < 8192;)
        if (entry->d_name[0] != '.') names[count++] = strdup(entry->d_name);
    closedir(list);
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
            walk(path);
        else if (strstr(path, filter))
            run_file(path);
        free(names[i]);
    }
}

/* Only that way, each case. */
static void only(way which) {
    for (way w = 0; w < WAYS; w++) every[w] = w == which;
}

static bool write_table(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) return fprintf(stderr, "%s cannot be written\n", path), false;
    tally_write(file);
    return fclose(file) == 0;
}

static void summarise_excluded(void) {
    printf("excluded:");
    for (int c = 0; c < EXCLUSIONS_CLASSES; c++) printf(" %d %s,", excluded[c], exclusions_class[c]);
    printf(" %d not imported so far\n", excluded[EXCLUSIONS_CLASSES]);
}

static void summarise(void) {
    if (every[SYMBOLS])
        printf("with symbols for sizes: %d passed, %d of them in one import for all sizes; %d have no such size\n",
               passed_way[SYMBOLS], best_way[SYMBOLS], not_possible[SYMBOLS]);
    if (every[EXPORTED])
        printf("exported and imported: %d passed, %d of them with equal bits; %d are not exported\n",
               passed_way[EXPORTED], best_way[EXPORTED], not_possible[EXPORTED]);
    if (every[AS_IT_IS]) summarise_excluded();
    if (by_functions)
        printf(
            "%d of those that passed did so by functions that this program registered (RegexFullMatch, ImageDecoder)\n",
            by_functions);
    printf("[  PASSED  ] %d tests\n[  FAILED  ] %d tests\n[  SKIPPED ] %d tests\n", passed, failed, refused);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, refused);
}

int main(int argc, char **argv) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    const char *table = NULL;
    struct stat about;
    int i = 1;
    if (getenv("DLC_TEST_LONG")) every[SYMBOLS] = every[EXPORTED] = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--verbose"))
            verbose = true;
        else if (!strcmp(argv[i], "--symbols"))
            only(SYMBOLS);
        else if (!strcmp(argv[i], "--export"))
            only(EXPORTED);
        else if (!strcmp(argv[i], "--target") && i + 1 < argc)
            options.target = argv[++i];
        else if (!strcmp(argv[i], "--filter") && i + 1 < argc)
            filter = argv[++i];
        else if (!strcmp(argv[i], "--table") && i + 1 < argc)
            table = argv[++i];
        else
            return fprintf(stderr, "%s: no such option, or without its value\n", argv[i]), 3;
    }
    if (i == argc && stat(usual, &about)) return 77;
    for (int k = i; k < argc; k++)
        if (stat(argv[k], &about)) return fprintf(stderr, "%s: there is no such folder\n", argv[k]), 3;
    if (dlc_context_create(&options, &context)) return fprintf(stderr, "%s\n", dlc_error_message(NULL)), 1;
    if (registered_all(context)) return fprintf(stderr, "%s\n", dlc_error_message(context)), 1;
    exclusions_read();
    if (i == argc) walk(usual);
    for (; i < argc; i++) walk(argv[i]);
    dlc_context_destroy(context);
    if (!cases) return fprintf(stderr, "no case has \"%s\" in its name\n", filter), 1;
    if (getenv("DLC_BLESS")) exclusions_write();
    if (table && !write_table(table)) return 1;
    summarise();
    return failed != 0;
}
