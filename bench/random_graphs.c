/* A random graph is a chain: a value, and steps that each read the value before, sometimes an earlier one, and inputs of their own. A step
 * that does not fit the value's rank or size is drawn again. Sizes: short and long ones, powers of two, primes, and what lies beside them. */
#include "bench/random_graphs.h"

#include "bench/draw.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LARGEST_FLOPS 3e8
#define LARGEST_VALUE 2e6 /* elements */
#define LEAST_VALUE 2e3   /* of the first value: below, the call is what takes the time */

typedef bench_graph_value value;

typedef struct maker {
    bench_random_graph *g;
    bench_draw *draw;
} maker;

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

static int64_t draw(maker *m, int64_t limit) {
    return bench_draw_below(m->draw, limit);
}

static bool chance(maker *m, int64_t one_in) {
    return draw(m, one_in) == 0;
}

static const value *at(const maker *m, int v) {
    return &m->g->values[v];
}

static double points(const value *v) {
    double points = 1;
    for (int d = 0; d < v->rank; d++) points *= (double)v->dims[d];
    return points;
}

double bench_value_bytes(const bench_graph_value *v) {
    return points(v) * (v->integer ? 8 : 4);
}

static int add(maker *m, const value *v) {
    m->g->values[m->g->count] = *v;
    m->g->values[m->g->count].output = false;
    return m->g->count++;
}

/* Adds an input of the shape of v. */
static int input(maker *m, const value *v) {
    value made = *v;
    made.step[0] = 0, made.operand_count = 0, made.flops = 0, made.integer = false;
    return add(m, &made);
}

static int input_of(maker *m, int rank, const int64_t *dims) {
    value v = {.rank = rank, .symbol = -1};
    memcpy(v.dims, dims, (size_t)rank * sizeof *dims);
    return input(m, &v);
}

/* Adds a step whose result has the shape `like`. `operands` ends with -1; `flops` is for the whole step. */
static bool step(maker *m, const value *like, double flops, const int *operands, const char *format, ...) {
    value made = *like;
    made.operand_count = 0, made.flops = flops, made.integer = false;
    for (; operands[made.operand_count] >= 0; made.operand_count++)
        made.operands[made.operand_count] = operands[made.operand_count];
    va_list list;
    va_start(list, format);
    vsnprintf(made.step, sizeof made.step, format, list);
    va_end(list);
    m->g->flops += flops;
    add(m, &made);
    return true;
}
#define FROM(...)       \
    (const int[]) {     \
        __VA_ARGS__, -1 \
    }

/* A list as text, such as "[1, 2]". */
typedef struct numbers {
    char text[96];
} numbers;

static numbers list(int count, const int64_t *values) {
    numbers n = {"["};
    for (int i = 0; i < count; i++) {
        size_t used = strlen(n.text);
        snprintf(n.text + used, sizeof n.text - used, i ? ", %lld" : "%lld", (long long)values[i]);
    }
    strcat(n.text, "]");
    return n;
}

static int64_t draw_size(maker *m) {
    static const int64_t sizes[] = {1,  2,  3,  4,  5,   6,   7,   8,   12,  16,  17,  24,  31,  32,  33,   48,   56,
                                    63, 64, 65, 96, 100, 127, 128, 192, 200, 256, 333, 500, 512, 768, 1000, 1024, 3072};
    return sizes[draw(m, (int64_t)(sizeof sizes / sizeof *sizes))];
}

/* ---- maps -------------------------------------------------------------------------------------------------------------------- */

static bool cheap(maker *m, int x) {
    return step(m, at(m, x), 1 * points(at(m, x)), FROM(x), "%s(t%d)",
                BENCH_PICK(m->draw, "relu", "neg", "abs", "sign"), x);
}

static bool function(maker *m, int x) {
    return step(m, at(m, x), 20 * points(at(m, x)), FROM(x), "%s(t%d)",
                BENCH_PICK(m->draw, "tanh", "gelu", "silu", "logistic", "softplus"), x);
}

/* A binary operation on x and a new input that may be broadcast. */
static bool with_input(maker *m, int x) {
    value other = *at(m, x);
    for (int d = 0; d < other.rank && chance(m, 2); d++) {
        int axis = (int)draw(m, other.rank);
        other.dims[axis] = 1;
        if (other.symbol == axis) other.symbol = -1;
    }
    int y = input(m, &other);
    return step(m, at(m, x), points(at(m, x)), FROM(x, y), "%s(t%d, t%d)",
                BENCH_PICK(m->draw, "add", "mul", "sub", "max"), x, y);
}

