/* Splits a graph with cuts into a chain of segments. A node's level is the greatest number of cuts on a path to it; a segment has
 * the nodes of one level. Constants, positions, and moves of these are recomputed in every segment that uses them. */
#include "graph/segment.h"

#include "graph/build.h"
#include "graph/internal.h"

enum { CUT_SIZE, BRANCH_SIZES = 2 };

static bool is_cut(const graph_node *node) {
    return node->op->structure == GRAPH_CUTS;
}

/* The attribute with sizes that the run counts: of a cut, or of a composite whose expansion has cuts of these sizes; NULL: there is none. */
static const graph_attribute *counted_sizes(const graph_node *node) {
    if (is_cut(node) || (node->op->algebra & GRAPH_COUNTS)) return &node->attribute[CUT_SIZE];
    return node->op->structure == GRAPH_BRANCHES ? &node->attribute[BRANCH_SIZES] : NULL;
}

static bool is_cut_of(const graph *g, const graph_node *node) {
    (void)g;
    return is_cut(node);
}

bool graph_has_cuts(const graph *g) {
    return graph_any_node(g, is_cut_of);
}

bool graph_is_counted(const graph *g, tir_expr symbol) {
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (is_cut(&g->nodes.data[n]) && g->nodes.data[n].attribute[CUT_SIZE].dims[0] == symbol) return true;
    return false;
}

bool graph_depends_on_data(const graph *g, tir_expr e) {
    for (uint32_t s = 0; s < g->symbols.count; s++)
        if (tir_uses(g->pool, e, g->symbols.data[s].var) && graph_is_counted(g, g->symbols.data[s].var)) return true;
    return false;
}

/* Calls visit for each dimension of the node's results and attributes, nodes of its sub-graphs included. */
static void visit_dims(const graph *g, const graph_node *node, void (*visit)(void *user, tir_expr dim), void *user) {
    for (int k = 0; k < node->results; k++) {
        const graph_shape *shape = graph_shape_of(g, node->first + (graph_id)k);
        for (int d = 0; d < shape->rank; d++) visit(user, shape->dim[d]);
    }
    for (int i = 0; node->op->attribute[i].name; i++) {
        const graph_attribute *attribute = &node->attribute[i];
        for (int k = 0; node->op->attribute[i].kind == GRAPH_ATTR_DIMS && k < attribute->count; k++)
            visit(user, attribute->dims[k]);
        if (node->op->attribute[i].kind != GRAPH_ATTR_SUBGRAPH) continue;
        const graph *inner = g->subgraphs.data[attribute->integer];
        for (uint32_t n = 0; n < inner->nodes.count; n++) visit_dims(inner, &inner->nodes.data[n], visit, user);
    }
}

typedef struct use_search {
    const graph *g;
    tir_expr symbol;
    bool found;
} use_search;

static void find_use(void *user, tir_expr dim) {
    use_search *search = user;
    search->found = search->found || tir_uses(search->g->pool, dim, search->symbol);
}

/* Does a live node use the symbol in its shapes or attributes? */
static bool is_spoken_of(const graph *g, const bool *live, tir_expr symbol) {
    use_search search = {g, symbol, false};
    for (uint32_t n = 0; n < g->nodes.count && !search.found; n++)
        if (live[n]) visit_dims(g, &g->nodes.data[n], find_use, &search);
    return search.found;
}

bool graph_revive_cuts(const graph *g, bool *live) {
    bool more = false;
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_attribute *sizes = live[n] ? NULL : counted_sizes(&g->nodes.data[n]);
        for (int i = 0; sizes && !live[n] && i < sizes->count; i++) live[n] = is_spoken_of(g, live, sizes->dims[i]);
        more = more || (sizes && live[n]);
    }
    return more;
}

typedef struct splitting {
    lib_arena *arena;
    const graph *g;
    /* [nodes] */
    int *level;
    /* [symbols] level of the cut that counts it; 0: determined by an input */
    int *symbol_level;
    /* [nodes] is recomputed in every segment that uses it */
    bool *again;
    /* [nodes] */
    bool *live;
    /* [values] number of the border value; -1: none */
    int *border;
    graph_segments result;
    /* level of the current segment */
    int now;
    graph_segment *segment;
    /* [nodes] the segment computes it */
    bool *needed;
    /* [values] it comes from an earlier segment or the host */
    bool *arriving;
} splitting;

/* ---- levels */

static int level_of_dim(const splitting *s, tir_expr dim) {
    int level = 0;
    for (uint32_t k = 0; k < s->g->symbols.count; k++)
        if (s->symbol_level[k] > level && tir_uses(s->g->pool, dim, s->g->symbols.data[k].var))
            level = s->symbol_level[k];
    return level;
}

typedef struct level_search {
    const splitting *s;
    int level;
} level_search;

