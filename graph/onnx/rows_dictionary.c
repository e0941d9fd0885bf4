/* Rows of ai.onnx.ml that look up elements: encoders of labels and categories, and maps. */
#include "graph/onnx/learn.h"
#include "graph/onnx/structure.h"

#include <math.h>
#include <stdlib.h>

/* ---- encoders -------------------------------------------------------------------------------------------------------- */

/* Keys or values of an encoder. */
typedef struct coded {
    /* ONNX_TEXT: strings */
    int dtype;
    int64_t count;
    /* Elements of any alignment; values have one more, the default for elements that are no key. */
    const char *bytes;
    const onnx_bytes *text;
} coded;

static coded coded_strings(onnx_names strings) {
    return (coded){ONNX_TEXT, (int64_t)strings.count, NULL, strings.data};
}

static coded coded_integers(size_t count, const int64_t *data) {
    return (coded){DLC_I64, (int64_t)count, (const char *)data, NULL};
}

/* Keys or values from the attribute <what>_int64s, _floats, _strings or _tensor. */
static coded coded_of(onnx_import *im, const char *what) {
    lib_arena *arena = im->g->arena;
    const onnx_attribute *integers =
                             onnx_attribute_find(im, lib_arena_format(arena, "%s_int64s", what), ONNX_ATTRIBUTE_INTS),
                         *floats =
                             onnx_attribute_find(im, lib_arena_format(arena, "%s_floats", what), ONNX_ATTRIBUTE_FLOATS),
                         *tensor =
                             onnx_attribute_find(im, lib_arena_format(arena, "%s_tensor", what), ONNX_ATTRIBUTE_TENSOR),
                         *strings = onnx_attribute_find(im, lib_arena_format(arena, "%s_strings", what),
                                                        ONNX_ATTRIBUTE_STRINGS);
    const int given = !!integers + !!floats + !!tensor + !!strings;
    if (given != 1) onnx_fail(im, DLC_PARSE_ERROR, "%d attributes give its %s; expected one", given, what);
    if (strings) return coded_strings(strings->strings);
    if (tensor && tensor->t->data_type == ONNX_STRING) return coded_strings(tensor->t->string_data);
    if (integers) return coded_integers(integers->ints.count, integers->ints.data);
    if (floats) return (coded){DLC_F32, (int64_t)floats->floats.count, (const char *)floats->floats.data, NULL};
    const dlc_dtype dtype = onnx_dtype(im, tensor->t->data_type);
    if (onnx_is_external(tensor->t) || lib_dtype_is_stored_otherwise(dtype))
        onnx_fail(im, DLC_UNSUPPORTED, "%s of external data, or of type %s", what, lib_dtypes[dtype].name);
    const onnx_data data = onnx_tensor_data(arena, tensor->t);
    return (coded){(int)dtype, data.count, data.bytes.data, NULL};
}

/* A key and its index in the list. */
typedef struct key {
    double real;
    int64_t integer, place;
} key;

