/* The operator table: the list of families, lookup, dtype classes, and shared code of shape rules and compute definitions. The
 * rows themselves are in ops_<family>.c. */
#include "graph/op.h"

#include <stdio.h>

#include "graph/ops_common.h"
#include "graph/origin.h"

/* The families, graph/ops_<name>.c, a line each. */
#define FAMILIES(X) \
    X(source)       \
    X(map)          \
    X(function)     \
    X(special)      \
    X(bits)         \
    X(stored)       \
    X(structure)    \
    X(index)        \
    X(address)      \
    X(reduce)       \
    X(order)        \
    X(statistics)   \
    X(contract)     \
    X(einsum)       \
    X(window)       \
    X(winograd)     \
    X(transposed)   \
    X(random)       \
    X(control)      \
    X(counted)      \
    X(composite)    \
    X(network)      \
    X(normalize)    \
    X(resize)       \
    X(quantize)     \
    X(fourier)      \
    X(signal)       \
    X(matrix)       \
    X(factor)       \
    X(eigen)        \
    X(svd)          \
    X(recurrent)    \
    X(activation)   \
    X(rearrange)    \
    X(sample)       \
    X(regions)      \
    X(decode)       \
    X(training)     \
    X(sequence)     \
    X(distribution) \
    X(pool)         \
    X(iterated)     \
    X(affine)       \
    X(gradient)

#define X(family) extern const graph_op *const graph_ops_##family[];
FAMILIES(X)
#undef X

const graph_op *const *const graph_op_families[] = {
#define X(family) graph_ops_##family,
    FAMILIES(X)
#undef X
        NULL};

/* Linear search: most rows differ in the first characters, and no table has to be built at run time. */
const graph_op *graph_op_find(const char *name) {
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            if ((*row)->name[0] == name[0] && strcmp((*row)->name, name) == 0) return *row;
    return NULL;
}

size_t graph_op_alias(const graph_op *op, int i, const char **word) {
    *word = op->name;
    if (i == 0) return strlen(op->name);
    *word = op->aliases ? op->aliases : "";
    for (; i > 1 && **word; i--) {
        *word += strcspn(*word, " ");
        *word += strspn(*word, " ");
    }
    return strcspn(*word, " ");
}

static int lower(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool reads_alike(const char *name, const char *word, size_t length) {
    const char *end = word + length;
    for (;; name++, word++) {
        while (*name == '_') name++;
        while (word < end && *word == '_') word++;
        if (!*name || word == end) return !*name && word == end;
        if (lower(*name) != lower(*word)) return false;
    }
}

const graph_op *graph_op_find_alias(const char *name) {
    const char *word;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++)
            for (int i = 0; graph_op_alias(*row, i, &word); i++)
                if (reads_alike(name, word, graph_op_alias(*row, i, &word))) return *row;
    return NULL;
}

graph_hint graph_attribute_hint(const graph_op *op, const char *name) {
    graph_hint hint;
    lib_nearest nearest = lib_nearest_to(name);
    for (int i = 0; op->attribute[i].name; i++)
        lib_nearest_try(&nearest, op->attribute[i].name, strlen(op->attribute[i].name));
    size_t at = (size_t)snprintf(hint.text, sizeof hint.text, "%s", lib_nearest_hint(&nearest));
    if (at) return hint;
    if (!op->attribute[0].name) snprintf(hint.text, sizeof hint.text, "; it has none");
    for (int i = 0; op->attribute[i].name && at < sizeof hint.text; i++)
        at += (size_t)snprintf(hint.text + at, sizeof hint.text - at, "%s%s", i ? ", " : "; it has ",
                               op->attribute[i].name);
    return hint;
}

int graph_op_attribute(const graph_op *op, const char *name) {
    for (int i = 0; op->attribute[i].name; i++)
        if (strcmp(op->attribute[i].name, name) == 0) return i;
    return -1;
}

bool graph_is(const graph *g, graph_id value, const char *op_name) {
    return strcmp(graph_node_of(g, value)->op->name, op_name) == 0;
}

/* ---- dtype classes --------------------------------------------------------------------------------------------- */