/* A binary operation on x and an earlier value of the same shape. */
static bool residual(maker *m, int x) {
    const value *v = at(m, x);
    for (int y = 0; y < x; y++) {
        const value *o = at(m, y);
        if (o->rank != v->rank || o->symbol != v->symbol || o->integer ||
            memcmp(o->dims, v->dims, sizeof o->dims[0] * (size_t)o->rank))
            continue;
        return step(m, v, points(v), FROM(x, y), "%s(t%d, t%d)", BENCH_PICK(m->draw, "add", "mul"), x, y);
    }
    return false;
}

/* ---- rows -------------------------------------------------------------------------------------------------------------------- */

static bool softmax(maker *m, int x) {
    const value *v = at(m, x);
    return step(m, v, 24 * points(v), FROM(x), "%s(t%d, axis=%d)",
                BENCH_PICK(m->draw, "softmax", "softmax", "log_softmax"), x, (int)draw(m, v->rank));
}

static bool norm(maker *m, int x) {
    const value *v = at(m, x);
    if (v->symbol == v->rank - 1) return false;
    int g = input_of(m, 1, &v->dims[v->rank - 1]);
    return step(m, at(m, x), 6 * points(at(m, x)), FROM(x, g), "%s(t%d, t%d, axis=%d)",
                BENCH_PICK(m->draw, "layer_norm", "rms_norm"), x, g, at(m, x)->rank - 1);
}

/* Deviations from the mean along an axis. */
static bool deviation(maker *m, int x) {
    value mean = *at(m, x);
    int axis = (int)draw(m, mean.rank);
    mean.dims[axis] = 1;
    if (mean.symbol == axis) mean.symbol = -1;
    step(m, &mean, points(at(m, x)), FROM(x), "reduce_mean(t%d, axes=[%d], keep=true)", x, axis);
    int y = m->g->count - 1;
    return step(m, at(m, x), points(at(m, x)), FROM(x, y), "sub(t%d, t%d)", x, y);
}

static bool reduce(maker *m, int x) {
    const value *v = at(m, x);
    value result = {.symbol = -1};
    int64_t axes[BENCH_GRAPH_RANK];
    int count = 0, must = (int)draw(m, v->rank);
    for (int d = 0; d < v->rank; d++) {
        if (d == must || chance(m, 3)) {
            axes[count++] = d;
            continue;
        }
        if (v->symbol == d) result.symbol = result.rank;
        result.dims[result.rank++] = v->dims[d];
    }
    return step(m, &result, points(v), FROM(x), "%s(t%d, axes=%s)",
                BENCH_PICK(m->draw, "reduce_sum", "reduce_max", "reduce_mean"), x, list(count, axes).text);
}

static bool position(maker *m, int x) {
    const value *v = at(m, x);
    value result = {.symbol = -1};
    int axis = (int)draw(m, v->rank);
    for (int d = 0; d < v->rank; d++) {
        if (d == axis) continue;
        if (v->symbol == d) result.symbol = result.rank;
        result.dims[result.rank++] = v->dims[d];
    }
    step(m, &result, 3 * points(v), FROM(x), "%s(t%d, axis=%d)", BENCH_PICK(m->draw, "arg_max", "arg_min"), x, axis);
    return m->g->values[m->g->count - 1].integer = true;
}

static bool cumulative(maker *m, int x) {
    const value *v = at(m, x);
    return step(m, v, 4 * points(v), FROM(x), "%s(t%d, axis=%d)",
                BENCH_PICK(m->draw, "cumulative_sum", "cumulative_max"), x, (int)draw(m, v->rank));
}

/* ---- contractions and windows -------------------------------------------------------------------------------------------------- */

/* A product of x and a new input, [k, n] or [batch, k, n], which may be stored transposed. */
static bool contraction(maker *m, int x) {
    const value *v = at(m, x);
    if (v->rank < 2 || v->rank > 4) return false;
    const bool batched = v->rank > 2 && chance(m, 2), transposed = chance(m, 3);
    value w = {.symbol = -1}, y = *v;
    const int64_t k = v->dims[v->rank - 1], n = draw_size(m);
    if (batched) w.rank = v->rank - 2, w.symbol = v->symbol < v->rank - 2 ? v->symbol : -1;
    if (batched) memcpy(w.dims, v->dims, sizeof w.dims);
    w.dims[w.rank] = transposed ? n : k, w.dims[w.rank + 1] = transposed ? k : n;
    if (v->symbol == v->rank - 1) w.symbol = w.rank + transposed, y.symbol = -1;
    w.rank += 2, y.dims[y.rank - 1] = n;
    const double flops = 2 * points(&y) * (double)k;
    if (flops + m->g->flops > LARGEST_FLOPS || points(&w) > LARGEST_VALUE || points(&y) > LARGEST_VALUE) return false;
    int b = input(m, &w);
    if (transposed) {
        value back = w;
        int64_t order[BENCH_GRAPH_RANK] = {0, 1, 2, 3, 4, 5};
        order[w.rank - 2] = w.rank - 1, order[w.rank - 1] = w.rank - 2;
        back.dims[w.rank - 2] = k, back.dims[w.rank - 1] = n;
        if (w.symbol >= w.rank - 2) back.symbol = 2 * w.rank - 3 - w.symbol;
        step(m, &back, 0, FROM(b), "transpose(t%d, permutation=%s)", b, list(w.rank, order).text);
        b = m->g->count - 1;
    }
    return step(m, &y, flops, FROM(x, b), "matmul(t%d, t%d)", x, b);
}

