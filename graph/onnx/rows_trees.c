/* Rows of ensembles of decision trees (ai.onnx.ml): TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor.
 *
 * The nodes of all trees are places of one table. A comparison of a feature with a threshold has four outcomes: less, equal, greater,
 * NaN. next[4 p + outcome] is the place that follows place p; a leaf is followed by itself. Thus the modes of nodes, and the branches
 * of missing values, are entries of the table, and all samples pass through all trees in as many steps as the deepest tree has levels. A
 * test for membership in a set becomes a binary search tree of the set's members. */
#include "graph/onnx/learn.h"

#include <math.h>
#include <stdlib.h>

enum { LESS, EQUAL, GREATER, UNORDERED, OUTCOMES };
enum { LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, MODES };
enum { PLACES_MAX = 1 << 26 };

/* A leaf's vote: it adds the weight to a target. */
typedef struct vote {
    int32_t place;
    int64_t target;
    double weight;
} vote;

typedef struct forest {
    /* [places]; the capacity is known when the table is built. */
    int64_t places;
    double *threshold;
    int32_t *feature;
    /* [places][OUTCOMES] */
    int32_t *next;
    /* [places] The number of the leaf; -1: the place is a comparison. */
    int32_t *leaf;
    int64_t leaves;
    /* [trees] */
    int32_t *root;
    int64_t trees;
    vote *votes;
    int64_t vote_count;
    int64_t targets;
    /* The number of comparisons on the longest path. */
    int64_t depth;
    /* For messages: tree and node of the first places, as the file numbers them; NULL: place i is node i of the file. */
    const int64_t *tree_of, *node_of;
} forest;

/* ---- building -------------------------------------------------------------------------------------------------------- */

static void make_places(onnx_import *im, forest *f, int64_t most) {
    const size_t count = (size_t)most + 1;
    if (most > PLACES_MAX) onnx_fail(im, DLC_UNSUPPORTED, "%lld nodes of trees", (long long)most);
    f->threshold = LIB_NEW_ARRAY(im->g->arena, double, count);
    f->feature = LIB_NEW_ARRAY(im->g->arena, int32_t, count);
    f->next = LIB_NEW_ARRAY(im->g->arena, int32_t, OUTCOMES * count);
    f->leaf = LIB_NEW_ARRAY(im->g->arena, int32_t, count);
    for (int64_t i = 0; i < most; i++) f->leaf[i] = -1;
}

static const char *shown_node(onnx_import *im, const forest *f, int64_t place) {
    if (!f->tree_of) return lib_arena_format(im->g->arena, "node %lld", (long long)place);
    return lib_arena_format(im->g->arena, "node %lld of tree %lld", (long long)f->node_of[place],
                            (long long)f->tree_of[place]);
}

static void set_next(forest *f, int32_t place, int32_t less, int32_t equal, int32_t greater, int32_t unordered) {
    int32_t *next = f->next + OUTCOMES * place;
    next[LESS] = less, next[EQUAL] = equal, next[GREATER] = greater, next[UNORDERED] = unordered;
}

static void set_leaf(forest *f, int32_t place) {
    f->leaf[place] = (int32_t)f->leaves++;
    set_next(f, place, place, place, place, place);
}

static void set_feature(onnx_import *im, forest *f, int32_t place, int64_t feature) {
    if (feature < 0 || feature > INT32_MAX)
        onnx_fail(im, DLC_PARSE_ERROR, "%s compares feature %lld", shown_node(im, f, place), (long long)feature);
    f->feature[place] = (int32_t)feature;
}

/* Makes the place a comparison of that mode. With a threshold that is NaN all comparisons but != are false. */
static void set_comparison(forest *f, int32_t place, int mode, double threshold, int32_t yes, int32_t no,
                           bool missing) {
    static const bool holds[MEMBER][UNORDERED] = {
        [LEQ] = {true, true, false}, [LT] = {true, false, false}, [GTE] = {false, true, true},
        [GT] = {false, false, true}, [EQ] = {false, true, false}, [NEQ] = {true, false, true},
    };
    int32_t next[UNORDERED];
    const bool never = isnan(threshold);
    for (int o = 0; o < UNORDERED; o++) next[o] = (never ? mode == NEQ : holds[mode][o]) ? yes : no;
    f->threshold[place] = never ? 0 : threshold;
    set_next(f, place, next[LESS], next[EQUAL], next[GREATER], mode == NEQ || missing ? yes : no);
}

