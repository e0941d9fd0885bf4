/* Object bytes -> callable code. The objects are our own: ELF64 for x86-64, position-independent, with functions, constants and a
 * handful of relocation kinds, so that loading is a copy, some additions and one change of protection: no lock, no table of symbols,
 * nothing kept but the pages. They may also come from a disk cache, so nothing in them is believed: every offset and size is checked,
 * and what is not known is refused. Memory is writable or executable but never both; constants share the pages of the code. The only
 * symbols that code may refer to are those of the table below; nothing is searched for in the process. */
#include "targets/cpu/cpu.h"

#include <elf.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Functions that the code generator or the emitter may call. */
/* clang-format off */
#define LIBRARY_TABLE(X) \
    X(memset) X(memcpy) X(memmove) X(fmod) X(fma) X(fmaf) \
    X(exp) X(expm1) X(log) X(log1p) X(pow) X(cbrt) X(erf) \
    X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(atan2) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh)
/* clang-format on */

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
#define LIBRARY_COUNT ((int)(sizeof library / sizeof *library))

/* A way out of the module: calls reach 2 GB, the C library may be farther away. `jmp *address(%rip)`, then the address, which also
 * serves where code wants to load it. */
typedef struct stub {
    unsigned char jump[8];
    uint64_t address;
} stub;

enum { SECTIONS_MAX = 4096, MODULE_MAX = 1 << 30 };

struct target_module {
    dlc_allocator allocator;
    size_t allocated;
    char *memory; /* the mapping */
    size_t bytes;
    void *debug; /* what a debugger was told; NULL: nothing */
    int kernels, functions;
    int *first; /* [kernels + 1] by kernel: its first function */
    target_phase_function *function;
};

typedef struct loading {
    const unsigned char *object;
    size_t size;
    const Elf64_Shdr *sections; /* [count], copied: the object may lie anywhere */
    int count;
    const Elf64_Sym *symbols;
    size_t symbol_count;
    const char *names; /* of symbols; its last byte is 0 */
    size_t names_size;
    size_t *place; /* [count] offset in the mapping; SIZE_MAX: not loaded */
    char *memory;
    size_t bytes, stubs; /* of the mapping; where the stubs begin */
    int stub_of[LIBRARY_COUNT], stub_count;
    lib_arena arena;
    lib_scope scope;
} loading;

#define REFUSE(l, ...) lib_raise(&(l)->scope, DLC_COMPILE_FAILED, "cannot load code: " __VA_ARGS__)

/* ---- the object */

static const void *bytes_at(loading *l, uint64_t offset, uint64_t size, const char *what) {
    if (offset > l->size || size > l->size - offset) REFUSE(l, "%s lies beyond the object's %zu bytes", what, l->size);
    return l->object + offset;
}

static void *copy_of(loading *l, uint64_t offset, uint64_t size, const char *what) {
    return lib_arena_copy(&l->arena, bytes_at(l, offset, size, what), (size_t)size);
}

static void read_symbols(loading *l) {
    const Elf64_Shdr *table = NULL;
    for (int s = 1; s < l->count; s++)
        if (l->sections[s].sh_type == SHT_SYMTAB) table = &l->sections[s];
    if (!table || table->sh_link == 0 || table->sh_link >= (unsigned)l->count) REFUSE(l, "the object has no symbols");
    const Elf64_Shdr *names = &l->sections[table->sh_link];
    l->symbol_count = table->sh_size / sizeof(Elf64_Sym);
    l->symbols = copy_of(l, table->sh_offset, l->symbol_count * sizeof(Elf64_Sym), "the symbol table");
    l->names = bytes_at(l, names->sh_offset, names->sh_size, "the table of names");
    l->names_size = (size_t)names->sh_size;
    if (!l->names_size || l->names[l->names_size - 1]) REFUSE(l, "the table of names does not end");
}

static const char *name_of(loading *l, const Elf64_Sym *symbol) {
    if (symbol->st_name >= l->names_size) REFUSE(l, "a symbol has no name");
    return l->names + symbol->st_name;
}

