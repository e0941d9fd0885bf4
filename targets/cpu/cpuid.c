/* CPUID and XGETBV: queries the processor and decodes its answers. Decoding is separate from the query, so that tests cover processors
 * that are not at hand. */
#include "targets/cpu/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

void cpu_ask(cpu_answers *answers) {
    enum { OSXSAVE = 1 << 27 /* of leaf 1, ecx: the system lets programs read XCR0 */ };
    uint32_t *word = answers->word, a, b, c, d, last, subleaves;
    *answers = (cpu_answers){0};
    __cpuid(0, last, b, c, d);
    memcpy(answers->vendor, &b, 4);
    memcpy(answers->vendor + 4, &d, 4);
    memcpy(answers->vendor + 8, &c, 4);
    __cpuid(1, word[CPU_WORD_1A], b, word[CPU_WORD_1C], word[CPU_WORD_1D]);
    if (word[CPU_WORD_1C] & OSXSAVE) answers->saved = read_xcr0();
    if (last >= 7) {
        __cpuid_count(7, 0, subleaves, word[CPU_WORD_7B], word[CPU_WORD_7C], word[CPU_WORD_7D]);
        if (subleaves >= 1) __cpuid_count(7, 1, word[CPU_WORD_7_1A], b, c, word[CPU_WORD_7_1D]);
    }
    if (last >= 0x24) __cpuid_count(0x24, 0, a, word[CPU_WORD_24B], c, d);
    __cpuid(0x80000000, last, b, c, d);
    if (last >= 0x80000001) __cpuid(0x80000001, a, b, word[CPU_WORD_X1C], d);
}
#else
void cpu_ask(cpu_answers *answers) {
    *answers = (cpu_answers){0};
}
#endif

cpu_feature_set cpu_features_from(const cpu_answers *answers) {
    static const struct {
        uint8_t word, bit;
        uint32_t saved;
    } rows[CPU_FEATURES] = {
#define X(name, text, word, bit, saved, level, told) {CPU_WORD_##word, bit, CPU_SAVES_##saved},
        CPU_FEATURE_TABLE(X)
#undef X
    };
    cpu_feature_set set = 0;
    for (int f = 0; f < CPU_FEATURES; f++)
        if ((answers->word[rows[f].word] >> rows[f].bit & 1) && (answers->saved & rows[f].saved) == rows[f].saved)
            set |= UINT64_C(1) << f;
    if (!(set & CPU_SET(AVX))) /* even if a hypervisor reports these features: all use AVX's encoding */
        set &= ~(CPU_SET(FMA) | CPU_SET(F16C) | CPU_SET(AVX2) | CPU_SET(XOP) | CPU_SET(FMA4));
    if (!(set & CPU_SET(AVX10))) set &= ~CPU_SET(AVX10_512); /* without AVX10 the bit is meaningless */
    return set;
}

/* ---- names */

typedef struct model_row {
    /* the models first..last of the family */
    uint16_t family, first, last;
    const char *name;
} model_row;

/* Intel's family 6 and AMD's families. The last row of an AMD family covers its other models; other models of Intel have no name. The
 * first row that matches is taken. */
