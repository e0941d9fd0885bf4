/* Loop IR -> an object, which orc.c links into an image. Each call owns everything that it touches (context, module, target machine), so
 * any number of threads compile at once; a lock is held only while an idle target machine is taken or returned. No IR passes run:
 * instruction selection works on the emitter's output. */
#include "targets/cpu/cpu.h"
#include "tir/vectorise.h"

#include <pthread.h>
#include <stdio.h>

enum { OBJECT_ALIGNMENT = 64 };

typedef struct compilation {
    target_device *device;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMTargetMachineRef machine;
    lib_scope scope;
    lib_arena arena;
    /* last error LLVM reported */
    char diagnostic[512];
} compilation;

/* Code generation passes that take more than half of LLVM's time and find nothing in the emitter's output: addresses are already base +
 * index + constant with constant parts folded, equal values are shared, stores are as wide as possible, and values are at the loop level
 * of their operands; few scalars are large constants, compared in chains, chosen by branches, or passed to the C library. The machine
 * schedulers are off, so the emitter's order is kept; the one after register allocation is also quadratic in the length of a block. */
static const char *const options[] = {
    "dlc",
    "-enable-misched=0",
    "-disable-post-ra",
    "-combiner-store-merging=0",
    "-disable-lsr",
    "-disable-cgp",
    "-disable-constant-hoisting",
    "-disable-replace-with-vec-lib",
    "-disable-partial-libcall-inlining",
    "-disable-mergeicmps",
    "-disable-early-ifcvt",
    "-disable-machine-cse",
    "-disable-machine-licm",
    "-disable-postra-machine-licm",
    "-disable-machine-sink",
    "-disable-postra-machine-sink",
};

static void register_targets(void) {
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
#ifdef DLC_LLVM_STATIC /* options are process-wide: those of a host's shared LLVM are left alone */
    LLVMParseCommandLineOptions(sizeof options / sizeof *options, options, NULL);
#else
    (void)options;
#endif
}

/* LLVM has process-wide locks. A child that is forked while another thread is inside LLVM may find one locked for ever, so such a child
 * never enters LLVM. */
static lib_callers inside_llvm;

/* Must be called before any use of LLVM; lib_call_leave ends the use. DLC_UNSUPPORTED in such a child. */
static dlc_status enter_llvm(lib_call *call, lib_error *error) {
    if (lib_call_enter(call, &inside_llvm, LIB_STACK_UNKNOWN, 0, NULL) == DLC_OK) return DLC_OK;
    return lib_fail(error, DLC_UNSUPPORTED,
                    "this process was forked while another thread generated code: code is generated here by a context "
                    "with isolate_compiler only");
}

/* LLVM keeps its targets in a process-wide list, which must be filled once: `once` guards LLVM's state, not ours. */
void cpu_llvm_initialize(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    lib_call call;
    if (enter_llvm(&call, NULL) == DLC_OK) pthread_once(&once, register_targets);
    lib_call_leave(&call);
}

static void on_diagnostic(LLVMDiagnosticInfoRef info, void *user) {
    compilation *c = user;
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
    char *text = LLVMGetDiagInfoDescription(info);
    snprintf(c->diagnostic, sizeof c->diagnostic, "%s", text);
    LLVMDisposeMessage(text);
}

/* ---- target machines: half a millisecond to make, so idle ones are kept, at most one for each thread that compiled */

dlc_status cpu_make_machine(const char *cpu, const char *attributes, LLVMTargetMachineRef *machine, lib_error *error) {
    LLVMTargetRef target_ref;
    char *message = NULL;
    cpu_llvm_initialize();
    if (LLVMGetTargetFromTriple(CPU_TRIPLE, &target_ref, &message)) {
        lib_fail(error, DLC_COMPILE_FAILED, "LLVM has no target for %s: %s", CPU_TRIPLE, message ? message : "");
        LLVMDisposeMessage(message);
        return DLC_COMPILE_FAILED;
    }
    *machine = LLVMCreateTargetMachine(target_ref, CPU_TRIPLE, cpu, attributes, LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                       LLVMCodeModelSmall);
    if (*machine) return DLC_OK;
    return lib_fail(error, DLC_COMPILE_FAILED, "LLVM makes no code generator for %s", cpu);
}

/* While no device is open, no thread is inside LLVM. */
static atomic_int open_devices;

void cpu_compiler_open(target_device *device) {
    atomic_fetch_add(&open_devices, 1);
    lib_mutex_init(&device->machines_lock);
}

void cpu_compiler_close(target_device *device) {
    lib_call call;
    bool may = enter_llvm(&call, NULL) == DLC_OK;
    for (int i = 0; may && i < device->idle_machines; i++) LLVMDisposeTargetMachine(device->machines[i]);
    lib_call_leave(&call);
    lib_mutex_destroy(&device->machines_lock);
    atomic_fetch_sub(&open_devices, 1);
}

