/* Nodes of ai.onnx.ml, ai.onnx.preview.training and com.microsoft, of random numbers, and Scan of opset 8, written here: results, and errors for
 * attributes that contradict each other or ask for what libdlc does not have. An error says where and what; nothing loops or crashes. */
#include "onnx/node_model.h"

/* ---- values ---------------------------------------------------------------------------------------------------------- */

enum { SAMPLES = 4, VALUES = 32 };
static const float full[2 * SAMPLES] = {0.5f, -1, 2, 3, -0.5f, 1.5f, 0, 0};
static const float holes[2 * SAMPLES] = {0.5f, -1, 2, 3, -0.5f, NAN, 0, 0};

#define LISTED_TWO                                                                                                    \
    "nodes_treeids i 0 0 0 0 0 1 1 1", "nodes_nodeids i 0 1 2 3 4 0 1 2", "nodes_featureids i 0 1 0 0 0 1 0 0",       \
        "nodes_modes s BRANCH_LEQ BRANCH_GT LEAF LEAF LEAF BRANCH_LT LEAF LEAF", "nodes_values f 0.5 -2 0 0 0 0 0 0", \
        "nodes_truenodeids i 1 2 0 0 0 1 0 0", "nodes_falsenodeids i 4 3 0 0 0 2 0 0",                                \
        "nodes_missing_value_tracks_true i 0 1 0 0 0 0 0 0"
#define SVC                                                                 \
    "vectors_per_class i 1 2 1", "support_vectors f 1 0 0 1 0.5 0.5 -1 -1", \
        "coefficients f 1 -0.5 0.25 -1 0.5 0.75 -1 0.5", "rho f 0.1 -0.2 0.3", "classlabels_ints i 7 8 9"

/* A node of x [SAMPLES, 2], and the elements of its results, one result after the other: those of ONNX Runtime 1.32, but for PROBIT,
 * which it approximates: quantiles of the normal distribution. */
typedef struct known {
    const char *operator, * outputs;
    const float *x;
    const char *attributes[16];
    double values[VALUES];
} known;

