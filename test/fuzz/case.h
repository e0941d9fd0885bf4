/* One case of the fuzzer and of the regression tests: a text graph whose first line says how to run it,
 *     # case seed=3 fill=special strict=1 n=7,9
 * seed of the inputs, what they hold, `strict` for no_excess_precision, `layout=1` for blocking what can be, sizes of
 * symbols (several: one run after the other with one program); `plain=0` and `threads=0` leave out those ways to compile
 * it, `small=1` makes kernels for caches of 2, 16 and 64 KiB, which small tensors do not fit, `choices=5` lets the rules answer a quarter of
 * their choices at random (DLC_CHOICES). It runs on the interp target and in several ways on the cpu target, which must agree within the
 * bounds of graph/bound.h. Threads (not with `choices`) and repeated runs must agree in all bits. */
#ifndef TEST_FUZZ_CASE_H
#define TEST_FUZZ_CASE_H

#include <dlc/dlc.h>

#include "conformance/guarded.h"
#include "fuzz/through_onnx.h"
#include "graph/bound.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CASE_TENSORS = 48, CASE_SYMBOLS = 4, CASE_RUNS = 8, CASE_MESSAGE = 4096 };

typedef enum case_fill { FILL_TAME, FILL_INTEGERS, FILL_WIDE, FILL_SPECIAL, FILL_COUNT } case_fill;
static const char *const case_fills[] = {"tame", "integers", "wide", "special"};

/* The result of a case. The first word of the message is the kind of failure, which shrinking preserves. */
typedef struct case_report {
    /* the stage last begun, for a run that does not return */
    char stage[64];
    char message[CASE_MESSAGE];
    /* the library's last log line, which tells why a region is interpreted */
    char log[1024];
    /* numbers of outputs that were compared and skipped */
    int compared, skipped;
    /* with DLC_TEST_TARGET=onnx. rounded: outputs within their bounds whose bits differ; known: outputs beyond, for a known reason; runner:
     * there is no single imported graph; left_out: why the graph has no ONNX model, or empty */
    int rounded, known;
    bool runner;
    char left_out[256];
} case_report;

/* ---- numbers */

static inline int64_t case_below(uint64_t *state, int64_t n) {
    return n > 0 ? (int64_t)(test_random(state) % (uint64_t)n) : 0;
}

static inline double case_float(case_fill fill, uint64_t *state) {
    static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1, -1, 0.5};
    double even = (double)(test_random(state) >> 11) * 0x1p-51 - 2; /* -2..2 */
    if (fill == FILL_INTEGERS) return floor(even * 2);
    if (fill == FILL_WIDE && test_random(state) % 5 == 0) return even * exp2((double)case_below(state, 24) - 12);
    if (fill == FILL_SPECIAL && test_random(state) % 23 == 0) return special[case_below(state, 8)];
    return even;
}

static inline int64_t case_integer(dlc_dtype dtype, case_fill fill, uint64_t *state) {
    static const int64_t special[] = {0, 1, -1, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, 127, -128, 255};
    if (dtype == DLC_BOOL) return case_below(state, 2);
    const bool natural = lib_dtypes[dtype].class_ == 'u';
    if (fill == FILL_INTEGERS) return case_below(state, 8) - (natural ? 0 : 4);
    if ((fill == FILL_SPECIAL || fill == FILL_WIDE) && test_random(state) % 13 == 0)
        return special[case_below(state, 10)];
    if (fill == FILL_WIDE) return (int64_t)test_random(state) >> case_below(state, 64);
    return case_below(state, 27) - (natural && dtype != DLC_U8 ? 0 : 6);
}

enum { WIDEST = 8192 }; /* the greatest magnitude of FILL_WIDE */

/* The bound of an input's elements, which graph_bound starts from. */
static inline graph_bound case_input_bound(dlc_dtype dtype, case_fill fill) {
    if (dtype == DLC_C64) dtype = DLC_F32; /* its parts */
    const bool floats = lib_dtype_is_float(dtype), tame = fill == FILL_TAME || fill == FILL_INTEGERS;
    graph_bound y = graph_bound_of_dtype(dtype);
    if (dtype == DLC_F8E8M0) return y; /* NaN of what is not positive */
    if (floats)
        y = graph_bound_within(fill == FILL_WIDE ? WIDEST : fill == FILL_INTEGERS ? 4 : 2);
    else if (tame && lib_dtypes[dtype].bits >= 8 && dtype != DLC_BOOL)
        y.low = fmax(y.low, -6), y.high = fmin(y.high, fill == FILL_INTEGERS ? 8 : dtype == DLC_U8 ? 255 : 27);
    const bool beyond = fill == FILL_WIDE && graph_bound_largest(dtype) < WIDEST; /* becomes infinite or NaN */
    y.special = floats && (fill == FILL_SPECIAL || beyond);
    y.integral = dtype == DLC_BOOL || fill == FILL_INTEGERS;
    return y;
}

