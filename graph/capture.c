/* Captures; see capture.h. */
#include "graph/capture.h"

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/origin.h"

/* Index of a value in the map's list; -1: none. Hashes of values are unique. */
static int64_t number_of(const lib_map *map, graph_id value) {
    uint32_t at = lib_map_first(map, value);
    return at == LIB_MAP_END ? -1 : (int64_t)map->slots[at].value;
}

graph_id graph_capture_value(graph *g, const graph *enclosing, graph_captures *captures, graph_id outer) {
    const int64_t known = number_of(&captures->by_outer, outer);
    if (known >= 0) return captures->list.data[known].inner;
    const graph_shape *shape = graph_shape_of(enclosing, outer);
    const graph_constant *constant = graph_constant_of(enclosing, outer);
    const graph_value named = enclosing->values.data[outer];
    if (constant) {
        graph_id copy =
            graph_emit_with(g, "constant", 0, NULL, 3,
                            (graph_setting[]){graph_set_integer("value", graph_add_constant_as(g, *constant)),
                                              graph_set_integer("dtype", shape->dtype),
                                              graph_set_dims("shape", shape->rank, shape->dim)});
        graph_origins_add(g, copy, named.origins);
        if (!g->values.data[copy].name) g->values.data[copy].name = named.name;
        graph_call_value(g, copy, named.called);
        return copy;
    }
    lib_vec_reserve(g->arena, &captures->list, 1);
    graph_id inner = graph_new_input(g, named.name, shape);
    graph_call_value(g, inner, named.called);
    lib_vec_push(g->arena, &captures->list, ((graph_capture){outer, inner}));
    lib_map_insert(g->arena, &captures->by_outer, outer, captures->list.count - 1);
    return inner;
}

void graph_collect_captures(lib_arena *arena, const graph_captures *captures, graph_captured *captured) {
    for (uint32_t i = 0; i < captures->list.count; i++) {
        graph_id outer = captures->list.data[i].outer;
        if (number_of(&captured->numbers, outer) >= 0) continue;
        lib_vec_push(arena, &captured->values, outer);
        lib_map_insert(arena, &captured->numbers, outer, captured->values.count - 1);
    }
}

typedef struct completion {
    const graph *enclosing;
    const graph_unfinished *sub;
    const graph_captured *captured;
} completion;

/* Emits inputs in the specified order (parameters, then all captured values), then all other nodes. */
static void pass_complete(graph_walk *walk) {
    const completion *c = walk->user;
    const graph_unfinished *sub = c->sub;
    for (uint32_t i = 0; i < sub->parameters; i++) {
        const graph_value *value = &sub->g->values.data[sub->parameter[i]];
        walk->map[sub->parameter[i]] = graph_new_input(walk->to, value->name, &value->shape);
    }
    graph_id *inner = LIB_NEW_ARRAY(walk->to->arena, graph_id, c->captured->values.count + 1);
    for (uint32_t i = 0; i < c->captured->values.count; i++) {
        const graph_value *value = &c->enclosing->values.data[c->captured->values.data[i]];
        inner[i] = graph_new_input(walk->to, value->name, &value->shape);
    }
    for (uint32_t k = 0; k < sub->captures->list.count; k++) {
        const graph_capture *own = &sub->captures->list.data[k];
        walk->map[own->inner] = inner[number_of(&c->captured->numbers, own->outer)];
    }
    walk->pass = graph_walk_all; /* for nested sub-graphs */
    for (uint32_t i = 0; i < sub->g->nodes.count; i++)
        if (!walk->map[sub->g->nodes.data[i].first] || sub->g->nodes.data[i].results == 0) graph_walk_node(walk, i);
}

int64_t graph_complete_subgraph(graph *enclosing, const graph_unfinished *sub, const graph_captured *captured) {
    int64_t number;
    completion c = {enclosing, sub, captured};
    graph_walk walk = {.from = sub->g,
                       .to = graph_new_subgraph(enclosing, &number),
                       .pass = pass_complete,
                       .user = &c,
                       .moves_inner = true};
    graph_walk_into(&walk);
    return number;
}
