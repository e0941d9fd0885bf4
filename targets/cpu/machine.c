/* Facts of the processor at hand, and the CPU name and feature string that make LLVM generate code for it. A name LLVM
 * does not know would silently mean a generic processor, so names are checked against its table first; an instruction
 * set can be forced down by DLC_CPU_FEATURES for tests on one host. */
#include "targets/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The 64-bit x86 processors that LLVM 19 knows, and its baseline levels. */
typedef struct cpu_row {
    const char *name;
    int wide_ports; /* 512-bit FMAs per cycle */
} cpu_row;

static const cpu_row known_cpus[] = {
    {"x86-64", 0},
    {"x86-64-v2", 0},
    {"x86-64-v3", 0},
    {"x86-64-v4", 1},
    {"nocona", 0},
    {"core2", 0},
    {"penryn", 0},
    {"nehalem", 0},
    {"westmere", 0},
    {"sandybridge", 0},
    {"ivybridge", 0},
    {"haswell", 0},
    {"broadwell", 0},
    {"skylake", 0},
    {"skylake-avx512", 2},
    {"cascadelake", 2},
    {"cooperlake", 2},
    {"cannonlake", 1},
    {"icelake-client", 1},
    {"icelake-server", 2},
    {"tigerlake", 1},
    {"rocketlake", 1},
    {"sapphirerapids", 2},
    {"emeraldrapids", 2},
    {"graniterapids", 2},
    {"graniterapids-d", 2},
    {"alderlake", 0},
    {"raptorlake", 0},
    {"meteorlake", 0},
    {"arrowlake", 0},
    {"arrowlake-s", 0},
    {"lunarlake", 0},
    {"pantherlake", 0},
    {"gracemont", 0},
    {"sierraforest", 0},
    {"grandridge", 0},
    {"clearwaterforest", 0},
    {"bonnell", 0},
    {"silvermont", 0},
    {"goldmont", 0},
    {"goldmont-plus", 0},
    {"tremont", 0},
    {"k8", 0},
    {"k8-sse3", 0},
    {"opteron", 0},
    {"opteron-sse3", 0},
    {"athlon64", 0},
    {"athlon64-sse3", 0},
    {"amdfam10", 0},
    {"barcelona", 0},
    {"btver1", 0},
    {"btver2", 0},
    {"bdver1", 0},
    {"bdver2", 0},
    {"bdver3", 0},
    {"bdver4", 0},
    {"znver1", 0},
    {"znver2", 0},
    {"znver3", 0},
    {"znver4", 1},
    {"znver5", 2},
    {"knl", 2},
    {"knm", 2},
};

static const cpu_row *find_cpu(const char *name) {
    for (size_t i = 0; i < sizeof known_cpus / sizeof *known_cpus; i++)
        if (strcmp(known_cpus[i].name, name) == 0) return &known_cpus[i];
    return NULL;
}

/* ---- features: "+avx2,-avx512f,..." as LLVM writes them */

static bool next_feature(const char **at, char *name, size_t size, bool *on) {
    if (!**at) return false;
    *on = **at == '+';
    const char *start = *at + 1, *end = strchr(start, ',');
    size_t length = end ? (size_t)(end - start) : strlen(start);
    if (length >= size) length = size - 1;
    memcpy(name, start, length);
    name[length] = 0;
    *at = end ? end + 1 : start + strlen(start);
    return true;
}

static bool has(const char *features, const char *wanted) {
    char name[64];
    bool on;
    for (const char *at = features; next_feature(&at, name, sizeof name, &on);)
        if (on && strcmp(name, wanted) == 0) return true;
    return false;
}

static bool has_all(const char *features, const char *const *wanted) {
    for (; *wanted; wanted++)
        if (!has(features, *wanted)) return false;
    return true;
}

