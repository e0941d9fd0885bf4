/* What the library knows of processors without asking LLVM, against what LLVM knows: of the one at hand, of every name and feature that may
 * be given to it; and answers of processors that are not at hand. */
#include "targets/cpu/cost.h"
#include "targets/cpu/cpuid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const texts[CPU_FEATURES] = {
#define X(name, text, word, bit, saved, level, told) text,
    CPU_FEATURE_TABLE(X)
#undef X
};

static int find_feature(const char *name) {
    for (int f = 0; f < CPU_FEATURES; f++)
        if (strcmp(texts[f], name) == 0) return f;
    return -1;
}

/* ---- LLVM's answers */

/* Names that LLVM lists and the table leaves out because nothing that loop IR becomes is selected by them: system instructions, locks and
 * transactions, cryptography, hints, integer operations on memory, tiles (which need a permission), the x87 and MMX registers. */
static const char *const left_out[] = {
    "64bit",     "aes",       "amx-bf16", "amx-complex", "amx-fp16", "amx-int8", "cldemote", "clflushopt", "clwb",
    "clzero",    "cmpccxadd", "crc32",    "cx8",         "enqcmd",   "fsgsbase", "fxsr",     "hreset",     "invpcid",
    "kl",        "lwp",       "mmx",      "movdir64b",   "movdiri",  "mwaitx",   "pclmul",   "pconfig",    "pku",
    "prefetchi", "prfchw",    "ptwrite",  "raoint",      "rdpid",    "rdpru",    "rdrnd",    "rdseed",     "rtm",
    "sahf",      "serialize", "sgx",      "sha",         "sha512",   "shstk",    "sm3",      "sm4",        "tsxldtrk",
    "uintr",     "usermsr",   "waitpkg",  "wbnoinvd",    "widekl",   "xsave",    "xsavec",   "xsaveopt",   "xsaves",
};

static bool is_left_out(const char *name) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strcmp(left_out[i], name) == 0) return true;
    return false;
}

/* The sets are equal: each name of LLVM's is in the table, on or off as here, or left out for a reason; and each of the table is in LLVM's. */
static void test_features(void **state) {
    (void)state;
    cpu_answers answers;
    cpu_ask(&answers);
    cpu_feature_set ours = cpu_features_from(&answers), seen = 0;
    char *list = LLVMGetHostCPUFeatures(), *rest = NULL;
    int count = 0;
    for (char *at = strtok_r(list, ",", &rest); at; at = strtok_r(NULL, ",", &rest), count++) {
        int f = find_feature(at + 1);
        if (f < 0) {
            if (!is_left_out(at + 1)) fail_msg("LLVM knows %s, this test does not", at + 1);
            continue;
        }
        seen |= UINT64_C(1) << f;
        if ((*at == '+') != (int)(ours >> f & 1)) fail_msg("LLVM says %s", at);
    }
    LLVMDisposeMessage(list);
    assert_true(count > 60);
    /* of all features it tells whether the host has them, but of evex512 only that it has */
    if (!(ours >> find_feature("evex512") & 1)) seen |= UINT64_C(1) << find_feature("evex512");
    for (int f = 0; f < CPU_FEATURES; f++)
        if (!(seen >> f & 1)) fail_msg("LLVM does not know %s", texts[f]);
}

static void test_name(void **state) {
    (void)state;
    cpu_answers answers;
    cpu_ask(&answers);
    char *theirs = LLVMGetHostCPUName();
    const char *ours = cpu_name_from(&answers, cpu_features_from(&answers));
    bool is_zen2 = ours && strcmp(ours, "znver2") == 0; /* LLVM 19 takes some of these for znver1 */
    if (!ours) print_message("family and model %x are unknown; LLVM guesses %s\n", answers.word[CPU_WORD_1A], theirs);
    if (ours && !is_zen2) assert_string_equal(ours, theirs);
    LLVMDisposeMessage(theirs);
}

