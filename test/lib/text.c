/* Text: numbers round trip in every dtype, locale and rounding mode; tokens and their places; every lexer error; files.
 */
#include "lib/lib.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t random_state = 7;
static uint64_t random64(void) { /* xorshift64* */
    random_state ^= random_state >> 12, random_state ^= random_state << 25, random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1du;
}

/* Runs `work` in a scope; the error of a raise goes to *error. */
static dlc_status in_scope(void (*work)(lib_arena *arena, const void *user), const void *user, lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) work(&arena, user);
    *error = scope.error;
    lib_arena_free(&arena);
    return error->status;
}

#define MUST(work, user)                                                                     \
    do {                                                                                     \
        lib_error must_error;                                                                \
        if (in_scope(work, user, &must_error) != DLC_OK) fail_msg("%s", must_error.message); \
    } while (0)

/* ---- building --------------------------------------------------------------------------------------------------- */

static void build(lib_arena *arena, const void *user) {
    (void)user;
    lib_text text;
    lib_text_init(&text, arena);
    for (int i = 0; i < 1000; i++) {
        lib_text_add(&text, "ab");
        lib_text_format(&text, "%03d", i);
        lib_text_add_bytes(&text, "xyz", 1);
    }
    assert_int_equal(text.length, 6000);
    assert_int_equal(strlen(text.data), 6000);
    assert_memory_equal(text.data + 6 * 517, "ab517x", 6);
    char *large = lib_arena_format(arena, "%5000s|", "end"); /* longer than any room there was */
    assert_int_equal(strlen(large), 5001);
    assert_string_equal(large + 4997, "end|");
    assert_string_equal(lib_arena_format(arena, "%s", ""), "");
}

static void quote(lib_arena *arena, const void *user) {
    (void)user;
    char all[256];
    for (int i = 1; i < 256; i++) all[i - 1] = (char)i;
    all[255] = 0;
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_quoted(&text, all);
    for (size_t i = 0; i < text.length; i++) assert_true((unsigned char)text.data[i] >= ' ');
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "<text>", text.data, text.length);
    lib_lexer_next(&lexer);
    assert_int_equal(lexer.kind, LIB_STRING);
    assert_int_equal(lexer.text_length, 255);
    assert_string_equal(lexer.text, all);
}

static void test_build(void **state) {
    (void)state;
    MUST(build, NULL);
    MUST(quote, NULL);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static double read_number(lib_arena *arena, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "<text>", text, strlen(text));
    lib_lexer_next(&lexer);
    double value = lib_lexer_number(&lexer);
    assert_int_equal(lexer.kind, LIB_END);
    return value;
}

static void round_trip(lib_arena *arena, dlc_dtype dtype, double value) {
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_float(&text, value, dtype);
    double back = read_number(arena, text.data);
    char a[8] = {0}, b[8] = {0};
    lib_element_set_f64(dtype, a, value);
    lib_element_set_f64(dtype, b, back);
    if (!(isnan(value) && isnan(back)) && memcmp(a, b, 8) != 0) fail_msg("%a became %s", value, text.data);
}

static void numbers(lib_arena *arena, const void *user) {
    static const dlc_dtype dtypes[] = {DLC_F16, DLC_BF16, DLC_F32, DLC_F64};
    static const double special[] = {0.0,   -0.0,   1,     -1,   0.1,     1e22, 1e23,   5e-324, 1.7976931348623157e308,
                                     1e-45, 3.4e38, 65504, 6e-8, 2.0 / 3, 1e16, 0x1p53, 0x1p63, 123456789012345678.0};
    int rounds = *(const int *)user;
    for (int d = 0; d < 4; d++) {
        for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) round_trip(arena, dtypes[d], special[i]);
        round_trip(arena, dtypes[d], (double)NAN);
        round_trip(arena, dtypes[d], (double)INFINITY);
        round_trip(arena, dtypes[d], -(double)INFINITY);
        for (int i = 0; i < rounds; i++) {
            uint64_t bits = random64();
            double value;
            memcpy(&value, &bits, 8);
            lib_element_set_f64(dtypes[d], &bits, i % 2 ? value : ldexp((double)(int64_t)random64(), -70 + i % 30));
            round_trip(arena, dtypes[d], lib_element_get_f64(dtypes[d], &bits));
        }
    }
}

