/* Losses over sequences that are not aligned with their labels: CTC, by a scan over the steps. */
#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

enum { CTC_BLANK, CTC_REDUCTION, CTC_ZERO_INFINITY };
enum { LOSS_MEAN, LOSS_SUM, LOSS_NONE };
enum { CTC_X, CTC_LABELS, CTC_STEPS, CTC_LENGTHS };

static void infer_ctc_loss(graph_infer *infer) {
    static const char *const names[] = {"x", "labels", "steps", "lengths"};
    static const int ranks[] = {3, 2, 1, 1};
    const graph_shape *x = &infer->operand[CTC_X];
    tir_pool *pool = infer->g->pool;
    const int64_t blank = infer->attribute[CTC_BLANK].integer;
    for (int i = 0; i < 4; i++) {
        dlc_dtype dtype = infer->operand[i].dtype;
        graph_infer_rank(infer, i, ranks[i]);
        if (i > 0 && dtype != DLC_I32 && dtype != DLC_I64)
            graph_infer_fail(infer, "%s is %s, expected i32 or i64", names[i], lib_dtypes[dtype].name);
        if (i > 0) graph_infer_equal(infer, infer->operand[i].dim[0], x->dim[1], "batches of the operands");
    }
    if (blank < 0 || blank > INT32_MAX)
        graph_infer_fail(infer, "blank is %lld, expected 0 to %d", (long long)blank, INT32_MAX);
    graph_infer_at_most(infer, tir_index(pool, blank + 1), x->dim[2], "blank is no class of x");
    graph_infer_product(infer, 2, (tir_expr[]){infer->operand[CTC_LABELS].dim[1], tir_index(pool, 4)});
    infer->result[0] = (graph_shape){.dtype = x->dtype, .rank = 1, .dim = {x->dim[1]}};
    if (infer->attribute[CTC_REDUCTION].integer != LOSS_NONE) infer->result[0].rank = 0;
}

/* [batch, places] shifted: place k gets the value of place k - `shift`, or `fill`. */
static graph_id shifted(graph *g, graph_id x, int shift, double fill) {
    const graph_shape shape = *graph_shape_of(g, x);
    x = graph_pad(g, x, graph_scalar_like(g, x, fill), (int64_t[]){0, shift}, (int64_t[]){0, 0});
    return graph_slice_axis(g, x, 1, tir_index(g->pool, 0), shape.dim[1]);
}

/* log(exp(a) + exp(b) + exp(c)); operands may be -inf. */
static graph_id log_sum(graph *g, graph_id a, graph_id b, graph_id c) {
    graph_id most = graph_max(g, graph_max(g, a, b), c), none = graph_full_like(g, most, -INFINITY);
    graph_id base = graph_select(g, graph_eq(g, most, none), graph_full_like(g, most, 0), most);
    graph_id sum = graph_add(g, graph_exp(g, graph_sub(g, a, base)), graph_exp(g, graph_sub(g, b, base)));
    return graph_add(g, base, graph_log(g, graph_add(g, sum, graph_exp(g, graph_sub(g, c, base)))));
}

typedef struct ctc {
    graph *g;
    /* [batch, places], labels with blanks in between: 2 labels + 1 */
    graph_id labels;
    /* bool [batch, places]: can this place follow the one two before it? */
    graph_id may_skip;
    /* [steps, batch, places], log-probabilities */
    graph_id emissions;
    /* [batch, places] */
    graph_shape places;
} ctc;

static ctc lay_out(graph_expand *e) {
    graph *g = e->g;
    tir_pool *pool = g->pool;
    const graph_shape x = *graph_shape_of(g, e->input[CTC_X]), given = *graph_shape_of(g, e->input[CTC_LABELS]);
    tir_expr width = tir_add(pool, tir_mul(pool, given.dim[1], tir_index(pool, 2)), tir_index(pool, 1));
    ctc c = {.g = g, .places = {.dtype = DLC_I64, .rank = 2, .dim = {x.dim[1], width}}};
    graph_id blank = graph_whole_number(g, e->attribute[CTC_BLANK].integer), two = graph_whole_number(g, 2);
    graph_id labels =
        graph_pad(g, graph_cast(g, e->input[CTC_LABELS], DLC_I64), blank, (int64_t[]){0, 0}, (int64_t[]){0, 1});
    graph_id place = graph_iota(g, DLC_I64, 1, &width, 0), of = graph_div(g, place, two);
    labels = graph_gather(g, labels, of, 1);
    graph_id odd = graph_eq(g, graph_rem(g, place, two), graph_whole_number(g, 1));
    const int64_t axis = 1;
    odd = graph_broadcast(g, odd, 2, c.places.dim, &axis);
    c.labels = graph_select(g, odd, labels, graph_broadcast(g, blank, 2, c.places.dim, NULL));
    c.may_skip = graph_and(g, odd, graph_ne(g, c.labels, shifted(g, c.labels, 2, -1)));
    tir_expr all[3] = {x.dim[0], x.dim[1], width};
    graph_id index = graph_broadcast(g, c.labels, 3, all, (int64_t[]){1, 2});
    c.emissions = graph_gather_elements(g, graph_widen(g, e->input[CTC_X]), index, 2);
    return c;
}

