/* Completes a module so that its object has no undefined symbol. For each function of the C library that code calls, or LLVM calls for an
 * intrinsic, a local function of that name jumps through an import slot; a table holds the positions of functions and slots (image.h), as
 * distances that are valid wherever the image is placed. */
#include "targets/cpu/image.h"

static const char *const library_names[] = {
#define X(name) #name,
    CPU_LIBRARY_TABLE(X)
#undef X
};

typedef struct closing {
    const target_device *device;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMTypeRef i32, i64, pointer;
    LLVMValueRef table;
    lib_arena *arena;
    lib_vec(LLVMValueRef) word;
} closing;

/* ---- functions of the library */

static void declare(closing *c, cpu_library number, LLVMTypeRef result, LLVMTypeRef types[3]) {
    if (LLVMGetNamedFunction(c->module, library_names[number])) return;
    LLVMAddFunction(c->module, library_names[number], LLVMFunctionType(result, types, 3, false));
}

static bool uses(const closing *c, const char *prefix) {
    for (LLVMValueRef f = LLVMGetFirstFunction(c->module); f; f = LLVMGetNextFunction(f)) {
        size_t length;
        if (strncmp(LLVMGetValueName2(f, &length), prefix, strlen(prefix)) == 0) return true;
    }
    return false;
}

/* Declares the library functions that LLVM calls for intrinsics, since these calls appear in no IR. */
static void declare_implied(closing *c) {
    LLVMContextRef context = LLVMGetModuleContext(c->module);
    LLVMTypeRef f64 = LLVMDoubleTypeInContext(context), f32 = LLVMFloatTypeInContext(context);
    if (uses(c, "llvm.memset."))
        declare(c, CPU_LIBRARY_memset, c->pointer, (LLVMTypeRef[]){c->pointer, c->i32, c->i64});
    if (uses(c, "llvm.memcpy."))
        declare(c, CPU_LIBRARY_memcpy, c->pointer, (LLVMTypeRef[]){c->pointer, c->pointer, c->i64});
    if (uses(c, "llvm.memmove."))
        declare(c, CPU_LIBRARY_memmove, c->pointer, (LLVMTypeRef[]){c->pointer, c->pointer, c->i64});
    if (!c->device->machine.fma && uses(c, "llvm.fma.")) {
        declare(c, CPU_LIBRARY_fma, f64, (LLVMTypeRef[]){f64, f64, f64});
        declare(c, CPU_LIBRARY_fmaf, f32, (LLVMTypeRef[]){f32, f32, f32});
    }
}

/* Gives the library function a body, a jump through its slot, which is returned. LLVM never takes an indirect call for one of the library's
 * function, so that the function cannot become a call of itself. */
static LLVMValueRef define(closing *c, LLVMValueRef function, const char *name) {
    LLVMContextRef context = LLVMGetModuleContext(c->module);
    LLVMTypeRef type = LLVMGlobalGetValueType(function);
    LLVMValueRef arguments[4];
    LLVMValueRef slot = LLVMAddGlobal(c->module, c->pointer, lib_arena_format(c->arena, "dlc_slot_%s", name));
    LLVMSetInitializer(slot, LLVMConstNull(c->pointer));
    LLVMSetLinkage(slot, LLVMInternalLinkage);
    LLVMSetLinkage(function, LLVMInternalLinkage);
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(context, LLVMGetEnumAttributeKindForName("nounwind", 8), 0));
    LLVMPositionBuilderAtEnd(c->builder, LLVMAppendBasicBlockInContext(context, function, ""));
    LLVMGetParams(function, arguments);
    LLVMValueRef address = LLVMBuildLoad2(c->builder, c->pointer, slot, "");
    LLVMValueRef result = LLVMBuildCall2(c->builder, type, address, arguments, LLVMCountParams(function), "");
    LLVMSetTailCallKind(result, LLVMTailCallKindMustTail);
    LLVMBuildRet(c->builder, result);
    return slot;
}

/* ---- the table */

static void add(closing *c, LLVMValueRef word) {
    lib_vec_push(c->arena, &c->word, word);
}

static void add_number(closing *c, int number) {
    add(c, LLVMConstInt(c->i32, (unsigned long long)number, true));
}

static void add_distance(closing *c, LLVMValueRef to) {
    LLVMValueRef from = LLVMConstPtrToInt(c->table, c->i64);
    add(c, LLVMConstTrunc(LLVMConstSub(LLVMConstPtrToInt(to, c->i64), from), c->i32));
}

static int add_imports(closing *c) {
    int imports = 0;
    for (int number = 0; number < CPU_LIBRARY_COUNT; number++) {
        LLVMValueRef function = LLVMGetNamedFunction(c->module, library_names[number]);
        if (!function) continue;
        add_number(c, number);
        add_distance(c, define(c, function, library_names[number]));
        imports++;
    }
    return imports;
}

/* Number of a kernel's functions, at least 1: cpu_emit makes one for a kernel without phases, too. */
static int functions_of(const tir_kernel *kernel) {
    return kernel->phases.count ? (int)kernel->phases.count : 1;
}

static void add_functions(closing *c, int count, const tir_kernel *const *kernels) {
    int functions = 0;
    char name[CPU_SYMBOL_MAX];
    for (int k = 0; k <= count; k++) {
        add_number(c, functions);
        if (k < count) functions += functions_of(kernels[k]);
    }
    for (int k = 0; k < count; k++)
        for (int p = 0; p < functions_of(kernels[k]); p++) {
            cpu_symbol(name, k, p);
            LLVMValueRef function = LLVMGetNamedFunction(c->module, name);
            LLVMSetLinkage(function, LLVMInternalLinkage);
            add_distance(c, function);
        }
}

/* The table's type depends on its contents, which refer to it: a preliminary global is replaced by one of the right type. */
void cpu_emit_table(const target_device *device, lib_arena *arena, LLVMModuleRef module, LLVMBuilderRef builder,
                    int count, const tir_kernel *const *kernels) {
    LLVMContextRef context = LLVMGetModuleContext(module);
    closing c = {.device = device, .module = module, .builder = builder, .arena = arena};
    c.i32 = LLVMInt32TypeInContext(context);
    c.i64 = LLVMInt64TypeInContext(context);
    c.pointer = LLVMPointerTypeInContext(context, 0);
    LLVMValueRef first = c.table = LLVMAddGlobal(module, c.i32, "");
    add_number(&c, count);
    add_number(&c, 0);
    declare_implied(&c);
    int imports = add_imports(&c);
    c.word.data[1] = LLVMConstInt(c.i32, (unsigned long long)imports, false);
    add_functions(&c, count, kernels);
    c.table = LLVMAddGlobal(module, LLVMArrayType2(c.i32, c.word.count), CPU_TABLE_SYMBOL);
    LLVMSetInitializer(c.table, LLVMConstArray2(c.i32, c.word.data, c.word.count));
    LLVMSetGlobalConstant(c.table, true);
    LLVMSetAlignment(c.table, sizeof(int32_t));
    LLVMReplaceAllUsesWith(first, c.table);
    LLVMDeleteGlobal(first);
}
