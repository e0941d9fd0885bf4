/* Host functions of any C signature as custom functions: the signature's text gives the source of each parameter, libffi makes
 * the call. A call allocates nothing. */
#include "jit/jit.h"

#include <ffi.h>

enum { PARAMETERS_MAX = 24 };

typedef enum source { SOURCE_INPUT, SOURCE_OUTPUT, SOURCE_USER, SOURCE_DIM, SOURCE_COUNT, SOURCE_NUMBER } source;

typedef union native_value {
    void *pointer;
    int32_t i32;
    int64_t i64;
    float f32;
    double f64;
} native_value;

typedef struct parameter {
    source source;
    /* 'p'ointer, 'i' i32, 'l' i64, 'f' f32, 'd' f64 */
    char type;
    /* INPUT, OUTPUT, DIM, COUNT */
    int64_t tensor;
    /* DIM */
    int64_t axis;
    /* NUMBER of a float type */
    double number;
    /* NUMBER of an integer type */
    int64_t integer;
} parameter;

struct dlc_native {
    /* the `user` of host functions */
    graph_holder holder;
    /* retained */
    dlc_context *context;
    /* of the host, and of each graph and program that may call the function */
    atomic_int references;
    void (*function)(void);
    void *user;
    int count;
    parameter parameter[PARAMETERS_MAX];
    ffi_type *type[PARAMETERS_MAX];
    ffi_cif cif;
};

static const struct {
    const char *name;
    char letter;
    ffi_type *ffi;
} types[] = {
    {"i32", 'i', &ffi_type_sint32},
    {"i64", 'l', &ffi_type_sint64},
    {"f32", 'f', &ffi_type_float},
    {"f64", 'd', &ffi_type_double},
};

/* ---- signature ----------------------------------------------------------------------------------------------------- */

static int64_t parse_number(lib_lexer *lexer) {
    int64_t number = lib_lexer_integer(lexer);
    if (number < 0) lib_lexer_raise(lexer, "%lld is no number of a tensor or axis", (long long)number);
    return number;
}

/* Is the integer one of the parameter's type? */
static bool fits(const parameter *p, int64_t integer) {
    return p->type != 'i' || integer == (int32_t)integer;
}

/* Parses a number, `dim INPUT AXIS` or `count INPUT`, which follows the type. */
static void parse_value(lib_lexer *lexer, parameter *p) {
    if (lib_lexer_accept(lexer, "dim")) {
        p->source = SOURCE_DIM;
        p->tensor = parse_number(lexer);
        p->axis = parse_number(lexer);
    } else if (lib_lexer_accept(lexer, "count")) {
        p->source = SOURCE_COUNT;
        p->tensor = parse_number(lexer);
    } else {
        p->source = SOURCE_NUMBER;
        if (p->type == 'f' || p->type == 'd')
            p->number = lib_lexer_number(lexer);
        else
            p->integer = lib_lexer_integer(lexer);
        if (!fits(p, p->integer)) lib_lexer_raise(lexer, "%lld is no i32", (long long)p->integer);
    }
}

static ffi_type *parse_parameter(lib_lexer *lexer, parameter *p) {
    p->type = 'p';
    if (lib_lexer_accept(lexer, "in") || lib_lexer_is(lexer, "out")) {
        p->source = lib_lexer_accept(lexer, "out") ? SOURCE_OUTPUT : SOURCE_INPUT;
        p->tensor = parse_number(lexer);
        return &ffi_type_pointer;
    }
    if (lib_lexer_accept(lexer, "user")) {
        p->source = SOURCE_USER;
        return &ffi_type_pointer;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (lib_lexer_accept(lexer, types[i].name)) {
            p->type = types[i].letter;
            parse_value(lexer, p);
            return types[i].ffi;
        }
    lib_lexer_raise(lexer, "expected in, out, user, i32, i64, f32 or f64");
}

static void parse_signature(dlc_native *native, lib_arena *arena, const char *signature) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "<signature>", signature, strlen(signature));
    lib_lexer_next(&lexer);
    while (lexer.kind != LIB_END) {
        if (native->count) lib_lexer_expect(&lexer, ",");
        if (native->count == PARAMETERS_MAX) lib_lexer_raise(&lexer, "more than %d parameters", PARAMETERS_MAX);
        native->type[native->count] = parse_parameter(&lexer, &native->parameter[native->count]);
        native->count++;
    }
    if (ffi_prep_cif(&native->cif, FFI_DEFAULT_ABI, (unsigned)native->count, &ffi_type_void, native->type) != FFI_OK)
        lib_raise(arena->scope, DLC_UNSUPPORTED, "libffi cannot call a function of the signature \"%s\"", signature);
}

