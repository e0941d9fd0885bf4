/* einsum: a sum of products of any number of operands by an equation. It expands to diagonals, sums, and contractions of two operands each, in
 * an order of few multiplications. */
#include "graph/build.h"
#include "graph/contract.h"
#include "graph/ops_common.h"

/* Labels are numbers: letters, and dimensions of an ellipsis counted from its last. Sets of them are words of 64 bits. */
enum { EINSUM_EQUATION };
enum { EINSUM_OPERANDS = 32, CAPITALS = 26, ELLIPSIS = 52, LABELS = ELLIPSIS + DLC_MAX_RANK };

typedef struct einsum_term {
    /* number of labels; position of the ellipsis among them, -1: none */
    int rank, ellipsis;
    uint8_t label[DLC_MAX_RANK];
} einsum_term;

typedef struct einsum {
    int count;
    einsum_term term[EINSUM_OPERANDS], result;
} einsum;

/* The letter's label, capitals first, as NumPy orders them; -1: no letter. */
static int label_of(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + CAPITALS : -1;
}

static const char *label_name(lib_arena *arena, int label) {
    if (label >= ELLIPSIS) return "...";
    return lib_arena_format(arena, "%c", label < CAPITALS ? 'A' + label : 'a' + label - CAPITALS);
}

static int count_label(const einsum_term *term, int label) {
    int count = 0;
    for (int i = 0; i < term->rank; i++) count += term->label[i] == label;
    return count;
}

static uint64_t labels_of(const einsum_term *term) {
    uint64_t set = 0;
    for (int i = 0; i < term->rank; i++) set |= UINT64_C(1) << term->label[i];
    return set;
}

/* Labels of the result and of all operands except one. */
static uint64_t labels_beside(const einsum *e, int operand) {
    uint64_t set = labels_of(&e->result);
    for (int o = 0; o < e->count; o++)
        if (o != operand) set |= labels_of(&e->term[o]);
    return set;
}

static bool add_label(einsum_term *term, int label) {
    if (term->rank == DLC_MAX_RANK) return false;
    term->label[term->rank++] = (uint8_t)label;
    return true;
}

static const char *const too_many_labels = "it has too many labels in one place";

/* Sets the result of an equation without "->": the ellipsis, then the labels that occur once, in alphabetical order. Returns NULL, or an
 * error message. */
static const char *einsum_implicit(einsum *e) {
    for (int label = 0; label < ELLIPSIS; label++) {
        int count = 0;
        for (int o = 0; o < e->count; o++) count += count_label(&e->term[o], label);
        if (count == 1 && !add_label(&e->result, label)) return too_many_labels;
    }
    e->result.ellipsis = 0;
    return NULL;
}

/* Adds the ellipsis or the label at *at to the term, and moves *at to its last character; returns NULL, or an error
 * message. */
static const char *einsum_read(einsum_term *term, const char **at) {
    if (strncmp(*at, "...", 3) == 0) {
        if (term->ellipsis >= 0) return "it has two ellipses in one place";
        term->ellipsis = term->rank;
        *at += 2;
    } else if (label_of(**at) < 0) {
        return "expected letters, an ellipsis, a comma between operands, and -> before the result";
    } else if (!add_label(term, label_of(**at))) {
        return too_many_labels;
    }
    return NULL;
}

/* Checks the labels of the result; returns NULL, or an error message. */
static const char *einsum_check_result(const einsum *e) {
    uint64_t given = 0;
    for (int o = 0; o < e->count; o++) given |= labels_of(&e->term[o]);
    for (int i = 0; i < e->result.rank; i++) {
        if (count_label(&e->result, e->result.label[i]) > 1) return "a label stands twice in the result";
        if (!(given >> e->result.label[i] & 1)) return "a label of the result stands in no operand";
    }
    return NULL;
}