/* Windows along one to three axes. A symbolic axis keeps its size. */
typedef struct windows {
    int count;
    int64_t size[3], stride[3], pad[3];
} windows;

static bool draw_windows(maker *m, const value *v, windows *w, value *result) {
    static const int64_t sizes[] = {1, 1, 2, 3, 3, 3, 4, 5, 7};
    *result = *v;
    w->count = v->rank - 2;
    for (int i = 0; i < w->count; i++) {
        const int64_t size = sizes[draw(m, 9)], points_ = v->dims[2 + i], stride = 1 + chance(m, 4) + chance(m, 8);
        w->size[i] = size < points_ ? size : points_;
        w->pad[i] = chance(m, 2) ? (w->size[i] - 1) / 2 : 0;
        w->stride[i] = stride;
        if (v->symbol == 2 + i) w->size[i] = 3, w->pad[i] = 1, w->stride[i] = 1;
        result->dims[2 + i] = (points_ + 2 * w->pad[i] - w->size[i]) / w->stride[i] + 1;
    }
    return true;
}

static double product(int count, const int64_t *values) {
    double p = 1;
    for (int i = 0; i < count; i++) p *= (double)values[i];
    return p;
}

static bool convolution(maker *m, int x) {
    const value *v = at(m, x);
    windows w;
    value y;
    if (v->rank < 3 || v->rank > 5 || v->symbol == 1) return false;
    static const int64_t grouped[] = {1, 1, 1, 2, 4, 8};
    int64_t groups = grouped[draw(m, 6)], channels = v->dims[1];
    if (chance(m, 4)) groups = channels;
    if (channels % groups) return false;
    draw_windows(m, v, &w, &y);
    y.dims[1] = groups == channels && chance(m, 2) ? channels : groups * (1 + draw_size(m) / groups);
    int64_t dims[5] = {y.dims[1], channels / groups};
    memcpy(dims + 2, w.size, sizeof w.size);
    const double flops = 2 * points(&y) * product(v->rank - 1, dims + 1);
    if (flops + m->g->flops > LARGEST_FLOPS || points(&y) > LARGEST_VALUE || product(v->rank, dims) > LARGEST_VALUE)
        return false;
    int f = input_of(m, v->rank, dims);
    return step(m, &y, flops, FROM(x, f), "convolution(t%d, t%d, stride=%s, low=%s, high=%s, groups=%lld)", x, f,
                list(w.count, w.stride).text, list(w.count, w.pad).text, list(w.count, w.pad).text, (long long)groups);
}

static bool pool(maker *m, int x) {
    const value *v = at(m, x);
    windows w;
    value y;
    if (v->rank < 3 || v->rank > 5) return false;
    draw_windows(m, v, &w, &y);
    return step(m, &y, points(&y) * product(w.count, w.size), FROM(x), "%s(t%d, window=%s, stride=%s, low=%s, high=%s)",
                BENCH_PICK(m->draw, "max_pool", "average_pool"), x, list(w.count, w.size).text,
                list(w.count, w.stride).text, list(w.count, w.pad).text, list(w.count, w.pad).text);
}

/* ---- moves --------------------------------------------------------------------------------------------------------------------- */

static bool transpose(maker *m, int x) {
    const value *v = at(m, x);
    value y = *v;
    int64_t order[BENCH_GRAPH_RANK];
    if (v->rank < 2) return false;
    for (int d = 0; d < v->rank; d++) {
        int place = (int)draw(m, d + 1);
        order[d] = order[place], order[place] = d;
    }
    for (int d = 0; d < v->rank; d++) {
        y.dims[d] = v->dims[order[d]];
        if (order[d] == v->symbol) y.symbol = d;
    }
    return step(m, &y, 0, FROM(x), "transpose(t%d, permutation=%s)", x, list(v->rank, order).text);
}