/* What LLVM prints while a code generator is made: warnings of names that it does not know. */
static off_t warnings_of(const char *cpu, const char *features) {
    LLVMTargetMachineRef machine;
    lib_error error;
    fflush(stderr);
    int said = memfd_create("said", 0), own = dup(STDERR_FILENO);
    dup2(said, STDERR_FILENO);
    dlc_status status = cpu_make_machine(cpu, features, &machine, &error);
    if (status == DLC_OK) {
        LLVMContextRef context = LLVMContextCreate();
        LLVMModuleRef module = LLVMModuleCreateWithNameInContext("m", context);
        LLVMSetTarget(module, CPU_TRIPLE);
        LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
        LLVMValueRef f = LLVMAddFunction(module, "f", LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, 0));
        LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, f, "entry"));
        LLVMBuildRetVoid(builder);
        LLVMMemoryBufferRef buffer = NULL;
        char *message = NULL;
        if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message, &buffer))
            status = DLC_INTERNAL;
        if (buffer) LLVMDisposeMemoryBuffer(buffer);
        LLVMDisposeMessage(message);
        LLVMDisposeBuilder(builder);
        LLVMDisposeModule(module);
        LLVMContextDispose(context);
        LLVMDisposeTargetMachine(machine);
    }
    fflush(stderr);
    off_t bytes = lseek(said, 0, SEEK_END);
    dup2(own, STDERR_FILENO);
    close(own);
    close(said);
    assert_int_equal(status, DLC_OK);
    return bytes;
}

/* Every name and feature that may be given to LLVM is one that it knows, and 64-bit code is made for it. */
static void test_known_to_llvm(void **state) {
    (void)state;
    char feature[64];
    assert_true(warnings_of("x86-64", "+nonesuch") > 0);
    for (int n = 0; cpu_known_name(n); n++)
        if (warnings_of(cpu_known_name(n), "") > 0) fail_msg("LLVM does not know %s", cpu_known_name(n));
    for (int f = 0; f < CPU_FEATURES; f++)
        for (int sign = 0; sign < 2; sign++) {
            snprintf(feature, sizeof feature, "%c%s", "+-"[sign], texts[f]);
            if (warnings_of("x86-64", feature) > 0) fail_msg("LLVM does not know %s", feature);
        }
}

/* ---- processors that are not at hand */

/* A signature from family and model, as Intel and AMD extend both. */
static uint32_t signature(unsigned family, unsigned model) {
    unsigned extended = family > 15 ? family - 15 : 0;
    return (family - extended) << 8 | extended << 20 | (model & 15) << 4 | (model >> 4) << 16;
}

/* Answers with the given features and all that the system can save. */
static cpu_answers answers_of(const char *vendor, unsigned family, unsigned model, cpu_feature_set set) {
    static const struct {
        uint8_t word, bit;
    } rows[CPU_FEATURES] = {
#define X(name, text, word, bit, saved, level, told) {CPU_WORD_##word, bit},
        CPU_FEATURE_TABLE(X)
#undef X
    };
    cpu_answers a = {.saved = CPU_SAVES_AVX512 | CPU_SAVES_TILES | CPU_SAVES_APX};
    snprintf(a.vendor, sizeof a.vendor, "%s", vendor);
    a.word[CPU_WORD_1A] = signature(family, model);
    for (int f = 0; f < CPU_FEATURES; f++)
        if (set >> f & 1) a.word[rows[f].word] |= 1u << rows[f].bit;
    return a;
}

#define SET2 (CPU_SET(CMOV) | CPU_SET(SSE) | CPU_SET(SSE2))
#define SETV2 \
    (SET2 | CPU_SET(SSE3) | CPU_SET(SSSE3) | CPU_SET(SSE41) | CPU_SET(SSE42) | CPU_SET(POPCNT) | CPU_SET(CX16))
#define SETV3                                                                                             \
    (SETV2 | CPU_SET(AVX) | CPU_SET(AVX2) | CPU_SET(FMA) | CPU_SET(F16C) | CPU_SET(BMI) | CPU_SET(BMI2) | \
     CPU_SET(LZCNT) | CPU_SET(MOVBE))
