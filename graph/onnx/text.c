/* Tensors of strings: a table of words and places in it (structure.h). */
#include "graph/onnx/structure.h"

#include <math.h>
#include <stdlib.h>

static int compare_bytes(const void *a, const void *b) {
    const onnx_bytes *x = a, *y = b;
    const size_t size = x->size < y->size ? x->size : y->size;
    const int order = size ? memcmp(x->data, y->data, size) : 0;
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* ---- tables ---------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    onnx_bytes text;
    size_t at;
} entry;

static int by_text(const void *a, const void *b) {
    return compare_bytes(&((const entry *)a)->text, &((const entry *)b)->text);
}

onnx_words onnx_table_of(onnx_import *im, size_t count, const onnx_bytes *text, int64_t *rank) {
    lib_arena *arena = im->g->arena;
    if (count > ONNX_WORDS_MAX)
        onnx_fail(im, DLC_BUDGET_EXCEEDED, "%zu strings; at most %d", count, (int)ONNX_WORDS_MAX);
    entry *sorted = LIB_NEW_ARRAY(arena, entry, count + 1);
    onnx_bytes *word = LIB_NEW_ARRAY(arena, onnx_bytes, count + 1);
    size_t words = 0;
    for (size_t i = 0; i < count; i++) sorted[i] = (entry){text[i].size ? text[i] : (onnx_bytes){"", 0}, i};
    qsort(sorted, count, sizeof *sorted, by_text);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_bytes(&word[words - 1], &sorted[i].text) != 0) word[words++] = sorted[i].text;
        rank[sorted[i].at] = (int64_t)words - 1;
    }
    return (onnx_words){words, word, 0};
}

int64_t *onnx_find_words(onnx_import *im, const onnx_structure *strings, size_t count, const onnx_bytes *key) {
    int64_t *place = LIB_NEW_ARRAY(im->g->arena, int64_t, strings->words + 1);
    lib_map map = {0};
    for (size_t w = 0; w < strings->words; w++) {
        place[w] = (int64_t)count;
        lib_map_insert(im->g->arena, &map, lib_hash_name(strings->word[w].data, strings->word[w].size), (uint32_t)w);
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t hash = lib_hash_name(key[i].data, key[i].size);
        for (uint32_t at = lib_map_first(&map, hash); at != LIB_MAP_END; at = lib_map_next(&map, hash, at)) {
            const size_t w = map.slots[at].value;
            if (onnx_same(strings->word[w], key[i])) place[w] = (int64_t)i;
        }
    }
    return place;
}

static onnx_structure *strings_in(onnx_import *im, const onnx_words *words, const onnx_value *places) {
    onnx_structure *s = onnx_structure_new(im, ONNX_STRINGS, 1);
    s->words = words->count, s->word = words->word;
    onnx_take_value(&s->part[0], places);
    return s;
}

onnx_value onnx_value_of(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims, const void *bytes) {
    const DLTensor view = {.data = (void *)(uintptr_t)bytes,
                           .device = {kDLCPU, 0},
                           .ndim = rank,
                           .dtype = lib_dtype_to_dlpack(dtype),
                           .shape = (int64_t *)(uintptr_t)dims};
    onnx_value value = {.id = 0};
    const int64_t most = im->known_max;
    if (dtype == DLC_I64) im->known_max = ONNX_WORDS_MAX; /* places are known, however many there are */
    value.known = onnx_known_of_view(im, &view, &value.id);
    im->known_max = most;
    return value;
}

onnx_structure *onnx_strings_new(onnx_import *im, int rank, const int64_t *dims, const onnx_bytes *text) {
    const int64_t count = onnx_count((size_t)rank, dims, ONNX_WORDS_MAX);
    if (count < 0) onnx_fail(im, DLC_BUDGET_EXCEEDED, "more than %d strings", (int)ONNX_WORDS_MAX);
    int64_t *place = LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)count + 1);
    const onnx_words words = onnx_table_of(im, (size_t)count, text, place);
    const onnx_value places = onnx_value_of(im, DLC_I64, rank, dims, place);
    return strings_in(im, &words, &places);
}

onnx_structure *onnx_strings_at(onnx_import *im, int64_t count, const onnx_bytes *text, onnx_value *index) {
    int64_t *rank = LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)count + 1);
    const onnx_words words = onnx_table_of(im, (size_t)count, text, rank);
    const onnx_value places = onnx_look_up(im, index, DLC_I64, count, rank);
    return strings_in(im, &words, &places);
}

