/* Corners of the standard: results that its text fixes and that are easily missed, worked out by hand. A case is a small model as text, and runs of
 * it, one after the other by one runner, whose inputs have no sizes in the file. */
#include "onnx/values.h"

enum { LINES = 10, TENSORS = 8, ELEMENTS = 64, RUNS = 5 };

/* ---- tensors as text: NAME TYPE DIMENSION... : NUMBER... --------------------------------------------------------------- */

static const struct type {
    const char *name;
    int number; /* ONNX's */
    DLDataType dl;
} types[] = {
    {"f32", 1, {kDLFloat, 32, 1}},  {"u8", 2, {kDLUInt, 8, 1}},    {"i8", 3, {kDLInt, 8, 1}},
    {"i32", 6, {kDLInt, 32, 1}},    {"i64", 7, {kDLInt, 64, 1}},   {"bool", 9, {kDLBool, 8, 1}},
    {"f64", 11, {kDLFloat, 64, 1}}, {"u32", 12, {kDLUInt, 32, 1}}, {"i4", 22, {kDLInt, 4, 1}}, /* of initializers */
};

typedef struct text_tensor {
    char name[16];
    const struct type *type;
    int64_t shape[DLC_MAX_RANK], count;
    int rank;
    double number[ELEMENTS];
    union {
        char bytes[8 * ELEMENTS];
        double align;
    } data;
    DLTensor dl;
} text_tensor;

static double element(DLDataType type, const void *data, int64_t i) {
    const char *at = (const char *)data + i * type.bits / 8;
    if (type.code == kDLFloat)
        return type.bits == 64 ? *(const double *)(const void *)at : (double)*(const float *)(const void *)at;
    int64_t value = 0;
    memcpy(&value, at, type.bits / 8);
    if (type.code == kDLInt && type.bits < 64)
        value = (int64_t)((uint64_t)value << (64 - type.bits)) >> (64 - type.bits);
    return (double)value;
}

static void set_element(DLDataType type, void *data, int64_t i, double value) {
    if (type.bits < 8) {
        unsigned char *byte = (unsigned char *)data + i * type.bits / 8;
        *byte = (unsigned char)(*byte | ((unsigned)value & 15) << i % 2 * 4);
        return;
    }
    char *at = (char *)data + i * type.bits / 8;
    const float single = (float)value;
    const int64_t whole = type.code == kDLFloat ? 0 : (int64_t)value;
    if (type.code == kDLFloat)
        memcpy(at, type.bits == 64 ? (const void *)&value : (const void *)&single, type.bits / 8);
    else
        memcpy(at, &whole, type.bits / 8);
}

static void read_tensor(const char *text, text_tensor *t) {
    char copy[512], *rest = copy;
    bool numbers = false;
    snprintf(copy, sizeof copy, "%s", text);
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", strtok_r(rest, " ", &rest));
    const char *type = strtok_r(rest, " ", &rest);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, type) == 0) t->type = &types[i];
    for (const char *word; (word = strtok_r(rest, " ", &rest));) {
        if (strcmp(word, ":") == 0)
            numbers = true;
        else if (numbers)
            t->number[t->count++] = strtod(word, NULL);
        else
            t->shape[t->rank++] = strtoll(word, NULL, 10);
    }
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    if (!t->count) t->count = count > ELEMENTS ? 0 : count; /* zeros */
    for (int64_t i = 0; i < t->count; i++) set_element(t->type->dl, t->data.bytes, i, t->number[i]);
    t->dl = (DLTensor){
        .data = t->data.bytes, .device = {kDLCPU, 0}, .ndim = t->rank, .dtype = t->type->dl, .shape = t->shape};
}

/* ---- cases ------------------------------------------------------------------------------------------------------------- */

typedef struct corner {
    const char *about;
    int opset;
    /* Lines as of add_node (values.h), functions of domain loc (function_of), initializers: "=" and a tensor. NULL-terminated */
    const char *model[LINES + 1];
    /* A run's inputs, then "-> ", its results; a tensor without numbers is zeros. */
    struct {
        const char *tensor[TENSORS];
    } run[RUNS];
    /* Imports that the runs need; 0: not counted */
    int imports;
} corner;

static void add_input(message *g, const text_tensor *t) {
    char dims[32] = "";
    for (int d = 0; d < t->rank; d++) strcat(dims, d ? " *" : "*");
    add_message(g, 11, port_of(t->name, t->type->number, dims));
}

static message own_opset(void) {
    message opset = {0};
    add_text(&opset, 1, "loc"), add_int(&opset, 2, 1);
    return opset;
}

static void add_names(message *m, unsigned field, char *names) {
    for (char *word; (word = strtok_r(names, ",", &names));) add_text(m, field, word);
}