static const model_row intel_models[] = {
    {6, 0x0f, 0x0f, "core2"},
    {6, 0x16, 0x16, "core2"},
    {6, 0x17, 0x17, "penryn"},
    {6, 0x1d, 0x1d, "penryn"},
    {6, 0x1a, 0x1a, "nehalem"},
    {6, 0x1e, 0x1f, "nehalem"},
    {6, 0x2e, 0x2e, "nehalem"},
    {6, 0x25, 0x25, "westmere"},
    {6, 0x2c, 0x2c, "westmere"},
    {6, 0x2f, 0x2f, "westmere"},
    {6, 0x2a, 0x2a, "sandybridge"},
    {6, 0x2d, 0x2d, "sandybridge"},
    {6, 0x3a, 0x3a, "ivybridge"},
    {6, 0x3e, 0x3e, "ivybridge"},
    {6, 0x3c, 0x3c, "haswell"},
    {6, 0x3f, 0x3f, "haswell"},
    {6, 0x45, 0x46, "haswell"},
    {6, 0x3d, 0x3d, "broadwell"},
    {6, 0x47, 0x47, "broadwell"},
    {6, 0x4f, 0x4f, "broadwell"},
    {6, 0x56, 0x56, "broadwell"},
    {6, 0x4e, 0x4e, "skylake"},
    {6, 0x5e, 0x5e, "skylake"},
    {6, 0x8e, 0x8e, "skylake"}, /* Kaby Lake */
    {6, 0x9e, 0x9e, "skylake"}, /* Coffee Lake */
    {6, 0xa5, 0xa6, "skylake"}, /* Comet Lake */
    {6, 0x55, 0x55, "skylake-avx512"},
    {6, 0x66, 0x66, "cannonlake"},
    {6, 0x6a, 0x6a, "icelake-server"},
    {6, 0x6c, 0x6c, "icelake-server"},
    {6, 0x7d, 0x7e, "icelake-client"},
    {6, 0x8c, 0x8d, "tigerlake"},
    {6, 0xa7, 0xa7, "rocketlake"},
    {6, 0x8f, 0x8f, "sapphirerapids"},
    {6, 0xcf, 0xcf, "sapphirerapids"}, /* Emerald Rapids */
    {6, 0xad, 0xad, "graniterapids"},
    {6, 0xae, 0xae, "graniterapids-d"},
    {6, 0x97, 0x97, "alderlake"},
    {6, 0x9a, 0x9a, "alderlake"},
    {6, 0xaa, 0xaa, "alderlake"}, /* Meteor Lake */
    {6, 0xac, 0xac, "alderlake"},
    {6, 0xb7, 0xb7, "alderlake"}, /* Raptor Lake */
    {6, 0xba, 0xba, "alderlake"},
    {6, 0xbf, 0xbf, "alderlake"},
    {6, 0xbe, 0xbe, "gracemont"},
    {6, 0xb5, 0xb5, "arrowlake"},
    {6, 0xc5, 0xc5, "arrowlake"},
    {6, 0xc6, 0xc6, "arrowlake-s"},
    {6, 0xbd, 0xbd, "arrowlake-s"}, /* Lunar Lake */
    {6, 0xcc, 0xcc, "pantherlake"},
    {6, 0xaf, 0xaf, "sierraforest"},
    {6, 0xb6, 0xb6, "grandridge"},
    {6, 0xdd, 0xdd, "clearwaterforest"},
    {6, 0x1c, 0x1c, "bonnell"},
    {6, 0x26, 0x27, "bonnell"},
    {6, 0x35, 0x36, "bonnell"},
    {6, 0x37, 0x37, "silvermont"},
    {6, 0x4a, 0x4a, "silvermont"},
    {6, 0x4c, 0x4d, "silvermont"},
    {6, 0x5a, 0x5a, "silvermont"},
    {6, 0x5d, 0x5d, "silvermont"},
    {6, 0x5c, 0x5c, "goldmont"},
    {6, 0x5f, 0x5f, "goldmont"},
    {6, 0x7a, 0x7a, "goldmont-plus"},
    {6, 0x86, 0x86, "tremont"},
    {6, 0x8a, 0x8a, "tremont"},
    {6, 0x96, 0x96, "tremont"},
    {6, 0x9c, 0x9c, "tremont"},
    {6, 0x57, 0x57, "knl"},
    {6, 0x85, 0x85, "knm"},
    {15, 0x00, 0xff, "nocona"},
};
static const model_row amd_models[] = {
    {15, 0x00, 0xff, "k8"},     {16, 0x00, 0xff, "amdfam10"}, {20, 0x00, 0xff, "btver1"}, {21, 0x02, 0x02, "bdver2"},
    {21, 0x10, 0x1f, "bdver2"}, {21, 0x30, 0x3f, "bdver3"},   {21, 0x60, 0x7f, "bdver4"}, {21, 0x00, 0xff, "bdver1"},
    {22, 0x00, 0xff, "btver2"}, {23, 0x30, 0x3f, "znver2"},   {23, 0x47, 0x47, "znver2"}, {23, 0x60, 0x7f, "znver2"},
    {23, 0x84, 0x87, "znver2"}, {23, 0x90, 0xaf, "znver2"},   {23, 0x00, 0xff, "znver1"}, {25, 0x10, 0x1f, "znver4"},
    {25, 0x60, 0x7f, "znver4"}, {25, 0xa0, 0xaf, "znver4"},   {25, 0x00, 0xff, "znver3"}, {26, 0x00, 0xff, "znver5"},
};

static const char *find_model(const model_row *rows, size_t count, unsigned family, unsigned model) {
    for (size_t i = 0; i < count; i++)
        if (rows[i].family == family && model >= rows[i].first && model <= rows[i].last) return rows[i].name;
    return NULL;
}

/* Server chips of three generations share a model. */
static const char *skylake_server(cpu_feature_set features) {
    return features & CPU_SET(AVX512BF16)   ? "cooperlake"
           : features & CPU_SET(AVX512VNNI) ? "cascadelake"
                                            : "skylake-avx512";
}

const char *cpu_name_from(const cpu_answers *answers, cpu_feature_set features) {
    const uint32_t signature = answers->word[CPU_WORD_1A];
    unsigned family = signature >> 8 & 15, model = signature >> 4 & 15;
    if (family == 6 || family == 15) model += (signature >> 16 & 15) << 4;
    if (family == 15) family += signature >> 20 & 255;
    if (strcmp(answers->vendor, "GenuineIntel") == 0) {
        if (family == 6 && model == 0x55) return skylake_server(features);
        return find_model(intel_models, sizeof intel_models / sizeof *intel_models, family, model);
    }
    if (strcmp(answers->vendor, "AuthenticAMD") != 0) return NULL;
    const char *name = find_model(amd_models, sizeof amd_models / sizeof *amd_models, family, model);
    return name && strcmp(name, "k8") == 0 && (features & CPU_SET(SSE3)) ? "k8-sse3" : name;
}
