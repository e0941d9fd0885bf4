#include "graph/sizes.h"

#include "graph/build.h"
#include "graph/internal.h"

/* ---- sizes of a graph --------------------------------------------------------------------------------------------- */

typedef struct size_list {
    lib_arena *arena;
    lib_vec(int64_t) sizes;
    /* indices of the outermost graph's input sizes */
    lib_vec(uint32_t) inputs;
    /* all sizes are numbers */
    bool numbers;
} size_list;

static void collect(const graph *g, size_list *list) {
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        const bool input = !g->parent && graph_is_input(node);
        for (int i = 0; node->op->attribute[i].name; i++) {
            const graph_attribute *attribute = &node->attribute[i];
            if (node->op->attribute[i].kind == GRAPH_ATTR_SUBGRAPH)
                collect(g->subgraphs.data[attribute->integer], list);
            if (node->op->attribute[i].kind != GRAPH_ATTR_DIMS) continue;
            for (int k = 0; k < attribute->count; k++) {
                int64_t size = 0;
                list->numbers = tir_is_const(g->pool, attribute->dims[k], &size) && list->numbers;
                if (input) lib_vec_push(list->arena, &list->inputs, list->sizes.count);
                lib_vec_push(list->arena, &list->sizes, size);
            }
        }
    }
}

int64_t *graph_sizes(lib_arena *arena, const graph *g, uint32_t *count) {
    size_list list = {.arena = arena, .numbers = g->symbols.count == 0};
    lib_vec_reserve(arena, &list.sizes, 1);
    if (list.numbers) collect(g, &list);
    *count = list.sizes.count;
    return list.numbers ? list.sizes.data : NULL;
}

/* ---- sizes as expressions of symbols ------------------------------------------------------------------------------ The form of a
 * size is searched for among dimensions and element counts of its node's operands, then among the symbols. It fits the graphs seen; for
 * another graph it may be wrong, which graph_is_case_of detects. */

enum { MOST_SYMBOLS = 16, MOST_KNOWN = 64 };

typedef struct known_size {
    tir_expr e;
    /* [seen_count] */
    int64_t *value;
} known_size;

typedef struct generalisation {
    int seen_count;
    const int64_t *const *seen;
    /* index of the next size */
    uint32_t at;
    int symbols, known_count;
    /* by symbol: index of the size that defines it; the last free_count symbols are defined by sizes that are no input's */
    uint32_t first[MOST_SYMBOLS];
    int free_count;
    /* index of the size without a form at which the attempt failed; UINT32_MAX: none */
    uint32_t formless;
    /* [seen_count] by variable of the new graph's pool: its value in that graph */
    uint64_t **variables;
    /* the symbols; then sizes of the operands of the node that is being emitted, and of the nodes whose sub-graph it is in */
    known_size known[MOST_KNOWN];
    bool failed;
} generalisation;

/* factor * a * b + offset */
typedef struct size_form {
    /* NULL: 1 */
    const known_size *a, *b;
    int64_t factor, offset;
} size_form;

static bool product_of(const size_form *form, int observation, int64_t *product) {
    return !__builtin_mul_overflow(form->a ? form->a->value[observation] : 1, form->b ? form->b->value[observation] : 1,
                                   product);
}

static bool is_form(const generalisation *z, const size_form *form, uint32_t size) {
    for (int o = 0; o < z->seen_count; o++) {
        int64_t value;
        if (!product_of(form, o, &value) || __builtin_mul_overflow(value, form->factor, &value) ||
            __builtin_add_overflow(value, form->offset, &value) || value != z->seen[o][size])
            return false;
    }
    return true;
}

static bool is_multiple(const generalisation *z, size_form *form, uint32_t size) {
    int64_t product;
    if (!product_of(form, 0, &product) || product <= 0) return false;
    form->factor = z->seen[0][size] / product;
    return is_form(z, form, size);
}

static bool is_sum(const generalisation *z, size_form *form, uint32_t size) {
    return !__builtin_sub_overflow(z->seen[0][size], form->a->value[0], &form->offset) && is_form(z, form, size);
}

