/* Walks: imports during a run, in which values can be computed. Stored tensors, which runs share; computing the elements of a value; loops,
 * of which each iteration is imported and computed in a graph of its own, whose inputs come from the enclosing graph and from that of
 * the iteration before. */
#include "graph/internal.h"
#include "graph/onnx/structure.h"

/* ---- stored tensors ------------------------------------------------------------------------------------------------------ */

/* The tensor's constant in the store's graph, which is made if need be. */
static graph_id store_tensor(onnx_import *im, const onnx_tensor *tensor) {
    onnx_store *store = im->options->store;
    lib_arena *arena = store->g->arena;
    const uint64_t hash = (uint64_t)(uintptr_t)tensor;
    for (uint32_t at = lib_map_first(&store->by_tensor, hash); at != LIB_MAP_END;
         at = lib_map_next(&store->by_tensor, hash, at))
        if (store->tensors.data[store->by_tensor.slots[at].value] == tensor)
            return store->constants.data[store->by_tensor.slots[at].value];
    arena->scope = im->g->arena->scope;
    const graph_id id = onnx_make_constant(im, store->g, tensor);
    lib_vec_reserve(arena, &store->constants, 1);
    lib_vec_push(arena, &store->tensors, tensor);
    lib_vec_push(arena, &store->constants, id);
    lib_map_insert(arena, &store->by_tensor, hash, store->tensors.count - 1);
    return id;
}

graph_id onnx_make_stored(onnx_import *im, const onnx_tensor *tensor) {
    const graph *from = im->options->store->g;
    const graph_id id = store_tensor(im, tensor);
    const graph_shape *shape = graph_shape_of(from, id);
    const uint32_t value = graph_add_constant_as(im->g, *graph_constant_of(from, id));
    tir_expr dims[DLC_MAX_RANK];
    for (int d = 0; d < shape->rank; d++) dims[d] = tir_index(im->g->pool, tensor->dims.data[d]);
    return onnx_emit(im, "constant", 0, NULL, 3,
                     (graph_setting[]){graph_set_integer("value", value), graph_set_integer("dtype", shape->dtype),
                                       graph_set_dims("shape", shape->rank, dims)});
}

/* ---- known values -------------------------------------------------------------------------------------------------------- */

/* Computes the elements of a value in a walk; NULL: there are too many, or packed or complex ones. */
static const onnx_known *computed(onnx_import *im, onnx_value *value) {
    const graph_id id = onnx_id_of(im, value);
    const graph_shape shape = *graph_shape_of(im->g, id);
    int64_t dims[DLC_MAX_RANK], count = 1;
    if (lib_dtype_is_packed(shape.dtype) || lib_dtypes[shape.dtype].class_ == 'c') return NULL;
    for (int d = 0; d < shape.rank; d++) {
        if (!tir_is_const(im->g->pool, shape.dim[d], &dims[d]) || dims[d] > ONNX_ASKED_MAX) return NULL;
        count *= dims[d];
        if (count > ONNX_ASKED_MAX) return NULL;
    }
    char *elements = lib_arena_array(im->g->arena, (size_t)count + 1, lib_dtype_size(shape.dtype));
    im->options->walk->read(im->options->walk, im->g, id, elements);
    onnx_known *known = onnx_known_of_elements(im, shape.dtype, shape.rank, dims, elements);
    known->varies = true;
    if (onnx_is_followed(shape.dtype)) value->known = known;
    return known;
}

const onnx_known *onnx_ask(onnx_import *im, onnx_value *value) {
    const onnx_known *known = onnx_known_of(im, value);
    if (!onnx_walks(im) || (known && onnx_known_is_constant(im, known))) return known;
    return computed(im, value);
}

const onnx_known *onnx_operand_asked(onnx_import *im, size_t i) {
    return onnx_has(im, i) ? onnx_ask(im, im->operand[i]) : NULL;
}

