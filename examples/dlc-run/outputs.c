/* Outputs of the model: shown, written to .npy files, and compared with such files or with another run's. */
#include "dlc-run.h"

#include <dlc/files.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { SHOWN = 8 };

void free_outputs(outputs *out) {
    for (int i = 0; i < PORTS_MAX; i++)
        if (out->slot[i].managed) out->slot[i].managed->deleter(out->slot[i].managed);
    *out = (outputs){0};
}

/* An output that is a state stays in the runner. */
static const DLTensor *output_at(const outputs *out, int i) {
    return out->slot[i].managed ? &out->slot[i].managed->dl_tensor : NULL;
}

/* The elements as f64, parts of complex numbers one after the other; NULL: a line on stderr. */
static DLManagedTensorVersioned *numbers_of(const session *s, const DLTensor *tensor) {
    int64_t shape[] = {2 * element_count(tensor)};
    DLTensor parts = *tensor;
    if (dtype_of(tensor) != DLC_C64) return convert(s, tensor, DLC_F64);
    parts.dtype = (DLDataType){kDLFloat, 32, 1}, parts.ndim = 1, parts.shape = shape, parts.strides = NULL;
    return convert(s, &parts, DLC_F64);
}

static const double *elements_of(const DLManagedTensorVersioned *numbers) {
    return (const double *)(const void *)((const char *)numbers->dl_tensor.data + numbers->dl_tensor.byte_offset);
}

/* ---- show --------------------------------------------------------------------------------------------------------------- */

typedef struct summary {
    double least, greatest, mean;
    int64_t nan_count;
    uint64_t hash;
} summary;

/* Fowler, Noll & Vo's hash 1a of the bytes. */
static uint64_t hash_of(const DLTensor *tensor) {
    const size_t size = ((size_t)element_count(tensor) * tensor->dtype.bits + 7) / 8;
    const unsigned char *bytes = (const unsigned char *)tensor->data + tensor->byte_offset;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Of the elements that are numbers. */
static summary summarise(const DLTensor *tensor, const double *number, int64_t count) {
    summary of = {.least = INFINITY, .greatest = -INFINITY, .hash = hash_of(tensor)};
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(number[i])) {
            of.nan_count++;
            continue;
        }
        sum += number[i];
        of.least = fmin(of.least, number[i]), of.greatest = fmax(of.greatest, number[i]);
    }
    of.mean = sum / (double)(count - of.nan_count);
    return of;
}

static void say_output(const report *r, const char *name, const DLTensor *tensor, const summary *of,
                       const double *number, int64_t count) {
    char text[400];
    say(r, "output %s: %s", name, type_text(tensor, text, sizeof text));
    if (count > of->nan_count) say(r, " %.6g..%.6g, mean %.6g,", of->least, of->greatest, of->mean);
    if (of->nan_count) say(r, " %" PRId64 " NaN,", of->nan_count);
    say(r, " hash %016" PRIx64 " =", of->hash);
    for (int64_t i = 0; i < count && i < SHOWN; i++) say(r, " %.9g", number[i]);
    say(r, count > SHOWN ? " ...\n" : "\n");
}

static void add_output(report *r, const char *name, const DLTensor *tensor, const summary *of, const double *number,
                       int64_t count) {
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, of->hash);
    json_open(r, NULL, "{");
    json_string(r, "name", name);
    json_string(r, "type", dlc_dtype_name(dtype_of(tensor)));
    json_shape(r, "shape", tensor->ndim, tensor->shape);
    json_number(r, "least", of->least), json_number(r, "greatest", of->greatest), json_number(r, "mean", of->mean);
    json_whole(r, "nan", of->nan_count);
    json_string(r, "hash", hash);
    json_open(r, "first", "[");
    for (int64_t i = 0; i < count && i < SHOWN; i++) json_number(r, NULL, number[i]);
    json_close(r, "]");
    json_close(r, "}");
}

