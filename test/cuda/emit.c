/* The text that loop IR becomes, where a wrong one would compile. */
#include "targets/cuda/cuda.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct {
    const char *kernel;
    /* parts of the text that must be there, and must not */
    const char *part, *other;
} cases[] = {
    /* A guard that holds in the first and the last lane, but not in between. */
    {"kernel k(x: f32[64] arg align 64, y: f32[64] arg align 64)\n"
     "phase tasks=16 task=b { for t in 0..1 thread { for v in 0..4 vec {\n"
     "y[b*4 + v] = x[b*4 + v where (b*4 + v)%3 == 0 else 5] } } }",
     "((b + v) % 3 == 0) ? x[b * 4 + v] : 5.0f", "(const uint4 *)&x"},
    /* One that is the same in all lanes. */
    {"kernel k(x: f32[64] arg align 64, y: f32[64] arg align 64)\n"
     "phase tasks=16 task=b { for t in 0..1 thread { for v in 0..4 vec {\n"
     "y[b*4 + v] = x[b*4 + v where b < 7 else 5] } } }",
     "(const uint4 *)&x", "x[b * 4 + v]"},
    /* A workspace whose elements have numbers of 32 bits, but not its bytes. */
    {"kernel k(x: f32[n] arg, t: f32[n, 1024] workspace, u: f32[n, 1024] workspace) params(n: 0..1000000)\n"
     "phase tasks=n task=p { t[p, 5] = x[p] u[p, 7] = x[p] }",
     "workspace + (n * 4096ll)", "const int n"},
    /* Lanes beside indices of 64 bits, which a helper wants of one type. */
    {"kernel k(x: f32[n] arg align 64, z: f32[4] arg, y: f32[n] arg align 64) params(n: 0..1000000000000 x4)\n"
     "phase tasks=n/4 task=b { for t in 0..1 thread { for v in 0..4 vec { y[b*4 + v] = x[b*4 + v] + z[min(v, 2)] } } }",
     "int_min(v, 2ll)", "int v"},
};

static void expect_text(const char *kernel, const char *part, const char *other) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        lib_lexer lexer;
        lib_text text;
        lib_text_init(&text, &arena);
        lib_lexer_init(&lexer, &arena, "kernel", kernel, strlen(kernel));
        cuda_emit(tir_kernel_parse(&arena, &lexer, NULL), 0, &text);
        if (!strstr(text.data, part) || strstr(text.data, other))
            fail_msg("expected %s, not %s:\n%s", part, other, text.data);
    }
    lib_arena_free(&arena);
    assert_string_equal(scope.error.status == DLC_OK ? "" : scope.error.message, "");
}

static void test_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_text(cases[i].kernel, cases[i].part, cases[i].other);
}

/* Numbers have a decimal point, whatever the host's locale has. */
static void test_locale(void **state) {
    (void)state;
    static const char *const commas[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8"};
    for (size_t i = 0; i < sizeof commas / sizeof *commas; i++) {
        if (!setlocale(LC_NUMERIC, commas[i])) continue; /* not installed */
        expect_text("kernel k(x: f32[8] arg, y: i64[8] arg)\nphase tasks=8 task=p { y[p] = cast.i64(x[p] + 2.5:f32) }",
                    "(x[p] + 2.5f, -9.2", ",2");
    }
    setlocale(LC_NUMERIC, "C");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_locale)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
