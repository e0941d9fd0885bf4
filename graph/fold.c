/* Constant folding: a node with constant operands is evaluated by its compute definition, through tir_region_evaluate, if its
 * bits are identical on all machines and in all programs. They may differ if a multiply-add may be fused, if the machine's math
 * library is called, if the order of a sum is not specified, or with excess precision. Nodes whose bits may differ, or that cost more
 * than FOLD_LIMIT scalar operations, are computed by kernels of the init graph. Nodes whose result is larger than their operands, such
 * as broadcasts, are not folded either: they are better computed inside kernels. */
#include "graph/build.h"
#include "graph/internal.h"
#include "graph/region.h"
#include "tir/arith.h"
#include "tir/math.h"

enum { FOLD_LIMIT = 4096 };

/* Number of elements; -1: some dimension is not a number, or there are too many to fold. */
static int64_t element_count(const graph *g, const graph_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t extent;
        if (!tir_is_const(g->pool, shape->dim[i], &extent) || __builtin_mul_overflow(count, extent, &count)) return -1;
    }
    return count <= INT32_MAX ? count : -1;
}

static bool are_numbers(const graph *g, const graph_attribute *dims) {
    int64_t ignored;
    for (int k = 0; k < dims->count; k++)
        if (!tir_is_const(g->pool, dims->dims[k], &ignored)) return false;
    return true;
}

/* Does the row compute its results from its operands, by a definition of its own? */
static bool has_computation(const graph_op *op) {
    if (op->class_ == GRAPH_COMPOSITE || op->class_ == GRAPH_CONTROL || op->class_ == GRAPH_OPAQUE) return false;
    return !graph_is_source(op) && (op->compute || graph_op_has_scalar(op));
}

static bool worth_folding(const graph *g, const graph_op *op, int inputs, const graph_id *input,
                          const graph_attribute *attributes, const graph_shape *result) {
    if (!has_computation(op)) return false;
    if (g->phase == GRAPH_BUILD && op->class_ == GRAPH_SOURCE && graph_outermost(g)->keeps_dimensions) return false;
    for (int i = 0; op->attribute[i].name; i++)
        if (op->attribute[i].kind == GRAPH_ATTR_DIMS && !are_numbers(g, &attributes[i])) return false;
    int64_t room = 1, count = element_count(g, result);
    for (int i = 0; i < inputs; i++) {
        if (!input[i]) continue;
        if (!graph_constant_of(g, input[i])) return false;
        room += element_count(g, graph_shape_of(g, input[i]));
    }
    return count >= 0 && count <= room && count <= FOLD_LIMIT;
}

/* Scalar operations of all stages; -1: some extent is not a number. */
static int64_t region_work(const tir_region *region) {
    int64_t work = 0;
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        int64_t points = 1;
        for (int i = 0; i < stage->space + stage->reduce; i++) {
            int64_t extent;
            if (!tir_is_const(region->pool, stage->axis[i].extent, &extent)) return -1;
            if (__builtin_mul_overflow(points, extent, &points)) return -1;
        }
        if (__builtin_add_overflow(work, points, &work)) return -1;
    }
    return work;
}

/* Visitor for tir_rewrite: does an expression call the machine's math library? */
static tir_expr find_calls(void *user, tir_pool *pool, tir_expr e, tir_expr rebuilt) {
    const tir_node *node = tir_get(pool, e);
    if ((tir_ops[node->op].flags & TIR_MATH) &&
        tir_math_is_call((tir_op)node->op, tir_dtype_of(pool, tir_operand(pool, e, 0))))
        *(bool *)user = true;
    return rebuilt;
}

/* Has the region no float sum of unspecified order and no call of the machine's math library? */
static bool is_settled(const tir_region *region) {
    bool calls = false;
    for (uint32_t s = 0; s < region->stages.count; s++) {
        const tir_stage *stage = &region->stages.data[s];
        const bool ordered = stage->kind != TIR_MAP && stage->kind != TIR_SORT && !stage->exact;
        for (int c = 0; c < stage->count; c++) {
            if (ordered && lib_dtype_is_float(region->tensors.data[stage->tensor[c]].dtype)) return false;
            const tir_expr parts[] = {stage->value[c], stage->initial[c]};
            for (int p = 0; p < 2; p++)
                if (parts[p]) tir_rewrite(region->pool, parts[p], find_calls, &calls);
        }
        if (stage->predicate) tir_rewrite(region->pool, stage->predicate, find_calls, &calls);
    }
    return !calls;
}

typedef struct fold_job {
    const graph *g;
    const graph_op *op;
    int inputs;
    const graph_id *input;
    const graph_attribute *attributes;
    const graph_shape *result;
    /* elements of the result */
    int64_t count;
    /* receives the elements */
    void *bytes;
} fold_job;

