/* Text: growing strings, numbers that read back exactly, the lexer of all our text forms, and host files. Numbers are
 * written and read the same way whatever the host's locale and rounding mode are. */
#include "lib/lib.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- growing strings ---------------------------------------------------------------------------- */

void lib_text_init(lib_text *text, lib_arena *arena) {
    *text = (lib_text){.arena = arena};
}

/* Room for `extra` bytes and the terminator. */
static void reserve(lib_text *text, size_t extra) {
    size_t need;
    if (!lib_size_add(text->length, extra, &need) || !lib_size_add(need, 1, &need))
        lib_raise(text->arena->scope, DLC_OUT_OF_MEMORY, "out of memory: a text of 2^64 bytes");
    if (need <= text->capacity) return;
    size_t capacity = text->capacity > SIZE_MAX / 2 ? SIZE_MAX : 2 * text->capacity;
    if (capacity < 64) capacity = 64;
    if (capacity < need) capacity = need;
    text->data = lib_arena_extend(text->arena, text->data, text->length, text->capacity, capacity);
    text->capacity = capacity;
}

void lib_text_add_bytes(lib_text *text, const char *bytes, size_t size) {
    reserve(text, size);
    if (size) memcpy(text->data + text->length, bytes, size);
    text->length += size;
    text->data[text->length] = 0;
}

void lib_text_add(lib_text *text, const char *string) {
    lib_text_add_bytes(text, string, strlen(string));
}

void lib_text_format_v(lib_text *text, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    reserve(text, 64);
    size_t room = text->capacity - text->length;
    int length = vsnprintf(text->data + text->length, room, format, arguments);
    if (length < 0) length = 0; /* only for malformed wide characters, which we do not print */
    if ((size_t)length >= room) {
        text->data[text->length] = 0; /* unchanged text, if reserve raises */
        reserve(text, (size_t)length);
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    }
    va_end(again);
    text->length += (size_t)length;
    text->data[text->length] = 0;
}

void lib_text_format(lib_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    lib_text_format_v(text, format, arguments);
    va_end(arguments);
}

/* The next character of a string as written between quotes, into `out`; returns how many bytes of the string it is. */
static size_t quote_character(const char *at, size_t left, char out[5]) {
    unsigned char byte = (unsigned char)*at;
    size_t length = lib_utf8_length((const unsigned char *)at, left);
    if (byte == '"' || byte == '\\') {
        snprintf(out, 5, "\\%c", byte);
    } else if (byte == '\n') {
        snprintf(out, 5, "\\n");
    } else if (byte < 0x20 || byte == 0x7f || !length) {
        snprintf(out, 5, "\\x%02x", byte);
        return 1;
    } else {
        memcpy(out, at, length);
        out[length] = 0;
        return length;
    }
    return 1;
}

void lib_text_quoted(lib_text *text, const char *string) {
    char character[5];
    size_t left = strlen(string);
    lib_text_add(text, "\"");
    for (size_t taken; left; string += taken, left -= taken) {
        taken = quote_character(string, left, character);
        lib_text_add(text, character);
    }
    lib_text_add(text, "\"");
}

void lib_quote(char *to, size_t size, const char *string, size_t shown) {
    char character[5];
    size_t left = strlen(string), at = 1, seen = 0;
    to[0] = '"';
    for (size_t taken; left && seen < shown && at + sizeof character + 5 < size; string += taken, left -= taken) {
        taken = quote_character(string, left, character);
        seen += taken;
        memcpy(to + at, character, strlen(character));
        at += strlen(character);
    }
    snprintf(to + at, size - at, "%s\"", left ? "..." : "");
}

/* ---- nearest words ------------------------------------------------------------------------------ */

static int edits_allowed(size_t length) {
    return length > LIB_WORD_MAX ? -1 : (int)(length / 3);
}

lib_nearest lib_nearest_to(const char *wanted) {
    lib_nearest nearest = {.wanted = wanted ? wanted : ""};
    nearest.length = strlen(nearest.wanted);
    nearest.edits = edits_allowed(nearest.length) + 1;
    return nearest;
}