/* ---- the case */

typedef struct case_tensor {
    char name[64];
    dlc_dtype dtype;
    int rank;
    int64_t dim[DLC_MAX_RANK], count;
    /* outputs */
    graph_bound bound;
} case_tensor;

/* The graph under one set of sizes. */
typedef struct case_shapes {
    int inputs, outputs;
    /* a size depends on data (graph/segment.h), so that the library decides the shapes of outputs */
    bool counted;
    case_tensor input[CASE_TENSORS], output[CASE_TENSORS];
} case_shapes;

typedef struct case_setting {
    uint64_t seed;
    case_fill fill;
    bool strict, layout, plain, threads, small;
    /* DLC_CHOICES; 0: the rules' own choices */
    uint64_t choices;
    int symbols, runs;
    char symbol[CASE_SYMBOLS][16];
    /* [symbol][run]; the last size is used for all further runs */
    int64_t size[CASE_SYMBOLS][CASE_RUNS];
    int sizes[CASE_SYMBOLS];
} case_setting;

static inline case_setting case_read_setting(const char *text) {
    case_setting s = {.seed = 1, .runs = 1, .plain = true, .threads = true};
    const char *at = strstr(text, "# case"), *end = at ? at + strcspn(at, "\n") : NULL;
    for (at = at ? at + 6 : NULL; at && at < end;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, "=\n");
        if (at + length >= end) break;
        const char *value = at + length + 1;
        if (strncmp(at, "seed=", 5) == 0) {
            s.seed = strtoull(value, NULL, 10);
        } else if (strncmp(at, "strict=", 7) == 0) {
            s.strict = *value == '1';
        } else if (strncmp(at, "layout=", 7) == 0) {
            s.layout = *value == '1';
        } else if (strncmp(at, "plain=", 6) == 0) {
            s.plain = *value == '1';
        } else if (strncmp(at, "threads=", 8) == 0) {
            s.threads = *value == '1';
        } else if (strncmp(at, "small=", 6) == 0) {
            s.small = *value == '1';
        } else if (strncmp(at, "choices=", 8) == 0) {
            s.choices = strtoull(value, NULL, 10);
        } else if (strncmp(at, "fill=", 5) == 0) {
            for (int f = 0; f < FILL_COUNT; f++)
                if (strncmp(value, case_fills[f], strlen(case_fills[f])) == 0) s.fill = (case_fill)f;
        } else if (s.symbols < CASE_SYMBOLS && length < sizeof s.symbol[0]) {
            memcpy(s.symbol[s.symbols], at, length);
            for (const char *number = value; s.sizes[s.symbols] < CASE_RUNS; number++) {
                char *after;
                s.size[s.symbols][s.sizes[s.symbols]++] = strtoll(number, &after, 10);
                number = after;
                if (*number != ',') break;
            }
            if (s.sizes[s.symbols] > s.runs) s.runs = s.sizes[s.symbols];
            s.symbols++;
        }
        at += strcspn(at, " \n");
    }
    return s;
}

/* The first line of the text for this setting, without its end. */
static inline void case_print_setting(const case_setting *s, char *line, size_t size) {
    int at = snprintf(line, size, "# case seed=%llu fill=%s strict=%d layout=%d%s%s%s", (unsigned long long)s->seed,
                      case_fills[s->fill], s->strict, s->layout, s->plain ? "" : " plain=0",
                      s->threads ? "" : " threads=0", s->small ? " small=1" : "");
    if (s->choices) at += snprintf(line + at, size - (size_t)at, " choices=%llu", (unsigned long long)s->choices);
    for (int y = 0; y < s->symbols; y++)
        for (int i = 0; i < s->sizes[y] && (size_t)at < size; i++)
            at += snprintf(line + at, size - (size_t)at, "%s%s%s%lld", i ? "," : " ", i ? "" : s->symbol[y],
                           i ? "" : "=", (long long)s->size[y][i]);
}

static inline int64_t case_size_of(const case_setting *s, const char *symbol, int run) {
    for (int i = 0; i < s->symbols; i++)
        if (strcmp(s->symbol[i], symbol) == 0) return s->size[i][run < s->sizes[i] ? run : s->sizes[i] - 1];
    return 3;
}

