/* Rows of strings. Their results depend on the strings themselves, which are known at import, where the results are computed. */
#include "graph/onnx/structure.h"

/* ---- StringConcat ---------------------------------------------------------------------------------------------------- */

/* Sets dims[] to the shape of the broadcast of the two and returns its rank; raises if they do not broadcast. */
static int broadcast_dims(onnx_import *im, const onnx_known *x, const onnx_known *y, int64_t *dims) {
    const int rank = x->rank > y->rank ? x->rank : y->rank;
    for (int d = 0; d < rank; d++) {
        const int i = d - (rank - x->rank), k = d - (rank - y->rank);
        const int64_t a = i < 0 ? 1 : x->dims[i], b = k < 0 ? 1 : y->dims[k];
        if (a != b && a != 1 && b != 1)
            onnx_fail(im, DLC_INVALID_ARGUMENT, "dimensions of %lld and %lld do not broadcast", (long long)a,
                      (long long)b);
        dims[d] = a == 1 ? b : a;
    }
    return rank;
}

/* The row-major position in the operand, which is broadcast to dims[rank], of the element for the result's element `at`. */
static int64_t place_in(const onnx_known *operand, int rank, const int64_t *dims, int64_t at) {
    int64_t place = 0, stride = 1;
    for (int d = rank - 1, k = operand->rank - 1; k >= 0; d--, k--) {
        if (operand->dims[k] != 1) place += at % dims[d] * stride;
        at /= dims[d];
        stride *= operand->dims[k];
    }
    return place;
}

static onnx_bytes joined(lib_arena *arena, onnx_bytes a, onnx_bytes b) {
    lib_text text;
    lib_text_init(&text, arena);
    lib_text_add_bytes(&text, a.data, a.size);
    lib_text_add_bytes(&text, b.data, b.size);
    return (onnx_bytes){text.data, text.length};
}