void onnx_settle_results(onnx_import *im) {
    const onnx_node *node = im->node;
    onnx_walk *walk = im->options->walk;
    graph_id *open = LIB_NEW_ARRAY(im->g->arena, graph_id, node->outputs.count + 1);
    int count = 0;
    for (size_t i = 0; i < node->outputs.count; i++) {
        const graph_shape *shape = im->result[i] && im->result[i]->id ? graph_shape_of(im->g, im->result[i]->id) : NULL;
        int64_t size;
        bool settled = true;
        for (int d = 0; shape && d < shape->rank; d++) settled &= tir_is_const(im->g->pool, shape->dim[d], &size);
        if (!settled) open[count++] = im->result[i]->id;
    }
    if (!count) return;
    walk->evaluate(walk, im->g, count, open);
    for (size_t i = 0; i < node->outputs.count; i++)
        for (int k = 0; k < count; k++)
            if (im->result[i] && im->result[i]->id == open[k]) {
                im->result[i]->id = walk->share(walk, im->g, open[k], im->g);
                break;
            }
}

/* Is the known result a size, or computed from varying values? */
static bool result_varies(onnx_import *im) {
    bool varies = onnx_is(im->node->operator, "Shape") || onnx_is(im->node->operator, "Size");
    for (size_t i = 0; i < onnx_operands(im) && !varies; i++) {
        const onnx_known *known = onnx_operand_known(im, i);
        varies = known && known->varies;
    }
    return varies;
}

void onnx_vary_result(onnx_import *im) {
    onnx_value *y = im->result[0];
    if (y->known && result_varies(im)) y->known = onnx_varying(im, y->known);
}

const onnx_known *onnx_varying(onnx_import *im, const onnx_known *known) {
    if (known->varies) return known;
    onnx_known *own = lib_arena_copy(im->g->arena, known, sizeof *own);
    own->varies = true;
    return own;
}

/* The known value of graph `home`, copied for the current graph; NULL: it depends on symbols. */
static onnx_known *moved_known(onnx_import *im, const onnx_known *known, const graph *home) {
    onnx_known *moved = onnx_known_new(im, known->dtype, known->rank, known->dims);
    moved->varies = known->varies;
    for (int64_t i = 0; i < known->count; i++) {
        int64_t index;
        moved->element[i] = known->element[i];
        if (!known->element[i].index) continue;
        if (!tir_is_const(home->pool, known->element[i].index, &index)) return NULL;
        moved->element[i].index = tir_index(im->g->pool, index);
    }
    return moved;
}

/* ---- loops --------------------------------------------------------------------------------------------------------------- */

/* In a walk, is the value a tensor that must be computed before another graph has it? */
static bool is_tensor(const onnx_value *value) {
    return value->id && !value->stored && !(value->known && !value->known->varies);
}

typedef lib_vec(graph_id) id_list;

/* Adds the ids of the tensors that the value is or contains and that must be computed. */
static void add_tensors(lib_arena *arena, id_list *ids, const onnx_value *value) {
    if (is_tensor(value)) lib_vec_push(arena, ids, value->id);
    for (size_t i = 0; value->structure && i < value->structure->count; i++)
        add_tensors(arena, ids, &value->structure->part[i]);
}

static void evaluate_values(onnx_import *im, graph *g, size_t count, onnx_value *const *values) {
    id_list ids = {0};
    for (size_t i = 0; i < count; i++)
        if (values[i]) add_tensors(g->arena, &ids, values[i]);
    im->options->walk->evaluate(im->options->walk, g, (int)ids.count, ids.data);
}

typedef void move_function(onnx_import *im, onnx_value *to, onnx_value *from, graph *home);

/* A copy of the structure's table of words, for a structure that outlives the iteration which made the table. */
static const onnx_bytes *moved_words(onnx_import *im, const onnx_structure *from) {
    onnx_bytes *word = LIB_NEW_ARRAY(im->g->arena, onnx_bytes, from->words + 1);
    for (size_t i = 0; i < from->words; i++)
        word[i] =
            (onnx_bytes){lib_arena_copy(im->g->arena, from->word[i].data, from->word[i].size), from->word[i].size};
    return word;
}

/* The structure of graph `home` for the current graph, its parts moved by `move`; copies: with a copy of its words, else sharing them. */
static const onnx_structure *moved_structure(onnx_import *im, const onnx_structure *from, graph *home,
                                             move_function *move, bool copies) {
    onnx_structure *to = lib_arena_copy(im->g->arena, from, sizeof *to);
    to->part = LIB_NEW_ARRAY(im->g->arena, onnx_value, from->count + 1);
    for (size_t i = 0; i < from->count; i++) move(im, &to->part[i], &from->part[i], home);
    if (copies) to->word = moved_words(im, from);
    return to;
}