/* "@NAME OPERAND,... RESULT,... ATTRIBUTE...", then its nodes, each after a "+". An attribute is a name, or one with a default. */
static message function_of(const char *const *line, int opset) {
    message f = {0}, standard = {0};
    char text[128], *rest = text + 1;
    snprintf(text, sizeof text, "%s", *line);
    add_text(&f, 1, strtok_r(rest, " ", &rest));
    add_names(&f, 4, strtok_r(rest, " ", &rest));
    add_names(&f, 5, strtok_r(rest, " ", &rest));
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        message a = {0};
        if (!strchr(word, '=')) {
            add_text(&f, 6, word);
            continue;
        }
        add_attribute(&a, word);
        a.data[0] = 11 << 3 | 2; /* field 5 of a node, 11 of a function */
        add_bytes(&f, a.data, a.size);
        free(a.data);
    }
    for (line++; *line && **line == '+'; line++) {
        message node = {0};
        add_node(&node, *line + 1);
        node.data[0] = 7 << 3 | 2; /* field 1 of a graph, 7 of a function */
        add_bytes(&f, node.data, node.size);
        free(node.data);
    }
    add_int(&standard, 2, opset);
    add_message(&f, 9, standard), add_message(&f, 9, own_opset());
    add_text(&f, 10, "loc");
    return f;
}

static message corner_model(const corner *c) {
    message m = {0}, g = started(), opset = {0}, contributed = {0};
    text_tensor t;
    for (int i = 0; c->model[i]; i++) {
        if (*c->model[i] == '@') {
            add_message(&m, 25, function_of(c->model + i, c->opset));
        } else if (*c->model[i] != '=' && *c->model[i] != '+') {
            add_node(&g, c->model[i]);
        }
        if (*c->model[i] != '=') continue;
        read_tensor(c->model[i] + 1, &t);
        message w = tensor_of(t.name, t.type->number, t.rank, t.shape);
        add_data(&w, 9, t.data.bytes, ((size_t)t.count * t.type->dl.bits + 7) / 8);
        add_message(&g, 5, w);
    }
    for (int i = 0; i < TENSORS && c->run[0].tensor[i]; i++) {
        const char *text = c->run[0].tensor[i];
        read_tensor(*text == '-' ? text + 3 : text, &t);
        if (*text == '-')
            add_message(&g, 12, port_of(t.name, t.type->number, "-"));
        else
            add_input(&g, &t);
    }
    add_int(&m, 1, 13);
    add_message(&m, 7, g);
    add_int(&opset, 2, c->opset);
    add_message(&m, 8, opset);
    add_message(&m, 8, own_opset());
    add_text(&contributed, 1, "com.microsoft"), add_int(&contributed, 2, 1);
    add_message(&m, 8, contributed);
    return m;
}

static void expect(const corner *c, int run, const char *text, const DLTensor *got) {
    text_tensor t;
    bool same = true;
    read_tensor(text, &t);
    same &= got->ndim == t.rank && got->dtype.code == t.type->dl.code && got->dtype.bits == t.type->dl.bits;
    for (int d = 0; same && d < t.rank; d++) same &= got->shape[d] == t.shape[d];
    if (!same) {
        char shape[64] = "";
        for (int d = 0; d < got->ndim; d++) snprintf(shape + strlen(shape), 16, " %lld", (long long)got->shape[d]);
        fail_msg("%s, run %d: %s has shape%s, expected %s", c->about, run, t.name, shape, text);
    }
    for (int64_t i = 0; i < t.count; i++) {
        const double is = element(got->dtype, (const char *)got->data + got->byte_offset, i), wanted = t.number[i];
        if (!(is == wanted || (isnan(is) && isnan(wanted)) ||
              (isfinite(is) && fabs(is - wanted) <= 2e-6 * fabs(wanted))))
            fail_msg("%s, run %d: element %lld of %s is %.9g, expected %.9g", c->about, run, (long long)i, t.name, is,
                     wanted);
    }
}

static void run_corner(const corner *c, dlc_onnx_runner *runner, int r) {
    text_tensor in[TENSORS];
    const DLTensor *given[TENSORS];
    dlc_output_slot out[TENSORS] = {{NULL, NULL}};
    int inputs = 0, outputs = 0;
    for (; *c->run[r].tensor[inputs] != '-'; inputs++) {
        read_tensor(c->run[r].tensor[inputs], &in[inputs]);
        given[inputs] = &in[inputs].dl;
    }
    int64_t elements = 1;
    for (int d = 0; inputs && d < in[0].rank; d++) elements *= in[0].shape[d];
    void *zeros = inputs && elements > ELEMENTS ? calloc((size_t)elements, 8) : NULL;
    if (zeros) in[0].dl.data = zeros;
    while (inputs + outputs < TENSORS && c->run[r].tensor[inputs + outputs]) outputs++;
    const dlc_status status = dlc_onnx_run(runner, NULL, given, inputs, out, outputs);
    free(zeros);
    if (status != DLC_OK) fail_msg("%s, run %d: %s", c->about, r, dlc_error_message(context));
    for (int o = 0; o < outputs; o++) {
        expect(c, r, c->run[r].tensor[inputs + o] + 3, &out[o].managed->dl_tensor);
        out[o].managed->deleter(out[o].managed);
    }
}