/* [batch, places] The log-probability of all paths that are at the place after the batch element's last step. */
static graph_id ways_to_places(graph_expand *e, const ctc *c) {
    enum { CARRIES = 1, SEQUENCES = 2, OPERANDS = 5 };
    graph *g = c->g, *body;
    const graph_shape all = *graph_shape_of(g, c->emissions);
    graph_id place = graph_iota(g, DLC_I64, 2, c->places.dim, 1);
    graph_id start = graph_full(g, all.dtype, 2, c->places.dim, -INFINITY);
    start = graph_select(g, graph_eq(g, place, graph_whole_number(g, 0)), graph_full_like(g, start, 0), start);
    graph_id outer[OPERANDS] = {start, c->emissions, graph_iota(g, DLC_I64, 1, all.dim, 0), c->may_skip,
                                graph_cast(g, e->input[CTC_STEPS], DLC_I64)};
    int64_t number;
    body = graph_new_subgraph(g, &number);
    graph_id inner[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        graph_shape shape = *graph_shape_of(g, outer[i]);
        bool element = i >= CARRIES && i < CARRIES + SEQUENCES;
        if (element) memmove(shape.dim, shape.dim + 1, (size_t)--shape.rank * sizeof *shape.dim);
        inner[i] = graph_new_input(body, NULL, &shape);
    }
    graph_id skip = shifted(body, inner[0], 2, -INFINITY);
    skip = graph_select(body, inner[3], skip, graph_full_like(body, skip, -INFINITY));
    graph_id next = graph_add(body, log_sum(body, inner[0], shifted(body, inner[0], 1, -INFINITY), skip), inner[1]);
    const int64_t batch = 0;
    graph_id runs = graph_broadcast(body, graph_lt(body, inner[2], inner[4]), 2, c->places.dim, &batch);
    graph_new_output(body, NULL, graph_select(body, runs, next, inner[0]));
    graph_setting setting[] = {graph_set_integer("body", number), graph_set_integer("carries", CARRIES),
                               graph_set_integer("sequences", SEQUENCES)};
    return graph_emit_with(g, "scan", OPERANDS, outer, 3, setting);
}

static void expand_ctc_loss(graph_expand *e) {
    graph *g = e->g;
    const ctc c = lay_out(e);
    const dlc_dtype dtype = graph_shape_of(g, e->input[CTC_X])->dtype;
    const int64_t reduction = e->attribute[CTC_REDUCTION].integer;
    graph_id ways = ways_to_places(e, &c), place = graph_iota(g, DLC_I64, 2, c.places.dim, 1);
    graph_id length = graph_cast(g, e->input[CTC_LENGTHS], DLC_I64);
    const int64_t batch = 0, along = 1;
    graph_id last = graph_broadcast(g, graph_mul(g, length, graph_whole_number(g, 2)), 2, c.places.dim, &batch);
    graph_id ends =
        graph_or(g, graph_eq(g, place, last), graph_eq(g, place, graph_sub(g, last, graph_whole_number(g, 1))));
    ways = graph_select(g, ends, ways, graph_full_like(g, ways, -INFINITY));
    graph_setting axes = graph_set_list("axes", 1, &along);
    graph_id loss = graph_neg(g, graph_emit_with(g, "logsumexp", 1, &ways, 1, &axes));
    if (e->attribute[CTC_ZERO_INFINITY].integer)
        loss =
            graph_select(g, graph_eq(g, loss, graph_full_like(g, loss, INFINITY)), graph_full_like(g, loss, 0), loss);
    if (reduction == LOSS_MEAN) {
        graph_id divisor = graph_max(g, length, graph_whole_number(g, 1));
        loss = graph_reduce_mean(g, graph_div(g, loss, graph_cast(g, divisor, graph_shape_of(g, loss)->dtype)), 0, NULL,
                                 false);
    }
    if (reduction == LOSS_SUM) loss = graph_reduce_sum(g, loss, 0, NULL, false);
    e->result[0] = graph_cast(g, loss, dtype);
}

/* ---- reference: the sum over all alignments, by recursion over (step, place) backwards from the end */

#ifdef DLC_REFERENCE

/* Sets rest[0] to the probability of the labels of batch element n. rest[k] is meanwhile that of emitting the remaining labels from step
 * t on, if the last emitted class is that of place k. */