static int by_key(const void *a, const void *b) {
    const key *x = a, *y = b;
    if (x->real != y->real) return x->real < y->real ? -1 : 1;
    if (x->integer != y->integer) return x->integer < y->integer ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Sets *out to the keys in ascending order, only the last of equal ones, without NaN; returns their number. *nan: NaN's index, or -1. */
static int64_t sorted_keys(onnx_import *im, const coded *keys, key **out, int64_t *nan) {
    key *list = LIB_NEW_ARRAY(im->g->arena, key, (size_t)keys->count + 1);
    const dlc_dtype dtype = (dlc_dtype)keys->dtype;
    const size_t size = lib_dtype_size(dtype);
    int64_t count = 0, kept = 0;
    char element[16] = {0};
    *nan = -1;
    for (int64_t i = 0; i < keys->count; i++) {
        memcpy(element, keys->bytes + (size_t)i * size, size);
        key k = {0, 0, i};
        if (lib_dtype_is_float(dtype))
            k.real = lib_element_get_f64(dtype, element);
        else
            k.integer = lib_element_get_i64(dtype, element);
        if (isnan(k.real))
            *nan = i;
        else
            list[count++] = k;
    }
    qsort(list, (size_t)count, sizeof *list, by_key);
    for (int64_t i = 0; i < count; i++)
        if (i + 1 == count || list[i].real != list[i + 1].real || list[i].integer != list[i + 1].integer)
            list[kept++] = list[i];
    *out = list;
    return kept;
}

/* The elements of a list of numbers at the keys' indices. */
static graph_id at_places(onnx_import *im, const coded *from, const key *keys, int64_t count) {
    const size_t size = lib_dtype_size((dlc_dtype)from->dtype);
    char *bytes = lib_arena_array(im->g->arena, (size_t)count + 1, size);
    for (int64_t i = 0; i < count; i++)
        memcpy(bytes + (size_t)i * size, from->bytes + (size_t)keys[i].place * size, size);
    return graph_literal(im->g, (dlc_dtype)from->dtype, 1, &count, bytes);
}

/* The value of each element of a tensor of numbers, by binary search in the sorted keys. */
static graph_id numbers_encoded(onnx_import *im, const coded *keys, const coded *values) {
    graph *g = im->g;
    const graph_id x = onnx_operand(im, 0);
    const graph_shape shape = *graph_shape_of(g, x);
    key *order;
    int64_t nan;
    if (keys->dtype != (int)shape.dtype)
        onnx_fail(im, DLC_PARSE_ERROR, "keys of type %s for an operand of type %s", onnx_element_name(keys->dtype),
                  lib_dtypes[shape.dtype].name);
    const int64_t count = sorted_keys(im, keys, &order, &nan);
    const key none = {.place = values->count};
    graph_id y =
        graph_broadcast_to(g, graph_reshape(g, at_places(im, values, &none, 1), 0, NULL), shape.rank, shape.dim);
    if (count) {
        const graph_id sorted = at_places(im, keys, order, count);
        const graph_id place = onnx_emit(im, "search_sorted", 2, (graph_id[]){sorted, x}, 0, NULL);
        const graph_id found = graph_eq(g, graph_gather(g, sorted, place, 0), x);
        y = graph_select(g, found, graph_gather(g, at_places(im, values, order, count), place, 0), y);
    }
    if (nan < 0) return y;
    const key last = {.place = nan};
    const graph_id value = graph_reshape(g, at_places(im, values, &last, 1), 0, NULL);
    return graph_select(g, onnx_unary(im, "is_nan", x), value, y);
}

/* Gives as result 0, for each element of the operand, the value of the last key that equals it, or the default. */
static void give_encoded(onnx_import *im, const coded *keys, const coded *values) {
    const size_t count = (size_t)values->count + 1;
    onnx_value place = {.id = 0};
    if (keys->count != values->count)
        onnx_fail(im, DLC_PARSE_ERROR, "%lld keys and %lld values", (long long)keys->count, (long long)values->count);
    if (keys->dtype != ONNX_TEXT && values->dtype != ONNX_TEXT) {
        onnx_give(im, 0, numbers_encoded(im, keys, values));
        return;
    }
    if (keys->dtype == ONNX_TEXT) {
        const onnx_structure *x = onnx_operand_strings(im, 0);
        const int64_t *found = onnx_find_words(im, x, (size_t)keys->count, keys->text);
        place = onnx_look_up(im, x->part, DLC_I64, (int64_t)x->words, found);
    } else {
        int64_t *number = LIB_NEW_ARRAY(im->g->arena, int64_t, count);
        for (size_t i = 0; i < count; i++) number[i] = (int64_t)i;
        const coded places = coded_integers(count - 1, number);
        place.id = numbers_encoded(im, keys, &places);
    }
    if (values->dtype == ONNX_TEXT) {
        onnx_give_structure(im, 0, onnx_strings_at(im, (int64_t)count, values->text, &place));
    } else {
        const onnx_value y = onnx_look_up(im, &place, (dlc_dtype)values->dtype, (int64_t)count, values->bytes);
        onnx_give_value(im, 0, &y);
    }
}

/* The values with the default after them: the tensor's element, or, if tensor is NULL, the attribute for the values' type. */
static coded with_default(onnx_import *im, coded values, const onnx_tensor *tensor) {
    lib_arena *arena = im->g->arena;
    const int64_t integer = onnx_int(im, "default_int64", -1);
    const double real = onnx_float(im, "default_float", -0.0);
    const onnx_attribute *string = onnx_attribute_find(im, "default_string", ONNX_ATTRIBUTE_STRING);
    const size_t count = (size_t)values.count;
    if (values.dtype == ONNX_TEXT) {
        onnx_bytes *text = LIB_NEW_ARRAY(arena, onnx_bytes, count + 1);
        for (size_t i = 0; i < count; i++) text[i] = values.text[i];
        const bool given = tensor && tensor->data_type == ONNX_STRING && tensor->string_data.count == 1;
        text[count] = given ? tensor->string_data.data[0] : string ? string->s : (onnx_bytes){"_Unused", 7};
        return (coded){ONNX_TEXT, values.count, NULL, text};
    }
    const dlc_dtype dtype = (dlc_dtype)values.dtype;
    const size_t size = lib_dtype_size(dtype);
    char *bytes = lib_arena_array(arena, count + 1, size);
    if (count) memcpy(bytes, values.bytes, count * size);
    if (tensor && tensor->data_type != ONNX_STRING) {
        const onnx_data data = onnx_tensor_data(arena, tensor);
        if (onnx_dtype(im, tensor->data_type) != dtype || data.count != 1 || onnx_is_external(tensor))
            onnx_fail(im, DLC_PARSE_ERROR, "default_tensor is no single element of type %s, that of the values",
                      lib_dtypes[dtype].name);
        memcpy(bytes + count * size, data.bytes.data, size);
    } else if (lib_dtype_is_float(dtype)) {
        lib_element_set_f64(dtype, bytes + count * size, real);
    } else {
        lib_element_set_i64(dtype, bytes + count * size, integer);
    }
    return (coded){values.dtype, values.count, bytes, NULL};
}

static void import_label_encoder(onnx_import *im) {
    const coded keys = coded_of(im, "keys");
    const onnx_attribute *tensor = onnx_attribute_find(im, "default_tensor", ONNX_ATTRIBUTE_TENSOR);
    const coded values = with_default(im, coded_of(im, "values"), tensor ? tensor->t : NULL);
    give_encoded(im, &keys, &values);
}

/* Encodes the operand: strings as numbers, or numbers as strings. */
static void give_categories(onnx_import *im, coded strings, coded numbers) {
    if (!onnx_has(im, 0)) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is missing");
    const bool read = onnx_element_type(im, im->operand[0]) == ONNX_TEXT;
    const coded values = with_default(im, read ? numbers : strings, NULL);
    give_encoded(im, read ? &strings : &numbers, &values);
}

/* Version 1 of LabelEncoder: a string's number is its index in the list. */
static void import_first_label_encoder(onnx_import *im) {
    const onnx_names classes = onnx_strings_attribute(im, "classes_strings");
    int64_t *number = LIB_NEW_ARRAY(im->g->arena, int64_t, classes.count + 1);
    for (size_t i = 0; i < classes.count; i++) number[i] = (int64_t)i;
    give_categories(im, coded_strings(classes), coded_integers(classes.count, number));
}

static void import_category_mapper(onnx_import *im) {
    const onnx_names strings = onnx_strings_attribute(im, "cats_strings");
    int count;
    const int64_t *numbers = onnx_ints(im, "cats_int64s", &count);
    give_categories(im, coded_strings(strings), coded_integers((size_t)count, numbers));
}

/* ---- maps ------------------------------------------------------------------------------------------------------------- */

static const onnx_structure *operand_map(onnx_import *im) {
    if (!onnx_has(im, 0) || onnx_form_of(im->operand[0]) != ONNX_MAP)
        onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is no map");
    return im->operand[0]->structure;
}

/* The map's integer keys; raises if its keys are strings. */
static const int64_t *integer_keys(onnx_import *im, const onnx_structure *map, int64_t *count) {
    const onnx_known *known = onnx_known_of(im, &map->part[0]);
    const int64_t *keys = onnx_constant_integers(im, known);
    if (!keys) onnx_fail(im, DLC_PARSE_ERROR, "its map has strings as keys; expected integers");
    *count = known->count;
    return keys;
}

/* The map's values at these indices; `keys`, the number of the map's keys, is the index for a missing key, whose value is 0 or the empty
 * string. */
static onnx_value values_at(onnx_import *im, const onnx_structure *map, int64_t keys, int rank, const int64_t *dims,
                            const int64_t *place) {
    graph *g = im->g;
    onnx_value index = onnx_value_of(im, DLC_I64, rank, dims, place), *values = &map->part[1];
    const onnx_structure *strings = onnx_strings_of(im, values);
    if (!strings) {
        const graph_id list = onnx_id_of(im, values);
        const graph_id zero = graph_expand_dims(g, graph_scalar_like(g, list, 0), 0);
        const graph_id all = graph_concat(g, 2, (graph_id[]){list, zero}, 0);
        return (onnx_value){.id = graph_gather(g, all, onnx_id_of(im, &index), 0)};
    }
    const onnx_known *known;
    const onnx_bytes *text = onnx_texts_of(im, strings, &known);
    onnx_bytes *all = LIB_NEW_ARRAY(g->arena, onnx_bytes, (size_t)keys + 1);
    for (int64_t i = 0; i < keys; i++) all[i] = text[i];
    all[keys] = (onnx_bytes){"", 0};
    return (onnx_value){.structure = onnx_strings_at(im, keys + 1, all, &index)};
}

/* For each of the `wanted` integers of[] its index among the keys; count: it is no key. */
static int64_t *find_integers(onnx_import *im, int64_t count, const int64_t *keys, size_t wanted, const int64_t *of) {
    const coded list = coded_integers((size_t)count, keys);
    int64_t *place = LIB_NEW_ARRAY(im->g->arena, int64_t, wanted + 1), nan;
    key *order;
    const int64_t kept = sorted_keys(im, &list, &order, &nan);
    for (size_t i = 0; i < wanted; i++) {
        int64_t low = 0, high = kept;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (order[middle].integer < of[i])
                low = middle + 1;
            else
                high = middle;
        }
        place[i] = low < kept && order[low].integer == of[i] ? order[low].place : count;
    }
    return place;
}