/* Makes the place, and places that are added, a search for the feature among members[0..count), which are in ascending order. */
static void set_search(forest *f, int32_t place, const double *members, int64_t count, int32_t yes, int32_t no,
                       bool missing) {
    const int64_t middle = count / 2, above = count - middle - 1;
    const int32_t unordered = missing ? yes : no;
    int32_t less = no, greater = no;
    if (count == 0) {
        set_next(f, place, no, no, no, unordered);
        return;
    }
    f->threshold[place] = members[middle];
    if (middle > 0) less = (int32_t)f->places++;
    if (above > 0) greater = (int32_t)f->places++;
    set_next(f, place, less, yes, greater, unordered);
    if (middle > 0) f->feature[less] = f->feature[place], set_search(f, less, members, middle, yes, no, missing);
    if (above > 0)
        f->feature[greater] = f->feature[place], set_search(f, greater, members + middle + 1, above, yes, no, missing);
}

/* Checks that the trees have no cycles, and finds the depth, by a topological order (Kahn 1962). */
static void find_depth(onnx_import *im, forest *f) {
    lib_arena *arena = im->g->arena;
    int32_t *before = LIB_NEW_ARRAY(arena, int32_t, (size_t)f->places + 1),
            *ready = LIB_NEW_ARRAY(arena, int32_t, (size_t)f->places + 1);
    int64_t *level = LIB_NEW_ARRAY(arena, int64_t, (size_t)f->places + 1), count = 0;
    for (int64_t p = 0; p < f->places; p++)
        for (int o = 0; o < OUTCOMES && f->leaf[p] < 0; o++) before[f->next[OUTCOMES * p + o]]++;
    for (int64_t p = 0; p < f->places; p++)
        if (!before[p]) ready[count++] = (int32_t)p;
    for (int64_t i = 0; i < count; i++) {
        const int32_t p = ready[i];
        if (level[p] > f->depth) f->depth = level[p];
        for (int o = 0; o < OUTCOMES && f->leaf[p] < 0; o++) {
            const int32_t to = f->next[OUTCOMES * p + o];
            if (level[to] <= level[p]) level[to] = level[p] + 1;
            if (--before[to] == 0) ready[count++] = to;
        }
    }
    for (int64_t p = 0; p < f->places && count < f->places; p++)
        if (before[p]) onnx_fail(im, DLC_PARSE_ERROR, "%s is reached from a cycle of nodes", shown_node(im, f, p));
}

/* ---- evaluation ------------------------------------------------------------------------------------------------------ */

/* Raises, now or when sizes are bound, unless x has the features that are compared. */
static void require_features(onnx_import *im, const forest *f, graph_id x) {
    graph *g = im->g;
    const tir_expr features = graph_shape_of(g, x)->dim[1];
    int32_t last = -1;
    int64_t own;
    for (int64_t p = 0; p < f->places; p++)
        if (f->leaf[p] < 0 && f->feature[p] > last) last = f->feature[p];
    if (tir_is_const(g->pool, features, &own) && last >= own)
        onnx_fail(im, DLC_PARSE_ERROR, "a node compares feature %d of %lld", last, (long long)own);
    graph_require_equal(g, tir_max(g->pool, features, tir_index(g->pool, (int64_t)last + 1)), features,
                        "trees that compare features up to %d: number of features", last);
}

