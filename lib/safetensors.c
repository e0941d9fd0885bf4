/* The format .safetensors: length of the header (64 bits, little endian), a JSON object of name, type, shape and offsets, data.
 * Source: the format's specification in the README of huggingface/safetensors. */
#include "lib/tensor_file.h"

#include <stdlib.h>

enum { header_limit = 100000000 }; /* as in the reference implementation */

static const struct safetensors_type {
    const char *name;
    dlc_dtype dtype;
} types[] = {
    {"BOOL", DLC_BOOL}, {"U8", DLC_U8},          {"I8", DLC_I8},    {"U16", DLC_U16},          {"I16", DLC_I16},
    {"U32", DLC_U32},   {"I32", DLC_I32},        {"U64", DLC_U64},  {"I64", DLC_I64},          {"F16", DLC_F16},
    {"BF16", DLC_BF16}, {"F32", DLC_F32},        {"F64", DLC_F64},  {"F8_E4M3", DLC_F8E4M3FN}, {"F8_E5M2", DLC_F8E5M2},
    {"C64", DLC_C64},   {"F8_E8M0", DLC_F8E8M0}, {"F4", DLC_F4E2M1}};
enum { type_count = sizeof types / sizeof types[0] };

/* ---- the subset of JSON that the header needs ---------------------------------------------------------------------------
 * Our own parser: the static jansson library that distributions ship cannot be linked into a shared library. It reads from left to
 * right: the header is two objects deep. */

typedef struct json_reader {
    lib_arena *arena;
    const unsigned char *start, *at, *end;
} json_reader;

_Noreturn static void expected(const json_reader *r, const char *what) {
    int shown = 0;
    while (shown < 20 && r->at + shown < r->end && r->at[shown] >= ' ' && r->at[shown] <= '~') shown++;
    lib_raise(r->arena->scope, DLC_PARSE_ERROR, "safetensors header, byte %zu: expected %s, found \"%.*s\"",
              (size_t)(r->at - r->start), what, shown, (const char *)r->at);
}

static void skip_space(json_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static bool accept(json_reader *r, char c) {
    skip_space(r);
    if (r->at >= r->end || *r->at != (unsigned char)c) return false;
    r->at++;
    return true;
}

static void expect(json_reader *r, char c) {
    if (!accept(r, c)) expected(r, (char[]){'\'', c, '\'', 0});
}

static uint32_t read_hex(json_reader *r) {
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int c = r->at < r->end ? *r->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) expected(r, "four hexadecimal digits");
        unit = unit << 4 | (uint32_t)digit;
    }
    return unit;
}

static void add_utf8(lib_text *text, uint32_t c) {
    char bytes[4];
    size_t count = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = count; i-- > 1; c >>= 6) bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(lead[count] | c);
    lib_text_add_bytes(text, bytes, count);
}

static void read_escape(json_reader *r, lib_text *text) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = r->at < r->end ? *r->at : 0;
    const char *known = c ? strchr(from, c) : NULL;
    if (c != 'u' && !known) expected(r, "an escape of JSON");
    r->at++;
    if (known) {
        lib_text_add_bytes(text, &to[known - from], 1);
        return;
    }
    uint32_t unit = read_hex(r);
    if (unit >= 0xd800 && unit < 0xdc00) { /* the first half of a pair */
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u') expected(r, "the second half of a pair");
        r->at += 2;
        uint32_t second = read_hex(r);
        if (second < 0xdc00 || second > 0xdfff) expected(r, "the second half of a pair");
        unit = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
    } else if (unit >= 0xdc00 && unit < 0xe000) {
        expected(r, "the first half of a pair");
    }
    if (unit == 0) expected(r, "a string without the character 0");
    add_utf8(text, unit);
}

