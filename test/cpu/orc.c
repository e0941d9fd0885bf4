/* Linking: objects made here by hand, and kernels. Every function of the C library is reached through its slot, what is not closed or not
 * independent of its place is refused, threads link at once, a forked child links on, refused memory is a status, and nothing grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "targets/cpu/image.h"

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNEL                                                                        \
    "kernel k(x: f64[40] arg, y: f64[40] arg)\n"                                      \
    "phase tasks=1 task=p { for i in 0..40 vec { y[i] = x[i]*2:f64 + exp(x[i]) } }\n" \
    "phase tasks=1 task=q { for i in 0..40 { y[i] = rem(y[i], 3:f64) + sin(x[i]) } }\n"

/* LLVM tells the process' unwinder of tables, by which it would reach memory that is gone: no object may have any. */
static int frames;
__attribute__((visibility("default"))) void __register_frame(void *table);
void __register_frame(void *table) {
    (void)table;
    frames++;
}
__attribute__((visibility("default"))) void __deregister_frame(void *table);
void __deregister_frame(void *table) {
    (void)table;
}

typedef struct fixture {
    target_device *device;
    tir_machine machine;
    lib_scope scope;
    lib_arena arena;
    tir_kernel *kernel, *empty;
    lib_error error;
} fixture;

static void open_with(fixture *f, const dlc_allocator *allocator) {
    target_options options = {.allocator = allocator};
    memset(f, 0, sizeof *f);
    assert_int_equal(target_cpu.open(&options, &f->device, &f->machine, &f->error), DLC_OK);
    lib_arena_init(&f->arena, &lib_libc_allocator, &f->scope);
    if (LIB_ENTER(&f->scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &f->arena, "test", KERNEL, sizeof KERNEL - 1);
        f->kernel = tir_kernel_parse(&f->arena, &lexer, NULL);
        f->empty = LIB_NEW(&f->arena, tir_kernel);
    } else {
        fail_msg("%s", f->scope.error.message);
    }
}

static void open_fixture(fixture *f) {
    open_with(f, &lib_libc_allocator);
}

static void close_fixture(fixture *f) {
    target_cpu.close(f->device);
    lib_arena_free(&f->arena);
    assert_int_equal(frames, 0);
}

/* ---- modules by hand: one kernel of one phase, which is any function */

typedef struct hand {
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMTypeRef f32, f64, i32, i64, pointer;
} hand;

static hand begin_module(void) {
    hand h = {.context = LLVMContextCreate()};
    h.module = LLVMModuleCreateWithNameInContext("hand", h.context);
    h.builder = LLVMCreateBuilderInContext(h.context);
    LLVMSetTarget(h.module, CPU_TRIPLE);
    h.f32 = LLVMFloatTypeInContext(h.context);
    h.f64 = LLVMDoubleTypeInContext(h.context);
    h.i32 = LLVMInt32TypeInContext(h.context);
    h.i64 = LLVMInt64TypeInContext(h.context);
    h.pointer = LLVMPointerTypeInContext(h.context, 0);
    return h;
}

/* dlc_k0_p0 hands its arguments to `callee` and gives back what that gives. */
static LLVMValueRef add_caller(hand *h, const char *callee, LLVMTypeRef result, int count, LLVMTypeRef *types) {
    LLVMTypeRef type = LLVMFunctionType(result, types, (unsigned)count, false);
    LLVMValueRef called = LLVMAddFunction(h->module, callee, type), arguments[4];
    LLVMValueRef caller = LLVMAddFunction(h->module, "dlc_k0_p0", type);
    LLVMAddAttributeAtIndex(caller, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(h->context, LLVMGetEnumAttributeKindForName("nounwind", 8), 0));
    LLVMPositionBuilderAtEnd(h->builder, LLVMAppendBasicBlockInContext(h->context, caller, ""));
    LLVMGetParams(caller, arguments);
    LLVMBuildRet(h->builder, LLVMBuildCall2(h->builder, type, called, arguments, (unsigned)count, ""));
    return caller;
}

