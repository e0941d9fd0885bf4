/* Rewrite rules of the host; see rewrite.h. */
#include "graph/rewrite.h"

#include "graph/build.h"
#include "graph/internal.h"

#include <math.h>

enum {
    ROUNDS_MAX = 16,
    NESTING = 32,
    PATTERN_NODES = 256,
    STEPS_MAX = 1 << 14, /* limit for one match attempt at one node */
    GROWTH = 16, /* a graph that has grown by this factor, and by GROWTH_LEAST nodes, is assumed to grow for ever */
    GROWTH_LEAST = 1 << 14
};

typedef enum pattern_kind { PATTERN_VARIABLE, PATTERN_NUMBER, PATTERN_CALL } pattern_kind;

typedef struct attribute_pattern {
    bool given;
    /* name that matches any value; NULL: a fixed value */
    const char *variable;
    graph_attribute value;
} attribute_pattern;

typedef struct pattern {
    pattern_kind kind;
    const char *name;
    double number;
    const graph_op *op;
    int inputs;
    struct pattern **input;
    /* one per spec of the row */
    attribute_pattern *attribute;
} pattern;

struct graph_rule {
    /* replacement NULL: `replace` makes it */
    const pattern *pattern, *replacement;
    graph_replace *replace;
};

/* ---- parsing --------------------------------------------------------------------------------------------------- */

typedef struct parser {
    lib_arena *arena;
    lib_lexer lexer;
    /* an empty graph, to look up operators and parse attributes in */
    graph *g;
    int nesting, nodes;
} parser;

static bool is_number(const lib_lexer *lexer) {
    return lexer->kind == LIB_INTEGER || lexer->kind == LIB_FLOAT || lib_lexer_is(lexer, "-");
}

/* Is it a variable: a name that is not a value of the attribute's kind? */
static bool is_variable(const lib_lexer *lexer, const graph_attribute_spec *spec) {
    dlc_dtype dtype;
    if (lexer->kind != LIB_NAME) return false;
    if (spec->kind == GRAPH_ATTR_BOOL) return !lib_lexer_is(lexer, "true") && !lib_lexer_is(lexer, "false");
    if (spec->kind == GRAPH_ATTR_DTYPE) return !lib_dtype_parse(lexer->text, &dtype);
    if (spec->kind == GRAPH_ATTR_FLOAT) return !lib_lexer_is(lexer, "inf") && !lib_lexer_is(lexer, "nan");
    if (spec->kind != GRAPH_ATTR_ENUM) return true;
    size_t length = strlen(lexer->text);
    for (const char *word = spec->choices; *word; word += strcspn(word, " "), word += strspn(word, " "))
        if (strcspn(word, " ") == length && strncmp(word, lexer->text, length) == 0) return false;
    return true;
}

static void parse_attribute(parser *p, pattern *call, const char *name) {
    int at = graph_op_attribute(call->op, name);
    if (at < 0) {
        const graph_hint hint = graph_attribute_hint(call->op, name);
        lib_lexer_raise(&p->lexer, "operator %s has no attribute %s%s", call->op->name, name, hint.text);
    }
    const graph_attribute_spec *spec = &call->op->attribute[at];
    attribute_pattern *out = &call->attribute[at];
    if (out->given) lib_lexer_raise(&p->lexer, "attribute %s is given twice", name);
    out->given = true;
    if (spec->kind == GRAPH_ATTR_SUBGRAPH || spec->kind == GRAPH_ATTR_CONSTANT)
        lib_lexer_raise(&p->lexer, "attribute %s cannot stand in a rule", name);
    if (is_variable(&p->lexer, spec))
        out->variable = lib_lexer_name(&p->lexer);
    else if (spec->kind == GRAPH_ATTR_DIMS)
        lib_lexer_raise(&p->lexer, "attribute %s: expected a name for it: %s=s", name, name);
    else
        out->value = graph_attribute_parse(p->g, &p->lexer, spec);
}

