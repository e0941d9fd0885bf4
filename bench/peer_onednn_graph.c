/* Attention as one partition of oneDNN's graph interface (version 3): softmax(q kT * scale + mask) v. */
#include "bench/peer_onednn.h"

#include <math.h>
#include <oneapi/dnnl/dnnl_graph.h>
#include <stdlib.h>

enum { Q, K, SCALE, MASK, V, SCORES, SCALED, MASKED, WEIGHTS, Y, TENSOR_COUNT, MAX_PORTS = 8 };

struct fused {
    dnnl_graph_graph_t graph;
    dnnl_graph_partition_t partition;
    dnnl_graph_compiled_partition_t compiled;
    dnnl_graph_logical_tensor_t logical[TENSOR_COUNT];
    dnnl_graph_tensor_t inputs[MAX_PORTS], output;
    size_t input_count;
    float scale;
};

static bool ok(plan *p, dnnl_status_t status) {
    if (status != dnnl_success) p->failed = true;
    return !p->failed;
}

static void describe(plan *p, size_t id, const int64_t dims[4]) {
    dnnl_dims_t sizes = {dims[0], dims[1], dims[2], dims[3]};
    ok(p,
       dnnl_graph_logical_tensor_init_with_dims(&p->fused->logical[id], id, dnnl_f32, 4, sizes,
                                                dnnl_graph_layout_type_strided, dnnl_graph_tensor_property_variable));
}

/* An operation on tensors x and, unless it is Q, y. */
static void operation(plan *p, dnnl_graph_op_kind_t kind, size_t x, size_t y, size_t to) {
    dnnl_graph_op_t op = NULL;
    if (p->failed || !ok(p, dnnl_graph_op_create(&op, to, kind, "op"))) return;
    const dnnl_graph_logical_tensor_t *logical = p->fused->logical;
    ok(p, dnnl_graph_op_add_input(op, &logical[x]));
    if (y != Q) ok(p, dnnl_graph_op_add_input(op, &logical[y]));
    ok(p, dnnl_graph_op_add_output(op, &logical[to]));
    if (y == K) ok(p, dnnl_graph_op_set_attr_bool(op, dnnl_graph_op_attr_transpose_b, &(const uint8_t){1}, 1));
    if (kind == dnnl_graph_op_softmax)
        ok(p, dnnl_graph_op_set_attr_s64(op, dnnl_graph_op_attr_axis, &(const int64_t){-1}, 1));
    if (!p->failed) ok(p, dnnl_graph_add_op(p->fused->graph, op));
    dnnl_graph_op_destroy(op);
}

/* The partition of all operations; fails where there are several. */
static void partition(plan *p) {
    struct fused *f = p->fused;
    size_t count = 0;
    uint8_t supported = 0;
    if (p->failed || !ok(p, dnnl_graph_graph_finalize(f->graph)) ||
        !ok(p, dnnl_graph_graph_filter(f->graph, dnnl_graph_partition_policy_fusion)) ||
        !ok(p, dnnl_graph_graph_get_partition_num(f->graph, &count)))
        return;
    if (count != 1) {
        p->failed = true;
        return;
    }
    ok(p, dnnl_graph_graph_get_partitions(f->graph, 1, &f->partition));
    if (!p->failed) ok(p, dnnl_graph_partition_is_supported(f->partition, &supported));
    if (!supported) p->failed = true;
}

static void compile(plan *p, void *const data[TENSOR_COUNT]) {
    struct fused *f = p->fused;
    dnnl_graph_logical_tensor_t ports[MAX_PORTS];
    const dnnl_graph_logical_tensor_t *inputs[MAX_PORTS], *output = &f->logical[Y];
    if (p->failed || !ok(p, dnnl_graph_partition_get_input_ports_num(f->partition, &f->input_count))) return;
    if (f->input_count > MAX_PORTS) p->failed = true;
    if (p->failed || !ok(p, dnnl_graph_partition_get_input_ports(f->partition, f->input_count, ports))) return;
    for (size_t i = 0; i < f->input_count; i++) inputs[i] = &f->logical[ports[i].id];
    if (!ok(p, dnnl_graph_compiled_partition_create(&f->compiled, f->partition)) ||
        !ok(p, dnnl_graph_partition_compile(f->partition, f->compiled, f->input_count, inputs, 1, &output, p->engine)))
        return;
    for (size_t i = 0; i < f->input_count && !p->failed; i++)
        ok(p, dnnl_graph_tensor_create(&f->inputs[i], inputs[i], p->engine, data[inputs[i]->id]));
    if (!p->failed) ok(p, dnnl_graph_tensor_create(&f->output, output, p->engine, data[Y]));
}

void onednn_fused_attention(plan *p, const bench_problem *problem, const float *mask, const int64_t mask_dims[4]) {
    const bench_operand *q = &problem->operands[0], *k = &problem->operands[1], *v = &problem->operands[2];
    struct fused *f = p->fused = calloc(1, sizeof *p->fused);
    if (!f || q->dims[1] != k->dims[1]) {
        p->failed = true;
        return;
    }
    const int64_t one[4] = {1, 1, 1, 1}, scores[4] = {q->dims[0], q->dims[1], q->dims[2], k->dims[2]};
    f->scale = (float)(1 / sqrt((double)q->dims[3]));
    describe(p, Q, q->dims);
    describe(p, K, k->dims);
    describe(p, V, v->dims);
    describe(p, SCALE, one);
    if (mask) describe(p, MASK, mask_dims);
    for (size_t id = SCORES; id <= WEIGHTS; id++) describe(p, id, scores);
    describe(p, Y, q->dims);
    if (p->failed || !ok(p, dnnl_graph_graph_create(&f->graph, dnnl_cpu))) return;
    operation(p, dnnl_graph_op_matmul, Q, K, SCORES);
    operation(p, dnnl_graph_op_multiply, SCORES, SCALE, SCALED);
    if (mask) operation(p, dnnl_graph_op_add, SCALED, MASK, MASKED);
    operation(p, dnnl_graph_op_softmax, mask ? MASKED : SCALED, Q, WEIGHTS);
    operation(p, dnnl_graph_op_matmul, WEIGHTS, V, Y);
    partition(p);
    compile(p, (void *const[TENSOR_COUNT]){[Q] = q->data,
                                           [K] = k->data,
                                           [V] = v->data,
                                           [SCALE] = &f->scale,
                                           [MASK] = (void *)(uintptr_t)mask,
                                           [Y] = problem->results[0].data});
    snprintf(p->note, sizeof p->note, "graph partition");
}

void onednn_fused_run(plan *p) {
    const struct fused *f = p->fused;
    const_dnnl_graph_tensor_t inputs[MAX_PORTS], output = f->output;
    for (size_t i = 0; i < f->input_count; i++) inputs[i] = f->inputs[i];
    ok(p, dnnl_graph_compiled_partition_execute(f->compiled, p->stream, f->input_count, inputs, 1, &output));
}

void onednn_fused_release(plan *p) {
    struct fused *f = p->fused;
    for (size_t i = 0; i < MAX_PORTS; i++)
        if (f->inputs[i]) dnnl_graph_tensor_destroy(f->inputs[i]);
    if (f->output) dnnl_graph_tensor_destroy(f->output);
    if (f->compiled) dnnl_graph_compiled_partition_destroy(f->compiled);
    if (f->partition) dnnl_graph_partition_destroy(f->partition);
    if (f->graph) dnnl_graph_graph_destroy(f->graph);
    free(f);
}