static inline graph *case_bind(lib_arena *arena, const char *text, const case_setting *s, int run) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "case", text, strlen(text));
    graph *g = graph_parse(arena, &lexer);
    int64_t *sizes = LIB_NEW_ARRAY(arena, int64_t, g->symbols.count + 1);
    for (uint32_t i = 0; i < g->symbols.count; i++)
        sizes[i] =
            graph_is_input_size(g, g->symbols.data[i].var) ? case_size_of(s, g->symbols.data[i].name, run) : INT64_MIN;
    if (g->inputs.count > CASE_TENSORS || g->outputs.count > CASE_TENSORS)
        lib_raise(arena->scope, DLC_INVALID_ARGUMENT, "too many inputs or outputs for a case");
    return graph_bind(arena, g, sizes);
}

static inline void case_describe(const graph *g, graph_id value, const char *name, case_tensor *out) {
    const graph_shape *shape = graph_shape_of(g, value);
    *out = (case_tensor){.dtype = shape->dtype, .rank = shape->rank, .count = 1};
    snprintf(out->name, sizeof out->name, "%s", name ? name : "");
    for (int d = 0; d < shape->rank; d++)
        out->count *= out->dim[d] = graph_bound_dim(g, shape, d); /* a guess if the size depends on data */
}

/* Sets *out to the shapes of run `run`. False: the text is no valid graph, *error tells why. */
static inline bool case_shapes_of(const char *text, const case_setting *s, int run, case_shapes *out,
                                  lib_error *error) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) {
        graph *g = case_bind(&arena, text, s, run);
        graph_bound *inputs = LIB_NEW_ARRAY(&arena, graph_bound, g->inputs.count + 1);
        graph_bound *values = LIB_NEW_ARRAY(&arena, graph_bound, g->values.count + 1);
        out->inputs = (int)g->inputs.count;
        out->outputs = (int)g->outputs.count;
        for (uint32_t i = 0; i < g->symbols.count; i++) out->counted |= !graph_is_input_size(g, g->symbols.data[i].var);
        for (uint32_t i = 0; i < g->inputs.count; i++) {
            inputs[i] = case_input_bound(graph_shape_of(g, g->inputs.data[i])->dtype, s->fill);
            case_describe(g, g->inputs.data[i], g->values.data[g->inputs.data[i]].name, &out->input[i]);
        }
        graph_bound_values(&arena, g, inputs, !s->strict, values);
        for (uint32_t i = 0; i < g->outputs.count; i++) {
            case_describe(g, g->outputs.data[i], g->output_names.data[i], &out->output[i]);
            out->output[i].bound = values[g->outputs.data[i]];
        }
    }
    lib_arena_free(&arena);
    if (error) *error = scope.error;
    return scope.error.status == DLC_OK;
}

/* ---- tensors in memory */

typedef struct case_memory {
    guarded block;
    DLTensor tensor;
    int64_t shape[DLC_MAX_RANK], strides[DLC_MAX_RANK];
    /* of inputs: a copy of the block before the run */
    void *before;
    /* of outputs that the library allocated, with its own strides */
    DLManagedTensorVersioned *managed;
} case_memory;

typedef enum case_way { WAY_COMPACT, WAY_PERMUTED, WAY_GAPS, WAY_REVERSED, WAY_REPEATED, WAY_COUNT } case_way;

/* Sets the strides of a way to lie in memory. Returns the number of elements of the block; *first: position of the first element. */
static inline int64_t case_lay_out(case_memory *m, const case_tensor *t, case_way way, uint64_t seed, int64_t *first) {
    int order[DLC_MAX_RANK];
    for (int i = 0; i < t->rank; i++) order[i] = i;
    for (int i = t->rank - 1; i > 0 && way != WAY_COMPACT; i--) {
        int k = (int)case_below(&seed, i + 1), swap = order[i];
        order[i] = order[k], order[k] = swap;
    }
    int64_t size = 1;
    *first = 0;
    for (int i = t->rank - 1; i >= 0; i--) {
        int d = order[i];
        int64_t stride = size;
        if (way == WAY_GAPS && case_below(&seed, 2)) stride = size * 2;
        if (way == WAY_REPEATED && case_below(&seed, 3) == 0) stride = 0;
        if (stride) size = stride * t->dim[d] + (way == WAY_GAPS ? case_below(&seed, 4) : 0);
        if (way == WAY_REVERSED && t->dim[d] && case_below(&seed, 2)) {
            *first += stride * (t->dim[d] - 1);
            stride = -stride;
        }
        m->strides[d] = stride;
        m->shape[d] = t->dim[d];
    }
    return t->count ? size : 0;
}

