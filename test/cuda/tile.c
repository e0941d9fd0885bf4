/* Collective statements and pipelines through a real NVRTC: each kernel compiles for both architectures, stays in registers, and has the
 * instructions that it names. DUMP=folder keeps source and code. */
#include "targets/cuda/cuda.h"
#include "targets/cuda/units.h"
#include "test/share.h"
#include "tir/matrix_unit.h"
#include "tir/scheduled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct tile_case {
    /* NULL: of region and schedule */
    const char *name, *kernel;
    /* of PTX */
    const char *instruction;
    const char *region, *schedule;
} tile_case;

#define LANES(body) "for l in 0..8 thread { for t in 0..4 thread {\n" body "\n} }\n"
#define R(body) "for r in 0..2 unroll { " body " }\n"
#define H(body) "for h in 0..2 unroll { " body " }\n"
#define E(body) "for e in 0..2 unroll { " body " }\n"
#define KERNEL(copies)                                                                                                       \
    "kernel k(x: bf16[16, 16] arg, w: bf16[16, 8] arg, D: f32[16, 8] arg, C: f32[8, 4, 2, 2] reg,"                           \
    " A: bf16[8, 4, 2, 2, 2] reg, B: bf16[8, 4, 2, 2] reg, xs: bf16[16, 24] shared, ws: bf16[16, 8] shared)\n"               \
    "phase tasks=1 task=p {\n" LANES(H(E("C[l, t, h, e] = 0:f32"))) copies                                                   \
        "mma.m16n8k16.bf16 (i, j, k) C[i%8, j/2, i/8, j%2] += A[i%8, k%8/2, k/8, i/8, k%2] * B[j, k%8/2, k/8, k%2]\n" LANES( \
            H(E("D[h*8 + l, t*2 + e] = C[l, t, h, e]"))) "}\n"

/* f32 tiles of 128 x 128 x 16 by 256 threads, copied ahead; the last step of the sum and the last tiles are not whole. */
#define CONTRACTION(m, n, k)                                                                \
    "region r\ninput x f32[" m ", " k "]\ninput w f32[" k ", " n "]\n"                      \
    "reduce C f32 (i: " m ", j: " n " | k: " k                                              \
    ") init 0:f32 = muladd(x[i, k], w[k, j], acc(0):f32) merge acc(0):f32 + other(0):f32\n" \
    "map D f32 (i: " m ", j: " n ") = max(C[i, j], 0:f32)\noutput D\ntensor x align 64\ntensor w align 64\n"
#define PIPELINE(stages, groups)                                                                                                     \
    "rewrite:\n copy x -> xs\n copy w -> ws\n layout C (i/8, j/8, i%8, j%8)\n layout xs (i, k)\n"                                    \
    "loops:\n split D.i 128 -> ib ir mask\n split D.j 128 -> jb jr mask\n split D.ir 8 -> it ii mask\n split D.jr 8 -> jt jj mask\n" \
    " order D: ib jb it jt ii jj\n par D.ib D.jb\n thread D.it D.jt\n unroll D.ii\n vec D.jj\n"                                      \
    " at C D.jb\n store C reg\n split C.k 16 -> ko ki mask\n split C.i 8 -> it ii mask\n split C.j 8 -> jt jj mask\n"                \
    " order C: ko it jt ki ii jj\n thread C.it C.jt\n unroll C.ii C.jj\n at xs C.ko\n at ws C.ko\n"                                  \
    " store xs shared pad 16\n split xs.k 4 -> kt kv mask\n split xs.i 64 -> ia ir mask\n order xs: ir kt ia kv\n"                   \
    " thread xs.ir xs.kt\n unroll xs.ia\n vec xs.kv\n store ws shared\n split ws.j 4 -> jt jv mask\n"                                \
    " split ws.k 8 -> ka kr mask\n order ws: kr jt ka jv\n thread ws.kr ws.jt\n unroll ws.ka\n vec ws.jv\n"                          \
    " pipeline C.ko stages=" stages " " groups "\n"
