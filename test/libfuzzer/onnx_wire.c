/* Bytes as a message of Protocol Buffers whose table has a field of every kind, once, repeated and in a oneof: all that was read is
 * read again to its last byte. */
#include "graph/onnx/wire.h"
#include "onnx/encode.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct sample sample;
struct sample {
    uint32_t present;
    int which;
    int64_t integer;
    int32_t narrow;
    float real;
    double wide;
    onnx_bytes bytes;
    sample *inner;
    ONNX_LIST(int64_t) integers;
    ONNX_LIST(int32_t) narrows;
    ONNX_LIST(float) reals;
    ONNX_LIST(double) wides;
    ONNX_LIST(onnx_bytes) texts;
    ONNX_LIST(sample) inners;
};

static const onnx_message table;
#define AT(member) .offset = offsetof(sample, member)
static const onnx_field fields[] = {
    {"integer", 1, ONNX_INT64, AT(integer), .oneof = offsetof(sample, which)},
    {"narrow", 2, ONNX_INT32, AT(narrow)},
    {"real", 3, ONNX_FLOAT, AT(real)},
    {"wide", 4, ONNX_DOUBLE, AT(wide)},
    {"bytes", 5, ONNX_BYTES, AT(bytes), .oneof = offsetof(sample, which)},
    {"inner", 6, ONNX_MESSAGE, AT(inner), .message = &table},
    {"integers", 7, ONNX_INT64, .repeated = true, AT(integers)},
    {"narrows", 8, ONNX_INT32, .repeated = true, AT(narrows)},
    {"reals", 9, ONNX_FLOAT, .repeated = true, AT(reals)},
    {"wides", 10, ONNX_DOUBLE, .repeated = true, AT(wides)},
    {"texts", 11, ONNX_BYTES, .repeated = true, AT(texts)},
    {"inners", 12, ONNX_MESSAGE, .repeated = true, AT(inners), .message = &table},
};
static const onnx_message table = {"sample", sizeof(sample), sizeof fields / sizeof *fields, fields};

/* A message with all fields, twice nested. */
static message seed_of(int levels) {
    static const double wides[] = {1, -2.5};
    message m = {0}, packed = {0};
    add_int(&m, 1, -1), add_int(&m, 2, INT32_MIN), add_float(&m, 3, 0.5f), add_data(&m, 5, "bytes", 5);
    add_varint(&packed, 300), add_varint(&packed, UINT64_MAX);
    add_data(&m, 7, packed.data, packed.size), add_data(&m, 8, packed.data, packed.size);
    add_int(&m, 7, 1), add_float(&m, 9, 2), add_data(&m, 9, wides, 8), add_data(&m, 10, wides, 16);
    add_text(&m, 11, "text"), add_text(&m, 11, "");
    free(packed.data);
    if (levels) add_message(&m, 6, seed_of(levels - 1));
    if (levels) add_message(&m, 12, seed_of(levels - 1));
    return m;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const char *folder = getenv("DLC_SEEDS");
    (void)argc, (void)argv;
    for (int levels = 0; folder && levels < 3; levels++) {
        char path[4096];
        message m = seed_of(levels);
        snprintf(path, sizeof path, "%s/levels%d", folder, levels);
        FILE *file = fopen(path, "wb");
        if (file) fwrite(m.data, 1, m.size, file), fclose(file);
        free(m.data);
    }
    return 0;
}

static volatile unsigned char seen;

static void see(const void *data, size_t size) {
    for (size_t i = 0; data && i < size; i++) seen = seen ^ ((const unsigned char *)data)[i];
}

/* Nesting is limited by the reader. */
static void see_all(const sample *s) {
    see(s->bytes.data, s->bytes.size);
    see(s->integers.data, s->integers.count * sizeof *s->integers.data);
    see(s->narrows.data, s->narrows.count * sizeof *s->narrows.data);
    see(s->reals.data, s->reals.count * sizeof *s->reals.data);
    see(s->wides.data, s->wides.count * sizeof *s->wides.data);
    for (size_t i = 0; i < s->texts.count; i++) see(s->texts.data[i].data, s->texts.data[i].size);
    for (size_t i = 0; i < s->inners.count; i++) see_all(&s->inners.data[i]);
    if (s->inner) see_all(s->inner);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    arena.limit = 64 * size + (64u << 20);
    const onnx_bytes bytes = {(const char *)data, size};
    if (LIB_ENTER(&scope)) see_all(onnx_wire_read(&arena, &table, bytes));
    lib_arena_free(&arena);
    return 0;
}