/* Is the size factor * a + offset? Sets both, from graph 0 and the first graph in which `a` has another value. */
static bool is_affine(const generalisation *z, size_form *form, uint32_t size) {
    const int64_t *const *seen = z->seen, *value = form->a->value;
    int o = 1;
    while (o < z->seen_count && value[o] == value[0]) o++;
    int64_t rise, run, product;
    if (o == z->seen_count || __builtin_sub_overflow(seen[o][size], seen[0][size], &rise) ||
        __builtin_sub_overflow(value[o], value[0], &run) || (rise == INT64_MIN && run == -1))
        return false;
    form->factor = rise / run;
    return !__builtin_mul_overflow(form->factor, value[0], &product) &&
           !__builtin_sub_overflow(seen[0][size], product, &form->offset) && is_form(z, form, size);
}

/* Sets *form to the simplest form of the size, preferring the sizes that became known last; false: it has none. */
static bool find_form(const generalisation *z, uint32_t size, size_form *form) {
    *form = (size_form){NULL, NULL, 0, z->seen[0][size]};
    if (is_form(z, form, size)) return true;
    for (int kind = 0; kind < 5; kind++)
        for (int i = z->known_count; i-- > 0;) {
            const known_size *a = &z->known[i];
            *form = (size_form){a, NULL, 1, 0};
            if (kind == 0 && is_form(z, form, size)) return true;
            if (kind == 1 && is_multiple(z, form, size)) return true;
            if (kind == 2 && is_sum(z, form, size)) return true;
            for (form->b = a; kind == 3 && form->b >= z->known; form->b--)
                if (is_multiple(z, form, size)) return true;
            if (kind == 4 && is_affine(z, form, size)) return true;
        }
    return false;
}

/* An input dimension that matches no symbol so far becomes a new one. */
static void find_symbol(generalisation *z, uint32_t size) {
    bool differs = false;
    for (int o = 1; o < z->seen_count; o++) differs = differs || z->seen[o][size] != z->seen[0][size];
    for (int s = 0; s < z->symbols && differs; s++) {
        bool equal = true;
        for (int o = 0; o < z->seen_count; o++) equal = equal && z->seen[o][size] == z->seen[o][z->first[s]];
        differs = !equal;
    }
    if (!differs) return;
    z->failed = z->failed || z->symbols == MOST_SYMBOLS;
    if (!z->failed) z->first[z->symbols++] = size;
}

static void know(generalisation *z, const graph *to, tir_expr e) {
    int64_t number;
    if (z->known_count == MOST_KNOWN || tir_is_const(to->pool, e, &number)) return;
    for (int i = 0; i < z->known_count; i++)
        if (z->known[i].e == e) return;
    known_size *known = &z->known[z->known_count++];
    *known = (known_size){e, LIB_NEW_ARRAY(to->arena, int64_t, (size_t)z->seen_count)};
    for (int o = 0; o < z->seen_count; o++) {
        const tir_evaluator evaluator = {.variables = z->variables[o]};
        known->value[o] = (int64_t)tir_evaluate(to->pool, e, &evaluator);
    }
}

static void make_symbols(generalisation *z, graph *to) {
    z->variables = LIB_NEW_ARRAY(to->arena, uint64_t *, (size_t)z->seen_count);
    tir_expr symbol[MOST_SYMBOLS];
    for (int s = 0; s < z->symbols; s++) {
        symbol[s] = graph_symbol_named(to, lib_arena_format(to->arena, "n%d", s));
        to->symbols.data[s].varies = s >= z->symbols - z->free_count;
    }
    for (int o = 0; o < z->seen_count; o++) {
        z->variables[o] = LIB_NEW_ARRAY(to->arena, uint64_t, to->pool->variables.count + 1);
        for (int s = 0; s < z->symbols; s++)
            z->variables[o][tir_var_id(to->pool, symbol[s])] = (uint64_t)z->seen[o][z->first[s]];
    }
    for (int s = 0; s < z->symbols; s++) know(z, to, symbol[s]);
}

/* Adds the operand's dimensions and element count to the known sizes; true: they are symbolic. */
static bool know_operand(generalisation *z, const graph *to, graph_id operand) {
    const graph_shape *shape = graph_shape_of(to, operand);
    int64_t number;
    tir_expr elements = tir_index(to->pool, 1);
    for (int d = 0; d < shape->rank; d++) {
        elements = tir_mul(to->pool, elements, shape->dim[d]);
        know(z, to, shape->dim[d]);
    }
    know(z, to, elements);
    return !tir_is_const(to->pool, elements, &number);
}