static void move_numbers(onnx_import *im, onnx_value *to, const onnx_value *from, graph *home) {
    onnx_walk *walk = im->options->walk;
    onnx_take_value(to, from);
    to->known = from->known ? moved_known(im, from->known, home) : NULL;
    to->id = is_tensor(from) ? walk->share(walk, home, from->id, im->g) : 0;
}

/* Makes `to`, a value of the current graph, what `from` is in another graph of the walk. */
static void move_value(onnx_import *im, onnx_value *to, onnx_value *from, graph *home) {
    move_numbers(im, to, from, home);
    if (from->structure) to->structure = moved_structure(im, from->structure, home, move_value, true);
}

/* move_value from an enclosing graph, which outlives the current one, so that words need not be copied. */
static void move_captured(onnx_import *im, onnx_value *to, onnx_value *from, graph *home) {
    graph *own = im->g;
    im->g = home;
    onnx_strings_of(im, from); /* stored ones are read there, once for all iterations */
    im->g = own;
    move_numbers(im, to, from, home);
    if (from->structure) to->structure = moved_structure(im, from->structure, home, move_captured, false);
}

/* move_value for a carried value: it has another value in the next iteration, so that even a constant becomes one that varies. */
static void move_carried(onnx_import *im, onnx_value *to, onnx_value *from, graph *home) {
    onnx_walk *walk = im->options->walk;
    graph *own = im->g;
    im->g = home;
    const onnx_structure *strings = onnx_strings_of(im, from), *structure = strings ? strings : from->structure;
    if (structure) {
        im->g = own;
        *to = (onnx_value){.name = to->name, .structure = moved_structure(im, structure, home, move_carried, true)};
        return;
    }
    const onnx_known *known = onnx_known_of(im, from);
    const bool numbers = known && onnx_known_is_constant(im, known);
    const graph_id id = numbers && !is_tensor(from) ? 0 : onnx_id_of(im, from);
    im->g = own;
    onnx_take_value(to, from);
    to->stored = NULL;
    to->id = id ? walk->share(walk, home, id, own) : 0;
    onnx_known *moved = numbers ? moved_known(im, known, home) : NULL;
    if (moved) moved->varies = true;
    to->known = moved;
}

static onnx_known *known_number(onnx_import *im, dlc_dtype dtype, int rank, int64_t number, bool varies) {
    onnx_known *known = onnx_known_new(im, dtype, rank, (int64_t[]){1});
    known->element[0] = (onnx_number){tir_index(im->g->pool, number), 1, 0};
    known->varies = varies;
    return known;
}

static void define_element(onnx_import *im, const onnx_walked_loop *w, size_t i, int64_t iteration) {
    const onnx_walked_sequence *s = &w->sequence[i];
    const int64_t place = s->backwards ? w->length - 1 - iteration : iteration;
    onnx_value whole = {.id = 0};
    move_carried(im, &whole, s->value, w->home);
    const graph_id at = onnx_make_known(im, known_number(im, DLC_I64, 0, place, true));
    onnx_define(im, w->body->inputs.data[w->carried + i].name)->id =
        graph_gather(im->g, onnx_id_of(im, &whole), at, s->axis);
}

static void define_iteration(onnx_import *im, const onnx_walked_loop *w, int64_t iteration) {
    for (uint32_t i = 0; i < w->all.count; i++)
        move_captured(im, onnx_define(im, w->all.data[i]->name), w->all.data[i], w->home);
    const onnx_value_info *formal = w->body->inputs.data;
    if (w->counts) {
        onnx_define(im, formal[0].name)->known = known_number(im, DLC_I64, onnx_is_list(&formal[0]), iteration, true);
        onnx_define(im, formal[1].name)->known = known_number(im, DLC_BOOL, onnx_is_list(&formal[1]), 1, false);
        formal += 2;
    }
    for (size_t i = 0; i < w->carried; i++) move_carried(im, onnx_define(im, formal[i].name), w->carry[i], w->before);
    for (size_t i = 0; i < w->sequences; i++) define_element(im, w, i, iteration);
}

