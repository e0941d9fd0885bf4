/* Rows of sequences and optionals, and of Loop with carried sequences or optionals: their structure is known at import, and only the tensors
 * in them are values of the graph. */
#include "graph/onnx/structure.h"

enum { UNROLLED_TURNS = 64, UNROLLED_NODES = 20000 };

/* ---- operands ------------------------------------------------------------------------------------------------------- */

/* Operand i as a list; raises if it is none. */
static const onnx_structure *list_operand(onnx_import *im, size_t i) {
    if (!onnx_has(im, i)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
    const onnx_value *value = im->operand[i];
    const onnx_form form = onnx_form_of(value);
    if (form != ONNX_LIST)
        onnx_fail(im,
                  form == ONNX_MAPS    ? DLC_UNSUPPORTED
                  : form == ONNX_EMPTY ? DLC_INVALID_ARGUMENT
                                       : DLC_PARSE_ERROR,
                  "operand %zu, %s, is %s; a sequence of tensors is needed", i, onnx_shown(im->g->arena, value->name),
                  onnx_form_text(form));
    return value->structure;
}

/* The position that operand i gives in a list of n elements; past: n itself is also allowed. Without the operand: the last allowed one. */
static size_t position(onnx_import *im, size_t i, size_t n, bool past) {
    const int64_t places = (int64_t)n + past;
    const int64_t given = onnx_operand_integer(im, i, places - 1), at = given < 0 ? given + (int64_t)n : given;
    if (at < 0 || at >= places)
        onnx_fail(im, DLC_INVALID_ARGUMENT, "position %lld in a sequence of %zu", (long long)given, n);
    return (size_t)at;
}

/* A new list of the same element type with room for `count` elements. */
static onnx_structure *list_like(onnx_import *im, const onnx_structure *list, size_t count) {
    onnx_structure *copy = onnx_structure_new(im, ONNX_LIST, count);
    copy->element = list->element;
    return copy;
}

/* Makes the value element `at` of the list; raises unless its elements have the list's type. */
static void put(onnx_import *im, onnx_structure *list, size_t at, onnx_value *value) {
    const onnx_form form = onnx_form_of(value);
    if (form != ONNX_NUMBERS && form != ONNX_STRINGS && form != ONNX_WRITTEN)
        onnx_fail(im, DLC_PARSE_ERROR, "value %s is no tensor; a sequence has tensors",
                  onnx_shown(im->g->arena, value->name));
    const int own = onnx_element_type(im, value);
    if (list->element == ONNX_ANY) list->element = own;
    if (list->element != own)
        onnx_fail(im, DLC_PARSE_ERROR, "value %s has elements of type %s in a sequence of %s",
                  onnx_shown(im->g->arena, value->name), onnx_element_name(own), onnx_element_name(list->element));
    onnx_take_value(&list->part[at], value);
}

/* ---- sequences ------------------------------------------------------------------------------------------------------- */

static void import_construct(onnx_import *im) {
    const size_t count = onnx_operands(im);
    onnx_structure *list = onnx_structure_new(im, ONNX_LIST, count);
    for (size_t i = 0; i < count; i++) {
        if (!onnx_has(im, i)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
        put(im, list, i, im->operand[i]);
    }
    onnx_give_structure(im, 0, list);
}

static void import_empty(onnx_import *im) {
    const int64_t type = onnx_int(im, "dtype", 1);
    onnx_structure *list = onnx_structure_new(im, ONNX_LIST, 0);
    list->element = type == ONNX_STRING ? (int)ONNX_TEXT : (int)onnx_dtype(im, type);
    onnx_give_structure(im, 0, list);
}

static void import_at(onnx_import *im) {
    const onnx_structure *list = list_operand(im, 0);
    onnx_give_value(im, 0, &list->part[position(im, 1, list->count, false)]);
}

static void import_insert(onnx_import *im) {
    const onnx_structure *list = list_operand(im, 0);
    const size_t at = position(im, 2, list->count, true);
    onnx_structure *longer = list_like(im, list, list->count + 1);
    if (!onnx_has(im, 1)) onnx_fail(im, DLC_PARSE_ERROR, "operand 1 is missing");
    for (size_t i = 0; i < list->count; i++) onnx_take_value(&longer->part[i + (i >= at)], &list->part[i]);
    put(im, longer, at, im->operand[1]);
    onnx_give_structure(im, 0, longer);
}

static void import_erase(onnx_import *im) {
    const onnx_structure *list = list_operand(im, 0);
    const size_t at = position(im, 1, list->count, false);
    onnx_structure *shorter = list_like(im, list, list->count - 1);
    for (size_t i = 0; i < shorter->count; i++) onnx_take_value(&shorter->part[i], &list->part[i + (i >= at)]);
    onnx_give_structure(im, 0, shorter);
}

static void import_length(onnx_import *im) {
    const int64_t count = (int64_t)list_operand(im, 0)->count;
    const onnx_value length = onnx_value_of(im, DLC_I64, 0, NULL, &count);
    onnx_give_value(im, 0, &length);
}

/* Tensors of strings are joined as their tensors of places. */
static void import_concat_from(onnx_import *im) {
    graph *g = im->g;
    const onnx_structure *list = list_operand(im, 0);
    const bool new_axis = onnx_int(im, "new_axis", 0) != 0, strings = list->element == ONNX_TEXT;
    onnx_value **value = LIB_NEW_ARRAY(g->arena, onnx_value *, list->count + 1);
    graph_id *part = LIB_NEW_ARRAY(g->arena, graph_id, list->count + 1);
    if (!list->count) onnx_fail(im, DLC_INVALID_ARGUMENT, "a sequence without elements has no tensor as a result");
    for (size_t i = 0; i < list->count; i++) {
        value[i] = &list->part[i];
        if (strings && !onnx_ask_strings(im, value[i])) onnx_refuse_structure(im, value[i]);
    }
    onnx_words words = {.results = 1};
    if (strings) words = onnx_join_words(im, list->count, value), words.results = 1;
    const int axis = onnx_axis(im, onnx_int(im, "axis", 0), onnx_shape_of(im, value[0]).rank, new_axis);
    for (size_t i = 0; i < list->count; i++) {
        part[i] = onnx_id_of(im, value[i]);
        if (new_axis) part[i] = graph_expand_dims(g, part[i], axis);
    }
    onnx_give(im, 0, list->count == 1 ? part[0] : graph_concat(g, (int)list->count, part, axis));
    if (strings) onnx_end_move(im, &words);
}

typedef struct parts {
    size_t count;
    /* The size of each part; NULL: all have size `each`, except that the last has what is left. */
    const tir_expr *sizes;
    int64_t each;
} parts;

/* The parts that operand 1 gives: a list of sizes, one size for all, or, if it is omitted, the size 1. */
static parts parts_of(onnx_import *im, tir_expr extent) {
    int count;
    parts p = {.each = 1};
    int64_t size;
    if (onnx_has(im, 1) && onnx_operand_rank(im, 1)) {
        p.sizes = onnx_operand_sizes(im, 1, &count);
        p.count = (size_t)count;
        if (!count)
            graph_require_equal(im->g, extent, tir_index(im->g->pool, 0),
                                "SplitToSequence: no parts of an axis of size");
    } else {
        p.each = onnx_operand_integer(im, 1, 1);
        if (p.each <= 0) onnx_fail(im, DLC_INVALID_ARGUMENT, "parts of size %lld", (long long)p.each);
        if (!tir_is_const(im->g->pool, extent, &size))
            onnx_fail(im, DLC_UNSUPPORTED, "how many parts there are depends on a size that is not given");
        p.count = (size_t)(size / p.each + (size % p.each != 0));
    }
    if (p.count > UNROLLED_NODES) onnx_fail(im, DLC_BUDGET_EXCEEDED, "%zu parts; at most %d", p.count, UNROLLED_NODES);
    return p;
}

static void import_split_to(onnx_import *im) {
    graph *g = im->g;
    tir_pool *pool = g->pool;
    if (!onnx_has(im, 0)) onnx_fail(im, DLC_PARSE_ERROR, "operand 0 is missing");
    onnx_value *x = im->operand[0];
    const onnx_structure *strings = onnx_ask_strings(im, x);
    const graph_shape shape = onnx_shape_of(im, x);
    const int axis = onnx_axis(im, onnx_int(im, "axis", 0), shape.rank, false);
    const bool drop = !onnx_int(im, "keepdims", 1) && !onnx_has(im, 1);
    const parts p = parts_of(im, shape.dim[axis]);
    const graph_id whole = onnx_id_of(im, strings ? strings->part : x);
    onnx_structure *list = onnx_structure_new(im, ONNX_LIST, p.count);
    list->element = onnx_element_type(im, x);
    tir_expr start = tir_index(pool, 0);
    for (size_t i = 0; i < p.count; i++) {
        const tir_expr size = p.sizes ? p.sizes[i] : tir_index(pool, p.each);
        tir_expr stop = tir_add(pool, start, size);
        if (p.sizes && i + 1 == p.count)
            graph_require_equal(g, stop, shape.dim[axis], "SplitToSequence: its parts have not the size of the axis");
        if (!p.sizes) stop = tir_min(pool, stop, shape.dim[axis]);
        graph_id part = graph_slice_axis(g, whole, axis, start, stop);
        if (drop) part = graph_squeeze(g, part, axis);
        onnx_value *to = &list->part[i];
        if (strings) {
            onnx_structure *own = onnx_structure_new(im, ONNX_STRINGS, 1);
            own->words = strings->words, own->word = strings->word, own->part->id = part;
            to->structure = own;
        } else {
            to->id = part;
        }
        start = stop;
    }
    onnx_give_structure(im, 0, list);
}

/* ---- optionals ------------------------------------------------------------------------------------------------------- */

static void import_optional(onnx_import *im) {
    const onnx_attribute *type = onnx_attribute_find(im, "type", ONNX_ATTRIBUTE_TYPE);
    if (!type && !onnx_has(im, 0)) onnx_fail(im, DLC_PARSE_ERROR, "it has neither an operand nor a type");
    if (onnx_has(im, 0))
        onnx_give_operand(im, 0, 0);
    else
        onnx_give_structure(im, 0, onnx_structure_new(im, ONNX_EMPTY, 0));
}

/* Gives a known bool as result 0. */
static void give_truth(onnx_import *im, bool truth) {
    onnx_known *known = onnx_known_new(im, DLC_BOOL, 0, NULL);
    known->element[0] = (onnx_number){tir_index(im->g->pool, truth), 1, 0};
    onnx_give_known(im, 0, known);
}

static void import_has_element(onnx_import *im) {
    give_truth(im, onnx_has(im, 0) && onnx_form_of(im->operand[0]) != ONNX_EMPTY);
}

static void import_get_element(onnx_import *im) {
    if (onnx_has(im, 0) && onnx_form_of(im->operand[0]) == ONNX_EMPTY)
        onnx_fail(im, DLC_INVALID_ARGUMENT, "optional %s is empty", onnx_shown(im->g->arena, im->operand[0]->name));
    onnx_give_operand(im, 0, 0);
}

/* ---- bodies in several copies ------------------------------------------------------------------------------------------ */

static size_t count_nodes(const onnx_graph *part) {
    size_t count = part->nodes.count;
    for (size_t n = 0; n < part->nodes.count; n++)
        for (size_t a = 0; a < part->nodes.data[n].attributes.count; a++)
            if (part->nodes.data[n].attributes.data[a].g)
                count += count_nodes(part->nodes.data[n].attributes.data[a].g);
    return count;
}

/* Counts the nodes of `times` copies of the body; raises if the import has too many nodes from unrolled loops. */
static void count_unrolled(onnx_import *im, const onnx_graph *body, size_t times) {
    const size_t nodes = count_nodes(body);
    if (nodes && times > (UNROLLED_NODES - im->unrolled) / nodes)
        onnx_fail(im, DLC_UNSUPPORTED, "%zu copies of a body of %zu nodes, more than %d nodes in all", times, nodes,
                  UNROLLED_NODES);
    im->unrolled += times * nodes;
}

/* The value of the condition; raises if it is not known. */
static bool decided(onnx_import *im, onnx_value *condition) {
    const onnx_known *known = onnx_known_of(im, condition);
    int64_t value;
    if (!known || known->count != 1 || !known->element[0].index ||
        !tir_is_const(im->g->pool, known->element[0].index, &value))
        onnx_fail(im, DLC_UNSUPPORTED, "the condition of a loop that carries sequences or optionals depends on data");
    return value != 0;
}

static void import_sequence_map(onnx_import *im) {
    const onnx_graph *body = onnx_graph_attribute(im, "body");
    const size_t operands = onnx_operands(im), results = im->node->outputs.count;
    const size_t count = list_operand(im, 0)->count;
    if (body->inputs.count != operands || body->outputs.count < results)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu inputs and %zu outputs for %zu operands and %zu results",
                  body->inputs.count, body->outputs.count, operands, results);
    count_unrolled(im, body, count);
    onnx_structure **list = LIB_NEW_ARRAY(im->g->arena, onnx_structure *, results + 1);
    onnx_value *inputs = LIB_NEW_ARRAY(im->g->arena, onnx_value, operands + 1),
               *outputs = LIB_NEW_ARRAY(im->g->arena, onnx_value, results + 1);
    for (size_t r = 0; r < results; r++) {
        list[r] = onnx_structure_new(im, ONNX_LIST, count);
        list[r]->element = onnx_element_of_type(body->outputs.data[r].type);
    }
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < operands; i++) {
            if (!onnx_has(im, i)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
            const onnx_structure *own = onnx_form_of(im->operand[i]) == ONNX_LIST ? im->operand[i]->structure : NULL;
            if (own && own->count != count)
                onnx_fail(im, DLC_INVALID_ARGUMENT, "sequences of %zu and of %zu elements", count, own->count);
            onnx_take_value(&inputs[i], own ? &own->part[k] : im->operand[i]);
        }
        onnx_import_inline(im, body, inputs, results, outputs);
        for (size_t r = 0; r < results; r++) put(im, list[r], k, &outputs[r]);
    }
    for (size_t r = 0; r < results; r++) onnx_give_structure(im, r, list[r]);
}

