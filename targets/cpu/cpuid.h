/* Which instruction sets may be used, and the processor's name: decided by the processor's report (CPUID) and by the registers that the
 * operating system saves for each thread (XCR0). LLVM is not used, so that a host with isolate_compiler runs none of its code. */
#ifndef TARGETS_CPU_CPUID_H
#define TARGETS_CPU_CPUID_H

#include "targets/cpu/cpu.h"

/* The words of CPUID that are read: leaf, subleaf if there are several, register. */
typedef enum cpu_word {
    CPU_WORD_1A, /* family and model */
    CPU_WORD_1C,
    CPU_WORD_1D,
    CPU_WORD_7B,
    CPU_WORD_7C,
    CPU_WORD_7D,
    CPU_WORD_7_1A,
    CPU_WORD_7_1D,
    CPU_WORD_24B,
    CPU_WORD_X1C, /* leaf 0x80000001 */
    CPU_WORDS
} cpu_word;

/* Bits of XCR0: registers that the system saves. Instructions on other registers fault, or lose their results. */
#define CPU_SAVES_NOTHING UINT64_C(0)
#define CPU_SAVES_AVX UINT64_C(0x6)
#define CPU_SAVES_AVX512 UINT64_C(0xe6)
#define CPU_SAVES_TILES UINT64_C(0x60000)
#define CPU_SAVES_APX UINT64_C(0x80000)

/* The instruction sets that matter to code generation, by LLVM's names: X(name, text, word, bit, registers that the system must save,
 * lowest level at which it may be used, how it is passed to LLVM). All others (system instructions, encryption) are never selected for loop
 * IR and left to the processor's name, since LLVM parses the list several times per module. Intel SDM volume 2, CPUID; AMD APM volume 3,
 * appendix E. */
