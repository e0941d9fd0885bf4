/* The life of compiled code: modules of several kernels, placing the same image twice, real unmapping, names for debuggers, images that are
 * damaged, a forced CPU name that LLVM does not know, dumps, and kernels that must be refused with a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "targets/cpu/image.h"

#include <elf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define KERNEL                                                                     \
    "kernel k(x: f32[100] arg, y: f32[100] arg)\n"                                 \
    "phase tasks=1 task=p { for i in 0..100 vec { y[i] = x[i]*2:f32 + 1:f32 } }\n" \
    "phase tasks=1 task=q { for i in 0..100 vec { y[i] = y[i] - x[i] } }\n"

typedef struct fixture {
    target_device *device;
    tir_machine machine;
    lib_scope scope;
    lib_arena arena;
    tir_kernel *kernel;
    lib_error error;
} fixture;

static tir_kernel *parse(fixture *f, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, &f->arena, "test", text, strlen(text));
    return tir_kernel_parse(&f->arena, &lexer, NULL);
}

static void open_fixture(fixture *f, const char *text) {
    target_options options = {.allocator = &lib_libc_allocator};
    memset(f, 0, sizeof *f);
    assert_int_equal(target_cpu.open(&options, &f->device, &f->machine, &f->error), DLC_OK);
    lib_arena_init(&f->arena, &lib_libc_allocator, &f->scope);
    if (LIB_ENTER(&f->scope))
        f->kernel = parse(f, text);
    else
        fail_msg("%s", f->scope.error.message);
}

static void close_fixture(fixture *f) {
    target_cpu.close(f->device);
    lib_arena_free(&f->arena);
}

static bool runs(const target_module *module, int kernel) {
    float x[100], y[100];
    void *buffers[] = {x, y};
    target_arguments arguments = {.buffers = buffers};
    for (int i = 0; i < 100; i++) x[i] = (float)i;
    for (int p = 0; p < 2; p++) target_cpu.phase(module, kernel, p).run(&arguments, 0, 0, 1, 0, NULL);
    for (int i = 0; i < 100; i++)
        if (y[i] != (float)i + 1) return false;
    return true;
}

static int mappings(void) {
    int lines = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    for (int c; (c = fgetc(file)) != EOF;) lines += c == '\n';
    fclose(file);
    return lines;
}

static void test_modules(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel, f.kernel, f.kernel};
    target_object object;
    target_module *one, *two;
    assert_int_equal(target_cpu.compile(f.device, NULL, 3, kernels, &object, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 3, NULL, &one, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 3, NULL, &two, &f.error), DLC_OK);
    target_cpu.release_object(f.device, &object);
    assert_true(target_cpu.phase(one, 0, 0).run != target_cpu.phase(two, 0, 0).run);
    assert_true(target_cpu.module_bytes(one) >= 4096);
    for (int k = 0; k < 3; k++) assert_true(runs(one, k) && runs(two, k));
    target_cpu.unload(f.device, one);
    assert_true(runs(two, 2));
    target_cpu.unload(f.device, two);
    close_fixture(&f);
}

/* Nothing stays mapped, and no page is writable and executable. */
static void test_unmapping(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    target_module *modules[20];
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_OK);
    int before = 0, after = 0;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 20; i++)
            assert_int_equal(target_cpu.load(f.device, &object, 1, NULL, &modules[i], &f.error), DLC_OK);
        char line[512];
        FILE *file = fopen("/proc/self/maps", "re");
        while (fgets(line, sizeof line, file)) assert_null(strstr(line, "rwx"));
        fclose(file);
        for (int i = 0; i < 20; i++) target_cpu.unload(f.device, modules[i]);
        if (round == 1) before = mappings();
        after = mappings();
    }
    assert_true(after <= before + 2);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

/* ---- damage */

static dlc_status place(fixture *f, const void *bytes, size_t size) {
    target_module *module;
    dlc_status status =
        target_cpu.load(f->device, &(target_object){.bytes = bytes, .size = size}, 1, NULL, &module, &f->error);
    if (status == DLC_OK)
        target_cpu.unload(f->device, module);
    else
        assert_null(module);
    return status;
}