const int64_t *onnx_constant_integers(onnx_import *im, const onnx_known *known) {
    int64_t *list = known ? LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)known->count + 1) : NULL;
    for (int64_t i = 0; list && i < known->count; i++) {
        const onnx_number *e = &known->element[i];
        if (!e->index || e->over != 1 || !tir_is_const(im->g->pool, e->index, &list[i])) return NULL;
    }
    return list;
}

/* The known elements as places in a table of `count` entries; NULL: they are not known. */
static const int64_t *places_in(onnx_import *im, const onnx_known *known, int64_t count) {
    const int64_t *at = onnx_constant_integers(im, known);
    for (int64_t i = 0; at && i < known->count; i++)
        if (at[i] < 0 || at[i] >= count)
            onnx_fail(im, DLC_INVALID_ARGUMENT, "place %lld in a table of %lld", (long long)at[i], (long long)count);
    return at;
}

onnx_value onnx_look_up(onnx_import *im, onnx_value *index, dlc_dtype dtype, int64_t count, const void *table) {
    const onnx_known *known = onnx_known_of(im, index);
    const int64_t *at = places_in(im, known, count);
    const size_t size = lib_dtype_size(dtype);
    if (!at) {
        const graph_id all = graph_literal(im->g, dtype, 1, &count, table);
        return (onnx_value){.id = graph_gather(im->g, all, onnx_id_of(im, index), 0)};
    }
    char *bytes = lib_arena_array(im->g->arena, (size_t)known->count + 1, size);
    for (int64_t i = 0; i < known->count; i++)
        memcpy(bytes + (size_t)i * size, (const char *)table + (size_t)at[i] * size, size);
    onnx_value value = onnx_value_of(im, dtype, known->rank, known->dims, bytes);
    if (known->varies && value.known) value.known = onnx_varying(im, value.known);
    return value;
}

/* ---- strings that models hold or make ---------------------------------------------------------------------------------- */

void onnx_write_number(lib_text *text, dlc_dtype dtype, const void *element) {
    if (!lib_dtype_is_float(dtype)) {
        const int64_t number = lib_element_get_i64(dtype, element);
        lib_text_format(text, dtype == DLC_U64 ? "%llu" : "%lld", (long long)number);
        return;
    }
    const double number = lib_element_get_f64(dtype, element);
    if (isnan(number) || isinf(number))
        lib_text_add(text, isnan(number) ? "NaN" : number < 0 ? "-INF" : "INF");
    else
        lib_text_float(text, number, dtype);
}

/* Writes the element to *to in that dtype; false: it depends on symbols. */
static bool element_bytes(onnx_import *im, dlc_dtype dtype, const onnx_number *from, void *to) {
    int64_t integer;
    if (!from->index) {
        lib_element_set_f64(dtype, to, from->number);
        return true;
    }
    if (!tir_is_const(im->g->pool, from->index, &integer)) return false;
    if (from->over == 1)
        lib_element_set_i64(dtype, to, integer);
    else
        lib_element_set_f64(dtype, to, (double)integer / (double)from->over);
    return true;
}

/* The known numbers written as strings; NULL: they are not known, or depend on symbols. */
static onnx_structure *write_known(onnx_import *im, const onnx_known *known) {
    onnx_bytes *text = known ? LIB_NEW_ARRAY(im->g->arena, onnx_bytes, (size_t)known->count + 1) : NULL;
    for (int64_t i = 0; known && i < known->count; i++) {
        char element[16] = {0};
        lib_text one;
        if (!element_bytes(im, known->dtype, &known->element[i], element)) return NULL;
        lib_text_init(&one, im->g->arena);
        onnx_write_number(&one, known->dtype, element);
        text[i] = (onnx_bytes){one.data, one.length};
    }
    return known ? onnx_strings_new(im, known->rank, known->dims, text) : NULL;
}

static onnx_structure *read_stored(onnx_import *im, const onnx_tensor *tensor) {
    if (onnx_is_external(tensor) || tensor->dims.count > DLC_MAX_RANK)
        onnx_fail(im, DLC_UNSUPPORTED, "strings %s of external data, or of more than %d dimensions",
                  onnx_shown(im->g->arena, tensor->name), DLC_MAX_RANK);
    return onnx_strings_new(im, (int)tensor->dims.count, tensor->dims.data, tensor->string_data.data);
}

