/* Values that are no tensors of numbers: lists, optionals, strings, maps. Only tensors of numbers are values of the graph. All else is known
 * at import: which of these a value is, the length of a list, whether an optional is present, the strings that can occur.
 *
 * A tensor of strings is a table of words and an i64 tensor of places, indices into that table. So operators that only move elements run on
 * the places as on numbers (onnx_begin_move), and strings selected by a computed index, such as a classifier's labels, are known as places:
 * after the run each place is replaced by its word. A present optional is the value itself. */
#ifndef GRAPH_ONNX_STRUCTURE_H
#define GRAPH_ONNX_STRUCTURE_H

#include "graph/onnx/control.h"

typedef enum onnx_form {
    ONNX_NUMBERS,
    ONNX_STRINGS,
    /* Strings that Cast makes of numbers. */
    ONNX_WRITTEN,
    ONNX_LIST,
    /* An absent optional. */
    ONNX_EMPTY,
    ONNX_MAP,
    /* A list of maps with the same keys: ZipMap's result. */
    ONNX_MAPS
} onnx_form;

/* Element types besides those of dlc_dtype: strings, and an unknown type. */
enum { ONNX_TEXT = -1, ONNX_ANY = -2 };
/* Greatest number of strings in a table. */
enum { ONNX_WORDS_MAX = 1 << 22 };

typedef struct onnx_structure {
    onnx_form form;
    /* Lists: the dlc_dtype of elements, ONNX_TEXT, or ONNX_ANY. */
    int element;
    /* ONNX_STRINGS: the places. ONNX_WRITTEN: the numbers. ONNX_LIST: the elements. ONNX_MAP: keys and values, each a list or strings.
     * ONNX_MAPS: keys, and values by map and key. */
    size_t count;
    onnx_value *part;
    /* ONNX_STRINGS: the table, in ascending order of bytes, without duplicates. */
    size_t words;
    const onnx_bytes *word;
} onnx_structure;

onnx_form onnx_form_of(const onnx_value *value);
/* For messages, as "a sequence". */
const char *onnx_form_text(onnx_form form);
/* The dlc_dtype of a tensor's elements, ONNX_TEXT, or ONNX_ANY. */
int onnx_element_type(onnx_import *im, onnx_value *value);
int onnx_element_of_type(const onnx_type *type);
const char *onnx_element_name(int element);
/* The type in ONNX's notation, for example seq(tensor(float)); for NULL "of no type". */
const char *onnx_type_text(lib_arena *arena, const onnx_type *type);
/* Raises, since a tensor of numbers is needed. */
_Noreturn void onnx_refuse_structure(onnx_import *im, const onnx_value *value);
/* The tensor that has the shape of a tensor of strings: its places, or the numbers that are written; NULL: the value is no strings. */
onnx_value *onnx_elements_of(onnx_import *im, onnx_value *value);

onnx_structure *onnx_structure_new(onnx_import *im, onnx_form form, size_t count);
void onnx_give_structure(onnx_import *im, size_t i, const onnx_structure *structure);
void onnx_give_value(onnx_import *im, size_t i, const onnx_value *value);
/* Does the Loop carry values that are no tensors of numbers? */
bool onnx_carries_structures(const onnx_import *im);
/* Imports the current node, a Loop that carries structures, as one copy of its body for each iteration. */
void onnx_unroll_loop(onnx_import *im);

/* ---- strings -------------------------------------------------------------------------------------------------------- */

/* The value as ONNX_STRINGS, to which known numbers are written; NULL: it is no strings, or numbers that are not known. */
const onnx_structure *onnx_strings_of(onnx_import *im, onnx_value *value);
/* onnx_strings_of for a row that needs the texts: a walk computes the numbers that are written. */
const onnx_structure *onnx_ask_strings(onnx_import *im, onnx_value *value);
/* Operand i as ONNX_STRINGS, for which a walk computes numbers; raises if it is none. */
const onnx_structure *onnx_operand_strings(onnx_import *im, size_t i);
/* The texts of all elements, in row-major order; *known: the places, which have the tensor's shape. Raises if they depend on a run, unless
 * this is a walk. */