static tir_expr size_expression(generalisation *z, tir_pool *pool) {
    size_form form;
    const uint32_t size = z->at++;
    if (z->failed || !find_form(z, size, &form)) {
        if (!z->failed) z->formless = size;
        z->failed = true;
        return tir_index(pool, z->seen[0][size]);
    }
    tir_expr e = tir_index(pool, form.factor);
    if (form.a) e = tir_mul(pool, e, form.a->e);
    if (form.b) e = tir_mul(pool, e, form.b->e);
    return tir_add(pool, e, tir_index(pool, form.offset));
}

static void generalise_node(graph_walk *walk, const graph_node *node) {
    generalisation *z = walk->user;
    const graph_id *input = graph_walk_inputs(walk, node);
    const int known = z->known_count;
    bool symbols = false;
    graph_attribute attribute[sizeof node->op->attribute / sizeof *node->op->attribute];
    for (int i = 0; i < node->inputs; i++)
        if (input[i]) symbols = know_operand(z, walk->to, input[i]) || symbols;
    for (int i = 0; node->op->attribute[i].name; i++) {
        graph_walk_attribute(walk, node, i, &attribute[i]);
        if (node->op->attribute[i].kind != GRAPH_ATTR_DIMS || !attribute[i].count) continue;
        tir_expr *dims = LIB_NEW_ARRAY(walk->to->arena, tir_expr, (size_t)attribute[i].count);
        for (int k = 0; k < attribute[i].count; k++) {
            int64_t number;
            dims[k] = size_expression(z, walk->to->pool);
            symbols = symbols || !tir_is_const(walk->to->pool, dims[k], &number);
        }
        attribute[i].dims = dims;
    }
    z->known_count = known;
    if (symbols && (node->op->algebra & GRAPH_BY_NUMBERS)) z->failed = true;
    if (z->failed) return;
    const graph_id first = graph_emit(walk->to, node->op, node->inputs, input, attribute);
    graph_id *results = LIB_NEW_ARRAY(walk->to->arena, graph_id, (size_t)node->results + 1);
    for (int i = 0; i < node->results; i++) results[i] = first + (graph_id)i;
    graph_walk_record(walk, node, results);
}

static void pass_generalise(graph_walk *walk) {
    generalisation *z = walk->user;
    if (!walk->from->parent) make_symbols(z, walk->to);
    for (uint32_t n = 0; n < walk->from->nodes.count && !z->failed; n++)
        generalise_node(walk, &walk->from->nodes.data[n]);
    walk->own_outputs = z->failed; /* there are no outputs */
}

/* Makes the size without a form a symbol; false: there are too many, or it is negative in some graph. */
static bool free_size(generalisation *z) {
    if (z->formless == UINT32_MAX || z->symbols == MOST_SYMBOLS || z->free_count == GRAPH_FREE_MAX) return false;
    for (int o = 0; o < z->seen_count; o++)
        if (z->seen[o][z->formless] < 0) return false;
    z->first[z->symbols++] = z->formless;
    z->free_count++;
    return true;
}

/* Tries, with one more size as a symbol after each failure because of a size without a form; NULL: that fails too. */
static graph *generalise(lib_arena *arena, const graph *g, generalisation *z) {
    for (;;) {
        z->at = 0, z->known_count = 0, z->failed = false, z->formless = UINT32_MAX;
        graph *general = graph_walk_run(arena, g, g->phase, NULL, pass_generalise, z);
        if (!z->failed) return general;
        if (!free_size(z)) return NULL;
    }
}

static void add_free_inputs(const generalisation *z, graph *general) {
    for (int s = z->symbols - z->free_count; s < z->symbols; s++) {
        const graph_shape shape = {
            .dtype = DLC_U8, .rank = 2, .dim = {general->symbols.data[s].var, tir_index(general->pool, 0)}};
        graph_new_input(general, NULL, &shape);
    }
}

