/* Graphs as ONNX files: written, read again by the importer, and run beside the original on the same data. Every row of the operator table is
 * in one of three classes - exported by a form of its own, by expansion, not at all with a reason -, which are counted.
 *
 *   export_test [--verbose] [--types] [--symbols] [--write FOLDER] [ROW...]
 *
 * --types: all element types of each row, in place of f32, i32 and bool. --symbols: sizes are symbols. --write keeps the models and their data there (k.onnx, k.in0.npy, k.out0.npy, ...) for export_oracle.py. */
#include "api/support.h"
#include "conformance/sample.h"
#include "graph/build.h"
#include "graph/onnx/export.h"
#include "test/asked.h"
#include "test/share.h"

#include <dirent.h>
#include <dlc/extend.h>
#include <dlc/onnx.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 512, MOST = 16 };

static dlc_context *context;
static counter memory;
static char folder[] = "/tmp/dlc-export-XXXXXX";
static const char *kept; /* folder of --write */
/* symbolic: sizes of 4 and more are symbols, one for each size */
static bool verbose, all_types, symbolic;
static char **chosen;
static int choices;

static const char *in(const char *name) {
    static char path[4][PATH];
    static int next;
    char *at = path[next = (next + 1) % 4];
    snprintf(at, PATH, "%s/%s", folder, name);
    return at;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

/* An operand: as the graph has it, and as the file has it, where complex numbers are pairs. */
typedef struct datum {
    DLTensor view, pairs;
    int64_t shape[DLC_MAX_RANK + 1];
    double *doubles;
    size_t bytes;
} datum;

static void make_operand(datum *o, const sample_operand *s, int number, uint64_t seed) {
    int64_t count = 1;
    for (int d = 0; d < s->rank; d++) count *= o->shape[d] = s->dim[d];
    o->shape[s->rank] = 2;
    o->bytes = lib_dtype_bytes(s->dtype, (size_t)count);
    o->view =
        (DLTensor){.device = {kDLCPU, 0}, .ndim = s->rank, .dtype = lib_dtype_to_dlpack(s->dtype), .shape = o->shape};
    o->view.data = calloc(1, o->bytes + 16);
    o->doubles = calloc((size_t)count + 1, sizeof(double));
    if (lib_dtype_is_packed(s->dtype))
        for (size_t i = 0; i < o->bytes; i++) ((uint8_t *)o->view.data)[i] = (uint8_t)(sample_random(&seed) & 0xff);
    else if (s->dtype == DLC_C64)
        for (int64_t i = 0; i < 2 * count; i++) ((float *)o->view.data)[i] = (float)sample_uniform(&seed, -2, 2);
    else
        sample_data(s, number, SAMPLE_TAME, seed, count, o->view.data, o->doubles);
    o->pairs = o->view;
    if (s->dtype == DLC_C64) o->pairs.dtype = lib_dtype_to_dlpack(DLC_F32), o->pairs.ndim++;
}

static void free_operand(datum *o) {
    free(o->view.data);
    free(o->doubles);
}

/* The greatest difference, over the greatest magnitude of the expected; -1: other types or shapes. */
static double difference_of(const DLTensor *got, const DLTensor *expected) {
    dlc_dtype a, b;
    int64_t count, others;
    if (!lib_dtype_from_dlpack(got->dtype, &a) || !lib_dtype_from_dlpack(expected->dtype, &b)) return -1;
    if (!lib_tensor_count(got, &others) || !lib_tensor_count(expected, &count)) return -1;
    if (b == DLC_C64) b = DLC_F32, count *= 2;
    if (a != b || count != others) return -1;
    for (int d = 0; d < expected->ndim; d++)
        if (got->shape[d] != expected->shape[d]) return -1;
    if (memcmp((char *)got->data, (char *)expected->data, lib_dtype_bytes(a, (size_t)count)) == 0) return 0;
    if (lib_dtype_is_packed(a)) return 1;
    double most = 0, scale = 0;
    for (int64_t i = 0; i < count; i++) {
        const size_t at = (size_t)i * lib_dtype_size(a);
        const double x = lib_element_get_f64(a, (char *)got->data + at),
                     y = lib_element_get_f64(a, (char *)expected->data + at);
        if (isfinite(y) && fabs(y) > scale) scale = fabs(y);
        if ((isnan(x) && isnan(y)) || x == y) continue;
        if (!isfinite(x) || !isfinite(y)) return 1;
        if (fabs(x - y) > most) most = fabs(x - y);
    }
    return scale > 0 ? most / scale : most;
}

/* ---- NumPy's files, for the oracle ---------------------------------------------------------------------------------------- */

static const char *npy_type(dlc_dtype dtype) {
    switch (dtype) {
    case DLC_BOOL: return "|b1";
    case DLC_I8: return "|i1";
    case DLC_U8: return "|u1";
    case DLC_I16: return "<i2";
    case DLC_U16: return "<u2";
    case DLC_I32: return "<i4";
    case DLC_U32: return "<u4";
    case DLC_I64: return "<i8";
    case DLC_U64: return "<u8";
    case DLC_F16: return "<f2";
    case DLC_F32: return "<f4";
    case DLC_F64: return "<f8";
    case DLC_C64: return "<c8";
    default: return NULL;
    }
}

static bool write_npy(const char *path, const DLTensor *t) {
    dlc_dtype dtype;
    int64_t count;
    char header[512];
    if (!lib_dtype_from_dlpack(t->dtype, &dtype) || !npy_type(dtype) || !lib_tensor_count(t, &count)) return false;
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", npy_type(dtype));
    for (int d = 0; d < t->ndim; d++)
        n += snprintf(header + n, sizeof header - (size_t)n, "%lld,", (long long)t->shape[d]);
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    while ((n + 10 + 1) % 64) header[n++] = ' ';
    header[n++] = '\n';
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc(n & 255, file), fputc(n >> 8, file);
    fwrite(header, 1, (size_t)n, file);
    fwrite(t->data, 1, lib_dtype_bytes(dtype, (size_t)count), file);
    return fclose(file) == 0;
}

/* ---- a graph, exported and imported -------------------------------------------------------------------------------------------- */

typedef struct outcome {
    dlc_status written, read;
    char message[512];
    /* 0: equal bits */
    double difference;
    int opset;
} outcome;

static dlc_graph *import(const char *path, outcome *o) {
    dlc_onnx_model *model;
    dlc_graph *g = NULL;
    o->read = dlc_onnx_open(context, path, NULL, &model);
    if (o->read == DLC_OK) o->read = dlc_onnx_graph(model, NULL, &g);
    if (o->read != DLC_OK) snprintf(o->message, sizeof o->message, "%.500s", dlc_error_message(context));
    dlc_onnx_destroy(model);
    return g;
}

/* Runs it; false: with a message. */
static bool run(dlc_graph *g, const DLTensor *const *inputs, int count, dlc_output_slot *out, int outputs, outcome *o) {
    dlc_program *program;
    dlc_status status = dlc_compile(context, g, NULL, &program);
    if (status == DLC_OK) status = dlc_run(program, NULL, inputs, count, out, outputs);
    if (status != DLC_OK) snprintf(o->message, sizeof o->message, "%.500s", dlc_error_message(context));
    dlc_program_destroy(program);
    return status == DLC_OK;
}

static void release(dlc_output_slot *out, int count) {
    for (int i = 0; i < count; i++)
        if (out[i].managed) out[i].managed->deleter(out[i].managed);
}

static void keep_for_oracle(const char *path, const datum *operands, const int *order, int inputs,
                            const dlc_output_slot *out, int outputs, const char *line) {
    static int number;
    char name[PATH];
    bool good = true;
    if (!kept) return;
    for (int i = 0; i < inputs && good; i++) {
        snprintf(name, sizeof name, "%s/%05d.in%d.npy", kept, number, i);
        good = write_npy(name, &operands[order[i]].pairs);
    }
    for (int i = 0; i < outputs && good; i++) {
        snprintf(name, sizeof name, "%s/%05d.out%d.npy", kept, number, i);
        good = write_npy(name, &out[i].managed->dl_tensor);
    }
    snprintf(name, sizeof name, "%s/%05d.txt", kept, number);
    FILE *file = good ? fopen(name, "w") : NULL;
    if (!file) return;
    fprintf(file, "%s\n", line);
    fclose(file);
    snprintf(name, sizeof name, "%s/%05d.onnx", kept, number++);
    if (rename(path, name) != 0) perror(name);
}

/* Both graphs on the operands (order[i]: that of input i). */
static void compare(dlc_graph *g, const char *line, const datum *operands, const int *order, int inputs, int outputs,
                    outcome *o) {
    const char *path = in("sample.onnx");
    const DLTensor *given[MOST], *pairs[MOST];
    dlc_output_slot expected[MOST] = {{0}}, got[MOST] = {{0}};
    *o = (outcome){.difference = 0};
    o->written = dlc_onnx_write(context, path, g, NULL);
    if (o->written != DLC_OK) {
        snprintf(o->message, sizeof o->message, "%.500s", dlc_error_message(context));
        return;
    }
    for (int i = 0; i < inputs; i++) given[i] = &operands[order[i]].view, pairs[i] = &operands[order[i]].pairs;
    dlc_graph *again = import(path, o);
    const bool runs = run(g, given, inputs, expected, outputs, o);
    if (!runs && !symbolic) fail_msg("%s: %s", line, o->message);
    if (!runs) o->written = DLC_NOT_FOUND; /* attributes fix the sizes to others */
    if (runs && again && !run(again, pairs, inputs, got, outputs, o)) fail_msg("%s, imported: %s", line, o->message);
    for (int i = 0; runs && again && i < outputs; i++) {
        const double own = difference_of(&got[i].managed->dl_tensor, &expected[i].managed->dl_tensor);
        if (own < 0) fail_msg("%s: result %d has another type or shape", line, i);
        if (own > o->difference) o->difference = own;
    }
    if (runs && !symbolic) keep_for_oracle(path, operands, order, inputs, expected, outputs, line);
    release(expected, outputs), release(got, outputs);
    dlc_graph_destroy(again);
    unlink(path);
}

/* ---- every row's samples ---------------------------------------------------------------------------------------------------------- */

/* Differences over the greatest magnitude that are allowed: of rows whose form in ONNX rounds elsewhere. All others have equal bits. */
static const struct allowance {
    const char *row;
    double most;
} allowances[] = {
    {"expm1", 3e-7},
    {"log1p", 3e-7},
    {"cbrt", 3e-7},
    {"atan2", 3e-7},
    {"exp2", 3e-7},
    {"exp10", 3e-7},
    {"log_add_exp", 3e-7},
    {"log2", 3e-7},
    {"log10", 3e-7},
    {"normal_cdf", 3e-7},
    {"erfc", 3e-7},
    {"angle", 3e-7},
    {"lgamma", 3e-7},
    {"digamma", 3e-7},
    {"reduce_window", 3e-7},
    {"average_pool", 3e-7},
    {"binary_cross_entropy", 3e-7},
    {"gru", 3e-7},
    {"lstm", 3e-7},
    {"log_sigmoid", 3e-7},
    {"glu", 3e-7},
    {"rng_exponential", 3e-7},
    {NULL, 0},
};

/* In units of the type; with --types and --symbols last bits are left to all rows. */
static double allowed(const char *row, dlc_dtype dtype) {
    const double unit = lib_dtype_is_float(dtype) ? ldexp(1, 1 - lib_float_of(dtype).digits) : 0;
    for (const struct allowance *a = allowances; a->row; a++)
        if (strcmp(a->row, row) == 0) return a->most * fmax(1, unit / ldexp(1, -23));
    return all_types || symbolic ? 32 * unit : 0;
}

typedef struct tally {
    int written, refused, unread, equal, close;
    double most;
    bool differs;
    char message[512];
} tally;

static dlc_graph *parse_printed(lib_arena *arena, const graph *g) {
    lib_text text;
    dlc_graph *handle;
    lib_text_init(&text, arena);
    graph_print(&text, g);
    OK(context, dlc_graph_parse(context, text.data, text.length, &handle));
    return handle;
}

/* A sample as a graph, and data for its operands; order[i]: the operand of input i. */
typedef struct example {
    graph *g;
    sample s;
    datum operands[SAMPLE_OPERANDS];
    int order[SAMPLE_OPERANDS], inputs, results;
    graph_id first;
} example;

static void emit_example(lib_arena *arena, const graph_op *op, const char *line, example *e) {
    graph_id id[SAMPLE_OPERANDS];
    graph *g = e->g = graph_new(arena, NULL);
    sample_parse(&e->s, g, op, line);
    for (int i = 0; i < e->s.operands; i++) {
        const sample_operand *o = &e->s.operand[i];
        graph_shape shape = {.dtype = o->dtype, .rank = o->rank};
        for (int d = 0; d < shape.rank; d++)
            shape.dim[d] = symbolic && o->dim[d] > 3
                               ? graph_symbol_named(g, lib_arena_format(arena, "n%lld", (long long)o->dim[d]))
                               : tir_index(g->pool, o->dim[d]);
        id[i] = o->left_out ? 0 : graph_new_input(g, lib_arena_format(arena, "x%d", i), &shape);
        if (!id[i]) continue;
        make_operand(&e->operands[i], o, i, (uint64_t)i + 1);
        e->order[e->inputs++] = i;
    }
    e->first = graph_emit(g, op, e->s.operands, id, e->s.attribute);
    e->results = graph_node_of(g, e->first)->results;
    for (int i = 0; i < e->results; i++) graph_new_output(g, lib_arena_format(arena, "y%d", i), e->first + (graph_id)i);
}

/* False: the row does not take symbols there. */
static bool can_emit(lib_arena *arena, const graph_op *op, const char *line, example *e) {
    lib_scope scope, *outer = arena->scope;
    bool good = false;
    arena->scope = &scope;
    if (LIB_ENTER(&scope)) {
        emit_example(arena, op, line, e);
        good = true;
    } else if (!symbolic)
        fail_msg("%s: %s", line, scope.error.message);
    arena->scope = outer;
    return good;
}

static void count_outcome(const graph_op *op, const char *line, const example *e, const outcome *o, tally *t) {
    if (o->written == DLC_NOT_FOUND && symbolic) return;
    if (o->written != DLC_OK || o->read != DLC_OK) memcpy(t->message, o->message, sizeof t->message);
    if (o->written != DLC_OK && o->written != DLC_UNSUPPORTED) fail_msg("%s: %s", line, o->message);
    if (o->read != DLC_OK && o->read != DLC_UNSUPPORTED) fail_msg("%s: %s", line, o->message);
    t->written += o->written == DLC_OK;
    t->refused += o->written != DLC_OK;
    t->unread += o->read != DLC_OK;
    if (o->written != DLC_OK || o->read != DLC_OK) return;
    t->equal += o->difference == 0;
    t->close += o->difference != 0;
    if (o->difference > t->most) t->most = o->difference;
    if (o->difference > allowed(op->name, graph_shape_of(e->g, e->first)->dtype)) {
        t->differs = true;
        snprintf(t->message, sizeof t->message, "%s differs by %g", line, o->difference);
        if (verbose) printf("  %s\n", t->message);
    }
}

static void test_sample(lib_arena *arena, const graph_op *op, const char *line, tally *t) {
    example *e = LIB_NEW(arena, example);
    outcome o;
    if (can_emit(arena, op, line, e)) {
        dlc_graph *handle = parse_printed(arena, e->g);
        compare(handle, line, e->operands, e->order, e->inputs, e->results, &o);
        dlc_graph_destroy(handle);
        count_outcome(op, line, e, &o, t);
    }
    for (int i = 0; i < e->s.operands; i++) free_operand(&e->operands[i]);
}

/* f32, i32, bool, and the first type of rows that take neither. */
static void test_dtypes(lib_arena *arena, const graph_op *op, const char *line, size_t length, tally *t) {
    bool varies = false, any = false;
    for (int d = 0; d < DLC_DTYPE_COUNT; d++) {
        const dlc_dtype dtype = (dlc_dtype)d;
        const bool usual =
            symbolic ? dtype == DLC_F32 : all_types || dtype == DLC_F32 || dtype == DLC_I32 || dtype == DLC_BOOL;
        if (!lib_dtypes[d].usable || !graph_op_accepts(op, dtype) || !usual) continue;
        if (dtype == DLC_C64 && strcmp(op->name, "cast") == 0) continue; /* not to a real type */
        const char *text = sample_line(arena, line, length, dtype, &varies);
        test_sample(arena, op, text, t);
        any = true;
        if (!varies) return;
    }
    for (int d = 0; d < DLC_DTYPE_COUNT && !any; d++) {
        if (!lib_dtypes[d].usable || !graph_op_accepts(op, (dlc_dtype)d)) continue;
        test_sample(arena, op, sample_line(arena, line, length, (dlc_dtype)d, &varies), t);
        any = true;
    }
}

/* The first sample and, with DLC_TEST_SHARE, every fourth after it, or every twelfth. */
static bool is_taken(int number) {
    return number % (test_is_shortest() ? 12 : 4) == 0 || choices || test_every() == 1;
}

static void test_row(const graph_op *op, tally *t) {
    int number = 0;
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        for (const char *line = op->samples; *line;) {
            const size_t length = strcspn(line, "\n");
            if (is_taken(number++)) test_dtypes(&arena, op, line, length, t);
            line += length + (line[length] == '\n');
        }
    } else
        fail_msg("%s: %s", op->name, scope.error.message);
    lib_arena_free(&arena);
}