const onnx_structure *onnx_strings_of(onnx_import *im, onnx_value *value) {
    if (!value->structure && onnx_form_of(value) == ONNX_STRINGS) value->structure = read_stored(im, value->stored);
    if (value->structure && value->structure->form == ONNX_WRITTEN) {
        const onnx_structure *known = write_known(im, onnx_known_of(im, value->structure->part));
        if (known) value->structure = known;
    }
    return value->structure && value->structure->form == ONNX_STRINGS ? value->structure : NULL;
}

const onnx_structure *onnx_ask_strings(onnx_import *im, onnx_value *value) {
    if (onnx_form_of(value) == ONNX_WRITTEN) onnx_ask(im, value->structure->part);
    return onnx_strings_of(im, value);
}

const onnx_structure *onnx_operand_strings(onnx_import *im, size_t i) {
    if (!onnx_has(im, i)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
    onnx_value *value = im->operand[i];
    const onnx_structure *strings = onnx_ask_strings(im, value);
    const bool written = onnx_form_of(value) == ONNX_WRITTEN;
    if (!strings)
        onnx_fail(im, written ? DLC_UNSUPPORTED : DLC_PARSE_ERROR, "operand %zu, %s, is no tensor of strings%s", i,
                  onnx_shown(im->g->arena, value->name), written ? " that are known before a run" : "");
    return strings;
}

const onnx_bytes *onnx_texts_of(onnx_import *im, const onnx_structure *strings, const onnx_known **known) {
    *known = onnx_ask(im, strings->part);
    const int64_t *at = places_in(im, *known, (int64_t)strings->words);
    if (!at) onnx_fail(im, DLC_UNSUPPORTED, "which strings an operand has is only known after a run");
    onnx_bytes *text = LIB_NEW_ARRAY(im->g->arena, onnx_bytes, (size_t)(*known)->count + 1);
    for (int64_t k = 0; k < (*known)->count; k++) text[k] = strings->word[at[k]];
    return text;
}

const onnx_bytes *onnx_operand_texts(onnx_import *im, size_t i, const onnx_known **known) {
    return onnx_texts_of(im, onnx_operand_strings(im, i), known);
}

onnx_names onnx_strings_attribute(onnx_import *im, const char *name) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_STRINGS);
    return a ? a->strings : (onnx_names){0};
}

bool onnx_give_text(onnx_import *im) {
    const onnx_attribute *one = onnx_attribute_find(im, "value_string", ONNX_ATTRIBUTE_STRING),
                         *several = onnx_attribute_find(im, "value_strings", ONNX_ATTRIBUTE_STRINGS);
    const int64_t count = several ? (int64_t)several->strings.count : 1;
    if (!one && !several) return false;
    onnx_give_structure(im, 0,
                        onnx_strings_new(im, several ? 1 : 0, &count, several ? several->strings.data : &one->s));
    return true;
}

/* ---- Cast -------------------------------------------------------------------------------------------------------------- */

bool onnx_casts_text(onnx_import *im, int32_t to) {
    const onnx_form from = onnx_has(im, 0) ? onnx_form_of(im->operand[0]) : ONNX_NUMBERS;
    return to == ONNX_STRING || from == ONNX_STRINGS || from == ONNX_WRITTEN;
}

/* Reads INF, +INF, -INF or NaN, ignoring case; false: the text is none of them. */
static bool read_special(const char *text, double *number) {
    static const struct {
        const char *word;
        double number;
    } words[] = {{"inf", INFINITY}, {"+inf", INFINITY}, {"-inf", -INFINITY}, {"nan", NAN}};
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
        size_t i = 0;
        while (text[i] && (text[i] | 32) == (words[w].word[i] | 32)) i++;
        *number = words[w].number;
        if (!text[i] && !words[w].word[i]) return true;
    }
    return false;
}

/* Reads a decimal integer without point and exponent; false: the text is none, or it does not fit an i64. */
static bool read_integer(const char *text, int64_t *number) {
    const bool negative = *text == '-';
    text += negative || *text == '+';
    *number = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(*number, 10, number) ||
            __builtin_sub_overflow(*number, *text - '0', number))
            return false;
    }
    return negative || !__builtin_sub_overflow(0, *number, number);
}

/* Reads a number in plain or scientific form as an element of dtype `to`; false: the text is none. */
static bool read_number(onnx_import *im, const char *text, dlc_dtype to, void *element) {
    int64_t integer;
    double number;
    const bool whole = read_integer(text, &integer), special = !whole && read_special(text, &number);
    if (whole && !lib_dtype_is_float(to)) {
        lib_element_set_i64(to, element, to == DLC_BOOL ? integer != 0 : integer);
        return true;
    }
    if (!special) {
        const size_t digits = strcspn(text, "0123456789");
        if (!text[digits] || text[strspn(text, "0123456789+-.eE")]) return false;
        if (!lib_parse_double(text, &number)) onnx_fail(im, DLC_OUT_OF_MEMORY, "out of memory: C locale");
    }
    lib_element_set_f64(to, element, number);
    return true;
}