/* The module's object; the module is gone then. */
static LLVMMemoryBufferRef end_module(fixture *f, hand *h) {
    LLVMMemoryBufferRef buffer = NULL;
    LLVMTargetMachineRef machine;
    char *message = NULL;
    const tir_kernel *kernels[] = {f->empty};
    if (!LIB_ENTER(&f->scope)) fail_msg("%s", f->scope.error.message);
    cpu_emit_table(f->device, &f->arena, h->module, h->builder, 1, kernels);
    assert_int_equal(LLVMVerifyModule(h->module, LLVMReturnStatusAction, &message), 0);
    LLVMDisposeMessage(message);
    const target_device *d = f->device;
    assert_int_equal(cpu_make_machine(d->cpu, d->attributes, &machine, &f->error), DLC_OK);
    assert_int_equal(LLVMTargetMachineEmitToMemoryBuffer(machine, h->module, LLVMObjectFile, &message, &buffer), 0);
    LLVMDisposeTargetMachine(machine);
    LLVMDisposeBuilder(h->builder);
    LLVMDisposeModule(h->module);
    LLVMContextDispose(h->context);
    return buffer;
}

typedef void (*any_function)(void);

/* The only function of the object, placed. */
static any_function link_and_load(fixture *f, LLVMMemoryBufferRef buffer, target_module **module) {
    target_object image;
    if (cpu_link(f->device, buffer, &image, &f->error) != DLC_OK) fail_msg("%s", f->error.message);
    if (target_cpu.load(f->device, &image, 1, NULL, module, &f->error) != DLC_OK) fail_msg("%s", f->error.message);
    target_cpu.release_object(f->device, &image);
    assert_int_equal(target_cpu.phases(*module, 0), 1);
    return (any_function)target_cpu.phase(*module, 0, 0).run;
}

/* ---- the C library's functions */

static const double points[] = {0.3, -0.7, 0.99, 0, -0.0, 0.5};
enum { POINTS = sizeof points / sizeof *points };

static void same(const char *name, const void *a, const void *b, size_t size) {
    if (memcmp(a, b, size) != 0) fail_msg("%s is not the C library's", name);
}

static void check_mathematics(fixture *f, const char *name, any_function library, int arity) {
    hand h = begin_module();
    target_module *module;
    add_caller(&h, name, h.f64, arity, (LLVMTypeRef[]){h.f64, h.f64, h.f64});
    any_function own = link_and_load(f, end_module(f, &h), &module);
    for (int i = 0; i < POINTS; i++) {
        double x = points[i], y = points[(i + 1) % POINTS], z = points[(i + 2) % POINTS], a, b;
        if (strcmp(name, "acosh") == 0) x += 2;
        if (strncmp(name, "log", 3) == 0) x = fabs(x) + 0.1;
        if (strcmp(name, "pow") == 0) x = fabs(x);
        if (arity == 1) {
            a = ((double (*)(double))own)(x);
            b = ((double (*)(double))library)(x);
        } else if (arity == 2) {
            y += 2;
            a = ((double (*)(double, double))own)(x, y);
            b = ((double (*)(double, double))library)(x, y);
        } else {
            a = ((double (*)(double, double, double))own)(x, y, z);
            b = ((double (*)(double, double, double))library)(x, y, z);
        }
        same(name, &a, &b, sizeof a);
    }
    target_cpu.unload(f->device, module);
}

static void check_single(fixture *f) {
    hand h = begin_module();
    target_module *module;
    add_caller(&h, "fmaf", h.f32, 3, (LLVMTypeRef[]){h.f32, h.f32, h.f32});
    float (*own)(float, float, float) = (float (*)(float, float, float))link_and_load(f, end_module(f, &h), &module);
    for (int i = 0; i + 2 < POINTS; i++) {
        float a = own((float)points[i], (float)points[i + 1], (float)points[i + 2]);
        float b = fmaf((float)points[i], (float)points[i + 1], (float)points[i + 2]);
        same("fmaf", &a, &b, sizeof a);
    }
    target_cpu.unload(f->device, module);
}

