/* ONNX's own test cases, through the public header: each folder has model.onnx and data sets of inputs and results.
 *
 *   conformance [--target NAME] [--verbose] [--filter TEXT] FOLDER...     folders of cases, or of folders of cases
 *
 * Without folders: the cases of Debian's libonnx-testdata, skipped without them. A case passes if every element of every result is within
 * 1e-7 + 1e-3 of the magnitude that the case has (data.json of a case may say other numbers), integers and bools equal. A case
 * runs twice, by one runner. excluded.txt lists the cases that do not pass, with reasons: one that is not
 * listed and does not pass fails, and so does one that is listed and passes. DLC_BLESS=1 rewrites the list; review the difference. */
#include "onnx/data.h"

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

/* Empty: they agree. */
static void compare(const DLTensor *got, const DLTensor *e, double relative, double absolute, char *why, size_t room) {
    const tensor *expected = (const tensor *)(const void *)e;
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
        compare(got->tensor, e->tensor, relative, absolute, why, room);
    } else if (e->kind == DLC_ONNX_STRINGS) {
        compare_strings(got, e, why, room);
    }
    for (size_t i = 0; !*why && i < e->count; i++)
        compare_values(&got->elements[i], &e->elements[i], relative, absolute, why, room);
}

/* ---- cases ----------------------------------------------------------------------------------------------------------- */

static dlc_context *context;
static int passed, failed, refused;
static bool verbose;
static const char *filter = "";

/* What data.json says under that key; the usual number without it. */
static double tolerance(const char *folder, const char *key, double usual) {
    char path[PATH], *found;
    snprintf(path, sizeof path, "%s/data.json", folder);
    bytes b = read_file(path);
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
        const tensor *t = (const tensor *)(const void *)values[i].tensor;
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
            compare(&slots[i].managed->dl_tensor, out[i].tensor, relative, absolute, part, sizeof part);
        if (*part) snprintf(why, room, "output %d: %s", i, part), result = 1;
    }
    for (int i = 0; i < outputs; i++) {
        if (slots[i].managed) slots[i].managed->deleter(slots[i].managed);
        dlc_onnx_value_destroy(made[i]);
    }
    data_release();
    return result;
}

static int run_case(const char *folder, char *why, size_t room) {
    char path[PATH];
    dlc_onnx_model *model = NULL;
    dlc_onnx_runner *runner = NULL;
    int result = -1, sets = 0;
    *why = 0;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (dlc_onnx_open(context, path, NULL, &model))
        snprintf(why, room, "open: %s", dlc_error_message(context));
    else if (dlc_onnx_runner_create(model, NULL, &runner))
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
    dlc_onnx_runner_destroy(runner);
    dlc_onnx_destroy(model);
    return result;
}

/* ---- cases that do not pass ------------------------------------------------------------------------------------------- */

static const char usual[] = "/usr/share/libonnx-testdata/data";
static const char list_path[] = "test/onnx/excluded.txt";
enum { LISTED = 4096 };
static struct { char name[128], reason[160]; } listed[LISTED];
static int listed_count;

static int find_listed(const char *name) {
    for (int i = 0; i < listed_count; i++)
        if (strcmp(listed[i].name, name) == 0) return i;
    return -1;
}

static void read_list(void) {
    char line[512];
    FILE *file = fopen(list_path, "r");
    while (file && fgets(line, sizeof line, file) && listed_count < LISTED) {
        line[strcspn(line, "\n")] = 0;
        const size_t name = strcspn(line, " ");
        if (!line[0] || line[0] == '#' || name >= sizeof listed[0].name) continue;
        snprintf(listed[listed_count].name, sizeof listed[0].name, "%.*s", (int)name, line);
        snprintf(listed[listed_count++].reason, sizeof listed[0].reason, "%s", line[name] ? line + name + 1 : "");
    }
    if (file) fclose(file);
}

static int by_listed_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static void write_list(void) {
    FILE *file = fopen(list_path, "w");
    if (!file) return;
    qsort(listed, (size_t)listed_count, sizeof listed[0], by_listed_name);
    fprintf(file, "# Cases that do not pass, and why. Written by DLC_BLESS=1 test/onnx/conformance FOLDER...\n");
    for (int i = 0; i < listed_count; i++)
        if (listed[i].name[0]) fprintf(file, "%s %s\n", listed[i].name, listed[i].reason);
    fclose(file);
}

/* Settles a case that came out so. */
static void settle(const char *name, int result, const char *why) {
    const bool bless = getenv("DLC_BLESS") != NULL;
    const int at = find_listed(name);
    if (result == 0 && at < 0) {
        passed++;
        if (verbose) printf("pass %s\n", name);
    } else if (result == 0 && !bless) {
        failed++;
        printf("FAIL %s: it passes, and is listed in %s\n", name, list_path);
    } else if (result == 0) {
        passed++;
        listed[at].name[0] = 0;
    } else if (at >= 0 && !bless) {
        refused++;
        if (verbose) printf("none %s: %s\n", name, why);
    } else if (bless) {
        refused++;
        const int to = at >= 0 ? at : listed_count < LISTED - 1 ? listed_count++ : at;
        if (to < 0) return;
        snprintf(listed[to].name, sizeof listed[0].name, "%.127s", name);
        snprintf(listed[to].reason, sizeof listed[0].reason, "%.150s", why);
        for (char *c = listed[to].reason; *c; c++)
            if (*c == '\n') *c = ' ';
    } else {
        failed++;
        printf("FAIL %s: %s\n", name, why);
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void walk(const char *folder) {
    char path[PATH], why[1500];
    struct stat about;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    if (stat(path, &about) == 0) {
        if (!strstr(folder, filter)) return;
        const int result = run_case(folder, why, sizeof why);
        const char *name = strrchr(folder, '/');
        char listed_as[160]; /* the cases of 2022 are others than those of the same name today */
        snprintf(listed_as, sizeof listed_as, "%s%s", strncmp(folder, usual, strlen(usual)) == 0 ? "1.12/" : "",
                 name ? name + 1 : folder);
        settle(listed_as, result, why);
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
        if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) walk(path);
        free(names[i]);
    }
}

int main(int argc, char **argv) {
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    bool any = false;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--verbose"))
            verbose = true;
        else if (!strcmp(argv[i], "--target") && i + 1 < argc)
            options.target = argv[++i];
        else if (!strcmp(argv[i], "--filter") && i + 1 < argc)
            filter = argv[++i];
    }
    if (dlc_context_create(&options, &context)) return fprintf(stderr, "%s\n", dlc_error_message(NULL)), 1;
    read_list();
    for (; i < argc; i++) walk(argv[i]), any = true;
    if (!any) {
        struct stat about;
        if (stat(usual, &about)) return 77;
        walk(usual);
    }
    dlc_context_destroy(context);
    if (getenv("DLC_BLESS")) write_list();
    printf("[  PASSED  ] %d tests\n[  FAILED  ] %d tests\n[  SKIPPED ] %d tests\n", passed, failed, refused);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, refused);
    return failed != 0;
}
