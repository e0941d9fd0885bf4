/* Recurrent layers: rnn, gru, lstm with ONNX's operands, gates and directions. They expand into one contraction of the inputs of
 * all steps and a scan over the state-dependent part. In f16 and bf16, states and gates are f32; results are rounded once. */
#include "graph/build.h"
#include "graph/ops_common.h"

#include <math.h>

#ifdef DLC_REFERENCE
#include <stdlib.h>
#endif

/* ---- shared by the three layers */

enum { DIRECTION, ACTIVATIONS, CLIP, LAYOUT, EXTRA }; /* attributes; EXTRA: specific to the row */
enum { FORWARD, REVERSE, BIDIRECTIONAL };
enum { X, W, R, BIAS, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLE }; /* operands */
enum { MAX_FUNCTIONS = 3 };

/* one for each row */
typedef struct recurrence {
    const char *name;
    /* blocks of rows of w and r */
    int gates;
    /* activations of one direction */
    int functions;
    /* the activations if none are given */
    const char *usual;
    bool has_cell;
} recurrence;

static const recurrence recurrences[] = {
    {"rnn", 1, 1, "tanh", false}, {"gru", 3, 2, "sigmoid tanh", false}, {"lstm", 4, 3, "sigmoid tanh tanh", true}};

static const recurrence *recurrence_of(const graph_op *op) {
    const recurrence *r = recurrences;
    while (strcmp(r->name, op->name) != 0) r++;
    return r;
}

/* ---- activation functions by name, as ONNX lists them */

typedef enum function_kind {
    AFFINE,
    ELU,
    HARD_SIGMOID,
    LEAKY_RELU,
    RELU,
    SCALED_TANH,
    SIGMOID,
    SOFTPLUS,
    SOFTSIGN,
    TANH,
    THRESHOLDED_RELU,
    FUNCTIONS
} function_kind;

typedef struct function {
    function_kind kind;
    double alpha, beta;
} function;

static const struct {
    const char *name;
    double alpha, beta;
} known_functions[FUNCTIONS] = {[AFFINE] = {"affine", 1, 0},
                                [ELU] = {"elu", 1, 0},
                                [HARD_SIGMOID] = {"hardsigmoid", 0.2, 0.5},
                                [LEAKY_RELU] = {"leakyrelu", 0.01, 0},
                                [RELU] = {"relu", 0, 0},
                                [SCALED_TANH] = {"scaledtanh", 1, 1},
                                [SIGMOID] = {"sigmoid", 0, 0},
                                [SOFTPLUS] = {"softplus", 0, 0},
                                [SOFTSIGN] = {"softsign", 0, 0},
                                [TANH] = {"tanh", 0, 0},
                                [THRESHOLDED_RELU] = {"thresholdedrelu", 1, 0}};

#define FUNCTION_NAMES "affine elu hardsigmoid leakyrelu relu scaledtanh sigmoid softplus softsign tanh thresholdedrelu"
#define FUNCTION_DOC                                                                                    \
    "names separated by spaces: " FUNCTION_NAMES                                                        \
    ", each with its alpha and beta where it has them, as in leakyrelu(0.01) or hardsigmoid(0.2,0.5); " \
    "for one direction, or for the forward and then the reverse one"

static size_t digits_at(const char *text) {
    return strspn(text, "0123456789");
}

/* Reads a decimal number at *text, such as -0.25 or 1e-05, in any locale; false: there is none, or it is not finite. */
static bool read_number(const char **text, double *out) {
    const char *at = *text + (**text == '-');
    size_t digits = digits_at(at);
    at += digits;
    if (*at == '.') {
        const size_t fraction = digits_at(at + 1);
        at += 1 + fraction, digits += fraction;
    }
    if (digits && (*at == 'e' || *at == 'E')) {
        const char *exponent = at + 1 + (at[1] == '-' || at[1] == '+');
        const size_t length = digits_at(exponent);
        if (length) at = exponent + length;
    }
    if (!digits || !lib_parse_double(*text, out)) return false;
    *text = at;
    return isfinite(*out);
}

