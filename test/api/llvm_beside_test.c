/* Other LLVMs in the process of the host: two other major versions, loaded before and after libdlc, their symbols global, compile and
 * run code of their own, and so does libdlc, in any order. Each order runs in a child, which starts without any of them in use. Where the
 * machine has fewer than two, that is skipped, with DLC_TEST_ALL a failure. */
#include "support.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const libraries[] = {"libLLVM-13.so.1", "libLLVM-14.so.1",    "libLLVM-15.so.1",
                                        "libLLVM-16.so.1", "libLLVM-17.so.17.0", "libLLVM.so.18.1",
                                        "libLLVM.so.20.1", "libLLVM.so.21.1",    "libLLVM.so.22.1"};
enum { LIBRARIES = sizeof libraries / sizeof *libraries, WANTED = 2 };

/* The few functions of LLVM's C API that this takes; opaque pointers stand for its handles. */
static void *address(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "no %s\n", name), _exit(3);
    return found;
}
#define CALL(type, name, parameters, ...) ((type(*) parameters)(uintptr_t)address(library, name))(__VA_ARGS__)

/* int64_t add(int64_t a, int64_t b), made and run by the foreign LLVM. */
static bool foreign_works(void *library) {
    void *module = CALL(void *, "LLVMModuleCreateWithName", (const char *), "foreign"), *engine = NULL;
    void *i64 = CALL(void *, "LLVMInt64Type", (void), ), *parameters[] = {i64, i64};
    char *error = NULL;
    CALL(void, "LLVMInitializeX86TargetInfo", (void), );
    CALL(void, "LLVMInitializeX86Target", (void), );
    CALL(void, "LLVMInitializeX86TargetMC", (void), );
    CALL(void, "LLVMInitializeX86AsmPrinter", (void), );
    CALL(void, "LLVMLinkInMCJIT", (void), );
    void *type = CALL(void *, "LLVMFunctionType", (void *, void **, unsigned, int), i64, parameters, 2, 0);
    void *function = CALL(void *, "LLVMAddFunction", (void *, const char *, void *), module, "add", type);
    void *block = CALL(void *, "LLVMAppendBasicBlock", (void *, const char *), function, "entry");
    void *builder = CALL(void *, "LLVMCreateBuilder", (void), );
    CALL(void, "LLVMPositionBuilderAtEnd", (void *, void *), builder, block);
    void *a = CALL(void *, "LLVMGetParam", (void *, unsigned), function, 0);
    void *b = CALL(void *, "LLVMGetParam", (void *, unsigned), function, 1);
    void *sum = CALL(void *, "LLVMBuildAdd", (void *, void *, void *, const char *), builder, a, b, "sum");
    CALL(void *, "LLVMBuildRet", (void *, void *), builder, sum);
    CALL(void, "LLVMDisposeBuilder", (void *), builder);
    if (CALL(int, "LLVMCreateExecutionEngineForModule", (void **, void *, char **), &engine, module, &error)) {
        fprintf(stderr, "%s\n", error ? error : "no engine");
        return false;
    }
    uint64_t code = CALL(uint64_t, "LLVMGetFunctionAddress", (void *, const char *), engine, "add");
    bool works = code && ((int64_t(*)(int64_t, int64_t))(uintptr_t)code)(40, 2) == 42;
    CALL(void, "LLVMDisposeExecutionEngine", (void *), engine);
    return works;
}

/* A new kernel for each n. */
static bool ours_works(int64_t n) {
    float x[16 * 8], y[16 * 4];
    double expected[16 * 4];
    tensor in, out;
    dlc_context *context = open_context("cpu", NULL);
    if (!context) return false;
    dlc_program *program = dense_program(context, "n");
    dlc_output_slot slot = {F32(&out, y, n, 4), NULL};
    fill(x, sizeof x / sizeof *x, 7);
    bool works = dlc_run(program, NULL, (const DLTensor *[]){F32(&in, x, n, 8)}, 1, &slot, 1) == DLC_OK;
    works = works && statistics(context).interpreted_regions == 0;
    dense_reference(x, n, expected);
    for (int64_t i = 0; works && i < n * 4; i++) works = fabs(y[i] - expected[i]) < 1e-5;
    dlc_program_destroy(program);
    dlc_context_destroy(context);
    return works;
}

/* The exit status of a child: 0 works, 1 does not, 2 too few versions here, 3 a function is missing. */
static int in_order(bool foreign_first) {
    void *handle[WANTED];
    int found = 0;
    if (!foreign_first && !ours_works(3)) return 1;
    for (int i = 0; i < LIBRARIES && found < WANTED; i++)
        if ((handle[found] = dlopen(libraries[i], RTLD_NOW | RTLD_GLOBAL))) found++;
    if (found < WANTED) return 2;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < WANTED; i++)
            if (!foreign_works(handle[i]) || !ours_works(4 + 2 * round + i)) return 1;
    }
    return 0;
}

static void in_child(bool foreign_first) {
    int status;
    dlc_context *context = open_context("cpu", NULL);
    dlc_context_destroy(context);
#ifdef __SANITIZE_THREAD__
    context = NULL; /* knows nothing of code that others make */
#endif
    if (!context) skip();
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(in_order(foreign_first));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2 && !getenv("DLC_TEST_ALL")) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_loaded_before(void **state) {
    (void)state;
    in_child(true);
}
static void test_loaded_after(void **state) {
    (void)state;
    in_child(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loaded_before), cmocka_unit_test(test_loaded_after)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