/* The places [samples, trees] after the places `at`, by comparing x [samples, features]. */
static graph_id follow(onnx_import *im, graph_id at, graph_id x, graph_id features, graph_id thresholds,
                       graph_id next) {
    graph *g = im->g;
    const graph_id value = graph_gather_elements(g, x, graph_gather(g, features, at, 0), 1),
                   threshold = graph_gather(g, thresholds, at, 0);
    graph_id outcome = graph_scalar_i64(g, DLC_I32, UNORDERED);
    outcome = graph_select(g, graph_gt(g, value, threshold), graph_scalar_i64(g, DLC_I32, GREATER), outcome);
    outcome = graph_select(g, graph_eq(g, value, threshold), graph_scalar_i64(g, DLC_I32, EQUAL), outcome);
    outcome = graph_select(g, graph_lt(g, value, threshold), graph_scalar_i64(g, DLC_I32, LESS), outcome);
    const graph_id entry = graph_add(g, graph_mul(g, at, graph_scalar_i64(g, DLC_I32, OUTCOMES)), outcome);
    return graph_gather(g, next, entry, 0);
}

/* The numbers of the leaves, [samples, trees], that x [samples, features] reaches. */
static graph_id reached_leaves(onnx_import *im, const forest *f, graph_id x) {
    enum { AT, X, FEATURES, THRESHOLDS, NEXT, OPERANDS };
    graph *g = im->g;
    const dlc_dtype dtype = graph_shape_of(g, x)->dtype;
    const int64_t places = f->places, entries = OUTCOMES * places;
    const tir_expr shape[] = {graph_shape_of(g, x)->dim[0], tir_index(g->pool, f->trees)};
    graph_id in[OPERANDS], inside[OPERANDS];
    int64_t body;
    in[AT] = graph_broadcast_to(g, onnx_constant_i32(im, 1, &f->trees, f->root), 2, shape);
    if (f->depth) {
        const tir_expr depth = tir_index(g->pool, f->depth);
        in[X] = x;
        in[FEATURES] = onnx_constant_i32(im, 1, &places, f->feature);
        in[THRESHOLDS] = onnx_constant(im, dtype, 1, &places, f->threshold);
        in[NEXT] = onnx_constant_i32(im, 1, &entries, f->next);
        graph *outside = onnx_begin_body(im, OPERANDS, in, 0, 0, inside, &body);
        graph_new_output(im->g, NULL,
                         follow(im, inside[AT], inside[X], inside[FEATURES], inside[THRESHOLDS], inside[NEXT]));
        im->g = outside;
        const graph_setting s[] = {graph_set_integer("body", body), graph_set_integer("carries", 1),
                                   graph_set_integer("sequences", 0), graph_set_dims("length", 1, &depth)};
        in[AT] = onnx_emit(im, "scan", OPERANDS, in, 4, s);
    }
    return graph_gather(g, onnx_constant_i32(im, 1, &places, f->leaf), in[AT], 0);
}

typedef enum aggregate { AVERAGE, SUM, MIN, MAX, AGGREGATES } aggregate;

/* Combines two weights that one leaf gives to the same target. */
static double joined(aggregate how, double a, double b) {
    return how == MIN ? (b < a ? b : a) : how == MAX ? (b > a ? b : a) : a + b;
}

/* The scores [samples, targets] for the leaves [samples, trees]. A target without votes gets 0. */
static graph_id aggregated(onnx_import *im, const forest *f, graph_id leaves, aggregate how, dlc_dtype dtype) {
    graph *g = im->g;
    const int64_t dims[] = {f->leaves, f->targets}, trees = 1;
    if (f->targets > ONNX_TABLE_MAX / f->leaves)
        onnx_fail(im, DLC_UNSUPPORTED, "%lld leaves with %lld targets", (long long)f->leaves, (long long)f->targets);
    const size_t size = (size_t)(f->leaves * f->targets);
    const double none = how == MIN ? (double)INFINITY : how == MAX ? -(double)INFINITY : 0;
    double *weight = LIB_NEW_ARRAY(g->arena, double, size + 1);
    bool *given = LIB_NEW_ARRAY(g->arena, bool, size + 1), all = true;
    for (size_t i = 0; i < size; i++) weight[i] = none;
    for (int64_t v = 0; v < f->vote_count; v++) {
        const size_t at = (size_t)(f->leaf[f->votes[v].place] * f->targets + f->votes[v].target);
        weight[at] = given[at] ? joined(how, weight[at], f->votes[v].weight) : f->votes[v].weight;
        given[at] = true;
    }
    for (size_t i = 0; i < size; i++) all &= given[i];
    const graph_id weights = graph_gather(g, onnx_constant(im, dtype, 2, dims, weight), leaves, 0);
    if (how == SUM) return graph_reduce_sum(g, weights, 1, &trees, false);
    if (how == AVERAGE)
        return graph_mul_number(g, graph_reduce_sum(g, weights, 1, &trees, false), 1 / (double)f->trees);
    const graph_id y =
        how == MIN ? graph_reduce_min(g, weights, 1, &trees, false) : graph_reduce_max(g, weights, 1, &trees, false);
    if (all) return y;
    const graph_id votes = graph_gather(g, graph_literal(g, DLC_BOOL, 2, dims, given), leaves, 0);
    return graph_select(g, graph_reduce_or(g, votes, 1, &trees, false), y, graph_scalar_like(g, y, 0));
}