static bool is_chosen(const graph_op *op) {
    for (int i = 0; i < choices; i++)
        if (strcmp(chosen[i], op->name) == 0) return true;
    return choices == 0;
}

static const char *refusal(const graph_op *op) {
    return op->samples ? NULL : " has no samples";
}

static void test_samples(void **state) {
    int failures = 0;
    (void)state;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            const graph_op *op = *row;
            const char *why;
            tally t = {.written = 0};
            if (refusal(op) || !is_chosen(op)) continue;
            if (symbolic && (op->algebra & GRAPH_BY_NUMBERS)) continue; /* slow */
            const bool none = onnx_export_class_of(op, &why) == ONNX_EXPORT_NONE;
            test_row(op, &t);
            const bool bad = none ? t.written > 0 : (t.written == 0 && !symbolic) || t.differs;
            failures += bad;
            if (verbose || bad || (t.written && t.refused))
                printf("%-28s %3d written %3d refused %3d not read %3d equal %3d close (%.3g)  %s%.300s\n", op->name,
                       t.written, t.refused, t.unread, t.equal, t.close, t.most, bad ? "BAD " : "", t.message);
        }
    assert_int_equal(failures, 0);
}

/* The same with sizes that the model computes. */
static void test_symbolic_samples(void **state) {
    const bool before = symbolic;
    symbolic = true;
    test_samples(state);
    symbolic = before;
}