bool onnx_is_true(onnx_import *im, onnx_value *condition) {
    const onnx_known *known = onnx_ask(im, condition);
    if (!known || known->count != 1)
        onnx_fail(im, DLC_PARSE_ERROR, "the condition of a loop is no single bool, but has %lld elements",
                  known ? (long long)known->count : -1);
    int64_t number = 0;
    return known->element[0].index && tir_is_const(im->g->pool, known->element[0].index, &number) && number != 0;
}

bool onnx_walk_iteration(onnx_import *im, onnx_walked_loop *w, int64_t iteration) {
    const onnx_import saved = *im;
    const size_t count = w->counts + w->carried + w->stacks;
    onnx_names_scope scope = {.outer = NULL};
    lib_stack_require(w->home->arena->scope, LIB_STACK_NESTED);
    graph *now = w->walk->open(w->walk, w->home);
    onnx_value **outputs = LIB_NEW_ARRAY(now->arena, onnx_value *, count + 1), **results = outputs + w->counts;
    im->g = now, im->scope = &scope, im->within = w->place;
    w->place->iteration = iteration;
    define_iteration(im, w, iteration);
    onnx_import_body(im, w->body);
    for (size_t i = 0; i < count; i++) outputs[i] = onnx_body_output(im, w->body, i);
    evaluate_values(im, now, count, outputs);
    const bool more = !w->counts || onnx_is_true(im, outputs[0]);
    for (size_t i = 0; i < w->stacks; i++)
        w->walk->push(w->walk, w->stack[i], now, onnx_id_of(im, results[w->carried + i]));
    onnx_end_part(im, &saved);
    if (w->before != w->home) w->walk->close(w->walk, w->before);
    w->before = now, w->carry = results;
    return more;
}

/* The shape, in the current graph, of an element of a stack that stays empty, as the file declares it; sizes that it leaves open are 0. */
static graph_shape declared_element(onnx_import *im, const onnx_value_info *info) {
    const onnx_type *type = info->type;
    graph_shape shape = {.dtype = DLC_F32};
    if (!type || type->which != ONNX_TYPE_TENSOR) return shape;
    const onnx_shape *declared = type->tensor->shape;
    shape.dtype = onnx_dtype(im, type->tensor->element);
    shape.rank = declared && declared->dims.count < DLC_MAX_RANK ? (int)declared->dims.count : 0;
    for (int d = 0; d < shape.rank; d++)
        shape.dim[d] = tir_index(im->g->pool, declared->dims.data[d].value > 0 ? declared->dims.data[d].value : 0);
    return shape;
}

/* For a loop without iterations: sets shapes[stacks] by importing the body, without computing it. Raises if that fails. */
static void import_unused(onnx_import *im, const onnx_walked_loop *w, graph_shape *shapes) {
    onnx_options plain = *im->options;
    define_iteration(im, w, 0);
    plain.walk = NULL;
    im->options = &plain;
    onnx_import_body(im, w->body);
    for (size_t i = 0; i < w->stacks; i++)
        shapes[i] = *graph_shape_of(im->g, onnx_id_of(im, onnx_body_output(im, w->body, w->counts + w->carried + i)));
}

/* Replaces the dimensions of *shape, numbers in graph `from`, by numbers of the current graph; false: one is no number, or the rank is
 * DLC_MAX_RANK. */
static bool move_shape(onnx_import *im, graph_shape *shape, const graph *from) {
    for (int d = 0; d < shape->rank; d++) {
        int64_t size;
        if (!tir_is_const(from->pool, shape->dim[d], &size)) return false;
        shape->dim[d] = tir_index(im->g->pool, size);
    }
    return shape->rank < DLC_MAX_RANK;
}

/* [stacks] The elements' shapes of stacks that stay empty, in the current graph. */
static graph_shape *empty_elements(onnx_import *im, const onnx_walked_loop *w) {
    const onnx_import saved = *im;
    graph_shape *shapes = LIB_NEW_ARRAY(im->g->arena, graph_shape, w->stacks + 1);
    onnx_names_scope names = {.outer = NULL};
    graph *unused = w->walk->open(w->walk, w->home);
    lib_scope scope;
    unused->arena->scope = &scope;
    im->g = unused, im->scope = &names;
    if (LIB_ENTER(&scope)) import_unused(im, w, shapes);
    onnx_end_part(im, &saved);
    if (lib_is_circumstance(scope.error.status)) lib_raise_error(im->g->arena->scope, &scope.error);
    for (size_t i = 0; i < w->stacks; i++)
        if (scope.error.status != DLC_OK || !move_shape(im, &shapes[i], unused))
            shapes[i] = declared_element(im, &w->body->outputs.data[w->counts + w->carried + i]);
    w->walk->close(w->walk, unused);
    return shapes;
}