/* ---- attributes of the older operators ---------------------------------------------------------------------------------- */

typedef struct integers {
    size_t count;
    const int64_t *data;
} integers;

static integers integers_of(onnx_import *im, const char *name) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_INTS);
    return a ? (integers){a->ints.count, a->ints.data} : (integers){0, NULL};
}

/* The attribute, a list of integers; raises unless its length is `count`. */
static const int64_t *node_integers(onnx_import *im, const char *name, size_t count) {
    const integers list = integers_of(im, name);
    onnx_require_count(im, list.count, count, lib_arena_format(im->g->arena, "attribute %s", name));
    return list.data;
}

/* nodes_missing_value_tracks_true; NULL: absent. */
static const int64_t *missing_tracks(onnx_import *im, size_t count) {
    const char *name = "nodes_missing_value_tracks_true";
    return integers_of(im, name).count ? node_integers(im, name, count) : NULL;
}

/* (tree, number of the node) -> place. */
typedef struct node_map {
    const int64_t *tree, *node;
    lib_map places;
} node_map;

static uint64_t hash_node(int64_t tree, int64_t node) {
    return lib_hash_name((int64_t[]){tree, node}, 2 * sizeof(int64_t));
}

/* The place of a node; -1: there is none. */
static int32_t find_node(const node_map *map, int64_t tree, int64_t node) {
    const uint64_t hash = hash_node(tree, node);
    for (uint32_t at = lib_map_first(&map->places, hash); at != LIB_MAP_END;
         at = lib_map_next(&map->places, hash, at)) {
        const uint32_t place = map->places.slots[at].value;
        if (map->tree[place] == tree && map->node[place] == node) return (int32_t)place;
    }
    return -1;
}

static node_map map_nodes(onnx_import *im, const forest *f, size_t count) {
    node_map map = {.tree = f->tree_of, .node = f->node_of};
    for (size_t i = 0; i < count; i++) {
        if (find_node(&map, map.tree[i], map.node[i]) >= 0)
            onnx_fail(im, DLC_PARSE_ERROR, "%s is given twice", shown_node(im, f, (int64_t)i));
        lib_map_insert(im->g->arena, &map.places, hash_node(map.tree[i], map.node[i]), (uint32_t)i);
    }
    return map;
}

/* Sets the roots: of each tree the node that is listed first. */
static void find_roots(onnx_import *im, forest *f, size_t count) {
    lib_map seen = {0};
    f->root = LIB_NEW_ARRAY(im->g->arena, int32_t, count + 1);
    for (size_t i = 0; i < count; i++) {
        const uint64_t hash = hash_node(f->tree_of[i], 0);
        bool known = false;
        for (uint32_t at = lib_map_first(&seen, hash); at != LIB_MAP_END; at = lib_map_next(&seen, hash, at))
            known |= f->tree_of[seen.slots[at].value] == f->tree_of[i];
        if (known) continue;
        lib_map_insert(im->g->arena, &seen, hash, (uint32_t)i);
        f->root[f->trees++] = (int32_t)i;
    }
}