/* ---- classes of rows ------------------------------------------------------------------------------------------------------------------ */

static void test_classes(void **state) {
    static const char *const names[] = {"a form of its own", "by expansion", "not exported"};
    int count[3] = {0};
    (void)state;
    for (const graph_op *const *const *family = graph_op_families; *family; family++)
        for (const graph_op *const *row = *family; *row; row++) {
            const char *why;
            const onnx_export_class class_ = onnx_export_class_of(*row, &why);
            count[class_]++;
            if (class_ == ONNX_EXPORT_NONE && !onnx_export_row_of(*row))
                fail_msg("%s: a primitive without an onnx_export_row; if ONNX has no form for it, the row says `.why`",
                         (*row)->name);
            if ((class_ == ONNX_EXPORT_NONE) != (why != NULL)) fail_msg("%s: its class has no reason", (*row)->name);
            if (verbose || class_ == ONNX_EXPORT_NONE)
                printf("%-28s %s%s%s\n", (*row)->name, names[class_], why ? ": " : "", why ? why : "");
        }
    const int all = count[0] + count[1] + count[2];
    printf("%d rows: %d have a form of their own, %d are exported by expansion, %d are not\n", all, count[0], count[1],
           count[2]);
    assert_true(10 * (count[0] + count[1]) >= 9 * all);
    for (const onnx_export_row *const *table = onnx_export_tables; *table; table++)
        for (const onnx_export_row *row = *table; row->row; row++)
            if (!graph_op_find(row->row)) fail_msg("there is no row %s", row->row);
}