static char small_letter(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int lesser(int a, int b) {
    return a < b ? a : b;
}

/* Are the last two of a's first `i` letters those of b's first `j`, swapped? */
static bool are_swapped(const char *a, int i, const char *b, int j) {
    return i > 1 && j > 1 && small_letter(a[i - 1]) == small_letter(b[j - 2]) &&
           small_letter(b[j - 1]) == small_letter(a[i - 2]);
}

/* Edits from a to b, words of at most LIB_WORD_MAX characters, if fewer than `limit`; else `limit`. Only the diagonals of the
 * dynamic-programming table that `limit` can reach are computed. */
static int edits_between(const char *a, int a_length, const char *b, int b_length, int limit) {
    int rows[3][LIB_WORD_MAX + 1];
    if (a_length - b_length >= limit || b_length - a_length >= limit) return limit;
    for (int j = 0; j <= b_length; j++) rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3], least = limit;
        int first = i > limit ? i - limit : 1, last = lesser(i + limit, b_length);
        row[first - 1] = first == 1 ? i : limit;
        for (int j = first; j <= last; j++) {
            int edits = above[j - 1] + (small_letter(a[i - 1]) != small_letter(b[j - 1]));
            edits = lesser(edits, row[j - 1] + 1);
            if (j < i + limit) edits = lesser(edits, above[j] + 1); /* else outside the row above */
            if (are_swapped(a, i, b, j)) edits = lesser(edits, second[j - 2] + 1);
            row[j] = lesser(edits, limit);
            least = lesser(least, row[j]);
        }
        if (least == limit) return limit;
    }
    return rows[a_length % 3][b_length];
}

void lib_nearest_try(lib_nearest *nearest, const char *word, size_t length) {
    if (nearest->edits <= 0 || !length || length > LIB_WORD_MAX || nearest->length > LIB_WORD_MAX) return;
    int edits = edits_between(nearest->wanted, (int)nearest->length, word, (int)length, nearest->edits);
    if (edits >= nearest->edits) return;
    nearest->edits = edits;
    memcpy(nearest->word, word, length);
    nearest->word[length] = 0;
}

void lib_nearest_try_list(lib_nearest *nearest, const char *words) {
    for (const char *at = words; *at;) {
        at += strspn(at, ", ");
        size_t length = strcspn(at, ", ");
        lib_nearest_try(nearest, at, length);
        at += length;
    }
}

const char *lib_nearest_hint(lib_nearest *nearest) {
    size_t left = strlen(nearest->word), at = 0;
    if (!left) return "";
    at += (size_t)snprintf(nearest->hint, sizeof nearest->hint, "; did you mean \"");
    for (const char *from = nearest->word; left;) {
        size_t taken = quote_character(from, left, nearest->hint + at);
        at += strlen(nearest->hint + at);
        from += taken;
        left -= taken;
    }
    snprintf(nearest->hint + at, sizeof nearest->hint - at, "\"?");
    return nearest->hint;
}

/* ---- numbers ------------------------------------------------------------------------------------ */

bool lib_parse_double(const char *digits, double *out) {
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) return false;
    lib_fp_state state = lib_fp_enter();
    *out = strtod_l(digits, NULL, c_locale);
    lib_fp_restore(state);
    freelocale(c_locale);
    return true;
}

static double round_to(double value, dlc_dtype dtype) {
    switch (dtype) {
    case DLC_F16: return (double)lib_f32_from_f16(lib_f16_from_f64(value));
    case DLC_BF16: return (double)lib_f32_from_bf16(lib_bf16_from_f64(value));
    case DLC_F32: return (double)(float)value;
    default: return lib_dtype_is_f8(dtype) ? (double)lib_f32_from_f8(dtype, lib_f8_from_f64(dtype, value)) : value;
    }
}

/* printf's %.*g, with '.' as the decimal point in every locale. */
static void format_digits(char *buffer, size_t size, int precision, double value) {
    snprintf(buffer, size, "%.*g", precision, value);
    char *point = buffer + strspn(buffer, "-0123456789e+");
    if (!*point) return;
    size_t length = strcspn(point, "-0123456789e+");
    memmove(point + 1, point + length, strlen(point + length) + 1);
    *point = '.';
}