static void refuses(fixture *f, const void *bytes, size_t size, const char *why) {
    assert_int_equal(place(f, bytes, size), DLC_COMPILE_FAILED);
    if (!strstr(f->error.message, why)) fail_msg("expected \"%s\": %s", why, f->error.message);
}

/* An image of one kernel with two phases that calls exp: small enough to be written here, word by word. */
typedef struct small_image {
    cpu_image header;
    char code[64];
    uint64_t slots[2];
    int32_t kernels, imports, import[2][2], first[2], function[2];
} small_image;

#define AT(field) ((int32_t)(offsetof(small_image, field) - offsetof(small_image, kernels)))

static small_image sound_image(void) {
    small_image image = {.header = {.magic = CPU_IMAGE_MAGIC,
                                    .version = CPU_IMAGE_VERSION,
                                    .architecture = CPU_IMAGE_ARCHITECTURE,
                                    .size = sizeof image,
                                    .code = offsetof(small_image, code),
                                    .code_end = offsetof(small_image, slots),
                                    .table = offsetof(small_image, kernels)},
                         .kernels = 1,
                         .imports = 2,
                         .import = {{CPU_LIBRARY_exp, AT(slots)}, {CPU_LIBRARY_sin, AT(slots) + 8}},
                         .first = {0, 2},
                         .function = {AT(code), AT(code) + 63}};
    return image;
}

#define DAMAGE(field, value, why)                   \
    do {                                            \
        small_image damaged = sound_image();        \
        damaged.field = value;                      \
        refuses(&f, &damaged, sizeof damaged, why); \
    } while (0)

/* Whatever a header and a table say of themselves. */
static void test_damaged_images(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    small_image sound = sound_image();
    target_module *module;
    const target_object object = {.bytes = &sound, .size = sizeof sound};
    assert_int_equal(place(&f, &sound, sizeof sound), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 1, NULL, &module, &f.error), DLC_OK);
    assert_int_equal(target_cpu.phases(module, 0), 2);
    const char *code = (const char *)(uintptr_t)target_cpu.phase(module, 0, 0).run;
    void *filled[2];
    memcpy(filled, code + sizeof sound.code, sizeof filled);
    assert_true(filled[0] == (void *)(uintptr_t)exp && filled[1] == (void *)(uintptr_t)sin);
    target_cpu.unload(f.device, module);
    DAMAGE(header.magic, CPU_IMAGE_MAGIC + 1, "no image");
    DAMAGE(header.version, CPU_IMAGE_VERSION + 1, "version");
    DAMAGE(header.architecture, CPU_IMAGE_ARCHITECTURE + 1, "processor");
    const uint64_t sizes[] = {0, 1, sizeof(cpu_image), sizeof sound - 1, sizeof sound + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) DAMAGE(header.size, sizes[i], "size");
    const uint64_t codes[] = {0, sizeof(cpu_image) - 1, offsetof(small_image, slots) + 1, sizeof sound, UINT64_MAX};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) DAMAGE(header.code, codes[i], "code");
    const uint64_t ends[] = {0, offsetof(small_image, code) - 1, sizeof sound + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) DAMAGE(header.code_end, ends[i], "code");
    const uint64_t tables[] = {0,
                               offsetof(small_image, code),
                               offsetof(small_image, kernels) + 2,
                               sizeof sound - 4,
                               sizeof sound,
                               UINT64_MAX - 3};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) DAMAGE(header.table, tables[i], "table");
    const int32_t counts[] = {INT32_MIN, -1, 0, 2, INT32_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) DAMAGE(kernels, counts[i], "kernels");
    DAMAGE(imports, -1, "imports");
    DAMAGE(imports, CPU_LIBRARY_COUNT + 1, "imports");
    DAMAGE(imports, INT32_MAX, "imports");
    DAMAGE(imports, CPU_LIBRARY_COUNT, "does not end");
    const int32_t numbers[] = {INT32_MIN, -1, CPU_LIBRARY_COUNT, INT32_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) DAMAGE(import[1][0], numbers[i], "not known");
    const int32_t slots[] = {INT32_MIN, -AT(slots),   AT(header),       AT(code), AT(code) + 56, AT(slots) + 4,
                             0,         AT(function), AT(function) + 8, 1 << 20,  INT32_MAX};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) DAMAGE(import[0][1], slots[i], "slot");
    const int32_t firsts[] = {INT32_MIN, -1, 1, INT32_MAX};
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) DAMAGE(first[0], firsts[i], "phases");
    const int32_t lasts[] = {INT32_MIN, -1, 0, 3, INT32_MAX};
    for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++) DAMAGE(first[1], lasts[i], "phases");
    const int32_t functions[] = {INT32_MIN, AT(header), AT(code) - 1, AT(slots), 0, INT32_MAX};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) DAMAGE(function[1], functions[i], "function");
    close_fixture(&f);
}

