/* Operator rows alone: whole graphs as one region with symbols as parameters, and samples that must be refused. */
#ifndef TEST_GRAPH_ROWS_H
#define TEST_GRAPH_ROWS_H

#include "graph/build.h"
#include "graph/internal.h"
#include "graph/region.h"
#include "tir/arith.h"

#include "conformance/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the above */
#include <cmocka.h>

static inline graph *rows_parse(lib_arena *arena, const char *text) {
    lib_lexer lexer;
    lib_lexer_init(&lexer, arena, "<text>", text, strlen(text));
    return graph_parse(arena, &lexer);
}

static inline void *rows_elements(lib_arena *arena, dlc_dtype dtype, const double *numbers, int64_t count) {
    char *bytes = lib_arena_take(arena, (size_t)count * lib_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++)
        lib_element_set_f64(dtype, bytes + (size_t)i * lib_dtype_size(dtype), numbers[i]);
    return bytes;
}

/* Sizes of the symbols are parameters of the region. */
static inline void rows_extents(const tir_region *region, uint32_t tensor, const int64_t *sizes, int64_t *extent,
                                int64_t *count) {
    uint64_t *variables = LIB_NEW_ARRAY(region->arena, uint64_t, region->pool->variables.count);
    for (uint32_t i = 0; i < region->params.count; i++)
        variables[tir_var_id(region->pool, region->params.data[i])] = (uint64_t)sizes[i];
    const tir_tensor *t = &region->tensors.data[tensor];
    const tir_evaluator evaluator = {.variables = variables};
    *count = 1;
    for (int i = 0; i < t->rank; i++)
        *count *= extent[i] = (int64_t)tir_evaluate(region->pool, t->extent[i], &evaluator);
}

/* Bits of output 0 of a graph of primitives, and its dtype. inputs[i]: numbers of input i. */
static inline uint64_t *rows_evaluate(lib_arena *arena, const graph *g, const int64_t *sizes,
                                      const double *const *inputs, int64_t *count, dlc_dtype *dtype) {
    graph_region_builder builder = graph_region_start(arena, g, "test");
    void **arguments = LIB_NEW_ARRAY(arena, void *, g->nodes.count);
    int64_t extent[DLC_MAX_RANK], size;
    int given = 0;
    for (uint32_t n = 0; n < g->nodes.count; n++) {
        const graph_node *node = &g->nodes.data[n];
        graph_shape shape = *graph_shape_of(g, node->first);
        if (!graph_is_source(node->op)) {
            uint32_t made;
            graph_region_add_node(&builder, node->op, node->inputs, node->input, node->attribute, 1, &shape, &made);
            graph_region_set(&builder, node->first, made);
            continue;
        }
        const graph_constant *constant = graph_constant_of(g, node->first);
        graph_region_add_input(&builder, node->first, false);
        rows_extents(builder.region, graph_region_tensor(&builder, node->first), sizes, extent, &size);
        arguments[given++] = constant ? (void *)constant->bytes
                                      : rows_elements(arena, shape.dtype, inputs[node->attribute[0].integer], size);
    }
    uint32_t tensor = graph_region_tensor(&builder, g->outputs.data[0]);
    graph_region_finish(&builder);
    tir_region_verify(arena->scope, builder.region);
    rows_extents(builder.region, tensor, sizes, extent, count);
    int rank = builder.region->tensors.data[tensor].rank;
    int64_t *points = LIB_NEW_ARRAY(arena, int64_t, (size_t)(*count * rank));
    for (int64_t p = 0; p < *count; p++)
        for (int64_t i = rank - 1, rest = p; i >= 0; rest /= extent[i], i--) points[p * rank + i] = rest % extent[i];
    uint64_t *bits = LIB_NEW_ARRAY(arena, uint64_t, (size_t)*count);
    if (*count)
        tir_region_evaluate(arena, builder.region, arguments, sizes, tensor, *count, points, (tir_rounding){0}, bits);
    *dtype = builder.region->tensors.data[tensor].dtype;
    return bits;
}

/* ---- references on samples */

enum { ROWS_RESULTS = 16 };

/* A sample with numbers for its operands. */
typedef struct rows_trial {
    lib_arena *arena;
    sample s;
    /* the sample's operands, then its node, whose results begin with `first` */
    graph *g;
    graph_id first;
    graph_reference_tensor operand[SAMPLE_OPERANDS], result[ROWS_RESULTS];
    int results;
} rows_trial;