static void read_object(loading *l) {
    Elf64_Ehdr header;
    memcpy(&header, bytes_at(l, 0, sizeof header, "the header"), sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL || header.e_machine != EM_X86_64 ||
        header.e_shentsize != sizeof(Elf64_Shdr))
        REFUSE(l, "expected a relocatable object for x86-64");
    if (header.e_shnum < 2 || header.e_shnum > SECTIONS_MAX) REFUSE(l, "the object has %d sections", header.e_shnum);
    l->count = header.e_shnum;
    l->sections = copy_of(l, header.e_shoff, (size_t)l->count * sizeof(Elf64_Shdr), "the section table");
    read_symbols(l);
}

/* ---- places */

/* Tables for unwinding are left out: nothing is ever thrown through a kernel. */
static bool is_loaded(const loading *l, int s) {
    const Elf64_Shdr *section = &l->sections[s];
    return (section->sh_flags & SHF_ALLOC) && section->sh_size &&
           (section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS);
}

static void place_sections(loading *l) {
    size_t at = 0;
    l->place = LIB_NEW_ARRAY(&l->arena, size_t, (size_t)l->count);
    for (int s = 0; s < l->count; s++) l->place[s] = SIZE_MAX;
    for (int code = 1; code >= 0; code--)
        for (int s = 1; s < l->count; s++) {
            const Elf64_Shdr *section = &l->sections[s];
            uint64_t alignment = section->sh_addralign ? section->sh_addralign : 1;
            if (!is_loaded(l, s) || ((section->sh_flags & SHF_EXECINSTR) != 0) != code) continue;
            if (section->sh_type == SHT_PROGBITS) bytes_at(l, section->sh_offset, section->sh_size, "a section");
            if ((section->sh_flags & SHF_TLS) || alignment > 4096 || (alignment & (alignment - 1)))
                REFUSE(l, "section %d is of no kind that is known", s);
            at = (at + (size_t)alignment - 1) & ~((size_t)alignment - 1);
            if (section->sh_size > MODULE_MAX - at) REFUSE(l, "more than %d bytes", MODULE_MAX);
            l->place[s] = at;
            at += (size_t)section->sh_size;
        }
    l->stubs = (at + sizeof(stub) - 1) & ~(sizeof(stub) - 1);
}

/* One for each function of the library that the module names. */
static void place_stubs(loading *l) {
    for (int i = 0; i < LIBRARY_COUNT; i++) l->stub_of[i] = -1;
    for (size_t i = 1; i < l->symbol_count; i++) {
        if (l->symbols[i].st_shndx != SHN_UNDEF) continue;
        const char *name = name_of(l, &l->symbols[i]);
        for (int f = 0; f < LIBRARY_COUNT; f++)
            if (l->stub_of[f] < 0 && strcmp(name, library[f].name) == 0) l->stub_of[f] = l->stub_count++;
    }
    size_t page = 4096, end = l->stubs + (size_t)l->stub_count * sizeof(stub);
    l->bytes = (end + page - 1) / page * page;
}

static void write_stubs(loading *l) {
    static const unsigned char jump[8] = {0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc};
    for (int f = 0; f < LIBRARY_COUNT; f++) {
        if (l->stub_of[f] < 0) continue;
        stub *to = (stub *)(void *)(l->memory + l->stubs) + l->stub_of[f];
        memcpy(to->jump, jump, sizeof jump);
        to->address = (uint64_t)(uintptr_t)library[f].address;
    }
}

static stub *stub_for(loading *l, const char *name) {
    for (int f = 0; f < LIBRARY_COUNT; f++)
        if (l->stub_of[f] >= 0 && strcmp(name, library[f].name) == 0)
            return (stub *)(void *)(l->memory + l->stubs) + l->stub_of[f];
    REFUSE(l, "it names %s, which is no function of the library", name);
}

/* ---- relocations */

