/* Files of tensors: what NumPy and safetensors wrote is read, what we write is byte for byte what they write; damaged and hostile
 * files are refused, wherever the damage is. */
#include "support.h"
#include "test/share.h"

#include <dlc/files.h>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "equal_names.h"
#include "files_data.h"

static dlc_context *context;
static char folder[] = "/tmp/dlc-files-XXXXXX";

static int begin(void **state) {
    (void)state;
    context = open_context("interp", NULL);
    return !context || !mkdtemp(folder);
}

static int end(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return rmdir(folder); /* fails when a temporary file was left */
}

static const char *in_folder(const char *name) {
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static unsigned char *read_back(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    static unsigned char bytes[1 << 16];
    assert_non_null(file);
    *size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    unlink(path);
    return bytes;
}

static dlc_file *parse(const void *bytes, size_t size) {
    dlc_file *file;
    OK(context, dlc_file_parse(context, bytes, size, &file));
    return file;
}
#define PARSE(bytes) parse(bytes, sizeof bytes)

static DLManagedTensorVersioned *get(dlc_file *file, const char *name, DLDataType type, int rank,
                                     const int64_t *shape) {
    DLManagedTensorVersioned *managed;
    OK(context, dlc_file_tensor(file, name, &managed));
    const DLTensor *t = &managed->dl_tensor;
    assert_memory_equal(&t->dtype, &type, sizeof type);
    assert_int_equal(t->ndim, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(t->shape[d], shape[d]);
    assert_true(managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
    return managed;
}
static void give(DLManagedTensorVersioned *managed) {
    managed->deleter(managed);
}

static const DLDataType f32 = {kDLFloat, 32, 1}, f64 = {kDLFloat, 64, 1}, i32 = {kDLInt, 32, 1};
static const DLDataType u8 = {kDLUInt, 8, 1}, b8 = {kDLBool, 8, 1}, bf16 = {kDLBfloat, 16, 1};

/* arange(6).reshape(2, 3) / 2 - 1 */
static const float six[6] = {-1, -0.5f, 0, 0.5f, 1, 1.5f};

/* ---- reading -------------------------------------------------------------------------------------------------------- */

static void test_npy(void **state) {
    (void)state;
    dlc_file *file = PARSE(npy_f32);
    assert_int_equal(dlc_file_count(file), 1);
    assert_string_equal(dlc_file_name(file, 0), "");
    assert_null(dlc_file_name(file, 1));
    DLManagedTensorVersioned *t = get(file, "", f32, 2, SHAPE(2, 3));
    assert_memory_equal(t->dl_tensor.data, six, sizeof six);
    assert_ptr_equal(t->dl_tensor.data, npy_f32 + sizeof npy_f32 - sizeof six); /* where it lies */
    dlc_file_destroy(file);
    assert_memory_equal(t->dl_tensor.data, six, sizeof six); /* the tensor keeps what it shows */
    give(t);

    file = PARSE(npy_scalar);
    t = get(file, "", f64, 0, NULL);
    assert_true(*(double *)t->dl_tensor.data == 2.5);
    give(t), dlc_file_destroy(file);
}

static void test_order_of_axes_and_bytes(void **state) {
    (void)state;
    dlc_file *file = PARSE(npy_fortran_big);
    DLManagedTensorVersioned *t = get(file, "", i32, 2, SHAPE(2, 3));
    const int32_t *data = t->dl_tensor.data;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            assert_int_equal(data[i * t->dl_tensor.strides[0] + j * t->dl_tensor.strides[1]], (i * 3 + j) * 1000);
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    dlc_output(g, "y", dlc_file_constant(g, file, "")); /* compact, whatever the file's order */
    dlc_program *p = compile(context, g);
    int32_t result[6];
    tensor y;
    dlc_output_slot slot = {&make_tensor(&y, DLC_I32, result, 2, SHAPE(2, 3))->dl, NULL};
    OK(context, dlc_run(p, NULL, NULL, 0, &slot, 1));
    for (int i = 0; i < 6; i++) assert_int_equal(result[i], i * 1000);
    dlc_program_destroy(p);
    give(t), dlc_file_destroy(file);
}

static void test_npz(void **state) {
    (void)state;
    dlc_file *file = PARSE(npz_packed);
    assert_int_equal(dlc_file_count(file), 2);
    DLManagedTensorVersioned *t = get(file, "weights", f64, 2, SHAPE(8, 8)), *again;
    for (int i = 0; i < 64; i++) assert_true(((double *)t->dl_tensor.data)[i] == i % 5);
    OK(context, dlc_file_tensor(file, "weights", &again));
    assert_ptr_equal(t->dl_tensor.data, again->dl_tensor.data); /* unpacked once */
    give(t), give(again);
    t = get(file, "flags", b8, 1, SHAPE(3));
    assert_memory_equal(t->dl_tensor.data, "\1\0\1", 3);
    give(t), dlc_file_destroy(file);

    file = PARSE(npz_stored);
    t = get(file, "a", f32, 2, SHAPE(2, 3));
    assert_memory_equal(t->dl_tensor.data, six, sizeof six);
    give(t);
    t = get(file, "empty", u8, 2, SHAPE(0, 4));
    give(t), dlc_file_destroy(file);
}

static void test_safetensors(void **state) {
    (void)state;
    dlc_file *file = PARSE(safetensors_three);
    assert_int_equal(dlc_file_count(file), 3);
    assert_string_equal(dlc_file_note(file, "format"), "pt");
    assert_null(dlc_file_note(file, "other"));
    DLManagedTensorVersioned *t = get(file, "a", f32, 2, SHAPE(2, 3));
    assert_memory_equal(t->dl_tensor.data, six, sizeof six);
    give(t);
    t = get(file, "b", bf16, 1, SHAPE(2));
    assert_memory_equal(t->dl_tensor.data, "\xc0\x3f\x00\xc0", 4);
    give(t);
    t = get(file, "c", b8, 1, SHAPE(3));
    give(t), dlc_file_destroy(file);
}

/* A tensor that we cannot have does not spoil the others. */
static void test_types_that_we_lack(void **state) {
    (void)state;
    DLManagedTensorVersioned *t;
    dlc_file *file = PARSE(npy_records);
    assert_int_equal(dlc_file_count(file), 1);
    assert_int_equal(dlc_file_tensor(file, "", &t), DLC_UNSUPPORTED);
    assert_non_null(strstr(dlc_error_message(context), "records"));
    dlc_file_destroy(file);

    static const char header[] = "{\"x\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]},"
                                 "\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}}";
    char bytes[sizeof header + 12] = {(char)(sizeof header - 1)};
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + sizeof header - 1, "\1\2\3\4", 4);
    file = parse(bytes, 8 + sizeof header - 1 + 4);
    assert_int_equal(dlc_file_tensor(file, "x", &t), DLC_UNSUPPORTED);
    assert_non_null(strstr(dlc_error_message(context), "F6_E2M3"));
    t = get(file, "y", u8, 1, SHAPE(1));
    assert_int_equal(*(char *)t->dl_tensor.data, 4);
    give(t), dlc_file_destroy(file);
}

static void test_opened(void **state) {
    (void)state;
    const char *path = in_folder("six.npy");
    FILE *f = fopen(path, "wb");
    fwrite(npy_f32, 1, sizeof npy_f32, f), fclose(f);
    for (int read = 0; read < 2; read++) {
        dlc_file *file;
        dlc_file_options options = DLC_FILE_OPTIONS_INIT;
        options.read = read;
        OK(context, dlc_file_open(context, path, &options, &file));
        if (read) unlink(path);
        DLManagedTensorVersioned *t = get(file, "", f32, 2, SHAPE(2, 3));
        assert_memory_equal(t->dl_tensor.data, six, sizeof six);
        give(t), dlc_file_destroy(file);
    }
    dlc_file *file;
    assert_int_equal(dlc_file_open(context, path, NULL, &file), DLC_NOT_FOUND);
    assert_null(file);
    const char *named = strstr(dlc_error_message(context), path);
    assert_true(named && !strstr(named + 1, path));                               /* once */
    assert_int_equal(dlc_file_open(context, folder, NULL, &file), DLC_NOT_FOUND); /* a folder */
    assert_int_equal(dlc_file_open(context, NULL, NULL, &file), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_file_open(context, path, &(dlc_file_options){.struct_size = 3}, &file), DLC_INVALID_ARGUMENT);
}

/* ---- constants ------------------------------------------------------------------------------------------------------ */

static void test_constants(void **state) {
    (void)state;
    dlc_file *file = PARSE(safetensors_three);
    for (int t = 0; t < TARGETS; t++) {
        dlc_context *c = open_context(all_targets[t], NULL);
        if (!c) continue;
        dlc_graph *g;
        OK(c, dlc_graph_create(c, &g));
        dlc_value x = dlc_input(g, "x", DLC_F32, 2, DIMS(SYMBOL("n"), SIZE(2)));
        dlc_output(g, "y", dlc_matmul(x, dlc_file_constant(g, file, "a")));
        dlc_program *p = compile(c, g);
        float in[4] = {1, 0, 2, -1}, out[6];
        tensor xt, yt;
        dlc_output_slot slot = {F32(&yt, out, 2, 3), NULL};
        OK(c, dlc_run(p, NULL, (const DLTensor *[]){F32(&xt, in, 2, 2)}, 1, &slot, 1));
        for (int j = 0; j < 3; j++) assert_true(out[j] == six[j] && out[3 + j] == 2 * six[j] - six[3 + j]);
        dlc_program_destroy(p);
        dlc_context_destroy(c);
    }
    dlc_graph *g;
    OK(context, dlc_graph_create(context, &g));
    assert_false(dlc_value_ok(dlc_file_constant(g, file, "d")));
    assert_int_equal(dlc_graph_status(g), DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_graph_message(g), "no tensor \"d\""));
    dlc_graph_destroy(g);
    OK(context, dlc_graph_create(context, &g));
    assert_false(dlc_value_ok(dlc_file_constant(g, NULL, "d")));
    assert_int_equal(dlc_graph_status(g), DLC_INVALID_ARGUMENT);
    dlc_graph_destroy(g);
    assert_false(dlc_value_ok(dlc_file_constant(NULL, file, "a")));
    dlc_file_destroy(file);
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

static void test_written_as_others_write(void **state) {
    (void)state;
    tensor t, b, c;
    uint16_t two[2] = {0x3fc0, 0xc000};
    float columns[6] = {-1, 0.5f, -0.5f, 1, 0, 1.5f}; /* by columns: strides are honoured */
    size_t size;
    DLTensor *a = F32(&t, columns, 2, 3);
    a->strides = (int64_t[]){1, 2};
    OK(context, dlc_file_write_npy(context, in_folder("a.npy"), a));
    unsigned char *bytes = read_back(in_folder("a.npy"), &size);
    assert_int_equal(size, sizeof npy_f32);
    assert_memory_equal(bytes, npy_f32, size);

    const DLTensor *tensors[] = {a, &make_tensor(&b, DLC_BF16, two, 1, SHAPE(2))->dl,
                                 &make_tensor(&c, DLC_BOOL, "\1\0\1", 1, SHAPE(3))->dl};
    OK(context, dlc_file_write_safetensors(context, in_folder("t"), 3, (const char *[]){"a", "b", "c"}, tensors, 1,
                                           (const char *[]){"format"}, (const char *[]){"pt"}));
    bytes = read_back(in_folder("t"), &size);
    assert_int_equal(size, sizeof safetensors_three);
    assert_memory_equal(bytes, safetensors_three, size);
}

/* All element types, packed and not, through a file and back. */
static void test_round_trips(void **state) {
    (void)state;
    static const dlc_dtype types[] = {DLC_U8, DLC_BOOL, DLC_F64, DLC_I8, DLC_I32, DLC_F16, DLC_I64, DLC_F32, DLC_BF16};
    enum { COUNT = sizeof types / sizeof *types };
    static const char *const names[COUNT] = {"a", "b\"\\\n", "c/d", "\xc3\xa9", "e", "f", "g", "h", "i"};
    unsigned char data[COUNT][15 * 8];
    tensor t[COUNT];
    const DLTensor *list[COUNT];
    for (int i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < sizeof data[i]; k++)
            data[i][k] = types[i] == DLC_BOOL ? k % 3 == 0 : (unsigned char)(k * 7 + i);
        list[i] = &make_tensor(&t[i], types[i], data[i], i % 3, SHAPE(i == 4 ? 0 : 3, 5))->dl;
    }
    for (int format = 0; format < 3; format++) {
        int count = format ? COUNT - 1 : COUNT; /* NumPy has no bf16 */
        const char *path = in_folder("all");
        if (format)
            OK(context, dlc_file_write_npz(context, path, count, names, list, format == 2));
        else
            OK(context, dlc_file_write_safetensors(context, path, count, names, list, 0, NULL, NULL));
        dlc_file *file;
        OK(context, dlc_file_open(context, path, NULL, &file));
        unlink(path);
        assert_int_equal(dlc_file_count(file), count);
        for (int i = 0; i < count; i++) {
            DLManagedTensorVersioned *m = get(file, names[i], list[i]->dtype, list[i]->ndim, list[i]->shape);
            size_t bytes = list[i]->dtype.bits / 8;
            for (int d = 0; d < list[i]->ndim; d++) bytes *= (size_t)list[i]->shape[d];
            assert_memory_equal(m->dl_tensor.data, data[i], bytes);
            if (format == 1) assert_int_equal((uintptr_t)m->dl_tensor.data % 64, 0);
            give(m);
        }
        dlc_file_destroy(file);
    }
}

/* Files of no tensor, as zipfile.ZipFile("none.npz", "w").close() makes them, too. */
static void test_none(void **state) {
    (void)state;
    for (int format = 0; format < 2; format++) {
        const char *path = in_folder("none");
        dlc_file *file;
        if (format)
            OK(context, dlc_file_write_npz(context, path, 0, NULL, NULL, false));
        else
            OK(context, dlc_file_write_safetensors(context, path, 0, NULL, NULL, 0, NULL, NULL));
        OK(context, dlc_file_open(context, path, NULL, &file));
        unlink(path);
        assert_int_equal(dlc_file_count(file), 0);
        assert_null(dlc_file_name(file, 0));
        dlc_file_destroy(file);
    }
    static const char commented[] = "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\3\0abc";
    dlc_file *file;
    OK(context, dlc_file_parse(context, commented, sizeof commented - 1, &file));
    assert_int_equal(dlc_file_count(file), 0);
    dlc_file_destroy(file);
    for (size_t size = 0; size < sizeof commented - 1; size++)
        assert_int_equal(dlc_file_parse(context, commented, size, &file), DLC_PARSE_ERROR);
}

/* Others are told when a name is not ASCII: bit 11 of a member's flags, in both of its headers. */
static void test_names_are_utf8(void **state) {
    (void)state;
    float data[1] = {1};
    tensor t;
    size_t size;
    OK(context, dlc_file_write_npz(context, in_folder("n"), 2, (const char *[]){"a", "\xc3\xa9"},
                                   (const DLTensor *[]){F32(&t, data, 1), &t.dl}, false));
    const unsigned char *bytes = (const unsigned char *)read_back(in_folder("n"), &size);
    int local = 0, central = 0;
    for (size_t i = 0; i + 12 < size; i++) {
        if (memcmp(bytes + i, "PK\3\4", 4) == 0) assert_int_equal(bytes[i + 7] >> 3 & 1, local++ == 1);
        if (memcmp(bytes + i, "PK\1\2", 4) == 0) assert_int_equal(bytes[i + 9] >> 3 & 1, central++ == 1);
    }
    assert_int_equal(local, 2);
    assert_int_equal(central, 2);
}

static void refused(dlc_status status, dlc_status expected, const char *word) {
    if (status != expected || !strstr(dlc_error_message(context), word))
        fail_msg("status %d, message \"%s\"; expected %d and \"%s\"", status, dlc_error_message(context), expected,
                 word);
    assert_int_not_equal(access(in_folder("x"), F_OK), 0);
}

static void test_writers_refuse(void **state) {
    (void)state;
    float data[2] = {1, 2};
    tensor t, b;
    const DLTensor *two[] = {F32(&t, data, 2), F32(&b, data, 1)};
    const char *path = in_folder("x");
    DLTensor bad = *two[0];
    refused(dlc_file_write_npz(context, path, 2, (const char *[]){"a", "a"}, two, false), DLC_INVALID_ARGUMENT,
            "\"a\"");
    refused(dlc_file_write_npz(context, path, 2, (const char *[]){"a", NULL}, two, false), DLC_INVALID_ARGUMENT, "1");
    refused(dlc_file_write_npz(context, path, 2, NULL, two, false), DLC_INVALID_ARGUMENT, "names");
    refused(dlc_file_write_npz(context, path, 1, (const char *[]){"a"}, (const DLTensor *[]){NULL}, true),
            DLC_INVALID_ARGUMENT, "\"a\" is NULL");
    refused(dlc_file_write_npz(context, path, 2, (const char *[]){"a", "\xc3("}, two, true), DLC_INVALID_ARGUMENT,
            "UTF-8");
    refused(dlc_file_write_safetensors(context, path, 1, (const char *[]){"\xff"}, two, 0, NULL, NULL),
            DLC_INVALID_ARGUMENT, "UTF-8");
    refused(dlc_file_write_safetensors(context, path, 1, (const char *[]){"__metadata__"}, two, 0, NULL, NULL),
            DLC_INVALID_ARGUMENT, "__metadata__");
    refused(dlc_file_write_safetensors(context, path, 0, NULL, NULL, 2, (const char *[]){"k", "k"},
                                       (const char *[]){"1", "2"}),
            DLC_INVALID_ARGUMENT, "\"k\"");
    bad.device.device_type = kDLCUDA;
    refused(dlc_file_write_npy(context, path, &bad), DLC_INVALID_ARGUMENT, "host memory");
    bad = *two[0], bad.dtype.bits = 24;
    refused(dlc_file_write_npy(context, path, &bad), DLC_UNSUPPORTED, "24 bits");
    refused(dlc_file_write_npy(context, path, &make_tensor(&b, DLC_BF16, data, 1, SHAPE(2))->dl), DLC_UNSUPPORTED,
            "bf16");
    refused(dlc_file_write_npy(context, in_folder("none/x"), two[0]), DLC_NOT_FOUND, "No such file");
    refused(dlc_file_write_npy(context, NULL, two[0]), DLC_INVALID_ARGUMENT, "path");
}

/* Elements that are codes: of f4e2m1 two to a byte, of which a file has whole ones. */
static void test_codes(void **state) {
    (void)state;
    static const char header[] = "{\"x\":{\"dtype\":\"F8_E8M0\",\"shape\":[3],\"data_offsets\":[0,3]},"
                                 "\"y\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[3,6]}}";
    unsigned char powers[3] = {0, 127, 255}, numbers[3] = {0x10, 0x32, 0xfe};
    size_t length = (sizeof header - 1 + 7) / 8 * 8, size;
    tensor t[2], bad;
    const DLTensor *list[] = {&make_tensor(&t[0], DLC_F8E8M0, powers, 1, SHAPE(3))->dl,
                              &make_tensor(&t[1], DLC_F4E2M1, numbers, 2, SHAPE(3, 2))->dl};
    OK(context,
       dlc_file_write_safetensors(context, in_folder("codes"), 2, (const char *[]){"x", "y"}, list, 0, NULL, NULL));
    const unsigned char *bytes = (const unsigned char *)read_back(in_folder("codes"), &size);
    assert_int_equal(size, 8 + length + 6);
    assert_int_equal(bytes[0], length);
    assert_memory_equal(bytes + 8, header, sizeof header - 1);
    assert_memory_equal(bytes + 8 + length, powers, 3);
    assert_memory_equal(bytes + 8 + length + 3, numbers, 3);
    dlc_file *file = parse(bytes, size);
    DLManagedTensorVersioned *m = get(file, "y", list[1]->dtype, 2, SHAPE(3, 2));
    assert_memory_equal(m->dl_tensor.data, numbers, 3);
    give(m);
    m = get(file, "x", list[0]->dtype, 1, SHAPE(3));
    assert_memory_equal(m->dl_tensor.data, powers, 3);
    give(m), dlc_file_destroy(file);

    const DLTensor *odd = &make_tensor(&bad, DLC_F4E2M1, numbers, 2, SHAPE(2, 2))->dl;
    bad.dl.strides = (int64_t[]){1, 2}; /* half bytes have no addresses */
    refused(dlc_file_write_safetensors(context, in_folder("odd"), 1, (const char *[]){"x"}, &odd, 0, NULL, NULL),
            DLC_INVALID_ARGUMENT, "expected a compact tensor");
    odd = &make_tensor(&bad, DLC_F4E2M1, numbers, 1, SHAPE(5))->dl;
    refused(dlc_file_write_safetensors(context, in_folder("odd"), 1, (const char *[]){"x"}, &odd, 0, NULL, NULL),
            DLC_UNSUPPORTED, "end within a byte");
    refused(dlc_file_write_npy(context, in_folder("odd"), odd), DLC_UNSUPPORTED, "f4e2m1");
    refused(dlc_file_write_npy(context, in_folder("odd"), list[0]), DLC_UNSUPPORTED, "f8e8m0: write .safetensors");
    odd = &make_tensor(&bad, DLC_I2, numbers, 1, SHAPE(4))->dl;
    refused(dlc_file_write_npy(context, in_folder("odd"), odd), DLC_UNSUPPORTED, "i2");
    refused(dlc_file_write_safetensors(context, in_folder("odd"), 1, (const char *[]){"x"}, &odd, 0, NULL, NULL),
            DLC_UNSUPPORTED, "no such element type");
}

/* 65,535 in the archive's directory means that the count stands elsewhere, where minizip writes none. */
static void test_writers_count(void **state) {
    (void)state;
    enum { MANY = 65535 };
    float number = 1;
    tensor t;
    const char **names = calloc(MANY, sizeof *names);
    const DLTensor **tensors = calloc(MANY, sizeof *tensors);
    char *text = calloc(MANY, 8);
    for (int i = 0; i < MANY; i++) {
        snprintf(text + (size_t)i * 8, 8, "%d", i);
        names[i] = text + (size_t)i * 8;
        tensors[i] = F32(&t, &number, 1);
    }
    const char *path = in_folder("many.npz");
    refused(dlc_file_write_npz(context, path, MANY, names, tensors, false), DLC_UNSUPPORTED, "at most 65534");
    OK(context, dlc_file_write_npz(context, path, MANY - 1, names, tensors, false));
    dlc_file *file;
    OK(context, dlc_file_open(context, path, NULL, &file));
    assert_int_equal(dlc_file_count(file), MANY - 1);
    dlc_file_destroy(file);
    unlink(path);
    free(names), free(tensors), free(text);
}

/* No signal ends the process where it may not write longer files; nothing is left behind. */
static void test_limited_size(void **state) {
    (void)state;
    static float data[1000];
    tensor t;
    struct rlimit before, small;
    const char *path = in_folder("limited.npy");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before, small.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &small);
    dlc_status status = dlc_file_write_npy(context, path, F32(&t, data, 1000));
    setrlimit(RLIMIT_FSIZE, &before);
    refused(status, DLC_NOT_FOUND, "File too large");
    assert_int_not_equal(access(path, F_OK), 0);
}