static const char *read_string(json_reader *r) {
    lib_text text;
    lib_text_init(&text, r->arena);
    lib_text_add(&text, "");
    expect(r, '"');
    while (r->at < r->end && *r->at != '"') {
        if (*r->at == '\\') {
            r->at++;
            read_escape(r, &text);
            continue;
        }
        size_t length = *r->at < ' ' ? 0 : lib_utf8_length(r->at, (size_t)(r->end - r->at));
        if (!length) expected(r, "a string of UTF-8");
        lib_text_add_bytes(&text, (const char *)r->at, length);
        r->at += length;
    }
    expect(r, '"');
    return text.data;
}

static int64_t read_size(json_reader *r) {
    int64_t size = 0;
    skip_space(r);
    const unsigned char *first = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, *r->at - '0', &size))
            expected(r, "a number below 2^63");
    if (r->at == first || (*first == '0' && r->at > first + 1)) expected(r, "a number from 0 on");
    return size;
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

_Noreturn static void malformed(lib_arena *arena, const char *name, const char *what) {
    lib_raise(arena->scope, DLC_PARSE_ERROR, "safetensors header: \"%.200s\": %s", name, what);
}

static void read_type(json_reader *r, lib_stored *stored) {
    const char *type = read_string(r);
    for (int i = 0; i < type_count; i++) {
        if (strcmp(types[i].name, type) != 0) continue;
        stored->dtype = types[i].dtype;
        if (lib_dtypes[stored->dtype].usable) return;
    }
    stored->fault = lib_arena_format(r->arena, "its elements are %.40s, which is no supported element type", type);
}

/* Do `count` elements fill whole bytes? The format requires it, also of elements of less than a byte. */
static bool fills_bytes(const DLTensor *tensor, int64_t count) {
    return tensor->dtype.bits >= 8 || count % (8 / tensor->dtype.bits) == 0;
}

static void read_shape(json_reader *r, lib_stored *stored) {
    expect(r, '[');
    if (accept(r, ']')) return;
    do {
        int64_t size = read_size(r);
        if (stored->rank < DLC_MAX_RANK) stored->shape[stored->rank] = size;
        stored->rank++;
    } while (accept(r, ','));
    expect(r, ']');
    if (stored->rank <= DLC_MAX_RANK) return;
    stored->fault = lib_arena_format(r->arena, "it has rank %d, at most %d is supported", stored->rank, DLC_MAX_RANK);
    stored->rank = 0;
}

/* Does the tensor have as many bytes as its shape and type need? */
static bool has_needed_size(lib_stored *stored) {
    DLTensor tensor = {.ndim = stored->rank, .shape = stored->shape, .dtype = lib_dtype_to_dlpack(stored->dtype)};
    int64_t count;
    return lib_tensor_count(&tensor, &count) && lib_tensor_bytes(&tensor) == stored->size &&
           fills_bytes(&tensor, count);
}

static void read_tensor(json_reader *r, lib_tensor_file *file, const char *name, size_t data) {
    lib_stored stored = {.name = name};
    int64_t begin = 0, end = 0;
    bool type = false, shape = false, offsets = false;
    expect(r, '{');
    do {
        const char *key = read_string(r);
        expect(r, ':');
        if (strcmp(key, "dtype") == 0 && !type) {
            type = true;
            read_type(r, &stored);
        } else if (strcmp(key, "shape") == 0 && !shape) {
            shape = true;
            read_shape(r, &stored);
        } else if (strcmp(key, "data_offsets") == 0 && !offsets) {
            offsets = true;
            expect(r, '[');
            begin = read_size(r);
            expect(r, ',');
            end = read_size(r);
            expect(r, ']');
        } else {
            malformed(r->arena, name, "expected dtype, shape and data_offsets, each once");
        }
    } while (accept(r, ','));
    expect(r, '}');
    if (!type || !shape || !offsets) malformed(r->arena, name, "expected dtype, shape and data_offsets, each once");
    if (begin > end || (uint64_t)end > file->size - data)
        malformed(r->arena, name, "its data_offsets lie beyond the end of the file");
    stored.bytes = file->image + data + begin;
    stored.size = (size_t)(end - begin);
    if (!stored.fault && !has_needed_size(&stored))
        malformed(r->arena, name, "shape, dtype and data_offsets do not agree on its bytes");
    lib_vec_push(r->arena, &file->tensors, stored);
}