/* Bytes from a disk may be anything. Loaded or refused, never a crash; what is loaded is not run, here. */
static void test_hostile_objects(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_OK);
    for (size_t size = 0; size < object.size; size++) {
        char *cut = malloc(size + 1); /* of just this length, for the sanitizer */
        memcpy(cut, object.bytes, size);
        refuses(&f, cut, size, "cannot load code");
        free(cut);
    }
    uint64_t seed = 1;
    char *bytes = malloc(object.size);
    for (int i = 0; i < 20000; i++) {
        memcpy(bytes, object.bytes, object.size);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = lib_hash_mix(seed, (uint64_t)i);
            bytes[seed % object.size] = i % 2 ? (char)(seed >> 32) : (char)0xff;
        }
        place(&f, bytes, object.size);
    }
    free(bytes);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

/* ---- names for gdb: the list in the process, read as gdb reads it */

typedef struct jit_entry {
    struct jit_entry *next, *previous;
    const char *object;
    uint64_t size;
} jit_entry;
extern struct {
    uint32_t version, action;
    jit_entry *relevant, *first;
} __jit_debug_descriptor;

static void assert_symbol(const jit_entry *entry, const char *name, const void *address) {
    Elf64_Ehdr header;
    Elf64_Shdr section[4];
    memcpy(&header, entry->object, sizeof header);
    assert_memory_equal(header.e_ident, ELFMAG, SELFMAG);
    assert_true(header.e_shnum == 4 && header.e_shoff + sizeof section <= entry->size);
    memcpy(section, entry->object + header.e_shoff, sizeof section);
    const char *names = entry->object + section[3].sh_offset;
    assert_true(section[3].sh_offset + section[3].sh_size <= entry->size);
    assert_string_equal(names + section[1].sh_name, ".text");
    assert_string_equal(names + section[2].sh_name, ".symtab");
    assert_string_equal(names + section[3].sh_name, ".strtab");
    for (uint64_t i = 1; i < section[2].sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, entry->object + section[2].sh_offset + i * sizeof symbol, sizeof symbol);
        if (strcmp(names + symbol.st_name, name) != 0) continue;
        assert_true(section[1].sh_addr + symbol.st_value == (uint64_t)(uintptr_t)address);
        assert_true(symbol.st_size > 0 && symbol.st_value + symbol.st_size <= section[1].sh_size);
        return;
    }
    fail_msg("no symbol %s", name);
}