#define CHUNKS "cp.async.cg.shared.global"

/* Vectors of 4 whose last one ends behind the tensor: whole ones in one path. */
#define GUARDED(value)                                                             \
    "region r\ninput x f32[1003]\ninput y f32[1003]\nmap z f32 (i: 1003) = " value \
    "\noutput z\ntensor x align 64\ntensor y align 64\ntensor z align 64\n",       \
        "loops:\n split z.i 256 -> b r mask\n split z.r 4 -> t v mask\n par z.b\n thread z.t\n vec z.v\n"

static const tile_case cases[] = {
    {"guarded vectors", NULL, "st.global.v4", GUARDED("x[i] * y[i]")},
    {"guarded loads", NULL, "ld.global.v4", GUARDED("x[i where i < 900 else 0:f32] + y[i]")},
    {"rounding", NULL, "max.NaN.f32",
     "region r\ninput x f32[1003]\ninput y f32[1003]\nmap z bf16 (i: 1003) = cast.bf16(max(x[i], min(y[i], 2:f32)))\noutput z\n",
     "loops:\n split z.i 256 -> b t mask\n par z.b\n thread z.t\n"},
    {"pipeline of 2", NULL, CHUNKS, CONTRACTION("400", "404", "260"), PIPELINE("2", "")},
    {"pipeline of 3", NULL, CHUNKS, CONTRACTION("400", "404", "256"), PIPELINE("3", "groups=xs|ws")},
    {"pipeline of 4", NULL, CHUNKS, CONTRACTION("512", "512", "512"), PIPELINE("4", "")},
    {"copies of 8 bytes", NULL, "cp.async.ca.shared.global", CONTRACTION("400", "402", "258"), PIPELINE("3", "")},
    {"mma",
     KERNEL(LANES(R(H(E("A[l, t, r, h, e] = x[h*8 + l, r*8 + t*2 + e]")) E("B[l, t, r, e] = w[r*8 + t*2 + e, l]")))),
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", NULL, NULL},
    {"ldmatrix",
     KERNEL(LANES(
         "for c in 0..4 unroll { for i in 0..2 unroll { xs[i*8 + l, c*4 + t] = x[i*8 + l, c*4 + t] }\n"
         "ws[c*4 + t, l] = w[c*4 + t, l] }") "barrier\n"
                                             "ldmatrix.x4 (q, r, c) A[r, c/2, q/2, q%2, c%2] = xs[q%2*8 + r, q/2*8 + c]\n"
                                             "ldmatrix.x2.trans (q, r, c) B[c, r/2, q, r%2] = ws[q*8 + r, c]\n"),
     "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", NULL, NULL},
    {"contraction", NULL, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", REGION("bf16", "45", "83", "37"),
     SCHEDULE("bf16")},
    {"contraction_f16", NULL, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", REGION("f16", "512", "512", "512"),
     SCHEDULE("f16")},
};

static bool found;

static dlc_status open_for(cuda_compiler *compiler, int capability, lib_error *error) {
    return cuda_compiler_open(compiler, &lib_libc_allocator, NULL, 0, capability, error);
}

static void keep(const char *name, const char *suffix, const char *bytes, size_t size) {
    char path[512];
    if (!getenv("DUMP")) return;
    snprintf(path, sizeof path, "%s/%s.%s", getenv("DUMP"), name, suffix);
    FILE *file = fopen(path, "wb");
    if (!file) return;
    fwrite(bytes, 1, size, file);
    fclose(file);
}

static void compile(const char *name, const char *source, const char *instruction) {
    static const int capabilities[] = {80, 90, 75};
    const bool matrices = strstr(instruction, "mma") || strstr(instruction, "ldmatrix"); /* from 80 on */
    cuda_compiler compiler;
    cuda_code code;
    cuda_usage usage;
    lib_error error;
    keep(name, "cu", source, strlen(source));
    for (int i = matrices ? 1 : 2; i >= 0; i--) { /* the last one's PTX is looked at */
        assert_int_equal(open_for(&compiler, capabilities[i], &error), DLC_OK);
        if (cuda_compile_source(&compiler, source, true, &code, &error) != DLC_OK)
            fail_msg("%s: %s\n%s", name, error.message, source);
        assert_true(cuda_find_usage(code.log, "k0_p0", &usage));
        keep(name, i == 2 ? "sm_75.cubin" : i ? "sm_90.cubin" : "sm_80.cubin", code.bytes, code.size);
        print_message("%s, sm_%d: %d registers, %lld bytes of spills, %lld of stack\n", name, capabilities[i],
                      usage.registers, (long long)(usage.spill_stores + usage.spill_loads), (long long)usage.stack);
        assert_int_equal(usage.spill_stores + usage.spill_loads + usage.stack, 0);
        cuda_code_release(&compiler, &code);
    }
    compiler.ptx = true;
    assert_int_equal(cuda_compile_source(&compiler, source, false, &code, &error), DLC_OK);
    if (!strstr(code.bytes, instruction)) fail_msg("%s: no %s in\n%s", name, instruction, code.bytes);
    cuda_code_release(&compiler, &code);
}

static void need_nvrtc(void) {
    if (found) return;
    if (getenv("DLC_TEST_ALL")) fail_msg("NVRTC is missing");
    print_message("NVRTC is missing\n");
    skip();
}

/* The kernel compiles; what a region and a schedule come to. */
static void compile_kernel(const tile_case *c, const char *text) {
    lib_scope scope;
    lib_arena arena;
    lib_text source;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_lexer_init(&lexer, &arena, "kernel", text, strlen(text));
        const tir_kernel *kernel = tir_kernel_parse(&arena, &lexer, cuda_units);
        lib_text_init(&source, &arena);
        cuda_source(1, &kernel, &source);
        compile(c->name, source.data, c->instruction);
    }
    lib_arena_free(&arena);
    assert_string_equal(scope.error.status == DLC_OK ? "" : scope.error.message, "");
}