static const known knowns[] = {
    {"Scaler", "y", full, {"offset f 1 2", "scale f 0.5 3", NULL}, {-0.25, -9, 0.5, 3, -0.75, -1.5, -0.5, -6}},
    {"Scaler", "y", full, {"offset f 1", "scale f 2", NULL}, {-1, -4, 2, 4, -3, 1, -2, -2}},
    {"Normalizer", "y", full, {"norm S MAX", NULL}, {1, -2, 0.66666669, 1, -0.33333334, 1, 0, 0}},
    {"Normalizer",
     "y",
     full,
     {"norm S L1", NULL},
     {0.33333334, -0.66666669, 0.40000001, 0.60000002, -0.25, 0.75, 0, 0}},
    {"Normalizer",
     "y",
     full,
     {"norm S L2", NULL},
     {0.44721359, -0.89442718, 0.5547002, 0.83205032, -0.31622776, 0.94868326, 0, 0}},
    {"Binarizer", "y", full, {"threshold F 0.25", NULL}, {1, 0, 1, 1, 0, 1, 0, 0}},
    {"Imputer",
     "y",
     holes,
     {"imputed_value_floats f 5 6", "replaced_value_float F nan", NULL},
     {0.5, -1, 2, 3, -0.5, 6, 0, 0}},
    {"Imputer",
     "y",
     full,
     {"imputed_value_floats f 9", "replaced_value_float F 0", NULL},
     {0.5, -1, 2, 3, -0.5, 1.5, 9, 9}},
    {"OneHotEncoder", "y", full, {"cats_int64s i 2 0 3", NULL}, {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1,
                                                                 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0}},
    {"LabelEncoder",
     "y",
     full,
     {"keys_floats f 3 -1 0.5 7", "values_floats f 1 2 3 4", "default_float F 9", NULL},
     {3, 2, 9, 1, 9, 9, 9, 9}},
    {"LinearRegressor",
     "y",
     full,
     {"targets I 2", "coefficients f 1 2 3 4", "intercepts f 0.5 -0.5", NULL},
     {-1, -3, 8.5, 17.5, 3, 4, 0.5, -0.5}},
    {"LinearRegressor",
     "y",
     full,
     {"targets I 2", "coefficients f 0.05 0.02 0.1 0.05", "intercepts f 0.5 0.25", "post_transform S PROBIT", NULL},
     {0.012533472, -0.67448975, 0.41246313, 0.25334712, 0.012533467, -0.59776012, 0, -0.67448975}},
    {"LinearRegressor",
     "y",
     full,
     {"targets I 2", "coefficients f 0.2 0.1 0.1 0.05", "post_transform S SOFTMAX_ZERO", "intercepts f 0.5 0.25", NULL},
     {0.56217653, 0.4378235, 0.64565629, 0.35434368, 0.56831998, 0.43168002, 0.56217653, 0.4378235}},
    {"LinearClassifier",
     "label scores",
     full,
     {"coefficients f 1 -1 0.5 2 -1 1", "intercepts f 0.5 -0.5 0.25", "classlabels_ints i 3 4 5",
      "post_transform S SOFTMAX", NULL},
     {3, 4, 4, 3, 0.94963294, 0.013545786, 0.036821265, 0.0009062998, 0.99387842, 0.0052153952, 0.01162221, 0.49418893,
      0.49418893, 0.4658356, 0.17137134, 0.36279312}},
    {"LinearClassifier",
     "label scores",
     full,
     {"coefficients f 1 -1 0.5 2", "intercepts f 0.5 -0.5", "classlabels_ints i 3 4", "post_transform S LOGISTIC",
      NULL},
     {3, 4, 4, 3, 0.88079709, 0.095349431, 0.37754071, 0.9984988, 0.18242556, 0.90465057, 0.62245929, 0.37754071}},
    {"SVMRegressor",
     "y",
     full,
     {"n_supports I 2", "support_vectors f 1 0 -1 2", "coefficients f 0.5 -1.5", "rho f 0.25", "kernel_type S LINEAR",
      "kernel_params f 0.5 0.25 2", NULL},
     {4.25, -4.75, -5.25, 0.25}},
    {"SVMRegressor",
     "y",
     full,
     {"n_supports I 2", "support_vectors f 1 0 -1 2", "coefficients f 0.5 -1.5", "rho f 0.25", "kernel_type S POLY",
      "kernel_params f 0.5 0.25 2", NULL},
     {-1.125, -6.5625, -5.75, 0.1875}},
    {"SVMRegressor",
     "y",
     full,
     {"n_supports I 2", "support_vectors f 1 0 -1 2", "coefficients f 0.5 -1.5", "rho f 0.25", "kernel_type S RBF",
      "kernel_params f 0.5 0.25 2", NULL},
     {0.51222086, 0.24326205, -0.86550152, 0.43013784}},
    {"SVMRegressor",
     "y",
     full,
     {"n_supports I 2", "support_vectors f 1 0 -1 2", "coefficients f 0.5 -1.5", "rho f 0.25", "kernel_type S SIGMOID",
      "kernel_params f 0.5 0.25 2", NULL},
     {1.6234498, -0.79289746, -1.1960413, 0.0050813407}},
    {"SVMRegressor",
     "y",
     full,
     {"coefficients f 0.5 -1.5", "rho f 0.25", "one_class I 1", "kernel_type S LINEAR", "kernel_params f 0 0 0", NULL},
     {1, -1, -1, 1}},
    {"SVMClassifier",
     "label scores",
     full,
     {SVC, "kernel_type S RBF", "kernel_params f 0.5 0 0", NULL},
     {7, 7, 8, 7, 0.65670806, -0.25702173, 0.2272485, 0.10114618, -0.19663475, 0.29947436, -0.092031308, -0.1860746,
      0.53560829, 0.59796554, -0.26461411, 0.16003695}},
    {"SVMClassifier",
     "label scores",
     full,
     {SVC, "kernel_type S RBF", "kernel_params f 0.5 0 0", "prob_a f -1 -2 -1.5", "prob_b f 0.1 0.2 -0.1", NULL},
     {7, 7, 8, 7, 0.31033137, 0.32915434, 0.36051437, 0.2792587, 0.40196577, 0.31877545, 0.26732734, 0.46564645,
      0.26702628, 0.30035219, 0.32679588, 0.37285197}},
    {"SVMClassifier",
     "label scores",
     full,
     {"coefficients f 1 -1 0.5 2 -1 1", "rho f 0.5", "classlabels_ints i 3 4 5", "kernel_type S LINEAR",
      "kernel_params f 0 0 0", NULL},
     {3, 4, 4, 3, 2, -1.25, -1, -0.5, 7.5, 1.5, -1.5, 3.25, 2.5, 0.5, 0.5, 0.5}},
    {"TreeEnsembleRegressor",
     "y",
     holes,
     {LISTED_TWO, "target_treeids i 0 0 0 1 1", "target_nodeids i 2 3 4 1 2", "target_ids i 0 0 0 0 0",
      "target_weights f 1 2 4 -1 0.5", "n_targets I 1", "aggregate_function S SUM", "base_values f 0.25", NULL},
     {0.25, 4.75, 1.75, 1.75}},
    {"TreeEnsembleRegressor",
     "y",
     holes,
     {LISTED_TWO, "target_treeids i 0 0 0 1 1", "target_nodeids i 2 3 4 1 2", "target_ids i 0 0 0 0 0",
      "target_weights f 1 2 4 -1 0.5", "n_targets I 1", "aggregate_function S AVERAGE", "base_values f 0.25", NULL},
     {0.25, 2.5, 1, 1}},
    {"TreeEnsembleRegressor",
     "y",
     holes,
     {LISTED_TWO, "target_treeids i 0 0 0 1 1", "target_nodeids i 2 3 4 1 2", "target_ids i 0 0 0 0 0",
      "target_weights f 1 2 4 -1 0.5", "n_targets I 1", "aggregate_function S MIN", "base_values f 0.25", NULL},
     {-0.75, 0.75, 0.75, 0.75}},
    {"TreeEnsembleRegressor",
     "y",
     holes,
     {LISTED_TWO, "target_treeids i 0 0 0 1 1", "target_nodeids i 2 3 4 1 2", "target_ids i 0 0 0 0 0",
      "target_weights f 1 2 4 -1 0.5", "n_targets I 1", "aggregate_function S MAX", "base_values f 0.25", NULL},
     {1.25, 4.25, 1.25, 1.25}},
    {"TreeEnsembleClassifier",
     "label scores",
     holes,
     {LISTED_TWO, "class_treeids i 0 0 0 1 1", "class_nodeids i 2 3 4 1 2", "class_ids i 0 1 2 2 1",
      "class_weights f 1 2 4 -1 0.5", "classlabels_int64s i 5 6 7", NULL},
     {5, 7, 5, 5, 1, 0, -1, 0, 0.5, 4, 1, 0.5, 0, 1, 0.5, 0}},
    {"TreeEnsembleClassifier",
     "label scores",
     holes,
     {LISTED_TWO, "class_treeids i 0 0 0 1 1", "class_nodeids i 2 3 4 1 2", "class_ids i 0 0 0 0 0",
      "class_weights f 1 2 4 -1 0.5", "classlabels_int64s i 5 6", "post_transform S LOGISTIC", "base_values f -1.5",
      NULL},
     {5, 6, 5, 5, 0.81757444, 0.18242556, 0.047425866, 0.95257413, 0.5, 0.5, 0.5, 0.5}},
    {"TreeEnsembleClassifier",
     "label scores",
     holes,
     {LISTED_TWO, "class_treeids i 0 0 0 1 1", "class_nodeids i 2 3 4 1 2", "class_ids i 0 0 0 0 0",
      "class_weights f 0.1 0.2 0.4 0.3 0.5", "classlabels_int64s i 5 6", NULL},
     {5, 6, 6, 6, 0.60000002, 0.40000001, 0.10000002, 0.89999998, 0.39999998, 0.60000002, 0.39999998, 0.60000002}},
    {"TreeEnsembleClassifier",
     "label scores",
     holes,
     {LISTED_TWO, "class_treeids i 0 0 0 1 1", "class_nodeids i 2 3 4 1 2", "class_ids i 0 0 0 0 0",
      "class_weights f 0.1 0.2 0.4 -0.3 0.5", "classlabels_int64s i 5 6", NULL},
     {5, 6, 6, 6, 0.20000002, -0.20000002, -0.89999998, 0.89999998, -0.60000002, 0.60000002, -0.60000002, 0.60000002}},
};

