/* golden/vectors/x.txt: a kernel, and what tir_vectorise makes of its vec loops for 512, 256 and 128 bits (machines Z, Y, X of machines.c).
 * What comes out verifies, and gives the kernel's bits on the interpreter, as does the kernel that its text parses to. Variables of lanes loops
 * keep the vec loop's range, and the parser gives them their own: parsed back, expressions may be simpler, but only once. */
#include "golden/files.h"
#include "golden/machines.h"

#include "random.h"
#include "tir/interpret.h"
#include "tir/vectorise.h"

enum { ARGUMENTS = 8 };

static int64_t bytes_of(const tir_kernel *kernel, const tir_buffer *b) {
    int64_t last = 0, extent, stride;
    for (int d = 0; d < b->rank; d++)
        if (tir_is_const(kernel->pool, b->extent[d], &extent) && tir_is_const(kernel->pool, b->stride[d], &stride))
            last += (extent - 1) * stride;
    return (last + 1) * (int64_t)lib_dtype_size(b->dtype);
}

/* Small numbers in all arguments, then a run. */
static void **run(lib_arena *arena, const tir_kernel *kernel, bool reverse) {
    void **arguments = LIB_NEW_ARRAY(arena, void *, ARGUMENTS);
    const tir_interpret_options options = {.check = true, .reverse_lanes = reverse};
    lib_error error;
    uint64_t state = 7;
    for (int i = 0; i < kernel->arguments; i++) {
        const tir_buffer *b = &kernel->buffers.data[i];
        const int64_t size = (int64_t)lib_dtype_size(b->dtype), bytes = bytes_of(kernel, b);
        char *data = arguments[i] = lib_arena_take(arena, (size_t)bytes);
        for (int64_t at = 0; at < bytes; at += size)
            lib_element_set_f64(b->dtype, data + at, (double)(test_random(&state) % 17) - 8);
    }
    if (tir_interpret(kernel, arguments, NULL, &options, arena->allocator, &error) != DLC_OK)
        lib_raise_error(arena->scope, &error);
    return arguments;
}

static tir_kernel *parse(lib_arena *arena, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "kernel", text, strlen(text));
    tir_kernel *kernel = tir_kernel_parse(arena, &lexer, NULL);
    tir_kernel_verify(arena->scope, kernel, NULL, NULL);
    return kernel;
}

static const char *text_of(lib_arena *arena, const tir_kernel *kernel) {
    lib_text text;
    lib_text_init(&text, arena);
    tir_kernel_print(&text, kernel);
    return text.data;
}

static void check(lib_arena *arena, const tir_kernel *kernel, const tir_kernel *vectors) {
    void **want = run(arena, kernel, false);
    for (int reverse = 0; reverse < 2; reverse++) {
        void **got = run(arena, vectors, reverse);
        for (int i = 0; i < kernel->arguments; i++)
            if (memcmp(got[i], want[i], (size_t)bytes_of(kernel, &kernel->buffers.data[i])) != 0)
                lib_raise(arena->scope, DLC_INTERNAL, "other values in %s", kernel->buffers.data[i].name);
    }
}

static void print_vectors(lib_arena *arena, lib_text *out, const char *input) {
    const tir_kernel *kernel = parse(arena, input);
    for (int m = 0; m < GOLDEN_MACHINES; m++) {
        const golden_machine *machine = &golden_machines[m];
        if (!strchr("ZYX", machine->letter)) continue;
        tir_kernel *vectors = tir_vectorise(arena, kernel, &machine->facts);
        tir_kernel_verify(arena->scope, vectors, NULL, NULL);
        const char *text = text_of(arena, vectors);
        const tir_kernel *parsed = parse(arena, text);
        const char *again = text_of(arena, parsed);
        if (strcmp(again, text_of(arena, parse(arena, again))) != 0)
            lib_raise(arena->scope, DLC_INTERNAL, "its text does not parse back:\n%s", again);
        check(arena, kernel, vectors);
        check(arena, kernel, parsed);
        lib_text_format(out, "---- %c\n%s", machine->letter, text);
    }
}

int main(void) {
    return golden_run("golden/vectors", "test/golden/vectors", "==== vectors\n", print_vectors);
}