static pattern *parse_pattern(parser *p);

static void check_operands(const parser *p, const pattern *call) {
    const graph_op *op = call->op;
    if (call->inputs < op->min_inputs || (op->max_inputs >= 0 && call->inputs > op->max_inputs)) {
        const char *most = op->max_inputs < 0 ? " or more" : "";
        if (op->max_inputs <= op->min_inputs)
            lib_lexer_raise(&p->lexer, "%s: %d operands, expected %d%s (%s)", call->name, call->inputs, op->min_inputs,
                            most, op->operands);
        lib_lexer_raise(&p->lexer, "%s: %d operands, expected %d to %d (%s)", call->name, call->inputs, op->min_inputs,
                        op->max_inputs, op->operands);
    }
}

static void parse_call(parser *p, pattern *call) {
    lib_lexer *lexer = &p->lexer;
    lib_vec(pattern *) inputs = {0};
    size_t specs = 0;
    call->op = graph_find_op(p->g, call->name);
    if (!call->op) {
        lib_nearest nearest = graph_nearest_op(p->g, call->name);
        lib_lexer_raise(lexer, "there is no operator %s%s", call->name, lib_nearest_hint(&nearest));
    }
    if (graph_is_source(call->op)) lib_lexer_raise(lexer, "%s cannot stand in a rule", call->name);
    while (call->op->attribute[specs].name) specs++;
    call->attribute = LIB_NEW_ARRAY(p->arena, attribute_pattern, specs);
    bool attributes_began = false;
    for (bool first = true; !lib_lexer_accept(lexer, ")"); first = false) {
        if (!first) lib_lexer_expect(lexer, ",");
        lib_lexer ahead = *lexer;
        bool named = ahead.kind == LIB_NAME;
        lib_lexer_next(&ahead);
        if (named && lib_lexer_is(&ahead, "=")) {
            const char *name = lib_lexer_name(lexer);
            lib_lexer_expect(lexer, "=");
            parse_attribute(p, call, name);
            attributes_began = true;
            continue;
        }
        if (attributes_began) lib_lexer_raise(lexer, "operands come before attributes");
        pattern *input = parse_pattern(p);
        lib_vec_push(p->arena, &inputs, input);
    }
    call->input = inputs.data;
    call->inputs = (int)inputs.count;
    check_operands(p, call);
    for (size_t i = 0; i < specs; i++)
        if (!call->op->attribute[i].initial && !call->attribute[i].given)
            lib_lexer_raise(lexer, "%s: attribute %s is required: %s=name takes any", call->name,
                            call->op->attribute[i].name, call->op->attribute[i].name);
}

static pattern *parse_pattern(parser *p) {
    pattern *out = LIB_NEW(p->arena, pattern);
    if (++p->nesting > NESTING) lib_lexer_raise(&p->lexer, "nested deeper than %d", NESTING);
    if (++p->nodes > PATTERN_NODES)
        lib_lexer_raise(&p->lexer, "more than %d names, numbers and operators", PATTERN_NODES);
    if (is_number(&p->lexer)) {
        out->kind = PATTERN_NUMBER;
        out->number = lib_lexer_number(&p->lexer);
    } else {
        out->name = lib_lexer_name(&p->lexer);
        if (lib_lexer_accept(&p->lexer, "(")) {
            out->kind = PATTERN_CALL;
            parse_call(p, out);
        }
    }
    p->nesting--;
    return out;
}

static const pattern *parse_text(lib_arena *arena, graph *g, const char *what, const char *text) {
    parser p = {.arena = arena, .g = g};
    lib_lexer_init(&p.lexer, arena, what, text, strlen(text));
    lib_lexer_next(&p.lexer);
    const pattern *out = parse_pattern(&p);
    if (p.lexer.kind != LIB_END) lib_lexer_raise(&p.lexer, "expected the end of the %s", what);
    return out;
}