/* Words of graph_op.dtypes, and the classes of dtypes (lib_dtype_info) that they stand for; p: types stored as codes. */
static const struct {
    const char *word, *classes;
} dtype_words[] = {{"any", "biuf"},  {"number", "iuf"}, {"float", "f"},   {"int", "iu"},
                   {"signed", "if"}, {"unsigned", "u"}, {"all", "biufcp"}};

static bool word_accepts(const char *word, size_t length, dlc_dtype dtype) {
    const lib_dtype_info *info = &lib_dtypes[dtype];
    if (strlen(info->name) == length && memcmp(info->name, word, length) == 0) return true;
    for (size_t i = 0; i < sizeof dtype_words / sizeof *dtype_words; i++)
        if (strlen(dtype_words[i].word) == length && memcmp(dtype_words[i].word, word, length) == 0)
            return strchr(dtype_words[i].classes, lib_dtype_is_encoded(dtype) ? 'p' : info->class_) != NULL;
    return false;
}

bool graph_expands(const graph_node *node) {
    if (node->op->class_ == GRAPH_COMPOSITE) return true;
    if (!node->op->expand) return false;
    const int sizes = graph_op_attribute(node->op, "sizes");
    return sizes < 0 || node->attribute[sizes].count > 0;
}

/* f64: one unit more than published, because references have errors, too. */
double graph_op_tolerance(const graph_op *op, dlc_dtype dtype) {
    const graph_accuracy *a = &op->accuracy;
    if (op->tolerance > 0 || a->f32 == 0) return op->tolerance;
    if (dtype == DLC_F64) return a->f64 + (a->f64 > 0.5 ? 1 : 0);
    return lib_dtype_is_narrow_float(dtype) ? 0.5 + a->f32 / 1024 : a->f32;
}

bool graph_op_accepts(const graph_op *op, dlc_dtype dtype) {
    if ((unsigned)dtype >= DLC_DTYPE_COUNT || !lib_dtypes[dtype].usable) return false;
    if (!op->dtypes) return true;
    for (const char *word = op->dtypes; *word;) {
        size_t length = strcspn(word, " ");
        if (word_accepts(word, length, dtype)) return true;
        word += length;
        word += strspn(word, " ");
    }
    return false;
}

/* ---- operand names --------------------------------------------------------------------------------------------- */

/* name: word number `operand` of op->operands without brackets and dots; the last word names all further operands. */
void graph_op_operand(const graph_op *op, int operand, char name[32], bool *optional) {
    const char *word = op->operands ? op->operands : "";
    size_t length = strcspn(word, " ");
    for (int i = 0; i < operand && word[length]; i++) {
        word += length + 1;
        length = strcspn(word, " ");
    }
    *optional = length > 0 && word[0] == '[';
    if (*optional) word++, length -= length > 1 && word[length - 2] == ']' ? 2 : 1;
    while (length > 0 && word[length - 1] == '.') length--;
    if (length == 0) word = "x", length = 1;
    if (length > 31) length = 31;
    memcpy(name, word, length);
    name[length] = 0;
}

/* Is the operand written T[...] in the row's first sample? Operands behind the last one of the sample are like that one. */
bool graph_op_operand_is_typed(const graph_op *op, int operand) {
    const char *at = op->samples ? strchr(op->samples, '(') : NULL;
    if (!at) return false;
    bool typed = false;
    int depth = 0, index = 0;
    const char *word = ++at;
    for (; *at && *at != '\n'; at++) {
        if (depth == 0 && (*at == ',' || *at == ')')) {
            word += strspn(word, " ");
            size_t name = strcspn(word, "=[(,)");
            if (word[name] == '=') return typed; /* attributes begin */
            typed = name == 1 && *word == 'T';
            if (index++ == operand || *at == ')') return typed;
            word = at + 1;
        }
        depth += *at == '[' || *at == '(';
        depth -= *at == ']' || *at == ')';
    }
    return typed;
}

/* ---- shape rules ----------------------------------------------------------------------------------------------- */

enum { DESCRIBED = 6 }; /* at most this many operands, so that the error still fits in the message */

