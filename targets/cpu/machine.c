/* Facts of the processor at hand, and the CPU name and feature string for LLVM. A name unknown to LLVM would mean a generic processor and
 * a warning, so only names of known_cpus reach it; DLC_CPU_FEATURES restricts the instruction set, for tests on one host. Nothing here
 * calls LLVM, allocates, or may fail by chance: the results are part of kernels' keys. */
#include "targets/cpu/cost.h"
#include "targets/cpu/cpuid.h"
#include "targets/cpu/units.h"

#include <stdio.h>
#include <stdlib.h>

/* Rates of one core (tir_rates) as measured, 0: not. load_sustained is of 512-bit vectors; bandwidth and distant are of L2, L3 and memory;
 * dot_bf16 is in cycles. */
typedef struct cpu_measured {
    double load_sustained, operand, page_stop, line_miss, streamed_rows, streams, bandwidth[TIR_LEVELS - 1],
        distant[TIR_LEVELS - 1], dot_bf16;
} cpu_measured;

static const cpu_measured zen3 = {.operand = 1.8,
                                  .page_stop = 10,
                                  .line_miss = 2,
                                  .streamed_rows = 5,
                                  .streams = 4,
                                  .distant = {16}},
                          zen5 = {.bandwidth = {60}},
                          rapids = {.load_sustained = 1.7,
                                    .streamed_rows = 9,
                                    .bandwidth = {38, 10, 5.6},
                                    .distant = {30, 5, 2.2},
                                    .dot_bf16 = 2.2};

/* The 64-bit x86 processors of LLVM 19, and its baseline levels. */
typedef struct cpu_row {
    const char *name;
    /* of 512-bit vectors: FMAs per cycle; instructions of any kind per cycle, 0: more than FMAs */
    int wide_ports, vector_ports;
    const cpu_measured *measured;
} cpu_row;

static const cpu_row known_cpus[] = {
    {.name = "x86-64"},
    {.name = "x86-64-v2"},
    {.name = "x86-64-v3"},
    {.name = "x86-64-v4", .wide_ports = 1},
    {.name = "nocona"},
    {.name = "core2"},
    {.name = "penryn"},
    {.name = "nehalem"},
    {.name = "westmere"},
    {.name = "sandybridge"},
    {.name = "ivybridge"},
    {.name = "haswell"},
    {.name = "broadwell"},
    {.name = "skylake"},
    {.name = "skylake-avx512", .wide_ports = 2, .vector_ports = 2},
    {.name = "cascadelake", .wide_ports = 2, .vector_ports = 2},
    {.name = "cooperlake", .wide_ports = 2, .vector_ports = 2},
    {.name = "cannonlake", .wide_ports = 1},
    {.name = "icelake-client", .wide_ports = 1},
    {.name = "icelake-server", .wide_ports = 2, .vector_ports = 2},
    {.name = "tigerlake", .wide_ports = 1},
    {.name = "rocketlake", .wide_ports = 1},
    {.name = "sapphirerapids", .wide_ports = 2, .vector_ports = 2, .measured = &rapids},
    {.name = "emeraldrapids", .wide_ports = 2, .vector_ports = 2, .measured = &rapids},
    {.name = "graniterapids", .wide_ports = 2, .vector_ports = 2, .measured = &rapids},
    {.name = "graniterapids-d", .wide_ports = 2, .vector_ports = 2, .measured = &rapids},
    {.name = "alderlake"},
    {.name = "raptorlake"},
    {.name = "meteorlake"},
    {.name = "arrowlake"},
    {.name = "arrowlake-s"},
    {.name = "lunarlake"},
    {.name = "pantherlake"},
    {.name = "gracemont"},
    {.name = "sierraforest"},
    {.name = "grandridge"},
    {.name = "clearwaterforest"},
    {.name = "bonnell"},
    {.name = "silvermont"},
    {.name = "goldmont"},
    {.name = "goldmont-plus"},
    {.name = "tremont"},
    {.name = "k8"},
    {.name = "k8-sse3"},
    {.name = "opteron"},
    {.name = "opteron-sse3"},
    {.name = "athlon64"},
    {.name = "athlon64-sse3"},
    {.name = "amdfam10"},
    {.name = "barcelona"},
    {.name = "btver1"},
    {.name = "btver2"},
    {.name = "bdver1"},
    {.name = "bdver2"},
    {.name = "bdver3"},
    {.name = "bdver4"},
    {.name = "znver1"},
    {.name = "znver2"},
    {.name = "znver3", .measured = &zen3},
    {.name = "znver4", .wide_ports = 1},
    {.name = "znver5", .wide_ports = 2, .measured = &zen5},
    {.name = "knl", .wide_ports = 2},
    {.name = "knm", .wide_ports = 2},
};

