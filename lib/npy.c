/* The format .npy, versions 1.0 to 3.0: "\x93NUMPY", version, length of the header, a Python dictionary of type, order and
 * shape, data. Source: NumPy's numpy.lib.format. */
#include "lib/tensor_file.h"

static const unsigned char npy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

size_t lib_npy_header_size(lib_arena *arena, const unsigned char *bytes, size_t size, size_t *wanted) {
    *wanted = 12;
    if (size < sizeof npy_magic) return 0;
    if (memcmp(bytes, npy_magic, sizeof npy_magic) != 0)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "no .npy data: it does not begin with \\x93NUMPY");
    if (size < 12) return 0;
    if (bytes[6] < 1 || bytes[6] > 3)
        lib_raise(arena->scope, DLC_PARSE_ERROR, ".npy data of version %d.%d, expected 1, 2 or 3", bytes[6], bytes[7]);
    if (bytes[6] == 1) return 10u + bytes[8] + 256u * bytes[9];
    return 12u + bytes[8] + 256u * (size_t)bytes[9] + 65536u * (size_t)bytes[10] + 16777216u * (size_t)bytes[11];
}

/* ---- the dictionary ------------------------------------------------------------------------------------------------- */

typedef struct npy_reader {
    lib_arena *arena;
    const char *at, *end;
} npy_reader;

_Noreturn static void expected(const npy_reader *r, const char *what) {
    int shown = r->end - r->at > 20 ? 20 : (int)(r->end - r->at);
    for (int i = 0; i < shown; i++)
        if ((unsigned char)r->at[i] < ' ' || (unsigned char)r->at[i] > '~') shown = i;
    lib_raise(r->arena->scope, DLC_PARSE_ERROR, ".npy header: expected %s, found \"%.*s\"", what, shown, r->at);
}

static void skip_space(npy_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t')) r->at++;
}

