/* Contractions: dot_general is the only primitive; dot and matmul expand to it (and einsum: ops_einsum.c), with transposes and sums around it. Its
 * axes are named for schedule rules: b batch, i free in x, j free in w, k contracted. */
#include "graph/build.h"
#include "graph/contract.h"
#include "graph/gradient.h"
#include "graph/ops_common.h"

/* ---- dot_general */

enum { DOT_BATCH_X, DOT_BATCH_W, DOT_CONTRACT_X, DOT_CONTRACT_W, DOT_RESULT };

/* The lists of batch axes and of contracted axes of operand 0 (x) or 1 (w). */
static const graph_attribute *batch_of(const graph_attribute *attribute, int operand) {
    return &attribute[DOT_BATCH_X + operand];
}
static const graph_attribute *contract_of(const graph_attribute *attribute, int operand) {
    return &attribute[DOT_CONTRACT_X + operand];
}

static uint32_t bound_axes(const graph_infer *infer, int operand) {
    int rank = infer->operand[operand].rank;
    uint32_t batch =
        graph_infer_axes(infer, batch_of(infer->attribute, operand), rank, operand ? "batch_w" : "batch_x");
    uint32_t contract =
        graph_infer_axes(infer, contract_of(infer->attribute, operand), rank, operand ? "contract_w" : "contract_x");
    if (batch & contract)
        graph_infer_fail(infer, "an axis of operand `%s` is both a batch and a contracted axis", operand ? "w" : "x");
    return batch | contract;
}

/* Checks that two axis lists have equally many axes, with pairwise equal sizes. */
static void pair_axes(const graph_infer *infer, int list, const char *kind) {
    const graph_attribute *x = &infer->attribute[list], *w = &infer->attribute[list + 1];
    if (x->count != w->count)
        graph_infer_fail(infer, "%d %s axes of x and %d of w, expected as many", x->count, kind, w->count);
    for (int i = 0; i < x->count; i++) {
        int a = graph_axis_of(x->list[i], infer->operand[0].rank),
            b = graph_axis_of(w->list[i], infer->operand[1].rank);
        const char *what = lib_arena_format(infer->g->arena, "sizes of %s axis %d of x and axis %d of w", kind, a, b);
        graph_infer_equal(infer, infer->operand[0].dim[a], infer->operand[1].dim[b], what);
    }
}

void graph_infer_add_dim(const graph_infer *infer, tir_expr dim) {
    graph_shape *result = &infer->result[0];
    if (result->rank == DLC_MAX_RANK) graph_infer_fail(infer, "the result has more than %d dimensions", DLC_MAX_RANK);
    result->dim[result->rank++] = dim;
}

static void infer_dot_general(graph_infer *infer) {
    const graph_shape *x = &infer->operand[0];
    graph_shape *result = &infer->result[0];
    uint32_t bound[2] = {bound_axes(infer, 0), bound_axes(infer, 1)};
    pair_axes(infer, DOT_BATCH_X, "batch");
    pair_axes(infer, DOT_CONTRACT_X, "contracted");
    result->dtype = graph_infer_product_dtype(infer, &infer->attribute[DOT_RESULT]);
    result->rank = 0;
    const graph_attribute *batch = batch_of(infer->attribute, 0);
    for (int i = 0; i < batch->count; i++) graph_infer_add_dim(infer, x->dim[graph_axis_of(batch->list[i], x->rank)]);
    for (int operand = 0; operand < 2; operand++)
        for (int axis = 0; axis < infer->operand[operand].rank; axis++)
            if (!(bound[operand] >> axis & 1)) graph_infer_add_dim(infer, infer->operand[operand].dim[axis]);
}

void graph_dot_places(const graph_attribute *attribute, const int rank[2], int64_t place[2][DLC_MAX_RANK]) {
    int next = batch_of(attribute, 0)->count;
    for (int o = 0; o < 2; o++) {
        const graph_attribute *batch = batch_of(attribute, o), *contract = contract_of(attribute, o);
        const uint32_t bound = graph_axes_of(batch, rank[o], false) | graph_axes_of(contract, rank[o], false);
        for (int i = 0; i < rank[o]; i++) place[o][i] = bound >> i & 1 ? -1 : next++;
        for (int i = 0; i < batch->count; i++) place[o][graph_axis_of(batch->list[i], rank[o])] = i;
    }
}

