/* CUDA C to code for one device. Sources include nothing, so no CUDA header is needed at run time. Results are exact as defined by tir:
 * no contraction of multiplications and additions, no fast mathematics, denormals kept. */
#include "targets/cuda/cuda.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- choice of architecture */

enum { ARCHITECTURES_MAX = 64 };

/* The newest architecture that NVRTC supports and the device can run; 0: none. *oldest: the oldest that NVRTC supports, for the message. */
static int best_architecture(const cuda_nvrtc *nvrtc, int capability, int *oldest) {
    int count = 0, all[ARCHITECTURES_MAX], best = 0;
    *oldest = 0;
    if (nvrtc->nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS || count > ARCHITECTURES_MAX ||
        nvrtc->nvrtcGetSupportedArchs(all) != NVRTC_SUCCESS)
        return 0;
    for (int i = 0; i < count; i++) {
        if (all[i] <= capability && all[i] > best) best = all[i];
        if (!*oldest || all[i] < *oldest) *oldest = all[i];
    }
    return best;
}

dlc_status cuda_compiler_open(cuda_compiler *compiler, const dlc_allocator *allocator, const lib_log *log,
                              int driver_version, int compute_capability, lib_error *error) {
    int oldest;
    *compiler = (cuda_compiler){.allocator = *allocator};
    if (log) compiler->log = *log;
    LIB_TRY(cuda_load_nvrtc(driver_version, &compiler->nvrtc, &compiler->version, error));
    compiler->architecture = best_architecture(&compiler->nvrtc, compute_capability, &oldest);
    if (!compiler->architecture)
        return lib_fail(error, DLC_UNSUPPORTED,
                        "cuda: NVRTC %d.%d makes code for compute capability %d.%d and newer, the device has %d.%d",
                        compiler->version / 1000, compiler->version % 1000 / 10, oldest / 10, oldest % 10,
                        compute_capability / 10, compute_capability % 10);
    /* Cubins run on devices of the same major and at least the same minor version; for others the driver compiles PTX. */
    compiler->ptx = compiler->architecture / 10 != compute_capability / 10;
    return DLC_OK;
}

/* ---- one compilation */

static dlc_status refuse(const cuda_compiler *compiler, nvrtcResult result, const char *function, lib_error *error) {
    return lib_fail(error, result == NVRTC_ERROR_OUT_OF_MEMORY ? DLC_OUT_OF_MEMORY : DLC_COMPILE_FAILED,
                    "cuda: NVRTC %d.%d: %s: %s", compiler->version / 1000, compiler->version % 1000 / 10, function,
                    compiler->nvrtc.nvrtcGetErrorString(result));
}