static void read_notes(json_reader *r, lib_tensor_file *file) {
    expect(r, '{');
    if (accept(r, '}')) return;
    do {
        lib_note note = {read_string(r), NULL};
        expect(r, ':');
        note.value = read_string(r);
        lib_vec_push(r->arena, &file->notes, note);
    } while (accept(r, ','));
    expect(r, '}');
}

static void read_header(json_reader *r, lib_tensor_file *file, size_t data) {
    bool notes = false;
    expect(r, '{');
    if (!accept(r, '}')) {
        do {
            const char *name = read_string(r);
            expect(r, ':');
            if (strcmp(name, "__metadata__") != 0) {
                read_tensor(r, file, name, data);
                continue;
            }
            if (notes) malformed(r->arena, name, "it is there twice");
            notes = true;
            read_notes(r, file);
        } while (accept(r, ','));
        expect(r, '}');
    }
    skip_space(r); /* padding of the header */
    if (r->at != r->end) expected(r, "the end of the header");
}

static int by_place(const void *a, const void *b) {
    const lib_stored *const *x = a, *const *y = b;
    if ((*x)->bytes != (*y)->bytes) return (*x)->bytes < (*y)->bytes ? -1 : 1;
    return ((*x)->size > (*y)->size) - ((*x)->size < (*y)->size);
}

/* Raises if the tensors' data leave holes or overlap: the format forbids both, so that nothing can be hidden in a file. */
static void check_cover(lib_arena *arena, const lib_tensor_file *file, size_t data) {
    uint32_t count = file->tensors.count;
    const lib_stored **sorted = LIB_NEW_ARRAY(arena, const lib_stored *, count);
    for (uint32_t i = 0; i < count; i++) sorted[i] = &file->tensors.data[i];
    if (count) qsort(sorted, count, sizeof *sorted, by_place);
    const unsigned char *at = file->image + data;
    for (uint32_t i = 0; i < count; i++) {
        if (sorted[i]->bytes != at)
            malformed(arena, sorted[i]->name, "its data leaves a hole or lies over another tensor's");
        at += sorted[i]->size;
    }
    if (at != file->image + file->size)
        lib_raise(arena->scope, DLC_PARSE_ERROR, "safetensors file: %zu bytes at its end belong to no tensor",
                  (size_t)(file->image + file->size - at));
}

void lib_safetensors_parse(lib_arena *arena, lib_tensor_file *file) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | file->image[i];
    if (length > header_limit || length > file->size - 8)
        lib_raise(arena->scope, DLC_PARSE_ERROR,
                  "safetensors file of %zu bytes: its header cannot have %llu bytes (at most %d)", file->size,
                  (unsigned long long)length, header_limit);
    const unsigned char *start = file->image + 8;
    json_reader reader = {arena, start, start, start + length};
    read_header(&reader, file, 8 + (size_t)length);
    check_cover(arena, file, 8 + (size_t)length);
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

/* a tensor and its offset in the file */
typedef struct placed {
    const char *name;
    const DLTensor *tensor;
    const char *type;
    size_t begin, size;
    int number;
} placed;

/* Wide elements first, so that all are aligned. */
static int by_element(const void *a, const void *b) {
    const placed *x = a, *y = b;
    if (x->tensor->dtype.bits != y->tensor->dtype.bits) return y->tensor->dtype.bits - x->tensor->dtype.bits;
    return x->number - y->number;
}

static const char *type_name(const DLTensor *tensor) {
    dlc_dtype dtype;
    for (int t = 0; lib_dtype_from_dlpack(tensor->dtype, &dtype) && t < type_count; t++)
        if (types[t].dtype == dtype) return types[t].name;
    return NULL;
}

