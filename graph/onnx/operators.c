/* Which operators there are: the domains with their rows, the functions of a model, the operators that the host registered; and which nodes of a
 * model have none of them. */
#include "graph/onnx/control.h"

#include <limits.h>

static const onnx_row *const standard_rows[] = {onnx_rows_map,
                                                onnx_rows_structure,
                                                onnx_rows_reduce,
                                                onnx_rows_contract,
                                                onnx_rows_window,
                                                onnx_rows_normalize,
                                                onnx_rows_index,
                                                onnx_rows_recurrent,
                                                onnx_rows_other,
                                                onnx_rows_control,
                                                onnx_rows_attention,
                                                onnx_rows_state,
                                                onnx_rows_random,
                                                onnx_rows_sequence,
                                                onnx_rows_text,
                                                onnx_rows_ngrams,
                                                NULL};
static const onnx_row *const learn_rows[] = {onnx_rows_learn, onnx_rows_svm, onnx_rows_trees, onnx_rows_dictionary,
                                             NULL};
static const onnx_row *const preview_rows[] = {onnx_rows_preview, NULL};
static const onnx_row *const training_rows[] = {onnx_rows_training, NULL};
static const onnx_row *const microsoft_rows[] = {onnx_rows_microsoft, onnx_rows_microsoft_attention,
                                                 onnx_rows_microsoft_quantized, NULL};

static const onnx_domain domains[] = {
    {"", ONNX_OPSET_LAST, standard_rows, onnx_refused_standard},
    {"ai.onnx.ml", 5, learn_rows, NULL},
    {"ai.onnx.preview", 1, preview_rows, NULL},
    {"ai.onnx.preview.training", 1, training_rows, NULL},
    {"com.microsoft", ONNX_MICROSOFT_LAST, microsoft_rows, onnx_refused_microsoft},
};

const onnx_domain *onnx_domain_at(size_t i) {
    return i < sizeof(domains) / sizeof(domains[0]) ? &domains[i] : NULL;
}

int onnx_opset_of(const onnx_model *model, const onnx_function *function, onnx_bytes domain) {
    const onnx_opset *list = function ? function->opsets.data : model->opsets.data;
    const size_t count = function ? function->opsets.count : model->opsets.count;
    const bool standard = domain.size == 0 || onnx_is(domain, "ai.onnx");
    for (size_t i = 0; i < count; i++) {
        const bool own = standard ? list[i].domain.size == 0 || onnx_is(list[i].domain, "ai.onnx")
                                  : onnx_same(list[i].domain, domain);
        if (own) return list[i].version > 1 << 20 ? 1 << 20 : list[i].version < 0 ? 0 : (int)list[i].version;
    }
    return 0;
}

const onnx_domain *onnx_find_domain(onnx_bytes name) {
    if (onnx_is(name, "ai.onnx")) name.size = 0;
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++)
        if (onnx_is(name, domains[i].name)) return &domains[i];
    return NULL;
}

const onnx_row *onnx_find_row_named(const onnx_domain *domain, onnx_bytes name, int opset) {
    for (int t = 0; domain && domain->tables[t]; t++)
        for (const onnx_row *row = domain->tables[t]; row->name; row++)
            if (opset >= row->since && (!row->until || opset <= row->until) && onnx_is(name, row->name)) return row;
    return NULL;
}

const onnx_row *onnx_find_row(const char *domain, const char *name, int since, int until) {
    const onnx_domain *known = onnx_find_domain((onnx_bytes){domain, strlen(domain)});
    for (int t = 0; known && known->tables[t]; t++)
        for (const onnx_row *row = known->tables[t]; row->name; row++)
            if (strcmp(row->name, name) == 0 && since <= (row->until ? row->until : INT_MAX) && row->since <= until)
                return row;
    return NULL;
}

/* The operator that the host registered; NULL: none. */
static const graph_definition *find_registered(const graph_registry *registry, const onnx_node *node, int opset) {
    const size_t size = onnx_is(node->domain, "ai.onnx") ? 0 : node->domain.size;
    return graph_registry_find_onnx(registry, node->domain.data, size, node->operator.data, node->operator.size, opset);
}