static void keep_holder(graph_holder *holder) {
    atomic_fetch_add(&((dlc_native *)(void *)holder)->references, 1);
}

static void release_holder(graph_holder *holder) {
    dlc_native *native = (dlc_native *)(void *)holder;
    if (atomic_fetch_sub(&native->references, 1) != 1) return;
    dlc_context *context = native->context;
    lib_release(&context->allocator, native, sizeof *native, _Alignof(dlc_native));
    jit_context_release(context);
}

dlc_status dlc_native_create(dlc_context *context, void (*function)(void), void *user, const char *signature,
                             dlc_native **out) {
    lib_scope scope;
    lib_arena arena;
    if (out) *out = NULL;
    if (!context || !function || !signature || !out) {
        lib_fail(&scope.error, DLC_INVALID_ARGUMENT,
                 "dlc_native_create: context, function, signature or the place for it is NULL");
        return jit_fail(context, &scope.error);
    }
    GRAPH_CALL(context, LIB_STACK_CALL);
    dlc_native *native = lib_allocate_zeroed(&context->allocator, sizeof *native, _Alignof(dlc_native));
    if (!native) {
        lib_fail(&scope.error, DLC_OUT_OF_MEMORY, "dlc_native_create: %zu bytes were refused", sizeof *native);
        return jit_fail(context, &scope.error);
    }
    native->holder = (graph_holder){.keep = keep_holder, .release = release_holder};
    native->context = context;
    jit_context_keep(context);
    atomic_init(&native->references, 1);
    native->function = function;
    native->user = user;
    lib_arena_init(&arena, &context->allocator, &scope);
    if (LIB_ENTER(&scope)) parse_signature(native, &arena, signature);
    lib_arena_free(&arena);
    if (scope.error.status == DLC_OK) {
        *out = native;
        return DLC_OK;
    }
    dlc_native_destroy(native);
    return jit_fail(context, &scope.error);
}

void dlc_native_destroy(dlc_native *native) {
    lib_call call;
    if (!native) return;
    dlc_context *context = native->context;
    if (!graph_call_to_destroy(context, &call)) return;
    release_holder(&native->holder);
    graph_call_destroyed(context, &call);
}

graph_holder *graph_context_holder_of(dlc_custom_function *function, void *user) {
    return function == dlc_native_call && user ? &((dlc_native *)user)->holder : NULL;
}

/* ---- call ---------------------------------------------------------------------------------------------------------- */

static int64_t count_of(const DLTensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
    return count;
}

static bool fill(const dlc_native *native, const parameter *p, int inputs, const DLTensor *const *input, int outputs,
                 DLTensor *const *output, native_value *out) {
    if (p->source < SOURCE_USER || p->source == SOURCE_DIM || p->source == SOURCE_COUNT)
        if (p->tensor >= (p->source == SOURCE_OUTPUT ? outputs : inputs)) return false;
    int64_t integer = p->integer;
    switch (p->source) {
    case SOURCE_INPUT: out->pointer = lib_tensor_data(input[p->tensor]); return true;
    case SOURCE_OUTPUT: out->pointer = lib_tensor_data(output[p->tensor]); return true;
    case SOURCE_USER: out->pointer = native->user; return true;
    case SOURCE_DIM:
        if (p->axis >= input[p->tensor]->ndim) return false;
        integer = input[p->tensor]->shape[p->axis];
        break;
    case SOURCE_COUNT: integer = count_of(input[p->tensor]); break;
    case SOURCE_NUMBER: break;
    }
    if (!fits(p, integer)) return false;
    double number = p->source == SOURCE_NUMBER ? p->number : (double)integer;
    switch (p->type) {
    case 'i': out->i32 = (int32_t)integer; break;
    case 'l': out->i64 = integer; break;
    case 'f': out->f32 = (float)number; break;
    default: out->f64 = number; break;
    }
    return true;
}

void dlc_native_call(void *user, int inputs, const DLTensor *const *input, int outputs, DLTensor *const *output) {
    dlc_native *native = user;
    native_value value[PARAMETERS_MAX];
    void *pointer[PARAMETERS_MAX];
    bool complete = native != NULL;
    for (int i = 0; complete && i < native->count; i++) {
        complete = fill(native, &native->parameter[i], inputs, input, outputs, output, &value[i]);
        pointer[i] = &value[i];
    }
    if (complete) {
        ffi_call(&native->cif, native->function, NULL, pointer);
        return;
    }
    for (int i = 0; i < outputs; i++) memset(lib_tensor_data(output[i]), 0, lib_tensor_bytes(output[i]));
}