/* Frees the 71 KiB that the C++ library reserves for exceptions when memory is exhausted. NULL unless a C++ library is linked into
 * libdlc.so itself: any other one is the host's. */
extern void cpu_release_exceptions(void) __attribute__((weak, visibility("hidden")));

/* A host that unloads the library gets back the memory that LLVM and the C++ library hold for the process: LLVM allocates its options at
 * load time, whether or not it ever runs. */
__attribute__((destructor)) static void shut_llvm_down(void) {
    if (atomic_load(&open_devices) != 0) return;
#ifdef DLC_LLVM_STATIC
    LLVMShutdown();
#endif
    if (cpu_release_exceptions) cpu_release_exceptions();
}

static dlc_status take_machine(compilation *c, lib_error *error) {
    target_device *device = c->device;
    lib_mutex_lock(&device->machines_lock);
    if (device->idle_machines > 0) c->machine = device->machines[--device->idle_machines];
    lib_mutex_unlock(&device->machines_lock);
    return c->machine ? DLC_OK : cpu_make_machine(device->cpu, device->attributes, &c->machine, error);
}

static void give_machine(compilation *c) {
    target_device *device = c->device;
    lib_mutex_lock(&device->machines_lock);
    bool keep = device->idle_machines < CPU_IDLE_MACHINES;
    if (keep) device->machines[device->idle_machines++] = c->machine;
    lib_mutex_unlock(&device->machines_lock);
    if (!keep) LLVMDisposeTargetMachine(c->machine);
}

lib_hash128 cpu_code_identity(const target_device *device) {
    unsigned version[3] = {0};
    lib_hash128 hash = {LLVM_VERSION_MAJOR, 1};
    LLVMGetVersion(&version[0], &version[1], &version[2]); /* a shared LLVM may have been replaced */
#ifdef DLC_LLVM_STATIC
    hash.high++; /* the code generator gets options */
#endif
    hash = lib_hash_bytes(version, sizeof version, hash);
    hash = lib_hash_bytes(&device->features, sizeof device->features, hash);
    hash = lib_hash_bytes(device->cpu, strlen(device->cpu), hash);
    return lib_hash_bytes(device->attributes, strlen(device->attributes), hash);
}

/* ---- one compilation */

/* Is enough of the thread's stack left for LLVM? Threads with 96 to 192 KiB were enough for all graphs tried. */
static dlc_status check_stack(lib_error *error) {
    enum { NEEDED = 176 << 10 };
    const size_t left = lib_stack_left();
    if (left >= NEEDED) return DLC_OK;
    return lib_fail(error, DLC_OUT_OF_MEMORY,
                    "the thread's stack has %zu KiB left, generating code takes at least %d KiB", left >> 10,
                    NEEDED >> 10);
}

static dlc_status begin(compilation *c, target_device *device, lib_error *error) {
    *c = (compilation){.device = device};
    lib_arena_init(&c->arena, &device->allocator, &c->scope);
    LIB_TRY(check_stack(error));
    LIB_TRY(take_machine(c, error));
    c->context = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(c->context, on_diagnostic, c);
    c->module = LLVMModuleCreateWithNameInContext("dlc", c->context);
    c->builder = LLVMCreateBuilderInContext(c->context);
    LLVMSetTarget(c->module, CPU_TRIPLE);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(c->machine);
    LLVMSetModuleDataLayout(c->module, layout);
    LLVMDisposeTargetData(layout);
    return DLC_OK;
}

static void end(compilation *c) {
    if (c->builder) LLVMDisposeBuilder(c->builder);
    if (c->module) LLVMDisposeModule(c->module);
    if (c->context) LLVMContextDispose(c->context);
    if (c->machine) give_machine(c);
    lib_arena_free(&c->arena);
}

/* Opens the scope of the emitter; no frame of LLVM is between it and lib_raise. */
static dlc_status emit_kernels(compilation *c, int count, const tir_kernel *const *kernels, lib_error *error) {
    if (LIB_ENTER(&c->scope)) {
        for (int i = 0; i < count; i++) cpu_emit(c->device, &c->arena, c->module, c->builder, kernels[i], i);
        cpu_emit_table(c->device, &c->arena, c->module, c->builder, count, kernels);
        return DLC_OK;
    }
    if (error) *error = c->scope.error;
    return c->scope.error.status;
}

static dlc_status verify(compilation *c, lib_error *error) {
    char *message = NULL;
    dlc_status status = DLC_OK;
    if (LLVMVerifyModule(c->module, LLVMReturnStatusAction, &message))
        status = lib_fail(error, DLC_INTERNAL, "LLVM IR is not valid: %s", message);
    LLVMDisposeMessage(message);
    return status;
}