/* Compares elements of results, of f32 or i64, with `expected`. */
static void compare(const known *k, dlc_output_slot *slots, int count) {
    const double *expected = k->values;
    for (int o = 0; o < count; o++) {
        const DLTensor *t = &slots[o].managed->dl_tensor;
        int64_t elements = 1;
        for (int d = 0; d < t->ndim; d++) elements *= t->shape[d];
        for (int64_t i = 0; i < elements; i++, expected++) {
            const double got =
                t->dtype.code == kDLInt ? (double)((const int64_t *)t->data)[i] : (double)((const float *)t->data)[i];
            if (!(fabs(got - *expected) <= 2e-6 * (1 + fabs(*expected))))
                fail_msg("%s, %s: element %lld of result %d is %.9g, expected %.9g", k->operator, k->attributes[0],
                         (long long)i, o, got, *expected);
        }
        slots[o].managed->deleter(slots[o].managed);
    }
}

static void test_values(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof knowns / sizeof knowns[0]; c++) {
        const known *k = &knowns[c];
        const node n = {"ai.onnx.ml", k->operator, "x", k->outputs, k->outputs, k->attributes};
        float x[2 * SAMPLES];
        dlc_graph *g;
        tensor tx;
        dlc_output_slot slots[2] = {{0}};
        memcpy(x, k->x, sizeof x);
        OK(context, import(&n, NULL, &g));
        dlc_program *program = compile(context, g);
        const int count = dlc_program_output_count(program);
        OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, SAMPLES, 2)}, 1, slots, count));
        compare(k, slots, count);
        dlc_program_destroy(program);
    }
}

/* ---- Scan of opset 8 --------------------------------------------------------------------------------------------------- */