static void check_memory(fixture *f, const char *name, bool sets) {
    hand h = begin_module();
    target_module *module;
    char a[100], b[100];
    add_caller(&h, name, h.pointer, 3, (LLVMTypeRef[]){h.pointer, sets ? h.i32 : h.pointer, h.i64});
    any_function own = link_and_load(f, end_module(f, &h), &module);
    for (int i = 0; i < 100; i++) a[i] = b[i] = (char)i;
    void *result =
        sets ? ((void *(*)(void *, int, size_t))own)(a + 3, 77, 50)
             : ((void *(*)(void *, const void *, size_t))own)(a + 3, a + (strcmp(name, "memmove") ? 60 : 10), 30);
    assert_ptr_equal(result, a + 3);
    if (sets)
        memset(b + 3, 77, 50);
    else if (strcmp(name, "memmove") == 0)
        memmove(b + 3, b + 10, 30);
    else
        memcpy(b + 3, b + 60, 30);
    same(name, a, b, sizeof a);
    target_cpu.unload(f->device, module);
}

/* A local function named like the library's must not become a call of itself, whatever LLVM knows about the name. */
static void test_library(void **state) {
    (void)state;
    fixture f;
    static const struct {
        const char *name;
        any_function function;
    } all[] = {
#define X(name) {#name, (any_function)name},
        CPU_LIBRARY_TABLE(X)
#undef X
    };
    open_fixture(&f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *name = all[i].name;
        bool two = !strcmp(name, "fmod") || !strcmp(name, "pow") || !strcmp(name, "atan2");
        if (strncmp(name, "mem", 3) == 0)
            check_memory(&f, name, strcmp(name, "memset") == 0);
        else if (strcmp(name, "fmaf") == 0)
            check_single(&f);
        else
            check_mathematics(&f, name, all[i].function, strcmp(name, "fma") == 0 ? 3 : two ? 2 : 1);
    }
    close_fixture(&f);
}

/* ---- what is refused */

/* Nothing is looked up in the process, which has a getpid. */
static void test_open_objects(void **state) {
    (void)state;
    fixture f;
    target_module *module;
    target_object image;
    open_fixture(&f);
    for (int round = 0; round < 3; round++) {
        hand h = begin_module();
        add_caller(&h, "getpid", h.i32, 0, NULL);
        assert_int_equal(cpu_link(f.device, end_module(&f, &h), &image, &f.error), DLC_COMPILE_FAILED);
        assert_non_null(strstr(f.error.message, "getpid"));
        assert_null(image.bytes);
        h = begin_module(); /* the device links on */
        add_caller(&h, "exp", h.f64, 1, &h.f64);
        double (*own)(double) = (double (*)(double))link_and_load(&f, end_module(&f, &h), &module);
        assert_true(own(1) == exp(1));
        target_cpu.unload(f.device, module);
    }
    close_fixture(&f);
}

/* An absolute address in the data: two links differ. */
static void test_dependent_objects(void **state) {
    (void)state;
    fixture f;
    target_object image;
    open_fixture(&f);
    f.device->verify = true;
    for (int absolute = 0; absolute < 2; absolute++) {
        hand h = begin_module();
        LLVMValueRef caller = add_caller(&h, "exp", h.f64, 1, &h.f64);
        LLVMValueRef global = LLVMAddGlobal(h.module, h.pointer, "somewhere");
        LLVMSetInitializer(global, absolute ? caller : LLVMConstNull(h.pointer));
        dlc_status status = cpu_link(f.device, end_module(&f, &h), &image, &f.error);
        assert_int_equal(status, absolute ? DLC_INTERNAL : DLC_OK);
        if (absolute) assert_non_null(strstr(f.error.message, "depends on where"));
        target_cpu.release_object(f.device, &image);
    }
    close_fixture(&f);
}