static void find_level(void *user, tir_expr dim) {
    level_search *search = user;
    int level = level_of_dim(search->s, dim);
    if (level > search->level) search->level = level;
}

static int symbol_number(const splitting *s, tir_expr var) {
    for (uint32_t k = 0; k < s->g->symbols.count; k++)
        if (s->g->symbols.data[k].var == var) return (int)k;
    return -1;
}

/* Checks that every symbol has at most one cut. */
static void check_cuts(const splitting *s) {
    const graph *g = s->g;
    bool *taken = LIB_NEW_ARRAY(s->arena, bool, g->symbols.count + 1);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        if (!is_cut(&g->nodes.data[n])) continue;
        int symbol = symbol_number(s, g->nodes.data[n].attribute[CUT_SIZE].dims[0]);
        if (taken[symbol])
            lib_raise(s->arena->scope, DLC_INVALID_ARGUMENT,
                      "symbol %s is the size of two cuts, expected one: each counts something of its own",
                      g->symbols.data[symbol].name);
        taken[symbol] = true;
    }
}

static void check_inputs(const splitting *s) {
    const graph *g = s->g;
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        const graph_value *value = &g->values.data[g->inputs.data[i]];
        for (int d = 0; d < value->shape.rank; d++)
            if (graph_depends_on_data(g, value->shape.dim[d]))
                lib_raise(s->arena->scope, DLC_INVALID_ARGUMENT,
                          "dimension %d of input %s is counted by a cut: nobody knows it before the run", d,
                          value->name ? value->name : "?");
    }
    for (uint32_t i = 0; i < g->subgraphs.count; i++)
        if (graph_has_cuts(g->subgraphs.data[i]))
            lib_raise(s->arena->scope, DLC_UNSUPPORTED,
                      "a cut stands in a sub-graph of `if` or `while`: data-dependent sizes are for the outermost "
                      "graph");
}

static int level_of(const splitting *s, const graph_node *node) {
    level_search search = {s, 0};
    for (int i = 0; i < node->inputs; i++) {
        int below = node->input[i] ? s->level[s->g->values.data[node->input[i]].node] : 0;
        if (below > search.level) search.level = below;
    }
    if (!is_cut(node)) visit_dims(s->g, node, find_level, &search);
    return search.level + is_cut(node);
}

/* Sets level and symbol_level. A node may use a symbol before the cut that counts it, so levels are raised until none changes. An
 * impure node is at least at the level of the impure node before it. */
static void find_levels(splitting *s) {
    const graph *g = s->g;
    bool changed = true;
    while (changed) {
        int effects = 0;
        changed = false;
        for (uint32_t n = 0; n < g->nodes.count; n++) {
            const graph_node *node = &g->nodes.data[n];
            int level = level_of(s, node);
            if (node->impure) effects = level = level > effects ? level : effects;
            if (level > (int)g->symbols.count)
                lib_raise(s->arena->scope, DLC_INVALID_ARGUMENT, "a cut counts what its own size is needed for");
            changed = changed || level != s->level[n];
            s->level[n] = level;
            if (!is_cut(node)) continue;
            int symbol = symbol_number(s, node->attribute[CUT_SIZE].dims[0]);
            changed = changed || s->symbol_level[symbol] != level;
            s->symbol_level[symbol] = level;
        }
    }
}

static void find_cheap(splitting *s) {
    const graph *g = s->g;
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        s->again[n] = graph_is_repeatable(node->op);
        for (int i = 0; i < node->inputs && s->again[n]; i++)
            if (node->input[i] && !s->again[g->values.data[node->input[i]].node]) s->again[n] = false;
    }
}

/* ---- one segment */

/* Records that the current segment needs the value: its node as needed if the segment computes it, else the value as arriving. */
static void want(splitting *s, graph_id value) {
    uint32_t node = s->g->values.data[value].node;
    if (s->again[node] ||
        (s->level[node] == s->now && !graph_is_input(&s->g->nodes.data[node]) && !is_cut(&s->g->nodes.data[node])))
        s->needed[node] = true;
    else
        s->arriving[value] = true;
}

/* Is the value computed at this level and read at a later one? */
static bool is_left(const splitting *s, graph_id value) {
    return s->border[value] >= 0 && s->level[s->g->values.data[value].node] == s->now;
}

static void find_needed(splitting *s) {
    const graph *g = s->g;
    memset(s->needed, 0, g->nodes.count * sizeof *s->needed);
    memset(s->arriving, 0, g->values.count * sizeof *s->arriving);
    for (uint32_t o = 0; o < g->outputs.count; o++)
        if (s->level[g->values.data[g->outputs.data[o]].node] == s->now) want(s, g->outputs.data[o]);
    for (graph_id v = 1; v < g->values.count; v++)
        if (is_left(s, v)) want(s, v);
    for (uint32_t n = g->nodes.count; n-- > 0;) {
        const graph_node *node = &g->nodes.data[n];
        bool effect = node->impure && s->level[n] == s->now;
        bool counts = is_cut(node) && s->live[n] && s->level[g->values.data[node->input[0]].node] == s->now;
        if (counts) want(s, node->input[0]);
        s->needed[n] = s->needed[n] || effect;
        for (int i = 0; s->needed[n] && i < node->inputs; i++)
            if (node->input[i]) want(s, node->input[i]);
    }
}