/* sum, sums = Scan(lengths, start, x), the sums of each sample's elements from the last one that counts to the first. */
static message scan_model(void) {
    message m = {0}, g = {0}, made = {0}, body = {0}, a = {0}, add = {0}, opset = {0};
    add_text(&add, 1, "s"), add_text(&add, 1, "e"), add_text(&add, 2, "t"), add_text(&add, 4, "Add");
    add_message(&body, 1, add), add_message(&body, 1, node_of("Identity", "t", "u"));
    add_text(&body, 2, "body");
    add_message(&body, 11, port_of("s", 1, "")), add_message(&body, 11, port_of("e", 1, ""));
    add_message(&body, 12, port_of("t", 1, "")), add_message(&body, 12, port_of("u", 1, ""));
    add_words(&made, 1, "lengths start x"), add_words(&made, 2, "sum sums");
    add_text(&made, 4, "Scan");
    add_text(&a, 1, "body"), add_message(&a, 6, body), add_int(&a, 20, 5);
    add_message(&made, 5, a);
    add_message(&made, 5, attribute_of("num_scan_inputs I 1")), add_message(&made, 5, attribute_of("directions i 1"));
    add_message(&g, 1, made);
    add_text(&g, 2, "main");
    add_message(&g, 11, port_of("lengths", 7, "n")), add_message(&g, 11, port_of("start", 1, "n"));
    add_message(&g, 11, port_of("x", 1, "n length"));
    add_message(&g, 12, port_of("sum", 1, "n")), add_message(&g, 12, port_of("sums", 1, "n length"));
    add_int(&m, 1, 4);
    add_message(&m, 7, g);
    add_int(&opset, 2, 8);
    add_message(&m, 8, opset);
    return m;
}

static void test_scan(void **state) {
    (void)state;
    message m = scan_model();
    dlc_onnx_model *model;
    dlc_graph *g;
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &model));
    OK(context, dlc_onnx_graph(model, NULL, &g));
    dlc_onnx_destroy(model);
    free(m.data);
    dlc_program *program = compile(context, g);
    int64_t lengths[] = {3, 1, 0};
    float start[] = {10, 20, 30}, x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, sum[3], sums[9];
    tensor t[5];
    const DLTensor *in[] = {&make_tensor(&t[0], DLC_I64, lengths, 1, (int64_t[]){3})->dl, F32(&t[1], start, 3),
                            F32(&t[2], x, 3, 3)};
    dlc_output_slot slots[] = {{F32(&t[3], sum, 3), NULL}, {F32(&t[4], sums, 3, 3), NULL}};
    OK(context, dlc_run(program, NULL, in, 3, slots, 2));
    CLOSE(sum, ((double[]){16, 24, 30}), 3, 0);
    CLOSE(sums, ((double[]){13, 15, 16, 24, 0, 0, 0, 0, 0}), 9, 0);
    dlc_program_destroy(program);
}

/* ---- trees ----------------------------------------------------------------------------------------------------------- */

#define LISTED_NODES                                                                          \
    "nodes_treeids i 0 0 0 0 0", "nodes_nodeids i 0 1 2 3 4", "nodes_featureids i 0 1 0 0 0", \
        "nodes_modes s BRANCH_LEQ BRANCH_GT LEAF LEAF LEAF", "nodes_values f 0.5 1 0 0 0",    \
        "nodes_truenodeids i 1 2 0 0 0", "nodes_falsenodeids i 4 3 0 0 0"

static const char *const regressor_attributes[] = {LISTED_NODES,
                                                   "target_treeids i 0 0 0",
                                                   "target_nodeids i 2 3 4",
                                                   "target_ids i 0 0 0",
                                                   "target_weights f 1 2 4",
                                                   "n_targets I 1",
                                                   NULL};
static const node regressor = {"ai.onnx.ml", "TreeEnsembleRegressor", "x", "y", "y", regressor_attributes};

static void test_listed_trees(void **state) {
    (void)state;
    const node *n = &regressor;
    accepted(n, NULL);
    accepted(n, "nodes_missing_value_tracks_true i 1 0 0 0 0");
    wrong(n, "nodes_values f 1 2", "attribute nodes_values has 2 elements in place of 5");
    wrong(n, "nodes_treeids i 0 0 0 0", "attribute nodes_treeids has 4 elements in place of 5");
    wrong(n, "nodes_falsenodeids", "attribute nodes_falsenodeids has 0 elements in place of 5");
    wrong(n, "nodes_modes", "gives no nodes");
    wrong(n, "nodes_modes s BRANCH_LEQ BRANCH_IF LEAF LEAF LEAF",
          "node 1 of tree 0 has the unknown mode \"BRANCH_IF\"");
    wrong(n, "nodes_missing_value_tracks_true i 1", "has 1 elements in place of 5");
    wrong(n, "nodes_nodeids i 0 1 2 2 4", "node 2 of tree 0 is given twice");
    wrong(n, "nodes_truenodeids i 1 9 0 0 0", "node 1 of tree 0 has the true child 9, which is missing");
    wrong(n, "nodes_falsenodeids i -1 3 0 0 0", "node 0 of tree 0 has the false child -1, which is missing");
    wrong(n, "nodes_treeids i 0 0 0 0 1", "node 0 of tree 0 has the false child 4, which is missing");
    wrong(n, "nodes_truenodeids i 0 2 0 0 0", "of tree 0 is reached from a cycle of nodes");
    wrong(n, "nodes_truenodeids i 1 0 0 0 0", "of tree 0 is reached from a cycle of nodes");
    wrong(n, "nodes_truenodeids i 1 1 0 0 0", "node 1 of tree 0 is reached from a cycle of nodes");
    wrong(n, "nodes_featureids i 0 2 0 0 0", "a node compares feature 2 of 2");
    wrong(n, "nodes_featureids i 0 -1 0 0 0", "node 1 of tree 0 compares feature -1");
    wrong(n, "nodes_featureids i 0 4294967296 0 0 0", "compares feature 4294967296");
    wrong(n, "target_nodeids i 2 3 7", "weight 2 is for node 7 of tree 0, which is missing");
    wrong(n, "target_treeids i 0 0", "attribute target_treeids has 2 elements in place of 3");
    wrong(n, "target_ids i 0 0 1", "weight 2 is for target 1 of 1");
    wrong(n, "target_ids i 0 -1 0", "weight 1 is for target -1 of 1");
    wrong(n, "n_targets I 0", "n_targets is 0");
    refused(n, "n_targets I 100000000", DLC_UNSUPPORTED, "3 leaves with 100000000 targets");
    wrong(n, "base_values f 1 2", "attribute base_values has 2 elements in place of 1");
    wrong(n, "nodes_values_as_tensor t 1 2 3 4 5", "both nodes_values and nodes_values_as_tensor are given");
    refused(n, "post_transform S SOFT", DLC_UNSUPPORTED, "attribute post_transform is \"SOFT\"");
    refused(n, "aggregate_function S MEDIAN", DLC_UNSUPPORTED, "attribute aggregate_function is \"MEDIAN\"");
    refused(n, "colour S red", DLC_UNSUPPORTED, "attribute \"colour\" is not known");
}