/* Where a defined symbol lies. */
static uint64_t address_of(loading *l, const Elf64_Sym *symbol) {
    int s = symbol->st_shndx;
    if (s >= l->count || l->place[s] == SIZE_MAX || symbol->st_value > l->sections[s].sh_size)
        REFUSE(l, "symbol %s is not in the object", name_of(l, symbol));
    return (uint64_t)(uintptr_t)(l->memory + l->place[s]) + symbol->st_value;
}

static void put_relative(loading *l, char *at, uint64_t value) {
    int64_t distance = (int64_t)(value - (uint64_t)(uintptr_t)at);
    int32_t narrow = (int32_t)distance;
    if (narrow != distance) REFUSE(l, "a distance of %lld bytes is too far", (long long)distance);
    memcpy(at, &narrow, sizeof narrow);
}

static void relocate(loading *l, int section, const Elf64_Rela *r) {
    uint64_t index = ELF64_R_SYM(r->r_info), type = ELF64_R_TYPE(r->r_info), addend = (uint64_t)r->r_addend;
    uint64_t size = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
    if (type == R_X86_64_NONE) return;
    if (index == 0 || index >= l->symbol_count || l->sections[section].sh_size < size ||
        r->r_offset > l->sections[section].sh_size - size)
        REFUSE(l, "a relocation of section %d lies outside", section);
    const Elf64_Sym *symbol = &l->symbols[index];
    stub *out = symbol->st_shndx == SHN_UNDEF ? stub_for(l, name_of(l, symbol)) : NULL;
    char *at = l->memory + l->place[section] + r->r_offset;
    uint64_t value = out ? (uint64_t)(uintptr_t)out : address_of(l, symbol), wide;
    switch (type) {
    case R_X86_64_PC32:
    case R_X86_64_PLT32: put_relative(l, at, value + addend); break;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
        if (!out) REFUSE(l, "the address of %s is asked for", name_of(l, symbol));
        put_relative(l, at, (uint64_t)(uintptr_t)&out->address + addend);
        break;
    case R_X86_64_64:
    case R_X86_64_PC64:
        wide = value + addend - (type == R_X86_64_PC64 ? (uint64_t)(uintptr_t)at : 0);
        memcpy(at, &wide, sizeof wide);
        break;
    default: REFUSE(l, "relocation type %llu is not known", (unsigned long long)type);
    }
}

static void relocate_all(loading *l) {
    for (int s = 1; s < l->count; s++) {
        const Elf64_Shdr *table = &l->sections[s];
        if (table->sh_type == SHT_REL) REFUSE(l, "relocations of a kind that is not known");
        if (table->sh_type != SHT_RELA || table->sh_info >= (unsigned)l->count || l->place[table->sh_info] == SIZE_MAX)
            continue;
        const char *entries = bytes_at(l, table->sh_offset, table->sh_size, "a table of relocations");
        for (uint64_t i = 0; i + sizeof(Elf64_Rela) <= table->sh_size; i += sizeof(Elf64_Rela)) {
            Elf64_Rela r;
            memcpy(&r, entries + i, sizeof r);
            relocate(l, (int)table->sh_info, &r);
        }
    }
}

/* ---- functions: global symbols dlc_kK_pP */

static bool digits(const char **at, int *number) {
    if (**at < '0' || **at > '9') return false;
    for (*number = 0; **at >= '0' && **at <= '9' && *number < 1 << 20; (*at)++) *number = *number * 10 + (**at - '0');
    return true;
}

static bool is_function(loading *l, const Elf64_Sym *symbol, int *kernel, int *phase) {
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) return false;
    const char *at = name_of(l, symbol);
    if (strncmp(at, "dlc_k", 5) != 0) return false;
    at += 5;
    if (!digits(&at, kernel) || strncmp(at, "_p", 2) != 0) return false;
    at += 2;
    return digits(&at, phase) && *at == 0;
}