#define CPU_FEATURE_TABLE(X)                                                  \
    X(CMOV, "cmov", 1D, 15, NOTHING, BASE, GIVEN)                             \
    X(SSE, "sse", 1D, 25, NOTHING, BASE, GIVEN)                               \
    X(SSE2, "sse2", 1D, 26, NOTHING, BASE, GIVEN)                             \
    X(SSE3, "sse3", 1C, 0, NOTHING, AVX2, GIVEN)                              \
    X(SSSE3, "ssse3", 1C, 9, NOTHING, AVX2, GIVEN)                            \
    X(FMA, "fma", 1C, 12, AVX, AVX2, GIVEN)                                   \
    X(CX16, "cx16", 1C, 13, NOTHING, AVX2, UNTOLD)                            \
    X(SSE41, "sse4.1", 1C, 19, NOTHING, AVX2, GIVEN)                          \
    X(SSE42, "sse4.2", 1C, 20, NOTHING, AVX2, GIVEN)                          \
    X(MOVBE, "movbe", 1C, 22, NOTHING, AVX2, GIVEN)                           \
    X(POPCNT, "popcnt", 1C, 23, NOTHING, AVX2, GIVEN)                         \
    X(AVX, "avx", 1C, 28, AVX, AVX2, GIVEN)                                   \
    X(F16C, "f16c", 1C, 29, AVX, AVX2, GIVEN)                                 \
    X(LZCNT, "lzcnt", X1C, 5, NOTHING, AVX2, GIVEN)                           \
    X(SSE4A, "sse4a", X1C, 6, NOTHING, AVX2, GIVEN)                           \
    X(XOP, "xop", X1C, 11, AVX, AVX2, GIVEN)                                  \
    X(FMA4, "fma4", X1C, 16, AVX, AVX2, GIVEN)                                \
    X(TBM, "tbm", X1C, 21, NOTHING, AVX2, GIVEN)                              \
    X(BMI, "bmi", 7B, 3, NOTHING, AVX2, GIVEN)                                \
    X(AVX2, "avx2", 7B, 5, AVX, AVX2, GIVEN)                                  \
    X(BMI2, "bmi2", 7B, 8, NOTHING, AVX2, GIVEN)                              \
    X(ADX, "adx", 7B, 19, NOTHING, AVX2, GIVEN)                               \
    X(AVX512F, "avx512f", 7B, 16, AVX512, AVX512, GIVEN)                      \
    X(EVEX512, "evex512", 7B, 16, AVX512, AVX512, GIVEN)                      \
    X(AVX512DQ, "avx512dq", 7B, 17, AVX512, AVX512, GIVEN)                    \
    X(AVX512IFMA, "avx512ifma", 7B, 21, AVX512, AVX512, BY_NAME)              \
    X(AVX512CD, "avx512cd", 7B, 28, AVX512, AVX512, GIVEN)                    \
    X(AVX512BW, "avx512bw", 7B, 30, AVX512, AVX512, GIVEN)                    \
    X(AVX512VL, "avx512vl", 7B, 31, AVX512, AVX512, GIVEN)                    \
    X(AVX512VBMI, "avx512vbmi", 7C, 1, AVX512, AVX512, BY_NAME)               \
    X(AVX512VBMI2, "avx512vbmi2", 7C, 6, AVX512, AVX512, BY_NAME)             \
    X(GFNI, "gfni", 7C, 8, NOTHING, AVX2, BY_NAME)                            \
    X(VAES, "vaes", 7C, 9, AVX, AVX2, BY_NAME)                                \
    X(VPCLMULQDQ, "vpclmulqdq", 7C, 10, AVX, AVX2, BY_NAME)                   \
    X(AVX512VNNI, "avx512vnni", 7C, 11, AVX512, AVX512, GIVEN)                \
    X(AVX512BITALG, "avx512bitalg", 7C, 12, AVX512, AVX512, BY_NAME)          \
    X(AVX512VPOPCNTDQ, "avx512vpopcntdq", 7C, 14, AVX512, AVX512, BY_NAME)    \
    X(AVX512VP2INTERSECT, "avx512vp2intersect", 7D, 8, AVX512, AVX512, GIVEN) \
    X(AVX512FP16, "avx512fp16", 7D, 23, AVX512, AVX512, GIVEN)                \
    X(TILES, "amx-tile", 7D, 24, TILES, TILES, UNTOLD)                        \
    X(AVXVNNI, "avxvnni", 7_1A, 4, AVX, AVX2, GIVEN)                          \
    X(AVX512BF16, "avx512bf16", 7_1A, 5, AVX512, AVX512, GIVEN)               \
    X(AVXIFMA, "avxifma", 7_1A, 23, AVX, AVX2, GIVEN)                         \
    X(AVXVNNIINT8, "avxvnniint8", 7_1D, 4, AVX, AVX2, GIVEN)                  \
    X(AVXNECONVERT, "avxneconvert", 7_1D, 5, AVX, AVX2, GIVEN)                \
    X(AVXVNNIINT16, "avxvnniint16", 7_1D, 10, AVX, AVX2, GIVEN)               \
    X(AVX10, "avx10.1-256", 7_1D, 19, AVX512, AVX512, GIVEN)                  \
    X(AVX10_512, "avx10.1-512", 24B, 18, AVX512, AVX512, GIVEN)               \
    X(EGPR, "egpr", 7_1D, 21, APX, AVX2, GIVEN)                               \
    X(PUSH2POP2, "push2pop2", 7_1D, 21, APX, AVX2, GIVEN)                     \
    X(PPX, "ppx", 7_1D, 21, APX, AVX2, GIVEN)                                 \
    X(NDD, "ndd", 7_1D, 21, APX, AVX2, GIVEN)                                 \
    X(CCMP, "ccmp", 7_1D, 21, APX, AVX2, GIVEN)                               \
    X(CF, "cf", 7_1D, 21, APX, AVX2, GIVEN)

typedef enum cpu_feature {
#define X(name, text, word, bit, saved, level, told) CPU_FEATURE_##name,
    CPU_FEATURE_TABLE(X)
#undef X
        CPU_FEATURES
} cpu_feature;

typedef uint64_t cpu_feature_set; /* bit f: cpu_feature f */
_Static_assert(CPU_FEATURES <= 64, "a set has a bit for each feature");
#define CPU_SET(name) (UINT64_C(1) << CPU_FEATURE_##name)

typedef struct cpu_answers {
    /* "GenuineIntel" */
    char vendor[13];
    /* 0: CPUID has no such leaf */
    uint32_t word[CPU_WORDS];
    /* XCR0; 0: the system saves nothing beyond SSE's registers */
    uint64_t saved;
} cpu_answers;

/* Queries the processor at hand. */
void cpu_ask(cpu_answers *answers);
cpu_feature_set cpu_features_from(const cpu_answers *answers);
/* LLVM's name of the processor; NULL: its family is not in the table. */
const char *cpu_name_from(const cpu_answers *answers, cpu_feature_set features);

/* machine.c, for any processor: name and feature string for LLVM, level and machine facts that follow from these answers. */
void cpu_choose(target_device *device, const cpu_answers *answers);
/* The n-th name that may be passed to LLVM, from 0; NULL after the last. */
const char *cpu_known_name(int n);

#endif