/* ---- graphs with symbols and control flow ---------------------------------------------------------------------------------------------- */

static dlc_graph *parse(const char *text) {
    dlc_graph *g;
    OK(context, dlc_graph_parse(context, text, strlen(text), &g));
    return g;
}

#define F32_OF(...)                                                                            \
    {                                                                                          \
        .dtype = DLC_F32, .rank = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = { __VA_ARGS__ } \
    }
#define I64_SCALAR(from, to) \
    { .dtype = DLC_I64, .limited = true, .low = from, .high = to }

/* The imported graph computes the same for such operands, within `most` of the greatest magnitude. */
static void same(const char *text, const sample_operand *operand, int inputs, int outputs, double most) {
    datum operands[MOST];
    memset(operands, 0, sizeof operands);
    int order[MOST];
    outcome o;
    dlc_graph *g = parse(text);
    for (int i = 0; i < inputs; i++) {
        make_operand(&operands[i], &operand[i], i, 7);
        order[i] = i;
    }
    compare(g, text, operands, order, inputs, outputs, &o);
    for (int i = 0; i < inputs; i++) free_operand(&operands[i]);
    dlc_graph_destroy(g);
    if (o.written != DLC_OK || o.read != DLC_OK || o.difference > most)
        fail_msg("%s: %s, differs by %g", text, o.message, o.difference);
}

