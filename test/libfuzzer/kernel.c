/* A file of the kernel cache, its checksum made right, or one of its parts alone: a kernel's description, an image (which begins with its
 * magic number). Code is placed, never run. */
#include "jit/disk.h"
#include "targets/target.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static target_device *device;

/* ---- seeds: DLC_SEEDS names a folder that gets the cache files of a small graph, and their parts */

static void write_part(const char *folder, const char *name, const char *part, const char *bytes, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%.16s-%s", folder, name, part);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(bytes, 1, size, file);
    fclose(file);
}

static void write_parts(const char *folder, const char *name) {
    static _Alignas(jit_disk_header) char bytes[1 << 16];
    const jit_disk_header *header = (const jit_disk_header *)bytes;
    char path[4096];
    jit_stored stored;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return;
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    if (size < sizeof *header || !jit_disk_parse(bytes, size, header->code, &header->key, &stored)) return;
    write_part(folder, name, "description", stored.description, stored.description_size);
    write_part(folder, name, "image", stored.object, stored.object_size);
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

static void read_file(char *bytes, size_t size) {
    jit_disk_header *header = (jit_disk_header *)bytes;
    const jit_key key = header->key;
    jit_stored stored;
    header->checksum = jit_disk_checksum(bytes, size);
    if (!jit_disk_parse(bytes, size, header->code, &key, &stored)) return;
    describe(stored.description, stored.description_size);
    load(stored.object, stored.object_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t magic = JIT_DISK_MAGIC;
    if (size >= sizeof(jit_disk_header) && memcmp(data, &magic, sizeof magic) == 0) {
        void *bytes;
        if (posix_memalign(&bytes, 64, size)) return 0; /* as files are read */
        memcpy(bytes, data, size);
        read_file(bytes, size);
        free(bytes);
    } else if (size >= 8 && memcmp(data, "dlcimage", 8) == 0) {
        load((const char *)data, size);
    } else {
        describe((const char *)data, size);
    }
    return 0;
}