/* ---- Loop ---------------------------------------------------------------------------------------------------------------- */

/* A known number of the rank, 0 or 1, that the file declares for the body's input. */
static onnx_value formal(onnx_import *im, const onnx_value_info *info, dlc_dtype dtype, int64_t number) {
    onnx_known *known = onnx_known_new(im, dtype, onnx_is_list(info), (int64_t[]){1});
    known->element[0] = (onnx_number){tir_index(im->g->pool, number), 1, 0};
    return (onnx_value){.known = known};
}

typedef struct turns {
    const onnx_graph *body;
    /* The numbers of values carried from iteration to iteration, and of results that stack an element of each iteration. */
    size_t carried, stacks;
    /* inputs[]: number of the iteration, condition, carried values; outputs[]: condition, carried values, elements. */
    onnx_value *inputs, *outputs;
    /* [stacks][UNROLLED_TURNS] */
    graph_id *element;
    int64_t count;
} turns;

static void take_turn(onnx_import *im, turns *t) {
    if (t->count == UNROLLED_TURNS)
        onnx_fail(im, DLC_UNSUPPORTED, "more than %d iterations of a loop that carries sequences or optionals",
                  UNROLLED_TURNS);
    count_unrolled(im, t->body, 1);
    t->inputs[0] = formal(im, &t->body->inputs.data[0], DLC_I64, t->count);
    t->inputs[1] = formal(im, &t->body->inputs.data[1], DLC_BOOL, 1);
    onnx_import_inline(im, t->body, t->inputs, 1 + t->carried + t->stacks, t->outputs);
    for (size_t i = 0; i < t->carried; i++) t->inputs[2 + i] = t->outputs[1 + i];
    for (size_t i = 0; i < t->stacks; i++)
        t->element[i * UNROLLED_TURNS + (size_t)t->count] =
            graph_expand_dims(im->g, onnx_id_of(im, &t->outputs[1 + t->carried + i]), 0);
    t->count++;
}