/* "add(x: f32[2, 3], f32[4])" */
static void describe(lib_text *text, const graph_infer *infer) {
    lib_text_format(text, "%s(", infer->op->name);
    for (int i = 0; i < infer->inputs; i++) {
        if (!infer->input[i]) continue;
        if (i) lib_text_add(text, ", ");
        if (i == DESCRIBED && infer->inputs > DESCRIBED + 1) {
            lib_text_format(text, "%d more", infer->inputs - i);
            break;
        }
        const graph_value *value = &infer->g->values.data[infer->written[i]];
        const char *name = graph_shown_name(infer->g, infer->written[i]);
        if (name) {
            graph_print_name(text, name);
            lib_text_add(text, ": ");
        }
        graph_describe_shape(text, infer->g, &value->shape);
    }
    lib_text_add(text, ")");
}

void graph_infer_raise(const graph_infer *infer, dlc_status status, const char *message) {
    lib_text text;
    lib_text_init(&text, infer->g->arena);
    describe(&text, infer);
    lib_raise(infer->g->arena->scope, status, "%s: %s", text.data, message);
}

void graph_infer_fail(const graph_infer *infer, const char *format, ...) {
    lib_text text;
    lib_text_init(&text, infer->g->arena);
    va_list arguments;
    va_start(arguments, format);
    lib_text_format_v(&text, format, arguments);
    va_end(arguments);
    graph_infer_raise(infer, DLC_INVALID_ARGUMENT, text.data);
}

void graph_infer_equal(const graph_infer *infer, tir_expr a, tir_expr b, const char *what) {
    if (a == b || tir_equal(infer->g->pool, a, b) == TIR_YES) return;
    lib_text text;
    lib_text_init(&text, infer->g->arena);
    describe(&text, infer);
    graph_require_equal(infer->g, a, b, "%s: %s must be equal", text.data, what);
}

void graph_infer_inner(const graph_infer *infer, int axis, const char *what, const char *remedy) {
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1];
    tir_expr inner = x->dim[x->rank - 1];
    int other = axis == w->rank - 1 ? w->rank - 2 : w->rank - 1; /* the other one of w's last two axes */
    bool transposed = w->rank >= 2 && tir_equal(infer->g->pool, inner, w->dim[axis]) == TIR_NO &&
                      tir_equal(infer->g->pool, inner, w->dim[other]) == TIR_YES;
    if (transposed)
        graph_infer_fail(infer, "%s must be equal: w is %s, where %s is expected: %s", what,
                         axis < other ? "[out, in]" : "[in, out]", axis < other ? "[in, out]" : "[out, in]", remedy);
    graph_infer_equal(infer, inner, w->dim[axis], what);
}

int graph_infer_axis(const graph_infer *infer, int64_t axis, int rank, const char *what) {
    if (axis < -rank || axis >= rank)
        graph_infer_fail(infer, "%s %lld is out of range: expected %d to %d for rank %d", what, (long long)axis, -rank,
                         rank - 1, rank);
    return (int)(axis < 0 ? axis + rank : axis);
}

uint32_t graph_infer_axes(const graph_infer *infer, const graph_attribute *axes, int rank, const char *what) {
    uint32_t set = 0;
    for (int i = 0; i < axes->count; i++) {
        uint32_t bit = 1u << graph_infer_axis(infer, axes->list[i], rank, what);
        if (set & bit) graph_infer_fail(infer, "%s %lld is given twice", what, (long long)axes->list[i]);
        set |= bit;
    }
    return set;
}

void graph_infer_dtype(const graph_infer *infer, int operand, dlc_dtype expected) {
    if (infer->operand[operand].dtype == expected) return;
    char name[32];
    bool optional;
    graph_op_operand(infer->op, operand, name, &optional);
    graph_infer_fail(infer, "operand `%s` is %s, expected %s", name, lib_dtypes[infer->operand[operand].dtype].name,
                     lib_dtypes[expected].name);
}

void graph_infer_rank(const graph_infer *infer, int operand, int expected) {
    if (infer->operand[operand].rank == expected) return;
    char name[32];
    bool optional;
    graph_op_operand(infer->op, operand, name, &optional);
    graph_infer_fail(infer, "operand `%s` has rank %d, expected %d", name, infer->operand[operand].rank, expected);
}