/* What is no object at all. Such bytes never come here: the message only must be one. */
static void test_no_object(void **state) {
    (void)state;
    fixture f;
    target_object image;
    open_fixture(&f);
    LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy("not an object", 13, "none");
    assert_int_equal(cpu_link(f.device, buffer, &image, &f.error), DLC_COMPILE_FAILED);
    assert_true(strlen(f.error.message) > 10);
    assert_null(image.bytes);
    close_fixture(&f);
}

/* ---- kernels */

static bool runs(const target_module *module) {
    double x[40], y[40];
    void *buffers[] = {x, y};
    target_arguments arguments = {.buffers = buffers};
    for (int i = 0; i < 40; i++) x[i] = i * 0.25 - 5;
    for (int p = 0; p < 2; p++) target_cpu.phase(module, 0, p).run(&arguments, 0, 0, 1, 0, NULL);
    for (int i = 0; i < 40; i++)
        if (y[i] != fmod(x[i] * 2 + exp(x[i]), 3) + sin(x[i])) return false;
    return true;
}

static const char *compile_and_run(const fixture *f, lib_error *error) {
    const tir_kernel *kernels[] = {f->kernel};
    target_object image;
    target_module *module;
    if (target_cpu.compile(f->device, NULL, 1, kernels, &image, error) != DLC_OK) return "compile";
    dlc_status status = target_cpu.load(f->device, &image, 1, NULL, &module, error);
    target_cpu.release_object(f->device, &image);
    if (status != DLC_OK) return "load";
    bool right = runs(module);
    target_cpu.unload(f->device, module);
    return right ? NULL : "run";
}

static void *compile_often(void *user) {
    lib_error error;
    const char *failed = NULL;
    for (int i = 0; i < 25 && !failed; i++) failed = compile_and_run(user, &error);
    return (void *)(uintptr_t)failed;
}

static void *link_often(void *user) {
    fixture *f = user;
    lib_error error;
    const tir_kernel *kernels[] = {f->kernel};
    target_object first, image;
    if (target_cpu.compile(f->device, NULL, 1, kernels, &first, &error) != DLC_OK) return "compile";
    const char *failed = NULL;
    for (int i = 0; i < 25 && !failed; i++) {
        if (target_cpu.compile(f->device, NULL, 1, kernels, &image, &error) != DLC_OK) return "compile again";
        if (image.size != first.size || memcmp(image.bytes, first.bytes, image.size) != 0) failed = "bytes";
        target_cpu.release_object(f->device, &image);
    }
    target_cpu.release_object(f->device, &first);
    return (void *)(uintptr_t)failed;
}

/* A kernel without phases has one function that does nothing. */
static void test_empty_kernel(void **state) {
    (void)state;
    fixture f;
    target_object image;
    target_module *module;
    open_fixture(&f);
    lib_lexer lexer;
    if (!LIB_ENTER(&f.scope)) fail_msg("%s", f.scope.error.message);
    lib_lexer_init(&lexer, &f.arena, "test", "kernel nothing(x: f32[4] arg)\n", 30);
    const tir_kernel *kernels[] = {tir_kernel_parse(&f.arena, &lexer, NULL), f.kernel};
    assert_int_equal(target_cpu.compile(f.device, NULL, 2, kernels, &image, &f.error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &image, 2, NULL, &module, &f.error), DLC_OK);
    assert_true(target_cpu.phases(module, 0) == 1 && target_cpu.phases(module, 1) == 2);
    target_cpu.phase(module, 0, 0).run(NULL, 0, 0, 1, 0, NULL);
    target_cpu.unload(f.device, module);
    target_cpu.release_object(f.device, &image);
    close_fixture(&f);
}

/* The device's first link, by several at once, and all later ones. */
static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 8 };
    fixture f;
    pthread_t threads[THREADS];
    open_fixture(&f);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? link_often : compile_often, &f), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        if (failed) fail_msg("%s", (const char *)failed);
    }
    close_fixture(&f);
}