#define NVRTC_TRY(function, arguments)                                                    \
    do {                                                                                  \
        nvrtcResult result_ = compiler->nvrtc.function arguments;                         \
        if (result_ != NVRTC_SUCCESS) return refuse(compiler, result_, #function, error); \
    } while (0)

static dlc_status take(const cuda_compiler *compiler, size_t size, char **bytes, size_t *kept, lib_error *error) {
    *bytes =
        lib_allocate_zeroed(&compiler->allocator, size + 1, 16); /* terminates the text, whatever the library writes */
    if (!*bytes) return lib_fail(error, DLC_OUT_OF_MEMORY, "cuda: out of memory: %zu bytes of code", size);
    *kept = size;
    return DLC_OK;
}

static dlc_status get_log(const cuda_compiler *compiler, nvrtcProgram program, cuda_code *code, lib_error *error) {
    size_t size = 0;
    NVRTC_TRY(nvrtcGetProgramLogSize, (program, &size));
    LIB_TRY(take(compiler, size, &code->log, &code->log_size, error));
    if (size) NVRTC_TRY(nvrtcGetProgramLog, (program, code->log));
    return DLC_OK;
}

static dlc_status get_code(const cuda_compiler *compiler, nvrtcProgram program, cuda_code *code, lib_error *error) {
    size_t size = 0;
    if (compiler->ptx)
        NVRTC_TRY(nvrtcGetPTXSize, (program, &size));
    else
        NVRTC_TRY(nvrtcGetCUBINSize, (program, &size));
    LIB_TRY(take(compiler, size, &code->bytes, &code->size, error));
    if (compiler->ptx)
        NVRTC_TRY(nvrtcGetPTX, (program, code->bytes));
    else
        NVRTC_TRY(nvrtcGetCUBIN, (program, code->bytes));
    return DLC_OK;
}

static void log_failure(const cuda_compiler *compiler, const char *source, const cuda_code *code) {
    if (!lib_environment_lists(LIB_ENV_DEBUG, "source")) return;
    lib_log_write(&compiler->log, "dlc: NVRTC refused this source:");
    lib_log_lines(&compiler->log, source);
    lib_log_lines(&compiler->log, code->log);
}

/* Compiles the program. The suffix `a` (sm_90a) allows instructions of exactly this architecture, such as wgmma. */
static dlc_status compile(const cuda_compiler *compiler, nvrtcProgram program, const char *source, bool verbose,
                          cuda_code *code, lib_error *error) {
    char architecture[64];
    bool own = !compiler->ptx && compiler->architecture == 90 && compiler->version >= 12000;
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s_%d%s", compiler->ptx ? "compute" : "sm",
             compiler->architecture, own ? "a" : "");
    const char *options[] = {architecture, "--std=c++17", "--fmad=false", "--ptxas-options=-v"};
    int count = (int)(sizeof options / sizeof *options) - (verbose && !compiler->ptx ? 0 : 1);
    nvrtcResult result = compiler->nvrtc.nvrtcCompileProgram(program, count, options);
    LIB_TRY(get_log(compiler, program, code, error));
    if (result == NVRTC_SUCCESS) return get_code(compiler, program, code, error);
    log_failure(compiler, source, code);
    if (result != NVRTC_ERROR_COMPILATION) return refuse(compiler, result, "nvrtcCompileProgram", error);
    return lib_fail(error, DLC_COMPILE_FAILED,
                    "cuda: NVRTC %d.%d refused the source for %s (DLC_DEBUG=source logs it): %s",
                    compiler->version / 1000, compiler->version % 1000 / 10, strchr(architecture, '=') + 1, code->log);
}

dlc_status cuda_compile_source(const cuda_compiler *compiler, const char *source, bool verbose, cuda_code *code,
                               lib_error *error) {
    nvrtcProgram program = NULL;
    *code = (cuda_code){0};
    locale_t locale = uselocale((locale_t)0); /* NVRTC sets the calling thread's locale, and parses numbers by it */
    nvrtcResult result = compiler->nvrtc.nvrtcCreateProgram(&program, source, "libdlc.cu", 0, NULL, NULL);
    dlc_status status = result == NVRTC_SUCCESS ? compile(compiler, program, source, verbose, code, error)
                                                : refuse(compiler, result, "nvrtcCreateProgram", error);
    if (program) compiler->nvrtc.nvrtcDestroyProgram(&program);
    uselocale(locale);
    if (status != DLC_OK) cuda_code_release(compiler, code);
    return status;
}

void cuda_code_release(const cuda_compiler *compiler, cuda_code *code) {
    if (code->bytes) lib_release(&compiler->allocator, code->bytes, code->size + 1, 16);
    if (code->log) lib_release(&compiler->allocator, code->log, code->log_size + 1, 16);
    *code = (cuda_code){0};
}

/* ---- resource usage of functions */

/* The number before `unit` in the text up to `end`; 0: none. */
static int64_t number_before(const char *text, const char *end, const char *unit) {
    const char *at = strstr(text, unit);
    if (!at || at >= end) return 0;
    while (at > text && at[-1] == ' ') at--;
    while (at > text && at[-1] >= '0' && at[-1] <= '9') at--;
    return strtoll(at, NULL, 10);
}

/* Lines of ptxas, one function after another:
 *     ptxas info    : Compiling entry function 'k0_p0' for 'sm_90'
 *     ptxas info    : Function properties for k0_p0
 *         8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
 *     ptxas info    : Used 10 registers, used 0 barriers, 128 bytes smem */
bool cuda_find_usage(const char *log, const char *function, cuda_usage *usage) {
    char quoted[128];
    snprintf(quoted, sizeof quoted, "'%s'", function);
    const char *at = strstr(log, quoted);
    *usage = (cuda_usage){0};
    if (!at) return false;
    const char *end = strstr(at, "Compiling entry function");
    if (!end) end = at + strlen(at);
    usage->registers = (int)number_before(at, end, "registers");
    usage->stack = number_before(at, end, "bytes stack frame");
    usage->spill_stores = number_before(at, end, "bytes spill stores");
    usage->spill_loads = number_before(at, end, "bytes spill loads");
    usage->shared = number_before(at, end, "bytes smem");
    return true;
}