static bool accept(npy_reader *r, char c) {
    skip_space(r);
    if (r->at >= r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool accept_word(npy_reader *r, const char *word) {
    size_t length = strlen(word);
    skip_space(r);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

static const char *read_string(npy_reader *r) {
    skip_space(r);
    char quote = r->at < r->end ? *r->at : 0;
    if (quote != '\'' && quote != '"') expected(r, "a string");
    const char *start = ++r->at;
    while (r->at < r->end && *r->at != quote && *r->at != '\\') r->at++;
    if (r->at >= r->end || *r->at != quote) expected(r, "the end of a plain string");
    size_t length = (size_t)(r->at++ - start);
    char *string = lib_arena_take(r->arena, length + 1);
    memcpy(string, start, length);
    string[length] = 0;
    return string;
}

static void read_shape(npy_reader *r, lib_stored *stored) {
    if (!accept(r, '(')) expected(r, "the shape, a tuple");
    while (!accept(r, ')')) {
        skip_space(r);
        const char *start = r->at;
        int64_t size = 0;
        for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
            if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, *r->at - '0', &size))
                expected(r, "a size below 2^63");
        if (r->at == start) expected(r, "a size");
        if (stored->rank < DLC_MAX_RANK) stored->shape[stored->rank] = size;
        stored->rank++;
        if (r->at < r->end && *r->at == 'L') r->at++; /* Python 2 */
        if (accept(r, ',')) continue;
        if (stored->rank == 1) expected(r, "','"); /* (1) is not a tuple */
        if (!accept(r, ')')) expected(r, "',' or ')'");
        break;
    }
    if (stored->rank > DLC_MAX_RANK) {
        stored->fault =
            lib_arena_format(r->arena, "it has rank %d, at most %d is supported", stored->rank, DLC_MAX_RANK);
        stored->rank = 0;
    }
}

/* "<f4": byte order, kind, bytes. */
static const struct npy_type {
    char name[3];
    dlc_dtype dtype;
} npy_types[] = {{"b1", DLC_BOOL}, {"i1", DLC_I8},  {"i2", DLC_I16}, {"i4", DLC_I32}, {"i8", DLC_I64},
                 {"u1", DLC_U8},   {"u2", DLC_U16}, {"u4", DLC_U32}, {"u8", DLC_U64}, {"f2", DLC_F16},
                 {"f4", DLC_F32},  {"f8", DLC_F64}, {"c8", DLC_C64}};
enum { npy_type_count = sizeof npy_types / sizeof npy_types[0] };

static void set_type(lib_arena *arena, lib_stored *stored, const char *descr) {
    const char *name = descr;
    stored->swapped = *name == '>';
    if (*name && strchr("<>=|", *name)) name++;
    for (int i = 0; i < npy_type_count; i++) {
        if (strcmp(npy_types[i].name, name) != 0) continue;
        stored->dtype = npy_types[i].dtype;
        if (lib_dtypes[stored->dtype].usable) return;
    }
    stored->fault = lib_arena_format(arena, "its elements are '%.40s', which is no supported element type", descr);
}

/* False: the elements are records, and the rest of the header is not read. */
static bool read_type(npy_reader *r, lib_stored *stored) {
    skip_space(r);
    if (r->at < r->end && *r->at == '[') {
        stored->fault = "its elements are records, which libdlc does not have";
        return false;
    }
    set_type(r->arena, stored, read_string(r));
    return true;
}

static void read_order(npy_reader *r, lib_stored *stored) {
    stored->fortran = accept_word(r, "True");
    if (!stored->fortran && !accept_word(r, "False")) expected(r, "True or False");
}

/* The keys that were read. */
typedef struct npy_keys {
    bool descr, order, shape;
} npy_keys;

/* Reads the value of a key, which may be there once. False: the rest of the header is not read. */
static bool read_value(npy_reader *r, const char *key, npy_keys *seen, lib_stored *stored) {
    if (strcmp(key, "descr") == 0 && !seen->descr) {
        seen->descr = true;
        return read_type(r, stored);
    }
    if (strcmp(key, "fortran_order") == 0 && !seen->order) {
        seen->order = true;
        read_order(r, stored);
    } else if (strcmp(key, "shape") == 0 && !seen->shape) {
        seen->shape = true;
        read_shape(r, stored);
    } else {
        lib_raise(r->arena->scope, DLC_PARSE_ERROR, ".npy header: unexpected key '%.40s'", key);
    }
    return true;
}

void lib_npy_header(lib_arena *arena, const unsigned char *header, size_t size, lib_stored *stored) {
    size_t start = header[6] == 1 ? 10 : 12;
    npy_reader r = {arena, (const char *)header + start, (const char *)header + size};
    npy_keys seen = {false, false, false};
    if (!accept(&r, '{')) expected(&r, "a dictionary");
    while (!accept(&r, '}')) {
        const char *key = read_string(&r);
        if (!accept(&r, ':')) expected(&r, "':'");
        if (!read_value(&r, key, &seen, stored)) return;
        if (accept(&r, ',')) continue;
        if (!accept(&r, '}')) expected(&r, "',' or '}'");
        break;
    }
    if (!seen.descr || !seen.order || !seen.shape)
        lib_raise(arena->scope, DLC_PARSE_ERROR, ".npy header: expected the keys descr, fortran_order and shape");
    skip_space(&r);
    if (r.at != r.end) expected(&r, "the end of the header");
    DLTensor tensor = {.ndim = stored->rank, .shape = stored->shape, .dtype = lib_dtype_to_dlpack(stored->dtype)};
    int64_t count;
    if (stored->fault) return;
    if (!lib_tensor_count(&tensor, &count))
        lib_raise(arena->scope, DLC_PARSE_ERROR, ".npy header: the shape has more bytes than there are addresses");
    stored->size = lib_tensor_bytes(&tensor);
}

void lib_npy_parse(lib_arena *arena, lib_tensor_file *file) {
    size_t wanted, header = lib_npy_header_size(arena, file->image, file->size, &wanted);
    if (!header || header > file->size)
        lib_raise(arena->scope, DLC_PARSE_ERROR, ".npy file of %zu bytes ends within its header of %zu", file->size,
                  header ? header : wanted);
    if (header > LIB_NPY_HEADER_MAX)
        lib_raise(arena->scope, DLC_PARSE_ERROR, ".npy header of %zu bytes, expected at most %d", header,
                  LIB_NPY_HEADER_MAX);
    lib_stored stored = {.name = "", .header = header, .bytes = file->image + header};
    lib_npy_header(arena, file->image, header, &stored);
    if (!stored.fault && stored.size != file->size - header)
        lib_raise(arena->scope, DLC_PARSE_ERROR, ".npy file: its shape needs %zu bytes of data, there are %zu",
                  stored.size, file->size - header);
    lib_vec_push(arena, &file->tensors, stored);
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

char *lib_npy_header_print(lib_arena *arena, const DLTensor *tensor, size_t *size) {
    dlc_dtype dtype;
    const char *name = NULL;
    if (lib_dtype_from_dlpack(tensor->dtype, &dtype))
        for (int i = 0; i < npy_type_count; i++)
            if (npy_types[i].dtype == dtype) name = npy_types[i].name;
    if (!name)
        lib_raise(arena->scope, DLC_UNSUPPORTED, "NumPy has no element type like %s%s", lib_dtypes[dtype].name,
                  lib_dtype_is_packed(dtype) && lib_dtype_is_integer(dtype) ? "" : ": write .safetensors");
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_format(&text, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", name[1] == '1' ? '|' : '<', name);
    for (int i = 0; i < tensor->ndim; i++)
        lib_text_format(&text, tensor->ndim == 1 ? "%lld," : i ? ", %lld" : "%lld", (long long)tensor->shape[i]);
    lib_text_add(&text, "), }");
    while ((10 + text.length + 1) % 64) lib_text_add(&text, " "); /* aligns the data like NumPy */
    lib_text_add(&text, "\n");
    *size = 10 + text.length; /* rank 12 of 19 digits each: below 65,536 */
    char *header = lib_arena_take(arena, *size);
    memcpy(header, npy_magic, sizeof npy_magic);
    header[6] = 1;
    header[8] = (char)(text.length & 255);
    header[9] = (char)(text.length >> 8);
    memcpy(header + 10, text.data, text.length);
    return header;
}

void lib_npy_write(lib_arena *arena, lib_new_file *file, const DLTensor *tensor) {
    size_t size;
    const char *header = lib_npy_header_print(arena, tensor, &size);
    lib_file_append(arena, file, header, size);
    lib_file_append(arena, file, lib_tensor_data(tensor), lib_tensor_bytes(tensor));
}