static const cpu_row *find_cpu(const char *name) {
    for (size_t i = 0; i < sizeof known_cpus / sizeof *known_cpus; i++)
        if (strcmp(known_cpus[i].name, name) == 0) return &known_cpus[i];
    return NULL;
}

const char *cpu_known_name(int n) {
    return n < (int)(sizeof known_cpus / sizeof *known_cpus) ? known_cpus[n].name : NULL;
}

/* ---- features */

/* How a usable feature is passed to LLVM. An unusable one is always passed if the processor's name could imply it. */
typedef enum cpu_telling {
    CPU_TOLD_GIVEN,
    /* Implied by the name or not at all: the emitter needs none of these, and each makes LLVM visit everything that it implies. */
    CPU_TOLD_BY_NAME,
    /* Never passed: the feature affects the processor's name only. */
    CPU_TOLD_UNTOLD
} cpu_telling;

/* Matrix tiles belong to no level: a process needs the operating system's permission to use them. */
enum { CPU_TILES = CPU_AVX512 + 1 };

static const struct {
    const char *text;
    uint8_t level, told;
} feature_rows[CPU_FEATURES] = {
#define X(name, text, word, bit, saved, level, told) {text, CPU_##level, CPU_TOLD_##told},
    CPU_FEATURE_TABLE(X)
#undef X
};

static const cpu_feature_set v2_set = CPU_SET(SSE42) | CPU_SET(SSSE3) | CPU_SET(POPCNT) | CPU_SET(CX16),
                             avx2_set = CPU_SET(AVX2) | CPU_SET(FMA) | CPU_SET(F16C) | CPU_SET(BMI) | CPU_SET(BMI2) |
                                        CPU_SET(LZCNT) | CPU_SET(MOVBE) | CPU_SET(POPCNT),
                             avx512_set = CPU_SET(AVX512F) | CPU_SET(AVX512BW) | CPU_SET(AVX512CD) | CPU_SET(AVX512DQ) |
                                          CPU_SET(AVX512VL);

static bool has_all(cpu_feature_set set, cpu_feature_set wanted) {
    return (set & wanted) == wanted;
}

/* The processor's features that the level allows. */
static cpu_feature_set restrict_to(cpu_feature_set host, cpu_level level) {
    cpu_feature_set set = 0;
    for (int f = 0; f < CPU_FEATURES; f++)
        if ((int)feature_rows[f].level <= (int)level) set |= host & UINT64_C(1) << f;
    return set;
}

/* "+avx2,...,-xop": missing features come last, so that nothing before can imply them. */
static void write_features(target_device *device, cpu_feature_set set) {
    size_t length = 0;
    device->attributes[0] = 0;
    for (int off = 0; off < 2; off++)
        for (int f = 0; f < CPU_FEATURES; f++) {
            bool is_off = !(set >> f & 1);
            if (is_off != off || feature_rows[f].told == CPU_TOLD_UNTOLD) continue;
            if (!is_off && feature_rows[f].told == CPU_TOLD_BY_NAME) continue;
            length += (size_t)snprintf(device->attributes + length, sizeof device->attributes - length, "%s%c%s",
                                       length ? "," : "", is_off ? '-' : '+', feature_rows[f].text);
        }
}

/* The name, corrected by features: some hypervisors report an older processor's name with newer features, and all processors that have
 * matrix tiles have two 512-bit FMA ports. */
static const char *name_by_features(const char *name, cpu_feature_set host) {
    const cpu_row *row = name ? find_cpu(name) : NULL;
    return (!row || row->wide_ports < 2) && (host & CPU_SET(TILES)) ? "sapphirerapids" : name;
}

static cpu_level forced_level(cpu_level best) {
    const char *forced = lib_environment_get(LIB_ENV_FEATURES);
    cpu_level level = best;
    if (strcmp(forced, "sse2") == 0) level = CPU_BASE;
    if (strcmp(forced, "avx2") == 0) level = CPU_AVX2;
    return level < best ? level : best;
}