static void test_kernel(void **state) {
    const tile_case *c = *state;
    need_nvrtc();
    scheduled_report report = {.kernel = NULL};
    if (c->region && scheduled_run(c->region, c->schedule, 0, 7, false, &report) != SCHEDULED_AGREES)
        fail_msg("%s: %s", c->name, report.message);
    compile_kernel(c, c->region ? report.kernel : c->kernel);
    free(report.kernel);
}

/* ---- the target's own rules */

#define MMA_BF16 "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#define MMA_F16 "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#define ALIGNED "tensor x align 16\ntensor w align 16\ntensor b align 16\ntensor D align 16\n"
#define BY_COLUMNS(m, n, k)                                                                                     \
    "region r\ninput x bf16[" k ", " m "]\ninput w bf16[" n ", " k "]\n"                                        \
    "reduce C f32 (i: " m ", j: " n " | k: " k                                                                  \
    ") init 0:f32 = muladd(cast.f32(x[k, i]), cast.f32(w[j, k]), acc(0):f32) merge acc(0):f32 + other(0):f32\n" \
    "map D bf16 (i: " m ", j: " n ") = cast.bf16(C[i, j])\noutput D\n"
#define CONVOLUTION                                                                                                  \
    "region r\ninput x bf16[2, 9, 9, 32]\ninput w bf16[3, 3, 32, 40]\n"                                              \
    "reduce C f32 (n: 2, h: 7, v: 7, o: 40 | y: 3, u: 3, c: 32) init 0:f32 = "                                       \
    "muladd(cast.f32(x[n, h + y, v + u, c]), cast.f32(w[y, u, c, o]), acc(0):f32) merge acc(0):f32 + other(0):f32\n" \
    "map D f32 (n: 2, h: 7, v: 7, o: 40) = max(C[n, h, v, o], 0:f32)\noutput D\n"