/* The mode of that word; MODES for a leaf. */
static int mode_of(onnx_import *im, const forest *f, size_t node, onnx_bytes word) {
    static const char *const words[] = {[LEQ] = "BRANCH_LEQ", [LT] = "BRANCH_LT", [GTE] = "BRANCH_GTE",
                                        [GT] = "BRANCH_GT",   [EQ] = "BRANCH_EQ", [NEQ] = "BRANCH_NEQ"};
    for (int mode = 0; mode < MEMBER; mode++)
        if (onnx_is(word, words[mode])) return mode;
    if (!onnx_is(word, "LEAF"))
        onnx_fail(im, DLC_PARSE_ERROR, "%s has the unknown mode %s", shown_node(im, f, (int64_t)node),
                  onnx_shown(im->g->arena, word));
    return MODES;
}

static int32_t child_of(onnx_import *im, const forest *f, const node_map *map, size_t node, int64_t child,
                        const char *which) {
    const int32_t place = find_node(map, f->tree_of[node], child);
    if (place < 0)
        onnx_fail(im, DLC_PARSE_ERROR, "%s has the %s child %lld, which is missing", shown_node(im, f, (int64_t)node),
                  which, (long long)child);
    return place;
}

/* Reads the votes from the attributes <what>_ids, _nodeids, _treeids and _weights. Votes of nodes that are no leaves are never counted. */
static void read_votes(onnx_import *im, forest *f, const node_map *map, const char *what) {
    lib_arena *arena = im->g->arena;
    const onnx_numbers weights = onnx_numbers_or_tensor(im, lib_arena_format(arena, "%s_weights", what));
    const size_t count = weights.count;
    const int64_t *ids = node_integers(im, lib_arena_format(arena, "%s_ids", what), count),
                  *nodes = node_integers(im, lib_arena_format(arena, "%s_nodeids", what), count),
                  *trees = node_integers(im, lib_arena_format(arena, "%s_treeids", what), count);
    f->votes = LIB_NEW_ARRAY(arena, vote, count + 1);
    for (size_t i = 0; i < count; i++) {
        const int32_t place = find_node(map, trees[i], nodes[i]);
        if (place < 0)
            onnx_fail(im, DLC_PARSE_ERROR, "weight %zu is for node %lld of tree %lld, which is missing", i,
                      (long long)nodes[i], (long long)trees[i]);
        if (ids[i] < 0 || ids[i] >= f->targets)
            onnx_fail(im, DLC_PARSE_ERROR, "weight %zu is for %s %lld of %lld", i, what, (long long)ids[i],
                      (long long)f->targets);
        if (f->leaf[place] >= 0) f->votes[f->vote_count++] = (vote){place, ids[i], weights.data[i]};
    }
}

/* The trees of TreeEnsembleClassifier and TreeEnsembleRegressor. */
static forest listed_forest(onnx_import *im, int64_t targets, const char *what) {
    forest f = {.targets = targets};
    const onnx_attribute *modes = onnx_attribute_find(im, "nodes_modes", ONNX_ATTRIBUTE_STRINGS);
    const onnx_numbers values = onnx_numbers_or_tensor(im, "nodes_values");
    const size_t count = modes ? modes->strings.count : 0;
    onnx_ignore(im, "nodes_hitrates"), onnx_ignore(im, "nodes_hitrates_as_tensor");
    if (!count) onnx_fail(im, DLC_PARSE_ERROR, "attribute nodes_modes gives no nodes");
    make_places(im, &f, (int64_t)count);
    f.places = (int64_t)count;
    f.tree_of = node_integers(im, "nodes_treeids", count), f.node_of = node_integers(im, "nodes_nodeids", count);
    const int64_t *feature = node_integers(im, "nodes_featureids", count),
                  *yes = node_integers(im, "nodes_truenodeids", count),
                  *no = node_integers(im, "nodes_falsenodeids", count), *missing = missing_tracks(im, count);
    onnx_require_count(im, values.count, count, "attribute nodes_values");
    const node_map map = map_nodes(im, &f, count);
    for (size_t i = 0; i < count; i++) {
        const int mode = mode_of(im, &f, i, modes->strings.data[i]);
        const int32_t place = (int32_t)i;
        if (mode == MODES) {
            set_leaf(&f, place);
            continue;
        }
        set_feature(im, &f, place, feature[i]);
        set_comparison(&f, place, mode, values.data[i], child_of(im, &f, &map, i, yes[i], "true"),
                       child_of(im, &f, &map, i, no[i], "false"), missing && missing[i]);
    }
    find_roots(im, &f, count);
    find_depth(im, &f);
    read_votes(im, &f, &map, what);
    return f;
}

