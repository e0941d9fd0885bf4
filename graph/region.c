/* Builds tir regions from graph nodes. See region.h. */
#include "graph/region.h"

#include "graph/fuse.h"
#include "graph/internal.h"

#include <stdlib.h>

graph_region_builder graph_region_start(lib_arena *arena, const graph *g, const char *name) {
    graph_region_builder builder = {.g = g};
    tir_pool *pool = LIB_NEW(arena, tir_pool);
    tir_pool_init(pool, arena);
    builder.region = tir_region_new(arena, pool, name);
    builder.variables = LIB_NEW_ARRAY(arena, tir_expr, g->pool->variables.count);
    const graph *outer = graph_outermost(g);
    for (uint32_t i = 0; i < outer->symbols.count; i++) {
        const tir_variable *variable = tir_variable_of(g->pool, outer->symbols.data[i].var);
        tir_expr var = tir_var(pool, lib_arena_string(arena, variable->name), TIR_VAR_PARAM, TIR_INDEX, variable->low,
                               variable->high);
        pool->variables.data[tir_var_id(pool, var)].multiple = variable->multiple;
        builder.variables[tir_var_id(g->pool, outer->symbols.data[i].var)] = var;
        lib_vec_push(arena, &builder.region->params, var);
    }
    return builder;
}

/* A value's hash is its id, so that equal hashes mean equal values. */
uint32_t graph_region_tensor(const graph_region_builder *builder, graph_id value) {
    uint32_t at = lib_map_first(&builder->tensors, value);
    return at == LIB_MAP_END ? GRAPH_NONE : builder->tensors.slots[at].value;
}

void graph_region_set(graph_region_builder *builder, graph_id value, uint32_t tensor) {
    lib_map_insert(builder->region->arena, &builder->tensors, value, tensor);
}

static graph_shape import_shape(graph_region_builder *builder, const graph_shape *shape) {
    graph_shape out = *shape;
    for (int i = 0; i < shape->rank; i++)
        out.dim[i] = tir_import(builder->region->pool, builder->g->pool, shape->dim[i], builder->variables);
    return out;
}

/* Names of tensors must be identifiers; hosts may name values as they like. */
static const char *tensor_name(const graph_region_builder *builder, graph_id value) {
    const char *name = builder->g->values.data[value].name;
    if (!name) return "x";
    char *copy = lib_arena_string(builder->region->arena, name);
    for (char *c = copy; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        if (!letter && (c == copy || *c < '0' || *c > '9')) *c = '_';
    }
    return *copy ? copy : "x";
}

/* A value's shape as seen by kernels: unchanged; c64 as f32 with a last dimension of 2; f8e8m0 as bytes; elements of
 * less than a byte as bytes in one dimension. */
static graph_shape stored(tir_pool *pool, const graph_shape *shape) {
    graph_shape out = *shape;
    if (lib_dtype_is_packed(shape->dtype)) {
        tir_expr count = tir_index(pool, 1);
        for (int i = 0; i < shape->rank; i++) count = tir_mul(pool, count, shape->dim[i]);
        out = (graph_shape){.dtype = DLC_U8, .rank = 1};
        out.dim[0] = tir_ceil_div(pool, count, tir_index(pool, 8 / lib_dtypes[shape->dtype].bits));
    } else if (lib_dtype_is_encoded(shape->dtype)) {
        out.dtype = DLC_U8;
    } else if (lib_dtypes[shape->dtype].class_ == 'c') {
        out.dtype = DLC_F32;
        out.dim[out.rank++] = tir_index(pool, 2);
    }
    return out;
}

static uint32_t add_input(graph_region_builder *builder, graph_id value, bool constant) {
    graph_shape shape = import_shape(builder, graph_shape_of(builder->g, value));
    shape = stored(builder->region->pool, &shape);
    uint32_t tensor =
        tir_region_input(builder->region, tensor_name(builder, value), shape.dtype, shape.rank, shape.dim);
    builder->region->tensors.data[tensor].constant = constant;
    return tensor;
}