static bool show_output(const session *s, report *r, const char *name, const DLTensor *tensor) {
    DLManagedTensorVersioned *numbers = numbers_of(s, tensor);
    if (!numbers) return false;
    const int64_t count = element_count(&numbers->dl_tensor);
    const double *number = elements_of(numbers);
    const summary of = summarise(tensor, number, count);
    say_output(r, name, tensor, &of, number, count);
    add_output(r, name, tensor, &of, number, count);
    if (s->o->show && count == element_count(tensor)) show_image(r, tensor, number, of.least, of.greatest);
    numbers->deleter(numbers);
    return true;
}

bool show_outputs(const session *s, report *r, const outputs *out) {
    bool good = true;
    json_open(r, "outputs", "[");
    for (int i = 0; good && i < s->output_count; i++) {
        const char *name = port_of(s, DLC_ONNX_OUTPUT, i).name;
        if (output_at(out, i))
            good = show_output(s, r, name, output_at(out, i));
        else
            say(r, "output %s: kept as input %s of the next run\n", name, state_of(s, DLC_ONNX_OUTPUT, name));
    }
    json_close(r, "]");
    return good;
}

/* ---- files -------------------------------------------------------------------------------------------------------------- */

/* FOLDER/NAME.npy; characters of the name other than letters, digits and -._ become _. */
static bool path_of(const session *s, const char *folder, const char *name, char *path, size_t room) {
    const int before = snprintf(path, room, "%s/", folder), all = snprintf(path, room, "%s/%s.npy", folder, name);
    if (all < 0 || (size_t)all >= room) return fail(s, "output %s: its file's path is too long", name);
    for (char *c = path + before; *c; c++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._", *c)) *c = '_';
    return true;
}

/* Two outputs whose names differ in characters that files do not keep would be one file. */
static bool paths_differ(const session *s, const char *folder) {
    char path[4096], other[4096];
    for (int i = 0; i < s->output_count; i++)
        for (int k = 0; k < i; k++) {
            const char *a = port_of(s, DLC_ONNX_OUTPUT, i).name, *b = port_of(s, DLC_ONNX_OUTPUT, k).name;
            if (!path_of(s, folder, a, path, sizeof path) || !path_of(s, folder, b, other, sizeof other)) return false;
            if (strcmp(path, other) == 0) return fail(s, "outputs %s and %s would both be %s", a, b, path);
        }
    return true;
}

bool save_outputs(const session *s, const outputs *out) {
    const char *folder = s->o->save;
    char path[4096];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return fail(s, "%s: %s", folder, strerror(errno));
    bool good = paths_differ(s, folder);
    for (int i = 0; good && i < s->output_count; i++) {
        if (!output_at(out, i)) continue;
        good = path_of(s, folder, port_of(s, DLC_ONNX_OUTPUT, i).name, path, sizeof path) &&
               (dlc_file_write_npy(s->context, path, output_at(out, i)) == DLC_OK || fail_by_context(s, path));
    }
    return good;
}

/* ---- comparison --------------------------------------------------------------------------------------------------------- */

typedef struct difference {
    int64_t count, first;
    double greatest, one, other;
} difference;

static difference difference_of(const double *one, const double *other, int64_t count, double tolerance) {
    difference of = {0};
    for (int64_t i = 0; i < count; i++) {
        if (one[i] == other[i] || (isnan(one[i]) && isnan(other[i]))) continue;
        const double d = fabs(one[i] - other[i]);
        if (!(d <= of.greatest)) of.greatest = d;
        if (d <= tolerance + tolerance * fabs(other[i]) && isfinite(d)) continue;
        if (of.count++ == 0) of.first = i, of.one = one[i], of.other = other[i];
    }
    return of;
}

static bool same_type(const DLTensor *one, const DLTensor *other) {
    bool same = dtype_of(one) == dtype_of(other) && one->ndim == other->ndim;
    for (int d = 0; same && d < one->ndim; d++) same = one->shape[d] == other->shape[d];
    return same;
}

static int tell_types(report *r, const char *name, const char *with, const DLTensor *one, const DLTensor *other) {
    char is[400], was[400];
    type_text(one, is, sizeof is), type_text(other, was, sizeof was);
    say(r, "compare %s with %s: DIFFERS: %s instead of %s\n", name, with, is, was);
    json_open(r, NULL, "{");
    json_string(r, "output", name), json_string(r, "with", with), json_bool(r, "equal", false);
    json_string(r, "type", is), json_string(r, "expected", was);
    json_close(r, "}");
    return DIFFERS;
}

static int tell_elements(report *r, const char *name, const char *with, const difference *of, int64_t total) {
    if (of->count)
        say(r,
            "compare %s with %s: DIFFERS: %" PRId64 " of %" PRId64 " elements, the first at %" PRId64
            ": %.9g instead of %.9g; "
            "greatest difference %.3g\n",
            name, with, of->count, total, of->first, of->one, of->other, of->greatest);
    else
        say(r, "compare %s with %s: equal, greatest difference %.3g\n", name, with, of->greatest);
    json_open(r, NULL, "{");
    json_string(r, "output", name), json_string(r, "with", with), json_bool(r, "equal", of->count == 0);
    json_whole(r, "differing", of->count), json_number(r, "greatest", of->greatest);
    json_close(r, "}");
    return of->count ? DIFFERS : GOOD;
}

static int compare(const session *s, report *r, const char *name, const char *with, const DLTensor *one,
                   const DLTensor *other) {
    if (!same_type(one, other)) return tell_types(r, name, with, one, other);
    DLManagedTensorVersioned *a = numbers_of(s, one), *b = a ? numbers_of(s, other) : NULL;
    int result = FAILED;
    if (b) {
        const int64_t count = element_count(&a->dl_tensor);
        const difference of = difference_of(elements_of(a), elements_of(b), count, s->o->tolerance);
        result = tell_elements(r, name, with, &of, count);
    }
    if (a) a->deleter(a);
    if (b) b->deleter(b);
    return result;
}

/* NAME.npy, or, where there is none, NAME.pb or output_NUMBER.pb, as ONNX's test data call it. */
static bool find_expected(const session *s, const char *name, int number, char *path, size_t room) {
    struct stat about;
    if (!path_of(s, s->o->expect, name, path, room)) return false;
    if (stat(path, &about) == 0) return true;
    char *ending = path + strlen(path) - strlen(".npy"), other[4096];
    strcpy(ending, ".pb");
    if (stat(path, &about) == 0) return true;
    strcpy(ending, ".npy");
    snprintf(other, sizeof other, "%s/output_%d.pb", s->o->expect, number);
    if (stat(other, &about) == 0) snprintf(path, room, "%s", other);
    return true;
}

static int compare_with_file(const session *s, report *r, const char *name, int number, const DLTensor *tensor) {
    char path[4096];
    if (!find_expected(s, name, number, path, sizeof path)) return FAILED;
    DLManagedTensorVersioned *expected = read_tensor_file(s, path);
    if (!expected) return FAILED;
    const int result = compare(s, r, name, path, tensor, &expected->dl_tensor);
    expected->deleter(expected);
    return result;
}

int compare_with_files(const session *s, report *r, const outputs *out) {
    int worst = GOOD;
    json_open(r, "expected", "[");
    for (int i = 0; worst != FAILED && i < s->output_count; i++) {
        if (!output_at(out, i)) continue;
        const int result = compare_with_file(s, r, port_of(s, DLC_ONNX_OUTPUT, i).name, i, output_at(out, i));
        if (result != GOOD) worst = result;
    }
    json_close(r, "]");
    return worst;
}

int compare_with_outputs(const session *s, report *r, const outputs *out, const outputs *other) {
    int worst = GOOD;
    json_open(r, "compared", "[");
    for (int i = 0; worst != FAILED && i < s->output_count; i++) {
        if (!output_at(out, i) || !output_at(other, i)) continue;
        const char *name = port_of(s, DLC_ONNX_OUTPUT, i).name;
        const int result = compare(s, r, name, s->o->compare, output_at(out, i), output_at(other, i));
        if (result != GOOD) worst = result;
    }
    json_close(r, "]");
    return worst;
}