static void test_numbers(void **state) {
    (void)state;
    int rounds = 2000;
    MUST(numbers, &rounds);
}

static void all_halves(lib_arena *arena, const void *user) {
    (void)user;
    for (unsigned bits = 0; bits < 0x10000; bits += 7) {
        round_trip(arena, DLC_F16, (double)lib_f32_from_f16((uint16_t)bits));
        round_trip(arena, DLC_BF16, (double)lib_f32_from_bf16((uint16_t)bits));
    }
}

static void shortest(lib_arena *arena, const void *user) {
    (void)user;
    static const struct {
        dlc_dtype dtype;
        double value;
        const char *text;
    } rows[] = {{DLC_F64, 0.1, "0.1"},       {DLC_F32, (double)0.1f, "0.1"},  {DLC_F32, 0.1, "0.1"},
                {DLC_F16, 0.1, "0.1"},       {DLC_BF16, 3.140625, "3.14"},    {DLC_F64, 1, "1"},
                {DLC_F64, -0.0, "-0"},       {DLC_F64, (double)NAN, "nan"},   {DLC_F64, -(double)INFINITY, "-inf"},
                {DLC_F64, 5e-324, "5e-324"}, {DLC_F32, 16777216, "16777216"}, {DLC_F64, (double)INFINITY, "inf"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lib_text text;
        lib_text_init(&text, arena);
        lib_text_float(&text, rows[i].value, rows[i].dtype);
        if (rows[i].dtype == DLC_F32 && rows[i].value == 16777216) {
            assert_in_range(text.length, 5, 8); /* 1.6777216e+07 is not shorter; any that reads back will do */
            continue;
        }
        assert_string_equal(text.data, rows[i].text);
    }
}

static void test_shortest(void **state) {
    (void)state;
    MUST(shortest, NULL);
    MUST(all_halves, NULL);
}

static void test_locale_and_rounding(void **state) {
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    int rounds = 300;
    /* the results in the default state are right; the others must print and read the same */
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
        lib_error error;
        dlc_status status = in_scope(shortest, NULL, &error);
        int mode = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(mode, modes[i]);
        if (status != DLC_OK) fail_msg("%s", error.message);
    }
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8"};
    for (int i = 0; i < 4; i++) {
        if (!setlocale(LC_NUMERIC, commas[i])) continue; /* not installed */
        MUST(numbers, &rounds);
        MUST(shortest, NULL);
    }
    setlocale(LC_NUMERIC, "C");
}

/* ---- tokens ----------------------------------------------------------------------------------------------------- */

/* Tokens as "kind:text@line:column", '!' behind the first of a line. */
static char *tokens(lib_arena *arena, const char *source, bool dotted) {
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_add(&text, "");
    lib_lexer lexer;
    size_t size = strlen(source);
    char *exact = malloc(size ? size : 1); /* without terminator, so that a sanitizer sees reads behind the end */
    memcpy(exact, source, size);
    lib_lexer_init(&lexer, arena, "<text>", exact, size);
    lexer.dotted_names = dotted;
    for (lib_lexer_next(&lexer); lexer.kind != LIB_END; lib_lexer_next(&lexer))
        lib_text_format(&text, "%s%c:%s@%d:%d%s", text.length ? " " : "", "?nifsp"[lexer.kind], lexer.text, lexer.line,
                        lexer.column, lexer.first_on_line ? "!" : "");
    lib_lexer_next(&lexer);
    assert_int_equal(lexer.kind, LIB_END);
    free(exact);
    return text.data;
}