/* Sizes that are expressions of symbols are computed by the model. */
static void test_symbols(void **state) {
    static const char text[] =
        "graph { input x: f32[n, 3] input w: f32[3, m] d = dot(x, w) r = reshape(x, shape=[n*3]) s = slice(r, start=[n], "
        "stop=[2*n]) z = dimension(size=[n*m + 2]) i = iota(dtype=f32, shape=[n, m], axis=1) e = add(d, i) "
        "t = broadcast(s, shape=[2, n], axes=[1]) output e output s output z output t }";
    static const char doubled[] =
        "graph { input x: f32[2*n + 1, k] input u: f32[n] r = reshape(x, shape=[k*(2*n + 1)]) s = slice(r, "
        "start=[0], stop=[n]) v = neg(u) output r output s output v }";
    (void)state;
    for (int64_t n = 1; n < 6; n += 2)
        for (int64_t m = 1; m < 4; m++) {
            const sample_operand operands[] = {F32_OF(n, 3), F32_OF(3, m)};
            same(text, operands, 2, 4, 0);
        }
    same(doubled, (const sample_operand[]){F32_OF(7, 2), F32_OF(3)}, 2, 3, 0);
}

/* Sizes that data decide are those of the tensors that have them. */
static void test_counted(void **state) {
    static const char text[] =
        "graph { input x: f32[n] i = non_zero(x, size=[k]) r = reshape(i, shape=[k]) y = gather(x, r, "
        "axis=0) z = dimension(size=[2*k + n]) output y output z }";
    static const char cut[] =
        "graph { input c: i64[] input x: f32[n] y = cut(c, x, size=[k]) s = reduce_sum(y) output s }";
    (void)state;
    same(text, (const sample_operand[]){F32_OF(9)}, 1, 2, 0);
    dlc_graph *g = parse(cut);
    OK(context, dlc_onnx_write(context, in("cut.onnx"), g, NULL));
    dlc_graph_destroy(g);
    unlink(in("cut.onnx"));
}

static void test_control(void **state) {
    static const char branches[] =
        "graph { input c: bool[] input x: f32[n, 3] y, z = if(c, x, then=graph { input x: f32[n, 3] e = exp(x) output e "
        "output x }, otherwise=graph { input x: f32[n, 3] e = neg(x) s = mul(x, e) output e output s }) output y output z }";
    static const char loop[] =
        "graph { input i: i64[] input x: f32[n] input y: f32[n] a, b = while(i, x, y, condition=graph { input i: i64[] input "
        "x: f32[n] input y: f32[n] ten = constant i64[] {10} c = lt(i, ten) output c }, body=graph { input i: i64[] input x: "
        "f32[n] input y: f32[n] one = constant i64[] {1} j = add(i, one) z = add(x, y) output j output z }) output a output b }";
    static const char scan[] =
        "graph { input h: f32[3] input x: f32[n, 3] input w: f32[3] a, b, c = scan(h, x, w, body=graph { input h: f32[3] input "
        "x: f32[3] input w: f32[3] m = mul(x, w) s = add(h, m) output s output s output m }, carries=1, sequences=1, "
        "reverse=[0, 0, 1]) output a output b output c }";
    static const char counted[] =
        "graph { input h: f32[3] input x: f32[n, 2] a, b = scan(h, body=graph { input h: f32[3] s = add(h, h) output s output h "
        "}, carries=1, sequences=0, length=[n]) output a output b }";
    (void)state;
    for (int on = 0; on < 2; on++) {
        const sample_operand condition = {.dtype = DLC_BOOL, .limited = true, .low = on, .high = on + 1};
        same(branches, (const sample_operand[]){condition, F32_OF(4, 3)}, 2, 2, 0);
    }
    for (int from = 7; from < 13; from += 3)
        same(loop, (const sample_operand[]){I64_SCALAR(from, from + 1), F32_OF(5), F32_OF(5)}, 3, 2, 0);
    same(scan, (const sample_operand[]){F32_OF(3), F32_OF(5, 3), F32_OF(3)}, 3, 3, 0);
    same(counted, (const sample_operand[]){F32_OF(3), F32_OF(4, 2)}, 2, 2, 0);
}