static bool reverse(maker *m, int x) {
    return step(m, at(m, x), 0, FROM(x), "reverse(t%d, axes=[%d])", x, (int)draw(m, at(m, x)->rank));
}

/* Draws an axis; -1: it is the symbolic one, whose size must not change. */
static int known_axis(maker *m, const value *v) {
    const int axis = (int)draw(m, v->rank);
    return axis == v->symbol ? -1 : axis;
}

static bool slice(maker *m, int x) {
    const value *v = at(m, x);
    value y = *v;
    const int axis = known_axis(m, v);
    if (axis < 0 || v->symbol >= 0 || v->dims[axis] < 4) return false;
    int64_t start[BENCH_GRAPH_RANK] = {0}, stop[BENCH_GRAPH_RANK], by[BENCH_GRAPH_RANK];
    for (int d = 0; d < v->rank; d++) stop[d] = v->dims[d], by[d] = 1;
    start[axis] = draw(m, 3), stop[axis] -= draw(m, 2), by[axis] = 1 + draw(m, 3);
    y.dims[axis] = (stop[axis] - start[axis] + by[axis] - 1) / by[axis];
    return step(m, &y, 0, FROM(x), "slice(t%d, start=%s, stop=%s, step=%s)", x, list(v->rank, start).text,
                list(v->rank, stop).text, list(v->rank, by).text);
}

static bool pad(maker *m, int x) {
    value y = *at(m, x);
    int64_t low[BENCH_GRAPH_RANK], high[BENCH_GRAPH_RANK];
    for (int d = 0; d < y.rank; d++) {
        low[d] = d == y.symbol ? 0 : draw(m, 3), high[d] = d == y.symbol ? 0 : draw(m, 3);
        y.dims[d] += low[d] + high[d];
    }
    int z = input_of(m, 0, NULL);
    return step(m, &y, 0, FROM(x, z), "pad(t%d, t%d, low=%s, high=%s)", x, z, list(y.rank, low).text,
                list(y.rank, high).text);
}

static bool concat(maker *m, int x) {
    const int axis = known_axis(m, at(m, x));
    if (axis < 0) return false;
    value y = *at(m, x), other = y;
    other.dims[axis] = chance(m, 2) ? y.dims[axis] : draw_size(m);
    y.dims[axis] += other.dims[axis];
    if (points(&y) > LARGEST_VALUE) return false;
    int z = input(m, &other);
    return step(m, &y, 0, FROM(x, z), "concat(t%d, t%d, axis=%d)", x, z, axis);
}

/* Merges two neighbouring axes. */
static bool merge(maker *m, int x) {
    const value *v = at(m, x);
    const int axis = v->rank > 1 ? (int)draw(m, v->rank - 1) : 0;
    if (v->rank < 2 || v->symbol == axis || v->symbol == axis + 1) return false;
    value y = {.rank = v->rank - 1, .symbol = v->symbol > axis ? v->symbol - 1 : v->symbol};
    char dims[96] = "";
    for (int d = 0; d < y.rank; d++) {
        y.dims[d] = d == axis ? v->dims[d] * v->dims[d + 1] : v->dims[d + (d > axis)];
        size_t used = strlen(dims);
        if (d == y.symbol)
            snprintf(dims + used, sizeof dims - used, "%sn", d ? ", " : "");
        else
            snprintf(dims + used, sizeof dims - used, "%s%lld", d ? ", " : "", (long long)y.dims[d]);
    }
    return step(m, &y, 0, FROM(x), "reshape(t%d, shape=[%s])", x, dims);
}

/* ---- graphs -------------------------------------------------------------------------------------------------------------------- */

typedef bool make_function(maker *m, int x);
/* All kinds of steps, with the weights by which they are drawn as a first and as a later step. */
static const struct {
    make_function *make;
    int first, later;
} kinds[] = {{cheap, 1, 4},       {function, 1, 4},    {with_input, 2, 5}, {residual, 0, 4},  {softmax, 4, 3},
             {norm, 2, 3},        {deviation, 2, 2},   {reduce, 4, 3},     {position, 2, 1},  {cumulative, 2, 1},
             {contraction, 8, 3}, {convolution, 8, 2}, {pool, 2, 1},       {transpose, 2, 3}, {reverse, 1, 1},
             {slice, 1, 1},       {pad, 1, 1},         {concat, 2, 1},     {merge, 1, 2}};
enum { KINDS = sizeof kinds / sizeof *kinds, TRIES = 50 };