/* ---- TreeEnsembleRegressor, TreeEnsembleClassifier ------------------------------------------------------------------------ */

/* The scores plus base_values, if there are any: one for each target. */
static graph_id with_base(onnx_import *im, graph_id scores, onnx_numbers base, int64_t targets) {
    if (!base.count) return scores;
    onnx_require_count(im, base.count, (size_t)targets, "attribute base_values");
    const dlc_dtype dtype = graph_shape_of(im->g, scores)->dtype;
    return graph_add(im->g, scores, onnx_constant(im, dtype, 1, &targets, base.data));
}

static void import_regressor(onnx_import *im) {
    const int64_t targets = onnx_int(im, "n_targets", 1);
    const aggregate how = (aggregate)onnx_choice(im, "aggregate_function", "AVERAGE SUM MIN MAX", "SUM");
    const onnx_transform transform = onnx_transform_attribute(im);
    const onnx_numbers base = onnx_numbers_or_tensor(im, "base_values");
    const graph_id x = onnx_samples(im);
    if (targets < 1 || targets > ONNX_TABLE_MAX)
        onnx_fail(im, DLC_PARSE_ERROR, "n_targets is %lld", (long long)targets);
    const forest f = listed_forest(im, targets, "target");
    require_features(im, &f, x);
    graph_id y = aggregated(im, &f, reached_leaves(im, &f, x), how, graph_shape_of(im->g, x)->dtype);
    y = onnx_transformed(im, with_base(im, y, base, targets), transform);
    onnx_give(im, 0, graph_cast(im->g, y, DLC_F32));
}

/* Do all votes go to one of two classes? Then the score decides between the two. */
static bool is_binary(const forest *f) {
    bool one = f->targets <= 2 && f->vote_count > 0;
    for (int64_t v = 0; v < f->vote_count; v++) one &= f->votes[v].target == f->votes[0].target;
    return one;
}

/* Results for two classes if all votes go to one of them, whichever it is: the sum s is the score of the second class. If no weight is
 * negative, and no transform expects margins, s is a probability: the first class has 1 - s, and the second one is chosen if s is above
 * 1/2. Otherwise the first class has -s, and the limit is 0. The standard leaves this open; this is what ONNX Runtime does, for which
 * converters write. A single label is the second class's, and only its score is given. */
static void give_binary(onnx_import *im, const forest *f, graph_id sums, onnx_labels labels, onnx_numbers base,
                        onnx_transform transform) {
    graph *g = im->g;
    const int64_t voted = f->votes[0].target;
    bool probability = transform == ONNX_TRANSFORM_NONE || transform == ONNX_TRANSFORM_PROBIT;
    for (int64_t v = 0; v < f->vote_count; v++) probability &= f->votes[v].weight >= 0;
    graph_id score = graph_slice_axis(g, sums, 1, tir_index(g->pool, voted), tir_index(g->pool, voted + 1));
    if (base.count > (size_t)f->targets)
        onnx_require_count(im, base.count, (size_t)f->targets, "attribute base_values");
    if (base.count) score = graph_add_number(g, score, base.data[base.count == 1 ? 0 : voted]);
    const graph_id limit = graph_scalar_like(g, score, probability && labels.count == 2 ? 0.5 : 0);
    const onnx_labels pair = onnx_two_labels(im, &labels);
    onnx_give_label(im, &pair, graph_cast(g, graph_squeeze(g, graph_gt(g, score, limit), 1), DLC_I64));
    if (f->targets == 2) score = onnx_both_classes(im, score, probability);
    onnx_give(im, 1, graph_cast(g, onnx_transformed(im, score, transform), DLC_F32));
}