static void *noisy_allocate(void *user, size_t size, size_t alignment) {
    (void)user;
    for (int stream = 0; stream < 3; stream++)
        if (write(stream, "noise", 5) != 5) continue; /* closed */
    return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
static void noisy_release(void *user, void *pointer, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    free(pointer);
}

/* What a host without standard streams prints does not go into the file that is being written. */
static void test_closed_streams(void **state) {
    (void)state;
    enum { COUNT = 2000 };
    static const float data[2] = {1, 2};
    char path[256];
    tensor t;
    snprintf(path, sizeof path, "%s", in_folder("closed.safetensors"));
    const pid_t child = fork();
    if (child == 0) {
        const dlc_allocator allocator = {.allocate = noisy_allocate, .release = noisy_release};
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        const DLTensor *tensors[COUNT];
        const char *names[COUNT];
        static char name[COUNT][16];
        dlc_context *own;
        for (int stream = 0; stream < 3; stream++) close(stream);
        options.target = "interp", options.allocator = &allocator;
        for (int i = 0; i < COUNT; i++) {
            snprintf(name[i], sizeof name[i], "t%d", i);
            names[i] = name[i], tensors[i] = F32(&t, (float *)(uintptr_t)data, 2);
        }
        if (dlc_context_create(&options, &own) != DLC_OK) _exit(1);
        _exit(dlc_file_write_safetensors(own, path, COUNT, names, tensors, 0, NULL, NULL) == DLC_OK ? 0 : 2);
    }
    int status;
    dlc_file *file;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    OK(context, dlc_file_open(context, path, NULL, &file));
    unlink(path);
    DLManagedTensorVersioned *last = get(file, "t1999", f32, 1, SHAPE(2));
    assert_memory_equal(last->dl_tensor.data, data, sizeof data);
    give(last), dlc_file_destroy(file);
}

/* Pipes are neither read nor replaced; a symbolic link stays one; permissions stay. */
static void test_what_stands_there(void **state) {
    (void)state;
    float data[2] = {1, 2};
    tensor t;
    dlc_file *file;
    struct stat about;
    char target[600], link[600];
    const char *pipe = in_folder("pipe.npy");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    refused(dlc_file_write_npy(context, pipe, F32(&t, data, 2)), DLC_NOT_FOUND, "no regular file");
    refused(dlc_file_open(context, pipe, NULL, &file), DLC_NOT_FOUND, "no regular file");
    assert_true(lstat(pipe, &about) == 0 && S_ISFIFO(about.st_mode));
    unlink(pipe);
    refused(dlc_file_open(context, "/dev/zero", NULL, &file), DLC_NOT_FOUND, "no regular file");
    snprintf(target, sizeof target, "%s", in_folder("target.npy"));
    snprintf(link, sizeof link, "%s", in_folder("link.npy"));
    OK(context, dlc_file_write_npy(context, target, F32(&t, data, 1)));
    assert_int_equal(chmod(target, 0600), 0);
    assert_int_equal(symlink(target, link), 0);
    OK(context, dlc_file_write_npy(context, link, F32(&t, data, 2)));
    assert_true(lstat(link, &about) == 0 && S_ISLNK(about.st_mode));
    assert_true(stat(target, &about) == 0 && about.st_size == 128 + sizeof data && (about.st_mode & 07777) == 0600);
    unlink(target); /* the link leads to where a file may be, relative to its folder */
    OK(context, dlc_file_write_npy(context, link, F32(&t, data, 1)));
    assert_true(lstat(link, &about) == 0 && S_ISLNK(about.st_mode) && lstat(target, &about) == 0);
    unlink(link), unlink(target);
    assert_int_equal(symlink("target.npy", link), 0);
    OK(context, dlc_file_write_npy(context, link, F32(&t, data, 1)));
    assert_true(lstat(link, &about) == 0 && S_ISLNK(about.st_mode) && lstat(target, &about) == 0);
    unlink(link), unlink(target);
    assert_int_equal(symlink("link.npy", link), 0);
    refused(dlc_file_write_npy(context, link, F32(&t, data, 1)), DLC_NOT_FOUND, "symbolic links");
    unlink(link);
}

/* What was there stays until the new file is whole. */
static void test_old_file_stays(void **state) {
    (void)state;
    float data[2] = {1, 2};
    tensor t;
    size_t size;
    const char *path = in_folder("kept.npy");
    OK(context, dlc_file_write_npy(context, path, F32(&t, data, 2)));
    assert_int_equal(dlc_file_write_npy(context, path, &make_tensor(&t, DLC_BF16, data, 1, SHAPE(2))->dl),
                     DLC_UNSUPPORTED);
    unsigned char *bytes = read_back(path, &size);
    assert_int_equal(size, 128 + sizeof data);
    assert_memory_equal(bytes + 128, data, sizeof data);
}

/* ---- enemies -------------------------------------------------------------------------------------------------------- */

/* Everything that can be asked of a file. True: it could all be read. */
static bool use(const void *bytes, size_t size, size_t *read) {
    dlc_file *file;
    *read = 0;
    if (dlc_file_parse(context, bytes, size, &file) != DLC_OK) {
        assert_int_equal(dlc_file_parse(context, bytes, size, &file), DLC_PARSE_ERROR);
        assert_true(dlc_error_message(context)[0]);
        return false;
    }
    bool good = true;
    for (int i = 0; i < dlc_file_count(file); i++) {
        DLManagedTensorVersioned *t;
        if (dlc_file_tensor(file, dlc_file_name(file, i), &t) != DLC_OK) {
            good = false;
            continue;
        }
        int64_t elements = 1;
        for (int d = 0; d < t->dl_tensor.ndim; d++) elements *= t->dl_tensor.shape[d];
        unsigned char sum = 0;
        for (int64_t k = 0; k < elements * t->dl_tensor.dtype.bits / 8; k++)
            sum ^= ((unsigned char *)t->dl_tensor.data)[k];
        *read += (size_t)(elements * t->dl_tensor.dtype.bits / 8) + (sum & 0);
        give(t);
    }
    dlc_file_destroy(file);
    return good;
}

static const struct sample {
    const unsigned char *bytes;
    size_t size;
} samples[] = {{npy_f32, sizeof npy_f32},
               {npy_fortran_big, sizeof npy_fortran_big},
               {npz_packed, sizeof npz_packed},
               {npz_stored, sizeof npz_stored},
               {safetensors_three, sizeof safetensors_three}};
enum { SAMPLES = sizeof samples / sizeof *samples };

/* A copy that ends where memory ends, so that ASan sees what reads beyond it. */
static unsigned char *copied(const struct sample *s, size_t size) {
    unsigned char *bytes = malloc(size ? size : 1);
    memcpy(bytes, s->bytes, size);
    return bytes;
}

static void test_cut_short(void **state) {
    (void)state;
    size_t read;
    for (int s = 0; s < SAMPLES; s++)
        /* The last three bytes of an archive are the end of the length of its comment: minizip does without. */
        for (size_t size = 0; size < samples[s].size - (s == 2 || s == 3 ? 3 : 0); size++) {
            unsigned char *bytes = copied(&samples[s], size);
            if (use(bytes, size, &read)) fail_msg("sample %d: %zu of %zu bytes were taken", s, size, samples[s].size);
            free(bytes);
        }
}

/* Each byte replaced by others. Nothing may be read that is not there; archives have checksums, and must notice. */
static void test_damaged(void **state) {
    (void)state;
    uint32_t random = 1;
    for (int s = 0; s < SAMPLES; s++)
        for (size_t at = 0; at < samples[s].size; at++)
            for (int k = 0; k < 12; k++) {
                unsigned char *bytes = copied(&samples[s], samples[s].size);
                random = random * 1664525u + 1013904223u;
                bytes[at] ^= (unsigned char)(k < 8 ? 1u << k : 1 + (random >> 24) % 255);
                size_t read;
                use(bytes, samples[s].size, &read);
                assert_true(read <= 600);
                free(bytes);
            }
}

static void test_damaged_archives_are_noticed(void **state) {
    (void)state;
    DLManagedTensorVersioned *t;
    for (int s = 2; s < 4; s++) {
        const char *name = s == 2 ? "weights" : "a";
        dlc_file *whole = parse(samples[s].bytes, samples[s].size);
        OK(context, dlc_file_tensor(whole, name, &t));
        size_t size = s == 2 ? 512 : 24;
        for (size_t at = 0; at < samples[s].size; at++) {
            unsigned char *bytes = copied(&samples[s], samples[s].size);
            bytes[at] ^= 0x10;
            dlc_file *file;
            DLManagedTensorVersioned *got;
            if (dlc_file_parse(context, bytes, samples[s].size, &file) == DLC_OK) {
                if (dlc_file_tensor(file, name, &got) == DLC_OK) {
                    assert_memory_equal(got->dl_tensor.data, t->dl_tensor.data, size);
                    give(got);
                }
                dlc_file_destroy(file);
            }
            free(bytes);
        }
        give(t), dlc_file_destroy(whole);
    }
}

static void test_hostile_headers(void **state) {
    (void)state;
    static const struct {
        const char *header, *word;
    } headers[] = {
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"a\":{\"dtype\":\"U8\",\"shape\":[2],"
         "\"data_offsets\":[2,4]}}",
         "called \"a\""},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", "belong to no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}", "hole"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
         "\"data_offsets\":[2,4]}}",
         "lies over"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}", "beyond"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", "beyond"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387905,4],\"data_offsets\":[0,4]}}", "agree"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", "number"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551620],\"data_offsets\":[0,4]}}", "2^63"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4.0],\"data_offsets\":[0,4]}}", "expected"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", "each once"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "each once"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", "'}'"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}} x", "end of the header"},
        {"{\"\\ud800\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "pair"},
        {"{\"\\u0000\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "character 0"},
        {"{\"__metadata__\":{\"a\":1}}", "\""},
        {"{\"__metadata__\":{\"a\":\"b\",\"c\":\"\",\"a\":\"b\"},\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
         "two notes of the file are called \"a\""},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char bytes[512] = {0};
        size_t length = strlen(headers[i].header);
        bytes[0] = (char)(length & 255), bytes[1] = (char)(length >> 8);
        memcpy(bytes + 8, headers[i].header, length);
        dlc_file *file;
        dlc_status status = dlc_file_parse(context, bytes, 8 + length + 4, &file);
        if (status != DLC_PARSE_ERROR || !strstr(dlc_error_message(context), headers[i].word))
            fail_msg("header %zu: status %d, \"%s\", expected \"%s\"", i, status, dlc_error_message(context),
                     headers[i].word);
    }
    unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, '{', '}'};
    dlc_file *file;
    assert_int_equal(dlc_file_parse(context, huge, sizeof huge, &file), DLC_PARSE_ERROR);
    const size_t long_header = (size_t)2 << 20;
    unsigned char *npy = calloc(long_header + 12, 1);
    memcpy(npy, "\x93NUMPY\2\0\0\0\x20\0{'", 14);
    refused(dlc_file_parse(context, npy, long_header + 12, &file), DLC_PARSE_ERROR, "expected at most 1048576");
    free(npy);
    assert_int_equal(dlc_file_parse(context, "", 0, &file), DLC_PARSE_ERROR);
}

