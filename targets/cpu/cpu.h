/* Declarations shared by the files of the cpu target. machine.c states facts, rules.c schedules, emit*.c turn loop IR into LLVM IR,
 * compile.c that into an object, orc.c the object into an image, image.c that into callable code; cpu.c combines them into a `target`. */
#ifndef TARGETS_CPU_CPU_H
#define TARGETS_CPU_CPU_H

#include "targets/cpu/llvm_shim.h"
#include "targets/target.h"

#include <stdatomic.h>

/* Instruction-set levels; each includes the ones before. */
typedef enum cpu_level { CPU_BASE, CPU_AVX2, CPU_AVX512 } cpu_level;

/* Features that the emitter may use. All of them are also in the feature string given to LLVM. */
typedef struct cpu_features {
    cpu_level level;
    /* false: the emitter uses no x86 intrinsics */
    bool x86;
    /* roundps, roundpd, roundss and roundsd */
    bool sse41;
    /* vcvtph2ps, vcvtps2ph */
    bool f16c;
    bool avx512bf16;
    /* vpdpbusd, of the widths of the level */
    bool vnni;
} cpu_features;

#define CPU_IDLE_MACHINES 16

/* Target triple for LLVM; other architectures are not supported. */
#if defined(__x86_64__)
#define CPU_TRIPLE "x86_64-pc-linux-gnu"
#elif defined(__aarch64__)
#define CPU_TRIPLE "aarch64-unknown-linux-gnu"
#else
#define CPU_TRIPLE "unknown"
#endif

/* Immutable after open, except the idle machines (under their lock) and atomic members. */
struct target_device {
    dlc_allocator allocator;
    lib_log log;
    cpu_features features;
    tir_machine machine;
    /* name given to LLVM */
    char cpu[64];
    /* feature string given to LLVM */
    char attributes[4096];
    bool verify;
    /* kernels have no cancellation checks */
    bool no_polls;
    /* NULL: code is generated in this process */
    struct cpu_isolation *isolation;
    lib_mutex machines_lock;
    int idle_machines;
    /* idle code generators */
    LLVMTargetMachineRef machines[CPU_IDLE_MACHINES];
    /* measured at the first request for nanoseconds; 0: not yet */
    atomic_uint clock_mhz;
    /* Links objects (orc.c); NULL before the first link. */
    struct cpu_orc *_Atomic orc;
};

/* machine.c: facts of the machine at hand, and the code generator's name and features for it. */
void cpu_detect(target_device *device);

/* rules.c */
void cpu_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule);

/* emit.c: adds the functions of one kernel to a module. Runs in `arena`'s scope; phase p becomes cpu_symbol(kernel, p).
 */
void cpu_emit(const target_device *device, lib_arena *arena, LLVMModuleRef module, LLVMBuilderRef builder,
              const tir_kernel *kernel, int index);
#define CPU_SYMBOL_MAX 48
void cpu_symbol(char *name, int kernel, int phase); /* "dlc_k0_p1" */

/* emit_image.c: completes a module that has all its kernels, so that its object has no undefined symbol. In `arena`'s scope. */
void cpu_emit_table(const target_device *device, lib_arena *arena, LLVMModuleRef module, LLVMBuilderRef builder,
                    int count, const tir_kernel *const *kernels);

/* compile.c */
lib_hash128 cpu_code_identity(const target_device *device);
dlc_status cpu_compile(target_device *device, const target_budget *budget, int count, const tir_kernel *const *kernels,
                       target_object *object, lib_error *error);
void cpu_release_object(target_device *device, target_object *object);
dlc_status cpu_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                    lib_error *error);
/* Compile and dump in this process. `inspect` (may be NULL) is called with the module before code is generated. */
typedef void cpu_inspect(LLVMModuleRef module);
dlc_status cpu_compile_here(target_device *device, int count, const tir_kernel *const *kernels, cpu_inspect *inspect,
                            target_object *object, lib_error *error);
dlc_status cpu_dump_here(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                         lib_error *error);
void cpu_compiler_open(target_device *device);
void cpu_compiler_close(target_device *device);
/* Initialises LLVM's process-wide state, once. Called only in a process that generates code, never in a host with isolate_compiler. */
void cpu_llvm_initialize(void);
/* Creates a code generator; initialises LLVM first. */
dlc_status cpu_make_machine(const char *cpu, const char *attributes, LLVMTargetMachineRef *machine, lib_error *error);
/* Allocates the bytes of an object from the device's allocator: `size`, and one more for the 0 after a message. NULL: out of memory. */
void *cpu_allocate_object(target_device *device, size_t size, target_object *object);

/* orc.c: links an object without undefined symbols into an image. Takes ownership of the buffer. */
dlc_status cpu_link(target_device *device, LLVMMemoryBufferRef buffer, target_object *image, lib_error *error);
void cpu_orc_close(target_device *device);

/* isolate.c: code generation in another process. */
dlc_status cpu_isolation_open(target_device *device, const char *path, lib_error *error);
void cpu_isolation_close(target_device *device);
dlc_status cpu_compile_isolated(target_device *device, const target_budget *budget, int count,
                                const tir_kernel *const *kernels, target_object *object, lib_error *error);
dlc_status cpu_dump_isolated(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                             lib_error *error);

/* serve.c: the main function of the process that isolate.c starts. `inspect`: as for cpu_compile_here. */
int cpu_serve(cpu_inspect *inspect);
int cpu_serve_plainly(void);

/* image.c */
dlc_status cpu_load(target_device *device, const target_object *object, int count, const char *const *names,
                    target_module **module, lib_error *error);
int cpu_phases(const target_module *module, int kernel);
target_phase cpu_phase(const target_module *module, int kernel, int phase);
void cpu_unload(target_device *device, target_module *module);
size_t cpu_module_bytes(const target_module *module);

#endif
