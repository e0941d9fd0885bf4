/* Names of functions of placed images for debuggers and profilers. Both are made from the image's table, so that images from a disk or
 * another process have names, too. */
#include "targets/cpu/image.h"

#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t address_of(const target_module *module, int number) {
    return (uint64_t)(uintptr_t)((const char *)module->table + module->function[number]);
}

/* Bytes of a function: it extends to the next function, or to the end of the code. */
static uint64_t size_of(const target_module *module, int number) {
    uint64_t start = address_of(module, number);
    uint64_t end = (uint64_t)(uintptr_t)module->memory + module->image->code_end;
    for (int i = 0; i < module->first[module->kernels]; i++) {
        uint64_t other = address_of(module, i);
        if (other > start && other < end) end = other;
    }
    return end - start;
}

static const char *name_of(const char *const *names, int kernel) {
    return names && names[kernel] ? names[kernel] : "kernel";
}

/* ---- perf: lines of /tmp/perf-PID.map, read by `perf report` */

static void write_perf_map(const target_module *module, const char *const *names) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    FILE *file = fopen(path, "ae");
    if (!file) return;
    for (int k = 0; k < module->kernels; k++)
        for (int f = module->first[k]; f < module->first[k + 1]; f++)
            fprintf(file, "%llx %llx %s_%d\n", (unsigned long long)address_of(module, f),
                    (unsigned long long)size_of(module, f), name_of(names, k), f - module->first[k]);
    fclose(file);
}

/* ---- gdb: its interface in a process, a list of objects and a function for its breakpoint */

typedef struct jit_entry {
    struct jit_entry *next, *previous;
    const char *object;
    uint64_t size;
} jit_entry;
typedef struct jit_descriptor {
    uint32_t version, action;
    jit_entry *relevant, *first;
} jit_descriptor;
enum { JIT_REGISTER = 1, JIT_UNREGISTER = 2 };

/* Weak: LLVM linked into the library defines the same two, and a process has one of each. */
extern jit_descriptor __jit_debug_descriptor;
void __jit_debug_register_code(void);
__attribute__((weak)) jit_descriptor __jit_debug_descriptor = {.version = 1};
__attribute__((weak, noinline)) void __jit_debug_register_code(void) {
    __asm__ volatile("" ::: "memory");
}

static pthread_mutex_t debug_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the debugger's list, which is process-wide */

static void tell_debugger(jit_entry *entry, uint32_t action) {
    jit_descriptor *all = &__jit_debug_descriptor;
    pthread_mutex_lock(&debug_lock);
    if (action == JIT_REGISTER) {
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

/* An ELF file without contents: the code as a section at its address, and a symbol for each function. */
enum { NO_SECTION, TEXT, SYMBOLS, STRINGS, SECTIONS };
static const char section_names[] = "\0.text\0.symtab\0.strtab";

typedef struct symbol_file {
    Elf64_Ehdr header;
    Elf64_Shdr section[SECTIONS];
    /* the first one is empty; the names follow the last */
    Elf64_Sym symbol[];
} symbol_file;

static size_t names_size(const target_module *module, const char *const *names) {
    size_t size = sizeof section_names;
    for (int k = 0; k < module->kernels; k++)
        size += (size_t)cpu_phases(module, k) * (strlen(name_of(names, k)) + sizeof "_2147483647");
    return size;
}

static void fill_sections(const target_module *module, symbol_file *file, size_t symbols, size_t strings) {
    const cpu_image *image = module->image;
    file->header = (Elf64_Ehdr){.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                                .e_type = ET_REL,
                                .e_machine = (Elf64_Half)image->architecture,
                                .e_version = EV_CURRENT,
                                .e_ehsize = sizeof file->header,
                                .e_shoff = offsetof(symbol_file, section),
                                .e_shentsize = sizeof(Elf64_Shdr),
                                .e_shnum = SECTIONS,
                                .e_shstrndx = STRINGS};
    file->section[TEXT] = (Elf64_Shdr){.sh_name = 1,
                                       .sh_type = SHT_NOBITS,
                                       .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                       .sh_addr = (uint64_t)(uintptr_t)module->memory + image->code,
                                       .sh_size = image->code_end - image->code,
                                       .sh_addralign = 1};
    file->section[SYMBOLS] = (Elf64_Shdr){.sh_name = sizeof "\0.text",
                                          .sh_type = SHT_SYMTAB,
                                          .sh_offset = offsetof(symbol_file, symbol),
                                          .sh_size = symbols * sizeof(Elf64_Sym),
                                          .sh_link = STRINGS,
                                          .sh_info = 1,
                                          .sh_addralign = _Alignof(Elf64_Sym),
                                          .sh_entsize = sizeof(Elf64_Sym)};
    file->section[STRINGS] = (Elf64_Shdr){.sh_name = sizeof "\0.text\0.symtab",
                                          .sh_type = SHT_STRTAB,
                                          .sh_offset = offsetof(symbol_file, symbol) + symbols * sizeof(Elf64_Sym),
                                          .sh_size = strings,
                                          .sh_addralign = 1};
}

/* Registers the functions' names with the debugger; not if an allocation fails. */
static void register_code(target_module *module, const char *const *names) {
    size_t symbols = (size_t)module->first[module->kernels] + 1, strings = names_size(module, names);
    size_t size = sizeof(symbol_file) + symbols * sizeof(Elf64_Sym) + strings;
    jit_entry *entry = lib_allocate_zeroed(&module->allocator, sizeof *entry + size, _Alignof(max_align_t));
    if (!entry) return;
    symbol_file *file = (symbol_file *)(entry + 1);
    fill_sections(module, file, symbols, strings);
    char *string = (char *)(file->symbol + symbols), *end = string + strings;
    char *at = (char *)memcpy(string, section_names, sizeof section_names) + sizeof section_names;
    for (int k = 0; k < module->kernels; k++)
        for (int f = module->first[k]; f < module->first[k + 1]; f++) {
            file->symbol[f + 1] = (Elf64_Sym){.st_name = (Elf64_Word)(at - string),
                                              .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                              .st_shndx = TEXT,
                                              .st_value = address_of(module, f) - file->section[TEXT].sh_addr,
                                              .st_size = size_of(module, f)};
            at += snprintf(at, (size_t)(end - at), "%s_%d", name_of(names, k), f - module->first[k]) + 1;
        }
    entry->object = (const char *)file;
    entry->size = size;
    module->debug = entry;
    tell_debugger(entry, JIT_REGISTER);
}

void cpu_symbols_tell(target_module *module, const char *const *names) {
    if (lib_environment_integer(LIB_ENV_GDB, 0) != 0) register_code(module, names);
    if (lib_environment_integer(LIB_ENV_PERF, 0) != 0) write_perf_map(module, names);
}

void cpu_symbols_forget(target_module *module) {
    jit_entry *entry = module->debug;
    if (!entry) return;
    tell_debugger(entry, JIT_UNREGISTER);
    lib_release(&module->allocator, entry, sizeof *entry + (size_t)entry->size, _Alignof(max_align_t));
}