/* By word of the table: may an element be this word? */
static const bool *used_words(onnx_import *im, const onnx_structure *strings) {
    const onnx_known *known = onnx_ask(im, strings->part);
    const int64_t *at = places_in(im, known, (int64_t)strings->words);
    bool *used = LIB_NEW_ARRAY(im->g->arena, bool, strings->words + 1);
    if (!at) memset(used, true, strings->words);
    for (int64_t i = 0; at && i < known->count; i++) used[at[i]] = true;
    return used;
}

/* The strings as numbers of dtype `to`: each word is read once, and the tensor looks its numbers up by place. */
static onnx_value numbers_read(onnx_import *im, const onnx_structure *strings, dlc_dtype to) {
    const size_t size = lib_dtype_size(to);
    if (lib_dtype_is_stored_otherwise(to)) onnx_fail(im, DLC_UNSUPPORTED, "strings to %s", lib_dtypes[to].name);
    char *table = lib_arena_array(im->g->arena, strings->words + 1, size);
    const bool *used = used_words(im, strings);
    for (size_t i = 0; i < strings->words; i++) {
        const onnx_bytes word = strings->word[i];
        if (!used[i]) continue;
        const char *text = lib_arena_format(im->g->arena, "%.*s", (int)(word.size < 400 ? word.size : 400), word.data);
        if (strlen(text) != word.size || !read_number(im, text, to, table + i * size))
            onnx_fail(im, DLC_INVALID_ARGUMENT, "string %s is no number", onnx_shown(im->g->arena, word));
    }
    return onnx_look_up(im, strings->part, to, (int64_t)strings->words, table);
}

void onnx_cast_text(onnx_import *im, int32_t to, dlc_dtype dtype) {
    onnx_ignore(im, "saturate"), onnx_ignore(im, "round_mode");
    if (to != ONNX_STRING) {
        const onnx_value y = numbers_read(im, onnx_operand_strings(im, 0), dtype);
        onnx_give_value(im, 0, &y);
        return;
    }
    if (!onnx_has(im, 0)) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is missing");
    const onnx_form from = onnx_form_of(im->operand[0]);
    if (from == ONNX_STRINGS || from == ONNX_WRITTEN) {
        onnx_give_operand(im, 0, 0);
        return;
    }
    const dlc_dtype from_dtype = onnx_operand_shape(im, 0).dtype;
    if (lib_dtype_is_stored_otherwise(from_dtype))
        onnx_fail(im, DLC_UNSUPPORTED, "%s to strings", lib_dtypes[from_dtype].name);
    onnx_structure *written = onnx_structure_new(im, ONNX_WRITTEN, 1);
    onnx_take_value(&written->part[0], im->operand[0]);
    onnx_give_structure(im, 0, written);
}

/* ---- operators that move elements --------------------------------------------------------------------------------------- */

onnx_words onnx_join_words(onnx_import *im, size_t count, onnx_value **values) {
    size_t all = 0;
    for (size_t i = 0; i < count; i++) all += onnx_strings_of(im, values[i])->words;
    onnx_bytes *text = LIB_NEW_ARRAY(im->g->arena, onnx_bytes, all + 1);
    int64_t *rank = LIB_NEW_ARRAY(im->g->arena, int64_t, all + 1);
    for (size_t i = 0, at = 0; i < count; i++) {
        const onnx_structure *s = onnx_strings_of(im, values[i]);
        for (size_t k = 0; k < s->words; k++) text[at++] = s->word[k];
    }
    const onnx_words words = onnx_table_of(im, all, text, rank);
    for (size_t i = 0, at = 0; i < count; i++) {
        const onnx_structure *s = onnx_strings_of(im, values[i]);
        onnx_value *places = LIB_NEW(im->g->arena, onnx_value);
        *places = count == 1 ? s->part[0] : onnx_look_up(im, s->part, DLC_I64, (int64_t)s->words, rank + at);
        at += s->words;
        values[i] = places;
    }
    return words;
}