/* Sets names[count]: "i" (the letter) for a single axis, else "i0", "i1", ... */
static void name_axes(lib_arena *arena, char letter, int count, const char **names) {
    for (int i = 0; i < count; i++) names[i] = lib_arena_format(arena, count > 1 ? "%c%d" : "%c", letter, i);
}

/* Sets index[] to that of the operand at a point of the stage: batch and contracted axes by the lists; the operand's other axes are the
 * stage's axes from `first_free` on. */
static void dot_index(const graph_compute *c, const tir_stage *stage, int operand, int first_free, tir_expr *index) {
    int rank = c->operand_shape[operand].rank, free_axis = first_free;
    const graph_attribute *batch = batch_of(c->attribute, operand), *contract = contract_of(c->attribute, operand);
    for (int i = 0; i < rank; i++) index[i] = 0;
    for (int i = 0; i < batch->count; i++) index[graph_axis_of(batch->list[i], rank)] = stage->axis[i].var;
    for (int i = 0; i < contract->count; i++)
        index[graph_axis_of(contract->list[i], rank)] = stage->axis[stage->space + i].var;
    for (int i = 0; i < rank; i++)
        if (!index[i]) index[i] = stage->axis[free_axis++].var;
}

static void compute_dot_general(graph_compute *c) {
    const graph_shape *x = &c->operand_shape[0], *w = &c->operand_shape[1], *result = &c->result_shape[0];
    const graph_attribute *contract = contract_of(c->attribute, 0);
    int batch = batch_of(c->attribute, 0)->count, count = contract->count;
    int free_x = x->rank - batch - count, free_w = w->rank - batch - count;
    const char *space[DLC_MAX_RANK], *reduce[DLC_MAX_RANK];
    name_axes(c->region->arena, 'b', batch, space);
    name_axes(c->region->arena, 'i', free_x, space + batch);
    name_axes(c->region->arena, 'j', free_w, space + batch + free_x);
    name_axes(c->region->arena, 'k', count, reduce);
    tir_expr extent[DLC_MAX_RANK];
    for (int i = 0; i < count; i++) extent[i] = x->dim[graph_axis_of(contract->list[i], x->rank)];
    tir_stage *stage = tir_region_stage(c->region, count ? TIR_REDUCE : TIR_MAP, c->name, result->rank, space,
                                        result->dim, count, reduce, extent);
    tir_dtype sum = (tir_dtype)graph_sum_dtype(result->dtype);
    tir_expr index[DLC_MAX_RANK];
    dot_index(c, stage, 0, batch, index);
    tir_expr a = tir_cast(c->pool, sum, graph_operand_load(c, 0, index));
    dot_index(c, stage, 1, batch + free_x, index);
    tir_expr b = tir_cast(c->pool, sum, graph_operand_load(c, 1, index));
    if (count)
        c->result[0] = graph_compute_cast(c, tir_stage_contract(c->region, stage, a, b), result->dtype, space);
    else
        c->result[0] = tir_stage_value(c->region, stage,
                                       tir_cast(c->pool, (tir_dtype)result->dtype, tir_mul(c->pool, a, b)), 0, 0);
}

/* order[axis of the operand] is a dimension of (batch, free, contracted). Is the operand (batch, contracted, free)? Then renumbers `order` for that
 * sequence. */
static bool begins_with_contracted(int rank, int batch, int contracted, int64_t *order) {
    int64_t other[DLC_MAX_RANK];
    const int free = rank - batch - contracted;
    bool same = free > 0 && contracted > 0;
    for (int i = 0; i < rank; i++) {
        other[i] = order[i] < batch ? order[i] : order[i] < batch + free ? order[i] + contracted : order[i] - free;
        same = same && other[i] == i;
    }
    if (same) memcpy(order, other, (size_t)rank * sizeof *order);
    return same;
}

/* Sets order[axis of the rule's operand] to its dimension of (batch, free, contracted); contracted axes are in the
 * order in which the other operand has them. place: of the operand's axes, by graph_dot_places. */
