/* Object bytes -> callable code, through ORC and JITLink: objects only (no IR ever enters ORC, so no other thread's
 * module is compiled by a lookup), memory writable or executable but never both. Every module lives in a dylib of its
 * own, since symbol names repeat from object to object; dylibs cannot be destroyed through the C API, so emptied ones
 * are used again. The only symbols code may refer to are those of the table below; nothing is searched for in the
 * process. */
#include "targets/cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Functions that the code generator or the emitter may call. */
/* clang-format off */
#define LIBRARY_TABLE(X) \
    X(memset) X(memcpy) X(memmove) X(fmod) X(fma) X(fmaf) \
    X(exp) X(expm1) X(log) X(log1p) X(pow) X(cbrt) X(erf) \
    X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(atan2) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh)
/* clang-format on */

/* What ORC and JITLink keep on the heap for a dylib with one object in it (tables that start with 64 buckets, mostly):
 * measured, since nothing tells, and more than the code of a small kernel. */
enum { LOADER_BYTES = 16 << 10 };

typedef void (*function)(void);
typedef struct library_entry {
    const char *name;
    function address;
} library_entry;

static const library_entry library[] = {
#define X(name) {#name, (function)name},
    LIBRARY_TABLE(X)
#undef X
};
#define LIBRARY_COUNT (sizeof library / sizeof *library)

struct cpu_loader {
    lib_mutex lock; /* of everything below and of ORC */
    LLVMOrcLLJITRef jit;
    LLVMOrcExecutionSessionRef session;
    LLVMOrcJITDylibRef *idle; /* emptied dylibs; room for all that exist */
    int idle_count, dylibs, capacity;
    char message[LIB_MESSAGE_MAX]; /* last error the session reported */
};

struct target_module {
    dlc_allocator allocator;
    size_t allocated, bytes;
    LLVMOrcJITDylibRef dylib;
    LLVMOrcResourceTrackerRef tracker;
    int kernels, functions;
    int *first; /* by kernel: its first function */
    target_phase_function *function;
};

static void take_message(LLVMErrorRef failure, char *message, size_t size) {
    char *text = LLVMGetErrorMessage(failure);
    snprintf(message, size, "%s", text);
    LLVMDisposeErrorMessage(text);
}

/* Runs inside calls made under the lock. The default would print. */
static void on_session_error(void *user, LLVMErrorRef failure) {
    cpu_loader *loader = user;
    take_message(failure, loader->message, sizeof loader->message);
}

dlc_status cpu_loader_open(target_device *device, lib_error *error) {
    cpu_loader *loader = lib_allocate_zeroed(&device->allocator, sizeof *loader, _Alignof(cpu_loader));
    if (!loader) return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for the code loader");
    LLVMTargetRef target_ref;
    char *text = NULL;
    LLVMGetTargetFromTriple(device->triple, &target_ref, &text);
    LLVMDisposeMessage(text);
    /* it says what objects are for and generates no code: no processor's features to work out */
    LLVMTargetMachineRef machine = LLVMCreateTargetMachine(target_ref, device->triple, "", "", LLVMCodeGenLevelNone,
                                                           LLVMRelocPIC, LLVMCodeModelSmall);
    LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
    LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder,
                                                  LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine));
    LLVMErrorRef failure = LLVMOrcCreateLLJIT(&loader->jit, builder);
    if (failure) {
        char message[256];
        take_message(failure, message, sizeof message);
        lib_release(&device->allocator, loader, sizeof *loader, _Alignof(cpu_loader));
        return lib_fail(error, DLC_COMPILE_FAILED, "LLVM ORC: %s", message);
    }
    loader->session = LLVMOrcLLJITGetExecutionSession(loader->jit);
    LLVMOrcExecutionSessionSetErrorReporter(loader->session, on_session_error, loader);
    if (lib_environment_integer(LIB_ENV_GDB, 0) != 0) LLVMConsumeError(LLVMOrcLLJITEnableDebugSupport(loader->jit));
    lib_mutex_init(&loader->lock);
    device->loader = loader;
    return DLC_OK;
}

void cpu_loader_close(target_device *device) {
    cpu_loader *loader = device->loader;
    if (!loader) return;
    LLVMErrorRef failure = LLVMOrcDisposeLLJIT(loader->jit);
    if (failure) LLVMConsumeError(failure);
    lib_mutex_destroy(&loader->lock);
    lib_release(&device->allocator, loader->idle, (size_t)loader->capacity * sizeof *loader->idle, sizeof(void *));
    lib_release(&device->allocator, loader, sizeof *loader, _Alignof(cpu_loader));
    device->loader = NULL;
}