/* A chain of nodes as deep as it is long. */
static void test_deep_tree(void **state) {
    enum { DEPTH = 3000 };
    (void)state;
    message m = {0}, g = {0}, made = node_of("TreeEnsembleRegressor", "x", "y"), opset = {0}, a = {0};
    static const char *const names[] = {"nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids",
                                        "nodes_falsenodeids"};
    for (int k = 0; k < 5; k++) {
        a = (message){0};
        add_text(&a, 1, names[k]);
        for (int i = 0; i < DEPTH; i++) /* node i: true leads to the last node, false to the next one */
            add_int(&a, 8, k == 1 ? i : k == 3 ? DEPTH - 1 : k == 4 ? (i + 1) % DEPTH : 0);
        add_int(&a, 20, 7);
        add_message(&made, 5, a);
    }
    a = (message){0};
    add_text(&a, 1, "nodes_modes");
    for (int i = 0; i < DEPTH; i++) add_text(&a, 9, i + 1 < DEPTH ? "BRANCH_LT" : "LEAF");
    add_int(&a, 20, 8);
    add_message(&made, 5, a);
    a = (message){0};
    add_text(&a, 1, "nodes_values");
    for (int i = 0; i < DEPTH; i++) add_float(&a, 7, (float)i);
    add_int(&a, 20, 6);
    add_message(&made, 5, a);
    add_message(&made, 5, attribute_of("target_treeids i 0"));
    char last[64];
    snprintf(last, sizeof last, "target_nodeids i %d", DEPTH - 1);
    add_message(&made, 5, attribute_of(last));
    add_message(&made, 5, attribute_of("target_ids i 0")), add_message(&made, 5, attribute_of("target_weights f 2.5"));
    add_text(&made, 7, "ai.onnx.ml");
    add_message(&g, 1, made);
    add_text(&g, 2, "main");
    add_message(&g, 11, matrix_of("x")), add_message(&g, 12, value_of("y", 1, "k"));
    add_int(&m, 1, 8);
    add_message(&m, 7, g);
    add_text(&opset, 1, "ai.onnx.ml"), add_int(&opset, 2, 1);
    add_message(&m, 8, opset);
    dlc_onnx_model *model;
    dlc_graph *graph;
    OK(context, dlc_onnx_parse(context, m.data, m.size, NULL, &model));
    OK(context, dlc_onnx_graph(model, NULL, &graph));
    dlc_onnx_destroy(model);
    dlc_program *program = compile(context, graph);
    float x[] = {1e9f, 0, -1, 0}, y[2];
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, y, 2, 1), NULL};
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 2, 2)}, 1, &slot, 1));
    CLOSE(y, ((double[]){2.5, 2.5}), 2, 0);
    dlc_program_destroy(program);
    free(m.data);
}

static const char *const ensemble_attributes[] = {"tree_roots i 0",
                                                  "n_targets I 1",
                                                  "nodes_featureids i 0 1",
                                                  "nodes_modes u 0 6",
                                                  "nodes_splits t 0.5 0",
                                                  "nodes_truenodeids i 1 1",
                                                  "nodes_trueleafs i 0 1",
                                                  "nodes_falsenodeids i 0 2",
                                                  "nodes_falseleafs i 1 1",
                                                  "leaf_targetids i 0 0 0",
                                                  "leaf_weights t 1 2 4",
                                                  "membership_values t 1 7 3 nan",
                                                  NULL};
static const node ensemble = {"ai.onnx.ml", "TreeEnsemble", "x", "y", "y", ensemble_attributes};