static dlc_status generate(compilation *c, LLVMCodeGenFileType kind, LLVMMemoryBufferRef *buffer, lib_error *error) {
    char *message = NULL;
    *buffer = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(c->machine, c->module, kind, &message, buffer) || c->diagnostic[0]) {
        lib_fail(error, DLC_COMPILE_FAILED, "LLVM: %s", message ? message : c->diagnostic);
        LLVMDisposeMessage(message);
        if (*buffer) LLVMDisposeMemoryBuffer(*buffer);
        *buffer = NULL;
        return DLC_COMPILE_FAILED;
    }
    return DLC_OK;
}

static dlc_status build(compilation *c, target_device *device, int count, const tir_kernel *const *kernels,
                        lib_error *error) {
    LIB_TRY(begin(c, device, error));
    LIB_TRY(emit_kernels(c, count, kernels, error));
    return device->verify ? verify(c, error) : DLC_OK;
}

dlc_status cpu_compile(target_device *device, const target_budget *budget, int count, const tir_kernel *const *kernels,
                       target_object *object, lib_error *error) {
    if (device->isolation) return cpu_compile_isolated(device, budget, count, kernels, object, error);
    return cpu_compile_here(device, count, kernels, NULL, object, error);
}

dlc_status cpu_compile_here(target_device *device, int count, const tir_kernel *const *kernels, cpu_inspect *inspect,
                            target_object *object, lib_error *error) {
    compilation c;
    LLVMMemoryBufferRef buffer = NULL;
    lib_call call __attribute__((cleanup(lib_call_leave)));
    *object = (target_object){0};
    LIB_TRY(enter_llvm(&call, error));
    dlc_status status = build(&c, device, count, kernels, error);
    if (status == DLC_OK && inspect) inspect(c.module);
    if (status == DLC_OK) status = generate(&c, LLVMObjectFile, &buffer, error);
    end(&c);
    return status == DLC_OK ? cpu_link(device, buffer, object, error) : status;
}

void *cpu_allocate_object(target_device *device, size_t size, target_object *object) {
    void *bytes = lib_allocate(&device->allocator, size + 1, OBJECT_ALIGNMENT);
    *object = (target_object){.bytes = bytes, .size = bytes ? size : 0, .owner = bytes};
    return bytes;
}

void cpu_release_object(target_device *device, target_object *object) {
    if (object->owner) lib_release(&device->allocator, object->owner, object->size + 1, OBJECT_ALIGNMENT);
    *object = (target_object){0};
}

/* ---- dumps */

static int count_of(const char *text, const char *word) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word)) count++;
    return count;
}

static dlc_status dump_vectors(target_device *device, const tir_kernel *kernel, lib_text *text, lib_error *error) {
    lib_scope *outer = text->arena->scope, scope;
    text->arena->scope = &scope;
    if (LIB_ENTER(&scope)) tir_kernel_print(text, tir_vectorise(text->arena, kernel, &device->machine));
    text->arena->scope = outer;
    return scope.error.status == DLC_OK ? DLC_OK : lib_fail(error, scope.error.status, "%s", scope.error.message);
}

dlc_status cpu_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                    lib_error *error) {
    if (what == TARGET_DUMP_VECTORS) return dump_vectors(device, kernel, text, error);
    if (device->isolation) return cpu_dump_isolated(device, kernel, what, text, error);
    return cpu_dump_here(device, kernel, what, text, error);
}

static dlc_status dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                       lib_error *error) {
    compilation c;
    LLVMMemoryBufferRef buffer = NULL;
    if (what != TARGET_DUMP_LLVM && what != TARGET_DUMP_ASSEMBLY)
        return lib_fail(error, DLC_UNSUPPORTED, "the cpu target has no such dump");
    dlc_status status = build(&c, device, 1, &kernel, error);
    char *printed = NULL;
    if (status == DLC_OK && what == TARGET_DUMP_LLVM) printed = LLVMPrintModuleToString(c.module);
    if (status == DLC_OK && what == TARGET_DUMP_ASSEMBLY) {
        LLVMSetTargetMachineAsmVerbosity(c.machine, true);
        status = generate(&c, LLVMAssemblyFile, &buffer, error);
        LLVMSetTargetMachineAsmVerbosity(c.machine, false);
        if (status == DLC_OK) printed = LLVMCreateMessage(LLVMGetBufferStart(buffer));
    }
    end(&c);
    if (buffer) LLVMDisposeMemoryBuffer(buffer);
    if (!printed) return status;
    lib_scope *outer = text->arena->scope, scope;
    text->arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        if (what == TARGET_DUMP_ASSEMBLY)
            lib_text_format(text, "# %s: %d spills, %d reloads\n", kernel->name, count_of(printed, "Spill\n"),
                            count_of(printed, "Reload\n"));
        lib_text_add(text, printed);
    } else {
        status = scope.error.status;
        if (error) *error = scope.error;
    }
    text->arena->scope = outer;
    LLVMDisposeMessage(printed);
    return status;
}

dlc_status cpu_dump_here(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                         lib_error *error) {
    lib_call call;
    LIB_TRY(enter_llvm(&call, error));
    dlc_status status = dump(device, kernel, what, text, error);
    lib_call_leave(&call);
    return status;
}