/* Why the node's operator is not imported; NULL: it simply has no row. */
static const char *find_refusal(const onnx_node *node) {
    const onnx_domain *domain = onnx_find_domain(node->domain);
    for (const onnx_refusal *r = domain ? domain->refused : NULL; r && r->name; r++)
        if (onnx_is(node->operator, r->name)) return r->reason;
    return NULL;
}

onnx_meaning onnx_meaning_of(const onnx_model *model, const graph_registry *registry, const onnx_node *node,
                             int opset) {
    onnx_meaning is = {.function = onnx_find_function(model, node->operator, node->domain, node->overload)};
    if (!is.function) is.row = onnx_find_row_named(onnx_find_domain(node->domain), node->operator, opset);
    if (!is.function && !is.row) is.registered = find_registered(registry, node, opset);
    return is;
}

typedef struct missing {
    const onnx_node *node;
    size_t index;
    int opset, count;
} missing;

typedef struct check_work {
    const onnx_node *nodes;
    size_t count;
    const onnx_function *function;
} check_work;

enum { MISSING_MAX = 256 };

typedef struct check {
    lib_arena *arena;
    lib_vec(check_work) work;
    /* Operators that are nowhere, at most MISSING_MAX different ones. */
    lib_vec(missing) all;
    bool more;
    /* [functions] which are called */
    bool *called;
} check;

static void note_missing(check *c, const onnx_node *node, size_t index, int opset) {
    for (uint32_t i = 0; i < c->all.count; i++)
        if (onnx_same(c->all.data[i].node->operator, node->operator) &&
            onnx_same(c->all.data[i].node->domain, node->domain)) {
            c->all.data[i].count++;
            return;
        }
    c->more = c->all.count == MISSING_MAX;
    if (!c->more) lib_vec_push(c->arena, &c->all, ((missing){node, index, opset, 1}));
}

static void add_work(check *c, const onnx_node *nodes, size_t count, const onnx_function *function) {
    lib_vec_push(c->arena, &c->work, ((check_work){nodes, count, function}));
}

/* Functions that nothing calls may have any operators. */
static void check_called(check *c, const onnx_model *model, const onnx_function *function) {
    const size_t place = (size_t)(function - model->functions.data);
    if (!c->called[place]) add_work(c, function->nodes.data, function->nodes.count, function);
    c->called[place] = true;
}

static void list_missing(lib_text *text, const check *c) {
    lib_arena *arena = text->arena;
    for (uint32_t i = 0; i < c->all.count; i++) {
        const missing *m = &c->all.data[i];
        lib_text_format(text, "%s%s", text->length ? "; " : "", onnx_shown(arena, m->node->operator));
        if (m->node->domain.size) lib_text_format(text, " of domain %s", onnx_shown(arena, m->node->domain));
        lib_text_format(text, " (opset %d) %d %s, first at node %zu %s", m->opset, m->count,
                        m->count == 1 ? "time" : "times", m->index, onnx_shown(arena, m->node->name));
        const char *reason = find_refusal(m->node);
        if (reason) lib_text_format(text, " (%s)", reason);
    }
    if (c->more) lib_text_add(text, "; and others");
}

void onnx_check_model(lib_text *text, const onnx_model *model, const graph_registry *registry) {
    check c = {.arena = text->arena, .called = LIB_NEW_ARRAY(text->arena, bool, model->functions.count + 1)};
    add_work(&c, model->graph->nodes.data, model->graph->nodes.count, NULL);
    while (c.work.count) {
        const check_work now = c.work.data[--c.work.count];
        for (size_t n = 0; n < now.count; n++) {
            const onnx_node *node = &now.nodes[n];
            const int opset = onnx_opset_of(model, now.function, node->domain);
            const onnx_meaning is = onnx_meaning_of(model, registry, node, opset);
            if (is.function) check_called(&c, model, is.function);
            if (!is.function && !is.row && !is.registered) note_missing(&c, node, n, opset);
            for (size_t a = 0; a < node->attributes.count; a++) {
                const onnx_graph *inner = node->attributes.data[a].g;
                if (inner) add_work(&c, inner->nodes.data, inner->nodes.count, now.function);
            }
        }
    }
    list_missing(text, &c);
}