graph_general graph_with_symbols(lib_arena *arena, const graph *g, int seen_count, const int64_t *const *seen) {
    generalisation z = {.seen_count = seen_count, .seen = seen};
    graph_general made = {.g = NULL};
    size_list list = {.arena = arena, .numbers = true};
    collect(g, &list);
    for (uint32_t i = 0; i < list.inputs.count; i++) find_symbol(&z, list.inputs.data[i]);
    if (z.failed) return made;
    graph *general = generalise(arena, g, &z);
    if (!general || !z.symbols) return made;
    const lib_hash128 is = graph_hash_but_sizes(general), wanted = graph_hash_but_sizes(g);
    if (is.low != wanted.low || is.high != wanted.high) return made;
    add_free_inputs(&z, general);
    made.g = general, made.free_count = z.free_count;
    for (int i = 0; i < z.free_count; i++) made.free[i] = z.first[z.symbols - z.free_count + i];
    return made;
}

/* ---- cases -------------------------------------------------------------------------------------------------------- */

typedef struct case_check {
    tir_evaluator evaluator;
    const graph *general, *g;
    /* nodes of the outermost general graph that are not of g */
    int more;
} case_check;

static bool has_size(const case_check *c, tir_expr general, tir_expr own) {
    int64_t size;
    return tir_is_const(c->g->pool, own, &size) &&
           (int64_t)tir_evaluate(c->general->pool, general, &c->evaluator) == size;
}

static bool has_shapes(const case_check *c, const graph *general, const graph *g) {
    if (general->values.count != g->values.count + (g->parent ? 0 : (uint32_t)c->more)) return false;
    for (graph_id v = 1; v < g->values.count; v++) {
        const graph_shape *shape = graph_shape_of(general, v), *own = graph_shape_of(g, v);
        if (shape->rank != own->rank || shape->dtype != own->dtype) return false;
        for (int d = 0; d < own->rank; d++)
            if (!has_size(c, shape->dim[d], own->dim[d])) return false;
    }
    return true;
}

static bool has_sizes(const case_check *c, const graph *general, const graph *g) {
    if (general->nodes.count != g->nodes.count + (g->parent ? 0 : (uint32_t)c->more) || !has_shapes(c, general, g))
        return false;
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &general->nodes.data[n], *own = &g->nodes.data[n];
        for (int i = 0; own->op->attribute[i].name; i++) {
            const graph_attribute *a = &node->attribute[i], *b = &own->attribute[i];
            if (own->op->attribute[i].kind == GRAPH_ATTR_SUBGRAPH &&
                !has_sizes(c, general->subgraphs.data[a->integer], g->subgraphs.data[b->integer]))
                return false;
            if (own->op->attribute[i].kind != GRAPH_ATTR_DIMS) continue;
            for (int k = 0; k < b->count; k++)
                if (!has_size(c, a->dims[k], b->dims[k])) return false;
        }
    }
    return true;
}

bool graph_is_case_of(lib_arena *arena, const graph *g, const int64_t *sizes, const graph_general *with) {
    const graph *general = with->g;
    uint64_t *values = LIB_NEW_ARRAY(arena, uint64_t, general->pool->variables.count + 1);
    const uint32_t own_inputs = general->inputs.count - (uint32_t)with->free_count;
    for (int i = 0; i < with->free_count; i++) {
        const int64_t size = sizes[with->free[i]];
        if (size < 0 || size > GRAPH_SYMBOL_MAX) return false;
        const graph_shape *shape = graph_shape_of(general, general->inputs.data[own_inputs + (uint32_t)i]);
        values[tir_var_id(general->pool, shape->dim[0])] = (uint64_t)size;
    }
    for (uint32_t i = 0; i < own_inputs; i++) {
        const graph_shape *shape = graph_shape_of(general, general->inputs.data[i]);
        const graph_shape *own = graph_shape_of(g, g->inputs.data[i]);
        for (int d = 0; d < shape->rank; d++) {
            int64_t size;
            if (tir_op_of(general->pool, shape->dim[d]) != TIR_VAR) continue;
            if (!tir_is_const(g->pool, own->dim[d], &size) || size > GRAPH_SYMBOL_MAX) return false;
            values[tir_var_id(general->pool, shape->dim[d])] = (uint64_t)size;
        }
    }
    const case_check check = {.evaluator = {.variables = values}, .general = general, .g = g, .more = with->free_count};
    return has_sizes(&check, general, g);
}