/* For each string of the vocabulary its index among the map's keys. */
static const int64_t *find_strings(onnx_import *im, const onnx_structure *map, onnx_names vocabulary, int64_t *count) {
    const onnx_structure *keys = onnx_strings_of(im, &map->part[0]);
    const onnx_known *known;
    if (!keys) onnx_fail(im, DLC_PARSE_ERROR, "its map has integers as keys; expected strings");
    const onnx_bytes *text = onnx_texts_of(im, keys, &known);
    const int64_t wanted = (int64_t)vocabulary.count;
    onnx_structure *words = onnx_strings_new(im, 1, &wanted, vocabulary.data);
    onnx_value place = onnx_look_up(im, words->part, DLC_I64, (int64_t)words->words,
                                    onnx_find_words(im, words, (size_t)known->count, text));
    *count = known->count;
    return onnx_constant_integers(im, onnx_known_of(im, &place));
}

static void import_dict_vectorizer(onnx_import *im) {
    const onnx_structure *map = operand_map(im);
    const onnx_names strings = onnx_strings_attribute(im, "string_vocabulary");
    int integers;
    const int64_t *numbers = onnx_ints(im, "int64_vocabulary", &integers), *place;
    int64_t keys, width = integers ? integers : (int64_t)strings.count;
    if (!integers == !strings.count) onnx_fail(im, DLC_PARSE_ERROR, "both or none of its vocabularies are given");
    if (integers) {
        const int64_t *own = integer_keys(im, map, &keys);
        place = find_integers(im, keys, own, (size_t)integers, numbers);
    } else {
        place = find_strings(im, map, strings, &keys);
    }
    const onnx_value y = values_at(im, map, keys, 1, &width, place);
    onnx_give_value(im, 0, &y);
}

