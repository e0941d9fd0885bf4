/* Names of values: lists of origins, and how they are printed. See origin.h. */
#include "graph/origin.h"

#include "graph/op.h"

/* ---- names and lists, without duplicates */

static uint32_t intern_name(graph *outer, const char *name) {
    uint64_t hash = lib_hash_string(name);
    const lib_map *map = &outer->origin_names_by_hash;
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at))
        if (strcmp(outer->origin_names.data[map->slots[at].value], name) == 0) return map->slots[at].value;
    const char *copy = lib_arena_string(outer->arena, name);
    lib_vec_reserve(outer->arena, &outer->origin_names, 1);
    lib_map_insert(outer->arena, &outer->origin_names_by_hash, hash, outer->origin_names.count);
    outer->origin_names.data[outer->origin_names.count] = copy;
    return outer->origin_names.count++;
}

static uint32_t intern_list(graph *outer, const graph_origins *list) {
    uint64_t hash = lib_hash64(list, sizeof *list, 0);
    const lib_map *map = &outer->origins_by_hash;
    for (uint32_t at = lib_map_first(map, hash); at != LIB_MAP_END; at = lib_map_next(map, hash, at))
        if (memcmp(&outer->origins.data[map->slots[at].value], list, sizeof *list) == 0) return map->slots[at].value;
    if (!outer->origins.count) lib_vec_push(outer->arena, &outer->origins, (graph_origins){0}); /* 0: none */
    lib_vec_reserve(outer->arena, &outer->origins, 1);
    lib_map_insert(outer->arena, &outer->origins_by_hash, hash, outer->origins.count);
    outer->origins.data[outer->origins.count] = *list;
    return outer->origins.count++;
}

/* Merges both lists in ascending order, truncated. */
static graph_origins merge(const graph_origins *a, const graph_origins *b) {
    graph_origins out = {.more = a->more | b->more, .sweeps = a->sweeps | b->sweeps};
    uint32_t i = 0, k = 0;
    while (i < a->count || k < b->count) {
        bool from_a = k == b->count || (i < a->count && a->name[i] <= b->name[k]);
        uint32_t next = from_a ? a->name[i] : b->name[k];
        if (out.count == GRAPH_ORIGINS_MAX) {
            out.more = 1;
            return out;
        }
        out.name[out.count++] = next;
        i += i < a->count && a->name[i] == next;
        k += k < b->count && b->name[k] == next;
    }
    return out;
}

uint32_t graph_origin_named(graph *g, const char *name) {
    graph *outer = graph_outermost(g);
    graph_origins list = {.count = 1};
    list.name[0] = intern_name(outer, name);
    return intern_list(outer, &list);
}

uint32_t graph_origin_swept(graph *g, uint32_t sweeps) {
    return intern_list(graph_outermost(g), &(graph_origins){.sweeps = sweeps});
}

/* The union of both lists, truncated to the names that were given first. */
static uint32_t join(graph *g, uint32_t a, uint32_t b) {
    graph *outer = graph_outermost(g);
    if (a == b || !b) return a;
    if (!a) return b;
    graph_origins list = merge(&outer->origins.data[a], &outer->origins.data[b]);
    return intern_list(outer, &list);
}

uint32_t graph_origins_import(graph *to, const graph *from, uint32_t list) {
    graph *outer = graph_outermost(to);
    const graph *source = graph_outermost(from);
    if (!list || outer == source) return list;
    graph_origins made = {0};
    for (uint32_t i = 0; i < source->origins.data[list].count; i++) {
        graph_origins one = {.count = 1};
        one.name[0] = intern_name(outer, source->origin_names.data[source->origins.data[list].name[i]]);
        made = merge(&made, &one);
    }
    made.more = source->origins.data[list].more;
    made.sweeps = source->origins.data[list].sweeps;
    return intern_list(outer, &made);
}

void graph_origins_add(graph *g, graph_id value, uint32_t list) {
    g->values.data[value].origins = join(g, g->values.data[value].origins, list);
}

void graph_origins_cut(graph *g, graph_id value) {
    graph *outer = graph_outermost(g);
    if (!g->values.data[value].origins) return;
    graph_origins list = outer->origins.data[g->values.data[value].origins];
    list.more = 1;
    g->values.data[value].origins = intern_list(outer, &list);
}

void graph_call_value(graph *g, graph_id value, const char *name) {
    graph *outer = graph_outermost(g);
    if (!name || g->values.data[value].called) return;
    uint32_t number = intern_name(outer, name);
    g->values.data[value].called = outer->origin_names.data[number];
}

void graph_name_value(graph *g, graph_id value, const char *name) {
    graph_origins_add(g, value, graph_origin_named(g, name));
    graph_call_value(g, value, name);
}

/* ---- text */

bool graph_is_identifier(const char *name) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    size_t length = name ? strlen(name) : 0;
    if (!length || !strchr(letters, *name) || strcmp(name, "_") == 0 || name[length - 1] == '.') return false;
    for (const char *c = name; *c; c++)
        if (!strchr(letters, *c) && !strchr("0123456789.", *c)) return false;
    return true;
}

void graph_print_name(lib_text *text, const char *name) {
    enum { SHOWN = 80 };
    size_t length = strlen(name);
    char start[SHOWN + 1];
    if (length > SHOWN) {
        size_t cut = SHOWN - 3;
        while (cut && ((unsigned char)name[cut] & 0xc0) == 0x80) cut--; /* between characters */
        memcpy(start, name, cut);
        memcpy(start + cut, "...", sizeof "...");
        lib_text_quoted(text, start);
    } else if (graph_is_identifier(name)) {
        lib_text_add(text, name);
    } else {
        lib_text_quoted(text, name);
    }
}

static void merge_node(const graph *outer, const graph *g, uint32_t node, graph_origins *list) {
    for (int r = 0; r < g->nodes.data[node].results; r++) {
        uint32_t own = g->values.data[g->nodes.data[node].first + (graph_id)r].origins;
        if (own) *list = merge(list, &outer->origins.data[own]);
    }
}

/* Is the node a move? Copies of moves are in many kernels. */
static bool is_move(const graph_node *node) {
    return node->op->class_ == GRAPH_SOURCE || node->op->structure == GRAPH_PERMUTES || graph_is_index_change(node->op);
}

const char *graph_origins_of_nodes(lib_arena *arena, const graph *g, const uint32_t *nodes, uint32_t count) {
    const graph *outer = graph_outermost(g);
    graph_origins list = {0};
    if (!outer->origins.count) return "";
    for (uint32_t i = 0; i < count; i++)
        if (!is_move(&g->nodes.data[nodes[i]])) merge_node(outer, g, nodes[i], &list);
    for (uint32_t i = 0; i < count && !list.count; i++) merge_node(outer, g, nodes[i], &list);
    if (!list.count) return "";
    lib_text text;
    lib_text_init(&text, arena);
    for (uint32_t i = 0; i < list.count; i++) {
        lib_text_add(&text, i ? ", " : " of ");
        graph_print_name(&text, outer->origin_names.data[list.name[i]]);
    }
    if (list.more) lib_text_add(&text, ", ...");
    return text.data;
}