static void order_axes(const graph_rule *rule, const int rank[2], const int64_t *place, int64_t *order) {
    const int o = rule->operand, other = 1 - o;
    const graph_attribute *batch = batch_of(rule->attribute, o), *contract = contract_of(rule->attribute, o);
    const graph_attribute *held_contract = contract_of(rule->attribute, other);
    int next = batch->count;
    for (int i = 0; i < batch->count; i++) order[graph_axis_of(batch->list[i], rank[o])] = i;
    for (int i = 0; i < rank[o]; i++)
        if (place[i] >= batch->count) order[i] = next++;
    for (int i = 0; i < rank[other]; i++)
        for (int k = 0; k < contract->count; k++)
            if (graph_axis_of(held_contract->list[k], rank[other]) == i)
                order[graph_axis_of(contract->list[k], rank[o])] = next++;
}

/* The cotangent of an operand: that of the result times the other operand, summed over the other's free axes; the batch, the free
 * axes and the contracted ones (in the order in which the other operand has them) are put in the operand's order. Products of f16 and bf16
 * are of the cotangent rounded to that type, and summed in f32. */
static void transpose_dot_general(graph_rule *rule) {
    graph *g = rule->g;
    const int o = rule->operand, other = 1 - o;
    const graph_shape own = *graph_shape_of(g, rule->input[o]), held = *graph_shape_of(g, rule->input[other]);
    const int rank[2] = {graph_shape_of(g, rule->input[0])->rank, graph_shape_of(g, rule->input[1])->rank};
    const graph_attribute *batch = batch_of(rule->attribute, o), *contract = contract_of(rule->attribute, o);
    const graph_attribute *held_batch = batch_of(rule->attribute, other);
    int64_t place[2][DLC_MAX_RANK], first[DLC_MAX_RANK], summed[2][DLC_MAX_RANK], order[DLC_MAX_RANK];
    int sums = 0;
    graph_dot_places(rule->attribute, rank, place);
    for (int i = 0; i < batch->count; i++) first[i] = i;
    for (int i = 0; i < held.rank; i++) {
        if (place[other][i] < batch->count) continue; /* batch or contracted */
        summed[0][sums] = place[other][i];
        summed[1][sums++] = i;
    }
    const bool half = held.dtype == DLC_F16 || held.dtype == DLC_BF16;
    const graph_id w = half ? rule->input[other] : graph_widen(g, rule->input[other]);
    const graph_id c = graph_cast(g, rule->cotangent[0], graph_shape_of(g, w)->dtype);
    order_axes(rule, rank, place[o], order);
    /* The operand whose axes come first is the contraction's first: then nothing is transposed. */
    const bool held_first = begins_with_contracted(own.rank, batch->count, contract->count, order);
    graph_setting setting[] = {graph_set_list(held_first ? "batch_w" : "batch_x", batch->count, first),
                               graph_set_list(held_first ? "batch_x" : "batch_w", batch->count, held_batch->list),
                               graph_set_list(held_first ? "contract_w" : "contract_x", sums, summed[0]),
                               graph_set_list(held_first ? "contract_x" : "contract_w", sums, summed[1]),
                               graph_set_integer("result", GRAPH_RESULT_F32)};
    const graph_id operands[2] = {held_first ? w : c, held_first ? c : w};
    const graph_id out = graph_emit_with(g, "dot_general", 2, operands, half ? 5 : 4, setting);
    rule->out[0] = graph_cast(g, graph_transpose(g, out, order), graph_tangent_dtype(own.dtype));
}

/* ---- dot and matmul */

enum { MATMUL_RESULT };

/* The axis of w, of this rank, that matmul contracts with the last axis of x. */
static int contracted_axis(int rank) {
    return rank > 1 ? rank - 2 : 0;
}

static void infer_contracted(const graph_infer *infer) {
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1];
    if (x->rank < 1 || w->rank < 1)
        graph_infer_fail(infer, "operands have ranks %d and %d, expected at least 1", x->rank, w->rank);
    graph_infer_inner(infer, contracted_axis(w->rank),
                      w->rank > 1 ? "the last dimension of x and the last but one of w"
                                  : "the last dimension of x and the dimension of w",
                      w->rank == 2 ? "transpose it, or use linear with transposed=true"
                                   : "transpose its last two dimensions");
    infer->result[0].dtype = graph_infer_product_dtype(infer, &infer->attribute[MATMUL_RESULT]);
    infer->result[0].rank = 0;
}