/* The name passed to LLVM: DLC_CPU, the processor's own, or for an unknown processor that of the level. */
static const char *choose_name(const target_device *device, const char *own, cpu_feature_set host, cpu_level level,
                               cpu_level best) {
    const char *given = lib_environment_get(LIB_ENV_CPU), *cpu = *given ? given : name_by_features(own, host);
    if (level == CPU_BASE && best != CPU_BASE) cpu = "x86-64";
    if (*given && !find_cpu(given)) {
        lib_nearest nearest = lib_nearest_to(given);
        for (size_t i = 0; i < sizeof known_cpus / sizeof *known_cpus; i++)
            lib_nearest_try(&nearest, known_cpus[i].name, strlen(known_cpus[i].name));
        lib_log_write(&device->log, "dlc: DLC_CPU=%.100s: no such processor is known%s", given,
                      lib_nearest_hint(&nearest));
    }
    if (cpu && find_cpu(cpu)) return cpu;
    return level == CPU_AVX512     ? "x86-64-v4"
           : level == CPU_AVX2     ? "x86-64-v3"
           : has_all(host, v2_set) ? "x86-64-v2"
                                   : "x86-64";
}

const tir_unit cpu_units[] = {CPU_UNITS, {.name = NULL}};

void cpu_choose(target_device *device, const cpu_answers *answers) {
    cpu_feature_set host = cpu_features_from(answers);
    cpu_level best = !has_all(host, avx2_set) ? CPU_BASE : has_all(host, avx512_set) ? CPU_AVX512 : CPU_AVX2;
    cpu_level level = forced_level(best);
    const char *cpu = choose_name(device, cpu_name_from(answers, host), host, level, best);
    snprintf(device->cpu, sizeof device->cpu, "%s", cpu);
    cpu_feature_set set = restrict_to(host, level == CPU_BASE && best == CPU_BASE ? CPU_AVX2 : level);
    write_features(device, set);
    device->features =
        (cpu_features){.level = level,
                       .x86 = true,
                       .sse41 = has_all(set, CPU_SET(SSE41)),
                       .f16c = has_all(set, CPU_SET(F16C)),
                       .avx512bf16 = level == CPU_AVX512 && has_all(set, CPU_SET(AVX512BF16)),
                       .vnni = level == CPU_AVX512 ? has_all(set, CPU_SET(AVX512VNNI))
                                                   : level == CPU_AVX2 && has_all(set, CPU_SET(AVXVNNI))};
    tir_machine *m = &device->machine;
    int wide_ports = find_cpu(cpu)->wide_ports;
    m->vector_bytes = level == CPU_AVX512 ? 64 : level == CPU_AVX2 ? 32 : 16;
    m->vector_registers = level == CPU_AVX512 ? 32 : 16;
    m->fma = level >= CPU_AVX2;
    m->half_units = level == CPU_AVX512 && wide_ports == 1;
    m->masked = level == CPU_AVX512;
    m->scales = level == CPU_AVX512;
    m->units = cpu_units;
    if (device->features.avx512bf16) m->unit_bits |= CPU_BF16_DOT;
    if (device->features.vnni) m->unit_bits |= CPU_U8I8_DOT;
    m->unit_bits |= CPU_I16_DOT;
}

#if !defined(__x86_64__)
/* Other architectures: 128-bit vectors and no assumptions. */
static void choose_portable(target_device *device) {
    snprintf(device->cpu, sizeof device->cpu, "generic");
    device->machine.vector_bytes = 16;
    device->machine.vector_registers = 32;
    device->machine.fma = 1;
}
#endif

/* ---- rates */

/* Sets m->rates, which no processor reports. Numbers of ports depend on the processor's name; rates that were measured on that processor or its
 * family are in cpu_measured. All others have one value for all processors: that of a server with one busy core, checked with the benchmark on
 * Zen 4 (README.md, The machine's rates). */