static void test_indexed_trees(void **state) {
    (void)state;
    const node *n = &ensemble;
    accepted(n, NULL);
    accepted(n, "membership_values t 1 7 3");
    accepted(n, "membership_values t nan");
    wrong(n, "membership_values", "membership_values has 0 sets; node 1 tests for another one");
    wrong(n, "membership_values t 1 nan 2 nan", "membership_values has more sets than the 1 nodes");
    wrong(n, "tree_roots i 2", "the root of tree 0 is node 2 of 2");
    wrong(n, "tree_roots i -1", "the root of tree 0 is node -1 of 2");
    wrong(n, "tree_roots", "2 nodes, 3 leaves and 0 roots");
    wrong(n, "nodes_truenodeids i 2 1", "node 0 has the child 2, which is missing: there are 2 nodes");
    wrong(n, "nodes_falsenodeids i 0 3", "node 1 has the child 3, which is missing: there are 3 leaves");
    wrong(n, "nodes_truenodeids i 0 1", "node 0 is reached from a cycle of nodes");
    wrong(n, "nodes_modes u 0 7", "node 1 has the unknown mode 7");
    wrong(n, "nodes_modes u 0", "attribute nodes_splits has 2 elements in place of 1");
    wrong(n, "nodes_trueleafs i 0", "attribute nodes_trueleafs has 1 elements in place of 2");
    wrong(n, "leaf_targetids i 0 0 1", "leaf 2 is for target 1 of 1");
    wrong(n, "leaf_targetids i 0 0", "attribute leaf_targetids has 2 elements in place of 3");
    wrong(n, "n_targets", "n_targets is 0");
    wrong(n, "aggregate_function I 4", "aggregate_function is 4");
    wrong(n, "post_transform I -1", "post_transform -1");
}

/* Sets without order and with equal members: x [n, 2] goes to a leaf by its second number. */
static void test_membership(void **state) {
    (void)state;
    dlc_graph *g;
    float x[] = {0, 7, 0, 3, 0, 2, 0, NAN, 1, 7}, y[5];
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, y, 5, 1), NULL};
    OK(context, import(&ensemble, "membership_values t 7 3 7 1 7 3", &g));
    dlc_program *program = compile(context, g);
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 5, 2)}, 1, &slot, 1));
    CLOSE(y, ((double[]){2, 2, 4, 4, 1}), 5, 0);
    dlc_program_destroy(program);
}

/* Features that the first run brings. */
static void test_columns(void **state) {
    (void)state;
    dlc_graph *g;
    float x[] = {0, 7, 1}, y[1];
    tensor tx, ty;
    dlc_output_slot slot = {F32(&ty, y, 1, 1), NULL};
    any_columns = true;
    OK(context, import(&ensemble, NULL, &g));
    any_columns = false;
    dlc_program *program = compile(context, g);
    assert_int_equal(dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 1, 1)}, 1, &slot, 1),
                     DLC_INVALID_ARGUMENT);
    assert_non_null(strstr(dlc_error_message(context), "trees that compare features up to 1: number of features"));
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, 1, 3)}, 1, &slot, 1));
    CLOSE(y, ((double[]){2}), 1, 0);
    dlc_program_destroy(program);
}

/* ---- labels ---------------------------------------------------------------------------------------------------------- */

static const char *const classifier_attributes[] = {LISTED_NODES,
                                                    "class_treeids i 0 0 0",
                                                    "class_nodeids i 2 3 4",
                                                    "class_ids i 0 1 2",
                                                    "class_weights f 1 2 4",
                                                    "classlabels_strings s a b c",
                                                    NULL};

static void test_labels(void **state) {
    (void)state;
    node n = {"ai.onnx.ml", "TreeEnsembleClassifier", "x", "label scores", "scores", classifier_attributes};
    accepted(&n, NULL);
    wrong(&n, "class_ids i 0 1 3", "weight 2 is for class 3 of 3");
    wrong(&n, "classlabels_strings", "0 labels in classlabels_int64s and 0 in classlabels_strings");
    wrong(&n, "classlabels_int64s i 1 2 3", "3 labels in classlabels_int64s and 3 in classlabels_strings");
    wrong(&n, "base_values f 1 2", "attribute base_values has 2 elements in place of 3");
    n.given = "label scores";
    refused(&n, NULL, DLC_UNSUPPORTED, "value \"label\" is strings");
}

/* ---- others ---------------------------------------------------------------------------------------------------------- */

static void test_linear(void **state) {
    (void)state;
    static const char *const linear[] = {"coefficients f 1 2 3 4", "intercepts f 1 2", "classlabels_ints i 3 5", NULL};
    const node n = {"ai.onnx.ml", "LinearClassifier", "x", "label scores", "label scores", linear};
    accepted(&n, NULL);
    wrong(&n, "coefficients f 1 2 3", "3 coefficients for 2 rows");
    wrong(&n, "coefficients", "0 coefficients for 2 rows");
    wrong(&n, "classlabels_ints i 3 5 7", "2 rows of coefficients for 3 classes");
    refused(&n, "coefficients f 1 2 3 4 5 6", DLC_INVALID_ARGUMENT, "number of features");
}