static inline bool case_take(case_memory *m, const case_tensor *t, case_way way, uint64_t seed, int fill_byte) {
    const bool packed = lib_dtype_is_packed(t->dtype); /* compact, always */
    int64_t first, size = case_lay_out(m, t, packed ? WAY_COMPACT : way, seed, &first);
    size_t width = lib_dtype_size(t->dtype), bytes = lib_dtype_bytes(t->dtype, (size_t)size);
    if (!guarded_new(&m->block, bytes, seed & 1)) return false;
    if (size) memset(m->block.data, fill_byte, bytes);
    m->tensor = (DLTensor){.data = (char *)m->block.data + (size_t)first * width,
                           .device = {kDLCPU, 0},
                           .ndim = t->rank,
                           .dtype = lib_dtype_to_dlpack(t->dtype),
                           .shape = m->shape,
                           .strides = packed || (way == WAY_COMPACT && (seed & 2)) ? NULL : m->strides};
    return true;
}

static inline void case_free(case_memory *m, int count) {
    for (int i = 0; i < count; i++) {
        guarded_free(&m[i].block);
        free(m[i].before);
        m[i].before = NULL;
        if (m[i].managed) m[i].managed->deleter(m[i].managed);
        m[i].managed = NULL;
    }
}

/* Takes ownership of a tensor that the library allocated for an output. */
static inline void case_adopt(case_memory *m, const case_tensor *t, DLManagedTensorVersioned *managed) {
    m->managed = managed;
    m->tensor = managed->dl_tensor;
    if (t->dtype == DLC_C64 && m->tensor.dtype.code != kDLComplex) { /* compact pairs */
        m->tensor.ndim--;
        m->tensor.strides = NULL;
    }
    m->tensor.data = (char *)m->tensor.data + m->tensor.byte_offset;
    int64_t stride = 1;
    for (int d = m->tensor.ndim - 1; d >= 0; d--) {
        m->shape[d] = m->tensor.shape[d];
        m->strides[d] = m->tensor.strides ? m->tensor.strides[d] : stride;
        stride *= m->shape[d];
    }
}

/* Address of element `number` in row-major order; of types smaller than a byte: of the byte that holds it. */
static inline char *case_element(const case_memory *m, const case_tensor *t, int64_t number) {
    if (lib_dtype_is_packed(t->dtype)) return (char *)m->tensor.data + number * lib_dtypes[t->dtype].bits / 8;
    int64_t at = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        at += number % t->dim[d] * m->strides[d];
        number /= t->dim[d];
    }
    return (char *)m->tensor.data + at * (int64_t)lib_dtype_size(t->dtype);
}

/* The bytes of one element; of types smaller than a byte: in the low bits. */
typedef struct case_bits {
    _Alignas(8) char bytes[8];
} case_bits;

static inline case_bits case_read(const case_memory *m, const case_tensor *t, int64_t number) {
    case_bits element = {{0}};
    if (lib_dtype_is_packed(t->dtype))
        element.bytes[0] = (char)lib_packed_get(t->dtype, m->tensor.data, (size_t)number);
    else
        memcpy(element.bytes, case_element(m, t, number), lib_dtype_size(t->dtype));
    return element;
}

static inline void case_write(const case_memory *m, const case_tensor *t, int64_t number, case_bits element) {
    if (lib_dtype_is_packed(t->dtype))
        lib_packed_set(t->dtype, m->tensor.data, (size_t)number, (uint8_t)element.bytes[0]);
    else
        memcpy(case_element(m, t, number), element.bytes, lib_dtype_size(t->dtype));
}

static inline case_bits case_number(dlc_dtype dtype, case_fill fill, uint64_t *state) {
    case_bits element = {{0}};
    if (dtype == DLC_C64)
        for (int part = 0; part < 2; part++)
            lib_element_set_f64(DLC_F32, element.bytes + part * 4, case_float(fill, state));
    else if (lib_dtype_is_float(dtype))
        lib_element_set_f64(dtype, element.bytes, case_float(fill, state));
    else
        lib_element_set_i64(dtype, element.bytes, case_integer(dtype, fill, state));
    return element;
}