typedef struct symbol_search {
    const splitting *s;
    /* [symbols] */
    bool *used;
} symbol_search;

static void find_symbols(void *user, tir_expr dim) {
    symbol_search *search = user;
    for (uint32_t k = 0; k < search->s->g->symbols.count; k++)
        if (tir_uses(search->s->g->pool, dim, search->s->g->symbols.data[k].var)) search->used[k] = true;
}

/* [symbols] The segment's shapes use the symbol, but no arriving value has it as a dimension. */
static bool *find_untold(splitting *s) {
    const graph *g = s->g;
    bool *used = LIB_NEW_ARRAY(s->arena, bool, g->symbols.count + 1);
    symbol_search search = {s, used};
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (s->needed[n]) visit_dims(g, &g->nodes.data[n], find_symbols, &search);
    for (int told = 0; told < 2; told++)
        for (graph_id v = 1; v < g->values.count; v++) {
            const graph_shape *shape = graph_shape_of(g, v);
            for (int d = 0; d < shape->rank && s->arriving[v]; d++) {
                int symbol = symbol_number(s, shape->dim[d]);
                if (!told) find_symbols(&search, shape->dim[d]);
                if (told && symbol >= 0) used[symbol] = false;
            }
        }
    return used;
}

static void add_input(graph_walk *walk, const char *name, const graph_shape *shape, const graph_segment_input *input,
                      graph_id value) {
    splitting *s = walk->user;
    graph_shape own = *shape;
    for (int d = 0; d < own.rank; d++) own.dim[d] = graph_walk_dim(walk, own.dim[d]);
    if (!name) name = lib_arena_format(walk->to->arena, "value %u", s->segment->inputs.count);
    graph_id made = graph_new_input(walk->to, name, &own);
    if (value) walk->map[value] = made;
    lib_vec_push(s->arena, &s->segment->inputs, *input);
}

/* The source of an arriving value. A result of a cut at this level comes from the cut's operand, of which it is the first part. */
static graph_segment_input source_of(const splitting *s, graph_id value) {
    const graph *g = s->g;
    const graph_value *v = &g->values.data[value];
    graph_segment_input input = {.symbol = -1};
    const graph_node *node = &g->nodes.data[v->node];
    if (is_cut(node) && s->level[v->node] == s->now) {
        input.symbol = symbol_number(s, node->attribute[CUT_SIZE].dims[0]);
        value = node->input[v->result + 1];
    }
    if (graph_is_input(graph_node_of(g, value))) {
        input.source = GRAPH_FROM_INPUT;
        input.number = (int)g->nodes.data[g->values.data[value].node].attribute[0].integer;
    } else {
        input.source = GRAPH_FROM_BORDER;
        input.number = s->border[value];
        s->result.border_end[input.number] = s->now;
    }
    return input;
}

static void add_untold(graph_walk *walk, const bool *untold) {
    splitting *s = walk->user;
    const graph *g = s->g;
    graph_segment_input input = {.source = GRAPH_FROM_SYMBOLS, .symbol = -1};
    graph_shape shape = {.dtype = DLC_BOOL, .rank = 1, .dim = {tir_index(g->pool, 0)}};
    for (uint32_t k = 0; k < g->symbols.count; k++) {
        if (!untold[k]) continue;
        input.symbols[input.count++] = (int)k;
        shape.dim[shape.rank++] = g->symbols.data[k].var;
        if (shape.rank < DLC_MAX_RANK) continue;
        add_input(walk, NULL, &shape, &input, 0);
        input.count = 0;
        shape.rank = 1;
    }
    if (input.count) add_input(walk, NULL, &shape, &input, 0);
}

static void add_output(graph_walk *walk, const char *name, graph_id value, graph_segment_target target, int number) {
    splitting *s = walk->user;
    graph_segment_output output = {target, number};
    graph_new_output(walk->to, name, value);
    lib_vec_push(s->arena, &s->segment->outputs, output);
}