/* Lists the names that a pattern binds, to check the replacement. */
static void list_names(lib_arena *arena, graph_match *m, const pattern *p) {
    bool full = m->values == GRAPH_MATCH_NAMES || m->attributes == GRAPH_MATCH_NAMES;
    if (p->kind != PATTERN_NUMBER && full)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the pattern has more than %d names", GRAPH_MATCH_NAMES);
    if (p->kind == PATTERN_VARIABLE) m->value[m->values++].name = p->name;
    for (int i = 0; i < p->inputs; i++) list_names(arena, m, p->input[i]);
    for (int i = 0; p->op && p->op->attribute[i].name; i++) {
        if (!p->attribute[i].variable) continue;
        if (m->attributes == GRAPH_MATCH_NAMES)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the pattern has more than %d names", GRAPH_MATCH_NAMES);
        m->attribute[m->attributes].name = p->attribute[i].variable;
        m->attribute[m->attributes++].spec = &p->op->attribute[i];
    }
}

static int find_attribute(const graph_match *m, const char *name) {
    for (int i = 0; i < m->attributes; i++)
        if (strcmp(m->attribute[i].name, name) == 0) return i;
    return -1;
}

static int find_value(const graph_match *m, const char *name) {
    for (int i = 0; i < m->values; i++)
        if (strcmp(m->value[i].name, name) == 0) return i;
    return -1;
}

static void check_names(lib_arena *arena, const graph_match *known, const pattern *p) {
    if (p->kind == PATTERN_VARIABLE && find_value(known, p->name) < 0)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the replacement's %s is not in the pattern", p->name);
    if (p->op && p->op->results != 1)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "%s has not just one result", p->op->name);
    for (int i = 0; i < p->inputs; i++) check_names(arena, known, p->input[i]);
    for (int i = 0; p->op && p->op->attribute[i].name; i++) {
        const char *name = p->attribute[i].variable;
        if (!name) continue;
        int at = find_attribute(known, name);
        if (at < 0) lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the replacement's %s is not in the pattern", name);
        if (known->attribute[at].spec->kind != p->op->attribute[i].kind)
            lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "%s is an attribute of another kind in the replacement",
                      name);
    }
}

void graph_rule_define(graph_definition *definition, graph_registry *registry, const char *text,
                       const char *replacement, graph_replace *replace) {
    lib_arena *arena = &definition->arena;
    graph_rule *rule = LIB_NEW(arena, graph_rule);
    graph_match *known = LIB_NEW(arena, graph_match);
    graph *scratch = graph_new(arena, NULL);
    scratch->registry = registry;
    rule->replace = replace;
    rule->pattern = parse_text(arena, scratch, "pattern", text);
    if (rule->pattern->kind != PATTERN_CALL)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "the pattern is no operator: expected name(...)");
    if (rule->pattern->op->results != 1 || (rule->pattern->op->algebra & GRAPH_IMPURE))
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "%s has effects, or not just one result: it cannot be replaced",
                  rule->pattern->op->name);
    list_names(arena, known, rule->pattern);
    if (replacement) {
        rule->replacement = parse_text(arena, scratch, "replacement", replacement);
        check_names(arena, known, rule->replacement);
    }
    definition->rule = rule;
}

/* ---- matching -------------------------------------------------------------------------------------------------- */

static bool match_attributes(graph_match *m, const pattern *p, const graph_node *node) {
    for (int i = 0; p->op->attribute[i].name; i++) {
        const attribute_pattern *wanted = &p->attribute[i];
        const graph_attribute_spec *spec = &p->op->attribute[i];
        const graph_attribute *is = &node->attribute[i];
        if (!wanted->given) { /* the default, as in the text form */
            if (is->given) return false;
        } else if (!wanted->variable) {
            if (!graph_attribute_equal(spec, &wanted->value, is)) return false;
        } else {
            int at = find_attribute(m, wanted->variable);
            if (at >= 0 && (m->attribute[at].spec->kind != spec->kind ||
                            !graph_attribute_equal(spec, m->attribute[at].attribute, is)))
                return false;
            if (at >= 0) continue;
            m->attribute[m->attributes].name = wanted->variable;
            m->attribute[m->attributes].spec = spec;
            m->attribute[m->attributes++].attribute = is;
        }
    }
    return true;
}