/* Parses the equation into *out; returns NULL, or an error message. An ellipsis has no labels yet (einsum_spread). */
static const char *einsum_parse(const char *equation, int operands, einsum *out) {
    *out = (einsum){.count = operands, .result = {.ellipsis = -1}};
    for (int o = 0; o < operands; o++) out->term[o].ellipsis = -1;
    int part = 0;
    bool arrow = false;
    for (const char *at = equation; *at; at++) {
        einsum_term *term = arrow ? &out->result : &out->term[part];
        if (*at == ' ') continue;
        if (*at == ',') {
            if (arrow || ++part >= operands) return "it has more operands than were given";
        } else if (at[0] == '-' && at[1] == '>') {
            if (arrow) return "it has more than one ->";
            if (part != operands - 1) return "it has fewer operands than were given";
            arrow = true;
            at++;
        } else {
            const char *unread = einsum_read(term, &at);
            if (unread) return unread;
        }
    }
    if (part != operands - 1) return "it has fewer operands than were given";
    const char *wrong = arrow ? NULL : einsum_implicit(out), *unfit = einsum_check_result(out);
    return unfit ? unfit : wrong;
}

/* Replaces the term's ellipsis by labels of `dimensions` dimensions; false: the rank is too high. */
static bool spread_ellipsis(einsum_term *term, int dimensions) {
    if (term->ellipsis < 0) return true;
    if (term->rank + dimensions > DLC_MAX_RANK) return false;
    memmove(term->label + term->ellipsis + dimensions, term->label + term->ellipsis,
            (size_t)(term->rank - term->ellipsis));
    for (int i = 0; i < dimensions; i++) term->label[term->ellipsis + i] = (uint8_t)(ELLIPSIS + dimensions - 1 - i);
    term->rank += dimensions;
    return true;
}

/* Replaces all ellipses by labels for the operands' shapes; returns NULL, or an error message. */
static const char *einsum_spread(einsum *e, const graph_shape *const *shape) {
    int most = 0;
    for (int o = 0; o < e->count; o++) {
        if (e->term[o].ellipsis < 0) continue;
        int dimensions = shape[o]->rank - e->term[o].rank;
        spread_ellipsis(&e->term[o], dimensions);
        most = dimensions > most ? dimensions : most;
    }
    if (most && e->result.ellipsis < 0) return "its result has no ellipsis, its operands have one";
    return spread_ellipsis(&e->result, most) ? NULL : too_many_labels;
}

/* Sets size[label]; for a dimension of an ellipsis to the size other than 1 that some operand has, if any. */
static void einsum_sizes(const tir_pool *pool, const einsum *e, const graph_shape *const *shape, tir_expr *size) {
    memset(size, 0, LABELS * sizeof *size);
    for (int o = 0; o < e->count; o++)
        for (int i = 0; i < e->term[o].rank; i++) {
            tir_expr *known = &size[e->term[o].label[i]];
            if (!*known || (e->term[o].label[i] >= ELLIPSIS && tir_is_number(pool, *known, 1)))
                *known = shape[o]->dim[i];
        }
}

/* Is the axis one of an ellipsis, of size 1, that is broadcast to another size? */
static bool is_repeated(const tir_pool *pool, const einsum_term *term, int axis, tir_expr dim, const tir_expr *size) {
    int label = term->label[axis];
    return label >= ELLIPSIS && tir_is_number(pool, dim, 1) && !tir_is_number(pool, size[label], 1);
}

static void drop_label(einsum_term *term, int at) {
    memmove(term->label + at, term->label + at + 1, (size_t)(--term->rank - at));
}

/* One step: operands number `first` and `second` of those that remain are replaced by their product, in the place of the first. */
typedef struct einsum_step {
    int first, second;
} einsum_step;

static double elements_of(uint64_t set, const double *size) {
    double all = 1;
    for (int label = 0; label < LABELS; label++)
        if (set >> label & 1) all *= size[label];
    return all;
}

/* The size as a number; a symbolic one: 100, limited to its range; 0, no size: 1. */
static double counted_size(tir_pool *pool, tir_expr size) {
    enum { UNKNOWN = 100 };
    tir_interval range = size ? tir_range(pool, size) : (tir_interval){1, 1};
    return (double)(range.high < UNKNOWN ? range.high : range.low > UNKNOWN ? range.low : UNKNOWN);
}

/* Sets steps[count - 1] greedily: each is the pair with the fewest multiplications, among these with the smallest result, then the first.
 * set[o]: labels of operand o that others or the result have, too. A symbolic size counts as at most 100. False: every remaining product
 * has too many dimensions. */
