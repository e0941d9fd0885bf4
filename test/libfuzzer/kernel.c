/* What a file of the kernel cache holds: a kernel's description, or object bytes (which begin as ELF files do), without the checksum
 * that covers both. Code is loaded, never run. */
#include "jit/disk.h"
#include "targets/target.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static target_device *device;

/* ---- seeds: DLC_SEEDS names a folder that gets the parts of the cache files of a small graph */

static void write_part(const char *folder, const char *name, const char *part, const char *bytes, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%.16s-%s", folder, name, part);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(bytes, 1, size, file);
    fclose(file);
}

static void write_parts(const char *folder, const char *name) {
    enum { SIZES = 8 + 2 * sizeof(lib_hash128) + sizeof(jit_key) }; /* magic, hashes, key */
    static char bytes[1 << 16];
    char path[4096];
    uint64_t sizes[2];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return;
    size_t size = fread(bytes, 1, sizeof bytes, file), begin = SIZES + sizeof sizes;
    fclose(file);
    remove(path);
    if (size < begin) return;
    memcpy(sizes, bytes + SIZES, sizeof sizes);
    if (sizes[0] > size - begin || sizes[1] > size) return;
    write_part(folder, name, "description", bytes + begin, (size_t)sizes[0]);
    write_part(folder, name, "object", bytes + size - sizes[1], (size_t)sizes[1]);
}

static void fill_cache(const char *folder) {
    static const char text[] = "graph {\n input x: f32[7, 20]\n input w: f32[20, 9]\n y = softmax(x, axis=1)\n"
                               " z = matmul(y, w)\n e = erf(z)\n output \"e\" = e\n}\n";
    static const int64_t x[] = {7, 20}, w[] = {20, 9};
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    dlc_context *context;
    dlc_graph *graph;
    dlc_program *program;
    options.target = "cpu";
    options.cache_directory = folder;
    if (dlc_context_create(&options, &context) != DLC_OK) return;
    if (dlc_graph_parse(context, text, sizeof text - 1, &graph) == DLC_OK) {
        if (dlc_compile(context, graph, NULL, &program) == DLC_OK) {
            dlc_prepare(program, (const int64_t *const[]){x, w}, (const int[]){2, 2}, 2);
            dlc_program_destroy(program);
        }
        dlc_graph_destroy(graph);
    }
    if (dlc_error_message(context)[0]) fprintf(stderr, "seeds: %s\n", dlc_error_message(context));
    dlc_context_destroy(context);
}

static void write_seeds(const char *folder) {
    fill_cache(folder);
    DIR *stream = opendir(folder);
    struct dirent *entry;
    while (stream && (entry = readdir(stream)) != NULL)
        if (strstr(entry->d_name, ".dlck")) write_parts(folder, entry->d_name);
    if (stream) closedir(stream);
}

/* ---- inputs */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static tir_machine machine;
    static lib_log log;
    lib_error error;
    (void)argc, (void)argv;
    if (getenv("DLC_SEEDS")) write_seeds(getenv("DLC_SEEDS"));
    const target_options options = {.allocator = &lib_libc_allocator, .log = &log};
    return target_cpu.open(&options, &device, &machine, &error) == DLC_OK ? 0 : 1;
}

static void load(const char *bytes, size_t size) {
    const target_object object = {.bytes = bytes, .size = size};
    const char *name = "k";
    target_module *module;
    lib_error error;
    if (target_cpu.load(device, &object, 1, &name, &module, &error) != DLC_OK) return;
    for (int p = 0; p < target_cpu.phases(module, 0); p++) (void)target_cpu.phase(module, 0, p);
    target_cpu.unload(device, module);
}

static void describe(const char *bytes, size_t size) {
    static jit_kernel kernel;
    memset(&kernel, 0, sizeof kernel);
    lib_arena_init(&kernel.arena, &lib_libc_allocator, &kernel.scope);
    if (LIB_ENTER(&kernel.scope)) {
        jit_read_description(&kernel, bytes, size);
        lib_text again;
        lib_text_init(&again, &kernel.arena);
        jit_describe_stored(&again, &kernel);
    }
    lib_arena_free(&kernel.arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 4 && memcmp(data, "\177ELF", 4) == 0)
        load((const char *)data, size);
    else
        describe((const char *)data, size);
    return 0;
}
