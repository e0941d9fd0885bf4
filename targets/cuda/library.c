/* The CUDA driver and NVRTC, loaded when a device is opened: nothing of CUDA is needed to build libdlc or to run it on a CPU. If one is
 * missing, the status is DLC_UNSUPPORTED, with what was searched, where, and which version is required. */
#include "targets/cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

dlc_status cuda_fail(const cuda_driver *driver, CUresult result, const char *function, lib_error *error) {
    const char *name = NULL, *text = NULL;
    if (driver->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown error";
    if (driver->cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "no description";
    dlc_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? DLC_OUT_OF_MEMORY : DLC_DEVICE_ERROR;
    return lib_fail(error, status, "cuda: %s: %s (%u): %s", function, name, result, text);
}

/* ---- symbols */

typedef struct symbol {
    const char *name;
    /* offset of the function's pointer in the table */
    size_t offset;
    bool required;
} symbol;

enum { optional, required };

/* Fills a table of function pointers. Returns the name of a missing required symbol; NULL: none is missing. (POSIX lets dlsym's result be a
 * function.) */
static const char *resolve(void *library, const symbol *symbols, size_t count, void *table) {
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function && symbols[i].required) return symbols[i].name;
        memcpy((char *)table + symbols[i].offset, &function, sizeof function);
    }
    return NULL;
}

static const symbol driver_symbols[] = {
#define X(need, type, name, parameters) {#name, offsetof(cuda_driver, name), need},
    CUDA_DRIVER_TABLE(X)
#undef X
};
static const symbol nvrtc_symbols[] = {
#define X(need, type, name, parameters) {#name, offsetof(cuda_nvrtc, name), need},
    CUDA_NVRTC_TABLE(X)
#undef X
};

/* ---- driver */

static dlc_status explain_init(const cuda_driver *driver, const char *path, CUresult result, lib_error *error) {
    const char *why = NULL;
    switch (result) {
    case CUDA_ERROR_STUB_LIBRARY:
        why =
            "it is the toolkit's stub for linking, not a driver; expected the driver's own library first in the search path";
        break;
    case CUDA_ERROR_NO_DEVICE: why = "no CUDA device is visible (CUDA_VISIBLE_DEVICES hides devices, too)"; break;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        why = "the library and the kernel's driver module are of different versions; restarting the system after an "
              "update helps";
        break;
    default: break;
    }
    if (why) return lib_fail(error, DLC_UNSUPPORTED, "cuda: %s: %s", path, why);
    cuda_fail(driver, result, "cuInit", error);
    if (error) error->status = DLC_UNSUPPORTED;
    return DLC_UNSUPPORTED;
}

/* Loads a library; NULL: *refused is DLC_OUT_OF_MEMORY or, if the library is missing, DLC_UNSUPPORTED. */
static void *load(const char *path, int flags, dlc_status *refused) {
    errno = 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    *refused = errno == ENOMEM ? DLC_OUT_OF_MEMORY : DLC_UNSUPPORTED;
    return library;
}

dlc_status cuda_load_driver(cuda_driver *driver, int *version, lib_error *error) {
    const char *path = lib_environment_get(LIB_ENV_CUDA);
    dlc_status refused;
    if (!path[0]) path = "libcuda.so.1";
    void *library = load(path, 0, &refused);
    if (!library)
        return lib_fail(error, refused,
                        "cuda: the NVIDIA driver's library was not found: %s (DLC_CUDA names another path)", dlerror());
    const char *missing = resolve(library, driver_symbols, sizeof driver_symbols / sizeof *driver_symbols, driver);
    if (missing)
        return lib_fail(error, DLC_UNSUPPORTED,
                        "cuda: %s has no function %s: the driver is too old, expected one for CUDA %d.%d or newer",
                        path, missing, CUDA_OLDEST_DRIVER / 1000, CUDA_OLDEST_DRIVER % 1000 / 10);
    CUresult result = driver->cuInit(0);
    if (result != CUDA_SUCCESS) return explain_init(driver, path, result, error);
    result = driver->cuDriverGetVersion(version);
    if (result != CUDA_SUCCESS) return cuda_fail(driver, result, "cuDriverGetVersion", error);
    if (*version < CUDA_OLDEST_DRIVER)
        return lib_fail(error, DLC_UNSUPPORTED, "cuda: the driver is for CUDA %d.%d, expected %d.%d or newer",
                        *version / 1000, *version % 1000 / 10, CUDA_OLDEST_DRIVER / 1000,
                        CUDA_OLDEST_DRIVER % 1000 / 10);
    return DLC_OK;
}

/* ---- NVRTC */

/* Fills *nvrtc and *version from the library; false: `why` is the reason. */
static bool use_nvrtc(void *library, cuda_nvrtc *nvrtc, int *version, char *why, size_t size) {
    const char *missing = resolve(library, nvrtc_symbols, sizeof nvrtc_symbols / sizeof *nvrtc_symbols, nvrtc);
    int major, minor;
    if (missing) {
        snprintf(why, size, "it has no function %s: NVRTC 11.2 or newer is expected", missing);
        return false;
    }
    nvrtcResult result = nvrtc->nvrtcVersion(&major, &minor);
    if (result != NVRTC_SUCCESS) {
        snprintf(why, size, "nvrtcVersion: %s", nvrtc->nvrtcGetErrorString(result));
        return false;
    }
    *version = 1000 * major + 10 * minor;
    return true;
}

static dlc_status load_named(const char *path, cuda_nvrtc *nvrtc, int *version, lib_error *error) {
    char why[512];
    dlc_status refused;
    void *library = load(path, 0, &refused);
    if (!library) return lib_fail(error, refused, "cuda: DLC_NVRTC: %s", dlerror());
    if (!use_nvrtc(library, nvrtc, version, why, sizeof why))
        return lib_fail(error, DLC_UNSUPPORTED, "cuda: DLC_NVRTC=%s: %s", path, why);
    return DLC_OK;
}

dlc_status cuda_load_nvrtc(int driver_version, cuda_nvrtc *nvrtc, int *version, lib_error *error) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
    enum { NAMES = sizeof names / sizeof *names };
    const char *path = lib_environment_get(LIB_ENV_NVRTC);
    if (path[0]) return load_named(path, nvrtc, version, error);
    char why[512] = "";
    int oldest = 0;
    dlc_status refused, worst = DLC_UNSUPPORTED;
    for (int i = 0; i < 2 * NAMES; i++) { /* first those that the host has loaded, then from files */
        void *library = load(names[i % NAMES], i < NAMES ? RTLD_NOLOAD : 0, &refused);
        if (!library && refused == DLC_OUT_OF_MEMORY) worst = refused;
        cuda_nvrtc found;
        int number;
        if (!library || !use_nvrtc(library, &found, &number, why, sizeof why)) continue;
        bool suits = !driver_version || number / 1000 <= driver_version / 1000;
        if (!suits && oldest && number >= oldest) continue;
        *nvrtc = found;
        *version = oldest = number;
        if (suits) return DLC_OK;
    }
    if (oldest) return DLC_OK;
    return lib_fail(error, worst,
                    "cuda: NVRTC was not found: looked for %s, %s and %s in the search path of libraries%s%s; it comes "
                    "with the CUDA toolkit (DLC_NVRTC names its path)",
                    names[0], names[1], names[2], why[0] ? ": " : "", why);
}
