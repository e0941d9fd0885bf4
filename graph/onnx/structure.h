/* Values that are no tensors of numbers: lists, optionals, strings, maps. Which of these a value is, how long a list is, whether an optional
 * is there, and which strings there are is known at import: only tensors of numbers are values of the graph.
 *
 * A tensor of strings is a table of words and a tensor of places in it, i64. So operators that only move elements are those of numbers, on
 * the places (onnx_begin_move), and strings by a computed index, such as a classifier's labels, need nothing else: the words are put
 * in their places after the run. A present optional is the value itself. */
#ifndef GRAPH_ONNX_STRUCTURE_H
#define GRAPH_ONNX_STRUCTURE_H

#include "graph/onnx/control.h"

typedef enum onnx_form {
    ONNX_NUMBERS,
    ONNX_STRINGS,
    /* Strings that are numbers, as Cast writes them. */
    ONNX_WRITTEN,
    ONNX_LIST,
    /* An optional that is not there. */
    ONNX_EMPTY,
    ONNX_MAP,
    /* A list of maps with the same keys: ZipMap's result. */
    ONNX_MAPS
} onnx_form;

/* What is known of an element type besides a dlc_dtype. */
enum { ONNX_TEXT = -1, ONNX_ANY = -2 };
/* Greatest number of strings in a table. */
enum { ONNX_WORDS_MAX = 1 << 22 };

typedef struct onnx_structure {
    onnx_form form;
    /* Lists: the dlc_dtype of elements, ONNX_TEXT, or ONNX_ANY. */
    int element;
    /* Strings: their places. Written numbers: these. Lists: elements. Maps: keys and values, each a list or strings; a list of maps: keys, and
     * values by map and key. */
    size_t count;
    onnx_value *part;
    /* Strings: the table, in ascending order of bytes, each once. */
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
/* In ONNX's notation, as seq(tensor(float)); NULL: "of no type". */
const char *onnx_type_text(lib_arena *arena, const onnx_type *type);
/* Raises, since a tensor of numbers is needed. */
_Noreturn void onnx_refuse_structure(onnx_import *im, const onnx_value *value);
/* What of a tensor of strings has its shape: places, or numbers that are written; NULL: it is none. */
onnx_value *onnx_elements_of(onnx_import *im, onnx_value *value);

onnx_structure *onnx_structure_new(onnx_import *im, onnx_form form, size_t count);
void onnx_give_structure(onnx_import *im, size_t i, const onnx_structure *structure);
void onnx_give_value(onnx_import *im, size_t i, const onnx_value *value);
/* Does the Loop carry values that are no tensors of numbers? */
bool onnx_carries_structures(const onnx_import *im);
/* Such a Loop in as many copies of its body as it has iterations. */
void onnx_unroll_loop(onnx_import *im);

/* ---- strings -------------------------------------------------------------------------------------------------------- */

/* The value as strings; NULL: it is none. */
const onnx_structure *onnx_strings_of(onnx_import *im, onnx_value *value);
/* The same for a row that cannot do without: a walk computes numbers that are written. */
const onnx_structure *onnx_ask_strings(onnx_import *im, onnx_value *value);
/* Operand i as strings; raises if it is none. */
const onnx_structure *onnx_operand_strings(onnx_import *im, size_t i);
/* All strings in row-major order; *known: the places, whose shape they have. Raises if they are computed by a run that is no walk. */
const onnx_bytes *onnx_texts_of(onnx_import *im, const onnx_structure *strings, const onnx_known **known);
const onnx_bytes *onnx_operand_texts(onnx_import *im, size_t i, const onnx_known **known);
/* By word of the strings: the last of these keys that it is; `count`: none. */
int64_t *onnx_find_words(onnx_import *im, const onnx_structure *strings, size_t count, const onnx_bytes *key);
onnx_structure *onnx_strings_new(onnx_import *im, int rank, const int64_t *dims, const onnx_bytes *text);
/* text[index] for each element of a tensor of indices below `count`. */
onnx_structure *onnx_strings_at(onnx_import *im, int64_t count, const onnx_bytes *text, onnx_value *index);
/* table[index] for each element of a tensor of indices below `count`: known if the indices are. */
onnx_value onnx_look_up(onnx_import *im, onnx_value *index, dlc_dtype dtype, int64_t count, const void *table);
/* Numbers in host memory as a value. */
onnx_value onnx_value_of(onnx_import *im, dlc_dtype dtype, int rank, const int64_t *dims, const void *bytes);
/* Known elements as numbers; NULL: none are known, or sizes and a run decide them. */
const int64_t *onnx_constant_integers(onnx_import *im, const onnx_known *known);
/* The attribute's strings; data NULL: it was not given. */
onnx_names onnx_strings_attribute(onnx_import *im, const char *name);
/* Of a Constant: its strings are the result; false: it has none. */
bool onnx_give_text(onnx_import *im);
/* A number as Cast writes it: shortest digits that give it back, INF, -INF, NaN. */
void onnx_write_number(lib_text *text, dlc_dtype dtype, const void *element);
/* Does Cast to that element type (ONNX's number) read or make strings? Then onnx_cast_text does it; dtype: of the result if that is numbers. */
bool onnx_casts_text(onnx_import *im, int32_t to);
void onnx_cast_text(onnx_import *im, int32_t to, dlc_dtype dtype);

/* Words that operands have in common. */
typedef struct onnx_words {
    size_t count;
    const onnx_bytes *word;
    /* Results that are strings again. */
    uint32_t results;
} onnx_words;
/* The table of these texts; rank[i]: where text[i] is in it. */
onnx_words onnx_table_of(onnx_import *im, size_t count, const onnx_bytes *text, int64_t *rank);
/* If the node's operator moves or compares elements, whatever they are, and some operand is strings: replaces these by their places in one
 * table, for the node's row. NULL: not so. */
const onnx_words *onnx_begin_move(onnx_import *im);
/* Makes results strings again. */
void onnx_end_move(onnx_import *im, const onnx_words *words);
/* Replaces values[i], all strings, by their places in one table. */
onnx_words onnx_join_words(onnx_import *im, size_t count, onnx_value **values);

/* ---- inputs and outputs of a model ----------------------------------------------------------------------------------- */

/* Defines an input of the main graph, with inputs of the graph for all tensors in it (inputs.c). */
void onnx_import_input(onnx_import *im, const onnx_value_info *info);

/* An output of a model, for dlc_onnx_run_values: as a structure, whose tensors are outputs of the graph or constants. */
typedef struct onnx_result {
    onnx_form form;
    size_t count;
    struct onnx_result *part;
    size_t words;
    const onnx_bytes *word;
    /* Numbers: the graph's output; -1: these. */
    int output;
    dlc_dtype dtype;
    int rank;
    int64_t dims[DLC_MAX_RANK];
    const void *bytes;
} onnx_result;

typedef struct onnx_results {
    /* Owner of what is described. */
    lib_arena *arena;
    /* By output of the model. */
    onnx_result *result;
    /* Outputs of the graph. */
    int outputs;
} onnx_results;
void onnx_describe_result(onnx_import *im, size_t i, onnx_value *value, const char *name);

#endif