static void refuses(const char *text, const char *name, const dlc_onnx_write_options *options, dlc_status status,
                    const char *words) {
    dlc_graph *g = parse(text);
    const dlc_status got = dlc_onnx_write(context, in(name), g, options);
    if (got != status || !strstr(dlc_error_message(context), words))
        fail_msg("%s: expected %s with \"%s\", got %s: %s", text, dlc_status_text(status), words, dlc_status_text(got),
                 got == DLC_OK ? "" : dlc_error_message(context));
    dlc_graph_destroy(g);
}

/* How often the file has these bytes. */
static int count_bytes(const char *path, const char *bytes, size_t size) {
    static char all[1 << 16];
    int count = 0;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t length = fread(all, 1, sizeof all, file);
    fclose(file);
    for (size_t at = 0; at + size <= length; at++) count += memcmp(all + at, bytes, size) == 0;
    return count;
}

/* A sum behind a convolution is its bias if it adds constants to channels and nothing else reads the convolution: of several, the first one. */
static void test_bias(void **state) {
    static const struct {
        const char *rest;
        int adds, outputs;
    } cases[] = {
        {"output y", 0, 1},
        {"output y output c", 1, 2},
        {"z = add(y, c) output z", 2, 1},
        {"z = add(y, s) output z", 1, 1},
        {"r = broadcast(v, shape=[1, 2, 3, 2], axes=[1]) z = add(y, r) output z", 1, 1},
    };
    const sample_operand operands[] = {F32_OF(1, 1, 4, 2), F32_OF(2)};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "graph { input x: f32[1, 1, 4, 2] input v: f32[2] w = constant f32[2, 1, 2, 1] {1, 2, 3, 4} "
                 "c = convolution(x, w) b = constant f32[2, 1, 1] {3, 4} "
                 "s = broadcast(b, shape=[1, 2, 3, 2], axes=[1, 2, 3]) y = add(c, s) %s }",
                 cases[i].rest);
        dlc_graph *g = parse(text);
        OK(context, dlc_onnx_write(context, in("bias.onnx"), g, NULL));
        dlc_graph_destroy(g);
        const int adds = count_bytes(in("bias.onnx"),
                                     "\x22\x03"
                                     "Add",
                                     5);
        if (adds != cases[i].adds) fail_msg("%s: %d nodes Add", cases[i].rest, adds);
        assert_int_equal(count_bytes(in("bias.onnx"),
                                     "\x22\x04"
                                     "Conv",
                                     6),
                         1);
        same(text, operands, 2, cases[i].outputs, 0);
    }
    unlink(in("bias.onnx"));
}