typedef struct largest {
    size_t size;
} largest;
static void *largest_allocate(void *user, size_t size, size_t alignment) {
    largest *l = user;
    void *pointer = NULL;
    if (size > l->size) l->size = size;
    return posix_memalign(&pointer, alignment < 16 ? 16 : alignment, size) == 0 ? pointer : NULL;
}
static void largest_release(void *user, void *pointer, size_t size, size_t alignment) {
    (void)user, (void)size, (void)alignment;
    free(pointer);
}

static void test_hostile_npy_headers(void **state) {
    (void)state;
    static const struct {
        const char *header, *word;
    } headers[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", "expected ','"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1, }", "the shape, a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "expected a size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }", "expected ','"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", "a size below 2^63"},
        {"{'descr': '<f4', 'shape': (1,), }", "expected the keys"},
    };
    dlc_file *file;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char bytes[256] = "\x93NUMPY\1";
        size_t length = strlen(headers[i].header);
        bytes[8] = (char)length;
        memcpy(bytes + 10, headers[i].header, length);
        refused(dlc_file_parse(context, bytes, 10 + length + 4, &file), DLC_PARSE_ERROR, headers[i].word);
    }
}

/* The directory and the member's header agree on 3.5 GB that the file of half a kilobyte does not have. */
static void test_claimed_header(void **state) {
    (void)state;
    largest most = {0};
    dlc_allocator allocator = {largest_allocate, largest_release, &most};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    options.target = "interp";
    dlc_context *own;
    dlc_file *file;
    assert_int_equal(dlc_context_create(&options, &own), DLC_OK);
    for (int packed = 0; packed < 2; packed++) {
        unsigned char bytes[sizeof npz_stored];
        memcpy(bytes, npz_stored, sizeof bytes);
        for (size_t at = 0; at + 46 < sizeof bytes; at++) {
            if (memcmp(bytes + at, "\x93NUMPY\1", 7) == 0) memcpy(bytes + at + 6, "\2\0\0\0\0\xe0", 6);
            if (memcmp(bytes + at, "PK\1\2", 4) != 0) continue;
            if (!packed) memcpy(bytes + at + 20, "\0\0\0\xf0", 4);
            memcpy(bytes + at + 24, "\0\0\0\xf0", 4);
        }
        assert_int_equal(dlc_file_parse(own, bytes, sizeof bytes, &file), DLC_PARSE_ERROR);
        if (!strstr(dlc_error_message(own), "within the archive")) fail_msg("%s", dlc_error_message(own));
    }
    assert_true(most.size < 1 << 20);
    dlc_context_destroy(own);
}