static void check_corners(const corner *corners, size_t count) {
    for (const corner *c = corners; c < corners + count; c++) {
        fixture f = {.bytes = corner_model(c)};
        if (dlc_onnx_parse(context, f.bytes.data, f.bytes.size, NULL, &f.model) != DLC_OK)
            fail_msg("%s: %s", c->about, dlc_error_message(context));
        OK(context, dlc_onnx_runner_create(f.model, NULL, &f.runner));
        for (int r = 0; r < RUNS && c->run[r].tensor[0]; r++) run_corner(c, f.runner, r);
        if (c->imports) expect_imports(&f, c->imports, "");
        finish(&f);
    }
}

#define CHECK_CORNERS(corners) check_corners(corners, sizeof(corners) / sizeof *(corners))

/* ---- recurrent layers --------------------------------------------------------------------------------------------------- */

static void test_activations(void **state) {
    static const corner corners[] = {
        {"HardSigmoid by default",
         14,
         {"RNN y x w r | hidden_size=i:1 activations=ss:HardSigmoid", "=w f32 1 1 1 : 1", "=r f32 1 1 1 : 0", NULL},
         {{{"x f32 4 1 1 : -9 0 1 9", "-> y f32 4 1 1 1 : 0 0.5 0.7 1"}}},
         0},
        {"LeakyRelu of a small slope",
         14,
         {"RNN y x w r | hidden_size=i:1 activations=ss:LeakyRelu activation_alpha=fs:1e-5", "=w f32 1 1 1 : 1",
          "=r f32 1 1 1 : 0", NULL},
         {{{"x f32 3 1 1 : -4 0 4", "-> y f32 3 1 1 1 : -4e-5 0 4"}}},
         0},
        {"LeakyRelu by default",
         14,
         {"RNN y x w r | hidden_size=i:1 activations=ss:LeakyRelu", "=w f32 1 1 1 : 1", "=r f32 1 1 1 : 0", NULL},
         {{{"x f32 2 1 1 : -4 4", "-> y f32 2 1 1 1 : -0.04 4"}}},
         0},
        {"Affine of large and negative numbers",
         14,
         {"RNN y x w r | hidden_size=i:1 activations=ss:Affine activation_alpha=fs:-3.5e7 activation_beta=fs:0.125",
          "=w f32 1 1 1 : 1", "=r f32 1 1 1 : 0", NULL},
         {{{"x f32 2 1 1 : 0 2", "-> y f32 2 1 1 1 : 0.125 -7e7"}}},
         0},
        {"alpha goes to the activations that take one",
         14,
         {"LSTM y x w r | hidden_size=i:1 activations=ss:HardSigmoid,LeakyRelu,Relu activation_alpha=fs:0.3,0.7",
          "=w f32 1 4 1 : 1 1 1 1", "=r f32 1 4 1 : 0 0 0 0", NULL},
         /* gates 0.3 * x + 0.5, the candidate 0.7 * x below 0 */
         {{{"x f32 2 1 1 : -1 1", "-> y f32 2 1 1 1 : 0 0.5504"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

/* The import for the usual sizes serves all of them; where it does not hold, the runner imports anew. */
static void test_slices(void **state) {
    static const corner corners[] = {
        {"an end that is negative for small sizes",
         13,
         {"Shape n x", "Sub e n five", "Slice y x zero e", "=five i64 1 : 5", "=zero i64 1 : 0", NULL},
         {{{"x f32 7 : 1 2 3 4 5 6 7", "-> y f32 2 : 1 2"}},
          {{"x f32 6 : 1 2 3 4 5 6", "-> y f32 1 : 1"}},
          {{"x f32 3 : 1 2 3", "-> y f32 1 : 1"}},
          {{"x f32 2 : 1 2", "-> y f32 0 :"}},
          {{"x f32 5 : 1 2 3 4 5", "-> y f32 0 :"}}},
         3},
        {"a start that is negative for small sizes, backwards",
         13,
         {"Shape n x", "Sub s n five", "Slice y x s e axes back", "=five i64 1 : 5", "=e i64 1 : -99",
          "=axes i64 1 : 0", "=back i64 1 : -1", NULL},
         {{{"x f32 7 : 1 2 3 4 5 6 7", "-> y f32 3 : 3 2 1"}}, {{"x f32 3 : 1 2 3", "-> y f32 2 : 2 1"}}},
         2},
        {"a negated size counts from the end",
         13,
         {"Shape n z", "Neg s n", "Slice y x s e", "=e i64 1 : 9e18", NULL},
         {{{"x f32 5 : 1 2 3 4 5", "z f32 2 : 0 0", "-> y f32 2 : 4 5"}},
          {{"x f32 3 : 1 2 3", "z f32 4 : 0 0 0 0", "-> y f32 3 : 1 2 3"}},
          {{"x f32 3 : 1 2 3", "z f32 0 :", "-> y f32 3 : 1 2 3"}}},
         2},
        {"a negated size may be before the first element, backwards",
         13,
         {"Shape n z", "Neg e n", "Slice y x s e axes back", "=s i64 1 : 2", "=axes i64 1 : 0", "=back i64 1 : -1",
          NULL},
         {{{"x f32 3 : 1 2 3", "z f32 3 : 0 0 0", "-> y f32 2 : 3 2"}},
          {{"x f32 3 : 1 2 3", "z f32 4 : 0 0 0 0", "-> y f32 3 : 3 2 1"}}},
         1},
        {"an end that is negative for small counts, which no import knows",
         13,
         {"NonZero i x", "Shape s i", "Gather n s one", "Sub e n five", "Slice y x zero e",
          "ReduceSum z i | keepdims=i:0", "=one i64 1 : 1", "=five i64 1 : 3", "=zero i64 1 : 0", NULL},
         {{{"x f32 5 : 1 2 3 4 5", "-> y f32 2 : 1 2", "-> z i64 : 10"}},
          {{"x f32 5 : 1 0 3 0 0", "-> y f32 4 : 1 0 3 0", "-> z i64 : 2"}},
          {{"x f32 5 : 1 2 3 0 0", "-> y f32 0 :", "-> z i64 : 3"}}},
         1},
        {"a start before the first element is the first, backwards, also in a shape",
         13,
         {"Shape n x", "Slice y n s e axes back", "=s i64 1 : -100", "=e i64 1 : -100", "=axes i64 1 : 0",
          "=back i64 1 : -1", NULL},
         {{{"x f32 3 2 : 1 2 3 4 5 6", "-> y i64 1 : 3"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

/* A count that nothing but sizes depend on. */
static void test_counts(void **state) {
    static const corner corners[] = {
        {"the shape of NonZero's result",
         13,
         {"NonZero i x", "Shape y i", NULL},
         {{{"x f32 4 : 1 0 3 0", "-> y i64 2 : 1 2"}}, {{"x f32 4 : 1 2 3 4", "-> y i64 2 : 1 4"}}},
         1},
        {"the number of different elements",
         13,
         {"Unique u x", "Size n u", "Cast f n | to=i:1", "Mul y x f", NULL},
         {{{"x f32 4 : 1 2 1 2", "-> y f32 4 : 2 4 2 4"}}, {{"x f32 3 : 1 1 1", "-> y f32 3 : 1 1 1"}}},
         0},
        {"as many zeros as there are elements above one",
         13,
         {"Greater c x one", "Compress k x c", "Shape n k", "ConstantOfShape y n", "=one f32 : 1", NULL},
         {{{"x f32 4 : 1 2 3 4", "-> y f32 3 : 0 0 0"}}, {{"x f32 4 : 1 0 3 1", "-> y f32 1 : 0"}}},
         1},
        {"a count of what a count decides",
         13,
         {"NonZero i x", "Shape s i", "Gather n s one", "Range r zero n one", "NonZero j r", "Shape y j",
          "=one i64 : 1", "=zero i64 : 0", NULL},
         {{{"x f32 4 : 1 0 3 0", "-> y i64 2 : 1 1"}}, {{"x f32 4 : 1 2 3 4", "-> y i64 2 : 1 3"}}},
         1},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

static void test_narrow_sizes(void **state) {
    static const corner corners[] = {
        {"a size as i8 wraps",
         13,
         {"Shape n x", "Cast c n | to=i:3", "Cast y c | to=i:7", NULL},
         {{{"x f32 100 :", "-> y i64 1 : 100"}}, {{"x f32 300 :", "-> y i64 1 : 44"}}},
         2},
        {"a square in i32 wraps",
         13,
         {"Shape n x", "Cast c n | to=i:6", "Mul m c c", "Cast y m | to=i:7", NULL},
         {{{"x f32 300 :", "-> y i64 1 : 90000"}}, {{"x f32 70000 :", "-> y i64 1 : 605032704"}}},
         2},
        {"a difference of u32 is not negative",
         13,
         {"Shape n x", "Cast c n | to=i:12", "Sub d c five", "Cast y d | to=i:7", "=five u32 1 : 5", NULL},
         {{{"x f32 7 :", "-> y i64 1 : 2"}}, {{"x f32 3 :", "-> y i64 1 : 4294967294"}}},
         1},
        {"a negated size as u8",
         13,
         {"Shape n x", "Neg m n", "Cast c m | to=i:2", "Cast y c | to=i:7", NULL},
         {{{"x f32 5 :", "-> y i64 1 : 251"}}},
         1},
        {"elements in i32, a shape in i64",
         13,
         {"Shape n x", "Cast c n | to=i:6", "Mul m c two", "Cast l m | to=i:7", "ConstantOfShape y l", "=two i32 : 2",
          NULL},
         {{{"x f32 3 :", "-> y f32 6 :"}}, {{"x f32 4 :", "-> y f32 8 :"}}},
         1},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

#define FLOAT_SIZE "Shape n x", "Cast c n | to=i:1"
static void test_float_sizes(void **state) {
    static const corner corners[] = {
        {"quotients are rounded before they are multiplied", /* 1 / 41 * 41 < 1, but 3 / 41 * 41 = 3 */
         13,
         {FLOAT_SIZE, "Div d c k", "Mul m d k", "Floor f m", "Cast l f | to=i:7", "ConstantOfShape y l", "=k f32 : 41",
          NULL},
         {{{"x f32 3 :", "-> y f32 3 :"}},
          {{"x f32 1 :", "-> y f32 0 :"}},
          {{"x f32 8 :", "-> y f32 7 :"}},
          {{"x f32 5 :", "-> y f32 5 :"}}},
         4},
        {"a square beyond 2^24 is rounded",
         13,
         {FLOAT_SIZE, "Mul m c c", "Cast y m | to=i:7", NULL},
         {{{"x f32 9 :", "-> y i64 1 : 81"}}, {{"x f32 4097 :", "-> y i64 1 : 16785408"}}},
         2},
        {"quotients that are rounded down at once are exact",
         13,
         {FLOAT_SIZE, "Div d c k", "Floor f d", "Cast l f | to=i:7", "ConstantOfShape y l", "=k f32 : 3", NULL},
         {{{"x f32 8 :", "-> y f32 2 :"}}, {{"x f32 9 :", "-> y f32 3 :"}}, {{"x f32 4098 :", "-> y f32 1366 :"}}},
         1},
        {"products with powers of two, and quotients by them, are exact",
         13,
         {FLOAT_SIZE, "Mul m c k", "Div d m two", "Ceil f d", "Cast l f | to=i:7", "ConstantOfShape y l",
          "=k f32 : 2.5", "=two f32 : 4", NULL},
         {{{"x f32 8 :", "-> y f32 5 :"}}, {{"x f32 9 :", "-> y f32 6 :"}}},
         1},
        {"a rounded quotient as a number",
         13,
         {FLOAT_SIZE, "Div y c k", "=k f32 : 3", NULL},
         {{{"x f32 8 :", "-> y f32 1 : 2.6666667"}}, {{"x f32 9 :", "-> y f32 1 : 3"}}},
         1},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

/* ---- quantisation ------------------------------------------------------------------------------------------------------- */

static void test_quantize(void **state) {
    static const corner corners[] = {
        {"f8e4m3fn that is not saturated",
         19,
         {"Cast z zero | to=i:17", "QuantizeLinear q x s z | saturate=i:0", "Cast y q | to=i:1", "=s f32 : 2",
          "=zero f32 : 0", NULL},
         {{{"x f32 6 : 2 896 1e6 -1e6 inf nan", "-> y f32 6 : 1 448 nan nan nan nan"}}},
         0},
        {"f8e5m2 that is not saturated, by rows",
         19,
         {"Cast z zero | to=i:19", "QuantizeLinear q x s z | saturate=i:0 axis=i:0", "Cast y q | to=i:1",
          "=s f32 2 : 1 4", "=zero f32 2 : 0 0", NULL},
         {{{"x f32 2 2 : 1e6 3 1e5 4", "-> y f32 2 2 : inf 3 24576 1"}}},
         0},
        {"f8e5m2 that is saturated",
         19,
         {"Cast z zero | to=i:19", "QuantizeLinear q x s z", "Cast y q | to=i:1", "=s f32 : 1", "=zero f32 : 0", NULL},
         {{{"x f32 2 : 1e6 -inf", "-> y f32 2 : 57344 -57344"}}},
         0},
        {"x of f16 and a scale of f32", /* 50.505 steps; with the scale as f16 50.499 */
         23,
         {"Cast h x | to=i:10", "QuantizeLinear y h s z", "=s f32 : 0.7128", "=z i8 : 0", NULL},
         {{{"x f32 2 : 36 -36", "-> y i8 2 : 51 -51"}}},
         0},
        {"output_dtype 0 is the default",
         21,
         {"QuantizeLinear y x s | output_dtype=i:0", "=s f32 : 0.5", NULL},
         {{{"x f32 3 : 1 2.25 1e3", "-> y u8 3 : 2 4 255"}}},
         0},
        {"output_dtype 0 is the default, back",
         23,
         {"DequantizeLinear y x s | output_dtype=i:0", "=s f32 : 0.5", NULL},
         {{{"x i8 2 : 3 -4", "-> y f32 2 : 1.5 -2"}}},
         0},
        {"a product with scales of rows", /* [[1-1, 2-1]] * 0.5, [[3-2, 4-2]] * 2, by [[1, 0], [0, 1]] */
         21,
         {"QLinearMatMul y x xs xz w ws wz ys yz", "=xs f32 2 : 0.5 2", "=xz u8 2 : 1 2", "=w u8 2 2 : 2 0 0 2",
          "=ws f32 : 1", "=wz u8 : 0", "=ys f32 : 0.5", "=yz u8 : 1", NULL},
         {{{"x u8 2 2 : 1 2 3 4", "-> y u8 2 2 : 1 3 9 17"}}},
         0},
        {"results of a product with scales of rows",
         21,
         {"QLinearMatMul y x xs xz w ws wz ys yz", "=xs f32 : 1", "=xz u8 : 0", "=w u8 2 2 : 1 0 0 1", "=ws f32 : 1",
          "=wz u8 : 0", "=ys f32 2 : 1 4", "=yz u8 2 : 0 100", NULL},
         {{{"x u8 2 2 : 1 2 16 32", "-> y u8 2 2 : 1 2 104 108"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

/* ---- norms -------------------------------------------------------------------------------------------------------------- */

#define NORMED "-> y f32 1 2 2 : "
#define X_OF_NORM \
    "x f32 1 2 2 : 1 3 3 1" /* normalised over both axes to -1 1 1 -1, and by the root mean square sqrt(5) */
/* Weights of four bits stay packed where they move; parts of them may begin inside of a byte. */
static void test_nibbles(void **state) {
    static const corner corners[] = {
        {"a transposed convolution",
         21,
         {"DequantizeLinear d w s", "ConvTranspose y x d", "=w i4 1 2 2 : 1 2 3 -4", "=s f32 : 0.5", NULL},
         {{{"x f32 1 1 2 : 1 10", "-> y f32 1 2 3 : 0.5 6 10 1.5 13 -20"}}},
         0},
        {"rows that begin with a byte",
         21,
         {"DequantizeLinear d w s", "Slice r d from to", "Add y r x", "=w i4 3 2 : 1 2 3 4 -5 -6", "=s f32 : 1",
          "=from i64 1 : 1", "=to i64 1 : 3", NULL},
         {{{"x f32 : 0", "-> y f32 2 2 : 3 4 -5 -6"}}},
         0},
        {"rows that begin inside of one",
         21,
         {"DequantizeLinear d w s", "Slice r d from to", "Add y r x", "=w i4 3 3 : 1 2 3 4 -5 -6 7 -8 0", "=s f32 : 1",
          "=from i64 1 : 1", "=to i64 1 : 2", NULL},
         {{{"x f32 : 0", "-> y f32 1 3 : 4 -5 -6"}}},
         0},
        {"another shape, of an odd number of elements",
         21,
         {"DequantizeLinear d w s z", "Reshape r d shape", "Add y r x", "=w i4 3 1 : 1 2 -8", "=s f32 : 2",
          "=z i4 : -1", "=shape i64 2 : 1 3", NULL},
         {{{"x f32 : 0", "-> y f32 1 3 : 4 6 -14"}}},
         0},
        {"a row for each channel's scale",
         21,
         {"DequantizeLinear d w s | axis=i:0", "Split a,b d n | axis=i:0", "Add y b x", "=w i4 2 3 : 1 2 3 4 -5 -6",
          "=s f32 2 : 1 10", "=n i64 2 : 1 1", NULL},
         {{{"x f32 : 0", "-> y f32 1 3 : 40 -50 -60"}}},
         0},
        {"MatMulNBits of two bits",
         21,
         {"com.microsoft.MatMulNBits y x w s | bits=i:2 block_size=i:16 K=i:16 N=i:1", "=w u8 1 1 4 : 228 228 228 228",
          "=s f32 1 : 0.5", NULL},
         {{{"x f32 2 16 : 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 0 2 0 0 0 0 0 0 0 0 0 0 0 4", "-> y f32 2 1 : -4 3"}}},
         0},
        {"MatMulNBits of one column whose last block is not full",
         21,
         {"com.microsoft.MatMulNBits y x w s | block_size=i:16 K=i:18 N=i:1",
          "=w u8 1 2 8 : 153 153 153 153 153 153 153 153 169 0 0 0 0 0 0 0", "=s f32 2 : 1 10", NULL},
         {{{"x f32 1 18 : 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "-> y f32 1 1 : 46"}}},
         0},
        {"MatMulNBits of rows in another order",
         21,
         {"com.microsoft.MatMulNBits y x w s - g | block_size=i:16 K=i:32 N=i:1",
          "=w u8 1 2 8 : 153 153 153 153 153 153 153 153 153 153 153 153 153 153 153 153", "=s f32 2 : 1 10",
          "=g i32 32 : 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1", NULL},
         {{{"x f32 1 32 : 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "-> y f32 1 1 : 88"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

static void test_norms(void **state) {
    static const corner corners[] = {
        {"a scale of [1, n] with a bias of [n]",
         17,
         {"LayerNormalization y x s b | axis=i:1 epsilon=f:0", "=s f32 1 2 : 2 3", "=b f32 2 : 10 20", NULL},
         {{{X_OF_NORM, NORMED "8 23 12 17"}}},
         0},
        {"a scale of all with a bias of [1]",
         17,
         {"LayerNormalization y x s b | axis=i:1 epsilon=f:0", "=s f32 2 2 : 1 2 3 4", "=b f32 1 : 10", NULL},
         {{{X_OF_NORM, NORMED "9 12 13 6"}}},
         0},
        {"a scale of [m, 1] without bias",
         17,
         {"LayerNormalization y x s | axis=i:1 epsilon=f:0", "=s f32 2 1 : 2 3", NULL},
         {{{X_OF_NORM, NORMED "-2 2 3 -3"}}},
         0},
        {"a scale of more axes than are normalised",
         17,
         {"LayerNormalization y x s | axis=i:2 epsilon=f:0", "=s f32 1 2 1 : 2 3", NULL},
         {{{X_OF_NORM, NORMED "-2 2 3 -3"}}},
         0},
        {"a root mean square with a scale of [1]",
         23,
         {"RMSNormalization y x s | axis=i:1 epsilon=f:0", "=s f32 1 : 2.2360680", NULL},
         {{{X_OF_NORM, NORMED "1 3 3 1"}}},
         0},
        {"a root mean square with a scale of [m, 1]",
         23,
         {"RMSNormalization y x s | axis=i:1 epsilon=f:0", "=s f32 2 1 : 2.2360680 4.4721360", NULL},
         {{{X_OF_NORM, NORMED "1 3 6 2"}}},
         0},
        {"a batch norm of version 9 with five results is training",
         9,
         {"BatchNormalization y,mean,var,sm,sv x s b m v | epsilon=f:0", "=s f32 1 : 1", "=b f32 1 : 0", "=m f32 1 : 0",
          "=v f32 1 : 9", NULL},
         {{{"x f32 2 1 2 : 1 3 3 1", "-> y f32 2 1 2 : -1 1 1 -1", "-> mean f32 1 : 0.2", "-> var f32 1 : 8.2"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

/* ---- other operators ---------------------------------------------------------------------------------------------------- */

static void test_others(void **state) {
    static const corner corners[] = {
        {"Resize 10: the nearest element by axis",
         10,
         {"Resize y x s", "=s f32 2 : 0.6 2", NULL},
         /* rows: ceil(i / 0.6) = 0 2 4; columns: floor(i / 2) */
         {{{"x f32 5 2 : 1 2 3 4 5 6 7 8 9 10", "-> y f32 3 4 : 1 1 2 2 5 5 6 6 9 9 10 10"}}},
         0},
        {"OneHot: a depth that indices of i8 do not hold",
         21,
         {"OneHot h i d v", "ArgMax y h | axis=i:-1 keepdims=i:0", "=d i64 : 200", "=v i64 2 : 0 1", NULL},
         {{{"i i8 4 : 0 100 -1 -100", "-> y i64 4 : 0 100 199 100"}}},
         0},
        {"Pow: integer exponents are not rounded",
         15,
         {"Pow y x e", NULL},
         {{{"x f32 3 : -1 -1 2", "e i64 3 : 16777217 16777216 -2", "-> y f32 3 : -1 1 0.25"}}},
         0},
        {"Pow: a large integer exponent that is constant",
         15,
         {"Pow y x e", "=e i32 : 16777217", NULL},
         {{{"x f32 2 : -1 1", "-> y f32 2 : -1 1"}}},
         0},
        {"Range of f16 by f32",
         27,
         {"Cast s x | to=i:10", "Cast l n | to=i:10", "Cast d x | to=i:10", "Range r s l d | stash_type=i:1",
          "Cast y r | to=i:1", NULL},
         {{{"x f32 : 1.5", "n f32 : 6.5", "-> y f32 4 : 1.5 3 4.5 6"}}},
         0},
        {"ConstantOfShape of f16",
         21,
         {"Shape s x", "ConstantOfShape h s | value=h:15872", "Cast y h | to=i:1", NULL},
         {{{"x f32 2 : 0 0", "-> y f32 2 : 1.5 1.5"}}},
         0},
        {"Pad: elements are removed before the others wrap around",
         21,
         {"Pad y x p | mode=s:wrap", "=p i64 2 : 3 -2", NULL},
         {{{"x f32 5 : 1 2 3 4 5", "-> y f32 6 : 1 2 3 1 2 3"}}},
         0},
        {"Resize: an image of one colour keeps it",
         13,
         {"Resize y x - s | mode=s:linear", "=s f32 2 : 2 1.5", NULL},
         {{{"x u8 2 2 : 158 158 158 158", "-> y u8 4 3 : 158 158 158 158 158 158 158 158 158 158 158 158"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

/* ---- functions ---------------------------------------------------------------------------------------------------------- */

#define CLIP "@Clipped x,lo,hi y", "+Clip y x lo hi"
static void test_omitted(void **state) {
    static const corner corners[] = {
        {"a call without the last operand",
         18,
         {CLIP, "loc.Clipped y x l", "=l f32 : -1", NULL},
         {{{"x f32 3 : -2 0 2", "-> y f32 3 : -1 0 2"}}},
         0},
        {"a call without an operand in between",
         18,
         {CLIP, "loc.Clipped y x - l", "=l f32 : 1", NULL},
         {{{"x f32 3 : -2 0 2", "-> y f32 3 : -2 0 1"}}},
         0},
        {"a call in a function that passes on what it was not given",
         18,
         {CLIP, "@Outer x,lo,hi y,l,h", "+loc.Clipped y x hi lo", "+OptionalHasElement l lo",
          "+OptionalHasElement h hi", "loc.Outer y,l,h x - bound", "=bound f32 : -1", NULL},
         {{{"x f32 3 : -2 0 2", "-> y f32 3 : -1 0 2", "-> l bool : 0", "-> h bool : 1"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

#define LEAKY "@Leaky x y slope=f:0.25", "+LeakyRelu y x | alpha=r:slope"
static void test_references(void **state) {
    static const corner corners[] = {
        {"a function's default", 18, {LEAKY, "loc.Leaky y x", NULL}, {{{"x f32 2 : -4 4", "-> y f32 2 : -1 4"}}}, 0},
        {"a call that passes on what was given",
         18,
         {LEAKY, "@Outer x y given", "+loc.Leaky y x | slope=r:given", "loc.Outer y x | given=f:0.5", NULL},
         {{{"x f32 2 : -4 4", "-> y f32 2 : -2 4"}}},
         0},
        {"a call that passes on what was not given: the default of the function that is called",
         18,
         {LEAKY, "@Outer x y given", "+loc.Leaky y x | slope=r:given", "loc.Outer y x", NULL},
         {{{"x f32 2 : -4 4", "-> y f32 2 : -1 4"}}},
         0},
        {"the default of the outer function before that of the inner one",
         18,
         {LEAKY, "@Outer x y given=f:0.125", "+loc.Leaky y x | slope=r:given", "loc.Outer y x", NULL},
         {{{"x f32 2 : -8 4", "-> y f32 2 : -1 4"}}},
         0},
        {"a function that nothing calls, of operators that are nowhere",
         18,
         {"@Other x y", "+Nowhere y x", LEAKY, "loc.Leaky y x", NULL},
         {{{"x f32 2 : -4 4", "-> y f32 2 : -1 4"}}},
         0},
        {"neither is given, nor has a default: the operator's",
         18,
         {"@Plain x y slope", "+LeakyRelu y x | alpha=r:slope", "loc.Plain y x", NULL},
         {{{"x f32 2 : -4 4", "-> y f32 2 : -0.04 4"}}},
         0},
    };
    (void)state;
    CHECK_CORNERS(corners);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations), cmocka_unit_test(test_slices),     cmocka_unit_test(test_narrow_sizes),
        cmocka_unit_test(test_float_sizes), cmocka_unit_test(test_quantize),   cmocka_unit_test(test_norms),
        cmocka_unit_test(test_others),      cmocka_unit_test(test_omitted),    cmocka_unit_test(test_counts),
        cmocka_unit_test(test_nibbles),     cmocka_unit_test(test_references),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