static void test_machines(void **state) {
    (void)state;
    static const char *const svm[] = {
        "coefficients f 1 2 3",   "vectors_per_class i 1 2", "support_vectors f 1 2 3 4 5 6", "rho f 1",
        "classlabels_ints i 3 5", "kernel_type S RBF",       "kernel_params f 0.5 0 0",       NULL};
    const node n = {"ai.onnx.ml", "SVMClassifier", "x", "label scores", "label scores", svm};
    accepted(&n, NULL);
    wrong(&n, "vectors_per_class i 1", "attribute vectors_per_class has 1 elements in place of 2");
    wrong(&n, "vectors_per_class i -1 4", "class 0 has -1 support vectors");
    wrong(&n, "coefficients f 1", "attribute coefficients has 1 elements in place of 3");
    wrong(&n, "support_vectors f 1 2 3 4", "attribute support_vectors has 4 numbers for 3 vectors");
    wrong(&n, "rho", "attribute rho has 0 elements in place of 1");
    wrong(&n, "prob_a f 1", "attribute prob_b has 0 elements in place of 1");
    wrong(&n, "kernel_params f 1", "attribute kernel_params has 1 elements in place of 3");
    refused(&n, "kernel_type S CUBIC", DLC_UNSUPPORTED, "attribute kernel_type is \"CUBIC\"");
}

static void test_microsoft(void **state) {
    (void)state;
    static const char *const none[] = {NULL}, *const gated[] = {"activation S silu", NULL};
    const node gate = {"com.microsoft", "LinearAttentionGate", "x x x", "decay beta", "beta", none},
               number = {"com.microsoft", "GatedRMSNorm", "r r r", "y", "y", gated},
               matrix = {"com.microsoft", "GatedRMSNorm", "x x x", "y", "y", gated};
    wrong(&gate, NULL, "result 1, beta, without operand 3, b");
    wrong(&number, NULL, "operand 0 has 0 dimensions");
    wrong(&matrix, NULL, "operand 1 has rank 2");
    refused(&matrix, "activation S relu", DLC_UNSUPPORTED, "attribute activation is \"relu\"");
}

static void test_encoders(void **state) {
    (void)state;
    static const char *const encoder[] = {"keys_floats f 1 2", "values_floats f 3 4", NULL}, *const none[] = {NULL};
    const node n = {"ai.onnx.ml", "LabelEncoder", "x", "y", "y", encoder},
               hot = {"ai.onnx.ml", "OneHotEncoder", "x", "y", "y", none},
               imputer = {"ai.onnx.ml", "Imputer", "x", "y", "y", none},
               map = {"ai.onnx.ml", "CastMap", "x", "y", "y", none};
    accepted(&n, NULL);
    wrong(&n, "values_floats f 3", "2 keys and 1 values");
    wrong(&n, "keys_floats", "0 attributes give its keys; expected one");
    wrong(&n, "values_int64s i 1 2", "2 attributes give its values; expected one");
    wrong(&n, "keys_floats i 1 2", "attribute keys_floats has the wrong type");
    wrong(&n, "keys_strings s a b", "2 attributes give its keys");
    wrong(&n, "values_strings s a b", "2 attributes give its values");
    accepted(&hot, "cats_int64s i 1 2");
    wrong(&hot, NULL, "it has no categories");
    wrong(&hot, "cats_int64s i 1 2 1", "category 1 is listed twice");
    wrong(&hot, "cats_strings s a b", "is no tensor of strings");
    wrong(&imputer, "imputed_value_int64s i 1", "attribute imputed_value_floats gives no values");
    wrong(&map, NULL, "operand 0 is no map");
}

static void test_training(void **state) {
    (void)state;
    static const char *const none[] = {NULL}, *const momentum[] = {"alpha F 0.9", "beta F 0.5", "norm_coefficient F 0",
                                                                   "mode S standard", NULL};
    node n = {"ai.onnx.preview.training", "Adam", "x x x x", "y", "y", none},
         m = {"ai.onnx.preview.training", "Momentum", "x x x x x", "y", "y", momentum};
    wrong(&n, NULL, "4 operands; expected R, T and for each tensor 4");
    n.inputs = "x x x x x x";
    wrong(&n, NULL, "R and T are not single numbers");
    wrong(&m, NULL, "R and T are not single numbers");
    m.operator= "Adagrad";
    wrong(&m, NULL, "R and T are not single numbers");
}

/* ---- random numbers -------------------------------------------------------------------------------------------------- */

static void test_seeds(void **state) {
    (void)state;
    static const char *const none[] = {NULL};
    const node bernoulli = {"", "Bernoulli", "x", "y", "y", none},
               uniform = {"", "RandomUniformLike", "x", "y", "y", none},
               shaped = {"", "RandomNormal", "", "y", "y", none}, drawn = {"", "Multinomial", "x", "y", "y", none};
    refused(&bernoulli, NULL, DLC_UNSUPPORTED, "random numbers without a seed");
    refused(&uniform, NULL, DLC_UNSUPPORTED, "random numbers without a seed");
    refused(&drawn, NULL, DLC_UNSUPPORTED, "random numbers without a seed");
    refused(&shaped, "shape i 2 3", DLC_UNSUPPORTED, "random numbers without a seed");
    wrong(&shaped, "shape i 2 -3", "a dimension of -3");
    wrong(&shaped, NULL, "attribute shape has 0 dimensions");
    accepted(&bernoulli, "seed F 3"), accepted(&uniform, "seed F 3"), accepted(&drawn, "seed F 3");
}

