/* Numbers of regions (fuse.h): which constants of one element a kernel may read from memory instead of having them in its code,
 * without becoming slower or giving other bits. Layers of a network often differ only in such numbers, such as scales of
 * quantisation; jit/numbers.c gives these layers one kernel. A number stays in the code if code depends on its value: bounds of a clamp
 * prove ranges, exponents select expansions, integers may be positions, zero points or divisors, and 0 and 1 vanish. */
#include "graph/fuse.h"

#include "graph/op.h"

#include <math.h>

typedef struct number {
    graph_id constant;
    /* some reader depends on its value */
    bool refused;
} number;

/* A number, or a broadcast or reshape of one in the region. */
typedef struct repeated {
    graph_id value;
    uint32_t number;
} repeated;

typedef struct search {
    lib_arena *arena;
    const graph *g;
    lib_vec(number) numbers;
    lib_vec(repeated) values;
    /* the region only maps and reduces: its integers are neither positions nor operands of integer contractions */
    bool plain;
} search;

/* Is the constant none of the values that rules treat specially: 0, 1, -1, infinities, NaN; of integers also powers of two and their
 * negatives? Integers only in plain regions. */
static bool is_ordinary(const search *s, graph_id constant) {
    const dlc_dtype dtype = graph_shape_of(s->g, constant)->dtype;
    const void *bytes = s->g->constants.data[graph_node_of(s->g, constant)->attribute[0].integer].bytes;
    if (lib_dtype_is_float(dtype)) {
        const double value = lib_element_get_f64(dtype, bytes);
        return isfinite(value) && value != 0 && fabs(value) != 1;
    }
    if (!s->plain || dtype == DLC_BOOL) return false;
    const uint64_t value = (uint64_t)lib_element_get_i64(dtype, bytes);
    return (value & (value - 1)) != 0 && (-value & (-value - 1)) != 0;
}

/* The number that the value is or repeats; UINT32_MAX: none. */
static uint32_t number_of(search *s, graph_id value) {
    for (uint32_t i = s->values.count; i-- > 0;)
        if (s->values.data[i].value == value) return s->values.data[i].number;
    if (!graph_is_scalar_constant(s->g, value)) return UINT32_MAX;
    const number new = {.constant = value, .refused = !is_ordinary(s, value)};
    lib_vec_push(s->arena, &s->numbers, new);
    lib_vec_push(s->arena, &s->values, ((repeated){value, s->numbers.count - 1}));
    return s->numbers.count - 1;
}

/* Is it one of + - * /, of integers without /, so that no code depends on the numbers? */
static bool is_arithmetic(const graph_node *node, bool real) {
    const tir_op op = graph_map_operation(node->op);
    return op == TIR_ADD || op == TIR_SUB || op == TIR_MUL || (op == TIR_DIV && real);
}

static bool is_plain(const graph_node *node) {
    const graph_class class_ = node->op->class_;
    return class_ == GRAPH_MAP || class_ == GRAPH_REDUCE || (class_ == GRAPH_INJECTIVE && node->inputs == 1);
}

static void visit(search *s, const graph_node *node) {
    const bool real = node->results && lib_dtype_is_float(graph_shape_of(s->g, node->first)->dtype);
    const bool computes = is_arithmetic(node, real),
               moves = node->op->structure == GRAPH_REPEATS || node->op->structure == GRAPH_REGROUPS;
    for (int k = 0; k < node->inputs; k++) {
        const uint32_t at = node->input[k] ? number_of(s, node->input[k]) : UINT32_MAX;
        if (at == UINT32_MAX) continue;
        if (moves) lib_vec_push(s->arena, &s->values, ((repeated){node->first, at}));
        if (!moves && !computes) s->numbers.data[at].refused = true;
    }
}

static void refuse_outputs(search *s, const graph_region *region) {
    for (uint32_t o = 0; o < region->output_count; o++)
        for (uint32_t i = 0; i < s->values.count; i++)
            if (s->values.data[i].value == region->outputs[o]) s->numbers.data[s->values.data[i].number].refused = true;
}

uint32_t graph_region_numbers(lib_arena *arena, const graph *bound, const graph_region *region, graph_id **numbers) {
    search s = {.arena = arena, .g = bound, .plain = true};
    uint32_t count = 0;
    for (uint32_t i = 0; i < region->node_count; i++)
        s.plain = s.plain && is_plain(&bound->nodes.data[region->nodes[i]]);
    for (uint32_t i = 0; i < region->node_count; i++) visit(&s, &bound->nodes.data[region->nodes[i]]);
    refuse_outputs(&s, region);
    *numbers = LIB_NEW_ARRAY(arena, graph_id, s.numbers.count + 1);
    for (uint32_t i = 0; i < s.numbers.count; i++)
        if (!s.numbers.data[i].refused) (*numbers)[count++] = s.numbers.data[i].constant;
    return count;
}

void graph_region_read_numbers(lib_arena *arena, graph_region *region, uint32_t count, const graph_id *numbers) {
    graph_id *inputs = LIB_NEW_ARRAY(arena, graph_id, region->input_count + count + 1);
    for (uint32_t i = 0; i < region->input_count; i++) inputs[i] = region->inputs[i];
    for (uint32_t i = 0; i < count; i++) inputs[region->input_count + i] = numbers[i];
    region->inputs = inputs;
    region->input_count += count;
    region->number_count += count;
}

tir_region *graph_region_form(lib_arena *arena, const graph *bound, const graph_region *region,
                              bool (*is_constant)(void *user, graph_id value), void *user) {
    graph_region form = *region;
    graph_id *numbers;
    const uint32_t count = graph_region_numbers(arena, bound, region, &numbers);
    graph_region_read_numbers(arena, &form, count, numbers);
    return graph_region_build(arena, bound, &form, is_constant, user);
}