void lib_text_float(lib_text *text, double value, dlc_dtype dtype) {
    enum { PRECISION_MAX = 17 }; /* always enough for a double */
    char digits[64];
    lib_fp_state state = lib_fp_enter();
    value = round_to(value, dtype);
    if (isnan(value) || isinf(value)) {
        lib_fp_restore(state);
        lib_text_add(text, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 1; precision <= PRECISION_MAX; precision++) {
        double back;
        format_digits(digits, sizeof digits, precision, value);
        if (lib_parse_double(digits, &back) && round_to(back, dtype) == value) break;
    }
    lib_fp_restore(state);
    lib_text_add(text, digits);
}

/* ---- UTF-8 -------------------------------------------------------------------------------------- */

/* Bytes of a character with this first byte; 0: there is none. */
static size_t length_of_lead(unsigned char c) {
    return c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
}

/* Unicode 15, table 3-7. */
size_t lib_utf8_length(const unsigned char *at, size_t size) {
    unsigned char c = at[0];
    size_t length = length_of_lead(c);
    if (length > size) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if ((c == 0xe0 && at[1] < 0xa0) || (c == 0xed && at[1] > 0x9f) || (c == 0xf0 && at[1] < 0x90) ||
        (c == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

bool lib_is_utf8(const char *text) {
    for (size_t size = strlen(text), length; size; text += length, size -= length)
        if (!(length = lib_utf8_length((const unsigned char *)text, size))) return false;
    return true;
}

/* ---- lexer -------------------------------------------------------------------------------------- */

void lib_lexer_raise(const lib_lexer *lexer, const char *format, ...) {
    lib_error error;
    va_list arguments;
    va_start(arguments, format);
    lib_fail_v(&error, DLC_PARSE_ERROR, format, arguments);
    va_end(arguments);
    lib_raise(lexer->arena->scope, DLC_PARSE_ERROR, "%s:%d:%d: %s", lexer->source, lexer->line, lexer->column,
              error.message);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_name(char c) {
    return is_name_start(c) || is_digit(c);
}

static char peek(const lib_lexer *lexer, size_t ahead) {
    return (size_t)(lexer->end - lexer->at) > ahead ? lexer->at[ahead] : 0;
}

/* The value of a hexadecimal digit, or -1. */
static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static void skip_blank(lib_lexer *lexer) {
    for (; lexer->at < lexer->end; lexer->at++) {
        char c = *lexer->at;
        if (c == '\n') {
            lexer->next_line++;
            lexer->line_start = lexer->at + 1;
            lexer->first_on_line = true;
        } else if (c == '#') {
            while (lexer->at + 1 < lexer->end && lexer->at[1] != '\n') lexer->at++;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

/* The token's spelling: everything between `from` and the current position. */
static void take_spelling(lib_lexer *lexer, lib_token_kind kind, const char *from) {
    lexer->kind = kind;
    lexer->text_length = (size_t)(lexer->at - from);
    char *copy = lib_arena_take(lexer->arena, lexer->text_length + 1);
    lexer->text = memcpy(copy, from, lexer->text_length);
}

static void scan_name(lib_lexer *lexer) {
    const char *from = lexer->at;
    while (is_name(peek(lexer, 0)) || (lexer->dotted_names && peek(lexer, 0) == '.')) lexer->at++;
    take_spelling(lexer, LIB_NAME, from);
}

static void scan_hex(lib_lexer *lexer) {
    const char *from = lexer->at;
    uint64_t value = 0;
    if (hex_digit(peek(lexer, 2)) < 0) lib_lexer_raise(lexer, "0x without hexadecimal digits");
    for (lexer->at += 2; hex_digit(peek(lexer, 0)) >= 0; lexer->at++) {
        if (value >> 60) lib_lexer_raise(lexer, "integer does not fit 64 bits");
        value = value << 4 | (uint64_t)hex_digit(*lexer->at);
    }
    take_spelling(lexer, LIB_INTEGER, from);
    lexer->integer = (int64_t)value; /* 64 bits: a bit pattern may use the sign */
    lexer->number = (double)lexer->integer;
}

static void skip_digits(lib_lexer *lexer) {
    while (is_digit(peek(lexer, 0))) lexer->at++;
}

static void scan_decimal(lib_lexer *lexer, bool negative) {
    const char *from = lexer->at;
    uint64_t value = 0;
    bool fits = true;
    lib_token_kind kind = LIB_INTEGER;
    for (; is_digit(peek(lexer, 0)); lexer->at++)
        fits = fits && !__builtin_mul_overflow(value, 10u, &value) &&
               !__builtin_add_overflow(value, (uint64_t)(*lexer->at - '0'), &value);
    if (peek(lexer, 0) == '.' && is_digit(peek(lexer, 1))) {
        kind = LIB_FLOAT;
        lexer->at++;
        skip_digits(lexer);
    }
    if (peek(lexer, 0) == 'e' || peek(lexer, 0) == 'E') {
        size_t sign = peek(lexer, 1) == '+' || peek(lexer, 1) == '-';
        if (!is_digit(peek(lexer, 1 + sign))) lib_lexer_raise(lexer, "exponent without digits");
        kind = LIB_FLOAT;
        lexer->at += 1 + sign;
        skip_digits(lexer);
    }
    /* 2^63 is an integer only after '-', and is already negated: negation wraps. */
    if (kind == LIB_INTEGER && (!fits || value > (uint64_t)INT64_MAX + negative))
        lib_lexer_raise(lexer, "integer does not fit 64 bits");
    take_spelling(lexer, kind, from);
    lexer->integer = kind == LIB_INTEGER ? (int64_t)value : 0;
    if (!lib_parse_double(lexer->text, &lexer->number))
        lib_raise(lexer->arena->scope, DLC_OUT_OF_MEMORY, "out of memory: C locale");
}

static void scan_number(lib_lexer *lexer) {
    bool negative = lexer->kind == LIB_PUNCTUATION && strcmp(lexer->text, "-") == 0;
    if (peek(lexer, 0) == '0' && (peek(lexer, 1) == 'x' || peek(lexer, 1) == 'X'))
        scan_hex(lexer);
    else
        scan_decimal(lexer, negative);
    if (is_name(peek(lexer, 0))) lib_lexer_raise(lexer, "a letter follows a number: '%c'", *lexer->at);
}

/* The byte of the escape at lexer->at (after the backslash); moves to the escape's last character. */
static char scan_escape(lib_lexer *lexer) {
    char c = peek(lexer, 0);
    if (c == '"' || c == '\\') return c;
    if (c == 'n') return '\n';
    if (c == 't') return '\t';
    int high = c == 'x' ? hex_digit(peek(lexer, 1)) : -1, low = hex_digit(peek(lexer, 2));
    if (high < 0 || low < 0) lib_lexer_raise(lexer, "unknown escape in a string; \\\" \\\\ \\n \\t \\xNN are known");
    if (high == 0 && low == 0) lib_lexer_raise(lexer, "a string cannot hold \\x00");
    lexer->at += 2;
    return (char)(high * 16 + low);
}

static void scan_string(lib_lexer *lexer) {
    lib_text text;
    lib_text_init(&text, lexer->arena);
    lib_text_add(&text, "");
    for (lexer->at++; peek(lexer, 0) != '"'; lexer->at++) {
        char c = peek(lexer, 0);
        if (c == 0 || c == '\n') lib_lexer_raise(lexer, "the string is not closed on its line");
        if (c == '\\') {
            lexer->at++;
            c = scan_escape(lexer);
        }
        lib_text_add_bytes(&text, &c, 1);
    }
    lexer->at++;
    lexer->kind = LIB_STRING;
    lexer->text = text.data;
    lexer->text_length = text.length;
}

static void scan_punctuation(lib_lexer *lexer) {
    static const char doubles[][3] = {"->", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>"};
    unsigned char c = (unsigned char)*lexer->at;
    if (c <= ' ' || c >= 0x7f) lib_lexer_raise(lexer, "unexpected byte 0x%02x", c);
    size_t length = 1;
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        if (doubles[i][0] == (char)c && doubles[i][1] == peek(lexer, 1)) length = 2;
    const char *from = lexer->at;
    lexer->at += length;
    take_spelling(lexer, LIB_PUNCTUATION, from);
}

void lib_lexer_init(lib_lexer *lexer, lib_arena *arena, const char *source, const char *text, size_t size) {
    *lexer = (lib_lexer){.arena = arena,
                         .source = source,
                         .start = text,
                         .at = text,
                         .end = text + size,
                         .text = "",
                         .line = 1,
                         .column = 1,
                         .first_on_line = true,
                         .next_line = 1,
                         .line_start = text};
}

void lib_lexer_next(lib_lexer *lexer) {
    lexer->first_on_line = lexer->at == lexer->start;
    skip_blank(lexer);
    lexer->line = lexer->next_line;
    lexer->column = (int)(lexer->at - lexer->line_start) + 1;
    if (lexer->at == lexer->end) {
        lexer->kind = LIB_END;
        lexer->text = "";
        lexer->text_length = 0;
    } else if (is_name_start(*lexer->at)) {
        scan_name(lexer);
    } else if (is_digit(*lexer->at)) {
        scan_number(lexer);
    } else if (*lexer->at == '"') {
        scan_string(lexer);
    } else {
        scan_punctuation(lexer);
    }
}

bool lib_lexer_is(const lib_lexer *lexer, const char *text) {
    return (lexer->kind == LIB_NAME || lexer->kind == LIB_PUNCTUATION) && strcmp(lexer->text, text) == 0;
}

bool lib_lexer_accept(lib_lexer *lexer, const char *text) {
    if (!lib_lexer_is(lexer, text)) return false;
    lib_lexer_next(lexer);
    return true;
}

_Noreturn static void raise_expected(const lib_lexer *lexer, const char *expected) {
    if (lexer->kind == LIB_END) lib_lexer_raise(lexer, "expected %s, found the end of the text", expected);
    if (lexer->kind == LIB_STRING)
        lib_lexer_raise(lexer, "expected %s, found the string \"%s\"", expected, lexer->text);
    lib_lexer_raise(lexer, "expected %s, found '%s'", expected, lexer->text);
}

void lib_lexer_expect(lib_lexer *lexer, const char *text) {
    if (lib_lexer_accept(lexer, text)) return;
    raise_expected(lexer, lib_arena_format(lexer->arena, "'%s'", text));
}

char *lib_lexer_name(lib_lexer *lexer) {
    if (lexer->kind != LIB_NAME) raise_expected(lexer, "a name");
    char *name = lib_arena_string(lexer->arena, lexer->text);
    lib_lexer_next(lexer);
    return name;
}

int64_t lib_lexer_integer(lib_lexer *lexer) {
    bool negative = lib_lexer_accept(lexer, "-");
    if (lexer->kind != LIB_INTEGER) raise_expected(lexer, "an integer");
    int64_t value = negative ? (int64_t) - (uint64_t)lexer->integer : lexer->integer;
    lib_lexer_next(lexer);
    return value;
}

double lib_lexer_number(lib_lexer *lexer) {
    bool negative = lib_lexer_accept(lexer, "-");
    double value = lexer->number;
    if (lib_lexer_is(lexer, "nan"))
        value = (double)NAN;
    else if (lib_lexer_is(lexer, "inf"))
        value = (double)INFINITY;
    else if (lexer->kind != LIB_INTEGER && lexer->kind != LIB_FLOAT)
        raise_expected(lexer, "a number");
    lib_lexer_next(lexer);
    return negative ? -value : value;
}

/* ---- files -------------------------------------------------------------------------------------- */

/* Reads to the end (the system reports size 0 in /proc). false: errno has the reason. */
static bool read_all(int file, lib_text *text) {
    for (;;) {
        reserve(text, 4096);
        ssize_t count = read(file, text->data + text->length, text->capacity - text->length - 1);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        if (count == 0) break;
        text->length += (size_t)count;
    }
    text->data[text->length] = 0;
    return true;
}

/* Whether `size` more bytes at the file's position stay within the process's file size limit. A write beyond it would raise SIGXFSZ,
 * which ends the process, so that the caller refuses it. */
static bool is_within_limit(int file, size_t size) {
    struct rlimit limit;
    off_t position = lseek(file, 0, SEEK_CUR);
    if (position < 0 || getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
    return (rlim_t)position <= limit.rlim_cur && size <= limit.rlim_cur - (rlim_t)position;
}

bool lib_file_leave_standard(int *descriptor) {
    if (*descriptor < 0 || *descriptor > STDERR_FILENO) return *descriptor >= 0;
    const int moved = fcntl(*descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), refused = errno;
    close(*descriptor);
    errno = refused;
    *descriptor = moved;
    return moved >= 0;
}

int lib_file_create(const char *path, unsigned mode) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);
    if (file < 0 || lib_file_leave_standard(&file)) return file;
    const int refused = errno;
    unlink(path);
    errno = refused;
    return -1;
}

bool lib_file_write(int file, const void *bytes, size_t size) {
    if (!is_within_limit(file, size)) {
        errno = EFBIG;
        return false;
    }
    for (size_t done = 0; done < size;) {
        ssize_t count = write(file, (const char *)bytes + done, size - done);
        if (count < 0 && errno == EINTR) continue;
        if (count == 0) errno = ENOSPC; /* nothing was written */
        if (count <= 0) return false;
        done += (size_t)count;
    }
    return true;
}

char *lib_file_read(lib_arena *arena, const char *path, size_t *size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) lib_raise(arena->scope, DLC_NOT_FOUND, "cannot open %s: %s", path, strerror(errno));
    return lib_file_read_open(arena, file, path, size);
}

char *lib_file_read_open(lib_arena *arena, int file, const char *path, size_t *size) {
    lib_scope *outer = arena->scope;
    lib_scope scope; /* the file must be closed before the caller's scope is left */
    lib_text text;
    lib_text_init(&text, arena);
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        if (!read_all(file, &text)) lib_raise(&scope, DLC_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    } else {
        arena->scope = outer;
        close(file);
        lib_raise_error(outer, &scope.error);
    }
    arena->scope = outer;
    close(file);
    if (size) *size = text.length;
    return text.data;
}