static inline bool case_make_inputs(const case_shapes *shapes, const case_setting *s, int run, case_memory *in) {
    for (int i = 0; i < shapes->inputs; i++) {
        const case_tensor *t = &shapes->input[i];
        uint64_t state = lib_hash64(t->name, strlen(t->name), s->seed * 64 + (uint64_t)run), seed = test_random(&state);
        case_way way = seed % 3 ? WAY_COMPACT : (case_way)(seed / 3 % WAY_COUNT);
        if (!case_take(&in[i], t, way, seed >> 8, 0x7f)) return false;
        for (int64_t k = 0; k < t->count; k++) case_write(&in[i], t, k, case_number(t->dtype, s->fill, &state));
        in[i].before = malloc(in[i].block.size + 1);
        if (!in[i].before) return false;
        if (in[i].block.size) memcpy(in[i].before, in[i].block.data, in[i].block.size);
    }
    return true;
}

static inline bool case_make_outputs(const case_shapes *shapes, const case_setting *s, bool strided, case_memory *out) {
    for (int i = 0; i < shapes->outputs; i++) {
        uint64_t state = s->seed + (uint64_t)i * 77, seed = test_random(&state);
        case_way way = strided && seed % 4 == 0 ? seed / 4 % 2 ? WAY_PERMUTED : WAY_GAPS : WAY_COMPACT;
        if (!case_take(&out[i], &shapes->output[i], way, seed >> 8, 0xff)) return false;
    }
    return true;
}

/* ---- comparing */

static inline double case_part(dlc_dtype dtype, case_bits a, int part) {
    return dtype == DLC_C64            ? lib_element_get_f64(DLC_F32, a.bytes + part * 4)
           : lib_dtype_is_float(dtype) ? lib_element_get_f64(dtype, a.bytes)
                                       : (double)lib_element_get_i64(dtype, a.bytes);
}

/* Do a and b agree within `error`? 0: in all bits, any NaN being equal to any other. */
static inline bool case_agrees(dlc_dtype dtype, case_bits a, case_bits b, double error) {
    if (memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0) return true;
    if (!lib_dtype_is_float(dtype) && dtype != DLC_C64) return false;
    for (int part = 0; part < (dtype == DLC_C64 ? 2 : 1); part++) {
        double x = case_part(dtype, a, part), y = case_part(dtype, b, part);
        bool same = isnan(x) ? isnan(y) : x == y && (error > 0 || signbit(x) == signbit(y));
        if (!same && !(error > 0 && fabs(x - y) <= error)) return false;
    }
    return true;
}

/* *t with the sizes of m's tensor: for outputs whose size depends on data, the interpreter's result decides. */
static inline case_tensor case_with_shape(const case_tensor *t, const case_memory *m) {
    case_tensor out = *t;
    out.count = 1;
    for (int d = 0; d < t->rank; d++) out.count *= out.dim[d] = m->shape[d];
    return out;
}

static inline bool case_same_shape(const case_tensor *t, const case_memory *m, case_report *report) {
    for (int d = 0; d < t->rank; d++)
        if (m->shape[d] != t->dim[d]) {
            snprintf(report->message, sizeof report->message, "shapes: output %s has size %lld along %d, expected %lld",
                     t->name, (long long)m->shape[d], d, (long long)t->dim[d]);
            return false;
        }
    return true;
}

static inline bool case_is_nan(dlc_dtype dtype, case_bits a) {
    return isnan(case_part(dtype, a, 0)) || (dtype == DLC_C64 && isnan(case_part(dtype, a, 1)));
}

/* Compares an output within `limit`, NULL: bit for bit; false: report->message tells the difference. any_nan: an element may be NaN. */
static inline bool case_compare(const char *what, const case_tensor *t, const case_memory *expected,
                                const case_memory *got, const graph_bound *limit, bool any_nan, case_report *report) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < t->count; i++) {
        case_bits a = case_read(expected, t, i), b = case_read(got, t, i);
        bool legal = t->dtype != DLC_BOOL || (unsigned char)b.bytes[0] <= 1;
        if (legal && case_agrees(t->dtype, a, b, limit ? limit->error : 0)) continue;
        if (any_nan && case_is_nan(t->dtype, b)) continue;
        if (wrong++) continue;
        snprintf(report->message, sizeof report->message,
                 "differs %s: output %s element %lld is %.*g, expected %.*g, allowed %.3g", what, t->name, (long long)i,
                 17, case_part(t->dtype, b, 0), 17, case_part(t->dtype, a, 0), limit ? limit->error : 0);
        size_t length = strlen(report->message);
        if (t->dtype == DLC_C64)
            snprintf(report->message + length, sizeof report->message - length, " (imaginary: %.9g, expected %.9g)",
                     case_part(t->dtype, b, 1), case_part(t->dtype, a, 1));
    }
    size_t length = strlen(report->message);
    if (wrong)
        snprintf(report->message + length, sizeof report->message - length, " (%lld of %lld differ)", (long long)wrong,
                 (long long)t->count);
    return !wrong;
}