static void lex(lib_arena *arena, const void *user) {
    (void)user;
    assert_string_equal(tokens(arena, "", false), "");
    assert_string_equal(tokens(arena, " \t\r\n # only a comment", false), "");
    assert_string_equal(tokens(arena, "#\n#\nx", false), "n:x@3:1!");
    assert_string_equal(tokens(arena, "a.b c_9", false), "n:a@1:1! p:.@1:2 n:b@1:3 n:c_9@1:5");
    assert_string_equal(tokens(arena, "a.b .c", true), "n:a.b@1:1! p:.@1:5 n:c@1:6");
    assert_string_equal(tokens(arena, "x->y<=-1\n  ==<<>>a<b>c", false),
                        "n:x@1:1! p:->@1:2 n:y@1:4 p:<=@1:5 p:-@1:7 i:1@1:8 p:==@2:3! p:<<@2:5 p:>>@2:7 n:a@2:9 "
                        "p:<@2:10 n:b@2:11 p:>@2:12 n:c@2:13");
    assert_string_equal(tokens(arena, "&&||!= & | ! =", false),
                        "p:&&@1:1! p:||@1:3 p:!=@1:5 p:&@1:8 p:|@1:10 p:!@1:12 p:=@1:14");
    assert_string_equal(tokens(arena, "1 1.5 1e3 2E-4 0x1F 1.x 07", false),
                        "i:1@1:1! f:1.5@1:3 f:1e3@1:7 f:2E-4@1:11 i:0x1F@1:16 i:1@1:21 p:.@1:22 n:x@1:23 i:07@1:25");
    assert_string_equal(tokens(arena, "\"a\\n\\\"\\x41\" \"\"", false), "s:a\n\"A@1:1! s:@1:13");
    assert_string_equal(tokens(arena, "f32[2,?]; end # c\r\nnext", false),
                        "n:f32@1:1! p:[@1:4 i:2@1:5 p:,@1:6 p:?@1:7 p:]@1:8 p:;@1:9 n:end@1:11 n:next@2:1!");
}

static void values(lib_arena *arena, const void *user) {
    (void)user;
    static const char text[] = "9223372036854775807 -9223372036854775808 0x7fffffffffffffff 0xffffffffffffffff -0 - 5 "
                               "name , -1.5 -inf nan 3 18446744073709551616.0";
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "<text>", text, sizeof text - 1);
    lib_lexer_next(&lexer);
    assert_true(lib_lexer_integer(&lexer) == INT64_MAX);
    assert_true(lib_lexer_integer(&lexer) == INT64_MIN);
    assert_true(lib_lexer_integer(&lexer) == INT64_MAX);
    assert_true(lib_lexer_integer(&lexer) == -1);
    double zero = lib_lexer_number(&lexer);
    assert_true(zero == 0 && signbit(zero));
    assert_true(lib_lexer_integer(&lexer) == -5);
    assert_false(lib_lexer_accept(&lexer, "names"));
    assert_string_equal(lib_lexer_name(&lexer), "name");
    lib_lexer_expect(&lexer, ",");
    assert_true(lib_lexer_number(&lexer) == -1.5);
    assert_true(lib_lexer_number(&lexer) == -(double)INFINITY);
    assert_true(isnan(lib_lexer_number(&lexer)));
    assert_true(lib_lexer_number(&lexer) == 3);
    assert_true(lib_lexer_number(&lexer) == 0x1p64);
    assert_int_equal(lexer.kind, LIB_END);
    assert_false(lib_lexer_is(&lexer, ""));
}

static void test_tokens(void **state) {
    (void)state;
    MUST(lex, NULL);
    MUST(values, NULL);
}

/* ---- errors ----------------------------------------------------------------------------------------------------- */

typedef struct bad_input {
    const char *text, *message;
    /* 't'okens only, 'n'ame, 'i'nteger, 'f'loat, or the punctuation expected */
    char want;
} bad_input;

static void provoke(lib_arena *arena, const void *user) {
    const bad_input *bad = user;
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "a.dlc", bad->text, strlen(bad->text));
    lib_lexer_next(&lexer);
    if (bad->want == 't')
        while (lexer.kind != LIB_END) lib_lexer_next(&lexer);
    else if (bad->want == 'n')
        lib_lexer_name(&lexer);
    else if (bad->want == 'i')
        lib_lexer_integer(&lexer);
    else if (bad->want == 'f')
        lib_lexer_number(&lexer);
    else
        lib_lexer_expect(&lexer, (char[]){bad->want, 0});
}