void cpu_set_rates(tir_machine *m) {
    const double width = m->half_units ? 0.5 : 1, ports = 2 * width;
    static const cpu_measured none;
    const cpu_row *row = find_cpu(m->name);
    const cpu_measured *own = row && row->measured ? row->measured : &none;
    const bool two = m->vector_bytes == 64 && row && row->vector_ports == 2;
    m->page = 4096;
    m->tlb_pages = 64;
    m->rates =
        (tir_rates){.fma = ports,
                    .dot_bf16 = own->dot_bf16 > 0 ? 1 / own->dot_bf16 : ports,
                    .vector = m->half_units || two ? 2 : 3,
                    .load = ports,
                    .load_sustained = own->load_sustained > 0 && m->vector_bytes == 64 ? own->load_sustained : ports,
                    .store = width,
                    .issue = 5,
                    .operand = own->operand > 0 ? own->operand : 2,
                    .divide = 7,
                    .divide_f64 = 5,
                    .latency = 4,
                    .window = 256,
                    .misses = 12,
                    .bandwidth = {ports * m->vector_bytes, 32, 20, 7.5},
                    .distant = {ports * m->vector_bytes, 32, 18.8, 3.2},
                    .panel_vector = 1.5,
                    .rows_vector = 2,
                    .store_beyond_l2 = 6,
                    .page_miss = 2,
                    .line_miss = own->line_miss,
                    .set_miss = 6,
                    .streamed_rows = own->streamed_rows > 0 ? own->streamed_rows : 4,
                    .streams = own->streams > 0 ? own->streams : 1,
                    .page_stop = own->page_stop > 0 ? own->page_stop : 150,
                    .kept = 0.75,
                    .exposed_units = 0.05,
                    .exposed = {0.3, 0.2, 0.3, 0.3},
                    .loop = 6,
                    .task = 10,
                    .phase = 60,
                    .join = 1500,
                    .tile = 26,
                    .tile_beyond_l2 = 40,
                    .tile_unbroadcast = 10,
                    .tile_line = 0.6};
    for (int i = 1; i < TIR_LEVELS; i++) {
        if (own->bandwidth[i - 1] > 0) m->rates.bandwidth[i] = own->bandwidth[i - 1];
        if (own->distant[i - 1] > 0) m->rates.distant[i] = own->distant[i - 1];
    }
}

/* ---- caches */

static int64_t read_number(const char *path) {
    char line[64], *unit;
    if (!lib_file_read_start(path, line, sizeof line)) return 0;
    int64_t value = strtoll(line, &unit, 10);
    if (*unit == 'K') value <<= 10;
    if (*unit == 'M') value <<= 20;
    return value;
}

/* CPUs in a list like "0-3,8-11". */
static int64_t count_list(const char *path) {
    char line[256], *at = line;
    if (!lib_file_read_start(path, line, sizeof line)) return 1;
    int64_t count = 0;
    while (*at >= '0' && *at <= '9') {
        int64_t first = strtoll(at, &at, 10), last = first;
        if (*at == '-') last = strtoll(at + 1, &at, 10);
        count += last - first + 1;
        if (*at == ',') at++;
    }
    return count > 0 ? count : 1;
}

/* Sets what the system tells of the caches. */
static void read_caches(tir_machine *m) {
    for (int i = 0; i < 8; i++) {
        char path[128], type[32];
        const char *base = "/sys/devices/system/cpu/cpu0/cache/index";
        snprintf(path, sizeof path, "%s%d/type", base, i);
        if (!lib_file_read_start(path, type, sizeof type)) break;
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
        if (level == 2) m->l2_ways = (int32_t)read_number(path);
        if (level == 3) m->l3 = size / shared;
    }
}

static void detect_caches(tir_machine *m) {
    read_caches(m);
    if (m->l1 <= 0) m->l1 = 32 << 10;
    if (m->l2 <= 0) m->l2 = 512 << 10;
    if (m->l2_ways <= 0) m->l2_ways = 8;
    if (m->l3 <= 0) m->l3 = 2 << 20;
    if (m->l3 > 16 << 20) m->l3 = 16 << 20; /* virtual machines report a whole socket's cache for few CPUs */
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
#if defined(__x86_64__)
    cpu_answers answers;
    cpu_ask(&answers);
    cpu_choose(device, &answers);
#else
    choose_portable(device);
#endif
    snprintf(m->target, sizeof m->target, "cpu");
    snprintf(m->name, sizeof m->name, "%s", device->cpu);
    /* Sharing pays if half a vector costs as much as a whole one, and the blend of two rows is one instruction (masks, 64-byte shuffles). */
    m->row_pairs = m->vector_bytes == 64 && m->masked && !m->half_units;
    m->cores = lib_cpu_limit();
    detect_caches(m);
    cpu_set_rates(m);
}