static void import_string_concat(onnx_import *im) {
    const onnx_known *x, *y;
    const onnx_bytes *a = onnx_operand_texts(im, 0, &x), *b = onnx_operand_texts(im, 1, &y);
    int64_t dims[DLC_MAX_RANK];
    const int rank = broadcast_dims(im, x, y, dims);
    const int64_t count = onnx_count((size_t)rank, dims, ONNX_WORDS_MAX);
    if (count < 0) onnx_fail(im, DLC_BUDGET_EXCEEDED, "more than %d strings", (int)ONNX_WORDS_MAX);
    onnx_bytes *text = LIB_NEW_ARRAY(im->g->arena, onnx_bytes, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        text[i] = joined(im->g->arena, a[place_in(x, rank, dims, i)], b[place_in(y, rank, dims, i)]);
    onnx_give_structure(im, 0, onnx_strings_new(im, rank, dims, text));
}

/* ---- StringSplit ------------------------------------------------------------------------------------------------------- */

typedef lib_vec(onnx_bytes) pieces;

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Splits at blanks, at most `most` times (negative: any number). No piece begins or ends with blanks; the last may have blanks inside. */
static void split_at_blanks(lib_arena *arena, pieces *to, onnx_bytes text, int64_t most) {
    const char *at = text.data, *end = text.data + text.size;
    while (end > at && is_blank(end[-1])) end--;
    for (;; most--) {
        while (at < end && is_blank(*at)) at++;
        if (at == end) return;
        const char *from = at;
        while (at < end && (most == 0 || !is_blank(*at))) at++;
        lib_vec_push(arena, to, ((onnx_bytes){from, (size_t)(at - from)}));
    }
}

static void split_at(lib_arena *arena, pieces *to, onnx_bytes text, onnx_bytes by, int64_t most) {
    size_t from = 0, at = 0;
    while (most && at + by.size <= text.size) {
        if (memcmp(text.data + at, by.data, by.size) != 0) {
            at++;
            continue;
        }
        lib_vec_push(arena, to, ((onnx_bytes){text.data + from, at - from}));
        from = at += by.size;
        most--;
    }
    lib_vec_push(arena, to, ((onnx_bytes){text.data + from, text.size - from}));
}

static void import_string_split(onnx_import *im) {
    lib_arena *arena = im->g->arena;
    const onnx_known *x;
    const onnx_bytes *text = onnx_operand_texts(im, 0, &x);
    const onnx_attribute *by = onnx_attribute_find(im, "delimiter", ONNX_ATTRIBUTE_STRING);
    const int64_t given = onnx_int(im, "maxsplit", -1), most = given < 0 ? -1 : given;
    int64_t dims[DLC_MAX_RANK] = {0}, *count = LIB_NEW_ARRAY(arena, int64_t, (size_t)x->count + 1), longest = 0;
    pieces all = {0};
    if (x->rank >= DLC_MAX_RANK) onnx_fail(im, DLC_UNSUPPORTED, "a result of rank %d", x->rank + 1);
    for (int64_t i = 0; i < x->count; i++) {
        const uint32_t before = all.count;
        if (by && by->s.size)
            split_at(arena, &all, text[i], by->s, most);
        else
            split_at_blanks(arena, &all, text[i], most);
        count[i] = all.count - before;
        longest = count[i] > longest ? count[i] : longest;
    }
    if (longest && x->count > ONNX_WORDS_MAX / longest)
        onnx_fail(im, DLC_BUDGET_EXCEEDED, "more than %d strings", (int)ONNX_WORDS_MAX);
    onnx_bytes *padded = LIB_NEW_ARRAY(arena, onnx_bytes, (size_t)(x->count * longest) + 1);
    for (int64_t i = 0, at = 0; i < x->count; at += count[i++])
        for (int64_t k = 0; k < count[i]; k++) padded[i * longest + k] = all.data[at + k];
    for (int d = 0; d < x->rank; d++) dims[d] = x->dims[d];
    dims[x->rank] = longest;
    onnx_give_structure(im, 0, onnx_strings_new(im, x->rank + 1, dims, padded));
    const onnx_value counts = onnx_value_of(im, DLC_I64, x->rank, dims, count);
    onnx_give_value(im, 1, &counts);
}

/* ---- StringNormalizer ---------------------------------------------------------------------------------------------------- */

enum { NO_CHANGE, LOWER, UPPER };

/* The string with ASCII letters in that case; raises for other letters, whose case depends on the language. */
static onnx_bytes in_case(onnx_import *im, onnx_bytes text, int action) {
    if (action == NO_CHANGE) return text;
    char *copy = lib_arena_copy(im->g->arena, text.data, text.size);
    for (size_t i = 0; i < text.size; i++) {
        if ((unsigned char)copy[i] >= 128)
            onnx_fail(im, DLC_UNSUPPORTED, "case of letters outside of ASCII, in string %s",
                      onnx_shown(im->g->arena, text));
        if (action == LOWER && copy[i] >= 'A' && copy[i] <= 'Z') copy[i] = (char)(copy[i] + 32);
        if (action == UPPER && copy[i] >= 'a' && copy[i] <= 'z') copy[i] = (char)(copy[i] - 32);
    }
    return (onnx_bytes){copy, text.size};
}

static bool is_among(onnx_bytes text, size_t count, const onnx_bytes *list) {
    for (size_t i = 0; i < count; i++)
        if (onnx_same(text, list[i])) return true;
    return false;
}

static void import_string_normalizer(onnx_import *im) {
    lib_arena *arena = im->g->arena;
    const onnx_known *x;
    const onnx_bytes *text = onnx_operand_texts(im, 0, &x);
    const int action = onnx_choice(im, "case_change_action", "NONE LOWER UPPER", "NONE");
    const int compared = onnx_int(im, "is_case_sensitive", 0) ? NO_CHANGE : LOWER;
    const onnx_names stop = onnx_strings_attribute(im, "stopwords");
    onnx_bytes *stopped = LIB_NEW_ARRAY(arena, onnx_bytes, stop.count + 1),
               *kept = LIB_NEW_ARRAY(arena, onnx_bytes, (size_t)x->count + 1);
    int64_t count = 0;
    onnx_ignore(im, "locale");
    if (x->rank < 1 || x->rank > 2 || (x->rank == 2 && x->dims[0] != 1))
        onnx_fail(im, DLC_INVALID_ARGUMENT, "strings of rank %d; expected [n] or [1, n]", x->rank);
    for (size_t i = 0; i < stop.count; i++) stopped[i] = in_case(im, stop.data[i], compared);
    for (int64_t i = 0; i < x->count; i++) {
        lib_arena_ask(arena); /* of a watch, since this may take long */
        if (!stop.count || !is_among(in_case(im, text[i], compared), stop.count, stopped))
            kept[count++] = in_case(im, text[i], action);
    }
    if (!count) kept[count++] = (onnx_bytes){"", 0};
    onnx_give_structure(im, 0, onnx_strings_new(im, x->rank, x->rank == 1 ? &count : (int64_t[]){1, count}, kept));
}

const onnx_refusal onnx_refused_standard[] = {
    {"ImageDecoder", "libdlc has no decoders of images; dlc_onnx_register takes one"},
    {"RegexFullMatch", "libdlc has no regular expressions; dlc_onnx_register takes a function"},
    {0},
};

const onnx_row onnx_rows_text[] = {
    {"StringConcat", 20, 0, import_string_concat, NULL},
    {"StringNormalizer", 10, 0, import_string_normalizer, NULL},
    {"StringSplit", 20, 0, import_string_split, NULL},
    {0},
};