static void test_lexer_errors(void **state) {
    (void)state;
    static const bad_input rows[] = {
        {"\n  \"abc", "a.dlc:2:3: the string is not closed on its line", 't'},
        {"\"abc\n\"", "a.dlc:1:1: the string is not closed on its line", 't'},
        {"\"abc\\", "a.dlc:1:1: unknown escape in a string; \\\" \\\\ \\n \\t \\xNN are known", 't'},
        {"\"\\q\"", "a.dlc:1:1: unknown escape", 't'},
        {"\"\\x4\"", "a.dlc:1:1: unknown escape", 't'},
        {"\"\\x", "a.dlc:1:1: unknown escape", 't'},
        {"\"\\x00\"", "a.dlc:1:1: a string cannot hold \\x00", 't'},
        {"x 9223372036854775808", "a.dlc:1:3: integer does not fit 64 bits", 't'},
        {"-9223372036854775809", "a.dlc:1:2: integer does not fit 64 bits", 't'},
        {"99999999999999999999999999", "a.dlc:1:1: integer does not fit 64 bits", 't'},
        {"0x10000000000000000", "a.dlc:1:1: integer does not fit 64 bits", 't'},
        {"0x", "a.dlc:1:1: 0x without hexadecimal digits", 't'},
        {"0xg", "a.dlc:1:1: 0x without hexadecimal digits", 't'},
        {"1e", "a.dlc:1:1: exponent without digits", 't'},
        {"1e+", "a.dlc:1:1: exponent without digits", 't'},
        {"12ab", "a.dlc:1:1: a letter follows a number: 'a'", 't'},
        {"a \x01", "a.dlc:1:3: unexpected byte 0x01", 't'},
        {"\xc3\xa4", "a.dlc:1:1: unexpected byte 0xc3", 't'},
        {"12", "a.dlc:1:1: expected a name, found '12'", 'n'},
        {"", "a.dlc:1:1: expected a name, found the end of the text", 'n'},
        {"- x", "a.dlc:1:3: expected an integer, found 'x'", 'i'},
        {"1.5", "a.dlc:1:1: expected an integer, found '1.5'", 'i'},
        {"infinity", "a.dlc:1:1: expected a number, found 'infinity'", 'f'},
        {"\"s\"", "a.dlc:1:1: expected ')', found the string \"s\"", ')'},
        {"(", "a.dlc:1:1: expected ')', found '('", ')'},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lib_error error;
        assert_int_equal(in_scope(provoke, &rows[i], &error), DLC_PARSE_ERROR);
        if (strncmp(error.message, rows[i].message, strlen(rows[i].message)) != 0)
            fail_msg("row %zu: %s", i, error.message);
    }
}

static void provoke_random(lib_arena *arena, const void *user) {
    (void)user;
    static const char alphabet[] = "aZ_09.xeE+-\"\\#\n <>=!&|([])\t\x80\x7f";
    char text[24];
    size_t size = random64() % sizeof text;
    for (size_t i = 0; i < size; i++) text[i] = alphabet[random64() % sizeof alphabet];
    char *exact = lib_arena_copy(arena, text, size);
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "<text>", exact, size);
    do lib_lexer_next(&lexer);
    while (lexer.kind != LIB_END);
}

static void test_random_text(void **state) {
    (void)state;
    for (int i = 0; i < 20000; i++) {
        lib_error error;
        dlc_status status = in_scope(provoke_random, NULL, &error);
        assert_true(status == DLC_OK || status == DLC_PARSE_ERROR);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void read_file(lib_arena *arena, const void *user) {
    size_t size = 12345;
    char *text = lib_file_read(arena, user, &size);
    assert_int_equal(text[size], 0);
    if (strcmp(user, "/proc/self/status") == 0) {
        assert_true(size > 100 && strncmp(text, "Name:", 5) == 0);
    } else {
        assert_int_equal(size, 100000);
        for (size_t i = 0; i < size; i++) assert_int_equal((unsigned char)text[i], i * 7 % 256);
    }
}

static void read_empty(lib_arena *arena, const void *user) {
    (void)user;
    assert_string_equal(lib_file_read(arena, "/dev/null", NULL), "");
}

static void test_files(void **state) {
    (void)state;
    char path[] = "/tmp/dlc-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    FILE *stream = fdopen(file, "wb");
    for (size_t i = 0; i < 100000; i++) fputc((int)(i * 7 % 256), stream);
    fclose(stream);
    MUST(read_file, path);
    MUST(read_file, "/proc/self/status"); /* the system says its size is 0 */
    MUST(read_empty, NULL);
    unlink(path);
    lib_error error;
    assert_int_equal(in_scope(read_file, path, &error), DLC_NOT_FOUND);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, "No such file"));
    assert_int_equal(in_scope(read_file, "/tmp", &error), DLC_NOT_FOUND);
    assert_non_null(strstr(error.message, "directory"));
}

/* ---- nearest words, quotes ---------------------------------------------------------------------------------------- */