/* Each tensor and note is looked up once while the file is read: comparing all with all would take hours. */
static void test_many_names(void **state) {
    (void)state;
    enum { LINE = 80 };
    const int names = test_is_short() ? 20000 : 300000;
    char *bytes = malloc(2 * (size_t)names * LINE), *at = bytes + 8;
    at += sprintf(at, "{\"__metadata__\":{");
    for (int i = 0; i < names; i++) at += sprintf(at, "%s\"note%d\":\"%d\"", i ? "," : "", i, i % 7);
    at += sprintf(at, "}");
    for (int i = 0; i < names; i++)
        at += sprintf(at, ",\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i, i, i + 1);
    at += sprintf(at, "}");
    uint64_t length = (uint64_t)(at - bytes - 8);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> 8 * i);
    for (int i = 0; i < names; i++) *at++ = (char)(i % 251);
    dlc_file *file = parse(bytes, (size_t)(at - bytes));
    assert_int_equal(dlc_file_count(file), names);
    for (int i = 0; i < names; i++) {
        char name[16], value[8];
        sprintf(name, "note%d", i), sprintf(value, "%d", i % 7);
        assert_string_equal(dlc_file_note(file, name), value);
    }
    for (int i = 0; i < names; i += 1000) {
        char name[16];
        sprintf(name, "t%d", i);
        DLManagedTensorVersioned *t = get(file, name, u8, 1, SHAPE(1));
        assert_int_equal(*(unsigned char *)t->dl_tensor.data, i % 251);
        give(t);
    }
    dlc_file_destroy(file);
    free(bytes);
}