/* An output that is an input, an output twice, an output that is a constant, and names that nodes would like to have. */
static void test_names(void **state) {
    static const char text[] =
        "graph { input Add_1: f32[2] input x: f32[2] k = constant f32[2] {1, 2} y = add(x, Add_1) "
        "output \"again\" = x output y output \"twice\" = y output k }";
    static const char clash[] = "graph { input x: f32[2] y = neg(x) output \"x\" = y }";
    (void)state;
    refuses(clash, "clash.onnx", NULL, DLC_INVALID_ARGUMENT, "another input or output has this name");
    same(text, (const sample_operand[]){F32_OF(2), F32_OF(2)}, 2, 4, 0);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------------------- */

static int64_t size_of_file(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 ? (int64_t)s.st_size : -1;
}

static int files_there(void) {
    DIR *d = opendir(folder);
    int count = 0;
    for (struct dirent *e; (e = readdir(d));) count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

enum { WEIGHTS = 1 << 16 };

/* y = x + weights + one */
static dlc_graph *weighted(const float *weights) {
    dlc_graph *g;
    static const float one[4] = {1, 2, 3, 4};
    OK(context, dlc_graph_create(context, &g));
    const dlc_value x = dlc_input(g, "x", DLC_F32, 2, (dlc_dim[]){{0, "n"}, {WEIGHTS, NULL}});
    const dlc_value w = dlc_constant_borrow(g, DLC_F32, 1, (int64_t[]){WEIGHTS}, weights);
    const dlc_value b = dlc_reshape(dlc_constant(g, DLC_F32, 1, (int64_t[]){4}, one), 1, (dlc_dim[]){{4, NULL}});
    dlc_output(g, "y", dlc_add(x, w));
    dlc_output(g, "b", b);
    return g;
}

static void test_external(void **state) {
    static float weights[WEIGHTS], x[WEIGHTS];
    const char *path = in("weighted.onnx"), *data = in("weighted.onnx.data");
    dlc_onnx_write_options options = DLC_ONNX_WRITE_OPTIONS_INIT;
    outcome o;
    (void)state;
    for (int i = 0; i < WEIGHTS; i++) weights[i] = (float)i / 3, x[i] = (float)(i % 7);
    for (int external = 0; external < 2; external++) {
        dlc_graph *g = weighted(weights);
        options.external_bytes = external ? 1024 : 0;
        options.producer = "the test";
        OK(context, dlc_onnx_write(context, path, g, &options));
        dlc_graph_destroy(g);
        assert_int_equal(size_of_file(data), external ? (int64_t)sizeof weights : -1);
        assert_true(size_of_file(path) < 4096 + (external ? 0 : (int64_t)sizeof weights));
        g = import(path, &o);
        if (!g) fail_msg("%s", o.message);
        const DLTensor in_x = {
            .data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = (int64_t[]){1, WEIGHTS}};
        dlc_output_slot out[2] = {{0}};
        if (!run(g, (const DLTensor *[]){&in_x}, 1, out, 2, &o)) fail_msg("%s", o.message);
        for (int i = 0; i < WEIGHTS; i++)
            assert_true(((float *)out[0].managed->dl_tensor.data)[i] == x[i] + weights[i]);
        release(out, 2);
        dlc_graph_destroy(g);
    }
    unlink(path), unlink(data);
}

/* Errors leave no file, and an older one unchanged. */
static void test_refused(void **state) {
    static const char plain[] = "graph { input x: f32[n] y = neg(x) output y }",
                      hard[] = "graph { input x: f32[3, 3] q, r = qr(x) d = cholesky(q) output q output r output d }",
                      late[] = "graph { input x: f32[n] y = gelu(x) output y }",
                      stored[] = "graph { input x: f32[3] k = constant f32[3] {1, 2, 3} y = add(x, k) output y }";
    dlc_onnx_write_options options = DLC_ONNX_WRITE_OPTIONS_INIT;
    (void)state;
    refuses(plain, "none/m.onnx", NULL, DLC_NOT_FOUND, "No such file");
    assert_int_equal(mkdir(in("folder"), 0700), 0);
    refuses(plain, "folder", NULL, DLC_INVALID_ARGUMENT, "folder: it is no regular file");
    assert_int_equal(rmdir(in("folder")), 0);
    assert_int_equal(mkfifo(in("pipe"), 0700), 0);
    refuses(plain, "pipe", NULL, DLC_INVALID_ARGUMENT, "pipe: it is no regular file");
    assert_int_equal(unlink(in("pipe")), 0);
    assert_int_equal(files_there(), 0);
    FILE *old = fopen(in("m.onnx"), "w");
    fputs("old", old);
    fclose(old);
    refuses(hard, "m.onnx", NULL, DLC_UNSUPPORTED, "2 values cannot be exported:\n  qr \"");
    refuses(hard, "m.onnx", NULL, DLC_UNSUPPORTED, "cholesky \"d\": ");
    assert_int_equal(size_of_file(in("m.onnx")), 3);
    options.opset = 17;
    refuses(late, "m.onnx", &options, DLC_UNSUPPORTED, "operator set 17 does not hold this graph, which needs 20");
    options.opset = 18;
    refuses(plain, "m.onnx", &options, DLC_INVALID_ARGUMENT, "opset 18");
    options.opset = 0, options.external_bytes = 8;
    refuses(stored, "a:m.onnx", &options, DLC_INVALID_ARGUMENT, "a:m.onnx.data cannot be named in the model");
    refuses(stored, "a\\m.onnx", &options, DLC_INVALID_ARGUMENT, "cannot be named in the model");
    options.struct_size = 3;
    refuses(plain, "m.onnx", &options, DLC_INVALID_ARGUMENT, "struct_size");
    assert_int_equal(size_of_file(in("m.onnx")), 3);
    dlc_graph *empty;
    OK(context, dlc_graph_create(context, &empty));
    assert_int_equal(dlc_onnx_write(context, in("m.onnx"), empty, NULL), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_write(context, NULL, empty, NULL), DLC_INVALID_ARGUMENT);
    assert_int_equal(dlc_onnx_write(context, in("m.onnx"), NULL, NULL), DLC_INVALID_ARGUMENT);
    dlc_graph_destroy(empty);
    unlink(in("m.onnx"));
    assert_int_equal(files_there(), 0);
}

static dlc_status call_host(void *user, dlc_callback *callback, int inputs, const DLTensor *const *input, int outputs,
                            DLTensor *const *output) {
    (void)user, (void)callback, (void)inputs, (void)input, (void)outputs, (void)output;
    return DLC_OK;
}

/* Operators of the host are told by name: those of which only a function or an expression is known. */
static void test_host(void **state) {
    dlc_operator_options options = DLC_OPERATOR_OPTIONS_INIT;
    (void)state;
    options.name = "of_host", options.operands = "x", options.shape = "T[...] -> T[...]", options.call = call_host;
    OK(context, dlc_operator_register(context, &options));
    options.name = "sum_of_host", options.shape = NULL, options.call = NULL;
    options.expression = "y[..., i] = sum(j, x[..., i, j])";
    OK(context, dlc_operator_register(context, &options));
    static const char text[] =
        "graph { input x: f32[n, 3] y = of_host(x) z = sum_of_host(y) w = exp(z) output y output z output w }";
    refuses(text, "host.onnx", NULL, DLC_UNSUPPORTED, "2 values cannot be exported:\n  of_host \"y\": it is ");
    refuses(text, "host.onnx", NULL, DLC_UNSUPPORTED, "\n  sum_of_host \"z\": it is ");
    assert_int_equal(files_there(), 0);
}

/* The disk is full: no file remains. */
static void test_limit(void **state) {
    static float weights[WEIGHTS];
    const struct rlimit small = {4096, RLIM_INFINITY};
    struct rlimit before;
    dlc_onnx_write_options options = DLC_ONNX_WRITE_OPTIONS_INIT;
    (void)state;
    dlc_graph *g = weighted(weights);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {small.rlim_cur, before.rlim_max};
    for (int external = 0; external < 2; external++) {
        options.external_bytes = external ? 1024 : 0;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const dlc_status status = dlc_onnx_write(context, in("m.onnx"), g, &options);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, DLC_INVALID_ARGUMENT);
        assert_int_equal(files_there(), 0);
    }
    dlc_graph_destroy(g);
}

/* More than a message holds: an error, unless weights are beside it. The pages are never read. */
static void test_too_large(void **state) {
    const size_t size = (size_t)1 << 31;
    void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    dlc_graph *g;
    (void)state;
    if (bytes == MAP_FAILED) skip();
    OK(context, dlc_graph_create(context, &g));
    dlc_output(g, "y", dlc_constant_borrow(g, DLC_U8, 1, (int64_t[]){(int64_t)size}, bytes));
    const dlc_status status = dlc_onnx_write(context, in("m.onnx"), g, NULL);
    assert_int_equal(status, DLC_BUDGET_EXCEEDED);
    assert_non_null(strstr(dlc_error_message(context), "external_bytes"));
    assert_int_equal(files_there(), 0);
    dlc_graph_destroy(g);
    munmap(bytes, size);
}

/* Each allocation refused in turn: an error, nothing lost, no file. */
static void test_refused_memory(void **state) {
    static const char text[] =
        "graph { input c: bool[] input x: f32[n, 3] k = constant f32[3] {1, 2, 3} m = add(x, k) s = softmax(m) l = layer_norm(s) "
        "y = if(c, l, then=graph { input x: f32[n, 3] e = cumulative_max(x, axis=0) output e }, otherwise=graph { input x: "
        "f32[n, 3] e = erfc(x) output e }) output y }";
    dlc_graph *g = parse(text);
    const int64_t blocks = memory.blocks;
    dlc_status status = DLC_OUT_OF_MEMORY;
    int refusals = 0;
    (void)state;
    for (; status == DLC_OUT_OF_MEMORY; refusals++) {
        memory.left = refusals;
        status = dlc_onnx_write(context, in("refusing.onnx"), g, NULL);
        memory.left = -1;
        assert_int_equal(memory.blocks, blocks);
        assert_int_equal(files_there(), status == DLC_OK);
    }
    OK(context, status);
    assert_true(refusals > 2);
    dlc_graph_destroy(g);
    unlink(in("refusing.onnx"));
}

static int set_up(void **state) {
    static dlc_allocator allocator;
    dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
    (void)state;
    allocator = counting(&memory);
    options.target = "interp";
    options.allocator = &allocator;
    if (!mkdtemp(folder)) return 1;
    return dlc_context_create(&options, &context) != DLC_OK;
}

static int tear_down(void **state) {
    (void)state;
    dlc_context_destroy(context);
    if (memory.blocks) fprintf(stderr, "%lld blocks are left\n", (long long)memory.blocks);
    return memory.blocks != 0 || rmdir(folder) != 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),   cmocka_unit_test(test_samples),       cmocka_unit_test(test_symbolic_samples),
        cmocka_unit_test(test_symbols),   cmocka_unit_test(test_control),       cmocka_unit_test(test_counted),
        cmocka_unit_test(test_bias),      cmocka_unit_test(test_names),         cmocka_unit_test(test_external),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_limit),         cmocka_unit_test(test_host),
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_refused_memory)};
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        verbose |= strcmp(argv[at], "--verbose") == 0;
        all_types |= strcmp(argv[at], "--types") == 0;
        symbolic |= strcmp(argv[at], "--symbols") == 0;
        if (strcmp(argv[at], "--write") == 0 && at + 1 < argc) kept = argv[++at];
    }
    chosen = argv + at, choices = argc - at;
    if (asked_unknown("export_test", choices, chosen, refusal)) return 2;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