/* DENSE: a row of all values in ascending order of their keys. SPARSE: a row in which each value is at the index that is its key, and 0 or the
 * empty string at the others. */
static void import_cast_map(onnx_import *im) {
    const onnx_structure *map = operand_map(im);
    static const int32_t types[] = {1, ONNX_STRING, 7};
    const int32_t to = types[onnx_choice(im, "cast_to", "TO_FLOAT TO_STRING TO_INT64", "TO_FLOAT")];
    const bool sparse = onnx_choice(im, "map_form", "DENSE SPARSE", "DENSE") == 1;
    const int64_t longest = onnx_int(im, "max_map", 1);
    int64_t count, nan;
    key *order;
    const int64_t *keys = integer_keys(im, map, &count);
    const coded list = coded_integers((size_t)count, keys);
    const int64_t kept = sorted_keys(im, &list, &order, &nan);
    const int64_t dims[] = {1, sparse ? longest : kept};
    if (dims[1] < 0 || dims[1] > ONNX_WORDS_MAX) onnx_fail(im, DLC_PARSE_ERROR, "max_map is %lld", (long long)longest);
    int64_t *place = LIB_NEW_ARRAY(im->g->arena, int64_t, (size_t)dims[1] + 1);
    for (int64_t i = 0; i < dims[1]; i++) place[i] = sparse ? count : order[i].place;
    for (int64_t i = 0; sparse && i < kept; i++) {
        if (order[i].integer < 0 || order[i].integer >= longest)
            onnx_fail(im, DLC_INVALID_ARGUMENT, "key %lld; max_map is %lld", (long long)order[i].integer,
                      (long long)longest);
        place[order[i].integer] = order[i].place;
    }
    onnx_value row = values_at(im, map, count, 2, dims, place);
    const dlc_dtype dtype = to == ONNX_STRING ? DLC_F32 : onnx_dtype(im, to);
    im->operand[0] = &row;
    if (onnx_casts_text(im, to))
        onnx_cast_text(im, to, dtype);
    else
        onnx_give(im, 0, graph_cast(im->g, onnx_id_of(im, &row), dtype));
}