void graph_region_add_input(graph_region_builder *builder, graph_id value, bool constant) {
    graph_region_set(builder, value, add_input(builder, value, constant));
}

/* ---- scalar constants ---------------------------------------------------------------------------------------------
 * Rows read operands from tensors, while kernels should have literals: a constant first becomes a map stage of a literal, and
 * when all stages are there, loads of that stage are replaced by the literal. A number that is an input becomes such a stage, too,
 * whose value is a load of the input: so stages and schedules are the same for both. */

static void add_numbers(graph_region_builder *builder, const graph_id *constants, uint32_t count) {
    builder->numbers = constants;
    builder->number_count = count;
    builder->first_number = builder->region->tensors.count;
    for (uint32_t i = 0; i < count; i++) add_input(builder, constants[i], true);
}

static tir_expr literal_of(const graph_region_builder *builder, graph_id value, dlc_dtype dtype) {
    const graph_node *node = graph_node_of(builder->g, value);
    const graph_constant *constant = &builder->g->constants.data[node->attribute[0].integer];
    uint64_t bits = 0;
    memcpy(&bits, constant->bytes, constant->size);
    if (lib_dtypes[dtype].class_ == 'i' && lib_dtypes[dtype].bits < 64) /* travels sign-extended */
        bits = (uint64_t)lib_element_get_i64(dtype, constant->bytes);
    return tir_bits(builder->region->pool, (tir_dtype)dtype, bits);
}

static tir_expr load_number(const graph_region_builder *builder, uint32_t number) {
    tir_expr index[DLC_MAX_RANK];
    for (int i = 0; i < DLC_MAX_RANK; i++) index[i] = tir_index(builder->region->pool, 0);
    return tir_region_load(builder->region, builder->first_number + number, index);
}

/* Adds a constant of one element: as a literal, or as an input if it is one of builder->numbers. */
static void add_scalar(graph_region_builder *builder, graph_id value) {
    tir_region *region = builder->region;
    graph_shape shape = import_shape(builder, graph_shape_of(builder->g, value));
    uint32_t number = 0;
    while (number < builder->number_count && builder->numbers[number] != value) number++;
    tir_expr literal =
        number < builder->number_count ? load_number(builder, number) : literal_of(builder, value, shape.dtype);
    tir_stage *stage = tir_region_stage(region, TIR_MAP, "constant", shape.rank, NULL, shape.dim, 0, NULL, NULL);
    graph_region_set(builder, value, tir_stage_value(region, stage, literal, 0, 0));
    builder->literals = true;
}

/* A literal, or a number that is an input. */
static bool is_scalar(const graph_region_builder *builder, tir_expr e) {
    const tir_node *node = tir_get(builder->region->pool, e);
    if (node->op == TIR_CONST) return true;
    return node->op == TIR_LOAD && node->bits >= builder->first_number &&
           node->bits < builder->first_number + builder->number_count;
}

static bool is_literal(const graph_region_builder *builder, uint32_t tensor) {
    const tir_region *region = builder->region;
    int32_t producer = region->tensors.data[tensor].stage;
    if (producer < 0 || region->tensors.data[tensor].output) return false;
    const tir_stage *stage = &region->stages.data[producer];
    return stage->kind == TIR_MAP && stage->fold < 0 && stage->count == 1 && is_scalar(builder, stage->value[0]);
}

static tir_expr replace_literal(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const graph_region_builder *builder = user;
    const tir_region *region = builder->region;
    (void)e;
    const tir_node *node = tir_get(pool, rebuilt);
    if (node->op != TIR_LOAD || !is_literal(builder, (uint32_t)node->bits)) return rebuilt;
    tir_expr literal = region->stages.data[region->tensors.data[node->bits].stage].value[0];
    if (!node->guarded) return literal;
    return tir_select(pool, tir_operand(pool, rebuilt, node->count - 2), literal,
                      tir_operand(pool, rebuilt, node->count - 1));
}

static void replace_in(graph_region_builder *builder, tir_expr *e) {
    if (*e) *e = tir_rewrite(builder->region->pool, *e, replace_literal, builder);
}