#define SETV4                                                                                                  \
    (SETV3 | CPU_SET(AVX512F) | CPU_SET(EVEX512) | CPU_SET(AVX512DQ) | CPU_SET(AVX512CD) | CPU_SET(AVX512BW) | \
     CPU_SET(AVX512VL))
#define SETSPR (SETV4 | CPU_SET(AVX512VNNI) | CPU_SET(AVX512BF16) | CPU_SET(AVX512FP16) | CPU_SET(TILES))

static target_device *choose(const cpu_answers *answers) {
    static target_device device;
    memset(&device, 0, sizeof device);
    cpu_choose(&device, answers);
    return &device;
}

/* Models divide by any rate but the cycles that are added where they are measured. */
static void assert_rates(const tir_machine *facts) {
    tir_machine machine = *facts;
    cpu_set_rates(&machine);
    const double *rate = (const double *)&machine.rates;
    for (size_t i = 0; i < sizeof machine.rates / sizeof *rate; i++)
        assert_true(rate[i] > 0 || &rate[i] == &machine.rates.line_miss);
    assert_true(machine.page > 0 && machine.tlb_pages > 0);
}

/* Rates that differ between processors. */
static void test_rates_by_name(void **state) {
    (void)state;
    tir_machine zen3 = {.name = "znver3", .vector_bytes = 32}, zen4 = {.name = "znver4", .vector_bytes = 64};
    cpu_set_rates(&zen3);
    cpu_set_rates(&zen4);
    assert_true(zen3.rates.page_stop < zen4.rates.page_stop);
    assert_true(zen3.rates.streams > zen4.rates.streams && zen3.rates.streamed_rows > zen4.rates.streamed_rows);
    zen3.rates.page_stop = zen4.rates.page_stop;
    zen3.rates.streams = zen4.rates.streams;
    zen3.rates.streamed_rows = zen4.rates.streamed_rows;
    assert_true(zen3.rates.line_miss > zen4.rates.line_miss && zen3.rates.distant[1] < zen4.rates.distant[1]);
    assert_true(zen3.rates.operand < zen4.rates.operand);
    zen3.rates.operand = zen4.rates.operand;
    zen3.rates.line_miss = zen4.rates.line_miss;
    zen3.rates.distant[1] = zen4.rates.distant[1];
    zen3.rates.bandwidth[0] = zen4.rates.bandwidth[0];
    zen3.rates.distant[0] = zen4.rates.distant[0];
    assert_memory_equal(&zen3.rates, &zen4.rates, sizeof zen3.rates);
}