/* A known result of call_fits: does the value match this call of the pattern, if names may stand for anything? */
typedef struct fit {
    const graph *g;
    const pattern *pattern;
    graph_id value;
    bool fits;
} fit;

/* A list of parts of the pattern that are still to be matched, from left to right. */
typedef struct goal {
    const pattern *pattern;
    graph_id value;
    const struct goal *next;
} goal;

/* Matching tries both orders of commutative operands, which could take exponential time. So results of call_fits, which ignores names,
 * are kept for each pair of a part and a value, and the search for consistent names ends after STEPS_MAX steps without a match. */
typedef struct search {
    graph_match *match;
    lib_arena *arena;
    lib_vec(fit) fits;
    lib_map fits_by_pair;
    /* a stack: the remaining operands of the calls that enclose the current one */
    goal goals[PATTERN_NODES];
    int goal_count;
    int steps_left;
    /* total steps of all attempts */
    uint64_t steps;
} search;

static bool takes_step(search *s) {
    s->steps++;
    return --s->steps_left >= 0;
}

static bool is_call_of(const pattern *p, const graph_node *node) {
    if (node->op != p->op || node->results != 1 || node->inputs < p->inputs) return false;
    for (int i = p->inputs; i < node->inputs; i++)
        if (node->input[i]) return false;
    return true;
}

static bool may_swap(const pattern *p, const graph_node *node) {
    return (p->op->algebra & GRAPH_COMMUTES) && p->inputs == 2 && node->input[0] != node->input[1];
}

static bool fits(search *s, const pattern *p, graph_id value);

static bool operands_fit(search *s, const pattern *p, const graph_node *node, bool swapped) {
    for (int i = 0; i < p->inputs; i++)
        if (!fits(s, p->input[i], node->input[swapped ? 1 - i : i])) return false;
    return true;
}

static bool call_fits(search *s, const pattern *p, graph_id value) {
    const graph_node *node = graph_node_of(s->match->g, value);
    if (!is_call_of(p, node)) return false;
    uint64_t hash = lib_hash_mix((uint64_t)(uintptr_t)p, lib_hash_mix((uint64_t)(uintptr_t)s->match->g, value));
    for (uint32_t at = lib_map_first(&s->fits_by_pair, hash); at != LIB_MAP_END;
         at = lib_map_next(&s->fits_by_pair, hash, at)) {
        const fit *known = &s->fits.data[s->fits_by_pair.slots[at].value];
        if (known->pattern == p && known->value == value && known->g == s->match->g) return known->fits;
    }
    s->steps++;
    fit found = {s->match->g, p, value, operands_fit(s, p, node, false)};
    if (!found.fits && may_swap(p, node)) found.fits = operands_fit(s, p, node, true);
    lib_map_insert(s->arena, &s->fits_by_pair, hash, s->fits.count);
    lib_vec_push(s->arena, &s->fits, found);
    return found.fits;
}

static bool fits(search *s, const pattern *p, graph_id value) {
    double number;
    if (!value) return false;
    switch (p->kind) {
    case PATTERN_NUMBER:
        return graph_is_number(s->match->g, value, &number) && number == p->number &&
               !signbit(number) == !signbit(p->number);
    case PATTERN_CALL: return call_fits(s, p, value);
    case PATTERN_VARIABLE: break;
    }
    return true;
}

static bool bind_name(graph_match *m, const pattern *p, graph_id value) {
    int at = find_value(m, p->name);
    if (at >= 0) return m->value[at].value == value;
    m->value[m->values].name = p->name;
    m->value[m->values++].value = value;
    return true;
}