static void import_classifier(onnx_import *im) {
    const onnx_labels labels = onnx_labels_of(im, "classlabels_int64s");
    const onnx_transform transform = onnx_transform_attribute(im);
    const onnx_numbers base = onnx_numbers_or_tensor(im, "base_values");
    const graph_id x = onnx_samples(im);
    const forest f = listed_forest(im, (int64_t)labels.count, "class");
    require_features(im, &f, x);
    graph_id scores = aggregated(im, &f, reached_leaves(im, &f, x), SUM, graph_shape_of(im->g, x)->dtype);
    if (is_binary(&f)) {
        give_binary(im, &f, scores, labels, base, transform);
        return;
    }
    scores = with_base(im, scores, base, f.targets);
    onnx_give_label(im, &labels, onnx_greatest(im, scores));
    onnx_give(im, 1, graph_cast(im->g, onnx_transformed(im, scores, transform), DLC_F32));
}

/* ---- TreeEnsemble ---------------------------------------------------------------------------------------------------- */

static onnx_numbers tensor_numbers(onnx_import *im, const char *name) {
    const onnx_attribute *a = onnx_attribute_find(im, name, ONNX_ATTRIBUTE_TENSOR);
    return a ? onnx_numbers_of_tensor(im, a->t, name) : (onnx_numbers){0, NULL};
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sets out[] to the different members, sorted, of the next set in membership_values, where NaN ends a set; returns their number. *at moves past
 * the set. */
static int64_t next_set(onnx_numbers members, size_t *at, double *out) {
    int64_t count = 0, kept = 0;
    while (*at < members.count && !isnan(members.data[*at])) out[count++] = members.data[(*at)++];
    if (*at < members.count) ++*at;
    qsort(out, (size_t)count, sizeof *out, ascending);
    for (int64_t i = 0; i < count; i++)
        if (i + 1 == count || out[i] != out[i + 1]) out[kept++] = out[i];
    return kept;
}

/* The place of a child: nodes are the first places, leaves the next ones. */
static int32_t place_of_child(onnx_import *im, int64_t node, int64_t child, bool is_leaf, size_t nodes, size_t leaves) {
    const size_t most = is_leaf ? leaves : nodes;
    if (child < 0 || (uint64_t)child >= most)
        onnx_fail(im, DLC_PARSE_ERROR, "node %lld has the child %lld, which is missing: there are %zu %s",
                  (long long)node, (long long)child, most, is_leaf ? "leaves" : "nodes");
    return (int32_t)((is_leaf ? (int64_t)nodes : 0) + child);
}

static void read_leaves(onnx_import *im, forest *f, size_t nodes, onnx_numbers weights) {
    const int64_t *targets = node_integers(im, "leaf_targetids", weights.count);
    f->votes = LIB_NEW_ARRAY(im->g->arena, vote, weights.count + 1);
    for (size_t i = 0; i < weights.count; i++) {
        const int32_t place = (int32_t)(nodes + i);
        if (targets[i] < 0 || targets[i] >= f->targets)
            onnx_fail(im, DLC_PARSE_ERROR, "leaf %zu is for target %lld of %lld", i, (long long)targets[i],
                      (long long)f->targets);
        set_leaf(f, place);
        f->votes[f->vote_count++] = (vote){place, targets[i], weights.data[i]};
    }
}

static void read_nodes(onnx_import *im, forest *f, onnx_numbers modes, onnx_numbers splits, onnx_numbers members,
                       size_t leaves) {
    const size_t count = modes.count;
    const int64_t *feature = node_integers(im, "nodes_featureids", count),
                  *yes = node_integers(im, "nodes_truenodeids", count),
                  *no = node_integers(im, "nodes_falsenodeids", count),
                  *yes_leaf = node_integers(im, "nodes_trueleafs", count),
                  *no_leaf = node_integers(im, "nodes_falseleafs", count), *missing = missing_tracks(im, count);
    double *set = LIB_NEW_ARRAY(im->g->arena, double, members.count + 1);
    size_t at = 0, sets = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t node = (int64_t)i;
        const int32_t to_yes = place_of_child(im, node, yes[i], yes_leaf[i] != 0, count, leaves),
                      to_no = place_of_child(im, node, no[i], no_leaf[i] != 0, count, leaves);
        const double mode = modes.data[i];
        set_feature(im, f, (int32_t)i, feature[i]);
        if (!(mode >= 0 && mode < (double)MODES))
            onnx_fail(im, DLC_PARSE_ERROR, "node %zu has the unknown mode %g", i, mode);
        if ((int)mode != MEMBER) {
            set_comparison(f, (int32_t)i, (int)mode, splits.data[i], to_yes, to_no, missing && missing[i]);
            continue;
        }
        if (at >= members.count)
            onnx_fail(im, DLC_PARSE_ERROR, "membership_values has %zu sets; node %zu tests for another one", sets, i);
        const int64_t size = next_set(members, &at, set);
        set_search(f, (int32_t)i, set, size, to_yes, to_no, missing && missing[i]);
        sets++;
    }
    if (at < members.count)
        onnx_fail(im, DLC_PARSE_ERROR, "membership_values has more sets than the %zu nodes that test for one", sets);
}