/* Phases of each kernel: phases[count]; how many in all. */
static int count_phases(loading *l, int count, int *phases) {
    int functions = 0, total = 0, kernel, phase;
    for (size_t i = 1; i < l->symbol_count; i++)
        if (is_function(l, &l->symbols[i], &kernel, &phase)) {
            if (kernel >= count) REFUSE(l, "it holds more than %d kernels", count);
            if (phase >= phases[kernel]) phases[kernel] = phase + 1;
            functions++;
        }
    for (int k = 0; k < count; k++) {
        if (!phases[k]) REFUSE(l, "kernel %d of %d is missing", k, count);
        if (phases[k] > functions) REFUSE(l, "phases of kernel %d are missing", k);
        total += phases[k];
    }
    if (total != functions) REFUSE(l, "phases are missing");
    return total;
}

static void find_functions(loading *l, target_module *module) {
    int kernel, phase;
    for (size_t i = 1; i < l->symbol_count; i++)
        if (is_function(l, &l->symbols[i], &kernel, &phase))
            module->function[module->first[kernel] + phase] =
                (target_phase_function)(uintptr_t)address_of(l, &l->symbols[i]);
    for (int f = 0; f < module->functions; f++)
        if (!module->function[f]) REFUSE(l, "phases are missing");
}

/* ---- debuggers and profilers */

/* What gdb looks for in a process: a list of objects with the addresses of their sections, and a function to stop in. */
typedef struct jit_entry {
    struct jit_entry *next, *previous;
    const char *object;
    uint64_t size;
} jit_entry;
typedef struct jit_descriptor {
    uint32_t version, action;
    jit_entry *relevant, *first;
} jit_descriptor;

extern jit_descriptor __jit_debug_descriptor;
void __jit_debug_register_code(void);

jit_descriptor __jit_debug_descriptor = {.version = 1};
__attribute__((noinline)) void __jit_debug_register_code(void) {
    __asm__ volatile("" ::: "memory");
}

static pthread_mutex_t debug_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, which is the process' */

static void tell_debugger(jit_entry *entry, uint32_t action) {
    jit_descriptor *all = &__jit_debug_descriptor;
    pthread_mutex_lock(&debug_lock);
    if (action == 1) {
        entry->next = all->first;
        if (entry->next) entry->next->previous = entry;
        all->first = entry;
    } else {
        if (entry->previous)
            entry->previous->next = entry->next;
        else
            all->first = entry->next;
        if (entry->next) entry->next->previous = entry->previous;
    }
    all->relevant = entry;
    all->action = action;
    __jit_debug_register_code();
    pthread_mutex_unlock(&debug_lock);
}

/* The object once more, its sections where they are. A refused allocation leaves the debugger ignorant. */
static void register_code(loading *l, target_module *module) {
    jit_entry *entry = lib_allocate_zeroed(&module->allocator, sizeof *entry + l->size, 16);
    if (!entry) return;
    char *copy = memcpy(entry + 1, l->object, l->size);
    Elf64_Ehdr header;
    memcpy(&header, copy, sizeof header);
    for (int s = 1; s < l->count; s++)
        if (l->place[s] != SIZE_MAX) {
            Elf64_Shdr section = l->sections[s];
            section.sh_addr = (uint64_t)(uintptr_t)(l->memory + l->place[s]);
            memcpy(copy + header.e_shoff + (size_t)s * sizeof section, &section, sizeof section);
        }
    entry->object = copy;
    entry->size = l->size;
    module->debug = entry;
    tell_debugger(entry, 1);
}

static void forget_code(target_module *module) {
    jit_entry *entry = module->debug;
    if (!entry) return;
    tell_debugger(entry, 2);
    lib_release(&module->allocator, entry, sizeof *entry + (size_t)entry->size, 16);
}