/* ---- dylibs */

static LLVMErrorRef define_library(cpu_loader *loader, LLVMOrcJITDylibRef dylib) {
    LLVMOrcCSymbolMapPair pairs[LIBRARY_COUNT];
    for (size_t i = 0; i < LIBRARY_COUNT; i++) {
        pairs[i].Name = LLVMOrcExecutionSessionIntern(loader->session, library[i].name);
        pairs[i].Sym.Address = (LLVMOrcExecutorAddress)(uintptr_t)library[i].address;
        pairs[i].Sym.Flags.GenericFlags = LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable;
        pairs[i].Sym.Flags.TargetFlags = 0;
    }
    return LLVMOrcJITDylibDefine(dylib, LLVMOrcAbsoluteSymbols(pairs, LIBRARY_COUNT));
}

static dlc_status take_dylib(target_device *device, LLVMOrcJITDylibRef *dylib, lib_error *error) {
    cpu_loader *loader = device->loader;
    if (loader->idle_count > 0) {
        *dylib = loader->idle[--loader->idle_count];
        return DLC_OK;
    }
    if (loader->dylibs == loader->capacity) { /* room to give every dylib back without allocating */
        int capacity = loader->capacity ? 2 * loader->capacity : 16;
        size_t old = (size_t)loader->capacity * sizeof *loader->idle, size = (size_t)capacity * sizeof *loader->idle;
        LLVMOrcJITDylibRef *idle = lib_allocate(&device->allocator, size, sizeof(void *));
        if (!idle) return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for the code loader");
        if (old) memcpy(idle, loader->idle, old);
        lib_release(&device->allocator, loader->idle, old, sizeof(void *));
        loader->idle = idle;
        loader->capacity = capacity;
    }
    char name[32], message[256];
    snprintf(name, sizeof name, "module%d", loader->dylibs);
    *dylib = LLVMOrcExecutionSessionCreateBareJITDylib(loader->session, name);
    loader->dylibs++;
    LLVMErrorRef failure = define_library(loader, *dylib);
    if (!failure) return DLC_OK;
    take_message(failure, message, sizeof message);
    return lib_fail(error, DLC_COMPILE_FAILED, "LLVM ORC: %s", message);
}

/* ---- loading */

typedef struct lookup {
    target_module *module;
    char message[512];
    bool done, failed;
} lookup;

/* Symbols come back in any order: the name says which function it is. */
static void on_lookup(LLVMErrorRef failure, LLVMOrcCSymbolMapPairs result, size_t count, void *user) {
    lookup *l = user;
    l->done = true;
    if (failure) {
        l->failed = true;
        take_message(failure, l->message, sizeof l->message);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int kernel = -1, phase = -1;
        if (sscanf(LLVMOrcSymbolStringPoolEntryStr(result[i].Name), "dlc_k%d_p%d", &kernel, &phase) != 2) continue;
        l->module->function[l->module->first[kernel] + phase] = (target_phase_function)(uintptr_t)result[i].Sym.Address;
    }
}

static dlc_status resolve(target_device *device, target_module *module, LLVMOrcCLookupSetElement *names, int count,
                          const tir_kernel *const *kernels, lib_error *error) {
    cpu_loader *loader = device->loader;
    size_t at = 0;
    for (int k = 0; k < count; k++)
        for (uint32_t p = 0; p < kernels[k]->phases.count; p++) {
            char name[CPU_SYMBOL_MAX];
            cpu_symbol(name, k, (int)p);
            names[at].Name = LLVMOrcExecutionSessionIntern(loader->session, name);
            names[at++].LookupFlags = LLVMOrcSymbolLookupFlagsRequiredSymbol;
        }
    LLVMOrcCJITDylibSearchOrderElement order = {module->dylib, LLVMOrcJITDylibLookupFlagsMatchExportedSymbolsOnly};
    lookup l = {.module = module};
    LLVMOrcExecutionSessionLookup(loader->session, LLVMOrcLookupKindStatic, &order, 1, names, at, on_lookup, &l);
    if (l.done && !l.failed) return DLC_OK;
    return lib_fail(error, DLC_COMPILE_FAILED, "cannot load code: %s %s", l.message, loader->message);
}

static void unmap(cpu_loader *loader, target_module *module) {
    if (module->tracker) {
        LLVMErrorRef failure = LLVMOrcResourceTrackerRemove(module->tracker);
        if (failure) LLVMConsumeError(failure);
        LLVMOrcReleaseResourceTracker(module->tracker);
    }
    if (module->dylib) loader->idle[loader->idle_count++] = module->dylib;
    LLVMOrcSymbolStringPoolClearDeadEntries(LLVMOrcExecutionSessionGetSymbolStringPool(loader->session));
}