bool lib_safetensors_holds(const DLTensor *tensor) {
    int64_t count;
    return type_name(tensor) && lib_tensor_count(tensor, &count) && fills_bytes(tensor, count);
}

static placed *place_tensors(lib_arena *arena, const lib_named_tensors *all) {
    placed *list = LIB_NEW_ARRAY(arena, placed, (size_t)all->count);
    for (int i = 0; i < all->count; i++) {
        const DLTensor *tensor = all->tensors[i];
        list[i] = (placed){all->names[i], tensor, type_name(tensor), 0, lib_tensor_bytes(tensor), i};
        if (!list[i].type)
            lib_raise(arena->scope, DLC_UNSUPPORTED, "tensor \"%.200s\": safetensors has no such element type",
                      list[i].name);
        if (!lib_safetensors_holds(tensor))
            lib_raise(arena->scope, DLC_UNSUPPORTED,
                      "tensor \"%.200s\": safetensors has no tensors that end within a byte", list[i].name);
        if (strcmp(list[i].name, "__metadata__") == 0)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT,
                      "a tensor of a safetensors file cannot be called __metadata__");
    }
    qsort(list, (size_t)all->count, sizeof *list, by_element);
    size_t at = 0;
    for (int i = 0; i < all->count; i++) {
        list[i].begin = at;
        at += list[i].size;
    }
    return list;
}

static void add_string(lib_text *text, const char *string, const char *what) {
    size_t size = strlen(string), length;
    lib_text_add(text, "\"");
    for (size_t i = 0; i < size; i += length) {
        length = lib_utf8_length((const unsigned char *)string + i, size - i);
        if (!length) lib_raise(text->arena->scope, DLC_INVALID_ARGUMENT, "%s \"%.200s\" is not UTF-8", what, string);
        if (string[i] == '"' || string[i] == '\\' || (unsigned char)string[i] < ' ')
            lib_text_format(text, "\\u%04x", (unsigned)string[i]);
        else
            lib_text_add_bytes(text, string + i, length);
    }
    lib_text_add(text, "\"");
}

static void add_header(lib_text *text, const lib_named_tensors *all, const placed *list) {
    lib_text_add(text, "{");
    for (int i = 0; i < all->note_count; i++) {
        lib_text_add(text, i ? "," : "\"__metadata__\":{");
        add_string(text, all->keys[i], "the key");
        lib_text_add(text, ":");
        add_string(text, all->notes[i], "the note");
    }
    if (all->note_count) lib_text_add(text, all->count ? "}," : "}");
    for (int i = 0; i < all->count; i++) {
        if (i) lib_text_add(text, ",");
        add_string(text, list[i].name, "the name");
        lib_text_format(text, ":{\"dtype\":\"%s\",\"shape\":[", list[i].type);
        for (int d = 0; d < list[i].tensor->ndim; d++)
            lib_text_format(text, "%s%lld", d ? "," : "", (long long)list[i].tensor->shape[d]);
        lib_text_format(text, "],\"data_offsets\":[%zu,%zu]}", list[i].begin, list[i].begin + list[i].size);
    }
    lib_text_add(text, "}");
    while (text->length % 8) lib_text_add(text, " "); /* aligns the data that follow */
}

void lib_safetensors_write(lib_arena *arena, lib_new_file *file, const lib_named_tensors *all) {
    placed *list = place_tensors(arena, all);
    lib_text header;
    unsigned char length[8];
    lib_text_init(&header, arena);
    add_header(&header, all, list);
    if (header.length > header_limit)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the header would have %zu bytes, at most %d are possible",
                  header.length, header_limit);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.length >> 8 * i);
    lib_file_append(arena, file, length, sizeof length);
    lib_file_append(arena, file, header.data, header.length);
    for (int i = 0; i < all->count; i++)
        lib_file_append(arena, file, (const char *)list[i].tensor->data + list[i].tensor->byte_offset, list[i].size);
}