/* ---- running */

typedef struct case_leg {
    const char *name, *target, *disable;
    int threads;
    dlc_context *context;
    bool small;
    /* the leg runs the exported and imported graph; runner, if not NULL, is used because there is no single graph */
    bool onnx;
    dlc_onnx_runner *runner;
} case_leg;

enum { LEG_INTERP, LEG_CPU, LEG_PLAIN, LEG_THREADS, LEG_COUNT };
#define CASE_LEGS                                                                 \
    {                                                                             \
        {.name = "interp", .target = "interp"}, {.name = "cpu", .target = "cpu"}, \
            {.name = "plain", .target = "cpu", .disable = "fuse,rules"},          \
            {.name = "threads", .target = "cpu", .threads = 2},                   \
    }

static inline void case_log(void *user, const char *line) {
    case_report *report = user;
    snprintf(report->log, sizeof report->log, "%s", line);
}

/* DLC_TEST_TARGET: another target in place of cpu; onnx: the interpreter again, on what was exported and imported. */
static inline bool case_open(case_leg *legs, bool small, case_report *report) {
    const char *tested = getenv("DLC_TEST_TARGET");
    const bool onnx = tested && strcmp(tested, "onnx") == 0;
    if (onnx) tested = "interp";
    setenv("DLC_CPU_CACHES", small ? "2,16,64" : "", 1);
    for (int i = 0; i < LEG_COUNT; i++) {
        legs[i].small = small;
        legs[i].onnx = onnx && i != LEG_INTERP;
        dlc_context_options options = DLC_CONTEXT_OPTIONS_INIT;
        options.target = tested && i != LEG_INTERP ? tested : legs[i].target;
        options.threads = legs[i].threads;
        options.log = case_log;
        options.log_user = report;
        if (dlc_context_create(&options, &legs[i].context) != DLC_OK) {
            snprintf(report->message, sizeof report->message, "status %s: %s", legs[i].name, dlc_error_message(NULL));
            return false;
        }
    }
    return true;
}

static inline void case_close(case_leg *legs) {
    for (int i = 0; i < LEG_COUNT; i++) {
        dlc_context_destroy(legs[i].context);
        legs[i].context = NULL;
    }
}

static inline bool case_failed(const case_leg *leg, const char *what, case_report *report) {
    snprintf(report->message, sizeof report->message, "status %s %s: %s", leg->name, what,
             dlc_error_message(leg->context));
    return false;
}

/* After the program, if there is one, did not serve: a graph takes the sizes of an If's branches as equal, for others <dlc/onnx.h> has runners. */
static inline bool case_needs_runner(const case_leg *leg, const dlc_program *program) {
    return leg->runner && (!program || strstr(dlc_error_message(leg->context), "of the branches"));
}

static inline bool case_run(const case_leg *leg, dlc_program *program, const case_shapes *shapes, case_memory *in,
                            case_memory *out, case_report *report) {
    const DLTensor *inputs[CASE_TENSORS];
    dlc_output_slot slots[CASE_TENSORS];
    onnx_view views[2][CASE_TENSORS];
    if (program && dlc_program_input_count(program) != shapes->inputs) {
        snprintf(report->message, sizeof report->message, "status %s: %d inputs, expected %d", leg->name,
                 dlc_program_input_count(program), shapes->inputs);
        return false;
    }
    for (int i = 0; i < shapes->inputs; i++)
        inputs[i] = leg->onnx ? view_for_onnx(&views[0][i], &in[i].tensor) : &in[i].tensor;
    for (int i = 0; i < shapes->outputs; i++) {
        slots[i] = (dlc_output_slot){0};
        if (!shapes->counted)
            slots[i].tensor = leg->onnx ? view_for_onnx(&views[1][i], &out[i].tensor) : &out[i].tensor;
    }
    const bool done = program && dlc_run(program, NULL, inputs, shapes->inputs, slots, shapes->outputs) == DLC_OK;
    if (!done && case_needs_runner(leg, program)
            ? dlc_onnx_run(leg->runner, NULL, inputs, shapes->inputs, slots, shapes->outputs) != DLC_OK
            : !done)
        return case_failed(leg, "run", report);
    for (int i = 0; i < shapes->outputs && shapes->counted; i++)
        case_adopt(&out[i], &shapes->output[i], slots[i].managed);
    for (int i = 0; i < shapes->inputs; i++)
        if (in[i].block.size && memcmp(in[i].block.data, in[i].before, in[i].block.size) != 0) {
            snprintf(report->message, sizeof report->message, "input %s was written by %s", shapes->input[i].name,
                     leg->name);
            return false;
        }
    return true;
}