static void put_number(char **at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++, value >>= 8) *(*at)++ = (char)value;
}

/* An archive of empty arrays whose names have equal hashes is read like any other, in the time of a sort: comparing all names with all
 * would take many minutes. */
static void test_names_of_equal_hash(void **state) {
    (void)state;
    const int names = test_is_short() ? 20000 : 400000;
    enum { HEADER = 61, NAME = 32 + 4, LOCAL = 30 + NAME + HEADER, CENTRAL = 46 + NAME, END = 56 + 20 + 22 };
    static const char header[] = "\x93NUMPY\1\0\x33\0{'descr':'|u1','fortran_order':False,'shape':(0,)}\n";
    char *bytes = calloc((size_t)names * (LOCAL + CENTRAL) + END, 1), *at = bytes, name[NAME + 1] = "";
    int made = 0;
    for (int i = 0; i < names; i++) {
        if (!set_name_of_equal_hash(i, name)) continue;
        memcpy(name + 32, ".npy", 4);
        put_number(&at, 0x04034b50, 4), put_number(&at, 20, 10), put_number(&at, 0xf810c613, 4);
        put_number(&at, HEADER, 4), put_number(&at, HEADER, 4), put_number(&at, NAME, 4);
        memcpy(at, name, NAME), memcpy(at + NAME, header, HEADER);
        at += NAME + HEADER;
        made++;
    }
    const char *const directory = at;
    for (int m = 0; m < made; m++) {
        put_number(&at, 0x02014b50, 4), put_number(&at, 20, 2), put_number(&at, 20, 10), put_number(&at, 0xf810c613, 4);
        put_number(&at, HEADER, 4), put_number(&at, HEADER, 4), put_number(&at, NAME, 14);
        put_number(&at, (uint64_t)m * LOCAL, 4);
        memcpy(at, bytes + (size_t)m * LOCAL + 30, NAME);
        at += NAME;
    }
    const uint64_t size = (uint64_t)(at - directory), place = (uint64_t)(directory - bytes);
    put_number(&at, 0x06064b50, 4), put_number(&at, 44, 8), put_number(&at, 45, 2), put_number(&at, 45, 10);
    put_number(&at, (uint64_t)made, 8), put_number(&at, (uint64_t)made, 8), put_number(&at, size, 8),
        put_number(&at, place, 8);
    put_number(&at, 0x07064b50, 8), put_number(&at, place + size, 8), put_number(&at, 1, 4);
    put_number(&at, 0x06054b50, 8), put_number(&at, 0xffff, 2), put_number(&at, 0xffff, 2);
    put_number(&at, size, 4), put_number(&at, place, 6);
    dlc_file *file = parse(bytes, (size_t)(at - bytes));
    assert_int_equal(dlc_file_count(file), made);
    assert_true(set_name_of_equal_hash(names / 2, name) || set_name_of_equal_hash(names / 2 + 1, name));
    name[32] = 0;
    give(get(file, name, u8, 1, SHAPE(0)));
    dlc_file_destroy(file);
    free(bytes);
}

