/* The interp target: runs kernels through the interpreter of loop IR, which defines the results of every other target. Its object is the
 * printed loop IR, so that each run also checks the text form. Nothing here is optimised. */
#include "targets/target.h"
#include "tir/interpret.h"

struct target_device {
    dlc_allocator allocator;
};

typedef struct interp_phase {
    const tir_program *program;
    const dlc_allocator *allocator;
    int phase;
} interp_phase;

struct target_module {
    dlc_allocator allocator;
    /* kernels, programs and the tables below */
    lib_arena arena;
    /* by kernel and phase */
    interp_phase **phases;
    /* by kernel */
    int *phase_count;
};

/* So that quantised networks compute what they do on machines with such a unit. */
static const tir_unit units[] = {{.name = "dot4_u8i8",
                                  .kind = TIR_MULTIPLY,
                                  .executor = TIR_BY_THREAD,
                                  .lanes = 1,
                                  .machines = 1,
                                  .op = TIR_DOT4_U8I8,
                                  .deviations = "",
                                  .places = 3,
                                  .bits = {0, 0, 2},
                                  .place = {{.dtype = DLC_I32}, {.dtype = DLC_U8}, {.dtype = DLC_I8}}},
                                 {.name = NULL}};

static dlc_status interp_open(const target_options *options, target_device **device, tir_machine *machine,
                              lib_error *error) {
    target_device *opened = lib_allocate_zeroed(options->allocator, sizeof *opened, _Alignof(target_device));
    if (!opened) return lib_fail(error, DLC_OUT_OF_MEMORY, "interp target: out of memory");
    opened->allocator = *options->allocator;
    memset(machine, 0, sizeof *machine);
    memcpy(machine->target, "interp", sizeof "interp");
    memcpy(machine->name, "interpreter", sizeof "interpreter");
    machine->fma = 1;
    machine->masked = 1;
    machine->units = units;
    machine->unit_bits = 1;
    machine->l1 = 32 << 10;
    machine->l2 = 512 << 10;
    machine->l3 = 4 << 20;
    machine->line = 64;
    machine->cores = 1;
    *device = opened;
    return DLC_OK;
}

static void interp_close(target_device *device) {
    if (!device) return;
    dlc_allocator allocator = device->allocator;
    lib_release(&allocator, device, sizeof *device, _Alignof(target_device));
}

/* The empty schedule: every stage a loop nest of its own, in axis order. */
static void interp_schedule(const tir_machine *machine, int threads, tir_region *region, tir_schedule *schedule) {
    (void)machine, (void)threads, (void)region, (void)schedule;
}

static lib_hash128 interp_code_identity(const target_device *device) {
    (void)device;
    return (lib_hash128){1, 2};
}

/* ---- objects: the kernels' text, one after another */

static dlc_status interp_compile(target_device *device, const target_budget *budget, int count,
                                 const tir_kernel *const *kernels, target_object *object, lib_error *error) {
    (void)budget;
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &device->allocator, &scope);
    memset(object, 0, sizeof *object);
    if (LIB_ENTER(&scope)) {
        lib_text text;
        lib_text_init(&text, &arena);
        for (int i = 0; i < count; i++) tir_kernel_print(&text, kernels[i]);
        char *bytes = lib_allocate(&device->allocator, text.length + 1, 1);
        if (!bytes) lib_raise(&scope, DLC_OUT_OF_MEMORY, "interp target: out of memory");
        memcpy(bytes, text.length ? text.data : "", text.length + 1);
        *object = (target_object){.bytes = bytes, .size = text.length, .owner = bytes};
    }
    lib_arena_free(&arena);
    if (scope.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, scope.error.status, "%s", scope.error.message);
}

static void interp_release_object(target_device *device, target_object *object) {
    if (object->owner) lib_release(&device->allocator, object->owner, object->size + 1, 1);
    memset(object, 0, sizeof *object);
}

static dlc_status interp_dump(target_device *device, const tir_kernel *kernel, target_dump what, lib_text *text,
                              lib_error *error) {
    (void)device;
    if (what != TARGET_DUMP_SOURCE)
        return lib_fail(error, DLC_UNSUPPORTED, "the interp target has neither vectors nor LLVM IR nor assembly");
    lib_scope scope, *outer = text->arena->scope;
    text->arena->scope = &scope;
    if (LIB_ENTER(&scope)) tir_kernel_print(text, kernel);
    text->arena->scope = outer;
    if (scope.error.status == DLC_OK) return DLC_OK;
    return lib_fail(error, scope.error.status, "%s", scope.error.message);
}