static bool einsum_order(tir_pool *pool, int count, uint64_t *set, uint64_t result, const tir_expr *size,
                         einsum_step *steps) {
    double number[LABELS];
    for (int label = 0; label < LABELS; label++) number[label] = counted_size(pool, size[label]);
    for (int step = 0; count > 1; step++) {
        double least = 0, smallest = 0;
        uint64_t product = 0;
        bool found = false;
        for (int a = 0; a < count; a++)
            for (int b = a + 1; b < count; b++) {
                uint64_t beside = result, both = set[a] | set[b];
                for (int o = 0; o < count; o++) beside |= o == a || o == b ? 0 : set[o];
                double work = elements_of(both, number), left = elements_of(both & beside, number);
                if (__builtin_popcountll(both & beside) > DLC_MAX_RANK) continue;
                if (found && (work > least || (work == least && left >= smallest))) continue;
                least = work, smallest = left, product = both & beside, found = true;
                steps[step] = (einsum_step){a, b};
            }
        if (!found) return false;
        set[steps[step].first] = product;
        memmove(set + steps[step].second, set + steps[step].second + 1,
                (size_t)(--count - steps[step].second) * sizeof *set);
    }
    return true;
}

static void infer_einsum_sizes(const graph_infer *infer, const einsum *e, const tir_expr *size) {
    for (int o = 0; o < e->count; o++)
        for (int i = 0; i < e->term[o].rank; i++) {
            int label = e->term[o].label[i];
            const tir_expr dim = infer->operand[o].dim[i];
            if (dim == size[label] || is_repeated(infer->g->pool, &e->term[o], i, dim, size)) continue;
            graph_infer_equal(infer, size[label], dim,
                              lib_arena_format(infer->g->arena, "sizes of the dimensions labelled %s",
                                               label_name(infer->g->arena, label)));
        }
}

static void infer_einsum(graph_infer *infer) {
    const char *equation = infer->attribute[EINSUM_EQUATION].string;
    const graph_shape *shape[EINSUM_OPERANDS];
    einsum e;
    if (infer->inputs > EINSUM_OPERANDS)
        graph_infer_fail(infer, "%d operands were given, expected at most %d", infer->inputs, EINSUM_OPERANDS);
    const char *wrong = einsum_parse(equation, infer->inputs, &e);
    if (wrong) graph_infer_fail(infer, "equation \"%s\": %s", equation, wrong);
    graph_infer_same_dtype(infer, 0, infer->inputs);
    for (int o = 0; o < e.count; o++) {
        shape[o] = &infer->operand[o];
        if (e.term[o].ellipsis < 0 ? e.term[o].rank != shape[o]->rank : e.term[o].rank > shape[o]->rank)
            graph_infer_fail(infer, "equation \"%s\" has %d labels for operand %d, which has rank %d", equation,
                             e.term[o].rank, o, shape[o]->rank);
    }
    if ((wrong = einsum_spread(&e, shape)) != NULL) graph_infer_fail(infer, "equation \"%s\": %s", equation, wrong);
    tir_expr size[LABELS];
    einsum_sizes(infer->g->pool, &e, shape, size);
    infer_einsum_sizes(infer, &e, size);
    infer->result[0] = (graph_shape){.dtype = infer->operand[0].dtype};
    for (int i = 0; i < e.result.rank; i++) graph_infer_add_dim(infer, size[e.result.label[i]]);
    for (int o = 0; o < e.count; o++)
        for (int i = e.term[o].rank; i-- > 0;)
            if (is_repeated(infer->g->pool, &e.term[o], i, shape[o]->dim[i], size)) drop_label(&e.term[o], i);
    uint64_t set[EINSUM_OPERANDS];
    einsum_step steps[EINSUM_OPERANDS];
    for (int o = 0; o < e.count; o++) set[o] = labels_of(&e.term[o]) & labels_beside(&e, o);
    if (!einsum_order(infer->g->pool, e.count, set, labels_of(&e.result), size, steps))
        graph_infer_fail(infer, "equation \"%s\": products of two operands have more than %d dimensions", equation,
                         DLC_MAX_RANK);
}

/* x without the dimensions of 1 that are broadcast, and *term without their labels. */
static graph_id einsum_unrepeated(graph *g, graph_id x, einsum_term *term, const tir_expr *size) {
    const graph_shape shape = *graph_shape_of(g, x);
    bool kept[DLC_MAX_RANK];
    for (int i = 0; i < shape.rank; i++) kept[i] = !is_repeated(g->pool, term, i, shape.dim[i], size);
    for (int i = shape.rank; i-- > 0;)
        if (!kept[i]) drop_label(term, i);
    return graph_drop_axes(g, x, kept);
}

