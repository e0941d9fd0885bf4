/* Images -> callable code. An image may come from a disk, so everything in it is checked before it is used, and invalid images are
 * refused. The machine code in an image cannot be checked: whoever can write image files can make the host run code. */
#include "targets/cpu/image.h"

#include <math.h>
#include <sys/mman.h>

typedef void (*function)(void);

/* The functions that import slots refer to, by number. */
static const function library[] = {
#define X(name) (function) name,
    CPU_LIBRARY_TABLE(X)
#undef X
};

static dlc_status refuse(lib_error *error, const char *what) {
    return lib_fail(error, DLC_COMPILE_FAILED, "cannot load code: %s", what);
}

static dlc_status check_header(const target_object *object, lib_error *error) {
    cpu_image image;
    if (object->size < sizeof image) return refuse(error, "it is shorter than an image's header");
    memcpy(&image, object->bytes, sizeof image);
    if (image.magic != CPU_IMAGE_MAGIC) return refuse(error, "it is no image");
    if (image.version != CPU_IMAGE_VERSION) return refuse(error, "it is an image of another version");
    if (image.architecture != CPU_IMAGE_ARCHITECTURE || !CPU_IMAGE_ARCHITECTURE)
        return refuse(error, "it is an image for another processor");
    if (image.size != object->size || image.size > CPU_IMAGE_MAX) return refuse(error, "its size is not what it says");
    if (image.code < sizeof image || image.code > image.code_end || image.code_end > image.size)
        return refuse(error, "its code lies outside of it");
    if (image.table < image.code_end || image.table % sizeof(int32_t) || image.table > image.size - 2 * sizeof(int32_t))
        return refuse(error, "its table lies outside of it");
    return DLC_OK;
}

/* Finds the parts of the table and checks that it ends within the image. */
static dlc_status read_table(target_module *module, int count, lib_error *error) {
    const cpu_image *image = module->image;
    const int32_t *table = module->table = (const int32_t *)(const void *)(module->memory + image->table);
    int64_t words = (int64_t)((image->size - image->table) / sizeof *table), imports = table[1];
    if (table[0] != count) return refuse(error, "it does not hold as many kernels as are wanted");
    if (imports < 0 || imports > CPU_LIBRARY_COUNT) return refuse(error, "it has more imports than there are");
    if (2 + 2 * imports + count + 1 > words) return refuse(error, "its table does not end");
    module->kernels = count;
    module->first = table + 2 + 2 * imports;
    module->function = module->first + count + 1;
    words -= 2 + 2 * imports + count + 1;
    for (int k = 0; k < count; k++)
        if (module->first[k] < 0 || module->first[k + 1] <= module->first[k])
            return refuse(error, "phases are missing");
    if (module->first[0] != 0 || module->first[count] > words) return refuse(error, "phases are missing");
    return DLC_OK;
}

static dlc_status check_functions(const target_module *module, lib_error *error) {
    const cpu_image *image = module->image;
    for (int f = 0; f < module->first[module->kernels]; f++) {
        int64_t at = (int64_t)image->table + module->function[f];
        if (at < (int64_t)image->code || at >= (int64_t)image->code_end)
            return refuse(error, "a function lies outside of its code");
    }
    return DLC_OK;
}

/* Writes the addresses of library functions to the import slots, which must be between code and table, or after the table. */
static dlc_status fill_slots(const target_module *module, lib_error *error) {
    const cpu_image *image = module->image;
    int64_t table_end = (int64_t)((const char *)(module->function + module->first[module->kernels]) - module->memory);
    for (int i = 0; i < module->table[1]; i++) {
        int32_t number = module->table[2 + 2 * i];
        int64_t at = (int64_t)image->table + module->table[3 + 2 * i], end = at + (int64_t)sizeof(function);
        if (number < 0 || number >= CPU_LIBRARY_COUNT) return refuse(error, "it wants a function that is not known");
        if (at < (int64_t)image->code_end || end > (int64_t)image->size || at % (int64_t)sizeof(function) ||
            (end > (int64_t)image->table && at < table_end))
            return refuse(error, "an import slot lies outside of its room");
        memcpy(module->memory + at, &library[number], sizeof(function));
    }
    return DLC_OK;
}

static dlc_status place(target_module *module, const target_object *object, int count, lib_error *error) {
    size_t pages = (object->size + CPU_IMAGE_ALIGNMENT - 1) / CPU_IMAGE_ALIGNMENT * CPU_IMAGE_ALIGNMENT;
    void *memory = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for %zu bytes of code", pages);
    module->memory = memcpy(memory, object->bytes, object->size);
    module->image = memory;
    module->size = pages;
    LIB_TRY(read_table(module, count, error));
    LIB_TRY(check_functions(module, error));
    LIB_TRY(fill_slots(module, error));
    if (mprotect(memory, pages, PROT_READ | PROT_EXEC) != 0)
        return refuse(error, "the system lets no memory become executable");
    __builtin___clear_cache(module->memory, module->memory + pages);
    return DLC_OK;
}

dlc_status cpu_load(target_device *device, const target_object *object, int count, const char *const *names,
                    target_module **result, lib_error *error) {
    *result = NULL;
    LIB_TRY(check_header(object, error));
    target_module *module = lib_allocate_zeroed(&device->allocator, sizeof *module, _Alignof(target_module));
    if (!module) return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for a module of %d kernels", count);
    module->allocator = device->allocator;
    dlc_status status = place(module, object, count, error);
    if (status != DLC_OK) {
        cpu_unload(device, module);
        return status;
    }
    cpu_symbols_tell(module, names);
    *result = module;
    return DLC_OK;
}

int cpu_phases(const target_module *module, int kernel) {
    return module->first[kernel + 1] - module->first[kernel];
}

target_phase cpu_phase(const target_module *module, int kernel, int phase) {
    const char *at = (const char *)module->table + module->function[module->first[kernel] + phase];
    return (target_phase){(target_phase_function)(uintptr_t)at, NULL};
}

void cpu_unload(target_device *device, target_module *module) {
    (void)device;
    if (!module) return;
    cpu_symbols_forget(module);
    if (module->memory) munmap(module->memory, module->size);
    dlc_allocator allocator = module->allocator;
    lib_release(&allocator, module, sizeof *module, _Alignof(target_module));
}

size_t cpu_module_bytes(const target_module *module) {
    return module->size + sizeof *module;
}