static bool match_goals(search *s, const goal *goals);

static bool match_operands(search *s, const pattern *p, const graph_node *node, bool swapped, const goal *next) {
    graph_match *m = s->match;
    const int values = m->values, attributes = m->attributes, first = s->goal_count;
    for (int i = 0; i < p->inputs; i++) {
        goal *operand = &s->goals[s->goal_count++];
        *operand = (goal){p->input[i], node->input[swapped ? 1 - i : i], i + 1 < p->inputs ? operand + 1 : next};
    }
    bool found = match_goals(s, p->inputs ? &s->goals[first] : next);
    s->goal_count = first;
    if (found) return true;
    m->values = values;
    m->attributes = attributes;
    return false;
}

/* Matches all goals and binds their names; false: they do not match (names bound so far are undone by match_operands). */
static bool match_goals(search *s, const goal *goals) {
    graph_match *m = s->match;
    for (; goals && goals->pattern->kind != PATTERN_CALL; goals = goals->next) {
        if (!takes_step(s) || !fits(s, goals->pattern, goals->value)) return false;
        if (goals->pattern->kind == PATTERN_VARIABLE && !bind_name(m, goals->pattern, goals->value)) return false;
    }
    if (!goals) return true;
    const pattern *p = goals->pattern;
    const graph_node *node;
    if (!takes_step(s) || !fits(s, p, goals->value)) return false;
    node = graph_node_of(m->g, goals->value);
    if (!match_attributes(m, p, node)) return false;
    if (match_operands(s, p, node, false, goals->next)) return true;
    return may_swap(p, node) && match_operands(s, p, node, true, goals->next);
}

static bool match_root(search *s, const pattern *p) {
    graph_match *m = s->match;
    m->values = m->attributes = 0;
    s->goal_count = 0;
    s->steps_left = STEPS_MAX;
    return match_goals(s, &(goal){p, m->root, NULL});
}

/* ---- replacing ------------------------------------------------------------------------------------------------- */

static graph_id build(const graph_match *m, const pattern *p, dlc_dtype dtype) {
    if (p->kind == PATTERN_VARIABLE) return m->value[find_value(m, p->name)].value;
    if (p->kind == PATTERN_NUMBER) return graph_scalar(m->g, dtype, p->number);
    graph_id input[GRAPH_MATCH_NAMES] = {0};
    graph_attribute attribute[sizeof p->op->attribute / sizeof *p->op->attribute] = {0};
    bool known = false; /* numbers get the element type of the first operand that is not a number */
    if (p->inputs > GRAPH_MATCH_NAMES)
        lib_raise(m->g->arena->scope, DLC_INVALID_ARGUMENT, "%s: more than %d operands", p->op->name,
                  GRAPH_MATCH_NAMES);
    for (int i = 0; i < p->inputs; i++) {
        if (p->input[i]->kind == PATTERN_NUMBER) continue;
        input[i] = build(m, p->input[i], dtype);
        if (!known) dtype = graph_shape_of(m->g, input[i])->dtype;
        known = true;
    }
    for (int i = 0; i < p->inputs; i++)
        if (p->input[i]->kind == PATTERN_NUMBER) input[i] = build(m, p->input[i], dtype);
    for (int i = 0; p->op->attribute[i].name; i++) {
        const attribute_pattern *wanted = &p->attribute[i];
        if (!wanted->given) continue;
        attribute[i] = wanted->variable ? *m->attribute[find_attribute(m, wanted->variable)].attribute : wanted->value;
        attribute[i].given = true;
    }
    return graph_emit_broadcast(m->g, p->op, p->inputs, input, attribute);
}