static const char *const avx2_set[] = {"avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "popcnt", NULL};
static const char *const avx512_set[] = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", NULL};
static const char *const sse2_allowed[] = {"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87", NULL};
static const char *const above_avx2[] = {"avx512", "avx10", "amx", "evex512", "avx5", NULL};

/* Names and prefixes of features that change what instructions are selected. LLVM takes the string apart several times
 * per module, and each entry costs, so the rest (system instructions) is left to the CPU name. */
static const char *const selected[] = {"sse",       "ssse3", "avx",        "fma",  "f16c", "bmi",  "lzcnt",
                                       "popcnt",    "movbe", "adx",        "gfni", "vaes", "xop",  "tbm",
                                       "evex512",   "cmov",  "vpclmulqdq", "egpr", "ndd",  "ccmp", "nf",
                                       "push2pop2", "ppx",   "cf",         "zu",   "fast-"};

static bool selects(const char *name) {
    for (size_t i = 0; i < sizeof selected / sizeof *selected; i++)
        if (strncmp(name, selected[i], strlen(selected[i])) == 0) return true;
    return false;
}

static bool allowed(cpu_level level, const char *name) {
    if (level == CPU_BASE) {
        for (const char *const *at = sse2_allowed; *at; at++)
            if (strcmp(name, *at) == 0) return true;
        return false;
    }
    for (const char *const *at = above_avx2; *at && level == CPU_AVX2; at++)
        if (strncmp(name, *at, strlen(*at)) == 0) return false;
    return strncmp(name, "amx", 3) != 0; /* tiles need a permission from the kernel */
}

/* Features of AVX-512 that come with the CPU name or not at all: the emitter needs none of them, and each costs LLVM a walk through
 * everything that it implies. */
static bool optional(const char *name) {
    static const char *const names[] = {"avx512ifma", "avx512vpopcntdq", "avx512bitalg",
                                        "avx512vbmi", "avx512vbmi2",     "gfni",
                                        "vaes",       "vpclmulqdq",      NULL};
    for (const char *const *at = names; *at; at++)
        if (strcmp(name, *at) == 0) return true;
    return false;
}

/* The host's features with those above the level switched off. */
static void restrict_features(target_device *device, const char *host, cpu_level level) {
    char name[64];
    bool on;
    size_t length = 0;
    for (const char *at = host; next_feature(&at, name, sizeof name, &on);) {
        bool use = on && allowed(level, name);
        if (!selects(name) || (use && optional(name))) continue;
        int written = snprintf(device->attributes + length, sizeof device->attributes - length, "%s%c%s",
                               length ? "," : "", use ? '+' : '-', name);
        if (written < 0 || (size_t)written >= sizeof device->attributes - length) break;
        length += (size_t)written;
    }
    device->attributes[length] = 0;
}

/* Hypervisors show the name of an older processor beside the features of the one below: all that have matrix tiles have two wide ports. */
static const char *name_by_features(const char *host_cpu, const char *host) {
    const cpu_row *row = find_cpu(host_cpu);
    return (!row || row->wide_ports < 2) && has(host, "amx-tile") ? "sapphirerapids" : host_cpu;
}

static cpu_level forced_level(cpu_level best) {
    const char *forced = lib_environment_get(LIB_ENV_FEATURES);
    cpu_level level = best;
    if (strcmp(forced, "sse2") == 0) level = CPU_BASE;
    if (strcmp(forced, "avx2") == 0) level = CPU_AVX2;
    return level < best ? level : best;
}

static void choose_x86(target_device *device, const char *host_cpu, const char *host) {
    static const char *const v2[] = {"sse4.2", "ssse3", "popcnt", "cx16", NULL};
    cpu_level best = !has_all(host, avx2_set) ? CPU_BASE : has_all(host, avx512_set) ? CPU_AVX512 : CPU_AVX2;
    cpu_level level = forced_level(best);
    const char *given = lib_environment_get(LIB_ENV_CPU), *cpu = given;
    if (!*cpu) cpu = name_by_features(host_cpu, host);
    if (level == CPU_BASE && best != CPU_BASE) cpu = "x86-64";
    if (*given && !find_cpu(given)) {
        lib_nearest nearest = lib_nearest_to(given);
        for (size_t i = 0; i < sizeof known_cpus / sizeof *known_cpus; i++)
            lib_nearest_try(&nearest, known_cpus[i].name, strlen(known_cpus[i].name));
        lib_log_write(&device->log, "dlc: DLC_CPU=%.100s: no such processor is known%s", given,
                      lib_nearest_hint(&nearest));
    }
    if (!find_cpu(cpu)) {
        cpu = level == CPU_AVX512 ? "x86-64-v4"
              : level == CPU_AVX2 ? "x86-64-v3"
              : has_all(host, v2) ? "x86-64-v2"
                                  : "x86-64";
    }
    snprintf(device->cpu, sizeof device->cpu, "%s", cpu);
    restrict_features(device, host, level == CPU_BASE && best == CPU_BASE ? CPU_AVX2 : level);
    const char *features = device->attributes;
    device->features = (cpu_features){.level = level,
                                      .x86 = true,
                                      .sse41 = has(features, "sse4.1"),
                                      .f16c = has(features, "f16c"),
                                      .avx512bf16 = level == CPU_AVX512 && has(features, "avx512bf16"),
                                      .avx512vnni = level == CPU_AVX512 && has(features, "avx512vnni")};
    tir_machine *m = &device->machine;
    int wide_ports = find_cpu(cpu)->wide_ports;
    m->vector_bytes = level == CPU_AVX512 ? 64 : level == CPU_AVX2 ? 32 : 16;
    m->vector_registers = level == CPU_AVX512 ? 32 : 16;
    m->fma = level >= CPU_AVX2;
    m->fma_ports = level == CPU_AVX512 && wide_ports == 1 ? 1 : level >= CPU_AVX2 ? 2 : 0;
    m->masked = level == CPU_AVX512;
    if (device->features.avx512bf16) m->units |= TIR_UNIT_BF16_DOT;
    if (device->features.avx512vnni) m->units |= TIR_UNIT_U8I8_DOT;
    if (device->features.f16c) m->units |= TIR_UNIT_F16;
    if (level == CPU_AVX512) m->units |= TIR_UNIT_SCALE;
}

/* Other architectures: 128-bit vectors and no assumptions. */
static void choose_portable(target_device *device, const char *host_cpu, const char *host) {
    snprintf(device->cpu, sizeof device->cpu, "%s", host_cpu);
    snprintf(device->attributes, sizeof device->attributes, "%s", host);
    device->machine.vector_bytes = 16;
    device->machine.vector_registers = 32;
    device->machine.fma = 1;
    device->machine.fma_ports = 2;
}

/* ---- caches */

static int64_t read_number(const char *path) {
    char line[64];
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    char *got = fgets(line, sizeof line, file);
    fclose(file);
    if (!got) return 0;
    char *unit;
    int64_t value = strtoll(line, &unit, 10);
    if (*unit == 'K') value <<= 10;
    if (*unit == 'M') value <<= 20;
    return value;
}

/* CPUs in a list like "0-3,8-11". */
static int64_t count_list(const char *path) {
    char line[256];
    FILE *file = fopen(path, "re");
    if (!file) return 1;
    char *at = fgets(line, sizeof line, file);
    fclose(file);
    int64_t count = 0;
    while (at && *at >= '0' && *at <= '9') {
        int64_t first = strtoll(at, &at, 10), last = first;
        if (*at == '-') last = strtoll(at + 1, &at, 10);
        count += last - first + 1;
        if (*at == ',') at++;
    }
    return count > 0 ? count : 1;
}

static void detect_caches(tir_machine *m) {
    for (int i = 0; i < 8; i++) {
        char path[128], type[32] = "";
        const char *base = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof path, "%s%d/type", base, i);
        FILE *file = fopen(path, "re");
        if (!file) break;
        if (!fgets(type, sizeof type, file)) type[0] = 0;
        fclose(file);
        if (strncmp(type, "Instruction", 11) == 0) continue;
        snprintf(path, sizeof path, "%s%d/level", base, i);
        int64_t level = read_number(path);
        snprintf(path, sizeof path, "%s%d/size", base, i);
        int64_t size = read_number(path);
        snprintf(path, sizeof path, "%s%d/shared_cpu_list", base, i);
        int64_t shared = count_list(path);
        snprintf(path, sizeof path, "%s%d/ways_of_associativity", base, i);
        if (level == 1) m->l1_ways = (int32_t)read_number(path);
        if (level == 1) m->l1 = size;
        if (level == 2) m->l2 = size;
        if (level == 3) m->l3 = size / shared;
    }
    if (m->l1 <= 0) m->l1 = 32 << 10;
    if (m->l2 <= 0) m->l2 = 512 << 10;
    if (m->l3 <= 0) m->l3 = 2 << 20;
    if (m->l3 > 16 << 20) m->l3 = 16 << 20; /* virtual machines show a whole socket's cache to few CPUs */
    m->line = 64;
    int64_t given[3], largest = INT64_C(1) << 20;
    if (!lib_environment_three(LIB_ENV_CACHES, given)) return;
    for (int i = 0; i < 3; i++) given[i] = (given[i] < largest ? given[i] : largest) << 10;
    m->l1 = given[0];
    m->l2 = given[1];
    m->l3 = given[2];
}

void cpu_detect(target_device *device) {
    tir_machine *m = &device->machine;
    memset(m, 0, sizeof *m);
    char *triple = LLVMGetDefaultTargetTriple(), *cpu = LLVMGetHostCPUName(), *features = LLVMGetHostCPUFeatures();
    snprintf(device->triple, sizeof device->triple, "%s", triple);
    if (strncmp(triple, "x86_64", 6) == 0)
        choose_x86(device, cpu, features);
    else
        choose_portable(device, cpu, features);
    LLVMDisposeMessage(triple);
    LLVMDisposeMessage(cpu);
    LLVMDisposeMessage(features);
    snprintf(m->target, sizeof m->target, "cpu");
    snprintf(m->name, sizeof m->name, "%s", device->cpu);
    /* Half vectors cost whole ones; two in one cost a blend, which masks and shuffles of 64 bytes make one instruction. */
    m->row_pairs = m->vector_bytes == 64 && m->masked && m->fma_ports != 1;
    m->cores = lib_cpu_limit();
    detect_caches(m);
}