/* Reads the sample, emits it, and sets the shapes and numbers of all operands. */
static inline void rows_prepare(rows_trial *t, const graph_op *op, const char *line) {
    graph *g = t->g = graph_new(t->arena, NULL);
    graph_id input[SAMPLE_OPERANDS] = {0};
    sample_parse(&t->s, g, op, line);
    for (int i = 0; i < SAMPLE_OPERANDS; i++) t->operand[i].rank = -1;
    for (int i = 0; i < t->s.operands; i++) {
        const sample_operand *from = &t->s.operand[i];
        if (from->left_out) continue;
        graph_shape shape = {.dtype = from->dtype, .rank = from->rank};
        graph_reference_tensor *to = &t->operand[i];
        *to = (graph_reference_tensor){.dtype = from->dtype, .rank = from->rank};
        for (int d = 0; d < from->rank; d++) shape.dim[d] = tir_index(g->pool, to->dim[d] = from->dim[d]);
        input[i] = graph_new_input(g, "x", &shape);
        const int64_t count = sample_count(to);
        to->data = LIB_NEW_ARRAY(t->arena, double, (size_t)count + 1);
        sample_data(from, i, SAMPLE_TAME, 7 + (uint64_t)i, count,
                    LIB_NEW_ARRAY(t->arena, char, (size_t)count *lib_dtype_size(from->dtype) + 1), to->data);
    }
    t->first = graph_emit(g, op, t->s.operands, input, t->s.attribute);
    t->results = graph_node_of(g, t->first)->results;
    for (int r = 0; r < t->results; r++) {
        const graph_shape *shape = graph_shape_of(g, t->first + (graph_id)r);
        t->result[r] = (graph_reference_tensor){.dtype = shape->dtype, .rank = shape->rank};
        for (int d = 0; d < shape->rank; d++) t->result[r].dim[d] = sample_extent(g->pool, shape->dim[d]);
    }
}

/* The results for these elements of operand k. */
static inline void rows_run(const rows_trial *t, int k, double *elements, graph_reference_tensor *out) {
    graph_reference_tensor operand[SAMPLE_OPERANDS];
    memcpy(operand, t->operand, sizeof operand);
    operand[k].data = elements;
    sample_reference(&t->s, t->arena, t->g->pool, operand, t->results, t->result, out);
}

/* ---- wrong uses: a sample's line, and what the message must say */

typedef struct rows_wrong {
    const char *line, *message;
} rows_wrong;

static inline void rows_emit_sample(lib_arena *arena, const char *line) {
    graph *g = graph_new(arena, NULL);
    sample *s = LIB_NEW(arena, sample);
    char name[64] = {0};
    memcpy(name, line, strcspn(line, "("));
    sample_parse(s, g, graph_op_find(name), line);
    graph_id input[SAMPLE_OPERANDS];
    for (int i = 0; i < s->operands; i++) {
        graph_shape shape = {.dtype = s->operand[i].dtype, .rank = s->operand[i].rank};
        for (int d = 0; d < shape.rank; d++) shape.dim[d] = tir_index(g->pool, s->operand[i].dim[d]);
        input[i] = graph_new_input(g, "x", &shape);
    }
    graph_emit(g, s->op, s->operands, input, s->attribute);
}

static inline bool rows_refused(const rows_wrong *use) {
    lib_scope scope;
    lib_arena arena;
    lib_arena_init(&arena, &lib_libc_allocator, &scope);
    if (LIB_ENTER(&scope)) rows_emit_sample(&arena, use->line);
    lib_arena_free(&arena);
    dlc_status status = scope.error.status;
    if (status != DLC_OK && status != DLC_INTERNAL && strstr(scope.error.message, use->message)) return true;
    print_error("%s: status %d, message \"%s\", expected \"...%s...\"\n", use->line, (int)status, scope.error.message,
                use->message);
    return false;
}

static inline void rows_check_refusals(const rows_wrong *uses, size_t count) {
    int accepted = 0;
    for (size_t t = 0; t < count; t++) accepted += !rows_refused(&uses[t]);
    assert_int_equal(accepted, 0);
}

#endif