static void infer_dot(graph_infer *infer) {
    infer_contracted(infer);
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1];
    for (int i = 0; i < x->rank - 1; i++) graph_infer_add_dim(infer, x->dim[i]);
    for (int i = 0; i < w->rank; i++)
        if (i != contracted_axis(w->rank)) graph_infer_add_dim(infer, w->dim[i]);
}

static void expand_dot(graph_expand *e) {
    int64_t x_axis = graph_shape_of(e->g, e->input[0])->rank - 1;
    int64_t w_axis = contracted_axis(graph_shape_of(e->g, e->input[1])->rank);
    e->result[0] = graph_contract_as(e->g, e->input[0], e->input[1], 0, NULL, NULL, 1, &x_axis, &w_axis,
                                     e->attribute[MATMUL_RESULT].integer);
}

/* Numbers of batch dimensions of matmul's operands, of[0] and of[1], and of the result. They are aligned at the last: batch_axis gives the
 * operand's axis for batch dimension i of the result; -1: none. */
typedef struct matmul_batch {
    int count, of[2];
} matmul_batch;

static matmul_batch matmul_batches(int rank_x, int rank_w) {
    matmul_batch batch = {.of = {rank_x > 2 ? rank_x - 2 : 0, rank_w > 2 ? rank_w - 2 : 0}};
    batch.count = batch.of[0] > batch.of[1] ? batch.of[0] : batch.of[1];
    return batch;
}

static int batch_axis(const matmul_batch *batch, int operand, int i) {
    int axis = i - (batch->count - batch->of[operand]);
    return axis < 0 ? -1 : axis;
}

static void infer_matmul(graph_infer *infer) {
    infer_contracted(infer);
    const graph_shape *x = &infer->operand[0], *w = &infer->operand[1];
    matmul_batch batch = matmul_batches(x->rank, w->rank);
    for (int i = 0; i < batch.count; i++) {
        int a = batch_axis(&batch, 0, i), b = batch_axis(&batch, 1, i);
        bool from_w = a < 0 || (b >= 0 && tir_is_number(infer->g->pool, x->dim[a], 1));
        if (!from_w && b >= 0 && !tir_is_number(infer->g->pool, w->dim[b], 1)) {
            const char *what = lib_arena_format(
                infer->g->arena, "sizes of batch dimension %d of x and %d of w (or one of them 1)", a, b);
            graph_infer_equal(infer, x->dim[a], w->dim[b], what);
        }
        graph_infer_add_dim(infer, from_w ? w->dim[b] : x->dim[a]);
    }
    if (x->rank > 1) graph_infer_add_dim(infer, x->dim[x->rank - 2]);
    if (w->rank > 1) graph_infer_add_dim(infer, w->dim[w->rank - 1]);
}

/* How matmul becomes a dot_general. A batch dimension that only one operand has, or has with a size other than 1, is no batch axis of the
 * dot_general but a free axis of that operand, so that nothing is repeated. */
typedef struct matmul_plan {
    /* by operand and axis: it is kept; other axes have size 1 and are dropped */
    bool kept[2][DLC_MAX_RANK];
    /* batch axes of each operand, counted after dropping */
    int64_t batch[2][DLC_MAX_RANK];
    int batches;
    /* by axis of the result: the axis of dot_general's result (batch, free axes of x, free axes of w) */
    int64_t permutation[DLC_MAX_RANK];
} matmul_plan;

/* Whose axis a batch dimension is in the dot_general. */
enum { BOTH, X_ONLY, W_ONLY };