void onnx_give_walked(onnx_import *im, const onnx_walked_loop *w) {
    const graph_shape *none = w->before == w->home && w->stacks ? empty_elements(im, w) : NULL;
    for (size_t i = 0; i < w->carried; i++) {
        if (!onnx_wants(im, i)) continue;
        if (w->before == w->home)
            onnx_take_value(im->result[i], w->carry[i]);
        else
            move_value(im, im->result[i], w->carry[i], w->before);
    }
    for (size_t i = 0; i < w->stacks; i++)
        onnx_give(im, w->carried + i, w->walk->finish(w->walk, w->stack[i], im->g, none ? &none[i] : NULL));
    if (w->before != w->home) w->walk->close(w->walk, w->before);
}

onnx_walked_loop onnx_begin_walk(onnx_import *im, bool counts, size_t first, size_t carried, size_t sequences) {
    onnx_walked_loop w = {.walk = im->options->walk,
                          .body = onnx_graph_attribute(im, "body"),
                          .counts = counts,
                          .carried = carried,
                          .sequences = sequences,
                          .home = im->g,
                          .before = im->g,
                          .carry = im->operand + first};
    if (w.body->inputs.count != counts * 2 + carried + sequences || w.body->outputs.count < counts + carried)
        onnx_fail(im, DLC_PARSE_ERROR, "a body of %zu inputs and %zu outputs for %zu carried values",
                  w.body->inputs.count, w.body->outputs.count, carried);
    for (size_t i = 0; i < carried + sequences; i++)
        if (!w.carry[i]) onnx_fail(im, DLC_PARSE_ERROR, "operand %zu is missing", i + first);
    w.stacks = w.body->outputs.count - counts - carried;
    w.stack = LIB_NEW_ARRAY(im->g->arena, onnx_stack *, w.stacks + 1);
    for (size_t i = 0; i < w.stacks; i++) w.stack[i] = w.walk->stack(w.walk, im->g);
    onnx_find_captures(im, &w.all, w.body, w.body);
    w.place = onnx_place_of(im, 0);
    return w;
}

void onnx_evaluate_taken(onnx_import *im, const onnx_walked_loop *w) {
    const size_t given = w->carried + w->sequences;
    onnx_value **taken = LIB_NEW_ARRAY(im->g->arena, onnx_value *, given + w->all.count + 1);
    for (size_t i = 0; i < given; i++) taken[i] = w->carry[i];
    for (uint32_t i = 0; i < w->all.count; i++) taken[given + i] = w->all.data[i];
    evaluate_values(im, im->g, given + w->all.count, taken);
}

/* Imports the node by import(im). False: it failed, and the importer is as before; failures such as refused memory are raised. */
static bool try_row(onnx_import *im, void (*import)(onnx_import *im)) {
    lib_arena *arena = im->g->arena;
    lib_scope *outer = arena->scope, scope;
    const onnx_import saved = *im;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) import(im);
    arena->scope = outer;
    if (scope.error.status == DLC_OK) return true;
    onnx_end_part(im, &saved);
    if (lib_is_circumstance(scope.error.status)) lib_raise_error(outer, &scope.error);
    return false;
}

void onnx_import_or_walk(onnx_import *im, void (*import)(onnx_import *im), void (*walk)(onnx_import *im)) {
    onnx_store *store = im->options->store;
    const uint64_t node = (uint64_t)(uintptr_t)im->node;
    if (!onnx_walks(im)) {
        import(im);
        return;
    }
    if (lib_map_first(&store->walked, node) == LIB_MAP_END) {
        if (try_row(im, import)) return;
        store->g->arena->scope = im->g->arena->scope;
        lib_map_insert(store->g->arena, &store->walked, node, 0);
    }
    walk(im);
}