static make_function *draw_kind(maker *m, bool first) {
    int sum = 0;
    for (int i = 0; i < KINDS; i++) sum += first ? kinds[i].first : kinds[i].later;
    int64_t left = draw(m, sum);
    int i = 0;
    for (; left >= (first ? kinds[i].first : kinds[i].later); i++) left -= first ? kinds[i].first : kinds[i].later;
    return kinds[i].make;
}

static void first_value(maker *m) {
    value v;
    do {
        v = (value){.rank = 2 + (int)draw(m, 4) - (int)draw(m, 2), .symbol = -1};
        for (int d = 0; d < v.rank; d++) v.dims[d] = draw_size(m);
    } while (points(&v) > LARGEST_VALUE || points(&v) < LEAST_VALUE);
    if (chance(m, 2)) v.symbol = (int)draw(m, v.rank);
    m->g->n = v.symbol < 0 ? 0 : v.dims[v.symbol];
    input(m, &v);
}

/* Adds a step; false: none that was drawn fits. */
static bool grow(maker *m, bool first) {
    const int x = m->g->count - 1;
    const bench_random_graph before = *m->g;
    for (int i = 0; i < TRIES; i++) {
        make_function *make = draw_kind(m, first);
        const value *made = &m->g->values[m->g->count - 1];
        if (made->rank > 0 && !made->integer && make(m, x) && points(&m->g->values[m->g->count - 1]) <= LARGEST_VALUE)
            return true;
        *m->g = before;
    }
    return false;
}

void bench_random_graph_make(bench_random_graph *graph, uint64_t seed, int number) {
    bench_draw source = {seed + ((uint64_t)number << 32)};
    maker m = {graph, &source};
    *graph = (bench_random_graph){.count = 0};
    first_value(&m);
    /* a third of the graphs have one step; of the others, long chains are rarer */
    int steps = 1 + (draw(&m, 3) ? 1 + (int)draw(&m, 3) + (int)draw(&m, 3) : 0);
    while (!grow(&m, true)) *graph = (bench_random_graph){.count = 0}, first_value(&m);
    for (int i = 1; i < steps && graph->count + 4 < BENCH_GRAPH_VALUES && grow(&m, false); i++) {
    }
    graph->values[graph->count - 1].output = true;
    for (int i = 0, more = (int)draw(&m, 4) - 1; i < more; i++) {
        value *v = &graph->values[draw(&m, graph->count)];
        v->output = v->output || v->step[0];
    }
}

/* ---- parts --------------------------------------------------------------------------------------------------------------------- */

int bench_graph_inputs(const bench_random_graph *graph, int part, int values[BENCH_GRAPH_VALUES]) {
    int count = 0;
    for (int v = 0; v < graph->count && part == BENCH_WHOLE; v++)
        if (!graph->values[v].step[0]) values[count++] = v;
    if (part == BENCH_WHOLE) return count;
    const value *made = &graph->values[part];
    for (int i = 0; i < made->operand_count; i++)
        if (i == 0 || made->operands[i] != made->operands[0]) values[count++] = made->operands[i];
    return count;
}

int bench_graph_outputs(const bench_random_graph *graph, int part, int values[BENCH_GRAPH_VALUES]) {
    int count = 0;
    for (int v = 0; v < graph->count; v++)
        if (part == BENCH_WHOLE ? graph->values[v].output : v == part) values[count++] = v;
    return count;
}

static void say(char *text, const char *format, ...) {
    size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, BENCH_GRAPH_TEXT - used, format, list);
    va_end(list);
}

void bench_graph_text(const bench_random_graph *graph, int part, bool varies, char text[BENCH_GRAPH_TEXT]) {
    int values[BENCH_GRAPH_VALUES], count = bench_graph_inputs(graph, part, values);
    text[0] = 0;
    say(text, "graph {");
    if (graph->n) say(text, " symbol n in 1..4096%s", varies ? " varies" : "");
    for (int i = 0; i < count; i++) {
        const value *v = &graph->values[values[i]];
        say(text, " input t%d: f32[", values[i]);
        for (int d = 0; d < v->rank; d++)
            if (d == v->symbol)
                say(text, "%sn", d ? ", " : "");
            else
                say(text, "%s%lld", d ? ", " : "", (long long)v->dims[d]);
        say(text, "]");
    }
    for (int v = 0; v < graph->count; v++)
        if (graph->values[v].step[0] && (part == BENCH_WHOLE || v == part))
            say(text, " t%d = %s", v, graph->values[v].step);
    count = bench_graph_outputs(graph, part, values);
    for (int i = 0; i < count; i++) say(text, " output t%d", values[i]);
    say(text, " }");
}