static void give_turns(onnx_import *im, const turns *t) {
    for (size_t i = 0; i < t->carried; i++) onnx_give_value(im, i, &t->inputs[2 + i]);
    for (size_t i = 0; i < t->stacks; i++) {
        const graph_id *element = t->element + i * UNROLLED_TURNS;
        if (!onnx_wants(im, t->carried + i)) continue;
        if (!t->count) onnx_fail(im, DLC_UNSUPPORTED, "results that are stacked, of no iteration");
        onnx_give(im, t->carried + i, t->count == 1 ? element[0] : graph_concat(im->g, (int)t->count, element, 0));
    }
}

bool onnx_carries_structures(const onnx_import *im) {
    bool structured = false;
    for (size_t i = 2; i < onnx_operands(im); i++)
        structured |= onnx_has(im, i) && onnx_form_of(im->operand[i]) != ONNX_NUMBERS;
    return structured;
}

void onnx_unroll_loop(onnx_import *im) {
    const size_t operands = onnx_operands(im);
    turns t = {.body = onnx_graph_attribute(im, "body"), .carried = operands - 2};
    if (t.body->inputs.count != operands || t.body->outputs.count < t.carried + 1)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu inputs and %zu outputs for %zu carried values",
                  t.body->inputs.count, t.body->outputs.count, t.carried);
    t.stacks = t.body->outputs.count - 1 - t.carried;
    t.inputs = LIB_NEW_ARRAY(im->g->arena, onnx_value, operands + 1);
    t.outputs = LIB_NEW_ARRAY(im->g->arena, onnx_value, t.body->outputs.count + 1);
    t.element = LIB_NEW_ARRAY(im->g->arena, graph_id, t.stacks * UNROLLED_TURNS + 1);
    const int64_t trips = onnx_operand_integer(im, 0, INT64_MAX);
    for (size_t i = 2; i < operands; i++) {
        if (!onnx_has(im, i)) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i);
        t.inputs[i] = *im->operand[i];
    }
    bool goes = !onnx_has(im, 1) || decided(im, im->operand[1]);
    while (goes && t.count < trips) {
        take_turn(im, &t);
        goes = decided(im, &t.outputs[0]);
    }
    give_turns(im, &t);
}

const onnx_row onnx_rows_sequence[] = {
    {"ConcatFromSequence", 11, 0, import_concat_from, NULL},
    {"Optional", 15, 0, import_optional, NULL},
    {"OptionalGetElement", 15, 0, import_get_element, NULL},
    {"OptionalHasElement", 15, 0, import_has_element, NULL},
    {"SequenceAt", 11, 0, import_at, NULL},
    {"SequenceConstruct", 11, 0, import_construct, NULL},
    {"SequenceEmpty", 11, 0, import_empty, NULL},
    {"SequenceErase", 11, 0, import_erase, NULL},
    {"SequenceInsert", 11, 0, import_insert, NULL},
    {"SequenceLength", 11, 0, import_length, NULL},
    {"SequenceMap", 17, 0, import_sequence_map, NULL},
    {"SplitToSequence", 11, 0, import_split_to, NULL},
    {0},
};