/* x without repeated labels: everything off the diagonal becomes 0, then one of the two axes is summed away. */
static graph_id einsum_diagonals(graph *g, graph_id x, einsum_term *term) {
    for (int i = 0; i < term->rank; i++)
        for (int j = i + 1; j < term->rank; j++) {
            if (term->label[i] != term->label[j]) continue;
            graph_shape shape = *graph_shape_of(g, x);
            graph_id on = graph_eq(g, graph_iota(g, DLC_I64, shape.rank, shape.dim, i),
                                   graph_iota(g, DLC_I64, shape.rank, shape.dim, j));
            int64_t axis = j;
            x = graph_reduce_sum(g, graph_select(g, on, x, graph_scalar_like(g, x, 0)), 1, &axis, false);
            drop_label(term, j--);
        }
    return x;
}

/* The sum of x over the labels of *term that are not in `beside`, which are removed from *term. */
static graph_id einsum_sum(graph *g, graph_id x, einsum_term *term, uint64_t beside) {
    int64_t axes[DLC_MAX_RANK];
    int count = 0;
    for (int i = 0; i < term->rank; i++)
        if (!(beside >> term->label[i] & 1)) axes[count++] = i;
    if (!count) return x;
    x = graph_reduce_sum(g, x, count, axes, false);
    for (int i = count; i-- > 0;) drop_label(term, (int)axes[i]);
    return x;
}

/* The product of x and w, contracted over their common labels that are not in `beside`; *term becomes that of the product. */
static graph_id einsum_product(graph *g, graph_id x, einsum_term *term, graph_id w, const einsum_term *other,
                               uint64_t beside, int64_t result) {
    int64_t batch[2][DLC_MAX_RANK], contract[2][DLC_MAX_RANK];
    int batches = 0, contracts = 0;
    einsum_term product = {.rank = 0};
    for (int i = 0; i < term->rank; i++) {
        const uint8_t *at = memchr(other->label, term->label[i], (size_t)other->rank);
        if (!at) continue;
        bool kept = beside >> *at & 1;
        int n = kept ? batches++ : contracts++;
        (kept ? batch : contract)[0][n] = i;
        (kept ? batch : contract)[1][n] = at - other->label;
        if (kept) add_label(&product, *at);
    }
    for (int i = 0; i < term->rank; i++)
        if (!count_label(other, term->label[i])) add_label(&product, term->label[i]);
    for (int i = 0; i < other->rank; i++)
        if (!count_label(term, other->label[i])) add_label(&product, other->label[i]);
    *term = product;
    return graph_contract_as(g, x, w, batches, batch[0], batch[1], contracts, contract[0], contract[1], result);
}

/* Prepares each operand: diagonals, and sums over labels that only it has. */
static void einsum_prepare(graph *g, einsum *e, graph_id *value, const tir_expr *size) {
    const dlc_dtype sum = graph_sum_dtype(graph_shape_of(g, value[0])->dtype);
    uint64_t beside[EINSUM_OPERANDS];
    bool sums = false;
    for (int o = 0; o < e->count; o++)
        value[o] = einsum_diagonals(g, einsum_unrepeated(g, value[o], &e->term[o], size), &e->term[o]);
    for (int o = 0; o < e->count; o++) {
        beside[o] = labels_beside(e, o);
        sums |= (labels_of(&e->term[o]) & ~beside[o]) != 0;
    }
    for (int o = 0; o < e->count; o++) {
        if (sums && e->count > 1) value[o] = graph_cast(g, value[o], sum); /* one rounding, at the end */
        value[o] = einsum_sum(g, value[o], &e->term[o], beside[o]);
    }
}