/* Lines of /tmp/perf-PID.map, read by `perf report`. Sizes are not known here: up to the next function. */
static void write_perf_map(const target_module *module, const char *const *names) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    FILE *file = fopen(path, "ae");
    if (!file) return;
    for (int k = 0; k < module->kernels; k++)
        for (int p = module->first[k]; p < module->first[k + 1]; p++) {
            uintptr_t start = (uintptr_t)module->function[p], next = (uintptr_t)(module->memory + module->bytes);
            for (int i = 0; i < module->functions; i++) {
                uintptr_t other = (uintptr_t)module->function[i];
                if (other > start && other < next) next = other;
            }
            fprintf(file, "%lx %lx %s_%d\n", (unsigned long)start, (unsigned long)(next - start),
                    names ? names[k] : "kernel", p - module->first[k]);
        }
    fclose(file);
}

/* ---- loading */

static void release(target_module *module) {
    forget_code(module);
    if (module->memory) munmap(module->memory, module->bytes);
    dlc_allocator allocator = module->allocator;
    lib_release(&allocator, module, module->allocated, _Alignof(target_module));
}

static target_module *make_module(loading *l, const dlc_allocator *allocator, int count) {
    int *phases = LIB_NEW_ARRAY(&l->arena, int, (size_t)count + 1);
    int functions = count_phases(l, count, phases);
    size_t tables = (size_t)functions * sizeof(target_phase_function) + ((size_t)count + 1) * sizeof(int);
    target_module *module = lib_allocate_zeroed(allocator, sizeof *module + tables, _Alignof(target_module));
    if (!module) lib_raise(&l->scope, DLC_OUT_OF_MEMORY, "no memory for a module of %d kernels", count);
    module->allocator = *allocator;
    module->allocated = sizeof *module + tables;
    module->function = (target_phase_function *)(module + 1);
    module->first = (int *)(module->function + functions);
    module->kernels = count;
    module->functions = functions;
    for (int k = 0; k < count; k++) module->first[k + 1] = module->first[k] + phases[k];
    return module;
}

static void fill(loading *l, target_module *module) {
    module->bytes = l->bytes;
    void *memory = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) lib_raise(&l->scope, DLC_OUT_OF_MEMORY, "no memory for %zu bytes of code", l->bytes);
    l->memory = module->memory = memory;
    for (int s = 1; s < l->count; s++)
        if (l->place[s] != SIZE_MAX && l->sections[s].sh_type == SHT_PROGBITS)
            memcpy(l->memory + l->place[s], l->object + l->sections[s].sh_offset, (size_t)l->sections[s].sh_size);
    write_stubs(l);
    relocate_all(l);
    find_functions(l, module);
    if (mprotect(memory, l->bytes, PROT_READ | PROT_EXEC) != 0)
        REFUSE(l, "the system lets no memory become executable");
    if (lib_environment_integer(LIB_ENV_GDB, 0) != 0) register_code(l, module);
}

static void load(loading *l, const dlc_allocator *allocator, int count, target_module **module) {
    read_object(l);
    place_sections(l);
    place_stubs(l);
    *module = make_module(l, allocator, count);
    fill(l, *module);
}

dlc_status cpu_load(target_device *device, const target_object *object, int count, const char *const *names,
                    target_module **result, lib_error *error) {
    loading l = {.object = object->bytes, .size = object->size};
    *result = NULL;
    lib_arena_init(&l.arena, &device->allocator, &l.scope);
    if (LIB_ENTER(&l.scope)) load(&l, &device->allocator, count, result);
    lib_arena_free(&l.arena);
    if (l.scope.error.status != DLC_OK) {
        if (*result) release(*result);
        *result = NULL;
        return lib_fail(error, l.scope.error.status, "%s", l.scope.error.message);
    }
    if (lib_environment_integer(LIB_ENV_PERF, 0) != 0) write_perf_map(*result, names);
    return DLC_OK;
}

int cpu_phases(const target_module *module, int kernel) {
    return module->first[kernel + 1] - module->first[kernel];
}

target_phase cpu_phase(const target_module *module, int kernel, int phase) {
    return (target_phase){module->function[module->first[kernel] + phase], NULL};
}

void cpu_unload(target_device *device, target_module *module) {
    (void)device;
    if (module) release(module);
}

size_t cpu_module_bytes(const target_module *module) {
    return module->bytes + module->allocated;
}