static void reference_rest(const graph_reference *r, int64_t n, int64_t steps, int64_t length, double *rest) {
    const graph_reference_tensor *x = &r->operand[CTC_X], *labels = &r->operand[CTC_LABELS];
    const int64_t places = 2 * length + 1, blank = r->attribute[CTC_BLANK].integer;
#define CLASS(k) ((k) % 2 ? (int64_t)labels->data[n * labels->dim[1] + (k) / 2] : blank)
    for (int64_t k = 0; k < places; k++) rest[k] = k >= places - 2;
    for (int64_t t = steps - 1; t >= 1; t--)
        for (int64_t k = 0; k < places; k++) { /* ascending: places after k still have step t's values */
            double sum = 0;
            for (int64_t next = k; next < places && next <= k + 2; next++) {
                if (next == k + 2 && (next % 2 == 0 || CLASS(next) == CLASS(k))) continue;
                sum += exp(x->data[(t * x->dim[1] + n) * x->dim[2] + CLASS(next)]) * rest[next];
            }
            rest[k] = sum;
        }
    double first = 0;
    for (int64_t k = 0; k < 2 && k < places && steps > 0; k++)
        first += exp(x->data[n * x->dim[2] + CLASS(k)]) * rest[k];
    rest[0] = steps > 0 ? first : length == 0;
#undef CLASS
}

static void reference_ctc_loss(const graph_reference *r) {
    const int64_t batches = r->operand[CTC_X].dim[1], reduction = r->attribute[CTC_REDUCTION].integer;
    double total = 0, *rest = malloc((size_t)(2 * r->operand[CTC_LABELS].dim[1] + 1) * sizeof *rest);
    for (int64_t n = 0; n < batches && rest; n++) {
        const int64_t length = (int64_t)r->operand[CTC_LENGTHS].data[n];
        reference_rest(r, n, (int64_t)r->operand[CTC_STEPS].data[n], length, rest);
        double loss = -log(rest[0]);
        if (isinf(loss) && r->attribute[CTC_ZERO_INFINITY].integer) loss = 0;
        if (reduction == LOSS_NONE) r->result[0].data[n] = loss;
        total += reduction == LOSS_MEAN && length > 1 ? loss / (double)length : loss;
    }
    free(rest);
    if (reduction != LOSS_NONE) r->result[0].data[0] = reduction == LOSS_MEAN ? total / (double)batches : total;
}

#endif

static const graph_op row_ctc_loss = {
    COMPOSITE_ROW(ctc_loss, 4, 4, 1, "x labels steps lengths", "float"),
    .attribute =
        {{"blank", GRAPH_ATTR_INTEGER, NULL, "0", "class that says nothing"},
         {"reduction", GRAPH_ATTR_ENUM, "mean sum none", "mean",
          "of all losses, for the mean each over its number of labels (at least 1); none: one result for each"},
         {"zero_infinity", GRAPH_ATTR_BOOL, NULL, "false", "0 in the place of a loss that is infinite"}},
    .infer = infer_ctc_loss,
    .tolerance = 256,
    .samples =
        "ctc_loss(T[7, 3, 5] in -4..-1, i64[3, 2] in 1..5, i64[3] in 4..8, i64[3] in 0..3)\n"
        "ctc_loss(T[9, 2, 4] in -4..-1, i32[2, 4] in 0..3, i32[2] in 9..10, i32[2] in 1..5, blank=3, reduction=none)\n"
        "ctc_loss(T[4, 5, 3] in -4..-1, i64[5, 3] in 1..3, i64[5] in 0..5, i64[5] in 0..4, reduction=sum, zero_infinity=true)\n"
        "ctc_loss(T[2, 4, 3] in -4..-1, i64[4, 3] in 1..3, i64[4] in 2..3, i64[4] in 3..4, reduction=none)\n"
        "ctc_loss(T[3, 2, 2] in -4..-1, i64[2, 0], i64[2] in 0..4, i64[2] in 0..1, reduction=none)\n"
        "ctc_loss(T[0, 1, 2], i64[1, 1] in 1..2, i64[1] in 0..1, i64[1] in 0..1)",
    .doc =
        "-log of the probability of the labels, summed over all ways to lay them out over the steps: each label one or more times in a "
        "row, any number of blanks between, at least one between equal labels. x [steps, batch, classes], logarithms of "
        "probabilities; labels [batch, most], of which the first lengths[b] count, 0 to most; steps[b] of the steps count; "
        "integers are i32 or i64. Infinite where the labels do not fit the steps. Graves et al. 2006; PyTorch CTCLoss.",
};

const graph_op *const graph_ops_sequence[] = {&row_ctc_loss, NULL};