/* The same numbers from each program and run, others with another seed; within bounds, with about the right mean. */
static void test_numbers(void **state) {
    enum { ROWS = 500, COUNT = 2 * ROWS };
    static const char *const bounds[] = {"low F -1", "high F 3", NULL};
    static float x[COUNT], y[4][COUNT];
    const node n = {"", "RandomUniformLike", "x", "y", "y", bounds};
    double sum = 0;
    (void)state;
    for (int k = 0; k < 4; k++) {
        dlc_graph *g;
        tensor tx, ty;
        dlc_output_slot slot = {F32(&ty, y[k], ROWS, 2), NULL};
        OK(context, import(&n, k == 3 ? "seed F 0.5" : "seed F 7", &g));
        dlc_program *program = compile(context, g);
        for (int again = 0; again < 1 + (k == 2); again++)
            OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, ROWS, 2)}, 1, &slot, 1));
        dlc_program_destroy(program);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(y[0], y[2], sizeof y[0]);
    assert_memory_not_equal(y[0], y[3], sizeof y[0]);
    for (int i = 0; i < COUNT; i++) {
        assert_true(y[0][i] >= -1 && y[0][i] <= 3);
        sum += (double)y[0][i];
    }
    assert_true(fabs(sum / (double)COUNT - 1) < 0.2);
}

/* About a quarter of the elements become 0, as the mask says, the others a third greater. */
static void test_dropout(void **state) {
    enum { ROWS = 400, COUNT = 2 * ROWS };
    static const char *const seed[] = {"seed I 11", NULL};
    static float x[COUNT], y[COUNT];
    static bool mask[COUNT];
    node n = {"", "Dropout", "x r t", "y mask", "y mask", seed};
    dlc_graph *g;
    tensor tx, ty, tmask;
    dlc_output_slot slots[] = {{F32(&ty, y, ROWS, 2), NULL},
                               {&make_tensor(&tmask, DLC_BOOL, mask, 2, (int64_t[]){ROWS, 2})->dl, NULL}};
    int kept = 0;
    (void)state;
    fill(x, COUNT, 5);
    OK(context, import(&n, NULL, &g));
    dlc_program *program = compile(context, g);
    OK(context, dlc_run(program, NULL, (const DLTensor *[]){F32(&tx, x, ROWS, 2)}, 1, slots, 2));
    dlc_program_destroy(program);
    for (int i = 0; i < COUNT; i++) {
        const double expected = mask[i] ? (double)x[i] / 0.75 : 0;
        CLOSE(&y[i], &expected, 1, 1e-6);
        kept += mask[i];
    }
    assert_in_range(kept, COUNT * 68 / 100, COUNT * 82 / 100);
    refused(&n, "seed", DLC_UNSUPPORTED, "random numbers without a seed");
    n.inputs = "x r"; /* no training: nothing is dropped */
    accepted(&n, "seed");
}

/* Each allocation of an import refused in turn: a status, nothing stays, and the next import succeeds. */
static void test_memory(void **state) {
    static const char *const svm[] = {SVC, "prob_a f -1 -2 -1.5", "prob_b f 0.1 0.2 -0.1", NULL};
    const node nodes[] = {ensemble, regressor, {"ai.onnx.ml", "SVMClassifier", "x", "label scores", "scores", svm}};
    (void)state;
    for (size_t n = 0; n < sizeof nodes / sizeof nodes[0]; n++) {
        const int64_t blocks = memory.blocks;
        dlc_status status = DLC_OUT_OF_MEMORY;
        for (int64_t calls = 0; status != DLC_OK; calls++) {
            dlc_graph *g;
            memory.left = calls;
            status = import(&nodes[n], NULL, &g);
            memory.left = -1;
            if (status != DLC_OK) assert_int_equal(status, DLC_OUT_OF_MEMORY);
            dlc_graph_destroy(g);
            assert_int_equal(memory.blocks, blocks);
        }
    }
}

static int set_up(void **state) {
    (void)state;
    return (context = open_counted("interp", &memory)) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    dlc_context_destroy(context);
    return memory.blocks != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_scan),          cmocka_unit_test(test_listed_trees),
        cmocka_unit_test(test_deep_tree), cmocka_unit_test(test_indexed_trees), cmocka_unit_test(test_membership),
        cmocka_unit_test(test_labels),    cmocka_unit_test(test_linear),        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_encoders),  cmocka_unit_test(test_training),      cmocka_unit_test(test_columns),
        cmocka_unit_test(test_dropout),   cmocka_unit_test(test_seeds),         cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_microsoft),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