static void test_models(void **state) {
    (void)state;
    static const struct {
        const char *vendor;
        unsigned family, model;
        cpu_feature_set set;
        const char *name;
        cpu_level level;
        bool half_units;
    } cases[] = {
        {"GenuineIntel", 6, 0x3c, SETV3, "haswell", CPU_AVX2, false},
        {"GenuineIntel", 6, 0x55, SETV4, "skylake-avx512", CPU_AVX512, false},
        {"GenuineIntel", 6, 0x55, SETV4 | CPU_SET(AVX512VNNI), "cascadelake", CPU_AVX512, false},
        {"GenuineIntel", 6, 0x55, SETV4 | CPU_SET(AVX512VNNI) | CPU_SET(AVX512BF16), "cooperlake", CPU_AVX512, false},
        {"GenuineIntel", 6, 0x6a, SETV4, "icelake-server", CPU_AVX512, false},
        {"GenuineIntel", 6, 0x8c, SETV4, "tigerlake", CPU_AVX512, true},
        {"GenuineIntel", 6, 0x8f, SETSPR, "sapphirerapids", CPU_AVX512, false},
        {"GenuineIntel", 6, 0xad, SETSPR, "graniterapids", CPU_AVX512, false},
        {"GenuineIntel", 6, 0xb7, SETV3, "alderlake", CPU_AVX2, false},
        {"GenuineIntel", 6, 0xaf, SETV3, "sierraforest", CPU_AVX2, false},
        {"GenuineIntel", 6, 0x1a, SETV2, "nehalem", CPU_BASE, false},
        {"AuthenticAMD", 0x17, 0x01, SETV3, "znver1", CPU_AVX2, false},
        {"AuthenticAMD", 0x17, 0x31, SETV3, "znver2", CPU_AVX2, false},
        {"AuthenticAMD", 0x17, 0x60, SETV3, "znver2", CPU_AVX2, false},
        {"AuthenticAMD", 0x19, 0x21, SETV3, "znver3", CPU_AVX2, false},
        {"AuthenticAMD", 0x19, 0x11, SETV4, "znver4", CPU_AVX512, true},
        {"AuthenticAMD", 0x1a, 0x02, SETV4, "znver5", CPU_AVX512, false},
        {"AuthenticAMD", 15, 0x6b, SET2, "k8", CPU_BASE, false},
        {"AuthenticAMD", 15, 0x6b, SET2 | CPU_SET(SSE3), "k8-sse3", CPU_BASE, false},
        /* unknown ones: by level */
        {"GenuineIntel", 6, 0xfe, SETV4, "x86-64-v4", CPU_AVX512, true},
        {"GenuineIntel", 19, 0x01, SETV3, "x86-64-v3", CPU_AVX2, false},
        {"AuthenticAMD", 0x1c, 0x00, SETV4, "x86-64-v4", CPU_AVX512, true},
        {"HygonGenuine", 0x18, 0x00, SETV3, "x86-64-v3", CPU_AVX2, false},
        {"CentaurHauls", 6, 0x0f, SETV2, "x86-64-v2", CPU_BASE, false},
        {"GenuineIntel", 6, 0xfe, SET2, "x86-64", CPU_BASE, false},
        /* hypervisors that show an older name, or none */
        {"GenuineIntel", 6, 0x3c, SETSPR, "sapphirerapids", CPU_AVX512, false},
        {"GenuineIntel", 19, 0x01, SETSPR, "sapphirerapids", CPU_AVX512, false},
        /* and that hide a part: the name stays, the level falls */
        {"GenuineIntel", 6, 0x8f, SETV3, "sapphirerapids", CPU_AVX2, false},
        {"AuthenticAMD", 0x19, 0x11, SETV4 & ~CPU_SET(AVX512VL), "znver4", CPU_AVX2, false},
        {"GenuineIntel", 6, 0x3c, SETV3 & ~CPU_SET(FMA), "haswell", CPU_BASE, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cpu_answers a = answers_of(cases[i].vendor, cases[i].family, cases[i].model, cases[i].set);
        const target_device *device = choose(&a);
        assert_string_equal(device->cpu, cases[i].name);
        assert_int_equal(device->features.level, cases[i].level);
        assert_int_equal(device->machine.half_units, cases[i].half_units);
        assert_rates(&device->machine);
    }
}

static bool tells(const target_device *device, const char *feature) {
    char list[sizeof device->attributes], *rest = NULL;
    memcpy(list, device->attributes, sizeof list);
    for (char *at = strtok_r(list, ",", &rest); at; at = strtok_r(NULL, ",", &rest))
        if (strcmp(at, feature) == 0) return true;
    return false;
}

/* Products of u8 and i8: one instruction where there is one, of AVX-512's or of AVX's encoding; else words are multiplied, as those of other
 * bytes and of words are everywhere. */
static void test_byte_units(void **state) {
    (void)state;
    static const struct {
        cpu_feature_set set;
        const char *unit;
    } cases[] = {{SETSPR, "vpdpbusd"},
                 {SETV4, "vpmaddwd"},
                 {SETV3 | CPU_SET(AVXVNNI), "vpdpbusd"},
                 {SETV3, "vpmaddwd"},
                 {SETV2, "vpmaddwd"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cpu_answers a = answers_of("GenuineIntel", 6, 0x8f, cases[i].set);
        const tir_machine *machine = &choose(&a)->machine;
        const char *first = NULL, *last = NULL;
        for (const tir_unit *unit = machine->units; unit->name; unit++) {
            if (!tir_machine_has(machine, unit) || unit->place[0].dtype != DLC_I32) continue;
            if (!first) first = unit->name;
            last = unit->name;
        }
        assert_string_equal(first, cases[i].unit);
        assert_string_equal(last, "vpmaddwd");
        assert_true(tir_machine_multiplies(machine, DLC_U8, DLC_I8, DLC_I32));
        assert_true(tir_machine_multiplies(machine, DLC_I8, DLC_I8, DLC_I32));
        assert_true(tir_machine_multiplies(machine, DLC_I16, DLC_U8, DLC_I32));
        assert_false(tir_machine_multiplies(machine, DLC_U16, DLC_I16, DLC_I32));
    }
}

/* Instruction sets whose registers the system does not save are not there, whatever CPUID says. */
static void test_saved(void **state) {
    (void)state;
    cpu_answers a = answers_of("GenuineIntel", 6, 0x8f, SETSPR);
    const target_device *device = choose(&a);
    assert_true(tells(device, "+avx512f") && tells(device, "+evex512") && tells(device, "+avx512bf16"));
    assert_true(tells(device, "-xop") && tells(device, "-egpr"));
    a.saved = CPU_SAVES_AVX | CPU_SAVES_TILES; /* as a kernel without AVX-512 */
    device = choose(&a);
    assert_int_equal(device->features.level, CPU_AVX2);
    assert_true(tells(device, "+avx2") && tells(device, "-avx512f") && tells(device, "-avx512bf16"));
    a.saved = 1 | 2; /* only SSE's */
    device = choose(&a);
    assert_int_equal(device->features.level, CPU_BASE);
    assert_true(tells(device, "+sse4.2") && tells(device, "-avx") && tells(device, "-fma") && tells(device, "-f16c"));
    assert_int_equal(device->machine.vector_bytes, 16);
    a.saved = 0;
    device = choose(&a);
    assert_true(tells(device, "-avx") && tells(device, "-avx512f"));
}

/* Whatever is answered, LLVM is told of nothing that it does not know, no feature is on that is not there, and the string is whole. */
static void test_any_answers(void **state) {
    (void)state;
    static const char *const vendors[] = {"GenuineIntel", "AuthenticAMD", "KVMKVMKVM", ""};
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        cpu_answers a = {0};
        snprintf(a.vendor, sizeof a.vendor, "%s", vendors[i % 4]);
        for (int w = 0; w <= CPU_WORDS; w++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            if (w < CPU_WORDS) a.word[w] = i % 5 ? (uint32_t)(seed >> 32) : ~0u;
            if (w == CPU_WORDS) a.saved = i % 3 ? seed >> 32 : ~UINT64_C(0);
        }
        const target_device *device = choose(&a);
        cpu_feature_set set = cpu_features_from(&a);
        bool known = false;
        for (int n = 0; cpu_known_name(n); n++) known |= strcmp(cpu_known_name(n), device->cpu) == 0;
        assert_true(known);
        assert_true(strlen(device->attributes) + 32 < sizeof device->attributes);
        for (int f = 0; f < CPU_FEATURES; f++) {
            char on[64], off[64];
            snprintf(on, sizeof on, "+%s", texts[f]);
            snprintf(off, sizeof off, "-%s", texts[f]);
            bool decides_name = f == CPU_FEATURE_TILES || f == CPU_FEATURE_CX16;
            if (tells(device, on)) assert_true(set >> f & 1);
            if (!(set >> f & 1) && !decides_name) assert_true(tells(device, off));
        }
    }
}

int main(void) {
    unsetenv("DLC_CPU");
    unsetenv("DLC_CPU_FEATURES");
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_name),
        cmocka_unit_test(test_known_to_llvm),
#endif
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_rates_by_name),
        cmocka_unit_test(test_byte_units),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_any_answers),
    };
    return cmocka_run_group_tests_name("the processor", tests, NULL, NULL);
}