static bool read_name(const char **text, char word[24]) {
    size_t length = 0;
    const char *at = *text;
    for (; length < 23 && ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z')); at++)
        word[length++] = *at <= 'Z' ? (char)(*at + ('a' - 'A')) : *at;
    word[length] = 0;
    *text = at;
    return length > 0;
}

/* Reads one function at *text, ignoring case; false: unknown. */
static bool read_function(const char **text, function *out) {
    char word[24];
    const char *at = *text;
    if (!read_name(&at, word)) return false;
    int kind = 0;
    while (kind < FUNCTIONS && strcmp(known_functions[kind].name, word) != 0) kind++;
    if (kind == FUNCTIONS) return false;
    *out = (function){(function_kind)kind, known_functions[kind].alpha, known_functions[kind].beta};
    if (*at == '(') {
        at++;
        if (!read_number(&at, &out->alpha)) return false;
        if (*at == ',' && (at++, !read_number(&at, &out->beta))) return false;
        if (*at++ != ')') return false;
    }
    while (*at == ' ') at++;
    *text = at;
    return true;
}

/* Reads the functions of both directions, MAX_FUNCTIONS each; those of one direction serve both. False: an unknown function, or their
 * number is wrong. */
static bool read_functions(const recurrence *r, const char *text, function *out) {
    if (!*text) text = r->usual;
    int count = 0;
    while (*text && count < 2 * r->functions) {
        int direction = count / r->functions, which = count % r->functions;
        if (!read_function(&text, &out[direction * MAX_FUNCTIONS + which])) return false;
        count++;
    }
    for (int i = 0; count == r->functions && i < r->functions; i++) out[MAX_FUNCTIONS + i] = out[i];
    return !*text && (count == r->functions || count == 2 * r->functions);
}

static graph_id apply_function(graph *g, const function *f, graph_id x) {
    const graph_id zero = graph_scalar_like(g, x, 0), one = graph_scalar_like(g, x, 1);
    switch (f->kind) {
    case AFFINE: return graph_add_number(g, graph_mul_number(g, x, f->alpha), f->beta);
    case ELU: return graph_select(g, graph_lt(g, x, zero), graph_mul_number(g, graph_expm1(g, x), f->alpha), x);
    case HARD_SIGMOID:
        return graph_max(g, zero, graph_min(g, one, graph_add_number(g, graph_mul_number(g, x, f->alpha), f->beta)));
    case LEAKY_RELU: return graph_select(g, graph_lt(g, x, zero), graph_mul_number(g, x, f->alpha), x);
    case RELU: return graph_max(g, x, zero);
    case SCALED_TANH: return graph_mul_number(g, graph_tanh(g, graph_mul_number(g, x, f->beta)), f->alpha);
    case SIGMOID: return graph_logistic(g, x);
    case SOFTPLUS: /* log(1 + exp(x)) without overflow of exp(x) */
        return graph_add(g, graph_max(g, x, zero), graph_log1p(g, graph_exp(g, graph_neg(g, graph_abs(g, x)))));
    case SOFTSIGN: return graph_div(g, x, graph_add_number(g, graph_abs(g, x), 1));
    case THRESHOLDED_RELU: return graph_select(g, graph_gt(g, x, graph_scalar_like(g, x, f->alpha)), x, zero);
    case TANH:
    case FUNCTIONS: break;
    }
    return graph_tanh(g, x);
}

/* ---- shapes: x [steps, batch, input], w [directions, gates * hidden, input], r [directions, gates * hidden, hidden], bias
 * [directions, 2 * gates * hidden]; y [steps, directions, batch, hidden], final states [directions, batch, hidden] */

static int directions_of(const graph_attribute *attribute) {
    return attribute[DIRECTION].integer == BIDIRECTIONAL ? 2 : 1;
}

static bool batch_first(const graph_attribute *attribute) {
    return attribute[LAYOUT].integer != 0;
}

static void require_dims(const graph_infer *infer, int operand, int rank, const tir_expr *dims) {
    char name[32];
    bool optional;
    graph_op_operand(infer->op, operand, name, &optional);
    if (infer->operand[operand].rank < 0) return;
    graph_infer_rank(infer, operand, rank);
    for (int d = 0; d < rank; d++)
        graph_infer_equal(
            infer, infer->operand[operand].dim[d], dims[d],
            lib_arena_format(infer->g->arena, "dimension %d of %s and what the other operands give", d, name));
}

static void infer_recurrence(graph_infer *infer) {
    const recurrence *row = recurrence_of(infer->op);
    tir_pool *pool = infer->g->pool;
    function functions[2 * MAX_FUNCTIONS];
    for (int i = X; i <= R; i++) graph_infer_rank(infer, i, 3);
    for (int i = X; i < infer->inputs; i++)
        if (infer->operand[i].rank >= 0 && i != LENGTHS) graph_infer_dtype(infer, i, infer->operand[X].dtype);
    if (infer->operand[LENGTHS].rank >= 0) graph_infer_dtype(infer, LENGTHS, DLC_I32);
    if (!read_functions(row, infer->attribute[ACTIVATIONS].string, functions))
        graph_infer_fail(
            infer, "activations are \"%s\", expected %d functions for each direction, each one of " FUNCTION_NAMES,
            infer->attribute[ACTIVATIONS].string, row->functions);
    if (!(infer->attribute[CLIP].number >= 0)) graph_infer_fail(infer, "clip is negative");
    const bool first = batch_first(infer->attribute);
    const graph_shape *x = &infer->operand[X];
    tir_expr steps = x->dim[first], batch = x->dim[!first], hidden = infer->operand[R].dim[2];
    tir_expr directions = tir_index(pool, directions_of(infer->attribute));
    tir_expr rows = tir_mul(pool, tir_index(pool, row->gates), hidden);
    tir_expr states[3] = {first ? batch : directions, first ? directions : batch, hidden};
    require_dims(infer, W, 3, (tir_expr[]){directions, rows, x->dim[2]});
    require_dims(infer, R, 3, (tir_expr[]){directions, rows, hidden});
    require_dims(infer, BIAS, 2, (tir_expr[]){directions, tir_mul(pool, tir_index(pool, 2), rows)});
    require_dims(infer, LENGTHS, 1, &batch);
    require_dims(infer, INITIAL_H, 3, states);
    if (row->has_cell) {
        require_dims(infer, INITIAL_C, 3, states);
        require_dims(infer, PEEPHOLE, 2, (tir_expr[]){directions, tir_mul(pool, tir_index(pool, 3), hidden)});
    }
    infer->result[0] = (graph_shape){.dtype = x->dtype, .rank = 4, .dim = {steps, directions, batch, hidden}};
    if (first) {
        infer->result[0].dim[0] = batch;
        infer->result[0].dim[1] = steps;
        infer->result[0].dim[2] = directions;
    }
    for (int i = 1; i < infer->results; i++) {
        infer->result[i] = (graph_shape){.dtype = x->dtype, .rank = 3};
        memcpy(infer->result[i].dim, states, sizeof states);
    }
}

/* ---- expansion */

/* one step of one direction, in the scan's body */
typedef struct cell {
    graph *g;
    const graph_attribute *attribute;
    const function *functions;
    tir_expr hidden;
    /* gru whose reset gate is applied before the product: r's weights for the candidate; 0: r has those of all gates */
    graph_id r_candidate;
    /* [batch, ...] x: what inputs and biases add to all gates; h, c: states. r: recurrent weights */
    graph_id x, h, c, r;
    /* gru with linear_before_reset: the candidate's recurrent bias, [hidden] */
    graph_id recurrent_bias;
    /* [3 * hidden]; 0: none */
    graph_id peephole;
    /* results */
    graph_id next_h, next_c;
} cell;

/* The part of the value for one gate: gate*hidden to (gate + 1)*hidden along the last axis. */
static graph_id part(const cell *e, graph_id value, int gate) {
    tir_pool *pool = e->g->pool;
    int axis = graph_shape_of(e->g, value)->rank - 1;
    tir_expr start = tir_mul(pool, tir_index(pool, gate), e->hidden);
    return graph_slice_axis(e->g, value, axis, start, tir_add(pool, start, e->hidden));
}

/* y[b, rows] = h[b, k] r[rows, k] */
static graph_id times_r(const cell *e, graph_id h, graph_id r) {
    const int64_t axis = 1;
    return graph_contract(e->g, h, r, 0, NULL, NULL, 1, &axis, &axis);
}

static graph_id activate(const cell *e, int which, graph_id x) {
    const double clip = e->attribute[CLIP].number;
    if (clip > 0)
        x = graph_max(e->g, graph_scalar_like(e->g, x, -clip), graph_min(e->g, x, graph_scalar_like(e->g, x, clip)));
    return apply_function(e->g, &e->functions[which], x);
}

static void step_rnn(cell *e) {
    e->next_h = activate(e, 0, graph_add(e->g, times_r(e, e->h, e->r), e->x));
}

/* One step of a gru, whose gates are z, r, h. */
static void step_gru(cell *e) {
    graph *g = e->g;
    graph_id both = times_r(e, e->h, e->r);
    graph_id z = activate(e, 0, graph_add(g, part(e, both, 0), part(e, e->x, 0)));
    graph_id reset = activate(e, 0, graph_add(g, part(e, both, 1), part(e, e->x, 1)));
    graph_id candidate;
    if (!e->r_candidate) {
        graph_id own = part(e, both, 2);
        if (e->recurrent_bias) own = graph_add(g, own, e->recurrent_bias);
        candidate = graph_mul(g, reset, own);
    } else {
        candidate = times_r(e, graph_mul(g, reset, e->h), e->r_candidate);
    }
    candidate = activate(e, 1, graph_add(g, candidate, part(e, e->x, 2)));
    /* (1 - z) candidate + z h */
    e->next_h =
        graph_add(g, graph_mul(g, graph_sub(g, graph_scalar_like(g, z, 1), z), candidate), graph_mul(g, z, e->h));
}

static graph_id peep(const cell *e, graph_id gate, graph_id state, int which) {
    return e->peephole ? graph_add(e->g, gate, graph_mul(e->g, state, part(e, e->peephole, which))) : gate;
}

/* One step of an lstm, whose gates are i, o, f, c, with peepholes for i, o, f. */
static void step_lstm(cell *e) {
    graph *g = e->g;
    graph_id all = graph_add(g, times_r(e, e->h, e->r), e->x), forget;
    graph_id input = activate(e, 0, peep(e, part(e, all, 0), e->c, 0));
    if (e->attribute[EXTRA].integer)
        forget = graph_sub(g, graph_scalar_like(g, input, 1), input);
    else
        forget = activate(e, 0, peep(e, part(e, all, 2), e->c, 2));
    graph_id candidate = activate(e, 1, part(e, all, 3));
    e->next_c = graph_add(g, graph_mul(g, forget, e->c), graph_mul(g, input, candidate));
    graph_id output = activate(e, 0, peep(e, part(e, all, 1), e->next_c, 1));
    e->next_h = graph_mul(g, output, apply_function(g, &e->functions[2], e->next_c));
}

static void step(const recurrence *row, cell *e) {
    switch (row->gates) {
    case 1: step_rnn(e); break;
    case 3: step_gru(e); break;
    default: step_lstm(e); break;
    }
}

typedef struct expansion {
    graph_expand *e;
    graph *g;
    const recurrence *row;
    /* of states and gates */
    dlc_dtype dtype;
    tir_expr steps, batch, hidden;
    /* [steps, batch, input] */
    graph_id x;
    function functions[2 * MAX_FUNCTIONS];
    /* by direction: [steps, batch, hidden], [batch, hidden] */
    graph_id y[2], h[2], c[2];
} expansion;

static graph_id operand_of(const expansion *x, int operand) {
    return operand < x->e->inputs ? x->e->input[operand] : 0;
}

/* The operand's part for one direction, without that dimension; 0: omitted. */
static graph_id of_direction(const expansion *x, int operand, int direction) {
    graph_id value = operand_of(x, operand);
    tir_pool *pool = x->g->pool;
    if (!value) return 0;
    int axis = operand >= INITIAL_H && operand <= INITIAL_C && batch_first(x->e->attribute);
    value = graph_slice_axis(x->g, value, axis, tir_index(pool, direction), tir_index(pool, direction + 1));
    return graph_squeeze(x->g, value, axis);
}

/* What inputs and biases add to the gates of all steps: [steps, batch, gates * hidden]. linear (linear_before_reset): the last gate's
 * recurrent bias is not added, but goes to *recurrent_bias. */
static graph_id project(const expansion *x, int direction, bool linear, graph_id *recurrent_bias) {
    graph *g = x->g;
    tir_pool *pool = g->pool;
    const int64_t contract_x = 2, contract_w = 1;
    graph_id all = graph_emit_with(
        g, "dot_general", 2, (graph_id[]){x->x, of_direction(x, W, direction)}, x->dtype == DLC_F32 ? 3 : 2,
        (graph_setting[]){graph_set_list("contract_x", 1, &contract_x), graph_set_list("contract_w", 1, &contract_w),
                          graph_set_integer("result", 1)}); /* f32 */
    graph_id bias = of_direction(x, BIAS, direction);
    *recurrent_bias = 0;
    if (!bias) return all;
    bias = graph_cast(g, bias, x->dtype);
    tir_expr rows = tir_mul(pool, tir_index(pool, x->row->gates), x->hidden);
    graph_id own = graph_slice_axis(g, bias, 0, tir_index(pool, 0), rows);
    graph_id recurrent = graph_slice_axis(g, bias, 0, rows, tir_add(pool, rows, rows));
    if (linear) {
        tir_expr before = tir_sub(pool, rows, x->hidden);
        graph_id zeros = graph_full(g, x->dtype, 1, &x->hidden, 0);
        *recurrent_bias = graph_slice_axis(g, recurrent, 0, before, rows);
        graph_id others = graph_slice_axis(g, recurrent, 0, tir_index(pool, 0), before);
        recurrent = graph_concat(g, 2, (graph_id[]){others, zeros}, 0);
    }
    return graph_add(g, all, graph_add(g, own, recurrent));
}

/* The recurrent weights [gates * hidden, hidden]. For a gru without linear_before_reset, those of its candidate, which depends on another
 * gate, go to *candidate instead. */
static graph_id recurrent_weights(const expansion *x, int direction, bool linear, graph_id *candidate) {
    tir_pool *pool = x->g->pool;
    graph_id r = graph_cast(x->g, of_direction(x, R, direction), x->dtype);
    if (x->row->gates != 3 || linear) return r;
    tir_expr two = tir_mul(pool, tir_index(pool, 2), x->hidden), three = tir_add(pool, two, x->hidden);
    *candidate = graph_slice_axis(x->g, r, 0, two, three);
    return graph_slice_axis(x->g, r, 0, tir_index(pool, 0), two);
}

static graph_id initial_state(const expansion *x, int operand, int direction) {
    graph_id given = of_direction(x, operand, direction);
    if (given) return graph_cast(x->g, given, x->dtype);
    return graph_full(x->g, x->dtype, 2, (tir_expr[]){x->batch, x->hidden}, 0);
}

/* Adds an input to the body: of the shape of the scan's operand, or, if `element`, of an element of that sequence. */
static graph_id body_input(graph *body, graph_id operand, bool element) {
    graph_shape shape = *graph_shape_of(body->parent, operand);
    if (element) memmove(shape.dim, shape.dim + 1, (size_t)--shape.rank * sizeof *shape.dim);
    return graph_new_input(body, NULL, &shape);
}

/* operands of the scan */
typedef struct operands {
    graph_id outer[10];
    int count;
} operands;

static graph_id pass_in(operands *o, graph *body, graph_id value, bool element) {
    if (!value) return 0;
    o->outer[o->count++] = value;
    return body_input(body, value, element);
}

/* bool [batch, hidden]: has the sequence ended before the position? Then states stay and results are 0. */
static graph_id is_over(const expansion *x, graph *body, graph_id position, graph_id lengths) {
    const int64_t axis = 0;
    graph_id over = graph_ge(body, position, lengths);
    return graph_broadcast(body, over, 2, (tir_expr[]){x->batch, x->hidden}, &axis);
}

static void expand_direction(expansion *x, int direction) {
    graph *g = x->g, *body;
    const graph_attribute *attribute = x->e->attribute;
    const bool backwards = direction == 1 || attribute[DIRECTION].integer == REVERSE;
    const bool linear = x->row->gates == 3 && attribute[EXTRA].integer != 0;
    int64_t number;
    graph_id recurrent_bias, projected = project(x, direction, linear, &recurrent_bias);
    graph_id lengths = operand_of(x, LENGTHS);
    graph_id peephole = x->row->has_cell ? of_direction(x, PEEPHOLE, direction) : 0;
    operands o = {.count = 0};
    body = graph_new_subgraph(g, &number);
    cell e = {.g = body, .attribute = attribute, .functions = x->functions + direction * MAX_FUNCTIONS};
    e.hidden = x->hidden;
    e.h = pass_in(&o, body, initial_state(x, INITIAL_H, direction), false);
    if (x->row->has_cell) e.c = pass_in(&o, body, initial_state(x, INITIAL_C, direction), false);
    const int carries = o.count;
    e.x = pass_in(&o, body, projected, true);
    graph_id position = lengths ? pass_in(&o, body, graph_iota(g, DLC_I32, 1, &x->steps, 0), true) : 0;
    const int sequences = o.count - carries;
    graph_id r_candidate = 0, r = recurrent_weights(x, direction, linear, &r_candidate);
    e.r = pass_in(&o, body, r, false);
    e.r_candidate = pass_in(&o, body, r_candidate, false);
    e.recurrent_bias = pass_in(&o, body, recurrent_bias, false);
    e.peephole = pass_in(&o, body, peephole ? graph_cast(g, peephole, x->dtype) : 0, false);
    graph_id inner_lengths = pass_in(&o, body, lengths, false);
    step(x->row, &e);
    graph_id y = e.next_h;
    if (lengths) {
        graph_id over = is_over(x, body, position, inner_lengths);
        y = graph_select(body, over, graph_full_like(body, y, 0), y);
        e.next_h = graph_select(body, over, e.h, e.next_h);
        if (e.next_c) e.next_c = graph_select(body, over, e.c, e.next_c);
    }
    graph_new_output(body, NULL, e.next_h);
    if (e.next_c) graph_new_output(body, NULL, e.next_c);
    graph_new_output(body, NULL, y);
    int64_t reverse[3] = {backwards, backwards, backwards};
    graph_id first =
        graph_emit_with(g, "scan", o.count, o.outer, backwards ? 4 : 3,
                        (graph_setting[]){graph_set_integer("body", number), graph_set_integer("carries", carries),
                                          graph_set_integer("sequences", sequences),
                                          graph_set_list("reverse", sequences + 1, reverse)});
    x->h[direction] = first;
    x->c[direction] = first + 1;
    x->y[direction] = first + (graph_id)carries;
}

/* values[direction], in x's dtype, joined along a new dimension at `axis`. */
static graph_id join(const expansion *x, const graph_id *values, int axis) {
    graph_id each[2];
    const int count = directions_of(x->e->attribute);
    for (int d = 0; d < count; d++)
        each[d] = graph_expand_dims(x->g, graph_cast(x->g, values[d], graph_shape_of(x->g, x->x)->dtype), axis);
    return count == 1 ? each[0] : graph_concat(x->g, count, each, axis);
}

static void expand_recurrence(graph_expand *e) {
    graph *g = e->g;
    expansion x = {.e = e, .g = g, .row = recurrence_of(e->op), .x = e->input[X]};
    const bool first = batch_first(e->attribute);
    if (first) x.x = graph_transpose(g, x.x, (const int64_t[]){1, 0, 2});
    const graph_shape shape = *graph_shape_of(g, x.x);
    x.dtype = graph_sum_dtype(shape.dtype);
    x.steps = shape.dim[0];
    x.batch = shape.dim[1];
    x.hidden = graph_shape_of(g, e->input[R])->dim[2];
    read_functions(x.row, e->attribute[ACTIVATIONS].string, x.functions);
    for (int d = 0; d < directions_of(e->attribute); d++) expand_direction(&x, d);
    e->result[0] = join(&x, x.y, 1);
    if (first) e->result[0] = graph_transpose(g, e->result[0], (const int64_t[]){2, 0, 1, 3});
    e->result[1] = join(&x, x.h, first);
    if (x.row->has_cell) e->result[2] = join(&x, x.c, first);
}

/* ---- reference: element by element */

#ifdef DLC_REFERENCE
static double reference_function(const function *f, double x) {
    switch (f->kind) {
    case AFFINE: return f->alpha * x + f->beta;
    case ELU: return x < 0 ? f->alpha * (exp(x) - 1) : x;
    case HARD_SIGMOID: return fmax(0, fmin(1, f->alpha * x + f->beta));
    case LEAKY_RELU: return x < 0 ? f->alpha * x : x;
    case RELU: return x > 0 ? x : 0;
    case SCALED_TANH: return f->alpha * tanh(f->beta * x);
    case SIGMOID: return 1 / (1 + exp(-x));
    case SOFTPLUS: return x > 30 ? x : log(1 + exp(x));
    case SOFTSIGN: return x / (1 + fabs(x));
    case TANH: return tanh(x);
    case THRESHOLDED_RELU: return x > f->alpha ? x : 0;
    case FUNCTIONS: break;
    }
    return NAN;
}

typedef struct referee {
    const graph_reference *r;
    const recurrence *row;
    function functions[2 * MAX_FUNCTIONS];
    int64_t steps, batch, input, hidden, directions;
    bool first;
} referee;

static double clipped(const referee *f, double x) {
    double clip = f->r->attribute[CLIP].number;
    return clip > 0 ? fmax(-clip, fmin(clip, x)) : x;
}

/* Position of element j of a state of direction d and batch element b. */
static int64_t state_at(const referee *f, int64_t d, int64_t b, int64_t j) {
    return (f->first ? b * f->directions + d : d * f->batch + b) * f->hidden + j;
}

static double weight(const referee *f, int operand, int64_t d, int64_t row, int64_t column) {
    const graph_reference_tensor *w = &f->r->operand[operand];
    return w->data[(d * w->dim[1] + row) * w->dim[2] + column];
}

static double bias_of(const referee *f, int64_t d, int64_t row, bool recurrent) {
    if (!graph_reference_given(f->r, BIAS)) return 0;
    int64_t rows = f->row->gates * f->hidden;
    return f->r->operand[BIAS].data[d * 2 * rows + recurrent * rows + row];
}

static double from_input(const referee *f, int64_t d, int64_t t, int64_t b, int64_t row) {
    double sum = bias_of(f, d, row, false);
    const double *x = f->r->operand[X].data + (f->first ? b * f->steps + t : t * f->batch + b) * f->input;
    for (int64_t k = 0; k < f->input; k++) sum += x[k] * weight(f, W, d, row, k);
    return sum;
}

static double from_state(const referee *f, int64_t d, const double *h, int64_t row) {
    double sum = bias_of(f, d, row, true);
    for (int64_t k = 0; k < f->hidden; k++) sum += h[k] * weight(f, R, d, row, k);
    return sum;
}

static double reference_gate(const referee *f, int64_t d, int64_t t, int64_t b, const double *h, int64_t row,
                             double more, int which) {
    double sum = from_input(f, d, t, b, row) + from_state(f, d, h, row) + more;
    return reference_function(&f->functions[d * MAX_FUNCTIONS + which], clipped(f, sum));
}

static void reference_lstm(const referee *f, int64_t d, int64_t t, int64_t b, const double *h, double *c, double *out) {
    const int64_t n = f->hidden;
    const double *p = graph_reference_given(f->r, PEEPHOLE) ? f->r->operand[PEEPHOLE].data + d * 3 * n : NULL;
    for (int64_t j = 0; j < n; j++) {
        double i = reference_gate(f, d, t, b, h, j, p ? p[j] * c[j] : 0, 0);
        double forget = reference_gate(f, d, t, b, h, 2 * n + j, p ? p[2 * n + j] * c[j] : 0, 0);
        if (f->r->attribute[EXTRA].integer) forget = 1 - i;
        c[j] = forget * c[j] + i * reference_gate(f, d, t, b, h, 3 * n + j, 0, 1);
        double o = reference_gate(f, d, t, b, h, n + j, p ? p[n + j] * c[j] : 0, 0);
        out[j] = o * reference_function(&f->functions[d * MAX_FUNCTIONS + 2], c[j]);
    }
}

static void reference_gru(const referee *f, int64_t d, int64_t t, int64_t b, const double *h, double *out) {
    const int64_t n = f->hidden;
    double *reset = calloc((size_t)n + 1, sizeof *reset);
    for (int64_t j = 0; j < n; j++) reset[j] = reference_gate(f, d, t, b, h, n + j, 0, 0);
    for (int64_t j = 0; j < n; j++) {
        double z = reference_gate(f, d, t, b, h, j, 0, 0), own = bias_of(f, d, 2 * n + j, true);
        if (f->r->attribute[EXTRA].integer) {
            own = reset[j] * from_state(f, d, h, 2 * n + j);
        } else {
            for (int64_t k = 0; k < n; k++) own += reset[k] * h[k] * weight(f, R, d, 2 * n + j, k);
        }
        double candidate = clipped(f, from_input(f, d, t, b, 2 * n + j) + own);
        out[j] = (1 - z) * reference_function(&f->functions[d * MAX_FUNCTIONS + 1], candidate) + z * h[j];
    }
    free(reset);
}

/* Sets h, c [hidden] to the initial state of sequence b in direction d. */
static void reference_initial(const referee *f, int64_t d, int64_t b, double *h, double *c) {
    const graph_reference *r = f->r;
    for (int64_t j = 0; j < f->hidden; j++) {
        h[j] = graph_reference_given(r, INITIAL_H) ? r->operand[INITIAL_H].data[state_at(f, d, b, j)] : 0;
        c[j] = graph_reference_given(r, INITIAL_C) ? r->operand[INITIAL_C].data[state_at(f, d, b, j)] : 0;
    }
}

/* Sets the results of one sequence b in direction d. h, c, next [hidden]: working space. */
static void reference_sequence(const referee *f, int64_t d, int64_t b, double *h, double *c, double *next) {
    const graph_reference *r = f->r;
    const bool backwards = d == 1 || r->attribute[DIRECTION].integer == REVERSE;
    int64_t length = graph_reference_given(r, LENGTHS) ? (int64_t)r->operand[LENGTHS].data[b] : f->steps;
    reference_initial(f, d, b, h, c);
    for (int64_t s = 0; s < length && s < f->steps; s++) {
        int64_t t = backwards ? (length < f->steps ? length : f->steps) - 1 - s : s;
        if (f->row->has_cell)
            reference_lstm(f, d, t, b, h, c, next);
        else if (f->row->gates == 3)
            reference_gru(f, d, t, b, h, next);
        else
            for (int64_t j = 0; j < f->hidden; j++) next[j] = reference_gate(f, d, t, b, h, j, 0, 0);
        int64_t at = f->first ? (b * f->steps + t) * f->directions + d : (t * f->directions + d) * f->batch + b;
        for (int64_t j = 0; j < f->hidden; j++) h[j] = r->result[0].data[at * f->hidden + j] = next[j];
    }
    for (int64_t j = 0; j < f->hidden; j++) {
        r->result[1].data[state_at(f, d, b, j)] = h[j];
        if (f->row->has_cell) r->result[2].data[state_at(f, d, b, j)] = c[j];
    }
}

static void reference_with(const graph_reference *r, const recurrence *row) {
    const bool first = batch_first(r->attribute);
    const int64_t *x = r->operand[X].dim;
    referee f = {.r = r, .row = row, .steps = x[first], .batch = x[!first], .input = x[2], .first = first};
    f.hidden = r->operand[R].dim[2];
    f.directions = directions_of(r->attribute);
    read_functions(row, r->attribute[ACTIVATIONS].string, f.functions);
    double *memory = calloc((size_t)(3 * f.hidden) + 1, sizeof *memory);
    for (int64_t d = 0; d < f.directions; d++)
        for (int64_t b = 0; b < f.batch; b++)
            reference_sequence(&f, d, b, memory, memory + f.hidden, memory + 2 * f.hidden);
    free(memory);
}
static void reference_rnn_row(const graph_reference *r) {
    reference_with(r, &recurrences[0]);
}
static void reference_gru_row(const graph_reference *r) {
    reference_with(r, &recurrences[1]);
}
static void reference_lstm_row(const graph_reference *r) {
    reference_with(r, &recurrences[2]);
}
#endif

/* ---- rows */

#define COMMON_ATTRIBUTES                                                                                   \
    {"direction", GRAPH_ATTR_ENUM, "forward reverse bidirectional", "forward",                              \
     "of the steps; bidirectional: forward, then reverse, each with weights of its own"},                   \
        {"activations", GRAPH_ATTR_STRING, NULL, "", FUNCTION_DOC},                                         \
        {"clip", GRAPH_ATTR_FLOAT, NULL, "0.0",                                                             \
         "bound of the magnitude of a gate's sum, before its activation; 0: none"},                         \
    {                                                                                                       \
        "layout", GRAPH_ATTR_ENUM, "steps batch", "steps", "what comes first in x, y and (batch) in states" \
    }
#define COMMON_DOC                                                                                                     \
    " x [steps, batch, input], w [directions, rows, input], r [directions, rows, hidden], bias [directions, 2 rows] "  \
    "(of w, then of r; left out: 0), sequence_lens [batch] (left out: all steps), initial states [directions, batch, " \
    "hidden] (left out: 0). Results: y [steps, directions, batch, hidden], 0 where a sequence is over, and the final " \
    "states [directions, batch, hidden]. A reverse direction begins at a sequence's last step. "

static const graph_op row_rnn = {
    .name = "rnn",
    .class_ = GRAPH_COMPOSITE,
    .min_inputs = 3,
    .max_inputs = 6,
    .results = 2,
    .operands = "x w r [bias] [sequence_lens] [initial_h]",
    .dtypes = "float",
    .attribute = {COMMON_ATTRIBUTES},
    .infer = infer_recurrence,
    .expand = expand_recurrence,
    .precision = GRAPH_NARROW,
    .reference = GRAPH_REFERENCE(reference_rnn_row),
    .tolerance = 16,
    .bound = GRAPH_REFERENCE(graph_bound_recurrence),
    .samples = "rnn(T[4, 2, 3], T[1, 5, 3], T[1, 5, 5], T[1, 10], i32[2] in 0..4, T[1, 2, 5])\n"
               "rnn(T[3, 1, 4], T[2, 6, 4], T[2, 6, 6], T[2, 12], direction=bidirectional, activations=\"Relu "
               "LeakyRelu(0.2)\")\n"
               "rnn(T[2, 5, 3], T[1, 4, 3], T[1, 4, 4], direction=reverse, layout=batch, clip=0.5)\n"
               "rnn(T[5, 1, 1], T[1, 1, 1], T[1, 1, 1], activations=\"softsign\")\n"
               "rnn(T[0, 2, 3], T[1, 4, 3], T[1, 4, 4])",
    .doc = "Simple recurrent layer: h' = f(x w^T + h r^T + bias), with rows = hidden; f: tanh." COMMON_DOC "ONNX RNN.",
};

static const graph_op row_gru = {
    .name = "gru",
    .class_ = GRAPH_COMPOSITE,
    .min_inputs = 3,
    .max_inputs = 6,
    .results = 2,
    .operands = "x w r [bias] [sequence_lens] [initial_h]",
    .dtypes = "float",
    .attribute = {COMMON_ATTRIBUTES,
                  {"linear_before_reset", GRAPH_ATTR_BOOL, NULL, "false", "the reset gate scales h r^T + bias, not h"}},
    .infer = infer_recurrence,
    .expand = expand_recurrence,
    .precision = GRAPH_NARROW,
    .reference = GRAPH_REFERENCE(reference_gru_row),
    .tolerance = 32,
    .bound = GRAPH_REFERENCE(graph_bound_recurrence),
    .samples =
        "gru(T[4, 2, 3], T[1, 15, 3], T[1, 15, 5], T[1, 30], i32[2] in 0..4, T[1, 2, 5])\n"
        "gru(T[3, 1, 4], T[2, 18, 4], T[2, 18, 6], T[2, 36], direction=bidirectional, linear_before_reset=true)\n"
        "gru(T[2, 5, 3], T[1, 12, 3], T[1, 12, 4], direction=reverse, layout=batch, clip=0.5, "
        "activations=\"HardSigmoid(0.3,0.4) Softplus\")\n"
        "gru(T[3, 7, 3], T[1, 33, 3], T[1, 33, 11], _, i32[7] in 0..5, linear_before_reset=true)\n"
        "gru(T[3, 0, 3], T[1, 6, 3], T[1, 6, 2])",
    .doc = "Gated recurrent unit: z = f(x wz^T + h rz^T + bias), r likewise, n = g(x wh^T + (r h) rh^T + bias), h' = "
           "(1 - z) n + z h; gates z, r, h in rows = 3 hidden; f, g: sigmoid, tanh." COMMON_DOC "ONNX GRU.",
};

static const graph_op row_lstm = {
    .name = "lstm",
    .class_ = GRAPH_COMPOSITE,
    .min_inputs = 3,
    .max_inputs = 8,
    .results = 3,
    .operands = "x w r [bias] [sequence_lens] [initial_h] [initial_c] [peephole]",
    .dtypes = "float",
    .attribute = {COMMON_ATTRIBUTES, {"input_forget", GRAPH_ATTR_BOOL, NULL, "false", "the forget gate is 1 - i"}},
    .infer = infer_recurrence,
    .expand = expand_recurrence,
    .precision = GRAPH_NARROW,
    .reference = GRAPH_REFERENCE(reference_lstm_row),
    .tolerance = 32,
    .bound = GRAPH_REFERENCE(graph_bound_recurrence),
    .samples =
        "lstm(T[4, 2, 3], T[1, 20, 3], T[1, 20, 5], T[1, 40], i32[2] in 0..4, T[1, 2, 5], T[1, 2, 5], T[1, 15])\n"
        "lstm(T[3, 1, 4], T[2, 24, 4], T[2, 24, 6], T[2, 48], direction=bidirectional)\n"
        "lstm(T[2, 5, 3], T[1, 16, 3], T[1, 16, 4], direction=reverse, layout=batch, clip=0.5, "
        "activations=\"HardSigmoid Elu(0.7) ScaledTanh(1.5,0.6)\", input_forget=true)\n"
        "lstm(T[3, 7, 3], T[2, 44, 3], T[2, 44, 11], _, i32[7] in 0..5, _, T[2, 7, 11], direction=bidirectional)\n"
        "lstm(T[2, 2, 3], T[1, 8, 3], T[1, 8, 2], activations=\"Affine(0.5,0.1) ThresholdedRelu(0.3) Sigmoid\")\n"
        "lstm(T[0, 2, 3], T[1, 8, 3], T[1, 8, 2])",
    .doc = "Long short-term memory: i = f(x wi^T + h ri^T + bias + pi c), f likewise, c' = f c + i g(x wc^T + h rc^T + "
           "bias), o = f(x wo^T + h ro^T + bias + po c'), h' = o h(c'); gates i, o, f, c in rows = 4 hidden; f, g, h: "
           "sigmoid, tanh, tanh. peephole [directions, 3 hidden]: i, o, f." COMMON_DOC
           "First h, then c. ONNX LSTM; Hochreiter and Schmidhuber 1997, Gers et al. 2002.",
};

extern const graph_op *const graph_ops_recurrent[];
const graph_op *const graph_ops_recurrent[] = {&row_rnn, &row_gru, &row_lstm, NULL};