static dlc_status map_object(target_device *device, const target_object *object, target_module *module,
                             LLVMOrcCLookupSetElement *names, int count, const tir_kernel *const *kernels,
                             lib_error *error) {
    LIB_TRY(take_dylib(device, &module->dylib, error));
    module->tracker = LLVMOrcJITDylibCreateResourceTracker(module->dylib);
    LLVMMemoryBufferRef copy = LLVMCreateMemoryBufferWithMemoryRangeCopy(object->bytes, object->size, "dlc");
    LLVMErrorRef failure = LLVMOrcLLJITAddObjectFileWithRT(device->loader->jit, module->tracker, copy);
    if (failure) {
        char message[512];
        take_message(failure, message, sizeof message);
        return lib_fail(error, DLC_COMPILE_FAILED, "cannot add code: %s", message);
    }
    return resolve(device, module, names, count, kernels, error);
}

/* Lines of /tmp/perf-PID.map, read by `perf report`. Sizes are not known here: up to the next function. */
static void write_perf_map(const target_module *module, int count, const tir_kernel *const *kernels) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    FILE *file = fopen(path, "ae");
    if (!file) return;
    for (int k = 0; k < count; k++)
        for (uint32_t p = 0; p < kernels[k]->phases.count; p++) {
            uintptr_t start = (uintptr_t)module->function[module->first[k] + (int)p], next = start + module->bytes;
            for (int i = 0; i < module->functions; i++) {
                uintptr_t other = (uintptr_t)module->function[i];
                if (other > start && other < next) next = other;
            }
            fprintf(file, "%lx %lx %s_%d\n", (unsigned long)start, (unsigned long)(next - start), kernels[k]->name,
                    (int)p);
        }
    fclose(file);
}

dlc_status cpu_load(target_device *device, const target_object *object, int count, const tir_kernel *const *kernels,
                    target_module **result, lib_error *error) {
    size_t functions = 0;
    *result = NULL;
    for (int k = 0; k < count; k++) functions += kernels[k]->phases.count;
    size_t size = sizeof(target_module) + functions * sizeof(target_phase_function) + (size_t)count * sizeof(int);
    size_t names_size = functions * sizeof(LLVMOrcCLookupSetElement);
    target_module *module = lib_allocate_zeroed(&device->allocator, size, _Alignof(target_module));
    LLVMOrcCLookupSetElement *names = lib_allocate(&device->allocator, names_size, sizeof(void *));
    if (!module || !names) {
        lib_release(&device->allocator, module, size, _Alignof(target_module));
        lib_release(&device->allocator, names, names_size, sizeof(void *));
        return lib_fail(error, DLC_OUT_OF_MEMORY, "no memory for a module of %d kernels", count);
    }
    module->allocator = device->allocator;
    module->allocated = size;
    module->bytes = (object->size + 8191) / 4096 * 4096; /* code and data pages */
    module->function = (target_phase_function *)(module + 1);
    module->first = (int *)(module->function + functions);
    module->kernels = count;
    for (int k = 0; k < count; k++) {
        module->first[k] = module->functions;
        module->functions += (int)kernels[k]->phases.count;
    }
    lib_mutex_lock(&device->loader->lock);
    device->loader->message[0] = 0;
    dlc_status status = map_object(device, object, module, names, count, kernels, error);
    if (status != DLC_OK) unmap(device->loader, module);
    lib_mutex_unlock(&device->loader->lock);
    lib_release(&device->allocator, names, names_size, sizeof(void *));
    if (status != DLC_OK) {
        lib_release(&device->allocator, module, size, _Alignof(target_module));
        return status;
    }
    if (lib_environment_integer(LIB_ENV_PERF, 0) != 0) write_perf_map(module, count, kernels);
    *result = module;
    return DLC_OK;
}

target_phase cpu_phase(const target_module *module, int kernel, int phase) {
    return (target_phase){module->function[module->first[kernel] + phase], NULL};
}

void cpu_unload(target_device *device, target_module *module) {
    if (!module) return;
    lib_mutex_lock(&device->loader->lock);
    unmap(device->loader, module);
    lib_mutex_unlock(&device->loader->lock);
    lib_release(&device->allocator, module, module->allocated, _Alignof(target_module));
}

size_t cpu_module_bytes(const target_module *module) {
    return module->bytes + module->allocated + LOADER_BYTES;
}