const onnx_bytes *onnx_texts_of(onnx_import *im, const onnx_structure *strings, const onnx_known **known);
const onnx_bytes *onnx_operand_texts(onnx_import *im, size_t i, const onnx_known **known);
/* By word of the strings' table: the index of the last key[count] that is equal to it; `count`: none is. */
int64_t *onnx_find_words(onnx_import *im, const onnx_structure *strings, size_t count, const onnx_bytes *key);
onnx_structure *onnx_strings_new(onnx_import *im, int rank, const int64_t *dims, const onnx_bytes *text);
/* text[index] for each element of a tensor of indices below `count`. */
onnx_structure *onnx_strings_at(onnx_import *im, int64_t count, const onnx_bytes *text, onnx_value *index);
/* table[index] for each element of a tensor of indices below `count`: known if the indices are. */
onnx_value onnx_look_up(onnx_import *im, onnx_value *index, dlc_dtype dtype, int64_t count, const void *table);
/* Numbers in host memory as a value. */
onnx_value onnx_value_of(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims, const void *bytes);
/* Known elements as integers; NULL: they are not known, or depend on symbols or on a run. */
const int64_t *onnx_constant_integers(onnx_import *im, const onnx_known *known);
/* The attribute's strings; data NULL: it was not given. */
onnx_names onnx_strings_attribute(onnx_import *im, const char *name);
/* Gives the current node, a Constant, its strings as the result; false: it has none. */
bool onnx_give_text(onnx_import *im);
/* Adds a number as Cast writes it: the fewest digits that read back as the number; INF, -INF, NaN. */
void onnx_write_number(lib_text *text, dlc_dtype dtype, const void *element);
/* Does the current node, a Cast to element type `to` (ONNX's number), read or make strings? Then onnx_cast_text imports it; dtype: the
 * result's, if that is numbers. */
bool onnx_casts_text(onnx_import *im, int32_t to);
void onnx_cast_text(onnx_import *im, int32_t to, dlc_dtype dtype);

/* A table of words that several operands share. */
typedef struct onnx_words {
    size_t count;
    const onnx_bytes *word;
    /* Bit i: result i has places in the table. */
    uint32_t results;
} onnx_words;
/* The table of text[count]; sets rank[i] to the index of text[i] in it. */
onnx_words onnx_table_of(onnx_import *im, size_t count, const onnx_bytes *text, int64_t *rank);
/* If an operand is strings and the node's operator only moves or compares elements: replaces such operands by their places in one table, so
 * that the node's row can import it. NULL: otherwise. */
const onnx_words *onnx_begin_move(onnx_import *im);
/* After the row: makes the results that have places (words->results) strings of the table. */
void onnx_end_move(onnx_import *im, const onnx_words *words);
/* Replaces values[i], all strings, by their places in one table. */
onnx_words onnx_join_words(onnx_import *im, size_t count, onnx_value **values);

/* ---- inputs and outputs of a model ----------------------------------------------------------------------------------- */

/* Defines an input of the main graph, and an input of the graph for each tensor in it (inputs.c). */
void onnx_import_input(onnx_import *im, const onnx_value_info *info);
/* Raises unless the outputs that the options name are outputs of the model. */
void onnx_check_wanted(onnx_import *im);
/* Makes the wanted outputs outputs of the graph, or describes them in the options' results. */
void onnx_import_outputs(onnx_import *im);

/* An output of a model, for dlc_onnx_run_values: a structure as onnx_structure, whose tensors are outputs of the graph or constants. */
typedef struct onnx_result {
    onnx_form form;
    size_t count;
    struct onnx_result *part;
    size_t words;
    const onnx_bytes *word;
    /* ONNX_NUMBERS: the number of the graph's output; -1: a constant of this type, shape and bytes. */
    int output;
    dlc_dtype dtype;
    int rank;
    int64_t dims[DLC_MAX_RANK];
    const void *bytes;
} onnx_result;

typedef struct onnx_results {
    /* Owner of the descriptions. */
    lib_arena *arena;
    /* By output of the model. */
    onnx_result *result;
    /* Outputs of the graph. */
    int outputs;
} onnx_results;
void onnx_describe_result(onnx_import *im, size_t i, onnx_value *value, const char *name);

#endif