static void test_debugger(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    const tir_kernel *kernels[] = {f.kernel, f.kernel};
    const char *const names[] = {"first", "second"};
    target_object object;
    target_module *one, *two;
    assert_int_equal(target_cpu.compile(f.device, NULL, 2, kernels, &object, &f.error), DLC_OK);
    setenv("DLC_GDB", "1", 1);
    assert_int_equal(target_cpu.load(f.device, &object, 2, names, &one, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 2, NULL, &two, &f.error), DLC_OK);
    unsetenv("DLC_GDB");
    const jit_entry *entry = __jit_debug_descriptor.first;
    assert_true(entry && entry->next && !entry->next->next && entry->next->previous == entry);
    for (int k = 0; k < 2; k++)
        for (int p = 0; p < 2; p++) {
            char name[32];
            snprintf(name, sizeof name, "%s_%d", names[k], p);
            assert_symbol(entry->next, name, (const void *)(uintptr_t)target_cpu.phase(one, k, p).run);
        }
    assert_symbol(entry, "kernel_1", (const void *)(uintptr_t)target_cpu.phase(two, 0, 1).run);
    target_cpu.unload(f.device, two);
    assert_true(__jit_debug_descriptor.first && !__jit_debug_descriptor.first->next);
    target_cpu.unload(f.device, one);
    assert_null(__jit_debug_descriptor.first);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

static void test_forced_cpu(void **state) {
    (void)state;
    fixture f;
    setenv("DLC_CPU", "no-such-processor", 1);
    open_fixture(&f, KERNEL);
    unsetenv("DLC_CPU");
    assert_null(strstr(f.machine.name, "no-such"));
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    target_module *module;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &object, 1, NULL, &module, &f.error), DLC_OK);
    assert_true(runs(module, 0));
    target_cpu.unload(f.device, module);
    target_cpu.release_object(f.device, &object);
    close_fixture(&f);
}

static void test_levels(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int bytes;
    } levels[] = {{"sse2", 16}, {"avx2", 32}, {"avx512", 64}};
    fixture best;
    open_fixture(&best, KERNEL);
    for (int i = 0; i < 3; i++) {
        fixture f;
        setenv("DLC_CPU_FEATURES", levels[i].name, 1);
        open_fixture(&f, KERNEL);
        unsetenv("DLC_CPU_FEATURES");
        int want = levels[i].bytes < best.machine.vector_bytes ? levels[i].bytes : best.machine.vector_bytes;
        assert_int_equal(f.machine.vector_bytes, want);
        assert_true(f.machine.l1 >= 4096 && f.machine.l2 >= f.machine.l1 && f.machine.l3 > 0 && f.machine.cores >= 1);
        close_fixture(&f);
    }
    close_fixture(&best);
}

static void test_dumps(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, KERNEL);
    lib_text text;
    lib_text_init(&text, &f.arena);
    assert_int_equal(target_cpu.dump(f.device, f.kernel, TARGET_DUMP_LLVM, &text, &f.error), DLC_OK);
    assert_non_null(strstr(text.data, "@dlc_k0_p1("));
    lib_text_init(&text, &f.arena);
    assert_int_equal(target_cpu.dump(f.device, f.kernel, TARGET_DUMP_ASSEMBLY, &text, &f.error), DLC_OK);
    assert_non_null(strstr(text.data, "# k: 0 spills, 0 reloads"));
    assert_int_equal(target_cpu.dump(f.device, f.kernel, TARGET_DUMP_SOURCE, &text, &f.error), DLC_UNSUPPORTED);
    close_fixture(&f);
}

static void test_refusals(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, "kernel k(x: f32[100] arg, r: f32[4] reg)\n"
                     "phase tasks=1 task=p { for i in 0..4 { r[i] = x[i] } for i in 0..4 { x[i] = r[i] } }\n");
    const tir_kernel *kernels[] = {f.kernel};
    target_object object;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &object, &f.error), DLC_INTERNAL);
    assert_non_null(strstr(f.error.message, "r"));
    assert_null(object.bytes);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modules),         cmocka_unit_test(test_unmapping), cmocka_unit_test(test_damaged_images),
        cmocka_unit_test(test_hostile_objects), cmocka_unit_test(test_debugger),  cmocka_unit_test(test_forced_cpu),
        cmocka_unit_test(test_levels),          cmocka_unit_test(test_dumps),     cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("cpu loading", tests, NULL, NULL);
}