/* ---- modules */

static int ask(void *user) {
    const target_arguments *arguments = user;
    return __atomic_load_n(arguments->cancel, __ATOMIC_RELAXED) && arguments->is_over(arguments);
}

static void run_phase(const target_arguments *arguments, int64_t iteration, int64_t begin, int64_t end, int64_t slot,
                      const void *closure) {
    const interp_phase *phase = closure;
    const bool asks = arguments->cancel != NULL;
    const tir_interpret_options options = {
        .check = true, .is_over = asks ? ask : NULL, .user = (void *)(uintptr_t)arguments};
    char *local = arguments->local ? arguments->local + slot * arguments->local_stride : NULL;
    lib_error error;
    dlc_status status =
        tir_program_run_tasks(phase->program, phase->phase, iteration, begin, end, arguments->buffers,
                              arguments->params, arguments->workspace, local, &options, phase->allocator, &error);
    dlc_status none = DLC_OK; /* if several tasks fail, the first one reports */
    if (status != DLC_OK && arguments->error &&
        __atomic_compare_exchange_n(&arguments->error->status, &none, status, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        memcpy(arguments->error->message, error.message, sizeof error.message);
}

static void load_kernel(target_module *module, lib_lexer *lexer, int k) {
    const tir_kernel *kernel = tir_kernel_parse(&module->arena, lexer, units);
    const tir_program *program = tir_program_new(&module->arena, kernel);
    module->phases[k] = LIB_NEW_ARRAY(&module->arena, interp_phase, kernel->phases.count);
    module->phase_count[k] = (int)kernel->phases.count;
    for (uint32_t p = 0; p < kernel->phases.count; p++)
        module->phases[k][p] = (interp_phase){program, &module->allocator, (int)p};
}

static void interp_unload(target_device *device, target_module *module) {
    (void)device;
    if (!module) return;
    dlc_allocator allocator = module->allocator;
    lib_arena_free(&module->arena);
    lib_release(&allocator, module, sizeof *module, _Alignof(target_module));
}

static dlc_status interp_load(target_device *device, const target_object *object, int count, const char *const *names,
                              target_module **module, lib_error *error) {
    (void)names;
    lib_scope scope;
    target_module *loaded = lib_allocate_zeroed(&device->allocator, sizeof *loaded, _Alignof(target_module));
    if (!loaded) return lib_fail(error, DLC_OUT_OF_MEMORY, "interp target: out of memory");
    loaded->allocator = device->allocator;
    lib_arena_init(&loaded->arena, &loaded->allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &loaded->arena, "<object>", object->bytes, object->size);
        loaded->phases = LIB_NEW_ARRAY(&loaded->arena, interp_phase *, (size_t)count);
        loaded->phase_count = LIB_NEW_ARRAY(&loaded->arena, int, (size_t)count);
        for (int k = 0; k < count; k++) load_kernel(loaded, &lexer, k);
        if (lexer.kind != LIB_END) lib_lexer_raise(&lexer, "more than %d kernels", count);
        loaded->arena.scope = NULL; /* the module is immutable from here on */
        *module = loaded;
        return DLC_OK;
    }
    interp_unload(device, loaded);
    return lib_fail(error, scope.error.status, "%s", scope.error.message);
}

static int interp_phases(const target_module *module, int kernel) {
    return module->phase_count[kernel];
}

static target_phase interp_phase_of(const target_module *module, int kernel, int phase) {
    return (target_phase){run_phase, &module->phases[kernel][phase]};
}

static size_t interp_module_bytes(const target_module *module) {
    return sizeof *module + module->arena.total;
}

const target target_interp = {
    .name = "interp",
    .open = interp_open,
    .close = interp_close,
    .schedule = interp_schedule,
    .code_identity = interp_code_identity,
    .compile = interp_compile,
    .release_object = interp_release_object,
    .dump = interp_dump,
    .load = interp_load,
    .phases = interp_phases,
    .phase = interp_phase_of,
    .unload = interp_unload,
    .module_bytes = interp_module_bytes,
};