static void test_fork(void **state) {
    (void)state;
    fixture f;
    lib_error error;
    open_fixture(&f);
    const tir_kernel *kernels[] = {f.kernel};
    target_object image;
    target_module *module;
    assert_int_equal(target_cpu.compile(f.device, NULL, 1, kernels, &image, &error), DLC_OK);
    assert_int_equal(target_cpu.load(f.device, &image, 1, NULL, &module, &error), DLC_OK);
    const struct cpu_orc *session = f.device->orc;
    assert_non_null(session);
    pid_t child = fork();
    if (child == 0) {
        bool good = runs(module) && !compile_and_run(&f, &error) && f.device->orc != session;
        target_cpu.unload(f.device, module);
        target_cpu.close(f.device);
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_null(compile_and_run(&f, &error));
    assert_ptr_equal(f.device->orc, session);
    target_cpu.unload(f.device, module);
    target_cpu.release_object(f.device, &image);
    close_fixture(&f);
}

/* ---- memory */

typedef struct memory {
    int64_t blocks, bytes, calls, refused_call;
} memory;

static void *take(void *user, size_t size, size_t alignment) {
    memory *m = user;
    if (m->calls++ == m->refused_call) return NULL;
    void *pointer;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment, size) != 0) return NULL;
    m->blocks++;
    m->bytes += (int64_t)size;
    return pointer;
}

static void give(void *user, void *pointer, size_t size, size_t alignment) {
    memory *m = user;
    (void)alignment;
    if (!pointer) return;
    m->blocks--;
    m->bytes -= (int64_t)size;
    free(pointer);
}

/* Each allocation from opening to closing fails once: a status, and the next try succeeds; nothing stays. */
static void test_refused_memory(void **state) {
    (void)state;
    memory m = {.refused_call = -1};
    const dlc_allocator allocator = {.allocate = take, .release = give, .user = &m};
    int64_t refused = 0;
    for (int64_t site = 0; site < 1000; site++) {
        fixture f;
        m.refused_call = -1;
        open_with(&f, &allocator);
        m.calls = 0;
        m.refused_call = site;
        const char *failed = compile_and_run(&f, &f.error);
        bool reached = m.calls > site;
        if (failed) {
            if (strcmp(failed, "run") == 0 || f.error.status != DLC_OUT_OF_MEMORY)
                fail_msg("%s: %s", failed, f.error.message);
            refused++;
            assert_null(compile_and_run(&f, &f.error));
        }
        close_fixture(&f);
        assert_int_equal(m.blocks, 0);
        assert_int_equal(m.bytes, 0);
        if (!reached) break;
    }
    assert_true(refused >= 5); /* session, linker, block, image, module; arenas */
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* LLVM's memory is the C library's heap: after the first links it stays as it is. */
static void test_flat(void **state) {
    (void)state;
    fixture f;
    target_object image;
    target_module *module;
    open_fixture(&f);
    hand h = begin_module();
    add_caller(&h, "exp", h.f64, 1, &h.f64);
    LLVMMemoryBufferRef object = end_module(&f, &h);
    size_t before = 0, after;
    for (int i = 0; i < 22000; i++) {
        LLVMMemoryBufferRef copy =
            LLVMCreateMemoryBufferWithMemoryRangeCopy(LLVMGetBufferStart(object), LLVMGetBufferSize(object), "copy");
        assert_int_equal(cpu_link(f.device, copy, &image, &f.error), DLC_OK);
        assert_int_equal(target_cpu.load(f.device, &image, 1, NULL, &module, &f.error), DLC_OK);
        target_cpu.unload(f.device, module);
        target_cpu.release_object(f.device, &image);
        if (i == 2000) before = mallinfo2().uordblks;
    }
    after = mallinfo2().uordblks;
    if (after > before + 4096) fail_msg("20,000 links left %zu bytes", after - before);
    LLVMDisposeMemoryBuffer(object);
    close_fixture(&f);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_open_objects),
        cmocka_unit_test(test_no_object),
        cmocka_unit_test(test_dependent_objects),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_refused_memory),
        cmocka_unit_test(test_empty_kernel),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(test_flat),
#endif
    };
    return cmocka_run_group_tests_name("cpu linking", tests, NULL, NULL);
}