/* The role of batch dimension i of the result. */
static int role_of(const graph *g, const graph_shape *const shape[2], const matmul_batch *batch, int i) {
    int a = batch_axis(batch, 0, i), b = batch_axis(batch, 1, i);
    const bool one_x = a < 0 || tir_is_number(g->pool, shape[0]->dim[a], 1),
               one_w = b < 0 || tir_is_number(g->pool, shape[1]->dim[b], 1);
    return a < 0 ? W_ONLY : b < 0 ? X_ONLY : one_x == one_w ? BOTH : one_x ? W_ONLY : X_ONLY;
}

/* Sets plan->batch by the roles of batch dimensions and the axes that are kept. */
static void plan_batch_axes(const matmul_batch *batch, const int *role, matmul_plan *plan) {
    for (int o = 0; o < 2; o++)
        for (int i = 0, axis = 0, n = 0; i < batch->count; i++) {
            int own = batch_axis(batch, o, i);
            if (role[i] == BOTH) plan->batch[o][n++] = axis;
            axis += own >= 0 && plan->kept[o][own];
        }
}

static void plan_axes(const graph *g, const graph_shape *const shape[2], const matmul_batch *batch, matmul_plan *plan) {
    int role[DLC_MAX_RANK], place[3] = {0, 0, 0};
    for (int o = 0; o < 2; o++)
        for (int axis = 0; axis < shape[o]->rank; axis++) plan->kept[o][axis] = true;
    for (int i = 0; i < batch->count; i++) {
        int a = batch_axis(batch, 0, i), b = batch_axis(batch, 1, i);
        role[i] = role_of(g, shape, batch, i);
        if (role[i] == W_ONLY && a >= 0) plan->kept[0][a] = false;
        if (role[i] == X_ONLY && b >= 0) plan->kept[1][b] = false;
        if (role[i] == BOTH) plan->batches++;
    }
    int rows = shape[0]->rank > 1, free_x = rows;
    for (int i = 0; i < batch->count; i++) free_x += role[i] == X_ONLY;
    for (int i = 0; i < batch->count; i++) {
        int start = role[i] == BOTH ? 0 : role[i] == X_ONLY ? plan->batches : plan->batches + free_x;
        plan->permutation[i] = start + place[role[i]]++;
    }
    if (rows) plan->permutation[batch->count] = plan->batches + free_x - 1;
    if (shape[1]->rank > 1) plan->permutation[batch->count + rows] = plan->batches + free_x + place[W_ONLY];
    plan_batch_axes(batch, role, plan);
}

graph_id graph_drop_axes(graph *g, graph_id x, const bool *kept) {
    graph_shape shape = *graph_shape_of(g, x);
    tir_expr dim[DLC_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < shape.rank; i++)
        if (kept[i]) dim[rank++] = shape.dim[i];
    return rank == shape.rank ? x : graph_reshape(g, x, rank, dim);
}

graph_id graph_transpose_unless_same(graph *g, graph_id x, const int64_t *permutation) {
    bool same = true;
    for (int i = 0; i < graph_shape_of(g, x)->rank; i++) same &= permutation[i] == i;
    return same ? x : graph_transpose(g, x, permutation);
}

static void expand_matmul(graph_expand *e) {
    graph *g = e->g;
    const graph_shape x_shape = *graph_shape_of(g, e->input[0]), w_shape = *graph_shape_of(g, e->input[1]);
    const graph_shape *const shape[2] = {&x_shape, &w_shape};
    matmul_batch batch = matmul_batches(x_shape.rank, w_shape.rank);
    matmul_plan plan = {.batches = 0};
    plan_axes(g, shape, &batch, &plan);
    graph_id x = graph_drop_axes(g, e->input[0], plan.kept[0]), w = graph_drop_axes(g, e->input[1], plan.kept[1]);
    int64_t x_axis = graph_shape_of(g, x)->rank - 1, w_axis = contracted_axis(graph_shape_of(g, w)->rank);
    graph_id result = graph_contract_as(g, x, w, plan.batches, plan.batch[0], plan.batch[1], 1, &x_axis, &w_axis,
                                        e->attribute[MATMUL_RESULT].integer);
    e->result[0] = graph_transpose_unless_same(g, result, plan.permutation);
}

/* ---- references */

#ifdef DLC_REFERENCE