/* Replaces the operands of the step by their product. Of several products only the last one rounds to the operands' dtype. */
static void einsum_contract(graph *g, einsum *e, graph_id *value, einsum_step step) {
    enum { SAME, F32 }; /* words of `result` */
    const int a = step.first, b = step.second, behind = e->count - 1 - b;
    const dlc_dtype sum = graph_sum_dtype(graph_shape_of(g, value[a])->dtype);
    const einsum_term other = e->term[b];
    graph_id w = value[b];
    if (graph_shape_of(g, w)->dtype != graph_shape_of(g, value[a])->dtype) {
        value[a] = graph_cast(g, value[a], DLC_F32);
        w = graph_cast(g, w, DLC_F32);
    }
    memmove(&e->term[b], &e->term[b + 1], (size_t)behind * sizeof *e->term);
    memmove(&value[b], &value[b + 1], (size_t)behind * sizeof *value);
    e->count--;
    const bool wide = e->count > 1 && sum != graph_shape_of(g, w)->dtype;
    value[a] = einsum_product(g, value[a], &e->term[a], w, &other, labels_beside(e, a), wide ? F32 : SAME);
}

static void expand_einsum(graph_expand *x) {
    graph *g = x->g;
    graph_shape given[EINSUM_OPERANDS];
    const graph_shape *shape[EINSUM_OPERANDS];
    graph_id value[EINSUM_OPERANDS];
    uint64_t set[EINSUM_OPERANDS];
    einsum_step steps[EINSUM_OPERANDS];
    tir_expr size[LABELS];
    einsum e;
    einsum_parse(x->attribute[EINSUM_EQUATION].string, x->inputs, &e); /* checked by the shape rule */
    for (int o = 0; o < e.count; o++) {
        value[o] = x->input[o];
        given[o] = *graph_shape_of(g, value[o]);
        shape[o] = &given[o];
    }
    einsum_spread(&e, shape);
    einsum_sizes(g->pool, &e, shape, size);
    einsum_prepare(g, &e, value, size);
    for (int o = 0; o < e.count; o++) set[o] = labels_of(&e.term[o]);
    einsum_order(g->pool, e.count, set, labels_of(&e.result), size, steps);
    for (const einsum_step *step = steps; e.count > 1; step++) einsum_contract(g, &e, value, *step);
    int64_t permutation[DLC_MAX_RANK];
    for (int i = 0; i < e.result.rank; i++)
        permutation[i] =
            (const uint8_t *)memchr(e.term[0].label, e.result.label[i], (size_t)e.term[0].rank) - e.term[0].label;
    x->result[0] = graph_cast(g, graph_transpose_unless_same(g, value[0], permutation), given[0].dtype);
}

#ifdef DLC_REFERENCE

/* Labels: letters by their codes, dimensions of an ellipsis from 128 on, counted from the last. */
static const char *reference_term(const char *at, int dimensions, int *label, int *rank) {
    for (*rank = 0; *at && *at != ',' && (*at != '-' || at[1] != '>'); at++) {
        if (*at == ' ') continue;
        if (*at != '.') {
            label[(*rank)++] = *at;
            continue;
        }
        for (int i = dimensions; i-- > 0;) label[(*rank)++] = 128 + i;
        at += 2;
    }
    return at;
}

static void reference_einsum(const graph_reference *r) {
    enum { CODES = 128 + DLC_MAX_RANK, OPERANDS = 32, ROOM = 64 };
    int64_t size[CODES] = {0};
    int number[CODES], seen[CODES] = {0}, label[OPERANDS][DLC_MAX_RANK], out[ROOM] = {0}, term[ROOM];
    int labels = 0, rank, most = 0;
    memset(number, -1, sizeof number);
    const char *at = r->attribute[0].string;
    for (int o = 0; o < r->inputs; o++, at += *at == ',') {
        reference_term(at, 0, term, &rank);
        int dimensions = r->operand[o].rank - rank;
        most = dimensions > most ? dimensions : most;
        at = reference_term(at, dimensions, term, &rank);
        for (int i = 0; i < rank; i++) {
            const int64_t n = r->operand[o].dim[i];
            if (number[term[i]] < 0) number[term[i]] = labels, size[labels++] = 1;
            label[o][i] = number[term[i]];
            if (n != 1) size[label[o][i]] = n;
            seen[term[i]]++;
        }
    }
    rank = 0;
    if (*at == '-')
        reference_term(at + 2, most, out, &rank);
    else {
        for (int i = most; i-- > 0;) out[rank++] = 128 + i;
        for (int c = 0; c < 128; c++)
            if (seen[c] == 1) out[rank++] = c;
    }
    for (int i = 0; i < rank; i++) out[i] = number[out[i]];
    graph_reference_sum_of_products(r, r->inputs, labels, size, label, out);
}

#endif