/* Sets bits[count] to the elements of the tensor at the points. True: all permitted roundings give the same bits. */
static bool evaluate_alike(lib_arena *scratch, tir_region *region, void *const *inputs, uint32_t tensor, int64_t count,
                           const int64_t *point, uint64_t *bits) {
    static const tir_rounding others[] = {{true, false}, {false, true}, {true, true}};
    uint64_t *other = LIB_NEW_ARRAY(scratch, uint64_t, (size_t)count);
    /* the graph's symbols, not used by constant nodes */
    int64_t *params = LIB_NEW_ARRAY(scratch, int64_t, region->params.count);
    tir_region_evaluate(scratch, region, inputs, params, tensor, count, point, (tir_rounding){0}, bits);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tir_region_evaluate(scratch, region, inputs, params, tensor, count, point, others[i], other);
        if (memcmp(bits, other, (size_t)count * sizeof *bits) != 0) return false;
    }
    return true;
}

/* Evaluates all elements; false: too much work, or the result depends on machine or program. */
static bool evaluate(lib_arena *scratch, const fold_job *job) {
    const graph *g = job->g;
    const graph_shape *result = job->result;
    graph_region_builder builder = graph_region_start(scratch, g, job->op->name);
    graph_id *inputs = LIB_NEW_ARRAY(scratch, graph_id, (size_t)job->inputs);
    int given = 0;
    for (int i = 0; i < job->inputs; i++) {
        if (!job->input[i] || graph_region_tensor(&builder, job->input[i]) != GRAPH_NONE) continue;
        graph_region_add_input(&builder, job->input[i], true);
        inputs[given++] = job->input[i];
    }
    uint32_t tensor;
    graph_region_add_node(&builder, job->op, job->inputs, job->input, job->attributes, 1, result, &tensor);
    tir_region *region = builder.region;
    tir_region_output(region, tensor);
    int64_t work = region_work(region);
    if (work < 0 || work > FOLD_LIMIT || !is_settled(region)) return false;
    void **pointers = LIB_NEW_ARRAY(scratch, void *, (size_t)job->inputs);
    for (int i = 0; i < given; i++)
        pointers[i] = (void *)(uintptr_t)graph_constant_bytes(scratch->scope, graph_constant_of(g, inputs[i]));
    int64_t *point = LIB_NEW_ARRAY(scratch, int64_t, (size_t)(job->count * result->rank));
    for (int64_t p = 0; p < job->count; p++) {
        int64_t rest = p;
        for (int i = result->rank; i-- > 0;) {
            int64_t extent = 1;
            tir_is_const(g->pool, result->dim[i], &extent);
            point[p * result->rank + i] = rest % extent;
            rest /= extent;
        }
    }
    uint64_t *bits = LIB_NEW_ARRAY(scratch, uint64_t, (size_t)job->count);
    if (!evaluate_alike(scratch, region, pointers, tensor, job->count, point, bits)) return false;
    size_t size = lib_dtype_size(result->dtype);
    for (int64_t p = 0; p < job->count; p++)
        tir_bits_store((tir_dtype)result->dtype, (char *)job->bytes + (size_t)p * size, bits[p]);
    return true;
}

/* Evaluates in a separate arena, which is freed in all cases. */
static bool evaluate_aside(const fold_job *job, lib_scope *outer) {
    lib_scope scope;
    lib_arena scratch;
    lib_arena_init(&scratch, job->g->arena->allocator, &scope);
    volatile bool done = false;
    if (LIB_ENTER(&scope)) done = evaluate(&scratch, job);
    lib_arena_free(&scratch);
    if (scope.error.status != DLC_OK) lib_raise_error(outer, &scope.error);
    return done;
}

graph_id graph_fold(graph *g, const graph_op *op, int inputs, const graph_id *input, const graph_attribute *attributes,
                    const graph_shape *result) {
    bool plain = !lib_dtype_is_stored_otherwise(result->dtype);
    for (int i = 0; i < inputs; i++)
        plain = plain && !(input[i] && lib_dtype_is_stored_otherwise(graph_shape_of(g, input[i])->dtype));
    if (!plain || !worth_folding(g, op, inputs, input, attributes, result)) return 0;
    fold_job job = {g, op, inputs, input, attributes, result, element_count(g, result), NULL};
    job.bytes = lib_arena_take(g->arena, (size_t)job.count * lib_dtype_size(result->dtype));
    if (job.count && !evaluate_aside(&job, g->arena->scope)) return 0;
    int64_t shape[DLC_MAX_RANK];
    for (int i = 0; i < result->rank; i++) tir_is_const(g->pool, result->dim[i], &shape[i]);
    return graph_literal(g, result->dtype, result->rank, shape, job.bytes);
}