/* Gives a list of maps: one for each row of x [rows, keys], or one for x [keys]. */
static void import_zip_map(onnx_import *im) {
    graph *g = im->g;
    const onnx_names strings = onnx_strings_attribute(im, "classlabels_strings");
    int integers;
    const int64_t *numbers = onnx_ints(im, "classlabels_int64s", &integers),
                  keys = integers ? integers : (int64_t)strings.count;
    graph_id x = onnx_operand(im, 0);
    if (!integers == !strings.count) onnx_fail(im, DLC_PARSE_ERROR, "both or none of its lists of keys are given");
    if (!x) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is missing");
    const int rank = graph_shape_of(g, x)->rank;
    if (rank != 1 && rank != 2) onnx_fail(im, DLC_PARSE_ERROR, "values of rank %d; expected a list or a matrix", rank);
    if (rank == 1) x = graph_expand_dims(g, x, 0);
    graph_require_equal(g, graph_shape_of(g, x)->dim[1], tir_index(g->pool, keys), "ZipMap: number of keys");
    onnx_structure *maps = onnx_structure_new(im, ONNX_MAPS, 2);
    if (integers)
        maps->part[0] = onnx_value_of(im, DLC_I64, 1, &keys, numbers);
    else
        maps->part[0].structure = onnx_strings_new(im, 1, &keys, strings.data);
    maps->part[1].id = x;
    onnx_give_structure(im, 0, maps);
}

const onnx_row onnx_rows_dictionary[] = {
    {"CastMap", 1, 0, import_cast_map, NULL},
    {"CategoryMapper", 1, 0, import_category_mapper, NULL},
    {"DictVectorizer", 1, 0, import_dict_vectorizer, NULL},
    {"LabelEncoder", 1, 1, import_first_label_encoder, NULL},
    {"LabelEncoder", 2, 0, import_label_encoder, NULL},
    {"ZipMap", 1, 0, import_zip_map, NULL},
    {0},
};