/* Operators whose results depend only on which elements are equal, or, for Unique, on their order. */
static const struct mover {
    const char *name;
    /* Bit i: operand i is strings, or none is; bit i: result i is strings if operands are. */
    uint32_t operands, results;
} movers[] = {{"Compress", 1, 1},     {"Concat", ~0u, 1},        {"DepthToSpace", 1, 1}, {"Equal", 3, 0},
              {"Expand", 1, 1},       {"Flatten", 1, 1},         {"Gather", 1, 1},       {"GatherElements", 1, 1},
              {"GatherND", 1, 1},     {"OneHot", 4, 1},          {"Reshape", 1, 1},      {"ReverseSequence", 1, 1},
              {"Scatter", 5, 1},      {"ScatterElements", 5, 1}, {"ScatterND", 5, 1},    {"Slice", 1, 1},
              {"SpaceToDepth", 1, 1}, {"Split", 1, ~0u},         {"Squeeze", 1, 1},      {"Tile", 1, 1},
              {"Transpose", 1, 1},    {"Unique", 1, 1},          {"Unsqueeze", 1, 1},    {"Where", 6, 1}};

/* The one of ai.onnx.ml. */
static const struct mover extractor = {"ArrayFeatureExtractor", 1, 1};

static bool bit_of(uint32_t set, size_t i) {
    return set >> (i < 31 ? i : 31) & 1;
}

/* Raises if numbers and strings are mixed: the places of strings would be taken for numbers, or numbers for places. */
static void check_moved(onnx_import *im, const struct mover *mover, const bool *strings) {
    for (size_t i = 0; i < onnx_operands(im); i++)
        if (onnx_has(im, i) && strings[i] != bit_of(mover->operands, i) &&
            (strings[i] || onnx_form_of(im->operand[i]) == ONNX_NUMBERS))
            onnx_fail(im, DLC_PARSE_ERROR, "operand %zu, %s, is a tensor of %s, others are not", i,
                      onnx_shown(im->g->arena, im->operand[i]->name), strings[i] ? "strings" : "numbers");
}

static const struct mover *mover_of(const onnx_node *node) {
    if (onnx_is(node->domain, "ai.onnx.ml")) return onnx_is(node->operator, extractor.name) ? &extractor : NULL;
    if (node->domain.size && !onnx_is(node->domain, "ai.onnx")) return NULL;
    for (size_t i = 0; i < sizeof movers / sizeof movers[0]; i++)
        if (onnx_is(node->operator, movers[i].name)) return &movers[i];
    return NULL;
}

/* Does the node, a scatter, combine elements, which cannot be done on places? */
static bool combines(const onnx_import *im) {
    for (size_t i = 0; i < im->node->attributes.count; i++)
        if (onnx_is(im->node->attributes.data[i].name, "reduction") && !onnx_is(im->node->attributes.data[i].s, "none"))
            return true;
    return false;
}

const onnx_words *onnx_begin_move(onnx_import *im) {
    const size_t operands = onnx_operands(im);
    bool any = false;
    for (size_t i = 0; i < operands && !any; i++)
        any = onnx_has(im, i) && (im->operand[i]->structure || onnx_form_of(im->operand[i]) == ONNX_STRINGS);
    const struct mover *mover = any ? mover_of(im->node) : NULL;
    if (!mover || combines(im)) return NULL;
    onnx_value **strings = LIB_NEW_ARRAY(im->g->arena, onnx_value *, operands + 1);
    bool *is_strings = LIB_NEW_ARRAY(im->g->arena, bool, operands + 1);
    size_t *at = LIB_NEW_ARRAY(im->g->arena, size_t, operands + 1), count = 0;
    for (size_t i = 0; i < operands; i++)
        if (onnx_has(im, i) && onnx_ask_strings(im, im->operand[i]))
            is_strings[i] = true, at[count] = i, strings[count++] = im->operand[i];
    if (!count) return NULL;
    check_moved(im, mover, is_strings);
    onnx_words *words = LIB_NEW(im->g->arena, onnx_words);
    *words = onnx_join_words(im, count, strings);
    words->results = mover->results;
    for (size_t k = 0; k < count; k++) im->operand[at[k]] = strings[k];
    im->known_max = ONNX_WORDS_MAX;
    return words;
}

void onnx_end_move(onnx_import *im, const onnx_words *words) {
    im->known_max = 0;
    for (size_t i = 0; i < im->node->outputs.count; i++) {
        onnx_value *y = im->result[i];
        if (!y || !bit_of(words->results, i)) continue;
        const onnx_structure *strings = strings_in(im, words, y);
        *y = (onnx_value){.name = y->name, .structure = strings};
    }
}