/* Two contractions with rows between them; queries of `share` leading points use the same keys. */
#define CHAIN(...) CHAIN_OF(__VA_ARGS__)
#define CHAIN_OF(type, b, kb, share, i, j, d, e, score, weight)                                                       \
    "region r excess\ninput q " type "[" b ", " i ", " d "]\ninput k " type "[" kb ", " j ", " d "]\ninput v " type   \
    "[" kb ", " j ", " e "]\ninput bias " type "[" i ", " j "]\nreduce s f32 (b: " b ", i: " i ", j: " j " | d: " d   \
    ") init 0:f32 = muladd(cast.f32(q[b, i, d]), cast.f32(k[b" share                                                  \
    ", j, d]), acc(0):f32) merge acc(0):f32 + other(0):f32\nmap ss f32 (b: " b ", i: " i ", j: " j ") = " score       \
    "\nreduce m f32 exact (b: " b ", i: " i " | j: " j                                                                \
    ") init -inf:f32 = max(acc(0):f32, ss[b, i, j]) merge max(acc(0):f32, other(0):f32)\nmap ex f32 (b: " b ", i: " i \
    ", j: " j ") = " weight "\nreduce l f32 (b: " b ", i: " i " | j: " j                                              \
    ") init 0:f32 = acc(0):f32 + ex[b, i, j] merge acc(0):f32 + other(0):f32\nmap p " type " (b: " b ", i: " i        \
    ", j: " j ") = cast." type "(ex[b, i, j])\nreduce o f32 (b: " b ", i: " i ", e: " e " | j: " j                    \
    ") init 0:f32 = muladd(cast.f32(p[b, i, j]), cast.f32(v[b" share                                                  \
    ", j, e]), acc(0):f32) merge acc(0):f32 + other(0):f32\nmap y " type " (b: " b ", i: " i ", e: " e                \
    ") = cast." type "(select(m[b, i] == -inf, 0:f32, o[b, i, e] / l[b, i]))\noutput y\n"
#define ALIGNED_CHAIN "tensor q align 64\ntensor k align 64\ntensor v align 64\ntensor y align 64\n"
#define SCALED "s[b, i, j] * 0.2:f32"
#define EXP "exp(ss[b, i, j] - m[b, i])"
#define CAUSAL "select(j < i + 1, s[b, i, j] * 0.2:f32, -inf:f32)", "select(j < i + 1, " EXP ", 0:f32)"

/* Small ones run in the interpreter with all checks, and without bank conflicts where rows are aligned. */
typedef struct rule_case {
    const char *name, *region;
    bool runs;
    /* in the kernel */
    const char *expects[3];
} rule_case;

static const rule_case rule_cases[] = {
    {"rule, whole tiles",
     REGION("bf16", "64", "128", "96") ALIGNED,
     true,
     {"ldmatrix.x4 ", "ldmatrix.x2.trans", "async"}},
    {"rule, odd sizes", REGION("bf16", "45", "83", "37"), true, {"ldmatrix.x4 ", "mma.m16n8k16.bf16", "async"}},
    {"rule, less than a tile", REGION("bf16", "9", "11", "5"), true, {"ldmatrix", "mma.m16n8k16.bf16"}},
    {"rule, by columns", BY_COLUMNS("72", "40", "64"), true, {"ldmatrix.x4.trans", "ldmatrix.x"}},
    {"rule, convolution", CONVOLUTION, true, {"mma.m16n8k16.bf16", "ldmatrix"}},
    {"rule, 1024", REGION("bf16", "1024", "1024", "1024") ALIGNED, false, {"ldmatrix.x4.trans", "async", "wait 2"}},
    {"rule, chain",
     CHAIN("bf16", "6", "6", "", "40", "150", "32", "24", SCALED, EXP) ALIGNED_CHAIN,
     true,
     {"ldmatrix.x4 ", "async", "alike"}},
    {"rule, chain of odd sizes",
     CHAIN("f16", "2", "2", "", "37", "53", "19", "13", SCALED " + cast.f32(bias[i, j])", EXP),
     true,
     {"mma.m16n8k16.f16", "ldmatrix", "alike"}},
    {"rule, chain with shared keys",
     CHAIN("bf16", "6", "2", "/3", "160", "160", "64", "64", CAUSAL) ALIGNED_CHAIN,
     true,
     {"ldmatrix.x4 ", "async", "min("}},
    {"rule, long chain",
     CHAIN("bf16", "16", "16", "", "1024", "1024", "64", "64", CAUSAL) ALIGNED_CHAIN,
     false,
     {"ldmatrix.x4.trans", "wait 2", "key_block in 0 .. "}},
    {"rule, wide chain",
     CHAIN("f16", "8", "8", "", "512", "520", "128", "128", SCALED, EXP) ALIGNED_CHAIN,
     false,
     {"ldmatrix.x4.trans", "wait 2"}},
    {"rule, rows of 64", REGION("bf16", "64", "4096", "4096") ALIGNED, false, {"ldmatrix.x4.trans", "async"}},
};