void graph_region_finish(graph_region_builder *builder) {
    tir_region *region = builder->region;
    if (!builder->literals) return;
    for (uint32_t s = 0; s < region->stages.count; s++) {
        tir_stage *stage = &region->stages.data[s];
        for (int i = 0; i < stage->count; i++) {
            replace_in(builder, &stage->value[i]);
            if (stage->kind != TIR_REDUCE) replace_in(builder, &stage->initial[i]);
        }
        replace_in(builder, &stage->predicate);
        if (stage->kind == TIR_SCATTER)
            for (int i = 0; i < stage->space; i++) replace_in(builder, &stage->index[i]);
    }
    for (uint32_t s = 0; s < region->stages.count; s++) {
        tir_stage *stage = &region->stages.data[s];
        if (is_literal(builder, stage->tensor[0])) stage->removed = true;
    }
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

static graph_attribute import_attribute(graph_region_builder *builder, const graph_attribute_spec *spec,
                                        const graph_attribute *attribute) {
    graph_attribute out = *attribute;
    if (spec->kind != GRAPH_ATTR_DIMS || attribute->count == 0) return out;
    tir_expr *dims = LIB_NEW_ARRAY(builder->region->arena, tir_expr, (size_t)attribute->count);
    for (int i = 0; i < attribute->count; i++)
        dims[i] = tir_import(builder->region->pool, builder->g->pool, attribute->dims[i], builder->variables);
    out.dims = dims;
    return out;
}

void graph_region_add_node(graph_region_builder *builder, const graph_op *op, int inputs, const graph_id *input,
                           const graph_attribute *attributes, int results, const graph_shape *result,
                           uint32_t *tensor) {
    lib_arena *arena = builder->region->arena;
    graph_attribute attribute[sizeof op->attribute / sizeof *op->attribute];
    for (int i = 0; op->attribute[i].name; i++)
        attribute[i] = import_attribute(builder, &op->attribute[i], &attributes[i]);
    uint32_t *operand = LIB_NEW_ARRAY(arena, uint32_t, (size_t)inputs);
    graph_shape *operand_shape = LIB_NEW_ARRAY(arena, graph_shape, (size_t)inputs);
    graph_shape *result_shape = LIB_NEW_ARRAY(arena, graph_shape, (size_t)results);
    for (int i = 0; i < inputs; i++) {
        operand[i] = input[i] ? graph_region_tensor(builder, input[i]) : GRAPH_NONE;
        operand_shape[i] =
            input[i] ? import_shape(builder, graph_shape_of(builder->g, input[i])) : (graph_shape){.rank = -1};
    }
    for (int i = 0; i < results; i++) result_shape[i] = import_shape(builder, &result[i]);
    graph_compute compute = {.region = builder->region,
                             .pool = builder->region->pool,
                             .op = op,
                             .inputs = inputs,
                             .results = results,
                             .operand = operand,
                             .operand_shape = operand_shape,
                             .result_shape = result_shape,
                             .attribute = attribute,
                             .result = tensor,
                             .name = op->name,
                             .machine = builder->machine};
    graph_compute_row(&compute);
}

/* ---- regions of fusion ----------------------------------------------------------------------------------------- */

static bool is_constant_node(void *user, graph_id value) {
    const graph *g = user;
    return graph_is_constant(graph_node_of(g, value));
}

/* Sets the layouts of arguments chosen by the layout pass. */
static void set_layouts(const graph_region_builder *builder, const graph_region *region, const graph_id *values,
                        uint32_t count) {
    for (uint32_t i = 0; i < count && region->layouts; i++)
        if (region->layouts[values[i]])
            builder->region->tensors.data[graph_region_tensor(builder, values[i])].layout = *region->layouts[values[i]];
}

/* The search for stages that an output needs. */
typedef struct needs {
    tir_region *region;
    /* by stage */
    bool *needed;
    lib_vec(int32_t) open;
} needs;

static void need_stage(needs *n, int32_t stage) {
    if (stage < 0 || n->needed[stage]) return;
    n->needed[stage] = true;
    lib_vec_push(n->region->arena, &n->open, stage);
}

static tir_expr need_loaded(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    needs *n = user;
    const tir_node *node = tir_get(pool, e);
    if (node->op == TIR_LOAD) need_stage(n, n->region->tensors.data[node->bits].stage);
    return rebuilt;
}

static void need_operands(needs *n, const tir_stage *stage) {
    tir_pool *pool = n->region->pool;
    need_stage(n, stage->fold);
    for (int i = 0; i < stage->count; i++) {
        tir_rewrite(pool, stage->value[i], need_loaded, n);
        if (stage->initial[i]) tir_rewrite(pool, stage->initial[i], need_loaded, n);
    }
    if (stage->predicate) tir_rewrite(pool, stage->predicate, need_loaded, n);
    for (int i = 0; stage->kind == TIR_SCATTER && i < stage->space; i++)
        tir_rewrite(pool, stage->index[i], need_loaded, n);
}

/* Removes the other stages: simplification may find that an expression never takes the value of one. */
static void remove_unneeded(tir_region *region) {
    needs n = {.region = region, .needed = LIB_NEW_ARRAY(region->arena, bool, region->stages.count + 1)};
    for (uint32_t t = 0; t < region->tensors.count; t++)
        if (region->tensors.data[t].output) need_stage(&n, region->tensors.data[t].stage);
    while (n.open.count) need_operands(&n, &region->stages.data[n.open.data[--n.open.count]]);
    for (uint32_t s = 0; s < region->stages.count; s++) region->stages.data[s].removed |= !n.needed[s];
}

static void add_graph_node(graph_region_builder *builder, const graph_node *node) {
    lib_arena *arena = builder->region->arena;
    graph_shape *result = LIB_NEW_ARRAY(arena, graph_shape, (size_t)node->results);
    uint32_t *tensor = LIB_NEW_ARRAY(arena, uint32_t, (size_t)node->results);
    for (int k = 0; k < node->results; k++) result[k] = *graph_shape_of(builder->g, node->first + (graph_id)k);
    graph_region_add_node(builder, node->op, node->inputs, node->input, node->attribute, node->results, result, tensor);
    for (int k = 0; k < node->results; k++) graph_region_set(builder, node->first + (graph_id)k, tensor[k]);
}

/* ---- zeros ------------------------------------------------------------------------------------------------------
 * A value that other regions computed may be known to be 0 at some positions: attention weights of masked keys, for instance. Reductions
 * of this region need not visit these (tir/schedule.h, skip). */

/* Nodes that move and map the elements of one value, all of which are known by positions and by values of other nodes. */
typedef struct zero_search {
    const graph *g;
    lib_arena *arena;
    lib_vec(uint32_t) nodes;
    /* one of them depends on positions */
    bool positions;
} zero_search;

enum { ZERO_NODES = 32 };

static bool is_moved(const graph_node *node) {
    return node->results == 1 && (node->op->class_ == GRAPH_MAP || node->op->class_ == GRAPH_INJECTIVE ||
                                  node->op->structure == GRAPH_POSITIONS);
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Collects the nodes; false: too many. */
static bool collect_moved(zero_search *s, graph_id value) {
    const graph_node *node = graph_node_of(s->g, value);
    const uint32_t number = (uint32_t)(node - s->g->nodes.data);
    if (!is_moved(node)) return true;
    for (uint32_t i = 0; i < s->nodes.count; i++)
        if (s->nodes.data[i] == number) return true;
    if (s->nodes.count == ZERO_NODES) return false;
    lib_vec_push(s->arena, &s->nodes, number);
    s->positions |= node->op->structure == GRAPH_POSITIONS;
    for (int i = 0; i < node->inputs; i++)
        if (node->input[i] && !collect_moved(s, node->input[i])) return false;
    return true;
}

/* Tells the region of the value's zeros, if there are any. */
static void know_zeros(graph_region_builder *builder, graph_id value) {
    static const char *const names[DLC_MAX_RANK] = {"d0", "d1", "d2", "d3", "d4",  "d5",
                                                    "d6", "d7", "d8", "d9", "d10", "d11"};
    lib_arena *arena = builder->region->arena;
    const graph *g = builder->g;
    zero_search s = {.g = g, .arena = arena};
    if (!collect_moved(&s, value) || !s.positions) return;
    qsort(s.nodes.data, s.nodes.count, sizeof *s.nodes.data, by_number);
    graph_region_builder moved = graph_region_start(arena, g, "zeros");
    moved.machine = builder->machine;
    for (uint32_t i = 0; i < s.nodes.count; i++) {
        const graph_node *node = &g->nodes.data[s.nodes.data[i]];
        for (int k = 0; k < node->inputs; k++) {
            if (!node->input[k] || graph_region_tensor(&moved, node->input[k]) != GRAPH_NONE) continue;
            if (graph_is_scalar_constant(g, node->input[k]))
                add_scalar(&moved, node->input[k]);
            else
                graph_region_add_input(&moved, node->input[k], false);
        }
        add_graph_node(&moved, node);
    }
    graph_region_finish(&moved);
    const tir_region *from = moved.region;
    const int stage = from->tensors.data[graph_region_tensor(&moved, value)].stage;
    tir_region *region = builder->region;
    const uint32_t id = graph_region_tensor(builder, value);
    if (stage < 0 || from->stages.data[stage].space != region->tensors.data[id].rank) return;
    const tir_expr nonzero = tir_nonzero_condition(moved.region, stage);
    if (!nonzero) return;
    tir_expr *variables = LIB_NEW_ARRAY(arena, tir_expr, from->pool->variables.count);
    tir_region_positions(region, id, names);
    for (uint32_t i = 0; i < from->params.count; i++)
        variables[tir_var_id(from->pool, from->params.data[i])] = region->params.data[i];
    for (int a = 0; a < from->stages.data[stage].space; a++)
        variables[tir_var_id(from->pool, from->stages.data[stage].axis[a].var)] = region->tensors.data[id].position[a];
    region->tensors.data[id].nonzero = tir_import(region->pool, from->pool, nonzero, variables);
}

static bool has_contraction(const graph *g, const graph_region *region) {
    for (uint32_t i = 0; i < region->node_count; i++)
        if (g->nodes.data[region->nodes[i]].op->class_ == GRAPH_CONTRACT) return true;
    return false;
}

tir_region *graph_region_build(lib_arena *arena, const graph *bound, const graph_region *region,
                               bool (*is_constant)(void *user, graph_id value), void *user) {
    graph_region_builder builder = graph_region_start(arena, bound, region->name);
    builder.machine = region->machine;
    if (!is_constant) is_constant = is_constant_node, user = (void *)bound;
    const uint32_t first_number = region->input_count - region->number_count;
    for (uint32_t i = 0; i < first_number; i++)
        graph_region_add_input(&builder, region->inputs[i], is_constant(user, region->inputs[i]));
    if (region->number_count) add_numbers(&builder, region->inputs + first_number, region->number_count);
    for (uint32_t i = 0; i < region->node_count; i++) {
        const graph_node *node = &bound->nodes.data[region->nodes[i]];
        for (int k = 0; k < node->inputs; k++) /* constants of one element, which are not listed as inputs */
            if (node->input[k] && graph_region_tensor(&builder, node->input[k]) == GRAPH_NONE)
                add_scalar(&builder, node->input[k]);
        add_graph_node(&builder, node);
    }
    const uint32_t known = has_contraction(bound, region) ? first_number : 0;
    for (uint32_t i = 0; i < known; i++) know_zeros(&builder, region->inputs[i]);
    for (uint32_t i = 0; i < region->output_count; i++)
        tir_region_output(builder.region, graph_region_tensor(&builder, region->outputs[i]));
    graph_region_finish(&builder);
    remove_unneeded(builder.region);
    set_layouts(&builder, region, region->inputs, first_number);
    set_layouts(&builder, region, region->outputs, region->output_count);
    return builder.region;
}