typedef struct case_state {
    const char *text;
    case_setting setting;
    dlc_program *program[LEG_COUNT];
    case_report *report;
} case_state;

/* May the results of an exported graph differ for a reason that <dlc/onnx.h> names: silu of -infinity is NaN there, and narrow elements are
 * combined in wider ones? */
static inline bool case_may_differ(const case_state *c) {
    static const char *const sigmoids[] = {"silu(", "quick_gelu(", "glu("};
    bool may = strstr(c->text, "scatter") && strstr(c->text, "f8e");
    for (int i = 0; i < 3; i++) may |= strstr(c->text, sigmoids[i]) != NULL;
    return may;
}

/* May results on the cuda target be NaN where the interpreter's are not? Its tiles multiply the zeros of their padding (`zero*nonfinite` in
 * schedules), also by infinities and NaN. */
static inline bool case_may_be_nan(const case_state *c) {
    const char *tested = getenv("DLC_TEST_TARGET");
    return tested && strcmp(tested, "cuda") == 0 && (strstr(c->text, "convolution") || strstr(c->text, "attention"));
}

/* Compares an output of the tested target with the interpreter's. Of graphs through ONNX, outputs within the bound whose bits differ are
 * counted only, since operators that ONNX does not have become others. */
static inline bool case_compare_tested(const case_state *c, const case_leg *leg, const case_tensor *t,
                                       const case_memory *expected, const case_memory *got) {
    case_report *report = c->report;
    const bool bounded = t->bound.error < INFINITY;
    if (!leg->onnx) return !bounded || case_compare(leg->name, t, expected, got, &t->bound, case_may_be_nan(c), report);
    if (case_compare(leg->name, t, expected, got, NULL, false, report)) return true;
    report->message[0] = 0;
    const bool close = !bounded || case_compare(leg->name, t, expected, got, &t->bound, false, report);
    if (close)
        report->rounded++;
    else if (case_may_differ(c))
        report->known++, report->message[0] = 0;
    else
        return false;
    return true;
}

static inline bool case_has(const case_state *c, const case_leg *legs, int leg) {
    return c->program[leg] || legs[leg].runner;
}

/* Runs all legs on one set of inputs. out[LEG_COUNT + 1][CASE_TENSORS]; the last row is for a second run of the cpu leg. */
static inline bool case_run_legs(case_state *c, case_leg *legs, const case_shapes *shapes, case_memory *in,
                                 case_memory out[][CASE_TENSORS]) {
    for (int leg = 0; leg <= LEG_COUNT; leg++) {
        int l = leg == LEG_COUNT ? LEG_CPU : leg;
        if (!case_has(c, legs, l)) continue;
        snprintf(c->report->stage, sizeof c->report->stage, "run on %s", legs[l].name);
        if (!shapes->counted &&
            !case_make_outputs(shapes, &c->setting, leg != LEG_INTERP && leg != LEG_COUNT, out[leg]))
            return true;
        if (legs[l].disable) setenv("DLC_DISABLE", legs[l].disable, 1);
        bool good = case_run(&legs[l], c->program[l], shapes, in, out[leg], c->report);
        unsetenv("DLC_DISABLE");
        if (!good) return false;
    }
    for (int i = 0; i < shapes->outputs; i++) {
        const case_tensor *t = &shapes->output[i], counted = case_with_shape(t, &out[LEG_INTERP][i]);
        if (shapes->counted) {
            for (int leg = 1; leg <= LEG_COUNT; leg++)
                if ((leg == LEG_COUNT || case_has(c, legs, leg)) && !case_same_shape(&counted, &out[leg][i], c->report))
                    return false;
            t = &counted;
        }
        bool compared = t->bound.error < INFINITY;
        c->report->compared += compared;
        c->report->skipped += !compared;
        for (int leg = LEG_CPU; leg <= LEG_PLAIN; leg++)
            if (case_has(c, legs, leg) && !case_compare_tested(c, &legs[leg], t, &out[LEG_INTERP][i], &out[leg][i]))
                return false;
        if (!case_compare("second", t, &out[LEG_CPU][i], &out[LEG_COUNT][i], NULL, false, c->report) ||
            (c->program[LEG_THREADS] &&
             !case_compare("threads", t, &out[LEG_CPU][i], &out[LEG_THREADS][i], NULL, false, c->report)))
            return false;
    }
    return true;
}