void graph_infer_same_dtype(const graph_infer *infer, int first, int count) {
    for (int i = first + 1; i < first + count; i++) {
        if (infer->operand[i].rank < 0 || infer->operand[i].dtype == infer->operand[first].dtype) continue;
        char name[32], other[32];
        bool optional;
        graph_op_operand(infer->op, first, name, &optional);
        graph_op_operand(infer->op, i, other, &optional);
        graph_infer_fail(infer,
                         "operands `%s` and `%s` have dtypes %s and %s; expected one dtype (there is no implicit "
                         "conversion: use cast)",
                         name, other, lib_dtypes[infer->operand[first].dtype].name,
                         lib_dtypes[infer->operand[i].dtype].name);
    }
}

void graph_infer_same_shape(const graph_infer *infer, int count) {
    const graph_shape *a = &infer->operand[0];
    bool stretched = false; /* ranks of the written operands differ: then messages count dimensions from the end */
    for (int i = 0; i < count; i++)
        stretched |= infer->input[i] && graph_shape_of(infer->g, infer->written[i])->rank != infer->operand[i].rank;
    for (int i = 1; i < count; i++) {
        const graph_shape *b = &infer->operand[i];
        if (b->rank < 0) continue;
        if (a->rank != b->rank)
            graph_infer_fail(infer, "operands have ranks %d and %d, expected one shape", a->rank, b->rank);
        for (int axis = 0; axis < a->rank; axis++) {
            char what[48] = "sizes of dimension ";
            size_t length = strlen(what);
            int number = stretched ? a->rank - axis : axis;
            if (stretched) what[length++] = '-';
            if (number >= 10) what[length++] = (char)('0' + number / 10);
            what[length++] = (char)('0' + number % 10);
            what[length] = 0;
            graph_infer_equal(infer, a->dim[axis], b->dim[axis], what);
        }
    }
}

void graph_infer_map(graph_infer *infer) {
    graph_infer_same_dtype(infer, 0, infer->inputs);
    graph_infer_same_shape(infer, infer->inputs);
    infer->result[0] = infer->operand[0];
}

void graph_infer_compare(graph_infer *infer) {
    graph_infer_map(infer);
    infer->result[0].dtype = DLC_BOOL;
}

graph_shape *graph_infer_results(graph_infer *infer, int results) {
    infer->results = results;
    return infer->result = LIB_NEW_ARRAY(infer->g->arena, graph_shape, (size_t)results);
}

/* ---- compute --------------------------------------------------------------------------------------------------- */

bool graph_op_has_scalar(const graph_op *op) {
    return op->class_ == GRAPH_MAP && !op->compute && (op->scalar || op->operation);
}

tir_expr graph_op_scalar(const graph_op *op, tir_pool *pool, tir_dtype dtype, const tir_expr *operands,
                         const graph_attribute *attribute) {
    if (op->scalar) return op->scalar(pool, dtype, operands, attribute);
    if (op->max_inputs == 1) return tir_unary(pool, op->operation, operands[0]);
    return tir_binary(pool, op->operation, operands[op->reversed], operands[!op->reversed]);
}

void graph_compute_row(graph_compute *compute) {
    const graph_op *op = compute->op;
    if (op->compute) {
        op->compute(compute);
        return;
    }
    tir_expr operand[DLC_MAX_RANK + 4];
    if (!graph_op_has_scalar(op) || compute->inputs > (int)(sizeof operand / sizeof *operand))
        lib_raise(compute->region->arena->scope, DLC_INTERNAL, "operator %s has no compute definition", op->name);
    const graph_shape *shape = compute->result_shape;
    tir_expr index[DLC_MAX_RANK];
    tir_stage *stage = graph_map_stage(compute, shape, index);
    for (int i = 0; i < compute->inputs; i++)
        operand[i] =
            compute->operand[i] == GRAPH_NONE ? 0 : tir_region_load(compute->region, compute->operand[i], index);
    tir_expr value = graph_op_scalar(op, compute->pool, (tir_dtype)shape->dtype, operand, compute->attribute);
    compute->result[0] = tir_stage_value(compute->region, stage, value, 0, 0);
}