/* Edits between the words from their definition, tried in all ways. */
static int edits(const char *a, int m, const char *b, int n) {
    if (!m || !n) return m + n;
    int best = edits(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1]);
    int other = edits(a, m - 1, b, n) + 1;
    best = other < best ? other : best;
    other = edits(a, m, b, n - 1) + 1;
    best = other < best ? other : best;
    if (m > 1 && n > 1 && a[m - 1] == b[n - 2] && a[m - 2] == b[n - 1]) {
        other = edits(a, m - 2, b, n - 2) + 1;
        best = other < best ? other : best;
    }
    return best;
}

static void random_word(char word[8], int most) {
    int length = 1 + (int)(random64() % (uint64_t)most);
    for (int i = 0; i < length; i++) word[i] = "abc"[random64() % 3];
    word[length] = 0;
}

static void test_nearest(void **state) {
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char wanted[8], word[8];
        random_word(wanted, 7);
        lib_nearest nearest = lib_nearest_to(wanted);
        int least = (int)strlen(wanted) / 3 + 1;
        for (int i = 0; i < 6; i++) {
            random_word(word, 7);
            int distance = edits(wanted, (int)strlen(wanted), word, (int)strlen(word));
            if (distance < least) least = distance;
            lib_nearest_try(&nearest, word, strlen(word));
        }
        assert_int_equal(nearest.edits, least);
        if (nearest.word[0])
            assert_int_equal(edits(wanted, (int)strlen(wanted), nearest.word, (int)strlen(nearest.word)), least);
        assert_int_equal(nearest.word[0] != 0, lib_nearest_hint(&nearest)[0] != 0);
    }
    static char longest[LIB_WORD_MAX + 2], beside[LIB_WORD_MAX + 1];
    memset(longest, 'a', LIB_WORD_MAX);
    memset(beside, 'a', LIB_WORD_MAX);
    lib_nearest nearest = lib_nearest_to(longest);
    beside[7] = 'b';
    lib_nearest_try(&nearest, beside, LIB_WORD_MAX);
    assert_int_equal(nearest.edits, 1);
    longest[LIB_WORD_MAX] = 'a';
    nearest = lib_nearest_to(longest); /* too long to be near to anything */
    lib_nearest_try(&nearest, beside, LIB_WORD_MAX);
    assert_string_equal(lib_nearest_hint(&nearest), "");
    nearest = lib_nearest_to("ReLU");
    lib_nearest_try_list(&nearest, "relu6 silu, relu");
    assert_string_equal(lib_nearest_hint(&nearest), "; did you mean \"relu\"?");
    nearest = lib_nearest_to("ab\ncd");
    lib_nearest_try(&nearest,
                    "ab\n\x80"
                    "d",
                    5);
    assert_string_equal(lib_nearest_hint(&nearest), "; did you mean \"ab\\n\\x80d\"?");
    nearest = lib_nearest_to(NULL);
    lib_nearest_try(&nearest, "a", 1);
    assert_string_equal(lib_nearest_hint(&nearest), "");
}

/* Any bytes between quotes are valid UTF-8 and read back. */
static void quote_and_read(lib_arena *arena, const void *user) {
    (void)user;
    for (int round = 0; round < 2000; round++) {
        char bytes[12] = {0};
        for (uint64_t i = 0, n = random64() % sizeof bytes; i < n; i++) bytes[i] = (char)(random64() % 255 + 1);
        lib_text text;
        lib_text_init(&text, arena);
        lib_text_quoted(&text, bytes);
        for (size_t at = 0, taken; at < text.length; at += taken) {
            taken = lib_utf8_length((const unsigned char *)text.data + at, text.length - at);
            assert_true(taken > 0 && (unsigned char)text.data[at] >= 0x20);
        }
        lib_lexer lexer;
        lib_lexer_init(&lexer, arena, "quoted", text.data, text.length);
        lib_lexer_next(&lexer);
        assert_int_equal(lexer.kind, LIB_STRING);
        assert_string_equal(lexer.text, bytes);
    }
}

static void test_quoted_bytes(void **state) {
    (void)state;
    MUST(quote_and_read, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest), cmocka_unit_test(test_quoted_bytes), cmocka_unit_test(test_build),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_shortest),     cmocka_unit_test(test_locale_and_rounding),
        cmocka_unit_test(test_tokens),  cmocka_unit_test(test_lexer_errors), cmocka_unit_test(test_random_text),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests_name("lib/text", tests, NULL, NULL);
}