static const char *schedule_of(lib_arena *arena, const char *text) {
    lib_lexer lexer;
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_machine machine;
    tir_schedule schedule;
    tir_pool_init(pool, arena);
    lib_lexer_init(&lexer, arena, "region", text, strlen(text));
    lib_lexer_next(&lexer);
    assert_true(cuda_machine_of_name("sm_90", &machine));
    tir_schedule_init(&schedule, arena);
    cuda_schedule(&machine, 1, tir_region_parse(arena, pool, &lexer), &schedule);
    return schedule.text.data;
}

static void test_rule(void **state) {
    const rule_case *c = *state;
    lib_scope scope;
    lib_arena arena;
    scheduled_report report = {.kernel = NULL};
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        const char *schedule = schedule_of(&arena, c->region);
        if (scheduled_run(c->region, schedule, 1e-2, 7, c->runs, &report) != SCHEDULED_AGREES)
            fail_msg("%s: %s\n%s", c->name, report.message, schedule);
    }
    lib_arena_free(&arena);
    assert_string_equal(scope.error.status == DLC_OK ? "" : scope.error.message, "");
    if (strstr(c->name, "chain") && strstr(strstr(report.kernel, "phase ") + 1, "phase "))
        fail_msg("%s: several phases", c->name);
    for (int i = 0; i < 3 && c->expects[i]; i++)
        if (!strstr(report.kernel, c->expects[i])) fail_msg("%s: no %s in\n%s", c->name, c->expects[i], report.kernel);
    if (report.conflicts) fail_msg("%s: %ld conflicts of banks, most in %s", c->name, report.conflicts, report.worst);
    const char *instruction = strstr(c->region, " f16[") ? MMA_F16 : MMA_BF16;
    if (found) compile_kernel(&(tile_case){.name = c->name, .instruction = instruction}, report.kernel);
    free(report.kernel);
}

int main(void) {
    enum { COUNT = sizeof cases / sizeof *cases, RULES = sizeof rule_cases / sizeof *rule_cases };
    lib_error error;
    cuda_compiler compiler;
    const char *usual = "/usr/local/cuda/lib64/libnvrtc.so";
    found = open_for(&compiler, 80, &error) == DLC_OK;
    if (!found && access(usual, R_OK) == 0) {
        setenv("DLC_NVRTC", usual, 1);
        found = open_for(&compiler, 80, &error) == DLC_OK;
    }
    struct CMUnitTest tests[COUNT + RULES];
    const int every = test_every() > 1 ? 5 : 1; /* under sanitizers a kernel takes seconds */
    size_t count = 0;
    for (int i = 0; i < COUNT; i += every)
        tests[count++] = (struct CMUnitTest){
            .name = cases[i].name, .test_func = test_kernel, .initial_state = (void *)(uintptr_t)&cases[i]};
    for (int i = 0; i < RULES; i += every)
        tests[count++] = (struct CMUnitTest){
            .name = rule_cases[i].name, .test_func = test_rule, .initial_state = (void *)(uintptr_t)&rule_cases[i]};
    return _cmocka_run_group_tests("tile", tests, count, NULL, NULL);
}