static const graph_op row_einsum = {
    COMPOSITE_ROW(einsum, 1, -1, 1, "x", "number c64"),
    .linear = UINT32_MAX,
    .precision = GRAPH_NARROW,
    .attribute = {{"equation", GRAPH_ATTR_STRING, NULL, NULL,
                   "labels of the operands' axes, and of the result's: ij,jk->ik"}},
    .infer = infer_einsum,
    .tolerance = 1,
    .bound = GRAPH_REFERENCE(graph_bound_einsum),
    .samples =
        "einsum(T[5, 7], T[7, 3], equation=\"ij,jk->ik\")\neinsum(T[5, 7], equation=\"ij->ji\")\n"
        "einsum(T[5, 5], equation=\"ii\")\neinsum(T[5, 5], equation=\"ii->i\")\n"
        "einsum(T[5, 3, 5], equation=\"iji->ji\")\n"
        "einsum(T[5, 7], equation=\"ij->\")\neinsum(T[5], T[3], equation=\"i,j->ji\")\n"
        "einsum(T[5], T[5], equation=\"i,i\")\n"
        "einsum(T[2, 5, 7], T[2, 7, 3], equation=\"bij, bjk -> bki\")\n"
        "einsum(T[2, 3, 5, 4], T[2, 3, 7, 4], equation=\"bhqd,bhkd->bhqk\")\n"
        "einsum(T[5, 7], T[3, 4], equation=\"ij,kl->jl\")\neinsum(T[4, 4, 3], T[3, 4], equation=\"iij,ji->ij\")\n"
        "einsum(T[], T[], equation=\",->\")\neinsum(T[0, 3], T[3], equation=\"ij,j->i\")\n"
        "einsum(T[3, 2], T[2, 5], equation=\"Bj,ja\")\n"
        "einsum(T[3, 5], T[5, 7], T[7, 2], equation=\"ij,jk,kl->li\")\n"
        "einsum(T[5], T[5, 7], T[7], equation=\"i,ij,j\")\n"
        "einsum(T[4, 3], T[4, 5], T[4, 2], T[3, 5, 2], equation=\"na,nb,nc,abc->n\")\n"
        "einsum(T[3, 3, 5], T[5, 2], T[2, 3, 7], equation=\"iij,jk,kil->i\")\n"
        "einsum(T[2], T[3], T[1], T[5], equation=\"a,b,c,d->dbca\")\n"
        "einsum(T[3, 4], T[4], T[3, 4], equation=\"ij,j,ij->ij\")\n"
        "einsum(T[5, 0], T[0, 3], T[3, 2], equation=\"ij,jk,kl->il\")\n"
        "einsum(T[0], T[3], T[], equation=\"i,j,->ij\")\n"
        "einsum(T[1, 1], T[1, 7], T[7, 1], equation=\"ij,jk,ki->\")\n"
        "einsum(T[2, 3, 5, 7], equation=\"...i->i...\")\n"
        "einsum(T[2, 3, 5], T[4, 2, 5, 6], equation=\"...ij,...jk\")\n"
        "einsum(T[2, 1, 3, 5], T[7, 5, 4], T[4], equation=\"...ij,...jk,k->...ik\")\n"
        "einsum(T[3, 2, 4], T[4, 1], T[1, 2, 3], equation=\"a...b,b...,...a->...\")\n"
        "einsum(T[1, 2], T[2], T[1, 1], equation=\"...,...,...\")\n"
        "einsum(T[5], T[3], equation=\"...i,j...->...ij\")",
    .doc =
        "Sum of products of the elements of all operands over all labels that are not in the result. A label is a letter and names axes "
        "of one size; repeated within an operand it is the diagonal. ... stands for the axes that have no label, aligned at the last and "
        "broadcast (a size of 1 repeats). Without -> the result has the axes of ..., then the labels that occur once, in alphabetical order, "
        "capitals first. Labels of one operand alone are summed first; then each time those two operands are multiplied, and "
        "summed over what nothing else has, whose product takes the fewest multiplications (of those the smallest, then the first; a size "
        "that is no number counts as 100). f16 and bf16 multiply and add in f32 and round once; integers wrap. Up to 32 operands. "
        "NumPy einsum; ONNX Einsum.",
};

const graph_op *const graph_ops_einsum[] = {&row_einsum, NULL};