/* Sums of integers are words in the result's array until the end. */
void graph_reference_sum_of_products(const graph_reference *r, int operands, int labels, const int64_t *size,
                                     int (*label)[DLC_MAX_RANK], const int *out) {
    const graph_reference_tensor *y = &r->result[0];
    const bool integral = graph_reference_integral(y->dtype);
    int64_t at[64] = {0}, count = graph_reference_count(y);
    for (int i = 0; i < labels; i++)
        if (size[i] == 0) return;
    for (bool more = true; more;) {
        double term = 1, *sum;
        uint64_t word = 1, words;
        int64_t index[DLC_MAX_RANK];
        for (int o = 0; o < operands; o++) {
            for (int i = 0; i < r->operand[o].rank; i++) index[i] = r->operand[o].dim[i] == 1 ? 0 : at[label[o][i]];
            double x = r->operand[o].data[graph_reference_at(&r->operand[o], index)];
            if (integral)
                word *= graph_reference_word(x);
            else
                term *= x;
        }
        for (int i = 0; i < y->rank; i++) index[i] = at[out[i]];
        sum = &y->data[graph_reference_at(y, index)];
        if (integral) {
            memcpy(&words, sum, sizeof words);
            words += word;
            memcpy(sum, &words, sizeof words);
        } else {
            *sum += term;
        }
        more = false;
        for (int i = labels - 1; i >= 0 && !more; i--) {
            more = ++at[i] < size[i];
            if (!more) at[i] = 0;
        }
    }
    for (int64_t i = 0; integral && i < count; i++) {
        uint64_t words;
        memcpy(&words, &y->data[i], sizeof words);
        y->data[i] = graph_reference_wrap(y->dtype, words);
    }
}

static void reference_dot_general(const graph_reference *r) {
    int64_t size[64];
    int label[2][DLC_MAX_RANK], out[DLC_MAX_RANK] = {0}, labels = 0, rank = 0;
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < DLC_MAX_RANK; i++) label[o][i] = -1;
    for (int list = 0; list < 4; list += 2)
        for (int i = 0; i < r->attribute[list].count; i++, labels++) {
            int64_t a = r->attribute[list].list[i], b = r->attribute[list + 1].list[i];
            a += a < 0 ? r->operand[0].rank : 0;
            b += b < 0 ? r->operand[1].rank : 0;
            label[0][a] = label[1][b] = labels;
            size[labels] = r->operand[0].dim[a];
            if (list == 0) out[rank++] = labels;
        }
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < r->operand[o].rank; i++) {
            if (label[o][i] >= 0) continue;
            size[labels] = r->operand[o].dim[i];
            out[rank++] = label[o][i] = labels++;
        }
    graph_reference_sum_of_products(r, 2, labels, size, label, out);
}

static void reference_dot(const graph_reference *r) {
    int64_t size[64];
    int label[2][DLC_MAX_RANK], out[DLC_MAX_RANK] = {0}, labels = 1, rank = 0;
    size[0] = r->operand[0].dim[r->operand[0].rank - 1];
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < r->operand[o].rank; i++) {
            bool contracted =
                o == 0 ? i == r->operand[0].rank - 1 : r->operand[1].rank == 1 || i == r->operand[1].rank - 2;
            label[o][i] = 0;
            if (contracted) continue;
            size[labels] = r->operand[o].dim[i];
            out[rank++] = label[o][i] = labels++;
        }
    graph_reference_sum_of_products(r, 2, labels, size, label, out);
}

/* Labels: 0 contracted, 1 row, 2 column, 3 + i the batch dimension i counted from the last. */
static void reference_matmul(const graph_reference *r) {
    const graph_reference_tensor *x = &r->operand[0], *w = &r->operand[1], *y = &r->result[0];
    int64_t size[64] = {x->dim[x->rank - 1], x->rank > 1 ? x->dim[x->rank - 2] : 1,
                        w->rank > 1 ? w->dim[w->rank - 1] : 1};
    int label[2][DLC_MAX_RANK], out[DLC_MAX_RANK] = {0}, tail = (x->rank > 1) + (w->rank > 1), batch = y->rank - tail;
    for (int i = 0; i < batch; i++) size[3 + i] = y->dim[batch - 1 - i];
    for (int i = 0; i < batch; i++) out[i] = 3 + batch - 1 - i;
    if (x->rank > 1) out[batch] = 1;
    if (w->rank > 1) out[y->rank - 1] = 2;
    for (int i = 0; i < x->rank; i++) label[0][i] = i == x->rank - 1 ? 0 : i == x->rank - 2 ? 1 : 3 + x->rank - 3 - i;
    for (int i = 0; i < w->rank; i++)
        label[1][i] = w->rank == 1 ? 0 : i == w->rank - 1 ? 2 : i == w->rank - 2 ? 0 : 3 + w->rank - 3 - i;
    graph_reference_sum_of_products(r, 2, 3 + batch, size, label, out);
}