static void test_memory_refused(void **state) {
    (void)state;
    counter c;
    dlc_allocator allocator = counting(&c);
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    options.allocator = &allocator;
    float data[6] = {0};
    tensor tt;
    const DLTensor *list[] = {F32(&tt, data, 2, 3)};
    tt.dl.strides = (int64_t[]){1, 2};
    dlc_context *own = open_context("interp", &options);
    int64_t blocks = c.blocks;
    int sites = 0;
    for (bool refused_one = true; refused_one; sites++) {
        dlc_file *file = NULL;
        DLManagedTensorVersioned *t = NULL;
        c.left = sites;
        dlc_status status = dlc_file_parse(own, npz_packed, sizeof npz_packed, &file);
        if (status == DLC_OK) status = dlc_file_tensor(file, "weights", &t);
        if (status == DLC_OK) {
            give(t);
            status = dlc_file_write_npz(own, in_folder("m"), 1, (const char *[]){"a"}, list, true);
        }
        refused_one = c.left == 0;
        c.left = -1;
        if (status != DLC_OK) assert_int_equal(status, DLC_OUT_OF_MEMORY);
        if (status == DLC_OK) unlink(in_folder("m"));
        if (!refused_one) assert_int_equal(status, DLC_OK);
        dlc_file_destroy(file);
        assert_int_equal(c.blocks, blocks);
    }
    assert_true(sites > 4);
    dlc_context_destroy(own);
}

static void *ask(void *argument) {
    DLManagedTensorVersioned *t;
    for (int i = 0; i < 20; i++) {
        if (dlc_file_tensor(argument, i % 2 ? "weights" : "flags", &t) != DLC_OK) return "failed";
        if (i % 2 && ((double *)t->dl_tensor.data)[7] != 2) return "wrong";
        give(t);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    dlc_file *file = PARSE(npz_packed);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask, file), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    dlc_file_destroy(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_order_of_axes_and_bytes),
        cmocka_unit_test(test_npz),
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_types_that_we_lack),
        cmocka_unit_test(test_opened),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_written_as_others_write),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_names_are_utf8),
        cmocka_unit_test(test_writers_refuse),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_writers_count),
        cmocka_unit_test(test_limited_size),
        cmocka_unit_test(test_closed_streams),
        cmocka_unit_test(test_what_stands_there),
        cmocka_unit_test(test_old_file_stays),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_damaged_archives_are_noticed),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_npy_headers),
        cmocka_unit_test(test_claimed_header),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_names_of_equal_hash),
        cmocka_unit_test(test_memory_refused),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