void graph_require_same_shape(graph *g, graph_id was, graph_id is) {
    const graph_shape a = *graph_shape_of(g, was), b = *graph_shape_of(g, is);
    bool same = a.dtype == b.dtype && a.rank == b.rank;
    for (int i = 0; i < a.rank && same; i++) same = tir_equal(g->pool, a.dim[i], b.dim[i]) != TIR_NO;
    lib_text text;
    lib_text_init(&text, g->arena);
    lib_text_add(&text, "the replacement is ");
    graph_describe_shape(&text, g, &b);
    lib_text_add(&text, ", what it replaces is ");
    graph_describe_shape(&text, g, &a);
    if (!same) lib_raise(g->arena->scope, DLC_INVALID_ARGUMENT, "%s", text.data);
    for (int i = 0; i < a.rank; i++) graph_require_equal(g, a.dim[i], b.dim[i], "%s", text.data);
}

static graph_id replace(const graph_definition *definition, const graph_match *m) {
    const graph_rule *rule = definition->rule;
    graph_id value = rule->replacement ? build(m, rule->replacement, graph_shape_of(m->g, m->root)->dtype)
                                       : rule->replace(definition, m);
    if (value && value != m->root) graph_require_same_shape(m->g, m->root, value);
    return value == m->root ? 0 : value;
}

/* Errors are reported with the rule's name. */
static graph_id replace_named(const graph_definition *definition, const graph_match *m) {
    lib_arena *arena = m->g->arena;
    lib_scope *const outer = arena->scope;
    lib_scope inner;
    volatile graph_id value = 0;
    arena->scope = &inner;
    if (LIB_ENTER(&inner)) value = replace(definition, m);
    arena->scope = outer;
    if (inner.error.status != DLC_OK)
        lib_raise(outer, inner.error.status, "rule %s: %s", definition->name, inner.error.message);
    return value;
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

typedef struct rewriting {
    const graph_definition *const *rules;
    search *search;
    uint32_t nodes_most;
    bool changed;
} rewriting;

static bool apply(graph_walk *walk, const graph_definition *rule, const graph_node *node) {
    rewriting *r = walk->user;
    graph_match *m = r->search->match;
    m->g = walk->to;
    m->root = walk->map[node->first];
    if (!match_root(r->search, rule->rule->pattern)) return false;
    graph_id value = replace_named(rule, m);
    if (!value) return false;
    if (walk->to->nodes.count > r->nodes_most)
        lib_raise(walk->to->arena->scope, DLC_INVALID_ARGUMENT,
                  "rule %s: the graph has grown to %u nodes: does the replacement contain the pattern?", rule->name,
                  walk->to->nodes.count);
    graph_walk_record(walk, node, &value);
    return true;
}

static void pass_rules(graph_walk *walk) {
    rewriting *r = walk->user;
    const bool *live = graph_live_nodes(walk->to->arena, walk->from);
    for (uint32_t i = 0; i < walk->from->nodes.count; i++) {
        const graph_node *node = &walk->from->nodes.data[i];
        if (!live[i]) continue;
        graph_walk_node(walk, i);
        bool applied = node->results != 1 || graph_is_source(node->op);
        for (const graph_definition *const *rule = r->rules; *rule && !applied; rule++) {
            applied = apply(walk, *rule, node);
            r->changed = r->changed || applied;
        }
    }
}

graph *graph_apply_rules(lib_arena *arena, const graph *g, uint64_t *steps) {
    rewriting r = {.rules = graph_registry_list(arena, g->registry, GRAPH_RULE)};
    const graph *now = g;
    if (steps) *steps = 0;
    if (!*r.rules) return (graph *)(uintptr_t)g;
    r.search = LIB_NEW(arena, search);
    r.search->arena = arena;
    r.search->match = LIB_NEW(arena, graph_match);
    r.nodes_most = g->nodes.count < (uint32_t)1 << 26 ? g->nodes.count * GROWTH + GROWTH_LEAST : UINT32_MAX;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        r.changed = false;
        const graph *next = graph_walk_run(arena, now, g->phase, NULL, pass_rules, &r);
        if (!r.changed) break;
        now = next;
    }
    if (steps) *steps = r.search->steps;
    return (graph *)(uintptr_t)now;
}