#endif

/* ---- rows */

static const graph_op row_dot_general = {
    PRIMITIVE_ROW(dot_general, GRAPH_CONTRACT, 2, 2, 1, "x w", "number c64"),
    .structure = GRAPH_CONTRACTS,
    .precision = GRAPH_NARROW,
    .attribute = {{"batch_x", GRAPH_ATTR_INTEGERS, NULL, "[]", "batch axes of x"},
                  {"batch_w", GRAPH_ATTR_INTEGERS, NULL, "[]", "batch axes of w, in the order of those of x"},
                  {"contract_x", GRAPH_ATTR_INTEGERS, NULL, NULL, "contracted axes of x"},
                  {"contract_w", GRAPH_ATTR_INTEGERS, NULL, NULL, "contracted axes of w, in the order of those of x"},
                  GRAPH_RESULT_ATTRIBUTE},
    .infer = infer_dot_general,
    GRAPH_LINEAR(3, transpose_dot_general),
    .tolerance = 1,
    .samples =
        "dot_general(T[5, 7], T[7, 3], contract_x=[1], contract_w=[0])\n"
        "dot_general(T[7], T[7], contract_x=[0], contract_w=[0])\n"
        "dot_general(T[], T[], contract_x=[], contract_w=[])\n"
        "dot_general(T[3], T[5], contract_x=[], contract_w=[])\n"
        "dot_general(T[1, 1], T[1, 1], contract_x=[1], contract_w=[0])\n"
        "dot_general(T[3, 0], T[0, 2], contract_x=[1], contract_w=[0])\n"
        "dot_general(T[0, 3], T[3, 2], contract_x=[1], contract_w=[0])\n"
        "dot_general(T[45, 9], T[9, 20], contract_x=[1], contract_w=[0])\n"
        "dot_general(T[17, 31], T[13, 31], contract_x=[-1], contract_w=[-1])\n"
        "dot_general(T[3, 5, 7], T[3, 7, 2], batch_x=[0], batch_w=[0], contract_x=[2], contract_w=[1])\n"
        "dot_general(T[5, 3, 7, 2], T[7, 2, 3, 4], batch_x=[1, 3], batch_w=[2, 1], contract_x=[2], contract_w=[0])\n"
        "dot_general(T[4, 3, 5], T[5, 6, 3], contract_x=[1, 2], contract_w=[2, 0])\n"
        "dot_general(T[2, 3], T[2, 3], batch_x=[0, 1], batch_w=[0, 1], contract_x=[], contract_w=[])\n"
        "dot_general(f16[9, 11], f16[11, 4], contract_x=[1], contract_w=[0], result=f32)\n"
        "dot_general(bf16[9, 11], bf16[11, 4], contract_x=[1], contract_w=[0], result=f32)\n"
        "dot_general(i8[9, 70], i8[70, 4], contract_x=[1], contract_w=[0], result=i32)\n"
        "dot_general(bf16[33, 51], bf16[51, 21], contract_x=[1], contract_w=[0], result=f32)\n"
        "dot_general(u8[33, 50], i8[50, 21], contract_x=[1], contract_w=[0], result=i32)\n"
        "dot_general(u8[9, 70], i8[70, 4], contract_x=[1], contract_w=[0], result=i32)\n"
        "dot_general(f8e4m3fn[33, 51], f8e4m3fn[51, 21], contract_x=[1], contract_w=[0], result=f32)\n"
        "dot_general(f8e5m2[33, 51], f8e4m3fn[21, 51], contract_x=[1], contract_w=[1], result=bf16)\n"
        "dot_general(bf16[9, 40], f8e4m3fnuz[40, 21], contract_x=[1], contract_w=[0], result=bf16)\n"
        "dot_general(f32[5, 40], f8e5m2fnuz[40, 7], contract_x=[1], contract_w=[0], result=f32)\n"
        "dot_general(u16[9, 40], u16[40, 5], contract_x=[1], contract_w=[0], result=u32)",
    .doc =
        "Sum over the contracted axes of x*w. Result axes: the batch axes, the other axes of x, the other axes "
        "of w. f16 and bf16 multiply and add in f32 and round once; integers wrap. result names a wider element "
        "type for the sums and the result: a float, or i32, i64, u32, u64 for integers; floats of different dtypes "
        "may then meet, and u8 and i8. Sums whose result is below f32 are f32, and round once. Of c64 the four products of parts. StableHLO dot_general.",
};