static void add_outputs(graph_walk *walk) {
    splitting *s = walk->user;
    const graph *g = s->g;
    for (uint32_t o = 0; o < g->outputs.count; o++) {
        graph_id value = g->outputs.data[o];
        if (s->level[g->values.data[value].node] == s->now)
            add_output(walk, g->output_names.data[o], walk->map[value], GRAPH_TO_OUTPUT, (int)o);
    }
    for (graph_id v = 1; v < g->values.count; v++)
        if (is_left(s, v)) add_output(walk, NULL, walk->map[v], GRAPH_TO_BORDER, s->border[v]);
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        if (!is_cut(node) || !s->live[n] || s->level[g->values.data[node->input[0]].node] != s->now) continue;
        graph_id count = graph_cast(walk->to, walk->map[node->input[0]], DLC_I64);
        add_output(walk, NULL, count, GRAPH_TO_SYMBOL, symbol_number(s, node->attribute[CUT_SIZE].dims[0]));
    }
}

static void pass_segment(graph_walk *walk) {
    splitting *s = walk->user;
    const graph *g = s->g;
    for (graph_id v = 1; v < g->values.count; v++) {
        if (!s->arriving[v]) continue;
        const graph_segment_input input = source_of(s, v);
        add_input(walk, g->values.data[v].name, graph_shape_of(g, v), &input, v);
    }
    add_untold(walk, find_untold(s));
    walk->pass = graph_walk_all; /* of sub-graphs */
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (s->needed[n]) graph_walk_node(walk, n);
    walk->own_outputs = true;
    add_outputs(walk);
}

/* Keeps only constraints whose symbols the segment's inputs determine; others are checked by the segment that has them. */
static void keep_known(graph *to) {
    uint32_t kept = 0;
    for (uint32_t c = 0; c < to->constraints.count; c++) {
        const graph_constraint *constraint = &to->constraints.data[c];
        bool known = true;
        for (uint32_t k = 0; k < to->symbols.count; k++) {
            tir_expr var = to->symbols.data[k].var;
            bool told = !tir_uses(to->pool, constraint->left, var) && !tir_uses(to->pool, constraint->right, var);
            for (uint32_t i = 0; i < to->inputs.count && !told; i++) {
                const graph_shape *shape = graph_shape_of(to, to->inputs.data[i]);
                for (int d = 0; d < shape->rank; d++) told = told || shape->dim[d] == var;
            }
            known = known && told;
        }
        if (known) to->constraints.data[kept++] = *constraint;
    }
    to->constraints.count = kept;
}

/* ---- all of them */

/* Numbers the values that pass from one segment to later ones. */
static void find_borders(splitting *s, int last) {
    const graph *g = s->g;
    /* from the last segment to the first: a value that a segment reads is an output of an earlier one */
    for (s->now = last; s->now > 0; s->now--) {
        find_needed(s);
        for (graph_id v = 1; v < g->values.count; v++) {
            if (!s->arriving[v]) continue;
            const graph_node *node = &g->nodes.data[g->values.data[v].node];
            graph_id from = v;
            if (is_cut(node) && s->level[g->values.data[v].node] == s->now)
                from = node->input[g->values.data[v].result + 1];
            /* a border, whose number is assigned later */
            if (!graph_is_input(graph_node_of(g, from))) s->border[from] = 0;
        }
    }
    for (graph_id v = 1; v < g->values.count; v++)
        if (s->border[v] >= 0) s->border[v] = s->result.borders++;
    s->result.border_end = LIB_NEW_ARRAY(s->arena, int, (size_t)s->result.borders + 1);
}

graph_segments graph_split_segments(lib_arena *arena, const graph *g) {
    splitting s = {.arena = arena, .g = g};
    s.level = LIB_NEW_ARRAY(arena, int, g->nodes.count + 1);
    s.symbol_level = LIB_NEW_ARRAY(arena, int, g->symbols.count + 1);
    s.again = LIB_NEW_ARRAY(arena, bool, g->nodes.count + 1);
    s.needed = LIB_NEW_ARRAY(arena, bool, g->nodes.count + 1);
    s.arriving = LIB_NEW_ARRAY(arena, bool, g->values.count + 1);
    s.border = LIB_NEW_ARRAY(arena, int, g->values.count + 1);
    for (uint32_t v = 0; v < g->values.count; v++) s.border[v] = -1;
    s.live = graph_live_nodes(arena, g);
    check_inputs(&s);
    check_cuts(&s);
    find_levels(&s);
    find_cheap(&s);
    int last = 0;
    for (uint32_t n = 0; n < g->nodes.count; n++)
        if (s.live[n] && s.level[n] > last) last = s.level[n];
    find_borders(&s, last);
    for (s.now = 0; s.now <= last; s.now++) {
        graph_segment segment = {0};
        s.segment = &segment;
        find_needed(&s);
        segment.g = graph_walk_run(arena, g, g->phase, NULL, pass_segment, &s);
        for (uint32_t k = 0; k < segment.g->symbols.count; k++)
            if (s.symbol_level[k]) segment.g->symbols.data[k].varies = true; /* a new value in every run */
        keep_known(segment.g);
        lib_vec_push(arena, &s.result.list, segment);
    }
    return s.result;
}