static inline bool case_run_sizes(case_state *c, case_leg *legs, const char *text, int run) {
    case_shapes *shapes = calloc(1, sizeof *shapes);
    case_memory(*out)[CASE_TENSORS] = calloc(LEG_COUNT + 2, sizeof *out); /* the last row: inputs */
    lib_error error;
    bool good = shapes && out;
    if (good && !case_shapes_of(text, &c->setting, run, shapes, &error)) {
        /* sizes that the graph does not allow; derivatives gather along axes of operands that may be empty in the graph itself */
        if (run > 0 || strstr(error.message, "axis of size 0")) goto done;
        snprintf(c->report->message, sizeof c->report->message, "invalid: %s", error.message);
        good = false;
    }
    good = good && case_make_inputs(shapes, &c->setting, run, out[LEG_COUNT + 1]) &&
           case_run_legs(c, legs, shapes, out[LEG_COUNT + 1], out);
done:
    for (int leg = 0; out && leg < LEG_COUNT + 2; leg++) case_free(out[leg], CASE_TENSORS);
    free(out);
    free(shapes);
    return good;
}

static inline bool case_compile(case_state *c, case_leg *leg, const char *text, dlc_program **program) {
    dlc_compile_options options = DLC_COMPILE_OPTIONS_INIT;
    dlc_graph *g;
    options.no_excess_precision = c->setting.strict;
    if (dlc_graph_parse(leg->context, text, strlen(text), &g) != DLC_OK) return case_failed(leg, "parse", c->report);
    if (leg->onnx &&
        through_onnx(leg->context, &g, &leg->runner, c->report->left_out, sizeof c->report->left_out) != DLC_OK)
        return c->report->left_out[0] || case_failed(leg, "export and import", c->report);
    c->report->runner |= leg->onnx && !g;
    if (!g) return true;
    bool good = dlc_compile(leg->context, g, &options, program) == DLC_OK || case_failed(leg, "compile", c->report);
    dlc_graph_destroy(g);
    return good;
}

/* Runs a case. True: all results agree. False: report->message tells which do not. */
static inline bool case_check(const char *text, case_leg *legs, case_report *report) {
    case_state c = {.text = text, .setting = case_read_setting(text), .report = report};
    char choices[24];
    snprintf(choices, sizeof choices, "%llu", (unsigned long long)c.setting.choices);
    setenv("DLC_LAYOUT", c.setting.layout ? "all" : "", 1);
    setenv("DLC_CHOICES", choices, 1);
    if (c.setting.choices) c.setting.threads = false; /* which candidates there are depends on them */
    report->message[0] = report->left_out[0] = 0;
    report->runner = false;
    bool good = true;
    if (c.setting.small != legs[0].small) {
        case_close(legs);
        if (!case_open(legs, c.setting.small, report)) {
            case_close(legs);
            return false;
        }
    }
    if (legs[LEG_CPU].onnx) c.setting.strict = true, c.setting.plain = c.setting.threads = false;
    uint64_t interpreted = 0;
    for (int l = 0; l < LEG_COUNT && good; l++) {
        if ((l == LEG_PLAIN && !c.setting.plain) || (l == LEG_THREADS && !c.setting.threads)) continue;
        snprintf(report->stage, sizeof report->stage, "compile for %s", legs[l].name);
        good = case_compile(&c, &legs[l], text, &c.program[l]);
    }
    const int runs = report->left_out[0] ? 0 : c.setting.runs;
    for (int run = 0; run < runs && good; run++) good = case_run_sizes(&c, legs, text, run);
    for (int l = 0; l < LEG_COUNT; l++) {
        dlc_statistics s = DLC_STATISTICS_INIT;
        dlc_context_statistics(legs[l].context, &s);
        if (l != LEG_INTERP) interpreted += s.interpreted_regions + s.host_regions;
        dlc_program_destroy(c.program[l]);
        dlc_onnx_runner_destroy(legs[l].runner);
        legs[l].runner = NULL;
    }
    if (good && interpreted) {
        snprintf(report->message, sizeof report->message, "interpreted: %llu regions: %s",
                 (unsigned long long)interpreted, report->log);
        good = false;
    }
    return good;
}

#endif