static const graph_op row_dot = {
    COMPOSITE_ROW(dot, 2, 2, 1, "x w", "number c64"),
    .linear = 3,
    .precision = GRAPH_NARROW,
    .attribute = {GRAPH_RESULT_ATTRIBUTE},
    .infer = infer_dot,
    .tolerance = 1,
    .bound = GRAPH_REFERENCE(graph_bound_contraction),
    .samples =
        "dot(T[5, 7], T[7, 3])\ndot(T[7], T[7])\ndot(T[3, 7], T[7])\ndot(T[7], T[7, 2])\ndot(T[2, 3, 5], T[4, 5, 3])\n"
        "dot(T[3, 0], T[0, 2])\ndot(i8[3, 11], i8[11, 2], result=i32)",
    .doc = "Sum over the last axis of x and the last but one of w (its only one at rank 1). Result axes: the others "
           "of x, then the others of w. result as for dot_general. NumPy dot.",
};

static const graph_op row_matmul = {
    COMPOSITE_ROW(matmul, 2, 2, 1, "x w", "number c64"),
    .aliases = "mm bmm",
    .linear = 3,
    .precision = GRAPH_NARROW,
    .attribute = {GRAPH_RESULT_ATTRIBUTE},
    .infer = infer_matmul,
    .tolerance = 1,
    .bound = GRAPH_REFERENCE(graph_bound_contraction),
    .samples =
        "matmul(T[5, 7], T[7, 3])\nmatmul(T[7], T[7])\nmatmul(T[3, 7], T[7])\nmatmul(T[7], T[7, 2])\n"
        "matmul(T[2, 3, 5], T[5, 4])\nmatmul(T[3, 5], T[2, 5, 4])\nmatmul(T[2, 3, 5], T[2, 5, 4])\n"
        "matmul(T[2, 1, 3, 5], T[1, 7, 5, 4])\nmatmul(T[7, 3, 5], T[2, 1, 5, 4])\nmatmul(T[7, 2, 3, 5], T[2, 5, 4])\n"
        "matmul(T[2, 3, 5], T[3, 2, 5, 4])\nmatmul(T[3, 1, 2, 2, 5], T[4, 2, 5, 3])\nmatmul(T[5], T[2, 3, 5, 4])\n"
        "matmul(T[2, 3, 4, 5], T[5])\nmatmul(T[1, 1], T[1, 1])\nmatmul(T[1, 3, 5], T[1, 5, 4])\n"
        "matmul(T[3, 0], T[0, 2])\nmatmul(T[0, 3, 5], T[5, 4])\nmatmul(bf16[9, 11], bf16[11, 4], result=f32)\n"
        "matmul(i8[2, 3, 70], i8[2, 70, 4], result=i32)\nmatmul(u8[2, 9, 40], i8[1, 40, 5], result=i32)\n"
        "matmul(i16[3, 2, 9], i16[3, 9, 4], result=i64)",
    .doc = "Matrix product over the last two axes; the axes before them are batches and broadcast. An operand of "
           "rank 1 is a row (x) or a column (w), whose axis is not in the result. result as for dot_general. NumPy "
           "matmul.",
};

const graph_op *const graph_ops_contract[] = {&row_dot_general, &row_dot, &row_matmul, NULL};