/* The trees of TreeEnsemble. */
static forest indexed_forest(onnx_import *im, int64_t targets) {
    forest f = {.targets = targets};
    const onnx_numbers modes = tensor_numbers(im, "nodes_modes"), splits = tensor_numbers(im, "nodes_splits"),
                       weights = tensor_numbers(im, "leaf_weights"), members = tensor_numbers(im, "membership_values");
    const integers roots = integers_of(im, "tree_roots");
    const size_t nodes = modes.count;
    onnx_ignore(im, "nodes_hitrates");
    if (!nodes || !weights.count || !roots.count)
        onnx_fail(im, DLC_PARSE_ERROR, "%zu nodes, %zu leaves and %zu roots; expected some of each", nodes,
                  weights.count, roots.count);
    onnx_require_count(im, splits.count, nodes, "attribute nodes_splits");
    make_places(im, &f, (int64_t)(nodes + weights.count + members.count));
    f.places = (int64_t)(nodes + weights.count);
    read_leaves(im, &f, nodes, weights);
    read_nodes(im, &f, modes, splits, members, weights.count);
    f.root = LIB_NEW_ARRAY(im->g->arena, int32_t, roots.count + 1);
    f.trees = (int64_t)roots.count;
    for (size_t t = 0; t < roots.count; t++) {
        if (roots.data[t] < 0 || (uint64_t)roots.data[t] >= nodes)
            onnx_fail(im, DLC_PARSE_ERROR, "the root of tree %zu is node %lld of %zu", t, (long long)roots.data[t],
                      nodes);
        f.root[t] = (int32_t)roots.data[t];
    }
    find_depth(im, &f);
    return f;
}

static void import_ensemble(onnx_import *im) {
    const int64_t targets = onnx_int(im, "n_targets", 0), how = onnx_int(im, "aggregate_function", SUM),
                  transform = onnx_int(im, "post_transform", ONNX_TRANSFORM_NONE);
    const dlc_dtype dtype = onnx_operand_shape(im, 0).dtype;
    const graph_id x = onnx_samples(im);
    if (targets < 1 || targets > ONNX_TABLE_MAX)
        onnx_fail(im, DLC_PARSE_ERROR, "n_targets is %lld", (long long)targets);
    if (how < 0 || how >= AGGREGATES || transform < 0 || transform >= ONNX_TRANSFORM_COUNT)
        onnx_fail(im, DLC_PARSE_ERROR, "aggregate_function is %lld and post_transform %lld", (long long)how,
                  (long long)transform);
    const forest f = indexed_forest(im, targets);
    require_features(im, &f, x);
    const graph_id y = aggregated(im, &f, reached_leaves(im, &f, x), (aggregate)how, graph_shape_of(im->g, x)->dtype);
    onnx_give(im, 0, graph_cast(im->g, onnx_transformed(im, y, (onnx_transform)transform), dtype));
}

const onnx_row onnx_rows_trees[] = {
    {"TreeEnsemble", 5, 0, import_ensemble, NULL},
    {"TreeEnsembleClassifier", 1, 0, import_classifier, NULL},
    {"TreeEnsembleRegressor", 1, 0, import_regressor, NULL},
    {0},
};
